/* test_compose.c - several services as one: mounts, events, sessions, recipes
 *
 * A base and a mounted part, each a tree in memory. test_order.c tests the
 * common order.
 */
#include "recipes/engine/compose.h"

#include <poll.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes/election.h"
#include "recipes/lock.h"
#include "recipes/queue.h"
#include "recipes/two_phase.h"
#include "test/opened.h"
#include "test/seam.h"

/* The test's own sessions of the two stores, and two composed handles, whose
 * sessions have different numbers in the two stores. */
static zke *base, *part, *z[2];

static void make(zke *session, const char *path) {
  ck_ok(zke_create(session, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
}

static void expect_no_watches(void *unused) {
  (void)unused;
  ck_assert_int_eq(all_watches(base) + all_watches(part), 0);
}

static void open_mounted(void) {
  base = test_open(":memory:");
  part = test_open(":memory:");
  at_end(expect_no_watches, NULL);
  make(base, "/global");
  for (int i = 0; i < 2; i++) {
    z[i] = test_session(base, NULL);
    ck_ok(zke_mount(&z[i], "/global", test_session(part, NULL)));
  }
}

static void expect_children(zke *session, const char *path,
                            const char *expected) {
  zke_strings *names;
  char text[256] = "";
  ck_ok(zke_children(session, path, NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    if (i) strcat(text, " ");
    strcat(text, names->data[i]);
  }
  ck_assert_str_eq(text, expected);
  zke_free(names);
}

/* ---- one tree ---- */

/* A path below the mount goes to the part, without the prefix; results have the
 * caller's path. */
TEST(paths_are_the_callers) {
  char *path;
  zke_stat stat;
  open_mounted();
  ck_ok(zke_create(z[0], "/global/a-", "1", 1, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT_SEQUENTIAL, &path, &stat));
  ck_assert_str_eq(path, "/global/a-0000000000");
  zke_free(path);
  ck_ok(zke_exists(part, "/a-0000000000", NULL, NULL, NULL));
  ck_rc(zke_exists(base, "/global/a-0000000000", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_create(z[0], "/global/", "", 0, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT_SEQUENTIAL, &path, NULL));
  ck_assert_str_eq(path, "/global/0000000001");
  zke_free(path);
  ck_ok(zke_set(z[1], "/global/a-0000000000", "2", 1, 0, &stat));
  ck_assert_int_eq(stat.version, 1);
  make(z[0], "/globalx"); /* a name that only starts like the prefix */
  ck_ok(zke_exists(base, "/globalx", NULL, NULL, NULL));
  ck_ok(zke_delete(z[0], "/global/0000000001", -1));
  expect_children(z[0], "/", "global globalx zookeeper");
  expect_children(z[0], "/global", "a-0000000000 zookeeper");
}

/* A sequential create at the mount point's own path makes a sibling in the
 * base, not a node below the mount. */
TEST(a_sequence_at_the_mount_point) {
  char *path;
  zke_op op;
  zke_op_result result = {0};
  open_mounted();
  ck_ok(zke_create(z[0], "/global", "", 0, ZKE_OPEN_ACL,
                   ZKE_EPHEMERAL_SEQUENTIAL, &path, NULL));
  ck_assert_int_eq(strncmp(path, "/global0", 8), 0);
  ck_ok(zke_exists(base, path, NULL, NULL, NULL));
  zke_free(path);
  zke_op_create(&op, "/global", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL);
  ck_ok(zke_multi(z[0], &op, 1, &result));
  ck_ok(zke_delete(base, result.path, -1));
  zke_results_clear(&result, 1);
  ck_ok(zke_discard(z[0], "/global", ZKE_EPHEMERAL_SEQUENTIAL, 0));
  expect_children(base, "/", "global zookeeper");
  expect_children(part, "/", "zookeeper");
  ck_rc(zke_create(z[0], "/global", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL),
        ZKE_NODEEXISTS);
}

/* The base's nodes at and below the mount point are hidden; the mount point is
 * the part's "/". */
TEST(the_mount_hides_what_is_below_it) {
  open_mounted();
  make(base, "/global/hidden");
  ck_rc(zke_exists(z[0], "/global/hidden", NULL, NULL, NULL), ZKE_NONODE);
  expect_children(z[0], "/global", "zookeeper");
  ck_rc(zke_delete(z[0], "/global", -1), ZKE_BADARGUMENTS);
  ck_says("below /global: ");
  ck_ok(zke_set(z[0], "/global", "root", 4, -1, NULL));
  char *data;
  ck_ok(zke_get(part, "/", NULL, NULL, &data, NULL, NULL));
  ck_assert_str_eq(data, "root");
  zke_free(data);
}

/* Malformed paths stay malformed. */
TEST_LOOP(malformed_paths_are_refused, 0, 5) {
  static const char *const paths[] = {NULL, "", "global", "/global/",
                                      "/global//a"};
  open_mounted();
  ck_rc(zke_exists(z[0], paths[_i], NULL, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_set(z[0], paths[_i], "", 0, -1, NULL), ZKE_BADARGUMENTS);
}

/* Calls that concern two services are refused, each with a sentence. */
TEST(what_spans_two_services_is_refused) {
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  int64_t number;
  int fd;
  test_events events = {0};
  open_mounted();
  zke_op_create(&ops[0], "/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_create(&ops[1], "/global/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_rc(zke_multi(z[0], ops, 2, results), ZKE_UNIMPLEMENTED);
  ck_says("/a and /global/b lie in two services");
  ck_rc(zke_exists(z[0], "/a", NULL, NULL, NULL), ZKE_NONODE);
  zke_op_get(&ops[0], "/");
  zke_op_get(&ops[1], "/global");
  ck_rc(zke_multi_read(z[0], ops, 2, results), ZKE_UNIMPLEMENTED);
  zke_op_untold(&ops[0], "/", 10);
  ck_rc(zke_multi_read(z[0], ops, 1, results), ZKE_UNIMPLEMENTED);
  ck_rc(zke_count(z[0], "/", &number), ZKE_UNIMPLEMENTED);
  ck_says("another service is mounted below /");
  ck_rc(zke_usage(z[0], "/", &number, NULL), ZKE_UNIMPLEMENTED);
  ck_rc(zke_add_watch(z[0], "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      &events),
        ZKE_UNIMPLEMENTED);
  ck_rc(zke_keepalive_fd(z[0], &fd), ZKE_UNIMPLEMENTED);
  ck_rc(zke_dispatch_to(z[0], 1, NULL, NULL), ZKE_UNIMPLEMENTED);
  ck_rc(zke_touch(z[0]), ZKE_UNIMPLEMENTED);
  ck_ok(zke_count(z[0], "/global", &number));
}

/* A multi of one part is made there, and the caller gets its results. */
TEST(several_operations_on_one_part) {
  zke_op ops[3];
  zke_op_result results[3] = {{0}};
  open_mounted();
  zke_op_create(&ops[0], "/global/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  zke_op_fail(&ops[1], ZKE_NOAUTH);
  ck_rc(zke_multi(z[0], ops, 2, results), ZKE_NOAUTH);
  ck_assert_int_eq(results[0].rc, 0);
  zke_results_clear(results, 2);
  ck_ok(zke_multi(z[0], ops, 1, results));
  ck_assert_str_eq(results[0].path, "/global/e");
  ck_assert(results[0].stat.ephemeralOwner == zke_session_id(z[0]));
  zke_results_clear(results, 1);
  zke_op_get(&ops[0], "/global/e");
  zke_op_children(&ops[1], "/global", NULL, 0);
  ck_ok(zke_multi_read(z[1], ops, 2, results));
  ck_assert(results[0].stat.ephemeralOwner != zke_session_id(z[1]));
  ck_assert_int_eq(results[1].children->count, 2);
  zke_results_clear(results, 2);
  ck_ok(zke_multi(z[0], NULL, 0, NULL));
  ck_rc(zke_multi(z[0], NULL, 1, NULL), zke_multi(base, NULL, 1, NULL));
}

/* If memory runs out a multi is not made, or its results are complete. */
TEST(a_multi_without_memory) {
  test_heap heap = {0};
  zke_options options = ZKE_INIT(zke_options);
  zke_op op;
  zke_stat before;
  options.allocator = (zke_allocator){test_heap_resize, &heap};
  base = test_open(":memory:");
  make(base, "/global");
  ck_ok(zke_open(":memory:", &options, &part));
  z[0] = test_session(base, NULL);
  ck_ok(zke_open_session(part, &options, &z[1]));
  ck_ok(zke_mount(&z[0], "/global", z[1]));
  zke_op_create(&op, "/global/n-", "", 0, ZKE_OPEN_ACL,
                ZKE_PERSISTENT_SEQUENTIAL);
  for (int fail_at = 1, rc = ZKE_NOMEM; rc != ZKE_OK; fail_at++) {
    zke_op_result result = {0};
    before = test_stat(part, "/");
    heap.calls = 0;
    heap.fail_at = fail_at;
    rc = zke_multi(z[0], &op, 1, &result);
    heap.fail_at = 0;
    ck_assert_int_lt(fail_at, 100);
    if (rc == ZKE_OK)
      ck_assert_int_eq(strncmp(result.path, "/global/n-0", 11), 0);
    else
      ck_rc(rc, ZKE_NOMEM);
    ck_assert_int_eq(test_stat(part, "/").numChildren,
                     before.numChildren + (rc == ZKE_OK));
    zke_results_clear(&result, 1);
  }
  ck_ok(zke_close(z[0]));
  ck_ok(zke_close(part));
  ck_ok(zke_close(base));
  ck_assert_int_eq(heap.live, 0);
}

/* Calls that need memory, by number; 1: there is no such call. */
static int call_tree(int which, zke *session, test_events *events) {
  zke_strings *names = NULL;
  zke_session_list *who = NULL;
  char *path = NULL;
  int rc = 1;
  if (which == 0) {
    rc = zke_exists(session, "/global/n", test_record, events, NULL);
    if (rc == ZKE_NONODE) rc = ZKE_OK;
  }
  if (which == 1)
    rc = zke_create(session, "/global/e-", "", 0, ZKE_OPEN_ACL,
                    ZKE_EPHEMERAL_SEQUENTIAL, &path, NULL);
  if (which == 2) rc = zke_ephemerals(session, 0, NULL, &names);
  if (which == 3) rc = zke_sessions(session, -1, &who);
  if (which == 4) rc = zke_sessions(session, zke_session_id(session), &who);
  zke_free(path);
  zke_free(names);
  zke_free(who);
  return rc;
}

/* The same for calls that make and use the handle. */
static int call_one(int which, zke **session, zke *other, test_events *events) {
  zke *further = NULL;
  int rc, fd;
  switch (which) {
    case 0:
      return zke_mount(session, "/global", other);
    case 1:
      return zke_order(session, 1);
    case 2:
      return zke_set_watcher(*session, test_record, events);
    case 3:
      return zke_call_at(*session, ZKE_FOREVER - 1, test_record, events);
    case 4:
      return zke_fd(*session, &fd);
    case 5:
      return zke_dispatch(*session, NULL);
    case 6:
      rc = zke_open_session(*session, NULL, &further);
      zke_close(further);
      return rc;
    default:
      return call_tree(which - 7, *session, events);
  }
}

/* In each call the n-th allocation fails: the call says so, and succeeds when
 * repeated; nothing is left. */
TEST(calls_without_memory) {
  test_heap heap = {0};
  zke_options options = ZKE_INIT(zke_options);
  options.allocator = (zke_allocator){test_heap_resize, &heap};
  ck_ok(zke_open(":memory:", &options, &base));
  ck_ok(zke_open(":memory:", &options, &part));
  make(base, "/global");
  z[0] = test_session(base, NULL);
  zke *other = test_session(part, NULL);
  test_events events = {0};
  int rc = ZKE_OK, failures = 0;
  for (int which = 0; rc != 1; which++) {
    rc = ZKE_NOMEM;
    for (int fail_at = 1; rc == ZKE_NOMEM; fail_at++) {
      ck_assert_int_lt(fail_at, 1000);
      heap.calls = 0;
      heap.fail_at = fail_at;
      rc = call_one(which, &z[0], other, &events);
      heap.fail_at = 0;
      failures += rc == ZKE_NOMEM;
    }
    if (rc != 1) ck_ok(rc);
  }
  ck_assert_int_gt(failures, 20);
  ck_ok(zke_close(z[0]));
  ck_ok(zke_close(part));
  ck_ok(zke_close(base));
  ck_assert_int_eq(heap.live, 0);
}

/* ---- in the function of a batch ---- */

static zke *open_alone(void) {
  zke *alone = test_session(base, NULL);
  ck_ok(zke_order(&alone, 1));
  return alone;
}

static int close_in_batch(zke *session, void *context) {
  (void)context;
  ck_rc(zke_close(session), ZKE_MISUSE);
  return ZKE_OK;
}

/* A watcher that may be registered stays so. */
static int forget_in_batch(zke *session, void *context) {
  ck_rc(zke_forget(session, test_record, context), ZKE_MISUSE);
  return ZKE_OK;
}

/* In a batch, closing the handle and forgetting a watcher are refused, and
 * change nothing. */
TEST(what_a_batch_may_not) {
  test_events events = {0};
  open_mounted();
  zke *alone = open_alone();
  ck_ok(zke_batch(alone, close_in_batch, NULL));
  ck_rc(zke_exists(alone, "/n", test_record, &events, NULL), ZKE_NONODE);
  ck_ok(zke_batch(alone, forget_in_batch, &events));
  make(base, "/n");
  test_expect(alone, &events, "CREATED /n");
  ck_ok(zke_forget(alone, test_record, &events));
}

static int end_in_batch(zke *session, void *context) {
  make(session, "/half");
  pthread_exit(context);
}

static void *batch_that_ends(void *arg) {
  zke_batch(arg, end_in_batch, arg);
  return NULL;
}

/* A batch that ends its thread leaves the handle usable. */
TEST(a_batch_ends_its_thread) {
  pthread_t thread;
  void *rc;
  open_mounted();
  zke *alone = open_alone();
  ck_assert_int_eq(pthread_create(&thread, NULL, batch_that_ends, alone), 0);
  ck_assert_int_eq(pthread_join(thread, &rc), 0);
  ck_assert_ptr_eq(rc, alone);
  ck_rc(zke_exists(alone, "/half", NULL, NULL, NULL), ZKE_NONODE);
}

static pid_t batch_child = -1;

static int fork_in_batch(zke *session, void *context) {
  (void)session, (void)context;
  batch_child = fork();
  return ZKE_OK;
}

/* A child that is forked in a batch gets out of it. */
TEST(a_batch_forks) {
  int status;
  open_mounted();
  zke *alone = open_alone();
  int rc = zke_batch(alone, fork_in_batch, NULL);
  if (batch_child == 0) _exit(rc == ZKE_FORKED ? 0 : 1);
  ck_ok(rc);
  ck_assert_int_eq(waitpid(batch_child, &status, 0), batch_child);
  ck_assert_int_eq(status, 0);
}

/* For zke_op_sql(): run the text. */
static int run_sql(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid;
  return sqlite3_exec(db, context, NULL, NULL, NULL);
}

/* ZKE_OK if the handle's database has the table, else SQLite's code. */
static int has_table(zke *session, const char *table) {
  zke_op op;
  zke_op_result r = {0};
  char sql[64];
  snprintf(sql, sizeof sql, "SELECT a FROM %s", table);
  zke_op_sql(&op, run_sql, sql);
  ck_ok(zke_multi_read(session, &op, 1, &r));
  return r.rc;
}

/* zke_op_sql() goes with the other operations of its call, in any order; alone,
 * to the base.  A call about two services does nothing. */
TEST_LOOP(sql_goes_with_the_other_operations, 0, 2) {
  zke_op ops[3];
  char below[] = "CREATE TABLE below(a)", above[] = "CREATE TABLE above(a)";
  open_mounted();
  zke_op_sql(&ops[_i], run_sql, below);
  zke_op_create(&ops[1 - _i], "/global/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_create(&ops[2], "/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_rc(zke_multi(z[0], ops, 3, NULL), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(has_table(part, "below"), SQLITE_ERROR);
  ck_ok(zke_multi(z[0], ops, 2, NULL));
  ck_ok(has_table(part, "below"));
  ck_assert_int_eq(has_table(base, "below"), SQLITE_ERROR);
  zke_op_sql(&ops[0], run_sql, above);
  ck_ok(zke_multi(z[0], ops, 1, NULL));
  ck_ok(has_table(base, "above"));
  ck_ok(has_table(z[0], "above"));
}

/* ---- owners of nodes ---- */

/* The own session is the same on all parts.  No other session is taken for it,
 * or for a session of another part, even if the numbers are the same. */
TEST(owners_are_told_apart) {
  zke_session_list *who;
  zke_strings *paths;
  open_mounted();
  for (int i = 0; i < 2; i++) {
    const char *at[] = {i ? "/b1" : "/b0", i ? "/global/p1" : "/global/p0"};
    for (int j = 0; j < 2; j++) {
      zke_stat stat;
      ck_ok(zke_create(z[i], at[j], "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                       &stat));
      ck_assert(stat.ephemeralOwner == zke_session_id(z[i]));
    }
  }
  /* A session of the part with the number of the base's own. */
  zke_stat other = test_stat(z[0], "/global/p1");
  ck_assert(test_stat(part, "/p1").ephemeralOwner == zke_session_id(z[0]));
  ck_assert(other.ephemeralOwner != zke_session_id(z[0]));
  ck_ok(zke_sessions(z[0], other.ephemeralOwner, &who));
  ck_assert(who->data[0].id == other.ephemeralOwner);
  ck_assert_int_eq(who->data[0].ephemerals, 1);
  zke_free(who);
  ck_ok(zke_ephemerals(z[0], 0, NULL, &paths));
  ck_assert_int_eq(paths->count, 2);
  ck_assert_str_eq(paths->data[0], "/b0");
  ck_assert_str_eq(paths->data[1], "/global/p0");
  zke_free(paths);
  ck_ok(zke_ephemerals(z[0], other.ephemeralOwner, "/gl", &paths));
  ck_assert_int_eq(paths->count, 1);
  ck_assert_str_eq(paths->data[0], "/global/p1");
  zke_free(paths);
  ck_ok(zke_expire(z[0], other.ephemeralOwner));
  ck_rc(zke_exists(z[0], "/global/p1", NULL, NULL, NULL), ZKE_NONODE);
  ck_rc(zke_expire(z[0], 4711), ZKE_NONODE);
}

/* Each session, also the own one, is in the list once. */
TEST(sessions_are_listed_once) {
  zke_session_list *all, *of_base, *of_part;
  open_mounted();
  ck_ok(zke_sessions(z[0], -1, &all));
  ck_ok(zke_sessions(base, -1, &of_base));
  ck_ok(zke_sessions(part, -1, &of_part));
  ck_assert_int_eq(all->count, of_base->count + of_part->count - 1);
  for (int i = 0; i < all->count; i++)
    for (int j = 0; j < i; j++) ck_assert(all->data[i].id != all->data[j].id);
  zke_free(all);
  zke_free(of_base);
  zke_free(of_part);
}

/* ---- watches and waiting ---- */

/* Events have the caller's path and come from either part; hidden nodes have
 * none. */
TEST(events_have_the_callers_path) {
  test_events events = {0};
  open_mounted();
  ck_ok(zke_children(z[0], "/", test_record, &events, NULL, NULL));
  ck_ok(zke_children(z[0], "/global", test_record, &events, NULL, NULL));
  ck_rc(zke_exists(z[0], "/global/n", test_record, &events, NULL), ZKE_NONODE);
  make(part, "/n");
  make(base, "/m");
  make(base, "/global/hidden");
  test_expect(z[0], &events, "CHILD /; CREATED /global/n; CHILD /global");
  ck_ok(zke_add_watch(z[0], "/global", ZKE_WATCH_PERSISTENT_RECURSIVE,
                      test_record, &events));
  ck_ok(zke_set(part, "/n", "1", 1, -1, NULL));
  ck_ok(zke_set(part, "/", "1", 1, -1, NULL));
  test_expect(z[0], &events, "CHANGED /global/n; CHANGED /global");
  ck_ok(zke_forget(z[0], test_record, &events));
}

/* Long paths are the caller's too. */
TEST(events_of_long_paths) {
  char path[1200] = "/global/";
  memset(path + 8, 'x', 1000);
  test_events events = {0};
  open_mounted();
  ck_rc(zke_exists(z[0], path, test_record, &events, NULL), ZKE_NONODE);
  make(part, path + 7);
  ck_ok(zke_dispatch(z[0], NULL));
  ck_assert_int_eq(events.count, 1);
  ck_assert_int_eq(events.at[0].type, ZKE_EVENT_CREATED);
  ck_assert_int_eq(strncmp(events.at[0].path, path, 255), 0);
}

/* The longest path that a watcher was told. */
static size_t told_path;

static void note_path(zke *session, int type, int state, const char *path,
                      void *context) {
  (void)session, (void)state;
  if (strlen(path) > told_path) told_path = strlen(path);
  *(int *)context = type;
}

/* An event without a path has none below a long prefix either. */
TEST(an_end_below_a_long_prefix_has_no_path) {
  char prefix[700] = "/";
  int type = 0;
  memset(prefix + 1, 'x', 600);
  open_mounted();
  make(base, prefix);
  zke *mounted = test_session(part, NULL), *outer = test_session(base, NULL);
  int64_t id = zke_session_id(mounted);
  ck_ok(zke_mount(&outer, prefix, mounted));
  ck_ok(zke_exists(outer, prefix, note_path, &type, NULL));
  ck_ok(zke_expire(part, id));
  ck_ok(zke_dispatch(outer, NULL));
  ck_assert_int_eq(type, ZKE_EVENT_SESSION);
  ck_assert_uint_eq(told_path, 0);
}

/* The handle, what is pending, and the zxid, as a watcher gets them. */
static zke *got_handle;
static int64_t got_zxid;

static void note(zke *session, int type, int state, const char *path,
                 void *context) {
  (void)type, (void)state, (void)path, (void)context;
  got_handle = session;
  got_zxid = zke_event_zxid(session);
}

/* A watcher gets the program's handle, not the part's; the event's zxid is the
 * part's, and 0 outside a watcher. */
TEST(watchers_get_the_composed_handle) {
  open_mounted();
  ck_rc(zke_exists(z[0], "/global/n", note, NULL, NULL), ZKE_NONODE);
  make(part, "/n");
  ck_ok(zke_dispatch(z[0], NULL));
  ck_assert_ptr_eq(got_handle, z[0]);
  ck_assert(got_zxid == test_stat(part, "/n").czxid);
  ck_assert(zke_event_zxid(z[0]) == 0);
}

/* A pair keeps its identity: it can be checked, removed and forgotten. */
TEST(pairs_are_taken_back) {
  test_events a = {0}, b = {0};
  open_mounted();
  ck_rc(zke_exists(z[0], "/global/n", test_record, &a, NULL), ZKE_NONODE);
  ck_rc(zke_exists(z[0], "/global/n", test_record, &b, NULL), ZKE_NONODE);
  ck_ok(zke_check_watch(z[0], "/global/n", ZKE_WATCH_DATA, test_record, &a));
  ck_ok(zke_check_watch(z[0], "/global/n", ZKE_WATCH_ANY, NULL, NULL));
  ck_rc(zke_check_watch(z[0], "/n", ZKE_WATCH_DATA, test_record, &a),
        ZKE_NOWATCHER);
  ck_rc(zke_remove_watch(z[0], "/global/n", ZKE_WATCH_DATA, test_record, z),
        ZKE_NOWATCHER);
  ck_ok(zke_remove_watch(z[0], "/global/n", ZKE_WATCH_DATA, test_record, &a));
  ck_rc(zke_exists(z[0], "/m", test_record, &a, NULL), ZKE_NONODE);
  ck_rc(zke_exists(z[0], "/global/m", test_record, &a, NULL), ZKE_NONODE);
  ck_ok(zke_forget(z[0], test_record, &a));
  ck_ok(zke_forget(z[0], test_record, &a));
  make(part, "/n");
  make(part, "/m");
  make(base, "/m");
  test_expect(z[0], &b, "CREATED /global/n");
  ck_assert_int_eq(a.count, 0);
}

static void forget_itself(zke *session, int type, int state, const char *path,
                          void *context) {
  (void)type, (void)state, (void)path;
  ++*(int *)context;
  ck_ok(zke_forget(session, forget_itself, context));
}

/* After a watcher has forgotten itself it is not called again, even for another
 * part's pending events. */
TEST(a_watcher_forgets_itself) {
  int count = 0;
  open_mounted();
  ck_rc(zke_exists(z[0], "/global/n", forget_itself, &count, NULL), ZKE_NONODE);
  ck_rc(zke_exists(z[0], "/n", forget_itself, &count, NULL), ZKE_NONODE);
  make(part, "/n");
  make(base, "/n");
  ck_ok(zke_dispatch(z[0], NULL));
  ck_assert_int_eq(count, 1);
}

/* One descriptor and one deadline serve all parts. */
TEST(one_descriptor_for_all_parts) {
  test_events events = {0};
  struct pollfd poller = {.events = POLLIN};
  int pending;
  int64_t deadline;
  open_mounted();
  ck_ok(zke_fd(z[0], &poller.fd));
  ck_ok(zke_dispatch(z[0], NULL));
  ck_rc(zke_exists(z[0], "/n", test_record, &events, NULL), ZKE_NONODE);
  ck_rc(zke_exists(z[0], "/global/n", test_record, &events, NULL), ZKE_NONODE);
  make(part, "/n");
  ck_assert_int_eq(poll(&poller, 1, 10000), 1);
  ck_ok(zke_pending(z[0], &pending));
  ck_assert_int_eq(pending, 1);
  test_expect(z[0], &events, "CREATED /global/n");
  make(base, "/n");
  ck_assert_int_eq(poll(&poller, 1, 10000), 1);
  test_expect(z[0], &events, "CREATED /n");
  int64_t when = zke_now(z[0]) + 30;
  ck_ok(zke_call_at(z[0], when, test_record, &events));
  ck_ok(zke_next_deadline(z[0], &deadline));
  ck_assert_int_le(deadline, when);
  while (!events.count) ck_ok(zke_wait(z[0], zke_now(z[0]) + 10000));
  ck_assert_int_eq(events.at[0].type, ZKE_EVENT_ALARM);
  ck_rc(zke_wait(z[0], zke_now(z[0]) + 5), ZKE_OPERATIONTIMEOUT);
}

/* Several threads wait: an event on either part, or a wake, ends all waits. */
static void *wait_once(void *arg) {
  return (void *)(intptr_t)zke_wait_turn(z[0], *(int64_t *)arg, soon(z[0]));
}

/* An event of either part, or a wake, ends the waits of all threads. */
TEST_LOOP(all_who_wait_are_woken, 0, 3) {
  pthread_t threads[3];
  test_events events = {0};
  open_mounted();
  ck_rc(zke_exists(z[0], "/n", test_record, &events, NULL), ZKE_NONODE);
  ck_rc(zke_exists(z[0], "/global/n", test_record, &events, NULL), ZKE_NONODE);
  int64_t turn = zke_turn(z[0]);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, wait_once, &turn), 0);
  if (_i == 0) make(base, "/n");
  if (_i == 1) make(part, "/n");
  if (_i == 2) ck_ok(zke_wake(z[0]));
  for (int i = 0; i < 3; i++) {
    void *rc;
    ck_assert_int_eq(pthread_join(threads[i], &rc), 0);
    ck_assert_int_eq((int)(intptr_t)rc, ZKE_OK);
  }
}

/* A thread that is cancelled in its sleep leaves the handle usable. */
TEST(a_cancelled_sleep) {
  pthread_t thread;
  void *rc;
  open_mounted();
  int64_t turn = zke_turn(z[0]);
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_once, &turn), 0);
  ck_assert_int_eq(pthread_cancel(thread), 0);
  ck_assert_int_eq(pthread_join(thread, &rc), 0);
  ck_assert_ptr_eq(rc, PTHREAD_CANCELED);
  ck_rc(zke_wait(z[0], 0), ZKE_OPERATIONTIMEOUT);
}

/* A watcher that ends its thread leaves the handle usable too. */
static void end_thread(zke *session, int type, int state, const char *path,
                       void *context) {
  (void)session, (void)type, (void)state, (void)path;
  if (context) pthread_exit(context);
}

/* After a watcher has ended its thread others can wait and dispatch. */
TEST(a_watcher_ends_its_thread) {
  pthread_t thread;
  void *rc;
  open_mounted();
  ck_rc(zke_exists(z[0], "/global/n", end_thread, z, NULL), ZKE_NONODE);
  make(part, "/n");
  int64_t turn = zke_turn(z[0]);
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_once, &turn), 0);
  ck_assert_int_eq(pthread_join(thread, &rc), 0);
  ck_assert_ptr_eq(rc, z);
  ck_rc(zke_wait(z[0], 0), ZKE_OPERATIONTIMEOUT);
}

/* ---- one session ---- */

/* The end of one part's session ends all: each pair, also the default watcher,
 * is told once, and the others' ephemerals go. */
TEST_LOOP(the_end_of_one_is_the_end_of_all, 0, 4) {
  test_events both = {0}, one = {0}, fallback = {0};
  open_mounted();
  ck_ok(zke_create(z[0], "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_create(z[0], "/global/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                   NULL));
  ck_ok(zke_exists(z[0], "/e", test_record, &both, NULL));
  ck_ok(zke_exists(z[0], "/global/e", test_record, &both, NULL));
  ck_ok(zke_exists(z[0], _i % 2 ? "/e" : "/global/e", test_record, &one, NULL));
  ck_ok(zke_set_watcher(z[0], test_record, &fallback));
  ck_assert_int_eq(zke_state(z[0]), ZKE_STATE_CONNECTED);
  if (_i < 2)
    ck_ok(zke_expire(base, test_stat(base, "/e").ephemeralOwner));
  else
    ck_ok(zke_expire(part, test_stat(part, "/e").ephemeralOwner));
  for (int i = 0; i < 5; i++) zke_dispatch(z[0], NULL);
  ck_assert_int_eq(zke_state(z[0]), ZKE_STATE_EXPIRED);
  const test_events *all[] = {&both, &one, &fallback};
  for (int i = 0; i < 3; i++) {
    int ends = 0;
    for (int j = 0; j < all[i]->count; j++)
      ends += all[i]->at[j].type == ZKE_EVENT_SESSION;
    ck_assert_int_eq(ends, 1);
  }
  ck_rc(zke_exists(z[0], "/", NULL, NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_exists(z[0], "/global", NULL, NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_sync(z[0], "/"), ZKE_INVALIDSTATE);
  ck_rc(zke_exists(base, "/e", NULL, NULL, NULL), ZKE_NONODE);
  ck_rc(zke_exists(part, "/e", NULL, NULL, NULL), ZKE_NONODE);
}

/* A call also finds the end; handles joined by zke_order() end together. */
TEST(ordered_handles_end_together) {
  test_events events = {0};
  zke *other = test_open(":memory:"), *file = test_open(":memory:");
  zke *handles[2] = {test_session(file, NULL), test_session(other, NULL)};
  ck_ok(zke_order(handles, 2));
  ck_rc(zke_exists(handles[1], "/n", test_record, &events, NULL), ZKE_NONODE);
  ck_ok(zke_expire(file, zke_session_id(handles[0])));
  ck_assert_int_lt(zke_exists(handles[0], "/", NULL, NULL, NULL), 0);
  test_expect(handles[1], &events, "SESSION -112");
  ck_rc(zke_get(handles[1], "/", NULL, NULL, NULL, NULL, NULL),
        ZKE_INVALIDSTATE);
}

/* Calls without a path that find their own session's end. */
static int find_the_end(zke *session, int how) {
  zke_session_list *list = NULL;
  zke_strings *paths = NULL;
  int number;
  switch (how) {
    case 0:
      return zke_add_auth(session, "foo", "x", 1);
    case 1:
      return zke_clear_auth(session);
    case 2:
      return zke_ephemerals(session, 0, NULL, &paths);
    case 3:
      return zke_sessions(session, -1, &list);
    case 4:
      return zke_overdue(session, &number);
    case 5:
      return zke_keepalive_fd(session, &number);
    default:
      return zke_expire(session, 4711);
  }
}

/* After any such call has found the end, no change is made on another
 * handle. */
TEST_LOOP(calls_without_a_path_find_the_end, 0, 7) {
  zke *other = test_open(":memory:"), *file = test_open(":memory:");
  zke *handles[2] = {test_session(file, NULL), test_session(other, NULL)};
  ck_ok(zke_order(handles, 2));
  if (_i > 0) ck_ok(zke_expire(file, zke_session_id(handles[0])));
  ck_rc(find_the_end(handles[0], _i),
        _i > 0 ? ZKE_INVALIDSTATE : ZKE_AUTHFAILED);
  ck_rc(zke_set(handles[1], "/", "", 0, -1, NULL), ZKE_INVALIDSTATE);
  ck_says("the session");
}

/* A further session exists on each part, with the same mounts. */
TEST(a_further_session) {
  zke *further;
  open_mounted();
  ck_ok(zke_open_session(z[0], NULL, &further));
  ck_ok(zke_close(z[0]));
  ck_ok(zke_create(further, "/global/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                   NULL, NULL));
  ck_assert(test_stat(further, "/global/e").ephemeralOwner ==
            zke_session_id(further));
  zke_options options = ZKE_INIT(zke_options);
  options.chroot = "/a";
  ck_rc(zke_open_session(further, &options, &z[0]), ZKE_UNIMPLEMENTED);
  ck_assert_ptr_null(z[0]);
  options = (zke_options)ZKE_INIT(zke_options);
  options.timeout_ms = 1000;
  ck_rc(zke_open_session(further, &options, &z[0]), ZKE_UNIMPLEMENTED);
  z[0] = further;
}

/* ---- making and ending ---- */

/* A mount is refused without a node, at "/", over another mount, of a composed
 * handle, and on a handle with watches.  A refused mount changes nothing.  A
 * mount below a mount is allowed. */
TEST(mounts_that_are_refused) {
  zke *other;
  open_mounted();
  other = test_session(part, NULL);
  ck_rc(zke_mount(&z[0], "/nothing", other), ZKE_NONODE);
  ck_rc(zke_mount(&z[0], "/", other), ZKE_BADARGUMENTS);
  ck_rc(zke_mount(&z[0], "global", other), ZKE_BADARGUMENTS);
  ck_rc(zke_mount(&z[0], "/global", other), ZKE_NODEEXISTS);
  ck_rc(zke_mount(&z[0], "/global", z[1]), ZKE_BADARGUMENTS);
  ck_rc(zke_mount(&z[0], NULL, other), ZKE_BADARGUMENTS);
  ck_rc(zke_mount(&z[0], "/global", NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_mount(NULL, "/global", other), ZKE_BADARGUMENTS);
  ck_rc(zke_mount(&other, "/", other), ZKE_BADARGUMENTS);
  ck_rc(zke_exists(z[0], "/x", test_ignore, NULL, NULL), ZKE_NONODE);
  make(z[0], "/global/inner");
  ck_rc(zke_mount(&z[0], "/global/inner", other), ZKE_MISUSE);
  ck_ok(zke_mount(&z[1], "/global/inner", other));
  make(z[1], "/global/inner/x");
  ck_ok(zke_exists(part, "/x", NULL, NULL, NULL));
  zke *handles[2] = {z[0], z[0]};
  ck_rc(zke_order(handles, 2), ZKE_BADARGUMENTS);
  ck_rc(zke_order(NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(zke_order(handles, 0), ZKE_BADARGUMENTS);
}

/* zke_order() that fails leaves the handles as they were. */
TEST(a_failed_order_changes_nothing) {
  zke *file = test_open(":memory:"), *dead = test_session(file, NULL);
  zke *handles[2] = {test_session(file, NULL), dead};
  zke *before = handles[0];
  ck_ok(zke_expire(file, zke_session_id(dead)));
  zke_sync(dead, "/");
  ck_rc(zke_order(handles, 2), ZKE_INVALIDSTATE);
  ck_assert_ptr_eq(handles[0], before);
  ck_assert_ptr_eq(handles[1], dead);
}

/* Without descriptors for its pipe no handle is made, and the code is not that
 * of missing memory. */
TEST(no_descriptors) {
  struct rlimit before, none;
  zke *file = test_open(":memory:"), *handle = test_session(file, NULL);
  zke *plain = handle, *further;
  ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
  none = before;
  none.rlim_cur = 0;
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
  ck_rc(zke_order(&handle, 1), ZKE_SYSTEMERROR);
  ck_says("no descriptors");
  ck_assert_ptr_eq(handle, plain);
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
  ck_ok(zke_order(&handle, 1));
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
  ck_rc(zke_open_session(handle, NULL, &further), ZKE_SYSTEMERROR);
  ck_says("no descriptors");
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* A watcher of a composed handle cannot change its order. */
static void order_here(zke *session, int type, int state, const char *path,
                       void *context) {
  (void)type, (void)state, (void)path;
  zke *handles[2] = {session, z[1]};
  *(int *)context = zke_order(handles, 2);
}

/* zke_order() in a watcher of one of its handles is refused. */
TEST(no_order_in_a_watcher) {
  int rc = 0;
  open_mounted();
  ck_rc(zke_exists(z[0], "/n", order_here, &rc, NULL), ZKE_NONODE);
  make(base, "/n");
  ck_ok(zke_dispatch(z[0], NULL));
  ck_assert_int_eq(rc, ZKE_MISUSE);
}

/* The descriptor tells of a part that is mounted after it was asked for. */
TEST(a_mount_after_the_descriptor) {
  test_events events = {0};
  struct pollfd poller = {.events = POLLIN};
  open_mounted();
  make(z[0], "/more");
  ck_ok(zke_fd(z[0], &poller.fd));
  ck_ok(zke_mount(&z[0], "/more", test_session(part, NULL)));
  ck_ok(zke_dispatch(z[0], NULL));
  ck_rc(zke_exists(z[0], "/more/n", test_record, &events, NULL), ZKE_NONODE);
  make(part, "/n");
  ck_assert_int_eq(poll(&poller, 1, 10000), 1);
  test_expect(z[0], &events, "CREATED /more/n");
}

/* Without its own session the base has no number to show for other sessions. */
TEST(a_base_without_a_session) {
  zke_options options = ZKE_INIT(zke_options);
  zke *writer = test_open(test_path("base.db")), *reader = NULL;
  make(writer, "/m");
  options.flags = ZKE_OPEN_READONLY;
  ck_ok(zke_open(test_path("base.db"), &options, &reader));
  part = test_open(":memory:");
  zke *other = test_session(part, NULL);
  ck_rc(zke_mount(&reader, "/m", other), ZKE_READONLY);
  ck_ok(zke_order(&reader, 1));
  ck_rc(zke_mount(&reader, "/m", other), ZKE_READONLY);
  ck_ok(zke_exists(reader, "/m", NULL, NULL, NULL));
}

/* A mounted read-only file has no events, and does not prevent waiting for the
 * base's. */
TEST_LOOP(a_read_only_part, 0, 2) {
  zke_options options = ZKE_INIT(zke_options);
  zke *writer = test_open(test_path("part.db")), *reader = NULL;
  test_events events = {0}, none = {0};
  struct pollfd poller = {.events = POLLIN};
  int pending;
  int64_t deadline;
  options.flags = ZKE_OPEN_READONLY;
  make(writer, "/n");
  base = test_open(":memory:");
  make(base, "/ro");
  z[0] = test_session(base, NULL);
  ck_ok(zke_open(test_path("part.db"), &options, &reader));
  if (_i) ck_ok(zke_order(&z[0], 1));
  if (_i) ck_ok(zke_fd(z[0], &poller.fd));
  ck_ok(zke_mount(&z[0], "/ro", reader));
  ck_ok(zke_exists(z[0], "/ro/n", NULL, NULL, NULL));
  ck_rc(zke_exists(z[0], "/ro/n", test_record, &none, NULL), ZKE_READONLY);
  ck_ok(zke_forget(z[0], test_record, &none));
  ck_ok(zke_fd(z[0], &poller.fd));
  ck_rc(zke_exists(z[0], "/n", test_record, &events, NULL), ZKE_NONODE);
  ck_ok(zke_next_deadline(z[0], &deadline));
  make(base, "/n");
  ck_assert_int_eq(poll(&poller, 1, 10000), 1);
  ck_ok(zke_pending(z[0], &pending));
  ck_assert_int_eq(pending, 1);
  ck_ok(zke_wait(z[0], soon(z[0])));
  test_expect(z[0], &events, "CREATED /n");
  ck_assert_int_eq(none.count, 0);
}

/* A failed order also keeps the handles' default watchers. */
TEST(a_failed_order_keeps_watchers) {
  zke *file = test_open(":memory:"), *dead = test_session(file, NULL);
  zke *handles[2] = {test_session(file, NULL), dead};
  test_events events = {0};
  ck_ok(zke_set_watcher(handles[0], test_record, &events));
  ck_ok(zke_expire(file, zke_session_id(dead)));
  zke_sync(dead, "/");
  ck_rc(zke_order(handles, 2), ZKE_INVALIDSTATE);
  make(file, "/m");
  ck_rc(zke_mount(&handles[0], "/m", dead), ZKE_INVALIDSTATE);
  ck_ok(zke_expire(file, zke_session_id(handles[0])));
  test_expect(handles[0], &events, "SESSION -112");
}

/* Mounts and orders refuse a composed handle whose session has ended. */
TEST(an_ended_order_takes_nobody) {
  zke *handles[2], *other;
  open_mounted();
  handles[0] = handles[1] = test_session(base, NULL);
  ck_ok(zke_order(handles, 1));
  ck_ok(zke_expire(base, zke_session_id(handles[0])));
  ck_assert_int_lt(zke_exists(handles[0], "/", NULL, NULL, NULL), 0);
  handles[1] = z[0];
  ck_rc(zke_order(handles, 2), ZKE_INVALIDSTATE);
  other = test_session(part, NULL);
  ck_assert_int_lt(zke_mount(&handles[0], "/global", other), 0);
  ck_ok(zke_exists(z[0], "/", NULL, NULL, NULL));
}

/* A default watcher that was replaced and forgotten leaves no memory. */
TEST(replaced_watchers_leave_nothing) {
  test_heap heap = {0};
  test_events events[2] = {{0}, {0}};
  zke_options options = ZKE_INIT(zke_options);
  options.allocator = (zke_allocator){test_heap_resize, &heap};
  ck_ok(zke_open(":memory:", &options, &base));
  zke *alone = open_alone();
  for (int i = 0; i < 2; i++)
    ck_ok(zke_set_watcher(alone, test_record, &events[i]));
  ck_ok(zke_forget(alone, test_record, &events[0]));
  ck_ok(zke_close(alone));
  ck_ok(zke_close(base));
  ck_assert_int_eq(heap.live, 0);
}

/* A forked child's copy refuses every call. */
static int use_in_child(void *arg) {
  int fd;
  (void)arg;
  if (zke_exists(z[0], "/", NULL, NULL, NULL) != ZKE_FORKED) return 1;
  if (zke_dispatch(z[0], NULL) != ZKE_FORKED) return 2;
  if (zke_wait(z[0], 0) != ZKE_FORKED) return 3;
  if (zke_forget(z[0], test_ignore, NULL) != ZKE_FORKED) return 4;
  if (zke_fd(z[0], &fd) != ZKE_FORKED) return 5;
  if (zke_state(z[0]) != ZKE_STATE_CLOSED) return 6;
  if (zke_order(z, 1) != ZKE_FORKED) return 8;
  return zke_close(z[0]) == ZKE_FORKED ? 0 : 7;
}

/* A forked child's copy refuses every call, and the parent's handle still
 * works. */
TEST(a_childs_copy_refuses) {
  open_mounted();
  ck_assert_int_eq(test_child_end(test_child(use_in_child, NULL)), 0);
  make(z[0], "/global/still");
}

/* A watcher that forks: the child returns into the dispatch, and leaves it. */
static pid_t forked = -1;

static void fork_here(zke *session, int type, int state, const char *path,
                      void *context) {
  (void)session, (void)type, (void)state, (void)path, (void)context;
  forked = fork();
}

/* A watcher may fork: the child's wait returns ZKE_FORKED, and the parent's
 * wait is not affected. */
TEST(a_watcher_forks) {
  int status;
  open_mounted();
  ck_rc(zke_exists(z[0], "/global/n", fork_here, NULL, NULL), ZKE_NONODE);
  make(part, "/n");
  int rc = zke_wait(z[0], soon(z[0]));
  if (forked == 0) _exit(rc == ZKE_FORKED ? 0 : 1);
  ck_ok(rc);
  ck_assert_int_eq(waitpid(forked, &status, 0), forked);
  ck_assert_int_eq(status, 0);
}

/* zke_close() in a watcher is refused; a waiting thread is told. */
static void close_here(zke *session, int type, int state, const char *path,
                       void *context) {
  (void)type, (void)state, (void)path;
  *(int *)context = zke_close(session);
}

static int inside, found;

static void wait_here(zke *session, int type, int state, const char *path,
                      void *context) {
  (void)type, (void)state, (void)path, (void)context;
  __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST);
  found = zke_wait(session, soon(session));
}

/* Closing a handle in its own watcher is refused.  A watcher that waits while
 * another thread closes the handle gets ZKE_CLOSING. */
TEST(closing_is_refused_in_a_watcher_and_ends_its_wait) {
  int rc = 0;
  pthread_t thread;
  open_mounted();
  ck_rc(zke_exists(z[0], "/global/n", close_here, &rc, NULL), ZKE_NONODE);
  make(part, "/n");
  ck_ok(zke_dispatch(z[0], NULL));
  ck_assert_int_eq(rc, ZKE_MISUSE);
  ck_rc(zke_exists(z[0], "/global/m", wait_here, NULL, NULL), ZKE_NONODE);
  make(part, "/m");
  int64_t turn = zke_turn(z[0]);
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_once, &turn), 0);
  ck_until(__atomic_load_n(&inside, __ATOMIC_SEQ_CST), 10000);
  ck_ok(zke_close(z[0]));
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(found, ZKE_CLOSING);
  z[0] = test_session(base, NULL);
}

/* A deadline of zke_limit() holds on every part. */
TEST(a_limit_holds_on_all_parts) {
  open_mounted();
  ck_assert(zke_limit(z[0], 5) == ZKE_FOREVER);
  ck_assert(zke_limit(z[0], 6) == 5);
  ck_assert(zke_limit(z[1], ZKE_FOREVER) == ZKE_FOREVER);
  ck_ok(zke_exists(z[0], "/global", NULL, NULL, NULL));
  ck_assert(zke_limit(z[0], ZKE_FOREVER) == ZKE_FOREVER);
}

/* An allocator that keeps the last released block for the next of its size. */
typedef struct last_block {
  size_t size; /* of the block after it */
  _Alignas(16) char data[];
} last_block;

static void *resize_last(void *context, void *block, size_t size) {
  last_block **kept = context, *was = NULL, *now = NULL;
  if (block) was = (last_block *)(void *)((char *)block - sizeof *was);
  if (!was && *kept && (*kept)->size == size) {
    now = *kept;
    *kept = NULL;
  } else if (size) {
    now = realloc(was, sizeof *now + size);
  } else {
    free(*kept);
    *kept = was;
  }
  if (!now) return NULL;
  now->size = size;
  return now->data;
}

/* zke_limit() of a closed handle does not count for the next handle, which gets
 * the same address. */
TEST(a_limit_ends_with_its_handle) {
  last_block *kept = NULL;
  zke_options options = ZKE_INIT(zke_options);
  options.allocator = (zke_allocator){resize_last, &kept};
  ck_ok(zke_open(":memory:", &options, &base));
  for (int i = 0; i < 2; i++) ck_ok(zke_open_session(base, &options, &z[i]));
  ck_ok(zke_order(&z[0], 1));
  uintptr_t first = (uintptr_t)z[0];
  ck_assert(zke_limit(z[0], 1) == ZKE_FOREVER);
  ck_ok(zke_close(z[0]));
  ck_ok(zke_order(&z[1], 1));
  ck_assert_uint_eq((uintptr_t)z[1], first);
  ck_assert(zke_limit(z[1], ZKE_FOREVER) == ZKE_FOREVER);
  ck_ok(zke_close(z[1]));
  ck_ok(zke_close(base));
  free(kept);
}

/* A sleep keeps each part's lease, by the test's clock. */
TEST_LOOP(a_sleep_keeps_all_leases, 0, 2) {
  static seam s;
  zke_options plain = {.size = sizeof plain, .os = seam_os(&s)}, leased = plain;
  leased.lease_ms = 1000;
  zke *other = NULL;
  seam_stand();
  ck_ok(zke_open(":memory:", &plain, &base));
  ck_ok(zke_open(":memory:", &plain, &part));
  make(base, "/global");
  ck_ok(zke_open_session(base, _i ? &leased : &plain, &z[0]));
  ck_ok(zke_open_session(part, _i ? &plain : &leased, &other));
  ck_ok(zke_mount(&z[0], "/global", other));
  ck_ok(zke_create(z[0], "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_create(z[0], "/global/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                   NULL));
  int64_t until = zke_now(z[0]) + 5000;
  ck_ok(zke_sleep(z[0], until));
  ck_assert_int_eq(zke_now(z[0]), until);
  ck_ok(zke_dispatch(base, NULL)); /* ends those without a recent stamp */
  ck_ok(zke_dispatch(part, NULL));
  ck_ok(zke_exists(base, "/e", NULL, NULL, NULL));
  ck_ok(zke_exists(part, "/e", NULL, NULL, NULL));
  ck_ok(zke_exists(z[0], "/global/e", NULL, NULL, NULL));
}

/* ---- recipes, unchanged ---- */

/* The lock: one holds, the other waits, and gets it. */
TEST(a_lock_below_a_mount) {
  zke_lock *locks[2];
  zke_party_list *parties;
  open_mounted();
  for (int i = 0; i < 2; i++)
    ck_ok(zke_lock_new(z[i], "/global/lock", NULL, &locks[i]));
  ck_ok(zke_lock_acquire(locks[0], soon(z[0])));
  ck_rc(zke_lock_try(locks[1]), ZKE_HELD);
  ck_ok(zke_lock_start(locks[1]));
  ck_ok(zke_lock_parties(z[0], "/global/lock", &parties));
  ck_assert_int_eq(parties->count, 2);
  ck_assert(parties->data[0].session == zke_session_id(z[0]));
  zke_free(parties);
  ck_ok(zke_lock_release(locks[0]));
  ck_ok(zke_dispatch(z[1], NULL));
  ck_assert_int_eq(zke_lock_state(locks[1]), ZKE_LOCK_HELD);
  ck_assert_int_eq(entries(part, "/lock"), 1);
  for (int i = 0; i < 2; i++) zke_lock_free(locks[i]);
}

/* The queue: the item of one is taken by the other, once. */
TEST(a_queue_below_a_mount) {
  zke_queue *queues[2];
  zke_queue_item *item;
  open_mounted();
  for (int i = 0; i < 2; i++)
    ck_ok(zke_queue_new(z[i], "/global/jobs", NULL, &queues[i]));
  ck_ok(zke_queue_put(queues[0], "work", 4, NULL, soon(z[0])));
  ck_ok(zke_queue_claim(queues[1], soon(z[1]), &item));
  ck_assert_str_eq(item->data, "work");
  ck_ok(zke_queue_ack(queues[1], item, NULL, 0, NULL));
  zke_free(item);
  for (int i = 0; i < 2; i++) zke_queue_free(queues[i]);
}

/* The election: the next one leads when the leader's session ends. */
TEST(an_election_below_a_mount) {
  zke_election *elections[2];
  open_mounted();
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_election_new(z[i], "/global/leader", NULL, &elections[i]));
    ck_ok(zke_election_start(elections[i]));
  }
  ck_assert_int_eq(zke_election_state(elections[0]), ZKE_ELECTION_ELECTED);
  ck_ok(zke_expire(base, zke_session_id(z[0])));
  dispatch_on(z[0]);
  dispatch_on(z[1]);
  ck_assert_int_eq(zke_election_state(elections[1]), ZKE_ELECTION_ELECTED);
  for (int i = 0; i < 2; i++) zke_election_free(elections[i]);
}

/* Two-phase commit: the sites vote on two handles. */
TEST(a_two_phase_commit_below_a_mount) {
  static const char *const sites[] = {"a", "b"};
  zke_two_phase *coordinator, *site[2];
  int outcome = 0;
  open_mounted();
  make(part, "/tx");
  ck_ok(zke_two_phase_begin(z[0], "/global/tx", "one", "pay", 3, sites, 2, NULL,
                            &coordinator));
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_two_phase_open(z[i], "/global/tx", "one", sites[i], NULL,
                             &site[i]));
    ck_ok(zke_two_phase_vote(site[i], ZKE_TWO_PHASE_COMMIT));
  }
  ck_ok(zke_two_phase_wait(coordinator, soon(z[0]), &outcome));
  ck_assert_int_eq(outcome, ZKE_TWO_PHASE_COMMIT);
  zke_two_phase_free(coordinator);
  for (int i = 0; i < 2; i++) zke_two_phase_free(site[i]);
}

/* The orders of handles that were composed before become one: then one end ends
 * all. */
TEST(orders_become_one) {
  zke *handles[3];
  open_mounted();
  handles[0] = z[0];
  handles[1] = z[1];
  handles[2] = test_session(base, NULL);
  ck_ok(zke_order(handles, 3));
  ck_assert_ptr_eq(handles[0], z[0]);
  make(handles[2], "/x");
  ck_ok(zke_exists(handles[1], "/x", NULL, NULL, NULL));
  ck_ok(zke_expire(base, zke_session_id(handles[2])));
  dispatch_on(handles[2]);
  ck_rc(zke_exists(z[0], "/global", NULL, NULL, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_eq(zke_state(z[1]), ZKE_STATE_EXPIRED);
}
