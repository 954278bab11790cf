/* object.h - for whoever writes a recipe: the object behind its handle
 *
 * A recipe's struct begins with a zke_recipe.  That gives it a mutex, a path,
 * watches, a listener, deadlines, cancellation, and a life that ends safely
 * while other threads or a listener are inside.
 *
 * A PUBLIC FUNCTION looks like this:
 *
 *     int rc = zke_recipe_enter(&l->r);
 *     if (rc != ZKE_OK) return rc;
 *     ...what it does, the mutex held...
 *     return zke_recipe_leave(&l->r, rc);
 *
 * with zke_recipe_enter_by(&l->r, deadline_ms) if it has a deadline, which
 * every function with zke_recipe_await() has.  Its calls of zkembed then wait
 * for other processes no longer than that.
 *
 * GOING ON.  What the recipe watches it watches with zke_recipe_watcher and
 * &l->r.  When any of these watches fires, the class's step() is called with
 * the mutex held.  step() looks at the tree again and does what is due, without
 * waiting.  An event is a hint only: step() may find nothing changed, and must
 * not take for true what the event said.
 *
 * If a step fails, or `changed` is set when the mutex is dropped, step() is
 * called again after a pause, by zke_call_at(): first after 5 ms, then after
 * twice as long each time, at most the busy timeout (or ZKE_GRACE_MS, if that
 * is longer).  Where a blocking call sleeps on the object, that call is woken
 * and makes the step instead.
 *
 * How long a step waits for other writers, in a dispatch: no longer than any
 * call of the handle does; no longer than a call that sleeps on the object, or
 * on the thread, may; when it is repeated, no longer than it has paused.  After
 * a step has timed out, steps of other objects on that handle do not wait at
 * all for the same length of time.  So waiting takes at most half of a
 * dispatching program's time.
 *
 * TELLING.  What the user is to hear is queued with zke_recipe_tell() and
 * delivered by zke_recipe_leave(), after the mutex was dropped.
 *
 * recipes/barrier.c is a small recipe to read beside this. */
#ifndef ZKEMBED_RECIPES_OBJECT_H
#define ZKEMBED_RECIPES_OBJECT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "doubt.h"
#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_recipe zke_recipe;

/* What a function inside a recipe returns besides ZKE_OK and an error.  None of
 * them leaves the recipe: no caller of the program ever sees one.
 *
 * ZKE_NOT_YET    - what is waited for has not come: sleep
 * ZKE_LOOK_AGAIN - somebody has changed the tree between two looks: do not
 *                  guess what it was, look again (zke_recipe_again())
 *
 * doubt.h has two more, for steps that have lost their reply. */
enum { ZKE_NOT_YET = 1, ZKE_LOOK_AGAIN = 2 };

/* What a recipe adds to the object.  The mutex is held in each function but
 * deliver() and destroy(); members that a recipe does not need are NULL.  A
 * class is a constant that lives as long as the program. */
typedef struct zke_recipe_class {
  const char *name; /* "lock": for sentences */
  /* A watch has fired.  Note which path it was, as one-shot watches have to be
   * set again; the step that follows does the rest.  "": an overflow, all
   * watches have gone */
  void (*event)(zke_recipe *r, int type, const char *path);
  /* Look again, go on.  After a failure it is repeated, by the call that awaits
   * or in a later dispatch: so what is left to do must be seen in the object
   * still, or in the tree */
  int (*step)(zke_recipe *r);
  /* The session has ended: hold nothing any more.  Called once; may tell */
  void (*ended)(zke_recipe *r);
  /* Call the user's listener with what was told; no lock is held.  text is
   * valid until this returns */
  void (*deliver)(zke_recipe *r, int event, int64_t number, const char *text,
                  int len);
  /* The object is going: give up what it holds, by zke_recipe_discard().  Not
   * called after the session's end, which has given up everything */
  void (*quit)(zke_recipe *r);
  /* Release the members' memory.  No other thread has the object any more */
  void (*destroy)(zke_recipe *r);
} zke_recipe_class;

struct zke_note;

/* The object.  class_, z and path never change; refs, running and cancels are
 * atomic; the mutex guards all else.  A recipe reads z, path and ended, and may
 * set changed; the rest is object.c's. */
struct zke_recipe {
  const zke_recipe_class *class_;
  zke *z;              /* borrowed: the handle outlives the object */
  char *path;          /* the recipe's directory; the object's own copy */
  pthread_mutex_t m;   /* held while a thread is inside, but not in its sleep */
  pthread_cond_t told; /* the teller has finished: free waits for that */
  int refs;            /* calls and sleeps inside, and 1 until free */
  int running;         /* calls inside that can be cancelled */
  int cancels;         /* how often that was asked; a call compares it with what
                          it was when the call began */
  bool ended;          /* the session has; ended() was called */
  bool going;          /* free was called */
  bool left;           /* a thread was cancelled inside: only free is allowed */
  bool changed;     /* look again: something fired, or the last step failed */
  bool telling;     /* the teller is delivering notes */
  pthread_t teller; /* the thread that does, while `telling` */
  struct zke_note *notes, **notes_end; /* told, not yet delivered; the last
                                          note's next */
  struct zke_note *spares, *spare;     /* notes for a time without memory, one
                                          block; those of them that are free */
  struct recipe_sleeper *sleepers;     /* calls that sleep now, on the stacks of
                                          their threads */
  int64_t pause; /* ms before the last step again; 0: the last one was fine */
  bool reminded; /* zke_call_at() is set and has not come */
};

/* ------------------------------------------------------------------------
 * Life
 * --------------------------------------------------------------------- */

/* zke_recipe_new - allocate an object of size bytes, zeroed
 *
 * Checks the path by ZooKeeper's rules ("/" is refused) and copies it.  Reads
 * the tree, and writes nothing.
 *
 *   class_  a constant
 *   size    of the recipe's struct, which begins with a zke_recipe
 *   out     out, not NULL; NULL on failure.  For zke_recipe_free()
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, ZKE_NOMEM, or what the handle's state asks
 * for, as zke_recipe_state().  Threads: any.  In a callback: yes. */
int zke_recipe_new(zke *z, const char *path, const zke_recipe_class *class_,
                   size_t size, zke_recipe **out);

/* zke_recipe_options - what each zke_..._new() begins with: take the options
 * given, or the defaults, and set the caller's pointer to NULL
 *
 *   out      the pointer for the object, which is refused where it is NULL
 *   given    what the user gave, or NULL
 *   options  out: a struct of this type
 *
 * Returns as zke_take_options(), or ZKE_BADARGUMENTS for a NULL out.  A macro,
 * because the sentences name the parameter and the type.
 *
 *     zke_lock_options o;
 *     int rc = zke_recipe_options(lock_out, options, &o, zke_lock_options);
 */
#define zke_recipe_options(out, given, options, type)                  \
  ((out) ? (*(out) = NULL,                                             \
            zke_take_options((given), (options), sizeof(type), #type)) \
         : (zke_fail(ZKE_BADARGUMENTS, #out " is NULL"), ZKE_BADARGUMENTS))

/* zke_recipe_free - quit, take back the watches, release; NULL is fine
 *
 * Waits for a listener that runs on another thread; afterwards no listener of
 * the object runs, and none will.  In a listener of the object itself, and
 * while a call of another thread is inside, the memory stays until that has
 * returned; a call that sleeps is woken, and returns what its done() says, or
 * ZKE_CLOSING.  In a forked child only memory is released: what the object
 * holds is the parent's.  In the function of a batch, and where zke_op_sql()
 * forbids calls, it does nothing: free the object later. */
void zke_recipe_free(zke_recipe *r);

/* zke_recipe_state - may the handle be used?
 *
 * Returns as zke_sync(), ZKE_BADARGUMENTS for a NULL handle and ZKE_FORKED for
 * a child's copy among it; but the end of the session is ZKE_INVALIDSTATE also
 * for the call that finds it.  Threads: any.  In a callback: yes. */
int zke_recipe_state(zke *z);

/* ------------------------------------------------------------------------
 * Calls
 * --------------------------------------------------------------------- */

/* zke_recipe_enter    - take the mutex
 * zke_recipe_enter_by - the same for a call with a deadline, which
 *                       zke_recipe_cancel() can end
 * zke_recipe_enter_memory - the same for a call that only tells what the object
 *                       knows: it is let in also where the handle could not be
 *                       asked, which says nothing about what the object holds
 * zke_recipe_leave    - drop it, deliver what was told, return rc
 *
 * From enter to leave the thread's zke_limit() is set: to the deadline, or to
 * what a call without one may wait.  Cancellation of the thread is off.  Calls
 * nest: a recipe may call another one's public functions, which then keep
 * within the outermost call's limit.
 *
 *   deadline_ms  of zke_now(); 0 is one that has passed
 *
 * Enter returns ZKE_OK with the mutex held, or, without it,
 *   ZKE_BADARGUMENTS  r is NULL
 *   ZKE_FORKED        this is a forked child's copy
 *   ZKE_INVALIDSTATE  the session has ended
 *   ZKE_CLOSING       it was freed, or a thread was cancelled inside
 *   ZKE_MISUSE        in the function of a batch; enter_memory is let in
 *   other codes       of zke_sync()
 * Leave returns rc and keeps its sentence while notes are delivered.  A session
 * that has ended is always ZKE_INVALIDSTATE, also where rc is
 * ZKE_SESSIONEXPIRED or ZKE_LOST because of it. */
int zke_recipe_enter(zke_recipe *r);
int zke_recipe_enter_by(zke_recipe *r, int64_t deadline_ms);
int zke_recipe_enter_memory(zke_recipe *r);
int zke_recipe_leave(zke_recipe *r, int rc);

/* ------------------------------------------------------------------------
 * Inside a call; the mutex is held
 * --------------------------------------------------------------------- */

/* zke_recipe_watcher - what a recipe gives to zkembed as watcher, with &l->r as
 * context.  Calls event() and step(); takes the mutex itself */
void zke_recipe_watcher(zke *z, int type, int state, const char *path,
                        void *context);

/* zke_recipe_tell - queue a note for the listener
 *
 *   number, text, len  the note's; text is copied, NULL and 0 for none
 *
 * Returns false if the note is lost, because memory is short.  The object has
 * ten notes without a text in reserve; those of them that wait to be delivered
 * are in use. */
bool zke_recipe_tell(zke_recipe *r, int event, int64_t number, const char *text,
                     int len);

/* zke_recipe_untell - drop the notes of an event that the listener has not
 * heard yet, since what they say does not hold any more: those of a text, or
 * all (NULL).  Returns whether there was one */
bool zke_recipe_untell(zke_recipe *r, int event, const char *text);

/* zke_recipe_await - wait until done() or the deadline
 *
 * In a call that began with zke_recipe_enter_by().  Entered and left with the
 * mutex held, waits without it: after it any member may have changed.  Steps
 * first if `changed` is set, and whenever something has changed.
 *
 * Example: wait until step() has set `there`.
 *
 *     struct thing {
 *       zke_recipe r;
 *       bool there;
 *     };
 *
 *     static int thing_is_there(zke_recipe *r) {
 *       return ((struct thing *)r)->there ? ZKE_OK : ZKE_NOT_YET;
 *     }
 *
 *     static int thing_wait(struct thing *t, int64_t deadline_ms) {
 *       int rc = zke_recipe_enter_by(&t->r, deadline_ms);
 *       if (rc != ZKE_OK) return rc;
 *       t->r.changed = true;  // begin with a look
 *       rc = zke_recipe_await(&t->r, thing_is_there, deadline_ms);
 *       return zke_recipe_leave(&t->r, rc);
 *     }
 *
 *   done  called with the mutex held: ZKE_OK, ZKE_NOT_YET, or the code to
 *         fail with
 *
 * Returns done()'s code, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline, after a last look.  Its sentence
 *                         names the object; the caller may set a better one
 *   ZKE_CANCELLED         zke_recipe_cancel()
 *   ZKE_CLOSING           the object was freed meanwhile
 *   ZKE_INVALIDSTATE      the session has ended
 *   other codes           of a step: at once, or, where the failure may pass by
 *                         itself, after ten more tries */
int zke_recipe_await(zke_recipe *r, int (*done)(zke_recipe *r),
                     int64_t deadline_ms);

/* zke_recipe_step - what a recipe's public step() is: enter, the class's
 * step(), leave.  Returns what the class's step() says; the mutex is not held
 */
int zke_recipe_step(zke_recipe *r);

/* zke_recipe_look - the same inside a call, with the mutex held.  If it
 * succeeds nothing is left to look at, so no reminder is set */
int zke_recipe_look(zke_recipe *r);

/* zke_recipe_again - may a look be repeated?
 *
 * Every loop that looks again while others change the tree asks this, so that
 * each of them ends:
 *
 *     do {
 *       rc = look(z);
 *     } while (zke_recipe_again(z, &rc));
 *
 * Inside a call, a step, or neither; the mutex is held or not.
 *
 *   rc  in: what the look has returned.  out, if it was ZKE_LOOK_AGAIN and
 *       the answer is false:
 *       ZKE_NONODE            the chroot is missing; the sentence names it
 *       ZKE_OPERATIONTIMEOUT  the thread's zke_limit() has passed
 *       ZKE_CANCELLED         the call was cancelled
 *       other codes           the file cannot be read.  (What may pass by
 *                             itself does not stop the next look.)
 *
 * Returns true only if *rc was, and still is, ZKE_LOOK_AGAIN. */
bool zke_recipe_again(zke *z, int *rc);

/* zke_recipe_do - make a step of a recipe, until it is decided
 *
 * A step reads, decides, and changes all in one zke_recipe_multi().  It is made
 * again at once where others were faster (ZKE_LOOK_AGAIN), and as zke_retry()
 * does where its reply was lost or others kept the database.  So every step has
 * the same ends: the deadline, the thread's zke_limit(), a cancel, a missing
 * chroot.  Without a deadline and a limit it has the time that any call has.
 *
 *     static int add_one(zke *z, void *arg) {
 *       ...read the number and its version...
 *       zke_op_set(&op, path, text, len, version);
 *       return zke_recipe_faster(zke_recipe_multi(z, &op, 1, NULL));
 *     }
 *
 * A step whose reply was lost is made again, and must first look what the lost
 * try has done.  If that has changed nothing, return ZKE_NOT_MADE: the step
 * begins anew, without a doubt.  If nobody can tell, return ZKE_IN_DOUBT.
 *
 *   fn, arg, deadline_ms  as of zke_retry(); ZKE_FOREVER has no end while
 *                         others are faster at each try
 *
 * Returns what the last try has returned, ZKE_CONNECTIONLOSS for ZKE_IN_DOUBT
 * and as zke_retry() behind a lost reply; or why there was no try after
 * ZKE_LOOK_AGAIN, as zke_recipe_again() says it. */
int zke_recipe_do(zke *z, int (*fn)(zke *z, void *arg), void *arg,
                  int64_t deadline_ms);

/* zke_recipe_settle - look a last time what has become of a change that failed
 * with rc behind a lost reply, though the deadline may have passed; only after
 * one
 *
 *   rc    of the change, with its sentence; an answer of the tree is returned
 *         as it is, without a look
 *   look  as zke_retry() calls it: ZKE_OK it was made, ZKE_NOT_MADE,
 *         ZKE_BADVERSION it was not since others were faster, ZKE_IN_DOUBT
 *   path, what  for the sentence: "whether <path> was <what> is not known"
 *
 * Returns ZKE_OK, ZKE_BADVERSION, rc with its sentence where nothing was made,
 * or ZKE_CONNECTIONLOSS, as also where the look has another code. */
int zke_recipe_settle(zke *z, int rc, int (*look)(zke *z, void *arg), void *arg,
                      const char *path, const char *what);

/* zke_recipe_faster - what a refused step comes to whose conditions held when
 * it was decided: ZKE_NONODE, ZKE_NODEEXISTS and ZKE_BADVERSION are
 * ZKE_LOOK_AGAIN.  Other codes are returned as they are */
int zke_recipe_faster(int rc);

/* zke_recipe_cancel - the calls with a deadline that run on the object return
 * ZKE_CANCELLED, unless they succeed first
 *
 * Takes no lock but the handle's, since the call that is to be cancelled may
 * hold the object's.  Returns ZKE_OK, or ZKE_IDLE if none runs. */
int zke_recipe_cancel(zke_recipe *r);

/* zke_recipe_has_ended - does rc say that the session has ended?  Then the
 * object knows it from here on; the mutex is held */
bool zke_recipe_has_ended(zke_recipe *r, int rc);

#ifdef __cplusplus
}
#endif

#endif
