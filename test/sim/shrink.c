/* shrink.c - see shrink.h
 *
 * Any change of a plan makes the run different from there on, which can hide
 * the finding although nothing that it needs is gone.  So each attempt that
 * finds nothing is repeated in some other orders (the knob y). */
#include "test/sim/shrink.h"

#include <string.h>

#include "test/sim/plan.h"

enum { ORDERS = 3, SHORT_ORDERS = 30 };

static int64_t (*finds)(void);
static int runs, most_runs;

/* How long does the_plan take to fail?  0: it does not. */
static int64_t fails(void) { return runs++ < most_runs ? finds() : 0; }

/* Keep the current plan if it still fails, maybe in another order; else go back
 * to the one before. */
static bool keep(const plan *before) {
  int64_t order = the_plan.k.order;
  if (fails()) return true;
  for (int i = 1; i <= ORDERS; i++) {
    the_plan.k.order = order + i;
    if (fails()) return true;
  }
  the_plan = *before;
  return false;
}

/* Try another value for a number of the plan. */
static bool put(int64_t *number, int64_t value) {
  plan before = the_plan;
  if (*number == value) return false;
  *number = value;
  return keep(&before);
}

/* Lower a number: to the least, to a 64th, a 32nd, ..., a half, three
 * quarters. */
static bool lower(int64_t *number, int64_t least) {
  int64_t more = *number - least;
  if (more <= 0) return false;
  if (put(number, least)) return true;
  for (int shift = 6; shift > 0; shift--)
    if (more >> shift && put(number, least + (more >> shift))) return true;
  return more > 3 && put(number, least + more / 4 * 3);
}

/* Make a number round: one or two digits, and zeros. */
static bool make_round(int64_t *number) {
  int64_t unit = 1;
  while (*number / unit >= 10) unit *= 10;
  if (unit == 1 || *number % (unit / 10) == 0) return false;
  return put(number, *number / unit * unit) ||
         put(number, *number / (unit / 10) * (unit / 10));
}

/* ---- faults ---- */

/* Remove faults, many at a time first. */
static bool shrink_faults(void) {
  bool any = false;
  for (int count = the_plan.faults; count > 0; count /= 2) {
    for (int from = 0; from + count <= the_plan.faults;) {
      plan before = the_plan;
      plan_fault *f = the_plan.fault + from;
      the_plan.faults -= count;
      memmove(f, f + count, (size_t)(the_plan.faults - from) * sizeof *f);
      if (keep(&before))
        any = true;
      else
        from += count;
    }
  }
  return any;
}

/* Make each fault strike sooner, and for a shorter time. */
static bool shrink_each_fault(void) {
  bool any = false;
  for (int i = 0; i < the_plan.faults; i++) {
    plan_fault *f = &the_plan.fault[i];
    any |= lower(&f->at, 1);
    if (f->kind != 'e') any |= lower(&f->arg, 0);
  }
  return any;
}

/* Make numbers easy to read. */
static void round_each_fault(void) {
  for (int i = 0; i < the_plan.faults; i++) {
    make_round(&the_plan.fault[i].at);
    if (the_plan.fault[i].kind != 'e') make_round(&the_plan.fault[i].arg);
  }
  make_round(&the_plan.k.steps);
}

/* ---- knobs ---- */

/* Fewer processes: faults of the removed ones strike others. */
static bool shrink_processes(void) {
  bool any = false;
  for (int64_t n = 1; n < the_plan.k.processes;) {
    plan before = the_plan;
    the_plan.k.processes = n;
    for (int i = 0; i < the_plan.faults; i++)
      if (the_plan.fault[i].slot >= n) the_plan.fault[i].slot %= (int)n;
    any = keep(&before);
    if (any) break;
    n++;
  }
  return any;
}

/* Leave out kinds of calls, many at a time first. */
static bool shrink_calls(void) {
  enum { KINDS = 40 };
  bool any = false;
  for (int count = KINDS; count > 0; count /= 2) {
    for (int from = 0; from < KINDS; from += count) {
      int64_t some = ((INT64_C(1) << count) - 1) << from;
      some &= (INT64_C(1) << KINDS) - 1;
      any |= put(&the_plan.k.omits, the_plan.k.omits | some);
    }
  }
  return any;
}

/* Set each knob to its minimum, or to half its value.  Not the order in which
 * fibers run: a larger number there is not less simple. */
static bool shrink_knobs(void) {
  bool any = false;
  for (int i = 0; i < PLAN_KNOBS; i++)
    if (!strchr("pwxoy", plan_knob_of[i].letter))
      any |= lower(plan_knob_at(&the_plan.k, i), plan_knob_of[i].least);
  return any;
}

/* Choose the order in which it fails first: its story is the shortest. */
static void take_shortest_order(void) {
  plan shortest = the_plan;
  int64_t least = fails();
  for (int i = 0; i < SHORT_ORDERS && least; i++) {
    the_plan.k.order = i;
    int64_t length = fails();
    if (!length || length >= least) continue;
    least = length;
    shortest = the_plan;
  }
  the_plan = shortest;
}

/* Until nothing more can be removed: what saves the most is tried first. */
int shrink(int64_t (*given)(void), int most) {
  finds = given;
  most_runs = most;
  runs = 0;
  for (bool any = true; any && runs < most_runs;) {
    any = shrink_faults();
    any |= shrink_processes();
    any |= shrink_calls();
    any |= shrink_knobs();
    any |= shrink_each_fault();
    take_shortest_order();
  }
  round_each_fault();
  return runs < most_runs ? runs : most_runs;
}
