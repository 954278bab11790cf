/* history.h - the history that the engine keeps, against what was acknowledged
 *
 * If the plan says so, the database keeps the history of all nodes.  At the end
 * it is one order of all changes, by zxid.  Each acknowledged change is in it
 * (P8).  Played from the beginning it makes the tree that is there (P2):
 * nothing is made twice, or removed or set without being there; the numbers of
 * a queue rise; and the n-th set of a register is the one that gave it version
 * n.
 */
#ifndef ZKE_SIM_HISTORY_H
#define ZKE_SIM_HISTORY_H

#include <stdbool.h>

#include "test/sim/known.h"
#include "test/sim/ops.h"

/* A row of it. */
typedef struct history_change {
  int64_t zxid, time_ms, session, owner;
  int type; /* ZKE_EVENT_… */
  const char *path;
} history_change;

typedef struct history_changes {
  int count;
  bool complete; /* what came later than the zxid asked for is all there */
  history_change *at;
} history_changes;

/* history_read - read what is in the file of a path and below it, "" for all,
 *                later than a zxid, as any program would by SQL; false: it
 *                cannot be read now
 * history_free - what was read, also if that has failed */
bool history_read(const char *path, int64_t after, history_changes *list);
void history_free(history_changes *list);

/* Keep it from now on; a result. */
int history_begin(const ops_actor *a);

/* A change of a path, of type ZKE_EVENT_…, was acknowledged.  lasting: a power
 * cut does not undo it. */
void history_note(int64_t zxid, int type, const char *path, bool lasting);

/* The same by a call that has just been acknowledged, for known.c, too. */
void history_note_call(known_call c, int64_t zxid, int type, const char *path,
                       bool lasting);

/* A backup is made; it is what there is now. */
void history_keep(void);
void history_go_back(void);

/* Nothing changes any more: compare. */
void history_check(const ops_actor *a);

#endif
