/* engine.c - zkembed.c, unchanged, for the processes of the simulated host
 *
 * Its variables of a thread lie in the section sim_thread, and gather.ld puts
 * all others into sim_process: sched.c exchanges both.  What it asks of the C
 * library's threads it asks of threads.c.  The linker knows its functions as
 * sim_real_zke_..., since calls.c has those of that name. */
#define _GNU_SOURCE
#include <pthread.h>

#include "test/sim/threads.h"

#define _Thread_local __attribute__((section("sim_thread")))
#define pthread_mutex_lock(m) threads_lock(m)
#define pthread_mutex_unlock(m) threads_unlock(m)
#define pthread_mutex_destroy(m) threads_nothing()
#define pthread_cond_wait(c, m) threads_wait(c, m)
#define pthread_cond_timedwait(c, m, until) threads_timed_wait(c, m, until)
#define pthread_cond_signal(c) threads_signal(c)
#define pthread_cond_broadcast(c) threads_signal(c)
#define pthread_cond_destroy(c) threads_nothing()
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

#include "zkembed.h"
#define FUNCTION(name, path, parameters, arguments, samples) \
  int name parameters __asm__("sim_real_" #name);
#include "function_list.h"
#undef FUNCTION
int zke_open(const char *name, const zke_options *options,
             zke **z_out) __asm__("sim_real_zke_open");

#include "zkembed.c"
