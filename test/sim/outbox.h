/* outbox.h - rows that go to the tree after their commit
 *
 * The files of the SQLite extension that move such rows
 * (shell/extension/outbox.c) are compiled like the recipes.  A process adds
 * rows on its own connection, in transactions that it commits or rolls back,
 * and moves what is there.  It may die before its commit, between commit and
 * move, or during the move.
 *
 * At rest all rows have been moved.  A row that was surely committed has done
 * what it asks for, once and in the order of the rows (P2, P8); one that was
 * rolled back has done nothing.  A row that must be refused is a dead letter,
 * once.
 */
#ifndef ZKE_SIM_OUTBOX_H
#define ZKE_SIM_OUTBOX_H

#include <stdbool.h>

#include "test/sim/ops.h"

void outbox_any(const ops_actor *a);
/* At rest. */
void outbox_check(const ops_actor *a);

/* Is a path below the outbox's root? */
bool outbox_has(const char *path);

/* A backup is made; the backup is restored. */
void outbox_keep(void);
void outbox_go_back(void);

#endif
