/* test_zxid.c - the zxids of calls and of events, and their common order
 *
 * A server builds its replies with these: zke_zxid(), zke_event_zxid() and
 * zke_dispatch_to().
 */
#include "test/engine/calls.h"

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BY_A_SESSION, BY_A_STORE, WAYS };

static zke *a, *b;
static test_events seen;

static void begin(int way) {
  zke_options options = ZKE_INIT(zke_options);
  zke_zxid(); /* now this thread's zxids are kept */
  const char *name = way == BY_A_STORE ? test_path("zxid.db") : ":memory:";
  options.durability = ZKE_DURABLE_NONE;
  ck_ok(zke_open(name, &options, &a));
  if (way == BY_A_STORE)
    ck_ok(zke_open(name, &options, &b));
  else
    ck_ok(zke_open_session(a, &options, &b));
}

static int64_t make_zxid(zke *z, const char *path) {
  zke_stat stat;
  ck_ok(zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, &stat));
  ck_assert_int_eq(zke_zxid(), stat.czxid);
  return stat.czxid;
}

static int64_t set(zke *z, const char *path) {
  zke_stat stat;
  ck_ok(zke_set(z, path, "x", 1, -1, &stat));
  ck_assert_int_eq(zke_zxid(), stat.mzxid);
  return stat.mzxid;
}

static int64_t drop(zke *z, const char *path) {
  ck_ok(zke_delete(z, path, -1));
  return zke_zxid();
}

/* ---- calls ---- */

/* Each change has the next zxid, even one that returns no Stat. */
TEST_LOOP(each_change_has_its_own_zxid, 0, WAYS) {
  begin(_i);
  int64_t at = make_zxid(a, "/n");
  ck_assert_int_eq(make_zxid(b, "/m"), at + 1);
  ck_ok(zke_set_acl(a, "/n", -1, ZKE_READ_ACL, NULL));
  ck_assert_int_eq(zke_zxid(), at + 2);
  ck_assert_int_eq(set(b, "/m"), at + 3);
  ck_assert_int_eq(drop(a, "/n"), at + 4);
  ck_ok(zke_raise_sequence(a, "/m", 7, NULL));
  ck_assert_int_eq(zke_zxid(), at + 5);
  ck_ok(zke_create(a, "/e", NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_assert_int_eq(zke_zxid(), at + 6);
  ck_ok(zke_discard(a, "/e", ZKE_EPHEMERAL, 0));
  ck_assert_int_eq(zke_zxid(), at + 7);
  ck_ok(zke_discard(a, "/e", ZKE_EPHEMERAL, 0)); /* removes nothing */
  ck_assert_int_eq(zke_zxid(), at + 7);
}

/* The operations of a multi share one; an empty multi also has one. */
TEST_LOOP(a_multi_has_one_zxid, 0, WAYS) {
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  begin(_i);
  int64_t at = make_zxid(a, "/n");
  zke_op_create(&ops[0], "/n/c", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_set(&ops[1], "/n", "", 0, -1);
  ck_ok(zke_multi(a, ops, 2, results));
  ck_assert_int_eq(zke_zxid(), at + 1);
  ck_assert_int_eq(results[0].stat.czxid, at + 1);
  ck_assert_int_eq(results[1].stat.mzxid, at + 1);
  zke_results_clear(results, 2);
  ck_ok(zke_multi(b, NULL, 0, NULL));
  ck_assert_int_eq(zke_zxid(), at + 2);
}

/* A refused change has the zxid of the state it saw. */
TEST_LOOP(a_refused_change_says_the_state, 0, WAYS) {
  zke_op ops[2];
  begin(_i);
  int64_t at = make_zxid(a, "/n");
  ck_rc(create(b, "/n", ZKE_PERSISTENT), ZKE_NODEEXISTS);
  ck_assert_int_eq(zke_zxid(), at);
  ck_rc(zke_set(b, "/n", "", 0, 9, NULL), ZKE_BADVERSION);
  ck_assert_int_eq(zke_zxid(), at);
  zke_op_set(&ops[0], "/n", "", 0, -1);
  zke_op_delete(&ops[1], "/none", -1);
  ck_rc(zke_multi(b, ops, 2, NULL), ZKE_NONODE);
  ck_assert_int_eq(zke_zxid(), at);
  ck_assert_int_eq(set(b, "/n"), at + 1);
}

/* Each kind of read, after a change by the other session, and again without
 * one. */
TEST_LOOP(a_read_says_the_state_that_it_saw, 0, WAYS) {
  begin(_i);
  make_zxid(a, "/n");
  for (int kind = 0; kind < 9; kind++) {
    set(b, "/n");
    for (int again = 0; again < 2; again++) {
      zke_op op;
      zke_op_result result = {0};
      zke_op_get(&op, "/n");
      make_zxid(b, "/noise"); /* the thread has another zxid now */
      int64_t at = drop(b, "/noise");
      if (kind == 0) ck_ok(zke_get(a, "/n", NULL, NULL, NULL, NULL, NULL));
      if (kind == 1) ck_ok(see(a, "/n"));
      if (kind == 2) ck_ok(zke_children(a, "/n", NULL, NULL, NULL, NULL));
      if (kind == 3) ck_ok(zke_count(a, "/n", NULL));
      if (kind == 4) ck_ok(zke_ephemerals(a, 0, NULL, NULL));
      if (kind == 5) ck_ok(zke_get_acl(a, "/n", NULL, NULL));
      if (kind == 6) ck_ok(zke_multi_read(a, &op, 1, &result));
      if (kind == 7) ck_rc(see(a, "/none"), ZKE_NONODE);
      if (kind == 8)
        ck_ok(zke_get(a, "/n", test_ignore, NULL, NULL, NULL, NULL));
      ck_assert_msg(zke_zxid() == at, "read %d: %lld, not %lld", kind,
                    (long long)zke_zxid(), (long long)at);
      zke_results_clear(&result, 1);
    }
  }
}

/* 0: the call saw no state, or it is unknown which.  Calls that only use the
 * handle leave the zxid unchanged. */
TEST_LOOP(a_call_that_saw_no_state_says_0, 0, WAYS) {
  begin(_i);
  int64_t at = make_zxid(a, "/n");
  zke_state(a);
  ck_ok(zke_add_auth(a, "digest", "u:p", 3));
  ck_ok(zke_dispatch(a, NULL));
  ck_assert_int_eq(zke_zxid(), at);
  ck_rc(zke_get(a, "n", NULL, NULL, NULL, NULL, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_zxid(), 0);
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(zke_delete(a, "/n", -1), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(zke_zxid(), 0);
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_READ, 0));
  ck_rc(see(a, "/n"), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(zke_zxid(), 0);
}

/* A call on the tree that is refused for another argument than its path. */
static int refused(int which) {
  zke_op op;
  zke_op_get(&op, "/n");
  switch (which) {
    case 0:
      return create(a, "/x", 99);
    case 1:
      return zke_create(a, "/x", "", -5, ZKE_OPEN_ACL, 0, NULL, NULL);
    case 2:
      return zke_create_ttl(a, "/x", "", 0, ZKE_OPEN_ACL, 0, 1, NULL, NULL);
    case 3:
      return zke_set(a, "/n", NULL, 5, -1, NULL);
    case 4:
      return zke_raise_sequence(a, "/n", -1, NULL);
    case 5:
      return zke_multi(a, NULL, -1, NULL);
    case 6:
      return zke_multi_read(a, &op, 1, NULL);
    case 7:
      return zke_batch(a, NULL, NULL);
    case 8:
      return zke_add_watch(a, "/n", ZKE_WATCH_PERSISTENT, NULL, NULL);
    case 9:
      return zke_set_watch(a, "/n", ZKE_WATCH_DATA, 0, NULL, NULL);
    case 10:
      return zke_set(a, "/n", "", -2, -1, NULL);
    case 11:
      return zke_history_keep(a, -1, 0);
    case 12:
      return zke_discard(a, "/n", ZKE_PERSISTENT, 0);
    case 13:
      return zke_get(NULL, "/n", NULL, NULL, NULL, NULL, NULL);
    default:
      return 1;
  }
}

/* A call that is refused for an argument before it takes the lock also sets 0:
 * the previous call's zxid is not its own. */
TEST(an_argument_that_is_refused_leaves_0) {
  begin(BY_A_SESSION);
  make_zxid(a, "/n");
  for (int i = 0, rc; (rc = refused(i)) != 1; i++) {
    ck_rc(rc, ZKE_BADARGUMENTS);
    ck_assert_msg(zke_zxid() == 0, "call %d left %lld", i,
                  (long long)zke_zxid());
    set(a, "/n");
  }
}

/* A batch whose function stays inside until it is told to return. */
static sem_t batch_inside, batch_leave;

static int stay(zke *z, void *context) {
  (void)z, (void)context;
  sem_post(&batch_inside);
  sem_wait(&batch_leave);
  return ZKE_OK;
}

static void *batch_thread(void *z) {
  ck_ok(zke_batch(z, stay, NULL));
  return NULL;
}

/* 0 is set if another thread's call has kept the lock for too long. */
TEST(a_lock_that_was_not_had_leaves_0) {
  begin(BY_A_SESSION);
  make_zxid(a, "/n");
  sem_init(&batch_inside, 0, 0);
  sem_init(&batch_leave, 0, 0);
  pthread_t thread = begin_thread(batch_thread, b);
  sem_wait(&batch_inside);
  zke_limit(a, zke_now(a) + 1);
  ck_rc(zke_set(a, "/n", "", 0, -1, NULL), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(zke_zxid(), 0);
  zke_limit(a, ZKE_FOREVER);
  sem_post(&batch_leave);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  set(a, "/n");
}

/* A thread that has never asked pays for no lookup, and gets 0. */
static void *no_number(void *arg) {
  int64_t *out = arg;
  ck_ok(zke_set(b, "/", "", 0, -1, NULL)); /* a state that no call has seen */
  ck_ok(zke_get(b, "/n", NULL, NULL, NULL, NULL, NULL));
  out[0] = zke_zxid();
  ck_ok(zke_get(b, "/n", NULL, NULL, NULL, NULL, NULL));
  out[2] = zke_zxid();
  set(b, "/n");
  out[1] = zke_zxid();
  return NULL;
}

/* Like zke_errmsg(), it belongs to the thread. */
TEST_LOOP(each_thread_has_its_own_zxid, 0, WAYS) {
  int64_t other[3] = {-1, -1, -1};
  begin(_i);
  int64_t at = make_zxid(a, "/n");
  pthread_t thread = begin_thread(no_number, other);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(other[0], 0);
  ck_assert_int_eq(other[2], at + 1);
  ck_assert_int_eq(other[1], at + 2);
  ck_assert_int_eq(zke_zxid(), at);
}

/* ---- events ---- */

typedef struct zxids {
  int count;
  int64_t at[8];
} zxids;

static void note_zxid(zke *z, int type, int state, const char *path,
                      void *context) {
  zxids *list = context;
  (void)type, (void)state, (void)path;
  ck_assert_int_lt(list->count, 8);
  list->at[list->count++] = zke_event_zxid(z);
}

/* An event has the zxid of its change, whatever happened since; one without a
 * change has 0, and so has a call outside of watchers. */
TEST_LOOP(an_event_says_the_zxid_of_its_change, 0, WAYS) {
  zxids list = {0};
  begin(_i);
  ck_assert_int_eq(zke_event_zxid(NULL), 0);
  ck_ok(zke_add_watch(a, "/n", ZKE_WATCH_PERSISTENT, note_zxid, &list));
  int64_t at = make_zxid(b, "/n");
  set(b, "/n");
  set(b, "/");
  drop(b, "/n");
  ck_ok(zke_call_at(a, 0, note_zxid, &list));
  ck_ok(zke_dispatch(a, NULL));
  ck_assert_int_eq(list.count, 4);
  ck_assert_int_eq(list.at[0], at);
  ck_assert_int_eq(list.at[1], at + 1);
  ck_assert_int_eq(list.at[2], at + 3);
  ck_assert_int_eq(list.at[3], 0); /* the alarm */
  ck_assert_int_eq(zke_event_zxid(a), 0);
  ck_ok(zke_expire(b, zke_session_id(a)));
  ck_ok(zke_dispatch(a, NULL));
  ck_assert_int_eq(list.count, 5);
  ck_assert_int_eq(list.at[4], 0);
}

/* A watcher that dispatches inside sees each event's own zxid, and afterwards
 * its own again. */
static void nested(zke *z, int type, int state, const char *path,
                   void *context) {
  zxids *list = context;
  int64_t mine = zke_event_zxid(z);
  note_zxid(z, type, state, path, context);
  if (list->count == 1) ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(zke_event_zxid(z), mine);
  ck_assert_int_eq(zke_event_zxid(b), 0);
}

/* A dispatch inside of a watcher does not mix up the zxids of the two
 * events. */
TEST_LOOP(nested_events_have_their_own_zxids, 0, WAYS) {
  zxids list = {0};
  begin(_i);
  ck_ok(zke_add_watch(a, "/n", ZKE_WATCH_PERSISTENT, nested, &list));
  int64_t at = make_zxid(b, "/n");
  set(b, "/n");
  ck_ok(zke_dispatch(a, NULL));
  ck_assert_int_eq(list.count, 2);
  ck_assert_int_eq(list.at[0], at);
  ck_assert_int_eq(list.at[1], at + 1);
}

/* ---- dispatch up to a zxid ---- */

static void expect_to(int64_t zxid, const char *expected, int more) {
  int count = -1, left = -1;
  test_events none = seen;
  none.count = 0;
  ck_ok(zke_dispatch_to(a, zxid, &count, &left));
  ck_assert_int_eq(count, seen.count);
  ck_assert_int_eq(left, more);
  if (!*expected) ck_assert_int_eq(seen.count, 0);
  if (!*expected) return;
  ck_assert_int_eq(seen.count, 1);
  ck_assert_str_eq(seen.at[0].path, expected);
  seen = none;
}

/* Later events wait, the descriptor is readable for them, and zke_dispatch()
 * delivers them. */
TEST_LOOP(a_dispatch_stops_at_the_zxid, 0, WAYS) {
  struct pollfd fd = {.events = POLLIN};
  begin(_i);
  ck_ok(zke_fd(a, &fd.fd));
  ck_ok(zke_add_watch(a, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      &seen));
  int64_t at = make_zxid(b, "/1");
  make_zxid(b, "/2");
  make_zxid(b, "/3");
  expect_to(at - 1, "", 1);
  expect_to(at, "/1", 1);
  expect_to(at, "", 1);
  ck_assert_int_eq(poll(&fd, 1, 0), 1);
  expect_to(at + 1, "/2", 1);
  ck_assert_int_eq(poll(&fd, 1, 0), 1);
  test_expect(a, &seen, "CREATED /3");
  expect_to(INT64_MAX, "", 0);
  make_zxid(b, "/4");
  expect_to(at + 3, "/4", 0);
}

/* zke_dispatch() stops after about a thousand events; this one does not, since
 * its caller relies on having received all. */
TEST_LOOP(a_dispatch_to_a_zxid_tells_all_up_to_it, 0, WAYS) {
  enum { MANY = 3000 };
  int told = 0, count, more;
  int64_t at = 0;
  begin(_i);
  make_as(b, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_add_watch(a, "/e", ZKE_WATCH_PERSISTENT, count_call, &told));
  for (int i = 0; i < MANY; i++) at = set(b, "/e");
  set(b, "/e");
  ck_ok(zke_dispatch_to(a, at, &count, &more));
  ck_assert_int_eq(told, MANY);
  ck_assert_int_eq(count, MANY);
  ck_assert_int_eq(more, 1);
}

/* P3: an overflow replaced events of changes up to the zxid, so it is
 * delivered, though the change that caused it is a later one. */
TEST_LOOP(a_dispatch_to_a_zxid_tells_an_overflow, 0, WAYS) {
  begin(_i);
  zke *few;
  zke_options o = {.size = sizeof o, .event_limit = 2};
  ck_ok(_i == BY_A_STORE ? zke_open(test_path("zxid.db"), &o, &few)
                         : zke_open_session(a, &o, &few));
  ck_ok(zke_add_watch(few, "/n", ZKE_WATCH_PERSISTENT, test_record, &seen));
  int64_t at = make_zxid(b, "/n");
  for (int i = 0; i < 2; i++) set(b, "/n");
  ck_ok(zke_dispatch_to(few, at, NULL, NULL));
  ck_assert_int_eq(seen.count, 1);
  ck_assert_int_eq(seen.at[0].type, ZKE_EVENT_OVERFLOW);
}

/* A session's end is no change: it is delivered, and nothing after it. */
TEST_LOOP(a_dispatch_to_a_zxid_tells_the_end, 0, WAYS) {
  begin(_i);
  ck_ok(zke_add_watch(a, "/n", ZKE_WATCH_PERSISTENT, test_record, &seen));
  make_zxid(b, "/n");
  ck_ok(zke_expire(b, zke_session_id(a)));
  int more = -1;
  ck_ok(zke_dispatch_to(a, 0, NULL, &more));
  ck_assert_int_eq(more, 0);
  ck_assert_int_eq(seen.count, 1);
  ck_assert_int_eq(seen.at[0].state, ZKE_STATE_EXPIRED);
}

/* If another thread dispatches, nothing is known, and the result says so. */
static void dispatch_elsewhere(zke *z, int type, int state, const char *path,
                               void *context);

static void *dispatch_thread(void *arg) {
  int *more = arg;
  ck_ok(zke_dispatch_to(a, INT64_MAX - 1, NULL, more));
  return NULL;
}

static void dispatch_elsewhere(zke *z, int type, int state, const char *path,
                               void *context) {
  (void)z, (void)type, (void)state, (void)path;
  pthread_t thread = begin_thread(dispatch_thread, context);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
}

/* A dispatch that leaves an event to another thread, which is calling watchers,
 * reports that there are more. */
TEST_LOOP(a_dispatch_beside_another_says_more, 0, WAYS) {
  int more = -1;
  begin(_i);
  ck_rc(zke_exists(a, "/n", dispatch_elsewhere, &more, NULL), ZKE_NONODE);
  make_zxid(b, "/n");
  ck_ok(zke_dispatch(a, NULL));
  ck_assert_int_eq(more, 1);
}

/* ---- the order of replies and events ----
 *
 * Session a serves one client, as a server would: it makes a call, takes its
 * zxid, delivers the events up to it, and then sends the reply.  Session b
 * changes the tree at every point in between.  What the client would see is
 * compared with the list of all changes. */

enum { PATHS = 6, CHANGES = 60000, STEPS = 4000 };

static const char *const paths[PATHS] = {"/0",   "/1",   "/0/0",
                                         "/0/1", "/1/0", "/1/1"};

static uint64_t seed_, random_;

static int draw(int n) {
  random_ =
      random_ * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((random_ >> 33) % (uint64_t)n);
}

/* All changes in order.  zxids grow by more than one only if ZooKeeper refuses
 * a multi, so here they are dense from `first` on. */
static struct {
  int64_t zxid;
  int type, path;
} changes[CHANGES];
static int change_count;

/* The client's state: one-shot watches by table (0 data, 1 children) with the
 * zxid of the reply that set them (-1: none), and the last reply's zxid. */
static int64_t armed[2][PATHS], replied;
static int told_events;

#define expect_order(condition, ...)                             \
  do {                                                           \
    if (!(condition)) {                                          \
      fprintf(stderr, "SEED=%llu: ", (unsigned long long)seed_); \
      ck_abort_msg(__VA_ARGS__);                                 \
    }                                                            \
  } while (0)

static int path_number(const char *path) {
  for (int i = 0; i < PATHS; i++)
    if (strcmp(path, paths[i]) == 0) return i;
  return -1;
}

/* Does a change fire a watch of the table on the path? */
static bool fires(int type, int changed, int table, int watched) {
  if (changed == watched) return table == 0 || type == ZKE_EVENT_DELETED;
  size_t len = strlen(paths[watched]);
  bool child = strncmp(paths[changed], paths[watched], len) == 0 &&
               paths[changed][len] == '/';
  return table == 1 && child && type != ZKE_EVENT_CHANGED;
}

/* The first change after a zxid that fires a watch; INT64_MAX: none yet. */
static int64_t first_firing(int table, int path, int64_t after) {
  for (int i = change_count; i-- > 0 && changes[i].zxid > after;) {
    bool last = i == 0 || changes[i - 1].zxid <= after;
    if (!last) continue;
    for (; i < change_count; i++)
      if (fires(changes[i].type, changes[i].path, table, path))
        return changes[i].zxid;
    break;
  }
  return INT64_MAX;
}

/* The client receives an event. */
static void client_event(zke *z, int type, int state, const char *path,
                         void *context) {
  int n = path_number(path);
  int64_t zxid = zke_event_zxid(z);
  bool expected = false;
  (void)state, (void)context;
  expect_order(n >= 0, "an event on %s", path);
  expect_order(zxid > replied, "late: %s by %lld after a reply of %lld", path,
               (long long)zxid, (long long)replied);
  for (int table = 0; table < 2; table++) {
    if (table == 0 ? type == ZKE_EVENT_CHILD
                   : type != ZKE_EVENT_CHILD && type != ZKE_EVENT_DELETED)
      continue;
    if (armed[table][n] < 0) continue;
    expect_order(first_firing(table, n, armed[table][n]) == zxid,
                 "%s by %lld is not what it waits for", path, (long long)zxid);
    expected = true;
    armed[table][n] = -1;
  }
  expect_order(expected, "%s by %lld before the reply that set its watch", path,
               (long long)zxid);
  told_events++;
}

/* The client receives a reply: every watch that the reply's state has fired
 * must have been delivered. */
static void client_reply(int64_t zxid) {
  expect_order(zxid >= replied, "a reply of %lld after one of %lld",
               (long long)zxid, (long long)replied);
  for (int table = 0; table < 2; table++) {
    for (int i = 0; i < PATHS; i++) {
      if (armed[table][i] < 0) continue;
      int64_t due = first_firing(table, i, armed[table][i]);
      expect_order(due > zxid, "lost: %s by %lld, reply of %lld", paths[i],
                   (long long)due, (long long)zxid);
    }
  }
  replied = zxid;
}

/* One random change by a session; true if it was made. */
static bool change_by(zke *z) {
  int path = draw(PATHS), type = 1 + draw(3), rc;
  const char *at = paths[path];
  if (change_count == CHANGES) return false;
  if (type == ZKE_EVENT_CREATED)
    rc = zke_create(z, at, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  else if (type == ZKE_EVENT_DELETED)
    rc = zke_delete(z, at, -1);
  else
    rc = zke_set(z, at, "", 0, -1, NULL);
  if (rc != ZKE_OK) return false;
  changes[change_count].zxid = zke_zxid();
  changes[change_count].type = type;
  changes[change_count++].path = path;
  return true;
}

static void disturb(void) {
  for (int n = draw(4); n > 0; n--) change_by(b);
}

/* A read by the client, with a watch or without. */
static void read_by_client(int64_t *zxid) {
  int path = draw(PATHS), kind = draw(3), rc;
  zke_watch_fn fn = draw(2) ? client_event : NULL;
  const char *at = paths[path];
  if (kind == 0)
    rc = zke_exists(a, at, fn, NULL, NULL);
  else if (kind == 1)
    rc = zke_get(a, at, fn, NULL, NULL, NULL, NULL);
  else
    rc = zke_children(a, at, fn, NULL, NULL, NULL);
  *zxid = zke_zxid();
  disturb();
  ck_ok(zke_dispatch_to(a, *zxid, NULL, NULL));
  client_reply(*zxid);
  bool set = fn && (rc == ZKE_OK || (kind == 0 && rc == ZKE_NONODE));
  int table = kind == 2;
  if (set && armed[table][path] < 0) armed[table][path] = *zxid;
}

/* A server's order holds, whatever happens between a call, its dispatch and the
 * next: no event is late, early or lost.  SEED=n replays a run. */
TEST_LOOP(replies_and_events_have_one_order, 0, WAYS) {
  int64_t zxid;
  begin(_i);
  seed_ = random_ = test_seed();
  memset(armed, -1, sizeof armed);
  for (int step = 0; step < STEPS; step++) {
    disturb();
    if (draw(4)) {
      read_by_client(&zxid);
      continue;
    }
    change_by(a);
    zxid = zke_zxid();
    disturb();
    ck_ok(zke_dispatch_to(a, zxid, NULL, NULL));
    client_reply(zxid);
  }
  ck_ok(zke_dispatch(a, NULL));
  client_reply(changes[change_count - 1].zxid);
  ck_assert_int_gt(told_events, STEPS / 10);
}
