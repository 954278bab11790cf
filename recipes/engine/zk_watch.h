/* zk_watch.h - for zookeeper.c: a session's watchers in memory
 *
 * A server only says that something happened at a path.  Which functions are to
 * be called for it is known here: the tables of watches by ZooKeeper's rules
 * (doc/semantics.md 5.5), the events that have come and were not delivered yet,
 * and the times of zke_call_at().  There is no lock and no system call here:
 * the caller holds its own lock, and calls the watchers itself.
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
 *   2. Whom an event calls is decided when it comes, not when it is delivered.
 *      A one-shot watch is used up then; one that is set after that is new.
 *   3. Events are delivered in the order in which they came.
 *   4. An event that cannot be kept (no memory, the limit) is not lost in
 *      silence: all are dropped, the one-shot watches go, and each watcher is
 *      told ZKE_EVENT_OVERFLOW.
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
  ZK_WATCH_DATA,       /* get; exists of a node that was there */
  ZK_WATCH_EXIST,      /* exists of a missing node */
  ZK_WATCH_CHILD,      /* children */
  ZK_WATCH_PERSISTENT, /* zke_add_watch() */
  ZK_WATCH_RECURSIVE,
  ZK_WATCH_KINDS
};

enum { ZK_WATCH_BUCKETS = 1024 };

/* One watcher: a function and its context.  It exists as long as something here
 * speaks of it. */
typedef struct zk_pair zk_pair;

/* One watch of a pair on a path.  Until zke_watcher_put() it is in no table. */
typedef struct zk_watch zk_watch;

/* One event, with the pairs that it calls. */
typedef struct zk_event zk_event;

typedef struct zk_watches {
  zk_watch *paths[ZK_WATCH_BUCKETS]; /* watches, by their path */
  zk_pair *pairs[ZK_WATCH_BUCKETS];  /* pairs, by both of its members */
  zk_event *first, **end;            /* events, the oldest first */
  int pending, limit;                /* calls that are due, and the most */
  size_t count;                      /* watches in the tables */
  zk_watch *fresh;                   /* those in no table yet */
  int alarms;                        /* pairs that have a time */
  uint64_t stamp;                    /* of the latest event */
  int round_type;                    /* what each pair is to be told, or 0 */
} zk_watches;

/* What is to be called next.  The path is valid until zke_watcher_done(). */
typedef struct zk_target {
  zke_watch_fn fn;
  void *context;
  int type; /* ZKE_EVENT_… */
  const char *path;
  int64_t zxid;    /* of the event, as zke_watcher_event() was given it */
  zk_event *event; /* NULL: an alarm, or what each pair is told */
} zk_target;

/* zk_watches_init - no watch, no event; limit: calls that may be due at once
 * zke_watchers_free - release all of it */
void zke_watchers_init(zk_watches *w, int limit);
void zke_watchers_free(zk_watches *w);

/* zke_watcher_new  - room for a watch, so that setting it later cannot fail;
 *                    NULL without memory
 * zke_watcher_put  - enter it; where the pair has such a watch it is released.
 *                    true: it was entered
 * zke_watcher_take - take a watch of this kind back, where it is still there
 * zke_watcher_drop - release one that was not entered; NULL is fine
 *
 * A watch that stays replaces those of the other mode on its path, of all
 * pairs: they get its mode. */
zk_watch *zke_watcher_new(zk_watches *w, const char *path, zke_watch_fn fn,
                          void *context);
bool zke_watcher_put(zk_watches *w, zk_watch *entry, enum zk_watch_kind kind);
void zke_watcher_take(zk_watches *w, const char *path, enum zk_watch_kind kind,
                      zke_watch_fn fn, void *context);
void zke_watcher_drop(zk_watches *w, zk_watch *entry);

/* zke_watcher_event - an event has come: queue it for those who watch
 *
 *   zxid   of the change; 0: not known
 *   least  what it is at least: see zke_watcher_next()
 *
 * false: all events were dropped, and each pair is to be told so (rule 4). */
bool zke_watcher_event(zk_watches *w, int type, const char *path, int64_t zxid,
                       int64_t least);

/* zke_watcher_next - the next call that is due for an event of a change up to
 *                    the zxid `most`; false: none
 * zke_watcher_done - it has returned */
bool zke_watcher_next(zk_watches *w, int64_t most, zk_target *out);
void zke_watcher_done(zk_watches *w, const zk_target *t);

/* zke_watcher_untold - paths of undelivered events at a path and below it
 *
 * Calls add() with each in order; returns how many there are.  An event whose
 * watchers are being called is among them. */
int zke_watcher_untold(const zk_watches *w, const char *path,
                       void (*add)(void *arg, const char *path), void *arg);

/* What zke_check_watch() and its like mean: watches on a path in the tables
 * that a type (ZKE_WATCH_CHILD, _DATA, _ANY) stands for, of a pair, or with fn
 * NULL of all.  Calls that are due count, too. */
typedef struct zk_watch_query {
  const char *path;
  int type;
  zke_watch_fn fn;
  void *context;
} zk_watch_query;

/* zke_watcher_find   - is there one?
 * zke_watcher_needed - would the server's watch still be needed, without these?
 *                   table: ZKE_WATCH_CHILD or ZKE_WATCH_DATA.  Watches that are
 *                   not entered count as needing it: their requests are on the
 *                   way, and the server may have set them by now
 * zke_watcher_remove - take them away */
bool zke_watcher_find(const zk_watches *w, const zk_watch_query *q);
bool zke_watcher_needed(const zk_watches *w, const zk_watch_query *q,
                        int table);
void zke_watcher_remove(zk_watches *w, const zk_watch_query *q);

/* zke_watcher_forget - all of a pair: its watches, its time, its calls that are
 * due */
void zke_watcher_forget(zk_watches *w, zke_watch_fn fn, void *context);

/* zke_watcher_alarm     - the pair's time: ms, or ZKE_FOREVER for none; false
 *                      without memory
 * zke_watcher_next_due  - the earliest of all times, ZKE_FOREVER: there is none
 * zke_watcher_next_alarm - a pair whose time has come by now_ms; its time is
 *                      cleared.  false: none */
bool zke_watcher_alarm(zk_watches *w, int64_t when_ms, zke_watch_fn fn,
                       void *context);
int64_t zke_watcher_next_due(const zk_watches *w);
bool zke_watcher_next_alarm(zk_watches *w, int64_t now_ms, zk_target *out);

/* zke_watcher_tell_all  - from here on each pair is to be told this once: the
 *                         end, ZKE_EVENT_SESSION (all watches are released), or
 *                         ZKE_EVENT_OVERFLOW (one-shot ones are, and events)
 * zke_watcher_tell_kept - the same with ZKE_EVENT_OVERFLOW for pairs that have
 *                         a watch that stays; nothing goes.  false: none has
 * zke_watcher_next_told - a pair that has not been told yet; false: none */
void zke_watcher_tell_all(zk_watches *w, int type);
bool zke_watcher_tell_kept(zk_watches *w);
bool zke_watcher_next_told(zk_watches *w, zk_target *out);

/* zke_watcher_of_pair - calls fn with the path of each watch of a pair that
 * stays, and that no other watch on the path needs */
void zke_watcher_of_pair(const zk_watches *w, zke_watch_fn fn, void *context,
                         void (*each)(void *arg, const char *path), void *arg);

/* zke_watcher_each - calls fn with the path and kind of each watch */
void zke_watcher_each(const zk_watches *w,
                      void (*fn)(void *arg, const char *path,
                                 enum zk_watch_kind kind),
                      void *arg);

#ifdef __cplusplus
}
#endif

#endif
