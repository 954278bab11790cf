/* lock.c - one holder at a time, first come first served
 *
 * The algorithm is ZooKeeper's.  It stands in line.c, since read/write
 * locks, semaphores and elections share it; a lock is the line in which one
 * entry may hold:
 *
 *   acquire  Make a sequential ephemeral znode below the lock's node
 *            (zke_line_join), then look (line_look).  An entry with nobody
 *            before it holds (line_take_office).  Any other watches the entry
 *            just before it, waits for the end of that one, and looks again
 *            (line_wait_on).  An entry whose own znode has gone has lost its
 *            place.
 *   release  Delete the znode and mark the next entry as the holder, in one
 *            step (line_grant).
 *   death    The session's znodes go with it.  That wakes the next in line and
 *            nobody else, and it finds itself the first.
 *   token    The zxid at which the entry began to hold: of its creation where
 *            it was the first then, else of the write that marked it.
 *
 * Why no two hold: the number of an entry is given in the transaction that
 * makes it, so no entry can come before one that exists, but for a thief's,
 * which deletes the holder's in the same step; and an entry is deleted once.
 * A process that was stopped may still believe that it holds: its token is then
 * smaller than the next one's, and zke_lock_op() makes a change fail.
 *
 * What is here: counting what a thread acquires again, the listener, stealing
 * and breaking. */
#include "lock.h"

#include <stdio.h>
#include <string.h>

#include "deadlock.h"
#include "line.h"
#include "party.h"
#include "text.h"
#include "znode.h"

#define LOCK_PLACE "lock"

struct zke_lock {
  zke_line l;
  int reentrant;
  int count; /* acquisitions of the holder */
  zke_lock_fn listener;
  void *context;
};

/* ---- the object ---- */

/* What was acquired several times is lost as a whole. */
static void lock_ended(zke_recipe *r) {
  ((zke_lock *)r)->count = 0;
  zke_line_ended((zke_line *)r);
}

/* The number is the token, or 0 for a state without one. */
static void lock_deliver(zke_recipe *r, int event, int64_t number,
                         const char *text, int len) {
  zke_lock *lock = (zke_lock *)r;
  (void)text, (void)len;
  if (lock->listener) lock->listener(lock, event, number, lock->context);
}

static const zke_recipe_class lock_class = {.name = "lock",
                                            .event = zke_line_on_event,
                                            .step = zke_line_on_step,
                                            .ended = lock_ended,
                                            .deliver = lock_deliver,
                                            .quit = zke_line_on_quit,
                                            .destroy = zke_line_on_destroy};

/* Makes no znode; the first is made by acquire, try or start.  What a listener
 * needs is that one's own znode is watched, for whoever deletes it. */
int zke_lock_new(zke *z, const char *path, const zke_lock_options *options,
                 zke_lock **lock_out) {
  zke_lock_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(lock_out, options, &o, zke_lock_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &lock_class, sizeof(zke_lock), &r);
  if (rc != ZKE_OK) return rc;
  zke_lock *lock = (zke_lock *)r;
  lock->l.place = LOCK_PLACE;
  lock->l.kind = ZKE_LINE_LOCK;
  lock->l.no_check = o.no_deadlock_check != 0;
  lock->l.watch_own = o.listener != NULL;
  lock->l.data = o.data;
  lock->l.len = o.len;
  lock->reentrant = o.reentrant;
  lock->listener = o.listener;
  lock->context = o.context;
  rc = zke_line_init(&lock->l);
  if (rc == ZKE_OK)
    *lock_out = lock;
  else
    zke_recipe_free(r);
  return rc;
}

/* Whoever agrees on a name needs no path: the base is the application's. */
int zke_lock_new_named(zke *z, const char *base, const char *name,
                       const zke_lock_options *options, zke_lock **lock_out) {
  if (lock_out) *lock_out = NULL;
  if (!base || !name || !*name || strchr(name, '/'))
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "base is NULL, or the name is none of one node");
  int rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  char *path = zke_recipe_path(z, strcmp(base, "/") == 0 ? "" : base, name);
  if (!path) return ZKE_NOMEM;
  rc = zke_lock_new(z, path, options, lock_out);
  zke_free(path);
  return rc;
}

/* Leaves the line, so the next in line holds at once, and wakes a thread that
 * waits inside. */
void zke_lock_free(zke_lock *lock) { zke_recipe_free((zke_recipe *)lock); }

/* ---- in and out ---- */

/* Acquire once more what is held: true, and *rc says how that went.  It is held
 * by a thread: another one is not let in. */
static bool lock_again(zke_lock *lock, int *rc) {
  if (lock->l.state != ZKE_LINE_HELD || !lock->reentrant) return false;
  if (lock->l.actor != zke_line_actor()) {
    *rc = zke_recipe_fail(ZKE_MISUSE,
                          "another thread holds the lock %s by this object",
                          lock->l.r.path);
    return true;
  }
  *rc = zke_line_check(&lock->l);
  if (*rc == ZKE_OK) lock->count += lock->count ? 1 : 2; /* start was one */
  return true;
}

/* Entered with rc, by zke_line_enter() or zke_line_enter_by(). */
static int lock_entered(zke_lock *lock, int rc) {
  if (rc == ZKE_OK && lock->l.state != ZKE_LINE_HELD) lock->count = 0;
  return rc;
}

/* The count belongs to the holding: it begins at 1 with it, whichever call got
 * it, and ends with it. */
static int lock_leave(zke_lock *lock, int rc) {
  if (lock->l.state != ZKE_LINE_HELD) lock->count = 0;
  if (rc == ZKE_OK && lock->l.state == ZKE_LINE_HELD && !lock->count)
    lock->count = 1;
  return zke_recipe_leave(&lock->l.r, rc);
}

/* The line does it: zke_line_acquire() is where to read on. */
int zke_lock_acquire(zke_lock *lock, int64_t deadline_ms) {
  int rc = lock_entered(lock, zke_line_enter_by((zke_line *)lock, deadline_ms));
  if (rc != ZKE_OK) return rc;
  if (!lock_again(lock, &rc)) rc = zke_line_acquire(&lock->l, deadline_ms);
  return lock_leave(lock, rc);
}

/* As acquire, but out again at once where somebody is before it. */
int zke_lock_try(zke_lock *lock) {
  int rc = lock_entered(lock, zke_line_enter((zke_line *)lock));
  if (rc != ZKE_OK) return rc;
  if (!lock_again(lock, &rc)) rc = zke_line_try(&lock->l);
  return lock_leave(lock, rc);
}

/* Joins, and leaves the rest to dispatching: the listener hears HELD. */
int zke_lock_start(zke_lock *lock) {
  int rc = lock_entered(lock, zke_line_enter((zke_line *)lock));
  if (rc != ZKE_OK) return rc;
  if (!lock_again(lock, &rc)) rc = zke_line_join(&lock->l, false, ZKE_FOREVER);
  return lock_leave(lock, rc);
}

/* For a program that has no dispatch: looks as an event would make it look. */
int zke_lock_step(zke_lock *lock) {
  int rc = zke_recipe_enter((zke_recipe *)lock);
  if (rc != ZKE_OK) return rc;
  return lock_leave(lock, zke_line_step(&lock->l));
}

/* Of a lock that was acquired several times only the last release leaves the
 * line.  While it waits, this ends another thread's acquire with ZKE_LOST. */
int zke_lock_release(zke_lock *lock) {
  int rc = zke_recipe_enter((zke_recipe *)lock);
  if (rc != ZKE_OK) return rc;
  if (lock->l.state == ZKE_LINE_HELD && lock->count > 1)
    lock->count--;
  else
    rc = zke_line_release(&lock->l);
  if (lock->l.state != ZKE_LINE_HELD) lock->count = 0;
  return zke_recipe_leave(&lock->l.r, rc);
}

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
int zke_lock_cancel(zke_lock *lock) {
  return zke_recipe_cancel((zke_recipe *)lock);
}

/* ---- looking ---- */

/* What was told last; the file may know better, see zke_lock_check(). */
int zke_lock_state(zke_lock *lock) {
  return zke_line_api_state((zke_line *)lock);
}

int64_t zke_lock_token(zke_lock *lock) {
  return zke_line_api_token((zke_line *)lock);
}

/* Asks the file, for a holder that was stopped for a while. */
int zke_lock_check(zke_lock *lock) {
  return zke_line_api_check((zke_line *)lock);
}

/* Checks the holder's own znode: no other holder has that name. */
int zke_lock_op(zke_lock *lock, zke_op *op) {
  return zke_line_api_op((zke_line *)lock, op);
}

/* Reads the line without an object; nothing is made. */
int zke_lock_parties(zke *z, const char *path, zke_party_list **list_out) {
  return zke_line_parties(z, path, 1, list_out);
}

/* ---- by force ---- */

/* The holder's znode, in one block; ZKE_NONODE where nobody holds it, or not
 * with this token. */
static int lock_holder(zke *z, const char *path, int64_t token, char **out) {
  zke_party_list *list = NULL;
  int rc = zke_lock_parties(z, path, &list);
  if (rc != ZKE_OK) return rc;
  bool found = list->count > 0 && (token == 0 || list->data[0].mzxid == token);
  *out = found ? zke_recipe_path(z, path, list->data[0].name) : NULL;
  zke_free(list);
  if (!found)
    return zke_recipe_fail(ZKE_NONODE, "the lock %s is not held", path);
  return *out ? ZKE_OK : ZKE_NOMEM;
}

/* The holder may go, and the next one come, between the look and the leap. */
static int lock_steal(zke_lock *lock) {
  zke_line *l = &lock->l;
  for (;;) {
    char *victim = NULL;
    int rc = zke_line_step(l); /* one's own znode may have been taken away */
    if (rc != ZKE_OK || l->state == ZKE_LINE_HELD) return rc;
    rc = lock_holder(l->r.z, l->r.path, 0, &victim);
    if (rc == ZKE_NONODE) {
      if (l->state == ZKE_LINE_WAITING) continue;
      rc = zke_line_try(l);
      if (rc == ZKE_HELD) continue;
      return rc;
    }
    if (rc == ZKE_OK) rc = zke_line_jump(l, victim);
    zke_free(victim);
    if (rc != ZKE_NONODE) return rc;
  }
}

/* From the holder of this moment: where it has released meanwhile, whoever
 * holds then is read and robbed anew. */
int zke_lock_steal(zke_lock *lock) {
  int rc = lock_entered(lock, zke_line_enter((zke_line *)lock));
  if (rc != ZKE_OK) return rc;
  if (lock->l.state == ZKE_LINE_HELD || lock->l.blocking) {
    rc = zke_recipe_fail(ZKE_MISUSE, "this lock %s object is in use",
                         lock->l.r.path);
  } else {
    rc = lock_steal(lock);
  }
  return lock_leave(lock, rc);
}

/* Deletes the holder's znode and holds nothing.  With a token only that holding
 * is broken, however long the caller had looked at it. */
int zke_lock_break(zke *z, const char *path, int64_t token) {
  char *victim = NULL;
  int rc = lock_holder(z, path, token, &victim);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_delete(z, victim);
  zke_free(victim);
  return rc;
}

/* ---- the simplest use ---- */

/* A failure of the function's own goes before that of the release. */
static int lock_do_held(zke_lock *lock, zke_lock_do_fn fn, void *arg) {
  zke_sentence kept;
  int rc = fn(lock->l.r.z, zke_lock_token(lock), arg);
  zke_recipe_keep(&kept);
  int released = zke_lock_release(lock);
  return rc == ZKE_OK ? released : zke_recipe_restore(&kept, rc);
}

/* Also what a cancellation of the thread does. */
static void lock_do_end(void *lock) { zke_lock_free(lock); }

/* The lock is freed however fn ends, by the cancellation of its thread too:
 * hence the cleanup handler, and rc volatile, as pthread_cleanup_push() may be
 * a setjmp(). */
static int lock_do(zke_lock *lock, int64_t deadline_ms, zke_lock_do_fn fn,
                   void *arg) {
  volatile int rc = ZKE_OK;
  pthread_cleanup_push(lock_do_end, lock);
  rc = zke_lock_acquire(lock, deadline_ms);
  if (rc == ZKE_OK) rc = lock_do_held(lock, fn, arg);
  pthread_cleanup_pop(1);
  return rc;
}

/* A lock for one call: what is returned is fn's result where the lock was
 * had. */
int zke_lock_do(zke *z, const char *base, const char *name, int64_t deadline_ms,
                zke_lock_do_fn fn, void *arg) {
  zke_lock *lock = NULL;
  if (!fn) return zke_recipe_fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = zke_lock_new_named(z, base, name, NULL, &lock);
  return rc == ZKE_OK ? lock_do(lock, deadline_ms, fn, arg) : rc;
}
