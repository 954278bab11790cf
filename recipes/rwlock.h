/* rwlock.h - many readers or one writer, in the order they came; revocable
 *
 *     zke_rwlock *rw;
 *     zke_rwlock_new(z, "/locks/catalog", NULL, &rw);
 *     if (zke_rwlock_acquire(rw, ZKE_RWLOCK_WRITE, deadline) == ZKE_OK) {
 *       // Alone here.
 *       zke_rwlock_downgrade(rw);
 *       // Among readers, and no writer came between.
 *       zke_rwlock_release(rw);
 *     }
 *     zke_rwlock_free(rw);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * lock.c has the algorithm of a line, and rwlock.c the rest.  It is the shared
 * lock of ZooKeeper's page "Recipes and Solutions", with its "recoverable
 * shared locks".  Downgrade and upgrade are additions.
 *
 * LAYOUT, as Curator's InterProcessReadWriteLock:
 *
 *     /locks/catalog                    container, data "zkembed rwlock"
 *       _c_<guid>-__READ__0000000000    reads
 *       _c_<guid>-__READ__0000000001    reads
 *       _c_<guid>-__WRIT__0000000002    waits for both, watching ...01
 *       _c_<guid>-__READ__0000000003    waits for the writer: none starves
 *
 * A reader waits for the nearest writer before it, a writer for everything
 * before it.
 *
 * REVOKING: if a holder's data has the word "unlock" instead of the state, the
 * holder is asked to release (the command `set <znode> unlock` does this too).
 * Its listener hears ZKE_RWLOCK_ASKED and is free to comply; without a listener
 * it does not notice.  A revoker that insists deletes the znode at its
 * deadline, and the victim hears ZKE_RWLOCK_LOST.  Changing the mode is not a
 * release: the new znode is asked, and taken away, like the old one.
 *
 * IF THE PROCESS DIES its znode is removed with its session, and the kernel
 * tells the processes that wait for it.  Downgrade and upgrade replace one
 * znode by another in one step: a death there leaves neither.  If a revoker
 * dies, the word stays.
 *
 * WHO IS WOKEN: a writer's release wakes the readers right after it, or the
 * next writer; a reader's release wakes only a writer right after it.
 *
 * COSTS: as for lock.h.  A downgrade is one write and one read, an upgrade one
 * write and three reads; both make a new znode.  A revocation is one write for
 * each holder, and a watch.
 *
 * LOSING THE SESSION, or the znode, loses the lock: as for lock.h.
 *
 * FENCING: zke_rwlock_token() is the zxid at which the lock was taken in its
 * present mode.  A writer's is greater than that of every earlier holder; a
 * reader's is greater than that of every earlier writer.
 *
 * DEADLOCKS are found as for lock.h.
 *
 * ON AN ENSEMBLE (zookeeper.h): as for lock.h.
 *
 * MISTAKES, and their results:
 * - Acquiring while it is held: ZKE_MISUSE.  It is not reentrant in either
 *   mode.
 * - Acquiring to write with a second object, while the thread reads with the
 *   first: ZKE_DEADLOCK.  Use zke_rwlock_upgrade().
 * - Relying on an upgrade: while two objects read, each of them gets ZKE_HELD.
 *   One of them must release, acquire for writing, and read its data again.
 * - Threads that share an object, fork(): as for lock.h.
 */
#ifndef ZKEMBED_RECIPES_RWLOCK_H
#define ZKEMBED_RECIPES_RWLOCK_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_rwlock zke_rwlock;

/* The modes. */
enum { ZKE_RWLOCK_WRITE = 1, ZKE_RWLOCK_READ = 2 };

/* The states, with the transitions of a lock (lock.h), and an event. */
enum {
  ZKE_RWLOCK_OUT = ZKE_LINE_OUT,
  ZKE_RWLOCK_WAITING = ZKE_LINE_WAITING,
  ZKE_RWLOCK_HELD = ZKE_LINE_HELD,
  ZKE_RWLOCK_LOST = ZKE_LINE_LOST,
  ZKE_RWLOCK_ASKED = 16 /* an event only: somebody asks for the release */
};

/* Called when the state changes to HELD, OUT or LOST, and when somebody asks
 * for the lock.  It may call the object or free it.  With a listener an
 * acquisition costs one more small write, the watch of its own znode, and one
 * more read.
 *
 * Example: a reader that releases when asked.
 *
 *     static void heard(zke_rwlock *rw, int event, int64_t token, void *c) {
 *       (void)c, (void)token;
 *       if (event == ZKE_RWLOCK_ASKED) zke_rwlock_release(rw);
 *     }
 *
 *     static int begin(zke *z, int64_t deadline, zke_rwlock **rw) {
 *       zke_rwlock_options o = ZKE_INIT(zke_rwlock_options);
 *       o.listener = heard;
 *       int rc = zke_rwlock_new(z, "/locks/catalog", &o, rw);
 *       if (rc != ZKE_OK) return rc;
 *       return zke_rwlock_acquire(*rw, ZKE_RWLOCK_READ, deadline);
 *     }
 */
typedef void (*zke_rwlock_fn)(zke_rwlock *rw, int event, int64_t token,
                              void *context);

typedef struct zke_rwlock_options {
  size_t size;
  const void *data;      /* shown to others by zke_rwlock_parties(); copied */
  int len;               /* bytes of it */
  int no_deadlock_check; /* 1: do not look for circles */
  zke_rwlock_fn listener;
  void *context;
} zke_rwlock_options;

/* zke_rwlock_new  - an object for one contender; writes nothing
 * zke_rwlock_free - release the lock, and the object
 * As zke_lock_new() and zke_lock_free(). */
ZKE_API int zke_rwlock_new(zke *z, const char *path,
                           const zke_rwlock_options *options,
                           zke_rwlock **rw_out);
ZKE_API void zke_rwlock_free(zke_rwlock *rw);

/* ------------------------------------------------------------------------
 * In and out
 *
 * Example: read data that seldom changes; wait for at most a second.
 *
 *     rc = zke_rwlock_acquire(rw, ZKE_RWLOCK_READ, zke_now(z) + 1000);
 *     if (rc == ZKE_OK) {
 *       // as many readers as there are; no writer
 *       rc = zke_rwlock_release(rw);
 *     } else {
 *       fprintf(stderr, "%s\n", zke_errmsg());  // which writer, since when
 *     }
 * --------------------------------------------------------------------- */

/* zke_rwlock_acquire - join the line and wait until the lock is held
 * zke_rwlock_try     - hold it now, or ZKE_HELD: the sentence names the one in
 *                      front.  For a reader, that is a writer that holds or
 *                      waits before it
 * zke_rwlock_start   - join the line without waiting
 * zke_rwlock_step    - look again now
 * zke_rwlock_release - give it up, or the wait
 * zke_rwlock_cancel  - end another thread's blocking call, acquire or revoke
 *
 *   mode         ZKE_RWLOCK_READ or _WRITE, else ZKE_BADARGUMENTS; another
 *                mode than the one that the object waits for: ZKE_MISUSE
 *
 * Return as their namesakes in lock.h.  Not reentrant: ZKE_MISUSE if it is held
 * already, or if the object is revoking. */
ZKE_API int zke_rwlock_acquire(zke_rwlock *rw, int mode, int64_t deadline_ms);
ZKE_API int zke_rwlock_try(zke_rwlock *rw, int mode);
ZKE_API int zke_rwlock_start(zke_rwlock *rw, int mode);
ZKE_API int zke_rwlock_step(zke_rwlock *rw);
ZKE_API int zke_rwlock_release(zke_rwlock *rw);
ZKE_API int zke_rwlock_cancel(zke_rwlock *rw);

/* ------------------------------------------------------------------------
 * Changing the mode
 *
 * Example: read, and write only if something is wrong.  If others read too,
 * give up the place, queue as a writer, and look again: the data may have
 * changed by then.
 *
 *     rc = zke_rwlock_upgrade(rw);
 *     if (rc == ZKE_HELD) {
 *       zke_rwlock_release(rw);
 *       rc = zke_rwlock_acquire(rw, ZKE_RWLOCK_WRITE, deadline);
 *     }
 * --------------------------------------------------------------------- */

/* zke_rwlock_downgrade - from writing to reading, in the same place
 *
 * No waiting writer gets in between; readers that wait directly after it come
 * in.  The token is new.
 *
 * Returns ZKE_OK, ZKE_MISUSE if it is not held for writing, ZKE_LOST or
 * ZKE_INVALIDSTATE if it is not held any more.  After any other code it still
 * writes, or has lost the lock: zke_rwlock_check() tells. */
ZKE_API int zke_rwlock_downgrade(zke_rwlock *rw);

/* zke_rwlock_upgrade - from reading to writing, now or not at all
 *
 * If it waited for the other readers, two upgrades would be a deadlock.  So if
 * there is any other reader, it returns ZKE_HELD, with one reader's name, and
 * the object still reads.  Participants that queue meanwhile stay after it.
 * The token is new.
 *
 * Returns ZKE_OK, ZKE_HELD, ZKE_MISUSE if it is not held for reading, ZKE_LOST;
 * after any code except ZKE_OK it is not held for writing. */
ZKE_API int zke_rwlock_upgrade(zke_rwlock *rw);

/* zke_rwlock_state, _token, _check, _op - as in lock.h.  An op from before
 *                    a change of mode fails after it: the znode is another one.
 *                    It is valid until the third call of upgrade or downgrade
 *                    after it
 * zke_rwlock_mode  - ZKE_RWLOCK_READ or _WRITE: the present mode, or the last
 *                    one asked for */
ZKE_API int zke_rwlock_state(zke_rwlock *rw);
ZKE_API int zke_rwlock_mode(zke_rwlock *rw);
ZKE_API int64_t zke_rwlock_token(zke_rwlock *rw);
ZKE_API int zke_rwlock_check(zke_rwlock *rw);
ZKE_API int zke_rwlock_op(zke_rwlock *rw, zke_op *op);

/* ------------------------------------------------------------------------
 * Revoking
 * --------------------------------------------------------------------- */

/* zke_rwlock_revoke - ask all present holders to release, and wait until they
 * do
 *
 * The object must be out of the line, and does not join it.  It asks only the
 * holders at the time of the call; later ones are not asked.
 *
 * Example: give the holders ten seconds to release, then take it from them.
 *
 *     rc = zke_rwlock_revoke(rw, zke_now(z) + 10000, 1);
 *
 *   deadline_ms  the grace period
 *   insist       1: at the deadline, take it from the remaining holders
 *
 * Returns ZKE_OK when all that held the lock at the call have gone (others may
 * hold it by then), ZKE_OPERATIONTIMEOUT with the name of one that has stayed,
 * ZKE_CANCELLED (in both cases the request stays, unless the holder was just
 * taking office and overwrote it), ZKE_MISUSE if the object is in the line or
 * is already revoking, ZKE_OTHERKIND, ZKE_INVALIDSTATE. */
ZKE_API int zke_rwlock_revoke(zke_rwlock *rw, int64_t deadline_ms, int insist);

/* zke_rwlock_parties - the holders and the waiting participants, in order; kind
 * is "__READ__" or "__WRIT__".  If a holder was asked to release, mzxid is the
 * request's, and since_ms is when the holder joined the line.
 *
 *   list_out  count 0 for an unused lock
 *
 * Returns as zke_lock_parties(). */
ZKE_API int zke_rwlock_parties(zke *z, const char *path,
                               zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
