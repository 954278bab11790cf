/* rounds.h - recipes, used by the processes of the host
 *
 * With the knob u the processes come together in rounds.  A round is one use of
 * test/recipes/uses.h: each of its two or three functions runs once, in a
 * process, on a session of its own below a node that only this round has.  A
 * process that dies in a round does not come back into it.
 *
 * The uses say what must hold, by the functions zke_lab_...() of the
 * laboratory, which this file has for the host.  They wait without deadlines.
 * So whoever is forgotten is found when faults have ended: nobody may still
 * wait then, unless for a process that has died or failed and that the use
 * cannot do without.  At the end `finally` of each round looks at what it left.
 *
 * A call may fail by a fault, but says so by an honest code (use_may_fail()).
 * What a session owns does not count if another may have ended the session.
 */
#ifndef ZKE_SIM_ROUNDS_H
#define ZKE_SIM_ROUNDS_H

#include <stdbool.h>
#include <stdint.h>

#include "test/sim/ops.h"

/* rounds_any   - take part in a round, if there is one to begin or to join
 * rounds_check - at rest: each round has left what it must */
bool rounds_any(const ops_actor *a);
void rounds_check(const ops_actor *a);

/* rounds_died    - a process has died, or its session was left
 * rounds_tick    - time has gone on
 * rounds_go_back - a backup is what there is now: no round counts */
void rounds_died(int slot);
void rounds_tick(void);
void rounds_go_back(void);

/* The knob u for a number, or for the name of a use; -1: there is none. */
int64_t rounds_knob(const char *text);

/* Is the path one of a round's? */
bool rounds_has(const char *path);

#endif
