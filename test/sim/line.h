/* line.h - locks in line in the load, as recipes make them
 *
 * Each who wants the lock makes an ephemeral with a number and waits until no
 * lower one is there, watching the next lower one.  Two never have it (P5), and
 * whoever stands in line is told when its turn has come (P3, P6).
 */
#ifndef ZKE_SIM_LINE_H
#define ZKE_SIM_LINE_H

#include "test/sim/ops.h"

/* Stand in line, hold the lock for a while, and leave. */
void line_any(const ops_actor *a);
/* At the end: nobody stands in it any more (P6). */
void line_check(const ops_actor *a);
/* The process in a slot has ended. */
void line_died(int slot);

#endif
