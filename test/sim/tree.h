/* tree.h - any call on a small tree, whose answer only the model knows
 *
 * Nodes of all kinds come and go below one another, by single calls, multis and
 * batches, most of which are refused in some part.  Whoever makes the calls
 * checks nothing: judge.c does.
 */
#ifndef ZKE_SIM_TREE_H
#define ZKE_SIM_TREE_H

#include "test/sim/ops.h"

void tree_any(const ops_actor *a);
/* Any call of those that ops.c and its like do not make, on any tree. */
void tree_around(const ops_actor *a);

#endif
