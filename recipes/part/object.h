/* object.h - for recipe authors: the object behind its handle
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
 * A function with a deadline begins with zke_recipe_enter_by(&l->r,
 * deadline_ms) instead; so does every function that calls zke_recipe_await().
 * Its calls of zkembed then wait for other processes no longer than that.
 *
 * STEPS.  A recipe sets its watches with zke_recipe_watcher and &l->r.  When
 * one of them fires, the class's step() is called with the mutex held.  step()
 * looks at the tree again and does what is due, without waiting.  An event is
 * only a hint: step() may find nothing changed, and must not rely on the event.
 *
 * If a step fails, or `changed` is set when the mutex is released, step() is
 * called again after a pause, by zke_call_at(): first after 5 ms, then after
 * twice as long each time, at most the busy timeout (or ZKE_GRACE_MS, if that
 * is longer).  If a blocking call sleeps on the object, that call is woken and
 * makes the step instead.
 *
 * In a dispatch, a step waits for other writers no longer than any call of the
 * handle does, and no longer than a call that sleeps on the object, or on the
 * thread, may.  A repeated step waits no longer than it has paused.  After a
 * step has timed out, steps of other objects on that handle do not wait at all
 * for the same length of time.  So waiting takes at most half of a dispatching
 * program's time.
 *
 * NOTES.  zke_recipe_tell() queues a note for the user's listener.
 * zke_recipe_leave() delivers it after it has released the mutex.
 *
 * Read recipes/barrier.c with this file: it is a small recipe. */
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

/* What a function inside a recipe returns besides ZKE_OK and an error.  These
 * codes do not leave the recipe: the program never sees one.
 *
 * ZKE_NOT_YET    - the awaited condition does not hold yet: sleep
 * ZKE_LOOK_AGAIN - somebody has changed the tree between two looks: do not
 *                  guess the change, look again (zke_recipe_again())
 *
 * doubt.h has two more, for steps that have lost their reply. */
enum { ZKE_NOT_YET = 1, ZKE_LOOK_AGAIN = 2 };

/* What a recipe adds to the object.  The mutex is held in each function except
 * deliver() and destroy(); members that a recipe does not need are NULL.  A
 * class is a constant that lives as long as the program. */
typedef struct zke_recipe_class {
  const char *name; /* "lock": for sentences */
  /* A watch has fired.  Note its path, as one-shot watches must be set again;
   * the step that follows does the rest.  "": an overflow, all watches have
   * gone */
  void (*event)(zke_recipe *r, int type, const char *path);
  /* Look again, and do what is due.  After a failure it is repeated, by the
   * call that awaits or in a later dispatch: so unfinished work must still show
   * in the object or in the tree */
  int (*step)(zke_recipe *r);
  /* The session has ended: nothing is held any more.  Called once; may tell */
  void (*ended)(zke_recipe *r);
  /* Call the user's listener with a note; no lock is held.  text is valid until
   * this returns */
  void (*deliver)(zke_recipe *r, int event, int64_t number, const char *text,
                  int len);
  /* The object is being freed: give up what it holds, by zke_recipe_discard().
   * Not called after the session has ended, which has given up everything */
  void (*quit)(zke_recipe *r);
  /* Release the members' memory.  No other thread has the object any more */
  void (*destroy)(zke_recipe *r);
} zke_recipe_class;

struct zke_note;

/* The object.  class_, z and path never change; refs, running and cancels are
 * atomic; the mutex guards all else.  A recipe reads z, path and ended, and may
 * set changed; the rest belongs to object.c. */
struct zke_recipe {
  const zke_recipe_class *class_;
  zke *z;              /* borrowed: the handle outlives the object */
  char *path;          /* the recipe's directory; the object's own copy */
  pthread_mutex_t m;   /* held while a thread is inside, but not while it
                          sleeps */
  pthread_cond_t told; /* the teller has finished: free waits for that */
  int refs;            /* calls and sleeps inside, and 1 until free */
  int running;         /* calls inside that can be cancelled */
  int cancels;         /* how often a cancel was asked for; a call compares it
                          with its value when the call began */
  bool ended;          /* the session has ended; ended() was called */
  bool going;          /* free was called */
  bool left;           /* a thread was cancelled inside: only free is allowed */
  bool changed;     /* look again: something fired, or the last step failed */
  bool telling;     /* the teller is delivering notes */
  pthread_t teller; /* the teller's thread, while `telling` */
  struct zke_note *notes, **notes_end; /* queued, not yet delivered; the last
                                          note's next */
  struct zke_note *spares, *spare;     /* notes in reserve for when memory is
                                          short, one block; the free ones among
                                          them */
  struct recipe_sleeper *sleepers;     /* calls that sleep now, on the stacks of
                                          their threads */
  int64_t pause; /* ms of the last pause; 0: the last step succeeded */
  bool reminded; /* zke_call_at() is set and has not fired */
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
 * Returns ZKE_OK, ZKE_BADARGUMENTS, ZKE_NOMEM, or the code for the handle's
 * state, as zke_recipe_state().  Threads: any.  In a callback: yes. */
int zke_recipe_new(zke *z, const char *path, const zke_recipe_class *class_,
                   size_t size, zke_recipe **out);

/* zke_recipe_options - the beginning of each zke_..._new(): take the options
 * given, or the defaults, and set the caller's pointer to NULL
 *
 *   out      the pointer for the object; NULL is refused
 *   given    what the user gave, or NULL
 *   options  out: a struct of this type
 *
 * Returns as zke_take_options(), or ZKE_BADARGUMENTS for a NULL out.  It is a
 * macro because the sentences name the parameter and the type.
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
 * the object runs, and none will.  In a listener of the object itself, or while
 * another thread is inside a call, the memory stays until that has returned.  A
 * call that sleeps is woken, and returns the code of its done(), or
 * ZKE_CLOSING.  In a forked child only memory is released: what the object
 * holds belongs to the parent.  In the function of a batch, and when
 * zke_op_sql() forbids calls, it does nothing: free the object later. */
void zke_recipe_free(zke_recipe *r);

/* zke_recipe_state - may the handle be used?
 *
 * Returns as zke_sync(), with ZKE_BADARGUMENTS for a NULL handle and ZKE_FORKED
 * for a child's copy.  But the end of the session is ZKE_INVALIDSTATE even for
 * the call that finds it.  Threads: any.  In a callback: yes. */
int zke_recipe_state(zke *z);

/* ------------------------------------------------------------------------
 * Calls
 * --------------------------------------------------------------------- */

/* zke_recipe_enter    - take the mutex
 * zke_recipe_enter_by - the same for a call with a deadline, which
 *                       zke_recipe_cancel() can end
 * zke_recipe_enter_memory - the same for a call that only reports what the
 *                       object knows: also allowed if the handle could not be
 *                       asked, since that says nothing about what is held
 * zke_recipe_leave    - release it, deliver the notes, return rc
 *
 * From enter to leave the thread's zke_limit() is set: to the deadline, or to
 * the default time of a call without one.  Cancellation of the thread is off.
 * Calls nest: a recipe may call another one's public functions, which then keep
 * within the outermost call's limit.
 *
 *   deadline_ms  of zke_now(); 0 has already passed
 *
 * Enter returns ZKE_OK with the mutex held.  Without it, it returns
 *   ZKE_BADARGUMENTS  r is NULL
 *   ZKE_FORKED        this is a forked child's copy
 *   ZKE_INVALIDSTATE  the session has ended
 *   ZKE_CLOSING       it was freed, or a thread was cancelled inside
 *   ZKE_MISUSE        in the function of a batch; not from enter_memory
 *   other codes       of zke_sync()
 * Leave returns rc and keeps its sentence while notes are delivered.  If the
 * session has ended, it always returns ZKE_INVALIDSTATE, even if rc is
 * ZKE_SESSIONEXPIRED or ZKE_LOST because of it. */
int zke_recipe_enter(zke_recipe *r);
int zke_recipe_enter_by(zke_recipe *r, int64_t deadline_ms);
int zke_recipe_enter_memory(zke_recipe *r);
int zke_recipe_leave(zke_recipe *r, int rc);

/* ------------------------------------------------------------------------
 * Inside a call; the mutex is held
 * --------------------------------------------------------------------- */

/* zke_recipe_watcher - the watcher that a recipe gives to zkembed, with &l->r
 * as context.  Calls event() and step(); takes the mutex itself */
void zke_recipe_watcher(zke *z, int type, int state, const char *path,
                        void *context);

/* zke_recipe_tell - queue a note for the listener
 *
 *   number, text, len  the note's; text is copied, NULL and 0 for none
 *
 * Returns false if the note is lost, because memory is short.  The object has
 * ten notes without a text in reserve; a reserved note is in use until it is
 * delivered. */
bool zke_recipe_tell(zke_recipe *r, int event, int64_t number, const char *text,
                     int len);

/* zke_recipe_untell - drop queued notes of an event, because they are no longer
 * true: those with this text, or all (NULL).  Returns whether there was one */
bool zke_recipe_untell(zke_recipe *r, int event, const char *text);

/* zke_recipe_await - wait until done() or the deadline
 *
 * In a call that began with zke_recipe_enter_by().  Call it with the mutex
 * held; it holds the mutex again when it returns.  It waits without the mutex,
 * so any member may change.  Steps first if `changed` is set, and after each
 * change.
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
 *   done  called with the mutex held; returns ZKE_OK, ZKE_NOT_YET, or the code
 *         to fail with
 *
 * Returns done()'s code, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline, after a last look.  Its sentence
 *                         names the object; the caller may set a better one
 *   ZKE_CANCELLED         zke_recipe_cancel()
 *   ZKE_CLOSING           the object was freed during the wait
 *   ZKE_INVALIDSTATE      the session has ended
 *   other codes           of a failed step: immediately, or after ten more
 *                         tries if the failure is transient */
int zke_recipe_await(zke_recipe *r, int (*done)(zke_recipe *r),
                     int64_t deadline_ms);

/* zke_recipe_step - a recipe's public step(): enter, the class's step(), leave.
 * Returns as the class's step(); the mutex is not held */
int zke_recipe_step(zke_recipe *r);

/* zke_recipe_look - the same inside a call, with the mutex held.  If it
 * succeeds, nothing is left to look at, so no reminder is set */
int zke_recipe_look(zke_recipe *r);

/* zke_recipe_again - may a look be repeated?
 *
 * Every loop that looks again while others change the tree asks this.  So each
 * loop ends:
 *
 *     do {
 *       rc = look(z);
 *     } while (zke_recipe_again(z, &rc));
 *
 * For use inside a call, in a step, or in neither; with or without the mutex.
 *
 *   rc  in: the code of the look.  out, if it was ZKE_LOOK_AGAIN and
 *       the answer is false:
 *       ZKE_NONODE            the chroot is missing; the sentence names it
 *       ZKE_OPERATIONTIMEOUT  the thread's zke_limit() has passed
 *       ZKE_CANCELLED         the call was cancelled
 *       other codes           the file cannot be read.  (A transient failure
 *                             does not stop the next look.)
 *
 * Returns true only if *rc was, and still is, ZKE_LOOK_AGAIN. */
bool zke_recipe_again(zke *z, int *rc);

/* zke_recipe_do - repeat a step of a recipe until it is decided
 *
 * A step reads, decides, and makes all its changes in one zke_recipe_multi().
 * If others were faster (ZKE_LOOK_AGAIN), it is repeated immediately.  If its
 * reply was lost or the database was busy, it is repeated as zke_retry() does.
 * So every step ends for the same reasons: the deadline, the thread's
 * zke_limit(), a cancel, a missing chroot.  Without a deadline and a limit it
 * has the default time of a call.
 *
 *     static int add_one(zke *z, void *arg) {
 *       ...read the number and its version...
 *       zke_op_set(&op, path, text, len, version);
 *       return zke_recipe_faster(zke_recipe_multi(z, &op, 1, NULL));
 *     }
 *
 * A repeated step whose reply was lost must first look what the lost try has
 * done.  If it has changed nothing, return ZKE_NOT_MADE: the step begins again,
 * free of doubt.  If nobody can tell, return ZKE_IN_DOUBT.
 *
 *   fn, arg, deadline_ms  as of zke_retry(); with ZKE_FOREVER it has no end
 *                         while others are faster at each try
 *
 * Returns the code of the last try, but ZKE_CONNECTIONLOSS for ZKE_IN_DOUBT,
 * and as zke_retry() after a lost reply.  If no try followed ZKE_LOOK_AGAIN,
 * returns the reason, as zke_recipe_again() gives it. */
int zke_recipe_do(zke *z, int (*fn)(zke *z, void *arg), void *arg,
                  int64_t deadline_ms);

/* zke_recipe_settle - after a change failed with rc, and a try lost its reply,
 * look one last time whether it was made, though the deadline may have passed
 *
 *   rc    of the change, with its sentence; an answer of the tree is returned
 *         as it is, without a look
 *   look  called as by zke_retry(): ZKE_OK it was made, ZKE_NOT_MADE,
 *         ZKE_BADVERSION it was not since others were faster, ZKE_IN_DOUBT
 *   path, what  for the sentence: "whether <path> was <what> is not known"
 *
 * Returns ZKE_OK, ZKE_BADVERSION, rc with its sentence if nothing was changed,
 * else ZKE_CONNECTIONLOSS, also if the look returns another code. */
int zke_recipe_settle(zke *z, int rc, int (*look)(zke *z, void *arg), void *arg,
                      const char *path, const char *what);

/* zke_recipe_faster - convert the code of a refused step that met its
 * conditions when it was decided: ZKE_NONODE, ZKE_NODEEXISTS and ZKE_BADVERSION
 * become ZKE_LOOK_AGAIN.  Other codes are returned as they are */
int zke_recipe_faster(int rc);

/* zke_recipe_cancel - make the running calls with a deadline on this object
 * return ZKE_CANCELLED, unless they succeed first
 *
 * Takes no lock except the handle's, since the call to be cancelled may hold
 * the object's.  Returns ZKE_OK, or ZKE_IDLE if none runs. */
int zke_recipe_cancel(zke_recipe *r);

/* zke_recipe_has_ended - does rc say that the session has ended?  If so, the
 * object records it; the mutex is held */
bool zke_recipe_has_ended(zke_recipe *r, int rc);

#ifdef __cplusplus
}
#endif

#endif
