/* test_multi.c - several operations at once, beyond test/semantics/multi.txt:
 * very many operations, NULL pointers, a read in a callback, the builders, and
 * the ownership of results.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/engine/calls.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

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

static void add_get(batch *b, const char *path) { zke_op_get(next(b), path); }

static void add_children(batch *b, const char *path) {
  zke_op_children(next(b), path, NULL, 0);
}

/* Results that no call would leave. */
static void spoil(batch *b) { memset(b->results, 0xa5, sizeof b->results); }

static bool is_spoilt(const batch *b) {
  const unsigned char *bytes = (const unsigned char *)b->results;
  for (size_t i = 0; i < sizeof b->results; i++) {
    if (bytes[i] != 0xa5) return false;
  }
  return true;
}

static void clear(batch *b) {
  zke_results_clear(b->results, b->count);
  b->count = 0;
}

/* ---- changes ---- */

/* zkembed.h: results may be NULL, whatever happens. */
TEST(without_results) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  add_create(&b, "/s-", ZKE_PERSISTENT_SEQUENTIAL);
  ck_ok(zke_multi(z, b.ops, b.count, NULL));
  ck_rc(zke_multi(z, b.ops, b.count, NULL), ZKE_NODEEXISTS);
  expect_children(z, "/", "a s-0000000001 zookeeper");
}

/* 4: any number of operations. */
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
}

/* P11: impossible arguments are refused; an empty list is fine. */
TEST(impossible_arguments) {
  zke *z = memory();
  batch b = {0};
  ck_ok(zke_multi(z, NULL, 0, NULL));
  add_create(&b, "/a", ZKE_PERSISTENT);
  spoil(&b);
  ck_rc(zke_multi(z, b.ops, -1, b.results), ZKE_BADARGUMENTS);
  ck_rc(zke_multi(z, b.ops, INT_MIN, b.results), ZKE_BADARGUMENTS);
  ck_rc(zke_multi(z, NULL, 1, b.results), ZKE_BADARGUMENTS);
  ck_says("1 operations, but ops is NULL");
  ck_rc(zke_multi(NULL, b.ops, 1, b.results), ZKE_BADARGUMENTS);
  ck_assert(is_spoilt(&b));
  ck_rc(see(z, "/a"), ZKE_NONODE);
}

/* ---- the read form ---- */

/* Ask for the events below a path that the session was not told of: the result
 * and the paths. */
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

/* What a watcher expects at each call. */
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

/* In a callback the current event is among them. */
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
}

/* If they exceed a batch, none is left out; dropped events are not known. */
TEST(read_untold_of_many) {
  zke *z = memory();
  test_events events = {0};
  zke_op op;
  zke_op_result r;
  zke *y = session_as(z, .event_limit = 200);
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
}

/* zkembed.h, options.read_limit: the limit on all results together, names and
 * values.  A name also counts its terminator and a pointer. */
TEST(a_read_has_a_limit) {
  enum { NAME = 1000, DATA = 500, ENDS = 1 + sizeof(char *) };
  enum { LIMIT = 2 * (NAME + ENDS) + DATA };
  static char path[NAME + 4] = "/d/", data[DATA];
  char says[40];
  snprintf(says, sizeof says, "more than %d bytes", LIMIT);
  zke *z = memory();
  batch b = {0};
  memset(path + 3, 'n', NAME);
  make(z, "/d");
  make(z, path);
  ck_ok(zke_set(z, "/d", data, DATA, -1, NULL));
  zke *y = session_as(z, .read_limit = LIMIT);
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
  ck_says(says);
  ck_assert(is_spoilt(&b));
  ck_ok(zke_multi_read(z, b.ops, b.count, b.results));
  clear(&b);
}

/* zkembed.h: an empty list, and operations that cannot be read. */
TEST(read_arguments) {
  zke *z = memory();
  batch b = {0};
  ck_ok(zke_multi_read(z, NULL, 0, NULL));
  add_get(&b, "/");
  spoil(&b);
  ck_rc(zke_multi_read(z, b.ops, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_multi_read(z, b.ops, -1, b.results), ZKE_BADARGUMENTS);
  ck_rc(zke_multi_read(z, NULL, 1, b.results), ZKE_BADARGUMENTS);
  ck_rc(zke_multi_read(NULL, b.ops, 1, b.results), ZKE_BADARGUMENTS);
  ck_assert(is_spoilt(&b));
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

/* zkembed.h: clearing sets results to zero, and may be done twice. */
TEST(results_clear) {
  zke *z = memory();
  batch b = {0};
  add_create(&b, "/a", ZKE_PERSISTENT);
  zke_op_set(next(&b), "/a", "x", 1, -1);
  ck_ok(zke_multi(z, b.ops, 2, b.results));
  zke_results_clear(b.results, 2);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(b.results[i].rc, 0);
    ck_assert_ptr_null(b.results[i].path);
    test_expect_stat(b.results[i].stat, (zke_stat){0});
  }
  zke_results_clear(b.results, 2);
  zke_results_clear(NULL, 0);
}
