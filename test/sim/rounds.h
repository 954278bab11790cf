/* rounds.h - recipes, used by the processes of the host
 *
 * With the knob u the processes meet in rounds.  A round is one use of
 * test/recipes/uses.h: each of its two or three functions runs once, in a
 * process, on its own session below a node that only this round has.  A process
 * that dies in a round does not come back to it.
 *
 * The uses say what must hold, through the functions zke_lab_...() of the
 * laboratory, which this file implements for the host.  They wait without
 * deadlines.  So a forgotten waiter is found when faults have ended: then a
 * party may still wait only for a process that has died or failed and that the
 * use cannot do without.  At the end `finally` of each round checks what it
 * left.
 *
 * A call may fail through a fault, but must report an honest code
 * (use_may_fail()).  A session's nodes do not count if another process may have
 * ended the session.
 */
#ifndef ZKE_SIM_ROUNDS_H
#define ZKE_SIM_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "test/sim/ops.h"

/* rounds_any   - join a round or begin one, if possible
 * rounds_check - at rest: each round has left what it must */
bool rounds_any(const ops_actor *a);
void rounds_check(const ops_actor *a);

/* rounds_died    - a process has died, or its session was abandoned
 * rounds_tick    - time has passed
 * rounds_go_back - a backup was restored: no round counts */
void rounds_died(int slot);
void rounds_tick(void);
void rounds_go_back(void);

/* The value of the knob u for a number, or for the name of a use; -1: there is
 * none. */
int64_t rounds_knob(const char *text);

/* Does the path belong to a round? */
bool rounds_has(const char *path);

#endif
