/* test_rendezvous.c - recipes/rendezvous: parties exchange what they brought
 *
 * Once all are there everybody gets everything, whoever dies. */
#include "recipes/rendezvous.h"
#include "recipes/znode.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"

#define PATH "/meetings/m"
#define POINT "/meetings/p"

enum { MOST = 4 };

/* The sessions and a party on each; and one that looks on. */
static zke *admin, *z[MOST];
static zke_rendezvous *m[MOST];
static int parties;

/* What each listener heard: "M" or "L" for each event. */
static char heard[MOST][16];

static void hear(zke_rendezvous *who, int event, int64_t token, void *context) {
  char *text = context;
  (void)who, (void)token;
  ck_assert_int_lt((int)strlen(text), 14);
  text[strlen(text)] = "?ML"[event];
}

/* So many parties, each on a session of its own, of a meeting of n. */
static void begin(int count, int n) {
  admin = test_open(":memory:");
  parties = count;
  for (int i = 0; i < count; i++) {
    char name[2] = {(char)('a' + i), 0};
    zke_options o = {.size = sizeof o, .identity = name};
    zke_rendezvous_options r = {
        .size = sizeof r, .listener = hear, .context = heard[i]};
    ck_ok(zke_open_session(admin, &o, &z[i]));
    ck_ok(zke_rendezvous_new(z[i], PATH, n, &r, &m[i]));
  }
}

/* Nothing is left: no znode, no watch. */
static void end(void) {
  zke_strings *names = NULL;
  for (int i = 0; i < parties; i++) {
    zke_rendezvous_free(m[i]);
    ck_ok(zke_close(z[i]));
  }
  if (zke_children(admin, PATH, NULL, NULL, &names, NULL) == ZKE_OK)
    ck_assert_int_eq(names->count, 0);
  zke_free(names);
  close_last(admin);
}

static void start(int i, const char *text) {
  ck_ok(zke_rendezvous_start(m[i], text, (int)strlen(text)));
}

/* What the last meeting of a party brought, as "a:x b:y". */
static const char *result(int i) {
  static char text[256];
  zke_party_list *list;
  size_t used = 0;
  ck_ok(zke_rendezvous_list(m[i], &list, NULL));
  text[0] = '\0';
  for (int j = 0; j < list->count; j++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%.*s",
                             j ? " " : "", list->data[j].identity,
                             list->data[j].len, list->data[j].data);
  zke_free(list);
  return text;
}

/* ---- meetings ---- */

/* All get everybody's data, in the order in which they came, with who it was;
 * nobody before the last has come. */
TEST(all_get_everything) {
  zke_party_list *list = NULL;
  int64_t token = 0, other = 0;
  int count;
  begin(3, 3);
  start(2, "two");
  start(0, "");
  dispatch_on(z[2]);
  ck_rc(zke_rendezvous_list(m[2], NULL, NULL), ZKE_NONODE);
  ck_ok(zke_rendezvous_missing(m[2], &count));
  ck_assert_int_eq(count, 1);
  ck_ok(zke_rendezvous_parties(admin, PATH, &list));
  ck_assert_int_eq(list->count, 2);
  ck_assert_str_eq(list->data[0].identity, "c");
  zke_free(list);
  ck_ok(zke_rendezvous_meet(m[1], "o\0e", 3, 0, &list, &token));
  ck_assert_int_eq(list->count, 3);
  ck_assert_str_eq(list->data[2].identity, "b");
  ck_assert_int_eq(list->data[2].len, 3);
  ck_assert_int_eq(memcmp(list->data[2].data, "o\0e", 3), 0);
  ck_assert_int_eq(list->data[2].session, zke_session_id(z[1]));
  ck_assert_int_eq(list->data[2].pid, getpid());
  zke_free(list);
  dispatch_on(z[0]);
  dispatch_on(z[2]);
  ck_assert_str_eq(result(0), "c:two a: b:o");
  ck_assert_str_eq(result(2), "c:two a: b:o");
  ck_ok(zke_rendezvous_list(m[0], NULL, &other));
  ck_assert_int_eq(token, other);
  for (int i = 0; i < 3; i++) ck_assert_str_eq(heard[i], "M");
  end();
}

/* Again and again with the same objects: no meeting gets the data of another,
 * the tokens increase. */
TEST(meetings_follow_each_other) {
  int64_t last = 0, token;
  char text[32], expected[64];
  begin(2, 2);
  for (int n = 0; n < 6; n++) {
    snprintf(text, sizeof text, "%d", n);
    snprintf(expected, sizeof expected, "a:%d b:%d", n, n);
    start(0, text);
    ck_ok(zke_rendezvous_meet(m[1], text, 1, 0, NULL, &token));
    ck_assert_int_gt(token, last);
    last = token;
    dispatch_on(z[0]);
    ck_assert_str_eq(result(0), expected);
    ck_assert_str_eq(result(1), expected);
  }
  ck_rc(zke_exists(admin, PATH "/ready", NULL, NULL, NULL), ZKE_NONODE);
  end();
}

/* Those beyond N wait for the next meeting. */
TEST(those_beyond_n_meet_next) {
  begin(4, 2);
  start(0, "0");
  start(1, "1");
  start(2, "2");
  start(3, "3");
  for (int i = 0; i < 4; i++) dispatch_on(z[i]);
  for (int i = 0; i < 4; i++) dispatch_on(z[i]);
  ck_assert_str_eq(result(1), "a:0 b:1");
  ck_assert_str_eq(result(2), "c:2 d:3");
  end();
}

/* Coming wakes nobody; the last one wakes each of the others once. */
TEST(no_herd) {
  begin(4, 4);
  for (int i = 0; i < 3; i++) {
    start(i, "x");
    for (int j = 0; j < i; j++) ck_assert_int_eq(dispatch_on(z[j]), 0);
  }
  start(3, "x");
  for (int j = 0; j < 3; j++) ck_assert_int_eq(dispatch_on(z[j]), 1);
  end();
}

/* Death before the meeting: not there.  Afterwards: everybody still gets what
 * it brought, and nothing is left of it. */
TEST(the_dead_count_only_after_the_meeting) {
  begin(4, 3);
  start(0, "0");
  start(1, "1");
  ck_ok(zke_expire(admin, zke_session_id(z[0])));
  start(2, "2");
  dispatch_on(z[1]);
  ck_rc(zke_rendezvous_list(m[1], NULL, NULL), ZKE_NONODE);
  start(3, "3");
  ck_ok(zke_expire(admin, zke_session_id(z[3])));
  dispatch_on(z[1]);
  ck_ok(zke_expire(admin, zke_session_id(z[2]))); /* without having looked */
  ck_assert_str_eq(result(1), "b:1 c:2 d:3");
  dispatch_on(z[2]);
  ck_assert_str_eq(heard[2], "L");
  ck_rc(zke_rendezvous_list(m[2], NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_rendezvous_meet(m[2], "", 0, 0, NULL, NULL), ZKE_INVALIDSTATE);
  /* What it left is cleared away by the next ones. */
  for (int i = 0; i < 4; i++) {
    if (i == 1) continue;
    zke_rendezvous_free(m[i]);
    ck_ok(zke_close(z[i]));
    z[i] = test_session(admin, NULL);
    ck_ok(zke_rendezvous_new(z[i], PATH, 3, NULL, &m[i]));
  }
  start(0, "x");
  start(1, "y");
  ck_ok(zke_rendezvous_meet(m[2], "z", 1, 0, NULL, NULL));
  dispatch_on(z[0]);
  dispatch_on(z[1]);
  end();
}

/* The deadline withdraws and says what is missing; a withdrawal that comes too
 * late has met. */
TEST(a_withdrawal_that_is_late_has_met) {
  begin(2, 2);
  int64_t now = zke_now(z[0]);
  ck_rc(zke_rendezvous_meet(m[0], "x", 1, now + 20, NULL, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(zke_now(z[0]), now + 20);
  ck_says("1 of 2 parties are at " PATH ": a (pid ");
  start(1, "1");
  ck_rc(zke_rendezvous_list(m[1], NULL, NULL), ZKE_NONODE);
  ck_ok(zke_rendezvous_stop(m[1]));
  start(1, "1");
  start(0, "0");
  ck_rc(zke_rendezvous_stop(m[1]), ZKE_HELD);
  ck_assert_str_eq(result(1), "b:1 a:0");
  start(1, "1");
  ck_ok(zke_rendezvous_meet(m[0], "2", 1, 0, NULL, NULL));
  ck_ok(zke_rendezvous_meet(m[1], "", 0, 0, NULL, NULL)); /* the deadline */
  ck_assert_str_eq(result(1), "b:1 a:2");
  end();
}

static int run_meet(call *c) {
  return zke_rendezvous_meet(c->object, "x", 1, ZKE_FOREVER, NULL, NULL);
}

static int waiting(void) {
  int count = 0;
  ck_ok(zke_rendezvous_missing(m[0], &count));
  return count == 1;
}

/* A party that waits for the others is cancelled by another thread. */
TEST(cancel_ends_the_wait) {
  call c;
  begin(1, 2);
  call_begin(&c, run_meet, m[0], 0, ZKE_FOREVER);
  ck_until(waiting(), 5000);
  ck_until(zke_rendezvous_cancel(m[0]) == ZKE_OK, 10000);
  call_end(&c);
  ck_assert_int_eq(c.rc, ZKE_CANCELLED);
  end();
}

static void free_it(zke_rendezvous *who, int event, int64_t token,
                    void *context) {
  (void)event, (void)token;
  *(int *)context += 1;
  zke_rendezvous_free(who);
}

/* The listener may free the meeting. */
TEST(listener_frees) {
  int freed = 0;
  zke_rendezvous_options o = {
      .size = sizeof o, .listener = free_it, .context = &freed};
  zke_rendezvous *mine;
  begin(2, 2);
  ck_ok(zke_rendezvous_new(z[0], PATH, 2, &o, &mine));
  ck_ok(zke_rendezvous_start(mine, "x", 1));
  start(1, "y");
  dispatch_on(z[0]);
  ck_assert_int_eq(freed, 1);
  end();
}

/* Another recipe's path, another N, too much data, bad arguments. */
TEST(bad_arguments_and_other_paths_are_refused) {
  zke_rendezvous_options o = {.size = 1};
  zke_rendezvous *other;
  zke_double_barrier *barrier;
  begin(1, 2);
  start(0, "x");
  ck_ok(zke_double_barrier_new(admin, PATH, 2, NULL, &barrier));
  ck_rc(zke_double_barrier_enter(barrier, NULL, 0, 0, NULL), ZKE_OTHERKIND);
  zke_double_barrier_free(barrier);
  ck_ok(zke_rendezvous_new(admin, PATH, 3, NULL, &other));
  ck_rc(zke_rendezvous_start(other, NULL, 0), ZKE_OTHERKIND);
  zke_rendezvous_free(other);
  ck_rc(zke_rendezvous_new(admin, PATH, 2, &o, &other), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  ck_rc(zke_rendezvous_new(admin, PATH, 0, NULL, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_new(admin, PATH, 2, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_new(NULL, PATH, 2, NULL, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_meet(NULL, NULL, 0, 0, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_meet(m[0], NULL, 1, 0, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_start(NULL, NULL, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_start(m[0], NULL, 0), ZKE_MISUSE);
  ck_rc(zke_rendezvous_stop(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_list(NULL, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_cancel(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_missing(NULL, NULL), ZKE_BADARGUMENTS);
  zke_rendezvous_free(NULL);
  end();
}

/* ---- a point ---- */

static zke_rendezvous_point *make(zke *on) {
  zke_rendezvous_point *p = NULL;
  ck_ok(zke_rendezvous_point_new(on, POINT, NULL, &p));
  return p;
}

/* Prepared, filled, read by those who came before and after. */
TEST(point_filled) {
  char *data = NULL;
  int len = 0;
  int64_t token = 0, read = 0;
  zke_stat stat;
  begin(2, 2);
  zke_rendezvous_point *p = make(z[0]), *q = make(z[1]);
  ck_rc(zke_rendezvous_fill(z[1], POINT, "x", 1, soon(admin), NULL),
        ZKE_NONODE);
  ck_rc(zke_rendezvous_point_wait(p, 0, NULL, NULL, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_says("was not prepared");
  ck_ok(zke_rendezvous_prepare(z[0], POINT, 0, soon(admin)));
  ck_ok(zke_rendezvous_prepare(z[0], POINT, 0, soon(admin)));
  ck_rc(zke_rendezvous_point_wait(p, 0, NULL, NULL, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_says("nobody has filled");
  ck_ok(zke_rendezvous_fill(z[1], POINT, "a\0b", 3, soon(admin), &token));
  ck_ok(zke_exists(admin, POINT, NULL, NULL, &stat));
  ck_assert_int_eq(stat.mzxid, token);
  ck_ok(zke_rendezvous_point_wait(p, 0, &data, &len, &read));
  ck_assert_int_eq(len, 3);
  ck_assert_int_eq(memcmp(data, "a\0b", 4), 0);
  ck_assert_int_eq(read, token);
  zke_free(data);
  ck_ok(zke_rendezvous_point_wait(q, 0, &data, NULL, NULL));
  zke_free(data);
  ck_rc(zke_rendezvous_fill(z[0], POINT, "y", 1, soon(admin), NULL), ZKE_HELD);
  ck_says("is filled by b (pid ");
  ck_rc(zke_rendezvous_prepare(z[0], POINT, 0, soon(admin)), ZKE_HELD);
  zke_rendezvous_point_free(p);
  zke_rendezvous_point_free(q);
  end();
}

static zke_os os_real;

/* What happens while a call pauses between two tries. */
static void (*meanwhile)(void);

static void acting_sleep(void *context, int64_t ns) {
  void (*act)(void) = meanwhile;
  meanwhile = NULL;
  if (act) act();
  os_real.sleep(context, ns);
}

static void remove_point(void) { ck_ok(zke_delete(admin, POINT, -1)); }

static void prepare_anew(void) {
  remove_point();
  ck_ok(zke_rendezvous_prepare(admin, POINT, 0, soon(admin)));
}

/* The reply of a filling is lost, and the point is removed before it looks
 * again: it says so, and does not fill the next one. */
TEST_LOOP(a_lost_filling_fills_no_second_point, 0, 2) {
  zke_os os = {.size = sizeof os, .sleep = acting_sleep};
  zke_options o = {.size = sizeof o, .os = &os};
  zke_os_default(&os_real);
  ck_ok(zke_open(":memory:", &o, &admin));
  zke *master = test_session(admin, NULL);
  ck_ok(zke_rendezvous_prepare(admin, POINT, 0, soon(admin)));
  meanwhile = _i ? prepare_anew : remove_point;
  ck_ok(zke_test_fail(master, ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(zke_rendezvous_fill(master, POINT, "one", 3, soon(admin), NULL),
        ZKE_CONNECTIONLOSS);
  ck_says("may have been filled and removed");
  ck_assert(!meanwhile);
  ck_rc(zke_rendezvous_fill(master, POINT, "two", 3, soon(admin), NULL),
        _i ? ZKE_OK : ZKE_NONODE);
  ck_ok(zke_close(master));
  close_last(admin);
}

static void prepare_another(void) {
  ck_ok(zke_rendezvous_prepare(admin, POINT "2", 0, soon(admin)));
}

/* A preparation whose reply is lost, what happens before it looks again, and
 * its result. */
static const struct {
  int when;
  void (*act)(void);
  int rc;
} lost_preparations[] = {
    {ZKE_TEST_FAIL_BEFORE, NULL, ZKE_OK},
    {ZKE_TEST_FAIL_AFTER, NULL, ZKE_OK},
    {ZKE_TEST_FAIL_AFTER, prepare_another, ZKE_OK},
    {ZKE_TEST_FAIL_AFTER, prepare_anew, ZKE_OK},
    {ZKE_TEST_FAIL_AFTER, remove_point, ZKE_CONNECTIONLOSS},
    /* It cannot be told from the one before. */
    {ZKE_TEST_FAIL_BEFORE, prepare_another, ZKE_CONNECTIONLOSS},
};

/* The reply of a preparation is lost.  Where the point may have been removed
 * before the call looks again, it says so, and prepares no second one. */
TEST_LOOP(a_lost_preparation_is_not_made_twice, 0, 6) {
  zke_os os = {.size = sizeof os, .sleep = acting_sleep};
  zke_options o = {.size = sizeof o, .os = &os};
  zke_os_default(&os_real);
  ck_ok(zke_open(":memory:", &o, &admin));
  zke *initiator = test_session(admin, NULL);
  int rc = lost_preparations[_i].rc;
  ck_ok(zke_create(admin, "/meetings", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  meanwhile = lost_preparations[_i].act;
  ck_ok(zke_test_fail(initiator, lost_preparations[_i].when, 1));
  ck_rc(zke_rendezvous_prepare(initiator, POINT, 0, soon(admin)), rc);
  if (rc != ZKE_OK) ck_says("may have been prepared and removed");
  ck_assert(!meanwhile);
  ck_rc(zke_exists(admin, POINT, NULL, NULL, NULL),
        rc == ZKE_OK ? ZKE_OK : ZKE_NONODE);
  ck_ok(zke_rendezvous_prepare(initiator, POINT, 0, soon(admin)));
  ck_ok(zke_close(initiator));
  close_last(admin);
}

typedef struct waiter {
  zke_rendezvous_point *point;
  char *data; /* of the point, when the wait ended well */
  int rc;
} waiter;

static void *wait_there(void *arg) {
  waiter *c = arg;
  c->rc =
      zke_rendezvous_point_wait(c->point, ZKE_FOREVER, &c->data, NULL, NULL);
  return NULL;
}

/* A thread waits at the point from now on. */
static pthread_t wait_begin(waiter *c, zke_rendezvous_point *p) {
  pthread_t thread;
  *c = (waiter){.point = p};
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_there, c), 0);
  ck_until(all_watches(admin) > 0, 5000);
  return thread;
}

/* The waiter sleeps before the znode is there, and is cancelled; then until it
 * is filled; then it learns that the initiator has gone. */
TEST(point_waits) {
  waiter c;
  begin(2, 2);
  zke_rendezvous_point *p = make(z[0]);
  pthread_t thread = wait_begin(&c, p);
  ck_rc(zke_rendezvous_point_wait(p, 0, NULL, NULL, NULL), ZKE_MISUSE);
  ck_until(zke_rendezvous_point_cancel(p) == ZKE_OK, 10000);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(c.rc, ZKE_CANCELLED);
  ck_assert(all_watches(admin) == 0);
  thread = wait_begin(&c, p);
  ck_ok(zke_rendezvous_prepare(z[1], POINT, 1, soon(admin)));
  ck_ok(zke_rendezvous_prepare(z[1], POINT, 1, soon(admin)));
  ck_rc(zke_rendezvous_prepare(admin, POINT, 1, soon(admin)), ZKE_HELD);
  ck_ok(zke_rendezvous_fill(admin, POINT, "yes", 3, soon(admin), NULL));
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_ok(c.rc);
  ck_assert_str_eq(c.data, "yes");
  zke_free(c.data);
  ck_assert(all_watches(admin) == 0);
  ck_ok(zke_delete(admin, POINT, -1));
  ck_ok(zke_rendezvous_prepare(z[1], POINT, 1, soon(admin)));
  zke_rendezvous_point *q = make(z[0]);
  thread = wait_begin(&c, q);
  ck_ok(zke_expire(admin, zke_session_id(z[1])));
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(c.rc, ZKE_BROKEN);
  thread = wait_begin(&c, q);
  ck_ok(zke_expire(admin, zke_session_id(z[0])));
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(c.rc, ZKE_INVALIDSTATE);
  zke_rendezvous_point_free(p);
  zke_rendezvous_point_free(q);
  end();
}

/* What a point's listener heard. */
static void point_hear(zke_rendezvous_point *p, int event, int64_t token,
                       const char *data, int len, void *context) {
  char *text = context;
  (void)p, (void)token;
  size_t used = strlen(text);
  snprintf(text + used, 64 - used, "%c%.*s ", "?FGEL"[event], len,
           data ? data : "");
}

/* The listener of a point hears that it is empty, filled and gone, and misses
 * no filling where several changes come at once. */
TEST(point_listener) {
  char text[64] = "";
  zke_rendezvous_point *p;
  zke_rendezvous_point_options o = {
      .size = sizeof o, .listener = point_hear, .context = text};
  begin(1, 2);
  ck_ok(zke_rendezvous_point_new(z[0], POINT, &o, &p));
  ck_ok(zke_rendezvous_point_step(p)); /* not started: nothing to look at */
  ck_ok(zke_rendezvous_point_start(p));
  ck_ok(zke_rendezvous_point_step(p));
  ck_assert_str_eq(text, "");
  ck_ok(zke_rendezvous_prepare(admin, POINT, 0, soon(admin)));
  dispatch_on(z[0]);
  ck_ok(zke_rendezvous_fill(admin, POINT, "one", 3, soon(admin), NULL));
  dispatch_on(z[0]);
  ck_assert_str_eq(text, "E Fone ");
  ck_ok(zke_delete(admin, POINT, -1));
  ck_ok(zke_rendezvous_prepare(admin, POINT, 0, soon(admin)));
  ck_ok(zke_rendezvous_fill(admin, POINT, "two", 3, soon(admin), NULL));
  dispatch_on(z[0]); /* the changes between are not missed, only seen at once */
  ck_assert_str_eq(text, "E Fone G Ftwo ");
  ck_ok(zke_delete(admin, POINT, -1));
  dispatch_on(z[0]);
  ck_assert_str_eq(text, "E Fone G Ftwo G ");
  ck_ok(zke_expire(admin, zke_session_id(z[0])));
  dispatch_on(z[0]);
  ck_assert_str_eq(text, "E Fone G Ftwo G L ");
  ck_rc(zke_rendezvous_point_step(p), ZKE_INVALIDSTATE);
  zke_rendezvous_point_free(p);
  end();
}

/* A listener that is started while a thread waits with the object hears what is
 * there, though that thread has seen it before; and then what that thread waits
 * for. */
TEST(a_listener_started_beside_a_waiter_hears_what_is_there) {
  char text[64] = "";
  waiter c;
  zke_rendezvous_point *p;
  zke_rendezvous_point_options o = {
      .size = sizeof o, .listener = point_hear, .context = text};
  begin(1, 2);
  ck_ok(zke_rendezvous_prepare(admin, POINT, 0, soon(admin)));
  ck_ok(zke_rendezvous_point_new(z[0], POINT, &o, &p));
  pthread_t thread = wait_begin(&c, p);
  ck_ok(zke_rendezvous_point_start(p));
  ck_assert_str_eq(text, "E ");
  ck_ok(zke_rendezvous_fill(admin, POINT, "yes", 3, soon(admin), NULL));
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_ok(c.rc);
  ck_assert_str_eq(c.data, "yes");
  zke_free(c.data);
  ck_assert_str_eq(text, "E Fyes ");
  zke_rendezvous_point_free(p);
  end();
}

/* Who filled it in stands in one line; what does not is not a filling. */
TEST(point_malformed) {
  static const char *const texts[] = {"filled 1\n5 x\n", "filled 1\n",
                                      "filled x 5 y\n", "filled 1 5 x"};
  zke_rendezvous_point *p;
  begin(1, 2);
  ck_ok(zke_rendezvous_prepare(z[0], POINT, 0, soon(admin)));
  p = make(z[0]);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    char text[64];
    int len =
        snprintf(text, sizeof text, "zkembed rendezvous-point\n%s", texts[i]);
    ck_ok(zke_set(z[0], POINT, text, len, -1, NULL));
    ck_rc(zke_rendezvous_point_wait(p, 0, NULL, NULL, NULL),
          ZKE_OPERATIONTIMEOUT);
  }
  zke_rendezvous_point_free(p);
  end();
}

/* P11: bad arguments and another recipe's node are refused; the output is NULL
 * then. */
TEST(point_refused) {
  zke_rendezvous_point_options o = {.size = 1};
  zke_rendezvous_point *p;
  begin(1, 2);
  ck_ok(zke_recipe_place(admin, POINT, "lock", ZKE_PERSISTENT, NULL,
                         soon(admin)));
  p = make(z[0]);
  ck_rc(zke_rendezvous_prepare(z[0], POINT, 0, soon(admin)), ZKE_OTHERKIND);
  ck_rc(zke_rendezvous_fill(z[0], POINT, "", 0, soon(admin), NULL),
        ZKE_OTHERKIND);
  ck_rc(zke_rendezvous_point_wait(p, soon(admin), NULL, NULL, NULL),
        ZKE_OTHERKIND);
  ck_rc(zke_rendezvous_point_start(p), ZKE_OTHERKIND);
  zke_rendezvous_point_free(p);
  ck_rc(zke_rendezvous_point_new(z[0], POINT, &o, &p), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(p);
  ck_rc(zke_rendezvous_point_new(z[0], "/", NULL, &p), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_point_new(z[0], POINT, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_point_wait(NULL, 0, NULL, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_point_start(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_point_cancel(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_prepare(z[0], "x", 0, soon(admin)), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_prepare(z[0], NULL, 0, soon(admin)), ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_fill(z[0], POINT, NULL, 1, soon(admin), NULL),
        ZKE_BADARGUMENTS);
  ck_rc(zke_rendezvous_fill(z[0], "x", NULL, 0, soon(admin), NULL),
        ZKE_BADARGUMENTS);
  zke_rendezvous_point_free(NULL);
  end();
}

static void count_fillings(zke_rendezvous_point *p, int event, int64_t token,
                           const char *data, int len, void *context) {
  (void)p;
  if (event != ZKE_RENDEZVOUS_POINT_FILLED) return;
  ck_assert_int_gt(token, 0);
  ck_assert_int_eq(len, 1);
  ck_assert(data[0] == 'x');
  ++*(int *)context;
}

/* One allocation fails, or all, anywhere in the dispatch in which a point is
 * seen to be filled: the listener hears of it, once. */
TEST_LOOP(a_filling_is_heard_when_memory_was_short, 0, 2) {
  test_heap heap = {.fail_all = _i};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  int fillings = 0, failed = 0;
  zke_rendezvous_point_options po = {
      .size = sizeof po, .listener = count_fillings, .context = &fillings};
  zke_rendezvous_point *p;
  zke *one, *two;
  ck_ok(zke_open(":memory:", &o, &one));
  ck_ok(zke_open_session(one, &o, &two));
  for (bool more = true; more;) {
    fillings = 0;
    ck_ok(zke_rendezvous_prepare(one, POINT, 0, ZKE_FOREVER));
    ck_ok(zke_rendezvous_point_new(two, POINT, &po, &p));
    ck_ok(zke_rendezvous_point_start(p));
    ck_ok(zke_rendezvous_fill(one, POINT, "x", 1, ZKE_FOREVER, NULL));
    heap.fail_at = heap.calls + ++failed;
    zke_dispatch(two, NULL);
    more = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_until((zke_dispatch(two, NULL), fillings), 5000);
    ck_assert_int_eq(fillings, 1);
    zke_rendezvous_point_free(p);
    ck_ok(zke_delete(one, POINT, -1));
  }
  ck_assert_int_gt(failed, 3);
  ck_ok(zke_close(two));
  ck_ok(zke_close(one));
}

/* ---- processes, deaths, lost replies, faults ---- */

/* Three processes meet twenty times; each checks what all have brought. */
static int meet_often(const char *db, int id) {
  zke *mine;
  zke_rendezvous *meeting;
  int rc = zke_open(db, NULL, &mine);
  if (rc == ZKE_OK) rc = zke_rendezvous_new(mine, PATH, 3, NULL, &meeting);
  for (int n = 0; n < 20 && rc == ZKE_OK; n++) {
    int brought[2] = {n, id}, seen = 0;
    zke_party_list *list;
    rc = zke_rendezvous_meet(meeting, brought, sizeof brought,
                             zke_now(mine) + test_patience(10000), &list, NULL);
    if (rc != ZKE_OK) break;
    for (int i = 0; i < list->count; i++) {
      int got[2];
      memcpy(got, list->data[i].data, sizeof got);
      if (list->data[i].len != sizeof got || got[0] != n) rc = 1;
      seen |= 1 << got[1];
    }
    if (seen != 7) rc = 2;
    zke_free(list);
  }
  if (rc != ZKE_OK) fprintf(stderr, "rc %d: %s\n", rc, zke_errmsg());
  zke_rendezvous_free(meeting);
  zke_close(mine);
  return rc;
}

/* Three processes meet again and again, each with the others' data of that
 * round. */
TEST(processes_meet) {
  const char *db = test_path("db");
  pid_t pids[3];
  for (int i = 0; i < 3; i++) {
    pids[i] = fork();
    if (pids[i] == 0) _exit(meet_often(db, i) == ZKE_OK ? 0 : 1);
  }
  for (int i = 0; i < 3; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, 0);
  }
}

/* How long a use waits, ms: hardly, where it is to fail. */

/* Two parties meet on one session: y waits, x has started. */
static int use_both(zke *mine, zke_rendezvous *x, zke_rendezvous *y) {
  int64_t deadline = zke_now(mine) + recipe_patience_ms;
  zke_party_list *list = NULL;
  int rc = zke_rendezvous_start(x, "x", 1);
  if (rc == ZKE_OK) rc = zke_rendezvous_meet(y, "y", 1, deadline, &list, NULL);
  if (rc == ZKE_OK && (list->count != 2 || list->data[1].data[0] != 'y'))
    rc = ZKE_SYSTEMERROR;
  zke_free(list);
  while (rc == ZKE_OK && zke_rendezvous_list(x, NULL, NULL) == ZKE_NONODE)
    rc = zke_wait(mine, deadline);
  return rc;
}

/* The typical use: two parties of one session that meet. */
static int use(zke *mine) {
  zke_rendezvous *x = NULL, *y = NULL;
  int rc = zke_rendezvous_new(mine, PATH, 2, NULL, &x);
  if (rc == ZKE_OK) rc = zke_rendezvous_new(mine, PATH, 2, NULL, &y);
  if (rc == ZKE_OK) rc = use_both(mine, x, y);
  zke_rendezvous_free(x);
  zke_rendezvous_free(y);
  return rc;
}

/* Others can meet afterwards; nobody is left there, nor the mark of the end. */
static void check(zke *other, int rc) {
  zke_party_list *list;
  (void)rc;
  ck_ok(use(other));
  ck_ok(zke_rendezvous_parties(other, PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_rc(zke_exists(other, PATH "/ready", NULL, NULL, NULL), ZKE_NONODE);
}

/* The typical use of a point: prepare, fill, wait. */
static int use_point(zke *mine) {
  zke_rendezvous_point *p = NULL;
  int rc = zke_rendezvous_point_new(mine, POINT, NULL, &p);
  if (rc == ZKE_OK) rc = zke_rendezvous_point_start(p);
  if (rc == ZKE_OK) rc = zke_rendezvous_prepare(mine, POINT, 0, ZKE_FOREVER);
  if (rc == ZKE_OK)
    rc = zke_rendezvous_fill(mine, POINT, "x", 1, ZKE_FOREVER, NULL);
  if (rc == ZKE_OK)
    rc = zke_rendezvous_point_wait(p, zke_now(mine) + 1000, NULL, NULL, NULL);
  zke_rendezvous_point_free(p);
  return rc;
}

/* It can be prepared, filled, and read by others. */
static void check_point(zke *other, int rc) {
  zke_rendezvous_point *p = make(other);
  int64_t deadline = zke_now(other) + 5000;
  int again = zke_rendezvous_prepare(other, POINT, 0, deadline);
  ck_assert(again == ZKE_OK || again == ZKE_HELD);
  if (rc == ZKE_OK) ck_assert_int_eq(again, ZKE_HELD);
  if (again == ZKE_OK)
    ck_ok(zke_rendezvous_fill(other, POINT, "x", 1, deadline, NULL));
  ck_ok(zke_rendezvous_point_wait(p, deadline, NULL, NULL, NULL));
  zke_rendezvous_point_free(p);
}

static const recipe_use uses[] = {{"rendezvous", NULL, use, check},
                                  {"point", NULL, use_point, check_point}};

RECIPE_TESTS(uses, 10, 0);
