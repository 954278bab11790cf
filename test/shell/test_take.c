/* test_take.c - lock take: what test/shell/take.txt cannot show
 *
 * The tests have the caller's terminal, a stopped holding process, and a
 * process number that is used again.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/test.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <pty.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/lock.h"

static const char *db;
static zke *z;

/* Orphans become children of this process, so that it can stop them. */
static void begin(void) {
  char line[4096];
  db = test_path("db");
  setenv("DB", db, 1);
  snprintf(line, sizeof line, "%s", test_zke());
  setenv("ZKE", line, 1);
  snprintf(line, sizeof line, "%s", test_path("out"));
  setenv("OUT", line, 1);
  ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  z = test_open(db);
}

/* Run a shell's line to its end; the exit code. */
static int run(const char *line) { return test_status(system(line)); }

/* How many hold the lock or wait for it; *first is the first one's process. */
static int parties(pid_t *first) {
  zke_party_list *list;
  ck_ok(zke_lock_parties(z, "/locks/a", &list));
  int count = list->count;
  *first = count ? (pid_t)list->data[0].pid : 0;
  zke_free(list);
  return count;
}

/* The process that holds the lock. */
static pid_t holder(void) {
  pid_t first;
  ck_assert_int_eq(parties(&first), 1);
  return first;
}

/* Wait until the holding process has ended and nobody has the lock. */
static void ends(pid_t pid) {
  int status;
  ck_until(waitpid(pid, &status, WNOHANG) == pid, 10000);
  ck_assert_int_eq(parties(&pid), 0);
}

/* Start a child that does nothing, with an earlier child's number, or any. */
static pid_t idle(pid_t number) {
  struct clone_args arguments = {
      .exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
  pid_t pid = number ? (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments)
                     : fork();
  while (pid == 0) pause();
  return pid;
}

static void end(pid_t pid) {
  kill(pid, SIGKILL);
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* Take from a terminal, then wait there for a second hold. */
static pid_t start_on_terminal(int *master) {
  close(test_terminal()); /* or the test ends, and says why */
  pid_t pid = forkpty(master, NULL, NULL, NULL);
  ck_assert_int_ge(pid, 0);
  if (pid > 0) return pid;
  execl("/bin/sh", "sh", "-c",
        "trap : INT; \"$ZKE\" $DB lock take a --for 1m >$OUT"
        " && \"$ZKE\" $DB lock take a --for 1m; read end",
        (char *)NULL);
  _exit(99);
}

/* ^C and a hangup of the caller's terminal end a wait for the lock, but no
 * hold. */
TEST(terminal) {
  begin();
  int master;
  pid_t first, shell = start_on_terminal(&master);
  ck_until(parties(&first) == 2, 10000);
  ck_assert_int_eq(write(master, "\003", 1), 1);
  ck_until(parties(&first) == 1, 10000);
  close(master);
  ck_until(waitpid(shell, NULL, WNOHANG) == shell, 10000);
  ck_assert_int_eq(holder(), first);
  ck_assert_int_eq(getsid(first), first);
  kill(first, SIGTERM);
  ends(first);
}

/* Start the command with TERM blocked; it waits for the lock. */
static pid_t start_blocked(void) {
  sigset_t term;
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid > 0) return pid;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, NULL);
  execl(getenv("ZKE"), "zke", db, "lock", "take", "a", "--for", "1m",
        (char *)NULL);
  _exit(99);
}

/* A signal that the caller has blocked ends a wait for the lock, too. */
TEST(blocked) {
  begin();
  int status;
  ck_assert_int_eq(run("\"$ZKE\" $DB lock take a --for 1m >$OUT"), 0);
  pid_t first, pid = start_blocked();
  ck_until(parties(&first) == 2, 10000);
  kill(pid, SIGTERM);
  ck_until(waitpid(pid, &status, WNOHANG) == pid, 10000);
  ck_assert_int_eq(test_status(status), 128 + SIGTERM);
  ck_until(parties(&first) == 1, 10000);
  kill(first, SIGTERM);
  ends(first);
}

/* A hold that is bound to an idle process.  The holding process is stopped, and
 * then the bound process ends.  Returns the holding process. */
static pid_t outlive_bound(pid_t *bound_out) {
  char line[256];
  pid_t bound = *bound_out = idle(0);
  snprintf(line, sizeof line, "\"$ZKE\" $DB lock take a --while-pid %d >$OUT",
           (int)bound);
  ck_assert_int_eq(run(line), 0);
  pid_t pid = holder();
  test_stop(pid, db);
  end(bound);
  return pid;
}

/* A stopped holding process keeps the hold, even after its bound process has
 * ended.  lock release works, and the process ends when it continues. */
TEST(stopped) {
  begin();
  pid_t bound, pid = outlive_bound(&bound);
  ck_assert_int_eq(run("\"$ZKE\" $DB lock take a --for 1 --nonblock 2>&-"), 75);
  ck_assert_int_eq(run("\"$ZKE\" $DB locks | grep -q 'while.*, ended)'"), 0);
  ck_assert_int_eq(run("\"$ZKE\" $DB lock release a --token $(cat $OUT)"), 0);
  ck_assert_int_eq(run("\"$ZKE\" $DB lock release a 2>&-"), 1);
  kill(pid, SIGCONT);
  ends(pid);
}

/* With a lease a stopped process loses the hold. */
TEST(lease) {
  begin();
  ck_assert_int_eq(run("\"$ZKE\" $DB lock take a --for 1m --ttl 200ms >$OUT"),
                   0);
  pid_t pid = holder();
  test_stop(pid, db);
  ck_assert_int_eq(run("\"$ZKE\" $DB lock a --wait 20 -- true"), 0);
  kill(pid, SIGCONT);
  ends(pid);
}

/* A hold is bound to a process, not to its number: it ends with the process,
 * even if another process already has the number. */
TEST(number_given_again) {
  begin();
  pid_t bound, pid = outlive_bound(&bound);
  long tick = 1000 / sysconf(_SC_CLK_TCK);
  int64_t later = test_now() + 2 * tick;
  ck_until(test_now() >= later, 10000);
  if (idle(bound) < 0) { /* only root can choose a number */
    bound = 0;
    puts("the number was not given again");
  }
  ck_assert_int_eq(run("\"$ZKE\" $DB locks | grep -q 'while.*, ended)'"), 0);
  kill(pid, SIGCONT);
  ends(pid);
  if (bound) end(bound);
}
