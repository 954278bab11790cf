/* test_barrier.c - recipes/barrier: a znode that keeps everybody waiting
 *
 * A barrier that goes lets everybody pass, however it went and whatever the
 * waiters had seen of it; one that stays keeps them until their deadlines. */
#include "recipes/barrier.h"
#include "recipes/part/znode.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"
#include "test/seam.h"

#define PATH "/barriers/b"
#define NODE PATH "/barrier"

static zke_barrier *make(zke *z) {
  zke_barrier *b = NULL;
  ck_ok(zke_barrier_new(z, PATH, NULL, &b));
  return b;
}

static int64_t set(zke_barrier *b, zke *z) {
  int64_t token = 0;
  ck_ok(zke_barrier_set(b, "why", 3, soon(z), &token));
  return token;
}

/* What a listener heard. */
typedef struct heard {
  int count, event[16];
  int64_t token[16];
} heard;

/* The listener: notes the events and their tokens. */
static void hear(zke_barrier *b, int event, int64_t token, void *context) {
  heard *h = context;
  (void)b;
  ck_assert_int_lt(h->count, 16);
  h->event[h->count] = event;
  h->token[h->count++] = token;
}

/* A started barrier that notes what it hears. */
static zke_barrier *listen(zke *z, heard *h) {
  zke_barrier_options o = {.size = sizeof o, .listener = hear, .context = h};
  zke_barrier *b = NULL;
  ck_ok(zke_barrier_new(z, PATH, &o, &b));
  ck_ok(zke_barrier_start(b));
  return b;
}

static void dispatch(zke *z) {
  int count = 1;
  while (count) ck_ok(zke_dispatch(z, &count));
}

/* ---- setting and removing ---- */

/* One sets it, a second setting is told by whom and since when. */
TEST(set_once) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_barrier *a = make(z), *b = make(y);
  int64_t token = set(a, z), other = 7;
  zke_stat stat;
  ck_ok(zke_exists(z, NODE, NULL, NULL, &stat));
  ck_assert_int_eq(stat.czxid, token);
  ck_rc(zke_barrier_set(b, NULL, 0, soon(y), &other), ZKE_HELD);
  ck_says("is set by");
  ck_says(" since 2");
  ck_assert_int_eq(other, 7);
  ck_ok(zke_barrier_remove(b, 0, soon(y)));
  ck_assert_int_gt(set(b, y), token);
  zke_barrier_free(a);
  zke_barrier_free(b);
  ck_ok(zke_exists(z, NODE, NULL, NULL, NULL)); /* it stands all the same */
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Both of its znodes come and go together. */
TEST(leaves_nothing) {
  zke *z = test_open(":memory:");
  zke_barrier *b = make(z);
  zke_strings *names;
  set(b, z);
  ck_ok(zke_children(z, PATH, NULL, NULL, &names, NULL));
  ck_assert_int_eq(names->count, 2);
  zke_free(names);
  ck_ok(zke_barrier_remove(b, 0, soon(z)));
  ck_ok(zke_children(z, PATH, NULL, NULL, &names, NULL));
  ck_assert_int_eq(names->count, 0);
  zke_free(names);
  zke_barrier_free(b);
  ck_ok(zke_close(z));
}

/* A removal names what it removes: that of a former setting hits nothing. */
TEST(remove_by_token) {
  zke *z = test_open(":memory:");
  zke_barrier *b = make(z);
  ck_rc(zke_barrier_remove(b, 0, soon(z)), ZKE_NONODE);
  int64_t first = set(b, z);
  ck_ok(zke_barrier_remove(b, first, soon(z)));
  int64_t second = set(b, z), now = 0;
  ck_rc(zke_barrier_remove(b, first, soon(z)), ZKE_NONODE);
  ck_says("is not set");
  ck_ok(zke_barrier_get(b, &now));
  ck_assert_int_eq(now, second);
  zke_barrier_free(b);
  ck_ok(zke_close(z));
}

/* A lost reply of the removal never removes what was set since: the change is
 * made, its reply lost, and the next barrier set before the repetition.  The
 * listener of the remover's session cannot come between, so the other session
 * sets it from within the pause, on a thread. */
static void *set_at_once(void *arg) {
  zke_barrier *b = arg;
  while (zke_barrier_set(b, "next", 4, 0, NULL) == ZKE_HELD) test_pause();
  return NULL;
}

/* A removal whose reply was lost is repeated, while another process sets the
 * barrier again: the new barrier stays, and has the greater token. */
TEST(lost_removal_hits_no_other) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_barrier *a = make(z), *b = make(y);
  pthread_t thread;
  for (int i = 0; i < 20; i++) {
    int64_t token = set(a, z), now;
    ck_assert_int_eq(pthread_create(&thread, NULL, set_at_once, b), 0);
    ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
    ck_ok(zke_barrier_remove(a, 0, soon(z)));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_ok(zke_barrier_get(a, &now));
    ck_assert_int_gt(now, token);
    ck_ok(zke_barrier_remove(a, now, soon(z)));
  }
  zke_barrier_free(a);
  zke_barrier_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* The pause between two tries: the other process removes what stands. */
static void remove_in_pause(void *context, int64_t ns) {
  struct timespec t = {0, (long)ns};
  zke_barrier_remove(*(zke_barrier **)context, 0, 0);
  nanosleep(&t, NULL);
}

/* A setting whose reply was lost, and that was removed before it could be
 * repeated, is not set again, since nobody would remove it; but one that was
 * never made is. */
TEST_LOOP(lost_setting_is_not_set_twice, 0, 2) {
  zke_barrier *other = NULL;
  zke_os os = {.size = sizeof os, .context = &other, .sleep = remove_in_pause};
  zke_options o = {.size = sizeof o, .os = &os};
  zke *z, *y = test_open(test_path("db"));
  int64_t token = 0;
  ck_ok(zke_open(test_path("db"), &o, &z));
  zke_barrier *a = make(z);
  other = make(y);
  set(a, z); /* the directory is there */
  ck_ok(zke_barrier_remove(a, 0, soon(z)));
  int when = _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE;
  ck_ok(zke_test_fail(z, when, 0));
  ck_rc(zke_barrier_set(a, "why", 3, soon(z), NULL),
        _i ? ZKE_CONNECTIONLOSS : ZKE_OK);
  ck_ok(zke_barrier_get(a, &token));
  ck_assert_int_eq(token != 0, !_i);
  zke_barrier_free(a);
  zke_barrier_free(other);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- in the middle of a removal ---- */

static struct {
  zke_barrier *other;
  zke *session; /* the other's */
  int looks;    /* at the clock, until the other acts; 0: it has, or will not */
} meddler;

/* Each call of the library begins with a look at the clock: before the chosen
 * one the other removes the barrier and sets it again.  Where the caller has
 * the gate at that look, the other acts before the next. */
static void meddle_at_look(seam_call *c) {
  (void)c;
  if (!meddler.looks || --meddler.looks > 0) return;
  int rc = zke_barrier_remove(meddler.other, 0, zke_now(meddler.session));
  if (rc == ZKE_OPERATIONTIMEOUT)
    meddler.looks = 1;
  else
    set(meddler.other, meddler.session);
}

/* While one removes the barrier, another removes it before and sets the next
 * one, at every place: with a token that one stays, and in any case its two
 * znodes stay or go together. */
TEST_LOOP(a_removal_spares_the_next_setting, 0, 2) {
  static seam s = {.before = {[SEAM_clock] = meddle_at_look}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s)};
  zke *z, *y = test_open(test_path("db"));
  zke_stat stat;
  int n = 1;
  ck_ok(zke_open(test_path("db"), &o, &z));
  zke_barrier *a = make(z), *b = make(y);
  meddler.other = b;
  meddler.session = y;
  for (bool more = true; more; n++) {
    int64_t token = set(b, y), now = 0;
    meddler.looks = n;
    int rc = zke_barrier_remove(a, _i ? token : 0, soon(z));
    more = meddler.looks == 0;
    meddler.looks = 0;
    ck_ok(zke_barrier_get(b, &now));
    if (rc != ZKE_OK) ck_rc(rc, ZKE_NONODE);
    if (_i && more) ck_assert_int_gt(now, token);
    if (!more) ck_assert_int_eq(now, 0);
    rc = zke_exists(y, PATH, NULL, NULL, &stat);
    ck_assert_int_eq(rc == ZKE_OK ? stat.numChildren : 0, now ? 2 : 0);
    if (now) ck_ok(zke_barrier_remove(b, now, soon(y)));
  }
  ck_assert_int_gt(n, 5);
  zke_barrier_free(a);
  zke_barrier_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Who set it, since when, and why. */
TEST(the_barrier_says_who_set_it) {
  zke_options o = {.size = sizeof o, .identity = "the setter"};
  zke *z;
  zke_party_list *list;
  zke_stat stat;
  ck_ok(zke_open(":memory:", &o, &z));
  zke_barrier *b = make(z);
  ck_ok(zke_barrier_parties(z, PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  int64_t token = set(b, z);
  ck_ok(zke_exists(z, NODE, NULL, NULL, &stat));
  ck_ok(zke_barrier_parties(z, PATH, &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].czxid, token);
  ck_assert_int_eq(list->data[0].session, zke_session_id(z));
  ck_assert_int_eq(list->data[0].pid, getpid());
  ck_assert_int_eq(list->data[0].since_ms, stat.ctime);
  ck_assert_str_eq(list->data[0].identity, "the setter");
  ck_assert_int_eq(list->data[0].len, 3);
  ck_assert_str_eq(list->data[0].data, "why");
  zke_free(list);
  ck_rc(zke_barrier_wait(b, zke_now(z)), ZKE_OPERATIONTIMEOUT);
  ck_says("is set by the setter (pid ");
  zke_barrier_free(b);
  ck_ok(zke_close(z));
}

/* A persistent one outlives its setter, an ephemeral one does not. */
TEST(ephemeral_on_request) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_barrier_options o = {.size = sizeof o, .ephemeral = 1};
  zke_barrier *a = make(y), *b, *c = make(z);
  set(a, y);
  zke_barrier_free(a);
  ck_ok(zke_close(y));
  ck_rc(zke_barrier_wait(c, zke_now(z)), ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_barrier_remove(c, 0, soon(z)));
  y = test_session(z, NULL);
  ck_ok(zke_barrier_new(y, PATH, &o, &b));
  set(b, y);
  ck_rc(zke_barrier_wait(c, zke_now(z)), ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_ok(zke_barrier_wait(c, soon(z)));
  zke_barrier_free(b);
  zke_barrier_free(c);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- waiting ---- */

typedef struct waiter {
  zke *z;
  zke_barrier *b;
  int64_t deadline;
  pthread_t thread;
  int rc;
  char sentence[256];
  int done;
} waiter;

static void *wait_there(void *arg) {
  waiter *w = arg;
  w->rc = zke_barrier_wait(w->b, w->deadline);
  snprintf(w->sentence, sizeof w->sentence, "%s", zke_errmsg());
  __atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void wait_begin(waiter *w, zke *z, zke_barrier *b) {
  *w = (waiter){.z = z, .b = b, .deadline = ZKE_FOREVER};
  ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_there, w), 0);
  ck_until(all_watches(z) > 0, 5000);
}

static int wait_end(waiter *w) {
  ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
  return w->rc;
}

/* Without a barrier nobody waits; with one everybody does until it goes. */
TEST(wait_until_removed) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_barrier *a = make(z), *b = make(y);
  waiter w;
  ck_ok(zke_barrier_wait(b, 0));
  set(a, z);
  wait_begin(&w, y, b);
  ck_assert_int_eq(__atomic_load_n(&w.done, __ATOMIC_ACQUIRE), 0);
  ck_ok(zke_barrier_remove(a, 0, soon(z)));
  ck_ok(wait_end(&w));
  ck_assert_int_eq(all_watches(z), 0);
  zke_barrier_free(a);
  zke_barrier_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Removed and set again before the waiter looked: it waited for the former
 * (a wake-up is not the condition, but the token is). */
TEST(a_replaced_barrier_lets_waiters_pass) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_barrier *a = make(z), *b = make(y);
  waiter w;
  set(a, z);
  wait_begin(&w, y, b);
  zke_op ops[2];
  zke_op_delete(&ops[0], NODE, -1);
  zke_op_create(&ops[1], NODE, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_multi(z, ops, 2, NULL));
  ck_ok(wait_end(&w));
  ck_assert_int_eq(all_watches(z), 0);
  zke_barrier_free(a);
  zke_barrier_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* The deadline and the cancellation leave no watch; a wake-up by other things
 * ends nothing. */
TEST(deadline_and_cancel) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_barrier *a = make(z), *b = make(y);
  waiter w;
  set(a, z);
  int64_t begin = zke_now(y);
  ck_rc(zke_barrier_wait(b, begin + 40), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(zke_now(y), begin + 40);
  ck_assert_int_eq(all_watches(z), 0);
  wait_begin(&w, y, b);
  ck_ok(zke_wake(y));
  ck_rc(zke_barrier_wait(b, 0), ZKE_MISUSE);
  ck_until(zke_barrier_cancel(b) == ZKE_OK, 10000);
  ck_rc(wait_end(&w), ZKE_CANCELLED);
  ck_assert_ptr_nonnull(strstr(w.sentence, "cancelled"));
  ck_assert_int_eq(all_watches(z), 0);
  ck_rc(zke_barrier_cancel(b), ZKE_IDLE); /* and the next is not hit */
  ck_rc(zke_barrier_wait(b, zke_now(y)), ZKE_OPERATIONTIMEOUT);
  zke_barrier_free(a);
  zke_barrier_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* The session's end ends the waiting. */
TEST(expired_waiting) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {0};
  zke_barrier *a = make(z), *b = listen(y, &h);
  waiter w;
  set(a, z);
  wait_begin(&w, y, b);
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_rc(wait_end(&w), ZKE_INVALIDSTATE);
  ck_assert_int_eq(h.event[h.count - 1], ZKE_BARRIER_LOST);
  ck_rc(zke_barrier_wait(b, 0), ZKE_INVALIDSTATE);
  ck_rc(zke_barrier_set(b, NULL, 0, 0, NULL), ZKE_INVALIDSTATE);
  zke_barrier_free(a);
  zke_barrier_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Whichever call finds that the session has ended says so to the listener. */
TEST(expired_meanwhile) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  heard h = {0};
  zke_barrier *b = listen(y, &h);
  ck_ok(zke_barrier_start(b));
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_rc(zke_barrier_set(b, NULL, 0, 0, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_gt(h.count, 0);
  ck_assert_int_eq(h.event[h.count - 1], ZKE_BARRIER_LOST);
  zke_barrier_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- listening ---- */

/* The listener hears each coming and going with its token, and first of all
 * what stands. */
TEST(listener_hears) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {0};
  zke_barrier *a = make(z), *b = listen(y, &h);
  ck_assert_int_eq(h.count, 0);
  int64_t first = set(a, z);
  dispatch(y);
  ck_ok(zke_barrier_remove(a, 0, soon(z)));
  dispatch(y);
  ck_assert_int_eq(h.count, 2);
  ck_assert_int_eq(h.event[0], ZKE_BARRIER_SET);
  ck_assert_int_eq(h.token[0], first);
  ck_assert_int_eq(h.event[1], ZKE_BARRIER_REMOVED);
  ck_assert_int_eq(h.token[1], first);
  zke_barrier_free(b);
  ck_assert_int_eq(all_watches(z), 0);
  int64_t second = set(a, z);
  b = listen(y, &h);
  ck_assert_int_eq(h.count, 3);
  ck_assert_int_eq(h.event[2], ZKE_BARRIER_SET);
  ck_assert_int_eq(h.token[2], second);
  zke_barrier_free(b);
  ck_assert_int_eq(all_watches(z), 0);
  zke_barrier_free(a);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* What stands is the first event also where a call on another thread has seen
 * it before, as it waits for its end; that call goes on with the removal. */
TEST(started_beside_a_waiter) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {0};
  waiter w;
  zke_barrier_options o = {.size = sizeof o, .listener = hear, .context = &h};
  zke_barrier *a = make(z), *b = NULL;
  ck_ok(zke_barrier_new(y, PATH, &o, &b));
  int64_t token = set(a, z);
  wait_begin(&w, y, b);
  ck_ok(zke_barrier_start(b));
  ck_assert_int_eq(h.count, 1);
  ck_assert_int_eq(h.event[0], ZKE_BARRIER_SET);
  ck_assert_int_eq(h.token[0], token);
  ck_assert_int_eq(__atomic_load_n(&w.done, __ATOMIC_ACQUIRE), 0);
  ck_ok(zke_barrier_remove(a, 0, soon(z)));
  ck_ok(wait_end(&w));
  ck_assert_int_eq(h.count, 2);
  ck_assert_int_eq(h.event[1], ZKE_BARRIER_REMOVED);
  zke_barrier_free(a);
  zke_barrier_free(b);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

static void free_it(zke_barrier *b, int event, int64_t token, void *context) {
  (void)event, (void)token;
  *(int *)context += 1;
  zke_barrier_free(b);
}

/* The listener may free the object. */
TEST(listener_frees) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  int freed = 0;
  zke_barrier_options o = {
      .size = sizeof o, .listener = free_it, .context = &freed};
  zke_barrier *a = make(z), *b;
  ck_ok(zke_barrier_new(y, PATH, &o, &b));
  ck_ok(zke_barrier_start(b));
  set(a, z);
  dispatch(y);
  ck_assert_int_eq(freed, 1);
  zke_barrier_free(a);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- what is not ours ---- */

/* A barrier that somebody made by hand, with or without data that looks odd,
 * blocks and can be removed. */
TEST(made_by_hand) {
  static const char *const texts[] = {"", "x", "\n", "id-1 zz\n",
                                      "id-1-2-3 5 6 gone\nwhy"};
  zke *z = test_open(":memory:");
  zke_barrier *b = make(z);
  zke_party_list *list;
  ck_ok(zke_ensure_path(z, "/barriers", ZKE_PERSISTENT, ZKE_FOREVER));
  ck_ok(zke_create(z, PATH, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ck_ok(zke_create(z, NODE, texts[i], (int)strlen(texts[i]), ZKE_OPEN_ACL,
                     ZKE_PERSISTENT, NULL, NULL));
    ck_rc(zke_barrier_wait(b, 0), ZKE_OPERATIONTIMEOUT);
    ck_rc(zke_barrier_set(b, NULL, 0, soon(z), NULL), ZKE_HELD);
    ck_ok(zke_barrier_parties(z, PATH, &list));
    ck_assert_int_eq(list->count, 1);
    zke_free(list);
    ck_ok(zke_barrier_remove(b, 0, soon(z)));
    ck_ok(zke_barrier_wait(b, 0));
  }
  ck_ok(zke_create(z, NODE, NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_barrier_parties(z, PATH, &list));
  ck_assert_int_eq(list->count, 1);
  zke_free(list);
  ck_ok(zke_barrier_remove(b, 0, soon(z)));
  zke_barrier_free(b);
  ck_ok(zke_close(z));
}

/* A path that is another recipe's is refused. */
TEST(other_kind) {
  zke *z = test_open(":memory:");
  zke_barrier *b = make(z);
  ck_ok(zke_recipe_place(z, PATH, "lock", ZKE_PERSISTENT, NULL, ZKE_FOREVER));
  ck_rc(zke_barrier_set(b, NULL, 0, soon(z), NULL), ZKE_OTHERKIND);
  ck_rc(zke_barrier_wait(b, soon(z)), ZKE_OTHERKIND);
  ck_rc(zke_barrier_remove(b, 0, soon(z)), ZKE_OTHERKIND);
  ck_rc(zke_barrier_start(b), ZKE_OTHERKIND);
  zke_barrier_free(b);
  ck_ok(zke_close(z));
}

/* P11: arguments that make no sense are refused; the output is NULL then. */
TEST(bad_arguments) {
  zke *z = test_open(":memory:");
  zke_barrier_options o = {.size = 3};
  zke_barrier *b = (zke_barrier *)&o;
  ck_rc(zke_barrier_new(z, PATH, &o, &b), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(b);
  ck_rc(zke_barrier_new(z, "x", NULL, &b), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_new(z, "/", NULL, &b), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_new(z, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_new(NULL, PATH, NULL, &b), ZKE_BADARGUMENTS);
  b = make(z);
  ck_rc(zke_barrier_set(b, "x", -1, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_set(b, NULL, 1, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_parties(z, PATH, NULL), ZKE_BADARGUMENTS);
  zke_party_list *list;
  ck_rc(zke_barrier_parties(z, "x", &list), ZKE_BADARGUMENTS);
  zke_barrier_free(NULL);
  zke_barrier_free(b);
  ck_ok(zke_close(z));
}

/* ---- deaths, lost replies, faults ---- */

/* The typical use: set, wait in vain, remove, and wait no more. */
static int use(zke *z) {
  zke_barrier *b = NULL;
  int rc = zke_barrier_new(z, PATH, NULL, &b);
  if (rc == ZKE_OK) rc = zke_barrier_start(b);
  if (rc == ZKE_OK) rc = zke_barrier_set(b, "why", 3, ZKE_FOREVER, NULL);
  if (rc == ZKE_OK) {
    rc = zke_barrier_wait(b, 0);
    if (rc == ZKE_OK)
      rc = ZKE_SYSTEMERROR;
    else if (rc == ZKE_OPERATIONTIMEOUT)
      rc = ZKE_OK;
  }
  if (rc == ZKE_OK) rc = zke_barrier_remove(b, 0, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_barrier_wait(b, zke_now(z) + 1000);
  zke_barrier_free(b);
  return rc;
}

/* It stands whole or not at all, and others can remove it and go on. */
static void check(zke *z, int rc) {
  zke_barrier *b = make(z);
  zke_strings *names = NULL;
  int64_t token;
  ck_ok(zke_barrier_get(b, &token));
  if (rc == ZKE_OK) ck_assert_int_eq(token, 0);
  int found = zke_children(z, PATH, NULL, NULL, &names, NULL);
  if (found == ZKE_OK) ck_assert_int_eq(names->count, token ? 2 : 0);
  zke_free(names);
  if (token) ck_ok(zke_barrier_remove(b, token, soon(z)));
  ck_ok(zke_barrier_wait(b, 0));
  set(b, z);
  ck_ok(zke_barrier_remove(b, 0, soon(z)));
  zke_barrier_free(b);
}

static const recipe_use uses[] = {{"barrier", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);

/* Several processes wait, one removes. */
TEST(all_processes_pass_when_one_removes) {
  int ready[2];
  char byte;
  ck_assert_int_eq(pipe(ready), 0);
  const char *db = test_path("db");
  pid_t pids[4];
  for (int i = 0; i < 4; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    zke *z;
    zke_barrier *b;
    read(ready[0], &byte, 1);
    int rc = zke_open(db, NULL, &z);
    if (rc == ZKE_OK) rc = zke_barrier_new(z, PATH, NULL, &b);
    if (rc == ZKE_OK)
      rc = zke_barrier_wait(b, zke_now(z) + test_patience(10000));
    int64_t token = 1;
    if (rc == ZKE_OK) rc = zke_barrier_get(b, &token);
    _exit(rc == ZKE_OK && token == 0 ? 0 : 1);
  }
  zke *z = test_open(db);
  zke_barrier *b = make(z);
  set(b, z);
  ck_assert_int_eq(write(ready[1], "abcd", 4), 4);
  zke_watch_list *list = NULL;
  do {
    zke_free(list);
    test_pause();
    ck_ok(zke_watches(z, &list));
  } while (list->count < 4);
  zke_free(list);
  ck_ok(zke_barrier_remove(b, 0, soon(z)));
  for (int i = 0; i < 4; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, 0);
  }
  zke_barrier_free(b);
  ck_ok(zke_close(z));
}
