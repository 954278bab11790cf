/* queue.c - items for whoever comes first
 *
 * How the znodes lie, and what is promised to the caller, stands in queue.h.
 * Here stands how each change is made in one step, so that two processes, a
 * death or a lost reply never leave an item twice, or lose it.
 *
 * The object keeps nothing of the queue from one call to the next but its
 * settings: each look reads the first names, and the claims, of one snapshot;
 * each change checks that what it rests on is still so, or is made again
 * (QUEUE_AGAIN).
 *
 * Start reading at zke_queue_put() and queue_put_step(); then at
 * zke_queue_claim(), queue_pick() and queue_add_claim(); for waiting at
 * queue_wait_on() and queue_look_again().
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
 *   Q7  A claim that ends at a time has a marker beside it in "taken", whose
 *       name tells when, and of which item and version.  Both are made and
 *       deleted in one step.  Whoever takes the item over deletes the marker by
 *       that name, and by Q1 relies on that version: so a claim that was
 *       prolonged or acknowledged since is not taken over.  An item that is
 *       given back with a delay has the same two znodes, which then belong to
 *       no session: whoever comes after that time takes it over.  A claim that
 *       is to end sooner is written to, which wakes those who wait for it.
 *   Q8  An item with a key has two znodes in "keys", made and deleted in one
 *       step with it: one named for the key, so that there is one such item,
 *       and one named for the item, so that its consumer knows the key.
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
#define QUEUE_KEY "key-" /* what a key's znode begins with */

/* Positive results, never given to the user. */
enum { QUEUE_NOTHING = 1, QUEUE_AGAIN = 2, QUEUE_BUSY = 3, QUEUE_WHOLE = 4 };

enum {
  QUEUE_PRIORITY = 100,   /* as in kazoo */
  QUEUE_PAGE = 8,         /* names read at a time, beside those claimed */
  QUEUE_CLOCK_MS = 10000, /* longest sleep for a delayed item, since somebody
                             may set the wall clock */
  QUEUE_PATIENCE_MS = 1000,
  QUEUE_TRIES = 3, /* of a look that must agree */
  QUEUE_TEXT = 96, /* bytes of the queue's own data, at most */
  QUEUE_KEY_MOST = 255,
  QUEUE_DELAY_SLACK_MS = 60000, /* a delay's znodes stay so much longer where
                                   nobody takes the item */
  QUEUE_BATCH = 256             /* znodes that are deleted in one step */
};

/* The latest time an item's name can bear: 13 digits, the year 2286. */
#define QUEUE_DUE_MOST INT64_C(9999999999999)
/* The longest claim or delay: 17 years. */
#define QUEUE_SPAN_MOST (ZKE_MAX_TTL / 2)

/* What one's name says of an item. */
typedef struct queue_name {
  const char *name;
  int priority;
  int32_t number;
  int64_t due_ms;
} queue_name;

/* What a marker's name says (Q7): "until-<ms>-<version>-<item>" of a claim,
 * "after-<ms>-<version>-<item>" of a delay. */
typedef struct queue_marker {
  const char *name, *item; /* item: the end of name */
  bool delay;
  int64_t ms;      /* of zke_now(); of a delay: of zke_wall() */
  int32_t version; /* of the item, as the claim has made it */
  bool over;       /* that time has come */
} queue_marker;

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
  char *until;   /* path of its marker; NULL: it has none */
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
  char *entries, *taken, *dead, *keys, *line, *stays; /* paths */
  bool placed;         /* queue and user znode exist, as far as is known */
  int limit, attempts; /* of the queue */
  int32_t version;     /* of its znode, which said so (Q4) */
  char *user;          /* path of the user znode, or NULL */
  int32_t changes;     /* its version (Q3) */
  queue_claim *claims;
  queue_wait taking, putting;
  /* the first items as of the last look, and all claims */
  queue_page entry, later;
  zke_strings *claimed;  /* all names of "taken" */
  int64_t claimed_zxid;  /* of the last change of these */
  queue_marker *markers; /* of these, by item: one for each */
  int marker_count;
  int64_t due;   /* of the earliest that was found not due; or ZKE_FOREVER */
  int64_t until; /* when the first claim is over, ms of zke_now(); the same */
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

/* The last name of a path: a part of the path, not to be freed. */
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

/* Anything that is no marker's name is none. */
static bool queue_parse_marker(const char *name, queue_marker *out) {
  bool delay = strncmp(name, "after-", 6) == 0;
  int64_t ms, version;
  queue_name item;
  if (!delay && strncmp(name, "until-", 6) != 0) return false;
  const char *at = name + 6;
  if (!queue_digits(&at, 13, '-', &ms)) return false;
  if (!queue_digits(&at, 1, '-', &version)) return false;
  if (version < INT32_MIN || version > INT32_MAX) return false;
  if (!queue_parse(at, &item)) return false;
  *out = (queue_marker){.name = name,
                        .item = at,
                        .delay = delay,
                        .ms = ms,
                        .version = (int32_t)version};
  return true;
}

/* By item, the one of the latest claim last. */
static int queue_compare_markers(const void *a, const void *b) {
  const queue_marker *x = a, *y = b;
  int by = strcmp(x->item, y->item);
  if (by != 0 || x->version == y->version) return by;
  return x->version < y->version ? -1 : 1;
}

/* For bsearch(): an item's name beside a marker. */
static int queue_compare_item(const void *key, const void *at) {
  return strcmp(key, ((const queue_marker *)at)->item);
}

/* A marker's path, for zke_free(). */
static char *queue_marker_path(const zke_queue *q, bool delay, int64_t ms,
                               int32_t version, const char *item) {
  size_t size = strlen(q->taken) + strlen(item) + 64;
  char *path = zke_alloc(q->r.z, size);
  if (path)
    snprintf(path, size, "%s/%s-%013" PRId64 "-%" PRId32 "-%s", q->taken,
             delay ? "after" : "until", ms, version, item);
  return path;
}

/* ---- the place ---- */

/* The number behind a word at a line's beginning, or 0. */
static int queue_setting(const char *data, const char *word) {
  const char *at = data ? strstr(data, word) : NULL;
  long value = at ? strtol(at + strlen(word), NULL, 10) : 0;
  return value > 0 && value <= INT32_MAX ? (int)value : 0;
}

/* Compare what the queue says of a setting with what this object was told; 0:
 * nothing was said.  ZKE_BADARGUMENTS: they differ. */
static int queue_compare_setting(const zke_queue *q, const char *what, int has,
                                 int asked) {
  if (!asked || !has || has == asked) return ZKE_OK;
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

/* What the data of a queue's znode says. */
typedef struct queue_settings {
  int limit, attempts; /* 0: not named */
  bool bare;           /* there is no data yet */
} queue_settings;

/* Read them.  QUEUE_NOTHING: there is no queue. */
static int queue_fetch_settings(zke_queue *q, queue_settings *out,
                                zke_stat *stat_out) {
  char *data = NULL;
  int rc = zke_get(q->r.z, q->r.path, NULL, NULL, &data, NULL, stat_out);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? QUEUE_NOTHING : rc;
  out->bare = !data || !*data;
  out->limit = queue_setting(data, "\nlimit ");
  out->attempts = queue_setting(data, "\nattempts ");
  zke_free(data);
  return ZKE_OK;
}

/* Read limit and attempts, and compare them with the object's own, which count
 * where nobody has named any.
 *
 *   news_out  out: that is so
 *
 * QUEUE_NOTHING: there is no queue.  QUEUE_AGAIN: one without its data. */
static int queue_read_settings(zke_queue *q, bool *news_out,
                               zke_stat *stat_out) {
  queue_settings has;
  int limit = q->o.limit, attempts = q->o.attempts;
  int rc = queue_fetch_settings(q, &has, stat_out);
  if (rc != ZKE_OK) return rc;
  if (has.bare) return QUEUE_AGAIN;
  rc = queue_compare_setting(q, "limit", has.limit, limit);
  if (rc == ZKE_OK)
    rc = queue_compare_setting(q, "attempts", has.attempts, attempts);
  if (rc != ZKE_OK) return rc;
  *news_out = (limit && !has.limit) || (attempts && !has.attempts);
  q->limit = limit ? limit : has.limit;
  q->attempts = attempts ? attempts : has.attempts;
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

/* Make all that is missing in one step.  The child comes and goes in it, so
 * that the last directory has had one and is removed when it stands empty
 * (Q6). */
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

/* How many levels a path has: "/a/b" has 2. */
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

/* Have a directory with all above it, where that is missing. */
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

/* Forget the names.  An empty page says that nothing stands behind it: whoever
 * passes it over asks the file for no more. */
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

/* How many names a page has, beside those of claimed items, which a look may
 * have to pass over: so one reading is enough in most cases. 0: all, where
 * numbers have wrapped around (QUEUE_WHOLE). */
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

/* Keep of each item the marker of its latest claim. */
static int queue_keep_latest(queue_marker *markers, int count) {
  int kept = 0;
  qsort(markers, (size_t)count, sizeof *markers, queue_compare_markers);
  for (int i = 0; i < count; i++) {
    bool last =
        i + 1 == count || strcmp(markers[i].item, markers[i + 1].item) != 0;
    if (last) markers[kept++] = markers[i];
  }
  return kept;
}

/* Is the marker's time over?  If not, the object's next time is not later. */
static bool queue_is_over(zke_queue *q, const queue_marker *m, int64_t now,
                          int64_t wall) {
  if (m->ms <= (m->delay ? wall : now)) return true;
  int64_t *next = m->delay ? &q->due : &q->until;
  if (m->ms < *next) *next = m->ms;
  return false;
}

/* Know which claims are over, and when the next one will be. */
static int queue_keep_markers(zke_queue *q) {
  int64_t now = zke_now(q->r.z), wall = zke_wall(q->r.z);
  queue_marker m;
  int count = 0;
  zke_free(q->markers);
  q->markers = NULL;
  q->marker_count = 0;
  q->until = ZKE_FOREVER;
  for (int i = 0; i < q->claimed->count; i++)
    count += queue_parse_marker(q->claimed->data[i], &m);
  if (!count) return ZKE_OK;
  q->markers = zke_alloc(q->r.z, (size_t)count * sizeof *q->markers);
  if (!q->markers) return ZKE_NOMEM;
  count = 0;
  for (int i = 0; i < q->claimed->count; i++)
    count += queue_parse_marker(q->claimed->data[i], &q->markers[count]);
  q->marker_count = queue_keep_latest(q->markers, count);
  for (int i = 0; i < q->marker_count; i++)
    q->markers[i].over = queue_is_over(q, &q->markers[i], now, wall);
  return ZKE_OK;
}

/* An item's marker, or NULL. */
static const queue_marker *queue_find_marker(const zke_queue *q,
                                             const char *name) {
  if (!q->marker_count) return NULL;
  return bsearch(name, q->markers, (size_t)q->marker_count, sizeof *q->markers,
                 queue_compare_item);
}

/* Keep the names of "taken"; missing, it is empty. */
static int queue_keep_claims(zke_queue *q, zke_op_result *read) {
  if (read->rc != ZKE_OK && read->rc != ZKE_NONODE)
    return zke_recipe_fail(read->rc, "cannot read %s", q->taken);
  zke_free(q->claimed);
  q->claimed = read->children;
  q->claimed_zxid = read->stat.pzxid;
  read->children = NULL;
  if (!q->claimed) q->claimed = zke_alloc(q->r.z, sizeof *q->claimed);
  return q->claimed ? queue_keep_markers(q) : ZKE_NOMEM;
}

/* Read the first names of both kinds and all of "taken" in one snapshot: of two
 * an item could be claimed between them, and be offered although it is.
 *
 *   most  names of a kind; 0: all
 *
 * QUEUE_WHOLE: as queue_keep_page(). */
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

/* For bsearch(): a name beside those of a list, which is sorted by bytes. */
static int queue_compare_text(const void *key, const void *at) {
  return strcmp(key, *(char *const *)at);
}

/* Is there a claim, or a delay, that is not over?  The list may be empty, and
 * have no block then. */
static bool queue_is_claimed(const zke_queue *q, const char *name) {
  if (!q->claimed->count) return false;
  const queue_marker *marker = queue_find_marker(q, name);
  if (marker && marker->over) return false;
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

/* A step with room for so many operations beside the first ones, which every
 * step has; one block, for queue_step_free(). */
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

/* Release a step and what its last try has brought back; NULL is fine. */
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

/* Make a step, with a lost reply looked into (Q3).  It is not made where the
 * queue's settings are not those known (Q4).  s->unsure is left where the
 * outcome could not be found out. */
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

/* Does one of the operations of a step that failed say that something is not as
 * it was seen before? */
static bool queue_has_changed(const queue_step *s, int from, int to) {
  for (int i = from; i < to; i++) {
    int rc = s->results[i].rc;
    if (rc == ZKE_NONODE || rc == ZKE_BADVERSION || rc == ZKE_NODEEXISTS)
      return true;
  }
  return false;
}

/* Did another one come first?  One of so many operations, from OP_FIRST on,
 * says so. */
static bool queue_was_late(const queue_step *s, int count) {
  return queue_has_changed(s, OP_FIRST, OP_FIRST + count);
}

/* Say where the operations end; returns how many are the step's own. */
static int queue_step_end(queue_step *s, const zke_op *end) {
  s->count = (int)(end - s->ops);
  return s->count - OP_FIRST;
}

/* ---- keys (Q8) ---- */

/* A key as a name in "keys", of which '/' and '%' are escaped; for zke_free().
 */
static char *queue_key_path(const zke_queue *q, const char *key) {
  size_t size = strlen(q->keys) + sizeof QUEUE_KEY + 3 * strlen(key) + 2;
  char *path = zke_alloc(q->r.z, size), *at = path;
  if (!path) return NULL;
  at += sprintf(at, "%s/" QUEUE_KEY, q->keys);
  for (; *key; key++) {
    if (*key == '/' || *key == '%')
      at += sprintf(at, "%%%02X", (unsigned)*key);
    else
      *at++ = *key;
  }
  *at = '\0';
  return path;
}

/* The name of the item that a key's znode is of, for zke_free(); NULL: there is
 * no such znode. */
static int queue_key_owner(zke_queue *q, const char *path, char **name_out) {
  *name_out = NULL;
  int rc = zke_get(q->r.z, path, NULL, NULL, name_out, NULL, NULL);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* ---- one item ---- */

/* What is read of an item, in one snapshot. */
enum { READ_ENTRY, READ_CLAIM, READ_KEYED, READ_MARKER, READS };

typedef struct queue_reading {
  char *paths[READS];
  char *key; /* path of its key's znode, or NULL */
  zke_op_result r[READS];
} queue_reading;

/* Release what was read of an item; an item made of it has copies. */
static void queue_reading_free(queue_reading *x) {
  zke_results_clear(x->r, READS);
  for (int i = 0; i < READS; i++) zke_free(x->paths[i]);
  zke_free(x->key);
}

/* marker: of a claim that is over, or NULL */
static int queue_read_item(zke_queue *q, const char *name,
                           const queue_marker *marker, queue_reading *x) {
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

/* Can the item be had as it was read?  QUEUE_AGAIN: no.  A marker that is not
 * of the latest claim was left by one that could not be discarded at once, and
 * is deleted here. */
static int queue_judge(zke_queue *q, const queue_marker *marker,
                       const queue_reading *x) {
  const zke_op_result *entry = &x->r[READ_ENTRY];
  if (entry->rc == ZKE_NONODE) return QUEUE_AGAIN;
  if (!marker && x->r[READ_CLAIM].rc != ZKE_NONODE) return QUEUE_AGAIN;
  if (entry->rc != ZKE_OK)
    return zke_recipe_fail(entry->rc, "cannot read %s", x->paths[READ_ENTRY]);
  if (!marker) return ZKE_OK;
  if (x->r[READ_MARKER].rc == ZKE_NONODE) return QUEUE_AGAIN;
  if (marker->version == entry->stat.version) return ZKE_OK;
  int rc = zke_recipe_delete(q->r.z, x->paths[READ_MARKER]);
  return rc == ZKE_OK ? QUEUE_AGAIN : rc;
}

/* Find the key's znode of an item that has one, unless another item has it
 * meanwhile: somebody has deleted it. */
static int queue_read_key(zke_queue *q, const char *name, queue_reading *x) {
  const char *key = x->r[READ_KEYED].data;
  char *owner = NULL;
  if (x->r[READ_KEYED].rc != ZKE_OK || !key) return ZKE_OK;
  x->key = queue_key_path(q, key);
  int rc = x->key ? queue_key_owner(q, x->key, &owner) : ZKE_NOMEM;
  if (rc == ZKE_OK && (!owner || strcmp(owner, name) != 0)) {
    zke_free(x->key);
    x->key = NULL;
  }
  zke_free(owner);
  return rc;
}

/* An item as read, in one block. */
static zke_queue_item *queue_item_new(zke_queue *q, const queue_name *n,
                                      const queue_reading *x) {
  const zke_op_result *read = &x->r[READ_ENTRY], *keyed = &x->r[READ_KEYED];
  bool has_key = keyed->rc == ZKE_OK && keyed->data;
  const char *marker = x->paths[READ_MARKER];
  const char *const texts[] = {n->name,
                               x->paths[READ_ENTRY],
                               x->paths[READ_CLAIM],
                               q->user ? q->user : "",
                               has_key ? keyed->data : "",
                               has_key ? x->paths[READ_KEYED] : "",
                               x->key ? x->key : "",
                               marker ? marker : ""};
  enum { TEXTS = sizeof texts / sizeof texts[0] };
  const char *copies[TEXTS];
  size_t data = read->data ? (size_t)read->len + 1 : 0, size = data;
  for (int i = 0; i < TEXTS; i++) size += strlen(texts[i]) + 1;
  zke_queue_item *item = zke_alloc(q->r.z, sizeof *item + size);
  if (!item) return NULL;
  char *at = (char *)(item + 1);
  if (read->data) item->data = memcpy(at, read->data, (size_t)read->len);
  at += data;
  for (int i = 0; i < TEXTS; i++) {
    size_t bytes = strlen(texts[i]) + 1;
    copies[i] = memcpy(at, texts[i], bytes);
    at += bytes;
  }
  item->name = copies[0];
  item->entry_path = copies[1];
  item->claim_path = copies[2];
  item->user_path = copies[3];
  item->key = copies[4];
  item->keyed_path = copies[5];
  item->key_path = copies[6];
  item->marker_path = copies[7];
  item->over = marker && x->r[READ_CLAIM].rc == ZKE_OK;
  item->len = read->len;
  item->priority = n->priority;
  item->attempts = item->version = read->stat.version;
  item->zxid = read->stat.czxid;
  item->put_ms = read->stat.ctime;
  item->due_ms = n->due_ms;
  return item;
}

/* The item, and what stands for its claim and its key; QUEUE_AGAIN where it is
 * gone, or claimed. */
static int queue_fetch(zke_queue *q, const queue_name *n,
                       zke_queue_item **item_out) {
  queue_reading x = {0};
  const queue_marker *marker = queue_find_marker(q, n->name);
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

/* Add the deletion of what stands for an earlier claim, which is over.  Each of
 * the queue_add functions returns the end of the operations. */
static zke_op *queue_add_takeover(zke_op *op, const zke_queue_item *item) {
  if (*item->marker_path) zke_op_delete(op++, item->marker_path, -1);
  if (item->over) zke_op_delete(op++, item->claim_path, -1);
  return op;
}

/* Add the deletion of an item, with its key. */
static zke_op *queue_add_removal(zke_op *op, const zke_queue_item *item) {
  zke_op_delete(op++, item->entry_path, item->version);
  if (*item->keyed_path) zke_op_delete(op++, item->keyed_path, -1);
  if (*item->key_path) zke_op_delete(op++, item->key_path, -1);
  return op;
}

/* Add the deletion of a claim that this object holds. */
static zke_op *queue_add_unclaim(zke_op *op, const queue_claim *c) {
  zke_op_delete(op++, c->path, -1);
  if (c->until) zke_op_delete(op++, c->until, -1);
  return op;
}

/* The most operations that each of them adds. */
enum { TAKEOVER_OPS = 2, REMOVAL_OPS = 3, UNCLAIM_OPS = 2 };

/* Was the item claimed as often as the queue allows? Its version counts the
 * claims (Q1). */
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

/* End each line of what was read of a letter's child with a NUL, for
 * queue_death(). */
static void queue_split_death(zke_op_result *read) {
  for (int i = 0; read->data && i < read->len; i++)
    if (read->data[i] == '\n') read->data[i] = '\0';
}

/* Make one line of a text: a newline in it would begin another line of the
 * letter's child. */
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
  bool has_key = *item->key != '\0';
  zke_session_list *own = NULL;
  zke *z = q->r.z;
  int rc = reason ? zke_session(z, zke_session_id(z), &own) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  bool known = own && own->count > 0;
  const char *who = known ? own->data[0].identity : "";
  if (!reason)
    reason = *item->marker_path ? "its consumer did not answer in time"
                                : "its consumer ended without an answer";
  size_t size = strlen(who) + strlen(reason) + strlen(item->key) + 100;
  char *text = zke_alloc(z, size);
  if (text) {
    int at = snprintf(text, size, "consumer %s", who);
    queue_make_line(text);
    at += snprintf(text + at, size - (size_t)at,
                   "\npid %" PRId64 "\nattempts %d\n",
                   known ? own->data[0].pid : 0, item->version);
    at += snprintf(text + at, size - (size_t)at, "%s%s%s",
                   has_key ? "key " : "", item->key, has_key ? "\n" : "");
    snprintf(text + at, size - (size_t)at, "reason %s", reason);
    queue_make_line(text + at);
  }
  zke_free(own);
  *out = text;
  return text ? ZKE_OK : ZKE_NOMEM;
}

/* The step of a burial.
 *
 *   own    this object's claim of it, or NULL
 *   name   of the letter
 *   death  what its child says, or NULL: without one */
static int queue_bury_step(zke_queue *q, const zke_queue_item *item,
                           const queue_claim *own, const char *name,
                           const char *death, int64_t deadline_ms) {
  char *letter = zke_recipe_path(q->r.z, q->dead, name);
  char *child = letter ? zke_recipe_path(q->r.z, letter, "death") : NULL;
  queue_step *s = queue_step_new(q->r.z, 3 + TAKEOVER_OPS + REMOVAL_OPS);
  int rc = child && s ? ZKE_OK : ZKE_NOMEM;
  if (rc == ZKE_OK) {
    zke_op *op = &s->ops[OP_FIRST + 1];
    s->needs = q->dead;
    op = own ? queue_add_unclaim(op, own) : queue_add_takeover(op, item);
    op = queue_add_removal(op, item);
    int late = queue_step_end(s, op);
    zke_op_create(op++, letter, item->data, item->len, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
    if (death)
      zke_op_create(op++, child, death, (int)strlen(death), ZKE_OPEN_ACL,
                    ZKE_PERSISTENT);
    queue_step_end(s, op);
    rc = queue_change(q, s, deadline_ms);
    if (rc < 0 && queue_was_late(s, late)) rc = ZKE_LOST;
  }
  queue_step_free(s);
  zke_free(child);
  zke_free(letter);
  return rc;
}

/* To the dead letters, together with this object's claim where it holds one:
 * then with a reason, else NULL.  Where there is a letter of that name, since
 * "entries" was made again since or somebody makes items under names of their
 * own, the zxid names this one.  An item so large that one step cannot carry
 * more is buried without how it died, rather than claimed for ever.  ZKE_LOST:
 * the item is not as it was (Q1). */
static int queue_bury(zke_queue *q, const zke_queue_item *item,
                      const queue_claim *own, const char *reason,
                      int64_t deadline_ms) {
  char *death = NULL, other[32];
  const char *name = item->name;
  int rc = queue_death_text(q, item, reason, &death);
  if (rc == ZKE_OK)
    rc = queue_bury_step(q, item, own, name, death, deadline_ms);
  if (rc == ZKE_NODEEXISTS) {
    snprintf(other, sizeof other, "entry-%03d-%010d", item->priority,
             (int)(item->zxid & INT32_MAX));
    name = other;
    rc = queue_bury_step(q, item, own, name, death, deadline_ms);
  }
  if (rc == ZKE_BADARGUMENTS || rc == ZKE_MARSHALLINGERROR)
    rc = queue_bury_step(q, item, own, name, NULL, deadline_ms);
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

/* The first item that can be taken; *page: where it stands.  Exhausted ones are
 * buried on the way, or (keep) passed over. */
static int queue_pick(zke_queue *q, bool keep, int64_t deadline_ms,
                      queue_page **page, zke_queue_item **item_out) {
  int rc = queue_look(q);
  while (rc == ZKE_OK) {
    zke_queue_item *item = NULL;
    rc = queue_first(q, page, &item);
    if (rc == ZKE_OK && !queue_is_exhausted(q, item)) {
      *item_out = item;
      return ZKE_OK;
    }
    if (rc == ZKE_OK && keep) {
      (*page)->at++;
      zke_free(item);
      continue;
    }
    if (rc == ZKE_OK) rc = queue_bury(q, item, NULL, NULL, deadline_ms);
    zke_free(item);
    if (rc == ZKE_OK || rc == QUEUE_AGAIN || rc == ZKE_LOST) rc = queue_look(q);
  }
  return rc;
}

/* ---- claims ---- */

/* Where this object's claim stands in its list; where there is none, the list's
 * end, at which NULL stands. A later claim of the same item has the same path
 * and another token. */
static queue_claim **queue_find_claim(zke_queue *q, const char *path,
                                      int64_t token) {
  queue_claim **at = &q->claims;
  while (*at && ((*at)->token != token || strcmp((*at)->path, path) != 0))
    at = &(*at)->next;
  return at;
}

/* Release a claim's memory; nothing changes in the file. NULL is fine. */
static void queue_claim_free(queue_claim *c) {
  if (c) zke_free(c->until);
  zke_free(c);
}

/* Forget a claim that has ended or was given up. */
static void queue_unlink_claim(queue_claim **at) {
  queue_claim *c = *at;
  *at = c->next;
  queue_claim_free(c);
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

/* Delete a claim's znodes, now or later.
 *
 *   token  its czxid; 0: whatever the session has there */
static void queue_discard_claim(zke_queue *q, const queue_claim *c,
                                int64_t token) {
  zke_recipe_discard(q->r.z, c->path, ZKE_EPHEMERAL, token);
  if (c->until) zke_recipe_discard(q->r.z, c->until, ZKE_EPHEMERAL, 0);
}

/* Discard one of this object's claims, and forget it. */
static void queue_give_up(zke_queue *q, queue_claim **at) {
  queue_discard_claim(q, *at, (*at)->token);
  queue_unlink_claim(at);
}

/* Have a new claim watched where there is a listener. */
static int queue_watch_claim(zke_queue *q, const queue_claim *c) {
  if (!q->o.listener) return ZKE_OK;
  return zke_get(q->r.z, c->path, zke_recipe_watcher, &q->r, NULL, NULL, NULL);
}

/* Items that are claimed in one step. */
typedef struct queue_batch {
  zke_queue_item **items;
  queue_claim **claims; /* to be made; NULL once the object has them */
  int most, count;
} queue_batch;

/* What is to be a claim; it ends at a time where options say so. */
static queue_claim *queue_claim_new(zke_queue *q, const zke_queue_item *item) {
  size_t size = strlen(item->claim_path) + 1;
  queue_claim *c = zke_alloc(q->r.z, sizeof *c + size);
  if (!c) return NULL;
  memcpy(c->path, item->claim_path, size);
  if (!q->o.claim_ms) return c;
  c->until = queue_marker_path(q, false, zke_now(q->r.z) + q->o.claim_ms,
                               item->version + 1, item->name);
  if (c->until) return c;
  zke_free(c);
  return NULL;
}

/* Add a claim at the version seen (Q1). */
static zke_op *queue_add_claim(zke_op *op, const zke_queue_item *item,
                               const queue_claim *c) {
  op = queue_add_takeover(op, item);
  zke_op_set(op++, item->entry_path, item->data, item->len, item->version);
  zke_op_create(op++, c->path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  if (c->until)
    zke_op_create(op++, c->until, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  return op;
}

enum { CLAIM_OPS = TAKEOVER_OPS + 3 };

/* Claim all items of a batch in one step.  QUEUE_AGAIN: another consumer had
 * one of them first, or its marker was not what was seen; nothing is
 * claimed. */
static int queue_try_claim(zke_queue *q, const queue_batch *b, queue_step *s,
                           int64_t deadline_ms) {
  zke_op *op = &s->ops[OP_FIRST + 1];
  s->needs = q->taken;
  for (int i = 0; i < b->count; i++) {
    b->claims[i] = queue_claim_new(q, b->items[i]);
    if (!b->claims[i]) return ZKE_NOMEM;
    op = queue_add_claim(op, b->items[i], b->claims[i]);
  }
  int own = queue_step_end(s, op);
  int rc = queue_change(q, s, deadline_ms);
  return rc < 0 && queue_was_late(s, own) ? QUEUE_AGAIN : rc;
}

/* The object has the claims of a step that was made.  Where one of them cannot
 * be watched it gives up all. */
static int queue_keep_batch(zke_queue *q, queue_batch *b, int64_t token) {
  zke_sentence kept;
  int rc = ZKE_OK;
  for (int i = 0; i < b->count; i++) {
    zke_queue_item *item = b->items[i];
    queue_claim *c = b->claims[i];
    c->next = q->claims;
    c->token = item->token = token;
    q->claims = c;
    b->claims[i] = NULL;
    item->attempts = ++item->version;
    item->marker_path = "";
    item->over = 0;
    if (rc == ZKE_OK) rc = queue_watch_claim(q, c);
  }
  if (rc == ZKE_OK) return rc;
  zke_recipe_keep(&kept);
  for (int i = 0; i < b->count; i++) queue_give_up(q, &q->claims);
  return zke_recipe_restore(&kept, rc);
}

/* Claim the items of a batch at the versions seen, all or none.  Of claims that
 * may have been made, and cannot be looked for, no token is known: then
 * whatever the session has there is discarded.  If that is the claim of another
 * object on this handle, its consumer finds it lost, as after any claim that
 * somebody deletes. */
static int queue_do_claim(zke_queue *q, queue_batch *b, int64_t deadline_ms) {
  queue_step *s = queue_step_new(q->r.z, 1 + CLAIM_OPS * b->count);
  int rc = s ? queue_try_claim(q, b, s, deadline_ms) : ZKE_NOMEM;
  if (rc == ZKE_OK) {
    rc = queue_keep_batch(q, b, s->zxid);
  } else {
    zke_sentence kept;
    zke_recipe_keep(&kept);
    for (int i = 0; i < b->count; i++) {
      if (b->claims[i] && s && s->unsure)
        queue_discard_claim(q, b->claims[i], 0);
      queue_claim_free(b->claims[i]);
      b->claims[i] = NULL;
    }
    zke_recipe_restore(&kept, rc);
  }
  queue_step_free(s);
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
static int queue_collect(zke_queue *q, queue_batch *b, int64_t deadline_ms) {
  queue_page *page;
  int rc = queue_pick(q, false, deadline_ms, &page, &b->items[0]);
  if (rc != ZKE_OK) return rc;
  for (b->count = 1; b->count < b->most; b->count++) {
    page->at++;
    zke_queue_item *item = NULL;
    rc = queue_first(q, &page, &item);
    if (rc != ZKE_OK) break;
    b->items[b->count] = item;
    if (!queue_is_exhausted(q, item)) continue;
    b->items[b->count] = NULL;
    zke_free(item);
    break;
  }
  return rc < 0 ? rc : ZKE_OK;
}

/* Claim items, if there are any: else QUEUE_NOTHING.  Where they are too large
 * for one step, half of them. */
static int queue_claim_batch(zke_queue *q, queue_batch *b,
                             int64_t deadline_ms) {
  for (;;) {
    int rc = queue_collect(q, b, deadline_ms);
    if (rc == ZKE_OK) rc = queue_do_claim(q, b, deadline_ms);
    while (rc == ZKE_BADARGUMENTS && b->count > 1) {
      queue_shorten(b, b->count / 2);
      rc = queue_do_claim(q, b, deadline_ms);
    }
    if (rc == ZKE_OK) return rc;
    queue_shorten(b, 0);
    if (rc != QUEUE_AGAIN) return rc;
  }
}

/* Claim up to so many items now. */
static int queue_claim_now(zke_queue *q, int most, int64_t deadline_ms,
                           zke_queue_item **items, int *count_out) {
  int rc = queue_ready(q, deadline_ms);
  if (rc != ZKE_OK) return rc;
  queue_batch b = {.items = items, .most = most};
  b.claims = zke_alloc(q->r.z, (size_t)most * sizeof(queue_claim *));
  rc = b.claims ? queue_claim_batch(q, &b, deadline_ms) : ZKE_NOMEM;
  zke_free(b.claims);
  if (rc == ZKE_OK) *count_out = b.count;
  return rc;
}

/* Take an item at the version seen (Q1). */
static int queue_do_take(zke_queue *q, zke_queue_item *item,
                         int64_t deadline_ms) {
  queue_step *s = queue_step_new(q->r.z, TAKEOVER_OPS + REMOVAL_OPS);
  if (!s) return ZKE_NOMEM;
  zke_op *op = queue_add_takeover(&s->ops[OP_FIRST], item);
  int own = queue_step_end(s, queue_add_removal(op, item));
  int rc = queue_change(q, s, deadline_ms);
  if (rc < 0 && queue_was_late(s, own)) rc = QUEUE_AGAIN;
  queue_step_free(s);
  item->attempts++;
  return rc;
}

/* Take an item now, if there is any: else QUEUE_NOTHING. */
static int queue_take_now(zke_queue *q, int64_t deadline_ms,
                          zke_queue_item **item_out) {
  queue_page *page;
  int rc = queue_ready(q, deadline_ms);
  while (rc == ZKE_OK || rc == QUEUE_AGAIN) {
    zke_queue_item *item = NULL;
    rc = queue_pick(q, false, deadline_ms, &page, &item);
    if (rc != ZKE_OK) return rc;
    rc = queue_do_take(q, item, deadline_ms);
    if (rc == ZKE_OK) {
      *item_out = item;
      return ZKE_OK;
    }
    zke_free(item);
  }
  return rc;
}

/* ---- putting ---- */

/* What is put in one step. */
typedef struct queue_load {
  const zke_queue_value *values;
  int count;
  int priority, mode;
  int64_t due_ms;
  const char *key;    /* of the one item, or NULL */
  const char *letter; /* path of the dead letter it was, or NULL */
  const char *death;  /* path of its child, or NULL */
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
 * they are created.  QUEUE_AGAIN: there is no "entries". */
static int queue_foresee(zke_queue *q, const char *prefix, queue_keying *k) {
  zke_stat stat;
  size_t size = strlen(prefix) + 12;
  int rc = zke_exists(q->r.z, q->entries, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) q->placed = false;
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? QUEUE_AGAIN : rc;
  uint32_t twice = (uint32_t)stat.cversion + (uint32_t)stat.numChildren;
  k->version = stat.version;
  k->number = (int32_t)(twice / 2);
  k->entry = zke_alloc(q->r.z, size);
  if (!k->entry) return ZKE_NOMEM;
  snprintf(k->entry, size, "%s%010" PRId32, prefix, k->number);
  k->name = queue_base(k->entry);
  k->keyed = zke_recipe_path(q->r.z, q->keys, k->name);
  return k->keyed ? ZKE_OK : ZKE_NOMEM;
}

/* Refuse a key that an item has.  One whose item was removed by something that
 * knows no keys, such as zke_delete(), counts for nothing. */
static int queue_see_key(zke_queue *q, const char *key, queue_keying *k) {
  char *owner = NULL, *entry = NULL;
  queue_name parsed;
  k->key = queue_key_path(q, key);
  if (!k->key) return ZKE_NOMEM;
  int rc = zke_get(q->r.z, k->key, NULL, NULL, &owner, NULL, NULL);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc;
  k->stale = true;
  if (owner && queue_parse(owner, &parsed)) {
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
 * is deleted by the step, which fails if anybody has put since. */
static int queue_prepare_key(zke_queue *q, const queue_load *load,
                             const char *prefix, queue_keying *k) {
  if (!load->key) return ZKE_OK;
  int rc = queue_foresee(q, prefix, k);
  if (rc == ZKE_OK) rc = queue_see_key(q, load->key, k);
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

enum {
  PUT_OPS = 9,    /* the most, beside the items */
  KEY_TRIES = 100 /* to foresee a number */
};

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

/* Make the step of a put.  QUEUE_AGAIN: something has changed.
 *
 *   version  as queue_room() gives it */
static int queue_put_step(zke_queue *q, const queue_load *load, queue_step *s,
                          const char *prefix, const queue_keying *k,
                          int32_t version, int64_t deadline_ms) {
  int first = OP_FIRST + (load->key != NULL);
  zke_op *op = &s->ops[first];
  s->needs = load->key ? q->keys : NULL;
  zke_op_set(op++, q->entries, NULL, -1, load->key ? k->version : version);
  if (load->death) zke_op_delete(op++, load->death, -1);
  if (load->letter) zke_op_delete(op++, load->letter, -1);
  for (int i = 0; i < load->count; i++) {
    zke_op_create(op++, prefix, load->values[i].data, load->values[i].len,
                  ZKE_OPEN_ACL, load->mode);
  }
  int items = queue_step_end(s, op) + OP_FIRST;
  if (load->key) queue_step_end(s, queue_add_key(op, load, k));
  int rc = queue_change(q, s, deadline_ms);
  bool changed = s->results[first].rc == ZKE_BADVERSION ||
                 queue_has_changed(s, items, s->count);
  return rc < 0 && changed ? QUEUE_AGAIN : rc;
}

/* QUEUE_AGAIN: something has changed meanwhile. */
static int queue_try_put(zke_queue *q, const queue_load *load,
                         const char *prefix, int64_t deadline_ms) {
  int32_t version;
  queue_keying k = {0};
  queue_step *s = queue_step_new(q->r.z, load->count + PUT_OPS);
  int rc = s ? queue_ready(q, deadline_ms) : ZKE_NOMEM;
  if (rc == ZKE_OK) rc = queue_prepare_key(q, load, prefix, &k);
  if (rc == ZKE_OK) rc = queue_room(q, load->count, &version);
  if (rc == ZKE_OK)
    rc = queue_put_step(q, load, s, prefix, &k, version, deadline_ms);
  queue_step_free(s);
  queue_keying_free(&k);
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
  char *prefix = queue_prefix(q, load);
  rc = prefix ? QUEUE_AGAIN : ZKE_NOMEM;
  for (int i = 0; rc == QUEUE_AGAIN; i++) {
    rc = queue_try_put(q, load, prefix, deadline_ms);
    if (rc == QUEUE_AGAIN && load->key && i >= KEY_TRIES)
      rc = zke_recipe_fail(ZKE_LIMIT,
                           "the numbers of the queue %s are used up, or others "
                           "put all the time",
                           q->r.path);
  }
  zke_free(prefix);
  return rc;
}

/* ---- waiting ---- */

/* Forget the watches of a path that a type of event spends; all of them where
 * path is NULL.  The next look registers those again that it needs. */
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

/* Is that watch registered? One that has fired was dropped from the list by
 * queue_event(). */
static bool queue_is_watched(const queue_wait *w, int type, const char *path) {
  const queue_watch *x = w->watches;
  while (x && (x->type != type || strcmp(x->path, path) != 0)) x = x->next;
  return x != NULL;
}

/* Watch directory/name (name may be NULL) unless that is done already.
 *
 *   stat_out  set where it is watched from now on, or NULL */
static int queue_watch_node(queue_wait *w, int type, const char *directory,
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
  int rc = queue_watch_node(w, type, q->entries, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  q->placed = false;
  return QUEUE_AGAIN;
}

/* When the next item can be had by the time alone, of zke_now(), as far as was
 * seen at the last look.
 *
 *   most  so many ms of the wall clock are looked ahead */
static int64_t queue_next(zke_queue *q, int64_t most) {
  int64_t due = queue_when(q->r.z, q->due, most);
  return q->until < due ? q->until : due;
}

/* Watch each claim of the last look.  QUEUE_AGAIN: one of them has gone since,
 * or another claim or a delay stands in its place, or it ends at another time:
 * the look knows nothing of when that is. */
static int queue_watch_claims(queue_wait *w) {
  zke_queue *q = w->q;
  bool changed = false;
  queue_name n;
  for (int i = 0; i < q->claimed->count; i++) {
    const char *name = q->claimed->data[i];
    zke_stat stat = {0};
    if (!queue_parse(name, &n)) continue;
    int rc = queue_watch_node(w, ZKE_WATCH_DATA, q->taken, name, &stat);
    if (rc != ZKE_OK) return rc == ZKE_NONODE ? QUEUE_AGAIN : rc;
    if (stat.mzxid > q->claimed_zxid) changed = true;
  }
  return changed ? QUEUE_AGAIN : ZKE_OK;
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
  w->due = queue_next(q, QUEUE_CLOCK_MS);
  return queue_watch_claims(w);
}

/* Is there room? The watch is registered before the look, so what makes room
 * after the look wakes. */
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

/* queue_look_again() for zke_retry(): after a lost reply everything is looked
 * at anew. */
static int queue_retry_look(zke *z, void *arg) {
  (void)z;
  return queue_look_again(arg);
}

/* Also when something is due earlier than was known on going to sleep. */
static int queue_done(const queue_wait *w) {
  return w->state == WAIT_READY || w->due < w->until ? ZKE_OK : 1;
}

/* What zke_recipe_await() asks to know whether its sleep is over. */
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

/* queue_watch_entries() for zke_retry(). */
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

/* What the engine has told of, by type and path, has spent a watch: note
 * which, and which claim may be gone.  After an overflow nothing is known, so
 * all are. */
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

/* A step of the object, made by dispatches: claims first, since a listener
 * that hears of a loss should not be offered another item before. */
static int queue_step_all(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  int rc = q->o.listener ? queue_see_claims(q) : ZKE_OK;
  if (rc == ZKE_OK && q->taking.state == WAIT_YES)
    rc = queue_look_again(&q->taking);
  if (rc == ZKE_OK && q->putting.state == WAIT_YES)
    rc = queue_look_again(&q->putting);
  return rc;
}

/* The session has ended, or the object goes: place and watches are gone or will
 * go by themselves. A call that blocks finds the end out when it wakes up. */
static void queue_wait_ended(queue_wait *w) {
  queue_drop_watches(w, 0, NULL);
  zke_free(w->znode);
  w->znode = NULL;
  if (!w->blocking) w->state = WAIT_NO;
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
  while (q->claims) queue_give_up(q, &q->claims);
  queue_remove(q, &q->user);
}

/* Free what the object has in memory; queue_quit() has given up the rest. */
static void queue_destroy(zke_recipe *r) {
  zke_queue *q = (zke_queue *)r;
  while (q->claims) queue_unlink_claim(&q->claims);
  queue_wait_ended(&q->taking);
  queue_wait_ended(&q->putting);
  queue_drop_page(&q->entry);
  queue_drop_page(&q->later);
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

/* Take the options as they were given, and refuse what lies outside their
 * bounds. */
static int queue_take_options(const zke_queue_options *given,
                              zke_queue_options *o) {
  int rc = zke_take_options(given, o, sizeof *o, "zke_queue_options");
  if (rc != ZKE_OK) return rc;
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
  if (q->entries) q->line = zke_recipe_path(z, q->entries, QUEUE_LINE);
  bool all = q->line && q->taken && q->dead && q->keys && q->stays;
  return all ? ZKE_OK : ZKE_NOMEM;
}

/* Nothing of the queue is read here but that its path is a path: the first call
 * that needs the queue makes it, or finds what it says of itself. */
int zke_queue_new(zke *z, const char *path, const zke_queue_options *options,
                  zke_queue **queue_out) {
  zke_queue_options o;
  zke_recipe *r = NULL;
  if (!queue_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "queue_out is NULL");
  *queue_out = NULL;
  int rc = queue_take_options(options, &o);
  if (rc == ZKE_OK)
    rc = zke_recipe_new(z, path, &queue_class, sizeof(zke_queue), &r);
  if (rc != ZKE_OK) return rc;
  zke_queue *q = (zke_queue *)r;
  q->o = o;
  q->entry = (queue_page){.kind = "entry-", .last = true};
  q->later = (queue_page){.kind = "later-", .last = true};
  q->taking = (queue_wait){.q = q, .kind = "take-", .event = ZKE_QUEUE_ITEM};
  q->putting = (queue_wait){.q = q, .kind = "put-", .event = ZKE_QUEUE_ROOM};
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
    return zke_recipe_fail(ZKE_BADARGUMENTS, "one key for %d items",
                           load->count);
  return ZKE_OK;
}

/* Check what a put asks for, and say it in the terms of a load. */
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
  load->key = o.key;
  return load->key ? queue_check_key(load) : ZKE_OK;
}

/* The arguments are checked before anything is touched. For no items, too, the
 * object and its session are asked. */
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

/* Who asks for items, and for how many. */
typedef struct queue_want {
  bool claim; /* else to take one */
  int most;
  zke_queue_item **items; /* out */
  int count;              /* out */
} queue_want;

/* Take or claim what is there now; QUEUE_NOTHING: there is nothing. */
static int queue_get_now(zke_queue *q, queue_want *w, int64_t deadline_ms) {
  if (w->claim)
    return queue_claim_now(q, w->most, deadline_ms, w->items, &w->count);
  int rc = queue_take_now(q, deadline_ms, w->items);
  w->count = rc == ZKE_OK;
  return rc;
}

/* Take or claim, and wait for an item as long as may be. */
static int queue_get(zke_queue *q, queue_want *want, int64_t deadline_ms) {
  bool waiting = false;
  int rc;
  do {
    rc = queue_get_now(q, want, deadline_ms);
    rc = queue_tried(&q->taking, rc);
    if (rc != QUEUE_NOTHING) break;
    rc = queue_wait_for(&q->taking, &waiting, 0, deadline_ms);
  } while (rc == ZKE_OK);
  rc = queue_wait_end(&q->taking, waiting, rc);
  return rc == QUEUE_NOTHING ? queue_say_nothing(q) : rc;
}

/* What take, claim and claim_some have in common: the items are NULL unless
 * there are some, whatever goes wrong. */
static int queue_get_entered(zke_queue *queue, queue_want *want,
                             int64_t deadline_ms) {
  if (!want->items)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "there is no place for an item");
  for (int i = 0; i < want->most; i++) want->items[i] = NULL;
  int rc = zke_recipe_enter_by((zke_recipe *)queue, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = queue_get(queue, want, deadline_ms);
  return zke_recipe_leave(&queue->r, rc);
}

/* The item is deleted in the step that finds it still there, so nobody else
 * gets it; if the process dies afterwards, it is gone. */
int zke_queue_take(zke_queue *queue, int64_t deadline_ms,
                   zke_queue_item **item_out) {
  queue_want want = {.most = 1, .items = item_out};
  return queue_get_entered(queue, &want, deadline_ms);
}

/* The item stays, with an ephemeral znode beside it: if the process dies, it is
 * free again. */
int zke_queue_claim(zke_queue *queue, int64_t deadline_ms,
                    zke_queue_item **item_out) {
  queue_want want = {.claim = true, .most = 1, .items = item_out};
  return queue_get_entered(queue, &want, deadline_ms);
}

/* All are claimed in one step, so they have the same token. */
int zke_queue_claim_some(zke_queue *queue, int most, int64_t deadline_ms,
                         zke_queue_item **items_out, int *count_out) {
  queue_want want = {.claim = true, .most = most, .items = items_out};
  if (!count_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "count_out is NULL");
  *count_out = 0;
  if (most < 1 || most > QUEUE_BATCH)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items, at most %d", most,
                           QUEUE_BATCH);
  int rc = queue_get_entered(queue, &want, deadline_ms);
  *count_out = want.count;
  return rc;
}

/* ---- the end of a claim ---- */

/* The claim is there, at the version that it has made (Q1), and it is this
 * object's, not a later one's of the same name (Q5). */
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

/* Make a step that ends or changes claims, as often as is needed.  Where it is
 * to be made again a claim may have gone meanwhile, and its name be that of
 * another one's (Q5): so it is looked for by its token.
 *
 *   own  so many operations of the step are the claims'
 *
 * ZKE_LOST: one of the claims is gone. */
static int queue_change_claims(zke_queue *q, queue_claim *const *claims,
                               int count, queue_step *s, int own) {
  int rc = queue_change(q, s, ZKE_FOREVER);
  while (rc == QUEUE_AGAIN) {
    rc = ZKE_OK;
    for (int i = 0; i < count && rc == ZKE_OK; i++)
      rc = queue_verify(q, claims[i]);
    if (rc == ZKE_OK) rc = queue_change(q, s, ZKE_FOREVER);
  }
  return rc < 0 && queue_was_late(s, own) ? ZKE_LOST : rc;
}

/* This object's claim of an item; ZKE_LOST: it has none. */
static int queue_own_claim(zke_queue *q, const zke_queue_item *item,
                           queue_claim ***at) {
  *at = queue_find_claim(q, item->claim_path, item->token);
  if (**at) return ZKE_OK;
  return zke_recipe_fail(ZKE_LOST,
                         "%s of the queue %s is not claimed by this object",
                         item->name, q->r.path);
}

/* Enter with a claim of this object's: *at. */
static int queue_enter_claim(zke_queue *q, const zke_queue_item *item,
                             queue_claim ***at) {
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
  const zke_op *ops; /* the caller's */
  int count;
  zke_op_result *results; /* of these, or NULL */
} queue_acks;

/* Hand out the results of the caller's own operations. */
static void queue_give_results(const queue_acks *d, queue_step *s) {
  zke_op_result *own = &s->results[s->count - d->count];
  if (!d->results || !d->count) return;
  memcpy(d->results, own, (size_t)d->count * sizeof *own);
  memset(own, 0, (size_t)d->count * sizeof *own);
}

/* Delete claims and items, and do what the caller wants with it. */
static int queue_do_ack(zke_queue *q, const queue_acks *d,
                        queue_claim *const *claims, queue_step *s) {
  zke_op *op = &s->ops[OP_FIRST];
  for (int i = 0; i < d->item_count; i++) {
    op = queue_add_unclaim(op, claims[i]);
    op = queue_add_removal(op, d->items[i]);
  }
  int own = queue_step_end(s, op);
  if (d->count) memcpy(op, d->ops, (size_t)d->count * sizeof *op);
  queue_step_end(s, op + d->count);
  int rc = queue_change_claims(q, claims, d->item_count, s, own);
  if (rc != ZKE_LOST) queue_give_results(d, s);
  return rc;
}

/* Find the claims of the items, and make the step. */
static int queue_try_ack(zke_queue *q, const queue_acks *d,
                         queue_claim **claims) {
  int rc = ZKE_OK;
  queue_claim **at;
  for (int i = 0; i < d->item_count && rc == ZKE_OK; i++) {
    rc = queue_own_claim(q, d->items[i], &at);
    claims[i] = *at;
  }
  if (rc != ZKE_OK) return rc;
  queue_step *s = queue_step_new(
      q->r.z, d->item_count * (UNCLAIM_OPS + REMOVAL_OPS) + d->count);
  rc = s ? queue_do_ack(q, d, claims, s) : ZKE_NOMEM;
  queue_step_free(s);
  return rc;
}

/* Of several items of which one is lost, the others stay claimed. */
static int queue_ack(zke_queue *q, const queue_acks *d) {
  queue_claim **claims =
      zke_alloc(q->r.z, ((size_t)d->item_count + 1) * sizeof(queue_claim *));
  int rc = claims ? queue_try_ack(q, d, claims) : ZKE_NOMEM;
  for (int i = 0; i < d->item_count; i++) {
    queue_claim **at =
        queue_find_claim(q, d->items[i]->claim_path, d->items[i]->token);
    if (rc == ZKE_OK && *at) queue_unlink_claim(at);
    if (rc == ZKE_LOST && d->item_count == 1 && *at)
      rc = queue_lost(q, at, d->items[i]);
  }
  if (rc == ZKE_LOST && d->item_count > 1)
    rc = zke_recipe_fail(rc, "one of %d items of the queue %s is lost",
                         d->item_count, q->r.path);
  zke_free(claims);
  return rc;
}

/* Acknowledge one item or several; the arguments are checked before anything
 * is touched. */
static int queue_ack_entered(zke_queue *queue, const queue_acks *d) {
  if (d->count < 0 || d->count >= INT32_MAX / 256 || (d->count && !d->ops))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d operations", d->count);
  for (int i = 0; i < d->item_count; i++)
    if (!d->items[i])
      return zke_recipe_fail(ZKE_BADARGUMENTS, "the item is NULL");
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, queue_ack(queue, d));
}

/* The item, its claim and the caller's changes are one step. */
int zke_queue_ack(zke_queue *queue, const zke_queue_item *item,
                  const zke_op *ops, int count, zke_op_result *results) {
  queue_acks d = {&item, 1, ops, count, results};
  return queue_ack_entered(queue, &d);
}

int zke_queue_ack_all(zke_queue *queue, zke_queue_item *const *items,
                      int item_count, const zke_op *ops, int count,
                      zke_op_result *results) {
  queue_acks d = {(const zke_queue_item *const *)items, item_count, ops, count,
                  results};
  if (!items || item_count < 1 || item_count > QUEUE_BATCH)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d items, at most %d", item_count,
                           QUEUE_BATCH);
  return queue_ack_entered(queue, &d);
}

/* When a claim with that marker ends, of zke_now(); NULL: for ever. */
static int64_t queue_claim_end(const char *marker) {
  queue_marker m;
  bool ends = marker && queue_parse_marker(queue_base(marker), &m);
  return ends ? m.ms : ZKE_FOREVER;
}

/* Have the claim end at another time.  Those who wait sleep until the time they
 * know, unless the claim's znode is written to: that is done where it ends
 * sooner, so that a consumer that prolongs again and again wakes nobody.  What
 * may have been made, and cannot be looked for, counts as not made: then the
 * acknowledgement finds it lost. */
static int queue_prolong(zke_queue *q, queue_claim *c,
                         const zke_queue_item *item, char *until) {
  queue_step *s = queue_step_new(q->r.z, 4);
  if (!s) return ZKE_NOMEM;
  zke_op *op = &s->ops[OP_FIRST];
  if (queue_claim_end(until) < queue_claim_end(c->until))
    zke_op_set(op++, c->path, "", 0, -1);
  else
    zke_op_check(op++, c->path, -1);
  zke_op_check(op++, item->entry_path, item->version);
  if (c->until) zke_op_delete(op++, c->until, -1);
  int own = queue_step_end(s, op);
  if (until) zke_op_create(op++, until, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  queue_step_end(s, op);
  int rc = queue_change_claims(q, &c, 1, s, own);
  queue_step_free(s);
  return rc;
}

/* The object keeps the new marker only when the step was made: otherwise the
 * claim ends when it would have. */
int zke_queue_prolong(zke_queue *queue, const zke_queue_item *item,
                      int64_t ms) {
  queue_claim **at;
  char *until = NULL;
  if (ms < 1 || (ms > QUEUE_SPAN_MOST && ms != ZKE_FOREVER))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%" PRId64 " ms", ms);
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  if (ms != ZKE_FOREVER) {
    until = queue_marker_path(queue, false, zke_now(queue->r.z) + ms,
                              item->version, item->name);
    rc = until ? ZKE_OK : ZKE_NOMEM;
  }
  if (rc == ZKE_OK) rc = queue_prolong(queue, *at, item, until);
  if (rc == ZKE_OK) {
    zke_free((*at)->until);
    (*at)->until = until;
  } else {
    zke_free(until);
  }
  if (rc == ZKE_LOST) rc = queue_lost(queue, at, item);
  return zke_recipe_leave(&queue->r, rc);
}

/* Put the item's delay in the place of its claim (Q7).  Where nobody takes the
 * item its znodes go some time after it is due. */
static zke_op *queue_add_delay(zke_op *op, const queue_claim *c,
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
static int queue_release_step(zke_queue *q, queue_claim *c,
                              const zke_queue_item *item, const char *marker,
                              int64_t delay_ms) {
  queue_step *s = queue_step_new(q->r.z, UNCLAIM_OPS + 3);
  if (!s) return ZKE_NOMEM;
  zke_op *op = queue_add_unclaim(&s->ops[OP_FIRST], c);
  zke_op_check(op++, item->entry_path, item->version);
  int own = queue_step_end(s, op);
  if (marker) op = queue_add_delay(op, c, marker, delay_ms);
  queue_step_end(s, op);
  int rc = queue_change_claims(q, &c, 1, s, own);
  queue_step_free(s);
  return rc;
}

/* Give the claim back, or bury the item after the last attempt.  ZKE_LOST: it
 * was not held. */
static int queue_give_back(zke_queue *q, queue_claim *c,
                           const zke_queue_item *item, const char *reason,
                           int64_t delay_ms) {
  int rc = QUEUE_AGAIN;
  if (queue_is_exhausted(q, item)) {
    while (rc == QUEUE_AGAIN) {
      rc = queue_bury(q, item, c, reason, ZKE_FOREVER);
      if (rc == QUEUE_AGAIN && queue_verify(q, c) == ZKE_LOST) rc = ZKE_LOST;
    }
    return rc;
  }
  char *marker = NULL;
  if (delay_ms) {
    marker = queue_marker_path(q, true, zke_wall(q->r.z) + delay_ms,
                               item->version, item->name);
    if (!marker) return ZKE_NOMEM;
  }
  rc = queue_release_step(q, c, item, marker, delay_ms);
  zke_free(marker);
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

/* Whatever is returned, the claim is not held any more. */
int zke_queue_release_after(zke_queue *queue, const zke_queue_item *item,
                            int64_t delay_ms, const char *reason) {
  queue_claim **at;
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
    rc = queue_not_given_back(queue, at, rc);
  return zke_recipe_leave(&queue->r, rc);
}

int zke_queue_fail(zke_queue *queue, const zke_queue_item *item,
                   const char *reason) {
  return zke_queue_release_after(queue, item, 0, reason);
}

int zke_queue_release(zke_queue *queue, const zke_queue_item *item) {
  return zke_queue_fail(queue, item, NULL);
}

/* The file is asked: what the object knows is as old as the last event that was
 * dispatched. */
int zke_queue_check(zke_queue *queue, const zke_queue_item *item) {
  queue_claim **at;
  int rc = queue_enter_claim(queue, item, &at);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&queue->r, queue_verify(queue, *at));
}

/* ---- without blocking ---- */

/* What an event of the listener is about; NULL: it cannot be waited for. */
static queue_wait *queue_waiting(zke_queue *q, int event) {
  return event == ZKE_QUEUE_ITEM   ? &q->taking
         : event == ZKE_QUEUE_ROOM ? &q->putting
                                   : NULL;
}

/* Begin to wait for the listener.  Where the first look fails the place in the
 * line is given up again, so that others do not count on this object. */
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

/* A second call looks anew. */
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

/* An item that is due now counts as ready, so no time is told for it: what is
 * told is the earliest moment at which a look may find more than this one. */
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
    *deadline_out = queue_next(queue, INT64_MAX / 4);
  }
  return zke_recipe_leave(&queue->r, rc);
}

/* ---- looking ---- */

/* Exhausted items are passed over, not buried: a look changes nothing. */
int zke_queue_peek(zke_queue *queue, zke_queue_item **item_out) {
  zke_queue_item *item = NULL;
  queue_page *page;
  if (!item_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "item_out is NULL");
  *item_out = NULL;
  int rc = zke_recipe_enter((zke_recipe *)queue);
  if (rc != ZKE_OK) return rc;
  rc = queue_know(queue);
  if (rc == ZKE_OK) rc = queue_pick(queue, true, ZKE_FOREVER, &page, &item);
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

/* How many dead letters there are; a missing directory has none. */
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

/* Release what queue_read_all() has read, also where that failed half-way. */
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

/* Sort all items into ready, claimed and delayed.  An item that was given back
 * with a delay has the znode of a claim, and its marker tells the two apart
 * (Q7). */
static void queue_count_items(const zke_queue *q, const queue_all *all,
                              zke_queue_counts *c) {
  int64_t now = zke_wall(q->r.z);
  c->items = all->count;
  for (int i = 0; i < all->count; i++) {
    const queue_marker *marker = queue_find_marker(q, all->order[i].name);
    bool taken = queue_is_claimed(q, all->order[i].name);
    bool given_back = taken && marker && marker->delay;
    if (given_back || (!taken && all->order[i].due_ms > now))
      c->delayed++;
    else if (taken)
      c->claimed++;
    else
      c->ready++;
  }
}

/* The items and their claims are of one moment; the rest is read after them. */
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

/* What a list is made of: for each item some reads in one snapshot. */
typedef struct queue_listing {
  const char *directory, *claims; /* claims NULL: of dead letters */
  const queue_name *order;
  int count;
  int32_t cversion; /* of the directory, as order was read */
  int each; /* so many reads: the item, then its claim and what says its key;
               or a letter, then its death */
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
  if (!l->claims) return zke_recipe_path(z, l->paths[item * l->each], "death");
  return zke_recipe_path(z, read == 1 ? l->claims : q->keys, name);
}

/* Read all that a list says, in one snapshot, and last of all the directory:
 * its cversion tells whether the names are still those that were read
 * before. */
static int queue_listing_read(zke_queue *q, queue_listing *l) {
  zke *z = q->r.z;
  l->each = l->claims ? 3 : 2;
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
    if (read == 0 || (l->claims && read == 1))
      zke_op_children(&l->ops[i], l->paths[i]); /* Stat without the data */
    else
      zke_op_get(&l->ops[i], l->paths[i]);
  }
  zke_op_get(&l->ops[reads], l->directory);
  int rc = zke_recipe_multi_read(z, l->ops, (int)count, l->reads);
  for (int i = 1; !l->claims && rc == ZKE_OK && i < reads; i += 2)
    queue_split_death(&l->reads[i]);
  return rc == ZKE_OK ? zke_sessions(z, &l->who) : rc;
}

/* Release what a list was made of, also where that failed half-way. The list
 * has copies. */
static void queue_listing_free(queue_listing *l) {
  int reads = l->each * l->count;
  for (int i = 0; l->paths && i < reads; i++) zke_free(l->paths[i]);
  if (l->reads) zke_results_clear(l->reads, reads + 1);
  zke_free(l->paths);
  zke_free(l->ops);
  zke_free(l->reads);
  zke_free(l->who);
}

/* The session of that number, of those that lived when the list was read, or
 * NULL. */
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
  e->key = queue_death(death, "key ");
}

/* Who has claimed an item, until when, and what its key is.  One whose claim is
 * over is claimed by nobody. */
static void queue_describe_claim(const zke_queue *q, const queue_listing *l,
                                 const zke_op_result *claim,
                                 zke_queue_entry *e) {
  const queue_marker *marker = queue_find_marker(q, e->name);
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

/* One line of the list; its texts are the listing's. */
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
  if (l->claims)
    queue_describe_claim(q, l, item + 1, e);
  else
    queue_describe_death(item + 1, e);
}

/* Copy a text into a block, and move behind it. The caller has counted the
 * bytes. */
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
    if (l->reads[l->each * i].rc != ZKE_OK) continue; /* gone meanwhile */
    queue_describe(q, l, i, entry);
    entry->name = queue_copy(&at, entry->name);
    entry->identity = queue_copy(&at, entry->identity);
    entry->reason = queue_copy(&at, entry->reason);
    entry->key = queue_copy(&at, entry->key);
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
  if (rc == ZKE_OK && l->reads[l->each * l->count].stat.cversion != l->cversion)
    rc = QUEUE_AGAIN;
  queue_listing_free(l);
  return rc;
}

/* A list of the items.  QUEUE_AGAIN: some came or went while it was made. */
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

/* A list of the dead letters; as queue_list(). */
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

/* The key that a letter's child tells, for zke_free(); NULL: none. */
static int queue_letter_key(zke_queue *q, const char *death, char **key_out) {
  zke_op op;
  zke_op_result r = {0};
  *key_out = NULL;
  if (!death) return ZKE_OK;
  zke_op_get(&op, death);
  int rc = zke_recipe_multi_read(q->r.z, &op, 1, &r);
  if (rc == ZKE_OK) {
    queue_split_death(&r);
    const char *key = queue_death(&r, "key ");
    if (*key) *key_out = zke_recipe_copy(q->r.z, key, strlen(key));
    rc = *key && !*key_out ? ZKE_NOMEM : ZKE_OK;
  }
  zke_results_clear(&r, 1);
  return rc;
}

/* A dead letter is put like anything else, and deleted in the same step. */
static int queue_requeue(zke_queue *q, const queue_name *n,
                         int64_t deadline_ms) {
  zke_queue_value value = {NULL, -1};
  char *data = NULL, *letter = NULL, *death = NULL, *key = NULL;
  int rc = queue_ready(q, deadline_ms);
  if (rc == ZKE_OK) rc = queue_letter(q, n->name, &letter, &death);
  if (rc == ZKE_OK) rc = queue_letter_key(q, death, &key);
  if (rc == ZKE_OK)
    rc = zke_get(q->r.z, letter, NULL, NULL, &data, &value.len, NULL);
  value.data = data;
  queue_load load = {.values = &value,
                     .count = 1,
                     .priority = n->priority,
                     .mode = ZKE_PERSISTENT_SEQUENTIAL,
                     .key = key,
                     .letter = letter,
                     .death = death};
  if (rc == ZKE_OK) rc = queue_put(q, &load, deadline_ms);
  zke_free(data);
  zke_free(key);
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

/* Where another puts the letter back or drops it meanwhile, the step fails, and
 * nothing is doubled. */
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
  zke_strings *line, *claims, *keys;
  char **paths;
  zke_op *ops;
  int count;
} queue_rest;

/* Add the paths of a directory's children to what is to be deleted.  The count
 * is raised even where there is no memory, so that what was added is freed. */
static int queue_add_names(zke_queue *q, queue_rest *l, const char *directory,
                           const zke_strings *names) {
  for (int i = 0; names && i < names->count; i++) {
    l->paths[l->count] = zke_recipe_path(q->r.z, directory, names->data[i]);
    if (!l->paths[l->count++]) return ZKE_NOMEM;
  }
  return ZKE_OK;
}

/* How many names a reading has brought; of a missing directory, none. */
static size_t queue_count_names(const zke_strings *names) {
  return names ? (size_t)names->count : 0;
}

/* First what stands in the line, in "taken" and in "keys", then the directories
 * from below. */
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
  zke_free(l.keys);
  return rc == ZKE_NONODE || rc == ZKE_NOTEMPTY ? QUEUE_AGAIN : rc;
}

typedef struct queue_end {
  zke_queue *q;
  bool only_empty;
} queue_end;

/* One try to destroy the queue: the items by parts, as there may be many, and
 * what remains in one step.  After a lost reply the next try finds less. */
static int queue_try_destroy(zke *z, void *arg) {
  const queue_end *e = arg;
  zke_queue *q = e->q;
  (void)z;
  int rc = e->only_empty ? queue_see_empty(q) : ZKE_OK;
  if (rc == ZKE_OK && !e->only_empty) rc = queue_clear(q, q->entries, NULL);
  if (rc == ZKE_OK && !e->only_empty) rc = queue_clear(q, q->dead, "death");
  if (rc == ZKE_OK && !e->only_empty) rc = queue_clear(q, q->keys, NULL);
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
