/* tree.h - any call on a small tree, with answers that only the model knows
 *
 * Nodes of all kinds come and go, by single calls, multis and batches, most of
 * which are refused in some part.  This file checks nothing: judge.c does.
 */
#ifndef ZKE_SIM_TREE_H
#define ZKE_SIM_TREE_H

#include "test/sim/ops.h"

void tree_any(const ops_actor *a);
/* Any call that the other files of the load do not make, on any tree. */
void tree_around(const ops_actor *a);

#endif
