/* test_acl.c - access control lists beyond test/semantics/acl.txt: impossible
 * counts, long certificates and lists, the identities that a host can vouch
 * for, and memory.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/engine/calls.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* digest ids of "bob:p" and "alice:secret" */
#define BOB "bob:R3bUSw3Enrs8ff9W5R1qlyZbH2M="
#define ALICE "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E="

enum { ALL = ZKE_PERM_ALL };

static int auth(zke *z, const char *cert) {
  return zke_add_auth(z, "digest", cert, (int)strlen(cert));
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

static int create_with(zke *z, const char *path, const zke_acls *acls) {
  return zke_create(z, path, "", 0, acls, ZKE_PERSISTENT, NULL, NULL);
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

/* P11: no list, and impossible counts. */
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
  ck_rc(see(z, "/a"), ZKE_NONODE);
}

/* ---- identities ---- */

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

/* P1: the digest of a certificate, at the lengths at which SHA-1 pads into
 * another block. */
TEST_LOOP(digest_of_long_cert, 0, COUNT(long_digests)) {
  char cert[1001], expected[100];
  zke *z = memory();
  memset(cert, 'x', sizeof cert);
  memcpy(cert, "u:", 2);
  ck_ok(zke_add_auth(z, "digest", cert, long_digests[_i].len));
  ck_ok(create_with(z, "/a", ZKE_CREATOR_ALL_ACL));
  snprintf(expected, sizeof expected, "31 digest:u:%s", long_digests[_i].hash);
  expect_acl(z, "/a", expected);
}

/* ---- long lists ---- */

/* 8: of equal entries the first counts, in a list of any length.  An entry is
 * not compared with all earlier ones: that would take minutes. */
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
}

/* The largest ACL in bytes, as stored; an entry's bytes without its id. */
enum { ACL_MOST = 1024 * 1024, ENTRY = sizeof "31:digest:\n" - 1 };

/* A digest id of `len` bytes that ends in `end`; the caller frees it. */
static char *long_id(size_t len, char end) {
  char *id = malloc(len + 1);
  ck_assert_ptr_nonnull(id);
  memset(id, 'x', len);
  id[len] = '\0';
  id[1] = ':';
  id[len - 1] = end;
  return id;
}

/* zkembed.h, zke_create: an ACL has at most 1 MiB as stored, where some
 * characters take two bytes. */
TEST(an_acl_has_a_limit) {
  zke *z = memory();
  char *fits = long_id(ACL_MOST - ENTRY, 'x');
  char *escaped = long_id(ACL_MOST - ENTRY, '\\');
  char *more = long_id(ACL_MOST - ENTRY + 1, 'x');
  ck_ok(create_with(z, "/a", one(ALL, "digest", fits)));
  ck_rc(create_with(z, "/b", one(ALL, "digest", escaped)), ZKE_INVALIDACL);
  ck_says("1048576");
  ck_rc(create_with(z, "/b", one(ALL, "digest", more)), ZKE_INVALIDACL);
  ck_rc(see(z, "/b"), ZKE_NONODE);
  make(z, "/b");
  ck_rc(zke_set_acl(z, "/b", -1, one(ALL, "digest", more), NULL),
        ZKE_INVALIDACL);
  ck_ok(zke_set_acl(z, "/b", -1, one(ALL, "digest", fits), NULL));
  ck_ok(zke_close(z));
  free(fits);
  free(escaped);
  free(more);
}

/* The C library's allocator; notes a block larger than any needed here. */
static void *resize_somewhat(void *context, void *block, size_t size) {
  if (size > 4 * ACL_MOST) *(bool *)context = true;
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

/* zkembed.h, zke_create: the limit includes the identities that replace entries
 * of scheme auth.  No memory is allocated for what is not stored. */
TEST(a_short_list_does_not_become_an_immense_acl) {
  enum { IDENTITIES = 1000, ENTRIES = 2000 };
  static zke_acl entries[ENTRIES];
  bool much = false;
  zke *z = open_as(":memory:", .allocator = {resize_somewhat, &much});
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
  ck_rc(see(z, "/b"), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* Create `count` nodes with that ACL, by a multi. */
static int create_several(zke *z, int count, const zke_acls *acls,
                          zke_op_result *results) {
  zke_op ops[20];
  ck_assert_int_le(count, COUNT(ops));
  for (int i = 0; i < count; i++)
    zke_op_create(&ops[i], "/n-", "", 0, acls, ZKE_PERSISTENT_SEQUENTIAL);
  return zke_multi(z, ops, count, results);
}

/* Like create_several(), but by single calls. */
static int create_each(zke *z, void *acls) {
  for (int i = 0; i < 18; i++) {
    ck_ok(zke_create(z, "/n-", "", 0, acls, ZKE_PERSISTENT_SEQUENTIAL, NULL,
                     NULL));
  }
  return ZKE_OK;
}

/* zkembed.h, zke_multi: all ACLs that a multi creates share a limit of 16 MiB;
 * calls in a batch do not. */
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
  ck_rc(see(z, "/n-0000000000"), ZKE_NONODE);
  ck_ok(create_several(z, 15, &acls, NULL));
  ck_ok(create_several(z, 15, &acls, NULL));
  ck_ok(zke_batch(z, create_each, &acls));
  ck_ok(zke_count(z, "/", &count));
  ck_assert_int_ge(count, 15 + 15 + 18);
  ck_ok(zke_close(z));
  free(id);
}

/* ---- watches and READ: 5.8, 12 #84 ---- */

/* A session with the identity bob, who owns the tree, and one without it. */
static void two_sessions(zke **bob, zke **anyone) {
  *bob = memory();
  *anyone = test_session(*bob, NULL);
  ck_ok(auth(*bob, "bob:p"));
}

static void close_both(zke *bob, zke *anyone) {
  ck_ok(zke_close(anyone));
  ck_ok(zke_close(bob));
}

/* Whether a session may read an event is decided at delivery: its identities at
 * that time count, not those it had when the event was queued, or read from the
 * file. */
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

/* A host can vouch for an identity that an ACL could name.  Such an identity
 * grants access.  One that is refused is not valid in an ACL either, except for
 * world:anyone. */
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
}

/* If memory runs out, no part of the identity is given. */
TEST(vouching_without_memory_gives_nothing) {
  test_heap heap = {0};
  zke *z = open_as(":memory:", .allocator = {test_heap_resize, &heap});
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

/* zke_digest() gives the id that zke_add_auth() makes of a certificate; also of
 * a user without a password, and of no user. */
TEST(a_digest_names_a_user) {
  char hash[ZKE_DIGEST_SIZE];
  zke_digest("bob:p", 5, hash);
  ck_assert_str_eq(hash, &BOB[4]);
  zke_digest("alice:secret", 12, hash);
  ck_assert_str_eq(hash, &ALICE[6]);
  zke_digest("bob:p\0", 6, hash);
  ck_assert_str_ne(hash, &BOB[4]);
  zke_digest("bob:p", 0, hash);
  ck_assert_str_eq(hash, "2jmj7l5rSw0yVb/vlWAYkK/YBwk="); /* of "" */
  zke_digest(NULL, 5, hash);
  ck_assert_str_eq(hash, "2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
  zke_digest("bob:p", -1, hash);
  ck_assert_str_eq(hash, "2jmj7l5rSw0yVb/vlWAYkK/YBwk=");
}
