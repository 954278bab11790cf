/* forked.h - what a forked child does, and what it must not do (P9)
 *
 * A fork copies a process's memory, which lies once in the simulation.  So one
 * of the two has the memory and runs, and the other is a shadow that makes no
 * call: a parent that stands still with all that it holds, and then dies, or a
 * child that only keeps its copies of the descriptors until it execs.
 */
#ifndef ZKE_SIM_FORKED_H
#define ZKE_SIM_FORKED_H

#include "test/sim/sched.h"
#include "zkembed.h"

/* The thread of a process that forks, and the life of the child. */
void forked_main(int slot);

/* A callback begins; it forks if it is to.  true: this is the child. */
bool forked_in_callback(void);
/* The same in the function of a batch, to which the child then returns.  It
 * cannot open a file: its parent was inside. */
bool forked_in_batch(zke *z);
/* A call has returned rc in which a callback may have forked.  In the child
 * this goes on with the child's life and does not return. */
void forked_returned(int slot, zke *z, int rc);

/* A forked child makes this call: is it one that it may make? */
void forked_judge(sched_process *child, sim_call call);

#endif
