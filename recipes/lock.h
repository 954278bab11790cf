/* lock.h - one holder at a time, first come first served
 *
 *     zke_lock *lock;
 *     int rc = zke_lock_new(z, "/locks/backup", NULL, &lock);
 *     if (rc == ZKE_OK) rc = zke_lock_acquire(lock, zke_now(z) + 5000);
 *     if (rc == ZKE_OK) {
 *       // Only one process is here; zke_lock_token(lock) is the fencing value
 *       // for what is protected.
 *       rc = zke_lock_release(lock);
 *     }
 *     if (rc != ZKE_OK)
 *       fprintf(stderr, "%s\n", zke_errmsg());  // who holds it, since when
 *     zke_lock_free(lock);
 *
 * LAYOUT, as Curator's InterProcessMutex:
 *
 *     /locks/backup                     container, data "zkembed lock"
 *       _c_<guid>-lock-0000000000       holds: the lowest number
 *       _c_<guid>-lock-0000000001       waits, watching the one before it
 *       _c_<guid>-front-0000000002      stole it: before all others
 *
 * IF THE PROCESS DIES after making its znode, holding or waiting, the znode
 * goes with its session: whoever waits behind it is told by the kernel and
 * goes on.  Before that nothing was left behind; after the release nothing is.
 * A release is one step: the znode goes and, where the holder saw the next in
 * line when it took office, that one is marked as the holder.  If the next one
 * dies before it looks, its znode goes like any holder's.
 *
 * WHO IS WOKEN: a release wakes the next in line and nobody else.
 *
 * LOSING THE SESSION, or one's znode to zke_lock_break() or a thief, loses the
 * lock: the listener hears ZKE_LOCK_LOST, zke_lock_check() and whatever has
 * zke_lock_op() in its multi fail.  Nothing stops the process itself: guard
 * what must not happen twice with the op (same database) or the token.
 *
 * FENCING: zke_lock_token() is the zxid of taking office, greater than that of
 * every holder before: of the release that granted it, or of one's own write.
 *
 * DEADLOCKS: of several locks, read/write locks, semaphores and multi-locks
 * that block each other in a circle, the call that closed the circle fails with
 * ZKE_DEADLOCK and a sentence that tells it.  A holder is the thread that
 * acquired.  Found is a circle
 * - of threads of one process or of several, or of one thread that waits for
 *   what it holds itself, each of which holds and waits by one handle;
 * - whose every wait is a blocking call: zke_lock_start() waits for nothing, as
 *   its thread can go on;
 * - that the session of the closing call can see: one opened on a part of the
 *   tree (zke_options.chroot) looks at that part alone, and objects with
 *   no_deadlock_check do not look;
 * - that is there at one moment: no call fails for one that was not.
 * Not found, so that a deadline alone ends it, is a circle in which
 * - a thread waits by another handle than the one by which it holds: one thread
 *   with two handles that waits for itself, or two processes that each hold by
 *   one and wait by another.  Use one handle for locks that are held together;
 * - a session of a part of the tree waits last for what another holds outside
 *   of that part;
 * - a thread waits for something else, such as an election, a queue or another
 *   program's lock, or one thread acquires what another one is to release.
 */
#ifndef ZKEMBED_RECIPES_LOCK_H
#define ZKEMBED_RECIPES_LOCK_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_lock zke_lock;

enum {
  ZKE_LOCK_OUT = ZKE_LINE_OUT,
  ZKE_LOCK_WAITING = ZKE_LINE_WAITING,
  ZKE_LOCK_HELD = ZKE_LINE_HELD,
  ZKE_LOCK_LOST = ZKE_LINE_LOST /* held or waited; the znode was taken away */
};

/* Called when the lock's state changes to ZKE_LOCK_HELD (acquired; with its
 * token), ZKE_LOCK_OUT (released, or the wait was given up) or ZKE_LOCK_LOST.
 * With a listener an acquisition costs one more small write: the watch of
 * one's own znode. */
typedef void (*zke_lock_fn)(zke_lock *lock, int state, int64_t token,
                            void *context);

typedef struct zke_lock_options {
  size_t size;
  const void *data; /* shown to others by zke_lock_parties() */
  int len;          /* bytes of it */
  int reentrant;    /* 1: acquire again while held counts, by the thread that
                       holds it; by another one, and else, ZKE_MISUSE */
  int no_deadlock_check; /* 1: do not look for circles */
  zke_lock_fn listener;
  void *context;
} zke_lock_options;

/* zke_lock_new - an object for one contender; does not touch the tree
 *
 *   path      of the lock; made as a container when first needed
 *   options   NULL for the defaults; copied
 *   lock_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what the handle's state asks for.
 * One object is one contender: two threads that are to exclude each other
 * need one each.  Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_lock_new(zke *z, const char *path,
                         const zke_lock_options *options, zke_lock **lock_out);

/* zke_lock_new_named - zke_lock_new() of base/name: one of many locks of a
 * kind, such as an order's by its number
 *
 *   base  where such locks are
 *   name  of this one, without '/'
 *
 * Returns as zke_lock_new(); ZKE_BADARGUMENTS for a name that is NULL, empty or
 * has a '/'.  Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_lock_new_named(zke *z, const char *base, const char *name,
                               const zke_lock_options *options,
                               zke_lock **lock_out);

/* zke_lock_free - release what it holds and the object; NULL is fine
 * Threads: any, while no other call on it runs.  In a callback: yes. */
ZKE_API void zke_lock_free(zke_lock *lock);

/* zke_lock_acquire - join the queue and wait until the lock is held
 *
 * After zke_lock_start() it waits in the place already taken.
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *
 * Returns ZKE_OK, or, without a place in the queue any more,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names the holder
 *   ZKE_CANCELLED         zke_lock_cancel()
 *   ZKE_DEADLOCK          this wait closed a circle
 *   ZKE_LOST              one's znode was deleted by somebody
 *   ZKE_OTHERKIND         the path is not a lock's
 *   ZKE_MISUSE            held already (not reentrant, or by another thread),
 *                         or waited for by another call
 *   ZKE_INVALIDSTATE      the session has ended
 *
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_lock_acquire(zke_lock *lock, int64_t deadline_ms);

/* zke_lock_try - hold it now or not at all: ZKE_HELD, naming the holder */
ZKE_API int zke_lock_try(zke_lock *lock);

/* zke_lock_start - join the queue and go on; the listener is told, or
 * zke_lock_state() tells, once zke_dispatch() has seen one's turn */
ZKE_API int zke_lock_start(zke_lock *lock);

/* zke_lock_step - look again now, as dispatches do by themselves */
ZKE_API int zke_lock_step(zke_lock *lock);

/* zke_lock_release - give it up; or the wait, after zke_lock_start()
 *
 * Of a reentrant lock the last release does.  A lock that was lost, or is
 * not held, is ZKE_LOST.  After any other failure it is not held any more
 * either: the session deletes the znode as soon as it can (zke_discard()). */
ZKE_API int zke_lock_release(zke_lock *lock);

/* zke_lock_cancel - the blocking call on it returns ZKE_CANCELLED;
 * ZKE_IDLE where none runs.  Threads: any.  Blocks: no. */
ZKE_API int zke_lock_cancel(zke_lock *lock);

/* zke_lock_state - ZKE_LOCK_…, as known without asking the file
 * zke_lock_token - the fencing value, or 0 when not held
 * zke_lock_check - ask the file: ZKE_OK when held, else ZKE_LOST
 * zke_lock_op    - an operation for one's own zke_multi(), which fails with
 *                  ZKE_NONODE unless the lock is held; valid until the next
 *                  call that changes the lock.  ZKE_LOST where not held
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_lock_state(zke_lock *lock);
ZKE_API int64_t zke_lock_token(zke_lock *lock);
ZKE_API int zke_lock_check(zke_lock *lock);
ZKE_API int zke_lock_op(zke_lock *lock, zke_op *op);

/* zke_lock_steal - hold it now: the holder loses it, those waiting stay behind
 *
 * One step: there is no moment at which a third could get it.  Without a
 * holder it is zke_lock_try().
 * Returns ZKE_OK, or ZKE_MISUSE where this object holds it already. */
ZKE_API int zke_lock_steal(zke_lock *lock);

/* zke_lock_break - take the lock from its holder; the next in line has it
 *
 *   token  the holder's mzxid as zke_lock_parties() showed it, so that nobody
 *          else is hit; 0 for whoever holds it
 *
 * Returns ZKE_OK, or ZKE_NONODE where it is not held (by that one). */
ZKE_API int zke_lock_break(zke *z, const char *path, int64_t token);

/* zke_lock_parties - the holder and those who wait, in order
 *
 *   list_out  out, not NULL: one block; count 0 for a lock nobody uses */
ZKE_API int zke_lock_parties(zke *z, const char *path,
                             zke_party_list **list_out);

/* zke_lock_do - the simplest use: acquire, call, release
 *
 *   base, name  as of zke_lock_new_named()
 *   fn          called while it is held; its result is returned
 *
 * Returns what fn returned, else as zke_lock_acquire() and
 * zke_lock_release(). */
typedef int (*zke_lock_do_fn)(zke *z, int64_t token, void *arg);
ZKE_API int zke_lock_do(zke *z, const char *base, const char *name,
                        int64_t deadline_ms, zke_lock_do_fn fn, void *arg);

#ifdef __cplusplus
}
#endif

#endif
