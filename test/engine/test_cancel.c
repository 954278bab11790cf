/* test_cancel.c - threads that are cancelled, or end, inside a call
 *
 * pthread_cancel() is deferred while a thread is inside the library, except in
 * the sleep of a wait, which is left cleanly.  Whichever thread is cancelled,
 * and whenever, no lock is kept, no session is stuck, no other process is kept
 * waiting, and zke_close() returns (P9, P10).  The same for recipes.
 */
#define _GNU_SOURCE
#include "test/seam.h"
#include "test/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recipes/counter.h"
#include "recipes/double_barrier.h"
#include "recipes/group.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/names.h"
#include "recipes/queue.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"

/* ---- a system whose n-th call cancels the thread that makes it ---- */

static _Thread_local bool armed; /* this thread's calls are counted */
static long calls, cancel_at;    /* 0: never */
static atomic_int sleeps;        /* polls that may sleep */

static bool late; /* see below */

/* The C library cancels an asynchronous thread by a signal.  The signal may be
 * sent while the thread allows cancellation, and arrive when it no longer does.
 * `late` simulates that. */
static void cancel_here(void) {
  if (late)
    syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), __SIGRTMIN);
  else
    pthread_cancel(pthread_self());
}

static void count_call(seam_call *c) {
  if (c->kind == SEAM_poll && c->time) atomic_fetch_add(&sleeps, 1);
  if (armed && ++calls == cancel_at) cancel_here();
}

/* A handle that counts its system calls, and cancels the thread at a chosen
 * one. */
static int open_with(const char *name, test_heap *heap, zke **out) {
  static seam counted = {.each = count_call};
  zke_options o = {.size = sizeof o, .os = seam_os(&counted)};
  if (heap) o.allocator = (zke_allocator){test_heap_resize, heap};
  return zke_open(name, &o, out);
}

/* ---- the handle under test, and another that checks it ---- */

static zke *shared, *other; /* two stores on one file */

static void begin(void) {
  const char *name = test_path("a.db");
  other = test_open(name);
  ck_ok(zke_create(other, "/n", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_ok(open_with(name, NULL, &shared));
}

static atomic_int called;

static void note(zke *z, int type, int state, const char *path, void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
  atomic_fetch_add(&called, 1);
}

/* Writing, reading and watching work, on this store and on the other; then the
 * handle closes. */
static void expect_working(void) {
  int before = called;
  ck_ok(zke_set(other, "/n", "1", 1, -1, NULL));
  ck_ok(zke_add_watch(shared, "/n", ZKE_WATCH_PERSISTENT, note, &called));
  ck_ok(zke_set(shared, "/n", "2", 1, -1, NULL));
  while (called == before) ck_ok(zke_wait(shared, zke_now(shared) + 10000));
  ck_ok(zke_check(other, NULL, NULL));
}

static void finish(void) {
  expect_working();
  ck_ok(zke_close(shared));
  ck_ok(zke_close(other));
}

/* ---- threads ---- */

typedef struct runner {
  pthread_t thread;
  void (*run)(void *);
  void *context;
  int type;
  bool returned; /* it was not cancelled */
} runner;

/* A pending cancellation takes effect here at the latest; one always comes. */
static void *run_it(void *arg) {
  runner *r = arg;
  pthread_setcanceltype(r->type, NULL);
  r->run(r->context);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, NULL);
  pthread_cancel(pthread_self());
  pthread_testcancel();
  r->returned = true;
  return NULL;
}

static void start(runner *r, void (*run)(void *), void *context, int type) {
  *r = (runner){.run = run, .context = context, .type = type};
  ck_assert_int_eq(pthread_create(&r->thread, NULL, run_it, r), 0);
}

/* The thread must end by being cancelled. */
static void join(runner *r) {
  ck_assert_int_eq(pthread_join(r->thread, NULL), 0);
  ck_assert(!r->returned);
}

static void cancel(runner *r) {
  ck_assert_int_eq(pthread_cancel(r->thread), 0);
  join(r);
}

static const int types[] = {PTHREAD_CANCEL_DEFERRED,
                            PTHREAD_CANCEL_ASYNCHRONOUS};

/* ---- calls ---- */

/* Make calls while a cancellation is pending, and count those that return. */
static void call_cancelled(void *context) {
  int *made = context;
  pthread_cancel(pthread_self());
  for (int i = 0; i < 20; i++) {
    char *data = NULL;
    zke_strings *names = NULL;
    *made += zke_set(shared, "/n", "2", 1, -1, NULL) == ZKE_OK;
    *made += zke_get(shared, "/n", NULL, NULL, &data, NULL, NULL) == ZKE_OK;
    *made += zke_children(shared, "/", NULL, NULL, &names, NULL) == ZKE_OK;
    zke_free(data);
    zke_free(names);
  }
  pthread_testcancel();
  (*made)++;
}

/* zkembed.h, Cancellation: only waits are cancellation points, so no other call
 * loses its result; the thread ends at pthread_testcancel(). */
TEST(calls_are_no_cancellation_points) {
  runner r;
  int made = 0;
  begin();
  start(&r, call_cancelled, &made, PTHREAD_CANCEL_DEFERRED);
  join(&r);
  ck_assert_int_eq(made, 60);
  finish();
}

/* ---- waits ---- */

static void wait_long(void *context) { zke_wait(context, ZKE_FOREVER); }

/* An endless wait is left, by the thread that sleeps in the kernel and by those
 * that wait for it, and all other calls still work. */
TEST_LOOP(wait_is_left, 0, 2) {
  runner r[3];
  begin();
  for (int round = 0; round < 20; round++) {
    int before = sleeps;
    start(&r[0], wait_long, shared, types[_i]);
    ck_until(sleeps > before, 10000);
    start(&r[1], wait_long, shared, types[_i]);
    start(&r[2], wait_long, shared, types[_i]);
    for (int pause = 0; pause < round % 4; pause++) test_pause();
    for (int i = 0; i < 3; i++) cancel(&r[(round + i) % 3]);
  }
  finish();
}

/* The sleeper is cancelled, and a thread that waits with it gets the event. */
static atomic_int woken;

static void wait_event(void *context) {
  if (zke_wait(context, ZKE_FOREVER) == ZKE_OK) atomic_fetch_add(&woken, 1);
}

/* P9: of two threads in zke_wait() the one that dispatches is cancelled: the
 * other takes its role, and wakes up. */
TEST_LOOP(others_wait_on, 0, 2) {
  runner r[2];
  begin();
  ck_ok(zke_add_watch(shared, "/n", ZKE_WATCH_PERSISTENT, note, NULL));
  start(&r[0], wait_long, shared, types[_i]);
  ck_until(sleeps > 0, 10000);
  start(&r[1], wait_event, shared, types[_i]);
  cancel(&r[0]);
  ck_until((zke_set(other, "/n", "", 0, -1, NULL), woken == 1), 10000);
  cancel(&r[1]);
  finish();
}

/* ---- every call, cancelled at every system call ---- */

/* A thread that is cancelled at any instruction may lose a call's results. */
static bool outputs;

/* Each reading call, whatever it returns.  Without outputs, nothing is
 * allocated that a cancelled thread would leak. */
static void read_all(zke *z) {
  zke_strings *names = NULL;
  zke_acls *acls = NULL;
  char *data = NULL;
  zke_get(z, "/p", note, NULL, outputs ? &data : NULL, NULL, NULL);
  zke_exists(z, "/e", note, NULL, NULL);
  zke_children(z, "/", NULL, NULL, outputs ? &names : NULL, NULL);
  zke_get_acl(z, "/p", outputs ? &acls : NULL, NULL);
  zke_count(z, "/", NULL);
  zke_sync(z, "/");
  zke_free(data);
  zke_free(names);
  zke_free(acls);
}

/* In a function of the program, cancellation is deferred. */
static int write_row(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  pthread_testcancel();
  return sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS mine(a)", NULL, NULL,
                      NULL);
}

/* Each changing call, likewise. */
static int write_twice(zke *z, void *context) {
  (void)context;
  zke_set(z, "/p", "a", 1, -1, NULL);
  zke_exists(z, "/p", note, NULL, NULL);
  return zke_set(z, "/p", "b", 1, -1, NULL);
}

static void write_all(zke *z) {
  zke_op ops[2];
  char *path = NULL;
  zke_create(z, "/e", "x", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
             outputs ? &path : NULL, NULL);
  zke_free(path);
  zke_create(z, "/p", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  zke_set(z, "/p", "y", 1, -1, NULL);
  zke_set_acl(z, "/p", -1, ZKE_OPEN_ACL, NULL);
  zke_op_set(&ops[0], "/p", "z", 1, -1);
  zke_op_check(&ops[1], "/n", -1);
  zke_multi(z, ops, 2, NULL);
  zke_batch(z, write_twice, NULL);
  zke_op_sql(&ops[0], write_row, NULL);
  zke_multi(z, ops, 2, NULL);
}

/* Each public function that may be cancelled in its middle, once. */
static void every_call(void *context) {
  zke *z = context, *further = NULL;
  armed = true;
  write_all(z);
  read_all(z);
  zke_dispatch(z, NULL);
  zke_wait(z, zke_now(z) + 1);
  zke_call_at(z, 0, note, NULL);
  zke_dispatch(z, NULL);
  zke_forget(z, note, NULL);
  if (outputs && zke_open_session(z, NULL, &further) == ZKE_OK)
    zke_close(further);
  zke_delete(z, "/p", -1);
  zke_delete(z, "/e", -1);
  armed = false;
}

/* Run it in a thread that is cancelled at its n-th call; 0: after the last.
 * Returns the number of calls. */
static long run_at(long n, void (*run)(void *), void *context, int type) {
  runner r;
  calls = 0;
  cancel_at = n;
  start(&r, run, context, type);
  join(&r);
  return calls;
}

/* every_call() is cancelled at each of its system calls; after each the handle
 * works. */
static void cancel_everywhere(int type) {
  begin();
  outputs = type == PTHREAD_CANCEL_DEFERRED;
  long most = run_at(0, every_call, shared, type);
  ck_assert_int_gt(most, 50);
  for (long n = 1; n <= most; n++) {
    run_at(n, every_call, shared, type);
    zke_delete(other, "/p", -1);
    zke_delete(other, "/e", -1);
    expect_working();
  }
  finish();
}

/* P9: a thread is cancelled at the n-th system call of every public function,
 * for each n: no lock, gate or memory stays held. */
TEST_LOOP(cancelled_at_every_system_call, 0, 2) {
  cancel_everywhere(types[_i]);
}

/* The same if the signal arrives after the call has deferred cancellation. */
TEST(cancelled_late_at_every_system_call) {
  late = true;
  cancel_everywhere(PTHREAD_CANCEL_ASYNCHRONOUS);
}

/* ---- opening and closing ---- */

static test_heap heap;

/* Opening and closing, cancelled in the same way. */
static void open_and_close(void *context) {
  zke *z;
  armed = true;
  if (open_with(context, &heap, &z) != ZKE_OK) return;
  zke_create(z, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
  zke_close(z);
  armed = false;
}

/* Neither leaves anything behind: no memory, no descriptor, no session. */
TEST(open_and_close_are_finished) {
  char name[4096];
  snprintf(name, sizeof name, "%s", test_path("a.db"));
  other = test_open(name);
  long most = run_at(0, open_and_close, name, PTHREAD_CANCEL_DEFERRED);
  int fds = test_fd_count();
  ck_assert_int_gt(most, 30);
  for (long n = 1; n <= most; n++) {
    run_at(n, open_and_close, name, PTHREAD_CANCEL_DEFERRED);
    ck_assert_int_eq(heap.live, 0);
    ck_assert_int_eq(test_fd_count(), fds);
    ck_assert_int_eq(test_session_count(other), 1);
  }
  ck_ok(zke_close(other));
}

/* ---- callbacks ---- */

/* A callback whose thread is cancelled: cancellation is disabled in it, so it
 * runs to its end. */
static void be_cancelled(zke *z, int type, int state, const char *path,
                         void *context) {
  pthread_cancel(pthread_self());
  pthread_testcancel();
  zke_sync(z, "/");
  zke_wait(z, zke_now(z) + 1);
  note(z, type, state, path, context);
}

/* A callback is not interrupted: cancellation waits until the call is over, and
 * all watchers of an event are called. */
TEST_LOOP(callback_is_finished, 0, 2) {
  runner r;
  begin();
  ck_ok(zke_exists(shared, "/n", be_cancelled, NULL, NULL));
  ck_ok(zke_exists(shared, "/n", note, NULL, NULL));
  ck_ok(zke_set(other, "/n", "", 0, -1, NULL));
  start(&r, wait_long, shared, types[_i]);
  join(&r);
  ck_assert_int_eq(called, 2);
  finish();
}

static void end_thread(zke *z, int type, int state, const char *path,
                       void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
  pthread_exit(PTHREAD_CANCELED);
}

static void allow_cancel(zke *z, int type, int state, const char *path,
                         void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
  pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
  pthread_cancel(pthread_self());
  pthread_testcancel();
}

/* Dispatches again, which calls the callback that ends the thread. */
static void dispatch_again(zke *z, int type, int state, const char *path,
                           void *context) {
  zke_watch_fn fn = type == ZKE_EVENT_CHANGED ? allow_cancel : end_thread;
  (void)state, (void)path, (void)context;
  zke_exists(z, "/n", fn, NULL, NULL);
  zke_set(other, "/n", "", 0, -1, NULL);
  zke_dispatch(z, NULL);
}

static void dispatch_long(void *context) {
  while (zke_dispatch(context, NULL) == ZKE_OK) test_pause();
}

/* A callback that nevertheless ends its thread, in a wait, in a dispatch or in
 * a nested dispatch, leaves the handle usable. */
TEST(callback_that_ends_its_thread) {
  static const zke_watch_fn ends[] = {end_thread, allow_cancel, dispatch_again};
  begin();
  for (int i = 0; i < 6; i++) {
    runner r;
    ck_ok(zke_exists(shared, "/n", ends[i % 3], NULL, NULL));
    start(&r, i < 3 ? wait_long : dispatch_long, shared,
          PTHREAD_CANCEL_DEFERRED);
    ck_ok(zke_set(other, "/n", "", 0, -1, NULL));
    join(&r);
    expect_working();
  }
  finish();
}

/* The same in a callback of a light session, called by a dispatch of its
 * carrier: both handles stay usable. */
TEST_LOOP(callback_of_a_light_session_that_ends_its_thread, 0, 2) {
  runner r;
  zke *light = NULL;
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_LIGHT};
  begin();
  ck_ok(zke_open_session(shared, &o, &light));
  ck_ok(zke_exists(light, "/n", end_thread, NULL, NULL));
  start(&r, _i ? wait_long : dispatch_long, shared, PTHREAD_CANCEL_DEFERRED);
  ck_ok(zke_set(other, "/n", "", 0, -1, NULL));
  join(&r);
  expect_working();
  ck_ok(zke_exists(light, "/n", note, NULL, NULL));
  ck_ok(zke_set(other, "/n", "", 0, -1, NULL));
  int before = called;
  ck_until(zke_dispatch(shared, NULL) == ZKE_OK && called > before, 10000);
  ck_ok(zke_close(light));
  finish();
}

/* How many changes the session has not been told of. */
static int silent(void) {
  zke_op op;
  zke_op_result r = {0};
  zke_op_untold(&op, "/", 0);
  ck_ok(zke_multi_read(shared, &op, 1, &r));
  int count = r.len;
  zke_results_clear(&r, 1);
  return count;
}

/* zkembed.h, zke_op_untold: if watchers are not called for that reason, they
 * can find out that they have missed something. */
TEST(callback_that_ends_its_thread_leaves_a_mark) {
  runner r;
  begin();
  ck_ok(zke_exists(shared, "/n", end_thread, NULL, NULL));
  ck_ok(zke_add_watch(shared, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, note, NULL));
  ck_assert_int_eq(silent(), 0);
  ck_ok(zke_set(other, "/n", "", 0, -1, NULL));
  start(&r, dispatch_long, shared, PTHREAD_CANCEL_DEFERRED);
  join(&r);
  ck_assert_int_eq(silent(), 1);
  ck_ok(zke_forget(shared, note, NULL));
  finish();
}

/* The same with one call at a time; the other watchers are still called. */
TEST_LOOP(call_at_a_time_that_ends_its_thread, 0, 2) {
  runner r;
  begin();
  ck_ok(zke_call_at(shared, 0, end_thread, NULL));
  ck_ok(zke_call_at(shared, 1, note, NULL));
  start(&r, _i ? wait_long : dispatch_long, shared, PTHREAD_CANCEL_DEFERRED);
  join(&r);
  ck_until(zke_dispatch(shared, NULL) == ZKE_OK && called == 1, 10000);
  expect_working();
  finish();
}

/* ---- recipes ---- */

/* A recipe in this test: make an object, and block in it for ever.  If only
 * another session's object makes it block, that one is taken first. */
typedef struct recipe {
  const char *name;
  void *(*make)(zke *z);
  int (*block)(void *object);
  void (*free)(void *object);
  int (*release)(void *object); /* or NULL: it needs no holder */
} recipe;

#define RECIPE(type, making, blocking)                       \
  static void *make_##type(zke *z) {                         \
    zke_##type *object = NULL;                               \
    ck_ok(making);                                           \
    return object;                                           \
  }                                                          \
  static int block_##type(void *object) { return blocking; } \
  static void free_##type(void *object) { zke_##type##_free(object); }

#define HELD(type, making, blocking, releasing) \
  RECIPE(type, making, blocking)                \
  static int release_##type(void *object) { return releasing; }

static const zke_semaphore_options one = {.size = sizeof one, .limit = 1};
static const zke_multilock_item items[] = {
    {"/ma", ZKE_MULTILOCK_LOCK},
    {"/mb", ZKE_MULTILOCK_LOCK},
};
static zke_queue_item *item;

static int wait_counter(zke_counter *c) {
  int64_t value, token;
  int rc = zke_counter_get(c, &value, &token);
  if (rc != ZKE_OK) return rc;
  return zke_counter_wait(c, token, ZKE_FOREVER, NULL, NULL);
}

HELD(lock, zke_lock_new(z, "/lock", NULL, &object),
     zke_lock_acquire(object, ZKE_FOREVER), zke_lock_release(object))
HELD(rwlock, zke_rwlock_new(z, "/rwlock", NULL, &object),
     zke_rwlock_acquire(object, ZKE_RWLOCK_WRITE, ZKE_FOREVER),
     zke_rwlock_release(object))
HELD(semaphore, zke_semaphore_new(z, "/semaphore", &one, &object),
     zke_semaphore_acquire(object, 1, ZKE_FOREVER),
     zke_semaphore_release(object))
HELD(multilock, zke_multilock_new(z, items, 2, NULL, &object),
     zke_multilock_acquire(object, ZKE_FOREVER), zke_multilock_release(object))
RECIPE(queue, zke_queue_new(z, "/queue", NULL, &object),
       zke_queue_take(object, ZKE_FOREVER, &item))
RECIPE(double_barrier, zke_double_barrier_new(z, "/double", 2, NULL, &object),
       zke_double_barrier_enter(object, "", 0, ZKE_FOREVER, NULL))
RECIPE(counter, zke_counter_new(z, "/counter", NULL, &object),
       wait_counter(object))
RECIPE(group, zke_group_new(z, "/group", NULL, &object),
       zke_group_wait(object, 2, ZKE_FOREVER))
RECIPE(names, zke_names_new(z, "/names", NULL, &object),
       zke_names_wait(object, "nobody", ZKE_FOREVER, NULL))

#define NEEDS_NONE(type) \
  { #type, make_##type, block_##type, free_##type, NULL }
#define NEEDS_HOLDER(type) \
  { #type, make_##type, block_##type, free_##type, release_##type }
static const recipe recipes[] = {
    NEEDS_HOLDER(lock),      NEEDS_HOLDER(rwlock), NEEDS_HOLDER(semaphore),
    NEEDS_HOLDER(multilock), NEEDS_NONE(queue),    NEEDS_NONE(double_barrier),
    NEEDS_NONE(counter),     NEEDS_NONE(group),    NEEDS_NONE(names)};
enum { RECIPES = sizeof recipes / sizeof *recipes };

static const recipe *under_test;
static atomic_int after; /* what a call returned after the cancellation */
static int64_t nodes_after;

/* Like a program's cleanup handler: the place was given up before it runs. */
static void clean_up(void *object) {
  zke_count(other, "/", &nodes_after);
  after = under_test->block(object);
  under_test->free(object);
}

static void block(void *object) {
  pthread_cleanup_push(clean_up, object);
  under_test->block(object);
  pthread_cleanup_pop(1);
}

/* Block in an object of `shared` until it sleeps, and be cancelled there. */
static void cancel_in_recipe(void) {
  runner r;
  int before = sleeps;
  after = ZKE_OK;
  start(&r, block, under_test->make(shared), types[0]);
  ck_until(sleeps > before, 10000);
  cancel(&r);
  ck_assert_int_eq(after, ZKE_CLOSING);
}

/* If a recipe's blocking call is cancelled, it leaves no place behind, and the
 * next waiter gets it. */
TEST_LOOP(recipe_gives_up_its_place, 0, RECIPES) {
  begin();
  under_test = &recipes[_i];
  void *holder = NULL;
  if (under_test->release) {
    holder = under_test->make(other);
    ck_ok(under_test->block(holder));
  }
  cancel_in_recipe(); /* makes the directories */
  int64_t nodes = nodes_after;
  cancel_in_recipe();
  ck_assert_int_eq(nodes_after, nodes);
  if (holder) {
    ck_ok(under_test->release(holder));
    void *next = under_test->make(shared);
    ck_ok(under_test->block(next));
    under_test->free(next);
    under_test->free(holder);
  }
  finish();
}

static zke_queue *full;
static atomic_int put_rc;

static void take_for_ever(void *context) {
  zke_queue_take(context, ZKE_FOREVER, &item);
}

static void put_for_ever(void *context) {
  put_rc = zke_queue_put(context, "b", 1, NULL, ZKE_FOREVER);
}

/* A thread that waits on an object is cancelled while another one sleeps there:
 * the other is woken and told of it. */
TEST(others_in_the_object_are_told) {
  runner taker, putter;
  zke_queue *claimer;
  zke_queue_options o = {.size = sizeof o, .limit = 1};
  int64_t before, now;
  begin();
  ck_ok(zke_queue_new(other, "/queue", &o, &claimer));
  ck_ok(zke_queue_put(claimer, "a", 1, NULL, 0));
  ck_ok(zke_queue_claim(claimer, 0, &item));
  zke_free(item);
  ck_ok(zke_queue_new(shared, "/queue", &o, &full));
  int slept = sleeps;
  start(&taker, take_for_ever, full, PTHREAD_CANCEL_DEFERRED);
  ck_until(sleeps > slept, 10000);
  ck_ok(zke_count(other, "/", &before));
  start(&putter, put_for_ever, full, PTHREAD_CANCEL_DEFERRED);
  do { /* until the other has its place in the line of producers */
    ck_ok(zke_count(other, "/", &now));
  } while (now == before);
  cancel(&taker);
  ck_assert_int_eq(pthread_join(putter.thread, NULL), 0);
  ck_assert_int_eq(put_rc, ZKE_CLOSING);
  zke_queue_free(full);
  zke_queue_free(claimer);
  finish();
}

/* Work that continues until its thread is cancelled. */
static int hold_long(zke *z, int64_t token, void *arg) {
  (void)z, (void)token;
  atomic_store((atomic_int *)arg, 1);
  for (;;) {
    pthread_testcancel();
    test_pause();
  }
  return ZKE_OK;
}

static atomic_int holds;

static void lock_and_hold(void *context) {
  zke_lock_do(context, "/lock", ZKE_FOREVER, hold_long, &holds);
}

/* zke_lock_do() releases the lock if the function is cancelled, and leaves the
 * line if the wait is. */
TEST(lock_do_is_cancelled) {
  runner r[2];
  zke_party_list *list;
  begin();
  int before = sleeps;
  start(&r[0], lock_and_hold, shared, PTHREAD_CANCEL_DEFERRED);
  ck_until(holds == 1, 10000);
  start(&r[1], lock_and_hold, shared, PTHREAD_CANCEL_DEFERRED);
  ck_until(sleeps > before, 10000);
  cancel(&r[1]);
  ck_ok(zke_lock_parties(other, "/lock", &list));
  ck_assert_int_eq(list->count, 1);
  zke_free(list);
  cancel(&r[0]);
  ck_ok(zke_lock_parties(other, "/lock", &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  finish();
}

/* The calls of a lock, cancelled at every system call: the object still belongs
 * to its owner, who frees it. */
static void lock_and_release(void *context) {
  zke_lock *lock = NULL;
  if (zke_lock_new(context, "/lock", NULL, &lock) != ZKE_OK) return;
  pthread_cleanup_push(free_lock, lock);
  armed = true;
  zke_lock_acquire(lock, ZKE_FOREVER);
  zke_lock_check(lock);
  zke_lock_release(lock);
  zke_lock_acquire(lock, zke_now(context) + 2);
  armed = false;
  pthread_cleanup_pop(1);
}

/* A lock whose thread is cancelled at the n-th system call, for each n, is free
 * for others. */
TEST(lock_cancelled_at_every_system_call) {
  zke_lock *lock;
  begin();
  long most = run_at(0, lock_and_release, shared, PTHREAD_CANCEL_DEFERRED);
  for (long n = 1; n <= most; n++) {
    run_at(n, lock_and_release, shared, PTHREAD_CANCEL_DEFERRED);
    ck_ok(zke_lock_new(other, "/lock", NULL, &lock));
    ck_ok(zke_lock_try(lock));
    zke_lock_free(lock);
  }
  finish();
}
