/* future.c - see future.h */
#include "test/sim/future.h"

#include "test/sim/plan.h"

enum { FUTURES = 100, ENOUGH = 95 };

/* How many futures of the plan fail from a step on?  Stops as soon as too many
 * have not failed. */
static future futures_from(bool (*fails)(void), int64_t step) {
  const plan before = the_plan;
  future f = {.step = step};
  if (the_plan.faults == PLAN_FAULTS) return f;
  plan_fault *y = &the_plan.fault[the_plan.faults++];
  *y = (plan_fault){.kind = 'Y', .slot = -1, .call = CALL_any, .at = step};
  while (f.tried < FUTURES && f.tried - f.failed <= FUTURES - ENOUGH) {
    y->arg = ++f.tried;
    f.failed += fails();
  }
  the_plan = before;
  return f;
}

/* A binary search: if it fails from a step on, it does so from each later
 * one. */
future future_find(bool (*fails)(void), int64_t last, int most) {
  future found = {.step = 0};
  for (int64_t least = 0; least + 1 < last && most > 0;) {
    int64_t step = least + (last - least) / 2;
    future f = futures_from(fails, step);
    most -= f.tried;
    if (f.failed >= ENOUGH) {
      found = f;
      last = step;
    } else {
      least = step;
    }
  }
  return found;
}
