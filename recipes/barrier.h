/* barrier.h - a znode that keeps everybody waiting until it is removed
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
 * LAYOUT, as Curator's DistributedBarrier at /barriers/maintenance/barrier:
 *
 *     /barriers/maintenance             container, data "zkembed barrier"
 *       barrier                         while it exists, it blocks
 *       set-<id>                        the same setting, so that a removal
 *                                       that was meant for it hits no later
 *                                       one
 *
 * The data of `barrier` is a line "<id> <session> <pid> <identity>" and then
 * the setter's own.  A node `barrier` that somebody made by other means blocks
 * just as well.
 *
 * IF THE PROCESS DIES: both nodes come and go in one step, so a barrier is set
 * or not.  Set by a process that has died it stands until somebody removes it,
 * unless options.ephemeral asked that it goes with the setter's session.  A
 * waiter leaves nothing behind.
 *
 * WHO IS WOKEN: setting wakes those with a listener, removing these and all
 * who wait, which is what a barrier is for.  A barrier that is removed and set
 * again lets those pass who waited for the former.
 *
 * LOSING THE SESSION: waiting ends with ZKE_INVALIDSTATE, a listener hears
 * ZKE_BARRIER_LOST and nothing more.  A barrier that is not ephemeral stands.
 *
 * FENCING: the token of a setting is the zxid of its znode, greater than those
 * of all before.
 */
#ifndef ZKEMBED_RECIPES_BARRIER_H
#define ZKEMBED_RECIPES_BARRIER_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_barrier zke_barrier;

enum {
  ZKE_BARRIER_SET = 1,     /* it stands */
  ZKE_BARRIER_REMOVED = 2, /* it does not stand any more */
  ZKE_BARRIER_LOST = 3     /* the session has ended: nothing more is heard */
};

/* Called after zke_barrier_start() with ZKE_BARRIER_…; token: of the setting
 * that came or went. */
typedef void (*zke_barrier_fn)(zke_barrier *barrier, int event, int64_t token,
                               void *context);

typedef struct zke_barrier_options {
  size_t size;
  int ephemeral; /* 1: a barrier set through this object goes with its session;
                    else it stands until it is removed */
  zke_barrier_fn listener;
  void *context;
} zke_barrier_options;

/* zke_barrier_new - an object for one path; does not touch the tree
 *
 *   path         of the barrier; made as a container when it is first set
 *   options      NULL for the defaults; copied
 *   barrier_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what the handle's state asks for.
 * Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_barrier_new(zke *z, const char *path,
                            const zke_barrier_options *options,
                            zke_barrier **barrier_out);

/* zke_barrier_free - release the object; NULL is fine.  A barrier that was set
 * stands.  Threads: any, while no other call on it runs.  In a callback: yes.
 */
ZKE_API void zke_barrier_free(zke_barrier *barrier);

/* zke_barrier_set - from now on everybody waits
 *
 *   data,len     shown to others, for instance why; NULL and 0 for none
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *   token_out    out: this setting's token
 *
 * Returns ZKE_OK, or
 *   ZKE_HELD          it is set already; the sentence says by whom, since when
 *   ZKE_OTHERKIND     the path is not a barrier's
 *   ZKE_BADARGUMENTS  len is negative
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_barrier_set(zke_barrier *barrier, const void *data, int len,
                            int64_t deadline_ms, int64_t *token_out);

/* zke_barrier_remove - let everybody go on
 *
 *   token        of the setting to remove; 0 for whichever it is
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Returns ZKE_OK, or ZKE_NONODE where no barrier stands (of that token).
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_barrier_remove(zke_barrier *barrier, int64_t token,
                               int64_t deadline_ms);

/* zke_barrier_wait - until the barrier that stands now does so no more
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *
 * Returns ZKE_OK, at once where none stands, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence says who set it
 *   ZKE_CANCELLED         zke_barrier_cancel()
 *   ZKE_OTHERKIND         the path is not a barrier's
 *   ZKE_MISUSE            another thread waits with this object
 *   ZKE_INVALIDSTATE      the session has ended
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_barrier_wait(zke_barrier *barrier, int64_t deadline_ms);

/* zke_barrier_start  - tell the listener from now on; first of all that the
 *                      barrier stands, if it does
 * zke_barrier_step   - look again now, as dispatches do by themselves
 * zke_barrier_stop   - no more
 * zke_barrier_get    - ask the file: *token_out, or NULL, becomes the token of
 *                      the barrier that stands; 0: none does
 * zke_barrier_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                      ZKE_IDLE where none runs.  Blocks: no
 *
 * The first four return ZKE_OK, or
 *   ZKE_OTHERKIND         start: the path is not a barrier's
 *   ZKE_INVALIDSTATE      the session has ended
 *   ZKE_OPERATIONTIMEOUT, ZKE_CONNECTIONLOSS, ZKE_NOAUTH
 *                         start, step and get, as zke_exists(): start has to be
 *                         called again; a step is repeated by dispatches
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_barrier_start(zke_barrier *barrier);
ZKE_API int zke_barrier_step(zke_barrier *barrier);
ZKE_API int zke_barrier_stop(zke_barrier *barrier);
ZKE_API int zke_barrier_get(zke_barrier *barrier, int64_t *token_out);
ZKE_API int zke_barrier_cancel(zke_barrier *barrier);

/* zke_barrier_parties - who set it, since when
 *
 *   list_out  out, not NULL: one block; count 0 where none stands, else one
 *             party: czxid is the token, session and pid are the setter's,
 *             who may be gone; pid 0 and an empty identity: set by other means
 *
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_barrier_parties(zke *z, const char *path,
                                zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
