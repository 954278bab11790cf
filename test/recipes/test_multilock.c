/* test_multilock.c - what only multi-locks promise (recipes/multilock.h)
 *
 * test_lines tests what all lines promise, with deaths, lost replies and
 * faults.  Here is what concerns several locks.  Most tests are steps of a few
 * sessions (steps.h).
 */
#include "recipes.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/rwlock.h"

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

/* ---- steps ----
 *
 *     P of abRcW             its multi-lock is now of these, as in parse()
 *     P acquire, P try, P start, P release, P check
 *     P op                   a multi with the operations of its multi-lock
 *     P is HELD              its state: OUT, WAITING, HELD or LOST
 *     P gets a               the calls of its own lock of /a alone: acquire,
 *     P tries a; P starts a; P gives a; P steals a
 *     P reads a; P unreads a           and of its rwlock of /a
 *     P has a                it holds that lock
 *     P newer; P newer a     its token is greater than that of the last "newer"
 *     shows a                the first in /a is marked as its holder, with the
 *                            last such token */

static zke_lock *alone[SESSIONS][3];
static zke_rwlock *reader[SESSIONS];
static int64_t newest; /* token */

static void free_multilock(void *object) { zke_multilock_free(object); }
static int cancel_multilock(void *object) {
  return zke_multilock_cancel(object);
}

static const char *path_of(const step *s) {
  static const char *const paths[] = {"/a", "/b", "/c"};
  return paths[s->word[0][0] - 'a'];
}

static zke_lock *own(const step *s) {
  zke_lock **lock = &alone[s->who][s->word[0][0] - 'a'];
  if (!*lock) *lock = make_lock(s->session, path_of(s));
  return *lock;
}

static zke_rwlock *own_reader(const step *s) {
  zke_rwlock **rw = &reader[s->who];
  if (!*rw) ck_ok(zke_rwlock_new(s->session, path_of(s), NULL, rw));
  return *rw;
}

static int step_of(step *s) {
  zke_multilock_free(s->object);
  party[s->who] = make(s->session, s->word[0]);
  return ZKE_OK;
}

STEP(acquire, zke_multilock_acquire(s->object, s->deadline))
STEP(try, zke_multilock_try(s->object))
STEP(start, zke_multilock_start(s->object))
STEP(release, zke_multilock_release(s->object))
STEP(check, zke_multilock_check(s->object))

static zke_op kept_ops[2]; /* of the last "op" that got them */

static int step_op(step *s) {
  int rc = zke_multilock_ops(s->object, kept_ops, 2);
  return rc == ZKE_OK ? zke_multi(s->session, kept_ops, 2, NULL) : rc;
}

STEP(old_op, zke_multi(s->session, kept_ops, 2, NULL))

static int step_is(step *s) {
  static const char *const states[] = {"OUT", "WAITING", "HELD", "LOST"};
  int state = zke_multilock_state(s->object);
  ck_assert_int_eq(zke_multilock_token(s->object) > 0,
                   state == ZKE_MULTILOCK_HELD);
  return sees(s, "%s", states[state]);
}

STEP(gets, zke_lock_acquire(own(s), s->deadline))
STEP(tries, zke_lock_try(own(s)))
STEP(starts, zke_lock_start(own(s)))
STEP(gives, zke_lock_release(own(s)))
STEP(steals, zke_lock_steal(own(s)))
STEP(has, zke_lock_check(own(s)))
STEP(breaks, zke_lock_break(s->session, path_of(s), newest))
STEP(reads, zke_rwlock_try(own_reader(s), ZKE_RWLOCK_READ))
STEP(unreads, zke_rwlock_release(own_reader(s)))

static int step_newer(step *s) {
  int64_t token =
      s->word[0] ? zke_lock_token(own(s)) : zke_multilock_token(s->object);
  ck_assert_int_gt(token, newest);
  newest = token;
  return ZKE_OK;
}

static int step_shows(step *s) {
  zke_party_list *list;
  ck_ok(zke_lock_parties(z[SESSIONS - 1], path_of(s), &list));
  ck_assert_int_eq(list->data[0].office, 1);
  ck_assert_int_eq(list->data[0].mzxid, newest);
  zke_free(list);
  return ZKE_OK;
}

static const step_verb verbs[] = {
    VERB(of),     VERB(acquire), VERB(try),   VERB(start),   VERB(release),
    VERB(check),  VERB(op),      VERB(is),    VERB(old_op),  VERB(gets),
    VERB(tries),  VERB(starts),  VERB(gives), VERB(steals),  VERB(has),
    VERB(breaks), VERB(reads),   VERB(newer), VERB(unreads), VERB(shows),
    {NULL, NULL}};

static bool sleeps_on_either(const step *s) {
  return sleeps(strcmp(s->verb, "gets") == 0 ? (void *)own(s) : s->object);
}

static const step_recipe of_multilock = {.verbs = verbs,
                                         .free = free_multilock,
                                         .cancel = cancel_multilock,
                                         .waits = sleeps_on_either};

/* Free all; nothing may be left. */
static void end_steps(void) {
  free_parties();
  for (int i = 0; i < SESSIONS; i++) {
    for (int j = 0; j < 3; j++) zke_lock_free(alone[i][j]);
    zke_rwlock_free(reader[i]);
  }
  memset(alone, 0, sizeof alone);
  memset(reader, 0, sizeof reader);
  expect_nothing_left();
  close_sessions();
}

#define TEST_STEPS(name, script) \
  TEST(name) {                   \
    open_steps(&of_multilock);   \
    play(script);                \
    end_steps();                 \
  }

/* ---- one contender ---- */

/* While it is held, others are refused each of its locks, with the holder's
 * name; afterwards each is free. */
TEST_STEPS(acquire_holds_all_and_release_gives_up_all,
           "ann of abc; ann acquire; ann is HELD; ann check;"
           "bob tries a -> HELD; said ann; bob tries b -> HELD; said ann;"
           "bob tries c -> HELD; said ann; ann release; ann is OUT;"
           "ann check -> LOST; ann release -> LOST; bob tries a; bob tries b;"
           "bob tries c")

/* One step: one czxid, one guid, and the names of lock.h and rwlock.h. */
TEST(entries_are_made_in_one_step) {
  static const char *const tails[] = {"-lock-0000000000", "-__READ__0000000000",
                                      "-__WRIT__0000000000"};
  static const char *const paths[] = {"/a", "/b", "/c"};
  char first[64] = "";
  open_steps(&of_multilock);
  play("ann of abRcW; ann acquire");
  for (int i = 0; i < 3; i++) {
    zke_strings *names;
    zke_stat stat;
    ck_ok(zke_children(z[1], paths[i], NULL, NULL, &names, &stat));
    ck_assert_int_eq(names->count, 1);
    ck_assert_str_eq(names->data[0] + ENTRY_HEAD, tails[i]);
    if (i == 0)
      snprintf(first, sizeof first, "%.*s", ENTRY_HEAD, names->data[0]);
    ck_assert_mem_eq(names->data[0], first, ENTRY_HEAD);
    ck_assert_int_eq(stat.pzxid, zke_multilock_token(party[0]));
    zke_free(names);
  }
  end_steps();
}

/* P11: invalid arguments are refused: no items, one item twice, an invalid
 * mode, too many operations. */
TEST(arguments_are_checked) {
  static const char *const paths[] = {"/a", "/", "nope", NULL};
  zke_multilock *ml = (zke_multilock *)(void *)z;
  zke_multilock_item items[2] = {{"/a", ZKE_MULTILOCK_LOCK},
                                 {"/b", ZKE_MULTILOCK_LOCK}};
  zke_op ops[3];
  open_steps(&of_multilock);
  ck_rc(zke_multilock_new(z[0], items, 0, NULL, &ml), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(ml);
  ck_rc(zke_multilock_new(z[0], NULL, 2, NULL, &ml), ZKE_BADARGUMENTS);
  items[1].mode = 3;
  ck_rc(zke_multilock_new(z[0], items, 2, NULL, &ml), ZKE_BADARGUMENTS);
  for (int i = 0; i < 4; i++) { /* the first: the same twice */
    items[1] = (zke_multilock_item){paths[i], ZKE_MULTILOCK_READ};
    ck_rc(zke_multilock_new(z[0], items, 2, NULL, &ml), ZKE_BADARGUMENTS);
  }
  play("ann of ab; ann acquire_now");
  ck_rc(zke_multilock_ops(party[0], ops, 3), ZKE_BADARGUMENTS);
  zke_multilock_free(NULL);
  end_steps();
}

/* One path of another kind: none is entered. */
TEST_STEPS(another_kind_on_a_path_is_refused,
           "create /b zkembed semaphore\n; ann of ab;"
           "ann acquire -> OTHERKIND; said /b is of kind semaphore;"
           "ann try -> OTHERKIND; ann start -> OTHERKIND; entries /a -> 0;"
           "bob of aR; bob try -> OTHERKIND") /* /a is now a lock */

/* One of two directories was removed: only that is made again. */
TEST_STEPS(removed_directories_are_made_again,
           "ann of ab; ann acquire; ann release; delete /b;"
           "ann acquire; ann release; delete /b; ann acquire; ann release")

/* The data is in each entry. */
TEST(the_list_shows_the_data) {
  zke_multilock_options o = {.size = sizeof o, .data = "job\0x", .len = 5};
  zke_party_list *list;
  open_steps(&of_multilock);
  party[0] = make_with(z[0], "ab", &o);
  play("ann acquire");
  ck_ok(zke_lock_parties(z[1], "/b", &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].held, 1);
  ck_assert_int_eq(list->data[0].mzxid, zke_multilock_token(party[0]));
  ck_assert_str_eq(list->data[0].identity, "ann");
  ck_assert_int_eq(list->data[0].len, 5);
  ck_assert_mem_eq(list->data[0].data, "job\0x", 5);
  zke_free(list);
  end_steps();
}

/* ---- all or none ---- */

/* One of three locks is held by another party: the multi-lock holds none, and
 * has no token, until that lock is free.  A lock that was always free then
 * shows the token too. */
TEST_STEPS(it_holds_only_when_all_are_free,
           "cid of abc; bob gets b; ann gets a; ann newer a; cid start;"
           "bob gives b; all dispatch; cid is WAITING; ann gives a;"
           "all dispatch; cid is HELD; cid newer; shows a; shows b; shows c")

/* One of its locks is granted to it while it waits for the other.  At the end
 * it has one token for both, greater than the grant's. */
TEST(one_lock_may_be_granted_before_the_others) {
  zke_party_list *list;
  open_steps(&of_multilock);
  play(
      "cid of ab; ann gets a; dan gets b; bob starts a; cid start;"
      "ann gives a; all dispatch;"
      "bob gives a;" /* it has seen cid behind it */
      "all dispatch; cid is WAITING");
  ck_ok(zke_lock_parties(z[4], "/a", &list));
  ck_assert_int_eq(list->data[0].office, 1);
  newest = list->data[0].mzxid;
  zke_free(list);
  play("dan gives b; all dispatch; cid is HELD; cid newer; shows a");
  end_steps();
}

/* While it waits for its other lock it is not overtaken, so it never
 * starves. */
TEST_STEPS(a_later_single_one_stands_behind,
           "cid of ab; ann gets a; cid start; bob starts b;"
           "bob has b -> LOST; ann gives a; all dispatch; cid is HELD;"
           "bob has b -> LOST; cid release; all dispatch; bob has b")

/* A refusal leaves no entry in any lock, and its sentence names the held
 * one. */
TEST_STEPS(try_takes_all_or_none_and_names_what_is_missing,
           "ann of abc; bob gets b; ann try -> HELD;"
           "said the lock /b is held by bob (pid; ann is OUT;"
           "entries /a -> 0; entries /c -> 0; entries /b -> 1; ann watches 0;"
           "bob gives b; ann try")

/* redisson#4456: a multi-lock that gives up keeps none of its locks, with no
 * time and after some. */
TEST_STEPS(a_timeout_leaves_none_and_names_what_is_missing,
           "ann of abc; bob gets b; ann acquire_now -> OPERATIONTIMEOUT;"
           "said the lock /b is held by bob; ann is OUT; entries /a -> 0;"
           "entries /c -> 0; ann watches 0;"
           "ann acquire_20 -> OPERATIONTIMEOUT;"
           "said the lock /b is held by bob; ann is OUT; entries /a -> 0;"
           "entries /c -> 0; ann watches 0")

/* Readers of one rwlock hold together, a writer alone. */
TEST_STEPS(modes_of_rwlocks_are_kept,
           "ann of aRb; bob of aRc; cid of aW; ann try; bob try;"
           "cid try -> HELD; said the rwlock /a; dan reads a; dan unreads a;"
           "cid start; dan reads a -> HELD;" /* a writer waits */
           "ann release; bob release; all dispatch; cid is HELD")

/* ---- losing ---- */

/* If one lock is lost, all are; but only the holder releases the others, since
 * it may still be working on them. */
TEST_STEPS(one_broken_loses_all,
           "ann of ab; ann op -> LOST; ann acquire; ann op; ann newer;"
           "bob breaks b; ann old_op -> NONODE; all dispatch;"
           "ann check -> LOST; ann op -> LOST; bob tries b;"
           "bob tries a -> HELD; ann release -> LOST; bob tries a;"
           "bob gives a; bob gives b; ann acquire") /* usable again */

/* Without a listener, check() finds out. */
TEST_STEPS(check_finds_one_stolen,
           "ann of ab; ann acquire; ann newer; bob steals a; bob newer a;"
           "ann check -> LOST; ann is LOST")

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
}

/* The multi-lock is first at /a and waits for /b; the holder of /b asks for /a:
 * its call closes the circle and reports it. */
TEST_STEPS(a_single_lock_that_closes_a_circle_is_told,
           "ann of ab; bob gets b; ann waits acquire; bob gets a -> DEADLOCK;"
           "said would wait for ever: /a is held by ann;"
           "said who waits for /b, held by this thread; bob gives b;"
           "ann returns")

/* The other way round: its wait for /b closes one, in either order. */
TEST_STEPS(a_multilock_that_closes_a_circle_is_told,
           "ann gets a; bob gets b; bob waits gets a; ann of bc;"
           "ann acquire -> DEADLOCK;"
           "said would wait for ever: /b is held by bob;"
           "said who waits for /a, held by this thread; entries /c -> 0;"
           "ann of cb; ann acquire -> DEADLOCK;"
           "said would wait for ever: /b is held by bob;"
           "said who waits for /a, held by this thread; entries /c -> 0;"
           "ann gives a; bob returns")

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
}
