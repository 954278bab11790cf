/* watchers.c - see watchers.h */
#include "test/sim/watchers.h"

#include <stdio.h>
#include <string.h>

#include "test/sim/forked.h"
#include "test/sim/known.h"
#include "test/sim/load.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"

/* What a slot's session has. */
typedef struct keeper {
  bool watches;
  int64_t since; /* the zxid of the state that it was registered in */
  int told;      /* events since, */
  bool cut;      /* but for those that were too many */
  int64_t zxid;  /* of the last event, */
  char path[40]; /* what it was about */
  int type;
  int64_t alarm_ms; /* 0: none */
} keeper;

static keeper keepers[SIM_SLOTS];

/* The session is over, with its watch and its alarm. */
void watchers_forget(int slot) { keepers[slot] = (keeper){.watches = false}; }

/* An event of the kept watch.  The next process of a slot has the same keeper,
 * but no event of a dead process's watch is ever delivered. */
static void on_event(zke *z, int type, int state, const char *path,
                     void *context) {
  keeper *k = context;
  (void)state;
  if (forked_in_callback()) return;
  if (type == ZKE_EVENT_OVERFLOW) {
    notes_cut(zke_session_id(z), zke_event_zxid(z));
    k->cut = true;
  }
  if (type < 0) return; /* watches.c has these */
  int64_t zxid = zke_event_zxid(z);
  notes_told(k, type, path, zxid);
  sim_say("kept watch: event %d of %s, zxid %llx", type, path, (long long)zxid);
  load_count.events++;
  if (zxid < k->zxid)
    sim_found("P4: an event of zxid %llx comes after one of %llx",
              (long long)zxid, (long long)k->zxid);
  if (zxid == k->zxid && type == k->type && strcmp(path, k->path) == 0)
    sim_found("P4: the event %d of %s, zxid %llx, comes twice", type, path,
              (long long)zxid);
  k->told += zxid > k->since;
  k->zxid = zxid;
  k->type = type;
  snprintf(k->path, sizeof k->path, "%s", path);
}

/* An alarm must have been set, and its time must have come.  With several
 * threads another may just have set it again. */
static void on_alarm(zke *z, int type, int state, const char *path,
                     void *context) {
  keeper *k = context;
  (void)state, (void)path;
  if (forked_in_callback()) return;
  if (type != ZKE_EVENT_ALARM) return;
  if (the_plan.k.threads > 1) return; /* another may just have set it anew */
  if (!k->alarm_ms) sim_found("P4: an alarm that was not asked for");
  if (zke_now(z) < k->alarm_ms)
    sim_found("P4: an alarm comes %lld ms early",
              (long long)(k->alarm_ms - zke_now(z)));
  k->alarm_ms = 0;
}

/* Register the recursive watch of /q, and count its events from here. */
static void watch_more(const ops_actor *a, keeper *k) {
  known_call c = known_begin(a->slot, "add_watch");
  int rc = known_end(
      c,
      zke_add_watch(a->z, "/q", ZKE_WATCH_PERSISTENT_RECURSIVE, on_event, k));
  if (rc != ZKE_OK) return;
  k->watches = true;
  k->since = zke_zxid();
  k->told = 0;
  k->cut = false;
}

/* For history_check_told().  With several threads another may dispatch between
 * the registration and its note here. */
int watchers_told(int slot, int64_t *zxid_out) {
  const keeper *k = &keepers[slot];
  *zxid_out = k->since;
  if (!k->watches || !k->since || k->cut || the_plan.k.threads > 1) return -1;
  return k->told;
}

/* Remove the watch.  It is not known to be gone unless the call says so. */
static void watch_less(const ops_actor *a, keeper *k) {
  known_call c = known_begin(a->slot, "remove_watch");
  int rc =
      known_end(c, zke_remove_watch(a->z, "/q", ZKE_WATCH_ANY, on_event, k));
  if (rc == ZKE_OK) k->watches = false;
}

/* Set the alarm, or another time for it, within half a second. */
static void set_alarm(const ops_actor *a, keeper *k) {
  int64_t when = zke_now(a->z) + (int64_t)sim_load(a->slot, 500);
  known_call c = known_begin(a->slot, "call_at");
  k->alarm_ms = when; /* another thread may dispatch it before this returns */
  known_end(c, zke_call_at(a->z, when, on_alarm, k));
}

/* Make one of these calls, at random. */
void watchers_any(const ops_actor *a) {
  keeper *k = &keepers[a->slot];
  switch (sim_load(a->slot, 3)) {
    case 0:
      set_alarm(a, k);
      break;
    case 1:
      if (k->watches) watch_less(a, k);
      break;
    default:
      if (!k->watches) watch_more(a, k);
  }
}
