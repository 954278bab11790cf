/* load.h - what the processes do, at random, and what must hold
 *
 * Each process opens the file, makes some calls of zkembed.h, and closes it.
 * When one has died another begins in its slot.  After the last fault each
 * watcher is waited for, one process looks at everything, and all end.
 */
#ifndef ZKE_SIM_LOAD_H
#define ZKE_SIM_LOAD_H

#include <stdbool.h>
#include <stdint.h>

/* Figures of a run. */
typedef struct load_figures {
  int64_t calls, events, opens, watches, attached, turns;
  int64_t judged;                /* answers, by the model */
  int64_t rounds, parties;       /* of recipes, and those that went well */
  int64_t ok, loss, late, other; /* results */
} load_figures;
extern load_figures load_count;

void load_begin(void);
/* The handle of a slot's process, or NULL. */
struct zke *load_handle(int slot);
/* load_died - a process was killed; load_all_died - all were; load_cut - by a
 * power cut, which has left what it has left */
void load_died(int slot);
void load_all_died(void);
void load_cut(void);
/* Faults are over: come to rest. */
void load_rest(void);
/* load_tick - begin the processes whose time has come; load_next - when the
 * next one is; load_over - none is left to be begun */
void load_tick(void);
int64_t load_next(void);
bool load_over(void);

#endif
