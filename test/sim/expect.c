/* expect.c - see expect.h */
#include "test/sim/expect.h"

/* known_end() judges error codes that need a fault; this says whether one can
 * be the cause. */
bool expect_fault(const known_call *c, int rc) {
  switch (rc) {
    case ZKE_CONNECTIONLOSS:
    case ZKE_OPERATIONTIMEOUT:
    case ZKE_FULL:
    case ZKE_NOMEM:
    case ZKE_CANTOPEN:
    case ZKE_SYSTEMERROR:
    case ZKE_SESSIONEXPIRED:
    case ZKE_INVALIDSTATE:
      return true;
    case ZKE_REPLACED:
      return known_side_lost;
    case ZKE_MARSHALLINGERROR: /* of a multi if the session has expired */
      return known_of[c->slot].may_end;
    default: /* SQLite's codes, which the program's own SQL returns; EACCES */
      return (rc > 0 || rc == ZKE_SQL || rc == ZKE_READONLY ||
              rc == ZKE_BADARGUMENTS) &&
             sim.last_error >= c->at;
  }
}

bool expect(known_call c, int rc, int wanted) {
  known_end(c, rc == wanted ? ZKE_OK : rc);
  if (rc == wanted) return true;
  if (expect_fault(&c, rc)) return false;
  sim_found("P1: %s gave %s (%d), not %s: %s", c.name, zke_error_name(rc), rc,
            zke_error_name(wanted), zke_errmsg());
}
