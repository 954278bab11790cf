/* object.c - the object: its life, its calls, threads, the listener, steps
 *
 * An object is entered from three sides: by calls of the program, on several
 * threads; by watchers, which the engine calls inside a dispatch on any thread;
 * and by the listener's calls, from inside these two.  This file lets in one of
 * them at a time, keeps the memory while any is inside, and makes sure that the
 * work for an event is done, even if the first try fails.
 *
 * A call that waits, from top to bottom:
 *
 *     zke_recipe_enter_by()   set the thread's limit, take the mutex
 *     zke_recipe_await()      a loop:
 *       zke_turn()              number of the handle's last event
 *       recipe_look()           step(), if anything has changed
 *       done()                  asks the recipe: is it over?
 *       recipe_may_sleep()      freed, ended, cancelled?
 *       recipe_wait()           deliver notes, release the mutex, sleep until
 *                               the turn changes, take the mutex
 *     zke_recipe_leave()      restore the limit, deliver notes, release the
 *                             mutex
 *
 * An event, on the thread that dispatches:
 *
 *     zke_recipe_watcher()    take the mutex; event(), then step()
 *     recipe_unlock()         deliver notes; if the step has failed, wake the
 *                             sleeping calls, for one of them to look, or set a
 *                             reminder; release the mutex
 *
 * Locks: the object's mutex is taken before the handle's (step() calls the
 * engine), and the engine calls watchers without a lock.  No lock is held while
 * the user's listener runs.
 *
 * Invariants:
 *  1. The mutex is held in every function of a class except deliver() and
 *     destroy().  It is released while the listener runs, while a call sleeps,
 *     and by free.
 *  2. The memory stays while any thread is inside: refs counts free's
 *     reference, each call and each sleep.
 *  3. Notes are delivered one at a time and in order: one thread is the teller
 *     (recipe_unlock()), the others leave their notes to it.
 *  4. `changed` stays set until a look has succeeded.  A thread that releases
 *     the mutex with it set has arranged a later look: by a sleeping call,
 *     which wakes soon by itself or is woken for it (recipe_rouse()), or by a
 *     reminder (recipe_remind()).
 *  5. Cancellation of the thread is off inside, except in recipe_sleep().
 * Begin with zke_recipe_enter() and zke_recipe_leave(); then
 * zke_recipe_watcher(), and zke_recipe_await() for calls that sleep. */
#include "object.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "limit.h"
#include "../support.h"
#include "text.h"

/* A note for the listener, as given to zke_recipe_tell(). */
typedef struct zke_note {
  struct zke_note *next;
  int event, len;
  int64_t number;
  const char *text; /* after the note, in its block; "" of a spare one */
  bool spare;       /* one of the object's RECIPE_SPARES, which are one block */
} zke_note;

/* The number of notes without a text kept for when memory is short.  No call of
 * a recipe tells more: an election tells nine. */
enum { RECIPE_SPARES = 10 };

/* The call that finds the session gone returns the same code as later ones. */
static int recipe_rc(int rc) {
  return rc == ZKE_SESSIONEXPIRED ? ZKE_INVALIDSTATE : rc;
}

/* zke_sync() asks the handle, and once a second the file. */
int zke_recipe_state(zke *z) { return recipe_rc(zke_sync(z, "/")); }

/* ---- life: made ---- */

/* Allocate the spare notes and the reminder now, so telling and looking cannot
 * run out of memory later.  A read-only handle dispatches nothing, so it needs
 * no reminder. */
static int recipe_reserve(zke *z, zke_recipe *r) {
  r->spares = zke_alloc(z, RECIPE_SPARES * sizeof(zke_note));
  if (!r->spares) return ZKE_NOMEM;
  for (int i = 0; i < RECIPE_SPARES; i++) {
    zke_note *next = i + 1 < RECIPE_SPARES ? &r->spares[i + 1] : NULL;
    r->spares[i] = (zke_note){.next = next, .text = "", .spare = true};
  }
  r->spare = r->spares;
  int rc = zke_call_at(z, ZKE_FOREVER, zke_recipe_watcher, r);
  return rc == ZKE_READONLY ? ZKE_OK : rc;
}

/* The engine checks the path, by a read that fails for a malformed one; the
 * node need not exist.  The memory for looking again, and for telling a change
 * of state without a text, is allocated now: so no later shortage makes the
 * object miss events, or the listener miss notes. */
int zke_recipe_new(zke *z, const char *path, const zke_recipe_class *class_,
                   size_t size, zke_recipe **out) {
  if (!out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "the %s's out is NULL",
                           class_->name);
  *out = NULL;
  int rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  rc = zke_exists(z, path, NULL, NULL, NULL); /* checks the path */
  if (rc != ZKE_OK && rc != ZKE_NONODE) return recipe_rc(rc);
  if (path[1] == '\0')
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a %s cannot be at /",
                           class_->name);
  zke_recipe *r = zke_alloc(z, size);
  if (r) r->path = zke_recipe_copy(z, path, strlen(path));
  rc = r && r->path ? recipe_reserve(z, r) : ZKE_NOMEM;
  if (rc != ZKE_OK) {
    if (r) zke_free(r->path);
    if (r) zke_free(r->spares);
    zke_free(r);
    return rc;
  }
  r->class_ = class_;
  r->z = z;
  r->refs = 1;
  r->notes_end = &r->notes;
  pthread_mutex_init(&r->m, NULL);
  pthread_cond_init(&r->told, NULL);
  *out = r;
  return ZKE_OK;
}

/* ---- calls: the thread's cancellation and its limit ---- */

/* Cancellation of this thread is held off while it is inside recipes' calls:
 * depth counts these; state and type are what the outermost has found. */
static _Thread_local struct { int depth, state, type; } recipe_cancel;

/* Hold it off.  The type is set as well, as in the engine: the signal of an
 * asynchronous cancellation may come after the state forbids it. */
static void recipe_cancel_off(void) {
  if (recipe_cancel.depth++ > 0) return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &recipe_cancel.state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &recipe_cancel.type);
}

/* Restore what recipe_cancel_off() has found, if this is the outermost call. */
static void recipe_cancel_back(void) {
  if (--recipe_cancel.depth > 0) return;
  pthread_setcanceltype(recipe_cancel.type, NULL);
  pthread_setcancelstate(recipe_cancel.state, NULL);
}

/* The running call of a recipe on this thread, with its limit.  Its calls of
 * other recipes are part of it and keep within that limit; listeners and
 * watchers are not. */
typedef struct recipe_call {
  zke_recipe *r; /* NULL: none */
  int depth;     /* recipe_cancel's, inside the call */
  bool blocking; /* zke_recipe_cancel() ends it */
  int cancels;   /* r's, when it began */
  int64_t limit; /* the thread's before it, to restore by zke_limit() */
  int64_t grace; /* the same for zke_recipe_grace_swap() */
} recipe_call;

static _Thread_local recipe_call recipe_running;

/* Begin a call, unless this is part of a call that this thread is inside. */
static void recipe_begin(zke_recipe *r, int64_t deadline_ms) {
  if (recipe_running.r) return;
  recipe_running = (recipe_call){.r = r, .depth = recipe_cancel.depth};
  recipe_running.limit = zke_recipe_limit(r->z, deadline_ms);
  recipe_running.grace = zke_recipe_grace_swap(ZKE_GRACE_NEW);
}

/* From here on the call can be cancelled.  `cancels` is read before `running`
 * is raised: so if a cancel sees the call running, the call sees the cancel. */
static void recipe_begin_blocking(zke_recipe *r) {
  if (recipe_running.r != r || recipe_running.blocking) return;
  recipe_running.blocking = true;
  recipe_running.cancels = __atomic_load_n(&r->cancels, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&r->running, 1, __ATOMIC_SEQ_CST);
}

/* A call is over: restore what it has changed.  The object still exists. */
static void recipe_finish(const recipe_call *call) {
  if (call->blocking)
    __atomic_sub_fetch(&call->r->running, 1, __ATOMIC_SEQ_CST);
  zke_limit(call->r->z, call->limit);
  zke_recipe_grace_swap(call->grace);
}

/* End the call that began at this depth; a part of it ends nothing. */
static void recipe_finish_here(zke_recipe *r) {
  recipe_call call = recipe_running;
  if (call.r != r || call.depth != recipe_cancel.depth) return;
  recipe_running.r = NULL;
  recipe_finish(&call);
}

/* Was a cancel of this thread's call requested since it began?  Earlier
 * requests were for an earlier call. */
static bool recipe_is_cancelled(const zke_recipe *r) {
  const recipe_call *call = &recipe_running;
  return call->r == r && call->blocking &&
         __atomic_load_n(&r->cancels, __ATOMIC_SEQ_CST) != call->cancels;
}

/* Fail with ZKE_CANCELLED if a cancel was requested. */
static int recipe_see_cancel(const zke_recipe *r) {
  if (!r || !recipe_is_cancelled(r)) return ZKE_OK;
  return zke_recipe_fail(ZKE_CANCELLED, "the call on the %s %s was cancelled",
                         r->class_->name, r->path);
}

/* Has the thread's limit passed? */
static int recipe_see_limit(zke *z) {
  int64_t limit = zke_limit(z, ZKE_FOREVER);
  zke_limit(z, limit);
  if (zke_now(z) < limit) return ZKE_OK;
  return zke_recipe_fail(ZKE_OPERATIONTIMEOUT,
                         "others changed the tree at each look until the time "
                         "was over");
}

/* Only a missing chroot can make looks repeat for ever: nothing can be made
 * below it, so this checks for it.  All other causes are changes by others; the
 * limit and a cancel end these.  If the chroot cannot be read just now, the
 * next look meets the same failure, with its own pauses. */
bool zke_recipe_again(zke *z, int *rc) {
  if (*rc != ZKE_LOOK_AGAIN) return false;
  *rc = recipe_see_cancel(recipe_running.r);
  if (*rc == ZKE_OK) *rc = recipe_see_limit(z);
  if (*rc != ZKE_OK) return false;
  *rc = zke_exists(z, "/", NULL, NULL, NULL);
  if (*rc == ZKE_OK || zke_recipe_is_transient(*rc)) *rc = ZKE_LOOK_AGAIN;
  return *rc == ZKE_LOOK_AGAIN;
}

/* Repeat tries until one decides.  If others were faster, one of them has made
 * progress, so the next try follows immediately.  Transient failures are
 * counted over all tries.  A lost reply stays in doubt until a look finds that
 * nothing was made.  That look comes after a pause, unless the try itself has
 * looked. */
static int recipe_try(zke *z, int (*fn)(zke *z, void *arg), void *arg,
                      int64_t end) {
  int failed = 0;
  bool unsure = false, again = true;
  int rc = ZKE_OK;
  while (again) {
    rc = fn(z, arg);
    bool settled = unsure && rc == ZKE_NOT_MADE;
    unsure = (unsure && !settled) || zke_recipe_is_lost(rc);
    again = settled || zke_recipe_again(z, &rc);
    if (!again && (rc == ZKE_NOT_MADE || zke_recipe_is_transient(rc)))
      again = zke_recipe_pause(z, ++failed, end);
  }
  return zke_recipe_doubt(rc, unsure);
}

/* A deadline in the past leaves the grace, as for zke_retry(). */
int zke_recipe_do(zke *z, int (*fn)(zke *z, void *arg), void *arg,
                  int64_t deadline_ms) {
  int64_t limit = zke_recipe_limit(z, deadline_ms);
  if (limit == ZKE_FOREVER && deadline_ms == 0)
    zke_limit(z, zke_recipe_patience(z));
  int rc = recipe_try(z, fn, arg, deadline_ms < limit ? deadline_ms : limit);
  zke_limit(z, limit);
  if (rc == ZKE_NOT_MADE)
    return zke_recipe_fail(ZKE_OPERATIONTIMEOUT,
                           "replies were lost until the time was over; nothing "
                           "was changed");
  return zke_recipe_told(rc);
}

/* If the look itself fails, the outcome stays unknown. */
int zke_recipe_settle(zke *z, int rc, int (*look)(zke *z, void *arg), void *arg,
                      const char *path, const char *what) {
  zke_sentence kept;
  if (!zke_recipe_is_failure(rc)) return rc;
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_allow(z);
  int found = zke_retry(z, look, arg, ZKE_FOREVER);
  zke_limit(z, limit);
  if (found == ZKE_OK || found == ZKE_BADVERSION) return found;
  if (found == ZKE_NOT_MADE) return zke_recipe_restore(&kept, rc);
  if (found != ZKE_IN_DOUBT)
    found = zke_recipe_in_doubt("whether %s was %s is not known: %s", path,
                                what, kept.text);
  return zke_recipe_told(found);
}

int zke_recipe_faster(int rc) {
  bool is = rc == ZKE_NONODE || rc == ZKE_NODEEXISTS || rc == ZKE_BADVERSION;
  return is ? ZKE_LOOK_AGAIN : rc;
}

/* A thread that sleeps in a call; lies on its stack. */
typedef struct recipe_sleeper {
  zke_recipe *r;
  recipe_call call;
  int64_t until;                /* the call's limit, zke_limit() */
  bool looks;                   /* it wakes soon by itself, to look again */
  struct recipe_sleeper *next;  /* of the object */
  struct recipe_sleeper *outer; /* of the thread: this one sleeps in a
                                   callback */
} recipe_sleeper;

/* ---- the mutex, and the listener ---- */

/* A new note; NULL without memory.  Only a note without a text can be a spare
 * one. */
static zke_note *recipe_new_note(zke_recipe *r, const char *text, size_t size) {
  zke_note *n = zke_alloc(r->z, sizeof *n + size + 1);
  if (n) {
    char *copy = (char *)(n + 1);
    if (size) memcpy(copy, text, size);
    n->text = copy;
  } else if (!size && r->spare) {
    n = r->spare;
    r->spare = n->next;
    n->next = NULL;
  }
  return n;
}

/* The note was delivered, or never will be.  The mutex is held. */
static void recipe_free_note(zke_recipe *r, zke_note *n) {
  if (!n->spare) {
    zke_free(n);
    return;
  }
  n->next = r->spare;
  r->spare = n;
}

/* Drop the undelivered notes: the object is being freed, or this is a forked
 * child. */
static void recipe_drop_notes(zke_recipe *r) {
  for (zke_note *n = r->notes, *next; n; n = next) {
    next = n->next;
    recipe_free_note(r, n);
  }
  r->notes = NULL;
  r->notes_end = &r->notes;
}

/* Give up a reference.  The last call inside releases the memory, not free: a
 * listener may free its own object, and another thread may just be waking up in
 * it. */
static void recipe_unref(zke_recipe *r) {
  if (__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  recipe_drop_notes(r);
  if (r->class_->destroy) r->class_->destroy(r);
  pthread_cond_destroy(&r->told);
  pthread_mutex_destroy(&r->m);
  zke_free(r->spares);
  zke_free(r->path);
  zke_free(r);
}

/* Enter: the reference keeps the memory until recipe_unlock(). */
static void recipe_lock(zke_recipe *r) {
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
  pthread_mutex_lock(&r->m);
}

/* In a child that was forked in a listener, or in a callback of a wait: take
 * the mutex, which a thread of the parent may have held, and tell nothing more.
 * The handle refuses later calls. */
static void recipe_lock_in_child(zke_recipe *r) {
  pthread_mutex_init(&r->m, NULL);
  pthread_cond_init(&r->told, NULL);
  pthread_mutex_lock(&r->m);
  r->going = true;
  r->sleepers = NULL; /* they are on the stacks of the parent's threads */
  recipe_drop_notes(r);
}

/* Call the listener.  It is not part of this thread's call: its calls have
 * their own deadlines and grace. */
static void recipe_deliver(zke_recipe *r, const zke_note *n) {
  recipe_call call = recipe_running;
  recipe_running.r = NULL;
  int64_t limit = zke_limit(r->z, ZKE_FOREVER);
  int64_t grace = zke_recipe_grace_swap(ZKE_GRACE_NONE);
  r->class_->deliver(r, n->event, n->number, n->text, n->len);
  zke_recipe_grace_swap(grace);
  zke_limit(r->z, limit);
  recipe_running = call;
}

/* The object must look again, and calls sleep on it: wake them, unless one of
 * them wakes soon by itself.  The reason need not be an event, which would wake
 * them: a look may have failed in a call on another thread.  The mutex is held.
 */
static void recipe_rouse(const zke_recipe *r) {
  for (const recipe_sleeper *s = r->sleepers; s; s = s->next) {
    if (s->looks) return;
  }
  zke_wake(r->z);
}

/* If the object must look again, because the last look failed, arrange it: by a
 * sleeping call or, if there is none, in a later dispatch.  Otherwise take back
 * the reminder, if one is set.
 *
 * Set the reminder even while another call runs: that call may fail before it
 * looks.  The pause doubles, up to the time that a call waits for others; so in
 * the end the look is as patient as any call (recipe_step_limit()).  The mutex
 * is held. */
static void recipe_remind(zke_recipe *r) {
  bool done = !r->changed || r->going || r->ended || !r->class_->step;
  if (done && r->reminded)
    zke_call_at(r->z, ZKE_FOREVER, zke_recipe_watcher, r);
  if (done) r->reminded = false;
  if (done || r->reminded) return;
  if (r->sleepers) {
    recipe_rouse(r);
    return;
  }
  int64_t most = zke_recipe_patience(r->z), now = zke_now(r->z);
  r->pause = r->pause ? 2 * r->pause : ZKE_RECIPE_PAUSE_MS;
  if (r->pause > most - now) r->pause = most - now;
  r->reminded =
      zke_call_at(r->z, now + r->pause, zke_recipe_watcher, r) == ZKE_OK;
}

/* Deliver notes until there are none, then leave the object; the mutex is held,
 * and released.
 *
 * Only one thread delivers, the teller; it also delivers notes that others
 * queue in the meantime.  So notes come one at a time and in order, on any
 * thread, and a listener that calls the recipe does not call itself: the call
 * inside it leaves its notes to this loop.  The listener may fork; in the child
 * the other threads' locks mean nothing. */
static void recipe_unlock(zke_recipe *r) {
  zke_note *n;
  if (!r->telling) {
    r->telling = true;
    r->teller = pthread_self();
    while ((n = r->notes) != NULL) {
      r->notes = n->next;
      if (!r->notes) r->notes_end = &r->notes;
      pid_t before = getpid();
      pthread_mutex_unlock(&r->m);
      recipe_deliver(r, n);
      if (getpid() != before)
        recipe_lock_in_child(r);
      else
        pthread_mutex_lock(&r->m);
      recipe_free_note(r, n);
    }
    r->telling = false;
    pthread_cond_broadcast(&r->told);
  }
  recipe_remind(r);
  pthread_mutex_unlock(&r->m);
  recipe_unref(r);
}

/* ---- calls: in and out ---- */

/* The session has ended: report it, once. */
static void recipe_end(zke_recipe *r) {
  if (r->ended) return;
  r->ended = true;
  if (r->class_->ended) r->class_->ended(r);
}

bool zke_recipe_has_ended(zke_recipe *r, int rc) {
  if (recipe_rc(rc) != ZKE_INVALIDSTATE) return false;
  recipe_end(r);
  return true;
}

/* Does the handle's state mean that the object's memory is worthless?  A busy
 * store, a failing disk or an absent server says nothing about what the object
 * holds. */
static bool recipe_is_out(int rc) {
  bool batch = rc == ZKE_MISUSE; /* in its function */
  return rc != ZKE_OK && !batch && !zke_recipe_is_failure(rc);
}

/* Enter a call that has begun, with the handle's state.  On failure the call is
 * over, and nothing is held. */
static int recipe_enter(zke_recipe *r, int rc) {
  if (rc != ZKE_OK && rc != ZKE_INVALIDSTATE) {
    recipe_finish_here(r);
    recipe_cancel_back();
    return rc;
  }
  recipe_lock(r);
  if (rc == ZKE_OK && r->left) {
    rc = zke_recipe_fail(ZKE_CLOSING,
                         "a thread was cancelled inside the %s %s; free it",
                         r->class_->name, r->path);
  } else if (rc == ZKE_OK && r->going) {
    rc = zke_recipe_fail(ZKE_CLOSING, "the %s %s was freed", r->class_->name,
                         r->path);
  }
  return rc == ZKE_OK ? ZKE_OK : zke_recipe_leave(r, rc);
}

/* Without a deadline the whole call may wait for other writers as long as any
 * one call of the handle. */
int zke_recipe_enter(zke_recipe *r) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  recipe_cancel_off();
  recipe_begin(r, zke_recipe_patience(r->z));
  return recipe_enter(r, zke_recipe_state(r->z));
}

/* The handle is asked all the same, since it may learn of the session's end
 * first. */
int zke_recipe_enter_memory(zke_recipe *r) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  recipe_cancel_off();
  recipe_begin(r, zke_recipe_patience(r->z));
  int rc = zke_recipe_state(r->z);
  return recipe_enter(r, recipe_is_out(rc) ? rc : ZKE_OK);
}

/* From here on zke_recipe_cancel() ends the call.  A deadline of 0 has passed;
 * to zke_recipe_limit() it would mean none. */
int zke_recipe_enter_by(zke_recipe *r, int64_t deadline_ms) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  recipe_cancel_off();
  recipe_begin(r, zke_recipe_later(deadline_ms, 1));
  recipe_begin_blocking(r);
  return recipe_enter(r, zke_recipe_state(r->z));
}

/* Keeps the sentence of rc while notes are delivered: a listener may make
 * calls, and these may fail. */
int zke_recipe_leave(zke_recipe *r, int rc) {
  zke_sentence kept;
  rc = recipe_rc(rc);
  if (rc == ZKE_INVALIDSTATE) recipe_end(r); /* whichever call finds it */
  if (rc == ZKE_LOST && r->ended)            /* and that is why it is lost */
    rc = zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
  bool keep = rc != ZKE_OK && r->notes;
  if (keep) zke_recipe_keep(&kept);
  recipe_finish_here(r);
  recipe_unlock(r);
  recipe_cancel_back();
  return keep ? zke_recipe_restore(&kept, rc) : rc;
}

/* ---- steps ----
 *
 * An event is only a hint: the step that follows looks at the tree and does
 * what is due.  So a failed step is repeated, and no event must be remembered.
 */

/* One look.  `changed` is cleared before it, not after it: a step may find that
 * it must be called again, and set it. */
static int recipe_step(zke_recipe *r) {
  if (r->going || r->ended || !r->class_->step) return ZKE_OK;
  r->changed = false;
  int rc = r->class_->step(r);
  if (rc != ZKE_OK) r->changed = true;
  if (!r->changed) r->pause = 0;
  return rc;
}

/* For a recipe that has changed its state and continues in the same call. */
int zke_recipe_look(zke_recipe *r) { return recipe_step(r); }

int zke_recipe_step(zke_recipe *r) {
  int rc = zke_recipe_enter(r);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(r, recipe_step(r));
}

/* The sleep in which this thread dispatches, or NULL. */
static _Thread_local recipe_sleeper *recipe_asleep;

/* Until this time, the steps that watchers make on this thread do not wait for
 * others on a handle, because one of them has just waited as long in vain: so a
 * program that dispatches for many objects waits at most half of its time. */
static _Thread_local struct {
  const zke *z;
  int64_t until;
} recipe_rest;

/* How long a step by a watcher may wait for others: until the earliest of
 * - the time that any call of the handle may wait;
 * - if it is repeated, as long as it has paused;
 * - now, if another step on this thread has just waited in vain;
 * - the limits of the calls that sleep on this thread or on the object: they
 *   cannot continue before the step is over. */
static int64_t recipe_step_limit(const zke_recipe *r, bool again) {
  int64_t now = zke_now(r->z), until = zke_recipe_patience(r->z);
  if (again && r->pause < until - now) until = now + r->pause;
  if (recipe_rest.z == r->z && now < recipe_rest.until) until = now;
  const recipe_sleeper *s = recipe_asleep;
  if (s && s->r->z == r->z && s->until < until) until = s->until;
  for (s = r->sleepers; s; s = s->next) {
    if (s->until < until) until = s->until;
  }
  return until;
}

/* A step by a watcher: it is not part of a call, and has its own limit and
 * grace.  If it has waited in vain, later steps do not wait for the same time.
 */
static void recipe_step_apart(zke_recipe *r, bool again) {
  int64_t began = zke_now(r->z);
  int64_t limit = zke_limit(r->z, recipe_step_limit(r, again));
  int64_t grace = zke_recipe_grace_swap(ZKE_GRACE_NEW);
  int rc = recipe_step(r); /* a sleeping call or a reminder repeats it */
  zke_recipe_grace_swap(grace);
  zke_limit(r->z, limit);
  int64_t now = zke_now(r->z), until = now + (now - began);
  if (!zke_recipe_is_transient(rc)) return; /* it may have lost a reply, too */
  if (recipe_rest.z == r->z && until < recipe_rest.until) return;
  recipe_rest.z = r->z;
  recipe_rest.until = until;
}

/* The engine calls this on the thread that dispatches: for a watch that has
 * fired, for a reminder (ZKE_EVENT_ALARM), for the session's end.  The event is
 * not relied on: the step looks for itself, so one event more or less does no
 * harm. */
void zke_recipe_watcher(zke *z, int type, int state, const char *path,
                        void *context) {
  zke_recipe *r = context;
  bool again = type == ZKE_EVENT_ALARM;
  (void)z;
  recipe_lock(r);
  if (type == ZKE_EVENT_SESSION && state != ZKE_STATE_CONNECTED) {
    recipe_end(r);
  } else if (!r->going) {
    if (!again && r->class_->event) r->class_->event(r, type, path);
    if (again) r->reminded = false;
    if (!again) r->changed = true;
    if (r->changed) recipe_step_apart(r, again);
  }
  recipe_unlock(r);
}

/* True also if there is no listener: then nothing is lost. */
bool zke_recipe_tell(zke_recipe *r, int event, int64_t number, const char *text,
                     int len) {
  if (r->going || !r->class_->deliver) return true;
  zke_note *n = recipe_new_note(r, text, len > 0 ? (size_t)len : 0);
  if (!n) return false;
  n->event = event;
  n->number = number;
  n->len = len;
  *r->notes_end = n;
  r->notes_end = &n->next;
  return true;
}

/* The other notes keep their order. */
bool zke_recipe_untell(zke_recipe *r, int event, const char *text) {
  bool any = false;
  zke_note **at = &r->notes;
  while (*at) {
    zke_note *n = *at;
    bool same = !text || ((size_t)n->len == strlen(text) &&
                          memcmp(n->text, text, (size_t)n->len) == 0);
    if (n->event == event && same) {
      *at = n->next;
      recipe_free_note(r, n);
      any = true;
    } else {
      at = &n->next;
    }
  }
  r->notes_end = at;
  return any;
}

/* ---- sleeping ----
 *
 * A turn is a number of the handle (zke_turn()), which changes when a watcher
 * has run or zke_wake() was called.  A call takes the turn, looks, and sleeps
 * only while the turn is still the same. */

/* Give up what the object holds, with the mutex held: it is being freed.  state
 * is zke_recipe_state()'s; if it is an unrelated failure, quit does what it
 * can. */
static void recipe_quit(zke_recipe *r, int state) {
  r->going = true;
  recipe_drop_notes(r);
  if (state == ZKE_INVALIDSTATE || !r->class_->quit) return;
  int64_t limit = zke_limit(r->z, zke_recipe_patience(r->z));
  int64_t grace = zke_recipe_grace_swap(ZKE_GRACE_NEW);
  r->class_->quit(r);
  zke_recipe_grace_swap(grace);
  zke_limit(r->z, limit);
}

/* A call is about to sleep: the object needs no reminder, and a step on another
 * thread must keep within the call's limit.  The mutex is held. */
static void recipe_lie_down(recipe_sleeper *sleeper) {
  sleeper->next = sleeper->r->sleepers;
  sleeper->r->sleepers = sleeper;
}

/* The sleeper is up; the mutex is held.  In a forked child the list was
 * dropped, so it may be missing there. */
static void recipe_get_up(const recipe_sleeper *sleeper) {
  recipe_sleeper **at = &sleeper->r->sleepers;
  while (*at && *at != sleeper) at = &(*at)->next;
  if (*at) *at = sleeper->next;
}

/* The thread of a blocking call was cancelled while it slept, without the
 * mutex.  Do what leaving the call would have done: the participant is out, and
 * the object can only be freed. */
static void recipe_leave_sleep(void *arg) {
  const recipe_sleeper *sleeper = arg;
  zke_recipe *r = sleeper->r;
  recipe_cancel.depth++; /* counted by enter, as before the sleep */
  recipe_asleep = sleeper->outer;
  pthread_mutex_lock(&r->m);
  recipe_get_up(sleeper);
  r->left = true;
  recipe_quit(r, zke_recipe_state(r->z));
  pthread_mutex_unlock(&r->m);
  zke_wake(r->z); /* another thread may be inside the object */
  if (sleeper->call.r) recipe_finish(&sleeper->call);
  recipe_unref(r); /* the sleep's, not the call's */
  recipe_cancel_back();
}

/* Wait for the handle's next turn, without the mutex.  Only here may
 * cancellation of the thread end a recipe's call, and only if the program
 * itself has called the recipe: a listener's calls are finished.  rc is
 * volatile because pthread_cleanup_push() may be a setjmp(). */
static int recipe_sleep(recipe_sleeper *sleeper, int64_t turn, int64_t until) {
  volatile int rc = ZKE_OK;
  bool outermost = recipe_cancel.depth == 1;
  recipe_running.r = NULL; /* the watchers are not part of it */
  recipe_asleep = sleeper;
  pthread_cleanup_push(recipe_leave_sleep, sleeper);
  if (outermost) recipe_cancel_back();
  rc = zke_wait_turn(sleeper->r->z, turn, until);
  if (outermost) recipe_cancel_off();
  pthread_cleanup_pop(0);
  recipe_asleep = sleeper->outer;
  recipe_running = sleeper->call;
  return rc;
}

/* Wait without the mutex, until the turn changes or the deadline comes.  If a
 * step has had a transient failure, or has asked for another step, it is
 * repeated soon: then the sleep is short, and its end is no timeout.  The sleep
 * has its own reference, since a listener may free the object in the meantime.
 * ZKE_FORKED: a callback has forked, and this is the child. */
static int recipe_wait(zke_recipe *r, int64_t turn, int failures,
                       int64_t deadline_ms) {
  int64_t until = deadline_ms;
  if (r->changed) {
    int64_t times = failures ? failures : 1;
    int64_t soon = zke_now(r->z) + times * ZKE_RECIPE_PAUSE_MS;
    if (soon < until) until = soon;
  }
  recipe_sleeper sleeper = {.r = r,
                            .call = recipe_running,
                            .until = zke_recipe_limit(r->z, 0),
                            .looks = r->changed,
                            .outer = recipe_asleep};
  recipe_lie_down(&sleeper);
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED); /* a listener may free */
  recipe_unlock(r);
  int rc = recipe_sleep(&sleeper, turn, until);
  if (rc == ZKE_FORKED) {
    r->telling = false;
    __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
    recipe_lock_in_child(r);
  } else {
    recipe_lock(r);
  }
  recipe_get_up(&sleeper);
  __atomic_sub_fetch(&r->refs, 1, __ATOMIC_RELAXED);
  if (rc == ZKE_OPERATIONTIMEOUT && until < deadline_ms) rc = ZKE_OK;
  if (rc == ZKE_OK && zke_now(r->z) >= deadline_ms) rc = ZKE_OPERATIONTIMEOUT;
  zke_recipe_has_ended(r, rc);
  return rc;
}

/* Look again if something has changed.  ZKE_OK: the call may wait on, also
 * after a transient failure.  Else the failure that ends the call.  *failures
 * counts consecutive looks that must be repeated. */
static int recipe_look(zke_recipe *r, int *failures) {
  int rc = r->changed ? recipe_step(r) : ZKE_OK;
  *failures = r->changed || rc != ZKE_OK ? *failures + 1 : 0;
  bool passes = zke_recipe_is_transient(rc) && *failures <= ZKE_RETRIES;
  return passes ? ZKE_OK : rc;
}

/* May the call sleep?  Not if the object was freed, the session has ended, or
 * the call was cancelled: nothing would wake it. */
static int recipe_may_sleep(const zke_recipe *r) {
  if (r->going) {
    return zke_recipe_fail(ZKE_CLOSING, "the %s %s was freed", r->class_->name,
                           r->path);
  }
  if (r->ended)
    return zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
  return recipe_see_cancel(r);
}

/* The deadline has come.  Changes just before it count, so look once more, and
 * ask done() once more. */
static int recipe_last_look(zke_recipe *r, int (*done)(zke_recipe *r)) {
  int rc = r->changed ? recipe_step(r) : ZKE_OK;
  if (rc == ZKE_OK) rc = done(r);
  if (rc <= 0) return rc;
  return zke_recipe_fail(ZKE_OPERATIONTIMEOUT,
                         "waited for the %s %s until the deadline",
                         r->class_->name, r->path);
}

/* The turn is taken before the look: anything that happens between the look and
 * the sleep changes the turn, and the sleep ends immediately.  So no event is
 * missed, although the mutex is released in between; nor is
 * zke_recipe_cancel(), which changes the turn, too. */
int zke_recipe_await(zke_recipe *r, int (*done)(zke_recipe *r),
                     int64_t deadline_ms) {
  for (int failures = 0;;) {
    int64_t turn = zke_turn(r->z);
    int rc = recipe_look(r, &failures);
    if (rc != ZKE_OK) return rc;
    rc = done(r);
    if (rc <= 0) return rc;
    rc = recipe_may_sleep(r);
    if (rc != ZKE_OK) return rc;
    rc = recipe_wait(r, turn, failures, deadline_ms);
    if (rc == ZKE_OPERATIONTIMEOUT) return recipe_last_look(r, done);
    if (rc != ZKE_OK && !r->ended) return rc;
  }
}

/* Takes no mutex, since the call to be cancelled may hold it.  The count is
 * raised before the wake, so a woken thread sees it. */
int zke_recipe_cancel(zke_recipe *r) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  if (__atomic_load_n(&r->running, __ATOMIC_SEQ_CST) == 0) {
    return zke_recipe_fail(ZKE_IDLE, "no call on the %s %s is running",
                           r->class_->name, r->path);
  }
  __atomic_add_fetch(&r->cancels, 1, __ATOMIC_SEQ_CST);
  return zke_wake(r->z);
}

/* The order matters: give up, for others to continue immediately; wake the
 * calls that sleep on the object, or are about to and have only this listener
 * to leave; forget the watches, so the engine makes no new call; then wait for
 * a listener that runs on another thread; then give up free's reference.
 *
 * zke_forget() is called without the mutex: it waits for running watchers, and
 * these take the mutex.  In the function of a batch zke_forget() is refused, so
 * a watch would be left with the object: then nothing is done.
 *
 * In a forked child the mutex may be locked for ever by a thread that exists in
 * the parent only.  So nothing is given up there, and only the reference is:
 * the memory is released unless such a thread was inside. */
void zke_recipe_free(zke_recipe *r) {
  if (!r || zke_recipe_state(r->z) == ZKE_MISUSE) return;
  zke *z = r->z;
  recipe_cancel_off();
  int64_t limit = zke_limit(z, zke_recipe_patience(z));
  int rc = zke_recipe_state(z);
  if (rc != ZKE_FORKED) { /* else the mutex may be locked for ever */
    recipe_lock(r);
    recipe_quit(r, rc);
    if (r->sleepers) zke_wake(z);
    pthread_mutex_unlock(&r->m);
    zke_forget(r->z, zke_recipe_watcher, r);
    pthread_mutex_lock(&r->m);
    r->reminded = false; /* by zke_forget() */
    while (r->telling && !pthread_equal(r->teller, pthread_self()))
      pthread_cond_wait(&r->told, &r->m);
    pthread_mutex_unlock(&r->m);
    recipe_unref(r);
  }
  recipe_unref(r);
  zke_limit(z, limit);
  recipe_cancel_back();
}
