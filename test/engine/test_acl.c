/* test_acl.c - access control lists: what is valid, how it is stored and
 * shown, which operation needs what, and what a watcher may see
 * (semantics.md 8, 5.8 and 12 #31, #33 to #38, #66, #84, #88)
 */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/test.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* digest ids of "bob:p" and "alice:secret" */
#define BOB "bob:R3bUSw3Enrs8ff9W5R1qlyZbH2M="
#define ALICE "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E="

enum {
  R = ZKE_PERM_READ,
  W = ZKE_PERM_WRITE,
  C = ZKE_PERM_CREATE,
  D = ZKE_PERM_DELETE,
  A = ZKE_PERM_ADMIN,
  ALL = ZKE_PERM_ALL
};

static zke *memory(void) { return test_open(":memory:"); }

static int auth(zke *z, const char *cert) {
  return zke_add_auth(z, "digest", cert, (int)strlen(cert));
}

static void make(zke *z, const char *path) {
  ck_ok(zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
}

/* A list of one entry, overwritten by the fourth call from now. */
static const zke_acls *one(int perms, const char *scheme, const char *id) {
  static zke_acl entries[4];
  static zke_acls lists[4];
  static int turn;
  turn = (turn + 1) % 4;
  entries[turn] = (zke_acl){perms, scheme, id};
  lists[turn] = (zke_acls){1, &entries[turn]};
  return &lists[turn];
}

static const zke_acls *world(int perms) {
  return one(perms, "world", "anyone");
}

static int create_with(zke *z, const char *path, const zke_acls *acls) {
  return zke_create(z, path, "", 0, acls, ZKE_PERSISTENT, NULL, NULL);
}

static int exists(zke *z, const char *path) {
  return zke_exists(z, path, NULL, NULL, NULL);
}

static int set(zke *z, const char *path, int version) {
  return zke_set(z, path, "", 0, version, NULL);
}

static int get(zke *z, const char *path) {
  return zke_get(z, path, NULL, NULL, NULL, NULL, NULL);
}

/* Assert a node's ACL, written like "31 world:anyone; 1 digest:a:b". */
static void expect_acl(zke *z, const char *path, const char *expected) {
  char text[2048] = "";
  zke_acls *acls = NULL;
  ck_ok(zke_get_acl(z, path, &acls, NULL));
  for (int i = 0; i < acls->count; i++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%d %s:%s", i ? "; " : "",
             acls->data[i].perms, acls->data[i].scheme, acls->data[i].id);
  }
  zke_free(acls);
  ck_assert_str_eq(text, expected);
}

/* ---- what is a valid list ---- */

static const struct {
  int count;
  zke_acl entries[3];
  const char *stored; /* NULL: ZKE_INVALIDACL */
} lists[] = {
    {1, {{ALL, "world", "anyone"}}, "31 world:anyone"},
    {1, {{0, "world", "anyone"}}, "0 world:anyone"},
    {1, {{32, "world", "anyone"}}, "32 world:anyone"},
    {1, {{-1, "world", "anyone"}}, "-1 world:anyone"},
    {1, {{INT_MIN, "world", "anyone"}}, "-2147483648 world:anyone"},
    {1, {{ALL, "digest", "a:b"}}, "31 digest:a:b"},
    {1, {{ALL, "digest", BOB}}, "31 digest:" BOB},
    {2,
     {{R, "world", "anyone"}, {ALL, "digest", "a:b"}},
     "1 world:anyone; 31 digest:a:b"},
    {2,
     {{ALL, "digest", "a:b"}, {R, "world", "anyone"}},
     "31 digest:a:b; 1 world:anyone"},
    {2, {{R, "world", "anyone"}, {R, "world", "anyone"}}, "1 world:anyone"},
    {2,
     {{R, "world", "anyone"}, {W, "world", "anyone"}},
     "1 world:anyone; 2 world:anyone"},
    {3,
     {{R, "digest", "a:b"}, {W, "digest", "c:d"}, {R, "digest", "a:b"}},
     "1 digest:a:b; 2 digest:c:d"},
    {0, {{0}}, NULL},
    {1, {{ALL, "world", "somebody"}}, NULL},
    {1, {{ALL, "world", ""}}, NULL},
    {1, {{ALL, "world", "Anyone"}}, NULL},
    {1, {{ALL, "World", "anyone"}}, NULL},
    {1, {{ALL, "", "anyone"}}, NULL},
    {1, {{ALL, NULL, "anyone"}}, NULL},
    {1, {{ALL, "foo", "bar"}}, NULL},
    {1, {{ALL, "super", "a:b"}}, NULL},
    {1, {{ALL, "x509", "a"}}, NULL},
    {1, {{ALL, "sasl", "a"}}, NULL},
    {1, {{ALL, "ip", "127.0.0.1"}}, NULL},
    {1, {{ALL, "ip", "::1"}}, NULL},
    {1, {{ALL, "digest", "bob"}}, NULL},
    {1, {{ALL, "digest", "a:b:c"}}, NULL},
    {1, {{ALL, "digest", ""}}, NULL},
    {1, {{ALL, "digest", NULL}}, NULL},
    {1, {{ALL, "auth", ""}}, NULL},
    {1, {{ALL, "auth", NULL}}, NULL},
    {2, {{ALL, "world", "anyone"}, {R, "foo", "x"}}, NULL},
    {2, {{ALL, "auth", ""}, {R, "world", "anyone"}}, NULL},
    {3,
     {{R, "world", "anyone"}, {R, "digest", "a"}, {W, "digest", "a:b"}},
     NULL},
};

/* 8, 12 #37, #38: by create. */
TEST_LOOP(list_by_create, 0, COUNT(lists)) {
  zke *z = memory();
  zke_acls acls = {lists[_i].count, lists[_i].entries};
  int rc = create_with(z, "/a", &acls);
  ck_rc(rc, lists[_i].stored ? ZKE_OK : ZKE_INVALIDACL);
  ck_rc(exists(z, "/a"), lists[_i].stored ? ZKE_OK : ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* 8: by set_acl, with an entry more that lets us see the stored list. */
TEST_LOOP(list_by_set_acl, 0, COUNT(lists)) {
  zke *z = memory();
  zke_acl entries[4];
  zke_acls acls = {lists[_i].count, lists[_i].entries};
  make(z, "/a");
  if (!lists[_i].stored) {
    ck_rc(zke_set_acl(z, "/a", -1, &acls, NULL), ZKE_INVALIDACL);
    expect_acl(z, "/a", "31 world:anyone");
    ck_assert_int_eq(test_stat(z, "/a").aversion, 0);
  } else {
    char expected[200];
    memcpy(entries, lists[_i].entries, sizeof lists[_i].entries);
    entries[acls.count] = (zke_acl){A, "world", "anyone"};
    ck_ok(zke_set_acl(z, "/a", -1, &(zke_acls){acls.count + 1, entries}, NULL));
    snprintf(expected, sizeof expected, "%s; 16 world:anyone",
             lists[_i].stored);
    expect_acl(z, "/a", expected);
  }
  ck_ok(zke_close(z));
}

/* P11: no list at all, and counts that cannot be. */
TEST(no_list) {
  zke_acl entry = {ALL, "world", "anyone"};
  zke_acls negative = {-1, &entry}, hollow = {1, NULL};
  zke *z = memory();
  ck_rc(create_with(z, "/a", NULL), ZKE_INVALIDACL);
  ck_rc(create_with(z, "/a", &negative), ZKE_INVALIDACL);
  ck_rc(create_with(z, "/a", &hollow), ZKE_INVALIDACL);
  ck_rc(zke_set_acl(z, "/", -1, NULL, NULL), ZKE_INVALIDACL);
  ck_rc(zke_set_acl(z, "/", -1, &negative, NULL), ZKE_INVALIDACL);
  ck_rc(zke_set_acl(z, "/", -1, &hollow, NULL), ZKE_INVALIDACL);
  ck_rc(exists(z, "/a"), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* 8: a world entry without an id does not even come through; where ids are
 * ignored it is none the worse. */
TEST(missing_id) {
  zke *z = memory();
  ck_rc(create_with(z, "/a", one(ALL, "world", NULL)), ZKE_MARSHALLINGERROR);
  ck_rc(zke_set_acl(z, "/", -1, one(ALL, "world", NULL), NULL),
        ZKE_MARSHALLINGERROR);
  ck_rc(exists(z, "/a"), ZKE_NONODE);
  ck_ok(auth(z, "bob:p"));
  ck_ok(create_with(z, "/a", one(ALL, "auth", NULL)));
  expect_acl(z, "/a", "31 digest:" BOB);
  ck_ok(zke_close(z));
}

/* The three lists of the library. */
TEST(ready_made_lists) {
  zke *z = memory();
  ck_ok(create_with(z, "/open", ZKE_OPEN_ACL));
  ck_ok(create_with(z, "/read", ZKE_READ_ACL));
  ck_rc(create_with(z, "/mine", ZKE_CREATOR_ALL_ACL), ZKE_INVALIDACL);
  ck_ok(auth(z, "bob:p"));
  ck_ok(create_with(z, "/mine", ZKE_CREATOR_ALL_ACL));
  expect_acl(z, "/open", "31 world:anyone");
  expect_acl(z, "/read", "1 world:anyone");
  expect_acl(z, "/mine", "31 digest:" BOB);
  ck_ok(zke_close(z));
}

/* ---- identities ---- */

/* 8: the digest is base64(SHA1(cert)), the user what is before the first
 * colon. */
static const struct {
  const char *cert;
  int len;
  const char *id;
} digests[] = {
    {"bob:p", 5, BOB},
    {"alice:secret", 12, ALICE},
    {"bob:p:q", 7, "bob:Z5m1PRq7viOIj+sJipaR7ZH6JAM="},
    {"bob:", 4, "bob:tK1fpNO1hB0F++FhHpSq0Fa4tv0="},
    {":p", 2, ":LlDE5iroUDDm9zdvmLsfjkUvn0k="},
    {"nocolon", 7, "nocolon:Ra+cHr2ZoHvBjtNArFGNGlVie4g="},
    {"b\xc3\xb6:\0z", 6, "b\xc3\xb6:0pK86TrznKrpW/QxNQtFG9TOuS8="},
    {"bob:pXYZ", 5, BOB},
};

/* P1: the identity made of "user:password" is the one that ZooKeeper's server
 * computes, also for odd certificates. */
TEST_LOOP(digest_of_cert, 0, COUNT(digests)) {
  char expected[100];
  zke *z = memory();
  ck_ok(zke_add_auth(z, "digest", digests[_i].cert, digests[_i].len));
  ck_ok(create_with(z, "/a", ZKE_CREATOR_ALL_ACL));
  snprintf(expected, sizeof expected, "31 digest:%s", digests[_i].id);
  expect_acl(z, "/a", expected);
  ck_ok(zke_close(z));
}

/* SHA-1 at the edges of its blocks: "u:" and x up to the length. */
static const struct {
  int len;
  const char *hash;
} long_digests[] = {
    {54, "YIWqF/IAYi1mVmG6Qs7f08w6TSM="},
    {55, "HCI5t/vUzmyRgotbI4m3dQEEprM="},
    {56, "u6S5RlhYzGpVsIVz9ipesnwKfUg="},
    {57, "8rgiTm8PxrlMZwsOCxi4L4tFeug="},
    {63, "E2KmMVCAMJOBFyzP962n0SY64gA="},
    {64, "bqUvG0kh8XF9FXbJtNgRC3Yf5Tw="},
    {65, "fN6bK+54X+NL4fOD+gIIskeiqAg="},
    {119, "bBxrzwIXnEpu/7+xNCrW3LLMDio="},
    {120, "9uXofdQ7keL3T4mU4I82pvK4b5w="},
    {128, "7KBcpCgxspzCduUwVPlPTiRPS64="},
    {1000, "yuwsEXS+NJljXReNdO+KbQBKbNU="},
};

/* P1: the same at the lengths at which SHA-1 pads into another block. */
TEST_LOOP(digest_of_long_cert, 0, COUNT(long_digests)) {
  char cert[1001], expected[100];
  zke *z = memory();
  memset(cert, 'x', sizeof cert);
  memcpy(cert, "u:", 2);
  ck_ok(zke_add_auth(z, "digest", cert, long_digests[_i].len));
  ck_ok(create_with(z, "/a", ZKE_CREATOR_ALL_ACL));
  snprintf(expected, sizeof expected, "31 digest:u:%s", long_digests[_i].hash);
  expect_acl(z, "/a", expected);
  ck_ok(zke_close(z));
}

/* 8: only who knows the password is let in. */
TEST(digest_opens) {
  zke *z = memory(), *bob = test_session(z, NULL), *eve = test_session(z, NULL);
  ck_ok(auth(bob, "bob:p"));
  ck_ok(auth(eve, "bob:q"));
  ck_ok(create_with(z, "/a", one(ALL, "digest", BOB)));
  ck_rc(get(z, "/a"), ZKE_NOAUTH);
  ck_ok(get(bob, "/a"));
  ck_rc(get(eve, "/a"), ZKE_NOAUTH);
  ck_ok(auth(eve, "bob:p"));
  ck_ok(get(eve, "/a"));
  ck_ok(zke_close(bob));
  ck_ok(zke_close(eve));
  ck_ok(zke_close(z));
}

/* 8: an id is the whole text; "user:x", as it is shown, opens nothing. */
TEST(shown_id_opens_nothing) {
  zke *z = memory(), *bob = test_session(z, NULL);
  ck_ok(auth(bob, "bob:p"));
  ck_ok(create_with(z, "/a", one(ALL, "digest", "bob:x")));
  ck_rc(get(bob, "/a"), ZKE_NOAUTH);
  ck_ok(zke_close(bob));
  ck_ok(zke_close(z));
}

/* 12 #37: auth stands for each identity of the session, in any order. */
TEST(auth_expands) {
  zke_acls *acls = NULL;
  zke *z = memory();
  ck_ok(auth(z, "bob:p"));
  ck_ok(auth(z, "alice:secret"));
  ck_ok(auth(z, "bob:p")); /* known already */
  ck_ok(create_with(z, "/a", one(R | A, "auth", "ignored")));
  ck_ok(zke_get_acl(z, "/a", &acls, NULL));
  ck_assert_int_eq(acls->count, 2);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(acls->data[i].perms, R | A);
    ck_assert_str_eq(acls->data[i].scheme, "digest");
  }
  bool bob_first = !strcmp(acls->data[0].id, BOB);
  ck_assert_str_eq(acls->data[!bob_first].id, BOB);
  ck_assert_str_eq(acls->data[bob_first].id, ALICE);
  zke_free(acls);
  ck_ok(zke_close(z));
}

/* 8: auth beside others, in its place; duplicates are removed before the
 * expansion, not after it. */
TEST(auth_among_others) {
  zke_acl entries[] = {{R, "world", "anyone"},
                       {ALL, "auth", "x"},
                       {ALL, "auth", "x"},
                       {ALL, "digest", BOB},
                       {W, "digest", "a:b"}};
  zke *z = memory();
  ck_ok(auth(z, "bob:p"));
  ck_ok(create_with(z, "/a", &(zke_acls){5, entries}));
  expect_acl(z, "/a",
             "1 world:anyone; 31 digest:" BOB "; 31 digest:" BOB
             "; 2 digest:a:b");
  ck_ok(zke_close(z));
}

/* 8: identities belong to one session, and end with it. */
TEST(identities_belong_to_a_session) {
  zke *z = memory(), *bob = test_session(z, NULL);
  ck_ok(auth(bob, "bob:p"));
  ck_ok(create_with(bob, "/a", ZKE_CREATOR_ALL_ACL));
  ck_rc(get(z, "/a"), ZKE_NOAUTH);
  ck_rc(create_with(z, "/b", ZKE_CREATOR_ALL_ACL), ZKE_INVALIDACL);
  ck_ok(zke_close(bob));
  bob = test_session(z, NULL);
  ck_rc(get(bob, "/a"), ZKE_NOAUTH);
  ck_ok(auth(bob, "bob:p"));
  ck_ok(get(bob, "/a"));
  ck_ok(zke_close(bob));
  ck_ok(zke_close(z));
}

/* zkembed.h, P11: what zke_add_auth() refuses without harm. */
TEST(add_auth_arguments) {
  zke *z = memory();
  ck_rc(zke_add_auth(z, NULL, "a:b", 3), ZKE_BADARGUMENTS);
  ck_rc(zke_add_auth(z, "digest", "a:b", -1), ZKE_BADARGUMENTS);
  ck_rc(zke_add_auth(z, "digest", "a:b", INT_MIN), ZKE_BADARGUMENTS);
  ck_rc(zke_add_auth(z, "digest", NULL, 3), ZKE_BADARGUMENTS);
  ck_rc(zke_add_auth(z, "digest", "a\0b:c", 5), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_state(z), ZKE_STATE_CONNECTED);
  ck_rc(create_with(z, "/a", ZKE_CREATOR_ALL_ACL), ZKE_INVALIDACL);
  make(z, "/a");
  ck_ok(zke_close(z));
}

/* 12 #66: an unknown scheme kills the handle, and no other. */
TEST_LOOP(unknown_scheme_kills_the_handle, 0, 6) {
  static const char *const schemes[] = {"foo",   "world", "auth",
                                        "super", "ip",    ""};
  zke *z = memory(), *dead = test_session(z, NULL);
  test_events events = {0};
  make(z, "/a");
  ck_ok(zke_exists(dead, "/a", test_record, &events, NULL));
  ck_rc(zke_add_auth(dead, schemes[_i], "a:b", 3), ZKE_AUTHFAILED);
  if (schemes[_i][0]) ck_says(schemes[_i]);
  ck_assert_int_eq(zke_state(dead), ZKE_STATE_AUTH_FAILED);
  test_expect(dead, &events, "SESSION -113");
  ck_rc(exists(dead, "/a"), ZKE_INVALIDSTATE);
  ck_rc(set(dead, "/a", -1), ZKE_INVALIDSTATE);
  ck_rc(auth(dead, "bob:p"), ZKE_INVALIDSTATE);
  ck_rc(exists(dead, "/a/"), ZKE_BADARGUMENTS);
  ck_ok(exists(z, "/a"));
  ck_ok(zke_close(dead));
  ck_ok(zke_close(z));
}

/* 12 #66: closing it ends the session, with what it owned. */
TEST(auth_failed_handle_is_closed) {
  zke *z = memory(), *dead = test_session(z, NULL);
  ck_ok(zke_create(dead, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_rc(zke_add_auth(dead, "foo", "", 0), ZKE_AUTHFAILED);
  ck_ok(zke_close(dead));
  ck_rc(exists(z, "/e"), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* ---- which operation needs what ---- */

/* On /p, which has the child k. */
static int op_get(zke *z) { return get(z, "/p"); }

static int op_children(zke *z) {
  return zke_children(z, "/p", NULL, NULL, NULL, NULL);
}

static int op_count(zke *z) { return zke_count(z, "/p", NULL); }
static int op_usage(zke *z) { return zke_usage(z, "/p", NULL, NULL); }

static int op_check(zke *z) {
  zke_op op;
  zke_op_check(&op, "/p", -1);
  return zke_multi(z, &op, 1, NULL);
}

static int op_set(zke *z) { return set(z, "/p", -1); }

static int op_create(zke *z) { return create_with(z, "/p/n", ZKE_OPEN_ACL); }

static int op_sequential(zke *z) {
  return zke_create(z, "/p/s", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                    NULL, NULL);
}

static int op_delete(zke *z) { return zke_delete(z, "/p/k", -1); }

static int op_set_acl(zke *z) {
  return zke_set_acl(z, "/p", -1, ZKE_OPEN_ACL, NULL);
}

static int op_get_acl(zke *z) { return zke_get_acl(z, "/p", NULL, NULL); }

static int op_exists(zke *z) { return exists(z, "/p"); }

static int op_sync(zke *z) { return zke_sync(z, "/p"); }

static int op_child(zke *z) { return get(z, "/p/k"); }

static int op_grandchild(zke *z) {
  return create_with(z, "/p/k/g", ZKE_OPEN_ACL);
}

static int op_watch(zke *z) {
  return zke_add_watch(z, "/p", ZKE_WATCH_PERSISTENT, test_record, NULL);
}

static const struct {
  const char *name;
  int (*run)(zke *z);
  int needs; /* any of these bits; 0: none */
} needs[] = {
    {"get", op_get, R},
    {"children", op_children, R},
    {"count", op_count, R},
    {"usage", op_usage, R},
    {"check", op_check, R},
    {"set", op_set, W},
    {"create", op_create, C},
    {"create sequential", op_sequential, C},
    {"delete", op_delete, D},
    {"set_acl", op_set_acl, A},
    {"get_acl", op_get_acl, R | A},
    {"exists", op_exists, 0},
    {"sync", op_sync, 0},
    {"get of a child", op_child, 0},
    {"create below a child", op_grandchild, 0},
    {"add_watch", op_watch, 0},
};

static const int some_perms[] = {0,       R,  W,  C,       D,       A,    ALL,
                                 ALL - R, 32, -1, ALL - A, INT_MIN, R | W};

/* 8, 12 #35: each operation under each set of permissions. */
TEST_LOOP(permission_needed, 0, COUNT(needs)) {
  for (int i = 0; i < COUNT(some_perms); i++) {
    int perms = some_perms[i];
    zke *z = memory();
    make(z, "/p");
    make(z, "/p/k");
    ck_ok(zke_set_acl(z, "/p", -1, world(perms), NULL));
    bool allowed = !needs[_i].needs || (perms & needs[_i].needs);
    int rc = needs[_i].run(z);
    ck_assert_msg(rc == (allowed ? ZKE_OK : ZKE_NOAUTH), "%s with %d: %s",
                  needs[_i].name, perms, zke_error_name(rc));
    ck_ok(zke_close(z));
  }
}

/* 8: permissions of one's entries add up; those of others do not count. */
TEST(permission_of_matching_entries) {
  zke_acl entries[] = {
      {R, "world", "anyone"}, {W, "digest", BOB}, {C, "digest", ALICE}};
  zke *z = memory(), *bob = test_session(z, NULL);
  ck_ok(auth(bob, "bob:p"));
  ck_ok(create_with(z, "/p", &(zke_acls){3, entries}));
  ck_ok(op_get(z));
  ck_rc(op_set(z), ZKE_NOAUTH);
  ck_ok(op_get(bob));
  ck_ok(op_set(bob));
  ck_rc(op_create(bob), ZKE_NOAUTH);
  ck_ok(auth(bob, "alice:secret"));
  ck_ok(op_create(bob));
  ck_ok(zke_close(bob));
  ck_ok(zke_close(z));
}

/* 12 #36: a node for nobody can be seen to exist, and deleted by whoever may
 * change its parent. */
TEST(node_for_nobody) {
  zke *z = memory();
  ck_ok(create_with(z, "/p", world(0)));
  ck_ok(op_exists(z));
  ck_rc(op_get(z), ZKE_NOAUTH);
  ck_rc(op_get_acl(z), ZKE_NOAUTH);
  ck_rc(op_set_acl(z), ZKE_NOAUTH);
  ck_ok(zke_delete(z, "/p", 0));
  ck_ok(zke_close(z));
}

/* 8: nothing is inherited, and ancestors above the parent do not matter. */
TEST(no_inheritance) {
  zke *z = memory();
  make(z, "/p");
  make(z, "/p/k");
  make(z, "/p/k/l");
  ck_ok(zke_set_acl(z, "/p", -1, world(0), NULL));
  ck_ok(get(z, "/p/k/l"));
  ck_ok(set(z, "/p/k/l", 0));
  ck_ok(zke_delete(z, "/p/k/l", 1));
  make(z, "/p/k/m");
  expect_acl(z, "/p/k/m", "31 world:anyone");
  ck_ok(zke_close(z));
}

/* ---- order of checks ---- */

/* 12 #30, #31, #33, #88, section 3.  /open has aversion and version 1; /shut
 * is for nobody and has the child k. */
static const struct {
  const char *path;
  int version;
  const zke_acls *acls;
  int rc;
} set_acl_order[] = {
    {"/open/", 99, NULL, ZKE_BADARGUMENTS},
    {"/\x7f", 99, NULL, ZKE_BADARGUMENTS},
    {"/nope", 99, NULL, ZKE_INVALIDACL},
    {"/shut", 99, NULL, ZKE_INVALIDACL},
    {"/open", 99, &zke_creator_all_acl, ZKE_INVALIDACL},
    {"/nope", 99, &zke_open_acl, ZKE_NONODE},
    {"/nope", -1, &zke_open_acl, ZKE_NONODE},
    {"/shut", 99, &zke_open_acl, ZKE_NOAUTH},
    {"/shut", -1, &zke_open_acl, ZKE_NOAUTH},
    {"/zookeeper/config", -1, &zke_open_acl, ZKE_NOAUTH},
    {"/open", 99, &zke_open_acl, ZKE_BADVERSION},
    {"/open", 0, &zke_open_acl, ZKE_BADVERSION},
    {"/open", -2, &zke_open_acl, ZKE_BADVERSION},
    {"/open", 1, &zke_open_acl, ZKE_OK},
    {"/open", -1, &zke_open_acl, ZKE_OK},
};

/* P1: where several things are wrong with a set_acl the server's first
 * complaint comes, and no zxid is used. */
TEST_LOOP(set_acl_order_of_checks, 0, COUNT(set_acl_order)) {
  zke *z = memory();
  make(z, "/open");
  ck_ok(zke_set_acl(z, "/open", 0, ZKE_OPEN_ACL, NULL));
  ck_ok(create_with(z, "/shut", world(0)));
  int64_t before = test_zxid(z);
  int rc = set_acl_order[_i].rc;
  ck_rc(zke_set_acl(z, set_acl_order[_i].path, set_acl_order[_i].version,
                    set_acl_order[_i].acls, NULL),
        rc);
  ck_assert_int_eq(test_stat(z, "/open").aversion, 1 + (rc == ZKE_OK));
  ck_assert_int_eq(test_zxid(z), before + 1 + (rc == ZKE_OK)); /* P1 */
  ck_ok(zke_close(z));
}

/* 12 #30, #31, #35: permission before what it protects. */
TEST(permission_before_the_rest) {
  zke *z = memory();
  zke_op op;
  make(z, "/shut");
  make(z, "/shut/k");
  ck_ok(zke_set_acl(z, "/shut", -1, world(0), NULL));
  ck_rc(zke_delete(z, "/shut/nope", 7), ZKE_NOAUTH);
  ck_rc(zke_delete(z, "/shut/k", 7), ZKE_NOAUTH);
  ck_rc(create_with(z, "/shut/k", ZKE_OPEN_ACL), ZKE_NOAUTH);
  ck_rc(create_with(z, "/shut/\x7f", ZKE_OPEN_ACL), ZKE_NOAUTH);
  ck_rc(create_with(z, "/shut/new", NULL), ZKE_INVALIDACL);
  ck_rc(set(z, "/shut", 7), ZKE_NOAUTH);
  zke_op_check(&op, "/shut", 7);
  ck_rc(zke_multi(z, &op, 1, NULL), ZKE_NOAUTH);
  zke_op_check(&op, "/shut/nope", -1);
  ck_rc(zke_multi(z, &op, 1, NULL), ZKE_NONODE);
  ck_rc(get(z, "/shut/nope"), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* P11: the sentence names the node. */
TEST(noauth_names_the_node) {
  zke *z = memory();
  ck_ok(create_with(z, "/guarded", world(0)));
  ck_rc(get(z, "/guarded"), ZKE_NOAUTH);
  ck_says("/guarded");
  ck_rc(set(z, "/guarded", -1), ZKE_NOAUTH);
  ck_says("/guarded");
  ck_rc(zke_get_acl(z, "/guarded", NULL, NULL), ZKE_NOAUTH);
  ck_says("/guarded");
  ck_rc(create_with(z, "/a", one(ALL, "bogus", "x")), ZKE_INVALIDACL);
  ck_says("bogus");
  ck_ok(zke_close(z));
}

/* ---- get_acl and set_acl ---- */

/* 12 #33: set_acl changes aversion, and no other field; no event. */
TEST(set_acl_changes_aversion_only) {
  zke *z = memory();
  test_events events = {0};
  make(z, "/a");
  zke_stat s = test_stat(z, "/a"), root = test_stat(z, "/"), t;
  ck_ok(zke_exists(z, "/a", test_record, &events, NULL));
  ck_ok(zke_children(z, "/a", test_record, &events, NULL, NULL));
  ck_ok(zke_children(z, "/", test_record, &events, NULL, NULL));
  ck_ok(zke_set_acl(z, "/a", 0, world(R | A), &t));
  test_expect(z, &events, "");
  test_expect_stat(t, test_stat(z, "/a"));
  ck_assert_int_eq(t.aversion, 1);
  ck_assert_int_eq(t.version, s.version);
  ck_assert_int_eq(t.cversion, s.cversion);
  ck_assert_int_eq(t.czxid, s.czxid);
  ck_assert_int_eq(t.mzxid, s.mzxid);
  ck_assert_int_eq(t.pzxid, s.pzxid);
  ck_assert_int_eq(t.mtime, s.mtime);
  ck_assert_int_eq(test_stat(z, "/").pzxid, root.pzxid);
  ck_ok(zke_close(z));
}

/* 8: the version of set_acl is the aversion, not the version. */
TEST(set_acl_looks_at_aversion) {
  zke *z = memory();
  make(z, "/a");
  ck_ok(set(z, "/a", 0));
  ck_ok(set(z, "/a", 1));
  ck_rc(zke_set_acl(z, "/a", 2, ZKE_OPEN_ACL, NULL), ZKE_BADVERSION);
  ck_ok(zke_set_acl(z, "/a", 0, ZKE_OPEN_ACL, NULL));
  ck_ok(set(z, "/a", 2));
  ck_ok(zke_close(z));
}

/* 12 #34: digests are shown to those who may administer. */
TEST(digests_are_masked) {
  zke *z = memory(), *bob = test_session(z, NULL);
  zke_acl entries[] = {{R, "world", "anyone"}, {ALL, "digest", BOB}};
  ck_ok(auth(bob, "bob:p"));
  ck_ok(create_with(z, "/a", &(zke_acls){2, entries}));
  expect_acl(z, "/a", "1 world:anyone; 31 digest:bob:x");
  expect_acl(bob, "/a", "1 world:anyone; 31 digest:" BOB);
  ck_ok(create_with(z, "/b", one(ALL, "digest", BOB)));
  ck_rc(zke_get_acl(z, "/b", NULL, NULL), ZKE_NOAUTH);
  ck_ok(exists(z, "/b"));
  expect_acl(bob, "/b", "31 digest:" BOB);
  ck_ok(zke_close(bob));
  ck_ok(zke_close(z));
}

/* 12 #34: ADMIN alone is enough to see all of it. */
TEST(admin_sees_digests) {
  zke_acl entries[] = {{A, "world", "anyone"}, {ALL, "digest", BOB}};
  zke *z = memory();
  ck_ok(create_with(z, "/a", &(zke_acls){2, entries}));
  ck_rc(get(z, "/a"), ZKE_NOAUTH);
  expect_acl(z, "/a", "16 world:anyone; 31 digest:" BOB);
  ck_ok(zke_close(z));
}

/* zkembed.h: get_acl's Stat, and outputs on failure. */
TEST(get_acl_outputs) {
  zke *z = memory();
  zke_stat s;
  zke_acls *acls = (zke_acls *)z;
  make(z, "/a");
  ck_ok(set(z, "/a", 0));
  ck_ok(zke_get_acl(z, "/a", NULL, &s));
  ck_assert_int_eq(s.version, 1);
  ck_assert_int_eq(s.czxid, test_stat(z, "/a").czxid);
  ck_ok(create_with(z, "/shut", world(0)));
  s.version = 99;
  ck_rc(zke_get_acl(z, "/nope", &acls, &s), ZKE_NONODE);
  ck_rc(zke_get_acl(z, "/shut", &acls, &s), ZKE_NOAUTH);
  ck_assert_ptr_eq(acls, z);
  ck_assert_int_eq(s.version, 99);
  ck_ok(zke_close(z));
}

/* 8: a set_acl that locks oneself out is carried out. */
TEST(set_acl_may_lock_out) {
  zke *z = memory();
  make(z, "/a");
  ck_ok(zke_set_acl(z, "/a", -1, ZKE_READ_ACL, NULL));
  expect_acl(z, "/a", "1 world:anyone");
  ck_rc(zke_set_acl(z, "/a", -1, ZKE_OPEN_ACL, NULL), ZKE_NOAUTH);
  ck_ok(zke_close(z));
}

/* 8: an ACL of many entries comes back whole and in order. */
TEST(long_list) {
  enum { MANY = 500 };
  static zke_acl entries[MANY];
  static char ids[MANY][16];
  zke_acls *acls = NULL;
  zke *z = memory();
  for (int i = 0; i < MANY; i++) {
    snprintf(ids[i], sizeof ids[i], "user%d:%d", i, i);
    entries[i] = (zke_acl){ALL, "digest", ids[i]};
  }
  entries[MANY - 1] = (zke_acl){A, "world", "anyone"};
  ck_ok(create_with(z, "/a", &(zke_acls){MANY, entries}));
  ck_ok(zke_get_acl(z, "/a", &acls, NULL));
  ck_assert_int_eq(acls->count, MANY);
  for (int i = 0; i < MANY; i++) {
    ck_assert_str_eq(acls->data[i].id, entries[i].id);
  }
  zke_free(acls);
  ck_ok(zke_close(z));
}

/* 8: of entries that are equal the first counts, in a list of any length.  It
 * is not compared with each that is before it: that would take minutes. */
TEST(a_long_list_has_each_entry_once) {
  enum { MANY = 1000000, DISTINCT = 40000, STEP = 7919 };
  char(*ids)[12] = calloc(DISTINCT, sizeof *ids);
  zke_acl *entries = calloc(MANY, sizeof *entries);
  zke_acls *acls = NULL;
  zke *z = memory();
  ck_assert(ids && entries);
  for (int i = 0; i < DISTINCT; i++)
    snprintf(ids[i], sizeof ids[i], "u%d:x", i * STEP % DISTINCT);
  for (int i = 0; i < MANY; i++)
    entries[i] = (zke_acl){ALL, "digest", ids[i % DISTINCT]};
  ck_ok(create_with(z, "/a", &(zke_acls){MANY, entries}));
  ck_ok(auth(z, "bob:p"));
  ck_ok(zke_vouch(z, "super", ""));
  ck_ok(zke_get_acl(z, "/a", &acls, NULL));
  ck_assert_int_eq(acls->count, DISTINCT);
  for (int i = 0; i < DISTINCT; i++) ck_assert_str_eq(acls->data[i].id, ids[i]);
  zke_free(acls);
  free(entries);
  free(ids);
  ck_ok(zke_close(z));
}

/* The most bytes that an ACL has in the file, and what an entry has beside its
 * id there. */
enum { ACL_MOST = 1024 * 1024, ENTRY = sizeof "31:digest:\n" - 1 };

/* A digest id of so many bytes, which end in `end`; the caller frees it. */
static char *long_id(size_t len, char end) {
  char *id = malloc(len + 1);
  ck_assert_ptr_nonnull(id);
  memset(id, 'x', len);
  id[len] = '\0';
  id[1] = ':';
  id[len - 1] = end;
  return id;
}

/* zkembed.h, zke_create: an ACL has at most 1 MiB, as it is in the file, where
 * some characters have two bytes. */
TEST(an_acl_has_a_limit) {
  zke *z = memory();
  char *fits = long_id(ACL_MOST - ENTRY, 'x');
  char *escaped = long_id(ACL_MOST - ENTRY, '\\');
  char *more = long_id(ACL_MOST - ENTRY + 1, 'x');
  ck_ok(create_with(z, "/a", one(ALL, "digest", fits)));
  ck_rc(create_with(z, "/b", one(ALL, "digest", escaped)), ZKE_INVALIDACL);
  ck_says("1048576");
  ck_rc(create_with(z, "/b", one(ALL, "digest", more)), ZKE_INVALIDACL);
  ck_rc(exists(z, "/b"), ZKE_NONODE);
  make(z, "/b");
  ck_rc(zke_set_acl(z, "/b", -1, one(ALL, "digest", more), NULL),
        ZKE_INVALIDACL);
  ck_ok(zke_set_acl(z, "/b", -1, one(ALL, "digest", fits), NULL));
  ck_ok(zke_close(z));
  free(fits);
  free(escaped);
  free(more);
}

/* The C library's allocator, but for blocks that nothing here needs. */
static void *resize_somewhat(void *context, void *block, size_t size) {
  if (size > 4 * ACL_MOST) *(bool *)context = true;
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

/* zkembed.h, zke_create: with the identities that entries of scheme auth
 * become.  No memory is taken for what is not stored. */
TEST(a_short_list_does_not_become_an_immense_acl) {
  enum { IDENTITIES = 1000, ENTRIES = 2000 };
  static zke_acl entries[ENTRIES];
  bool much = false;
  zke_options options = {.size = sizeof options,
                         .allocator = {resize_somewhat, &much}};
  zke *z = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  for (int i = 0; i < IDENTITIES; i++) {
    char cert[16];
    snprintf(cert, sizeof cert, "u%d:p", i);
    ck_ok(auth(z, cert));
  }
  for (int i = 0; i < ENTRIES; i++) entries[i] = (zke_acl){i, "auth", ""};
  ck_ok(create_with(z, "/a", &(zke_acls){20, entries}));
  ck_rc(create_with(z, "/b", &(zke_acls){ENTRIES, entries}), ZKE_INVALIDACL);
  ck_says("1048576");
  ck_assert(!much);
  ck_rc(exists(z, "/b"), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* Create so many nodes with that ACL, by a multi. */
static int create_several(zke *z, int count, const zke_acls *acls,
                          zke_op_result *results) {
  zke_op ops[20];
  ck_assert_int_le(count, COUNT(ops));
  for (int i = 0; i < count; i++)
    zke_op_create(&ops[i], "/n-", "", 0, acls, ZKE_PERSISTENT_SEQUENTIAL);
  return zke_multi(z, ops, count, results);
}

/* As create_several(), each by its own call. */
static int create_each(zke *z, void *acls) {
  for (int i = 0; i < 18; i++) {
    ck_ok(zke_create(z, "/n-", "", 0, acls, ZKE_PERSISTENT_SEQUENTIAL, NULL,
                     NULL));
  }
  return ZKE_OK;
}

/* zkembed.h, zke_multi: the creates of a multi have 16 MiB together; calls in a
 * batch stand for themselves. */
TEST(the_acls_of_a_multi_have_a_limit) {
  zke *z = memory();
  char *id = long_id(ACL_MOST - ENTRY, 'x');
  zke_acl entry = {ALL, "digest", id};
  zke_acls acls = {1, &entry};
  zke_op_result results[18] = {{0}};
  int64_t count;
  ck_rc(create_several(z, 18, &acls, results), ZKE_INVALIDACL);
  ck_says("16777216");
  ck_assert_int_eq(results[14].rc, ZKE_OK);
  ck_assert_int_eq(results[17].rc, ZKE_RUNTIMEINCONSISTENCY);
  ck_rc(exists(z, "/n-0000000000"), ZKE_NONODE);
  ck_ok(create_several(z, 15, &acls, NULL));
  ck_ok(create_several(z, 15, &acls, NULL));
  ck_ok(zke_batch(z, create_each, &acls));
  ck_ok(zke_count(z, "/", &count));
  ck_assert_int_ge(count, 15 + 15 + 18);
  ck_ok(zke_close(z));
  free(id);
}

/* P8, 8: ACLs are kept in the file. */
TEST(acls_are_stored) {
  const char *name = test_path("acl.db");
  zke *z = test_open(name);
  ck_ok(auth(z, "bob:p"));
  ck_ok(create_with(z, "/a", ZKE_CREATOR_ALL_ACL));
  make(z, "/b");
  ck_ok(zke_set_acl(z, "/b", 0, world(R), NULL));
  ck_ok(zke_close(z));
  z = test_open(name);
  ck_rc(get(z, "/a"), ZKE_NOAUTH);
  expect_acl(z, "/b", "1 world:anyone");
  ck_assert_int_eq(test_stat(z, "/b").aversion, 1);
  ck_ok(auth(z, "bob:p"));
  expect_acl(z, "/a", "31 digest:" BOB);
  ck_ok(zke_close(z));
}

/* ---- watches and READ: 5.8, 12 #84 ---- */

/* A session with the identity bob, who owns the tree, and one without. */
static void two_sessions(zke **bob, zke **anyone) {
  *bob = memory();
  *anyone = test_session(*bob, NULL);
  ck_ok(auth(*bob, "bob:p"));
}

static void close_both(zke *bob, zke *anyone) {
  ck_ok(zke_close(anyone));
  ck_ok(zke_close(bob));
}

/* No CHANGED of what one may not read; the watch is gone all the same. */
TEST(changed_is_withheld) {
  zke *bob, *z;
  test_events events = {0};
  two_sessions(&bob, &z);
  make(bob, "/a");
  ck_ok(zke_get(z, "/a", test_record, &events, NULL, NULL, NULL));
  ck_ok(zke_set_acl(bob, "/a", -1, ZKE_CREATOR_ALL_ACL, NULL));
  ck_ok(set(bob, "/a", -1));
  test_expect(z, &events, "");
  ck_ok(zke_set_acl(bob, "/a", -1, ZKE_OPEN_ACL, NULL));
  ck_ok(set(bob, "/a", -1));
  test_expect(z, &events, "");
  close_both(bob, z);
}

/* The node's ACL at the time of the change decides, not a later one. */
TEST(acl_of_the_change_decides) {
  zke *bob, *z;
  test_events events = {0};
  two_sessions(&bob, &z);
  make(bob, "/a");
  make(bob, "/b");
  ck_ok(zke_exists(z, "/a", test_record, &events, NULL));
  ck_ok(zke_exists(z, "/b", test_record, &events, NULL));
  ck_ok(set(bob, "/a", -1)); /* readable now, not later */
  ck_ok(zke_set_acl(bob, "/a", -1, ZKE_CREATOR_ALL_ACL, NULL));
  ck_ok(zke_set_acl(bob, "/b", -1, ZKE_CREATOR_ALL_ACL, NULL));
  ck_ok(set(bob, "/b", -1)); /* readable later, not now */
  ck_ok(zke_set_acl(bob, "/b", -1, ZKE_OPEN_ACL, NULL));
  test_expect(z, &events, "CHANGED /a");
  close_both(bob, z);
}

/* No CREATED of a node one may not read. */
TEST(created_is_withheld) {
  zke *bob, *z;
  test_events events = {0}, bobs = {0};
  two_sessions(&bob, &z);
  ck_rc(zke_exists(z, "/a", test_record, &events, NULL), ZKE_NONODE);
  ck_rc(zke_exists(bob, "/a", test_record, &bobs, NULL), ZKE_NONODE);
  ck_ok(create_with(bob, "/a", ZKE_CREATOR_ALL_ACL));
  test_expect(bob, &bobs, "CREATED /a");
  test_expect(z, &events, "");
  ck_ok(zke_delete(bob, "/a", -1));
  make(bob, "/a");
  test_expect(z, &events, "");
  close_both(bob, z);
}

/* No DELETED either; exists needs no permission, its event does. */
TEST(deleted_is_withheld) {
  zke *bob, *z;
  test_events events = {0};
  two_sessions(&bob, &z);
  ck_ok(create_with(bob, "/a", ZKE_CREATOR_ALL_ACL));
  ck_ok(zke_exists(z, "/a", test_record, &events, NULL));
  ck_ok(zke_delete(bob, "/a", -1));
  test_expect(z, &events, "");
  close_both(bob, z);
}

/* CHILD asks for READ on the parent, and only there. */
TEST(child_needs_read_on_parent) {
  zke *bob, *z;
  test_events events = {0};
  two_sessions(&bob, &z);
  make(bob, "/p");
  ck_ok(zke_children(z, "/p", test_record, &events, NULL, NULL));
  ck_ok(create_with(bob, "/p/secret", ZKE_CREATOR_ALL_ACL));
  test_expect(z, &events, "CHILD /p");
  ck_ok(zke_children(z, "/p", test_record, &events, NULL, NULL));
  ck_ok(zke_set_acl(bob, "/p", -1, ZKE_CREATOR_ALL_ACL, NULL));
  make(bob, "/p/a");
  test_expect(z, &events, "");
  ck_ok(zke_set_acl(bob, "/p", -1, ZKE_OPEN_ACL, NULL));
  make(bob, "/p/b");
  test_expect(z, &events, "");
  close_both(bob, z);
}

/* Persistent watches are filtered too, but stay. */
TEST(persistent_watches_are_filtered) {
  zke *bob, *z;
  test_events events = {0};
  two_sessions(&bob, &z);
  make(bob, "/p");
  ck_ok(zke_add_watch(z, "/p", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      &events));
  ck_ok(create_with(bob, "/p/secret", ZKE_CREATOR_ALL_ACL));
  ck_ok(set(bob, "/p/secret", 0));
  make(bob, "/p/open");
  ck_ok(zke_delete(bob, "/p/secret", -1));
  ck_ok(set(bob, "/p/open", 0));
  test_expect(z, &events, "CREATED /p/open; CHANGED /p/open");
  close_both(bob, z);
}

/* 12 #84: a read that is refused registers nothing. */
TEST(refused_read_registers_nothing) {
  zke *bob, *z;
  test_events events = {0};
  two_sessions(&bob, &z);
  ck_ok(create_with(bob, "/a", ZKE_CREATOR_ALL_ACL));
  ck_rc(zke_get(z, "/a", test_record, &events, NULL, NULL, NULL), ZKE_NOAUTH);
  ck_rc(zke_children(z, "/a", test_record, &events, NULL, NULL), ZKE_NOAUTH);
  ck_ok(zke_set_acl(bob, "/a", -1, ZKE_OPEN_ACL, NULL));
  ck_ok(set(bob, "/a", -1));
  make(bob, "/a/b");
  test_expect(z, &events, "");
  ck_rc(zke_remove_watch(z, "/a", ZKE_WATCH_ANY, NULL, NULL), ZKE_NOWATCHER);
  close_both(bob, z);
}

/* Who may read an event is asked when it is delivered: an identity that went
 * or came since then counts, whichever was there when the event was queued, or
 * read from the file. */
TEST_LOOP(pending_events_go_by_the_identities_of_now, 0, 2) {
  test_events events = {0};
  zke *bob, *z;
  two_sessions(&bob, &z);
  bool had = _i == 0;
  ck_ok(create_with(bob, "/a", ZKE_CREATOR_ALL_ACL));
  if (had) ck_ok(auth(z, "bob:p"));
  ck_ok(zke_add_watch(z, "/a", ZKE_WATCH_PERSISTENT, test_record, &events));
  ck_ok(set(bob, "/a", -1));
  int64_t first = zke_zxid();
  ck_ok(set(bob, "/a", -1));
  ck_ok(zke_dispatch_to(z, first, NULL, NULL)); /* the second is in memory */
  ck_assert_int_eq(events.count, had);
  if (had)
    ck_ok(zke_clear_auth(z));
  else
    ck_ok(auth(z, "bob:p"));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(events.count, 1);
  close_both(bob, z);
}

/* ---- identities that a host vouches for ---- */

/* What was added goes, of either kind, and can be added again. */
TEST(clear_auth_takes_all_identities) {
  zke *bob, *z;
  two_sessions(&bob, &z);
  ck_ok(create_with(bob, "/a", ZKE_CREATOR_ALL_ACL));
  ck_ok(get(bob, "/a"));
  ck_ok(zke_vouch(bob, "sasl", "bob"));
  ck_ok(create_with(bob, "/s", one(ALL, "sasl", "bob")));
  ck_ok(zke_clear_auth(bob));
  ck_rc(get(bob, "/a"), ZKE_NOAUTH);
  ck_rc(get(bob, "/s"), ZKE_NOAUTH);
  ck_rc(create_with(bob, "/b", ZKE_CREATOR_ALL_ACL), ZKE_INVALIDACL);
  ck_ok(auth(bob, "bob:p"));
  ck_ok(get(bob, "/a"));
  ck_ok(zke_vouch(bob, "sasl", "bob"));
  ck_ok(get(bob, "/s"));
  ck_rc(zke_clear_auth(NULL), ZKE_BADARGUMENTS);
  close_both(bob, z);
}

/* A scheme is valid for all sessions of the store from the first word on, and
 * matches scheme and id, as text. */
TEST(a_vouched_scheme_is_valid_and_matches_by_text) {
  zke *bob, *z;
  two_sessions(&bob, &z);
  ck_rc(create_with(z, "/a", one(ALL, "x509", "CN=ann")), ZKE_INVALIDACL);
  ck_ok(zke_vouch(bob, "x509", NULL));
  ck_ok(create_with(z, "/a", one(ALL, "x509", "CN=ann")));
  expect_acl(bob, "/zookeeper", "31 world:anyone");
  ck_rc(get(bob, "/a"), ZKE_NOAUTH);
  ck_ok(zke_vouch(bob, "x509", "CN=anna"));
  ck_ok(zke_vouch(bob, "sasl", "CN=ann"));
  ck_rc(get(bob, "/a"), ZKE_NOAUTH);
  ck_ok(zke_vouch(bob, "x509", "CN=ann"));
  ck_ok(zke_vouch(bob, "x509", "CN=ann"));
  ck_ok(get(bob, "/a"));
  expect_acl(bob, "/a", "31 x509:CN=ann");
  ck_rc(get(z, "/a"), ZKE_NOAUTH);
  ck_ok(create_with(bob, "/b", one(R, "sasl", "a\nb\\n:c")));
  ck_rc(get(bob, "/b"), ZKE_NOAUTH);
  ck_ok(zke_vouch(bob, "sasl", "a\nb\\n:c"));
  ck_ok(get(bob, "/b"));
  ck_rc(create_with(bob, "/c", one(ALL, "x509", NULL)), ZKE_INVALIDACL);
  close_both(bob, z);
}

/* An entry of one scheme is not met by an identity of another with its text. */
TEST(a_digest_matches_no_other_scheme) {
  zke *bob, *z;
  two_sessions(&bob, &z);
  ck_ok(zke_vouch(z, "sasl", BOB));
  ck_ok(create_with(z, "/d", one(ALL, "digest", BOB)));
  ck_ok(create_with(z, "/s", one(ALL, "sasl", BOB)));
  ck_rc(get(z, "/d"), ZKE_NOAUTH);
  ck_rc(get(bob, "/s"), ZKE_NOAUTH);
  ck_ok(get(bob, "/d"));
  ck_ok(get(z, "/s"));
  ck_ok(zke_vouch(z, "digest", BOB));
  ck_ok(get(z, "/d"));
  close_both(bob, z);
}

/* auth stands for all identities but address and super. */
TEST(auth_stands_for_vouched_identities) {
  zke *z = memory();
  ck_ok(zke_vouch(z, "ip", "1.2.3.4"));
  ck_ok(zke_vouch(z, "super", ""));
  ck_rc(create_with(z, "/a", ZKE_CREATOR_ALL_ACL), ZKE_INVALIDACL);
  ck_ok(zke_vouch(z, "sasl", "bob"));
  ck_ok(auth(z, "bob:p"));
  ck_ok(create_with(z, "/a", ZKE_CREATOR_ALL_ACL));
  expect_acl(z, "/a", "31 sasl:bob; 31 digest:" BOB);
  ck_ok(zke_close(z));
}

/* super passes every check, and sees digests; no list may have it. */
TEST(super_passes_every_check) {
  test_events events = {0};
  zke *bob, *z;
  two_sessions(&bob, &z);
  ck_ok(create_with(bob, "/a", one(ALL, "digest", BOB)));
  make(bob, "/b");
  ck_ok(zke_set_acl(bob, "/b", -1, world(0), NULL));
  ck_ok(zke_vouch(z, "super", ""));
  ck_ok(get(z, "/a"));
  ck_ok(set(z, "/a", -1));
  expect_acl(z, "/a", "31 digest:" BOB);
  make(z, "/b/c");
  ck_ok(zke_get(z, "/a", test_record, &events, NULL, NULL, NULL));
  ck_ok(set(bob, "/a", -1));
  test_expect(z, &events, "CHANGED /a");
  ck_ok(zke_delete(z, "/b/c", -1));
  ck_ok(zke_set_acl(z, "/b", -1, ZKE_OPEN_ACL, NULL));
  ck_rc(create_with(z, "/c", one(ALL, "super", "")), ZKE_INVALIDACL);
  ck_ok(zke_clear_auth(z));
  ck_rc(get(z, "/a"), ZKE_NOAUTH);
  close_both(bob, z);
}

static const struct {
  const char *entry, *from; /* from NULL: the entry is not valid */
  bool match;
} nets[] = {
    {"10.1.2.3", "10.1.2.3", true},
    {"10.1.2.3", "10.1.2.4", false},
    {"10.1.2.3/32", "10.1.2.3", true},
    {"10.1.2.3/31", "10.1.2.2", true},
    {"10.1.2.3/31", "10.1.2.4", false},
    {"10.1.0.0/16", "10.1.255.9", true},
    {"10.1.0.0/16", "10.2.0.0", false},
    {"0.0.0.0/0", "255.255.255.255", true},
    {"128.0.0.0/1", "200.0.0.1", true},
    {"128.0.0.0/1", "100.0.0.1", false},
    {"010.001.2.3", "10.1.2.3", true},
    {"1.2.3.4", "1.2.3.4/32", false},
    {"1.2.3.4", "::1", false},
    {"0.0.0.0/0", "0:0:0:0:0:0:0:1", false},
    {"0.0.0.0/0", "", false},
    {"1.2.3.4/33", NULL, false},
    {"300.1.1.1", NULL, false},
    {"abc", NULL, false},
    {"::1", NULL, false},
    {"", NULL, false},
    {"1.2.3", NULL, false},
    {"1.2.3.4.5", NULL, false},
    {"1.2.3.4/", NULL, false},
    {"1.2.3.4/8/8", NULL, false},
    {"1.2.3.4/-1", NULL, false},
    {"1..2.3", NULL, false},
    {".1.2.3", NULL, false},
    {"1.2.3.", NULL, false},
    {"1.2.3.4 ", NULL, false},
    {"1.2.3.256", NULL, false},
    {"1.2.3.4294967297", NULL, false},
    {"1.2.3.4/4294967304", NULL, false},
};

/* The sentence of a refused entry says why. */
TEST(the_sentence_says_why_an_entry_is_refused) {
  static const struct {
    const char *scheme, *id, *why;
  } bad[] = {{"digest", NULL, "digest:(null) is not valid: its id is NULL"},
             {"world", "all", "world:all is not valid: the id of world is"},
             {"digest", "ann", "an id of digest is USER:HASH"},
             {"super", "", "super needs no entry"},
             {"sasl", "ann", "only where zke_vouch() has given it"},
             {"ip", "1.2.3", "an id of ip is an IPv4 address"}};
  zke *bob, *z;
  two_sessions(&bob, &z);
  ck_ok(zke_vouch(z, "ip", "1.2.3.4"));
  for (int i = 0; i < COUNT(bad); i++) {
    ck_rc(create_with(bob, "/a", one(ALL, bad[i].scheme, bad[i].id)),
          ZKE_INVALIDACL);
    ck_says(bad[i].why);
  }
  close_both(bob, z);
}

/* 8: scheme ip is an IPv4 address, or a net. */
TEST_LOOP(ip_matches_as_addresses, 0, COUNT(nets)) {
  zke *bob, *z;
  two_sessions(&bob, &z);
  ck_rc(create_with(bob, "/a", one(ALL, "ip", "10.1.2.3")), ZKE_INVALIDACL);
  ck_ok(zke_vouch(z, "ip", nets[_i].from ? nets[_i].from : "1.2.3.4"));
  ck_rc(create_with(bob, "/a", one(ALL, "ip", nets[_i].entry)),
        nets[_i].from ? ZKE_OK : ZKE_INVALIDACL);
  if (nets[_i].from) {
    ck_rc(get(z, "/a"), nets[_i].match ? ZKE_OK : ZKE_NOAUTH);
    ck_rc(get(bob, "/a"), ZKE_NOAUTH);
  }
  close_both(bob, z);
}

static const struct {
  const char *scheme, *id;
  int rc;
} vouchers[] = {
    {NULL, "x", ZKE_BADARGUMENTS},
    {"", "x", ZKE_BADARGUMENTS},
    {"world", "anyone", ZKE_BADARGUMENTS},
    {"auth", "", ZKE_BADARGUMENTS},
    {"a:b", "x", ZKE_BADARGUMENTS},
    {"a\nb", "x", ZKE_BADARGUMENTS},
    {"sixteen_letters_", "x", ZKE_BADARGUMENTS},
    {"fifteen_letters", "x", ZKE_OK},
    {"digest", "bob", ZKE_BADARGUMENTS},
    {"digest", BOB, ZKE_OK},
    {"sasl", "", ZKE_OK},
    {"World", "anyone", ZKE_OK},
};

/* An identity that a host vouches for must be one that an ACL could name. One
 * that is taken counts; one that is refused is good for no ACL either, but for
 * that of everybody. */
TEST_LOOP(what_a_host_can_vouch_for, 0, COUNT(vouchers)) {
  const char *scheme = vouchers[_i].scheme, *id = vouchers[_i].id;
  zke *z = memory();
  ck_rc(zke_vouch(z, scheme, id), vouchers[_i].rc);
  ck_rc(zke_vouch(NULL, scheme, id), ZKE_BADARGUMENTS);
  if (scheme)
    ck_rc(create_with(z, "/a", one(ALL, scheme, id)),
          vouchers[_i].rc == ZKE_OK || strcmp(scheme, "world") == 0
              ? ZKE_OK
              : ZKE_INVALIDACL);
  if (vouchers[_i].rc == ZKE_OK) ck_ok(get(z, "/a"));
  ck_ok(zke_close(z));
}

/* A process that does not vouch for a scheme is nobody to its entries: it sees
 * them, but cannot write them, nor read the node. */
TEST(a_scheme_matches_nobody_in_another_process) {
  const char *name = test_path("acl.db");
  zke_acls *acls = NULL;
  zke_acl entries[] = {{ALL, "sasl", "bob"}, {A | R, "world", "anyone"}};
  zke *server = test_open(name), *program = test_open(name);
  ck_ok(zke_vouch(server, "sasl", "bob"));
  ck_ok(create_with(server, "/a", &(zke_acls){1, entries}));
  ck_ok(create_with(server, "/b", &(zke_acls){2, entries}));
  ck_rc(get(program, "/a"), ZKE_NOAUTH);
  expect_acl(program, "/b", "31 sasl:bob; 17 world:anyone");
  ck_rc(set(program, "/b", -1), ZKE_NOAUTH);
  ck_ok(set(server, "/b", -1));
  ck_ok(zke_get_acl(program, "/b", &acls, NULL));
  ck_rc(zke_set_acl(program, "/b", -1, acls, NULL), ZKE_INVALIDACL);
  ck_says("sasl:bob");
  ck_ok(zke_vouch(program, "sasl", NULL));
  ck_ok(zke_set_acl(program, "/b", -1, acls, NULL));
  ck_rc(get(program, "/a"), ZKE_NOAUTH);
  zke_free(acls);
  ck_ok(zke_check(program, NULL, NULL));
  close_both(server, program);
}

/* An identity for which there is no memory is not given at all. */
TEST(vouching_without_memory_gives_nothing) {
  test_heap heap = {0};
  zke_options options = {.size = sizeof options,
                         .allocator = {test_heap_resize, &heap}};
  zke *z = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  ck_ok(zke_vouch(z, "sasl", NULL));
  ck_ok(create_with(z, "/a", one(ALL, "sasl", "bob")));
  for (int fails = 1, rc = ZKE_NOMEM; rc != ZKE_OK; fails++) {
    ck_rc(get(z, "/a"), ZKE_NOAUTH);
    heap.fail_at = fails;
    rc = zke_vouch(z, "sasl", "bob");
    heap.fail_at = 0;
    ck_assert_int_lt(fails, 10);
  }
  ck_ok(get(z, "/a"));
  ck_ok(zke_close(z));
  ck_assert_int_eq(heap.live, 0);
}

/* What zke_add_auth() makes of a certificate, for lists of others; a user
 * without a password, and no user. */
TEST(a_digest_names_a_user) {
  char hash[ZKE_DIGEST_SIZE];
  zke_digest("bob:p", 5, hash);
  ck_assert_str_eq(hash, &BOB[4]);
  zke_digest("alice:secret", 12, hash);
  ck_assert_str_eq(hash, &ALICE[6]);
  zke_digest("bob:p\0", 6, hash);
  ck_assert_str_ne(hash, &BOB[4]);
  zke_digest("bob:p", 0, hash);
  ck_assert_str_eq(hash, "2jmj7l5rSw0yVb/vlWAYkK/YBwk="); /* of nothing */
  zke_digest(NULL, 5, hash);
  ck_assert_str_eq(hash, "2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
  zke_digest("bob:p", -1, hash);
  ck_assert_str_eq(hash, "2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
}

/* ---- resources ---- */

/* P9: lists and identities are taken from the handle's allocator and given
 * back. */
TEST(heap_is_balanced) {
  test_heap heap = {0};
  zke_options options = {.size = sizeof options,
                         .allocator = {test_heap_resize, &heap}};
  zke *z = NULL, *other = NULL;
  zke_acls *acls = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  ck_ok(zke_open_session(z, NULL, &other));
  ck_ok(auth(z, "bob:p"));
  ck_ok(auth(z, "alice:secret"));
  ck_ok(create_with(z, "/a", ZKE_CREATOR_ALL_ACL));
  ck_ok(zke_set_acl(z, "/a", 0, one(ALL, "auth", ""), NULL));
  ck_rc(get(other, "/a"), ZKE_NOAUTH);
  ck_rc(zke_set_acl(other, "/a", -1, one(ALL, "digest", "bob"), NULL),
        ZKE_INVALIDACL);
  for (int i = 0; i < COUNT(lists); i++) {
    zke_acls list = {lists[i].count, lists[i].entries};
    int rc = create_with(other, "/b", &list);
    ck_rc(rc, lists[i].stored ? ZKE_OK : ZKE_INVALIDACL);
    if (rc == ZKE_OK) ck_ok(zke_delete(other, "/b", -1));
  }
  ck_rc(zke_add_auth(other, "foo", "bar", 3), ZKE_AUTHFAILED);
  ck_ok(zke_get_acl(z, "/a", &acls, NULL));
  ck_ok(zke_close(other));
  ck_ok(zke_close(z));
  ck_assert_int_eq(acls->count, 2); /* outlives the handle */
  zke_free(acls);
  ck_assert_int_gt(heap.calls, 0);
  ck_assert_int_eq(heap.live, 0);
}
