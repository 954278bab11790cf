/* load.h - what the processes do, at random, and what must hold
 *
 * Each process opens the file, makes some calls of zkembed.h, and closes it.
 * After its death another begins in its slot.  After the last fault the load
 * waits for every watcher, one process checks everything, and all end.
 */
#ifndef ZKE_SIM_LOAD_H
#define ZKE_SIM_LOAD_H

#include <stdbool.h>
#include <stdint.h>

/* Figures of a run. */
typedef struct load_figures {
  int64_t calls, events, opens, watches, attached, turns;
  int64_t judged;                /* answers, by the model */
  int64_t rounds, parties;       /* of recipes; parties that went well */
  int64_t ok, loss, late, other; /* results */
} load_figures;
extern load_figures load_count;

void load_begin(void);
/* The handle of a slot's process, or NULL. */
struct zke *load_handle(int slot);
/* load_died - a process was killed; load_all_died - all were; load_cut - the
 * power was cut, which may have undone changes */
void load_died(int slot);
void load_all_died(void);
void load_cut(void);
/* Faults are over: come to rest. */
void load_rest(void);
/* load_tick - begin the processes that are due; load_next - when the next one
 * is due; load_over - none is left to begin */
void load_tick(void);
int64_t load_next(void);
bool load_over(void);

#endif
