/* multilock.h - several locks together: all of them or none
 *
 *     static const zke_multilock_item both[] = {
 *         {"/accounts/ann", ZKE_MULTILOCK_LOCK},
 *         {"/catalog", ZKE_MULTILOCK_READ}};
 *     zke_multilock *ml;
 *     int rc = zke_multilock_new(z, both, 2, NULL, &ml);
 *     if (rc == ZKE_OK) rc = zke_multilock_acquire(ml, zke_now(z) + 5000);
 *     if (rc == ZKE_OK) {
 *       // Both are held.
 *       rc = zke_multilock_release(ml);
 *     }
 *     if (rc != ZKE_OK)
 *       fprintf(stderr, "%s\n", zke_errmsg());  // which one, held by whom
 *     zke_multilock_free(ml);
 *
 * They are the same locks as in lock.h and rwlock.h: a multi-lock excludes
 * processes that use one of these locks alone.
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * multilock.c has the algorithm.  ZooKeeper's page has no such recipe.
 * Curator's InterProcessMultiLock takes its locks one after the other, so two
 * of them can wait for each other; here all places are taken in one step.
 *
 * LAYOUT: one entry in each lock's directory, all made in one step, with one
 * guid and one czxid:
 *
 *     /accounts/ann                     container, data "zkembed lock"
 *       _c_<guid>-lock-0000000004
 *     /catalog                          container, data "zkembed rwlock"
 *       _c_<guid>-__READ__0000000017
 *
 * It holds when the turn of each entry has come, and then marks all of them in
 * one step.  Until then it holds none.  If the wait ends otherwise, by the
 * deadline, cancel, an error or a death, it removes all entries in one step.
 * Each line stays first come first served: while an entry waits for the others,
 * the later entries of its line wait too.  So single locks never starve a
 * multi-lock.  Of two multi-locks the earlier one is before the other in every
 * line they share.  So they cannot block each other, whatever the order in
 * which they name the locks.
 *
 * IF THE PROCESS DIES, holding or waiting, all entries go with its session in
 * one step, and the kernel tells the processes that wait for any of them.  A
 * death before they were made leaves at most empty directories; a death after
 * the release leaves nothing.
 *
 * WHO IS WOKEN: a release wakes the next in each of the lines.
 *
 * COSTS, for N free locks: one write, and two reads for each lock (its
 * directory, its line); a release is one write, and one read for each lock.  A
 * multi-lock that has to wait sets a watch for each lock that it does not have
 * yet and for each of its entries, and marks all its entries in one more write.
 *
 * LOSING THE SESSION, or one of the entries to zke_lock_break(),
 * zke_lock_steal() or a revoker, loses the multi-lock: the listener hears
 * ZKE_MULTILOCK_LOST, zke_multilock_check() fails, and so does a multi that
 * contains zke_multilock_ops().  If it was held, the other locks stay taken
 * until zke_multilock_release() or _free(), since the holder may still be at
 * work on them.  If it waited, it gives up its other entries immediately.
 *
 * FENCING: zke_multilock_token() is one value for all the locks, the zxid at
 * which they were taken.  In each of them it is greater than that of every
 * earlier holder.
 *
 * DEADLOCKS: two multi-locks cannot block each other if their threads hold
 * nothing else.  A thread that holds any lock while it asks for a multi-lock,
 * or holds a multi-lock while it asks for another lock, can still be in a
 * circle.  The search finds it as for lock.h.
 *
 * ON AN ENSEMBLE (zookeeper.h): as for lock.h, for each of its locks.
 *
 * MISTAKES, and their results:
 * - Naming a path twice: ZKE_BADARGUMENTS.
 * - Asking for a multi-lock while the thread holds one of its locks:
 *   ZKE_DEADLOCK.  Name all locks in one multi-lock.
 * - Acquiring what the object already holds: ZKE_MISUSE; it is not reentrant.
 * - Threads that share an object, fork(): as for lock.h.
 */
#ifndef ZKEMBED_RECIPES_MULTILOCK_H
#define ZKEMBED_RECIPES_MULTILOCK_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_multilock zke_multilock;

/* The kind of a path, and how to hold it. */
enum {
  ZKE_MULTILOCK_LOCK = 0,  /* a lock of lock.h */
  ZKE_MULTILOCK_WRITE = 1, /* one of rwlock.h, for writing */
  ZKE_MULTILOCK_READ = 2   /* one of rwlock.h, for reading */
};

/* One of the locks. */
typedef struct zke_multilock_item {
  const char *path;
  int mode; /* ZKE_MULTILOCK_… */
} zke_multilock_item;

/* The states, with the transitions of a lock (lock.h). */
enum {
  ZKE_MULTILOCK_OUT = ZKE_LINE_OUT,
  ZKE_MULTILOCK_WAITING = ZKE_LINE_WAITING,
  ZKE_MULTILOCK_HELD = ZKE_LINE_HELD,
  ZKE_MULTILOCK_LOST = ZKE_LINE_LOST
};

/* Called when the state changes to ZKE_MULTILOCK_HELD (with the token),
 * ZKE_MULTILOCK_OUT (released, or the wait was given up) or ZKE_MULTILOCK_LOST.
 *
 * It may call the object or free it.  With a listener, the object also watches
 * its entries while it holds. */
typedef void (*zke_multilock_fn)(zke_multilock *ml, int state, int64_t token,
                                 void *context);

typedef struct zke_multilock_options {
  size_t size;
  const void *data;      /* shown by the locks' lists of parties; copied */
  int len;               /* bytes of it */
  int no_deadlock_check; /* 1: do not look for circles */
  zke_multilock_fn listener;
  void *context;
} zke_multilock_options;

/* zke_multilock_new - an object for one contender; writes nothing
 *
 *   items,count  the locks, at least one, no path twice; copied
 *   options      NULL for the defaults; copied
 *   ml_out       out; for zke_multilock_free()
 *
 * Returns ZKE_OK, or ZKE_BADARGUMENTS also for no item, an unknown mode, a path
 * twice, a negative len. */
ZKE_API int zke_multilock_new(zke *z, const zke_multilock_item *items,
                              int count, const zke_multilock_options *options,
                              zke_multilock **ml_out);

/* zke_multilock_free - release what it holds, or give up its wait, and release
 * the object */
ZKE_API void zke_multilock_free(zke_multilock *ml);

/* ------------------------------------------------------------------------
 * In and out
 *
 * Example: a transfer between two accounts, which are both locked.  The order
 * in which they are named does not matter.
 *
 *     zke_multilock_item accounts[] = {{"/accounts/ann", ZKE_MULTILOCK_LOCK},
 *                                      {"/accounts/ben", ZKE_MULTILOCK_LOCK}};
 *     rc = zke_multilock_new(z, accounts, 2, NULL, &ml);
 *     if (rc == ZKE_OK) rc = zke_multilock_try(ml);
 *     if (rc == ZKE_HELD) printf("busy: %s\n", zke_errmsg());
 *     zke_multilock_free(ml);
 * --------------------------------------------------------------------- */

/* zke_multilock_acquire - join all lines and wait until all locks are held
 *
 * After zke_multilock_start() it waits in the places that it has.
 *
 * Returns ZKE_OK, or, in none of the lines any more,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names the first missing
 *                         lock, and its holder
 *   ZKE_DEADLOCK          this wait closed a circle
 *   ZKE_LOST              somebody deleted one of its znodes, or another thread
 *                         released or freed the object
 *   ZKE_OTHERKIND         a path does not fit its mode, or belongs to another
 *                         library (lock.h)
 *   ZKE_CANCELLED, ZKE_LIMIT, ZKE_INVALIDSTATE
 *
 * or, with nothing changed,
 *   ZKE_MISUSE            held already, or waited for by another thread's call
 */
ZKE_API int zke_multilock_acquire(zke_multilock *ml, int64_t deadline_ms);

/* zke_multilock_try - hold all now or none
 *
 * Returns ZKE_OK; ZKE_HELD, with a sentence that names the first missing lock
 * and its holder; else as zke_multilock_acquire(). */
ZKE_API int zke_multilock_try(zke_multilock *ml);

/* zke_multilock_start - join all lines without waiting
 *
 * When the turns of all entries have come, inside zke_dispatch(), the listener
 * is told, and zke_multilock_state() tells.
 *
 * Returns as zke_multilock_acquire(), and ZKE_OK even if it waits. */
ZKE_API int zke_multilock_start(zke_multilock *ml);

/* zke_multilock_step - look again now */
ZKE_API int zke_multilock_step(zke_multilock *ml);

/* zke_multilock_release - give up all, in one step; or the wait
 *
 * Returns ZKE_OK, or ZKE_LOST if it was lost, or neither holds nor waits.
 * After any code it holds none any more: the session deletes the remaining
 * znodes as soon as it can (zke_discard()). */
ZKE_API int zke_multilock_release(zke_multilock *ml);

/* zke_multilock_cancel - another thread's blocking call returns ZKE_CANCELLED,
 * unless it has succeeded just before; ZKE_IDLE if none runs */
ZKE_API int zke_multilock_cancel(zke_multilock *ml);

/* ------------------------------------------------------------------------
 * Looking
 *
 * Example: book on both accounts, only while both locks are held.
 *
 *     zke_op ops[4];
 *     rc = zke_multilock_ops(ml, ops, 2);
 *     zke_op_set(&ops[2], "/accounts/ann/balance", "90", 2, -1);
 *     zke_op_set(&ops[3], "/accounts/ben/balance", "110", 3, -1);
 *     if (rc == ZKE_OK) rc = zke_multi(z, ops, 4, NULL);
 * --------------------------------------------------------------------- */

/* zke_multilock_state - ZKE_MULTILOCK_…, from memory
 * zke_multilock_token - the fencing value, or 0 if not held; from memory
 * zke_multilock_check - ask the file: ZKE_OK if all are held, else ZKE_LOST
 * zke_multilock_ops   - one operation for each lock, for a zke_multi() of the
 *                       program, which fails with ZKE_NONODE unless all are
 *                       held; valid until the next call that changes the
 *                       object.  ZKE_LOST if not held.  From memory
 *
 *   count  room in ops: the number of locks, else ZKE_BADARGUMENTS
 *
 * After the session's end, and if the object cannot be used, state is LOST and
 * token 0. */
ZKE_API int zke_multilock_state(zke_multilock *ml);
ZKE_API int64_t zke_multilock_token(zke_multilock *ml);
ZKE_API int zke_multilock_check(zke_multilock *ml);
ZKE_API int zke_multilock_ops(zke_multilock *ml, zke_op *ops, int count);

#ifdef __cplusplus
}
#endif

#endif
