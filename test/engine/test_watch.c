/* test_watch.c - watches beyond test/semantics/watch.txt: functions that
 * distinguish pairs, callbacks that call back, too many events, alarms, and the
 * descriptor.
 *
 * Each test runs in three ways: the watching session changes the tree itself,
 * another session of its store in memory does, or another store on the same
 * file.  The events must be the same.
 */
#include "test/test.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum { BY_ITSELF, BY_A_SESSION, BY_A_STORE, WAYS };

static zke *watcher, *writer; /* one handle when BY_ITSELF */
static test_events seen;      /* context of most watches */
static test_events other;     /* context of a second pair */
static test_events fallback;  /* context of the default watcher */
static int limit;             /* event_limit of the stores; 0: the default */

/* One more session on the watcher's tree, on a store like the watcher's. */
static zke *further(int way) {
  zke_options options = {.size = sizeof options, .event_limit = limit};
  zke *z = NULL;
  if (way == BY_A_STORE) {
    ck_ok(zke_open(test_path("watch.db"), &options, &z));
  } else {
    ck_ok(zke_open_session(watcher, &options, &z));
  }
  return z;
}

static void begin(int way) {
  zke_options options = {.size = sizeof options,
                         .event_limit = limit,
                         .watcher = test_record,
                         .watcher_context = &fallback};
  const char *name = way == BY_A_STORE ? test_path("watch.db") : ":memory:";
  ck_ok(zke_open(name, &options, &watcher));
  writer = way == BY_ITSELF ? watcher : further(way);
}

/* Close what begin() has opened; runs after every test. */
static void finish(void) {
  if (writer != watcher) ck_ok(zke_close(writer));
  ck_ok(zke_close(watcher));
}

/* ---- changes by the writer ---- */

static void make(const char *path) {
  ck_ok(zke_create(writer, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
}

static void change(const char *path) {
  ck_ok(zke_set(writer, path, "x", 1, -1, NULL));
}

/* ---- watches by the watcher ---- */

static void on_exists(const char *path, test_events *events) {
  int rc = zke_exists(watcher, path, test_record, events, NULL);
  ck_assert_msg(rc == ZKE_OK || rc == ZKE_NONODE, "exists %s: %d", path, rc);
}

static void on_data(const char *path, test_events *events) {
  ck_ok(zke_get(watcher, path, test_record, events, NULL, NULL, NULL));
}

static void on_all(const char *path, int mode, test_events *events) {
  ck_ok(zke_add_watch(watcher, path, mode, test_record, events));
}

static void expect(const char *events) { test_expect(watcher, &seen, events); }

static void expect_other(const char *events) {
  test_expect(watcher, &other, events);
}

/* ---- pairs ---- */

/* A second function, for pairs that differ only in it. */
static void record_too(zke *z, int type, int state, const char *path,
                       void *context) {
  test_record(z, type, state, path, context);
}

/* 5.5, 12 #63: the function distinguishes pairs as the context does. */
TEST_LOOP(functions_tell_pairs_apart, 0, WAYS) {
  int data = ZKE_WATCH_DATA;
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  ck_rc(zke_remove_watch(watcher, "/n", data, record_too, &seen),
        ZKE_NOWATCHER);
  ck_rc(zke_remove_watch(watcher, "/n", data, test_record, NULL),
        ZKE_NOWATCHER);
  ck_ok(zke_get(watcher, "/n", record_too, &seen, NULL, NULL, NULL));
  change("/n");
  expect("CHANGED /n; CHANGED /n");
}

/* zkembed.h: a NULL function registers nothing, whatever the context. */
TEST_LOOP(no_function_is_no_watch, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(zke_get(watcher, "/n", NULL, &seen, NULL, NULL, NULL));
  ck_ok(zke_children(watcher, "/n", NULL, &seen, NULL, NULL));
  ck_ok(zke_exists(watcher, "/n", NULL, &seen, NULL));
  ck_rc(zke_add_watch(watcher, "/n", ZKE_WATCH_PERSISTENT, NULL, &seen),
        ZKE_BADARGUMENTS);
  ck_rc(zke_set_watch(watcher, "/n", ZKE_WATCH_DATA, 0, NULL, &seen),
        ZKE_BADARGUMENTS);
  zke_watch_list *list = NULL;
  ck_ok(zke_watches(watcher, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  change("/n");
  int count = -1;
  ck_ok(zke_dispatch(watcher, &count));
  ck_assert_int_eq(count, 0);
}

/* ---- removal ---- */

/* A removal after the change either cancels the event or says that there is
 * nothing to remove; never both, and never neither. */
TEST_LOOP(removal_after_the_change_is_consistent, 0, WAYS) {
  begin(_i);
  make("/n");
  on_data("/n", &seen);
  change("/n");
  int rc = zke_remove_watch(watcher, "/n", ZKE_WATCH_DATA, test_record, &seen);
  ck_assert(rc == ZKE_OK || rc == ZKE_NOWATCHER);
  expect(rc == ZKE_OK ? "" : "CHANGED /n");
}

/* 5.6: one session's removal does not affect another's watch. */
TEST_LOOP(removal_is_of_one_session, 0, WAYS) {
  begin(_i);
  make("/n");
  zke *third = further(_i);
  on_data("/n", &seen);
  ck_rc(zke_remove_watch(third, "/n", ZKE_WATCH_DATA, test_record, &seen),
        ZKE_NOWATCHER);
  ck_rc(zke_remove_watch(third, "/n", ZKE_WATCH_ANY, NULL, NULL),
        ZKE_NOWATCHER);
  ck_ok(zke_close(third));
  change("/n");
  expect("CHANGED /n");
}

/* ---- watches that are set again: 5.9 ---- */

static void set_once_more(const char *path, int type, int64_t zxid,
                          test_events *events) {
  ck_ok(zke_set_watch(watcher, path, type, zxid, test_record, events));
}

static int64_t now(void) {
  zke_zxid(); /* so that the first read knows it too */
  ck_ok(zke_exists(watcher, "/", NULL, NULL, NULL));
  return zke_zxid();
}

/* The event has the zxid of the state in which it was found, and comes in that
 * order.  The descriptor is readable at once. */
TEST_LOOP(what_was_missed_has_its_place, 0, WAYS) {
  struct pollfd fd = {.events = POLLIN};
  int more = 0;
  begin(_i);
  ck_ok(zke_fd(watcher, &fd.fd));
  make("/n");
  int64_t zxid = now();
  on_all("/m", ZKE_WATCH_PERSISTENT, &seen);
  change("/n");
  make("/m");
  set_once_more("/n", ZKE_WATCH_DATA, zxid, &seen);
  int64_t found = zke_zxid();
  ck_assert_int_eq(found, now());
  change("/m");
  ck_ok(zke_dispatch_to(watcher, found - 1, NULL, &more));
  ck_assert_int_eq(seen.count, 0);
  ck_assert_int_eq(more, 1);
  ck_ok(zke_dispatch_to(watcher, found, NULL, &more));
  expect("CREATED /m; CHANGED /n; CHANGED /m");
  ck_assert_int_eq(more, 1);
  set_once_more("/n", ZKE_WATCH_DATA, zxid, &seen);
  ck_assert_int_eq(poll(&fd, 1, 0), 1);
  expect("CHANGED /n");
}

/* In a dispatch that has read the file: make a change that the watcher hears
 * of, then one that a watch that is set again reports immediately. */
static void change_and_set_once_more(zke *z, int type, int state,
                                     const char *path, void *context) {
  test_record(z, type, state, path, context);
  change("/a");
  change("/b");
  set_once_more("/b", ZKE_WATCH_DATA, INT64_MIN, context);
}

/* P4: an immediate event does not come before those of earlier changes, which
 * the dispatch has not read yet. */
TEST_LOOP(what_was_missed_comes_in_order, 0, WAYS) {
  begin(_i);
  make("/n");
  make("/a");
  make("/b");
  on_data("/a", &seen);
  ck_ok(zke_get(watcher, "/n", change_and_set_once_more, &seen, NULL, NULL,
                NULL));
  change("/n");
  expect("CHANGED /n; CHANGED /a; CHANGED /b");
}

/* ---- too many events (P4) ---- */

enum { LIMIT = 8 };

static void begin_limited(int way) {
  limit = LIMIT;
  begin(way);
  make("/n");
  on_all("/n", ZKE_WATCH_PERSISTENT, &seen);
}

/* Rows of pending events, as the database counts them. */
static int pending(void) {
  zke_session_list *list = NULL;
  ck_ok(zke_sessions(writer, -1, &list));
  int events = -1;
  for (int i = 0; i < list->count; i++) {
    if (list->data[i].id == zke_session_id(watcher))
      events = list->data[i].events;
  }
  zke_free(list);
  return events;
}

static void change_often(const char *path, int times) {
  for (int i = 0; i < times; i++) change(path);
}

/* Far too many events. */
static void flood(void) { change_often("/n", 3 * LIMIT); }

/* Assert one ZKE_EVENT_OVERFLOW, then at most LIMIT events; forgets them. */
static void expect_overflow(test_events *events) {
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_int_ge(events->count, 1);
  ck_assert_int_le(events->count, LIMIT + 1);
  ck_assert_int_eq(events->at[0].type, ZKE_EVENT_OVERFLOW);
  for (int i = 1; i < events->count; i++)
    ck_assert_int_ne(events->at[i].type, ZKE_EVENT_OVERFLOW);
  events->count = 0;
}

/* P4: as many events as the limit are all delivered. */
TEST_LOOP(events_up_to_the_limit_are_kept, 0, WAYS) {
  begin_limited(_i);
  change_often("/n", LIMIT);
  expect(
      "CHANGED /n; CHANGED /n; CHANGED /n; CHANGED /n; "
      "CHANGED /n; CHANGED /n; CHANGED /n; CHANGED /n");
}

/* P4: delivered events do not count, though their rows are removed only now and
 * then. */
TEST_LOOP(delivered_events_make_room, 0, WAYS) {
  begin_limited(_i);
  for (int i = 0; i < 2 * LIMIT; i++) {
    change_often("/n", LIMIT / 2);
    expect("CHANGED /n; CHANGED /n; CHANGED /n; CHANGED /n");
  }
}

/* P4: with one event more, a single overflow replaces all. */
TEST_LOOP(one_event_too_many_is_an_overflow, 0, WAYS) {
  begin_limited(_i);
  change_often("/n", LIMIT + 1);
  expect_overflow(&seen);
}

/* P4: a session that never dispatches does not fill the disk. */
TEST_LOOP(pending_events_are_bounded, 0, WAYS) {
  begin_limited(_i);
  for (int i = 0; i < 20; i++) {
    change_often("/n", LIMIT);
    ck_assert_int_le(pending(), LIMIT + 1);
    ck_assert_int_ge(pending(), 1);
  }
  expect_overflow(&seen);
}

/* zkembed.h: every pair and the default watcher are told of the overflow. */
TEST_LOOP(overflow_is_told_to_all, 0, WAYS) {
  begin_limited(_i);
  on_exists("/missing", &other);
  flood();
  expect_overflow(&seen);
  expect_other("OVERFLOW");
  test_expect(watcher, &fallback, "OVERFLOW");
}

/* zkembed.h: all earlier one-shot watches are gone, persistent ones stay. */
TEST_LOOP(overflow_spends_one_shots_only, 0, WAYS) {
  begin_limited(_i);
  on_exists("/missing", &other);
  flood();
  expect_overflow(&seen);
  expect_other("OVERFLOW");
  ck_rc(zke_remove_watch(watcher, "/missing", ZKE_WATCH_DATA, test_record,
                         &other),
        ZKE_NOWATCHER);
  make("/missing");
  change("/n");
  expect("CHANGED /n");
  expect_other("");
}

/* One-shot watches in the database, of any session. */
static int one_shots(void) {
  zke_watch_list *list = NULL;
  int count = 0;
  ck_ok(zke_watches(writer, &list));
  for (int i = 0; i < list->count; i++) count += list->data[i].mode == -1;
  zke_free(list);
  return count;
}

/* The same in the database: they are gone once the overflow was delivered. */
TEST_LOOP(overflow_removes_one_shots_from_the_database, 0, WAYS) {
  begin_limited(_i);
  on_exists("/missing", &other);
  ck_assert_int_eq(one_shots(), 1);
  flood();
  expect_overflow(&seen);
  ck_assert_int_eq(one_shots(), 0);
}

/* P3: a watch registered after the overflow is not spent by it. */
TEST_LOOP(overflow_leaves_later_one_shots, 0, WAYS) {
  begin_limited(_i);
  make("/m");
  on_data("/m", &other);
  flood();
  on_data("/m", &other);
  expect_overflow(&seen);
  expect_other("OVERFLOW");
  change("/m");
  expect_other("CHANGED /m");
}

/* zkembed.h: the limit is an option of the watching session's handle, whatever
 * the changing one has. */
TEST(limit_is_the_watchers) {
  begin_limited(BY_A_STORE);
  limit = 0;
  zke *third = further(BY_A_STORE);
  for (int i = 0; i < 3 * LIMIT; i++)
    ck_ok(zke_set(third, "/n", "x", 1, -1, NULL));
  ck_ok(zke_close(third));
  expect_overflow(&seen);
}

/* The other way round. */
TEST(limit_is_not_the_writers) {
  begin(BY_A_STORE);
  make("/n");
  on_all("/n", ZKE_WATCH_PERSISTENT, &seen);
  limit = LIMIT;
  zke *third = further(BY_A_STORE);
  for (int i = 0; i < 3 * LIMIT; i++)
    ck_ok(zke_set(third, "/n", "x", 1, -1, NULL));
  ck_ok(zke_close(third));
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_int_eq(seen.count, 3 * LIMIT);
  ck_assert_int_eq(seen.at[0].type, ZKE_EVENT_CHANGED);
}

/* ---- callbacks that call back ---- */

/* A watcher that reads again and thereby registers again. */
static void read_again(zke *z, int type, int state, const char *path,
                       void *context) {
  test_record(z, type, state, path, context);
  ck_ok(zke_get(z, path, read_again, context, NULL, NULL, NULL));
}

/* zkembed.h: the usual loop, one event for each change. */
TEST_LOOP(callback_registers_again, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(zke_get(watcher, "/n", read_again, &seen, NULL, NULL, NULL));
  for (int i = 0; i < 5; i++) {
    change("/n");
    expect("CHANGED /n");
  }
}

/* A watcher that creates a node another watch of its session waits for. */
static void create_next(zke *z, int type, int state, const char *path,
                        void *context) {
  test_record(z, type, state, path, context);
  ck_ok(
      zke_create(z, "/next", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
}

/* P4: a callback's own change is reported too, after the current event. */
TEST_LOOP(callback_creates, 0, WAYS) {
  begin(_i);
  make("/n");
  on_exists("/next", &seen);
  ck_ok(zke_get(watcher, "/n", create_next, &seen, NULL, NULL, NULL));
  change("/n");
  test_expect_within(watcher, &seen, "CHANGED /n; CREATED /next", 2000);
}

static char nesting[64]; /* "(" path when a callback begins, ")" at its end */

static void dispatch_inside(zke *z, int type, int state, const char *path,
                            void *context) {
  (void)type, (void)state;
  strcat(strcat(nesting, "("), path);
  if (context) change(context);
  ck_ok(zke_dispatch(z, NULL));
  strcat(nesting, ")");
}

/* P4: a dispatch inside a callback continues where the outer one is, in order,
 * and includes new events. */
TEST_LOOP(callback_dispatches, 0, WAYS) {
  begin(_i);
  static char last[] = "/c";
  make("/a");
  make("/b");
  make("/c");
  ck_ok(zke_get(watcher, "/a", dispatch_inside, last, NULL, NULL, NULL));
  ck_ok(zke_get(watcher, "/b", dispatch_inside, NULL, NULL, NULL, NULL));
  ck_ok(zke_get(watcher, "/c", dispatch_inside, NULL, NULL, NULL, NULL));
  change("/a");
  change("/b");
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_str_eq(nesting, "(/a(/b(/c)))");
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_str_eq(nesting, "(/a(/b(/c)))");
}

/* The results of calls inside a callback. */
static int inner_rc[2];

static void wait_inside(zke *z, int type, int state, const char *path,
                        void *context) {
  test_record(z, type, state, path, context);
  inner_rc[0] = zke_wait(z, zke_now(z) + 2000);
  inner_rc[1] = zke_wait(z, zke_now(z) + 5);
}

/* zkembed.h: a callback may wait for the next event, until its deadline. */
TEST_LOOP(callback_waits, 0, WAYS) {
  begin(_i);
  make("/a");
  make("/b");
  ck_ok(zke_get(watcher, "/a", wait_inside, &seen, NULL, NULL, NULL));
  on_data("/b", &seen);
  change("/a");
  change("/b");
  expect("CHANGED /a; CHANGED /b");
  ck_rc(inner_rc[0], ZKE_OK);
  ck_rc(inner_rc[1], ZKE_OPERATIONTIMEOUT);
}

static void close_inside(zke *z, int type, int state, const char *path,
                         void *context) {
  test_record(z, type, state, path, context);
  inner_rc[0] = zke_close(z);
}

/* zkembed.h: closing the dispatching handle is refused and does nothing. */
TEST_LOOP(callback_may_not_close_its_handle, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(zke_get(watcher, "/n", close_inside, &seen, NULL, NULL, NULL));
  change("/n");
  expect("CHANGED /n");
  ck_rc(inner_rc[0], ZKE_MISUSE);
  ck_assert_int_eq(zke_state(watcher), ZKE_STATE_CONNECTED);
  on_data("/n", &seen);
  change("/n");
  expect("CHANGED /n");
}

static void dispatch_then_close(zke *z, int type, int state, const char *path,
                                void *context) {
  test_record(z, type, state, path, context);
  ck_ok(zke_dispatch(z, NULL));
  inner_rc[1] = zke_close(z);
}

/* The outer callback is still running when an inner dispatch has ended. */
TEST_LOOP(callback_may_not_close_after_inner_dispatch, 0, WAYS) {
  begin(_i);
  make("/a");
  make("/b");
  ck_ok(zke_get(watcher, "/a", dispatch_then_close, &seen, NULL, NULL, NULL));
  ck_ok(zke_get(watcher, "/b", close_inside, &seen, NULL, NULL, NULL));
  change("/a");
  change("/b");
  expect("CHANGED /a; CHANGED /b");
  ck_rc(inner_rc[0], ZKE_MISUSE);
  ck_rc(inner_rc[1], ZKE_MISUSE);
}

static void swap_sessions(zke *z, int type, int state, const char *path,
                          void *context) {
  zke **third = context;
  (void)type, (void)state, (void)path;
  ck_ok(zke_close(*third));
  ck_ok(zke_open_session(z, NULL, third));
}

/* zkembed.h: a callback may close another handle and open a session. */
TEST_LOOP(callback_closes_and_opens_others, 0, WAYS) {
  begin(_i);
  make("/n");
  zke *third = further(_i);
  ck_ok(zke_create(third, "/eph", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                   NULL));
  on_exists("/eph", &seen);
  ck_ok(zke_get(watcher, "/n", swap_sessions, &third, NULL, NULL, NULL));
  change("/n");
  test_expect_within(watcher, &seen, "DELETED /eph", 2000);
  ck_ok(zke_exists(third, "/n", NULL, NULL, NULL));
  ck_ok(zke_close(third));
}

static void remove_inside(zke *z, int type, int state, const char *path,
                          void *context) {
  test_record(z, type, state, path, context);
  ck_ok(zke_remove_watch(z, "/n", ZKE_WATCH_ANY, remove_inside, context));
}

/* zkembed.h: a persistent watcher may remove itself. */
TEST_LOOP(callback_removes_itself, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(
      zke_add_watch(watcher, "/n", ZKE_WATCH_PERSISTENT, remove_inside, &seen));
  change("/n");
  expect("CHANGED /n");
  change("/n");
  expect("");
}

static void expire_inside(zke *z, int type, int state, const char *path,
                          void *context) {
  test_record(z, type, state, path, context);
  if (type != ZKE_EVENT_SESSION) ck_ok(zke_expire(z, zke_session_id(z)));
}

/* zkembed.h: a callback may end its own session; that event follows. */
TEST_LOOP(callback_expires_its_session, 0, WAYS) {
  begin(_i);
  make("/n");
  ck_ok(
      zke_add_watch(watcher, "/n", ZKE_WATCH_PERSISTENT, expire_inside, &seen));
  change("/n");
  test_expect_within(watcher, &seen, "CHANGED /n; SESSION -112", 2000);
}

/* ---- alarms ---- */

static void ring(int64_t when_ms, test_events *events) {
  ck_ok(zke_call_at(watcher, when_ms, test_record, events));
}

static int64_t next_deadline(void) {
  int64_t deadline;
  ck_ok(zke_next_deadline(watcher, &deadline));
  return deadline;
}

/* zkembed.h, zke_call_at: one call, in the first dispatch at or after its time,
 * in the order of the times, after the events; a later setting replaces it. */
TEST_LOOP(a_time_comes_once, 0, WAYS) {
  int pending = 0, count = 0;
  begin(_i);
  int64_t now = zke_now(watcher);
  ring(now + 100000, &seen);
  expect("");
  ck_assert_int_le(next_deadline(), now + 100000);
  ring(now - 1, &seen); /* replaces that */
  ck_ok(zke_pending(watcher, &pending));
  ck_assert_int_eq(pending, 1);
  expect("ALARM");
  expect("");
  ring(now, &seen);
  ring(ZKE_FOREVER, &seen);
  expect("");
  ring(-5, &other); /* as if the time were 0 */
  ring(now - 2, &seen);
  on_exists("/n", &seen);
  make("/n");
  ck_ok(zke_dispatch(watcher, &count));
  ck_assert_int_eq(count, 3);
  expect("CREATED /n; ALARM");
  expect_other("ALARM");
  ck_rc(zke_call_at(watcher, 0, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_call_at(NULL, 0, test_record, NULL), ZKE_BADARGUMENTS);
}

/* A wait returns for an alarm without any event, and a host's poll() does. */
TEST_LOOP(a_time_wakes, 0, WAYS) {
  int fd;
  begin(_i);
  ck_ok(zke_dispatch(watcher, NULL));
  ring(zke_now(watcher) + 20, &seen);
  ck_ok(zke_wait(watcher, zke_now(watcher) + 20000));
  expect("ALARM");
  ck_ok(zke_fd(watcher, &fd));
  ring(zke_now(watcher) + 20, &seen);
  while (!seen.count) {
    struct pollfd p = {fd, POLLIN, 0};
    ck_assert_int_eq(poll(&p, 1, 20000), 1);
    ck_ok(zke_dispatch(watcher, NULL));
  }
  expect("ALARM");
}

static void ring_again(zke *z, int type, int state, const char *path,
                       void *context) {
  (void)state, (void)path;
  ck_assert_int_eq(type, ZKE_EVENT_ALARM);
  ++*(int *)context;
  ck_ok(zke_call_at(z, zke_now(z) - 10, ring_again, context));
}

/* An alarm that sets itself again does not keep the dispatch from ending, and
 * can be cancelled. */
TEST_LOOP(a_time_that_has_passed_is_for_the_next_dispatch, 0, WAYS) {
  int rung = 0;
  begin(_i);
  ck_ok(zke_call_at(watcher, 0, ring_again, &rung));
  for (int i = 1; i < 5; i++) {
    ck_ok(zke_dispatch(watcher, NULL));
    ck_assert_int_eq(rung, i);
  }
  ck_ok(zke_forget(watcher, ring_again, &rung));
  ck_ok(zke_dispatch(watcher, NULL));
  ck_assert_int_eq(rung, 4);
  ck_assert_int_gt(next_deadline(), zke_now(watcher));
}

/* Nor does it keep other due alarms from ringing: it used to be called instead
 * of them, in each dispatch. */
TEST_LOOP(a_time_that_is_set_again_leaves_others_their_turn, 0, WAYS) {
  int rung = 0;
  begin(_i);
  ck_ok(zke_call_at(watcher, 0, ring_again, &rung));
  ring(zke_now(watcher), &seen);
  expect("ALARM");
  ck_assert_int_eq(rung, 1);
}

/* A pair that has set an alarm is told of the session's end, once, and of no
 * alarm after that. */
TEST_LOOP(a_time_ends_with_the_session, 0, WAYS) {
  begin(_i);
  ring(0, &seen);
  ring(zke_now(watcher) + 100000, &fallback); /* the handle's own pair */
  on_exists("/n", &other);
  ring(0, &other);
  ck_ok(zke_expire(writer, zke_session_id(watcher)));
  while (!fallback.count) ck_ok(zke_dispatch(watcher, NULL));
  test_expect(watcher, &seen, "SESSION -112");
  test_expect(watcher, &other, "SESSION -112");
  test_expect(watcher, &fallback, "SESSION -112");
  ring(0, &seen);
  ck_rc(zke_dispatch(watcher, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_eq(seen.count, 0);
  ck_assert_int_eq(next_deadline(), ZKE_FOREVER);
}

AFTER_EACH(finish);
