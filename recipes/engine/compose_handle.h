/* compose_handle.h - for compose.c: dispatching and sleeping on a composed
 * handle; making and closing it
 *
 * It stands on compose_call.h; compose_part.h says how the files fit together.
 * This pair of files knows threads: which one dispatches, which ones sleep, and
 * that none is inside when a handle is closed.  It does not know what the calls
 * do.
 *
 * INVARIANTS, which the files above and their callers rely on
 *   1. One thread at a time dispatches a handle: the leader.  So a pair is
 *      called once at a time, as with one service.
 *   2. No thread is inside a handle when its memory is released.
 *   3. If making a handle fails, the handles it was made of stay usable.
 */
#ifndef ZKEMBED_RECIPES_COMPOSE_HANDLE_H
#define ZKEMBED_RECIPES_COMPOSE_HANDLE_H

#include <stdint.h>

#include "compose_call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dispatching and sleeping ---- */

/* In the engine's table: zke_compose_x() is zke_x(). */
int zke_compose_dispatch(zke *z, int *count_out);
int zke_compose_dispatch_to(zke *z, int64_t zxid, int *count_out,
                            int *more_out);
int zke_compose_fd(zke *z, int *fd_out);
int zke_compose_next_deadline(zke *z, int64_t *deadline_out);
int zke_compose_pending(zke *z, int *pending_out);
int64_t zke_compose_turn(zke *z);
int zke_compose_wait_turn(zke *z, int64_t turn, int64_t deadline_ms);
int zke_compose_wake(zke *z);

/* zke_compose_show_in_fd - if the handle already has a descriptor of zke_fd(),
 * make it show the part's events, too.  Returns ZKE_OK, the code of zke_fd() of
 * the part, or ZKE_SYSTEMERROR */
int zke_compose_show_in_fd(const compose *h, const compose_part *p);

/* ---- making and closing ---- */

/* A handle is made in two steps: first the functions that may run out of
 * memory, and then zke_compose_listen(), which takes the parts' default
 * watchers.
 *
 * zke_compose_new    - a handle without parts; its results come from base's
 *                      allocator.  ZKE_NOMEM, or ZKE_SYSTEMERROR: no
 *                      descriptors
 * zke_compose_adopt  - give it a part, and put that into an order; there must
 *                      be fewer than ZKE_MOUNTS parts
 * zke_compose_wrap   - a handle with the base z, in a new order.
 *                      ZKE_INVALIDSTATE, or as zke_compose_new(); z is not
 *                      changed in any case
 * zke_compose_listen - take the default watchers of all parts; returns the code
 *                      of zke_set_watcher().  If it fails, some parts have lost
 *                      their default watchers
 *
 * zke_compose_undo    - take all parts from a handle, leave them open, and
 *                       release it; NULL is fine
 * zke_compose_abandon - close its parts; release the handle and their order,
 *                       which no other part may use
 *
 * Nothing else may use the handle yet. */
int zke_compose_new(zke *base, const zke_engine *engine, compose **out);
void zke_compose_adopt(compose *h, compose_part *p, compose_order *o);
int zke_compose_wrap(zke *z, const zke_engine *engine, compose **out);
int zke_compose_listen(const compose *h);
void zke_compose_undo(compose *h);
void zke_compose_abandon(compose *h, compose_order *o);

/* zke_compose_close - in the engine's table: wake threads that wait for events,
 * wait for all calls, and close the parts in the order in which they were added
 */
int zke_compose_close(zke *z);

#ifdef __cplusplus
}
#endif

#endif
