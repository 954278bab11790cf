/* queue_item.c - which item of a queue is next, and what a step does with it
 *
 * This file knows the order of the items, how to read a claim and a marker (Q1,
 * Q7), and how an item is buried.  It promises its callers: at the moment of
 * the look, the result of zke_q_pick() was the first free item.  The step that
 * takes or claims the item decides whether this still holds, by the version in
 * the item.
 *
 * How the next item is found:
 *
 *   1. Read, in one snapshot, the first names of the items without a delay, the
 *      first names of items with a time, and all of "taken" (zke_q_look()).
 *      With two readings, an item could be claimed in between, and still be
 *      offered.
 *   2. Of each kind take the first name without a claim, or with a claim whose
 *      time is over (zke_q_find()).  If all names read are claimed, read the
 *      next ones.
 *   3. Of the two take the one with the lower priority; if they are equal, the
 *      one that could be taken first (zke_q_first()).
 *   4. Read the item with its claim, its key and its marker, in one snapshot
 *      (queue_fetch()).  If it has gone or was claimed since, begin again.
 *   5. Bury an item that was claimed as often as the queue allows, and begin
 *      again (zke_q_pick(), ZKE_Q_AGAIN).
 *
 * A look costs one read transaction, however many items there are: the names
 * are read through an index, QUEUE_PAGE of each kind plus one for each claim.
 *
 * Start reading at zke_q_pick(); then zke_q_first(), zke_q_find(),
 * queue_fetch(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue_item.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"
#include "znode.h"

enum { QUEUE_PAGE = 8 /* names read at a time, besides those of claims */ };

/* ---- the first items ----
 *
 * The cost of a take does not depend on the number of items: it reads only the
 * first names of "entries", those with a time separately, and "taken".  Nothing
 * is kept from one look to the next, so a released item, or one with a lower
 * priority, can be next. */

/* Forget the names.  An empty page says that no items follow, so it causes no
 * further reading. */
void zke_q_drop_page(zke_q_page *p) {
  zke_free(p->names);
  zke_free(p->order);
  p->names = NULL;
  p->order = NULL;
  p->at = p->count = 0;
  p->last = true;
}

/* Keep the names of a reading.
 *
 *   most  how many were asked for; 0: all
 *
 * ZKE_Q_WHOLE: numbers have wrapped around, and only the whole list can be
 * sorted. */
static int queue_keep_page(zke_queue *q, zke_q_page *p, zke_op_result *read,
                           int most) {
  zke_q_drop_page(p);
  if (read->rc == ZKE_NONODE) { /* somebody has removed the queue: empty */
    q->placed = false;
    return ZKE_OK;
  }
  if (read->rc != ZKE_OK)
    return zke_recipe_fail(read->rc, "cannot read %s", q->entries);
  p->names = read->children;
  read->children = NULL;
  p->last = !most || p->names->count < most;
  int all = zke_q_sort(q->r.z, p->names, &p->order);
  if (all < 0) return ZKE_NOMEM;
  for (int i = 0; i < all; i++) {
    if (strncmp(p->order[i].name, p->kind, strlen(p->kind)) != 0)
      p->last = true; /* the other kind follows */
    else
      p->order[p->count++] = p->order[i];
    if (p->order[i].number < 0 && most) return ZKE_Q_WHOLE;
  }
  return ZKE_OK;
}

/* How many names to read for a page: some more than there are claimed items,
 * which a look may have to pass over.  So one reading is mostly enough.  0:
 * all, if numbers have wrapped around (ZKE_Q_WHOLE). */
static int queue_page_size(const zke_queue *q, int wraps) {
  int claimed = q->claimed ? q->claimed->count : 0;
  return wraps == ZKE_Q_WHOLE ? 0 : QUEUE_PAGE + claimed;
}

/* Read the page that follows a name. */
static int queue_read_page(zke_queue *q, zke_q_page *p, const char *after) {
  int rc = ZKE_OK;
  do {
    zke_op op;
    zke_op_result r = {0};
    int most = queue_page_size(q, rc);
    zke_op_children(&op, q->entries, after, most);
    rc = zke_recipe_multi_read(q->r.z, &op, 1, &r);
    if (rc == ZKE_OK) rc = queue_keep_page(q, p, &r, most);
    zke_results_clear(&r, 1);
  } while (rc == ZKE_Q_WHOLE);
  return rc;
}

/* By item; the marker of the latest claim last. */
static int queue_compare_markers(const void *a, const void *b) {
  const zke_q_marker *x = a, *y = b;
  int by = strcmp(x->item, y->item);
  if (by != 0) return by;
  return (int32_t)((uint32_t)x->version - (uint32_t)y->version);
}

/* Keep the marker of the latest claim of each item. */
static int queue_keep_latest(zke_q_marker *markers, int count) {
  int kept = 0;
  qsort(markers, (size_t)count, sizeof *markers, queue_compare_markers);
  for (int i = 0; i < count; i++) {
    bool last =
        i + 1 == count || strcmp(markers[i].item, markers[i + 1].item) != 0;
    if (last) markers[kept++] = markers[i];
  }
  return kept;
}

/* Is the marker's time over?  If not, the object's next time is at most that.
 */
static bool queue_is_over(zke_queue *q, const zke_q_marker *m, int64_t now,
                          int64_t wall) {
  if (m->ms <= (m->delay ? wall : now)) return true;
  int64_t *next = m->delay ? &q->due : &q->until;
  if (m->ms < *next) *next = m->ms;
  return false;
}

/* Read the markers among the names of "taken": find which claims and delays are
 * over, and when the next one will be.  Two passes over the names give the
 * exact size of the array. */
static int queue_keep_markers(zke_queue *q) {
  int64_t now = zke_now(q->r.z), wall = zke_wall(q->r.z);
  zke_q_marker m;
  int count = 0;
  zke_free(q->markers);
  q->markers = NULL;
  q->marker_count = 0;
  q->until = ZKE_FOREVER;
  for (int i = 0; i < q->claimed->count; i++)
    count += zke_q_parse_marker(q->claimed->data[i], &m);
  if (!count) return ZKE_OK;
  q->markers = zke_alloc(q->r.z, (size_t)count * sizeof *q->markers);
  if (!q->markers) return ZKE_NOMEM;
  count = 0;
  for (int i = 0; i < q->claimed->count; i++)
    count += zke_q_parse_marker(q->claimed->data[i], &q->markers[count]);
  q->marker_count = queue_keep_latest(q->markers, count);
  for (int i = 0; i < q->marker_count; i++)
    q->markers[i].over = queue_is_over(q, &q->markers[i], now, wall);
  return ZKE_OK;
}

/* For bsearch(): compare an item's name with a marker. */
static int queue_compare_item(const void *key, const void *at) {
  return strcmp(key, ((const zke_q_marker *)at)->item);
}

/* An item's marker, or NULL. */
const zke_q_marker *zke_q_find_marker(const zke_queue *q, const char *name) {
  if (!q->marker_count) return NULL;
  return bsearch(name, q->markers, (size_t)q->marker_count, sizeof *q->markers,
                 queue_compare_item);
}

/* Keep the names of "taken"; a missing one is empty. */
int zke_q_keep_claims(zke_queue *q, zke_op_result *read) {
  if (read->rc != ZKE_OK && read->rc != ZKE_NONODE)
    return zke_recipe_fail(read->rc, "cannot read %s", q->taken);
  zke_free(q->claimed);
  q->claimed = read->children;
  q->claimed_zxid = read->stat.pzxid;
  read->children = NULL;
  if (!q->claimed) q->claimed = zke_alloc(q->r.z, sizeof *q->claimed);
  return q->claimed ? queue_keep_markers(q) : ZKE_NOMEM;
}

/* Read the first names of both kinds and all of "taken" in one snapshot: with
 * two an item could be claimed in between, and still be offered.
 *
 *   most  names of a kind; 0: all
 *
 * ZKE_Q_WHOLE: as queue_keep_page(). */
static int queue_try_look(zke_queue *q, int most) {
  zke_op ops[3];
  zke_op_result r[3];
  memset(r, 0, sizeof r);
  q->due = ZKE_FOREVER;
  zke_op_children(&ops[0], q->entries, q->entry.kind, most);
  zke_op_children(&ops[1], q->entries, q->later.kind, most);
  zke_op_children(&ops[2], q->taken, NULL, 0);
  int rc = zke_recipe_multi_read(q->r.z, ops, 3, r);
  if (rc == ZKE_OK) rc = zke_q_keep_claims(q, &r[2]);
  if (rc == ZKE_OK) rc = queue_keep_page(q, &q->entry, &r[0], most);
  if (rc == ZKE_OK) rc = queue_keep_page(q, &q->later, &r[1], most);
  zke_results_clear(r, 3);
  return rc;
}

/* Read the first items and the claims, in one snapshot. */
int zke_q_look(zke_queue *q) {
  int rc = queue_try_look(q, queue_page_size(q, ZKE_OK));
  return rc == ZKE_Q_WHOLE ? queue_try_look(q, 0) : rc;
}

/* For bsearch(): compare a name with one of a list sorted by bytes. */
static int queue_compare_text(const void *key, const void *at) {
  return strcmp(key, *(char *const *)at);
}

/* Is there a claim, or a delay, that is not over?  The list may be empty, and
 * then have no block. */
bool zke_q_is_claimed(const zke_queue *q, const char *name) {
  if (!q->claimed->count) return false;
  const zke_q_marker *marker = zke_q_find_marker(q, name);
  if (marker && marker->over) return false;
  return bsearch(name, q->claimed->data, (size_t)q->claimed->count,
                 sizeof *q->claimed->data, queue_compare_text) != NULL;
}

/* The first that was not passed over and is not claimed; ZKE_Q_NOTHING: there
 * is none. */
int zke_q_find(zke_queue *q, zke_q_page *p, zke_q_name *out) {
  for (;;) {
    for (; p->at < p->count; p->at++) {
      *out = p->order[p->at];
      if (!zke_q_is_claimed(q, out->name)) return ZKE_OK;
    }
    if (p->last) return ZKE_Q_NOTHING;
    char *after = p->names->data[p->names->count - 1];
    zke_strings *names = p->names; /* it has the name */
    p->names = NULL;
    int rc = queue_read_page(q, p, after);
    zke_free(names);
    if (rc != ZKE_OK) return rc;
  }
}

/* The same for the delayed ones, up to priority most.  In each priority the
 * earliest comes first: if it is not due, none is.
 *
 *   passing  pass over the due ones */
int zke_q_find_due(zke_queue *q, int most, bool passing, zke_q_name *out) {
  int64_t now = zke_wall(q->r.z);
  char after[ZKE_Q_ITEM_ROOM];
  for (;;) {
    int rc = zke_q_find(q, &q->later, out);
    if (rc != ZKE_OK) return rc;
    if (out->priority > most) return ZKE_Q_NOTHING;
    bool due = out->due_ms <= now;
    if (due && !passing) return ZKE_OK;
    if (!due && out->due_ms < q->due) q->due = out->due_ms;
    snprintf(after, sizeof after, ZKE_Q_LATER "~", out->priority,
             due ? now : ZKE_Q_DUE_MOST);
    rc = queue_read_page(q, &q->later, after);
    if (rc != ZKE_OK) return rc;
  }
}

/* ---- one item ---- */

/* The reads of an item, in one snapshot. */
enum { READ_ENTRY, READ_CLAIM, READ_KEYED, READ_MARKER, READS };

typedef struct queue_reading {
  char *paths[READS];     /* NULL: not read */
  char *key;              /* path of its key's znode, or NULL */
  zke_op_result r[READS]; /* in the same order */
} queue_reading;

/* Release the reads of an item; an item made from them has copies. */
static void queue_reading_free(queue_reading *x) {
  zke_results_clear(x->r, READS);
  for (int i = 0; i < READS; i++) zke_free(x->paths[i]);
  zke_free(x->key);
}

/* Read an item, its claim, its key and its marker, in one snapshot.
 *
 *   marker  of a claim or a delay that is over, or NULL */
static int queue_read_item(zke_queue *q, const char *name,
                           const zke_q_marker *marker, queue_reading *x) {
  const char *const directories[READS] = {q->entries, q->taken, q->keys,
                                          q->taken};
  int count = marker ? READS : READ_MARKER;
  zke_op ops[READS];
  for (int i = 0; i < count; i++) {
    const char *node = i == READ_MARKER ? marker->name : name;
    x->paths[i] = zke_recipe_path(q->r.z, directories[i], node);
    if (!x->paths[i]) return ZKE_NOMEM;
    zke_op_get(&ops[i], x->paths[i]);
  }
  return zke_recipe_multi_read(q->r.z, ops, count, x->r);
}

/* Can the item be taken as it was read?  ZKE_Q_AGAIN: no.  A marker of an
 * earlier claim was left because it could not be discarded immediately; it is
 * deleted here. */
static int queue_judge(zke_queue *q, const zke_q_marker *marker,
                       const queue_reading *x) {
  const zke_op_result *entry = &x->r[READ_ENTRY];
  if (entry->rc == ZKE_NONODE) return ZKE_Q_AGAIN;
  if (!marker && x->r[READ_CLAIM].rc != ZKE_NONODE) return ZKE_Q_AGAIN;
  if (entry->rc != ZKE_OK)
    return zke_recipe_fail(entry->rc, "cannot read %s", x->paths[READ_ENTRY]);
  if (!marker) return ZKE_OK;
  if (x->r[READ_MARKER].rc == ZKE_NONODE) return ZKE_Q_AGAIN;
  if (marker->version == entry->stat.version) return ZKE_OK;
  int rc = zke_recipe_delete(q->r.z, x->paths[READ_MARKER]);
  return rc == ZKE_OK ? ZKE_Q_AGAIN : rc;
}

/* The name of the item that a key's znode belongs to, for zke_free(); NULL:
 * there is no such znode. */
static int queue_key_owner(zke_queue *q, const char *path, char **name_out) {
  *name_out = NULL;
  int rc = zke_get(q->r.z, path, NULL, NULL, name_out, NULL, NULL);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Find the key's znode of an item that has one, unless it was deleted and
 * another item has the key now. */
static int queue_read_key(zke_queue *q, const char *name, queue_reading *x) {
  const char *key = x->r[READ_KEYED].data;
  char *owner = NULL;
  if (x->r[READ_KEYED].rc != ZKE_OK || !key) return ZKE_OK;
  x->key = zke_q_key_path(q, key);
  int rc = x->key ? queue_key_owner(q, x->key, &owner) : ZKE_NOMEM;
  if (rc == ZKE_OK && (!owner || strcmp(owner, name) != 0)) {
    zke_free(x->key);
    x->key = NULL;
  }
  zke_free(owner);
  return rc;
}

/* The strings of an item, in their order in its block. */
enum {
  TEXT_NAME,
  TEXT_ENTRY,
  TEXT_CLAIM,
  TEXT_USER,
  TEXT_KEY,
  TEXT_KEYED,
  TEXT_KEY_PATH,
  TEXT_MARKER,
  TEXTS
};

/* Collect the strings of an item; a missing one is "".  Returns how many bytes
 * they take, with their NULs. */
static size_t queue_item_texts(const zke_queue *q, const zke_q_name *n,
                               const queue_reading *x,
                               const char *texts[TEXTS]) {
  const zke_op_result *keyed = &x->r[READ_KEYED];
  bool has_key = keyed->rc == ZKE_OK && keyed->data;
  const char *marker = x->paths[READ_MARKER];
  size_t size = 0;
  texts[TEXT_NAME] = n->name;
  texts[TEXT_ENTRY] = x->paths[READ_ENTRY];
  texts[TEXT_CLAIM] = x->paths[READ_CLAIM];
  texts[TEXT_USER] = q->user ? q->user : "";
  texts[TEXT_KEY] = has_key ? keyed->data : "";
  texts[TEXT_KEYED] = has_key ? x->paths[READ_KEYED] : "";
  texts[TEXT_KEY_PATH] = x->key ? x->key : "";
  texts[TEXT_MARKER] = marker ? marker : "";
  for (int i = 0; i < TEXTS; i++) size += strlen(texts[i]) + 1;
  return size;
}

/* An item from its reads: one block, which holds the struct, the data with a
 * NUL after it, and the strings. */
static zke_queue_item *queue_item_new(zke_queue *q, const zke_q_name *n,
                                      const queue_reading *x) {
  const zke_op_result *read = &x->r[READ_ENTRY];
  const char *texts[TEXTS];
  size_t data = read->data ? (size_t)read->len + 1 : 0;
  size_t size = queue_item_texts(q, n, x, texts);
  zke_queue_item *item = zke_alloc(q->r.z, sizeof *item + data + size);
  if (!item) return NULL;
  char *at = (char *)(item + 1);
  if (read->data) item->data = memcpy(at, read->data, (size_t)read->len);
  at += data;
  item->name = zke_q_pack(&at, texts[TEXT_NAME]);
  item->entry_path = zke_q_pack(&at, texts[TEXT_ENTRY]);
  item->claim_path = zke_q_pack(&at, texts[TEXT_CLAIM]);
  item->user_path = zke_q_pack(&at, texts[TEXT_USER]);
  item->key = zke_q_pack(&at, texts[TEXT_KEY]);
  item->keyed_path = zke_q_pack(&at, texts[TEXT_KEYED]);
  item->key_path = zke_q_pack(&at, texts[TEXT_KEY_PATH]);
  item->marker_path = zke_q_pack(&at, texts[TEXT_MARKER]);
  item->over = x->paths[READ_MARKER] && x->r[READ_CLAIM].rc == ZKE_OK;
  item->len = read->len;
  item->priority = n->priority;
  item->attempts = item->version = read->stat.version;
  item->zxid = read->stat.czxid;
  item->put_ms = read->stat.ctime;
  item->due_ms = n->due_ms;
  return item;
}

/* Read the item, with its claim and its key; ZKE_Q_AGAIN if it has gone or was
 * claimed. */
static int queue_fetch(zke_queue *q, const zke_q_name *n,
                       zke_queue_item **item_out) {
  queue_reading x = {0};
  const zke_q_marker *marker = zke_q_find_marker(q, n->name);
  if (marker && !marker->over) marker = NULL;
  int rc = queue_read_item(q, n->name, marker, &x);
  if (rc == ZKE_OK) rc = queue_judge(q, marker, &x);
  if (rc == ZKE_OK) rc = queue_read_key(q, n->name, &x);
  if (rc == ZKE_OK) {
    *item_out = queue_item_new(q, n, &x);
    rc = *item_out ? ZKE_OK : ZKE_NOMEM;
  }
  queue_reading_free(&x);
  return rc;
}

/* Add the deletion of the znodes of an earlier claim that is over.  Each of the
 * zke_q_add functions returns the end of the operations. */
zke_op *zke_q_add_takeover(zke_op *op, const zke_queue_item *item) {
  if (*item->marker_path) zke_op_delete(op++, item->marker_path, -1);
  if (item->over) zke_op_delete(op++, item->claim_path, -1);
  return op;
}

/* Add the deletion of an item, with its key. */
zke_op *zke_q_add_removal(zke_op *op, const zke_queue_item *item) {
  zke_op_delete(op++, item->entry_path, item->version);
  if (*item->keyed_path) zke_op_delete(op++, item->keyed_path, -1);
  if (*item->key_path) zke_op_delete(op++, item->key_path, -1);
  return op;
}

/* Add the deletion of a claim that this object holds. */
zke_op *zke_q_add_unclaim(zke_op *op, const zke_q_claim *c) {
  zke_op_delete(op++, c->path, -1);
  if (c->until) zke_op_delete(op++, c->until, -1);
  return op;
}

/* Was the item claimed as often as the queue allows? Its version counts the
 * claims (Q1). */
bool zke_q_is_exhausted(const zke_queue *q, const zke_queue_item *item) {
  return q->attempts > 0 && item->version >= q->attempts;
}

/* ---- dead letters ----
 *
 * A letter has its item's name and data.  A child, "death", says how it died,
 * in lines of a word and a text: so the data stays as the producer gave it. */

/* The text after the word, or "": the child may be missing, or have other data.
 * zke_q_split_death() has ended each line with a NUL. */
const char *zke_q_death(const zke_op_result *read, const char *word) {
  size_t len = strlen(word);
  if (read->rc != ZKE_OK || !read->data) return "";
  const char *at = read->data, *end = at + read->len;
  for (; at < end; at += strlen(at) + 1)
    if (strncmp(at, word, len) == 0) return at + len;
  return "";
}

/* End each line of a letter's child with a NUL, for zke_q_death(). */
void zke_q_split_death(zke_op_result *read) {
  for (int i = 0; read->data && i < read->len; i++)
    if (read->data[i] == '\n') read->data[i] = '\0';
}

/* Make one line of a text: a newline in it would begin another line of the
 * letter's child. */
static void queue_make_line(char *text) {
  for (; *text; text++)
    if (*text == '\n') *text = ' ';
}

/* The data of the child; a key comes first (queue_shorten_death()).
 *
 *   reason  of the consumer that gives it back, which is this session; NULL:
 *           the last consumer has gone, and is not known
 *   out     one block */
static int queue_death_text(zke_queue *q, const zke_queue_item *item,
                            const char *reason, char **out) {
  bool has_key = *item->key != '\0';
  zke_session_list *own = NULL;
  zke *z = q->r.z;
  int rc = reason ? zke_sessions(z, zke_session_id(z), &own) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  bool known = own && own->count > 0;
  const char *who = known ? own->data[0].identity : "";
  if (!reason)
    reason = *item->marker_path ? "its consumer did not answer in time"
                                : "its consumer ended without an answer";
  size_t size = strlen(who) + strlen(reason) + strlen(item->key) + 100;
  char *text = zke_alloc(z, size);
  if (text) {
    int at = snprintf(text, size, "%s%s%s", has_key ? "key " : "", item->key,
                      has_key ? "\n" : "");
    char *line = text + at;
    at += snprintf(line, size - (size_t)at, "consumer %s", who);
    queue_make_line(line);
    at += snprintf(text + at, size - (size_t)at,
                   "\npid %" PRId64 "\nattempts %d\n",
                   known ? own->data[0].pid : 0, item->version);
    snprintf(text + at, size - (size_t)at, "reason %s", reason);
    queue_make_line(text + at);
  }
  zke_free(own);
  *out = text;
  return text ? ZKE_OK : ZKE_NOMEM;
}

/* There is no room for the whole text: keep only the key.  There is room for
 * that, since the step that put the item had both.  NULL: there is no key, or
 * only the key was left. */
static char *queue_shorten_death(char *death) {
  char *end = strncmp(death, "key ", 4) == 0 ? strchr(death, '\n') : NULL;
  if (!end) return NULL;
  *end = '\0';
  return death;
}

/* The step of a burial.
 *
 *   own    this object's claim of it, or NULL
 *   name   of the letter
 *   death  data of its child, or NULL: no child */
static int queue_bury_step(zke_queue *q, const zke_queue_item *item,
                           const zke_q_claim *own, const char *name,
                           const char *death) {
  char *letter = zke_recipe_path(q->r.z, q->dead, name);
  char *child = letter ? zke_recipe_path(q->r.z, letter, "death") : NULL;
  zke_q_step *s =
      zke_q_step_new(q->r.z, 3 + ZKE_Q_TAKEOVER_OPS + ZKE_Q_REMOVAL_OPS);
  int rc = child && s ? ZKE_OK : ZKE_NOMEM;
  if (rc == ZKE_OK) {
    zke_op *op = &s->ops[ZKE_Q_OP_FIRST + 1];
    s->needs = q->dead;
    op = own ? zke_q_add_unclaim(op, own) : zke_q_add_takeover(op, item);
    op = zke_q_add_removal(op, item);
    int late = zke_q_step_end(s, op);
    zke_op_create(op++, letter, item->data, item->len, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
    if (death)
      zke_op_create(op++, child, death, (int)strlen(death), ZKE_OPEN_ACL,
                    ZKE_PERSISTENT);
    zke_q_step_end(s, op);
    rc = zke_q_change(q, s);
    if (rc < 0 && zke_q_was_late(s, late)) rc = ZKE_LOST;
  }
  zke_q_step_free(s);
  zke_free(child);
  zke_free(letter);
  return rc;
}

/* Move an item to the dead letters, with this object's claim if it holds one:
 * then with a reason, else NULL.  A letter of that name may exist already:
 * "entries" was made again, or other programs chose item names.  Then the
 * letter gets another number: the zxid of its put plus its own number, since
 * items of one put share the zxid; or the next number without a letter.  If an
 * item is so large that one step cannot carry more, it is buried with only its
 * key, and not claimed for ever.  Each name is a separate try, so the deadline
 * and a cancel end the search. */
int zke_q_bury(zke_queue *q, const zke_queue_item *item, const zke_q_claim *own,
               const char *reason) {
  char *death = NULL, other[ZKE_Q_ITEM_ROOM];
  const char *name = item->name;
  zke_q_name parsed = {.number = 0};
  int rc = queue_death_text(q, item, reason, &death);
  char *says = death;
  bool again = rc == ZKE_OK;
  zke_q_parse(item->name, &parsed);
  int64_t number = item->zxid + parsed.number;
  while (again) {
    rc = queue_bury_step(q, item, own, name, says);
    again = rc == ZKE_NODEEXISTS;
    if (again) {
      rc = ZKE_Q_AGAIN;
      again = zke_recipe_again(q->r.z, &rc);
      snprintf(other, sizeof other, ZKE_Q_ENTRY "-" ZKE_RECIPE_NUMBER,
               item->priority, (int32_t)(number++ & INT32_MAX));
      name = other;
    } else if (says && (rc == ZKE_BADARGUMENTS || rc == ZKE_MARSHALLINGERROR)) {
      says = queue_shorten_death(says);
      again = true;
    }
  }
  zke_free(death);
  return rc;
}

/* Of an item without a delay and a delayed one, with equal priority: the one
 * that could be taken first goes first. */
static int queue_fetch_first(zke_queue *q, const zke_q_name *entry,
                             const zke_q_name *later,
                             zke_queue_item **item_out) {
  zke_queue_item *item = NULL;
  int rc = queue_fetch(q, entry, &item);
  if (rc == ZKE_OK && item->put_ms > later->due_ms) {
    zke_free(item);
    return queue_fetch(q, later, item_out);
  }
  if (rc == ZKE_OK) *item_out = item;
  return rc;
}

/* The first item that was not passed over; *page: its page.  ZKE_Q_AGAIN: it
 * has gone or was claimed since the look. */
int zke_q_first(zke_queue *q, zke_q_page **page, zke_queue_item **item_out) {
  zke_q_name entry, later;
  int rc = zke_q_find(q, &q->entry, &entry);
  if (rc < 0) return rc;
  bool ready = rc == ZKE_OK;
  rc = zke_q_find_due(q, ready ? entry.priority : INT32_MAX, false, &later);
  if (rc < 0) return rc;
  bool due = rc == ZKE_OK;
  if (!ready && !due) return ZKE_Q_NOTHING;
  if (ready && due && entry.priority == later.priority) {
    rc = queue_fetch_first(q, &entry, &later, item_out);
    *page = rc == ZKE_OK && (*item_out)->due_ms ? &q->later : &q->entry;
    return rc;
  }
  *page = due ? &q->later : &q->entry;
  return queue_fetch(q, due ? &later : &entry, item_out);
}

/* The first item that can be taken; *page: its page.  An exhausted one is
 * buried, or (keep) passed over. */
int zke_q_pick(zke_queue *q, bool keep, zke_q_page **page,
               zke_queue_item **item_out) {
  int rc = zke_q_look(q);
  while (rc == ZKE_OK) {
    zke_queue_item *item = NULL;
    rc = zke_q_first(q, page, &item);
    if (rc == ZKE_OK && !zke_q_is_exhausted(q, item)) {
      *item_out = item;
      return ZKE_OK;
    }
    if (rc == ZKE_OK && keep) {
      (*page)->at++;
    } else if (rc == ZKE_OK) {
      rc = zke_q_bury(q, item, NULL, NULL);
      if (rc == ZKE_OK || rc == ZKE_LOST) rc = ZKE_Q_AGAIN;
    }
    zke_free(item);
  }
  return rc;
}
