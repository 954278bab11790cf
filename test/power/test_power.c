/* test_power.c - the disk that forgets, and what a cut leaves of a new database
 *
 * P8, P11.  The simulated host (test/sim) makes cuts under the engine and the
 * recipes, test_power_fence.c those under fences.
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

#include "powervfs.h"
#include "test/test.h"

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

/* Read a file of this size. */
static void read_file(const char *path, char *data, size_t size) {
  FILE *f = fopen(path, "rb");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fread(data, 1, size, f), size);
  ck_assert_int_eq(fgetc(f), EOF);
  fclose(f);
}

/* Open rubbish with a rollback journal next to it, which begins with this byte
 * (SQLite's with 0xd9) and gives the old number of pages.  If it is refused
 * both files must be unchanged. */
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

/* P11: if a cut has interrupted the making of a database it is made anew,
 * whatever is in the file; with any other journal such a file belongs to
 * another program and stays as it is. */
TEST(a_creation_is_known_by_its_journal) {
  ck_rc(open_rubbish(test_path("a.db"), 0xd9, 1), ZKE_NOTADB);
  ck_rc(open_rubbish(test_path("b.db"), 0xd8, 0), ZKE_NOTADB);
  ck_ok(open_rubbish(test_path("c.db"), 0xd9, 0));
}

/* ---- the disk ---- */

static sqlite3 *plain_open(const char *file, const char *vfs) {
  sqlite3 *db = NULL;
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  ck_assert_int_eq(sqlite3_open_v2(file, &db, flags, vfs), SQLITE_OK);
  return db;
}

static void plain_do(sqlite3 *db, const char *sql) {
  ck_assert_int_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

/* The number that a query returns from the state after a cut now. */
static int after_cut(power_style style, uint64_t seed, const char *sql) {
  char name[32], file[PATH_MAX];
  power_loss loss = {0};
  snprintf(name, sizeof name, "cut-%d-%d", (int)style, (int)seed);
  const char *directory = test_path(name);
  ck_assert_int_eq(mkdir(directory, 0700), 0);
  power_image(directory, style, &seed, &loss);
  snprintf(file, sizeof file, "%s/a.db", directory);
  return (int)test_number(file, sql);
}

/* The disk alone, with plain SQLite: a synced commit is there after every cut,
 * an unsynced one after some. */
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
    int rows = after_cut((power_style)(i % POWER_STYLES), (uint64_t)i,
                         "SELECT count(*) FROM t");
    ck_assert(rows == 1 || rows == 2);
    if (i == POWER_NONE) ck_assert_int_eq(rows, 1);
    if (i == POWER_ALL) ck_assert_int_eq(rows, 2);
    count[rows]++;
  }
  ck_assert_int_gt(count[1], POWER_STYLES);
  ck_assert_int_gt(count[2], 10);
  sqlite3_close(db);
}

/* The log's sync with this number, counted from now, fails; 0: none. */
static int failing;

static void fail_a_sync(power_event event) {
  if (event == POWER_SYNC && failing && --failing == 0)
    power_fail("a.db-wal", 1);
}

/* P2: what a read shows after a COMMIT with a failed sync stays true.  The sync
 * is that of the log's head (0), or of the commit's frames (1).  The log was
 * reset, and a connection that has not made the checkpoint begins it with a
 * salt that the WAL-index does not have yet. */
TEST_LOOP(a_failed_commit_in_an_emptied_log_stays_undone, 0, 2) {
  static const char rows[] = "SELECT count(*) FROM t";
  power_begin(work(), fail_a_sync);
  const char *db = test_path("power/a.db");
  zke_options o = {
      .size = sizeof o, .vfs = "unix-power", .flags = ZKE_OPEN_HOST};
  sqlite3 *guest = plain_open(db, "unix-power");
  plain_do(guest, "CREATE TABLE t(x)");
  zke *z;
  ck_ok(zke_open(db, &o, &z));
  ck_ok(zke_sql_adopt(z, guest));
  ck_ok(zke_compact(z, ZKE_FOREVER));
  ck_ok(zke_sql_begin(z, guest));
  plain_do(guest, "INSERT INTO t VALUES(1)");
  failing = 1 + _i;
  ck_rc(zke_sql_commit(z, guest), ZKE_CONNECTIONLOSS);
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  int seen = (int)test_number(db, rows);
  for (int style = 0; style < POWER_STYLES; style++)
    ck_assert_int_eq(after_cut((power_style)style, 1, rows), seen);
  sqlite3_close(guest);
  ck_ok(zke_close(z));
}
