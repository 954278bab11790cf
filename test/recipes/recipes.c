/* recipes.c - see recipes.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes.h"
#include "test/seam.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLED = 1, MOST_PLACES = 200, LONG_LOG_BYTES = 256 << 10 };
enum { PATIENCE_MS = 5000, SHORT_PATIENCE_MS = 100 };

int recipe_patience_ms = PATIENCE_MS;

/* ------------------------------------------------------------------------
 * The place where it goes wrong
 * --------------------------------------------------------------------- */

/* In memory that a forked child shares. */
static struct place {
  bool armed;
  long calls;           /* system calls so far */
  long kill_at;         /* this one raises SIGKILL; 0: none */
  long fail_at;         /* this one fails; 0: none */
  bool fail_all;        /* and every one after it */
  const char *function; /* the failing one */
  long looks;           /* at a clock that only goes forward */
  long expire_at;       /* at this one the session ends; 0: never */
  bool expired;
  int rc; /* of a use in a child */
} * place;

static char where[200]; /* for messages */

/* The system calls that count, with their errors.  EINTR and the like are left
 * out: failing forever would take too long, and once changes nothing. */
static const int errors_of[SEAM_KINDS][5] = {
    [SEAM_open] = {-EMFILE, -EIO, -ENOSPC, -ENOMEM},
    [SEAM_close] = {-EIO},
    [SEAM_dup] = {-EMFILE},
    [SEAM_read] = {-EIO},
    [SEAM_write] = {-EIO, -EPIPE},
    [SEAM_pread] = {-EIO},
    [SEAM_pwrite] = {-ENOSPC, -EIO},
    [SEAM_stat] = {-EIO, -EACCES, -ENOMEM},
    [SEAM_fstat] = {-EIO},
    [SEAM_fsync] = {-EIO, -ENOSPC},
    [SEAM_adopt] = {-EPERM, -EIO},
    [SEAM_mkdir] = {-ENOSPC, -EACCES},
    [SEAM_mkfifo] = {-ENOSPC, -EACCES},
    [SEAM_unlink] = {-EIO, -EACCES},
    [SEAM_list] = {-EMFILE, -EIO},
    [SEAM_network] = {-EIO},
    [SEAM_pipe] = {-EMFILE, -ENFILE},
    [SEAM_lock] = {-EIO},
    [SEAM_probe] = {-EIO, -ENOLCK},
    [SEAM_poll] = {-ENOMEM},
    [SEAM_poller] = {-EMFILE, -ENOMEM},
    [SEAM_poller_add] = {-ENOSPC, -ENOMEM},
    [SEAM_poller_remove] = {-ENOENT},
    [SEAM_timer] = {-EMFILE, -ENOMEM},
    [SEAM_timer_set] = {-EINVAL}};

/* A system call: perhaps it is the last, or fails.  Errors differ from place to
 * place.  Unlocking does not fail. */
static void pass(seam_call *c) {
  const int *errors = errors_of[c->kind];
  int count = 0;
  while (errors[count]) count++;
  if (!place->armed || !count) return;
  long call = __atomic_add_fetch(&place->calls, 1, __ATOMIC_SEQ_CST);
  if (call == place->kill_at) raise(SIGKILL);
  if (!place->fail_at || call < place->fail_at) return;
  if (call == place->fail_at) place->function = c->name;
  if (call > place->fail_at && !place->fail_all) return;
  if (!seam_unlocks(c)) seam_refuse(c, errors[place->fail_at % count]);
}

/* Each call of the library begins with a reading of the clock, before it takes
 * a lock.  (Other readings come under locks: then the expirer waits in vain,
 * and the next reading is the place.) */
static zke *expirer;
static int64_t victim;

/* A reading of the monotonic clock; at the chosen one the other session ends
 * the use's. */
static void look_at_clock(void) {
  long look = __atomic_add_fetch(&place->looks, 1, __ATOMIC_SEQ_CST);
  if (!place->expire_at || look < place->expire_at) return;
  if (__atomic_exchange_n(&place->expired, true, __ATOMIC_SEQ_CST)) return;
  place->expired = zke_expire(expirer, victim) == ZKE_OK;
  /* Far enough that periodic checks are due now. */
  if (place->expired) seam_ahead = INT64_C(1000000001);
}

static void pass_clock(seam_call *c) {
  if (place->armed && c->how != ZKE_CLOCK_REALTIME) look_at_clock();
}

static seam calls = {.each = pass, .before = {[SEAM_clock] = pass_clock}};

/* ------------------------------------------------------------------------
 * A round
 * --------------------------------------------------------------------- */

static const char *database;
static test_heap heap;

/* SIGALRM: a round hangs.  Print which, and end the process. */
static void too_long(int signal) {
  static const char text[] = ": this round does not end\n";
  (void)signal;
  ssize_t n = write(STDERR_FILENO, where, strlen(where));
  n += write(STDERR_FILENO, text, sizeof text - 1);
  _exit(n > 0 ? 124 : 125);
}

enum { SAMPLED = 6 }; /* each so-manieth place of a loop: test_stride() */

/* Should this place be tried?  RECIPE_ONLY selects one. */
static bool wanted(long n) {
  const char *only = getenv("RECIPE_ONLY");
  return !only || atol(only) == n;
}

/* The time limit, and what the messages say. */
static void begin(const char *name, const char *what, long n) {
  if (!place) {
    place = mmap(NULL, sizeof *place, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(place, MAP_FAILED);
  }
  snprintf(where, sizeof where, "%s: %s %ld", name, what, n);
  if (getenv("RECIPE_SAY")) fprintf(stderr, "%s\n", where);
  *place = (struct place){.rc = KILLED};
  seam_ahead = 0;
  heap = (test_heap){.live = 0};
  signal(SIGALRM, too_long);
  const char *limit = getenv("RECIPE_ROUND");
  alarm(limit ? (unsigned)atoi(limit)
              : (unsigned)test_patience(RECIPE_ROUND_S));
}

/* A directory without a database. */
static void clear_directory(void) {
  const char *directory = test_path("recipe");
  test_remove(directory);
  ck_assert_int_eq(mkdir(directory, 0700), 0);
  database = test_path("recipe/db");
}

static zke *other; /* session, of another store than the use's */

/* Open the other session, in a directory that is cleared before. */
static void open_other(void) { other = test_open(database); }

static void prepare(const recipe_use *u) {
  if (u->prepare) u->prepare(other);
}

static int descriptors_before; /* of this process */

/* The same if the use is in this process.  The other session then stays open
 * from round to round unless the log is long (shorten_log()): making a database
 * would take most of a round. */
static void prepare_next(const recipe_use *u) {
  if (!other) {
    clear_directory();
    descriptors_before = test_fd_count();
    open_other();
  }
  prepare(u);
}

/* The session of a use: only its system calls and allocations fail. */
static int open_user(zke **z_out) {
  zke_options options = {.size = sizeof options,
                         .identity = "user",
                         .os = seam_os(&calls),
                         .allocator = {test_heap_resize, &heap}};
  return zke_open(database, &options, z_out);
}

static void complain(void *context, const char *sentence) {
  (void)context;
  fprintf(stderr, "%s: %s\n", where, sentence);
}

/* Delete all nodes below a path, "" for the root's. */
static void delete_below(const char *path) {
  zke_strings *names;
  char below[1000];
  int rc = zke_children(other, path[0] ? path : "/", NULL, NULL, &names, NULL);
  if (rc == ZKE_NONODE) return; /* a container that was empty */
  ck_ok(rc);
  for (int i = 0; i < names->count; i++) {
    if (!path[0] && strcmp(names->data[i], "zookeeper") == 0) continue;
    snprintf(below, sizeof below, "%s/%s", path, names->data[i]);
    delete_below(below);
    rc = zke_delete(other, below, -1);
    if (rc != ZKE_NONODE) ck_ok(rc);
  }
  zke_free(names);
}

/* End the sessions whose end a fault has prevented.  A dead session is not yet
 * removed. */
static void expire_all(void) {
  zke_session_list *list;
  ck_ok(zke_sessions(other, -1, &list));
  for (int i = 0; i < list->count; i++) {
    int64_t id = list->data[i].id;
    if (id != zke_session_id(other)) ck_ok(zke_expire(other, id));
  }
  zke_free(list);
}

static void close_other(void) {
  ck_ok(zke_close(other));
  other = NULL;
}

/* After a round, the other session checks the results. */
static void check(const recipe_use *u, int rc) {
  u->check(other, rc);
  ck_ok(zke_check(other, complain, NULL));
  alarm(0);
}

/* After a failed sync the engine writes its whole log again.  So the log must
 * not grow through all rounds: closing the last store empties it. */
static void shorten_log(void) {
  struct stat log;
  if (stat(test_path("recipe/db-wal"), &log) != 0) return;
  if (log.st_size < LONG_LOG_BYTES) return;
  close_other();
  open_other();
}

/* The next round must find nothing of this one. */
static void check_and_clear(const recipe_use *u, int rc) {
  check(u, rc);
  expire_all();
  delete_below("");
  ck_ok(zke_dispatch(other, NULL));
  shorten_log();
}

/* After a loop.  SQLite keeps a database's descriptors while any store of this
 * process has it open, so they are counted here. */
static void finish(void) {
  close_other();
  ck_assert_msg(test_fd_count() == descriptors_before,
                "%s: descriptors are left", where);
}

/* ------------------------------------------------------------------------
 * Deaths
 * --------------------------------------------------------------------- */

/* The child: a process that knows nothing yet of the database (SQLite's state
 * must not come through a fork) waits for the word to go. */
static void run_user(const recipe_use *u, int go, long n) {
  char word;
  zke *z;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (read(go, &word, 1) != 1) _exit(1);
  int rc = open_user(&z);
  if (rc == ZKE_OK) {
    place->kill_at = n;
    place->armed = true;
    rc = u->use(z);
    int closed = zke_close(z);
    place->armed = false;
    if (rc == ZKE_OK) rc = closed;
  }
  if (rc != ZKE_OK) fprintf(stderr, "%s: %s\n", where, zke_errmsg());
  place->rc = rc;
  _exit(0);
}

/* One death; false if the use completed without it. */
static bool die_at(const recipe_use *u, long n) {
  int go[2], status;
  begin(u->name, "death at call", n);
  clear_directory();
  ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    close(go[1]);
    run_user(u, go[0], n);
  }
  close(go[0]);
  open_other();
  prepare(u);
  ck_assert_int_eq(write(go[1], "", 1), 1);
  close(go[1]);
  while (waitpid(pid, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
  bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  ck_assert_msg(died || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
                "%s: use ended with status %x", where, (unsigned)status);
  ck_assert_msg(died || place->rc == ZKE_OK, "%s: use failed: %s", where,
                zke_error_name(place->rc));
  check(u, place->rc);
  close_other();
  return died;
}

int recipe_deaths(const recipe_use *u) {
  int last = 0;
  long stride = getenv("RECIPE_ONLY") ? 1 : test_stride(SAMPLED);
  for (long n = 1; !wanted(n) || die_at(u, n); n += stride) {
    last = (int)n;
    if (getenv("RECIPE_ONLY") && n >= atol(getenv("RECIPE_ONLY"))) break;
  }
  return last;
}

/* ------------------------------------------------------------------------
 * Lost replies and faults: the user is another store of this process
 * --------------------------------------------------------------------- */

/* How many ephemerals the session has; each is printed, since there should be
 * none. */
static int ephemerals(zke *z) {
  zke_strings *paths;
  ck_ok(zke_ephemerals(z, 0, NULL, &paths));
  for (int i = 0; i < paths->count; i++) {
    fprintf(stderr, "%s: left: %s\n", where, paths->data[i]);
  }
  int count = paths->count;
  zke_free(paths);
  return count;
}

/* How many watches the session has; each is printed, likewise. */
static int watches(zke *z) {
  zke_watch_list *list;
  int count = 0;
  ck_ok(zke_watches(z, &list));
  for (int i = 0; i < list->count; i++) {
    if (list->data[i].session != zke_session_id(z)) continue;
    fprintf(stderr, "%s: still watched: %s\n", where, list->data[i].path);
    count++;
  }
  zke_free(list);
  return count;
}

/* Has the use made change n?  If not the loss is still pending, and hits one of
 * the next n + 1 changes, even one that is refused. */
static bool was_reached(zke *user, int n) {
  for (int i = 0; i <= n; i++)
    if (zke_delete(user, "/no-such-node", -1) == ZKE_CONNECTIONLOSS)
      return false;
  return true;
}

/* Change n loses its reply.  False if there was no such change. */
static bool lose_reply(const recipe_use *u, int when, int n) {
  zke *user;
  begin(u->name,
        when == ZKE_TEST_FAIL_BEFORE ? "lost before change" : "lost reply of",
        n + 1);
  prepare_next(u);
  ck_ok(open_user(&user));
  ck_ok(zke_test_fail(user, when, n));
  int rc = u->use(user);
  ck_assert_msg(rc == ZKE_OK, "%s: %s: %s", where, zke_error_name(rc),
                zke_errmsg());
  bool reached = was_reached(user, n);
  ck_assert_msg(ephemerals(user) == 0, "%s: ephemerals are left", where);
  ck_assert_msg(watches(user) == 0, "%s: watches are left", where);
  ck_ok(zke_close(user));
  check_and_clear(u, rc);
  return reached;
}

void recipe_lost_replies(const recipe_use *u) {
  for (int when = ZKE_TEST_FAIL_BEFORE; when <= ZKE_TEST_FAIL_AFTER; when++) {
    int n = 0;
    while (lose_reply(u, when, n)) n++;
    ck_assert_msg(n > 0, "%s changes nothing", u->name);
  }
  finish();
}

enum fault_kind { HEAP, SYSTEM };
static const char *const fault_names[2][2] = {
    {"allocation fails once:", "no memory from allocation"},
    {"system call fails once:", "system calls fail from"}};

/* Make the n-th allocation or system call from now on fail, and with `all` each
 * later one; 0: only count them. */
static void arm(enum fault_kind kind, bool all, long n) {
  if (kind == HEAP) {
    heap.fail_at = n ? heap.calls + n : 0;
    heap.fail_all = all;
  } else {
    place->fail_at = n;
    place->fail_all = all;
  }
  place->armed = true;
}

static void disarm(void) {
  place->armed = false;
  heap.fail_at = 0;
}

/* A use that may wait in vain. */
static int use_hastily(const recipe_use *u, zke *user) {
  recipe_patience_ms = SHORT_PATIENCE_MS;
  int rc = u->use(user);
  recipe_patience_ms = PATIENCE_MS;
  return rc;
}

/* One use in which step n of a kind fails; 0: none.  Returns its steps. */
static long fail_at(const recipe_use *u, enum fault_kind kind, bool all,
                    long n) {
  zke *user;
  begin(u->name, fault_names[kind][all], n);
  prepare_next(u);
  ck_ok(open_user(&user));
  long before = heap.calls;
  arm(kind, all, n);
  int rc = use_hastily(u, user);
  const char *sentence = rc ? zke_errmsg() : "";
  long steps = kind == HEAP ? heap.calls - before : place->calls;
  disarm();
  ck_assert_msg(rc <= 0 && strcmp(zke_error_name(rc), "ZKE_UNKNOWN") != 0,
                "%s (%s): use returned %d", where,
                place->function ? place->function : "heap", rc);
  ck_assert_msg(rc == 0 || sentence[0], "%s: %s without a sentence", where,
                zke_error_name(rc));
  ck_assert_msg(n || rc == ZKE_OK, "%s: %s", where, sentence);
  if (!all && zke_state(user) == ZKE_STATE_CONNECTED) {
    ck_assert_msg(ephemerals(user) == 0, "%s: ephemerals are left", where);
  }
  ck_ok(zke_close(user));
  ck_assert_msg(heap.live == 0, "%s: %ld blocks are left", where, heap.live);
  ck_assert_msg(calls.descriptors == 0, "%s: %ld descriptors are left", where,
                calls.descriptors);
  check_and_clear(u, rc);
  return steps;
}

/* The distance between places that are tried. */
static long stride_of(long places) {
  const char *most = getenv("FAULT_MOST");
  long limit = most ? atol(most) : MOST_PLACES;
  long stride = limit && places ? (places + limit - 1) / limit : 1;
  return getenv("RECIPE_ONLY") ? 1 : stride * test_stride(SAMPLED);
}

/* Make one kind of step fail at each place, or at the sampled ones. */
static void fail_each(const recipe_use *u, enum fault_kind kind, bool all) {
  long steps = fail_at(u, kind, all, 0), stride = stride_of(steps);
  for (long n = 1 + (all ? stride / 2 : 0); n <= steps; n += stride) {
    if (wanted(n)) fail_at(u, kind, all, n);
  }
}

/* May a use whose session ends meanwhile return this?  The clock's leap may
 * also have ended its deadlines. */
static bool tells_the_end(int rc) {
  return rc == ZKE_OK || rc == ZKE_INVALIDSTATE || rc == ZKE_SESSIONEXPIRED ||
         rc == ZKE_LOST || rc == ZKE_OPERATIONTIMEOUT;
}

/* One use whose session is ended by another at the n-th reading of the clock;
 * 0: never.  Returns the number of readings. */
static long expire_at(const recipe_use *u, long n) {
  zke_options hasty = {.size = sizeof hasty, .busy_timeout_ms = 1};
  zke *user;
  begin(u->name, "session ends at look", n);
  prepare_next(u);
  ck_ok(open_user(&user));
  ck_ok(zke_open(database, &hasty, &expirer));
  victim = zke_session_id(user);
  place->expire_at = n;
  place->armed = true;
  int rc = use_hastily(u, user);
  const char *sentence = rc ? zke_errmsg() : "";
  place->armed = false;
  ck_assert_msg(tells_the_end(rc) && (n || rc == ZKE_OK), "%s: %s: %s", where,
                zke_error_name(rc), sentence);
  ck_ok(zke_close(user));
  ck_ok(zke_close(expirer));
  ck_assert_msg(heap.live == 0, "%s: %ld blocks are left", where, heap.live);
  check_and_clear(u, rc);
  return place->looks;
}

/* Likewise, end the use's session at each reading of the clock. */
static void expire_each(const recipe_use *u) {
  long looks = expire_at(u, 0), stride = stride_of(looks);
  for (long n = 1; n <= looks; n += stride) {
    if (wanted(n)) expire_at(u, n);
  }
}

void recipe_faults(const recipe_use *u) {
  expire_each(u);
  for (int all = 0; all <= 1; all++) {
    fail_each(u, HEAP, all);
    fail_each(u, SYSTEM, all);
  }
  finish();
}
