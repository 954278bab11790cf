/* threads.h - the C library's threads, for fibers
 *
 * instead.h makes the engine and the recipes call these functions.
 */
#ifndef ZKE_SIM_THREADS_H
#define ZKE_SIM_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

int threads_lock(pthread_mutex_t *m);
int threads_unlock(pthread_mutex_t *m);
int threads_try(pthread_mutex_t *m);
int threads_wait(pthread_cond_t *c, pthread_mutex_t *m);
int threads_timed_wait(pthread_cond_t *c, pthread_mutex_t *m,
                       const struct timespec *until);
int threads_signal(pthread_cond_t *c);
int threads_once(pthread_once_t *once, void (*fn)(void));
/* The simulated clock, for the deadline of a condition. */
int threads_clock(clockid_t clock, struct timespec *out);
int threads_nothing(void);
pthread_t threads_self(void);
pid_t threads_pid(void);
int threads_entropy(void *out, size_t size);

/* ---- fork ---- */

int threads_at_fork(void (*prepare)(void), void (*parent)(void),
                    void (*child)(void));
/* Like fork(): true in the child that sched_fork() makes. */
bool threads_fork(void);

/* ---- cancellation ---- */

/* A cleanup handler, on the stack frame that it cleans up. */
typedef struct threads_cleanup {
  struct threads_cleanup *outer;
  void (*fn)(void *);
  void *arg;
} threads_cleanup;

void threads_push(threads_cleanup *c);
void threads_pop(bool runs);
int threads_cancel_state(int state, int *old);
int threads_cancel_type(int type, int *old);

/* threads_run - call fn as the body of a thread that may be cancelled; false:
 *               it was, and the fiber continues as another thread
 * threads_leave - the running thread is cancelled here: its handlers run, the
 *                 innermost first, and threads_run() returns */
bool threads_run(void (*fn)(const void *), const void *arg);
void threads_leave(void) __attribute__((noreturn));

#endif
