/* signals.c - one thread takes all signals
 *
 * Every other thread has them blocked, so no system call of zkembed is
 * interrupted and no handler runs inside it.  signals_loop() takes a signal as
 * data, and does one of these, in signals_take():
 *
 *     hook took it   a running child gets it (guard.c); or it came from a
 *                    coprocess's terminal
 *     CHLD, WINCH,   end nothing; the prompt sees them through wake
 *     CONT
 *     all others     cancel each running call: its cancel function, on this
 *                    thread, ends its wait.  Readers of input (a script, the
 *                    prompt's commands) see stop
 *
 * Afterwards signals_stopped() reports the signal for the rest of the process,
 * and a later call begins cancelled; only for a person at a prompt it is
 * forgotten when the command has ended.  Finally the program dies by the signal
 * (shell.died_by, main()), so that a waiting shell sees it.
 *
 * TWO RACES are the reason for most of the code:
 *
 * - A cancel can come just before the call waits.  One mutex covers both
 *   setting the function (cancel_by()) and cancelling, so that one of the two
 *   sees the other; and a cancel that finds no wait, because the call has not
 *   begun it yet, is repeated until it succeeds.
 * - A child can be forked while a signal is being taken.  guard.c holds the
 *   mutex meanwhile (signals_hold()), and each signal is taken with it held.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "shell.h"

static struct {
  pthread_mutex_t m; /* guards calls and their cancel members, hook, stopped */
  call *calls;       /* those running */
  bool (*hook)(void *arg, const siginfo_t *info); /* NULL: none */
  void *hook_arg;
  int come;           /* a signalfd: readable while a signal is pending */
  atomic_uint prints; /* odd while something is printed */
  int wake[2]; /* a pipe: a byte for each signal that came while no call ran */
  int stop[2]; /* a pipe: has a byte when `stopped` was set */
  int stopped; /* the last signal that ends what runs; 0: none */
  sigset_t taken;           /* the signals that this thread takes */
  sigset_t before;          /* the mask at the program's start */
  void (*pipe_before)(int); /* what SIGPIPE did then */
  pthread_t thread;
} signals = {
    .m = PTHREAD_MUTEX_INITIALIZER, .wake = {-1, -1}, .stop = {-1, -1}};

enum { SIGNALS_AGAIN_MS = 5 }; /* before an unheard cancel is repeated */

/* The mutex is held.  Cancels the call's wait.  ZKE_IDLE means that the call
 * does not wait yet, so it was not cancelled: signals_loop() tries again, woken
 * by a signal if it sleeps. */
static void signals_tell(call *c) {
  c->unheard = c->cancel && c->cancel(c->cancel_object) == ZKE_IDLE;
  if (c->unheard && !pthread_equal(pthread_self(), signals.thread))
    pthread_kill(signals.thread, SIGCHLD);
}

/* The mutex is held.  Cancels a call; the first signal is reported as the one
 * that ended it, 0 for none. */
static void signals_cancel_locked(call *c, int signal) {
  int none = 0;
  atomic_compare_exchange_strong(&c->signal, &none, signal);
  atomic_store(&c->cancelled, true);
  signals_tell(c);
}

/* The mutex is held.  Repeats cancels that had no effect; returns the time
 * until the next attempt, in ms, or -1. */
static int signals_tell_again(void) {
  int wait = -1;
  for (call *c = signals.calls; c; c = c->next) {
    if (c->unheard) signals_tell(c);
    if (c->unheard) wait = SIGNALS_AGAIN_MS;
  }
  return wait;
}

/* From any thread but that of signals, which has the mutex already. */
void signals_cancel(call *c, int signal) {
  pthread_mutex_lock(&signals.m);
  signals_cancel_locked(c, signal);
  pthread_mutex_unlock(&signals.m);
}

/* The mutex is held.  Notifies readers of input.  A full pipe has notified them
 * already; with any other failure the program could no longer be ended. */
static void signals_stop_locked(int signal) {
  signals.stopped = signal;
  if (write(signals.stop[1], "", 1) < 0 && errno != EAGAIN)
    _exit(STATUS_SIGNAL + signal);
}

/* From any thread but that of signals.  Wakes that one, which then watches
 * whether the program is stuck in printing. */
void signals_stop(int signal) {
  pthread_mutex_lock(&signals.m);
  signals_stop_locked(signal);
  pthread_mutex_unlock(&signals.m);
  pthread_kill(signals.thread, SIGCHLD);
}

/* The mutex is held.  Handles one signal, as the file's head says.  CONT goes
 * to no hook: it concerns this process, not the child. */
static void signals_take(const siginfo_t *info) {
  int signal = info->si_signo;
  char byte = (char)signal;
  bool hooked = signals.hook && signal != SIGCONT;
  if (hooked && signals.hook(signals.hook_arg, info)) return;
  if (signal != SIGCHLD && signal != SIGWINCH && signal != SIGCONT) {
    for (call *c = signals.calls; c; c = c->next)
      signals_cancel_locked(c, signal);
    signals_stop_locked(signal);
  }
  if (!signals.calls && write(signals.wake[1], &byte, 1) < 0 && errno != EAGAIN)
    _exit(STATUS_SIGNAL + signal);
}

/* The mutex is held.  Ends the program if it should end, but is stuck in
 * printing: its reader does not read, or a value is enormous.  Then prints is
 * odd and unchanged for STUCK_MS.  What the session holds goes with the
 * process, as when it is killed.  At a prompt a person may look at a page for
 * any time.  Returns the time until the next look, in ms, or -1. */
static int signals_look_stuck(void) {
  enum { STUCK_MS = 300 };
  static unsigned before;
  static int64_t since_ms;
  unsigned now = atomic_load(&signals.prints);
  int64_t now_ms = clock_ms();
  bool person = false;
  if (!signals.stopped) return -1;
  for (const call *c = signals.calls; c; c = c->next)
    person = person || (c->sh && c->sh->person);
  if (person || now % 2 == 0 || now != before) since_ms = now_ms;
  before = now;
  if (now_ms - since_ms >= STUCK_MS) signals_die(signals.stopped);
  return STUCK_MS;
}

/* The mutex is held.  Handles all pending signals. */
static void signals_take_pending(void) {
  static const struct timespec at_once = {0, 0};
  siginfo_t info;
  while (sigtimedwait(&signals.taken, &info, &at_once) > 0) signals_take(&info);
}

/* May run on any thread: the signals' thread may be slow. */
void signals_settle(void) {
  pthread_mutex_lock(&signals.m);
  signals_take_pending();
  pthread_mutex_unlock(&signals.m);
}

/* The thread.  A signal is taken with the mutex held, not by a blocking
 * sigwait(): so a thread with the mutex knows that each signal so far was
 * handled or is still pending. */
static void *signals_loop(void *unused) {
  struct pollfd p = {.fd = signals.come, .events = POLLIN};
  (void)unused;
  for (int wait = -1;;) {
    if (poll(&p, 1, wait) < 0) continue;
    pthread_mutex_lock(&signals.m);
    signals_take_pending();
    int look = signals_look_stuck();
    wait = signals_tell_again();
    if (wait < 0) wait = look;
    pthread_mutex_unlock(&signals.m);
  }
  return NULL;
}

void signals_printing(void) { atomic_fetch_add(&signals.prints, 1); }

/* Ignored signals stay ignored, as nohup(1) needs, except SIGCHLD, without
 * which a child's end would be missed; an ignored signal is never taken, so
 * SIGCHLD gets its default.  SIGPIPE is ignored, so that a write fails with
 * EPIPE. */
int signals_begin(void) {
  static const int list[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,  SIGUSR1,
                             SIGUSR2, SIGALRM, SIGCHLD, SIGWINCH, SIGCONT};
  struct sigaction old;
  if (pipe2(signals.wake, O_CLOEXEC | O_NONBLOCK) != 0 ||
      pipe2(signals.stop, O_CLOEXEC | O_NONBLOCK) != 0)
    return -1;
  sigemptyset(&signals.taken);
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    sigaction(list[i], NULL, &old);
    if (old.sa_handler != SIG_IGN || list[i] == SIGCHLD)
      sigaddset(&signals.taken, list[i]);
  }
  (void)signal(SIGCHLD, SIG_DFL);
  signals.pipe_before = signal(SIGPIPE, SIG_IGN);
  pthread_sigmask(SIG_BLOCK, &signals.taken, &signals.before);
  signals.come = signalfd(-1, &signals.taken, SFD_CLOEXEC);
  if (signals.come < 0) return -1;
  return pthread_create(&signals.thread, NULL, signals_loop, NULL) ? -1 : 0;
}

/* A signal before the first call, between two, or just before the last one
 * ended, cancels this one.  A person has seen it already. */
void signals_enter(call *c) {
  pthread_mutex_lock(&signals.m);
  c->next = signals.calls;
  signals.calls = c;
  if (signals.stopped && !(c->sh && c->sh->person))
    signals_cancel_locked(c, signals.stopped);
  pthread_mutex_unlock(&signals.m);
}

/* For a person the next command begins without a signal. */
void signals_leave(call *c) {
  pthread_mutex_lock(&signals.m);
  call **at = &signals.calls;
  while (*at && *at != c) at = &(*at)->next;
  if (*at) *at = c->next;
  char byte;
  if (c->sh && c->sh->person)
    while (read(signals.stop[0], &byte, 1) > 0) signals.stopped = 0;
  pthread_mutex_unlock(&signals.m);
}

/* Under the mutex, so that after a NULL the old hook no longer runs. */
void signals_hook(bool (*hook)(void *arg, const siginfo_t *info), void *arg) {
  pthread_mutex_lock(&signals.m);
  signals.hook = hook;
  signals.hook_arg = arg;
  pthread_mutex_unlock(&signals.m);
}

void signals_hold(void) { pthread_mutex_lock(&signals.m); }

void signals_release(void) { pthread_mutex_unlock(&signals.m); }

int signals_wake_fd(void) { return signals.wake[0]; }

int signals_stop_fd(void) { return signals.stop[0]; }

/* Under the mutex: a signal that is being taken has been handled. */
int signals_stopped(void) {
  pthread_mutex_lock(&signals.m);
  int signal = signals.stopped;
  pthread_mutex_unlock(&signals.m);
  return signal;
}

/* For a child between fork() and exec(): restores signals as zke found them. */
void signals_child(void) {
  (void)signal(SIGPIPE, signals.pipe_before);
  pthread_sigmask(SIG_SETMASK, &signals.before, NULL);
}

/* Ends the process by the signal itself, so that a waiting shell sees it, and
 * ends its loop as well.  Writes no core, since this is not a fault. */
_Noreturn void signals_die(int signal_) {
  struct rlimit none = {0, 0};
  sigset_t one;
  setrlimit(RLIMIT_CORE, &none);
  (void)signal(signal_, SIG_DFL);
  sigemptyset(&one);
  sigaddset(&one, signal_);
  pthread_sigmask(SIG_UNBLOCK, &one, NULL);
  raise(signal_);
  _exit(STATUS_SIGNAL + signal_);
}

int cancel_by_fd(void *eventfd) {
  const uint64_t one = 1;
  return write(*(int *)eventfd, &one, sizeof one) < 0 ? -1 : 0;
}

/* Under the mutex: a cancel that came earlier takes effect here, a later one on
 * the signals' thread; and after cancel_by(c, NULL, NULL) none runs any more,
 * so the object may be freed. */
void cancel_by(call *c, int (*cancel)(void *object), void *object) {
  pthread_mutex_lock(&signals.m);
  c->cancel = cancel;
  c->cancel_object = object;
  c->unheard = false;
  if (cancel && atomic_load(&c->cancelled)) signals_tell(c);
  pthread_mutex_unlock(&signals.m);
}

bool cancel_came(const call *c) { return atomic_load(&c->cancelled); }

/* Records the signal, by which main() will die.  A person who pressed ^C at a
 * prompt knows what happened, and gets no message. */
int fail_cancelled(call *c) {
  int signal = atomic_load(&c->signal);
  if (!signal)
    return fail_with(c, STATUS_CONFLICT, "CANCELLED", "%s was cancelled",
                     c->command->name);
  pthread_mutex_lock(&c->sh->m);
  c->sh->died_by = signal;
  pthread_mutex_unlock(&c->sh->m);
  bool known = c->sh->person && signal == SIGINT;
  return fail_with(c, STATUS_SIGNAL + signal, known ? NULL : "INTERRUPTED",
                   "%s was ended by signal %d (%s)", c->command->name, signal,
                   strsignal(signal));
}
