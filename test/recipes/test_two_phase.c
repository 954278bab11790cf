/* test_two_phase.c - recipes/two_phase: all sites do it, or none does
 *
 * The two properties: no two sites decide differently; commit only if all have
 * voted commit. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/two_phase.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recipes.h"
#include "recipes/part/znode.h"
#include "sessions.h"

#define BASE "/2pc"
#define TX "/2pc/tx"

enum {
  SITES = 3,
  C = ZKE_TWO_PHASE_COMMIT,
  A = ZKE_TWO_PHASE_ABORT,
  LOST = ZKE_TWO_PHASE_LOST
};

static const char *const site_names[SITES] = {"a", "b", "c"};

/* A coordinator and its sites, each on a session; and one that looks on. */
static zke *admin, *zc, *zs[SITES];
static zke_two_phase *tc, *t[SITES];
static char heard[SITES + 1][16]; /* "C", "A" or "L"; the last: coordinator */

/* The listener: writes C committed, A aborted, L lost. */
static void hear(zke_two_phase *who, int state, int64_t token, const char *why,
                 void *context) {
  char *text = context;
  (void)who, (void)why;
  ck_assert((token > 0) == (state != LOST));
  ck_assert_int_lt((int)strlen(text), 14);
  text[strlen(text)] = "?CAL"[state];
}

/* The coordinator begins the transaction, in one of the forms. */
static void begin_tx(int form, int64_t limit_ms) {
  zke_two_phase_options o = {.size = sizeof o,
                             .form = form,
                             .limit_ms = limit_ms,
                             .listener = hear,
                             .context = heard[SITES]};
  ck_ok(zke_two_phase_begin(zc, BASE, "tx", "pay\0load", 8, site_names, SITES,
                            &o, &tc));
}

static void open_site(int i) {
  zke_two_phase_options o = {
      .size = sizeof o, .listener = hear, .context = heard[i]};
  ck_ok(zke_two_phase_open(zs[i], BASE, "tx", site_names[i], &o, &t[i]));
}

static zke *named(const char *name) {
  zke_options o = {.size = sizeof o, .identity = name};
  zke *session;
  ck_ok(zke_open_session(admin, &o, &session));
  return session;
}

/* A coordinator and all sites, each on a session of its own. */
static void begin(int form, int64_t limit_ms) {
  admin = test_open(":memory:");
  zc = named("master");
  begin_tx(form, limit_ms);
  for (int i = 0; i < SITES; i++) {
    zs[i] = named(site_names[i]);
    open_site(i);
  }
}

static void dispatch_sites(void) {
  for (int round = 0; round < 4; round++) {
    dispatch_on(zc);
    for (int i = 0; i < SITES; i++) dispatch_on(zs[i]);
  }
}

static void die(zke *session) {
  ck_ok(zke_expire(admin, zke_session_id(session)));
}

/* Nothing is left: no znode, no watch. */
static void end(void) {
  zke_strings *names = NULL;
  for (int i = 0; i < SITES; i++) {
    zke_two_phase_free(t[i]);
    ck_ok(zke_close(zs[i]));
  }
  zke_two_phase_free(tc);
  ck_ok(zke_close(zc));
  ck_ok(zke_two_phase_pending(admin, BASE, NULL, NULL, NULL, &names));
  ck_assert_int_eq(names->count, 0);
  zke_free(names);
  ck_rc(zke_exists(admin, TX, NULL, NULL, NULL), ZKE_NONODE);
  close_last(admin);
}

static zke_two_phase_status *status(void) {
  zke_two_phase_status *st;
  ck_ok(zke_two_phase_get(admin, BASE, "tx", &st));
  return st;
}

/* All decide this, and acknowledge it. */
static void all_decide(int expected) {
  int decision = 0;
  int64_t token = 0;
  for (int i = 0; i < SITES; i++) {
    ck_ok(zke_two_phase_wait(t[i], 0, &decision));
    ck_assert_int_eq(decision, expected);
    ck_assert_int_eq(zke_two_phase_state(t[i]), expected);
    if (i) ck_assert_int_eq(token, zke_two_phase_token(t[i]));
    token = zke_two_phase_token(t[i]);
    ck_assert_int_gt(token, 0);
  }
  for (int i = 0; i < SITES; i++) ck_ok(zke_two_phase_ack(t[i]));
}

/* ---- the forms ---- */

/* Every form commits when all have voted so, and not before; the payload is
 * there until all have acknowledged, and then nothing is. */
TEST_LOOP(all_votes_commit_and_no_fewer, 0, 4) {
  begin(_i, 0);
  for (int i = 0; i < SITES; i++) {
    dispatch_sites();
    ck_assert_int_eq(zke_two_phase_state(tc), 0);
    ck_assert_int_eq(zke_two_phase_token(t[0]), 0);
    ck_ok(zke_two_phase_vote(t[i], C));
  }
  dispatch_sites();
  for (int i = 0; i <= SITES; i++) ck_assert_str_eq(heard[i], "C");
  all_decide(C);
  zke_two_phase_status *st = status(); /* the coordinator is there still */
  ck_assert_int_eq(st->len, 8);
  ck_assert_int_eq(memcmp(st->payload, "pay\0load", 9), 0);
  zke_free(st);
  ck_ok(zke_two_phase_ack(tc));
  ck_rc(zke_exists(admin, TX, NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_two_phase_ack(tc));
  end();
}

/* The first "abort" decides, whoever has voted. */
TEST_LOOP(aborts_early, 0, 4) {
  begin(_i, 0);
  ck_ok(zke_two_phase_vote(t[1], C));
  ck_ok(zke_two_phase_vote(t[2], A));
  zke_two_phase_status *st = status();
  ck_assert_int_eq(st->decision, A);
  ck_assert_str_eq(st->why, "c has voted abort");
  zke_free(st);
  dispatch_sites();
  for (int i = 0; i <= SITES; i++) ck_assert_str_eq(heard[i], "A");
  ck_ok(zke_two_phase_vote(t[0], C)); /* too late: it learns what was decided */
  all_decide(A);
  end();
}

/* The coordinator dies before the last vote: the sites finish by themselves,
 * in every form. */
TEST_LOOP(coordinator_dies, 0, 4) {
  begin(_i, 0);
  ck_ok(zke_two_phase_vote(t[0], C));
  ck_ok(zke_two_phase_vote(t[1], C));
  dispatch_sites();
  die(zc);
  ck_ok(zke_two_phase_vote(t[2], C));
  dispatch_sites();
  ck_assert_str_eq(heard[SITES], "L");
  for (int i = 0; i < SITES; i++) ck_assert_str_eq(heard[i], "C");
  all_decide(C);
  end();
}

/* It dies between the last vote and its announcement: the same. */
TEST_LOOP(coordinator_dies_before_announcing, 0, 4) {
  begin(_i, 0);
  for (int i = 0; i < SITES; i++) ck_ok(zke_two_phase_vote(t[i], C));
  if (_i & ZKE_TWO_PHASE_COORDINATOR) { /* it has not looked yet */
    zke_two_phase_status *st = status();
    ck_assert_int_eq(st->decision, 0);
    zke_free(st);
  }
  die(zc);
  dispatch_sites();
  all_decide(C);
  end();
}

/* A coordinator that leaves hands over, too. */
TEST_LOOP(coordinator_leaves, 0, 4) {
  begin(_i, 0);
  for (int i = 0; i < SITES; i++) ck_ok(zke_two_phase_vote(t[i], C));
  zke_two_phase_free(tc);
  tc = NULL;
  dispatch_sites();
  for (int i = 0; i < SITES; i++) ck_assert_str_eq(heard[i], "C");
  all_decide(C);
  end();
}

/* The coordinator's process ends, and its session is a kept one: nothing that
 * others do ends it before its timeout is over.  It may be taken over until
 * then; afterwards the transaction is removed. */
TEST_LOOP(a_kept_coordinator_may_come_back, 0, 2) {
  zke_options o = {.size = sizeof o, .timeout_ms = _i ? 300 : 60000};
  unsigned char password[16];
  zke_strings *names;
  zke *taken = NULL;
  admin = test_open(":memory:");
  ck_ok(zke_open_session(admin, &o, &zc));
  ck_ok(zke_password(zc, password));
  int64_t id = zke_session_id(zc);
  begin_tx(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_attach(admin, id, password, NULL, &taken));
  zke_two_phase_free(tc); /* of a handle that has moved: nothing goes */
  tc = NULL;
  ck_ok(zke_close(zc));
  for (int i = 0; i < SITES; i++) {
    zs[i] = named(site_names[i]);
    open_site(i);
    ck_ok(zke_two_phase_vote(t[i], C));
  }
  ck_ok(zke_detach(taken));
  all_decide(C);
  ck_rc(zke_two_phase_begin(admin, BASE, "tx", NULL, 0, site_names, SITES, NULL,
                            &tc),
        ZKE_HELD);
  ck_ok(zke_two_phase_pending(admin, BASE, NULL, NULL, NULL, &names));
  ck_assert_int_eq(names->count, 1);
  zke_free(names);
  if (_i == 0) ck_ok(zke_attach(admin, id, password, NULL, &zc));
  if (_i == 1) zc = named("master");
  ck_until((dispatch_on(admin), zke_exists(admin, TX "/coordinator", NULL, NULL,
                                           NULL)) == (_i ? ZKE_NONODE : ZKE_OK),
           10000);
  end();
}

/* Ephemeral votes: a dead site aborts, whether it has voted or not, and also
 * where all the others learn of its coming and going at once. */
TEST_LOOP(dead_site_aborts, 0, 2) {
  begin(ZKE_TWO_PHASE_EPHEMERAL | _i, 0);
  ck_ok(zke_two_phase_vote(t[0], C));
  ck_ok(zke_two_phase_vote(t[1], C));
  dispatch_sites();
  die(zs[1]);
  dispatch_sites();
  ck_assert_str_eq(heard[0], "A");
  ck_assert_str_eq(heard[1], "L");
  ck_assert_str_eq(heard[SITES], "A");
  zke_two_phase_status *st = status();
  ck_assert_str_eq(st->why, "the site b has died");
  zke_free(st);
  /* It comes again and learns what was decided. */
  zke_two_phase_free(t[1]);
  ck_rc(zke_two_phase_vote(t[1] = NULL, C), ZKE_BADARGUMENTS);
  ck_ok(zke_close(zs[1]));
  zs[1] = named("b");
  heard[1][0] = '\0';
  open_site(1);
  ck_assert_str_eq(heard[1], "A");
  all_decide(A);
  end();
}

/* A site joins and dies before the coordinator has looked even once: its death
 * still aborts the transaction. */
TEST(dead_before_seen) {
  admin = test_open(":memory:");
  zc = named("master");
  begin_tx(ZKE_TWO_PHASE_EPHEMERAL, 0);
  for (int i = 0; i < SITES; i++) zs[i] = named(site_names[i]);
  open_site(2);
  die(zs[2]); /* nobody has looked since before it came */
  dispatch_on(zc);
  ck_assert_str_eq(heard[SITES], "A");
  zke_two_phase_free(t[2]);
  ck_ok(zke_close(zs[2]));
  zs[2] = named("c");
  heard[2][0] = '\0';
  for (int i = 0; i < SITES; i++) open_site(i);
  all_decide(A);
  end();
}

static bool seen_coming;

static void see_coming(zke *s, int type, int state, const char *path,
                       void *context) {
  (void)s, (void)state, (void)path, (void)context;
  if (type == ZKE_EVENT_CREATED) seen_coming = true;
}

static void begin_unwatched(zke *s) {
  zke_two_phase_options o = {.size = sizeof o, .form = ZKE_TWO_PHASE_EPHEMERAL};
  zke_two_phase *x = NULL;
  seen_coming = false;
  ck_ok(zke_two_phase_begin(s, BASE, "tx", "", 0, site_names, 2, &o, &x));
  zke_two_phase_free(x);
  ck_rc(zke_exists(s, TX "/vote-a", see_coming, NULL, NULL), ZKE_NONODE);
}

static int vote_unwatched(zke *s) {
  zke_two_phase *x = NULL;
  int rc = zke_two_phase_open(s, BASE, "tx", "a", NULL, &x);
  if (rc == ZKE_OK) rc = zke_two_phase_vote(x, C);
  zke_two_phase_free(x);
  return rc;
}

static void come_after_the_death(zke *s, int rc) {
  zke_two_phase *x = NULL;
  int decision = 0;
  ck_until((dispatch_on(s), zke_exists(s, TX "/vote-a", NULL, NULL, NULL)) ==
               ZKE_NONODE,
           10000);
  ck_assert(seen_coming || rc != ZKE_OK);
  ck_ok(zke_two_phase_open(s, BASE, "tx", "b", NULL, &x));
  ck_ok(zke_two_phase_vote(x, C));
  ck_rc(zke_two_phase_wait(x, zke_now(s), &decision),
        seen_coming ? ZKE_OK : ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(decision, seen_coming ? A : 0);
  if (!seen_coming) ck_ok(zke_two_phase_abort(x, "enough"));
  ck_ok(zke_two_phase_ack(x));
  zke_two_phase_free(x);
  ck_ok(zke_two_phase_open(s, BASE, "tx", "a", NULL, &x));
  ck_ok(zke_two_phase_ack(x));
  zke_two_phase_free(x);
}

/* A site that dies anywhere, while nobody looks.  If it had come the next one
 * that takes part aborts; if it had not, that one waits for it. */
TEST(dead_before_others_come) {
  static const recipe_use u = {"two_phase", begin_unwatched, vote_unwatched,
                               come_after_the_death};
  ck_assert_int_gt(recipe_deaths(&u), 10);
}

/* A vote that was seen and has gone does not count: the last vote comes when
 * another's has vanished, and nobody has noticed that yet. */
TEST(vanished_vote_does_not_count) {
  begin(ZKE_TWO_PHASE_EPHEMERAL, 0);
  ck_ok(zke_two_phase_vote(t[0], C));
  ck_ok(zke_two_phase_vote(t[1], C));
  dispatch_sites();
  die(zs[0]);
  ck_ok(zke_two_phase_vote(t[2], C));
  ck_assert_int_eq(zke_two_phase_state(t[2]), A);
  /* Nor where it came again meanwhile and has not voted. */
  zke_two_phase_free(t[0]);
  ck_ok(zke_close(zs[0]));
  zs[0] = named("a");
  open_site(0);
  all_decide(A);
  end();
}

/* A site that dies and comes again before anybody looks may vote again. */
TEST(site_comes_again) {
  begin(ZKE_TWO_PHASE_EPHEMERAL, 0);
  ck_ok(zke_two_phase_vote(t[0], C));
  die(zs[0]);
  zke_two_phase_free(t[0]);
  ck_ok(zke_close(zs[0]));
  zs[0] = named("a");
  heard[0][0] = '\0';
  open_site(0);
  dispatch_sites();
  ck_assert_int_eq(zke_two_phase_state(tc), 0);
  for (int i = 0; i < SITES; i++) ck_ok(zke_two_phase_vote(t[i], C));
  dispatch_sites();
  all_decide(C);
  end();
}

/* Persistent votes: who dies after voting has voted; the restarted process
 * finds the transaction and finishes. */
TEST(site_restarts) {
  zke_strings *names;
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_two_phase_vote(t[0], C));
  die(zs[0]);
  ck_rc(zke_two_phase_vote(t[0], C), ZKE_INVALIDSTATE);
  ck_assert_int_eq(zke_two_phase_state(t[0]), LOST);
  zke_two_phase_free(t[0]);
  ck_ok(zke_close(zs[0]));
  ck_ok(zke_two_phase_vote(t[1], C));
  ck_ok(zke_two_phase_vote(t[2], C));
  zs[0] = named("a");
  ck_ok(zke_two_phase_pending(zs[0], BASE, "a", NULL, NULL, &names));
  ck_assert_int_eq(names->count, 1);
  ck_assert_str_eq(names->data[0], "tx");
  zke_free(names);
  heard[0][0] = '\0';
  open_site(0);
  ck_assert_str_eq(heard[0], "C");
  all_decide(C);
  end();
}

/* Somebody has deleted a vote's znode: that site is told and does not look for
 * it for ever, and the transaction can be aborted. */
TEST(a_deleted_vote_is_told) {
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_delete(zs[1], BASE "/tx/vote-a", -1));
  ck_rc(zke_two_phase_vote(t[0], C), ZKE_NONODE);
  ck_says("the vote of a on " BASE "/tx was deleted");
  ck_ok(zke_two_phase_abort(tc, "a vote is missing"));
  ck_ok(zke_two_phase_vote(t[0], C));
  all_decide(ZKE_TWO_PHASE_ABORT);
  end();
}

/* Who watches what: in the form of that name only the coordinator is woken by
 * votes; the sites only by the decision. */
TEST(no_herd) {
  begin(ZKE_TWO_PHASE_COORDINATOR, 0);
  ck_ok(zke_two_phase_vote(t[2], C));
  ck_assert_int_eq(dispatch_on(zc), 0); /* it watches the first one missing */
  ck_ok(zke_two_phase_vote(t[0], C));
  ck_assert_int_eq(dispatch_on(zc), 1);
  for (int i = 0; i < SITES; i++) ck_assert_int_eq(dispatch_on(zs[i]), 0);
  ck_ok(zke_two_phase_vote(t[1], C));
  ck_assert_int_eq(dispatch_on(zc), 2); /* the vote, its own decision */
  for (int i = 0; i < SITES; i++) ck_assert_int_eq(dispatch_on(zs[i]), 1);
  all_decide(C);
  end();
}

/* ---- time, force, waiting ---- */

/* A transaction of b's vote alone that has so many ms.  False: that was over
 * before b had voted. */
static bool reaches_limit(int form, int64_t limit_ms) {
  int decision = 0;
  int64_t before = test_wall();
  begin(form, limit_ms);
  int64_t after = test_wall();
  ck_ok(zke_two_phase_vote(t[1], C));
  zke_two_phase_status *st = status();
  int64_t limit = st->limit_ms;
  ck_assert_int_ge(limit, before + limit_ms);
  ck_assert_int_le(limit, after + limit_ms);
  zke_free(st);
  bool in_time = test_wall() < limit;
  ck_ok(zke_two_phase_wait(t[1], ZKE_FOREVER, &decision));
  ck_assert_int_eq(decision, A);
  st = status();
  if (in_time)
    ck_assert_str_eq(st->why, "the time limit, without the vote of a, c");
  ck_assert_int_eq(st->decided_ms >= limit, 1);
  zke_free(st);
  all_decide(A);
  end();
  return in_time;
}

/* At the limit whoever waits aborts, in the coordinator's form a site as
 * well; a prompt clean-up: not before it. */
TEST_LOOP(time_limit, 0, 4) {
  for (int64_t ms = 500; !reaches_limit(_i, ms);) ms *= 2;
}

/* Without blocking calls step() does it. */
TEST(step_at_limit) {
  begin(ZKE_TWO_PHASE_SITES, 30);
  zke_two_phase_status *st = status();
  int64_t limit = st->limit_ms;
  zke_free(st);
  ck_ok(zke_two_phase_step(tc));
  ck_until(test_wall() >= limit, 10000);
  ck_ok(zke_two_phase_step(tc));
  ck_assert_int_eq(zke_two_phase_state(tc), A);
  all_decide(A);
  end();
}

/* A timeout says who has not voted, and nothing has changed by it. */
TEST(timeout_names_missing) {
  int decision = 0;
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_two_phase_vote(t[1], C));
  int64_t now = zke_now(zc);
  ck_rc(zke_two_phase_wait(tc, now + 20, &decision), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(zke_now(zc), now + 20);
  ck_says("the transaction " TX " waits for the vote of a, c");
  ck_ok(zke_two_phase_vote(t[0], C));
  ck_ok(zke_two_phase_vote(t[2], C));
  ck_ok(zke_two_phase_wait(tc, 0, &decision));
  ck_assert_int_eq(decision, C);
  all_decide(C);
  end();
}

/* Where the test is just looking whether somebody waits, it is in the way. */
static void *wait_there(void *arg) {
  int rc;
  do rc = zke_two_phase_wait(tc, ZKE_FOREVER, NULL);
  while (rc == ZKE_MISUSE);
  *(int *)arg = rc;
  return NULL;
}

/* The coordinator's wait is cancelled by another thread; a second waiting call
 * is refused. */
TEST(cancel_ends_the_wait) {
  pthread_t thread;
  int rc = 0, other = 0;
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_there, &rc), 0);
  ck_until(zke_two_phase_cancel(tc) == ZKE_OK, 10000);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(rc, ZKE_CANCELLED);
  /* Only one may wait. */
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_there, &rc), 0);
  ck_until((other = zke_two_phase_wait(tc, 0, NULL)) == ZKE_MISUSE, 5000);
  ck_ok(zke_two_phase_vote(t[0], A));
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(rc, ZKE_OK);
  all_decide(A);
  end();
}

/* Anybody may abort, but not what is committed. */
TEST(abort_by_anybody) {
  begin(ZKE_TWO_PHASE_SITES, 0);
  zke_two_phase *onlooker;
  ck_ok(zke_two_phase_vote(t[0], C));
  ck_ok(zke_two_phase_open(admin, BASE, "tx", NULL, NULL, &onlooker));
  ck_ok(zke_two_phase_abort(onlooker, "no\nmoney"));
  ck_ok(zke_two_phase_abort(onlooker, NULL)); /* as it was */
  zke_two_phase_status *st = status();
  ck_assert_str_eq(st->why, "no money");
  ck_assert_ptr_nonnull(strstr(st->by, "(pid "));
  zke_free(st);
  ck_rc(zke_two_phase_ack(onlooker), ZKE_MISUSE);
  ck_rc(zke_two_phase_vote(onlooker, C), ZKE_MISUSE);
  zke_two_phase_free(onlooker);
  all_decide(A);
  zke_two_phase_free(tc);
  for (int i = 0; i < SITES; i++) zke_two_phase_free(t[i]);
  begin_tx(ZKE_TWO_PHASE_SITES, 0);
  for (int i = 0; i < SITES; i++) open_site(i);
  for (int i = 0; i < SITES; i++) ck_ok(zke_two_phase_vote(t[i], C));
  ck_rc(zke_two_phase_abort(tc, NULL), ZKE_MISUSE);
  ck_says("committed");
  all_decide(C);
  end();
}

/* A vote is given once; the same again is fine. */
TEST_LOOP(votes_are_given_once, 0, 4) {
  begin(_i, 0);
  ck_rc(zke_two_phase_vote(t[0], 0), ZKE_BADARGUMENTS);
  ck_rc(zke_two_phase_vote(t[0], 3), ZKE_BADARGUMENTS);
  ck_ok(zke_two_phase_vote(t[0], C));
  ck_ok(zke_two_phase_vote(t[0], C));
  ck_rc(zke_two_phase_vote(t[0], A), ZKE_MISUSE);
  ck_says("a has voted commit in " TX);
  ck_rc(zke_two_phase_ack(t[0]), ZKE_MISUSE);
  ck_ok(zke_two_phase_vote(t[1], A));
  ck_ok(zke_two_phase_vote(t[1], A));
  ck_rc(zke_two_phase_vote(tc, C), ZKE_MISUSE);
  all_decide(A);
  end();
}

/* Two live processes as one site: in the ephemeral form the second is told
 * who is there. */
TEST(site_is_taken) {
  zke_two_phase *other;
  begin(ZKE_TWO_PHASE_EPHEMERAL, 0);
  ck_rc(zke_two_phase_open(zc, BASE, "tx", "a", NULL, &other), ZKE_HELD);
  ck_says("the vote of a in " TX " is held by a (pid ");
  ck_assert_ptr_null(other);
  ck_ok(zke_two_phase_vote(t[0], A));
  all_decide(A);
  end();
}

/* ---- the name, the directory ---- */

/* An object of an earlier transaction does nothing to a later one of the same
 * name (a process that was stopped for long). */
TEST_LOOP(a_stale_object_does_not_touch_the_next_transaction, 0, 4) {
  zke_two_phase *old, *old_site;
  begin(_i, 0);
  ck_ok(zke_two_phase_open(admin, BASE, "tx", NULL, NULL, &old));
  ck_ok(zke_two_phase_open(zs[0], BASE, "tx", "a", NULL, &old_site));
  ck_ok(zke_two_phase_vote(t[1], A));
  all_decide(A);
  zke_two_phase_free(tc);
  for (int i = 0; i < SITES; i++) zke_two_phase_free(t[i]);
  begin_tx(_i, 0);
  for (int i = 0; i < SITES; i++) open_site(i);
  ck_rc(zke_two_phase_vote(old_site, A), ZKE_LOST);
  ck_rc(zke_two_phase_abort(old, "old"), ZKE_LOST);
  ck_rc(zke_two_phase_wait(old, 0, NULL), ZKE_LOST);
  ck_ok(zke_two_phase_ack(old_site));
  zke_two_phase_free(old);
  zke_two_phase_free(old_site);
  for (int i = 0; i < SITES; i++) ck_ok(zke_two_phase_vote(t[i], C));
  dispatch_sites();
  all_decide(C);
  end();
}

/* A name that is in use is refused, and says why; one that all have done with
 * is taken, also where the coordinator died without a word. */
TEST(begin_again) {
  zke_two_phase *other;
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_rc(zke_two_phase_begin(admin, BASE, "tx", NULL, 0, site_names, SITES, NULL,
                            &other),
        ZKE_HELD);
  ck_says("there is a transaction " TX ", which waits for the vote of a, b, c");
  ck_ok(zke_two_phase_vote(t[0], A));
  dispatch_sites();
  ck_rc(zke_two_phase_begin(admin, BASE, "tx", NULL, 0, site_names, SITES, NULL,
                            &other),
        ZKE_HELD);
  ck_says("which waits for the acknowledgement of a, b, c");
  all_decide(A);
  die(zc);
  ck_ok(zke_exists(admin, TX, NULL, NULL, NULL));
  ck_ok(zke_two_phase_begin(admin, BASE, "tx", NULL, 0, site_names, SITES, NULL,
                            &other));
  ck_ok(zke_two_phase_abort(other, NULL));
  zke_two_phase_free(other);
  for (int i = 0; i < SITES; i++) {
    zke_two_phase_free(t[i]);
    heard[i][0] = '\0';
    open_site(i);
  }
  all_decide(A);
  end();
}

/* What a status tells, at three moments. */
TEST(status_tells) {
  begin(ZKE_TWO_PHASE_EPHEMERAL, 0);
  ck_ok(zke_two_phase_vote(t[1], C));
  zke_two_phase_status *st = status();
  ck_assert_int_eq(st->form, ZKE_TWO_PHASE_EPHEMERAL);
  ck_assert_int_eq(st->decision, 0);
  ck_assert_int_eq(st->count, SITES);
  ck_assert_int_eq(st->coordinator, 1);
  ck_assert_str_eq(st->sites[1].name, "b");
  ck_assert_int_eq(st->sites[1].vote, C);
  ck_assert_int_eq(st->sites[1].voted_ms >= st->begun_ms, 1);
  ck_assert_int_eq(st->sites[0].vote, 0);
  ck_assert_int_eq(st->sites[0].present, 1);
  ck_assert_str_eq(st->why, "");
  zke_free(st);
  die(zs[0]);
  st = status();
  ck_assert_int_eq(st->sites[0].present, 0);
  zke_free(st);
  dispatch_sites();
  ck_ok(zke_two_phase_ack(t[1]));
  st = status();
  ck_assert_int_eq(st->decision, A);
  ck_assert_int_eq(st->token, zke_two_phase_token(t[1]));
  ck_assert_int_eq(st->sites[1].acknowledged, 1);
  ck_assert_int_eq(st->sites[2].acknowledged, 0);
  zke_free(st);
  ck_rc(zke_two_phase_get(admin, BASE, "none", &st), ZKE_NONODE);
  zke_two_phase_free(t[0]);
  ck_ok(zke_close(zs[0]));
  zs[0] = named("a");
  open_site(0);
  all_decide(A);
  end();
}

/* The list of a site: what it has not acknowledged; its watcher hears of new
 * ones; what is no transaction is ignored. */
TEST(pending_lists) {
  test_events events = {0};
  zke_strings *names;
  zke_two_phase *t2;
  char *payload;
  int len;
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_create(admin, BASE "/foreign", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_ok(zke_two_phase_pending(admin, BASE, "b", test_record, &events, &names));
  ck_assert_int_eq(names->count, 1);
  zke_free(names);
  ck_ok(zke_two_phase_begin(zc, BASE, "t0", "p", 1, &site_names[1], 1, NULL,
                            &t2));
  test_expect(admin, &events, "CHILD " BASE);
  ck_ok(zke_two_phase_pending(admin, BASE, "b", NULL, NULL, &names));
  ck_assert_int_eq(names->count, 2);
  ck_assert_str_eq(names->data[0], "t0");
  zke_free(names);
  ck_ok(zke_two_phase_pending(admin, BASE, "a", NULL, NULL, &names));
  ck_assert_int_eq(names->count, 1);
  zke_free(names);
  ck_ok(zke_two_phase_payload(t2, &payload, &len));
  ck_assert_int_eq(len, 1);
  ck_assert_str_eq(payload, "p");
  zke_free(payload);
  ck_ok(zke_two_phase_abort(t2, NULL));
  zke_two_phase_free(t2);
  ck_ok(zke_two_phase_open(zs[1], BASE, "t0", "b", NULL, &t2));
  ck_ok(zke_two_phase_ack(t2));
  zke_two_phase_free(t2);
  ck_ok(zke_two_phase_vote(t[0], A));
  all_decide(A);
  ck_ok(zke_two_phase_pending(admin, BASE, "a", NULL, NULL, &names));
  ck_assert_int_eq(names->count, 0);
  zke_free(names);
  ck_ok(zke_delete(admin, BASE "/foreign", -1));
  ck_ok(zke_two_phase_pending(admin, "/none", "a", NULL, NULL, &names));
  ck_assert_int_eq(names->count, 0);
  zke_free(names);
  end();
}

/* Foreign children change nothing but that the emptied znode stays; votes
 * written by hand do not count. */
TEST(foreign_children) {
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_create(admin, TX "/vote-x", "commit", 6, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_set(admin, TX "/vote-a", "comm", 4, -1, NULL));
  ck_ok(zke_set(admin, TX "/vote-a", "commit", 6, -1, NULL));
  ck_ok(zke_two_phase_vote(t[1], C));
  ck_ok(zke_two_phase_vote(t[2], C));
  dispatch_sites();
  ck_assert_int_eq(zke_two_phase_state(tc), 0);
  ck_ok(zke_two_phase_abort(tc, NULL));
  all_decide(A);
  ck_ok(zke_two_phase_ack(tc));
  ck_ok(zke_exists(admin, TX, NULL, NULL, NULL));
  zke_two_phase_status *st = status();
  for (int i = 0; i < SITES; i++) ck_assert(st->sites[i].acknowledged);
  zke_free(st);
  ck_ok(zke_delete(admin, TX "/vote-x", -1));
  end(); /* the list removes it */
}

/* P11: sites that are there twice or cannot be names, and other bad arguments,
 * are refused before anything is made. */
TEST(bad_arguments) {
  const char *const twice[] = {"a", "b", "a"}, *const bad[] = {"a/b"};
  const char *const space[] = {"a b"}, *const empty[] = {""};
  zke_two_phase_options o = {.size = 1};
  zke_two_phase *other = NULL;
  zke_two_phase_status *st;
  zke *s = test_open(":memory:");
#define BEGIN(base, name, payload, len, sites, count, options)            \
  zke_two_phase_begin(s, base, name, payload, len, sites, count, options, \
                      &other)
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 3, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, bad, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, space, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, empty, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, NULL, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", NULL, 1, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", -1, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t/u", "", 0, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, NULL, "", 0, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(NULL, "t", "", 0, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN("nope", "t", "", 0, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 2, &o), ZKE_BADARGUMENTS);
  o = (zke_two_phase_options){.size = sizeof o, .form = 4};
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 2, &o), ZKE_BADARGUMENTS);
  o = (zke_two_phase_options){.size = sizeof o, .limit_ms = -1};
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 2, &o), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  ck_rc(zke_exists(s, BASE, NULL, NULL, NULL), ZKE_NONODE); /* untouched */
  ck_ok(zke_create(s, "/lock", "zkembed lock", 12, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_rc(BEGIN("/lock", "t", "", 0, twice, 2, NULL), ZKE_OTHERKIND);
  ck_says("is of kind lock");
  ck_ok(zke_create(s, "/lock/t", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_rc(zke_two_phase_open(s, "/lock", "t", "a", NULL, &other), ZKE_OTHERKIND);
  ck_rc(zke_two_phase_open(s, BASE, "t", "a", NULL, &other), ZKE_NONODE);
  ck_rc(zke_two_phase_open(s, BASE, "t", "a", NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_two_phase_get(s, "/lock", "t", &st), ZKE_OTHERKIND);
  ck_rc(zke_two_phase_get(s, "/lock", "t", NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_two_phase_pending(s, BASE, "a", NULL, NULL, NULL),
        ZKE_BADARGUMENTS);
  ck_ok(BEGIN(BASE, "t", "", 0, twice, 2, NULL));
  zke_two_phase *site = NULL;
  ck_rc(zke_two_phase_open(s, BASE, "t", "x", NULL, &site), ZKE_BADARGUMENTS);
  ck_says("x takes no part in /2pc/t");
  ck_assert_ptr_null(site);
  zke_two_phase_free(other);
  zke_two_phase_free(NULL);
  ck_ok(zke_close(s));
}

/* ---- operations with a vote and with an acknowledgement ----
 *
 * Each site makes "/row-a" with its vote, and writes what was decided into it
 * with its acknowledgement: both count in the znode's version, so what is done
 * twice is seen. */

enum {
  NOT_DONE = ZKE_TWO_PHASE_NOT_DONE,
  DONE = ZKE_TWO_PHASE_DONE,
  BEFORE = ZKE_TWO_PHASE_DONE_BEFORE,
  GONE = ZKE_TWO_PHASE_GONE
};

static const char *row(const char *site) {
  static const char *const rows[SITES] = {"/row-a", "/row-b", "/row-c"};
  return rows[*site - 'a'];
}

/* Vote commit, and make the row with it. */
static int vote_row(zke_two_phase *who, const char *site, int *done) {
  zke_op op;
  zke_op_create(&op, row(site), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  return zke_two_phase_vote_with(who, C, &op, 1, NULL, done);
}

/* Write the decision into the row with the acknowledgement. */
static int ack_row(zke_two_phase *who, const char *site, int decision,
                   int *done) {
  zke_op op;
  zke_op_set(&op, row(site), decision == C ? "C" : "A", 1, -1);
  return zke_two_phase_ack_with(who, &op, 1, NULL, done);
}

#define ck_vote_row(who, site, expected) \
  do {                                   \
    int done_ = -1;                      \
    ck_ok(vote_row(who, site, &done_));  \
    ck_assert_int_eq(done_, expected);   \
  } while (0)
#define ck_ack_row(who, site, decision, expected) \
  do {                                            \
    int done_ = -1;                               \
    ck_ok(ack_row(who, site, decision, &done_));  \
    ck_assert_int_eq(done_, expected);            \
  } while (0)

/* The row says this, and was written so often; version -1: there is none. */
static void ck_row(const char *site, const char *expected, int version) {
  char *data = NULL;
  zke_stat stat = {.version = -1};
  int rc = zke_get(admin, row(site), NULL, NULL, &data, NULL, &stat);
  if (rc != ZKE_NONODE) ck_ok(rc);
  ck_assert_int_eq(stat.version, version);
  if (version >= 0) ck_assert_str_eq(data, expected);
  zke_free(data);
}

/* The process of a site is replaced by another one. */
static void restart_site(int i) {
  zke_two_phase_free(t[i]);
  ck_ok(zke_close(zs[i]));
  zs[i] = named(site_names[i]);
  heard[i][0] = '\0';
  open_site(i);
}

/* All sites acknowledge with their rows, which say the decision once. */
static void all_ack_rows(int decision) {
  for (int i = 0; i < SITES; i++)
    ck_ack_row(t[i], site_names[i], decision, DONE);
  for (int i = 0; i < SITES; i++)
    ck_row(site_names[i], decision == C ? "C" : "A", 1);
}

/* Rows come with the votes and are written with the acknowledgements, once; the
 * last acknowledgement is a site's, and removes the transaction with it. */
TEST_LOOP(a_row_comes_with_vote_and_ack, 0, 4) {
  begin(_i, 0);
  for (int i = 0; i < SITES; i++) {
    ck_vote_row(t[i], site_names[i], DONE);
    ck_row(site_names[i], "?", 0);
    ck_vote_row(t[i], site_names[i], BEFORE);
  }
  dispatch_sites();
  ck_ok(zke_two_phase_ack(tc));
  ck_ok(zke_exists(admin, TX "/work-c", NULL, NULL, NULL));
  all_ack_rows(C);
  ck_rc(zke_exists(admin, TX, NULL, NULL, NULL), ZKE_NONODE);
  ck_ack_row(t[2], "c", A, GONE);
  ck_vote_row(t[2], "c", GONE);
  ck_row("c", "C", 1);
  end();
}

/* The site's next process gives the same operations again, and is told that
 * they were done; in the ephemeral form its vote is given anew. */
TEST_LOOP(a_restarted_site_does_nothing_twice, 0, 4) {
  begin(_i, 0);
  for (int i = 0; i < SITES; i++) {
    ck_vote_row(t[i], site_names[i], DONE);
    if (i == SITES - 1) break;
    restart_site(i);
    ck_vote_row(t[i], site_names[i], BEFORE);
    ck_row(site_names[i], "?", 0);
    if (zke_two_phase_state(t[i]) != 0) break; /* its death was seen */
  }
  dispatch_sites();
  int decision = zke_two_phase_state(t[0]);
  ck_assert_int_ne(decision, 0);
  ck_ack_row(t[0], "a", decision, DONE);
  restart_site(0);
  ck_ack_row(t[0], "a", decision, BEFORE);
  ck_row("a", decision == C ? "C" : "A", 1);
  for (int i = 1; i < SITES; i++) ck_ok(zke_two_phase_ack(t[i]));
  end();
}

/* A site that has acknowledged does so again when all others have: this removes
 * the transaction, and does not do the operations a second time. */
TEST(the_last_of_two_acks_does_nothing_twice) {
  begin(ZKE_TWO_PHASE_SITES, 0);
  for (int i = 0; i < SITES; i++) ck_vote_row(t[i], site_names[i], DONE);
  for (int i = 0; i < SITES; i++) ck_ack_row(t[i], site_names[i], C, DONE);
  ck_ok(zke_exists(admin, TX, NULL, NULL, NULL)); /* the coordinator's turn */
  die(zc);
  ck_ack_row(t[0], "a", A, BEFORE);
  ck_rc(zke_exists(admin, TX, NULL, NULL, NULL), ZKE_NONODE);
  ck_row("a", "C", 1);
  end();
}

/* A vote and an acknowledgement without operations: the later call does not do
 * its own, and says that none were. */
TEST(operations_that_come_late_are_not_done) {
  int done = -1;
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_two_phase_vote_with(t[0], C, NULL, 0, NULL, &done));
  ck_assert_int_eq(done, NOT_DONE);
  ck_vote_row(t[0], "a", NOT_DONE);
  ck_rc(zke_exists(admin, TX "/work-a", NULL, NULL, NULL), ZKE_NONODE);
  ck_vote_row(t[1], "b", DONE);
  ck_ok(zke_two_phase_vote(t[2], C));
  ck_ok(zke_two_phase_ack(t[0]));
  ck_ack_row(t[0], "a", C, NOT_DONE);
  ck_row("a", "", -1);
  ck_ack_row(t[1], "b", C, DONE);
  ck_ok(zke_two_phase_ack_with(t[2], NULL, 0, NULL, &done));
  ck_assert_int_eq(done, NOT_DONE);
  end();
}

/* It was decided without the site: nothing is done with its vote, which is not
 * given; with the acknowledgement it is. */
TEST_LOOP(what_is_decided_takes_no_vote, 0, 4) {
  begin(_i, 0);
  ck_vote_row(t[1], "b", DONE);
  ck_ok(zke_two_phase_abort(tc, "no"));
  ck_vote_row(t[0], "a", NOT_DONE);
  ck_row("a", "", -1);
  zke_two_phase_status *st = status();
  ck_assert_int_eq(st->sites[0].vote, 0);
  zke_free(st);
  ck_vote_row(t[1], "b", BEFORE); /* it was, before the decision */
  ck_rc(ack_row(t[0], "a", A, NULL), ZKE_NONODE); /* it has no row */
  ck_ok(zke_two_phase_ack(t[0]));
  ck_ack_row(t[1], "b", A, DONE);
  ck_row("b", "A", 1);
  ck_ok(zke_two_phase_ack(t[2]));
  end();
}

/* A vote for abort takes operations along like any other; one otherwise than
 * before does not. */
TEST_LOOP(an_abort_takes_operations_along, 0, 4) {
  zke_op op;
  int done = -1;
  begin(_i, 0);
  ck_vote_row(t[1], "b", DONE);
  zke_op_create(&op, row("a"), "no", 2, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_rc(zke_two_phase_vote_with(t[1], A, &op, 1, NULL, NULL), ZKE_MISUSE);
  ck_row("a", "", -1);
  ck_ok(zke_two_phase_vote_with(t[0], A, &op, 1, NULL, &done));
  ck_assert_int_eq(done, DONE);
  ck_row("a", "no", 0);
  ck_vote_row(t[2], "c", NOT_DONE);
  all_decide(A);
  end();
}

/* An ephemeral vote goes with its site, and what it took along stays.  The site
 * comes again in time, and votes again without it. */
TEST(an_ephemeral_vote_is_given_again) {
  begin(ZKE_TWO_PHASE_EPHEMERAL, 0);
  ck_vote_row(t[0], "a", DONE);
  die(zs[0]);
  restart_site(0); /* before anybody has looked */
  zke_two_phase_status *st = status();
  ck_assert_int_eq(st->sites[0].vote, 0);
  zke_free(st);
  ck_vote_row(t[0], "a", BEFORE);
  st = status();
  ck_assert_int_eq(st->sites[0].vote, C);
  zke_free(st);
  for (int i = 1; i < SITES; i++) ck_vote_row(t[i], site_names[i], DONE);
  dispatch_sites();
  all_ack_rows(C);
  end();
}

/* ---- what refuses ---- */

typedef struct refusal {
  int rc;
  void (*fill)(zke_op *op);
} refusal;

static void no_node(zke_op *op) { zke_op_set(op, "/none", "", 0, -1); }
static void bad_version(zke_op *op) { zke_op_check(op, "/full", 7); }
static void not_empty(zke_op *op) { zke_op_delete(op, "/full", -1); }
static void node_exists(zke_op *op) {
  zke_op_create(op, "/full", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
}
static void no_request(zke_op *op) { zke_op_fail(op, ZKE_UNIMPLEMENTED); }
static void no_arguments(zke_op *op) { zke_op_fail(op, ZKE_BADARGUMENTS); }
static void no_marshal(zke_op *op) { zke_op_fail(op, ZKE_MARSHALLINGERROR); }

/* The codes on which this recipe looks again, or removes nothing after all, and
 * others; as those of the caller's operations they end the call. */
static const refusal refusals[] = {
    {ZKE_NONODE, no_node},
    {ZKE_BADVERSION, bad_version},
    {ZKE_NOTEMPTY, not_empty},
    {ZKE_NODEEXISTS, node_exists},
    {ZKE_UNIMPLEMENTED, no_request},
    {ZKE_BADARGUMENTS, no_arguments},
    {ZKE_MARSHALLINGERROR, no_marshal},
};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

static void make_full(void) {
  ck_ok(zke_create(admin, "/full", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_ok(zke_create(admin, "/full/x", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
}

/* The results of a call of two operations, of which the second was refused. */
static void ck_refused(const zke_op_result *results, int rc) {
  ck_assert_int_eq(results[0].rc, 0);
  ck_assert_ptr_null(results[0].path);
  ck_assert_int_eq(results[1].rc, rc);
}

/* A vote and an acknowledgement, of any and of the last, that an operation of
 * the caller's refuses: its code, nothing done, nothing given. */
TEST_LOOP(a_refusal_has_the_operations_code, 0, REFUSALS) {
  const refusal *refuses = &refusals[_i];
  zke_op ops[2];
  zke_op_result results[2];
  begin(ZKE_TWO_PHASE_SITES, 0);
  make_full();
  zke_op_create(&ops[0], row("a"), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  refuses->fill(&ops[1]);
  for (int vote = C; vote <= A; vote++) {
    memset(results, 1, sizeof results);
    ck_rc(zke_two_phase_vote_with(t[0], vote, ops, 2, results, NULL),
          refuses->rc);
    ck_refused(results, refuses->rc);
    ck_rc(zke_two_phase_vote_with(t[0], vote, ops, 2, NULL, NULL), refuses->rc);
    zke_two_phase_status *st = status();
    ck_assert_int_eq(st->sites[0].vote, 0);
    ck_assert_int_eq(st->decision, 0);
    zke_free(st);
  }
  ck_row("a", "", -1);
  for (int i = 0; i < SITES; i++) ck_vote_row(t[i], site_names[i], DONE);
  dispatch_sites();
  for (int i = SITES - 1; i >= 0; i--) { /* "a" is the last one */
    zke_op_set(&ops[0], row(site_names[i]), "C", 1, -1);
    ck_rc(zke_two_phase_ack_with(t[i], ops, 2, results, NULL), refuses->rc);
    ck_refused(results, refuses->rc);
    ck_row(site_names[i], "?", 0);
    if (i == 0) ck_ok(zke_two_phase_ack(tc));
    ck_rc(zke_two_phase_ack_with(t[i], ops, 2, NULL, NULL), refuses->rc);
    ck_ok(zke_exists(admin, TX, NULL, NULL, NULL));
    ck_ack_row(t[i], site_names[i], C, DONE);
  }
  ck_rc(zke_exists(admin, TX, NULL, NULL, NULL), ZKE_NONODE);
  end();
}

/* The results are the caller's, as those of zke_multi() are. */
TEST(operations_have_results) {
  zke_op ops[2];
  zke_op_result results[2];
  begin(ZKE_TWO_PHASE_SITES, 0);
  zke_op_create(&ops[0], "/r-", "?", 1, ZKE_OPEN_ACL,
                ZKE_PERSISTENT_SEQUENTIAL);
  zke_op_create(&ops[1], row("a"), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_two_phase_vote_with(t[0], C, ops, 2, results, NULL));
  ck_assert_ptr_nonnull(strstr(results[0].path, "/r-0"));
  ck_assert_str_eq(results[1].path, row("a"));
  zke_results_clear(results, 2);
  memset(results, 1, sizeof results);
  ck_ok(zke_two_phase_vote_with(t[0], C, ops, 2, results, NULL));
  ck_assert_ptr_null(results[0].path); /* nothing was done */
  ck_assert_int_eq(results[1].rc, 0);
  ck_ok(zke_two_phase_abort(tc, NULL));
  zke_op_set(&ops[1], row("a"), "A", 1, 0);
  ck_ok(zke_two_phase_ack_with(t[0], ops, 2, results, NULL));
  ck_assert_int_eq(results[1].stat.version, 1);
  zke_results_clear(results, 2);
  for (int i = 1; i < SITES; i++) ck_ok(zke_two_phase_ack(t[i]));
  end();
}

/* Operations that cannot be, and parties that take none. */
TEST(wrong_operations) {
  zke_op op, reads;
  zke_op_result result;
  zke_two_phase *onlooker;
  begin(ZKE_TWO_PHASE_SITES, 0);
  zke_op_create(&op, row("a"), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_get(&reads, "/");
#define VOTE(who, vote, ops, count) \
  zke_two_phase_vote_with(who, vote, ops, count, &result, NULL)
#define ACK(who, ops, count) \
  zke_two_phase_ack_with(who, ops, count, &result, NULL)
  ck_rc(VOTE(NULL, C, &op, 1), ZKE_BADARGUMENTS);
  ck_rc(VOTE(t[0], C, NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(VOTE(t[0], C, &op, -1), ZKE_BADARGUMENTS);
  ck_says("-1 operations");
  ck_rc(VOTE(t[0], C, &op, INT32_MAX), ZKE_BADARGUMENTS);
  ck_rc(VOTE(t[0], 3, &op, 1), ZKE_BADARGUMENTS);
  ck_rc(VOTE(t[0], C, &reads, 1), ZKE_BADARGUMENTS);
  ck_rc(VOTE(tc, C, &op, 1), ZKE_MISUSE);
  ck_rc(ACK(NULL, &op, 1), ZKE_BADARGUMENTS);
  ck_rc(ACK(t[0], NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(ACK(t[0], &op, -1), ZKE_BADARGUMENTS);
  ck_rc(ACK(t[0], &op, 1), ZKE_MISUSE);
  ck_says("is undecided");
  ck_ok(zke_two_phase_open(admin, BASE, "tx", NULL, NULL, &onlooker));
  ck_rc(ACK(onlooker, &op, 1), ZKE_MISUSE);
  zke_two_phase_free(onlooker);
  ck_ok(zke_two_phase_abort(tc, NULL));
  ck_rc(ACK(tc, &op, 1), ZKE_MISUSE);
  ck_says("only a site takes operations along");
  op.path = "row";
  ck_rc(ACK(t[0], &op, 1), ZKE_MARSHALLINGERROR);
  ck_rc(ACK(t[0], &reads, 1), ZKE_BADARGUMENTS);
  ck_row("a", "", -1);
  all_decide(A);
  die(zs[0]);
  ck_rc(ACK(t[0], &op, 1), ZKE_INVALIDSTATE);
#undef VOTE
#undef ACK
  end();
}

/* What something else has written is no endless loop: neither a vote with a
 * version that none has, nor a decision's sign without one. */
TEST_LOOP(foreign_writes_end_a_vote, 0, 2) {
  char path[100];
  zke_strings *names;
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_children(admin, TX, NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    if (_i && strncmp(names->data[i], "id-", 3) != 0) continue;
    if (!_i && strcmp(names->data[i], "vote-a") != 0) continue;
    snprintf(path, sizeof path, TX "/%s", names->data[i]);
    ck_ok(zke_set(admin, path, "", 0, -1, NULL));
    ck_ok(zke_set(admin, path, "", 0, -1, NULL));
  }
  zke_free(names);
  ck_rc(zke_two_phase_vote(t[0], C), ZKE_RUNTIMEINCONSISTENCY);
  ck_says("something else has written to " TX);
  ck_rc(vote_row(t[0], "a", NULL), ZKE_RUNTIMEINCONSISTENCY);
  ck_row("a", "", -1);
  ck_ok(zke_two_phase_abort(tc, "somebody was here"));
  all_decide(A);
  end();
}

/* A decision that is none, made by something else, ends the calls that rest on
 * it, and what looks without a call.  When it has gone, all goes on. */
TEST(a_decision_of_something_elses_is_told) {
  zke_two_phase *late;
  begin(ZKE_TWO_PHASE_SITES, 0);
  for (int i = 1; i < SITES; i++) ck_ok(zke_two_phase_vote(t[i], C));
  ck_ok(zke_create(admin, TX "/decision", "maybe", 5, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_rc(zke_two_phase_abort(tc, "why"), ZKE_RUNTIMEINCONSISTENCY);
  ck_says("something else has written to " TX);
  ck_rc(zke_two_phase_vote(t[0], C), ZKE_RUNTIMEINCONSISTENCY);
  ck_rc(zke_two_phase_step(t[1]), ZKE_RUNTIMEINCONSISTENCY);
  ck_rc(zke_two_phase_wait(t[1], soon(zs[1]), NULL), ZKE_RUNTIMEINCONSISTENCY);
  ck_rc(zke_two_phase_open(admin, BASE, "tx", NULL, NULL, &late),
        ZKE_RUNTIMEINCONSISTENCY);
  dispatch_sites();
  ck_ok(zke_delete(admin, TX "/decision", -1));
  ck_ok(zke_two_phase_vote(t[0], C));
  all_decide(C);
  end();
}

/* A mark from before the call is none of it, even with the id that the call is
 * going to have. */
TEST(a_mark_from_before_is_anothers) {
  char id[ZKE_RECIPE_GUID], next[ZKE_RECIPE_GUID];
  begin(ZKE_TWO_PHASE_SITES, 0);
  zke_recipe_guid(zs[0], id);
  memcpy(next, id, sizeof id);
  snprintf(next + 24, sizeof next - 24, "%012lx",
           strtoul(id + 24, NULL, 16) + 1);
  ck_ok(zke_create(admin, TX "/work-a", next, (int)strlen(next), ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_vote_row(t[0], "a", BEFORE);
  ck_row("a", "", -1);
  ck_ok(zke_two_phase_vote(t[1], A));
  all_decide(A);
  end();
}

/* A kept session goes on in another process.  No id of that one is one that the
 * first has given: so what came later under the same name is told apart. */
TEST(another_process_gives_other_ids) {
  enum { NUMBER = 24 }; /* where the session has ended */
  char own[ZKE_RECIPE_GUID], others[ZKE_RECIPE_GUID];
  int fds[2];
  zke *session = test_open(":memory:");
  zke_recipe_guid(session, own);
  ck_assert_int_eq(pipe(fds), 0);
  pid_t child = fork();
  if (child == 0) {
    zke_recipe_guid(session, others);
    _exit(write(fds[1], others, sizeof others) != sizeof others);
  }
  ck_assert_int_eq(read(fds[0], others, sizeof others), sizeof others);
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  for (int i = 0; i < 3; i++) {
    zke_recipe_guid(session, own);
    ck_assert_str_ne(own + NUMBER, others + NUMBER);
  }
  close(fds[0]);
  close(fds[1]);
  ck_ok(zke_close(session));
}

/* Foreign znodes keep the transaction, so the last acknowledgement is written
 * instead: with its operations, once. */
TEST(the_last_ack_among_foreign_znodes) {
  begin(ZKE_TWO_PHASE_SITES, 0);
  ck_ok(zke_create(admin, TX "/foreign", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  for (int i = 0; i < SITES; i++) ck_vote_row(t[i], site_names[i], DONE);
  dispatch_sites();
  ck_ok(zke_two_phase_ack(tc));
  all_ack_rows(C);
  ck_ack_row(t[2], "c", A, BEFORE);
  ck_row("c", "C", 1);
  ck_ok(zke_delete(admin, TX "/foreign", -1));
  end();
}

/* ---- lost replies ---- */

/* 0: no reply is lost. */
static const int losses[] = {0, ZKE_TEST_FAIL_BEFORE, ZKE_TEST_FAIL_AFTER};

/* Whether the step was made before its reply was lost or not: it is made once,
 * and the call knows that it was the one; but for a transaction that has gone
 * by its lost step. */
TEST_LOOP(lost_replies_of_operations, 0, 12) {
  int loss = losses[_i % 3];
  begin(_i / 3, 0);
  for (int i = 0; i < SITES; i++) {
    if (loss) ck_ok(zke_test_fail(zs[i], loss, 0));
    ck_vote_row(t[i], site_names[i], DONE);
    ck_row(site_names[i], "?", 0);
  }
  dispatch_sites();
  ck_ok(zke_two_phase_ack(tc));
  for (int i = 0; i < SITES; i++) {
    bool gone = i == SITES - 1 && loss == ZKE_TEST_FAIL_AFTER;
    if (loss) ck_ok(zke_test_fail(zs[i], loss, 0));
    ck_ack_row(t[i], site_names[i], C, gone ? GONE : DONE);
    ck_row(site_names[i], "C", 1);
  }
  ck_rc(zke_exists(admin, TX, NULL, NULL, NULL), ZKE_NONODE);
  end();
}

/* ---- another process in the middle of a call ---- */

/* The caller is a site, in an object of its own; the intruder acts between two
 * of its steps. */
static zke_two_phase *callers, *intruders;

/* Begin a transaction of sites on `caller` and `intruder`; the coordinator goes
 * at once.  The rows of the round before go. */
static void begin_two(const char *const *sites, int count) {
  admin = intruder;
  for (int i = 0; i < 2; i++) zke_delete(intruder, row(site_names[i]), -1);
  ck_ok(zke_two_phase_begin(intruder, BASE, "tx", "", 0, sites, count, NULL,
                            &tc));
  zke_two_phase_free(tc);
  tc = NULL;
  ck_ok(zke_two_phase_open(caller, BASE, "tx", "a", NULL, &callers));
  ck_ok(zke_two_phase_open(intruder, BASE, "tx", sites[count - 1], NULL,
                           &intruders));
}

static void end_two(void) {
  zke_two_phase_free(callers);
  zke_two_phase_free(intruders);
  ck_rc(zke_exists(intruder, TX, NULL, NULL, NULL), ZKE_NONODE);
}

static void others_ack(void) { ck_ok(ack_row(intruders, "b", C, NULL)); }

/* Two sites acknowledge at the same moment: each is the last but one or the
 * last, whenever the other comes.  Both rows are written once. */
TEST(acks_meet_at_every_moment) {
  int n = 0, was_last = 0;
  open_two();
  do {
    int done = -1;
    begin_two(site_names, 2);
    ck_vote_row(callers, "a", DONE);
    ck_vote_row(intruders, "b", DONE);
    ck_ok(zke_two_phase_step(callers));
    act_at(++n, others_ack);
    ck_ok(ack_row(callers, "a", C, &done));
    ck_assert_int_eq(done, DONE);
    was_last += zke_exists(caller, TX, NULL, NULL, NULL) == ZKE_NONODE;
    bool came = acted();
    if (!came) others_ack();
    ck_row("a", "C", 1);
    ck_row("b", "C", 1);
    end_two();
    if (!came) break;
  } while (n < 100);
  ck_assert_int_gt(was_last, 0);
  ck_assert_int_gt(n, 1);
  close_two();
}

/* The transaction is aborted and done with, and one of its name commits. */
static void next_commits(void) {
  ck_ok(zke_two_phase_abort(intruders, "late"));
  ck_ok(zke_two_phase_ack(intruders));
  zke_two_phase_free(intruders);
  ck_rc(zke_exists(intruder, TX, NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_two_phase_begin(intruder, BASE, "tx", "", 0, site_names, 1, NULL,
                            &tc));
  ck_ok(zke_two_phase_open(intruder, BASE, "tx", "a", NULL, &intruders));
  ck_ok(zke_two_phase_vote(intruders, C));
}

/* An onlooker is never told what became of a later transaction of the name. */
TEST(a_later_decision_is_anothers) {
  int n = 0, lost = 0;
  open_two();
  do {
    begin_two(site_names, 1);
    zke_two_phase_free(callers);
    ck_ok(zke_two_phase_open(caller, BASE, "tx", NULL, NULL, &callers));
    act_between(++n, next_commits);
    ck_ok(zke_two_phase_step(callers));
    bool came = acted();
    if (!came) next_commits();
    ck_ok(zke_two_phase_step(callers));
    ck_assert_int_eq(zke_two_phase_state(callers), LOST);
    lost += came;
    ck_ok(zke_two_phase_wait(intruders, soon(intruder), NULL));
    ck_ok(zke_two_phase_ack(tc));
    zke_two_phase_free(tc);
    tc = NULL;
    ck_ok(zke_two_phase_ack(intruders));
    end_two();
    if (!came) break;
  } while (n < 100);
  ck_assert_int_gt(lost, 2);
  close_two();
}

/* The vote's znode of the caller's goes before each change, and is there again
 * before each look. */
static void vote_goes(void);
static void vote_comes(void) {
  zke_create(intruder, TX "/vote-a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
             NULL);
  act_at(1, vote_goes);
}

static void vote_goes(void) {
  zke_delete(intruder, TX "/vote-a", -1);
  act_between(1, vote_comes);
}

/* A vote for which others are always quicker ends with the call's time; nobody
 * is accused of having written to it. */
TEST(a_vote_that_is_never_quick_enough_ends) {
  open_two();
  begin_two(site_names, 2);
  ck_ok(zke_two_phase_step(callers));
  int64_t limit = zke_limit(caller, zke_now(caller) + 100);
  act_at(1, vote_goes);
  int rc = zke_two_phase_vote(callers, C);
  acted();
  zke_limit(caller, limit);
  ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  ck_says("others changed the tree at each look");
  zke_create(intruder, TX "/vote-a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
             NULL);
  ck_ok(zke_two_phase_vote(callers, A));
  ck_ok(zke_two_phase_ack(callers));
  ck_ok(zke_two_phase_ack(intruders));
  end_two();
  close_two();
}

/* What the site's next process does while the first one stands still in its
 * vote: it finds the transaction aborted, undoes what there is, and
 * acknowledges. */
static void others_undo(void) {
  zke_op op;
  int done = -1;
  ck_ok(zke_two_phase_abort(intruders, "late"));
  ck_ok(vote_row(intruders, "a", &done));
  zke_op_delete(&op, row("a"), -1);
  ck_ok(zke_two_phase_ack_with(intruders, &op, done == BEFORE, NULL, NULL));
}

/* A site's process that was stopped in its vote, for so long that another one
 * has undone its part, does nothing more when it goes on (T5). */
TEST(a_stopped_vote_leaves_no_row) {
  static const char *const sites[] = {"b", "a"};
  zke_two_phase *b;
  int n = 0, late = 0;
  open_two();
  do {
    int done = -1;
    begin_two(sites, 2);
    act_at(++n, others_undo);
    int rc = vote_row(callers, "a", &done);
    bool came = acted();
    ck_ok(rc);
    ck_assert_int_eq(zke_exists(intruder, row("a"), NULL, NULL, NULL) == ZKE_OK,
                     !came);
    late += came && done == NOT_DONE;
    if (!came) others_undo();
    ck_ok(zke_two_phase_open(intruder, BASE, "tx", "b", NULL, &b));
    ck_ok(zke_two_phase_ack(b));
    zke_two_phase_free(b);
    end_two();
    if (!came) break;
  } while (n < 100);
  ck_assert_int_gt(late, 0);
  close_two();
}

/* ---- proof ---- */

static int form_used;

/* Note what a site does by a decision, as a site would: before it tells that
 * it has. */
static int do_it(zke *s, const char *site, int decision) {
  char path[32];
  snprintf(path, sizeof path, "/done-%s", site);
  int rc = zke_create(s, path, decision == C ? "C" : "A", 1, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT, NULL, NULL);
  if (rc == ZKE_NODEEXISTS) return ZKE_OK;
  if (rc == ZKE_CONNECTIONLOSS) return do_it(s, site, decision);
  return rc;
}

static int finish(zke *s, zke_two_phase *tx, const char *site) {
  int decision = 0;
  int rc = zke_two_phase_wait(tx, zke_now(s) + recipe_patience_ms, &decision);
  if (rc == ZKE_OK) rc = do_it(s, site, decision);
  return rc == ZKE_OK ? zke_two_phase_ack(tx) : rc;
}

/* One process that is coordinator and both sites. */
static int use(zke *s) {
  zke_two_phase_options o = {.size = sizeof o, .form = form_used};
  zke_two_phase *tx = NULL, *a = NULL, *b = NULL;
  int rc = zke_two_phase_begin(s, BASE, "tx", "x", 1, site_names, 2, &o, &tx);
  if (rc == ZKE_OK) rc = zke_two_phase_open(s, BASE, "tx", "a", NULL, &a);
  if (rc == ZKE_OK) rc = zke_two_phase_open(s, BASE, "tx", "b", NULL, &b);
  if (rc == ZKE_OK) rc = zke_two_phase_vote(a, C);
  if (rc == ZKE_OK) rc = zke_two_phase_vote(b, C);
  if (rc == ZKE_OK)
    rc = zke_two_phase_wait(tx, zke_now(s) + recipe_patience_ms, NULL);
  if (rc == ZKE_OK) rc = finish(s, a, "a");
  if (rc == ZKE_OK) rc = finish(s, b, "b");
  if (rc == ZKE_OK) rc = zke_two_phase_ack(tx);
  zke_two_phase_free(a);
  zke_two_phase_free(b);
  zke_two_phase_free(tx);
  return rc;
}

/* What a site has done; '?': nothing. */
static char done(zke *s, const char *site) {
  char path[32], *data = NULL, what = '?';
  snprintf(path, sizeof path, "/done-%s", site);
  if (zke_get(s, path, NULL, NULL, &data, NULL, NULL) == ZKE_OK) what = *data;
  zke_free(data);
  return what;
}

/* Is no transaction under way any more? */
static bool nothing_pending(zke *s) {
  zke_strings *names;
  ck_ok(zke_two_phase_pending(s, BASE, NULL, NULL, NULL, &names));
  bool nothing = names->count == 0;
  zke_free(names);
  if (!nothing) zke_wait(s, zke_now(s) + 1); /* notices deaths */
  return nothing;
}

/* A site comes again: where it has not voted it may still abort. */
static zke_two_phase *come_again(zke *s, const char *site) {
  zke_two_phase *tx = NULL;
  int rc = zke_two_phase_open(s, BASE, "tx", site, NULL, &tx);
  if (rc == ZKE_NONODE) return NULL;
  ck_ok(rc);
  if (zke_two_phase_vote(tx, A) != ZKE_OK) ck_ok(zke_two_phase_vote(tx, C));
  return tx;
}

/* Whatever happened, both sites end up with the same; the last step waits
 * for the coordinator's death to be noticed. */
static void check(zke *other, int rc) {
  zke_two_phase *tx[2];
  for (int i = 0; i < 2; i++) tx[i] = come_again(other, site_names[i]);
  for (int i = 0; i < 2; i++) {
    if (tx[i]) ck_ok(finish(other, tx[i], site_names[i]));
    zke_two_phase_free(tx[i]);
  }
  ck_until(nothing_pending(other), 5000);
  ck_rc(zke_exists(other, TX, NULL, NULL, NULL), ZKE_NONODE);
  ck_assert_int_eq(done(other, "a"), done(other, "b"));
  if (rc == ZKE_OK) ck_assert_int_eq(done(other, "a"), 'C');
}

static const recipe_use tx_use = {"two_phase", NULL, use, check};

/* The three tests of RECIPE_TESTS() (recipes.h), for each form. */
TEST_LOOP(a_death_anywhere_lets_others_go_on, 0, 4) {
  form_used = _i;
  ck_assert_int_gt(recipe_deaths(&tx_use), 20);
}

/* … */
TEST_LOOP(a_lost_reply_is_made_good, 0, 4) {
  form_used = _i;
  recipe_lost_replies(&tx_use);
}

/* … */
TEST_LOOP(a_fault_leaves_nothing_behind, 0, 4) {
  setenv("FAULT_MOST", "15", 0);
  form_used = _i;
  recipe_faults(&tx_use);
}

/* ---- random histories, by processes ---- */

enum { TRANSACTIONS = 24, PROCESSES = SITES + 1 };
static unsigned votes_seed;

/* What a site votes: it is the same after each restart. */
static bool votes_commit(int tx, int site) {
  unsigned x = votes_seed + (unsigned)tx * 7919u + (unsigned)site * 104729u;
  x = (x ^ x >> 15) * 0x2c1b3c6du;
  x = (x ^ x >> 12) * 0x297a2d39u;
  return (x >> 16) % 10 != 0;
}

static int form_of(int tx) { return (tx + (int)votes_seed) & 3; }

/* Does this seed let some commit, of those without a limit, and some abort? */
static bool asks_for_either(void) {
  int commit = 0, abort = 0;
  for (int n = 0; n < TRANSACTIONS; n++) {
    bool all = true;
    for (int i = 0; i < SITES; i++) all = all && votes_commit(n, i);
    commit += all && form_of(n) == ZKE_TWO_PHASE_SITES;
    abort += !all;
  }
  return commit >= 4 && abort >= 4;
}

/* The test's seed, or the next one that will do: which gives itself. */
static void choose_votes(void) {
  votes_seed = test_seed();
  if (asks_for_either()) return;
  while (!asks_for_either()) votes_seed++;
  printf("SEED=%u\n", votes_seed);
  fflush(stdout);
}

/* A site's own record, which it keeps to whatever happens. */
static void record(zke *s, const char *name, int site, int decision) {
  char path[64], *data = NULL;
  snprintf(path, sizeof path, "/log/%s-%d", name, site);
  const char *word = decision == C ? "C" : "A";
  int rc =
      zke_create(s, path, word, 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  if (rc != ZKE_NODEEXISTS) {
    if (rc != ZKE_OK) _exit(3);
    return;
  }
  if (zke_get(s, path, NULL, NULL, &data, NULL, NULL) != ZKE_OK) _exit(4);
  if (*data != *word) _exit(5); /* changed its mind */
  zke_free(data);
}

/* A site's part in one transaction: vote, wait a while, record the decision,
 * acknowledge.  It comes back to what it did not finish. */
static void serve(zke *s, const char *name, int site) {
  zke_two_phase *tx;
  int decision;
  if (zke_two_phase_open(s, BASE, name, site_names[site], NULL, &tx) != ZKE_OK)
    return; /* gone, or one's former self is dying */
  int rc = zke_two_phase_vote(tx, votes_commit(atoi(name + 1), site) ? C : A);
  if (rc == ZKE_OK) rc = zke_two_phase_wait(tx, zke_now(s) + 50, &decision);
  if (rc == ZKE_OK) {
    record(s, name, site, decision);
    rc = zke_two_phase_ack(tx);
  }
  if (rc != ZKE_OK && rc != ZKE_OPERATIONTIMEOUT && rc != ZKE_LOST) _exit(6);
  zke_two_phase_free(tx);
}

/* A site that serves whatever is pending, until the test's end. */
static void be_site(zke *s, int site) {
  for (;;) {
    zke_strings *names = NULL;
    if (zke_two_phase_pending(s, BASE, site_names[site], NULL, NULL, &names) !=
        ZKE_OK)
      _exit(7);
    for (int i = 0; i < names->count; i++) serve(s, names->data[i], site);
    zke_free(names);
    if (zke_exists(s, "/end", NULL, NULL, NULL) == ZKE_OK) _exit(0);
    zke_wait(s, zke_now(s) + 2);
  }
}

/* Begins one after the other; after a restart where it was killed.  Those of
 * the first form have no limit, so that some commit however slow all is. */
static void coordinate(zke *s) {
  for (int n = 0; n < TRANSACTIONS; n++) {
    char name[16], mark[32];
    zke_two_phase *tx = NULL;
    zke_two_phase_options o = {.size = sizeof o};
    o.form = form_of(n);
    if (o.form != ZKE_TWO_PHASE_SITES) o.limit_ms = 400;
    snprintf(name, sizeof name, "t%d", n);
    snprintf(mark, sizeof mark, "/begun/%s", name);
    int rc =
        zke_create(s, mark, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
    if (rc == ZKE_NODEEXISTS) continue;
    if (rc == ZKE_OK)
      rc =
          zke_two_phase_begin(s, BASE, name, "", 0, site_names, SITES, &o, &tx);
    if (rc == ZKE_OK) rc = zke_two_phase_wait(tx, zke_now(s) + 30, NULL);
    if (rc != ZKE_OK && rc != ZKE_OPERATIONTIMEOUT) _exit(8);
    zke_two_phase_free(tx);
  }
  _exit(0);
}

/* A site or, as the last, the coordinator, in a process of its own. */
static pid_t start_process(int role) {
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid > 0) return pid;
  zke *s;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  zke_options o = {.size = sizeof o,
                   .identity = role < SITES ? site_names[role] : "master"};
  if (zke_open(test_path("db"), &o, &s) != ZKE_OK) _exit(2);
  if (role < SITES) be_site(s, role);
  coordinate(s);
  _exit(0);
}

/* One of the processes has ended: by the killer, or well. */
static bool reap(pid_t pid, int role) {
  int state;
  if (waitpid(pid, &state, WNOHANG) != pid) return false;
  bool killed = WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL;
  ck_assert_msg(killed || (WIFEXITED(state) && WEXITSTATUS(state) == 0),
                "process %d ended with %x", role, (unsigned)state);
  return !killed;
}

/* All sites recorded the same decision, and none to commit against a vote;
 * there were some of either kind. */
static void check_history(zke *s) {
  int committed = 0, aborted = 0;
  for (int n = 0; n < TRANSACTIONS; n++) {
    char path[64], *data, all = 0;
    bool commit = true;
    for (int i = 0; i < SITES; i++) {
      commit = commit && votes_commit(n, i);
      snprintf(path, sizeof path, "/log/t%d-%d", n, i);
      if (zke_get(s, path, NULL, NULL, &data, NULL, NULL) != ZKE_OK) continue;
      ck_assert_msg(!all || all == *data, "t%d: two decisions", n);
      all = *data;
      zke_free(data);
    }
    ck_assert_msg(all != 'C' || commit, "t%d: committed against a vote", n);
    committed += all == 'C';
    aborted += all == 'A';
  }
  ck_assert_int_gt(committed, 0);
  ck_assert_int_gt(aborted, 0);
}

/* Coordinator and sites are killed at random and begin again: all sites decide
 * alike, each keeps to its decision, and nothing stays pending. */
TEST(random_histories) {
  pid_t pids[PROCESSES];
  choose_votes();
  srand(votes_seed);
  (void)test_path("db"); /* the children share the directory */
  pid_t first = fork();
  if (first == 0) {
    zke *s = test_open(test_path("db"));
    const char *const paths[] = {"/log", "/begun", BASE};
    for (int i = 0; i < 3; i++)
      if (zke_ensure_path(s, paths[i], ZKE_PERSISTENT, ZKE_FOREVER)) _exit(1);
    zke_close(s);
    _exit(0);
  }
  int state;
  ck_assert_int_eq(waitpid(first, &state, 0), first);
  ck_assert_int_eq(state, 0);
  for (int i = 0; i < PROCESSES; i++) pids[i] = start_process(i);
  int64_t kill_at = test_now() + 20;
  for (bool running = true; running;) {
    test_pause();
    if (test_now() < kill_at) continue;
    kill_at = test_now() + 5 + rand() % 40;
    int role = rand() % PROCESSES;
    kill(pids[role], SIGKILL);
    while (waitpid(pids[role], &state, WNOHANG) == 0) test_pause();
    bool well = WIFEXITED(state);
    ck_assert_msg(!well || WEXITSTATUS(state) == 0, "process %d: %x", role,
                  (unsigned)state);
    if (well && role == SITES)
      running = false;
    else
      pids[role] = start_process(role);
  }
  zke *s = test_open(test_path("db"));
  int64_t limit = test_now() + test_patience(8000);
  while (!nothing_pending(s) && test_now() < limit) {
    zke_wait(s, zke_now(s) + 5);
    for (int i = 0; i < SITES; i++) ck_assert(!reap(pids[i], i));
  }
  ck_ok(zke_create(s, "/end", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  for (int i = 0; i < SITES; i++) {
    bool ended = false;
    ck_until(ended || (ended = reap(pids[i], i)), 5000);
  }
  ck_assert(nothing_pending(s)); /* every one came to its end */
  check_history(s);
  ck_ok(zke_check(s, NULL, NULL));
  ck_ok(zke_close(s));
}
