/* future.h - from which step on did it have to come so?
 *
 * A future of a plan goes as the plan does until a step, and then otherwise:
 * fibers run in another order, what a power cut leaves is another thing, and
 * the faults that are still to come strike elsewhere.  It is a plan with one
 * fault more, Y (plan.h), so it can be replayed as any other. */
#ifndef ZKE_SIM_FUTURE_H
#define ZKE_SIM_FUTURE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct future {
  int64_t step; /* 0: none was found */
  int failed, tried;
} future;

/* The first step from which on nearly all of a hundred futures of the_plan
 * fail, too.  fails() runs the_plan, which finds something at step `last`.  At
 * most so many runs. */
future future_find(bool (*fails)(void), int64_t last, int most);

#endif
