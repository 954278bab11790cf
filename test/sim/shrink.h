/* shrink.h - the smallest plan that still finds the same */
#ifndef ZKE_SIM_SHRINK_H
#define ZKE_SIM_SHRINK_H

#include <stdbool.h>

/* Take from the_plan what fails() does not need: faults, processes, threads,
 * knobs, steps.  fails() runs the_plan, and says whether it still finds what is
 * looked for.  At most so many runs; how many there were. */
int shrink(bool (*fails)(void), int most);

#endif
