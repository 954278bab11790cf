/* os.h - the table zke_os of the simulated host */
#ifndef ZKE_SIM_OS_H
#define ZKE_SIM_OS_H

#include "zkembed.h"

extern const zke_os os_simulated;

/* Memory of the running process, which may run out, and must be given back. */
extern const zke_allocator os_allocator;
/* Blocks that the process in a slot has. */
int64_t os_blocks(int slot);
void os_blocks_forget(int slot);

#endif
