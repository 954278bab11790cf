/* corner.h - a part of the tree that one process alone changes
 *
 * Each slot has such a corner: some nodes, one of them deep, with values of up
 * to several pages, and a row in a table of the program's own.  Nobody else
 * writes there, so the answer of each call is known: what it returns, the Stat,
 * and what is there afterwards (P1).  Calls are made alone, in a zke_multi(),
 * or in a zke_batch(), some of them refused: then nothing of a multi is done,
 * and all else of a batch.  The nodes and the row change together (P2).
 *
 * A call that was cut short, by a death or a lost reply, was made or not.  The
 * next look decides which, and it stays so (P8).
 *
 * The calls go by the process's handle, or by a session below the corner with
 * a chroot, light or not.  A read-only handle sees the same.  A tree in memory
 * is a corner, too.
 */
#ifndef ZKE_SIM_CORNER_H
#define ZKE_SIM_CORNER_H

#include "test/sim/ops.h"

void corner_any(const ops_actor *a);
/* corner_look     - look at the corner of the actor's slot
 * corner_look_all - at rest: look at all of them */
void corner_look(const ops_actor *a);
void corner_look_all(const ops_actor *a);

/* A backup is made; it is what there is now. */
void corner_keep(void);
void corner_go_back(void);

#endif
