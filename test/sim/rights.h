/* rights.h - who may do what: access lists and identities
 *
 * A node gets a random list.  A session with random identities then tries each
 * kind of call on it.  A rule of a few lines says which are allowed.
 */
#ifndef ZKE_SIM_RIGHTS_H
#define ZKE_SIM_RIGHTS_H

#include "test/sim/ops.h"

void rights_any(const ops_actor *a);

#endif
