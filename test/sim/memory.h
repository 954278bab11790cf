/* memory.h - memory of the simulated processes, which may run out
 *
 * The engine's is counted, since it must give all of it back.  SQLite's is not:
 * what a process had that was killed is never given back, and SQLite keeps some
 * for all.
 */
#ifndef ZKE_SIM_MEMORY_H
#define ZKE_SIM_MEMORY_H

#include "zkembed.h"

/* zke_options.allocator of the running process. */
extern const zke_allocator memory_allocator;

/* Blocks of it that the process in a slot has; it has ended. */
int64_t memory_blocks(int slot);
void memory_forget(int slot);

/* SQLite's memory, before sqlite3_initialize(). */
void memory_begin(void);

#endif
