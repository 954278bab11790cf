/* test_tree.c - the tree in one process: create, delete, set, get, children,
 * Stat, sequences, limits, containers and TTL (semantics.md 2, 3, 7, 9, 12)
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

/* Create, and assert the path that was made. */
static void makes(zke *z, const char *path, int mode, const char *expected) {
  char *made = NULL;
  ck_ok(zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, &made, NULL));
  ck_assert_str_eq(made, expected);
  zke_free(made);
}

static void sequence(zke *z, const char *path, const char *expected) {
  makes(z, path, ZKE_PERSISTENT_SEQUENTIAL, expected);
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

/* Assert a list, written like "a b c", and release it. */
static void expect_strings(zke_strings *list, const char *expected) {
  char text[4096] = "";
  for (int i = 0; i < list->count; i++) {
    strcat(strcat(text, i ? " " : ""), list->data[i]);
  }
  zke_free(list);
  ck_assert_str_eq(text, expected);
}

static void expect_children(zke *z, const char *path, const char *expected) {
  zke_strings *names = NULL;
  ck_ok(zke_children(z, path, NULL, NULL, &names, NULL));
  expect_strings(names, expected);
}

/* ---- create ---- */

/* zke_raise_sequence() lets a counter rise and never fall: numbers go on behind
 * it, cversion and pzxid are as if children had come and gone, no watch fires,
 * and it survives a reopening. */
TEST(sequence_is_raised) {
  test_events events = {.count = 0};
  zke *z = test_open(test_path("a.db"));
  zke_stat before, after;
  char *made = NULL;
  ck_ok(
      zke_create(z, "/q", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, &before));
  ck_ok(zke_children(z, "/q", test_record, &events, NULL, NULL));
  ck_ok(zke_raise_sequence(z, "/q", 1000000, &after));
  ck_assert_int_eq(after.cversion, 2000000);
  ck_assert_int_gt(after.pzxid, before.pzxid);
  ck_assert_int_eq(after.mzxid, before.mzxid);
  ck_ok(zke_raise_sequence(z, "/q", 5, &before));
  ck_assert_int_eq(before.cversion, 2000000);
  ck_assert_int_eq(before.pzxid, after.pzxid);
  ck_ok(zke_raise_sequence(z, "/q", 1000000, NULL));
  test_expect(z, &events, "");
  ck_ok(zke_create(z, "/q/n-", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   &made, NULL));
  ck_assert_str_eq(made, "/q/n-0001000000");
  zke_free(made);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  z = test_open(test_path("a.db"));
  ck_ok(zke_raise_sequence(z, "/q", INT32_MAX, &after));
  ck_assert_int_eq(after.numChildren, 1);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}

/* P11: a raise without permission, below an ephemeral, of a node that is not
 * there or by nonsense changes no number. */
TEST(raising_is_refused) {
  static const zke_acl entry = {ZKE_PERM_ALL & ~ZKE_PERM_CREATE, "world",
                                "anyone"};
  static const zke_acls acls = {1, &entry};
  zke *z = test_open(test_path("a.db"));
  zke_stat stat;
  ck_ok(zke_create(z, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_create(z, "/n", "", 0, &acls, ZKE_PERSISTENT, NULL, NULL));
  ck_rc(zke_raise_sequence(z, "/n", -1, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_raise_sequence(z, "/n/", 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_raise_sequence(z, "/nope", 1, NULL), ZKE_NONODE);
  ck_rc(zke_raise_sequence(z, "/n", 1, NULL), ZKE_NOAUTH);
  ck_rc(zke_raise_sequence(z, "/e", 1, NULL), ZKE_NOCHILDRENFOREPHEMERALS);
  ck_rc(zke_raise_sequence(NULL, "/n", 1, NULL), ZKE_BADARGUMENTS);
  ck_ok(zke_exists(z, "/n", NULL, NULL, &stat));
  ck_assert_int_eq(stat.cversion, 0);
  ck_ok(zke_close(z));
}

/* 12 #22: a new node's Stat, and what its parent's shows. */
TEST(stat_after_create) {
  zke *z = memory();
  zke_stat s;
  make(z, "/p");
  zke_stat before = test_stat(z, "/p");
  ck_ok(zke_create(z, "/p/c", "abc", 3, ZKE_OPEN_ACL, 0, NULL, &s));
  ck_assert_int_eq(s.czxid, before.czxid + 1);
  ck_assert_int_gt(s.ctime, INT64_C(1500000000000));
  test_expect_stat(s, (zke_stat){.czxid = s.czxid,
                                 .mzxid = s.czxid,
                                 .pzxid = s.czxid,
                                 .ctime = s.ctime,
                                 .mtime = s.ctime,
                                 .dataLength = 3});
  test_expect_stat(test_stat(z, "/p/c"), s);
  before.cversion = 1;
  before.numChildren = 1;
  before.pzxid = s.czxid;
  test_expect_stat(test_stat(z, "/p"), before);
  ck_ok(zke_close(z));
}

/* 12 #23: what deleting a child leaves on the parent. */
TEST(stat_after_delete) {
  zke *z = memory();
  make(z, "/p");
  make(z, "/p/c");
  zke_stat expected = test_stat(z, "/p");
  ck_ok(drop(z, "/p/c"));
  expected.cversion = 2;
  expected.numChildren = 0;
  expected.pzxid += 1;
  test_expect_stat(test_stat(z, "/p"), expected);
  ck_ok(zke_close(z));
}

/* 2.4: only the parent notices, not the grandparent. */
TEST(stat_of_grandparent) {
  zke *z = memory();
  make(z, "/p");
  make(z, "/p/c");
  zke_stat before = test_stat(z, "/p");
  make(z, "/p/c/d");
  ck_ok(zke_set(z, "/p/c/d", "x", 1, 0, NULL));
  ck_ok(drop(z, "/p/c/d"));
  test_expect_stat(test_stat(z, "/p"), before);
  ck_ok(zke_close(z));
}

/* 12 #75: only ephemerals have an owner to show. */
TEST(owner_of_each_mode) {
  zke *z = memory();
  int64_t id = zke_session_id(z);
  ck_assert_int_ne(id, 0);
  for (int mode = ZKE_PERSISTENT; mode <= ZKE_CONTAINER; mode++) {
    zke_stat s;
    ck_ok(zke_create(z, mode == ZKE_PERSISTENT ? "/p" : "/q-", "", 0,
                     ZKE_OPEN_ACL, mode, NULL, &s));
    bool ephemeral = mode == ZKE_EPHEMERAL || mode == ZKE_EPHEMERAL_SEQUENTIAL;
    ck_assert_int_eq(s.ephemeralOwner, ephemeral ? id : 0);
    if (mode == ZKE_EPHEMERAL) ck_ok(drop(z, "/q-"));
  }
  for (int mode = ZKE_PERSISTENT_WITH_TTL;
       mode <= ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL; mode++) {
    zke_stat s;
    ck_ok(zke_create_ttl(z, "/t", "", 0, ZKE_OPEN_ACL, mode, 60000, NULL, &s));
    ck_assert_int_eq(s.ephemeralOwner, 0);
  }
  ck_ok(zke_close(z));
}

/* 2.1: the modes are an enumeration; ZooKeeper's others do not exist. */
TEST(unknown_modes_are_refused) {
  static const int modes[] = {
      -1,      7,       8,
      9,       16,      ZKE_PERSISTENT_WITH_TTL,
      INT_MAX, INT_MIN, ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL};
  zke *z = memory();
  for (int i = 0; i < COUNT(modes); i++) {
    ck_rc(create(z, "/a", modes[i]), ZKE_BADARGUMENTS);
    ck_rc(zke_create(z, "/a", "", 0, &no_acls, modes[i], NULL, NULL),
          ZKE_BADARGUMENTS);
  }
  expect_children(z, "/", "zookeeper");
  ck_ok(zke_close(z));
}

/* 12 #76, 2.1: what zke_create_ttl() takes. */
static const struct {
  int mode;
  int64_t ttl_ms;
  int rc;
} ttls[] = {
    {ZKE_PERSISTENT_WITH_TTL, 1, ZKE_OK},
    {ZKE_PERSISTENT_WITH_TTL, ZKE_MAX_TTL, ZKE_OK},
    {ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, 1, ZKE_OK},
    {ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, ZKE_MAX_TTL, ZKE_OK},
    {ZKE_PERSISTENT_WITH_TTL, 0, ZKE_BADARGUMENTS},
    {ZKE_PERSISTENT_WITH_TTL, -1, ZKE_BADARGUMENTS},
    {ZKE_PERSISTENT_WITH_TTL, INT64_MIN, ZKE_BADARGUMENTS},
    {ZKE_PERSISTENT_WITH_TTL, INT64_C(0x10000000000), ZKE_BADARGUMENTS},
    {ZKE_PERSISTENT_WITH_TTL, INT64_MAX, ZKE_BADARGUMENTS},
    {ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, 0, ZKE_BADARGUMENTS},
    {ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, INT64_C(0x10000000000),
     ZKE_BADARGUMENTS},
    {ZKE_PERSISTENT, 1000, ZKE_BADARGUMENTS},
    {ZKE_EPHEMERAL, 1000, ZKE_BADARGUMENTS},
    {ZKE_PERSISTENT_SEQUENTIAL, 1000, ZKE_BADARGUMENTS},
    {ZKE_EPHEMERAL_SEQUENTIAL, 1000, ZKE_BADARGUMENTS},
    {ZKE_CONTAINER, 1000, ZKE_BADARGUMENTS},
    {-1, 1000, ZKE_BADARGUMENTS},
    {7, 1000, ZKE_BADARGUMENTS},
};

/* A clock that stands: no time is over before all is looked at. */
static int64_t standing_clock(void *context, int which) {
  zke_os os;
  zke_os_default(&os);
  return test_stood(which, os.clock(context, which));
}

/* A tree under a clock that stands. */
static zke *open_standing(void) {
  zke *z = NULL;
  zke_os os;
  zke_os_default(&os);
  os.clock = standing_clock;
  zke_options options = {.size = sizeof options, .os = &os};
  ck_ok(zke_open(":memory:", &options, &z));
  return z;
}

/* P1, P11: which TTLs go with which modes; a refused one makes nothing. */
TEST_LOOP(ttl_arguments, 0, COUNT(ttls)) {
  zke *z = open_standing();
  ck_rc(create_ttl(z, "/t", ttls[_i].mode, ttls[_i].ttl_ms), ttls[_i].rc);
  ck_assert_int_eq(test_stat(z, "/").numChildren, 1 + (ttls[_i].rc == ZKE_OK));
  ck_ok(zke_close(z));
}

/* 2.2, 9: who may have children. */
TEST(children_by_mode_of_parent) {
  zke *z = memory();
  ck_ok(create(z, "/e", ZKE_EPHEMERAL));
  ck_ok(create(z, "/c", ZKE_CONTAINER));
  ck_ok(create_ttl(z, "/t", ZKE_PERSISTENT_WITH_TTL, 100000));
  ck_rc(create(z, "/e/p", ZKE_PERSISTENT), ZKE_NOCHILDRENFOREPHEMERALS);
  ck_rc(create(z, "/e/e", ZKE_EPHEMERAL), ZKE_NOCHILDRENFOREPHEMERALS);
  ck_ok(create(z, "/c/e", ZKE_EPHEMERAL));
  ck_ok(create(z, "/c/c", ZKE_CONTAINER));
  ck_ok(create(z, "/t/e", ZKE_EPHEMERAL_SEQUENTIAL));
  ck_ok(create_ttl(z, "/t/t", ZKE_PERSISTENT_WITH_TTL, 100000));
  ck_ok(zke_close(z));
}

/* 2.2, 12 #9, #10, #11: the first check that fails decides.
 * The tree: /x open with child k; /e ephemeral; /shut without CREATE, with
 * child k. */
static const struct {
  const char *path;
  int len, mode;
  const zke_acls *acls;
  int rc;
} create_order[] = {
    /* arguments before everything else */
    {"/x/k", 0, 7, &no_acls, ZKE_BADARGUMENTS},
    {"abc", 0, 0, &no_acls, ZKE_BADARGUMENTS},
    {"/x/.", 0, 0, &no_acls, ZKE_BADARGUMENTS},
    {"/nope/.", 0, 0, &zke_open_acl, ZKE_BADARGUMENTS},
    {"/x/k", -2, 0, &no_acls, ZKE_BADARGUMENTS},
    {"/nope/k", INT_MAX, 0, &no_acls, ZKE_BADARGUMENTS},
    /* the ACL before what the tree holds */
    {"/x/k", 0, 0, &no_acls, ZKE_INVALIDACL},
    {"/x/k", 0, 0, NULL, ZKE_INVALIDACL},
    {"/x/k", 0, 0, &zke_creator_all_acl, ZKE_INVALIDACL},
    {"/nope/k", 0, 0, &no_acls, ZKE_INVALIDACL},
    {"/e/k", 0, 0, &no_acls, ZKE_INVALIDACL},
    {"/shut/k", 0, 0, &no_acls, ZKE_INVALIDACL},
    {"/x/\x7f", 0, 0, &no_acls, ZKE_INVALIDACL},
    {"/", 0, 0, &no_acls, ZKE_INVALIDACL},
    /* the parent, and its ACL */
    {"/nope/k", 0, 0, &zke_open_acl, ZKE_NONODE},
    {"/nope/k/l", 0, 2, &zke_open_acl, ZKE_NONODE},
    {"/nope/\x7f", 0, 0, &zke_open_acl, ZKE_NONODE},
    {"/shut/new", 0, 0, &zke_open_acl, ZKE_NOAUTH},
    {"/shut/new", 0, 1, &zke_open_acl, ZKE_NOAUTH},
    {"/shut/k", 0, 0, &zke_open_acl, ZKE_NOAUTH},
    {"/shut/\x7f", 0, 0, &zke_open_acl, ZKE_NOAUTH},
    /* the whole path, the node, the parent's kind */
    {"/x/\x7f", 0, 0, &zke_open_acl, ZKE_BADARGUMENTS},
    {"/x/\x7f", 0, 2, &zke_open_acl, ZKE_BADARGUMENTS},
    {"/e/\x7f", 0, 0, &zke_open_acl, ZKE_BADARGUMENTS},
    {"/x/k", 0, 0, &zke_open_acl, ZKE_NODEEXISTS},
    {"/x/k", 0, 1, &zke_open_acl, ZKE_NODEEXISTS},
    {"/x/k", 0, 4, &zke_open_acl, ZKE_NODEEXISTS},
    {"/", 0, 0, &zke_open_acl, ZKE_NODEEXISTS},
    {"/e/k", 0, 0, &zke_open_acl, ZKE_NOCHILDRENFOREPHEMERALS},
    {"/e/k", 0, 2, &zke_open_acl, ZKE_NOCHILDRENFOREPHEMERALS},
    {"/e/k", 0, 3, &zke_open_acl, ZKE_NOCHILDRENFOREPHEMERALS},
    {"/e/k", 0, 4, &zke_open_acl, ZKE_NOCHILDRENFOREPHEMERALS},
};

/* The nodes at which several things can be wrong at once. */
static zke *order_tree(void) {
  zke *z = memory();
  make(z, "/x");
  make(z, "/x/k");
  make(z, "/x/k/l");
  ck_ok(create(z, "/e", ZKE_EPHEMERAL));
  make(z, "/shut");
  make(z, "/shut/k");
  zke_acl entry = {ZKE_PERM_READ | ZKE_PERM_ADMIN, "world", "anyone"};
  ck_ok(zke_set_acl(z, "/shut", -1, &(zke_acls){1, &entry}, NULL));
  return z;
}

/* P1: where several things are wrong with a create the server's first complaint
 * comes, and no zxid is used. */
TEST_LOOP(create_order_of_checks, 0, COUNT(create_order)) {
  zke *z = order_tree();
  int64_t before = test_zxid(z);
  ck_rc(zke_create(z, create_order[_i].path, "", create_order[_i].len,
                   create_order[_i].acls, create_order[_i].mode, NULL, NULL),
        create_order[_i].rc);
  ck_assert_int_eq(test_zxid(z), before + 1); /* P1 */
  expect_children(z, "/x", "k");
  expect_children(z, "/e", "");
  expect_children(z, "/shut", "k");
  ck_ok(zke_close(z));
}

/* ---- delete ---- */

/* 3, 12 #25, #30: the first check that fails decides. */
static const struct {
  const char *path;
  int version, rc;
} delete_order[] = {
    {"/zookeeper", 99, ZKE_BADARGUMENTS},
    {"/x/", 99, ZKE_BADARGUMENTS},
    {"/nope/k", 99, ZKE_NONODE},
    {"/nope/\x7f", 99, ZKE_NONODE},
    {"/shut/nope", 99, ZKE_NOAUTH},
    {"/shut/k", 99, ZKE_NOAUTH},
    {"/x/nope", 99, ZKE_NONODE},
    {"/x/k", 99, ZKE_BADVERSION},
    {"/x/k", -2, ZKE_BADVERSION},
    {"/x/k", 1, ZKE_BADVERSION},
    {"/x/k", INT_MIN, ZKE_BADVERSION},
    {"/x/k", 0, ZKE_NOTEMPTY},
    {"/x/k", -1, ZKE_NOTEMPTY},
    {"/x/k/l", 1, ZKE_BADVERSION},
    {"/x/k/l", 0, ZKE_OK},
    {"/x/k/l", -1, ZKE_OK},
    {"/e", -1, ZKE_OK},
};

/* P1: the same of a delete. */
TEST_LOOP(delete_order_of_checks, 0, COUNT(delete_order)) {
  zke *z = order_tree();
  int64_t before = test_zxid(z);
  int rc = delete_order[_i].rc;
  ck_rc(zke_delete(z, delete_order[_i].path, delete_order[_i].version), rc);
  ck_assert_int_eq(test_zxid(z), before + 1 + (rc == ZKE_OK));
  if (rc == ZKE_OK) ck_rc(exists(z, delete_order[_i].path), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* 3: a node that was deleted starts anew. */
TEST(recreated_node_starts_anew) {
  zke *z = memory();
  zke_stat s;
  ck_ok(zke_create(z, "/a", "one", 3, ZKE_OPEN_ACL, 0, NULL, NULL));
  make(z, "/a/k");
  ck_ok(drop(z, "/a/k"));
  ck_ok(zke_set(z, "/a", NULL, -1, 0, &s));
  ck_ok(drop(z, "/a"));
  ck_rc(zke_get(z, "/a", NULL, NULL, NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_create(z, "/a", "", 0, ZKE_OPEN_ACL, 0, NULL, &s));
  ck_assert_int_eq(s.version, 0);
  ck_assert_int_eq(s.cversion, 0);
  ck_assert_int_eq(s.pzxid, s.czxid);
  expect_data(z, "/a", "", 0);
  ck_ok(zke_close(z));
}

/* ---- data ---- */

/* 12 #26, #27: NULL is not empty, neither by create nor by set. */
TEST(null_data_is_not_empty) {
  zke *z = memory();
  ck_ok(zke_create(z, "/null", NULL, -1, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_create(z, "/len", "abc", -1, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_create(z, "/zero", NULL, 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_create(z, "/empty", "abc", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  expect_data(z, "/null", NULL, -1);
  expect_data(z, "/len", NULL, -1);
  expect_data(z, "/zero", "", 0);
  expect_data(z, "/empty", "", 0);
  ck_ok(zke_set(z, "/null", "", 0, 0, NULL));
  expect_data(z, "/null", "", 0);
  ck_ok(zke_set(z, "/null", "abc", -1, 1, NULL));
  expect_data(z, "/null", NULL, -1);
  ck_ok(zke_close(z));
}

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

/* P1, P11: the limit is on the value; a byte more is refused and named. */
static void try_limit(zke *z, int limit, const char *number) {
  char *data = calloc(1, (size_t)limit + 1);
  ck_assert_ptr_nonnull(data);
  make(z, "/a");
  ck_ok(zke_set(z, "/a", data, limit, -1, NULL));
  expect_data(z, "/a", data, limit);
  ck_rc(zke_set(z, "/a", data, limit + 1, -1, NULL), ZKE_BADARGUMENTS);
  ck_says(number);
  ck_rc(zke_set(z, "/nope", data, limit + 1, -1, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_create(z, "/b", data, limit + 1, ZKE_OPEN_ACL, 0, NULL, NULL),
        ZKE_BADARGUMENTS);
  ck_says(number);
  ck_ok(zke_create(z, "/b", data, limit, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_assert_int_eq(test_stat(z, "/a").version, 1);
  free(data);
}

/* P11: data may be 1 MiB long by default, and not a byte longer; the sentence
 * names the limit. */
TEST(default_data_limit) {
  zke *z = memory();
  try_limit(z, 1048576, "1048576");
  ck_ok(zke_close(z));
}

/* The same with a limit that the caller chose, below the default, */
TEST(chosen_data_limit) {
  zke_options options = {.size = sizeof options, .data_limit = 1000};
  zke *z = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  try_limit(z, 1000, "1000");
  ck_ok(zke_close(z));
}

/* … and above it. */
TEST(larger_data_limit) {
  zke_options options = {.size = sizeof options, .data_limit = 3000000};
  zke *z = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  try_limit(z, 3000000, "3000000");
  ck_ok(zke_close(z));
}

/* Data of such a length is refused by each call that takes data. */
static void refuse_length(zke *z, const char *data, int len) {
  ck_rc(zke_create(z, "/b", data, len, ZKE_OPEN_ACL, 0, NULL, NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_create_ttl(z, "/b", data, len, ZKE_OPEN_ACL,
                       ZKE_PERSISTENT_WITH_TTL, 1000, NULL, NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_set(z, "/a", data, len, -1, NULL), ZKE_BADARGUMENTS);
}

/* P11: lengths that cannot be, told before the session's end is; a length that
 * only the store's limit forbids comes behind it (differences.md 1). */
TEST(impossible_lengths) {
  static const struct {
    const char *data;
    int len;
  } rows[] = {{"abc", -2}, {NULL, -2}, {"abc", INT_MIN},
              {NULL, 1},   {NULL, 3},  {NULL, INT_MAX}};
  zke_options options = {.size = sizeof options, .data_limit = 10};
  zke *z = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  make(z, "/a");
  for (int round = 0; round < 2; round++) {
    if (round) {
      ck_assert_int_eq(test_stat(z, "/a").version, 0);
      expect_children(z, "/", "a zookeeper");
      ck_ok(zke_expire(z, zke_session_id(z)));
    }
    for (int i = 0; i < COUNT(rows); i++)
      refuse_length(z, rows[i].data, rows[i].len);
  }
  ck_rc(zke_set(z, "/a", "0123456789x", 11, -1, NULL), ZKE_INVALIDSTATE);
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

/* ---- set and versions ---- */

/* 3: set changes version, mzxid, mtime and data, and nothing else. */
TEST(stat_after_set) {
  zke *z = memory();
  zke_stat s;
  ck_ok(zke_create(z, "/a", "abc", 3, ZKE_OPEN_ACL, 0, NULL, NULL));
  make(z, "/a/k");
  zke_stat expected = test_stat(z, "/a"), root = test_stat(z, "/");
  ck_ok(zke_set(z, "/a", "defgh", 5, 0, &s));
  ck_assert_int_ge(s.mtime, expected.mtime);
  expected.version = 1;
  expected.mzxid = expected.pzxid + 1;
  expected.mtime = s.mtime;
  expected.dataLength = 5;
  test_expect_stat(s, expected);
  test_expect_stat(test_stat(z, "/a"), expected);
  test_expect_stat(test_stat(z, "/"), root);
  ck_ok(zke_close(z));
}

/* 12 #24: the same bytes are a change all the same. */
TEST(set_same_bytes) {
  zke *z = memory();
  zke_stat s;
  test_events events = {0};
  ck_ok(zke_create(z, "/a", "abc", 3, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_exists(z, "/a", test_record, &events, NULL));
  ck_ok(zke_set(z, "/a", "abc", 3, 0, &s));
  ck_assert_int_eq(s.version, 1);
  ck_assert_int_eq(s.mzxid, s.czxid + 1);
  test_expect(z, &events, "CHANGED /a");
  ck_ok(zke_close(z));
}

/* 3, 12 #25, #31: the order, and versions taken literally.  /x has version 2,
 * /shut cannot be written. */
static const struct {
  const char *path;
  int len, version, rc;
} set_order[] = {
    {"/x/", 0, 99, ZKE_BADARGUMENTS},
    {"/\x7f", 0, 99, ZKE_BADARGUMENTS},
    {"/shut/\x7f", 0, 99, ZKE_BADARGUMENTS},
    {"/nope", -2, 99, ZKE_BADARGUMENTS},
    {"/shut", INT_MAX, 99, ZKE_BADARGUMENTS},
    {"/nope", 0, 99, ZKE_NONODE},
    {"/x/nope", 0, -1, ZKE_NONODE},
    {"/shut", 0, 99, ZKE_NOAUTH},
    {"/shut", 0, -1, ZKE_NOAUTH},
    {"/x", 0, 99, ZKE_BADVERSION},
    {"/x", 0, 1, ZKE_BADVERSION},
    {"/x", 0, 0, ZKE_BADVERSION},
    {"/x", 0, -2, ZKE_BADVERSION},
    {"/x", 0, INT_MIN, ZKE_BADVERSION},
    {"/x", 0, 2, ZKE_OK},
    {"/x", 0, -1, ZKE_OK},
};

/* P1: where several things are wrong with a set the server's first complaint
 * comes, and no zxid is used. */
TEST_LOOP(set_order_of_checks, 0, COUNT(set_order)) {
  zke *z = order_tree();
  ck_ok(zke_set(z, "/x", "", 0, 0, NULL));
  ck_ok(zke_set(z, "/x", "", 0, 1, NULL));
  int64_t before = test_zxid(z);
  int rc = set_order[_i].rc;
  ck_rc(zke_set(z, set_order[_i].path, "", set_order[_i].len,
                set_order[_i].version, NULL),
        rc);
  ck_assert_int_eq(test_zxid(z), before + 1 + (rc == ZKE_OK));
  ck_assert_int_eq(test_stat(z, "/x").version, 2 + (rc == ZKE_OK));
  ck_ok(zke_close(z));
}

/* 12 #25: a delete with -2 is literal too. */
TEST(negative_versions_are_literal) {
  zke *z = memory();
  make(z, "/a");
  ck_ok(zke_set(z, "/a", "", 0, 0, NULL));
  ck_ok(zke_set(z, "/a", "", 0, 1, NULL));
  ck_rc(zke_set(z, "/a", "", 0, -2, NULL), ZKE_BADVERSION);
  ck_rc(zke_delete(z, "/a", -2), ZKE_BADVERSION);
  ck_ok(zke_delete(z, "/a", 2));
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

/* 12 #21: ten digits. */
TEST(sequence_9999999) {
  zke *z = doctored(DOCTOR("creates = 9999999"));
  sequence(z, "/c/s-", "/c/s-0009999999");
  sequence(z, "/c/s-", "/c/s-0010000000");
  ck_ok(zke_close(z));
}

/* 12 #20: from the last number on the counter stands still. */
TEST(sequence_sticks_at_the_end) {
  zke *z = doctored(DOCTOR("creates = 2147483646"));
  sequence(z, "/c/s-", "/c/s-2147483646");
  sequence(z, "/c/s-", "/c/s-2147483647");
  for (int i = 0; i < 3; i++) {
    ck_rc(create(z, "/c/s-", ZKE_PERSISTENT_SEQUENTIAL), ZKE_NODEEXISTS);
    ck_rc(create(z, "/c/s-", ZKE_EPHEMERAL_SEQUENTIAL), ZKE_NODEEXISTS);
  }
  sequence(z, "/c/r-", "/c/r-2147483647");
  makes(z, "/c/q-", ZKE_EPHEMERAL_SEQUENTIAL, "/c/q-2147483647");
  make(z, "/c/plain");
  sequence(z, "/c/t-", "/c/t-2147483647");
  ck_ok(drop(z, "/c/s-2147483647"));
  sequence(z, "/c/s-", "/c/s-2147483647");
  ck_ok(zke_close(z));
}

/* 12 #20: cversion is 2 * creates - numChildren in 32 bits. */
TEST(cversion_wraps) {
  zke *z = doctored(DOCTOR("creates = 2147483645"));
  ck_assert_int_eq(test_stat(z, "/c").cversion, -6);
  sequence(z, "/c/s-", "/c/s-2147483645");
  ck_assert_int_eq(test_stat(z, "/c").cversion, -5);
  sequence(z, "/c/s-", "/c/s-2147483646");
  ck_assert_int_eq(test_stat(z, "/c").cversion, -4);
  sequence(z, "/c/s-", "/c/s-2147483647");
  ck_assert_int_eq(test_stat(z, "/c").cversion, -5);
  ck_ok(drop(z, "/c/s-2147483645"));
  ck_assert_int_eq(test_stat(z, "/c").cversion, -4);
  ck_ok(zke_close(z));
}

/* 2.3: a parent whose counter stands still no longer gets a pzxid by create,
 * but still by delete. */
TEST(pzxid_at_the_end) {
  zke *z = doctored(DOCTOR("creates = 2147483647"));
  int64_t before = test_stat(z, "/c").pzxid;
  make(z, "/c/a");
  zke_stat s = test_stat(z, "/c");
  ck_assert_int_eq(s.pzxid, before);
  ck_assert_int_eq(s.numChildren, 1);
  ck_assert_int_eq(test_stat(z, "/c/a").czxid, test_zxid(z) - 1);
  ck_ok(drop(z, "/c/a"));
  ck_assert_int_eq(test_stat(z, "/c").pzxid, test_zxid(z) - 1);
  ck_ok(zke_close(z));
}

/* 12 #20: only inside one multi does the number turn negative. */
TEST(sequence_wraps_in_multi) {
  zke *z = doctored(DOCTOR("creates = 2147483647"));
  zke_op ops[3];
  zke_op_result results[3];
  for (int i = 0; i < 3; i++) {
    zke_op_create(&ops[i], "/c/m-", "", 0, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT_SEQUENTIAL);
  }
  ck_ok(zke_multi(z, ops, 3, results));
  ck_assert_str_eq(results[0].path, "/c/m-2147483647");
  ck_assert_str_eq(results[1].path, "/c/m--2147483648");
  ck_assert_str_eq(results[2].path, "/c/m--2147483647");
  zke_results_clear(results, 3);
  sequence(z, "/c/r-", "/c/r-2147483647");
  ck_rc(create(z, "/c/m-", ZKE_PERSISTENT_SEQUENTIAL), ZKE_NODEEXISTS);
  ck_ok(zke_close(z));
}

/* 2.3: in there a plain create counts too, and each parent for itself. */
TEST(sequence_wraps_for_one_parent) {
  zke *z = doctored(DOCTOR("creates = 2147483646"));
  zke_op ops[5];
  zke_op_result results[5];
  make(z, "/d");
  zke_op_create(&ops[0], "/c/m-", "", 0, ZKE_OPEN_ACL, 2);
  zke_op_create(&ops[1], "/c/plain", "", 0, ZKE_OPEN_ACL, 0);
  zke_op_create(&ops[2], "/c/m-", "", 0, ZKE_OPEN_ACL, 2);
  zke_op_create(&ops[3], "/d/m-", "", 0, ZKE_OPEN_ACL, 2);
  zke_op_create(&ops[4], "/c/m-", "", 0, ZKE_OPEN_ACL, 2);
  ck_ok(zke_multi(z, ops, 5, results));
  ck_assert_str_eq(results[0].path, "/c/m-2147483646");
  ck_assert_str_eq(results[2].path, "/c/m--2147483648");
  ck_assert_str_eq(results[3].path, "/d/m-0000000000");
  ck_assert_str_eq(results[4].path, "/c/m--2147483647");
  zke_results_clear(results, 5);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}

/* ---- sequences ---- */

/* 12 #13: one counter for all; deletes do not move it. */
TEST(sequence_counts_every_create) {
  zke *z = memory();
  make(z, "/p");
  sequence(z, "/p/s-", "/p/s-0000000000");
  sequence(z, "/p/s-", "/p/s-0000000001");
  make(z, "/p/plain");
  sequence(z, "/p/s-", "/p/s-0000000003");
  ck_ok(drop(z, "/p/s-0000000000"));
  ck_ok(drop(z, "/p/s-0000000003"));
  sequence(z, "/p/s-", "/p/s-0000000004");
  zke_stat s = test_stat(z, "/p");
  ck_assert_int_eq(s.cversion, 7);
  ck_assert_int_eq(s.numChildren, 3);
  ck_ok(zke_close(z));
}

/* 2.3: all prefixes and all modes share the counter. */
TEST(sequence_is_shared_by_modes) {
  zke *z = memory();
  make(z, "/p");
  ck_ok(create(z, "/p/e", ZKE_EPHEMERAL));
  sequence(z, "/p/a", "/p/a0000000001");
  ck_ok(create(z, "/p/c", ZKE_CONTAINER));
  makes(z, "/p/b", ZKE_EPHEMERAL_SEQUENTIAL, "/p/b0000000003");
  ck_ok(create_ttl(z, "/p/t", ZKE_PERSISTENT_WITH_TTL, 100000));
  ck_ok(create_ttl(z, "/p/t-", ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, 100000));
  ck_ok(exists(z, "/p/t-0000000005"));
  sequence(z, "/p/", "/p/0000000006");
  ck_ok(zke_close(z));
}

/* 2.3: what does not move the counter. */
TEST(sequence_ignores_other_changes) {
  zke *z = memory();
  make(z, "/p");
  make(z, "/p/q");
  ck_ok(zke_set(z, "/p", "x", 1, -1, NULL));
  ck_ok(zke_set(z, "/p/q", "x", 1, -1, NULL));
  ck_ok(zke_set_acl(z, "/p", -1, ZKE_OPEN_ACL, NULL));
  make(z, "/p/q/r");
  ck_ok(drop(z, "/p/q/r"));
  sequence(z, "/p/s-", "/p/s-0000000001");
  ck_ok(zke_close(z));
}

/* 12 #14: a refused create leaves the next number as it was. */
TEST(refused_create_keeps_the_number) {
  zke *z = memory();
  make(z, "/p");
  make(z, "/p/a");
  ck_rc(create(z, "/p/a", ZKE_PERSISTENT), ZKE_NODEEXISTS);
  ck_rc(create(z, "/p/a/b/c", ZKE_PERSISTENT), ZKE_NONODE);
  ck_rc(create(z, "/p/\x7f", ZKE_PERSISTENT_SEQUENTIAL), ZKE_BADARGUMENTS);
  sequence(z, "/p/s-", "/p/s-0000000001");
  ck_ok(zke_close(z));
}

/* 12 #15: a taken name blocks its prefix until another create comes. */
TEST(sequence_collision) {
  zke *z = memory();
  make(z, "/p");
  make(z, "/p/q-0000000001");
  for (int i = 0; i < 3; i++) {
    ck_rc(create(z, "/p/q-", ZKE_PERSISTENT_SEQUENTIAL), ZKE_NODEEXISTS);
    ck_rc(create(z, "/p/q-", ZKE_EPHEMERAL_SEQUENTIAL), ZKE_NODEEXISTS);
  }
  sequence(z, "/p/r-", "/p/r-0000000001");
  sequence(z, "/p/q-", "/p/q-0000000002");
  ck_ok(zke_close(z));
}

/* 12 #16: five creates and deletes of one name. */
TEST(sequence_after_create_and_delete) {
  zke *z = memory();
  make(z, "/p");
  for (int i = 0; i < 5; i++) {
    make(z, "/p/a");
    ck_ok(drop(z, "/p/a"));
  }
  sequence(z, "/p/s-", "/p/s-0000000005");
  zke_stat s = test_stat(z, "/p");
  ck_assert_int_eq(s.cversion, 11);
  ck_assert_int_eq(s.numChildren, 1);
  ck_ok(zke_close(z));
}

/* 12 #17: ephemerals that go with their session do not move it. */
TEST(sequence_after_session_end) {
  zke *z = memory(), *other = test_session(z, NULL);
  make(z, "/p");
  for (int i = 0; i < 4; i++) {
    ck_ok(create(other, "/p/e-", ZKE_EPHEMERAL_SEQUENTIAL));
  }
  for (int i = 0; i < 5; i++) {
    make(z, "/p/a");
    ck_ok(drop(z, "/p/a"));
  }
  make(z, "/p/a");
  ck_ok(zke_close(other));
  sequence(z, "/p/s-", "/p/s-0000000010");
  zke_stat s = test_stat(z, "/p");
  ck_assert_int_eq(s.cversion, 20);
  ck_assert_int_eq(s.numChildren, 2);
  ck_ok(zke_close(z));
}

/* 12 #18: a new parent counts from zero. */
TEST(sequence_of_recreated_parent) {
  zke *z = memory();
  make(z, "/p");
  sequence(z, "/p/s-", "/p/s-0000000000");
  ck_ok(drop(z, "/p/s-0000000000"));
  ck_ok(drop(z, "/p"));
  make(z, "/p");
  sequence(z, "/p/s-", "/p/s-0000000000");
  ck_ok(zke_close(z));
}

/* 12 #84c: the root counts like every parent; /zookeeper does not count. */
TEST(sequence_of_root) {
  zke *z = memory();
  int64_t count;
  make(z, "/first");
  sequence(z, "/s-", "/s-0000000001");
  ck_ok(zke_count(z, "/", &count));
  ck_assert_int_eq(count, 5);
  ck_ok(zke_close(z));
}

/* 2.3: the parent is what stands before the last slash, the rest is prefix. */
TEST(sequence_prefix_is_verbatim) {
  zke *z = memory();
  make(z, "/p");
  sequence(z, "/p/0000000000", "/p/00000000000000000000");
  sequence(z, "/p/%d", "/p/%d0000000001");
  sequence(z, "/p/ ", "/p/ 0000000002");
  sequence(z, "/p", "/p0000000001");
  ck_ok(zke_close(z));
}

/* ---- reading ---- */

/* 12 #85: children come sorted by their bytes (a documented difference). */
TEST(children_are_sorted) {
  static const char *const names[] = {"zz", "a", "1", "b", "2", "B", "10"};
  zke *z = memory();
  make(z, "/p");
  for (int i = 0; i < COUNT(names); i++) {
    char path[16];
    snprintf(path, sizeof path, "/p/%s", names[i]);
    make(z, path);
  }
  make(z, "/p/a/deep");
  make(z, "/p2");
  expect_children(z, "/p", "1 10 2 B a b zz");
  expect_children(z, "/", "p p2 zookeeper");
  ck_ok(zke_close(z));
}

/* 12 #87: a leaf has a list too, and the Stat comes with it. */
TEST(children_of_a_leaf) {
  zke *z = memory();
  zke_strings *names = NULL;
  zke_stat s;
  make(z, "/leaf");
  ck_ok(zke_children(z, "/leaf", NULL, NULL, &names, &s));
  ck_assert_ptr_nonnull(names);
  ck_assert_int_eq(names->count, 0);
  zke_free(names);
  test_expect_stat(s, test_stat(z, "/leaf"));
  ck_ok(zke_close(z));
}

/* 3: names that sort around the slash do not mix with other parents'. */
TEST(children_belong_to_one_parent) {
  zke *z = memory();
  make(z, "/a");
  make(z, "/a!");
  make(z, "/a0");
  make(z, "/a/x");
  make(z, "/a!/y");
  make(z, "/a0/z");
  make(z, "/a/x/y");
  int64_t count = -1;
  expect_children(z, "/a", "x");
  expect_children(z, "/a!", "y");
  ck_ok(zke_count(z, "/a", &count));
  ck_assert_int_eq(count, 2);
  ck_ok(zke_count(z, "/a0", &count));
  ck_assert_int_eq(count, 1);
  ck_ok(zke_close(z));
}

/* 12 #79: all descendants; the fresh root has three. */
TEST(count_of_descendants) {
  zke *z = memory();
  int64_t count = -1;
  ck_ok(zke_count(z, "/", &count));
  ck_assert_int_eq(count, 3);
  make(z, "/a");
  ck_ok(zke_count(z, "/a", &count));
  ck_assert_int_eq(count, 0);
  make(z, "/a/b");
  make(z, "/a/b/c");
  make(z, "/a/d");
  ck_ok(zke_count(z, "/a", &count));
  ck_assert_int_eq(count, 3);
  ck_ok(zke_count(z, "/zookeeper", &count));
  ck_assert_int_eq(count, 2);
  ck_rc(zke_count(z, "/nope", &count), ZKE_NONODE);
  ck_assert_int_eq(count, 2);
  ck_ok(zke_close(z));
}

/* The node itself counts, its siblings with a longer name do not; no data is
 * nothing. */
TEST(usage_is_of_a_node_and_its_descendants) {
  zke *z = memory();
  int64_t count = -1, bytes = -1;
  ck_ok(zke_usage(z, "/", &count, &bytes));
  ck_assert_int_eq(count, 4);
  ck_assert_int_eq(bytes, 0);
  make(z, "/a");
  make(z, "/a0");
  make(z, "/a/b");
  make(z, "/a/b/c");
  ck_ok(zke_set(z, "/a", "12", 2, -1, NULL));
  ck_ok(zke_set(z, "/a0", "1234", 4, -1, NULL));
  ck_ok(zke_set(z, "/a/b", "12345678", 8, -1, NULL));
  ck_ok(zke_set(z, "/a/b/c", NULL, -1, -1, NULL));
  ck_ok(zke_usage(z, "/a", &count, &bytes));
  ck_assert_int_eq(count, 3);
  ck_assert_int_eq(bytes, 10);
  ck_ok(zke_usage(z, "/a/b/c", &count, &bytes));
  ck_assert_int_eq(count, 1);
  ck_assert_int_eq(bytes, 0);
  ck_ok(zke_usage(z, "/", &count, &bytes));
  ck_assert_int_eq(count, 8);
  ck_assert_int_eq(bytes, 14);
  ck_ok(zke_usage(z, "/", NULL, NULL));
  ck_rc(zke_usage(z, "/nope", &count, &bytes), ZKE_NONODE);
  ck_rc(zke_usage(NULL, "/a", NULL, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(count, 8);
  ck_ok(zke_close(z));
}

/* 12 #79: what zke_ephemerals() finds; z owns these, and other "/t/o". */
static const struct {
  const char *prefix, *paths;
} ephemerals[] = {
    {NULL, "/eph /t/eph /t/eq0000000003 /u"},
    {"", "/eph /t/eph /t/eq0000000003 /u"},
    {"/", "/eph /t/eph /t/eq0000000003 /u"},
    {"/t", "/t/eph /t/eq0000000003"},
    {"/t/", "/t/eph /t/eq0000000003"},
    {"/t/e", "/t/eph /t/eq0000000003"},
    {"/t/eph", "/t/eph"},
    {"/t/ephx", ""},
    {"/nope", ""},
    {"/T", ""},
    {"/_", ""},
    {"/%", ""},
    {"/t/e*", ""},
    {"eph", ""},
};

/* P1: a session's ephemerals are listed by a prefix of their path, in order;
 * neither another session's nor containers or TTL nodes. */
TEST_LOOP(ephemerals_by_prefix, 0, COUNT(ephemerals)) {
  zke *z = memory(), *other = test_session(z, NULL);
  zke_strings *paths = NULL;
  make(z, "/t");
  ck_ok(create(z, "/u", ZKE_EPHEMERAL));
  ck_ok(create(z, "/eph", ZKE_EPHEMERAL));
  ck_ok(create(z, "/t/c", ZKE_CONTAINER));
  ck_ok(create_ttl(z, "/t/ttl", ZKE_PERSISTENT_WITH_TTL, 100000));
  ck_ok(create(z, "/t/eph", ZKE_EPHEMERAL));
  ck_ok(create(z, "/t/eq", ZKE_EPHEMERAL_SEQUENTIAL));
  ck_ok(create(other, "/t/o", ZKE_EPHEMERAL));
  ck_ok(zke_ephemerals(z, 0, ephemerals[_i].prefix, &paths));
  expect_strings(paths, ephemerals[_i].paths);
  ck_ok(
      zke_ephemerals(other, zke_session_id(z), ephemerals[_i].prefix, &paths));
  expect_strings(paths, ephemerals[_i].paths);
  ck_ok(zke_close(other));
  ck_ok(zke_close(z));
}

/* 3: of another session, of an ended and of an unknown one. */
TEST(ephemerals_by_session) {
  zke *z = memory(), *other = test_session(z, NULL);
  int64_t id = zke_session_id(other);
  zke_strings *paths = NULL;
  ck_ok(create(other, "/o", ZKE_EPHEMERAL));
  ck_ok(zke_ephemerals(z, id, NULL, &paths));
  expect_strings(paths, "/o");
  ck_ok(zke_ephemerals(z, 0, NULL, &paths));
  expect_strings(paths, "");
  ck_ok(zke_ephemerals(z, 12345678, NULL, &paths));
  expect_strings(paths, "");
  ck_ok(zke_close(other));
  ck_ok(zke_ephemerals(z, id, NULL, &paths));
  expect_strings(paths, "");
  ck_ok(zke_close(z));
}

/* 12 #80: sync looks at no path. */
TEST(sync_takes_any_path) {
  static const char *const paths[] = {"/", "/nope", "/nope/", "x", "", NULL};
  zke *z = memory();
  int64_t before = test_zxid(z);
  for (int i = 0; i < COUNT(paths); i++) ck_ok(zke_sync(z, paths[i]));
  ck_assert_int_eq(test_zxid(z), before + 1);
  ck_ok(zke_close(z));
}

/* ---- sessions as far as the tree shows them ---- */

/* 12 #73: an ephemeral belongs to its session, but anybody may change it. */
TEST(foreign_ephemeral) {
  zke *z = memory(), *first = test_session(z, NULL);
  ck_ok(create(first, "/e", ZKE_EPHEMERAL));
  ck_assert_int_eq(test_stat(z, "/e").ephemeralOwner, zke_session_id(first));
  ck_ok(zke_set(z, "/e", "z", 1, 0, NULL));
  ck_ok(drop(z, "/e"));
  ck_ok(create(z, "/e", ZKE_EPHEMERAL));
  ck_ok(zke_close(first));
  ck_assert_int_eq(test_stat(z, "/e").ephemeralOwner, zke_session_id(z));
  ck_ok(zke_close(z));
}

/* 6: all ephemerals of a session go with one zxid. */
TEST(session_end_is_one_zxid) {
  zke *z = memory(), *other = test_session(z, NULL);
  make(z, "/p");
  make(z, "/q");
  for (int i = 0; i < 5; i++) {
    ck_ok(create(other, "/p/e-", ZKE_EPHEMERAL_SEQUENTIAL));
  }
  ck_ok(create(other, "/q/e", ZKE_EPHEMERAL));
  int64_t before = test_zxid(z);
  ck_ok(zke_close(other));
  zke_stat p = test_stat(z, "/p"), q = test_stat(z, "/q");
  ck_assert_int_eq(p.pzxid, before + 1);
  ck_assert_int_eq(q.pzxid, before + 1);
  ck_assert_int_eq(p.cversion, 10);
  ck_assert_int_eq(q.cversion, 2);
  ck_assert_int_eq(p.numChildren + q.numChildren, 0);
  ck_assert_int_eq(test_zxid(z), before + 2);
  ck_ok(zke_close(z));
}

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

/* ---- zxids: P1 and 12 #39 ---- */

static void cost_create(zke *z) { make(z, "/new"); }

static void cost_create_sequential(zke *z) {
  ck_ok(create(z, "/new", ZKE_EPHEMERAL_SEQUENTIAL));
}

static void cost_delete(zke *z) { ck_ok(drop(z, "/a/b")); }

static void cost_set(zke *z) { ck_ok(zke_set(z, "/a", "", 0, 0, NULL)); }

static void cost_set_acl(zke *z) {
  ck_ok(zke_set_acl(z, "/a", 0, ZKE_OPEN_ACL, NULL));
}

/* Failing operations, which cost nothing. */
static void cost_refused(zke *z) {
  ck_rc(create(z, "/a", 0), ZKE_NODEEXISTS);
  ck_rc(create(z, "/nope/a", 0), ZKE_NONODE);
  ck_rc(create(z, "/a/", 0), ZKE_BADARGUMENTS);
  ck_rc(create(z, "/\x7f", 0), ZKE_BADARGUMENTS);
  ck_rc(drop(z, "/nope"), ZKE_NONODE);
  ck_rc(drop(z, "/a"), ZKE_NOTEMPTY);
  ck_rc(zke_set(z, "/nope", "", 0, -1, NULL), ZKE_NONODE);
  ck_rc(zke_set(z, "/a", "", 0, 9, NULL), ZKE_BADVERSION);
  ck_rc(zke_set_acl(z, "/a", 9, ZKE_OPEN_ACL, NULL), ZKE_BADVERSION);
  ck_rc(zke_set_acl(z, "/a", -1, &no_acls, NULL), ZKE_INVALIDACL);
}

/* Reads, which cost nothing. */
static void cost_reads(zke *z) {
  ck_ok(exists(z, "/a"));
  ck_rc(exists(z, "/nope"), ZKE_NONODE);
  ck_ok(zke_get(z, "/a", NULL, NULL, NULL, NULL, NULL));
  ck_ok(zke_children(z, "/a", NULL, NULL, NULL, NULL));
  ck_ok(zke_count(z, "/a", NULL));
  ck_ok(zke_get_acl(z, "/a", NULL, NULL));
  ck_ok(zke_ephemerals(z, 0, NULL, NULL));
  ck_ok(zke_sync(z, "/a"));
  ck_ok(zke_dispatch(z, NULL));
}

/* Watches, set and removed, which cost nothing. */
static void cost_watches(zke *z) {
  test_events events = {0};
  ck_ok(zke_exists(z, "/a", test_record, &events, NULL));
  ck_ok(zke_get(z, "/a", test_record, &events, NULL, NULL, NULL));
  ck_ok(zke_children(z, "/a", test_record, &events, NULL, NULL));
  ck_ok(zke_add_watch(z, "/a", ZKE_WATCH_PERSISTENT, test_record, &events));
  ck_ok(zke_remove_watch(z, "/a", ZKE_WATCH_ANY, NULL, NULL));
}

static void cost_auth(zke *z) { ck_ok(zke_add_auth(z, "digest", "a:b", 3)); }

static void cost_multi_empty(zke *z) { ck_ok(zke_multi(z, NULL, 0, NULL)); }

static void cost_multi(zke *z) {
  zke_op ops[3];
  zke_op_create(&ops[0], "/m", "", 0, ZKE_OPEN_ACL, 0);
  zke_op_set(&ops[1], "/m", "", 0, 0);
  zke_op_delete(&ops[2], "/a/b", 0);
  ck_ok(zke_multi(z, ops, 3, NULL));
}

static void cost_multi_refused(zke *z) {
  zke_op ops[2];
  zke_op_create(&ops[0], "/m", "", 0, ZKE_OPEN_ACL, 0);
  zke_op_delete(&ops[1], "/nope", 0);
  ck_rc(zke_multi(z, ops, 2, NULL), ZKE_NONODE);
}

static void cost_multi_read(zke *z) {
  zke_op op;
  zke_op_result result;
  zke_op_get(&op, "/a");
  ck_ok(zke_multi_read(z, &op, 1, &result));
  zke_results_clear(&result, 1);
}

static void cost_session(zke *z) { ck_ok(zke_close(test_session(z, NULL))); }

static void cost_expiry(zke *z) {
  zke *other = test_session(z, NULL);
  ck_ok(zke_expire(z, zke_session_id(other)));
  ck_ok(zke_close(other));
}

static const struct {
  const char *name;
  void (*run)(zke *z);
  int zxids;
} costs[] = {
    {"create", cost_create, 1},
    {"create sequential", cost_create_sequential, 1},
    {"delete", cost_delete, 1},
    {"set", cost_set, 1},
    {"set_acl", cost_set_acl, 1},
    {"refused changes", cost_refused, 0},
    {"reads", cost_reads, 0},
    {"watches", cost_watches, 0},
    {"add_auth", cost_auth, 0},
    {"empty multi", cost_multi_empty, 1},
    {"multi", cost_multi, 1},
    {"refused multi", cost_multi_refused, 0},
    {"multi_read", cost_multi_read, 0},
    {"session open and close", cost_session, 2},
    {"session open and expiry", cost_expiry, 2},
};

/* P1: each operation uses as many zxids as in ZooKeeper, a failing one none. */
TEST_LOOP(zxid_cost, 0, COUNT(costs)) {
  zke *z = memory();
  make(z, "/a");
  make(z, "/a/b");
  int64_t before = test_zxid(z);
  costs[_i].run(z);
  int64_t cost = test_zxid(z) - before - 1;
  ck_assert_msg(cost == costs[_i].zxids, "%s: %d zxids, not %d", costs[_i].name,
                (int)cost, costs[_i].zxids);
  ck_ok(zke_close(z));
}

/* ---- the sweep: containers and TTL, on a clock of our own ---- */

typedef struct shifted {
  zke_os os; /* the library's own */
  int64_t offset_ns;
} shifted;

static int64_t shifted_clock(void *context, int which) {
  shifted *s = context;
  int64_t now = s->os.clock(s->os.context, which);
  return now < 0 ? now : now + s->offset_ns;
}

/* A handle whose wall clock the test can set. */
static zke *open_shifted(shifted *s, int64_t container_ms) {
  zke *z = NULL;
  *s = (shifted){.offset_ns = 0};
  zke_os_default(&s->os);
  zke_os os = s->os;
  os.context = s;
  os.clock = shifted_clock;
  zke_options options = {
      .size = sizeof options, .container_ms = container_ms, .os = &os};
  ck_ok(zke_open(":memory:", &options, &z));
  return z;
}

static void advance(shifted *s, int64_t ms) { s->offset_ns += ms * 1000000; }

static bool gone(zke *z, const char *path) {
  ck_ok(zke_dispatch(z, NULL));
  return exists(z, path) == ZKE_NONODE;
}

/* Let whole sweeps pass: what expires now is gone twice over. */
static void sweep_passes(zke *z, shifted *s) {
  for (int i = 0; i < 2; i++) {
    ck_ok(create_ttl(z, "/canary", ZKE_PERSISTENT_WITH_TTL, 1));
    advance(s, 1000);
    ck_until(gone(z, "/canary"), 5000);
  }
}

/* A container that has had a child. */
static void make_used_container(zke *z, const char *path) {
  char child[64];
  snprintf(child, sizeof child, "%s/child", path);
  ck_ok(create(z, path, ZKE_CONTAINER));
  make(z, child);
  ck_ok(drop(z, child));
}

/* 12 #77: a container that never had a child stays. */
TEST(container_unused_stays) {
  shifted s;
  zke *z = open_shifted(&s, 1);
  ck_ok(create(z, "/c", ZKE_CONTAINER));
  advance(&s, 1000000);
  sweep_passes(z, &s);
  ck_ok(exists(z, "/c"));
  ck_ok(zke_set(z, "/c", "x", 1, 0, NULL));
  sweep_passes(z, &s);
  ck_ok(exists(z, "/c"));
  ck_ok(zke_close(z));
}

/* 12 #77: an emptied one goes, as by a delete. */
TEST(container_emptied_goes) {
  shifted s;
  test_events events = {0};
  zke *z = open_shifted(&s, 60000);
  make_used_container(z, "/c");
  ck_ok(zke_exists(z, "/c", test_record, &events, NULL));
  ck_ok(zke_children(z, "/", test_record, &events, NULL, NULL));
  zke_stat before = test_stat(z, "/");
  advance(&s, 61000);
  test_expect_within(z, &events, "DELETED /c; CHILD /", 5000);
  zke_stat after = test_stat(z, "/");
  ck_assert_int_eq(after.cversion, before.cversion + 1);
  ck_assert_int_eq(after.numChildren, before.numChildren - 1);
  ck_assert_int_eq(after.pzxid, before.pzxid + 3);
  ck_assert_int_eq(test_zxid(z), after.pzxid + 1);
  ck_ok(zke_close(z));
}

/* zkembed.h: not before it has been empty for container_ms. */
TEST(container_stays_its_time) {
  shifted s;
  zke *z = open_shifted(&s, 0); /* the default: a minute */
  make_used_container(z, "/c");
  sweep_passes(z, &s);
  ck_ok(exists(z, "/c"));
  advance(&s, 50000);
  sweep_passes(z, &s);
  ck_ok(exists(z, "/c"));
  advance(&s, 10000);
  ck_until(gone(z, "/c"), 5000);
  ck_ok(zke_close(z));
}

/* zkembed.h: the time starts anew when it is emptied anew. */
TEST(container_in_use_stays) {
  shifted s;
  zke *z = open_shifted(&s, 0);
  make_used_container(z, "/c");
  advance(&s, 50000);
  make(z, "/c/again");
  advance(&s, 50000);
  sweep_passes(z, &s);
  ck_ok(exists(z, "/c"));
  ck_ok(drop(z, "/c/again"));
  sweep_passes(z, &s);
  ck_ok(exists(z, "/c"));
  advance(&s, 61000);
  ck_until(gone(z, "/c"), 5000);
  ck_ok(zke_close(z));
}

/* 9: nested containers go one after the other. */
TEST(containers_nested) {
  shifted s;
  zke *z = open_shifted(&s, 1000);
  ck_ok(create(z, "/o", ZKE_CONTAINER));
  make_used_container(z, "/o/i");
  advance(&s, 2000);
  ck_until(gone(z, "/o/i"), 5000);
  advance(&s, 2000);
  ck_until(gone(z, "/o"), 5000);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}

/* 9: a container is deleted by hand like any node. */
TEST(container_deleted_by_hand) {
  zke *z = memory();
  ck_ok(create(z, "/c", ZKE_CONTAINER));
  make(z, "/c/a");
  ck_rc(drop(z, "/c"), ZKE_NOTEMPTY);
  ck_ok(drop(z, "/c/a"));
  ck_ok(drop(z, "/c"));
  ck_ok(zke_close(z));
}

/* 12 #78: a TTL node goes when its time is over, as by a delete. */
TEST(ttl_node_goes) {
  shifted s;
  test_events events = {0};
  zke *z = open_shifted(&s, 0);
  ck_ok(create_ttl(z, "/t", ZKE_PERSISTENT_WITH_TTL, 60000));
  ck_ok(create_ttl(z, "/t-", ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, 120000));
  sweep_passes(z, &s);
  ck_ok(exists(z, "/t"));
  int64_t before = test_zxid(z);
  ck_ok(zke_exists(z, "/t", test_record, &events, NULL));
  ck_ok(zke_children(z, "/", test_record, &events, NULL, NULL));
  advance(&s, 61000);
  test_expect_within(z, &events, "DELETED /t; CHILD /", 5000);
  ck_assert_int_eq(test_zxid(z), before + 2);
  ck_ok(exists(z, "/t-0000000001"));
  advance(&s, 61000);
  ck_until(gone(z, "/t-0000000001"), 5000);
  ck_ok(zke_close(z));
}

/* 12 #78: with a child it stays; without, its age counts from its mtime. */
TEST(ttl_node_with_child_stays) {
  shifted s;
  zke *z = open_shifted(&s, 0);
  ck_ok(create_ttl(z, "/t", ZKE_PERSISTENT_WITH_TTL, 60000));
  make(z, "/t/child");
  advance(&s, 100000);
  sweep_passes(z, &s);
  ck_ok(exists(z, "/t"));
  ck_ok(drop(z, "/t/child"));
  ck_until(gone(z, "/t"), 5000);
  ck_ok(zke_close(z));
}

/* 12 #78: a set makes it young again. */
TEST(ttl_node_is_refreshed_by_set) {
  shifted s;
  zke *z = open_shifted(&s, 0);
  ck_ok(create_ttl(z, "/t", ZKE_PERSISTENT_WITH_TTL, 60000));
  advance(&s, 50000);
  ck_ok(zke_set(z, "/t", "x", 1, 0, NULL));
  advance(&s, 50000);
  sweep_passes(z, &s);
  ck_ok(exists(z, "/t"));
  advance(&s, 10000);
  ck_until(gone(z, "/t"), 5000);
  ck_ok(zke_close(z));
}

/* 12 #78: reading it, its ACL and its children do not. */
TEST(ttl_node_is_not_refreshed_otherwise) {
  shifted s;
  zke *z = open_shifted(&s, 0);
  ck_ok(create_ttl(z, "/t", ZKE_PERSISTENT_WITH_TTL, 60000));
  advance(&s, 50000);
  ck_ok(zke_get(z, "/t", NULL, NULL, NULL, NULL, NULL));
  ck_ok(zke_set_acl(z, "/t", -1, ZKE_OPEN_ACL, NULL));
  make(z, "/t/a");
  ck_ok(drop(z, "/t/a"));
  advance(&s, 11000);
  ck_until(gone(z, "/t"), 5000);
  ck_ok(zke_close(z));
}

/* 9: children of any kind hold a TTL node, an ephemeral too. */
TEST(ttl_node_goes_after_ephemeral_child) {
  shifted s;
  zke *z = open_shifted(&s, 0), *other = test_session(z, NULL);
  ck_ok(create_ttl(z, "/t", ZKE_PERSISTENT_WITH_TTL, 60000));
  ck_ok(create(other, "/t/e", ZKE_EPHEMERAL));
  advance(&s, 100000);
  sweep_passes(z, &s);
  ck_ok(exists(z, "/t"));
  ck_ok(zke_close(other));
  ck_until(gone(z, "/t"), 5000);
  ck_ok(zke_close(z));
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
  ck_ok(zke_ephemerals(z, 0, NULL, NULL));
  ck_ok(zke_get_acl(z, "/a", NULL, NULL));
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_close(z));
}

/* 12 #28, #87: on failure no output is touched. */
TEST(outputs_untouched_on_failure) {
  zke *z = memory();
  char *text = (char *)z;
  int len = 42;
  int64_t count = 42;
  zke_strings *list = (zke_strings *)z;
  zke_acls *acls = (zke_acls *)z;
  zke_stat stat, before;
  memset(&stat, 0x5a, sizeof stat);
  before = stat;
  ck_rc(zke_create(z, "/n/a", "", 0, ZKE_OPEN_ACL, 2, &text, &stat),
        ZKE_NONODE);
  ck_rc(zke_create_ttl(z, "/a", "", 0, ZKE_OPEN_ACL, 5, 0, &text, &stat),
        ZKE_BADARGUMENTS);
  ck_rc(zke_exists(z, "/n", NULL, NULL, &stat), ZKE_NONODE);
  ck_rc(zke_get(z, "/n", NULL, NULL, &text, &len, &stat), ZKE_NONODE);
  ck_rc(zke_set(z, "/n", "", 0, -1, &stat), ZKE_NONODE);
  ck_rc(zke_children(z, "/n", NULL, NULL, &list, &stat), ZKE_NONODE);
  ck_rc(zke_count(z, "/n", &count), ZKE_NONODE);
  ck_rc(zke_get_acl(z, "/n", &acls, &stat), ZKE_NONODE);
  ck_assert_ptr_eq(text, z);
  ck_assert_ptr_eq(list, z);
  ck_assert_ptr_eq(acls, z);
  ck_assert_int_eq(len, 42);
  ck_assert_int_eq(count, 42);
  test_expect_stat(stat, before);
  ck_ok(zke_close(z));
}

/* Each sentence names the path it is about. */
TEST(errmsg_names_the_path) {
  zke *z = order_tree();
  ck_rc(create(z, "/nowhere/a", 0), ZKE_NONODE);
  ck_says("/nowhere");
  ck_rc(create(z, "/x/k", 0), ZKE_NODEEXISTS);
  ck_says("/x/k");
  ck_rc(create(z, "/e/k", 0), ZKE_NOCHILDRENFOREPHEMERALS);
  ck_says("/e");
  ck_rc(create(z, "/shut/new", 0), ZKE_NOAUTH);
  ck_says("/shut");
  ck_rc(zke_create(z, "/bad-acl", "", 0, NULL, 0, NULL, NULL), ZKE_INVALIDACL);
  ck_rc(zke_delete(z, "/x/k", 5), ZKE_BADVERSION);
  ck_says("/x/k");
  ck_rc(drop(z, "/x/k"), ZKE_NOTEMPTY);
  ck_says("/x/k");
  ck_rc(drop(z, "/zookeeper/quota"), ZKE_BADARGUMENTS);
  ck_says("/zookeeper/quota");
  ck_rc(zke_set(z, "/missing", "", 0, -1, NULL), ZKE_NONODE);
  ck_says("/missing");
  ck_rc(zke_set(z, "/x", "", 0, 5, NULL), ZKE_BADVERSION);
  ck_says("/x");
  ck_rc(zke_get(z, "/absent", 0, 0, 0, 0, 0), ZKE_NONODE);
  ck_says("/absent");
  ck_ok(exists(z, "/x")); /* a success leaves the sentence */
  ck_says("/absent");
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

/* Call all that allocates, releasing what comes. */
static void use_everything(zke *z) {
  char *text = NULL;
  zke_strings *list = NULL;
  test_events events = {0};
  ck_ok(zke_create(z, "/p", "abc", 3, ZKE_OPEN_ACL, 0, &text, NULL));
  zke_free(text);
  ck_ok(create(z, "/p/e", ZKE_EPHEMERAL_SEQUENTIAL));
  ck_ok(zke_get(z, "/p", test_record, &events, &text, NULL, NULL));
  zke_free(text);
  ck_ok(zke_children(z, "/p", test_record, &events, &list, NULL));
  zke_free(list);
  ck_ok(zke_ephemerals(z, 0, NULL, &list));
  zke_free(list);
  ck_rc(zke_exists(z, "/q", test_record, &events, NULL), ZKE_NONODE);
  ck_ok(zke_set(z, "/p", NULL, -1, -1, NULL));
  ck_rc(create(z, "/p", 0), ZKE_NODEEXISTS);
  test_expect(z, &events, "CHANGED /p");
  ck_ok(drop(z, "/p/e0000000000"));
}

/* P9: everything is taken from the handle's allocator and given back; what
 * the caller owns outlives the handle. */
TEST(heap_is_balanced) {
  test_heap heap = {0};
  zke_options options = {.size = sizeof options,
                         .allocator = {test_heap_resize, &heap}};
  zke *z = NULL, *other = NULL;
  char *data = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  ck_ok(zke_open_session(z, NULL, &other));
  use_everything(z);
  ck_ok(zke_set(z, "/p", "outlives", 8, -1, NULL));
  ck_ok(zke_get(other, "/p", NULL, NULL, &data, NULL, NULL));
  ck_ok(zke_close(z));
  ck_ok(zke_close(other));
  ck_assert_int_gt(heap.calls, 0);
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
