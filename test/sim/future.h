/* future.h - from which step on was the finding inevitable?
 *
 * A future of a plan is the same up to a step, and different from there on:
 * fibers run in another order, a power cut leaves something else, and the
 * remaining faults strike elsewhere.  It is a plan with one more fault, Y
 * (plan.h), so it can be replayed like any other. */
#ifndef ZKE_SIM_FUTURE_H
#define ZKE_SIM_FUTURE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct future {
  int64_t step; /* 0: none was found */
  int failed, tried;
} future;

/* The first step from which nearly all of a hundred futures of the_plan fail,
 * too.  fails() runs the_plan, which finds something at step `last`.  Makes at
 * most `most` runs. */
future future_find(bool (*fails)(void), int64_t last, int most);

#endif
