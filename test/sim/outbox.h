/* outbox.h - rows that go to the tree after their commit
 *
 * The files of the SQLite extension that move such rows (shell/extension/
 * outbox.c) are compiled as the recipes are.  A process adds rows by a
 * connection of its own, in transactions that it commits or rolls back, and
 * moves what is there.  It may die before its commit, between that and the
 * move, and in the move.
 *
 * At rest all rows are moved.  Each that was surely committed has done what it
 * asks for, once and in the order of the rows (P2, P8); each that was rolled
 * back has done nothing.  A row that must be refused is a dead letter, once.
 */
#ifndef ZKE_SIM_OUTBOX_H
#define ZKE_SIM_OUTBOX_H

#include <stdbool.h>

#include "test/sim/ops.h"

void outbox_any(const ops_actor *a);
/* At rest. */
void outbox_check(const ops_actor *a);

/* Is a path below the root of what the outbox changes? */
bool outbox_has(const char *path);

/* A backup is made; it is what there is now. */
void outbox_keep(void);
void outbox_go_back(void);

#endif
