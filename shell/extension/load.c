/* load.c - the functions in SQL, and the init function that SQLite calls */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

/* ---- the entry of every function ---- */

/* Would the call wait for the connection's own transaction, or see old rows?
 * SQLite's transaction state decides. */
static int refuse(const ext_call *c) {
  const ext_function *f = c->function;
  int state = sqlite3_txn_state(c->k->db, NULL);
  if (f->kind == EXT_CHANGES && state == SQLITE_TXN_WRITE)
    return zke_fail(ZKE_MISUSE,
                    "%s() in a transaction that writes would wait for itself: "
                    "call it before BEGIN or after COMMIT",
                    f->name);
  if (f->kind == EXT_WAITS && state != SQLITE_TXN_NONE)
    return zke_fail(ZKE_MISUSE,
                    "%s() in a transaction, which would still see the old "
                    "rows: call it before BEGIN or after COMMIT "
                    "(Python: isolation_level=None)",
                    f->name);
  return ZKE_OK;
}

/* Does the call need a handle?  Opening one in a transaction would wait for it,
 * or keep it from writing. */
static bool needs_handle(const ext_call *c) {
  if (c->function->kind == EXT_ADDS)
    return sqlite3_txn_state(c->k->db, NULL) == SQLITE_TXN_NONE;
  return c->function->kind != EXT_LOOKS;
}

/* Converts the code to an SQLite error. */
static void say_error(sqlite3_context *sql, int rc) {
  char *text = rc == ZKE_NOMEM ? NULL : ext_error_text(rc);
  if (ext_is_interrupted(sqlite3_context_db_handle(sql)))
    sqlite3_result_error_code(sql, SQLITE_INTERRUPT);
  else if (text)
    sqlite3_result_error(sql, text, -1);
  else
    sqlite3_result_error_nomem(sql);
  sqlite3_free(text);
}

/* A function's user data in SQLite. */
typedef struct binding {
  ext_connection *k;
  const ext_function *function;
} binding;

static void call(sqlite3_context *sql, int count, sqlite3_value **value) {
  const binding *b = sqlite3_user_data(sql);
  ext_call c = {sql, b->k, b->function, count, value};
  int rc = refuse(&c);
  for (int i = 0; i < count && rc == ZKE_OK; i++)
    rc = ext_check(b->function->name, i, b->function->arguments[i], value[i]);
  if (rc == ZKE_OK && needs_handle(&c)) rc = ext_open(c.k);
  if (rc == ZKE_OK) rc = c.function->run(&c);
  if (rc != ZKE_OK) say_error(sql, rc);
}

/* ---- functions about the connection ---- */

/* zke_close(): ends the session; the next call begins another. */
static int run_close(ext_call *c) {
  if (sqlite3_get_autocommit(c->k->db)) ext_leave(c->k);
  if (c->k->guest)
    return zke_fail(ZKE_MISUSE, "zke_close() between zke_begin() and its end");
  return ext_done(c, ext_close(c->k));
}

/* zke_session(): its number. */
static int run_session(ext_call *c) {
  sqlite3_result_int64(c->sql, zke_session_id(c->k->z));
  return ZKE_OK;
}

/* The name zke_version_number() would look like a znode's version. */
static int run_release(ext_call *c) {
  sqlite3_result_text(c->sql, ZKE_VERSION, -1, SQLITE_STATIC);
  return ZKE_OK;
}

static const ext_function ext_own[] = {
    {"zke_close", 0, "", EXT_LOOKS, run_close},
    {"zke_session", 0, "", EXT_READS, run_session},
    {"zke_release_name", 0, "", EXT_LOOKS, run_release},
    {0}};

/* ---- loading ---- */

/* SQLite no longer needs the function. */
static void drop(void *data) {
  binding *b = data;
  ext_connection *k = b->k;
  free(b);
  ext_release(k);
}

/* SQLite has a separate function for each number of arguments.  If it refuses
 * one, it drops the data. */
static int add(ext_connection *k, const ext_function *f) {
  const int flags = SQLITE_UTF8 | SQLITE_DIRECTONLY;
  int rc = SQLITE_OK;
  const int most = (int)strlen(f->arguments);
  for (int n = f->least; n <= most && rc == SQLITE_OK; n++) {
    binding *b = malloc(sizeof *b);
    if (!b) return SQLITE_NOMEM;
    *b = (binding){k, f};
    k->users++;
    rc = sqlite3_create_function_v2(k->db, f->name, n, flags, b, call, NULL,
                                    NULL, drop);
  }
  return rc;
}

/* Adds all of them. */
static int add_all(ext_connection *k) {
  const ext_function *tables[] = {ext_own,    ext_tree,     ext_lines,
                                  ext_queues, ext_counters, ext_waiting,
                                  ext_rows,   ext_sending,  NULL};
  int rc = ext_tables_add(k);
  for (int i = 0; tables[i]; i++)
    for (const ext_function *f = tables[i]; f->name && rc == SQLITE_OK; f++)
      rc = add(k, f);
  return rc;
}

/* The only symbol of the library. */
__attribute__((visibility("default"))) int sqlite3_zkembed_init(
    sqlite3 *db, char **error, const sqlite3_api_routines *api);

int sqlite3_zkembed_init(sqlite3 *db, char **error,
                         const sqlite3_api_routines *api) {
  const char *why = ext_refuses(api);
  if (why) {
    *error = api->mprintf("%s", why);
    return SQLITE_ERROR;
  }
  if (ext_is_loaded(db)) return SQLITE_OK;
  ext_connection *k = ext_begin(db);
  if (!k) return SQLITE_NOMEM;
  int rc = add_all(k);
  ext_release(k);
  return rc;
}
