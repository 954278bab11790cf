/* zk_watch.c - a session's watchers in memory
 *
 * Two hash tables lead to the watches: by path, since an event names a path,
 * and by pair, since a caller takes back a whole pair.  The tables have a fixed
 * number of buckets, so entering a watch needs no memory.
 *
 * Invariants:
 *   1. A pair lives while it has a watch, a time, or a call that is due;
 *      pair_release() checks this after each of them has gone.
 *   2. w->pending is the number of targets in the queue that have a pair.
 *   3. An event stays in the queue until all of its targets were called and
 *      have returned: event->running counts those that have not.
 *
 * Rules 1 to 4 are in zk_watch.h.  Nothing here calls a watcher, and nothing
 * blocks: each call to make is returned as a zk_target, and the caller releases
 * its lock for the call.  So between zke_watcher_next() and zke_watcher_done()
 * anything here may change; the target relies on the event's `running` and its
 * copy of the path. */
#include "zk_watch.h"

#include <stdlib.h>
#include <string.h>

/* A watch is in two lists, of its path's bucket and of its pair; watch_unlink()
 * takes it out of both. */
struct zk_watch {
  zk_watch *next;      /* of its bucket of paths */
  zk_watch *pair_next; /* of its pair */
  zk_pair *pair;       /* never NULL */
  enum zk_watch_kind kind;
  char path[];
};

struct zk_pair {
  zk_pair *next; /* of its bucket */
  zke_watch_fn fn;
  void *context;
  zk_watch *watches; /* the entered ones */
  int held;          /* watches that are not entered, and calls that are due */
  int64_t alarm_ms;  /* ZKE_FOREVER: none */
  bool has_alarm;    /* it has had a time: stays set until forgotten */
  bool owed;         /* it must be told w->round_type */
  uint64_t stamp;    /* of the latest event that calls it */
};

/* A pair that an event calls. */
typedef struct event_target {
  zk_pair *pair; /* NULL: called, or taken back */
  int tables;    /* ZKE_WATCH_CHILD and _DATA: which watches matched */
} event_target;

/* The path and the targets are in the event's block, so releasing a watch or a
 * pair does not touch an event that is being delivered. */
struct zk_event {
  zk_event *next;
  int type, running;
  /* zxid: for the watcher, 0 if no server has sent it; least: for the
   * comparison in zke_watcher_next() */
  int64_t zxid, least;
  size_t count, at; /* targets, and the next one */
  char *path;       /* after the targets */
  event_target targets[];
};

/* ---- tables ----
 *
 * Watches by path and pairs by function and context.  A watch is first made
 * (fresh: its request is on the way), then entered.  The functions here keep
 * invariant 1. */

/* FNV-1a: its first value, its factor, and the inverse of the factor, modulo
 * 2^64. */
#define HASH_FIRST UINT64_C(14695981039346656037)
#define HASH_PRIME UINT64_C(1099511628211)
#define HASH_BACK UINT64_C(0xce965057aff6957b)

/* The hash with one more byte. */
static uint64_t hash_add(uint64_t hash, char byte) {
  return (hash ^ (unsigned char)byte) * HASH_PRIME;
}

/* The hash without its last byte.  An event looks at each path above its own,
 * from below: so a long path from a server is walked once, not once for each of
 * its parts. */
static uint64_t hash_remove(uint64_t hash, char byte) {
  return hash * HASH_BACK ^ (unsigned char)byte;
}

static uint64_t path_hash(const char *path) {
  uint64_t hash = HASH_FIRST;
  for (; *path; path++) hash = hash_add(hash, *path);
  return hash;
}

static size_t hash_bucket(uint64_t hash) {
  return (size_t)(hash >> 20) % ZK_WATCH_BUCKETS;
}

/* Find the bucket of a path. */
static size_t path_bucket(const char *path) {
  return hash_bucket(path_hash(path));
}

/* The bucket of a pair.  C has no arithmetic on function pointers, so the bytes
 * are hashed. */
static size_t pair_bucket(zke_watch_fn fn, const void *context) {
  unsigned char bytes[sizeof fn];
  uint64_t hash = (uint64_t)(uintptr_t)context >> 4;
  memcpy(bytes, &fn, sizeof fn);
  for (size_t i = 0; i < sizeof bytes; i++) hash = hash * 31 + bytes[i];
  return (size_t)hash % ZK_WATCH_BUCKETS;
}

/* The pair, or NULL if nothing refers to it. */
static zk_pair *pair_find(const zk_watches *w, zke_watch_fn fn,
                          const void *context) {
  zk_pair *p = w->pairs[pair_bucket(fn, context)];
  while (p && (p->fn != fn || p->context != context)) p = p->next;
  return p;
}

/* Find the pair, or make it; NULL without memory. */
static zk_pair *pair_get(zk_watches *w, zke_watch_fn fn, void *context) {
  zk_pair *p = pair_find(w, fn, context);
  if (p) return p;
  p = calloc(1, sizeof *p);
  if (!p) return NULL;
  p->fn = fn;
  p->context = context;
  p->alarm_ms = ZKE_FOREVER;
  zk_pair **bucket = &w->pairs[pair_bucket(fn, context)];
  p->next = *bucket;
  *bucket = p;
  return p;
}

/* Release the pair if nothing refers to it any more (invariant 1).  Each
 * function that takes the last watch, call, time or debt from a pair calls this
 * afterwards.  NULL is fine. */
static void pair_release(zk_watches *w, zk_pair *p) {
  if (!p || p->watches || p->held || p->has_alarm || p->owed) return;
  zk_pair **at = &w->pairs[pair_bucket(p->fn, p->context)];
  while (*at && *at != p) at = &(*at)->next;
  if (*at) *at = p->next;
  free(p);
}

/* w->alarms counts the pairs that have a time, to avoid searches in vain. */
static void pair_set_alarm(zk_watches *w, zk_pair *p, int64_t when_ms) {
  if (p->alarm_ms != ZKE_FOREVER) w->alarms--;
  if (when_ms != ZKE_FOREVER) w->alarms++;
  p->alarm_ms = when_ms;
}

/* Is a watch of this kind in one of the type's tables?  A watch that stays is
 * in both: it hears of data and of children. */
static bool kind_is_in(enum zk_watch_kind kind, int type) {
  if (kind == ZK_WATCH_CHILD) return (type & ZKE_WATCH_CHILD) != 0;
  if (kind == ZK_WATCH_DATA || kind == ZK_WATCH_EXIST)
    return (type & ZKE_WATCH_DATA) != 0;
  return true;
}

/* The kinds of zke_add_watch() come last in the enum: they stay, the others
 * fire once. */
static bool kind_stays(enum zk_watch_kind kind) {
  return kind >= ZK_WATCH_PERSISTENT;
}

/* Take a watch out of both tables and release it, but not its pair: the caller
 * may need that, or releases it later. */
static void watch_unlink(zk_watches *w, zk_watch *entry) {
  zk_watch **at = &w->paths[path_bucket(entry->path)];
  while (*at != entry) at = &(*at)->next;
  *at = entry->next;
  for (at = &entry->pair->watches; *at != entry;) at = &(*at)->pair_next;
  *at = entry->pair_next;
  w->count--;
  free(entry);
}

/* Release a watch, and its pair if nothing else refers to that. */
static void watch_remove(zk_watches *w, zk_watch *entry) {
  zk_pair *p = entry->pair;
  watch_unlink(w, entry);
  pair_release(w, p);
}

/* Allocate all memory that the watch will need, including its pair's.  The pair
 * counts the watch as held, so it stays.  A fresh watch is in no table, and no
 * event finds it; it only keeps zke_watcher_needed() from removing the server's
 * watch. */
zk_watch *zke_watcher_new(zk_watches *w, const char *path, zke_watch_fn fn,
                          void *context) {
  size_t len = strlen(path);
  zk_watch *entry = calloc(1, sizeof *entry + len + 1);
  zk_pair *p = entry ? pair_get(w, fn, context) : NULL;
  if (!p) {
    free(entry);
    return NULL;
  }
  entry->pair = p;
  p->held++;
  memcpy(entry->path, path, len);
  entry->next = w->fresh;
  w->fresh = entry;
  return entry;
}

/* It is no longer fresh. */
static void fresh_unlink(zk_watches *w, const zk_watch *entry) {
  zk_watch **at = &w->fresh;
  while (*at != entry) at = &(*at)->next;
  *at = entry->next;
}

/* The request has failed, or the pair has such a watch already. */
void zke_watcher_drop(zk_watches *w, zk_watch *entry) {
  if (!entry) return;
  zk_pair *p = entry->pair;
  fresh_unlink(w, entry);
  p->held--;
  free(entry);
  pair_release(w, p);
}

/* Give all watches that stay on a path this mode: a server has one mode for
 * each connection and path, and a later one replaces the earlier
 * (doc/semantics.md 5.7). */
static void change_modes(zk_watches *w, const char *path,
                         enum zk_watch_kind kind) {
  for (zk_watch *at = w->paths[path_bucket(path)]; at; at = at->next) {
    if (kind_stays(at->kind) && strcmp(at->path, path) == 0) at->kind = kind;
  }
}

/* The pair's watch of this path and kind; NULL: it has none. */
static zk_watch *pair_watch(const zk_pair *p, const char *path,
                            enum zk_watch_kind kind) {
  zk_watch *at = p->watches;
  while (at && (at->kind != kind || strcmp(at->path, path) != 0))
    at = at->pair_next;
  return at;
}

/* Nothing here can fail, so if a reply has set a watch on the server, it is
 * always entered here.  A new watch goes to the end of its bucket: watchers are
 * called in the order in which they were registered. */
bool zke_watcher_put(zk_watches *w, zk_watch *entry, enum zk_watch_kind kind) {
  zk_pair *p = entry->pair;
  zk_watch **bucket = &w->paths[path_bucket(entry->path)];
  if (kind_stays(kind)) change_modes(w, entry->path, kind);
  if (pair_watch(p, entry->path, kind)) {
    zke_watcher_drop(w, entry);
    return false;
  }
  fresh_unlink(w, entry);
  entry->kind = kind;
  entry->next = NULL;
  while (*bucket) bucket = &(*bucket)->next; /* called in their order */
  *bucket = entry;
  entry->pair_next = p->watches;
  p->watches = entry;
  p->held--;
  w->count++;
  return true;
}

/* For a watch that was entered before its request, if the request has failed.
 * An event may have used it up. */
void zke_watcher_take(zk_watches *w, const char *path, enum zk_watch_kind kind,
                      zke_watch_fn fn, void *context) {
  const zk_pair *p = pair_find(w, fn, context);
  zk_watch *entry = p ? pair_watch(p, path, kind) : NULL;
  if (entry) watch_remove(w, entry);
}

/* ---- events ----
 *
 * An event that comes finds its watches, uses up those that fire once, and
 * waits in the queue with the pairs that it calls. Begin at zke_watcher_event()
 * and zke_watcher_next(). */

/* Does the watch wait for this event?  own: it happened at the watch's path;
 * false: below it, which only a recursive watch hears of.  These are the rules
 * of doc/semantics.md 5.5. */
static bool watch_matches(const zk_watch *entry, int type, bool own) {
  switch (entry->kind) {
    case ZK_WATCH_DATA:
    case ZK_WATCH_EXIST:
      return own && type != ZKE_EVENT_CHILD;
    case ZK_WATCH_CHILD:
      return own && (type == ZKE_EVENT_CHILD || type == ZKE_EVENT_DELETED);
    case ZK_WATCH_PERSISTENT:
      return own;
    case ZK_WATCH_RECURSIVE:
      return type != ZKE_EVENT_CHILD;
    case ZK_WATCH_KINDS:
      break;
  }
  return false;
}

/* The tables that a call of such a watch belongs to, for taking it back. */
static int kind_tables(enum zk_watch_kind kind) {
  if (kind == ZK_WATCH_CHILD) return ZKE_WATCH_CHILD;
  return kind_stays(kind) ? ZKE_WATCH_ANY : ZKE_WATCH_DATA;
}

/* A walk over the watches that an event calls: first to count them, then to
 * enter them.  Both passes see the same watches, since nothing happens in
 * between. */
typedef struct gathering {
  zk_watches *w;
  int type;
  size_t count;
  zk_event *event; /* NULL: only count */
} gathering;

/* Count one matching watch, or enter its pair.  The stamp is the event's
 * number: a pair that has it was entered already for this event (rule 1), and
 * only gets another table.  So the count may be too high, which costs a little
 * memory. */
static void gather_one(gathering *g, zk_watch *entry) {
  zk_pair *p = entry->pair;
  zk_event *e = g->event;
  if (!e) {
    g->count++;
    return;
  }
  if (p->stamp != g->w->stamp) {
    p->stamp = g->w->stamp;
    p->held++;
    e->targets[e->count++] = (event_target){p, 0};
    g->w->pending++;
  }
  for (size_t i = 0; i < e->count; i++) {
    if (e->targets[i].pair == p)
      e->targets[i].tables |= kind_tables(entry->kind);
  }
}

/* The watches on the first len bytes of a path, in the bucket of their hash;
 * own: on the path itself.  One-shot watches are used up once they are entered.
 */
static void gather_at(gathering *g, const char *path, size_t len, uint64_t hash,
                      bool own) {
  zk_watch *next, *at = g->w->paths[hash_bucket(hash)];
  for (; at; at = next) {
    next = at->next;
    if (strncmp(at->path, path, len) != 0 || at->path[len]) continue;
    if (!watch_matches(at, g->type, own)) continue;
    gather_one(g, at);
    if (g->event && !kind_stays(at->kind)) watch_remove(g->w, at);
  }
}

/* The path itself, then each path above it up to the root, for recursive
 * watches. */
static void gather(gathering *g, const char *path) {
  size_t len = strlen(path);
  uint64_t hash = path_hash(path);
  gather_at(g, path, len, hash, true);
  while (len > 1) {
    do hash = hash_remove(hash, path[--len]);
    while (len && path[len] != '/');
    if (!len) hash = hash_add(hash, path[len++]);
    gather_at(g, path, len, hash, false);
  }
}

/* Room for an event with so many targets; NULL without memory.  It is put into
 * the queue now: the caller fills in the targets before anything else can look.
 */
static zk_event *event_new(zk_watches *w, size_t count, int type,
                           const char *path, int64_t zxid, int64_t least) {
  size_t size = sizeof(zk_event) + count * sizeof(event_target);
  zk_event *e = calloc(1, size + strlen(path) + 1);
  if (!e) return NULL;
  e->path = (char *)e + size;
  memcpy(e->path, path, strlen(path));
  e->type = type;
  e->zxid = zxid;
  e->least = least;
  w->stamp++;
  *w->end = e;
  w->end = &e->next;
  return e;
}

/* Rule 4: drop all events, and tell each pair.  Needs no memory, since memory
 * may be what is missing. */
static void overflow(zk_watches *w) {
  zke_watcher_tell_all(w, ZKE_EVENT_OVERFLOW);
}

/* Decide which pairs the event calls (rule 2), in two passes.  The first one
 * only counts: so the event is one block, and without memory for it nothing has
 * changed. */
bool zke_watcher_event(zk_watches *w, int type, const char *path, int64_t zxid,
                       int64_t least) {
  gathering g = {.w = w, .type = type};
  gather(&g, path);
  if (!g.count) return true;
  g.event = event_new(w, g.count, type, path, zxid, least);
  if (g.event) gather(&g, path);
  bool kept = g.event && w->pending <= w->limit;
  if (!kept) overflow(w);
  return kept;
}

/* Release finished events (invariant 3).  Not only from the front: an event
 * with a long call must not keep later ones.  A call that was taken back is
 * finished, too, though no dispatch has reached it. */
static void events_trim(zk_watches *w) {
  for (zk_event **at = &w->first; *at;) {
    zk_event *e = *at;
    while (e->at < e->count && !e->targets[e->at].pair) e->at++;
    if (e->at < e->count || e->running) {
      at = &e->next;
      continue;
    }
    *at = e->next;
    if (w->end == &e->next) w->end = at;
    free(e);
  }
}

/* A target is called, or taken back: the queue no longer refers to its pair.
 * Returns the pair, for the caller to give to pair_release(); NULL if it was
 * taken already. */
static zk_pair *target_take(zk_watches *w, event_target *t) {
  zk_pair *p = t->pair;
  if (!p) return NULL;
  t->pair = NULL;
  w->pending--;
  p->held--;
  return p;
}

/* The oldest event whose change is known to be early enough; later ones wait
 * for it (rule 3).  The target is counted as running; call zke_watcher_done()
 * afterwards, or the event stays for ever. */
bool zke_watcher_next(zk_watches *w, int64_t most, zk_target *out) {
  for (zk_event *e = w->first; e && e->least <= most; e = e->next) {
    while (e->at < e->count) {
      zk_pair *p = target_take(w, &e->targets[e->at++]);
      if (!p) continue;
      e->running++;
      *out = (zk_target){p->fn, p->context, e->type, e->path, e->zxid, e};
      pair_release(w, p);
      return true;
    }
  }
  events_trim(w);
  return false;
}

/* The callback has returned.  An alarm, and an event for each pair, have no
 * event to count. */
void zke_watcher_done(zk_watches *w, const zk_target *t) {
  if (!t->event) return;
  t->event->running--;
  events_trim(w);
}

/* Is a path the same as another one, or below it? */
static bool path_is_below(const char *path, const char *top) {
  size_t len = strlen(top);
  if (len == 1) return true;
  return strncmp(path, top, len) == 0 && (path[len] == '/' || !path[len]);
}

/* An event stays in the queue while its watchers run, so it counts until the
 * last of them has returned. */
int zke_watcher_untold(const zk_watches *w, const char *path,
                       void (*add)(void *arg, const char *path), void *arg) {
  int count = 0;
  for (const zk_event *e = w->first; e; e = e->next) {
    if (!path_is_below(e->path, path)) continue;
    count++;
    if (add) add(arg, e->path);
  }
  return count;
}

/* ---- taking back ----
 *
 * For zke_check_watch(), zke_remove_watch() and zke_forget().  The server's
 * watch belongs to the connection, not to a pair: it goes when no pair needs it
 * any more. */

/* Does the query mean this watch? */
static bool query_has(const zk_watch_query *q, const zk_watch *entry) {
  if (strcmp(entry->path, q->path) != 0) return false;
  if (!kind_is_in(entry->kind, q->type)) return false;
  return !q->fn ||
         (entry->pair->fn == q->fn && entry->pair->context == q->context);
}

/* Does the query mean this call of a one-shot watch?  Calls of a watch that
 * stays go with the watch. */
static bool query_has_target(const zk_watch_query *q, const zk_event *e,
                             const event_target *t) {
  if (!t->pair || strcmp(e->path, q->path) != 0) return false;
  if (!(t->tables & q->type)) return false;
  return !q->fn || (t->pair->fn == q->fn && t->pair->context == q->context);
}

/* Searches the watches and the calls that are due: to the program, a one-shot
 * watch exists until it is called, even if its event has come. */
bool zke_watcher_find(const zk_watches *w, const zk_watch_query *q) {
  const zk_watch *at = w->paths[path_bucket(q->path)];
  for (; at; at = at->next) {
    if (query_has(q, at)) return true;
  }
  for (const zk_event *e = w->first; e; e = e->next) {
    for (size_t i = e->at; i < e->count; i++) {
      if (query_has_target(q, e, &e->targets[i])) return true;
    }
  }
  return false;
}

/* Another pair's watch of the same table needs it.  So does every watch of the
 * path that is not entered yet: the server handles requests in order, and would
 * set it before the removal. */
bool zke_watcher_needed(const zk_watches *w, const zk_watch_query *q,
                        int table) {
  const zk_watch *at = w->paths[path_bucket(q->path)];
  for (; at; at = at->next) {
    if (strcmp(at->path, q->path) == 0 && kind_is_in(at->kind, table) &&
        !query_has(q, at)) {
      return true;
    }
  }
  for (at = w->fresh; at; at = at->next) {
    if (strcmp(at->path, q->path) == 0) return true;
  }
  return false;
}

/* Removes watches, and the pending calls of one-shot watches. */
void zke_watcher_remove(zk_watches *w, const zk_watch_query *q) {
  zk_watch *next, *at = w->paths[path_bucket(q->path)];
  for (; at; at = next) {
    next = at->next;
    if (query_has(q, at)) watch_remove(w, at);
  }
  for (zk_event *e = w->first; e; e = e->next) {
    for (size_t i = e->at; i < e->count; i++) {
      if (query_has_target(q, e, &e->targets[i]))
        pair_release(w, target_take(w, &e->targets[i]));
    }
  }
  events_trim(w);
}

/* Take the pair's calls out of the queue, or all calls if pair is NULL.  With
 * NULL, pairs are released if nothing else refers to them; a named pair stays,
 * as its caller still needs it. */
static void queue_drop(zk_watches *w, const zk_pair *pair) {
  for (zk_event *e = w->first; e; e = e->next) {
    for (size_t i = e->at; i < e->count; i++) {
      zk_pair *p = e->targets[i].pair;
      if (!p || (pair && p != pair)) continue;
      target_take(w, &e->targets[i]);
      if (!pair) pair_release(w, p);
    }
  }
  events_trim(w);
}

/* Removes everything of a pair, including events owed to it, such as the
 * session's end. */
void zke_watcher_forget(zk_watches *w, zke_watch_fn fn, void *context) {
  zk_pair *p = pair_find(w, fn, context);
  if (!p) return;
  while (p->watches) watch_unlink(w, p->watches);
  queue_drop(w, p);
  p->has_alarm = false;
  pair_set_alarm(w, p, ZKE_FOREVER);
  p->owed = false;
  pair_release(w, p);
}

/* ---- times ----
 *
 * zke_call_at(): each pair may have one time.  It is not a watch, and no server
 * is involved. */

/* A pair has one time: a later request replaces the earlier. */
bool zke_watcher_alarm(zk_watches *w, int64_t when_ms, zke_watch_fn fn,
                       void *context) {
  zk_pair *p = pair_get(w, fn, context);
  if (!p) return false;
  pair_set_alarm(w, p, when_ms);
  p->has_alarm = true;
  return true;
}

/* Find the pair with the earliest time; NULL: none has one.  It looks at all
 * pairs, but at none if no pair has a time, as is nearly always the case: a
 * handle asks at each step. */
static zk_pair *earliest(const zk_watches *w) {
  zk_pair *found = NULL;
  for (size_t i = 0; w->alarms && i < ZK_WATCH_BUCKETS; i++) {
    for (zk_pair *p = w->pairs[i]; p; p = p->next) {
      if (p->alarm_ms < (found ? found->alarm_ms : ZKE_FOREVER)) found = p;
    }
  }
  return found;
}

int64_t zke_watcher_next_due(const zk_watches *w) {
  const zk_pair *p = earliest(w);
  return p ? p->alarm_ms : ZKE_FOREVER;
}

/* The time is cleared before the call, so the callback may ask for another. */
bool zke_watcher_next_alarm(zk_watches *w, int64_t now_ms, zk_target *out) {
  zk_pair *p = earliest(w);
  if (!p || p->alarm_ms > now_ms) return false;
  pair_set_alarm(w, p, ZKE_FOREVER);
  *out = (zk_target){p->fn, p->context, ZKE_EVENT_ALARM, "", 0, NULL};
  return true;
}

/* ---- events for all pairs ----
 *
 * The session's end and an overflow are owed to each pair once.  The debt is a
 * mark in the pair, not an entry in the queue, so it needs no memory. */

/* Release the pair's one-shot watches, or all. */
static void pair_clear(zk_watches *w, zk_pair *p, bool all) {
  zk_watch *next, *at = p->watches;
  for (; at; at = next) {
    next = at->pair_next;
    if (all || !kind_stays(at->kind)) watch_unlink(w, at);
  }
}

/* Does the pair have a watch that stays? */
static bool pair_has_kept(const zk_pair *p) {
  const zk_watch *at = p->watches;
  while (at && !kind_stays(at->kind)) at = at->pair_next;
  return at != NULL;
}

/* Mark each pair as owed the event, then release its watches.  It takes two
 * passes: the debt keeps a pair that has lost its last watch.  The session's
 * end overrides an overflow that is still to be told, since round_type says
 * what the debt is for.  Calls that are due stay at the session's end: they
 * happened before it. */
void zke_watcher_tell_all(zk_watches *w, int type) {
  bool ends = type == ZKE_EVENT_SESSION;
  for (size_t i = 0; i < ZK_WATCH_BUCKETS; i++) {
    for (zk_pair *p = w->pairs[i]; p; p = p->next) {
      if (!p->watches && !p->has_alarm && !p->held) continue;
      p->owed = true;
      if (ends) pair_set_alarm(w, p, ZKE_FOREVER);
    }
  }
  for (size_t i = 0; i < ZK_WATCH_BUCKETS; i++) {
    for (zk_pair *p = w->pairs[i]; p; p = p->next) pair_clear(w, p, ends);
  }
  if (!ends) queue_drop(w, NULL);
  w->round_type = type;
}

/* Only pairs with a watch that stays may have missed something: the server
 * tells one-shot watches what they have missed. */
bool zke_watcher_tell_kept(zk_watches *w) {
  bool any = false;
  if (w->round_type == ZKE_EVENT_SESSION) return false;
  for (size_t i = 0; i < ZK_WATCH_BUCKETS; i++) {
    for (zk_pair *p = w->pairs[i]; p; p = p->next) {
      if (pair_has_kept(p)) any = p->owed = true;
    }
  }
  if (any) w->round_type = ZKE_EVENT_OVERFLOW;
  return any;
}

/* The round ends when no pair is owed anything.  A pair that begins to watch in
 * the meantime is owed nothing: it has missed nothing. */
bool zke_watcher_next_told(zk_watches *w, zk_target *out) {
  for (size_t i = 0; w->round_type && i < ZK_WATCH_BUCKETS; i++) {
    for (zk_pair *p = w->pairs[i]; p; p = p->next) {
      if (!p->owed) continue;
      p->owed = false;
      *out = (zk_target){p->fn, p->context, w->round_type, "", 0, NULL};
      pair_release(w, p);
      return true;
    }
  }
  w->round_type = 0;
  return false;
}

/* For zke_forget(): watches that stay would keep sending events that nobody
 * needs.  A one-shot watch sends at most one, and is left alone. */
void zke_watcher_of_pair(const zk_watches *w, zke_watch_fn fn, void *context,
                         void (*each)(void *arg, const char *path), void *arg) {
  const zk_pair *p = pair_find(w, fn, context);
  for (const zk_watch *at = p ? p->watches : NULL; at; at = at->pair_next) {
    zk_watch_query q = {at->path, ZKE_WATCH_ANY, fn, context};
    if (kind_stays(at->kind) && !zke_watcher_needed(w, &q, ZKE_WATCH_CHILD) &&
        !zke_watcher_needed(w, &q, ZKE_WATCH_DATA)) {
      each(arg, at->path);
    }
  }
}

/* Is this the first watch of its path and kind in its bucket? */
static bool watch_is_first(const zk_watch *at, const zk_watch *bucket) {
  while (bucket != at &&
         (bucket->kind != at->kind || strcmp(bucket->path, at->path) != 0))
    bucket = bucket->next;
  return bucket == at;
}

/* For setting all of them again, in the order of the buckets.  A path that
 * several pairs watch is given once: a server sends missed events as often as
 * it is asked. */
void zke_watcher_each(const zk_watches *w,
                      void (*fn)(void *arg, const char *path,
                                 enum zk_watch_kind kind),
                      void *arg) {
  for (size_t i = 0; w->count && i < ZK_WATCH_BUCKETS; i++) {
    for (const zk_watch *at = w->paths[i]; at; at = at->next)
      if (watch_is_first(at, w->paths[i])) fn(arg, at->path, at->kind);
  }
}

/* ---- beginning and end ---- */

/* Allocates nothing, so it cannot fail. */
void zke_watchers_init(zk_watches *w, int limit) {
  memset(w, 0, sizeof *w);
  w->end = &w->first;
  w->limit = limit;
}

/* Also releases an event whose call has never returned, since its thread ended
 * in it. */
void zke_watchers_free(zk_watches *w) {
  queue_drop(w, NULL);
  while (w->fresh) zke_watcher_drop(w, w->fresh);
  for (size_t i = 0; i < ZK_WATCH_BUCKETS; i++) {
    while (w->pairs[i]) {
      zk_pair *p = w->pairs[i];
      pair_clear(w, p, true);
      w->pairs[i] = p->next;
      free(p);
    }
  }
  for (zk_event *e = w->first; e; e = w->first) { /* its call never returned */
    w->first = e->next;
    free(e);
  }
}
