/* cancel.c - see cancel.h
 *
 * Only here may a thread be cancelled, so that the rest of the load need not
 * expect it.  zkembed.h promises that it is left in the sleep of a wait alone;
 * with an asynchronous cancellation also at the end of any call.  Whatever it
 * leaves, nothing is kept by it: the others find out (P9, P10). */
#include "test/sim/cancel.h"

#include <pthread.h>

#include "test/sim/forked.h"
#include "test/sim/sched.h"
#include "test/sim/threads.h"
#include "test/sim/watches.h"

/* Calls that may be left behind: what they return need not be freed. */
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

/* A thread that was left begins again as another one; in a child that a
 * callback has forked meanwhile it knows that only by its slot. */
void cancel_any(const ops_actor *a) {
  if (!threads_run(body, a)) {
    forked_returned(a->slot, a->z, ZKE_FORKED);
    zke_zxid(); /* asks for it from now on */
  }
  watches_wait(a->slot, a->thread, false);
}
