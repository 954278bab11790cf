/* fence.c - triggers that reject rows of a former holder
 *
 * A fence is two triggers, each of the form
 *
 *     CREATE TRIGGER "fence_zke_<zxid>_insert" BEFORE INSERT ON "<table>"
 *     WHEN NOT EXISTS(SELECT 1 FROM zke_tokens WHERE path='<path>'
 *                     AND token=NEW."<column>" AND instr(name,'-__READ__')=0)
 *     BEGIN SELECT RAISE(ABORT,'fenced: ...');END
 *
 * in one line.  The zxid, which no other transaction has, makes the name
 * unique: so a renamed table and a new one of its old name can both have a
 * fence.  Table, path and column are read back from the text that SQLite
 * stores, and keeps current when the table or the column is renamed.  No second
 * record can contradict it.  So fence_parse() accepts exactly this form and
 * nothing else.
 *
 * SQLite resolves the names of a trigger in the trigger's own database: it
 * finds the view there, whatever temporary tables a connection has.
 *
 * Start reading at fence_set().
 */
#include "fence.h"

#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

/* A shared libzkembed with a SQLite compiled in does not export it.  Then these
 * are missing when the program is linked, and are NULL. */
#ifndef SQLITE3EXT_H /* an extension calls the SQLite of its program */
#pragma weak sqlite3_bind_text
#pragma weak sqlite3_column_bytes
#pragma weak sqlite3_column_int64
#pragma weak sqlite3_column_text
#pragma weak sqlite3_errmsg
#pragma weak sqlite3_exec
#pragma weak sqlite3_finalize
#pragma weak sqlite3_free
#pragma weak sqlite3_mprintf
#pragma weak sqlite3_prepare_v2
#pragma weak sqlite3_step
#pragma weak sqlite3_stricmp
#pragma weak sqlite3_strnicmp
#pragma weak sqlite3_table_column_metadata
#endif

/* One call, for the function that runs in the transaction. */
typedef struct fence {
  zke *z;
  const char *table;  /* as given; once found, as in the schema */
  const char *path;   /* of the lock */
  const char *column; /* likewise */
  bool replace;
  zke_fence_infos *list; /* out, of zke_fence_list() */
  int rc;                /* our code, if a zke_sql_fn may not return it */
  zke_sql_fn change;     /* fence_set() or fence_unset() */
  bool unsure;           /* a try has lost its reply: it may have been made */
  int64_t seen;          /* zxid of the table's newest fence before the change;
                            -1: no try has come that far */
} fence;

/* The parts of a trigger's text. */
typedef struct fence_text {
  char *table, *path, *column; /* sqlite3_free() */
} fence_text;

/* ---- failing ---- */

static int fence_fail(fence *f, int rc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Fail in the transaction, with a code for the recipe's caller only:
 * zke_multi() turns it into ZKE_SQL, so fence_result() needs a copy.  Returns
 * rc. */
static int fence_fail(fence *f, int rc, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  f->rc = rc;
  return zke_recipe_fail(rc, "%s", text);
}

/* Fail with SQLite's message. */
static int fence_sqlite(fence *f, sqlite3 *db, int sqlite_rc) {
  int rc = sqlite_rc == SQLITE_NOMEM ? ZKE_NOMEM : ZKE_SQL;
  return fence_fail(f, rc, "fence: %s", sqlite3_errmsg(db));
}

/* The result of zke_multi(), which has turned our codes into ZKE_SQL. */
static int fence_result(const fence *f, int rc) {
  zke_sentence kept;
  if (rc == ZKE_OK || f->rc == ZKE_OK) return rc;
  zke_recipe_keep(&kept);
  return zke_recipe_restore(&kept, f->rc);
}

/* ---- the text of a trigger ---- */

/* Is this the next text?  Then move *at past it. */
static bool fence_skip(const char **at, const char *text) {
  size_t len = strlen(text);
  if (strncmp(*at, text, len) != 0) return false;
  *at += len;
  return true;
}

/* Read a quoted text, in which the quote is doubled; NULL if it is not quoted,
 * and with *at NULL if memory is short.  For sqlite3_free(). */
static char *fence_unquote(const char **at, char quote) {
  const char *from = *at;
  if (*from++ != quote) return NULL;
  char *text = sqlite3_mprintf("%s", from), *to = text;
  if (!text) *at = NULL;
  if (!text) return NULL;
  for (; *from; from++) {
    if (*from == quote && *++from != quote) {
      *to = '\0';
      *at = from;
      return text;
    }
    *to++ = *from;
  }
  sqlite3_free(text);
  return NULL;
}

/* Free what fence_parse() has read; *t is empty then. */
static void fence_text_free(fence_text *t) {
  sqlite3_free(t->table);
  sqlite3_free(t->path);
  sqlite3_free(t->column);
  *t = (fence_text){NULL, NULL, NULL};
}

/* Read the text of a trigger; NULL means no memory.  *t is empty if it is not a
 * fence's, and after a failure. */
static int fence_parse(fence *f, const char *sql, fence_text *t) {
  char *name = NULL;
  *t = (fence_text){NULL, NULL, NULL};
  bool right = sql && fence_skip(&sql, "CREATE TRIGGER ") &&
               (name = fence_unquote(&sql, '"')) != NULL &&
               (fence_skip(&sql, " BEFORE INSERT ON ") ||
                fence_skip(&sql, " BEFORE UPDATE ON ")) &&
               (t->table = fence_unquote(&sql, '"')) != NULL &&
               fence_skip(&sql,
                          " WHEN NOT EXISTS(SELECT 1 FROM zke_tokens WHERE "
                          "path=") &&
               (t->path = fence_unquote(&sql, '\'')) != NULL &&
               fence_skip(&sql, " AND token=NEW.") &&
               (t->column = fence_unquote(&sql, '"')) != NULL;
  sqlite3_free(name);
  if (!right) fence_text_free(t);
  return sql ? ZKE_OK : fence_fail(f, ZKE_NOMEM, "out of memory");
}

/* ---- in the transaction ----
 *
 * The table is read and its triggers are made in one transaction, so no other
 * process changes the table in between. */

/* Prepare a statement, with a text if that is not NULL. */
static int fence_prepare(fence *f, sqlite3 *db, const char *sql,
                         const char *text, sqlite3_stmt **st) {
  int rc = sqlite3_prepare_v2(db, sql, -1, st, NULL);
  if (rc == SQLITE_OK && text)
    rc = sqlite3_bind_text(*st, 1, text, -1, SQLITE_STATIC);
  return rc == SQLITE_OK ? ZKE_OK : fence_sqlite(f, db, rc);
}

/* Move to the next row; *row: there is one. */
static int fence_step(fence *f, sqlite3 *db, sqlite3_stmt *st, bool *row) {
  int rc = sqlite3_step(st);
  *row = rc == SQLITE_ROW;
  return rc == SQLITE_ROW || rc == SQLITE_DONE ? ZKE_OK
                                               : fence_sqlite(f, db, rc);
}

/* Move to the next trigger of a statement that reads their texts; *row: there
 * is one.  *t: its parts. */
static int fence_next(fence *f, sqlite3 *db, sqlite3_stmt *st, fence_text *t,
                      bool *row) {
  int rc = fence_step(f, db, st, row);
  if (rc != ZKE_OK || !*row) return rc;
  return fence_parse(f, (const char *)sqlite3_column_text(st, 0), t);
}

/* Run a text of sqlite3_mprintf(), and release it. */
static int fence_exec(fence *f, sqlite3 *db, char *sql) {
  if (!sql) return fence_fail(f, ZKE_NOMEM, "out of memory");
  int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  sqlite3_free(sql);
  return rc == SQLITE_OK ? ZKE_OK : fence_sqlite(f, db, rc);
}

/* The reason why an entry of the schema cannot have a fence; NULL: it can. */
static const char *fence_unfit(const char *name, const char *type,
                               bool virtual) {
  if (!name || !type) return "cannot be checked: no memory";
  if (strcmp(type, "view") == 0) return "is a view: fence its tables";
  if (virtual) return "is a virtual table, which has no triggers";
  if (sqlite3_strnicmp(name, "zkembed_", 8) == 0) return "is zkembed's own";
  if (sqlite3_strnicmp(name, "sqlite_", 7) == 0) return "is SQLite's own";
  return NULL;
}

/* Is there a table of that name that can have triggers?  A virtual table has no
 * root page. */
static int fence_find_table(fence *f, sqlite3 *db) {
  sqlite3_stmt *st = NULL;
  const char *unfit = "is not a table of this database";
  bool row = false;
  int rc = fence_prepare(f, db,
                         "SELECT name,type,rootpage FROM main.sqlite_schema "
                         "WHERE name=?1 COLLATE NOCASE AND type IN('table',"
                         "'view')",
                         f->table, &st);
  if (rc == ZKE_OK) rc = fence_step(f, db, st, &row);
  if (row)
    unfit = fence_unfit((const char *)sqlite3_column_text(st, 0),
                        (const char *)sqlite3_column_text(st, 1),
                        sqlite3_column_int64(st, 2) == 0);
  sqlite3_finalize(st);
  if (rc != ZKE_OK || !unfit) return rc;
  return fence_fail(f, ZKE_BADARGUMENTS, "%s %s", f->table, unfit);
}

/* Fail if the table has no column for the token.  SQLite would make the trigger
 * all the same, and then every write to the table would fail. */
static int fence_find_column(fence *f, sqlite3 *db) {
  int rc = sqlite3_table_column_metadata(db, "main", f->table, f->column, NULL,
                                         NULL, NULL, NULL, NULL);
  if (rc == SQLITE_OK) return ZKE_OK;
  if (rc != SQLITE_ERROR) return fence_sqlite(f, db, rc);
  return fence_fail(f, ZKE_BADARGUMENTS,
                    "%s has no column \"%s\": ALTER TABLE … ADD COLUMN makes "
                    "one",
                    f->table, f->column);
}

/* A tree in memory has no views, and no other process can write to it. */
static int fence_find_view(fence *f, sqlite3 *db) {
  sqlite3_stmt *st = NULL;
  bool there = false;
  int rc = fence_prepare(f, db,
                         "SELECT 1 FROM main.sqlite_schema WHERE type='view' "
                         "AND name='zke_tokens'",
                         NULL, &st);
  if (rc == ZKE_OK) rc = fence_step(f, db, st, &there);
  sqlite3_finalize(st);
  if (rc != ZKE_OK || there) return rc;
  return fence_fail(f, ZKE_UNIMPLEMENTED,
                    "a fence needs a file: this tree is in memory");
}

/* Count the table's fence triggers, and those with the wanted path and column.
 * Fails if one has others, unless it may be replaced; then *same is less than
 * *all. */
static int fence_count(fence *f, sqlite3 *db, int *same, int *all) {
  sqlite3_stmt *st = NULL;
  fence_text t;
  int rc = fence_prepare(f, db,
                         "SELECT sql FROM main.sqlite_schema WHERE "
                         "type='trigger' AND name GLOB 'fence_zke_*' AND "
                         "tbl_name=?1 COLLATE NOCASE",
                         f->table, &st);
  *same = *all = 0;
  for (bool row = true; rc == ZKE_OK;) {
    rc = fence_next(f, db, st, &t, &row);
    if (rc != ZKE_OK || !row) break;
    ++*all;
    if (!t.table) continue;
    if (strcmp(t.path, f->path) == 0 &&
        sqlite3_stricmp(t.column, f->column) == 0)
      ++*same;
    else if (!f->replace)
      rc = fence_fail(f, ZKE_NODEEXISTS,
                      "%s is fenced already, by %s in the column \"%s\"",
                      t.table, t.path, t.column);
    fence_text_free(&t);
  }
  sqlite3_finalize(st);
  return rc;
}

/* The name of the table's newest trigger, for sqlite3_free(); NULL: there is
 * none.  Names contain the zxid, so the longest ones are the newest. */
static int fence_newest(fence *f, sqlite3 *db, char **name) {
  sqlite3_stmt *st = NULL;
  bool there = false;
  int rc = fence_prepare(f, db,
                         "SELECT name FROM main.sqlite_schema WHERE "
                         "type='trigger' AND name GLOB 'fence_zke_*' AND "
                         "tbl_name=?1 COLLATE NOCASE "
                         "ORDER BY length(name) DESC,name DESC LIMIT 1",
                         f->table, &st);
  if (rc == ZKE_OK) rc = fence_step(f, db, st, &there);
  *name = there ? sqlite3_mprintf("%s", sqlite3_column_text(st, 0)) : NULL;
  sqlite3_finalize(st);
  return there && !*name ? fence_fail(f, ZKE_NOMEM, "out of memory") : rc;
}

/* Before the change: *others: a try has lost its reply, and the table's newest
 * fence is not the one that it has seen. */
static int fence_see(fence *f, sqlite3 *db, bool *others) {
  char *name;
  int rc = fence_newest(f, db, &name);
  int64_t zxid = name ? strtoll(name + strlen("fence_zke_"), NULL, 16) : 0;
  sqlite3_free(name);
  *others = rc == ZKE_OK && f->unsure && zxid != f->seen;
  if (rc == ZKE_OK && !*others) f->seen = zxid;
  return rc;
}

/* Drop one of the table's triggers; *more: there was one.  One at a time, since
 * none can be dropped while a statement reads the schema. */
static int fence_drop_one(fence *f, sqlite3 *db, bool *more) {
  char *name;
  int rc = fence_newest(f, db, &name);
  *more = name != NULL;
  if (!name) return rc;
  char *sql = sqlite3_mprintf("DROP TRIGGER main.\"%w\"", name);
  sqlite3_free(name);
  return fence_exec(f, db, sql);
}

/* Drop all of them; *count: their number. */
static int fence_drop(fence *f, sqlite3 *db, int *count) {
  bool more = true;
  int rc = ZKE_OK;
  for (*count = 0; rc == ZKE_OK && more; *count += more)
    rc = fence_drop_one(f, db, &more);
  return rc;
}

/* Make one of the two triggers; %w and %Q quote its texts, and double the
 * quotes in them. */
static int fence_create(fence *f, sqlite3 *db, int64_t zxid, const char *lower,
                        const char *upper) {
  char *why = sqlite3_mprintf("fenced: that token does not hold %s", f->path);
  if (!why) return fence_fail(f, ZKE_NOMEM, "out of memory");
  char *sql = sqlite3_mprintf(
      "CREATE TRIGGER \"fence_zke_%llx_%s\" BEFORE %s ON \"%w\" WHEN NOT "
      "EXISTS(SELECT 1 FROM zke_tokens WHERE path=%Q AND token=NEW.\"%w\" AND "
      "instr(name,'-__READ__')=0)BEGIN SELECT RAISE(ABORT,%Q);END",
      (long long)zxid, lower, upper, f->table, f->path, f->column, why);
  sqlite3_free(why);
  return fence_exec(f, db, sql);
}

/* A zke_sql_fn: make the fence, unless it exists already.  After a lost reply
 * the earlier fence must still exist.  If it does not, others have removed or
 * replaced it, or the new one: their fence stays.  (If others removed a first
 * fence, no trace is left, and it is made again.) */
static int fence_set(sqlite3 *db, int64_t zxid, void *context) {
  fence *f = context;
  int same = 0, all = 0, dropped;
  bool others;
  f->rc = ZKE_OK;
  int rc = fence_find_view(f, db);
  if (rc == ZKE_OK) rc = fence_find_table(f, db);
  if (rc == ZKE_OK) rc = fence_find_column(f, db);
  if (rc == ZKE_OK) rc = fence_count(f, db, &same, &all);
  if (rc != ZKE_OK || (same == 2 && all == 2)) return rc;
  rc = fence_see(f, db, &others);
  if (others) {
    f->rc = ZKE_IN_DOUBT;
    return zke_recipe_fail(ZKE_SQL,
                           "whether %s was fenced is not known: the reply was "
                           "lost, and others have changed its fence since",
                           f->table);
  }
  if (rc == ZKE_OK) rc = fence_drop(f, db, &dropped);
  if (rc == ZKE_OK) rc = fence_create(f, db, zxid, "insert", "INSERT");
  if (rc == ZKE_OK) rc = fence_create(f, db, zxid, "update", "UPDATE");
  return rc;
}

/* A zke_sql_fn: drop the table's fence.  After a lost reply it is enough that
 * the earlier fence has gone; a fence that others have made since stays. */
static int fence_unset(sqlite3 *db, int64_t zxid, void *context) {
  fence *f = context;
  int dropped;
  bool others;
  (void)zxid;
  f->rc = ZKE_OK;
  int rc = fence_see(f, db, &others);
  if (rc != ZKE_OK || others) return rc;
  rc = fence_drop(f, db, &dropped);
  if (rc != ZKE_OK || dropped) return rc;
  return fence_fail(f, ZKE_NONODE, "%s has no fence", f->table);
}

/* ---- the list ---- */

/* Copy a text to the space after the list's rows. */
static const char *fence_place(char **to, const char *text) {
  char *at = *to;
  size_t len = strlen(text) + 1;
  memcpy(at, text, len);
  *to += len;
  return at;
}

/* Walk over the fences, once to count and once to fill the list: if `to` is
 * NULL nothing is written.  *bytes: the size of their texts. */
static int fence_walk(fence *f, sqlite3 *db, zke_fence_info *rows, char *to,
                      int *count, size_t *bytes) {
  sqlite3_stmt *st = NULL;
  fence_text t;
  int rc = fence_prepare(f, db,
                         "SELECT sql FROM main.sqlite_schema WHERE "
                         "type='trigger' AND name GLOB 'fence_zke_*_insert' "
                         "ORDER BY tbl_name",
                         NULL, &st);
  *count = 0;
  *bytes = 0;
  for (bool row = true; rc == ZKE_OK;) {
    rc = fence_next(f, db, st, &t, &row);
    if (rc != ZKE_OK || !row) break;
    if (!t.table) continue;
    *bytes += strlen(t.table) + strlen(t.path) + strlen(t.column) + 3;
    if (to)
      rows[*count] = (zke_fence_info){.table = fence_place(&to, t.table),
                                      .path = fence_place(&to, t.path),
                                      .column = fence_place(&to, t.column)};
    ++*count;
    fence_text_free(&t);
  }
  sqlite3_finalize(st);
  return rc;
}

/* A zke_sql_fn, in a snapshot: so both walks see the same fences. */
static int fence_read(sqlite3 *db, int64_t zxid, void *context) {
  fence *f = context;
  int count;
  size_t bytes;
  (void)zxid;
  f->rc = ZKE_OK;
  int rc = fence_walk(f, db, NULL, NULL, &count, &bytes);
  if (rc != ZKE_OK) return rc;
  size_t rows = (size_t)count * sizeof(zke_fence_info);
  f->list = zke_alloc(f->z, sizeof *f->list + rows + bytes);
  if (!f->list) return fence_fail(f, ZKE_NOMEM, "out of memory");
  zke_fence_info *data = (zke_fence_info *)(f->list + 1);
  f->list->count = count;
  f->list->data = data;
  return fence_walk(f, db, data, (char *)(data + count), &count, &bytes);
}

/* ---- the calls ---- */

/* Can the program's SQLite be reached? */
static int fence_reach(void) {
  if (sqlite3_prepare_v2 != NULL) return ZKE_OK;
  return zke_recipe_fail(ZKE_UNIMPLEMENTED,
                         "this zkembed has its own SQLite, which a "
                         "program cannot use: link with the archive");
}

/* The step: one transaction. */
static int fence_try(zke *z, void *arg) {
  fence *f = arg;
  zke_op op;
  zke_op_sql(&op, f->change, f);
  int rc = fence_result(f, zke_recipe_multi(z, &op, 1, NULL));
  if (rc == ZKE_NODEEXISTS && f->unsure)
    return zke_recipe_in_doubt(
        "whether %s was fenced is not known: the reply "
        "was lost, and others have set another fence "
        "since",
        f->table);
  f->unsure |= zke_recipe_is_lost(rc) && f->seen >= 0;
  return rc;
}

/* The engine checks the form of the path; it need not exist.  The root has no
 * lock. */
static int fence_check_path(zke *z, const char *path) {
  int rc = zke_exists(z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  if (path[1]) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "the path / cannot be a lock");
}

/* The arguments are checked once, here.  The table and its triggers, which
 * others may change, are read in the transaction (fence_set()). */
int zke_fence_set(zke *z, const char *table, const char *path,
                  const zke_fence_options *options) {
  zke_fence_options o;
  if (!z || !table || !*table || !path)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "z, table or path is missing");
  int rc = zke_take_options(options, &o, sizeof o, "zke_fence_options");
  if (rc == ZKE_OK) rc = fence_reach();
  if (rc == ZKE_OK) rc = fence_check_path(z, path);
  if (rc != ZKE_OK) return rc;
  fence f = {.z = z,
             .table = table,
             .path = path,
             .column = o.column ? o.column : "fence",
             .replace = o.replace,
             .change = fence_set,
             .seen = -1};
  return zke_recipe_do(z, fence_try, &f, zke_recipe_patience(z));
}

/* The transaction finds the fence to remove (fence_unset()). */
int zke_fence_remove(zke *z, const char *table) {
  fence f = {.z = z, .table = table, .change = fence_unset, .seen = -1};
  if (!z || !table)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "z or table is NULL");
  int rc = fence_reach();
  if (rc != ZKE_OK) return rc;
  return zke_recipe_do(z, fence_try, &f, zke_recipe_patience(z));
}

/* The list is made inside the transaction, so it is a snapshot.  The caller
 * gets it only after the transaction has succeeded. */
int zke_fence_list(zke *z, zke_fence_infos **list_out) {
  fence f = {.z = z};
  zke_op op;
  zke_op_result result;
  if (list_out) *list_out = NULL;
  if (!z || !list_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "z or list_out is NULL");
  int rc = fence_reach();
  if (rc != ZKE_OK) return rc;
  zke_op_sql(&op, fence_read, &f);
  rc = zke_recipe_multi_read(z, &op, 1, &result);
  if (rc != ZKE_OK) return rc;
  rc = fence_result(&f, result.rc);
  if (rc == ZKE_OK)
    *list_out = f.list;
  else
    zke_free(f.list);
  zke_results_clear(&result, 1);
  return rc;
}
