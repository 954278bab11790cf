/* object.c - the object: its life, its calls, threads, the listener, steps
 *
 * An object has a mutex, a count of references, and what it is told from three
 * sides: calls of the program, on several threads; watchers, which the engine
 * calls inside a dispatch; and the listener's own calls, from inside these.
 *
 * Invariants:
 *  1. The mutex is held in every function of a recipe but deliver().  It is
 *     dropped while the listener runs, while a call sleeps, and by free.
 *  2. The memory stays while anybody is inside: refs counts free's own
 *     reference, each call, each sleep and each recipe's hold.
 *  3. Notes are delivered one at a time and in order: one thread is the teller
 *     (recipe_unlock()), the others leave theirs to it.
 *  4. `changed` stays set until a look has succeeded.  Whoever drops the mutex
 *     with it set has a later look arranged: by the sleeping call that will
 *     look, or by a reminder (recipe_remind()).
 *  5. Cancellation of the thread is off inside, but for recipe_sleep().
 *
 * Begin with zke_recipe_enter() and zke_recipe_leave(); then
 * zke_recipe_watcher(), and zke_recipe_await() for calls that sleep. */
#include "object.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "limit.h"
#include "support.h"
#include "text.h"

/* Something for the listener. */
typedef struct zke_note {
  struct zke_note *next;
  int event, len;
  int64_t number;
  char text[];
} zke_note;

/* The call that finds the session gone says so in its own way. */
static int recipe_rc(int rc) {
  return rc == ZKE_SESSIONEXPIRED ? ZKE_INVALIDSTATE : rc;
}

int zke_recipe_state(zke *z) { return recipe_rc(zke_sync(z, "/")); }

/* Have the memory of the reminder now, so that setting it cannot fail for that.
 * A read-only handle dispatches nothing. */
static int recipe_reserve(zke *z, zke_recipe *r) {
  int rc = zke_call_at(z, ZKE_FOREVER, zke_recipe_watcher, r);
  return rc == ZKE_READONLY ? ZKE_OK : rc;
}

/* The path is checked by the engine, by a read that fails for a malformed one;
 * that nothing is there is fine.  All memory that the object will need to look
 * again is had now, so that no later failure for want of memory can leave it
 * deaf. */
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

/* Cancellation of this thread is held off while it is inside recipes' calls:
 * how many, and what the outermost has found. */
static _Thread_local struct { int depth, state, type; } recipe_cancel;

/* The type as well, as the engine does and for its reason: the signal of an
 * asynchronous cancellation may come when the state forbids it already. */
static void recipe_cancel_off(void) {
  if (recipe_cancel.depth++ > 0) return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &recipe_cancel.state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &recipe_cancel.type);
}

/* As recipe_cancel_off() has found it, where this is the outermost call. */
static void recipe_cancel_back(void) {
  if (--recipe_cancel.depth > 0) return;
  pthread_setcanceltype(recipe_cancel.type, NULL);
  pthread_setcancelstate(recipe_cancel.state, NULL);
}

/* The call of a recipe that this thread is inside of, with its deadline.  What
 * it calls of other recipes has the same; listeners and watchers have none. */
typedef struct recipe_call {
  zke_recipe *r; /* NULL: none */
  int depth;     /* recipe_cancel's, inside the call */
  bool blocking; /* zke_recipe_cancel() is for it */
  int cancels;   /* r's, when it began */
  int64_t limit; /* the thread's before it, for zke_limit() */
  int64_t grace; /* … for zke_recipe_grace_swap() */
} recipe_call;

static _Thread_local recipe_call recipe_running;

/* Begin a call, unless this is a part of one. */
static void recipe_begin(zke_recipe *r, int64_t deadline_ms) {
  if (recipe_running.r) return;
  recipe_running = (recipe_call){.r = r, .depth = recipe_cancel.depth};
  recipe_running.limit = zke_recipe_limit(r->z, deadline_ms);
  recipe_running.grace = zke_recipe_grace_swap(ZKE_GRACE_NEW);
}

/* From here on the call can be cancelled. */
static void recipe_begin_blocking(zke_recipe *r) {
  if (recipe_running.r != r || recipe_running.blocking) return;
  recipe_running.blocking = true;
  recipe_running.cancels = __atomic_load_n(&r->cancels, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&r->running, 1, __ATOMIC_SEQ_CST);
}

/* A call is over; the object is still there. */
static void recipe_finish(const recipe_call *call) {
  if (call->blocking)
    __atomic_sub_fetch(&call->r->running, 1, __ATOMIC_SEQ_CST);
  zke_limit(call->r->z, call->limit);
  zke_recipe_grace_swap(call->grace);
}

/* The end of the call that began at this depth. */
static void recipe_finish_here(zke_recipe *r) {
  recipe_call call = recipe_running;
  if (call.r != r || call.depth != recipe_cancel.depth) return;
  recipe_running.r = NULL;
  recipe_finish(&call);
}

/* Was the cancellation of this thread's call asked for since it began? One of
 * before is not for it. */
static bool recipe_is_cancelled(const zke_recipe *r) {
  const recipe_call *call = &recipe_running;
  return call->r == r && call->blocking &&
         __atomic_load_n(&r->cancels, __ATOMIC_SEQ_CST) != call->cancels;
}

/* Nobody is to hear them any more: the object is going, or this is a child. */
static void recipe_drop_notes(zke_recipe *r) {
  for (zke_note *n = r->notes, *next; n; n = next) {
    next = n->next;
    zke_free(n);
  }
  r->notes = NULL;
  r->notes_end = &r->notes;
}

/* The last reference goes with the last call inside, not with free: a listener
 * may free its own object, and another thread may just be waking up in it. */
static void recipe_unref(zke_recipe *r) {
  if (__atomic_sub_fetch(&r->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
  recipe_drop_notes(r);
  if (r->class_->destroy) r->class_->destroy(r);
  pthread_cond_destroy(&r->told);
  pthread_mutex_destroy(&r->m);
  zke_free(r->path);
  zke_free(r);
}

/* Enter: the reference holds the memory until recipe_unlock(). */
static void recipe_lock(zke_recipe *r) {
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
  pthread_mutex_lock(&r->m);
}

/* In a child that was forked in a listener, or in a callback of a wait: take
 * the mutex, which a thread of the parent may have held, and tell nothing any
 * more.  The calls to come are refused by the handle. */
static void recipe_lock_in_child(zke_recipe *r) {
  pthread_mutex_init(&r->m, NULL);
  pthread_cond_init(&r->told, NULL);
  pthread_mutex_lock(&r->m);
  r->going = true;
  r->sleepers = NULL; /* they lie on the stacks of the parent's threads */
  recipe_drop_notes(r);
}

/* Call the listener, which is no part of the call that this thread is in. */
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

/* Where the object is to look again, because the last look failed, and no call
 * sleeps that looks when it wakes: have that done in a later dispatch.  A call
 * that runs is no reason to leave it: it may fail before it has looked.  The
 * pause doubles, up to what a call waits for others; so in the end the look is
 * as patient as any call (recipe_step_limit()).  The mutex is held. */
static void recipe_remind(zke_recipe *r) {
  bool done = !r->changed || r->going || r->ended || !r->class_->step;
  if (done && r->reminded)
    zke_call_at(r->z, ZKE_FOREVER, zke_recipe_watcher, r);
  if (done) r->reminded = false;
  if (done || r->reminded || r->sleepers) return;
  int64_t most = zke_recipe_patience(r->z), now = zke_now(r->z);
  r->pause = r->pause ? 2 * r->pause : ZKE_RECIPE_PAUSE_MS;
  if (r->pause > most - now) r->pause = most - now;
  r->reminded =
      zke_call_at(r->z, now + r->pause, zke_recipe_watcher, r) == ZKE_OK;
}

/* Deliver notes until there are none; the mutex is held, and dropped. */
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
      zke_free(n);
      if (getpid() != before)
        recipe_lock_in_child(r);
      else
        pthread_mutex_lock(&r->m);
    }
    r->telling = false;
    pthread_cond_broadcast(&r->told);
  }
  recipe_remind(r);
  pthread_mutex_unlock(&r->m);
  recipe_unref(r);
}

/* The session has ended: say so, once. */
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

/* Enter a call that has begun. */
static int recipe_enter(zke_recipe *r) {
  int rc = zke_recipe_state(r->z);
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

/* The call may wait for other writers as long as any call of the handle. */
int zke_recipe_enter(zke_recipe *r) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  recipe_cancel_off();
  recipe_begin(r, zke_recipe_patience(r->z));
  return recipe_enter(r);
}

/* From here on zke_recipe_cancel() ends the call.  A deadline of 0 is one that
 * has passed; to zke_recipe_limit() it would mean none. */
int zke_recipe_enter_by(zke_recipe *r, int64_t deadline_ms) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  recipe_cancel_off();
  recipe_begin(r, zke_recipe_later(deadline_ms, 1));
  recipe_begin_blocking(r);
  return recipe_enter(r);
}

/* The sentence of rc is kept while notes are delivered: a listener may make
 * calls of its own, and these may fail. */
int zke_recipe_leave(zke_recipe *r, int rc) {
  zke_sentence kept;
  rc = recipe_rc(rc);
  if (rc == ZKE_INVALIDSTATE) recipe_end(r); /* whichever call has found it */
  if (rc == ZKE_LOST && r->ended)            /* and that is why it is lost */
    rc = zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
  bool keep = rc != ZKE_OK && r->notes;
  if (keep) zke_recipe_keep(&kept);
  recipe_finish_here(r);
  recipe_unlock(r);
  recipe_cancel_back();
  return keep ? zke_recipe_restore(&kept, rc) : rc;
}

/* The mutex is not held here: the reference alone keeps the memory. */
void zke_recipe_hold(zke_recipe *r) {
  __atomic_add_fetch(&r->refs, 1, __ATOMIC_RELAXED);
}

void zke_recipe_drop(zke_recipe *r) { recipe_unref(r); }

/* `changed` is taken back before the look, not after it: what fires during the
 * look sets it again. */
static int recipe_step(zke_recipe *r) {
  if (r->going || r->ended || !r->class_->step) return ZKE_OK;
  r->changed = false;
  int rc = r->class_->step(r);
  if (rc != ZKE_OK) r->changed = true;
  if (!r->changed) r->pause = 0;
  return rc;
}

/* For a program that has no dispatch: looks as an event would make it look. */
int zke_recipe_look(zke_recipe *r) { return recipe_step(r); }

int zke_recipe_step(zke_recipe *r) {
  int rc = zke_recipe_enter(r);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(r, recipe_step(r));
}

/* A thread that sleeps in a call. */
typedef struct recipe_sleeper {
  zke_recipe *r;
  recipe_call call;
  int64_t until;                /* the call's limit, zke_limit() */
  struct recipe_sleeper *next;  /* of the object */
  struct recipe_sleeper *outer; /* of the thread: it sleeps in a callback */
} recipe_sleeper;

/* The sleep whose dispatches this thread makes, or NULL. */
static _Thread_local recipe_sleeper *recipe_asleep;

/* Until when the steps that watchers make on this thread do not wait for others
 * on a handle, because one has waited as long in vain: so a host that
 * dispatches for many objects is kept half of its time at most. */
static _Thread_local struct {
  const zke *z;
  int64_t until;
} recipe_rest;

/* Until when a step that a watcher makes may wait for others: as long as any
 * call does, but no longer than a call that waits for it, on this thread or on
 * another, and one that was made again no longer than it has paused. */
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

/* A step by a watcher, which is a call of its own. */
static void recipe_step_apart(zke_recipe *r, bool again) {
  int64_t began = zke_now(r->z);
  int64_t limit = zke_limit(r->z, recipe_step_limit(r, again));
  int64_t grace = zke_recipe_grace_swap(ZKE_GRACE_NEW);
  int rc = recipe_step(r); /* who awaits repeats a failure, or a reminder */
  zke_recipe_grace_swap(grace);
  zke_limit(r->z, limit);
  int64_t now = zke_now(r->z), until = now + (now - began);
  if (rc != ZKE_OPERATIONTIMEOUT) return;
  if (recipe_rest.z == r->z && until < recipe_rest.until) return;
  recipe_rest.z = r->z;
  recipe_rest.until = until;
}

/* The engine calls this on whichever thread dispatches.  What happens to be
 * true is not taken from the event: the step looks for itself, so one event
 * more or less does no harm. */
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

/* With nobody to deliver to there is nothing to lose: true. */
bool zke_recipe_tell(zke_recipe *r, int event, int64_t number, const char *text,
                     int len) {
  size_t size = len > 0 ? (size_t)len : 0;
  if (r->going || !r->class_->deliver) return true;
  zke_note *n = zke_alloc(r->z, sizeof *n + size + 1);
  if (!n) return false;
  n->event = event;
  n->number = number;
  n->len = len;
  if (size) memcpy(n->text, text, size);
  *r->notes_end = n;
  r->notes_end = &n->next;
  return true;
}

/* Give up what the object holds, with the mutex held: it is going.  state is
 * zke_recipe_state()'s; where it could not be told, quit does what it can. */
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

/* A call is about to sleep; the mutex is held. */
static void recipe_lie_down(recipe_sleeper *sleeper) {
  sleeper->next = sleeper->r->sleepers;
  sleeper->r->sleepers = sleeper;
}

/* The sleeper is up; the mutex is held.  In a child it is in no list. */
static void recipe_get_up(const recipe_sleeper *sleeper) {
  recipe_sleeper **at = &sleeper->r->sleepers;
  while (*at && *at != sleeper) at = &(*at)->next;
  if (*at) *at = sleeper->next;
}

/* The thread of a blocking call was cancelled while it slept, without the
 * mutex: the participant is out, and the object good for nothing but free. */
static void recipe_leave_sleep(void *arg) {
  const recipe_sleeper *sleeper = arg;
  zke_recipe *r = sleeper->r;
  recipe_cancel.depth++; /* what enter has counted, as before the sleep */
  recipe_asleep = sleeper->outer;
  pthread_mutex_lock(&r->m);
  recipe_get_up(sleeper);
  r->left = true;
  recipe_quit(r, zke_recipe_state(r->z));
  pthread_mutex_unlock(&r->m);
  zke_wake(r->z); /* another thread may be inside the object */
  if (sleeper->call.r) recipe_finish(&sleeper->call);
  recipe_unref(r); /* the sleep's, in place of the call's */
  recipe_cancel_back();
}

/* Wait for the handle's next turn.  Here alone a recipe's call may be left by
 * the cancellation of its thread, and only where the recipe was called by the
 * program itself: what a listener calls is finished. */
static int recipe_sleep(recipe_sleeper *sleeper, int64_t turn, int64_t until) {
  volatile int rc = ZKE_OK;
  bool outermost = recipe_cancel.depth == 1;
  recipe_running.r = NULL; /* the watchers are no part of it */
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

/* Wait without the mutex; a step that failed for the time being is repeated
 * soon. */
static int recipe_wait(zke_recipe *r, int64_t turn, int step, int failures,
                       int64_t deadline_ms) {
  int64_t until = deadline_ms;
  if (zke_recipe_is_transient(step)) {
    int64_t soon = zke_now(r->z) + (int64_t)failures * ZKE_RECIPE_PAUSE_MS;
    if (soon < until) until = soon;
  }
  recipe_sleeper sleeper = {.r = r,
                            .call = recipe_running,
                            .until = zke_recipe_limit(r->z, 0),
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

/* Look again where something has changed.  ZKE_OK: the call may wait on; also
 * after a failure that may pass, which *failures counts and *step tells.  Else
 * the failure that ends the call. */
static int recipe_look(zke_recipe *r, int *step, int *failures) {
  *step = r->changed ? recipe_step(r) : ZKE_OK;
  *failures = *step == ZKE_OK ? 0 : *failures + 1;
  bool passes = zke_recipe_is_transient(*step) && *failures <= ZKE_RETRIES;
  return passes ? ZKE_OK : *step;
}

/* May the call sleep?  Not where nothing could end that sleep for good: the
 * object was freed, the session has ended, or the call was cancelled. */
static int recipe_may_sleep(const zke_recipe *r) {
  if (r->going) {
    return zke_recipe_fail(ZKE_CLOSING, "the %s %s was freed", r->class_->name,
                           r->path);
  }
  if (r->ended)
    return zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
  if (!recipe_is_cancelled(r)) return ZKE_OK;
  return zke_recipe_fail(ZKE_CANCELLED, "waiting for the %s %s was cancelled",
                         r->class_->name, r->path);
}

/* The deadline has come: what has happened just before it counts. */
static int recipe_last_look(zke_recipe *r, int (*done)(zke_recipe *r)) {
  int rc = r->changed ? recipe_step(r) : ZKE_OK;
  if (rc == ZKE_OK) rc = done(r);
  if (rc <= 0) return rc;
  return zke_recipe_fail(ZKE_OPERATIONTIMEOUT,
                         "waited for the %s %s until the deadline",
                         r->class_->name, r->path);
}

/* The turn is taken before the look: what happens between the look and the
 * sleep has a later turn, and the sleep ends at once.  So no event is missed
 * though the mutex is dropped in between. */
int zke_recipe_await(zke_recipe *r, int (*done)(zke_recipe *r),
                     int64_t deadline_ms) {
  for (int step, failures = 0;;) {
    int64_t turn = zke_turn(r->z);
    int rc = recipe_look(r, &step, &failures);
    if (rc != ZKE_OK) return rc;
    rc = done(r);
    if (rc <= 0) return rc;
    rc = recipe_may_sleep(r);
    if (rc != ZKE_OK) return rc;
    rc = recipe_wait(r, turn, step, failures, deadline_ms);
    if (rc == ZKE_OPERATIONTIMEOUT) return recipe_last_look(r, done);
    if (rc != ZKE_OK && !r->ended) return rc;
  }
}

/* Takes no mutex, since the call that is to be cancelled may hold it.  The
 * count goes up before the wake, so whoever wakes sees it. */
int zke_recipe_cancel(zke_recipe *r) {
  if (!r) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  if (__atomic_load_n(&r->running, __ATOMIC_SEQ_CST) == 0) {
    return zke_recipe_fail(ZKE_IDLE, "no call on the %s %s is running",
                           r->class_->name, r->path);
  }
  __atomic_add_fetch(&r->cancels, 1, __ATOMIC_SEQ_CST);
  return zke_wake(r->z);
}

/* Order matters: give up, so that others go on at once; forget the watches, so
 * that no new call comes in from the engine; then wait for a listener that runs
 * on another thread.  Without the handle, in a forked child, the mutex may
 * never come free, and the memory is left as it is. */
void zke_recipe_free(zke_recipe *r) {
  if (!r) return;
  zke *z = r->z;
  recipe_cancel_off();
  int64_t limit = zke_limit(z, zke_recipe_patience(z));
  int rc = zke_recipe_state(z);
  if (rc != ZKE_FORKED) { /* else the mutex may be locked for ever */
    recipe_lock(r);
    recipe_quit(r, rc);
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
