/* test_counter.c - recipes/counter: a number that several processes change
 *
 * Each addition counts exactly once, whatever reply is lost. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/counter.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"
#include "steps.h"

#define PATH "/counters/c"

static zke_counter *make(zke *own) {
  zke_counter *c = NULL;
  ck_ok(zke_counter_new(own, PATH, NULL, &c));
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

/* All allocations fail from a moment in the dispatch of the session's end on:
 * the listener hears of the end, once. */
TEST(a_loss_is_heard_when_memory_was_short) {
  test_heap heap = {.fail_all = 1};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  int losses = 0, failed = 0;
  zke_counter_options co = {
      .size = sizeof co, .listener = count_losses, .context = &losses};
  zke *own, *y;
  ck_ok(zke_open(":memory:", &o, &own));
  for (bool more = true; more;) {
    zke_counter *c;
    ck_ok(zke_open_session(own, &o, &y));
    ck_ok(zke_counter_new(y, PATH, &co, &c));
    ck_ok(zke_counter_start(c));
    ck_ok(zke_expire(own, zke_session_id(y)));
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
  ck_ok(zke_close(own));
}

/* ---- steps as text ---- */

static int64_t initial;         /* of the objects' options */
static bool frees;              /* the listener frees its object */
static int64_t newest;          /* token of a step's change */
static int64_t heard[SESSIONS]; /* the last token that each listener was told */
static int64_t known[PARTIES];  /* the last token that each has read */

/* The listener tells "ann =5", and REMOVED and LOST with the value.  Tokens
 * rise. */
static void hear(zke_counter *c, int event, int64_t v, int64_t token,
                 void *context) {
  static const char *const names[] = {"", "=", "REMOVED ", "LOST "};
  const char *who = context;
  int64_t *before = &heard[who[0] - 'a'];
  tell("%s %s%" PRId64, who, names[event], v);
  ck_assert(event == ZKE_COUNTER_CHANGED ? token > *before : token == 0);
  *before = token;
  if (frees) zke_counter_free(c);
}

static int make_listening(zke *session, const char *who, void **object) {
  zke_counter_options o = {.size = sizeof o,
                           .initial = initial,
                           .listener = hear,
                           .context = (void *)(uintptr_t)who};
  heard[who[0] - 'a'] = 0;
  return zke_counter_new(session, PATH, &o, (zke_counter **)object);
}

/* A change gives the value, and a greater token than all earlier ones.  A
 * refusal gives no token. */
static int changed(step *s, int rc, int64_t value, int64_t token) {
  ck_step(s, rc == ZKE_OK ? token > newest : token == -77, "it has a token");
  if (rc != ZKE_OK) return rc;
  newest = token;
  gives(s, "%" PRId64, value);
  return rc;
}

static int step_add(step *s) {
  int64_t now = -77, token = -77;
  int rc = zke_counter_add_and_get(s->object, atoll(s->word[0]), s->deadline,
                                   &now, &token);
  ck_step(s, rc == ZKE_OK || now == -77, "it gives a value");
  return changed(s, rc, now, token);
}

static int step_put(step *s) {
  int64_t to = atoll(s->word[0]), token = -77;
  int rc = zke_counter_set(s->object, to, s->deadline, &token);
  return changed(s, rc, to, token);
}

/* "change 5 7": from 5 to 7. */
static int step_change(step *s) {
  int64_t to = atoll(s->word[1]), token = -77;
  int rc = zke_counter_compare_and_set(s->object, atoll(s->word[0]), to,
                                       s->deadline, &token);
  return changed(s, rc, to, token);
}

/* The token is that of the last acknowledged change, or a later one; or there
 * is none. */
static int step_get(step *s) {
  int64_t value = -77, token = -77;
  int rc = zke_counter_get(s->object, &value, &token);
  if (rc != ZKE_OK) return rc;
  ck_step(s, !token || token >= newest, "it is old");
  known[s->who] = token;
  gives(s, "%" PRId64 "%s", value, token > newest ? " later" : "");
  return rc;
}

/* The token is later than the one the party knew.  Its change may not be
 * acknowledged yet, so a wait on a thread must not read `newest`. */
static int step_wait(step *s) {
  int64_t value = -77, token = -77;
  int rc =
      zke_counter_wait(s->object, known[s->who], s->deadline, &value, &token);
  if (rc != ZKE_OK) return rc;
  ck_step(s, token > known[s->who], "it is old");
  known[s->who] = token;
  gives(s, "%" PRId64, value);
  return rc;
}

STEP(start, zke_counter_start(s->object))

static const step_verb verbs[] = {VERB(add),   VERB(put),   VERB(change),
                                  VERB(get),   VERB(start), VERB(wait),
                                  {NULL, NULL}};

static void release(void *object) { zke_counter_free(object); }
static int cancel(void *object) { return zke_counter_cancel(object); }

static const step_recipe of_counter = {.verbs = verbs,
                                       .create = make_listening,
                                       .free = release,
                                       .cancel = cancel};

/* ---- counting ---- */

/* All ways to change a counter give the value and a rising token; a refused
 * compare-and-set names the value.  An overflow is refused, and changes
 * nothing. */
TEST(every_change_gives_the_value_and_a_token) {
  play_steps(&of_counter,
             "ann get -> 0; data " PATH
             " -> NONODE;"
             "ann add 5 -> 5; bob add -7 -> -2; ann get -> -2;"
             "ann change -2 100; ann get -> 100;"
             "bob change -2 7 -> BADVERSION; said is 100, not -2;"
             "bob put 3; ann get -> 3;"
             "entries " PATH
             " -> 2;"
             "ann put 9223372036854775806; ann add 1 -> 9223372036854775807;"
             "ann add 1 -> LIMIT; said 9223372036854775807;"
             "ann get -> 9223372036854775807;"
             "ann put -9223372036854775808; ann add -1 -> LIMIT;"
             "ann get -> -9223372036854775808;"
             "ann free; bob free; entries " PATH " -> 0; watches 0");
}

/* The first change of a counter starts from its initial value. */
TEST(the_first_change_starts_from_the_initial_value) {
  initial = -40;
  play_steps(&of_counter,
             "ann get -> -40; ann change -40 -39 -> -39; ann add 1 -> -38");
}

/* ---- exactly once ---- */

/* A thread: add 1, 20 times. */
static void *count_on(void *arg) {
  for (int i = 0; i < 20; i++) add(arg, 1);
  return NULL;
}

/* An addition whose reply was lost, before or after its change, is made once,
 * while another process counts too. */
TEST(lost_reply_counts_once) {
  zke *own = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_counter *a = make(own), *b = make(y);
  int64_t sum = 0, now, token, last;
  add(a, 0);
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, count_on, b), 0);
    ck_ok(zke_test_fail(own, i % 2 ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE,
                        0));
    ck_ok(zke_counter_add_and_get(a, 1000, soon(own), &now, &token));
    ck_assert_int_eq(now / 1000, i + 1);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    sum += 1020;
    ck_ok(zke_counter_get(a, &now, &last));
    ck_assert_int_eq(now, sum);
    ck_assert_int_ge(last, token);
  }
  zke_counter_free(a);
  zke_counter_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(own));
}

/* A compare-and-set whose reply was lost is not taken for a refusal. */
TEST(lost_reply_of_compare) {
  play_steps(&of_counter,
             "ann add 0; ann fails after; ann change 0 1 -> 1; ann get -> 1;"
             "ann change 0 2 -> BADVERSION");
}

/* With no time to retry the call says that the result is unknown; the object
 * still counts correctly. */
TEST(unknown_at_the_deadline) {
  play_steps(
      &of_counter,
      "ann add 1 -> 1; ann fails before; ann add_now 1 -> CONNECTIONLOSS;"
      "ann get -> 1; ann add 1 -> 2;"
      "ann fails after; ann add_now 1 -> CONNECTIONLOSS;"
      "ann get -> 3 later; ann add 1 -> 4");
}

/* Deleted and made again with the same version: not mistaken for the old
 * one. */
TEST(deleted_under_way) {
  play_steps(&of_counter,
             "ann add 5 -> 5; delete " PATH " -> NOTEMPTY; empty " PATH
             ";"
             "ann add 1 -> 6;" /* its writer's znode is made again */
             "entries " PATH " -> 1; empty " PATH "; delete " PATH
             ";"
             "bob add 1 -> 1; ann add 1 -> 2");
}

/* A thread: add 1, 100 times. */
static void *count_100(void *arg) {
  for (int i = 0; i < 100; i++) add(arg, 1);
  return NULL;
}

/* Four threads on three counters of two stores add 400 times: no addition is
 * lost. */
TEST(threads_count_together) {
  zke *own = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_counter *c[4] = {make(own), NULL, make(own), make(y)};
  pthread_t t[4];
  c[1] = c[0];
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(pthread_create(&t[i], NULL, count_100, c[i]), 0);
  for (int i = 0; i < 4; i++) ck_assert_int_eq(pthread_join(t[i], NULL), 0);
  ck_assert_int_eq(value(c[0]), 400);
  ck_ok(zke_counter_get(c[0], NULL, NULL));
  ck_assert_int_eq(entries(own, PATH), 3);
  for (int i = 1; i < 4; i++) zke_counter_free(c[i]);
  ck_assert_int_eq(entries(own, PATH), 0);
  ck_ok(zke_close(y));
  ck_ok(zke_close(own));
}

/* ---- listening and waiting ---- */

/* The listener hears the present value, each later one, the removal and the end
 * of its session, each once. */
TEST(listener_hears) {
  initial = 9;
  play_steps(&of_counter,
             "bob start; news ; ann add -9;" /* made */
             "ann add 1; news bob =1; ann add 1; news bob =2;"
             "bob add 40; news bob =42;"            /* also its own */
             "bob free; bob' start; news bob' =42;" /* the present value */
             "bob' start; news ;"
             "ann free; delete " PATH
             "; news bob' REMOVED 9;"
             "cid put 3; news bob' =3;"
             "bob expires; news bob' LOST 0;"
             "bob' get -> INVALIDSTATE; bob' add_now 1 -> INVALIDSTATE;"
             "bob' wait_now -> INVALIDSTATE");
}

/* The listener frees the counter inside start(): it is not called again, and no
 * watch is left. */
TEST(listener_frees) {
  frees = true;
  open_steps(&of_counter);
  play("ann add 4; bob start; told bob =4; watches 0; ann add 4; news ");
  party[1] = NULL;
}

/* wait() sleeps until the value has another token than the given one, and
 * returns immediately if it has.  A deadline, a cancel and the session's end
 * also end it. */
TEST(waits_for_a_change) {
  play_steps(&of_counter,
             "bob waits wait; ann add 5; bob returns; bob get -> 5; watches 0;"
             "bob waits wait; bob wakes; bob wait_now -> MISUSE; bob still;"
             "ann add 2; bob returns -> 7;"
             "ann add 1; bob wait_now -> 8;" /* already changed */
             "bob wait_30 -> OPERATIONTIMEOUT; said stayed at 8; watches 0;"
             "bob waits wait; bob cancels; bob returns -> CANCELLED; watches 0;"
             "bob waits wait; bob expires; bob returns -> INVALIDSTATE");
}

/* A change through one store of a file ends a wait in another store. */
TEST(a_wait_hears_of_another_store) {
  begin_steps(&of_counter);
  for (int i = 0; i < 2; i++) {
    z[i] = test_open(test_path("db"));
    ck_ok(make_listening(z[i], identities[i], &party[i]));
  }
  play("ann add 1; bob get -> 1; bob waits wait; ann add 4; bob returns -> 5");
  free_parties();
  for (int i = 0; i < 2; i++) ck_ok(zke_close(z[i]));
}

/* ---- foreign nodes ---- */

/* Another recipe's node, and data that is no number, are refused by name and
 * not changed; an empty node is taken over. */
TEST(other_data_is_refused) {
  static const struct {
    const char *data, *code;
  } odd[] = {{"5", "OTHERKIND"},
             {"zkembed lock\n", "OTHERKIND"},
             {"zkembed counters\n5\n", "OTHERKIND"},
             {"zkembed counter\n", "DATAINCONSISTENCY"},
             {"zkembed counter\nx\n", "DATAINCONSISTENCY"},
             {"zkembed counter\n\n5\n", "DATAINCONSISTENCY"},
             {"zkembed counter\n5x\n", "DATAINCONSISTENCY"},
             {"zkembed counter\n9223372036854775808\n", "DATAINCONSISTENCY"}};
  open_steps(&of_counter);
  play("ann add 0; empty " PATH);
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    char script[400];
    snprintf(script, sizeof script,
             "set " PATH " %s; ann get -> %s; said " PATH
             ";"
             "bob put_now 1 -> %s; bob start -> %s; bob wait_now -> %s;"
             "entries " PATH " -> 0; data " PATH " -> %s",
             odd[i].data, odd[i].code, odd[i].code, odd[i].code, odd[i].code,
             odd[i].data);
    play(script);
  }
  play("set " PATH
       " zkembed counter\n5; ann get -> 5 later;"
       "set " PATH
       " ; bob get -> 0;" /* empty: taken over */
       "bob wait_now -> OPERATIONTIMEOUT;"
       "create " PATH "/x; ann add 2 -> 2");
}

/* P11: calls without a counter, and invalid arguments, are refused; the output
 * is then NULL. */
TEST(bad_arguments) {
  zke *own = test_open(":memory:");
  zke_counter_options o = {.size = 3};
  zke_counter *c = (zke_counter *)&o;
  ck_rc(zke_counter_new(own, PATH, &o, &c), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(c);
  ck_rc(zke_counter_new(own, "x", NULL, &c), ZKE_BADARGUMENTS);
  ck_rc(zke_counter_new(own, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_counter_new(NULL, PATH, NULL, &c), ZKE_BADARGUMENTS);
  zke_counter_free(NULL);
  ck_ok(zke_close(own));
}

/* ---- deaths, lost replies, faults ---- */

/* The typical use: three additions, a compare-and-set, and a wait for a past
 * change. */
static int use(zke *own) {
  zke_counter *c = NULL;
  int64_t now = 0, token = 0;
  int rc = zke_counter_new(own, PATH, NULL, &c);
  if (rc == ZKE_OK) rc = zke_counter_start(c);
  for (int i = 0; i < 3 && rc == ZKE_OK; i++)
    rc = zke_counter_add_and_get(c, 1, ZKE_FOREVER, &now, &token);
  if (rc == ZKE_OK && now != 3) rc = ZKE_SYSTEMERROR;
  if (rc == ZKE_OK)
    rc = zke_counter_compare_and_set(c, 3, 10, ZKE_FOREVER, NULL);
  if (rc == ZKE_OK)
    rc = zke_counter_wait(c, token, zke_now(own) + 1000, &now, NULL);
  if (rc == ZKE_OK && now != 10) rc = ZKE_SYSTEMERROR;
  zke_counter_free(c);
  return rc;
}

/* Each change was made once or not at all; others can count. */
static void check(zke *own, int rc) {
  zke_counter *c = make(own);
  int64_t v = value(c);
  ck_assert(v == 10 || (rc != ZKE_OK && v >= 0 && v <= 3));
  ck_assert_int_eq(add(c, 1), v + 1);
  zke_counter_free(c);
  until_empty(own, PATH);
}

static const recipe_use uses[] = {{"counter", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);
