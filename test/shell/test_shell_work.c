/* test_shell_work.c - zke queue, barrier, once and txn with several processes:
 * waits that signals end, wrappers and commands that are killed, coprocesses
 *
 * What the commands print is in test/shell/queue.txt and its neighbours.
 */
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/test.h"

enum { SOON = 20000 }; /* ms: what takes longer does not happen */

/* ------------------------------------------------------------------------
 * Running commands, in the test's own directory, with zke on the PATH
 * --------------------------------------------------------------------- */

/* Go into the test's directory, with the build's zke first in PATH, as a script
 * would find it. */
static void enter_room(void) {
  char build[PATH_MAX], path[2 * PATH_MAX], room[PATH_MAX];
  snprintf(build, sizeof build, "%s", test_zke());
  snprintf(path, sizeof path, "%s:%s", dirname(build), getenv("PATH"));
  setenv("PATH", path, 1);
  snprintf(room, sizeof room, "%s", test_path("."));
  ck_assert_int_eq(chdir(room), 0);
}

/* For commands that another user is to run: 0 for none, and the program. */
static uid_t another_user;
static int program;

/* Become another user, with the program as descriptor 9: its path may lead
 * through directories that this user must not enter. */
static void be_another_user(void) {
  if (dup2(program, 9) != 9 || setgroups(0, NULL) != 0 ||
      setresgid(another_user, another_user, another_user) != 0 ||
      setresuid(another_user, another_user, another_user) != 0)
    _exit(126);
}

/* Start "sh -c command", which is to exec what is to be signalled. */
static pid_t start(const char *command) {
  pid_t pid = fork();
  if (pid == 0) {
    if (another_user) be_another_user();
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  ck_assert_int_gt(pid, 0);
  return pid;
}

/* Its end, within the time; the exit code. */
static int end(pid_t pid) {
  int outcome = 0;
  pid_t got = 0;
  int64_t until = test_now() + test_patience(SOON);
  while ((got = waitpid(pid, &outcome, WNOHANG)) == 0 && test_now() < until)
    test_pause();
  ck_assert_int_eq(got, pid);
  return test_status(outcome);
}

static int run(const char *command) { return end(start(command)); }

/* What a command prints, without the last newline. */
static const char *output(const char *command) {
  static char text[65536];
  FILE *in = popen(command, "r");
  ck_assert_ptr_nonnull(in);
  size_t len = fread(text, 1, sizeof text - 1, in);
  pclose(in);
  while (len > 0 && text[len - 1] == '\n') len--;
  text[len] = '\0';
  return text;
}

#define ck_prints(command, expected) ck_assert_str_eq(output(command), expected)
#define ck_until_true(command) ck_until(run(command) == 0, SOON)
#define ck_until_prints(command, expected) \
  ck_until(strcmp(output(command), expected) == 0, SOON)

/* ------------------------------------------------------------------------
 * Commands that only look; output
 * --------------------------------------------------------------------- */

/* Hold the gate as a writer that is stopped does. */
static int hold_gate(void) {
  struct flock gate = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  int fd = open("app.db-zke/gate", O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &gate), 0);
  return fd;
}

/* Every command that only looks, without the two that are no more than another
 * name.  A file that one of them writes is in a directory that anybody may
 * write. */
static const char *const looks[] = {
    "ls -R /",
    "tree",
    "get /a",
    "stat /a",
    "exists /a",
    "find --name a",
    "count /",
    "ephemerals",
    "sync /a",
    "cd /a",
    "getacl /a",
    "export /",
    "export / ../spare/export",
    "dump",
    "backup ../spare/backup",
    "check",
    "sql 'SELECT path FROM zke_nodes'",
    "barrier show b",
    "once --show",
    "once --show job",
    "txn status t",
    "txn pending",
    "txn pending a",
    "queue peek q",
    "queue list q --data",
    "queue list q --dead",
    "queue size q",
    "locks",
    "sessions",
    "held",
    "waits",
    "deadlocks",
    "--readonly ls /",
};

/* Make a database for them in a directory, and go there. */
static void enter_data(const char *directory) {
  ck_assert_int_eq(run("umask 0; mkdir -m 777 spare"), 0);
  ck_assert_int_eq(chdir(directory), 0);
  ck_assert_int_eq(
      run("umask 022; exec >/dev/null; for made in 'create /a 1' 'barrier set "
          "b' 'txn begin t a b' 'queue push q 1' 'once job --every 1h -- "
          "true'; do "
          "zke app.db $made || exit; done"),
      0);
}

/* Run each; `begin` starts a line in which $zke is the program. */
static void expect_looks(const char *begin) {
  char line[400];
  for (size_t i = 0; i < sizeof looks / sizeof *looks; i++) {
    snprintf(line, sizeof line,
             "%s $zke --timeout 300ms app.db %s >../spare/out 2>&1", begin,
             looks[i]);
    ck_assert_msg(run(line) == 0, "%s: %s", looks[i],
                  output("cat ../spare/out"));
  }
}

/* A command that changes something ends by this code and says this. */
static void expect_refused(const char *begin, int code, const char *said) {
  static const char *const changes[] = {
      "set /a 2",      "create /b",          "delete /a",
      "import / file", "lock l -- true",     "queue push q item",
      "barrier set c", "multi create /c ''", "once new --every 1h -- true"};
  char line[400];
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    snprintf(line, sizeof line,
             "%s $zke --timeout 300ms app.db %s >../spare/out 2>&1 </dev/null",
             begin, changes[i]);
    ck_assert_msg(run(line) == code, "%s: %s", changes[i],
                  output("cat ../spare/out"));
    ck_assert_msg(strstr(output("cat ../spare/out"), said), "%s: %s",
                  changes[i], output("cat ../spare/out"));
  }
}

/* Commands that only look begin no session: a writer that is stuck does not
 * hold them up, and an empty file stays empty. */
TEST(looking_waits_for_no_writer) {
  enter_room();
  ck_assert_int_eq(mkdir("data", 0755), 0);
  enter_data("data");
  int gate = hold_gate();
  expect_looks("zke=zke;");
  expect_refused("zke=zke;", 75, "OPERATIONTIMEOUT");
  close(gate);
  ck_assert_int_eq(run(": >empty.db; zke empty.db ls; test $? = 66"), 0);
  ck_prints("wc -c <empty.db; ls | grep -c '^empty'", "0\n1");
}

/* Nor do they want room on the disk. */
TEST(looking_works_on_a_full_disk) {
  enter_room();
  const char *disk = test_small_disk("disk", 1024);
  if (!disk) return;
  enter_data(disk);
  test_fill_disk("ballast");
  expect_looks("zke=zke;");
  expect_refused("zke=zke;", 74, "zke: FULL: app.db");
}

/* Enter data that another user may read and not write, with the program open
 * for him; false: only root can do this. */
static bool enter_data_for_another_user(void) {
  if (getuid() != 0) {
    printf("another user: skipped, needs root\n");
    return false;
  }
  program = open(test_zke(), O_RDONLY | O_CLOEXEC);
  ck_assert_int_ge(program, 0);
  enter_room();
  ck_assert_int_eq(chmod(test_path("."), 0711), 0);
  ck_assert_int_eq(mkdir("data", 0755), 0);
  enter_data("data");
  return true;
}

/* Nor do they want to write: another user may look at what he may read. */
TEST(looking_needs_no_permission_to_write) {
  if (!enter_data_for_another_user()) return;
  another_user = 61001;
  expect_looks("zke=/proc/self/fd/9;");
  expect_refused("zke=/proc/self/fd/9;", 77, "only commands that read work");
  run("zke=/proc/self/fd/9; $zke new.db create /x 2>../spare/out");
  ck_prints("cat ../spare/out",
            "zke: CANTOPEN: new.db does not exist, and cannot be made there");
}

/* Without a -shm a database is not read where none can be made, and nobody says
 * that it is; but a copy is. */
TEST(looking_at_a_copy_needs_no_directory_to_write) {
  if (!enter_data_for_another_user()) return;
  ck_assert_int_eq(run("zke app.db backup copy.db >/dev/null && chmod 644 "
                       "copy.db && rm -r app.db-wal app.db-shm app.db-zke"),
                   0);
  another_user = 61001;
  run("exec /proc/self/fd/9 app.db create /x 2>../spare/out");
  ck_prints("cat ../spare/out", "zke: READONLY: app.db cannot be written");
  run("exec /proc/self/fd/9 app.db restore copy.db 2>../spare/out");
  ck_prints("cat ../spare/out", "zke: READONLY: app.db cannot be written");
  run("exec /proc/self/fd/9 app.db ls / 2>../spare/out");
  ck_prints("cat ../spare/out",
            "zke: CANTOPEN: app.db: reading needs its -shm file, which cannot "
            "be made or used here (attempt to write a readonly database); a "
            "copy by \"zke app.db backup COPY\" needs none");
  run("exec /proc/self/fd/9 ../spare/new.db restore app.db 2>../spare/out");
  ck_prints("cat ../spare/out",
            "zke: CANTOPEN: app.db: reading needs its -shm file, which cannot "
            "be made there; copy it, with its -wal if there is one, elsewhere");
  ck_assert_int_eq(chmod("app.db", 0600), 0);
  run("exec /proc/self/fd/9 ../spare/new.db restore app.db 2>../spare/out");
  ck_prints("cat ../spare/out", "zke: ACCES: app.db: Permission denied");
  ck_assert_int_eq(rename("copy.db", "app.db"), 0);
  expect_looks("zke=/proc/self/fd/9;");
  expect_refused("zke=/proc/self/fd/9;", 77, "only commands that read work");
}

/* What has died is removed by the first that looks, where nobody else does. */
TEST(looking_removes_the_dead) {
  enter_room();
  ck_assert_int_eq(run("zke app.db create /a"), 0);
  pid_t pid = start("exec zke app.db create -e /a/b --hold >made");
  ck_until_true("[ -s made ]");
  kill(pid, SIGKILL);
  ck_assert_int_eq(end(pid), 128 + SIGKILL);
  ck_until(run("zke app.db exists /a/b") == 1, SOON);
  ck_prints("zke app.db sessions", "");
}

/* The end of a pipe that is full, and whose other end is not read. */
static int stuck_reader(void) {
  ck_assert_int_eq(mkfifo("pipe", 0600), 0);
  int fd = open("pipe", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  return fd;
}

static bool is_full(int fd) {
  int bytes = 0;
  return ioctl(fd, FIONREAD, &bytes) == 0 && bytes >= 65536;
}

/* TERM and INT end a command whose output nobody reads. */
TEST_LOOP(signal_ends_blocked_output, 0, 2) {
  static const int signals[] = {SIGTERM, SIGINT};
  enter_room();
  ck_assert_int_eq(run("zke app.db create /a"), 0);
  int fd = stuck_reader();
  pid_t pid =
      start("exec zke app.db --json sql 'SELECT hex(zeroblob(500000))' >pipe");
  ck_until(is_full(fd), SOON);
  kill(pid, signals[_i]);
  ck_assert_int_eq(end(pid), 128 + signals[_i]);
  close(fd);
}

/* Rows are printed while more are made, as soon as there are many. */
TEST(rows_are_printed_as_they_come) {
  enter_room();
  ck_assert_int_eq(run("zke app.db create /a"), 0);
  ck_prints(
      "zke app.db sql 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 "
      "FROM n) SELECT i FROM n' | head -n 3 | tr -d '\\n '",
      "I12");
}

/* In a damaged file a child's path may be another node's, or its parent's. */
TEST(damaged_tree_is_not_walked_for_ever) {
  sqlite3 *db;
  enter_room();
  ck_assert_int_eq(run("zke app.db create /a; zke app.db export / out"), 0);
  ck_assert_int_eq(sqlite3_open("app.db", &db), SQLITE_OK);
  ck_assert_int_eq(
      sqlite3_exec(db, "UPDATE zkembed_node SET name='b/c' WHERE name='a'",
                   NULL, NULL, NULL),
      SQLITE_OK);
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
  ck_assert_int_eq(run("zke app.db tree >tree 2>said"), 74);
  ck_assert_int_eq(run("zke app.db ls -R >tree 2>>said"), 74);
  ck_assert_int_eq(run("zke app.db import --replace / out 2>>said"), 74);
  ck_prints("grep -c 'CORRUPT: / has a child whose name is not allowed' said",
            "3");
  ck_assert_int_eq(run("zke app.db check >out"), 1);
}

/* What a command prints on a terminal.  One that goes on is ended when it has
 * printed a line. */
static size_t on_terminal(const char *command, bool goes_on,
                          unsigned char *text, size_t size) {
  size_t len = 0;
  ssize_t n;
  int us = test_terminal();
  pid_t pid = fork();
  if (pid == 0) {
    int fd = open(ptsname(us), O_RDWR | O_NOCTTY);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  /* EIO when nobody has the other side any more */
  while (len < size && (n = read(us, text + len, size - len)) > 0) {
    len += (size_t)n;
    if (goes_on && memchr(text, '\n', len)) kill(pid, SIGTERM);
  }
  close(us);
  end(pid);
  return len;
}

/* Does a terminal obey any of it?  Its own ends of lines are "\r\n". */
static bool is_obeyed(const unsigned char *text, size_t len) {
  for (size_t i = 0; i < len; i++) {
    bool high = i + 1 < len && text[i] == 0xc2 && text[i + 1] < 0xa0;
    bool control = text[i] < 0x20 && !strchr("\r\n\t", text[i]);
    if (control || text[i] == 0x7f || high || text[i] == 0x9b) return true;
  }
  return false;
}

/* ESC, DEL, and the C1 controls, as UTF-8 and as bytes, in data, identities and
 * what is named on the command line: no command hands them to a terminal. */
#define EVIL "$(printf 'a\\033[31m\\177\\302\\233b\\r')"
#define BYTES "YRtbMzFtf8KbYpuQDQ==" /* the same, and 9b 90 as bytes */
TEST(terminal_gets_no_controls) {
  static const char *const commands[] = {
      "get /a",
      "get -s /a",
      "--json get /a",
      "--plain get /a",
      "get /b",
      "--json get /b",
      "--plain get /b",
      "locks",
      "--json locks",
      "--plain locks",
      "sessions",
      "queue peek q",
      "queue list q --data",
      "export /",
      "dump",
      "barrier show w",
      "waits",
      "tree",
      "sql 'SELECT path,data FROM zke_nodes'",
      "doctor",
      "get " EVIL,
      EVIL " x",
      "lock " EVIL "/",
      "-f " EVIL,
      "--chroot " EVIL " ls",
      "import /x " EVIL,
      "create /y -t " EVIL,
      "elect l --observe",
      "elect l --observe --json"};
  unsigned char text[65536];
  char line[400];
  enter_room();
  ck_assert_int_eq(run("zke app.db create /a " EVIL " && zke app.db create /b "
                       "--base64 " BYTES " && zke app.db queue push q " EVIL
                       " && zke app.db barrier set w " EVIL),
                   0);
  pid_t holder =
      start("exec zke --identity " EVIL " app.db elect l " EVIL " >held");
  ck_until_true("[ -s held ]");
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    bool observes = strstr(commands[i], "--observe") != NULL;
    snprintf(line, sizeof line, "exec zke -q app.db %s", commands[i]);
    size_t len = on_terminal(line, observes, text, sizeof text);
    ck_assert_msg(!is_obeyed(text, len), "%s: %.*s", line, (int)len, text);
    ck_assert_msg(!observes || memmem(text, len, "[31m", 4), "%s: %.*s", line,
                  (int)len, text);
  }
  kill(holder, SIGTERM);
  end(holder);
}

/* ------------------------------------------------------------------------
 * queue
 * --------------------------------------------------------------------- */

/* items, claimed and takers of the queue q */
#define COUNTS "zke app.db --plain queue size q | cut -f 1,4,6"

/* P6: at least once.  The item is claimed as long as the command lives, since
 * it has the wrapper's keep-alive descriptor, and comes back when it has
 * ended: here it does not, until it is told to. */
TEST(killed_wrapper_gives_its_item_back) {
  enter_room();
  ck_assert_int_eq(run("zke app.db queue push q precious"), 0);
  pid_t pid = start(
      "exec zke app.db queue pop q -- sh -c 'trap \"\" TERM; touch begun;"
      " until [ -e go ]; do sleep 0.01; done; touch ended'");
  ck_until_true("[ -e begun ]");
  kill(pid, SIGKILL);
  ck_assert_int_eq(end(pid), 128 + SIGKILL);
  ck_prints(COUNTS, "1\t1\t0");
  ck_assert_int_eq(run("zke app.db queue pop q --nonblock"), 75);
  ck_assert_int_eq(run("touch go"), 0);
  ck_prints("zke app.db queue pop q --wait 20", "precious");
  ck_prints("ls ended", "ended");
  ck_prints(COUNTS, "0\t0\t0");
}

/* With --close nothing but the wrapper keeps the claim: its command is killed
 * with it. */
TEST(killed_wrapper_takes_its_command_along) {
  enter_room();
  ck_assert_int_eq(run("zke app.db queue push q precious"), 0);
  pid_t pid = start(
      "exec zke app.db queue pop q --close -- sh -c 'echo $$ >pid; mv pid pid1;"
      " exec sleep 1000'");
  ck_until_true("[ -e pid1 ]");
  kill(pid, SIGKILL);
  ck_assert_int_eq(end(pid), 128 + SIGKILL);
  ck_prints("zke app.db queue pop q --wait 20", "precious");
  ck_until_true("! kill -0 $(cat pid1) 2>/dev/null");
}

/* A signal goes to the command; that it ended by it is a failure. */
TEST(signalled_command_gives_its_item_back) {
  enter_room();
  ck_assert_int_eq(run("zke app.db queue push q precious"), 0);
  pid_t pid = start(
      "exec zke app.db queue pop q -- sh -c 'touch begun;"
      " exec sleep 1000'");
  ck_until_true("[ -e begun ]");
  kill(pid, SIGTERM);
  ck_assert_int_eq(end(pid), 128 + SIGTERM);
  ck_prints(COUNTS, "1\t0\t0");
  ck_prints("zke app.db queue peek q", "precious");
}

/* A worker that backs off has nothing in hand, and a signal ends it at once. */
TEST(a_worker_that_backs_off_keeps_nothing) {
  enter_room();
  ck_assert_int_eq(run("zke app.db queue push q precious"), 0);
  pid_t pid = start(
      "exec zke app.db --verbose queue pop q --follow --go-on --back-off 1h --"
      " false 2>said");
  ck_until_true("grep -q 'backing off for 3600000 ms' said");
  ck_prints("zke app.db queue pop q --nonblock", "precious");
  ck_assert_int_eq(kill(pid, 0), 0);
  kill(pid, SIGTERM);
  ck_assert_int_eq(end(pid), 128 + SIGTERM);
}

/* A signal ends a worker also where its command takes it well, or fails in a
 * way of its own; the next item is left alone. */
TEST_LOOP(a_signal_ends_a_worker_after_its_item, 0, 2) {
  static const char *const ends[] = {"exit 0", "exit 3"};
  char command[300];
  enter_room();
  ck_assert_int_eq(run("printf 'a\\nb\\n' | zke app.db queue push q --lines"),
                   0);
  snprintf(
      command, sizeof command,
      "exec zke app.db queue pop q --follow --go-on --back-off 1ms -- sh -c"
      " 'trap \"%s\" TERM; touch begun; while :; do sleep 0.01; done'",
      ends[_i]);
  pid_t pid = start(command);
  ck_until_true("[ -e begun ]");
  kill(pid, SIGTERM);
  ck_assert_int_eq(end(pid), _i ? 3 : 0);
  ck_prints("zke app.db queue pop q --follow --nonblock", _i ? "a\nb" : "b");
}

/* Somebody takes the claim away: the command is ended, as for a lost lock. */
TEST(lost_claim_ends_the_command) {
  enter_room();
  ck_assert_int_eq(run("zke app.db queue push q precious"), 0);
  pid_t pid = start(
      "exec zke app.db queue pop q -- sh -c 'touch begun;"
      " exec sleep 1000' 2>said");
  ck_until_true("[ -e begun ]");
  ck_assert_int_eq(
      run("zke app.db delete /queues/q/taken/entry-100-0000000001"), 0);
  ck_assert_int_eq(end(pid), 76);
  ck_prints("grep -c LOST said", "1");
  ck_prints(COUNTS, "1\t0\t0");
}

/* Eight consumers, some of which are killed again and again: each item is
 * worked on, and what was not killed is worked on once. */
TEST(no_item_is_lost_by_kills) {
  enum { CONSUMERS = 8, ITEMS = 60 };
  pid_t pids[CONSUMERS];
  char count[16];
  enter_room();
  snprintf(count, sizeof count, "%d", ITEMS);
  ck_assert_int_eq(run("seq 1 60 | zke app.db queue push q --lines"), 0);
  const char *work =
      "exec zke app.db queue pop q --follow --nonblock -- sh -c 'sleep 0.02;"
      " echo $ZKE_ITEM_DATA >>done'";
  for (int i = 0; i < CONSUMERS; i++) pids[i] = start(work);
  for (int i = 0; i < CONSUMERS / 2; i++) {
    kill(pids[i], SIGKILL);
    end(pids[i]);
    pids[i] = start(work);
  }
  for (int i = 0; i < CONSUMERS; i++) ck_assert_int_eq(end(pids[i]), 0);
  /* What a killed one's command has still in hand comes back later. */
  ck_assert_int_eq(run("zke app.db queue pop q --follow --wait 5 -- sh -c "
                       "'echo $ZKE_ITEM_DATA >>done'"),
                   0);
  ck_prints(COUNTS, "0\t0\t0");
  ck_prints("sort -u done | wc -l | tr -d ' '", count);
  ck_assert_int_le(atoi(output("wc -l <done")), ITEMS + CONSUMERS / 2);
}

/* Lines are put as they come, not at the end; a signal ends the reading. */
TEST(lines_go_in_as_they_come) {
  enter_room();
  ck_assert_int_eq(mkfifo("pipe", 0600), 0);
  pid_t pid = start("exec zke app.db queue push q --lines <pipe >count");
  int fd = open("pipe", O_WRONLY);
  ck_assert_int_eq(write(fd, "one\ntwo\nhalf", 12), 12);
  ck_until_prints("zke app.db --plain queue list q 2>&1 | cut -f 2",
                  "ready\nready");
  kill(pid, SIGTERM);
  ck_assert_int_eq(end(pid), 128 + SIGTERM);
  close(fd);
  ck_prints("cat count", "2 items");
  ck_prints("zke app.db queue pop q --follow --nonblock", "one\ntwo");
}

/* ------------------------------------------------------------------------
 * Waits, and signals
 * --------------------------------------------------------------------- */

/* What waits, and what tells that it does.  All of them need the database and
 * what is set up below. */
static const struct {
  const char *command, *waits;
} waits[] = {
    {"queue pop empty", "zke app.db ls /queues/empty/entries/line | grep -q ."},
    {"queue pop empty -- touch never",
     "zke app.db ls /queues/empty/entries/line | grep -q ."},
    {"queue push full more",
     "zke app.db ls /queues/full/entries/line | grep -q ."},
    {"barrier wait set", NULL},
    {"barrier enter pair -n 2",
     "zke app.db barrier show pair 2>/dev/null | grep -q waiting"},
    {"barrier enter pair -n 2 -- touch never",
     "zke app.db barrier show pair 2>/dev/null | grep -q waiting"},
    {"barrier meet talk -n 2",
     "zke app.db barrier show talk 2>/dev/null | grep -q waiting"},
    {"once job --every 1d --wait 1d -- touch never", NULL},
    {"txn wait t", NULL},
    {"txn vote t a yes --wait 1d",
     "zke app.db --plain txn status t | grep -q '\\[\"a\"\\]'"},
    {"txn pending nobody --wait 1d", NULL},
    {"barrier set gone --ephemeral",
     "zke app.db barrier show gone 2>/dev/null | grep -q set"},
    {"queue push gone item --ephemeral",
     "zke app.db --plain queue size gone 2>/dev/null | grep -q '^1'"},
};

/* Is that process the command by now, and not the shell that will become it? */
static bool is_zke(pid_t pid) {
  char name[64], text[16] = "";
  snprintf(name, sizeof name, "/proc/%d/comm", (int)pid);
  FILE *in = fopen(name, "r");
  if (!in || !fgets(text, sizeof text, in)) *text = '\0';
  if (in) fclose(in);
  return strcmp(text, "zke\n") == 0;
}

/* Nothing is left behind.  Without a sign in the tree that it waits, the signal
 * comes at whatever moment it does: that ends it as well. */
TEST_LOOP(signal_ends_every_wait, 0, (int)(sizeof waits / sizeof *waits)) {
  char command[256];
  const int signals[] = {SIGTERM, SIGINT, SIGHUP};
  enter_room();
  ck_assert_int_eq(run("zke app.db queue push full x --limit 1 &&"
                       " zke app.db barrier set set &&"
                       " zke app.db once job --every 1d -- true &&"
                       " zke app.db txn begin t a b"),
                   0);
  snprintf(command, sizeof command, "exec zke app.db %s >out 2>said",
           waits[_i].command);
  for (int i = 0; i < 3; i++) {
    pid_t pid = start(command);
    ck_until(is_zke(pid), SOON);
    if (waits[_i].waits) ck_until_true(waits[_i].waits);
    kill(pid, signals[i]);
    ck_assert_int_eq(end(pid), 128 + signals[i]);
  }
  ck_assert_int_ne(run("[ -e never ]"), 0);
  ck_prints("zke app.db ls /queues/empty/entries/line 2>/dev/null", "");
  ck_assert_int_eq(run("zke app.db barrier show pair 2>/dev/null"), 1);
  ck_assert_int_eq(run("zke app.db barrier show gone 2>/dev/null"), 1);
  ck_assert_int_ne(run("zke app.db queue peek gone 2>/dev/null"), 0);
}

/* ------------------------------------------------------------------------
 * barrier
 * --------------------------------------------------------------------- */

/* The barrier goes with the process that holds it. */
TEST(killed_holder_opens_the_barrier) {
  enter_room();
  pid_t pid = start("exec zke app.db barrier set gate --ephemeral >token");
  ck_until_true("[ -s token ] || zke app.db barrier show gate >out 2>&1");
  ck_assert_int_eq(run("zke app.db barrier wait gate --nonblock 2>said"), 75);
  pid_t waits_for_it = start("exec zke app.db barrier wait gate");
  kill(pid, SIGKILL);
  ck_assert_int_eq(end(pid), 128 + SIGKILL);
  ck_assert_int_eq(end(waits_for_it), 0);
}

/* A barrier that another process removes is lost, also where the command ends
 * right after that, before anybody could be told. */
TEST(removed_before_the_end) {
  enter_room();
  for (int i = 0; i < 10; i++) {
    ck_assert_int_eq(run("zke app.db barrier set gate --on-lost warn -- "
                         "zke app.db barrier remove gate 2>said"),
                     76);
    ck_assert_int_eq(run("grep -q LOST said"), 0);
  }
}

/* Three begin together, whoever comes first, and nobody goes before all have
 * ended. */
TEST(parties_begin_and_end_together) {
  enum { PARTIES = 3 };
  pid_t pids[PARTIES];
  enter_room();
  for (int i = 0; i < PARTIES; i++)
    pids[i] = start(
        "zke app.db barrier enter step -n 3 -- sh -c 'echo begin >>log;"
        " until [ $(grep -c begin log) = 3 ]; do sleep 0.01; done;"
        " echo end >>log'; code=$?; echo left >>log; exit $code");
  for (int i = 0; i < PARTIES; i++) ck_assert_int_eq(end(pids[i]), 0);
  ck_prints("uniq -c log | awk '{ print $1, $2 }'", "3 begin\n3 end\n3 left");
}

/* Who is killed while it waits is not counted; inside, its death is told to
 * the others, and the next round is a new one. */
TEST(killed_party_breaks_its_round) {
  enter_room();
  pid_t early = start("exec zke app.db barrier enter pair -n 2 -- true");
  ck_until_true("zke app.db barrier show pair 2>/dev/null | grep -q waiting");
  kill(early, SIGKILL);
  ck_assert_int_eq(end(early), 128 + SIGKILL);
  pid_t first = start("exec zke app.db barrier enter pair -n 2 -- true 2>said");
  ck_until_true("zke app.db barrier show pair 2>/dev/null | grep -q waiting");
  ck_assert_int_eq(waitpid(first, NULL, WNOHANG), 0);
  pid_t second = start(
      "exec zke app.db barrier enter pair -n 2 --close --"
      " sh -c 'touch inside; exec sleep 1000'");
  ck_until_true("[ -e inside ]");
  kill(second, SIGKILL);
  ck_assert_int_eq(end(second), 128 + SIGKILL);
  ck_assert_int_eq(end(first), 75);
  ck_prints("grep -c BROKEN said", "1");
  first = start("exec zke app.db barrier enter pair -n 2 -- true");
  ck_assert_int_eq(run("zke app.db barrier enter pair -n 2 -- true"), 0);
  ck_assert_int_eq(end(first), 0);
}

/* ------------------------------------------------------------------------
 * once
 * --------------------------------------------------------------------- */

/* Twenty crons at the same moment: one of them runs it, the others are content
 * and say nothing. */
TEST(one_of_twenty_runs_it) {
  enum { CRONS = 20 };
  pid_t pids[CRONS];
  enter_room();
  ck_assert_int_eq(run("zke app.db create /a >out"), 0);
  for (int i = 0; i < CRONS; i++)
    pids[i] = start(
        "exec zke app.db once job --every 1h -- sh -c"
        " 'echo ran >>log' >>said 2>&1");
  for (int i = 0; i < CRONS; i++) ck_assert_int_eq(end(pids[i]), 0);
  ck_prints("cat log", "ran");
  ck_prints("cat said", "");
}

/* While the killed wrapper's command lives the job is running; then it has
 * died, which counts as the period's run unless it is told not to. */
TEST(killed_run_is_not_repeated_unasked) {
  enter_room();
  pid_t pid = start(
      "exec zke app.db once job --every 1h -- sh -c 'trap \"\" TERM;"
      " touch begun; until [ -e go ]; do sleep 0.01; done'");
  ck_until_true("[ -e begun ]");
  kill(pid, SIGKILL);
  ck_assert_int_eq(end(pid), 128 + SIGKILL);
  ck_prints("zke app.db --plain once --show job | cut -f 2", "running");
  ck_assert_int_eq(run("zke app.db once job --every 1h --retry-dead -E 75 --"
                       " touch never 2>said"),
                   75);
  ck_assert_int_eq(run("touch go"), 0);
  ck_until_prints("zke app.db --plain once --show job | cut -f 2", "died");
  ck_assert_int_eq(run("zke app.db once job --every 1h -- touch never"), 0);
  ck_assert_int_ne(run("[ -e never ]"), 0);
  ck_assert_int_eq(run("zke app.db once job --every 1h --retry-dead --"
                       " touch again"),
                   0);
  ck_assert_int_eq(run("[ -e again ]"), 0);
}

/* Who waits for the next period gets it. */
TEST(waits_for_the_next_period) {
  enter_room();
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(run("zke app.db once job --every 50ms --wait 20 -- sh -c"
                         " 'echo ran >>log'"),
                     0);
  ck_prints("grep -c ran log", "3");
}

/* ------------------------------------------------------------------------
 * txn
 * --------------------------------------------------------------------- */

/* A site that dies before the decision aborts, in the ephemeral form. */
TEST(killed_site_aborts) {
  enter_room();
  ck_assert_int_eq(run("zke app.db txn begin t a b --ephemeral"), 0);
  pid_t a = start("exec zke app.db txn vote t a yes");
  ck_until_true("zke app.db --json txn status t | grep -q '\"yes\":\\[\"a\"'");
  pid_t waits_for_it = start("exec zke app.db txn wait t >said");
  kill(a, SIGKILL);
  ck_assert_int_eq(end(a), 128 + SIGKILL);
  ck_assert_int_eq(end(waits_for_it), 1);
  ck_prints("cut -d : -f 1 said", "abort");
}

/* Otherwise a vote stands, and whoever comes last decides. */
TEST(vote_outlives_its_voter) {
  enter_room();
  ck_assert_int_eq(run("zke app.db txn begin t a b"), 0);
  pid_t a = start("exec zke app.db txn vote t a yes --wait 1h");
  ck_until_true("zke app.db --json txn status t | grep -q '\"yes\":\\[\"a\"'");
  kill(a, SIGKILL);
  ck_assert_int_eq(end(a), 128 + SIGKILL);
  ck_assert_int_eq(run("zke app.db txn vote t b yes --wait 20 >said"), 0);
  ck_prints("zke app.db --plain txn pending a", "t\tcommit\tyes\t");
}

/* ------------------------------------------------------------------------
 * In a coprocess
 * --------------------------------------------------------------------- */

typedef struct coprocess {
  pid_t pid;
  FILE *in, *out; /* we write in, read out */
  char line[8192];
} coprocess;

/* Start a coprocess on the database, with streams to and from it. */
static void co_begin(coprocess *co) {
  int in[2], out[2];
  ck_assert_int_eq(pipe(in) | pipe(out), 0);
  co->pid = fork();
  if (co->pid == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    for (int fd = 3; fd < 64; fd++) close(fd);
    execlp("zke", "zke", "app.db", "--coprocess", (char *)NULL);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  co->in = fdopen(in[1], "w");
  co->out = fdopen(out[0], "r");
}

static void co_say(coprocess *co, const char *request) {
  fprintf(co->in, "%s\n", request);
  fflush(co->in);
}

/* The next line, which contains both texts. */
static const char *co_hear(coprocess *co, const char *one, const char *other) {
  alarm((unsigned)test_patience(SOON / 1000));
  ck_assert_msg(fgets(co->line, sizeof co->line, co->out), "no line for %s",
                one);
  alarm(0);
  ck_assert_msg(strstr(co->line, one) && strstr(co->line, other),
                "neither %s nor %s in %s", one, other, co->line);
  return co->line;
}

static void co_end(coprocess *co) {
  fclose(co->in);
  ck_assert_int_eq(end(co->pid), 0);
  fclose(co->out);
}

/* A claim lasts from one request to the next, and ends with the coprocess. */
TEST(coprocess_claims_and_acknowledges) {
  coprocess co;
  enter_room();
  co_begin(&co);
  co_say(&co, "{\"id\":1,\"run\":[\"queue\",\"push\",\"q\",\"one\"]}");
  co_hear(&co, "\"id\":1", "\"status\":0");
  co_say(&co, "{\"id\":2,\"run\":[\"queue\",\"push\",\"q\",\"two\"]}");
  co_hear(&co, "\"id\":2", "\"status\":0");
  co_say(&co, "{\"id\":3,\"run\":[\"queue\",\"claim\",\"q\"]}");
  co_hear(&co, "\"id\":3", "\"data\":\"one\"");
  co_say(&co,
         "{\"id\":4,\"run\":[\"queue\",\"ack\",\"q\",\"entry-100-0000000001\""
         "]}");
  co_hear(&co, "\"id\":4", "\"status\":0");
  co_say(&co, "{\"id\":5,\"run\":[\"queue\",\"claim\",\"q\"]}");
  co_hear(&co, "\"id\":5", "\"data\":\"two\"");
  ck_prints(COUNTS, "1\t1\t0");
  co_end(&co);
  ck_prints(COUNTS, "1\t0\t0");
}

/* A claim that is taken away is told, as a lost lock is. */
TEST(coprocess_hears_of_a_lost_claim) {
  coprocess co;
  enter_room();
  co_begin(&co);
  co_say(&co, "{\"id\":1,\"run\":[\"queue\",\"push\",\"q\",\"one\"]}");
  co_hear(&co, "\"id\":1", "\"status\":0");
  co_say(&co, "{\"id\":2,\"run\":[\"queue\",\"claim\",\"q\"]}");
  co_hear(&co, "\"id\":2", "\"data\":\"one\"");
  ck_assert_int_eq(
      run("zke app.db delete /queues/q/taken/entry-100-0000000001"), 0);
  co_hear(&co, "\"id\":2", "\"kind\":\"claim\"");
  co_say(&co, "{\"id\":3,\"run\":[\"queue\",\"ack\",\"q\"]}");
  co_hear(&co, "\"id\":3", "\"status\":76");
  co_end(&co);
}

/* Several requests wait at once over one session; one of them is cancelled. */
TEST(coprocess_waits_several_times_at_once) {
  coprocess co;
  enter_room();
  co_begin(&co);
  co_say(&co, "{\"id\":1,\"run\":[\"queue\",\"pop\",\"q\"]}");
  co_say(&co,
         "{\"id\":2,\"run\":[\"barrier\",\"meet\",\"m\",\"-n\",\"2\",\"a\"]}");
  ck_until_true("zke app.db barrier show m 2>/dev/null | grep -q waiting");
  ck_until_true("zke app.db ls /queues/q/entries/line | grep -q .");
  co_say(&co, "{\"cancel\":1}");
  co_hear(&co, "\"id\":1", "\"status\":75");
  ck_prints("zke app.db ls /queues/q/entries/line", "");
  ck_prints("zke app.db barrier meet m -n 2 b", "a\nb");
  co_hear(&co, "\"id\":2", "\"data\":\"b\"");
  co_end(&co);
}

/* What runs no commands claims the run, does it, and says how it went. */
TEST(coprocess_does_a_job) {
  coprocess co;
  enter_room();
  co_begin(&co);
  co_say(&co, "{\"id\":1,\"run\":[\"once\",\"job\",\"--every\",\"1h\"]}");
  co_hear(&co, "\"status\":0", "\"due\":true");
  ck_prints("zke app.db --plain once --show job | cut -f 2", "running");
  co_say(&co, "{\"id\":2,\"run\":[\"once\",\"job\",\"--done\",\"3\"]}");
  co_hear(&co, "\"id\":2", "\"status\":0");
  ck_prints("zke app.db --plain once --show job | cut -f 2,3", "ended\t3");
  co_say(&co, "{\"id\":3,\"run\":[\"once\",\"job\",\"--every\",\"1h\"]}");
  co_hear(&co, "\"status\":0", "\"due\":false");
  co_say(&co, "{\"id\":4,\"run\":[\"once\",\"job\",\"--done\",\"0\"]}");
  co_hear(&co, "\"id\":4", "NOTHELD");
  co_end(&co);
}

/* Inside a barrier from one request to the next; both leave. */
TEST(coprocess_enters_and_leaves) {
  coprocess co;
  enter_room();
  co_begin(&co);
  pid_t other = start("exec zke app.db barrier enter pair -n 2 -- true");
  co_say(&co,
         "{\"id\":1,\"run\":[\"barrier\",\"enter\",\"pair\",\"-n\",\"2\"]}");
  co_hear(&co, "\"id\":1", "\"round\":");
  co_say(&co, "{\"id\":2,\"run\":[\"barrier\",\"leave\",\"pair\"]}");
  co_hear(&co, "\"id\":2", "\"status\":0");
  ck_assert_int_eq(end(other), 0);
  co_end(&co);
}
