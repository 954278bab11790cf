/* container.h - where a process lives: on the host, or in a container
 *
 * A container has its own pids.  It may have its own boot id, or show none, and
 * a time namespace.  The clocks of that are ahead of the host's by an amount
 * that a process there may or may not know.
 */
#ifndef ZKE_SIM_CONTAINER_H
#define ZKE_SIM_CONTAINER_H

#include "test/sim/sim.h"

/* The knob's values for a container with the host's boot id, so that all
 * processes judge the same sessions.  Its clocks are ahead; its processes know
 * by how much (AHEAD), or do not (STRANGE). */
enum { CONTAINER_AHEAD = 4, CONTAINER_STRANGE = 7 };

/* A pid for a new process of a slot: one of few, so that pids of dead processes
 * are used again. */
int container_pid(int slot);
/* The running process's boot id; 0 or a negative errno. */
int container_boot_id(char *buffer, size_t size);
/* Do all processes of the host see the same boot id? */
bool container_shows_boot(void);
/* By how many ns its clocks are ahead of the host's, and whether it can know
 * that: 0 or a negative errno. */
int64_t container_ahead(void);
int container_boot_offset(int64_t *out);

#endif
