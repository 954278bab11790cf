/* queue_wait.c - waiting for an item, or for room
 *
 * This file knows which watches a wait needs, when a look is due, and when to
 * tell a listener.  It promises its callers that no change after the last look
 * is missed.  A wake-up is only a reason to try.
 *
 * zke_q_state in queue_tree.h shows the states.  An object can wait for an item
 * and for room at the same time: q->taking and q->putting.  A wait is woken by:
 *
 *   for an item   a write of "entries" (a put, Q2); for each claim of the look,
 *                 a deletion of its znode, or a write, if it ends sooner (Q7).
 *                 The kernel tells when the owner of a watched znode dies
 *   for room      a change of the children of "entries"
 *   a time        the earliest delayed item, the first claim that ends: `due`
 *
 * One look (queue_look_again()) does this, in this order:
 *
 *   1. make the queue, and a place in the line, if they are missing;
 *   2. watch "entries";
 *   3. look: is there an item, or room?  Then READY;
 *   4. if not, watch each claim of the look; if one has changed since the look,
 *      begin again.
 *
 * As 2 comes before 3, a put after the look wakes; by 4, the end of a claim
 * does.  A listener that was told and has failed to try knows the result of 3.
 * So instead of 3 and 4 the next look watches the first item and each claim
 * (queue_watch_quietly()), and the listener is told of later changes.
 *
 * The place in the line decides nothing: zke_queue_size() shows it, and it
 * keeps "entries" from being removed.
 *
 * Start reading at zke_q_wait_for(), queue_wait_on() and queue_look_again(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue_wait.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "queue_item.h"
#include "queue_put.h"
#include "text.h"
#include "znode.h"

enum {
  QUEUE_CLOCK_MS = 10000 /* the longest sleep for a delayed item, since
                            somebody may set the wall clock */
};

/* A one-shot watch that is registered and has not fired. */
typedef struct queue_watch {
  struct queue_watch *next;
  int type; /* ZKE_WATCH_DATA or ZKE_WATCH_CHILD */
  char path[];
} queue_watch;

/* ---- watches, and the place in the line ---- */

/* Forget the watches of a path that an event of this type uses up; all of them
 * if path is NULL.  The next look registers again those that it needs.  Returns
 * whether there were any. */
static bool queue_drop_watches(zke_q_wait *w, int type, const char *path) {
  bool any = false;
  for (queue_watch **at = &w->watches; *at;) {
    queue_watch *x = *at;
    bool gone = !path || ((x->type & type) && strcmp(x->path, path) == 0);
    if (gone) {
      *at = x->next;
      zke_free(x);
      any = true;
    } else {
      at = &x->next;
    }
  }
  return any;
}

/* Is that watch registered?  zke_q_wait_event() has dropped fired ones from the
 * list. */
static bool queue_is_watched(const zke_q_wait *w, int type, const char *path) {
  const queue_watch *x = w->watches;
  while (x && (x->type != type || strcmp(x->path, path) != 0)) x = x->next;
  return x != NULL;
}

/* Watch directory/name (name may be NULL) unless that is done already.
 *
 *   stat_out  set if this registers the watch, or NULL */
static int queue_watch_node(zke_q_wait *w, int type, const char *directory,
                            const char *name, zke_stat *stat_out) {
  zke_queue *q = w->q;
  size_t size = strlen(directory) + (name ? strlen(name) : 0) + 2;
  queue_watch *x = zke_alloc(q->r.z, sizeof *x + size);
  int rc = ZKE_OK;
  if (!x) return ZKE_NOMEM;
  x->type = type;
  snprintf(x->path, size, "%s%s%s", directory, name ? "/" : "",
           name ? name : "");
  bool known = queue_is_watched(w, type, x->path);
  if (!known && type == ZKE_WATCH_CHILD) {
    rc = zke_children(q->r.z, x->path, zke_recipe_watcher, &q->r, NULL,
                      stat_out);
  } else if (!known) {
    rc = zke_get(q->r.z, x->path, zke_recipe_watcher, &q->r, NULL, NULL,
                 stat_out);
  }
  if (known || rc != ZKE_OK) {
    zke_free(x);
  } else {
    x->next = w->watches;
    w->watches = x;
  }
  return rc;
}

/* Does the object need the watch for something else as well? */
static bool queue_needs_watch(zke_queue *q, const zke_q_wait *w,
                              const queue_watch *x) {
  const zke_q_wait *other = w == &q->taking ? &q->putting : &q->taking;
  if (queue_is_watched(other, x->type, x->path)) return true;
  const zke_q_claim *c = q->o.listener ? q->claims : NULL;
  while (c && strcmp(c->path, x->path) != 0) c = c->next;
  return c != NULL;
}

/* Leave the line and drop all watches: later puts must wake only others.  Notes
 * that the listener has not heard are dropped, too: if it takes one item each
 * time it is told, it would take one too many. */
int zke_q_leave(zke_q_wait *w) {
  zke_queue *q = w->q;
  zke_recipe_untell(&q->r, w->event, NULL);
  w->state = ZKE_Q_WAIT_NO;
  w->blocking = false;
  for (queue_watch *x = w->watches; x; x = x->next) {
    if (!queue_needs_watch(q, w, x)) {
      zke_remove_watch(q->r.z, x->path, x->type, zke_recipe_watcher, &q->r);
    }
  }
  queue_drop_watches(w, 0, NULL);
  return zke_q_remove(q, &w->znode);
}

/* Make sure of a place in the line.  ZKE_Q_AGAIN: somebody has deleted it, or
 * the whole queue. */
static int queue_see_place(zke_q_wait *w) {
  zke_queue *q = w->q;
  if (!w->znode)
    return zke_recipe_create(q->r.z, q->line, ZKE_Q_PLACE, w->kind, "", 0,
                             ZKE_EPHEMERAL_SEQUENTIAL, ZKE_FOREVER, &w->znode,
                             NULL);
  int rc = zke_exists(q->r.z, w->znode, NULL, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  zke_free(w->znode);
  w->znode = NULL;
  return zke_q_see_gone(q, rc);
}

/* Watch "entries" for a put or for room. */
static int queue_watch_entries(zke_q_wait *w) {
  zke_queue *q = w->q;
  int type = w == &q->taking ? ZKE_WATCH_DATA : ZKE_WATCH_CHILD;
  int rc = queue_watch_node(w, type, q->entries, NULL, NULL);
  return zke_q_see_gone(q, rc);
}

/* ---- a look ---- */

/* A delay uses the wall clock, which somebody may set; a claim uses zke_now().
 */
int64_t zke_q_next(zke_queue *q, int64_t most) {
  zke *z = q->r.z;
  if (q->due == ZKE_FOREVER) return q->until;
  int64_t left = q->due - zke_wall(z);
  if (left < 0) left = 0;
  if (left > most) left = most;
  int64_t due = zke_now(z) + left;
  return q->until < due ? q->until : due;
}

/* Watch each claim of the last look.  ZKE_Q_AGAIN: one of them has gone since,
 * or another claim or a delay has replaced it, or it ends at another time,
 * which the look does not know. */
static int queue_watch_claims(zke_q_wait *w) {
  zke_queue *q = w->q;
  bool changed = false;
  zke_q_name n;
  for (int i = 0; i < q->claimed->count; i++) {
    const char *name = q->claimed->data[i];
    zke_stat stat = {0};
    if (!zke_q_parse(name, &n)) continue;
    int rc = queue_watch_node(w, ZKE_WATCH_DATA, q->taken, name, &stat);
    if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_Q_AGAIN : rc;
    if (stat.mzxid > q->claimed_zxid) changed = true;
  }
  return changed ? ZKE_Q_AGAIN : ZKE_OK;
}

/* The first item that can be taken, as of a new look; ZKE_Q_NOTHING: there is
 * none. */
static int queue_see_first(zke_queue *q, zke_q_name *out) {
  int rc = zke_q_look(q);
  if (rc == ZKE_OK) rc = zke_q_find(q, &q->entry, out);
  if (rc == ZKE_Q_NOTHING) rc = zke_q_find_due(q, INT32_MAX, false, out);
  return rc;
}

/* Is there an item to take?  If not, watch for a put and for the end of each
 * claim; the kernel reports the death of its owner. */
static int queue_look_for_item(zke_q_wait *w) {
  zke_queue *q = w->q;
  zke_q_name n;
  int rc = queue_watch_entries(w);
  if (rc == ZKE_OK) rc = queue_see_first(q, &n);
  if (rc == ZKE_OK) w->state = ZKE_Q_WAIT_READY;
  if (rc != ZKE_Q_NOTHING) return rc;
  w->due = zke_q_next(q, QUEUE_CLOCK_MS);
  return queue_watch_claims(w);
}

/* Is there room?  The watch is registered before the look, so room made after
 * the look wakes. */
static int queue_look_for_room(zke_q_wait *w) {
  zke_queue *q = w->q;
  int32_t version;
  int rc = queue_watch_entries(w);
  if (rc == ZKE_OK) rc = zke_q_room(q, w->need, &version);
  if (rc == ZKE_OK) w->state = ZKE_Q_WAIT_READY;
  return rc == ZKE_Q_NOTHING ? ZKE_OK : rc;
}

/* Watch the first item, if there is one, since somebody may claim it next.  If
 * it is still the first after its watch was set, it was not claimed before.
 * ZKE_Q_AGAIN: it is not. */
static int queue_watch_first(zke_q_wait *w) {
  zke_queue *q = w->q;
  char watched[ZKE_Q_ITEM_ROOM];
  zke_q_name n;
  int rc = queue_see_first(q, &n);
  if (rc == ZKE_OK) {
    snprintf(watched, sizeof watched, "%s", n.name);
    rc = queue_watch_node(w, ZKE_WATCH_DATA, q->entries, watched, NULL);
    if (rc == ZKE_OK) rc = queue_see_first(q, &n);
    if (rc == ZKE_OK && strcmp(n.name, watched) != 0) rc = ZKE_Q_AGAIN;
  }
  if (rc == ZKE_NONODE) return ZKE_Q_AGAIN;
  return rc == ZKE_Q_NOTHING ? ZKE_OK : rc;
}

/* Watch everything that may become a reason to try, and tell nothing: puts, the
 * first item, and the end of each claim. */
static int queue_watch_quietly(zke_q_wait *w) {
  int rc = queue_watch_entries(w);
  if (w == &w->q->taking) {
    if (rc == ZKE_OK) rc = queue_watch_first(w);
    if (rc == ZKE_OK) rc = queue_watch_claims(w);
  }
  w->quiet = rc < 0; /* changes in between are told */
  return rc;
}

/* One look, for an item or for room. */
static int queue_look_once(zke_q_wait *w) {
  if (w->quiet) return queue_watch_quietly(w);
  return w == &w->q->taking ? queue_look_for_item(w) : queue_look_for_room(w);
}

/* Look again; tell the listener if the look found an item or room. */
static int queue_look_again(zke *z, void *arg) {
  zke_q_wait *w = arg;
  zke_queue *q = w->q;
  (void)z;
  int rc = zke_q_ready(q);
  if (rc == ZKE_OK) rc = queue_see_place(w);
  if (rc == ZKE_OK) rc = queue_look_once(w);
  if (rc != ZKE_OK || w->state != ZKE_Q_WAIT_READY || w->blocking) return rc;
  if (!zke_recipe_tell(&q->r, w->event, 0, "", 0)) {
    w->state = ZKE_Q_WAIT_YES;
    return ZKE_NOMEM;
  }
  return ZKE_OK; /* it stays in the line until it has tried */
}

/* ---- a blocking call ---- */

/* Is the sleep over: is an item or room ready, or due earlier than was known
 * when it began? */
static int queue_done(const zke_q_wait *w) {
  bool done = w->state == ZKE_Q_WAIT_READY || w->due < w->until;
  return done ? ZKE_OK : ZKE_NOT_YET;
}

/* For zke_recipe_await(): is the sleep over? */
static int queue_taking_done(zke_recipe *r) {
  return queue_done(&((zke_queue *)r)->taking);
}

/* The same for room. */
static int queue_putting_done(zke_recipe *r) {
  return queue_done(&((zke_queue *)r)->putting);
}

/* Begin to wait, in this call or for the listener. */
static int queue_begin(zke_q_wait *w, bool blocking, int need) {
  zke_queue *q = w->q;
  if (w->state != ZKE_Q_WAIT_NO) {
    return zke_recipe_fail(
        ZKE_MISUSE, "this object waits for the queue %s already", q->r.path);
  }
  w->state = ZKE_Q_WAIT_YES;
  w->blocking = blocking;
  w->quiet = false;
  w->need = need;
  w->due = ZKE_FOREVER;
  return ZKE_OK;
}

/* Wait until a try is worthwhile.  ZKE_Q_NOTHING: the deadline came. */
static int queue_wait_on(zke_q_wait *w, int64_t deadline_ms) {
  zke_queue *q = w->q;
  for (;;) {
    w->state = ZKE_Q_WAIT_YES;
    w->due = ZKE_FOREVER;
    int rc = zke_q_do(q, queue_look_again, w, deadline_ms);
    if (rc != ZKE_OK || w->state == ZKE_Q_WAIT_READY) return rc;
    w->until = w->due < deadline_ms ? w->due : deadline_ms;
    rc = zke_recipe_await(
        &q->r, w == &q->taking ? queue_taking_done : queue_putting_done,
        w->until);
    if (rc == ZKE_OK && w->state == ZKE_Q_WAIT_READY) return ZKE_OK;
    if (rc != ZKE_OK && rc != ZKE_OPERATIONTIMEOUT) return rc;
    if (zke_now(q->r.z) >= deadline_ms) return ZKE_Q_NOTHING;
  }
}

/* zke_recipe_again() ends the caller's loop of tries if the call was cancelled,
 * or its limit has passed. */
int zke_q_wait_for(zke_q_wait *w, bool *waiting, int need,
                   int64_t deadline_ms) {
  int rc = ZKE_Q_AGAIN;
  if (zke_now(w->q->r.z) >= deadline_ms) return ZKE_Q_NOTHING;
  if (!zke_recipe_again(w->q->r.z, &rc)) return rc;
  rc = *waiting ? ZKE_OK : queue_begin(w, true, need);
  if (rc != ZKE_OK) return rc;
  *waiting = true;
  return queue_wait_on(w, deadline_ms);
}

/* If the znode cannot be deleted now, the session deletes it later. */
int zke_q_wait_end(zke_q_wait *w, bool waiting, int rc) {
  zke_sentence kept;
  if (!waiting) return rc;
  zke_recipe_keep(&kept);
  zke_q_leave(w);
  return zke_recipe_restore(&kept, rc);
}

/* ---- the listener ---- */

/* Does this thread run the object's listener? */
static bool queue_is_telling(const zke_queue *q) {
  return q->r.telling && pthread_equal(q->r.teller, pthread_self());
}

/* An object that may wait for its listener has tried.  If it succeeded, the
 * wait ends.  Otherwise the object keeps waiting in its place, since the try
 * may succeed later; the look tells the listener immediately if something is
 * there.
 *
 *   need  for room: how many items the try was to put
 *
 * If the listener was told and its put has found too little room, the object
 * waits for as much room from then on: told of less it would try, find too
 * little and be told again, without end.  Any other put does not count: the
 * listener may want less.
 *
 * After a failure inside the listener it tells nothing: the listener would be
 * told again and again inside one zke_dispatch() as long as, say, the disk is
 * full.  It is told of the next change, or by zke_queue_step().  The watches
 * for that may fail, too; then the object's steps set them later. */
int zke_q_tried(zke_q_wait *w, int need, int rc) {
  zke_queue *q = w->q;
  bool telling = queue_is_telling(q);
  zke_sentence kept;
  if (w->blocking || w->state == ZKE_Q_WAIT_NO) return rc;
  zke_recipe_keep(&kept);
  if (rc == ZKE_OK) {
    zke_q_leave(w);
  } else {
    w->quiet = telling && rc != ZKE_Q_NOTHING;
    if (rc == ZKE_Q_NOTHING && (telling || w->state == ZKE_Q_WAIT_READY))
      w->need = need;
    w->state = ZKE_Q_WAIT_YES;
    if (zke_q_do(q, queue_look_again, w, 0) != ZKE_OK) q->r.changed = true;
  }
  return zke_recipe_restore(&kept, rc);
}

/* Begin to wait for the listener.  If the first look fails, the object gives up
 * its place in the line: the return code and zke_queue_size() say that it does
 * not wait. */
int zke_q_wait_start(zke_q_wait *w) {
  zke_queue *q = w->q;
  if (!q->o.listener)
    return zke_recipe_fail(ZKE_MISUSE, "the queue %s has no listener",
                           q->r.path);
  int rc = ZKE_OK;
  if (w->state == ZKE_Q_WAIT_NO || w->blocking) rc = queue_begin(w, false, 1);
  if (rc != ZKE_OK) return rc;
  w->quiet = false;
  w->need = 1;
  rc = zke_q_do(q, queue_look_again, w, ZKE_FOREVER);
  return zke_q_wait_end(w, rc != ZKE_OK, rc);
}

/* The listener was told, and no try has come, or it has failed: the next look
 * tells again.  A try may have failed before it could begin, for example
 * because another thread has kept the store's lock.  A blocking call looks by
 * itself. */
void zke_q_tell_again(zke_q_wait *w) {
  w->quiet = false;
  if (w->state == ZKE_Q_WAIT_READY && !w->blocking) w->state = ZKE_Q_WAIT_YES;
}

/* The listener must hear of new events.  A creation or deletion uses up both
 * kinds of watches. */
void zke_q_wait_event(zke_q_wait *w, int type, const char *path) {
  int types = ZKE_WATCH_ANY;
  if (type == ZKE_EVENT_CHILD) types = ZKE_WATCH_CHILD;
  if (type == ZKE_EVENT_CHANGED) types = ZKE_WATCH_DATA;
  if (queue_drop_watches(w, types, path)) zke_q_tell_again(w);
}

/* It does not wait for others: a later step repeats a failed look. */
int zke_q_wait_step(zke_q_wait *w) {
  if (w->state != ZKE_Q_WAIT_YES) return ZKE_OK;
  return zke_recipe_do(w->q->r.z, queue_look_again, w, 0);
}

/* Place and watches are gone, or will go with the session. */
void zke_q_wait_ended(zke_q_wait *w) {
  queue_drop_watches(w, 0, NULL);
  zke_free(w->znode);
  w->znode = NULL;
  if (!w->blocking) w->state = ZKE_Q_WAIT_NO;
}
