/* queue_tree.c - the znodes of a queue, and how one change of them is made
 *
 * This file knows how names are written and parsed, which directories there
 * are, and how a step, one transaction, is made exactly once.  It does not know
 * what a step is for.  It promises its callers:
 *
 *   - After zke_q_ready() the queue exists, and has this object's user znode.
 *   - zke_q_change() has made the step if it returns ZKE_OK.  After any other
 *     code it was not made, except ZKE_Q_UNSURE, or if the session has ended.
 *
 * The order in which zke_q_ready() works:
 *
 *   1. Check that the node at the path, if there is one, is a queue.
 *   2. Make the queue, "entries" and "line" with all missing nodes above them,
 *      in one step, which also writes the settings (Q6).
 *   3. Create the user znode in "line".  From here on "entries" has a
 *      descendant that lives as long as the object, so it is not removed (Q5).
 *   4. Read the settings, and write the missing ones.  This comes after 3, so
 *      the version that is kept (Q4) is of the queue that has the user znode.
 *   5. If the settings must last, make "stays".
 *
 * A process that dies between two of them leaves containers, which are removed
 * when they are empty, or a queue like any other.  If a node has gone between
 * two of them, begin again at 1 (ZKE_Q_AGAIN).
 *
 * Only zke_q_do() repeats: it calls a function that reads, decides and calls
 * zke_q_change(), until the step is decided.
 *
 * Start reading at zke_q_ready(), then zke_q_change() and zke_q_do(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue_tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limit.h"
#include "text.h"
#include "znode.h"

#define QUEUE_SETTINGS "limit %d\nattempts %d\n"
#define QUEUE_KEY "key-" /* prefix of the name of a key's znode */

enum {
  QUEUE_PATIENCE_MS = 1000, /* the least time to look for a lost reply */
  QUEUE_TEXT = 96           /* bytes of the queue's own data, at most */
};

/* If a call must not wait for others, its deadline has passed; it still looks
 * for a lost reply. */
static int64_t queue_patience(zke *z, int64_t deadline_ms) {
  return zke_recipe_later(deadline_ms, zke_now(z) + QUEUE_PATIENCE_MS);
}

int zke_q_do(zke_queue *q, int (*fn)(zke *z, void *arg), void *arg,
             int64_t deadline_ms) {
  zke *z = q->r.z;
  return zke_recipe_do(z, fn, arg, queue_patience(z, deadline_ms));
}

/* Forgets the path in any case: the session deletes the znode if this fails. */
int zke_q_remove(zke_queue *q, char **path) {
  if (!*path) return ZKE_OK;
  int rc = zke_recipe_discard(q->r.z, *path, ZKE_EPHEMERAL, 0);
  zke_free(*path);
  *path = NULL;
  return rc;
}

/* Copy a text into a block with enough room. */
char *zke_q_pack(char **at, const char *text) {
  char *copy = *at;
  size_t size = strlen(text) + 1;
  memcpy(copy, text, size);
  *at += size;
  return copy;
}

/* ---- names ---- */

/* Digits, perhaps after a minus, up to an end character, which is skipped. */
static bool queue_digits(const char **at, size_t least, char end,
                         int64_t *out) {
  const char *digits = *at + (**at == '-');
  size_t count = strspn(digits, "0123456789");
  if (count < least || count > 18 || digits[count] != end) return false;
  *out = strtoll(*at, NULL, 10);
  *at = digits + count + 1;
  return true;
}

/* "entry-100-0000000000" or "later-100-1790000000000-0000000000"; anything else
 * is not an item. */
bool zke_q_parse(const char *name, zke_q_name *out) {
  bool later = strncmp(name, "later-", 6) == 0;
  int64_t priority, due = 0, number;
  if (!later && strncmp(name, "entry-", 6) != 0) return false;
  const char *at = name + 6;
  if (!queue_digits(&at, 3, '-', &priority)) return false;
  if (later && !queue_digits(&at, 13, '-', &due)) return false;
  if (!queue_digits(&at, 10, '\0', &number)) return false;
  if (priority < 0 || priority > 999) return false;
  if (due < 0 || due > ZKE_Q_DUE_MOST) return false;
  if (number < INT32_MIN || number > INT32_MAX) return false;
  *out = (zke_q_name){name, (int)priority, (int32_t)number, due};
  return true;
}

/* By priority, then by time, then by number, which may wrap around.  Until the
 * numbers wrap around, sorting one kind by the names' bytes gives the same
 * order. */
static int queue_compare(const void *a, const void *b) {
  const zke_q_name *x = a, *y = b;
  int32_t by = (int32_t)((uint32_t)x->number - (uint32_t)y->number);
  if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
  if (x->due_ms != y->due_ms) return x->due_ms < y->due_ms ? -1 : 1;
  if (by != 0) return by < 0 ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* The items among names, in order: how many, or -1 without memory.
 *
 *   out  one block */
int zke_q_sort(zke *z, const zke_strings *names, zke_q_name **out) {
  zke_q_name *order = zke_alloc(z, ((size_t)names->count + 1) * sizeof *order);
  int count = 0;
  if (!order) return -1;
  for (int i = 0; i < names->count; i++)
    count += zke_q_parse(names->data[i], &order[count]);
  qsort(order, (size_t)count, sizeof *order, queue_compare);
  *out = order;
  return count;
}

/* Count without sorting.  Returns as zke_children(). */
int zke_q_count_in(zke_queue *q, const char *directory, int *count_out) {
  zke_strings *names = NULL;
  zke_q_name parsed;
  int rc = zke_children(q->r.z, directory, NULL, NULL, &names, NULL);
  *count_out = 0;
  for (int i = 0; rc == ZKE_OK && i < names->count; i++)
    *count_out += zke_q_parse(names->data[i], &parsed);
  zke_free(names);
  return rc;
}

/* Any other name is not a marker. */
bool zke_q_parse_marker(const char *name, zke_q_marker *out) {
  bool delay = strncmp(name, "after-", 6) == 0;
  int64_t ms, version;
  zke_q_name item;
  if (!delay && strncmp(name, "until-", 6) != 0) return false;
  const char *at = name + 6;
  if (!queue_digits(&at, 13, '-', &ms)) return false;
  if (!queue_digits(&at, 1, '-', &version)) return false;
  if (version < INT32_MIN || version > INT32_MAX) return false;
  if (!zke_q_parse(at, &item)) return false;
  *out = (zke_q_marker){.name = name,
                        .item = at,
                        .delay = delay,
                        .ms = ms,
                        .version = (int32_t)version};
  return true;
}

/* A marker's path, for zke_free(). */
char *zke_q_marker_path(const zke_queue *q, bool delay, int64_t ms,
                        int32_t version, const char *item) {
  size_t size = strlen(q->taken) + strlen(item) + 64;
  char *path = zke_alloc(q->r.z, size);
  if (path)
    snprintf(path, size, "%s/%s-%013" PRId64 "-%" PRId32 "-%s", q->taken,
             delay ? "after" : "until", ms, version, item);
  return path;
}

/* Is the byte of a key kept as it is in a znode's name? */
static bool queue_is_plain(unsigned char c) { return c != '/' && c != '%'; }

/* A key as a name in "keys"; for zke_free(). */
char *zke_q_key_path(const zke_queue *q, const char *key) {
  return zke_recipe_escape(q->r.z, q->keys, QUEUE_KEY, key, queue_is_plain);
}

/* ---- the place ---- */

/* The number after a word in the queue's data; 0 if it is missing or out of
 * bounds.
 *
 *   word  with the newline before it, so it begins a line */
static int queue_setting(const char *data, const char *word) {
  const char *at = data ? strstr(data, word) : NULL;
  long value = at ? strtol(at + strlen(word), NULL, 10) : 0;
  return value > 0 && value <= INT32_MAX ? (int)value : 0;
}

/* Compare a setting of the queue with the one that this object was given; 0:
 * none.  ZKE_BADARGUMENTS: they differ. */
static int queue_compare_setting(const zke_queue *q, const char *what, int has,
                                 int asked) {
  if (!asked || !has || has == asked) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "the queue %s has %s %d, not %d",
                         q->r.path, what, has, asked);
}

/* Write the data of the queue's znode into text; returns its length. */
static int queue_place_text(int limit, int attempts, char text[QUEUE_TEXT]) {
  bool named = limit || attempts;
  return snprintf(text, QUEUE_TEXT,
                  named ? "zkembed " ZKE_Q_PLACE "\n" QUEUE_SETTINGS
                        : "zkembed " ZKE_Q_PLACE "\n",
                  limit, attempts);
}

/* The same for a queue that this object makes. */
static int queue_new_text(const zke_queue *q, char text[QUEUE_TEXT]) {
  int attempts = q->o.attempts ? q->o.attempts : q->o.new_attempts;
  return queue_place_text(q->o.limit, attempts, text);
}

/* The settings in the data of a queue's znode. */
typedef struct queue_settings {
  int limit, attempts; /* 0: not set */
  bool bare;           /* there is no data yet */
} queue_settings;

/* Read them.  ZKE_Q_NOTHING: there is no queue. */
static int queue_fetch_settings(zke_queue *q, queue_settings *out,
                                zke_stat *stat_out) {
  char *data = NULL;
  int rc = zke_get(q->r.z, q->r.path, NULL, NULL, &data, NULL, stat_out);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_Q_NOTHING : rc;
  out->bare = !data || !*data;
  out->limit = queue_setting(data, "\nlimit ");
  out->attempts = queue_setting(data, "\nattempts ");
  zke_free(data);
  return ZKE_OK;
}

/* Read limit and attempts, and compare them with the object's.  The object's
 * count if the queue has none.
 *
 *   news_out  out: the object has a setting that the queue has not
 *
 * ZKE_Q_NOTHING: there is no queue.  ZKE_Q_AGAIN: one without its data. */
static int queue_read_settings(zke_queue *q, bool *news_out,
                               zke_stat *stat_out) {
  queue_settings has;
  int limit = q->o.limit, attempts = q->o.attempts;
  int rc = queue_fetch_settings(q, &has, stat_out);
  if (rc != ZKE_OK) return rc;
  if (has.bare) return ZKE_Q_AGAIN;
  rc = queue_compare_setting(q, "limit", has.limit, limit);
  if (rc == ZKE_OK)
    rc = queue_compare_setting(q, "attempts", has.attempts, attempts);
  if (rc != ZKE_OK) return rc;
  *news_out = (limit && !has.limit) || (attempts && !has.attempts);
  q->limit = limit ? limit : has.limit;
  q->attempts = attempts ? attempts : has.attempts;
  return ZKE_OK;
}

/* Read the queue's settings, and write the missing ones.
 * ZKE_Q_AGAIN: it has gone, or was changed in between. */
static int queue_agree(zke_queue *q) {
  char text[QUEUE_TEXT];
  zke_stat stat;
  bool news = false;
  int rc = queue_read_settings(q, &news, &stat);
  if (rc == ZKE_OK && news) {
    int len = queue_place_text(q->limit, q->attempts, text);
    rc = zke_set(q->r.z, q->r.path, text, len, stat.version, &stat);
    rc = zke_recipe_faster(rc);
  }
  if (rc == ZKE_OK) q->version = stat.version;
  return rc == ZKE_Q_NOTHING ? ZKE_Q_AGAIN : rc;
}

/* Check that the node at the path, if there is one, is a queue. */
int zke_q_see_kind(zke_queue *q) {
  zke *z = q->r.z;
  char text[QUEUE_TEXT];
  int rc = zke_exists(z, q->r.path, NULL, NULL, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  queue_new_text(q, text);
  return zke_recipe_place(z, q->r.path, ZKE_Q_PLACE, ZKE_CONTAINER,
                          strchr(text, '\n') + 1, ZKE_FOREVER);
}

/* A directory to be made. */
typedef struct queue_making {
  zke_queue *q;
  char *path;   /* of the directory; cut at each of its levels in turn */
  char *child;  /* to make the directory a used one (Q6) */
  zke_op *ops;  /* one for each missing level, from above */
  char **paths; /* of the ops */
  int count;    /* of both */
} queue_making;

/* Add the missing nodes of a path, from above. */
static int queue_add_missing(queue_making *m, const char *text, int len) {
  zke *z = m->q->r.z;
  for (char *end = m->path;;) {
    end = strchr(end + 1, '/');
    if (end) *end = '\0';
    int rc = m->count ? ZKE_NONODE : zke_exists(z, m->path, NULL, NULL, NULL);
    bool queue = strcmp(m->path, m->q->r.path) == 0;
    if (rc == ZKE_NONODE) {
      char *path = zke_recipe_copy(z, m->path, strlen(m->path));
      if (!path) return ZKE_NOMEM;
      m->paths[m->count] = path;
      zke_op_create(&m->ops[m->count++], path, queue ? text : "",
                    queue ? len : 0, ZKE_OPEN_ACL, ZKE_CONTAINER);
    } else if (rc != ZKE_OK) {
      return rc;
    }
    if (!end) return ZKE_OK;
    *end = '/';
  }
}

/* Make all missing nodes in one step.  It also makes and deletes the child: so
 * the last directory has had one, and is removed when it is empty (Q6). */
static int queue_make_all(queue_making *m) {
  char text[QUEUE_TEXT];
  int len = queue_new_text(m->q, text);
  int rc = queue_add_missing(m, text, len);
  if (rc != ZKE_OK || !m->count) return rc;
  zke_op_create(&m->ops[m->count], m->child, "", 0, ZKE_OPEN_ACL,
                ZKE_PERSISTENT);
  zke_op_delete(&m->ops[m->count + 1], m->child, -1);
  rc = zke_recipe_multi(m->q->r.z, m->ops, m->count + 2, NULL);
  return zke_recipe_faster(rc);
}

/* How many levels a path has: "/a/b" has 2. */
static int queue_levels(const char *path) {
  int levels = 0;
  for (; *path; path++) levels += *path == '/';
  return levels;
}

/* Make "line" with all missing nodes above it (Q6).  After a lost reply none is
 * missing. */
static int queue_make(zke_queue *q) {
  zke *z = q->r.z;
  int rc = zke_exists(z, q->line, NULL, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  size_t levels = (size_t)queue_levels(q->line) + 2;
  queue_making m = {.q = q,
                    .path = zke_recipe_copy(z, q->line, strlen(q->line)),
                    .child = zke_recipe_path(z, q->line, "made"),
                    .ops = zke_alloc(z, levels * sizeof *m.ops),
                    .paths = zke_alloc(z, levels * sizeof *m.paths)};
  bool whole = m.path && m.child && m.ops && m.paths;
  rc = whole ? queue_make_all(&m) : ZKE_NOMEM;
  for (int i = 0; i < m.count; i++) zke_free(m.paths[i]);
  zke_free(m.paths);
  zke_free(m.ops);
  zke_free(m.child);
  zke_free(m.path);
  return rc;
}

/* Make the user znode if the file does not have it (Q3, Q5). */
static int queue_need_user(zke_queue *q) {
  zke_stat stat;
  zke *z = q->r.z;
  int rc = q->user ? zke_exists(z, q->user, NULL, NULL, &stat) : ZKE_NONODE;
  if (rc == ZKE_NONODE) {
    zke_free(q->user);
    q->user = NULL;
    rc = zke_recipe_create(z, q->line, ZKE_Q_PLACE, "user-", "", 0,
                           ZKE_EPHEMERAL_SEQUENTIAL, ZKE_FOREVER, &q->user,
                           &stat);
  }
  if (rc == ZKE_OK) q->changes = stat.version;
  return zke_recipe_faster(rc);
}

/* A new queue has its settings from the beginning: it is never seen without
 * them.  A queue with settings given by a user stays: it has a child that is
 * not a container.  No call here has a deadline, since zke_q_do() has set the
 * thread's limit. */
int zke_q_ready(zke_queue *q) {
  if (q->placed) return ZKE_OK;
  int rc = zke_q_see_kind(q);
  if (rc == ZKE_OK) rc = queue_make(q);
  if (rc == ZKE_OK) rc = queue_need_user(q);
  if (rc == ZKE_OK) rc = queue_agree(q);
  if (rc == ZKE_OK && (q->o.limit || q->o.attempts)) {
    rc = zke_ensure_path(q->r.z, q->stays, ZKE_PERSISTENT, ZKE_FOREVER);
    rc = zke_recipe_faster(rc);
  }
  q->placed = rc == ZKE_OK;
  return rc;
}

/* For looking only: as zke_q_ready(), but makes nothing.  A missing queue is
 * empty. */
int zke_q_know(zke_queue *q) {
  zke_stat stat;
  bool news;
  if (q->placed) return ZKE_OK;
  int rc = zke_q_see_kind(q);
  if (rc == ZKE_OK) rc = queue_read_settings(q, &news, &stat);
  return rc > 0 ? ZKE_OK : rc;
}

/* The next zke_q_ready() makes the queue again. */
int zke_q_see_gone(zke_queue *q, int rc) {
  if (rc != ZKE_NONODE) return rc;
  q->placed = false;
  return ZKE_Q_AGAIN;
}

/* ---- the step (Q3, Q4, Q6) ----
 *
 * zke_q_change() adds two operations before its caller's: it writes the
 * user znode at the version that the object knows, and checks the version of
 * the queue's znode.  The first one makes the step repeatable.  Only this
 * object writes that znode, so if the reply is lost
 *
 *   - the version is the known one: the step was not made, and zke_q_do() tries
 *     again;
 *   - the version is another one: the step was made, and the znode's mzxid is
 *     its zxid;
 *   - the znode has gone: the session has ended, or somebody has deleted it.
 *     Then it cannot be known: ZKE_Q_UNSURE.
 *
 * The znode is below "entries", so the second case also says in which
 * "entries" it was made (Q5). */

/* A step with room for so many operations besides the first ones, which every
 * step has; one block, for zke_q_step_free(). */
zke_q_step *zke_q_step_new(zke *z, int more) {
  size_t count = (size_t)ZKE_Q_OP_FIRST + (size_t)more;
  zke_q_step *s =
      zke_alloc(z, sizeof *s + count * (sizeof *s->ops + sizeof *s->results));
  if (!s) return NULL;
  s->count = (int)count;
  s->results = (zke_op_result *)(void *)(s + 1);
  s->ops = (zke_op *)(void *)(s->results + count);
  return s;
}

/* Release a step and the results of its last try; NULL is fine. */
void zke_q_step_free(zke_q_step *s) {
  if (s) zke_results_clear(s->results, s->count);
  zke_free(s);
}

/* Was the step refused for one of the caller's operations, which follow the
 * queue's? */
static bool queue_was_callers(const zke_q_step *s) {
  return zke_recipe_refused(s->results, s->count) >= s->count - s->more;
}

/* A step that has lost its reply, for zke_retry(). */
typedef struct queue_doubt {
  zke_queue *q;
  zke_stat stat; /* of the user znode */
} queue_doubt;

/* Each step writes the user znode, so its version shows whether it was made. */
static int queue_see_user(zke *z, void *arg) {
  queue_doubt *d = arg;
  return zke_exists(z, d->q->user, NULL, NULL, &d->stat);
}

/* After a lost reply, find out whether the step was made (Q3), though the
 * deadline may have passed. */
static int queue_find_out(zke_queue *q, zke_q_step *s) {
  zke *z = q->r.z;
  queue_doubt d = {.q = q};
  zke_sentence kept;
  zke_recipe_keep(&kept);
  int rc = zke_retry(z, queue_see_user, &d, ZKE_FOREVER);
  if (rc != ZKE_OK) {
    int64_t limit = zke_recipe_allow(z);
    rc = zke_retry(z, queue_see_user, &d, ZKE_FOREVER);
    zke_limit(z, limit);
  }
  s->zxid = d.stat.mzxid;
  if (rc == ZKE_OK && d.stat.version != q->changes) return ZKE_OK;
  if (rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE) return rc;
  zke_recipe_restore(&kept, zke_recipe_told(ZKE_IN_DOUBT));
  return rc == ZKE_OK ? ZKE_NOT_MADE : ZKE_Q_UNSURE;
}

/* Send the step once. */
static int queue_try_step(zke_queue *q, zke_q_step *s) {
  zke_results_clear(s->results, s->count);
  int rc = zke_recipe_multi(q->r.z, s->ops, s->count, s->results);
  if (rc != ZKE_OK && queue_was_callers(s)) {
    s->code = rc;
    return ZKE_SQL;
  }
  s->zxid = s->results[ZKE_Q_OP_USER].stat.mzxid;
  if (zke_recipe_is_lost(rc)) rc = queue_find_out(q, s);
  if (rc == ZKE_OK) q->changes = zke_recipe_next_version(q->changes);
  return rc;
}

/* The same with the directory that it needs.  If that is missing, the same
 * transaction makes it: an empty container may be removed at any time.
 * ZKE_Q_AGAIN: somebody else has made it in between. */
static int queue_try_with_needs(zke_queue *q, zke_q_step *s) {
  zke_op *needed = &s->ops[ZKE_Q_OP_FIRST];
  const zke_op_result *result = &s->results[ZKE_Q_OP_FIRST];
  if (s->needs) zke_op_check(needed, s->needs, -1);
  int rc = queue_try_step(q, s);
  if (!s->needs || result->rc != ZKE_NONODE) return rc;
  zke_op_create(needed, s->needs, "", 0, ZKE_OPEN_ACL, ZKE_CONTAINER);
  rc = queue_try_step(q, s);
  return result->rc == ZKE_NODEEXISTS ? ZKE_Q_AGAIN : rc;
}

/* The object's knowledge of the queue is out of date: read it again, or make
 * it.  ZKE_Q_AGAIN: that was done. */
static int queue_look_anew(zke_queue *q) {
  q->placed = false;
  int rc = zke_q_ready(q);
  return rc == ZKE_OK ? ZKE_Q_AGAIN : rc;
}

/* The user znode has another version if a step was made but this could not be
 * seen, or if somebody has written to it.  Then that version is read, and the
 * znode stays: the items that the object holds name it (zke_queue_ops()). */
int zke_q_change(zke_queue *q, zke_q_step *s) {
  if (!q->placed) return queue_look_anew(q);
  zke_op_set(&s->ops[ZKE_Q_OP_USER], q->user, NULL, -1, q->changes);
  zke_op_check(&s->ops[ZKE_Q_OP_PLACE], q->r.path, q->version);
  int rc = queue_try_with_needs(q, s);
  if (rc == ZKE_OK || rc == ZKE_INVALIDSTATE) return rc;
  for (int i = ZKE_Q_OP_USER; i <= ZKE_Q_OP_PLACE; i++) {
    if (zke_recipe_faster(s->results[i].rc) == ZKE_LOOK_AGAIN)
      return queue_look_anew(q);
  }
  return rc;
}

/* Does the code of one of the operations of a failed step say that something
 * has changed since it was read? */
bool zke_q_has_changed(const zke_q_step *s, int from, int to) {
  for (int i = from; i < to; i++)
    if (zke_recipe_faster(s->results[i].rc) == ZKE_LOOK_AGAIN) return true;
  return false;
}

/* Was another one faster?  One of so many operations, from ZKE_Q_OP_FIRST on,
 * says so. */
bool zke_q_was_late(const zke_q_step *s, int count) {
  return zke_q_has_changed(s, ZKE_Q_OP_FIRST, ZKE_Q_OP_FIRST + count);
}

/* Record where the operations end; returns how many are the step's own. */
int zke_q_step_end(zke_q_step *s, const zke_op *end) {
  s->count = (int)(end - s->ops);
  return s->count - ZKE_Q_OP_FIRST;
}

/* ---- the caller's operations ---- */

/* Refuse an impossible number of operations. */
int zke_q_check_more(const zke_q_more *m) {
  if (m->count >= 0 && m->count < INT32_MAX / 256 && (m->ops || !m->count))
    return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "%d operations%s", m->count,
                         m->count > 0 && !m->ops ? ", but ops is NULL" : "");
}

/* Set the results to zero; they stay so if nothing is tried. */
void zke_q_clear_more(const zke_q_more *m) {
  for (int i = 0; m->results && i < m->count; i++)
    m->results[i] = (zke_op_result){0};
}

/* Add them after the queue's operations, which end the step so far. */
void zke_q_add_more(zke_q_step *s, const zke_q_more *m) {
  zke_op *op = &s->ops[s->count];
  if (m->count) memcpy(op, m->ops, (size_t)m->count * sizeof *op);
  s->more = m->count;
  zke_q_step_end(s, op + m->count);
}

/* Hand out their results; they are the last of the step. */
void zke_q_give_more(zke_q_more *m, zke_q_step *s) {
  zke_op_result *own = &s->results[s->count - m->count];
  m->code = s->code;
  if (!m->results || !m->count) return;
  memcpy(m->results, own, (size_t)m->count * sizeof *own);
  memset(own, 0, (size_t)m->count * sizeof *own);
}
