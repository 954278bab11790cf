/* queue.c - see queue.h
 *
 * What holds, and why:
 *
 *   Q1  Each claim raises the item's version.  So whatever was decided at some
 *       version is still true if that version is still there, and nobody can
 *       take, bury or acknowledge an item that somebody else has claimed since.
 *   Q2  Each put writes the data of "entries": that wakes the takers, and its
 *       version lets only one put at a time rely on the room it has seen.  All
 *       else only makes room.
 *   Q3  Each change writes the object's user znode at the version known: after
 *       a lost reply that version tells whether the change was made.
 *   Q4  Each change checks the version of the queue's own znode, so that it
 *       knows the limit and the attempts that were written there last.
 *   Q5  All directories are containers.  The object's user znode stands in a
 *       directory of "entries", before the object looks at anything that it
 *       decides about, until it is freed.  So by Q3 a change is made in the
 *       same "entries" that was looked at, which gives no number twice: no
 *       decision about an item holds for a later one of its name.  "taken" and
 *       "dead" may go at any time, when they have been empty for a while; one
 *       that is missing is empty, and is made again by the step that needs it.
 *   Q6  A container that never had a child is never removed.  So each is made
 *       in one step with all that is missing above it, and with a child of the
 *       last one that goes in the same step.
 *
 * Functions call those above them only. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object.h"
#include "text.h"
#include "znode.h"

#define QUEUE_PLACE "queue"
#define QUEUE_SETTINGS "limit %d\nattempts %d\n"
#define QUEUE_LINE "line"

/* Positive results, never given to the user. */
enum { QUEUE_NOTHING = 1, QUEUE_AGAIN = 2, QUEUE_BUSY = 3, QUEUE_WHOLE = 4 };

enum {
  QUEUE_PRIORITY = 100,   /* as in kazoo */
  QUEUE_PAGE = 8,         /* names read at a time, beside those claimed */
  QUEUE_CLOCK_MS = 10000, /* longest sleep for a delayed item, since somebody
                             may set the wall clock */
  QUEUE_PATIENCE_MS = 1000,
  QUEUE_TRIES = 3,  /* of a look that must agree */
  QUEUE_TEXT = 96,  /* bytes of the queue's own data, at most */
  QUEUE_BATCH = 256 /* znodes that are deleted in one step */
};

/* The latest time an item's name can bear: 13 digits, the year 2286. */
#define QUEUE_DUE_MOST INT64_C(9999999999999)

/* What one's name says of an item. */
typedef struct queue_name {
  const char *name;
  int priority;
  int32_t number;
  int64_t due_ms;
} queue_name;

/* Some of the items of one kind, in their order. */
typedef struct queue_page {
  const char *kind; /* "entry-" or "later-" */
  zke_strings *names;
  queue_name *order;
  int at, count; /* those before at were passed over */
  bool last;     /* nothing of the kind stands behind it */
} queue_page;

/* A one-shot watch that is registered. */
typedef struct queue_watch {
  struct queue_watch *next;
  int type; /* ZKE_WATCH_DATA or _CHILD */
  char path[];
} queue_watch;

/* A claim that this object holds. */
typedef struct queue_claim {
  struct queue_claim *next;
  int64_t token; /* its czxid */
  bool suspect;  /* its znode was deleted, perhaps */
  char path[];
} queue_claim;

enum queue_state { WAIT_NO, WAIT_YES, WAIT_READY };

/* Waiting for an item, or for room. */
typedef struct queue_wait {
  zke_queue *q;
  const char *kind; /* of its place in the line */
  int event;        /* for the listener */
  enum queue_state state;
  bool blocking; /* in a call; else for the listener */
  char *znode;   /* its place in the line, or NULL */
  int need;      /* putting: so many items */
  int64_t due;   /* taking: look again, ms of zke_now() */
  int64_t until; /* blocking: sleeps at most until then */
  queue_watch *watches;
} queue_wait;

struct zke_queue {
  zke_recipe r;
  zke_queue_options o;
  char *entries, *taken, *dead, *line, *stays; /* paths */
  bool placed;         /* queue and user znode exist, as far as is known */
  int limit, attempts; /* of the queue */
  int32_t version;     /* of its znode, which said so (Q4) */
  char *user;          /* path of the user znode, or NULL */
  int32_t changes;     /* its version (Q3) */
  queue_claim *claims;
  queue_wait taking, putting;
  /* the first items as of the last look, and all claims */
  queue_page entry, later;
  zke_strings *claimed;
  int64_t due; /* of the earliest that was found not due; or ZKE_FOREVER */
};

/* ---- small things ---- */

/* When a wall time comes, in ms of zke_now(); in steps, see QUEUE_CLOCK_MS. */
static int64_t queue_when(zke *z, int64_t due_ms, int64_t most) {
  if (due_ms == ZKE_FOREVER) return ZKE_FOREVER;
  int64_t left = due_ms - zke_wall(z);
  left = left < 0 ? 0 : left > most ? most : left;
  return zke_now(z) + left;
}

/* How long a recoverable error is retried: a try without time to wait is to
 * survive a lost reply too. */
static int64_t queue_patience(zke *z, int64_t deadline_ms) {
  int64_t least = zke_now(z) + QUEUE_PATIENCE_MS;
  return deadline_ms > least ? deadline_ms : least;
}

static const char *queue_base(const char *path) {
  return strrchr(path, '/') + 1;
}

/* Delete one's own znode, now or later; NULL afterwards. */
static int queue_remove(zke_queue *q, char **path) {
  if (!*path) return ZKE_OK;
  int rc = zke_recipe_discard(q->r.z, *path, ZKE_EPHEMERAL, 0);
  zke_free(*path);
  *path = NULL;
  return rc;
}

/* ---- names ---- */

/* Digits, perhaps behind a minus, up to an end character, which is skipped. */
static bool queue_digits(const char **at, size_t least, char end,
                         int64_t *out) {
  const char *digits = *at + (**at == '-');
  size_t count = strspn(digits, "0123456789");
  if (count < least || count > 18 || digits[count] != end) return false;
  *out = strtoll(*at, NULL, 10);
  *at = digits + count + 1;
  return true;
}

/* "entry-100-0000000000" or "later-100-1790000000000-0000000000"; anything
 * else is not an item. */
static bool queue_parse(const char *name, queue_name *out) {
  bool later = strncmp(name, "later-", 6) == 0;
  int64_t priority, due = 0, number;
  if (!later && strncmp(name, "entry-", 6) != 0) return false;
  const char *at = name + 6;
  if (!queue_digits(&at, 3, '-', &priority)) return false;
  if (later && !queue_digits(&at, 13, '-', &due)) return false;
  if (!queue_digits(&at, 10, '\0', &number)) return false;
  if (priority < 0 || priority > 999) return false;
  if (due < 0 || due > QUEUE_DUE_MOST) return false;
  if (number < INT32_MIN || number > INT32_MAX) return false;
  *out = (queue_name){name, (int)priority, (int32_t)number, due};
  return true;
}

/* By priority, then by time, then by number, which may wrap around.  Those of
 * one kind whose numbers have not wrapped around are sorted so by their names'
 * bytes, too. */
static int queue_compare(const void *a, const void *b) {
  const queue_name *x = a, *y = b;
  int32_t by = (int32_t)((uint32_t)x->number - (uint32_t)y->number);
  if (x->priority != y->priority) return x->priority < y->priority ? -1 : 1;
  if (x->due_ms != y->due_ms) return x->due_ms < y->due_ms ? -1 : 1;
  return by < 0 ? -1 : by > 0 ? 1 : strcmp(x->name, y->name);
}

/* The items among names, in order: how many, or -1 without memory.
 *
 *   out  one block */
static int queue_sort(zke *z, const zke_strings *names, queue_name **out) {
  queue_name *order = zke_alloc(z, ((size_t)names->count + 1) * sizeof *order);
  int count = 0;
  if (!order) return -1;
  for (int i = 0; i < names->count; i++)
    count += queue_parse(names->data[i], &order[count]);
  qsort(order, (size_t)count, sizeof *order, queue_compare);
  *out = order;
  return count;
}

/* ---- the place ---- */

/* The number behind a word at a line's beginning, or 0. */
static int queue_setting(const char *data, const char *word) {
  const char *at = data ? strstr(data, word) : NULL;
  long value = at ? strtol(at + strlen(word), NULL, 10) : 0;
  return value > 0 && value <= INT32_MAX ? (int)value : 0;
}

static int queue_differs(const zke_queue *q, const char *what, int has,
                         int asked) {
  return zke_recipe_fail(ZKE_BADARGUMENTS, "the queue %s has %s %d, not %d",
                         q->r.path, what, has, asked);
}

/* The data of the queue's znode, into text: its length. */
static int queue_place_text(int limit, int attempts, char text[QUEUE_TEXT]) {
  bool named = limit || attempts;
  return snprintf(text, QUEUE_TEXT,
                  named ? "zkembed " QUEUE_PLACE "\n" QUEUE_SETTINGS
                        : "zkembed " QUEUE_PLACE "\n",
                  limit, attempts);
}

/* The same of a queue that this object makes. */
static int queue_new_text(const zke_queue *q, char text[QUEUE_TEXT]) {
  int attempts = q->o.attempts ? q->o.attempts : q->o.new_attempts;
  return queue_place_text(q->o.limit, attempts, text);
}

/* Read limit and attempts, and compare them with the object's own, which count
 * where nobody has named any.
 *
 *   news_out  out: that is so
 *
 * QUEUE_NOTHING: there is no queue.  QUEUE_AGAIN: one without its data. */
static int queue_read_settings(zke_queue *q, bool *news_out,
                               zke_stat *stat_out) {
  char *data = NULL;
  int rc = zke_get(q->r.z, q->r.path, NULL, NULL, &data, NULL, stat_out);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? QUEUE_NOTHING : rc;
  bool bare = !data || !*data;
  int limit = queue_setting(data, "\nlimit ");
  int attempts = queue_setting(data, "\nattempts ");
  zke_free(data);
  if (bare) return QUEUE_AGAIN;
  if (q->o.limit && limit && limit != q->o.limit)
    return queue_differs(q, "limit", limit, q->o.limit);
  if (q->o.attempts && attempts && attempts != q->o.attempts)
    return queue_differs(q, "attempts", attempts, q->o.attempts);
  *news_out = (q->o.limit && !limit) || (q->o.attempts && !attempts);
  q->limit = q->o.limit ? q->o.limit : limit;
  q->attempts = q->o.attempts ? q->o.attempts : attempts;
  return ZKE_OK;
}

/* Know what the queue says of itself, and write down what nobody has named
 * before.  QUEUE_AGAIN: it has gone, or was changed meanwhile. */
static int queue_agree(zke *z, void *arg) {
  zke_queue *q = arg;
  char text[QUEUE_TEXT];
  zke_stat stat;
  bool news = false;
  int rc = queue_read_settings(q, &news, &stat);
  if (rc == ZKE_OK && news) {
    int len = queue_place_text(q->limit, q->attempts, text);
    rc = zke_set(z, q->r.path, text, len, stat.version, &stat);
    if (rc == ZKE_BADVERSION) rc = QUEUE_AGAIN;
  }
  if (rc == ZKE_OK) q->version = stat.version;
  return rc == QUEUE_NOTHING ? QUEUE_AGAIN : rc;
}

/* See that the path, where there is anything, is a queue's. */
static int queue_see_kind(zke_queue *q, int64_t deadline_ms) {
  zke *z = q->r.z;
  char text[QUEUE_TEXT];
  int rc = zke_exists(z, q->r.path, NULL, NULL, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  queue_new_text(q, text);
  return zke_recipe_place(z, q->r.path, QUEUE_PLACE, ZKE_CONTAINER,
                          strchr(text, '\n') + 1, deadline_ms);
}

/* A directory that is to be made. */
typedef struct queue_making {
  zke_queue *q;
  char *path;  /* of the directory; ends at each of its levels in turn */
  char *child; /* that makes it a used one (Q6) */
  zke_op *ops;
  char **paths; /* of the ops */
  int count;
} queue_making;

/* Add what is missing of a path, from above. */
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

static int queue_make_all(queue_making *m) {
  char text[QUEUE_TEXT];
  int len = queue_new_text(m->q, text);
  int rc = queue_add_missing(m, text, len);
  if (rc != ZKE_OK || !m->count) return rc;
  zke_op_create(&m->ops[m->count], m->child, "", 0, ZKE_OPEN_ACL,
                ZKE_PERSISTENT);
  zke_op_delete(&m->ops[m->count + 1], m->child, -1);
  rc = zke_recipe_multi(m->q->r.z, m->ops, m->count + 2, NULL);
  return rc == ZKE_NODEEXISTS || rc == ZKE_NONODE ? QUEUE_AGAIN : rc;
}

static int queue_levels(const char *path) {
  int levels = 0;
  for (; *path; path++) levels += *path == '/';
  return levels;
}

typedef struct queue_directory {
  zke_queue *q;
  const char *path;
} queue_directory;

/* Make what is missing of a directory's path (Q6).  After a lost reply nothing
 * is missing. */
static int queue_try_make(zke *z, void *arg) {
  const queue_directory *d = arg;
  int rc = zke_exists(z, d->path, NULL, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  size_t levels = (size_t)queue_levels(d->path) + 2;
  queue_making m = {.q = d->q,
                    .path = zke_recipe_copy(z, d->path, strlen(d->path)),
                    .child = zke_recipe_path(z, d->path, "made"),
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

static int queue_make(zke_queue *q, const char *path, int64_t deadline_ms) {
  queue_directory d = {q, path};
  return zke_retry(q->r.z, queue_try_make, &d, deadline_ms);
}

/* Have a user znode, as the file has it (Q3, Q5). */
static int queue_need_user(zke_queue *q, int64_t deadline_ms) {
  zke_stat stat;
  zke *z = q->r.z;
  int rc = q->user ? zke_exists(z, q->user, NULL, NULL, &stat) : ZKE_NONODE;
  if (rc == ZKE_NONODE) {
    zke_free(q->user);
    q->user = NULL;
    rc = zke_recipe_create(z, q->line, QUEUE_PLACE, "user-", "", 0,
                           ZKE_EPHEMERAL_SEQUENTIAL, deadline_ms, &q->user,
                           &stat);
  }
  if (rc == ZKE_OK) q->changes = stat.version;
  return rc;
}

/* One try of queue_ready().  QUEUE_AGAIN: something has gone meanwhile. */
static int queue_try_ready(zke_queue *q, int64_t deadline_ms) {
  int rc = queue_see_kind(q, deadline_ms);
  if (rc == ZKE_OK) rc = queue_make(q, q->line, deadline_ms);
  if (rc == ZKE_OK) rc = queue_need_user(q, deadline_ms);
  if (rc == ZKE_OK) rc = zke_retry(q->r.z, queue_agree, q, deadline_ms);
  if (rc == ZKE_OK && (q->o.limit || q->o.attempts))
    rc = zke_ensure_path(q->r.z, q->stays, ZKE_PERSISTENT, deadline_ms);
  return rc;
}

/* Make the queue where it is missing, stand in it as a user, and know what it
 * says of itself.  One that is made has its settings from the beginning: nobody
 * sees it without.  One that somebody has named settings for stays: it has a
 * child that is no container. */
static int queue_ready(zke_queue *q, int64_t deadline_ms) {
  int rc;
  if (q->placed) return ZKE_OK;
  deadline_ms = queue_patience(q->r.z, deadline_ms);
  do {
    rc = queue_try_ready(q, deadline_ms);
  } while (rc == QUEUE_AGAIN);
  q->placed = rc == ZKE_OK;
  return rc;
}

/* For looking only: as queue_ready(), but nothing is made.  Where there is no
 * queue it is empty. */
static int queue_know(zke_queue *q) {
  zke_stat stat;
  bool news;
  if (q->placed) return ZKE_OK;
  int rc = queue_see_kind(q, queue_patience(q->r.z, 0));
  if (rc == ZKE_OK) rc = queue_read_settings(q, &news, &stat);
  return rc > 0 ? ZKE_OK : rc;
}

/* ---- the first items ----
 *
 * What a take costs does not depend on how many items there are: of "entries"
 * only the first names are read, those that are not due by themselves, and
 * "taken".  Nothing is kept from one look to the next, so that an item that
 * was released, or has a lower priority, is the next one. */

static void queue_drop_page(queue_page *p) {
  zke_free(p->names);
  zke_free(p->order);
  p->names = NULL;
  p->order = NULL;
  p->at = p->count = 0;
  p->last = true;
}

/* Keep the names of a reading.
 *
 *   most  so many were asked for; 0: all
 *
 * QUEUE_WHOLE: numbers have wrapped around, and only the whole list can be
 * sorted. */
static int queue_keep_page(zke_queue *q, queue_page *p, zke_op_result *read,
                           int most) {
  queue_drop_page(p);
  if (read->rc == ZKE_NONODE) { /* somebody has removed the queue: empty */
    q->placed = false;
    return ZKE_OK;
  }
  if (read->rc != ZKE_OK)
    return zke_recipe_fail(read->rc, "cannot read %s", q->entries);
  p->names = read->children;
  read->children = NULL;
  p->last = !most || p->names->count < most;
  int all = queue_sort(q->r.z, p->names, &p->order);
  if (all < 0) return ZKE_NOMEM;
  for (int i = 0; i < all; i++) {
    if (strncmp(p->order[i].name, p->kind, strlen(p->kind)) != 0)
      p->last = true; /* those of the other kind stand behind it */
    else
      p->order[p->count++] = p->order[i];
    if (p->order[i].number < 0 && most) return QUEUE_WHOLE;
  }
  return ZKE_OK;
}

static int queue_page_size(const zke_queue *q, int wraps) {
  int claimed = q->claimed ? q->claimed->count : 0;
  return wraps == QUEUE_WHOLE ? 0 : QUEUE_PAGE + claimed;
}

/* Go on behind a name. */
static int queue_read_page(zke_queue *q, queue_page *p, const char *after) {
  int rc = ZKE_OK;
  do {
    zke_op op;
    zke_op_result r = {0};
    int most = queue_page_size(q, rc);
    zke_op_children_after(&op, q->entries, after, most);
    rc = zke_recipe_multi_read(q->r.z, &op, 1, &r);
    if (rc == ZKE_OK) rc = queue_keep_page(q, p, &r, most);
    zke_results_clear(&r, 1);
  } while (rc == QUEUE_WHOLE);
  return rc;
}

/* Keep the names of "taken"; missing, it is empty. */
static int queue_keep_claims(zke_queue *q, zke_op_result *read) {
  if (read->rc != ZKE_OK && read->rc != ZKE_NONODE)
    return zke_recipe_fail(read->rc, "cannot read %s", q->taken);
  zke_free(q->claimed);
  q->claimed = read->children;
  read->children = NULL;
  if (!q->claimed) q->claimed = zke_alloc(q->r.z, sizeof *q->claimed);
  return q->claimed ? ZKE_OK : ZKE_NOMEM;
}

static int queue_try_look(zke_queue *q, int most) {
  zke_op ops[3];
  zke_op_result r[3];
  memset(r, 0, sizeof r);
  q->due = ZKE_FOREVER;
  zke_op_children_after(&ops[0], q->entries, q->entry.kind, most);
  zke_op_children_after(&ops[1], q->entries, q->later.kind, most);
  zke_op_children(&ops[2], q->taken);
  int rc = zke_recipe_multi_read(q->r.z, ops, 3, r);
  if (rc == ZKE_OK) rc = queue_keep_claims(q, &r[2]);
  if (rc == ZKE_OK) rc = queue_keep_page(q, &q->entry, &r[0], most);
  if (rc == ZKE_OK) rc = queue_keep_page(q, &q->later, &r[1], most);
  zke_results_clear(r, 3);
  return rc;
}

/* Know the first items and the claims of now, of one snapshot. */
static int queue_look(zke_queue *q) {
  int rc = queue_try_look(q, queue_page_size(q, ZKE_OK));
  return rc == QUEUE_WHOLE ? queue_try_look(q, 0) : rc;
}

static int queue_compare_text(const void *key, const void *at) {
  return strcmp(key, *(char *const *)at);
}

/* The list may be empty, and have no block then. */
static bool queue_is_claimed(const zke_queue *q, const char *name) {
  if (!q->claimed->count) return false;
  return bsearch(name, q->claimed->data, (size_t)q->claimed->count,
                 sizeof *q->claimed->data, queue_compare_text) != NULL;
}

/* Behind those not passed over, the first that is not claimed; QUEUE_NOTHING:
 * there is none. */
static int queue_find(zke_queue *q, queue_page *p, queue_name *out) {
  for (;;) {
    for (; p->at < p->count; p->at++) {
      *out = p->order[p->at];
      if (!queue_is_claimed(q, out->name)) return ZKE_OK;
    }
    if (p->last) return QUEUE_NOTHING;
    char *after = p->names->data[p->names->count - 1];
    zke_strings *names = p->names; /* it has the name */
    p->names = NULL;
    int rc = queue_read_page(q, p, after);
    zke_free(names);
    if (rc != ZKE_OK) return rc;
  }
}

/* The same of those that were delayed, among priorities up to most.  In each
 * the earliest comes first: if it is not due, none is.
 *
 *   passing  those that are due count as passed over */
static int queue_find_due(zke_queue *q, int most, bool passing,
                          queue_name *out) {
  int64_t now = zke_wall(q->r.z);
  char after[40];
  for (;;) {
    int rc = queue_find(q, &q->later, out);
    if (rc != ZKE_OK) return rc;
    if (out->priority > most) return QUEUE_NOTHING;
    bool due = out->due_ms <= now;
    if (due && !passing) return ZKE_OK;
    if (!due && out->due_ms < q->due) q->due = out->due_ms;
    snprintf(after, sizeof after, "later-%03d-%013" PRId64 "~", out->priority,
             due ? now : QUEUE_DUE_MOST);
    rc = queue_read_page(q, &q->later, after);
    if (rc != ZKE_OK) return rc;
  }
}

/* ---- changes ---- */

/* The operations of one step: the first two belong to queue_change(). */
enum { OP_USER, OP_PLACE, OP_FIRST };

typedef struct queue_step {
  const char *needs; /* a directory that it creates in and that may be missing,
                        for which its first own operation is; or NULL */
  int count;
  bool unsure;  /* it has failed, but may have been made */
  int64_t zxid; /* of the step when it was made: all that it changed has it */
  zke_op *ops;
  zke_op_result *results;
} queue_step;

static queue_step *queue_step_new(zke *z, int more) {
  size_t count = (size_t)OP_FIRST + (size_t)more;
  queue_step *s =
      zke_alloc(z, sizeof *s + count * (sizeof *s->ops + sizeof *s->results));
  if (!s) return NULL;
  s->count = (int)count;
  s->results = (zke_op_result *)(void *)(s + 1);
  s->ops = (zke_op *)(void *)(s->results + count);
  return s;
}

static void queue_step_free(queue_step *s) {
  if (s) zke_results_clear(s->results, s->count);
  zke_free(s);
}

typedef struct queue_try {
  zke_queue *q;
  queue_step *step;
  int64_t deadline_ms;
  bool unsure; /* the last try may have made it */
} queue_try;

/* One try.  An unknown outcome is looked into whatever the deadline; a busy
 * database is waited for until then. */
static int queue_try_change(zke *z, void *arg) {
  queue_try *t = arg;
  zke_stat stat;
  if (t->unsure) {
    int rc = zke_exists(z, t->q->user, NULL, NULL, &stat);
    if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_CONNECTIONLOSS : rc;
    t->step->zxid = stat.mzxid;
    if (stat.version != t->q->changes) return ZKE_OK;
    t->unsure = false;
  }
  zke_results_clear(t->step->results, t->step->count);
  int rc = zke_recipe_multi(z, t->step->ops, t->step->count, t->step->results);
  t->unsure = rc == ZKE_CONNECTIONLOSS;
  if (rc == ZKE_OK) t->step->zxid = t->step->results[OP_USER].stat.mzxid;
  bool late = rc == ZKE_OPERATIONTIMEOUT && zke_now(z) >= t->deadline_ms;
  return late ? QUEUE_BUSY : rc;
}

static int queue_try_step(zke_queue *q, queue_step *s, int64_t deadline_ms) {
  queue_try t = {q, s, queue_patience(q->r.z, deadline_ms), false};
  zke_op_set(&s->ops[OP_USER], q->user, NULL, -1, q->changes);
  zke_op_check(&s->ops[OP_PLACE], q->r.path, q->version);
  int rc = zke_retry(q->r.z, queue_try_change, &t, ZKE_FOREVER);
  s->unsure = rc != ZKE_OK && t.unsure;
  if (rc == ZKE_OK) q->changes++;
  return rc == QUEUE_BUSY ? ZKE_OPERATIONTIMEOUT : rc;
}

/* Look at the queue anew.  QUEUE_AGAIN: that was done. */
static int queue_look_anew(zke_queue *q, int64_t deadline_ms) {
  q->placed = false;
  int rc = queue_ready(q, deadline_ms);
  return rc == ZKE_OK ? QUEUE_AGAIN : rc;
}

/* Try a step, which makes the directory that it needs, where that is missing:
 * in the same step, since it is removed again when it is empty. */
static int queue_try_with_needs(zke_queue *q, queue_step *s,
                                int64_t deadline_ms) {
  bool make = false;
  for (;;) {
    if (make)
      zke_op_create(&s->ops[OP_FIRST], s->needs, "", 0, ZKE_OPEN_ACL,
                    ZKE_CONTAINER);
    else if (s->needs)
      zke_op_check(&s->ops[OP_FIRST], s->needs, -1);
    int rc = queue_try_step(q, s, deadline_ms);
    bool other = s->needs && s->results[OP_FIRST].rc ==
                                 (make ? ZKE_NODEEXISTS : ZKE_NONODE);
    if (rc == ZKE_OK || !other) return rc;
    make = !make;
  }
}

/* Make a step, of an object that is placed.  QUEUE_AGAIN: what it was made for
 * may not be so any more, look again: the queue's settings have changed, or it
 * was removed, or somebody has touched the user znode. */
static int queue_change(zke_queue *q, queue_step *s, int64_t deadline_ms) {
  if (!q->placed) return queue_look_anew(q, deadline_ms);
  int rc = queue_try_with_needs(q, s, deadline_ms);
  if (rc == ZKE_OK || rc == ZKE_INVALIDSTATE) return rc;
  int user = s->results[OP_USER].rc, place = s->results[OP_PLACE].rc;
  if (user < 0) {
    rc = user == ZKE_NONODE ? ZKE_OK : queue_remove(q, &q->user);
    return rc == ZKE_OK ? queue_look_anew(q, deadline_ms) : rc;
  }
  if (place == ZKE_BADVERSION || place == ZKE_NONODE)
    return queue_look_anew(q, deadline_ms);
  return rc;
}

/* Did another one come first?  An operation from OP_FIRST on says so. */
static bool queue_was_late(const queue_step *s, int op) {
  int rc = s->results[OP_FIRST + op].rc;
  return rc == ZKE_NONODE || rc == ZKE_BADVERSION || rc == ZKE_NODEEXISTS;
}

/* ---- one item ---- */

static char *queue_text(char **at, const char *a, const char *b) {
  char *text = *at;
  *at += sprintf(text, "%s%s%s", a, *b ? "/" : "", b) + 1;
  return text;
}

/* An item as read, in one block. */
static zke_queue_item *queue_item_new(zke_queue *q, const queue_name *n,
                                      const zke_op_result *read) {
  size_t name = strlen(n->name) + 2;
  size_t data = read->data ? (size_t)read->len + 1 : 0;
  const char *user = q->user ? q->user : "";
  size_t paths = strlen(q->entries) + strlen(q->taken) + 2 * name;
  paths += strlen(user) + 1;
  zke_queue_item *item = zke_alloc(q->r.z, sizeof *item + data + name + paths);
  if (!item) return NULL;
  char *at = (char *)(item + 1);
  if (read->data) {
    item->data = memcpy(at, read->data, (size_t)read->len);
    at += data;
  }
  item->name = queue_text(&at, n->name, "");
  item->entry_path = queue_text(&at, q->entries, n->name);
  item->claim_path = queue_text(&at, q->taken, n->name);
  item->user_path = queue_text(&at, user, "");
  item->len = read->len;
  item->priority = n->priority;
  item->attempts = item->version = read->stat.version;
  item->zxid = read->stat.czxid;
  item->put_ms = read->stat.ctime;
  item->due_ms = n->due_ms;
  return item;
}

/* The item and its claim in one snapshot; QUEUE_AGAIN where it is gone, or
 * claimed. */
static int queue_fetch(zke_queue *q, const queue_name *n,
                       zke_queue_item **item_out) {
  zke_op ops[2];
  zke_op_result r[2];
  char *entry = zke_recipe_path(q->r.z, q->entries, n->name);
  char *claim = zke_recipe_path(q->r.z, q->taken, n->name);
  int rc = entry && claim ? ZKE_OK : ZKE_NOMEM;
  memset(r, 0, sizeof r);
  if (rc == ZKE_OK) {
    zke_op_get(&ops[0], entry);
    zke_op_get(&ops[1], claim);
    rc = zke_recipe_multi_read(q->r.z, ops, 2, r);
  }
  if (rc == ZKE_OK && (r[0].rc == ZKE_NONODE || r[1].rc != ZKE_NONODE))
    rc = QUEUE_AGAIN;
  if (rc == ZKE_OK && r[0].rc != ZKE_OK)
    rc = zke_recipe_fail(r[0].rc, "cannot read %s", entry);
  if (rc == ZKE_OK) {
    *item_out = queue_item_new(q, n, &r[0]);
    rc = *item_out ? ZKE_OK : ZKE_NOMEM;
  }
  zke_results_clear(r, 2);
  zke_free(entry);
  zke_free(claim);
  return rc;
}

static bool queue_is_exhausted(const zke_queue *q, const zke_queue_item *item) {
  return q->attempts > 0 && item->version >= q->attempts;
}

/* ---- dead letters ----
 *
 * A letter has its item's name, and its data.  How it died stands in a child,
 * "death": lines of a word and what it says, so that the data is what the
 * producer gave. */

/* Of a child that may be missing, or have other bytes: what the line with the
 * word says, or "".  queue_split_death() has ended each line with a NUL. */
static const char *queue_death(const zke_op_result *read, const char *word) {
  size_t len = strlen(word);
  if (read->rc != ZKE_OK || !read->data) return "";
  const char *at = read->data, *end = at + read->len;
  for (; at < end; at += strlen(at) + 1)
    if (strncmp(at, word, len) == 0) return at + len;
  return "";
}

static void queue_split_death(zke_op_result *read) {
  for (int i = 0; read->data && i < read->len; i++)
    if (read->data[i] == '\n') read->data[i] = '\0';
}

static void queue_make_line(char *text) {
  for (; *text; text++)
    if (*text == '\n') *text = ' ';
}

/* What the child says.
 *
 *   reason  of the consumer that gives it back, which is this session; NULL:
 *           the last consumer has gone, and who that was is not known
 *   out     one block */
static int queue_death_text(zke_queue *q, const zke_queue_item *item,
                            const char *reason, char **out) {
  zke_session_list *own = NULL;
  zke *z = q->r.z;
  int rc = reason ? zke_session(z, zke_session_id(z), &own) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  bool known = own && own->count > 0;
  const char *who = known ? own->data[0].identity : "";
  if (!reason) reason = "its consumer ended without an answer";
  size_t size = strlen(who) + strlen(reason) + 100;
  char *text = zke_alloc(z, size);
  if (text) {
    int at = snprintf(text, size, "consumer %s", who);
    queue_make_line(text);
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

/* The step of a burial.
 *
 *   name   of the letter
 *   death  what its child says, or NULL: without one */
static int queue_bury_step(zke_queue *q, const zke_queue_item *item,
                           bool claimed, const char *name, const char *death,
                           int64_t deadline_ms) {
  char *letter = zke_recipe_path(q->r.z, q->dead, name);
  char *child = letter ? zke_recipe_path(q->r.z, letter, "death") : NULL;
  queue_step *s = queue_step_new(q->r.z, 3 + claimed + (death != NULL));
  int rc = child && s ? ZKE_OK : ZKE_NOMEM;
  if (rc == ZKE_OK) {
    zke_op *op = &s->ops[OP_FIRST + 1];
    s->needs = q->dead;
    if (claimed) zke_op_delete(op++, item->claim_path, -1);
    zke_op_delete(op++, item->entry_path, item->version);
    zke_op_create(op++, letter, item->data, item->len, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
    if (death)
      zke_op_create(op, child, death, (int)strlen(death), ZKE_OPEN_ACL,
                    ZKE_PERSISTENT);
    rc = queue_change(q, s, deadline_ms);
    if (rc < 0 && (queue_was_late(s, 1) || (claimed && queue_was_late(s, 2))))
      rc = ZKE_LOST;
  }
  queue_step_free(s);
  zke_free(child);
  zke_free(letter);
  return rc;
}

/* To the dead letters, together with one's claim where one holds it: then with
 * a reason, else NULL.  Where there is a letter of that name, since "entries"
 * was made again since or somebody makes items under names of their own, the
 * zxid names this one.  An item
 * so large that one step cannot carry more is buried without how it died,
 * rather than claimed for ever.  ZKE_LOST: the item is not as it was (Q1). */
static int queue_bury(zke_queue *q, const zke_queue_item *item,
                      const char *reason, int64_t deadline_ms) {
  char *death = NULL, other[32];
  const char *name = item->name;
  bool claimed = reason != NULL;
  int rc = queue_death_text(q, item, reason, &death);
  if (rc == ZKE_OK)
    rc = queue_bury_step(q, item, claimed, name, death, deadline_ms);
  if (rc == ZKE_NODEEXISTS) {
    snprintf(other, sizeof other, "entry-%03d-%010d", item->priority,
             (int)(item->zxid & INT32_MAX));
    name = other;
    rc = queue_bury_step(q, item, claimed, name, death, deadline_ms);
  }
  if (rc == ZKE_BADARGUMENTS || rc == ZKE_MARSHALLINGERROR)
    rc = queue_bury_step(q, item, claimed, name, NULL, deadline_ms);
  zke_free(death);
  return rc;
}

/* Of an item that was put at once and one that was delayed, of one priority:
 * the one that could be taken first goes first. */
static int queue_fetch_first(zke_queue *q, const queue_name *entry,
                             const queue_name *later,
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

/* The first item behind those passed over; *page: where it stands.
 * QUEUE_AGAIN: it has gone or was claimed since the look. */
static int queue_first(zke_queue *q, queue_page **page,
                       zke_queue_item **item_out) {
  queue_name entry, later;
  int rc = queue_find(q, &q->entry, &entry);
  if (rc < 0) return rc;
  bool ready = rc == ZKE_OK;
  rc = queue_find_due(q, ready ? entry.priority : INT32_MAX, false, &later);
  if (rc < 0) return rc;
  bool due = rc == ZKE_OK;
  if (!ready && !due) return QUEUE_NOTHING;
  if (ready && due && entry.priority == later.priority) {
    rc = queue_fetch_first(q, &entry, &later, item_out);
    *page = rc == ZKE_OK && (*item_out)->due_ms ? &q->later : &q->entry;
    return rc;
  }
  *page = due ? &q->later : &q->entry;
  return queue_fetch(q, due ? &later : &entry, item_out);
}

/* The first item that can be taken.  Exhausted ones are buried on the way, or
 * (keep) passed over. */
static int queue_pick(zke_queue *q, bool keep, int64_t deadline_ms,
                      zke_queue_item **item_out) {
  int rc = queue_look(q);
  while (rc == ZKE_OK) {
    zke_queue_item *item = NULL;
    queue_page *page;
    rc = queue_first(q, &page, &item);
    if (rc == ZKE_OK && !queue_is_exhausted(q, item)) {
      *item_out = item;
      return ZKE_OK;
    }
    if (rc == ZKE_OK && keep) {
      page->at++;
      zke_free(item);
      continue;
    }
    if (rc == ZKE_OK) rc = queue_bury(q, item, NULL, deadline_ms);
    zke_free(item);
    if (rc == ZKE_OK || rc == QUEUE_AGAIN || rc == ZKE_LOST) rc = queue_look(q);
  }
  return rc;
}

/* ---- claims ---- */

static queue_claim **queue_find_claim(zke_queue *q, const char *path,
                                      int64_t token) {
  queue_claim **at = &q->claims;
  while (*at && ((*at)->token != token || strcmp((*at)->path, path) != 0))
    at = &(*at)->next;
  return at;
}

static void queue_unlink_claim(queue_claim **at) {
  queue_claim *c = *at;
  *at = c->next;
  zke_free(c);
}

/* Is the claim's znode still that of this claim?  ZKE_LOST: no. */
static int queue_verify(zke_queue *q, const queue_claim *c) {
  zke_stat stat;
  int rc = zke_exists(q->r.z, c->path, NULL, NULL, &stat);
  if (rc == ZKE_NONODE || (rc == ZKE_OK && stat.czxid != c->token)) {
    return zke_recipe_fail(ZKE_LOST, "the claim of %s in the queue %s is gone",
                           queue_base(c->path), q->r.path);
  }
  return rc;
}

/* Delete a claim's znode, now or later. */
static int queue_discard_claim(zke_queue *q, const char *path, int64_t token) {
  return zke_recipe_discard(q->r.z, path, ZKE_EPHEMERAL, token);
}

/* Discard one of this object's claims, and forget it. */
static void queue_give_up(zke_queue *q, queue_claim **at) {
  queue_discard_claim(q, (*at)->path, (*at)->token);
  queue_unlink_claim(at);
}

/* Have a new claim watched where there is a listener; or give it up. */
static int queue_begin_claim(zke_queue *q, queue_claim **at) {
  zke_sentence kept;
  if (!q->o.listener) return ZKE_OK;
  int rc =
      zke_get(q->r.z, (*at)->path, zke_recipe_watcher, &q->r, NULL, NULL, NULL);
  if (rc == ZKE_OK) return ZKE_OK;
  zke_recipe_keep(&kept);
  queue_give_up(q, at);
  return zke_recipe_restore(&kept, rc);
}

static int queue_try_claim(zke_queue *q, zke_queue_item *item, queue_step *s,
                           int64_t deadline_ms) {
  s->needs = q->taken;
  zke_op_set(&s->ops[OP_FIRST + 1], item->entry_path, item->data, item->len,
             item->version);
  zke_op_create(&s->ops[OP_FIRST + 2], item->claim_path, "", 0, ZKE_OPEN_ACL,
                ZKE_EPHEMERAL);
  int rc = queue_change(q, s, deadline_ms);
  bool late = rc < 0 && (queue_was_late(s, 1) || queue_was_late(s, 2));
  return late ? QUEUE_AGAIN : rc;
}

/* Claim an item at the version seen (Q1).  Of a claim that may have been made,
 * and cannot be looked for, no token is known: then whatever the session has
 * there is discarded.  If that is the claim of another object on this handle,
 * its consumer finds it lost, as after any claim that somebody deletes. */
static int queue_do_claim(zke_queue *q, zke_queue_item *item,
                          int64_t deadline_ms) {
  size_t size = strlen(item->claim_path) + 1;
  queue_step *s = queue_step_new(q->r.z, 3);
  queue_claim *c = zke_alloc(q->r.z, sizeof *c + size);
  int rc = s && c ? queue_try_claim(q, item, s, deadline_ms) : ZKE_NOMEM;
  if (rc == ZKE_OK) {
    memcpy(c->path, item->claim_path, size);
    c->next = q->claims;
    c->token = item->token = s->zxid;
    q->claims = c;
    rc = queue_begin_claim(q, &q->claims);
    item->attempts = ++item->version;
  } else {
    zke_sentence kept;
    zke_recipe_keep(&kept);
    if (s && s->unsure) queue_discard_claim(q, item->claim_path, 0);
    zke_recipe_restore(&kept, rc);
    zke_free(c);
  }
  queue_step_free(s);
  return rc;
}

/* Take an item at the version seen (Q1). */
static int queue_do_take(zke_queue *q, zke_queue_item *item,
                         int64_t deadline_ms) {
  queue_step *s = queue_step_new(q->r.z, 1);
  if (!s) return ZKE_NOMEM;
  zke_op_delete(&s->ops[OP_FIRST], item->entry_path, item->version);
  int rc = queue_change(q, s, deadline_ms);
  if (rc < 0 && queue_was_late(s, 0)) rc = QUEUE_AGAIN;
  queue_step_free(s);
  item->attempts++;
  return rc;
}

/* Take or claim, if there is anything: else QUEUE_NOTHING. */
static int queue_take_now(zke_queue *q, bool claim, int64_t deadline_ms,
                          zke_queue_item **item_out) {
  int rc = queue_ready(q, deadline_ms);
  if (rc != ZKE_OK) return rc;
  for (;;) {
    zke_queue_item *item = NULL;
    rc = queue_pick(q, false, deadline_ms, &item);
    if (rc != ZKE_OK) return rc;
    rc = claim ? queue_do_claim(q, item, deadline_ms)
               : queue_do_take(q, item, deadline_ms);
    if (rc == ZKE_OK) {
      *item_out = item;
      return ZKE_OK;
    }
    zke_free(item);
    if (rc != QUEUE_AGAIN) return rc;
  }
}

/* ---- putting ---- */

/* What is put in one step. */
typedef struct queue_load {
  const zke_queue_value *values;
  int count;
  int priority, mode;
  int64_t due_ms;
  const char *letter; /* path of the dead letter it was, or NULL */
  const char *death;  /* path of its child, or NULL */
} queue_load;

/* How many items there are, what others made in "entries" left out. */
static int queue_valid_items(zke_queue *q, int *count) {
  zke_strings *names = NULL;
  queue_name parsed;
  int rc = zke_children(q->r.z, q->entries, NULL, NULL, &names, NULL);
  *count = 0;
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < names->count; i++)
    *count += queue_parse(names->data[i], &parsed);
  zke_free(names);
  return ZKE_OK;
}

/* Is there room for so many?  QUEUE_NOTHING: no; QUEUE_AGAIN: the queue was
 * removed.  *version: as long as
 * "entries" has it, nothing was put since (Q2); -1 without a limit. */
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
    if (count > q->limit - need) rc = queue_valid_items(q, &count);
  }
  if (rc == ZKE_NONODE) {
    q->placed = false;
    return QUEUE_AGAIN;
  }
  return rc != ZKE_OK ? rc : count > q->limit - need ? QUEUE_NOTHING : ZKE_OK;
}

/* "entries/entry-100-" or "entries/later-100-<due>-" */
static char *queue_prefix(zke_queue *q, const queue_load *load) {
  size_t size = strlen(q->entries) + 48;
  char *path = zke_alloc(q->r.z, size);
  if (path && load->due_ms) {
    snprintf(path, size, "%s/later-%03d-%013" PRId64 "-", q->entries,
             load->priority, load->due_ms);
  } else if (path) {
    snprintf(path, size, "%s/entry-%03d-", q->entries, load->priority);
  }
  return path;
}

static int queue_try_put(zke_queue *q, const queue_load *load, queue_step *s,
                         const char *prefix, int64_t deadline_ms) {
  int32_t version;
  int rc = queue_ready(q, deadline_ms);
  if (rc == ZKE_OK) rc = queue_room(q, load->count, &version);
  if (rc != ZKE_OK) return rc;
  zke_op *op = &s->ops[OP_FIRST];
  zke_op_set(op++, q->entries, NULL, -1, version);
  if (load->death) zke_op_delete(op++, load->death, -1);
  if (load->letter) zke_op_delete(op++, load->letter, -1);
  for (int i = 0; i < load->count; i++) {
    zke_op_create(op++, prefix, load->values[i].data, load->values[i].len,
                  ZKE_OPEN_ACL, load->mode);
  }
  rc = queue_change(q, s, deadline_ms);
  if (rc < 0 && s->results[OP_FIRST].rc == ZKE_BADVERSION) rc = QUEUE_AGAIN;
  return rc;
}

/* Put, if there is room: else QUEUE_NOTHING. */
static int queue_put_now(zke_queue *q, const queue_load *load,
                         int64_t deadline_ms) {
  int rc = queue_ready(q, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (q->limit && load->count > q->limit) {
    return zke_recipe_fail(ZKE_LIMIT,
                           "%d items at once, the queue %s has limit %d",
                           load->count, q->r.path, q->limit);
  }
  queue_step *s = queue_step_new(
      q->r.z, load->count + 1 + (load->letter != NULL) + (load->death != NULL));
  char *prefix = queue_prefix(q, load);
  rc = s && prefix ? QUEUE_AGAIN : ZKE_NOMEM;
  while (rc == QUEUE_AGAIN) rc = queue_try_put(q, load, s, prefix, deadline_ms);
  queue_step_free(s);
  zke_free(prefix);
  return rc;
}

/* ---- waiting ---- */

static void queue_drop_watches(queue_wait *w, int type, const char *path) {
  for (queue_watch **at = &w->watches; *at;) {
    queue_watch *x = *at;
    bool gone = !path || ((x->type & type) && strcmp(x->path, path) == 0);
    if (gone) {
      *at = x->next;
      zke_free(x);
    } else {
      at = &x->next;
    }
  }
}

static bool queue_is_watched(const queue_wait *w, int type, const char *path) {
  const queue_watch *x = w->watches;
  while (x && (x->type != type || strcmp(x->path, path) != 0)) x = x->next;
  return x != NULL;
}

/* Watch directory/name (name may be NULL) unless that is done already. */
static int queue_watch_node(queue_wait *w, int type, const char *directory,
                            const char *name) {
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
    rc = zke_children(q->r.z, x->path, zke_recipe_watcher, &q->r, NULL, NULL);
  } else if (!known) {
    rc = zke_get(q->r.z, x->path, zke_recipe_watcher, &q->r, NULL, NULL, NULL);
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
static bool queue_needs_watch(zke_queue *q, const queue_wait *w,
                              const queue_watch *x) {
  const queue_wait *other = w == &q->taking ? &q->putting : &q->taking;
  if (queue_is_watched(other, x->type, x->path)) return true;
  const queue_claim *c = q->o.listener ? q->claims : NULL;
  while (c && strcmp(c->path, x->path) != 0) c = c->next;
  return c != NULL;
}

/* Out of the line, without a watch: later puts are to wake others only. */
static int queue_leave(queue_wait *w) {
  zke_queue *q = w->q;
  w->state = WAIT_NO;
  w->blocking = false;
  for (queue_watch *x = w->watches; x; x = x->next) {
    if (!queue_needs_watch(q, w, x)) {
      zke_remove_watch(q->r.z, x->path, x->type, zke_recipe_watcher, &q->r);
    }
  }
  queue_drop_watches(w, 0, NULL);
  return queue_remove(q, &w->znode);
}

/* Take a place in the line, if there is none yet. */
static int queue_join(queue_wait *w) {
  zke_queue *q = w->q;
  if (w->znode) return ZKE_OK;
  return zke_recipe_create(q->r.z, q->line, QUEUE_PLACE, w->kind, "", 0,
                           ZKE_EPHEMERAL_SEQUENTIAL, ZKE_FOREVER, &w->znode,
                           NULL);
}

/* Is one's own place there still?  It tells others that somebody waits, and
 * decides nothing. */
static int queue_see_place(queue_wait *w) {
  if (w->znode) {
    int rc = zke_exists(w->q->r.z, w->znode, NULL, NULL, NULL);
    if (rc != ZKE_NONODE) return rc;
    zke_free(w->znode); /* somebody has deleted it, or all of the queue */
    w->znode = NULL;
    w->q->placed = false;
    return QUEUE_AGAIN;
  }
  return queue_join(w);
}

/* Watch "entries" for what it waits for. */
static int queue_watch_entries(queue_wait *w) {
  zke_queue *q = w->q;
  int type = w == &q->taking ? ZKE_WATCH_DATA : ZKE_WATCH_CHILD;
  int rc = queue_watch_node(w, type, q->entries, NULL);
  if (rc != ZKE_NONODE) return rc;
  q->placed = false;
  return QUEUE_AGAIN;
}

/* Is there an item to take?  If not, watch for a put and for the end of each
 * claim, by the kernel where its owner dies. */
static int queue_look_for_item(queue_wait *w) {
  zke_queue *q = w->q;
  queue_name n;
  int rc = queue_watch_entries(w);
  if (rc == ZKE_OK) rc = queue_look(q);
  if (rc == ZKE_OK) rc = queue_find(q, &q->entry, &n);
  if (rc == QUEUE_NOTHING) rc = queue_find_due(q, INT32_MAX, false, &n);
  if (rc == ZKE_OK) w->state = WAIT_READY;
  if (rc != QUEUE_NOTHING) return rc;
  w->due = queue_when(q->r.z, q->due, QUEUE_CLOCK_MS);
  rc = ZKE_OK;
  for (int i = 0; i < q->claimed->count && rc == ZKE_OK; i++) {
    const char *name = q->claimed->data[i];
    if (queue_parse(name, &n))
      rc = queue_watch_node(w, ZKE_WATCH_DATA, q->taken, name);
  }
  return rc == ZKE_NONODE ? QUEUE_AGAIN : rc;
}

static int queue_look_for_room(queue_wait *w) {
  zke_queue *q = w->q;
  int32_t version;
  int rc = queue_watch_entries(w);
  if (rc == ZKE_OK) rc = queue_room(q, w->need, &version);
  if (rc == ZKE_OK) w->state = WAIT_READY;
  return rc == QUEUE_NOTHING ? ZKE_OK : rc;
}

/* Look again; tell the listener if that was what it waits for. */
static int queue_look_again(queue_wait *w) {
  zke_queue *q = w->q;
  int rc;
  do {
    rc = queue_ready(q, 0);
    if (rc == ZKE_OK) rc = queue_see_place(w);
    if (rc == ZKE_OK)
      rc = w == &q->taking ? queue_look_for_item(w) : queue_look_for_room(w);
  } while (rc == QUEUE_AGAIN);
  if (rc != ZKE_OK || w->state != WAIT_READY || w->blocking) return rc;
  if (!zke_recipe_tell(&q->r, w->event, 0, "", 0)) {
    w->state = WAIT_YES;
    return ZKE_NOMEM;
  }
  return ZKE_OK; /* it stays in the line until it has tried */
}

static int queue_retry_look(zke *z, void *arg) {
  (void)z;
  return queue_look_again(arg);
}

/* Also when something is due earlier than was known on going to sleep. */
static int queue_done(const queue_wait *w) {
  return w->state == WAIT_READY || w->due < w->until ? ZKE_OK : 1;
}

static int queue_taking_done(zke_recipe *r) {
  return queue_done(&((zke_queue *)r)->taking);
}

static int queue_putting_done(zke_recipe *r) {
  return queue_done(&((zke_queue *)r)->putting);
}

/* Begin to wait, in this call or for the listener. */
static int queue_begin(queue_wait *w, bool blocking, int need) {
  zke_queue *q = w->q;
  if (w->state != WAIT_NO) {
    return zke_recipe_fail(
        ZKE_MISUSE, "this object waits for the queue %s already", q->r.path);
  }
  w->state = WAIT_YES;
  w->blocking = blocking;
  w->need = need;
  w->due = ZKE_FOREVER;
  return ZKE_OK;
}

/* Wait on until a try is worth while.  QUEUE_NOTHING: the deadline came. */
static int queue_wait_on(queue_wait *w, int64_t deadline_ms) {
  zke_queue *q = w->q;
  for (;;) {
    w->state = WAIT_YES;
    w->due = ZKE_FOREVER;
    int rc = zke_retry(q->r.z, queue_retry_look, w,
                       queue_patience(q->r.z, deadline_ms));
    if (rc != ZKE_OK || w->state == WAIT_READY) return rc;
    w->until = w->due < deadline_ms ? w->due : deadline_ms;
    rc = zke_recipe_await(
        &q->r, w == &q->taking ? queue_taking_done : queue_putting_done,
        w->until);
    if (rc == ZKE_OK && w->state == WAIT_READY) return ZKE_OK;
    if (rc != ZKE_OK && rc != ZKE_OPERATIONTIMEOUT) return rc;
    if (zke_now(q->r.z) >= deadline_ms) return QUEUE_NOTHING;
  }
}

/* After QUEUE_NOTHING: wait, beginning with the first time. */
static int queue_wait_for(queue_wait *w, bool *waiting, int need,
                          int64_t deadline_ms) {
  if (zke_now(w->q->r.z) >= deadline_ms) return QUEUE_NOTHING;
  int rc = *waiting ? ZKE_OK : queue_begin(w, true, need);
  if (rc != ZKE_OK) return rc;
  *waiting = true;
  return queue_wait_on(w, deadline_ms);
}

/* Does this thread run the object's listener? */
static bool queue_is_telling(const zke_queue *q) {
  return q->r.telling && pthread_equal(q->r.teller, pthread_self());
}

static int queue_retry_watch(zke *z, void *arg) {
  (void)z;
  return queue_watch_entries(arg);
}

/* The listener was told, and a try has been made: it ends the waiting if it
 * succeeded, and waits on in its place whatever else came of it: what could not
 * be taken or put for the moment can be so later.  Then the listener is told at
 * once if there still is something.  Not after a failure inside the listener,
 * which would be told again and again inside one zke_dispatch() as long as,
 * say, the disk is full: it is told of the next change, or by
 * zke_queue_step(). */
static int queue_tried(queue_wait *w, int rc) {
  zke_queue *q = w->q;
  zke_sentence kept;
  if (w->blocking || w->state == WAIT_NO) return rc;
  zke_recipe_keep(&kept);
  if (rc == ZKE_OK) {
    queue_leave(w);
  } else {
    bool quietly = rc != QUEUE_NOTHING && queue_is_telling(q);
    w->state = WAIT_YES;
    if (zke_retry(q->r.z, quietly ? queue_retry_watch : queue_retry_look, w,
                  queue_patience(q->r.z, 0)) != ZKE_OK)
      q->r.changed = true;
  }
  return zke_recipe_restore(&kept, rc);
}

/* After the last: the line is left even where that takes long. */
static int queue_wait_end(queue_wait *w, bool waiting, int rc) {
  zke_sentence kept;
  if (!waiting) return rc;
  zke_recipe_keep(&kept);
  queue_leave(w); /* if it fails, the znode goes with the object */
  return zke_recipe_restore(&kept, rc);
}

/* ---- the object ---- */

static void queue_event(zke_recipe *r, int type, const char *path) {
  zke_queue *q = (zke_queue *)r;
  bool all = type == ZKE_EVENT_OVERFLOW;
  int types = type == ZKE_EVENT_CHILD     ? ZKE_WATCH_CHILD
              : type == ZKE_EVENT_CHANGED ? ZKE_WATCH_DATA
                                          : ZKE_WATCH_ANY;
  queue_drop_watches(&q->taking, types, all ? NULL : path);
  queue_drop_watches(&q->putting, types, all ? NULL : path);
  for (queue_claim *c = q->claims; c; c = c->next)
    if (all || strcmp(c->path, path) == 0) c->suspect = true;
}

/* Tell of a claim that it is lost, and forget it. */
static bool queue_lose(zke_queue *q, queue_claim **at) {
  const char *name = queue_base((*at)->path);
  if (!zke_recipe_tell(&q->r, ZKE_QUEUE_LOST, (*at)->token, name,
                       (int)strlen(name)))
    return false;
  queue_unlink_claim(at);
  return true;
}

/* Look after claims whose watch has fired. */
static int queue_see_claims(zke_queue *q) {
  for (queue_claim **at = &q->claims; *at;) {
    queue_claim *c = *at;
    zke_stat stat;
    int rc = c->suspect ? zke_get(q->r.z, c->path, zke_recipe_watcher, &q->r,
                                  NULL, NULL, &stat)
                        : ZKE_OK;
    if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
    if (rc == ZKE_NONODE || (c->suspect && stat.czxid != c->token)) {
      if (!queue_lose(q, at)) return ZKE_NOMEM;
      continue;
    }
    c->suspect = false;
    at = &c->next;
  }
  return ZKE_OK;
}

static int queue_step_all(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  int rc = q->o.listener ? queue_see_claims(q) : ZKE_OK;
  if (rc == ZKE_OK && q->taking.state == WAIT_YES)
    rc = queue_look_again(&q->taking);
  if (rc == ZKE_OK && q->putting.state == WAIT_YES)
    rc = queue_look_again(&q->putting);
  return rc;
}

static void queue_wait_ended(queue_wait *w) {
  queue_drop_watches(w, 0, NULL);
  zke_free(w->znode);
  w->znode = NULL;
  if (!w->blocking) w->state = WAIT_NO;
}

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

static void queue_deliver(zke_recipe *r, int event, int64_t number,
                          const char *text, int len) {
  zke_queue *q = (zke_queue *)r;
  (void)len;
  bool ended = event == ZKE_QUEUE_LOST && !number; /* a claim has a token */
  if (q->o.listener)
    q->o.listener(q, event, number, ended ? NULL : text, q->o.context);
}

static void queue_quit(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  queue_leave(&q->taking);
  queue_leave(&q->putting);
  while (q->claims) queue_give_up(q, &q->claims);
  queue_remove(q, &q->user);
}

static void queue_destroy(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  while (q->claims) queue_unlink_claim(&q->claims);
  queue_wait_ended(&q->taking);
  queue_wait_ended(&q->putting);
  queue_drop_page(&q->entry);
  queue_drop_page(&q->later);
  zke_free(q->claimed);
  zke_free(q->user);
  zke_free(q->entries);
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

int zke_queue_new(zke *z, const char *path, const zke_queue_options *options,
                  zke_queue **queue_out) {
  zke_queue_options o;
  zke_recipe *r = NULL;
  if (!queue_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "queue_out is NULL");
  *queue_out = NULL;
  int rc = zke_take_options(options, &o, sizeof o, "zke_queue_options");
  if (rc != ZKE_OK) return rc;
  if (o.limit < 0 || o.attempts < 0 || o.new_attempts < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "limit %d, attempts %d, new_attempts %d", o.limit,
                           o.attempts, o.new_attempts);
  if (o.reserved_int)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "reserved_int %d", o.reserved_int);
  rc = zke_recipe_new(z, path, &queue_class, sizeof(zke_queue), &r);
  if (rc != ZKE_OK) return rc;
  zke_queue *q = (zke_queue *)r;
  q->o = o;
  q->entry = (queue_page){.kind = "entry-", .last = true};
  q->later = (queue_page){.kind = "later-", .last = true};
  q->taking = (queue_wait){.q = q, .kind = "take-", .event = ZKE_QUEUE_ITEM};
  q->putting = (queue_wait){.q = q, .kind = "put-", .event = ZKE_QUEUE_ROOM};
  q->entries = zke_recipe_path(z, path, "entries");
  q->taken = zke_recipe_path(z, path, "taken");
  q->dead = zke_recipe_path(z, path, "dead");
  q->stays = zke_recipe_path(z, path, "stays");
  if (q->entries) q->line = zke_recipe_path(z, q->entries, QUEUE_LINE);
  if (q->line && q->taken && q->dead && q->stays) {
    *queue_out = q;
    return ZKE_OK;
  }
  zke_recipe_free(r);
  return ZKE_NOMEM;
}

void zke_queue_free(zke_queue *queue) { zke_recipe_free((zke_recipe *)queue); }

int zke_queue_cancel(zke_queue *queue) {
  return zke_recipe_cancel((zke_recipe *)queue);
}

/* ---- in ---- */

/* Put, and wait for room as long as may be. */
static int queue_put(zke_queue *q, const queue_load *load,
                     int64_t deadline_ms) {
  bool waiting = false;
  int rc;
  do {
    rc = queue_tried(&q->putting, queue_put_now(q, load, deadline_ms));
    if (rc != QUEUE_NOTHING) break;
    rc = queue_wait_for(&q->putting, &waiting, load->count, deadline_ms);
  } while (rc == ZKE_OK);
  rc = queue_wait_end(&q->putting, waiting, rc);
  if (rc == QUEUE_NOTHING)
    rc = zke_recipe_fail(ZKE_LIMIT,
                         "the queue %s is full: its limit is %d items",
                         q->r.path, q->limit);
  return rc;
}

static int queue_load_options(const zke_queue_put_options *given,
                              queue_load *load) {
  zke_queue_put_options o;
  int rc = zke_take_options(given, &o, sizeof o, "zke_queue_put_options");
  if (rc != ZKE_OK) return rc;
  if (o.priority < 0 || o.priority > 999 || o.due_ms < 0 ||
      o.due_ms > QUEUE_DUE_MOST) {
    return zke_recipe_fail(ZKE_BADARGUMENTS, "priority %d, due_ms %" PRId64,
                           o.priority, o.due_ms);
  }
  load->priority = o.priority ? o.priority : QUEUE_PRIORITY;
  load->mode =
      o.ephemeral ? ZKE_EPHEMERAL_SEQUENTIAL : ZKE_PERSISTENT_SEQUENTIAL;
  load->due_ms = o.due_ms;
  return ZKE_OK;
}

int zke_queue_put_all(zke_queue *queue, const zke_queue_value *values,
                      int count, const zke_queue_put_options *options,
                      int64_t deadline_ms) {
  queue_load load = {.values = values, .count = count};
  if (count < 0 || count >= INT32_MAX / 256 || (count && !values))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items", count);
  int rc = queue_load_options(options, &load);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_enter_by((zke_recipe *)queue, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (count) rc = queue_put(queue, &load, deadline_ms);
  return zke_recipe_leave(&queue->r, rc);
}

int zke_queue_put(zke_queue *queue, const void *data, int len,
                  const zke_queue_put_options *options, int64_t deadline_ms) {
  zke_queue_value value = {data, len};
  return zke_queue_put_all(queue, &value, 1, options, deadline_ms);
}

/* ---- out ---- */

/* The first claim of an item, or NULL. */
static const char *queue_first_claim(const zke_queue *q) {
  queue_name parsed;
  for (int i = 0; q->claimed && i < q->claimed->count; i++)
    if (queue_parse(q->claimed->data[i], &parsed)) return q->claimed->data[i];
  return NULL;
}

/* Why there was nothing to take. */
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
static int queue_take(zke_queue *q, bool claim, int64_t deadline_ms,
                      zke_queue_item **item_out) {
  bool waiting = false;
  int rc;
  do {
    rc = queue_take_now(q, claim, deadline_ms, item_out);
    rc = queue_tried(&q->taking, rc);
    if (rc != QUEUE_NOTHING) break;
    rc = queue_wait_for(&q->taking, &waiting, 0, deadline_ms);
  } while (rc == ZKE_OK);
  rc = queue_wait_end(&q->taking, waiting, rc);
  return rc == QUEUE_NOTHING ? queue_say_nothing(q) : rc;
}

static int queue_take_entered(zke_queue *queue, bool claim, int64_t deadline_ms,
                              zke_queue_item **item_out) {
  zke_queue_item *item = NULL;
  if (!item_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "item_out is NULL");
  *item_out = NULL;
  int rc = zke_recipe_enter_by((zke_recipe *)queue, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = queue_take(queue, claim, deadline_ms, &item);
  if (rc == ZKE_OK) *item_out = item;
  return zke_recipe_leave(&queue->r, rc);
}

int zke_queue_take(zke_queue *queue, int64_t deadline_ms,
                   zke_queue_item **item_out) {
  return queue_take_entered(queue, false, deadline_ms, item_out);
}

int zke_queue_claim(zke_queue *queue, int64_t deadline_ms,
                    zke_queue_item **item_out) {
  return queue_take_entered(queue, true, deadline_ms, item_out);
}

/* ---- the end of a claim ---- */

int zke_queue_ops(const zke_queue_item *item, zke_op ops[ZKE_QUEUE_OPS]) {
  if (!item || !ops || !item->token)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "no item, no claim or no ops");
  zke_op_check(&ops[0], item->claim_path, -1);
  zke_op_check(&ops[1], item->entry_path, item->version);
  zke_op_check(&ops[2], item->user_path, -1); /* Q5 */
  return ZKE_OK;
}

/* The claim was found gone: forget it, and its znode where only the item has
 * gone (an ephemeral one, with its producer). */
static int queue_lost(zke_queue *q, queue_claim **at,
                      const zke_queue_item *item) {
  queue_give_up(q, at);
  return zke_recipe_fail(ZKE_LOST, "%s of the queue %s is no longer claimed",
                         item->name, q->r.path);
}

/* Make the step that ends a claim, as often as is needed.  Where it is to be
 * made again the claim may have gone meanwhile, and its name be that of another
 * one's (Q5): so it is looked for by its token.  ZKE_LOST: it is gone. */
static int queue_end_claim(zke_queue *q, const queue_claim *c, queue_step *s) {
  int rc = queue_change(q, s, ZKE_FOREVER);
  while (rc == QUEUE_AGAIN) {
    rc = queue_verify(q, c);
    if (rc == ZKE_OK) rc = queue_change(q, s, ZKE_FOREVER);
  }
  return rc < 0 && (queue_was_late(s, 0) || queue_was_late(s, 1)) ? ZKE_LOST
                                                                  : rc;
}

/* Delete claim and item, and do what the caller wants with it. */
static int queue_ack(zke_queue *q, const queue_claim *c,
                     const zke_queue_item *item, queue_step *s,
                     const zke_op *ops, int count) {
  zke_op_delete(&s->ops[OP_FIRST], item->claim_path, -1);
  zke_op_delete(&s->ops[OP_FIRST + 1], item->entry_path, item->version);
  if (count) memcpy(&s->ops[OP_FIRST + 2], ops, (size_t)count * sizeof *ops);
  return queue_end_claim(q, c, s);
}

/* Enter with a claim of this object's: *at. */
static int queue_enter_claim(zke_queue *q, const zke_queue_item *item,
                             queue_claim ***at) {
  if (!item) return zke_recipe_fail(ZKE_BADARGUMENTS, "the item is NULL");
  int rc = zke_recipe_enter((zke_recipe *)q);
  if (rc != ZKE_OK) return rc;
  *at = queue_find_claim(q, item->claim_path, item->token);
  if (**at) return ZKE_OK;
  rc = zke_recipe_fail(ZKE_LOST,
                       "%s of the queue %s is not claimed by this object",
                       item->name, q->r.path);
  zke_recipe_leave(&q->r, rc);
  return rc;
}

/* Hand out the results of the caller's own operations. */
static void queue_give_results(queue_step *s, zke_op_result *results) {
  size_t count = (size_t)s->count - OP_FIRST - 2;
  zke_op_result *own = &s->results[OP_FIRST + 2];
  if (!results || !count) return;
  memcpy(results, own, count * sizeof *own);
  memset(own, 0, count * sizeof *own);
}

int zke_queue_ack(zke_queue *queue, const zke_queue_item *item,
                  const zke_op *ops, int count, zke_op_result *results) {
  queue_claim **at;
  if (count < 0 || count >= INT32_MAX / 256 || (count && !ops))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d operations", count);
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  queue_step *s = queue_step_new(queue->r.z, 2 + count);
  rc = s ? queue_ack(queue, *at, item, s, ops, count) : ZKE_NOMEM;
  if (rc == ZKE_OK)
    queue_unlink_claim(at);
  else if (rc == ZKE_LOST)
    rc = queue_lost(queue, at, item);
  if (s && rc != ZKE_LOST) queue_give_results(s, results);
  queue_step_free(s);
  return zke_recipe_leave(&queue->r, rc);
}

/* Give the claim back, or bury the item after the last attempt.  ZKE_LOST: it
 * was not held. */
static int queue_give_back(zke_queue *q, const queue_claim *c,
                           const zke_queue_item *item, const char *reason) {
  int rc = QUEUE_AGAIN;
  if (queue_is_exhausted(q, item)) {
    while (rc == QUEUE_AGAIN) {
      rc = queue_bury(q, item, reason, ZKE_FOREVER);
      if (rc == QUEUE_AGAIN && queue_verify(q, c) == ZKE_LOST) rc = ZKE_LOST;
    }
    return rc;
  }
  queue_step *s = queue_step_new(q->r.z, 2);
  if (!s) return ZKE_NOMEM;
  zke_op_delete(&s->ops[OP_FIRST], item->claim_path, -1);
  zke_op_check(&s->ops[OP_FIRST + 1], item->entry_path, item->version);
  rc = queue_end_claim(q, c, s);
  queue_step_free(s);
  return rc;
}

/* It could not be written that the item is given back: the claim goes all the
 * same, now or as soon as it can be deleted.  Returns rc. */
static int queue_not_given_back(zke_queue *q, queue_claim **at, int rc) {
  zke_sentence kept;
  zke_recipe_keep(&kept);
  queue_give_up(q, at);
  return zke_recipe_restore(&kept, rc);
}

int zke_queue_fail(zke_queue *queue, const zke_queue_item *item,
                   const char *reason) {
  queue_claim **at;
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  if (!reason) reason = "it was given back";
  rc = queue_give_back(queue, *at, item, reason);
  if (rc == ZKE_OK)
    queue_unlink_claim(at);
  else if (rc == ZKE_LOST)
    rc = queue_lost(queue, at, item);
  else
    rc = queue_not_given_back(queue, at, rc);
  return zke_recipe_leave(&queue->r, rc);
}

int zke_queue_release(zke_queue *queue, const zke_queue_item *item) {
  return zke_queue_fail(queue, item, NULL);
}

int zke_queue_check(zke_queue *queue, const zke_queue_item *item) {
  queue_claim **at;
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, queue_verify(queue, *at));
}

/* ---- without blocking ---- */

static queue_wait *queue_waiting(zke_queue *q, int event) {
  return event == ZKE_QUEUE_ITEM   ? &q->taking
         : event == ZKE_QUEUE_ROOM ? &q->putting
                                   : NULL;
}

static int queue_start(zke_queue *q, queue_wait *w) {
  zke_sentence kept;
  if (!q->o.listener)
    return zke_recipe_fail(ZKE_MISUSE, "the queue %s has no listener",
                           q->r.path);
  int rc = queue_ready(q, ZKE_FOREVER);
  if (rc == ZKE_OK && (w->state == WAIT_NO || w->blocking))
    rc = queue_begin(w, false, 1);
  if (rc != ZKE_OK) return rc;
  rc = zke_retry(q->r.z, queue_retry_look, w, ZKE_FOREVER);
  zke_recipe_keep(&kept);
  if (rc != ZKE_OK) queue_leave(w);
  return zke_recipe_restore(&kept, rc);
}

int zke_queue_start(zke_queue *queue, int event) {
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  queue_wait *w = queue_waiting(queue, event);
  rc = w ? queue_start(queue, w)
         : zke_recipe_fail(ZKE_BADARGUMENTS, "event %d", event);
  return zke_recipe_leave(&queue->r, rc);
}

int zke_queue_step(zke_queue *queue) {
  return zke_recipe_step((zke_recipe *)queue);
}

int zke_queue_stop(zke_queue *queue, int event) {
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  queue_wait *w = queue_waiting(queue, event);
  if (!w)
    rc = zke_recipe_fail(ZKE_BADARGUMENTS, "event %d", event);
  else if (w->blocking)
    rc = zke_recipe_fail(ZKE_MISUSE,
                         "another thread waits; see zke_queue_cancel()");
  else
    rc = queue_leave(w);
  return zke_recipe_leave(&queue->r, rc);
}

int zke_queue_due(zke_queue *queue, int64_t *deadline_out) {
  queue_name n;
  if (!deadline_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "deadline_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = queue_know(queue);
  if (rc == ZKE_OK) rc = queue_look(queue);
  if (rc == ZKE_OK) rc = queue_find_due(queue, INT32_MAX, true, &n);
  if (rc == QUEUE_NOTHING) {
    rc = ZKE_OK;
    *deadline_out = queue_when(queue->r.z, queue->due, INT64_MAX / 4);
  }
  return zke_recipe_leave(&queue->r, rc);
}

/* ---- looking ---- */

int zke_queue_peek(zke_queue *queue, zke_queue_item **item_out) {
  zke_queue_item *item = NULL;
  if (!item_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "item_out is NULL");
  *item_out = NULL;
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = queue_know(queue);
  if (rc == ZKE_OK) rc = queue_pick(queue, true, ZKE_FOREVER, &item);
  if (rc == ZKE_OK) *item_out = item;
  if (rc == QUEUE_NOTHING)
    rc = zke_recipe_fail(ZKE_NONODE, "nothing to take from the queue %s",
                         queue->r.path);
  return zke_recipe_leave(&queue->r, rc);
}

/* How many of a kind stand in the line. */
static int queue_count_line(zke_queue *q, const char *kind, int *count) {
  zke_entries *line = NULL;
  int rc =
      zke_recipe_entries(q->r.z, q->line, &kind, 1, NULL, NULL, &line, NULL);
  if (rc == ZKE_OK) *count = line->count;
  zke_free(line);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

static int queue_count_dead(zke_queue *q, int *count) {
  zke_strings *names = NULL;
  queue_name parsed;
  int rc = zke_children(q->r.z, q->dead, NULL, NULL, &names, NULL);
  for (int i = 0; rc == ZKE_OK && i < names->count; i++)
    *count += queue_parse(names->data[i], &parsed);
  zke_free(names);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* All items, in their order. */
typedef struct queue_all {
  zke_strings *names;
  queue_name *order;
  int count;
  int32_t cversion; /* of "entries" */
} queue_all;

static void queue_all_free(queue_all *all) {
  zke_free(all->names);
  zke_free(all->order);
}

/* Keep all items of a directory; missing, it is empty. */
static int queue_keep_all(zke_queue *q, const char *directory,
                          zke_op_result *read, queue_all *all) {
  if (read->rc != ZKE_OK && read->rc != ZKE_NONODE)
    return zke_recipe_fail(read->rc, "cannot read %s", directory);
  if (read->rc == ZKE_NONODE) return ZKE_OK;
  all->names = read->children;
  all->cversion = read->stat.cversion;
  read->children = NULL;
  all->count = queue_sort(q->r.z, all->names, &all->order);
  return all->count < 0 ? ZKE_NOMEM : ZKE_OK;
}

/* Read all items of a directory, and the claims of the same moment. */
static int queue_read_all(zke_queue *q, const char *directory, queue_all *all) {
  zke_op ops[2];
  zke_op_result r[2];
  memset(r, 0, sizeof r);
  zke_op_children(&ops[0], directory);
  zke_op_children(&ops[1], q->taken);
  int rc = zke_recipe_multi_read(q->r.z, ops, 2, r);
  if (rc == ZKE_OK) rc = queue_keep_claims(q, &r[1]);
  if (rc == ZKE_OK) rc = queue_keep_all(q, directory, &r[0], all);
  zke_results_clear(r, 2);
  return rc;
}

static void queue_count_items(const zke_queue *q, const queue_all *all,
                              zke_queue_counts *c) {
  int64_t now = zke_wall(q->r.z);
  c->items = all->count;
  for (int i = 0; i < all->count; i++) {
    if (queue_is_claimed(q, all->order[i].name))
      c->claimed++;
    else if (all->order[i].due_ms > now)
      c->delayed++;
    else
      c->ready++;
  }
}

int zke_queue_size(zke_queue *queue, zke_queue_counts *counts_out) {
  zke_queue_counts c;
  queue_all all = {0};
  memset(&c, 0, sizeof c);
  if (!counts_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "counts_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = queue_know(queue);
  if (rc == ZKE_OK) rc = queue_read_all(queue, queue->entries, &all);
  if (rc == ZKE_OK) queue_count_items(queue, &all, &c);
  queue_all_free(&all);
  c.limit = queue->limit;
  c.attempts = queue->attempts;
  if (rc == ZKE_OK) rc = queue_count_dead(queue, &c.dead);
  if (rc == ZKE_OK) rc = queue_count_line(queue, "take-", &c.takers);
  if (rc == ZKE_OK) rc = queue_count_line(queue, "put-", &c.putters);
  if (rc == ZKE_OK) *counts_out = c;
  return zke_recipe_leave(&queue->r, rc);
}

/* What a list is made of: for each item two reads in one snapshot. */
typedef struct queue_listing {
  const char *directory, *claims; /* claims NULL: of dead letters */
  const queue_name *order;
  int count;
  int32_t cversion; /* of the directory, as order was read */
  char **paths;
  zke_op *ops;
  zke_op_result *reads; /* the item's, then its claim's or death's */
  zke_session_list *who;
} queue_listing;

static int queue_listing_read(zke_queue *q, queue_listing *l) {
  zke *z = q->r.z;
  size_t count = 2 * (size_t)l->count + 1;
  l->paths = zke_alloc(z, count * sizeof *l->paths);
  l->ops = zke_alloc(z, count * sizeof *l->ops);
  l->reads = zke_alloc(z, count * sizeof *l->reads);
  if (!l->paths || !l->ops || !l->reads) return ZKE_NOMEM;
  for (int i = 0; i < 2 * l->count; i++) {
    bool child = i % 2 && !l->claims; /* how it died */
    const char *in = i % 2 ? l->claims : l->directory;
    const char *name = child ? "death" : l->order[i / 2].name;
    l->paths[i] = zke_recipe_path(z, child ? l->paths[i - 1] : in, name);
    if (!l->paths[i]) return ZKE_NOMEM;
    if (child)
      zke_op_get(&l->ops[i], l->paths[i]);
    else
      zke_op_children(&l->ops[i], l->paths[i]); /* Stat without the data */
  }
  zke_op_get(&l->ops[2 * l->count], l->directory);
  int rc = zke_recipe_multi_read(z, l->ops, (int)count, l->reads);
  for (int i = 1; !l->claims && rc == ZKE_OK && i < 2 * l->count; i += 2)
    queue_split_death(&l->reads[i]);
  return rc == ZKE_OK ? zke_sessions(z, &l->who) : rc;
}

static void queue_listing_free(queue_listing *l) {
  for (int i = 0; l->paths && i < 2 * l->count; i++) zke_free(l->paths[i]);
  if (l->reads) zke_results_clear(l->reads, 2 * l->count + 1);
  zke_free(l->paths);
  zke_free(l->ops);
  zke_free(l->reads);
  zke_free(l->who);
}

static const zke_session_info *queue_who(const queue_listing *l, int64_t id) {
  for (int i = 0; i < l->who->count; i++)
    if (l->who->data[i].id == id) return &l->who->data[i];
  return NULL;
}

/* How a letter died. */
static void queue_describe_death(const zke_op_result *death,
                                 zke_queue_entry *e) {
  e->attempts = (int)strtol(queue_death(death, "attempts "), NULL, 10);
  e->pid = strtoll(queue_death(death, "pid "), NULL, 10);
  e->identity = queue_death(death, "consumer ");
  e->reason = queue_death(death, "reason ");
}

/* One line of the list; its texts are the listing's. */
static void queue_describe(const queue_listing *l, int i, zke_queue_entry *e) {
  const zke_op_result *item = &l->reads[2 * i], *claim = item + 1;
  *e = (zke_queue_entry){.name = l->order[i].name,
                         .identity = "",
                         .reason = "",
                         .len = item->stat.dataLength,
                         .priority = l->order[i].priority,
                         .attempts = item->stat.version,
                         .zxid = item->stat.czxid,
                         .put_ms = item->stat.ctime,
                         .due_ms = l->order[i].due_ms,
                         .producer = item->stat.ephemeralOwner};
  if (!l->claims) queue_describe_death(claim, e);
  if (!l->claims || claim->rc != ZKE_OK) return;
  const zke_session_info *who = queue_who(l, claim->stat.ephemeralOwner);
  e->claimed = 1;
  e->token = claim->stat.czxid;
  e->session = claim->stat.ephemeralOwner;
  e->since_ms = claim->stat.ctime;
  if (!who) return;
  e->identity = who->identity;
  e->pid = who->pid;
}

static char *queue_copy(char **at, const char *text) {
  char *copy = *at;
  size_t size = strlen(text) + 1;
  memcpy(copy, text, size);
  *at += size;
  return copy;
}

/* By death: of a letter zxid is that. */
static int queue_compare_deaths(const void *a, const void *b) {
  const zke_queue_entry *x = a, *y = b;
  if (x->zxid != y->zxid) return x->zxid < y->zxid ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* The list as the user gets it: one block.  Letters are in order of death. */
static int queue_listing_make(zke_queue *q, const queue_listing *l,
                              zke_queue_entries **out) {
  zke_queue_entry one;
  size_t size = sizeof(zke_queue_entries);
  for (int i = 0; i < l->count; i++) {
    queue_describe(l, i, &one);
    size += sizeof one + strlen(one.name) + strlen(one.identity) +
            strlen(one.reason) + 3;
  }
  zke_queue_entries *list = zke_alloc(q->r.z, size);
  if (!list) return ZKE_NOMEM;
  zke_queue_entry *entry = (zke_queue_entry *)(void *)(list + 1);
  char *at = (char *)(entry + l->count);
  list->data = entry;
  for (int i = 0; i < l->count; i++) {
    if (l->reads[2 * i].rc != ZKE_OK) continue; /* gone meanwhile */
    queue_describe(l, i, entry);
    entry->name = queue_copy(&at, entry->name);
    entry->identity = queue_copy(&at, entry->identity);
    entry->reason = queue_copy(&at, entry->reason);
    entry++;
    list->count++;
  }
  entry = (zke_queue_entry *)(void *)(list + 1);
  if (!l->claims)
    qsort(entry, (size_t)list->count, sizeof *entry, queue_compare_deaths);
  *out = list;
  return ZKE_OK;
}

/* QUEUE_AGAIN: the names are older than the rest; the list was made. */
static int queue_listing_do(zke_queue *q, queue_listing *l,
                            zke_queue_entries **out) {
  int rc = queue_listing_read(q, l);
  if (rc == ZKE_OK) rc = queue_listing_make(q, l, out);
  if (rc == ZKE_OK && l->reads[2 * l->count].stat.cversion != l->cversion)
    rc = QUEUE_AGAIN;
  queue_listing_free(l);
  return rc;
}

static int queue_list(zke_queue *q, zke_queue_entries **out) {
  queue_all all = {0};
  int rc = queue_read_all(q, q->entries, &all);
  if (rc == ZKE_OK) {
    queue_listing l = {.directory = q->entries,
                       .claims = q->taken,
                       .order = all.order,
                       .count = all.count,
                       .cversion = all.cversion};
    rc = queue_listing_do(q, &l, out);
  }
  queue_all_free(&all);
  return rc;
}

static int queue_dead(zke_queue *q, zke_queue_entries **out) {
  queue_all all = {0};
  int rc = queue_read_all(q, q->dead, &all);
  if (rc == ZKE_OK) {
    queue_listing l = {.directory = q->dead,
                       .order = all.order,
                       .count = all.count,
                       .cversion = all.cversion};
    rc = queue_listing_do(q, &l, out);
  }
  queue_all_free(&all);
  return rc;
}

/* Make a list; where the queue does not stand still, the third will do. */
static int queue_make_list(zke_queue *q,
                           int (*make)(zke_queue *, zke_queue_entries **),
                           zke_queue_entries **entries_out) {
  if (!entries_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "entries_out is NULL");
  *entries_out = NULL;
  int rc = zke_recipe_enter((zke_recipe *)q);
  if (rc != ZKE_OK) return rc;
  rc = queue_know(q);
  if (rc == ZKE_OK) rc = QUEUE_AGAIN;
  for (int i = 0; i < QUEUE_TRIES && rc == QUEUE_AGAIN; i++) {
    zke_free(*entries_out);
    *entries_out = NULL;
    rc = make(q, entries_out);
  }
  return zke_recipe_leave(&q->r, rc == QUEUE_AGAIN ? ZKE_OK : rc);
}

int zke_queue_list(zke_queue *queue, zke_queue_entries **entries_out) {
  return queue_make_list(queue, queue_list, entries_out);
}

int zke_queue_dead(zke_queue *queue, zke_queue_entries **entries_out) {
  return queue_make_list(queue, queue_dead, entries_out);
}

/* Paths of a letter, for zke_free(), and of its child where it has one; else
 * NULL. */
static int queue_letter(zke_queue *q, const char *name, char **letter,
                        char **death) {
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

/* A dead letter is put like anything else, and deleted in the same step. */
static int queue_requeue(zke_queue *q, const queue_name *n,
                         int64_t deadline_ms) {
  zke_queue_value value = {NULL, -1};
  char *data = NULL, *letter = NULL, *death = NULL;
  int rc = queue_ready(q, deadline_ms);
  if (rc == ZKE_OK) rc = queue_letter(q, n->name, &letter, &death);
  if (rc == ZKE_OK)
    rc = zke_get(q->r.z, letter, NULL, NULL, &data, &value.len, NULL);
  value.data = data;
  queue_load load = {.values = &value,
                     .count = 1,
                     .priority = n->priority,
                     .mode = ZKE_PERSISTENT_SEQUENTIAL,
                     .letter = letter,
                     .death = death};
  if (rc == ZKE_OK) rc = queue_put(q, &load, deadline_ms);
  zke_free(data);
  zke_free(death);
  zke_free(letter);
  return rc;
}

/* What a letter's name says. */
static int queue_know_letter(const char *name, queue_name *n) {
  if (name && queue_parse(name, n)) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "%s is not a letter's name",
                         name ? name : "NULL");
}

int zke_queue_requeue(zke_queue *queue, const char *name, int64_t deadline_ms) {
  queue_name n;
  int rc = queue_know_letter(name, &n);
  if (rc == ZKE_OK) rc = zke_recipe_enter_by((zke_recipe *)queue, deadline_ms);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, queue_requeue(queue, &n, deadline_ms));
}

/* QUEUE_AGAIN as queue_change(). */
static int queue_drop(zke_queue *q, const char *name) {
  char *letter = NULL, *death = NULL;
  queue_step *s = NULL;
  int rc = queue_letter(q, name, &letter, &death);
  if (rc == ZKE_OK) {
    s = queue_step_new(q->r.z, 1 + (death != NULL));
    rc = s ? ZKE_OK : ZKE_NOMEM;
  }
  if (rc == ZKE_OK) {
    if (death) zke_op_delete(&s->ops[OP_FIRST], death, -1);
    zke_op_delete(&s->ops[OP_FIRST + (death != NULL)], letter, -1);
    rc = queue_change(q, s, ZKE_FOREVER);
  }
  queue_step_free(s);
  zke_free(death);
  zke_free(letter);
  return rc;
}

int zke_queue_drop(zke_queue *queue, const char *name) {
  queue_name n;
  int rc = queue_know_letter(name, &n);
  if (rc == ZKE_OK) rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = queue_ready(queue, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = QUEUE_AGAIN;
  while (rc == QUEUE_AGAIN) rc = queue_drop(queue, name);
  if (rc == ZKE_NONODE)
    rc = zke_recipe_fail(rc, "the queue %s has no dead letter %s",
                         queue->r.path, name);
  return zke_recipe_leave(&queue->r, rc);
}

/* ---- the end of a queue ---- */

/* A directory's children; *names_out is NULL where it is missing. */
static int queue_names(zke_queue *q, const char *directory,
                       zke_strings **names_out) {
  *names_out = NULL;
  int rc = zke_children(q->r.z, directory, NULL, NULL, names_out, NULL);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Delete up to QUEUE_BATCH children of a directory, each of which may have the
 * one child of that name (NULL: none has). */
static int queue_delete_batch(zke_queue *q, const char *directory,
                              char *const *names, int count,
                              const char *child) {
  char *paths[2 * QUEUE_BATCH];
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

/* Delete what a directory has, but for the line; see queue_delete_batch(). */
static int queue_clear(zke_queue *q, const char *directory, const char *child) {
  zke_strings *names;
  int rc = queue_names(q, directory, &names);
  int count = 0, all = rc == ZKE_OK && names ? names->count : 0;
  for (int i = 0; i < all; i++)
    if (strcmp(names->data[i], QUEUE_LINE) != 0)
      names->data[count++] = names->data[i];
  for (int i = 0; i < count && rc == ZKE_OK; i += QUEUE_BATCH) {
    int some = count - i < QUEUE_BATCH ? count - i : QUEUE_BATCH;
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

/* Add a path to what is deleted, if it is there. */
static int queue_add_path(zke_queue *q, char **paths, int *count,
                          const char *path) {
  int rc = zke_exists(q->r.z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  paths[*count] = zke_recipe_copy(q->r.z, path, strlen(path));
  return paths[(*count)++] ? ZKE_OK : ZKE_NOMEM;
}

/* What is left of a queue without items, to be deleted in one step. */
typedef struct queue_rest {
  zke_strings *line, *claims;
  char **paths;
  zke_op *ops;
  int count;
} queue_rest;

static int queue_add_names(zke_queue *q, queue_rest *l, const char *directory,
                           const zke_strings *names) {
  for (int i = 0; names && i < names->count; i++) {
    l->paths[l->count] = zke_recipe_path(q->r.z, directory, names->data[i]);
    if (!l->paths[l->count++]) return ZKE_NOMEM;
  }
  return ZKE_OK;
}

/* First what stands in the line and in "taken", then the directories from
 * below. */
static int queue_list_rest(zke_queue *q, queue_rest *l) {
  const char *directories[] = {q->line, q->entries, q->taken,
                               q->dead, q->stays,   q->r.path};
  zke *z = q->r.z;
  int rc = queue_names(q, q->line, &l->line);
  if (rc == ZKE_OK) rc = queue_names(q, q->taken, &l->claims);
  if (rc != ZKE_OK) return rc;
  size_t most = 6 + (size_t)(l->line ? l->line->count : 0) +
                (size_t)(l->claims ? l->claims->count : 0);
  l->paths = zke_alloc(z, most * sizeof *l->paths);
  l->ops = zke_alloc(z, most * sizeof *l->ops);
  if (!l->paths || !l->ops) return ZKE_NOMEM;
  rc = queue_add_names(q, l, q->line, l->line);
  if (rc == ZKE_OK) rc = queue_add_names(q, l, q->taken, l->claims);
  for (int i = 0; i < 6 && rc == ZKE_OK; i++)
    rc = queue_add_path(q, l->paths, &l->count, directories[i]);
  for (int i = 0; i < l->count && rc == ZKE_OK; i++)
    zke_op_delete(&l->ops[i], l->paths[i], -1);
  return rc;
}

/* Delete all that is left in one step: so no object is a user of half a queue
 * (Q5), and no claim goes where its item stays.  QUEUE_AGAIN: something came or
 * went meanwhile. */
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
  return rc == ZKE_NONODE || rc == ZKE_NOTEMPTY ? QUEUE_AGAIN : rc;
}

typedef struct queue_end {
  zke_queue *q;
  bool only_empty;
} queue_end;

static int queue_try_destroy(zke *z, void *arg) {
  const queue_end *e = arg;
  zke_queue *q = e->q;
  (void)z;
  int rc = e->only_empty ? queue_see_empty(q) : ZKE_OK;
  if (rc == ZKE_OK && !e->only_empty) rc = queue_clear(q, q->entries, NULL);
  if (rc == ZKE_OK && !e->only_empty) rc = queue_clear(q, q->dead, "death");
  return rc == ZKE_OK ? queue_delete_rest(q) : rc;
}

/* Destroy what there is, again where others put meanwhile. */
static int queue_do_destroy(zke_queue *q, bool only_empty) {
  queue_end e = {q, only_empty};
  int rc = zke_exists(q->r.z, q->r.path, NULL, NULL, NULL);
  if (rc == ZKE_NONODE)
    return zke_recipe_fail(rc, "there is no queue %s", q->r.path);
  if (rc == ZKE_OK) rc = queue_see_kind(q, ZKE_FOREVER);
  queue_leave(&q->taking);
  queue_leave(&q->putting);
  if (rc == ZKE_OK) rc = QUEUE_AGAIN;
  for (int i = 0; i < ZKE_RETRIES && rc == QUEUE_AGAIN; i++)
    rc = zke_retry(q->r.z, queue_try_destroy, &e, ZKE_FOREVER);
  q->placed = false;
  if (rc != QUEUE_AGAIN) return rc;
  return zke_recipe_fail(ZKE_NOTEMPTY,
                         "others put into the queue %s all the time, or it has "
                         "children that are not its own",
                         q->r.path);
}

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
