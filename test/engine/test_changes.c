/* test_changes.c - what has become of the nodes: zke_history() */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "test/test.h"

static int make(zke *z, const char *path, int mode) {
  return zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, NULL, NULL);
}

static int change(zke *z, const char *path) {
  return zke_set(z, path, "x", 1, -1, NULL);
}

/* A handle on a file with a history of everything. */
static zke *open_kept(void) {
  zke *z = test_open(test_path("db"));
  ck_ok(zke_history_keep(z, 1000000, 0));
  return z;
}

/* Assert what the history says, as "+/a ~/a -/a"; complete or not. */
static void expect(zke *z, const char *path, int64_t after, int complete,
                   const char *expected) {
  static const char signs[] = "?+-~";
  char text[2000] = "";
  zke_change_list *list;
  ck_ok(zke_history(z, path, after, 0, &list));
  for (int i = 0; i < list->count; i++) {
    size_t len = strlen(text);
    snprintf(text + len, sizeof text - len, "%s%c%s", i ? " " : "",
             signs[list->data[i].type], list->data[i].path);
    ck_assert_int_gt(list->data[i].zxid, after);
    if (i) ck_assert_int_le(list->data[i - 1].zxid, list->data[i].zxid);
  }
  ck_assert_str_eq(text, expected);
  ck_assert_int_eq(list->complete, complete);
  zke_free(list);
}

/* zke_history(): without one there is nothing, and that is said. */
TEST(there_is_none_at_first) {
  zke *z = test_open(test_path("db"));
  ck_ok(make(z, "/a", ZKE_PERSISTENT));
  expect(z, "/", 0, 0, "");
  ck_ok(zke_close(z));
}

/* Every kind of change is there, in order, of the path and below it alone; a
 * refused multi leaves nothing. */
TEST_LOOP(every_change_is_noted, 0, 2) {
  zke *z = _i ? test_open(":memory:") : test_open(test_path("db"));
  ck_ok(zke_history_keep(z, 1000, 0));
  int64_t began = test_zxid(z);
  ck_ok(make(z, "/a", ZKE_PERSISTENT));
  ck_ok(make(z, "/ab", ZKE_PERSISTENT));
  ck_ok(make(z, "/a/e-", ZKE_EPHEMERAL_SEQUENTIAL));
  ck_ok(change(z, "/a"));
  zke_op ops[3];
  zke_op_create(&ops[0], "/a/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&ops[1], "/a/b", -1);
  zke_op_delete(&ops[2], "/none", -1);
  ck_rc(zke_multi(z, ops, 3, NULL), ZKE_NONODE);
  ck_ok(zke_multi(z, ops, 2, NULL));
  ck_ok(zke_delete(z, "/a/e-0000000000", -1));
  ck_ok(zke_delete(z, "/a", -1));
  expect(z, "/a", 0, 0,
         "+/a +/a/e-0000000000 ~/a +/a/b -/a/b -/a/e-0000000000 -/a");
  expect(z, "/", began, 1,
         "+/a +/ab +/a/e-0000000000 ~/a +/a/b -/a/b -/a/e-0000000000 -/a");
  expect(z, "/a/b", began, 1, "+/a/b -/a/b");
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}

/* Whose change it was, by the session, its identity and its process: also
 * where the session's end made it. */
TEST(who_and_when) {
  zke *z = open_kept(), *other;
  zke_options options = {.size = sizeof options, .identity = "worker"};
  ck_ok(zke_open(test_path("db"), &options, &other));
  int64_t id = zke_session_id(other), before = test_wall();
  ck_ok(make(other, "/e", ZKE_EPHEMERAL));
  ck_ok(zke_close(other));
  ck_ok(make(z, "/p", ZKE_PERSISTENT));
  zke_change_list *list;
  ck_ok(zke_history(z, "/", 0, 0, &list));
  ck_assert_int_eq(list->count, 3);
  for (int i = 0; i < 2; i++) {
    const zke_change *c = &list->data[i];
    ck_assert_str_eq(c->path, "/e");
    ck_assert_int_eq(c->type, i ? ZKE_EVENT_DELETED : ZKE_EVENT_CREATED);
    ck_assert_int_eq(c->session, id);
    ck_assert_int_eq(c->owner, id);
    ck_assert_str_eq(c->identity, "worker");
    ck_assert_int_eq(c->pid, getpid());
    ck_assert_int_ge(c->time_ms, before);
  }
  ck_assert_int_eq(list->data[2].session, zke_session_id(z));
  ck_assert_int_eq(list->data[2].owner, 0);
  zke_free(list);
  ck_ok(zke_close(z));
}

/* Whose an ephemeral node was that its own session has discarded.  The history
 * said nobody's, as only a session's end told that. */
TEST(owner_of_what_was_discarded) {
  zke *z = open_kept();
  int64_t id = zke_session_id(z);
  zke_change_list *list;
  ck_ok(make(z, "/e", ZKE_EPHEMERAL));
  ck_ok(zke_discard(z, "/e", ZKE_EPHEMERAL, 0));
  ck_rc(zke_exists(z, "/e", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_history(z, "/", 0, 0, &list));
  ck_assert_int_eq(list->count, 2);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(list->data[i].session, id);
    ck_assert_int_eq(list->data[i].owner, id);
  }
  ck_assert_int_eq(list->data[1].type, ZKE_EVENT_DELETED);
  zke_free(list);
  ck_ok(zke_close(z));
}

/* A process that is killed, and what the sweep removes. */
TEST(ends_that_nobody_made) {
  zke *z = open_kept();
  test_worker w = test_worker_on(test_path("db"));
  test_ask(&w, "create /e x %d", ZKE_EPHEMERAL);
  test_kill(&w, SIGKILL);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK &&
               zke_exists(z, "/e", NULL, NULL, NULL) == ZKE_NONODE,
           10000);
  ck_ok(zke_create_ttl(z, "/t", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL, 1,
                       NULL, NULL));
  ck_until(zke_dispatch(z, NULL) == ZKE_OK &&
               zke_exists(z, "/t", NULL, NULL, NULL) == ZKE_NONODE,
           10000);
  expect(z, "/", 0, 0, "+/e -/e +/t -/t");
  zke_change_list *list;
  ck_ok(zke_history(z, "/", 0, 0, &list));
  ck_assert_int_eq(list->data[1].session, list->data[0].session);
  ck_assert_int_eq(list->data[3].session, 0);
  zke_free(list);
  ck_ok(zke_close(z));
}

/* In pages: a zxid is told whole or not at all, and the last page is short. */
TEST(in_pages) {
  zke *z = open_kept();
  for (int i = 0; i < 5; i++) {
    zke_op ops[3];
    for (int k = 0; k < 3; k++) {
      zke_op_create(&ops[k], "/n-", "", 0, ZKE_OPEN_ACL,
                    ZKE_PERSISTENT_SEQUENTIAL);
    }
    ck_ok(zke_multi(z, ops, 3, NULL));
  }
  static const int counts[] = {6, 6, 3, 0};
  int64_t after = 0;
  int seen = 0;
  zke_change_list *list;
  for (int page = 0; page < 4; page++) {
    ck_ok(zke_history(z, "/", after, 4, &list));
    ck_assert_int_eq(list->count, counts[page]);
    if (list->count) after = list->data[list->count - 1].zxid;
    seen += list->count;
    zke_free(list);
  }
  ck_assert_int_eq(seen, 15);
  ck_rc(zke_history(z, "/", 0, 4, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_history(z, "/", 0, -1, &list), ZKE_BADARGUMENTS);
  ck_says("at most -1");
  ck_rc(zke_history(z, "/", -1, 4, &list), ZKE_BADARGUMENTS);
  ck_says("after the zxid -1");
  ck_ok(zke_close(z));
}

/* Below a chroot paths are the handle's; a node that the session may not read
 * is not told of. */
TEST(chroot_and_permission) {
  zke *z = open_kept();
  ck_ok(make(z, "/c", ZKE_PERSISTENT));
  zke *below = test_session(z, "/c");
  ck_ok(make(below, "/x", ZKE_PERSISTENT));
  ck_ok(zke_add_auth(z, "digest", "a:b", 3));
  ck_ok(zke_create(z, "/c/secret", "", 0, ZKE_CREATOR_ALL_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  expect(below, "/", 0, 0, "+/ +/x");
  expect(z, "/c", 0, 0, "+/c +/c/x +/c/secret");
  ck_ok(zke_close(below));
  ck_ok(zke_close(z));
}

/* Limits: about so many rows stay, the latest; what is asked for from before
 * them is not whole, and what comes later is. */
TEST(old_rows_go) {
  zke *z = test_open(test_path("db"));
  ck_ok(zke_history_keep(z, 100, 0));
  ck_ok(make(z, "/a", ZKE_PERSISTENT));
  for (int i = 0; i < 1000; i++) ck_ok(change(z, "/a"));
  int64_t count =
      test_number(test_path("db"), "SELECT count(*)FROM zke_history");
  ck_assert_int_ge(count, 100);
  ck_assert_int_lt(count, 120);
  int64_t first =
      test_number(test_path("db"), "SELECT min(zxid)FROM zke_history");
  zke_change_list *list;
  ck_ok(zke_history(z, "/", first - 1, 0, &list));
  ck_assert_int_eq(list->complete, 0);
  zke_free(list);
  ck_ok(zke_history(z, "/", first, 0, &list));
  ck_assert_int_eq(list->complete, 1);
  ck_assert_int_eq(list->count, count - 1);
  zke_free(list);
  ck_ok(zke_close(z));
}

/* A smaller limit is reached by and by, a bounded number of rows at a time. */
TEST(a_limit_is_reached_in_steps) {
  zke *z = open_kept();
  ck_ok(make(z, "/a", ZKE_PERSISTENT));
  for (int i = 0; i < 1000; i++) ck_ok(change(z, "/a"));
  ck_ok(zke_history_keep(z, 10, 0));
  int64_t was = test_number(test_path("db"), "SELECT count(*)FROM zke_history");
  ck_assert_int_gt(was, 1000);
  for (int i = 0; i < 300; i++) {
    ck_ok(change(z, "/a"));
    int64_t now =
        test_number(test_path("db"), "SELECT count(*)FROM zke_history");
    ck_assert_int_ge(now, was - 64);
    was = now;
  }
  ck_assert_int_lt(was, 20);
  ck_ok(zke_close(z));
}

/* Limits of time, by the wall clock, which is moved here. */
TEST(rows_go_by_their_age) {
  zke_os os = test_driven_os();
  zke_options options = {.size = sizeof options, .os = &os};
  zke *z;
  ck_ok(zke_open(test_path("db"), &options, &z));
  ck_ok(zke_history_keep(z, 0, 60000));
  ck_ok(make(z, "/a", ZKE_PERSISTENT));
  for (int i = 0; i < 50; i++) ck_ok(change(z, "/a"));
  ck_assert_int_ge(
      test_number(test_path("db"), "SELECT count(*)FROM zke_history"), 50);
  test_pass_ns(NULL, INT64_C(61000000000));
  for (int i = 0; i < 16; i++) ck_ok(change(z, "/a"));
  int64_t count =
      test_number(test_path("db"), "SELECT count(*)FROM zke_history");
  ck_assert_int_ge(count, 16);
  ck_assert_int_lt(count, 32);
  ck_ok(zke_close(z));
}

/* A wall clock that was ahead for a while: rows that were written after it was
 * set back do not go before those of that while.  There is never a gap. */
TEST(a_clock_that_goes_back_makes_no_gap) {
  const int64_t ahead = INT64_C(120000000000);
  zke_os os = test_driven_os();
  zke_options options = {.size = sizeof options, .os = &os};
  zke *z;
  ck_ok(zke_open(test_path("db"), &options, &z));
  ck_ok(zke_history_keep(z, 0, 60000));
  test_clock_ns[ZKE_CLOCK_REALTIME] += ahead;
  ck_ok(make(z, "/a", ZKE_PERSISTENT));
  for (int i = 0; i < 10; i++) ck_ok(change(z, "/a"));
  test_clock_ns[ZKE_CLOCK_REALTIME] -= ahead;
  for (int i = 0; i < 10; i++) ck_ok(change(z, "/a"));
  for (int minute = 0; minute < 4; minute++) {
    test_pass_ns(NULL, INT64_C(61000000000));
    for (int i = 0; i < 16; i++) ck_ok(change(z, "/a"));
    ck_assert_int_eq(test_number(test_path("db"),
                                 "SELECT max(seq)-min(seq)+1-count(*)FROM "
                                 "zke_history"),
                     0);
  }
  ck_assert_int_lt(
      test_number(test_path("db"), "SELECT count(*)FROM zke_history"), 32);
  ck_ok(zke_close(z));
}

/* Turned off it is gone, and a new one has no part of it. */
TEST(off_and_on_again) {
  zke *z = open_kept();
  ck_ok(make(z, "/a", ZKE_PERSISTENT));
  ck_ok(zke_history_keep(z, 0, 0));
  ck_ok(zke_history_keep(z, 0, 0));
  expect(z, "/", 0, 0, "");
  ck_ok(change(z, "/a"));
  int64_t before = test_zxid(z);
  ck_ok(zke_history_keep(z, 10, 0));
  ck_ok(zke_history_keep(z, 20, 0));
  int64_t began = test_zxid(z);
  ck_ok(change(z, "/a"));
  expect(z, "/a", before, 0, "~/a");
  expect(z, "/a", began, 1, "~/a");
  ck_rc(zke_history_keep(z, -1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_history_keep(z, 0, -1), ZKE_BADARGUMENTS);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}
