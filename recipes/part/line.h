/* line.h - for recipe authors: a place in a line
 *
 * Locks, read/write locks, semaphores and elections are lines: directories of
 * entries.  Each entry is a sequential ephemeral znode; the first ones hold.
 * entry.h has the rule by which one entry keeps another from holding.  The
 * search for deadlocks (deadlock.h) uses the same rule.
 *
 * A recipe's object begins with a zke_line.  Its zke_..._new() calls
 * zke_recipe_new(), sets the members of zke_line down to len, and calls
 * zke_line_init(); its class takes zke_line_on_step() and the like, unless it
 * adds something; and its public functions look like this:
 *
 *     int zke_thing_acquire(zke_thing *thing, int64_t deadline_ms) {
 *       int rc = zke_line_enter_by(&thing->l, deadline_ms);
 *       if (rc != ZKE_OK) return rc;
 *       return zke_recipe_leave(&thing->l.r,
 *                               zke_line_acquire(&thing->l, deadline_ms));
 *     }
 *
 * Read lock.c with this file: it is such a recipe.
 *
 * A ZNODE'S DATA is one line "<state> <actor>", and then the user's data.  The
 * state is
 *   held     it holds; the holder before it or it itself wrote this
 *   waiting  its thread is inside a blocking call
 *   queued   it waits, and its thread does something else
 * The actor is the thread, as 16 hex digits.  Only the search for deadlocks
 * uses it.
 *
 * WHO HOLDS is decided by the place in the line alone.  The word "held" is a
 * mark: it shows the token, and since when the entry holds.  The zxid of the
 * write that sets it is the token.  A participant that was first when its znode
 * was made needs no mark: its czxid is the token.
 *
 * Either of two processes writes the mark:
 *
 * - The holder that leaves, in the transaction that deletes its znode (a
 *   grant).  It does so for the next in line of a lock or read/write lock.  The
 *   next one then wakes up as the holder, and needs no write of its own.
 * - Otherwise the next in line, when it finds that no entry keeps it out.
 *
 * A grant is one step, so there are never two holders, nor a marked entry that
 * does not hold.  It fails, and changes nothing, if either znode has gone, if
 * the next one's data has changed since it was read, or if its ACL forbids the
 * write.  Then the holder only deletes its own znode.  If the next one is
 * granted the office and then dies, gives up or loses its place, it leaves as
 * any holder does: the entry behind it marks itself, with a greater zxid.
 *
 * All of this is for recipes of the same version only (zkembed.h). */
#ifndef ZKEMBED_RECIPES_LINE_H
#define ZKEMBED_RECIPES_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "entry.h"
#include "object.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many paths of former znodes an object keeps.  A change of mode and back
 * uses two of them.  So an op survives two such round trips, and a loss. */
enum { ZKE_LINE_FORMER = 5 };

/* One participant.  The mutex of `r` guards every member.
 *
 * The recipe sets the first part before zke_line_init().  It may set kind,
 * limit and weight again while the object is out of the line.  The line itself
 * writes limit when a lease has read the directory, and kind in
 * zke_line_convert(). */
typedef struct zke_line {
  zke_recipe r;
  const char *place; /* the directory's kind: "lock"; borrowed, a constant */
  int kind;          /* ZKE_LINE_LOCK … of the own entry */
  int limit;         /* an entry holds while fewer than this keep it out; a
                        lease's is read from the directory, "limit N" */
  int weight;        /* znodes that a lease makes, at least 1; it holds when
                        the last of them may */
  bool no_check;     /* do not look for deadlocks */
  bool watch_own;    /* watch the own znode while it holds, too, to report its
                        loss */
  const char *data;  /* the user's, or NULL; zke_line_init() makes a copy */
  int len;           /* bytes of it */

  /* The rest is the line's own. */
  int64_t seen;       /* the directory's czxid when it was found to exist and to
                       be of this kind; 0: not yet.  If it differs, the
                       directory was made again, maybe as another kind */
  int state;          /* ZKE_LINE_…; with znode, see invariant 1 in line.c */
  bool blocking;      /* a thread is inside zke_line_acquire() */
  bool own_watched;   /* the own znode is watched; the watch has not fired */
  bool place_watched; /* the same for the directory's data: a lease's limit */
  char *znode;        /* whole path of the own znode (of several the last), or
                           NULL */
  char *gone[ZKE_LINE_FORMER]; /* the znodes before it, latest first, or NULL; a
                                  program's op may still name them */
  zke_strings *own;            /* leases: paths of all own znodes, or NULL */
  int64_t czxid;               /* of znode */
  int64_t token;               /* fencing value, 0 when not held */
  uint64_t actor;       /* the thread that joined; it waits and holds, for the
                           deadlock search */
  const char *also;     /* path of another ephemeral that is deleted with the
                           office, or NULL; borrowed from the recipe (the
                           election's znode "leader") */
  zke_strings *watched; /* paths of the entries that are watched, or NULL */
  char *heir;           /* path of the next entry in line, as last seen while
                           this one held, or NULL */
} zke_line;

/* ------------------------------------------------------------------------
 * Inside a call.  The mutex is held in all of these (zke_line_enter()).
 *
 * Each change of state to HELD, OUT or LOST is reported as an event, by
 * zke_recipe_tell().  Its number is the token, or 0.
 * --------------------------------------------------------------------- */

/* zke_line_init - begin, after zke_recipe_new()
 *
 * Set the members down to len first; data is copied.
 * Returns ZKE_OK, ZKE_BADARGUMENTS for a negative len, ZKE_NOMEM. */
int zke_line_init(zke_line *l);

/* zke_line_join - make the znode, and take office if that is allowed
 *
 * Costs one write, one read of the line, and the watches if it has to wait.  An
 * object that is LOST first gives up the rest of its place.
 *
 *   blocking  the znode says "waiting", not "queued"
 *
 * Returns ZKE_OK: WAITING or HELD, or LOST if somebody has just deleted the
 * znode; or, OUT again,
 *   ZKE_NONODE     a lease: the directory is missing
 *   ZKE_LIMIT      a lease: its weight is above the limit; or the directory
 *                  has no numbers left (zke_recipe_create())
 *   ZKE_OTHERKIND  the directory was made again, as another kind
 *   other codes    of the call that failed
 * or ZKE_MISUSE: the object is in the line already; nothing has changed. */
int zke_line_join(zke_line *l, bool blocking, int64_t deadline_ms);

/* zke_line_step - look again: what a class's step() calls first
 *
 * WAITING: has the turn come?  HELD: is the own znode still there?  Otherwise
 * there is nothing to look at.
 *
 * Returns ZKE_OK whatever it finds: the state tells.  Returns ZKE_LIMIT for a
 * lease with a limit that has become too small: it is OUT then, but if a
 * blocking call runs, that call gives up with this code.  Else returns the code
 * of a failed read or write; the look must be repeated. */
int zke_line_step(zke_line *l);

/* zke_line_acquire - join, unless that was done before, and wait until held
 *
 * In a call that began with zke_line_enter_by().  Looks for a deadlock before
 * it sleeps.
 *
 * Returns ZKE_OK: HELD; or, OUT again, ZKE_OPERATIONTIMEOUT with a sentence
 * that names the holder, ZKE_CANCELLED, ZKE_DEADLOCK, ZKE_LOST if somebody
 * deleted the znode, or as zke_line_join(). */
int zke_line_acquire(zke_line *l, int64_t deadline_ms);

/* zke_line_try - join and hold; or return ZKE_HELD, OUT again, with a sentence
 * that names the holder */
int zke_line_try(zke_line *l);

/* zke_line_quit - leave the line, from any state
 *
 * Deletes the znode, and in the same step marks the heir or deletes `also`.
 * The object is OUT whatever this returns, unless it finds that the session has
 * ended: then it is LOST.  If the delete fails, the session deletes the znode
 * later (zke_discard()).  A thread inside zke_line_acquire() is woken, and
 * finds the place gone. */
int zke_line_quit(zke_line *l);

/* zke_line_give_up - quit after a failure, from any state
 *
 * OUT afterwards, unless the session has ended.  Returns rc, and keeps its
 * sentence. */
int zke_line_give_up(zke_line *l, int rc);

/* zke_line_check - ask the file
 *
 * Returns ZKE_OK: held; ZKE_LOST: not held, and an object that was HELD is LOST
 * now; else the code of the failed read. */
int zke_line_check(zke_line *l);

/* zke_line_jump - take another entry's place at the front of the line
 *
 * In one step, deletes the victim's znode and the own old one, if there is one,
 * and makes a FRONT entry.
 *
 *   victim  path of the holder's znode
 *
 * Returns ZKE_OK: HELD, or WAITING behind another thief; ZKE_LOST if it was
 * robbed in turn: OUT; ZKE_NONODE if the victim has gone: nothing has changed.
 * After a lost reply, an object that was not waiting may also get ZKE_NONODE
 * when it was robbed in turn. */
int zke_line_jump(zke_line *l, const char *victim);

/* zke_line_convert - if held: put an entry of another kind in the own place
 *
 * In one step, makes an entry of that kind with the same number and deletes the
 * own one.  The token is new.
 *
 *   kind  ZKE_LINE_READ or ZKE_LINE_WRITE
 *
 * Returns ZKE_OK, also if the new znode cannot be watched now: then a look is
 * due (`changed`); ZKE_LOST if it is not held; or the code of the call that
 * failed: the old entry stays, and the next look tells whether it is still
 * there. */
int zke_line_convert(zke_line *l, int kind);

/* zke_line_yield - if held: leave, in favour of one entry
 *
 * In one step, makes a NEXT mark for the heir, wakes the heir by a write of its
 * own data, and deletes the own znode.
 *
 *   heir  name of its znode
 *   word  path of another znode to delete in the same step, or NULL
 *
 * Returns ZKE_OK: OUT; ZKE_NONODE if the heir has gone, ZKE_LOST if it is not
 * held. */
int zke_line_yield(zke_line *l, const char *heir, const char *word);

/* zke_line_release - quit; ZKE_LOST if the object was no longer in the line.
 * After any other failure it is OUT as well */
int zke_line_release(zke_line *l);

/* zke_line_check_op - an operation for the user's multi that fails unless the
 * place is held; ZKE_LOST if it is not held now.  *op borrows the znode's path.
 * The path stays until ZKE_LINE_FORMER later znodes of the object have gone, or
 * the object is freed */
int zke_line_check_op(zke_line *l, zke_op *op);

/* zke_line_event - what a class's event() calls: note which watch has fired
 * zke_line_ended - what a class's ended() calls: a place in the line is LOST
 * zke_line_free  - what a class's destroy() calls: release the members */
void zke_line_event(zke_line *l, const char *path);
void zke_line_ended(zke_line *l);
void zke_line_free(zke_line *l);

/* zke_line_on_… - class members for a recipe that is a line and adds nothing to
 * them; the mutex is held, as in every class's */
int zke_line_on_step(zke_recipe *r);
void zke_line_on_event(zke_recipe *r, int type, const char *path);
void zke_line_on_ended(zke_recipe *r);
void zke_line_on_quit(zke_recipe *r);
void zke_line_on_destroy(zke_recipe *r);

/* ------------------------------------------------------------------------
 * The public functions of such a recipe are made of these.  The mutex is not
 * held, and a NULL object is refused.
 *
 * Example: the whole of a function that waits.
 *
 *     rc = zke_line_enter_by(l, deadline);
 *     if (rc == ZKE_OK)
 *       rc = zke_recipe_leave(&l->r, zke_line_acquire(l, deadline));
 * --------------------------------------------------------------------- */

/* zke_line_enter     - zke_recipe_enter(), and make or check the directory
 * zke_line_enter_by  - the same with zke_recipe_enter_by()
 * zke_line_api_state - ZKE_LINE_…; ZKE_LINE_LOST when the session has ended
 * zke_line_api_token - the fencing value, 0 when not held; both are from
 *                      memory (zke_recipe_enter_memory())
 * zke_line_api_check - zke_line_check()
 * zke_line_api_op    - zke_line_check_op(); ZKE_BADARGUMENTS for a NULL op
 *
 * If one of the first two fails, the object is left already: return its code
 * and do nothing more. */
int zke_line_enter(zke_line *l);
int zke_line_enter_by(zke_line *l, int64_t deadline_ms);
int zke_line_api_state(zke_line *l);
int64_t zke_line_api_token(zke_line *l);
int zke_line_api_check(zke_line *l);
int zke_line_api_op(zke_line *l, zke_op *op);

/* zke_line_turn - may an entry hold, for a recipe that stands in several lines
 * with limits of 1?
 *
 * Needs no zke_line: a multi-lock has an entry in each line and one object.
 *
 *   r        the object to wake when it must look again
 *   watched  in and out: the path that is watched, one block; begins as NULL
 *   pzxid    out, set if it may: the directory's, at that moment
 *
 * Returns ZKE_OK: it may, until it is deleted; ZKE_NOT_YET: no, and
 * zke_recipe_watcher will tell when to look again; ZKE_NONODE: it has gone. */
int zke_line_turn(zke_recipe *r, const char *directory, const char *znode,
                  char **watched, int64_t *pzxid);

#ifdef __cplusplus
}
#endif

#endif
