/* test_double_barrier.c - recipes/double_barrier: N begin and end together
 *
 * All enter together and leave together, or learn that somebody died.  Most
 * tests drive several sessions of one store step by step: what a session does
 * not dispatch has not reached it. */
#include "recipes/double_barrier.h"
#include "recipes/part/text.h"
#include "recipes/part/znode.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"

#define PATH "/barriers/b"

enum {
  OUT = ZKE_DOUBLE_BARRIER_OUT,
  WAITING = ZKE_DOUBLE_BARRIER_WAITING,
  INSIDE = ZKE_DOUBLE_BARRIER_INSIDE,
  LEAVING = ZKE_DOUBLE_BARRIER_LEAVING,
  LOST = ZKE_DOUBLE_BARRIER_LOST,
  MOST = 6
};

/* The sessions and a party on each; and one that looks on. */
static zke *admin, *z[MOST];
static zke_double_barrier *b[MOST];
static int parties;

/* What each party's listener heard, as letters. */
static char heard[MOST][32];

/* The listener: writes E entered, L left, B broken, G gone. */
static void hear(zke_double_barrier *who, int event, int64_t round,
                 void *context) {
  char *text = context;
  (void)who, (void)round;
  ck_assert_int_lt((int)strlen(text), 30);
  text[strlen(text)] = "?ELBG"[event];
}

/* The i-th session, named by a letter, and its party of a barrier for n. */
static void open_party(int i, int n) {
  char name[2] = {(char)('a' + i), 0};
  zke_options o = {.size = sizeof o, .identity = name};
  zke_double_barrier_options d = {
      .size = sizeof d, .listener = hear, .context = heard[i]};
  ck_ok(zke_open_session(admin, &o, &z[i]));
  ck_ok(zke_double_barrier_new(z[i], PATH, n, &d, &b[i]));
}

/* `count` parties of a barrier of n. */
static void begin(int count, int n) {
  admin = test_open(":memory:");
  parties = count;
  for (int i = 0; i < count; i++) open_party(i, n);
}

static void close_all(void) {
  for (int i = 0; i < parties; i++) {
    zke_double_barrier_free(b[i]);
    ck_ok(zke_close(z[i]));
  }
}

/* Nothing is left: no party's znode, no `ready`, no watch. */
static void end(void) {
  zke_strings *names = NULL;
  close_all();
  if (zke_children(admin, PATH, NULL, NULL, &names, NULL) == ZKE_OK)
    ck_assert_int_eq(names->count, 0);
  zke_free(names);
  close_last(admin);
}

static int state(int i) { return zke_double_barrier_state(b[i]); }

static void start(int i) { ck_ok(zke_double_barrier_start(b[i], heard[i], 0)); }

static void leave(int i) { ck_ok(zke_double_barrier_leave_start(b[i])); }

static void dispatch_all(void) {
  for (int i = 0; i < parties; i++) dispatch_on(z[i]);
}

/* The first n parties come, in order, and hear that they are inside. */
static void gather(int n) {
  for (int i = 0; i < n; i++) start(i);
  dispatch_all();
  for (int i = 0; i < n; i++) ck_assert_int_eq(state(i), INSIDE);
}

static void die(int i) { ck_ok(zke_expire(admin, zke_session_id(z[i]))); }

static int missing(int i) {
  int count = -1;
  ck_ok(zke_double_barrier_missing(b[i], NULL, &count));
  return count;
}

static bool ready(void) {
  return zke_exists(admin, PATH "/ready", NULL, NULL, NULL) == ZKE_OK;
}

/* ---- in and out ---- */

/* Nobody is inside before the last has come; then all are, in one round. */
TEST(enter_together) {
  zke_stat stat;
  begin(3, 3);
  start(0);
  ck_assert_int_eq(missing(0), 2);
  start(1);
  dispatch_all();
  ck_assert_int_eq(state(0), WAITING);
  ck_assert_int_eq(state(1), WAITING);
  ck_assert_int_eq(missing(1), 1);
  ck_assert(!ready());
  start(2);
  ck_assert_int_eq(state(2), INSIDE);
  dispatch_all();
  ck_assert_int_eq(state(0), INSIDE);
  ck_assert_int_eq(state(1), INSIDE);
  ck_ok(zke_exists(z[0], PATH "/ready", NULL, NULL, &stat));
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(zke_double_barrier_token(b[i]), stat.czxid);
    ck_assert_str_eq(heard[i], "E");
  }
  for (int i = 0; i < 3; i++) leave(i);
  dispatch_all();
  end();
}

/* Nobody is out before the last has left; then all are. */
TEST(leave_together) {
  begin(3, 3);
  gather(3);
  leave(1);
  leave(0);
  dispatch_all();
  ck_assert_int_eq(state(0), LEAVING);
  ck_assert_int_eq(state(1), LEAVING);
  ck_assert_int_eq(state(2), INSIDE);
  ck_assert_int_eq(missing(0), 1);
  leave(2);
  ck_assert_int_eq(state(2), OUT);
  ck_assert(!ready());
  dispatch_all();
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(state(i), OUT);
    ck_assert_str_eq(heard[i], "EL");
  }
  end();
}

/* Again and again, in any order; the rounds' numbers increase. */
TEST(rounds_follow_each_other) {
  int64_t last = 0;
  begin(3, 3);
  for (int n = 0; n < 6; n++) {
    for (int i = 0; i < 3; i++) start((i + n) % 3);
    dispatch_all();
    for (int i = 0; i < 3; i++) {
      ck_assert_int_eq(state(i), INSIDE);
      ck_assert_int_eq(zke_double_barrier_token(b[i]),
                       zke_double_barrier_token(b[0]));
    }
    ck_assert_int_gt(zke_double_barrier_token(b[0]), last);
    last = zke_double_barrier_token(b[0]);
    for (int i = 0; i < 3; i++) leave((2 * i + n) % 3);
    dispatch_all();
    for (int i = 0; i < 3; i++) ck_assert_int_eq(state(i), OUT);
  }
  end();
}

/* A barrier of one. */
TEST(a_barrier_of_one_waits_for_nobody) {
  int64_t round = 0, before;
  begin(1, 1);
  for (int i = 0; i < 3; i++) {
    before = round;
    ck_ok(zke_double_barrier_enter(b[0], NULL, 0, 0, &round));
    ck_assert_int_gt(round, before);
    ck_ok(zke_double_barrier_leave(b[0], ZKE_FOREVER));
  }
  end();
}

/* One who has left may come again before the others heard that all have. */
TEST(a_party_may_return_early) {
  begin(2, 2);
  gather(2);
  leave(0);
  leave(1);
  start(1); /* 0 is in leave still, as far as it knows */
  ck_assert_int_eq(state(1), WAITING);
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), OUT);
  ck_assert_int_eq(state(1), WAITING);
  start(0);
  dispatch_all();
  ck_assert_int_eq(state(1), INSIDE);
  leave(0);
  leave(1);
  dispatch_all();
  end();
}

/* The members' data and identities, in the order in which they came; any
 * bytes. */
TEST(members_and_parties) {
  zke_party_list *list;
  begin(3, 2);
  ck_ok(zke_double_barrier_list(b[0], &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_ok(zke_double_barrier_start(b[1], "\n\0x\n", 4));
  ck_ok(zke_double_barrier_start(b[0], "", 0));
  start(2);
  dispatch_all();
  ck_ok(zke_double_barrier_list(b[0], &list));
  ck_assert_int_eq(list->count, 2);
  ck_assert_str_eq(list->data[0].identity, "b");
  ck_assert_int_eq(list->data[0].len, 4);
  ck_assert_int_eq(memcmp(list->data[0].data, "\n\0x\n", 4), 0);
  ck_assert_int_eq(list->data[0].session, zke_session_id(z[1]));
  ck_assert_int_eq(list->data[0].pid, getpid());
  ck_assert_str_eq(list->data[1].identity, "a");
  ck_assert_int_eq(list->data[1].len, 0);
  ck_assert_int_eq(list->data[1].mzxid, zke_double_barrier_token(b[0]));
  ck_assert_int_gt(list->data[1].czxid, list->data[0].czxid);
  zke_free(list);
  leave(0);
  ck_ok(zke_double_barrier_parties(z[2], PATH, &list));
  ck_assert_int_eq(list->count, 3);
  ck_assert_str_eq(list->data[0].kind, "inside");
  ck_assert_int_eq(list->data[0].held, 1);
  ck_assert_str_eq(list->data[1].kind, "leaving");
  ck_assert_int_eq(list->data[1].held, 0);
  ck_assert_str_eq(list->data[2].kind, "waiting");
  ck_assert_str_eq(list->data[2].identity, "c");
  ck_assert_int_gt(list->data[2].queued_ms, 0);
  zke_free(list);
  ck_ok(zke_double_barrier_missing(b[0], &list, NULL));
  ck_assert_int_eq(list->count, 1);
  ck_assert_str_eq(list->data[0].identity, "b");
  zke_free(list);
  leave(1);
  dispatch_all();
  ck_ok(zke_double_barrier_stop(b[2]));
  ck_ok(zke_double_barrier_parties(z[2], PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  end();
}

/* ---- who is woken ---- */

/* Coming wakes nobody but, with the last, all; leaving wakes nobody but, with
 * the last, those in leave. */
TEST(no_herd) {
  begin(6, 6);
  for (int i = 0; i < 5; i++) {
    start(i);
    for (int j = 0; j < i; j++) ck_assert_int_eq(dispatch_on(z[j]), 0);
  }
  start(5);
  for (int i = 0; i < 5; i++) ck_assert_int_eq(dispatch_on(z[i]), 1);
  dispatch_all();
  static const int order[] = {2, 0, 5, 1, 4};
  for (int i = 0; i < 5; i++) {
    leave(order[i]);
    for (int j = 0; j < 6; j++) ck_assert_int_eq(dispatch_on(z[j]), 0);
  }
  leave(3);
  for (int i = 0; i < 5; i++) ck_assert_int_ge(dispatch_on(z[order[i]]), 1);
  for (int i = 0; i < 6; i++) ck_assert_int_eq(state(i), OUT);
  end();
}

/* ---- late ones and surplus ---- */

/* Whoever comes while a round runs waits for the next, also when there are
 * enough; it begins when the former has ended. */
TEST(late_parties_wait) {
  begin(4, 2);
  gather(2);
  start(2);
  start(3);
  dispatch_all();
  ck_assert_int_eq(state(2), WAITING);
  ck_assert_int_eq(state(3), WAITING);
  ck_assert_int_eq(missing(3), 0);
  ck_rc(zke_double_barrier_enter(b[3], NULL, 0, 0, NULL), ZKE_OPERATIONTIMEOUT);
  ck_says("where a round still runs");
  start(3);
  leave(0);
  dispatch_all();
  ck_assert_int_eq(state(2), WAITING);
  leave(1);
  dispatch_all(); /* 3 notices, and begins the round; 2 hears of that */
  dispatch_all();
  ck_assert_int_eq(state(2), INSIDE);
  ck_assert_int_eq(state(3), INSIDE);
  ck_assert_int_gt(zke_double_barrier_token(b[3]),
                   zke_double_barrier_token(b[0]));
  leave(2);
  leave(3);
  dispatch_all();
  end();
}

/* Of five at a barrier of two, two at a time, in the order of coming. */
TEST(surplus_in_order) {
  begin(5, 2);
  for (int i = 0; i < 5; i++) start(i);
  dispatch_all();
  for (int first = 0; first < 4; first += 2) {
    for (int i = 0; i < 5; i++) {
      int expected = i < first + 2 ? INSIDE : WAITING;
      if (i < first) expected = OUT;
      ck_assert_int_eq(state(i), expected);
    }
    leave(first);
    leave(first + 1);
    for (int n = 0; n < 3; n++) dispatch_all();
  }
  ck_assert_int_eq(state(4), WAITING);
  ck_assert_int_eq(missing(4), 1);
  end();
}

/* A waiting one that goes is not counted, nor does it stop the rest. */
TEST(surplus_withdraws) {
  begin(5, 2);
  gather(2);
  start(2);
  start(3); /* it was the first that saw enough */
  start(4);
  ck_ok(zke_double_barrier_stop(b[3]));
  leave(0);
  leave(1);
  dispatch_all();
  dispatch_all();
  ck_assert_int_eq(state(2), INSIDE);
  ck_assert_int_eq(state(4), INSIDE);
  leave(2);
  leave(4);
  dispatch_all();
  end();
}

/* ---- deaths ---- */

/* Before the round: just not there. */
TEST(death_before_round) {
  begin(4, 3);
  start(0);
  start(1);
  die(1);
  ck_assert_int_eq(missing(0), 2);
  start(2);
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), WAITING);
  start(3);
  dispatch_on(z[0]);
  dispatch_on(z[2]);
  ck_assert_int_eq(state(0), INSIDE);
  ck_assert_int_eq(state(2), INSIDE);
  leave(0);
  leave(2);
  leave(3);
  dispatch_all();
  ck_assert_int_eq(state(0), OUT);
  ck_rc(zke_double_barrier_check(b[0]), ZKE_LOST);
  end();
}

/* Inside: all who are in leave or come there get ZKE_BROKEN, and who it was;
 * the last clears away what is left, the barrier can be used again. */
TEST(death_inside) {
  begin(4, 3);
  gather(3);
  leave(0);
  die(1);
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), OUT);
  ck_rc(zke_double_barrier_check(b[0]), ZKE_BROKEN);
  ck_assert_str_eq(heard[0], "EB");
  dispatch_on(z[2]);
  ck_assert_str_eq(heard[2], "EB"); /* the other was told, inside */
  ck_assert_int_eq(state(2), INSIDE);
  ck_rc(zke_double_barrier_leave(b[2], ZKE_FOREVER), ZKE_BROKEN);
  ck_assert_int_eq(state(2), OUT);
  ck_assert(!ready());
  start(0);
  start(2);
  start(3);
  dispatch_on(z[0]);
  dispatch_on(z[2]);
  ck_assert_int_eq(state(0), INSIDE);
  ck_rc(zke_double_barrier_check(b[0]), ZKE_OK);
  leave(0);
  leave(2);
  leave(3);
  dispatch_on(z[0]);
  dispatch_on(z[2]);
  ck_assert_int_eq(state(2), OUT);
  end();
}

/* The sentence names the dead. */
TEST(broken_names_the_dead) {
  zke_party_list *list;
  begin(3, 3);
  gather(3);
  die(1);
  ck_ok(zke_double_barrier_missing(b[0], &list, NULL));
  ck_assert_int_eq(list->count, 3);
  ck_assert_str_eq(list->data[1].kind, "dead");
  ck_assert_str_eq(list->data[1].identity, "b");
  zke_free(list);
  ck_rc(zke_double_barrier_leave(b[0], ZKE_FOREVER), ZKE_BROKEN);
  ck_says("b (pid ");
  ck_says(" died inside");
  ck_rc(zke_double_barrier_leave(b[2], ZKE_FOREVER), ZKE_BROKEN);
  ck_says("b (pid ");
  end();
}

/* In leave: it had left, nobody is disturbed. */
TEST(death_in_leave) {
  begin(3, 3);
  gather(3);
  leave(0);
  leave(1);
  die(0);
  dispatch_on(z[1]);
  ck_assert_int_eq(state(1), LEAVING);
  leave(2);
  ck_assert_int_eq(state(2), OUT);
  dispatch_on(z[1]);
  ck_assert_int_eq(state(1), OUT);
  ck_assert_str_eq(heard[1], "EL");
  ck_assert_str_eq(heard[2], "EL");
  end();
}

/* The one in leave that watched over a member dies first, then the member: the
 * next in the ring has taken over. */
TEST(death_of_the_guard) {
  begin(4, 4);
  gather(4);
  leave(2); /* watches 3, 0, 1 */
  leave(0); /* watches 1, 2 */
  die(0);
  dispatch_on(z[2]); /* has to watch 1 from now on */
  ck_assert_int_eq(state(2), LEAVING);
  die(1);
  dispatch_on(z[2]);
  ck_assert_int_eq(state(2), OUT);
  ck_assert_str_eq(heard[2], "EB");
  ck_rc(zke_double_barrier_leave(b[3], ZKE_FOREVER), ZKE_BROKEN);
  end();
}

/* Whoever notices tells the others before it knows itself: also those in leave
 * that do not watch the dead one. */
TEST(all_are_told) {
  begin(5, 5);
  gather(5);
  leave(0); /* watches 1 to 4 */
  leave(2); /* watches 3, 4, 0 */
  leave(3); /* watches 4, 0 */
  die(4);
  dispatch_on(z[3]);
  dispatch_on(z[0]);
  dispatch_on(z[2]);
  ck_assert_int_eq(state(0), OUT);
  ck_assert_int_eq(state(2), OUT);
  ck_assert_int_eq(state(3), OUT);
  for (int i = 0; i < 4; i++)
    if (i != 1) ck_assert_str_eq(heard[i], "EB");
  dispatch_on(z[1]);
  ck_assert_str_eq(heard[1], "EB");
  leave(1);
  ck_assert_int_eq(state(1), OUT);
  ck_assert(!ready());
  end();
}

/* To be freed inside is to die there. */
TEST(freed_inside) {
  begin(2, 2);
  gather(2);
  zke_double_barrier_free(b[1]);
  b[1] = NULL;
  ck_rc(zke_double_barrier_leave(b[0], ZKE_FOREVER), ZKE_BROKEN);
  ck_assert(!ready());
  end();
}

/* A `ready` whose members all died lets nobody pass, and is cleared away. */
TEST(stale_ready) {
  begin(4, 2);
  gather(2);
  int64_t round = zke_double_barrier_token(b[0]);
  die(1);
  die(0);
  ck_assert(ready());
  start(2);
  dispatch_on(z[2]);
  ck_assert_int_eq(state(2), WAITING);
  ck_assert_int_eq(missing(2), 1);
  start(3);
  dispatch_on(z[2]);
  ck_assert_int_eq(state(2), INSIDE);
  ck_assert_int_eq(state(3), INSIDE);
  ck_assert_int_gt(zke_double_barrier_token(b[2]), round);
  leave(2);
  leave(3);
  dispatch_on(z[2]);
  ck_assert_int_eq(state(2), OUT);
  ck_assert(!ready());
  end();
}

/* The members of a round die one by one while others wait for its end. */
TEST(stale_while_waiting) {
  begin(5, 3);
  gather(3);
  leave(1);
  b[0] = (zke_double_barrier_free(b[0]), NULL);
  for (int i = 0; i < 2; i++) {
    b[i] = (zke_double_barrier_free(b[i]), NULL);
    ck_ok(zke_double_barrier_new(z[i], PATH, 3, NULL, &b[i]));
  }
  start(3);
  start(4);
  start(0);
  dispatch_all();
  ck_assert_int_eq(state(3), WAITING);
  die(2);
  dispatch_on(z[3]);
  dispatch_on(z[4]);
  dispatch_on(z[0]);
  dispatch_on(z[3]);
  dispatch_on(z[4]);
  ck_assert_int_eq(state(0), INSIDE);
  ck_assert_int_eq(state(3), INSIDE);
  ck_assert_int_eq(state(4), INSIDE);
  leave(0);
  leave(3);
  leave(4);
  dispatch_all();
  end();
}

/* ---- deadlines, cancel, withdrawal ---- */

/* A timed enter withdraws: it is not counted, says who is there and how many
 * are missing. */
TEST(timed_enter) {
  begin(3, 3);
  start(1);
  int64_t now = zke_now(z[0]);
  ck_rc(zke_double_barrier_enter(b[0], NULL, 0, now + 30, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(zke_now(z[0]), now + 30);
  ck_says("2 of 3 parties are at " PATH);
  ck_says("b (pid ");
  ck_assert_int_eq(state(0), OUT);
  ck_assert_int_eq(missing(1), 2);
  start(2);
  dispatch_all();
  ck_assert_int_eq(state(1), WAITING);
  ck_ok(zke_double_barrier_stop(b[1]));
  ck_ok(zke_double_barrier_stop(b[2]));
  ck_rc(zke_double_barrier_stop(b[2]), ZKE_LOST);
  end();
}

/* A withdrawal that comes after the round has begun is none. */
TEST(withdrawal_loses) {
  int64_t round = 0;
  begin(2, 2);
  start(0);
  start(1); /* 0 has not heard of it yet */
  ck_assert_int_eq(state(0), WAITING);
  ck_rc(zke_double_barrier_stop(b[0]), ZKE_HELD);
  ck_assert_int_eq(state(0), INSIDE);
  leave(0);
  leave(1);
  dispatch_all();
  ck_ok(zke_double_barrier_leave(b[0], 0)); /* how what was started ended */
  ck_rc(zke_double_barrier_leave(b[0], 0), ZKE_LOST);
  start(0);
  start(1);
  ck_ok(zke_double_barrier_enter(b[0], NULL, 0, 0, &round)); /* the deadline */
  ck_ok(zke_double_barrier_enter(b[1], NULL, 0, 0, NULL));   /* begun */
  ck_rc(zke_double_barrier_enter(b[0], NULL, 0, 0, NULL), ZKE_MISUSE);
  ck_assert_int_eq(round, zke_double_barrier_token(b[1]));
  leave(0);
  leave(1);
  dispatch_all();
  end();
}

/* What an enter of at most a millisecond gave, and how long it took. */
typedef struct hasty {
  int party, rc;
  int64_t took_ms;
} hasty;

static void *hasty_enter(void *arg) {
  hasty *h = arg;
  int64_t began = test_now();
  h->rc = zke_double_barrier_enter(b[h->party], NULL, 0,
                                   zke_now(z[h->party]) + 1, NULL);
  h->took_ms = test_now() - began;
  return NULL;
}

/* Only one has passed.  The other has used up its grace on a machine that did
 * not let it run, and could no longer be told that the round had begun: then it
 * counts as one that died inside.  Its session may still have to remove its
 * znode, and can change nothing before. */
static void withdrawn_too_late(const hasty *in, const hasty *out) {
  ck_assert_int_eq(in->rc, ZKE_OK);
  ck_assert_int_ge(out->took_ms, ZKE_GRACE_MS);
  ck_until(zke_set(z[out->party], "/", NULL, 0, -1, NULL) == ZKE_OK, 10000);
  ck_rc(zke_double_barrier_leave(b[in->party], ZKE_FOREVER), ZKE_BROKEN);
}

/* Two processes enter and give up after a millisecond, 200 times: either both
 * pass, in one round, or neither. */
TEST(withdrawal_races) {
  int both = 0;
  parties = 2;
  heard[0][0] = heard[1][0] = 0;
  admin = test_open(test_path("db"));
  for (int i = 0; i < 2; i++) {
    z[i] = test_open(test_path("db"));
    ck_ok(zke_double_barrier_new(z[i], PATH, 2, NULL, &b[i]));
  }
  for (int n = 0; n < 200 || (both == 0 && n < 20000); n++) {
    pthread_t thread;
    hasty h[2] = {{.party = 0}, {.party = 1}};
    ck_assert_int_eq(pthread_create(&thread, NULL, hasty_enter, &h[0]), 0);
    if (n % 3 == 0) test_pause();
    hasty_enter(&h[1]);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 2; i++)
      ck_assert(h[i].rc == ZKE_OK || h[i].rc == ZKE_OPERATIONTIMEOUT);
    if (h[0].rc != h[1].rc) {
      withdrawn_too_late(&h[h[0].rc != ZKE_OK], &h[h[0].rc == ZKE_OK]);
      continue;
    }
    if (h[0].rc != ZKE_OK) continue;
    both++;
    ck_assert_int_eq(zke_double_barrier_token(b[0]),
                     zke_double_barrier_token(b[1]));
    leave(0);
    ck_ok(zke_double_barrier_leave(b[1], ZKE_FOREVER));
    while (state(0) == LEAVING) ck_ok(zke_wait(z[0], zke_now(z[0]) + 5000));
  }
  ck_assert_int_gt(both, 0);
  end();
}

/* A timed leave: out, and to the others like any who left. */
TEST(timed_leave) {
  begin(3, 3);
  gather(3);
  ck_rc(zke_double_barrier_leave(b[0], zke_now(z[0]) + 20),
        ZKE_OPERATIONTIMEOUT);
  ck_says("2 of the 3 parties inside");
  ck_says("b (pid ");
  ck_says("c (pid ");
  ck_rc(zke_double_barrier_leave(b[0], 0), ZKE_LOST);
  ck_rc(zke_double_barrier_leave(b[1], 0), ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_double_barrier_leave(b[2], 0));
  ck_assert(!ready());
  end();
}

static int run_enter(call *c) {
  return zke_double_barrier_enter(c->object, NULL, 0, c->deadline, NULL);
}

static int run_leave(call *c) {
  return zke_double_barrier_leave(c->object, c->deadline);
}

/* Cancel, from another thread, enter and leave; one call at a time. */
TEST(enter_and_leave_can_be_cancelled) {
  call c;
  begin(2, 2);
  call_begin(&c, run_enter, b[0], 0, ZKE_FOREVER);
  ck_until(state(0) == WAITING, 5000);
  ck_rc(zke_double_barrier_enter(b[0], NULL, 0, 0, NULL), ZKE_MISUSE);
  ck_rc(zke_double_barrier_stop(b[0]), ZKE_MISUSE);
  ck_until(zke_double_barrier_cancel(b[0]) == ZKE_OK, 10000);
  call_end(&c);
  ck_assert_int_eq(c.rc, ZKE_CANCELLED);
  ck_assert_int_eq(state(0), OUT);
  gather(2);
  call_begin(&c, run_leave, b[0], 0, ZKE_FOREVER);
  ck_until(state(0) == LEAVING, 5000);
  ck_until(zke_double_barrier_cancel(b[0]) == ZKE_OK, 10000);
  call_end(&c);
  ck_assert_int_eq(c.rc, ZKE_CANCELLED);
  ck_ok(zke_double_barrier_leave(b[1], ZKE_FOREVER)); /* 0 has left */
  end();
}

/* A blocking enter and leave go on when the last comes. */
TEST(blocked_calls_go_on_when_the_last_comes) {
  call c;
  begin(2, 2);
  call_begin(&c, run_enter, b[0], 0, ZKE_FOREVER);
  ck_until(state(0) == WAITING, 5000);
  start(1);
  call_end(&c);
  ck_ok(c.rc);
  call_begin(&c, run_leave, b[0], 0, ZKE_FOREVER);
  ck_until(state(0) == LEAVING, 5000);
  leave(1);
  call_end(&c);
  ck_ok(c.rc);
  end();
}

/* ---- the session, one's znode ---- */

/* After the session's end nothing claims to be anywhere. */
TEST(session_lost) {
  begin(4, 2);
  start(0);
  die(0);
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), LOST);
  ck_assert_str_eq(heard[0], "G");
  ck_rc(zke_double_barrier_enter(b[0], NULL, 0, 0, NULL), ZKE_INVALIDSTATE);
  start(1);
  start(2);
  dispatch_on(z[1]);
  ck_assert_int_eq(state(1), INSIDE);
  die(1);
  ck_assert_int_eq(state(1), LOST); /* without having dispatched */
  ck_rc(zke_double_barrier_leave(b[1], 0), ZKE_INVALIDSTATE);
  ck_rc(zke_double_barrier_leave(b[2], ZKE_FOREVER), ZKE_BROKEN);
  end();
}

/* A blocking call ends with its session. */
TEST(session_lost_blocking) {
  call c;
  begin(2, 2);
  call_begin(&c, run_enter, b[0], 0, ZKE_FOREVER);
  ck_until(state(0) == WAITING, 5000);
  die(0);
  call_end(&c);
  ck_assert_int_eq(c.rc, ZKE_INVALIDSTATE);
  end();
}

/* Delete the znode of the first party that is there. */
static void delete_first(void) {
  zke_party_list *list;
  ck_ok(zke_double_barrier_parties(z[0], PATH, &list));
  char *path = zke_recipe_path(z[0], PATH, list->data[0].name);
  ck_ok(zke_delete(z[0], path, -1));
  zke_free(path);
  zke_free(list);
}

/* One's znode deleted by somebody: waiting, inside, in leave. */
TEST(znode_taken_away) {
  begin(3, 2);
  start(0);
  delete_first();
  ck_rc(zke_double_barrier_enter(b[0], NULL, 0, ZKE_FOREVER, NULL), ZKE_LOST);
  ck_assert_str_eq(heard[0], "G");
  ck_assert_int_eq(state(0), OUT);
  gather(2);
  delete_first();
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), LOST);
  ck_rc(zke_double_barrier_leave(b[0], 0), ZKE_LOST);
  ck_rc(zke_double_barrier_leave(b[1], ZKE_FOREVER), ZKE_BROKEN);
  gather(2);
  leave(0);
  delete_first();
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), LOST);
  start(0); /* it can begin anew */
  ck_ok(zke_double_barrier_stop(b[0]));
  ck_ok(zke_double_barrier_leave(b[1], ZKE_FOREVER));
  end();
}

/* A party in leave is not inside any more: it cannot enter before it is out. */
TEST(no_entering_while_in_leave) {
  begin(2, 2);
  gather(2);
  leave(0);
  ck_assert_int_eq(state(0), LEAVING);
  ck_rc(zke_double_barrier_enter(b[0], NULL, 0, 0, NULL), ZKE_MISUSE);
  ck_assert_int_eq(state(0), LEAVING);
  leave(1);
  dispatch_all();
  ck_ok(zke_double_barrier_leave(b[0], 0));
  ck_assert_str_eq(heard[0], "EL");
  end();
}

/* A party that was told that its round is broken is not told by its leave that
 * all have left: here somebody deletes `ready`. */
TEST(broken_stays_broken) {
  zke_strings *names;
  begin(2, 2);
  gather(2);
  ck_ok(zke_children(admin, PATH "/ready", NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    char *path = zke_recipe_path(admin, PATH "/ready", names->data[i]);
    ck_ok(zke_delete(admin, path, -1));
    zke_free(path);
  }
  zke_free(names);
  ck_ok(zke_delete(admin, PATH "/ready", -1));
  dispatch_all();
  ck_assert_str_eq(heard[0], "EB");
  ck_rc(zke_double_barrier_leave(b[0], ZKE_FOREVER), ZKE_BROKEN);
  leave(1);
  dispatch_all();
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(state(i), OUT);
    ck_assert_str_eq(heard[i], "EB");
  }
  end();
}

/* ---- what is not ours, what is wrong ---- */

/* Foreign and malformed children are ignored. */
TEST(foreign_children) {
  static const char guid[] = "_c_00000000-0000-0000-0000-000000000000-party-";
  static const char *const names[] = {"x", "party-0000000001", "_c_",
                                      "_c_1-party-0000000001",
                                      "lock-000000001"};
  static const char *const texts[] = {"", "waiting", "waiting 1 x",
                                      "waiting x y\n", "inside\n"};
  char path[128];
  begin(2, 2);
  start(0);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, PATH "/%s", names[i]);
    ck_ok(zke_create(z[0], path, "waiting 1 x\n", 12, ZKE_OPEN_ACL,
                     ZKE_EPHEMERAL, NULL, NULL));
  }
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    snprintf(path, sizeof path, PATH "/%s%010d", guid, (int)i);
    ck_ok(zke_create(z[0], path, texts[i], (int)strlen(texts[i]), ZKE_OPEN_ACL,
                     ZKE_EPHEMERAL, NULL, NULL));
  }
  snprintf(path, sizeof path, PATH "/%s%010d", guid, 99); /* nobody's */
  ck_ok(zke_create(z[0], path, "waiting 1 x\n", 12, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_assert_int_eq(missing(0), 1);
  start(1);
  dispatch_all();
  ck_assert_int_eq(state(0), INSIDE);
  ck_assert_int_eq(state(1), INSIDE);
  leave(0);
  leave(1);
  dispatch_all();
  ck_assert_int_eq(state(0), OUT);
  ck_ok(zke_delete(z[0], path, -1));
  ck_ok(zke_check(admin, NULL, NULL));
  close_all();
  ck_ok(zke_close(admin));
}

/* … inside of `ready` too: the last member's leaving is the end, or the next
 * round's beginning is. */
TEST(foreign_children_of_ready) {
  begin(2, 2);
  start(0);
  start(1);
  dispatch_all();
  ck_assert_int_eq(state(0), INSIDE);
  ck_ok(zke_create(z[0], PATH "/ready/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_ok(zke_create(z[0], PATH "/ready/z", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_ok(zke_create(z[0], PATH "/ready/z/z", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  leave(0);
  ck_rc(zke_double_barrier_leave_start(b[1]), ZKE_NOTEMPTY); /* too much */
  ck_assert_int_eq(state(1), OUT);
  ck_ok(zke_delete(z[0], PATH "/ready/z/z", -1));
  dispatch_all();
  ck_rc(zke_double_barrier_leave(b[0], 0), ZKE_BROKEN);
  start(0);
  start(1);
  dispatch_all();
  ck_assert_int_eq(state(0), INSIDE);
  ck_ok(zke_create(z[0], PATH "/ready/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  leave(0);
  leave(1);
  dispatch_all();
  ck_assert_int_eq(state(0), OUT);
  ck_assert_int_eq(state(1), OUT);
  ck_rc(zke_exists(z[0], PATH "/ready", NULL, NULL, NULL), ZKE_NONODE);
  end();
}

/* A `ready` that is not a round of ours is neither followed nor deleted. */
TEST(foreign_ready) {
  static const char *const texts[] = {"", "runnin", "x"};
  begin(1, 1);
  ck_ok(zke_double_barrier_enter(b[0], NULL, 0, 0, NULL));
  ck_ok(zke_double_barrier_leave(b[0], 0));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ck_ok(zke_create(z[0], PATH "/ready", texts[i], (int)strlen(texts[i]),
                     ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
    ck_rc(zke_double_barrier_enter(b[0], NULL, 0, 0, NULL), ZKE_OTHERKIND);
    ck_says("is not a round");
    ck_assert_int_eq(state(0), OUT);
    ck_ok(zke_delete(z[0], PATH "/ready", -1));
  }
  end();
}

/* Rounds with senseless members are stale ones. */
TEST(malformed_ready) {
  static const char *const texts[] = {
      "running\n", "broken \nx", "running\na 1 2 3 4 99 x\n",
      "running\na 1 2 3 4 -1 x\n\n", "running\na 1 2 3 4 0x\n\n"};
  begin(1, 1);
  start(0);
  leave(0);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ck_ok(zke_create(z[0], PATH "/ready", texts[i], (int)strlen(texts[i]),
                     ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
    ck_ok(zke_double_barrier_enter(b[0], NULL, 0, 0, NULL));
    ck_ok(zke_double_barrier_leave(b[0], 0));
  }
  end();
}

/* A path of another recipe is refused; and all have to agree on N. */
TEST(other_kind) {
  zke_double_barrier *other;
  begin(1, 3);
  start(0);
  ck_ok(zke_double_barrier_new(z[0], PATH, 2, NULL, &other));
  ck_rc(zke_double_barrier_enter(other, NULL, 0, 0, NULL), ZKE_OTHERKIND);
  ck_says("is for 3 parties, not for 2");
  zke_double_barrier_free(other);
  ck_ok(zke_recipe_place(z[0], "/lock", "lock", ZKE_PERSISTENT, NULL,
                         ZKE_FOREVER));
  ck_ok(zke_double_barrier_new(z[0], "/lock", 2, NULL, &other));
  ck_rc(zke_double_barrier_enter(other, NULL, 0, 0, NULL), ZKE_OTHERKIND);
  ck_rc(zke_double_barrier_start(other, NULL, 0), ZKE_OTHERKIND);
  zke_double_barrier_free(other);
  end();
}

/* The number of parties is read as it stands, not modulo 2^32. */
TEST(other_number) {
  static const char number[] = "parties 4294967298\n";
  char text[128], *data, *line;
  int len;
  zke_double_barrier *other;
  begin(1, 3);
  start(0);
  ck_ok(zke_get(z[0], PATH, NULL, NULL, &data, &len, NULL));
  line = strstr(data, "parties ");
  ck_assert_ptr_nonnull(line);
  snprintf(text, sizeof text, "%.*s%s", (int)(line - data), data, number);
  zke_free(data);
  ck_ok(zke_set(z[0], PATH, text, (int)strlen(text), -1, NULL));
  ck_ok(zke_double_barrier_new(z[0], PATH, 2, NULL, &other));
  ck_rc(zke_double_barrier_enter(other, NULL, 0, 0, NULL), ZKE_OTHERKIND);
  ck_says("is for 4294967298 parties, not for 2");
  zke_double_barrier_free(other);
  end();
}

/* What N parties bring has to fit one value: who makes it too much is out. */
TEST(too_much_data) {
  static char data[900];
  zke_options o = {.size = sizeof o, .data_limit = 1500, .identity = "x"};
  memset(data, 'd', sizeof data);
  ck_ok(zke_open(":memory:", &o, &admin));
  parties = 2;
  for (int i = 0; i < 2; i++) z[i] = test_session(admin, NULL);
  for (int i = 0; i < 2; i++)
    ck_ok(zke_double_barrier_new(z[i], PATH, 2, NULL, &b[i]));
  ck_ok(zke_double_barrier_start(b[0], data, sizeof data));
  ck_rc(zke_double_barrier_enter(b[1], data, sizeof data, 0, NULL), ZKE_LIMIT);
  ck_says("is too much");
  ck_rc(zke_double_barrier_start(b[1], data, sizeof data), ZKE_LIMIT);
  ck_assert_int_eq(state(1), OUT);
  ck_ok(zke_double_barrier_enter(b[1], data, 10, 0, NULL));
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), INSIDE);
  leave(0);
  leave(1);
  dispatch_on(z[0]);
  end();
}

/* P11: arguments that make no sense are refused, among them too many parties;
 * nothing is entered. */
TEST(bad_arguments) {
  zke_double_barrier_options o = {.size = 1};
  zke_double_barrier *other;
  zke_party_list *list;
  begin(1, 2);
  ck_rc(zke_double_barrier_new(z[0], PATH, 0, NULL, &other), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  ck_rc(zke_double_barrier_new(z[0], PATH, ZKE_DOUBLE_BARRIER_MOST + 1, NULL,
                               &other),
        ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_new(z[0], PATH, 2, &o, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_new(z[0], "/", 2, NULL, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_new(z[0], "x", 2, NULL, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_new(z[0], PATH, 2, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_enter(b[0], NULL, 1, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_enter(b[0], "x", -1, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_start(b[0], NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_leave(b[0], 0), ZKE_LOST);
  ck_rc(zke_double_barrier_leave_start(b[0]), ZKE_LOST);
  ck_rc(zke_double_barrier_list(b[0], NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_parties(z[0], PATH, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_parties(z[0], "x", &list), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_double_barrier_state(NULL), LOST);
  ck_assert_int_eq(zke_double_barrier_token(NULL), 0);
  start(0);
  ck_rc(zke_double_barrier_start(b[0], NULL, 0), ZKE_MISUSE);
  ck_ok(zke_double_barrier_step(b[0]));
  zke_double_barrier_free(NULL);
  end();
}

/* ---- processes ---- */

enum { WORKERS = 3, ROUNDS = 40 };

typedef struct tally {
  int come[ROUNDS], gone[ROUNDS];
} tally;

/* One process: before it passes, all must have come; before it is out, all
 * must have left. */
static int work(const char *db, tally *s) {
  zke *mine;
  zke_double_barrier *barrier;
  int64_t last = 0, round = 0;
  int rc = zke_open(db, NULL, &mine);
  if (rc == ZKE_OK)
    rc = zke_double_barrier_new(mine, PATH, WORKERS, NULL, &barrier);
  for (int i = 0; i < ROUNDS && rc == ZKE_OK; i++) {
    int64_t deadline = zke_now(mine) + test_patience(10000);
    __atomic_add_fetch(&s->come[i], 1, __ATOMIC_SEQ_CST);
    rc = zke_double_barrier_enter(barrier, NULL, 0, deadline, &round);
    if (rc != ZKE_OK) break;
    if (__atomic_load_n(&s->come[i], __ATOMIC_SEQ_CST) != WORKERS) rc = 1;
    if (round <= last) rc = 2;
    last = round;
    __atomic_add_fetch(&s->gone[i], 1, __ATOMIC_SEQ_CST);
    if (rc == ZKE_OK) rc = zke_double_barrier_leave(barrier, deadline);
    if (rc == ZKE_OK &&
        __atomic_load_n(&s->gone[i], __ATOMIC_SEQ_CST) != WORKERS)
      rc = 3;
  }
  if (rc != ZKE_OK) fprintf(stderr, "rc %d: %s\n", rc, zke_errmsg());
  zke_double_barrier_free(barrier);
  zke_close(mine);
  return rc;
}

/* Three processes pass 40 rounds: nobody is inside before all have come, nor
 * out before all have left, and rounds count up. */
TEST(processes_pass_together) {
  tally *s = shared_memory(sizeof *s);
  const char *db = test_path("db");
  pid_t pids[WORKERS];
  for (int i = 0; i < WORKERS; i++) {
    pids[i] = fork();
    if (pids[i] == 0) _exit(work(db, s) == ZKE_OK ? 0 : 1);
  }
  for (int i = 0; i < WORKERS; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, 0);
  }
}

/* kill -9 of a member inside: the kernel tells the one in leave at once. */
TEST(killed_inside) {
  const char *db = test_path("db");
  int inside[2];
  char byte;
  ck_assert_int_eq(pipe(inside), 0);
  pid_t pid = fork();
  if (pid == 0) {
    zke *mine;
    zke_double_barrier *barrier;
    if (zke_open(db, NULL, &mine) == ZKE_OK &&
        zke_double_barrier_new(mine, PATH, 2, NULL, &barrier) == ZKE_OK &&
        zke_double_barrier_enter(barrier, NULL, 0, ZKE_FOREVER, NULL) == 0 &&
        write(inside[1], "x", 1) == 1)
      pause();
    _exit(1);
  }
  admin = test_open(db);
  z[0] = test_session(admin, NULL);
  ck_ok(zke_double_barrier_new(z[0], PATH, 2, NULL, &b[0]));
  parties = 1;
  ck_ok(zke_double_barrier_enter(b[0], NULL, 0, ZKE_FOREVER, NULL));
  ck_assert_int_eq(read(inside[0], &byte, 1), 1);
  leave(0);
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), LEAVING);
  kill(pid, SIGKILL);
  int64_t deadline = test_now() + test_patience(5000);
  while (state(0) == LEAVING && test_now() < deadline)
    zke_wait(z[0], zke_now(z[0]) + 1000);
  ck_assert_int_eq(state(0), OUT);
  ck_rc(zke_double_barrier_check(b[0]), ZKE_BROKEN);
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
  end();
}

/* ---- processes that are stopped ---- */

/* A party in a process of its own; how its leave ended. */
typedef struct player {
  pid_t pid;
  int in, out; /* a byte comes when it is inside, one goes that lets it leave */
} player;

/* A party in a process of its own: enters, says that it is inside, waits for
 * the word to leave.  2: left; 3: the round is broken; else it failed. */
static int play(const char *db, int n, int inside, int leave_now) {
  char byte = 'x';
  zke *mine;
  zke_double_barrier *barrier;
  if (zke_open(db, NULL, &mine) != ZKE_OK ||
      zke_double_barrier_new(mine, PATH, n, NULL, &barrier) != ZKE_OK ||
      zke_double_barrier_enter(barrier, NULL, 0, ZKE_FOREVER, NULL) != ZKE_OK)
    return 1;
  if (write(inside, &byte, 1) != 1 || read(leave_now, &byte, 1) != 1) return 1;
  int rc = zke_double_barrier_leave(barrier, zke_now(mine) + 20000);
  zke_double_barrier_free(barrier);
  zke_close(mine);
  if (rc == ZKE_OK) return 2;
  return rc == ZKE_BROKEN ? 3 : 4;
}

/* How many parties there are in all, and members of the round inside. */
static int arrived(void) {
  int count = 0;
  zke_strings *names = NULL;
  if (zke_children(admin, PATH, NULL, NULL, &names, NULL) != ZKE_OK) return 0;
  for (int i = 0; i < names->count; i++) count += names->data[i][0] == '_';
  zke_free(names);
  return count;
}

static int members_inside(void) {
  zke_stat stat = {0};
  zke_exists(admin, PATH "/ready", NULL, NULL, &stat);
  return stat.numChildren;
}

/* Start one, and wait until it is in the line. */
static player player_begin(const char *db, int n, int count) {
  int inside[2], leave_now[2];
  ck_assert_int_eq(pipe(inside), 0);
  ck_assert_int_eq(pipe(leave_now), 0);
  player p = {fork(), inside[0], leave_now[1]};
  if (p.pid == 0) {
    zke_close(admin); /* the parent's: its copy is of no use here */
    _exit(play(db, n, inside[1], leave_now[0]));
  }
  close(inside[1]);
  close(leave_now[0]);
  ck_until(arrived() == count, 10000);
  return p;
}

static void player_is_inside(const player *p) {
  char byte;
  ck_assert_int_eq(read(p->in, &byte, 1), 1);
}

static void player_leaves(const player *p, int left_inside) {
  ck_assert_int_eq(write(p->out, "x", 1), 1);
  ck_until(members_inside() == left_inside, 10000);
}

static void player_stop(const player *p) { test_stop(p->pid, test_path("db")); }

/* Returns how its leave ended, as play() says. */
static int player_end(const player *p) {
  int status;
  kill(p->pid, SIGCONT);
  ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
  close(p->in);
  close(p->out);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The parties come in this order: one's own, B, C.  B, which alone watches C in
 * the ring, is stopped in leave; C dies inside. */
TEST(a_stopped_neighbour_hides_no_death) {
  const char *db = test_path("db");
  admin = test_open(db);
  z[0] = test_session(admin, NULL);
  ck_ok(zke_double_barrier_new(z[0], PATH, 3, NULL, &b[0]));
  parties = 1;
  start(0);
  player second = player_begin(db, 3, 2), third = player_begin(db, 3, 3);
  player_is_inside(&second);
  player_is_inside(&third);
  ck_ok(zke_double_barrier_enter(b[0], NULL, 0, zke_now(z[0]) + 10000, NULL));
  player_leaves(&second, 2);
  player_stop(&second);
  leave(0);
  kill(third.pid, SIGKILL);
  ck_rc(zke_double_barrier_leave(b[0], zke_now(z[0]) + 10000), ZKE_BROKEN);
  ck_says("died inside");
  ck_assert_int_eq(player_end(&third), -1);
  ck_assert_int_eq(player_end(&second), 3); /* it hears of it all the same */
  end();
}

/* Two processes that are inside a round. */
static void two_inside(player *first, player *second) {
  const char *db = test_path("db");
  admin = test_open(db);
  *first = player_begin(db, 2, 1);
  *second = player_begin(db, 2, 2);
  player_is_inside(first);
  player_is_inside(second);
}

/* Two parties of this process, for the round after theirs. */
static void two_more(void) {
  parties = 2;
  for (int i = 0; i < 2; i++) {
    z[i] = test_session(admin, NULL);
    ck_ok(zke_double_barrier_new(z[i], PATH, 2, NULL, &b[i]));
  }
}

/* The second of the two dies inside: the next round begins, though the first is
 * stopped, and the first hears that its own was broken. */
static void two_enter_after_a_death(player *first, player *second) {
  kill(second->pid, SIGKILL);
  for (int i = 1; i >= 0; i--)
    ck_ok(zke_double_barrier_enter(b[i], NULL, 0, zke_now(z[i]) + 10000, NULL));
  ck_assert_int_eq(player_end(second), -1);
  ck_assert_int_eq(player_end(first), 3);
}

/* One that is stopped in leave of a broken round does not keep the next round
 * from beginning, and hears afterwards how its own ended. */
TEST(a_stopped_member_keeps_out_no_next_round) {
  player first, second;
  two_inside(&first, &second);
  player_leaves(&first, 1);
  player_stop(&first);
  two_more();
  start(0);
  start(1); /* behind the round of the two */
  ck_assert_int_eq(state(1), WAITING);
  two_enter_after_a_death(&first, &second);
  leave(0);
  leave(1);
  dispatch_all();
  ck_assert_int_eq(state(0), OUT);
  end();
}

/* The party that others watch behind a round may leave and be stopped before it
 * looks again: what becomes of the others is seen all the same. */
TEST(a_stopped_witness_hides_no_end) {
  player first, second;
  two_inside(&first, &second);
  two_more();
  start(0);
  start(1); /* watches the first, which is inside */
  player_leaves(&first, 1);
  player_stop(&first);
  dispatch_all();
  two_enter_after_a_death(&first, &second);
  end();
}

/* kill -9 of one that waits: it is not there from that moment on, although its
 * znode may stay for a while. */
TEST(killed_waiting) {
  const char *db = test_path("db");
  int there[2];
  char byte;
  ck_assert_int_eq(pipe(there), 0);
  pid_t pid = fork();
  if (pid == 0) {
    zke *mine;
    zke_double_barrier *barrier;
    if (zke_open(db, NULL, &mine) == ZKE_OK &&
        zke_double_barrier_new(mine, PATH, 2, NULL, &barrier) == ZKE_OK &&
        zke_double_barrier_start(barrier, NULL, 0) == ZKE_OK &&
        write(there[1], "x", 1) == 1)
      pause();
    _exit(1);
  }
  ck_assert_int_eq(read(there[0], &byte, 1), 1);
  admin = test_open(db);
  parties = 2;
  for (int i = 0; i < 2; i++) {
    z[i] = test_session(admin, NULL);
    ck_ok(zke_double_barrier_new(z[i], PATH, 2, NULL, &b[i]));
  }
  kill(pid, SIGKILL);
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
  start(0);
  ck_assert_int_eq(state(0), WAITING);
  ck_assert_int_eq(missing(0), 1);
  start(1);
  dispatch_on(z[0]);
  ck_assert_int_eq(state(0), INSIDE);
  ck_assert_int_eq(state(1), INSIDE);
  leave(0);
  leave(1);
  dispatch_on(z[0]);
  ck_rc(zke_double_barrier_check(b[0]), ZKE_LOST);
  close_all();
  ck_ok(zke_close(admin));
}

/* ---- meeting ---- */

/* What a meeting brought, as "a:x b:y"; frees the list. */
static const char *brought(zke_party_list *list) {
  static char text[256];
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < list->count; i++)
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s:%.*s",
                             i ? " " : "", list->data[i].identity,
                             list->data[i].len, list->data[i].data);
  zke_free(list);
  return text;
}

/* Those who meet all get what all have brought, in the order in which they
 * came, and are out; again and again with the same objects. */
TEST(all_who_meet_get_everything) {
  zke_party_list *list;
  int64_t last = 0, token, other;
  begin(3, 3);
  for (int n = 0; n < 3; n++) {
    ck_ok(zke_double_barrier_start(b[2], "two", 3));
    ck_ok(zke_double_barrier_start(b[0], "", 0));
    ck_ok(zke_double_barrier_meet(b[1], "o\0e", 3, 0, &list, &token));
    ck_assert_int_gt(token, last);
    last = token;
    ck_assert_int_eq(list->data[2].len, 3);
    ck_assert_int_eq(memcmp(list->data[2].data, "o\0e", 3), 0);
    ck_assert_int_eq(list->data[2].session, zke_session_id(z[1]));
    ck_assert_int_eq(list->data[2].pid, getpid());
    ck_assert_str_eq(brought(list), "c:two a: b:o");
    for (int i = 0; i < 3; i += 2) {
      ck_ok(zke_double_barrier_meet(b[i], NULL, 0, 0, &list, &other));
      ck_assert_str_eq(brought(list), "c:two a: b:o");
      ck_assert_int_eq(other, token);
    }
    for (int i = 0; i < 3; i++) ck_assert_int_eq(state(i), OUT);
    ck_assert(!ready());
  }
  end();
}

/* The deadline withdraws and says what is missing; a withdrawal that comes too
 * late has met. */
TEST(a_meeting_that_is_late_has_met) {
  zke_party_list *list;
  begin(2, 2);
  int64_t now = zke_now(z[0]);
  ck_rc(zke_double_barrier_meet(b[0], "x", 1, now + 20, NULL, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(zke_now(z[0]), now + 20);
  ck_says("1 of 2 parties are at " PATH ": a (pid ");
  ck_ok(zke_double_barrier_start(b[1], "1", 1));
  ck_ok(zke_double_barrier_meet(b[0], "2", 1, 0, NULL, NULL));
  ck_rc(zke_double_barrier_stop(b[1]), ZKE_HELD);
  ck_ok(zke_double_barrier_list(b[1], &list));
  ck_assert_str_eq(brought(list), "b:1 a:2");
  leave(1);
  end();
}

/* ---- deaths, lost replies, faults ---- */

/* How long a use waits, ms: hardly, where it is to fail. */

/* A round of two parties of one process. */
static int use_both(zke *mine, zke_double_barrier *x, zke_double_barrier *y) {
  int64_t deadline = zke_now(mine) + recipe_patience_ms;
  int rc = zke_double_barrier_start(x, "x", 1);
  if (rc == ZKE_OK) rc = zke_double_barrier_enter(y, "y", 1, deadline, NULL);
  if (rc == ZKE_OK) rc = zke_double_barrier_enter(x, NULL, 0, deadline, NULL);
  if (rc == ZKE_OK) rc = zke_double_barrier_leave_start(y);
  if (rc == ZKE_OK) rc = zke_double_barrier_leave(x, deadline);
  while (rc == ZKE_OK && zke_double_barrier_state(y) == LEAVING)
    rc = zke_wait(mine, deadline);
  return rc;
}

/* A meeting of the two; x comes first, without blocking. */
static int meet_both(zke *mine, zke_double_barrier *x, zke_double_barrier *y) {
  int64_t deadline = zke_now(mine) + recipe_patience_ms;
  zke_party_list *list = NULL;
  int rc = zke_double_barrier_start(x, "x", 1);
  if (rc == ZKE_OK)
    rc = zke_double_barrier_meet(y, "y", 1, deadline, &list, NULL);
  if (rc == ZKE_OK && (list->count != 2 || list->data[1].data[0] != 'y'))
    rc = ZKE_SYSTEMERROR;
  zke_free(list);
  if (rc == ZKE_OK) rc = zke_double_barrier_enter(x, NULL, 0, deadline, NULL);
  if (rc == ZKE_OK) rc = zke_double_barrier_leave(x, deadline);
  return rc;
}

/* Two parties on one session, which do that. */
static int use_by(zke *mine, int (*both)(zke *mine, zke_double_barrier *x,
                                         zke_double_barrier *y)) {
  zke_double_barrier *x = NULL, *y = NULL;
  int rc = zke_double_barrier_new(mine, PATH, 2, NULL, &x);
  if (rc == ZKE_OK) rc = zke_double_barrier_new(mine, PATH, 2, NULL, &y);
  if (rc == ZKE_OK) rc = both(mine, x, y);
  zke_double_barrier_free(x);
  zke_double_barrier_free(y);
  return rc;
}

/* The typical uses. */
static int use(zke *mine) { return use_by(mine, use_both); }
static int use_meet(zke *mine) { return use_by(mine, meet_both); }

/* Others go on, and clear away what is left. */
static void check(zke *other, int rc) {
  zke_party_list *list;
  (void)rc;
  ck_ok(use(other));
  ck_rc(zke_exists(other, PATH "/ready", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_double_barrier_parties(other, PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
}

static const recipe_use uses[] = {{"double barrier", NULL, use, check},
                                  {"meet", NULL, use_meet, check}};

RECIPE_TESTS(uses, 20, 0);
