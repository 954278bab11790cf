/* watches.c - see watches.h */
#include "test/sim/watches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/forked.h"
#include "test/sim/load.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"

/* How soon after its acknowledged change an event comes (P7): before that, the
 * dispatch may end a dead session, and its checkpoint may wait for a reader.
 * At the end a slow call may still hold the gate, which gives the longest
 * delay. */
enum { EVENT_MS = 300, TICK_MS = 1500, PATIENCE_MS = 2500 };

struct watch {
  watch *next;
  char path[24];
  int slot;
  bool of_children;
  bool kept, fired, exists;
  bool cut;     /* may have been dropped with others */
  int64_t zxid; /* of the state that the read saw */
  int64_t mzxid, pzxid;
};

static watch *watches[SIM_SLOTS];
static int64_t waiting[SIM_SLOTS][SIM_THREADS]; /* since when; 0: not waiting */

static int64_t told[SIM_SLOTS]; /* the last event's zxid */

/* A watch that is about to be registered; nothing else is known of it yet. */
watch *watches_new(int slot, const char *path, bool of_children) {
  watch *w = sim_zero(sizeof *w);
  w->slot = slot;
  w->of_children = of_children;
  snprintf(w->path, sizeof w->path, "%s", path);
  return w;
}

/* It is registered since the state of a zxid, in which the node looked like
 * this. */
static void keep(watch *w, int rc, const zke_stat *stat, int64_t zxid) {
  w->exists = rc == ZKE_OK;
  w->mzxid = w->exists ? stat->mzxid : 0;
  w->pzxid = w->exists ? stat->pzxid : 0;
  w->zxid = zxid;
  w->kept = true;
  w->next = watches[w->slot];
  watches[w->slot] = w;
}

/* Note the state that the registering read saw: only a later change may fire
 * the watch.  If the read failed, it is unknown whether the watch is
 * registered, so its event is checked only for what always holds. */
void watches_keep(watch *w, int rc, const zke_stat *stat) {
  if (rc == ZKE_OK || rc == ZKE_NONODE) keep(w, rc, stat, zke_zxid());
}

/* If something has changed since, its event comes immediately. */
int watches_again(watch *w, zke *z, int rc, const zke_stat *stat,
                  int64_t zxid) {
  int type = rc == ZKE_OK ? ZKE_WATCH_DATA : ZKE_WATCH_EXIST;
  if (w->of_children) type = ZKE_WATCH_CHILD;
  int set = zke_set_watch(z, w->path, type, zxid, watches_event, w);
  if (set == ZKE_OK) keep(w, rc, stat, zxid);
  return set;
}

/* Note since when a thread waits, for check_time(). */
void watches_wait(int slot, int thread, bool begins) {
  waiting[slot][thread] = begins ? sim.now : 0;
}

/* Has it come in time?  Not checked if a fault has struck since the change, or
 * since the thread began to wait: the wake-up may be lost, and then the tick
 * delivers it. */
static void check_time(const watch *w, int64_t zxid) {
  int64_t since = waiting[w->slot][sched_thread()];
  int64_t at = known_zxid_at(zxid), from = at > since ? at : since;
  int64_t most = EVENT_MS + (known_fifos_lost ? TICK_MS : 0);
  int64_t calm = (at < since ? at : since) - most * SIM_MS;
  if (!at || !since || !the_plan.k.switches || sim.last_fault >= calm) return;
  if (the_plan.k.threads > 1) return; /* another thread may be dispatching */
  if (sim.now - from > most * SIM_MS)
    sim_found(
        "P7: the change of %s was acknowledged %lld ms ago, waiting for "
        "%lld ms",
        w->path, (long long)((sim.now - at) / SIM_MS),
        (long long)((sim.now - since) / SIM_MS));
}

/* The callback of all watches of the load: each event is checked against its
 * watch (P3), the order of events (P4) and the time of its change (P7). */
void watches_event(zke *z, int type, int state, const char *path,
                   void *context) {
  watch *w = context;
  if (forked_in_callback()) return;
  if (type == ZKE_EVENT_OVERFLOW) {
    notes_cut(zke_session_id(z), zke_event_zxid(z));
    w->cut = true;
    return;
  }
  if (type == ZKE_EVENT_SESSION) {
    if (!known_may_end(w->slot))
      sim_found("P5: a living session is told that it is over (%d)", state);
    known_of[w->slot].lost = true;
    return;
  }
  int64_t zxid = zke_event_zxid(z);
  notes_told(w, type, path, zxid);
  sim_say("event %d of %s, zxid %llx", type, path, (long long)zxid);
  sim_trace((uint64_t)type);
  load_count.events++;
  if (zxid < told[w->slot])
    sim_found("P4: an event of zxid %llx comes after one of %llx",
              (long long)zxid, (long long)told[w->slot]);
  told[w->slot] = zxid;
  if (w->fired)
    sim_found("P3: a one-shot watch of %s has fired twice", w->path);
  if (strcmp(path, w->path) != 0)
    sim_found("P3: an event of %s for a watch of %s", path, w->path);
  if (w->kept && zxid <= w->zxid)
    sim_found("P3: a watch of %s of zxid %llx is told of %llx", w->path,
              (long long)w->zxid, (long long)zxid);
  w->fired = true;
  check_time(w, zxid);
}

/* The session has ended: none of its watches is checked any more. */
void watches_forget(int slot) {
  /* The memory stays: a dying handle may still call. */
  watches[slot] = NULL;
  told[slot] = 0;
  memset(waiting[slot], 0, sizeof waiting[slot]);
}

/* Does the tree still look as the watch's read saw it? */
static bool is_same(const watch *w, int rc, const zke_stat *stat) {
  if ((rc == ZKE_OK) != w->exists) return false;
  if (w->of_children) return stat->pzxid == w->pzxid;
  return !w->exists || stat->mzxid == w->mzxid;
}

/* Has it got its event, or been told that this is lost? */
static bool is_told(const watch *w) { return w->fired || w->cut; }

/* At the end, with all at rest: a watch that has not fired must see the state
 * in which it was registered.  If it does not, its event may still come within
 * PATIENCE_MS. */
void watches_check(int slot, zke *z) {
  for (const watch *w = watches[slot]; w; w = w->next) {
    zke_stat stat = {.version = 0};
    if (is_told(w)) continue;
    int rc = zke_exists(z, w->path, NULL, NULL, &stat);
    if (rc != ZKE_OK && rc != ZKE_NONODE) continue;
    load_count.watches++;
    if (is_same(w, rc, &stat)) continue;
    int64_t until = sim.now + PATIENCE_MS * SIM_MS;
    while (!is_told(w) && sim.now < until && !known_of[slot].lost) {
      zke_wait(z, zke_now(z) + 500);
      sched_pause(SIM_MS);
    }
    if (!is_told(w) && !known_of[slot].lost)
      sim_found(
          "P3: the watch of %s (%s) of zxid %llx was lost: mzxid %llx, "
          "pzxid %llx now",
          w->path, w->of_children ? "children" : "data", (long long)w->zxid,
          (long long)stat.mzxid, (long long)stat.pzxid);
  }
}
