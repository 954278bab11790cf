/* foreign.c - see foreign.h */
#include "test/sim/foreign.h"

#include <sqlite3.h>
#include <stdlib.h>

#include "test/sim/known.h"
#include "test/sim/sched.h"
#include "test/sim/vfs.h"

enum { NOTHING = -1 };

/* The version of a node; NOTHING: it cannot be read now. */
static int version_of(sqlite3 *db, const char *path) {
  sqlite3_stmt *st = NULL;
  int version = NOTHING;
  int rc = sqlite3_prepare_v2(db, "SELECT version FROM zke_nodes WHERE path=?1",
                              -1, &st, NULL);
  if (rc == SQLITE_OK) {
    sqlite3_bind_text(st, 1, path, -1, SQLITE_STATIC);
    rc = sqlite3_step(st);
  }
  if (rc == SQLITE_ROW) version = sqlite3_column_int(st, 0);
  if ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB)
    sim_found("P2: another program finds: %s", sqlite3_errmsg(db));
  sqlite3_finalize(st);
  return version;
}

/* One transaction, with a pause in the middle of it. */
static void look(const ops_actor *a, sqlite3 *db) {
  int least = known_pair();
  if (sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK) return;
  int first = version_of(db, "/m0");
  sched_pause((int64_t)sim_random((sim_stream)(SIM_LOAD + a->slot), 200) *
              SIM_MS);
  int second = version_of(db, "/m1");
  sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
  if (first == NOTHING || second == NOTHING) return;
  sim_say("another program reads version %d", first);
  if (first != second)
    sim_found("P2: another program reads version %d of /m0, %d of /m1", first,
              second);
  if (first < least)
    sim_found("P8: another program reads version %d of /m0, after %d was known",
              first, least);
  known_pair_set(first);
}

void foreign_any(const ops_actor *a) {
  sqlite3 *db = NULL;
  int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(ops_file, &db, flags, vfs_name) == SQLITE_OK) look(a, db);
  sqlite3_close(db);
}
