/* table.c - table-valued functions: SELECT name FROM zke_children_of('/a')
 *
 * A table is a row of `tables`.  When a query starts to read it, it reads all
 * its rows, or prepares a statement for them.  Its arguments are hidden
 * columns, after the others.
 */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

#include "../changes.h"

enum { TABLE_ARGUMENTS = 2 };

/* The state of a query. */
typedef struct reading {
  ext_connection *k;
  const char *name;            /* of the function */
  char *text[TABLE_ARGUMENTS]; /* arguments; NULL: not given */
  void *list;                  /* of zkembed, for zke_free() */
  sqlite3_stmt *rows;          /* or its rows, at the current one */
  int count;                   /* rows; for a statement those read so far */
} reading;

typedef struct table {
  const char *name, *columns;
  int shown;             /* columns before the arguments */
  int needed;            /* arguments, */
  const char *arguments; /* and all it can have: ext_check() */
  int (*read)(reading *r);
  void (*show)(sqlite3_context *sql, const reading *r, int row, int column);
} table;

/* SQLite's objects for a table and a query. */
typedef struct opened {
  sqlite3_vtab base;
  const table *is;
  ext_connection *k;
} opened;

typedef struct cursor {
  sqlite3_vtab_cursor base;
  reading r;
  int row;
} cursor;

static void show_text(sqlite3_context *sql, const char *text) {
  if (text) sqlite3_result_text(sql, text, -1, SQLITE_TRANSIENT);
}

/* ---- zke_children_of(path): name, path ---- */

static int children_read(reading *r) {
  zke_strings *names = NULL;
  int rc = zke_children(r->k->z, r->text[0], NULL, NULL, &names, NULL);
  r->list = names;
  r->count = rc == ZKE_OK ? names->count : 0;
  return rc;
}

static void children_show(sqlite3_context *sql, const reading *r, int row,
                          int column) {
  const zke_strings *names = r->list;
  bool top = strcmp(r->text[0], "/") == 0;
  char *path = column == 1 ? sqlite3_mprintf("%s/%s", top ? "" : r->text[0],
                                             names->data[row])
                           : NULL;
  show_text(sql, column == 1 ? path : names->data[row]);
  sqlite3_free(path);
}

/* ---- zke_locks_held(): kind, path, token ---- */

/* A copy, since the query may release what it reads. */
static int held_read(reading *r) {
  size_t size = 0;
  int count = 0;
  for (ext_hold h; (h = ext_held_at(r->k, count)).path; count++)
    size += sizeof h + strlen(h.path) + 1;
  if (!count) return ZKE_OK;
  ext_hold *list = zke_alloc(r->k->z, size);
  if (!list) return ext_nomem();
  char *text = (char *)(list + count);
  for (int i = 0; i < count; i++) {
    list[i] = ext_held_at(r->k, i);
    size = strlen(list[i].path) + 1;
    list[i].path = memcpy(text, list[i].path, size);
    text += size;
  }
  r->list = list;
  r->count = count;
  return ZKE_OK;
}

static void held_show(sqlite3_context *sql, const reading *r, int row,
                      int column) {
  const ext_hold h = ((const ext_hold *)r->list)[row];
  if (column == 2) {
    if (h.token) sqlite3_result_int64(sql, h.token);
  } else {
    show_text(sql, column == 0 ? h.kind : h.path);
  }
}

/* ---- zke_changes(since [, path]) ---- */

/* SQLite's error for the statement. */
static int rows_fail(const reading *r) {
  return zke_fail(ZKE_SYSTEMERROR, "%s(): %s", r->name,
                  sqlite3_errmsg(r->k->db));
}

/* Goes to the next row, if there is one. */
static int rows_next(reading *r) {
  int rc = sqlite3_step(r->rows);
  r->count += rc == SQLITE_ROW;
  return rc == SQLITE_ROW || rc == SQLITE_DONE ? ZKE_OK : rows_fail(r);
}

/* A call that only checks refuses a malformed path. */
static int changes_read(reading *r) {
  const char *path = r->text[1] ? r->text[1] : "/";
  int64_t since = strtoll(r->text[0], NULL, 10);
  int rc = zke_exists(r->k->z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  if (since < 0)
    return zke_fail(ZKE_BADARGUMENTS, "%s(): after the zxid %lld", r->name,
                    (long long)since);
  if (ext_is_missing(r->k->db, "zkembed_history")) return ZKE_OK;
  rc = sqlite3_prepare_v2(r->k->db,
                          "SELECT zxid,time,session,pid,CASE type WHEN 1 THEN "
                          "'created' WHEN 2 THEN 'deleted' ELSE 'changed' END,"
                          "path,identity" CHANGES_SINCE,
                          -1, &r->rows, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_bind_int64(r->rows, 1, since);
  if (rc == SQLITE_OK)
    rc = sqlite3_bind_text(r->rows, 2, path[1] ? path : "", -1,
                           SQLITE_TRANSIENT);
  return rc == SQLITE_OK ? rows_next(r) : rows_fail(r);
}

static void changes_show(sqlite3_context *sql, const reading *r, int row,
                         int column) {
  (void)row;
  sqlite3_result_value(sql, sqlite3_column_value(r->rows, column));
}

/* ---- the tables ---- */

static const table tables[] = {
    {"zke_children_of", "CREATE TABLE x(name TEXT, path TEXT, of HIDDEN)", 2, 1,
     "t", children_read, children_show},
    {"zke_locks_held", "CREATE TABLE x(kind TEXT, path TEXT, token INT)", 3, 0,
     "", held_read, held_show},
    {"zke_changes",
     "CREATE TABLE x(zxid INT, time_ms INT, session INT, pid INT, type TEXT, "
     "path TEXT, identity TEXT, since HIDDEN, below HIDDEN)",
     7, 1, "nt", changes_read, changes_show}};

/* ---- SQLite's calls ---- */

/* The module's user data; see ext_tables_add(). */
typedef struct table_binding {
  const table *is;
  ext_connection *k;
} table_binding;

static int table_connect(sqlite3 *db, void *data, int argc,
                         const char *const *argv, sqlite3_vtab **out,
                         char **error) {
  (void)argc, (void)argv, (void)error;
  const table_binding *b = data;
  int rc = sqlite3_declare_vtab(db, b->is->columns);
  if (rc == SQLITE_OK) sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
  opened *t = rc == SQLITE_OK ? sqlite3_malloc(sizeof *t) : NULL;
  if (!t) return rc == SQLITE_OK ? SQLITE_NOMEM : rc;
  *t = (opened){.is = b->is, .k = b->k};
  *out = &t->base;
  return SQLITE_OK;
}

/* SQLite calls this at the beginning of sqlite3_close(). */
static int table_disconnect(sqlite3_vtab *t) {
  ext_leave(((const opened *)t)->k);
  sqlite3_free(t);
  return SQLITE_OK;
}

/* Which arguments a query gives: a bit each in idxNum, in order.  If a plan
 * gets one of them only later, from another table of a join, this refuses it,
 * so that SQLite makes another plan. */
static int table_best_index(sqlite3_vtab *v, sqlite3_index_info *info) {
  const table *is = ((const opened *)v)->is;
  int place[TABLE_ARGUMENTS] = {0}, given = 0;
  for (int i = 0; i < info->nConstraint; i++) {
    int at = info->aConstraint[i].iColumn - is->shown;
    if (at < 0 || info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ)
      continue;
    if (!info->aConstraint[i].usable) return SQLITE_CONSTRAINT;
    place[at] = i + 1;
  }
  for (int at = 0; at < TABLE_ARGUMENTS; at++) {
    if (!place[at]) continue;
    info->aConstraintUsage[place[at] - 1].argvIndex = ++given;
    info->aConstraintUsage[place[at] - 1].omit = 1;
    info->idxNum |= 1 << at;
  }
  info->estimatedCost = 100;
  return SQLITE_OK;
}

static int table_open(sqlite3_vtab *v, sqlite3_vtab_cursor **out) {
  const opened *t = (const opened *)v;
  cursor *c = sqlite3_malloc(sizeof *c);
  if (!c) return SQLITE_NOMEM;
  *c = (cursor){.r = {.k = t->k, .name = t->is->name}};
  *out = &c->base;
  return SQLITE_OK;
}

/* Forgets what was read. */
static void clear(reading *r) {
  for (int i = 0; i < TABLE_ARGUMENTS; i++) sqlite3_free(r->text[i]);
  zke_free(r->list);
  sqlite3_finalize(r->rows);
  *r = (reading){.k = r->k, .name = r->name};
}

static int table_close(sqlite3_vtab_cursor *v) {
  clear(&((cursor *)v)->r);
  sqlite3_free(v);
  return SQLITE_OK;
}

/* Copies the arguments as texts, since the values live only as long as the
 * call.  A double's own text may be rounded. */
static int take_arguments(reading *r, const table *is, int given,
                          sqlite3_value **value) {
  for (int at = 0, i = 0; at < TABLE_ARGUMENTS; at++) {
    if (!(given & 1 << at)) continue;
    sqlite3_value *v = value[i++];
    int rc = ext_check(is->name, at, is->arguments[at], v);
    if (rc != ZKE_OK) return rc;
    if (sqlite3_value_type(v) == SQLITE_NULL) continue;
    r->text[at] = is->arguments[at] == 'n'
                      ? sqlite3_mprintf("%lld", sqlite3_value_int64(v))
                      : sqlite3_mprintf("%s", sqlite3_value_text(v));
    if (!r->text[at]) return ext_nomem();
  }
  for (int at = 0; at < is->needed; at++)
    if (!r->text[at])
      return zke_fail(ZKE_BADARGUMENTS, "%s(): argument %d is missing",
                      is->name, at + 1);
  return ZKE_OK;
}

/* Converts a zkembed code to an SQLite error, with its sentence. */
static int say(sqlite3_vtab_cursor *v, int rc) {
  if (rc == ZKE_OK) return SQLITE_OK;
  sqlite3_free(v->pVtab->zErrMsg);
  v->pVtab->zErrMsg = ext_error_text(rc);
  bool interrupted = ext_is_interrupted(((const cursor *)v)->r.k->db);
  return interrupted ? SQLITE_INTERRUPT : SQLITE_ERROR;
}

static int table_filter(sqlite3_vtab_cursor *v, int given, const char *unused,
                        int argc, sqlite3_value **argv) {
  (void)unused, (void)argc;
  cursor *c = (cursor *)v;
  const table *is = ((const opened *)v->pVtab)->is;
  clear(&c->r);
  c->row = 0;
  int rc = take_arguments(&c->r, is, given, argv);
  if (rc == ZKE_OK) rc = ext_open(c->r.k);
  if (rc == ZKE_OK) rc = is->read(&c->r);
  return say(v, rc);
}

static int table_next(sqlite3_vtab_cursor *v) {
  cursor *c = (cursor *)v;
  c->row++;
  return c->r.rows ? say(v, rows_next(&c->r)) : SQLITE_OK;
}

static int table_eof(sqlite3_vtab_cursor *v) {
  const cursor *c = (const cursor *)v;
  return c->row >= c->r.count;
}

static int table_column(sqlite3_vtab_cursor *v, sqlite3_context *sql, int at) {
  const cursor *c = (const cursor *)v;
  const table *is = ((const opened *)v->pVtab)->is;
  if (at >= is->shown)
    show_text(sql, c->r.text[at - is->shown]);
  else
    is->show(sql, &c->r, c->row, at);
  return SQLITE_OK;
}

static int table_rowid(sqlite3_vtab_cursor *v, sqlite3_int64 *out) {
  *out = ((const cursor *)v)->row + 1;
  return SQLITE_OK;
}

/* It has no xCreate: it exists without CREATE VIRTUAL TABLE, which cannot make
 * one. */
static const sqlite3_module module = {.iVersion = 0,
                                      .xConnect = table_connect,
                                      .xBestIndex = table_best_index,
                                      .xDisconnect = table_disconnect,
                                      .xOpen = table_open,
                                      .xClose = table_close,
                                      .xFilter = table_filter,
                                      .xNext = table_next,
                                      .xEof = table_eof,
                                      .xColumn = table_column,
                                      .xRowid = table_rowid};

static void drop(void *data) {
  table_binding *b = data;
  ext_connection *k = b->k;
  free(b);
  ext_release(k);
}

int ext_tables_add(ext_connection *k) {
  int rc = SQLITE_OK;
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    table_binding *b = malloc(sizeof *b);
    if (!b) return SQLITE_NOMEM;
    *b = (table_binding){&tables[i], k};
    k->users++;
    rc = sqlite3_create_module_v2(k->db, tables[i].name, &module, b, drop);
    if (rc != SQLITE_OK) break;
  }
  return rc;
}

int ext_tables_use(ext_connection *k) {
  sqlite3_stmt *st = NULL;
  int rc =
      sqlite3_prepare_v2(k->db, "SELECT 1 FROM zke_locks_held", -1, &st, NULL);
  sqlite3_finalize(st);
  if (rc == SQLITE_OK) return ZKE_OK;
  return zke_fail(ZKE_SYSTEMERROR, "zke_begin(): %s", sqlite3_errmsg(k->db));
}
