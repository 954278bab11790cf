/* judge.h - every answer of a run against a model of the tree (P1 to P4)
 *
 * notes.c has noted each call of the load, and the engine has kept its history.
 * Both are in the order of zxids.  So at the end all of it is played through
 * test/model, which has the tree's semantics a second time:
 *
 *   - a change that was acknowledged gives the same answer there, and just the
 *     rows that the history has of its zxid
 *   - a read, or a refusal, gives the same answer in the state of its zxid
 *   - other rows are of a call whose answer is not known, which is then taken
 *     for made; of a session's end, which takes all that the session owns; or
 *     of a node whose time is over
 *   - each watch is told of the same events, in the same order; of all of them,
 *     if its session is alive at the end
 *
 * A power cut may take the last changes of a boot back.  What was read of those
 * is not judged, but that nobody saw a lasting change of them (P8).
 */
#ifndef ZKE_SIM_JUDGE_H
#define ZKE_SIM_JUDGE_H

#include "test/sim/history.h"
#include "test/sim/ops.h"

/* Read the whole tree, for the notes. */
void judge_look(const ops_actor *a);
/* All is at rest, and this is the history from the first node on. */
void judge(const history_changes *history);

#endif
