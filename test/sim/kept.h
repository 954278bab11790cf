/* kept.h - kept sessions in the load
 *
 * Some kept sessions move between the processes: one opens a session, another
 * attaches it after it was detached, or after its process has died.  Each owns
 * an ephemeral.  A session that was used a moment ago has not ended (P5), and
 * as long as it lives its node exists.
 */
#ifndef ZKE_SIM_KEPT_H
#define ZKE_SIM_KEPT_H

#include "test/sim/ops.h"

void kept_any(const ops_actor *a);

/* kept_leave  - a process ends: detach its kept sessions
 * kept_died   - it was killed: others may attach them
 * kept_adrift - side files of the database are removed: see is_lost()
 * kept_forget - the host was off: none is left
 * kept_tick   - called before the scheduler chooses the next fiber */
void kept_leave(int slot);
void kept_died(int slot);
void kept_adrift(void);
void kept_forget(void);
void kept_tick(void);

#endif
