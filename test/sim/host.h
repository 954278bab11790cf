/* host.h - the host as a whole: how a run begins and ends, and what strikes all
 * of its processes */
#ifndef ZKE_SIM_HOST_H
#define ZKE_SIM_HOST_H

#include "test/sim/sched.h"

/* Run the plan (the_plan): until faults end, and the load says that nothing is
 * left to be done. */
void host_run(void);

#endif
