/* test_tree.c - the tree in one process: what test/semantics/tree.txt cannot
 * say.  Data of every size, numbers that wrap, missing handles and outputs,
 * what the results are called, and who owns memory.
 *
 * Ends with a random walk beside a small model of the tree, which compares
 * every result, Stat and list of children.
 */
#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/functions.h"
#include "test/test.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static const zke_acls no_acls = {0, NULL};

static zke *memory(void) { return test_open(":memory:"); }

static int create(zke *z, const char *path, int mode) {
  return zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, NULL, NULL);
}

static int create_ttl(zke *z, const char *path, int mode, int64_t ttl_ms) {
  return zke_create_ttl(z, path, "", 0, ZKE_OPEN_ACL, mode, ttl_ms, NULL, NULL);
}

static void make(zke *z, const char *path) {
  ck_ok(create(z, path, ZKE_PERSISTENT));
}

static int drop(zke *z, const char *path) { return zke_delete(z, path, -1); }

static int exists(zke *z, const char *path) {
  return zke_exists(z, path, NULL, NULL, NULL);
}

/* A Stat as text, which has none of the struct's gaps. */
static void stat_text(zke_stat s, char *text, size_t size) {
  snprintf(
      text, size, "c%lld m%lld p%lld ct%lld mt%lld v%d cv%d av%d o%llx l%d n%d",
      (long long)s.czxid, (long long)s.mzxid, (long long)s.pzxid,
      (long long)s.ctime, (long long)s.mtime, s.version, s.cversion, s.aversion,
      (unsigned long long)s.ephemeralOwner, s.dataLength, s.numChildren);
}

/* Assert a node's data; len -1 for NULL data. */
static void expect_data(zke *z, const char *path, const void *data, int len) {
  char *got = NULL;
  int got_len = -2;
  zke_stat stat;
  ck_ok(zke_get(z, path, NULL, NULL, &got, &got_len, &stat));
  ck_assert_int_eq(got_len, len);
  ck_assert_int_eq(stat.dataLength, len < 0 ? 0 : len);
  if (len < 0) {
    ck_assert_ptr_null(got);
  } else {
    ck_assert_ptr_nonnull(got);
    ck_assert_int_eq(memcmp(got, data, (size_t)len), 0);
    ck_assert_int_eq(got[len], '\0');
  }
  zke_free(got);
}

/* ---- data ---- */

/* 3: data is any bytes, and comes back followed by a NUL. */
TEST(data_is_any_bytes) {
  char all[256];
  for (int i = 0; i < 256; i++) all[i] = (char)i;
  zke *z = memory();
  ck_ok(zke_create(z, "/a", all, 256, ZKE_OPEN_ACL, 0, NULL, NULL));
  expect_data(z, "/a", all, 256);
  ck_ok(zke_set(z, "/a", all, 1, -1, NULL));
  expect_data(z, "/a", "", 1);
  ck_ok(zke_close(z));
}

/* design.md 4: small and large values are kept apart inside; every size on
 * the way up and down must survive. */
TEST(data_of_every_size) {
  static const int sizes[] = {0,   1,    150,  199,   200,    201, 256,
                              511, 4096, 5000, 70000, 500000, 100, -1,
                              300, 0,    8000, 8001,  7,      -1};
  char *data = malloc(500000);
  ck_assert_ptr_nonnull(data);
  zke *z = memory();
  make(z, "/a");
  for (int i = 0; i < COUNT(sizes); i++) {
    memset(data, 'a' + i, 500000);
    ck_ok(zke_set(z, "/a", data, sizes[i], i, NULL));
    expect_data(z, "/a", data, sizes[i]);
    ck_ok(zke_create(z, "/b", data, sizes[i], ZKE_OPEN_ACL, 0, NULL, NULL));
    expect_data(z, "/b", data, sizes[i]);
    ck_ok(drop(z, "/b"));
  }
  ck_ok(zke_check(z, NULL, NULL));
  free(data);
  ck_ok(zke_close(z));
}

/* "Inputs are copied before a call returns." */
TEST(inputs_are_copied) {
  char path[] = "/a", data[] = "abc", scheme[] = "world", id[] = "anyone";
  zke_acl entry = {ZKE_PERM_ALL, scheme, id};
  zke_acls acls = {1, &entry};
  zke *z = memory();
  ck_ok(zke_create(z, path, data, 3, &acls, 0, NULL, NULL));
  memset(path, 'x', sizeof path - 1);
  memset(data, 'x', sizeof data - 1);
  memset(scheme, 'x', sizeof scheme - 1);
  memset(id, 'x', sizeof id - 1);
  expect_data(z, "/a", "abc", 3);
  make(z, "/a/b");
  ck_ok(zke_close(z));
}

/* ---- a database changed from outside ---- */

/* Make a database with /c and /c/old, change it by SQL, open it again. */
static zke *doctored(const char *sql) {
  const char *name = test_path("doctored.db");
  zke *z = test_open(name);
  make(z, "/c");
  make(z, "/c/old");
  ck_ok(drop(z, "/c/old"));
  ck_ok(zke_close(z));
  sqlite3 *db = NULL;
  char *error = NULL;
  ck_assert_int_eq(sqlite3_open(name, &db), SQLITE_OK);
  int rc = sqlite3_exec(db, sql, NULL, NULL, &error);
  ck_assert_msg(rc == SQLITE_OK, "%s: %s", sql, error);
  ck_assert_int_eq(sqlite3_changes(db), 1);
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
  return test_open(name);
}

#define DOCTOR(change) \
  "UPDATE zkembed_node SET " change " WHERE parent='/' AND name='c'"

/* Set /c and assert the version that came out. */
static void set_to(zke *z, int expected_version, int version) {
  zke_stat s;
  ck_ok(zke_set(z, "/c", "", 0, expected_version, &s));
  ck_assert_int_eq(s.version, version);
  ck_assert_int_eq(test_stat(z, "/c").version, version);
}

/* 12 #32: behind the largest version comes the smallest. */
TEST(version_wraps) {
  zke *z = doctored(DOCTOR("version = 2147483647"));
  ck_assert_int_eq(test_stat(z, "/c").version, INT_MAX);
  ck_rc(zke_set(z, "/c", "", 0, INT_MIN, NULL), ZKE_BADVERSION);
  set_to(z, INT_MAX, INT_MIN);
  ck_rc(zke_set(z, "/c", "", 0, INT_MAX, NULL), ZKE_BADVERSION);
  set_to(z, INT_MIN, INT_MIN + 1);
  set_to(z, -1, INT_MIN + 2);
  ck_rc(zke_delete(z, "/c", INT_MIN), ZKE_BADVERSION);
  ck_ok(zke_delete(z, "/c", INT_MIN + 2));
  ck_ok(zke_close(z));
}

/* No version is -1, which means any: what was read can be asked for. */
TEST(version_leaves_minus_one_out) {
  zke *z = doctored(DOCTOR("version = -3"));
  set_to(z, -3, -2);
  ck_rc(zke_set(z, "/c", "", 0, -3, NULL), ZKE_BADVERSION);
  set_to(z, -2, 0);
  ck_rc(zke_delete(z, "/c", -2), ZKE_BADVERSION);
  set_to(z, 0, 1);
  ck_ok(zke_close(z));
}

/* Set /c's ACL and assert the aversion that came out. */
static void set_acl_to(zke *z, int expected_version, int aversion) {
  ck_ok(zke_set_acl(z, "/c", expected_version, ZKE_OPEN_ACL, NULL));
  ck_assert_int_eq(test_stat(z, "/c").aversion, aversion);
}

/* 12 #32: aversion wraps likewise. */
TEST(aversion_wraps) {
  zke *z = doctored(DOCTOR("aversion = 2147483647"));
  set_acl_to(z, INT_MAX, INT_MIN);
  ck_rc(zke_set_acl(z, "/c", INT_MAX, ZKE_OPEN_ACL, NULL), ZKE_BADVERSION);
  set_acl_to(z, INT_MIN, INT_MIN + 1);
  ck_ok(zke_close(z));
}

/* And so does aversion. */
TEST(aversion_leaves_minus_one_out) {
  zke *z = doctored(DOCTOR("aversion = -2"));
  set_acl_to(z, -2, 0);
  ck_rc(zke_set_acl(z, "/c", -2, ZKE_OPEN_ACL, NULL), ZKE_BADVERSION);
  ck_ok(zke_close(z));
}

/* ---- sessions ---- */

/* 7: the sessions of one tree have different ids. */
TEST(session_ids_differ) {
  zke *z = memory();
  int64_t last = zke_session_id(z);
  for (int i = 0; i < 10; i++) {
    zke *other = test_session(z, NULL);
    ck_assert_int_gt(zke_session_id(other), last);
    last = zke_session_id(other);
    ck_ok(zke_close(other));
  }
  ck_ok(zke_close(z));
}

/* zkembed.h: a tree in memory is private, and lives as long as any session
 * on it. */
TEST(memory_lives_with_its_last_session) {
  zke *a = memory(), *other = memory(), *b = test_session(a, NULL);
  make(a, "/a");
  ck_rc(exists(other, "/a"), ZKE_NONODE);
  ck_ok(zke_close(a));
  ck_ok(exists(b, "/a"));
  zke *c = test_session(b, NULL);
  ck_ok(zke_close(b));
  ck_ok(exists(c, "/a"));
  ck_ok(zke_close(c));
  ck_ok(zke_close(other));
}

/* ---- bad input: P11 ---- */

/* A NULL handle is ZKE_BADARGUMENTS, and no output is touched; but what opens
 * a handle gives NULL. */
TEST(null_handle) {
  const char *others =
      " zke_open_session zke_attach zke_close zke_state zke_create_ttl "
      "zke_sql_commit zke_sql_rollback ";
  for (const test_function *f = test_functions; f->name; f++) {
    if (test_is_among(f, others)) continue;
    memset(some_bytes, 7, sizeof some_bytes);
    int rc = f->call(NULL);
    ck_assert_msg(rc == ZKE_BADARGUMENTS, "%s: %d", f->name, rc);
    for (size_t i = 0; i < sizeof some_bytes; i++)
      ck_assert_msg(some_bytes[i] == 7, "%s: byte %zu", f->name, i);
  }
  ck_rc(create_ttl(NULL, "/a", 5, 1), ZKE_BADARGUMENTS);
  ck_rc(zke_sql_commit(NULL, NULL), ZKE_MISUSE);
  ck_rc(zke_sql_rollback(NULL, NULL), ZKE_MISUSE);
  ck_ok(zke_close(NULL));
  zke_free(NULL);
  ck_assert_int_eq(zke_now(NULL), 0);
  ck_assert_int_eq(zke_session_id(NULL), 0);
}

/* Opening without what it needs. */
TEST(null_arguments_of_open) {
  const unsigned char password[16] = {0};
  zke *z = memory(), *out = z;
  ck_rc(zke_open(NULL, NULL, &out), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(out);
  out = z;
  ck_rc(zke_open_session(NULL, NULL, &out), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(out);
  out = z;
  ck_rc(zke_attach(NULL, 1, password, NULL, &out), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(out);
  ck_rc(zke_open(":memory:", NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_open_session(z, NULL, NULL), ZKE_BADARGUMENTS);
  ck_ok(zke_close(z));
}

/* Any output pointer may be NULL. */
TEST(null_outputs) {
  zke *z = memory();
  ck_ok(zke_create(z, "/a", "x", 1, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(create_ttl(z, "/t", ZKE_PERSISTENT_WITH_TTL, 60000));
  ck_ok(zke_exists(z, "/a", NULL, NULL, NULL));
  ck_ok(zke_get(z, "/a", NULL, NULL, NULL, NULL, NULL));
  ck_ok(zke_set(z, "/a", "y", 1, -1, NULL));
  ck_ok(zke_children(z, "/a", NULL, NULL, NULL, NULL));
  ck_ok(zke_count(z, "/a", NULL));
  ck_ok(zke_usage(z, "/", NULL, NULL));
  ck_ok(zke_ephemerals(z, 0, NULL, NULL));
  ck_ok(zke_get_acl(z, "/a", NULL, NULL));
  ck_ok(zke_set_acl(z, "/a", -1, ZKE_OPEN_ACL, NULL));
  ck_ok(zke_raise_sequence(z, "/a", 7, NULL));
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_close(z));
}

/* 10: names, numbers and texts of the results come from one list. */
TEST(result_names_and_texts) {
#define ROW(name, number, text)                           \
  ck_assert_int_eq(ZKE_##name, number);                   \
  ck_assert_str_eq(zke_error_name(number), "ZKE_" #name); \
  ck_assert_str_eq(zke_error_text(number), text);
  ZKE_RESULT_LIST(ROW)
#undef ROW
  static const int strangers[] = {1, -10, -100, -104, -200, -214, INT_MIN};
  for (int i = 0; i < COUNT(strangers); i++) {
    ck_assert_str_eq(zke_error_name(strangers[i]), "ZKE_UNKNOWN");
    ck_assert_str_eq(zke_error_text(strangers[i]), "unknown error");
  }
}

/* ---- resources ---- */

/* P9: what the caller owns outlives the handle; then nothing of the handle's
 * allocator is left. */
TEST(data_outlives_the_handle) {
  test_heap heap = {0};
  zke_options options = {.size = sizeof options,
                         .allocator = {test_heap_resize, &heap}};
  zke *z = NULL, *other = NULL;
  char *data = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  ck_ok(zke_open_session(z, NULL, &other));
  ck_ok(zke_create(z, "/p", "outlives", 8, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_get(other, "/p", NULL, NULL, &data, NULL, NULL));
  ck_ok(zke_close(z));
  ck_ok(zke_close(other));
  ck_assert_str_eq(data, "outlives");
  ck_assert_int_ge(heap.live, 1);
  zke_free(data);
  ck_assert_int_eq(heap.live, 0);
}

/* ---- a random walk beside a model ----
 *
 * The model is an array of nodes and does everything the plain way.  Three
 * sessions change the tree in turn, alone and by multi; results, paths and
 * Stats must be the model's.  Times come from the engine and must then stay.
 */

enum { MODEL_NODES = 500, MODEL_PATH = 96, WALKERS = 3, MULTI_OPS = 5 };

typedef struct model_node {
  char path[MODEL_PATH];
  zke_stat stat; /* but cversion and numChildren */
  int creates, children;
  char data[8];
  int len;
} model_node;

typedef struct model {
  model_node nodes[MODEL_NODES];
  int count;
  int64_t zxid; /* the last one used */
} model;

/* One change, as asked for and as it came out. */
typedef struct change {
  int type; /* ZKE_OP_…, or SET_ACL */
  char path[MODEL_PATH];
  int mode, version, len;
  char data[8];
  const zke_acls *acls;
  int64_t owner; /* of the session that asks */
  int rc;
  char made[MODEL_PATH];
  zke_stat stat;
} change;

enum { SET_ACL = 100 };

typedef struct walk {
  zke *z[WALKERS];
  model now, saved;
  uint64_t seed, random;
  int step;
} walk;

#define walk_assert(w, condition, ...)                                     \
  do {                                                                     \
    if (!(condition)) {                                                    \
      char text_[1000];                                                    \
      snprintf(text_, sizeof text_, __VA_ARGS__);                          \
      ck_abort_msg("SEED=%llu step %d: %s", (unsigned long long)(w)->seed, \
                   (w)->step, text_);                                      \
    }                                                                      \
  } while (0)

/* A number below limit (splitmix64). */
static int draw(walk *w, int limit) {
  uint64_t x = w->random += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return (int)((x ^ x >> 31) % (uint64_t)limit);
}

static void parent_path(const char *path, char *parent) {
  size_t len = (size_t)(strrchr(path, '/') - path);
  memcpy(parent, path, len);
  strcpy(parent + len, len ? "" : "/");
}

static model_node *model_find(model *m, const char *path) {
  for (int i = 0; i < m->count; i++) {
    if (!strcmp(m->nodes[i].path, path)) return &m->nodes[i];
  }
  return NULL;
}

static model_node *model_parent(model *m, const char *path) {
  char parent[MODEL_PATH];
  parent_path(path, parent);
  return model_find(m, parent);
}

/* The Stat that the engine should show. */
static zke_stat model_stat(const model_node *n) {
  zke_stat s = n->stat;
  s.cversion = 2 * n->creates - n->children;
  s.numChildren = n->children;
  s.dataLength = n->len < 0 ? 0 : n->len;
  return s;
}

static bool model_name_is_bad(const char *path) {
  return strchr(path, '\x7f') != NULL;
}

static void model_fill(model_node *n, const change *c) {
  n->len = c->len;
  memcpy(n->data, c->data, sizeof n->data);
}

/* semantics.md 2.2 */
static int model_create(model *m, change *c, int64_t zxid, int64_t now) {
  if (!c->acls->count) return ZKE_INVALIDACL;
  model_node *parent = model_parent(m, c->path);
  if (!parent) return ZKE_NONODE;
  bool sequential = c->mode == ZKE_PERSISTENT_SEQUENTIAL ||
                    c->mode == ZKE_EPHEMERAL_SEQUENTIAL;
  bool ephemeral =
      c->mode == ZKE_EPHEMERAL || c->mode == ZKE_EPHEMERAL_SEQUENTIAL;
  char made[MODEL_PATH + 12];
  if (sequential) {
    snprintf(made, sizeof made, "%s%010d", c->path, parent->creates);
  } else {
    snprintf(made, sizeof made, "%s", c->path);
  }
  if (model_name_is_bad(made)) return ZKE_BADARGUMENTS;
  if (model_find(m, made)) return ZKE_NODEEXISTS;
  if (parent->stat.ephemeralOwner) return ZKE_NOCHILDRENFOREPHEMERALS;
  parent->creates++;
  parent->children++;
  parent->stat.pzxid = zxid;
  ck_assert_int_lt(m->count, MODEL_NODES);
  model_node *n = &m->nodes[m->count++];
  *n = (model_node){.stat = {.czxid = zxid,
                             .mzxid = zxid,
                             .pzxid = zxid,
                             .ctime = now,
                             .mtime = now,
                             .ephemeralOwner = ephemeral ? c->owner : 0}};
  memcpy(n->path, made, sizeof n->path);
  memcpy(c->made, made, sizeof c->made);
  model_fill(n, c);
  c->stat = model_stat(n);
  return ZKE_OK;
}

static void model_remove(model *m, model_node *n, int64_t zxid) {
  model_node *parent = model_parent(m, n->path);
  parent->children--;
  parent->stat.pzxid = zxid;
  *n = m->nodes[--m->count];
}

/* What a delete returns and does, by ZooKeeper's rules. */
static int model_delete(model *m, change *c, int64_t zxid) {
  if (!strcmp(c->path, "/")) return ZKE_BADARGUMENTS;
  model_node *n = model_find(m, c->path);
  if (!n) return ZKE_NONODE;
  if (c->version != -1 && c->version != n->stat.version) return ZKE_BADVERSION;
  if (n->children) return ZKE_NOTEMPTY;
  model_remove(m, n, zxid);
  return ZKE_OK;
}

/* The same of a set. */
static int model_set(model *m, change *c, int64_t zxid, int64_t now) {
  if (model_name_is_bad(c->path)) return ZKE_BADARGUMENTS;
  model_node *n = model_find(m, c->path);
  if (!n) return ZKE_NONODE;
  if (c->version != -1 && c->version != n->stat.version) return ZKE_BADVERSION;
  n->stat.version++;
  n->stat.mzxid = zxid;
  n->stat.mtime = now;
  model_fill(n, c);
  c->stat = model_stat(n);
  return ZKE_OK;
}

static int model_check(model *m, change *c) {
  if (model_name_is_bad(c->path)) return ZKE_BADARGUMENTS;
  model_node *n = model_find(m, c->path);
  if (!n) return ZKE_NONODE;
  bool fits = c->version == -1 || c->version == n->stat.version;
  return fits ? ZKE_OK : ZKE_BADVERSION;
}

/* The same of a set_acl. */
static int model_set_acl(model *m, change *c) {
  if (model_name_is_bad(c->path)) return ZKE_BADARGUMENTS;
  if (!c->acls->count) return ZKE_INVALIDACL;
  model_node *n = model_find(m, c->path);
  if (!n) return ZKE_NONODE;
  if (c->version != -1 && c->version != n->stat.aversion) return ZKE_BADVERSION;
  n->stat.aversion++;
  return ZKE_OK;
}

/* Apply a change as the next zxid, without counting it. */
static int model_apply(model *m, change *c, int64_t now) {
  int64_t zxid = m->zxid + 1;
  switch (c->type) {
    case ZKE_OP_CREATE:
      return model_create(m, c, zxid, now);
    case ZKE_OP_DELETE:
      return model_delete(m, c, zxid);
    case ZKE_OP_SET:
      return model_set(m, c, zxid, now);
    case ZKE_OP_CHECK:
      return model_check(m, c);
    default:
      return model_set_acl(m, c);
  }
}

/* The end of a session is one zxid, whatever it owned. */
static void model_end_session(model *m, int64_t id) {
  m->zxid++;
  for (int i = m->count - 1; i >= 0; i--) {
    if (m->nodes[i].stat.ephemeralOwner == id) {
      model_remove(m, &m->nodes[i], m->zxid);
    }
  }
}

/* ---- comparing ---- */

static void walk_compare_stat(walk *w, const char *path, zke_stat got,
                              zke_stat expected) {
  char a[200], b[200];
  stat_text(got, a, sizeof a);
  stat_text(expected, b, sizeof b);
  walk_assert(w, !strcmp(a, b), "Stat of %s: %s, not %s", path, a, b);
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The node has these children in the engine too. */
static void walk_compare_children(walk *w, zke *z, const model_node *n) {
  const char *expected[MODEL_NODES];
  int count = 0;
  for (int i = 0; i < w->now.count; i++) {
    const char *path = w->now.nodes[i].path;
    char parent[MODEL_PATH];
    parent_path(path, parent);
    if (path[1] && !strcmp(parent, n->path)) {
      expected[count++] = strrchr(path, '/') + 1;
    }
  }
  qsort(expected, (size_t)count, sizeof *expected, by_text);
  zke_strings *got = NULL;
  zke_stat stat;
  ck_ok(zke_children(z, n->path, NULL, NULL, &got, &stat));
  walk_compare_stat(w, n->path, stat, model_stat(n));
  walk_assert(w, got->count == count, "%s: %d children, not %d", n->path,
              got->count, count);
  for (int i = 0; i < count; i++) {
    walk_assert(w, !strcmp(got->data[i], expected[i]), "%s: %s, not %s",
                n->path, got->data[i], expected[i]);
  }
  zke_free(got);
}

/* The node has as many descendants in the engine too. */
static void walk_compare_count(walk *w, zke *z, const model_node *n) {
  int64_t got = -1, count = 0;
  size_t len = strlen(n->path);
  for (int i = 0; i < w->now.count; i++) {
    const char *path = w->now.nodes[i].path;
    count += len == 1 ? path[1] != '\0'
                      : !strncmp(path, n->path, len) && path[len] == '/';
  }
  ck_ok(zke_count(z, n->path, &got));
  walk_assert(w, got == count, "%s: %d descendants, not %d", n->path, (int)got,
              (int)count);
}

/* Everything readable of one path, whether it exists or not. */
static void walk_compare(walk *w, const char *path) {
  zke *z = w->z[draw(w, WALKERS)];
  model_node *n = model_find(&w->now, path);
  zke_stat stat;
  char *data = NULL;
  int len = -2;
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  walk_assert(w, rc == (n ? ZKE_OK : ZKE_NONODE), "exists %s: %d", path, rc);
  rc = zke_get(z, path, NULL, NULL, &data, &len, NULL);
  walk_assert(w, rc == (n ? ZKE_OK : ZKE_NONODE), "get %s: %d", path, rc);
  if (n) {
    walk_compare_stat(w, path, stat, model_stat(n));
    walk_assert(w, len == n->len, "%s: length %d, not %d", path, len, n->len);
    walk_assert(w, len <= 0 || !memcmp(data, n->data, (size_t)len),
                "%s: other data", path);
    walk_compare_children(w, z, n);
    walk_compare_count(w, z, n);
  }
  zke_free(data);
}

static void walk_violation(void *context, const char *sentence) {
  walk *w = context;
  walk_assert(w, false, "zke_check: %s", sentence);
}

static void walk_compare_all(walk *w) {
  for (int i = 0; i < w->now.count; i++) walk_compare(w, w->now.nodes[i].path);
  ck_ok(zke_check(w->z[0], walk_violation, w));
}

/* ---- choosing ---- */

/* A random path: of a node that is there, or mostly below one. */
static void draw_path(walk *w, char *path) {
  static const char *const names[] = {"a", "b", "c", "d", "s-", "\x7f"};
  const model_node *n = &w->now.nodes[draw(w, w->now.count)];
  if (!strncmp(n->path, "/zookeeper", 10) || strlen(n->path) > 60) {
    n = &w->now.nodes[0];
  }
  strcpy(path, n->path);
  if (draw(w, 100) < 55) {
    if (path[1]) strcat(path, "/");
    strcat(path, names[draw(w, 100) < 97 ? draw(w, 5) : 5]);
  }
}

/* A random version: any, the node's own, or a small number. */
static int draw_version(walk *w, const change *c) {
  const model_node *n = model_find(&w->now, c->path);
  int kind = draw(w, 100);
  if (kind < 50 || !n) return -1;
  if (kind < 90) {
    return c->type == SET_ACL ? n->stat.aversion : n->stat.version;
  }
  return draw(w, 5) - 2;
}

/* Fewer creates in a large tree, and none when the model is nearly full. */
static int draw_type(walk *w, bool for_multi) {
  int kind = draw(w, 100), count = w->now.count;
  int creates = count < 150 ? 45 : 10;
  if (count >= MODEL_NODES - 20) creates = 0;
  if (kind < creates) return ZKE_OP_CREATE;
  if (kind < 70) return ZKE_OP_DELETE;
  if (kind < 90) return ZKE_OP_SET;
  return for_multi ? ZKE_OP_CHECK : SET_ACL;
}

/* A random operation, with all that any type may need. */
static change draw_change(walk *w, int64_t owner, bool for_multi) {
  change c = {.type = draw_type(w, for_multi), .owner = owner};
  draw_path(w, c.path);
  c.mode = draw(w, ZKE_CONTAINER + 1);
  c.version = draw_version(w, &c);
  c.len = draw(w, 9) - 1;
  for (int i = 0; i < c.len; i++) c.data[i] = (char)('A' + draw(w, 26));
  c.acls = draw(w, 50) ? ZKE_OPEN_ACL : &no_acls;
  return c;
}

/* ---- doing ---- */

/* Ask the engine; the answer replaces rc, made and stat of c. */
static void engine_apply(zke *z, change *c) {
  char *made = NULL;
  if (c->type == ZKE_OP_CREATE) {
    c->rc = zke_create(z, c->path, c->data, c->len, c->acls, c->mode, &made,
                       &c->stat);
    if (made) snprintf(c->made, sizeof c->made, "%s", made);
    zke_free(made);
  } else if (c->type == ZKE_OP_DELETE) {
    c->rc = zke_delete(z, c->path, c->version);
  } else if (c->type == ZKE_OP_SET) {
    c->rc = zke_set(z, c->path, c->data, c->len, c->version, &c->stat);
  } else {
    c->rc = zke_set_acl(z, c->path, c->version, c->acls, NULL);
  }
}

/* Compare what the engine answered (c) with the model's answer. */
static void walk_compare_change(walk *w, const change *c, const change *m) {
  walk_assert(w, c->rc == m->rc, "op %d %s mode %d version %d: %d, not %d",
              c->type, c->path, c->mode, c->version, c->rc, m->rc);
  if (c->rc != ZKE_OK) return;
  walk_assert(w, !strcmp(c->made, m->made), "made %s, not %s", c->made,
              m->made);
  if (c->type == ZKE_OP_CREATE || c->type == ZKE_OP_SET) {
    walk_compare_stat(w, c->path, c->stat, m->stat);
  }
}

/* Compare the node a change was about, and its parent. */
static void walk_compare_around(walk *w, const change *c) {
  char parent[MODEL_PATH];
  const char *path = c->made[0] ? c->made : c->path;
  parent_path(path, parent);
  walk_compare(w, path);
  walk_compare(w, parent);
}

/* One operation, on the engine and on the model. */
static void walk_single(walk *w, int who) {
  change c = draw_change(w, zke_session_id(w->z[who]), false), m = c;
  engine_apply(w->z[who], &c);
  m.rc = model_apply(&w->now, &m, c.stat.mtime);
  walk_compare_change(w, &c, &m);
  w->now.zxid += m.rc == ZKE_OK;
  walk_compare_around(w, &c);
}

static void engine_multi(zke *z, change *c, int count) {
  zke_op ops[MULTI_OPS] = {{0}};
  zke_op_result results[MULTI_OPS];
  for (int i = 0; i < count; i++) {
    ops[i] = (zke_op){.type = c[i].type,
                      .path = c[i].path,
                      .data = c[i].data,
                      .len = c[i].len,
                      .acls = c[i].acls,
                      .mode = c[i].mode,
                      .version = c[i].version};
  }
  int rc = zke_multi(z, ops, count, results), first = ZKE_OK;
  for (int i = 0; i < count; i++) {
    c[i].rc = results[i].rc;
    c[i].stat = results[i].stat;
    if (results[i].path) {
      snprintf(c[i].made, sizeof c[i].made, "%s", results[i].path);
    }
    if (first == ZKE_OK) first = c[i].rc;
  }
  ck_assert_int_eq(rc, first);
  zke_results_clear(results, count);
}

/* semantics.md 4: all or nothing. */
static void model_multi(walk *w, change *m, int count, int64_t now) {
  int failed = count;
  w->saved = w->now;
  for (int i = 0; i < count; i++) {
    m[i].rc = i > failed ? ZKE_RUNTIMEINCONSISTENCY
                         : model_apply(&w->now, &m[i], now);
    if (m[i].rc != ZKE_OK && failed == count) failed = i;
  }
  if (failed == count) {
    w->now.zxid++;
    return;
  }
  w->now = w->saved;
  for (int i = 0; i < failed; i++) {
    m[i].made[0] = '\0';
    m[i].type = ZKE_OP_CHECK; /* no path and no Stat to compare */
  }
}

/* A multi of random operations, likewise. */
static void walk_multi(walk *w, int who) {
  change c[MULTI_OPS], m[MULTI_OPS];
  int count = 1 + draw(w, MULTI_OPS);
  int64_t now = 0;
  for (int i = 0; i < count; i++) {
    c[i] = m[i] = draw_change(w, zke_session_id(w->z[who]), true);
  }
  engine_multi(w->z[who], c, count);
  for (int i = 0; i < count; i++) {
    bool timed = c[i].type == ZKE_OP_CREATE || c[i].type == ZKE_OP_SET;
    if (timed && c[i].rc == ZKE_OK) now = c[i].stat.mtime;
  }
  model_multi(w, m, count, now);
  for (int i = 0; i < count; i++) {
    c[i].type = m[i].type;
    walk_compare_change(w, &c[i], &m[i]);
  }
  for (int i = 0; i < count; i++) walk_compare_around(w, &c[i]);
}

static void walk_session(walk *w, int who) {
  model_end_session(&w->now, zke_session_id(w->z[who]));
  ck_ok(zke_close(w->z[who]));
  w->z[who] = test_session(w->z[(who + 1) % WALKERS], NULL);
  w->now.zxid++;
}

/* One step of the walk: mostly an operation, seldom a session that ends. */
static void walk_step(walk *w) {
  int kind = draw(w, 1000), who = draw(w, WALKERS);
  if (kind < 5) {
    walk_session(w, who);
  } else if (kind < 200) {
    walk_multi(w, who);
  } else {
    walk_single(w, who);
  }
}

/* ---- walking ---- */

/* Take a node that is there from the beginning into the model. */
static void walk_load(walk *w, const char *path) {
  model_node *n = &w->now.nodes[w->now.count++];
  char *data = NULL;
  snprintf(n->path, sizeof n->path, "%s", path);
  ck_ok(zke_get(w->z[0], path, NULL, NULL, &data, &n->len, &n->stat));
  ck_assert_int_le(n->len, 0);
  zke_free(data);
  n->children = n->stat.numChildren;
  n->creates = (n->stat.cversion + n->children) / 2;
}

/* Begin a walk: its seed, its sessions, the first nodes. */
static void walk_start(walk *w, const char *name) {
  zke_options options = {.size = sizeof options,
                         .durability = ZKE_DURABLE_NONE,
                         .container_ms = INT64_C(86400000)};
  memset(w, 0, sizeof *w);
  w->random = w->seed = test_seed();
  ck_ok(zke_open(name, &options, &w->z[0]));
  for (int i = 1; i < WALKERS; i++) w->z[i] = test_session(w->z[0], NULL);
  w->now.zxid = test_zxid(w->z[0]);
  walk_load(w, "/");
  walk_load(w, "/zookeeper");
  walk_load(w, "/zookeeper/config");
  walk_load(w, "/zookeeper/quota");
}

static void walk_run(walk *w, int steps) {
  for (w->step = 1; w->step <= steps; w->step++) {
    walk_step(w);
    if (w->step % 1000 == 0) walk_compare_all(w);
  }
  walk_compare_all(w);
}

/* P1: 20,000 random changes in memory. */
TEST(random_walk) {
  static walk w;
  walk_start(&w, ":memory:");
  walk_run(&w, 20000);
  for (int i = 0; i < WALKERS; i++) ck_ok(zke_close(w.z[i]));
}

/* P1, P2: a walk in a file, which is the same when it is opened again. */
TEST(random_walk_in_a_file) {
  static walk w;
  const char *name = test_path("walk.db");
  walk_start(&w, name);
  walk_run(&w, 3000);
  for (int i = 0; i < WALKERS; i++) {
    model_end_session(&w.now, zke_session_id(w.z[i]));
    ck_ok(zke_close(w.z[i]));
  }
  for (int i = 0; i < WALKERS; i++) w.z[i] = test_open(name);
  w.now.zxid += WALKERS;
  walk_compare_all(&w);
  walk_run(&w, 300);
  for (int i = 0; i < WALKERS; i++) ck_ok(zke_close(w.z[i]));
}
