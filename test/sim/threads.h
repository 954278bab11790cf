/* threads.h - mutexes and conditions of fibers, in place of the C library's
 *
 * engine.c is compiled with these names.  Cancellation and fork handlers do
 * nothing yet.
 */
#ifndef ZKE_SIM_THREADS_H
#define ZKE_SIM_THREADS_H

#include <pthread.h>
#include <time.h>

int threads_lock(pthread_mutex_t *m);
int threads_unlock(pthread_mutex_t *m);
int threads_wait(pthread_cond_t *c, pthread_mutex_t *m);
int threads_timed_wait(pthread_cond_t *c, pthread_mutex_t *m,
                       const struct timespec *until);
int threads_signal(pthread_cond_t *c);
int threads_once(pthread_once_t *once, void (*fn)(void));
/* The simulated clock, for the deadline of a condition. */
int threads_clock(clockid_t clock, struct timespec *out);
int threads_nothing(void);

#endif
