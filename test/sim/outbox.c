/* outbox.c - see outbox.h */
#define NOTES_PLAIN /* it judges its answers by itself */
#include "test/sim/outbox.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/queue.h"
#include "shell/extension/extension.h"
#include "test/sim/expect.h"
#include "test/sim/foreign.h"
#include "test/sim/sched.h"
#include "test/sim/vfs.h"

/* Like a corner (corner.h), whose answers judge.c leaves to others. */
#define ROOT "/ox"

enum {
  ROWS = 4096,
  PLACES = 2,
  KEYS = 3,
  MOST = 4,
  SQL = 200,
  TAKE_MS = 1000,
  TRIES = 5
};

typedef enum kind { PUSH, SET, BAD, KINDS } kind;

/* What a row asks for, by kind and place. */
static const char *const asked[KINDS][PLACES] = {
    [PUSH] = {"'push','" ROOT "/q'", "'push','" ROOT "/r'"},
    [SET] = {"'set','" ROOT "/v'", "'set','" ROOT "/w/v'"},
    [BAD] = {"'resize','" ROOT "/q'", "'set','no-path'"}};
static const char *const queues[PLACES] = {ROOT "/q", ROOT "/r"};
static const char *const nodes[PLACES] = {ROOT "/v", ROOT "/w/v"};

/* Is a row's transaction committed? */
typedef enum fate { NEVER, PERHAPS, SURELY } fate;

/* The rows, ordered by id: to add one needs SQLite's write lock.  A row's data
 * is its index here. */
typedef struct row {
  kind kind;
  int place, key; /* key: of a push that is done once; 0: none */
  fate fate;
  bool seen; /* at rest: it has taken effect */
} row;

static row rows[ROWS], kept[ROWS];
static int count, kept_count;

/* A backup does not have the rows of open transactions. */
void outbox_keep(void) {
  memcpy(kept, rows, sizeof rows);
  kept_count = count;
}

bool outbox_has(const char *path) {
  return strncmp(path, ROOT, strlen(ROOT)) == 0;
}

void outbox_go_back(void) {
  for (int i = 0; i < count; i++)
    rows[i].fate = i < kept_count ? kept[i].fate : NEVER;
}

/* ---- a connection ---- */

static bool run(sqlite3 *db, const char *sql) {
  return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
}

/* A connection that has the extension: its hook, and a handle.  It writes in
 * the engine's line of writers, or like any program; the check of P12 knows it
 * by its VFS. */
static bool connect(ext_connection *k, const ops_actor *a, bool as_guest) {
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  const char *vfs = as_guest ? vfs_name : vfs_foreign_name;
  *k = (ext_connection){.z = a->z};
  if (sqlite3_open_v2(ops_file, &k->db, flags, vfs) != SQLITE_OK) return false;
  ext_outbox_hook(k);
  known_call c = known_begin(a->slot, "outbox: sql_adopt");
  k->adopted = expect(c, zke_sql_adopt(k->z, k->db), ZKE_OK);
  return k->adopted;
}

static void disconnect(ext_connection *k) {
  ext_owned_free(k);
  sqlite3_close(k->db);
}

/* ---- rows are added ---- */

/* A new row, not yet committed. */
static int add(const ops_actor *a) {
  if (count == ROWS) sim_bug("more than %d rows of the outbox", ROWS);
  row *r = &rows[count];
  *r = (row){.place = (int)sim_load(a->slot, PLACES)};
  r->kind = sim_load(a->slot, 8) ? (kind)sim_load(a->slot, BAD) : BAD;
  if (r->kind == PUSH && sim_load(a->slot, 4) == 0)
    r->key = 1 + (int)sim_load(a->slot, KEYS);
  return count++;
}

static bool insert(sqlite3 *db, int i) {
  const row *r = &rows[i];
  char sql[SQL], key[8] = "NULL";
  if (r->key) snprintf(key, sizeof key, "'k%d'", r->key);
  snprintf(sql, sizeof sql,
           "INSERT INTO zkembed_outbox(operation,path,data,guid)"
           "VALUES(%s,'%d',%s)",
           asked[r->kind][r->place], i, key);
  return run(db, sql);
}

static bool begin(ext_connection *k, const ops_actor *a, bool as_guest) {
  if (!as_guest) return run(k->db, "BEGIN IMMEDIATE");
  known_call c = known_begin(a->slot, "outbox: sql_begin");
  k->guest = expect(c, zke_sql_begin(k->z, k->db), ZKE_OK);
  return k->guest;
}

static fate end_alone(sqlite3 *db, bool commits) {
  bool ended = run(db, commits ? "COMMIT" : "ROLLBACK");
  if (!ended) run(db, "ROLLBACK");
  if (!commits) return NEVER;
  return ended && foreign_is_durable() ? SURELY : PERHAPS;
}

static fate end(ext_connection *k, const ops_actor *a, bool commits) {
  if (!k->guest) return end_alone(k->db, commits);
  const char *name = commits ? "outbox: sql_commit" : "outbox: sql_rollback";
  known_call c = known_begin(a->slot, name);
  int rc =
      commits ? zke_sql_commit(k->z, k->db) : zke_sql_rollback(k->z, k->db);
  expect(c, rc, ZKE_OK);
  k->guest = false;
  if (!commits) return NEVER;
  if (rc == ZKE_OK) return SURELY;
  return rc == ZKE_CONNECTIONLOSS ? PERHAPS : NEVER;
}

/* A transaction with some rows. */
static void add_some(ext_connection *k, const ops_actor *a, bool as_guest) {
  int mine[MOST], n = 0, wanted = 1 + (int)sim_load(a->slot, MOST);
  if (!begin(k, a, as_guest)) return;
  bool well = run(k->db, ext_outbox_tables);
  while (well && n < wanted) {
    mine[n] = add(a);
    well = insert(k->db, mine[n++]);
  }
  bool commits = well && sim_load(a->slot, 5);
  for (int i = 0; commits && i < n; i++) rows[mine[i]].fate = PERHAPS;
  fate f = end(k, a, commits);
  for (int i = 0; i < n; i++) rows[mine[i]].fate = f;
  sim_say("%d rows of the outbox, from %d: %s", n, n ? mine[0] : 0,
          f == SURELY  ? "committed"
          : f == NEVER ? "rolled back"
                       : "perhaps");
}

/* Make its root unless it exists. */
static bool make(const ops_actor *a) {
  known_call c = known_begin(a->slot, "outbox: create");
  int rc = zke_create(a->z, ROOT, NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                      NULL);
  return expect(c, rc, rc == ZKE_NODEEXISTS ? rc : ZKE_OK);
}

/* Add some rows, and sometimes move them. */
static void move_some(const ops_actor *a) {
  ext_connection k;
  bool as_guest = sim_load(a->slot, 2), connected = connect(&k, a, as_guest);
  for (int i = 1 + (int)sim_load(a->slot, 3); i > 0 && connected; i--) {
    add_some(&k, a, as_guest);
    if (sim_load(a->slot, 2)) ext_outbox_look(&k);
  }
  disconnect(&k);
}

/* The queue's object discards its znodes.  If there is no memory to remember
 * one, the session ends in that call or the next. */
void outbox_any(const ops_actor *a) {
  known_session *s = &known_of[a->slot];
  int64_t at = sim.now;
  if (!make(a)) return;
  s->discards++;
  move_some(a);
  s->discards--;
  if (sim.last_error >= at) s->may_end = true;
}

/* ---- at rest ---- */

/* An earlier row that was moved with the same key; -1: there is none. */
static int same_key(int i) {
  for (int j = 0; j < i && rows[i].key; j++)
    if (rows[j].key == rows[i].key && rows[j].place == rows[i].place &&
        rows[j].seen)
      return j;
  return -1;
}

/* A key is pushed only once. */
static void check_key(int i) {
  int before = same_key(i);
  if (before >= 0)
    sim_found("P2: the outbox has moved rows %d and %d, of one key", before, i);
}

/* What was found must be a row of this kind, at this place, that may exist.
 * Returns its number. */
static int see(kind is, int place, const char *data, int after) {
  int i = data ? atoi(data) : -1;
  if (i < 0 || i >= count)
    sim_found("P2: the outbox has moved \"%s\"", data ? data : "NULL");
  row *r = &rows[i];
  if (r->kind != is || r->place != place)
    sim_found("P2: the outbox has moved row %d to where it does not belong", i);
  if (r->fate == NEVER)
    sim_found("P2: the outbox has moved row %d, which was not committed", i);
  if (r->seen) sim_found("P2: the outbox has moved row %d twice", i);
  if (i < after)
    sim_found("P2: the outbox has moved row %d after row %d", i, after);
  r->seen = true;
  return i;
}

/* Check all items of a queue.  false: a fault has prevented it. */
static bool check_queue(const ops_actor *a, int place) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  known_call c = known_begin(a->slot, "outbox: queue_new");
  int last = -1, rc = zke_queue_new(a->z, queues[place], NULL, &queue);
  expect(c, rc, ZKE_OK);
  while (rc == ZKE_OK) {
    c = known_begin(a->slot, "outbox: take");
    rc = zke_queue_take(queue, zke_now(a->z) + TAKE_MS, &item);
    if (rc != ZKE_OPERATIONTIMEOUT) expect(c, rc, ZKE_OK);
    if (rc == ZKE_OK) check_key(last = see(PUSH, place, item->data, last));
    zke_free(item);
  }
  zke_queue_free(queue);
  return rc == ZKE_OPERATIONTIMEOUT;
}

/* How many sets of a znode, from a row on, have at least this fate? */
static int sets(int place, fate least, int from) {
  int n = 0;
  for (int i = from; i < count; i++)
    n += rows[i].kind == SET && rows[i].place == place && rows[i].fate >= least;
  return n;
}

/* The znode has the data of the last set, and each set has changed its
 * version. */
static void check_node(const ops_actor *a, int place) {
  char *data = NULL;
  zke_stat stat = {.version = 0};
  known_call c = known_begin(a->slot, "outbox: get");
  int rc = zke_get(a->z, nodes[place], NULL, NULL, &data, NULL, &stat);
  bool none = rc == ZKE_NONODE && !sets(place, SURELY, 0);
  if (none || !expect(c, rc, ZKE_OK)) return;
  int last = see(SET, place, data, -1), made = stat.version + 1;
  if (sets(place, SURELY, last + 1))
    sim_found("P8: %s has the data of row %d of the outbox, not of a later one",
              nodes[place], last);
  if (made < sets(place, SURELY, 0) || made > sets(place, PERHAPS, 0))
    sim_found("P2: %s was set %d times by the outbox, of %d to %d",
              nodes[place], made, sets(place, SURELY, 0),
              sets(place, PERHAPS, 0));
  zke_free(data);
}

/* The dead letters exist, and the outbox is empty. */
static void check_tables(sqlite3 *db) {
  static const char sql[] =
      "SELECT data,operation FROM zkembed_outbox_dead UNION ALL "
      "SELECT data,'left' FROM zkembed_outbox";
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  if (rc != SQLITE_OK && ext_is_missing(db, "zkembed_outbox")) return;
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  for (; rc == SQLITE_ROW; rc = sqlite3_step(st)) {
    const char *data = (const char *)sqlite3_column_text(st, 0);
    const char *operation = (const char *)sqlite3_column_text(st, 1);
    if (strcmp(operation, "left") == 0)
      sim_found("P2: row %s is left in the outbox", data);
    see(BAD, strcmp(operation, "set") == 0, data, -1);
  }
  if (rc != SQLITE_DONE)
    sim_found("P11: the outbox cannot be read: %s", sqlite3_errmsg(db));
  sqlite3_finalize(st);
}

/* May a committed row have left no trace?  Yes if a later row sets the same
 * znode, or an earlier row had its key. */
static bool is_covered(int i) {
  return rows[i].kind == SET || same_key(i) >= 0;
}

/* Each committed row has left a trace. */
static void check_rows(void) {
  for (int i = 0; i < count; i++)
    if (rows[i].fate == SURELY && !rows[i].seen && !is_covered(i))
      sim_found("P8: row %d of the outbox was committed, and is lost", i);
}

static void check_all(ext_connection *k, const ops_actor *a) {
  bool complete = true;
  check_tables(k->db);
  for (int place = 0; place < PLACES; place++) {
    complete = check_queue(a, place) && complete;
    check_node(a, place);
  }
  if (complete) check_rows();
}

/* Move all rows; if an error prevents that even now, the next try succeeds. */
static bool is_moved(ext_connection *k, const ops_actor *a) {
  known_call c = known_begin(a->slot, "outbox: move");
  return connect(k, a, true) && expect(c, ext_outbox_move(k), ZKE_OK);
}

void outbox_check(const ops_actor *a) {
  ext_connection k;
  bool moved = !count;
  for (int i = 0; i < TRIES && !moved && !known_of[a->slot].lost; i++) {
    moved = is_moved(&k, a);
    if (moved) check_all(&k, a);
    disconnect(&k);
    if (!moved) sched_pause(TAKE_MS * SIM_MS);
  }
  if (!moved && !known_of[a->slot].lost)
    sim_found("P11: the outbox is not moved at rest: %s", zke_errmsg());
}
