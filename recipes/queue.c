/* queue.c - items for the first taker
 *
 * queue.h has the layout of the znodes, and the promises to callers.  This file
 * says how each change is made in one step, so two processes, a death or a lost
 * reply never duplicate an item and never lose one.  queue_tree.h lists the
 * files below this one, in recipes/part.
 *
 * Between calls the object keeps only the queue's settings and the list of its
 * own claims, never data of items.  Every call that puts, takes or claims uses
 * zke_q_do():
 *
 *   1. zke_q_ready(): the queue exists, and so does this object's user znode.
 *   2. Read the state for the decision, in one snapshot: the first names and
 *      all claims (zke_q_pick()) for a take or a claim; the version of
 *      "entries" and the number of its items (zke_q_room()) for a put.
 *   3. Make one step that checks that all of this is still so, and changes it.
 *   4. If the check fails, somebody else was faster (ZKE_Q_AGAIN): go to 1.
 *   5. If there was nothing to take, or no room, and the caller has time: take
 *      a place in the line, watch, look once more, sleep, and go to 1
 *      (queue_try_and_wait()).
 *
 * Only the step of 3 changes items.  If the process dies before it, the queue
 * is unchanged; if it dies after it, the change is complete, and its claims and
 * places in the line go with its session.  If the reply of the step is lost,
 * the version of the user znode tells whether it was made (Q3).
 *
 * The steps:
 *
 *   put      set "entries" (in a queue with a limit, or with a key: at the
 *            version that was read), create the item (and its key)
 *   take     delete the item at its version (and its key)
 *   claim    set the item at its version, create its znode in "taken" (and the
 *            marker of its end)
 *   ack      delete claim, item (and key), and make the caller's changes
 *   release  delete the claim, check the item's version (and create a delay)
 *   bury     delete claim, item (and key), create the letter
 *
 * In 5, no change after the last look is missed; queue_wait.c says how.  A
 * wake-up is only a reason to look again: the step decides who gets the item.
 *
 * Invariants, and their reasons:
 *
 *   Q1  Each claim raises the item's version.  So a decision at some version is
 *       valid as long as the item has that version, and no process can take,
 *       bury or acknowledge an item that somebody else has claimed since.
 *   Q2  Each put writes the data of "entries".  That wakes the takers, and its
 *       version lets only one put at a time rely on the room that it has seen.
 *       All other changes only make room.
 *   Q3  Each change writes the object's user znode at the known version: after
 *       a lost reply that version tells whether the change was made.
 *   Q4  Each change checks the version of the queue's own znode, so it uses the
 *       limit and the attempts that were written there last.
 *   Q5  All directories are containers.  The object's user znode is in a
 *       directory of "entries", from before the object reads anything for a
 *       decision until it is freed.  So by Q3 a change is made in the same
 *       "entries" that was read, which gives no number twice: no decision about
 *       an item is applied to a later item of its name.  "taken" and "dead" may
 *       go at any time, when they have been empty for a while; a missing one is
 *       empty, and the step that needs it makes it again.
 *   Q6  A container that never had a child is never removed.  So each is made
 *       in one step with all its missing parents, and with a child of the last
 *       one that goes in the same step.
 *   Q7  A claim that ends at a time has a marker in "taken" as well; its name
 *       contains the time, and the item and version.  Both are made and deleted
 *       in one step.  A process that takes over the item deletes the marker by
 *       that name, and by Q1 relies on that version: so a claim that was
 *       prolonged or acknowledged since is not taken over.  An item that is
 *       given back with a delay has the same two znodes, but they belong to no
 *       session: after that time any process takes it over.  To end a claim
 *       sooner, its znode is written, which wakes those that wait for it.
 *   Q8  An item with a key has two znodes in "keys", made and deleted in one
 *       step with it: one is named after the key, so only one item has it, and
 *       one after the item, so its consumer knows the key.
 *
 * Start reading at zke_queue_take(), queue_try_and_wait() and queue_try_take();
 * then at zke_queue_put() and zke_queue_claim(); their steps are in queue_put.c
 * and queue_claim.c.  Functions call only those above them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "part/queue_claim.h"
#include "part/queue_item.h"
#include "part/queue_list.h"
#include "part/queue_put.h"
#include "part/queue_tree.h"
#include "part/queue_wait.h"
#include "part/text.h"
#include "part/znode.h"

enum {
  QUEUE_PRIORITY = 100, /* of an item without a priority; as in kazoo */
  QUEUE_KEY_MOST = 255  /* bytes of a key */
};

/* The longest claim or delay: 17 years. */
#define QUEUE_SPAN_MOST (ZKE_MAX_TTL / 2)

/* ---- the object ----
 *
 * The functions of the class: event() notes the watches and claims that an
 * event is about, step() looks again, ended() and quit() give up what the
 * object has.  deliver(), which calls the listener, and destroy() are called
 * without the mutex. */

/* An event has spent a one-shot watch: note which, and which claim may be gone.
 * After an overflow events are missing, so every watch counts as spent. */
static void queue_event(zke_recipe *r, int type, const char *path) {
  zke_queue *q = (zke_queue *)r;
  bool all = type == ZKE_EVENT_OVERFLOW;
  zke_q_wait_event(&q->taking, type, all ? NULL : path);
  zke_q_wait_event(&q->putting, type, all ? NULL : path);
  for (zke_q_claim *c = q->claims; c; c = c->next)
    if (all || strcmp(c->path, path) == 0) c->suspect = true;
}

/* A step of the object, made by dispatches: claims first, so a listener hears
 * of a loss before it is offered another item. */
static int queue_step_all(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  int rc = q->o.listener ? zke_q_see_claims(q) : ZKE_OK;
  if (rc == ZKE_OK) rc = zke_q_wait_step(&q->taking);
  if (rc == ZKE_OK) rc = zke_q_wait_step(&q->putting);
  return rc;
}

/* The session has ended, and with it everything that belonged to it.  Each
 * claim is told as lost, and the end itself last. */
static void queue_ended(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  zke_q_lose_claims(q);
  zke_q_wait_ended(&q->taking);
  zke_q_wait_ended(&q->putting);
  zke_free(q->user);
  q->user = NULL;
  zke_recipe_tell(r, ZKE_QUEUE_LOST, 0, NULL, 0);
}

/* Tell the listener; number is a claim's token, and text its item's name. */
static void queue_deliver(zke_recipe *r, int event, int64_t number,
                          const char *text, int len) {
  zke_queue *q = (zke_queue *)r;
  (void)len;
  bool ended = event == ZKE_QUEUE_LOST && !number; /* a claim has a token */
  if (q->o.listener)
    q->o.listener(q, event, number, ended ? NULL : text, q->o.context);
}

/* Give up the object's znodes, so others continue immediately.  If one cannot
 * be deleted now, it is discarded later. */
static void queue_quit(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  zke_q_leave(&q->taking);
  zke_q_leave(&q->putting);
  zke_q_give_up_claims(q);
  zke_q_remove(q, &q->user);
}

/* Free the object's memory; queue_quit() has given up the rest. */
static void queue_destroy(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  zke_q_forget_claims(q);
  zke_q_wait_ended(&q->taking);
  zke_q_wait_ended(&q->putting);
  zke_q_drop_page(&q->entry);
  zke_q_drop_page(&q->later);
  zke_free(q->claimed);
  zke_free(q->markers);
  zke_free(q->user);
  zke_free(q->entries);
  zke_free(q->keys);
  zke_free(q->taken);
  zke_free(q->dead);
  zke_free(q->line);
  zke_free(q->stays);
}

static const zke_recipe_class queue_class = {.name = "queue",
                                             .event = queue_event,
                                             .step = queue_step_all,
                                             .ended = queue_ended,
                                             .deliver = queue_deliver,
                                             .quit = queue_quit,
                                             .destroy = queue_destroy};

/* Refuse options that are out of bounds. */
static int queue_check_options(const zke_queue_options *o) {
  if (o->limit < 0 || o->attempts < 0 || o->new_attempts < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "limit %d, attempts %d, new_attempts %d", o->limit,
                           o->attempts, o->new_attempts);
  if (o->reserved_int || o->claim_ms < 0 || o->claim_ms > QUEUE_SPAN_MOST)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "reserved_int %d, claim_ms %" PRId64,
                           o->reserved_int, o->claim_ms);
  return ZKE_OK;
}

/* Make the paths of the queue's directories.  queue_destroy() frees them, even
 * if only some were made. */
static int queue_name_directories(zke_queue *q) {
  zke *z = q->r.z;
  q->entries = zke_recipe_path(z, q->r.path, "entries");
  q->taken = zke_recipe_path(z, q->r.path, "taken");
  q->dead = zke_recipe_path(z, q->r.path, "dead");
  q->keys = zke_recipe_path(z, q->r.path, "keys");
  q->stays = zke_recipe_path(z, q->r.path, "stays");
  if (q->entries) q->line = zke_recipe_path(z, q->entries, ZKE_Q_LINE);
  bool all = q->line && q->taken && q->dead && q->keys && q->stays;
  return all ? ZKE_OK : ZKE_NOMEM;
}

/* This only checks the path's form and reads nothing of the queue: the first
 * call that needs the queue makes it, or reads its settings. */
int zke_queue_new(zke *z, const char *path, const zke_queue_options *options,
                  zke_queue **queue_out) {
  zke_queue_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(queue_out, options, &o, zke_queue_options);
  if (rc == ZKE_OK) rc = queue_check_options(&o);
  if (rc == ZKE_OK)
    rc = zke_recipe_new(z, path, &queue_class, sizeof(zke_queue), &r);
  if (rc != ZKE_OK) return rc;
  zke_queue *q = (zke_queue *)r;
  q->o = o;
  q->entry = (zke_q_page){.kind = "entry-", .last = true};
  q->later = (zke_q_page){.kind = "later-", .last = true};
  q->taking = (zke_q_wait){.q = q, .kind = "take-", .event = ZKE_QUEUE_ITEM};
  q->putting = (zke_q_wait){.q = q, .kind = "put-", .event = ZKE_QUEUE_ROOM};
  rc = queue_name_directories(q);
  if (rc == ZKE_OK)
    *queue_out = q;
  else
    zke_recipe_free(r);
  return rc;
}

/* The claims go with the object, so a program that gives up half-way blocks no
 * item. */
void zke_queue_free(zke_queue *queue) { zke_recipe_free((zke_recipe *)queue); }

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_queue_cancel(zke_queue *queue) {
  return zke_recipe_cancel((zke_recipe *)queue);
}

/* ---- the loop ----
 *
 * Each put, take and claim is the same loop: try, and after ZKE_Q_NOTHING wait
 * for a reason to try again, until the deadline. */

/* End the sessions of dead processes that have claimed items.  ZKE_OK: claims
 * have gone, so try again; ZKE_Q_NOTHING: none has. */
static int queue_bury(const zke_queue *q) {
  int rc = zke_recipe_bury_all(q->r.z, q->taken, q->claimed);
  if (rc == ZKE_NONODE) return ZKE_OK;
  return rc == ZKE_OK ? ZKE_Q_NOTHING : rc;
}

/* Try, and wait until the deadline.  Before it reports that there is no item it
 * checks once whether the processes with claims live.
 *
 *   fn, arg  a try, for zke_q_do()
 *   need     for room: the number of items to put
 *
 * ZKE_Q_NOTHING: the deadline came. */
static int queue_try_and_wait(zke_q_wait *w, int (*fn)(zke *z, void *arg),
                              void *arg, int need, int64_t deadline_ms) {
  zke_queue *q = w->q;
  bool waiting = false, asked = w == &q->putting;
  int rc;
  do {
    rc = zke_q_do(q, fn, arg, deadline_ms);
    rc = zke_q_tried(w, need, rc);
    if (rc != ZKE_Q_NOTHING) break;
    rc = zke_q_wait_for(w, &waiting, need, deadline_ms);
    if (rc == ZKE_Q_NOTHING && !asked) rc = queue_bury(q);
    asked = true;
  } while (rc == ZKE_OK);
  return zke_q_wait_end(w, waiting, rc);
}

/* ---- in ----
 *
 * The arguments are checked before the mutex is taken. */

/* Put, and wait for room until the deadline. */
static int queue_put(zke_q_load *load, int64_t deadline_ms) {
  zke_queue *q = load->q;
  int rc = queue_try_and_wait(&q->putting, zke_q_try_put, load, load->count,
                              deadline_ms);
  if (rc == ZKE_Q_NOTHING)
    rc = zke_recipe_fail(ZKE_LIMIT,
                         "the queue %s is full: its limit is %d items",
                         q->r.path, q->limit);
  return rc;
}

/* A key is a line of text, and belongs to one item. */
static int queue_check_key(const zke_q_load *load) {
  size_t len = strnlen(load->key, QUEUE_KEY_MOST + 1);
  if (!len || len > QUEUE_KEY_MOST)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a key has 1 to %d bytes",
                           QUEUE_KEY_MOST);
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)load->key[i] < ' ' || load->key[i] == 127)
      return zke_recipe_fail(ZKE_BADARGUMENTS,
                             "a key has no control characters");
  if (load->count > 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "a key is for one item, not for %d", load->count);
  return ZKE_OK;
}

/* Check the options of a put, and store them in a load. */
static int queue_load_options(const zke_queue_put_options *given,
                              zke_q_load *load) {
  zke_queue_put_options o;
  int rc = zke_take_options(given, &o, sizeof o, "zke_queue_put_options");
  if (rc != ZKE_OK) return rc;
  if (o.priority < 0 || o.priority > 999) {
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "options.priority is %d, not 0 to 999", o.priority);
  }
  if (o.due_ms < 0 || o.due_ms > ZKE_Q_DUE_MOST) {
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "options.due_ms is %" PRId64 ", not 0 to %" PRId64,
                           o.due_ms, ZKE_Q_DUE_MOST);
  }
  load->priority = o.priority ? o.priority : QUEUE_PRIORITY;
  load->mode =
      o.ephemeral ? ZKE_EPHEMERAL_SEQUENTIAL : ZKE_PERSISTENT_SEQUENTIAL;
  load->due_ms = o.due_ms;
  load->key = o.key;
  return load->key ? queue_check_key(load) : ZKE_OK;
}

/* Put the load; the arguments are checked before anything is touched.  Even
 * without items, the object and its session are checked. */
static int queue_put_load(zke_queue *queue, zke_q_load *load,
                          const zke_queue_put_options *options,
                          int64_t deadline_ms) {
  int count = load->count;
  if (count < 0 || count >= INT32_MAX / 256 || (count && !load->values))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items", count);
  int rc = queue_load_options(options, load);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_enter_by((zke_recipe *)queue, deadline_ms);
  if (rc != ZKE_OK) return rc;
  load->q = queue;
  if (count) rc = queue_put(load, deadline_ms);
  rc = zke_recipe_leave(&queue->r, rc);
  return load->more && load->more->code ? load->more->code : rc;
}

/* Items without changes of the caller. */
int zke_queue_put_all(zke_queue *queue, const zke_queue_value *values,
                      int count, const zke_queue_put_options *options,
                      int64_t deadline_ms) {
  zke_q_load load = {.values = values, .count = count};
  return queue_put_load(queue, &load, options, deadline_ms);
}

/* The items and the caller's changes are one step. */
int zke_queue_put_with(zke_queue *queue, const zke_queue_value *values,
                       int value_count, const zke_queue_put_options *options,
                       const zke_op *ops, int count, zke_op_result *results,
                       int64_t deadline_ms) {
  zke_q_more more = {ops, count, results, 0};
  zke_q_load load = {.values = values, .count = value_count, .more = &more};
  int rc = zke_q_check_more(&more);
  if (rc != ZKE_OK) return rc;
  if (value_count < 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items", value_count);
  zke_q_clear_more(&more);
  return queue_put_load(queue, &load, options, deadline_ms);
}

/* A put of one. */
int zke_queue_put(zke_queue *queue, const void *data, int len,
                  const zke_queue_put_options *options, int64_t deadline_ms) {
  zke_queue_value value = {data, len};
  return zke_queue_put_all(queue, &value, 1, options, deadline_ms);
}

/* ---- out ---- */

/* A consumer's request. */
typedef struct queue_want {
  zke_queue *q;
  bool claim;             /* else to take one */
  int most;               /* items */
  zke_queue_item **items; /* out */
  int count;              /* out */
} queue_want;

/* One try to claim up to so many items. */
static int queue_try_claim(zke *z, void *arg) {
  queue_want *w = arg;
  (void)z;
  int rc = zke_q_ready(w->q);
  if (rc != ZKE_OK) return rc;
  return zke_q_claim_items(w->q, w->most, w->items, &w->count);
}

/* Take an item at the version seen (Q1). */
static int queue_take_step(zke_queue *q, zke_queue_item *item) {
  zke_q_step *s =
      zke_q_step_new(q->r.z, ZKE_Q_TAKEOVER_OPS + ZKE_Q_REMOVAL_OPS);
  if (!s) return ZKE_NOMEM;
  zke_op *op = zke_q_add_takeover(&s->ops[ZKE_Q_OP_FIRST], item);
  int own = zke_q_step_end(s, zke_q_add_removal(op, item));
  int rc = zke_q_change(q, s);
  if (rc < 0 && zke_q_was_late(s, own)) rc = ZKE_Q_AGAIN;
  zke_q_step_free(s);
  item->attempts++;
  return rc;
}

/* One try to take an item. */
static int queue_try_take(zke *z, void *arg) {
  queue_want *w = arg;
  zke_queue_item *item = NULL;
  zke_q_page *page;
  (void)z;
  int rc = zke_q_ready(w->q);
  if (rc == ZKE_OK) rc = zke_q_pick(w->q, false, &page, &item);
  if (rc == ZKE_OK) rc = queue_take_step(w->q, item);
  w->count = rc == ZKE_OK;
  if (rc == ZKE_OK)
    w->items[0] = item;
  else
    zke_free(item);
  return rc;
}

/* The first claim of an item, or NULL. */
static const char *queue_first_claim(const zke_queue *q) {
  zke_q_name parsed;
  for (int i = 0; q->claimed && i < q->claimed->count; i++)
    if (zke_q_parse(q->claimed->data[i], &parsed)) return q->claimed->data[i];
  return NULL;
}

/* Say why there was nothing to take: not due, empty, or claimed, by one of the
 * consumers.  It uses the result of the last look. */
static int queue_say_nothing(zke_queue *q) {
  const int rc = ZKE_OPERATIONTIMEOUT;
  const char *name = queue_first_claim(q);
  char what[300];
  if (q->due != ZKE_FOREVER) {
    return zke_recipe_fail(
        rc, "the next item of the queue %s is due in %" PRId64 " ms", q->r.path,
        q->due - zke_wall(q->r.z));
  }
  if (!name) return zke_recipe_fail(rc, "the queue %s is empty", q->r.path);
  char *claim = zke_recipe_path(q->r.z, q->taken, name);
  if (!claim) return ZKE_NOMEM;
  snprintf(what, sizeof what, "each item of the queue %s is claimed: %s",
           q->r.path, name);
  zke_recipe_say_held(q->r.z, rc, what, claim);
  zke_free(claim);
  return rc;
}

/* Take or claim, and wait for an item until the deadline.  The items are NULL
 * unless there are some, even after an error. */
static int queue_get(queue_want *want, int64_t deadline_ms) {
  zke_queue *q = want->q;
  if (!want->items)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "the pointer for the item is NULL");
  for (int i = 0; i < want->most; i++) want->items[i] = NULL;
  int rc = zke_recipe_enter_by((zke_recipe *)q, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = queue_try_and_wait(&q->taking,
                          want->claim ? queue_try_claim : queue_try_take, want,
                          0, deadline_ms);
  if (rc == ZKE_Q_NOTHING) rc = queue_say_nothing(q);
  return zke_recipe_leave(&q->r, rc);
}

/* The step that deletes the item checks that it is still there, so no other
 * process gets it; if the process dies afterwards, it is gone. */
int zke_queue_take(zke_queue *queue, int64_t deadline_ms,
                   zke_queue_item **item_out) {
  queue_want want = {.q = queue, .most = 1, .items = item_out};
  return queue_get(&want, deadline_ms);
}

/* The item stays, and gets an ephemeral znode: if the process dies, it is free
 * again. */
int zke_queue_claim(zke_queue *queue, int64_t deadline_ms,
                    zke_queue_item **item_out) {
  queue_want want = {.q = queue, .claim = true, .most = 1, .items = item_out};
  return queue_get(&want, deadline_ms);
}

/* All are claimed in one step, so they have the same token. */
int zke_queue_claim_some(zke_queue *queue, int most, int64_t deadline_ms,
                         zke_queue_item **items_out, int *count_out) {
  queue_want want = {
      .q = queue, .claim = true, .most = most, .items = items_out};
  if (!count_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "count_out is NULL");
  *count_out = 0;
  if (most < 1 || most > ZKE_Q_BATCH)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items, at most %d", most,
                           ZKE_Q_BATCH);
  int rc = queue_get(&want, deadline_ms);
  *count_out = want.count;
  return rc;
}

/* ---- a claim ---- */

/* The claim exists, at the version that it has made (Q1), and it is this
 * object's, not that of a later item of the same name (Q5). */
int zke_queue_ops(const zke_queue_item *item, zke_op ops[ZKE_QUEUE_OPS]) {
  if (!item || !ops || !item->token)
    return zke_recipe_fail(
        ZKE_BADARGUMENTS,
        "the item or ops is NULL, or the item is not claimed");
  zke_op_check(&ops[0], item->claim_path, -1);
  zke_op_check(&ops[1], item->entry_path, item->version);
  zke_op_check(&ops[2], item->user_path, -1); /* Q5 */
  return ZKE_OK;
}

/* Enter with a claim of this object: *at. */
static int queue_enter_claim(zke_queue *q, const zke_queue_item *item,
                             zke_q_claim ***at) {
  if (!item) return zke_recipe_fail(ZKE_BADARGUMENTS, "the item is NULL");
  int rc = zke_recipe_enter((zke_recipe *)q);
  if (rc != ZKE_OK) return rc;
  rc = zke_q_own_claim(q, item, at);
  if (rc != ZKE_OK) zke_recipe_leave(&q->r, rc);
  return rc;
}

/* Acknowledge one item or several; the arguments are checked before anything
 * is touched. */
static int queue_ack_entered(zke_queue *queue, zke_q_acks *d) {
  int rc = zke_q_check_more(&d->more);
  if (rc != ZKE_OK) return rc;
  zke_q_clear_more(&d->more);
  for (int i = 0; i < d->item_count; i++)
    if (!d->items[i])
      return zke_recipe_fail(ZKE_BADARGUMENTS, "the item is NULL");
  rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_leave(&queue->r, zke_q_ack(queue, d));
  return d->more.code ? d->more.code : rc;
}

/* The item, its claim and the caller's changes are one step. */
int zke_queue_ack(zke_queue *queue, const zke_queue_item *item,
                  const zke_op *ops, int count, zke_op_result *results) {
  zke_q_acks d = {&item, 1, {ops, count, results, 0}};
  return queue_ack_entered(queue, &d);
}

/* The same for several; this object must have claimed each. */
int zke_queue_ack_all(zke_queue *queue, zke_queue_item *const *items,
                      int item_count, const zke_op *ops, int count,
                      zke_op_result *results) {
  zke_q_acks d = {(const zke_queue_item *const *)items,
                  item_count,
                  {ops, count, results, 0}};
  if (!items || item_count < 1 || item_count > ZKE_Q_BATCH)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items, at most %d", item_count,
                           ZKE_Q_BATCH);
  return queue_ack_entered(queue, &d);
}

/* It counts from now on, whatever the rest of the claim. */
int zke_queue_prolong(zke_queue *queue, const zke_queue_item *item,
                      int64_t ms) {
  zke_q_claim **at;
  if (ms < 1 || (ms > QUEUE_SPAN_MOST && ms != ZKE_FOREVER))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%" PRId64 " ms", ms);
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, zke_q_prolong(queue, at, item, ms));
}

/* Whatever it returns, the claim is not held any more. */
int zke_queue_release(zke_queue *queue, const zke_queue_item *item,
                      int64_t delay_ms, const char *reason) {
  zke_q_claim **at;
  if (delay_ms < 0 || delay_ms > QUEUE_SPAN_MOST)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "delay_ms %" PRId64, delay_ms);
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  if (!reason) reason = "it was given back";
  rc = zke_q_release(queue, at, item, delay_ms, reason);
  return zke_recipe_leave(&queue->r, rc);
}

/* Asks the file: the object's knowledge is as old as the last event that was
 * dispatched. */
int zke_queue_check(zke_queue *queue, const zke_queue_item *item) {
  zke_q_claim **at;
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, zke_q_verify(queue, *at));
}

/* ---- waiting without blocking ----
 *
 * Here the object waits for its listener and not in a call: steps, made by
 * dispatches, and the program's tries (zke_q_tried()) change its state. */

/* Enter, and find the wait of an event of the listener: *w. */
static int queue_enter_wait(zke_queue *q, int event, zke_q_wait **w) {
  int rc = zke_recipe_enter((zke_recipe *)q);
  if (rc != ZKE_OK) return rc;
  *w = event == ZKE_QUEUE_ITEM ? &q->taking : &q->putting;
  if (event == (*w)->event) return ZKE_OK;
  rc = zke_recipe_fail(ZKE_BADARGUMENTS, "event %d", event);
  return zke_recipe_leave(&q->r, rc);
}

/* A second call looks again. */
int zke_queue_start(zke_queue *queue, int event) {
  zke_q_wait *w;
  int rc = queue_enter_wait(queue, event, &w);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, zke_q_wait_start(w));
}

/* For a program that dispatches seldom: it does the work of a dispatch.  The
 * listener is told if there is something, even if it was told before and has
 * not tried. */
int zke_queue_step(zke_queue *queue) {
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  zke_q_tell_again(&queue->taking);
  zke_q_tell_again(&queue->putting);
  return zke_recipe_leave(&queue->r, zke_recipe_look(&queue->r));
}

/* Does not end another thread's blocking call; use zke_queue_cancel(). */
int zke_queue_stop(zke_queue *queue, int event) {
  zke_q_wait *w;
  int rc = queue_enter_wait(queue, event, &w);
  if (rc != ZKE_OK) return rc;
  if (w->blocking)
    rc = zke_recipe_fail(ZKE_MISUSE,
                         "another thread waits; see zke_queue_cancel()");
  else
    rc = zke_q_leave(w);
  return zke_recipe_leave(&queue->r, rc);
}

/* An item that is due now counts as ready, so it has no time: the result is the
 * earliest moment at which a look may find more than this one. */
int zke_queue_due(zke_queue *queue, int64_t *deadline_out) {
  zke_q_name n;
  if (!deadline_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "deadline_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = zke_q_know(queue);
  if (rc == ZKE_OK) rc = zke_q_look(queue);
  if (rc == ZKE_OK) rc = zke_q_find_due(queue, INT32_MAX, true, &n);
  if (rc == ZKE_Q_NOTHING) {
    rc = ZKE_OK;
    *deadline_out = zke_q_next(queue, INT64_MAX / 4);
  }
  return zke_recipe_leave(&queue->r, rc);
}

/* ---- looking, dead letters, the end of a queue ----
 *
 * None of these waits for an item or for room, except zke_queue_requeue(),
 * which puts. */

/* One try of a look.  It skips exhausted items and does not bury them: it
 * changes nothing. */
static int queue_try_peek(zke *z, void *arg) {
  queue_want *w = arg;
  zke_q_page *page;
  (void)z;
  int rc = zke_q_know(w->q);
  return rc == ZKE_OK ? zke_q_pick(w->q, true, &page, w->items) : rc;
}

/* If an item changes between look and read, it looks again. */
int zke_queue_peek(zke_queue *queue, zke_queue_item **item_out) {
  queue_want want = {.q = queue, .items = item_out};
  if (!item_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "item_out is NULL");
  *item_out = NULL;
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = zke_q_do(queue, queue_try_peek, &want, ZKE_FOREVER);
  if (rc == ZKE_Q_NOTHING)
    rc = zke_recipe_fail(ZKE_NONODE, "nothing to take from the queue %s",
                         queue->r.path);
  return zke_recipe_leave(&queue->r, rc);
}

/* For people and monitoring: it costs a read of all names. */
int zke_queue_size(zke_queue *queue, zke_queue_counts *counts_out) {
  if (!counts_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "counts_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = zke_q_know(queue);
  if (rc == ZKE_OK) rc = zke_q_count(queue, counts_out);
  return zke_recipe_leave(&queue->r, rc);
}

/* The common part of the two lists: arguments, the mutex, and that the list of
 * a missing queue is empty. */
static int queue_list_entered(zke_queue *q, bool letters,
                              zke_queue_entries **entries_out) {
  if (!entries_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "entries_out is NULL");
  *entries_out = NULL;
  int rc = zke_recipe_enter((zke_recipe *)q);
  if (rc != ZKE_OK) return rc;
  rc = zke_q_know(q);
  if (rc == ZKE_OK) rc = zke_q_list(q, letters, entries_out);
  return zke_recipe_leave(&q->r, rc);
}

/* Items and letters differ in the data that is read of each. */
int zke_queue_list(zke_queue *queue, zke_queue_entries **entries_out) {
  return queue_list_entered(queue, false, entries_out);
}

int zke_queue_dead(zke_queue *queue, zke_queue_entries **entries_out) {
  return queue_list_entered(queue, true, entries_out);
}

/* Put a dead letter like any item, and delete it in the same step: so it is
 * never in both places, nor in none. */
static int queue_requeue(zke_queue *q, const zke_q_name *n,
                         int64_t deadline_ms) {
  zke_queue_value value = {NULL, -1};
  char *data = NULL, *letter = NULL, *death = NULL, *key = NULL;
  int rc = zke_q_know(q);
  if (rc == ZKE_OK) rc = zke_q_letter(q, n->name, &letter, &death);
  if (rc == ZKE_OK) rc = zke_q_letter_key(q, death, &key);
  if (rc == ZKE_OK)
    rc = zke_get(q->r.z, letter, NULL, NULL, &data, &value.len, NULL);
  value.data = data;
  zke_q_load load = {.q = q,
                     .values = &value,
                     .count = 1,
                     .priority = n->priority,
                     .mode = ZKE_PERSISTENT_SEQUENTIAL,
                     .key = key,
                     .letter = letter,
                     .death = death};
  if (rc == ZKE_OK) rc = queue_put(&load, deadline_ms);
  zke_free(data);
  zke_free(key);
  zke_free(death);
  zke_free(letter);
  return rc;
}

/* Parse a letter's name. */
static int queue_know_letter(const char *name, zke_q_name *n) {
  if (name && zke_q_parse(name, n)) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS,
                         "%s is not the name of a dead letter",
                         name ? name : "NULL");
}

/* If another process puts the letter back or drops it meanwhile, the step
 * fails, and nothing is duplicated. */
int zke_queue_requeue(zke_queue *queue, const char *name, int64_t deadline_ms) {
  zke_q_name n;
  int rc = queue_know_letter(name, &n);
  if (rc == ZKE_OK) rc = zke_recipe_enter_by((zke_recipe *)queue, deadline_ms);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, queue_requeue(queue, &n, deadline_ms));
}

/* ZKE_NONODE also if another process has dropped the letter, or put it back,
 * meanwhile. */
int zke_queue_drop(zke_queue *queue, const char *name) {
  zke_q_name n;
  int rc = queue_know_letter(name, &n);
  if (rc == ZKE_OK) rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = zke_q_drop_letter(queue, name);
  if (rc == ZKE_NONODE)
    rc = zke_recipe_fail(rc, "the queue %s has no dead letter %s",
                         queue->r.path, name);
  return zke_recipe_leave(&queue->r, rc);
}

/* Destroy the queue if it exists.  The object waits for nothing afterwards,
 * since its place in the line goes with the queue.  Without a queue nothing
 * changes. */
static int queue_do_destroy(zke_queue *q, bool only_empty) {
  int rc = zke_exists(q->r.z, q->r.path, NULL, NULL, NULL);
  if (rc == ZKE_NONODE)
    return zke_recipe_fail(rc, "there is no queue %s", q->r.path);
  if (rc == ZKE_OK) rc = zke_q_see_kind(q);
  zke_q_leave(&q->taking);
  zke_q_leave(&q->putting);
  if (rc == ZKE_OK) rc = zke_q_destroy(q, only_empty);
  q->placed = false;
  return rc;
}

/* A call that waits on another thread would immediately make the queue again,
 * so it is refused. */
int zke_queue_destroy(zke_queue *queue, int only_empty) {
  if (only_empty != 0 && only_empty != 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "only_empty %d", only_empty);
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  if (queue->taking.blocking || queue->putting.blocking)
    rc = zke_recipe_fail(ZKE_MISUSE,
                         "another thread waits; see zke_queue_cancel()");
  else
    rc = queue_do_destroy(queue, only_empty);
  return zke_recipe_leave(&queue->r, rc);
}
