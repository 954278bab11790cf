/* lock.c FILE NAME - hold a lock of the file for as long as a task takes
 *
 * The extension is linked into the program:
 *
 *     cc -DSQLITE_CORE -D_GNU_SOURCE -I. lock.c shell/extension/[a-z]*.c \
 *       libzkembed-recipes.a libzkembed.a -lsqlite3 -lpthread
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

int sqlite3_zkembed_init(sqlite3 *db, char **error,
                         const sqlite3_api_routines *api);

/* Run a statement, with a text if it has a place for one.  The first number of
 * its row. */
static sqlite3_int64 run(sqlite3 *db, const char *sql, const char *text) {
  sqlite3_stmt *st;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  if (rc == SQLITE_OK && text)
    rc = sqlite3_bind_text(st, 1, text, -1, SQLITE_STATIC);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  if (rc != SQLITE_ROW && rc != SQLITE_DONE) {
    fprintf(stderr, "%s\n", sqlite3_errmsg(db));
    exit(1);
  }
  sqlite3_int64 number = rc == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
  sqlite3_finalize(st);
  return number;
}

int main(int argc, char **argv) {
  sqlite3 *db;
  char insert[80];
  if (argc != 3) return 2;
  sqlite3_auto_extension((void (*)(void))sqlite3_zkembed_init);
  if (sqlite3_open(argv[1], &db) != SQLITE_OK) return 1;

  sqlite3_int64 token = run(db, "SELECT zke_lock(?)", argv[2]);
  run(db, "BEGIN IMMEDIATE", NULL);
  run(db, "CREATE TABLE IF NOT EXISTS runs(token INTEGER PRIMARY KEY)", NULL);
  snprintf(insert, sizeof insert, "INSERT INTO runs VALUES(%lld)", token);
  run(db, insert, NULL);
  run(db, "COMMIT", NULL);
  run(db, "SELECT zke_unlock(?)", argv[2]);
  return sqlite3_close(db) != SQLITE_OK;
}
