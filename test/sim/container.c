/* container.c - see container.h */
#include "test/sim/container.h"

#include <errno.h>
#include <stdio.h>

#include "test/sim/plan.h"
#include "test/sim/sched.h"

/* Number of pids in a namespace, and the first; how far the clocks of a time
 * namespace are ahead. */
enum { PIDS = 24, FIRST_PID = 2, AHEAD_S = 86400 * 365 };

/* What the knob's remainder and quotient by 3 mean for the slots in a
 * container. */
enum { BOOT_HOST, BOOT_OWN, BOOT_HIDDEN };
enum { TIME_HOST, TIME_AHEAD, TIME_UNKNOWN };

/* Is a slot in the container?  Odd slots are.  A forked child is by its own
 * number, whatever its parent: clone() allows both. */
static bool is_inside(int slot) { return the_plan.k.container && slot % 2; }

/* Does a process in a slot's namespace have this pid? */
static bool is_taken(int slot, int pid) {
  for (int i = 0; i < SIM_SLOTS; i++) {
    const sched_process *p = sched_process_of(i);
    if (p && !p->gone && p->pid == pid && is_inside(i) == is_inside(slot))
      return true;
  }
  return false;
}

/* The next free one of its namespace. */
int container_pid(int slot) {
  static int last[2]; /* assigned in each of the namespaces */
  int *at = &last[is_inside(slot)];
  do *at = (*at + 1) % PIDS;
  while (is_taken(slot, FIRST_PID + *at));
  return FIRST_PID + *at;
}

/* The boot id that the container shows. */
static int64_t boot_kind(void) {
  return the_plan.k.container ? (the_plan.k.container - 1) % 3 : BOOT_HOST;
}

bool container_shows_boot(void) { return boot_kind() == BOOT_HOST; }

/* What /proc shows there. */
int container_boot_id(char *buffer, size_t size) {
  int64_t kind = is_inside(sched_slot()) ? boot_kind() : BOOT_HOST;
  if (kind == BOOT_HIDDEN) return -ENOENT;
  snprintf(buffer, size, "boot %d%s", sim.boots,
           kind == BOOT_OWN ? " of a container" : "");
  return 0;
}

/* The time namespace of the running process. */
static int64_t time_kind(void) {
  int slot = sched_slot();
  if (slot < 0 || !is_inside(slot)) return TIME_HOST;
  return (the_plan.k.container - 1) / 3;
}

/* All clocks are ahead by the same amount. */
int64_t container_ahead(void) {
  return time_kind() == TIME_HOST ? 0 : AHEAD_S * INT64_C(1000000000);
}

/* What /proc/self/timens_offsets shows there, or an error if it cannot be
 * read. */
int container_boot_offset(int64_t *out) {
  bool known = time_kind() != TIME_UNKNOWN;
  *out = known ? container_ahead() : 0;
  return known ? 0 : -EACCES;
}
