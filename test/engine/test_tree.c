/* test_tree.c - the tree in one process, beyond test/semantics/tree.txt: data
 * of every size, numbers that wrap, missing handles and outputs, and the names
 * of results.
 */
#include <limits.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "test/functions.h"
#include "test/engine/calls.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static int create_ttl(zke *z, const char *path, int mode, int64_t ttl_ms) {
  return zke_create_ttl(z, path, "", 0, ZKE_OPEN_ACL, mode, ttl_ms, NULL, NULL);
}

static int drop(zke *z, const char *path) { return zke_delete(z, path, -1); }

/* Assert a node's data; len -1 for NULL data. */
static void expect_bytes(zke *z, const char *path, const void *data, int len) {
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

/* 3: data is any bytes, and is returned with a NUL after it. */
TEST(data_is_any_bytes) {
  char all[256];
  for (int i = 0; i < 256; i++) all[i] = (char)i;
  zke *z = memory();
  ck_ok(zke_create(z, "/a", all, 256, ZKE_OPEN_ACL, 0, NULL, NULL));
  expect_bytes(z, "/a", all, 256);
  ck_ok(zke_set(z, "/a", all, 1, -1, NULL));
  expect_bytes(z, "/a", "", 1);
}

/* design.md 4: small and large values are stored apart; every size must
 * survive, growing and shrinking. */
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
    expect_bytes(z, "/a", data, sizes[i]);
    ck_ok(zke_create(z, "/b", data, sizes[i], ZKE_OPEN_ACL, 0, NULL, NULL));
    expect_bytes(z, "/b", data, sizes[i]);
    ck_ok(drop(z, "/b"));
  }
  ck_ok(zke_check(z, NULL, NULL));
  free(data);
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
  char *error = NULL;
  sqlite3 *db = plain_open(name);
  int rc = sqlite3_exec(db, sql, NULL, NULL, &error);
  ck_assert_msg(rc == SQLITE_OK, "%s: %s", sql, error);
  ck_assert_int_eq(sqlite3_changes(db), 1);
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
  return test_open(name);
}

#define DOCTOR(change) \
  "UPDATE zkembed_node SET " change " WHERE parent='/' AND name='c'"

/* Set /c and assert its new version. */
static void set_to(zke *z, int expected_version, int version) {
  zke_stat s;
  ck_ok(zke_set(z, "/c", "", 0, expected_version, &s));
  ck_assert_int_eq(s.version, version);
  ck_assert_int_eq(test_stat(z, "/c").version, version);
}

/* 12 #32: after the largest version comes the smallest. */
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
}

/* No version is -1, which means any: every version read can be required. */
TEST(version_leaves_minus_one_out) {
  zke *z = doctored(DOCTOR("version = -3"));
  set_to(z, -3, -2);
  ck_rc(zke_set(z, "/c", "", 0, -3, NULL), ZKE_BADVERSION);
  set_to(z, -2, 0);
  ck_rc(zke_delete(z, "/c", -2), ZKE_BADVERSION);
  set_to(z, 0, 1);
}

/* Set /c's ACL and assert its new aversion. */
static void set_acl_to(zke *z, int expected_version, int aversion) {
  ck_ok(zke_set_acl(z, "/c", expected_version, ZKE_OPEN_ACL, NULL));
  ck_assert_int_eq(test_stat(z, "/c").aversion, aversion);
}

/* 12 #32: aversion wraps in the same way. */
TEST(aversion_wraps) {
  zke *z = doctored(DOCTOR("aversion = 2147483647"));
  set_acl_to(z, INT_MAX, INT_MIN);
  ck_rc(zke_set_acl(z, "/c", INT_MAX, ZKE_OPEN_ACL, NULL), ZKE_BADVERSION);
  set_acl_to(z, INT_MIN, INT_MIN + 1);
}

/* Nor is an aversion -1. */
TEST(aversion_leaves_minus_one_out) {
  zke *z = doctored(DOCTOR("aversion = -2"));
  set_acl_to(z, -2, 0);
  ck_rc(zke_set_acl(z, "/c", -2, ZKE_OPEN_ACL, NULL), ZKE_BADVERSION);
}

/* ---- bad input: P11 ---- */

/* A NULL handle gives ZKE_BADARGUMENTS, and no output is touched, except that a
 * function that opens a handle sets it to NULL. */
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

/* Opening without required arguments. */
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
}

/* Any output pointer may be NULL. */
TEST(null_outputs) {
  zke *z = memory();
  ck_ok(zke_create(z, "/a", "x", 1, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(create_ttl(z, "/t", ZKE_PERSISTENT_WITH_TTL, 60000));
  ck_ok(see(z, "/a"));
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
