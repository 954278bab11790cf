/* test_zk_faults.c - the engine of an ensemble when something goes wrong
 *
 * These are faults that test_zookeeper.c cannot show with a good server:
 * servers with wrong answers (stub.h), and threads that meet inside a handle.
 */
#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/engine/compose.h"
#include "recipes/engine/jute.h"
#include "recipes/engine/zookeeper.h"
#include "test/ensemble/proxy.h"
#include "test/ensemble/stub.h"
#include "test/opened.h"
#include "test/server/wire.h"

/* ---- what the tests share ---- */

static zke *open_named(const char *name, const zke_options *o) {
  zke *z;
  ck_ok(zke_register_engine(&zke_zookeeper));
  ck_ok(zke_open(name, o, &z));
  return z;
}

/* Open on a port of this host; more: options of the name. */
static zke *open_port(int port, const char *more, const zke_options *o) {
  char name[100];
  snprintf(name, sizeof name, "zk://127.0.0.1:%d%s", port, more);
  return open_named(name, o);
}

static serving server;
static proxy way; /* to it */
static stub s;

static void end_way(void *unused) {
  (void)unused;
  proxy_end(&way);
}

static void end_stub(void *unused) {
  (void)unused;
  stub_end(&s);
}

/* The server, the proxy and the stub end with the test. */
static void begin_server(const char *options) {
  server = serve(":memory:", options);
}

static void begin_way(void) {
  begin_server("");
  ck_assert(proxy_start(&way, server.port));
  at_end(end_way, NULL);
}

static void begin_stub(void) {
  stub_begin(&s);
  at_end(end_stub, NULL);
}

/* The states that the default watcher gets. */
static struct told {
  int states[64];
  atomic_int count;
} t;

static void note_state(zke *z, int type, int state, const char *path,
                       void *context) {
  (void)z, (void)path, (void)context;
  if (type == ZKE_EVENT_SESSION && t.count < 64) t.states[t.count++] = state;
}

static zke_options told_options(void) {
  zke_options o = ZKE_INIT(zke_options);
  o.watcher = note_state;
  return o;
}

static int64_t cpu_ms(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (int64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 +
         (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

/* A call in another thread, and its result. */
typedef struct call_apart {
  zke *z;
  pthread_t thread;
  atomic_int tid;
  atomic_bool begun, over;
  atomic_int rc;
} call_apart;

/* In the thread: note that its call now begins. */
static call_apart *apart(void *arg) {
  call_apart *c = arg;
  c->tid = test_thread();
  c->begun = true;
  return c;
}

static void begin_apart(call_apart *c, zke *z, void *(*body)(void *)) {
  *c = (call_apart){.z = z};
  ck_assert_int_eq(pthread_create(&c->thread, NULL, body, c), 0);
  ck_until(c->begun, 10000);
}

/* The same, until it sleeps inside the call. */
static void begin_asleep(call_apart *c, zke *z, void *(*body)(void *)) {
  begin_apart(c, z, body);
  ck_until(test_state(c->tid) == 'S', 10000);
}

static int end_apart(call_apart *c) {
  pthread_join(c->thread, NULL);
  return c->rc;
}

/* ---- lost replies ---- */

static void *set_apart(void *arg) {
  call_apart *c = apart(arg);
  c->rc = zke_set(c->z, "/a", "x", 1, -1, NULL);
  return NULL;
}

/* A program that looks after a lost reply whether its change was made sees no
 * older state, even with sync=0. */
TEST(reads_behind_a_lost_reply_are_synced) {
  call_apart set;
  begin_stub();
  zke *z = open_port(s.port, "?sync=0", NULL);
  ck_ok(zke_exists(z, "/a", NULL, NULL, NULL));
  ck_assert_int_eq(s.syncs, 0);
  s.silent = true;
  begin_asleep(&set, z, set_apart);
  stub_cut(&s);
  s.silent = false;
  ck_rc(end_apart(&set), ZKE_CONNECTIONLOSS);
  ck_ok(zke_exists(z, "/a", NULL, NULL, NULL));
  ck_assert_int_eq(s.syncs, 1);
  ck_ok(zke_exists(z, "/a", NULL, NULL, NULL));
  ck_assert_int_eq(s.syncs, 1);
}

/* ---- a server with wrong answers ---- */

/* A greeting with another session means that ours is over: what it owned is
 * gone. */
TEST(another_session_than_ours_is_not_taken_for_ours) {
  zke_options o = told_options();
  begin_stub();
  zke *z = open_port(s.port, "", &o);
  int64_t id = zke_session_id(z);
  s.session = 0x9999;
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && t.count > 0 &&
               t.states[t.count - 1] != ZKE_STATE_CONNECTING,
           10000);
  ck_assert_int_eq(t.states[t.count - 1], ZKE_STATE_EXPIRED);
  ck_assert_int_eq(zke_session_id(z), id);
  ck_rc(zke_exists(z, "/", NULL, NULL, NULL), ZKE_INVALIDSTATE);
}

/* Two ensembles give their sessions the same number. Each handle uses it to end
 * its own session, and not the other ensemble's. */
TEST(a_session_of_another_ensemble_is_not_ended) {
  stub two[2];
  zke *z[3];
  for (int i = 0; i < 2; i++) {
    stub_begin(&two[i]);
    z[i] = open_port(two[i].port, "", NULL);
  }
  int64_t id = zke_session_id(z[0]);
  ck_assert(zke_session_id(z[1]) == id);
  two[1].session = 0x7777;
  z[2] = open_port(two[1].port, "", NULL);
  ck_ok(zke_close(z[1]));
  ck_assert_int_ne(zke_expire(z[2], id), ZKE_OK);
  ck_ok(zke_exists(z[0], "/", NULL, NULL, NULL));
  two[1].session = (int)id;
  z[1] = open_port(two[1].port, "", NULL);
  ck_ok(zke_expire(z[0], id));
  ck_rc(zke_exists(z[0], "/", NULL, NULL, NULL), ZKE_INVALIDSTATE);
  ck_ok(zke_exists(z[1], "/", NULL, NULL, NULL));
  ck_ok(zke_expire(z[2], id));
  ck_rc(zke_exists(z[1], "/", NULL, NULL, NULL), ZKE_INVALIDSTATE);
  for (int i = 0; i < 3; i++) ck_ok(zke_close(z[i]));
  for (int i = 0; i < 2; i++) stub_end(&two[i]);
}

/* Watchers hear what a server reports of nodes, but never events of types that
 * only the client makes. */
TEST_LOOP(an_event_of_no_known_type_is_told_to_nobody, 0, 4) {
  static const int types[] = {-1, -3, -4, 99};
  static char frame[] =
      "\0\0\0\x1e\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"
      "\0\0\0\0\0\0\0\3\0\0\0\2/x";
  test_events e = {0};
  zke_stat stat;
  for (int i = 0; i < 4; i++)
    frame[20 + i] = (char)((uint32_t)types[_i] >> (24 - 8 * i) & 0xff);
  begin_stub();
  zke *z = open_port(s.port, "", NULL);
  ck_ok(zke_exists(z, "/x", test_record, &e, &stat));
  s.event = frame;
  s.event_bytes = sizeof frame - 1;
  ck_ok(zke_exists(z, "/y", NULL, NULL, &stat));
  ck_assert_int_eq(s.event_bytes, 0);
  test_expect(z, &e, "");
}

/* A create, alone and in a multi, with the server's path: the expected code,
 * and the path that the caller gets. */
static void expect_made(zke *z, const char *asked, int mode, const char *path) {
  char *made = NULL;
  zke_op op;
  zke_op_result result = {.rc = 0};
  int expected = path ? ZKE_OK : ZKE_CONNECTIONLOSS;
  ck_rc(zke_create(z, asked, "", 0, ZKE_OPEN_ACL, mode, &made, NULL), expected);
  ck_assert_pstr_eq(made, path);
  zke_op_create(&op, asked, "", 0, ZKE_OPEN_ACL, mode);
  ck_rc(zke_multi(z, &op, 1, &result), expected);
  ck_assert_pstr_eq(result.path, path);
  zke_free(made);
  zke_results_clear(&result, 1);
}

/* The handle has a chroot, or is mounted in a file's tree: the callers' paths
 * are written to a buffer with the requested path's size. */
TEST_LOOP(a_create_gives_no_other_path_than_was_asked_for, 0, 2) {
  enum { LONG = 100000 };
  static const char *const other[] = {"/c/b",
                                      "/c/ab",
                                      "/c",
                                      "/a",
                                      "/ca",
                                      "",
                                      NULL,
                                      "/c/a0000000001",
                                      "/c/a00000000000000",
                                      "/c/a/00000001"};
  enum { OTHER = sizeof other / sizeof *other };
  zke *z, *part;
  char *longer = malloc(LONG + 1);
  begin_stub();
  part = z = open_port(s.port, "/c", NULL);
  if (_i == 1) {
    z = test_open(":memory:");
    ck_ok(zke_create(z, "/m", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
    ck_ok(zke_mount(&z, "/m", part));
  }
  const char *asked = _i ? "/m/a" : "/a";
  memset(longer, 'a', LONG);
  memcpy(longer, "/c/a", 4);
  longer[LONG] = '\0';
  s.made = longer;
  expect_made(z, asked, ZKE_PERSISTENT, NULL);
  expect_made(z, asked, ZKE_PERSISTENT_SEQUENTIAL, NULL);
  for (int i = 0; i < OTHER; i++) {
    s.made = other[i];
    expect_made(z, asked, ZKE_PERSISTENT, NULL);
  }
  for (int i = 0; i < OTHER; i++) {
    if (i == 7) continue; /* it has a number */
    s.made = other[i];
    expect_made(z, asked, ZKE_PERSISTENT_SEQUENTIAL, NULL);
  }
  s.made = "/c/a";
  expect_made(z, asked, ZKE_PERSISTENT, asked);
  s.made = "/c/a-2147483648";
  expect_made(z, asked, ZKE_PERSISTENT_SEQUENTIAL,
              _i ? "/m/a-2147483648" : "/a-2147483648");
  s.made = "/c";
  expect_made(z, _i ? "/m" : "/", ZKE_PERSISTENT, _i ? "/m" : "/");
  free(longer);
}

/* Silent servers, which accept connections, cost only a part of the time. */
TEST_LOOP(silent_servers_are_passed_over, 0, 4) {
  stub quiet[4], good;
  char name[200] = "zk://";
  zke_options o = ZKE_INIT(zke_options);
  o.busy_timeout_ms = 6000;
  for (int i = 0; i < 4; i++) {
    stub_begin(&quiet[i]);
    quiet[i].silent = true;
    snprintf(name + strlen(name), 30, "127.0.0.1:%d,", quiet[i].port);
  }
  stub_begin(&good);
  snprintf(name + strlen(name), 60, "127.0.0.1:%d?timeout=6000", good.port);
  zke *z = open_named(name, &o);
  ck_ok(zke_close(z));
  for (int i = 0; i < 4; i++) stub_end(&quiet[i]);
  stub_end(&good);
}

/* A child that has the connection, too, when the parent gives it up. */
static int stay(void *arg) {
  (void)arg;
  for (;;) pause();
  return 0;
}

/* A connection that the parent ends is over for the server, though a child that
 * was forked meanwhile lives on. */
TEST(a_forked_child_does_not_keep_a_connection) {
  begin_stub();
  zke *z = open_port(s.port, "", NULL);
  ck_assert_int_eq(s.clients, 1);
  pid_t child = test_child(stay, NULL);
  ck_ok(zke_detach(z));
  ck_until(s.clients == 0, 10000);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

/* ---- waiting ---- */

/* An alarm that is due is for a thread that dispatches; others sleep on. */
TEST_LOOP(who_cannot_call_an_alarm_sleeps_all_the_same, 0, 2) {
  begin_way();
  zke *z = open_port(way.port, "", NULL);
  proxy_delay(&way, 300, 300);
  ck_ok(zke_call_at(z, 0, test_ignore, NULL));
  int64_t before = cpu_ms();
  if (_i == 0)
    ck_ok(zke_sleep(z, zke_now(z) + 600));
  else
    ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  ck_assert_int_lt(cpu_ms() - before, 100);
}

static atomic_bool callback_may_return;

static void linger(zke *z, int type, int state, const char *path,
                   void *context) {
  (void)z, (void)type, (void)state, (void)path;
  *(atomic_bool *)context = true;
  while (!callback_may_return) test_pause();
}

/* How long a thread waits, and how soon the event must come by itself, ms. */
enum { WAIT = 20000, COMES = 15000 };

static void *wait_apart(void *arg) {
  call_apart *c = apart(arg);
  c->rc = zke_wait(c->z, zke_now(c->z) + test_patience(WAIT));
  c->over = true;
  return NULL;
}

/* A second waiter does not spin while the first is in a callback. */
TEST(a_waiter_beside_a_callback_sleeps) {
  begin_server("");
  zke *z = open_port(server.port, "", NULL);
  call_apart first, second;
  atomic_bool inside = false;
  ck_ok(zke_call_at(z, 0, linger, &inside));
  begin_apart(&first, z, wait_apart);
  ck_until(inside, 10000);
  ck_ok(zke_call_at(z, 0, test_ignore, NULL));
  begin_apart(&second, z, wait_apart);
  int64_t before = cpu_ms();
  poll(NULL, 0, 500);
  ck_assert_int_lt(cpu_ms() - before, 250);
  callback_may_return = true;
  ck_ok(end_apart(&first));
  ck_ok(end_apart(&second));
}

static void *sleep_apart(void *arg) {
  call_apart *c = apart(arg);
  c->rc = zke_sleep(c->z, zke_now(c->z) + test_patience(60000));
  return NULL;
}

/* The waiter calls an alarm on time, even while the thread that reads for both
 * only sleeps. */
TEST(a_waiter_behind_a_sleeper_hears_of_an_alarm) {
  begin_server("--timeout-max 1h");
  zke *z = open_port(server.port, "?timeout=900000", NULL);
  test_events e = {0};
  call_apart sleeper, waiter;
  begin_asleep(&sleeper, z, sleep_apart);
  begin_asleep(&waiter, z, wait_apart);
  int64_t before = test_now();
  ck_ok(zke_call_at(z, zke_now(z) + 50, test_record, &e));
  ck_ok(end_apart(&waiter));
  ck_assert_int_lt(test_now() - before, test_patience(COMES));
  ck_assert_int_eq(e.count, 1);
  ck_ok(zke_close(z));
  ck_ok(end_apart(&sleeper));
}

/* The event of one thread's call reaches another that waits, long before the
 * next ping, which is five minutes away. */
TEST(a_waiter_hears_of_what_another_thread_did) {
  begin_server("--timeout-max 1h");
  zke *z = open_port(server.port, "?timeout=900000", NULL);
  test_events e = {0};
  call_apart c;
  ck_rc(zke_exists(z, "/x", test_record, &e, NULL), ZKE_NONODE);
  begin_asleep(&c, z, wait_apart);
  int64_t before = test_now();
  ck_ok(zke_expire(z, zke_session_id(z)));
  ck_ok(end_apart(&c));
  ck_assert_int_lt(test_now() - before, test_patience(COMES));
  ck_assert_int_eq(e.count, 1);
}

/* The file's session ends while the ensemble cannot be reached: no dispatch and
 * no call waits for it, and its session is ended as soon as there is a
 * connection again. */
TEST(an_end_does_not_wait_for_an_ensemble) {
  begin_way();
  zke_options o = ZKE_INIT(zke_options);
  o.busy_timeout_ms = 20000;
  zke *file = test_open(":memory:"), *z = test_session(file, NULL);
  zke *part = open_port(way.port, "?timeout=30000", &o);
  zke *direct = open_port(server.port, "", NULL);
  ck_ok(zke_create(z, "/m", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  int64_t own = zke_session_id(z);
  ck_ok(zke_mount(&z, "/m", part));
  ck_ok(zke_create(z, "/m/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  proxy_refuse(&way, true);
  proxy_cut(&way);
  ck_until(
      zke_dispatch(z, NULL) == ZKE_OK && zke_state(z) == ZKE_STATE_CONNECTING,
      10000);
  int64_t before = test_now();
  ck_ok(zke_expire(file, own));
  ck_until(zke_state(z) == ZKE_STATE_EXPIRED || zke_dispatch(z, NULL) != ZKE_OK,
           10000);
  for (int i = 0; i < 3; i++) {
    zke_dispatch(z, NULL);
    ck_rc(zke_exists(z, "/", NULL, NULL, NULL), ZKE_INVALIDSTATE);
    ck_rc(zke_exists(z, "/m", NULL, NULL, NULL), ZKE_INVALIDSTATE);
  }
  ck_assert_int_lt(test_now() - before, 15000);
  ck_ok(zke_exists(direct, "/e", NULL, NULL, NULL));
  proxy_refuse(&way, false);
  ck_until((zke_dispatch(z, NULL),
            zke_exists(direct, "/e", NULL, NULL, NULL) == ZKE_NONODE),
           10000);
}

/* Many reads, by the thread that polls the socket. */
static void *read_apart(void *arg) {
  call_apart *c = apart(arg);
  for (int i = 0; i < 300 && c->rc == ZKE_OK; i++)
    c->rc = zke_exists(c->z, "/", NULL, NULL, NULL);
  c->over = true;
  return NULL;
}

/* If another thread's dispatch takes a reply from the socket, it wakes the
 * thread that polls the socket for it, long before the next ping, which is five
 * minutes away. */
TEST(a_reply_that_another_thread_takes_wakes_its_owner) {
  call_apart c;
  struct pollfd p = {.events = POLLIN};
  zke_options o = ZKE_INIT(zke_options);
  o.busy_timeout_ms = 900000;
  begin_stub();
  s.timeout_ms = 900000;
  zke *z = open_port(s.port, "", &o);
  ck_ok(zke_fd(z, &p.fd));
  int64_t end = test_now() + test_patience(20000);
  begin_apart(&c, z, read_apart);
  while (!c.over && test_now() < end) {
    if (poll(&p, 1, 0) > 0) ck_ok(zke_dispatch(z, NULL));
  }
  ck_assert(c.over);
  ck_ok(end_apart(&c));
}

/* Two waiters do not wake each other while a third thread reads. */
TEST(waiters_behind_a_reader_sleep) {
  call_apart sleeper, waiters[2];
  begin_stub();
  s.timeout_ms = 30000;
  zke *z = open_port(s.port, "", NULL);
  begin_asleep(&sleeper, z, sleep_apart);
  for (int i = 0; i < 2; i++) begin_asleep(&waiters[i], z, wait_apart);
  int64_t before = cpu_ms();
  poll(NULL, 0, 500);
  ck_assert_int_lt(cpu_ms() - before, 250);
  ck_ok(zke_close(z));
  end_apart(&sleeper);
  for (int i = 0; i < 2; i++) ck_rc(end_apart(&waiters[i]), ZKE_CLOSING);
}

/* A call that waits for a discard, and the thread that reads for it, sleep
 * until the server answers. */
TEST(a_discard_that_is_waited_for_wakes_nobody) {
  begin_way();
  call_apart sleeper;
  zke *z = open_port(way.port, "?timeout=30000", NULL);
  proxy_delay(&way, 200, 200);
  begin_asleep(&sleeper, z, sleep_apart);
  int64_t before = cpu_ms();
  ck_ok(zke_discard(z, "/x", ZKE_EPHEMERAL, 0));
  ck_ok(zke_create(z, "/y", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_assert_int_lt(cpu_ms() - before, 100);
  ck_ok(zke_close(z));
  ck_ok(end_apart(&sleeper));
}

/* ---- closing ---- */

/* A thread's limit is for the handle that it was set for, and not for a later
 * one at the same address. */
TEST(a_limit_ends_with_its_handle) {
  begin_stub();
  for (int i = 0; i < 10; i++) {
    zke *z = open_port(s.port, "", NULL);
    ck_assert_int_eq(zke_limit(z, zke_now(z)), ZKE_FOREVER);
    ck_ok(zke_close(z));
  }
}

/* A server reports the deletion of the session's own nodes before it answers
 * closeSession: no watcher hears it. */
TEST(watchers_hear_nothing_of_a_close) {
  static const char frame[] =
      "\0\0\0\x1e\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"
      "\0\0\0\2\0\0\0\3\0\0\0\2/e";
  test_events e = {0};
  zke_stat stat;
  call_apart c;
  begin_stub();
  s.timeout_ms = 900000; /* no ping takes the event */
  zke *z = open_port(s.port, "?timeout=30000", NULL);
  ck_ok(zke_exists(z, "/e", test_record, &e, &stat));
  begin_asleep(&c, z, wait_apart);
  s.event = frame;
  s.event_bytes = sizeof frame - 1;
  ck_ok(zke_close(z));
  ck_rc(end_apart(&c), ZKE_CLOSING);
  ck_assert_int_eq(s.event_bytes, 0);
  ck_assert_int_eq(e.count, 0);
}

static void *list_sessions(void *arg) {
  call_apart *c = apart(arg);
  zke_session_list *list;
  c->rc = zke_sessions(c->z, -1, &list);
  return NULL;
}

static void *close_apart(void *arg) {
  call_apart *c = apart(arg);
  c->rc = zke_close(c->z);
  return NULL;
}

/* A call of several requests returns why it ended, at whichever request. */
TEST(a_call_of_several_requests_is_ended_by_a_close) {
  begin_way();
  zke *z = open_port(way.port, "", NULL);
  call_apart c, closer;
  proxy_freeze(&way, true);
  begin_asleep(&c, z, list_sessions);
  begin_asleep(&closer, z, close_apart);
  proxy_freeze(&way, false);
  ck_rc(end_apart(&c), ZKE_CLOSING);
  ck_ok(end_apart(&closer));
}

/* ---- watches ---- */

static void *get_apart(void *arg) {
  static test_events e;
  call_apart *c = apart(arg);
  c->rc = zke_get(c->z, "/w", test_record, &e, NULL, NULL, NULL);
  return &e;
}

/* While a read is setting a watch, another watch of the path is removed: the
 * server must not forget the new one. */
TEST_LOOP(a_watch_that_is_being_set_is_not_taken_back, 0, 2) {
  begin_way();
  zke *z = open_port(way.port, "", NULL);
  test_events *e;
  call_apart c;
  ck_ok(zke_create(z, "/w", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  if (_i == 0)
    ck_ok(zke_get(z, "/w", test_ignore, NULL, NULL, NULL, NULL));
  else
    ck_ok(zke_add_watch(z, "/w", 0, test_ignore, NULL));
  proxy_delay(&way, 0, 300);
  begin_apart(&c, z, get_apart);
  poll(NULL, 0, 100);
  if (_i == 0)
    ck_ok(zke_remove_watch(z, "/w", ZKE_WATCH_DATA, test_ignore, NULL));
  else
    ck_ok(zke_forget(z, test_ignore, NULL));
  void *got;
  pthread_join(c.thread, &got);
  e = got;
  ck_ok(c.rc);
  proxy_delay(&way, 0, 0);
  ck_ok(zke_set(z, "/w", "1", 1, -1, NULL));
  test_expect_within(z, e, "CHANGED /w", 5000);
}

/* A watch that fails does not remove the pair's other watches. */
TEST(a_watch_that_fails_takes_no_other_with_it) {
  begin_way();
  zke *z = open_port(way.port, "", NULL);
  test_events e = {0};
  ck_ok(zke_create(z, "/w", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_add_watch(z, "/w", 0, test_record, &e));
  proxy_refuse(&way, true);
  proxy_cut(&way);
  ck_until(
      zke_dispatch(z, NULL) == ZKE_OK && zke_state(z) == ZKE_STATE_CONNECTING,
      10000);
  int64_t before = zke_limit(z, zke_now(z) + 50);
  ck_rc(zke_set_watch(z, "/w", ZKE_WATCH_DATA, 0, test_record, &e),
        ZKE_OPERATIONTIMEOUT);
  zke_limit(z, before);
  ck_ok(zke_check_watch(z, "/w", ZKE_WATCH_DATA, test_record, &e));
  proxy_refuse(&way, false);
}

/* Paths of nearly a frame's length, among many short ones: the requests that
 * set the watches again are never longer than servers accept. */
TEST(long_watches_are_set_again) {
  enum { LONG = 12, SHORT = 1000, LENGTH = 1000000, LITTLE = 1200 };
  char *path = malloc(LENGTH + 1);
  zke_options o = told_options();
  test_events e = {0};
  begin_stub();
  zke *z = open_port(s.port, "", &o);
  memset(path, 'p', LENGTH);
  for (int i = 0; i < LONG + SHORT; i++) {
    int len = i < LONG ? LENGTH : LITTLE;
    path[len] = '\0';
    path[snprintf(path, 20, "/%08d", i)] = 'p';
    ck_ok(zke_exists(z, path, test_record, &e, NULL));
    path[len] = 'p';
  }
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && t.count > 1, 10000);
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  ck_assert_int_gt(s.longest, LENGTH);
  ck_assert_int_le(s.longest, ZKE_JUTE_FRAME_LIMIT);
  free(path);
}

/* A new connection sends an identity once, however often it was added. */
TEST(an_identity_that_is_added_again_is_kept_once) {
  zke_options o = told_options();
  begin_stub();
  zke *z = open_port(s.port, "", &o);
  for (int i = 0; i < 3; i++) ck_ok(zke_add_auth(z, "digest", "a:b", 3));
  ck_ok(zke_add_auth(z, "digest", "a:c", 3));
  ck_assert_int_eq(s.auths, 4);
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && t.count > 1, 10000);
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  ck_assert_int_eq(s.auths, 6);
}

/* A watch is refused if the request that would set it again is longer than
 * servers accept, though its own request is not. */
TEST(a_watch_that_could_not_be_set_again_is_refused) {
  enum { MOST = ZKE_JUTE_FRAME_LIMIT - 8 - 32, LENGTH = MOST + 1 };
  char *path = malloc(LENGTH + 1);
  zke_options o = told_options();
  test_events e = {0};
  begin_stub();
  zke *z = open_port(s.port, "", &o);
  memset(path, 'p', LENGTH);
  path[0] = '/';
  path[LENGTH] = '\0';
  ck_ok(zke_exists(z, path, NULL, NULL, NULL));
  ck_rc(zke_exists(z, path, test_record, &e, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_add_watch(z, path, ZKE_WATCH_PERSISTENT, test_record, &e),
        ZKE_BADARGUMENTS);
  ck_rc(zke_set_watch(z, path, ZKE_WATCH_DATA, 0, test_record, &e),
        ZKE_BADARGUMENTS);
  path[MOST] = '\0';
  ck_ok(zke_exists(z, path, test_record, &e, NULL));
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && t.count > 1, 10000);
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  ck_assert_int_eq(s.longest, ZKE_JUTE_FRAME_LIMIT);
  free(path);
}

/* The connection breaks between the answers to two parts of the watches: the
 * next connection asks for events since the first loss, and not since the first
 * answer. */
TEST(a_loss_between_pieces_of_watches_forgets_nothing) {
  enum { PATHS = 200, LENGTH = 1000 };
  char path[LENGTH + 1];
  test_events e = {0};
  begin_stub();
  s.zxid = 500;
  zke *z = open_port(s.port, "", NULL);
  memset(path, 'p', LENGTH);
  path[LENGTH] = '\0';
  for (int i = 0; i < PATHS; i++) {
    path[snprintf(path, 20, "/%08d", i)] = 'p';
    ck_ok(zke_exists(z, path, test_record, &e, NULL));
  }
  s.zxid = 1000;
  s.answered = 1;
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && s.watches == 2, 10000);
  s.answered = 4;
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && s.watches == 4, 10000);
  ck_assert_int_eq(s.last_zxid, 1000);
  ck_assert_int_eq(s.relative, 500);
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && s.watches == 6, 10000);
  ck_assert_int_eq(s.relative, 1000);
}

/* zke_set_watch() finds a change: its event is dispatched up to the zxid of its
 * reply, even if nothing else has changed since the last look. */
TEST(a_watch_that_is_set_late_tells_its_event_up_to_its_reply) {
  static const char frame[] =
      "\0\0\0\x1e\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"
      "\0\0\0\3\0\0\0\3\0\0\0\2/x";
  test_events e = {0};
  begin_stub();
  s.timeout_ms = 900000; /* no ping takes the event */
  s.zxid = 500;
  zke *z = open_port(s.port, "", NULL);
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  s.event = frame;
  s.event_bytes = sizeof frame - 1;
  ck_ok(zke_set_watch(z, "/x", ZKE_WATCH_DATA, 400, test_record, &e));
  ck_assert_int_eq(zke_zxid(), 500);
  ck_ok(zke_dispatch_to(z, zke_zxid(), NULL, NULL));
  ck_assert_int_eq(e.count, 1);
}

/* Two losses between two dispatches: each is reported with its end. */
TEST(each_loss_is_told_with_its_end) {
  zke_options o = told_options();
  begin_stub();
  zke *z = open_port(s.port, "", &o);
  s.silent = true;
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && t.count == 1, 10000);
  s.silent = false;
  stub_cut(&s); /* the one that waits for a greeting */
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  s.silent = true;
  stub_cut(&s);
  ck_until(zke_sleep(z, zke_now(z) + 5) == ZKE_OK &&
               zke_state(z) == ZKE_STATE_CONNECTING,
           10000);
  ck_ok(zke_dispatch(z, NULL));
  s.silent = false;
  stub_cut(&s);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && t.count >= 4, 10000);
  for (int i = 0; i < t.count; i++)
    ck_assert_int_eq(t.states[i],
                     i % 2 ? ZKE_STATE_CONNECTED : ZKE_STATE_CONNECTING);
}

/* ---- the helper thread ---- */

static int thread_count(void) {
  int count = -2; /* . and .. */
  DIR *d = opendir("/proc/self/task");
  while (readdir(d)) count++;
  closedir(d);
  return count;
}

/* If a program makes no calls, only "thread=1" keeps its session, even over a
 * broken connection; without it nothing is sent. */
TEST_LOOP(a_helper_thread_keeps_the_session, 0, 2) {
  begin_stub();
  s.timeout_ms = 600;
  int before = thread_count();
  zke *z = open_port(s.port, _i ? "?thread=1" : "?thread=0", NULL);
  ck_assert_int_eq(thread_count(), before + _i);
  if (_i == 0) {
    ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
    int pings = s.pings; /* a long call sends one, which may be under way */
    poll(NULL, 0, 1000);
    ck_assert_int_le(s.pings, pings + 1);
  } else {
    ck_until(s.pings >= 3, 10000);
    s.session = 0x9999; /* only a new connection's greeting tells */
    stub_cut(&s);
    ck_until(zke_state(z) == ZKE_STATE_EXPIRED, 10000);
  }
  ck_ok(zke_close(z));
  ck_until(thread_count() == before, 10000); /* it may still be listed after its
                                              * join */
}

/* A loss that only a sent request meets makes the helper look for a server
 * immediately, and not at the next ping. (The other side's system rejects the
 * first request sent into a closed connection, so only the second meets the
 * loss. zke_forget() waits for no reply.) */
TEST(a_helper_thread_hears_of_a_loss_at_once) {
  test_events first = {0}, second = {0};
  begin_stub();
  s.timeout_ms = 60000;
  zke *z = open_port(s.port, "?thread=1", NULL);
  ck_ok(zke_add_watch(z, "/a", 0, test_record, &first));
  ck_ok(zke_add_watch(z, "/b", 0, test_record, &second));
  stub_cut(&s);
  ck_assert_int_eq(s.clients, 0);
  ck_ok(zke_forget(z, test_record, &first));
  ck_ok(zke_forget(z, test_record, &second));
  ck_until(s.clients == 1, 10000);
}

/* It dispatches nothing, and the descriptor reports the work. */
TEST(a_helper_thread_dispatches_nothing) {
  begin_server("");
  zke *z = open_port(server.port, "?timeout=2000&thread=1", NULL);
  zke *other = open_port(server.port, "", NULL);
  test_events e = {0};
  struct pollfd p = {.events = POLLIN};
  ck_rc(zke_exists(z, "/x", test_record, &e, NULL), ZKE_NONODE);
  ck_ok(zke_create(other, "/x", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  poll(NULL, 0, 3000); /* longer than the session lives by itself */
  ck_assert_int_eq(e.count, 0);
  ck_ok(zke_fd(z, &p.fd));
  ck_assert_int_eq(poll(&p, 1, 5000), 1);
  test_expect_within(z, &e, "CREATED /x", 5000);
  ck_ok(zke_exists(z, "/x", NULL, NULL, NULL));
}

static atomic_int signals;
static void count_signal(int number) {
  (void)number;
  signals++;
}

/* Signals go to the program's own threads. */
TEST(a_helper_thread_takes_no_signal) {
  begin_server("");
  zke *z = open_port(server.port, "?thread=1", NULL);
  sigset_t set, pending;
  struct sigaction action = {.sa_handler = count_signal};
  sigaction(SIGUSR1, &action, NULL);
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  kill(getpid(), SIGUSR1);
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  sigpending(&pending);
  ck_assert_int_eq(sigismember(&pending, SIGUSR1), 1);
  ck_assert_int_eq(signals, 0);
}

static int leave_copy(void *arg) {
  zke *z = arg;
  if (thread_count() != 1) return 1;
  return zke_close(z) == ZKE_FORKED ? 0 : 2;
}

/* A child has neither the handle nor the thread; the parent keeps both. */
TEST(a_helper_thread_is_the_parents) {
  begin_server("");
  zke *z = open_port(server.port, "?timeout=2000&thread=1", NULL);
  for (int i = 0; i < 20; i++)
    ck_assert_int_eq(test_child_end(test_child(leave_copy, z)), 0);
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
}

static void *work_apart(void *arg) {
  call_apart *c = apart(arg);
  while (c->rc == ZKE_OK && !c->over)
    c->rc = zke_exists(c->z, "/", NULL, NULL, NULL);
  return NULL;
}

/* Calls of several threads, the helper's pings and losses meet; and a close
 * comes while threads are in calls. */
TEST_LOOP(a_helper_thread_beside_others, 0, 5) {
  enum { THREADS = 4 };
  begin_way();
  call_apart c[THREADS], w;
  zke *z = open_port(way.port, "?timeout=2000&thread=1", NULL);
  for (int i = 0; i < THREADS; i++) begin_apart(&c[i], z, work_apart);
  for (int i = 0; i < 10; i++) {
    poll(NULL, 0, 20);
    proxy_cut(&way);
  }
  for (int i = 0; i < THREADS; i++) c[i].over = true;
  for (int i = 0; i < THREADS; i++) ck_ok(end_apart(&c[i]));
  begin_asleep(&w, z, wait_apart);
  ck_ok(zke_close(z));
  ck_rc(end_apart(&w), ZKE_CLOSING);
}
