/* memory.h - memory of the simulated processes, which may run out
 *
 * The engine's memory is counted, since it must give all of it back.  SQLite's
 * is not: a killed process's memory is never given back, and SQLite shares some
 * between all.
 */
#ifndef ZKE_SIM_MEMORY_H
#define ZKE_SIM_MEMORY_H

#include "zkembed.h"

/* zke_options.allocator of the running process. */
extern const zke_allocator memory_allocator;

/* How many of its blocks the process in a slot has; the process has ended. */
int64_t memory_blocks(int slot);
void memory_forget(int slot);

/* SQLite's memory, before sqlite3_initialize(). */
void memory_begin(void);

#endif
