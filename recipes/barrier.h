/* barrier.h - a znode that keeps all others waiting until it is removed
 *
 *     zke_barrier *barrier;
 *     zke_barrier_new(z, "/barriers/maintenance", NULL, &barrier);
 *
 *     // one process
 *     zke_barrier_set(barrier, "disk full", 9, deadline, NULL);
 *     zke_barrier_remove(barrier, 0, deadline);
 *
 *     // all others
 *     if (zke_barrier_wait(barrier, deadline) != ZKE_OK)
 *       fprintf(stderr, "%s\n", zke_errmsg());
 *
 *     zke_barrier_free(barrier);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * barrier.c has the algorithm.  It is the barrier of ZooKeeper's page "Recipes
 * and Solutions", with tokens, and a twin node that makes removal exact.
 *
 * LAYOUT, as Curator's DistributedBarrier at /barriers/maintenance/barrier:
 *
 *     /barriers/maintenance             container, data "zkembed barrier"
 *       barrier                         while it exists, it blocks
 *       set-<id>                        its twin: a removal deletes both, so it
 *                                       cannot remove a later setting
 *
 * The data of `barrier` is a line "<id> <session> <pid> <identity>", followed
 * by the setter's data.  A node `barrier` that was made by other means blocks
 * just as well.  If `barrier` alone is deleted, as Curator does, `set-<id>`
 * stays until somebody deletes it, or its session ends; it blocks no one.
 *
 * IF THE PROCESS DIES: both nodes come and go in one step, so a barrier is set
 * or not.  If the process that set it dies, the barrier stands until somebody
 * removes it; with options.ephemeral it goes with the setter's session.  A
 * waiting process leaves nothing.
 *
 * WHO IS WOKEN: a setting wakes the objects with a listener.  A removal wakes
 * these and all waiting objects, which is the purpose of a barrier.  If a
 * barrier is removed and set again, the processes that waited for the earlier
 * setting pass.
 *
 * COSTS: a setting is three reads and one write, a removal four reads and one
 * write, both synced to the disk unless the barrier is ephemeral.  A wait is
 * three reads if no barrier stands (two if the directory is missing).  If one
 * stands, a wait also takes a watch, and a read when it wakes.
 *
 * LOSING THE SESSION: waiting ends with ZKE_INVALIDSTATE, a listener hears
 * ZKE_BARRIER_LOST and nothing more.  A barrier that is not ephemeral stands.
 *
 * FENCING: the token of a setting is the zxid of its znode, greater than those
 * of all earlier ones.
 *
 * ON AN ENSEMBLE (zookeeper.h): an ephemeral barrier goes when the process that
 * set it was silent for the session's timeout, even if it lives; everything
 * else is the same.
 *
 * MISTAKES, and their results:
 * - Setting a barrier that stands already: ZKE_HELD.  One process sets a
 *   barrier.  To count the participants that are not ready, use a double
 *   barrier or a semaphore.
 * - Removing with token 0 after another process has set it: that setting is
 *   removed.  Keep the token of your setting and remove that one.
 * - Relying on the barrier being down after a wait: it may have been set again.
 *   The wait was for the setting that stood at the call.
 * - Two threads that wait with one object: the second gets ZKE_MISUSE. */
#ifndef ZKEMBED_RECIPES_BARRIER_H
#define ZKEMBED_RECIPES_BARRIER_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_barrier zke_barrier;

/* The listener's events.  SET and REMOVED alternate; after LOST there are no
 * more events. */
enum {
  ZKE_BARRIER_SET = 1,     /* it stands */
  ZKE_BARRIER_REMOVED = 2, /* it does not stand any more */
  ZKE_BARRIER_LOST = 3     /* the session has ended: no more events */
};

/* Called after zke_barrier_start() with ZKE_BARRIER_…; token: of the setting
 * that came or went.
 *
 * It may call the object or free it.  If a setting comes and goes between two
 * dispatches, the listener is not told.
 *
 * Example: a worker in an event loop that pauses while the barrier stands.
 *
 *     static void heard(zke_barrier *barrier, int event, int64_t token,
 *                       void *context) {
 *       int *paused = context;
 *       (void)barrier, (void)token;
 *       *paused = event == ZKE_BARRIER_SET;
 *     }
 *
 *     static int follow(zke *z, int *paused, zke_barrier **barrier) {
 *       zke_barrier_options o = ZKE_INIT(zke_barrier_options);
 *       o.listener = heard;
 *       o.context = paused;
 *       int rc = zke_barrier_new(z, "/barriers/maintenance", &o, barrier);
 *       return rc == ZKE_OK ? zke_barrier_start(*barrier) : rc;
 *     }
 */
typedef void (*zke_barrier_fn)(zke_barrier *barrier, int event, int64_t token,
                               void *context);

typedef struct zke_barrier_options {
  size_t size;
  int ephemeral; /* 1: a barrier set through this object is removed with its
                    session; else it stays until it is removed */
  zke_barrier_fn listener;
  void *context;
} zke_barrier_options;

/* zke_barrier_new - an object for one path; writes nothing
 *
 *   path         of the barrier; made as a container when it is first set
 *   options      NULL for the defaults; copied
 *   barrier_out  out; for zke_barrier_free() */
ZKE_API int zke_barrier_new(zke *z, const char *path,
                            const zke_barrier_options *options,
                            zke_barrier **barrier_out);

/* zke_barrier_free - release the object
 *
 * A barrier that was set stays. */
ZKE_API void zke_barrier_free(zke_barrier *barrier);

/* ------------------------------------------------------------------------
 * Setting and removing
 *
 * Example: set it, work, and remove exactly this setting.  If a person has
 * removed it meanwhile, and another process has set it, that one stays.
 *
 *     int64_t token = 0;
 *     rc = zke_barrier_set(barrier, "moving files", 12, deadline, &token);
 *     if (rc == ZKE_OK) {
 *       // work
 *       rc = zke_barrier_remove(barrier, token, deadline);
 *     }
 *     if (rc == ZKE_NONODE) rc = ZKE_OK;  // it was removed by another
 * --------------------------------------------------------------------- */

/* zke_barrier_set - from now on all others wait
 *
 * Makes the directory if it is missing.
 *
 *   data,len     shown to others, for example the reason; NULL and 0 for none
 *   deadline_ms  for repeating calls that got no reply
 *   token_out    out: this setting's token
 *
 * Returns ZKE_OK, or
 *   ZKE_HELD          it is set already; the sentence says by whom, since when
 *   ZKE_OTHERKIND     the path is not a barrier's
 *   ZKE_BADARGUMENTS  len is negative, or data is NULL with len above 0
 *
 * If the reply was lost, the call recognises its own setting and returns
 * ZKE_OK.  After ZKE_CONNECTIONLOSS the barrier may stand, or may have stood
 * until another process removed it; zke_barrier_parties() tells who set it. */
ZKE_API int zke_barrier_set(zke_barrier *barrier, const void *data, int len,
                            int64_t deadline_ms, int64_t *token_out);

/* zke_barrier_remove - let all others continue
 *
 *   token        of the setting to remove; 0: any
 *   deadline_ms  for repeating calls that got no reply
 *
 * Returns ZKE_OK; ZKE_NONODE if no barrier stands, or not one of that token; or
 * ZKE_OTHERKIND if the path is not a barrier's.  Any process may remove it, not
 * only the one that set it. */
ZKE_API int zke_barrier_remove(zke_barrier *barrier, int64_t token,
                               int64_t deadline_ms);

/* ------------------------------------------------------------------------
 * Waiting and looking
 *
 * Example: wait for an hour at most; then say who set the barrier.
 *
 *     rc = zke_barrier_wait(barrier, zke_now(z) + 3600000);
 *     if (rc == ZKE_OPERATIONTIMEOUT) fprintf(stderr, "%s\n", zke_errmsg());
 * --------------------------------------------------------------------- */

/* zke_barrier_wait - wait until the setting that stands now is removed
 *
 * Returns ZKE_OK, immediately if none stands; ZKE_OPERATIONTIMEOUT, with a
 * sentence that says who set it; ZKE_CANCELLED, ZKE_OTHERKIND, ZKE_MISUSE, or
 * ZKE_INVALIDSTATE. */
ZKE_API int zke_barrier_wait(zke_barrier *barrier, int64_t deadline_ms);

/* zke_barrier_start  - tell the listener from now on; first that the barrier
 *                      stands, if it does
 * zke_barrier_step   - look again now
 * zke_barrier_get    - ask the file: *token_out, unless NULL, becomes the token
 *                      of the barrier that stands; 0: none does
 * zke_barrier_cancel - zke_barrier_wait() on it returns ZKE_CANCELLED; set and
 *                      remove continue.  ZKE_IDLE if none of the three runs
 *
 * The first three return ZKE_OK, or
 *   ZKE_OTHERKIND         start: the path is not a barrier's
 *   ZKE_INVALIDSTATE      the session has ended; cancel too
 *   ZKE_OPERATIONTIMEOUT, ZKE_CONNECTIONLOSS, ZKE_NOAUTH
 *                         as zke_exists(): start must be called again; a step
 *                         is repeated by dispatches */
ZKE_API int zke_barrier_start(zke_barrier *barrier);
ZKE_API int zke_barrier_step(zke_barrier *barrier);
ZKE_API int zke_barrier_get(zke_barrier *barrier, int64_t *token_out);
ZKE_API int zke_barrier_cancel(zke_barrier *barrier);

/* zke_barrier_parties - who set it, since when
 *
 *   list_out  count 0 if none stands, else one party: czxid is the token;
 *             session and pid are the setter's, and may be gone; pid 0 and an
 *             empty identity: set by other means
 *
 * Returns ZKE_OK, or as zke_get(). */
ZKE_API int zke_barrier_parties(zke *z, const char *path,
                                zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
