/* shrink.c - see shrink.h */
#include "test/sim/shrink.h"

#include <string.h>

#include "test/sim/plan.h"

static bool (*still_fails)(void);
static int runs, most_runs;

/* Keep the plan as it is now, if it still fails; else the one before. */
static bool keep(const plan *before) {
  if (runs < most_runs) {
    runs++;
    if (still_fails()) return true;
  }
  the_plan = *before;
  return false;
}

static void remove_faults(plan *p, int from, int count) {
  memmove(p->fault + from, p->fault + from + count,
          (size_t)(p->faults - from - count) * sizeof *p->fault);
  p->faults -= count;
}

/* Take out runs of faults, long ones first. */
static bool shrink_faults(void) {
  bool any = false;
  for (int count = the_plan.faults; count > 0; count /= 2) {
    for (int from = 0; from + count <= the_plan.faults;) {
      plan before = the_plan;
      remove_faults(&the_plan, from, count);
      if (keep(&before))
        any = true;
      else
        from += count;
    }
  }
  return any;
}

/* Give a knob its least value, or half of what it has. */
static bool shrink_knob(int64_t *knob, int64_t least) {
  plan before = the_plan;
  if (*knob <= least) return false;
  *knob = least;
  if (keep(&before)) return true;
  if (*knob - least < 2) return false;
  *knob = least + (*knob - least) / 2;
  return keep(&before);
}

static bool shrink_knobs(void) {
  bool any = false;
#define SHRINK(letter, name, least, most)                    \
  if ((letter) != 'w' && (letter) != 'x' && (letter) != 'c') \
    any |= shrink_knob(&the_plan.k.name, (least));
  PLAN_KNOB_LIST(SHRINK)
#undef SHRINK
  return any;
}

/* End the faults sooner. */
static bool shrink_steps(void) {
  bool any = false;
  for (int part = 2; part <= 16 && the_plan.k.steps > 200;) {
    plan before = the_plan;
    the_plan.k.steps -= the_plan.k.steps / part;
    if (keep(&before))
      any = true;
    else
      part *= 2;
  }
  return any;
}

int shrink(bool (*fails)(void), int most) {
  still_fails = fails;
  most_runs = most;
  runs = 0;
  bool any = true;
  while (any && runs < most_runs) {
    any = shrink_faults();
    any |= shrink_knobs();
    any |= shrink_steps();
  }
  return runs;
}
