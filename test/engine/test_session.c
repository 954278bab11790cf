/* test_session.c - sessions: their begin, end and lease, the process that
 * others see, and lost replies.  test/semantics/session.txt has the tests of
 * plain calls and results.
 *
 * Two sessions a and b share a tree: of one store in memory, or of two stores
 * on one file.  Leases use a clock that the test sets.
 */
#include "test/functions.h"
#include "test/seam.h"
#include "test/engine/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { IN_MEMORY, IN_FILE, WAYS };

static zke *a, *b;
static test_events seen, other;

/* Open two sessions, a and b, that share the tree in this way. */
static void begin_with(int way, const zke_options *options_a,
                       const zke_options *options_b) {
  if (way == IN_MEMORY) {
    ck_ok(zke_open(":memory:", options_b, &b));
    ck_ok(zke_open_session(b, options_a, &a));
  } else {
    ck_ok(zke_open(test_path("session.db"), options_a, &a));
    ck_ok(zke_open(test_path("session.db"), options_b, &b));
  }
}

static void begin(int way) { begin_with(way, NULL, NULL); }

static int watch(zke *z, const char *path, test_events *events) {
  return zke_exists(z, path, test_record, events, NULL);
}

/* A session as z's database describes it, without its strings; id 0 if there is
 * none. */
static zke_session_info info(zke *z, int64_t id) {
  zke_session_info found = {0};
  zke_session_list *list = NULL;
  ck_ok(zke_sessions(z, -1, &list));
  for (int i = 0; i < list->count; i++) {
    if (list->data[i].id == id) found = list->data[i];
  }
  found.identity = NULL;
  zke_free(list);
  return found;
}

static bool lives(zke *asker, int64_t id) { return info(asker, id).id != 0; }

/* ---- begin and end ---- */

/* zke_overdue() counts what a sweep would remove, also by a read-only handle:
 * an expired node, and a session whose process was killed. */
TEST(overdue_is_told) {
  const char *name = test_path("a.db");
  zke *z = test_open(name);
  int overdue = -1;
  ck_rc(zke_overdue(z, NULL), ZKE_BADARGUMENTS);
  ck_ok(zke_create_ttl(z, "/t", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL, 1,
                       NULL, NULL));
  ck_ok(zke_close(z));
  zke *looker = open_as(name, .flags = ZKE_OPEN_READONLY);
  ck_until(zke_overdue(looker, &overdue) == ZKE_OK && overdue == 1, 10000);
  ck_until(zke_close(test_open(name)) == ZKE_OK &&
               zke_overdue(looker, &overdue) == ZKE_OK && !overdue,
           10000);
  pid_t pid = fork();
  if (pid == 0) {
    zke *own = NULL;
    if (zke_open(name, NULL, &own) != ZKE_OK) _exit(1);
    raise(SIGKILL);
  }
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
  ck_ok(zke_overdue(looker, &overdue));
  ck_assert_int_eq(overdue, 1);
  ck_until(zke_close(test_open(name)) == ZKE_OK &&
               zke_overdue(looker, &overdue) == ZKE_OK && !overdue,
           10000);
}

/* P8: no id is issued twice, even if the file was closed in between. */
TEST(ids_are_never_issued_twice) {
  enum { TIMES = 8 };
  int64_t ids[TIMES];
  for (int i = 0; i < TIMES; i++) {
    zke *z = test_open(test_path("ids.db"));
    ids[i] = zke_session_id(z);
    ck_ok(zke_close(z));
    for (int k = 0; k < i; k++) ck_assert_int_ne(ids[k], ids[i]);
  }
}

/* zkembed.h: sessions of a store are closed in any order; the others still
 * work, and a further one can be opened. */
TEST_LOOP(sessions_close_in_any_order, 0, 12) {
  static const int order[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                  {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  static const char *const path[3] = {"/0", "/1", "/2"};
  zke *z[3];
  z[0] = test_open(_i < 6 ? ":memory:" : test_path("order.db"));
  z[1] = test_session(z[0], NULL);
  z[2] = test_session(z[1], NULL);
  for (int i = 0; i < 3; i++) make_as(z[i], path[i], ZKE_EPHEMERAL);
  for (int i = 0; i < 2; i++) {
    int last = order[_i % 6][2];
    ck_ok(zke_close(z[order[_i % 6][i]]));
    ck_rc(see(z[last], path[order[_i % 6][i]]), ZKE_NONODE);
    ck_ok(see(z[last], path[last]));
    zke *further = test_session(z[last], NULL);
    ck_ok(see(further, path[last]));
    ck_ok(zke_close(further));
  }
  ck_ok(zke_close(z[order[_i % 6][2]]));
}

/* Section 6, zkembed.h: a closing session's own watchers get no event. */
TEST_LOOP(own_close_calls_no_watcher, 0, WAYS) {
  begin(_i);
  make_as(a, "/e", ZKE_EPHEMERAL);
  ck_ok(watch(a, "/e", &seen));
  ck_ok(zke_set_watcher(a, test_record, &seen));
  ck_ok(change(b, "/e"));
  ck_ok(zke_close(a));
  ck_assert_int_eq(seen.count, 0);
}

/* ---- ephemerals ---- */

/* All of them are found, however many a removal takes at a time. */
TEST_LOOP(ephemerals_are_all_found, 0, WAYS) {
  zke_strings *paths = NULL;
  char path[16];
  begin(_i);
  for (int i = 0; i < 300; i++) {
    snprintf(path, sizeof path, "/e%d", i);
    make_as(a, path, ZKE_EPHEMERAL);
  }
  ck_ok(zke_ephemerals(b, zke_session_id(a), NULL, &paths));
  ck_assert_int_eq(paths->count, 300);
  zke_free(paths);
}

/* ---- expiry ---- */

static int told_before_default; /* events of others before the default's */

static void note_default(zke *z, int type, int state, const char *path,
                         void *context) {
  test_events *events = context;
  told_before_default = seen.count + other.count;
  test_record(z, type, state, path, events);
}

/* 12 #64, 5.5: every pair is told once, however many watches it has, and the
 * default watcher last. */
TEST_LOOP(expiry_is_told_to_every_pair_once, 0, WAYS) {
  begin(_i);
  test_events last = {0};
  ck_ok(zke_set_watcher(a, note_default, &last));
  make(b, "/n");
  ck_ok(watch(a, "/n", &seen));
  ck_rc(watch(a, "/m", &seen), ZKE_NONODE);
  ck_ok(zke_add_watch(a, "/n", ZKE_WATCH_PERSISTENT, test_record, &seen));
  ck_ok(zke_children(a, "/n", test_record, &other, NULL, NULL));
  ck_ok(zke_expire(b, zke_session_id(a)));
  test_expect(a, &seen, "SESSION -112");
  ck_assert_int_eq(other.count, 1);
  ck_assert_int_eq(told_before_default, 2);
  test_expect(a, &other, "SESSION -112");
  test_expect(a, &last, "SESSION -112");
  ck_assert_int_eq(zke_state(a), ZKE_STATE_EXPIRED);
  test_expect(a, &seen, "");
  test_expect(a, &last, "");
}

/* zkembed.h: the dispatch that delivers the end returns ZKE_OK. */
TEST_LOOP(delivery_of_expiry_is_ok, 0, WAYS) {
  begin(_i);
  ck_ok(zke_set_watcher(a, test_record, &seen));
  ck_ok(zke_expire(b, zke_session_id(a)));
  int count = 0;
  ck_ok(zke_dispatch(a, &count));
  ck_assert_int_eq(count, 1);
  ck_rc(zke_dispatch(a, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_wait(a, zke_now(a) + 1000), ZKE_INVALIDSTATE);
}

/* A session that has expired and was told so. */
static void begin_expired(int way) {
  begin(way);
  make(b, "/n");
  ck_ok(zke_expire(b, zke_session_id(a)));
  ck_ok(zke_dispatch(a, NULL));
}

/* 12 #64: from then on every change, read and watch returns ZKE_INVALIDSTATE.
 * The other calls use only the handle, open another, or are for kept
 * sessions. */
TEST_LOOP(expired_session_does_nothing, 0, WAYS) {
  const char *others =
      " zke_attach zke_call_at zke_close zke_create_ttl zke_detach zke_fd "
      "zke_forget zke_multi zke_multi_read zke_next_deadline zke_open_session "
      "zke_password zke_pending zke_sleep zke_sql_commit zke_sql_rollback "
      "zke_state zke_touch zke_wake ";
  const char *const paths[] = {"/n", "/x"};
  begin_expired(_i);
  for (int i = 0; i < 2; i++) {
    some_path = paths[i];
    for (const test_function *f = test_functions; f->name; f++) {
      if (test_is_among(f, others)) continue;
      int rc = f->call(a);
      ck_assert_msg(rc == ZKE_INVALIDSTATE, "%s: %d", f->name, rc);
    }
  }
  ck_rc(zke_create_ttl(a, "/x", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                       1000, NULL, NULL),
        ZKE_INVALIDSTATE);
  ck_rc(zke_expire(a, zke_session_id(b)), ZKE_INVALIDSTATE);
  ck_rc(watch(a, "/n", &seen), ZKE_INVALIDSTATE);
  ck_rc(see(b, "/x"), ZKE_NONODE);
  ck_assert(lives(b, zke_session_id(b)));
  ck_ok(change(b, "/n"));
  test_expect(a, &seen, "");
}

/* zkembed.h: the call that finds the session expired may return another code;
 * later ones return ZKE_INVALIDSTATE, and the event is still delivered. */
TEST_LOOP(call_may_find_the_expiry, 0, WAYS) {
  begin(_i);
  ck_ok(zke_set_watcher(a, test_record, &seen));
  ck_ok(zke_expire(b, zke_session_id(a)));
  int rc = create(a, "/e", ZKE_EPHEMERAL);
  ck_assert_msg(rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE, "%d", rc);
  ck_rc(create(a, "/e", ZKE_EPHEMERAL), ZKE_INVALIDSTATE);
  ck_rc(see(b, "/e"), ZKE_NONODE);
  test_expect(a, &seen, "SESSION -112");
}

/* Reads of existing nodes by session a. */
enum { READS = 14 };
/* One of the reading calls. */
static int do_read(int which) {
  zke_op op;
  zke_op_result result = {.rc = 0};
  zke_op_get(&op, "/n");
  zke_session_list *sessions = NULL;
  zke_watch_list *watches = NULL;
  int rc;
  switch (which) {
    case 0:
      return see(a, "/n");
    case 1:
      return zke_get(a, "/n", NULL, NULL, NULL, NULL, NULL);
    case 2:
      return zke_children(a, "/n", NULL, NULL, NULL, NULL);
    case 3:
      return watch(a, "/n", &seen);
    case 4:
      return zke_get(a, "/n", test_record, &seen, NULL, NULL, NULL);
    case 5:
      return zke_count(a, "/n", NULL);
    case 6:
      return zke_ephemerals(a, 0, NULL, NULL);
    case 7:
      return zke_get_acl(a, "/n", NULL, NULL);
    case 8:
      return zke_children(a, "/n", test_record, &seen, NULL, NULL);
    case 9:
      rc = zke_multi_read(a, &op, 1, &result);
      zke_results_clear(&result, 1);
      return rc;
    case 10:
      rc = zke_sessions(a, -1, &sessions);
      break;
    case 11:
      rc = zke_sessions(a, zke_session_id(b), &sessions);
      break;
    case 12:
      rc = zke_watches(a, &watches);
      break;
    default:
      return zke_check(a, NULL, NULL);
  }
  zke_free(sessions);
  zke_free(watches);
  return rc;
}

/* a's clock stands still: no tick is due, so each call checks by itself. */
static int64_t standing_clock(void *context, int which) {
  (void)context;
  return (which + 2) * INT64_C(1000000000000);
}

/* zkembed.h, zke_expire: a read that begins after the session's end is refused:
 * in memory and on a file, ended by another store, and after a read that is
 * still open. */
TEST_LOOP(no_read_after_the_end, 0, 2 * READS) {
  int way = _i / READS;
  zke_os os = {.size = sizeof os, .clock = standing_clock};
  zke_options o = {.size = sizeof o, .os = &os};
  begin_with(way ? IN_FILE : IN_MEMORY, &o, NULL);
  make(b, "/n");
  for (int i = 0; i < READS; i++) ck_ok(do_read(i));
  ck_ok(do_read(_i % READS));
  ck_ok(see(a, "/n"));
  ck_ok(zke_expire(b, zke_session_id(a)));
  int rc = do_read(_i % READS);
  if (_i % READS == 9)
    ck_rc(rc, ZKE_MARSHALLINGERROR);
  else
    ck_rc(rc, way ? ZKE_SESSIONEXPIRED : ZKE_INVALIDSTATE);
  ck_rc(see(a, "/n"), ZKE_INVALIDSTATE);
}

/* The changes that write no node and set no watch; b has the session `third`.
 */
enum { OTHER_CHANGES = 5 };
static int do_other_change(int which, zke *third) {
  switch (which) {
    case 0:
      return zke_expire(a, zke_session_id(third));
    case 1:
      return zke_rearm(a);
    case 2:
      return zke_remove_watch(a, "/n", ZKE_WATCH_ANY, test_record, &seen);
    case 3:
      return zke_compact(a, zke_now(a) + 5000);
    default:
      return zke_remove_watch(a, "/n", ZKE_WATCH_ANY, NULL, NULL);
  }
}

/* zkembed.h, zke_expire: so is each change, even without a transaction of its
 * own session: in an earlier version an expired session could end others. */
TEST_LOOP(no_change_after_the_end, 0, WAYS *OTHER_CHANGES) {
  int way = _i / OTHER_CHANGES;
  zke_os os = {.size = sizeof os, .clock = standing_clock};
  zke_options o = {.size = sizeof o, .os = &os};
  begin_with(way, &o, NULL);
  zke *third = test_session(b, NULL);
  make(b, "/n");
  ck_ok(watch(a, "/n", &seen));
  ck_ok(watch(a, "/n", &other));
  ck_ok(zke_expire(b, zke_session_id(a)));
  ck_rc(do_other_change(_i % OTHER_CHANGES, third),
        way ? ZKE_SESSIONEXPIRED : ZKE_INVALIDSTATE);
  ck_ok(see(third, "/"));
}

/* zkembed.h: changes by others, or by the session itself, do not end it. */
TEST_LOOP(reads_go_on_between_changes, 0, WAYS) {
  begin(_i);
  make(b, "/n");
  for (int i = 0; i < 3 * READS; i++) {
    ck_ok(do_read(i % READS));
    ck_ok(change(i % 2 ? b : a, "/n"));
  }
}

/* ---- what others see ---- */

/* zkembed.h: pid, start and liveness. */
TEST_LOOP(session_shows_its_process, 0, WAYS) {
  int64_t before = test_wall();
  begin(_i);
  zke_session_info i = info(b, zke_session_id(a));
  ck_assert_int_eq(i.pid, getpid());
  ck_assert_int_ge(i.started_ms, before);
  ck_assert_int_le(i.started_ms, test_wall());
  ck_assert_int_eq(i.lease_ms, 0);
  ck_assert_int_eq(i.alive, 1);
}

/* The identity of a session, as z sees it. */
static const char *identity(zke *z, int64_t id) {
  static char text[256];
  zke_session_list *list = NULL;
  text[0] = '\0';
  ck_ok(zke_sessions(z, -1, &list));
  for (int i = 0; i < list->count; i++) {
    if (list->data[i].id == id)
      snprintf(text, sizeof text, "%s", list->data[i].identity);
  }
  zke_free(list);
  return text;
}

/* zkembed.h: a given identity is shown unchanged, and was copied. */
TEST_LOOP(identity_is_shown, 0, WAYS) {
  char name[] = "worker '7'; -- \xc3\xa4";
  zke_options options = {
      .size = sizeof options, .identity = name, .lease_ms = 60000};
  begin_with(_i, &options, NULL);
  memset(name, 'x', sizeof name - 1);
  ck_assert_str_eq(identity(b, zke_session_id(a)), "worker '7'; -- \xc3\xa4");
  ck_assert_int_eq(info(b, zke_session_id(a)).lease_ms, 60000);
}

/* zkembed.h: the default is the process's name, which Linux cuts at 15
 * bytes. */
TEST_LOOP(identity_defaults_to_the_process_name, 0, WAYS) {
  prctl(PR_SET_NAME, "a name that is long");
  begin(_i);
  ck_assert_str_eq(identity(b, zke_session_id(a)), "a name that is ");
}

/* ---- the keep-alive descriptor ---- */

/* zkembed.h: it is close-on-exec and the caller's, and does not prevent
 * zke_close() from ending the session. */
TEST(keepalive_descriptor_is_the_callers) {
  begin(IN_FILE);
  int64_t id = zke_session_id(a);
  int fd = -1;
  make_as(a, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_keepalive_fd(a, &fd));
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ck_ok(zke_close(a));
  ck_rc(see(b, "/e"), ZKE_NONODE);
  ck_assert(!lives(b, id));
  ck_assert_int_eq(close(fd), 0);
}

/* Closing it while the session lives changes nothing. */
TEST(keepalive_descriptor_may_be_closed) {
  begin(IN_FILE);
  int fd = -1;
  make_as(a, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_keepalive_fd(a, &fd));
  ck_assert_int_eq(close(fd), 0);
  int64_t end = test_now() + 600; /* more than two sweeps */
  while (test_now() < end) {
    ck_ok(zke_dispatch(b, NULL));
    ck_ok(see(b, "/e"));
    test_pause();
  }
  ck_assert_int_eq(info(b, zke_session_id(a)).alive, 1);
}

/* zkembed.h: in memory there is no other process to outlive. */
TEST(keepalive_descriptor_needs_a_file) {
  begin(IN_MEMORY);
  int fd = -7;
  ck_rc(zke_keepalive_fd(a, &fd), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(fd, -7);
}

/* ---- leases, on a clock of the test ---- */

enum { LEASE = 1000 };

static void move(int which, int64_t ms) { seam_apart[which] += ms * 1000000; }

/* a with a lease and an ephemeral /e, b without. */
static void begin_leased(int way) {
  static seam s;
  zke_options plain = {.size = sizeof plain, .os = seam_os(&s)}, leased = plain;
  leased.lease_ms = LEASE;
  seam_stand();
  begin_with(way, &leased, &plain);
  make_as(a, "/e", ZKE_EPHEMERAL);
}

/* Let time pass while z dispatches every 50 ms and sweeps when due. */
static void pass_with(zke *z, int64_t ms) {
  for (; ms > 0; ms -= 50) {
    seam_pass(50);
    ck_ok(see(z, "/"));
    ck_ok(zke_dispatch(z, NULL));
  }
}

/* zkembed.h: zke_sync() finds another handle's zke_expire() within a second. */
TEST_LOOP(sync_finds_the_end, 0, WAYS) {
  begin_leased(_i);
  ck_ok(zke_sync(a, "/e"));
  ck_ok(zke_sync(a, "/e"));
  ck_ok(zke_expire(b, zke_session_id(a)));
  move(ZKE_CLOCK_MONOTONIC, 1000);
  ck_rc(zke_sync(a, "/e"), _i ? ZKE_SESSIONEXPIRED : ZKE_INVALIDSTATE);
  ck_rc(zke_sync(a, "/e"), ZKE_INVALIDSTATE);
}

/* zkembed.h: a session that makes no call loses its lease and its
 * ephemerals. */
TEST_LOOP(silent_lease_runs_out, 0, WAYS) {
  begin_leased(_i);
  int64_t id = zke_session_id(a);
  ck_ok(zke_set_watcher(a, test_record, &seen));
  ck_ok(watch(b, "/e", &other));
  pass_with(b, LEASE - 100);
  ck_assert(lives(b, id));
  pass_with(b, LEASE + 500);
  ck_assert(!lives(b, id));
  test_expect(b, &other, "DELETED /e");
  int rc = create(a, "/e", ZKE_EPHEMERAL);
  ck_assert_msg(rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE, "%d", rc);
  test_expect(a, &seen, "SESSION -112");
  ck_rc(see(b, "/e"), ZKE_NONODE);
}

/* One kind of call that keeps a lease. */
static int call_in(int how) {
  switch (how) {
    case 0:
      return zke_dispatch(a, NULL);
    case 1:
      return see(a, "/e");
    case 2:
      return change(a, "/e");
    default:
      return zke_get(a, "/e", NULL, NULL, NULL, NULL, NULL);
  }
}

/* zkembed.h: any call keeps the lease: a dispatch, a read or a change. */
TEST_LOOP(calling_in_keeps_the_lease, 0, 4 * WAYS) {
  begin_leased(_i / 4);
  for (int i = 0; i < 20; i++) {
    pass_with(b, LEASE / 2);
    ck_ok(call_in(_i % 4));
  }
  ck_assert(lives(b, zke_session_id(a)));
  ck_ok(see(b, "/e"));
}

/* design.md 5: the time since boot counts, including a suspension, not the
 * monotonic clock. */
TEST_LOOP(lease_counts_on_the_boot_clock, 0, WAYS) {
  begin_leased(_i);
  int64_t id = zke_session_id(a);
  move(ZKE_CLOCK_MONOTONIC, 10 * LEASE);
  pass_with(b, 500);
  ck_assert(lives(b, id));
  move(ZKE_CLOCK_BOOTTIME, 10 * LEASE);
  pass_with(b, 1500); /* b may tick once a second (P6) */
  ck_assert(!lives(b, id));
}

/* P5: the wall clock does not matter. */
TEST_LOOP(wall_clock_ends_no_session, 0, WAYS) {
  begin_leased(_i);
  const int64_t years = INT64_C(10) * 365 * 86400 * 1000;
  static const int jump[] = {1, -2, 1};
  for (int i = 0; i < 3; i++) {
    move(ZKE_CLOCK_REALTIME, jump[i] * years);
    pass_with(b, LEASE / 2);
    ck_ok(see(a, "/e"));
    ck_assert(lives(b, zke_session_id(a)));
    ck_assert(lives(a, zke_session_id(b)));
  }
}

/* P5: a session without a lease lives however long it is silent. */
TEST_LOOP(session_without_lease_is_never_late, 0, WAYS) {
  begin_leased(_i);
  int64_t id = zke_session_id(b);
  make_as(b, "/b", ZKE_EPHEMERAL);
  for (int i = 0; i < 10; i++) {
    pass_with(a, 500);
    seam_pass(LEASE - 550);
  }
  ck_assert(lives(a, id));
  seam_pass(INT64_C(86400) * 365 * 1000);
  ck_ok(see(b, "/b"));
  ck_ok(zke_dispatch(b, NULL));
  ck_assert_int_eq(zke_state(b), ZKE_STATE_CONNECTED);
}

/* zkembed.h: a further session alone can have a lease. */
TEST(lease_is_of_one_session) {
  begin_leased(IN_MEMORY);
  zke *neighbour = test_session(a, NULL);
  make_as(neighbour, "/neighbour", ZKE_EPHEMERAL);
  pass_with(b, 3 * LEASE);
  ck_rc(see(b, "/e"), ZKE_NONODE);
  ck_ok(see(b, "/neighbour"));
  ck_ok(see(neighbour, "/neighbour"));
}

/* P7: a session that waits for an event checks for itself at least every
 * second, again and again; one that waits for nothing, and does not have the
 * duty, never does. */
TEST(watcher_makes_a_session_tick) {
  begin_leased(IN_FILE);
  pass_with(a, 100); /* takes the duty */
  ck_assert_int_eq(deadline_of(b), ZKE_FOREVER);
  ck_ok(watch(b, "/e", &other));
  for (int i = 0; i < 5; i++) {
    int64_t at = deadline_of(b), now = zke_now(b);
    ck_assert_msg(now <= at && at <= now + 1001, "%d ms", (int)(at - now));
    move(ZKE_CLOCK_MONOTONIC, at - now);
    ck_ok(zke_dispatch(b, NULL));
    ck_assert_int_gt(deadline_of(b), zke_now(b));
  }
}

static int sweeps; /* written stamps of sweeps */

static void count_sweep(seam_call *c) {
  sweeps += c->at == 8 && c->size == 8; /* doc/format.md, the liveness file */
}

/* A sweep checks every session, so the sessions of one store must not each
 * sweep at each tick. */
TEST(one_sweep_serves_all_sessions_of_a_store) {
  enum { MANY = 20, TICKS = 8 };
  static seam s = {.before = {[SEAM_pwrite] = count_sweep}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s)};
  zke *all[MANY];
  seam_stand();
  ck_ok(zke_open(test_path("a.db"), &o, &all[0]));
  for (int i = 1; i < MANY; i++) ck_ok(zke_open_session(all[0], NULL, &all[i]));
  for (int i = 0; i < MANY; i++) ck_ok(watch(all[i], "/", &other));
  pass_with(all[0], 1500); /* takes the duty */
  sweeps = 0;
  for (int tick = 0; tick < TICKS; tick++) {
    seam_pass(250);
    for (int i = 0; i < MANY; i++) ck_ok(zke_dispatch(all[i], NULL));
  }
  ck_assert_int_ge(sweeps, TICKS - 1);
  ck_assert_int_le(sweeps, TICKS);
}

/* doc/format.md: only a session with a lease has a slot for its stamp. */
TEST(session_without_lease_takes_no_slot) {
  begin_leased(IN_FILE);
  sqlite3_stmt *st = NULL;
  sqlite3 *db = plain_open(test_path("session.db"));
  ck_assert_int_eq(
      sqlite3_prepare_v2(
          db,
          "SELECT slot FROM zkembed_session WHERE id=?1 AND lease>0 "
          "UNION ALL SELECT slot FROM zkembed_session WHERE lease=0",
          -1, &st, NULL),
      SQLITE_OK);
  sqlite3_bind_int64(st, 1, zke_session_id(a));
  ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
  ck_assert_int_eq(sqlite3_column_int(st, 0), 0);
  ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
  ck_assert_int_eq(sqlite3_column_int(st, 0), -1);
  sqlite3_finalize(st);
}

/* The gate, held by another party, as described in doc/format.md 5. */
static int hold_gate(void) {
  int fd = open(test_path("session.db-zke/gate"), O_RDWR | O_CLOEXEC);
  struct flock first = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &first), 0);
  return fd;
}

static int live_file = -1;
static int leases;     /* stamps of leases in the file */
static int64_t oldest; /* of those, at the last look */

/* How old is the oldest stamp of a lease? */
static void look_at_leases(seam_call *c) {
  int64_t stamp;
  (void)c;
  for (int i = 0; i < leases; i++) {
    ck_assert_int_eq(pread(live_file, &stamp, sizeof stamp, 4096 + 8 * i),
                     sizeof stamp);
    int64_t age = seam_clock(ZKE_CLOCK_BOOTTIME) - stamp;
    if (age > oldest) oldest = age;
  }
}

/* The gate is about to be released: from here on others may judge. */
static void look_at_the_gate(seam_call *c) {
  if (c->how == ZKE_LOCK_NONE && c->at == 0) look_at_leases(c);
}

/* Session a with the usual lease, and a sibling with its own. */
static zke *begin_siblings(seam *s, int busy, int64_t lease) {
  zke_options plain = {.size = sizeof plain, .os = seam_os(s)}, leased = plain;
  leased.busy_timeout_ms = busy;
  leased.lease_ms = LEASE;
  zke *sibling = NULL;
  seam_stand();
  begin_with(IN_FILE, &leased, &plain);
  leased.lease_ms = lease;
  ck_ok(zke_open_session(a, &leased, &sibling));
  live_file = open(test_path("session.db-zke/live"), O_RDONLY | O_CLOEXEC);
  leases = 2;
  return sibling;
}

/* zkembed.h: a call keeps its lease while it waits for the gate, also a call
 * that ends another session (0), begins one (1) or compacts the file (2); the
 * lease used to expire.  The leases of the store's other sessions, which cannot
 * make calls meanwhile, do not expire either; they used to.  The store uses its
 * shortest lease, although a session with a longer one began last. */
TEST_LOOP(waiting_call_keeps_the_leases, 0, 3) {
  static seam s = {.after = {[SEAM_poll] = look_at_leases}};
  zke *z = NULL;
  begin_siblings(&s, 0, 10 * LEASE);
  int gate = hold_gate();
  if (_i == 0) ck_rc(zke_expire(a, 4711), ZKE_OPERATIONTIMEOUT);
  if (_i == 1) ck_rc(zke_open_session(a, NULL, &z), ZKE_OPERATIONTIMEOUT);
  if (_i == 2)
    ck_rc(zke_compact(a, zke_now(a) + 10 * LEASE), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_gt(oldest, 0);
  ck_assert_int_lt(oldest, INT64_C(1000000) * LEASE / 2);
  close(gate);
}

/* The same for a call that has the gate, and waits for a foreign writer. */
TEST(foreign_writer_keeps_the_leases) {
  static seam s = {.before = {[SEAM_lock_range] = look_at_the_gate}};
  begin_siblings(&s, 0, LEASE);
  sqlite3 *db = plain_open(test_path("session.db"));
  must(db, "BEGIN IMMEDIATE");
  int64_t now = zke_now(a);
  oldest = -1;
  ck_rc(create(a, "/n", ZKE_EPHEMERAL), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_gt(zke_now(a), now + 4 * LEASE);
  ck_assert_int_ge(oldest, 0);
  ck_assert_int_lt(oldest, INT64_C(1000000) * LEASE / 2);
}

/* … but a session that makes no call when it could loses its lease, however
 * long its siblings' calls wait. */
TEST(siblings_keep_no_lease) {
  static seam s = {.after = {[SEAM_poll] = look_at_leases}};
  zke *sibling = begin_siblings(&s, 2 * LEASE, LEASE);
  int64_t id = zke_session_id(sibling);
  for (int i = 0; i < 12; i++) {
    int gate = hold_gate();
    ck_rc(zke_expire(a, 4711), ZKE_OPERATIONTIMEOUT);
    close(gate);
    pass_with(b, 150);
    ck_ok(see(a, "/"));
    if (i == 4) ck_assert(lives(b, id));
  }
  ck_assert(!lives(b, id));
}

/* zkembed.h: zke_sleep() keeps it too; in an earlier version it did not. */
TEST(sleep_keeps_the_lease) {
  static seam s = {.after = {[SEAM_sleep] = look_at_leases}};
  begin_siblings(&s, 0, LEASE);
  leases = 1;
  int64_t until = zke_now(a) + 5 * LEASE;
  ck_ok(zke_sleep(a, until));
  ck_assert_int_ge(zke_now(a), until);
  ck_assert_int_gt(oldest, 0);
  ck_assert_int_lt(oldest, INT64_C(1000000) * LEASE / 2);
}

/* ms that the leases' clock advances at each reading of the other */
static int creeping;

static void creep(seam_call *c) {
  if (c->how == ZKE_CLOCK_MONOTONIC) move(ZKE_CLOCK_BOOTTIME, creeping);
}

/* P5: a compaction that takes longer than its store's leases ends none of them:
 * none of these sessions could make a call. */
TEST(compaction_keeps_the_leases) {
  static seam s = {.before = {[SEAM_clock] = creep}};
  zke_options plain = {.size = sizeof plain, .os = seam_os(&s)}, leased = plain;
  leased.lease_ms = LEASE;
  zke *sibling = NULL;
  seam_stand();
  begin_with(IN_FILE, &leased, &plain);
  ck_ok(zke_open_session(a, &leased, &sibling));
  creeping = LEASE;
  ck_ok(zke_compact(a, ZKE_FOREVER));
  creeping = 0;
  pass_with(b, LEASE / 2);
  ck_assert(lives(b, zke_session_id(a)));
  ck_assert(lives(b, zke_session_id(sibling)));
}

/* ---- one writer at a time ---- */

/* P10, doc/format.md 5: a writer holds the first byte of the gate file; while
 * another has it, a change waits, and a read does not. */
TEST(change_waits_for_the_one_writer) {
  zke_options brief = {.size = sizeof brief, .busy_timeout_ms = 20};
  begin_with(IN_FILE, &brief, NULL);
  make(b, "/n");
  int fd = hold_gate();
  ck_rc(change(a, "/n"), ZKE_OPERATIONTIMEOUT);
  ck_ok(see(a, "/n"));
  ck_assert_int_eq(close(fd), 0);
  ck_ok(change(a, "/n"));
}

/* ---- lost replies ---- */

enum { CREATE, DELETE, SET, MULTI, SET_ACL, KINDS };

/* One of the changing calls. */
static int do_change(int kind) {
  zke_op op;
  switch (kind) {
    case CREATE:
      return create(a, "/n/c", ZKE_PERSISTENT);
    case DELETE:
      return zke_delete(a, "/n/d", -1);
    case SET:
      return change(a, "/n");
    case MULTI:
      zke_op_set(&op, "/n", "x", 1, -1);
      return zke_multi(a, &op, 1, NULL);
    default:
      return zke_set_acl(a, "/n", -1, ZKE_OPEN_ACL, NULL);
  }
}

/* How often do_change() took effect, as b sees it. */
static int effects(int kind) {
  zke_stat stat = test_stat(b, "/n");
  if (kind == CREATE) return see(b, "/n/c") == ZKE_OK;
  if (kind == DELETE) return see(b, "/n/d") == ZKE_NONODE;
  return kind == SET_ACL ? stat.aversion : stat.version;
}

static void begin_changes(int way) {
  begin(way);
  make(b, "/n");
  make(b, "/n/d");
}

/* zkembed.h: a change is lost before it takes effect; the next one is made. */
TEST_LOOP(change_fails_before, 0, KINDS *WAYS) {
  begin_changes(_i / KINDS);
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_BEFORE, 0));
  ck_rc(do_change(_i % KINDS), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(effects(_i % KINDS), 0);
  ck_ok(do_change(_i % KINDS));
  ck_assert_int_eq(effects(_i % KINDS), 1);
}

/* zkembed.h: a change is lost after it took effect. */
TEST_LOOP(change_fails_after, 0, KINDS *WAYS) {
  begin_changes(_i / KINDS);
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(do_change(_i % KINDS), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(effects(_i % KINDS), 1);
  ck_assert_int_eq(zke_state(a), ZKE_STATE_CONNECTED);
  ck_ok(change(a, "/n"));
}

/* zkembed.h: `skip` lets changes succeed; reads and other sessions do not
 * count; only one change fails. */
TEST_LOOP(failure_skips_changes, 0, WAYS) {
  begin_changes(_i);
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_BEFORE, 2));
  ck_ok(change(a, "/n"));
  ck_ok(see(a, "/n"));
  ck_ok(change(b, "/n"));
  ck_ok(change(a, "/n"));
  ck_ok(change(b, "/n"));
  ck_ok(zke_sync(a, "/n"));
  ck_rc(change(a, "/n"), ZKE_CONNECTIONLOSS);
  ck_ok(change(a, "/n"));
  ck_assert_int_eq(effects(SET), 5);
}

/* zkembed.h: 0 cancels it. */
TEST_LOOP(failure_is_taken_back, 0, WAYS) {
  begin_changes(_i);
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_AFTER, 1));
  ck_ok(change(a, "/n"));
  ck_ok(zke_test_fail(a, 0, 0));
  ck_ok(change(a, "/n"));
  ck_assert_int_eq(effects(SET), 2);
}

/* zkembed.h: on failure no output is touched, even though the node is there
 * and its watch fires. */
TEST_LOOP(lost_reply_leaves_outputs, 0, WAYS) {
  begin_changes(_i);
  char *path = NULL;
  zke_stat stat = {.version = 77};
  ck_rc(watch(b, "/n/s-0000000001", &seen), ZKE_NONODE);
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(zke_create(a, "/n/s-", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   &path, &stat),
        ZKE_CONNECTIONLOSS);
  ck_assert_ptr_null(path);
  ck_assert_int_eq(stat.version, 77);
  test_expect(b, &seen, "CREATED /n/s-0000000001");
}

/* zkembed.h: a read's reply is lost too, and the read registers nothing;
 * changes do not count. */
TEST_LOOP(read_fails, 0, WAYS) {
  static const int counted[] = {0, 1, 2, 3, 4, 5, 6, 7, 9};
  enum { COUNTED = sizeof counted / sizeof *counted };
  begin_changes(_i);
  for (int i = 0; i < COUNTED; i++) {
    ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_READ, 1));
    ck_ok(change(a, "/n"));
    ck_ok(see(a, "/n"));
    ck_ok(zke_sync(a, "/n"));
    ck_ok(see(b, "/n"));
    ck_rc(do_read(counted[i]), ZKE_CONNECTIONLOSS);
    ck_ok(change(b, "/n"));
    test_expect(a, &seen, "");
    ck_ok(do_read(counted[i]));
    ck_ok(change(b, "/n"));
    test_expect(a, &seen,
                counted[i] == 3 || counted[i] == 4 ? "CHANGED /n" : "");
  }
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_AFTER, 1));
  ck_ok(see(a, "/n"));
  ck_ok(change(a, "/n"));
  ck_ok(see(a, "/n"));
  ck_rc(change(a, "/n"), ZKE_CONNECTIONLOSS);
  ck_ok(zke_test_fail(a, ZKE_TEST_FAIL_READ, 0));
  ck_ok(zke_test_fail(a, 0, 0));
  ck_ok(see(a, "/n"));
  ck_rc(zke_test_fail(a, ZKE_TEST_FAIL_READ + 1, 0), ZKE_BADARGUMENTS);
}
