/* shrink.h - the smallest plan that still finds the same */
#ifndef ZKE_SIM_SHRINK_H
#define ZKE_SIM_SHRINK_H

#include <stdbool.h>

/* Take from the_plan what finds() does not need: faults, processes, threads,
 * kinds of calls, knobs, steps; let faults strike sooner, and for less time.
 * finds() runs the_plan, and says whether it still finds what is looked for.
 * At most so many runs; returns how many there were. */
int shrink(bool (*finds)(void), int most);

#endif
