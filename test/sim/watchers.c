/* watchers.c - see watchers.h */
#include "test/sim/watchers.h"

#include <stdio.h>
#include <string.h>

#include "test/sim/expect.h"
#include "test/sim/forked.h"
#include "test/sim/history.h"
#include "test/sim/known.h"
#include "test/sim/load.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"

/* A slot's session has a watch of all below the queue, and an alarm. */
typedef struct keeper {
  bool watches;  /* or a call for that has failed */
  int64_t since; /* it gets events after this zxid; 0: unknown */
  int told;      /* number of events since then */
  int64_t zxid;  /* of the last event, */
  char path[40]; /* its path */
  int type;
  int calls;        /* calls by threads that now set or remove it */
  bool mixed;       /* the result of these is unknown */
  int64_t alarm_ms; /* 0: none */
} keeper;

static keeper keepers[SIM_SLOTS];

/* The session has ended, with its watch and its alarm. */
void watchers_forget(int slot) { keepers[slot] = (keeper){.watches = false}; }

/* Other threads call, and are called, at the same time. */
static bool is_alone(void) { return the_plan.k.threads == 1; }

/* The watcher: events come in order, none twice, none after its end.  A slot
 * has one keeper, which after a death belongs to the slot's next process. */
static void on_event(zke *z, int type, int state, const char *path,
                     void *context) {
  keeper *k = context;
  (void)state;
  if (forked_in_callback()) return;
  if (type == ZKE_EVENT_OVERFLOW) {
    notes_cut(zke_session_id(z), zke_event_zxid(z));
    k->since = 0;
  }
  if (type < 0) return; /* watches.c handles these */
  int64_t zxid = zke_event_zxid(z);
  notes_told(k, type, path, zxid);
  sim_say("kept watch: event %d of %s, zxid %llx", type, path, (long long)zxid);
  load_count.events++;
  if (!k->watches && is_alone())
    sim_found("P3: an event of %s for a watch that was taken back", path);
  if (zxid < k->zxid)
    sim_found("P4: an event of zxid %llx comes after one of %llx",
              (long long)zxid, (long long)k->zxid);
  if (zxid == k->zxid && type == k->type && strcmp(path, k->path) == 0)
    sim_found("P4: the event %d of %s, zxid %llx, comes twice", type, path,
              (long long)zxid);
  if (k->since && zxid <= k->since)
    sim_found("P3: an event of zxid %llx for a watch from %llx on",
              (long long)zxid, (long long)k->since);
  k->told++;
  k->zxid = zxid;
  k->type = type;
  snprintf(k->path, sizeof k->path, "%s", path);
}

/* The alarm was set, and its time has come. */
static void on_alarm(zke *z, int type, int state, const char *path,
                     void *context) {
  keeper *k = context;
  (void)state, (void)path;
  if (forked_in_callback()) return;
  if (type != ZKE_EVENT_ALARM) return;
  if (!is_alone()) return; /* another thread may just have set it again */
  if (!k->alarm_ms) sim_found("P4: an alarm that was not asked for");
  if (zke_now(z) < k->alarm_ms)
    sim_found("P4: an alarm comes %lld ms early",
              (long long)(k->alarm_ms - zke_now(z)));
  k->alarm_ms = 0;
}

/* ---- against the history ---- */

/* How many changes below the queue the history has, after a zxid and up to
 * another; -1: unknown now. */
static int changes_between(int64_t after, int64_t last) {
  history_changes list;
  int count = 0;
  if (!history_read("/q", after, &list)) count = -1;
  for (int i = 0; i < list.count && count >= 0; i++)
    count += list.at[i].zxid <= last && list.at[i].path[2] == '/';
  history_free(&list);
  return count;
}

/* Can the keeper's events be counted?  Another thread may dispatch between the
 * registration and its note here. */
static bool counts(const keeper *k) {
  return the_plan.k.history && k->watches && k->since && is_alone();
}

/* All events up to a zxid have been delivered, or are pending.  Some of the
 * pending ones may be for an earlier watch, and are never delivered. */
static void check_told(const ops_actor *a, const keeper *k, int64_t zxid,
                       int least, int most, const char *how) {
  int64_t since = k->since;
  int changes = changes_between(since, zxid);
  if (changes < 0 || k->since != since || known_of[a->slot].lost) return;
  if (changes < least || changes > most)
    sim_found("P3: %s: %d to %d of the %d changes of /q up to %llx are told",
              how, least, most, changes, (long long)zxid);
}

/* No more changes happen: all events have been delivered. */
void watchers_check(const ops_actor *a) {
  const keeper *k = &keepers[a->slot];
  if (counts(k)) check_told(a, k, INT64_MAX, k->told, k->told, "at rest");
}

/* zke_dispatch_to() delivers all changes up to a zxid. */
static void dispatch_to(const ops_actor *a, keeper *k) {
  int more = 0;
  known_call c = known_begin(a->slot, "exists");
  if (known_end(c, zke_exists(a->z, "/q", NULL, NULL, NULL)) != ZKE_OK) return;
  int64_t zxid = zke_zxid();
  if (!zxid) return;
  c = known_begin(a->slot, "dispatch_to");
  int rc = zke_dispatch_to(a->z, zxid, NULL, &more);
  forked_returned(a->slot, a->z, rc);
  rc = known_end(c, ops_told(a, rc));
  if (rc != ZKE_OK || !counts(k) || k->zxid > zxid || zxid < k->since) return;
  check_told(a, k, zxid, k->told, k->told, "dispatch_to");
}

/* zke_op_untold() names exactly the events that the watcher has not got yet. */
static void untold(const ops_actor *a, keeper *k) {
  zke_op ops[2];
  zke_op_result r[2] = {{0}};
  zke_op_untold(&ops[0], "/q", 1000);
  zke_op_children(&ops[1], "/q", "n-0000000003", 5);
  known_call c = known_begin(a->slot, "untold");
  int rc = known_end(c, zke_multi_read(a->z, ops, 2, r));
  int64_t zxid = zke_zxid();
  if (rc == ZKE_OK && r[1].rc == ZKE_OK && r[1].children->count > 5)
    sim_found("P1: a page gave %d names, not 5", r[1].children->count);
  int waiting = 0;
  if (rc == ZKE_OK && r[0].rc == ZKE_OK)
    for (int i = 0; i < r[0].children->count; i++)
      waiting += strncmp(r[0].children->data[i], "/q/", 3) == 0;
  bool known = rc == ZKE_OK && r[0].rc == ZKE_OK && zxid >= k->since;
  zke_results_clear(r, 2);
  if (known && counts(k))
    check_told(a, k, zxid, k->told, k->told + waiting, "untold");
}

/* ---- registering ---- */

/* A call that sets or removes the watch begins.  If another thread's is
 * running, their order is unknown.  If there is already a watch, the older
 * state counts. */
static void call_begins(keeper *k, bool sets) {
  k->mixed |= k->calls++ > 0 || (sets && k->watches);
}

/* The call has ended.  If no other ran at the same time, it is known whether
 * there is a watch, and after which zxid its events begin (0: unknown). */
static void call_ends(keeper *k, bool watches, int64_t since) {
  k->watches = watches || k->mixed;
  k->since = k->mixed ? 0 : since;
  k->told = 0;
  if (--k->calls == 0) k->mixed = false;
}

/* A watch from now on. */
static void watch_more(const ops_actor *a, keeper *k) {
  call_begins(k, true);
  k->watches = true;
  known_call c = known_begin(a->slot, "add_watch");
  int rc =
      zke_add_watch(a->z, "/q", ZKE_WATCH_PERSISTENT_RECURSIVE, on_event, k);
  known_end(c, rc);
  call_ends(k, true, rc == ZKE_OK ? zke_zxid() : 0);
}

/* No event comes after that; after zke_forget() not even if the call failed. */
static void watch_less(const ops_actor *a, keeper *k) {
  bool forgets = sim_load(a->slot, 2);
  call_begins(k, false);
  known_call c = known_begin(a->slot, forgets ? "forget" : "remove_watch");
  int rc = forgets ? zke_forget(a->z, on_event, k)
                   : zke_remove_watch(a->z, "/q", ZKE_WATCH_ANY, on_event, k);
  if (rc == ZKE_NOWATCHER && k->since && is_alone())
    sim_found("P3: the watch of /q is not there");
  known_end(c, rc);
  call_ends(k, rc != ZKE_OK && rc != ZKE_NOWATCHER && !forgets, 0);
}

/* An alarm, which replaces any other. */
static void set_alarm(const ops_actor *a, keeper *k) {
  int64_t when = zke_now(a->z) + (int64_t)sim_load(a->slot, 500);
  known_call c = known_begin(a->slot, "call_at");
  k->alarm_ms = when; /* another thread may dispatch it before this returns */
  known_end(c, zke_call_at(a->z, when, on_alarm, k));
}

/* Remove the alarm. */
static void unset_alarm(const ops_actor *a, keeper *k) {
  known_call c = known_begin(a->slot, "forget an alarm");
  known_end(c, zke_forget(a->z, on_alarm, k));
  k->alarm_ms = 0;
}

/* Never called. */
static void on_nothing(zke *z, int type, int state, const char *path,
                       void *context) {
  (void)z, (void)state, (void)context;
  if (type >= 0) sim_found("P3: an event of %s, which nobody makes", path);
}

/* A watch that changes its mode, and is removed together with all others of a
 * path on which nothing happens. */
static void replace(const ops_actor *a) {
  static char mark[SIM_SLOTS][SIM_THREADS];
  char path[16], *m = &mark[a->slot][a->thread];
  snprintf(path, sizeof path, "/none%d", a->thread);
  int mode = sim_load(a->slot, 2) ? ZKE_WATCH_PERSISTENT
                                  : ZKE_WATCH_PERSISTENT_RECURSIVE;
  known_call c = known_begin(a->slot, "add_watch of nothing");
  if (!expect(c, zke_add_watch(a->z, path, mode, on_nothing, m), ZKE_OK))
    return;
  c = known_begin(a->slot, "check_watch");
  int rc = zke_check_watch(a->z, path, ZKE_WATCH_ANY, on_nothing, m);
  if (!expect(c, rc, ZKE_OK) || sim_load(a->slot, 2)) return;
  c = known_begin(a->slot, "remove_watch of all");
  rc = zke_remove_watch(a->z, path, ZKE_WATCH_ANY, NULL, NULL);
  if (!expect(c, rc, ZKE_OK)) return;
  c = known_begin(a->slot, "check_watch, none");
  rc = zke_check_watch(a->z, path, ZKE_WATCH_ANY, NULL, NULL);
  expect(c, rc, ZKE_NOWATCHER);
}

void watchers_any(const ops_actor *a) {
  keeper *k = &keepers[a->slot];
  switch (sim_load(a->slot, 8)) {
    case 0:
    case 1:
      set_alarm(a, k);
      break;
    case 2:
      unset_alarm(a, k);
      break;
    case 3:
      if (k->watches) watch_less(a, k);
      break;
    case 4:
      replace(a);
      break;
    case 5:
      untold(a, k);
      break;
    case 6:
      dispatch_to(a, k);
      break;
    default:
      if (!k->watches) watch_more(a, k);
  }
}
