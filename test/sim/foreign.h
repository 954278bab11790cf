/* foreign.h - another program in the load, which reads by plain SQLite
 *
 * It reads the views of doc/format.md in a transaction that it keeps open for a
 * while, so that checkpoints find a reader in their way.  What it sees is one
 * state (P2), durable before it is seen (P8).
 */
#ifndef ZKE_SIM_FOREIGN_H
#define ZKE_SIM_FOREIGN_H

#include "test/sim/ops.h"

void foreign_any(const ops_actor *a);

#endif
