/* cancel.c - see cancel.h
 *
 * Threads may be cancelled only here, so the rest of the load need not expect
 * it.  zkembed.h promises that a cancelled thread leaves only the sleep of a
 * wait, or, if cancelled asynchronously, also the end of any call.  Whatever it
 * leaves behind blocks nothing: the others notice (P9, P10). */
#include "test/sim/cancel.h"

#include <pthread.h>

#include "test/sim/forked.h"
#include "test/sim/sched.h"
#include "test/sim/threads.h"
#include "test/sim/watches.h"

/* Calls in which the thread may be cancelled; what they return need not be
 * freed. */
static void body(const void *arg) {
  const ops_actor *a = arg;
  uint64_t n = 1 + sim_load(a->slot, 4);
  bool at_once = sim_load(a->slot, 2);
  threads_cancel_type(
      at_once ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, NULL);
  for (; n > 0; n--) {
    if (n % 2)
      ops_wait(a, (int64_t)sim_load(a->slot, 400));
    else
      ops_set(a);
  }
}

/* A cancelled thread continues as another one; if a callback has forked in the
 * meantime, the child can tell only by its slot. */
void cancel_any(const ops_actor *a) {
  if (!threads_run(body, a)) {
    forked_returned(a->slot, a->z, ZKE_FORKED);
    zke_zxid(); /* asks for zxids from now on */
  }
  watches_wait(a->slot, a->thread, false);
}
