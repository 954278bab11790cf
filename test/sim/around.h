/* around.h - calls of the load whose answers are hardly checked: they must come
 * back, in time, and do no harm */
#ifndef ZKE_SIM_AROUND_H
#define ZKE_SIM_AROUND_H

#include "test/sim/ops.h"

void around_any(const ops_actor *a);

#endif
