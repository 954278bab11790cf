/* test_barrier.c - recipes/barrier: a znode that others wait for
 *
 * All waiters pass when a barrier goes, however it went and whatever they had
 * seen of it; while it stays they wait until their deadlines. */
#include "recipes/barrier.h"
#include "recipes/part/znode.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recipes.h"
#include "steps.h"
#include "test/seam.h"

#define PATH "/barriers/b"
#define NODE PATH "/barrier"

/* ---- steps, as in steps.h ----
 *
 *     P sets -> 1          set it: the first setting of the test
 *     P removes [1]        remove it, or only if it is the first setting
 *     P wait, P start
 *     P stands 1           which one stands; 0: none
 *     told ann SET 1, ann REMOVED 1, ann LOST
 *
 * A second object, such as ann', sets ephemeral barriers.
 */
static int64_t tokens[10]; /* of the barriers that were set */
static int settings;

/* Which of them has the token? 0: none. */
static int number_of(int64_t token) {
  int n = settings;
  while (n > 0 && tokens[n] != token) n--;
  ck_assert_int_eq(tokens[n], token);
  return n;
}

static void hear(zke_barrier *b, int event, int64_t token, void *context) {
  (void)b;
  if (event == ZKE_BARRIER_LOST)
    tell("%s LOST", (const char *)context);
  else
    tell("%s %s %d", (const char *)context,
         event == ZKE_BARRIER_SET ? "SET" : "REMOVED", number_of(token));
}

static int new_barrier(zke *session, const char *who, void **object) {
  zke_barrier_options o = {.size = sizeof o,
                           .ephemeral = strchr(who, '\'') != NULL,
                           .listener = hear,
                           .context = (void *)(uintptr_t)who};
  zke_barrier *made = NULL;
  int rc = zke_barrier_new(session, PATH, &o, &made);
  *object = made;
  return rc;
}

/* Each token is the znode's czxid, and greater than all earlier ones. */
static int step_sets(step *s) {
  int64_t token = 7;
  zke_stat stat;
  int rc = zke_barrier_set(s->object, "why", 3, s->deadline, &token);
  if (rc != ZKE_OK) ck_assert_int_eq(token, 7);
  if (rc != ZKE_OK) return rc;
  ck_ok(zke_exists(s->session, NODE, NULL, NULL, &stat));
  ck_assert_int_eq(stat.czxid, token);
  ck_assert_int_gt(token, tokens[settings]);
  tokens[++settings] = token;
  gives(s, "%d", settings);
  return rc;
}

static int step_removes(step *s) {
  int number = s->word[0] ? atoi(s->word[0]) : 0;
  return zke_barrier_remove(s->object, tokens[number], s->deadline);
}

static int step_stands(step *s) {
  int64_t token = 7;
  ck_ok(zke_barrier_get(s->object, &token));
  return sees(s, "%d", number_of(token));
}

STEP(wait, zke_barrier_wait(s->object, s->deadline))
STEP(start, zke_barrier_start(s->object))

static const step_verb verbs[] = {VERB(sets), VERB(removes), VERB(stands),
                                  VERB(wait), VERB(start),   {NULL, NULL}};

static void free_barrier(void *b) { zke_barrier_free(b); }
static int cancel_wait(void *b) { return zke_barrier_cancel(b); }

static const step_recipe of_barrier = {.verbs = verbs,
                                       .create = new_barrier,
                                       .free = free_barrier,
                                       .cancel = cancel_wait};

/* ---- setting and removing ---- */

/* A party sets the barrier; a second set is refused, and told by whom it stands
 * and since when.  It stands without any object.  Its two znodes come and go
 * together. */
TEST(set_once) {
  play_steps(&of_barrier,
             "ann sets -> 1; entries /barriers/b -> 2;"
             "bob sets -> HELD; said is set by; said  since 2;"
             "bob removes; entries /barriers/b -> 0;"
             "bob sets -> 2; ann,bob free;"
             "data /barriers/b/barrier");
}

/* A removal names what it removes: that of an earlier barrier removes
 * nothing. */
TEST(remove_by_token) {
  play_steps(&of_barrier,
             "ann removes -> NONODE; ann stands 0; ann sets; ann removes 1;"
             "ann sets; ann removes 1 -> NONODE; said  is not set;"
             "said of token; ann stands 2");
}

/* ---- two stores of one file ---- */

/* ann and bob have a store each; ann's may have its own system calls. */
static void open_file(const zke_os *os) {
  zke_options o = {.size = sizeof o, .os = os};
  begin_steps(&of_barrier);
  ck_ok(zke_open(test_path("db"), &o, &z[0]));
  z[1] = test_open(test_path("db"));
  for (int i = 0; i < 2; i++)
    ck_ok(new_barrier(z[i], identities[i], &party[i]));
}

static void close_file(void) {
  free_parties();
  for (int i = 0; i < 2; i++) ck_ok(zke_close(z[i]));
}

static int64_t set(int i) {
  int64_t token = 0;
  ck_ok(zke_barrier_set(party[i], "why", 3, soon(z[i]), &token));
  return token;
}

/* The token of the standing barrier; 0: none. */
static int64_t standing(int i) {
  int64_t token = -1;
  ck_ok(zke_barrier_get(party[i], &token));
  return token;
}

static void *set_at_once(void *arg) {
  while (zke_barrier_set(party[1], "next", 4, 0, NULL) == ZKE_HELD)
    test_pause();
  return arg;
}

/* A removal whose reply was lost is repeated, while another process sets the
 * barrier again: the new barrier stays, and has the greater token. */
TEST(lost_removal_hits_no_other) {
  pthread_t thread;
  open_file(NULL);
  for (int i = 0; i < 20; i++) {
    int64_t token = set(0);
    ck_assert_int_eq(pthread_create(&thread, NULL, set_at_once, NULL), 0);
    play("ann fails after; ann removes");
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    int64_t now = standing(0);
    ck_assert_int_gt(now, token);
    ck_ok(zke_barrier_remove(party[0], now, soon(z[0])));
  }
  close_file();
}

/* In the pause between two tries the other process removes the barrier. */
static void remove_in_pause(void *context, int64_t ns) {
  struct timespec t = {0, (long)ns};
  (void)context;
  zke_barrier_remove(party[1], 0, 0);
  nanosleep(&t, NULL);
}

/* If a set loses its reply, and the barrier is removed before the retry, it is
 * not set again, since no one would remove it.  But a set that never took
 * effect is repeated. */
TEST_LOOP(lost_setting_is_not_set_twice, 0, 2) {
  zke_os os = {.size = sizeof os, .sleep = remove_in_pause};
  open_file(&os);
  play("ann sets; ann removes"); /* makes the directory */
  play(_i ? "ann fails after; ann sets -> CONNECTIONLOSS; ann stands 0"
          : "ann fails before; ann sets; ann stands 2");
  close_file();
}

/* ---- in the middle of a removal ---- */

static int looks; /* readings of the clock until bob acts; 0: he has, or will
                     not */

/* Each call of the library begins with a reading of the clock: before the
 * chosen one bob removes the barrier and sets it again.  If ann has the gate
 * then, bob acts before the next. */
static void meddle_at_look(seam_call *c) {
  (void)c;
  if (!looks || --looks > 0) return;
  int rc = zke_barrier_remove(party[1], 0, zke_now(z[1]));
  if (rc == ZKE_OPERATIONTIMEOUT)
    looks = 1;
  else
    set(1);
}

/* While ann removes the barrier, bob removes it first and sets the next one, at
 * every place.  With a token the next one stays; in any case its two znodes
 * stay or go together. */
TEST_LOOP(a_removal_spares_the_next_setting, 0, 2) {
  static seam s = {.before = {[SEAM_clock] = meddle_at_look}};
  int n = 1;
  open_file(seam_os(&s));
  for (bool more = true; more; n++) {
    int64_t token = set(1);
    looks = n;
    int rc = zke_barrier_remove(party[0], _i ? token : 0, soon(z[0]));
    more = looks == 0;
    looks = 0;
    int64_t now = standing(1);
    if (rc != ZKE_OK) ck_rc(rc, ZKE_NONODE);
    if (_i && more) ck_assert_int_gt(now, token);
    if (!more) ck_assert_int_eq(now, 0);
    ck_assert_int_eq(entries(z[1], PATH), now ? 2 : 0);
    if (now) ck_ok(zke_barrier_remove(party[1], now, soon(z[1])));
  }
  ck_assert_int_gt(n, 5);
  close_file();
}

/* ---- what it tells ---- */

/* Who set it, since when, and why. */
TEST(the_barrier_says_who_set_it) {
  zke_party_list *list;
  zke_stat stat;
  open_steps(&of_barrier);
  ck_ok(zke_barrier_parties(z[4], PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  play("ann sets");
  ck_ok(zke_exists(z[4], NODE, NULL, NULL, &stat));
  ck_ok(zke_barrier_parties(z[4], PATH, &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].czxid, stat.czxid);
  ck_assert_int_eq(list->data[0].session, zke_session_id(z[0]));
  ck_assert_int_eq(list->data[0].pid, getpid());
  ck_assert_int_eq(list->data[0].since_ms, stat.ctime);
  ck_assert_str_eq(list->data[0].identity, "ann");
  ck_assert_int_eq(list->data[0].len, 3);
  ck_assert_str_eq(list->data[0].data, "why");
  zke_free(list);
  play("bob wait_now -> OPERATIONTIMEOUT; said is set by ann (pid");
}

/* A persistent barrier outlives its setter, an ephemeral one does not. */
TEST(ephemeral_on_request) {
  play_steps(&of_barrier,
             "ann sets; ann free; ann expires;"
             "cid wait_now -> OPERATIONTIMEOUT; cid removes; bob' sets;"
             "cid wait_now -> OPERATIONTIMEOUT; bob expires; cid wait");
}

/* ---- waiting ---- */

/* Without a barrier no one waits; with one all wait until it goes. */
TEST(wait_until_removed) {
  play_steps(&of_barrier,
             "bob wait_now; ann sets; bob waits wait; bob still; ann removes;"
             "bob returns; bob watches 0");
}

/* The barrier is removed and set again before the waiter looks: it waited for
 * the former one (the token is the condition, not the wake-up). */
TEST(a_replaced_barrier_lets_waiters_pass) {
  zke_op ops[2];
  open_steps(&of_barrier);
  play("ann sets; bob waits wait");
  zke_op_delete(&ops[0], NODE, -1);
  zke_op_create(&ops[1], NODE, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_multi(z[0], ops, 2, NULL));
  play("bob returns; bob watches 0");
}

/* A deadline and a cancel leave no watch; another wake-up does not end the
 * wait.  The cancel does not affect the next call. */
TEST(deadline_and_cancel) {
  play_steps(&of_barrier,
             "ann sets; bob wait_40 -> OPERATIONTIMEOUT; bob watches 0;"
             "bob waits wait; bob wakes; bob wait_now -> MISUSE; bob cancels;"
             "bob returns -> CANCELLED; said cancelled; bob watches 0;"
             "bob cancel -> IDLE; bob wait_now -> OPERATIONTIMEOUT");
}

/* The session's end ends the wait. */
TEST(expired_waiting) {
  play_steps(&of_barrier,
             "bob start; ann sets; bob dispatches; told bob SET 1;"
             "bob waits wait; bob expires; bob returns -> INVALIDSTATE;"
             "told bob LOST; bob wait_now -> INVALIDSTATE;"
             "bob sets -> INVALIDSTATE");
}

/* Another store has ended the session: any call that finds this tells the
 * listener. */
TEST(expired_meanwhile) {
  begin_steps(&of_barrier);
  for (int i = 1; i < 3; i++) z[i] = test_open(test_path("db"));
  ck_ok(new_barrier(z[1], "bob", &party[1]));
  play(
      "bob,bob start; bob expires; bob sets_now -> INVALIDSTATE;"
      "told bob LOST");
  free_parties();
  for (int i = 1; i < 3; i++) ck_ok(zke_close(z[i]));
}

/* ---- listening ---- */

/* The listener first hears of the standing barrier, then of each that comes or
 * goes, with its token. */
TEST(listener_hears) {
  play_steps(&of_barrier,
             "bob start; told ; ann sets; bob dispatches; ann removes;"
             "bob dispatches; told bob SET 1, bob REMOVED 1; bob free;"
             "bob watches 0; ann sets; bob' start; told bob' SET 2;"
             "bob' free; bob watches 0");
}

/* The standing barrier is the first event even if a call on another thread has
 * seen it before and waits for its end; that call returns after the removal. */
TEST(started_beside_a_waiter) {
  play_steps(&of_barrier,
             "ann sets; bob waits wait; bob start; told bob SET 1; bob still;"
             "ann removes; bob returns; told bob REMOVED 1");
}

static void free_it(zke_barrier *b, int event, int64_t token, void *context) {
  (void)event, (void)token;
  *(int *)context += 1;
  zke_barrier_free(b);
}

/* The listener may free the object. */
TEST(listener_frees) {
  int freed = 0;
  zke_barrier_options o = {
      .size = sizeof o, .listener = free_it, .context = &freed};
  zke_barrier *b;
  open_steps(&of_barrier);
  ck_ok(zke_barrier_new(z[1], PATH, &o, &b));
  ck_ok(zke_barrier_start(b));
  play("ann sets; bob dispatches");
  ck_assert_int_eq(freed, 1);
}

/* ---- foreign nodes ---- */

/* The list of setters has one. */
static void ck_one_setter(void) {
  zke_party_list *list;
  ck_ok(zke_barrier_parties(z[0], PATH, &list));
  ck_assert_int_eq(list->count, 1);
  zke_free(list);
}

/* A barrier that was made without the recipe, also with odd data, blocks and
 * can be removed. */
TEST(made_by_hand) {
  static const char *const texts[] = {"", "x", "\n", "id-1 zz\n",
                                      "id-1-2-3 5 6 gone\nwhy"};
  open_steps(&of_barrier);
  play("create /barriers; create /barriers/b");
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ck_ok(zke_create(z[0], NODE, texts[i], (int)strlen(texts[i]), ZKE_OPEN_ACL,
                     ZKE_PERSISTENT, NULL, NULL));
    ck_one_setter();
    play(
        "ann wait_now -> OPERATIONTIMEOUT; ann sets -> HELD; ann removes;"
        "ann wait_now");
  }
  ck_ok(zke_create(z[0], NODE, NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                   NULL));
  ck_one_setter();
  play("ann removes");
}

/* A path that is another recipe's is refused. */
TEST(other_kind) {
  open_steps(&of_barrier);
  ck_ok(
      zke_recipe_place(z[0], PATH, "lock", ZKE_PERSISTENT, NULL, ZKE_FOREVER));
  play(
      "ann sets -> OTHERKIND; ann wait -> OTHERKIND;"
      "ann removes -> OTHERKIND; ann start -> OTHERKIND");
}

/* P11: invalid arguments are refused; the output is then NULL. */
TEST(bad_arguments) {
  zke *own = test_open(":memory:");
  zke_barrier_options o = {.size = 3};
  zke_barrier *b = (zke_barrier *)&o;
  zke_party_list *list;
  ck_rc(zke_barrier_new(own, PATH, &o, &b), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(b);
  ck_rc(zke_barrier_new(own, "x", NULL, &b), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_new(own, "/", NULL, &b), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_new(own, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_new(NULL, PATH, NULL, &b), ZKE_BADARGUMENTS);
  ck_ok(zke_barrier_new(own, PATH, NULL, &b));
  ck_rc(zke_barrier_set(b, "x", -1, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_set(b, NULL, 1, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_parties(own, PATH, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_barrier_parties(own, "x", &list), ZKE_BADARGUMENTS);
  zke_barrier_free(NULL);
  zke_barrier_free(b);
  ck_ok(zke_close(own));
}

/* ---- deaths, lost replies, faults ---- */

/* The typical use: set, wait in vain, remove, and wait no more. */
static int use(zke *own) {
  zke_barrier *b = NULL;
  int rc = zke_barrier_new(own, PATH, NULL, &b);
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
  if (rc == ZKE_OK) rc = zke_barrier_wait(b, zke_now(own) + 1000);
  zke_barrier_free(b);
  return rc;
}

/* It stands completely or not at all, and others can remove it and continue. */
static void check(zke *other, int rc) {
  zke_barrier *b = NULL;
  int64_t token;
  ck_ok(zke_barrier_new(other, PATH, NULL, &b));
  ck_ok(zke_barrier_get(b, &token));
  if (rc == ZKE_OK) ck_assert_int_eq(token, 0);
  ck_assert_int_eq(entries(other, PATH), token ? 2 : 0);
  if (token) ck_ok(zke_barrier_remove(b, token, soon(other)));
  ck_ok(zke_barrier_wait(b, 0));
  ck_ok(zke_barrier_set(b, "why", 3, soon(other), NULL));
  ck_ok(zke_barrier_remove(b, 0, soon(other)));
  zke_barrier_free(b);
}

static const recipe_use uses[] = {{"barrier", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);
