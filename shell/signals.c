/* signals.c - one thread takes all signals
 *
 * Every other thread has them blocked, so no system call of zkembed is
 * interrupted and no handler runs inside it.  A signal that ends a wait does
 * so through the cancel function of whatever waits.
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
  pthread_mutex_t m; /* guards calls, hook and their cancel members */
  call *calls;
  bool (*hook)(void *arg, const siginfo_t *info);
  void *hook_arg;
  int come;           /* readable while one is pending */
  atomic_uint prints; /* odd while something is printed */
  int wake[2], stop[2];
  int stopped; /* what was told through stop last, and is for all that runs */
  sigset_t taken, before;
  void (*pipe_before)(int);
  pthread_t thread;
} signals = {
    .m = PTHREAD_MUTEX_INITIALIZER, .wake = {-1, -1}, .stop = {-1, -1}};

enum { SIGNALS_AGAIN_MS = 5 };

/* Tell what the call waits in.  Where it is only about to wait it has not heard
 * of it, and signals_loop() tries again.  The mutex is held. */
static void signals_tell(call *c) {
  c->unheard = c->cancel && c->cancel(c->cancel_object) == ZKE_IDLE;
  if (c->unheard && !pthread_equal(pthread_self(), signals.thread))
    pthread_kill(signals.thread, SIGCHLD); /* which wakes it */
}

/* The mutex is held. */
static void signals_cancel_locked(call *c, int signal) {
  int none = 0;
  atomic_compare_exchange_strong(&c->signal, &none, signal);
  atomic_store(&c->cancelled, true);
  signals_tell(c);
}

/* Tell those again that have not heard of it; how long to wait until the next
 * time, in ms, or -1.  The mutex is held. */
static int signals_tell_again(void) {
  int wait = -1;
  for (call *c = signals.calls; c; c = c->next) {
    if (c->unheard) signals_tell(c);
    if (c->unheard) wait = SIGNALS_AGAIN_MS;
  }
  return wait;
}

/* Cancel a call from any thread but that of signals, which holds the mutex
 * already. */
void signals_cancel(call *c, int signal) {
  pthread_mutex_lock(&signals.m);
  signals_cancel_locked(c, signal);
  pthread_mutex_unlock(&signals.m);
}

/* A full pipe says it already. */
static void signals_stop(int signal) {
  signals.stopped = signal;
  if (write(signals.stop[1], "", 1) < 0 && errno != EAGAIN)
    _exit(STATUS_SIGNAL + signal);
}

/* The mutex is held. */
static void signals_take(const siginfo_t *info) {
  int signal = info->si_signo;
  if (signal == SIGCONT || !signals.hook ||
      !signals.hook(signals.hook_arg, info)) {
    if (signal != SIGCHLD && signal != SIGWINCH && signal != SIGCONT) {
      for (call *c = signals.calls; c; c = c->next)
        signals_cancel_locked(c, signal);
      signals_stop(signal);
    }
    char byte = (char)signal;
    if (!signals.calls && write(signals.wake[1], &byte, 1) < 0 &&
        errno != EAGAIN)
      _exit(STATUS_SIGNAL + signal);
  }
}

/* What has to end, but has printed the same thing for a while, would not end
 * before its reader goes on: so the program does.  What it holds goes with it,
 * as with any program that is killed.  The mutex is held.  How long to wait
 * until the next look, in ms, or -1. */
static int signals_look_stuck(void) {
  enum { STUCK_MS = 300 };
  static unsigned before;
  static int64_t since_ms;
  unsigned now = atomic_load(&signals.prints);
  int64_t now_ms = monotonic_ms();
  bool person = false;
  if (!signals.stopped) return -1;
  for (const call *c = signals.calls; c; c = c->next)
    person = person || (c->sh && c->sh->person);
  if (person || now % 2 == 0 || now != before) since_ms = now_ms;
  before = now;
  if (now_ms - since_ms >= STUCK_MS) signals_die(signals.stopped);
  return STUCK_MS;
}

/* They are taken with the mutex held: whoever has it knows that what has come
 * was either dealt with or is pending. */
static void *signals_loop(void *unused) {
  static const struct timespec at_once = {0, 0};
  struct pollfd p = {.fd = signals.come, .events = POLLIN};
  (void)unused;
  for (int wait = -1;;) {
    siginfo_t info;
    if (poll(&p, 1, wait) < 0) continue;
    pthread_mutex_lock(&signals.m);
    if (sigtimedwait(&signals.taken, &info, &at_once) > 0) signals_take(&info);
    int look = signals_look_stuck();
    wait = signals_tell_again();
    if (wait < 0) wait = look;
    pthread_mutex_unlock(&signals.m);
  }
  return NULL;
}

void signals_printing(void) { atomic_fetch_add(&signals.prints, 1); }

bool signals_pipe_ends(void) { return signals.pipe_before != SIG_IGN; }

/* Ignored signals stay ignored, as nohup(1) wants, but SIGCHLD, without which
 * no child's end would be heard. */
int signals_begin(void) {
  static const int list[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,  SIGUSR1,
                             SIGUSR2, SIGALRM, SIGCHLD, SIGWINCH, SIGCONT};
  struct sigaction old;
  if (pipe2(signals.wake, O_CLOEXEC | O_NONBLOCK) != 0 ||
      pipe2(signals.stop, O_CLOEXEC | O_NONBLOCK) != 0)
    return -1;
  sigemptyset(&signals.taken);
  for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
    /* What whoever started us wants ignored (nohup) stays so. */
    sigaction(list[i], NULL, &old);
    if (old.sa_handler != SIG_IGN || list[i] == SIGCHLD)
      sigaddset(&signals.taken, list[i]);
  }
  (void)signal(SIGCHLD, SIG_DFL); /* an ignored one would never be taken */
  signals.pipe_before = signal(SIGPIPE, SIG_IGN); /* writes say EPIPE */
  pthread_sigmask(SIG_BLOCK, &signals.taken, &signals.before);
  signals.come = signalfd(-1, &signals.taken, SFD_CLOEXEC);
  if (signals.come < 0) return -1;
  return pthread_create(&signals.thread, NULL, signals_loop, NULL) ? -1 : 0;
}

/* A signal that came between two calls, or before the first, cancels this
 * one. */
void signals_enter(call *c) {
  pthread_mutex_lock(&signals.m);
  c->next = signals.calls;
  signals.calls = c;
  /* Before the first call, between two, or when the last one was all but
   * done; a person has seen it already. */
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

/* Under the mutex, so that after a NULL the old hook runs no more. */
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

/* Under the mutex: a signal that is being taken has been dealt with. */
int signals_stopped(void) {
  pthread_mutex_lock(&signals.m);
  int signal = signals.stopped;
  pthread_mutex_unlock(&signals.m);
  return signal;
}

/* In a child between fork() and exec(): signals as zke found them. */
void signals_child(void) {
  (void)signal(SIGPIPE, signals.pipe_before);
  pthread_sigmask(SIG_SETMASK, &signals.before, NULL);
}

/* Ends the process by the signal itself, so that a shell that waits for us sees
 * it. */
_Noreturn void signals_die(int signal_) {
  /* Ended by the signal itself, so that a shell's loop ends as well; but no
   * core for what is no fault. */
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

/* Setting and telling happen under one mutex: a cancel that came before is told
 * here, one that comes after by the signals' thread. */
int cancel_by_fd(void *eventfd) {
  const uint64_t one = 1;
  return write(*(int *)eventfd, &one, sizeof one) < 0 ? -1 : 0;
}

void cancel_by(call *c, int (*cancel)(void *object), void *object) {
  pthread_mutex_lock(&signals.m);
  c->cancel = cancel;
  c->cancel_object = object;
  c->unheard = false;
  if (cancel && atomic_load(&c->cancelled)) signals_tell(c);
  pthread_mutex_unlock(&signals.m);
}

bool cancelled(const call *c) { return atomic_load(&c->cancelled); }

/* A signal that ended it is noted, for main() to die by. */
int fail_cancelled(call *c) {
  int signal = atomic_load(&c->signal);
  if (!signal)
    return fail(c, STATUS_CONFLICT, "CANCELLED", "%s was cancelled",
                c->command->name);
  pthread_mutex_lock(&c->sh->m);
  c->sh->died_by = signal;
  pthread_mutex_unlock(&c->sh->m);
  /* Who pressed ^C knows. */
  bool known = c->sh->person && signal == SIGINT;
  return fail(c, STATUS_SIGNAL + signal, known ? NULL : "INTERRUPTED",
              "%s was ended by signal %d (%s)", c->command->name, signal,
              strsignal(signal));
}
