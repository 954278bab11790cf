/* test_lab_recipes: every recipe in the laboratory
 *
 * Each use (test/recipes/uses.h) has two or three processes.  In one schedule
 * the laboratory lets one of them die, ends a session, loses a reply and stops
 * one for a while, and no promise of the recipe may break.  `make lab-mutants`
 * plants mistakes in the recipes, and shows that this finds them.
 *
 * Environment: SECONDS, of processor time for each use (otherwise the sample's
 * number of schedules ends it); RECIPE, the only use to run; SEED, of the
 * choices; REPLAY, a schedule of that use.  With any of the first three it
 * prints what was done. */
#include "test/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test/recipes/uses.h"

/* A call may fail because its session has ended. */
bool use_may_fail(zke *z, int rc) {
  bool ended = zke_state(z) == ZKE_STATE_EXPIRED;
  return ended &&
         (rc == ZKE_INVALIDSTATE || rc == ZKE_SESSIONEXPIRED || rc == ZKE_LOST);
}

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text && *text ? atof(text) : otherwise;
}

static bool named(const char *variable) {
  const char *text = getenv(variable);
  return text && *text;
}

static zke_lab *build(const use *r) {
  static const char *const names[] = {"a", "b", "c"};
  zke_lab_options o = ZKE_INIT(zke_lab_options);
  zke_lab *lab = NULL;
  size_t size;
  void *at = uses_shared(&size);
  o.waits = r->waits;
  if (r->one_ends) o.expiries = -1;
  o.timeouts = r->timeouts;
  o.wakes = r->wakes;
  o.time_ms = (int64_t)(number("SECONDS", 60) * 1000);
  if (!named("SECONDS")) o.schedules = 2000 / test_stride(4);
  o.seed = (uint64_t)number("SEED", 0);
  ck_rc(zke_lab_new(&o, &lab), ZKE_OK);
  for (int i = 0; i < USE_PARTIES && r->parties[i].fn; i++) {
    void *arg = (void *)(uintptr_t)r->parties[i].arg;
    ck_rc(i == 1 && r->thread
              ? zke_lab_thread(lab, "a", names[i], r->parties[i].fn, arg)
              : zke_lab_process(lab, names[i], r->parties[i].fn, arg),
          ZKE_OK);
  }
  if (r->reaches) ck_rc(zke_lab_sometimes(lab, r->reaches), ZKE_OK);
  zke_lab_setup(lab, r->setup, NULL);
  zke_lab_finally(lab, r->finally, NULL);
  ck_rc(zke_lab_state(lab, at, size), ZKE_OK);
  return lab;
}

static void tell(const use *r, const zke_lab_result *found, double took) {
  if (!named("SECONDS") && !named("RECIPE") && !named("SEED")) return;
  printf("%-20s %9lld schedules %9lld states %10lld calls %8.3f s%s\n", r->name,
         (long long)found->schedules, (long long)found->states,
         (long long)found->calls, took,
         found->exhausted ? ": all there are" : "");
  fflush(stdout);
}

LIMIT(0);

/* Each recipe with its processes, faults and checks: nothing is found.  A
 * finding is drawn, with the command that repeats it. */
TEST_LOOP(recipes_hold_in_the_laboratory, 0, uses_count) {
  const use *r = &uses[_i];
  zke_lab_result found;
  if (named("RECIPE") && strcmp(getenv("RECIPE"), r->name) != 0) return;
  zke_lab *lab = build(r);
  const char *schedule = getenv("REPLAY");
  clock_t began = clock();
  ck_rc(schedule && *schedule ? zke_lab_replay(lab, schedule, &found)
                              : zke_lab_run(lab, &found),
        ZKE_OK);
  ck_assert_msg(!found.stale, "the schedule is stale: the program has changed");
  tell(r, &found, (double)(clock() - began) / CLOCKS_PER_SEC);
  if (found.found) {
    char why[512], replay[4096];
    snprintf(why, sizeof why, "%s", found.why);
    snprintf(replay, sizeof replay, "%s", found.schedule);
    zke_lab_picture(lab, replay, "-");
    ck_abort_msg("%s: %s\nmake lab RECIPE=%s REPLAY=%s", r->name, why, r->name,
                 replay);
  }
  zke_lab_free(lab);
}
