/* line.c - see line.h */
#include "test/sim/line.h"

#include <stdio.h>
#include <string.h>

#include "test/sim/known.h"
#include "test/sim/load.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"
#include "test/sim/watches.h"

/* How long a member stays in line before it gives up. */
enum { PATIENCE_MS = 4000 };

static int holder = -1; /* its slot */
static int64_t holder_session;
static int64_t generation;

/* If the holder dies, the lock is free. */
void line_died(int slot) {
  if (holder == slot) holder = -1;
}

/* The name before ours, or "" if ours is the first; false: ours is missing.
 * Names are sorted by their numbers. */
static bool before_of(const zke_strings *names, const char *own, char out[32]) {
  bool there = false;
  int mine = known_number_of(own), highest = -1;
  out[0] = '\0';
  for (int i = 0; i < names->count; i++) {
    int number = known_number_of(names->data[i]);
    if (number == mine) there = true;
    if (number >= mine || number <= highest) continue;
    highest = number;
    snprintf(out, 32, "%s", names->data[i]);
  }
  return there;
}

/* Which member is before us?  *first: none. */
static int look(const ops_actor *a, const char *own, char before[32],
                bool *first) {
  zke_strings *names = NULL;
  *first = false;
  known_call c = known_begin(a->slot, "line: children");
  int rc = known_end(c, zke_children(a->z, "/line", NULL, NULL, &names, NULL));
  if (rc == ZKE_OK) {
    bool there = before_of(names, own, before);
    if (!there && !known_of[a->slot].may_end)
      sim_found("P5: the place /line/%s of a living session is gone", own);
    *first = there && !before[0];
  }
  zke_free(names);
  return rc;
}

/* Watch the member before us, and sleep, unless it has already gone. */
static int sleep_behind(const ops_actor *a, const char *before) {
  char path[48];
  zke_stat stat = {.version = 0};
  snprintf(path, sizeof path, "/line/%s", before);
  watch *w = watches_new(a->slot, path, false);
  known_call c = known_begin(a->slot, "line: exists");
  int rc = known_end(c, zke_exists(a->z, path, watches_event, w, &stat));
  watches_keep(w, rc, &stat);
  if (rc == ZKE_OK) ops_wait(a, 1000);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* The lock is ours: no one else has it. */
static void hold(const ops_actor *a) {
  known_session *s = &known_of[a->slot];
  bool other = holder >= 0 && sched_lives(holder) &&
               known_of[holder].id == holder_session &&
               !known_of[holder].may_end;
  if (other)
    sim_found("P5: two hold /line: %c and %c", 'A' + holder, 'A' + a->slot);
  holder = a->slot;
  holder_session = s->id;
  int64_t own = ++generation;
  load_count.turns++;
  sched_pause((int64_t)sim_load(a->slot, 20) * SIM_MS);
  if (holder == a->slot && generation == own) holder = -1;
}

/* Wait in line with our place, whatever becomes of it. */
static void stand(const ops_actor *a, const char *own) {
  char before[32];
  bool first = false;
  int64_t until = sim.now + PATIENCE_MS * SIM_MS;
  int rc = ZKE_OK;
  while (rc == ZKE_OK && !first && sim.now < until && !sim.ending) {
    rc = look(a, own, before, &first);
    if (rc == ZKE_OK && !first) rc = sleep_behind(a, before);
  }
  if (rc == ZKE_OK && first) hold(a);
}

/* Give up the place, or any with that prefix that a lost reply may have made.
 * What cannot be removed now is removed by a later call.  If there is no memory
 * to remember it, the session ends in this call or the next. */
static void leave(const ops_actor *a, const char *path, int mode) {
  known_session *s = &known_of[a->slot];
  s->discards++; /* another thread may notice the end first */
  known_call c = known_begin(a->slot, "line: discard");
  known_end(c, zke_discard(a->z, path, mode, 0));
  s->discards--;
  if (sim.last_error >= c.at) s->may_end = true;
}

/* Each stay ends by a discard; if that failed, by one of a later call. */
void line_check(const ops_actor *a) {
  zke_strings *names = NULL;
  known_call c = known_begin(a->slot, "line: children");
  int rc = known_end(c, zke_children(a->z, "/line", NULL, NULL, &names, NULL));
  if (rc == ZKE_OK && names->count)
    sim_found("P6: /line/%s is there, which its session has discarded",
              names->data[0]);
  zke_free(names);
}

/* One stay in the line, as the header says. */
void line_any(const ops_actor *a) {
  char prefix[16], *path = NULL;
  snprintf(prefix, sizeof prefix, "/line/t%d-", a->thread);
  int rc = ops_create(a, "line: create", prefix, NULL, ZKE_EPHEMERAL_SEQUENTIAL,
                      &path);
  if (rc == ZKE_CONNECTIONLOSS) leave(a, prefix, ZKE_EPHEMERAL_SEQUENTIAL);
  if (rc != ZKE_OK) return;
  stand(a, path + strlen("/line/"));
  leave(a, path, ZKE_EPHEMERAL);
  zke_free(path);
}
