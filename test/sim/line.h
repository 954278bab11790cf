/* line.h - locks in line in the load, as recipes make them
 *
 * To get the lock, a member makes a sequential ephemeral and waits until there
 * is no lower one, watching the next lower one.  Two members never have the
 * lock (P5), and a waiting one is told when its turn has come (P3, P6).
 */
#ifndef ZKE_SIM_LINE_H
#define ZKE_SIM_LINE_H

#include "test/sim/ops.h"

/* Join the line, hold the lock for a while, and leave. */
void line_any(const ops_actor *a);
/* At the end: the line is empty (P6). */
void line_check(const ops_actor *a);
/* The process of a slot has ended. */
void line_died(int slot);

#endif
