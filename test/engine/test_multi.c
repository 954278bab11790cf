/* test_multi.c - several operations at once: all or nothing, one zxid, the
 * results of each, and the read form (semantics.md 4 and 12 #40 to #45, #55 to
 * #57)
 */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/test.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static const zke_acls no_acls = {0, NULL};

static zke *memory(void) { return test_open(":memory:"); }

static void make(zke *z, const char *path) {
  ck_ok(zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
}

static int exists(zke *z, const char *path) {
  return zke_exists(z, path, NULL, NULL, NULL);
}

/* Assert a list, written like "a b c". */
static void expect_strings(const zke_strings *list, const char *expected) {
  char text[1024] = "";
  for (int i = 0; i < list->count; i++) {
    strcat(strcat(text, i ? " " : ""), list->data[i]);
  }
  ck_assert_str_eq(text, expected);
}

static void expect_children(zke *z, const char *path, const char *expected) {
  zke_strings *names = NULL;
  ck_ok(zke_children(z, path, NULL, NULL, &names, NULL));
  expect_strings(names, expected);
  zke_free(names);
}

/* ---- a list of operations, built one by one ---- */

typedef struct batch {
  int count;
  zke_op ops[16];
  zke_op_result results[16];
} batch;

static zke_op *next(batch *b) {
  ck_assert_int_lt(b->count, COUNT(b->ops));
  return &b->ops[b->count++];
}

static void add_create(batch *b, const char *path, int mode) {
  zke_op_create(next(b), path, "", 0, ZKE_OPEN_ACL, mode);
}

static void add_delete(batch *b, const char *path, int version) {
  zke_op_delete(next(b), path, version);
}

static void add_set(batch *b, const char *path, const char *data, int version) {
  zke_op_set(next(b), path, data, (int)strlen(data), version);
}

static void add_check(batch *b, const char *path, int version) {
  zke_op_check(next(b), path, version);
}

static void add_get(batch *b, const char *path) { zke_op_get(next(b), path); }

static void add_children(batch *b, const char *path) {
  zke_op_children(next(b), path, NULL, 0);
}

/* Results as no call would leave them. */
static void spoil(batch *b) { memset(b->results, 0xa5, sizeof b->results); }

static bool is_spoilt(const batch *b) {
  const unsigned char *bytes = (const unsigned char *)b->results;
  for (size_t i = 0; i < sizeof b->results; i++) {
    if (bytes[i] != 0xa5) return false;
  }
  return true;
}

/* Run the batch; codes are those of the results, like "0 -101 -2".  The
 * call's own must be the first that is not 0. */
static void run(zke *z, batch *b, const char *codes) {
  char got[200] = "";
  int first = ZKE_OK;
  spoil(b);
  int rc = zke_multi(z, b->ops, b->count, b->results);
  for (int i = 0; i < b->count; i++) {
    size_t used = strlen(got);
    snprintf(got + used, sizeof got - used, "%s%d", i ? " " : "",
             b->results[i].rc);
    if (first == ZKE_OK) first = b->results[i].rc;
  }
  ck_assert_str_eq(got, codes);
  ck_assert_int_eq(rc, first);
}

static void clear(batch *b) {
  zke_results_clear(b->results, b->count);
  b->count = 0;
}

/* Run the batch, which must fail as a whole and leave the results alone. */
static void run_refused(zke *z, batch *b, int rc) {
  spoil(b);
  ck_rc(zke_multi(z, b->ops, b->count, b->results), rc);
  ck_assert(is_spoilt(b));
}

/* ---- success ---- */

/* 12 #42: each operation sees what those before it did. */
TEST(operations_see_each_other) {
  zke *z = memory();
  batch b = {0};
  make(z, "/p");
  add_create(&b, "/p/n", ZKE_PERSISTENT);
  add_set(&b, "/p/n", "one", 0);
  add_check(&b, "/p/n", 1);
  add_set(&b, "/p/n", "second", 1);
  add_delete(&b, "/p/n", 2);
  run(z, &b, "0 0 0 0 0");
  ck_assert_str_eq(b.results[0].path, "/p/n");
  ck_assert_int_eq(b.results[1].stat.version, 1);
  ck_assert_int_eq(b.results[1].stat.dataLength, 3);
  ck_assert_int_eq(b.results[3].stat.version, 2);
  ck_assert_int_eq(b.results[3].stat.dataLength, 6);
  clear(&b);
  zke_stat p = test_stat(z, "/p");
  ck_assert_int_eq(p.cversion, 2);
  ck_assert_int_eq(p.numChildren, 0);
  ck_assert_int_eq(p.pzxid, p.czxid + 1);
  ck_ok(zke_close(z));
}

/* 4: parent and child together. */
TEST(parent_then_child) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_create(&b, "/a/b", ZKE_PERSISTENT);
  add_create(&b, "/a/b/c", ZKE_EPHEMERAL);
  run(z, &b, "0 0 0");
  clear(&b);
  ck_assert_int_eq(test_stat(z, "/a/b/c").ephemeralOwner, zke_session_id(z));
  ck_assert_int_eq(test_stat(z, "/a").numChildren, 1);
  ck_ok(zke_close(z));
}

/* 4: one zxid and one time for all of them. */
TEST(one_zxid_one_time) {
  zke *z = memory();
  batch b = {0};
  make(z, "/old");
  int64_t before = test_zxid(z);
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_create(&b, "/a/b", ZKE_PERSISTENT);
  add_set(&b, "/old", "x", 0);
  run(z, &b, "0 0 0");
  zke_stat a = test_stat(z, "/a"), ab = test_stat(z, "/a/b"),
           old = test_stat(z, "/old");
  ck_assert_int_eq(a.czxid, before + 1);
  ck_assert_int_eq(ab.czxid, before + 1);
  ck_assert_int_eq(a.pzxid, before + 1);
  ck_assert_int_eq(old.mzxid, before + 1);
  ck_assert_int_eq(test_stat(z, "/").pzxid, before + 1);
  ck_assert_int_eq(a.ctime, ab.ctime);
  ck_assert_int_eq(a.ctime, old.mtime);
  test_expect_stat(b.results[2].stat, old);
  clear(&b);
  ck_assert_int_eq(test_zxid(z), before + 2);
  ck_ok(zke_close(z));
}

/* zkembed.h: a create's result carries its Stat as of that operation. */
TEST(create_result_has_stat) {
  zke *z = memory();
  batch b = {0};
  zke_op_create(next(&b), "/a", "abc", 3, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  add_create(&b, "/a/b", ZKE_PERSISTENT);
  run(z, &b, "0 0");
  zke_stat s = b.results[0].stat;
  ck_assert_int_eq(s.dataLength, 3);
  ck_assert_int_eq(s.mzxid, s.czxid);
  ck_assert_int_eq(s.numChildren, 0);
  ck_assert_ptr_null(b.results[0].data);
  ck_assert_ptr_null(b.results[0].children);
  clear(&b);
  ck_ok(zke_close(z));
}

/* 4, zkembed.h: every mode may stand in a multi. */
TEST(all_modes) {
  zke *z = memory();
  batch b = {0};
  static const char *const paths[] = {"/0", "/1", "/2", "/3", "/4"};
  for (int mode = ZKE_PERSISTENT; mode <= ZKE_CONTAINER; mode++) {
    add_create(&b, paths[mode], mode);
  }
  zke_op_create_ttl(next(&b), "/5", "", 0, ZKE_OPEN_ACL,
                    ZKE_PERSISTENT_WITH_TTL, 60000);
  zke_op_create_ttl(next(&b), "/6", "", 0, ZKE_OPEN_ACL,
                    ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, ZKE_MAX_TTL);
  run(z, &b, "0 0 0 0 0 0 0");
  ck_assert_str_eq(b.results[2].path, "/20000000002");
  ck_assert_str_eq(b.results[3].path, "/30000000003");
  ck_assert_str_eq(b.results[5].path, "/5");
  ck_assert_str_eq(b.results[6].path, "/60000000006");
  for (int i = 0; i < 7; i++) {
    bool ephemeral = i == 1 || i == 3;
    ck_assert_int_eq(b.results[i].stat.ephemeralOwner,
                     ephemeral ? zke_session_id(z) : 0);
  }
  clear(&b);
  ck_ok(zke_close(z));
}

/* 12 #43: an emptied parent may go; what was deleted may come back. */
TEST(delete_and_recreate) {
  zke *z = memory();
  batch b = {0};
  make(z, "/p");
  make(z, "/p/c");
  add_delete(&b, "/p/c", 0);
  add_delete(&b, "/p", 0);
  run(z, &b, "0 0");
  clear(&b);
  ck_rc(exists(z, "/p"), ZKE_NONODE);
  make(z, "/n");
  int64_t old = test_stat(z, "/n").czxid;
  add_delete(&b, "/n", -1);
  add_create(&b, "/n", ZKE_PERSISTENT);
  run(z, &b, "0 0");
  clear(&b);
  zke_stat n = test_stat(z, "/n");
  ck_assert_int_eq(n.czxid, old + 1);
  ck_assert_int_eq(n.version, 0);
  ck_ok(zke_close(z));
}

/* 12 #19: sequence numbers follow each other. */
TEST(sequence_numbers_of_a_multi_follow_each_other) {
  zke *z = memory();
  batch b = {0};
  make(z, "/p");
  add_create(&b, "/p/a-", ZKE_PERSISTENT_SEQUENTIAL);
  add_create(&b, "/p/a-", ZKE_PERSISTENT_SEQUENTIAL);
  add_create(&b, "/p/e-", ZKE_EPHEMERAL_SEQUENTIAL);
  add_create(&b, "/p/", ZKE_PERSISTENT_SEQUENTIAL);
  run(z, &b, "0 0 0 0");
  ck_assert_str_eq(b.results[0].path, "/p/a-0000000000");
  ck_assert_str_eq(b.results[1].path, "/p/a-0000000001");
  ck_assert_str_eq(b.results[2].path, "/p/e-0000000002");
  ck_assert_str_eq(b.results[3].path, "/p/0000000003");
  clear(&b);
  ck_ok(zke_close(z));
}

/* 12 #19: a refused multi gives its numbers back. */
TEST(sequences_after_refusal) {
  zke *z = memory();
  batch b = {0};
  make(z, "/p");
  add_create(&b, "/p/a-", ZKE_PERSISTENT_SEQUENTIAL);
  add_create(&b, "/p/a-", ZKE_PERSISTENT_SEQUENTIAL);
  add_delete(&b, "/p/nope", -1);
  run(z, &b, "0 0 -101");
  clear(&b);
  add_create(&b, "/p/a-", ZKE_PERSISTENT_SEQUENTIAL);
  run(z, &b, "0");
  ck_assert_str_eq(b.results[0].path, "/p/a-0000000000");
  clear(&b);
  ck_ok(zke_close(z));
}

/* 12 #44, #39: nothing to do is done, at the price of one zxid. */
TEST(empty_multi) {
  zke *z = memory();
  batch b = {0};
  int64_t before = test_zxid(z);
  spoil(&b);
  ck_ok(zke_multi(z, b.ops, 0, b.results));
  ck_assert(is_spoilt(&b));
  ck_ok(zke_multi(z, NULL, 0, NULL));
  ck_assert_int_eq(test_zxid(z), before + 3);
  ck_ok(zke_close(z));
}

/* 4: check alone changes nothing but the zxid. */
TEST(check_alone) {
  zke *z = memory();
  batch b = {0};
  make(z, "/a");
  zke_stat before = test_stat(z, "/a");
  add_check(&b, "/a", 0);
  add_check(&b, "/a", -1);
  add_check(&b, "/", -1);
  run(z, &b, "0 0 0");
  clear(&b);
  test_expect_stat(test_stat(z, "/a"), before);
  ck_assert_int_eq(test_zxid(z), before.czxid + 2);
  ck_ok(zke_close(z));
}

/* zkembed.h: results may be left away, whatever happens. */
TEST(without_results) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_create(&b, "/s-", ZKE_PERSISTENT_SEQUENTIAL);
  ck_ok(zke_multi(z, b.ops, b.count, NULL));
  ck_rc(zke_multi(z, b.ops, b.count, NULL), ZKE_NODEEXISTS);
  expect_children(z, "/", "a s-0000000001 zookeeper");
  ck_ok(zke_close(z));
}

/* 4: as many operations as one likes. */
TEST(a_thousand_operations) {
  enum { MANY = 1000 };
  static zke_op ops[MANY];
  static zke_op_result results[MANY];
  zke *z = memory();
  make(z, "/p");
  for (int i = 0; i < MANY; i++) {
    zke_op_create(&ops[i], "/p/s-", "", 0, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT_SEQUENTIAL);
  }
  ck_ok(zke_multi(z, ops, MANY, results));
  for (int i = 0; i < MANY; i++) {
    char expected[32];
    snprintf(expected, sizeof expected, "/p/s-%010d", i);
    ck_assert_str_eq(results[i].path, expected);
  }
  zke_results_clear(results, MANY);
  zke_stat p = test_stat(z, "/p");
  ck_assert_int_eq(p.numChildren, MANY);
  ck_assert_int_eq(p.pzxid, p.czxid + 1);
  ck_ok(zke_close(z));
}

/* ---- refusal ---- */

/* 12 #40: before it 0, its own code, behind it "not tried"; nothing done. */
TEST(refusal_in_the_middle) {
  zke *z = memory();
  batch b = {0};
  make(z, "/x");
  zke_stat before = test_stat(z, "/x");
  int64_t zxid = test_zxid(z);
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_delete(&b, "/nope", -1);
  add_set(&b, "/x", "data", 0);
  add_create(&b, "/b", ZKE_PERSISTENT);
  run(z, &b, "0 -101 -2 -2");
  ck_says("/nope");
  clear(&b);
  test_expect_stat(test_stat(z, "/x"), before);
  expect_children(z, "/", "x zookeeper");
  ck_assert_int_eq(test_zxid(z), zxid + 1); /* P1 */
  ck_ok(zke_close(z));
}

/* 12 #41: only the first refusal is told. */
TEST(first_refusal_counts) {
  zke *z = memory();
  batch b = {0};
  make(z, "/x");
  add_check(&b, "/x", 0);
  add_delete(&b, "/one", -1);
  add_delete(&b, "/two", -1);
  run(z, &b, "0 -101 -2");
  clear(&b);
  ck_ok(zke_close(z));
}

/* 12 #45: the results of a refused multi own nothing. */
TEST(refusal_leaves_no_outputs) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_create(&b, "/s", ZKE_PERSISTENT_SEQUENTIAL);
  add_set(&b, "/a", "x", 0);
  add_check(&b, "/nope", -1);
  add_create(&b, "/b", ZKE_PERSISTENT);
  run(z, &b, "0 0 0 -101 -2");
  for (int i = 0; i < b.count; i++) {
    ck_assert_ptr_null(b.results[i].path);
    ck_assert_ptr_null(b.results[i].data);
    ck_assert_ptr_null(b.results[i].children);
  }
  clear(&b);
  ck_ok(zke_close(z));
}

/* Each operation's refusals.  The tree: /x with child k, both version 0;
 * /e ephemeral; /shut for nobody, with child k. */
static const struct {
  int type;
  const char *path;
  int version, mode;
  const zke_acls *acls;
  int rc;
} refusals[] = {
    {ZKE_OP_CREATE, "/x", 0, 0, &zke_open_acl, ZKE_NODEEXISTS},
    {ZKE_OP_CREATE, "/", 0, 0, &zke_open_acl, ZKE_NODEEXISTS},
    {ZKE_OP_CREATE, "/nope/a", 0, 0, &zke_open_acl, ZKE_NONODE},
    {ZKE_OP_CREATE, "/nope/a", 0, 0, &no_acls, ZKE_INVALIDACL},
    {ZKE_OP_CREATE, "/a", 0, 0, NULL, ZKE_INVALIDACL},
    {ZKE_OP_CREATE, "/a", 0, 0, &zke_creator_all_acl, ZKE_INVALIDACL},
    {ZKE_OP_CREATE, "/e/a", 0, 0, &zke_open_acl, ZKE_NOCHILDRENFOREPHEMERALS},
    {ZKE_OP_CREATE, "/shut/a", 0, 0, &zke_open_acl, ZKE_NOAUTH},
    {ZKE_OP_CREATE, "/x/\x7f", 0, 0, &zke_open_acl, ZKE_BADARGUMENTS},
    {ZKE_OP_CREATE, "/nope/\x7f", 0, 0, &zke_open_acl, ZKE_NONODE},
    {ZKE_OP_DELETE, "/nope", -1, 0, NULL, ZKE_NONODE},
    {ZKE_OP_DELETE, "/nope/a", -1, 0, NULL, ZKE_NONODE},
    {ZKE_OP_DELETE, "/x", 0, 0, NULL, ZKE_NOTEMPTY},
    {ZKE_OP_DELETE, "/x", 1, 0, NULL, ZKE_BADVERSION},
    {ZKE_OP_DELETE, "/x/k", -2, 0, NULL, ZKE_BADVERSION},
    {ZKE_OP_DELETE, "/shut/k", -1, 0, NULL, ZKE_NOAUTH},
    {ZKE_OP_DELETE, "/", -1, 0, NULL, ZKE_BADARGUMENTS},
    {ZKE_OP_DELETE, "/zookeeper/quota", -1, 0, NULL, ZKE_BADARGUMENTS},
    {ZKE_OP_SET, "/nope", -1, 0, NULL, ZKE_NONODE},
    {ZKE_OP_SET, "/x", 1, 0, NULL, ZKE_BADVERSION},
    {ZKE_OP_SET, "/x", -2, 0, NULL, ZKE_BADVERSION},
    {ZKE_OP_SET, "/shut", -1, 0, NULL, ZKE_NOAUTH},
    {ZKE_OP_SET, "/\x7f", -1, 0, NULL, ZKE_BADARGUMENTS},
    {ZKE_OP_CHECK, "/nope", -1, 0, NULL, ZKE_NONODE},
    {ZKE_OP_CHECK, "/nope", 5, 0, NULL, ZKE_NONODE},
    {ZKE_OP_CHECK, "/x", 1, 0, NULL, ZKE_BADVERSION},
    {ZKE_OP_CHECK, "/x", -2, 0, NULL, ZKE_BADVERSION},
    {ZKE_OP_CHECK, "/shut", -1, 0, NULL, ZKE_NOAUTH},
    {ZKE_OP_CHECK, "/shut", 5, 0, NULL, ZKE_NOAUTH},
    {ZKE_OP_CHECK, "/\x7f", -1, 0, NULL, ZKE_BADARGUMENTS},
};

/* The nodes at which operations are refused, for each reason. */
static zke *refusal_tree(void) {
  zke *z = memory();
  zke_acl nobody = {0, "world", "anyone"};
  make(z, "/x");
  make(z, "/x/k");
  make(z, "/shut");
  make(z, "/shut/k");
  ck_ok(zke_create(z, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_set_acl(z, "/shut", -1, &(zke_acls){1, &nobody}, NULL));
  return z;
}

/* 4, 12 #35: each refusal in the place of the second of three. */
TEST_LOOP(refusal_of_each_kind, 0, COUNT(refusals)) {
  zke *z = refusal_tree();
  batch b = {0};
  char codes[40];
  int64_t before = test_zxid(z);
  add_create(&b, "/first", ZKE_PERSISTENT);
  *next(&b) = (zke_op){.type = refusals[_i].type,
                       .path = refusals[_i].path,
                       .data = "",
                       .acls = refusals[_i].acls,
                       .mode = refusals[_i].mode,
                       .version = refusals[_i].version};
  add_create(&b, "/third", ZKE_PERSISTENT);
  snprintf(codes, sizeof codes, "0 %d -2", refusals[_i].rc);
  run(z, &b, codes);
  clear(&b);
  expect_children(z, "/", "e shut x zookeeper");
  ck_assert_int_eq(test_zxid(z), before + 1);
  ck_ok(zke_close(z));
}

/* 12 #43: also what an earlier operation made can refuse. */
TEST(refusal_by_an_earlier_operation) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/e", ZKE_EPHEMERAL);
  add_create(&b, "/e/child", ZKE_PERSISTENT);
  run(z, &b, "0 -108");
  clear(&b);
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_create(&b, "/a", ZKE_PERSISTENT);
  run(z, &b, "0 -110");
  clear(&b);
  make(z, "/b");
  add_delete(&b, "/b", -1);
  add_set(&b, "/b", "x", -1);
  run(z, &b, "0 -101");
  clear(&b);
  add_set(&b, "/b", "x", 0);
  add_set(&b, "/b", "x", 0);
  run(z, &b, "0 -103");
  clear(&b);
  add_create(&b, "/b/c", ZKE_PERSISTENT);
  add_delete(&b, "/b", -1);
  run(z, &b, "0 -111");
  clear(&b);
  expect_children(z, "/", "b zookeeper");
  ck_assert_int_eq(test_stat(z, "/b").version, 0);
  ck_ok(zke_close(z));
}

/* ---- what is refused before anything is looked at ---- */

static const char *const malformed[] = {
    NULL, "", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/../a", "/\x01",
};

/* 12 #44: a malformed path anywhere; the results are untouched. */
TEST_LOOP(malformed_path, 0, COUNT(malformed)) {
  const char *path = malformed[_i];
  zke *z = memory();
  batch b = {0};
  make(z, "/x");
  int64_t before = test_zxid(z);
  for (int type = ZKE_OP_CREATE; type <= ZKE_OP_CHECK; type++) {
    add_delete(&b, "/nope", -1); /* would be -101 */
    *next(&b) = (zke_op){.type = type,
                         .path = path,
                         .data = "",
                         .acls = ZKE_OPEN_ACL,
                         .version = -1};
    run_refused(z, &b, ZKE_MARSHALLINGERROR);
    b.count = 0;
  }
  ck_assert_int_eq(test_zxid(z), before + 1);
  ck_ok(zke_close(z));
}

/* 1.3: the sequential endings are no malformed paths here either. */
TEST(sequential_endings) {
  zke *z = memory();
  batch b = {0};
  make(z, "/c");
  add_create(&b, "/c/.", ZKE_PERSISTENT_SEQUENTIAL);
  add_create(&b, "/c/..", ZKE_EPHEMERAL_SEQUENTIAL);
  run(z, &b, "0 0");
  ck_assert_str_eq(b.results[0].path, "/c/.0000000000");
  ck_assert_str_eq(b.results[1].path, "/c/..0000000001");
  clear(&b);
  add_create(&b, "/c/.", ZKE_PERSISTENT);
  run_refused(z, &b, ZKE_MARSHALLINGERROR);
  ck_ok(zke_close(z));
}

/* 12 #64: on an expired handle. */
TEST(expired_session) {
  zke *z = memory(), *other = test_session(z, NULL);
  batch b = {0};
  ck_ok(zke_expire(other, zke_session_id(z)));
  ck_ok(zke_dispatch(z, NULL));
  add_create(&b, "/a", ZKE_PERSISTENT);
  run_refused(z, &b, ZKE_MARSHALLINGERROR);
  expect_children(other, "/", "zookeeper");
  ck_ok(zke_close(z));
  ck_ok(zke_close(other));
}

/* zkembed.h: operations that read, and strangers. */
TEST(operations_that_do_not_belong) {
  static const int types[] = {ZKE_OP_GET, ZKE_OP_CHILDREN, ZKE_OP_UNTOLD, 0, 9,
                              -1,         INT_MAX};
  zke *z = memory();
  batch b = {0};
  for (int i = 0; i < COUNT(types); i++) {
    add_create(&b, "/a", ZKE_PERSISTENT);
    *next(&b) = (zke_op){.type = types[i], .path = "/"};
    run_refused(z, &b, ZKE_BADARGUMENTS);
    b.count = 0;
  }
  ck_rc(exists(z, "/a"), ZKE_NONODE);
  ck_ok(zke_close(z));
}

static void add_fail(batch *b, int rc) { zke_op_fail(next(b), rc); }

/* 4: an operation that is refused beforehand takes its turn: what comes before
 * it is judged first. */
TEST(an_operation_that_fails_fails_the_multi) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_fail(&b, ZKE_BADARGUMENTS);
  add_delete(&b, "/none", -1);
  run(z, &b, "0 -8 -2");
  ck_rc(exists(z, "/a"), ZKE_NONODE);
  clear(&b);
  add_delete(&b, "/none", -1);
  add_fail(&b, ZKE_BADARGUMENTS);
  run(z, &b, "-101 -2");
  clear(&b);
  add_fail(&b, -123); /* ZooKeeper's for reconfig */
  run(z, &b, "-123");
  ck_says("refused by its caller");
  ck_ok(zke_close(z));
}

/* zkembed.h: with codes that say something of the one operation only, in a
 * multi and in a multi_read. */
TEST(codes_that_an_operation_can_fail_with) {
  static const struct {
    int code;
    bool can;
  } rows[] = {{0, false},
              {1, false},
              {2, false}, /* the engine's own */
              {INT_MIN, false},
              {ZKE_SYSTEMERROR, false},
              {ZKE_RUNTIMEINCONSISTENCY, false},
              {ZKE_CONNECTIONLOSS, false},
              {ZKE_MARSHALLINGERROR, true},
              {ZKE_UNIMPLEMENTED, true},
              {ZKE_OPERATIONTIMEOUT, false},
              {ZKE_BADARGUMENTS, true},
              {ZKE_INVALIDSTATE, false},
              {-99, false},
              {-100, true},
              {-199, true},
              {-200, false},
              {ZKE_FULL, false}};
  zke *z = memory();
  for (int i = 0; i < COUNT(rows); i++) {
    batch b = {0};
    add_fail(&b, rows[i].code);
    spoil(&b);
    int rc = zke_multi(z, b.ops, 1, b.results);
    ck_assert_int_eq(rc, rows[i].can ? rows[i].code : ZKE_BADARGUMENTS);
    ck_assert_int_eq(is_spoilt(&b), !rows[i].can);
    spoil(&b);
    ck_rc(zke_multi_read(z, b.ops, 1, b.results),
          rows[i].can ? ZKE_OK : ZKE_BADARGUMENTS);
    if (rows[i].can) ck_assert_int_eq(b.results[0].rc, rows[i].code);
    ck_assert_int_eq(is_spoilt(&b), !rows[i].can);
  }
  ck_ok(zke_close(z));
}

/* P11: impossible arguments. */
TEST(impossible_arguments) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  spoil(&b);
  ck_rc(zke_multi(z, b.ops, -1, b.results), ZKE_BADARGUMENTS);
  ck_rc(zke_multi(z, b.ops, INT_MIN, b.results), ZKE_BADARGUMENTS);
  ck_rc(zke_multi(z, NULL, 1, b.results), ZKE_BADARGUMENTS);
  ck_says("1 operations, but ops is NULL");
  ck_rc(zke_multi(NULL, b.ops, 1, b.results), ZKE_BADARGUMENTS);
  ck_assert(is_spoilt(&b));
  ck_rc(exists(z, "/a"), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* P11: modes, TTLs and lengths that zke_create() would refuse too. */
TEST(impossible_operations) {
  zke_op rows[9];
  zke *z = memory();
  zke_op_create(&rows[0], "/a", "", 0, ZKE_OPEN_ACL, 7);
  zke_op_create(&rows[1], "/a", "", 0, ZKE_OPEN_ACL, -1);
  zke_op_create(&rows[2], "/a", "", 0, ZKE_OPEN_ACL, 5);
  zke_op_create_ttl(&rows[3], "/a", "", 0, ZKE_OPEN_ACL, 5, 0);
  zke_op_create_ttl(&rows[4], "/a", "", 0, ZKE_OPEN_ACL, 6, ZKE_MAX_TTL + 1);
  zke_op_create_ttl(&rows[5], "/a", "", 0, ZKE_OPEN_ACL, 0, 1000);
  zke_op_create(&rows[6], "/a", "", -2, ZKE_OPEN_ACL, 0);
  zke_op_create(&rows[7], "/a", NULL, 1, ZKE_OPEN_ACL, 0);
  zke_op_set(&rows[8], "/", NULL, 1, -1);
  for (int i = 0; i < COUNT(rows); i++) {
    zke_op two[2] = {rows[i]};
    zke_op_create(&two[1], "/b", "", 0, ZKE_OPEN_ACL, 0);
    int rc = zke_multi(z, two, 2, NULL);
    ck_assert_msg(rc == ZKE_BADARGUMENTS, "row %d: %s", i, zke_error_name(rc));
  }
  expect_children(z, "/", "zookeeper");
  ck_ok(zke_close(z));
}

/* Sizes of two sets under a limit of 1000 bytes. */
static const struct {
  int first, second;
  bool fits;
} sums[] = {{1000, 0, true},    {1000, -1, true},  {500, 500, true},
            {999, 1, true},     {1001, 0, false},  {1000, 1, false},
            {1, 1000, false},   {501, 500, false}, {0, INT_MAX, false},
            {1000, 1000, false}};

/* P1, 12 #74: the limit is on each value and on their sum. */
TEST_LOOP(data_limit, 0, COUNT(sums)) {
  static char data[2000];
  zke_options options = {.size = sizeof options, .data_limit = 1000};
  zke *z = NULL;
  batch b = {0};
  ck_ok(zke_open(":memory:", &options, &z));
  make(z, "/x");
  zke_op_set(next(&b), "/x", data, sums[_i].first, 0);
  zke_op_create(next(&b), "/y", data, sums[_i].second, ZKE_OPEN_ACL, 0);
  if (sums[_i].fits) {
    run(z, &b, "0 0");
    clear(&b);
  } else {
    run_refused(z, &b, ZKE_BADARGUMENTS);
    ck_says("1000");
  }
  ck_assert_int_eq(test_stat(z, "/x").version, sums[_i].fits);
  ck_ok(zke_close(z));
}

/* 12 #74: as in ZooKeeper two times 600,000 bytes are too much. */
TEST(default_data_limit) {
  char *data = calloc(1, 600000);
  zke *z = memory();
  batch b = {0};
  ck_assert_ptr_nonnull(data);
  zke_op_create(next(&b), "/a", data, 600000, ZKE_OPEN_ACL, 0);
  zke_op_create(next(&b), "/b", data, 600000, ZKE_OPEN_ACL, 0);
  run_refused(z, &b, ZKE_BADARGUMENTS);
  b.ops[1].len = 448576;
  run(z, &b, "0 0");
  clear(&b);
  free(data);
  ck_ok(zke_close(z));
}

/* ---- watches ---- */

/* 12 #55: events in the order of the operations, one-shot rules inside. */
TEST(watches_fire_in_order) {
  zke *z = memory();
  test_events e = {0};
  batch b = {0};
  make(z, "/p");
  make(z, "/p/n");
  ck_ok(zke_get(z, "/p/n", test_record, &e, NULL, NULL, NULL));
  ck_ok(zke_children(z, "/p/n", test_record, &e, NULL, NULL));
  ck_ok(zke_children(z, "/p", test_record, &e, NULL, NULL));
  ck_rc(zke_exists(z, "/p/n/c", test_record, &e, NULL), ZKE_NONODE);
  add_set(&b, "/p/n", "1", -1);
  add_set(&b, "/p/n", "2", -1);
  add_create(&b, "/p/n/c", ZKE_PERSISTENT);
  add_delete(&b, "/p/n/c", -1);
  add_delete(&b, "/p/n", -1);
  add_create(&b, "/p/n", ZKE_PERSISTENT);
  run(z, &b, "0 0 0 0 0 0");
  clear(&b);
  test_expect(z, &e, "CHANGED /p/n; CREATED /p/n/c; CHILD /p/n; CHILD /p");
  ck_ok(zke_close(z));
}

/* 12 #56: deleted and created again is DELETED, and the watches are gone. */
TEST(watches_on_recreated_node) {
  zke *z = memory();
  test_events e = {0};
  batch b = {0};
  make(z, "/n");
  ck_ok(zke_exists(z, "/n", test_record, &e, NULL));
  ck_ok(zke_children(z, "/n", test_record, &e, NULL, NULL));
  add_delete(&b, "/n", -1);
  add_create(&b, "/n", ZKE_PERSISTENT);
  run(z, &b, "0 0");
  clear(&b);
  test_expect(z, &e, "DELETED /n");
  ck_ok(zke_set(z, "/n", "x", 1, -1, NULL));
  make(z, "/n/c");
  test_expect(z, &e, "");
  ck_ok(zke_close(z));
}

/* 4: created and deleted within one multi. */
TEST(watches_on_passing_node) {
  zke *z = memory();
  test_events e = {0};
  batch b = {0};
  ck_rc(zke_exists(z, "/n", test_record, &e, NULL), ZKE_NONODE);
  ck_ok(zke_children(z, "/", test_record, &e, NULL, NULL));
  add_create(&b, "/n", ZKE_PERSISTENT);
  add_delete(&b, "/n", -1);
  run(z, &b, "0 0");
  clear(&b);
  test_expect(z, &e, "CREATED /n; CHILD /");
  ck_ok(zke_close(z));
}

/* 12 #57: a refused multi fires nothing and takes no watch. */
TEST(watches_survive_refusal) {
  zke *z = memory();
  test_events e = {0};
  batch b = {0};
  make(z, "/n");
  ck_ok(zke_exists(z, "/n", test_record, &e, NULL));
  ck_ok(zke_children(z, "/", test_record, &e, NULL, NULL));
  add_set(&b, "/n", "x", -1);
  add_create(&b, "/m", ZKE_PERSISTENT);
  add_delete(&b, "/nope", -1);
  run(z, &b, "0 0 -101");
  clear(&b);
  test_expect(z, &e, "");
  ck_ok(zke_set(z, "/n", "x", 1, 0, NULL));
  make(z, "/m");
  test_expect(z, &e, "CHANGED /n; CHILD /");
  ck_ok(zke_close(z));
}

/* ---- the read form ---- */

static zke *read_tree(void) {
  zke *z = refusal_tree();
  ck_ok(zke_set(z, "/x", "data", 4, 0, NULL));
  ck_ok(zke_set(z, "/x/k", NULL, -1, 0, NULL));
  return z;
}

/* Ask what the session was not told of below a path: the result and the
 * paths. */
static void untold(zke *z, const char *path, int most, int rc,
                   const char *paths) {
  zke_op op;
  zke_op_result r;
  zke_op_untold(&op, path, most);
  memset(&r, 0x5a, sizeof r);
  ck_ok(zke_multi_read(z, &op, 1, &r));
  ck_assert_int_eq(r.rc, rc);
  if (rc == ZKE_OK)
    expect_strings(r.children, paths);
  else
    ck_assert_ptr_null(r.children);
  zke_results_clear(&r, 1);
}

/* What a watcher expects, each time it is called. */
typedef struct asked {
  int count;
  const char *expected[4];
} asked;

static void ask(zke *z, int type, int state, const char *path, void *context) {
  asked *a = context;
  (void)type, (void)state, (void)path;
  ck_assert_int_lt(a->count, 4);
  untold(z, "/", 100, ZKE_OK, a->expected[a->count++]);
}

/* What a session has not been told of a path and below, in order; no more than
 * asked for. */
TEST(read_untold) {
  zke *z = memory(), *y = test_session(z, NULL);
  asked a = {0};
  untold(y, "/", 0, ZKE_OK, "");
  ck_ok(zke_add_watch(y, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, ask, &a));
  make(z, "/a");
  ck_ok(zke_set(z, "/a", "x", 1, -1, NULL));
  make(z, "/ab");
  make(z, "/a/b");
  untold(y, "/", 4, ZKE_OK, "/a /a /ab /a/b");
  untold(y, "/", 3, ZKE_RUNTIMEINCONSISTENCY, NULL);
  untold(y, "/a", 3, ZKE_OK, "/a /a /a/b");
  untold(y, "/a/b/c", 0, ZKE_OK, "");
  untold(z, "/", 9, ZKE_OK, "");
  ck_ok(zke_remove_watch(y, "/", ZKE_WATCH_ANY, ask, &a));
  ck_ok(zke_add_watch(y, "/a", ZKE_WATCH_PERSISTENT_RECURSIVE, ask, &a));
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_int_eq(a.count, 0); /* registered after these */
  untold(y, "/", 9, ZKE_OK, "");
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* In a callback the event that it is about is among them. */
TEST(read_untold_in_a_callback) {
  zke *z = memory(), *y = test_session(z, "/c");
  asked a = {0, {"/a /b /a", "/b /a", "/a", NULL}};
  make(z, "/c");
  ck_ok(zke_add_watch(y, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, ask, &a));
  make(z, "/c/a");
  make(z, "/c/b");
  ck_ok(zke_delete(z, "/c/a", -1));
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_int_eq(a.count, 3);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* What a watcher is owed that was set too late is among them. */
TEST(read_untold_of_what_is_owed) {
  zke *z = memory();
  test_events events = {0};
  make(z, "/a");
  make(z, "/b");
  ck_ok(zke_set_watch(z, "/a", ZKE_WATCH_EXIST, 0, test_record, &events));
  untold(z, "/", 9, ZKE_OK, "/a");
  untold(z, "/b", 9, ZKE_OK, "");
  ck_ok(zke_set_watch(z, "/b", ZKE_WATCH_EXIST, 0, test_record, &events));
  untold(z, "/", 9, ZKE_OK, "/a /b");
  test_expect(z, &events, "CREATED /a; CREATED /b");
  untold(z, "/", 9, ZKE_OK, "");
  ck_ok(zke_close(z));
}

/* Of more than a batch none is left out; and what was dropped is not known. */
TEST(read_untold_of_many) {
  zke_options o = {.size = sizeof o, .event_limit = 200};
  zke *z = memory(), *y;
  test_events events = {0};
  zke_op op;
  zke_op_result r;
  ck_ok(zke_open_session(z, &o, &y));
  ck_ok(zke_add_watch(y, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      &events));
  for (int i = 0; i < 150; i++) ck_ok(zke_set(z, "/", "", 0, -1, NULL));
  zke_op_untold(&op, "/", 150);
  ck_ok(zke_multi_read(y, &op, 1, &r));
  ck_assert_int_eq(r.children->count, 150);
  zke_results_clear(&r, 1);
  untold(y, "/", 149, ZKE_RUNTIMEINCONSISTENCY, NULL);
  for (int i = 0; i < 60; i++) ck_ok(zke_set(z, "/", "", 0, -1, NULL));
  untold(y, "/", 1000, ZKE_RUNTIMEINCONSISTENCY, NULL);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* What a session may not see is counted, before it is dispatched and after. */
TEST(read_untold_in_silence) {
  zke *z = memory(), *y = test_session(z, NULL);
  zke_op op;
  zke_op_result r[2];
  ck_ok(zke_add_auth(z, "digest", "me:pw", 5));
  ck_ok(zke_create(z, "/s", "", 0, ZKE_CREATOR_ALL_ACL, 0, NULL, NULL));
  ck_ok(
      zke_add_watch(y, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_ignore, NULL));
  zke_op_untold(&op, "/", 9);
  for (int i = 0; i < 3; i++) {
    if (i < 2) ck_ok(zke_set(z, "/s", "", 0, -1, NULL));
    ck_ok(zke_multi_read(y, &op, 1, &r[0]));
    ck_ok(zke_dispatch(y, NULL));
    ck_ok(zke_multi_read(y, &op, 1, &r[1]));
    for (int k = 0; k < 2; k++) {
      ck_assert_int_eq(r[k].len, i < 2 ? i + 1 : 2);
      ck_assert_int_eq(r[k].children->count, 0);
    }
    zke_results_clear(r, 2);
  }
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* 4: each read has its own result. */
TEST(read_results) {
  zke *z = read_tree();
  batch b = {0};
  int64_t before = test_zxid(z);
  add_get(&b, "/x");
  add_children(&b, "/x");
  add_get(&b, "/x/k");
  add_children(&b, "/x/k");
  spoil(&b);
  ck_ok(zke_multi_read(z, b.ops, b.count, b.results));
  for (int i = 0; i < b.count; i++) ck_assert_int_eq(b.results[i].rc, ZKE_OK);
  ck_assert_int_eq(b.results[0].len, 4);
  ck_assert_str_eq(b.results[0].data, "data");
  ck_assert_int_eq(b.results[0].stat.version, 1);
  ck_assert_ptr_null(b.results[0].children);
  expect_strings(b.results[1].children, "k");
  ck_assert_ptr_null(b.results[1].data);
  test_expect_stat(b.results[1].stat, test_stat(z, "/x"));
  ck_assert_int_eq(b.results[2].len, -1);
  ck_assert_ptr_null(b.results[2].data);
  expect_strings(b.results[3].children, "");
  clear(&b);
  ck_assert_int_eq(test_zxid(z), before + 1);
  ck_ok(zke_close(z));
}

/* zke_op_children(): so many of the children behind a name, by bytes; the Stat
 * is the whole node's. */
TEST(read_ranges) {
  static const struct {
    const char *after;
    int most;
    const char *names;
  } cases[] = {{"", 0, "a b-1 b-2 c"}, {NULL, 2, "a b-1"}, {"a", 2, "b-1 b-2"},
               {"b", 0, "b-1 b-2 c"},  {"b-2", 1, "c"},    {"b-~", 9, "c"},
               {"c", 1, ""},           {"\xff", 0, ""}};
  enum { CASES = sizeof cases / sizeof *cases };
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/d", ZKE_PERSISTENT);
  add_create(&b, "/d/c", ZKE_PERSISTENT);
  add_create(&b, "/d/a", ZKE_PERSISTENT);
  add_create(&b, "/d/b-2", ZKE_PERSISTENT);
  add_create(&b, "/d/b-1", ZKE_PERSISTENT);
  add_create(&b, "/d/a/below", ZKE_PERSISTENT);
  run(z, &b, "0 0 0 0 0 0");
  clear(&b);
  for (int i = 0; i < CASES; i++)
    zke_op_children(next(&b), "/d", cases[i].after, cases[i].most);
  ck_ok(zke_multi_read(z, b.ops, b.count, b.results));
  for (int i = 0; i < CASES; i++) {
    ck_assert_int_eq(b.results[i].rc, ZKE_OK);
    expect_strings(b.results[i].children, cases[i].names);
    ck_assert_int_eq(b.results[i].stat.numChildren, 4);
  }
  clear(&b);
  zke_op_children(next(&b), "/d", NULL, -1);
  ck_rc(zke_multi_read(z, b.ops, b.count, b.results), ZKE_BADARGUMENTS);
  ck_says("at most -1");
  ck_ok(zke_close(z));
}

/* 4: one that fails does not touch the others. */
TEST(read_failures_are_independent) {
  static const int codes[] = {ZKE_OK,          ZKE_NONODE, ZKE_NOAUTH,
                              ZKE_NONODE,      ZKE_NOAUTH, ZKE_OK,
                              ZKE_BADARGUMENTS};
  zke *z = read_tree();
  batch b = {0};
  add_get(&b, "/x");
  add_get(&b, "/nope");
  add_get(&b, "/shut");
  add_children(&b, "/nope");
  add_children(&b, "/shut");
  add_children(&b, "/");
  add_fail(&b, ZKE_BADARGUMENTS);
  spoil(&b);
  ck_ok(zke_multi_read(z, b.ops, b.count, b.results));
  for (int i = 0; i < b.count; i++) {
    ck_assert_int_eq(b.results[i].rc, codes[i]);
    ck_assert_ptr_null(b.results[i].path);
    if (codes[i] == ZKE_OK) continue;
    ck_assert_ptr_null(b.results[i].data);
    ck_assert_ptr_null(b.results[i].children);
  }
  ck_assert_str_eq(b.results[0].data, "data");
  expect_strings(b.results[5].children, "e shut x zookeeper");
  clear(&b);
  ck_ok(zke_close(z));
}

/* zkembed.h, options.read_limit: what all results have together, names and
 * values.  A name has its end and a pointer beside it. */
TEST(a_read_has_a_limit) {
  enum { NAME = 1000, DATA = 500, ENDS = 1 + sizeof(char *) };
  static char path[NAME + 4] = "/d/", data[DATA];
  zke_options o = {.size = sizeof o, .read_limit = 2 * (NAME + ENDS) + DATA};
  zke *z = memory(), *y = NULL;
  batch b = {0};
  memset(path + 3, 'n', NAME);
  make(z, "/d");
  make(z, path);
  ck_ok(zke_set(z, "/d", data, DATA, -1, NULL));
  ck_ok(zke_open_session(z, &o, &y));
  add_children(&b, "/d");
  add_get(&b, "/none");
  add_children(&b, "/d");
  add_get(&b, "/d");
  ck_ok(zke_multi_read(y, b.ops, b.count, b.results));
  ck_assert_int_eq(b.results[1].rc, ZKE_NONODE);
  ck_assert_int_eq(b.results[3].len, DATA);
  zke_results_clear(b.results, b.count);
  ck_ok(zke_set(z, "/d", data, DATA - 1, -1, NULL));
  ck_ok(zke_multi_read(y, b.ops, b.count, b.results));
  zke_results_clear(b.results, b.count);
  make(z, "/d/x");
  spoil(&b);
  ck_rc(zke_multi_read(y, b.ops, b.count, b.results), ZKE_BADARGUMENTS);
  ck_says("more than 2518 bytes");
  ck_assert(is_spoilt(&b));
  ck_ok(zke_multi_read(z, b.ops, b.count, b.results));
  clear(&b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* zkembed.h: nothing to read, and what cannot be. */
TEST(read_arguments) {
  zke *z = read_tree();
  batch b = {0};
  ck_ok(zke_multi_read(z, NULL, 0, NULL));
  add_get(&b, "/x");
  spoil(&b);
  ck_rc(zke_multi_read(z, b.ops, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_multi_read(z, b.ops, -1, b.results), ZKE_BADARGUMENTS);
  ck_rc(zke_multi_read(z, NULL, 1, b.results), ZKE_BADARGUMENTS);
  ck_rc(zke_multi_read(NULL, b.ops, 1, b.results), ZKE_BADARGUMENTS);
  ck_assert(is_spoilt(&b));
  ck_ok(zke_close(z));
}

/* zkembed.h: a malformed path is the whole call's fault. */
TEST_LOOP(read_malformed_path, 0, COUNT(malformed)) {
  zke *z = read_tree();
  batch b = {0};
  add_get(&b, "/x");
  add_get(&b, malformed[_i]);
  spoil(&b);
  ck_rc(zke_multi_read(z, b.ops, 2, b.results), ZKE_MARSHALLINGERROR);
  b.count = 1;
  add_children(&b, malformed[_i]);
  ck_rc(zke_multi_read(z, b.ops, 2, b.results), ZKE_MARSHALLINGERROR);
  ck_assert(is_spoilt(&b));
  ck_ok(zke_close(z));
}

/* 1.2: a name that only the server refuses is just not there. */
TEST(read_strange_name) {
  zke *z = read_tree();
  batch b = {0};
  add_get(&b, "/\x7f");
  add_children(&b, "/\xff");
  ck_ok(zke_multi_read(z, b.ops, 2, b.results));
  ck_assert_int_eq(b.results[0].rc, ZKE_NONODE);
  ck_assert_int_eq(b.results[1].rc, ZKE_NONODE);
  clear(&b);
  ck_ok(zke_close(z));
}

/* 4: an operation that changes something does not belong here. */
TEST(read_with_a_change) {
  zke *z = read_tree();
  for (int type = ZKE_OP_CREATE; type <= ZKE_OP_CHECK; type++) {
    batch b = {0};
    add_get(&b, "/x");
    *next(&b) = (zke_op){
        .type = type, .path = "/x/k", .acls = ZKE_OPEN_ACL, .version = -1};
    spoil(&b);
    ck_rc(zke_multi_read(z, b.ops, 2, b.results), ZKE_MARSHALLINGERROR);
    ck_assert(is_spoilt(&b));
  }
  ck_assert_int_eq(test_stat(z, "/x/k").version, 1);
  ck_ok(zke_close(z));
}

/* ---- building blocks and resources ---- */

/* zkembed.h: what the seven builders write. */
TEST(builders_write_what_the_header_says) {
  zke_op op;
  memset(&op, 0xa5, sizeof op);
  zke_op_create_ttl(&op, "/a", "abc", 3, ZKE_READ_ACL, 5, 77);
  ck_assert_int_eq(op.type, ZKE_OP_CREATE);
  ck_assert_str_eq(op.path, "/a");
  ck_assert_str_eq(op.data, "abc");
  ck_assert_int_eq(op.len, 3);
  ck_assert_ptr_eq(op.acls, ZKE_READ_ACL);
  ck_assert_int_eq(op.mode, 5);
  ck_assert_int_eq(op.ttl_ms, 77);
  zke_op_create(&op, "/a", "abc", 3, ZKE_OPEN_ACL, 2);
  ck_assert_int_eq(op.ttl_ms, 0);
  ck_assert_int_eq(op.mode, 2);
  zke_op_set(&op, "/s", "xy", 2, 9);
  ck_assert_int_eq(op.type, ZKE_OP_SET);
  ck_assert_int_eq(op.version, 9);
  ck_assert_int_eq(op.len, 2);
  zke_op_delete(&op, "/d", 8);
  ck_assert_int_eq(op.type, ZKE_OP_DELETE);
  ck_assert_int_eq(op.version, 8);
  zke_op_check(&op, "/c", 7);
  ck_assert_int_eq(op.type, ZKE_OP_CHECK);
  ck_assert_int_eq(op.version, 7);
  zke_op_get(&op, "/g");
  ck_assert_int_eq(op.type, ZKE_OP_GET);
  zke_op_fail(&op, ZKE_NOAUTH);
  ck_assert_int_eq(op.type, ZKE_OP_FAIL);
  zke_op_untold(&op, "/u", 5);
  ck_assert_int_eq(op.type, ZKE_OP_UNTOLD);
  ck_assert_str_eq(op.path, "/u");
  ck_assert_int_eq(op.len, 5);
  zke_op_children(&op, "/h", NULL, 0);
  ck_assert_int_eq(op.type, ZKE_OP_CHILDREN);
  ck_assert_str_eq(op.path, "/h");
}

/* zkembed.h: clearing sets to zero, and may be done twice. */
TEST(results_clear) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_set(&b, "/a", "x", -1);
  run(z, &b, "0 0");
  zke_results_clear(b.results, 2);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(b.results[i].rc, 0);
    ck_assert_ptr_null(b.results[i].path);
    test_expect_stat(b.results[i].stat, (zke_stat){0});
  }
  zke_results_clear(b.results, 2);
  zke_results_clear(NULL, 0);
  ck_ok(zke_close(z));
}

/* Multis that succeed, are refused in the middle, and as a whole. */
static void use_everything(zke *z) {
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_create(&b, "/a/s", ZKE_EPHEMERAL_SEQUENTIAL);
  add_set(&b, "/a", "data", -1);
  run(z, &b, "0 0 0");
  zke_results_clear(b.results, b.count);
  run(z, &b, "-110 -2 -2");
  clear(&b);
  add_create(&b, "/b", ZKE_PERSISTENT);
  add_check(&b, "/nope", -1);
  run(z, &b, "0 -101");
  clear(&b);
  add_create(&b, "/b/", ZKE_PERSISTENT);
  run_refused(z, &b, ZKE_MARSHALLINGERROR);
  b.count = 0;
  add_get(&b, "/a");
  add_children(&b, "/a");
  add_get(&b, "/nope");
  ck_ok(zke_multi_read(z, b.ops, b.count, b.results));
  clear(&b);
}

/* P9: nothing of the handle's allocator is left. */
TEST(heap_is_balanced) {
  test_heap heap = {0};
  zke_options options = {.size = sizeof options,
                         .allocator = {test_heap_resize, &heap}};
  zke *z = NULL;
  batch b = {0};
  ck_ok(zke_open(":memory:", &options, &z));
  use_everything(z);
  add_create(&b, "/late", ZKE_PERSISTENT);
  run(z, &b, "0");
  ck_ok(zke_close(z));
  ck_assert_str_eq(b.results[0].path, "/late"); /* outlives the handle */
  clear(&b);
  ck_assert_int_gt(heap.calls, 0);
  ck_assert_int_eq(heap.live, 0);
}
