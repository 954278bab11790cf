/* watchers.h - watches of the load that stay, and alarms
 *
 * A recursive watch of all that lies below the queue is told of each change
 * there, in order (P4), and of none twice (P3), from its registration on.  If
 * the history is kept, the events are counted against it.  A watch that was
 * taken back is told of nothing.  An alarm does not come early.
 */
#ifndef ZKE_SIM_WATCHERS_H
#define ZKE_SIM_WATCHERS_H

#include "test/sim/ops.h"

void watchers_any(const ops_actor *a);
/* At rest: the recursive watch was told of each change that the history has. */
void watchers_check(const ops_actor *a);
/* The session of a slot is over. */
void watchers_forget(int slot);

#endif
