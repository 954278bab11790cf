/* test_multilock.c - what only multi-locks promise (recipes/multilock.h)
 *
 * test_lines tests what all lines promise, with deaths, lost replies and
 * faults.  Here is what concerns several locks.  Several sessions on one store
 * make interleavings step by step; threads wait.
 */
#include "recipes.h"
#include "sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"

/* ---- sessions and locks ---- */

enum { MOST = 8 };

/* Parse a text: "ab" are the locks /a and /b, "aR" and "aW" a rwlock /a. */
static int parse(const char *text, zke_multilock_item *items, char paths[][3]) {
  int n = 0;
  for (; *text; text++, n++) {
    snprintf(paths[n], 3, "/%c", *text);
    items[n] = (zke_multilock_item){paths[n], ZKE_MULTILOCK_LOCK};
    if (text[1] == 'R' || text[1] == 'W')
      items[n].mode = *++text == 'R' ? ZKE_MULTILOCK_READ : ZKE_MULTILOCK_WRITE;
  }
  return n;
}

/* A multi-lock of the locks in the text, as in parse(). */
static zke_multilock *make_with(zke *session, const char *text,
                                const zke_multilock_options *o) {
  zke_multilock *ml;
  zke_multilock_item items[MOST];
  char paths[MOST][3];
  int n = parse(text, items, paths);
  ck_ok(zke_multilock_new(session, items, n, o, &ml));
  return ml;
}

static zke_multilock *make(zke *session, const char *text) {
  return make_with(session, text, NULL);
}

static zke_lock *make_lock(zke *session, const char *path) {
  zke_lock *lock;
  ck_ok(zke_lock_new(session, path, NULL, &lock));
  return lock;
}

/* No entries may be left in /a, /b and /c. */
static void expect_nothing_left(void) {
  ck_assert_int_eq(
      entries(z[0], "/a") + entries(z[0], "/b") + entries(z[0], "/c"), 0);
  for (int i = 0; i < SESSIONS; i++) ck_assert_int_eq(watches(z[i]), 0);
}

static int run_acquire(call *c) {
  return zke_multilock_acquire(c->object, c->deadline);
}

/* Acquire them on another thread. */
static void acquire_aside(call *c, zke_multilock *ml, int64_t deadline) {
  call_begin(c, run_acquire, ml, 0, deadline);
}

/* ---- one contender ---- */

/* While it is held, others are refused each of its locks, with the holder's
 * name; afterwards each is free. */
TEST(acquire_holds_all_and_release_gives_up_all) {
  open_sessions();
  zke_multilock *ml = make(z[0], "abc");
  zke_lock *lock[3];
  static const char *const paths[] = {"/a", "/b", "/c"};
  ck_ok(zke_multilock_acquire(ml, soon(z[0])));
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_HELD);
  ck_assert_int_gt(zke_multilock_token(ml), 0);
  ck_ok(zke_multilock_check(ml));
  for (int i = 0; i < 3; i++) {
    lock[i] = make_lock(z[1], paths[i]);
    ck_rc(zke_lock_try(lock[i]), ZKE_HELD);
    ck_says("ann");
  }
  ck_ok(zke_multilock_release(ml));
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_OUT);
  ck_assert_int_eq(zke_multilock_token(ml), 0);
  ck_rc(zke_multilock_check(ml), ZKE_LOST);
  ck_rc(zke_multilock_release(ml), ZKE_LOST);
  for (int i = 0; i < 3; i++) {
    ck_ok(zke_lock_try(lock[i]));
    zke_lock_free(lock[i]);
  }
  zke_multilock_free(ml);
  zke_multilock_free(NULL);
  expect_nothing_left();
  close_sessions();
}

/* One step: one czxid, one guid, and the names of lock.h and rwlock.h. */
TEST(entries_are_made_in_one_step) {
  static const char *const tails[] = {"-lock-0000000000", "-__READ__0000000000",
                                      "-__WRIT__0000000000"};
  static const char *const paths[] = {"/a", "/b", "/c"};
  open_sessions();
  zke_multilock *ml = make(z[0], "abRcW");
  char first[64] = "";
  ck_ok(zke_multilock_acquire(ml, soon(z[0])));
  for (int i = 0; i < 3; i++) {
    zke_strings *names;
    zke_stat stat;
    ck_ok(zke_children(z[1], paths[i], NULL, NULL, &names, &stat));
    ck_assert_int_eq(names->count, 1);
    ck_assert_str_eq(names->data[0] + ENTRY_HEAD, tails[i]);
    if (i == 0)
      snprintf(first, sizeof first, "%.*s", ENTRY_HEAD, names->data[0]);
    ck_assert_mem_eq(names->data[0], first, ENTRY_HEAD);
    ck_assert_int_eq(stat.pzxid, zke_multilock_token(ml));
    zke_free(names);
  }
  zke_multilock_free(ml);
  expect_nothing_left();
  close_sessions();
}

/* P11: invalid arguments are refused: no items, one item twice, an invalid
 * mode, too many operations. */
TEST(arguments_are_checked) {
  open_sessions();
  zke_multilock *ml = (zke_multilock *)(void *)z;
  zke_multilock_item items[2] = {{"/a", ZKE_MULTILOCK_LOCK},
                                 {"/b", ZKE_MULTILOCK_LOCK}};
  zke_op ops[3];
  ck_rc(zke_multilock_new(z[0], items, 0, NULL, &ml), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(ml);
  ck_rc(zke_multilock_new(z[0], NULL, 2, NULL, &ml), ZKE_BADARGUMENTS);
  items[1].mode = 3;
  ck_rc(zke_multilock_new(z[0], items, 2, NULL, &ml), ZKE_BADARGUMENTS);
  static const char *const paths[] = {"/a", "/", "nope", NULL};
  for (int i = 0; i < 4; i++) { /* the first: the same twice */
    items[1] = (zke_multilock_item){paths[i], ZKE_MULTILOCK_READ};
    ck_rc(zke_multilock_new(z[0], items, 2, NULL, &ml), ZKE_BADARGUMENTS);
  }
  ml = make(z[0], "ab");
  ck_ok(zke_multilock_acquire(ml, 0));
  ck_rc(zke_multilock_ops(ml, ops, 3), ZKE_BADARGUMENTS);
  zke_multilock_free(ml);
  expect_nothing_left();
  close_sessions();
}

/* One path of another kind: none is entered. */
TEST(another_kind_on_a_path_is_refused) {
  open_sessions();
  zke_semaphore *sem;
  zke_semaphore_options o = {.size = sizeof o, .limit = 1};
  ck_ok(zke_semaphore_new(z[1], "/b", &o, &sem));
  ck_ok(zke_semaphore_acquire(sem, 1, soon(z[1])));
  zke_multilock *ml = make(z[0], "ab"), *modes = make(z[0], "aR");
  ck_rc(zke_multilock_acquire(ml, soon(z[0])), ZKE_OTHERKIND);
  ck_says("/b is of kind semaphore");
  ck_rc(zke_multilock_try(ml), ZKE_OTHERKIND);
  ck_rc(zke_multilock_start(ml), ZKE_OTHERKIND);
  ck_assert_int_eq(entries(z[0], "/a"), 0);
  ck_rc(zke_multilock_try(modes), ZKE_OTHERKIND); /* /a is now a lock */
  zke_multilock_free(ml);
  zke_multilock_free(modes);
  zke_semaphore_free(sem);
  close_sessions();
}

/* One of two directories was removed: only that is made again. */
TEST(removed_directories_are_made_again) {
  open_sessions();
  zke_multilock *ml = make(z[0], "ab");
  for (int i = 0; i < 3; i++) {
    ck_ok(zke_multilock_acquire(ml, soon(z[0])));
    ck_ok(zke_multilock_release(ml));
    ck_ok(zke_delete(z[1], "/b", -1));
  }
  zke_multilock_free(ml);
  expect_nothing_left();
  close_sessions();
}

/* The data is in each entry. */
TEST(the_list_shows_the_data) {
  open_sessions();
  zke_multilock_options o = {.size = sizeof o, .data = "job\0x", .len = 5};
  zke_multilock *ml = make_with(z[0], "ab", &o);
  zke_party_list *list;
  ck_ok(zke_multilock_acquire(ml, soon(z[0])));
  ck_ok(zke_lock_parties(z[1], "/b", &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].held, 1);
  ck_assert_int_eq(list->data[0].mzxid, zke_multilock_token(ml));
  ck_assert_str_eq(list->data[0].identity, "ann");
  ck_assert_int_eq(list->data[0].len, 5);
  ck_assert_mem_eq(list->data[0].data, "job\0x", 5);
  zke_free(list);
  zke_multilock_free(ml);
  close_sessions();
}

/* ---- all or none ---- */

/* One of three locks is held by another party: the multi-lock holds none, and
 * has no token, until that lock is free.  A lock that was always free then
 * shows the token too. */
TEST(it_holds_only_when_all_are_free) {
  open_sessions();
  zke_lock *a = make_lock(z[0], "/a"), *b = make_lock(z[1], "/b");
  zke_multilock *ml = make(z[2], "abc");
  ck_ok(zke_lock_acquire(a, soon(z[0])));
  ck_ok(zke_lock_acquire(b, soon(z[1])));
  ck_ok(zke_multilock_start(ml));
  ck_ok(zke_lock_release(b));
  dispatch_all();
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_WAITING);
  ck_assert_int_eq(zke_multilock_token(ml), 0);
  int64_t before = zke_lock_token(a);
  ck_ok(zke_lock_release(a));
  dispatch_all();
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_HELD);
  ck_assert_int_gt(zke_multilock_token(ml), before);
  zke_party_list *list;
  ck_ok(zke_lock_parties(z[3], "/c", &list)); /* always free: shows it too */
  ck_assert_int_eq(list->data[0].mzxid, zke_multilock_token(ml));
  ck_assert_int_eq(list->data[0].office, 1);
  zke_free(list);
  zke_multilock_free(ml);
  zke_lock_free(a);
  zke_lock_free(b);
  expect_nothing_left();
  close_sessions();
}

/* One of its locks is granted to it while it waits for the other.  At the end
 * it has one token for both, greater than the grant's. */
TEST(one_lock_may_be_granted_before_the_others) {
  open_sessions();
  zke_lock *a = make_lock(z[0], "/a"), *next = make_lock(z[1], "/a");
  zke_lock *b = make_lock(z[3], "/b");
  zke_multilock *ml = make(z[2], "ab");
  zke_party_list *list;
  ck_ok(zke_lock_acquire(a, soon(z[0])));
  ck_ok(zke_lock_acquire(b, soon(z[3])));
  ck_ok(zke_lock_start(next));
  ck_ok(zke_multilock_start(ml));
  ck_ok(zke_lock_release(a));
  dispatch_all();
  ck_ok(zke_lock_release(next)); /* it has seen ml behind it */
  dispatch_all();
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_WAITING);
  ck_ok(zke_lock_parties(z[4], "/a", &list));
  ck_assert_int_eq(list->data[0].office, 1);
  int64_t granted = list->data[0].mzxid;
  zke_free(list);
  ck_ok(zke_lock_release(b));
  dispatch_all();
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_HELD);
  ck_assert_int_gt(zke_multilock_token(ml), granted);
  ck_ok(zke_lock_parties(z[4], "/a", &list));
  ck_assert_int_eq(list->data[0].mzxid, zke_multilock_token(ml));
  zke_free(list);
  zke_multilock_free(ml);
  zke_lock_free(a);
  zke_lock_free(b);
  zke_lock_free(next);
  expect_nothing_left();
  close_sessions();
}

/* While it waits for its other lock it is not overtaken, so it never
 * starves. */
TEST(a_later_single_one_stands_behind) {
  open_sessions();
  zke_lock *a = make_lock(z[0], "/a"), *late = make_lock(z[1], "/b");
  zke_multilock *ml = make(z[2], "ab");
  ck_ok(zke_lock_acquire(a, soon(z[0])));
  ck_ok(zke_multilock_start(ml));
  ck_ok(zke_lock_start(late));
  ck_assert_int_eq(zke_lock_state(late), ZKE_LOCK_WAITING);
  ck_ok(zke_lock_release(a));
  dispatch_all();
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_HELD);
  ck_assert_int_eq(zke_lock_state(late), ZKE_LOCK_WAITING);
  ck_ok(zke_multilock_release(ml));
  dispatch_all();
  ck_assert_int_eq(zke_lock_state(late), ZKE_LOCK_HELD);
  zke_lock_free(a);
  zke_lock_free(late);
  zke_multilock_free(ml);
  expect_nothing_left();
  close_sessions();
}

/* A refusal leaves no entry in any lock, and its sentence names the held
 * one. */
TEST(try_takes_all_or_none_and_names_what_is_missing) {
  open_sessions();
  zke_lock *b = make_lock(z[1], "/b");
  zke_multilock *ml = make(z[0], "abc");
  ck_ok(zke_lock_acquire(b, soon(z[1])));
  ck_rc(zke_multilock_try(ml), ZKE_HELD);
  ck_says("the lock /b is held by bob (pid");
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_OUT);
  ck_assert_int_eq(entries(z[0], "/a") + entries(z[0], "/c"), 0);
  ck_assert_int_eq(entries(z[0], "/b"), 1);
  ck_assert_int_eq(watches(z[0]), 0);
  ck_ok(zke_lock_release(b));
  ck_ok(zke_multilock_try(ml));
  zke_lock_free(b);
  zke_multilock_free(ml);
  expect_nothing_left();
  close_sessions();
}

/* redisson#4456: a multi-lock that gives up keeps none of its locks. */
TEST(a_timeout_leaves_none_and_names_what_is_missing) {
  open_sessions();
  zke_lock *b = make_lock(z[1], "/b");
  zke_multilock *ml = make(z[0], "abc");
  ck_ok(zke_lock_acquire(b, soon(z[1])));
  for (int i = 0; i < 2; i++) { /* in the past, and in a moment */
    int64_t deadline = zke_now(z[0]) + (i ? 20 : -1);
    ck_rc(zke_multilock_acquire(ml, deadline), ZKE_OPERATIONTIMEOUT);
    ck_says("the lock /b is held by bob");
    ck_assert(zke_now(z[0]) >= deadline);
    ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_OUT);
    ck_assert_int_eq(entries(z[0], "/a") + entries(z[0], "/c"), 0);
    ck_assert_int_eq(watches(z[0]), 0);
  }
  zke_lock_free(b);
  zke_multilock_free(ml);
  close_sessions();
}

/* Readers of one rwlock hold together, a writer alone. */
TEST(modes_of_rwlocks_are_kept) {
  open_sessions();
  zke_multilock *ml[3] = {make(z[0], "aRb"), make(z[1], "aRc"),
                          make(z[2], "aW")};
  zke_rwlock *rw;
  ck_ok(zke_rwlock_new(z[3], "/a", NULL, &rw));
  ck_ok(zke_multilock_try(ml[0]));
  ck_ok(zke_multilock_try(ml[1]));
  ck_rc(zke_multilock_try(ml[2]), ZKE_HELD);
  ck_says("the rwlock /a");
  ck_ok(zke_rwlock_try(rw, ZKE_RWLOCK_READ));
  ck_ok(zke_rwlock_release(rw));
  ck_ok(zke_multilock_start(ml[2]));
  ck_rc(zke_rwlock_try(rw, ZKE_RWLOCK_READ), ZKE_HELD); /* a writer waits */
  ck_ok(zke_multilock_release(ml[0]));
  ck_ok(zke_multilock_release(ml[1]));
  dispatch_all();
  ck_assert_int_eq(zke_multilock_state(ml[2]), ZKE_MULTILOCK_HELD);
  for (int i = 0; i < 3; i++) zke_multilock_free(ml[i]);
  zke_rwlock_free(rw);
  expect_nothing_left();
  close_sessions();
}

/* ---- losing ---- */

/* If one lock is lost, all are; but only the holder releases the others, since
 * it may still be working on them. */
TEST(one_broken_loses_all) {
  zke_op ops[2];
  open_sessions();
  zke_multilock *ml = make(z[0], "ab");
  zke_lock *a = make_lock(z[1], "/a"), *b = make_lock(z[1], "/b");
  ck_rc(zke_multilock_ops(ml, ops, 2), ZKE_LOST);
  ck_ok(zke_multilock_acquire(ml, soon(z[0])));
  ck_ok(zke_multilock_ops(ml, ops, 2));
  ck_ok(zke_multi(z[0], ops, 2, NULL));
  ck_ok(zke_lock_break(z[1], "/b", zke_multilock_token(ml)));
  ck_rc(zke_multi(z[0], ops, 2, NULL), ZKE_NONODE);
  dispatch_all();
  ck_rc(zke_multilock_check(ml), ZKE_LOST);
  ck_rc(zke_multilock_ops(ml, ops, 2), ZKE_LOST);
  ck_ok(zke_lock_try(b));
  ck_rc(zke_lock_try(a), ZKE_HELD);
  ck_rc(zke_multilock_release(ml), ZKE_LOST);
  ck_ok(zke_lock_try(a));
  ck_ok(zke_lock_release(a));
  ck_ok(zke_lock_release(b));
  ck_ok(zke_multilock_acquire(ml, soon(z[0]))); /* usable again */
  zke_lock_free(a);
  zke_lock_free(b);
  zke_multilock_free(ml);
  expect_nothing_left();
  close_sessions();
}

/* Without a listener, check() finds out. */
TEST(check_finds_one_stolen) {
  open_sessions();
  zke_multilock *ml = make(z[0], "ab");
  zke_lock *thief = make_lock(z[1], "/a");
  ck_ok(zke_multilock_acquire(ml, soon(z[0])));
  int64_t token = zke_multilock_token(ml);
  ck_ok(zke_lock_steal(thief));
  ck_assert_int_gt(zke_lock_token(thief), token);
  ck_rc(zke_multilock_check(ml), ZKE_LOST);
  ck_assert_int_eq(zke_multilock_state(ml), ZKE_MULTILOCK_LOST);
  zke_multilock_free(ml); /* gives up /b */
  zke_lock_free(thief);
  expect_nothing_left();
  close_sessions();
}

/* ---- deadlocks ---- */

/* Threads, each with a multi-lock of the same locks in another order: if they
 * took one lock after the other, they would soon block each other. */
enum { THREADS = 5, ROUNDS = 20 };
static int inside[3];

/* A philosopher: takes its set of locks repeatedly, and meets no other
 * holder. */
static void *dine(void *context) {
  static const char *const orders[THREADS] = {"ab", "ba", "bc", "ca", "cba"};
  int number = (int)(intptr_t)context;
  zke_multilock *ml = make(z[number % 3], orders[number]);
  for (int i = 0; i < ROUNDS; i++) {
    ck_ok(zke_multilock_acquire(ml, zke_now(z[0]) + 20000));
    for (const char *p = orders[number]; *p; p++)
      ck_assert_int_eq(
          __atomic_add_fetch(&inside[*p - 'a'], 1, __ATOMIC_SEQ_CST), 1);
    for (const char *p = orders[number]; *p; p++)
      __atomic_sub_fetch(&inside[*p - 'a'], 1, __ATOMIC_SEQ_CST);
    ck_ok(zke_multilock_release(ml));
  }
  zke_multilock_free(ml);
  return NULL;
}

/* The dining philosophers: five threads take overlapping sets in different
 * orders, and no call reports a deadlock or a timeout. */
TEST(multilocks_do_not_block_each_other) {
  pthread_t thread[THREADS];
  open_sessions();
  for (int i = 0; i < THREADS; i++)
    pthread_create(&thread[i], NULL, dine, (void *)(intptr_t)i);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  expect_nothing_left();
  close_sessions();
}

/* The other thread holds /b and wants /a. */
typedef struct other {
  pthread_t thread;
  pthread_barrier_t both;
  int64_t limit_ms;
  int rc;
  char sentence[512];
} other;

/* The other thread: takes /b, says so, and wants /a when the test tells it. */
static void *hold_b_want_a(void *context) {
  other *o = context;
  zke_lock *b = make_lock(z[1], "/b"), *a = make_lock(z[1], "/a");
  ck_ok(zke_lock_acquire(b, soon(z[1])));
  pthread_barrier_wait(&o->both);
  pthread_barrier_wait(&o->both);
  o->rc = zke_lock_acquire(a, zke_now(z[1]) + o->limit_ms);
  snprintf(o->sentence, sizeof o->sentence, "%s", o->rc ? zke_errmsg() : "");
  zke_lock_free(a);
  zke_lock_free(b);
  return NULL;
}

static void start_other(other *o, int64_t limit_ms) {
  *o = (other){.limit_ms = limit_ms};
  pthread_barrier_init(&o->both, NULL, 2);
  pthread_create(&o->thread, NULL, hold_b_want_a, o);
  pthread_barrier_wait(&o->both);
}

static void join_other(other *o) {
  pthread_join(o->thread, NULL);
  pthread_barrier_destroy(&o->both);
}

/* The multi-lock is first at /a and waits for /b; the holder of /b asks for /a:
 * its call closes the circle and reports it. */
TEST(a_single_lock_that_closes_a_circle_is_told) {
  open_sessions();
  zke_multilock *ml = make(z[0], "ab");
  other o;
  call c;
  start_other(&o, test_patience(20000));
  acquire_aside(&c, ml, soon(z[0]));
  ck_until(entries(z[0], "/b") == 2, 5000);
  pthread_barrier_wait(&o.both);
  join_other(&o);
  call_end(&c);
  ck_assert_int_eq(o.rc, ZKE_DEADLOCK);
  ck_assert_msg(strstr(o.sentence, "would wait for ever: /a is held by ann") &&
                    strstr(o.sentence, "who waits for /b, held by this thread"),
                "%s", o.sentence);
  ck_ok(c.rc);
  zke_multilock_free(ml);
  expect_nothing_left();
  close_sessions();
}

/* The other way round: it holds /c, and its wait for /a and /b closes one. */
TEST(a_multilock_that_closes_a_circle_is_told) {
  for (int order = 0; order < 2; order++) {
    open_sessions();
    zke_lock *a = make_lock(z[0], "/a");
    zke_multilock *ml = make(z[0], order ? "bc" : "cb");
    other o;
    ck_ok(zke_lock_acquire(a, soon(z[0])));
    start_other(&o, test_patience(20000));
    pthread_barrier_wait(&o.both);
    ck_until(entries(z[0], "/a") == 2, 5000);
    ck_rc(zke_multilock_acquire(ml, soon(z[0])), ZKE_DEADLOCK);
    ck_says("would wait for ever: /b is held by bob");
    ck_says("who waits for /a, held by this thread");
    ck_assert_int_eq(entries(z[0], "/c"), 0);
    ck_ok(zke_lock_release(a));
    join_other(&o);
    ck_ok(o.rc);
    zke_lock_free(a);
    zke_multilock_free(ml);
    expect_nothing_left();
    close_sessions();
  }
}

/* ---- any history ---- */

/* Six multi-locks and three single locks of three sessions; random calls, one
 * after the other. */
enum { MULTIS = 6, LOCKS = 3 };
static const char *const sets[MULTIS] = {"ab", "bc", "ca", "abc", "b", "cb"};

typedef struct crowd {
  zke_multilock *ml[MULTIS];
  zke_lock *lock[LOCKS]; /* /a, /b, /c */
} crowd;

static void make_crowd(crowd *c, int session) {
  for (int i = session; i < MULTIS; i += 3)
    c->ml[i] = make(z[session], sets[i]);
  const char path[] = {'/', (char)('a' + session), '\0'};
  c->lock[session] = make_lock(z[session], path);
}

static void free_crowd(crowd *c, int session) {
  for (int i = session; i < MULTIS; i += 3) zke_multilock_free(c->ml[i]);
  zke_lock_free(c->lock[session]);
}

static void expire_and_reopen(crowd *c, int session) {
  ck_ok(zke_expire(z[4], zke_session_id(z[session])));
  free_crowd(c, session);
  renew_session(session);
  make_crowd(c, session);
}

/* A call on a random multi-lock or lock, or a break, or a session's end. */
static void random_call(unsigned *random, crowd *c) {
  int i = rand_r(random) % MULTIS, s = rand_r(random) % LOCKS;
  const char path[] = {'/', (char)('a' + s), '\0'};
  switch (rand_r(random) % 16) {
    case 0:
      zke_lock_break(z[4], path, 0);
      break;
    case 1:
      expire_and_reopen(c, s);
      break;
    case 2:
      zke_multilock_try(c->ml[i]);
      break;
    case 3:
      zke_multilock_acquire(c->ml[i], zke_now(z[0]));
      break;
    case 4:
    case 5:
    case 6:
      zke_multilock_start(c->ml[i]);
      break;
    case 7:
      zke_lock_start(c->lock[s]);
      break;
    case 8:
    case 9:
      zke_lock_release(c->lock[s]);
      break;
    case 10:
    case 11:
    case 12:
      zke_multilock_release(c->ml[i]);
      break;
    default:
      zke_dispatch(z[s], NULL);
  }
}

/* No lock has two holders, and each holder's token is greater than those of the
 * lock's earlier holders.  Returns how many multi-locks are held. */
static int expect_exclusion(const crowd *c, int64_t *highest) {
  int holders[LOCKS] = {0}, held = 0;
  for (int i = 0; i < MULTIS + LOCKS; i++) {
    bool single = i >= MULTIS;
    const char own[] = {(char)('a' + i - MULTIS), '\0'};
    int64_t token = single ? zke_lock_token(c->lock[i - MULTIS])
                           : zke_multilock_token(c->ml[i]);
    int rc = single ? zke_lock_check(c->lock[i - MULTIS])
                    : zke_multilock_check(c->ml[i]);
    if (rc != ZKE_OK) continue;
    held += !single;
    for (const char *p = single ? own : sets[i]; *p; p++) {
      ck_assert_int_eq(++holders[*p - 'a'], 1);
      ck_assert_int_ge(token, highest[*p - 'a']);
      highest[*p - 'a'] = token;
    }
  }
  return held;
}

/* Random calls, lost sessions and broken locks: no lock has two holders, and
 * the tokens of each lock's holders rise. */
TEST(locks_exclude_in_any_history) {
  crowd c;
  unsigned random = test_seed();
  int64_t highest[LOCKS] = {0};
  int most = 0;
  open_sessions();
  for (int i = 0; i < 3; i++) make_crowd(&c, i);
  for (int n = 0; n < 2000; n++) {
    random_call(&random, &c);
    int held = expect_exclusion(&c, highest);
    if (held > most) most = held;
  }
  ck_assert_int_ge(most, 1);
  for (int i = 0; i < 3; i++) free_crowd(&c, i);
  expect_nothing_left();
  close_sessions();
}
