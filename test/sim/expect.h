/* expect.h - the answer of a call is known before it is made */
#ifndef ZKE_SIM_EXPECT_H
#define ZKE_SIM_EXPECT_H

#include "test/sim/known.h"

/* Is the answer the one that must come?  false: a fault, or the end of the
 * session, has prevented it.  Any other answer is a finding (P1). */
bool expect(known_call c, int rc, int wanted);
/* May a call answer this because of a fault? */
bool expect_fault(const known_call *c, int rc);

#endif
