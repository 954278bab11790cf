/* host.h - the host as a whole: how a run begins and ends, and faults that
 * strike all processes */
#ifndef ZKE_SIM_HOST_H
#define ZKE_SIM_HOST_H

#include "test/sim/sched.h"

/* Run the plan (the_plan): until its faults are over and the load has nothing
 * left to do. */
void host_run(void);

#endif
