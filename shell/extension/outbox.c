/* outbox.c - rows of the program that go to the tree after their commit
 *
 * zkembed_outbox is a plain table.  A program that writes to the file adds rows
 * in its own transaction: by zke_send_push() and its like, by the triggers of
 * zke_tell(), or, without the extension, by plain SQL.  A row is there if and
 * only if that transaction was committed.
 *
 * The mover does what the first rows request, in order.  Its changes and the
 * removal of the rows are one transaction on the engine's connection.  So each
 * row is moved once, even with several movers, and whichever process dies.  A
 * refused row becomes a dead letter and does not block others.
 *
 * No result depends on when the mover checks the table.  It does so
 *
 *   - right after a commit of a connection with the extension (hooked()); that
 *     check waits for other writers HOOK_MS at most;
 *   - at each call of the extension, if the last check is EXT_SLICE_MS ago or
 *     has left rows; without an outbox in the file, once a second at most;
 *   - once a second in a waiting call, if another process has committed, and at
 *     each of the call's own checks (patience.c) while rows are left.
 *
 * Start reading at move(). */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

#include "../../recipes/part/znode.h"
#include "../../recipes/queue.h"

enum {
  MOVED_TOGETHER = 64,      /* most rows in one transaction */
  MOVED_BYTES = 256 * 1024, /* of their data, except for one row */
  MOVED_STEPS = 32,         /* transactions in one check */
  RACES = 8,                /* tries, while others change the same znodes */
  TICK_MS = 1000,           /* between two checks of a waiting call */
  NONE_MS = 900,            /* at least, between searches for an outbox */
  LOG_PAGES = 2048,         /* as the engine allows */
  HOOK_MS = 2,              /* how long a check after a commit waits */
  PAGES_MOST = 1 << 24      /* beyond it WAL hooks have pointers, not numbers */
};

/* The tables.  `data` has any type, so that text needs no cast. */
const char ext_outbox_tables[] =
    "CREATE TABLE IF NOT EXISTS main.zkembed_outbox("
    "id INTEGER PRIMARY KEY AUTOINCREMENT,operation TEXT NOT NULL,"
    "path TEXT NOT NULL,data ANY,guid TEXT)STRICT;"
    "CREATE INDEX IF NOT EXISTS main.zkembed_outbox_tell ON "
    "zkembed_outbox(path)WHERE operation='tell';"
    "CREATE TABLE IF NOT EXISTS main.zkembed_outbox_dead("
    "id INTEGER PRIMARY KEY,operation TEXT NOT NULL,path TEXT NOT NULL,"
    "data ANY,guid TEXT,error TEXT NOT NULL,sentence TEXT NOT NULL,"
    "time TEXT NOT NULL)STRICT;";

enum operation { OP_OTHER, OP_PUSH, OP_SET, OP_TELL };

/* A row of the table, in one block with its texts. */
typedef struct row {
  int64_t id;
  enum operation operation;
  char *path, *guid; /* guid: or NULL */
  char *full;        /* the znode's path */
  void *data;
  int len;   /* -1: NULL */
  bool made; /* the step makes the znode */
} row;

/* The state of a check. */
typedef struct mover {
  ext_connection *k;
  row *rows[MOVED_TOGETHER];
  int count;
  int singly; /* how many rows must be moved one by one */
  bool none;  /* there is no outbox */
} mover;

/* A group of rows: the first ones of the table. */
typedef struct group {
  mover *m;
  int count;
  const char *error, *sentence; /* why its only row was refused */
} group;

/* ---- rows ---- */

/* Copies a column's bytes to *at, with a zero after them. */
static void *copy(sqlite3_stmt *st, int column, char **at) {
  const void *from = sqlite3_column_blob(st, column);
  size_t len = (size_t)sqlite3_column_bytes(st, column);
  char *to = *at;
  if (len) memcpy(to, from, len);
  to[len] = '\0';
  *at += len + 1;
  return to;
}

/* The same for a name.  With a zero byte in it, it is not cut there but empty,
 * which is refused. */
static char *copy_name(sqlite3_stmt *st, int column, char **at) {
  char *name = copy(st, column, at);
  if (strlen(name) != (size_t)sqlite3_column_bytes(st, column)) *name = '\0';
  return name;
}

static bool is_null(sqlite3_stmt *st, int column) {
  return sqlite3_column_type(st, column) == SQLITE_NULL;
}

/* The operation that a row requests. */
static enum operation which(const char *name) {
  static const char *const names[] = {
      [OP_PUSH] = "push", [OP_SET] = "set", [OP_TELL] = "tell"};
  for (enum operation op = OP_PUSH; op <= OP_TELL; op++)
    if (strcmp(name, names[op]) == 0) return op;
  return OP_OTHER;
}

/* A queue's name is below /queues, a table's below /tables. */
static char *full_path(const row *r) {
  const char *base = "";
  if (r->operation == OP_TELL) base = "/tables/";
  if (r->operation == OP_PUSH && !strchr(r->path, '/')) base = "/queues/";
  return sqlite3_mprintf("%s%s", base, r->path);
}

static void free_row(row *r) {
  if (r) sqlite3_free(r->full);
  free(r);
}

static void free_rows(mover *m) {
  while (m->count) free_row(m->rows[--m->count]);
}

/* The current row of a statement; NULL without memory. */
static row *read_row(sqlite3_stmt *st) {
  size_t size = sizeof(row);
  for (int i = 1; i <= 4; i++) size += (size_t)sqlite3_column_bytes(st, i) + 1;
  row *r = calloc(1, size);
  if (!r) return NULL;
  char *at = (char *)(r + 1);
  r->id = sqlite3_column_int64(st, 0);
  r->operation = which(copy(st, 1, &at));
  r->path = copy_name(st, 2, &at);
  r->len = is_null(st, 3) ? -1 : sqlite3_column_bytes(st, 3);
  if (r->len >= 0) r->data = copy(st, 3, &at);
  if (!is_null(st, 4)) r->guid = copy_name(st, 4, &at);
  r->full = full_path(r);
  if (r->full) return r;
  free_row(r);
  return NULL;
}

/* ---- SQL on the engine's connection ---- */

bool ext_is_missing(sqlite3 *db, const char *table) {
  return sqlite3_table_column_metadata(db, "main", table, NULL, NULL, NULL,
                                       NULL, NULL, NULL) == SQLITE_ERROR;
}

/* For zke_op_sql(): reads the first rows; none without the table. */
static int read_rows(sqlite3 *db, int64_t zxid, void *context) {
  mover *m = context;
  sqlite3_stmt *st = NULL;
  row *r = NULL;
  int bytes = 0;
  (void)zxid;
  int rc = sqlite3_prepare_v2(db,
                              "SELECT id,operation,path,data,guid FROM "
                              "main.zkembed_outbox ORDER BY id",
                              -1, &st, NULL);
  m->none = rc != SQLITE_OK && ext_is_missing(db, "zkembed_outbox");
  if (rc != SQLITE_OK) return m->none ? ZKE_OK : rc;
  int most = m->singly ? 1 : MOVED_TOGETHER;
  while (m->count < most && bytes < MOVED_BYTES) {
    rc = sqlite3_step(st);
    r = rc == SQLITE_ROW ? read_row(st) : NULL;
    if (!r) break;
    m->rows[m->count++] = r;
    bytes += r->len;
  }
  sqlite3_finalize(st);
  if (m->count || rc == SQLITE_DONE) return ZKE_OK;
  return rc == SQLITE_ROW ? SQLITE_NOMEM : rc;
}

/* Runs a statement about rows up to `id`, with the two texts: returns how many
 * rows it changed, or -1. */
static int change(sqlite3 *db, const char *sql, int64_t id, const group *g) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  if (rc != SQLITE_OK) return -1;
  sqlite3_bind_int64(st, 1, id);
  if (g->error) sqlite3_bind_text(st, 2, g->error, -1, SQLITE_STATIC);
  if (g->error) sqlite3_bind_text(st, 3, g->sentence, -1, SQLITE_STATIC);
  sqlite3_step(st);
  rc = sqlite3_finalize(st);
  return rc == SQLITE_OK ? sqlite3_changes(db) : -1;
}

/* For zke_op_sql(): deletes the rows of a group.  If they are no longer the
 * first ones, another mover was quicker. */
static int take_rows(sqlite3 *db, int64_t zxid, void *context) {
  const group *g = context;
  int64_t last = g->m->rows[g->count - 1]->id;
  (void)zxid;
  int n = change(db, "DELETE FROM main.zkembed_outbox WHERE id<=?1", last, g);
  if (n < 0) return sqlite3_errcode(db);
  return n == g->count ? ZKE_OK : ZKE_LOST;
}

/* For zke_op_sql(): makes the first row a dead letter. */
static int bury_row(sqlite3 *db, int64_t zxid, void *context) {
  const group *g = context;
  int rc = sqlite3_exec(db, ext_outbox_tables, NULL, NULL, NULL);
  if (rc != SQLITE_OK) return rc;
  int n = change(db,
                 "REPLACE INTO main.zkembed_outbox_dead(id,operation,path,data,"
                 "guid,error,sentence,time)SELECT id,operation,path,data,guid,"
                 "?2,?3,strftime('%Y-%m-%dT%H:%M:%SZ','now')FROM "
                 "main.zkembed_outbox WHERE id=?1",
                 g->m->rows[0]->id, g);
  return n < 0 ? sqlite3_errcode(db) : take_rows(db, zxid, context);
}

/* ---- moving ---- */

/* How many of the rows move together: one with a guid alone, those of one
 * queue, or those that set znodes. */
static int count_group(const mover *m) {
  const row *first = m->rows[0];
  int n = 1;
  if (first->operation == OP_OTHER || first->guid) return 1;
  for (; n < m->count; n++) {
    const row *r = m->rows[n];
    bool push = r->operation == OP_PUSH;
    if (r->operation == OP_OTHER || r->guid) break;
    if (push != (first->operation == OP_PUSH)) break;
    if (push && strcmp(r->full, first->full) != 0) break;
  }
  return n;
}

/* A queue for rows.  It is kept, since a first put costs more. */
static int make_queue(ext_call *c, const char *path, void **object_out) {
  zke_queue *queue = NULL;
  zke_queue_options o = ZKE_INIT(zke_queue_options);
  o.new_attempts = EXT_NEW_ATTEMPTS;
  int rc = zke_queue_new(c->k->z, path, &o, &queue);
  *object_out = queue;
  return rc;
}

static void free_queue(void *object) { zke_queue_free(object); }

static const ext_sort sent_to = {make_queue, free_queue};

/* Items for a queue.  If the queue has an item's guid, it was sent before. */
static int push_rows(group *g) {
  ext_call call = {.k = g->m->k};
  ext_owned **at;
  zke_op op;
  zke_queue_value values[MOVED_TOGETHER];
  zke_queue_put_options o = ZKE_INIT(zke_queue_put_options);
  row **rows = g->m->rows;
  zke *z = g->m->k->z;
  for (int i = 0; i < g->count; i++)
    values[i] = (zke_queue_value){rows[i]->data, rows[i]->len};
  o.key = rows[0]->guid;
  zke_op_sql(&op, take_rows, g);
  int rc = ext_owned_get(&call, &sent_to, rows[0]->full, &at);
  if (rc == ZKE_OK)
    rc = zke_queue_put_with((*at)->object, values, g->count, &o, &op, 1, NULL,
                            zke_now(z));
  if (rc == ZKE_NODEEXISTS && o.key) rc = zke_recipe_multi(z, &op, 1, NULL);
  return rc;
}

/* Does an earlier row make the same znode? */
static bool is_made(const group *g, int at) {
  for (int i = 0; i < at; i++) {
    const row *r = g->m->rows[i];
    if (r->made && strcmp(r->full, g->m->rows[at]->full) == 0) return true;
  }
  return false;
}

/* The operation of a row: sets the znode, or makes it. */
static int add_set(const group *g, int at, zke_op *op) {
  row *r = g->m->rows[at];
  zke *z = g->m->k->z;
  int rc = zke_exists(z, r->full, NULL, NULL, NULL);
  r->made = rc == ZKE_NONODE && !is_made(g, at);
  if (r->made)
    zke_op_create(op, r->full, r->data, r->len, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  else
    zke_op_set(op, r->full, r->data, r->len, -1);
  if (rc != ZKE_NONODE || !r->made) return rc == ZKE_NONODE ? ZKE_OK : rc;
  return zke_recipe_ensure_above(z, r->full, ZKE_PERSISTENT, zke_now(z));
}

/* Sets znodes. */
static int set_rows(group *g) {
  zke_op ops[MOVED_TOGETHER + 1];
  int rc = ZKE_OK;
  for (int i = 0; i < g->count && rc == ZKE_OK; i++)
    rc = add_set(g, i, &ops[i]);
  zke_op_sql(&ops[g->count], take_rows, g);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_multi(g->m->k->z, ops, g->count + 1, NULL);
}

/* Does a group's operations, and removes its rows. */
static int move_group(group *g) {
  const row *first = g->m->rows[0];
  if (first->operation == OP_PUSH) return push_rows(g);
  if (first->operation != OP_OTHER) return set_rows(g);
  return zke_fail(ZKE_UNIMPLEMENTED,
                  "no such operation: they are push, set and tell");
}

/* Was it the row that was refused?  All other errors concern the file, the
 * session or the moment. */
static bool is_refusal(int rc) {
  switch (rc) {
    case ZKE_BADARGUMENTS:
    case ZKE_MARSHALLINGERROR:
    case ZKE_UNIMPLEMENTED:
    case ZKE_NOAUTH:
    case ZKE_NONODE:
    case ZKE_NODEEXISTS:
    case ZKE_NOCHILDRENFOREPHEMERALS:
    case ZKE_OTHERKIND:
    case ZKE_LIMIT:
      return true;
    default:
      return false;
  }
}

/* Makes the first row a dead letter, with the latest error. */
static int bury(mover *m, int rc) {
  zke_op op;
  char *sentence = sqlite3_mprintf("%s", zke_errmsg());
  group g = {m, 1, zke_error_name(rc), sentence};
  zke_op_sql(&op, bury_row, &g);
  rc = sentence ? zke_recipe_multi(m->k->z, &op, 1, NULL) : ZKE_NOMEM;
  sqlite3_free(sentence);
  return rc;
}

/* Moves the first rows.  If several are refused together, they are moved one by
 * one, to find the refused one.  It does not matter if another mover was
 * quicker.
 *
 *   races  how often others have changed the same znodes meanwhile */
static int move_first(mover *m, int *races) {
  group g = {.m = m, .count = count_group(m)};
  int rc = move_group(&g);
  bool raced = rc == ZKE_NONODE || rc == ZKE_NODEEXISTS;
  if (raced && ++*races < RACES) return ZKE_OK;
  *races = 0;
  if (is_refusal(rc) && g.count > 1) {
    m->singly = g.count;
    return ZKE_OK;
  }
  if (is_refusal(rc)) {
    m->singly = 0;
    rc = bury(m, rc);
  } else if (m->singly) {
    m->singly--;
  }
  return rc == ZKE_LOST ? ZKE_OK : rc;
}

/* Moves rows until there are none, or as many as one check may move. */
static int move(ext_connection *k) {
  mover m = {.k = k};
  zke_op op;
  zke_op_result read = {0};
  int rc = ZKE_OK, races = 0;
  k->unmoved = true;
  zke_op_sql(&op, read_rows, &m);
  for (int i = 0; i < MOVED_STEPS && rc == ZKE_OK && k->unmoved; i++) {
    rc = zke_recipe_multi_read(k->z, &op, 1, &read);
    if (rc == ZKE_OK) rc = read.rc;
    k->unmoved = rc != ZKE_OK || m.count;
    if (rc == ZKE_OK && m.count) rc = move_first(&m, &races);
    if (rc == ZKE_LOST) rc = ZKE_OK; /* another mover was quicker */
    free_rows(&m);
    zke_results_clear(&read, 1);
  }
  k->no_outbox = m.none;
  return rc;
}

/* ---- when ---- */

int64_t ext_outbox_gap(const ext_connection *k) {
  return k->unmoved ? EXT_SLICE_MS : TICK_MS;
}

/* Is a check due?  A file without an outbox may have got one. */
static bool is_due(const ext_connection *k) {
  int64_t gap = k->no_outbox ? NONE_MS : EXT_SLICE_MS;
  return k->unmoved || zke_now(k->z) - k->moved_ms >= gap;
}

/* A move is a commit of another connection.  After it SQLite refuses any write
 * of a transaction that has read, and of a program that reads a query. */
static bool would_harm(const ext_connection *k) {
  return sqlite3_txn_state(k->db, "main") != SQLITE_TXN_NONE;
}

/* Moves the rows, and waits for others at most until then. */
static int look(ext_connection *k, int64_t until) {
  if (!k->z || !k->adopted || k->moving) return ZKE_OK;
  int64_t before = zke_limit(k->z, until);
  k->moving = true;
  k->moved_ms = zke_now(k->z);
  int rc = move(k);
  k->moving = false;
  zke_limit(k->z, before);
  return rc;
}

/* For zke_op_sql(). */
static int do_nothing(sqlite3 *db, int64_t zxid, void *context) {
  (void)db, (void)zxid, (void)context;
  return ZKE_OK;
}

/* The connection makes no checkpoints, since those would run without the
 * writers' gate (P12); the engine makes them after its own commits.  So once
 * the log has grown long, this commits nothing, by the engine.  If that did not
 * help, because of a reader, the next try is as many pages later. */
static void shorten_log(ext_connection *k, int pages) {
  zke_op op;
  if (pages < LOG_PAGES) k->log_pages = LOG_PAGES;
  if (pages < k->log_pages) return;
  k->log_pages = pages + LOG_PAGES;
  int64_t before = zke_limit(k->z, zke_now(k->z) + HOOK_MS);
  zke_op_sql(&op, do_nothing, NULL);
  zke_recipe_multi(k->z, &op, 1, NULL);
  zke_limit(k->z, before);
}

/* SQLite calls this after a commit, when it has released the write lock.  An
 * error would become the statement's. */
static int hooked(void *arg, sqlite3 *db, const char *name, int pages) {
  ext_connection *k = arg;
  (void)db;
  if (!k->z || strcmp(name, "main") != 0) return SQLITE_OK;
  if (would_harm(k)) {
    k->unmoved = true;
    return SQLITE_OK;
  }
  shorten_log(k, pages);
  if (!k->no_outbox || is_due(k)) look(k, zke_now(k->z) + HOOK_MS);
  return SQLITE_OK;
}

int ext_outbox_hook(ext_connection *k) {
  void *before = sqlite3_wal_hook(k->db, hooked, k);
  if (before == k || (uintptr_t)before <= PAGES_MOST) return ZKE_OK;
  return zke_fail(ZKE_MISUSE,
                  "SQLite has one WAL hook for a connection, and zkembed needs "
                  "it: the program's has been removed");
}

bool ext_outbox_look(ext_connection *k) {
  bool due = is_due(k) && !would_harm(k);
  if (due) look(k, zke_now(k->z) + EXT_SLICE_MS);
  return due && !k->unmoved;
}

int ext_outbox_move(ext_connection *k) {
  int rc;
  do {
    rc = look(k, ZKE_FOREVER);
  } while (rc == ZKE_OK && k->unmoved);
  return rc;
}
