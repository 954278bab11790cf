/* queue_put.c - one put into a queue, with its limit and its keys
 *
 * This file knows what a put depends on: the room that is left, whether the key
 * is free, and the name that the item will get.  It promises its callers:
 * zke_q_try_put() has made all items, the key and the caller's changes, or
 * nothing.  Two puts never both use the last room (Q2), and no two items have
 * one key (Q8).
 *
 * A put reads the room, and then makes one step with all items.  That step
 * writes "entries"; in a queue with a limit it requires the version at which
 * the room was read.
 *
 * With a key the name of the item must be known before it is made, since the
 * key's znodes contain it.  The tree numbers sequential children by a counter
 * that the Stat of "entries" shows (queue_foresee()).  The same step sets
 * "entries" at the version of that look, so a put in between makes it fail; and
 * it checks that the item has the foreseen name, since others may make
 * children.
 *
 * Start reading at zke_q_try_put() and queue_put_step(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue_put.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text.h"
#include "znode.h"

/* ---- keys ---- */

/* The parts of a put with a key (Q8). */
typedef struct queue_keying {
  char *key, *entry, *keyed; /* paths: of the key's znode, of the new item, of
                                the znode that holds its key */
  const char *name;          /* of the item: the end of entry */
  bool stale, stale_keyed;   /* key, keyed: left by an item that has gone */
  int32_t number;            /* the item's future number */
  int32_t version;           /* of "entries", while that number is right */
} queue_keying;

/* Release a put's key data. */
static void queue_keying_free(queue_keying *k) {
  zke_free(k->key);
  zke_free(k->entry);
  zke_free(k->keyed);
  *k = (queue_keying){0};
}

/* Compute the name of the next item: "entries" numbers its children from 0 on
 * as they are created.  ZKE_Q_AGAIN: there is no "entries". */
static int queue_foresee(zke_queue *q, const char *prefix, queue_keying *k) {
  zke_stat stat;
  size_t size = strlen(prefix) + 12;
  int rc = zke_exists(q->r.z, q->entries, NULL, NULL, &stat);
  if (rc != ZKE_OK) return zke_q_see_gone(q, rc);
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

/* Refuse a key that an item has.  A key does not count if its item was removed
 * without it, as by zke_delete(). */
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

/* Did an item of that name in an earlier "entries" leave the znode that holds
 * its key? */
static int queue_see_keyed(zke_queue *q, queue_keying *k) {
  int rc = zke_exists(q->r.z, k->keyed, NULL, NULL, NULL);
  k->stale_keyed = rc == ZKE_OK;
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Read what a put with a key depends on.  Nothing is changed here: the step
 * deletes stale znodes, and fails if anybody has put since.  ZKE_LIMIT: the key
 * is free, but numbers are used up. */
static int queue_prepare_key(zke_queue *q, const zke_q_load *load,
                             const char *prefix, queue_keying *k) {
  if (!load->key) return ZKE_OK;
  int rc = queue_foresee(q, prefix, k);
  if (rc == ZKE_OK) rc = queue_see_key(q, load->key, k);
  if (rc == ZKE_OK && k->number == INT32_MAX)
    rc = zke_recipe_say_used_up(q->entries);
  return rc == ZKE_OK ? queue_see_keyed(q, k) : rc;
}

/* Add the znodes of the key; the item itself has been added before. */
static zke_op *queue_add_key(zke_op *op, const zke_q_load *load,
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

/* ---- the step ---- */

enum { QUEUE_PUT_OPS = 9 /* the most, besides the items */ };

/* The Stat counts all children, which need not all be items: the names are read
 * only if it matters. */
int zke_q_room(zke_queue *q, int need, int32_t *version) {
  zke_stat stat;
  *version = -1;
  if (!q->limit) return ZKE_OK;
  int rc = zke_exists(q->r.z, q->entries, NULL, NULL, &stat);
  if (rc != ZKE_OK) return zke_q_see_gone(q, rc);
  *version = stat.version;
  int count = stat.numChildren, most = q->limit - need;
  if (count > most) rc = zke_q_count_in(q, q->entries, &count);
  if (rc != ZKE_OK) return zke_q_see_gone(q, rc);
  return count > most ? ZKE_Q_NOTHING : ZKE_OK;
}

/* "entries/entry-100-" or "entries/later-100-<due>-" */
static char *queue_prefix(zke_queue *q, const zke_q_load *load) {
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

/* The name of the next item is taken: ZKE_LIMIT.  Either numbers are used up,
 * so "entries" gives the last one again and again, or somebody else has made a
 * child of that name. */
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
 *   version  as given by zke_q_room() */
static int queue_put_step(zke_queue *q, const zke_q_load *load, zke_q_step *s,
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
  if (load->more) zke_q_add_more(s, load->more);
  int rc = zke_q_change(q, s);
  bool changed = s->results[first].rc == ZKE_BADVERSION ||
                 zke_q_has_changed(s, items, own);
  if (rc < 0 && changed) rc = ZKE_Q_AGAIN;
  for (int i = items - load->count; i < items && rc == ZKE_NODEEXISTS; i++)
    if (s->results[i].rc == rc) rc = queue_say_taken(q, prefix);
  if (load->more && rc != ZKE_Q_AGAIN) zke_q_give_more(load->more, s);
  return rc;
}

/* Could there ever be room for so many items? */
static int queue_see_limit(const zke_queue *q, int count) {
  if (!q->limit || count <= q->limit) return ZKE_OK;
  return zke_recipe_fail(ZKE_LIMIT,
                         "%d items at once, the queue %s has limit %d", count,
                         q->r.path, q->limit);
}

/* The room is read last: a put with a key that is not free fails immediately,
 * even if the queue is full. */
int zke_q_try_put(zke *z, void *arg) {
  const zke_q_load *load = arg;
  zke_queue *q = load->q;
  int32_t version;
  queue_keying k = {0};
  int more = load->more ? load->more->count : 0;
  zke_q_step *s = zke_q_step_new(z, load->count + QUEUE_PUT_OPS + more);
  char *prefix = queue_prefix(q, load);
  int rc = s && prefix ? zke_q_ready(q) : ZKE_NOMEM;
  if (rc == ZKE_OK) rc = queue_see_limit(q, load->count);
  if (rc == ZKE_OK) rc = queue_prepare_key(q, load, prefix, &k);
  if (rc == ZKE_OK) rc = zke_q_room(q, load->count, &version);
  if (rc == ZKE_OK) rc = queue_put_step(q, load, s, prefix, &k, version);
  zke_free(prefix);
  zke_q_step_free(s);
  queue_keying_free(&k);
  return rc;
}
