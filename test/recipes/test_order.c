/* test_order.c - the common order of several services, checked
 *
 * Random programs: clients write, read and watch one register on each of three
 * services.  Two services are engines of this test, whose handles read old
 * values until they sync or write; the third is a file.  The outcome must fit
 * one order of all steps (one_order.h).
 *
 * The test must also catch rules that are too weak: Never-Sync, which never
 * syncs; and the algorithm as printed, which syncs before a read on another
 * service than the last call's, and does not count events as calls.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/engine/compose.h"
#include "test/recipes/one_order.h"
#include "test/test.h"

enum { CLIENTS = 3, SERVICES = 3, LATE = 2, STEPS = 24 };

/* ---- a service that is read late ---- */

/* A late service's register: its value is the number of its writes. */
static int written[LATE];
static int syncs, reads;
static bool steady; /* news do not come by themselves */
static unsigned dice;

typedef struct late {
  zke_handle head;
  int service, seen; /* what its reads show */
  int watched;       /* the value that is watched for a change; -1: none */
  zke_watch_fn fn;
  void *context;
  bool pending, over;
  zke_watch_fn fallback;
  void *fallback_context;
} late;

static int roll(int sides) { return rand_r(&dice) % sides; }

static late *late_of(zke *z) { return (late *)(void *)z; }

/* News come late but in order, and so do events. */
static void late_see(late *l, int value) {
  if (value > l->seen) l->seen = value;
  if (l->watched < 0 || l->watched >= l->seen) return;
  l->watched = -1;
  l->pending = true;
}

static void late_drift(late *l) {
  int news = written[l->service] - l->seen;
  if (!steady && news > 0 && roll(4) == 0)
    late_see(l, l->seen + 1 + roll(news));
}

static int late_open(const zke_engine *engine, const char *name,
                     const zke_options *options, zke **z_out) {
  late *l = calloc(1, sizeof *l);
  l->head = (zke_handle){engine, options->allocator};
  l->service = atoi(name + strlen("late://"));
  l->watched = -1;
  *z_out = (zke *)(void *)l;
  return ZKE_OK;
}

static int late_close(zke *z) {
  free(late_of(z));
  return ZKE_OK;
}

static int late_set(zke *z, const char *path, const void *data, int len,
                    int version, zke_stat *stat_out) {
  late *l = late_of(z);
  (void)path, (void)data, (void)len, (void)version, (void)stat_out;
  late_drift(l);
  late_see(l, ++written[l->service]);
  return ZKE_OK;
}

static int late_get(zke *z, const char *path, zke_watch_fn fn, void *context,
                    char **data_out, int *len_out, zke_stat *stat_out) {
  late *l = late_of(z);
  (void)path, (void)stat_out;
  if (l->over) return zke_fail(ZKE_INVALIDSTATE, "the session has ended");
  late_drift(l);
  reads++;
  if (fn) {
    l->fn = fn;
    l->context = context;
    if (l->watched < 0) l->watched = l->seen;
  }
  *data_out = zke_alloc(z, 16);
  *len_out = snprintf(*data_out, 16, "%d", l->seen);
  return ZKE_OK;
}

static int late_sync(zke *z, const char *path) {
  late *l = late_of(z);
  (void)path;
  syncs++;
  late_see(l, written[l->service]);
  return ZKE_OK;
}

static int late_dispatch(zke *z, int *count_out) {
  late *l = late_of(z);
  late_drift(l);
  (void)count_out;
  if (!l->pending) return ZKE_OK;
  l->pending = false;
  l->fn(z, ZKE_EVENT_CHANGED, ZKE_STATE_CONNECTED, "/r", l->context);
  return ZKE_OK;
}

static int late_set_watcher(zke *z, zke_watch_fn fn, void *context) {
  late_of(z)->fallback = fn;
  late_of(z)->fallback_context = context;
  return ZKE_OK;
}

static int late_state(zke *z) {
  return late_of(z)->over ? ZKE_STATE_EXPIRED : ZKE_STATE_CONNECTED;
}

static int64_t late_number(zke *z) {
  (void)z;
  return 1;
}

/* The limits that were set, and whether the last one was reset. */
static int64_t limit_given;
static bool limited;

static int64_t late_limit(zke *z, int64_t deadline_ms) {
  (void)z;
  limited = deadline_ms != ZKE_FOREVER;
  if (limited) limit_given = deadline_ms;
  return ZKE_FOREVER;
}

/* A test's hook, or the answer of an engine without the call. */
static int (*on_expire)(late *l), (*on_forget)(late *l);

static int late_expire(zke *z, int64_t session) {
  (void)session;
  return on_expire ? on_expire(late_of(z))
                   : zke_fail(ZKE_UNIMPLEMENTED, "no expire");
}

static int late_forget(zke *z, zke_watch_fn fn, void *context) {
  late *l = late_of(z);
  if (on_forget) on_forget(l);
  if (l->fn == fn && l->context == context) l->pending = false;
  return ZKE_OK;
}

static void register_late(void) {
  zke_engine e = ZKE_INIT(zke_engine);
  e.prefix = "late://";
  e.open = late_open;
  e.close = late_close;
  e.get = late_get;
  e.set = late_set;
  e.sync = late_sync;
  e.dispatch = late_dispatch;
  e.set_watcher = late_set_watcher;
  e.state = late_state;
  e.session_id = e.now = e.wall = e.busy_timeout = late_number;
  e.event_zxid = e.turn = late_number;
  e.limit = late_limit;
  e.expire = late_expire;
  e.forget = late_forget;
  ck_ok(zke_register_engine(&e));
}

/* ---- a program, and what came out ---- */

enum { NEVER_SYNC, AS_PRINTED, ORDERED, RULES };
static order_step steps[STEPS * 2]; /* an event and its look are two */
static int step_count;
static zke *handles[CLIENTS][SERVICES], *file;
static int file_writes, last[CLIENTS];

/* The state in which a client set its watch on a service. */
static struct watch {
  int client, service, value;
  bool armed;
} watches[CLIENTS][SERVICES];

static void add_step(int kind, int client, int service, int value) {
  ck_assert_int_lt(step_count, STEPS * 2);
  steps[step_count++] = (order_step){kind, client, service, value};
}

/* An event reports the write after the one that was read. */
static void heard(zke *z, int type, int state, const char *path,
                  void *context) {
  struct watch *w = context;
  (void)z, (void)state;
  if (type != ZKE_EVENT_CHANGED || !w->armed) return;
  ck_assert_str_eq(path, "/r");
  w->armed = false;
  add_step(STEP_HEAR, w->client, w->service, w->value + 1);
}

static void open_program(int rule) {
  file = test_open(":memory:");
  ck_ok(
      zke_create(file, "/r", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  step_count = file_writes = 0;
  memset(written, 0, sizeof written);
  for (int i = 0; i < CLIENTS; i++) {
    last[i] = -1;
    ck_ok(zke_open("late://0", NULL, &handles[i][0]));
    ck_ok(zke_open("late://1", NULL, &handles[i][1]));
    handles[i][LATE] = test_session(file, NULL);
    if (rule == ORDERED) ck_ok(zke_order(handles[i], SERVICES));
    for (int j = 0; j < SERVICES; j++)
      watches[i][j] = (struct watch){.client = i, .service = j};
  }
}

static void close_program(void) {
  for (int i = 0; i < CLIENTS; i++)
    for (int j = 0; j < SERVICES; j++) ck_ok(zke_close(handles[i][j]));
  ck_ok(zke_close(file));
}

static void do_write(zke *z, int client, int service) {
  char text[16];
  int value = service < LATE ? written[service] + 1 : ++file_writes;
  snprintf(text, sizeof text, "%d", value);
  ck_ok(zke_set(z, "/r", text, (int)strlen(text), -1, NULL));
  add_step(STEP_WRITE, client, service, value);
}

static void do_read(zke *z, int client, int service, int rule) {
  char *data;
  int len;
  struct watch *w = &watches[client][service];
  if (rule == AS_PRINTED && last[client] != service) ck_ok(zke_sync(z, "/"));
  ck_ok(zke_get(z, "/r", w->armed ? NULL : heard, w, &data, &len, NULL));
  if (!w->armed) w->value = atoi(data);
  w->armed = true;
  add_step(STEP_READ, client, service, atoi(data));
  zke_free(data);
}

/* A client stays with a service for a while.  It often reacts to an event by a
 * read of another service. */
static void run_program(int rule) {
  int stays[CLIENTS] = {0};
  open_program(rule);
  for (int i = 0; i < STEPS; i++) {
    int client = roll(CLIENTS), what = roll(10), before = step_count;
    if (roll(2)) stays[client] = roll(SERVICES);
    int service = stays[client];
    if (what < 3)
      do_write(handles[client][service], client, service);
    else if (what < 7)
      do_read(handles[client][service], client, service, rule);
    else
      ck_ok(zke_dispatch(handles[client][service], NULL));
    if (what < 7) last[client] = service;
    if (what < 7 || step_count == before) continue;
    service = roll(LATE);
    do_read(handles[client][service], client, service, rule);
    last[client] = service;
  }
  close_program();
}

/* The first of these programs with a wrong outcome; 0: none. */
static int first_wrong(int rule, int programs) {
  int wrong = 0;
  syncs = reads = 0;
  for (int i = 1; i <= programs && !wrong; i++) {
    run_program(rule);
    if (!one_order_fits(steps, step_count)) wrong = i;
  }
  printf("rule %d: program %d is wrong; %d syncs for %d late reads\n", rule,
         wrong, syncs, reads);
  return wrong;
}

LIMIT(600);

/* With seed 33, 35 programs expose each weak rule; other seeds need thousands.
 * FULL or SEED selects another seed. */
static unsigned weak_seed(void) {
  long known = getenv("SEED") ? 0 : test_sample(0, 33);
  if (known) printf("SEED=%ld\n", known);
  return known ? (unsigned)known : test_seed();
}

/* Outcomes with zke_order() always fit one order, with fewer syncs than reads;
 * the weak rules are caught. */
TEST_LOOP(outcomes_fit_one_order, 0, RULES) {
  register_late();
  dice = _i == ORDERED ? test_seed() : weak_seed();
  int wrong = first_wrong(_i, _i == ORDERED ? 1000 : 100000);
  if (_i == ORDERED)
    ck_assert_int_eq(wrong, 0);
  else
    ck_assert_int_gt(wrong, 0);
  ck_assert_int_lt(syncs, reads);
}
LIMIT(10);

/* ---- when a sync is sent, and when not ---- */

static void expect_get(zke *session, int syncs_then) {
  char *data;
  int len;
  ck_ok(zke_get(session, "/r", heard, &watches[0][0], &data, &len, NULL));
  zke_free(data);
  ck_assert_int_eq(syncs, syncs_then);
}

static late *inner[2];
static zke *z[2];

static void open_pair(void) {
  register_late();
  steady = true;
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_open(i ? "late://1" : "late://0", NULL, &z[i]));
    inner[i] = late_of(z[i]);
  }
  ck_ok(zke_order(z, 2));
}

static void close_pair(void) {
  for (int i = 0; i < 2; i++) ck_ok(zke_close(z[i]));
}

/* A sync precedes the first read after another service was used.  None precedes
 * further reads, or a read after the caller has changed or synced that service
 * since. */
TEST(a_sync_at_each_switch_to_reading) {
  open_pair();
  expect_get(z[0], 1); /* what was known before the order counts */
  expect_get(z[0], 1);
  ck_ok(zke_set(z[1], "/r", "", 0, -1, NULL));
  expect_get(z[1], 1);
  expect_get(z[0], 2);
  expect_get(z[0], 2);
  expect_get(z[1], 3);
  ck_ok(zke_sync(z[0], "/"));
  ck_assert_int_eq(syncs, 4);
  expect_get(z[0], 4);
  close_pair();
}

/* An event is news: the other service may be older. */
TEST(an_event_counts_as_a_use) {
  open_pair();
  expect_get(z[0], 1);
  expect_get(z[1], 2);
  expect_get(z[1], 2);
  inner[0]->pending = true;
  ck_ok(zke_dispatch(z[0], NULL));
  expect_get(z[1], 3);
  close_pair();
}

/* An event does not refresh its own service: it may be older than what was seen
 * elsewhere. */
TEST(an_event_makes_nothing_fresh) {
  open_pair();
  expect_get(z[0], 1);
  expect_get(z[1], 2);
  inner[0]->pending = true;
  ck_ok(zke_dispatch(z[0], NULL));
  expect_get(z[0], 3);
  close_pair();
}

/* A change with a lost reply. */
static int late_set_lost(zke *session, const char *path, const void *data,
                         int len, int version, zke_stat *stat_out) {
  (void)session, (void)path, (void)data, (void)len, (void)version;
  (void)stat_out;
  return zke_fail(ZKE_CONNECTIONLOSS, "lost");
}

/* After a change whose reply was lost a read syncs again. */
TEST(a_lost_change_makes_nothing_fresh) {
  open_pair();
  expect_get(z[0], 1);
  expect_get(z[1], 2);
  zke_engine losing = *inner[0]->head.engine;
  losing.set = late_set_lost;
  inner[0]->head.engine = &losing;
  ck_rc(zke_set(z[0], "/r", "", 0, -1, NULL), ZKE_CONNECTIONLOSS);
  expect_get(z[0], 3);
  close_pair();
}

/* A sync that fails. */
static int late_sync_lost(zke *session, const char *path) {
  (void)session, (void)path;
  return zke_fail(ZKE_CONNECTIONLOSS, "the sync is lost");
}

/* If the sync fails, the read returns its code and sentence, and reads
 * nothing. */
TEST(a_failed_sync_fails_the_read) {
  open_pair();
  zke_engine losing = *inner[0]->head.engine;
  losing.sync = late_sync_lost;
  inner[0]->head.engine = &losing;
  ck_rc(zke_get(z[0], "/r", NULL, NULL, NULL, NULL, NULL), ZKE_CONNECTIONLOSS);
  ck_says("the sync is lost");
  ck_assert_int_eq(reads, 0);
  close_pair();
}

/* ---- several at once ---- */

/* When orders become one, their earlier uses do not count in the new order, so
 * the next read syncs. */
TEST(a_joined_order_begins_anew) {
  open_pair();
  zke *third, *joined[2] = {z[0], NULL};
  for (int i = 0; i < 20; i++) {
    expect_get(z[0], syncs + 1);
    expect_get(z[1], syncs + 1);
  }
  ck_ok(zke_open("late://0", NULL, &third));
  joined[1] = joined[0];
  joined[0] = third;
  ck_ok(zke_order(joined, 2));
  expect_get(z[0], syncs + 1);
  expect_get(z[0], syncs);
  ck_ok(zke_close(joined[0]));
  close_pair();
}

/* A call that goes to all or several parts keeps to the limit. */
TEST(a_limit_holds_where_all_parts_are_called) {
  open_pair();
  zke_limit(z[0], 77);
  ck_rc(zke_expire(z[0], 4711), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(limit_given, 77);
  ck_assert(!limited);
  limit_given = 0;
  ck_rc(zke_clear_auth(z[0]), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(limit_given, 77);
  ck_assert(!limited);
  zke_limit(z[0], ZKE_FOREVER);
  close_pair();
}

/* Services also list sessions: that is a read. */
TEST(a_look_at_sessions_is_a_read) {
  zke_session_list *list;
  zke_strings *paths;
  open_pair();
  expect_get(z[0], 1);
  expect_get(z[1], 2);
  ck_rc(zke_sessions(z[0], -1, &list), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(syncs, 3);
  expect_get(z[1], 4);
  ck_rc(zke_sessions(z[0], 4711, &list), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(syncs, 5);
  expect_get(z[1], 6);
  ck_rc(zke_ephemerals(z[0], 0, NULL, &paths), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(syncs, 7);
  close_pair();
}

/* A call that goes to each part uses each, even a call without a path: later
 * reads elsewhere are no older. */
TEST(calls_on_all_parts_are_uses) {
  int overdue;
  open_pair();
  expect_get(z[0], 1);
  expect_get(z[1], 2);
  expect_get(z[1], 2);
  ck_rc(zke_expire(z[0], 4711), ZKE_UNIMPLEMENTED);
  expect_get(z[1], 3);
  ck_rc(zke_overdue(z[0], &overdue), ZKE_UNIMPLEMENTED);
  expect_get(z[1], 4);
  ck_rc(zke_clear_auth(z[0]), ZKE_UNIMPLEMENTED);
  expect_get(z[1], 5);
  close_pair();
}

/* A list of watches is a read: it keeps to the common order. */
TEST(a_look_at_watches_is_a_read) {
  zke_watch_list *list;
  open_pair();
  expect_get(z[0], 1);
  expect_get(z[1], 2);
  ck_rc(zke_watches(z[0], &list), ZKE_UNIMPLEMENTED);
  ck_assert_int_eq(syncs, 3);
  expect_get(z[1], 4);
  close_pair();
}

/* A part whose session cannot be ended because memory ran out. */
static int tries;

static int expire_at_second(late *l) {
  if (++tries == 1) return zke_fail(ZKE_NOMEM, "out of memory");
  l->over = true;
  return ZKE_OK;
}

/* If a part's session could not be ended, the next call ends it; that call is
 * already refused. */
TEST(an_end_is_tried_again) {
  open_pair();
  on_expire = expire_at_second;
  inner[0]->over = true;
  inner[0]->fallback(z[0], ZKE_EVENT_SESSION, ZKE_STATE_EXPIRED, "",
                     inner[0]->fallback_context);
  ck_assert_int_eq(tries, 1);
  ck_rc(zke_get(z[1], "/r", NULL, NULL, NULL, NULL, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_eq(tries, 2);
  close_pair();
}

/* Two threads forget a pair: neither returns while the watcher can still be
 * called. */
static pthread_mutex_t door = PTHREAD_MUTEX_INITIALIZER;
static late *door_of;
static int waiting;

static int forget_through_door(late *l) {
  if (l != door_of || __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST) > 0)
    return 0;
  pthread_mutex_lock(&door); /* the first one stays here */
  pthread_mutex_unlock(&door);
  return 0;
}

static int told;

static void tell(zke *session, int type, int state, const char *path,
                 void *context) {
  (void)session, (void)type, (void)state, (void)path, (void)context;
  told++;
}

static void *forget_it(void *arg) {
  ck_ok(zke_forget(arg, tell, NULL));
  return NULL;
}

/* A file's tree with both late services in it. */
static zke *open_both_mounted(void) {
  static const char *const at[] = {"/a", "/b"};
  zke *session = test_open(":memory:");
  register_late();
  steady = true;
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_create(session, at[i], "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                     NULL));
    zke *part = NULL;
    ck_ok(zke_open(i ? "late://1" : "late://0", NULL, &part));
    inner[i] = late_of(part);
    ck_ok(zke_mount(&session, at[i], part));
  }
  return session;
}

/* While one thread is still forgetting a pair, another thread forgets it too
 * and returns: the watcher is not called after that. */
TEST(two_threads_forget_a_pair) {
  pthread_t thread;
  zke *session = open_both_mounted();
  char *text;
  int len;
  ck_ok(zke_get(session, "/b/r", tell, NULL, &text, &len, NULL));
  zke_free(text);
  door_of = inner[0];
  on_forget = forget_through_door;
  pthread_mutex_lock(&door);
  ck_assert_int_eq(pthread_create(&thread, NULL, forget_it, session), 0);
  ck_until(__atomic_load_n(&waiting, __ATOMIC_SEQ_CST) == 1, 10000);
  inner[1]->pending = true;
  ck_ok(zke_forget(session, tell, NULL));
  ck_ok(zke_dispatch(session, NULL));
  ck_assert_int_eq(told, 0);
  pthread_mutex_unlock(&door);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_ok(zke_close(session));
}
