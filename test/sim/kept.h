/* kept.h - kept sessions in the load
 *
 * Some kept sessions wander between the processes: one opens it, another
 * attaches it after it was detached, or after its process has died.  Each owns
 * an ephemeral.  A session that was heard from a moment ago is not over (P5),
 * and while it lives so does its node.
 */
#ifndef ZKE_SIM_KEPT_H
#define ZKE_SIM_KEPT_H

#include "test/sim/ops.h"

void kept_any(const ops_actor *a);

/* kept_leave  - a process ends: detach those that it has
 * kept_died   - it was killed: others may attach them
 * kept_adrift - files beside the database are removed: see is_lost()
 * kept_forget - the host was off: none is left
 * kept_tick   - before the scheduler chooses who goes on */
void kept_leave(int slot);
void kept_died(int slot);
void kept_adrift(void);
void kept_forget(void);
void kept_tick(void);

#endif
