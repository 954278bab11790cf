/* engine.c - zkembed.c, unchanged, for the processes of the simulated host
 *
 * instead.h says where its variables are, and what it calls.  The linker knows
 * its functions as sim_real_zke_..., since calls.c defines the usual names.
 * The plan says whether a host omits the shortcuts around SQLite. */
#define _GNU_SOURCE
#include "test/sim/instead.h"
#include "test/sim/plan.h"

#include "zkembed.h"
#define FUNCTION(name, path, parameters, arguments, samples) \
  int name parameters __asm__("sim_real_" #name);
#include "function_list.h"
#undef FUNCTION
int zke_open(const char *name, const zke_options *options,
             zke **z_out) __asm__("sim_real_zke_open");

#define ZKE_READ_LOCKS (the_plan.k.readlocks != 0)
#define ZKE_PLAIN_LOG (the_plan.k.plainlog != 0)
#include "zkembed.c"
