/* corner.h - a part of the tree that only one process changes
 *
 * Each slot has such a corner: some nodes, one of them deep, with values of up
 * to several pages, and a row in a table of the program.  No other process
 * writes there, so the result of each call, its Stat and the state afterwards
 * are known (P1).  Calls are made alone, in a zke_multi(), or in a zke_batch().
 * Some are refused: then nothing of a multi is done, but the rest of a batch
 * is.  The nodes and the row change together (P2).
 *
 * A call cut short by a death or a lost reply was either made or not.  The next
 * look decides which, and that must stay so (P8).
 *
 * The calls use the process's handle, or a session with its chroot below the
 * corner, light or not.  A read-only handle must see the same.  A tree in
 * memory is a corner, too.
 */
#ifndef ZKE_SIM_CORNER_H
#define ZKE_SIM_CORNER_H

#include "test/sim/ops.h"

void corner_any(const ops_actor *a);
/* corner_look     - check the corner of the actor's slot
 * corner_look_all - at rest: check all corners */
void corner_look(const ops_actor *a);
void corner_look_all(const ops_actor *a);

/* A backup is made; the backup is restored. */
void corner_keep(void);
void corner_go_back(void);

#endif
