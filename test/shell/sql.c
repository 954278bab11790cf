/* sql.c - see sql.h */
#include "test/shell/sql.h"

#include <stdio.h>
#include <string.h>

#include "test/test.h"

/* It is in the parent of the test programs' directory. */
const char *sql_library(void) {
  static char path[4096];
  const char *slash = strrchr(test_program(), '/');
  snprintf(path, sizeof path, "%.*s/../zkembed.so",
           (int)(slash - test_program()), test_program());
  return path;
}

void sql_load(sqlite3 *db) {
  char *error = NULL;
  sqlite3_enable_load_extension(db, 1);
  if (sqlite3_load_extension(db, sql_library(), NULL, &error) != SQLITE_OK)
    ck_abort_msg("%s: %s", sql_library(), error);
  sqlite3_enable_load_extension(db, 0);
}

const char *sql_ask(sqlite3 *db, const char *sql, const char *between,
                    const char *null) {
  static _Thread_local char texts[8][4096];
  static _Thread_local unsigned next;
  char *text = texts[next++ % 8], *to = text, *end = text + sizeof texts[0];
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  *text = '\0';
  while (rc == SQLITE_OK && (rc = sqlite3_step(st)) == SQLITE_ROW) {
    for (int i = 0; i < sqlite3_column_count(st); i++) {
      const char *value = (const char *)sqlite3_column_text(st, i);
      const char *before = i ? "|" : to > text ? between : "";
      to += snprintf(to, (size_t)(end - to), "%s%s", before,
                     value ? value : null);
      ck_assert(to < end);
    }
    rc = SQLITE_OK;
  }
  if (rc != SQLITE_DONE)
    snprintf(text, sizeof texts[0], "%s", sqlite3_errmsg(db));
  sqlite3_finalize(st);
  return text;
}

void sql_close(sqlite3 *db) { ck_assert_int_eq(sqlite3_close(db), SQLITE_OK); }
