/* watchers.h - watches of the load that stay, and alarms
 *
 * A recursive watch of all that is below the queue reports each change there
 * from its registration on, in order (P4), and none twice (P3).  If the history
 * is kept, the events are counted against it.  A removed watch gets no event.
 * An alarm does not come early.
 */
#ifndef ZKE_SIM_WATCHERS_H
#define ZKE_SIM_WATCHERS_H

#include "test/sim/ops.h"

void watchers_any(const ops_actor *a);
/* At rest: the recursive watch has reported each change of the history. */
void watchers_check(const ops_actor *a);
/* The session of a slot has ended. */
void watchers_forget(int slot);

#endif
