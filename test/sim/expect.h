/* expect.h - calls with a known answer */
#ifndef ZKE_SIM_EXPECT_H
#define ZKE_SIM_EXPECT_H

#include "test/sim/known.h"

/* Is the answer the expected one?  false: a fault, or the end of the session,
 * has prevented it.  Any other answer is a finding (P1). */
bool expect(known_call c, int rc, int wanted);
/* Can a fault make a call return this? */
bool expect_fault(const known_call *c, int rc);

#endif
