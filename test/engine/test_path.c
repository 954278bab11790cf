/* test_path.c - valid paths (semantics.md 1, 9 and 12): malformed and strange
 * ones for every function, valid names, and what only C can test.
 * test/semantics/path.txt has the rest.
 *
 * ZooKeeper checks a path twice: the client refuses it before it sends
 * anything, and the server applies a stricter rule to some operations only.
 * zkembed answers as both together.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/functions.h"
#include "test/engine/calls.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

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

static int run_create_ttl(zke *z, const char *path) {
  return zke_create_ttl(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                        1000, NULL, NULL);
}

static int run_delete(zke *z, const char *path) {
  return zke_delete(z, path, -1);
}

static int run_exists(zke *z, const char *path) { return see(z, path); }

static int run_get(zke *z, const char *path) {
  return zke_get(z, path, NULL, NULL, NULL, NULL, NULL);
}

/* The result for a name that only the server refuses: a function that stores
 * the path refuses it, for all others the node does not exist. */
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

/* Each function that takes a path refuses a malformed one, and returns the
 * right result for a strange one.  zke_sync() ignores the path. */
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
  ck_assert_int_eq(test_zxid(z), before + 1); /* P1: a refusal costs no zxid */
  expect_children(z, "/", "a zookeeper");
  expect_children(z, "/a", "b");
}

/* If a path would fill the sentence, its end is left out, and no character is
 * cut. */
TEST_LOOP(the_reason_of_a_long_path_is_told, 0, 4) {
  char path[1024];
  zke *z = memory();
  size_t len = (size_t)snprintf(path, sizeof path, "/%.*s", _i, "aaa");
  while (len < 1000) len += (size_t)snprintf(path + len, 4, "\xe2\x82\xac");
  snprintf(path + len, 2, "/");
  ck_rc(run_exists(z, path), ZKE_BADARGUMENTS);
  ck_says("malformed path /");
  ck_says("\xe2\x82\xac...: it ends with /");
}

/* 1.3: the client refuses a bad path before it checks the session. */
TEST(malformed_path_beats_expired_session) {
  zke *z = memory(), *other = test_session(z, NULL);
  ck_ok(zke_expire(other, zke_session_id(z)));
  give_to_all(z, "/a/", false);
  ck_ok(zke_dispatch(z, NULL));
  ck_rc(run_exists(z, "/a/"), ZKE_BADARGUMENTS);
  ck_rc(run_exists(z, "/a"), ZKE_INVALIDSTATE);
}

/* ---- what only the server refuses: semantics.md 1.1, 1.2 ---- */

static const char *const strange[] = {
    "/\x1f",             /* U+001F */
    "/a\x1f",            /* U+001F after a letter */
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
    "/\x80",             /* a continuation without a start */
    "/\xc3",             /* a cut sequence of two */
    "/\xe2\x82",         /* a cut sequence of three */
    "/\xf0\x9f\x98",     /* a cut sequence of four */
    "/\xc3z",            /* a start followed by a letter */
    "/\xc0\x80",         /* an overlong NUL */
    "/\xc1\x81",         /* an overlong letter */
    "/\xe0\x80\xaf",     /* an overlong slash */
    "/\xf0\x82\x82\xac", /* an overlong euro sign */
};

/* 12 #6, #7, #8: refused if something would be stored, not found otherwise. */
TEST_LOOP(strange_names_cannot_be_made, 0, COUNT(strange)) {
  zke *z = memory();
  int64_t before = test_zxid(z);
  give_to_all(z, strange[_i], true);
  ck_assert_int_eq(test_zxid(z), before + 1);
  expect_children(z, "/", "zookeeper");
}

/* ---- valid names ---- */

/* In the order of their bytes, as zke_children() returns them. */
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

/* 12 #5, #8, #86: all of these are names, and no two are the same: each holds
 * its own data and is deleted alone. */
TEST(unusual_names_are_kept_apart) {
  char path[64], *data = NULL;
  zke_strings *got = NULL;
  zke *z = memory();
  make(z, "/n");
  for (int i = COUNT(names) - 1; i >= 0; i--) {
    snprintf(path, sizeof path, "/n/%s", names[i]);
    makes(z, path, ZKE_PERSISTENT, path);
    ck_ok(zke_set(z, path, names[i], (int)strlen(names[i]), 0, NULL));
  }
  ck_ok(zke_children(z, "/n", NULL, NULL, &got, NULL));
  ck_assert_int_eq(got->count, COUNT(names));
  for (int i = 0; i < COUNT(names); i++) {
    ck_assert_str_eq(got->data[i], names[i]);
    snprintf(path, sizeof path, "/n/%s", names[i]);
    ck_ok(zke_get(z, path, NULL, NULL, &data, NULL, NULL));
    ck_assert_str_eq(data, names[i]);
    zke_free(data);
    ck_ok(run_delete(z, path));
    ck_assert_int_eq(child_count(z, "/n"), COUNT(names) - 1 - i);
  }
  zke_free(got);
}

/* zkembed.h, zke_create: at most 1 MiB, including the chroot and a number, so
 * that no length is truncated on its way. */
TEST(a_path_has_a_limit) {
  enum { MOST = 1024 * 1024, DIGITS = 10 };
  static char path[MOST + 2];
  zke *z = memory();
  memset(path, 'p', MOST + 1);
  path[0] = '/';
  ck_rc(create(z, path, ZKE_PERSISTENT), ZKE_BADARGUMENTS);
  ck_says("a path of 1048577 bytes, the limit is 1048576");
  ck_rc(see(z, path), ZKE_BADARGUMENTS);
  path[MOST] = '\0';
  makes(z, path, ZKE_PERSISTENT, path);
  ck_rc(create(z, path, ZKE_PERSISTENT_SEQUENTIAL), ZKE_BADARGUMENTS);
  zke *below = session_as(z, .chroot = "/c");
  make(z, "/c");
  ck_rc(create(below, path, ZKE_PERSISTENT), ZKE_BADARGUMENTS);
  path[MOST - DIGITS] = '\0';
  make_as(z, path, ZKE_PERSISTENT_SEQUENTIAL);
  make(below, path);
}

/* 1.1: a path's depth has no limit either. */
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
}

/* ---- "/" and /zookeeper: semantics.md 9 ---- */

/* 12 #1, #2: the root and the reserved nodes of a new tree. */
TEST(fresh_nodes) {
  zke *z = memory();
  test_expect_stat(test_stat(z, "/"),
                   (zke_stat){.cversion = -1, .numChildren = 1});
  test_expect_stat(test_stat(z, "/zookeeper"),
                   (zke_stat){.cversion = -2, .numChildren = 2});
  test_expect_stat(test_stat(z, "/zookeeper/config"),
                   (zke_stat){.aversion = -1});
  test_expect_stat(test_stat(z, "/zookeeper/quota"), (zke_stat){0});
  expect_children(z, "/", "zookeeper");
  expect_children(z, "/zookeeper", "config quota");
}

/* ---- chroot: semantics.md 1.4 ---- */

static const char *const bad_chroots[] = {
    "a",  "a/b", "/a/", "//",     "/a//b", "/a/../b",
    "/.", "/..", " /a", "/a/b/.", "/a/b/", "/\x01",
};

/* 1.4, P11: a malformed chroot is refused by a sentence that names it. */
TEST_LOOP(malformed_chroot_is_refused, 0, COUNT(bad_chroots)) {
  zke_options options = {.size = sizeof options, .chroot = bad_chroots[_i]};
  zke *z = memory(), *other = z;
  ck_rc(zke_open_session(z, &options, &other), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  other = z;
  ck_rc(zke_open(":memory:", &options, &other), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  if (bad_chroots[_i][1] != '\x01') ck_says(bad_chroots[_i]);
}

/* 1.3: with a chroot the whole path is checked; malformed ones are refused. */
TEST_LOOP(chroot_malformed_paths, 0, COUNT(malformed)) {
  zke *z = memory(), *in = test_session(z, "/cr");
  make(z, "/cr");
  give_to_all(in, malformed[_i], false);
}

/* zkembed.h, zke_discard: the chroot's node is discarded by the name it was
 * created with. */
TEST(chroot_node_is_discarded) {
  zke *z = memory(), *in = test_session(z, "/cr");
  make_as(in, "/", ZKE_EPHEMERAL);
  expect_children(z, "/", "cr zookeeper");
  ck_ok(zke_discard(in, "/", ZKE_EPHEMERAL, 0));
  expect_children(z, "/", "zookeeper");
}

/* A session below /cr, whose node it owns; the next call's first allocation
 * fails. */
static zke *owner_of_its_root(test_heap *heap, zke **z) {
  zke_options options = {.size = sizeof options,
                         .allocator = (zke_allocator){test_heap_resize, heap}};
  ck_ok(zke_open(":memory:", &options, z));
  zke *in = test_session(*z, "/cr");
  make_as(in, "/", ZKE_EPHEMERAL);
  heap->fail_at = heap->calls + 1;
  return in;
}

/* The same if there is no memory to note that: the session, which would end if
 * the node could not be removed immediately, continues. */
TEST(chroot_node_is_discarded_without_a_note) {
  test_heap heap = {0};
  zke *z = NULL, *in = owner_of_its_root(&heap, &z);
  ck_ok(zke_discard(in, "/", ZKE_EPHEMERAL, 0));
  ck_assert_int_ge(heap.calls, heap.fail_at); /* there was no memory */
  expect_children(z, "/", "zookeeper");
  make_as(in, "/", ZKE_EPHEMERAL);
  ck_ok(zke_close(in));
  ck_ok(zke_close(z));
}

/* zkembed.h, zke_test_fail: that reply can be lost too; then nothing says that
 * the node has gone, so the session ends. */
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

/* The chroot of zke_open(), and that its string is copied. */
TEST(chroot_of_the_first_session) {
  char chroot[] = "/cr";
  zke *z = open_as(":memory:", .chroot = chroot);
  memset(chroot, 'x', 3);
  ck_rc(run_exists(z, "/"), ZKE_NONODE);
  make(z, "/");
  make(z, "/a");
  zke *whole = test_session(z, NULL);
  expect_children(whole, "/", "cr zookeeper");
  expect_children(whole, "/cr", "a");
}

/* ---- resources ---- */

/* P9: all memory for paths and the chroot comes from the handle's allocator and
 * returns to it. */
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
