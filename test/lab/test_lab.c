/* test_lab: what the laboratory finds by itself, and that it says what it has
 * found.  test_lab_recipes and test_lab_bugs have real recipes. */
#include "test/lab/zkembed-lab.h"
#include "test/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "recipes/lock.h"

static zke_lab *made(const zke_lab_options *o) {
  zke_lab *lab = NULL;
  ck_assert_int_eq(zke_lab_new(o, &lab), ZKE_OK);
  return lab;
}

static void add(zke_lab *lab, const char *name, zke_lab_fn fn) {
  ck_assert_int_eq(zke_lab_process(lab, name, fn, NULL), ZKE_OK);
}

/* No faults, and what is found must contain `why`; NULL: nothing is. */
static void finds(zke_lab *lab, const char *why) {
  zke_lab_result r;
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  if (!why) {
    ck_assert_msg(!r.found, "%s: %s", r.why, r.schedule);
  } else {
    ck_assert_msg(r.found, "nothing was found where \"%s\" was to be", why);
    ck_assert_msg(strstr(r.why, why), "\"%s\" is not \"%s\"", r.why, why);
  }
}

static zke_lab_options no_faults(void) {
  zke_lab_options o = ZKE_INIT(zke_lab_options);
  o.crashes = o.expiries = o.losses = o.pauses = -1;
  o.time_ms = 1000;
  return o;
}

/* ---- what is found by itself ---- */

static void fire(zke *z, int type, int state, const char *path, void *fired) {
  (void)z, (void)type, (void)state, (void)path;
  *(int *)fired = 1;
}

/* Waits for a znode that nobody makes. */
static void wait_until(zke *z, int64_t deadline_ms) {
  int fired = 0;
  zke_exists(z, "/never", fire, &fired, NULL);
  while (!fired && zke_wait(z, deadline_ms) == ZKE_OK) continue;
  zke_forget(z, fire, &fired);
}

static void wait_for_ever(zke *z, void *arg) {
  (void)arg;
  wait_until(z, ZKE_FOREVER);
}

static void wait_for_a_second(zke *z, void *arg) {
  (void)arg;
  wait_until(z, zke_now(z) + 1000);
}

static void look_for_ever(zke *z, void *arg) {
  (void)arg;
  while (zke_exists(z, "/never", NULL, NULL, NULL) == ZKE_NONODE) continue;
}

static void call_abort(zke *z, void *arg) {
  (void)arg;
  zke_exists(z, "/", NULL, NULL, NULL);
  abort();
}

static void touch_nothing(zke *z, void *arg) {
  (void)arg;
  zke_exists(z, "/", NULL, NULL, NULL);
  *(volatile int *)16 = 1;
}

static void assert_nothing(zke *z, void *arg) {
  zke_stat stat;
  (void)arg;
  zke_exists(z, "/", NULL, NULL, &stat);
  zke_lab_assert(stat.numChildren == 77);
}

static void leave_memory(zke *z, void *arg) {
  void *volatile lost = malloc(100);
  (void)arg;
  zke_exists(z, "/", NULL, NULL, NULL);
  lost = NULL;
  (void)lost;
}

static void leave_znode(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/left", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
}

static void leave_watcher(zke *z, void *arg) {
  (void)arg;
  zke_exists(z, "/left", fire, NULL, NULL);
}

static void go_inside(zke *z, void *arg) {
  (void)arg;
  zke_exists(z, "/", NULL, NULL, NULL);
  zke_lab_enter("inside", 1);
  zke_lab_leave("inside");
}

static void go_where_nobody_is(zke *z, void *arg) {
  (void)arg;
  zke_exists(z, "/", NULL, NULL, NULL);
  zke_lab_enter("other", 1);
  zke_lab_exclude("other", "inside");
  zke_lab_leave("other");
}

static void lock_twice(zke *z, void *arg) {
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  (void)z, (void)arg;
  pthread_mutex_lock(&m);
  pthread_mutex_lock(&m);
}

static const struct {
  const char *name;
  zke_lab_fn first, second;
  const char *why;
} alone[] = {
    {"a wait that nobody ends", wait_for_ever, NULL, "waits for ever"},
    {"a wait that its deadline ends", wait_for_a_second, NULL,
     "waits for its deadline"},
    {"a loop", look_for_ever, NULL, "no end after 2000 steps"},
    {"abort()", call_abort, NULL, "Aborted"},
    {"a bad pointer", touch_nothing, NULL, "Segmentation fault"},
    {"an assertion", assert_nothing, NULL, "stat.numChildren == 77"},
    {"memory", leave_memory, NULL, "left 100 bytes of memory"},
    {"an ephemeral znode", leave_znode, NULL, "left 1 ephemeral"},
    {"a watcher", leave_watcher, NULL, "left 1 watchers"},
    {"a section with two", go_inside, go_inside, "is in \"inside\" beside"},
    {"two sections", go_inside, go_where_nobody_is, "while"},
    {"a mutex", lock_twice, NULL, "waits for ever in mutex"},
};
enum { ALONE = sizeof alone / sizeof alone[0] };

/* What the laboratory finds without being told what is wrong: waits without
 * end, crashes, what is left behind, two in one section. */
TEST_LOOP(finds_by_itself, 0, ALONE) {
  zke_lab_options o = no_faults();
  zke_lab *lab = made(&o);
  add(lab, "a", alone[_i].first);
  if (alone[_i].second) add(lab, "b", alone[_i].second);
  finds(lab, alone[_i].why);
  zke_lab_free(lab);
}

/* The options that say that a wait is meant. */
TEST(intended_waits_are_not_found) {
  zke_lab_options o = no_faults();
  o.timeouts = o.leftovers = 1;
  zke_lab *lab = made(&o);
  add(lab, "a", wait_for_a_second);
  add(lab, "b", leave_znode);
  finds(lab, NULL);
  zke_lab_free(lab);
}

/* ---- looks, notes and states ---- */

static int seen; /* put back before each schedule */

static void count_root(zke *z, void *arg) {
  zke_stat stat;
  (void)arg;
  if (zke_exists(z, "/", NULL, NULL, &stat) == ZKE_OK &&
      stat.numChildren > seen)
    seen = stat.numChildren;
}

static void root_stays_small(zke *z, void *arg) {
  int *most = arg;
  (void)z;
  zke_lab_assert(seen <= *most);
}

static void make_one(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/n-", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL, NULL,
             NULL);
}

/* The reserved znode and two more. */
TEST(looks_see_each_step) {
  for (int most = 2; most <= 3; most++) {
    zke_lab_options o = no_faults();
    zke_lab *lab = made(&o);
    add(lab, "a", make_one);
    add(lab, "b", make_one);
    zke_lab_always(lab, count_root, NULL);
    zke_lab_finally(lab, root_stays_small, &most);
    finds(lab, most == 2 ? "seen <= *most" : NULL);
    ck_assert_int_eq(seen, 0);
    zke_lab_free(lab);
  }
}

/* Two processes that take turns without a lock: a static variable that the
 * search knows of keeps states apart that only differ in it. */
static int counter;

static void add_one(zke *z, void *arg) {
  int was = counter;
  (void)arg;
  zke_exists(z, "/", NULL, NULL, NULL);
  counter = was + 1;
  zke_exists(z, "/", NULL, NULL, NULL);
}

static void counted_both(zke *z, void *arg) {
  (void)z, (void)arg;
  zke_lab_assert(counter == 2);
}

/* The search by states stays out while the program's memory is not named, and
 * finds a lost update once it is. */
TEST(states_by_named_memory) {
  zke_lab_options o = no_faults();
  zke_lab_result r;
  o.strategies = ZKE_LAB_STATES;
  zke_lab *lab = made(&o);
  add(lab, "a", add_one);
  add(lab, "b", add_one);
  zke_lab_finally(lab, counted_both, NULL);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  ck_assert_int_eq(r.states, 0); /* without a name the search stays out */
  ck_assert_int_eq(zke_lab_state(lab, &counter, sizeof counter), ZKE_OK);
  finds(lab, "counter == 2");
  zke_lab_free(lab);
}

/* All orders of two processes with a lock, with one death: nothing is left. */
static void take_lock(zke *z, void *arg) {
  zke_lock *lock = NULL;
  (void)arg;
  if (zke_lock_new(z, "/lock", NULL, &lock) != ZKE_OK) return;
  if (zke_lock_acquire(lock, ZKE_FOREVER) == ZKE_OK) {
    zke_lab_enter("held", 1);
    zke_lab_leave("held");
    zke_lock_release(lock);
  }
  zke_lock_free(lock);
}

/* Two uses of a lock, with a death, have finitely many states: the search
 * visits all, and says so. */
TEST(states_come_to_an_end) {
  zke_lab_options o = no_faults();
  zke_lab_result r;
  o.crashes = 1;
  o.strategies = ZKE_LAB_STATES;
  o.time_ms = 60000;
  zke_lab *lab = made(&o);
  add(lab, "a", take_lock);
  add(lab, "b", take_lock);
  ck_assert_int_eq(zke_lab_state(lab, NULL, 0), ZKE_OK);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  ck_assert_msg(!r.found, "%s: %s", r.why, r.schedule);
  ck_assert_int_eq(r.exhausted, 1);
  zke_lab_free(lab);
}

/* The same bug by each strategy. */
TEST_LOOP(each_strategy_searches, 0, 4) {
  zke_lab_options o = no_faults();
  o.strategies = 1 << _i;
  zke_lab *lab = made(&o);
  add(lab, "a", add_one);
  add(lab, "b", add_one);
  zke_lab_finally(lab, counted_both, NULL);
  ck_assert_int_eq(zke_lab_state(lab, &counter, sizeof counter), ZKE_OK);
  finds(lab, "counter == 2");
  zke_lab_free(lab);
}

/* Which process made the first, second ... step, a bit each. */
static unsigned order_of_steps;

static void take_steps(zke *z, void *second) {
  (void)z;
  for (int i = 0; i < 7; i++) {
    zke_lab_yield();
    order_of_steps = order_of_steps << 1 | (second != NULL);
    zke_lab_assert(order_of_steps != 0x2665); /* 10 0110 0110 0101 */
  }
}

/* Chance and the walk take turns, and each has letters of its own. */
TEST(finding_between_turns_is_replayed) {
  for (uint64_t seed = 1; seed <= 3; seed++) {
    zke_lab_options o = no_faults();
    zke_lab_result r;
    o.seed = seed;
    o.time_ms = 10000;
    zke_lab *lab = made(&o);
    add(lab, "a", take_steps);
    ck_assert_int_eq(zke_lab_process(lab, "b", take_steps, lab), ZKE_OK);
    zke_lab_state(lab, &order_of_steps, sizeof order_of_steps);
    ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
    ck_assert_int_eq(r.found, 1);
    char schedule[256];
    snprintf(schedule, sizeof schedule, "%s", r.schedule);
    ck_assert_int_eq(zke_lab_replay(lab, schedule, &r), ZKE_OK);
    ck_assert_msg(r.found && !r.stale, "seed %d: %s", (int)seed, schedule);
    zke_lab_free(lab);
  }
}

/* ---- threads, clocks and sessions of a process ---- */

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;

static void add_one_guarded(zke *z, void *arg) {
  pthread_mutex_lock(&guard);
  add_one(z, arg);
  pthread_mutex_unlock(&guard);
}

static void keep_own(zke *z, void *arg) {
  const char *path = arg ? "/a" : "/b";
  zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
  zke_delete(z, path, -1);
}

/* The last thread to return answers for what the session leaves. */
TEST(thread_that_returns_first_leaves_nothing_of_another) {
  zke_lab_options o = no_faults();
  zke_lab *lab = made(&o);
  add(lab, "a", keep_own);
  ck_assert_int_eq(zke_lab_thread(lab, "a", "b", keep_own, lab), ZKE_OK);
  finds(lab, NULL);
  zke_lab_free(lab);
}

static void keep_one(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/a", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
}

/* Two threads of one session: what either leaves is found when both have
 * ended. */
TEST(threads_answer_for_what_their_session_leaves) {
  zke_lab_options o = no_faults();
  zke_lab *lab = made(&o);
  add(lab, "a", keep_one);
  ck_assert_int_eq(zke_lab_thread(lab, "a", "b", keep_own, lab), ZKE_OK);
  finds(lab, "left 1 ephemeral znodes");
  zke_lab_free(lab);
}

/* Two threads add to a counter: a lost update is found without their mutex,
 * none with it. */
TEST(threads_share_a_session_and_a_mutex) {
  for (int guarded = 0; guarded < 2; guarded++) {
    zke_lab_fn fn = guarded ? add_one_guarded : add_one;
    zke_lab_options o = no_faults();
    zke_lab *lab = made(&o);
    add(lab, "a", fn);
    ck_assert_int_eq(zke_lab_thread(lab, "a", "b", fn, NULL), ZKE_OK);
    zke_lab_finally(lab, counted_both, NULL);
    finds(lab, guarded ? NULL : "counter == 2");
    zke_lab_free(lab);
  }
}

static void sleep_a_day(zke *z, void *arg) {
  struct timespec day = {86400, 0}, before, after;
  int64_t began = zke_now(z);
  (void)arg;
  clock_gettime(CLOCK_MONOTONIC, &before);
  nanosleep(&day, NULL);
  clock_gettime(CLOCK_MONOTONIC, &after);
  zke_lab_assert(after.tv_sec - before.tv_sec == 86400);
  zke_lab_assert(zke_now(z) - began == 86400000);
}

/* A program that opens its own handle opens the same database. */
static void open_another(zke *z, void *arg) {
  zke *other = NULL;
  (void)arg;
  make_one(z, NULL);
  zke_lab_assert(zke_open("/no/such/file", NULL, &other) == ZKE_OK);
  zke_lab_assert(zke_exists(other, "/n-0000000000", NULL, NULL, NULL) ==
                 ZKE_OK);
  zke_lab_assert(zke_session_id(other) != zke_session_id(z));
  zke_close(other);
}

/* A process sleeps a day, another opens a further session: both end at once,
 * and nothing is found. */
TEST(time_and_sessions_belong_to_the_laboratory) {
  zke_lab_options o = no_faults();
  zke_lab *lab = made(&o);
  add(lab, "a", sleep_a_day);
  add(lab, "b", open_another);
  finds(lab, NULL);
  zke_lab_free(lab);
}

/* ---- schedules ---- */

/* A finding's schedule is short, and finds the same 100 times of 100; with
 * another program it is told that it does not fit. */
TEST(a_schedule_is_replayed) {
  char schedule[100];
  zke_lab_result r;
  zke_lab_options o = no_faults();
  zke_lab *lab = made(&o);
  add(lab, "a", add_one);
  add(lab, "b", add_one);
  zke_lab_finally(lab, counted_both, NULL);
  finds(lab, "counter == 2");
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  ck_assert_uint_lt(strlen(r.schedule), 80);
  snprintf(schedule, sizeof schedule, "%s", r.schedule);
  for (int i = 0; i < 100; i++) {
    ck_assert_int_eq(zke_lab_replay(lab, schedule, &r), ZKE_OK);
    ck_assert_int_eq(r.found, 1);
    ck_assert_int_eq(r.stale, 0);
    ck_assert_str_eq(r.schedule, schedule);
  }
  /* another program makes other calls */
  zke_lab *other = made(&o);
  add(other, "a", make_one);
  add(other, "b", make_one);
  ck_assert_int_eq(zke_lab_replay(other, schedule, &r), ZKE_OK);
  ck_assert_int_eq(r.found, 0);
  ck_assert_int_eq(r.stale, 1);
  zke_lab_free(other);
  zke_lab_free(lab);
}

/* What is drawn names the processes, the calls and what was wrong. */
TEST_LOOP(a_picture_has_all, 0, 2) {
  static const char *const names[] = {"picture.txt", "picture.svg"};
  static const char *const words[] = {"anna", "ben", "exists /", "counter =="};
  static char text[65536];
  zke_lab_options o = no_faults();
  zke_lab *lab = made(&o);
  add(lab, "anna", add_one);
  add(lab, "ben", add_one);
  zke_lab_finally(lab, counted_both, NULL);
  ck_assert_int_eq(zke_lab_picture(lab, "ab", names[_i]), ZKE_OK);
  FILE *f = fopen(names[_i], "r");
  ck_assert_ptr_nonnull(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  text[n] = '\0';
  fclose(f);
  unlink(names[_i]);
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    ck_assert_msg(strstr(text, words[i]), "%s is not in %s", words[i], text);
  ck_assert_int_eq(strncmp(text, "<svg ", 5) == 0, _i == 1);
  ck_assert_int_eq(zke_lab_picture(lab, "ab", "/no/such/file"),
                   ZKE_SYSTEMERROR);
  zke_lab_free(lab);
}

/* ---- misuse ---- */

/* Options out of bounds, names twice, too many processes and schedules that are
 * none are refused. */
TEST(misuse_is_refused) {
  zke_lab_result r;
  zke_lab *lab = NULL;
  zke_lab_options o = ZKE_INIT(zke_lab_options);
  o.crashes = -2;
  ck_assert_int_eq(zke_lab_new(&o, &lab), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(lab);
  o = (zke_lab_options)ZKE_INIT(zke_lab_options);
  o.strategies = 64;
  ck_assert_int_eq(zke_lab_new(&o, &lab), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_new(NULL, NULL), ZKE_BADARGUMENTS);
  lab = made(NULL);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_process(lab, "", add_one, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_process(lab, "a", NULL, NULL), ZKE_BADARGUMENTS);
  add(lab, "a", add_one);
  ck_assert_int_eq(zke_lab_process(lab, "a", add_one, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_thread(lab, "b", "c", add_one, NULL),
                   ZKE_BADARGUMENTS);
  for (int i = 1; i < ZKE_LAB_MOST; i++) {
    char name[] = {(char)('a' + i), '\0'};
    add(lab, name, add_one);
  }
  ck_assert_int_eq(zke_lab_process(lab, "f", add_one, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_replay(lab, "a!", &r), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_replay(lab, "a0", &r), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_replay(lab, "a.12", &r), ZKE_BADARGUMENTS);
  zke_lab_free(lab);
  zke_lab_free(NULL);
}

/* Outside of a run, code under test may keep its marks. */
TEST(marks_do_nothing_outside) {
  zke_lab_enter("held", 1);
  zke_lab_leave("held");
  zke_lab_exclude("held", "other");
  zke_lab_yield();
  zke_lab_note("nothing");
  zke_lab_fail("nothing");
}
