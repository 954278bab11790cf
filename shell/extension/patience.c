/* patience.c - waiting calls that can be interrupted */
#include "extension.h"

/* SQLite reports an interruption to a statement that is prepared or stepped; it
 * has a function for it only from 3.41 on.  Unless the program has a
 * transaction, which this would make read, it can also report others'
 * commits. */
static int prepare_look(sqlite3 *db, bool commits, sqlite3_stmt **look) {
  return sqlite3_prepare_v2(
      db, commits ? "PRAGMA main.data_version" : "SELECT -1", -1, look, NULL);
}

/* Is the call interrupted?  Sets *commits to a number that another connection's
 * commit changes, or -1. */
static bool tells(sqlite3_stmt *look, int64_t *commits) {
  int rc = look ? sqlite3_step(look) : SQLITE_NOMEM;
  *commits = rc == SQLITE_ROW ? sqlite3_column_int64(look, 0) : -1;
  sqlite3_reset(look);
  return rc == SQLITE_INTERRUPT;
}

bool ext_is_interrupted(sqlite3 *db) {
  int64_t commits;
  sqlite3_stmt *look = NULL;
  int rc = prepare_look(db, false, &look);
  bool is = rc == SQLITE_OK ? tells(look, &commits) : rc == SQLITE_INTERRUPT;
  sqlite3_finalize(look);
  return is;
}

static void patience_looks(zke *z, int type, int state, const char *path,
                           void *context);

/* Check again after a tenth of the time that the call has waited: a long wait
 * checks less often. */
static int look_later(ext_patience *p) {
  zke *z = p->c->k->z;
  int64_t now = zke_now(z), gap = (now - p->begun_ms) / 10;
  int64_t most = ext_outbox_gap(p->c->k);
  if (gap > most) gap = most;
  if (gap < EXT_SLICE_MS) gap = EXT_SLICE_MS;
  return zke_call_at(z, now + gap, patience_looks, p);
}

/* The alarm of a blocking call: checks, and sets itself again. */
static void patience_looks(zke *z, int type, int state, const char *path,
                           void *context) {
  ext_patience *p = context;
  (void)z, (void)state, (void)path;
  if (type != ZKE_EVENT_ALARM) return;
  int64_t commits;
  bool interrupted = tells(p->look, &commits);
  p->ended = interrupted ? ZKE_CANCELLED : ext_alone(p->c->k);
  if (p->ended != ZKE_OK && p->cancel) p->cancel(p->object);
  if (p->ended != ZKE_OK) return;
  bool known = commits >= 0 && commits == p->seen;
  if (!known) p->seen = ext_outbox_look(p->c->k) ? commits : -1;
  look_later(p);
}

int ext_patience_begin(ext_patience *p) {
  sqlite3 *db = p->c->k->db;
  p->begun_ms = zke_now(p->c->k->z);
  p->look = NULL;
  p->seen = -1;
  int rc = prepare_look(db, sqlite3_get_autocommit(db), &p->look);
  if (rc == SQLITE_OK) return look_later(p);
  return ext_nomem(); /* or interrupted: whoever tells it asks for that */
}

int ext_patience_end(ext_patience *p) {
  zke_forget(p->c->k->z, patience_looks, p);
  int64_t commits;
  if (p->ended == ZKE_OK && tells(p->look, &commits)) p->ended = ZKE_CANCELLED;
  sqlite3_finalize(p->look);
  if (p->ended != ZKE_OK && p->ended != ZKE_CANCELLED)
    return ext_alone(p->c->k); /* its sentence; it has checked long ago */
  return p->ended;
}

int ext_say_waited(ext_call *c, int rc) {
  if (rc == ZKE_CANCELLED) sqlite3_result_error_code(c->sql, SQLITE_INTERRUPT);
  return rc == ZKE_CANCELLED || rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
}
