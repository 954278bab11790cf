/* foreign.h - other programs in the load, which use the file by plain SQLite
 *
 * They read the views of doc/format.md in a transaction that they keep open for
 * a while, so that checkpoints meet a reader.  They must see one state (P2)
 * that is already durable (P8).
 *
 * With the knob f, one process of the run is such a program.  It also writes to
 * a table of its own, in transactions that may last for seconds.  Meanwhile
 * calls of the engine end in time (P10) and no page is copied (P12), and what
 * the program has committed is not lost (P8).  With f2 it makes checkpoints as
 * well, which is allowed only with an SQLite without the WAL-reset bug.
 */
#ifndef ZKE_SIM_FOREIGN_H
#define ZKE_SIM_FOREIGN_H

#include <stdbool.h>

#include "test/sim/ops.h"

/* A short read by a process that has the file open through the engine, too. */
void foreign_any(const ops_actor *a);

/* foreign_is   - is the process of this slot another program?
 * foreign_main - what that does */
bool foreign_is(int slot);
void foreign_main(int slot);

/* Is a commit by SQLite alone surely durable now?  SQLite does not know of the
 * engine's failed syncs, nor that a log it has made may lose its name. */
bool foreign_is_durable(void);

/* A backup of its rows is made; the backup is restored. */
void foreign_keep(void);
void foreign_go_back(void);

#endif
