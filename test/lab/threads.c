/* threads.c - mutexes and conditions of the laboratory's processes
 *
 * All processes and threads of a test run on one real thread, so with the C
 * library's mutexes each would already hold everything.  These serve the
 * fibers; outside of a process the C library's own are called.  A process that
 * waits for a mutex or a condition lets others run, and a mutex that is never
 * released is found as an endless wait. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "world.h"

/* The C library's fields are used as it uses them, so that a mutex may be made
 * by its functions or by an initializer. */
#if defined(__GLIBC__)
#define KIND(m) ((m)->__data.__kind)
#define LOCKED(m) ((m)->__data.__lock)
#define OWNER(m) ((m)->__data.__owner)
#define COUNT(m) ((m)->__data.__count)
#else /* musl: 0 kind, 1 lock, 2 waiters, 5 count, and some others */
#define KIND(m) ((m)->__u.__i[0])
#define LOCKED(m) ((m)->__u.__i[1])
#define OWNER(m) ((m)->__u.__i[2])
#define COUNT(m) (*(unsigned *)&(m)->__u.__i[5])
#endif

static bool mutex_is_recursive(const pthread_mutex_t *m) {
  return (KIND(m) & 3) == PTHREAD_MUTEX_RECURSIVE;
}

/* The C library's function of this name. */
static void *library(void **kept, const char *name) {
  if (!*kept) *kept = dlsym(RTLD_NEXT, name);
  return *kept;
}

#define LIBRARY(name, type, arguments)       \
  do {                                       \
    static void *kept;                       \
    int(*fn) type;                           \
    *(void **)(&fn) = library(&kept, #name); \
    return fn arguments;                     \
  } while (0)

static bool mutex_take(pthread_mutex_t *m, int me) {
  if (LOCKED(m) && OWNER(m) != me) return false;
  if (LOCKED(m) && !mutex_is_recursive(m)) return false;
  LOCKED(m) = 1;
  OWNER(m) = me;
  COUNT(m)++;
  return true;
}

int pthread_mutex_lock(pthread_mutex_t *m) {
  int me = lab_self();
  if (!me) LIBRARY(pthread_mutex_lock, (pthread_mutex_t *), (m));
  while (!mutex_take(m, me)) lab_wait_on(m, INT64_MAX, "mutex");
  return 0;
}

int pthread_mutex_trylock(pthread_mutex_t *m) {
  int me = lab_self();
  if (!me) LIBRARY(pthread_mutex_trylock, (pthread_mutex_t *), (m));
  return mutex_take(m, me) ? 0 : EBUSY;
}

int pthread_mutex_unlock(pthread_mutex_t *m) {
  if (!lab_self()) LIBRARY(pthread_mutex_unlock, (pthread_mutex_t *), (m));
  if (--COUNT(m) > 0) return 0;
  LOCKED(m) = 0;
  OWNER(m) = 0;
  lab_wake_on(m);
  return 0;
}

/* Release the mutex completely, wait, and take it again as often. */
static int condition_wait(pthread_cond_t *c, pthread_mutex_t *m, int64_t due) {
  unsigned count = COUNT(m);
  COUNT(m) = 1;
  pthread_mutex_unlock(m);
  bool late = lab_wait_on(c, due, "condition");
  pthread_mutex_lock(m);
  COUNT(m) = count;
  return late ? ETIMEDOUT : 0;
}

int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
  if (!lab_self())
    LIBRARY(pthread_cond_wait, (pthread_cond_t *, pthread_mutex_t *), (c, m));
  return condition_wait(c, m, INT64_MAX);
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m,
                           const struct timespec *until) {
  if (!lab_self())
    LIBRARY(pthread_cond_timedwait,
            (pthread_cond_t *, pthread_mutex_t *, const struct timespec *),
            (c, m, until));
  return condition_wait(c, m,
                        until->tv_sec * INT64_C(1000000000) + until->tv_nsec);
}

int pthread_cond_signal(pthread_cond_t *c) {
  if (!lab_self()) LIBRARY(pthread_cond_signal, (pthread_cond_t *), (c));
  lab_wake_on(c);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t *c) {
  if (!lab_self()) LIBRARY(pthread_cond_broadcast, (pthread_cond_t *), (c));
  lab_wake_on(c);
  return 0;
}

int pthread_cond_destroy(pthread_cond_t *c) {
  if (!lab_self()) LIBRARY(pthread_cond_destroy, (pthread_cond_t *), (c));
  return 0;
}

#if !defined(LAB_FORKED)
/* Each process appears as a thread.  (In baton.c it is one.) */
pthread_t pthread_self(void) {
  static pthread_t (*own)(void);
  if (lab_self()) return (pthread_t)lab_self();
  if (!own) *(void **)(&own) = dlsym(RTLD_NEXT, "pthread_self");
  return own();
}
#endif

/* No thread is cancelled here.  The C library would keep one fiber's setting
 * for the next one. */
int pthread_setcancelstate(int state, int *old_out) {
  if (!lab_self())
    LIBRARY(pthread_setcancelstate, (int, int *), (state, old_out));
  if (old_out) *old_out = PTHREAD_CANCEL_ENABLE;
  return 0;
}

int pthread_setcanceltype(int type, int *old_out) {
  if (!lab_self())
    LIBRARY(pthread_setcanceltype, (int, int *), (type, old_out));
  if (old_out) *old_out = PTHREAD_CANCEL_DEFERRED;
  return 0;
}
