/* test_soft_quota.c - quotas below /zookeeper/quota: the logger is told of a
 * change that passes a limit, and where there are none it costs nothing
 *
 * White-box: some tests count the statements that SQLite runs.  The clock
 * stands unless a test moves it, so a count takes no time unless it is told to.
 */
/* clang-format off */
#include "zkembed.c"
/* clang-format on */
#include "test/test.h"

/* ---- a logger, and a handle that has it ---- */

typedef struct journal {
  char text[4000];
  size_t len;
} journal;

static void write_down(void *context, int level, const char *text) {
  journal *j = context;
  if (strncmp(text, "Quota exceeded: ", 16) != 0) return; /* of other things */
  ck_assert_int_eq(level, ZKE_LOG_WARN);
  int n = snprintf(j->text + j->len, sizeof j->text - j->len, "%s\n", text);
  j->len += (size_t)n;
  ck_assert_uint_lt(j->len, sizeof j->text);
}

/* What was told since the last call, one line each. */
static void expect_told(journal *j, const char *expected) {
  ck_assert_str_eq(j->text, expected);
  j->len = 0;
  j->text[0] = '\0';
}

/* A handle on a clock that stands; without a journal it has no logger. */
static zke *open_on(const char *name, journal *j, const char *chroot) {
  zke *z = NULL;
  zke_os os = test_driven_os();
  zke_options o = {.size = sizeof o, .os = &os, .chroot = chroot};
  if (j) o.log = write_down;
  o.log_context = j;
  ck_ok(zke_open(name, &o, &z));
  return z;
}

static zke *open_memory(journal *j) { return open_on(":memory:", j, NULL); }

static int create(zke *z, const char *path, const char *data) {
  return zke_create(z, path, data, (int)strlen(data), ZKE_OPEN_ACL,
                    ZKE_PERSISTENT, NULL, NULL);
}

static int set(zke *z, const char *path, const char *data) {
  return zke_set(z, path, data, (int)strlen(data), -1, NULL);
}

/* Set a quota as ZooKeeper's setquota does: the nodes on the way, then the
 * limits. */
static void set_quota(zke *z, const char *path, const char *limits) {
  char quota[1000];
  size_t root = strlen(QUOTA_ROOT);
  for (size_t at = 0; path[at];) {
    at += 1 + strcspn(path + at + 1, "/");
    snprintf(quota, sizeof quota, QUOTA_ROOT "%.*s", (int)at, path);
    int rc = create(z, quota, "");
    ck_assert(rc == ZKE_OK || rc == ZKE_NODEEXISTS);
  }
  snprintf(quota + root, sizeof quota - root, "%s/" QUOTA_LIMITS, path);
  ck_ok(create(z, quota, limits));
}

/* ---- what is told ---- */

/* A node of any kind counts.  A limit is passed by what is more than it. */
TEST(each_kind_of_create_is_told) {
  static const int modes[] = {ZKE_PERSISTENT,
                              ZKE_EPHEMERAL,
                              ZKE_PERSISTENT_SEQUENTIAL,
                              ZKE_EPHEMERAL_SEQUENTIAL,
                              ZKE_CONTAINER,
                              ZKE_PERSISTENT_WITH_TTL,
                              ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL};
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    journal j = {.len = 0};
    zke *z = open_memory(&j);
    ck_ok(create(z, "/a", ""));
    set_quota(z, "/a", "count=2,bytes=-1");
    ck_ok(create(z, "/a/b", ""));
    expect_told(&j, "");
    ck_ok(
        op_mode_has_ttl(modes[i])
            ? zke_create_ttl(z, "/a/c", "", 0, ZKE_OPEN_ACL, modes[i], 1000,
                             NULL, NULL)
            : zke_create(z, "/a/c", "", 0, ZKE_OPEN_ACL, modes[i], NULL, NULL));
    expect_told(&j, "Quota exceeded: /a [current count=3, softCountLimit=2]\n");
    ck_ok(zke_close(z));
  }
}

/* Bytes count where a change makes them more; the path's own count too. */
TEST(a_set_that_grows_is_told) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", "123"));
  ck_ok(create(z, "/a/b", "12"));
  set_quota(z, "/a", "count=1,bytes=5");
  ck_ok(set(z, "/a", "321"));
  ck_ok(set(z, "/a/b", "21"));
  expect_told(&j, "");
  ck_ok(set(z, "/a/b", "123"));
  expect_told(&j, "Quota exceeded: /a [current bytes=6, softByteLimit=5]\n");
  test_pass_ns(NULL, QUOTA_WARNED);
  ck_ok(set(z, "/a/b", "321"));
  ck_ok(set(z, "/a/b", "12"));
  ck_ok(zke_set(z, "/a/b", NULL, -1, -1, NULL));
  expect_told(&j, "");
  ck_ok(set(z, "/a/b", "1234567"));
  expect_told(&j, "Quota exceeded: /a [current bytes=10, softByteLimit=5]\n");
  ck_ok(zke_close(z));
}

/* A create with data may pass both limits. */
TEST(nodes_and_bytes_are_told_each) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", "123"));
  set_quota(z, "/a", "count=1,bytes=5");
  ck_ok(create(z, "/a/b", "123"));
  expect_told(&j,
              "Quota exceeded: /a [current count=2, softCountLimit=1]\n"
              "Quota exceeded: /a [current bytes=6, softByteLimit=5]\n");
  ck_ok(zke_close(z));
}

/* A hard limit refuses nothing here, and is told; below it the soft one is. */
TEST(a_hard_limit_is_told) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=1,bytes=1=;byteHardLimit=3;countHardLimit=2");
  ck_ok(create(z, "/a/b", "12"));
  expect_told(&j,
              "Quota exceeded: /a [current count=2, softCountLimit=1]\n"
              "Quota exceeded: /a [current bytes=2, softByteLimit=1]\n");
  test_pass_ns(NULL, QUOTA_WARNED);
  ck_ok(create(z, "/a/c", "34"));
  expect_told(&j,
              "Quota exceeded: /a [current count=3, hardCountLimit=2]\n"
              "Quota exceeded: /a [current bytes=4, hardByteLimit=3]\n");
  ck_ok(zke_close(z));
}

/* A multi is told of as a whole; one that is refused is not. */
TEST(a_multi_is_told_when_it_is_done) {
  journal j = {.len = 0};
  zke_op ops[3];
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=1,bytes=2");
  zke_op_create(&ops[0], "/a/b", "12", 2, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_set(&ops[1], "/a", "3", 1, -1);
  zke_op_check(&ops[2], "/none", -1);
  ck_rc(zke_multi(z, ops, 3, NULL), ZKE_NONODE);
  ck_ok(create(z, "/b", ""));
  expect_told(&j, "");
  ck_ok(zke_multi(z, ops, 2, NULL));
  expect_told(&j,
              "Quota exceeded: /a [current count=2, softCountLimit=1]\n"
              "Quota exceeded: /a [current bytes=3, softByteLimit=2]\n");
  ck_ok(zke_close(z));
}

/* ---- batches ---- */

/* In its function nothing is told: it may come to nothing. */
static int grow(zke *z, void *context) {
  ck_ok(create(z, "/a/b", ""));
  ck_ok(create(z, "/a/c", ""));
  expect_told(context, "");
  return ZKE_OK;
}

static int grow_in_vain(zke *z, void *context) {
  grow(z, context);
  return ZKE_CANCELLED;
}

/* The same where /a/b is there. */
static int grow_in_vain_after_all(zke *z, void *context) {
  ck_ok(create(z, "/a/d", ""));
  expect_told(context, "");
  return ZKE_CANCELLED;
}

/* An operation that is undone has grown nothing, and what it has changed of
 * quotas is not so. */
static int undone(zke *z, void *context) {
  zke_op ops[4];
  ck_ok(create(z, "/b/c", ""));
  zke_op_create(&ops[0], "/a/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_create(&ops[1], QUOTA_ROOT "/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_create(&ops[2], QUOTA_ROOT "/b/" QUOTA_LIMITS, "count=0", 7,
                ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_check(&ops[3], "/none", -1);
  ck_rc(zke_multi(z, ops, 4, NULL), ZKE_NONODE);
  ck_ok(create(z, "/b/d", ""));
  expect_told(context, "");
  return ZKE_OK;
}

/* A batch is told of once, when it is committed, with all that it has made. */
TEST(a_batch_is_told_at_its_end) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  ck_ok(create(z, "/b", ""));
  set_quota(z, "/a", "count=1");
  ck_rc(zke_batch(z, grow_in_vain, &j), ZKE_CANCELLED);
  ck_ok(create(z, "/c", ""));
  expect_told(&j, "");
  ck_ok(zke_batch(z, undone, &j));
  expect_told(&j, "");
  ck_ok(zke_batch(z, grow, &j));
  expect_told(&j, "Quota exceeded: /a [current count=3, softCountLimit=1]\n");
  ck_ok(zke_close(z));
}

/* A multi that is refused, in a batch or alone. */
static int grow_undone(zke *z, void *context) {
  zke_op ops[2];
  zke_op_create(&ops[0], "/a/d", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_check(&ops[1], "/none", -1);
  ck_rc(zke_multi(z, ops, 2, NULL), ZKE_NONODE);
  return *(const int *)context;
}

/* What is undone is not told of, though the subtree is too large already: an
 * operation of a batch, the whole batch, and a multi. */
TEST(what_is_undone_is_not_told) {
  journal j = {.len = 0};
  int good = ZKE_OK, bad = ZKE_CANCELLED;
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  ck_ok(create(z, "/a/b", ""));
  ck_ok(create(z, "/a/c", ""));
  set_quota(z, "/a", "count=1");
  ck_ok(zke_batch(z, grow_undone, &good));
  ck_ok(create(z, "/b", ""));
  ck_rc(zke_batch(z, grow_undone, &bad), ZKE_CANCELLED);
  ck_ok(create(z, "/c", ""));
  ck_rc(zke_batch(z, grow_in_vain_after_all, &j), ZKE_CANCELLED);
  ck_ok(create(z, "/d", ""));
  grow_undone(z, &good);
  ck_ok(create(z, "/e", ""));
  expect_told(&j, "");
  ck_ok(create(z, "/a/e", ""));
  expect_told(&j, "Quota exceeded: /a [current count=4, softCountLimit=1]\n");
  ck_ok(zke_close(z));
}

/* A multi that is refused: it would have added bytes. */
static int fatten_undone(zke *z, void *context) {
  zke_op ops[2];
  (void)context;
  zke_op_set(&ops[0], "/a/b", "12345", 5, -1);
  zke_op_check(&ops[1], "/none", -1);
  ck_rc(zke_multi(z, ops, 2, NULL), ZKE_NONODE);
  return ZKE_OK;
}

/* The same behind a create in the same batch, which stays. */
static int grow_and_fatten_undone(zke *z, void *context) {
  ck_ok(create(z, "/a/d", ""));
  return fatten_undone(z, context);
}

/* Where a quota rests, what an undone operation has added to a note of before
 * is taken back, too: the bytes, which are too many already, are not looked at
 * for a node's sake. */
TEST_LOOP(a_note_is_as_it_was_before_what_is_undone, 0, 3) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", "1234"));
  set_quota(z, "/a", "count=1,bytes=3");
  ck_ok(create(z, "/a/b", ""));
  expect_told(&j, "Quota exceeded: /a [current count=2, softCountLimit=1]\n");
  ck_ok(create(z, "/a/c", ""));
  if (_i == 0)
    fatten_undone(z, NULL);
  else
    ck_ok(zke_batch(z, _i == 1 ? fatten_undone : grow_and_fatten_undone, NULL));
  test_pass_ns(NULL, QUOTA_WARNED);
  ck_ok(create(z, "/b", ""));
  expect_told(&j, _i == 2 ? "Quota exceeded: /a [current count=4, "
                            "softCountLimit=1]\n"
                          : "Quota exceeded: /a [current count=3, "
                            "softCountLimit=1]\n");
  ck_ok(zke_close(z));
}

/* Nodes and bytes that were noted in a rest by two changes are counted by one
 * look. */
TEST(notes_of_one_quota_are_one) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=1,bytes=3");
  ck_ok(create(z, "/a/b", ""));
  expect_told(&j, "Quota exceeded: /a [current count=2, softCountLimit=1]\n");
  ck_ok(create(z, "/a/c", ""));
  ck_ok(set(z, "/a/b", "1234"));
  test_pass_ns(NULL, QUOTA_WARNED);
  ck_ok(create(z, "/b", ""));
  expect_told(&j,
              "Quota exceeded: /a [current count=3, softCountLimit=1]\n"
              "Quota exceeded: /a [current bytes=4, softByteLimit=3]\n");
  ck_ok(zke_close(z));
}

/* A node below each quota, with data that comes afterwards, in one batch. */
static int grow_all_twice(zke *z, void *context) {
  char path[] = "/0/a";
  (void)context;
  for (int i = 0; i < QUOTA_MOST; i++, path[1]++) {
    ck_ok(create(z, path, ""));
    ck_ok(set(z, path, "1"));
  }
  return ZKE_OK;
}

/* A store remembers so many quotas, however often each has grown. */
TEST(a_quota_that_grows_twice_is_one) {
  journal j = {.len = 0};
  char path[] = "/0", expected[QUOTA_MOST * 128] = "";
  zke *z = open_memory(&j);
  for (int i = 0; i < QUOTA_MOST; i++, path[1]++) {
    ck_ok(create(z, path, ""));
    set_quota(z, path, "bytes=0");
    size_t len = strlen(expected);
    snprintf(expected + len, sizeof expected - len,
             "Quota exceeded: %s [current bytes=1, softByteLimit=0]\n", path);
  }
  ck_ok(zke_batch(z, grow_all_twice, NULL));
  expect_told(&j, expected);
  ck_ok(zke_close(z));
}

static int remove_in_vain(zke *z, void *context) {
  zke_op ops[4];
  (void)context;
  ck_ok(create(z, "/b", ""));
  zke_op_delete(&ops[0], QUOTA_ROOT "/a/" QUOTA_LIMITS, -1);
  zke_op_delete(&ops[1], QUOTA_ROOT "/a", -1);
  zke_op_create(&ops[2], "/c", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_check(&ops[3], "/none", -1);
  ck_rc(zke_multi(z, ops, 4, NULL), ZKE_NONODE);
  ck_ok(create(z, "/a/b", ""));
  return ZKE_OK;
}

/* Where the removal of the last quota is undone, it holds as before. */
TEST(a_removal_that_is_undone_changes_nothing) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=1");
  ck_ok(zke_batch(z, remove_in_vain, NULL));
  expect_told(&j, "Quota exceeded: /a [current count=2, softCountLimit=1]\n");
  ck_ok(zke_close(z));
}

static int limit_and_grow(zke *z, void *context) {
  (void)context;
  ck_ok(create(z, "/a/b", ""));
  set_quota(z, "/a", "count=1");
  ck_ok(create(z, "/a/c", ""));
  return ZKE_OK;
}

/* A quota that a batch sets holds for the calls behind it. */
TEST(a_batch_sets_a_quota) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  ck_ok(zke_batch(z, limit_and_grow, NULL));
  expect_told(&j, "Quota exceeded: /a [current count=3, softCountLimit=1]\n");
  ck_ok(zke_close(z));
}

/* ---- which quota ---- */

/* What makes a subtree smaller is not told, though it is still too large; nor
 * is what has no quota, as "/" and what lies below /zookeeper. */
TEST(a_delete_is_not_told) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  ck_ok(create(z, "/a/b", ""));
  ck_ok(create(z, "/a/c", ""));
  set_quota(z, "/a", "count=1");
  ck_ok(zke_delete(z, "/a/b", -1));
  ck_ok(zke_set_acl(z, "/a/c", -1, ZKE_OPEN_ACL, NULL));
  ck_ok(create(z, "/ab", ""));
  ck_ok(create(z, "/b", "any"));
  ck_ok(set(z, "/", "more"));
  set_quota(z, "/zookeeper/a", "count=0");
  ck_ok(create(z, "/zookeeper/a", "any"));
  expect_told(&j, "");
  ck_ok(zke_close(z));
}

/* Of quotas within each other the deepest counts alone; the path itself may
 * have it.  Nodes on the way to a quota are none. */
TEST(the_deepest_quota_counts) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  ck_ok(create(z, "/a/b", ""));
  set_quota(z, "/a/b/c", "count=0");
  ck_ok(create(z, "/a/b/d", ""));
  expect_told(&j, "");
  ck_ok(create(z, "/a/b/c", ""));
  expect_told(&j,
              "Quota exceeded: /a/b/c [current count=1, softCountLimit=0]\n");
  set_quota(z, "/a", "count=1");
  ck_ok(create(z, "/a/b/e", ""));
  expect_told(&j, "Quota exceeded: /a [current count=5, softCountLimit=1]\n");
  test_pass_ns(NULL, QUOTA_WARNED);
  set_quota(z, "/a/b", "count=9");
  ck_ok(create(z, "/a/b/f", ""));
  expect_told(&j, "");
  ck_ok(zke_delete(z, QUOTA_ROOT "/a/b/" QUOTA_LIMITS, -1));
  ck_ok(create(z, "/a/b/g", ""));
  expect_told(&j, "Quota exceeded: /a [current count=7, softCountLimit=1]\n");
  ck_ok(zke_close(z));
}

/* Quotas are of whole paths, and told by them, whatever the chroot. */
TEST(a_chroot_is_part_of_the_path) {
  journal j = {.len = 0};
  const char *file = test_path("a.db");
  zke *all = open_on(file, NULL, NULL);
  ck_ok(create(all, "/app", ""));
  set_quota(all, "/app/a", "count=1");
  zke *z = open_on(file, &j, "/app");
  ck_ok(create(z, "/a", ""));
  expect_told(&j, "");
  ck_ok(create(z, "/a/b", ""));
  expect_told(&j,
              "Quota exceeded: /app/a [current count=2, softCountLimit=1]\n");
  ck_ok(zke_close(z));
  ck_ok(zke_close(all));
}

/* What is no number is no limit; nor is a node without data. */
TEST(unreadable_limits_are_none) {
  static const char *const limits[] = {
      "",      "count=",         "count",    "count=x",
      ";,;=,", "count=-1",       "xcount=0", "count=-5,bytes=",
      "=",     "countHardLimit", "Count=0"};
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=100");
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    char path[20];
    snprintf(path, sizeof path, "/a/%d", (int)i);
    ck_ok(set(z, QUOTA_ROOT "/a/" QUOTA_LIMITS, limits[i]));
    ck_ok(create(z, path, "any"));
    expect_told(&j, "");
  }
  ck_ok(zke_set(z, QUOTA_ROOT "/a/" QUOTA_LIMITS, NULL, -1, -1, NULL));
  ck_ok(create(z, "/a/null", ""));
  expect_told(&j, "");
  ck_ok(zke_close(z));
}

/* ---- others ---- */

/* Another connection sets a quota, changes it and takes it away: each change
 * goes by what is there. */
TEST(another_process_sets_and_removes_a_quota) {
  journal j = {.len = 0};
  const char *file = test_path("a.db");
  zke *other = open_on(file, NULL, NULL), *z = open_on(file, &j, NULL);
  ck_ok(create(z, "/a", ""));
  ck_ok(create(z, "/a/b", ""));
  set_quota(other, "/a", "count=1");
  ck_ok(create(z, "/a/c", ""));
  expect_told(&j, "Quota exceeded: /a [current count=3, softCountLimit=1]\n");
  test_pass_ns(NULL, QUOTA_WARNED);
  ck_ok(create(other, "/a/d", ""));
  ck_ok(zke_delete(other, QUOTA_ROOT "/a/" QUOTA_LIMITS, -1));
  ck_ok(create(z, "/a/e", ""));
  ck_ok(zke_delete(other, QUOTA_ROOT "/a", -1));
  ck_ok(create(z, "/a/f", ""));
  expect_told(&j, "");
  set_quota(other, "/a", "count=6");
  ck_ok(create(z, "/a/g", ""));
  expect_told(&j, "Quota exceeded: /a [current count=7, softCountLimit=6]\n");
  ck_ok(zke_close(z));
  ck_ok(zke_close(other));
}

/* ---- how often ---- */

/* A quota is told of once a minute, and then by any change, as it is then. */
TEST(a_quota_is_told_once_a_minute) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  ck_ok(create(z, "/b", ""));
  set_quota(z, "/a", "count=1");
  set_quota(z, "/b", "count=1");
  ck_ok(create(z, "/a/b", ""));
  expect_told(&j, "Quota exceeded: /a [current count=2, softCountLimit=1]\n");
  test_pass_ns(NULL, QUOTA_WARNED / 2);
  ck_ok(create(z, "/b/c", ""));
  expect_told(&j, "Quota exceeded: /b [current count=2, softCountLimit=1]\n");
  ck_ok(create(z, "/a/c", ""));
  test_pass_ns(NULL, QUOTA_WARNED / 2 - 1);
  ck_ok(create(z, "/a/d", ""));
  expect_told(&j, "");
  test_pass_ns(NULL, 1);
  ck_ok(create(z, "/c", ""));
  expect_told(&j, "Quota exceeded: /a [current count=4, softCountLimit=1]\n");
  ck_ok(create(z, "/b/d", ""));
  ck_ok(zke_delete(z, "/b/c", -1));
  ck_ok(zke_delete(z, "/b/d", -1));
  test_pass_ns(NULL, QUOTA_WARNED);
  ck_ok(create(z, "/d", ""));
  expect_told(&j, "");
  ck_ok(zke_close(z));
}

/* As many quotas are told of in a minute as there are places, and as many are
 * remembered for the next. */
TEST(many_quotas_are_told_in_turn) {
  journal j = {.len = 0};
  char path[20], child[24];
  int told = 0;
  zke *z = open_memory(&j);
  for (int i = 0; i < 3 * QUOTA_MOST; i++) {
    snprintf(path, sizeof path, "/a%d", i);
    snprintf(child, sizeof child, "%s/b", path);
    ck_ok(create(z, path, ""));
    set_quota(z, path, "count=1");
    ck_ok(create(z, child, ""));
  }
  for (size_t i = 0; i < j.len; i++) told += j.text[i] == '\n';
  ck_assert_int_eq(told, QUOTA_MOST);
  expect_told(&j, j.text);
  for (int i = 0; i < 2; i++) {
    test_pass_ns(NULL, QUOTA_WARNED);
    ck_ok(create(z, i ? "/c" : "/b", ""));
    for (size_t at = 0; at < j.len; at++) told += j.text[at] == '\n';
    expect_told(&j, j.text);
    ck_assert_int_eq(told, 2 * QUOTA_MOST);
  }
  ck_ok(zke_close(z));
}

/* ---- what it costs ---- */

/* Statements that SQLite begins, and those of them that count a subtree, each
 * of which takes so long. */
static struct {
  int all, counts;
  int64_t takes;
} run;

static int note_statement(unsigned what, void *context, void *st, void *sql) {
  (void)what;
  (void)context;
  (void)st;
  run.all++;
  if (strcmp(sql, SQL_NODE_COUNT->text) != 0) return 0;
  run.counts++;
  test_pass_ns(NULL, run.takes);
  return 0;
}

static void trace(zke *z) {
  sqlite3_trace_v2(z->s->db, SQLITE_TRACE_STMT, note_statement, NULL);
  run.all = run.counts = 0;
}

/* A count that takes long is not made again soon: nineteen parts of the time
 * of twenty are the program's. */
TEST(a_quota_rests_after_a_count) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=3");
  trace(z);
  run.takes = 1000 * ZKE_MS;
  ck_ok(create(z, "/a/b", ""));
  ck_assert_int_eq(run.counts, 1);
  for (int i = 0; i < QUOTA_REST; i++) {
    ck_ok(set(z, "/a/b", ""));
    ck_ok(create(z, i & 1 ? "/b" : "/a/c", ""));
    ck_ok(zke_delete(z, i & 1 ? "/b" : "/a/c", -1));
    ck_assert_int_eq(run.counts, 1);
    test_pass_ns(NULL, run.takes);
  }
  ck_ok(create(z, "/b", ""));
  ck_assert_int_eq(run.counts, 2);
  ck_ok(create(z, "/c", ""));
  ck_assert_int_eq(run.counts, 2);
  expect_told(&j, "");
  run.takes = 0;
  ck_ok(zke_close(z));
}

/* What is due in a rest is told without a further change, at a tick. */
TEST_LOOP(what_was_due_in_a_rest_is_told_later, 0, 2) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=2");
  trace(z);
  run.takes = 1000 * ZKE_MS;
  ck_ok(create(z, "/a/b", ""));
  ck_ok(create(z, "/a/c", ""));
  test_pass_ns(NULL, run.takes * (QUOTA_REST - 1));
  ck_ok(zke_sync(z, "/"));
  ck_rc(zke_wait(z, 0), ZKE_OPERATIONTIMEOUT);
  expect_told(&j, "");
  test_pass_ns(NULL, run.takes);
  if (_i)
    ck_ok(zke_sync(z, "/"));
  else
    ck_rc(zke_wait(z, 0), ZKE_OPERATIONTIMEOUT);
  expect_told(&j, "Quota exceeded: /a [current count=3, softCountLimit=2]\n");
  run.takes = 0;
  ck_ok(zke_close(z));
}

/* zke_dispatch() never waits, so it counts no subtree: that is left to the next
 * other call, however often there is a dispatch. */
TEST(a_dispatch_counts_nothing) {
  int fd;
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(zke_fd(z, &fd));
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=1");
  ck_ok(create(z, "/a/b", ""));
  ck_ok(create(z, "/a/c", ""));
  expect_told(&j, "Quota exceeded: /a [current count=2, softCountLimit=1]\n");
  for (int i = 0; i < 3; i++) {
    test_pass_ns(NULL, QUOTA_WARNED);
    trace(z);
    ck_ok(zke_dispatch(z, NULL));
    ck_assert_int_eq(run.counts, 0);
    expect_told(&j, "");
  }
  ck_ok(zke_sync(z, "/"));
  expect_told(&j, "Quota exceeded: /a [current count=3, softCountLimit=1]\n");
  ck_ok(zke_close(z));
}

/* A process that is stopped in a count seems to count for hours.  It rests for
 * a minute then, as after a warning. */
TEST(a_stop_in_a_count_silences_for_a_minute) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=2");
  trace(z);
  run.takes = 3600 * 1000 * ZKE_MS;
  ck_ok(create(z, "/a/b", ""));
  run.takes = 0;
  ck_ok(create(z, "/a/c", ""));
  expect_told(&j, "");
  test_pass_ns(NULL, QUOTA_WARNED);
  ck_ok(create(z, "/b", ""));
  expect_told(&j, "Quota exceeded: /a [current count=3, softCountLimit=2]\n");
  ck_ok(zke_close(z));
}

/* The statements of a create and a set. */
static int statements_of_changes(zke *z, const char *path) {
  ck_ok(create(z, path, ""));
  ck_ok(set(z, path, "1"));
  trace(z);
  ck_ok(set(z, path, "12"));
  ck_ok(zke_delete(z, path, -1));
  ck_ok(create(z, path, "123"));
  return run.all;
}

/* The statements of a set, where another handle has written before it. */
static int statements_after(zke *other, zke *z, const char *path) {
  ck_ok(create(other, "/other", ""));
  ck_ok(zke_delete(other, "/other", -1));
  trace(z);
  ck_ok(set(z, path, "12345"));
  return run.all;
}

/* Where there is no quota, and nobody else writes, a handle with a logger runs
 * the statements that one without runs.  Where another has written, it runs one
 * more.  Without a logger nothing is looked for, whatever quotas there are. */
TEST(without_quotas_nothing_is_looked_for) {
  journal j = {.len = 0};
  const char *file = test_path("a.db");
  zke *z = open_on(file, &j, NULL), *plain = open_on(file, NULL, NULL);
  int few = statements_of_changes(plain, "/b");
  ck_assert_int_eq(statements_of_changes(z, "/a"), few);
  int more = statements_after(z, plain, "/b");
  ck_assert_int_eq(statements_after(plain, z, "/a"), more + 1);
  set_quota(z, "/d", "count=9");
  ck_ok(create(z, "/e", ""));
  ck_ok(zke_delete(z, QUOTA_ROOT "/d/" QUOTA_LIMITS, -1));
  ck_ok(zke_delete(z, QUOTA_ROOT "/d", -1));
  ck_ok(zke_delete(z, "/a", -1));
  ck_assert_int_eq(statements_of_changes(z, "/a"), few);
  set_quota(z, "/b", "count=0,bytes=0");
  ck_ok(zke_delete(plain, "/b", -1));
  ck_assert_int_eq(statements_of_changes(plain, "/b"), few);
  ck_ok(zke_close(z));
  ck_ok(zke_close(plain));
}

/* Where quotas are elsewhere, each change of a path without one looks at one
 * row, however deep it lies. */
TEST(a_quota_elsewhere_costs_one_look) {
  journal j = {.len = 0};
  zke *plain = open_memory(NULL), *z = open_memory(&j);
  static const char *const above[] = {"/a", "/a/b", "/a/b/c"};
  for (int i = 0; i < 3; i++) {
    ck_ok(create(z, above[i], ""));
    ck_ok(create(plain, above[i], ""));
  }
  set_quota(z, "/b", "count=0");
  int few = statements_of_changes(plain, "/a/b/c/d");
  ck_assert_int_eq(statements_of_changes(z, "/a/b/c/d"), few + 2);
  ck_ok(zke_close(z));
  ck_ok(zke_close(plain));
}

/* ---- odd ---- */

/* A long path is cut between two characters: the numbers are to be seen. */
TEST(a_long_path_is_cut) {
  journal j = {.len = 0};
  char path[1000], expected[1000];
  zke *z = open_memory(&j);
  size_t len = 1;
  path[0] = '/';
  for (; len < 301; len += 3) memcpy(path + len, "\xe2\x82\xac", 3);
  memcpy(path + len, "tail", 5);
  set_quota(z, path, "count=0");
  ck_ok(create(z, path, ""));
  snprintf(expected, sizeof expected,
           "Quota exceeded: %.298s... [current count=1, softCountLimit=0]\n",
           path);
  expect_told(&j, expected);
  ck_ok(zke_close(z));
}

/* Without memory to note a quota, or to count, the change is done all the same,
 * and its result is its own; a later one is told of.  The path is long, so that
 * the list of quotas has to grow for it. */
TEST(a_lack_of_memory_refuses_nothing) {
  char a[100], child[110], expected[200];
  memset(a, 'a', sizeof a - 1);
  a[0] = '/';
  a[sizeof a - 1] = '\0';
  snprintf(child, sizeof child, "%s/b", a);
  test_heap heap = {0};
  journal j = {.len = 0};
  zke *z = NULL;
  zke_os os = test_driven_os();
  zke_options o = {.size = sizeof o,
                   .os = &os,
                   .log = write_down,
                   .log_context = &j,
                   .allocator = {test_heap_resize, &heap}};
  ck_ok(zke_open(":memory:", &o, &z));
  ck_ok(create(z, a, ""));
  set_quota(z, a, "count=1");
  int done = 0;
  for (long n = 1;; n++) {
    ck_rc(zke_delete(z, child, -1), done ? ZKE_OK : ZKE_NONODE);
    test_pass_ns(NULL, QUOTA_WARNED);
    ck_ok(zke_sync(z, "/")); /* the tick is not what fails */
    expect_told(&j, j.text);
    heap.fail_at = n;
    heap.calls = 0;
    zke_fail(ZKE_OK, "a sentence");
    int rc = create(z, child, "");
    bool reached = heap.calls >= n;
    heap.fail_at = 0;
    ck_assert(rc == ZKE_OK || rc == ZKE_NOMEM);
    if (rc == ZKE_OK) ck_says("a sentence");
    ck_assert_int_eq(zke_exists(z, child, NULL, NULL, NULL),
                     rc == ZKE_OK ? ZKE_OK : ZKE_NONODE);
    done = rc == ZKE_OK;
    if (!reached) break;
  }
  snprintf(expected, sizeof expected,
           "Quota exceeded: %s [current count=2, softCountLimit=1]\n", a);
  expect_told(&j, expected);
  ck_ok(zke_close(z));
  ck_assert_int_eq(heap.live, 0);
}

/* SQLite undoes the whole transaction, as it may where memory is short. */
static int note_after_all_is_undone(zke *z, void *context) {
  txn *t = &z->s->batch->t;
  (void)context;
  ck_ok(create(z, "/b", ""));
  zke_fail(ZKE_OK, "a sentence");
  ck_ok(quota_note(t, "/a/b", QUOTA_NODES));
  ck_says("a sentence");
  ck_assert_int_eq(sqlite3_exec(z->s->db, "ROLLBACK", NULL, NULL, NULL),
                   SQLITE_OK);
  int rc = quota_note(t, "/a/b", QUOTA_NODES);
  ck_rc(rc, ZKE_NOMEM);
  return rc;
}

/* Where the look for a quota ends the transaction, the change fails: what it
 * writes behind that would be a change of its own. */
TEST(a_note_that_undoes_the_transaction_fails) {
  journal j = {.len = 0};
  zke *z = open_memory(&j);
  ck_ok(create(z, "/a", ""));
  set_quota(z, "/a", "count=0");
  ck_rc(zke_batch(z, note_after_all_is_undone, NULL), ZKE_NOMEM);
  ck_rc(zke_exists(z, "/b", NULL, NULL, NULL), ZKE_NONODE);
  expect_told(&j, "");
  ck_ok(create(z, "/a/b", ""));
  expect_told(&j, "Quota exceeded: /a [current count=2, softCountLimit=0]\n");
  ck_ok(zke_close(z));
}
