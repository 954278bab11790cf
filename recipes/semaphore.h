/* semaphore.h - N permits and no more, first come first served
 *
 *     zke_semaphore_options o = ZKE_INIT(zke_semaphore_options);
 *     zke_semaphore *sem;
 *     o.limit = 3;
 *     int rc = zke_semaphore_new(z, "/limits/encoder", &o, &sem);
 *     if (rc == ZKE_OK) rc = zke_semaphore_acquire(sem, 1, zke_now(z) + 5000);
 *     if (rc == ZKE_OK) {
 *       // At most three are here.
 *       rc = zke_semaphore_release(sem);
 *     }
 *     if (rc != ZKE_OK)
 *       fprintf(stderr, "%s\n", zke_errmsg());  // who holds one, since when
 *     zke_semaphore_free(sem);
 *
 * LAYOUT:
 *
 *     /limits/encoder                   container, data "zkembed semaphore\n
 *                                       limit 3\n"
 *       _c_<guid>-lease-0000000000      one permit, held
 *       _c_<guid>-lease-0000000001      two permits of one acquisition: the
 *       _c_<guid>-lease-0000000002      same guid, made in one step; held
 *       _c_<guid>-lease-0000000003      waits for one of the three to go
 *
 * A znode is a permit.  An acquisition holds when fewer znodes than the limit
 * are before its last one: so it has all of its permits or none, and no small
 * acquisition overtakes a large one.
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * semaphore.c has the algorithm.  Curator's InterProcessSemaphoreV2 does the
 * same with a lock in front of the leases; here the place in the line is
 * enough.  Use a lock (lock.h) for a limit of 1: it costs one write less.
 *
 * THE LIMIT is in the directory, the same for all.  An object that states
 * another limit is refused; an object that states none uses the existing one.
 * zke_semaphore_resize() changes it: waiting acquisitions continue under the
 * new limit, and holders keep their permits.  An acquisition that could have
 * held under the old limit, but has not looked yet, may still come in.  A
 * container goes when it has been empty for a while, and a changed limit with
 * it.  If the limit must stay, make the semaphore by zke_semaphore_resize()
 * before its first use.
 *
 * IF THE PROCESS DIES, holding or waiting, all its permits go with its session,
 * in one step, and the kernel tells the processes that wait for them.  A death
 * before they were made, or after the release, leaves nothing.  Dying inside
 * zke_semaphore_resize() leaves the old limit or the new one.
 *
 * WHO IS WOKEN: a release wakes the acquisitions that it can bring nearer to
 * their turn, at most as many as the limit.  Later ones sleep on, and a stopped
 * one delays no other.  A change of the limit wakes all that wait.
 *
 * COSTS: acquiring free permits takes two writes (the znodes are made, in one
 * step; the last one is marked) and two reads; a release is one write, and one
 * read for each permit.  A waiting acquisition sets a watch on at most as many
 * entries as the limit, on the directory, and on each of its own znodes.  A
 * permit is a znode, so limits are for tens and hundreds.
 *
 * A PERMIT COMES BACK ONCE: a release deletes exactly the znodes of this
 * acquisition, however often it is called or repeated.  (Other libraries keep a
 * counter of free permits, which can be raised twice.)
 *
 * LOSING THE SESSION, or one of the object's znodes, loses all permits of the
 * object: the listener hears ZKE_SEMAPHORE_LOST, zke_semaphore_check() fails,
 * and so does a multi that contains zke_semaphore_op().
 *
 * FENCING: zke_semaphore_token() is the zxid at which the permits were taken,
 * greater than that of every earlier acquisition.
 *
 * DEADLOCKS are found as for lock.h.  An acquisition is stuck if stuck threads
 * hold so many permits that the rest is not enough for it.
 *
 * ON AN ENSEMBLE (zookeeper.h): by the ensemble's order of changes, never more
 * permits than the limit are out; the rest is as for lock.h.
 *
 * MISTAKES, and their results:
 * - Acquiring with an object that holds permits: ZKE_MISUSE.  An object is one
 *   acquisition; two of them at a time need two objects.
 * - Giving back some of the permits: there is no such call.  Acquire them with
 *   several objects.
 * - Two programs that state different limits: the second gets ZKE_LIMIT.
 * - Threads that share an object, fork(): as for lock.h.
 */
#ifndef ZKEMBED_RECIPES_SEMAPHORE_H
#define ZKEMBED_RECIPES_SEMAPHORE_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_semaphore zke_semaphore;

/* The states, with the transitions of a lock (lock.h). */
enum {
  ZKE_SEMAPHORE_OUT = ZKE_LINE_OUT,
  ZKE_SEMAPHORE_WAITING = ZKE_LINE_WAITING,
  ZKE_SEMAPHORE_HELD = ZKE_LINE_HELD,
  ZKE_SEMAPHORE_LOST = ZKE_LINE_LOST
};

/* Called when the state changes to ZKE_SEMAPHORE_HELD (with the token),
 * ZKE_SEMAPHORE_OUT (released, or the wait was given up) or ZKE_SEMAPHORE_LOST.
 *
 * It may call the object or free it.  With a listener, the object also watches
 * its own znodes while it holds.
 *
 * Example: an encoder in an event loop.  It starts when it gets a permit.
 *
 *     static void turn(zke_semaphore *sem, int state, int64_t token, void *c) {
 *       (void)c, (void)token;
 *       if (state == ZKE_SEMAPHORE_HELD) {
 *         puts("encoding");
 *         zke_semaphore_release(sem);
 *       }
 *     }
 *
 *     static int begin(zke *z, zke_semaphore **sem) {
 *       zke_semaphore_options o = ZKE_INIT(zke_semaphore_options);
 *       o.limit = 3;
 *       o.listener = turn;
 *       int rc = zke_semaphore_new(z, "/limits/encoder", &o, sem);
 *       return rc == ZKE_OK ? zke_semaphore_start(*sem, 1) : rc;
 *     }
 */
typedef void (*zke_semaphore_fn)(zke_semaphore *sem, int state, int64_t token,
                                 void *context);

typedef struct zke_semaphore_options {
  size_t size;
  int limit;        /* permits in all; 0: the limit of the existing semaphore */
  const void *data; /* shown to others by zke_semaphore_parties(); copied */
  int len;          /* bytes of it */
  int no_deadlock_check; /* 1: do not look for circles */
  zke_semaphore_fn listener;
  void *context;
} zke_semaphore_options;

/* zke_semaphore_new - an object for one acquisition at a time; writes nothing
 *
 *   path     of the semaphore; made as a container when first needed, if a
 *            limit is stated
 *   options  NULL for the defaults; copied
 *   sem_out  out; for zke_semaphore_free()
 *
 * Returns ZKE_OK, or ZKE_BADARGUMENTS also for a limit or a len below 0.  The
 * limit is compared with the directory's when permits are first asked for. */
ZKE_API int zke_semaphore_new(zke *z, const char *path,
                              const zke_semaphore_options *options,
                              zke_semaphore **sem_out);

/* zke_semaphore_free - release what it holds, or give up its wait, and release
 * the object */
ZKE_API void zke_semaphore_free(zke_semaphore *sem);

/* ------------------------------------------------------------------------
 * In and out
 *
 * Example: two permits for a large film, or none; wait for at most a minute.
 *
 *     rc = zke_semaphore_acquire(sem, 2, zke_now(z) + 60000);
 *     if (rc == ZKE_OK) {
 *       // work
 *       rc = zke_semaphore_release(sem);
 *     } else if (rc == ZKE_LIMIT) {
 *       fprintf(stderr, "never: %s\n", zke_errmsg());
 *     }
 * --------------------------------------------------------------------- */

/* zke_semaphore_acquire - wait until the permits are held
 *
 * After zke_semaphore_start() it waits in the place that it has, for the
 * permits asked for then.
 *
 *   permits      1 or more, all or none of them
 *
 * Returns ZKE_OK, or, with no permit and no place in the line,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names a holder
 *   ZKE_DEADLOCK          this wait closed a circle
 *   ZKE_LIMIT             more permits than the limit, also if it was lowered
 *                         while waiting; or, at the object's first use,
 *                         options.limit is not the existing one; or the
 *                         directory has given all its numbers
 *   ZKE_NONODE            no limit stated and no semaphore exists
 *   ZKE_LOST              somebody deleted one of its znodes, or another thread
 *                         released or freed the object
 *   ZKE_OTHERKIND         the path is not a semaphore's, or another library's
 *                         (lock.h)
 *   ZKE_CANCELLED, ZKE_INVALIDSTATE
 *
 * or, with nothing changed,
 *   ZKE_MISUSE            the object holds permits, or waits in another call
 *   ZKE_BADARGUMENTS      permits below 1 */
ZKE_API int zke_semaphore_acquire(zke_semaphore *sem, int permits,
                                  int64_t deadline_ms);

/* zke_semaphore_try - hold them now or not at all
 *
 * Returns ZKE_OK; ZKE_HELD, with a sentence that names a holder; else as
 * zke_semaphore_acquire(). */
ZKE_API int zke_semaphore_try(zke_semaphore *sem, int permits);

/* zke_semaphore_start - join the line without waiting
 *
 * When the turn has come, inside zke_dispatch(), the listener is told, and
 * zke_semaphore_state() tells.  If the limit is lowered below the permits asked
 * for, the wait ends by itself: ZKE_SEMAPHORE_OUT.
 *
 * Returns as zke_semaphore_acquire(), and ZKE_OK even if it waits. */
ZKE_API int zke_semaphore_start(zke_semaphore *sem, int permits);

/* zke_semaphore_step - look again now */
ZKE_API int zke_semaphore_step(zke_semaphore *sem);

/* zke_semaphore_release - give back all permits of the object; or the wait
 *
 * Returns ZKE_OK; ZKE_LOST if it neither holds nor waits, or was lost, and
 * nothing is given back.  After any other code it holds none any more either,
 * and the session gives them back as soon as it can (zke_discard()).  Any
 * thread may release, not only the one that acquired. */
ZKE_API int zke_semaphore_release(zke_semaphore *sem);

/* zke_semaphore_cancel - another thread's blocking call returns ZKE_CANCELLED,
 * unless it has succeeded just before; ZKE_IDLE if none runs */
ZKE_API int zke_semaphore_cancel(zke_semaphore *sem);

/* ------------------------------------------------------------------------
 * Looking
 *
 * Example: count what was encoded, only while the permit is held.
 *
 *     zke_op ops[2];
 *     rc = zke_semaphore_op(sem, &ops[0]);
 *     zke_op_set(&ops[1], "/films/1", "encoded", 7, -1);
 *     if (rc == ZKE_OK) rc = zke_multi(z, ops, 2, NULL);
 * --------------------------------------------------------------------- */

/* zke_semaphore_state   - ZKE_SEMAPHORE_…, from memory
 * zke_semaphore_token   - the fencing value, or 0 if not held; from memory
 * zke_semaphore_permits - the number held, or 0; from memory
 * zke_semaphore_check   - ask the file: ZKE_OK if all are held, else ZKE_LOST
 * zke_semaphore_op      - fill *op with an operation for a zke_multi() of the
 *                         program, which fails with ZKE_NONODE unless they are
 *                         held (it looks at the last one); valid until the
 *                         next call that changes the object.  ZKE_LOST if not
 *                         held, ZKE_BADARGUMENTS for a NULL op.  From memory
 *
 * After the session's end, and if the object cannot be used, state is LOST,
 * token and permits are 0. */
ZKE_API int zke_semaphore_state(zke_semaphore *sem);
ZKE_API int64_t zke_semaphore_token(zke_semaphore *sem);
ZKE_API int zke_semaphore_permits(zke_semaphore *sem);
ZKE_API int zke_semaphore_check(zke_semaphore *sem);
ZKE_API int zke_semaphore_op(zke_semaphore *sem, zke_op *op);

/* ------------------------------------------------------------------------
 * The limit, and the holders; without an object
 * --------------------------------------------------------------------- */

/* zke_semaphore_resize - change the limit; if there is no semaphore, make one
 * that stays
 *
 * Under a lowered limit, acquisitions that could not have held before come in
 * only when enough have released.  It costs one read and one write, which is
 * synced.
 *
 * Example: a second graphics card.  Waiting acquisitions may come in
 * immediately.
 *
 *     rc = zke_semaphore_resize(z, "/limits/encoder", 6, deadline);
 *
 *   limit        1 or more, else ZKE_BADARGUMENTS
 *   deadline_ms  for repeating calls that got no reply
 *
 * Returns ZKE_OK, even if it was the limit already; ZKE_OTHERKIND; or as
 * zke_set().  Repeating it is safe. */
ZKE_API int zke_semaphore_resize(zke *z, const char *path, int limit,
                                 int64_t deadline_ms);

/* zke_semaphore_limit - the limit that a semaphore has now
 *
 *   limit_out  out, not NULL
 *
 * Returns ZKE_OK, ZKE_NONODE if there is none, or ZKE_OTHERKIND. */
ZKE_API int zke_semaphore_limit(zke *z, const char *path, int *limit_out);

/* zke_semaphore_parties - the holders of permits and the waiting participants,
 * in order, an entry for each, with its number of permits
 *
 *   list_out  count 0 for an unused semaphore
 *
 * Returns as zke_lock_parties(). */
ZKE_API int zke_semaphore_parties(zke *z, const char *path,
                                  zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
