/* history.h - the engine's history, compared with what was acknowledged
 *
 * If the plan says so, the database keeps the history of all nodes.  At the end
 * it must be one sequence of all changes, ordered by zxid.  It has each
 * acknowledged change (P8).  Replayed from the beginning it gives the tree that
 * is there (P2): no node is created twice, or removed or set while it does not
 * exist; the numbers of a queue rise; and the n-th set of a register gave it
 * version n.
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
  bool complete; /* all that is later than the requested zxid is there */
  history_change *at;
} history_changes;

/* history_read - read a path's history, with all below it ("" for the whole
 *                tree), later than a zxid, as any program can by SQL; false: it
 *                cannot be read now
 * history_free - what was read, also if that has failed */
bool history_read(const char *path, int64_t after, history_changes *list);
void history_free(history_changes *list);

/* Keep the history from now on; a result. */
int history_begin(const ops_actor *a);

/* A change of a path, of type ZKE_EVENT_…, was acknowledged.  lasting: a power
 * cut does not undo it. */
void history_note(int64_t zxid, int type, const char *path, bool lasting);

/* The same for a call that has just been acknowledged; also tells known.c. */
void history_note_call(known_call c, int64_t zxid, int type, const char *path,
                       bool lasting);

/* A backup is made; the backup is restored. */
void history_keep(void);
void history_go_back(void);

/* No more changes happen: compare. */
void history_check(const ops_actor *a);

#endif
