/* test_environment.c - hostile surroundings
 *
 * P5, P6, P9, P10 and P11: processes that fork endlessly, namespaces, users and
 * umasks, clocks that jump, too few descriptors, files restored and disks full
 * under open handles, a file with two names or two mounts.  Tests that need
 * root are skipped by other users, with a sentence.
 */
#define _GNU_SOURCE
#include "test/seam.h"
#include "test/engine/calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

ON_DISK;

/* ---- nodes and files ---- */

static int set(zke *z, const char *path, const char *data) {
  return zke_set(z, path, data, (int)strlen(data), -1, NULL);
}

/* Wait until the events have arrived. */
static void await(zke *z, test_events *events, const char *expected, int ms) {
  int64_t end = test_now() + test_patience(ms);
  while (events->count == 0 && test_now() < end) {
    int rc = zke_wait(z, zke_now(z) + 20);
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT, "wait: %d", rc);
  }
  test_expect(z, events, expected);
}

/* Write a file of `size` equal letters. */
static void write_file(const char *path, int letter, int size) {
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  for (int i = 0; i < size; i++) putc(letter, f);
  ck_assert_int_eq(fclose(f), 0);
}

/* A path with a suffix, valid until eight calls later. */
static const char *beside(const char *path, const char *suffix) {
  static char text[8][4096];
  static unsigned next;
  char *out = text[next++ % 8];
  snprintf(out, sizeof text[0], "%s%s", path, suffix);
  return out;
}

/* ---- workers: programs of their own ---- */

static test_worker owner_of(const char *db, const char *path) {
  test_worker w = test_worker_on(db);
  test_ask(&w, "create %s x %d", path, ZKE_EPHEMERAL);
  return w;
}

/* ---- peers: children that run functions of this file ----
 *
 * A peer is forked before the test opens a handle.  The two share a socket and
 * the program's addresses, so the test names the function that the peer should
 * run.  It can be another user and have another umask or namespace. */

enum { TEXT = 1024 };

typedef int (*peer_step)(const char *argument);

typedef struct peer {
  pid_t pid;
  int fd;
} peer;

typedef struct peer_order {
  peer_step run;
  char argument[TEXT];
} peer_order;

typedef struct peer_reply {
  int rc;
  char text[TEXT]; /* the sentence of a failure */
} peer_reply;

static zke *mine;        /* in a peer: its handle */
static char said[TEXT];  /* in the test: the sentence of the last reply */
static int peer_ends[8]; /* the test's ends, which later peers must not keep */
static int peer_count;

/* A peer: runs the functions that it is asked to, and replies. */
static void peer_serve(int fd) {
  peer_order order;
  while (read(fd, &order, sizeof order) == sizeof order) {
    peer_reply reply = {.rc = order.run(order.argument)};
    snprintf(reply.text, sizeof reply.text, "%s", zke_errmsg());
    if (write(fd, &reply, sizeof reply) != sizeof reply) break;
  }
  _exit(0);
}

/* Start one; become(), if given, runs first in the child. */
static peer peer_start(void (*become)(void)) {
  int fd[2];
  ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fd), 0);
  peer p = {.pid = fork(), .fd = fd[0]};
  ck_assert_int_ge(p.pid, 0);
  if (p.pid == 0) {
    for (int i = 0; i < peer_count; i++) close(peer_ends[i]);
    close(fd[0]);
    if (become) become();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    peer_serve(fd[1]);
  }
  close(fd[1]);
  ck_assert_int_lt(peer_count, 8);
  return peer_ends[peer_count++] = p.fd, p;
}

static void peer_tell(const peer *p, peer_step run, const char *argument) {
  peer_order order = {.run = run};
  snprintf(order.argument, sizeof order.argument, "%s", argument);
  ck_assert_int_eq(write(p->fd, &order, sizeof order), sizeof order);
}

/* The result of the peer's function; its sentence is in `said`. */
static int peer_answer(const peer *p) {
  peer_reply reply;
  struct pollfd poller = {.fd = p->fd, .events = POLLIN};
  ck_assert_msg(poll(&poller, 1, (int)test_patience(20000)) == 1,
                "no reply in time");
  ck_assert_msg(read(p->fd, &reply, sizeof reply) == sizeof reply,
                "peer %d is gone", (int)p->pid);
  memcpy(said, reply.text, sizeof said);
  return reply.rc;
}

static int peer_call(const peer *p, peer_step run, const char *argument) {
  peer_tell(p, run, argument);
  return peer_answer(p);
}

#define ck_peer(p, run, argument, expected)                                  \
  do {                                                                       \
    int ck_peer_got_ = peer_call(p, run, argument);                          \
    ck_assert_msg(ck_peer_got_ == (expected), "%s(%s): got %d (%s), not %d", \
                  #run, argument, ck_peer_got_, said, (int)(expected));      \
  } while (0)

static void peer_kill(const peer *p) {
  ck_assert_int_eq(kill(p->pid, SIGKILL), 0);
  waitpid(p->pid, NULL, 0);
}

static int peer_open(const char *db) { return zke_open(db, NULL, &mine); }

static int peer_close(const char *argument) {
  (void)argument;
  int rc = zke_close(mine);
  mine = NULL;
  return rc;
}

static int peer_hold(const char *path) {
  return create(mine, path, ZKE_EPHEMERAL);
}

static int peer_exists(const char *path) { return see(mine, path); }
static int peer_set(const char *path) { return set(mine, path, "theirs"); }

static int peer_check(const char *argument) {
  (void)argument;
  return zke_check(mine, NULL, NULL);
}

static int peer_watch(const char *path) {
  int rc = zke_exists(mine, path, test_ignore, NULL, NULL);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

static int peer_wait(const char *ms) {
  return zke_wait(mine, zke_now(mine) + atoi(ms));
}

/* How many living sessions it sees. */
static int peer_sessions(const char *argument) {
  (void)argument;
  zke_session_list *list = NULL;
  int alive = 0, rc = zke_sessions(mine, -1, &list);
  for (int i = 0; rc == ZKE_OK && i < list->count; i++)
    alive += list->data[i].alive;
  zke_free(list);
  return rc == ZKE_OK ? alive : rc;
}

/* ---- fork storms ---- */

enum { STORM = 48, AT_ONCE = 12 };

/* In a child: the copy refuses, and its own handle works. */
static void storm_work(zke *copy, const char *db) {
  if (see(copy, "/") != ZKE_FORKED) _exit(11);
  if (set(copy, "/n", "child's") != ZKE_FORKED) _exit(12);
  zke_options o = ZKE_INIT(zke_options);
  o.busy_timeout_ms = 60000; /* all the others come at the same time */
  if (zke_open(db, &o, &mine) != ZKE_OK) _exit(13);
  if (create(mine, "/storm/s-", ZKE_EPHEMERAL_SEQUENTIAL) != ZKE_OK) _exit(14);
  if (see(copy, "/") != ZKE_FORKED) _exit(15);
}

/* It ends by closing, by exiting, or by a signal. */
static void storm_end(int way) {
  int rc = way % 3 == 0 ? zke_close(mine) : ZKE_OK;
  if (way % 3 == 1) raise(SIGKILL);
  _exit(rc == ZKE_OK ? 0 : 16);
}

/* Every second child forks immediately, every fourth after opening a handle. */
static void storm_child(zke *copy, const char *db, int way) {
  pid_t early = way % 2 ? fork() : -1;
  storm_work(copy, db);
  if (early == 0) storm_end(way + 1);
  if (way % 4 == 0 && fork() == 0) {
    copy = mine;
    storm_work(copy, db);
    storm_end(way + 1);
  }
  while (wait(NULL) > 0) continue;
  storm_end(way);
}

static void storm_reap(int way) {
  int status = 0;
  while (waitpid(-1, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
  bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  ck_assert_msg(killed || status == 0, "child %d or before: status %x", way,
                (unsigned)status);
}

/* P5, P9: a process with handles forks endlessly, and so do its children.  All
 * copies refuse, all children's own handles work, each death is noticed, and
 * the parent's session and descriptors are unchanged. */
TEST(fork_storm) {
  const char *db = test_path("a.db");
  zke *z = test_open(db), *further = test_session(z, NULL);
  make(z, "/n");
  make(z, "/storm");
  make_as(z, "/mine", ZKE_EPHEMERAL);
  make_as(further, "/further", ZKE_EPHEMERAL);
  int descriptors = test_fd_count();
  for (int i = 0; i < STORM + AT_ONCE; i++) {
    if (i >= AT_ONCE) storm_reap(i);
    if (i < STORM && fork() == 0) storm_child(z, db, i);
    ck_ok(set(z, "/n", "parent's"));
  }
  zke_stat stat;
  ck_ok(zke_exists(z, "/storm", NULL, NULL, &stat));
  ck_assert_int_ge(stat.cversion, STORM + STORM / 2 + STORM / 4);
  int64_t end = test_now() + test_patience(10000);
  while (child_count(z, "/storm") > 0 && test_now() < end)
    zke_wait(z, zke_now(z) + 20);
  ck_assert_int_eq(child_count(z, "/storm"), 0);
  ck_assert_int_eq(test_session_count(z), 2);
  ck_ok(see(z, "/mine"));
  ck_ok(see(z, "/further"));
  /* others' FIFOs, and the last file of lives that was checked */
  ck_assert_int_le(test_fd_count(), descriptors + 32 + 1);
}

/* ---- PID namespaces ---- */

static bool namespace_refused; /* in the child */

/* The first process of a new PID namespace: with root's rights, or in a user
 * namespace.  It serves as the peer; the process before it only waits. */
static void be_first_of_namespace(void) {
  if (unshare(CLONE_NEWPID) != 0 &&
      unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
    namespace_refused = true;
    return;
  }
  pid_t pid = fork();
  if (pid == 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  waitpid(pid, NULL, 0);
  _exit(pid < 0);
}

static int peer_is_first(const char *argument) {
  (void)argument;
  return namespace_refused ? -EPERM : (int)getpid();
}

static int peer_die(const char *argument) {
  (void)argument;
  _exit(0);
}

/* P5, P6: processes that all have pid 1, each in its own namespace, do not
 * mistake each other for themselves or for dead, and learn of a death. */
TEST(same_pid_in_two_namespaces) {
  const char *db = test_path("a.db");
  peer one = peer_start(be_first_of_namespace);
  peer two = peer_start(be_first_of_namespace);
  if (peer_call(&one, peer_is_first, "") < 0) {
    printf(
        "PID namespaces: skipped, neither as root nor in a user namespace\n");
    return;
  }
  ck_peer(&two, peer_is_first, "", 1);
  ck_peer(&one, peer_open, db, ZKE_OK);
  ck_peer(&two, peer_open, db, ZKE_OK);
  ck_peer(&one, peer_hold, "/one", ZKE_OK);
  ck_peer(&two, peer_hold, "/two", ZKE_OK);
  zke *z = test_open(db);
  ck_peer(&one, peer_watch, "/two", ZKE_OK);
  ck_peer(&one, peer_wait, "1200", ZKE_OPERATIONTIMEOUT);
  ck_peer(&one, peer_sessions, "", 3);
  ck_peer(&two, peer_sessions, "", 3);
  ck_rc(zke_wait(z, zke_now(z) + 1200), ZKE_OPERATIONTIMEOUT);
  ck_ok(see(z, "/one"));
  ck_ok(see(z, "/two"));
  peer_tell(&two, peer_die, "");
  ck_peer(&one, peer_wait, "10000", ZKE_OK);
  ck_peer(&one, peer_exists, "/two", ZKE_NONODE);
  ck_peer(&one, peer_sessions, "", 2);
  ck_rc(see(z, "/two"), ZKE_NONODE);
  ck_peer(&one, peer_close, "", ZKE_OK);
}

/* ---- users and umasks ---- */

enum { ALICE = 61001, BOB = 61002, EVE = 61003, TEAM = 61100 };

static void be_user(uid_t uid, gid_t extra) {
  if (setgroups(extra != 0, &extra) || setresgid(uid, uid, uid) ||
      setresuid(uid, uid, uid))
    _exit(20);
}

static void be_alice(void) { be_user(ALICE, TEAM); }
static void be_bob(void) { be_user(BOB, TEAM); }
static void be_eve(void) { be_user(EVE, 0); }

static int peer_umask(const char *mask) {
  umask((mode_t)strtol(mask, NULL, 8));
  return 0;
}

/* A path in a directory of Alice that the team may write to, or NULL if this
 * process may not become other users. */
static const char *team_path(const char *name, mode_t mode) {
  if (getuid() != 0) {
    printf("users: skipped, needs root\n");
    return NULL;
  }
  const char *directory = test_path("team");
  ck_assert_int_eq(chmod(test_path("."), 0711), 0);
  ck_assert_int_eq(mkdir(directory, 0700), 0);
  ck_assert_int_eq(chown(directory, ALICE, TEAM), 0);
  ck_assert_int_eq(chmod(directory, mode), 0);
  return test_path(name);
}

/* Make an empty file with this mode, as doc/security.md says. */
static void prepare(const char *path, mode_t mode) {
  write_file(path, 'x', 0);
  ck_assert_int_eq(chown(path, ALICE, TEAM), 0);
  ck_assert_int_eq(chmod(path, mode), 0);
}

static mode_t mode_of(const char *path) {
  struct stat s;
  ck_assert_msg(stat(path, &s) == 0, "%s: %s", path, strerror(errno));
  return s.st_mode & 0777;
}

/* All side files have the database's mode. */
static void expect_modes(const char *db, mode_t mode) {
  ck_assert_uint_eq(mode_of(db), mode);
  ck_assert_uint_eq(mode_of(beside(db, "-wal")), mode);
  ck_assert_uint_eq(mode_of(beside(db, "-shm")), mode);
  ck_assert_uint_eq(mode_of(beside(db, "-zke/live")), mode);
  ck_assert_uint_eq(mode_of(beside(db, "-zke/gate")), mode);
  ck_assert_uint_eq(mode_of(beside(db, "-zke/line")), mode);
  ck_assert_uint_eq(mode_of(beside(db, "-zke")), mode | (mode & 0444) >> 2);
}

/* doc/security.md: two users of one group share a 0660 database in the group's
 * directory, wake each other and reap each other's sessions, whatever their
 * umasks; a third user is refused. */
TEST(users_share_by_their_group) {
  const char *db = team_path("team/a.db", 02770);
  if (!db) return;
  prepare(db, 0660);
  peer alice = peer_start(be_alice), bob = peer_start(be_bob),
       eve = peer_start(be_eve);
  ck_peer(&alice, peer_umask, "077", 0);
  ck_peer(&bob, peer_umask, "022", 0);
  ck_peer(&alice, peer_open, db, ZKE_OK);
  expect_modes(db, 0660);
  ck_peer(&alice, peer_hold, "/alice", ZKE_OK);
  ck_peer(&eve, peer_open, db, ZKE_CANTOPEN);
  ck_peer(&bob, peer_open, db, ZKE_OK);
  ck_peer(&bob, peer_hold, "/bob", ZKE_OK);
  ck_peer(&bob, peer_watch, "/alice", ZKE_OK);
  peer_tell(&bob, peer_wait, "10000");
  ck_peer(&alice, peer_set, "/alice", ZKE_OK);
  ck_assert_int_eq(peer_answer(&bob), ZKE_OK);
  ck_peer(&bob, peer_watch, "/alice", ZKE_OK);
  peer_kill(&alice);
  ck_peer(&bob, peer_wait, "10000", ZKE_OK);
  ck_peer(&bob, peer_exists, "/alice", ZKE_NONODE);
  peer again = peer_start(be_alice);
  ck_peer(&again, peer_open, db, ZKE_OK);
  ck_peer(&again, peer_exists, "/bob", ZKE_OK);
  ck_peer(&again, peer_check, "", ZKE_OK);
  ck_peer(&again, peer_close, "", ZKE_OK);
  expect_modes(db, 0660);
  ck_peer(&bob, peer_close, "", ZKE_OK);
}

/* How many files of lives have this mode and this group. */
static int count_lives(const char *db, mode_t mode, gid_t group) {
  int count = 0;
  DIR *d = opendir(beside(db, "-zke"));
  ck_assert_ptr_nonnull(d);
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    struct stat st;
    ck_assert_int_eq(fstatat(dirfd(d), e->d_name, &st, 0), 0);
    count += strncmp(e->d_name, "live.", 5) == 0 && st.st_gid == group &&
             (st.st_mode & 0777) == mode;
  }
  closedir(d);
  return count;
}

/* P5, P6: the database's owner is not a member of its group, so the files she
 * makes cannot get that group.  Still, others can check her sessions' lives,
 * and she can check theirs. */
TEST(lives_of_one_who_is_not_of_the_group) {
  const char *db = team_path("team/a.db", 0770);
  if (!db) return;
  prepare(db, 0660);
  peer alice = peer_start(be_eve), bob = peer_start(be_bob);
  ck_assert_int_eq(chown(db, EVE, TEAM), 0);
  ck_assert_int_eq(chown(test_path("team"), EVE, TEAM), 0);
  zke *z = test_open(db); /* root makes the files that all use */
  ck_ok(zke_close(z));
  ck_peer(&alice, peer_open, db, ZKE_OK);
  ck_peer(&alice, peer_hold, "/alice", ZKE_OK);
  ck_peer(&bob, peer_open, db, ZKE_OK);
  ck_peer(&bob, peer_hold, "/bob", ZKE_OK);
  ck_peer(&bob, peer_sessions, "", 2);
  ck_peer(&alice, peer_sessions, "", 2);
  ck_peer(&bob, peer_watch, "/alice", ZKE_OK);
  peer_kill(&alice);
  ck_peer(&bob, peer_wait, "10000", ZKE_OK);
  ck_peer(&bob, peer_exists, "/alice", ZKE_NONODE);
  ck_peer(&bob, peer_check, "", ZKE_OK);
  ck_peer(&bob, peer_close, "", ZKE_OK);
}

/* Files of lives whose maker was killed before it set the database's mode get
 * that mode at the next open. */
TEST(half_made_files_with_lives) {
  const char *db = test_path("a.db");
  test_open(db);
  ck_assert_int_eq(chmod(db, 0600), 0);
  for (int i = 0; i < 64; i++) {
    char name[32];
    snprintf(name, sizeof name, "-zke/live.%02x", i);
    write_file(beside(db, name), 'x', 0);
    ck_assert_int_eq(chmod(beside(db, name), 0644), 0);
  }
  test_open(db);
  ck_assert_int_eq(count_lives(db, 0600, getgid()), 64);
}

/* doc/security.md: root opens a user's database first; the files that it makes
 * belong to the user, who can use them afterwards. */
TEST(root_leaves_the_users_files_the_users) {
  const char *db = team_path("team/a.db", 0700);
  struct stat s;
  if (!db) return;
  prepare(db, 0600);
  peer alice = peer_start(be_alice), bob = peer_start(be_bob);
  zke *z = test_open(db);
  make_as(z, "/root", ZKE_EPHEMERAL);
  expect_modes(db, 0600);
  ck_assert_int_eq(stat(beside(db, "-wal"), &s), 0);
  ck_assert_uint_eq(s.st_uid, ALICE);
  ck_peer(&alice, peer_open, db, ZKE_OK);
  ck_peer(&alice, peer_exists, "/root", ZKE_OK);
  ck_peer(&alice, peer_set, "/root", ZKE_OK);
  ck_peer(&bob, peer_open, db, ZKE_CANTOPEN);
  ck_ok(zke_close(z));
  ck_peer(&alice, peer_exists, "/root", ZKE_NONODE);
  ck_peer(&alice, peer_check, "", ZKE_OK);
  ck_peer(&alice, peer_close, "", ZKE_OK);
}

/* doc/security.md: a new database gets the mode 0664 less the umask, its side
 * files follow, and a second process with another umask joins. */
TEST_LOOP(umask_decides_a_new_databases_mode, 0, 6) {
  static const struct {
    const char *mask, *other;
    mode_t mode;
  } cases[] = {{"0", "077", 0664}, {"002", "022", 0664}, {"022", "077", 0644},
               {"077", "0", 0600}, {"027", "0", 0640},   {"0177", "022", 0600}};
  const char *db = test_path("a.db");
  peer one = peer_start(NULL), two = peer_start(NULL);
  ck_peer(&one, peer_umask, cases[_i].mask, 0);
  ck_peer(&two, peer_umask, cases[_i].other, 0);
  ck_peer(&one, peer_open, db, ZKE_OK);
  ck_peer(&one, peer_hold, "/one", ZKE_OK);
  expect_modes(db, cases[_i].mode);
  ck_peer(&two, peer_open, db, ZKE_OK);
  ck_peer(&two, peer_exists, "/one", ZKE_OK);
  ck_peer(&two, peer_hold, "/two", ZKE_OK);
  expect_modes(db, cases[_i].mode);
  ck_peer(&one, peer_close, "", ZKE_OK);
  ck_peer(&two, peer_check, "", ZKE_OK);
  ck_peer(&two, peer_close, "", ZKE_OK);
}

/* After a chmod and chgrp of the database, the other files follow when their
 * owner opens it next, SQLite's and those of lives included; other users change
 * nothing. */
TEST(side_files_follow_a_chmod) {
  const char *db = team_path("team/a.db", 0770);
  struct stat s;
  if (!db) return;
  peer alice = peer_start(be_alice), bob = peer_start(be_bob);
  ck_peer(&alice, peer_umask, "077", 0);
  ck_peer(&alice, peer_open, db, ZKE_OK);
  ck_peer(&alice, peer_close, "", ZKE_OK);
  expect_modes(db, 0600);
  ck_assert_int_eq(chown(db, ALICE, TEAM), 0);
  ck_assert_int_eq(chmod(db, 0660), 0);
  ck_assert_int_ne(peer_call(&bob, peer_open, db), ZKE_OK);
  ck_peer(&alice, peer_open, db, ZKE_OK);
  expect_modes(db, 0660);
  ck_assert_int_eq(stat(beside(db, "-wal"), &s), 0);
  ck_assert_uint_eq(s.st_gid, TEAM);
  ck_assert_int_eq(count_lives(db, 0600, ALICE), 0);
  ck_peer(&alice, peer_hold, "/alice", ZKE_OK);
  ck_peer(&bob, peer_open, db, ZKE_OK);
  ck_peer(&bob, peer_exists, "/alice", ZKE_OK);
  ck_peer(&bob, peer_close, "", ZKE_OK);
  ck_peer(&alice, peer_close, "", ZKE_OK);
}

/* A plain user whose umask removes even the owner's rights works together with
 * the database's other users. */
TEST(umask_of_everything_harms_nobody) {
  const char *db = team_path("team/a.db", 02770);
  if (!db) return;
  prepare(db, 0660);
  peer alice = peer_start(be_alice), bob = peer_start(be_bob);
  ck_peer(&alice, peer_open, db, ZKE_OK);
  ck_peer(&alice, peer_hold, "/alice", ZKE_OK);
  ck_peer(&bob, peer_umask, "0777", 0);
  ck_peer(&bob, peer_open, db, ZKE_OK);
  ck_peer(&alice, peer_set, "/alice", ZKE_OK);
  ck_peer(&alice, peer_sessions, "", 2);
  ck_peer(&bob, peer_exists, "/alice", ZKE_OK);
  ck_peer(&bob, peer_close, "", ZKE_OK);
  ck_peer(&alice, peer_check, "", ZKE_OK);
  ck_peer(&alice, peer_close, "", ZKE_OK);
}

/* ---- clocks that jump ---- */

#define YEARS(n) (INT64_C(n) * 365 * 86400 * 1000)

static int64_t wall_ms;    /* the wall clock's error */
static bool wall_wavers;   /* … with the other sign at every second reading */
static int64_t wall_looks; /* how often it was read */

static void jump(seam_call *c) {
  if (c->how != ZKE_CLOCK_REALTIME) return;
  bool other_way = wall_wavers && wall_looks++ % 2;
  c->result += (other_way ? -wall_ms : wall_ms) * 1000000;
}

static int try_jumping(const char *db, int64_t lease_ms, zke **z) {
  static seam s = {.after = {[SEAM_clock] = jump}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s), .lease_ms = lease_ms};
  return zke_open(db, &o, z);
}

/* A handle whose wall clock is different at each reading. */
static zke *open_jumping(const char *db, int64_t lease_ms) {
  zke *z = NULL;
  ck_ok(try_jumping(db, lease_ms, &z));
  return z;
}

static int64_t wall_now(void) {
  return seam_clock(ZKE_CLOCK_REALTIME) / 1000000 + wall_ms;
}

static void expect_near(int64_t got, int64_t expected) {
  ck_assert_int_ge(got, expected - 5000);
  ck_assert_int_le(got, expected + 5000);
}

/* The clock is set ten years forward, thirty back (before 1970), then right. */
static const int64_t jumps[] = {YEARS(10), -YEARS(20), -YEARS(90), 0};
enum { JUMPS = sizeof jumps / sizeof jumps[0] };

/* doc/proofs.md: ctime and mtime follow the wall clock, even backwards;
 * versions, zxids and the order of events do not. */
TEST_LOOP(times_follow_the_wall_clock, 0, 2) {
  test_events events = {0};
  zke *z = open_jumping(_i ? test_path("a.db") : ":memory:", 0);
  zke_stat made, stat;
  ck_ok(zke_create(z, "/n", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, &made));
  expect_near(made.ctime, wall_now());
  int64_t zxid = made.mzxid;
  for (int i = 0; i < JUMPS; i++) {
    wall_ms = jumps[i];
    ck_ok(zke_exists(z, "/n", test_record, &events, NULL));
    ck_ok(zke_set(z, "/n", "", 0, -1, &stat));
    expect_near(stat.mtime, wall_now());
    ck_assert_int_eq(stat.ctime, made.ctime);
    ck_assert_int_eq(stat.version, i + 1);
    ck_assert_int_eq(stat.mzxid >> 32, zxid >> 32);
    ck_assert_int_gt(stat.mzxid, zxid);
    zxid = stat.mzxid;
    test_expect(z, &events, "CHANGED /n");
    ck_ok(zke_check(z, NULL, NULL));
  }
}

/* doc/proofs.md: a node's TTL follows the wall clock, as in ZooKeeper: if the
 * clock is set back, the node stays; if it is set forward, the node goes. */
TEST_LOOP(ttl_follows_the_wall_clock, 0, 2) {
  zke *z = open_jumping(_i ? test_path("a.db") : ":memory:", 0);
  ck_ok(zke_create_ttl(z, "/t", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                       60000, NULL, NULL));
  make(z, "/n");
  wall_ms = -YEARS(10);
  ck_rc(zke_wait(z, zke_now(z) + 600), ZKE_OPERATIONTIMEOUT);
  ck_ok(see(z, "/t"));
  wall_ms = 50000;
  ck_rc(zke_wait(z, zke_now(z) + 600), ZKE_OPERATIONTIMEOUT);
  ck_ok(see(z, "/t"));
  wall_ms = YEARS(10);
  int64_t end = test_now() + test_patience(10000);
  while (see(z, "/t") == ZKE_OK && test_now() < end)
    zke_wait(z, zke_now(z) + 20);
  ck_rc(see(z, "/t"), ZKE_NONODE);
  ck_ok(see(z, "/n"));
}

/* P5: the wall clock jumps by twenty years at every reading.  A wait and a busy
 * call still end at their deadlines, the lease holds, and another process's
 * session with a right clock is not touched.  The other clocks advance by a
 * quarter of the lease before each wait, so that the lease holds only if it is
 * stamped, and does not expire on a slow machine. */
TEST(deadlines_ignore_the_wall_clock) {
  enum { WAITS = 14, LEASE = 20000 };
  const char *db = test_path("a.db");
  test_worker w = owner_of(db, "/theirs");
  zke *z = open_jumping(db, LEASE);
  make_as(z, "/e", ZKE_EPHEMERAL);
  wall_ms = YEARS(10);
  wall_wavers = true;
  for (int i = 0; i < WAITS; i++) {
    int64_t before = test_now();
    seam_pass(LEASE / 4);
    ck_rc(zke_wait(z, zke_now(z) + 150), ZKE_OPERATIONTIMEOUT);
    ck_assert_int_ge(test_now() - before, 149);
    ck_assert_int_lt(test_now() - before, 149 + 10000);
    ck_ok(set(z, "/e", ""));
  }
  ck_assert_int_gt(wall_looks, 10);
  ck_assert_int_eq(zke_state(z), ZKE_STATE_CONNECTED);
  ck_assert_int_eq(test_session_count(z), 2);
  test_ask(&w, "exists /theirs");
  test_ask(&w, "exists /e");
  ck_assert_int_eq(test_wait(&w), 0);
}

/* ---- descriptors ---- */

static bool is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

/* Let this many more descriptors be opened; -1: as many as before. */
static void allow_descriptors(int more) {
  static struct rlimit usual;
  if (!usual.rlim_cur) ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &usual), 0);
  struct rlimit now = usual;
  if (more >= 0) {
    int fd = 0;
    for (; more > 0 || is_open(fd); fd++) more -= !is_open(fd);
    now.rlim_cur = (rlim_t)fd;
  }
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &now), 0);
}

/* Open many sessions in one process, each with its own node. */
static int peer_own_many(const char *argument) {
  int count = 0, at = 0, rc = ZKE_OK;
  if (sscanf(argument, "%d %n", &count, &at) != 1) return 1;
  rc = zke_open(argument + at, NULL, &mine);
  for (int i = 0; i < count && rc == ZKE_OK; i++) {
    zke *z = NULL;
    char path[32];
    snprintf(path, sizeof path, "/own%d", i);
    rc = zke_open_session(mine, NULL, &z);
    if (rc == ZKE_OK) rc = create(z, path, ZKE_EPHEMERAL);
  }
  return rc;
}

static void count_deletion(zke *z, int type, int state, const char *path,
                           void *context) {
  (void)z, (void)state, (void)path;
  *(int *)context += type == ZKE_EVENT_DELETED;
}

static void watch_own(zke *z, int i, int *deleted) {
  char path[32];
  snprintf(path, sizeof path, "/own%d", i);
  ck_ok(zke_exists(z, path, count_deletion, deleted, NULL));
}

/* P6, P9: a process that waits for many owners keeps no more descriptors than
 * the option says (0) or 128 (1), for all sessions of the store together, and
 * leaves the host the rest; still, each death is reported.  A removed watch
 * makes room for another. */
TEST_LOOP(watched_owners_take_few_descriptors, 0, 2) {
  static const struct {
    int option, limit, owners;
  } sizes[] = {{4, 4, 12}, {0, 128, 200}};
  const char *db = test_path("a.db");
  char argument[TEXT];
  int owners = sizes[_i].owners, deleted = 0;
  peer p = peer_start(NULL);
  snprintf(argument, sizeof argument, "%d %s", owners, db);
  ck_peer(&p, peer_own_many, argument, ZKE_OK);
  zke *z = open_as(db, .notice_limit = sizes[_i].option);
  zke *other = test_session(z, NULL);
  ck_ok(zke_dispatch(z, NULL));
  int before = test_fd_count();
  allow_descriptors(sizes[_i].limit + 4);
  for (int i = 0; i < owners; i++) watch_own(i % 2 ? other : z, i, &deleted);
  ck_assert_int_eq(test_fd_count() - before, sizes[_i].limit);
  int copy = fcntl(0, F_DUPFD_CLOEXEC, 0);
  ck_assert_int_ge(copy, 0);
  close(copy);
  ck_ok(zke_remove_watch(z, "/own0", ZKE_WATCH_DATA, count_deletion, &deleted));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(test_fd_count() - before, sizes[_i].limit - 1);
  watch_own(z, 0, &deleted);
  ck_assert_int_eq(test_fd_count() - before, sizes[_i].limit);
  peer_kill(&p);
  ck_until(zke_wait(z, zke_now(z) + 10) != ZKE_SESSIONEXPIRED &&
               zke_dispatch(other, NULL) == ZKE_OK && deleted == owners,
           20000);
  ck_assert_int_eq(test_fd_count(), before);
  allow_descriptors(-1);
}

/* P6: a watch that got no descriptor to its owner because of the limit gets one
 * when it is registered again and there is room. */
TEST(notice_is_made_up_when_there_is_room) {
  const char *db = test_path("a.db");
  char argument[TEXT];
  int deleted = 0;
  peer p = peer_start(NULL);
  snprintf(argument, sizeof argument, "2 %s", db);
  ck_peer(&p, peer_own_many, argument, ZKE_OK);
  zke *z = open_as(db, .notice_limit = 1);
  ck_ok(zke_dispatch(z, NULL));
  int before = test_fd_count();
  watch_own(z, 0, &deleted);
  watch_own(z, 1, &deleted);
  ck_assert_int_eq(test_fd_count(), before + 1);
  ck_ok(zke_remove_watch(z, "/own0", ZKE_WATCH_DATA, count_deletion, &deleted));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(test_fd_count(), before);
  watch_own(z, 1, &deleted);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(test_fd_count(), before + 1);
  ck_ok(zke_remove_watch(z, "/own1", ZKE_WATCH_DATA, count_deletion, &deleted));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(test_fd_count(), before);
  peer_kill(&p);
}

/* P11: with n descriptors left, from n = 0 to enough, opening a new (0) or an
 * existing (1) database fails with a code and a sentence that names the cause,
 * leaves no descriptor open, and works once there are enough. */
TEST_LOOP(open_without_descriptors, 0, 2) {
  const char *db = test_path("a.db");
  if (_i == 1) ck_ok(zke_close(test_open(db)));
  int rc = ZKE_SYSTEMERROR, left = 0, before = test_fd_count();
  for (; rc != ZKE_OK; left++) {
    zke *z = (zke *)&rc;
    allow_descriptors(left);
    rc = zke_open(db, NULL, &z);
    allow_descriptors(-1);
    if (rc == ZKE_OK) {
      make(z, "/n");
      ck_ok(zke_close(z));
    } else {
      ck_assert_msg(rc == ZKE_SYSTEMERROR || rc == ZKE_CANTOPEN, "%d left: %s",
                    left, zke_error_name(rc));
      ck_says(strerror(EMFILE));
      ck_assert_ptr_null(z);
    }
    ck_assert_msg(test_fd_count() == before, "%d left: %d open, not %d", left,
                  test_fd_count(), before);
    ck_assert_int_lt(left, 40);
  }
  printf("descriptors: %d suffice\n", left - 1);
  ck_assert_int_ge(left, 5);
  zke *z = test_open(db);
  ck_ok(see(z, "/n"));
  /* an open that failed late had a session for a moment: it is swept */
  ck_until(test_session_count(z) == 1, 10000);
}

/* Everything that needs no further descriptor works when none is left. */
static void work_without_descriptors(zke *z, test_worker *w) {
  test_events events = {0};
  zke_strings *names = NULL;
  make_with(z, "/p", "one");
  make_as(z, "/e", ZKE_EPHEMERAL);
  ck_ok(set(z, "/p", "two"));
  expect_data(z, "/p", "two");
  ck_ok(zke_children(z, "/", NULL, NULL, &names, NULL));
  zke_free(names);
  ck_ok(zke_delete(z, "/p", -1));
  ck_ok(zke_exists(z, "/n", test_record, &events, NULL));
  test_ask(w, "set /n theirs");
  await(z, &events, "CHANGED /n", 10000);
  test_ask(w, "watch /n");
  ck_ok(set(z, "/n", "ours")); /* no descriptor to wake it: its tick does */
  ck_assert_str_eq(test_ask(w, "wait 5000"), "CHANGED /n");
  ck_ok(zke_exists(z, "/owned", test_record, &events, NULL));
  test_kill(w, SIGKILL);
  await(z, &events, "DELETED /owned", 10000);
  ck_ok(zke_check(z, NULL, NULL));
}

/* P7, P11: an open handle keeps working when the process has run out of
 * descriptors; a further session is refused with a sentence that says why, and
 * opens when there are some again. */
TEST(handle_without_descriptors) {
  const char *db = test_path("a.db");
  test_worker w = owner_of(db, "/owned");
  zke *z = test_open(db), *further = NULL;
  make(z, "/n");
  allow_descriptors(0);
  work_without_descriptors(z, &w);
  int before = test_fd_count();
  allow_descriptors(0); /* the worker's pipes have been closed */
  ck_rc(zke_open_session(z, NULL, &further), ZKE_SYSTEMERROR);
  ck_says(strerror(EMFILE));
  ck_assert_ptr_null(further);
  int fd;
  ck_rc(zke_keepalive_fd(z, &fd), ZKE_SYSTEMERROR);
  ck_says(strerror(EMFILE));
  allow_descriptors(-1);
  ck_assert_int_eq(test_fd_count(), before);
  ck_assert_int_eq(test_session_count(z), 1);
  further = test_session(z, NULL);
  ck_ok(zke_close(further));
  w = test_worker_on(db);
  test_ask(&w, "exists /e");
  test_ask(&w, "set /n theirs");
  ck_ok(zke_close(z));
  test_ask(&w, "check");
  ck_assert_int_eq(test_wait(&w), 0);
}

/* P11: no descriptor at close: the session still ends. */
TEST(close_without_descriptors) {
  const char *db = test_path("a.db");
  int before = test_fd_count();
  zke *z = test_open(db);
  make_as(z, "/e", ZKE_EPHEMERAL);
  allow_descriptors(0);
  ck_ok(zke_close(z));
  allow_descriptors(-1);
  ck_assert_int_eq(test_fd_count(), before);
  z = test_open(db);
  ck_rc(see(z, "/e"), ZKE_NONODE);
  ck_assert_int_eq(test_session_count(z), 1);
}

/* ---- restored under open handles ---- */

/* P8, design.md 7: a backup replaces a database that a process has open, and
 * that process is told.  A process that opens it now finds only the backup, in
 * a new epoch, and closing the old handle does not affect the new ones. */
TEST(backup_moved_over_an_open_database) {
  const char *db = test_path("a.db"), *copy = test_path("copy.db");
  test_events events = {0};
  zke *old = test_open(db);
  make_with(old, "/n", "backed up");
  back_up(db, copy);
  ck_ok(set(old, "/n", "later"));
  make(old, "/later");
  make_as(old, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_exists(old, "/n", test_record, &events, NULL));
  ck_assert_int_eq(rename(copy, db), 0);
  ck_assert_int_eq(unlink(beside(db, "-wal")), 0);
  ck_assert_int_eq(unlink(beside(db, "-shm")), 0);
  test_worker w = test_worker_on(db);
  ck_assert_str_eq(test_ask(&w, "get /n"), "backed up");
  test_ask(&w, "create /new x 1");
  int64_t id = atoll(test_ask(&w, "id"));
  ck_assert_int_gt(id >> 32, zke_session_id(old) >> 32);
  await(old, &events, "SESSION -112", 10000);
  ck_rc(set(old, "/n", "lost"), ZKE_REPLACED);
  zke_close(old);
  zke *z = test_open(db);
  expect_data(z, "/n", "backed up");
  ck_rc(see(z, "/later"), ZKE_NONODE);
  ck_rc(see(z, "/e"), ZKE_NONODE);
  ck_ok(see(z, "/new"));
  ck_assert_int_eq(test_session_count(z), 2);
  test_ask(&w, "watch /n");
  ck_ok(set(z, "/n", "goes on"));
  ck_assert_str_eq(test_ask(&w, "wait 3000"), "CHANGED /n");
  ck_ok(zke_check(z, NULL, NULL));
  ck_assert_int_eq(test_wait(&w), 0);
}

/* P8, design.md 7 ("restored under living sessions"): SQLite writes a backup
 * into the open database (.restore).  A session that is in the backup
 * continues, one that is not is told of its end, and the next handle is in a
 * new epoch. */
TEST(backup_written_into_an_open_database) {
  const char *db = test_path("a.db"), *copy = test_path("copy.db");
  test_events known = {0}, unknown = {0};
  zke *z = test_open(db);
  make_with(z, "/n", "backed up");
  make_as(z, "/e", ZKE_EPHEMERAL);
  back_up(db, copy);
  ck_ok(set(z, "/n", "later"));
  test_worker w = test_worker_on(db);
  zke *later = test_session(z, NULL);
  make_as(later, "/later", ZKE_EPHEMERAL);
  ck_ok(zke_set_watcher(z, test_record, &known));
  ck_ok(zke_set_watcher(later, test_record, &unknown));
  int64_t issued = zke_session_id(later);
  back_up(copy, db);
  expect_data(z, "/n", "backed up");
  await(later, &unknown, "SESSION -112", 10000);
  test_expect(z, &known, "");
  zke *newcomer = test_open(db);
  ck_assert_int_gt(zke_session_id(newcomer) >> 32, issued >> 32);
  ck_ok(see(newcomer, "/e"));
  ck_rc(see(newcomer, "/later"), ZKE_NONODE);
  ck_assert_int_eq(test_session_count(newcomer), 2);
  test_tell(&w, "set /n x");
  int rc = atoi(test_line(&w));
  ck_assert_msg(rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE, "%d", rc);
  ck_ok(set(z, "/n", "goes on"));
  expect_data(newcomer, "/n", "goes on");
  ck_ok(zke_check(newcomer, NULL, NULL));
  ck_ok(zke_close(newcomer));
  ck_ok(zke_close(later));
  ck_ok(zke_close(z));
  ck_assert_int_eq(test_wait(&w), 0);
}

/* ---- time namespaces ---- */

/* Long enough for a machine that stops a process for a moment; most of it
 * passes in jumps. */
enum { SHIFTED_LEASE = 20000 };

/* Enter a time namespace whose CLOCK_BOOTTIME is a day ahead. */
static void be_a_day_ahead(void) {
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif
  namespace_refused = true;
  if (unshare(CLONE_NEWTIME) != 0) return;
  int fd = open("/proc/self/timens_offsets", O_WRONLY);
  if (fd < 0 || write(fd, "boottime 86400 0", 16) != 16) return;
  close(fd);
  namespace_refused = false;
  pid_t pid = fork(); /* the children are in it, not this process */
  if (pid == 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  waitpid(pid, NULL, 0);
  _exit(pid < 0);
}

static int peer_open_leased(const char *db) {
  return try_jumping(db, SHIFTED_LEASE, &mine);
}

static int peer_open_leaping(const char *db) {
  return try_jumping(db, 0, &mine);
}

/* Let a third of a lease pass. */
static int peer_leap(const char *argument) {
  (void)argument;
  seam_pass(SHIFTED_LEASE / 3);
  return ZKE_OK;
}

/* P5: a process whose boot-time clock is a day ahead judges a lease, and its
 * own lease is judged by another: a session that stamps its lease stays, one
 * that does not ends. */
TEST_LOOP(lease_across_time_namespaces, 0, 2) {
  const char *db = test_path("a.db");
  peer ahead = peer_start(be_a_day_ahead), usual = peer_start(NULL);
  peer *judge = _i ? &usual : &ahead, *judged = _i ? &ahead : &usual;
  if (peer_call(&ahead, peer_is_first, "") < 0) {
    printf("time namespaces: skipped, not permitted here\n");
    return;
  }
  ck_peer(judge, peer_open_leaping, db, ZKE_OK);
  ck_peer(judged, peer_open_leased, db, ZKE_OK);
  ck_peer(judged, peer_hold, "/leased", ZKE_OK);
  for (int i = 0; i < 8; i++) {
    ck_peer(judge, peer_leap, "", ZKE_OK);
    ck_peer(judged, peer_leap, "", ZKE_OK);
    ck_peer(judged, peer_exists, "/", ZKE_OK);
    ck_peer(judge, peer_wait, "100", ZKE_OPERATIONTIMEOUT);
  }
  ck_peer(judge, peer_watch, "/leased", ZKE_OK); /* now the other hangs */
  ck_peer(judge, peer_exists, "/leased", ZKE_OK);
  for (int i = 0; i < 4; i++) ck_peer(judge, peer_leap, "", ZKE_OK);
  ck_peer(judge, peer_wait, "10000", ZKE_OK);
  ck_peer(judge, peer_exists, "/leased", ZKE_NONODE);
  peer_kill(&ahead);
  peer_kill(&usual);
}

/* ---- one file, two names or two mounts ---- */

/* zkembed.h, caveats: a hard link made while the file is open ends no handle,
 * but the file cannot be opened by either name until the link is gone. */
TEST_LOOP(second_name_is_refused, 0, 2) {
  const char *db = test_path("a.db"), *second = test_path("b.db");
  zke_options o = {.size = sizeof o, .flags = _i ? ZKE_OPEN_READONLY : 0};
  zke *z = test_open(db), *other;
  make_as(z, "/e", ZKE_EPHEMERAL);
  ck_assert_int_eq(link(db, second), 0);
  ck_rc(zke_open(db, &o, &other), ZKE_CANTOPEN);
  ck_says("2 hard links");
  ck_says("a.db backup COPY\"");
  ck_rc(zke_open(second, &o, &other), ZKE_CANTOPEN);
  ck_says("2 hard links");
  ck_assert_int_eq(access(beside(second, "-zke"), F_OK), -1);
  zke_wait(z, zke_now(z) + 1200); /* a look at the files */
  make(z, "/later");
  ck_assert_int_eq(unlink(second), 0);
  ck_ok(zke_open(db, &o, &other));
  ck_ok(see(other, "/e"));
}

/* Mount one path on another, for this process only; false if that is not
 * permitted. */
static bool mount_apart(const char *from, const char *to) {
  if (unshare(CLONE_NEWNS) == 0 &&
      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
      mount(from, to, NULL, MS_BIND, NULL) == 0)
    return true;
  printf("skipped: a bind mount wants root\n");
  return false;
}

/* A container that gets only the file is refused, since it would coordinate
 * with no other process; the sentence says what to mount. */
TEST_LOOP(file_mounted_alone_is_refused, 0, 2) {
  const char *db = test_path("a.db"), *inside = test_path("c/a.db");
  zke_options o = {.size = sizeof o, .flags = _i ? ZKE_OPEN_READONLY : 0};
  zke *z;
  ck_ok(zke_close(test_open(db)));
  ck_assert_int_eq(mkdir(test_path("c"), 0700), 0);
  write_file(inside, 'x', 0);
  if (!mount_apart(db, inside)) return;
  ck_rc(zke_open(inside, &o, &z), ZKE_CANTOPEN);
  ck_says("Mount the directory");
  ck_assert_int_eq(access(beside(inside, "-zke"), F_OK), -1);
  ck_ok(zke_close(test_open(db)));
  ck_assert_int_eq(umount2(inside, MNT_DETACH), 0);
}

/* A container that gets the directory shares everything with the host. */
TEST(directory_mounted_is_shared) {
  zke_stat stat;
  ck_assert_int_eq(mkdir(test_path("host"), 0700), 0);
  ck_assert_int_eq(mkdir(test_path("container"), 0700), 0);
  zke *host = test_open(test_path("host/a.db"));
  make_as(host, "/e", ZKE_EPHEMERAL);
  if (mount_apart(test_path("host"), test_path("container"))) {
    zke *z = test_open(test_path("container/a.db"));
    ck_assert_int_gt(zke_session_id(z), zke_session_id(host));
    stat = test_stat(z, "/e");
    ck_assert_int_eq(stat.ephemeralOwner, zke_session_id(host));
    ck_ok(zke_close(z));
    umount2(test_path("container"), MNT_DETACH);
  }
}

/* A system that does not report a file's link count and mount. */
static void forget_links(seam_call *c) { c->out->links = c->out->mount = 0; }

/* A table that reports neither links nor mounts refuses nothing. */
TEST(unknown_links_are_accepted) {
  const char *db = test_path("a.db");
  static seam s = {.after = {[SEAM_stat] = forget_links}};
  ck_ok(zke_close(test_open(db)));
  ck_assert_int_eq(link(db, test_path("b.db")), 0);
  open_as(db, .os = seam_os(&s));
}

/* The directory of the symbolic link is on another mount than all else. */
static void mount_apart_links(seam_call *c) {
  bool links = strcmp(c->path, test_path("links")) == 0;
  c->out->mount = links ? 2 : 1;
}

/* The mount of the file counts, not that of a link to it. */
TEST(link_into_another_mount_is_resolved) {
  const char *db = test_path("a.db"), *name = test_path("links/b.db");
  static seam s = {.after = {[SEAM_stat] = mount_apart_links}};
  ck_ok(zke_close(test_open(db)));
  ck_assert_int_eq(mkdir(test_path("links"), 0700), 0);
  ck_assert_int_eq(symlink(db, name), 0);
  open_as(name, .os = seam_os(&s));
}

/* ---- a full disk under living sessions ---- */

/* Make changes until the disk is too full even for small ones. */
static void write_until_full(zke *z) {
  static char data[20000];
  int rc = ZKE_OK;
  for (int i = 0; rc == ZKE_OK && i < 2000; i++)
    rc = zke_set(z, "/large", data, sizeof data, -1, NULL);
  ck_rc(rc, ZKE_FULL);
  for (rc = ZKE_OK; rc == ZKE_OK;) rc = set(z, "/n", "filling");
  ck_rc(rc, ZKE_FULL);
}

/* P5, P6, P11: while the disk is full, reads and waits work, changes fail,
 * living sessions stay alive, and another session's death cannot be recorded.
 * With room again it is recorded, its watcher is told, and everything works. */
TEST(sessions_survive_a_full_disk) {
  if (!test_small_disk("disk", 4096)) return;
  const char *db = test_path("disk/a.db"), *ballast = test_path("disk/b");
  test_events events = {0};
  test_worker w = test_worker_on(db), dying = owner_of(db, "/theirs");
  zke *z = test_open(db);
  int64_t id = zke_session_id(z);
  make(z, "/n");
  make(z, "/large");
  make_as(z, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_exists(z, "/theirs", test_record, &events, NULL));
  test_fill_disk(ballast);
  write_until_full(z);
  test_kill(&dying, SIGKILL);
  ck_rc(zke_wait(z, zke_now(z) + 1500), ZKE_OPERATIONTIMEOUT);
  expect_data(z, "/n", test_ask(&w, "get /n"));
  test_ask(&w, "exists /e");
  ck_assert_int_eq(zke_state(z), ZKE_STATE_CONNECTED);
  ck_assert_int_eq(unlink(ballast), 0);
  await(z, &events, "DELETED /theirs", 10000);
  ck_ok(set(z, "/n", "room"));
  ck_assert_str_eq(test_ask(&w, "get /n"), "room");
  test_ask(&w, "set /n more");
  ck_assert_int_eq(zke_session_id(z), id);
  ck_assert_int_eq(test_session_count(z), 2);
  ck_ok(see(z, "/e"));
  ck_ok(zke_check(z, NULL, NULL));
  ck_assert_int_eq(test_wait(&w), 0);
}
