/* load.c - see load.h */
#include "test/sim/load.h"

#include <string.h>

#include "test/sim/corner.h"
#include "test/sim/foreign.h"
#include "test/sim/history.h"
#include "test/sim/kept.h"
#include "test/sim/line.h"
#include "test/sim/ops.h"
#include "test/sim/outbox.h"
#include "test/sim/plan.h"
#include "test/sim/rounds.h"
#include "test/sim/sched.h"
#include "test/sim/watchers.h"
#include "test/sim/watches.h"

/* Time limits at the end: to come to rest, to end dead sessions, for all, and
 * to open the file. */
enum { REST_MS = 4000, BURIAL_MS = 30000, END_MS = 200000, OPEN_MS = 100000 };

load_figures load_count;

typedef struct actor {
  zke *z;
  int64_t begins; /* when its next process does; SIM_NEVER: none will */
  int64_t calls;  /* that its threads still have to make */
  bool done;      /* it has come to rest */
} actor;

static actor actors[SIM_SLOTS];
static bool checked; /* one process has checked everything */
static bool is_void; /* the file can no longer be opened */

/* The handle that a forked child has a copy of. */
struct zke *load_handle(int slot) {
  return actors[slot].z;
}

/* ---- the end ---- */

/* How long dead sessions may stay after the last fault, in ns.  A failed
 * clean-up is postponed for 16 times as long as it took, at most half a minute
 * (end_put_off()); a slow sync or a stop makes it long. */
static int64_t rest_ns(void) {
  int64_t most = 16 * known_held_ms();
  return (REST_MS + (most < BURIAL_MS ? most : BURIAL_MS)) * SIM_MS;
}

/* No session is left without a process (P6).  False: one is, but may still
 * be. */
static bool check_sessions(int slot) {
  zke_session_list *list = NULL;
  bool all_known = true;
  known_call c = known_begin(slot, "sessions");
  if (known_end(c, zke_sessions(actors[slot].z, -1, &list)) != ZKE_OK)
    return true;
  for (int i = 0; i < list->count; i++) {
    bool known = list->data[i].timeout_ms != 0; /* kept.c */
    for (int k = 0; k < SIM_SLOTS; k++)
      known |= known_of[k].id == list->data[i].id && sched_lives(k);
    all_known &= known;
    if (!known && sim.now > sim.last_fault + rest_ns())
      sim_found(
          "P6: the session %llx of a dead process is there, %lld ms "
          "after the last fault",
          (long long)list->data[i].id,
          (long long)((sim.now - sim.ending) / SIM_MS));
  }
  zke_free(list);
  return all_known;
}

/* Is this the process that checks everything, and is it time? */
static bool is_last(int slot) {
  static int64_t busy; /* when another program was last there */
  if (sim.now < sim.last_fault + REST_MS * SIM_MS) return false;
  for (int i = 0; i < SIM_SLOTS; i++) {
    if (!sched_lives(i)) continue;
    if (foreign_is(i)) busy = sim.now;
    if (!actors[i].done) return false;
    if (i < slot && !known_of[i].lost) return false;
  }
  return !busy || sim.now > busy + REST_MS * SIM_MS;
}

/* Wait until nothing happens any more, and check that nothing is missing. */
static void come_to_rest(const ops_actor *a) {
  const known_session *s = &known_of[a->slot];
  while (rounds_any(a)) continue;
  int64_t until = sim.now + REST_MS * SIM_MS;
  while (sim.now < until && !s->lost) {
    int rc = ops_wait(a, 300);
    if (rc != ZKE_OK && rc != ZKE_OPERATIONTIMEOUT) sched_pause(50 * SIM_MS);
    sched_pause(SIM_MS);
  }
  if (!s->lost) watches_check(a->slot, a->z);
  actors[a->slot].done = true;
  while (!checked && !s->lost) {
    if (is_last(a->slot) && check_sessions(a->slot)) {
      ops_check(a);
      line_check(a);
      ops_look(a);
      corner_look_all(a);
      outbox_check(a);
      rounds_check(a);
      history_check(a);
      checked = true;
    }
    ops_wait(a, 200);
    sched_pause(SIM_MS);
    if (sim.now > sim.ending + END_MS * SIM_MS + rest_ns())
      sim_found("P10: no end of waiting for the others");
  }
  if (!s->lost) watchers_check(a);
}

/* ---- a process ---- */

/* Sometimes no process does anything for a while, which leaves time for sweeps,
 * timeouts and ticks. */
static bool is_lull(const ops_actor *a) {
  static int64_t until;
  if (sim.now >= until && sim_load(a->slot, 50) == 0)
    until = sim.now + (300 + (int64_t)sim_load(a->slot, 1500)) * SIM_MS;
  if (sim.now >= until) return false;
  ops_wait(a, (until - sim.now) / SIM_MS + 1);
  return true;
}

/* Make the actor's calls, until the session ends, or the faults do. */
static void work(const ops_actor *a) {
  actor *self = &actors[a->slot];
  while (!sim.ending && self->calls-- > 0 && !known_of[a->slot].lost) {
    if (is_lull(a)) continue;
    if (!rounds_any(a)) ops_any(a);
    if (!the_plan.k.busy && sim_load(a->slot, 3) == 0)
      sched_pause((int64_t)sim_load(a->slot, 30) * SIM_MS);
  }
}

/* Another thread of a process; it uses the same handle. */
static void thread_main(int slot) {
  ops_actor a = {.slot = slot, .thread = sched_thread(), .z = actors[slot].z};
  zke_zxid(); /* asks for zxids from now on */
  work(&a);
}

/* Open the file, retrying until that succeeds; false: the file is no database,
 * which known.c accepts. */
static bool open_until(int slot) {
  for (;;) {
    ops_actor a = {.slot = slot};
    int rc = ops_open(slot, &a.z);
    if (rc == ZKE_OK && !known_ready) rc = ops_nodes(&a);
    actors[slot].z = a.z;
    if (rc == ZKE_OK) return true;
    if (rc == ZKE_NOTADB) return false;
    actors[slot].z = NULL;
    if (a.z) ops_close(slot, a.z);
    sched_pause((int64_t)sim_load(slot, 200) * SIM_MS);
    if (sim.ending && sim.now > sim.ending + OPEN_MS * SIM_MS)
      sim_found("P10: the file cannot be opened: %s", zke_errmsg());
  }
}

/* A process: it opens and closes the file some times, the last one at the end
 * of the run. */
static void process_main(int slot) {
  zke_zxid();
  for (bool ends = false; !ends;) {
    if (!open_until(slot)) {
      is_void = true;
      return;
    }
    ops_actor a = {.slot = slot, .z = actors[slot].z};
    actors[slot].calls = 20 + (int64_t)sim_load(slot, 200);
    if (sim_load(slot, 3) == 0) ops_look(&a);
    for (int i = 1; i < the_plan.k.threads; i++)
      sched_start_thread(thread_main, i);
    work(&a);
    sched_join();
    if (sim.ending) come_to_rest(&a);
    ends = sim.ending != 0;
    actors[slot].z = NULL;
    ops_close(slot, a.z);
    if (!ends && sim_load(slot, 8) == 0) {
      actors[slot].begins = sim.now + (int64_t)sim_load(slot, 500) * SIM_MS;
      return;
    }
  }
}

/* ---- the world ---- */

/* A time at most this many ms from now. */
static int64_t soon(uint64_t ms) {
  return sim.now + (int64_t)sim_random(SIM_WORLD, ms) * SIM_MS;
}

/* For a while from now on, all processes make only calls that are not
 * synced. */
static void calm(void) {
  ops_calm(soon(4000));
  for (int i = 0; i < the_plan.k.processes; i++)
    if (actors[i].begins != SIM_NEVER) actors[i].begins = soon(20);
}

/* The checks forget the process. */
static void forget(int slot) {
  line_died(slot);
  rounds_died(slot);
  known_of[slot] = (known_session){.id = 0};
  known_release_all(slot);
  watches_forget(slot);
  watchers_forget(slot);
  actors[slot].z = NULL;
}

/* Another process will begin in the slot. */
void load_died(int slot) {
  kept_died(slot);
  forget(slot);
  actors[slot].begins = soon(2500);
}

/* Sometimes the next processes have a calm time. */
void load_all_died(void) {
  if (sim_chance(SIM_WORLD, 1, 2)) calm();
}

/* The host boots: all processes begin again. */
void load_cut(void) {
  kept_forget();
  for (int i = 0; i < SIM_SLOTS; i++) forget(i);
  for (int i = 0; i < the_plan.k.processes; i++) actors[i].begins = soon(50);
  if (sim_chance(SIM_WORLD, 1, 3)) calm();
}

/* The plan's processes begin, each at its own time. */
void load_begin(void) {
  for (int i = 0; i < SIM_SLOTS; i++)
    actors[i].begins = i < the_plan.k.processes ? soon(20) : SIM_NEVER;
}

/* At least one process sees the end. */
void load_rest(void) {
  bool any = false;
  for (int i = 0; i < SIM_SLOTS; i++) any |= sched_lives(i) && !foreign_is(i);
  for (int i = 0; i < SIM_SLOTS; i++)
    if (!sched_lives(i)) actors[i].begins = SIM_NEVER;
  if (!any) actors[0].begins = sim.now;
}

/* Begin the processes that are due. */
void load_tick(void) {
  kept_tick();
  rounds_tick();
  for (int i = 0; i < the_plan.k.processes; i++) {
    actor *a = &actors[i];
    if (is_void) a->begins = SIM_NEVER;
    if (a->begins > sim.now || !sched_is_free(i)) continue;
    a->begins = SIM_NEVER;
    a->done = false;
    sched_spawn(i, foreign_is(i) ? foreign_main : process_main);
  }
}

/* When the next one begins. */
int64_t load_next(void) {
  int64_t next = SIM_NEVER;
  for (int i = 0; i < the_plan.k.processes; i++)
    if (actors[i].begins < next) next = actors[i].begins;
  return next;
}

bool load_over(void) { return load_next() == SIM_NEVER; }
