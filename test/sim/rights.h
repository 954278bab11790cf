/* rights.h - who may do what: lists of permissions, and identities
 *
 * A node gets a list at random.  A session with identities at random then tries
 * each kind of call on it.  A rule of a few lines says which are allowed.
 */
#ifndef ZKE_SIM_RIGHTS_H
#define ZKE_SIM_RIGHTS_H

#include "test/sim/ops.h"

void rights_any(const ops_actor *a);

#endif
