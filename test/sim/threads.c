/* threads.c - see threads.h
 *
 * A mutex has the number of its holder in the C library's field for that.  A
 * process's mutexes have no step of their own while it has one thread only:
 * then nobody can come between. */
#include "test/sim/threads.h"

#include <errno.h>

#include "test/sim/sched.h"
#include "test/sim/wait.h"
#include "zkembed.h"

#define HOLDER(m) ((m)->__data.__owner)

static int self(void) { return 1 + sched_thread(); }

int threads_lock(pthread_mutex_t *m) {
  if (!sched_self()) return 0;
  if (HOLDER(m) == self()) sim_found("P9: a mutex is taken twice");
  if (sched_has_threads()) sched_step(CALL_mutex);
  while (HOLDER(m)) sched_wait_on(m, SIM_NEVER);
  HOLDER(m) = self();
  return 0;
}

int threads_unlock(pthread_mutex_t *m) {
  if (!sched_self()) return 0;
  if (HOLDER(m) != self())
    sim_found("P9: another thread's mutex is given back");
  HOLDER(m) = 0;
  sched_wake(m);
  return 0;
}

/* Give the mutex back, sleep, and take it again. */
static int wait_for(pthread_cond_t *c, pthread_mutex_t *m, int64_t until) {
  threads_unlock(m);
  bool woken = sched_wait_on(c, until);
  while (HOLDER(m)) sched_wait_on(m, SIM_NEVER);
  HOLDER(m) = self();
  return woken ? 0 : ETIMEDOUT;
}

int threads_wait(pthread_cond_t *c, pthread_mutex_t *m) {
  return wait_for(c, m, SIM_NEVER);
}

int threads_timed_wait(pthread_cond_t *c, pthread_mutex_t *m,
                       const struct timespec *until) {
  int64_t ns = until->tv_sec * INT64_C(1000000000) + until->tv_nsec;
  return wait_for(c, m, wait_of_monotonic(ns));
}

int threads_signal(pthread_cond_t *c) {
  sched_wake(c);
  return 0;
}

int threads_once(pthread_once_t *once, void (*fn)(void)) {
  if (*once) return 0;
  *once = 1;
  fn();
  return 0;
}

int threads_clock(clockid_t clock, struct timespec *out) {
  int64_t ns = wait_clock(ZKE_CLOCK_MONOTONIC);
  (void)clock;
  *out = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  return 0;
}

int threads_nothing(void) { return 0; }
