/* container.h - where a process lives: on the host, or in a container
 *
 * A container has pids of its own.  It may have a boot id of its own, or show
 * none, and a time namespace, whose clocks are ahead of the host's by an amount
 * that a process there knows, or does not.
 */
#ifndef ZKE_SIM_CONTAINER_H
#define ZKE_SIM_CONTAINER_H

#include "test/sim/sim.h"

/* The knob's values for a container with the host's boot id, so that all
 * processes judge the same sessions.  Its clocks are ahead, and its processes
 * know by how much, or do not. */
enum { CONTAINER_AHEAD = 4, CONTAINER_STRANGE = 7 };

/* A pid for a new process of a slot: one of few, which the dead had before. */
int container_pid(int slot);
/* The running process's boot id; 0 or the negative of an errno. */
int container_boot_id(char *buffer, size_t size);
/* Have all processes of the host the same one? */
bool container_shows_boot(void);
/* By how many ns its clocks are ahead of the host's, and whether it can know
 * that: 0 or the negative of an errno. */
int64_t container_ahead(void);
int container_boot_offset(int64_t *out);

#endif
