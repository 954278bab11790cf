/* test_author.c - what the library offers to authors of recipes: zke_turn(),
 * zke_wake(), zke_forget(), zke_sessions(), zke_alloc(), zke_fail() */
#include "test/engine/calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static zke *z;

static void begin(const char *name) {
  z = test_open(name);
  make(z, "/a");
}

/* ---- the turn ---- */

static atomic_int called;

static void count_one(zke *handle, int type, int state, const char *path,
                      void *context) {
  (void)handle, (void)type, (void)state, (void)path, (void)context;
  atomic_fetch_add(&called, 1);
}

static void ping(void) { ck_ok(change(z, "/a")); }

/* If a watcher ran between the check and the wait, the wait returns
 * immediately. */
TEST(turn_misses_nothing) {
  begin(":memory:");
  ck_ok(zke_get(z, "/a", count_one, NULL, NULL, NULL, NULL));
  int64_t turn = zke_turn(z);
  ping();
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(called, 1);
  ck_assert_int_ne(zke_turn(z), turn);
  ck_ok(zke_wait_turn(z, turn, ZKE_FOREVER));
  ck_rc(zke_wait_turn(z, zke_turn(z), zke_now(z)), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(zke_turn(NULL), 0);
  ck_rc(zke_wait_turn(NULL, 0, 0), ZKE_BADARGUMENTS);
}

/* A wake-up counts as a turn, even if no thread was waiting yet. */
TEST(wake_is_kept) {
  begin(":memory:");
  int64_t turn = zke_turn(z);
  ck_ok(zke_wake(z));
  ck_ok(zke_wait_turn(z, turn, ZKE_FOREVER));
  ck_rc(zke_wake(NULL), ZKE_BADARGUMENTS);
}

static atomic_int waiting, returned;

/* A thread that waits until the handle's turn changes. */
static void *wait_for_turn(void *arg) {
  int64_t turn = zke_turn(z);
  (void)arg;
  atomic_fetch_add(&waiting, 1);
  int rc = zke_wait_turn(z, turn, ZKE_FOREVER);
  if (rc == ZKE_OK) atomic_fetch_add(&returned, 1);
  return NULL;
}

/* All threads that wait on a handle return: the one that sleeps in the kernel
 * and those that wait for it. */
TEST_LOOP(wake_wakes_all, 0, 2) {
  pthread_t thread[4];
  begin(_i ? test_path("turn.db") : ":memory:");
  for (int i = 0; i < 4; i++) thread[i] = begin_thread(wait_for_turn, NULL);
  ck_until(waiting == 4, 5000);
  ck_ok(zke_wake(z));
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  ck_assert_int_eq(returned, 4);
}

/* The function of a batch: keeps the store until `busy` is 0. */
static atomic_int busy; /* 0: stay() should return; 2: it runs */
static int stay(zke *handle, void *context) {
  (void)handle, (void)context;
  atomic_store(&busy, 2);
  while (atomic_load(&busy)) usleep(1000);
  return ZKE_OK;
}

static void *batch_there(void *arg) {
  (void)arg;
  ck_ok(zke_batch(z, stay, NULL));
  return NULL;
}

static void *wake_there(void *arg) {
  (void)arg;
  ck_ok(zke_wake(z));
  atomic_store(&busy, 3);
  return NULL;
}

/* "Blocks: no" also holds while another thread's call has the store, and
 * perhaps waits for the gate or the disk. */
TEST(wake_waits_for_nobody) {
  pthread_t batch, waker;
  begin(test_path("db"));
  atomic_store(&busy, 1);
  pthread_create(&batch, NULL, batch_there, NULL);
  ck_until(atomic_load(&busy) == 2, 5000);
  int64_t turn = zke_turn(z);
  pthread_create(&waker, NULL, wake_there, NULL);
  ck_until(atomic_load(&busy) == 3, 5000);
  ck_assert_int_gt(zke_turn(z), turn);
  atomic_store(&busy, 0);
  pthread_join(waker, NULL);
  pthread_join(batch, NULL);
}

enum { SLEEPERS = 3, ROUNDS = 2000 };
static atomic_int round_now, awake;
static zke *slept_on[SLEEPERS];

/* Waits for each round, as a recipe does, and reports that it has seen it. */
static void *sleep_there(void *arg) {
  zke *own = *(zke **)arg;
  for (int seen = 0; seen < ROUNDS; seen++) {
    for (;;) {
      int64_t turn = zke_turn(own);
      if (atomic_load(&round_now) > seen) break;
      ck_ok(zke_wait_turn(own, turn, ZKE_FOREVER));
    }
    atomic_fetch_add(&awake, 1);
  }
  return NULL;
}

/* Begins a round, and waits until all threads have seen it; without a pause, so
 * that the next round meets threads that are about to sleep. */
static void round_of(int round, zke *light) {
  int64_t end = test_now() + test_patience(10000);
  atomic_store(&round_now, round);
  ck_ok(zke_wake(z));
  if (light) ck_ok(zke_wake(light));
  while (atomic_load(&awake) < round * SLEEPERS) {
    ck_assert_msg(test_now() < end, "asleep in round %d", round);
    sched_yield();
  }
}

/* No wake-up is lost, whether the thread leads or follows, sleeps or is about
 * to sleep: with three threads on one handle, and with two of them on a light
 * session of it. */
TEST_LOOP(no_wake_is_lost, 0, 2) {
  zke *light = NULL;
  pthread_t threads[SLEEPERS];
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_LIGHT};
  begin(test_path("db"));
  if (_i) ck_ok(zke_open_session(z, &o, &light));
  for (int i = 0; i < SLEEPERS; i++) {
    slept_on[i] = light && i ? light : z;
    pthread_create(&threads[i], NULL, sleep_there, &slept_on[i]);
  }
  for (int round = 1; round <= ROUNDS; round++) round_of(round, light);
  for (int i = 0; i < SLEEPERS; i++) pthread_join(threads[i], NULL);
  if (light) ck_ok(zke_close(light));
}

/* zke_wake() makes the descriptor readable, so a poll loop dispatches. */
TEST(wake_in_a_callback) {
  begin(":memory:");
  int64_t before = zke_turn(z);
  ck_ok(zke_wake(z));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(zke_turn(z), before + 1);
}

/* ---- forgetting ---- */

/* zke_forget() removes all watches of one pair, on any path and in any mode;
 * others stay. */
TEST(forget_takes_all_back) {
  int mine = 0, other = 0;
  zke_watch_list *list;
  begin(test_path("turn.db"));
  ck_ok(zke_get(z, "/a", count_one, &mine, NULL, NULL, NULL));
  ck_ok(zke_children(z, "/a", count_one, &mine, NULL, NULL));
  ck_rc(zke_exists(z, "/b", count_one, &mine, NULL), ZKE_NONODE);
  ck_ok(
      zke_add_watch(z, "/a", ZKE_WATCH_PERSISTENT_RECURSIVE, count_one, &mine));
  ck_ok(zke_get(z, "/a", count_one, &other, NULL, NULL, NULL));
  ck_ok(zke_forget(z, count_one, &mine));
  ck_ok(zke_watches(z, &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_str_eq(list->data[0].path, "/a");
  zke_free(list);
  ping();
  make(z, "/b");
  while (zke_wait(z, zke_now(z)) == ZKE_OK) continue;
  ck_assert_int_eq(called, 1);
  ck_ok(zke_forget(z, count_one, &mine));
  ck_rc(zke_forget(z, NULL, &mine), ZKE_BADARGUMENTS);
  ck_rc(zke_forget(NULL, count_one, &mine), ZKE_BADARGUMENTS);
}

static atomic_bool inside, go_on, over;

static void stay_inside(zke *handle, int type, int state, const char *path,
                        void *context) {
  (void)handle, (void)type, (void)state, (void)path, (void)context;
  atomic_store(&inside, true);
  while (!atomic_load(&go_on)) test_pause();
  atomic_store(&over, true);
}

static void *dispatch_once(void *arg) {
  (void)arg;
  zke_wait(z, zke_now(z) + 10000);
  return NULL;
}

static void *let_go(void *arg) {
  (void)arg;
  for (int i = 0; i < 20; i++) test_pause();
  atomic_store(&go_on, true);
  return NULL;
}

/* zke_forget() waits for a watcher that runs on another thread: afterwards its
 * context may be freed. */
TEST(forget_waits_for_a_running_call) {
  pthread_t dispatcher, releaser;
  begin(":memory:");
  ck_ok(zke_get(z, "/a", stay_inside, NULL, NULL, NULL, NULL));
  ping();
  pthread_create(&dispatcher, NULL, dispatch_once, NULL);
  ck_until(inside, 5000);
  pthread_create(&releaser, NULL, let_go, NULL);
  ck_ok(zke_forget(z, stay_inside, NULL));
  ck_assert(over);
  pthread_join(dispatcher, NULL);
  pthread_join(releaser, NULL);
}

/* Like the one above, but sets its watch again before it returns. */
static void stay_and_watch_again(zke *handle, int type, int state,
                                 const char *path, void *context) {
  atomic_fetch_add(&called, 1);
  stay_inside(handle, type, state, path, context);
  ck_ok(zke_get(handle, "/a", stay_and_watch_again, context, NULL, NULL, NULL));
}

/* A watch that the running call sets is forgotten too: the pair is not called
 * later, and has no row. */
TEST_LOOP(forget_takes_back_what_a_running_call_watches, 0, 2) {
  pthread_t dispatcher, releaser;
  zke_watch_list *list;
  begin(_i ? test_path("turn.db") : ":memory:");
  ck_ok(zke_get(z, "/a", stay_and_watch_again, NULL, NULL, NULL, NULL));
  ping();
  pthread_create(&dispatcher, NULL, dispatch_once, NULL);
  ck_until(inside, 5000);
  pthread_create(&releaser, NULL, let_go, NULL);
  ck_ok(zke_forget(z, stay_and_watch_again, NULL));
  pthread_join(dispatcher, NULL);
  pthread_join(releaser, NULL);
  ck_ok(zke_watches(z, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ping();
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(called, 1);
}

static void forget_another(zke *handle, int type, int state, const char *path,
                           void *context) {
  (void)type, (void)state, (void)path, (void)context;
  ck_ok(zke_forget(handle, count_one, &called));
  ck_ok(zke_forget(handle, forget_another, NULL));
}

/* A call that is due in the event being delivered is cancelled, and a watcher
 * can forget itself. */
TEST(forget_takes_back_a_call_that_is_due) {
  begin(":memory:");
  ck_ok(zke_get(z, "/a", forget_another, NULL, NULL, NULL, NULL));
  ck_ok(zke_get(z, "/a", count_one, &called, NULL, NULL, NULL));
  ping();
  ck_ok(zke_wait(z, zke_now(z) + 5000));
  ck_assert_int_eq(called, 0);
}

/* An expired session has no rows any more, but still has watchers. */
TEST(forget_after_the_end) {
  begin(":memory:");
  ck_ok(zke_get(z, "/a", count_one, NULL, NULL, NULL, NULL));
  ck_ok(zke_expire(z, zke_session_id(z)));
  ck_ok(zke_forget(z, count_one, NULL));
  ck_rc(zke_wait(z, zke_now(z) + 1000), ZKE_INVALIDSTATE);
  ck_assert_int_eq(called, 0);
}

/* ---- small things ---- */

/* zke_sessions() describes one session of the file, or names an id that does
 * not exist.  0, the owner of a node that is not ephemeral, is no session. */
TEST(one_session) {
  zke_session_list *list = NULL;
  begin(":memory:");
  zke *other = test_session(z, NULL);
  ck_ok(zke_sessions(z, zke_session_id(other), &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].id, zke_session_id(other));
  zke_free(list);
  ck_rc(zke_sessions(z, 12345, &list), ZKE_NONODE);
  ck_says("0x3039");
  ck_rc(zke_sessions(z, 0, &list), ZKE_NONODE);
  ck_rc(zke_sessions(z, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_sessions(NULL, 1, &list), ZKE_BADARGUMENTS);
}

/* Blocks come from the handle's allocator, zeroed, and outlive the handle. */
TEST(blocks_are_zeroed_and_outlive_the_handle) {
  test_heap heap = {0};
  z = open_as(":memory:", .allocator = {test_heap_resize, &heap});
  char *block = zke_alloc(z, 100), *none = zke_alloc(z, 0);
  ck_assert_ptr_nonnull(block);
  ck_assert_ptr_nonnull(none);
  for (int i = 0; i < 100; i++) ck_assert_int_eq(block[i], 0);
  heap.fail_at = heap.calls + 1;
  ck_assert_ptr_null(zke_alloc(z, 1));
  ck_says("memory");
  ck_assert_ptr_null(zke_alloc(NULL, 1));
  ck_ok(zke_close(z));
  ck_assert_int_eq(heap.live, 2);
  zke_free(block);
  zke_free(none);
  ck_assert_int_eq(heap.live, 0);
}

/* zke_fail() sets the thread's sentence, which may contain the previous one. */
TEST(fail_makes_the_threads_sentence) {
  ck_rc(zke_fail(ZKE_HELD, "%s has %d", "somebody", 3), ZKE_HELD);
  ck_assert_str_eq(zke_errmsg(), "somebody has 3");
  zke_fail(ZKE_HELD, "again: %s", zke_errmsg());
  ck_assert_str_eq(zke_errmsg(), "again: somebody has 3");
  ck_assert_str_eq(zke_error_name(ZKE_DEADLOCK), "ZKE_DEADLOCK");
}
