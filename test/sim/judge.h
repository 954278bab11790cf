/* judge.h - every answer of a run against a model of the tree (P1 to P4)
 *
 * notes.c has noted each call of the load, and the engine has kept its history.
 * Both are ordered by zxid.  At the end all of it is played through test/model,
 * a second implementation of the tree's semantics:
 *
 *   - an acknowledged change gives the same answer there, and exactly the
 *     history's rows of its zxid
 *   - a read, or a refused call, gives the same answer in the state of its zxid
 *   - other rows belong to a call without a known answer, which then counts as
 *     made; to a session's end, which removes all that the session owns; or to
 *     a node that has expired
 *   - each watch got the same events, in the same order; all of them, if its
 *     session is alive at the end
 *
 * A power cut may undo the last changes of a boot.  Reads of these are not
 * judged, except that nobody may have seen one of their lasting changes (P8).
 */
#ifndef ZKE_SIM_JUDGE_H
#define ZKE_SIM_JUDGE_H

#include "test/sim/history.h"
#include "test/sim/ops.h"

/* Read the whole tree, for the notes. */
void judge_look(const ops_actor *a);
/* All is at rest; `history` begins with the first node. */
void judge(const history_changes *history);

#endif
