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
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * lock.c has the algorithm at its head.  It is the lock of ZooKeeper's page
 * "Recipes and Solutions", with its GUID for recoverable errors.  Steal, break,
 * tokens and the search for deadlocks are additions.
 *
 * LAYOUT, as Curator's InterProcessMutex:
 *
 *     /locks/backup                     container, data "zkembed lock"
 *       _c_<guid>-lock-0000000000       holds: the lowest number
 *       _c_<guid>-lock-0000000001       waits, watching the one before it
 *       _c_<guid>-front-0000000002      stole it: before all others
 *
 * IF THE PROCESS DIES after making its znode, holding or waiting, the znode is
 * removed with its session.  The kernel tells the process that waits for it,
 * and that process continues.  A death before the znode was made, or after the
 * release, leaves nothing.  A release is one step: the znode is removed and, if
 * somebody waits, the next in line is marked as the holder.  If the next one
 * dies before it looks, its znode is removed like any holder's.  If it is
 * stopped, it holds from the release on.  If it gives up at its deadline, it
 * releases.
 *
 * WHO IS WOKEN: a release wakes only the next in line.
 *
 * COSTS, in transactions of the database: a free lock takes one write and one
 * read (the znode is made, the line is read).  The first use of an object takes
 * one more read, and the first use of a path makes the directory.  A release is
 * two reads and one write.  It takes two more reads if somebody has joined an
 * empty line since, and one small write if the object watches its own znode.  A
 * call that has to wait also sets two watches, which are small writes, looks
 * for deadlocks (one read, more if the session has other entries in lines), and
 * writes its mark if the release has not done so.  Only making the directory is
 * synced to the disk: a lock does not outlive the host.
 *
 * LOSING THE SESSION loses the lock, and so does losing the znode to
 * zke_lock_break() or to a thief: the listener hears ZKE_LOCK_LOST,
 * zke_lock_check() fails, and so does a multi that contains zke_lock_op().
 * Nothing stops the process itself.  If something must not happen twice, guard
 * it with the op (same database) or the token (anything else).
 *
 * FENCING: zke_lock_token() is the zxid at which the lock was taken: of the
 * release that granted it, or of the holder's own write.  It is greater than
 * the token of every earlier holder.  Let the protected thing remember the
 * greatest token it has seen and refuse smaller ones.  Then a stopped process
 * that still believes it holds the lock does no harm.
 *
 * DEADLOCKS: if locks, read/write locks, semaphores and multi-locks block each
 * other in a circle, the call that closes the circle fails with ZKE_DEADLOCK
 * and a sentence that describes it.  In this search, the holder is the thread
 * that acquired.  A circle is found if
 * - its members are threads of one process or of several, and each of them
 *   holds and waits by one handle; a single thread that waits for itself is a
 *   circle too;
 * - every wait in it is a blocking call.  zke_lock_start() does not count: its
 *   thread can do other work;
 * - the session of the closing call can see all of it.  A session that was
 *   opened on a part of the tree (zke_options.chroot) sees only that part, and
 *   an object with no_deadlock_check does not look;
 * - all of it exists at one moment.  So no call fails for a circle that never
 *   existed.
 * A circle is not found, and only a deadline ends it, if
 * - a thread holds by one handle and waits by another: one thread with two
 *   handles that waits for itself, or two processes that each hold by one
 *   handle and wait by another.  Use one handle for locks that are held
 *   together.  The sentence of a timeout says if the holder is another handle
 *   of the same process;
 * - the last to wait is a session of a part of the tree, and waits for an entry
 *   that another session holds outside of that part;
 * - a thread waits for something else, such as an election, a queue or another
 *   program's lock, or one thread acquires and another should release.
 *
 * OTHER LIBRARIES: Curator's and go-zookeeper's locks stand in the same line.
 * Locks with kazoo's own names, or of another library, do not: both sides would
 * hold.  So if an ephemeral of such a name (zke_recipe_foreign()) is in the
 * directory, acquire, try, start and steal return ZKE_OTHERKIND, and a wait
 * does when its turn comes.  If one comes while this lock is held, the holder
 * is not told, not even by zke_lock_check(), and the other library holds, too.
 * doc/server.md says how to share a line.
 *
 * ON AN ENSEMBLE (zookeeper.h): at most one holds by the ensemble's order of
 * changes.  A holder that was silent for the session's timeout has lost it, and
 * may not know it: guard by zke_lock_op() or the token.  Circles between
 * sessions are not found there, so acquire with a deadline.
 *
 * MISTAKES, and their results:
 * - Two threads share an object and both acquire: the second gets ZKE_MISUSE.
 *   The object is the contender, so each thread needs its own.
 * - Acquiring what the object already holds: ZKE_MISUSE, unless
 *   options.reentrant.
 * - Releasing twice, or releasing a lost lock: ZKE_LOST.  This affects no other
 *   holder, since each holding has a separate znode.
 * - fork() while holding: the parent still holds.  In the child the object's
 *   state is LOST and its token 0; support.h has the rest.
 */
#ifndef ZKEMBED_RECIPES_LOCK_H
#define ZKEMBED_RECIPES_LOCK_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_lock zke_lock;

/* The values of zke_lock_state().  A listener gets all but WAITING.
 *
 *     OUT -> WAITING        acquire, try, start: the znode is made
 *     WAITING -> HELD       nothing is in front any more
 *     HELD -> OUT           release, free
 *     WAITING -> OUT        the same; a deadline, cancel, any other failure
 *     WAITING, HELD -> LOST the znode or the session has gone
 *     LOST -> OUT           the next acquire, try, start or release
 *     any but HELD -> HELD  steal
 */
enum {
  ZKE_LOCK_OUT = ZKE_LINE_OUT,
  ZKE_LOCK_WAITING = ZKE_LINE_WAITING,
  ZKE_LOCK_HELD = ZKE_LINE_HELD,
  ZKE_LOCK_LOST = ZKE_LINE_LOST /* held or waited; the znode was taken away */
};

/* Called when the lock's state changes to ZKE_LOCK_HELD (acquired; with its
 * token), ZKE_LOCK_OUT (released, or the wait was given up, also by a try; or
 * the next call gives up a lost place) or ZKE_LOCK_LOST.
 *
 * It may call the lock or free it (support.h).  A call on the object runs it
 * before that call returns.  With a listener an acquisition costs one more
 * small write: the watch of the object's own znode, which reports a loss.
 * Without a listener a holder notices a loss only when it asks (check, op,
 * release).
 *
 * Example: a program with an event loop.  It joins the line once, does other
 * work meanwhile, and does the protected work when its turn comes.
 *
 *     static void turn(zke_lock *lock, int state, int64_t token, void *c) {
 *       (void)c;
 *       if (state == ZKE_LOCK_HELD) {
 *         printf("working with token %lld\n", (long long)token);
 *         zke_lock_release(lock);
 *       } else if (state == ZKE_LOCK_LOST) {
 *         zke_lock_start(lock);  // to the end of the line
 *       }
 *     }
 *
 *     static int begin(zke *z, zke_lock **lock) {
 *       zke_lock_options o = ZKE_INIT(zke_lock_options);
 *       o.listener = turn;
 *       int rc = zke_lock_new(z, "/locks/backup", &o, lock);
 *       return rc == ZKE_OK ? zke_lock_start(*lock) : rc;
 *     }
 */
typedef void (*zke_lock_fn)(zke_lock *lock, int state, int64_t token,
                            void *context);

typedef struct zke_lock_options {
  size_t size;
  const void *data; /* shown to others by zke_lock_parties(); copied */
  int len;          /* bytes of it */
  int reentrant;    /* 1: the thread that holds the lock may acquire it again,
                       and must release it as often.  Another thread, or any
                       thread without this option, gets ZKE_MISUSE */
  int no_deadlock_check; /* 1: do not look for circles; saves a read or more
                            when a call waits */
  zke_lock_fn listener;
  void *context;
} zke_lock_options;

/* ------------------------------------------------------------------------
 * Making and freeing
 * --------------------------------------------------------------------- */

/* zke_lock_new - an object for one contender; writes nothing
 *
 *   path      of the lock; made as a container when first needed
 *   options   NULL for the defaults; copied
 *   lock_out  out; for zke_lock_free()
 *
 * Returns ZKE_OK, or ZKE_BADARGUMENTS also for a negative options.len.  One
 * object is one contender: two threads that must exclude each other need one
 * each. */
ZKE_API int zke_lock_new(zke *z, const char *path,
                         const zke_lock_options *options, zke_lock **lock_out);

/* zke_lock_free - release what it holds, or give up its wait, and release the
 * object */
ZKE_API void zke_lock_free(zke_lock *lock);

/* ------------------------------------------------------------------------
 * In and out
 *
 * Example: do other work while somebody else holds the lock.
 *
 *     rc = zke_lock_try(lock);
 *     if (rc == ZKE_HELD) {
 *       printf("later: %s\n", zke_errmsg());
 *     } else if (rc == ZKE_OK) {
 *       // work
 *       rc = zke_lock_release(lock);
 *     }
 * --------------------------------------------------------------------- */

/* zke_lock_acquire - join the line and wait until the lock is held
 *
 * After zke_lock_start() it waits in the place that it has.
 *
 *   deadline_ms  if it has passed: hold the lock if it is free, else
 *                ZKE_OPERATIONTIMEOUT
 *
 * Returns ZKE_OK, or, with no place in the line any more,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names the holder
 *   ZKE_DEADLOCK          this wait closed a circle
 *   ZKE_LOST              somebody deleted the object's znode, or another
 *                         thread released or freed the object.  It can be used
 *                         again
 *   ZKE_OTHERKIND         also if another library's lock is there
 *   ZKE_CANCELLED, ZKE_LIMIT, ZKE_INVALIDSTATE
 * or, with nothing changed,
 *   ZKE_MISUSE            held already (not reentrant, or by another thread),
 *                         or waited for by another thread's call
 *
 * If this thread already holds a reentrant lock, the call only asks the file
 * whether that is still so.  ZKE_LOST and ZKE_INVALIDSTATE: it is not.  After
 * any other error the lock is held as before, and is not counted once more.  In
 * a callback: yes, and then other callbacks run inside it. */
ZKE_API int zke_lock_acquire(zke_lock *lock, int64_t deadline_ms);

/* zke_lock_try - hold it now or not at all
 *
 * It joins the line to see whether anybody is in front; if so, it leaves
 * immediately.  Until it leaves, a newcomer may queue after it, and is woken
 * then.  A reentrant lock that this thread holds is counted once more, as by
 * zke_lock_acquire() and zke_lock_start().
 *
 * Returns ZKE_OK; ZKE_HELD, with a sentence that names the holder; ZKE_MISUSE
 * also if the object has been waiting since zke_lock_start(); else as
 * zke_lock_acquire(). */
ZKE_API int zke_lock_try(zke_lock *lock);

/* zke_lock_start - join the line without waiting
 *
 * The object may hold when this returns.  Otherwise its turn comes inside
 * zke_dispatch(), which tells the listener; zke_lock_state() shows it, too.
 *
 * Returns ZKE_OK: the object waits or holds; else as zke_lock_acquire(). */
ZKE_API int zke_lock_start(zke_lock *lock);

/* zke_lock_step - look again now
 *
 * For a program that does not dispatch. */
ZKE_API int zke_lock_step(zke_lock *lock);

/* zke_lock_release - give it up; or the wait, after zke_lock_start()
 *
 * The last release of a reentrant lock gives it up; earlier ones count down and
 * do not look at the file.  Any thread may release.
 *
 * Returns ZKE_OK, or ZKE_LOST if the lock is neither held nor waited for, or
 * was lost.  If the deletion fails, the lock is not held any more either: the
 * session deletes the znode as soon as it can (zke_discard()). */
ZKE_API int zke_lock_release(zke_lock *lock);

/* zke_lock_cancel - another thread's blocking call returns ZKE_CANCELLED
 *
 * That call may have succeeded just before: then it returns ZKE_OK, and the
 * lock is held.  In a callback it also ends the call that runs the callback.
 *
 * Returns ZKE_OK, or ZKE_IDLE if no call with a deadline runs; a later call is
 * not affected. */
ZKE_API int zke_lock_cancel(zke_lock *lock);

/* ------------------------------------------------------------------------
 * Looking
 *
 * Example: change the tree only while the lock is held.  If the lock was lost
 * before the multi, the multi changes nothing.
 *
 *     zke_op ops[2];
 *     rc = zke_lock_op(lock, &ops[0]);
 *     zke_op_set(&ops[1], "/backup/state", "running", 7, -1);
 *     if (rc == ZKE_OK) rc = zke_multi(z, ops, 2, NULL);
 * --------------------------------------------------------------------- */

/* zke_lock_state - ZKE_LOCK_…, from memory; LOST after the session's end, and
 *                  if the object cannot be used
 * zke_lock_token - the fencing value, or 0 if it is not held; from memory
 * zke_lock_check - ask the file: ZKE_OK if it is held, else ZKE_LOST
 * zke_lock_op    - fill *op with an operation for a zke_multi() of the program,
 *                  which fails with ZKE_NONODE unless the lock is held.
 *                  Returns ZKE_OK; ZKE_LOST if it is not held;
 *                  ZKE_BADARGUMENTS for a NULL op
 *
 * An answer from memory is as old as the last dispatch: after a long stop, a
 * holder should ask the file or use the op.  An op points into the object: it
 * is valid until the next call that acquires, releases or frees. */
ZKE_API int zke_lock_state(zke_lock *lock);
ZKE_API int64_t zke_lock_token(zke_lock *lock);
ZKE_API int zke_lock_check(zke_lock *lock);
ZKE_API int zke_lock_op(zke_lock *lock, zke_op *op);

/* ------------------------------------------------------------------------
 * By force
 *
 * These take the lock from a holder that may still be at work.  They are for
 * people and supervisors that know that the holder hangs.  The protected thing
 * must check tokens.
 *
 * Example: break the lock of a holder that has had it for an hour.  The token
 * makes sure that a later holder keeps it.
 *
 *     zke_party_list *list = NULL;
 *     rc = zke_lock_parties(z, "/locks/backup", &list);
 *     bool held = rc == ZKE_OK && list->count > 0 && list->data[0].held;
 *     if (held)
 *       rc = zke_lock_break(z, "/locks/backup", list->data[0].mzxid);
 *     zke_free(list);
 * --------------------------------------------------------------------- */

/* zke_lock_steal - hold it now: the holder loses it, the others still wait
 *
 * It is one step: no third process can get the lock in between.  Without a
 * holder it works like zke_lock_try().  An object that has been waiting since
 * zke_lock_start() moves to the front, and has no place after a failure.
 *
 * Returns ZKE_OK; ZKE_MISUSE if this object holds it already or another
 * thread's call waits with it; ZKE_LOST, with no place in the line, if another
 * thief has stolen it in turn; else as zke_lock_try(), except for ZKE_HELD. */
ZKE_API int zke_lock_steal(zke_lock *lock);

/* zke_lock_break - take the lock from its holder; the next in line gets it
 *
 * Deletes the holder's znode.  It does not check that the path is a lock.
 *
 *   token  the holder's mzxid from zke_lock_parties(): only that holder loses
 *          the lock; 0: any holder
 *
 * Returns ZKE_OK; ZKE_NONODE if it is not held, or not by that holder;
 * ZKE_MARSHALLINGERROR for a malformed path. */
ZKE_API int zke_lock_break(zke *z, const char *path, int64_t token);

/* zke_lock_parties - the holder and the waiting participants, in order
 *
 *   list_out  count 0 for an unused lock, and if the path does not exist
 *
 * A znode is left out, even the holder's, if it goes while the list is made, or
 * if its ACL does not let this session read it.  So find the holder by `held`,
 * not by its place in the list.
 *
 * Returns ZKE_OK, or ZKE_MARSHALLINGERROR for a malformed path. */
ZKE_API int zke_lock_parties(zke *z, const char *path,
                             zke_party_list **list_out);

/* ------------------------------------------------------------------------
 * The simplest use
 * --------------------------------------------------------------------- */

/* Called by zke_lock_do() while the lock is held, with the handle, the fencing
 * value, and the arg of zke_lock_do(). */
typedef int (*zke_lock_do_fn)(zke *z, int64_t token, void *arg);

/* zke_lock_do - acquire, call, release
 *
 * Example: bill an order; no other process bills the same one meanwhile.
 *
 *     static int bill(zke *z, int64_t token, void *arg) {
 *       (void)token;
 *       return zke_set(z, arg, "billed", 6, -1, NULL);
 *     }
 *
 *     static int bill_order(zke *z, int64_t deadline) {
 *       static char order[] = "/orders/4711";
 *       return zke_lock_do(z, "/locks/orders/4711", deadline, bill, order);
 *     }
 *
 *   path         of the lock, as for zke_lock_new()
 *   deadline_ms  for the acquisition; it does not limit fn
 *   fn           called while the lock is held
 *   arg          for fn
 *
 * The lock is released however fn ends, even if its thread is cancelled.  It is
 * not reentrant: if fn asks for the same lock in this way it gets ZKE_DEADLOCK.
 *
 * Returns the result of fn, if that is not ZKE_OK; else as zke_lock_acquire()
 * and zke_lock_release(); ZKE_BADARGUMENTS for a NULL fn.  Blocks: until the
 * deadline, and as long as fn. */
ZKE_API int zke_lock_do(zke *z, const char *path, int64_t deadline_ms,
                        zke_lock_do_fn fn, void *arg);

#ifdef __cplusplus
}
#endif

#endif
