/* queue_list.c - the whole contents of a queue: counts, lists, and its end
 *
 * This file knows what people want to see of a queue, and in which order it can
 * be deleted.  Nothing here takes part in putting and taking.
 *
 * A list takes two readings, since the names must be known before the items can
 * be read:
 *
 *   1. all names of the directory, and all of "taken", in one snapshot;
 *   2. for each name the item, its claim and its key, or the letter and its
 *      death, and the directory once more, in one snapshot.
 *
 * If the directory's cversion is the same in both, no item came or went in
 * between, and the list has the items of one moment.  Otherwise it is made
 * again, at most QUEUE_TRIES times.  The end of a claim is read in 1, the rest
 * of the claim in 2: a claim made in between has no end in the list.
 *
 * Start reading at zke_q_list() and queue_listing_read(); at zke_q_destroy()
 * and queue_delete_rest() for the end of a queue. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "queue_item.h"
#include "text.h"
#include "znode.h"

enum { QUEUE_TRIES = 3 /* to make a list whose two readings agree */ };

/* ---- counts ----
 *
 * A missing directory is empty: all of them are containers, which are removed
 * when they are empty. */

/* How many of a kind are in the line. */
static int queue_count_line(zke_queue *q, const char *kind, int *count) {
  zke_entries *line = NULL;
  int rc =
      zke_recipe_entries(q->r.z, q->line, &kind, 1, NULL, NULL, &line, NULL);
  if (rc == ZKE_OK) *count = line->count;
  zke_free(line);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* How many dead letters there are; a missing directory has none. */
static int queue_count_dead(zke_queue *q, int *count) {
  int rc = zke_q_count_in(q, q->dead, count);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* All items or letters, in the order of items. */
typedef struct queue_all {
  zke_strings *names;
  zke_q_name *order;
  int count;
  int32_t cversion; /* of "entries", or of "dead" */
} queue_all;

/* Release the results of queue_read_all(), even after a failure. */
static void queue_all_free(queue_all *all) {
  zke_free(all->names);
  zke_free(all->order);
}

/* Keep all items of a directory; a missing one is empty. */
static int queue_keep_all(zke_queue *q, const char *directory,
                          zke_op_result *read, queue_all *all) {
  if (read->rc != ZKE_OK && read->rc != ZKE_NONODE)
    return zke_recipe_fail(read->rc, "cannot read %s", directory);
  if (read->rc == ZKE_NONODE) return ZKE_OK;
  all->names = read->children;
  all->cversion = read->stat.cversion;
  read->children = NULL;
  all->count = zke_q_sort(q->r.z, all->names, &all->order);
  return all->count < 0 ? ZKE_NOMEM : ZKE_OK;
}

/* Read all items of a directory, and the claims of the same moment. */
static int queue_read_all(zke_queue *q, const char *directory, queue_all *all) {
  zke_op ops[2];
  zke_op_result r[2];
  memset(r, 0, sizeof r);
  zke_op_children(&ops[0], directory, NULL, 0);
  zke_op_children(&ops[1], q->taken, NULL, 0);
  int rc = zke_recipe_multi_read(q->r.z, ops, 2, r);
  if (rc == ZKE_OK) rc = zke_q_keep_claims(q, &r[1]);
  if (rc == ZKE_OK) rc = queue_keep_all(q, directory, &r[0], all);
  zke_results_clear(r, 2);
  return rc;
}

/* Count the ready, claimed and delayed items.  An item that was given back with
 * a delay has the znode of a claim; its marker distinguishes the two (Q7). */
static void queue_count_items(const zke_queue *q, const queue_all *all,
                              zke_queue_counts *c) {
  int64_t now = zke_wall(q->r.z);
  c->items = all->count;
  for (int i = 0; i < all->count; i++) {
    const zke_q_marker *marker = zke_q_find_marker(q, all->order[i].name);
    bool taken = zke_q_is_claimed(q, all->order[i].name);
    bool given_back = taken && marker && marker->delay;
    if (given_back || (!taken && all->order[i].due_ms > now))
      c->delayed++;
    else if (taken)
      c->claimed++;
    else
      c->ready++;
  }
}

/* Items and claims were read together, so the numbers of items are consistent.
 */
int zke_q_count(zke_queue *q, zke_queue_counts *counts_out) {
  zke_queue_counts c;
  queue_all all = {0};
  memset(&c, 0, sizeof c);
  int rc = queue_read_all(q, q->entries, &all);
  if (rc == ZKE_OK) queue_count_items(q, &all, &c);
  queue_all_free(&all);
  c.limit = q->limit;
  c.attempts = q->attempts;
  if (rc == ZKE_OK) rc = queue_count_dead(q, &c.dead);
  if (rc == ZKE_OK) rc = queue_count_line(q, "take-", &c.takers);
  if (rc == ZKE_OK) rc = queue_count_line(q, "put-", &c.putters);
  if (rc == ZKE_OK) *counts_out = c;
  return rc;
}

/* ---- lists ----
 *
 * The same code makes both lists.  Of an item it reads the znode without its
 * data (only the length is shown), the claim, and the key; of a letter the
 * znode and its child "death".  The sessions are read after them: a consumer
 * that has ended in between has no identity in the list. */

/* The reads for a list: some for each item, all in one snapshot. */
typedef struct queue_listing {
  const char *directory;
  bool letters; /* dead letters; else items */
  const zke_q_name *order;
  int count;
  int32_t cversion; /* of the directory, when order was read */
  int each; /* reads for each: an item, its claim and its key; or a letter and
               its death */
  char **paths;
  zke_op *ops;
  zke_op_result *reads;
  zke_session_list *who;
} queue_listing;

/* The path of an item's read. */
static char *queue_listing_path(zke_queue *q, const queue_listing *l, int item,
                                int read) {
  const char *name = l->order[item].name;
  zke *z = q->r.z;
  if (read == 0) return zke_recipe_path(z, l->directory, name);
  if (l->letters) return zke_recipe_path(z, l->paths[item * l->each], "death");
  return zke_recipe_path(z, read == 1 ? q->taken : q->keys, name);
}

/* Read all data of a list in one snapshot, and the directory last: its cversion
 * shows whether the names are still the same. */
static int queue_listing_read(zke_queue *q, queue_listing *l) {
  zke *z = q->r.z;
  l->each = l->letters ? 2 : 3;
  int reads = l->each * l->count;
  size_t count = (size_t)reads + 1;
  l->paths = zke_alloc(z, count * sizeof *l->paths);
  l->ops = zke_alloc(z, count * sizeof *l->ops);
  l->reads = zke_alloc(z, count * sizeof *l->reads);
  if (!l->paths || !l->ops || !l->reads) return ZKE_NOMEM;
  for (int i = 0; i < reads; i++) {
    int read = i % l->each;
    l->paths[i] = queue_listing_path(q, l, i / l->each, read);
    if (!l->paths[i]) return ZKE_NOMEM;
    if (read == 0 || (!l->letters && read == 1))
      zke_op_children(&l->ops[i], l->paths[i], NULL,
                      0); /* Stat without the data */
    else
      zke_op_get(&l->ops[i], l->paths[i]);
  }
  zke_op_get(&l->ops[reads], l->directory);
  int rc = zke_recipe_multi_read(z, l->ops, (int)count, l->reads);
  for (int i = 1; l->letters && rc == ZKE_OK && i < reads; i += 2)
    zke_q_split_death(&l->reads[i]);
  return rc == ZKE_OK ? zke_sessions(z, -1, &l->who) : rc;
}

/* Release everything, even after a failure.  The list has copies. */
static void queue_listing_free(queue_listing *l) {
  int reads = l->each * l->count;
  for (int i = 0; l->paths && i < reads; i++) zke_free(l->paths[i]);
  if (l->reads) zke_results_clear(l->reads, reads + 1);
  zke_free(l->paths);
  zke_free(l->ops);
  zke_free(l->reads);
  zke_free(l->who);
}

/* The session of that number, if it was alive when the list was read, or NULL.
 */
static const zke_session_info *queue_who(const queue_listing *l, int64_t id) {
  for (int i = 0; i < l->who->count; i++)
    if (l->who->data[i].id == id) return &l->who->data[i];
  return NULL;
}

/* Fill in how a letter died. */
static void queue_describe_death(const zke_op_result *death,
                                 zke_queue_entry *e) {
  e->attempts = (int)strtol(zke_q_death(death, "attempts "), NULL, 10);
  e->pid = strtoll(zke_q_death(death, "pid "), NULL, 10);
  e->identity = zke_q_death(death, "consumer ");
  e->reason = zke_q_death(death, "reason ");
  e->key = zke_q_death(death, "key ");
}

/* Fill in who has claimed an item, until when, and its key.  An expired claim
 * does not count. */
static void queue_describe_claim(const zke_queue *q, const queue_listing *l,
                                 const zke_op_result *claim,
                                 zke_queue_entry *e) {
  const zke_q_marker *marker = zke_q_find_marker(q, e->name);
  const char *key = claim[1].rc == ZKE_OK ? claim[1].data : NULL;
  if (key) e->key = key;
  if (claim->rc != ZKE_OK || (marker && marker->over)) return;
  if (marker && marker->delay) {
    e->due_ms = marker->ms;
    return;
  }
  const zke_session_info *who = queue_who(l, claim->stat.ephemeralOwner);
  e->claimed = 1;
  e->token = claim->stat.czxid;
  e->session = claim->stat.ephemeralOwner;
  e->since_ms = claim->stat.ctime;
  e->until_ms = marker ? marker->ms : 0;
  if (!who) return;
  e->identity = who->identity;
  e->pid = who->pid;
}

/* One entry of the list; its texts belong to the listing. */
static void queue_describe(const zke_queue *q, const queue_listing *l, int i,
                           zke_queue_entry *e) {
  const zke_op_result *item = &l->reads[l->each * i];
  *e = (zke_queue_entry){.name = l->order[i].name,
                         .identity = "",
                         .reason = "",
                         .key = "",
                         .len = item->stat.dataLength,
                         .priority = l->order[i].priority,
                         .attempts = item->stat.version,
                         .zxid = item->stat.czxid,
                         .put_ms = item->stat.ctime,
                         .due_ms = l->order[i].due_ms,
                         .producer = item->stat.ephemeralOwner};
  if (l->letters)
    queue_describe_death(item + 1, e);
  else
    queue_describe_claim(q, l, item + 1, e);
}

/* By death: a letter's zxid. */
static int queue_compare_deaths(const void *a, const void *b) {
  const zke_queue_entry *x = a, *y = b;
  if (x->zxid != y->zxid) return x->zxid < y->zxid ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* The list for the user: one block.  Letters are in order of death. */
static int queue_listing_make(zke_queue *q, const queue_listing *l,
                              zke_queue_entries **out) {
  zke_queue_entry one;
  size_t size = sizeof(zke_queue_entries);
  for (int i = 0; i < l->count; i++) {
    queue_describe(q, l, i, &one);
    size += sizeof one + strlen(one.name) + strlen(one.identity) +
            strlen(one.reason) + strlen(one.key) + 4;
  }
  zke_queue_entries *list = zke_alloc(q->r.z, size);
  if (!list) return ZKE_NOMEM;
  zke_queue_entry *entry = (zke_queue_entry *)(void *)(list + 1);
  char *at = (char *)(entry + l->count);
  list->data = entry;
  for (int i = 0; i < l->count; i++) {
    if (l->reads[l->each * i].rc != ZKE_OK) continue; /* it has gone */
    queue_describe(q, l, i, entry);
    entry->name = zke_q_pack(&at, entry->name);
    entry->identity = zke_q_pack(&at, entry->identity);
    entry->reason = zke_q_pack(&at, entry->reason);
    entry->key = zke_q_pack(&at, entry->key);
    entry++;
    list->count++;
  }
  entry = (zke_queue_entry *)(void *)(list + 1);
  if (l->letters)
    qsort(entry, (size_t)list->count, sizeof *entry, queue_compare_deaths);
  *out = list;
  return ZKE_OK;
}

/* ZKE_Q_AGAIN: the list was made, but its names are older than the rest. */
static int queue_listing_do(zke_queue *q, queue_listing *l,
                            zke_queue_entries **out) {
  int rc = queue_listing_read(q, l);
  if (rc == ZKE_OK) rc = queue_listing_make(q, l, out);
  if (rc == ZKE_OK && l->reads[l->each * l->count].stat.cversion != l->cversion)
    rc = ZKE_Q_AGAIN;
  queue_listing_free(l);
  return rc;
}

/* Make the list once.  ZKE_Q_AGAIN: the list was made, but items came or went
 * in between. */
static int queue_list_once(zke_queue *q, bool letters,
                           zke_queue_entries **list_out) {
  const char *directory = letters ? q->dead : q->entries;
  queue_all all = {0};
  int rc = queue_read_all(q, directory, &all);
  if (rc == ZKE_OK) {
    queue_listing l = {.directory = directory,
                       .letters = letters,
                       .order = all.order,
                       .count = all.count,
                       .cversion = all.cversion};
    rc = queue_listing_do(q, &l, list_out);
  }
  queue_all_free(&all);
  return rc;
}

/* If the queue keeps changing, the last try counts: an item that came in
 * between is missing from it, and one that went is left out. */
int zke_q_list(zke_queue *q, bool letters, zke_queue_entries **list_out) {
  int rc = ZKE_Q_AGAIN;
  for (int i = 0; i < QUEUE_TRIES && rc == ZKE_Q_AGAIN; i++) {
    zke_free(*list_out);
    *list_out = NULL;
    rc = queue_list_once(q, letters, list_out);
  }
  return rc == ZKE_Q_AGAIN ? ZKE_OK : rc;
}

/* ---- one letter ---- */

/* The path of a letter, for zke_free(), and of its child, or NULL if it has
 * none. */
int zke_q_letter(zke_queue *q, const char *name, char **letter, char **death) {
  *death = NULL;
  *letter = zke_recipe_path(q->r.z, q->dead, name);
  if (!*letter) return ZKE_NOMEM;
  char *child = zke_recipe_path(q->r.z, *letter, "death");
  int rc = child ? zke_exists(q->r.z, child, NULL, NULL, NULL) : ZKE_NOMEM;
  if (rc == ZKE_OK)
    *death = child;
  else
    zke_free(child);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* The key in a letter's child, for zke_free(); NULL: none. */
int zke_q_letter_key(zke_queue *q, const char *death, char **key_out) {
  zke_op op;
  zke_op_result r = {0};
  *key_out = NULL;
  if (!death) return ZKE_OK;
  zke_op_get(&op, death);
  int rc = zke_recipe_multi_read(q->r.z, &op, 1, &r);
  if (rc == ZKE_OK) {
    zke_q_split_death(&r);
    const char *key = zke_q_death(&r, "key ");
    if (*key) *key_out = zke_recipe_copy(q->r.z, key, strlen(key));
    rc = *key && !*key_out ? ZKE_NOMEM : ZKE_OK;
  }
  zke_results_clear(&r, 1);
  return rc;
}

/* A dead letter to be deleted. */
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

/* Another process may drop the letter, or put it back, at the same time. */
int zke_q_drop_letter(zke_queue *q, const char *name) {
  queue_letter l = {q, name};
  return zke_q_do(q, queue_try_drop, &l, ZKE_FOREVER);
}

/* ---- the end of a queue ----
 *
 * Items, letters and keys are deleted in parts, since one step cannot hold a
 * million of them.  The rest is one step: the line, the claims, the remaining
 * keys, and the directories.  It fails if an item was put in between, so nobody
 * has half a queue.  Keys go after the items, and only while no put runs: an
 * item never exists without its key. */

/* A directory's children; *names_out is NULL if it is missing. */
static int queue_names(zke_queue *q, const char *directory,
                       zke_strings **names_out) {
  *names_out = NULL;
  int rc = zke_children(q->r.z, directory, NULL, NULL, names_out, NULL);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Delete up to ZKE_Q_BATCH children of a directory; each may have one child,
 * named `child` (NULL: none has). */
static int queue_delete_batch(zke_queue *q, const char *directory,
                              char *const *names, int count,
                              const char *child) {
  char *paths[2 * ZKE_Q_BATCH];
  zke_strings all = {0, paths};
  int rc = ZKE_OK;
  for (int i = 0; i < count && rc == ZKE_OK; i++) {
    char *path = zke_recipe_path(q->r.z, directory, names[i]);
    char *below = path && child ? zke_recipe_path(q->r.z, path, child) : NULL;
    if (below) paths[all.count++] = below;
    if (path) paths[all.count++] = path;
    if (!path || (child && !below)) rc = ZKE_NOMEM;
  }
  if (rc == ZKE_OK) rc = zke_recipe_delete_all(q->r.z, &all);
  while (all.count > 0) zke_free(paths[--all.count]);
  return rc;
}

/* Delete the children of a directory, except the line; see
 * queue_delete_batch(). */
static int queue_clear(zke_queue *q, const char *directory, const char *child) {
  zke_strings *names;
  int rc = queue_names(q, directory, &names);
  int count = 0, all = rc == ZKE_OK && names ? names->count : 0;
  for (int i = 0; i < all; i++)
    if (strcmp(names->data[i], ZKE_Q_LINE) != 0)
      names->data[count++] = names->data[i];
  for (int i = 0; i < count && rc == ZKE_OK; i += ZKE_Q_BATCH) {
    int some = count - i < ZKE_Q_BATCH ? count - i : ZKE_Q_BATCH;
    rc = queue_delete_batch(q, directory, names->data + i, some, child);
  }
  zke_free(names);
  return rc;
}

/* Has it items or letters?  ZKE_NOTEMPTY: yes. */
static int queue_see_empty(zke_queue *q) {
  queue_all all = {0};
  int dead = 0;
  int rc = queue_read_all(q, q->entries, &all);
  if (rc == ZKE_OK) rc = queue_count_dead(q, &dead);
  if (rc == ZKE_OK && all.count + dead > 0)
    rc = zke_recipe_fail(ZKE_NOTEMPTY,
                         "the queue %s has %d items and %d dead letters",
                         q->r.path, all.count, dead);
  queue_all_free(&all);
  return rc;
}

/* Add a path to the deletions, if it exists. */
static int queue_add_path(zke_queue *q, char **paths, int *count,
                          const char *path) {
  int rc = zke_exists(q->r.z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  paths[*count] = zke_recipe_copy(q->r.z, path, strlen(path));
  return paths[(*count)++] ? ZKE_OK : ZKE_NOMEM;
}

/* The rest of a queue without items, to be deleted in one step. */
typedef struct queue_rest {
  zke_strings *line, *claims, *keys;
  char **paths;
  zke_op *ops;
  int count;
} queue_rest;

/* Add the paths of a directory's children to the deletions.  The count is
 * raised even if memory is short, so that the paths are freed. */
static int queue_add_names(zke_queue *q, queue_rest *l, const char *directory,
                           const zke_strings *names) {
  for (int i = 0; names && i < names->count; i++) {
    l->paths[l->count] = zke_recipe_path(q->r.z, directory, names->data[i]);
    if (!l->paths[l->count++]) return ZKE_NOMEM;
  }
  return ZKE_OK;
}

/* The number of names read; 0 for a missing directory. */
static size_t queue_count_names(const zke_strings *names) {
  return names ? (size_t)names->count : 0;
}

/* Delete up to ZKE_Q_BATCH keys while "entries" has this version.  ZKE_Q_AGAIN:
 * it has another one, or a key has gone with its producer. */
static int queue_delete_keys(zke_queue *q, int32_t version, char **names,
                             int count) {
  char *paths[ZKE_Q_BATCH];
  zke_op ops[ZKE_Q_BATCH + 1];
  zke_strings some = {count, names};
  queue_rest l = {.paths = paths};
  int rc = queue_add_names(q, &l, q->keys, &some);
  zke_op_check(&ops[0], q->entries, version);
  for (int i = 0; i < count && rc == ZKE_OK; i++)
    zke_op_delete(&ops[i + 1], paths[i], -1);
  if (rc == ZKE_OK) rc = zke_recipe_multi(q->r.z, ops, count + 1, NULL);
  while (l.count > 0) zke_free(paths[--l.count]);
  return zke_recipe_faster(rc);
}

/* Delete the keys of a queue without items.  The version of "entries" is read
 * before the look at the items, and each put raises it (Q2): so the key of an
 * item that was put since is never deleted.  ZKE_Q_AGAIN: one was put. */
static int queue_clear_keys(zke_queue *q) {
  zke_strings *names = NULL;
  queue_all all = {0};
  zke_stat stat;
  int rc = zke_exists(q->r.z, q->entries, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return ZKE_OK; /* the last step deletes them */
  if (rc == ZKE_OK) rc = queue_read_all(q, q->entries, &all);
  if (rc == ZKE_OK && all.count) rc = ZKE_Q_AGAIN;
  if (rc == ZKE_OK) rc = queue_names(q, q->keys, &names);
  int count = rc == ZKE_OK && names ? names->count : 0;
  for (int i = 0; i < count && rc == ZKE_OK; i += ZKE_Q_BATCH) {
    int some = count - i < ZKE_Q_BATCH ? count - i : ZKE_Q_BATCH;
    rc = queue_delete_keys(q, stat.version, names->data + i, some);
  }
  zke_free(names);
  queue_all_free(&all);
  return rc;
}

/* Collect the rest, in an order in which it can be deleted: first the children
 * of the line, of "taken" and of "keys", then the directories, each after those
 * below it. */
static int queue_list_rest(zke_queue *q, queue_rest *l) {
  enum { DIRECTORIES = 7 };
  const char *const directories[DIRECTORIES] = {
      q->line, q->entries, q->taken, q->keys, q->dead, q->stays, q->r.path};
  zke *z = q->r.z;
  int rc = queue_names(q, q->line, &l->line);
  if (rc == ZKE_OK) rc = queue_names(q, q->taken, &l->claims);
  if (rc == ZKE_OK) rc = queue_names(q, q->keys, &l->keys);
  if (rc != ZKE_OK) return rc;
  size_t most = DIRECTORIES + queue_count_names(l->line) +
                queue_count_names(l->claims) + queue_count_names(l->keys);
  l->paths = zke_alloc(z, most * sizeof *l->paths);
  l->ops = zke_alloc(z, most * sizeof *l->ops);
  if (!l->paths || !l->ops) return ZKE_NOMEM;
  rc = queue_add_names(q, l, q->line, l->line);
  if (rc == ZKE_OK) rc = queue_add_names(q, l, q->taken, l->claims);
  if (rc == ZKE_OK) rc = queue_add_names(q, l, q->keys, l->keys);
  for (int i = 0; i < DIRECTORIES && rc == ZKE_OK; i++)
    rc = queue_add_path(q, l->paths, &l->count, directories[i]);
  for (int i = 0; i < l->count && rc == ZKE_OK; i++)
    zke_op_delete(&l->ops[i], l->paths[i], -1);
  return rc;
}

/* Delete the rest in one step: so no object uses half a queue (Q5), and no
 * claim goes while its item stays.  ZKE_Q_AGAIN: something came or went in
 * between. */
static int queue_delete_rest(zke_queue *q) {
  queue_rest l = {0};
  int rc = queue_list_rest(q, &l);
  if (rc == ZKE_OK && l.count)
    rc = zke_recipe_multi(q->r.z, l.ops, l.count, NULL);
  for (int i = 0; i < l.count; i++) zke_free(l.paths[i]);
  zke_free(l.paths);
  zke_free(l.ops);
  zke_free(l.line);
  zke_free(l.claims);
  zke_free(l.keys);
  return rc == ZKE_NONODE || rc == ZKE_NOTEMPTY ? ZKE_Q_AGAIN : rc;
}

/* For zke_retry(): a queue to be destroyed. */
typedef struct queue_end {
  zke_queue *q;
  bool only_empty; /* only if it has neither items nor letters */
} queue_end;

/* One try to destroy the queue: the items in parts, as there may be many, and
 * the rest in one step.  A death in between leaves a queue with fewer items,
 * which can be used or destroyed.  After a lost reply the next try finds less.
 * If an item is put in between, the last step fails, since "entries" is not
 * empty: ZKE_Q_AGAIN. */
static int queue_try_destroy(zke *z, void *arg) {
  const queue_end *e = arg;
  zke_queue *q = e->q;
  (void)z;
  int rc = e->only_empty ? queue_see_empty(q) : ZKE_OK;
  if (rc == ZKE_OK && !e->only_empty) rc = queue_clear(q, q->entries, NULL);
  if (rc == ZKE_OK && !e->only_empty) rc = queue_clear(q, q->dead, "death");
  if (rc == ZKE_OK && !e->only_empty) rc = queue_clear_keys(q);
  return rc == ZKE_OK ? queue_delete_rest(q) : rc;
}

/* If others put in between, tries again, at most ZKE_RETRIES times. */
int zke_q_destroy(zke_queue *q, bool only_empty) {
  queue_end e = {q, only_empty};
  int rc = ZKE_Q_AGAIN;
  for (int i = 0; i < ZKE_RETRIES && rc == ZKE_Q_AGAIN; i++)
    rc = zke_retry(q->r.z, queue_try_destroy, &e, ZKE_FOREVER);
  if (rc != ZKE_Q_AGAIN) return rc;
  return zke_recipe_fail(ZKE_NOTEMPTY,
                         "others put into the queue %s all the time, or it has "
                         "children that are not its own",
                         q->r.path);
}
