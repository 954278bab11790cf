/* tables.h - the engine's statements on plain tables, in place of SQLite
 *
 * engine.c compiles zkembed.c so that it calls these where it would call
 * SQLite.  They do what SQLite's functions of the same names do: for a
 * statement of the tables by their own code, for any other by SQLite's. */
#ifndef TABLES_H
#define TABLES_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"

/* Take over the rows of a database, whose tables are those of doc/format.md.
 * From now on a statement that was told of by tables_know() runs here; any
 * other runs in SQLite, on rows that are written back before.  Returns an error
 * of SQLite's; *other_out: the name of a table of which something would get
 * lost, as it is unknown here or has other columns. */
int tables_begin(sqlite3 *db, const char **other_out);

/* Tell a statement's name and text; before tables_begin().  False: there is no
 * code for it, or the text is not the one that the code was written for. */
bool tables_know(const char *name, const char *text);
bool tables_has(const char *name);      /* some code, for whatever text */
uint32_t tables_hash(const char *text); /* that stands beside the code */

/* Everything that the tables hold, in the order of their keys.  An event counts
 * until its session has read it, and its number does not count. */
void tables_words(bool (*is_read)(void *arg, int64_t session, int64_t seq),
                  void *arg, const engine_sink *sink);

int tables_prepare_v2(sqlite3 *db, const char *text, int size,
                      sqlite3_stmt **out, const char **tail);
int tables_prepare_v3(sqlite3 *db, const char *text, int size, unsigned flags,
                      sqlite3_stmt **out, const char **tail);
int tables_finalize(sqlite3_stmt *st);
int tables_bind_parameter_count(sqlite3_stmt *st);
int tables_bind_null(sqlite3_stmt *st, int at);
int tables_bind_int64(sqlite3_stmt *st, int at, sqlite3_int64 number);
int tables_bind_text(sqlite3_stmt *st, int at, const char *text, int size,
                     void (*destroy)(void *));
int tables_bind_blob(sqlite3_stmt *st, int at, const void *data, int size,
                     void (*destroy)(void *));
int tables_step(sqlite3_stmt *st);
int tables_reset(sqlite3_stmt *st);
int tables_column_type(sqlite3_stmt *st, int column);
int tables_column_int(sqlite3_stmt *st, int column);
sqlite3_int64 tables_column_int64(sqlite3_stmt *st, int column);
const unsigned char *tables_column_text(sqlite3_stmt *st, int column);
const void *tables_column_blob(sqlite3_stmt *st, int column);
int tables_column_bytes(sqlite3_stmt *st, int column);
int tables_stmt_status(sqlite3_stmt *st, int which, int reset);
int tables_changes(sqlite3 *db);
int tables_total_changes(sqlite3 *db);
sqlite3_int64 tables_last_insert_rowid(sqlite3 *db);
int tables_get_autocommit(sqlite3 *db);

#endif
