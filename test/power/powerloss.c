/* powerloss.c - see powerloss.h
 *
 * The test keeps a model of the tree and makes each change in it first, so
 * that at a cut in the middle of an operation it knows the state before and
 * the one after.  Every commit is a state, those that need not be durable too:
 * what is found after a cut must be one of them, and none older than the last
 * that was acknowledged as durable.  Sessions and ephemerals of before are left
 * out, but for what remains of them in their parents' counters.
 *
 * Nothing here depends on the time or the machine, so a seed repeats a run
 * exactly: clock, process id, boot id and inodes come from the OS table.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "powerloss.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "zkembed.h"
#include "powervfs.h"

enum {
  NODES = 80,
  PATH = 64,
  SESSIONS = 5,
  QUEUES = 2,
  MULTI = 5,
  VALUE = 60000,  /* bytes of the largest value */
  LINE = 200,     /* characters that describe a node */
  STAMPS = 24,    /* bytes of the liveness file that are looked at */
  CHILDREN = 2,   /* that look at disks at the same time */
  PATIENCE = 120, /* seconds for one of them */
  AFTER = 6,      /* operations after a recovery */
  LONG = 1 << 30, /* ms that containers and TTL nodes stay */
  SKIP = 1        /* a result: nothing was planned */
};

/* ---- the model ---- */

enum kind { PLAIN, CONTAINER, TTL };

typedef struct znode {
  char path[PATH];
  enum kind kind; /* not known of what was read */
  int64_t owner, czxid, mzxid, pzxid;
  int version, aversion, creates, len, acls;
  bool pzxid_moot; /* changed by the end of the sessions */
  uint64_t hash;   /* of the value */
} znode;

typedef struct tree {
  int64_t zxid;
  int count;
  znode at[NODES];
} tree;

typedef struct session {
  zke *z;
  int64_t id;
} session;

static struct {
  const powerloss_plan *plan;
  uint64_t random;
  long event, cut[2], again_at; /* counted; cut at; to cut at again */
  int image, depth, boot;       /* depth: cuts so far */
  char base[PATH_MAX], database[PATH_MAX];
  zke_os os;
  int64_t clock; /* ms */
  int64_t leaps; /* ms that the wall clock has leapt ahead; lost in a cut */
  session session[SESSIONS];
  int sessions;
  tree now, next; /* next: with the operation under way */
  char **state;   /* descriptions of all commits */
  int states, states_room;
  int safe;           /* the oldest that may be found after a cut */
  char *flight;       /* description of next; NULL: nothing under way */
  bool durable;       /* what is under way will be, once acknowledged */
  int64_t given;      /* the highest zxid or session id that anybody knows */
  int number[QUEUES]; /* the last that a persistent node got */
  sqlite3 *spy;
  sqlite3_stmt *spying;
  int looking; /* children that look at disks */
} run;

static powerloss_tally *tally; /* shared with the children */

static void add(long *sum, long n) {
  __atomic_fetch_add(sum, n, __ATOMIC_RELAXED);
}

static uint64_t chance(uint64_t limit) {
  return power_random(&run.random, limit);
}

/* ---- findings ---- */

/* A violation is counted, and printed with what repeats it, unless the plan
 * expects it. */
static void found(powerloss_kind kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void found(powerloss_kind kind, const char *format, ...) {
  static const char *const names[POWERLOSS_KINDS] = {
      "LOST", "DISORDER", "REISSUED", "UNSOUND", "EARLY", "DIED", "MODEL"};
  va_list ap;
  add(&tally->violations[kind], 1);
  if (run.plan->quiet && (kind != POWERLOSS_MODEL || run.depth)) return;
  printf("%s: %s SEED=%llu CUT=%ld, image %d", names[kind], run.plan->name,
         (unsigned long long)run.plan->seed, run.depth ? run.cut[0] : run.event,
         run.image);
  if (run.depth > 1) printf(", cut again at event %ld", run.cut[1]);
  printf(": ");
  va_start(ap, format);
  vprintf(format, ap);
  va_end(ap);
  printf("\n");
}

/* What the engine must never do here, wherever the power fails. */
static void demand(int rc, int expected, const char *what) {
  if (rc == expected) return;
  found(POWERLOSS_MODEL, "%s: %s, not %s: %s", what, zke_error_name(rc),
        zke_error_name(expected), rc ? zke_errmsg() : "");
  fflush(stdout);
  _exit(run.depth ? 0 : 1); /* a child has said enough */
}

/* ---- trees ---- */

static uint64_t hash_bytes(const char *data, int len) {
  uint64_t h = UINT64_C(14695981039346656037);
  for (int i = 0; i < len; i++) h = (h ^ (uint8_t)data[i]) * 1099511628211u;
  return h;
}

static znode *tree_find(tree *t, const char *path) {
  for (int i = 0; i < t->count; i++) {
    if (strcmp(t->at[i].path, path) == 0) return &t->at[i];
  }
  return NULL;
}

static bool is_child(const char *path, const char *parent) {
  size_t len = strlen(parent);
  if (len == 1) len = 0; /* the root */
  return path[1] && strncmp(path, parent, len) == 0 && path[len] == '/' &&
         !strchr(path + len + 1, '/');
}

static int tree_children(const tree *t, const char *parent, bool ephemeral) {
  int count = 0;
  for (int i = 0; i < t->count; i++) {
    const znode *n = &t->at[i];
    count += (n->owner != 0) == ephemeral && is_child(n->path, parent);
  }
  return count;
}

static znode *tree_parent(tree *t, const char *path) {
  char parent[PATH];
  const char *slash = strrchr(path, '/');
  int len = slash > path ? (int)(slash - path) : 1;
  snprintf(parent, sizeof parent, "%.*s", len, path);
  return tree_find(t, parent);
}

static void tree_value(znode *n, const char *data, int len) {
  n->len = len;
  n->hash = hash_bytes(data, len);
}

/* What a create does to the tree that is expected; the new node. */
static znode *tree_create(tree *t, const char *path, int64_t owner,
                          const char *data, int len) {
  znode *parent = tree_parent(t, path), *n = &t->at[t->count++];
  if (t->count > NODES) abort();
  *n = (znode){.owner = owner, .czxid = t->zxid, .mzxid = t->zxid};
  snprintf(n->path, sizeof n->path, "%s", path);
  n->pzxid = t->zxid;
  n->acls = 1;
  tree_value(n, data, len);
  parent->creates++;
  parent->pzxid = t->zxid;
  return n;
}

static void tree_set(tree *t, znode *n, const char *data, int len) {
  n->version++;
  n->mzxid = t->zxid;
  tree_value(n, data, len);
}

static void tree_delete(tree *t, znode *n) {
  tree_parent(t, n->path)->pzxid = t->zxid;
  *n = t->at[--t->count];
}

/* What the end of a session does to it. */
static void tree_end_session(tree *t, int64_t id) {
  for (int i = 0; i < t->count;) {
    if (t->at[i].owner == id) {
      tree_delete(t, &t->at[i]);
    } else {
      i++;
    }
  }
}

static int compare_lines(const void *a, const void *b) { return strcmp(a, b); }

/* The persistent nodes as text, as they are after the end of all sessions. */
static char *tree_describe(tree *t) {
  static char line[NODES][LINE];
  int count = 0;
  for (int i = 0; i < t->count; i++) {
    const znode *n = &t->at[i];
    if (n->owner) continue;
    int children = tree_children(t, n->path, false) + !n->path[1];
    bool moot = n->pzxid_moot || tree_children(t, n->path, true) > 0;
    snprintf(line[count++], LINE,
             "%s %d bytes %llx version %d,%d,%d children %d acls %d "
             "zxids %llx %llx %llx\n",
             n->path, n->len, (unsigned long long)n->hash, n->version,
             2 * n->creates - children, n->aversion, children, n->acls,
             (unsigned long long)n->czxid, (unsigned long long)n->mzxid,
             moot ? 0 : (unsigned long long)n->pzxid);
  }
  qsort(line, (size_t)count, LINE, compare_lines);
  char *text = calloc((size_t)count + 1, LINE), *end = text;
  if (!text) abort();
  for (int i = 0; i < count; i++) end = stpcpy(end, line[i]);
  return text;
}

/* ---- reading the real tree ---- */

static void join(char *out, const char *parent, const char *name) {
  int len = snprintf(out, PATH, "%s/%s", parent[1] ? parent : "", name);
  if (len >= PATH) abort();
}

/* Read a node; with a floor, a pzxid above it is moot. */
static void read_node(zke *z, znode *n, int64_t floor) {
  zke_stat stat;
  zke_acls *acls;
  char *data;
  demand(zke_get(z, n->path, NULL, NULL, &data, &n->len, &stat), ZKE_OK, "get");
  n->hash = hash_bytes(data, n->len);
  zke_free(data);
  demand(zke_get_acl(z, n->path, &acls, NULL), ZKE_OK, "get_acl");
  n->acls = acls->count;
  zke_free(acls);
  n->owner = stat.ephemeralOwner;
  n->czxid = stat.czxid;
  n->mzxid = stat.mzxid;
  n->pzxid = stat.pzxid;
  n->pzxid_moot = floor && n->pzxid > floor;
  n->version = stat.version;
  n->aversion = stat.aversion;
  n->creates = (stat.cversion + stat.numChildren) / 2;
}

/* Read all nodes but /zookeeper's into a tree, breadth first. */
static void read_tree(zke *z, tree *t, int64_t floor) {
  t->count = 1;
  t->at[0] = (znode){.path = "/"};
  for (int i = 0; i < t->count; i++) {
    zke_strings *names;
    read_node(z, &t->at[i], floor);
    demand(zke_children(z, t->at[i].path, NULL, NULL, &names, NULL), ZKE_OK,
           "children");
    for (int c = 0; c < names->count && t->count < NODES; c++) {
      if (i == 0 && strcmp(names->data[c], "zookeeper") == 0) continue;
      t->at[t->count] = (znode){.path = ""};
      join(t->at[t->count++].path, t->at[i].path, names->data[c]);
    }
    zke_free(names);
  }
}

/* What differs between two descriptions, at most a few lines of it. */
static void print_difference(const char *sign, const char *a, const char *b) {
  int shown = 0;
  while (*a && shown < 6) {
    int len = (int)strcspn(a, "\n") + 1;
    char line[LINE + 1];
    snprintf(line, sizeof line, "%.*s", len, a);
    if (!strstr(b, line)) shown += printf("  %s %s", sign, line) > 0;
    a += len;
  }
}

static void show_difference(const char *expected, const char *got) {
  if (run.plan->quiet) return;
  print_difference("expected", expected, got);
  print_difference("found   ", got, expected);
}

/* The handles must show what the model says. */
static void compare_now(void) {
  static tree t;
  read_tree(run.session[0].z, &t, 0);
  char *got = tree_describe(&t), *expected = tree_describe(&run.now);
  if (strcmp(got, expected) != 0) {
    show_difference(expected, got);
    demand(ZKE_DATAINCONSISTENCY, ZKE_OK, "the tree");
  }
  free(got);
  free(expected);
}

/* ---- the operating system ---- */

static int64_t os_clock(void *c, int which) {
  int64_t start = which == ZKE_CLOCK_REALTIME ? 1700000000000 + run.leaps : 0;
  (void)c;
  return (start + ++run.clock) * 1000000;
}

static void os_sleep(void *c, int64_t ns) {
  (void)c;
  run.clock += ns / 1000000 + 1;
}

static int os_random(void *c, void *buffer, size_t size) {
  (void)c;
  for (size_t i = 0; i < size; i++) ((char *)buffer)[i] = (char)chance(256);
  return 0;
}

static int os_boot_id(void *c, char *buffer, size_t size) {
  (void)c;
  return snprintf(buffer, size, "boot-%d", run.plan->same_boot ? 0 : run.boot);
}

/* The table of system calls: the clock, chance and boot id are the run's
 * own. */
static void os_prepare(void) {
  power_machine(&run.os);
  run.os.clock = os_clock;
  run.os.sleep = os_sleep;
  run.os.random = os_random;
  run.os.boot_id = os_boot_id;
}

/* ---- the history ---- */

static void history_add(char *text) {
  if (run.states == run.states_room) {
    run.states_room = run.states_room * 2 + 64;
    run.state = realloc(run.state, (size_t)run.states_room * sizeof(char *));
    if (!run.state) abort();
  }
  run.state[run.states++] = text;
}

static void history_clear(void) {
  while (run.states) free(run.state[--run.states]);
  run.safe = 0;
}

/* An operation begins that would make run.now into run.next. */
static void flight_begin(bool durable) {
  run.flight = tree_describe(&run.next);
  run.durable = durable;
}

/* Prepare run.next for one more change. */
static tree *flight_plan(void) {
  run.next = run.now;
  run.next.zxid++;
  return &run.next;
}

/* Was what is acknowledged now on the disk before? */
static void check_ahead(void) {
  int writes = power_unsynced("a.db-wal"), names = power_unsynced_names();
  if (run.depth == 0) add(&tally->durable, 1);
  if (writes || names) {
    found(POWERLOSS_EARLY,
          "acknowledged with %d writes to the log and %d names not synced",
          writes, names);
  }
}

/* The operation has returned. */
static void flight_end(int rc, const char *what) {
  demand(rc, ZKE_OK, what);
  if (run.durable) check_ahead();
  history_add(run.flight);
  run.flight = NULL;
  run.now = run.next;
  run.given = run.now.zxid;
  if (run.durable || run.plan->durability == ZKE_DURABLE_ALL)
    run.safe = run.states - 1;
}

/* ---- who looks whether a commit is visible ---- */

/* It uses SQLite's own VFS, and must never write, not even by closing. */
static void spy_begin(void) {
  int yes = 1;
  if (sqlite3_open_v2(run.database, &run.spy, SQLITE_OPEN_READONLY, NULL) ||
      sqlite3_file_control(run.spy, "main", SQLITE_FCNTL_PERSIST_WAL, &yes) ||
      sqlite3_db_config(run.spy, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1,
                        (int *)NULL) ||
      sqlite3_prepare_v2(run.spy, "SELECT zxid FROM zkembed_meta", -1,
                         &run.spying, NULL)) {
    abort();
  }
}

static void spy_end(void) {
  sqlite3_finalize(run.spying);
  sqlite3_close(run.spy);
  run.spy = NULL;
}

/* A change that will be durable must not be seen while it is not, nor while
 * the log that has it could lose its name. */
static void spy_look(void) {
  if (!run.spy || !run.flight || !run.durable) return;
  bool seen = sqlite3_step(run.spying) == SQLITE_ROW &&
              sqlite3_column_int64(run.spying, 0) >= run.next.zxid;
  sqlite3_reset(run.spying);
  add(&tally->looks, 1);
  int writes = power_unsynced("a.db-wal"), names = power_unsynced_names();
  if (seen && (writes || names)) {
    found(POWERLOSS_EARLY,
          "seen with %d writes to the log and %d names not synced", writes,
          names);
  }
}

/* ---- sessions ---- */

static void ignore(zke *z, int type, int state, const char *path, void *c) {
  (void)z, (void)type, (void)state, (void)path, (void)c;
}

/* Open the database on the simulated disk, as the plan says. */
static int open_store(zke **out) {
  zke_options o = {.size = sizeof o,
                   .vfs = "unix-power",
                   .os = &run.os,
                   .identity = "power",
                   .durability = run.plan->durability,
                   .cache_kib = run.plan->cache_kib,
                   .container_ms = LONG};
  return zke_open(run.database, &o, out);
}

/* The id of a new session is the zxid that made it. */
static void session_add(zke *z) {
  session *s = &run.session[run.sessions++];
  *s = (session){z, zke_session_id(z)};
  if (s->id <= run.given) {
    found(POWERLOSS_REISSUE, "session 0x%llx, but 0x%llx was known",
          (unsigned long long)s->id, (unsigned long long)run.given);
  }
  run.now.zxid = run.given = s->id;
}

static session *any_session(void) {
  return &run.session[chance((uint64_t)run.sessions)];
}

static void session_close(session *s) {
  tree_end_session(flight_plan(), s->id);
  flight_begin(false);
  int rc = zke_close(s->z);
  flight_end(rc, "close");
  *s = run.session[--run.sessions];
}

/* ---- operations ---- */

static char value[MULTI][VALUE];

/* A new value: mostly small, now and then none, which is not an empty one, or
 * one that takes some pages. */
static int make_value(int slot) {
  static const int limit[] = {50,  50,  50,  50,  50,  50,   50,   50,
                              300, 300, 300, 300, 300, 3000, 9000, VALUE};
  int len = (int)chance((uint64_t)limit[chance(16)]);
  if (len == 1) return -1;
  for (int i = 0; i < len; i++) value[slot][i] = (char)chance(256);
  return len;
}

static znode *any_node(tree *t) { return &t->at[chance((uint64_t)t->count)]; }

/* One to put a child under: not an ephemeral, not too deep, and no TTL node,
 * which would go as soon as its child has. */
static znode *any_parent(tree *t) {
  znode *n;
  do n = any_node(t);
  while (n->owner || n->kind == TTL || strlen(n->path) > 24);
  return n;
}

static bool is_fixed(const znode *n) {
  return !n->path[1] || strcmp(n->path, "/q0") == 0 ||
         strcmp(n->path, "/q1") == 0;
}

/* Plan a create, set, delete or check in t.  Returns what it will give; where
 * it is to be refused t is as before. */
static int plan_create(tree *t, zke_op *op, int slot, char *path, int64_t id) {
  static const int modes[] = {ZKE_PERSISTENT, ZKE_PERSISTENT,
                              ZKE_EPHEMERAL,  ZKE_EPHEMERAL,
                              ZKE_CONTAINER,  ZKE_PERSISTENT_WITH_TTL};
  const znode *parent = any_parent(t);
  char name[8];
  int len = make_value(slot), mode = modes[chance(6)];
  bool ttl = mode == ZKE_PERSISTENT_WITH_TTL;
  snprintf(name, sizeof name, "n%d", (int)chance(12));
  join(path, parent->path, name);
  zke_op_create_ttl(op, path, value[slot], len, ZKE_OPEN_ACL, mode,
                    ttl ? LONG : 0);
  if (tree_find(t, path)) return ZKE_NODEEXISTS;
  if (t->count > NODES - 20) return SKIP;
  znode *n =
      tree_create(t, path, mode == ZKE_EPHEMERAL ? id : 0, value[slot], len);
  n->kind = mode == ZKE_CONTAINER ? CONTAINER : PLAIN;
  if (ttl) n->kind = TTL;
  return ZKE_OK;
}

/* Plan a set of any node, sometimes with a wrong version; what it should
 * return. */
static int plan_set(tree *t, zke_op *op, int slot, char *path) {
  znode *n = any_node(t);
  int len = make_value(slot), version = -1;
  if (chance(3) == 0) version = n->version + (chance(4) == 0);
  snprintf(path, PATH, "%s", n->path);
  zke_op_set(op, path, value[slot], len, version);
  if (version > n->version) return ZKE_BADVERSION;
  tree_set(t, n, value[slot], len);
  return ZKE_OK;
}

/* Plan the delete of a node that no other operation needs; what it should
 * return. */
static int plan_delete(tree *t, zke_op *op, char *path) {
  znode *n = any_node(t);
  for (int i = 0; i < 20 && is_fixed(n); i++) n = any_node(t);
  snprintf(path, PATH, "%s", is_fixed(n) ? "/none" : n->path);
  zke_op_delete(op, path, -1);
  if (is_fixed(n)) return ZKE_NONODE;
  if (tree_children(t, path, false) + tree_children(t, path, true))
    return ZKE_NOTEMPTY;
  tree_delete(t, n);
  return ZKE_OK;
}

static int plan_check(tree *t, zke_op *op, char *path) {
  const znode *n = any_node(t);
  bool wrong = chance(4) == 0;
  snprintf(path, PATH, "%s", n->path);
  zke_op_check(op, path, wrong ? n->version + 1 : n->version);
  return wrong ? ZKE_BADVERSION : ZKE_OK;
}

/* Does the operation change what must survive? */
static bool is_durable(const tree *before, const tree *after) {
  for (int side = 0; side < 2; side++) {
    tree *a = (tree *)(uintptr_t)(side ? before : after);
    tree *b = (tree *)(uintptr_t)(side ? after : before);
    for (int i = 0; i < a->count; i++) {
      const znode *n = &a->at[i], *m = tree_find(b, n->path);
      if (n->owner && (!m || m->owner)) continue;
      if (!m || m->czxid != n->czxid || m->mzxid != n->mzxid) return true;
    }
  }
  return false;
}

/* An operation as a call of its own. */
static int fly_alone(zke *z, const zke_op *op, zke_stat *stat) {
  if (op->ttl_ms)
    return zke_create_ttl(z, op->path, op->data, op->len, op->acls, op->mode,
                          op->ttl_ms, NULL, stat);
  if (op->type == ZKE_OP_CREATE)
    return zke_create(z, op->path, op->data, op->len, op->acls, op->mode, NULL,
                      stat);
  if (op->type == ZKE_OP_SET)
    return zke_set(z, op->path, op->data, op->len, op->version, stat);
  return zke_delete(z, op->path, op->version);
}

/* Have the whole plan done by a call, and hold it against what was planned. */
static void fly(zke *z, const zke_op *op, int count, int expected) {
  zke_op_result result[MULTI] = {{0}};
  int rc;
  if (expected == ZKE_OK) flight_begin(is_durable(&run.now, &run.next));
  if (count > 1)
    rc = zke_multi(z, op, count, result);
  else
    rc = fly_alone(z, op, &result[0].stat);
  if (expected != ZKE_OK) {
    demand(rc, expected, "a change that is to be refused");
  } else {
    flight_end(rc, "a change");
    if (result[0].stat.mzxid > run.now.zxid)
      demand(ZKE_DATAINCONSISTENCY, ZKE_OK, "the zxid");
  }
  zke_results_clear(result, MULTI);
}

static int plan_one(tree *t, zke_op *op, int slot, char *path, int64_t id) {
  uint64_t what = chance(10);
  if (what < 4) return plan_create(t, op, slot, path, id);
  if (what < 8) return plan_set(t, op, slot, path);
  return plan_delete(t, op, path);
}

static void act_change(void) {
  char path[PATH];
  zke_op op;
  const session *s = any_session();
  int expected = plan_one(flight_plan(), &op, 0, path, s->id);
  if (expected != SKIP) fly(s->z, &op, 1, expected);
}

/* A multi of several planned operations, which fails as a whole if one of them
 * does. */
static void act_multi(void) {
  char path[MULTI][PATH];
  zke_op op[MULTI];
  const session *s = any_session();
  int count = 2 + (int)chance(MULTI - 1), expected = ZKE_OK;
  tree *t = flight_plan();
  for (int i = 0; i < count && expected == ZKE_OK; i++) {
    bool check = i > 0 && chance(5) == 0;
    expected = check ? plan_check(t, &op[i], path[i])
                     : plan_one(t, &op[i], i, path[i], s->id);
    if (expected != ZKE_OK) count = i + 1;
  }
  if (expected != SKIP) fly(s->z, op, count, expected);
}

/* A batch in the making: what each operation is to return, and the batch. */
typedef struct group {
  char path[MULTI][PATH];
  zke_op op[MULTI];
  int expected[MULTI], count, result;
} group;

static int fly_together(zke *z, void *context) {
  const group *g = context;
  for (int i = 0; i < g->count; i++)
    demand(fly_alone(z, &g->op[i], NULL), g->expected[i], "in a batch");
  return g->result;
}

/* Several operations in a batch: each that is not refused has a zxid, and all
 * of them are one state. */
static void act_batch(void) {
  static group g;
  const session *s = any_session();
  int wanted = 2 + (int)chance(MULTI - 1);
  tree *t = flight_plan();
  g.result = chance(5) ? ZKE_OK : ZKE_CANCELLED;
  for (g.count = 0; g.count < wanted; g.count++) {
    int i = g.count;
    g.expected[i] = plan_one(t, &g.op[i], i, g.path[i], s->id);
    if (g.expected[i] == SKIP) break;
    if (g.expected[i] == ZKE_OK) t->zxid++;
  }
  t->zxid--; /* of the one that has not come */
  if (t->zxid == run.now.zxid) return;
  if (g.result != ZKE_OK) {
    demand(zke_batch(s->z, fly_together, &g), g.result, "an undone batch");
    return;
  }
  flight_begin(is_durable(&run.now, &run.next));
  flight_end(zke_batch(s->z, fly_together, &g), "a batch");
}

/* A create with a number below one of the queues: it is greater than all that
 * were told before. */
static void act_sequence(void) {
  int q = (int)chance(QUEUES), len = make_value(0);
  uint64_t mode = chance(10);
  const session *s = any_session();
  char path[PATH], *made = NULL;
  const char *prefix = q ? "/q1/s-" : "/q0/s-";
  tree *t = flight_plan();
  const znode *queue = tree_find(t, q ? "/q1" : "/q0");
  if (!queue || t->count > NODES - 20) return;
  int number = queue->creates, rc;
  snprintf(path, sizeof path, "%.6s%010d", prefix, number);
  tree_create(t, path, mode < 3 ? s->id : 0, value[0], len)->kind =
      mode == 9 ? TTL : PLAIN;
  flight_begin(mode >= 3);
  if (mode == 9) {
    rc = zke_create_ttl(s->z, prefix, value[0], len, ZKE_OPEN_ACL,
                        ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, LONG, &made, NULL);
  } else {
    rc = zke_create(
        s->z, prefix, value[0], len, ZKE_OPEN_ACL,
        mode < 3 ? ZKE_EPHEMERAL_SEQUENTIAL : ZKE_PERSISTENT_SEQUENTIAL, &made,
        NULL);
  }
  flight_end(rc, "a sequential create");
  if (strcmp(made, path) != 0) demand(ZKE_NODEEXISTS, ZKE_OK, "the number");
  zke_free(made);
  if (mode < 3) return;
  if (number <= run.number[q])
    found(POWERLOSS_REISSUE, "%s after number %d", path, run.number[q]);
  run.number[q] = number;
}

/* Another list for a persistent node. */
static void act_acl(void) {
  static const zke_acl two[] = {{ZKE_PERM_ALL, "world", "anyone"},
                                {ZKE_PERM_READ, "digest", "a:b"}};
  static const zke_acls lists[] = {{1, two}, {2, two}};
  znode *n = any_node(flight_plan());
  if (n->owner) return;
  n->aversion++;
  n->acls = 1 + (int)chance(2);
  flight_begin(true);
  flight_end(
      zke_set_acl(any_session()->z, n->path, -1, &lists[n->acls - 1], NULL),
      "acl");
}

static void act_open(void) {
  zke *z = NULL;
  if (run.sessions == SESSIONS) return;
  bool store = chance(2) == 0;
  demand(store ? open_store(&z) : zke_open_session(any_session()->z, NULL, &z),
         ZKE_OK, "a further session");
  session_add(z);
}

static void act_close(void) {
  if (run.sessions > 1) session_close(any_session());
}

/* The end of a session by another's word. */
static void act_expire(void) {
  if (run.sessions < 2) return;
  session *s = any_session();
  tree_end_session(flight_plan(), s->id);
  flight_begin(false);
  flight_end(zke_expire(any_session()->z, s->id), "expire");
  demand(zke_close(s->z), ZKE_OK, "closing an expired session");
  *s = run.session[--run.sessions];
}

/* Everybody leaves, so that the log is emptied, and somebody comes again. */
static void act_restart(void) {
  zke *z = NULL;
  while (run.sessions) session_close(any_session());
  demand(open_store(&z), ZKE_OK, "reopening");
  session_add(z);
}

/* ---- containers and TTL nodes ---- */

/* The change since which the node only waits for its time. */
static int64_t waits_since(const znode *n) {
  return n->kind == CONTAINER ? n->pzxid : n->mzxid;
}

/* By parent, then by name. */
static int compare_paths(const char *a, const char *b) {
  size_t to_a = (size_t)(strrchr(a, '/') - a);
  size_t to_b = (size_t)(strrchr(b, '/') - b);
  int order = memcmp(a, b, to_a < to_b ? to_a : to_b);
  if (!order) order = (to_a > to_b) - (to_a < to_b);
  return order ? order : strcmp(a + to_a, b + to_b);
}

/* The order in which a sweep removes nodes of one kind. */
static int compare_due(const void *a, const void *b) {
  const znode *n = a, *m = b;
  int64_t one = waits_since(n), other = waits_since(m);
  return one != other ? (one > other) - (one < other)
                      : compare_paths(n->path, m->path);
}

/* Plan the removal of all nodes of a kind that wait: one transaction, in which
 * each has a zxid of its own, and which is not synced.  A power cut may bring
 * them back, all of them, unless something durable came after (P8). */
static void plan_removals(enum kind kind) {
  static znode due[NODES];
  int count = 0;
  for (int i = 0; i < run.next.count; i++) {
    const znode *n = &run.next.at[i];
    bool parent = tree_children(&run.next, n->path, false) ||
                  tree_children(&run.next, n->path, true);
    if (n->kind == kind && !parent && (kind == TTL || n->creates))
      due[count++] = *n;
  }
  if (!count) return;
  qsort(due, (size_t)count, sizeof due[0], compare_due);
  if (run.flight) history_add(run.flight);
  for (int i = 0; i < count; i++) {
    run.next.zxid++;
    tree_delete(&run.next, tree_find(&run.next, due[i].path));
  }
  flight_begin(false);
  add(&tally->swept, count);
}

/* Time passes, and the next call removes what has waited for it. */
static void act_sweep(void) {
  if (run.depth) return; /* kinds are not known */
  run.next = run.now;
  plan_removals(CONTAINER);
  plan_removals(TTL);
  if (!run.flight) return;
  run.clock += 5000;
  run.leaps += LONG;
  flight_end(zke_dispatch(any_session()->z, NULL), "a sweep");
  compare_now();
}

/* Nothing changes but the file. */
static void act_compact(void) {
  demand(zke_compact(any_session()->z, ZKE_FOREVER), ZKE_OK, "a compaction");
}

/* A watch of any kind on any node. */
static void act_watch(void) {
  zke *z = any_session()->z;
  const znode *n = any_node(&run.now);
  uint64_t what = chance(4);
  int rc;
  if (what == 0)
    rc = zke_exists(z, n->path, ignore, NULL, NULL);
  else if (what == 1)
    rc = zke_get(z, n->path, ignore, NULL, NULL, NULL, NULL);
  else if (what == 2)
    rc = zke_children(z, n->path, ignore, NULL, NULL, NULL);
  else
    rc = zke_add_watch(z, n->path, (int)chance(2), ignore, NULL);
  demand(rc, ZKE_OK, "a watch");
}

static void act_dispatch(void) {
  demand(zke_dispatch(any_session()->z, NULL), ZKE_OK, "dispatch");
}

/* One step of the run, whichever. */
static void act(void) {
  static void (*const acts[])(void) = {
      act_change, act_change,   act_change,   act_change,   act_change,
      act_change, act_change,   act_multi,    act_multi,    act_multi,
      act_batch,  act_batch,    act_sequence, act_sequence, act_watch,
      act_watch,  act_dispatch, act_open,     act_close,    act_acl,
      act_expire, act_restart,  act_sweep,    act_compact};
  uint64_t which = chance(sizeof acts / sizeof acts[0]);
  if (acts[which] == act_restart && chance(4)) which = 0;
  if (run.depth == 0) add(&tally->operations, 1);
  acts[which]();
}

/* The parents of the numbered nodes. */
static void make_queues(void) {
  for (int q = 0; q < QUEUES; q++) {
    const char *path = q ? "/q1" : "/q0";
    tree_create(flight_plan(), path, 0, "", 0);
    flight_begin(true);
    flight_end(zke_create(run.session[0].z, path, "", 0, ZKE_OPEN_ACL,
                          ZKE_PERSISTENT, NULL, NULL),
               "a queue");
  }
}

/* ---- looking at a disk ---- */

static char *path_of(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static char *path_of(const char *format, ...) {
  static char path[PATH_MAX + 80];
  va_list ap;
  va_start(ap, format);
  vsnprintf(path, sizeof path, format, ap);
  va_end(ap);
  return path;
}

static void read_start(const char *path, char *out, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && read(fd, out, size) < 0) abort();
  if (fd >= 0) close(fd);
}

static void make_file(const char *path, const char *data, size_t size) {
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
  close(fd);
}

/* The -shm is memory, but some of it may have reached the disk: it is gone, as
 * it was, or rubbish. */
static void image_shared_memory(const char *directory) {
  static char shm[32768];
  uint64_t what = chance(3);
  if (what == 0) return;
  read_start(path_of("%s-shm", run.database), shm, sizeof shm);
  for (size_t i = 0; what == 1 && i < sizeof shm; i++) {
    shm[i] = (char)chance(256);
  }
  make_file(path_of("%s/a.db-shm", directory), shm, sizeof shm);
}

/* The side directory: nothing in it is ever synced.  It is gone, or the
 * liveness file in it is empty, zeros, or as it was. */
static void image_side(const char *directory) {
  char stamps[STAMPS] = {0};
  uint64_t what = run.plan->same_boot ? 2 : chance(4);
  if (what == 0) {
    power_lose_side();
    return;
  }
  int64_t little = 1; /* of how far the zxids had come */
  if (run.plan->same_boot) memcpy(stamps + 16, &little, sizeof little);
  if (what == 3)
    read_start(path_of("%s-zke/live", run.database), stamps, STAMPS);
  mkdir(path_of("%s/a.db-zke", directory), 0700);
  make_file(path_of("%s/a.db-zke/live", directory), stamps,
            what == 1 ? 0 : STAMPS);
  for (int i = 0; i < run.sessions; i++) {
    const char *fifo = path_of("%s/a.db-zke/%016llx", directory,
                               (unsigned long long)run.session[i].id);
    if (chance(2)) mkfifo(fifo, 0600);
  }
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

static void remove_directory(const char *directory) {
  nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void complain(void *context, const char *sentence) {
  snprintf(context, LINE, "%s", sentence);
}

/* Is the database sound? */
static void check_now(zke *z) {
  char sentence[LINE] = "";
  int rc = zke_check(z, complain, sentence);
  if (rc != ZKE_OK) {
    found(POWERLOSS_UNSOUND, "zke_check: %s: %s", zke_error_name(rc), sentence);
  }
}

/* And is nothing left of the sessions of before? */
static void look_around(zke *z) {
  zke_session_list *sessions;
  zke_watch_list *watches;
  check_now(z);
  demand(zke_sessions(z, &sessions), ZKE_OK, "sessions");
  demand(zke_watches(z, &watches), ZKE_OK, "watches");
  if (sessions->count != 1 || watches->count) {
    found(POWERLOSS_UNSOUND, "%d sessions and %d watches of before",
          sessions->count - 1, watches->count);
  }
  zke_free(sessions);
  zke_free(watches);
}

static bool any_ephemeral(const tree *t) {
  for (int i = 0; i < t->count; i++) {
    if (t->at[i].owner) return true;
  }
  return false;
}

/* Which state is this?  -1: none that ever was. */
static int history_find(const char *text) {
  if (run.flight && strcmp(run.flight, text) == 0) return run.states;
  for (int i = run.states - 1; i >= 0; i--) {
    if (strcmp(run.state[i], text) == 0) return i;
  }
  return -1;
}

/* Is the tree that was found one that may be? */
static void look_at_tree(zke *z) {
  read_tree(z, &run.now, run.given | UINT32_MAX); /* a new epoch's */
  char *text = tree_describe(&run.now);
  int at = history_find(text);
  const char *last = run.state[run.safe];
  if (any_ephemeral(&run.now)) {
    found(POWERLOSS_UNSOUND, "an ephemeral of before");
  } else if (at < 0) {
    found(POWERLOSS_DISORDER, "no state of %d to %d", run.safe, run.states);
    show_difference(last, text);
  } else if (at < run.safe) {
    found(POWERLOSS_LOST, "state %d, acknowledged was %d", at, run.safe);
    show_difference(last, text);
  }
  /* From here on this is what must last. */
  history_clear();
  free(run.flight);
  run.flight = NULL;
  free(text);
  for (int i = 0; i < run.now.count; i++) run.now.at[i].pzxid_moot = false;
  history_add(tree_describe(&run.now));
}

/* All sessions end: the database file alone must be complete. */
static void finish(void) {
  struct stat s;
  compare_now();
  check_now(run.session[0].z);
  while (run.sessions) session_close(&run.session[run.sessions - 1]);
  if (stat(path_of("%s-wal", run.database), &s) == 0 && s.st_size) {
    found(POWERLOSS_UNSOUND, "%lld bytes of log at the end",
          (long long)s.st_size);
  }
}

/* Open what the cut has left, look at it, and go on with it. */
static void recover(void) {
  zke *z = NULL;
  run.boot++;
  run.sessions = 0;
  int rc = open_store(&z);
  if (rc != ZKE_OK) {
    found(POWERLOSS_UNSOUND, "does not open: %s: %s", zke_error_name(rc),
          zke_errmsg());
    return;
  }
  look_around(z);
  look_at_tree(z);
  session_add(z);
  for (int i = 0; i < AFTER; i++) {
    act_sequence();
    act();
  }
  finish();
}

/* ---- cuts ---- */

static void at_event(power_event event);

/* Work in a directory, in which everything is durable. */
static void enter_directory(const char *directory) {
  strcpy(run.database, path_of("%.4000s/a.db", directory));
  power_begin(directory, at_event);
}

static void reap(void) {
  int status = 0;
  while (waitpid(-1, &status, 0) < 0) {
    if (errno != EINTR) abort();
  }
  run.looking--;
  if (status) found(POWERLOSS_DIED, "wait status 0x%x", (unsigned)status);
}

static void count_loss(const power_loss *loss) {
  add(&tally->images, 1);
  add(&tally->second, run.depth > 1);
  add(&tally->kept, loss->kept);
  add(&tally->lost, loss->lost);
  add(&tally->torn, loss->torn);
  add(&tally->reordered, loss->reordered);
}

/* All but two of a cut's images are of the plain styles. */
static power_style style_of(int image) {
  bool plain = run.depth == 1 && image < run.plan->images - 2;
  return plain ? (power_style)image : (power_style)chance(POWER_STYLES);
}

/* The child's work.  Some let the power fail again at a random event. */
static void look(int image) {
  power_loss loss = {0};
  char *directory = strdup(path_of("%s/%d", run.base, (int)getpid()));
  if (!directory || mkdir(directory, 0700) != 0) abort();
  alarm(PATIENCE);
  run.random = run.plan->seed * 1000003 + (uint64_t)(run.event * 31 + image);
  run.image = image;
  run.looking = 0;
  run.leaps = 0;
  run.spy = NULL;
  run.cut[run.depth++] = run.event;
  power_image(directory, style_of(image), &run.random, &loss);
  image_shared_memory(directory);
  image_side(directory);
  count_loss(&loss);
  run.event = 0;
  run.again_at = run.depth == 1 && chance(4) == 0 ? 1 + (long)chance(120) : 0;
  enter_directory(directory);
  recover();
  while (run.looking) reap();
  remove_directory(directory);
  free(directory);
}

/* On a thread of its own: the child's first one may be inside a batch. */
static void *look_apart(void *arg) {
  look(*(const int *)arg);
  return NULL;
}

/* The power fails here: several disks that this can leave are made, and each is
 * looked at by a child. */
static void cut(void) {
  int images = run.depth ? 1 : run.plan->images;
  add(&tally->cuts, run.depth == 0);
  fflush(stdout);
  for (int image = 0; image < images; image++) {
    while (run.looking >= CHILDREN) reap();
    pid_t pid = _Fork(); /* in the middle of a call: no atfork handlers */
    if (pid < 0) abort();
    if (pid == 0) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, look_apart, &image)) abort();
      pthread_join(thread, NULL);
      fflush(stdout);
      _exit(0);
    }
    run.looking++;
  }
}

static bool is_due(void) {
  const powerloss_plan *p = run.plan;
  if (run.depth) return run.event == run.again_at;
  if (p->only_cut) return run.event == p->only_cut;
  return p->every && (run.event + (long)p->seed) % p->every == 0;
}

static void at_event(power_event event) {
  spy_look();
  if (event == POWER_PUBLISH) return;
  run.event++;
  if (run.depth == 0) add(&tally->events, 1);
  if (is_due()) cut();
}

/* ---- a run ---- */

/* The first state: what a new database has. */
static void begin_history(void) {
  zke *z = NULL;
  demand(zke_open(":memory:", NULL, &z), ZKE_OK, "in memory");
  read_tree(z, &run.now, 0);
  zke_close(z);
  history_add(tree_describe(&run.now));
}

/* The life of the database until the run's end: it opens, acts, and closes. */
static void live(void) {
  zke *z = NULL;
  bool names = run.plan->lie && strcmp(run.plan->lie, ".") == 0;
  if (names) power_lie(run.plan->lie);
  demand(open_store(&z), ZKE_OK, "open");
  session_add(z);
  spy_begin();
  make_queues();
  if (run.plan->lie) power_lie(run.plan->lie);
  for (int i = 0; i < run.plan->operations; i++) {
    act();
    if (i % 64 == 0) compare_now();
  }
  finish();
  spy_end();
}

static void tally_begin(void) {
  if (tally) return;
  tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (tally == MAP_FAILED) abort();
}

const powerloss_tally *powerloss_run(const char *directory,
                                     const powerloss_plan *plan) {
  tally_begin();
  memset(&run, 0, sizeof run);
  run.plan = plan;
  run.random = plan->seed;
  for (int q = 0; q < QUEUES; q++) run.number[q] = -1;
  snprintf(run.base, sizeof run.base, "%s", directory);
  char *work = strdup(path_of("%s/work", directory));
  if (!work || mkdir(work, 0700) != 0) abort();
  os_prepare();
  enter_directory(work);
  begin_history();
  live();
  while (run.looking) reap();
  history_clear();
  free(run.state);
  remove_directory(work);
  free(work);
  return tally;
}

long powerloss_violations(const powerloss_tally *t) {
  long sum = 0;
  for (int i = 0; i < POWERLOSS_KINDS; i++) sum += t->violations[i];
  return sum;
}

void powerloss_print(const powerloss_tally *t) {
  printf(
      "%ld operations (%ld acknowledged as durable), %ld nodes swept, %ld "
      "events on the disk, %ld looks at a commit under way\n",
      t->operations, t->durable, t->swept, t->events, t->looks);
  printf("%ld cuts, %ld disks looked at, %ld of them after a second cut\n",
         t->cuts, t->images, t->second);
  printf("changes not synced: %ld kept, %ld lost, %ld torn, %ld reordered\n",
         t->kept, t->lost, t->torn, t->reordered);
  printf("violations: %ld\n", powerloss_violations(t));
  fflush(stdout);
}
