/* test_shell_work.c - commands that only look, and their output, in situations
 * that a transcript cannot make: a stuck writer, a full disk, another user, a
 * full pipe, a terminal
 *
 * Tests of several processes that work together are in test/shell/work.txt.
 */
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
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

/* The user that commands run as, 0 for none; and the program. */
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

/* Start "sh -c command"; the command must exec the process to be signalled. */
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

/* Wait for its end, for a limited time; the exit code. */
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

/* A command's output, without the last newline. */
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

/* ------------------------------------------------------------------------
 * Commands that only look; output
 * --------------------------------------------------------------------- */

/* Hold the gate like a stopped writer. */
static int hold_gate(void) {
  struct flock gate = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  int fd = open("app.db-zke/gate", O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &gate), 0);
  return fd;
}

/* Every command that only looks, except two that are only other names.  They
 * write their files in a directory that anybody may write. */
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

/* A command that changes something ends with this code and says this. */
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

/* Commands that only look begin no session: a stuck writer does not hold them
 * up, and an empty file stays empty. */
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

/* Nor do they need space on the disk. */
TEST(looking_works_on_a_full_disk) {
  enter_room();
  const char *disk = test_small_disk("disk", 1024);
  if (!disk) return;
  enter_data(disk);
  test_fill_disk("ballast");
  expect_looks("zke=zke;");
  expect_refused("zke=zke;", 74, "zke: FULL: app.db");
}

/* Enter data that another user may read but not write, with the program open
 * for that user; false: only root can do this. */
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

/* Nor do they need to write: another user may look at readable data. */
TEST(looking_needs_no_permission_to_write) {
  if (!enter_data_for_another_user()) return;
  another_user = 61001;
  expect_looks("zke=/proc/self/fd/9;");
  expect_refused("zke=/proc/self/fd/9;", 77, "only commands that read work");
  run("zke=/proc/self/fd/9; $zke new.db create /x 2>../spare/out");
  ck_prints("cat ../spare/out",
            "zke: CANTOPEN: new.db does not exist, and cannot be made there");
}

/* A database without its -shm cannot be read if none can be made; the error
 * says so.  A copy can be read. */
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
            "be made or used here (attempt to write a readonly database); let "
            "a user who may write there run \"zke app.db backup COPY\", and "
            "read the copy");
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

/* The write end of a full pipe that nobody reads. */
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

/* TERM and INT end a command with blocked output. */
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

/* A command's output on a terminal.  A command that goes on is ended after its
 * first line. */
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
  /* EIO after the other side's last close */
  while (len < size && (n = read(us, text + len, size - len)) > 0) {
    len += (size_t)n;
    if (goes_on && memchr(text, '\n', len)) kill(pid, SIGTERM);
  }
  close(us);
  end(pid);
  return len;
}

/* Would a terminal obey any of it?  The output's own line ends are "\r\n". */
static bool is_obeyed(const unsigned char *text, size_t len) {
  for (size_t i = 0; i < len; i++) {
    bool high = i + 1 < len && text[i] == 0xc2 && text[i + 1] < 0xa0;
    bool control = text[i] < 0x20 && !strchr("\r\n\t", text[i]);
    if (control || text[i] == 0x7f || high || text[i] == 0x9b) return true;
  }
  return false;
}

/* ESC, DEL, and the C1 controls, as UTF-8 and as bytes, in data, identities and
 * words of the command line: no command sends them to a terminal. */
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
