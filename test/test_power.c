/* test_power.c - power cuts, and SQLite's WAL-reset bug
 *
 * P8, P12.  The program is linked with an engine that checkpoints after a few
 * pages, so that cuts often fall into checkpoints.  As it stands it is a short
 * run that is always the same; `make powerloss` gives it from the environment
 *
 *   CUTS=n     so many cuts in all, the seeds running on
 *   SEED=n     the first seed
 *   EVERY=n    cut before each n-th event on the disk
 *   COMMITS=n  tiny transactions of each process in the idle test
 *   CUT=n      this event and no other, to replay: what is found is reported
 *              as "LOST: cuts SEED=5 CUT=70 ..."; it is found again by
 *              SEED=5 CUT=70 build/test/test_power cuts
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "powerloss.h"
#include "test.h"
#include "walreset.h"

static long setting(const char *name, long otherwise) {
  const char *value = getenv(name);
  return value && *value ? atol(value) : otherwise;
}

static const char *work(void) {
  const char *directory = test_path("power");
  mkdir(directory, 0700);
  return directory;
}

/* Run with one seed after the other until there were enough cuts: so many, or
 * this part of CUTS. */
static const powerloss_tally *run_until(powerloss_plan plan, long cuts,
                                        long percent) {
  const powerloss_tally *t;
  cuts = getenv("CUTS") ? setting("CUTS", 0) * percent / 100 : cuts;
  plan.images = 4;
  plan.seed = (uint64_t)setting("SEED", (long)plan.seed);
  plan.every = (int)setting("EVERY", plan.every);
  plan.only_cut = setting("CUT", 0);
  printf("%s: SEED=%llu EVERY=%d\n", plan.name, (unsigned long long)plan.seed,
         plan.every);
  do {
    t = powerloss_run(work(), &plan);
    plan.seed++;
  } while (!plan.only_cut && t->cuts < cuts);
  powerloss_print(t);
  return t;
}

/* ---- what must hold ---- */

/* P8: whatever a cut leaves of what was not synced, all that was acknowledged
 * as durable is there, as a prefix of the commits, and no number comes twice;
 * also when the power fails again during the recovery. */
START_TEST(acknowledged_changes_survive) {
  powerloss_plan plan = {
      .name = "cuts", .seed = 1, .operations = 150, .every = 32};
  const powerloss_tally *t = run_until(plan, 130, 60);
  ck_assert_int_eq(powerloss_violations(t), 0);
  ck_assert(t->kept && t->lost && t->torn);
  ck_assert(getenv("CUT") || (t->reordered && t->second));
}
END_TEST

/* The same where transactions spill into the log before they are committed. */
START_TEST(with_a_small_cache) {
  powerloss_plan plan = {.name = "cache",
                         .seed = 1001,
                         .operations = 150,
                         .every = 50,
                         .cache_kib = 8};
  ck_assert_int_eq(powerloss_violations(run_until(plan, 40, 15)), 0);
}
END_TEST

/* ZKE_DURABLE_ALL: sessions' and ephemerals' traces in the counters too. */
START_TEST(durable_all_means_all) {
  powerloss_plan plan = {.name = "all",
                         .seed = 2001,
                         .operations = 150,
                         .every = 50,
                         .durability = ZKE_DURABLE_ALL};
  ck_assert_int_eq(powerloss_violations(run_until(plan, 40, 15)), 0);
}
END_TEST

/* Every event of a database's creation and first session. */
START_TEST(cut_in_the_creation) {
  powerloss_plan plan = {
      .name = "creation", .seed = 3001, .operations = 1, .every = 1};
  ck_assert_int_eq(powerloss_violations(run_until(plan, 60, 10)), 0);
}
END_TEST

/* P8: nothing is acknowledged, nor seen by another connection, before its sync.
 * Looked at before each event on the disk, without cuts. */
START_TEST(nothing_is_seen_before_its_sync) {
  powerloss_plan plan = {.name = "ahead", .seed = 4001, .operations = 500};
  const powerloss_tally *t = NULL;
  for (int i = 0; i < 8; i++, plan.seed++) t = powerloss_run(work(), &plan);
  powerloss_print(t);
  ck_assert_int_eq(powerloss_violations(t), 0);
  ck_assert_int_gt(t->durable, 1000);
  ck_assert_int_gt(t->looks, 1000);
}
END_TEST

/* ---- the checker finds what is there to be found ---- */

static const powerloss_tally *run_planted(powerloss_plan plan) {
  plan.operations = 100;
  plan.every = 24;
  plan.images = 4;
  plan.quiet = true;
  plan.name = "checker";
  return powerloss_run(work(), &plan);
}

/* Without syncs commits are lost, but only the latest. */
START_TEST(finds_losses_without_durability) {
  const powerloss_tally *t = run_planted(
      (powerloss_plan){.seed = 5001, .durability = ZKE_DURABLE_NONE});
  ck_assert_int_gt(t->violations[POWERLOSS_LOST], 0);
  ck_assert_int_gt(t->violations[POWERLOSS_EARLY], 0);
  ck_assert_int_eq(t->violations[POWERLOSS_DISORDER], 0);
  ck_assert_int_eq(t->violations[POWERLOSS_UNSOUND], 0);
}
END_TEST

/* A disk that lies of the log's syncs loses the latest, as if there were none;
 * one that lies of the database's loses anything, since the log that had it is
 * begun anew.  No damage makes the engine crash. */
START_TEST(finds_losses_on_a_lying_disk) {
  powerloss_plan plan = {.seed = 5002, .lie = "a.db-wal"};
  const powerloss_tally *t = run_planted(plan);
  ck_assert_int_gt(t->violations[POWERLOSS_LOST], 0);
  ck_assert_int_gt(t->violations[POWERLOSS_EARLY], 0);
  plan = (powerloss_plan){.seed = 5010, .lie = "a.db"};
  do t = run_planted(plan);
  while (!t->violations[POWERLOSS_DISORDER] && plan.seed++ < 5030);
  ck_assert_int_gt(t->violations[POWERLOSS_DISORDER], 0);
  ck_assert_int_gt(t->violations[POWERLOSS_UNSOUND], 0);
  ck_assert_int_eq(t->violations[POWERLOSS_DIED], 0);
}
END_TEST

/* Were there no new boot, no epoch would keep numbers from coming again. */
START_TEST(finds_numbers_given_again) {
  const powerloss_tally *t =
      run_planted((powerloss_plan){.seed = 5004, .same_boot = true});
  ck_assert_int_gt(t->violations[POWERLOSS_REISSUE], 0);
  ck_assert_int_gt(t->violations[POWERLOSS_UNSOUND], 0);
}
END_TEST

static void add_case(Suite *s, const char *name, const TTest *test) {
  bool scaled = getenv("CUTS") || getenv("CUT");
  TCase *c = tcase_create(name);
  tcase_set_timeout(c, scaled ? 0 : 120);
  tcase_add_test(c, test);
  suite_add_tcase(s, c);
}

static Suite *power_suite(void) {
  Suite *s = suite_create("power");
  add_case(s, "cuts", acknowledged_changes_survive);
  add_case(s, "cache", with_a_small_cache);
  add_case(s, "all", durable_all_means_all);
  add_case(s, "creation", cut_in_the_creation);
  add_case(s, "ahead", nothing_is_seen_before_its_sync);
  add_case(s, "none", finds_losses_without_durability);
  add_case(s, "lie", finds_losses_on_a_lying_disk);
  add_case(s, "boot", finds_numbers_given_again);
  suite_add_tcase(s, walreset_schedule());
  suite_add_tcase(s, walreset_idle());
  return s;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--writer") == 0)
    return walreset_writer(argc, argv);
  return test_main(argc, argv, power_suite());
}
