/* test_changes.c - the history of the nodes: its rows, as in doc/format.md
 */
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

#include "test/seam.h"
#include "test/engine/calls.h"

/* A handle on a file whose history keeps everything. */
static zke *open_kept(void) {
  zke *z = test_open(test_path("db"));
  ck_ok(zke_history_keep(z, 1000000, 0));
  return z;
}

static int64_t number(const char *sql) {
  return test_number(test_path("db"), sql);
}

/* Assert the text that a query of the file returns. */
static void gives(const char *sql, const char *expected) {
  sqlite3_stmt *st;
  sqlite3 *db = plain_open(test_path("db"));
  ck_assert_int_eq(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
  ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
  ck_assert_str_eq((const char *)sqlite3_column_text(st, 0), expected);
  sqlite3_finalize(st);
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

/* Assert the history, as "+/a ~/a -/a", in the order of zxids. */
static void expect(const char *expected) {
  gives(
      "SELECT coalesce(group_concat(change,' '),'')FROM(SELECT "
      "substr('+-~',type,1)||path AS change FROM zkembed_history WHERE type<>0 "
      "ORDER BY seq)",
      expected);
  ck_assert_int_eq(number("SELECT count(*)FROM zkembed_history AS a JOIN "
                          "zkembed_history AS b ON b.seq=a.seq+1 WHERE "
                          "b.zxid<a.zxid"),
                   0);
}

/* Every kind of change is recorded, in order, a multi's with one zxid; a
 * refused multi leaves no row.  The first row says where the history begins. */
TEST(every_change_is_noted) {
  zke *z = open_kept();
  make(z, "/a");
  ck_assert_int_eq(number("SELECT zxid FROM zkembed_history WHERE type=0"),
                   test_stat(z, "/a").czxid - 1);
  make_as(z, "/a/e-", ZKE_EPHEMERAL_SEQUENTIAL);
  ck_ok(change(z, "/a"));
  zke_op ops[3];
  zke_op_create(&ops[0], "/a/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&ops[1], "/a/b", -1);
  zke_op_delete(&ops[2], "/none", -1);
  ck_rc(zke_multi(z, ops, 3, NULL), ZKE_NONODE);
  ck_ok(zke_multi(z, ops, 2, NULL));
  ck_ok(zke_delete(z, "/a/e-0000000000", -1));
  ck_ok(zke_delete(z, "/a", -1));
  expect("+/a +/a/e-0000000000 ~/a +/a/b -/a/b -/a/e-0000000000 -/a");
  gives(
      "SELECT group_concat(type,' ')FROM(SELECT type FROM zke_history ORDER BY "
      "seq)",
      "begins created created changed created deleted deleted deleted");
  ck_assert_int_eq(number("SELECT count(DISTINCT zxid)FROM zkembed_history "
                          "WHERE path='/a/b'"),
                   1);
}

/* A row names the session that made the change, its identity and its process,
 * also if the session's end made it. */
TEST(who_and_when) {
  zke *z = open_kept();
  char sql[300];
  zke *other = open_as(test_path("db"), .identity = "worker");
  int64_t id = zke_session_id(other), before = test_wall();
  make_as(other, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_close(other));
  make(z, "/p");
  expect("+/e -/e +/p");
  snprintf(sql, sizeof sql,
           "SELECT count(*)FROM zkembed_history WHERE path='/e' AND "
           "session=%lld AND owner=session AND identity='worker' AND pid=%d "
           "AND time>=%lld",
           (long long)id, (int)getpid(), (long long)before);
  ck_assert_int_eq(number(sql), 2);
  snprintf(sql, sizeof sql,
           "SELECT count(*)FROM zkembed_history WHERE path='/p' AND "
           "session=%lld AND owner=0",
           (long long)zke_session_id(z));
  ck_assert_int_eq(number(sql), 1);
}

/* The row of a discarded ephemeral node names its owner.  It used to do so only
 * if the session's end removed the node. */
TEST(owner_of_what_was_discarded) {
  zke *z = open_kept();
  make_as(z, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_discard(z, "/e", ZKE_EPHEMERAL, 0));
  ck_rc(see(z, "/e"), ZKE_NONODE);
  expect("+/e -/e");
  ck_assert_int_eq(number("SELECT count(*)FROM zkembed_history WHERE owner<>0 "
                          "AND owner=session"),
                   2);
}

/* The rows of a killed process's session, and of nodes that a sweep removes. */
TEST(ends_that_nobody_made) {
  zke *z = open_kept();
  test_worker w = test_worker_on(test_path("db"));
  test_ask(&w, "create /e x %d", ZKE_EPHEMERAL);
  test_kill(&w, SIGKILL);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && see(z, "/e") == ZKE_NONODE,
           10000);
  ck_ok(zke_create_ttl(z, "/t", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL, 1,
                       NULL, NULL));
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && see(z, "/t") == ZKE_NONODE,
           10000);
  expect("+/e -/e +/t -/t");
  ck_assert_int_eq(number("SELECT count(DISTINCT session)FROM zkembed_history "
                          "WHERE path='/e'"),
                   1);
  ck_assert_int_eq(
      number("SELECT session FROM zkembed_history WHERE path='/t' AND type=2"),
      0);
}

/* With a chroot the paths are still complete, and a row has the node's ACL. */
TEST(chroot_and_acl) {
  zke *z = open_kept();
  make(z, "/c");
  zke *below = test_session(z, "/c");
  make(below, "/x");
  ck_ok(zke_add_auth(z, "digest", "a:b", 3));
  ck_ok(zke_create(z, "/c/secret", "", 0, ZKE_CREATOR_ALL_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  expect("+/c +/c/x +/c/secret");
  gives("SELECT group_concat(path)FROM zkembed_history WHERE acl NOT NULL",
        "/c/secret");
}

/* A limit on rows: about that many stay, the latest, without a gap. */
TEST(old_rows_go) {
  zke *z = test_open(test_path("db"));
  ck_ok(zke_history_keep(z, 100, 0));
  make(z, "/a");
  for (int i = 0; i < 1000; i++) ck_ok(change(z, "/a"));
  int64_t count = number("SELECT count(*)FROM zke_history");
  ck_assert_int_ge(count, 100);
  ck_assert_int_lt(count, 120);
  ck_assert_int_eq(number("SELECT max(seq)-min(seq)+1 FROM zke_history"),
                   count);
  ck_assert_int_eq(number("SELECT max(zxid)-min(zxid)+1 FROM zke_history"),
                   count);
  ck_assert_int_eq(number("SELECT max(zxid)FROM zke_history"),
                   test_stat(z, "/a").mzxid);
}

/* A smaller limit is reached in steps, by a bounded number of rows at a
 * time. */
TEST(a_limit_is_reached_in_steps) {
  zke *z = open_kept();
  make(z, "/a");
  for (int i = 0; i < 1000; i++) ck_ok(change(z, "/a"));
  ck_ok(zke_history_keep(z, 10, 0));
  int64_t was = number("SELECT count(*)FROM zke_history");
  ck_assert_int_gt(was, 1000);
  for (int i = 0; i < 300; i++) {
    ck_ok(change(z, "/a"));
    int64_t now = number("SELECT count(*)FROM zke_history");
    ck_assert_int_ge(now, was - 64);
    was = now;
  }
  ck_assert_int_lt(was, 20);
}

/* A limit on age, by the wall clock, which is moved here. */
TEST(rows_go_by_their_age) {
  static seam s;
  seam_stand();
  zke *z = open_as(test_path("db"), .os = seam_os(&s));
  ck_ok(zke_history_keep(z, 0, 60000));
  make(z, "/a");
  for (int i = 0; i < 50; i++) ck_ok(change(z, "/a"));
  ck_assert_int_ge(number("SELECT count(*)FROM zke_history"), 50);
  seam_pass(61000);
  for (int i = 0; i < 16; i++) ck_ok(change(z, "/a"));
  int64_t count = number("SELECT count(*)FROM zke_history");
  ck_assert_int_ge(count, 16);
  ck_assert_int_lt(count, 32);
}

/* The wall clock was ahead for a while: rows written after it was set back are
 * not removed before those of that time.  There is never a gap. */
TEST(a_clock_that_goes_back_makes_no_gap) {
  const int64_t ahead = INT64_C(120000000000);
  static seam s;
  seam_stand();
  zke *z = open_as(test_path("db"), .os = seam_os(&s));
  ck_ok(zke_history_keep(z, 0, 60000));
  seam_apart[ZKE_CLOCK_REALTIME] += ahead;
  make(z, "/a");
  for (int i = 0; i < 10; i++) ck_ok(change(z, "/a"));
  seam_apart[ZKE_CLOCK_REALTIME] -= ahead;
  for (int i = 0; i < 10; i++) ck_ok(change(z, "/a"));
  for (int minute = 0; minute < 4; minute++) {
    seam_pass(61000);
    for (int i = 0; i < 16; i++) ck_ok(change(z, "/a"));
    ck_assert_int_eq(
        number("SELECT max(seq)-min(seq)+1-count(*)FROM zke_history"), 0);
  }
  ck_assert_int_lt(number("SELECT count(*)FROM zke_history"), 32);
}

/* At first there is no history; turning it off removes it, and a new one has no
 * old rows. */
TEST(off_and_on_again) {
  static const char tables[] =
      "SELECT count(*)FROM sqlite_master WHERE name LIKE '%history%'";
  zke *z = test_open(test_path("db"));
  make(z, "/a");
  ck_assert_int_eq(number(tables), 0);
  ck_ok(zke_history_keep(z, 1000000, 0));
  ck_ok(change(z, "/a"));
  expect("~/a");
  ck_ok(zke_history_keep(z, 0, 0));
  ck_ok(zke_history_keep(z, 0, 0));
  ck_assert_int_eq(number(tables), 0);
  ck_ok(change(z, "/a"));
  ck_ok(zke_history_keep(z, 10, 0));
  ck_ok(zke_history_keep(z, 20, 0));
  ck_assert_int_eq(number("SELECT min(zxid)FROM zke_history"),
                   test_stat(z, "/a").mzxid + 1);
  expect("");
  ck_ok(change(z, "/a"));
  expect("~/a");
  ck_rc(zke_history_keep(z, -1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_history_keep(z, 0, -1), ZKE_BADARGUMENTS);
}
