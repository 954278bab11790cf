/* test_guard.c - a command that runs under a lock
 *
 * zke FILE lock NAME … -- CMD ARGS… and its relatives, as their users and
 * those who kill them meet them: every test starts the program itself.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pty.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recipes/lock.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"

/* ------------------------------------------------------------------------
 * Starting the command
 * --------------------------------------------------------------------- */

static char command[4096], self[4096];
static const char *db;

/* Every test's beginning: scripts find their files in $T. */
static void begin(void) {
  snprintf(command, sizeof command, "%s", test_zke());
  ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  db = test_path("db");
  char *directory = strdup(db);
  *strrchr(directory, '/') = '\0';
  setenv("T", directory, 1);
  free(directory);
}

/* What the new process is to do before it is the command. */
static void (*prepare)(void);

/* Start the command with these words; what it says is in "out" and "err". */
static pid_t start(const char *word, ...) {
  const char *words[64] = {command, db};
  va_list list;
  int n = 2;
  const char *out = test_path("out"), *err = test_path("err");
  va_start(list, word);
  for (; word && n < 63; word = va_arg(list, const char *)) words[n++] = word;
  va_end(list);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid > 0) return pid;
  dup2(open(out, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), 1);
  dup2(open(err, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), 2);
  if (prepare) prepare();
  union {
    const char **in;
    char **out;
  } argv = {words};
  execv(command, argv.out);
  _exit(99);
}

/* As waitpid() tells it; fails when it takes more than half a minute. */
static int outcome(pid_t pid) {
  int status, got = 0;
  ck_until(got || (got = waitpid(pid, &status, WNOHANG)) != 0, 30000);
  ck_assert_int_eq(got, pid);
  return status;
}

/* The exit code, of one that was not killed. */
static int code(pid_t pid) {
  int status = outcome(pid);
  ck_assert_msg(WIFEXITED(status), "ended by signal %d", WTERMSIG(status));
  return WEXITSTATUS(status);
}

static int ended_by(pid_t pid) {
  int status = outcome(pid);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static bool exists(const char *name) {
  return access(test_path(name), F_OK) == 0;
}

static void touch(const char *name) {
  close(open(test_path(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

/* A file's bytes, in a static buffer. */
static const char *content(const char *name) {
  static char text[8192];
  int fd = open(test_path(name), O_RDONLY | O_CLOEXEC);
  ssize_t len = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[len > 0 ? len : 0] = '\0';
  return text;
}

#define ck_content(name, text)                                              \
  ck_assert_msg(strstr(content(name), text) != NULL, "%s lacks \"%s\": %s", \
                name, text, content(name))

static int number_in(const char *name) { return atoi(content(name)); }

/* Gone, or dead and not waited for by whoever adopted it. */
static bool is_gone(pid_t pid) {
  char state = test_state(pid);
  return state == '?' || state == 'Z' || state == 'X';
}

/* How many hold the lock or wait for it. */
static int parties(zke *z, const char *path) {
  zke_party_list *list;
  ck_ok(zke_lock_parties(z, path, &list));
  int count = list->count;
  zke_free(list);
  return count;
}

/* Hold it in this process. */
static zke_lock *hold(zke *z, const char *path) {
  zke_lock *lock;
  ck_ok(zke_lock_new(z, path, NULL, &lock));
  ck_ok(zke_lock_acquire(lock, zke_now(z) + 10000));
  return lock;
}

/* ------------------------------------------------------------------------
 * Exit codes, words, environment
 * --------------------------------------------------------------------- */

/* The child's own code is passed through, each of them. */
TEST(every_code) {
  int stride = test_stride(2) == 1 ? 1 : 5; /* the first and the last, too */
  begin();
  for (int i = 0; i < 256; i += stride) {
    char script[32];
    snprintf(script, sizeof script, "exit %d", i);
    ck_assert_int_eq(code(start("lock", "a", "--", "sh", "-c", script, NULL)),
                     i);
  }
  ck_assert_str_eq(content("err"), "");
}

/* 128 + n where it was killed by n. */
TEST(killed_child) {
  static const int signals[] = {SIGKILL, SIGTERM, SIGINT, SIGSEGV, SIGUSR1};
  begin();
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    char script[64];
    snprintf(script, sizeof script, "ulimit -c 0; kill -%d $$; sleep 10",
             signals[i]);
    ck_assert_int_eq(code(start("lock", "a", "--", "sh", "-c", script, NULL)),
                     128 + signals[i]);
  }
  zke *z = test_open(db);
  ck_assert_int_eq(parties(z, "/locks/a"), 0);
  zke_close(z);
}

/* 127: no such program, 126: not to be executed, both with our message; a
 * child's own 127 has none. */
TEST(not_executed) {
  begin();
  ck_assert_int_eq(code(start("lock", "a", "--", "sh", "-c", "exit 127", NULL)),
                   127);
  ck_assert_str_eq(content("err"), "");
  ck_assert_int_eq(code(start("lock", "a", "--", "/no/such", NULL)), 127);
  ck_content("err", "zke: NOTFOUND: cannot run \"/no/such\": No such file");
  ck_assert_int_eq(code(start("lock", "a", "--", "", NULL)), 127);
  touch("plain");
  ck_assert_int_eq(code(start("lock", "a", "--", test_path("plain"), NULL)),
                   126);
  ck_content("err", "zke: CANNOTRUN: cannot run \"");
  ck_assert_int_eq(code(start("lock", "a", "--", "/", NULL)), 126);
  zke *z = test_open(db);
  ck_assert_int_eq(parties(z, "/locks/a"), 0);
  zke_close(z);
}

/* The words are the child's as they are: no shell comes between. */
TEST(words_as_they_are) {
  static const char expected[] = "[a b][][\n][*][$HOME][--][-n][\xff\"'\\]";
  begin();
  ck_assert_int_eq(
      code(start("lock", "a", "--", "sh", "-c",
                 "for w; do printf '[%s]' \"$w\"; done > \"$T/words\"", "sh",
                 "a b", "", "\n", "*", "$HOME", "--", "-n", "\xff\"'\\", NULL)),
      0);
  ck_assert_str_eq(content("words"), expected);
}

/* The environment names the database, the lock, the token and the session; an
 * outer one's is replaced. */
TEST(the_environment_names_the_lock_and_its_token) {
  begin();
  setenv("ZKE_LOCK_TOKEN", "outer", 1);
  setenv("ZKE_DB", "outer", 1);
  pid_t pid = start(
      "lock", "a", "--", "sh", "-c",
      "env | sort | grep '^ZKE_[DLS]' | grep -v ACTOR > $T/env; : > $T/in;"
      "until [ -e $T/go ]; do sleep 0.01; done",
      NULL);
  ck_until(exists("in"), 10000);
  zke *z = test_open(db);
  zke_party_list *list;
  ck_ok(zke_lock_parties(z, "/locks/a", &list));
  ck_assert_int_eq(list->count, 1);
  char expected[1024];
  snprintf(expected, sizeof expected,
           "ZKE_DB=%s\nZKE_LOCK_KIND=lock\nZKE_LOCK_NAME=/locks/a\n"
           "ZKE_LOCK_TOKEN=%lld\nZKE_SESSION=0x%llx\n",
           db, (long long)list->data[0].mzxid,
           (unsigned long long)list->data[0].session);
  ck_assert_str_eq(content("env"), expected);
  ck_assert_msg(memcmp(list->data[0].data, "sh -c env", 9) == 0,
                "others see the command");
  zke_free(list);
  touch("go");
  ck_assert_int_eq(code(pid), 0);
  zke_close(z);
}

/* ------------------------------------------------------------------------
 * Waiting
 * --------------------------------------------------------------------- */

/* 75, or -E's code, for who does not get it: at once, or in time. */
TEST(conflict_codes) {
  begin();
  zke *z = test_open(db);
  zke_lock *lock = hold(z, "/locks/a");
  ck_assert_int_eq(code(start("lock", "--nonblock", "a", "--", "true", NULL)),
                   75);
  ck_content("err", "zke: HELD: the lock /locks/a is held by ");
  ck_assert_int_eq(code(start("lock", "--wait", "0", "a", "--", "true", NULL)),
                   75);
  ck_assert_int_eq(
      code(start("lock", "--nonblock", "-E", "9", "a", "--", "true", NULL)), 9);
  ck_assert_int_eq(
      code(start("lock", "--nonblock", "-E0", "a", "--", "false", NULL)), 0);
  ck_assert_int_eq(
      code(start("lock", "--nonblock", "-E", "256", "a", "--", "true", NULL)),
      64);
  int64_t before = test_now();
  ck_assert_int_eq(
      code(start("lock", "--wait", "0.25", "a", "--", "true", NULL)), 75);
  ck_assert_int_ge(test_now() - before, 250);
  ck_assert_int_eq(
      code(start("lock", "-w100ms", "-E", "8", "a", "--", "true", NULL)), 8);
  ck_assert_int_eq(parties(z, "/locks/a"), 1);
  zke_lock_free(lock);
  zke_close(z);
}

/* Bad options are found before anything is held. */
TEST(bad_options) {
  begin();
  ck_assert_int_eq(
      code(start("lock", "--on-lost", "no", "a", "--", "true", NULL)), 64);
  ck_assert_int_eq(code(start("lock", "--grace", "x", "a", "--", "true", NULL)),
                   64);
  ck_assert_int_eq(code(start("lock", "a", "--", NULL)), 64);
  ck_assert_int_eq(code(start("lock", "--", "true", NULL)), 64);
  ck_assert_int_eq(code(start("rwlock", "a", "--", "true", NULL)), 64);
  ck_assert_int_eq(code(start("rwlock", "-rx", "a", "--", "true", NULL)), 64);
  ck_assert_int_eq(code(start("sem", "-n", "0", "a", "--", "true", NULL)), 64);
  ck_assert_int_eq(code(start("lock", "", "--", "true", NULL)), 65);
  /* A letter means one thing: -n is a number, -w a time. */
  ck_assert_int_eq(code(start("lock", "-n", "a", "--", "true", NULL)), 64);
  ck_content("err",
             "-n is a number where it is an option; --nonblock does not "
             "wait");
  ck_assert_int_eq(code(start("rwlock", "-w", "a", "-x", "b", NULL)), 64);
  ck_content("err", "--wait wants seconds");
}

static const int passed_on[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

/* While it waits any signal ends it by that signal, and its place in the queue
 * has gone before it is. */
TEST(waiting_ended_by_signals) {
  static const char *const kinds[] = {"lock", "rwlock", "sem", "elect"};
  static const char *const places[] = {"/locks/a", "/rwlocks/a",
                                       "/semaphores/a", "/elections/a"};
  static const char *const how[] = {"--grace=1", "-x", "-n1", "--grace=1"};
  begin();
  zke *z = test_open(db);
  for (int k = 0; k < 4; k++) {
    char in[16], go[16], script[128];
    snprintf(in, sizeof in, "in%d", k);
    snprintf(go, sizeof go, "go%d", k);
    snprintf(script, sizeof script,
             ": > $T/%s; until [ -e $T/%s ]; do sleep 0.01; done", in, go);
    pid_t holder = start(kinds[k], how[k], "a", "--", "sh", "-c", script, NULL);
    ck_until(exists(in), 10000);
    zke_strings *names;
    ck_ok(zke_children(z, places[k], NULL, NULL, &names, NULL));
    int before = names->count;
    zke_free(names);
    for (int i = 0; i < PASSED_ON - 1; i++) {
      pid_t pid = start(kinds[k], how[k], "a", "--", "true", NULL);
      zke_stat stat;
      ck_until(zke_exists(z, places[k], NULL, NULL, &stat) == ZKE_OK &&
                   stat.numChildren == before + 1,
               10000);
      kill(pid, passed_on[i]);
      ck_assert_int_eq(ended_by(pid), passed_on[i]);
      ck_ok(zke_exists(z, places[k], NULL, NULL, &stat));
      ck_assert_int_eq(stat.numChildren, before);
    }
    touch(go);
    ck_assert_int_eq(code(holder), 0);
  }
  zke_close(z);
}

/* Held without a command: until a signal, by which it ends. */
TEST(held_until_a_signal) {
  begin();
  zke *z = test_open(db);
  pid_t pid = start("--json", "lock", "a", NULL);
  ck_until(parties(z, "/locks/a") == 1 && strchr(content("out"), '\n'), 10000);
  ck_content("out", "{\"path\":\"/locks/a\",\"kind\":\"lock\",");
  kill(pid, SIGTERM);
  ck_assert_int_eq(ended_by(pid), SIGTERM);
  ck_assert_int_eq(parties(z, "/locks/a"), 0);
  ck_assert_str_eq(content("err"), "");
  zke_close(z);
}

/* The same, and it is lost. */
TEST(held_until_lost) {
  begin();
  zke *z = test_open(db);
  pid_t pid = start("lock", "a", NULL);
  ck_until(strchr(content("out"), '\n'), 10000);
  ck_ok(zke_lock_break(z, "/locks/a", 0));
  ck_assert_int_eq(code(pid), 76);
  ck_content("err", "zke: LOST: the lock /locks/a was lost");
  zke_close(z);
}

/* ------------------------------------------------------------------------
 * Signals to a command that runs
 * --------------------------------------------------------------------- */

/* This program as a child that writes down every signal it gets, until the
 * file "stop" is there and none has come for a while. */
static int count_signals(const char *directory) {
  char name[4096];
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  snprintf(name, sizeof name, "%s/signals", directory);
  int fd = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (write(fd, "ready\n", 6) != 6) return 1;
  snprintf(name, sizeof name, "%s/stop", directory);
  for (int calm = 0; calm < 10;) {
    struct timespec t = {0, 10000000};
    int signal = sigtimedwait(&all, NULL, &t);
    if (signal > 0 && signal != SIGCONT) dprintf(fd, "%d\n", signal);
    calm = signal < 0 && access(name, F_OK) == 0 ? calm + 1 : 0;
  }
  return 0;
}

/* How often the wrapped command has noted that it got a signal. */
static int times_got(int signal) {
  char line[16];
  int count = 0;
  snprintf(line, sizeof line, "\n%d\n", signal);
  for (const char *at = content("signals"); (at = strstr(at, line)) != NULL;
       at++)
    count++;
  return count;
}

/* Every signal to the wrapper reaches the child, and once. */
TEST(signals_are_passed_on) {
  begin();
  pid_t pid = start("lock", "a", "--", self, "count", getenv("T"), NULL);
  ck_until(strstr(content("signals"), "ready\n"), 10000);
  for (int i = 0; i < PASSED_ON; i++) {
    kill(pid, passed_on[i]);
    ck_until(times_got(passed_on[i]) == 1, 10000);
  }
  touch("stop");
  ck_assert_int_eq(code(pid), 0);
  for (int i = 0; i < PASSED_ON; i++)
    ck_assert_int_eq(times_got(passed_on[i]), 1);
}

/* A child that dies of the signal that the wrapper got: the wrapper dies of it
 * too, so that a shell's loop ends. */
TEST(dies_as_its_child) {
  begin();
  pid_t pid =
      start("lock", "a", "--", "sh", "-c", ": > $T/in; exec sleep 30", NULL);
  ck_until(exists("in"), 10000);
  kill(pid, SIGINT);
  ck_assert_int_eq(ended_by(pid), SIGINT);
}

/* The command on a terminal of its own, as the session's leader or below a
 * shell. */
static pid_t start_on_terminal(int *master, bool below_shell) {
  char line[12000];
  snprintf(line, sizeof line,
           "trap : INT QUIT; '%s' '%s' lock a -- '%s' count \"$T\"; exit $?",
           command, db, self);
  close(test_terminal()); /* or the test ends, and says why */
  pid_t pid = forkpty(master, NULL, NULL, NULL);
  ck_assert_int_ge(pid, 0);
  if (pid > 0) return pid;
  if (below_shell)
    execl("/bin/sh", "sh", "-c", line, (char *)NULL);
  else
    execl(command, command, db, "lock", "a", "--", self, "count", getenv("T"),
          (char *)NULL);
  _exit(99);
}

/* What the terminal sends all of its foreground processes get: the child gets
 * it once, not a second time from us. */
TEST_LOOP(terminals_signals_once, 0, 2) {
  static const struct {
    char key;
    int signal;
  } keys[] = {{'\003', SIGINT}, {'\034', SIGQUIT}};
  begin();
  int master;
  pid_t pid = start_on_terminal(&master, _i);
  ck_until(strstr(content("signals"), "ready\n"), 10000);
  for (int round = 1; round <= 5; round++) {
    for (int i = 0; i < 2; i++) {
      ck_assert_int_eq(write(master, &keys[i].key, 1), 1);
      ck_until(times_got(keys[i].signal) >= round, 10000);
    }
    struct winsize size = {(unsigned short)(20 + round), 80, 0, 0};
    ck_assert_int_eq(ioctl(master, TIOCSWINSZ, &size), 0);
    ck_until(times_got(SIGWINCH) >= round, 10000);
  }
  touch("stop");
  outcome(pid);
  ck_assert_int_eq(times_got(SIGINT), 5);
  ck_assert_int_eq(times_got(SIGQUIT), 5);
  ck_assert_int_eq(times_got(SIGWINCH), 5);
  close(master);
}

/* When the line is cut the kernel tells the session's leader: the child hears
 * of it from us. */
TEST(hangup_is_passed_on) {
  begin();
  int master;
  pid_t pid = start_on_terminal(&master, false);
  ck_until(strstr(content("signals"), "ready\n"), 10000);
  close(master);
  ck_until(times_got(SIGHUP) == 1, 10000);
  touch("stop");
  ck_assert_int_eq(code(pid), 0);
  ck_assert_int_eq(times_got(SIGHUP), 1);
}

static void ignore_hup(void) { signal(SIGHUP, SIG_IGN); }

/* nohup zke … -- CMD: neither of them minds a hangup. */
TEST(ignored_stays_ignored) {
  begin();
  prepare = ignore_hup;
  pid_t pid = start("lock", "a", "--", "sh", "-c",
                    "kill -HUP $$; : > $T/in;"
                    "until [ -e $T/go ]; do sleep 0.01; done; exit 5",
                    NULL);
  ck_until(exists("in"), 10000);
  kill(pid, SIGHUP);
  touch("go");
  ck_assert_int_eq(code(pid), 5);
}

/* What a process says of itself in /proc: of the signals that are not the C
 * library's own. */
static void signal_masks(unsigned long long *blocked,
                         unsigned long long *ignored) {
  const char *at = strstr(content("out"), "SigBlk:");
  ck_assert_ptr_nonnull(at);
  ck_assert_int_eq(sscanf(at, "SigBlk: %llx SigIgn: %llx", blocked, ignored),
                   2);
  *blocked &= 0x7fffffff;
  *ignored &= 0x7fffffff;
}

/* The child blocks and ignores what it would without us. */
TEST(childs_signals_are_clean) {
  unsigned long long blocked[2], ignored[2];
  begin();
  ck_assert_int_eq(code(start("lock", "a", "--", "grep", "-E",
                              "Sig(Blk|Ign):", "/proc/self/status", NULL)),
                   0);
  signal_masks(&blocked[0], &ignored[0]);
  ck_assert_int_eq(system("grep -E 'Sig(Blk|Ign):' /proc/self/status > $T/out"),
                   0);
  signal_masks(&blocked[1], &ignored[1]);
  ck_assert_uint_eq(blocked[0], blocked[1]);
  ck_assert_uint_eq(ignored[0], ignored[1]);
}

/* A command run for an event gets the signals as well; one that ends it ends
 * also what waits for the next event. */
TEST(events_command) {
  begin();
  ck_assert_int_eq(code(start("create", "/a", NULL)), 0);
  pid_t pid =
      start("watch", "--follow", "/a", "--", self, "count", getenv("T"), NULL);
  zke *z = test_open(db);
  zke_watch_list *list = NULL;
  for (int count = 0; count == 0; count = list->count) {
    zke_free(list);
    ck_ok(zke_watches(z, &list));
  }
  zke_free(list);
  ck_ok(zke_set(z, "/a", "x", 1, -1, NULL));
  ck_until(strstr(content("signals"), "ready\n"), 10000);
  kill(pid, SIGUSR1);
  ck_until(times_got(SIGUSR1) == 1, 10000);
  kill(pid, SIGTERM);
  ck_until(times_got(SIGTERM) == 1, 10000);
  touch("stop");
  ck_assert_int_eq(ended_by(pid), SIGTERM);
  zke_close(z);
}

/* A signal that is to end the command goes to what the command runs as well,
 * once; others are the command's alone.  A process of the same group that is
 * no part of it is spared. */
TEST(the_group_is_ended) {
  begin();
  char script[12000];
  snprintf(script, sizeof script,
           "exec 2> $T/err; sleep 60 & echo $! > $T/stranger;"
           "'%s' '%s' lock a -- sh -c 'trap : TERM USR1; \"%s\" count $T;"
           " exit 3' & echo $! > $T/wrapper; wait $!",
           command, db, self);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", script, (char *)NULL);
    _exit(99);
  }
  ck_until(strstr(content("signals"), "ready\n"), 10000);
  ck_until(number_in("wrapper") > 0, 10000);
  kill(number_in("wrapper"), SIGUSR1);
  kill(number_in("wrapper"), SIGTERM);
  ck_until(times_got(SIGTERM) == 1, 10000);
  touch("stop");
  ck_assert_int_eq(code(pid), 3);
  ck_assert_int_eq(times_got(SIGTERM), 1);
  ck_assert_int_eq(times_got(SIGUSR1), 0);
  ck_assert(!is_gone(number_in("stranger")));
  kill(number_in("stranger"), SIGKILL);
}

/* A stopped wrapper keeps the lock; its child goes on, and when it goes on
 * itself it ends as if nothing had been. */
TEST(stopped_wrapper) {
  begin();
  zke *z = test_open(db);
  pid_t pid =
      start("lock", "a", "--", "sh", "-c",
            ": > $T/in; until [ -e $T/go ]; do sleep 0.01; done; exit 7", NULL);
  ck_until(exists("in"), 10000);
  test_stop(pid, db);
  ck_assert_int_eq(code(start("lock", "-w0.3", "a", "--", "true", NULL)), 75);
  touch("go");
  ck_assert_int_eq(code(start("lock", "-w0.3", "a", "--", "true", NULL)), 75);
  kill(pid, SIGCONT);
  ck_assert_int_eq(code(pid), 7);
  ck_assert_int_eq(parties(z, "/locks/a"), 0);
  zke_close(z);
}

/* ------------------------------------------------------------------------
 * Killed wrappers
 * --------------------------------------------------------------------- */

/* Leaves "inside" while it works, in the background and in the foreground:
 * until the wrapper was killed, and long enough for another to come in. */
static const char inside[] =
    "(: > $T/inside; echo $$ > $T/pid; : > $T/in;"
    " until [ -e $T/killed ]; do sleep 0.01; done; sleep 0.05;"
    " rm $T/inside) & wait";

/* The wrapper is killed, and its child or not: until the last descendant is
 * gone nobody enters.  No parent-death signal helps. */
TEST(next_waits_for_descendants) {
  begin();
  zke *z = test_open(db);
  for (int i = 0; i < 100; i++) {
    pid_t pid = start("lock", "a", "--outlive", "--", "sh", "-c", inside, NULL);
    ck_until(exists("in"), 10000);
    pid_t next =
        start("lock", "a", "--", "sh", "-c", "[ ! -e $T/inside ]", NULL);
    kill(pid, SIGKILL);
    if (i % 2) kill(number_in("pid"), SIGKILL);
    ck_assert_int_eq(ended_by(pid), SIGKILL);
    touch("killed");
    ck_assert_msg(code(next) == 0, "entered in round %d", i);
    unlink(test_path("in"));
    unlink(test_path("killed"));
  }
  ck_assert_int_eq(parties(z, "/locks/a"), 0);
  zke_close(z);
}

/* The same with --close: the next one does enter.  So the test above can
 * fail. */
TEST(close_lets_the_next_in) {
  begin();
  pid_t pid = start("lock", "a", "--close", "--outlive", "--", "sh", "-c",
                    ": > $T/in; until [ -e $T/entered ]; do sleep 0.01; done;"
                    ": > $T/out-lived",
                    NULL);
  ck_until(exists("in"), 10000);
  kill(pid, SIGKILL);
  ck_assert_int_eq(ended_by(pid), SIGKILL);
  ck_assert_int_eq(
      code(start("lock", "a", "--", "touch", test_path("entered"), NULL)), 0);
  ck_until(exists("out-lived"), 10000);
}

/* By default the child dies with the wrapper: asked to, so that it can clean
 * up, while nobody enters. */
TEST(child_dies_with_the_wrapper) {
  begin();
  pid_t pid = start("lock", "a", "--", "sh", "-c",
                    "trap 'sleep 0.1; : > $T/cleaned; exit' TERM;"
                    "echo $$ > $T/pid; : > $T/in;"
                    "while :; do sleep 0.01; done",
                    NULL);
  ck_until(exists("in"), 10000);
  pid_t child = number_in("pid");
  pid_t next =
      start("lock", "a", "--", "test", "-e", test_path("cleaned"), NULL);
  kill(pid, SIGKILL);
  ck_assert_int_eq(ended_by(pid), SIGKILL);
  ck_assert_int_eq(code(next), 0);
  ck_until(is_gone(child), 10000);
}

/* With --close there is no time for that. */
TEST(close_kills_with_the_wrapper) {
  begin();
  pid_t pid = start("lock", "a", "--close", "--", "sh", "-c",
                    "trap '' TERM; echo $$ > $T/pid; : > $T/in;"
                    "while :; do sleep 0.01; done",
                    NULL);
  ck_until(exists("in"), 10000);
  pid_t child = number_in("pid");
  kill(pid, SIGKILL);
  ck_assert_int_eq(ended_by(pid), SIGKILL);
  ck_until(is_gone(child), 10000);
}

/* A wrapper killed while it waits is not waited for. */
TEST(killed_while_waiting) {
  begin();
  zke *z = test_open(db);
  zke_lock *lock = hold(z, "/locks/a");
  for (int i = 0; i < 10; i++) {
    pid_t pid = start("lock", "a", "--", "touch", test_path("ran"), NULL);
    ck_until(parties(z, "/locks/a") == 2, 10000);
    pid_t next = start("lock", "a", "--", "true", NULL);
    ck_until(parties(z, "/locks/a") == 3, 10000);
    kill(pid, SIGKILL);
    ck_assert_int_eq(ended_by(pid), SIGKILL);
    ck_ok(zke_lock_release(lock));
    ck_assert_int_eq(code(next), 0);
    ck_ok(zke_lock_acquire(lock, zke_now(z) + 10000));
  }
  ck_assert(!exists("ran"));
  zke_lock_free(lock);
  zke_close(z);
}

/* The lock is given up when the command ends, not when all that it has left
 * in the background does. */
TEST(background_does_not_hold) {
  begin();
  ck_assert_int_eq(
      code(start("lock", "a", "--", "sh", "-c",
                 "(until [ -e $T/go ]; do sleep 0.01; done; : > $T/done) &",
                 NULL)),
      0);
  ck_assert_int_eq(code(start("lock", "--nonblock", "a", "--", "true", NULL)),
                   0);
  ck_assert(!exists("done"));
  touch("go");
  ck_until(exists("done"), 10000);
}

/* Works on where TERM and INT end the shell that has started it. */
static const char worker[] =
    "(trap '' TERM INT; echo $$ > $T/pid; : > $T/inside; : > $T/in;"
    " until [ -e $T/go ]; do sleep 0.01; done; rm $T/inside) & wait";

/* Whatever is held in whatever way. */
static const char *const holding[][4] = {{"lock", "--grace=1", "a"},
                                         {"rwlock", "-x", "a"},
                                         {"sem", "-n1", "a"},
                                         {"elect", "--grace=1", "a"}};

/* The command was ended by a signal, through the wrapper or itself, and its
 * work goes on: we say so and nobody enters meanwhile, as with flock(1). */
TEST_LOOP(work_goes_on, 0, 4) {
  begin();
  for (int how = 0; how < 2; how++) {
    const char *const *h = holding[_i];
    pid_t pid =
        start(h[0], h[1], h[2], "--outlive", "--", "sh", "-c", worker, NULL);
    ck_until(exists("in"), 10000);
    pid_t next =
        start(h[0], h[1], h[2], "--", "sh", "-c", "[ ! -e $T/inside ]", NULL);
    kill(how ? number_in("pid") : pid, how ? SIGKILL : SIGTERM);
    ck_until(strstr(content("err"), "zke: WAITING: sh has ended; the "), 10000);
    ck_content("err", " stays held by ");
    /* not always the first: its sleep's process id may be a lower one */
    ck_content("err", "sh -c (trap");
    ck_assert_int_eq(waitpid(next, NULL, WNOHANG), 0);
    touch("go");
    ck_assert_int_eq(code(next), 0);
    if (how)
      ck_assert_int_eq(code(pid), 128 + SIGKILL);
    else
      ck_assert_int_eq(ended_by(pid), SIGTERM);
    unlink(test_path("in"));
    unlink(test_path("go"));
    unlink(test_path("err"));
  }
}

/* The same by ^C at a terminal, which an asynchronous job ignores. */
TEST(work_goes_on_behind_a_terminal) {
  begin();
  int master;
  close(test_terminal());
  pid_t pid = forkpty(&master, NULL, NULL, NULL);
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    dup2(open(test_path("err"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), 2);
    execl(command, command, db, "lock", "a", "--", "sh", "-c", worker,
          (char *)NULL);
    _exit(99);
  }
  ck_until(exists("in"), 10000);
  pid_t next = start("lock", "a", "--", "sh", "-c", "[ ! -e $T/inside ]", NULL);
  ck_assert_int_eq(write(master, "\003", 1), 1);
  ck_until(strstr(content("err"), "zke: WAITING: "), 10000);
  ck_assert_int_eq(waitpid(next, NULL, WNOHANG), 0);
  touch("go");
  ck_assert_int_eq(code(next), 0);
  ck_assert_int_eq(ended_by(pid), SIGINT);
  close(master);
}

/* The item of a queue is nobody else's meanwhile. */
TEST(work_on_an_item_goes_on) {
  begin();
  ck_assert_int_eq(code(start("queue", "push", "q", "item", NULL)), 0);
  pid_t pid = start("queue", "pop", "q", "--", "sh", "-c", worker, NULL);
  ck_until(exists("in"), 10000);
  pid_t next =
      start("queue", "pop", "q", "--", "sh", "-c", "[ ! -e $T/inside ]", NULL);
  kill(pid, SIGTERM);
  ck_until(strstr(content("err"), "zke: WAITING: "), 10000);
  ck_assert_int_eq(waitpid(next, NULL, WNOHANG), 0);
  touch("go");
  ck_assert_int_eq(code(next), 0);
  ck_assert_int_eq(ended_by(pid), SIGTERM);
}

/* Another signal is for those that have stayed, and does not let anybody in
 * before they are gone. */
TEST(second_signal) {
  begin();
  pid_t pid = start("lock", "a", "--", "setsid", "sh", "-c", worker, NULL);
  ck_until(exists("in"), 10000);
  kill(pid, SIGTERM);
  ck_until(strstr(content("err"), "zke: WAITING: "), 10000);
  kill(pid, SIGHUP); /* which the worker does not ignore */
  ck_assert_int_eq(ended_by(pid), SIGTERM);
  ck_assert_int_eq(code(start("lock", "--nonblock", "a", "--", "true", NULL)),
                   0);
}

/* Taken away while they stay: they are ended as the command would be. */
TEST_LOOP(lost_while_work_goes_on, 0, 2) {
  begin();
  zke *z = test_open(db);
  pid_t pid = start("lock", "a", "--grace", "0.1", "--on-lost",
                    _i ? "warn" : "kill", "--", "sh", "-c", worker, NULL);
  ck_until(exists("in"), 10000);
  kill(pid, SIGTERM);
  ck_until(strstr(content("err"), "zke: WAITING: "), 10000);
  ck_ok(zke_lock_break(z, "/locks/a", 0));
  ck_assert_int_eq(code(pid), 76);
  ck_assert(exists("inside"));
  touch("go");
  if (_i) ck_until(!exists("inside"), 10000);
  zke_close(z);
}

/* --wait-all: as flock(1) does, also where the command has ended by itself. */
TEST(wait_for_all) {
  begin();
  pid_t pid = start("lock", "a", "-v", "--wait-all", "--", "sh", "-c",
                    "(: > $T/inside; : > $T/in; until [ -e $T/go ];"
                    " do sleep 0.01; done; rm $T/inside) & exit 5",
                    NULL);
  ck_until(exists("in"), 10000);
  ck_until(strstr(content("err"), "zke: WAITING: "), 10000);
  pid_t next = start("lock", "a", "--", "sh", "-c", "[ ! -e $T/inside ]", NULL);
  ck_assert_int_eq(waitpid(next, NULL, WNOHANG), 0);
  touch("go");
  ck_assert_int_eq(code(next), 0);
  ck_assert_int_eq(code(pid), 5);
  ck_assert_int_eq(
      code(start("lock", "--wait-all", "--close", "a", "--", "true", NULL)),
      64);
}

/* What the command prints with these words, in "said". */
static int say(const char *words) {
  char line[12000];
  snprintf(line, sizeof line, "'%s' '%s' %s > $T/said 2>&1", command, db,
           words);
  int status = system(line);
  return WEXITSTATUS(status);
}

/* The wrapper is gone, and what it ran has the lock: whoever looks is told
 * which process that is. */
TEST(holder_is_named) {
  char text[256];
  begin();
  pid_t pid = start("lock", "a", "--outlive", "--", "sh", "-c",
                    "echo $$ > $T/pid; : > $T/in; exec sleep 60", NULL);
  ck_until(exists("in"), 10000);
  pid_t holder = number_in("pid");
  ck_assert_int_eq(say("locks a --json"), 0);
  ck_content("said", "\"kept_by\":null");
  kill(pid, SIGKILL);
  ck_assert_int_eq(ended_by(pid), SIGKILL);
  pid_t next = start("lock", "a", "--", "true", NULL);
  /* It may not be sleep yet, but still the shell. */
  ck_until(say("waits") == 0 && strstr(content("said"), "kept by sleep 60"),
           10000);
  snprintf(text, sizeof text, "(pid %d; kept by sleep 60 (pid %d)): /locks/a",
           (int)pid, (int)holder);
  ck_content("said", text);
  say("waits --json");
  snprintf(text, sizeof text,
           "\"by_kept_by\":[{\"pid\":%d,\"command\":\"sleep 60\"}]",
           (int)holder);
  ck_content("said", text);
  say("locks");
  snprintf(text, sizeof text, "zke (pid %d; kept by sleep 60 (pid %d))",
           (int)pid, (int)holder);
  ck_content("said", text);
  say("sessions");
  snprintf(text, sizeof text, "zke; kept by sleep 60 (pid %d)\n", (int)holder);
  ck_content("said", text);
  say("doctor");
  snprintf(text, sizeof text,
           "(zke, pid %d) is kept alive, with 1 ephemeral nodes, by sleep 60 "
           "(pid %d); the process that began it has ended",
           (int)pid, (int)holder);
  ck_content("said", text);
  kill(holder, SIGKILL);
  ck_assert_int_eq(code(next), 0);
}

/* The descriptor, and no other of ours, is in the child, under a number that
 * scripts leave alone; with --close there is none.  (One of Check's is there,
 * too.) */
TEST(childs_descriptors) {
  static const char script[] =
      "for f in /proc/$$/fd/*; do case $(readlink $f) in"
      " $T/db*) echo ${f##*/}; esac; done";
  begin();
  ck_assert_int_eq(code(start("lock", "a", "--", "sh", "-c", script, NULL)), 0);
  ck_assert_int_ge(number_in("out"), 100);
  ck_assert_ptr_eq(strchr(content("out"), '\n') + 1,
                   strchr(content("out"), '\0'));
  unlink(test_path("out"));
  ck_assert_int_eq(
      code(start("lock", "-o", "a", "--", "sh", "-c", script, NULL)), 0);
  ck_assert_str_eq(content("out"), "");
}

/* ------------------------------------------------------------------------
 * Loss
 * --------------------------------------------------------------------- */

static void lose_broken(zke *z, const zke_party *p) {
  (void)p;
  ck_ok(zke_lock_break(z, "/locks/a", 0));
}

/* The holder loses its lock to a thief. */
static void lose_stolen(zke *z, const zke_party *p) {
  zke_lock *thief;
  (void)p;
  ck_ok(zke_lock_new(z, "/locks/a", NULL, &thief));
  ck_ok(zke_lock_steal(thief));
  zke_lock_free(thief);
}

static void lose_expired(zke *z, const zke_party *p) {
  ck_ok(zke_expire(z, p->session));
}

static void lose_deleted(zke *z, const zke_party *p) {
  char path[512];
  snprintf(path, sizeof path, "/locks/a/%s", p->name);
  ck_ok(zke_delete(z, path, -1));
}

static void (*const losses[])(zke *z, const zke_party *p) = {
    lose_broken, lose_stolen, lose_expired, lose_deleted};
enum { LOSSES = sizeof losses / sizeof *losses };

/* The holder of the lock loses it, in one of the ways above. */
static void lose(zke *z, int how) {
  zke_party_list *list;
  ck_ok(zke_lock_parties(z, "/locks/a", &list));
  ck_assert_int_eq(list->count, 1);
  losses[how](z, &list->data[0]);
  zke_free(list);
}

/* Broken, stolen, expired or deleted: the command gets TERM, and is done. */
TEST_LOOP(lost_is_asked_to_end, 0, LOSSES) {
  begin();
  zke *z = test_open(db);
  pid_t pid = start("lock", "a", "--", "sh", "-c",
                    "trap ': > $T/asked; exit 3' TERM; : > $T/in;"
                    "while :; do sleep 0.01; done",
                    NULL);
  ck_until(exists("in"), 10000);
  lose(z, _i);
  ck_assert_int_eq(code(pid), 76);
  ck_assert(exists("asked"));
  ck_content("err", "zke: LOST: the lock /locks/a was lost");
  zke_close(z);
}

/* One that does not listen is killed after --grace, and so are its
 * descendants: one in the background, one whose parent has gone and that is in
 * a session of its own, one that is stopped. */
TEST(lost_and_deaf_is_killed) {
  begin();
  zke *z = test_open(db);
  pid_t pid = start("lock", "--grace", "0.3", "a", "--", "sh", "-c",
                    "trap '' TERM; sleep 60 & echo $! > $T/first;"
                    "setsid sh -c 'sleep 60 & echo $! > $T/second';"
                    "sleep 60 & echo $! > $T/third; kill -STOP $!;"
                    ": > $T/in; while :; do sleep 0.01; done",
                    NULL);
  ck_until(exists("in"), 10000);
  int64_t before = test_now();
  lose(z, 0);
  ck_assert_int_eq(code(pid), 76);
  ck_assert_int_ge(test_now() - before, 300);
  ck_assert_int_lt(test_now() - before, 30000);
  static const char *const names[] = {"first", "second", "third"};
  for (int i = 0; i < 3; i++) {
    ck_assert_int_gt(number_in(names[i]), 1);
    ck_assert_msg(is_gone(number_in(names[i])), "the %s lives", names[i]);
  }
  zke_close(z);
}

/* As in a container that knows nothing of pidfds: opening one is EPERM. */
static void refuse_pidfds(void) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(98);
}

/* What was lost ends the command's descendants also where no pidfd is to be
 * had. */
TEST(lost_without_pidfds) {
  begin();
  zke *z = test_open(db);
  prepare = refuse_pidfds;
  pid_t pid = start("lock", "a", "--", "sh", "-c",
                    "(trap ': > $T/asked; exit 3' TERM; : > $T/in;"
                    "while :; do sleep 0.01; done) & wait",
                    NULL);
  ck_until(exists("in"), 10000);
  lose(z, 0);
  ck_assert_int_eq(code(pid), 76);
  ck_assert(exists("asked"));
  zke_close(z);
}

/* Processes of the caller's that are no descendants of the command live on,
 * though they are our children. */
TEST(strangers_are_spared) {
  begin();
  char script[12000];
  snprintf(script, sizeof script,
           "exec 2> $T/err; sleep 60 & echo $! > $T/stranger; exec '%s' '%s' "
           "lock a --grace 0.1"
           " -- sh -c ': > $T/in; exec sleep 60'",
           command, db);
  zke *z = test_open(db);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", script, (char *)NULL);
    _exit(99);
  }
  ck_until(exists("in"), 10000);
  lose(z, 0);
  ck_assert_int_eq(code(pid), 76);
  ck_assert(!is_gone(number_in("stranger")));
  kill(number_in("stranger"), SIGKILL);
  zke_close(z);
}

/* A script's command leaves a process running, or one that ends later.  The
 * next command's loss ends all of that command's processes, also one whose
 * parent has gone, and spares the one that was left before. */
TEST_LOOP(lost_behind_one_left_running, 0, 2) {
  static const char script[] =
      "lock b -- sh -c \"sleep $FOR & echo $! > $T/left\"\n"
      "lock c -- sh -c \"if [ $FOR = 0.1 ]; then"
      " while readlink /proc/$(cat $T/left)/exe; do sleep 0.01; done; fi\"\n"
      "lock a -- sh -c \"(sleep 60 & echo $! > $T/orphan); : > $T/in;"
      " exec sleep 60\"\n";
  begin();
  setenv("FOR", _i ? "0.1" : "60", 1);
  zke *z = test_open(db);
  FILE *out = fopen(test_path("script"), "we");
  fputs(script, out);
  fclose(out);
  pid_t pid = start("-f", test_path("script"), NULL);
  ck_until(exists("in"), 10000);
  lose(z, 0);
  ck_assert_int_eq(code(pid), 76);
  ck_assert(is_gone(number_in("orphan")));
  ck_assert_int_eq(is_gone(number_in("left")), _i);
  if (!_i) kill(number_in("left"), SIGKILL);
  zke_close(z);
}

/* How long a process has run, in clock ticks. */
static long ticks(pid_t pid) {
  char line[TEST_STAT_LINE];
  unsigned long user, kernel;
  const char *told = test_stat_line(pid, line);
  ck_assert_ptr_nonnull(told);
  ck_assert_int_eq(
      sscanf(told, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
             &user, &kernel),
      2);
  return (long)(user + kernel);
}

/* --on-lost warn: a word, and 76 in the end.  It sleeps until then, also where
 * the session it could sleep on has ended. */
TEST_LOOP(lost_with_a_warning, 0, LOSSES) {
  begin();
  zke *z = test_open(db);
  ck_assert_int_eq(mkfifo(test_path("go"), 0600), 0);
  pid_t pid = start("lock", "--on-lost", "warn", "a", "--", "sh", "-c",
                    ": > $T/in; read x < $T/go; : > $T/done", NULL);
  ck_until(exists("in"), 10000);
  lose(z, _i);
  ck_until(strstr(content("err"), "; sh goes on\n"), 10000);
  ck_assert(!exists("done"));
  long before = ticks(pid);
  struct timespec pause = {0, 500000000};
  nanosleep(&pause, NULL);
  ck_assert_int_lt(ticks(pid) - before, sysconf(_SC_CLK_TCK) / 20);
  close(open(test_path("go"), O_WRONLY | O_CLOEXEC));
  ck_assert_int_eq(code(pid), 76);
  ck_assert(exists("done"));
  zke_close(z);
}

/* --ttl: a wrapper that is stopped for longer loses what it holds, and finds
 * that out as soon as it goes on. */
TEST(stopped_for_too_long) {
  begin();
  ck_assert_int_eq(code(start("lock", "--ttl", "0", "a", "--", "true", NULL)),
                   64);
  pid_t pid = start("lock", "--ttl", "500ms", "a", "--", "sh", "-c",
                    ": > $T/in; exec sleep 60", NULL);
  ck_until(exists("in"), 10000);
  test_stop(pid, db);
  ck_assert_int_eq(code(start("lock", "a", "--", "true", NULL)), 0);
  kill(pid, SIGCONT);
  ck_assert_int_eq(code(pid), 76);
}

/* The other kinds are lost in the same way. */
TEST_LOOP(lost_of_every_kind, 0, 3) {
  static const char *const kinds[] = {"rwlock", "sem", "elect"};
  static const char *const how[] = {"-r", "-n2", "--grace=1"};
  begin();
  zke *z = test_open(db);
  zke_session_list *list;
  pid_t pid = start(kinds[_i], how[_i], "a", "--", "sh", "-c",
                    ": > $T/in; exec sleep 60", NULL);
  ck_until(exists("in"), 10000);
  ck_ok(zke_sessions(z, -1, &list));
  for (int i = 0; i < list->count; i++)
    if (list->data[i].id != zke_session_id(z))
      ck_ok(zke_expire(z, list->data[i].id));
  zke_free(list);
  ck_assert_int_eq(code(pid), 76);
  ck_content("err", " was lost ");
  zke_close(z);
}

/* ------------------------------------------------------------------------
 * Many at once
 * --------------------------------------------------------------------- */

static void all_succeed(const pid_t *pids, int count) {
  for (int i = 0; i < count; i++)
    ck_assert_msg(code(pids[i]) == 0, "number %d: %s", i, content("err"));
}

/* Fifty wrappers on one lock: never two inside, and each of them once. */
TEST(fifty_on_a_lock) {
  enum { MANY = 50 };
  begin();
  pid_t pids[MANY];
  for (int i = 0; i < MANY; i++)
    pids[i] = start("lock", "a", "--", "sh", "-c",
                    "set -C; : > $T/inside || exit 9; echo x >> $T/log;"
                    "rm $T/inside",
                    NULL);
  all_succeed(pids, MANY);
  ck_assert_uint_eq(strlen(content("log")), 2 * MANY);
}

/* Readers together, writers alone. */
TEST(forty_on_a_rwlock) {
  enum { MANY = 40 };
  begin();
  pid_t pids[MANY];
  mkdir(test_path("readers"), 0700);
  for (int i = 0; i < MANY; i++)
    pids[i] = i % 4 ? start("rwlock", "-r", "a", "--", "sh", "-c",
                            "[ ! -e $T/writer ] || exit 8;"
                            ": > $T/readers/$$; sleep 0.01; rm $T/readers/$$",
                            NULL)
                    : start("rwlock", "-x", "a", "--", "sh", "-c",
                            "set -C; : > $T/writer || exit 9;"
                            "[ -z \"$(ls $T/readers)\" ] || exit 7;"
                            "rm $T/writer",
                            NULL);
  all_succeed(pids, MANY);
}

/* No more than the limit. */
TEST(forty_on_a_semaphore) {
  enum { MANY = 40 };
  begin();
  pid_t pids[MANY];
  mkdir(test_path("users"), 0700);
  for (int i = 0; i < MANY; i++)
    pids[i] = start("sem", "-n", "3", "a", "--", "sh", "-c",
                    ": > $T/users/$$; ls $T/users | wc -l >> $T/log;"
                    "[ $(ls $T/users | wc -l) -le 3 ] || exit 9;"
                    "sleep 0.01; rm $T/users/$$",
                    NULL);
  all_succeed(pids, MANY);
  ck_assert_msg(strstr(content("log"), "3\n"), "never three at once: %s",
                content("log"));
}

/* Wrappers and their children are killed at random while others go on: still
 * never two inside, and nobody is stuck. */
TEST(killed_at_random) {
  enum { MANY = 60 };
  begin();
  srand(test_seed());
  pid_t pids[MANY];
  for (int i = 0; i < MANY; i++) {
    /* One that is killed leaves its number: it has closed its files before the
     * lock is free. */
    pids[i] = start("lock", "a", "--", "sh", "-c",
                    "r=$(cat $T/inside 2>/dev/null);"
                    "[ -z \"$r\" ] || [ ! -e /proc/$r/fd/2 ] || exit 9;"
                    "echo $$ > $T/inside; sleep 0.005; rm -f $T/inside",
                    NULL);
    if (i % 3 == 0) {
      struct timespec t = {0, rand() % 30 * 1000000};
      nanosleep(&t, NULL);
      kill(pids[rand() % (i + 1)], SIGKILL);
    }
  }
  for (int i = 0; i < MANY; i++) {
    int status = outcome(pids[i]);
    ck_assert_msg(WIFSIGNALED(status) || WEXITSTATUS(status) == 0,
                  "number %d: %d", i, WEXITSTATUS(status));
  }
}

/* ------------------------------------------------------------------------
 * Odd surroundings
 * --------------------------------------------------------------------- */

static void close_streams(void) {
  close(0);
  close(1);
}

/* Closed standard streams: no file of ours takes their place. */
TEST(closed_streams) {
  begin();
  prepare = close_streams;
  ck_assert_int_eq(
      code(start("lock", "a", "--", "sh", "-c",
                 "readlink /proc/$$/fd/0 /proc/$$/fd/1 > $T/streams;"
                 "cat > /dev/null 2>&1 && exit 8; echo x && exit 9; exit 5",
                 NULL)),
      5);
  ck_assert_ptr_null(strstr(content("streams"), "db"));
  prepare = NULL;
  ck_assert_int_eq(code(start("check", NULL)) % 64, 0);
}

/* In the child: the limit counts only what the command opens itself, whatever
 * this program was started with. */
static rlim_t files_limit;
static void limit_files(void) {
  for (int fd = 3; fd < 256; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
  setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* it would need some too */
  struct rlimit limit = {files_limit, files_limit};
  setrlimit(RLIMIT_NOFILE, &limit);
}

/* However few descriptors there are: either the command runs under the lock,
 * or a clear message says why not. */
TEST(few_descriptors) {
  int ran = 0;
  begin();
  ck_assert_int_eq(code(start("lock", "a", "--", "true", NULL)), 0);
  prepare = limit_files;
  for (files_limit = 4; files_limit < 40; files_limit++) {
    unlink(test_path("err"));
    int got = code(start("lock", "a", "--", "sh", "-c", "exit 42", NULL));
    if (got == 42)
      ran++;
    else
      ck_assert_msg(files_limit < 6 || got == 66 || got == 71 || got == 74,
                    "%d descriptors: %d %s", (int)files_limit, got,
                    content("err"));
    ck_assert_msg(got == 42 || files_limit < 6 || *content("err"),
                  "%d descriptors: no message", (int)files_limit);
  }
  ck_assert_int_gt(ran, 10);
  prepare = NULL;
  zke *z = test_open(db);
  ck_assert_int_eq(parties(z, "/locks/a"), 0);
  zke_close(z);
}

/* A database that another one keeps for longer than we wait for it: nothing is
 * lost, nobody is killed, and the command's code is what counts. */
TEST(busy_database) {
  sqlite3 *other;
  begin();
  pid_t pid = start("--timeout", "50ms", "lock", "a", "--", "sh", "-c",
                    ": > $T/in; until [ -e $T/go ]; do sleep 0.01; done;"
                    ": > $T/done; exit 7",
                    NULL);
  ck_until(exists("in"), 10000);
  ck_assert_int_eq(sqlite3_open(db, &other), SQLITE_OK);
  sqlite3_busy_timeout(other, 10000);
  ck_assert_int_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL),
                   SQLITE_OK);
  touch("go");
  ck_until(exists("done"), 10000);
  struct timespec pause = {0, 200000000}; /* several times the timeout */
  nanosleep(&pause, NULL);
  ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
  ck_assert_int_eq(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL),
                   SQLITE_OK);
  sqlite3_close(other);
  ck_assert_int_eq(code(pid), 7);
  ck_assert_str_eq(content("err"), "");
}

/* A script that is standard input is not for the children to read; one in a
 * file leaves it to them. */
TEST(script_on_standard_input) {
  static const char script[] =
      "lock a -- sh -c \"readlink /proc/$$/fd/0 > $T/stdin\"\n"
      "lock b -- sh -c \"exit 6\"\n";
  begin();
  setenv("Z", command, 1);
  FILE *out = fopen(test_path("script"), "we");
  fputs(script, out);
  fclose(out);
  int status = system("cat $T/script | $Z $T/db 2> /dev/null");
  ck_assert_int_eq(WEXITSTATUS(status), 6);
  ck_assert_str_eq(content("stdin"), "/dev/null\n");
  status = system("cat $T/script | $Z $T/db -f $T/script 2> /dev/null");
  ck_assert_int_eq(WEXITSTATUS(status), 6);
  ck_content("stdin", "pipe:");
}

/* A script, in a file of its own. */
static const char *script_of(const char *text) {
  const char *name = test_path("script");
  FILE *out = fopen(name, "we");
  fputs(text, out);
  fclose(out);
  return name;
}

/* TERM and HUP, which the running command has survived, end its script; INT may
 * have been for the command alone.  With --go-on it is the same, also where the
 * command has failed. */
TEST_LOOP(script_is_ended_behind_its_child, 0, 6) {
  static const int signals[] = {SIGTERM, SIGHUP, SIGINT};
  char text[9000];
  int signal = signals[_i % 3];
  begin();
  snprintf(text, sizeof text,
           "lock a -- sh -c \"trap : INT TERM HUP; '%s' count $T; exit %d\"\n"
           "create /second\n",
           self, _i / 3);
  pid_t pid = start("-f", script_of(text), _i / 3 ? "--go-on" : NULL, NULL);
  ck_until(strstr(content("signals"), "ready\n"), 10000);
  kill(pid, signal);
  ck_until(times_got(signal) == 1, 10000);
  touch("stop");
  if (signal == SIGINT)
    ck_assert_int_eq(code(pid), _i / 3);
  else
    ck_assert_int_eq(ended_by(pid), signal);
  zke *z = test_open(db);
  ck_rc(zke_exists(z, "/second", NULL, NULL, NULL),
        signal == SIGINT ? ZKE_OK : ZKE_NONODE);
  zke_close(z);
}

/* An exit code that a signal's would be does not end a script with --go-on. */
TEST(script_goes_on_behind_any_code) {
  begin();
  pid_t pid = start("--go-on", "-f",
                    script_of("lock a -- sh -c \"exit 255\"\n"
                              "lock b -- sh -c \"exit 143\"\n"
                              "lock c -- sh -c \": > $T/third; exit 3\"\n"),
                    NULL);
  ck_assert_int_eq(code(pid), 3);
  ck_assert(exists("third"));
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "count") == 0) return count_signals(argv[2]);
  return test_main(argc, argv);
}
