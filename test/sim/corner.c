/* corner.c - see corner.h */
#define NOTES_PLAIN /* it judges its answers by itself */
#include "test/sim/corner.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "test/sim/expect.h"
#include "test/sim/memory.h"
#include "test/sim/os.h"
#include "test/sim/plan.h"
#include "test/sim/vfs.h"

enum { NODES = 8, STEPS = 6, PATH = 32, LONGEST = 20000, UNDONE = -301 };

/* A parent comes before its children. */
static const struct {
  const char *path;
  int parent;
} shape[NODES] = {{"/a", -1},          {"/a/b", 0},       {"/a/b/c", 1},
                  {"/a/b/c/d", 2},     {"/a/b/c/d/e", 3}, {"/x", -1},
                  {"/a/b/c/d/e/f", 4}, {"/x/y", 5}};

typedef struct cell {
  bool there;
  int version, value, len;
} cell;

typedef struct state {
  cell node[NODES];
  int row; /* 0: there is none */
} state;

typedef struct corner {
  bool made;   /* its root exists */
  state sure;  /* what is there for sure, */
  bool doubt;  /* or, after a call that was cut short, */
  state maybe; /* possibly this */
  int row;     /* the number of its row */
  zke *z;      /* the current handle, and the beginning of paths on it */
  char prefix[8];
  bool own;    /* no one else uses the handle */
  bool doomed; /* its session may end by itself */
} corner;

static corner corners[SIM_SLOTS];
static int values; /* that were assigned so far */

/* A backup of all corners, and their restoration.  Calls that run meanwhile are
 * in doubt. */
static corner kept[SIM_SLOTS];
void corner_keep(void) { memcpy(kept, corners, sizeof corners); }
void corner_go_back(void) { memcpy(corners, kept, sizeof corners); }

/* ---- what a call must do ---- */

/* What the program's own SQL does after writing its row, which gets it
 * refused. */
static const struct {
  const char *sql; /* NULL: nothing, its function returns the code */
  int rc;
} refusals[] = {{NULL, ZKE_OK},
                {NULL, UNDONE},
                {"COMMIT", SQLITE_AUTH},
                {"PRAGMA user_version=7", SQLITE_AUTH},
                {"DELETE FROM zkembed_node", SQLITE_AUTH},
                {"INSERT INTO rows VALUES('no number',0)", SQLITE_MISMATCH},
                {"SELECT nothing", SQLITE_ERROR}};
enum { REFUSALS = (int)(sizeof refusals / sizeof *refusals) };

/* A call, or one operation of several. */
typedef struct step {
  enum { CREATE, DELETE, SET, CHECK, ROW } kind;
  int node, version, value, len;
  int refusal; /* of a ROW: which; 0: none */
  int row;     /* which */
} step;

/* How many children a node has in a state. */
static int children(const state *s, int node) {
  int n = 0;
  for (int i = 0; i < NODES; i++)
    n += shape[i].parent == node && s->node[i].there;
  return n;
}

/* judge() of a create. */
static int judge_create(state *s, const step *p) {
  int parent = shape[p->node].parent;
  if (parent >= 0 && !s->node[parent].there) return ZKE_NONODE;
  if (s->node[p->node].there) return ZKE_NODEEXISTS;
  s->node[p->node] = (cell){.there = true, .value = p->value, .len = p->len};
  return ZKE_OK;
}

/* The expected answer to a step.  If that is ZKE_OK, the state changes. */
static int judge(state *s, const step *p) {
  cell *n = &s->node[p->node];
  if (p->kind == CREATE) return judge_create(s, p);
  if (p->kind == ROW) {
    if (!p->refusal) s->row = p->value;
    return refusals[p->refusal].rc;
  }
  if (!n->there) return ZKE_NONODE;
  if (p->version >= 0 && p->version != n->version) return ZKE_BADVERSION;
  if (p->kind == DELETE && children(s, p->node)) return ZKE_NOTEMPTY;
  if (p->kind == DELETE) *n = (cell){.there = false};
  if (p->kind == SET)
    *n = (cell){.there = true,
                .version = n->version + 1,
                .value = p->value,
                .len = p->len};
  return ZKE_OK;
}

/* A random step that mostly fits the state. */
static step step_any(const corner *k, const ops_actor *a, const state *s) {
  static const int lengths[] = {0, -1, 4, 40, 400, 4000, LONGEST};
  step p = {
      .node = (int)sim_load(a->slot, NODES), .version = -1, .row = k->row};
  const cell *n = &s->node[p.node];
  p.kind = n->there ? 1 + (unsigned)sim_load(a->slot, 3) : CREATE;
  if (sim_load(a->slot, 6) == 0) p.kind = (unsigned)sim_load(a->slot, 4);
  if (sim_load(a->slot, 6) == 0) p.kind = ROW;
  if (sim_load(a->slot, 3) == 0)
    p.version = n->version + (sim_load(a->slot, 4) == 0);
  if (p.kind == ROW && sim_load(a->slot, 4) == 0)
    p.refusal = (int)sim_load(a->slot, REFUSALS);
  p.value = ++values;
  uint64_t one = sim_load(a->slot, 7), two = sim_load(a->slot, 7);
  p.len = lengths[one < two ? one : two];
  return p;
}

/* ---- how it is called ---- */

/* The data of a value: a part of one long constant text. */
static const char *data_of(int value) {
  enum { PLACES = 1 << 14 };
  static char text[LONGEST + 4 * PLACES];
  static bool filled;
  uint32_t seed = 1;
  for (size_t i = 0; !filled && i < sizeof text; i++)
    text[i] = (char)((seed = seed * 69069 + 5) >> 24);
  filled = true;
  return text + 4 * (value % PLACES);
}

/* A node's path, as the corner's handle has it. */
static void path_of(const corner *k, int node, char out[PATH]) {
  snprintf(out, PATH, "%s%s", k->prefix, shape[node].path);
}

/* What the step wrote is undone if the step is refused. */
static int write_row(struct sqlite3 *db, int64_t zxid, void *context) {
  const step *p = context;
  char sql[200];
  snprintf(sql, sizeof sql,
           "CREATE TABLE IF NOT EXISTS rows(id INTEGER PRIMARY KEY,value);"
           "INSERT OR REPLACE INTO rows VALUES(%d,%d)",
           p->row, p->value);
  const char *more = refusals[p->refusal].sql;
  int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  /* the engine's statements have more; it puts the limit back */
  if (zxid) sqlite3_limit(db, SQLITE_LIMIT_VARIABLE_NUMBER, 0);
  if (rc == SQLITE_OK && more) rc = sqlite3_exec(db, more, NULL, NULL, NULL);
  return rc == SQLITE_OK ? refusals[p->refusal].rc : rc;
}

typedef struct reading {
  int row, value;
} reading;

/* If there is no table, there is no row. */
static int read_row(struct sqlite3 *db, int64_t zxid, void *context) {
  reading *r = context;
  sqlite3_stmt *st = NULL;
  (void)zxid;
  r->value = 0;
  int rc = sqlite3_prepare_v2(db, "SELECT value FROM rows WHERE id=?1", -1, &st,
                              NULL);
  if (rc == SQLITE_ERROR) return ZKE_OK;
  if (rc == SQLITE_OK) rc = sqlite3_bind_int(st, 1, r->row);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  if (rc == SQLITE_ROW) r->value = sqlite3_column_int(st, 0);
  int end = sqlite3_finalize(st);
  return rc == SQLITE_ROW || rc == SQLITE_DONE ? end : rc;
}

/* The step as an operation, which points to the step, the path and the data. */
static void step_op(const step *p, const char *path, const char *data,
                    zke_op *op) {
  switch (p->kind) {
    case CREATE:
      zke_op_create(op, path, data, p->len, ZKE_OPEN_ACL, ZKE_PERSISTENT);
      break;
    case DELETE:
      zke_op_delete(op, path, p->version);
      break;
    case SET:
      zke_op_set(op, path, data, p->len, p->version);
      break;
    case CHECK:
      zke_op_check(op, path, p->version);
      break;
    default:
      zke_op_sql(op, write_row, (void *)(uintptr_t)p);
  }
}

/* Check the Stat returned by a create or a set. */
static void check_stat(const state *s, const step *p, const zke_stat *stat) {
  const cell *n = &s->node[p->node];
  int len = n->len < 0 ? 0 : n->len;
  if (p->kind != CREATE && p->kind != SET) return;
  if (stat->version != n->version || stat->dataLength != len ||
      stat->numChildren != children(s, p->node))
    sim_found("P1: %s has version %d, %d bytes, %d children; not %d, %d, %d",
              shape[p->node].path, stat->version, stat->dataLength,
              stat->numChildren, n->version, len, children(s, p->node));
}

/* Make the step by its own call. */
static int step_call(const corner *k, const step *p, zke_stat *stat) {
  char path[PATH];
  zke_op op;
  const char *data = data_of(p->value);
  path_of(k, p->node, path);
  switch (p->kind) {
    case CREATE:
      return zke_create(k->z, path, data, p->len, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                        NULL, stat);
    case DELETE:
      return zke_delete(k->z, path, p->version);
    case SET:
      return zke_set(k->z, path, data, p->len, p->version, stat);
    default:
      step_op(p, path, data, &op);
      return zke_multi(k->z, &op, 1, NULL);
  }
}

/* ---- a look ---- */

/* Which node differs from the state?  NODES: the row; -1: none. */
static int difference(const state *s, const zke_op_result *r, int row) {
  for (int i = 0; i < NODES; i++) {
    const cell *n = &s->node[i];
    if ((r[i].rc == ZKE_OK) != n->there) return i;
    if (!n->there) continue;
    if (r[i].len != n->len || r[i].stat.version != n->version) return i;
    if (n->len > 0 && memcmp(r[i].data, data_of(n->value), (size_t)n->len) != 0)
      return i;
  }
  return row == s->row ? -1 : NODES;
}

/* What was found must be what the last call left.  If that was cut short, its
 * other outcome is fine, too; from now on only the one that was found is. */
static void compare(corner *k, const zke_op_result *r, int row) {
  int wrong = difference(&k->sure, r, row);
  int other = k->doubt ? difference(&k->maybe, r, row) : wrong;
  if (wrong >= 0 && other >= 0)
    sim_found("P8: %s of the corner of row %d is not as it was left%s",
              wrong < NODES ? shape[wrong].path : "the row", k->row,
              k->doubt ? ", nor as it was to be" : "");
  if (wrong >= 0) k->sure = k->maybe;
  k->doubt = false;
}

/* Read everything, in one snapshot. */
static void look(corner *k, const ops_actor *a) {
  char path[NODES][PATH];
  zke_op ops[NODES + 1];
  zke_op_result r[NODES + 1] = {{0}};
  reading row = {.row = k->row};
  for (int i = 0; i < NODES; i++) {
    path_of(k, i, path[i]);
    zke_op_get(&ops[i], path[i]);
  }
  zke_op_sql(&ops[NODES], read_row, &row);
  known_call c = known_begin(a->slot, "corner: multi_read");
  if (expect(c, zke_multi_read(k->z, ops, NODES + 1, r), ZKE_OK) &&
      r[NODES].rc == ZKE_OK)
    compare(k, r, row.value);
  zke_results_clear(r, NODES + 1);
}

/* ---- calls ---- */

/* From now on the state may be this one, even if the call fails. */
static void doubt(corner *k, const state *maybe) {
  k->maybe = *maybe;
  k->doubt = true;
}

/* The call has returned. */
static void settle(corner *k, int rc) {
  if (rc == ZKE_OK) k->sure = k->maybe;
  k->doubt = rc == ZKE_CONNECTIONLOSS;
}

/* One step by its own call. */
static void one(corner *k, const ops_actor *a) {
  zke_stat stat = {.version = 0};
  state s = k->sure;
  step p = step_any(k, a, &s);
  int wanted = judge(&s, &p);
  doubt(k, &s);
  known_call c = known_begin(a->slot, "corner: one");
  if (k->own) c.ended = false; /* that flag is about the process's session */
  int rc = step_call(k, &p, &stat);
  settle(k, rc);
  if (!expect(c, rc, wanted) || rc != ZKE_OK) return;
  check_stat(&k->sure, &p, &stat);
  if (k->made && stat.mzxid) known_zxid(c, stat.mzxid);
}

/* One step with its reply lost, before or after it, by zke_test_fail(). */
static void lost(corner *k, const ops_actor *a) {
  bool after = sim_load(a->slot, 2);
  state s = k->sure;
  step p = step_any(k, a, &s);
  judge(&s, &p);
  doubt(k, &s);
  known_call c = known_begin(a->slot, "corner: lost");
  zke_test_fail(k->z, after ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE, 0);
  int rc = step_call(k, &p, NULL);
  zke_test_fail(k->z, 0, 0);
  settle(k, rc);
  if (!expect(c, rc, ZKE_CONNECTIONLOSS) || sim.last_error >= c.at) return;
  if (sim.now >= c.at + BUSY_MS * SIM_MS) return; /* too late for the gate */
  if (after) k->sure = s;
  k->doubt = false;
}

/* Several steps, all or nothing: it ends at the first one that is refused. */
static void multi(corner *k, const ops_actor *a) {
  char path[STEPS][PATH];
  step p[STEPS];
  zke_op ops[STEPS];
  zke_op_result r[STEPS] = {{0}};
  int count = 1 + (int)sim_load(a->slot, STEPS), refused = count,
      wanted = ZKE_OK;
  state s = k->sure;
  for (int i = 0; i < count; i++) {
    p[i] = step_any(k, a, &s);
    int rc = judge(&s, &p[i]);
    if (rc && refused == count) refused = i, wanted = rc;
    path_of(k, p[i].node, path[i]);
    step_op(&p[i], path[i], data_of(p[i].value), &ops[i]);
  }
  doubt(k, wanted ? &k->sure : &s);
  known_call c = known_begin(a->slot, "corner: multi");
  int rc = zke_multi(k->z, ops, count, r);
  settle(k, rc);
  bool told = expect(c, rc, wanted);
  for (int i = 0; i < count; i++) {
    int must = i < refused ? ZKE_OK : ZKE_RUNTIMEINCONSISTENCY;
    if (i == refused) must = wanted;
    if (told && r[i].rc != must)
      sim_found("P1: operation %d of a multi gave %s, not %s", i,
                zke_error_name(r[i].rc), zke_error_name(must));
  }
  zke_results_clear(r, count);
}

/* ---- a batch ---- */

typedef struct body {
  corner *k;
  const ops_actor *a;
  state s;
  int ends; /* what the function returns */
} body;

/* The batch's function: each call sees the changes of the earlier ones; a
 * refused call does nothing. */
static int in_batch(zke *z, void *context) {
  body *b = context;
  (void)z;
  for (int i = 1 + (int)sim_load(b->a->slot, STEPS); i > 0; i--) {
    zke_stat stat = {.version = 0};
    step p = step_any(b->k, b->a, &b->s);
    int wanted = judge(&b->s, &p);
    known_call c = known_begin(b->a->slot, "corner: in a batch");
    int rc = step_call(b->k, &p, &stat);
    if (!expect(c, rc, wanted)) return rc;
    if (rc == ZKE_OK) check_stat(&b->s, &p, &stat);
  }
  if (b->ends == ZKE_OK) doubt(b->k, &b->s);
  return b->ends;
}

/* Steps in a batch; the function may abandon all of it at the end. */
static void batch(corner *k, const ops_actor *a) {
  body b = {.k = k, .a = a, .s = k->sure};
  if (sim_load(a->slot, 4) == 0) b.ends = UNDONE;
  known_call c = known_begin(a->slot, "corner: batch");
  int rc = zke_batch(k->z, in_batch, &b);
  if (k->doubt) settle(k, rc);
  expect(c, rc, b.ends);
}

/* ---- what is given up ---- */

/* This must be the session's only ephemeral. */
static void alone(const corner *k, const ops_actor *a, const char *path) {
  zke_strings *list = NULL;
  known_call c = known_begin(a->slot, "corner: ephemerals");
  int rc = zke_ephemerals(k->z, 0, NULL, &list);
  if (expect(c, rc, ZKE_OK) &&
      (list->count != 1 || strcmp(list->data[0], path) != 0))
    sim_found("P6: %d ephemerals, %s the first, not %s alone", list->count,
              list->count ? list->data[0] : "none", path);
  zke_free(list);
}

/* A call of the session, whose reply may be lost, returns what it must. */
static bool replied(const corner *k, known_call c, int lost, int rc) {
  zke_test_fail(k->z, 0, 0);
  return expect(c, rc, lost ? ZKE_CONNECTIONLOSS : ZKE_OK);
}

/* Maybe lose the reply of the session's next change.  Returns how. */
static int lose(const corner *k, const ops_actor *a) {
  static const int ways[] = {0, ZKE_TEST_FAIL_BEFORE, ZKE_TEST_FAIL_AFTER};
  int way = ways[sim_load(a->slot, 3)];
  if (way) zke_test_fail(k->z, way, 0);
  return way;
}

/* Make a sequential node and discard it, with lost replies.  The next node
 * comes after that, and is none of those being removed. */
static void give_up(corner *k, const ops_actor *a) {
  static const char path[] = "/token-";
  enum { MODE = ZKE_EPHEMERAL_SEQUENTIAL };
  char *name = NULL;
  known_call c = known_begin(a->slot, "corner: to be discarded");
  int way = lose(k, a);
  int rc = zke_create(k->z, path, NULL, -1, ZKE_OPEN_ACL, MODE, NULL, NULL);
  if (!replied(k, c, way, rc)) return;
  c = known_begin(a->slot, "corner: discard");
  way = lose(k, a);
  rc = zke_discard(k->z, path, MODE, 0);
  if (rc == ZKE_OK && the_plan.k.threads > 1)
    way = 0; /* another thread has dispatched first */
  k->doomed = rc != ZKE_OK && sim.last_error >= c.at; /* maybe no memory */
  if (!replied(k, c, way, rc) || k->doomed) return;
  c = known_begin(a->slot, "corner: after a discard");
  rc = zke_create(k->z, path, NULL, -1, ZKE_OPEN_ACL, MODE, &name, NULL);
  if (expect(c, rc, ZKE_OK)) alone(k, a, name);
  zke_free(name);
}

/* ---- a connection of the program ---- */

/* An ephemeral of the corner, whose zxid is its owner's token; 0: none. */
static int64_t take_token(corner *k, const ops_actor *a, const char *path) {
  zke_stat stat = {.version = 0};
  known_call c = known_begin(a->slot, "corner: token");
  int rc = zke_create(k->z, path, NULL, -1, ZKE_OPEN_ACL,
                      ZKE_EPHEMERAL_SEQUENTIAL, NULL, &stat);
  return expect(c, rc, ZKE_OK) ? stat.mzxid : 0;
}

/* A statement that fails unless the token is in office (P5). */
static int claim(const corner *k, const ops_actor *a, sqlite3 *db,
                 int64_t token) {
  char sql[80];
  snprintf(sql, sizeof sql, "SELECT zke_claim('%s',%lld)", k->prefix,
           (long long)token);
  int64_t at = sim.now;
  int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  if (rc == SQLITE_ERROR && sim.last_error < at && !known_of[a->slot].may_end)
    sim_found("P5: the token of a living session is refused: %s",
              sqlite3_errmsg(db));
  snprintf(sql, sizeof sql, "SELECT zke_claim('%s',%lld)", k->prefix,
           (long long)token + 1);
  if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK)
    sim_found("P5: a token that nobody has is in office");
  return rc;
}

/* COMMIT on a connection of the program: a fault there means that the disk is
 * bad for a while. */
static int program_commit(corner *k, sqlite3 *db) {
  if (sched_step(CALL_commit)) {
    sim.bad_until = sim.now + 5 * SIM_MS;
    sim_error(sim.bad_until);
  }
  return zke_sql_commit(k->z, db);
}

/* Write the row, and commit it or not. */
static void program_write(corner *k, const ops_actor *a, sqlite3 *db,
                          int64_t token) {
  step p = {.kind = ROW, .value = ++values, .row = k->row};
  state s = k->sure;
  judge(&s, &p);
  known_call c = known_begin(a->slot, "corner: sql_begin");
  if (!expect(c, zke_sql_begin(k->z, db), ZKE_OK)) return;
  int rc = claim(k, a, db, token);
  if (rc == SQLITE_OK) rc = write_row(db, 0, &p);
  bool commits = rc == SQLITE_OK && sim_load(a->slot, 3);
  if (commits) doubt(k, &s);
  c = known_begin(a->slot, commits ? "corner: sql_commit" : "sql_rollback");
  rc = commits ? program_commit(k, db) : zke_sql_rollback(k->z, db);
  if (commits) settle(k, rc);
  expect(c, rc, ZKE_OK);
}

/* Write a row with a token, in a transaction on the program's own
 * connection. */
static void by_program(corner *k, const ops_actor *a) {
  char path[PATH];
  sqlite3 *db = NULL;
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
  snprintf(path, sizeof path, "%s/token-", k->prefix);
  int64_t token = take_token(k, a, path);
  bool opened =
      token && sqlite3_open_v2(ops_file, &db, flags, vfs_name) == SQLITE_OK;
  if (opened && sim_load(a->slot, 2)) /* it may ask for less syncs */
    sqlite3_exec(db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
  if (opened) {
    known_call c = known_begin(a->slot, "corner: sql_adopt");
    if (expect(c, zke_sql_adopt(k->z, db), ZKE_OK))
      program_write(k, a, db, token);
  }
  sqlite3_close(db);
  known_call c = known_begin(a->slot, "corner: discard");
  expect(c, zke_discard(k->z, path, ZKE_EPHEMERAL_SEQUENTIAL, 0), ZKE_OK);
}

/* ---- which handle ---- */

/* Some calls on the corner's current handle. */
static void some(corner *k, const ops_actor *a) {
  look(k, a);
  for (int i = 1 + (int)sim_load(a->slot, 4); i > 0 && !k->doubt && !k->doomed;
       i--) {
    switch (sim_load(a->slot, k->own ? 6 : 4)) {
      case 0:
        one(k, a);
        break;
      case 1:
      case 2:
        multi(k, a);
        break;
      case 3:
        batch(k, a);
        break;
      case 4:
        lost(k, a);
        break;
      default:
        give_up(k, a);
    }
  }
  if (sim_load(a->slot, 2) && !k->doomed) look(k, a);
}

/* The corner of the actor's slot, on the process's handle. */
static corner *corner_of(const ops_actor *a) {
  corner *k = &corners[a->slot];
  k->row = 1 + a->slot;
  k->z = a->z;
  k->own = k->doomed = false;
  snprintf(k->prefix, sizeof k->prefix, "/o%d", a->slot);
  return k;
}

/* Make its root unless it exists. */
static bool make(corner *k, const ops_actor *a) {
  if (k->made) return true;
  known_call c = known_begin(a->slot, "corner: create");
  int rc = zke_create(k->z, k->prefix, NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                      NULL, NULL);
  k->made = rc == ZKE_OK || rc == ZKE_NODEEXISTS;
  expect(c, rc, rc == ZKE_NODEEXISTS ? rc : ZKE_OK);
  return k->made;
}

/* On a session whose root is the corner. */
static void by_session(corner *k, const ops_actor *a) {
  zke_options o = ZKE_INIT(zke_options);
  o.chroot = k->prefix;
  o.identity = "corner";
  o.flags = sim_load(a->slot, 2) ? ZKE_OPEN_LIGHT : 0;
  known_call c = known_begin(a->slot, "corner: open_session");
  if (!expect(c, zke_open_session(a->z, &o, &k->z), ZKE_OK)) return;
  known_session_id(zke_session_id(k->z));
  k->prefix[0] = '\0';
  k->own = true;
  some(k, a);
  c = known_begin(a->slot, "corner: close");
  known_end(c, zke_close(k->z));
}

/* The options that each zke_open() of the simulation needs. */
static void options_for(zke_options *o) {
  o->os = &os_simulated;
  o->allocator = memory_allocator;
  o->vfs = vfs_name;
}

/* Open a handle that only reads. */
static bool open_reader(corner *k, const ops_actor *a) {
  zke_options o = ZKE_INIT(zke_options);
  options_for(&o);
  o.flags = ZKE_OPEN_READONLY;
  known_call c = known_begin(a->slot, "corner: open, read-only");
  sched_self()->only_reads = true; /* for the files that it opens (vfs.c) */
  int rc = zke_open(ops_file, &o, &k->z);
  sched_self()->only_reads = false;
  return expect(c, rc, ZKE_OK);
}

/* The reader must see the same. */
static void by_reader(corner *k, const ops_actor *a) {
  if (!open_reader(k, a)) return;
  look(k, a);
  known_call c = known_begin(a->slot, "corner: set, read-only");
  expect(c, zke_set(k->z, "/r0", "", 0, -1, NULL), ZKE_READONLY);
  c = known_begin(a->slot, "corner: close, read-only");
  known_end(c, zke_close(k->z));
}

/* A tree in memory, which nothing else can see. */
static void in_memory(const ops_actor *a) {
  corner k = {.row = 1, .own = true};
  zke_options o = ZKE_INIT(zke_options);
  options_for(&o);
  known_call c = known_begin(a->slot, "corner: open, in memory");
  if (!expect(c, zke_open(":memory:", &o, &k.z), ZKE_OK)) return;
  some(&k, a);
  c = known_begin(a->slot, "corner: close, in memory");
  known_end(c, zke_close(k.z));
}

void corner_look(const ops_actor *a) {
  corner *k = corner_of(a);
  if (k->made) look(k, a);
}

void corner_look_all(const ops_actor *a) {
  for (int slot = 0; slot < SIM_SLOTS; slot++) {
    corner *k = &corners[slot];
    k->z = a->z;
    snprintf(k->prefix, sizeof k->prefix, "/o%d", slot);
    if (k->made) look(k, a);
  }
}

void corner_any(const ops_actor *a) {
  if (a->thread) return; /* only its process's first thread uses the corner */
  corner *k = corner_of(a);
  if (!make(k, a)) return;
  switch (sim_load(a->slot, 8)) {
    case 0:
      in_memory(a);
      break;
    case 1:
      by_reader(k, a);
      break;
    case 2:
      look(k, a);
      if (!k->doubt) by_program(k, a);
      break;
    case 3:
    case 4:
      by_session(k, a);
      break;
    default:
      some(k, a);
  }
}
