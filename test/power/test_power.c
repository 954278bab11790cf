/* test_power.c - power cuts, and SQLite's WAL-reset bug
 *
 * P8, P12.  The program is linked with an engine that checkpoints after a few
 * pages, so that cuts often fall into checkpoints.  As it stands it is a short
 * run that is always the same, and shorter without FULL; `make powerloss` gives
 * it from the environment
 *
 *   CUTS=n     so many cuts in all, the seeds running on
 *   SEED=n     the first seed
 *   EVERY=n    cut before each n-th event on the disk
 *   COMMITS=n  tiny transactions of each process in the idle test
 *   CUT=n      this event and no other, to replay: what is found is reported
 *              as "LOST: cuts SEED=5 CUT=70 ..."; it is found again by
 *              SEED=5 CUT=70 build/test/test_power acknowledged_changes_survive
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "powerloss.h"
#include "powervfs.h"
#include "test/test.h"
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

static void write_file(const char *path, const char *data, size_t size) {
  FILE *f = fopen(path, "wb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(data, 1, size, f), size);
  ck_assert_int_eq(fclose(f), 0);
}

/* Read a file that has this size. */
static void read_file(const char *path, char *data, size_t size) {
  FILE *f = fopen(path, "rb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fread(data, 1, size, f), size);
  ck_assert_int_eq(fgetc(f), EOF);
  fclose(f);
}

/* Run with one seed after the other until there were enough cuts: so many, or
 * this part of CUTS. */
static const powerloss_tally *run_until(powerloss_plan plan, long cuts,
                                        long percent) {
  const powerloss_tally *t;
  cuts = getenv("CUTS") ? setting("CUTS", 0) * percent / 100 : cuts;
  if (!plan.images) plan.images = 4;
  plan.seed = (uint64_t)setting("SEED", (long)plan.seed);
  if (plan.every > 1) plan.every = (int)setting("EVERY", plan.every);
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

LIMIT(getenv("CUTS") || getenv("CUT") ? 0 : 120);

/* P8: whatever a cut leaves of what was not synced, all that was acknowledged
 * as durable is there, as a prefix of the commits, and no number comes twice;
 * also when the power fails again during the recovery. */
TEST(acknowledged_changes_survive) {
  powerloss_plan plan = {
      .name = "cuts", .seed = 1, .operations = 150, .every = 40};
  const powerloss_tally *t =
      run_until(plan, test_sample(100, 40 / test_stride(2)), 60);
  ck_assert_int_eq(powerloss_violations(t), 0);
  ck_assert(t->kept && t->lost && t->torn);
  ck_assert(getenv("CUT") || (t->reordered && t->second && t->swept));
}

/* The same where transactions spill into the log before they are committed. */
TEST(with_a_small_cache) {
  powerloss_plan plan = {.name = "cache",
                         .seed = 1001,
                         .operations = 150,
                         .every = 64,
                         .cache_kib = 8};
  ck_assert_int_eq(powerloss_violations(run_until(
                       plan, test_sample(30, 10 / test_stride(2)), 15)),
                   0);
}

/* ZKE_DURABLE_ALL: sessions' and ephemerals' traces in the counters too. */
TEST(durable_all_means_all) {
  powerloss_plan plan = {.name = "all",
                         .seed = 2001,
                         .operations = 150,
                         .every = 64,
                         .durability = ZKE_DURABLE_ALL};
  ck_assert_int_eq(powerloss_violations(run_until(
                       plan, test_sample(30, 10 / test_stride(2)), 15)),
                   0);
}

/* Every event of a database's creation and first session. */
TEST(cut_in_the_creation) {
  powerloss_plan plan = {.name = "creation",
                         .seed = 3001,
                         .operations = 1,
                         .every = 1,
                         .images = (int)test_sample(6, 2)};
  ck_assert_int_eq(powerloss_violations(run_until(plan, 60, 10)), 0);
}

/* Open rubbish with a rollback journal beside it, which begins with a byte
 * (SQLite's with 0xd9) and says how many pages there were before.  Where it is
 * refused both must be as they were. */
static int open_rubbish(const char *file, int first, int pages) {
  char journal[512] = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  char rubbish[4096], found[4096], beside[PATH_MAX];
  uint64_t random = 1;
  zke *z = NULL;
  journal[0] = (char)first;
  journal[19] = (char)pages;
  journal[22] = 2;  /* sectors of 512 bytes */
  journal[26] = 16; /* pages of 4096 */
  for (size_t i = 0; i < sizeof rubbish; i++) {
    rubbish[i] = (char)power_random(&random, 256);
  }
  snprintf(beside, sizeof beside, "%s-journal", file);
  write_file(file, rubbish, sizeof rubbish);
  write_file(beside, journal, sizeof journal);
  int rc = zke_open(file, NULL, &z);
  if (rc == ZKE_OK) {
    ck_ok(zke_check(z, NULL, NULL));
    ck_ok(zke_close(z));
    return rc;
  }
  read_file(file, found, sizeof found);
  ck_assert_mem_eq(found, rubbish, sizeof rubbish);
  read_file(beside, found, sizeof journal);
  ck_assert_mem_eq(found, journal, sizeof journal);
  return rc;
}

/* P11: what a cut left of a creation is begun anew, whatever is in it; beside
 * any other journal the same is a stranger's and stays as it is. */
TEST(a_creation_is_known_by_its_journal) {
  ck_rc(open_rubbish(test_path("a.db"), 0xd9, 1), ZKE_NOTADB);
  ck_rc(open_rubbish(test_path("b.db"), 0xd8, 0), ZKE_NOTADB);
  ck_ok(open_rubbish(test_path("c.db"), 0xd9, 0));
}

/* P8: nothing is acknowledged, nor seen by another connection, before its sync.
 * Looked at before each event on the disk, without cuts. */
TEST(nothing_is_seen_before_its_sync) {
  powerloss_plan plan = {.name = "ahead", .seed = 4001, .operations = 500};
  const powerloss_tally *t = NULL;
  for (int i = 0; i < 8; i++, plan.seed++) t = powerloss_run(work(), &plan);
  powerloss_print(t);
  ck_assert_int_eq(powerloss_violations(t), 0);
  ck_assert_int_gt(t->durable, 1000);
  ck_assert_int_gt(t->looks, 1000);
}

/* ---- the checker finds what is there to be found ---- */

static sqlite3 *plain_open(const char *file, const char *vfs) {
  sqlite3 *db = NULL;
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  ck_assert_int_eq(sqlite3_open_v2(file, &db, flags, vfs), SQLITE_OK);
  return db;
}

static void plain_do(sqlite3 *db, const char *sql) {
  ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* The rows found on the disk that a cut leaves now. */
static int rows_after_cut(power_style style, uint64_t seed) {
  char name[32], file[PATH_MAX];
  sqlite3_stmt *st = NULL;
  power_loss loss = {0};
  snprintf(name, sizeof name, "cut-%d-%d", (int)style, (int)seed);
  const char *directory = test_path(name);
  ck_assert_int_eq(mkdir(directory, 0700), 0);
  power_image(directory, style, &seed, &loss);
  snprintf(file, sizeof file, "%s/a.db", directory);
  sqlite3 *db = plain_open(file, NULL);
  ck_assert_int_eq(
      sqlite3_prepare_v2(db, "SELECT count(*) FROM t", -1, &st, NULL),
      SQLITE_OK);
  ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
  int rows = sqlite3_column_int(st, 0);
  sqlite3_finalize(st);
  sqlite3_close(db);
  return rows;
}

/* The disk itself, under plain SQLite: what was committed with a sync is there
 * after every cut, what was committed without one after some. */
TEST(the_disk_keeps_what_was_synced_only) {
  int count[3] = {0};
  power_begin(work(), NULL);
  sqlite3 *db = plain_open(test_path("power/a.db"), "unix-power");
  plain_do(db,
           "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;"
           "CREATE TABLE t(x);INSERT INTO t VALUES(1);");
  ck_assert_int_eq(power_unsynced("a.db-wal"), 0);
  ck_assert_int_eq(power_unsynced_names(), 0);
  plain_do(db, "PRAGMA synchronous=OFF;INSERT INTO t VALUES(2);");
  ck_assert_int_gt(power_unsynced("a.db-wal"), 0);
  for (int i = 0; i < 10 * POWER_STYLES; i++) {
    int rows = rows_after_cut((power_style)(i % POWER_STYLES), (uint64_t)i);
    ck_assert(rows == 1 || rows == 2);
    if (i == POWER_NONE) ck_assert_int_eq(rows, 1);
    if (i == POWER_ALL) ck_assert_int_eq(rows, 2);
    count[rows]++;
  }
  ck_assert_int_gt(count[1], POWER_STYLES);
  ck_assert_int_gt(count[2], 10);
  sqlite3_close(db);
}

static const powerloss_tally *run_planted(powerloss_plan plan) {
  plan.operations = 100;
  plan.every = 24;
  plan.images = 4;
  plan.quiet = true;
  plan.name = "checker";
  return powerloss_run(work(), &plan);
}

/* Without syncs commits are lost, but only the latest. */
TEST(finds_losses_without_durability) {
  const powerloss_tally *t = run_planted(
      (powerloss_plan){.seed = 5005, .durability = ZKE_DURABLE_NONE});
  ck_assert_int_gt(t->violations[POWERLOSS_LOST], 0);
  ck_assert_int_gt(t->violations[POWERLOSS_EARLY], 0);
  ck_assert_int_eq(t->violations[POWERLOSS_DISORDER], 0);
  ck_assert_int_eq(t->violations[POWERLOSS_UNSOUND], 0);
}

/* A disk that lies of the log's syncs loses the latest, as if there were none;
 * one that lies of the database's loses anything, since the log that had it is
 * begun anew.  No damage makes the engine crash. */
TEST_LOOP(finds_losses_on_a_lying_disk, 0, POWER_LONG) {
  powerloss_plan plan = {.seed = 5002, .lie = "a.db-wal"};
  const powerloss_tally *t = run_planted(plan);
  ck_assert_int_gt(t->violations[POWERLOSS_LOST], 0);
  ck_assert_int_gt(t->violations[POWERLOSS_EARLY], 0);
  /* (From 5012 on it is the first seed with which it does.) */
  plan = (powerloss_plan){.seed = (uint64_t)test_sample(5010, 5012),
                          .lie = "a.db"};
  do t = run_planted(plan);
  while (!t->violations[POWERLOSS_DISORDER] && plan.seed++ < 5030);
  ck_assert_int_gt(t->violations[POWERLOSS_DISORDER], 0);
  ck_assert_int_gt(t->violations[POWERLOSS_UNSOUND], 0);
  ck_assert_int_eq(t->violations[POWERLOSS_DIED], 0);
}

/* A directory that is never synced loses the files themselves. */
TEST_LOOP(finds_losses_without_the_directorys_syncs, 0, POWER_LONG) {
  const powerloss_tally *t =
      run_planted((powerloss_plan){.seed = 5003, .lie = "."});
  ck_assert_int_gt(t->violations[POWERLOSS_LOST], 0);
  ck_assert_int_gt(t->violations[POWERLOSS_EARLY], 0);
  ck_assert_int_eq(t->violations[POWERLOSS_DIED], 0);
}

/* Were there no new boot, no epoch would keep numbers from coming again. */
TEST_LOOP(finds_numbers_given_again, 0, POWER_LONG) {
  powerloss_plan plan = {.seed = 5004, .same_boot = true};
  const powerloss_tally *t;
  do t = run_planted(plan);
  while (!t->violations[POWERLOSS_REISSUE] && plan.seed++ < 5024);
  ck_assert_int_gt(t->violations[POWERLOSS_REISSUE], 0);
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--writer") == 0)
    return walreset_writer(argc, argv);
  return test_main(argc, argv);
}
