/* send.c - functions and triggers that put rows into the outbox */
#include "extension.h"

#include "../../recipes/part/znode.h"
#include "../../recipes/support.h"

/* A row that reports a table, unless one is there.  An existing row is moved
 * after the transaction that finds it: the move must delete it, and that
 * transaction has the write lock. */
#define TELL                                        \
  "INSERT INTO zkembed_outbox(operation,path)"      \
  "SELECT'tell',%Q WHERE NOT EXISTS(SELECT 1 FROM " \
  "zkembed_outbox WHERE operation='tell'AND path=%Q)"

/* ---- sending ---- */

/* Gives the connection's error to the statement: a program must be able to
 * recognise a busy database. */
static int say_sqlite(ext_call *c) {
  sqlite3 *db = c->k->db;
  int rc = sqlite3_extended_errcode(db);
  sqlite3_result_error(c->sql, sqlite3_errmsg(db), -1);
  sqlite3_result_error_code(c->sql, rc);
  return ZKE_OK;
}

/* Adds a row by the caller's connection, in its transaction: the operation,
 * then the arguments.  Returns its id; the program's last_insert_rowid() does
 * not change. */
static int add_row(ext_call *c, const char *operation) {
  sqlite3 *db = c->k->db;
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db,
                              "INSERT INTO main.zkembed_outbox(operation,path,"
                              "data,guid)VALUES(?1,?2,?3,?4)",
                              -1, &st, NULL);
  if (rc != SQLITE_OK && ext_is_missing(db, "zkembed_outbox"))
    return zke_fail(ZKE_MISUSE,
                    "%s(): the database has no outbox: call zke_outbox() once, "
                    "before BEGIN",
                    c->function->name);
  if (rc != SQLITE_OK) return say_sqlite(c);
  sqlite3_int64 before = sqlite3_last_insert_rowid(db);
  sqlite3_bind_text(st, 1, operation, -1, SQLITE_STATIC);
  for (int i = 0; i < c->count; i++) sqlite3_bind_value(st, i + 2, c->value[i]);
  c->k->unmoved = true;
  sqlite3_step(st);
  sqlite3_int64 id = sqlite3_last_insert_rowid(db);
  if (sqlite3_finalize(st) != SQLITE_OK) return say_sqlite(c);
  sqlite3_set_last_insert_rowid(db, before);
  sqlite3_result_int64(c->sql, id);
  return ZKE_OK;
}

/* zke_send_push(queue, data [, guid]), zke_send_set(path, data),
 * zke_send_tell(name): the row's number. */
static int run_send_push(ext_call *c) { return add_row(c, "push"); }
static int run_send_set(ext_call *c) { return add_row(c, "set"); }
static int run_send_tell(ext_call *c) { return add_row(c, "tell"); }

/* ---- the tables and triggers ---- */

/* For zke_op_sql(). */
static int make_outbox(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  return sqlite3_exec(db, ext_outbox_tables, NULL, NULL, NULL);
}

/* zke_outbox(): 1; the tables exist, and earlier rows have been moved. */
static int run_outbox(ext_call *c) {
  zke_op op;
  if (!c->k->adopted)
    return zke_fail(ZKE_BADARGUMENTS,
                    "zke_outbox(): the connection has no file to write to, or "
                    "is in a transaction");
  int rc = ext_outbox_move(c->k);
  zke_op_sql(&op, make_outbox, NULL);
  if (rc == ZKE_OK && c->k->no_outbox)
    rc = zke_recipe_multi(c->k->z, &op, 1, NULL);
  if (rc != ZKE_OK) return rc;
  c->k->no_outbox = false;
  return ext_done(c, ZKE_OK);
}

/* The state of zke_tell() and zke_untell(). */
typedef struct telling {
  const char *asked;
  char *table; /* the name as the schema has it */
  bool any;    /* there were triggers */
} telling;

/* The only value of a query with a name, for sqlite3_free().  *value is NULL if
 * there is none. */
static int fetch(sqlite3 *db, const char *sql, const char *name, char **value) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  *value = NULL;
  if (rc != SQLITE_OK) return rc;
  sqlite3_bind_text(st, 1, name, -1, SQLITE_STATIC);
  if (sqlite3_step(st) == SQLITE_ROW &&
      sqlite3_column_type(st, 0) != SQLITE_NULL)
    *value = sqlite3_mprintf("%s", sqlite3_column_text(st, 0));
  return sqlite3_finalize(st);
}

/* For zke_op_sql(): is it a table, and not one of ours? */
static int find_table(sqlite3 *db, int64_t zxid, void *context) {
  telling *t = context;
  (void)zxid;
  int rc = fetch(db,
                 "SELECT name FROM main.sqlite_schema WHERE type='table'AND "
                 "name=?1 COLLATE NOCASE AND name NOT LIKE 'zkembed!_%' ESCAPE "
                 "'!'AND name NOT LIKE 'sqlite!_%' ESCAPE '!'",
                 t->asked, &t->table);
  if (rc != SQLITE_OK || t->table) return rc;
  return zke_fail(ZKE_NONODE, "the database has no table %s", t->asked);
}

/* For zke_op_sql(): makes the three triggers. */
static int make_triggers(sqlite3 *db, int64_t zxid, void *context) {
  static const char *const events[] = {"insert", "update", "delete"};
  const telling *t = context;
  int rc = make_outbox(db, zxid, NULL);
  for (int i = 0; i < 3 && rc == SQLITE_OK; i++) {
    char *sql = sqlite3_mprintf(
        "CREATE TRIGGER IF NOT EXISTS main.\"zkembed_outbox_%s_%w\"AFTER %s ON "
        "\"%w\"BEGIN " TELL ";END",
        events[i], t->table, events[i], t->table, t->table, t->table);
    rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    sqlite3_free(sql);
  }
  return rc;
}

/* For zke_op_sql(): drops them, even if the table was renamed since. */
static int drop_triggers(sqlite3 *db, int64_t zxid, void *context) {
  telling *t = context;
  char *sql;
  (void)zxid;
  int rc = fetch(db,
                 "SELECT group_concat('DROP TRIGGER main.\"'||replace(name,"
                 "'\"','\"\"')||'\"',';')FROM main.sqlite_schema WHERE "
                 "type='trigger'AND tbl_name=?1 COLLATE NOCASE AND name LIKE "
                 "'zkembed!_outbox!_%' ESCAPE '!'",
                 t->table, &sql);
  t->any = sql != NULL;
  if (sql) rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  sqlite3_free(sql);
  return rc;
}

/* The table in the argument. */
static int get_table(ext_call *c, telling *t) {
  zke_op op;
  zke_op_result result = {0};
  *t = (telling){.asked = ext_text(c, 0)};
  if (!t->asked)
    return zke_fail(ZKE_BADARGUMENTS, "%s(): the table is NULL",
                    c->function->name);
  zke_op_sql(&op, find_table, t);
  int rc = zke_recipe_multi_read(c->k->z, &op, 1, &result);
  if (rc == ZKE_OK) rc = result.rc;
  zke_results_clear(&result, 1);
  return rc;
}

/* zke_tell(table): the path of the znode that changes with the table. */
static int run_tell(ext_call *c) {
  telling t;
  zke_op op;
  char *path = NULL;
  zke *z = c->k->z;
  int rc = get_table(c, &t);
  if (rc == ZKE_OK) path = sqlite3_mprintf("/tables/%s", t.table);
  if (rc == ZKE_OK && !path) rc = ext_nomem();
  if (rc == ZKE_OK)
    rc = zke_ensure_path(z, path, ZKE_PERSISTENT,
                         zke_now(z) + zke_busy_timeout(z));
  zke_op_sql(&op, make_triggers, &t);
  if (rc == ZKE_OK) rc = zke_recipe_multi(z, &op, 1, NULL);
  if (rc == ZKE_OK) sqlite3_result_text(c->sql, path, -1, SQLITE_TRANSIENT);
  c->k->no_outbox = false;
  sqlite3_free(path);
  sqlite3_free(t.table);
  return rc;
}

/* zke_untell(table): 1, or 0 if it had no triggers. */
static int run_untell(ext_call *c) {
  telling t;
  zke_op op;
  int rc = get_table(c, &t);
  zke_op_sql(&op, drop_triggers, &t);
  if (rc == ZKE_OK) rc = zke_recipe_multi(c->k->z, &op, 1, NULL);
  sqlite3_free(t.table);
  if (rc == ZKE_OK) sqlite3_result_int(c->sql, t.any);
  return rc;
}

const ext_function ext_sending[] = {
    {"zke_outbox", 0, "", EXT_CHANGES, run_outbox},
    {"zke_send_push", 2, "ddd", EXT_ADDS, run_send_push},
    {"zke_send_set", 2, "dd", EXT_ADDS, run_send_set},
    {"zke_send_tell", 1, "d", EXT_ADDS, run_send_tell},
    {"zke_tell", 1, "t", EXT_CHANGES, run_tell},
    {"zke_untell", 1, "t", EXT_CHANGES, run_untell},
    {0}};
