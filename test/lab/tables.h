/* tables.h - the engine's statements on plain tables, instead of SQLite
 *
 * engine.c compiles zkembed.c to call these functions instead of SQLite's.
 * They do the same as SQLite's functions of the same names: for a statement of
 * the tables with their own code, for any other through SQLite. */
#ifndef TABLES_H
#define TABLES_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine.h"

/* Take over the rows of a database with the tables of doc/format.md.  From now
 * on a statement announced by tables_know() runs here; any other runs in
 * SQLite, after the rows have been written back.  Returns an SQLite error;
 * *other_out: the name of a table that is unknown here or has other columns, so
 * that data would be lost. */
int tables_begin(sqlite3 *db, const char **other_out);

/* Announce a statement's name and text, before tables_begin().  False: there is
 * no code for it, or the code was written for another text. */
bool tables_know(const char *name, const char *text);
bool tables_has(const char *name);      /* code for it, for any text */
uint32_t tables_hash(const char *text); /* as stored with the code */

/* The whole content of the tables, in key order.  An event counts until its
 * session has read it, and its number does not count. */
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
