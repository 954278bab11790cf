/* story.h - what is told of a run
 *
 * Every call of zkembed.h (calls.c), its result, faults, and the begin and the
 * death of processes are lines (test/lab/drawing.h).  The newest are kept in
 * memory that a run shares with its parent, so that they are there however the
 * run ends.  A story has one lane for each thread of each process.
 *
 * A whole run has too many lines.  A story has the faults, the last calls, and
 * what else concerns the finding; the others are counted. */
#ifndef ZKE_SIM_STORY_H
#define ZKE_SIM_STORY_H

#include <stdio.h>

#include "test/sim/sim.h"

/* story_open  - keep lines from now on, if sim.verbose says so
 * story_begin - another run begins: forget the previous run's lines */
void story_open(void);
void story_begin(void);

/* The lane of the running fiber, or -1; and its name: "A", "B2". */
int story_lane(void);
void story_lane_name(int lane, char out[8]);
/* The call of zkembed.h that a lane is in; "": none. */
const char *story_call(int lane);

/* A line in any lane.  sim_say() and sim_tell() use the running fiber's. */
void story_tell(char kind, int slot, int thread, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A step begins: told if all steps are, or if it is the marked one. */
void story_step(sim_call call);
/* Say something at the first step from this one on. */
void story_mark(int64_t step, const char *text);

/* Print the story, or draw it (SVG); it ends with what was found. */
void story_print(FILE *out);
void story_draw(FILE *out);

#endif
