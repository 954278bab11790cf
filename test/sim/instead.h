/* instead.h - what zkembed.c and the recipes call instead of the C library
 *
 * engine.c includes it before zkembed.c, and each file of the recipes is
 * compiled with it.  It puts their thread-local variables into the section
 * sim_thread; gather.ld puts all others into sim_process.  sched.c swaps both.
 * Their calls of the C library's threads go to threads.c. */
#ifndef ZKE_SIM_INSTEAD_H
#define ZKE_SIM_INSTEAD_H

#include <pthread.h>
#include <unistd.h>

#include "test/sim/threads.h"

#define _Thread_local __attribute__((section("sim_thread")))
#define pthread_mutex_lock(m) threads_lock(m)
#define pthread_mutex_unlock(m) threads_unlock(m)
#define pthread_mutex_trylock(m) threads_try(m)
#define pthread_mutex_destroy(m) threads_nothing()
#define pthread_cond_wait(c, m) threads_wait(c, m)
#define pthread_cond_timedwait(c, m, until) threads_timed_wait(c, m, until)
#define pthread_cond_signal(c) threads_signal(c)
#define pthread_cond_broadcast(c) threads_signal(c)
#define pthread_cond_destroy(c) threads_nothing()
#define pthread_self() threads_self()
#define clock_gettime(clock, out) threads_clock(clock, out)
#define pthread_once(once, fn) threads_once(once, fn)
#define pthread_atfork(prepare, parent, child) \
  threads_at_fork(prepare, parent, child)
#define pthread_setcancelstate(state, old) threads_cancel_state(state, old)
#define pthread_setcanceltype(type, old) threads_cancel_type(type, old)
#undef pthread_cleanup_push
#undef pthread_cleanup_pop
#define pthread_cleanup_push(f, a)                      \
  {                                                     \
    threads_cleanup cleanup_ = {.fn = (f), .arg = (a)}; \
    threads_push(&cleanup_);
#define pthread_cleanup_pop(runs) \
  threads_pop(runs);              \
  }
#define getpid() threads_pid()
#define getentropy(out, size) threads_entropy(out, size)

#endif
