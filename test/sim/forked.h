/* forked.h - what a forked child does, and what it must not do (P9)
 *
 * A fork copies a process's memory, but the simulation has it only once.  So
 * one of the two processes has the memory and runs, and the other is a shadow
 * that makes no call: either the parent, which stands still with all that it
 * holds and then dies, or a child, which only keeps its copies of the
 * descriptors until it execs.
 */
#ifndef ZKE_SIM_FORKED_H
#define ZKE_SIM_FORKED_H

#include "test/sim/sched.h"
#include "zkembed.h"

/* The body of a thread that forks, and the life of the child. */
void forked_main(int slot);

/* A callback begins; it forks if a fault says so.  true: this is the child. */
bool forked_in_callback(void);
/* The same in the function of a batch; the child then returns from that
 * function.  It cannot open a file: its parent was in a call. */
bool forked_in_batch(zke *z);
/* A call in which a callback may have forked has returned rc.  In the child
 * this continues with the child's life and does not return. */
void forked_returned(int slot, zke *z, int rc);

/* A forked child makes this call: may it? */
void forked_judge(sched_process *child, sim_call call);

#endif
