/* shrink.h - the smallest plan that still finds the same */
#ifndef ZKE_SIM_SHRINK_H
#define ZKE_SIM_SHRINK_H

#include <stdint.h>

/* Remove from the_plan what finds() does not need: faults, processes, threads,
 * kinds of calls, knobs, steps; let faults strike sooner, and for less time.
 * finds() runs the_plan, and returns how long it took to find the same, or 0.
 * Makes at most `most` runs; returns how many it made. */
int shrink(int64_t (*finds)(void), int most);

#endif
