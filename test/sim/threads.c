/* threads.c - see threads.h
 *
 * A mutex stores its holder's number in the C library's field for it.  While a
 * process has only one thread, its mutexes have no steps: no one else could use
 * them. */
#include "test/sim/threads.h"

#include <errno.h>
#include <setjmp.h>

#include "test/sim/sched.h"
#include "test/sim/wait.h"
#include "zkembed.h"

#define HOLDER(m) ((m)->__data.__owner)

/* The running thread's number as a holder. */
static int self(void) { return 1 + sched_thread(); }

/* Wait until the mutex is free, and take it. */
static void take(pthread_mutex_t *m) {
  while (HOLDER(m)) sched_wait_on(m, SIM_NEVER, false);
  HOLDER(m) = self();
}

/* Take a mutex: a step, if another thread could interfere. */
int threads_lock(pthread_mutex_t *m) {
  if (!sched_self()) return 0;
  if (HOLDER(m) == self()) sim_found("P9: a mutex is taken twice");
  if (sched_has_threads()) sched_step(CALL_mutex);
  take(m);
  return 0;
}

/* Release it, and wake the threads that wait for it. */
int threads_unlock(pthread_mutex_t *m) {
  if (!sched_self()) return 0;
  if (HOLDER(m) != self())
    sim_found("P9: another thread's mutex is given back");
  HOLDER(m) = 0;
  sched_wake(m);
  return 0;
}

/* For an assertion of the engine that its mutex is held: reports that, and
 * takes nothing. */
int threads_try(pthread_mutex_t *m) {
  return !sched_self() || HOLDER(m) ? EBUSY : 0;
}

/* Release the mutex, sleep, and take it again; only then does a cancellation
 * take effect. */
static int wait_for(pthread_cond_t *c, pthread_mutex_t *m, int64_t until) {
  threads_unlock(m);
  bool woken = sched_wait_on(c, until, true);
  take(m);
  sched_test_cancel();
  return woken ? 0 : ETIMEDOUT;
}

/* Like pthread_cond_wait(). */
int threads_wait(pthread_cond_t *c, pthread_mutex_t *m) {
  return wait_for(c, m, SIM_NEVER);
}

int threads_timed_wait(pthread_cond_t *c, pthread_mutex_t *m,
                       const struct timespec *until) {
  int64_t ns = until->tv_sec * INT64_C(1000000000) + until->tv_nsec;
  return wait_for(c, m, wait_of_monotonic(ns));
}

/* Wakes all: a real signal may wake more than one, too. */
int threads_signal(pthread_cond_t *c) {
  sched_wake(c);
  return 0;
}

/* Like pthread_once(); the flag belongs to the process. */
int threads_once(pthread_once_t *once, void (*fn)(void)) {
  if (*once) return 0;
  *once = 1;
  fn();
  return 0;
}

/* The process's own clock, even in a time namespace. */
int threads_clock(clockid_t clock, struct timespec *out) {
  int64_t ns = wait_clock(ZKE_CLOCK_MONOTONIC);
  (void)clock;
  *out = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  return 0;
}

int threads_nothing(void) { return 0; }

/* A number for a thread of the running process; unchanged in a forked child. */
pthread_t threads_self(void) { return (pthread_t)self(); }

/* Like getpid(): the recipes notice a fork by it. */
pid_t threads_pid(void) { return sched_self() ? sched_self()->pid : 0; }

/* Like getentropy(); recipes use it to name their znodes. */
int threads_entropy(void *out, size_t size) {
  uint64_t word = 0;
  for (size_t i = 0; i < size; i++, word >>= 8) {
    if (i % sizeof word == 0) word = sim_random(SIM_KERNEL, 0);
    ((unsigned char *)out)[i] = (unsigned char)word;
  }
  return 0;
}

/* ---- fork ---- */

int threads_at_fork(void (*prepare)(void), void (*parent)(void),
                    void (*child)(void)) {
  sched_process *p = sched_self();
  if (sched_fails(CALL_alloc)) return ENOMEM;
  p->at_fork[0] = prepare;
  p->at_fork[1] = parent;
  p->at_fork[2] = child;
  return 0;
}

/* The C library's fork handlers, around sched_fork(). */
bool threads_fork(void) {
  void (*const *handlers)(void) = sched_self()->at_fork;
  if (handlers[0]) handlers[0]();
  bool child = sched_fork();
  handlers = sched_self()->at_fork;
  if (child) sched_self()->watched = SCHED_REFUSED;
  if (handlers[0]) handlers[child ? 2 : 1]();
  return child;
}

/* ---- cancellation ---- */

/* Like pthread_cleanup_push(). */
void threads_push(threads_cleanup *c) {
  sched_cancel *self_cancel = sched_cancel_of();
  c->outer = self_cancel->cleanups;
  self_cancel->cleanups = c;
}

/* Like pthread_cleanup_pop(). */
void threads_pop(bool runs) {
  sched_cancel *c = sched_cancel_of();
  const threads_cleanup *last = c->cleanups;
  c->cleanups = last->outer;
  if (runs) last->fn(last->arg);
}

/* An asynchronous cancellation takes effect as soon as it is allowed. */
static void test_at_once(const sched_cancel *c) {
  if (c->at_once) sched_test_cancel();
}

/* Like pthread_setcancelstate(). */
int threads_cancel_state(int state, int *old) {
  sched_cancel *c = sched_cancel_of();
  if (!c) return 0;
  if (old) *old = c->off ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE;
  c->off = state == PTHREAD_CANCEL_DISABLE;
  test_at_once(c);
  return 0;
}

/* Like pthread_setcanceltype(). */
int threads_cancel_type(int type, int *old) {
  sched_cancel *c = sched_cancel_of();
  if (!c) return 0;
  if (old)
    *old = c->at_once ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
  c->at_once = type == PTHREAD_CANCEL_ASYNCHRONOUS;
  test_at_once(c);
  return 0;
}

/* A cancelled thread's stack frames are above this one, and are dropped. */
bool threads_run(void (*fn)(const void *), const void *arg) {
  jmp_buf back;
  sched_cancel *c = sched_cancel_of();
  *c = (sched_cancel){.back = &back};
  if (setjmp(back)) {
    *sched_cancel_of() = (sched_cancel){.back = NULL};
    sched_renew_thread();
    return false;
  }
  fn(arg);
  *sched_cancel_of() = (sched_cancel){.back = NULL};
  return true;
}

/* As in POSIX, no cancellation comes while handlers run. */
void threads_leave(void) {
  sched_cancel *c = sched_cancel_of();
  sim_say("CANCELLED");
  c->pending = false;
  c->off = true;
  while (c->cleanups) threads_pop(true);
  longjmp(*(jmp_buf *)c->back, 1);
}
