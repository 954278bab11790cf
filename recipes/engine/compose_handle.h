/* compose_handle.h - for compose.c: dispatching and sleeping on a composed
 * handle; how it begins and ends
 *
 * It stands on compose_call.h; compose_part.h says how the files fit
 * together.  This pair of files knows threads: which of them dispatches, which
 * sleep, and that nobody is inside when a handle is closed.  It does not know
 * what the calls are.
 *
 * INVARIANTS, which the files above and their callers rely on
 *   1. One thread at a time dispatches a handle: the leader.  So a pair is
 *      called once at a time, as with one service.
 *   2. No thread is inside a handle whose memory is released.
 *   3. A handle whose making fails leaves those that it was made of usable.
 */
#ifndef ZKEMBED_RECIPES_COMPOSE_HANDLE_H
#define ZKEMBED_RECIPES_COMPOSE_HANDLE_H

#include <stdint.h>

#include "compose_call.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dispatching and sleeping ---- */

/* Members of the table: zke_compose_x() is zke_x(). */
int zke_compose_dispatch(zke *z, int *count_out);
int zke_compose_dispatch_to(zke *z, int64_t zxid, int *count_out,
                            int *more_out);
int zke_compose_fd(zke *z, int *fd_out);
int zke_compose_next_deadline(zke *z, int64_t *deadline_out);
int zke_compose_pending(zke *z, int *pending_out);
int64_t zke_compose_turn(zke *z);
int zke_compose_wait_turn(zke *z, int64_t turn, int64_t deadline_ms);
int zke_compose_wake(zke *z);

/* zke_compose_show_in_fd - where the handle has a descriptor of zke_fd()
 * already, it shows the part's events from now on, too.  Returns ZKE_OK, or
 * what zke_fd() of the part says, or ZKE_SYSTEMERROR */
int zke_compose_show_in_fd(const compose *h, const compose_part *p);

/* ---- beginning and end ---- */

/* A handle is made in two steps: what may fail for want of memory, and then
 * zke_compose_listen(), which takes the parts' default watchers.
 *
 * zke_compose_new    - a handle without parts, whose results are of base's
 *                      allocator.  ZKE_NOMEM, or ZKE_SYSTEMERROR: no
 *                      descriptors
 * zke_compose_adopt  - give it a part, and put that into an order; there are
 *                      fewer than ZKE_MOUNTS parts
 * zke_compose_wrap   - a handle whose base is z, in an order of its own.
 *                      ZKE_INVALIDSTATE, or as zke_compose_new(); z is as it
 *                      was in any case
 * zke_compose_listen - take the default watchers of all parts; what
 *                      zke_set_watcher() says.  Where it fails some parts have
 *                      lost their own
 *
 * zke_compose_undo    - take all parts from a handle, which stay open, and
 *                       release it; NULL is fine
 * zke_compose_abandon - close its parts; release the handle, and their order,
 *                       which no other part uses
 *
 * Nobody else has the handle yet. */
int zke_compose_new(zke *base, const zke_engine *engine, compose **out);
void zke_compose_adopt(compose *h, compose_part *p, compose_order *o);
int zke_compose_wrap(zke *z, const zke_engine *engine, compose **out);
int zke_compose_listen(const compose *h);
void zke_compose_undo(compose *h);
void zke_compose_abandon(compose *h, compose_order *o);

/* zke_compose_close - a member of the table: wake threads that wait for events,
 * wait for all calls, and close the parts in the order in which they came */
int zke_compose_close(zke *z);

#ifdef __cplusplus
}
#endif

#endif
