/* cancel.h - threads of the load that may be cancelled */
#ifndef ZKE_SIM_CANCEL_H
#define ZKE_SIM_CANCEL_H

#include "test/sim/ops.h"

/* Make some calls, as the body of a thread that a fault may cancel. */
void cancel_any(const ops_actor *a);

#endif
