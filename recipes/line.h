/* line.h - for whoever writes a recipe: a place in a line
 *
 * Locks, read/write locks, semaphores and elections are lines: entries in a
 * directory, each with a sequential ephemeral znode, of which the first ones
 * hold.  Which entry keeps which other from holding is decided by the rule
 * below, for the recipes and for the detection of deadlocks alike.
 *
 * A znode's data is one line "<state> <actor>" and then the user's data:
 * state is held, waiting (inside a blocking call) or queued; the actor is the
 * thread, as 16 hex digits, which counts for deadlocks only.
 *
 * A znode that did not hold at once is marked when it does: its state becomes
 * "held".  The zxid of that write is the fencing value and its time is the
 * beginning of the office.  A participant that was first when its znode was
 * made needs no mark: nobody came between, and the czxid is the value.
 *
 * The place in the line alone decides who holds; the mark only tells the
 * value.  Either of two processes writes it:
 *
 * - The holder that leaves, in the transaction that deletes its znode (a
 *   grant).  It does so for the next in line of a lock or read/write lock,
 *   where it saw that one when it took office itself.
 * - Otherwise the next in line, when it finds that nobody keeps it out.
 *
 * A grant is one step, so there is no moment with two holders or with a mark
 * and no office.  It fails, and changes nothing, where either znode has gone,
 * the next one's data has changed since it was seen, or its ACL forbids the
 * write; then the holder only deletes its own znode.  Whoever is granted the
 * office and then dies, gives up or loses its place leaves as any holder does,
 * and the next in line marks itself, with a greater zxid. */
#ifndef ZKEMBED_RECIPES_LINE_H
#define ZKEMBED_RECIPES_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "entry.h"
#include "object.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_line {
  zke_recipe r;
  const char *place; /* the directory's kind: "lock" */
  int kind;          /* ZKE_LINE_LOCK … of one's own entry */
  int limit;         /* an entry holds while fewer than this keep it out; a
                        lease's is read from the directory, "limit N" */
  int weight;        /* znodes that a lease makes, at least 1; it holds when
                        the last of them may */
  bool no_check;     /* do not look for deadlocks */
  bool watch_own;    /* also where it held at once: somebody wants to know */
  const char *data;  /* the user's, or NULL */
  int len;
  /* the rest is the line's own */
  bool placed;   /* the directory was seen to */
  int64_t seen;  /* its czxid then, 0: not known yet */
  int state;     /* ZKE_LINE_… */
  bool blocking; /* inside a blocking call */
  bool own_watched, place_watched;
  char *znode;          /* whole path of one's own (the last), or NULL */
  char *gone;           /* the one before, which an op may name still */
  zke_strings *own;     /* leases: all of one's own, or NULL */
  int64_t czxid;        /* of it */
  int64_t token;        /* fencing value, 0 when not held */
  uint64_t actor;       /* the thread that joined */
  const char *also;     /* another ephemeral that goes with the office */
  zke_strings *watched; /* paths of the entries that are watched, or NULL */
  char *heir;           /* path of whoever is granted the office, or NULL */
  char *grant;          /* the heir's data when it holds */
  int grant_len;
  int heir_version; /* of the heir's data as it was seen */
} zke_line;

/* A semaphore's lease: `weight` znodes made in one step stand in line one
 * behind the other; the last of them speaks for all, the others are empty.
 * ZKE_NONODE from joining: the directory is missing.  ZKE_LIMIT from joining
 * or waiting: the limit is below the weight; without a blocking call one is
 * out, ZKE_LINE_OUT is told.
 *
 * zke_line_init    - after zke_recipe_new(): the members up to len are set,
 *                    data is copied
 * zke_line_join    - make the znode, take office if that is allowed
 * zke_line_step    - look again; what a class's step() calls first
 * zke_line_acquire - join (where that was not done before), wait until held;
 *                    or be out again, with ZKE_OPERATIONTIMEOUT, _CANCELLED,
 *                    _DEADLOCK, or _LOST where one's znode was deleted
 * zke_line_try     - join and be held, or be out again with ZKE_HELD
 * zke_line_quit    - leave: discard the znode, and in the same step `also`,
 *                    where that is set.  One is out whatever it returns
 * zke_line_check   - ask the file: ZKE_OK: held; else ZKE_LOST
 * zke_line_jump    - to the front, in the place of another: in one step the
 *                    victim's znode is deleted and one's own old one, if
 *                    there is one, and a FRONT entry is made.  ZKE_NONODE
 *                    where the victim has gone
 * zke_line_convert - where held: in one step an entry of another kind with the
 *                    same number, in place of one's own.  The token is new
 * zke_line_yield   - where held: in one step leave, let the entry of that name
 *                    be first, and delete another znode, where there is one
 *                    (its path, or NULL).  ZKE_NONODE where the heir has gone
 * zke_line_release - quit, and tell by ZKE_LOST where one was not in the line
 *                    any more.  With any other failure one is out as well
 * zke_line_check_op - an operation for the user's multi that fails unless the
 *                    place is held; ZKE_LOST where it is not
 * zke_line_event   - what a class's event() calls
 * zke_line_ended   - what a class's ended() calls
 * zke_line_free    - what a class's destroy() calls
 * The mutex is held in all of these.
 *
 * Each change of state is told as an event: zke_recipe_tell(state, token). */
ZKE_API int zke_line_init(zke_line *l);
ZKE_API int zke_line_join(zke_line *l, bool blocking, int64_t deadline_ms);
ZKE_API int zke_line_step(zke_line *l);
ZKE_API int zke_line_acquire(zke_line *l, int64_t deadline_ms);
ZKE_API int zke_line_try(zke_line *l);
ZKE_API int zke_line_quit(zke_line *l);
ZKE_API int zke_line_check(zke_line *l);
ZKE_API int zke_line_jump(zke_line *l, const char *victim);
ZKE_API int zke_line_convert(zke_line *l, int kind);
ZKE_API int zke_line_yield(zke_line *l, const char *heir, const char *word);
ZKE_API int zke_line_release(zke_line *l);
ZKE_API int zke_line_check_op(zke_line *l, zke_op *op);
ZKE_API void zke_line_event(zke_line *l, const char *path);
ZKE_API void zke_line_ended(zke_line *l);
ZKE_API void zke_line_free(zke_line *l);

/* zke_line_on_… - the members of the class of a recipe that is a line and adds
 * nothing there; the mutex is held, as in every class's */
ZKE_API int zke_line_on_step(zke_recipe *r);
ZKE_API void zke_line_on_event(zke_recipe *r, int type, const char *path);
ZKE_API void zke_line_on_ended(zke_recipe *r);
ZKE_API void zke_line_on_quit(zke_recipe *r);
ZKE_API void zke_line_on_destroy(zke_recipe *r);

/* What the public functions of such a recipe are; the mutex is not held, and
 * NULL is refused:
 *
 * zke_line_enter     - zke_recipe_enter(), and see to the place
 * zke_line_enter_by  - zke_recipe_enter_by(), and see to the place
 * zke_line_api_state - ZKE_LINE_…; ZKE_LINE_LOST when the session has ended
 * zke_line_api_token - the fencing value, 0 when not held
 * zke_line_api_check       - zke_line_check()
 * zke_line_api_op    - zke_line_check_op(); ZKE_BADARGUMENTS for a NULL op */
ZKE_API int zke_line_enter(zke_line *l);
ZKE_API int zke_line_enter_by(zke_line *l, int64_t deadline_ms);
ZKE_API int zke_line_api_state(zke_line *l);
ZKE_API int64_t zke_line_api_token(zke_line *l);
ZKE_API int zke_line_api_check(zke_line *l);
ZKE_API int zke_line_api_op(zke_line *l, zke_op *op);

/* zke_line_turn - for what stands in several lines at once, with limits of 1:
 * may the entry hold?
 *
 *   watched  in and out: the path that is watched, one block; begins as NULL
 *   pzxid    out, where it may: the directory's, at that moment
 *
 * Returns ZKE_OK: it may, and will until it is deleted; ZKE_NOT_YET: no, and
 * zke_recipe_watcher will tell when to look again; ZKE_NONODE: it has gone. */
ZKE_API int zke_line_turn(zke_recipe *r, const char *directory,
                          const char *znode, char **watched, int64_t *pzxid);

#ifdef __cplusplus
}
#endif

#endif
