/* test_guard.c - a command that runs under a lock: what test/shell/guard.txt
 * cannot show
 *
 * The tests are about how often the command gets a signal, what a terminal
 * sends, a stopped wrapper, and kills at random.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recipes/lock.h"

/* ------------------------------------------------------------------------
 * Starting the command
 * --------------------------------------------------------------------- */

static char command[4096], self[4096];
static const char *db;

/* Begin a test: scripts find their files in $T. */
static void begin(void) {
  snprintf(command, sizeof command, "%s", test_zke());
  ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  db = test_path("db");
  char *directory = strdup(db);
  *strrchr(directory, '/') = '\0';
  setenv("T", directory, 1);
  free(directory);
}

/* Start the command with these words; its outputs go to "out" and "err". */
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
  union {
    const char **in;
    char **out;
  } argv = {words};
  execv(command, argv.out);
  _exit(99);
}

/* The status of waitpid(); fails if it takes more than half a minute. */
static int outcome(pid_t pid) {
  int status, got = 0;
  ck_until(got || (got = waitpid(pid, &status, WNOHANG)) != 0, 30000);
  ck_assert_int_eq(got, pid);
  return status;
}

/* The exit code of a process that was not killed. */
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

static int number_in(const char *name) { return atoi(content(name)); }

/* Is it gone, or dead and not yet reaped by its adopter? */
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

static const int passed_on[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH};
enum { PASSED_ON = sizeof passed_on / sizeof *passed_on };

/* ------------------------------------------------------------------------
 * Signals to a command that runs
 * --------------------------------------------------------------------- */

/* This program as a child that records every signal it gets, until the file
 * "stop" exists and none has come for a while. */
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

/* The same on a thread, after the first thread has ended: /proc shows such a
 * process as a zombie. */
static void *count_thread(void *directory) { exit(count_signals(directory)); }

static int count_on_thread(char *directory) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, count_thread, directory) != 0) return 1;
  pthread_exit(NULL);
}

/* How often the wrapped command has recorded a signal. */
static int times_got(int signal) {
  char line[16];
  int count = 0;
  snprintf(line, sizeof line, "\n%d\n", signal);
  for (const char *at = content("signals"); (at = strstr(at, line)) != NULL;
       at++)
    count++;
  return count;
}

/* Every signal to the wrapper reaches the child, once. */
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

/* Start the command on its own terminal, as the session's leader or below a
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

/* What a terminal sends reaches all its foreground processes: the child gets it
 * once, and not a second time from the wrapper. */
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

/* On a hangup the kernel signals the session's leader; the wrapper passes it on
 * to the child. */
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

/* A command run for an event gets the signals, too; a signal that ends it also
 * ends the wait for the next event. */
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

/* A signal that ends the command also goes, once, to what the command runs;
 * other signals go to the command alone.  A process of the same group that is
 * no part of the command is spared. */
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

/* A stopped wrapper keeps the lock while its child continues.  When it
 * continues, it ends as usual. */
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

/* Continues to work when TERM or INT ends the shell that started it. */
static const char worker[] =
    "(trap '' TERM INT; echo $$ > $T/pid; : > $T/inside; : > $T/in;"
    " until [ -e $T/go ]; do sleep 0.01; done; rm $T/inside) & wait";

/* ^C at a terminal ends the command, but not an asynchronous job of it, which
 * ignores the signal: the lock stays held until the job ends. */
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

/* ------------------------------------------------------------------------
 * Loss, and kills
 * --------------------------------------------------------------------- */

/* Make pidfd_open() fail with EPERM, as in a container that does not know
 * it. */
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

/* Without pidfds, too, a lost lock ends the command's descendants. */
TEST(lost_without_pidfds) {
  begin();
  zke *z = test_open(db);
  refuse_pidfds();
  pid_t pid = start("lock", "a", "--", "sh", "-c",
                    "(trap ': > $T/asked; exit 3' TERM; : > $T/in;"
                    "while :; do sleep 0.01; done) & wait",
                    NULL);
  ck_until(exists("in"), 10000);
  ck_ok(zke_lock_break(z, "/locks/a", 0));
  ck_assert_int_eq(code(pid), 76);
  ck_assert(exists("asked"));
  zke_close(z);
}

/* A lost lock ends a descendant whose first thread has ended, too. */
TEST(lost_by_a_thread) {
  begin();
  zke *z = test_open(db);
  char script[8192];
  snprintf(script, sizeof script, "'%s' thread $T & echo $! > $T/pid; wait",
           self);
  pid_t pid = start("lock", "a", "--", "sh", "-c", script, NULL);
  ck_until(strstr(content("signals"), "ready\n"), 10000);
  ck_until(test_state(number_in("pid")) == 'Z', 10000);
  ck_ok(zke_lock_break(z, "/locks/a", 0));
  ck_until(times_got(SIGTERM) == 1, 10000);
  touch("stop");
  ck_assert_int_eq(code(pid), 76);
  zke_close(z);
}

/* --ttl: a wrapper that is stopped for longer loses what it holds, and notices
 * that as soon as it continues. */
TEST(stopped_for_too_long) {
  begin();
  pid_t pid = start("lock", "--ttl", "500ms", "a", "--", "sh", "-c",
                    ": > $T/in; exec sleep 60", NULL);
  ck_until(exists("in"), 10000);
  test_stop(pid, db);
  ck_assert_int_eq(code(start("lock", "a", "--", "true", NULL)), 0);
  kill(pid, SIGCONT);
  ck_assert_int_eq(code(pid), 76);
}

/* Wrappers and their children are killed at random while others work: two are
 * never inside at once, and nobody is stuck. */
TEST(killed_at_random) {
  enum { MANY = 60 };
  begin();
  srand(test_seed());
  pid_t pids[MANY];
  for (int i = 0; i < MANY; i++) {
    /* A killed wrapper leaves its number behind: it has closed its files before
     * the lock is free. */
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

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "count") == 0) return count_signals(argv[2]);
  if (argc == 3 && strcmp(argv[1], "thread") == 0)
    return count_on_thread(argv[2]);
  return test_main(argc, argv);
}
