/* queue.c - items for whoever comes first
 *
 * How the znodes lie, and what a caller is promised, stands in queue.h.  Here
 * stands how each change is made in one step, so that two processes, a death or
 * a lost reply never duplicate an item and never lose one.  The files below
 * this one are queue_tree.c (names, directories, the step), queue_item.c (which
 * item is the next) and queue_list.c (lists, and the end of a queue).
 *
 * From one call to the next the object keeps only the queue's settings and the
 * list of its own claims, never what it has read of the items.  Every call that
 * puts, takes or claims goes the same way, by zke_q_do():
 *
 *   1. zke_q_ready(): the queue is there, and so is this object's user znode.
 *   2. Read what the change rests on, in one snapshot: the first names and all
 *      claims (zke_q_pick()) for a take or a claim; the version of "entries"
 *      and how many items it has (queue_room()) for a put.
 *   3. Make one step that checks that all of this is still so, and changes it.
 *   4. If the check fails, somebody else was faster (ZKE_Q_AGAIN): go to 1.
 *   5. If there was nothing to take, or no room, and the caller has time: take
 *      a place in the line, watch, look once more, sleep, and go to 1.
 *
 * Nothing but the step of 3 changes items.  If the process dies before it, the
 * queue is as it was; if it dies after it, the change is whole, and its claims
 * and places in the line go with its session.  If the reply of the step is
 * lost, the version of the user znode tells whether it was made (Q3).
 *
 * What one step does:
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
 * In 5 no change is missed that comes after the last look; "waiting" below says
 * how.  A wake-up is only a reason to look again: the step decides who has the
 * item.
 *
 * What holds, and why:
 *
 *   Q1  Each claim raises the item's version.  So what was decided at some
 *       version is still true as long as the item has that version, and nobody
 *       can take, bury or acknowledge an item that somebody else has claimed
 *       since.
 *   Q2  Each put writes the data of "entries".  That wakes the takers, and its
 *       version lets only one put at a time rely on the room that it has seen.
 *       All other changes only make room.
 *   Q3  Each change writes the object's user znode at the version known: after
 *       a lost reply that version tells whether the change was made.
 *   Q4  Each change checks the version of the queue's own znode, so that it
 *       knows the limit and the attempts that were written there last.
 *   Q5  All directories are containers.  The object's user znode stands in a
 *       directory of "entries", from before the object looks at anything that
 *       it decides about until it is freed.  So by Q3 a change is made in the
 *       same "entries" that was looked at, which gives no number twice: no
 *       decision about an item holds for a later one of its name.  "taken" and
 *       "dead" may go at any time, when they have been empty for a while; one
 *       that is missing is empty, and is made again by the step that needs it.
 *   Q6  A container that never had a child is never removed.  So each is made
 *       in one step with all that is missing above it, and with a child of the
 *       last one that goes in the same step.
 *   Q7  A claim that ends at a time has a marker beside it in "taken", whose
 *       name tells when, and of which item and version.  Both are made and
 *       deleted in one step.  Whoever takes the item over deletes the marker by
 *       that name, and by Q1 relies on that version: so a claim that was
 *       prolonged or acknowledged since is not taken over.  An item that is
 *       given back with a delay has the same two znodes, which then belong to
 *       no session: whoever comes after that time takes it over.  A claim that
 *       is to end sooner is written to, which wakes those that wait for it.
 *   Q8  An item with a key has two znodes in "keys", made and deleted in one
 *       step with it: one is named after the key, so that only one item has it,
 *       and one after the item, so that its consumer knows the key.
 *
 * Start reading at zke_queue_put() and queue_put_step(); then at
 * zke_queue_claim(), queue_collect() and queue_add_claim(); for waiting at
 * queue_wait_on() and queue_look_again().  Functions call those above them
 * only. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/queue_item.h"
#include "part/queue_list.h"
#include "part/queue_tree.h"
#include "part/text.h"
#include "part/znode.h"

enum {
  QUEUE_PRIORITY = 100,   /* of an item for which none is named; as in kazoo */
  QUEUE_CLOCK_MS = 10000, /* the longest sleep for a delayed item, since
                             somebody may set the wall clock */
  QUEUE_KEY_MOST = 255,   /* bytes of a key */
  QUEUE_DELAY_SLACK_MS = 60000 /* the znodes of a delay stay so much longer
                                  where nobody takes the item */
};

/* The longest claim or delay: 17 years. */
#define QUEUE_SPAN_MOST (ZKE_MAX_TTL / 2)

/* A one-shot watch that is registered and has not fired. */
typedef struct queue_watch {
  struct queue_watch *next;
  int type; /* ZKE_WATCH_DATA or ZKE_WATCH_CHILD */
  char path[];
} queue_watch;

/* ---- claims ----
 *
 * A claim is two things that one step makes: a higher version of the item, and
 * an ephemeral znode in "taken" that says whose it is.  The object keeps a list
 * of its claims (q->claims); ack, release and prolong are refused for any other
 * item.  That list may be behind the file.  The step that ends or prolongs a
 * claim wants its znode and the item's version, and so finds that out, as long
 * as the object stands in the "entries" in which it made the claim.  Once it
 * stands in another one, names and versions may have come again (Q5), and
 * queue_verify_old() asks for the znode by its token before that step. */

/* Where this object's claim stands in its list; where there is none, the list's
 * end, at which NULL stands.  A later claim of the same item has the same path
 * and another token. */
static zke_q_claim **queue_find_claim(zke_queue *q, const char *path,
                                      int64_t token) {
  zke_q_claim **at = &q->claims;
  while (*at && ((*at)->token != token || strcmp((*at)->path, path) != 0))
    at = &(*at)->next;
  return at;
}

/* Release a claim's memory; nothing changes in the file. NULL is fine. */
static void queue_claim_free(zke_q_claim *c) {
  if (c) zke_free(c->until);
  if (c) zke_free(c->other);
  zke_free(c);
}

/* Forget a claim that has ended or was given up. */
static void queue_unlink_claim(zke_q_claim **at) {
  zke_q_claim *c = *at;
  *at = c->next;
  queue_claim_free(c);
}

/* Is the claim's znode still that of this claim?  ZKE_NONODE: no.
 *
 *   watch  have it watched from now on */
static int queue_see_claim(zke_queue *q, const zke_q_claim *c, bool watch) {
  zke_stat stat;
  int rc = watch ? zke_get(q->r.z, c->path, zke_recipe_watcher, &q->r, NULL,
                           NULL, &stat)
                 : zke_exists(q->r.z, c->path, NULL, NULL, &stat);
  return rc == ZKE_OK && stat.czxid != c->token ? ZKE_NONODE : rc;
}

/* The same; ZKE_LOST: no. */
static int queue_verify(zke_queue *q, const zke_q_claim *c) {
  int rc = queue_see_claim(q, c, false);
  if (rc != ZKE_NONODE) return rc;
  return zke_recipe_fail(ZKE_LOST, "the claim of %s in the queue %s is gone",
                         zke_recipe_name(c->path), q->r.path);
}

/* The same of a claim that was made before this object was placed anew, as
 * after the end of the queue; of any other one the step itself finds out.  The
 * step writes the user znode, so no "entries" comes in between (Q5). */
static int queue_verify_old(zke_queue *q, const zke_q_claim *c,
                            const zke_queue_item *item) {
  if (q->user && strcmp(q->user, item->user_path) == 0) return ZKE_OK;
  return queue_verify(q, c);
}

/* Delete a claim's znodes, now or later.
 *
 *   token  its czxid; 0: whatever the session has there */
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

/* Have a new claim watched where there is a listener.  One that was lost since
 * the step is a claim all the same, and the next step of the object tells of
 * its end. */
static int queue_watch_claim(zke_queue *q, zke_q_claim *c) {
  if (!q->o.listener) return ZKE_OK;
  int rc = queue_see_claim(q, c, true);
  if (rc != ZKE_NONODE) return rc;
  c->suspect = q->r.changed = true;
  return ZKE_OK;
}

/* Items that are claimed in one step. */
typedef struct queue_batch {
  zke_queue_item **items;
  zke_q_claim *claims[ZKE_Q_BATCH]; /* to be made; NULL once the object has
                                       them */
  int most, count;
} queue_batch;

/* What is to be a claim, in one block with its path; it ends at a time where
 * the options say so. */
static zke_q_claim *queue_claim_new(zke_queue *q, const zke_queue_item *item) {
  size_t size = strlen(item->claim_path) + 1;
  zke_q_claim *c = zke_alloc(q->r.z, sizeof *c + size);
  if (!c) return NULL;
  c->path = memcpy(c + 1, item->claim_path, size);
  if (!q->o.claim_ms) return c;
  c->until = zke_q_marker_path(q, false, zke_now(q->r.z) + q->o.claim_ms,
                               zke_next_version(item->version), item->name);
  if (c->until) return c;
  zke_free(c);
  return NULL;
}

/* Add a claim at the version seen (Q1).  The item's data is written again as it
 * was: zke_op_set() has to name some data, and this is what raises the
 * version. */
static zke_op *queue_add_claim(zke_op *op, const zke_queue_item *item,
                               const zke_q_claim *c) {
  op = zke_q_add_takeover(op, item);
  zke_op_set(op++, item->entry_path, item->data, item->len, item->version);
  zke_op_create(op++, c->path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  if (c->until)
    zke_op_create(op++, c->until, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  return op;
}

enum { CLAIM_OPS = ZKE_Q_TAKEOVER_OPS + 3 };

/* Claim all items of a batch in one step.  ZKE_Q_AGAIN: another consumer had
 * one of them first, or its marker was not what was seen; nothing is
 * claimed. */
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

/* The object has the claims of a step that was made.  Where one of them cannot
 * be watched it gives up all. */
static int queue_keep_batch(zke_queue *q, queue_batch *b, int64_t token) {
  int rc = ZKE_OK;
  for (int i = 0; i < b->count; i++) {
    zke_queue_item *item = b->items[i];
    zke_q_claim *c = b->claims[i];
    c->next = q->claims;
    c->token = item->token = token;
    q->claims = c;
    b->claims[i] = NULL;
    item->attempts = item->version = zke_next_version(item->version);
    item->marker_path = "";
    item->over = 0;
    if (rc == ZKE_OK) rc = queue_watch_claim(q, c);
  }
  for (int i = 0; rc != ZKE_OK && i < b->count; i++)
    rc = queue_give_up(q, &q->claims, rc);
  return rc;
}

/* Claim the items of a batch at the versions seen, all or none.  Of claims that
 * may have been made, and cannot be looked for, no token is known: then
 * whatever the session has there is discarded.  If that is the claim of another
 * object on this handle, its consumer finds it lost, as after any claim that
 * somebody deletes. */
static int queue_do_claim(zke_queue *q, queue_batch *b) {
  zke_q_step *s = zke_q_step_new(q->r.z, 1 + CLAIM_OPS * b->count);
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
    zke_recipe_restore(&kept, rc == ZKE_Q_UNSURE ? ZKE_CONNECTIONLOSS : rc);
  }
  zke_q_step_free(s);
  return rc;
}

/* Forget the items of a batch from one on. */
static void queue_shorten(queue_batch *b, int count) {
  while (b->count > count) {
    zke_free(b->items[--b->count]);
    b->items[b->count] = NULL;
  }
}

/* Find the items that are to be claimed: those behind the first until one is
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

/* Claim the items that are there, or ZKE_Q_NOTHING.  Where they are too large
 * for one step, half of them. */
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

/* What a consumer asks for. */
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
  queue_batch b = {.items = w->items, .most = w->most};
  (void)z;
  int rc = zke_q_ready(w->q);
  if (rc == ZKE_OK) rc = queue_claim_batch(w->q, &b);
  w->count = b.count;
  return rc;
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

/* ---- the caller's own operations ----
 *
 * They stand behind the queue's own in the same step, so they are made exactly
 * when the step is.  The index of the operation that was refused tells whose it
 * is (zke_recipe_refused()): a refusal of the caller's ends the call with its
 * code, whatever that code would mean to the queue. */

/* What the caller changes in the step of a put or of an acknowledgement. */
typedef struct queue_more {
  const zke_op *ops;
  int count;
  zke_op_result *results; /* of these, or NULL */
  int code; /* out: what one of them was refused with (zke_q_step), or 0 */
} queue_more;

/* Refuse a number of operations that cannot be. */
static int queue_check_more(const queue_more *m) {
  if (m->count >= 0 && m->count < INT32_MAX / 256 && (m->ops || !m->count))
    return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "%d operations%s", m->count,
                         m->count > 0 && !m->ops ? ", but ops is NULL" : "");
}

/* Nothing has come of them yet: what is not tried leaves zeros. */
static void queue_clear_more(const queue_more *m) {
  for (int i = 0; m->results && i < m->count; i++)
    m->results[i] = (zke_op_result){0};
}

/* Add them behind those of the queue's, which end the step until now. */
static void queue_add_more(zke_q_step *s, const queue_more *m) {
  zke_op *op = &s->ops[s->count];
  if (m->count) memcpy(op, m->ops, (size_t)m->count * sizeof *op);
  s->more = m->count;
  zke_q_step_end(s, op + m->count);
}

/* Hand out what came of them; they are the last of the step. */
static void queue_give_more(queue_more *m, zke_q_step *s) {
  zke_op_result *own = &s->results[s->count - m->count];
  m->code = s->code;
  if (!m->results || !m->count) return;
  memcpy(m->results, own, (size_t)m->count * sizeof *own);
  memset(own, 0, (size_t)m->count * sizeof *own);
}

/* ---- putting ----
 *
 * A put reads the room that there is, and then makes one step with all items.
 * "entries" is written in that step, at the version at which the room was read
 * if the queue has a limit, so two puts cannot both rely on the last place
 * (Q2).
 *
 * With a key the name of the item has to be known before it is made, since the
 * key's znodes bear it.  The tree numbers sequential children by a counter that
 * the Stat of "entries" tells (queue_foresee()).  The same step sets "entries"
 * at the version of that look, so a put that came between makes it fail; and it
 * checks that the item has the foreseen name, for children made by others. */

/* What is put in one step; all of it is borrowed. */
typedef struct queue_load {
  zke_queue *q;
  const zke_queue_value *values;
  int count;
  int priority;       /* 1 to 999 */
  int mode;           /* of the items: persistent or ephemeral, sequential */
  int64_t due_ms;     /* of zke_wall(); 0: to be taken at once */
  const char *key;    /* of the one item, or NULL */
  const char *letter; /* path of the dead letter it was, or NULL */
  const char *death;  /* path of its child, or NULL */
  queue_more *more;   /* or NULL */
} queue_load;

/* What a put with a key is made of (Q8). */
typedef struct queue_keying {
  char *key, *entry, *keyed; /* paths: of the key's znode, of the item to come,
                                of what says its key */
  const char *name;          /* of the item: the end of entry */
  bool stale, stale_keyed;   /* key, keyed: it is of an item that has gone */
  int32_t number;            /* that the item will have */
  int32_t version;           /* of "entries", as long as that is so */
} queue_keying;

/* Release what a put with a key was prepared with. */
static void queue_keying_free(queue_keying *k) {
  zke_free(k->key);
  zke_free(k->entry);
  zke_free(k->keyed);
  *k = (queue_keying){0};
}

/* Know the name of the next item: "entries" numbers its children from 0 on as
 * they are created.  ZKE_Q_AGAIN: there is no "entries". */
static int queue_foresee(zke_queue *q, const char *prefix, queue_keying *k) {
  zke_stat stat;
  size_t size = strlen(prefix) + 12;
  int rc = zke_exists(q->r.z, q->entries, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) q->placed = false;
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_Q_AGAIN : rc;
  uint32_t twice = (uint32_t)stat.cversion + (uint32_t)stat.numChildren;
  k->version = stat.version;
  k->number = (int32_t)(twice / 2);
  k->entry = zke_alloc(q->r.z, size);
  if (!k->entry) return ZKE_NOMEM;
  snprintf(k->entry, size, "%s" ZKE_RECIPE_NUMBER, prefix, k->number);
  k->name = zke_recipe_name(k->entry);
  k->keyed = zke_recipe_path(q->r.z, q->keys, k->name);
  return k->keyed ? ZKE_OK : ZKE_NOMEM;
}

/* Refuse a key that an item has.  One whose item was removed by something that
 * knows no keys, such as zke_delete(), counts for nothing. */
static int queue_see_key(zke_queue *q, const char *key, queue_keying *k) {
  char *owner = NULL, *entry = NULL;
  zke_q_name parsed;
  k->key = zke_q_key_path(q, key);
  if (!k->key) return ZKE_NOMEM;
  int rc = zke_get(q->r.z, k->key, NULL, NULL, &owner, NULL, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  k->stale = true;
  if (owner && zke_q_parse(owner, &parsed)) {
    entry = zke_recipe_path(q->r.z, q->entries, owner);
    rc = entry ? zke_exists(q->r.z, entry, NULL, NULL, NULL) : ZKE_NOMEM;
    k->stale = rc == ZKE_NONODE;
    if (rc == ZKE_OK)
      rc = zke_recipe_fail(ZKE_NODEEXISTS,
                           "the queue %s has an item with the key %s: %s",
                           q->r.path, key, owner);
  }
  zke_free(owner);
  zke_free(entry);
  return k->stale ? ZKE_OK : rc;
}

/* Has an item of that name been there before "entries" was made anew, and left
 * what says its key? */
static int queue_see_keyed(zke_queue *q, queue_keying *k) {
  int rc = zke_exists(q->r.z, k->keyed, NULL, NULL, NULL);
  k->stale_keyed = rc == ZKE_OK;
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Read what a put with a key rests on.  Nothing is changed here: what is stale
 * is deleted by the step, which fails if anybody has put since.  ZKE_LIMIT: the
 * key is free, but no number. */
static int queue_prepare_key(zke_queue *q, const queue_load *load,
                             const char *prefix, queue_keying *k) {
  if (!load->key) return ZKE_OK;
  int rc = queue_foresee(q, prefix, k);
  if (rc == ZKE_OK) rc = queue_see_key(q, load->key, k);
  if (rc == ZKE_OK && k->number == INT32_MAX)
    rc = zke_recipe_say_used_up(q->entries);
  return rc == ZKE_OK ? queue_see_keyed(q, k) : rc;
}

/* Add the znodes of the key; the item itself has been added before. */
static zke_op *queue_add_key(zke_op *op, const queue_load *load,
                             const queue_keying *k) {
  int mode =
      load->mode == ZKE_EPHEMERAL_SEQUENTIAL ? ZKE_EPHEMERAL : ZKE_PERSISTENT;
  if (k->stale) zke_op_delete(op++, k->key, -1);
  if (k->stale_keyed) zke_op_delete(op++, k->keyed, -1);
  zke_op_check(op++, k->entry, -1);
  zke_op_create(op++, k->key, k->name, (int)strlen(k->name), ZKE_OPEN_ACL,
                mode);
  zke_op_create(op++, k->keyed, load->key, (int)strlen(load->key), ZKE_OPEN_ACL,
                mode);
  return op;
}

enum { PUT_OPS = 9 /* the most, beside the items */ };

/* Is there room for so many?  ZKE_Q_NOTHING: no; ZKE_Q_AGAIN: the queue was
 * removed.
 *
 *   version  out: as long as "entries" has it, nothing was put since (Q2); -1
 *            without a limit, where any version will do */
static int queue_room(zke_queue *q, int need, int32_t *version) {
  zke_stat stat;
  *version = -1;
  if (!q->limit) return ZKE_OK;
  int rc = zke_exists(q->r.z, q->entries, NULL, NULL, &stat);
  int count = 0;
  if (rc == ZKE_OK) {
    *version = stat.version;
    count = stat.numChildren;
    /* Not all need be items; look only when it matters. */
    if (count > q->limit - need) rc = zke_q_count_in(q, q->entries, &count);
  }
  if (rc == ZKE_NONODE) {
    q->placed = false;
    return ZKE_Q_AGAIN;
  }
  if (rc != ZKE_OK) return rc;
  return count > q->limit - need ? ZKE_Q_NOTHING : ZKE_OK;
}

/* "entries/entry-100-" or "entries/later-100-<due>-" */
static char *queue_prefix(zke_queue *q, const queue_load *load) {
  size_t size = strlen(q->entries) + ZKE_Q_ITEM_ROOM;
  char *path = zke_alloc(q->r.z, size);
  if (path && load->due_ms) {
    snprintf(path, size, "%s/" ZKE_Q_LATER "-", q->entries, load->priority,
             load->due_ms);
  } else if (path) {
    snprintf(path, size, "%s/" ZKE_Q_ENTRY "-", q->entries, load->priority);
  }
  return path;
}

/* The name that the next item would get is taken: ZKE_LIMIT.  Either numbers
 * are used up, which "entries" then gives the last of again and again, or
 * something else has made a child of that name. */
static int queue_say_taken(zke_queue *q, const char *prefix) {
  queue_keying next = {0};
  int rc = queue_foresee(q, prefix, &next);
  if (rc == ZKE_OK && next.number == INT32_MAX)
    rc = zke_recipe_say_used_up(q->entries);
  else if (rc == ZKE_OK)
    rc = zke_recipe_fail(
        ZKE_LIMIT, "%s is in the way: no item can get its name", next.entry);
  queue_keying_free(&next);
  return rc;
}

/* Make the step of a put.  ZKE_Q_AGAIN: something has changed.
 *
 *   version  as queue_room() gives it */
static int queue_put_step(zke_queue *q, const queue_load *load, zke_q_step *s,
                          const char *prefix, const queue_keying *k,
                          int32_t version) {
  int first = ZKE_Q_OP_FIRST + (load->key != NULL);
  zke_op *op = &s->ops[first];
  s->needs = load->key ? q->keys : NULL;
  zke_op_set(op++, q->entries, NULL, -1, load->key ? k->version : version);
  if (load->death) zke_op_delete(op++, load->death, -1);
  if (load->letter) zke_op_delete(op++, load->letter, -1);
  for (int i = 0; i < load->count; i++) {
    zke_op_create(op++, prefix, load->values[i].data, load->values[i].len,
                  ZKE_OPEN_ACL, load->mode);
  }
  int items = zke_q_step_end(s, op) + ZKE_Q_OP_FIRST;
  if (load->key) op = queue_add_key(op, load, k);
  int own = zke_q_step_end(s, op) + ZKE_Q_OP_FIRST;
  if (load->more) queue_add_more(s, load->more);
  int rc = zke_q_change(q, s);
  bool changed = s->results[first].rc == ZKE_BADVERSION ||
                 zke_q_has_changed(s, items, own);
  if (rc < 0 && changed) rc = ZKE_Q_AGAIN;
  for (int i = items - load->count; i < items && rc == ZKE_NODEEXISTS; i++)
    if (s->results[i].rc == rc) rc = queue_say_taken(q, prefix);
  if (load->more && rc != ZKE_Q_AGAIN) queue_give_more(load->more, s);
  return rc;
}

/* Would so many items ever have room? */
static int queue_see_limit(const zke_queue *q, int count) {
  if (!q->limit || count <= q->limit) return ZKE_OK;
  return zke_recipe_fail(ZKE_LIMIT,
                         "%d items at once, the queue %s has limit %d", count,
                         q->r.path, q->limit);
}

/* One try of a put: read what it rests on, and make the step.  ZKE_Q_AGAIN:
 * something has changed in between; that was another put in most cases, so some
 * put always succeeds.  ZKE_Q_NOTHING: there is no room. */
static int queue_try_put(zke *z, void *arg) {
  const queue_load *load = arg;
  zke_queue *q = load->q;
  int32_t version;
  queue_keying k = {0};
  int more = load->more ? load->more->count : 0;
  zke_q_step *s = zke_q_step_new(z, load->count + PUT_OPS + more);
  char *prefix = queue_prefix(q, load);
  int rc = s && prefix ? zke_q_ready(q) : ZKE_NOMEM;
  if (rc == ZKE_OK) rc = queue_see_limit(q, load->count);
  if (rc == ZKE_OK) rc = queue_prepare_key(q, load, prefix, &k);
  if (rc == ZKE_OK) rc = queue_room(q, load->count, &version);
  if (rc == ZKE_OK) rc = queue_put_step(q, load, s, prefix, &k, version);
  zke_free(prefix);
  zke_q_step_free(s);
  queue_keying_free(&k);
  return rc;
}

/* ---- waiting ----
 *
 * The states are drawn at zke_q_state in queue_tree.h.  An object can wait for
 * an item and for room at the same time: q->taking and q->putting.  What wakes:
 *
 *   for an item   a write of "entries" (a put, Q2), and for each claim that the
 *                 look has seen its znode: a deletion, or a write when it is to
 *                 end sooner (Q7).  Of a znode that is watched the kernel tells
 *                 when its owner dies
 *   for room      a change of the children of "entries"
 *   a time        the earliest delayed item, the first claim that ends: `due`
 *
 * One look (queue_look_again()) does this, in this order:
 *
 *   1. have the queue, and a place in the line;
 *   2. watch "entries";
 *   3. look: is there an item, or room?  Then READY;
 *   4. if not, watch each claim of the look; where one of them is not as it was
 *      in the look, begin again.
 *
 * By 2 before 3 a put after the look wakes, and by 4 an end of a claim does.
 * A listener that was told and has failed to try knows what 3 has found; so in
 * place of 3 and 4 the next look watches the first item and each claim
 * (queue_watch_quietly()), and what comes after it is told.
 *
 * The place in the line decides nothing: zke_queue_size() shows it, and what
 * waits there keeps "entries" from going. */

/* Forget the watches of a path that a type of event spends; all of them where
 * path is NULL.  The next look registers those again that it needs.  Returns
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

/* Is that watch registered? One that has fired was dropped from the list by
 * queue_event(). */
static bool queue_is_watched(const zke_q_wait *w, int type, const char *path) {
  const queue_watch *x = w->watches;
  while (x && (x->type != type || strcmp(x->path, path) != 0)) x = x->next;
  return x != NULL;
}

/* Watch directory/name (name may be NULL) unless that is done already.
 *
 *   stat_out  set where it is watched from now on, or NULL */
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

/* Out of the line, without a watch: later puts are to wake others only.  What
 * the listener has not heard yet it is not told any more: whoever takes one
 * item each time it is told would take one too many. */
static int queue_leave(zke_q_wait *w) {
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

/* Take a place in the line, if there is none yet. */
static int queue_join(zke_q_wait *w) {
  zke_queue *q = w->q;
  if (w->znode) return ZKE_OK;
  return zke_recipe_create(q->r.z, q->line, ZKE_Q_PLACE, w->kind, "", 0,
                           ZKE_EPHEMERAL_SEQUENTIAL, ZKE_FOREVER, &w->znode,
                           NULL);
}

/* Is the object's place there still?  If not, take another. */
static int queue_see_place(zke_q_wait *w) {
  if (w->znode) {
    int rc = zke_exists(w->q->r.z, w->znode, NULL, NULL, NULL);
    if (rc != ZKE_NONODE) return rc;
    zke_free(w->znode); /* somebody has deleted it, or all of the queue */
    w->znode = NULL;
    w->q->placed = false;
    return ZKE_Q_AGAIN;
  }
  return queue_join(w);
}

/* Watch "entries" for what it waits for. */
static int queue_watch_entries(zke_q_wait *w) {
  zke_queue *q = w->q;
  int type = w == &q->taking ? ZKE_WATCH_DATA : ZKE_WATCH_CHILD;
  int rc = queue_watch_node(w, type, q->entries, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  q->placed = false;
  return ZKE_Q_AGAIN;
}

/* When a wall time comes, in ms of zke_now(); in steps, see QUEUE_CLOCK_MS. */
static int64_t queue_when(zke *z, int64_t due_ms, int64_t most) {
  if (due_ms == ZKE_FOREVER) return ZKE_FOREVER;
  int64_t left = due_ms - zke_wall(z);
  if (left < 0) left = 0;
  if (left > most) left = most;
  return zke_now(z) + left;
}

/* When the next item can be had without any event, of zke_now(): a delayed one
 * is due, or a claim ends; as far as the last look has seen.
 *
 *   most  so many ms of the wall clock are looked ahead */
static int64_t queue_next(zke_queue *q, int64_t most) {
  int64_t due = queue_when(q->r.z, q->due, most);
  return q->until < due ? q->until : due;
}

/* Watch each claim of the last look.  ZKE_Q_AGAIN: one of them has gone since,
 * or another claim or a delay stands in its place, or it ends at another time:
 * the look knows nothing of when that is. */
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

/* The first item that can be had, as far as a new look knows; ZKE_Q_NOTHING:
 * there is none. */
static int queue_see_first(zke_queue *q, zke_q_name *out) {
  int rc = zke_q_look(q);
  if (rc == ZKE_OK) rc = zke_q_find(q, &q->entry, out);
  if (rc == ZKE_Q_NOTHING) rc = zke_q_find_due(q, INT32_MAX, false, out);
  return rc;
}

/* Is there an item to take?  If not, watch for a put and for the end of each
 * claim, by the kernel where its owner dies. */
static int queue_look_for_item(zke_q_wait *w) {
  zke_queue *q = w->q;
  zke_q_name n;
  int rc = queue_watch_entries(w);
  if (rc == ZKE_OK) rc = queue_see_first(q, &n);
  if (rc == ZKE_OK) w->state = ZKE_Q_WAIT_READY;
  if (rc != ZKE_Q_NOTHING) return rc;
  w->due = queue_next(q, QUEUE_CLOCK_MS);
  return queue_watch_claims(w);
}

/* Is there room? The watch is registered before the look, so what makes room
 * after the look wakes. */
static int queue_look_for_room(zke_q_wait *w) {
  zke_queue *q = w->q;
  int32_t version;
  int rc = queue_watch_entries(w);
  if (rc == ZKE_OK) rc = queue_room(q, w->need, &version);
  if (rc == ZKE_OK) w->state = ZKE_Q_WAIT_READY;
  return rc == ZKE_Q_NOTHING ? ZKE_OK : rc;
}

/* Watch the first item, if there is one, since somebody may claim it next.  One
 * that is still the first after its watch was set has not been claimed before.
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

/* Watch whatever may become a reason to try, and tell nothing: puts, the first
 * item, and the end of each claim. */
static int queue_watch_quietly(zke_q_wait *w) {
  int rc = queue_watch_entries(w);
  if (w == &w->q->taking) {
    if (rc == ZKE_OK) rc = queue_watch_first(w);
    if (rc == ZKE_OK) rc = queue_watch_claims(w);
  }
  w->quiet = rc < 0; /* what has changed meanwhile is told */
  return rc;
}

/* One look, for whatever the object waits for. */
static int queue_look_once(zke_q_wait *w) {
  if (w->quiet) return queue_watch_quietly(w);
  return w == &w->q->taking ? queue_look_for_item(w) : queue_look_for_room(w);
}

/* Look again; tell the listener if that was what it waits for. */
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

/* Is the sleep over: is something ready, or due earlier than was known on going
 * to sleep? */
static int queue_done(const zke_q_wait *w) {
  bool done = w->state == ZKE_Q_WAIT_READY || w->due < w->until;
  return done ? ZKE_OK : ZKE_NOT_YET;
}

/* What zke_recipe_await() asks to know whether its sleep is over. */
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

/* Wait on until a try is worth while.  ZKE_Q_NOTHING: the deadline came. */
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

/* A try has found nothing: wait for the next reason to try.
 *
 *   waiting  in and out: this call has begun to wait; queue_wait_end() then has
 *            to follow
 *
 * ZKE_OK: try again.  ZKE_Q_NOTHING: the deadline came. */
static int queue_wait_for(zke_q_wait *w, bool *waiting, int need,
                          int64_t deadline_ms) {
  int rc = ZKE_Q_AGAIN;
  if (zke_now(w->q->r.z) >= deadline_ms) return ZKE_Q_NOTHING;
  if (!zke_recipe_again(w->q->r.z, &rc)) return rc;
  rc = *waiting ? ZKE_OK : queue_begin(w, true, need);
  if (rc != ZKE_OK) return rc;
  *waiting = true;
  return queue_wait_on(w, deadline_ms);
}

/* Does this thread run the object's listener? */
static bool queue_is_telling(const zke_queue *q) {
  return q->r.telling && pthread_equal(q->r.teller, pthread_self());
}

/* A try was made by an object that may wait for its listener.  If it succeeded
 * the waiting ends.  After anything else the object waits on in its place,
 * since what could not be taken or put now may be later; the look tells the
 * listener at once if there still is something.
 *
 *   need  for room: so many items were to be put
 *
 * Where a put that has found too little room answers what the listener was
 * told, the object waits for as much room from then on: told of less it would
 * try, find too little and be told again, without end.  Any other put is beside
 * that: the listener may want less.
 *
 * After a failure inside the listener it tells nothing: the listener would be
 * told again and again inside one zke_dispatch() as long as, say, the disk is
 * full.  It is told of the next change, or by zke_queue_step().  What is to be
 * watched for that may fail to be, too; then the object's steps do it later. */
static int queue_tried(zke_q_wait *w, int need, int rc) {
  zke_queue *q = w->q;
  bool telling = queue_is_telling(q);
  zke_sentence kept;
  if (w->blocking || w->state == ZKE_Q_WAIT_NO) return rc;
  zke_recipe_keep(&kept);
  if (rc == ZKE_OK) {
    queue_leave(w);
  } else {
    if (rc != ZKE_Q_NOTHING)
      w->quiet = telling;
    else if (w->state == ZKE_Q_WAIT_READY || telling)
      w->need = need;
    w->state = ZKE_Q_WAIT_YES;
    if (zke_q_do(q, queue_look_again, w, 0) != ZKE_OK) q->r.changed = true;
  }
  return zke_recipe_restore(&kept, rc);
}

/* End the waiting that a call has begun, and keep its result. */
static int queue_wait_end(zke_q_wait *w, bool waiting, int rc) {
  zke_sentence kept;
  if (!waiting) return rc;
  zke_recipe_keep(&kept);
  queue_leave(w); /* if it fails, the session deletes the znode later */
  return zke_recipe_restore(&kept, rc);
}

/* ---- the object ----
 *
 * What the class does: event() notes which watches and claims an event is
 * about, step() looks again, ended() and quit() give up what the object has.
 * deliver(), which calls the listener, and destroy() are called without the
 * mutex. */

/* The listener was told, and no try has come, or one that has failed: the next
 * look tells again.  A try may have failed before it could begin, as where
 * another thread has kept the store's lock.  A call that blocks looks by
 * itself. */
static void queue_tell_again(zke_q_wait *w) {
  w->quiet = false;
  if (w->state == ZKE_Q_WAIT_READY && !w->blocking) w->state = ZKE_Q_WAIT_YES;
}

/* An event has spent one-shot watches of a wait: its listener is to hear of
 * what has come. */
static void queue_spend(zke_q_wait *w, int types, const char *path) {
  if (queue_drop_watches(w, types, path)) queue_tell_again(w);
}

/* An event has spent a one-shot watch: note which, and which claim may be gone.
 * After an overflow events are missing, so every watch counts as spent. */
static void queue_event(zke_recipe *r, int type, const char *path) {
  zke_queue *q = (zke_queue *)r;
  bool all = type == ZKE_EVENT_OVERFLOW;
  int types = ZKE_WATCH_ANY; /* a creation or deletion spends both kinds */
  if (type == ZKE_EVENT_CHILD) types = ZKE_WATCH_CHILD;
  if (type == ZKE_EVENT_CHANGED) types = ZKE_WATCH_DATA;
  queue_spend(&q->taking, types, all ? NULL : path);
  queue_spend(&q->putting, types, all ? NULL : path);
  for (zke_q_claim *c = q->claims; c; c = c->next)
    if (all || strcmp(c->path, path) == 0) c->suspect = true;
}

/* Tell of a claim that it is lost, and forget it. */
static bool queue_lose(zke_queue *q, zke_q_claim **at) {
  const char *name = zke_recipe_name((*at)->path);
  if (!zke_recipe_tell(&q->r, ZKE_QUEUE_LOST, (*at)->token, name,
                       (int)strlen(name)))
    return false;
  queue_unlink_claim(at);
  return true;
}

/* Look after claims whose watch has fired. */
static int queue_see_claims(zke_queue *q) {
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

/* A step of the object, made by dispatches: claims first, since a listener
 * that hears of a loss should not be offered another item before. */
static int queue_step_all(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  int rc = q->o.listener ? queue_see_claims(q) : ZKE_OK;
  if (rc == ZKE_OK && q->taking.state == ZKE_Q_WAIT_YES)
    rc = zke_recipe_do(r->z, queue_look_again, &q->taking, 0);
  if (rc == ZKE_OK && q->putting.state == ZKE_Q_WAIT_YES)
    rc = zke_recipe_do(r->z, queue_look_again, &q->putting, 0);
  return rc;
}

/* The session has ended, or the object goes: place and watches are gone or will
 * go by themselves. A call that blocks finds the end out when it wakes up. */
static void queue_wait_ended(zke_q_wait *w) {
  queue_drop_watches(w, 0, NULL);
  zke_free(w->znode);
  w->znode = NULL;
  if (!w->blocking) w->state = ZKE_Q_WAIT_NO;
}

/* The session has ended, and with it all that belonged to it.  Each claim is
 * told as lost, and the end itself last. */
static void queue_ended(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  while (q->claims)
    if (!queue_lose(q, &q->claims)) queue_unlink_claim(&q->claims);
  queue_wait_ended(&q->taking);
  queue_wait_ended(&q->putting);
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

/* Give up what the object has in the file, so that others go on at once. What
 * cannot be written now is discarded later. */
static void queue_quit(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  queue_leave(&q->taking);
  queue_leave(&q->putting);
  while (q->claims) queue_give_up(q, &q->claims, ZKE_OK);
  zke_q_remove(q, &q->user);
}

/* Free what the object has in memory; queue_quit() has given up the rest. */
static void queue_destroy(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  while (q->claims) queue_unlink_claim(&q->claims);
  queue_wait_ended(&q->taking);
  queue_wait_ended(&q->putting);
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

/* Refuse what lies outside the bounds of the options. */
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

/* Have the paths of the queue's directories, which queue_destroy() frees, those
 * that were had included. */
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

/* Nothing of the queue is read here but that its path is a path: the first call
 * that needs the queue makes it, or finds what it says of itself. */
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

/* The claims go with the object, so a program that gives up half-way keeps no
 * item from the others. */
void zke_queue_free(zke_queue *queue) { zke_recipe_free((zke_recipe *)queue); }

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
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

/* Try, and wait as long as may be.  Before it says that there is no item it
 * asks once whether those that have claimed items live.
 *
 *   fn, arg  a try, for zke_q_do()
 *   need     for room: so many items are to be put
 *
 * ZKE_Q_NOTHING: the deadline came. */
static int queue_go_on(zke_q_wait *w, int (*fn)(zke *z, void *arg), void *arg,
                       int need, int64_t deadline_ms) {
  zke_queue *q = w->q;
  bool waiting = false, asked = w == &q->putting;
  int rc;
  do {
    rc = zke_q_do(q, fn, arg, deadline_ms);
    rc = queue_tried(w, need, rc);
    if (rc != ZKE_Q_NOTHING) break;
    rc = queue_wait_for(w, &waiting, need, deadline_ms);
    if (rc == ZKE_Q_NOTHING && !asked) rc = queue_bury(q);
    asked = true;
  } while (rc == ZKE_OK);
  return queue_wait_end(w, waiting, rc);
}

/* ---- in ----
 *
 * The arguments are checked before the mutex is taken. */

/* Put, and wait for room as long as may be. */
static int queue_put(queue_load *load, int64_t deadline_ms) {
  zke_queue *q = load->q;
  int rc =
      queue_go_on(&q->putting, queue_try_put, load, load->count, deadline_ms);
  if (rc == ZKE_Q_NOTHING)
    rc = zke_recipe_fail(ZKE_LIMIT,
                         "the queue %s is full: its limit is %d items",
                         q->r.path, q->limit);
  return rc;
}

/* A key is a line of text, and of one item. */
static int queue_check_key(const queue_load *load) {
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

/* Check what a put asks for, and say it in the terms of a load. */
static int queue_load_options(const zke_queue_put_options *given,
                              queue_load *load) {
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

/* Put what is there to put; the arguments are checked before anything is
 * touched.  For no items, too, the object and its session are asked. */
static int queue_put_load(zke_queue *queue, queue_load *load,
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

/* Items without changes of the caller's. */
int zke_queue_put_all(zke_queue *queue, const zke_queue_value *values,
                      int count, const zke_queue_put_options *options,
                      int64_t deadline_ms) {
  queue_load load = {.values = values, .count = count};
  return queue_put_load(queue, &load, options, deadline_ms);
}

/* The items and the caller's changes are one step. */
int zke_queue_put_with(zke_queue *queue, const zke_queue_value *values,
                       int value_count, const zke_queue_put_options *options,
                       const zke_op *ops, int count, zke_op_result *results,
                       int64_t deadline_ms) {
  queue_more more = {ops, count, results, 0};
  queue_load load = {.values = values, .count = value_count, .more = &more};
  int rc = queue_check_more(&more);
  if (rc != ZKE_OK) return rc;
  if (value_count < 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items", value_count);
  queue_clear_more(&more);
  return queue_put_load(queue, &load, options, deadline_ms);
}

/* A put of one. */
int zke_queue_put(zke_queue *queue, const void *data, int len,
                  const zke_queue_put_options *options, int64_t deadline_ms) {
  zke_queue_value value = {data, len};
  return zke_queue_put_all(queue, &value, 1, options, deadline_ms);
}

/* ---- out ---- */

/* The first claim of an item, or NULL. */
static const char *queue_first_claim(const zke_queue *q) {
  zke_q_name parsed;
  for (int i = 0; q->claimed && i < q->claimed->count; i++)
    if (zke_q_parse(q->claimed->data[i], &parsed)) return q->claimed->data[i];
  return NULL;
}

/* Say why there was nothing to take: not due, empty, or claimed, by one of the
 * consumers.  What the last look has found is used. */
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

/* Take or claim, and wait for an item as long as may be. */
static int queue_get(queue_want *want, int64_t deadline_ms) {
  zke_queue *q = want->q;
  int rc =
      queue_go_on(&q->taking, want->claim ? queue_try_claim : queue_try_take,
                  want, 0, deadline_ms);
  return rc == ZKE_Q_NOTHING ? queue_say_nothing(q) : rc;
}

/* What take, claim and claim_some have in common: the items are NULL unless
 * there are some, whatever goes wrong. */
static int queue_get_entered(queue_want *want, int64_t deadline_ms) {
  if (!want->items)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "the pointer for the item is NULL");
  for (int i = 0; i < want->most; i++) want->items[i] = NULL;
  int rc = zke_recipe_enter_by((zke_recipe *)want->q, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = queue_get(want, deadline_ms);
  return zke_recipe_leave(&want->q->r, rc);
}

/* The item is deleted in the step that finds it still there, so nobody else
 * gets it; if the process dies afterwards, it is gone. */
int zke_queue_take(zke_queue *queue, int64_t deadline_ms,
                   zke_queue_item **item_out) {
  queue_want want = {.q = queue, .most = 1, .items = item_out};
  return queue_get_entered(&want, deadline_ms);
}

/* The item stays, with an ephemeral znode beside it: if the process dies, it is
 * free again. */
int zke_queue_claim(zke_queue *queue, int64_t deadline_ms,
                    zke_queue_item **item_out) {
  queue_want want = {.q = queue, .claim = true, .most = 1, .items = item_out};
  return queue_get_entered(&want, deadline_ms);
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
  int rc = queue_get_entered(&want, deadline_ms);
  *count_out = want.count;
  return rc;
}

/* ---- the end of a claim ----
 *
 * ack, release, fail and prolong are one step each, which wants the claim's
 * znode and the item at the version that the claim has made (Q1).  If either
 * is not so, somebody has taken the item over or deleted the claim: ZKE_LOST,
 * and nothing has changed. */

/* The claim is there, at the version that it has made (Q1), and it is this
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

/* The claim was found gone: forget it, and its znode where only the item has
 * gone (an ephemeral one, with its producer). */
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
  int own;                    /* so many of its operations are the claims' */
  const char *reason;         /* of a burial */
} queue_ending;

/* One try of it.  Each looks for claims of before (queue_verify_old()), since
 * the last one may have placed the object anew.  ZKE_LOST: one of the claims is
 * gone. */
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

/* End or change one claim; as the members of queue_ending. */
static int queue_end_one(zke_queue *q, zke_q_claim *c,
                         const zke_queue_item *item, zke_q_step *s, int own,
                         const char *reason) {
  queue_ending e = {q, &item, &c, 1, s, own, reason};
  return zke_q_do(q, queue_try_end, &e, ZKE_FOREVER);
}

/* For zke_retry(): know which marker a claim has, of the two that it may have
 * after a prolongation.  If the claim is gone neither is there, and the step
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

/* This object's claim of an item; ZKE_LOST: it has none. */
static int queue_own_claim(zke_queue *q, const zke_queue_item *item,
                           zke_q_claim ***at) {
  *at = queue_find_claim(q, item->claim_path, item->token);
  zke_q_claim *c = **at;
  if (c && c->open) return zke_retry(q->r.z, queue_see_marker, c, ZKE_FOREVER);
  if (c) return ZKE_OK;
  return zke_recipe_fail(ZKE_LOST,
                         "%s of the queue %s is not claimed by this object",
                         item->name, q->r.path);
}

/* Enter with a claim of this object's: *at. */
static int queue_enter_claim(zke_queue *q, const zke_queue_item *item,
                             zke_q_claim ***at) {
  if (!item) return zke_recipe_fail(ZKE_BADARGUMENTS, "the item is NULL");
  int rc = zke_recipe_enter((zke_recipe *)q);
  if (rc != ZKE_OK) return rc;
  rc = queue_own_claim(q, item, at);
  if (rc != ZKE_OK) zke_recipe_leave(&q->r, rc);
  return rc;
}

/* What is acknowledged in one step. */
typedef struct queue_acks {
  const zke_queue_item *const *items;
  int item_count;
  queue_more more;
} queue_acks;

/* Delete claims and items, and do what the caller wants with it. */
static int queue_ack_step(zke_queue *q, queue_acks *d,
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
  queue_add_more(s, &d->more);
  int rc = zke_q_do(q, queue_try_end, &e, ZKE_FOREVER);
  if (rc != ZKE_LOST) queue_give_more(&d->more, s);
  zke_q_step_free(s);
  return rc;
}

/* Of several items of which one is lost, the others stay claimed. */
static int queue_ack(zke_queue *q, queue_acks *d) {
  zke_q_claim *claims[ZKE_Q_BATCH] = {NULL}, **at;
  int rc = ZKE_OK;
  for (int i = 0; i < d->item_count && rc == ZKE_OK; i++) {
    rc = queue_own_claim(q, d->items[i], &at);
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

/* Acknowledge one item or several; the arguments are checked before anything
 * is touched. */
static int queue_ack_entered(zke_queue *queue, queue_acks *d) {
  int rc = queue_check_more(&d->more);
  if (rc != ZKE_OK) return rc;
  queue_clear_more(&d->more);
  for (int i = 0; i < d->item_count; i++)
    if (!d->items[i])
      return zke_recipe_fail(ZKE_BADARGUMENTS, "the item is NULL");
  rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_leave(&queue->r, queue_ack(queue, d));
  return d->more.code ? d->more.code : rc;
}

/* The item, its claim and the caller's changes are one step. */
int zke_queue_ack(zke_queue *queue, const zke_queue_item *item,
                  const zke_op *ops, int count, zke_op_result *results) {
  queue_acks d = {&item, 1, {ops, count, results, 0}};
  return queue_ack_entered(queue, &d);
}

/* The same of several; each has to be claimed by this object. */
int zke_queue_ack_all(zke_queue *queue, zke_queue_item *const *items,
                      int item_count, const zke_op *ops, int count,
                      zke_op_result *results) {
  queue_acks d = {(const zke_queue_item *const *)items,
                  item_count,
                  {ops, count, results, 0}};
  if (!items || item_count < 1 || item_count > ZKE_Q_BATCH)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items, at most %d", item_count,
                           ZKE_Q_BATCH);
  return queue_ack_entered(queue, &d);
}

/* When a claim with that marker ends, of zke_now(); NULL: for ever. */
static int64_t queue_claim_end(const char *marker) {
  zke_q_marker m;
  bool ends = marker && zke_q_parse_marker(zke_recipe_name(marker), &m);
  return ends ? m.ms : ZKE_FOREVER;
}

/* Have the claim end at another time.  Consumers that wait sleep until the
 * time they know, unless the claim's znode is written to: that is done where
 * it ends sooner, so that a consumer that prolongs again and again wakes
 * nobody. */
static int queue_prolong(zke_queue *q, zke_q_claim *c,
                         const zke_queue_item *item, char *until) {
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
  int rc = queue_end_one(q, c, item, s, own, NULL);
  zke_q_step_free(s);
  return rc;
}

/* The object keeps the new marker if the step was made, and both if nobody
 * knows that: the next call with the item looks which of them is there. */
int zke_queue_prolong(zke_queue *queue, const zke_queue_item *item,
                      int64_t ms) {
  zke_q_claim **at;
  char *until = NULL;
  if (ms < 1 || (ms > QUEUE_SPAN_MOST && ms != ZKE_FOREVER))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%" PRId64 " ms", ms);
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  if (ms != ZKE_FOREVER) {
    until = zke_q_marker_path(queue, false, zke_now(queue->r.z) + ms,
                              item->version, item->name);
    rc = until ? ZKE_OK : ZKE_NOMEM;
  }
  if (rc == ZKE_OK) rc = queue_prolong(queue, *at, item, until);
  if (rc == ZKE_OK) {
    zke_free((*at)->until);
    (*at)->until = until;
  } else if (rc == ZKE_CONNECTIONLOSS) {
    (*at)->other = until;
    (*at)->open = true;
  } else {
    zke_free(until);
  }
  if (rc == ZKE_LOST) rc = queue_lost(queue, at, item);
  return zke_recipe_leave(&queue->r, rc);
}

/* Put the item's delay in the place of its claim (Q7).  Where nobody takes the
 * item its znodes go some time after it is due. */
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
  int rc = queue_end_one(q, c, item, s, own, NULL);
  zke_q_step_free(s);
  return rc;
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

/* Whatever is returned, the claim is not held any more.  Where the step fails
 * it goes all the same, now or as soon as it can be deleted. */
int zke_queue_release_after(zke_queue *queue, const zke_queue_item *item,
                            int64_t delay_ms, const char *reason) {
  zke_q_claim **at;
  if (delay_ms < 0 || delay_ms > QUEUE_SPAN_MOST)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "delay_ms %" PRId64, delay_ms);
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  if (!reason) reason = "it was given back";
  rc = queue_give_back(queue, *at, item, reason, delay_ms);
  if (rc == ZKE_OK)
    queue_unlink_claim(at);
  else if (rc == ZKE_LOST)
    rc = queue_lost(queue, at, item);
  else
    rc = queue_give_up(queue, at, rc);
  return zke_recipe_leave(&queue->r, rc);
}

/* Without a delay. */
int zke_queue_fail(zke_queue *queue, const zke_queue_item *item,
                   const char *reason) {
  return zke_queue_release_after(queue, item, 0, reason);
}

/* Without a delay and a reason. */
int zke_queue_release(zke_queue *queue, const zke_queue_item *item) {
  return zke_queue_fail(queue, item, NULL);
}

/* The file is asked: what the object knows is as old as the last event that was
 * dispatched. */
int zke_queue_check(zke_queue *queue, const zke_queue_item *item) {
  zke_q_claim **at;
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, queue_verify(queue, *at));
}

/* ---- without blocking ----
 *
 * The object waits here for its listener and not in a call: its state changes
 * in steps, which dispatches make, and in the tries of the program
 * (queue_tried()).  What only looks, or works on letters, stands here too: no
 * call but zke_queue_requeue() has a deadline. */

/* Enter, and find what an event of the listener is about: *w. */
static int queue_enter_wait(zke_queue *q, int event, zke_q_wait **w) {
  int rc = zke_recipe_enter((zke_recipe *)q);
  if (rc != ZKE_OK) return rc;
  *w = event == ZKE_QUEUE_ITEM ? &q->taking : &q->putting;
  if (event == (*w)->event) return ZKE_OK;
  rc = zke_recipe_fail(ZKE_BADARGUMENTS, "event %d", event);
  return zke_recipe_leave(&q->r, rc);
}

/* Begin to wait for the listener.  If the first look fails, the object gives up
 * its place in the line: the caller is told that it does not wait, and so does
 * zke_queue_size(). */
static int queue_start(zke_q_wait *w) {
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
  return queue_wait_end(w, rc != ZKE_OK, rc);
}

/* A second call looks anew. */
int zke_queue_start(zke_queue *queue, int event) {
  zke_q_wait *w;
  int rc = queue_enter_wait(queue, event, &w);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, queue_start(w));
}

/* For a program that dispatches seldom: what a dispatch would do.  The listener
 * is told of what is there, also where it was told before and has not tried. */
int zke_queue_step(zke_queue *queue) {
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  queue_tell_again(&queue->taking);
  queue_tell_again(&queue->putting);
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
    rc = queue_leave(w);
  return zke_recipe_leave(&queue->r, rc);
}

/* An item that is due now counts as ready, so no time is told for it: what is
 * told is the earliest moment at which a look may find more than this one. */
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
    *deadline_out = queue_next(queue, INT64_MAX / 4);
  }
  return zke_recipe_leave(&queue->r, rc);
}

/* One try of a look.  Exhausted items are passed over, not buried: it changes
 * nothing. */
static int queue_try_peek(zke *z, void *arg) {
  queue_want *w = arg;
  zke_q_page *page;
  (void)z;
  int rc = zke_q_know(w->q);
  return rc == ZKE_OK ? zke_q_pick(w->q, true, &page, w->items) : rc;
}

/* Where an item is changed between look and reading, it looks again. */
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

/* What a person or a monitor asks: it costs a read of all names. */
int zke_queue_size(zke_queue *queue, zke_queue_counts *counts_out) {
  if (!counts_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "counts_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = zke_q_know(queue);
  if (rc == ZKE_OK) rc = zke_q_count(queue, counts_out);
  return zke_recipe_leave(&queue->r, rc);
}

/* What the two lists have in common: arguments, the mutex, and that a list of a
 * queue that does not exist is empty. */
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

/* Items and letters differ in what is read of each. */
int zke_queue_list(zke_queue *queue, zke_queue_entries **entries_out) {
  return queue_list_entered(queue, false, entries_out);
}

int zke_queue_dead(zke_queue *queue, zke_queue_entries **entries_out) {
  return queue_list_entered(queue, true, entries_out);
}

/* Put a dead letter like anything else, and delete it in the same step: so it
 * is never in both places, nor in none. */
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
  queue_load load = {.q = q,
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

/* What a letter's name says. */
static int queue_know_letter(const char *name, zke_q_name *n) {
  if (name && zke_q_parse(name, n)) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS,
                         "%s is not the name of a dead letter",
                         name ? name : "NULL");
}

/* Where another puts the letter back or drops it meanwhile, the step fails, and
 * nothing is doubled. */
int zke_queue_requeue(zke_queue *queue, const char *name, int64_t deadline_ms) {
  zke_q_name n;
  int rc = queue_know_letter(name, &n);
  if (rc == ZKE_OK) rc = zke_recipe_enter_by((zke_recipe *)queue, deadline_ms);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, queue_requeue(queue, &n, deadline_ms));
}

/* A dead letter that is to go. */
typedef struct queue_letter {
  zke_queue *q;
  const char *name;
} queue_letter;

/* One try to delete a letter with its child. */
static int queue_try_drop(zke *z, void *arg) {
  const queue_letter *l = arg;
  char *letter = NULL, *death = NULL;
  zke_q_step *s = zke_q_step_new(z, 2);
  int rc = s ? zke_q_ready(l->q) : ZKE_NOMEM;
  if (rc == ZKE_OK) rc = zke_q_letter(l->q, l->name, &letter, &death);
  if (rc == ZKE_OK) {
    zke_op *op = &s->ops[ZKE_Q_OP_FIRST];
    if (death) zke_op_delete(op++, death, -1);
    zke_op_delete(op++, letter, -1);
    zke_q_step_end(s, op);
    rc = zke_q_change(l->q, s);
  }
  zke_q_step_free(s);
  zke_free(death);
  zke_free(letter);
  return rc;
}

/* ZKE_NONODE also where another process has dropped the letter, or put it back,
 * meanwhile. */
int zke_queue_drop(zke_queue *queue, const char *name) {
  zke_q_name n;
  queue_letter l = {queue, name};
  int rc = queue_know_letter(name, &n);
  if (rc == ZKE_OK) rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = zke_q_do(queue, queue_try_drop, &l, ZKE_FOREVER);
  if (rc == ZKE_NONODE)
    rc = zke_recipe_fail(rc, "the queue %s has no dead letter %s",
                         queue->r.path, name);
  return zke_recipe_leave(&queue->r, rc);
}

/* Destroy the queue that is there.  The object waits for nothing afterwards,
 * since its place in the line goes with the queue; where there is no queue
 * nothing changes. */
static int queue_do_destroy(zke_queue *q, bool only_empty) {
  int rc = zke_exists(q->r.z, q->r.path, NULL, NULL, NULL);
  if (rc == ZKE_NONODE)
    return zke_recipe_fail(rc, "there is no queue %s", q->r.path);
  if (rc == ZKE_OK) rc = zke_q_see_kind(q);
  queue_leave(&q->taking);
  queue_leave(&q->putting);
  if (rc == ZKE_OK) rc = zke_q_destroy(q, only_empty);
  q->placed = false;
  return rc;
}

/* A call that waits on another thread would make the queue anew at once, so it
 * is refused. */
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
