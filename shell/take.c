/* take.c - "lock take": a hold that outlives the command
 *
 * Two processes run the command.  The one that was started waits; the other one
 * opens the database, stands in the line, prints, and holds:
 *
 *     started                     forked
 *     take_fork() --------------> take_detach(): a session without a terminal,
 *        |                           |           no descriptor but 0, 1 and 2
 *        | waits                  take_begin(): opens the process by its number
 *        |                           |
 *        |                        join the line, wait (lock.c)
 *        |                           |  \--- not got ----> the error, its code
 *        |                        the token is printed
 *        | <--- a byte ---------- take_settle(): no more of 0, 1 and 2 either
 *     exit 0                         |
 *                                 hold, until what it is bound to has ended, a
 *                                 signal comes, or the lock was lost
 *
 * The fork comes before the program has a thread, so that the new process may
 * do everything.  While it waits for the lock it is of use only to the process
 * that was started: it gives up when that has ended.
 *
 * A thread watches what the hold is bound to.  It ends the call by a cancel, as
 * a signal does, so that lock.c waits and holds as it does for any command.  If
 * the call is stuck in printing, because nobody reads, the process ends.
 *
 * A session that is kept without a process (zke_detach()) would not do: it
 * cannot be bound to a process, and its time stands still while nobody uses the
 * file.
 *
 * A process is known by its pidfd, which is opened before anything else is
 * done.  Its number, name and start are read after that, while it lives.  They
 * are for people; nothing is decided by them.
 */
#include "take.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../recipes/part/text.h"
#include "process.h"
#include "work.h"

/* What has ended. */
enum { NOTHING, PROCESS, TIME, STARTER };

/* The hold that this process keeps. */
static struct {
  int starter; /* a pipe to the process that was started; 0: none */
  int process; /* a pidfd, or -1 */
  int timer;   /* runs from take_settle() on, if for_ms is above 0 */
  int64_t for_ms;
  process bound; /* the process of the pidfd */
  atomic_bool told;
  atomic_int over; /* what has ended first */
  bool watching;   /* there is the thread */
  pthread_t watcher;
} take = {.process = -1};

/* ------------------------------------------------------------------------
 * Two processes
 * --------------------------------------------------------------------- */

/* In the new process: leaves the caller's terminal and process group, and
 * closes every descriptor but standard output and error, which are for what is
 * still to be printed. */
static void take_detach(int starter) {
  enum { STARTER_FD = 3 };
  setsid();
  dup2(starter, STARTER_FD);
  closefrom(STARTER_FD + 1);
  int null = open("/dev/null", O_RDONLY);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0) _exit(STATUS_SYSTEM);
  close(null);
  take.starter = STARTER_FD;
}

/* The end of the new process, as an exit code.  A signal that has ended it ends
 * this process, too. */
static int take_outcome(pid_t pid) {
  int outcome;
  pid_t got;
  do got = waitpid(pid, &outcome, 0);
  while (got < 0 && errno == EINTR);
  if (got < 0) return STATUS_INTERNAL;
  if (WIFSIGNALED(outcome)) signals_die(WTERMSIG(outcome));
  return WEXITSTATUS(outcome);
}

/* No signal is taken here: one that ends this process closes the pipe, by which
 * the other one sees it.  So none stays blocked, as it may be by the caller. */
int take_fork(shell *sh) {
  int ends[2];
  char byte;
  ssize_t n;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  (void)signal(SIGCHLD, SIG_DFL);
  pid_t pid = pipe2(ends, O_CLOEXEC) == 0 ? fork() : -1;
  if (pid < 0) {
    call c = {.sh = sh, .format = sh->format};
    fail_errno(&c, STATUS_SYSTEM, "cannot fork");
    output_error(&c);
    return c.status;
  }
  if (pid == 0) {
    take_detach(ends[1]);
    return -1;
  }
  close(ends[1]);
  do n = read(ends[0], &byte, 1);
  while (n < 0 && errno == EINTR);
  return n == 1 ? STATUS_OK : take_outcome(pid);
}

/* Lets the timer run for so long. */
static int take_set_timer(int64_t ms) {
  struct itimerspec end = {
      .it_value = {.tv_sec = ms / 1000,
                   .tv_nsec = (long)(ms % 1000 * 1000000)}};
  return timerfd_settime(take.timer, 0, &end, NULL);
}

/* The byte comes last: when the other process ends, nothing of this one writes
 * to the caller's pipes any more. */
int take_settle(call *c) {
  if (take_set_timer(take.for_ms) != 0)
    return fail_errno(c, STATUS_SYSTEM, "cannot set a timer");
  int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null < 0 || chdir("/") != 0)
    return fail_errno(c, STATUS_SYSTEM, "cannot leave the terminal");
  dup2(null, STDOUT_FILENO);
  dup2(null, STDERR_FILENO);
  close(null);
  atomic_store(&take.told, true);
  return write(take.starter, "", 1) == 1 ? 0 : STATUS_CONFLICT;
}

/* ------------------------------------------------------------------------
 * What the hold is bound to
 * --------------------------------------------------------------------- */

/* The thread.  When the process that was started ends after it was told, that
 * is as it should be.  The end of the timer only cancels: a hold has nothing
 * more to print then, and after take_end() a call may print its error. */
static void *take_watch(void *call_) {
  struct pollfd p[] = {
      {take.process, POLLIN, 0}, {take.timer, POLLIN, 0}, {take.starter, 0, 0}};
  int over = NOTHING;
  while (!over) {
    if (poll(p, sizeof p / sizeof *p, -1) < 0) continue;
    if (p[0].revents)
      over = PROCESS;
    else if (p[1].revents)
      over = TIME;
    else if (atomic_load(&take.told))
      p[2].fd = -1;
    else
      over = STARTER;
  }
  atomic_store(&take.over, over);
  signals_cancel(call_, 0);
  if (over != TIME) signals_stop(SIGTERM);
  return NULL;
}

/* Whoever has ended the process that was started needs no sentence. */
int take_over(call *c) {
  int over = atomic_load(&take.over);
  if (over == PROCESS)
    return fail_with(c, STATUS_NO, "ENDED", "the process %s (pid %d) has ended",
                     take.bound.name, (int)take.bound.pid);
  return over == STARTER ? STATUS_CONFLICT : 0;
}

/* Has the process of the pidfd ended?  A zombie has. */
static bool take_has_ended(void) {
  struct pollfd p = {take.process, POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

/* Opens the process that --while-pid names.  That it lives after its name and
 * start were read tells that they are of the process that was opened. */
static int take_open_process(call *c) {
  int64_t pid;
  int status = option_number(c, 'p', 1, INT32_MAX, 0, &pid);
  if (status || !pid) return status;
  take.process = process_open((pid_t)pid);
  if (take.process < 0 && errno == ESRCH)
    return fail_with(c, STATUS_NO, "NOPROCESS", "no process has the pid %d",
                     (int)pid);
  if (take.process < 0 && (errno == EINVAL || errno == ENOENT))
    return fail_with(c, STATUS_NO, "NOPROCESS",
                     "pid %d is a thread, not a process", (int)pid);
  if (take.process < 0)
    return fail_errno(c, STATUS_SYSTEM, "cannot watch a process");
  if (!process_read((pid_t)pid, &take.bound))
    take.bound = (process){.pid = (pid_t)pid, .name = "?"};
  if (!take_has_ended()) return 0;
  atomic_store(&take.over, PROCESS);
  return take_over(c);
}

/* Makes the timer of --for.  It counts while the host is suspended, too. */
static int take_open_timer(call *c) {
  int status = option_duration(c, 'f', 0, &take.for_ms);
  if (status) return status;
  if (option_given(c, 'f') && !take.for_ms)
    return fail_usage(c, "--for wants a duration above 0");
  take.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
  if (take.timer >= 0) return 0;
  return fail_errno(c, STATUS_SYSTEM, "cannot make a timer");
}

/* A session that goes on holds what it takes by "lock", without a process of
 * its own. */
static int take_options(call *c) {
  if (!take.starter)
    return fail_usage(c,
                      "lock take is for a session of its own, which one "
                      "command on the command line has");
  if (store_of(c->sh) == STORE_MEMORY)
    return fail_usage(c,
                      "lock take holds for others, and nobody else can open "
                      ":memory:");
  if (!option_given(c, 'p') && !option_given(c, 'f'))
    return fail_usage(c, "lock take wants --while-pid or --for");
  int status = take_open_process(c);
  return status ? status : take_open_timer(c);
}

/* Writes the entry's data: "zkembed take", then as far as given " for MS", and
 * " while PID START NAME" with the start in clock ticks since the host's. */
static char *take_label(void) {
  char limit[64] = "", *label = NULL;
  const process *p = &take.bound;
  if (take.for_ms) snprintf(limit, sizeof limit, " for %" PRId64, take.for_ms);
  int len = take.process < 0
                ? asprintf(&label, "zkembed take%s", limit)
                : asprintf(&label, "zkembed take%s while %d %" PRIu64 " %s",
                           limit, (int)p->pid, p->start, p->name);
  return len < 0 ? NULL : label;
}

int take_begin(call *c, char **label_out) {
  int status = take_options(c);
  if (status) return status;
  *label_out = take_label();
  if (!*label_out) return no_memory(c);
  take.watching = pthread_create(&take.watcher, NULL, take_watch, c) == 0;
  return take.watching
             ? 0
             : fail_with(c, STATUS_SYSTEM, "SYSTEM", "cannot begin a thread");
}

/* The timer ends the thread's wait. */
void take_end(void) {
  if (!take.watching) return;
  take_set_timer(1);
  pthread_join(take.watcher, NULL);
  take.watching = false;
}

/* ------------------------------------------------------------------------
 * What others see of it
 * --------------------------------------------------------------------- */

/* What take_label() has written. */
typedef struct bond {
  int64_t for_ms, pid; /* 0: none */
  uint64_t start;
  char name[sizeof((process *)0)->name];
} bond;

/* Can "lock take" have written these numbers?  They come from the file, and are
 * reckoned with. */
static bool bond_is_sane(const bond *b) {
  const int64_t most = INT64_MAX / 10000;
  return b->for_ms >= 0 && b->for_ms < most && b->pid >= 0 &&
         b->pid <= INT32_MAX && b->start < (uint64_t)most;
}

/* Takes a number and what stands before it; too large, it is the greatest. */
static bool bond_take(const char **at, const char *before, int64_t *out) {
  size_t len = strlen(before);
  char *end;
  if (strncmp(*at, before, len) != 0) return false;
  *out = strtoll(*at + len, &end, 10);
  *at = end;
  return true;
}

/* Takes the data apart; false if they are not such. */
static bool bond_read(const char *data, int len, bond *b) {
  char text[128];
  int64_t start = 0;
  *b = (bond){0};
  if (len < 0 || len >= (int)sizeof text) return false;
  memcpy(text, data, (size_t)len);
  text[len] = '\0';
  const char *at = text, *mark = "zkembed take";
  if (strncmp(at, mark, strlen(mark)) != 0) return false;
  at += strlen(mark);
  bond_take(&at, " for ", &b->for_ms);
  if (bond_take(&at, " while ", &b->pid) && bond_take(&at, " ", &start))
    snprintf(b->name, sizeof b->name, "%s", at + (*at == ' '));
  b->start = (uint64_t)start; /* below 0: far too large */
  return (b->for_ms || b->pid) && bond_is_sane(b);
}

bool take_is(const char *data, int len) {
  bond b;
  return bond_read(data, len, &b);
}

/* Looks at the process: has it ended?  null if it is not known.  While it
 * lives, takes its present name, which an exec may have changed.  Its number is
 * as the process that holds sees it, so nothing is known if that one is not
 * seen. */
static json_t *bond_look(bond *b, enum sight sight) {
  process p;
  if (sight != VISIBLE || !b->start) return json_null();
  if (process_read((pid_t)b->pid, &p)) {
    bool lives = p.live && p.start == b->start;
    if (lives) memcpy(b->name, p.name, sizeof b->name);
    return json_boolean(!lives);
  }
  return kill((pid_t)b->pid, 0) != 0 && errno == ESRCH ? json_true()
                                                       : json_null();
}

/* The start is counted from the start of the holder's host. */
json_t *take_value(const char *data, int len, int64_t since_ms,
                   enum sight sight) {
  bond b;
  if (!bond_read(data, len, &b)) return json_null();
  bool dated = b.start && sight != ELSEWHERE;
  json_t *row = json_pack("{s:n,s:n,s:n,s:n,s:n,s:n}", "pid", "command",
                          "started_at", "ended", "for_ms", "until_at");
  if (b.pid) {
    json_object_set_new(row, "ended", bond_look(&b, sight));
    json_object_set_new(row, "pid", json_integer(b.pid));
    json_object_set_new(row, "command", value_text(b.name));
    json_object_set_new(row, "started_at",
                        value_time(dated ? clock_of_ticks(b.start) : 0));
  }
  if (b.for_ms) json_object_set_new(row, "for_ms", json_integer(b.for_ms));
  if (b.for_ms && since_ms)
    json_object_set_new(row, "until_at", json_integer(since_ms + b.for_ms));
  return row;
}

/* "while make (pid 742, since 2026-…)", "for 90 s", "until 2026-…" */
void take_human(const json_t *bound, const char *before, FILE *out) {
  const json_t *pid = json_object_get(bound, "pid"),
               *for_ms = json_object_get(bound, "for_ms"),
               *until = json_object_get(bound, "until_at"),
               *started = json_object_get(bound, "started_at");
  if (json_is_integer(pid)) {
    fprintf(out, "%swhile ", before);
    output_visible(NULL, json_object_get(bound, "command"), out);
    fprintf(out, " (pid %" JSON_INTEGER_FORMAT, json_integer_value(pid));
    if (json_is_true(json_object_get(bound, "ended"))) {
      fputs(", ended", out);
    } else if (json_is_integer(started)) {
      fputs(", since ", out);
      output_text("started_at", started, out);
    }
    fputc(')', out);
  }
  if (json_is_integer(until)) {
    fprintf(out, "%suntil ", before);
    output_text("until_at", until, out);
  } else if (json_is_integer(for_ms)) {
    fprintf(out, "%sfor %g s", before,
            (double)json_integer_value(for_ms) / 1000);
  }
}
