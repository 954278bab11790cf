/* raw.c - see raw.h
 *
 * The transaction of a change, with its statements in order:
 *
 *   create   BEGIN IMMEDIATE; META; for each node: NODE of the parent, INSERT,
 *            GROW of the parent, WATCHED on the node and on the parent;
 *            ZXID; COMMIT
 *   append   the same with the parent's next number in the name and, if it
 *            announces, SET of the parent and WATCHED on it
 *   delete   the same with NODE of parent and node, DELETE and SHRINK
 *   bury     the same with LEAVE and, for the session, FORGET and DROP
 *   set      BEGIN IMMEDIATE; META; NODE; SET; WATCHED; ZXID; COMMIT
 *   watch    BEGIN IMMEDIATE; NODE; WATCH; COMMIT
 *
 * If WATCHED finds a watch, NOTE and UNSET follow; if events were seen since
 * the last change, TRIM comes before ZXID.  The reads: get is one NODE;
 * children are BEGIN; NODE; CHILDREN; COMMIT; events are EVENTS and ALIVE.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "raw.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  BLOB_BYTES = 200, /* longer data is in the table blob */
  BUSY_MS = 60000   /* for sixty-four processes that write without pause */
};

static const char schema[] =
    "CREATE TABLE IF NOT EXISTS zkembed_meta("
    " one INTEGER PRIMARY KEY CHECK(one = 1), zxid INTEGER NOT NULL,"
    " recursive INTEGER NOT NULL, lost INTEGER NOT NULL, boot TEXT NOT NULL,"
    " db_device INTEGER NOT NULL, db_inode INTEGER NOT NULL,"
    " live_device INTEGER NOT NULL, live_inode INTEGER NOT NULL,"
    " gate_device INTEGER NOT NULL, gate_inode INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS zkembed_node("
    " parent TEXT NOT NULL, name TEXT NOT NULL, czxid INTEGER NOT NULL,"
    " mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL, ctime INTEGER NOT NULL,"
    " mtime INTEGER NOT NULL, version INTEGER NOT NULL,"
    " aversion INTEGER NOT NULL, creates INTEGER NOT NULL,"
    " nchild INTEGER NOT NULL, owner INTEGER NOT NULL, kind INTEGER NOT NULL,"
    " ttl INTEGER NOT NULL, due INTEGER NOT NULL, acl TEXT,"
    " len INTEGER NOT NULL, blob INTEGER, data BLOB,"
    " PRIMARY KEY(parent, name)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS zkembed_node_owner ON zkembed_node(owner)"
    " WHERE owner <> 0;"
    "CREATE INDEX IF NOT EXISTS zkembed_node_due ON zkembed_node(kind, due)"
    " WHERE due <> 0;"
    "CREATE TABLE IF NOT EXISTS zkembed_blob("
    " id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS zkembed_session("
    " id INTEGER PRIMARY KEY, identity TEXT NOT NULL, pid INTEGER NOT NULL,"
    " started INTEGER NOT NULL, lease INTEGER NOT NULL,"
    " slot INTEGER NOT NULL, life INTEGER NOT NULL,"
    " carrier INTEGER NOT NULL, event_limit INTEGER NOT NULL,"
    " seen INTEGER NOT NULL, timeout INTEGER NOT NULL, heard INTEGER NOT NULL,"
    " password BLOB) STRICT;"
    "CREATE INDEX IF NOT EXISTS zkembed_session_carrier"
    " ON zkembed_session(carrier) WHERE carrier <> 0;"
    "CREATE TABLE IF NOT EXISTS zkembed_watch("
    " path TEXT NOT NULL, kind INTEGER NOT NULL, session INTEGER NOT NULL,"
    " PRIMARY KEY(path, kind, session)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS zkembed_watch_session"
    " ON zkembed_watch(session);"
    "CREATE TABLE IF NOT EXISTS zkembed_event("
    " session INTEGER NOT NULL, seq INTEGER NOT NULL, type INTEGER NOT NULL,"
    " path TEXT NOT NULL, zxid INTEGER NOT NULL, acl TEXT,"
    " carrier INTEGER NOT NULL, PRIMARY KEY(session, seq))"
    " STRICT, WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS zkembed_event_carrier"
    " ON zkembed_event(carrier, zxid) WHERE carrier <> 0;"
    "INSERT OR IGNORE INTO zkembed_meta VALUES(1, 0, 0, 0, 'boot', 0, 0, 0, 0, "
    "0, 0);"
    "INSERT OR IGNORE INTO zkembed_node VALUES('', '', 0, 0, 0, 0, 0, 0, 0, 0, "
    "0, 0, 0,"
    " 0, 0, NULL, -1, NULL, NULL);";

/* One list makes the enum and the texts. */
#define STATEMENTS(X)                                                          \
  X(BEGIN, "BEGIN")                                                            \
  X(IMMEDIATE, "BEGIN IMMEDIATE")                                              \
  X(COMMIT, "COMMIT")                                                          \
  X(META,                                                                      \
    "SELECT zxid, recursive, (SELECT 1 FROM zkembed_session WHERE id = ?1)"    \
    " FROM zkembed_meta WHERE one = 1")                                        \
  X(ZXID, "UPDATE zkembed_meta SET zxid = ?1 WHERE one = 1")                   \
  X(NODE,                                                                      \
    "SELECT czxid, mzxid, pzxid, ctime, mtime, version, aversion,"             \
    " creates, nchild, owner, len, kind, ttl, acl, data, blob"                 \
    " FROM zkembed_node WHERE parent = ?1 AND name = ?2")                      \
  X(CHILDREN, "SELECT name FROM zkembed_node WHERE parent = ?1 ORDER BY name") \
  X(INSERT,                                                                    \
    "INSERT INTO zkembed_node VALUES(?1, ?2, ?3, ?3, ?3, ?4, ?4, 0, 0, 0, 0,"  \
    " ?5, ?8, 0, 0, NULL, ?6, NULL, ?7)")                                      \
  X(DELETE, "DELETE FROM zkembed_node WHERE parent = ?1 AND name = ?2")        \
  X(GROW,                                                                      \
    "UPDATE zkembed_node SET creates = creates + 1, nchild = nchild + 1,"      \
    " pzxid = ?3, due = 0 WHERE parent = ?1 AND name = ?2")                    \
  X(SHRINK,                                                                    \
    "UPDATE zkembed_node SET nchild = nchild - 1, pzxid = ?3,"                 \
    " due = CASE WHEN kind = 1 AND nchild = 1 THEN ?4 ELSE 0 END"              \
    " WHERE parent = ?1 AND name = ?2")                                        \
  X(SET,                                                                       \
    "UPDATE zkembed_node SET mzxid = ?3, mtime = ?4, version = version + 1,"   \
    " len = ?5, data = ?6, blob = NULL WHERE parent = ?1 AND name = ?2")       \
  X(WATCHED, "SELECT kind, session FROM zkembed_watch WHERE path = ?1")        \
  X(WATCH, "INSERT OR IGNORE INTO zkembed_watch VALUES(?1, ?2, ?3)")           \
  X(UNWATCH, "DELETE FROM zkembed_watch WHERE path = ?1 AND session = ?2")     \
  X(UNSET, "DELETE FROM zkembed_watch WHERE path = ?1 AND kind = ?2")          \
  X(NOTE, "INSERT INTO zkembed_event VALUES(?1, ?2, 1, ?3, ?2, NULL, 0)")      \
  X(EVENTS,                                                                    \
    "SELECT seq, type, path, zxid, acl FROM zkembed_event"                     \
    " WHERE session = ?1 AND seq > ?2 ORDER BY seq")                           \
  X(TRIM, "DELETE FROM zkembed_event WHERE session = ?1 AND seq <= ?2")        \
  X(ALIVE, "SELECT lease, slot FROM zkembed_session WHERE id = ?1")            \
  X(JOIN,                                                                      \
    "INSERT INTO zkembed_session(identity, pid, started, lease, slot, life,"   \
    " carrier, event_limit, seen, timeout, heard)"                             \
    " VALUES('bench', ?1, ?2, 0, -1, 0, 0, 0, 0, 0, 0)")                       \
  X(LEAVE, "DELETE FROM zkembed_session WHERE id = ?1")                        \
  X(FORGET, "DELETE FROM zkembed_watch WHERE session = ?1")                    \
  X(DROP, "DELETE FROM zkembed_event WHERE session = ?1")

#define STATEMENT_ID(name, text) name,
enum { STATEMENTS(STATEMENT_ID) STATEMENT_COUNT };
#define STATEMENT_TEXT(name, text) text,
static const char *const statement_text[] = {STATEMENTS(STATEMENT_TEXT)};

struct raw {
  sqlite3 *db;
  sqlite3_stmt *statement[STATEMENT_COUNT];
  int64_t session;
  int64_t seen, trimmed; /* numbers of events */
  int64_t woken;         /* the session with the last change's event */
};

static void check(raw *r, int rc) {
  if (rc == SQLITE_OK || rc == SQLITE_ROW || rc == SQLITE_DONE) return;
  fprintf(stderr, "bench: raw side: %s\n", sqlite3_errmsg(r->db));
  exit(2);
}

static void execute(raw *r, const char *sql) {
  check(r, sqlite3_exec(r->db, sql, NULL, NULL, NULL));
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- statements: bind, step to the end, reset ---- */

static void bind_int(raw *r, int id, int at, int64_t value) {
  check(r, sqlite3_bind_int64(r->statement[id], at, value));
}

static void bind_text(raw *r, int id, int at, const char *text) {
  check(r, sqlite3_bind_text(r->statement[id], at, text, -1, SQLITE_STATIC));
}

static void bind_node(raw *r, int id, const char *parent, const char *name) {
  bind_text(r, id, 1, parent);
  bind_text(r, id, 2, name);
}

static bool step(raw *r, int id) {
  int rc = sqlite3_step(r->statement[id]);
  check(r, rc);
  return rc == SQLITE_ROW;
}

static void reset(raw *r, int id) { check(r, sqlite3_reset(r->statement[id])); }

/* Run a statement, and ignore its rows. */
static void run(raw *r, int id) {
  while (step(r, id)) {
  }
  reset(r, id);
}

static void need(raw *r, int id, const char *what) {
  if (step(r, id)) return;
  fprintf(stderr, "bench: raw side: no row for %s\n", what);
  exit(2);
}

/* ---- opening ---- */

static void prepare(raw *r) {
  for (int id = 0; id < STATEMENT_COUNT; id++) {
    check(r, sqlite3_prepare_v3(r->db, statement_text[id], -1,
                                SQLITE_PREPARE_PERSISTENT, &r->statement[id],
                                NULL));
  }
}

static void configure(raw *r) {
  char sql[200];
  snprintf(sql, sizeof sql,
           "PRAGMA page_size = %d; PRAGMA journal_mode = WAL;"
           "PRAGMA cache_size = -%d; PRAGMA wal_autocheckpoint = %d;"
           "PRAGMA temp_store = MEMORY; PRAGMA secure_delete = OFF",
           RAW_PAGE_SIZE, RAW_CACHE_KIB, RAW_CHECKPOINT_PAGES);
  execute(r, sql);
}

static raw *connect(const char *file) {
  raw *r = calloc(1, sizeof *r);
  if (!r) exit(2);
  check(r, sqlite3_open_v2(
               file, &r->db,
               SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
               NULL));
  check(r, sqlite3_busy_timeout(r->db, BUSY_MS));
  configure(r);
  raw_durable(r, false);
  return r;
}

raw *raw_open_reader(const char *file) {
  raw *r = connect(file);
  prepare(r);
  return r;
}

raw *raw_open(const char *file) {
  raw *r = connect(file);
  execute(r, "BEGIN IMMEDIATE");
  execute(r, schema);
  execute(r, "COMMIT");
  prepare(r);
  bind_int(r, JOIN, 1, getpid());
  bind_int(r, JOIN, 2, now_ms());
  run(r, JOIN);
  r->session = sqlite3_last_insert_rowid(r->db);
  return r;
}

void raw_close(raw *r) {
  if (r->session) {
    bind_int(r, LEAVE, 1, r->session);
    run(r, LEAVE);
  }
  for (int id = 0; id < STATEMENT_COUNT; id++) {
    sqlite3_finalize(r->statement[id]);
  }
  check(r, sqlite3_close(r->db));
  free(r);
}

int64_t raw_session(const raw *r) { return r->session; }

void raw_durable(raw *r, bool durable) {
  execute(
      r, durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL");
}

/* ---- parts of a transaction ---- */

/* Begin, read the meta row and our own session; returns the new zxid. */
static int64_t begin_change(raw *r) {
  run(r, IMMEDIATE);
  r->woken = 0;
  bind_int(r, META, 1, r->session);
  need(r, META, "meta");
  int64_t zxid = sqlite3_column_int64(r->statement[META], 0) + 1;
  bool recursive = sqlite3_column_int(r->statement[META], 1) > 0;
  bool alive = sqlite3_column_int(r->statement[META], 2) == 1;
  reset(r, META);
  if (!alive || recursive) exit(2); /* neither occurs here */
  return zxid;
}

static void trim(raw *r) {
  if (r->seen <= r->trimmed) return;
  bind_int(r, TRIM, 1, r->session);
  bind_int(r, TRIM, 2, r->seen);
  run(r, TRIM);
  r->trimmed = r->seen;
}

static void end_change(raw *r, int64_t zxid) {
  trim(r);
  bind_int(r, ZXID, 1, zxid);
  run(r, ZXID);
  run(r, COMMIT);
}

static void read_stat(raw *r, raw_stat *s) {
  sqlite3_stmt *node = r->statement[NODE];
  s->czxid = sqlite3_column_int64(node, 0);
  s->mzxid = sqlite3_column_int64(node, 1);
  s->pzxid = sqlite3_column_int64(node, 2);
  s->ctime = sqlite3_column_int64(node, 3);
  s->mtime = sqlite3_column_int64(node, 4);
  s->version = sqlite3_column_int64(node, 5);
  s->aversion = sqlite3_column_int64(node, 6);
  s->creates = sqlite3_column_int64(node, 7);
  s->nchild = sqlite3_column_int64(node, 8);
  s->owner = sqlite3_column_int64(node, 9);
  s->len = sqlite3_column_int64(node, 10);
}

/* Read a node's row, which must exist. */
static void look(raw *r, const char *parent, const char *name, raw_stat *s) {
  bind_node(r, NODE, parent, name);
  need(r, NODE, name);
  read_stat(r, s);
  reset(r, NODE);
}

/* An event for the one session that watches a path, which ends the watch.  Odd
 * kinds do not watch data, so a write does not fire them. */
static void fire(raw *r, const char *path, int64_t zxid, bool written) {
  bind_text(r, WATCHED, 1, path);
  bool found = step(r, WATCHED);
  int kind = found ? sqlite3_column_int(r->statement[WATCHED], 0) : 0;
  if (!found || (written && kind % 2 == 1)) {
    reset(r, WATCHED);
    return;
  }
  r->woken = sqlite3_column_int64(r->statement[WATCHED], 1);
  if (step(r, WATCHED)) exit(2); /* never in this benchmark */
  reset(r, WATCHED);
  bind_int(r, NOTE, 1, r->woken);
  bind_int(r, NOTE, 2, zxid);
  bind_text(r, NOTE, 3, path);
  run(r, NOTE);
  bind_text(r, UNSET, 1, path);
  bind_int(r, UNSET, 2, kind);
  run(r, UNSET);
}

/* GROW or SHRINK. */
static void count_child(raw *r, int id, const raw_key *key, int64_t zxid) {
  bind_node(r, id, key->grand, key->parent_name);
  bind_int(r, id, 3, zxid);
  if (id == SHRINK) bind_int(r, id, 4, now_ms());
  run(r, id);
}

/* ---- changes ---- */

static void insert(raw *r, const raw_key *key, int64_t zxid, int64_t owner,
                   int kind, const void *data, int len) {
  bind_node(r, INSERT, key->parent, key->name);
  bind_int(r, INSERT, 3, zxid);
  bind_int(r, INSERT, 4, now_ms());
  bind_int(r, INSERT, 5, owner);
  bind_int(r, INSERT, 6, len);
  check(r,
        sqlite3_bind_blob(r->statement[INSERT], 7, data, len, SQLITE_STATIC));
  bind_int(r, INSERT, 8, kind);
  run(r, INSERT);
  count_child(r, GROW, key, zxid);
  fire(r, key->path, zxid, false);
  fire(r, key->parent, zxid, false);
}

static int64_t owner_of(const raw *r, bool ephemeral) {
  return ephemeral ? r->session : 0;
}

void raw_create(raw *r, const raw_key *keys, int count, bool ephemeral,
                const void *data, int len) {
  if (len > BLOB_BYTES) exit(2); /* never in this benchmark */
  int64_t zxid = begin_change(r);
  for (int i = 0; i < count; i++) {
    raw_stat parent;
    look(r, keys[i].grand, keys[i].parent_name, &parent);
    insert(r, &keys[i], zxid, owner_of(r, ephemeral), 0, data, len);
  }
  end_change(r, zxid);
}

void raw_create_container(raw *r, const raw_key *key) {
  raw_stat parent;
  int64_t zxid = begin_change(r);
  look(r, key->grand, key->parent_name, &parent);
  insert(r, key, zxid, 0, 1, "", 0);
  end_change(r, zxid);
}

static void write_data(raw *r, const raw_key *key, int64_t zxid,
                       const void *data, int len) {
  bind_node(r, SET, key->parent, key->name);
  bind_int(r, SET, 3, zxid);
  bind_int(r, SET, 4, now_ms());
  bind_int(r, SET, 5, len);
  check(r, sqlite3_bind_blob(r->statement[SET], 6, data, len, SQLITE_STATIC));
  run(r, SET);
  fire(r, key->path, zxid, true);
}

/* The next child of a directory: "<prefix>0000000007". */
static void name_next(raw_key *key, const raw_key *directory,
                      const char *prefix, int64_t number) {
  snprintf(key->name, sizeof key->name, "%s%010d", prefix, (int)number);
  snprintf(key->path, sizeof key->path, "%.60s/%.66s", directory->path,
           key->name);
  memcpy(key->parent, directory->path, sizeof key->parent);
  memcpy(key->grand, directory->parent, sizeof key->grand);
  memcpy(key->parent_name, directory->name, sizeof key->parent_name);
}

void raw_append(raw *r, const raw_key *directory, const char *prefix,
                bool ephemeral, bool announce, const void *data, int len,
                raw_key *key_out) {
  raw_stat parent;
  int64_t zxid = begin_change(r);
  look(r, directory->parent, directory->name, &parent);
  if (announce) write_data(r, directory, zxid, "", 0);
  name_next(key_out, directory, prefix, parent.creates);
  insert(r, key_out, zxid, owner_of(r, ephemeral), 0, data, len);
  end_change(r, zxid);
}

static void remove_node(raw *r, const raw_key *key, int64_t zxid) {
  bind_node(r, DELETE, key->parent, key->name);
  run(r, DELETE);
  count_child(r, SHRINK, key, zxid);
  fire(r, key->path, zxid, false);
  fire(r, key->parent, zxid, false);
}

void raw_delete(raw *r, const raw_key *keys, int count) {
  raw_stat parent, node;
  int64_t zxid = begin_change(r);
  for (int i = 0; i < count; i++) {
    look(r, keys[i].grand, keys[i].parent_name, &parent);
    look(r, keys[i].parent, keys[i].name, &node);
    remove_node(r, &keys[i], zxid);
  }
  end_change(r, zxid);
}

static void run_for(raw *r, int id, int64_t session) {
  bind_int(r, id, 1, session);
  run(r, id);
}

bool raw_bury(raw *r, const raw_key *key, int64_t session) {
  int64_t zxid = begin_change(r);
  run_for(r, FORGET, session); /* first: it must not get an event of its own
                                * end */
  run_for(r, LEAVE, session);
  bool first = sqlite3_changes(r->db) == 1;
  if (first) {
    run_for(r, DROP, session);
    remove_node(r, key, zxid);
  }
  end_change(r, zxid);
  return first;
}

void raw_set(raw *r, const raw_key *key, const void *data, int len) {
  raw_stat node;
  int64_t zxid = begin_change(r);
  look(r, key->parent, key->name, &node);
  write_data(r, key, zxid, data, len);
  end_change(r, zxid);
}

int64_t raw_woken(const raw *r) { return r->woken; }

int64_t raw_watch(raw *r, const raw_key *key, int kind) {
  raw_stat node = {.owner = -1};
  run(r, IMMEDIATE);
  bind_node(r, NODE, key->parent, key->name);
  if (step(r, NODE)) read_stat(r, &node);
  reset(r, NODE);
  bind_text(r, WATCH, 1, key->path);
  bind_int(r, WATCH, 2, kind);
  bind_int(r, WATCH, 3, r->session);
  run(r, WATCH);
  run(r, COMMIT);
  return node.owner;
}

void raw_unwatch(raw *r, const raw_key *key) {
  bind_text(r, UNWATCH, 1, key->path);
  bind_int(r, UNWATCH, 2, r->session);
  run(r, UNWATCH);
}

/* ---- reads ---- */

int raw_get(raw *r, const raw_key *key, void *data_out, raw_stat *stat_out) {
  sqlite3_stmt *node = r->statement[NODE];
  bind_node(r, NODE, key->parent, key->name);
  need(r, NODE, key->path);
  read_stat(r, stat_out);
  int len = sqlite3_column_bytes(node, 14);
  if (len > 0) memcpy(data_out, sqlite3_column_blob(node, 14), (size_t)len);
  reset(r, NODE);
  return len;
}

int raw_children(raw *r, const raw_key *key, char *names_out,
                 raw_stat *stat_out) {
  sqlite3_stmt *child = r->statement[CHILDREN];
  int count = 0;
  run(r, BEGIN);
  look(r, key->parent, key->name, stat_out);
  bind_text(r, CHILDREN, 1, key->path);
  for (; step(r, CHILDREN); count++) {
    size_t size = (size_t)sqlite3_column_bytes(child, 0) + 1;
    memcpy(names_out, sqlite3_column_text(child, 0), size);
    names_out += size;
  }
  reset(r, CHILDREN);
  run(r, COMMIT);
  return count;
}

int raw_events(raw *r) {
  int count = 0;
  bind_int(r, EVENTS, 1, r->session);
  bind_int(r, EVENTS, 2, r->seen);
  for (; step(r, EVENTS); count++) {
    r->seen = sqlite3_column_int64(r->statement[EVENTS], 0);
  }
  reset(r, EVENTS);
  bind_int(r, ALIVE, 1, r->session);
  need(r, ALIVE, "the session");
  reset(r, ALIVE);
  return count;
}
