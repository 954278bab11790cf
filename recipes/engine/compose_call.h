/* compose_call.h - for compose.c: the watchers of a composed handle, and the
 * beginning and end of a call
 *
 * It stands on compose_part.h, which says how the files fit together.
 * This pair of files knows which function to call for a part's event, whether
 * this thread is inside a watcher, and which calls are running.  It never
 * dispatches and never sleeps.
 *
 *     static int compose_remove(zke *z, const char *path, int version) {
 *       compose_call c;
 *       int rc = zke_compose_call_begin(&c, z, path, COMPOSE_CHANGE);
 *       if (rc != ZKE_OK) return rc;
 *       return zke_compose_call_end(&c, zke_delete(c.p->z, c.path, version));
 *     }
 *
 * LOCKS
 *   Callers hold no mutex, and none is held while a part is called or a watcher
 *   runs.  There are two exceptions: blocks (zke_alloc()) here, and descriptors
 *   (zke_fd()) in compose_handle.c.  There a part calls only the program's
 *   allocator, which must not call this handle.
 *
 * INVARIANTS, which the files above rely on
 *   1. While a call is counted in, the handle's memory and its parts stay.
 *   2. A pair of function and context is in the handle's table while any part
 *      may call it.
 *   3. A thread inside a watcher or a batch of the handle has a frame of it,
 *      and calls that would wait for that thread are refused there.
 *   4. A forked child touches no mutex.
 *   5. Once one session of an order has ended, calls on its parts are refused,
 *      even if a part's session could not be ended yet.  Only calls that begin
 *      by zke_compose_call_enter() alone still work.
 */
#ifndef ZKEMBED_RECIPES_COMPOSE_CALL_H
#define ZKEMBED_RECIPES_COMPOSE_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "compose_part.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what this thread is inside ---- */

/* zke_compose_event_part - the part with the event that this thread's innermost
 *                          watcher of the handle is handling; NULL: it is in
 *                          none
 * zke_compose_is_inside  - is the thread inside a watcher of the handle, or in
 *                          the function of a batch?
 * zke_compose_batch      - zke_batch() on a handle's only part.  fn gets the
 *                          composed handle, and may end its thread
 * zke_compose_limit      - in the engine's table: zke_limit() */
compose_part *zke_compose_event_part(const compose *h);
bool zke_compose_is_inside(const compose *h);
int zke_compose_batch(compose_part *p, zke_batch_fn fn, void *context);
int64_t zke_compose_limit(zke *z, int64_t deadline_ms);

/* ---- watchers ---- */

/* zke_compose_pair_forget   - zke_forget(), on all parts; returns their code
 * zke_compose_pair_at       - zke_call_at(), on the base; ZKE_NOMEM, or its
 *                             code
 * zke_compose_pair_default  - zke_set_watcher(), on all parts; fn may be NULL.
 *                             ZKE_NOMEM, or their code
 *
 * A call must be counted in, or nothing else may use the handle yet. */
int zke_compose_pair_forget(compose *h, zke_watch_fn fn, const void *context);
int zke_compose_pair_at(compose *h, int64_t when_ms, zke_watch_fn fn,
                        void *context);
int zke_compose_pair_default(compose *h, zke_watch_fn fn, void *context);

/* zke_compose_pair_listen - set a part's default watcher to ours: from now on
 *                           the handle hears of its session.  Does nothing
 *                           again
 * zke_compose_pair_any    - has a watcher been registered?
 * zke_compose_pair_clear  - release all pairs; no part may call them any more
 *
 * For handles that nothing else uses. */
int zke_compose_pair_listen(compose_part *p);
bool zke_compose_pair_any(const compose *h);
void zke_compose_pair_clear(compose *h);

/* ---- calls ---- */

/* The kind of a call, for zke_compose_call_begin(). */
enum {
  COMPOSE_READ = 1,   /* shows the part's state: the order is kept */
  COMPOSE_CHANGE = 2, /* if it succeeds, later reads are up to date */
  COMPOSE_NAMES = 4,  /* the path may end in a slash: a name is appended */
  COMPOSE_BELOW = 8   /* concerns everything below the path, too */
};

/* A running call; lies on its caller's stack. */
typedef struct compose_call {
  compose *h;
  compose_part *p;
  const char *path; /* the part's */
  zke_watch_fn fn;  /* for the part, with its context */
  void *context;
  /* the rest is compose_call.c's; compose_handle.c reads old_state */
  compose_pair *w;
  int how;       /* COMPOSE_… */
  int64_t began; /* of the order's time */
  bool limited;
  int64_t limit;           /* the part's limit before the call */
  int old_state, old_type; /* the thread's cancellation */
} compose_call;

/* A call counts in, which keeps the handle's memory, and counts out at its end,
 * whatever happens in between.  A call that fails to begin has counted out
 * already.  Cancellation is held off from beginning to end.
 *
 * On the part that a path lies in:
 *
 * zke_compose_call_begin       - count in, find the part, refuse if a session
 *                                has ended, keep the order.  Sets c->p and
 *                                c->path
 * zke_compose_call_begin_watch - the same for a call that registers a watcher,
 *                                which may be NULL: sets c->fn and c->context,
 *                                to be given to the part
 * zke_compose_call_begin_known - the same for a call about a pair that may not
 *                                be registered
 * zke_compose_call_end         - its end, with the part's result, which it
 *                                returns.  A failure's sentence then says where
 *                                the part is mounted */
int zke_compose_call_begin(compose_call *c, zke *z, const char *path, int how);
int zke_compose_call_begin_watch(compose_call *c, zke *z, const char *path,
                                 int how, zke_watch_fn fn, void *context);
int zke_compose_call_begin_known(compose_call *c, zke *z, const char *path,
                                 zke_watch_fn fn, void *context);
int zke_compose_call_end(compose_call *c, int rc);

/* On several parts, or on none:
 *
 * zke_compose_call_enter     - count in, in any state of the session
 * zke_compose_call_begin_all - count in, and refuse if a session has ended
 * zke_compose_call_begin_on  - continue a call that turns out to need only one
 *                              part, as zke_compose_call_begin() does; but
 *                              c->path is not set.  End it by
 *                              zke_compose_call_end()
 * zke_compose_call_alone     - refuse a call that several parts cannot do
 *                              together.  If it fails, the call is over
 * zke_compose_call_turn_to   - choose a part for the next call, and set the
 *                              thread's limit on it.  Returns the part's handle
 * zke_compose_call_unlimit   - to be called after the part's call, with its
 *                              result, which it returns.  Restores the limit,
 *                              records that the part was used, and ends all
 *                              sessions if the part's has ended
 * zke_compose_call_leave     - the end of the whole call; returns rc
 * zke_compose_call_abandon   - the same for pthread_cleanup_push(): a watcher,
 *                              a batch or a cancelled sleep has ended the
 *                              thread */
int zke_compose_call_enter(compose_call *c, zke *z);
int zke_compose_call_begin_all(compose_call *c, zke *z);
int zke_compose_call_begin_on(compose_call *c, compose_part *p, int how);
int zke_compose_call_alone(compose_call *c, const char *what);
zke *zke_compose_call_turn_to(compose_call *c, compose_part *p);
int zke_compose_call_unlimit(compose_call *c, int rc);
int zke_compose_call_leave(compose_call *c, int rc);
void zke_compose_call_abandon(void *arg);

/* zke_compose_check_process - ZKE_FORKED in a child of the process that made
 *                             the handle: it must not touch the handle
 * zke_compose_check_closing - ZKE_CLOSING if a thread has begun to close the
 *                             handle, for a call that has counted in
 * zke_compose_closing       - that failure, if this is known already */
int zke_compose_check_process(const compose *h);
int zke_compose_check_closing(compose *h);
int zke_compose_closing(void);

#ifdef __cplusplus
}
#endif

#endif
