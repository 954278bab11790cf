/* object.h - for whoever writes a recipe: the object behind its handle
 *
 * A recipe's struct begins with a zke_recipe.  Its public functions are
 *
 *     int rc = zke_recipe_enter(&l->r);
 *     if (rc != ZKE_OK) return rc;
 *     ...what it does, the mutex held...
 *     return zke_recipe_leave(&l->r, rc);
 *
 * zke_recipe_enter_by(&l->r, deadline_ms) where it has a deadline, which every
 * function with zke_recipe_await() has.  Its calls of zkembed and of the
 * functions above then wait for others no longer than that.
 *
 * What it watches it watches with zke_recipe_watcher and &l->r.  When any
 * of that fires, the class's step() is called with the mutex held; it looks
 * again and does what is due, without waiting, and may find nothing changed.
 * Where it fails, or `changed` is set when the mutex is dropped, it is called
 * again after a pause, by zke_call_at(): first after 5 ms, then after twice as
 * long each time, at most the busy timeout.  In a dispatch it waits for others
 * no longer than any call does, than a call that sleeps on the object or on the
 * thread may, nor, when it is repeated, than it has paused; and after a step
 * has waited in vain others of the handle do not wait for as long.
 * What the user is to hear is queued with zke_recipe_tell() and delivered
 * after the mutex was dropped. */
#ifndef ZKEMBED_RECIPES_OBJECT_H
#define ZKEMBED_RECIPES_OBJECT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_recipe zke_recipe;

/* What a function inside a recipe returns besides ZKE_OK and an error.  Neither
 * leaves the recipe.
 *
 * ZKE_NOT_YET    - what is waited for has not come: sleep
 * ZKE_LOOK_AGAIN - somebody has changed the tree between two looks: do not
 *                  guess what it was, look anew */
enum { ZKE_NOT_YET = 1, ZKE_LOOK_AGAIN = 2 };

/* The mutex is held in each but deliver(); members that a recipe does not need
 * are NULL. */
typedef struct zke_recipe_class {
  const char *name; /* "lock" */
  /* something fired: which path; before step() */
  void (*event)(zke_recipe *r, int type, const char *path);
  /* look again, go on.  After a failure it is repeated, by who awaits or in a
   * later dispatch: all that it was to do must be seen in the object still */
  int (*step)(zke_recipe *r);
  /* the session has ended: hold nothing any more; may tell */
  void (*ended)(zke_recipe *r);
  /* call the user's listener with what was told; no lock held */
  void (*deliver)(zke_recipe *r, int event, int64_t number, const char *text,
                  int len);
  /* give up what is held by zke_recipe_discard(): the object is going */
  void (*quit)(zke_recipe *r);
  /* release the members' memory */
  void (*destroy)(zke_recipe *r);
} zke_recipe_class;

struct zke_note;

struct zke_recipe {
  const zke_recipe_class *class_;
  zke *z;
  char *path; /* the recipe's directory */
  pthread_mutex_t m;
  pthread_cond_t told;
  int refs;         /* atomic: calls inside, and 1 until free */
  int running;      /* atomic: calls inside that can be cancelled */
  int cancels;      /* atomic: how often that was asked */
  bool ended;       /* the session has */
  bool going;       /* free was called */
  bool left;        /* a thread was cancelled inside: only free is allowed */
  bool changed;     /* look again: something fired, or the last step failed */
  bool telling;     /* the teller is delivering notes */
  pthread_t teller; /* a thread */
  struct zke_note *notes, **notes_end;
  struct recipe_sleeper *sleepers; /* calls that sleep now */
  int64_t pause; /* ms before the last step again; 0: the last one was fine */
  bool reminded; /* zke_call_at() is set */
};

/* zke_recipe_new - allocate an object of size bytes, zeroed
 *
 * Checks the path by ZooKeeper's rules ("/" is refused) and copies it.
 *
 *   out  out, not NULL; NULL on failure */
ZKE_API int zke_recipe_new(zke *z, const char *path,
                           const zke_recipe_class *class_, size_t size,
                           zke_recipe **out);

/* zke_recipe_options - what each zke_..._new() begins with: take the options
 * given, or the defaults, and set the caller's pointer to NULL
 *
 *   out      the pointer for the object, which is refused where it is NULL
 *   given    what the user gave, or NULL
 *   options  out: a struct of this type
 *
 * Returns as zke_take_options().  A macro: the sentences name the parameter and
 * the type. */
#define zke_recipe_options(out, given, options, type)                  \
  ((out) ? (*(out) = NULL,                                             \
            zke_take_options((given), (options), sizeof(type), #type)) \
         : (zke_fail(ZKE_BADARGUMENTS, #out " is NULL"), ZKE_BADARGUMENTS))

/* zke_recipe_free - quit, take back the watches, release; NULL is fine
 *
 * Afterwards no listener runs on another thread, and none will.  In a
 * listener of the object itself the memory stays until it has returned. */
ZKE_API void zke_recipe_free(zke_recipe *r);

/* zke_recipe_state - may the handle be used?
 *
 * Returns as zke_sync(), ZKE_BADARGUMENTS for a NULL handle and ZKE_FORKED for
 * a child's copy among it; but the end of the session is ZKE_INVALIDSTATE also
 * for the call that finds it.  Threads: any.  In a callback: yes. */
ZKE_API int zke_recipe_state(zke *z);

/* zke_recipe_enter    - take the mutex; refuses NULL, a forked child's copy, an
 *                       expired session (ZKE_INVALIDSTATE), one that was freed
 *                       (ZKE_CLOSING)
 * zke_recipe_enter_by - the same for a call with a deadline, which can be
 *                       cancelled
 * zke_recipe_leave    - drop it, deliver what was told; returns rc, the end of
 *                       the session as ZKE_INVALIDSTATE always */
ZKE_API int zke_recipe_enter(zke_recipe *r);
ZKE_API int zke_recipe_enter_by(zke_recipe *r, int64_t deadline_ms);
ZKE_API int zke_recipe_leave(zke_recipe *r, int rc);

/* zke_recipe_hold - keep the object's memory, for a call that makes several
 *                   calls of it: a listener may free it between two of them.
 *                   Then each further call on it but drop returns ZKE_CLOSING
 * zke_recipe_drop - no more
 *
 * The mutex is not held.  They do not hold off the thread's cancellation: drop
 * in a cleanup handler where a call between them may sleep. */
ZKE_API void zke_recipe_hold(zke_recipe *r);
ZKE_API void zke_recipe_drop(zke_recipe *r);

ZKE_API void zke_recipe_watcher(zke *z, int type, int state, const char *path,
                                void *context);

/* zke_recipe_tell - queue a note for the listener; the mutex is held.  Lost
 * without memory: false. */
ZKE_API bool zke_recipe_tell(zke_recipe *r, int event, int64_t number,
                             const char *text, int len);

/* zke_recipe_await - wait until done() or the deadline
 *
 * In a call that began with zke_recipe_enter_by().  Entered and left with the
 * mutex held, waits without it.  Steps whenever something has changed.
 *
 *   done  called with the mutex held: ZKE_OK, ZKE_NOT_YET, or the code to
 *         fail with
 *
 * Returns done()'s code, ZKE_OPERATIONTIMEOUT, ZKE_CANCELLED, or what step()
 * or the handle said.  The sentence of a timeout is the caller's to set. */
ZKE_API int zke_recipe_await(zke_recipe *r, int (*done)(zke_recipe *r),
                             int64_t deadline_ms);

/* zke_recipe_step - what a recipe's step is: enter, look again where the object
 * is started or waits, leave.  Returns what the class's step() says */
ZKE_API int zke_recipe_step(zke_recipe *r);

/* zke_recipe_look - the same inside a call, with the mutex held.  Where it
 * succeeds nothing is left to look at, so no reminder is set */
ZKE_API int zke_recipe_look(zke_recipe *r);

/* zke_recipe_cancel - see cancel above: ZKE_OK, or ZKE_IDLE where no call with
 * a deadline is running; takes no lock but the handle's */
ZKE_API int zke_recipe_cancel(zke_recipe *r);

/* zke_recipe_has_ended - does rc say that the session has ended?  Then the
 * object knows it from here on; the mutex is held.  Not exported */
bool zke_recipe_has_ended(zke_recipe *r, int rc);

#ifdef __cplusplus
}
#endif

#endif
