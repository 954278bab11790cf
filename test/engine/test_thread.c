/* test_thread.c - several threads on one handle, on one store, on one file
 *
 * Threads assert nothing: they keep their results, and the test's own thread
 * checks them after joining.  No thread makes a call on a handle that could be
 * gone: either the handle outlives the thread, or a callback that the test
 * holds keeps zke_close() from finishing.
 */
#include "test/seam.h"
#include "test/engine/calls.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SIDE_BY_SIDE(2);

enum { IN_MEMORY, IN_FILE, WAYS };
enum { THREADS = 4 };

static zke *shared, *writer; /* two sessions on one tree */
static int busy_ms;          /* shared's busy timeout, 0: the default */
static atomic_bool stop;     /* asks the threads of a test to return */

/* A greedy thread keeps the store's lock in each of its changes until another
 * thread has read the clock since the previous change, or none is left to be
 * served.  A thread that waits for the lock reads the clock when it was woken
 * in vain. */
static _Thread_local bool greedy;
static atomic_int looks, unserved;
static atomic_bool kept; /* it has kept the lock */
static int calls_begun;  /* by it, before its current one */

/* A greedy thread inside a change: it keeps the lock, once in each change. */
static void keep_lock(void) {
  static int seen, call = -1;
  if (call == calls_begun) return; /* its transaction began again */
  call = calls_begun;
  kept = true;
  int64_t end = test_now() + 10000;
  while (looks == seen && unserved > 0 && test_now() < end) test_pause();
  seen = looks;
}

/* A keeper keeps the lock in a change until the calls that are tried meanwhile
 * have returned, or for a while. */
static _Thread_local bool keeper;
static atomic_bool keeping, come_back;
static int keep_ms = 300;

static void keep_on(void) {
  int64_t end = test_now() + keep_ms;
  keeping = true;
  while (!come_back && test_now() < end) test_pause();
}

/* The clock at which greedy threads and keepers keep the lock; the readings of
 * all others are counted. */
static void told_clock(seam_call *c) {
  if (keeper && c->how == ZKE_CLOCK_REALTIME) keep_on();
  if (!greedy)
    atomic_fetch_add(&looks, 1);
  else if (c->how == ZKE_CLOCK_REALTIME)
    keep_lock();
}

static seam telling = {.before = {[SEAM_clock] = told_clock}};

/* How often a thread went to sleep in the kernel. */
static long sleeps(void) {
  return __atomic_load_n(&telling.calls[SEAM_poll], __ATOMIC_SEQ_CST);
}

/* Open a shared handle and another one, in one of the ways to share a tree. */
static void begin(int way) {
  const char *name = way == IN_MEMORY ? ":memory:" : test_path("thread.db");
  shared = open_as(name, .busy_timeout_ms = busy_ms, .os = seam_os(&telling));
  writer = way == IN_MEMORY ? test_session(shared, NULL) : test_open(name);
  ck_ok(zke_create(writer, "/n", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
}

/* ---- threads ---- */

typedef struct worker {
  pthread_t thread;
  int (*run)(struct worker *w);
  zke *z;
  int number;
  int rc; /* the result of run() */
  atomic_bool done;
} worker;

static void *work(void *argument) {
  worker *w = argument;
  w->rc = w->run(w);
  w->done = true;
  return NULL;
}

/* Start a thread with a stack of this many bytes. */
static void start_on(worker *w, size_t stack, int (*run)(worker *), zke *z,
                     int number) {
  w->run = run;
  w->z = z;
  w->number = number;
  w->rc = 1;
  w->done = false;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack);
  ck_assert_int_eq(pthread_create(&w->thread, &attributes, work, w), 0);
  pthread_attr_destroy(&attributes);
}

/* Start a thread, with a small stack: there may be a thousand. */
static void start(worker *w, int (*run)(worker *), zke *z, int number) {
  start_on(w, 1 << 20, run, z, number);
}

/* Join, and return the result of run(). */
static int join(worker *w) {
  ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
  return w->rc;
}

static int wait_long(worker *w) { return zke_wait(w->z, ZKE_FOREVER); }

static int close_handle(worker *w) { return zke_close(w->z); }

/* ---- watchers ---- */

static atomic_int called; /* calls of the watchers below */

static void count_one(zke *z, int type, int state, const char *path,
                      void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
  atomic_fetch_add(&called, 1);
}

static void watch(zke *z, zke_watch_fn fn, void *context) {
  ck_ok(zke_add_watch(z, "/n", ZKE_WATCH_PERSISTENT, fn, context));
}

/* A watcher that the test holds in its first call. */
typedef struct latch {
  sem_t entered, released;
  atomic_bool used;
} latch;

static void latch_init(latch *l) {
  sem_init(&l->entered, 0, 0);
  sem_init(&l->released, 0, 0);
  l->used = false;
}

static void hold(zke *z, int type, int state, const char *path, void *context) {
  latch *l = context;
  (void)z, (void)type, (void)state, (void)path;
  if (atomic_exchange(&l->used, true)) return;
  sem_post(&l->entered);
  sem_wait(&l->released);
}

static int dispatch_once(worker *w) { return zke_dispatch(w->z, NULL); }

/* Start a thread that stays in a callback of `shared` until the release. */
static void begin_held(int way, latch *l, worker *holder) {
  begin(way);
  latch_init(l);
  watch(shared, hold, l);
  ck_ok(change(writer, "/n"));
  start(holder, dispatch_once, shared, 0);
  sem_wait(&l->entered);
}

/* ---- waiting together ---- */

/* zkembed.h: one event ends the wait of every thread on the handle. */
TEST_LOOP(event_ends_every_wait, 0, WAYS) {
  begin(_i);
  watch(shared, count_one, NULL);
  worker w[THREADS];
  for (int round = 0; round < 20; round++) {
    ck_ok(zke_dispatch(shared, NULL));
    for (int i = 0; i < THREADS; i++) start(&w[i], wait_long, shared, i);
    for (int i = 0; i < THREADS; i++) {
      while (!w[i].done) { /* it may not have been waiting yet */
        ck_ok(change(writer, "/n"));
        test_pause();
      }
      ck_ok(join(&w[i]));
    }
  }
}

/* A wait whose deadline has passed before it began does not sleep. */
static int wait_short(worker *w) {
  int rc;
  do rc = zke_wait(w->z, zke_now(w->z) + 100);
  while (rc == ZKE_OPERATIONTIMEOUT && sleeps() == 0);
  return rc;
}

/* design.md 11: when the thread that sleeps in the kernel leaves, another takes
 * over. */
TEST_LOOP(another_takes_over_the_sleep, 0, WAYS) {
  begin(_i);
  watch(shared, count_one, NULL);
  worker first, second;
  start(&first, wait_short, shared, 0);
  ck_until(sleeps() > 0, 5000);
  start(&second, wait_long, shared, 1);
  ck_rc(join(&first), ZKE_OPERATIONTIMEOUT);
  ck_ok(change(writer, "/n"));
  ck_ok(join(&second));
  ck_assert_int_eq(called, 1);
}

/* The errors that the watcher of a sequence of nodes finds. */
static atomic_int inside, overlaps, disorder;

/* Expects /q/0000000000 and so on, one call at a time. */
static void follow(zke *z, int type, int state, const char *path,
                   void *context) {
  (void)z, (void)type, (void)state, (void)context;
  if (atomic_fetch_add(&inside, 1)) atomic_fetch_add(&overlaps, 1);
  if (atoi(path + 3) != atomic_fetch_add(&called, 1))
    atomic_fetch_add(&disorder, 1);
  atomic_fetch_sub(&inside, 1);
}

/* Half of the threads wait, the others only dispatch. */
static int serve(worker *w) {
  int rc = ZKE_OK;
  while (!stop && (rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT)) {
    rc = w->number % 2 ? zke_dispatch(w->z, NULL)
                       : zke_wait(w->z, zke_now(w->z) + 5);
  }
  return rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
}

/* zkembed.h, P4: however many threads serve a session, only one dispatches at a
 * time, in commit order, each event once. */
TEST_LOOP(one_thread_dispatches_at_a_time, 0, WAYS) {
  enum { EVENTS = 300 };
  begin(_i);
  make(writer, "/q");
  ck_ok(zke_add_watch(shared, "/q", ZKE_WATCH_PERSISTENT_RECURSIVE, follow,
                      NULL));
  worker w[THREADS];
  for (int i = 0; i < THREADS; i++) start(&w[i], serve, shared, i);
  for (int i = 0; i < EVENTS; i++) {
    make_as(writer, "/q/", ZKE_EPHEMERAL_SEQUENTIAL);
  }
  ck_until(called >= EVENTS, 10000);
  stop = true;
  for (int i = 0; i < THREADS; i++) ck_ok(join(&w[i]));
  ck_assert_int_eq(called, EVENTS);
  ck_assert_int_eq(overlaps, 0);
  ck_assert_int_eq(disorder, 0);
}

/* The current and the greatest depth of nested calls of dispatch_again(). */
static _Thread_local int depth;
static atomic_int deepest;

/* A watcher that dispatches again on its own thread. */
static void dispatch_again(zke *z, int type, int state, const char *path,
                           void *context) {
  (void)type, (void)state, (void)path, (void)context;
  atomic_fetch_add(&called, 1);
  if (++depth > deepest) deepest = depth;
  if (zke_dispatch(z, NULL) != ZKE_OK) atomic_fetch_add(&disorder, 1);
  depth--;
}

/* zkembed.h: that works while other threads wait and dispatch.  Each pending
 * event is a call inside the previous one, for which the stack must have room:
 * at most 1.7 KB, in addition to a thread's usual needs (with ThreadSanitizer
 * 770 KB).  Half of the events come before the threads. */
TEST_LOOP(callback_dispatches_among_threads, 0, WAYS) {
  enum { EVENTS = 400, STACK = 4 << 20 };
  begin(_i);
  watch(shared, dispatch_again, NULL);
  for (int i = 0; i < EVENTS / 2; i++) ck_ok(change(writer, "/n"));
  worker w[THREADS];
  for (int i = 0; i < THREADS; i++) start_on(&w[i], STACK, serve, shared, i);
  for (int i = 0; i < EVENTS / 2; i++) ck_ok(change(writer, "/n"));
  ck_until(called >= EVENTS, 10000);
  stop = true;
  for (int i = 0; i < THREADS; i++) ck_ok(join(&w[i]));
  ck_assert_int_eq(called, EVENTS);
  ck_assert_int_ge(deepest, EVENTS / 2);
  ck_assert_int_eq(disorder, 0);
}

/* ---- while a callback runs ---- */

/* zkembed.h: if another thread is dispatching, a dispatch returns immediately
 * and a wait keeps its deadline. */
TEST_LOOP(dispatch_elsewhere_is_not_waited_for, 0, WAYS) {
  latch l;
  worker holder;
  begin_held(_i, &l, &holder);
  ck_ok(change(writer, "/n"));
  int count = -1;
  ck_ok(zke_dispatch(shared, &count));
  ck_assert_int_eq(count, 0);
  int64_t deadline = zke_now(shared) + 30;
  ck_rc(zke_wait(shared, deadline), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(zke_now(shared), deadline);
  sem_post(&l.released);
  ck_ok(join(&holder));
}

/* zkembed.h: a callback runs with no lock held; the handle, its store and the
 * store's other sessions work meanwhile. */
TEST_LOOP(callback_holds_no_lock, 0, WAYS) {
  latch l;
  worker holder;
  begin_held(_i, &l, &holder);
  zke *neighbour = test_session(shared, NULL);
  ck_ok(zke_get(neighbour, "/n", count_one, NULL, NULL, NULL, NULL));
  ck_ok(change(shared, "/n"));
  ck_ok(zke_wait(neighbour, ZKE_FOREVER));
  ck_assert_int_eq(called, 1);
  ck_ok(zke_get(shared, "/n", count_one, NULL, NULL, NULL, NULL));
  ck_ok(zke_remove_watch(shared, "/n", ZKE_WATCH_DATA, count_one, NULL));
  ck_ok(zke_close(neighbour));
  sem_post(&l.released);
  ck_ok(join(&holder));
}

/* ---- closing under other threads ---- */

static int read_until_refused(worker *w) {
  int rc = ZKE_OK;
  while (rc == ZKE_OK) rc = zke_get(w->z, "/n", NULL, NULL, NULL, NULL, NULL);
  return rc;
}

static int write_until_refused(worker *w) {
  int rc = ZKE_OK;
  while (rc == ZKE_OK) rc = change(w->z, "/n");
  return rc;
}

static int wait_until_refused(worker *w) {
  int rc = ZKE_OK;
  while (rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT)
    rc = zke_wait(w->z, w->number % 2 ? ZKE_FOREVER : zke_now(w->z) + 1);
  return rc;
}

static int dispatch_until_refused(worker *w) {
  int rc = ZKE_OK;
  while (rc == ZKE_OK) rc = zke_dispatch(w->z, NULL);
  return rc;
}

/* A thread that reads descriptor and deadline until the handle closes. */
static int ask_until_refused(worker *w) {
  int rc = ZKE_OK, fd;
  int64_t deadline;
  while (rc == ZKE_OK) {
    rc = zke_fd(w->z, &fd);
    if (rc == ZKE_OK) rc = zke_next_deadline(w->z, &deadline);
  }
  return rc;
}

/* zkembed.h: the calls of other threads, sleeping ones too, return
 * ZKE_CLOSING, and zke_close() waits for the callback that still runs. */
TEST_LOOP(close_ends_the_calls_of_others, 0, WAYS) {
  static int (*const tasks[])(worker *) = {
      wait_until_refused,  wait_until_refused,     read_until_refused,
      write_until_refused, dispatch_until_refused, ask_until_refused};
  enum { TASKS = sizeof tasks / sizeof *tasks };
  latch l;
  worker holder, w[TASKS], closer;
  begin_held(_i, &l, &holder);
  for (int i = 0; i < TASKS; i++) start(&w[i], tasks[i], shared, i);
  start(&closer, close_handle, shared, 0);
  for (int i = 0; i < TASKS; i++) ck_rc(join(&w[i]), ZKE_CLOSING);
  ck_assert(!closer.done);
  sem_post(&l.released);
  int rc = join(&holder);
  ck_assert_msg(rc == ZKE_OK || rc == ZKE_CLOSING, "dispatch: %d", rc);
  ck_ok(join(&closer));
  ck_ok(change(writer, "/n"));
}

/* zkembed.h: a thread that sleeps in the kernel is woken by the close. */
TEST_LOOP(close_wakes_the_sleeper, 0, WAYS) {
  begin(_i);
  watch(shared, count_one, NULL);
  worker sleeper;
  start(&sleeper, wait_long, shared, 0);
  ck_until(sleeps() > 0, 5000);
  ck_ok(zke_close(shared));
  ck_rc(join(&sleeper), ZKE_CLOSING);
  ck_assert_int_eq(called, 0);
}

/* zkembed.h: sessions are closed one by one; a sleeping sibling is not
 * woken. */
TEST_LOOP(close_leaves_sleeping_neighbour, 0, WAYS) {
  begin(_i);
  watch(shared, count_one, NULL);
  worker sleeper;
  start(&sleeper, wait_long, shared, 0);
  ck_until(sleeps() > 0, 5000);
  zke *neighbour = test_session(shared, NULL);
  ck_ok(zke_close(neighbour));
  ck_assert(!sleeper.done);
  ck_ok(change(writer, "/n"));
  ck_ok(join(&sleeper));
  ck_assert_int_eq(called, 1);
}

static void close_other(zke *z, int type, int state, const char *path,
                        void *context) {
  (void)z, (void)type, (void)state, (void)path;
  if (zke_close(context) == ZKE_OK) atomic_fetch_add(&called, 1);
}

/* zkembed.h: a callback may close another handle, even one in which another
 * thread sleeps. */
TEST_LOOP(callback_closes_a_sleeping_handle, 0, WAYS) {
  begin(_i);
  zke *other = test_session(shared, NULL);
  watch(other, count_one, NULL);
  ck_rc(zke_exists(writer, "/gone", close_other, shared, NULL), ZKE_NONODE);
  worker sleeper;
  start(&sleeper, wait_long, shared, 0);
  ck_until(sleeps() > 0, 5000);
  make(writer, "/gone");
  ck_ok(zke_dispatch(writer, NULL));
  ck_rc(join(&sleeper), ZKE_CLOSING);
  ck_assert_int_eq(called, 1);
}

/* ---- expiry under other threads ---- */

static atomic_int told; /* session events */

static void count_expiry(zke *z, int type, int state, const char *path,
                         void *context) {
  (void)z, (void)path, (void)context;
  if (type == ZKE_EVENT_SESSION && state == ZKE_STATE_EXPIRED)
    atomic_fetch_add(&told, 1);
}

/* Wait, read or write until the handle's session has ended. */
static int use_until_dead(worker *w) {
  int rc = ZKE_OK;
  while (rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT ||
         rc == ZKE_SESSIONEXPIRED) {
    if (w->number % 3 == 0) {
      rc = zke_wait(w->z, zke_now(w->z) + 5);
    } else if (w->number % 3 == 1) {
      rc = zke_get(w->z, "/n", NULL, NULL, NULL, NULL, NULL);
    } else {
      rc = change(w->z, "/n");
    }
  }
  return rc;
}

/* 12 #64: every thread gets ZKE_INVALIDSTATE, the watcher one event. */
TEST_LOOP(expiry_is_told_once_among_threads, 0, WAYS) {
  begin(_i);
  ck_ok(zke_set_watcher(shared, count_expiry, NULL));
  worker w[6];
  for (int i = 0; i < 6; i++) start(&w[i], use_until_dead, shared, i);
  ck_ok(zke_expire(writer, zke_session_id(shared)));
  for (int i = 0; i < 6; i++) ck_rc(join(&w[i]), ZKE_INVALIDSTATE);
  int rc = zke_dispatch(shared, NULL);
  ck_assert_msg(rc == ZKE_OK || rc == ZKE_INVALIDSTATE, "dispatch: %d", rc);
  ck_assert_int_eq(told, 1);
}

/* ---- sessions of threads ---- */

/* Add 1 to the number in /n, by compare and set. */
static int increment(zke *z) {
  for (;;) {
    char *data = NULL, text[16];
    zke_stat stat;
    int rc = zke_get(z, "/n", NULL, NULL, &data, NULL, &stat);
    if (rc != ZKE_OK) return rc;
    int len = snprintf(text, sizeof text, "%d", atoi(data) + 1);
    zke_free(data);
    rc = zke_set(z, "/n", text, len, stat.version, NULL);
    if (rc != ZKE_BADVERSION) return rc;
  }
}

enum { INCREMENTS = 50 };

static int increment_often(worker *w) {
  int rc = ZKE_OK;
  for (int i = 0; i < INCREMENTS && rc == ZKE_OK; i++) rc = increment(w->z);
  return rc;
}

/* P1: versions make a counter exact, however many run in parallel: threads with
 * sessions of one store, with stores of one file, or with one handle. */
TEST_LOOP(parallel_counting_is_exact, 0, 2 * WAYS) {
  begin(_i % 2);
  zke *z[THREADS];
  worker w[THREADS];
  for (int i = 0; i < THREADS; i++) {
    if (_i / 2)
      z[i] = shared;
    else if (_i % 2)
      z[i] = test_open(test_path("thread.db"));
    else
      z[i] = test_session(shared, NULL);
    start(&w[i], increment_often, z[i], i);
  }
  for (int i = 0; i < THREADS; i++) ck_ok(join(&w[i]));
  char *data = NULL;
  ck_ok(zke_get(writer, "/n", NULL, NULL, &data, NULL, NULL));
  ck_assert_int_eq(atoi(data), THREADS * INCREMENTS);
  zke_free(data);
  for (int i = 0; i < THREADS; i++)
    if (z[i] != shared) ck_ok(zke_close(z[i]));
}

enum { ROUNDS = 100 };

/* Wait until a node has been set this often. */
static int await_version(zke *z, const char *path, int version) {
  for (;;) {
    zke_stat stat;
    int rc = zke_exists(z, path, count_one, NULL, &stat);
    if (rc != ZKE_OK || stat.version >= version) return rc;
    rc = zke_wait(z, zke_now(z) + 10000);
    if (rc != ZKE_OK) return rc;
  }
}

/* Take turns: set one's own node after the other thread has set its own. */
static int play(worker *w) {
  const char *mine = w->number ? "/pong" : "/ping";
  const char *theirs = w->number ? "/ping" : "/pong";
  int rc = ZKE_OK;
  for (int i = 1; i <= ROUNDS && rc == ZKE_OK; i++) {
    if (w->number) rc = await_version(w->z, theirs, i);
    if (rc == ZKE_OK) rc = zke_set(w->z, mine, "", 0, -1, NULL);
    if (rc == ZKE_OK && !w->number) rc = await_version(w->z, theirs, i);
  }
  return rc;
}

/* P3, P7: no turn is missed between reading, registering and waiting. */
TEST_LOOP(two_threads_play_ping_pong, 0, WAYS) {
  begin(_i);
  static const char *const nodes[] = {"/ping", "/pong"};
  for (int i = 0; i < 2; i++) make(writer, nodes[i]);
  worker a, b;
  start(&a, play, shared, 0);
  start(&b, play, writer, 1);
  ck_ok(join(&a));
  ck_ok(join(&b));
}

enum { CROWD = 1000, CALLS_MOST = 10, CALLS_ENOUGH = 100 };

static int greedy_cpu; /* the others keep to it, and do not preempt: so a woken
                        * thread certainly comes too late */

static void stay_on_cpu(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)greedy_cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

/* Make changes without pause until all others are served, or long after they
 * should be. */
static int change_greedily(worker *w) {
  int rc = ZKE_OK, most = w->number * CALLS_ENOUGH;
  greedy_cpu = sched_getcpu();
  stay_on_cpu();
  greedy = true;
  for (; rc == ZKE_OK && unserved > 0 && calls_begun < most; calls_begun++)
    rc = change(w->z, "/n");
  return rc;
}

/* A thread that makes one read, without hurry. */
static int get_once(worker *w) {
  struct sched_param none = {0};
  stay_on_cpu();
  sched_setscheduler(0, SCHED_BATCH, &none);
  int rc = zke_get(w->z, "/n", NULL, NULL, NULL, NULL, NULL);
  atomic_fetch_sub(&unserved, 1);
  return rc;
}

/* zkembed.h, Threads: a call gets its turn even if another thread makes no
 * pause: a thread that calls again and again may pass those that are being
 * woken, but not for ever.  It used to, and the others got
 * ZKE_OPERATIONTIMEOUT. */
TEST_LOOP(greedy_thread_makes_way, 0, 2 * WAYS) {
  static worker many[CROWD];
  int count = _i / WAYS ? CROWD : 1;
  begin(_i % WAYS);
  zke *neighbour = test_session(shared, NULL);
  worker w;
  looks = 0;
  unserved = count;
  start(&w, change_greedily, shared, count);
  ck_until(kept, 10000);
  for (int i = 0; i < count; i++) start(&many[i], get_once, neighbour, i);
  for (int i = 0; i < count; i++) ck_ok(join(&many[i]));
  ck_ok(join(&w));
  ck_assert_int_le(calls_begun, count * CALLS_MOST);
}

static int change_and_keep(worker *w) {
  keeper = true;
  return change(w->z, "/n");
}

/* zkembed.h: when zke_forget() returns, the pair is never called again,
 * whatever other threads do meanwhile and however short of time the caller
 * is. */
TEST_LOOP(forget_cannot_be_late, 0, WAYS) {
  begin(_i);
  worker w;
  watch(shared, count_one, NULL);
  int64_t late = zke_now(shared) - 1;
  start(&w, change_and_keep, shared, 0);
  ck_until(keeping, 10000);
  zke_limit(shared, late);
  int rc = zke_forget(shared, count_one, NULL);
  come_back = true;
  zke_limit(shared, ZKE_FOREVER);
  ck_ok(join(&w));
  if (rc != ZKE_OK)
    ck_assert_str_eq(zke_error_name(rc), "ZKE_OPERATIONTIMEOUT");
  ck_ok(zke_dispatch(shared, NULL));
  ck_ok(change(writer, "/n"));
  ck_ok(zke_dispatch(shared, NULL));
  ck_assert_int_eq(called, 0);
}

/* A call that waits for nothing except the end of another thread's call. */
static int ask(worker *w) {
  int fd, pending;
  int64_t now = zke_now(w->z), deadline;
  switch (w->number) {
    case 0:
      return zke_fd(w->z, &fd);
    case 1:
      return zke_next_deadline(w->z, &deadline);
    case 2:
      return zke_pending(w->z, &pending);
    case 3:
      return zke_wake(w->z);
    default:
      zke_limit(w->z, now + 20); /* does not limit a wait */
      return zke_wait(w->z, now + 60000);
  }
}

/* zkembed.h: zke_wait() waits until its own deadline, and a call that only
 * reads the handle does not fail, while another thread's call, such as a
 * compaction, takes longer than the busy timeout.  They used to return
 * ZKE_OPERATIONTIMEOUT. */
TEST_LOOP(long_call_fails_no_wait, 0, WAYS) {
  enum { QUESTIONS = 4 };
  worker keeps, asks[QUESTIONS], waits;
  busy_ms = 20;
  begin(_i);
  start(&keeps, change_and_keep, shared, 0);
  ck_until(keeping, 10000);
  for (int i = 0; i < QUESTIONS; i++) start(&asks[i], ask, shared, i);
  start(&waits, ask, shared, QUESTIONS);
  for (int i = 0; i < QUESTIONS; i++) ck_ok(join(&asks[i]));
  ck_ok(join(&keeps));
  ck_until((zke_wake(shared), waits.done), 10000);
  ck_ok(join(&waits));
}

/* zkembed.h: zke_call_at() waits for no other thread's call, nor does
 * zke_sleep() sleep beyond its deadline for one, with a lease or without.  Both
 * used to return only after the other call, however long that took. */
TEST_LOOP(long_call_delays_no_alarm_and_no_sleep, 0, WAYS) {
  enum { LATE = 1500 };
  worker keeps;
  keep_ms = 20000;
  begin(_i);
  zke *leased = session_as(shared, .lease_ms = 60000);
  start(&keeps, change_and_keep, shared, 0);
  ck_until(keeping, 10000);
  ck_ok(zke_call_at(shared, zke_now(shared) + 60000, count_one, NULL));
  ck_ok(zke_sleep(shared, zke_now(shared) + 10));
  int64_t late = LATE;
  for (int i = 0; i < 3 && late >= LATE; i++) { /* by chance some may be */
    int64_t until = zke_now(leased) + 2000;
    ck_ok(zke_sleep(leased, until));
    late = zke_now(leased) - until;
  }
  ck_assert_int_lt(late, LATE); /* it used to sleep twice as long */
  bool waited = keeps.done;
  come_back = true;
  ck_ok(join(&keeps));
  ck_assert(!waited);
}

/* Open a session, use it, close it, many times. */
static int come_and_go(worker *w) {
  for (int i = 0; i < 50; i++) {
    zke *z = NULL;
    int rc = zke_open_session(w->z, NULL, &z);
    if (rc != ZKE_OK) return rc;
    rc = create(z, "/e-", ZKE_EPHEMERAL_SEQUENTIAL);
    if (rc == ZKE_OK) rc = zke_get(z, "/n", count_one, NULL, NULL, NULL, NULL);
    if (rc == ZKE_OK) rc = zke_dispatch(z, NULL);
    int closed = zke_close(z);
    if (rc != ZKE_OK || closed != ZKE_OK) return rc ? rc : closed;
  }
  return ZKE_OK;
}

/* zkembed.h: sessions come and go in parallel on one store while their watched
 * node is changed; nothing of them is left. */
TEST_LOOP(sessions_come_and_go_in_parallel, 0, WAYS) {
  begin(_i);
  worker w[THREADS];
  int fds = test_fd_count();
  for (int i = 0; i < THREADS; i++) start(&w[i], come_and_go, shared, i);
  bool busy = true;
  while (busy) {
    ck_ok(change(writer, "/n"));
    busy = false;
    for (int i = 0; i < THREADS; i++) busy = busy || !w[i].done;
  }
  for (int i = 0; i < THREADS; i++) ck_ok(join(&w[i]));
  zke_strings *names = NULL;
  zke_session_list *sessions = NULL;
  ck_ok(zke_children(writer, "/", NULL, NULL, &names, NULL));
  ck_ok(zke_sessions(writer, -1, &sessions));
  ck_assert_int_eq(names->count, 2); /* /n and /zookeeper */
  ck_assert_int_eq(sessions->count, 2);
  zke_free(names);
  zke_free(sessions);
  ck_ok(zke_check(writer, NULL, NULL));
  if (_i == IN_MEMORY) ck_assert_int_eq(test_fd_count(), fds);
}

static const char *crowd; /* the file of open_and_close() */

/* A thread that opens and closes ten handles. */
static int open_and_close(worker *w) {
  (void)w;
  for (int i = 0; i < 10; i++) {
    zke *z = NULL;
    int rc = zke_open(crowd, NULL, &z);
    if (rc != ZKE_OK) return rc;
    rc = create(z, "/e-", ZKE_EPHEMERAL_SEQUENTIAL);
    int closed = zke_close(z);
    if (rc != ZKE_OK || closed != ZKE_OK) return rc ? rc : closed;
  }
  return ZKE_OK;
}

/* zkembed.h: threads open and close stores on one file in parallel, from its
 * creation on. */
TEST(stores_open_and_close_in_parallel) {
  crowd = test_path("crowd.db");
  int fds = test_fd_count();
  worker w[THREADS];
  for (int i = 0; i < THREADS; i++) start(&w[i], open_and_close, NULL, i);
  for (int i = 0; i < THREADS; i++) ck_ok(join(&w[i]));
  ck_assert_int_eq(test_fd_count(), fds);
  zke *z = test_open(crowd);
  zke_stat stat = test_stat(z, "/");
  ck_assert_int_eq(stat.numChildren, 1);
  ck_assert_int_eq(stat.cversion, 2 * 10 * THREADS - 1);
  ck_ok(zke_check(z, NULL, NULL));
}

static int fail_elsewhere(worker *w) {
  int rc = zke_delete(w->z, "/elsewhere", -1);
  return strstr(zke_errmsg(), "/elsewhere") ? rc : ZKE_SYSTEMERROR;
}

/* zkembed.h: each thread has its own sentence, about its own last failure. */
TEST_LOOP(sentences_are_of_one_thread, 0, WAYS) {
  begin(_i);
  worker w;
  ck_rc(zke_delete(shared, "/here", -1), ZKE_NONODE);
  start(&w, fail_elsewhere, shared, 0);
  ck_assert_int_eq(join(&w), ZKE_NONODE);
  ck_says("/here");
}
