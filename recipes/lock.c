/* lock.c - one holder at a time, first come first served
 *
 * The algorithm is ZooKeeper's.  Its code is in line.c, because read/write
 * locks, semaphores and elections share it.  A lock is a line in which one
 * entry may hold, and this is all of it:
 *
 *   acquire
 *     1. Create an ephemeral sequential znode below the lock's node
 *        (zke_line_join).  Its name contains a guid; its data is "waiting", or
 *        "queued" if the call does not block.
 *     2. Read the names of the line, sorted by number (line_look).
 *     3. Own entry missing: it was taken away.  The place is lost.
 *     4. It is the first: it holds (line_take_office).  It writes "held" into
 *        its znode, unless it was first when it was made, or the holder before
 *        it has marked it.
 *     5. Else watch the entry just before it, sleep until that entry has gone,
 *        and go back to 2 (line_wait_on, zke_recipe_await).
 *
 *   release
 *     Look whether the own znode is still there (zke_line_check): if not, the
 *     place was lost, and the caller is told.  Delete the own znode and write
 *     "held" into the next one's, in one transaction (line_grant).  If there
 *     was no next entry at 4, or it has gone, read the names once more to find
 *     it.  If there is none, or the step fails, only delete.
 *
 *   token
 *     The zxid at which the entry began to hold: of its creation if it was
 *     first then, else of the write of "held".
 *
 * Why no two hold.  An entry gets its number in the transaction that makes it,
 * so no entry can come before an existing one.  A thief's can, but the same
 * transaction deletes the holder's.  Every contender sorts the same names in
 * the same way, and only the first of them holds.  A process that was stopped
 * may still believe that it holds.  Then its token is smaller than the next
 * holder's, and zke_lock_op() makes its change fail.
 *
 * Why no entry is forgotten.  The watch of step 5 is set by a read that fails
 * if the entry has gone since step 2; then step 2 is repeated.  So either that
 * entry ends later, and fires the watch, or step 2 sees that it has gone.
 *
 * If a process dies:
 *   before 1         nothing was made
 *   after 1          its session's end deletes the znode, which fires the watch
 *                    of the next entry; that entry goes to 2, and finds the
 *                    entry before, or finds itself the first
 *   in the release   before the commit as above; after it the next one holds
 *
 * If a reply is lost (ZKE_CONNECTIONLOSS: made or not made is unknown):
 *   of 1             look for a name with the guid, and create again only if
 *                    there is none (zke_recipe_create)
 *   of 4             write again: the znode is its own; the later zxid counts
 *   of the release   delete again: it does not matter if the znode has gone
 *                    already.  The next one's data tells it whether the grant
 *                    was made
 *
 * This file counts repeated acquisitions, runs the listener, steals and breaks.
 * Begin with zke_lock_acquire(). */
#include "lock.h"

#include <stdio.h>
#include <string.h>

#include "part/deadlock.h"
#include "part/entry.h"
#include "part/line.h"
#include "part/party.h"
#include "part/text.h"
#include "part/znode.h"

#define LOCK_PLACE "lock" /* the directory's kind, as in its data */

/* Members are read and written with the mutex of l.r held; reentrant, listener
 * and context do not change after zke_lock_new(). */
struct zke_lock {
  zke_line l;    /* the place in the line; first, so that it is the object */
  int reentrant; /* options.reentrant */
  int count;     /* acquisitions to release; 0 unless l holds.  1 or 2 … with
                    `reentrant`, else 1 */
  zke_lock_fn listener;
  void *context;
};

/* ---- the object ----
 *
 * The class is the line's except for two members: the session's end also resets
 * the count, and events go to this recipe's type of listener. */

/* A lock that was acquired several times is lost as a whole. */
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

/* Makes no znode; acquire, try or start makes the first.  A listener must hear
 * when somebody deletes the znode: so with a listener the znode is watched
 * while it holds, not only while it waits. */
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

/* Leaves the line, so the next in line holds immediately.  A thread that sleeps
 * in zke_lock_acquire() is woken and finds the place gone. */
void zke_lock_free(zke_lock *lock) { zke_recipe_free((zke_recipe *)lock); }

/* ---- in and out ----
 *
 * Each call enters the object, asks whether this thread holds already
 * (lock_again()), lets the line do the work, and corrects the count
 * (lock_leave()).
 *
 * The count is 1 after the acquisition that took the lock, by whichever call:
 * zke_lock_start() may take it in a later dispatch, when no function of this
 * file runs.  So a count of 0 while the line holds means 1. */

/* Acquire a held lock once more: true, with the result in *rc.  A thread holds
 * the lock, not the object: another thread is refused, or two of them would be
 * inside.  The file is asked first: otherwise the caller would think that it
 * holds a lost lock. */
static bool lock_again(zke_lock *lock, int *rc) {
  if (lock->l.state != ZKE_LINE_HELD || !lock->reentrant) return false;
  if (lock->l.actor != zke_line_actor()) {
    *rc = zke_recipe_fail(ZKE_MISUSE,
                          "another thread holds the lock %s by this object",
                          lock->l.r.path);
    return true;
  }
  *rc = zke_line_check(&lock->l);
  if (*rc == ZKE_OK) lock->count += lock->count ? 1 : 2; /* 0 means 1 */
  return true;
}

/* Entered with rc, by zke_line_enter() or zke_line_enter_by().  If the lock was
 * lost and not acquired since, reset the count. */
static int lock_entered(zke_lock *lock, int rc) {
  if (rc == ZKE_OK && lock->l.state != ZKE_LINE_HELD) lock->count = 0;
  return rc;
}

/* End a call that may have changed the state; returns rc. */
static int lock_leave(zke_lock *lock, int rc) {
  if (lock->l.state != ZKE_LINE_HELD) lock->count = 0;
  if (rc == ZKE_OK && lock->l.state == ZKE_LINE_HELD && !lock->count)
    lock->count = 1;
  return zke_recipe_leave(&lock->l.r, rc);
}

/* The line does it: read on at zke_line_acquire().  If the process dies in
 * here, at any point, its session's end removes what was made. */
int zke_lock_acquire(zke_lock *lock, int64_t deadline_ms) {
  int rc = lock_entered(lock, zke_line_enter_by((zke_line *)lock, deadline_ms));
  if (rc != ZKE_OK) return rc;
  if (!lock_again(lock, &rc)) rc = zke_line_acquire(&lock->l, deadline_ms);
  return lock_leave(lock, rc);
}

/* As acquire, but leaves immediately if anybody is before it. */
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

/* For a program without a dispatch: looks as after an event. */
int zke_lock_step(zke_lock *lock) {
  int rc = zke_recipe_enter((zke_recipe *)lock);
  if (rc != ZKE_OK) return rc;
  return lock_leave(lock, zke_line_step(&lock->l));
}

/* If a lock was acquired several times, only the last release leaves the line.
 * While the object waits, this ends another thread's acquire with ZKE_LOST.
 * The count does not belong to a thread: any thread may release, as with a
 * semaphore, so one thread can let another release its lock. */
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

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_lock_cancel(zke_lock *lock) {
  return zke_recipe_cancel((zke_recipe *)lock);
}

/* ---- looking ---- */

/* As of the last look; the file may be newer, see zke_lock_check(). */
int zke_lock_state(zke_lock *lock) {
  return zke_line_api_state((zke_line *)lock);
}

int64_t zke_lock_token(zke_lock *lock) {
  return zke_line_api_token((zke_line *)lock);
}

/* Asks the file.  A holder that was stopped for a while may have lost the lock
 * without having dispatched the event that says so. */
int zke_lock_check(zke_lock *lock) {
  return zke_line_api_check((zke_line *)lock);
}

/* The operation checks that the holder's own znode exists.  No other entry ever
 * has its name, because the name contains a guid.  So if the check passes, the
 * lock was held all the time. */
int zke_lock_op(zke_lock *lock, zke_op *op) {
  return zke_line_api_op((zke_line *)lock, op);
}

/* Reads the line without an object; nothing is made. */
int zke_lock_parties(zke *z, const char *path, zke_party_list **list_out) {
  return zke_line_parties(z, path, 1, list_out);
}

/* ---- by force ----
 *
 * Both ways name the victim's znode, which was read before.  That name never
 * comes again.  So whatever happens between the read and the deletion, the
 * deletion can miss, but cannot hit another holder. */

/* The holder's znode, in one block; ZKE_NONODE if there is no holder, or not
 * with this token. */
static int lock_holder(zke *z, const char *path, int64_t token, char **out) {
  int rc = zke_entry_holder(z, path, token, out);
  if (rc != ZKE_NONODE) return rc;
  return zke_recipe_fail(ZKE_NONODE, "the lock %s is not held", path);
}

/* Repeated until the object holds.  Each turn of the loop sees another holder,
 * or none:
 *   none, and the object waits   it may be the first by now: look again
 *   none, and it does not wait   try like any other; somebody may be faster
 *   a holder                     pass it; it may have gone by then, or another
 *                                thief may be in front of this one
 * A turn is repeated only if another participant has moved meanwhile, so the
 * loop does not spin. */
static int lock_steal(zke_lock *lock) {
  zke_line *l = &lock->l;
  int rc;
  do {
    char *victim = NULL;
    rc = zke_line_step(l); /* the own znode may have been taken away */
    if (rc != ZKE_OK || l->state == ZKE_LINE_HELD) return rc;
    rc = lock_holder(l->r.z, l->r.path, 0, &victim);
    if (rc == ZKE_OK) {
      rc = zke_line_jump(l, victim);
      bool waits = rc == ZKE_OK && l->state == ZKE_LINE_WAITING;
      if (rc == ZKE_NONODE || waits) rc = ZKE_LOOK_AGAIN;
    } else if (rc == ZKE_NONODE) {
      rc = l->state == ZKE_LINE_WAITING ? ZKE_HELD : zke_line_try(l);
      if (rc == ZKE_HELD) rc = ZKE_LOOK_AGAIN;
    }
    zke_free(victim);
  } while (zke_recipe_again(l->r.z, &rc));
  return rc;
}

/* If another thread waits with the object, the object cannot steal: that
 * thread's call would suddenly be in the thief's place.
 *
 * A failed theft also gives up the place in which the object waited: else a
 * later dispatch would make it a holder that never releases. */
int zke_lock_steal(zke_lock *lock) {
  int rc = lock_entered(lock, zke_line_enter((zke_line *)lock));
  if (rc != ZKE_OK) return rc;
  if (lock->l.state == ZKE_LINE_HELD || lock->l.blocking) {
    rc = zke_recipe_fail(ZKE_MISUSE,
                         "this object already holds or waits for the lock %s",
                         lock->l.r.path);
  } else {
    rc = lock_steal(lock);
    if (rc != ZKE_OK && lock->l.znode) rc = zke_line_give_up(&lock->l, rc);
  }
  return lock_leave(lock, rc);
}

/* Deletes the holder's znode and holds nothing; this wakes the next in line, as
 * a death does.  With a token only that holding is broken, however long ago the
 * caller has looked. */
int zke_lock_break(zke *z, const char *path, int64_t token) {
  char *victim = NULL;
  int rc = lock_holder(z, path, token, &victim);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_delete(z, victim);
  zke_free(victim);
  return rc;
}

/* ---- the simplest use ---- */

/* Call fn and release.  If both fail, return fn's failure: that is the one that
 * the caller can handle. */
static int lock_do_held(zke_lock *lock, zke_lock_do_fn fn, void *arg) {
  zke_sentence kept;
  int rc = fn(lock->l.r.z, zke_lock_token(lock), arg);
  zke_recipe_keep(&kept);
  int released = zke_lock_release(lock);
  return rc == ZKE_OK ? released : zke_recipe_restore(&kept, rc);
}

/* Runs at the end of lock_do(), and when its thread is cancelled. */
static void lock_do_end(void *lock) { zke_lock_free(lock); }

/* The lock is freed however fn ends, also if its thread is cancelled: hence the
 * cleanup handler, and rc volatile, as pthread_cleanup_push() may be a
 * setjmp(). */
static int lock_do(zke_lock *lock, int64_t deadline_ms, zke_lock_do_fn fn,
                   void *arg) {
  volatile int rc = ZKE_OK;
  pthread_cleanup_push(lock_do_end, lock);
  rc = zke_lock_acquire(lock, deadline_ms);
  if (rc == ZKE_OK) rc = lock_do_held(lock, fn, arg);
  pthread_cleanup_pop(1);
  return rc;
}

/* Makes an object for this one call, and frees it. */
int zke_lock_do(zke *z, const char *path, int64_t deadline_ms,
                zke_lock_do_fn fn, void *arg) {
  zke_lock *lock = NULL;
  if (!fn) return zke_recipe_fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = zke_lock_new(z, path, NULL, &lock);
  return rc == ZKE_OK ? lock_do(lock, deadline_ms, fn, arg) : rc;
}
