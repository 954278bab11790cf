/* test_semaphore.c - what only semaphores promise (recipes/semaphore.h)
 *
 * test_lines tests what all lines promise.  Here are limits, and several
 * holders.  Threads and processes wait.  Deaths, lost replies and faults come
 * from recipes.h.
 */
#include "lines.h"
#include "recipes.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recipes/lock.h"
#include "recipes/semaphore.h"

/* ---- sessions and semaphores ---- */

static zke_semaphore *make(zke *session, int limit) {
  zke_semaphore *sem;
  zke_semaphore_options o = {.size = sizeof o, .limit = limit};
  ck_ok(zke_semaphore_new(session, PATH, &o, &sem));
  return sem;
}

static void free_all(zke_semaphore **sem, int count) {
  for (int i = 0; i < count; i++) zke_semaphore_free(sem[i]);
  for (int i = 0; i < count; i++) ck_assert_int_eq(watches(z[i]), 0);
  ck_assert_int_eq(entries(z[0], PATH), 0);
}

/* Open a line of a semaphore with that limit. */
static void open_limited(int limit) {
  line_limit = limit;
  open_line(LINE_PERMIT);
}

/* ---- one contender ---- */

/* Each permit is a znode; several are made in one step. */
TEST(permits_are_made_and_given_back_together) {
  open_sessions();
  zke_semaphore *sem = make(z[0], 5);
  zke_strings *names;
  zke_stat first = {0}, stat;
  ck_ok(zke_semaphore_acquire(sem, 3, soon(z[0])));
  ck_assert_int_eq(zke_semaphore_permits(sem), 3);
  ck_ok(zke_children(z[1], PATH, NULL, NULL, &names, NULL));
  ck_assert_int_eq(names->count, 3);
  for (int i = 0; i < 3; i++) {
    char path[200];
    snprintf(path, sizeof path, PATH "/%s", names->data[i]);
    ck_ok(zke_exists(z[1], path, NULL, NULL, &stat));
    if (i == 0) first = stat;
    ck_assert_int_eq(stat.czxid, first.czxid);
    ck_assert_int_eq(stat.ephemeralOwner, zke_session_id(z[0]));
  }
  ck_assert_int_eq(stat.mzxid, zke_semaphore_token(sem));
  zke_free(names);
  ck_ok(zke_exists(z[1], PATH, NULL, NULL, &first));
  ck_ok(zke_semaphore_release(sem));
  ck_ok(zke_exists(z[1], PATH, NULL, NULL, &stat));
  ck_assert_int_eq(stat.numChildren, 0);
  ck_assert_int_eq(stat.cversion, first.cversion + 3);
  ck_assert_int_eq(zke_semaphore_permits(sem), 0);
  free_all(&sem, 1);
}

/* P11: invalid limits and numbers of permits are refused. */
TEST(arguments_are_checked) {
  open_sessions();
  zke_semaphore *sem = (zke_semaphore *)(void *)z;
  zke_semaphore_options o = {.size = sizeof o, .limit = -1};
  ck_rc(zke_semaphore_new(z[0], PATH, &o, &sem), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(sem);
  ck_rc(zke_semaphore_resize(z[0], PATH, 0, ZKE_FOREVER), ZKE_BADARGUMENTS);
  ck_rc(zke_semaphore_resize(z[0], "nope", 1, ZKE_FOREVER), ZKE_BADARGUMENTS);
  ck_rc(zke_semaphore_resize(z[0], "/", 1, ZKE_FOREVER), ZKE_BADARGUMENTS);
  ck_rc(zke_semaphore_limit(z[0], PATH, NULL), ZKE_BADARGUMENTS);
  sem = make(z[0], 1);
  ck_rc(zke_semaphore_acquire(sem, 0, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_semaphore_try(sem, -1), ZKE_BADARGUMENTS);
  free_all(&sem, 1);
}

/* A directory of another recipe, with other data or with an invalid limit, is
 * neither joined nor resized.  An empty one is taken over; then a lock is
 * refused there. */
TEST(another_kind_on_the_path_is_refused) {
  static const char *const data[] = {"zkembed lock\n", "mine",
                                     "zkembed semaphore\n",
                                     "zkembed semaphore\nlimit 0\n"};
  open_sessions();
  zke_semaphore *sem = make(z[0], 1);
  int limit;
  ck_ok(zke_ensure_path(z[0], PATH, ZKE_PERSISTENT, ZKE_FOREVER));
  for (int i = 0; i < 4; i++) {
    ck_ok(zke_set(z[0], PATH, data[i], (int)strlen(data[i]), -1, NULL));
    ck_rc(zke_semaphore_acquire(sem, 1, soon(z[0])), ZKE_OTHERKIND);
    ck_says(i == 0 ? "is of kind lock" : PATH);
    ck_rc(zke_semaphore_try(sem, 1), ZKE_OTHERKIND);
    ck_rc(zke_semaphore_resize(z[0], PATH, 2, ZKE_FOREVER), ZKE_OTHERKIND);
    ck_rc(zke_semaphore_limit(z[0], PATH, &limit), ZKE_OTHERKIND);
  }
  ck_ok(zke_set(z[0], PATH, "", 0, -1, NULL));
  ck_ok(zke_semaphore_try(sem, 1)); /* empty: taken over */
  zke_lock *lock;
  ck_ok(zke_lock_new(z[1], PATH, NULL, &lock));
  ck_rc(zke_lock_try(lock), ZKE_OTHERKIND);
  zke_lock_free(lock);
  free_all(&sem, 1);
}

/* The container may be removed while it is unused. */
TEST(a_removed_directory_is_made_again) {
  open_sessions();
  zke_semaphore *sem = make(z[0], 2), *any = make(z[1], 0);
  for (int i = 0; i < 3; i++) {
    ck_ok(zke_semaphore_acquire(sem, 2, soon(z[0])));
    ck_ok(zke_semaphore_release(sem));
    ck_ok(zke_semaphore_acquire(any, 2, soon(z[1])));
    ck_ok(zke_semaphore_release(any));
    ck_ok(zke_delete(z[1], PATH, -1));
    ck_ok(zke_delete(z[1], "/line", -1));
    ck_rc(zke_semaphore_try(any, 1), ZKE_NONODE);
  }
  free_all((zke_semaphore *[]){sem, any}, 2);
}

/* ---- the limit ---- */

/* All users of a semaphore agree on its limit: a stated one must be the same; 0
 * takes the existing one. */
TEST(a_limit_stated_otherwise_is_refused) {
  open_sessions();
  zke_semaphore *sem[3] = {make(z[0], 3), make(z[1], 4), make(z[2], 0)};
  ck_rc(zke_semaphore_acquire(sem[2], 1, soon(z[2])), ZKE_NONODE);
  ck_ok(zke_semaphore_acquire(sem[0], 1, soon(z[0])));
  ck_rc(zke_semaphore_acquire(sem[1], 1, soon(z[1])), ZKE_LIMIT);
  ck_says("of 3, not of 4");
  ck_rc(zke_semaphore_try(sem[1], 1), ZKE_LIMIT);
  ck_rc(zke_semaphore_start(sem[1], 1), ZKE_LIMIT);
  ck_ok(zke_semaphore_acquire(sem[2], 2, soon(z[2]))); /* the existing one */
  ck_assert_int_eq(entries(z[0], PATH), 3);
  free_all(sem, 3);
}

/* A wait for more than the limit would never end, so it is refused. */
TEST(more_permits_than_the_limit_are_refused_at_once) {
  open_sessions();
  zke_semaphore *sem = make(z[0], 2);
  ck_rc(zke_semaphore_acquire(sem, 3, ZKE_FOREVER), ZKE_LIMIT);
  ck_says("3 permits");
  ck_says("its limit is 2");
  ck_rc(zke_semaphore_try(sem, INT_MAX), ZKE_LIMIT);
  ck_ok(zke_semaphore_acquire(sem, 2, 0));
  free_all(&sem, 1);
}

/* Waiting sessions watch the limit, also when they wait a second time: when it
 * is raised from 1 to 4, three more get in, in order. */
TEST(a_raised_limit_lets_waiters_in) {
  int limit;
  open_limited(1);
  play(
      "ann start 1; bob start 1; ann release; bob dispatches; bob release;"
      "told ann HELD, ann OUT, bob HELD, bob OUT;"
      "ann start 1; bob start 1; cid start 1; dan start 1;"
      "eve start 1;"
      "line ann (bob) (cid) (dan) (eve);"
      "eve resize 4");
  ck_ok(zke_semaphore_limit(z[4], PATH, &limit));
  ck_assert_int_eq(limit, 4);
  play(
      "all dispatch;"
      "line ann bob cid dan (eve);"
      "told ann HELD, bob HELD, cid HELD, dan HELD;"
      "eve is WAITING");
}

/* A lowered limit takes no permits away, and the list shows that; no one gets
 * in until enough were released. */
TEST(holders_above_a_lowered_limit_keep_theirs) {
  line_limit = 4;
  play_line(LINE_PERMIT,
            "ann start 1; bob start 1; cid start 2; dan start 1; eve start 1;"
            "line ann bob cid (dan) (eve);"
            "eve resize 2;"
            "all dispatch;"
            "line ann bob cid (dan) (eve);"
            "ann check; bob check; cid check;"
            "dan is WAITING; eve is WAITING;"
            "ann release;"
            "bob release;"
            "all dispatch;"
            "line cid (dan) (eve);" /* which has two */
            "cid release;"
            "all dispatch;"
            "line dan eve;"
            "dan is HELD; eve is HELD");
}

/* A wait for more than a lowered limit can never succeed, so it ends and no
 * longer blocks those behind it. */
TEST(a_wait_for_more_than_a_lowered_limit_ends) {
  line_limit = 3;
  play_line(LINE_PERMIT,
            "ann acquire 1; bob waits 3; cid start 3; dan start 1;"
            "eve resize 2;"
            "bob returns -> LIMIT;"
            "said its limit is 2;"
            "all dispatch;"
            "told ann HELD, bob OUT, cid OUT, dan HELD;"
            "line ann dan;"
            "cid is OUT;"
            "bob try 3 -> LIMIT");
}

static void lowers(void) {
  ck_ok(zke_semaphore_resize(intruder, PATH, 1, ZKE_FOREVER));
}

/* The limit is lowered at the n-th moment of a try, and the directory's version
 * wraps around: the try does not succeed by the old limit. */
TEST(a_limit_that_is_lowered_meanwhile_holds) {
  bool more = true;
  for (int n = 1; more; n++) {
    open_two();
    zke_semaphore *first = make(intruder, 0), *second = make(caller, 0);
    ck_ok(zke_semaphore_resize(intruder, PATH, 2, ZKE_FOREVER));
    test_set_version(test_path("db"), PATH, -9);
    ck_ok(zke_semaphore_try(first, 1));
    act_between(n, lowers);
    int rc = zke_semaphore_try(second, 1);
    more = acted();
    ck_assert(rc == ZKE_OK || rc == ZKE_HELD);
    int64_t late = zke_semaphore_token(second);
    zke_stat stat = test_stat(intruder, PATH);
    ck_assert(!more || late < stat.mzxid);
    zke_semaphore_free(first);
    zke_semaphore_free(second);
    close_two();
  }
}

/* Before each change of the caller's. */
static void changes_always(void) {
  static int limit = 10;
  ck_ok(zke_semaphore_resize(intruder, PATH, ++limit, ZKE_FOREVER));
  act_at(1, changes_always);
}

/* Others change the limit at each try of resize(): the call ends at its
 * deadline, and says why. */
TEST(a_change_that_is_never_quick_enough_ends) {
  open_two();
  ck_ok(zke_semaphore_resize(intruder, PATH, 1, ZKE_FOREVER));
  act_at(1, changes_always);
  int rc = zke_semaphore_resize(caller, PATH, 3, zke_now(caller) + 50);
  acted();
  ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  ck_says("others changed the tree at each look");
  ck_ok(zke_semaphore_resize(caller, PATH, 3, ZKE_FOREVER));
}

/* A user that agreed to the old limit continues under the new one. */
TEST(a_changed_limit_holds_for_all) {
  open_sessions();
  zke_semaphore *sem[3] = {make(z[0], 1), make(z[1], 0), make(z[2], 1)};
  ck_ok(zke_semaphore_acquire(sem[0], 1, soon(z[0])));
  ck_ok(zke_semaphore_resize(z[3], PATH, 2, ZKE_FOREVER));
  ck_ok(zke_semaphore_try(sem[1], 1));
  ck_ok(zke_semaphore_release(sem[0]));
  ck_ok(zke_semaphore_try(sem[0], 1));
  ck_rc(zke_semaphore_try(sem[2], 1), ZKE_LIMIT); /* states the old one */
  free_all(sem, 3);
}

/* resize() creates the semaphore; the same limit again changes nothing; a user
 * with limit 0 finds it. */
TEST(resize_makes_the_semaphore) {
  zke_stat before, after;
  int limit;
  open_sessions();
  ck_rc(zke_semaphore_limit(z[0], PATH, &limit), ZKE_NONODE);
  ck_ok(zke_semaphore_resize(z[0], PATH, 7, ZKE_FOREVER));
  ck_ok(zke_exists(z[0], PATH, NULL, NULL, &before));
  ck_ok(zke_semaphore_resize(z[0], PATH, 7,
                             ZKE_FOREVER)); /* the same: no change */
  ck_ok(zke_exists(z[0], PATH, NULL, NULL, &after));
  ck_assert_int_eq(after.mzxid, before.mzxid);
  zke_semaphore *sem = make(z[1], 0);
  ck_ok(zke_semaphore_acquire(sem, 7, soon(z[1])));
  free_all(&sem, 1);
}

/* ---- several ---- */

/* Two of five hold.  Whichever holder releases, the next in line gets in; a
 * waiter that leaves lets no one in. */
TEST(as_many_hold_as_the_limit_says) {
  line_limit = 2;
  play_line(
      LINE_PERMIT,
      "ann start 1; bob start 1; cid start 1; dan start 1; eve start 1;"
      "line ann bob (cid) (dan) (eve);"
      "bob release;" /* not the first one */
      "all dispatch;"
      "line ann cid (dan) (eve);"
      "dan release;" /* a waiter leaves */
      "all dispatch;"
      "line ann cid (eve);"
      "eve is WAITING;"
      "ann release; cid release;"
      "all dispatch;"
      "line eve;"
      "told ann HELD, bob HELD, bob OUT, cid HELD, dan OUT, ann OUT, cid OUT, "
      "eve HELD");
}

/* All or nothing, first come first served: two are free, but the first waiter
 * wants three, and one that wants one does not overtake it. */
TEST(a_small_one_does_not_overtake_a_large_one) {
  open_limited(4);
  play(
      "ann start 1; bob start 1; cid start 3; dan start 1;"
      "line ann bob (cid) (dan);"
      "dan is WAITING");
  ck_assert_int_eq(zke_semaphore_permits(party[2]), 0);
  play(
      "ann release; all dispatch;"
      "line bob cid (dan)");
  ck_assert_int_eq(zke_semaphore_permits(party[2]), 3);
  play(
      "bob release; all dispatch;"
      "line cid dan;"
      "dan is HELD");
}

/* ---- deadlocks ---- */

/* A holder takes permits, waits until all have theirs, and then wants a lock
 * that is held by the main thread, which wants permits. */
typedef struct holder {
  pthread_t thread;
  zke *session;
  pthread_barrier_t *all;
  int permits;
  bool wants; /* the lock too */
  int rc;
} holder;

static bool holders_may_go;

/* The thread of a holder. */
static void *hold(void *context) {
  holder *h = context;
  zke_semaphore *sem = make(h->session, 4);
  zke_lock *lock;
  ck_ok(zke_lock_new(h->session, "/lock", NULL, &lock));
  ck_ok(zke_semaphore_acquire(sem, h->permits, soon(h->session)));
  pthread_barrier_wait(h->all);
  if (h->wants) h->rc = zke_lock_acquire(lock, soon(h->session));
  while (!h->wants && !__atomic_load_n(&holders_may_go, __ATOMIC_ACQUIRE))
    test_pause();
  zke_lock_free(lock);
  zke_semaphore_free(sem);
  return NULL;
}

/* Two holders have these permits of four while the main thread holds the lock
 * and asks for more: what does it get? */
static int run_circle(holder *h, int permits, char *sentence, size_t size) {
  pthread_barrier_t all;
  zke_semaphore *sem = make(z[0], 4);
  zke_lock *lock;
  int wanting = h[0].wants + h[1].wants;
  pthread_barrier_init(&all, NULL, 3);
  holders_may_go = false;
  ck_ok(zke_lock_new(z[0], "/lock", NULL, &lock));
  ck_ok(zke_lock_acquire(lock, soon(z[0])));
  for (int i = 0; i < 2; i++) {
    h[i].session = z[i + 1];
    h[i].all = &all;
    pthread_create(&h[i].thread, NULL, hold, &h[i]);
  }
  pthread_barrier_wait(&all);
  ck_until(entries(z[0], "/lock") == 1 + wanting, 5000);
  int rc = zke_semaphore_acquire(sem, permits, zke_now(z[0]) + 100);
  snprintf(sentence, size, "%s", rc == ZKE_OK ? "" : zke_errmsg());
  __atomic_store_n(&holders_may_go, true, __ATOMIC_RELEASE);
  zke_semaphore_free(sem);
  zke_lock_free(lock);
  for (int i = 0; i < 2; i++) pthread_join(h[i].thread, NULL);
  pthread_barrier_destroy(&all);
  return rc;
}

/* "Semaphores: blocked only if all holders are in the closure" - more exactly,
 * if the permits of the others are not enough. */
TEST(a_circle_needs_enough_stuck_permits) {
  static const struct {
    int held[2], wants[2], asked, rc;
  } cases[] = {
      {{2, 2}, {1, 1}, 1, ZKE_DEADLOCK},         /* both are stuck */
      {{2, 2}, {1, 0}, 1, ZKE_OPERATIONTIMEOUT}, /* the other can go on */
      {{2, 2}, {0, 1}, 2, ZKE_OPERATIONTIMEOUT}, /* and has enough */
      {{2, 2}, {1, 0}, 3, ZKE_DEADLOCK},         /* but not for three */
      {{1, 3}, {1, 0}, 3, ZKE_OPERATIONTIMEOUT},
      {{1, 3}, {1, 0}, 4, ZKE_DEADLOCK},
      {{1, 3}, {0, 0}, 4, ZKE_OPERATIONTIMEOUT}};
  char sentence[512];
  open_sessions();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    holder h[2] = {{.permits = cases[i].held[0], .wants = cases[i].wants[0]},
                   {.permits = cases[i].held[1], .wants = cases[i].wants[1]}};
    int rc = run_circle(h, cases[i].asked, sentence, sizeof sentence);
    ck_assert_msg(rc == cases[i].rc, "case %zu: %s: %s", i, zke_error_name(rc),
                  sentence);
    for (int j = 0; j < 2; j++) ck_ok(h[j].rc);
    if (rc != ZKE_DEADLOCK) continue;
    ck_assert_msg(strstr(sentence, PATH) && strstr(sentence, "/lock"), "%s",
                  sentence);
  }
}

/* Two hold one permit each under a limit lowered to 1, and the first waits for
 * a lock of the second.  The second holds, although its place is beyond the
 * limit, so it does not wait: there is no deadlock. */
TEST(a_lowered_limit_is_no_circle) {
  line_limit = 2;
  play_line(LINE_PERMIT,
            "ann acquire 1; bob acquire 1; bob locks; eve resize 1;"
            "ann locks_now -> OPERATIONTIMEOUT");
}

/* ---- threads ---- */

enum { THREADS = 6, ROUNDS = 20, LIMIT = 3 };
static int inside, most;

/* A thread that repeatedly takes one permit or two: never more are held than
 * there are. */
static void *enter_and_leave(void *session) {
  zke_semaphore *sem = make(session, LIMIT);
  for (int i = 0; i < ROUNDS; i++) {
    int permits = 1 + i % 2;
    ck_ok(zke_semaphore_acquire(sem, permits, zke_now(session) + 20000));
    int now = __atomic_add_fetch(&inside, permits, __ATOMIC_SEQ_CST);
    ck_assert_int_le(now, LIMIT);
    if (now > most) most = now; /* only reported */
    __atomic_sub_fetch(&inside, permits, __ATOMIC_SEQ_CST);
    ck_ok(zke_semaphore_release(sem));
  }
  zke_semaphore_free(sem);
  return NULL;
}

/* Six threads of two sessions take one or two permits each: never more than
 * three are held. */
TEST(threads_keep_within_the_limit) {
  pthread_t thread[THREADS];
  open_sessions();
  for (int i = 0; i < THREADS; i++)
    pthread_create(&thread[i], NULL, enter_and_leave, z[i % 2]);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  ck_assert_int_ge(most, 1);
  ck_assert_int_eq(entries(z[0], PATH), 0);
}

/* ---- processes ---- */

enum { CROWD = 12, WIDE = 3 };

/* A process that waits for one permit, and holds it until it is killed. */
static void hold_for_ever(zke *own) {
  zke_semaphore *sem = make(own, WIDE);
  int rc = zke_semaphore_acquire(sem, 1, ZKE_FOREVER);
  if (rc != ZKE_OK) give_up("acquire", rc);
  store(&shared->stage[self], 1);
  listen_for(own, &shared->go, 1000);
}

static int holders(void) {
  int count = 0;
  for (int i = 0; i < CROWD; i++) count += load(&shared->stage[i]) == 1;
  return count;
}

/* The crowd holds and waits for the permits that `mine`, if given, leaves. */
static void spawn_crowd(zke **own, pid_t *pid, zke_semaphore **mine) {
  share();
  for (int i = 0; i < CROWD; i++) pid[i] = spawn(i, hold_for_ever);
  *own = test_open(test_path("db"));
  if (mine) {
    *mine = make(*own, WIDE);
    ck_ok(zke_semaphore_acquire(*mine, 1, soon(*own)));
  }
  store(&shared->go, 1);
  ck_until(entries(*own, PATH) == CROWD + !!mine && holders() == WIDE - !!mine,
           20000);
  test_settle(shared->bytes, CROWD);
}

static int woken_since(const long *before) {
  int woken = 0;
  for (int i = 0; i < CROWD; i++) woken += shared->bytes[i] != before[i];
  return woken;
}

/* How many were woken until another one got in? */
static int count_woken(const long *before) {
  ck_until(holders() == WIDE, 10000);
  test_settle(shared->bytes, CROWD);
  ck_assert_int_eq(holders(), WIDE);
  return woken_since(before);
}

/* A release or a death wakes only those nearest to their turn: of the ten that
 * wait at most three.  The one that sees it first needs no waking. */
TEST(a_release_wakes_no_more_than_the_limit) {
  pid_t pid[CROWD];
  zke *own;
  zke_semaphore *mine;
  long before[CROWD];
  spawn_crowd(&own, pid, &mine);
  memcpy(before, shared->bytes, sizeof before);
  ck_ok(zke_semaphore_release(mine));
  ck_until(woken_since(before) >= 1, 10000);
  ck_assert_int_le(count_woken(before), WIDE);
  for (int round = 0; round < 3; round++) {
    int victim = 0;
    memcpy(before, shared->bytes, sizeof before);
    while (shared->stage[victim] != 1) victim++;
    kill_child(pid[victim]);
    pid[victim] = 0;
    shared->stage[victim] = 2;
    ck_assert_int_le(count_woken(before), WIDE);
  }
  for (int i = 0; i < CROWD; i++) {
    if (pid[i]) kill_child(pid[i]);
  }
  zke_semaphore_free(mine);
  ck_ok(zke_close(own));
}

/* A stopped process that is next delays its own permit, not those of the others
 * behind it. */
TEST(a_stopped_waiter_holds_nobody_up) {
  pid_t pid[CROWD];
  zke *own;
  zke_party_list *list;
  int stopped = -1;
  spawn_crowd(&own, pid, NULL);
  ck_ok(zke_semaphore_parties(own, PATH, &list));
  ck_assert_int_eq(list->count, CROWD);
  for (int i = 0; i < CROWD; i++) {
    if (pid[i] == list->data[WIDE].pid) stopped = i; /* the first waiter */
  }
  zke_free(list);
  ck_assert_int_ge(stopped, 0);
  ck_assert_int_eq(shared->stage[stopped], 0);
  test_stop(pid[stopped], test_path("db"));
  for (int i = 0, kills = 0; i < CROWD && kills < 2; i++) {
    if (shared->stage[i] != 1) continue;
    kill_child(pid[i]);
    pid[i] = 0;
    shared->stage[i] = 2;
    kills++;
  }
  ck_until(holders() == WIDE - 1, 10000);
  ck_assert_int_eq(shared->stage[stopped], 0);
  kill(pid[stopped], SIGCONT);
  ck_until(holders() == WIDE && shared->stage[stopped] == 1, 10000);
  for (int i = 0; i < CROWD; i++) {
    if (pid[i]) kill_child(pid[i]);
  }
  ck_ok(zke_close(own));
}

/* ---- fencing and the limit, as properties ---- */

enum { WIDEST = 5, NONE_STATED = -1 };
static bool resizing;
static int limit_now, reach_before, full;

static void resizes(unsigned *random, int i) {
  (void)i;
  if (resizing) limit_now = 1 + rand_r(random) % WIDEST;
  ck_ok(zke_semaphore_resize(z[4], PATH, limit_now, ZKE_FOREVER));
}

/* How many permits are held, as each object's check() says. */
static int held_permits(void) {
  int sum = 0;
  for (int i = 0; i < PARTIES; i++) {
    if (party[i] && zke_semaphore_check(party[i]) == ZKE_OK)
      sum += zke_semaphore_permits(party[i]);
  }
  return sum;
}

/* All permits in line up to the last held one: those before it had their turn
 * earlier. */
static int reach(void) {
  zke_party_list *list;
  int sum = 0, held = 0;
  ck_ok(zke_semaphore_parties(z[4], PATH, &list));
  for (int i = 0; i < list->count; i++) {
    sum += list->data[i].permits;
    if (list->data[i].office) held = sum;
  }
  zke_free(list);
  return held;
}

static void expect_limit(unsigned *random) {
  int held = held_permits(), now = reach();
  (void)random;
  ck_assert_int_le(held, now);
  ck_assert_msg(now <= limit_now || (resizing && now <= reach_before),
                "%d of %d", now, limit_now);
  reach_before = now;
  full += held == limit_now;
}

/* Random calls: the held permits stay within the limit, and every token is
 * greater than all earlier ones.  In the second round the limit changes:
 * lowering it lets no one in whose turn had not come before. */
TEST_LOOP(the_limit_holds_in_any_history, 0, 2) {
  resizing = _i == 1;
  limit_now = 3;
  line_limit = NONE_STATED;
  open_line(LINE_PERMIT);
  ck_ok(zke_semaphore_resize(z[4], PATH, limit_now, ZKE_FOREVER));
  play_history(&(line_history){
      .calls = 1500, .most = WIDEST, .also = resizes, .check = expect_limit});
  ck_assert_int_gt(full, 50); /* the limit is also reached */
}

/* Each waiter gets its permit once all others have left. */
TEST(everybody_is_served_in_the_end) {
  unsigned random = test_seed();
  int served = 0, moved;
  open_limited(WIDEST);
  for (int i = 0; i < SESSIONS; i++)
    ck_ok(line->start(party[i], 1 + rand_r(&random) % WIDEST));
  do {
    moved = 0;
    dispatch_all();
    for (int i = 0; i < SESSIONS; i++) {
      if (line->state(party[i]) != ZKE_LINE_HELD) continue;
      ck_ok(line->release(party[i]));
      moved = 1;
      served++;
    }
  } while (moved);
  ck_assert_int_eq(served, SESSIONS);
}

/* ---- deaths, lost replies, faults ---- */

/* Waits in vain, then for another one of its own, under a new limit. */
static int wait_behind(zke *user, void *first, void *second) {
  int rc = zke_semaphore_acquire(first, 2, zke_now(user) + 2000);
  if (rc != ZKE_OK) return rc;
  rc = zke_semaphore_try(second, 2);
  if (rc != ZKE_HELD) return rc < 0 ? rc : zke_fail(ZKE_LOST, "not held");
  rc = zke_semaphore_start(second, 2);
  if (rc == ZKE_OK) rc = zke_semaphore_resize(user, PATH, 4, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_semaphore_acquire(second, 2, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_semaphore_release(first);
  if (rc == ZKE_OK) rc = zke_semaphore_resize(user, PATH, 3, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_semaphore_release(second);
  return rc;
}

static int use_two(zke *user) {
  line = &line_kinds[LINE_PERMIT];
  line_limit = 3;
  return use_by_two(user, wait_behind);
}

/* Another session gets all permits, and no more than that. */
static void check_semaphore(zke *other, int rc) {
  int limit = 3;
  int found = zke_semaphore_limit(other, PATH, &limit);
  (void)rc;
  ck_assert(found == ZKE_OK || found == ZKE_NONODE);
  ck_assert(limit == 3 || limit == 4);
  zke_semaphore *sem = make(other, limit);
  ck_ok(zke_semaphore_acquire(sem, limit, zke_now(other) + 5000));
  ck_assert_int_eq(entries(other, PATH), limit);
  zke_semaphore_free(sem);
  ck_assert_int_eq(watches(other), 0);
}

static const recipe_use uses[] = {
    {"two semaphores", NULL, use_two, check_semaphore}};

RECIPE_TESTS(uses, 20, 0);

/* ---- rare moments ---- */

/* Dropped events: the watch on the limit is gone too. */
TEST(a_limit_raised_after_an_overflow_is_seen) {
  open_sessions();
  zke *s = open_to_flood();
  zke_semaphore *sem = make(z[0], 1), *other = make(s, 1);
  ck_ok(zke_semaphore_try(sem, 1));
  ck_ok(zke_semaphore_start(other, 1));
  flood(s);
  ck_ok(zke_semaphore_resize(z[1], PATH, 2, ZKE_FOREVER));
  ck_ok(zke_dispatch(s, NULL));
  ck_assert_int_eq(zke_semaphore_state(other), ZKE_SEMAPHORE_HELD);
  zke_semaphore_free(sem);
  zke_semaphore_free(other);
  ck_ok(zke_close(s));
}
