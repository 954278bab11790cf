/* zk_watch.h - for zookeeper.c: a session's watchers in memory
 *
 * A server only says that something happened at a path.  This pair of files
 * knows which functions to call for it: the tables of watches by ZooKeeper's
 * rules (doc/semantics.md 5.5), the events that were not delivered yet, and the
 * times of zke_call_at().  It takes no lock and makes no system call: the
 * caller holds its own lock, and calls the watchers itself.
 *
 *     zk_watches w;
 *     zk_target t;
 *     zke_watchers_init(&w, 10000);
 *     // before the call
 *     zk_watch *entry = zke_watcher_new(&w, "/a", fn, context);
 *     // its success, and later an event
 *     zke_watcher_put(&w, entry, ZK_WATCH_DATA);
 *     zke_watcher_event(&w, ZKE_EVENT_CHANGED, "/a", 0, 0);
 *     while (zke_watcher_next(&w, INT64_MAX, &t)) {
 *       t.fn(z, t.type, ZKE_STATE_CONNECTED, t.path, t.context);
 *       zke_watcher_done(&w, &t);
 *     }
 *     zke_watchers_free(&w);
 *
 * RULES
 *   1. A pair of function and context is one watcher: one event calls it once,
 *      however many of its watches match.
 *   2. An event chooses its watchers when it comes, not when it is delivered.
 *      A one-shot watch is used up then; one that is set after that is new.
 *   3. Events are delivered in the order in which they came.
 *   4. If an event cannot be kept (no memory, the limit), this is reported: all
 *      events are dropped, the one-shot watches go, and each watcher gets
 *      ZKE_EVENT_OVERFLOW.
 */
#ifndef ZKE_ZK_WATCH_H
#define ZKE_ZK_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tables, in the order of the lists of setWatches2. */
enum zk_watch_kind {
  ZK_WATCH_DATA,       /* get; exists of an existing node */
  ZK_WATCH_EXIST,      /* exists of a missing node */
  ZK_WATCH_CHILD,      /* children */
  ZK_WATCH_PERSISTENT, /* zke_add_watch() */
  ZK_WATCH_RECURSIVE,
  ZK_WATCH_KINDS
};

enum { ZK_WATCH_BUCKETS = 1024 };

/* A watcher: a function and its context.  It exists as long as anything here
 * refers to it. */
typedef struct zk_pair zk_pair;

/* A watch of a pair on a path.  Until zke_watcher_put() it is in no table. */
typedef struct zk_watch zk_watch;

/* An event, with the pairs that it calls. */
typedef struct zk_event zk_event;

typedef struct zk_watches {
  zk_watch *paths[ZK_WATCH_BUCKETS]; /* watches, by their path */
  zk_pair *pairs[ZK_WATCH_BUCKETS];  /* pairs, by both of its members */
  zk_event *first, **end;            /* events, the oldest first */
  int pending, limit;                /* calls that are due, and their limit */
  size_t count;                      /* watches in the tables */
  zk_watch *fresh;                   /* watches in no table yet */
  int alarms;                        /* pairs with a time set */
  uint64_t stamp;                    /* of the latest event */
  int round_type;                    /* an event that each pair must be told, or
                                        0 */
} zk_watches;

/* The next call to make.  The path is valid until zke_watcher_done(). */
typedef struct zk_target {
  zke_watch_fn fn;
  void *context;
  int type; /* ZKE_EVENT_… */
  const char *path;
  int64_t zxid;    /* of the event, as given to zke_watcher_event() */
  zk_event *event; /* NULL: an alarm, or an event for each pair */
} zk_target;

/* zke_watchers_init - no watch, no event; limit: calls that may be due at once
 * zke_watchers_free - release all of it */
void zke_watchers_init(zk_watches *w, int limit);
void zke_watchers_free(zk_watches *w);

/* zke_watcher_new  - allocate a watch, so setting it later cannot fail;
 *                    NULL without memory
 * zke_watcher_put  - enter it; released instead if the pair has such a watch.
 *                    true: it was entered
 * zke_watcher_take - take a watch of this kind back, if it still exists
 * zke_watcher_drop - release one that was not entered; NULL is fine
 *
 * A watch that stays replaces the watches of the other mode on its path, of all
 * pairs: they get its mode. */
zk_watch *zke_watcher_new(zk_watches *w, const char *path, zke_watch_fn fn,
                          void *context);
bool zke_watcher_put(zk_watches *w, zk_watch *entry, enum zk_watch_kind kind);
void zke_watcher_take(zk_watches *w, const char *path, enum zk_watch_kind kind,
                      zke_watch_fn fn, void *context);
void zke_watcher_drop(zk_watches *w, zk_watch *entry);

/* zke_watcher_event - an event has come: queue it for its watchers
 *
 *   zxid   of the change; 0: not known
 *   least  a lower bound of it: see zke_watcher_next()
 *
 * false: all events were dropped, and each pair must be told so (rule 4). */
bool zke_watcher_event(zk_watches *w, int type, const char *path, int64_t zxid,
                       int64_t least);

/* zke_watcher_next - the next call that is due for an event of a change up to
 *                    the zxid `most`; false: none
 * zke_watcher_done - it has returned */
bool zke_watcher_next(zk_watches *w, int64_t most, zk_target *out);
void zke_watcher_done(zk_watches *w, const zk_target *t);

/* zke_watcher_untold - paths of undelivered events at a path and below it
 *
 * Calls add() with each in order; returns how many there are.  Includes an
 * event whose watchers are being called. */
int zke_watcher_untold(const zk_watches *w, const char *path,
                       void (*add)(void *arg, const char *path), void *arg);

/* A query for zke_check_watch() and its like: watches on a path in the tables
 * of a type (ZKE_WATCH_CHILD, _DATA, _ANY), of a pair, or of all if fn is NULL.
 * Calls that are due count, too. */
typedef struct zk_watch_query {
  const char *path;
  int type;
  zke_watch_fn fn;
  void *context;
} zk_watch_query;

/* zke_watcher_find   - is there one?
 * zke_watcher_needed - would the server's watch still be needed without them?
 *                   table: ZKE_WATCH_CHILD or ZKE_WATCH_DATA.  Watches that are
 *                   not entered count as needing it: their requests are on the
 *                   way, and the server may have set them by now
 * zke_watcher_remove - remove them */
bool zke_watcher_find(const zk_watches *w, const zk_watch_query *q);
bool zke_watcher_needed(const zk_watches *w, const zk_watch_query *q,
                        int table);
void zke_watcher_remove(zk_watches *w, const zk_watch_query *q);

/* zke_watcher_forget - remove all of a pair: its watches, its time, its calls
 * that are due */
void zke_watcher_forget(zk_watches *w, zke_watch_fn fn, void *context);

/* zke_watcher_alarm     - set the pair's time: ms, or ZKE_FOREVER for none;
 *                      false without memory
 * zke_watcher_next_due  - the earliest of all times, ZKE_FOREVER: there is none
 * zke_watcher_next_alarm - a pair with a time up to now_ms; clears its time.
 *                      false: none */
bool zke_watcher_alarm(zk_watches *w, int64_t when_ms, zke_watch_fn fn,
                       void *context);
int64_t zke_watcher_next_due(const zk_watches *w);
bool zke_watcher_next_alarm(zk_watches *w, int64_t now_ms, zk_target *out);

/* zke_watcher_tell_all  - each pair must be told this once: the end,
 *                         ZKE_EVENT_SESSION (releases all watches), or
 *                         ZKE_EVENT_OVERFLOW (releases one-shot ones, and
 *                         events)
 * zke_watcher_tell_kept - the same with ZKE_EVENT_OVERFLOW for pairs that have
 *                         a watch that stays; releases nothing.  false: none
 *                         has
 * zke_watcher_next_told - a pair that has not been told yet; false: none */
void zke_watcher_tell_all(zk_watches *w, int type);
bool zke_watcher_tell_kept(zk_watches *w);
bool zke_watcher_next_told(zk_watches *w, zk_target *out);

/* zke_watcher_of_pair - call fn with the path of each watch of a pair that
 * stays, if no other watch on the path needs it */
void zke_watcher_of_pair(const zk_watches *w, zke_watch_fn fn, void *context,
                         void (*each)(void *arg, const char *path), void *arg);

/* zke_watcher_each - call fn with the path and kind of each watch */
void zke_watcher_each(const zk_watches *w,
                      void (*fn)(void *arg, const char *path,
                                 enum zk_watch_kind kind),
                      void *arg);

#ifdef __cplusplus
}
#endif

#endif
