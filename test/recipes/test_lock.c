/* test_lock.c - what only locks promise (recipes/lock.h)
 *
 * test_lines tests what all lines promise.  Here are reentrance, theft, grants,
 * circles of several parties, and the lists of waits.  Several sessions on one
 * store make interleavings step by step; threads and processes wait.  Deaths,
 * lost replies and faults come from recipes.h.
 */
#include "lines.h"
#include "recipes.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/lock.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"

/* ---- sessions and locks ---- */

static zke_lock *make(zke *session, const char *path) {
  zke_lock *lock;
  ck_ok(zke_lock_new(session, path, NULL, &lock));
  return lock;
}

static int run_acquire(call *c) {
  return zke_lock_acquire(c->object, c->deadline);
}

/* Acquire it on another thread. */
static void acquire_aside(call *c, zke_lock *lock, int64_t deadline) {
  call_begin(c, run_acquire, lock, 0, deadline);
}

/* The party at a place of the line, as others see it, and its path. */
static zke_party party_at(zke *session, int place, char path[300]) {
  zke_party_list *list;
  ck_ok(zke_lock_parties(session, PATH, &list));
  ck_assert_int_gt(list->count, place);
  zke_party p = list->data[place];
  snprintf(path, 300, PATH "/%s", p.name);
  p.name = p.identity = p.data = NULL;
  zke_free(list);
  return p;
}

/* ---- one contender ---- */

/* P11: invalid arguments are refused; nothing is made. */
TEST(arguments_are_checked) {
  open_sessions();
  ck_rc(zke_lock_break(z[0], PATH, 0), ZKE_NONODE);
  ck_rc(zke_lock_do(z[0], PATH, 0, NULL, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(entries(z[0], PATH), 0);
}

/* An entry with a guid of go-zookeeper, which sees ours, counts in the line.
 */
TEST(an_entry_of_go_zookeeper_keeps_out) {
  static const char entry[] = PATH "/_c_0123456789abcdef0123456789abcdef-lock-";
  char *first, *second;
  open_sessions();
  zke_lock *lock = make(z[0], PATH);
  ck_ok(zke_ensure_path(z[3], PATH, ZKE_PERSISTENT, ZKE_FOREVER));
  ck_ok(zke_create(z[3], entry, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                   &first, NULL));
  ck_rc(zke_lock_try(lock), ZKE_HELD);
  ck_says("dan");
  ck_ok(zke_lock_start(lock));
  ck_ok(zke_create(z[3], entry, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                   &second, NULL));
  ck_ok(zke_delete(z[3], first, -1));
  dispatch_all();
  ck_assert_int_eq(zke_lock_state(lock), ZKE_LOCK_HELD);
  zke_party_list *list;
  ck_ok(zke_lock_parties(z[2], PATH, &list));
  ck_assert_int_eq(list->count, 2);
  zke_free(list);
  zke_free(first);
  zke_free(second);
  zke_lock_free(lock);
}

/* ---- reentrance ---- */

/* Each acquisition of a reentrant lock needs its release: it is held until the
 * last one, under one token. */
TEST(a_reentrant_lock_counts) {
  line_reentrant = true;
  open_line(LINE_LOCK);
  play("ann acquire");
  int64_t token = zke_lock_token(party[0]);
  play(
      "ann try; ann acquire_now;"
      "ann release;"
      "bob try -> HELD;"
      "ann release;"
      "bob try -> HELD");
  ck_assert_int_eq(zke_lock_token(party[0]), token);
  play(
      "ann release;"
      "bob try;"
      "ann release -> LOST");
}

/* A loss ends all acquisitions, whether a call finds it or a dispatch reports
 * it. */
TEST(a_lost_reentrant_lock_begins_anew) {
  line_reentrant = true;
  open_line(LINE_LOCK);
  for (int i = 0; i < 2; i++) {
    play("ann acquire; ann acquire; ann loses");
    play(i ? "ann dispatches" : "ann acquire -> LOST");
    play(
        "ann is LOST;"
        "ann acquire; ann release;"
        "ann is OUT;"
        "line");
  }
}

/* A start that gets the lock in a dispatch is an acquisition too. */
TEST(a_start_counts_whenever_it_got_the_lock) {
  line_reentrant = true;
  play_line(LINE_LOCK,
            "ann acquire; bob start; ann release; all dispatch;"
            "bob is HELD;"
            "bob acquire; bob release;"
            "bob is HELD;"
            "bob release;"
            "bob is OUT");
}

/* ---- losing it ---- */

/* A break names the token that the caller saw, so it cannot hit a later holder.
 * The former holder hears LOST, and its release takes nothing from the next
 * one. */
TEST(a_broken_lock_goes_to_the_next) {
  char path[300];
  open_line(LINE_LOCK);
  play("ann acquire; bob start");
  int64_t token = zke_lock_token(party[0]);
  ck_assert_int_eq(party_at(z[2], 0, path).mzxid, token);
  ck_rc(zke_lock_break(z[2], PATH, token + 1), ZKE_NONODE);
  play("line ann (bob)");
  ck_ok(zke_lock_break(z[2], PATH, token));
  ck_rc(zke_lock_break(z[2], PATH, token), ZKE_NONODE);
  play(
      "all dispatch;"
      "told ann HELD, ann LOST, bob HELD;"
      "ann is LOST; bob is HELD;"
      "ann release -> LOST;"
      "bob check"); /* … and released no other's */
}

/* ---- stealing ---- */

/* A thief takes the holder's place, with a greater token; the waiters keep
 * theirs, after it. */
TEST(a_thief_holds_and_the_line_stays) {
  play_line(LINE_LOCK,
            "ann acquire; bob start; cid steal;"
            "cid is HELD;"
            "all dispatch;"
            "told ann HELD, cid HELD, ann LOST;"
            "line cid (bob);"
            "bob is WAITING;"
            "cid steal -> MISUSE;"
            "cid release; all dispatch;"
            "bob is HELD");
}

/* A steal of a free lock just gets it, and leaves nothing else. */
TEST(stealing_a_free_lock_gets_it) {
  play_line(LINE_LOCK,
            "ann steal;"
            "ann is HELD;"
            "line ann;"
            "ann release;"
            "line");
}

/* A waiter may steal: its old place is removed. */
TEST(a_waiter_may_steal) {
  play_line(LINE_LOCK,
            "ann start; bob start; cid start; cid steal;"
            "line cid (bob);"
            "cid is HELD;"
            "all dispatch;"
            "bob is WAITING;"
            "cid release; all dispatch;"
            "bob is HELD");
}

/* A waiter may also steal if it is already first but has not looked yet. */
TEST(a_waiter_whose_turn_has_come_may_steal) {
  play_line(LINE_LOCK,
            "ann acquire; bob start; ann release; bob steal;"
            "bob is HELD;"
            "line bob");
}

/* A thief does not touch another kind. */
TEST(a_thief_leaves_another_kind_alone) {
  open_line(LINE_LOCK);
  ck_ok(zke_ensure_path(z[0], PATH, ZKE_PERSISTENT, ZKE_FOREVER));
  ck_ok(zke_set(z[0], PATH, "zkembed queue\n", 14, -1, NULL));
  play(
      "ann steal -> OTHERKIND;"
      "said is of kind queue, not lock");
}

typedef struct theft {
  zke_lock *lock;
  int stolen, again;
} theft;

static void *steal_twice(void *arg) {
  theft *t = arg;
  t->stolen = zke_lock_steal(t->lock);
  t->again = zke_lock_acquire(t->lock, soon(z[1]));
  return NULL;
}

/* The thread that steals is the holder, whichever thread called start(). */
TEST(the_thief_is_the_holder) {
  zke_lock_options o = {.size = sizeof o, .reentrant = 1};
  theft t = {.stolen = ZKE_IDLE, .again = ZKE_IDLE};
  pthread_t thread;
  open_sessions();
  zke_lock *holder = make(z[0], PATH);
  ck_ok(zke_lock_new(z[1], PATH, &o, &t.lock));
  ck_ok(zke_lock_acquire(holder, soon(z[0])));
  ck_ok(zke_lock_start(t.lock));
  ck_assert_int_eq(pthread_create(&thread, NULL, steal_twice, &t), 0);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_ok(t.stolen);
  ck_ok(t.again);
  ck_rc(zke_lock_acquire(t.lock, soon(z[1])), ZKE_MISUSE);
  zke_lock_free(holder);
  zke_lock_free(t.lock);
}

/* ---- granting ---- */

/* The zxid of a change made now. */
static int64_t next_zxid(zke *session) {
  zke_stat stat;
  ck_ok(zke_create(session, "/probe-", "", 0, ZKE_OPEN_ACL,
                   ZKE_EPHEMERAL_SEQUENTIAL, NULL, &stat));
  return stat.czxid;
}

/* A line of all sessions' locks; bob holds, and saw cid when he got it. */
static void line_up(void) {
  open_line(LINE_LOCK);
  play(
      "ann start; bob start; cid start; dan start; eve start;"
      "ann release; bob dispatches;"
      "bob is HELD");
}

/* The token of the first in line, as others see it. */
static int64_t first_token(void) {
  char path[300];
  return party_at(z[0], 0, path).mzxid;
}

/* The release marks the next one, which then needs no write. */
TEST(a_release_grants_the_next) {
  char path[300];
  line_up();
  int64_t before = next_zxid(z[0]);
  play("bob release");
  zke_party next = party_at(z[0], 0, path); /* it does not know it yet */
  ck_assert_int_eq(next.office, 1);
  ck_assert_int_eq(next.mzxid, before + 1);
  play(
      "cid dispatches;"
      "cid is HELD");
  ck_assert_int_eq(zke_lock_token(party[2]), next.mzxid);
  ck_assert_int_eq(next_zxid(z[0]), before + 2);
  ck_assert_int_eq(party_at(z[0], 1, path).office, 0);
}

/* A grant changes only the state in the entry's data, and no other data. */
static const struct {
  const char *data, *then;
} heirs[] = {
    {"waiting 00000000000000ab\nmine\n", "held 00000000000000ab\nmine\n"},
    {"queued 00000000000000ab\n", "held 00000000000000ab\n"},
    {"unlock 00000000000000ab\nmine", "unlock 00000000000000ab\nmine"},
    {"waiting for nobody", "waiting for nobody"},
    {"", ""}};

/* A release that grants the lock to a znode changes only the word for its
 * state; data in another form stays. */
TEST_LOOP(a_grant_keeps_the_data, 0, (int)(sizeof heirs / sizeof *heirs)) {
  static const char prefix[] =
      PATH "/_c_00000000-0000-0000-0000-000000000000-lock-";
  zke_lock *lock[2];
  char *heir, *data;
  const char *given = heirs[_i].data;
  open_sessions();
  for (int i = 0; i < 2; i++) {
    lock[i] = make(z[i], PATH);
    ck_ok(zke_lock_start(lock[i]));
  }
  ck_ok(zke_create(z[2], prefix, given, (int)strlen(given), ZKE_OPEN_ACL,
                   ZKE_EPHEMERAL_SEQUENTIAL, &heir, NULL));
  ck_ok(zke_lock_release(lock[0]));
  zke_dispatch(z[1], NULL);
  ck_ok(zke_lock_release(lock[1]));
  ck_ok(zke_get(z[3], heir, NULL, NULL, &data, NULL, NULL));
  ck_assert_str_eq(data, heirs[_i].then);
  zke_free(data);
  zke_free(heir);
  for (int i = 0; i < 2; i++) zke_lock_free(lock[i]);
}

static void heir_is_written(void) {
  char path[300];
  party_at(z[0], 1, path);
  ck_ok(zke_set(z[0], path, "hello", 5, -1, NULL));
}
/* Let all read the next one's znode, and only its owner write it. */
static void heir_is_protected(void) {
  char path[300];
  party_at(z[0], 1, path);
  ck_ok(zke_add_auth(z[2], "digest", "cid:secret", 10));
  ck_ok(zke_set_acl(z[2], path, -1, ZKE_CREATOR_ALL_ACL, NULL));
}
static void reply_is_lost(void) {
  ck_ok(zke_test_fail(z[1], ZKE_TEST_FAIL_AFTER, 0));
}
static void change_is_lost(void) {
  ck_ok(zke_test_fail(z[1], ZKE_TEST_FAIL_BEFORE, 0));
}
static void nothing(void) {}

/* What can prevent a grant, and the steps with the release. */
static const struct {
  void (*spoil)(void);
  const char *steps;
  bool heir_stays;
} spoilers[] = {{nothing, "cid release; bob release", false},
                {nothing, "cid expires; bob release", false},
                {nothing, "cid loses; bob release", false},
                {heir_is_written, "bob release", true},
                {heir_is_protected, "bob release", true},
                {reply_is_lost, "bob release", true},
                {change_is_lost, "bob release", true},
                {nothing, "bob free", true}};
enum { SPOILERS = sizeof spoilers / sizeof *spoilers };

/* Whether or not the grant succeeds, the next in line holds, with a greater
 * token, which others see. */
TEST_LOOP(a_release_lets_the_next_in_whatever_comes, 0, SPOILERS) {
  int next = spoilers[_i].heir_stays ? 2 : 3;
  line_up();
  spoilers[_i].spoil();
  play(spoilers[_i].steps);
  play("all dispatch");
  play(next == 2 ? "cid is HELD; cid check" : "dan is HELD; dan check");
  if (spoilers[_i].spoil != heir_is_protected)
    ck_assert_int_eq(first_token(), zke_lock_token(party[next]));
}

/* A party that was granted the lock gives up, or is broken, before it looks:
 * the next one marks itself. */
TEST_LOOP(a_grant_that_nobody_takes_is_passed_on, 0, 2) {
  line_up();
  play("bob release");
  int64_t granted = first_token();
  if (_i == 0)
    play("cid release");
  else
    ck_ok(zke_lock_break(z[0], PATH, granted));
  play(
      "all dispatch;"
      "cid is out; dan is HELD");
  ck_assert_int_gt(zke_lock_token(party[3]), granted);
}

/* … or it waits in a call, perhaps with no time: it holds. */
TEST_LOOP(a_grant_is_found_by_a_call, 0, 2) {
  line_up();
  play("bob release");
  int64_t granted = first_token();
  play(_i ? "cid acquire" : "cid acquire_now");
  ck_assert_int_ge(zke_lock_token(party[2]), granted);
  ck_assert_int_eq(first_token(), zke_lock_token(party[2]));
}

/* A thief also robs a party that was granted the lock and does not know it yet;
 * that party hears LOST, never HELD. */
TEST(a_grant_can_be_stolen) {
  char path[300];
  line_up();
  play("bob release");
  int64_t granted = first_token();
  play(
      "told ann HELD, ann OUT, bob HELD, bob OUT;"
      "ann steal");
  ck_assert_int_gt(zke_lock_token(party[0]), granted);
  play(
      "all dispatch;"
      "told ann HELD, cid LOST;"
      "cid is LOST;"
      "ann release"); /* the thief has seen dan */
  ck_assert_int_eq(party_at(z[0], 0, path).office, 1);
  play(
      "all dispatch;"
      "dan is HELD");
}

/* From now on only its owner may read the first znode in line. */
static void hide_holder(zke *owner) {
  char path[300];
  party_at(owner, 0, path);
  ck_ok(zke_add_auth(owner, "digest", "it:secret", 9));
  ck_ok(zke_set_acl(owner, path, -1, ZKE_CREATOR_ALL_ACL, NULL));
}

/* A steal and a break hit the holder even if its znode may not be read; waiters
 * stay in line. */
TEST(a_hidden_holder_is_the_victim) {
  open_sessions();
  zke_lock *lock = make(z[0], PATH), *next = make(z[1], PATH);
  zke_lock *thief = make(z[2], PATH);
  ck_ok(zke_lock_acquire(lock, soon(z[0])));
  ck_ok(zke_lock_start(next));
  hide_holder(z[0]);
  ck_ok(zke_lock_steal(thief));
  ck_assert_int_eq(zke_lock_state(thief), ZKE_LOCK_HELD);
  ck_rc(zke_lock_check(lock), ZKE_LOST);
  dispatch_all();
  ck_assert_int_eq(zke_lock_state(next), ZKE_LOCK_WAITING);
  for (int i = 0; i < 2; i++) {
    zke_lock *holder = i ? next : thief;
    int64_t token = zke_lock_token(holder);
    hide_holder(z[2 - i]);
    ck_rc(zke_lock_break(z[3], PATH, token + 1), ZKE_NONODE);
    ck_ok(zke_lock_break(z[3], PATH, i ? token : 0));
    ck_rc(zke_lock_check(holder), ZKE_LOST);
    if (i == 0) ck_ok(zke_lock_step(next)); /* no events of a hidden znode */
    if (i == 0) ck_assert_int_eq(zke_lock_state(next), ZKE_LOCK_HELD);
  }
  ck_rc(zke_lock_break(z[3], PATH, 0), ZKE_NONODE);
  zke_lock_free(lock);
  zke_lock_free(next);
  zke_lock_free(thief);
}

static zke_lock *robber;
static void robs(void) { ck_ok(zke_lock_steal(robber)); }

/* A steal that returns ZKE_OK holds: a thief that is robbed during the call is
 * told so. */
TEST(a_thief_that_is_robbed_at_once_is_told) {
  int robbed = 0;
  line = &line_kinds[LINE_LOCK];
  open_two();
  zke_lock *lock = make(intruder, PATH);
  zke_lock *thief = make_party(caller, &(line_options){.who = "thief"});
  robber = make(intruder, PATH);
  for (int n = 1;; n++) {
    ck_ok(zke_lock_acquire(lock, soon(intruder)));
    act_at(n, robs);
    int rc = zke_lock_steal(thief);
    bool more = acted();
    if (rc == ZKE_OK) {
      ck_assert_int_eq(zke_lock_state(thief), ZKE_LOCK_HELD);
    } else {
      ck_rc(rc, ZKE_LOST);
      ck_assert_int_eq(zke_lock_state(thief), ZKE_LOCK_OUT);
      ck_ok(zke_lock_check(robber));
      robbed++;
    }
    zke_lock_release(thief);
    zke_lock_release(robber);
    zke_lock_release(lock);
    ck_assert_int_eq(entries(caller, PATH), 0);
    dispatch_on(caller);
    dispatch_on(intruder);
    told[0] = '\0';
    if (!more) break;
  }
  ck_assert_int_gt(robbed, 0);
  zke_lock_free(robber);
  zke_lock_free(thief);
  zke_lock_free(lock);
}

static bool was_robbed; /* the thief's entry existed when it was robbed */

static void robs_once(void) {
  zke_strings *own;
  ck_ok(zke_ephemerals(intruder, zke_session_id(caller), PATH "/_c_", &own));
  for (int i = 0; i < own->count; i++)
    was_robbed = was_robbed || strstr(own->data[i], "-front-");
  zke_free(own);
  ck_ok(zke_lock_steal(robber));
}

/* A waiter's steal loses its reply, and at some moment the thief is robbed in
 * turn: it is told so, and does not steal again. */
TEST(a_thief_that_is_robbed_after_a_lost_reply_is_told) {
  int robberies = 0;
  bool more = true;
  open_two();
  zke_lock *lock = make(intruder, PATH), *thief = make(caller, PATH);
  robber = make(intruder, PATH);
  for (int n = 1; more; n++) {
    was_robbed = false;
    ck_ok(zke_lock_acquire(lock, soon(intruder)));
    ck_ok(zke_lock_start(thief));
    ck_ok(zke_test_fail(caller, ZKE_TEST_FAIL_AFTER, 0));
    act_between(n, robs_once);
    int rc = zke_lock_steal(thief);
    more = acted();
    ck_ok(zke_test_fail(caller, 0, 0));
    if (rc != ZKE_OK) ck_rc(rc, ZKE_LOST);
    if (was_robbed && rc != ZKE_OK) {
      ck_ok(zke_lock_check(robber));
      ck_assert_int_eq(zke_lock_state(thief), ZKE_LOCK_OUT);
    }
    if (was_robbed) ck_rc(zke_lock_check(thief), ZKE_LOST);
    robberies += was_robbed && rc != ZKE_OK;
    zke_lock_release(thief);
    zke_lock_release(robber);
    zke_lock_release(lock);
    ck_assert_int_eq(entries(caller, PATH), 0);
    dispatch_on(caller);
    dispatch_on(intruder);
  }
  ck_assert_int_gt(robberies, 0);
  zke_lock_free(robber);
  zke_lock_free(thief);
  zke_lock_free(lock);
}

/* Before each change of the caller's: the lock's directory comes, empty, or
 * goes. */
static void place_changes(void) {
  int rc = zke_delete(intruder, PATH, -1);
  if (rc == ZKE_NONODE)
    rc = zke_create(intruder, PATH, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                    NULL);
  ck_ok(rc);
  act_at(1, place_changes);
}

/* A directory that comes and goes at each step: the call ends at its deadline,
 * and says why. */
TEST(a_place_that_never_stays_ends_the_call) {
  open_two();
  zke_lock *lock = make(caller, PATH);
  ck_ok(zke_ensure_path(intruder, PATH, ZKE_PERSISTENT, ZKE_FOREVER));
  ck_ok(zke_delete(intruder, PATH, -1));
  act_at(1, place_changes);
  int rc = zke_lock_acquire(lock, zke_now(caller) + 50);
  acted();
  ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  ck_says("others changed the tree at each look");
  ck_ok(zke_lock_acquire(lock, soon(caller)));
  zke_lock_free(lock);
}

/* ---- the simplest use ---- */

static int note_token(zke *session, int64_t token, void *arg) {
  *(int64_t *)arg = token;
  return entries(session, "/base/name") == 1 ? ZKE_NOTEMPTY : ZKE_OK;
}

/* zke_lock_do() calls the function with the token while it holds the lock, and
 * returns the function's result; the lock is free afterwards.  After a timeout
 * the function is not called. */
TEST(do_acquires_calls_and_releases) {
  int64_t token = 0;
  open_sessions();
  ck_rc(zke_lock_do(z[0], "/base/name", soon(z[0]), note_token, &token),
        ZKE_NOTEMPTY); /* the function's result */
  ck_assert_int_gt(token, 0);
  ck_assert_int_eq(entries(z[0], "/base/name"), 0);
  ck_ok(zke_lock_do(z[0], "/top", soon(z[0]), note_token, &token));
  zke_lock *lock = make(z[1], "/base/name");
  ck_ok(zke_lock_acquire(lock, soon(z[1])));
  ck_rc(zke_lock_do(z[0], "/base/name", zke_now(z[0]), note_token, &token),
        ZKE_OPERATIONTIMEOUT);
  ck_says("bob");
  zke_lock_free(lock);
}

/* ---- deadlocks ---- */

enum { NO_CIRCLES = 300 };

/* A lock, or with a mode a read/write lock. */
typedef struct thing {
  char path[32];
  int mode; /* 0, ZKE_RWLOCK_READ or ZKE_RWLOCK_WRITE */
  zke_lock *lock;
  zke_rwlock *rw;
} thing;

/* Make the lock or read/write lock. */
static void thing_open(thing *t, zke *session, int no_check) {
  zke_lock_options o = {.size = sizeof o, .no_deadlock_check = no_check};
  if (t->mode)
    ck_ok(zke_rwlock_new(session, t->path, NULL, &t->rw));
  else
    ck_ok(zke_lock_new(session, t->path, &o, &t->lock));
}

static int thing_acquire(thing *t, int64_t deadline) {
  return t->mode ? zke_rwlock_acquire(t->rw, t->mode, deadline)
                 : zke_lock_acquire(t->lock, deadline);
}

static void thing_free(thing *t) {
  zke_rwlock_free(t->rw);
  zke_lock_free(t->lock);
}

/* An actor takes its own lock, waits until all have theirs, and then wants
 * another's. */
typedef struct actor {
  pthread_t thread;
  zke *session;
  pthread_barrier_t *all;
  thing own, wanted;
  int no_check, rc;
  int64_t limit_ms; /* 0: longer than the others need */
  char sentence[512];
} actor;

/* The thread of an actor. */
static void *act(void *context) {
  actor *a = context;
  int64_t limit = a->limit_ms ? a->limit_ms : test_patience(20000);
  thing_open(&a->own, a->session, 0);
  thing_open(&a->wanted, a->session, a->no_check);
  ck_ok(thing_acquire(&a->own, soon(a->session)));
  pthread_barrier_wait(a->all);
  a->rc = thing_acquire(&a->wanted, zke_now(a->session) + limit);
  if (a->rc != ZKE_OK)
    snprintf(a->sentence, sizeof a->sentence, "%s", zke_errmsg());
  thing_free(&a->wanted);
  thing_free(&a->own);
  return NULL;
}

/* Start an actor that holds /ring/1 and, once the test has come to the barrier
 * too, wants /ring/0.  (With a barrier of one it does not wait.) */
static void start_second(actor *a, pthread_barrier_t *all, unsigned count) {
  pthread_barrier_init(all, NULL, count);
  a->session = z[1];
  a->all = all;
  strcpy(a->own.path, "/ring/1");
  strcpy(a->wanted.path, "/ring/0");
  pthread_create(&a->thread, NULL, act, a);
  ck_until(entries(z[0], "/ring/1") == 1, 5000);
}

/* Returns how many had this result. */
static int run_actors(actor *a, int count, int result) {
  pthread_barrier_t all;
  int found = 0;
  pthread_barrier_init(&all, NULL, (unsigned)count);
  for (int i = 0; i < count; i++) {
    a[i].all = &all;
    pthread_create(&a[i].thread, NULL, act, &a[i]);
  }
  for (int i = 0; i < count; i++) {
    pthread_join(a[i].thread, NULL);
    found += a[i].rc == result;
  }
  pthread_barrier_destroy(&all);
  return found;
}

/* Each wants its neighbour's lock. */
static int run_ring(actor *a, int count, int result) {
  for (int i = 0; i < count; i++) {
    snprintf(a[i].own.path, sizeof a[i].own.path, "/ring/%d", i);
    snprintf(a[i].wanted.path, sizeof a[i].wanted.path, "/ring/%d",
             (i + 1) % count);
  }
  return run_actors(a, count, result);
}

/* Exactly one actor of a circle fails; the others get what they want. */
static void expect_one_victim(actor *a, int count) {
  ck_assert_int_eq(run_ring(a, count, ZKE_DEADLOCK), 1);
  for (int i = 0; i < count; i++) {
    if (a[i].rc == ZKE_OK) continue;
    ck_assert_int_eq(a[i].rc, ZKE_DEADLOCK);
    for (int j = 0; j < count; j++) { /* the sentence names the circle */
      ck_assert_msg(strstr(a[i].sentence, a[j].own.path), "%s", a[i].sentence);
    }
    ck_assert_msg(strstr(a[i].sentence, "pid"), "%s", a[i].sentence);
  }
}

/* Two to five sessions each wait for a neighbour's lock: exactly one call
 * fails, its sentence names the whole circle, and the others get their
 * locks. */
TEST(a_circle_has_one_victim) {
  open_sessions();
  for (int count = 2; count <= SESSIONS; count++) {
    actor a[SESSIONS] = {{0}};
    for (int i = 0; i < count; i++) a[i].session = z[i];
    expect_one_victim(a, count);
  }
}

/* A circle consists of threads, not of sessions: it is also found for three
 * threads of one session. */
TEST(threads_of_one_session_can_make_a_circle) {
  actor a[3] = {{0}};
  open_sessions();
  for (int i = 0; i < 3; i++) a[i].session = z[0];
  expect_one_victim(a, 3);
}

/* This holder releases one lock and then waits for the other, so it is never in
 * a circle. */
static void *go_to_and_fro(void *context) {
  zke *session = context;
  zke_lock *first = make(session, "/first"), *then = make(session, "/then");
  for (int i = 0; i < NO_CIRCLES; i++) {
    ck_ok(zke_lock_acquire(first, soon(session)));
    ck_ok(zke_lock_release(first));
    ck_ok(zke_lock_acquire(then, soon(session)));
    ck_ok(zke_lock_release(then));
  }
  zke_lock_free(first);
  zke_lock_free(then);
  return NULL;
}

/* Two threads take two locks in opposite order, one of them never both
 * together: whenever the other looks at the tree, no circle is reported. */
TEST(crossing_threads_are_no_circle) {
  pthread_t thread;
  open_sessions();
  zke_lock *then = make(z[0], "/then"), *first = make(z[0], "/first");
  pthread_create(&thread, NULL, go_to_and_fro, z[1]);
  for (int i = 0; i < NO_CIRCLES; i++) {
    ck_ok(zke_lock_acquire(then, soon(z[0])));
    ck_ok(zke_lock_acquire(first, soon(z[0]))); /* never ZKE_DEADLOCK */
    ck_ok(zke_lock_release(first));
    ck_ok(zke_lock_release(then));
  }
  pthread_join(thread, NULL);
  zke_lock_free(first);
  zke_lock_free(then);
}

/* A circle over two handles, or through a chroot, is not found.  The timeout
 * says that the holder is this process, but not for an entry of another
 * process. */
TEST(a_timeout_says_that_this_process_holds) {
  zke_options o = {.size = sizeof o, .chroot = "/line"};
  zke *below;
  zke_party_list *list;
  open_two();
  ck_ok(zke_ensure_path(caller, "/line", ZKE_PERSISTENT, ZKE_FOREVER));
  ck_ok(zke_open(test_path("db"), &o, &below));
  zke_lock *lock = make(caller, PATH), *other = make(intruder, PATH);
  zke_lock *relative = make(below, "/a");
  ck_ok(zke_lock_acquire(lock, soon(caller)));
  ck_rc(zke_lock_acquire(other, zke_now(intruder) + 20), ZKE_OPERATIONTIMEOUT);
  ck_says("caller (pid ");
  ck_says("), another handle of this very process, since ");
  ck_rc(zke_lock_acquire(relative, zke_now(below) + 20), ZKE_OPERATIONTIMEOUT);
  ck_says("), another handle of this very process, since ");
  ck_ok(zke_lock_release(lock));
  ck_ok(zke_create(caller,
                   PATH "/_c_00000000-0000-0000-8000-000000000000-lock-", "", 0,
                   ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL));
  ck_rc(zke_lock_try(other), ZKE_HELD);
  ck_assert_ptr_null(strstr(zke_errmsg(), "this very"));
  ck_ok(zke_lock_parties(intruder, PATH, &list));
  ck_assert_int_eq(list->count, 1);
  zke_free(list);
  zke_lock_free(lock);
  zke_lock_free(other);
  zke_lock_free(relative);
  ck_ok(zke_close(below));
}

/* Thread 1 of a session holds what another session waits for, and thread 2
 * waits for what that session holds: thread 1 can continue, so there is no
 * circle. */
TEST(two_threads_of_a_session_are_two) {
  open_sessions();
  zke_lock *a = make(z[0], "/ring/0"), *b = make(z[0], "/ring/1");
  actor other = {0};
  pthread_barrier_t all;
  call c;
  ck_ok(zke_lock_acquire(a, soon(z[0])));
  start_second(&other, &all, 2);
  acquire_aside(&c, b, soon(z[0]));
  ck_until(entries(z[0], "/ring/1") == 2, 5000);
  pthread_barrier_wait(&all);
  ck_until(entries(z[0], "/ring/0") == 2, 5000);
  ck_ok(zke_lock_release(a));
  pthread_join(other.thread, NULL);
  call_end(&c);
  ck_ok(other.rc);
  ck_ok(c.rc);
  zke_lock_free(a);
  zke_lock_free(b);
}

/* Read/write locks and locks in one circle; two readers make none. */
static const struct mixture {
  thing own[2];
  int victims;
} mixtures[] = {
    {{{.path = "/rw/0", .mode = ZKE_RWLOCK_READ}, {.path = "/ring/0"}}, 0},
    {{{.path = "/rw/0", .mode = ZKE_RWLOCK_WRITE}, {.path = "/ring/0"}}, 1},
    {{{.path = "/rw/0", .mode = ZKE_RWLOCK_WRITE},
      {.path = "/rw/1", .mode = ZKE_RWLOCK_WRITE}},
     1},
    {{{.path = "/rw/0", .mode = ZKE_RWLOCK_READ},
      {.path = "/rw/1", .mode = ZKE_RWLOCK_READ}},
     0},
};

/* A reader blocks writers and no reader, so only circles with a writer in them
 * are reported. */
TEST_LOOP(readers_block_writers_only, 0,
          (int)(sizeof mixtures / sizeof *mixtures)) {
  const struct mixture *m = &mixtures[_i];
  actor a[2] = {{0}};
  open_sessions();
  for (int i = 0; i < 2; i++) {
    a[i].session = z[i];
    a[i].own = m->own[i];
    a[i].wanted = m->own[1 - i];
  }
  ck_assert_int_eq(run_actors(a, 2, ZKE_DEADLOCK), m->victims);
  ck_assert_int_eq((a[0].rc == ZKE_OK) + (a[1].rc == ZKE_OK), 2 - m->victims);
  close_sessions();
}

/* One reads what the other wants to write. */
TEST(a_reader_can_be_in_a_circle) {
  const thing reads = {.path = "/rw/0", .mode = ZKE_RWLOCK_READ};
  const thing writes = {.path = "/rw/0", .mode = ZKE_RWLOCK_WRITE};
  const thing lock = {.path = "/ring/0"};
  actor a[2] = {{.own = reads, .wanted = lock},
                {.own = lock, .wanted = writes}};
  open_sessions();
  for (int i = 0; i < 2; i++) a[i].session = z[i];
  ck_assert_int_eq(run_actors(a, 2, ZKE_DEADLOCK), 1);
  ck_assert_int_eq((a[0].rc == ZKE_OK) + (a[1].rc == ZKE_OK), 1);
}

/* ---- threads that act for one client ---- */

static uint64_t acts_for; /* the client of acquire_for_client() */

static int acquire_for_client(call *c) {
  zke_line_act_as(acts_for);
  return zke_lock_acquire(c->object, c->deadline);
}

/* One of a client's calls is in a circle that was closed later: the client's
 * other call has not closed it, so that call keeps waiting. */
TEST(a_wait_beside_a_circle_is_no_victim) {
  call second, beside;
  pthread_barrier_t all;
  actor other = {.no_check = 1};
  open_sessions();
  zke_lock *held = make(z[0], "/ring/0"), *wanted = make(z[0], "/ring/1");
  zke_lock *foreign = make(z[2], "/ring/2"), *third = make(z[0], "/ring/2");
  acts_for = zke_line_actor();
  zke_line_act_as(acts_for + 1);
  ck_ok(zke_lock_acquire(foreign, soon(z[2])));
  zke_line_act_as(0);
  ck_ok(zke_lock_acquire(held, soon(z[0])));
  start_second(&other, &all, 2);
  call_begin(&second, acquire_for_client, wanted, 0, soon(z[0]));
  ck_until(entries(z[0], "/ring/1") == 2, 5000);
  pthread_barrier_wait(&all); /* the other closes the circle, without the
                                 check */
  ck_until(entries(z[0], "/ring/0") == 2, 5000);
  call_begin(&beside, acquire_for_client, third, 0, zke_now(z[0]) + 50);
  call_end(&beside);
  ck_assert_int_eq(beside.rc, ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_lock_release(held));
  pthread_join(other.thread, NULL);
  call_end(&second);
  ck_ok(other.rc);
  ck_ok(second.rc);
  zke_lock_free(third);
  zke_lock_free(foreign);
  zke_lock_free(wanted);
  zke_lock_free(held);
  pthread_barrier_destroy(&all);
}

/* A thread that wants a lock, as another actor. */
typedef struct substitute {
  zke_lock *lock;
  uint64_t actor, was[3], own;
  int rc;
} substitute;

/* Want the lock as that actor, and note the results of zke_line_act_as() before
 * and after. */
static void *act_as(void *context) {
  substitute *s = context;
  s->own = zke_line_actor();
  s->was[0] = zke_line_act_as(s->actor);
  s->rc = zke_lock_acquire(s->lock, s->actor ? soon(z[0]) : zke_now(z[0]) + 50);
  s->was[1] = zke_line_act_as(0);
  s->was[2] = zke_line_actor();
  return NULL;
}

/* One thread waits for what another holds: a circle if they act as one. */
TEST(threads_that_act_as_one_are_one) {
  open_sessions();
  zke_lock *held = make(z[0], PATH);
  ck_ok(zke_lock_acquire(held, soon(z[0])));
  for (int one = 0; one < 2; one++) {
    substitute s = {.lock = make(z[0], PATH)};
    if (one) s.actor = zke_line_actor();
    pthread_t thread;
    pthread_create(&thread, NULL, act_as, &s);
    pthread_join(thread, NULL);
    ck_assert_int_eq(s.rc, one ? ZKE_DEADLOCK : ZKE_OPERATIONTIMEOUT);
    ck_assert_uint_eq(s.was[0], 0);
    ck_assert_uint_eq(s.was[1], s.actor);
    ck_assert_uint_eq(s.was[2], s.own);
    ck_assert_uint_ne(s.own, zke_line_actor());
    zke_lock_free(s.lock);
  }
  zke_lock_free(held);
}

/* P9: a thread acts for its client only in the parent; the child's thread acts
 * for itself again. */
TEST(a_forked_child_acts_for_nobody) {
  const uint64_t client = UINT64_C(0x1234);
  ck_assert_uint_eq(zke_line_act_as(client), 0);
  pid_t pid = fork();
  if (pid == 0) {
    bool acts = zke_line_act_as(0) != 0 || zke_line_actor() == client;
    _exit(acts ? 1 : 0);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(status, 0);
  ck_assert_uint_eq(zke_line_actor(), client);
  ck_assert_uint_eq(zke_line_act_as(0), client);
  ck_assert_uint_ne(zke_line_actor(), client);
}

/* ---- who waits for whom, seen from outside ---- */

/* The wait of a session, or NULL. */
static const zke_wait_info *wait_of(const zke_wait_list *list, zke *session) {
  for (int i = 0; i < list->count; i++) {
    if (list->data[i].session == zke_session_id(session)) return &list->data[i];
  }
  return NULL;
}

static bool waits_for(const zke_wait_list *list, int who, int whom) {
  const zke_wait_info *w = wait_of(list, z[who]);
  ck_assert_ptr_nonnull(w);
  return w->keeper_count == 1 &&
         w->keepers[0].session == zke_session_id(z[whom]);
}

/* Ann holds, bob waits in a call, cid has only joined, dan waits too. */
TEST(a_line_is_a_chain_of_waits) {
  zke_wait_list *list;
  open_line(LINE_LOCK);
  ck_ok(zke_line_waits(z[0], &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  play("ann acquire; bob waits; cid start; dan waits");
  ck_ok(zke_line_waits(z[0], &list));
  ck_assert_int_eq(list->count, 3);
  ck_assert_ptr_null(wait_of(list, z[0]));
  ck_assert(waits_for(list, 1, 0));
  ck_assert(waits_for(list, 2, 1));
  const zke_wait_info *last = wait_of(list, z[3]);
  ck_assert_ptr_eq(last, &list->data[0]);  /* the youngest */
  ck_assert_int_eq(last->keeper_count, 2); /* one in front is not stuck */
  ck_assert_int_eq(wait_of(list, z[1])->blocking, 1);
  ck_assert_int_eq(wait_of(list, z[2])->blocking, 0);
  for (int i = 0; i < list->count; i++)
    ck_assert_int_eq(list->data[i].stuck + list->data[i].circle, 0);
  ck_assert_str_eq(last->identity, "dan");
  ck_assert_int_eq(last->pid, getpid());
  ck_assert_int_gt(last->since_ms, 0);
  ck_assert(strncmp(last->path, PATH "/_c_", strlen(PATH) + 4) == 0);
  zke_free(list);
  play("ann release; bob returns; cid release; bob release; dan returns");
}

/* Two in a circle that was not checked for, and then one behind it. */
TEST(a_standing_circle_is_seen) {
  zke_lock_options o = {.size = sizeof o, .no_deadlock_check = 1};
  zke_wait_list *list;
  zke_lock *late;
  actor a[2] = {{.limit_ms = 60000, .no_check = 1},
                {.limit_ms = 60000, .no_check = 1}};
  pthread_barrier_t all;
  call behind;
  open_sessions();
  pthread_barrier_init(&all, NULL, 2);
  for (int i = 0; i < 2; i++) {
    a[i].session = z[i];
    a[i].all = &all;
    snprintf(a[i].own.path, sizeof a[i].own.path, "/ring/%d", i);
    snprintf(a[i].wanted.path, sizeof a[i].wanted.path, "/ring/%d", 1 - i);
    pthread_create(&a[i].thread, NULL, act, &a[i]);
  }
  ck_until(entries(z[0], "/ring/0") + entries(z[0], "/ring/1") == 4, 5000);
  ck_ok(zke_lock_new(z[2], "/ring/0", &o, &late));
  acquire_aside(&behind, late, ZKE_FOREVER);
  ck_until(entries(z[0], "/ring/0") == 3, 5000);
  ck_ok(zke_line_waits(z[3], &list));
  ck_assert_int_eq(list->count, 3);
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(wait_of(list, z[i])->stuck, 1);
    ck_assert_int_eq(wait_of(list, z[i])->circle, i < 2);
  }
  zke_free(list);
  ck_ok(zke_lock_break(z[3], "/ring/0", 0)); /* no one is stuck any more */
  for (int i = 0; i < 2; i++) pthread_join(a[i].thread, NULL);
  for (int i = 0; i < 2; i++) ck_ok(a[i].rc);
  call_end(&behind);
  ck_ok(behind.rc);
  ck_ok(zke_line_waits(z[3], &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  zke_lock_free(late);
  pthread_barrier_destroy(&all);
}

/* The call did not look beyond its own session, which holds nothing else. */
TEST(one_client_with_two_sessions_can_be_a_circle) {
  zke_wait_list *list;
  pthread_t thread;
  open_sessions();
  zke_lock *held = make(z[0], PATH);
  substitute s = {.lock = make(z[1], PATH), .actor = zke_line_actor()};
  ck_ok(zke_lock_acquire(held, soon(z[0])));
  pthread_create(&thread, NULL, act_as, &s);
  ck_until(entries(z[0], PATH) == 2, 5000);
  ck_ok(zke_line_waits(z[2], &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].stuck, 1);
  ck_assert_int_eq(list->data[0].circle, 1);
  ck_assert_uint_eq(list->data[0].keepers[0].actor, zke_line_actor());
  zke_free(list);
  zke_lock_free(held);
  pthread_join(thread, NULL);
  ck_ok(s.rc);
  zke_lock_free(s.lock);
}

/* Three want two permits: one waits, for both of the others. */
TEST(a_semaphore_keeps_out_beyond_its_limit) {
  zke_semaphore_options o = {.size = sizeof o, .limit = 3};
  zke_semaphore *sem[3];
  zke_wait_list *list;
  open_sessions();
  for (int i = 0; i < 3; i++) {
    ck_ok(zke_semaphore_new(z[i], "/sem", &o, &sem[i]));
    ck_ok(zke_semaphore_start(sem[i], i == 1 ? 2 : 1));
  }
  ck_ok(zke_line_waits(z[3], &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_ptr_nonnull(wait_of(list, z[2]));
  ck_assert_int_eq(list->data[0].keeper_count, 2);
  zke_free(list);
  for (int i = 0; i < 3; i++) zke_semaphore_free(sem[i]);
}

/* ---- processes ---- */

enum { CROWD = 50 };

/* A process that waits for the lock, and holds it until it is killed. */
static void hold_for_ever(zke *own) {
  zke_lock *lock = make(own, PATH);
  int rc = zke_lock_acquire(lock, ZKE_FOREVER);
  if (rc != ZKE_OK) give_up("acquire", rc);
  store(&shared->stage[self], 1);
  listen_for(own, &shared->go, 1000);
}

static int holder(void) {
  for (int i = 0; i < CROWD; i++) {
    if (load(&shared->stage[i]) == 1) return i;
  }
  return -1;
}

/* Wait until all wait, and nothing more happens. */
static void let_settle(zke *own) {
  ck_until(entries(own, PATH) == CROWD + 1, 60000);
  test_settle(shared->bytes, CROWD);
}

/* One process gets the lock; no other may have been woken. */
static int expect_one_woken(const long *before) {
  ck_until(holder() >= 0, 10000);
  int next = holder();
  for (int64_t end = test_now() + 200; test_now() < end;) test_pause();
  for (int i = 0; i < CROWD; i++) {
    ck_assert_msg(i == next || shared->bytes[i] == before[i],
                  "%d holds, but %d was woken too, by %ld bytes", next, i,
                  shared->bytes[i] - before[i]);
  }
  return next;
}

/* "Releasing a lock with 50 waiters wakes exactly one process", and so does
 * the death of the holder. */
TEST(a_release_wakes_exactly_one) {
  pid_t pid[CROWD];
  long before[CROWD];
  share();
  for (int i = 0; i < CROWD; i++) pid[i] = spawn(i, hold_for_ever);
  zke *own = test_open(test_path("db"));
  zke_lock *lock = make(own, PATH);
  ck_ok(zke_lock_acquire(lock, soon(own)));
  store(&shared->go, 1);
  let_settle(own);
  memcpy(before, shared->bytes, sizeof before);
  ck_ok(zke_lock_release(lock));
  for (int i = 0; i < 3; i++) {
    int next = expect_one_woken(before);
    if (i == 0) ck_until(shared->bytes[next] > before[next], 10000);
    shared->stage[next] = 2;
    memcpy(before, shared->bytes, sizeof before);
    kill_child(pid[next]);
    pid[next] = 0;
  }
  for (int i = 0; i < CROWD; i++) {
    if (pid[i]) kill_child(pid[i]);
  }
  zke_lock_free(lock);
  ck_ok(zke_close(own));
}

/* Write the token, and hold. */
static void hold_and_tell(zke *own) {
  zke_lock *lock = make(own, PATH);
  int rc = zke_lock_acquire(lock, ZKE_FOREVER);
  if (rc != ZKE_OK) give_up("acquire", rc);
  shared->tokens[self] = zke_lock_token(lock);
  store(&shared->stage[self], 1);
  wait_for(&shared->go, 1000);
}

/* A process is granted the lock while it is stopped, or dead and not yet
 * removed.  If it continues, it has the token that others have seen all
 * along. */
TEST_LOOP(a_stopped_or_dead_process_may_be_granted_it, 0, 2) {
  char path[300];
  bool dead = _i == 1;
  share();
  pid_t pid = spawn(0, hold_and_tell);
  zke *own = test_open(test_path("db")), *other = test_session(own, NULL);
  zke_lock *lock = make(own, PATH), *thief = make(other, PATH);
  ck_ok(zke_lock_acquire(lock, soon(own)));
  store(&shared->go, 1);
  ck_until(entries(own, PATH) == 2, 10000);
  ck_ok(zke_lock_steal(thief)); /* so it sees which is next */
  if (dead)
    kill_child(pid);
  else
    test_stop(pid, test_path("db"));
  int64_t last = zke_lock_token(thief);
  ck_ok(zke_lock_release(thief));
  if (dead) {
    ck_ok(zke_lock_acquire(thief, soon(other)));
    ck_assert_int_gt(zke_lock_token(thief), last);
  } else {
    zke_party next = party_at(own, 0, path);
    ck_assert_int_eq(next.office, 1);
    kill(pid, SIGCONT);
    ck_until(holder() == 0, 10000);
    ck_assert_int_eq(shared->tokens[0], next.mzxid);
    kill_child(pid);
  }
  zke_lock_free(lock);
  zke_lock_free(thief);
  ck_ok(zke_close(other));
  ck_ok(zke_close(own));
}

/* ---- deaths, lost replies, faults ---- */

/* Of the other session: the holder, and a waiter behind it. */
static zke_lock *robbed, *waiting;
static int64_t robbed_token;

static void prepare_line(zke *other) {
  robbed = make(other, PATH);
  waiting = make(other, PATH);
  ck_ok(zke_lock_acquire(robbed, ZKE_FOREVER));
  robbed_token = zke_lock_token(robbed);
  ck_ok(zke_lock_start(waiting));
}

/* Steal the lock and release it, which grants it to the waiter. */
static int use_grant(zke *user) {
  zke_lock *lock = NULL;
  int rc = zke_lock_new(user, PATH, NULL, &lock);
  if (rc == ZKE_OK) rc = zke_lock_steal(lock);
  if (rc == ZKE_OK) rc = zke_lock_release(lock);
  zke_lock_free(lock);
  return rc;
}

/* The waiter holds; or, if the holder was not robbed, it does so after the
 * holder's release.  Its token is greater, and others see it. */
static void check_line(zke *other, int rc) {
  zke_party_list *list;
  (void)rc;
  if (zke_lock_check(robbed) == ZKE_OK) ck_ok(zke_lock_release(robbed));
  ck_ok(zke_lock_acquire(waiting, zke_now(other) + 5000));
  ck_assert_int_gt(zke_lock_token(waiting), robbed_token);
  ck_ok(zke_lock_parties(other, PATH, &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].mzxid, zke_lock_token(waiting));
  zke_free(list);
  zke_lock_free(robbed);
  zke_lock_free(waiting);
  ck_assert_int_eq(watches(other), 0);
}

static const recipe_use uses[] = {
    {"grant", prepare_line, use_grant, check_line}};

RECIPE_TESTS(uses, 18, 0);

/* ---- rare moments ---- */

static int waking; /* atomic */

static void *run_wake(void *session) {
  while (__atomic_load_n(&waking, __ATOMIC_ACQUIRE)) zke_wake(session);
  return NULL;
}

/* However busy the handle is, the deadline holds. */
TEST(a_busy_handle_does_not_hold_up_the_deadline) {
  pthread_t thread;
  open_sessions();
  zke_lock *lock = make(z[0], PATH), *other = make(z[1], PATH);
  ck_ok(zke_lock_acquire(lock, soon(z[0])));
  waking = 1;
  ck_assert_int_eq(pthread_create(&thread, NULL, run_wake, z[1]), 0);
  int64_t begin = test_now();
  ck_rc(zke_lock_acquire(other, zke_now(z[1]) + 50), ZKE_OPERATIONTIMEOUT);
  ck_says("ann");
  ck_assert_int_lt(test_now() - begin, 15000);
  __atomic_store_n(&waking, 0, __ATOMIC_RELEASE);
  pthread_join(thread, NULL);
  zke_lock_free(lock);
  zke_lock_free(other);
}

/* "always within the caller's deadline": also if the directory must be made
 * first and others keep the database busy. */
TEST(a_busy_database_does_not_hold_up_the_deadline) {
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 10};
  sqlite3 *db;
  zke *s;
  ck_ok(zke_open(test_path("busy.db"), &o, &s));
  zke_lock *lock = make(s, PATH);
  ck_assert_int_eq(sqlite3_open(test_path("busy.db"), &db), SQLITE_OK);
  ck_assert_int_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL),
                   SQLITE_OK);
  /* The shortest time counts: the machine did not delay it. */
  int64_t shortest = INT64_MAX, shortest_try = INT64_MAX;
  for (int i = 0; i < 20 && (shortest >= 500 || shortest_try >= 2000); i++) {
    int64_t begin = test_now();
    ck_rc(zke_lock_acquire(lock, zke_now(s) + 100), ZKE_OPERATIONTIMEOUT);
    if (test_now() - begin < shortest) shortest = test_now() - begin;
    begin = test_now(); /* ten tries, not ten times ten */
    ck_rc(zke_lock_try(lock), ZKE_OPERATIONTIMEOUT);
    if (test_now() - begin < shortest_try) shortest_try = test_now() - begin;
  }
  ck_assert_int_lt(shortest, 500);
  ck_assert_int_lt(shortest_try, 2000);
  ck_assert_int_eq(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
  ck_ok(zke_lock_try(lock));
  zke_lock_free(lock);
  ck_ok(zke_close(s));
  sqlite3_close(db);
}

/* A steal that fails half-way leaves nothing in front of the others and nothing
 * in the line, even if the thief had waited there. */
TEST_LOOP(a_failed_theft_leaves_no_entry, 0, 2) {
  test_heap heap = {0};
  zke_options o = {.size = sizeof o,
                   .allocator = {test_heap_resize, &heap},
                   .identity = "ann"};
  int rc = ZKE_NOMEM, n = 0;
  ck_ok(zke_open(":memory:", &o, &z[0]));
  ck_ok(zke_open_session(z[0], &o, &z[1]));
  for (; rc != ZKE_OK; n++) {
    zke_lock *lock = make(z[0], PATH), *thief = make(z[1], PATH);
    ck_ok(zke_lock_acquire(lock, soon(z[0])));
    if (_i) ck_ok(zke_lock_start(thief));
    heap.fail_at = heap.calls + n + 1;
    rc = zke_lock_steal(thief);
    heap.fail_at = 0;
    if (rc != ZKE_OK) {
      ck_assert_int_eq(rc, ZKE_NOMEM);
      ck_says("memory");
      ck_assert_int_eq(zke_lock_state(thief), ZKE_LOCK_OUT);
      ck_assert_int_eq(entries(z[0], PATH), zke_lock_check(lock) == ZKE_OK);
    }
    zke_lock_free(thief);
    zke_lock_free(lock);
  }
  ck_assert_int_gt(n, 5);
  ck_ok(zke_close(z[1]));
  ck_ok(zke_close(z[0]));
}

/* support.h: what a kept session holds stays when another handle attaches it.
 * The old object has lost it; a new object is refused, but can take it over. */
TEST(a_lock_of_an_attached_session_is_taken_over) {
  unsigned char password[16];
  zke_options o = {.size = sizeof o, .timeout_ms = 60000, .identity = "kept"};
  zke *kept = NULL, *attached = NULL;
  open_sessions();
  ck_ok(zke_open_session(z[0], &o, &kept));
  ck_ok(zke_password(kept, password));
  zke_lock *old = make(kept, PATH), *others = make(z[1], PATH);
  ck_ok(zke_lock_acquire(old, soon(kept)));
  int64_t token = zke_lock_token(old);
  ck_ok(zke_attach(z[0], zke_session_id(kept), password, &o, &attached));
  ck_assert_int_eq(zke_lock_state(old), ZKE_LOCK_LOST);
  ck_assert_int_eq(zke_lock_token(old), 0);
  zke_lock_free(old);
  ck_ok(zke_close(kept));
  zke_lock *lock = make(attached, PATH);
  ck_rc(zke_lock_try(lock), ZKE_HELD);
  ck_says("is held by kept (pid ");
  ck_says("), this very session, since ");
  ck_rc(zke_lock_acquire(lock, soon(attached)), ZKE_DEADLOCK);
  ck_says("this thread");
  ck_rc(zke_lock_try(others), ZKE_HELD);
  ck_ok(zke_lock_steal(lock));
  ck_assert_int_gt(zke_lock_token(lock), token);
  ck_assert_int_eq(entries(z[1], PATH), 1);
  ck_rc(zke_lock_try(others), ZKE_HELD);
  ck_ok(zke_lock_release(lock));
  ck_ok(zke_lock_try(others));
  zke_lock_free(others);
  zke_lock_free(lock);
  ck_ok(zke_close(attached));
  close_clean(PATH);
}
