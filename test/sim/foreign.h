/* foreign.h - other programs in the load, which use the file by plain SQLite
 *
 * They read the views of doc/format.md in a transaction that they keep open for
 * a while, so that checkpoints find a reader in their way.  What they see is
 * one state (P2), durable before it is seen (P8).
 *
 * With the knob f one process of the run is such a program.  It also writes a
 * table of its own, by transactions that may stand for seconds: calls of the
 * engine end in time beside it (P10), nothing is copied (P12), and what it has
 * committed is not lost (P8).  With f2 it makes checkpoints as well, which only
 * an SQLite without the WAL-reset bug permits.
 */
#ifndef ZKE_SIM_FOREIGN_H
#define ZKE_SIM_FOREIGN_H

#include <stdbool.h>

#include "test/sim/ops.h"

/* A short look by a process that has the file open as well. */
void foreign_any(const ops_actor *a);

/* foreign_is   - is the process of this slot another program?
 * foreign_main - what it does */
bool foreign_is(int slot);
void foreign_main(int slot);

/* Is a commit surely durable that SQLite alone has acknowledged now?  It knows
 * neither of a failed sync of the engine's, nor that the log that it has made
 * may be lost by its name. */
bool foreign_is_durable(void);

/* A backup: its rows as they are now; they are again as they were then. */
void foreign_keep(void);
void foreign_go_back(void);

#endif
