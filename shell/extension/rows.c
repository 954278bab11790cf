/* rows.c - the program's own transactions, in the line of writers */
#include "extension.h"

/* zke_begin(): BEGIN IMMEDIATE, in the line of writers. */
static int run_begin(ext_call *c) {
  if (!c->k->adopted)
    return zke_fail(ZKE_BADARGUMENTS,
                    "zke_begin(): the connection has no file to write to");
  int rc = ext_tables_use(c->k);
  if (rc == ZKE_OK) rc = zke_sql_begin(c->k->z, c->k->db);
  if (rc == ZKE_OK) c->k->guest = true;
  return ext_done(c, rc);
}

/* zke_commit(), zke_rollback(): end it.  Another thread cannot. */
static int finish(ext_call *c, int (*end)(zke *, sqlite3 *)) {
  int rc = end(c->k->z, c->k->db);
  if (rc == ZKE_MISUSE)
    return zke_fail(ZKE_MISUSE, "%s() without zke_begin() on this thread",
                    c->function->name);
  ext_left(c->k);
  if (rc != ZKE_OK) return rc;
  c->k->unmoved = true; /* the engine had the hook meanwhile */
  ext_open(c->k);
  return ext_done(c, rc);
}

static int run_commit(ext_call *c) { return finish(c, zke_sql_commit); }
static int run_rollback(ext_call *c) { return finish(c, zke_sql_rollback); }

const ext_function ext_rows[] = {
    {"zke_begin", 0, "", EXT_WAITS, run_begin},
    {"zke_commit", 0, "", EXT_LOOKS, run_commit},
    {"zke_rollback", 0, "", EXT_LOOKS, run_rollback},
    {0}};
