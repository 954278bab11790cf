/* foreign.c - see foreign.h */
#include "test/sim/foreign.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "test/sim/disk.h"
#include "test/sim/known.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"
#include "test/sim/vfs.h"

enum { NOTHING = -1, SHORT_MS = 200, LONG_MS = 5000, OPEN_ACTS = 12 };

/* How often it tries to get a lock, and the sleeps in between. */
enum { TRIES = 400, TRY_NS = 20000, TRY_LATER_NS = 1000000 };

/* The last row of its own table that was tried, that was acknowledged, and that
 * was acknowledged at the time of the backup. */
static int tried, written, kept;

/* ---- reading ---- */

/* The number that a statement returns; NOTHING: it cannot be read now. */
static int number_of(sqlite3 *db, const char *sql) {
  sqlite3_stmt *st = NULL;
  int number = NOTHING;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  if (rc == SQLITE_ROW) number = sqlite3_column_int(st, 0);
  if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB)
    sim_found("P2: another program finds: %s", sqlite3_errmsg(db));
  sqlite3_finalize(st);
  return number;
}

/* Stand still in a transaction.  If it writes, no other can write meanwhile,
 * and no store can resolve its log. */
static void stand(int slot, int64_t most_ms) {
  int64_t pause_ms = (int64_t)sim_load(slot, (uint64_t)most_ms);
  sim_fault(sim.now + pause_ms * SIM_MS);
  sched_pause(pause_ms * SIM_MS);
}

/* Read both nodes of the pair in one transaction, with a pause in between.
 * Returns the version; NOTHING: they cannot be read now. */
static int look(int slot, sqlite3 *db, int64_t pause_ms) {
  int least = known_pair();
  if (sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK) return NOTHING;
  int first = number_of(db, "SELECT version FROM zke_nodes WHERE path='/m0'");
  stand(slot, pause_ms);
  int second = number_of(db, "SELECT version FROM zke_nodes WHERE path='/m1'");
  sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
  if (first == NOTHING || second == NOTHING) return NOTHING;
  sim_say("another program reads version %d", first);
  if (first != second)
    sim_found("P2: another program reads version %d of /m0, %d of /m1", first,
              second);
  if (first < least)
    sim_found("P8: another program reads version %d of /m0, after %d was known",
              first, least);
  return first;
}

/* Is all of the log durable?  After a death or a failed sync, the first to open
 * it finds writes that were never synced.  zkembed's readers have them synced
 * first; SQLite does not. */
static bool log_is_durable(void) {
  char path[DISK_PATH];
  snprintf(path, sizeof path, "%s-wal", ops_file);
  const disk_node *log = disk_find(path);
  return !log || disk_is_durable(log);
}

void foreign_any(const ops_actor *a) {
  sqlite3 *db = NULL;
  int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
  int version = NOTHING;
  if (sqlite3_open_v2(ops_file, &db, flags, vfs_foreign_name) == SQLITE_OK)
    version = look(a->slot, db, SHORT_MS);
  if (version != NOTHING && log_is_durable()) known_pair_set(version);
  sqlite3_close(db);
}

/* ---- a process that is another program ---- */

bool foreign_is(int slot) {
  return the_plan.k.foreign && slot && slot == the_plan.k.processes - 1;
}

/* Most pauses are short; some are longer than other processes wait. */
static int64_t some_ms(int slot) {
  return sim_load(slot, 6) ? SHORT_MS : LONG_MS;
}

/* The commit that it reads may not count as known: a dead process may have left
 * it unsynced, and only the engine syncs it when it opens the file. */
static void do_look(int slot, sqlite3 *db) { look(slot, db, some_ms(slot)); }

bool foreign_is_durable(void) {
  return sim.last_error < 0 && !(the_plan.k.medium & 1);
}

/* The acknowledged rows exist. */
static void check_rows(sqlite3 *db) {
  int least = written;
  int most = number_of(db, "SELECT max(n) FROM foreign_rows");
  if (most != NOTHING && most < least && foreign_is_durable())
    sim_found("P8: another program's row %d is lost, there are %d", least,
              most);
}

/* A transaction that lasts for a while, and sometimes is rolled back. */
static void do_write(int slot, sqlite3 *db) {
  static const char *const ends[] = {"ROLLBACK", "COMMIT", "COMMIT", "COMMIT"};
  const char *end = ends[sim_load(slot, 4)];
  char sql[64];
  if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
    return;
  check_rows(db);
  int row = ++tried;
  sqlite3_snprintf(sizeof sql, sql, "INSERT INTO foreign_rows VALUES(%d,%d)",
                   row, row);
  int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  sim_say("another program writes row %d", row);
  stand(slot, some_ms(slot));
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, end, NULL, NULL, NULL);
  if (rc == SQLITE_OK && end[0] == 'C' && row > written) written = row;
  if (rc != SQLITE_OK) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
  sim_say("another program: %s: %d", end, rc);
}

/* A checkpoint of any kind; if it makes none, another transaction. */
static void do_checkpoint(int slot, sqlite3 *db) {
  int how = (int)sim_load(slot, SQLITE_CHECKPOINT_TRUNCATE + 1);
  if (the_plan.k.foreign < 2) {
    do_write(slot, db);
    return;
  }
  int rc = sqlite3_wal_checkpoint_v2(db, NULL, how, NULL, NULL);
  sim_say("another program makes a checkpoint (%d): %d", how, rc);
}

static void (*const acts[])(int slot, sqlite3 *db) = {do_look, do_write,
                                                      do_checkpoint};

/* It retries soon, to come between a commit and the next checkpoint, and then
 * less often. */
static int try_again(void *context, int tries) {
  (void)context;
  sched_pause(tries < TRIES / 2 ? TRY_NS : TRY_LATER_NS);
  return tries < TRIES;
}

/* As doc/format.md requires: with no checkpoints by itself. */
static sqlite3 *connect(void) {
  static const char sql[] =
      "PRAGMA wal_autocheckpoint=0;"
      "PRAGMA synchronous=FULL;"
      "CREATE TABLE IF NOT EXISTS foreign_rows(n INTEGER PRIMARY KEY, m)";
  sqlite3 *db = NULL;
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  int rc = sqlite3_open_v2(ops_file, &db, flags, vfs_foreign_name);
  if (rc == SQLITE_OK) sqlite3_busy_handler(db, try_again, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  if (rc == SQLITE_OK) return db;
  sqlite3_close(db);
  return NULL;
}

void foreign_main(int slot) {
  while (!sim.ending) {
    sched_pause((int64_t)sim_load(slot, SHORT_MS) * SIM_MS);
    sqlite3 *db = known_ready ? connect() : NULL;
    for (int i = 0; db && i < OPEN_ACTS && !sim.ending; i++) {
      acts[sim_load(slot, sizeof acts / sizeof *acts)](slot, db);
      sched_pause((int64_t)sim_load(slot, SHORT_MS) * SIM_MS);
    }
    sqlite3_close(db);
  }
}

void foreign_keep(void) { kept = written; }
void foreign_go_back(void) { written = kept; }
