/* patience.c - calls that wait can be interrupted */
#include "extension.h"

/* SQLite says it from 3.41 on; a statement that is stepped is told by each. */
bool ext_is_interrupted(sqlite3 *db) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, "SELECT 1", -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  sqlite3_finalize(st);
  return rc == SQLITE_INTERRUPT;
}

static void patience_looks(zke *z, int type, int state, const char *path,
                           void *context);

/* Look again after a tenth of the time that the call has waited: a long wait
 * looks less often. */
static int look_later(ext_patience *p) {
  zke *z = p->c->k->z;
  int64_t now = zke_now(z), gap = (now - p->begun_ms) / 10;
  int64_t most = ext_outbox_gap(p->c->k);
  if (gap > most) gap = most;
  if (gap < EXT_SLICE_MS) gap = EXT_SLICE_MS;
  return zke_call_at(z, now + gap, patience_looks, p);
}

/* The alarm of a blocking call: look, and come again. */
static void patience_looks(zke *z, int type, int state, const char *path,
                           void *context) {
  ext_patience *p = context;
  (void)z, (void)state, (void)path;
  if (type != ZKE_EVENT_ALARM) return;
  bool interrupted = ext_is_interrupted(p->c->k->db);
  p->ended = interrupted ? ZKE_CANCELLED : ext_alone(p->c->k);
  if (p->ended != ZKE_OK && p->cancel) p->cancel(p->object);
  if (p->ended != ZKE_OK) return;
  ext_outbox_look(p->c->k);
  look_later(p);
}

int ext_patience_begin(ext_patience *p) {
  p->begun_ms = zke_now(p->c->k->z);
  return look_later(p);
}

int ext_patience_end(ext_patience *p) {
  zke_forget(p->c->k->z, patience_looks, p);
  if (p->ended == ZKE_OK && ext_is_interrupted(p->c->k->db))
    p->ended = ZKE_CANCELLED;
  if (p->ended != ZKE_OK && p->ended != ZKE_CANCELLED)
    return ext_alone(p->c->k); /* its sentence; it has looked long ago */
  return p->ended;
}

int ext_say_waited(ext_call *c, int rc) {
  if (rc == ZKE_CANCELLED) sqlite3_result_error_code(c->sql, SQLITE_INTERRUPT);
  return rc == ZKE_CANCELLED || rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
}
