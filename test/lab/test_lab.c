/* test_lab: what the laboratory finds by itself, and how it reports findings.
 * test_lab_recipes and test_lab_bugs have real recipes.
 *
 * test_lab_forked is the same with the forking laboratory, which has no
 * pictures of worlds (WITH_FORKS). */
#include "test/lab/zkembed-lab.h"
#include "test/test.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recipes/lock.h"

#if !defined(WITH_FORKS)
enum { WITH_FORKS = 0 };
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SEGMENTATION_FAULT "has ended the program with status"
#else
#define SEGMENTATION_FAULT "Segmentation fault"
#endif

static zke_lab *made(const zke_lab_options *o) {
  zke_lab *lab = NULL;
  ck_assert_int_eq(zke_lab_new(o, &lab), ZKE_OK);
  return lab;
}

static void add(zke_lab *lab, const char *name, zke_lab_fn fn) {
  ck_assert_int_eq(zke_lab_process(lab, name, fn, NULL), ZKE_OK);
}

/* Without faults; the finding must contain `why`; NULL: there must be none. */
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

/* Searches end by their schedules; time is only for hangs. */
enum { PATIENCE_MS = 60000 };

static zke_lab_options no_faults(void) {
  zke_lab_options o = ZKE_INIT(zke_lab_options);
  o.crashes = o.expiries = o.losses = o.pauses = -1;
  o.schedules =
      test_sample(WITH_FORKS ? 1000 : 100000, WITH_FORKS ? 128 : 2000);
  o.time_ms = PATIENCE_MS;
  return o;
}

/* ---- what is found by itself ---- */

static void fire(zke *z, int type, int state, const char *path, void *fired) {
  (void)z, (void)type, (void)state, (void)path;
  *(int *)fired = 1;
}

/* Waits for a znode that is never made. */
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

static void make_one(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/n-", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL, NULL,
             NULL);
}

static void add_nothing(zke *z, void *arg) {
  (void)arg;
  zke_sync(z, "/");
}

/* Makes no more calls once a znode exists. */
static void spin(zke *z, void *arg) {
  (void)arg;
  volatile bool there =
      zke_exists(z, "/n-0000000000", NULL, NULL, NULL) == ZKE_OK;
  while (there) continue;
}

static int go_down(volatile char *above) {
  volatile char here[100];
  here[0] = *above;
  return here[0] ? 1 : go_down(here) + here[0];
}

static void go_deep(zke *z, void *arg) {
  volatile char first = 0;
  (void)arg;
  zke_exists(z, "/", NULL, NULL, NULL);
  go_down(&first);
}

/* The compiler must not see what happens to a block. */
static char *volatile block;

static void free_twice(zke *z, void *arg) {
  (void)arg;
  block = malloc(40);
  free(block);
  zke_exists(z, "/", NULL, NULL, NULL);
  free(block);
}

static void write_freed(zke *z, void *arg) {
  (void)arg;
  block = malloc(40);
  free(block);
  zke_exists(z, "/", NULL, NULL, NULL);
  block[20] = 0;
  block = malloc(40);
  free(block);
}

static void write_behind(zke *z, void *arg) {
  (void)arg;
  block = malloc(5);
  zke_exists(z, "/", NULL, NULL, NULL);
  block[5] = '\0';
  free(block);
}

static const struct {
  const char *name;
  zke_lab_fn first, second;
  const char *why;
  bool by_arena; /* else a sanitizer finds it */
} alone[] = {
    {"a wait that nobody ends", wait_for_ever, NULL, "waits for ever", false},
    {"a wait that its deadline ends", wait_for_a_second, NULL,
     "waits for its deadline", false},
    {"a loop", look_for_ever, NULL, "no end after 2000 steps", false},
    {"abort()", call_abort, NULL, "Aborted", false},
    {"a bad pointer", touch_nothing, NULL, SEGMENTATION_FAULT, false},
    {"an assertion", assert_nothing, NULL, "stat.numChildren == 77", false},
    {"a loop without a call", spin, make_one, "a: goes on without a call",
     false},
    {"a recursion without end", go_deep, NULL, "has used up its stack", true},
    {"a block freed twice", free_twice, NULL, "a block is freed twice", true},
    {"a write to a freed block", write_freed, NULL,
     "written to memory that was freed", true},
    {"a write behind a block", write_behind, NULL,
     "written behind the end of a block", true},
    {"memory", leave_memory, NULL, "left 100 bytes of memory", true},
    {"an ephemeral znode", leave_znode, NULL, "left 1 ephemeral", false},
    {"a watcher", leave_watcher, NULL, "left 1 watchers", false},
    {"a section with two", go_inside, go_inside, "is in \"inside\" beside",
     false},
    {"two sections", go_inside, go_where_nobody_is, "while", false},
    {"a mutex", lock_twice, NULL, "waits for ever in mutex", false},
};
enum { ALONE = sizeof alone / sizeof alone[0] };

/* What the laboratory finds without assertions in the test: endless waits,
 * crashes, leaks, two processes in one section. */
TEST_LOOP(finds_by_itself, 0, ALONE) {
  zke_lab_options o = no_faults();
  if (WITH_FORKS && alone[_i].by_arena) return;
  zke_lab *lab = made(&o);
  add(lab, "a", alone[_i].first);
  if (alone[_i].second) add(lab, "b", alone[_i].second);
  finds(lab, alone[_i].why);
  zke_lab_free(lab);
}

#if defined(__SANITIZE_ADDRESS__)
static char *shared;

static void use_shared(zke *z, void *arg) {
  (void)arg;
  shared = malloc(1);
  *shared = 1;
  zke_exists(z, "/used", NULL, NULL, NULL);
  zke_lab_note("%d", *shared);
}

static void free_shared(zke *z, void *arg) {
  (void)arg;
  zke_exists(z, "/freed", NULL, NULL, NULL);
  free(shared);
  zke_exists(z, "/freed", NULL, NULL, NULL);
}

/* A use after free() ends only its own schedule, and is replayed: it happens in
 * this order of calls, and in no earlier one. */
TEST(what_a_sanitizer_reports_is_found) {
  zke_lab_options o = no_faults();
  zke_lab_result r;
  zke_lab *lab = made(&o);
  add(lab, "a", use_shared);
  add(lab, "b", free_shared);
  finds(lab, "a: has ended the program with status 1, after zke_exists /used");
  ck_assert_int_eq(zke_lab_replay(lab, "ab2a", &r), ZKE_OK);
  ck_assert_int_eq(r.found, 1);
  ck_assert_int_eq(zke_lab_replay(lab, "a2b2", &r), ZKE_OK);
  ck_assert_msg(!r.found, "%s", r.why);
  ck_assert_ptr_null(shared);
  zke_lab_free(lab);
}
#endif

/* Options that declare waits as intended. */
TEST(intended_waits_are_not_found) {
  zke_lab_options o = no_faults();
  o.timeouts = o.leftovers = 1;
  zke_lab *lab = made(&o);
  add(lab, "a", wait_for_a_second);
  add(lab, "b", leave_znode);
  finds(lab, NULL);
  zke_lab_free(lab);
}

static void make_it(zke *z, void *spare) {
  if (spare) zke_lab_spare();
  zke_create(z, "/made", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

static void await_it(zke *z, void *arg) {
  int fired = 0;
  (void)arg;
  while (zke_exists(z, "/made", fire, &fired, NULL) == ZKE_NONODE)
    zke_wait(z, ZKE_FOREVER);
  zke_forget(z, fire, &fired);
}

/* A wait is excused by a death, but not by that of a process that has said that
 * it is spare. */
TEST(a_spare_process_excuses_no_wait) {
  for (int spare = 0; spare <= 1; spare++) {
    zke_lab_options o = no_faults();
    o.crashes = o.waits = 1;
    zke_lab *lab = made(&o);
    add(lab, "a", await_it);
    zke_lab_process(lab, "b", make_it, spare ? lab : NULL);
    finds(lab, spare ? "a waits for ever in zke_wait" : NULL);
    zke_lab_free(lab);
  }
}

/* ---- a test that tests nothing ---- */

/* Some schedule must reach the place that the test names. */
TEST(what_is_never_reached_is_found) {
  for (int reaches = 0; reaches < 2; reaches++) {
    zke_lab_options o = no_faults();
    zke_lab_result r;
    zke_lab *lab = made(&o);
    add(lab, "a", reaches ? go_inside : add_nothing);
    zke_lab_sometimes(lab, "inside");
    ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
    ck_assert_int_eq(r.found, !reaches);
    ck_assert_int_eq(r.entries > 0, reaches);
    if (!reaches) ck_assert_ptr_nonnull(strstr(r.why, "reached \"inside\""));
    zke_lab_free(lab);
  }
}

/* Uses random numbers that the laboratory does not control. */
static void make_any(zke *z, void *arg) {
  unsigned number = 0;
  char path[32];
  (void)arg;
  syscall(SYS_getrandom, &number, sizeof number, 0);
  snprintf(path, sizeof path, "/n-%u", number);
  zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

/* A program that is not deterministic is refused, with the place of the
 * difference. */
TEST(what_does_not_repeat_itself_is_refused) {
  zke_lab_options o = no_faults();
  zke_lab_result r;
  zke_lab *lab = made(&o);
  add(lab, "a", make_any);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_RUNTIMEINCONSISTENCY);
  ck_assert_ptr_nonnull(strstr(zke_errmsg(), "came to \"zke_create /n-"));
  zke_lab_free(lab);
}

/* With these words, zke_lab_main() must print the text. */
static void prints(zke_lab *lab, const char *const *words, int status,
                   const char *text) {
  char printed[8192] = "";
  int count = 0, was = dup(STDOUT_FILENO);
  while (words[count]) count++;
  FILE *file = tmpfile();
  ck_assert_ptr_nonnull(file);
  fflush(stdout);
  dup2(fileno(file), STDOUT_FILENO);
  int ended = zke_lab_main(lab, count, (char **)(uintptr_t)words);
  fflush(stdout);
  dup2(was, STDOUT_FILENO);
  close(was);
  rewind(file);
  size_t length = fread(printed, 1, sizeof printed - 1, file);
  ck_assert_uint_gt(length, 0);
  fclose(file);
  ck_assert_int_eq(ended, status);
  ck_assert_msg(strstr(printed, text), "%s", printed);
}

/* A search that ran out of time says how to continue; a stale schedule is no
 * success. */
TEST(a_program_says_how_it_ended) {
  zke_lab_options o = no_faults();
  o.strategies = ZKE_LAB_RANDOM;
  o.schedules = 0;
  zke_lab *lab = made(&o);
  add(lab, "a", make_one);
  prints(lab, (const char *[]){"app", "--seconds", "0.1", NULL}, 0,
         "# stopped after 0.1 s; --seconds N goes on\n");
  prints(lab, (const char *[]){"app", "--seconds", "0.1", NULL}, 0,
         "# nobody has entered a section\n");
  prints(lab, (const char *[]){"app", "--replay", "a2.0000", NULL}, 2,
         "not ok 1 - app\n# 1 schedule, ");
  zke_lab_free(lab);
}

/* ---- looks, notes and states ---- */

static int seen; /* restored before each schedule */

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

/* Two processes take turns without a lock.  States that differ only in a static
 * variable are kept apart if the search knows it. */
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

/* The search by states does not run while the program's memory is unnamed, and
 * finds a lost update once it is named. */
TEST(states_by_named_memory) {
  zke_lab_options o = no_faults();
  zke_lab_result r;
  static int other;
  o.strategies = ZKE_LAB_STATES;
  zke_lab *lab = made(&o);
  add(lab, "a", add_one);
  add(lab, "b", add_one);
  zke_lab_finally(lab, counted_both, NULL);
  if (WITH_FORKS) {
    ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_UNIMPLEMENTED);
    zke_lab_free(lab);
    return;
  }
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  ck_assert_int_eq(r.states, 0); /* without a name the search does not run */
  /* with one name missing nothing counts as exhausted */
  ck_assert_int_eq(zke_lab_state(lab, &other, sizeof other), ZKE_OK);
  zke_lab_finally(lab, NULL, NULL);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  ck_assert_msg(!r.found && !r.exhausted, "%s", r.why);
  ck_assert_str_eq(r.unnamed, "counter");
  zke_lab_finally(lab, counted_both, NULL);
  ck_assert_int_eq(zke_lab_state(lab, &counter, sizeof counter), ZKE_OK);
  finds(lab, "counter == 2");
  zke_lab_free(lab);
}

/* All orders of two processes with a lock, with one death: nothing is found. */
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
 * visits all, and says so.  Words of a stack that are no longer read make no
 * states: there are 1,985 by gcc and 2,009 by clang, and 2,747 and 3,023 with
 * the leftovers of earlier calls. */
TEST(states_come_to_an_end) {
  zke_lab_options o = no_faults();
  if (WITH_FORKS) return;
  zke_lab_result r;
  o.crashes = 1;
  o.strategies = ZKE_LAB_STATES;
  o.schedules = 0;
  zke_lab *lab = made(&o);
  add(lab, "a", take_lock);
  add(lab, "b", take_lock);
  ck_assert_int_eq(zke_lab_state(lab, NULL, 0), ZKE_OK);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  ck_assert_msg(!r.found, "%s: %s", r.why, r.schedule);
  ck_assert_int_eq(r.exhausted, 1);
  ck_assert_int_lt(r.states, 2400);
  zke_lab_free(lab);
}

/* The same bug by each strategy. */
TEST_LOOP(each_strategy_searches, 0, WITH_FORKS ? 2 : 4) {
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

/* Which process made the first, second ... step, as bits. */
static unsigned order_of_steps;

static void take_steps(zke *z, void *second) {
  (void)z;
  for (int i = 0; i < 7; i++) {
    zke_lab_yield();
    order_of_steps = order_of_steps << 1 | (second != NULL);
    zke_lab_assert(order_of_steps != 0x2665); /* 10 0110 0110 0101 */
  }
}

/* Random schedules and the walk alternate, each with its own letters. */
TEST(finding_between_turns_is_replayed) {
  if (WITH_FORKS) return; /* only chance searches */
  for (uint64_t seed = 1; seed <= 3; seed++) {
    zke_lab_options o = no_faults();
    zke_lab_result r;
    o.seed = seed;
    o.schedules = 0;
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

/* ---- what the search by states leaves out ---- */

/* The ends that a search has reached: in memory that is not restored. */
typedef struct end_list {
  int count;
  char at[64][16];
} end_list;

static bool has_end(const end_list *list, const char *end) {
  for (int i = 0; i < list->count; i++) {
    if (strcmp(list->at[i], end) == 0) return true;
  }
  return false;
}

static void add_end(end_list *list, const char *end) {
  if (has_end(list, end)) return;
  zke_lab_assert(list->count < (int)(sizeof list->at / sizeof list->at[0]));
  strcpy(list->at[list->count++], end);
}

/* A place in a queue, with steps around it that the others do not see. */
static void queue_up(zke *z, void *arg) {
  (void)arg;
  zke_exists(z, "/", NULL, NULL, NULL);
  zke_create(z, "/n-", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL, NULL,
             NULL);
  zke_forget(z, fire, NULL);
}

static const char *identity_of(const zke_session_list *list, int64_t session) {
  for (int i = 0; i < list->count; i++) {
    if (list->data[i].id == session) return list->data[i].identity;
  }
  return "?";
}

/* The names of the processes whose places are left, in the order of the queue,
 * each with the last digit of its place. */
static void see_queue(zke *z, void *reached) {
  char order[16] = "", path[64];
  zke_strings *names = NULL;
  zke_session_list *list = NULL;
  zke_lab_assert(zke_children(z, "/", NULL, NULL, &names, NULL) == ZKE_OK);
  zke_lab_assert(zke_sessions(z, -1, &list) == ZKE_OK);
  for (int i = 0; i < names->count; i++) {
    zke_stat stat;
    snprintf(path, sizeof path, "/%s", names->data[i]);
    zke_exists(z, path, NULL, NULL, &stat);
    if (strncmp(path, "/n-", 3) != 0) continue;
    strcat(order, identity_of(list, stat.ephemeralOwner));
    strcat(order, path + strlen(path) - 1);
  }
  zke_free(names);
  zke_free(list);
  add_end(reached, order);
}

/* All ends that the search by states reaches; for munmap(). */
static end_list *ends_of(int reduction, int alike) {
  zke_lab_options o = no_faults();
  zke_lab_result r;
  end_list *reached = mmap(NULL, sizeof *reached, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert(reached != MAP_FAILED);
  o.strategies = ZKE_LAB_STATES;
  o.crashes = o.leftovers = 1;
  o.reduction = reduction;
  o.alike = alike;
  o.schedules = 0;
  zke_lab *lab = made(&o);
  add(lab, "a", queue_up);
  add(lab, "b", queue_up);
  add(lab, "c", queue_up);
  zke_lab_finally(lab, see_queue, reached);
  ck_assert_int_eq(zke_lab_state(lab, NULL, 0), ZKE_OK);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  ck_assert_msg(r.exhausted, "%s", r.found ? r.why : "too slow");
  zke_lab_free(lab);
  return reached;
}

/* An end by other names: whoever comes first is called A, the second B. */
static const char *by_order(const char *end, char out[16]) {
  strcpy(out, end);
  for (int i = 0; out[i]; i += 2) out[i] = (char)('A' + i / 2);
  return out;
}

/* The schedules that are tried reach every end that all schedules together
 * have.  If the processes are declared alike, of the ends that differ only in
 * names one is reached, and no other. */
TEST(states_reach_all_ends) {
  if (WITH_FORKS) return;
  char name[16];
  end_list *all = ends_of(-1, 0), *reduced = ends_of(0, 0);
  end_list *alike = ends_of(0, 1), by_names = {0}, alike_by_names = {0};
  ck_assert(has_end(all, "c0b1a2"));
  ck_assert_int_eq(reduced->count, all->count);
  for (int i = 0; i < all->count; i++) {
    ck_assert_msg(has_end(reduced, all->at[i]), "\"%s\"", all->at[i]);
    add_end(&by_names, by_order(all->at[i], name));
  }
  for (int i = 0; i < alike->count; i++) {
    ck_assert_msg(has_end(all, alike->at[i]), "\"%s\"", alike->at[i]);
    add_end(&alike_by_names, by_order(alike->at[i], name));
  }
  ck_assert_int_eq(alike_by_names.count, by_names.count);
  ck_assert(!has_end(alike, "c0b1a2")); /* some schedules were left out */
  munmap(all, sizeof *all);
  munmap(reduced, sizeof *reduced);
  munmap(alike, sizeof *alike);
}

static void begin_inside(zke *z, void *arg) {
  (void)arg;
  zke_lab_enter("inside", 1);
  zke_lab_leave("inside");
  zke_exists(z, "/", NULL, NULL, NULL);
}

static void begin_excluding(zke *z, void *arg) {
  (void)z, (void)arg;
  zke_lab_enter("other", 1);
  zke_lab_exclude("other", "inside");
  zke_lab_leave("other");
}

static void forget_and_exclude(zke *z, void *arg) {
  zke_exists(z, "/", NULL, NULL, NULL);
  zke_forget(z, fire, NULL);
  begin_excluding(z, arg);
}

static void begin_late(zke *z, void *arg) {
  (void)arg;
  zke_lab_assert(zke_now(z) < 2000);
  zke_exists(z, "/", NULL, NULL, NULL);
}

static void wait_a_second_late(zke *z, void *arg) {
  (void)arg;
  wait_until(z, 2000);
}

/* The steps before a first call, or after a zke_forget(), are not postponed if
 * they use a section or the clock: here the second process must come first. */
TEST(states_see_sections_and_clocks_before_a_call) {
  static const struct {
    zke_lab_fn first, second;
    const char *why;
  } cases[] = {{begin_excluding, begin_inside, "while b is in \"inside\""},
               {forget_and_exclude, begin_inside, "while b is in \"inside\""},
               {begin_late, wait_a_second_late, "zke_now(z) < 2000"}};
  if (WITH_FORKS) return;
  for (uint64_t i = 0; i < 3 * (uint64_t)test_sample(8, 2); i++) {
    zke_lab_options o = no_faults();
    o.strategies = ZKE_LAB_STATES;
    o.seed = i / 3 + 1;
    o.timeouts = 1;
    o.pauses = i % 3 == 2 ? 1 : -1;
    zke_lab *lab = made(&o);
    add(lab, "a", cases[i % 3].first);
    add(lab, "b", cases[i % 3].second);
    ck_assert_int_eq(zke_lab_state(lab, NULL, 0), ZKE_OK);
    finds(lab, cases[i % 3].why);
    zke_lab_free(lab);
  }
}

static void make_b(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

static void ask_later(zke *z, void *arg) {
  zke_stat stat = {0};
  (void)arg;
  zke_zxid(); /* from now on reads leave their zxid */
  zke_exists(z, "/", NULL, NULL, NULL);
  zke_lab_yield();
  int64_t seen_zxid = zke_zxid();
  if (zke_exists(z, "/b", NULL, NULL, &stat) == ZKE_OK)
    zke_lab_assert(seen_zxid < stat.czxid);
}

/* Worlds that differ only in what zke_zxid() would return are equal until code
 * asks for it. */
TEST(states_differ_by_zxid_where_it_is_asked_for) {
  if (WITH_FORKS) return;
  for (uint64_t seed = 1; seed <= 8; seed++) {
    zke_lab_options o = no_faults();
    o.strategies = ZKE_LAB_STATES;
    o.seed = seed;
    zke_lab *lab = made(&o);
    add(lab, "a", ask_later);
    add(lab, "b", make_b);
    ck_assert_int_eq(zke_lab_state(lab, NULL, 0), ZKE_OK);
    finds(lab, "seen_zxid < stat.czxid");
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

/* The last thread to return is responsible for what the session leaves. */
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

/* Two threads add to a counter: a lost update is found without their mutex, and
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

/* A program that opens its own handle gets the same database. */
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

/* A process sleeps for a day, another opens a second session: both end
 * immediately, and nothing is found. */
TEST(time_and_sessions_belong_to_the_laboratory) {
  zke_lab_options o = no_faults();
  zke_lab *lab = made(&o);
  add(lab, "a", sleep_a_day);
  add(lab, "b", open_another);
  finds(lab, NULL);
  zke_lab_free(lab);
}

/* ---- schedules ---- */

/* A finding's schedule is short, and finds the same 100 times out of 100; with
 * another program the laboratory says that it does not fit. */
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

/* Two processes use an ephemeral znode in turns, and do not check after a lost
 * reply whether it was made. */
static void hold(zke *z, void *arg) {
  int rc;
  (void)arg;
  while ((rc = zke_create(z, "/held", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                          NULL)) != ZKE_OK) {
    int fired = 0;
    if (rc != ZKE_NODEEXISTS && rc != ZKE_CONNECTIONLOSS) return;
    if (zke_exists(z, "/held", fire, &fired, NULL) == ZKE_NONODE) fired = 1;
    while (!fired && zke_wait(z, ZKE_FOREVER) == ZKE_OK) continue;
    zke_forget(z, fire, &fired);
    if (!fired) return;
  }
  zke_lab_enter("held", 1);
  zke_lab_leave("held");
  while (zke_delete(z, "/held", -1) == ZKE_CONNECTIONLOSS) continue;
}

/* Each kind of laboratory replays the other's findings, with the check of all
 * calls and results. */
TEST(schedules_are_the_same_in_each_laboratory) {
  zke_lab_result r;
  zke_lab_options o = no_faults();
  o.losses = o.crashes = 1;
  zke_lab *lab = made(&o);
  add(lab, "a", hold);
  add(lab, "b", hold);
  finds(lab, "waits for ever");
  ck_assert_int_eq(zke_lab_replay(lab, "bBGaK.86f8", &r), ZKE_OK);
  ck_assert_msg(r.found && !r.stale, "%s", r.schedule);
  zke_lab_free(lab);
}

/* Anna and ben add; one addition can be lost. */
static zke_lab *two_who_count(void) {
  zke_lab_options o = no_faults();
  zke_lab *lab = made(&o);
  add(lab, "anna", add_one);
  add(lab, "ben", add_one);
  zke_lab_finally(lab, counted_both, NULL);
  return lab;
}

/* The picture of the schedule in which that happens; for free(). */
static char *picture_of(zke_lab *lab, const char *file) {
  enum { MOST = 65536 };
  char *text = calloc(1, MOST);
  ck_assert_ptr_nonnull(text);
  ck_assert_int_eq(zke_lab_picture(lab, "ab", file), ZKE_OK);
  FILE *f = fopen(file, "r");
  ck_assert_ptr_nonnull(f);
  fread(text, 1, MOST - 1, f);
  fclose(f);
  unlink(file);
  return text;
}

/* The drawing names the processes, the calls and the fault. */
TEST_LOOP(a_picture_has_all, 0, 2) {
  static const char *const names[] = {"picture.txt", "picture.svg"};
  static const char *const words[] = {"anna", "ben", "exists /", "counter =="};
  zke_lab *lab = two_who_count();
  char *text = picture_of(lab, names[_i]);
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    ck_assert_msg(strstr(text, words[i]), "%s is not in %s", words[i], text);
  ck_assert_int_eq(strncmp(text, "<svg ", 5) == 0, _i == 1);
  free(text);
  ck_assert_int_eq(zke_lab_picture(lab, "ab", "/no/such/file"),
                   ZKE_SYSTEMERROR);
  zke_lab_free(lab);
}

/* After two steps anna and ben have read the counter, and neither has written
 * it: from there one addition is lost, whoever writes first. */
TEST(a_picture_tells_where_it_became_inevitable) {
  zke_lab *lab = two_who_count();
  char *text = picture_of(lab, "picture.txt");
  const char *bound = strstr(text, "from here on it fails");
  ck_assert_msg(bound != NULL, "%s", text);
  const char *write = strstr(text, "\n3 ");
  ck_assert_msg(write && bound < write, "%s", text);
  ck_assert_msg(!strstr(text, "\n1 ") && !strstr(text, "\n2 "), "%s", text);
  free(text);
  zke_lab_free(lab);
}

/* ---- parties outside ---- */

/* A client in its own process.  It sends 'g' for get, 's' and a digit for set,
 * 'w' to be told of the znode /go, and is answered by a letter and a digit; or
 * 'i' while it waits for an event, which comes as 'v'. */
typedef struct client {
  int fd; /* 0: not begun */
  pid_t pid;
  void (*run)(int fd);
  bool idle, event; /* it waits for an event; one was sent */
  char request[2], digit;
} client;

static void client_ask(int fd, char what, char digit, char reply[2]) {
  char request[2] = {what, digit};
  if (write(fd, request, 2) != 2 || read(fd, reply, 2) != 2) _exit(1);
}

/* Adds one, without regard for others. */
static char client_add(int fd) {
  char reply[2];
  do {
    client_ask(fd, 'g', '0', reply);
  } while (reply[0] != 'o');
  client_ask(fd, 's', (char)(reply[1] + 1), reply);
  return reply[0];
}

static void client_add_once(int fd) { client_add(fd); }

static void client_add_again(int fd) {
  if (client_add(fd) != 'o') client_add(fd);
}

static void client_wait(int fd) {
  char reply[2];
  client_ask(fd, 'w', '0', reply);
  if (reply[0] == 'o') return; /* it exists */
  client_ask(fd, 'i', '0', reply);
  if (reply[0] == 'v') client_add(fd);
}

static void client_begin(void *context) {
  client *c = context;
  int fds[2];
  zke_lab_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
  c->pid = fork();
  if (c->pid == 0) {
    close(fds[0]);
    c->run(fds[1]);
    _exit(0);
  }
  close(fds[1]);
  c->fd = fds[0];
}

static int client_next(void *context) {
  client *c = context;
  for (;;) {
    if (c->idle && !c->event) return ZKE_LAB_IDLE;
    if (c->idle) c->idle = c->event = false;
    if (read(c->fd, c->request, 2) != 2) return ZKE_LAB_ENDED;
    c->idle = c->request[0] == 'i';
    if (!c->idle) return ZKE_LAB_REQUEST;
  }
}

static void client_answer(const client *c, char what) {
  const char reply[2] = {what, c->digit};
  (void)!send(c->fd, reply, 2, MSG_NOSIGNAL);
}

static void client_tell(zke *z, int type, int state, const char *path,
                        void *context) {
  client *c = context;
  (void)z, (void)type, (void)state, (void)path;
  c->event = true;
  client_answer(c, 'v');
}

static int client_apply(void *context, zke *z) {
  client *c = context;
  char *data = NULL;
  int len = 0;
  if (c->request[0] == 'w') return zke_exists(z, "/go", client_tell, c, NULL);
  if (c->request[0] == 's')
    return zke_set(z, "/count", &c->request[1], 1, -1, NULL);
  int rc = zke_get(z, "/count", NULL, NULL, &data, &len, NULL);
  c->digit = rc == ZKE_OK && len == 1 ? data[0] : '0';
  zke_free(data);
  return rc;
}

static void client_reply(void *context, int rc) {
  client_answer(context, rc == ZKE_OK ? 'o' : 'e');
}

static void client_drop(void *context, int why) {
  client *c = context;
  if (why == ZKE_LAB_LOST)
    client_answer(c, 'l');
  else if (c->fd)
    shutdown(c->fd, SHUT_RDWR);
}

static void client_end(void *context) {
  client *c = context;
  if (!c->fd) return;
  close(c->fd);
  waitpid(c->pid, NULL, 0);
  c->fd = 0;
}

static void make_count(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/count", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

/* Two clients that have ended well have added two. */
static void see_count(zke *z, void *most) {
  char *data = NULL;
  int len = 0;
  zke_lab_assert(zke_get(z, "/count", NULL, NULL, &data, &len, NULL) == ZKE_OK);
  char count = data[0];
  zke_free(data);
  if (most) zke_lab_assert(count <= '2');
  if (!most) zke_lab_assert(count >= '2');
}

static client clients[2];

static zke_lab *with_clients(const zke_lab_options *o, void (*first)(int fd),
                             void (*second)(int fd)) {
  zke_lab_party party = ZKE_INIT(zke_lab_party);
  party.begin = client_begin;
  party.next = client_next;
  party.apply = client_apply;
  party.reply = client_reply;
  party.drop = client_drop;
  party.end = client_end;
  zke_lab *lab = made(o);
  zke_lab_setup(lab, make_count, NULL);
  for (int i = 0; i < 2; i++) {
    char name[] = {(char)('a' + i), '\0'};
    clients[i] = (client){.run = i ? second : first};
    if (!clients[i].run) continue;
    ck_assert_int_eq(zke_lab_outside(lab, name, &party, &clients[i]), ZKE_OK);
  }
  return lab;
}

/* A finding is replayed, with the check of all calls and results. */
static void finds_outside(zke_lab *lab, const char *why) {
  char schedule[100];
  zke_lab_result r;
  finds(lab, why);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_OK);
  snprintf(schedule, sizeof schedule, "%s", r.schedule);
  for (int i = 0; i < 20; i++) {
    ck_assert_int_eq(zke_lab_replay(lab, schedule, &r), ZKE_OK);
    ck_assert_msg(r.found && !r.stale, "%s", schedule);
    ck_assert_str_eq(r.schedule, schedule);
  }
  zke_lab_free(lab);
}

/* Two clients in their own processes lose an update through the order of their
 * requests. */
TEST(parties_outside_take_turns) {
  zke_lab_options o = no_faults();
  zke_lab *lab = with_clients(&o, client_add_once, client_add_once);
  zke_lab_finally(lab, see_count, NULL);
  finds_outside(lab, "count >= '2'");
}

/* A client adds again after the reply to a successful addition was lost. */
TEST(parties_outside_lose_replies) {
  zke_lab_options o = no_faults();
  o.losses = 1;
  zke_lab *lab = with_clients(&o, client_add_again, client_add_once);
  zke_lab_finally(lab, see_count, clients);
  finds_outside(lab, "count <= '2'");
}

/* Deaths and expiries end a party, and the others go on: nothing is found. */
TEST(parties_outside_die_and_expire) {
  zke_lab_options o = no_faults();
  zke_lab_result r;
  o.crashes = o.expiries = 1;
  o.schedules = 100;
  zke_lab *lab = with_clients(&o, client_add_once, client_add_once);
  zke_lab_finally(lab, see_count, clients);
  finds(lab, NULL);
  ck_assert_int_eq(zke_lab_replay(lab, "aA", &r), ZKE_OK);
  ck_assert_msg(!r.found && !r.stale, "%s", r.why);
  ck_assert_int_eq(zke_lab_replay(lab, "ap", &r), ZKE_OK);
  ck_assert_msg(!r.found && !r.stale, "%s", r.why);
  zke_lab_free(lab);
}

static void make_go(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/go", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

/* A client waits for an event, which a process of the test causes; if none
 * does, its wait is found. */
TEST(parties_outside_wait_for_events) {
  for (int comes = 0; comes < 2; comes++) {
    zke_lab_options o = no_faults();
    o.schedules = 100;
    o.leftovers = 1;
    zke_lab *lab = with_clients(&o, client_wait, NULL);
    add(lab, "c", comes ? make_go : make_one);
    finds(lab, comes ? NULL : "a waits for ever in zke_wait");
    zke_lab_free(lab);
  }
}

/* ---- misuse ---- */

/* Refused are options out of bounds, repeated names, too many processes, and
 * malformed schedules. */
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
  zke_lab_party party = ZKE_INIT(zke_lab_party);
  ck_assert_int_eq(zke_lab_outside(lab, "f", &party, NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_replay(lab, "a!", &r), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_replay(lab, "a0", &r), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_lab_replay(lab, "a.12", &r), ZKE_BADARGUMENTS);
  zke_lab_free(lab);
  zke_lab_free(NULL);
}

static void fail_setup(zke *z, void *arg) {
  (void)z, (void)arg;
  zke_lab_fail("no such weather");
}

/* zke_errmsg() says why a run could not begin, although the program's variables
 * were restored afterwards. */
TEST(setup_that_fails_is_told) {
  zke_lab_result r;
  zke_lab *lab = made(NULL);
  add(lab, "a", make_one);
  zke_lab_setup(lab, fail_setup, NULL);
  ck_assert_int_eq(zke_lab_run(lab, &r), ZKE_SYSTEMERROR);
  ck_assert_str_eq(zke_errmsg(), "setup has failed: no such weather");
  zke_lab_free(lab);
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

/* ---- a batch is one step ---- */

/* Read a number and write the next one, without checking the version.  The
 * znode's version counts all writers, so it equals the number unless one of
 * them has overwritten another's. */
static int count_up(zke *z, void *arg) {
  char *data = NULL, text[16];
  zke_stat stat;
  (void)arg;
  int rc = zke_get(z, "/n", NULL, NULL, &data, NULL, NULL);
  int number = rc == ZKE_OK ? atoi(data) + 1 : 0;
  zke_free(data);
  if (rc != ZKE_OK) return rc;
  int len = snprintf(text, sizeof text, "%d", number);
  rc = zke_set(z, "/n", text, len, -1, &stat);
  if (rc == ZKE_OK) zke_lab_assert(stat.version == number);
  return rc;
}

static void count_alone(zke *z, void *arg) {
  zke_create(z, "/n", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  count_up(z, arg);
}

static void count_in_batch(zke *z, void *arg) {
  zke_create(z, "/n", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  zke_batch(z, count_up, arg);
}

/* In the laboratory no other process runs between the calls of a batch: what
 * goes wrong without one never does inside. */
TEST(a_batch_is_one_step) {
  for (int batch = 0; batch < 2; batch++) {
    zke_lab_options o = no_faults();
    if (batch) o.crashes = o.losses = 0; /* as many as by default */
    zke_lab *lab = made(&o);
    add(lab, "one", batch ? count_in_batch : count_alone);
    add(lab, "two", batch ? count_in_batch : count_alone);
    finds(lab, batch ? NULL : "stat.version == number");
    zke_lab_free(lab);
  }
}
