/* queue_wait.h - for recipe authors: waiting for an item, or for room
 *
 * zke_q_state in queue_tree.h shows the states. */
#ifndef ZKEMBED_RECIPES_QUEUE_WAIT_H
#define ZKEMBED_RECIPES_QUEUE_WAIT_H

#include "queue_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- in a blocking call ---- */

/* zke_q_tried - to be called after every try
 *
 * If the object waits for its listener, and the try has succeeded, the wait
 * ends; after any other try it continues.
 *
 *   need  for room: how many items the try was to put
 *   rc    of the try
 *
 * Returns rc, with its sentence. */
int zke_q_tried(zke_q_wait *w, int need, int rc);

/* zke_q_wait_for - a try has found nothing: wait for the next reason to try
 *
 *   waiting  in and out: this call has begun to wait; then call
 *            zke_q_wait_end() afterwards
 *   need     as of zke_q_tried()
 *
 * Returns ZKE_OK: try again.  ZKE_Q_NOTHING: the deadline came.  ZKE_MISUSE:
 * the object already waits for the same thing.  Else as zke_recipe_await(). */
int zke_q_wait_for(zke_q_wait *w, bool *waiting, int need, int64_t deadline_ms);

/* zke_q_wait_end - end the wait that a call has begun, if it has; returns rc,
 * with its sentence */
int zke_q_wait_end(zke_q_wait *w, bool waiting, int rc);

/* ---- for the listener ---- */

/* zke_q_wait_start - begin to wait for the listener, or look again
 * zke_q_wait_step  - for a dispatch: look again, if the object waits
 * zke_q_wait_event - an event has used up watches of this path; NULL: all
 * zke_q_tell_again - the next look tells the listener again, if something is
 *                    still there
 *
 * If the first look of a start fails, the object does not wait.  ZKE_MISUSE:
 * it has no listener, or a call waits for the same. */
int zke_q_wait_start(zke_q_wait *w);
int zke_q_wait_step(zke_q_wait *w);
void zke_q_wait_event(zke_q_wait *w, int type, const char *path);
void zke_q_tell_again(zke_q_wait *w);

/* ---- both ---- */

/* zke_q_leave      - stop waiting: remove the place in the line, and all
 *                    watches that nothing else needs.  Returns as
 *                    zke_q_remove()
 * zke_q_wait_ended - the same in memory only: the session has ended, or the
 *                    object is freed.  A blocking call finds out when it wakes
 *                    up */
int zke_q_leave(zke_q_wait *w);
void zke_q_wait_ended(zke_q_wait *w);

/* zke_q_next - when an item can next be taken without an event, of zke_now():
 * when a delayed one is due, or a claim ends; as of the last look
 *
 *   most  how many ms of the wall clock to look ahead */
int64_t zke_q_next(zke_queue *q, int64_t most);

#ifdef __cplusplus
}
#endif

#endif
