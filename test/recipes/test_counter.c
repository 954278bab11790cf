/* test_counter.c - recipes/counter: a number that several processes count with
 *
 * Each addition counts exactly once, whatever reply gets lost. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/counter.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"

#define PATH "/counters/c"

static zke_counter *make(zke *z) {
  zke_counter *c = NULL;
  ck_ok(zke_counter_new(z, PATH, NULL, &c));
  return c;
}

static int64_t value(zke_counter *c) {
  int64_t v = -77;
  ck_ok(zke_counter_get(c, &v, NULL));
  return v;
}

static int64_t add(zke_counter *c, int64_t delta) {
  int64_t v = -77;
  ck_ok(zke_counter_add_and_get(c, delta, ZKE_FOREVER, &v, NULL));
  return v;
}

/* ---- without memory ---- */

static void count_losses(zke_counter *c, int event, int64_t v, int64_t token,
                         void *context) {
  (void)c;
  if (event != ZKE_COUNTER_LOST) return;
  ck_assert_int_eq(v, 0);
  ck_assert_int_eq(token, 0);
  ++*(int *)context;
}

/* All allocations fail from some moment on in which the session's end is
 * dispatched: the listener hears of it, once. */
TEST(a_loss_is_heard_when_memory_was_short) {
  test_heap heap = {.fail_all = 1};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  int losses = 0, failed = 0;
  zke_counter_options co = {
      .size = sizeof co, .listener = count_losses, .context = &losses};
  zke *z, *y;
  ck_ok(zke_open(":memory:", &o, &z));
  for (bool more = true; more;) {
    zke_counter *c;
    ck_ok(zke_open_session(z, &o, &y));
    ck_ok(zke_counter_new(y, PATH, &co, &c));
    ck_ok(zke_counter_start(c));
    ck_ok(zke_expire(z, zke_session_id(y)));
    losses = 0;
    heap.fail_at = heap.calls + ++failed;
    zke_dispatch(y, NULL);
    more = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_until((zke_dispatch(y, NULL), losses), 5000);
    ck_assert_int_eq(losses, 1);
    zke_counter_free(c);
    zke_close(y);
  }
  ck_ok(zke_close(z));
}

/* ---- counting ---- */

/* All ways to change a counter give the value and a token that rises; a
 * refused compare-and-set names the value, and its token. */
TEST(every_change_gives_the_value_and_a_token) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_counter *a = make(z), *b = make(y);
  int64_t v, token, first, second;
  ck_ok(zke_counter_get(a, &v, &token));
  ck_assert_int_eq(v, 0);
  ck_assert_int_eq(token, 0);
  ck_rc(zke_exists(z, PATH, NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_counter_add_and_get(a, 5, ZKE_FOREVER, &v, &first));
  ck_assert_int_eq(v, 5);
  ck_ok(zke_counter_add_and_get(b, -7, ZKE_FOREVER, &v, &second));
  ck_assert_int_eq(v, -2);
  ck_assert_int_gt(second, first);
  ck_ok(zke_counter_get(a, &v, &token));
  ck_assert_int_eq(v, -2);
  ck_assert_int_eq(token, second);
  ck_ok(zke_counter_compare_and_set(a, -2, 100, ZKE_FOREVER, &first));
  ck_assert_int_gt(first, second);
  ck_rc(zke_counter_compare_and_set(b, -2, 7, ZKE_FOREVER, &token),
        ZKE_BADVERSION);
  ck_says("is 100, not -2");
  ck_assert_int_eq(token, second);
  ck_ok(zke_counter_set(b, 3, ZKE_FOREVER, NULL));
  ck_assert_int_eq(value(a), 3);
  ck_assert_int_eq(entries(z, PATH), 2);
  zke_counter_free(a);
  zke_counter_free(b);
  ck_assert_int_eq(entries(z, PATH), 0);
  ck_assert_int_eq(all_watches(z), 0);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Overflow is refused, and nothing has changed. */
TEST(an_overflow_changes_nothing) {
  zke *z = test_open(":memory:");
  zke_counter *c = make(z);
  int64_t v = 7;
  ck_ok(zke_counter_set(c, INT64_MAX - 1, ZKE_FOREVER, NULL));
  ck_assert_int_eq(add(c, 1), INT64_MAX);
  ck_rc(zke_counter_add_and_get(c, 1, ZKE_FOREVER, &v, NULL), ZKE_LIMIT);
  ck_says("9223372036854775807");
  ck_assert_int_eq(v, 7);
  ck_assert_int_eq(value(c), INT64_MAX);
  ck_ok(zke_counter_set(c, INT64_MIN, ZKE_FOREVER, NULL));
  ck_rc(zke_counter_add_and_get(c, -1, ZKE_FOREVER, NULL, NULL), ZKE_LIMIT);
  ck_assert_int_eq(value(c), INT64_MIN);
  zke_counter_free(c);
  ck_ok(zke_close(z));
}

/* The first change of a counter starts from its initial value. */
TEST(the_first_change_starts_from_the_initial_value) {
  zke *z = test_open(":memory:");
  zke_counter_options o = {.size = sizeof o, .initial = -40};
  zke_counter *c;
  ck_ok(zke_counter_new(z, PATH, &o, &c));
  ck_assert_int_eq(value(c), -40);
  ck_ok(zke_counter_compare_and_set(c, -40, -39, ZKE_FOREVER, NULL));
  ck_assert_int_eq(add(c, 1), -38);
  zke_counter_free(c);
  ck_ok(zke_close(z));
}

/* ---- exactly once ---- */

/* The change is made, its reply lost, and others count on before it is
 * repeated: the last change in the file is not one's own any more. */
static void *count_on(void *arg) {
  for (int i = 0; i < 20; i++) add(arg, 1);
  return NULL;
}

/* An addition whose reply was lost, before or after its change, is made once,
 * while another process counts as well. */
TEST(lost_reply_counts_once) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_counter *a = make(z), *b = make(y);
  int64_t sum = 0, now, token, newest;
  add(a, 0);
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, count_on, b), 0);
    ck_ok(zke_test_fail(z, i % 2 ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE,
                        0));
    ck_ok(zke_counter_add_and_get(a, 1000, soon(z), &now, &token));
    ck_assert_int_eq(now / 1000, i + 1);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    sum += 1020;
    ck_ok(zke_counter_get(a, &now, &newest));
    ck_assert_int_eq(now, sum);
    ck_assert_int_ge(newest, token);
  }
  zke_counter_free(a);
  zke_counter_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* A compare-and-set whose reply was lost is not taken for a refusal. */
TEST(lost_reply_of_compare) {
  zke *z = test_open(":memory:");
  zke_counter *c = make(z);
  int64_t token, newest;
  add(c, 0);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
  ck_ok(zke_counter_compare_and_set(c, 0, 1, soon(z), &token));
  ck_ok(zke_counter_get(c, NULL, &newest));
  ck_assert_int_eq(token, newest);
  ck_rc(zke_counter_compare_and_set(c, 0, 2, soon(z), NULL), ZKE_BADVERSION);
  zke_counter_free(c);
  ck_ok(zke_close(z));
}

/* No time to repeat: the caller is told that it is unknown, and the object
 * counts on correctly. */
TEST(unknown_at_the_deadline) {
  zke *z = test_open(":memory:");
  zke_counter *c = make(z);
  add(c, 1);
  for (int when = ZKE_TEST_FAIL_BEFORE; when <= ZKE_TEST_FAIL_AFTER; when++) {
    int64_t was = value(c);
    ck_ok(zke_test_fail(z, when, 0));
    ck_rc(zke_counter_add_and_get(c, 1, zke_now(z), NULL, NULL),
          ZKE_CONNECTIONLOSS);
    ck_assert_int_eq(value(c), was + (when == ZKE_TEST_FAIL_AFTER));
    ck_assert_int_eq(add(c, 1), was + 1 + (when == ZKE_TEST_FAIL_AFTER));
  }
  zke_counter_free(c);
  ck_ok(zke_close(z));
}

/* Deleted and made anew, with the same version: nobody mistakes it. */
TEST(deleted_under_way) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_counter *a = make(z), *b = make(y);
  add(a, 5);
  zke_strings *names;
  char path[200];
  ck_ok(zke_children(z, PATH, NULL, NULL, &names, NULL));
  snprintf(path, sizeof path, PATH "/%s", names->data[0]);
  zke_free(names);
  ck_rc(zke_delete(z, PATH, -1), ZKE_NOTEMPTY);
  ck_ok(zke_delete(z, path, -1));
  ck_assert_int_eq(add(a, 1), 6); /* its writer's znode is made again */
  ck_ok(zke_delete(z, path, -1));
  ck_ok(zke_delete(z, PATH, -1));
  ck_assert_int_eq(add(b, 1), 1);
  ck_assert_int_eq(add(a, 1), 2);
  zke_counter_free(a);
  zke_counter_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Threads share an object; others have their own: nothing is lost. */
static void *count_100(void *arg) {
  for (int i = 0; i < 100; i++) add(arg, 1);
  return NULL;
}

/* Four threads on three counters of two stores add 400 times in all: nothing is
 * lost. */
TEST(threads_count_together) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_counter *c[4] = {make(z), NULL, make(z), make(y)};
  pthread_t t[4];
  c[1] = c[0];
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(pthread_create(&t[i], NULL, count_100, c[i]), 0);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_join(t[i], NULL), 0);
  ck_assert_int_eq(value(c[0]), 400);
  ck_assert_int_eq(entries(z, PATH), 3);
  for (int i = 1; i < 4; i++) zke_counter_free(c[i]);
  ck_assert_int_eq(entries(z, PATH), 0);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- listening and waiting ---- */

typedef struct heard {
  char text[500];
  int64_t token;
  int frees;
} heard;

/* The listener: writes "=5", REMOVED and LOST with the value; tokens rise. */
static void hear(zke_counter *c, int event, int64_t v, int64_t token,
                 void *context) {
  static const char *const names[] = {"", "=", "REMOVED ", "LOST "};
  heard *h = context;
  size_t at = strlen(h->text);
  snprintf(h->text + at, sizeof h->text - at, "%s%" PRId64 " ", names[event],
           v);
  ck_assert(event != ZKE_COUNTER_CHANGED || token > h->token);
  h->token = token;
  if (h->frees && h->frees--) zke_counter_free(c);
}

static zke_counter *listener(zke *z, heard *h) {
  zke_counter_options o = {
      .size = sizeof o, .initial = 9, .listener = hear, .context = h};
  zke_counter *c;
  ck_ok(zke_counter_new(z, PATH, &o, &c));
  return c;
}

static void expect(zke *z, heard *h, const char *text) {
  int count = 1;
  while (count && zke_dispatch(z, &count) == ZKE_OK) continue;
  ck_assert_str_eq(h->text, text);
  h->text[0] = '\0';
}

/* The listener hears the value as it is, each later one, the removal and the
 * end of its session, and is not told twice. */
TEST(listener_hears) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, 0, 0};
  zke_counter *a = make(z), *b = listener(y, &h);
  ck_ok(zke_counter_start(b));
  expect(y, &h, "");
  add(a, 0); /* made */
  add(a, 1);
  expect(y, &h, "=1 ");
  add(a, 1);
  expect(y, &h, "=2 ");
  add(b, 40); /* one's own, too */
  expect(y, &h, "=42 ");
  zke_counter_free(a);
  zke_counter_free(b);
  h.token = 0;
  b = listener(y, &h);
  ck_ok(zke_counter_start(b));
  expect(y, &h, "=42 "); /* as it is */
  ck_ok(zke_counter_start(b));
  expect(y, &h, "");
  ck_ok(zke_delete(z, PATH, -1));
  expect(y, &h, "REMOVED 9 ");
  a = make(z);
  add(a, 3);
  expect(y, &h, "=3 ");
  ck_ok(zke_expire(z, zke_session_id(y)));
  expect(y, &h, "LOST 0 ");
  ck_rc(zke_counter_get(b, NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_counter_add_and_get(b, 1, 0, NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_counter_wait(b, 0, 0, NULL, NULL), ZKE_INVALIDSTATE);
  zke_counter_free(a);
  zke_counter_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* The listener frees the counter inside the start(): it is called no more, and
 * no watch is left. */
TEST(listener_frees) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, 0, 1};
  zke_counter *a = make(z), *b = listener(y, &h);
  add(a, 4);
  ck_ok(zke_counter_start(b));
  ck_assert_str_eq(h.text, "=4 ");
  ck_assert_int_eq(all_watches(z), 0);
  add(a, 4);
  expect(y, &h, "=4 ");
  zke_counter_free(a);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

typedef struct waiter {
  zke_counter *c;
  int64_t since, value, token;
  pthread_t thread;
  int rc, done;
} waiter;

static void *wait_there(void *arg) {
  waiter *w = arg;
  w->rc = zke_counter_wait(w->c, w->since, ZKE_FOREVER, &w->value, &w->token);
  __atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void wait_begin(waiter *w, zke *z, zke_counter *c, int64_t since) {
  *w = (waiter){.c = c, .since = since};
  ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_there, w), 0);
  ck_until(all_watches(z) > 0, 5000);
}

static int wait_end(waiter *w) {
  ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
  return w->rc;
}

/* wait() sleeps until the value has another token than the given one, and
 * returns at once where it has; a deadline, a cancel, the session's end finish
 * it. */
TEST(waits_for_a_change) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_counter *a = make(z), *b = make(y);
  int64_t v, token;
  waiter w;
  wait_begin(&w, z, b, 0); /* until it exists */
  add(a, 5);
  ck_ok(wait_end(&w));
  ck_ok(zke_counter_get(b, NULL, &token));
  ck_assert_int_eq(all_watches(z), 0);
  wait_begin(&w, z, b, token);
  ck_ok(zke_wake(y));
  ck_rc(zke_counter_wait(b, 0, 0, NULL, NULL), ZKE_MISUSE);
  ck_assert(!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
  add(a, 2);
  ck_ok(wait_end(&w));
  ck_assert_int_eq(w.value, 7);
  ck_assert_int_gt(w.token, token);
  ck_ok(zke_counter_wait(b, token, 0, &v, &token)); /* been already */
  ck_assert_int_eq(v, 7);
  int64_t begin = zke_now(y);
  ck_rc(zke_counter_wait(b, token, begin + 30, &v, &token),
        ZKE_OPERATIONTIMEOUT);
  ck_says("stayed at 7");
  ck_assert_int_ge(zke_now(y), begin + 30);
  ck_assert_int_eq(all_watches(z), 0);
  wait_begin(&w, z, b, token);
  ck_until(zke_counter_cancel(b) == ZKE_OK, 10000);
  ck_rc(wait_end(&w), ZKE_CANCELLED);
  ck_assert_int_eq(all_watches(z), 0);
  wait_begin(&w, z, b, token);
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_rc(wait_end(&w), ZKE_INVALIDSTATE);
  zke_counter_free(a);
  zke_counter_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- what is not ours ---- */

/* Another recipe's node and data that are no number are refused by name and
 * stay as they are; an empty node is taken over. */
TEST(other_data_is_refused) {
  static const struct {
    const char *data;
    int rc;
  } odd[] = {{"5", ZKE_OTHERKIND},
             {"zkembed lock\n", ZKE_OTHERKIND},
             {"zkembed counters\n5\n", ZKE_OTHERKIND},
             {"zkembed counter\n", ZKE_DATAINCONSISTENCY},
             {"zkembed counter\nx\n", ZKE_DATAINCONSISTENCY},
             {"zkembed counter\n\n5\n", ZKE_DATAINCONSISTENCY},
             {"zkembed counter\n5x\n", ZKE_DATAINCONSISTENCY},
             {"zkembed counter\n9223372036854775808\n", ZKE_DATAINCONSISTENCY}};
  zke *z = test_open(":memory:");
  zke_counter *c = make(z);
  int64_t v = 0;
  zke_stat stat;
  ck_ok(zke_ensure_path(z, PATH, ZKE_PERSISTENT, ZKE_FOREVER));
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    ck_ok(zke_set(z, PATH, odd[i].data, (int)strlen(odd[i].data), -1, &stat));
    ck_rc(zke_counter_get(c, &v, NULL), odd[i].rc);
    ck_says(PATH);
    ck_rc(zke_counter_set(c, 1, 0, NULL), odd[i].rc);
    ck_rc(zke_counter_start(c), odd[i].rc);
    ck_rc(zke_counter_wait(c, 0, 0, NULL, NULL), odd[i].rc);
    ck_assert_int_eq(entries(z, PATH), 0);
  }
  ck_ok(zke_set(z, PATH, "zkembed counter\n5", 17, -1, NULL));
  ck_assert_int_eq(value(c), 5);
  ck_ok(zke_set(z, PATH, "", 0, -1, NULL)); /* empty: taken over */
  ck_assert_int_eq(value(c), 0);
  ck_rc(zke_counter_wait(c, 0, 0, NULL, NULL), ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_create(z, PATH "/x", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_assert_int_eq(add(c, 2), 2);
  zke_counter_free(c);
  ck_ok(zke_close(z));
}

/* P11: calls without a counter, and arguments that make no sense, are refused;
 * the output is NULL then. */
TEST(bad_arguments) {
  zke *z = test_open(":memory:");
  zke_counter_options o = {.size = 3};
  zke_counter *c = (zke_counter *)&o;
  ck_rc(zke_counter_new(z, PATH, &o, &c), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(c);
  ck_rc(zke_counter_new(z, "x", NULL, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_counter_new(z, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_counter_new(NULL, PATH, NULL, &c), ZKE_BADARGUMENTS);
  zke_counter_free(NULL);
  ck_ok(zke_close(z));
}

/* ---- deaths, lost replies, faults, processes ---- */

/* The typical use: three additions, a compare-and-set, and a wait that has its
 * change already. */
static int use(zke *z) {
  zke_counter *c = NULL;
  int64_t now = 0, token = 0;
  int rc = zke_counter_new(z, PATH, NULL, &c);
  if (rc == ZKE_OK) rc = zke_counter_start(c);
  for (int i = 0; i < 3 && rc == ZKE_OK; i++)
    rc = zke_counter_add_and_get(c, 1, ZKE_FOREVER, &now, &token);
  if (rc == ZKE_OK && now != 3) rc = ZKE_SYSTEMERROR;
  if (rc == ZKE_OK)
    rc = zke_counter_compare_and_set(c, 3, 10, ZKE_FOREVER, NULL);
  if (rc == ZKE_OK)
    rc = zke_counter_wait(c, token, zke_now(z) + 1000, &now, NULL);
  if (rc == ZKE_OK && now != 10) rc = ZKE_SYSTEMERROR;
  zke_counter_free(c);
  return rc;
}

/* Each change was made once or not at all; others count on. */
static void check(zke *z, int rc) {
  zke_counter *c = make(z);
  int64_t v = value(c);
  ck_assert(v == 10 || (rc != ZKE_OK && v >= 0 && v <= 3));
  ck_assert_int_eq(add(c, 1), v + 1);
  zke_counter_free(c);
  until_empty(z, PATH);
}

static const recipe_use uses[] = {{"counter", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);

/* Processes count as fast as they can, and one of them loses replies all the
 * time: the sum is right, and everybody saw values of its own. */
TEST(processes_count_without_a_gap) {
  enum { N = 4, EACH = 60 };
  const char *db = test_path("db");
  int values[2];
  ck_assert_int_eq(pipe(values), 0);
  pid_t pids[N];
  for (int i = 0; i < N; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    zke *z;
    zke_counter *c;
    int rc = zke_open(db, NULL, &z);
    if (rc == ZKE_OK) rc = zke_counter_new(z, PATH, NULL, &c);
    for (int j = 0; j < EACH && rc == ZKE_OK; j++) {
      int64_t v;
      if (i == 0 && j % 6 == 0)
        zke_test_fail(z, j % 4 ? ZKE_TEST_FAIL_BEFORE : ZKE_TEST_FAIL_AFTER, 0);
      rc = zke_counter_add_and_get(c, 1, ZKE_FOREVER, &v, NULL);
      if (write(values[1], &v, sizeof v) != sizeof v) rc = 1;
    }
    _exit(rc == ZKE_OK ? 0 : 1);
  }
  bool seen[N * EACH + 1] = {false};
  for (int i = 0; i < N * EACH; i++) {
    int64_t v;
    ck_assert_int_eq(read(values[0], &v, sizeof v), sizeof v);
    ck_assert(v >= 1 && v <= N * EACH && !seen[v]);
    seen[v] = true;
  }
  for (int i = 0; i < N; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, 0);
  }
  zke *z = test_open(db);
  zke_counter *c = make(z);
  ck_assert_int_eq(value(c), N * EACH);
  zke_counter_free(c);
  ck_ok(zke_close(z));
}
