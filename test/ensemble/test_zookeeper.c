/* test_zookeeper.c - zkembed.h on an ensemble (recipes/engine/zookeeper.h)
 *
 * The server is our own, `zke FILE serve`, unless ZKE_TEST_ENSEMBLE names
 * another, "127.0.0.1:2181": then tests that need no control of the server run
 * there, each below its own znode.  Tests that break the network have a proxy
 * before the server.  A server that misbehaves is a thread of the test.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <unistd.h>

#include "recipes/double_barrier.h"
#include "recipes/engine/jute.h"
#include "recipes/lock.h"
#include "recipes/periodic.h"
#include "recipes/two_phase.h"
#include "recipes/engine/zookeeper.h"
#include "test/ensemble/proxy.h"
#include "test/opened.h"
#include "test/server/wire.h"

/* ---- servers and names ---- */

/* The server and the znode of a test's handles. */
static struct ground {
  serving s; /* none, if it is another's */
  char name[200];
} here;

static const char *foreign(void) { return getenv("ZKE_TEST_ENSEMBLE"); }

static zke *open_as(const char *name, const zke_options *o) {
  zke *z;
  ck_ok(zke_register_engine(&zke_zookeeper));
  ck_ok(zke_open(name, o, &z));
  return z;
}

/* Start our own server on a file; it is stopped at the end of the test. */
static void begin_on(const char *file) {
  here.s = serve(file, "");
  snprintf(here.name, sizeof here.name, "zk://127.0.0.1:%d", here.s.port);
}

static void begin_own(void) { begin_on(":memory:"); }

/* The server, with a znode for this test. */
static void begin_ground(void) {
  char root[64];
  if (!foreign()) {
    begin_own();
    return;
  }
  snprintf(here.name, sizeof here.name, "zk://%s", foreign());
  snprintf(root, sizeof root, "/t%d-%lld", (int)getpid(),
           (long long)test_wall());
  zke *z = open_as(here.name, NULL);
  ck_ok(
      zke_create(z, root, NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_close(z));
  strcat(here.name, root);
}

static zke *open_ground(void) { return open_as(here.name, NULL); }

static int make(zke *z, const char *path, int mode) {
  return zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, NULL, NULL);
}

static int see(zke *z, const char *path) {
  return zke_exists(z, path, NULL, NULL, NULL);
}

/* What the default watcher and the logger get. */
typedef struct news {
  int states[64], count;
  char log[4000];
} news;

static void note_state(zke *z, int type, int state, const char *path,
                       void *context) {
  news *n = context;
  (void)z, (void)path;
  if (type == ZKE_EVENT_SESSION && n->count < 64) n->states[n->count++] = state;
}

static void note_log(void *context, int level, const char *text) {
  news *n = context;
  (void)level;
  snprintf(n->log + strlen(n->log), sizeof n->log - strlen(n->log), "%s\n",
           text);
}

static zke_options options_with(news *n) {
  zke_options o = ZKE_INIT(zke_options);
  o.watcher = note_state;
  o.watcher_context = n;
  o.log = note_log;
  o.log_context = n;
  return o;
}

/* ---- names ---- */

/* A malformed name is refused before connecting, and the sentence names the
 * mistake. */
TEST(a_malformed_name_is_refused_with_what_is_wrong) {
  static const struct {
    const char *name, *says;
  } bad[] = {{"zk://", "no host"},
             {"zk:///a", "no host"},
             {"zk://a,,b", "no host"},
             {"zk://:2181", "no host"},
             {"zk://a:", "no port"},
             {"zk://a:0", "no port"},
             {"zk://a:65536", "no port"},
             {"zk://a:2x", "no port"},
             {"zk://[::1", "no ]"},
             {"zk://[::1]2181", "neither"},
             {"zk://a/b/", "no path"},
             {"zk://a//b", "no path"},
             {"zk://a/../b", "no path"},
             {"zk://a?timeout=0", "timeout"},
             {"zk://a?timeout=", "timeout"},
             {"zk://a?timeout=99999999999999999999", "timeout"},
             {"zk://a?sync=2", "sync"},
             {"zk://a?thread=yes", "thread"},
             {"zk://a?synk=1", "unknown option"},
             {"zk://a?", "unknown option"}};
  ck_ok(zke_register_engine(&zke_zookeeper));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    zke *z = (zke *)&z;
    ck_rc(zke_open(bad[i].name, NULL, &z), ZKE_BADARGUMENTS);
    ck_assert_ptr_null(z);
    ck_says(bad[i].says);
  }
}

/* A name may have 64 servers, but not 65. */
TEST(a_name_has_so_many_servers) {
  zke *z;
  char name[2000] = "zk://127.0.0.1:1";
  zke_options o = ZKE_INIT(zke_options);
  ck_ok(zke_register_engine(&zke_zookeeper));
  o.busy_timeout_ms = 100;
  for (int i = 1; i < 64; i++) strcat(name, ",127.0.0.1:1");
  ck_rc(zke_open(name, &o, &z), ZKE_OPERATIONTIMEOUT);
  strcat(name, ",127.0.0.1:1");
  ck_rc(zke_open(name, &o, &z), ZKE_BADARGUMENTS);
  ck_says("too many servers");
}

/* A port without a server: the call times out and changes nothing. */
TEST(no_server_is_a_timeout) {
  zke *z;
  zke_options o = ZKE_INIT(zke_options);
  int64_t before = test_now();
  ck_ok(zke_register_engine(&zke_zookeeper));
  o.busy_timeout_ms = 200;
  ck_rc(zke_open("zk://127.0.0.1:1,[::1]:1", &o, &z), ZKE_OPERATIONTIMEOUT);
  ck_assert_ptr_null(z);
  ck_assert_int_ge(test_now() - before, 200);
}

/* A busy timeout that would overflow is refused, as on a file. */
TEST(a_busy_timeout_has_a_bound) {
  begin_ground();
  zke_options o = ZKE_INIT(zke_options);
  for (int i = 0; i < 2; i++) {
    const char *name = i ? ":memory:" : here.name;
    zke *z;
    ck_ok(zke_register_engine(&zke_zookeeper));
    o.busy_timeout_ms = INT64_MAX;
    ck_rc(zke_open(name, &o, &z), ZKE_BADARGUMENTS);
    ck_says("options.busy_timeout_ms is 9223372036854775807, not -1 to");
    o.busy_timeout_ms = INT64_MAX / 1000000;
    ck_ok(zke_open(name, &o, &z));
    ck_ok(see(z, "/"));
    ck_ok(zke_close(z));
  }
}

/* The options' chroot is below the name's: paths are shown without both, and no
 * path leads out of them. */
TEST(a_chroot_is_that_of_the_name_and_that_of_the_options) {
  begin_ground();
  char name[300], *path;
  zke_options o = ZKE_INIT(zke_options);
  zke *z = open_ground();
  ck_ok(make(z, "/a", ZKE_PERSISTENT));
  ck_ok(make(z, "/a/b", ZKE_PERSISTENT));
  snprintf(name, sizeof name, "%s/a?timeout=6000&sync=1", here.name);
  o.chroot = "/b";
  zke *below = open_as(name, &o);
  ck_ok(zke_create(below, "/c-", "x", 1, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT_SEQUENTIAL, &path, NULL));
  ck_assert_str_eq(path, "/c-0000000000");
  zke_free(path);
  ck_ok(see(z, "/a/b/c-0000000000"));
  ck_rc(zke_create(below, "/", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   NULL, NULL),
        ZKE_BADARGUMENTS);
  ck_says("leave the chroot");
  o.chroot = "/nobody";
  o.flags = ZKE_OPEN_EXISTING;
  zke *none;
  ck_rc(zke_open(name, &o, &none), ZKE_CANTOPEN);
}

/* A chroot in the name is neither made nor checked.  If it is missing, a call
 * that needs it reports that, and does not retry forever. */
TEST_LOOP(a_missing_chroot_is_not_made, 0, 2) {
  static const char *const paths[] = {"/p", "/a/p"};
  begin_ground();
  char name[300];
  zke_options o = ZKE_INIT(zke_options);
  snprintf(name, sizeof name, "%s/nobody?timeout=6000", here.name);
  zke *z = open_as(name, &o);
  ck_rc(zke_ensure_path(z, paths[_i], ZKE_PERSISTENT, ZKE_FOREVER), ZKE_NONODE);
}

/* ---- lost replies on request ---- */

/* zke_test_fail() and zke_discard() do on a server what they do on a file.
 * (ensemble.sh runs the texts of test/semantics on a server.) */
TEST_LOOP(replies_are_lost_as_on_a_file, 0, 2) {
  if (_i) begin_ground();
  zke *z = _i ? open_ground() : test_open(":memory:");
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_BEFORE, 0));
  ck_rc(make(z, "/f", ZKE_PERSISTENT), ZKE_CONNECTIONLOSS);
  ck_rc(see(z, "/f"), ZKE_NONODE);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 1));
  ck_ok(make(z, "/f", ZKE_PERSISTENT));
  ck_rc(make(z, "/g", ZKE_PERSISTENT), ZKE_CONNECTIONLOSS);
  ck_ok(see(z, "/g"));
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_READ, 0));
  ck_ok(zke_set(z, "/f", "1", 1, -1, NULL));
  ck_rc(see(z, "/f"), ZKE_CONNECTIONLOSS);
  ck_ok(see(z, "/f"));
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(make(z, "/f/e-", ZKE_EPHEMERAL_SEQUENTIAL), ZKE_CONNECTIONLOSS);
  ck_ok(make(z, "/f/e-", ZKE_EPHEMERAL_SEQUENTIAL));
  ck_assert_int_eq(test_stat(z, "/f").numChildren, 2);
  ck_ok(zke_discard(z, "/f/e-", ZKE_EPHEMERAL_SEQUENTIAL, 0));
  ck_assert_int_eq(test_stat(z, "/f").numChildren, 0);
  ck_ok(make(z, "/f/e", ZKE_EPHEMERAL));
  ck_ok(zke_discard(z, "/f/e", ZKE_EPHEMERAL, 12345));
  ck_ok(see(z, "/f/e"));
  ck_ok(zke_discard(z, "/f/e", ZKE_EPHEMERAL, 0));
  ck_rc(see(z, "/f/e"), ZKE_NONODE);
  ck_ok(zke_discard(z, "/g", ZKE_EPHEMERAL, 0));
  ck_ok(see(z, "/g"));
}

/* ---- sessions ---- */

/* Each session can be asked for its identity and its process, by itself and by
 * others; a closed session is gone.  Ephemerals of others cannot be listed. */
TEST(sessions_show_themselves) {
  begin_ground();
  zke_session_list *list;
  zke_options o = ZKE_INIT(zke_options);
  zke *z = open_ground(), *other;
  o.identity = "another one";
  ck_ok(zke_open_session(z, &o, &other));
  int64_t id = zke_session_id(other);
  ck_ok(zke_sessions(z, id, &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_str_eq(list->data[0].identity, "another one");
  ck_assert_int_eq(list->data[0].pid, getpid());
  zke_free(list);
  ck_ok(zke_sessions(other, id, &list));
  ck_assert_str_eq(list->data[0].identity, "another one");
  zke_free(list);
  bool seen = false;
  ck_ok(zke_sessions(z, -1, &list));
  for (int i = 0; i < list->count; i++) seen = seen || list->data[i].id == id;
  ck_assert(seen);
  zke_free(list);
  ck_ok(zke_close(other));
  ck_rc(zke_sessions(z, id, &list), ZKE_NONODE);
  zke_strings *paths;
  ck_rc(zke_ephemerals(z, id, NULL, &paths), ZKE_UNIMPLEMENTED);
}

/* The end is reported once to each pair and to the default watcher. */
TEST(the_end_of_a_session_is_told_once) {
  begin_ground();
  static news n;
  test_events pair = {0};
  zke_options o = options_with(&n);
  zke *z = open_as(here.name, &o), *other = open_ground();
  ck_ok(make(z, "/e", ZKE_EPHEMERAL));
  ck_ok(zke_exists(z, "/e", test_record, &pair, NULL));
  ck_ok(zke_children(z, "/", test_record, &pair, NULL, NULL));
  ck_ok(zke_expire(other, zke_session_id(z)));
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && n.count > 0 &&
               n.states[n.count - 1] == ZKE_STATE_EXPIRED,
           10000);
  ck_assert_int_eq(pair.at[pair.count - 1].state, ZKE_STATE_EXPIRED);
  int before = pair.count, news_before = n.count;
  ck_rc(zke_dispatch(z, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_dispatch_to(z, 1, NULL, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_eq(pair.count, before);
  ck_assert_int_eq(n.count, news_before);
  ck_assert_int_eq(zke_state(z), ZKE_STATE_EXPIRED);
  ck_rc(zke_get(z, "/e", NULL, NULL, NULL, NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_multi(z, NULL, 0, NULL), ZKE_MARSHALLINGERROR);
  ck_rc(zke_wait(z, zke_now(z) + 1000), ZKE_INVALIDSTATE);
  ck_rc(see(other, "/e"), ZKE_NONODE);
  ck_rc(zke_expire(other, 0x7777), ZKE_NONODE);
  ck_assert_str_eq(zke_errmsg(), "there is no session 0x7777");
  ck_ok(zke_close(z));
  ck_ok(zke_expire(other, zke_session_id(other)));
  ck_rc(zke_sync(other, "/"), ZKE_INVALIDSTATE);
}

/* A detached session keeps its ephemerals.  Attaching needs only its password;
 * after the session's close it fails. */
TEST(a_session_is_detached_and_attached_again) {
  begin_ground();
  unsigned char password[16], wrong[16] = {1};
  zke *z = open_ground(), *kept, *again;
  ck_ok(zke_open_session(z, NULL, &kept));
  ck_ok(make(kept, "/k", ZKE_EPHEMERAL));
  int64_t id = zke_session_id(kept);
  ck_ok(zke_password(kept, password));
  ck_ok(zke_touch(kept));
  ck_ok(zke_detach(kept));
  ck_ok(see(z, "/k"));
  ck_rc(zke_attach(z, id, wrong, NULL, &again), ZKE_SESSIONEXPIRED);
  ck_ok(zke_attach(z, id, password, NULL, &again));
  ck_assert_int_eq(zke_session_id(again), id);
  ck_ok(zke_close(again));
  ck_rc(see(z, "/k"), ZKE_NONODE);
  ck_rc(zke_attach(z, id, password, NULL, &again), ZKE_SESSIONEXPIRED);
}

/* An attach that fails leaves the session and all that it owns, for whatever
 * reason: here it already had the session. */
TEST(a_failed_attach_ends_nothing) {
  begin_ground();
  unsigned char password[16];
  zke_options o = ZKE_INIT(zke_options);
  zke *z = open_ground(), *kept, *again;
  ck_ok(zke_open_session(z, NULL, &kept));
  ck_ok(make(kept, "/k", ZKE_EPHEMERAL));
  int64_t id = zke_session_id(kept);
  ck_ok(zke_password(kept, password));
  ck_ok(zke_detach(kept));
  o.chroot = "/nobody";
  o.flags = ZKE_OPEN_EXISTING;
  ck_rc(zke_attach(z, id, password, &o, &again), ZKE_CANTOPEN);
  ck_assert_ptr_null(again);
  ck_ok(see(z, "/k"));
  ck_ok(zke_attach(z, id, password, NULL, &again));
  ck_ok(zke_close(again));
  ck_rc(see(z, "/k"), ZKE_NONODE);
}

static int64_t timeout_of(zke *z) {
  zke_session_list *list;
  ck_ok(zke_sessions(z, zke_session_id(z), &list));
  int64_t ms = list->data[0].lease_ms;
  zke_free(list);
  return ms;
}

/* An attach without a timeout keeps the session's timeout, and one with a
 * timeout sets it. */
TEST(an_attached_session_keeps_its_timeout) {
  begin_ground();
  unsigned char password[16];
  zke_options o = ZKE_INIT(zke_options);
  zke *z = open_ground(), *kept;
  o.timeout_ms = 16000;
  ck_ok(zke_open_session(z, &o, &kept));
  int64_t id = zke_session_id(kept);
  ck_assert_int_eq(timeout_of(kept), 16000);
  ck_ok(zke_password(kept, password));
  ck_ok(zke_detach(kept));
  ck_ok(zke_attach(z, id, password, NULL, &kept));
  ck_assert_int_eq(timeout_of(kept), 16000);
  ck_ok(zke_detach(kept));
  o.timeout_ms = 8000;
  ck_ok(zke_attach(z, id, password, &o, &kept));
  ck_assert_int_eq(timeout_of(kept), 8000);
}

/* Anybody may make a node among the nodes of sessions: an unreadable one hides
 * no others. */
TEST(a_hidden_node_hides_no_sessions) {
  begin_own();
  zke_acl none = {ZKE_PERM_DELETE, "world", "anyone"};
  zke_acls hidden = {1, &none};
  zke_session_list *list;
  zke *z = open_ground();
  open_ground();
  const char *path = "/zke-sessions/0000000000000001";
  ck_ok(zke_create(z, path, "", 0, &hidden, ZKE_PERSISTENT, NULL, NULL));
  ck_rc(zke_get(z, path, NULL, NULL, NULL, NULL, NULL), ZKE_NOAUTH);
  ck_ok(zke_sessions(z, -1, &list));
  ck_assert_int_eq(list->count, 2);
  zke_free(list);
}

/* Make the session one that could not register itself when it was opened. */
static void hide(zke *z) {
  char path[64];
  snprintf(path, sizeof path, "/zke-sessions/%016llx",
           (unsigned long long)zke_session_id(z));
  ck_ok(zke_delete(z, path, -1));
}

/* Parties meet even if their sessions are hidden from others. */
TEST(sessions_that_are_not_shown_enter_a_round) {
  begin_own();
  zke *z = open_ground(), *other = open_ground();
  zke_double_barrier *one, *two;
  hide(z);
  hide(other);
  ck_ok(zke_double_barrier_new(z, "/gate", 2, NULL, &one));
  ck_ok(zke_double_barrier_new(other, "/gate", 2, NULL, &two));
  ck_ok(zke_double_barrier_start(one, NULL, 0));
  ck_ok(zke_double_barrier_enter(two, NULL, 0, zke_now(other) + 5000, NULL));
  ck_ok(zke_double_barrier_enter(one, NULL, 0, zke_now(z) + 5000, NULL));
  zke_double_barrier_free(one);
  zke_double_barrier_free(two);
}

/* A hidden session holds a job, and others are told so immediately. */
TEST(a_job_of_a_session_that_is_not_shown_is_held) {
  begin_own();
  zke *z = open_ground(), *other = open_ground();
  zke_periodic_options o = ZKE_INIT(zke_periodic_options);
  zke_periodic *one, *two;
  zke_periodic_record *record;
  o.period_ms = 1;
  hide(z);
  ck_ok(zke_periodic_new(z, "/jobs", "a", &o, &one));
  ck_ok(zke_periodic_new(other, "/jobs", "a", &o, &two));
  ck_ok(zke_periodic_try(one));
  ck_rc(zke_periodic_try(two), ZKE_HELD);
  ck_ok(zke_periodic_get(other, "/jobs", "a", &record));
  ck_assert_int_eq(record->running, 1);
  zke_free(record);
  ck_ok(zke_periodic_release(one, 0));
  ck_ok(zke_periodic_acquire(two, zke_now(other) + 5000));
  zke_periodic_free(one);
  zke_periodic_free(two);
}

/* A participant with a hidden session counts as alive: its vote is held, the
 * last site's acknowledgement leaves the transaction to the coordinator, and
 * its name is held. */
TEST(a_transaction_of_a_session_that_is_not_shown_is_kept) {
  static const char *const sites[] = {"here", "there"};
  begin_own();
  zke *z = open_ground(), *other = open_ground();
  zke_two_phase_options o = ZKE_INIT(zke_two_phase_options);
  zke_two_phase *all, *one, *two, *more;
  zke_strings *names;
  o.form = ZKE_TWO_PHASE_EPHEMERAL;
  hide(z);
  ck_ok(zke_two_phase_begin(z, "/2pc", "x", "", 0, sites, 2, &o, &all));
  ck_ok(zke_two_phase_open(z, "/2pc", "x", "here", NULL, &one));
  ck_rc(zke_two_phase_open(other, "/2pc", "x", "here", NULL, &more), ZKE_HELD);
  ck_ok(zke_two_phase_open(other, "/2pc", "x", "there", NULL, &two));
  ck_ok(zke_two_phase_vote(one, ZKE_TWO_PHASE_COMMIT));
  ck_ok(zke_two_phase_vote(two, ZKE_TWO_PHASE_COMMIT));
  ck_ok(zke_two_phase_ack(one));
  ck_ok(zke_two_phase_ack(two));
  ck_ok(zke_two_phase_pending(other, "/2pc", NULL, NULL, NULL, &names));
  ck_assert_int_eq(names->count, 1);
  zke_free(names);
  ck_rc(zke_two_phase_begin(other, "/2pc", "x", "", 0, sites, 2, &o, &more),
        ZKE_HELD);
  ck_ok(zke_two_phase_ack(all));
  ck_rc(see(other, "/2pc/x"), ZKE_NONODE);
  zke_two_phase_free(one);
  zke_two_phase_free(two);
  zke_two_phase_free(all);
}

/* Operations of these types are refused, and so is the good one before them. */
static void expect_refused(zke *z, bool reads, const int *types, size_t size) {
  for (size_t i = 0; i < size / sizeof *types; i++) {
    zke_op ops[2];
    zke_op_result results[2] = {{0}};
    zke_op_get(&ops[0], "/");
    if (!reads)
      zke_op_create(&ops[0], "/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
    ops[1] = (zke_op){.type = types[i], .path = "/"};
    if (reads)
      ck_rc(zke_multi_read(z, ops, 2, results), ZKE_MARSHALLINGERROR);
    else
      ck_rc(zke_multi(z, ops, 2, results), ZKE_BADARGUMENTS);
    ck_says("type");
    zke_results_clear(results, 2);
  }
}

/* A type that belongs to the other call, or to no version, is refused with the
 * same code as on a file, and nothing is changed. */
TEST(an_operation_that_does_not_belong_is_refused) {
  static const int reads[] = {ZKE_OP_GET, ZKE_OP_CHILDREN, ZKE_OP_UNTOLD};
  static const int changes[] = {ZKE_OP_CREATE, ZKE_OP_DELETE, ZKE_OP_SET,
                                ZKE_OP_CHECK};
  static const int unknown[] = {0, ZKE_OP_SQL + 1, -1, INT32_MAX, INT32_MIN};
  begin_ground();
  zke *z = open_ground();
  expect_refused(z, false, reads, sizeof reads);
  expect_refused(z, true, changes, sizeof changes);
  expect_refused(z, false, unknown, sizeof unknown);
  expect_refused(z, true, unknown, sizeof unknown);
  ck_rc(see(z, "/a"), ZKE_NONODE);
}

/* A request that is too long for servers is not sent, neither now nor on any
 * later connection. */
TEST(what_is_too_long_for_a_server_is_refused) {
  enum { LONG = 2 << 20 };
  begin_ground();
  char *text = malloc(LONG + 1);
  static news n;
  zke_options o = options_with(&n);
  zke *z = open_as(here.name, &o);
  memset(text, 'p', LONG);
  text[0] = '/';
  text[LONG] = '\0';
  ck_rc(zke_add_auth(z, "digest", text, LONG), ZKE_BADARGUMENTS);
  ck_says("servers take");
  ck_rc(zke_discard(z, text, ZKE_EPHEMERAL, 0), ZKE_BADARGUMENTS);
  ck_says("servers take");
  ck_rc(zke_discard(z, text, ZKE_EPHEMERAL_SEQUENTIAL, 0), ZKE_BADARGUMENTS);
  ck_ok(make(z, "/a", ZKE_EPHEMERAL));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(n.count, 0);
  free(text);
}

/* ---- lost connections ---- */

/* A server, a proxy before it, and a handle through it. */
static struct broken {
  proxy p;
  news n;
  zke *z, *direct;
} b;

static void end_proxy(void *p) { proxy_end(p); }

static void begin_proxy(void) {
  ck_assert(proxy_start(&b.p, here.s.port));
  at_end(end_proxy, &b.p);
}

static zke *open_proxy(const char *more, const zke_options *o) {
  char name[80];
  snprintf(name, sizeof name, "zk://127.0.0.1:%d%s", b.p.port, more);
  return open_as(name, o);
}

static void begin_broken(void) {
  zke_options o = options_with(&b.n);
  begin_own();
  begin_proxy();
  b.direct = open_ground();
  b.z = open_proxy("", &o);
}

/* A session outlives its connection: its ephemerals and watches stay, and
 * changes made meanwhile are reported after reconnecting. */
TEST(a_lost_connection_ends_nothing) {
  begin_broken();
  test_events pair = {0};
  ck_ok(make(b.z, "/e", ZKE_EPHEMERAL));
  ck_ok(zke_get(b.z, "/e", test_record, &pair, NULL, NULL, NULL));
  ck_rc(zke_exists(b.z, "/new", test_record, &pair, NULL), ZKE_NONODE);
  ck_ok(zke_children(b.z, "/e", test_record, &pair, NULL, NULL));
  proxy_refuse(&b.p, true);
  proxy_cut(&b.p);
  ck_until(zke_dispatch(b.z, NULL) == ZKE_OK &&
               zke_state(b.z) == ZKE_STATE_CONNECTING,
           10000);
  ck_ok(zke_set(b.direct, "/e", "x", 1, -1, NULL));
  ck_ok(make(b.direct, "/new", ZKE_PERSISTENT));
  proxy_refuse(&b.p, false);
  ck_until(zke_wait(b.z, zke_now(b.z) + 10) != ZKE_INVALIDSTATE &&
               zke_state(b.z) == ZKE_STATE_CONNECTED && pair.count == 2,
           10000);
  test_expect(b.z, &pair, "CHANGED /e; CREATED /new");
  ck_ok(zke_dispatch(b.z, NULL));
  ck_assert_int_eq(b.n.count, 2);
  ck_assert_int_eq(b.n.states[0], ZKE_STATE_CONNECTING);
  ck_assert_int_eq(b.n.states[1], ZKE_STATE_CONNECTED);
  ck_ok(see(b.direct, "/e"));
  ck_assert_ptr_nonnull(strstr(b.n.log, "disconnected"));
}

/* A change returns one code if its reply is lost, and another if it was not
 * sent: then it was not made.  A read is sent again. */
TEST(what_a_loss_means_for_a_call) {
  begin_broken();
  ck_ok(make(b.z, "/a", ZKE_PERSISTENT));
  proxy_lose(&b.p, PROXY_AFTER, 0);
  ck_rc(zke_set(b.z, "/a", "1", 1, -1, NULL), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(test_stat(b.z, "/a").version, 1);
  proxy_lose(&b.p, PROXY_BEFORE, 0);
  ck_rc(zke_set(b.z, "/a", "2", 1, -1, NULL), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(test_stat(b.z, "/a").version, 1);
  proxy_refuse(&b.p, true);
  proxy_cut(&b.p);
  ck_until(zke_dispatch(b.z, NULL) == ZKE_OK &&
               zke_state(b.z) == ZKE_STATE_CONNECTING,
           10000);
  int64_t before = zke_limit(b.z, zke_now(b.z) + 100);
  ck_rc(zke_set(b.z, "/a", "3", 1, -1, NULL), ZKE_OPERATIONTIMEOUT);
  ck_rc(zke_get(b.z, "/a", NULL, NULL, NULL, NULL, NULL), ZKE_OPERATIONTIMEOUT);
  zke_limit(b.z, before);
  proxy_refuse(&b.p, false);
  ck_assert_int_eq(test_stat(b.z, "/a").version, 1);
}

/* A watch that stays may have missed something: its watcher is told. */
TEST(a_watch_that_stays_is_told_of_a_gap) {
  begin_broken();
  test_events stays = {0}, once = {0};
  zke_op op;
  zke_op_result before, after;
  ck_ok(make(b.z, "/a", ZKE_PERSISTENT));
  ck_ok(zke_add_watch(b.z, "/a", 1, test_record, &stays));
  ck_ok(zke_get(b.z, "/a", test_record, &once, NULL, NULL, NULL));
  zke_op_untold(&op, "/a", 100);
  ck_ok(zke_multi_read(b.z, &op, 1, &before));
  ck_ok(before.rc);
  proxy_cut(&b.p);
  ck_until(
      zke_wait(b.z, zke_now(b.z) + 10) != ZKE_INVALIDSTATE && stays.count > 0,
      10000);
  ck_assert_int_eq(stays.at[0].type, ZKE_EVENT_OVERFLOW);
  ck_assert_int_eq(once.count, 0);
  ck_ok(zke_multi_read(b.z, &op, 1, &after));
  ck_assert_int_ne(before.len, after.len);
  stays.count = 0;
  ck_ok(make(b.direct, "/a/b", ZKE_PERSISTENT));
  test_expect_within(b.z, &stays, "CREATED /a/b", 10000);
  zke_results_clear(&before, 1);
  zke_results_clear(&after, 1);
}

/* A discard without a connection is carried out when there is one again. */
TEST(a_discard_outlives_a_loss) {
  begin_broken();
  proxy_lose(&b.p, PROXY_AFTER, 0);
  ck_rc(zke_create(b.z, "/l-", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                   NULL, NULL),
        ZKE_CONNECTIONLOSS);
  proxy_refuse(&b.p, true);
  proxy_cut(&b.p);
  int64_t before = zke_limit(b.z, zke_now(b.z) + 100);
  ck_rc(zke_discard(b.z, "/l-", ZKE_EPHEMERAL_SEQUENTIAL, 0),
        ZKE_OPERATIONTIMEOUT);
  ck_rc(zke_set(b.z, "/", "", 0, -1, NULL), ZKE_OPERATIONTIMEOUT);
  zke_limit(b.z, before);
  proxy_refuse(&b.p, false);
  ck_until(
      zke_wait(b.z, zke_now(b.z) + 10) != ZKE_INVALIDSTATE &&
          zke_exists(b.direct, "/l-0000000000", NULL, NULL, NULL) == ZKE_NONODE,
      10000);
  ck_ok(zke_set(b.z, "/", "", 0, -1, NULL));
}

/* A discard's delete, with its connection broken, is sent again by the next
 * one: the program gets its result, and a later change is made. */
TEST_LOOP(a_discard_goes_on_after_a_lost_reply, 0, 4) {
  begin_broken();
  ck_ok(make(b.z, "/e", ZKE_EPHEMERAL));
  if (_i & 2) {
    proxy_freeze(&b.p, true);
    int64_t before = zke_limit(b.z, zke_now(b.z) + 50);
    ck_rc(zke_discard(b.z, "/e", ZKE_EPHEMERAL, 0), ZKE_OPERATIONTIMEOUT);
    zke_limit(b.z, before);
  }
  proxy_lose(&b.p, _i & 1 ? PROXY_AFTER : PROXY_BEFORE, 0);
  if (_i & 2) {
    proxy_freeze(&b.p, false);
    ck_ok(zke_set(b.z, "/", "", 0, -1, NULL));
  } else {
    ck_ok(zke_discard(b.z, "/e", ZKE_EPHEMERAL, 0));
  }
  ck_assert_int_eq(proxy_lost(&b.p), 1);
  ck_rc(see(b.direct, "/e"), ZKE_NONODE);
}

/* A server is killed, and comes back on its file at another port. */
TEST(a_session_goes_on_after_the_server_was_killed) {
  begin_on(test_path("db"));
  begin_proxy();
  zke *z = open_proxy("", NULL);
  int64_t id = zke_session_id(z);
  ck_ok(make(z, "/e", ZKE_EPHEMERAL));
  kill(here.s.pid, SIGKILL);
  ended(here.s);
  here.s = serve(test_path("db"), "");
  proxy_aim(&b.p, here.s.port);
  ck_assert_int_eq(test_stat(z, "/e").version, 0); /* reads wait for it */
  ck_ok(zke_set(z, "/e", "x", 1, -1, NULL));
  ck_assert_int_eq(zke_session_id(z), id);
  ck_assert_int_eq(test_stat(z, "/e").ephemeralOwner, id);
}

/* The client gives up a server that has gone silent. */
TEST(a_silent_server_is_given_up) {
  begin_broken();
  zke *z = open_proxy("?timeout=600", NULL);
  proxy_freeze(&b.p, true);
  ck_rc(zke_set(z, "/", "x", 1, -1, NULL), ZKE_CONNECTIONLOSS);
  proxy_freeze(&b.p, false);
  ck_ok(zke_set(z, "/", "x", 1, -1, NULL));
}

/* Pings keep an idle session: the program only uses the descriptor. */
TEST(an_idle_session_lives_by_its_descriptor) {
  begin_own();
  char name[300];
  static news n;
  zke_options o = options_with(&n);
  snprintf(name, sizeof name, "%s?timeout=500", here.name);
  zke *z = open_as(name, &o);
  int64_t end = test_now() + 2500;
  struct pollfd p = {.events = POLLIN};
  ck_ok(zke_fd(z, &p.fd));
  while (test_now() < end) {
    ck_assert_int_ge(poll(&p, 1, 1000), 0);
    ck_ok(zke_dispatch(z, NULL));
  }
  ck_assert_int_eq(n.count, 0);
  ck_ok(see(z, "/"));
}

/* ---- servers that misbehave ---- */

/* A server in a thread: it greets, and answers the first request by bytes. */
typedef struct liar {
  int fd, port;
  pthread_t thread;
  const char *bytes;
  size_t len;
  bool greets;
  atomic_int taken; /* connections */
  atomic_bool over;
} liar;

/* Read a frame and its length, or nothing. */
static bool liar_read(int fd, char *frame, size_t size) {
  char head[4];
  if (recv(fd, head, 4, MSG_WAITALL) != 4) return false;
  int32_t len = zke_jute_length(head);
  if (len < 0 || (size_t)len > size) return false;
  return recv(fd, frame, (size_t)len, MSG_WAITALL) == len;
}

static void liar_greet(int fd) {
  zke_jute_writer w = {0};
  zke_jute_connect_response hello = {0, 4000, 0x1234, {16, "0123456789abcdef"}};
  size_t at = zke_jute_begin(&w);
  zke_jute_write(&w, &zke_jute_of_connect_response, &hello);
  zke_jute_end(&w, at);
  send(fd, w.data, w.len, MSG_NOSIGNAL);
  zke_jute_writer_free(&w);
}

static void *liar_run(void *arg) {
  liar *l = arg;
  char frame[4096];
  while (!l->over) {
    struct pollfd p = {.fd = l->fd, .events = POLLIN};
    if (poll(&p, 1, 20) <= 0) continue;
    int fd = accept(l->fd, NULL, NULL);
    l->taken++;
    if (liar_read(fd, frame, sizeof frame)) {
      if (l->greets) liar_greet(fd);
      if (!l->greets || liar_read(fd, frame, sizeof frame))
        send(fd, l->bytes, l->len, MSG_NOSIGNAL);
    }
    close(fd);
  }
  return NULL;
}

static void liar_begin(liar *l, const char *bytes, size_t len, bool greets) {
  struct sockaddr_in a = {.sin_family = AF_INET};
  socklen_t size = sizeof a;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  l->bytes = bytes;
  l->len = len;
  l->greets = greets;
  l->taken = 0;
  l->over = false;
  l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ck_assert_int_eq(bind(l->fd, (struct sockaddr *)&a, sizeof a), 0);
  ck_assert_int_eq(listen(l->fd, 8), 0);
  ck_assert_int_eq(getsockname(l->fd, (struct sockaddr *)&a, &size), 0);
  l->port = ntohs(a.sin_port);
  ck_assert_int_eq(pthread_create(&l->thread, NULL, liar_run, l), 0);
}

static void liar_end(liar *l) {
  l->over = true;
  pthread_join(l->thread, NULL);
  close(l->fd);
}

#define BYTES(text) \
  { text, sizeof text - 1 }
static const struct {
  const char *bytes;
  size_t len;
} lies[] = {
    BYTES(""),                 /* it closes */
    BYTES("\x7f\xff\xff\xff"), /* 2 GiB */
    BYTES("\xff\xff\xff\xff"),
    BYTES("\0\0\0\x10\0\0"),                               /* half a frame */
    BYTES("\0\0\0\2\0\0"),                                 /* half a header */
    BYTES("\0\0\0\x10\0\0\0\x63\0\0\0\0\0\0\0\1\0\0\0\0"), /* xid 99 */
    BYTES("\0\0\0\x10\xff\xff\xff\x9d\0\0\0\0\0\0\0\1\0\0\0\0"),
    BYTES("\0\0\0\x10\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0"), /* before its sync */
    BYTES("\0\0\0\x14\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"
          "\0\0\0\1"), /* half an event */
    BYTES("\0\0\0\x1c\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"
          "\0\0\0\1\0\0\0\3\x7f\0\0\0"), /* an event's path of 2 GiB */
    BYTES("\0\0\0\x10\xff\xff\xff\xf8\0\0\0\0\0\0\0\1\xff\xff\xff\xff"),
    BYTES("HTTP/1.1 400 Bad Request\r\n\r\n")};

/* Only a read is sent again, until its time is over. */
TEST_LOOP(a_lie_ends_the_connection, 0, sizeof lies / sizeof *lies) {
  liar l;
  char name[64];
  static news n;
  zke_options o = options_with(&n);
  zke_stat s;
  o.busy_timeout_ms = 300;
  o.flags = ZKE_OPEN_READONLY;
  liar_begin(&l, lies[_i].bytes, lies[_i].len, true);
  snprintf(name, sizeof name, "zk://127.0.0.1:%d", l.port);
  zke *z = open_as(name, &o);
  int64_t before = zke_limit(z, zke_now(z) + 300);
  ck_rc(zke_exists(z, "/", NULL, NULL, &s), ZKE_OPERATIONTIMEOUT);
  zke_limit(z, before);
  ck_assert_ptr_nonnull(strstr(n.log, "disconnected: "));
  ck_assert_int_gt(l.taken, 1);
  ck_ok(zke_close(z));
  liar_end(&l);
}

/* A change is not sent again. */
TEST(a_change_that_is_answered_by_a_lie_may_have_been_made) {
  liar l;
  char name[64];
  zke *z;
  liar_begin(&l, lies[1].bytes, lies[1].len, true);
  snprintf(name, sizeof name, "zk://127.0.0.1:%d", l.port);
  z = open_as(name, NULL); /* its session registers by a create */
  ck_rc(zke_create(z, "/a", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL),
        ZKE_CONNECTIONLOSS);
  ck_ok(zke_close(z));
  liar_end(&l);
}

/* A peer that answers anything but a whole greeting is no server: opening ends
 * in time. */
TEST_LOOP(what_does_not_greet_is_no_server, 0, 3) {
  static const char *const greetings[] = {
      "HTTP/1.1 400 Bad Request\r\n\r\n", "",
      "\0\0\0\x24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10"};
  static const size_t lengths[] = {28, 0, 24};
  liar l;
  zke *z;
  char name[64];
  zke_options o = ZKE_INIT(zke_options);
  o.busy_timeout_ms = 200;
  liar_begin(&l, greetings[_i], lengths[_i], false);
  snprintf(name, sizeof name, "zk://127.0.0.1:%d", l.port);
  ck_ok(zke_register_engine(&zke_zookeeper));
  ck_rc(zke_open(name, &o, &z), ZKE_OPERATIONTIMEOUT);
  liar_end(&l);
}

/* ---- threads, fork, waiting ---- */

enum { RAISES = 50, RAISERS = 4 };

static void *raise_number(void *arg) {
  zke *z = arg;
  for (int i = 0; i < RAISES; i++) {
    int rc;
    do {
      char *text, number[32];
      zke_stat s;
      rc = zke_get(z, "/n", NULL, NULL, &text, NULL, &s);
      if (rc != ZKE_OK) break;
      int len = snprintf(number, sizeof number, "%d", atoi(text) + 1);
      zke_free(text);
      rc = zke_set(z, "/n", number, len, s.version, NULL);
    } while (rc == ZKE_BADVERSION);
    if (rc != ZKE_OK) return z;
  }
  return NULL;
}

/* Threads that change one node by its version on one handle lose no change. */
TEST(threads_share_a_handle) {
  begin_ground();
  zke *z = open_ground();
  pthread_t threads[RAISERS];
  char *text;
  ck_ok(zke_create(z, "/n", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  for (int i = 0; i < RAISERS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, raise_number, z), 0);
  for (int i = 0; i < RAISERS; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    ck_assert_ptr_null(failed);
  }
  ck_ok(zke_get(z, "/n", NULL, NULL, &text, NULL, NULL));
  ck_assert_int_eq(atoi(text), RAISES * RAISERS);
  zke_free(text);
}

/* A set with -2 skips -1 by itself, alone (0) and in a multi, whatever the
 * server does; its results are those of one set. */
TEST_LOOP(no_set_makes_the_version_minus_one, 0, 2) {
  const char *db = test_path("db");
  begin_on(db);
  zke_op ops[3];
  zke_op_result r[3];
  zke_stat stat;
  char *text;
  zke *z = open_ground();
  ck_ok(zke_create(z, "/n", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  zke_op_create(&ops[0], "/m", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_set(&ops[1], "/n", "a", 1, -2);
  zke_op_check(&ops[2], "/n", -2);
  ck_rc(zke_set(z, "/n", "a", 1, -2, &stat), ZKE_BADVERSION);
  ck_rc(zke_multi(z, ops, 3, r), ZKE_BADVERSION);
  ck_assert_str_eq(zke_errmsg(), "/n: bad version");
  ck_assert_int_eq(r[1].rc, ZKE_BADVERSION);
  ck_assert_int_eq(r[2].rc, ZKE_RUNTIMEINCONSISTENCY);
  zke_results_clear(r, 3);
  test_set_version(db, "/n", -2);
  ck_rc(zke_multi(z, ops, 3, r), ZKE_BADVERSION);
  ck_assert_int_eq(r[2].rc, ZKE_BADVERSION);
  ck_assert_int_eq(r[1].rc, 0);
  zke_results_clear(r, 3);
  if (_i) {
    ck_ok(zke_multi(z, ops, 2, r));
    ck_assert_str_eq(r[0].path, "/m");
    stat = r[1].stat;
    zke_results_clear(r, 2);
  } else {
    ck_ok(zke_set(z, "/n", "a", 1, -2, &stat));
  }
  ck_assert_int_eq(stat.version, 1); /* the server skipped it, too */
  ck_ok(zke_get(z, "/n", NULL, NULL, &text, NULL, &stat));
  ck_assert_str_eq(text, "a");
  ck_assert_int_eq(stat.version, 1);
  zke_free(text);
}

/* A wait without events ends at its deadline, not before. */
TEST(a_wait_ends_in_time) {
  begin_ground();
  zke *z = open_ground();
  int64_t now = zke_now(z);
  ck_rc(zke_wait(z, now + 50), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(zke_now(z), now + 50);
}

static void come_back(zke *z, int type, int state, const char *path,
                      void *context) {
  test_events *e = context;
  test_record(z, type, state, path, e);
  if (e->count < 3) zke_call_at(z, zke_now(z) + 20, come_back, e);
}

/* An alarm comes in a wait, even one that a watcher has set. */
TEST(alarms_come) {
  begin_ground();
  zke *z = open_ground();
  test_events e = {0};
  ck_ok(zke_call_at(z, zke_now(z) + 20, come_back, &e));
  while (e.count < 3) ck_ok(zke_wait(z, zke_now(z) + 5000));
  ck_assert_int_eq(e.at[2].type, ZKE_EVENT_ALARM);
  ck_ok(zke_forget(z, come_back, &e));
}

static int use_copy(void *arg) {
  zke *z = arg;
  int fd;
  if (zke_get(z, "/", NULL, NULL, NULL, NULL, NULL) != ZKE_FORKED) return 1;
  if (zke_wait(z, zke_now(z) + 10) != ZKE_FORKED) return 2;
  if (zke_fd(z, &fd) != ZKE_FORKED) return 3;
  if (zke_state(z) != ZKE_STATE_CLOSED) return 4;
  return zke_close(z) == ZKE_FORKED ? 0 : 5;
}

/* In a forked child every call on the parent's handle is refused, and the
 * parent's connection is not disturbed. */
TEST(a_child_has_no_handle) {
  begin_ground();
  zke *z = open_ground();
  ck_assert_int_eq(test_child_end(test_child(use_copy, z)), 0);
  ck_ok(see(z, "/"));
}

static void close_inside(zke *z, int type, int state, const char *path,
                         void *context) {
  (void)type, (void)state, (void)path;
  *(int *)context = zke_close(z);
}

/* Closing a handle in its own callback is refused, and the handle still
 * works. */
TEST(a_callback_does_not_close_its_handle) {
  begin_ground();
  zke *z = open_ground();
  int rc = 0;
  ck_ok(zke_call_at(z, 0, close_inside, &rc));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(rc, ZKE_MISUSE);
  ck_ok(zke_forget(z, close_inside, &rc));
}

/* For zke_op_sql(); it is never called. */
static int no_sql(struct sqlite3 *db, int64_t zxid, void *context) {
  (void)db;
  (void)zxid;
  return *(int *)context = 1;
}

/* A multi with SQL is refused as a whole, and so is a multi_read. */
TEST(sql_needs_a_file) {
  begin_ground();
  zke *z = open_ground();
  zke_op ops[2];
  zke_op_result result;
  int called = 0;
  zke_op_create(&ops[0], "/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_sql(&ops[1], no_sql, &called);
  ck_rc(zke_multi(z, ops, 2, NULL), ZKE_UNIMPLEMENTED);
  ck_says("operation 1: an ensemble has no tables for SQL");
  ck_rc(see(z, "/a"), ZKE_NONODE);
  ck_rc(zke_multi_read(z, &ops[1], 1, &result), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(called, 0);
}

/* ---- recipes: what `make test-ensemble` does not show ---- */

/* Two sites on an ensemble reach one decision, with operations in the votes and
 * the acknowledgement; if SQL is among them they are refused before anything is
 * done. */
TEST(two_sites_commit_together) {
  static const char *const sites[] = {"here", "there"};
  begin_ground();
  zke *z = open_ground(), *other = open_ground();
  zke_two_phase *all, *one, *two;
  zke_op op;
  int decision = 0, done = -1;
  int called = 0;
  ck_ok(zke_two_phase_begin(z, "/2pc", "x", "", 0, sites, 2, NULL, &all));
  ck_ok(zke_two_phase_open(z, "/2pc", "x", "here", NULL, &one));
  ck_ok(zke_two_phase_open(other, "/2pc", "x", "there", NULL, &two));
  zke_op_sql(&op, no_sql, &called);
  ck_rc(zke_two_phase_vote_with(one, ZKE_TWO_PHASE_COMMIT, &op, 1, NULL, NULL),
        ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(called, 0);
  zke_op_create(&op, "/row", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(
      zke_two_phase_vote_with(one, ZKE_TWO_PHASE_COMMIT, &op, 1, NULL, &done));
  ck_assert_int_eq(done, ZKE_TWO_PHASE_DONE);
  ck_ok(zke_two_phase_vote(two, ZKE_TWO_PHASE_COMMIT));
  ck_ok(zke_two_phase_wait(all, zke_now(z) + 5000, &decision));
  ck_assert_int_eq(decision, ZKE_TWO_PHASE_COMMIT);
  ck_ok(zke_two_phase_wait(two, zke_now(z) + 5000, &decision));
  ck_assert_int_eq(decision, ZKE_TWO_PHASE_COMMIT);
  zke_op_set(&op, "/row", "sold", 4, 0);
  ck_ok(zke_two_phase_ack_with(one, &op, 1, NULL, &done));
  ck_assert_int_eq(done, ZKE_TWO_PHASE_DONE);
  zke_two_phase_free(one);
  zke_two_phase_free(two);
  zke_two_phase_free(all);
}

/* A waiter, which must not be refused though others' ephemerals are unknown. */
static void *acquire_and_release(void *arg) {
  zke_lock *lock = arg;
  int rc = zke_lock_acquire(lock, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_lock_release(lock);
  return (void *)(intptr_t)rc;
}

/* An ensemble lists nobody's ephemerals for others, so deadlocks cannot be
 * found.  A call that could be part of one waits nevertheless. */
TEST(a_lock_is_waited_for_while_another_is_held) {
  begin_ground();
  zke *z = open_ground(), *other = open_ground();
  zke_lock *a, *next, *mine;
  pthread_t waiter;
  void *rc;
  ck_ok(zke_lock_new(z, "/a", NULL, &a));
  ck_ok(zke_lock_new(other, "/b", NULL, &mine));
  ck_ok(zke_lock_new(other, "/a", NULL, &next));
  ck_ok(zke_lock_acquire(a, zke_now(z) + 5000));
  ck_ok(zke_lock_acquire(mine, zke_now(z) + 5000));
  pthread_create(&waiter, NULL, acquire_and_release, next);
  zke_party_list *list = NULL;
  ck_until((zke_free(list), zke_lock_parties(z, "/a", &list) == ZKE_OK) &&
               list->count == 2,
           10000);
  zke_free(list);
  ck_ok(zke_lock_release(a));
  pthread_join(waiter, &rc);
  ck_assert_ptr_null(rc);
  zke_lock_free(a);
  zke_lock_free(next);
  zke_lock_free(mine);
}
