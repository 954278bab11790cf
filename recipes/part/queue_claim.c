/* queue_claim.c - the claims that an object holds
 *
 * One step makes the two parts of a claim: a higher version of the item, and
 * an ephemeral znode in "taken" that shows the owner.  If it ends at a time, it
 * also has a marker (Q7).  The object keeps a list of its claims (q->claims);
 * it refuses to end or prolong a claim of any other item.
 *
 * That list may be out of date.  The step that ends or prolongs a claim
 * requires its znode, and the item at the version that the claim has made (Q1).
 * If either has changed, somebody has taken the item over or deleted the claim:
 * ZKE_LOST, and nothing has changed.  That is enough while the object uses the
 * "entries" in which it made the claim.  In another "entries", names and
 * versions may repeat (Q5), and queue_verify_old() looks for the znode by its
 * token before that step.
 *
 * It promises its callers: zke_q_claim_items() has claimed all items that it
 * returns, or none.  A claim leaves the list once its end was written, or it
 * was found lost.  After any other failure it stays, except that
 * zke_q_release() gives it up in any case.
 *
 * Start reading at zke_q_claim_items() and queue_claim_step(); then at
 * zke_q_ack() and queue_try_end(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue_claim.h"

#include <string.h>

#include "queue_item.h"
#include "text.h"
#include "znode.h"

enum {
  QUEUE_DELAY_SLACK_MS = 60000 /* the znodes of a delay stay this much longer if
                                  no one takes the item */
};

/* ---- the list ---- */

/* The place of a claim in this object's list; if there is none, the list's end,
 * which is NULL.  A later claim of the same item has the same path and another
 * token. */
static zke_q_claim **queue_find_claim(zke_queue *q, const char *path,
                                      int64_t token) {
  zke_q_claim **at = &q->claims;
  while (*at && ((*at)->token != token || strcmp((*at)->path, path) != 0))
    at = &(*at)->next;
  return at;
}

/* Release a claim's memory; nothing changes in the file. NULL is fine. */
static void queue_claim_free(zke_q_claim *c) {
  if (!c) return;
  zke_free(c->until);
  zke_free(c->other);
  zke_free(c);
}

/* Forget a claim that has ended or was given up. */
static void queue_unlink_claim(zke_q_claim **at) {
  zke_q_claim *c = *at;
  *at = c->next;
  queue_claim_free(c);
}

/* Gives up nothing: zke_q_give_up_claims() has done that, or the session's end.
 */
void zke_q_forget_claims(zke_queue *q) {
  while (q->claims) queue_unlink_claim(&q->claims);
}

/* Delete a claim's znodes, now or later.
 *
 *   token  its czxid; 0: any znode of the session at that path */
static void queue_discard_claim(zke_queue *q, const zke_q_claim *c,
                                int64_t token) {
  zke_recipe_discard(q->r.z, c->path, ZKE_EPHEMERAL, token);
  if (c->until) zke_recipe_discard(q->r.z, c->until, ZKE_EPHEMERAL, 0);
  if (c->other) zke_recipe_discard(q->r.z, c->other, ZKE_EPHEMERAL, 0);
}

/* Discard one of this object's claims, and forget it.  Returns rc, with its
 * sentence. */
static int queue_give_up(zke_queue *q, zke_q_claim **at, int rc) {
  zke_sentence kept;
  zke_recipe_keep(&kept);
  queue_discard_claim(q, *at, (*at)->token);
  queue_unlink_claim(at);
  return zke_recipe_restore(&kept, rc);
}

/* Others can take the items immediately. */
void zke_q_give_up_claims(zke_queue *q) {
  while (q->claims) queue_give_up(q, &q->claims, ZKE_OK);
}

/* ---- does it exist? ---- */

/* Does the znode still belong to this claim?  ZKE_NONODE: no.
 *
 *   watch  watch it from now on */
static int queue_see_claim(zke_queue *q, const zke_q_claim *c, bool watch) {
  zke_stat stat;
  int rc = watch ? zke_get(q->r.z, c->path, zke_recipe_watcher, &q->r, NULL,
                           NULL, &stat)
                 : zke_exists(q->r.z, c->path, NULL, NULL, &stat);
  return rc == ZKE_OK && stat.czxid != c->token ? ZKE_NONODE : rc;
}

/* The same, with the code and the sentence for the user. */
int zke_q_verify(zke_queue *q, const zke_q_claim *c) {
  int rc = queue_see_claim(q, c, false);
  if (rc != ZKE_NONODE) return rc;
  return zke_recipe_fail(ZKE_LOST, "the claim of %s in the queue %s is gone",
                         zke_recipe_name(c->path), q->r.path);
}

/* The same for a claim made before this object was placed again, as after the
 * end of the queue; for any other claim the step itself finds out.  The step
 * writes the user znode, so no other "entries" comes in between (Q5). */
static int queue_verify_old(zke_queue *q, const zke_q_claim *c,
                            const zke_queue_item *item) {
  if (q->user && strcmp(q->user, item->user_path) == 0) return ZKE_OK;
  return zke_q_verify(q, c);
}

/* Watch a new claim if there is a listener.  A claim that was lost since the
 * step counts as a claim, and the next step of the object reports its end. */
static int queue_watch_claim(zke_queue *q, zke_q_claim *c) {
  if (!q->o.listener) return ZKE_OK;
  int rc = queue_see_claim(q, c, true);
  if (rc != ZKE_NONODE) return rc;
  c->suspect = q->r.changed = true;
  return ZKE_OK;
}

/* Tell the listener that a claim is lost, and forget it. */
static bool queue_lose(zke_queue *q, zke_q_claim **at) {
  const char *name = zke_recipe_name((*at)->path);
  if (!zke_recipe_tell(&q->r, ZKE_QUEUE_LOST, (*at)->token, name,
                       (int)strlen(name)))
    return false;
  queue_unlink_claim(at);
  return true;
}

/* If memory is short, a note is missing.  The note of the session's end
 * follows, and says the same of all claims. */
void zke_q_lose_claims(zke_queue *q) {
  while (q->claims)
    if (!queue_lose(q, &q->claims)) queue_unlink_claim(&q->claims);
}

/* Check the claims with a fired watch. */
int zke_q_see_claims(zke_queue *q) {
  for (zke_q_claim **at = &q->claims; *at;) {
    zke_q_claim *c = *at;
    int rc = c->suspect ? queue_see_claim(q, c, true) : ZKE_OK;
    if (rc == ZKE_NONODE) {
      if (!queue_lose(q, at)) return ZKE_NOMEM;
      continue;
    }
    if (rc != ZKE_OK) return rc;
    c->suspect = false;
    at = &c->next;
  }
  return ZKE_OK;
}

/* ---- making ---- */

/* Items that are claimed in one step. */
typedef struct queue_batch {
  zke_queue_item **items;
  zke_q_claim *claims[ZKE_Q_BATCH]; /* to be made; NULL once the object has
                                       them */
  int most, count;
} queue_batch;

/* A claim to be made, in one block with its path; it ends at a time if the
 * options say so. */
static zke_q_claim *queue_claim_new(zke_queue *q, const zke_queue_item *item) {
  size_t size = strlen(item->claim_path) + 1;
  zke_q_claim *c = zke_alloc(q->r.z, sizeof *c + size);
  if (!c) return NULL;
  c->path = memcpy(c + 1, item->claim_path, size);
  if (!q->o.claim_ms) return c;
  c->until =
      zke_q_marker_path(q, false, zke_now(q->r.z) + q->o.claim_ms,
                        zke_recipe_next_version(item->version), item->name);
  if (c->until) return c;
  zke_free(c);
  return NULL;
}

/* Add a claim at the version read (Q1).  The item's data is written again
 * unchanged: zke_op_set() needs data, and it raises the version. */
static zke_op *queue_add_claim(zke_op *op, const zke_queue_item *item,
                               const zke_q_claim *c) {
  op = zke_q_add_takeover(op, item);
  zke_op_set(op++, item->entry_path, item->data, item->len, item->version);
  zke_op_create(op++, c->path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  if (c->until)
    zke_op_create(op++, c->until, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  return op;
}

enum { QUEUE_CLAIM_OPS = ZKE_Q_TAKEOVER_OPS + 3 };

/* Claim all items of a batch in one step.  ZKE_Q_AGAIN: another consumer had
 * one of them first, or its marker has changed; nothing is claimed. */
static int queue_claim_step(zke_queue *q, queue_batch *b, zke_q_step *s) {
  zke_op *op = &s->ops[ZKE_Q_OP_FIRST + 1];
  s->needs = q->taken;
  for (int i = 0; i < b->count; i++) {
    b->claims[i] = queue_claim_new(q, b->items[i]);
    if (!b->claims[i]) return ZKE_NOMEM;
    op = queue_add_claim(op, b->items[i], b->claims[i]);
  }
  int own = zke_q_step_end(s, op);
  int rc = zke_q_change(q, s);
  return rc < 0 && zke_q_was_late(s, own) ? ZKE_Q_AGAIN : rc;
}

/* Add the claims of a finished step to the list.  If one of them cannot be
 * watched, all are given up. */
static int queue_keep_batch(zke_queue *q, queue_batch *b, int64_t token) {
  int rc = ZKE_OK;
  for (int i = 0; i < b->count; i++) {
    zke_queue_item *item = b->items[i];
    zke_q_claim *c = b->claims[i];
    c->next = q->claims;
    c->token = item->token = token;
    q->claims = c;
    b->claims[i] = NULL;
    item->attempts = item->version = zke_recipe_next_version(item->version);
    item->marker_path = "";
    item->over = 0;
    if (rc == ZKE_OK) rc = queue_watch_claim(q, c);
  }
  for (int i = 0; rc != ZKE_OK && i < b->count; i++)
    rc = queue_give_up(q, &q->claims, rc);
  return rc;
}

/* Claim the items of a batch at the versions read, all or none.  If claims may
 * have been made and cannot be looked for, their token is not known: then any
 * znode of the session at the path is discarded.  If that is the claim of
 * another object on this handle, its consumer finds it lost, as after any
 * deletion of a claim. */
static int queue_do_claim(zke_queue *q, queue_batch *b) {
  zke_q_step *s = zke_q_step_new(q->r.z, 1 + QUEUE_CLAIM_OPS * b->count);
  int rc = s ? queue_claim_step(q, b, s) : ZKE_NOMEM;
  if (rc == ZKE_OK) {
    rc = queue_keep_batch(q, b, s->zxid);
  } else {
    zke_sentence kept;
    zke_recipe_keep(&kept);
    for (int i = 0; i < b->count; i++) {
      if (rc == ZKE_Q_UNSURE) queue_discard_claim(q, b->claims[i], 0);
      queue_claim_free(b->claims[i]);
      b->claims[i] = NULL;
    }
    zke_recipe_restore(&kept, zke_recipe_told(rc));
  }
  zke_q_step_free(s);
  return rc;
}

/* Forget the items of a batch, from index count on. */
static void queue_shorten(queue_batch *b, int count) {
  while (b->count > count) {
    zke_free(b->items[--b->count]);
    b->items[b->count] = NULL;
  }
}

/* Find the items to claim: the first and its successors, until one is
 * exhausted, or has changed since the look. */
static int queue_collect(zke_queue *q, queue_batch *b) {
  zke_q_page *page;
  int rc = zke_q_pick(q, false, &page, &b->items[0]);
  if (rc != ZKE_OK) return rc;
  for (b->count = 1; b->count < b->most; b->count++) {
    page->at++;
    zke_queue_item *item = NULL;
    rc = zke_q_first(q, &page, &item);
    if (rc != ZKE_OK) break;
    b->items[b->count] = item;
    if (!zke_q_is_exhausted(q, item)) continue;
    b->items[b->count] = NULL;
    zke_free(item);
    break;
  }
  return rc < 0 ? rc : ZKE_OK;
}

/* Claim the items, or return ZKE_Q_NOTHING.  If they are too large for one
 * step, claim half of them. */
static int queue_claim_batch(zke_queue *q, queue_batch *b) {
  int rc = queue_collect(q, b);
  if (rc == ZKE_OK) rc = queue_do_claim(q, b);
  while (rc == ZKE_BADARGUMENTS && b->count > 1) {
    queue_shorten(b, b->count / 2);
    rc = queue_do_claim(q, b);
  }
  if (rc != ZKE_OK) queue_shorten(b, 0);
  return rc;
}

/* The batch lives in this call: nothing of it stays between two tries. */
int zke_q_claim_items(zke_queue *q, int most, zke_queue_item **items,
                      int *count_out) {
  queue_batch b = {.items = items, .most = most};
  int rc = queue_claim_batch(q, &b);
  *count_out = b.count;
  return rc;
}

/* ---- ending ---- */

/* The claim was found gone: forget it.  Its znode goes, too, if only the item
 * has gone (an ephemeral one, with its producer). */
static int queue_lost(zke_queue *q, zke_q_claim **at,
                      const zke_queue_item *item) {
  queue_give_up(q, at, ZKE_OK);
  return zke_recipe_fail(ZKE_LOST, "%s of the queue %s is no longer claimed",
                         item->name, q->r.path);
}

/* A step that ends or changes claims of this object. */
typedef struct queue_ending {
  zke_queue *q;
  const zke_queue_item *const *items;
  zke_q_claim *const *claims; /* of these */
  int count;                  /* of both */
  zke_q_step *s;              /* NULL: a burial */
  int own;                    /* how many of its operations are for the
                                 claims */
  const char *reason;         /* of a burial */
} queue_ending;

/* One try.  Each checks earlier claims (queue_verify_old()), since the last try
 * may have placed the object again.  ZKE_LOST: one of the claims has gone. */
static int queue_try_end(zke *z, void *arg) {
  const queue_ending *e = arg;
  zke_queue *q = e->q;
  int rc = ZKE_OK;
  (void)z;
  for (int i = 0; i < e->count && rc == ZKE_OK; i++)
    rc = queue_verify_old(q, e->claims[i], e->items[i]);
  if (rc != ZKE_OK) return rc;
  if (!e->s) return zke_q_bury(q, e->items[0], e->claims[0], e->reason);
  rc = zke_q_change(q, e->s);
  return rc < 0 && zke_q_was_late(e->s, e->own) ? ZKE_LOST : rc;
}

/* End or change one claim, and release the step; the parameters are members of
 * queue_ending. */
static int queue_end_one(zke_queue *q, zke_q_claim *c,
                         const zke_queue_item *item, zke_q_step *s, int own,
                         const char *reason) {
  queue_ending e = {q, &item, &c, 1, s, own, reason};
  int rc = zke_q_do(q, queue_try_end, &e, ZKE_FOREVER);
  zke_q_step_free(s);
  return rc;
}

/* For zke_retry(): find out which of two markers a claim has after a
 * prolongation in doubt.  If the claim has gone, neither exists, and the step
 * that follows finds that out. */
static int queue_see_marker(zke *z, void *arg) {
  zke_q_claim *c = arg;
  const char *path = c->until ? c->until : c->other;
  int rc = path ? zke_exists(z, path, NULL, NULL, NULL) : ZKE_NONODE;
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  bool prolonged = (rc == ZKE_OK) != (c->until != NULL);
  zke_free(prolonged ? c->until : c->other);
  if (prolonged) c->until = c->other;
  c->other = NULL;
  c->open = false;
  return ZKE_OK;
}

/* If a prolongation has left the claim's end in doubt, this reads it first. */
int zke_q_own_claim(zke_queue *q, const zke_queue_item *item,
                    zke_q_claim ***at) {
  *at = queue_find_claim(q, item->claim_path, item->token);
  zke_q_claim *c = **at;
  if (c && c->open) return zke_retry(q->r.z, queue_see_marker, c, ZKE_FOREVER);
  if (c) return ZKE_OK;
  return zke_recipe_fail(ZKE_LOST,
                         "%s of the queue %s is not claimed by this object",
                         item->name, q->r.path);
}

/* Delete claims and items, and do the caller's operations. */
static int queue_ack_step(zke_queue *q, zke_q_acks *d,
                          zke_q_claim *const *claims) {
  zke_q_step *s = zke_q_step_new(
      q->r.z,
      d->item_count * (ZKE_Q_UNCLAIM_OPS + ZKE_Q_REMOVAL_OPS) + d->more.count);
  if (!s) return ZKE_NOMEM;
  zke_op *op = &s->ops[ZKE_Q_OP_FIRST];
  for (int i = 0; i < d->item_count; i++) {
    op = zke_q_add_unclaim(op, claims[i]);
    op = zke_q_add_removal(op, d->items[i]);
  }
  queue_ending e = {q, d->items, claims, d->item_count, s, 0, NULL};
  e.own = zke_q_step_end(s, op);
  zke_q_add_more(s, &d->more);
  int rc = zke_q_do(q, queue_try_end, &e, ZKE_FOREVER);
  if (rc != ZKE_LOST) zke_q_give_more(&d->more, s);
  zke_q_step_free(s);
  return rc;
}

/* If one of several items is lost, the others stay claimed. */
int zke_q_ack(zke_queue *q, zke_q_acks *d) {
  zke_q_claim *claims[ZKE_Q_BATCH] = {NULL}, **at;
  int rc = ZKE_OK;
  for (int i = 0; i < d->item_count && rc == ZKE_OK; i++) {
    rc = zke_q_own_claim(q, d->items[i], &at);
    claims[i] = *at;
  }
  if (rc == ZKE_OK) rc = queue_ack_step(q, d, claims);
  if (rc == ZKE_LOST && d->item_count > 1)
    return zke_recipe_fail(
        rc, "the claim of one of %d items of the queue %s is lost",
        d->item_count, q->r.path);
  for (int i = 0; i < d->item_count; i++) {
    at = queue_find_claim(q, d->items[i]->claim_path, d->items[i]->token);
    if (*at && rc == ZKE_OK)
      queue_unlink_claim(at);
    else if (*at && rc == ZKE_LOST)
      rc = queue_lost(q, at, d->items[i]);
  }
  return rc;
}

/* The end of a claim with that marker, of zke_now(); NULL: for ever. */
static int64_t queue_claim_end(const char *marker) {
  zke_q_marker m;
  bool ends = marker && zke_q_parse_marker(zke_recipe_name(marker), &m);
  return ends ? m.ms : ZKE_FOREVER;
}

/* Make the claim end at another time.  Waiting consumers sleep until the time
 * they know, unless the claim's znode is written.  It is written only if the
 * claim ends sooner, so a consumer that prolongs repeatedly wakes no
 * process. */
static int queue_prolong_step(zke_queue *q, zke_q_claim *c,
                              const zke_queue_item *item, const char *until) {
  zke_q_step *s = zke_q_step_new(q->r.z, 4);
  if (!s) return ZKE_NOMEM;
  zke_op *op = &s->ops[ZKE_Q_OP_FIRST];
  if (queue_claim_end(until) < queue_claim_end(c->until))
    zke_op_set(op++, c->path, "", 0, -1);
  else
    zke_op_check(op++, c->path, -1);
  zke_op_check(op++, item->entry_path, item->version);
  if (c->until) zke_op_delete(op++, c->until, -1);
  int own = zke_q_step_end(s, op);
  if (until) zke_op_create(op++, until, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  zke_q_step_end(s, op);
  return queue_end_one(q, c, item, s, own, NULL);
}

/* The object keeps the new marker if the step was made, and both if that is not
 * known: the next call with the item looks which of them exists. */
int zke_q_prolong(zke_queue *q, zke_q_claim **at, const zke_queue_item *item,
                  int64_t ms) {
  zke_q_claim *c = *at;
  char *until = NULL;
  if (ms != ZKE_FOREVER) {
    until = zke_q_marker_path(q, false, zke_now(q->r.z) + ms, item->version,
                              item->name);
    if (!until) return ZKE_NOMEM;
  }
  int rc = queue_prolong_step(q, c, item, until);
  if (rc == ZKE_OK) {
    zke_free(c->until);
    c->until = until;
  } else if (zke_recipe_is_lost(rc)) {
    c->other = until;
    c->open = true;
  } else {
    zke_free(until);
  }
  return rc == ZKE_LOST ? queue_lost(q, at, item) : rc;
}

/* Replace the item's claim by a delay (Q7).  If nobody takes the item, its
 * znodes go some time after it is due. */
static zke_op *queue_add_delay(zke_op *op, const zke_q_claim *c,
                               const char *marker, int64_t delay_ms) {
  int64_t ttl = delay_ms + QUEUE_DELAY_SLACK_MS;
  zke_op_create_ttl(op++, c->path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                    ttl);
  zke_op_create_ttl(op++, marker, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                    ttl);
  return op;
}

/* Make the step that gives the claim back.
 *
 *   marker  path of the delay's, or NULL */
static int queue_release_step(zke_queue *q, zke_q_claim *c,
                              const zke_queue_item *item, const char *marker,
                              int64_t delay_ms) {
  zke_q_step *s = zke_q_step_new(q->r.z, ZKE_Q_UNCLAIM_OPS + 3);
  if (!s) return ZKE_NOMEM;
  zke_op *op = zke_q_add_unclaim(&s->ops[ZKE_Q_OP_FIRST], c);
  zke_op_check(op++, item->entry_path, item->version);
  int own = zke_q_step_end(s, op);
  if (marker) op = queue_add_delay(op, c, marker, delay_ms);
  zke_q_step_end(s, op);
  return queue_end_one(q, c, item, s, own, NULL);
}

/* Give the claim back, or bury the item after the last attempt.  ZKE_LOST: it
 * was not held. */
static int queue_give_back(zke_queue *q, zke_q_claim *c,
                           const zke_queue_item *item, const char *reason,
                           int64_t delay_ms) {
  if (zke_q_is_exhausted(q, item))
    return queue_end_one(q, c, item, NULL, 0, reason);
  char *marker = NULL;
  if (delay_ms) {
    marker = zke_q_marker_path(q, true, zke_wall(q->r.z) + delay_ms,
                               item->version, item->name);
    if (!marker) return ZKE_NOMEM;
  }
  int rc = queue_release_step(q, c, item, marker, delay_ms);
  zke_free(marker);
  return rc;
}

/* If the step fails, the claim goes all the same, now or as soon as it can be
 * deleted. */
int zke_q_release(zke_queue *q, zke_q_claim **at, const zke_queue_item *item,
                  int64_t delay_ms, const char *reason) {
  int rc = queue_give_back(q, *at, item, reason, delay_ms);
  if (rc == ZKE_LOST) return queue_lost(q, at, item);
  if (rc != ZKE_OK) return queue_give_up(q, at, rc);
  queue_unlink_claim(at);
  return ZKE_OK;
}
