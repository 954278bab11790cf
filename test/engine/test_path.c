/* test_path.c - which paths there are: malformed ones, sequential endings,
 * reserved nodes and the chroot (semantics.md 1, 9 and 12)
 *
 * ZooKeeper checks a path twice.  The client refuses it before anything is
 * sent, the server applies a stricter rule to some operations only; zkembed
 * answers as both together.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/functions.h"
#include "test/test.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static zke *memory(void) { return test_open(":memory:"); }

static int create(zke *z, const char *path, int mode) {
  return zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, NULL, NULL);
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

/* Assert a node's children, written like "a b c". */
static void expect_children(zke *z, const char *path, const char *expected) {
  char text[4096] = "";
  zke_strings *names = NULL;
  ck_ok(zke_children(z, path, NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    strcat(strcat(text, i ? " " : ""), names->data[i]);
  }
  zke_free(names);
  ck_assert_str_eq(text, expected);
}

/* ---- every operation that takes a path ---- */

static int run_create(zke *z, const char *path) {
  return create(z, path, ZKE_PERSISTENT);
}

static int run_create_ephemeral(zke *z, const char *path) {
  return create(z, path, ZKE_EPHEMERAL);
}

static int run_create_ttl(zke *z, const char *path) {
  return zke_create_ttl(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                        1000, NULL, NULL);
}

static int run_delete(zke *z, const char *path) {
  return zke_delete(z, path, -1);
}

static int run_exists(zke *z, const char *path) {
  return zke_exists(z, path, NULL, NULL, NULL);
}

static int run_get(zke *z, const char *path) {
  return zke_get(z, path, NULL, NULL, NULL, NULL, NULL);
}

static int run_set(zke *z, const char *path) {
  return zke_set(z, path, "", 0, -1, NULL);
}

static int run_set_acl(zke *z, const char *path) {
  return zke_set_acl(z, path, -1, ZKE_OPEN_ACL, NULL);
}

/* The answer to a name that only the server's rule refuses: a function that
 * stores the path refuses it, for the others there is no such node. */
static int answer_to_strange(const test_function *f) {
  const char *stores =
      " zke_create zke_create_ttl zke_raise_sequence zke_set zke_set_acl ";
  const char *any =
      " zke_add_watch zke_check_watch zke_discard zke_remove_watch "
      "zke_set_watch ";
  if (test_is_among(f, stores)) return ZKE_BADARGUMENTS;
  if (test_is_among(f, any)) return ZKE_OK;
  return ZKE_NONODE;
}

/* Each function that takes a path refuses a malformed one, and answers a
 * strange one as it should.  To zke_sync() the path says nothing. */
static void give_to_all(zke *z, const char *path, bool strange) {
  some_path = path;
  for (const test_function *f = test_functions; f->name; f++) {
    if (strcmp(f->text, "path") || test_is_among(f, " zke_sync ")) continue;
    int rc = f->call(z);
    int right = strange ? answer_to_strange(f) : ZKE_BADARGUMENTS;
    ck_assert_msg(rc == right, "%s of '%s': %s, not %s", f->name,
                  path ? path : "(NULL)", zke_error_name(rc),
                  zke_error_name(right));
  }
  ck_rc(create(z, path, ZKE_PERSISTENT), ZKE_BADARGUMENTS);
  ck_rc(create(z, path, ZKE_CONTAINER), ZKE_BADARGUMENTS);
  ck_rc(run_create_ttl(z, path), ZKE_BADARGUMENTS);
}

/* ---- what the client refuses: semantics.md 1.3 ---- */

static const char *const malformed[] = {
    NULL,     "",        "a",       "a/b",     " /a",      "//",
    "///",    "/a/",     "/a//",    "//a",     "/a//b",    "/a/b/",
    "/.",     "/..",     "/./a",    "/../a",   "/a/.",     "/a/..",
    "/a/./b", "/a/../b", "/./",     "/../",    "/\x01",    "/a\x01",
    "/\t",    "/a\nb",   "/a/\r",   "/\x1e",   "/a\x1e/b", "/a/\x07/b",
    "/a/b/.", "/a/b/..", "/\x1b[m", "/a/../.", "..",       ".",
};

/* 12 #3, #4, #6: a malformed path is ZKE_BADARGUMENTS for every operation. */
TEST_LOOP(malformed_paths_are_refused_everywhere, 0, COUNT(malformed)) {
  const char *path = malformed[_i];
  zke *z = memory();
  make(z, "/a");
  make(z, "/a/b");
  int64_t before = test_zxid(z);
  give_to_all(z, path, false);
  ck_assert_int_eq(test_zxid(z), before + 1); /* P1: refused costs no zxid */
  expect_children(z, "/", "a zookeeper");
  expect_children(z, "/a", "b");
  ck_ok(zke_close(z));
}

/* P11: the sentence shows the path; one row of each kind. */
TEST(malformed_path_is_named) {
  static const char *const named[] = {"abc", "/abc/", "/abc//d", "/abc/../d"};
  zke *z = memory();
  for (int i = 0; i < COUNT(named); i++) {
    ck_rc(run_exists(z, named[i]), ZKE_BADARGUMENTS);
    ck_says(named[i]);
  }
  ck_ok(zke_close(z));
}

/* One row for each reason; `made`: only paths that are made or changed are
 * refused for it. */
static const struct {
  const char *path, *why;
  bool made;
} reasons[] = {{NULL, "it is NULL", false},
               {"", "it is empty", false},
               {"abc", "it does not begin with /", false},
               {"/abc/", "it ends with /", false},
               {"///", "malformed path ///: a name in it is empty", false},
               {"/a//b", "a name in it is empty", false},
               {"/a/./b", "a name in it is .", false},
               {"/a/..", "a name in it is ..", false},
               {"/a\x01/b", "it has a control character", false},
               {"/a\x7f", "it has a control character", true},
               {"/a\xff", "it is not UTF-8", true},
               {"/a\xf1o", "it is not UTF-8", true},
               {"/a\xf0\x8f\xbf\xbf", "it is not UTF-8", true},
               {"/a\xf4\x90\x80\x80", "it is not UTF-8", true},
               {"/\xed\xa0\x80", "it is not UTF-8", true},
               {"/\xee\x80\x80", "it has a character for private use", true},
               {"/\xef\xbf\xbd", "a character from U+FFF0 to U+FFFF", true},
               {"/\xf0\x9f\x98\x80", "it has a character above U+FFFF", true}};

/* The sentence has the whole path, and why it is refused. */
TEST_LOOP(the_sentence_says_why, 0, COUNT(reasons)) {
  const char *path = reasons[_i].path;
  zke *z = memory();
  ck_rc(run_create(z, path), ZKE_BADARGUMENTS);
  ck_says(reasons[_i].why);
  int rc = run_exists(z, path);
  ck_rc(rc, reasons[_i].made ? ZKE_NONODE : ZKE_BADARGUMENTS);
  ck_ok(zke_close(z));
}

/* Of a path that would fill the sentence the end is left out, and no part of a
 * character is shown. */
TEST_LOOP(the_reason_of_a_long_path_is_told, 0, 4) {
  char path[1024];
  zke *z = memory();
  size_t len = (size_t)snprintf(path, sizeof path, "/%.*s", _i, "aaa");
  while (len < 1000) len += (size_t)snprintf(path + len, 4, "\xe2\x82\xac");
  snprintf(path + len, 2, "/");
  ck_rc(run_exists(z, path), ZKE_BADARGUMENTS);
  ck_says("malformed path /");
  ck_says("\xe2\x82\xac...: it ends with /");
  ck_ok(zke_close(z));
}

/* A sequential create may end with a slash: that is not what is wrong. */
TEST(a_sequential_path_is_refused_for_its_fault) {
  zke *z = memory();
  ck_rc(create(z, "/a\x01/", ZKE_PERSISTENT_SEQUENTIAL), ZKE_BADARGUMENTS);
  ck_says("it has a control character");
  ck_rc(create(z, "/a//", ZKE_PERSISTENT_SEQUENTIAL), ZKE_BADARGUMENTS);
  ck_says("a name in it is empty");
  ck_ok(zke_close(z));
}

/* 1.3: the client refuses a bad path without asking for the session. */
TEST(malformed_path_beats_expired_session) {
  zke *z = memory(), *other = test_session(z, NULL);
  ck_ok(zke_expire(other, zke_session_id(z)));
  give_to_all(z, "/a/", false);
  ck_ok(zke_dispatch(z, NULL));
  ck_rc(run_exists(z, "/a/"), ZKE_BADARGUMENTS);
  ck_rc(run_exists(z, "/a"), ZKE_INVALIDSTATE);
  ck_ok(zke_close(z));
  ck_ok(zke_close(other));
}

/* ---- what only the server refuses: semantics.md 1.1, 1.2 ---- */

static const char *const strange[] = {
    "/\x1f",             /* U+001F */
    "/a\x1f",            /* U+001F behind a letter */
    "/\x7f",             /* U+007F */
    "/\xc2\x80",         /* U+0080 */
    "/\xc2\x9f",         /* U+009F */
    "/\xed\xa0\x80",     /* a high surrogate */
    "/\xed\xbf\xbf",     /* a low surrogate */
    "/\xee\x80\x80",     /* U+E000 */
    "/\xef\x80\x80",     /* U+F000 */
    "/\xef\xa3\xbf",     /* U+F8FF */
    "/\xef\xbf\xb0",     /* U+FFF0 */
    "/\xef\xbf\xbd",     /* U+FFFD */
    "/\xef\xbf\xbf",     /* U+FFFF */
    "/\xf0\x90\x80\x80", /* U+10000 */
    "/\xf0\x9f\x98\x80", /* U+1F600 */
    "/\xf4\x8f\xbf\xbf", /* U+10FFFF */
    "/\xf4\x90\x80\x80", /* above U+10FFFF */
    "/\xff",             /* a byte that never occurs */
    "/\xfe",             /* another */
    "/\x80",             /* a continuation without start */
    "/\xc3",             /* a cut sequence of two */
    "/\xe2\x82",         /* a cut sequence of three */
    "/\xf0\x9f\x98",     /* a cut sequence of four */
    "/\xc3z",            /* a start followed by a letter */
    "/\xc0\x80",         /* an overlong NUL */
    "/\xc1\x81",         /* an overlong letter */
    "/\xe0\x80\xaf",     /* an overlong slash */
    "/\xf0\x82\x82\xac", /* an overlong euro sign */
};

/* 12 #6, #7, #8: refused where something would be stored, absent elsewhere. */
TEST_LOOP(strange_names_cannot_be_made, 0, COUNT(strange)) {
  zke *z = memory();
  int64_t before = test_zxid(z);
  give_to_all(z, strange[_i], true);
  ck_assert_int_eq(test_zxid(z), before + 1);
  expect_children(z, "/", "zookeeper");
  ck_ok(zke_close(z));
}

/* 1.2: a multi sends such a name and is told by the server which it was. */
TEST_LOOP(strange_names_in_multi, 0, COUNT(strange)) {
  zke *z = memory();
  zke_op ops[3];
  zke_op_result results[2];
  zke_op_create(&ops[0], strange[_i], "", 0, ZKE_OPEN_ACL, 0);
  zke_op_set(&ops[1], strange[_i], "", 0, -1);
  zke_op_check(&ops[2], strange[_i], -1);
  for (int i = 0; i < COUNT(ops); i++) {
    zke_op two[2] = {ops[i], ops[2]};
    ck_rc(zke_multi(z, two, 2, results), ZKE_BADARGUMENTS);
    ck_assert_int_eq(results[0].rc, ZKE_BADARGUMENTS);
    ck_assert_int_eq(results[1].rc, ZKE_RUNTIMEINCONSISTENCY);
    zke_results_clear(results, 2);
  }
  ck_ok(zke_close(z));
}

/* 2.2: the server looks at the parent and its ACL before the whole path. */
TEST(strange_names_order_of_checks) {
  zke *z = memory();
  zke_acls none = {0, NULL};
  make(z, "/x");
  ck_ok(create(z, "/e", ZKE_EPHEMERAL));
  ck_rc(run_create(z, "/nope/\x7f"), ZKE_NONODE);
  ck_rc(run_create(z, "/x/\x7f/y"), ZKE_NONODE);
  ck_rc(run_create(z, "/x/\x7f"), ZKE_BADARGUMENTS);
  ck_rc(run_create(z, "/e/\x7f"), ZKE_BADARGUMENTS);
  ck_rc(create(z, "/x/\x7f", ZKE_PERSISTENT_SEQUENTIAL), ZKE_BADARGUMENTS);
  ck_rc(zke_create(z, "/x/\x7f", "", 0, &none, 0, NULL, NULL), ZKE_INVALIDACL);
  ck_rc(zke_create(z, "/x/\x01", "", 0, &none, 0, NULL, NULL),
        ZKE_BADARGUMENTS);
  ck_ok(zke_close(z));
}

/* ---- what is a name ---- */

/* In the order of their bytes, as zke_children() gives them. */
static const char *const names[] = {
    " ",
    " a",
    " a ",
    "\"'`",
    "%s%n",
    "'; --",
    "*",
    "+",
    "-",
    "...",
    "....",
    ".a",
    "0",
    "A",
    "CON",
    "\\",
    "_",
    "a",
    "a ",
    "a.",
    "a..",
    "a..b",
    "a.b",
    "e\xcc\x81",
    "zookeeper",
    "~",
    "\xc2\xa0",
    "\xc3\xa9",
    "\xe2\x82\xac",
    "\xed\x9f\xbf",
    "\xef\xa4\x80",
    "\xef\xbf\xaf",
};

/* 12 #5, #8, #86: all of these are names, and no two are the same. */
TEST(unusual_names_are_kept_apart) {
  zke *z = memory();
  make(z, "/n");
  for (int i = COUNT(names) - 1; i >= 0; i--) {
    char path[64];
    snprintf(path, sizeof path, "/n/%s", names[i]);
    makes(z, path, ZKE_PERSISTENT, path);
    ck_ok(zke_set(z, path, names[i], (int)strlen(names[i]), 0, NULL));
  }
  zke_strings *got = NULL;
  ck_ok(zke_children(z, "/n", NULL, NULL, &got, NULL));
  ck_assert_int_eq(got->count, COUNT(names));
  for (int i = 0; i < COUNT(names); i++) {
    ck_assert_str_eq(got->data[i], names[i]);
  }
  zke_free(got);
  ck_ok(zke_close(z));
}

/* 12 #86: each name holds its own data and goes alone. */
TEST_LOOP(unusual_name_is_one_node, 0, COUNT(names)) {
  zke *z = memory();
  char path[64], *data = NULL;
  for (int i = 0; i < COUNT(names); i++) {
    snprintf(path, sizeof path, "/%s", names[i]);
    if (strcmp(path, "/zookeeper")) make(z, path);
  }
  snprintf(path, sizeof path, "/%s", names[_i]);
  ck_ok(zke_set(z, path, names[_i], (int)strlen(names[_i]), 0, NULL));
  ck_ok(zke_get(z, path, NULL, NULL, &data, NULL, NULL));
  ck_assert_str_eq(data, names[_i]);
  zke_free(data);
  bool reserved = !strcmp(path, "/zookeeper");
  ck_rc(run_delete(z, path), reserved ? ZKE_BADARGUMENTS : ZKE_OK);
  ck_assert_int_eq(test_stat(z, "/").numChildren, COUNT(names) - !reserved);
  ck_ok(zke_close(z));
}

/* 1.1: a path can be long. */
TEST(long_path) {
  char path[5004];
  zke *z = memory();
  memset(path, 'p', sizeof path);
  path[0] = '/';
  path[5003] = '\0';
  makes(z, path, ZKE_PERSISTENT, path);
  zke_strings *got = NULL;
  ck_ok(zke_children(z, "/", NULL, NULL, &got, NULL));
  ck_assert_str_eq(got->data[0], path + 1);
  zke_free(got);
  ck_ok(run_delete(z, path));
  ck_ok(zke_close(z));
}

/* zkembed.h, zke_create: up to 1 MiB, with the chroot and a number, so that no
 * length becomes another one on its way. */
TEST(a_path_has_a_limit) {
  enum { MOST = 1024 * 1024, DIGITS = 10 };
  static char path[MOST + 2];
  zke *z = memory(), *below;
  zke_options o = {.size = sizeof o, .chroot = "/c"};
  memset(path, 'p', MOST + 1);
  path[0] = '/';
  ck_rc(create(z, path, ZKE_PERSISTENT), ZKE_BADARGUMENTS);
  ck_says("a path of 1048577 bytes, the limit is 1048576");
  ck_rc(zke_exists(z, path, NULL, NULL, NULL), ZKE_BADARGUMENTS);
  path[MOST] = '\0';
  makes(z, path, ZKE_PERSISTENT, path);
  ck_rc(create(z, path, ZKE_PERSISTENT_SEQUENTIAL), ZKE_BADARGUMENTS);
  ck_ok(zke_open_session(z, &o, &below));
  ck_ok(create(z, "/c", ZKE_PERSISTENT));
  ck_rc(create(below, path, ZKE_PERSISTENT), ZKE_BADARGUMENTS);
  path[MOST - DIGITS] = '\0';
  ck_ok(create(z, path, ZKE_PERSISTENT_SEQUENTIAL));
  ck_ok(create(below, path, ZKE_PERSISTENT));
  ck_ok(zke_close(below));
  ck_ok(zke_close(z));
}

/* 1.1: nor does a path's depth have a limit of its own. */
TEST(deep_path) {
  enum { DEPTH = 1000 };
  char path[2 * DEPTH + 1] = "";
  int64_t count = 0;
  zke *z = memory();
  for (int i = 0; i < DEPTH; i++) {
    memcpy(path + 2 * i, "/d", 3);
    make(z, path);
  }
  ck_ok(zke_count(z, "/d", &count));
  ck_assert_int_eq(count, DEPTH - 1);
  ck_ok(run_get(z, path));
  for (int i = DEPTH; i > 0; i--) {
    path[2 * i] = '\0';
    ck_ok(run_delete(z, path));
  }
  ck_ok(zke_close(z));
}

/* ---- endings of sequential paths ---- */

static const struct {
  const char *path;
  int rc;
  const char *made; /* with a fresh parent */
} sequential[] = {
    {"/c/", ZKE_OK, "/c/0000000000"},
    {"/c/.", ZKE_OK, "/c/.0000000000"},
    {"/c/..", ZKE_OK, "/c/..0000000000"},
    {"/c/...", ZKE_OK, "/c/...0000000000"},
    {"/c/a.", ZKE_OK, "/c/a.0000000000"},
    {"/", ZKE_OK, "/0000000001"},
    {"/.", ZKE_OK, "/.0000000001"},
    {"/..", ZKE_OK, "/..0000000001"},
    {"/c", ZKE_OK, "/c0000000001"},
    {"/c//", ZKE_BADARGUMENTS, NULL},
    {"//", ZKE_BADARGUMENTS, NULL},
    {"/c/./", ZKE_BADARGUMENTS, NULL},
    {"/c/../", ZKE_BADARGUMENTS, NULL},
    {"/c/./a", ZKE_BADARGUMENTS, NULL},
    {"/c/\x01", ZKE_BADARGUMENTS, NULL},
    {"/c/\x7f", ZKE_BADARGUMENTS, NULL},
    {"c", ZKE_BADARGUMENTS, NULL},
    {"", ZKE_BADARGUMENTS, NULL},
    {NULL, ZKE_BADARGUMENTS, NULL},
    {"/nope/", ZKE_NONODE, NULL},
    {"/nope/.", ZKE_NONODE, NULL},
    {"/c/nope/", ZKE_NONODE, NULL},
};

/* Run one row in one mode on a fresh tree. */
static void try_sequential(int row, int mode) {
  zke *z = memory();
  char *made = NULL;
  int rc;
  make(z, "/c");
  if (mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL) {
    rc = zke_create_ttl(z, sequential[row].path, "", 0, ZKE_OPEN_ACL, mode,
                        100000, &made, NULL);
  } else {
    rc = zke_create(z, sequential[row].path, "", 0, ZKE_OPEN_ACL, mode, &made,
                    NULL);
  }
  ck_rc(rc, sequential[row].rc);
  if (rc == ZKE_OK) {
    ck_assert_str_eq(made, sequential[row].made);
    ck_ok(run_exists(z, made));
  } else {
    ck_assert_ptr_null(made);
  }
  zke_free(made);
  ck_ok(zke_close(z));
}

/* 12 #3, #4 and 1.3: the suffix makes a name of what is none. */
TEST_LOOP(sequential_endings, 0, COUNT(sequential)) {
  try_sequential(_i, ZKE_PERSISTENT_SEQUENTIAL);
  try_sequential(_i, ZKE_EPHEMERAL_SEQUENTIAL);
  try_sequential(_i, ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL);
}

/* 12 #3, #4: in the other modes these endings are refused. */
TEST(plain_endings) {
  static const char *const endings[] = {"/c/", "/c/.", "/c/.."};
  static const int modes[] = {ZKE_PERSISTENT, ZKE_EPHEMERAL, ZKE_CONTAINER};
  zke *z = memory();
  make(z, "/c");
  for (int i = 0; i < COUNT(endings); i++) {
    for (int k = 0; k < COUNT(modes); k++) {
      ck_rc(create(z, endings[i], modes[k]), ZKE_BADARGUMENTS);
    }
    ck_rc(run_create_ttl(z, endings[i]), ZKE_BADARGUMENTS);
  }
  ck_ok(zke_close(z));
}

/* ---- "/" and /zookeeper: semantics.md 9 ---- */

/* 12 #1: the root of a new tree. */
TEST(fresh_root) {
  zke *z = memory();
  zke_stat s = test_stat(z, "/");
  ck_assert_int_eq(s.czxid, 0);
  ck_assert_int_eq(s.mzxid, 0);
  ck_assert_int_eq(s.pzxid, 0);
  ck_assert_int_eq(s.ctime, 0);
  ck_assert_int_eq(s.mtime, 0);
  ck_assert_int_eq(s.version, 0);
  ck_assert_int_eq(s.cversion, -1);
  ck_assert_int_eq(s.aversion, 0);
  ck_assert_int_eq(s.ephemeralOwner, 0);
  ck_assert_int_eq(s.numChildren, 1);
  expect_children(z, "/", "zookeeper");
  ck_ok(zke_close(z));
}

/* 12 #2: the reserved nodes of a new tree. */
TEST(fresh_reserved) {
  zke *z = memory();
  zke_stat s = test_stat(z, "/zookeeper");
  ck_assert_int_eq(s.cversion, -2);
  ck_assert_int_eq(s.numChildren, 2);
  ck_assert_int_eq(s.aversion, 0);
  expect_children(z, "/zookeeper", "config quota");
  s = test_stat(z, "/zookeeper/config");
  ck_assert_int_eq(s.aversion, -1);
  ck_assert_int_eq(s.cversion, 0);
  ck_assert_int_eq(s.numChildren, 0);
  test_expect_stat(test_stat(z, "/zookeeper/quota"), (zke_stat){0});
  ck_ok(zke_close(z));
}

/* 9: /zookeeper/config is empty and readable by anyone, no more. */
TEST(fresh_config) {
  zke *z = memory();
  char *data = NULL;
  int len = -2;
  zke_acls *acls = NULL;
  ck_ok(zke_get(z, "/zookeeper/config", NULL, NULL, &data, &len, NULL));
  ck_assert_int_eq(len, 0);
  ck_assert_str_eq(data, "");
  zke_free(data);
  ck_ok(zke_get_acl(z, "/zookeeper/config", &acls, NULL));
  ck_assert_int_eq(acls->count, 1);
  ck_assert_int_eq(acls->data[0].perms, ZKE_PERM_READ);
  ck_assert_str_eq(acls->data[0].scheme, "world");
  ck_assert_str_eq(acls->data[0].id, "anyone");
  zke_free(acls);
  ck_ok(zke_close(z));
}

/* 12 #12, #82 and 9: what may be done with the nodes that are always there. */
static const struct {
  const char *path;
  int set, set_acl;
} always[] = {
    {"/", ZKE_OK, ZKE_OK},
    {"/zookeeper", ZKE_OK, ZKE_OK},
    {"/zookeeper/quota", ZKE_OK, ZKE_OK},
    {"/zookeeper/config", ZKE_NOAUTH, ZKE_NOAUTH},
};

/* P1, P11: nodes that are always there can neither be made nor deleted, at any
 * version; set and set_acl do what the table says. */
TEST_LOOP(reserved_nodes, 0, COUNT(always)) {
  zke *z = memory();
  const char *path = always[_i].path;
  zke_stat before = test_stat(z, path), after;
  ck_rc(run_create(z, path), ZKE_NODEEXISTS);
  ck_rc(run_create_ephemeral(z, path), ZKE_NODEEXISTS);
  ck_rc(zke_delete(z, path, -1), ZKE_BADARGUMENTS);
  ck_rc(zke_delete(z, path, 77), ZKE_BADARGUMENTS);
  test_expect_stat(test_stat(z, path), before);
  ck_rc(zke_set(z, path, "x", 1, 0, &after), always[_i].set);
  if (always[_i].set == ZKE_OK) {
    ck_assert_int_eq(after.version, before.version + 1);
  }
  ck_rc(run_set_acl(z, path), always[_i].set_acl);
  ck_ok(zke_close(z));
}

/* 12 #82: under config nothing, under the others as anywhere. */
TEST(below_reserved_nodes) {
  zke *z = memory();
  ck_rc(run_create(z, "/zookeeper/config/a"), ZKE_NOAUTH);
  ck_rc(run_delete(z, "/zookeeper/config/a"), ZKE_NOAUTH);
  make(z, "/zookeeper/a");
  ck_ok(create(z, "/zookeeper/e", ZKE_EPHEMERAL));
  makes(z, "/zookeeper/quota/s", ZKE_EPHEMERAL_SEQUENTIAL,
        "/zookeeper/quota/s0000000000");
  make(z, "/zookeeper/quota/a");
  make(z, "/zookeeper/quota/a/zookeeper_limits");
  ck_ok(run_delete(z, "/zookeeper/quota/a/zookeeper_limits"));
  ck_ok(run_delete(z, "/zookeeper/quota/a"));
  ck_ok(run_delete(z, "/zookeeper/a"));
  expect_children(z, "/zookeeper", "config e quota");
  ck_ok(zke_close(z));
}

/* 12 #12: the root takes data and any ACL like every node. */
TEST(root_holds_data) {
  zke *z = memory();
  zke_stat s;
  char *data = NULL;
  int len;
  ck_ok(zke_set(z, "/", "root", 4, 0, &s));
  ck_assert_int_eq(s.version, 1);
  ck_assert_int_gt(s.mtime, 0);
  ck_ok(zke_get(z, "/", NULL, NULL, &data, &len, NULL));
  ck_assert_int_eq(len, 4);
  ck_assert_str_eq(data, "root");
  zke_free(data);
  ck_ok(zke_close(z));
}

/* ---- chroot: semantics.md 1.4 ---- */

static const char *const bad_chroots[] = {
    "a",  "a/b", "/a/", "//",     "/a//b", "/a/../b",
    "/.", "/..", " /a", "/a/b/.", "/a/b/", "/\x01",
};

/* 1.4, P11: a malformed chroot opens nothing and is named. */
TEST_LOOP(malformed_chroot_is_refused, 0, COUNT(bad_chroots)) {
  zke_options options = {.size = sizeof options, .chroot = bad_chroots[_i]};
  zke *z = memory(), *other = z;
  ck_rc(zke_open_session(z, &options, &other), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  other = z;
  ck_rc(zke_open(":memory:", &options, &other), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  if (bad_chroots[_i][1] != '\x01') ck_says(bad_chroots[_i]);
  ck_ok(zke_close(z));
}

/* 1.4: "/" is the same as none. */
TEST(root_as_chroot_is_no_chroot) {
  zke *z = memory(), *other = test_session(z, "/");
  make(other, "/a");
  makes(other, "/", ZKE_PERSISTENT_SEQUENTIAL, "/0000000001");
  ck_rc(run_delete(other, "/"), ZKE_BADARGUMENTS);
  ck_ok(run_exists(z, "/a"));
  ck_ok(zke_close(other));
  ck_ok(zke_close(z));
}

/* 12 #81: "/" is an ordinary node that need not exist. */
TEST(chroot_node_comes_and_goes) {
  zke *z = memory(), *in = test_session(z, "/cr");
  ck_rc(run_exists(in, "/"), ZKE_NONODE);
  ck_rc(run_create(in, "/x"), ZKE_NONODE);
  ck_rc(run_delete(in, "/"), ZKE_NONODE);
  ck_rc(run_set(in, "/"), ZKE_NONODE);
  makes(in, "/", ZKE_PERSISTENT, "/");
  ck_ok(run_exists(z, "/cr"));
  ck_rc(run_create(in, "/"), ZKE_NODEEXISTS);
  makes(in, "/x", ZKE_PERSISTENT, "/x");
  ck_rc(run_delete(in, "/"), ZKE_NOTEMPTY);
  ck_ok(run_delete(in, "/x"));
  ck_ok(run_delete(in, "/"));
  expect_children(z, "/", "zookeeper");
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* 1.4: a chroot whose parent is missing too. */
TEST(chroot_of_two_levels) {
  zke *z = memory(), *in = test_session(z, "/a/b");
  ck_rc(run_create(in, "/"), ZKE_NONODE);
  make(z, "/a");
  make(in, "/");
  make(in, "/c");
  ck_ok(run_exists(z, "/a/b/c"));
  expect_children(in, "/", "c");
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* 12 #81: every operation stays below the chroot. */
TEST(chroot_confines) {
  zke *z = memory(), *in = test_session(z, "/cr");
  int64_t count = -1;
  make(z, "/cr");
  make(z, "/out");
  make(z, "/cr/a");
  make(z, "/cr/a/b");
  ck_rc(run_exists(in, "/out"), ZKE_NONODE);
  ck_rc(run_exists(in, "/cr"), ZKE_NONODE);
  ck_rc(run_exists(in, "/zookeeper"), ZKE_NONODE);
  ck_rc(run_get(in, "/../out"), ZKE_BADARGUMENTS);
  expect_children(in, "/", "a");
  ck_ok(zke_count(in, "/", &count));
  ck_assert_int_eq(count, 2);
  ck_assert_int_eq(test_stat(in, "/a").czxid, test_stat(z, "/cr/a").czxid);
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* 1.3: the whole path is checked, malformed ones as without a chroot. */
TEST_LOOP(chroot_malformed_paths, 0, COUNT(malformed)) {
  zke *z = memory(), *in = test_session(z, "/cr");
  make(z, "/cr");
  give_to_all(in, malformed[_i], false);
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* 12 #81: returned paths are without the chroot. */
TEST(chroot_is_stripped_from_results) {
  zke *z = memory(), *in = test_session(z, "/cr");
  zke_op ops[3];
  zke_op_result results[3];
  make(z, "/cr");
  makes(in, "/s-", ZKE_PERSISTENT_SEQUENTIAL, "/s-0000000000");
  makes(in, "/s-0000000000/", ZKE_EPHEMERAL_SEQUENTIAL,
        "/s-0000000000/0000000000");
  zke_op_create(&ops[0], "/m", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_create(&ops[1], "/m/q", "", 0, ZKE_OPEN_ACL,
                ZKE_PERSISTENT_SEQUENTIAL);
  zke_op_check(&ops[2], "/m", 0);
  ck_ok(zke_multi(in, ops, 3, results));
  ck_assert_str_eq(results[0].path, "/m");
  ck_assert_str_eq(results[1].path, "/m/q0000000000");
  zke_results_clear(results, 3);
  ck_ok(run_exists(z, "/cr/m/q0000000000"));
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* 12 #81: so are those of events; the chroot node itself is "/". */
TEST(chroot_is_stripped_from_events) {
  zke *z = memory(), *in = test_session(z, "/cr");
  test_events events = {0};
  make(z, "/cr");
  ck_rc(zke_exists(in, "/a", test_record, &events, NULL), ZKE_NONODE);
  ck_ok(zke_children(in, "/", test_record, &events, NULL, NULL));
  make(z, "/cr/a");
  test_expect(in, &events, "CREATED /a; CHILD /");
  ck_ok(zke_exists(in, "/", test_record, &events, NULL));
  ck_ok(run_set(z, "/cr"));
  test_expect(in, &events, "CHANGED /");
  ck_ok(zke_add_watch(in, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      &events));
  make(z, "/cr/a/b");
  make(z, "/cr2");
  test_expect(in, &events, "CREATED /a/b");
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* The session has these ephemerals below the prefix, in this order. */
static void expect_ephemerals(zke *z, int64_t session, const char *prefix,
                              const char *expected) {
  char text[1024] = "";
  zke_strings *paths = NULL;
  ck_ok(zke_ephemerals(z, session, prefix, &paths));
  for (int i = 0; i < paths->count; i++) {
    strcat(strcat(text, i ? " " : ""), paths->data[i]);
  }
  zke_free(paths);
  ck_assert_str_eq(text, expected);
}

/* zkembed.h: only ephemerals below the chroot, without it. */
TEST(chroot_ephemerals) {
  zke *z = memory(), *in = test_session(z, "/cr");
  make(z, "/cr");
  make(z, "/cr2");
  ck_ok(create(in, "/mine", ZKE_EPHEMERAL));
  ck_ok(create(z, "/cr/e1", ZKE_EPHEMERAL));
  ck_ok(create(z, "/cr/f", ZKE_EPHEMERAL));
  ck_ok(create(z, "/cr2/e", ZKE_EPHEMERAL));
  ck_ok(create(z, "/e", ZKE_EPHEMERAL));
  expect_ephemerals(in, 0, NULL, "/mine");
  expect_ephemerals(in, zke_session_id(z), NULL, "/e1 /f");
  expect_ephemerals(in, zke_session_id(z), "/e", "/e1");
  expect_ephemerals(in, zke_session_id(z), "/", "/e1 /f");
  expect_ephemerals(in, zke_session_id(z), "/cr", "");
  expect_ephemerals(z, 0, NULL, "/cr/e1 /cr/f /cr2/e /e");
  expect_ephemerals(z, zke_session_id(in), "", "/cr/mine");
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* A documented difference: ZooKeeper makes a node beside the chroot and
 * returns half a path; here nothing is made. */
TEST(sequential_root_of_chroot_is_refused) {
  zke *z = memory(), *in = test_session(z, "/cr");
  char *made = NULL;
  make(z, "/cr");
  ck_rc(zke_create(in, "/", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   &made, NULL),
        ZKE_BADARGUMENTS);
  ck_rc(create(in, "/", ZKE_EPHEMERAL_SEQUENTIAL), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(made);
  expect_children(z, "/", "cr zookeeper");
  makes(in, "/.", ZKE_PERSISTENT_SEQUENTIAL, "/.0000000000");
  expect_children(z, "/cr", ".0000000000");
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* zkembed.h, zke_discard: the chroot's node is discarded by the name that it
 * was made by. */
TEST(chroot_node_is_discarded) {
  zke *z = memory(), *in = test_session(z, "/cr");
  ck_ok(create(in, "/", ZKE_EPHEMERAL));
  expect_children(z, "/", "cr zookeeper");
  ck_ok(zke_discard(in, "/", ZKE_EPHEMERAL, 0));
  expect_children(z, "/", "zookeeper");
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* A session below /cr, whose node it owns, and no memory for the next call's
 * first allocation. */
static zke *owner_of_its_root(test_heap *heap, zke **z) {
  zke_options options = ZKE_INIT(zke_options);
  options.allocator = (zke_allocator){test_heap_resize, heap};
  ck_ok(zke_open(":memory:", &options, z));
  zke *in = test_session(*z, "/cr");
  ck_ok(create(in, "/", ZKE_EPHEMERAL));
  heap->fail_at = heap->calls + 1;
  return in;
}

/* And so it is where there is no memory to note that: the session, which would
 * end if it could not be removed at once, goes on. */
TEST(chroot_node_is_discarded_without_a_note) {
  test_heap heap = {0};
  zke *z = NULL, *in = owner_of_its_root(&heap, &z);
  ck_ok(zke_discard(in, "/", ZKE_EPHEMERAL, 0));
  ck_assert_int_ge(heap.calls, heap.fail_at); /* there was no memory */
  expect_children(z, "/", "zookeeper");
  ck_ok(create(in, "/", ZKE_EPHEMERAL));
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* zkembed.h, zke_test_fail: that reply can be lost as well, and then nothing
 * says that the node has gone, so the session ends. */
TEST(lost_reply_to_a_discard_without_a_note) {
  test_heap heap = {0};
  zke *z = NULL, *in = owner_of_its_root(&heap, &z);
  ck_ok(zke_test_fail(in, ZKE_TEST_FAIL_BEFORE, 0));
  ck_rc(zke_discard(in, "/", ZKE_EPHEMERAL, 0), ZKE_CONNECTIONLOSS);
  ck_assert_int_ge(heap.calls, heap.fail_at); /* there was no memory */
  expect_children(z, "/", "cr zookeeper");
  ck_rc(create(in, "/", ZKE_EPHEMERAL), ZKE_SESSIONEXPIRED);
  expect_children(z, "/", "zookeeper");
  zke_close(in);
  ck_ok(zke_close(z));
}

/* 1.2 under a chroot: the whole path decides what is reserved. */
TEST(chroot_on_reserved_nodes) {
  zke *z = memory(), *in = test_session(z, "/zookeeper");
  ck_rc(run_delete(in, "/"), ZKE_BADARGUMENTS);
  ck_rc(run_delete(in, "/config"), ZKE_BADARGUMENTS);
  ck_rc(run_set(in, "/config"), ZKE_NOAUTH);
  expect_children(in, "/", "config quota");
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* 12 #81: under a chroot of one's own /zookeeper is a name like others. */
TEST(zookeeper_below_chroot_is_ordinary) {
  zke *z = memory(), *in = test_session(z, "/cr");
  make(z, "/cr");
  make(in, "/zookeeper");
  make(in, "/zookeeper/quota");
  ck_ok(run_delete(in, "/zookeeper/quota"));
  ck_ok(run_delete(in, "/zookeeper"));
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* The chroot of zke_open(), and that its string is copied. */
TEST(chroot_of_the_first_session) {
  char chroot[] = "/cr";
  zke_options options = {.size = sizeof options, .chroot = chroot};
  zke *z = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  memset(chroot, 'x', 3);
  ck_rc(run_exists(z, "/"), ZKE_NONODE);
  make(z, "/");
  make(z, "/a");
  zke *whole = test_session(z, NULL);
  expect_children(whole, "/", "cr zookeeper");
  expect_children(whole, "/cr", "a");
  ck_ok(zke_close(whole));
  ck_ok(zke_close(z));
}

/* ---- resources ---- */

/* P9: all that paths and the chroot cost comes from the handle's allocator
 * and goes back to it. */
TEST(heap_is_balanced) {
  test_heap heap = {0};
  zke_options options = {.size = sizeof options,
                         .chroot = "/a",
                         .allocator = {test_heap_resize, &heap}};
  zke *z = NULL, *in = NULL;
  char *made = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  make(z, "/");
  options.chroot = "/a/b";
  ck_ok(zke_open_session(z, &options, &in));
  make(in, "/");
  ck_ok(zke_create(in, "/s", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                   &made, NULL));
  for (int k = 0; k < COUNT(malformed); k++)
    give_to_all(in, malformed[k], false);
  for (int k = 0; k < COUNT(strange); k++) give_to_all(in, strange[k], true);
  ck_ok(zke_close(z));
  ck_ok(zke_close(in));
  ck_assert_int_gt(heap.calls, 0);
  ck_assert_str_eq(made, "/s0000000000"); /* outlives the handle */
  zke_free(made);
  ck_assert_int_eq(heap.live, 0);
}
