/* test_lines.c - what all recipes with a line of participants promise
 *
 * Each test runs for each row of the table in lines.h: one party holds, others
 * wait behind it.  Most tests are steps in text.  The recipes' own programs
 * test what each recipe adds.
 */
#include "lines.h"
#include "recipes.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recipes/election.h"
#include "recipes/lock.h"
#include "recipes/part/limit.h"
#include "recipes/part/text.h"

/* ---- one alone ---- */

/* State, token, check() and op() say HELD exactly while it is held; the
 * listener hears of both changes, and gets the token. */
TEST_LINES(acquire_holds_and_release_gives_up) {
  open_line(_i);
  for (int i = 0; i < 2; i++) {
    play(
        "ann is OUT;"
        "ann check -> LOST;"
        "ann op -> LOST;"
        "ann release -> LOST;"
        "ann acquire;"
        "ann is HELD;"
        "ann check; ann op;"
        "line ann");
    ck_assert_int_eq(line->token(party[0]), told_token);
    ck_assert_int_eq(in_line(), 1);
    play(
        "ann release;"
        "ann dispatches -> 0;" /* it is not woken by itself */
        "line");
  }
  play("told ann HELD, ann OUT, ann HELD, ann OUT");
}

/* P11: invalid arguments are refused before anything is made, and the output is
 * then NULL, whatever it was.  Without an object there is no token, and no
 * crash. */
TEST_LINES(arguments_are_checked) {
  const line_options usual = {0}, small = {.size = 3};
  const line_options negative = {.data = "x", .len = -1};
  open_line(_i);
  void *x = party[0];
  ck_rc(line->create(z[0], PATH, &usual, NULL), ZKE_BADARGUMENTS);
  ck_rc(line->create(z[0], "nope", &usual, &x), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(x);
  ck_rc(line->create(z[0], "/", &usual, &x), ZKE_BADARGUMENTS);
  ck_rc(line->create(z[0], NULL, &usual, &x), ZKE_BADARGUMENTS);
  ck_rc(line->create(NULL, PATH, &usual, &x), ZKE_BADARGUMENTS);
  ck_rc(line->create(z[0], PATH, &small, &x), ZKE_BADARGUMENTS);
  if (line->is & LINE_HAS_DATA)
    ck_rc(line->create(z[0], PATH, &negative, &x), ZKE_BADARGUMENTS);
  ck_rc(line->parties(z[0], PATH, NULL), ZKE_BADARGUMENTS);
  ck_rc(line->ops(party[0], NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(line->token(NULL), 0);
  line->free(NULL);
  ck_assert_int_eq(entries(z[0], "/line"), 0);
}

/* The layout is Curator's, and the directory names its kind.  Several entries
 * of one object have one guid, and are made in one step. */
TEST_LINES(entries_are_named_as_curator_does) {
  zke_strings *names;
  char *data, tail[40];
  open_line(_i);
  play("ann acquire");
  if (!(line->is & LINE_ALONE)) play("ann release; bob acquire");
  int number = line->is & LINE_ALONE ? 0 : 1;
  ck_ok(zke_children(z[1], PATH, NULL, NULL, &names, NULL));
  ck_assert_int_eq(names->count, line->places);
  for (int i = 0; i < names->count; i++) {
    const char *name = names->data[i];
    ck_assert_int_eq(strncmp(name, "_c_", 3), 0);
    ck_assert_uint_gt(strlen(name), ENTRY_HEAD);
    snprintf(tail, sizeof tail, "-%s%010d", line->entry, number + i);
    ck_assert_str_eq(name + ENTRY_HEAD, tail);
    ck_assert_mem_eq(name, names->data[0], ENTRY_HEAD);
  }
  zke_free(names);
  ck_ok(zke_get(z[1], PATH, NULL, NULL, &data, NULL, NULL));
  ck_assert_str_eq(data, line->directory);
  zke_free(data);
}

/* The list shows the holder and the waiters in order, with session, pid, times
 * and data, which may contain zero bytes. */
TEST_LINES(contenders_are_listed_in_order) {
  bool has_data = line_kinds[_i].is & LINE_HAS_DATA;
  zke_party_list *list;
  open_line(_i);
  ck_ok(line->parties(z[3], PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  line->free(party[1]);
  party[1] = make_party(
      z[1], &(line_options){.who = "bob", .data = "job\0x", .len = 5});
  play("ann start; bob start; cid start");
  ck_ok(line->parties(z[3], PATH, &list));
  ck_assert_int_eq(list->count, 3);
  for (int i = 0; i < 3; i++) {
    const zke_party *p = &list->data[i];
    ck_assert_int_eq(p->held, i == 0);
    ck_assert_int_eq(p->session, zke_session_id(z[i]));
    ck_assert_int_eq(p->pid, getpid());
    ck_assert_int_eq(p->permits, line->places);
    ck_assert_int_gt(p->queued_ms, INT64_C(1700000000000));
    ck_assert(p->since_ms >= p->queued_ms);
    if (has_data) ck_assert_int_eq(p->len, i == 1 ? 5 : -1);
  }
  ck_assert_str_eq(list->data[1].kind, line->entry);
  ck_assert_str_eq(list->data[1].identity, "bob");
  if (has_data) ck_assert_mem_eq(list->data[1].data, "job\0x", 5);
  ck_assert_int_eq(list->data[0].mzxid, line->token(party[0]));
  zke_free(list);
}

/* A free gives up what is held: the next in line gets it immediately. */
TEST_LINES(free_gives_up) { play_line(_i, "ann acquire; ann free; bob try"); }

/* A free cannot be repeated, so a failed allocation does not stop it. */
TEST_LINES(a_free_gives_up_whatever_fails_once) {
  test_heap heap = {0};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  bool failed = true;
  int n = 0;
  line = &line_kinds[_i];
  ck_ok(zke_open(":memory:", &o, &z[0]));
  for (; failed; n++) {
    void *x = make_party(z[0], &(line_options){0});
    ck_ok(line->acquire(x, line->others, soon(z[0])));
    long first = heap.calls;
    heap.fail_at = first + n + 1;
    line->free(x);
    failed = heap.calls > first + n;
    heap.fail_at = 0;
    ck_assert_int_eq(entries(z[0], PATH), 0);
  }
  ck_ok(zke_close(z[0]));
}

/* One object is one contender: it does not join twice or change the way it
 * waits; what it has stays. */
TEST_LINES(an_object_in_use_is_refused) {
  open_line(_i);
  play(
      "ann acquire;"
      "ann acquire -> AGAIN;"
      "ann try -> AGAIN;"
      "ann start -> MISUSE;"
      "ann check;"
      "line ann;"
      "bob start;"
      "bob start -> MISUSE;"
      "line ann (bob)");
  ck_assert_int_eq(in_line(), 2);
}

/* Delete the empty directories and all their ancestors. */
static void remove_directories(void) {
  ck_ok(zke_delete(z[1], PATH, -1));
  int rc = zke_delete(z[1], OTHER, -1);
  if (rc != ZKE_NONODE) ck_ok(rc);
  ck_ok(zke_delete(z[1], "/line", -1));
}

/* The directory is a container, which may be removed while unused: it is made
 * again, with its ancestors. */
TEST_LINES(a_removed_directory_is_made_again) {
  open_line(_i);
  for (int i = 0; i < 3; i++) {
    play("ann acquire; ann release");
    remove_directories();
  }
}

/* ---- the directory is another's ---- */

/* A directory that exists before any party. */
static void make_directory(const char *data) {
  ck_ok(zke_ensure_path(z[3], PATH, ZKE_PERSISTENT, ZKE_FOREVER));
  ck_ok(zke_set(z[3], PATH, data, (int)strlen(data), -1, NULL));
}

/* A directory that belongs to another recipe, or has other data, is neither
 * joined nor changed, and the listener hears nothing.  An empty one is taken
 * over. */
TEST_LINES(another_kind_on_the_path_is_refused) {
  static const char *const data[] = {"zkembed queue\n", "mine"};
  open_line(_i);
  for (int i = 0; i < 2; i++) {
    make_directory(data[i]);
    play(
        "ann acquire -> OTHERKIND;"
        "said " PATH);
    if (i == 0) play("said is of kind queue, not");
    play(
        "ann try -> OTHERKIND;"
        "ann start -> OTHERKIND;"
        "ann is OUT;"
        "told");
    ck_assert_int_eq(entries(z[0], PATH) + entries(z[0], OTHER), 0);
  }
  make_directory("");
  play("ann acquire");
}

/* Another kind is refused, even if the directory was removed since, and made
 * again by another recipe. */
TEST_LINES(a_directory_made_anew_by_another_kind_is_refused) {
  open_line(_i);
  play("ann acquire; ann release");
  remove_directories();
  make_directory("zkembed queue\n");
  play(
      "ann try -> OTHERKIND;"
      "said queue");
  ck_assert_int_eq(entries(z[0], PATH) + entries(z[0], OTHER), 0);
}

/* Names that are no entries of the line.  An entry has a guid, then its kind,
 * then a number of ten digits. */
#define LONG_GUID "_c_01234567-89ab-cdef-0123-456789abcdef-"
static const struct {
  const char *head, *number; /* NULL: no kind either */
} no_entries[] = {{"x", NULL},
                  {"_c_", NULL},
                  {LONG_GUID, NULL},
                  {LONG_GUID "other-0000000000", NULL},
                  {"", "0000000000"},
                  {"_c_short-", "0000000000"},
                  {LONG_GUID, ""},
                  {LONG_GUID, "12x4567890"},
                  {LONG_GUID, "000000000"},
                  {LONG_GUID, "9999999999"},
                  {LONG_GUID, "000000000000000000000000000000000000000000000"}};
enum { NO_ENTRIES = sizeof no_entries / sizeof *no_entries };

static void no_entry(int i, char path[200]) {
  const char *number = no_entries[i].number;
  snprintf(path, 200, PATH "/%s%s%s", no_entries[i].head,
           number ? line->entry : "", number ? number : "");
}

/* Foreign children of the directory are ignored and not touched. */
TEST_LINES(foreign_children_are_ignored) {
  char path[200];
  open_line(_i);
  ck_ok(zke_ensure_path(z[3], PATH, ZKE_PERSISTENT, ZKE_FOREVER));
  for (int i = 0; i < NO_ENTRIES; i++) {
    no_entry(i, path);
    ck_ok(zke_create(z[3], path, "waiting 0000000000000001\n", 25, ZKE_OPEN_ACL,
                     ZKE_PERSISTENT, NULL, NULL));
  }
  play(
      "ann acquire;"
      "bob try -> REFUSED;"
      "said ann;"
      "bob start;"
      "line ann (bob);"
      "ann release; all dispatch;"
      "bob is HELD;"
      "line bob;"
      "bob release;"
      "line");
  ck_assert_int_eq(entries(z[0], PATH), NO_ENTRIES);
  for (int i = 0; i < NO_ENTRIES; i++) {
    no_entry(i, path);
    ck_ok(zke_delete(z[3], path, -1));
  }
}

/* ---- entries of other libraries ---- */

#define GUID "0123456789abcdef0123456789abcdef"

/* The names of other libraries' entries in a line's directory, and what the
 * refusal says of each. */
static const struct {
  const char *name, *whose;
} foreign[] = {{GUID "__lock__0000000000", "kazoo"},
               {GUID "__rlock__0000000004", "kazoo"},
               {GUID, "kazoo"},
               {"lock-0000000000", "another library"},
               {"me-latch-0000000000", "another library"},
               {"lease--000000007", "another library"},
               {"x-72057594037927936-0000000002", "another library"}};
enum { FOREIGN = sizeof foreign / sizeof *foreign };

/* Its owner is eve, the last session. */
static void add_foreign(int i) {
  char path[128];
  snprintf(path, sizeof path, PATH "/%s", foreign[i].name);
  ck_ok(zke_create(z[SESSIONS - 1], path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                   NULL, NULL));
}

static void remove_foreign(int i) {
  char path[128];
  snprintf(path, sizeof path, PATH "/%s", foreign[i].name);
  ck_ok(zke_delete(z[SESSIONS - 1], path, -1));
}

/* Two libraries that do not see each other's entries would both hold.  So a
 * party that finds such an entry is refused, and told whose it is. */
TEST_LINES(another_librarys_entry_is_refused) {
  open_line(_i);
  play("ann acquire; ann release");
  for (int i = 0; i < FOREIGN; i++) {
    add_foreign(i);
    ck_rc(party_acquire(0, soon(z[0])), ZKE_OTHERKIND);
    ck_says(foreign[i].whose);
    ck_says(foreign[i].name);
    play(
        "ann try -> OTHERKIND;"
        "ann start -> OTHERKIND;"
        "ann is out");
    ck_assert_int_eq(entries(z[0], PATH), 1);
    remove_foreign(i);
    play("ann acquire; ann release");
  }
}

/* A requested time has come. */
static void note_alarm(zke *session, int type, int state, const char *path,
                       void *context) {
  (void)session, (void)state, (void)path;
  if (type == ZKE_EVENT_ALARM) *(bool *)context = true;
}

/* Dispatch until a step that has just failed was repeated: alarms come in order
 * of their times. */
static void pass_a_pause(zke *session) {
  bool past = false;
  int64_t later = zke_now(session) + 10 * ZKE_RECIPE_PAUSE_MS;
  ck_ok(zke_call_at(session, later, note_alarm, &past));
  ck_until((dispatch_all(), past), 10000);
}

/* Such an entry that comes later does not affect the holder, which does not
 * look.  Waiters are refused when their turn comes: a call returns that, and a
 * listener without a call hears it, once, although the failed step is
 * repeated. */
TEST_LINES(another_librarys_entry_ends_a_wait) {
  open_line(_i);
  play("ann acquire; bob waits; cid start");
  add_foreign(0);
  play(
      "ann check;"
      "told ann HELD;"
      "ann release;"
      "bob returns -> OTHERKIND;"
      "said kazoo;"
      "all dispatch");
  pass_a_pause(z[2]);
  play("bob is out; cid is out");
  ck_assert_ptr_nonnull(strstr(told, "ann OUT"));
  const char *cid = strstr(told, "cid ");
  ck_assert_ptr_nonnull(cid);
  ck_assert_ptr_null(strstr(cid + 1, "cid "));
  ck_assert_ptr_null(strstr(told, "HELD"));
  remove_foreign(0);
  play("bob acquire");
}

/* A directory counts to 2^31 - 1 and then gives this number forever, so of two
 * entries with it the later one could come first.  No party gets it: the one
 * before is the last that can hold, and a later one is refused and leaves
 * nothing.
 */
TEST_LINES(the_end_of_the_numbers_is_refused) {
  open_line(_i);
  play("ann acquire");
  ck_ok(zke_raise_sequence(z[1], PATH, INT32_MAX - line->places, NULL));
  play("bob start");
  for (int i = 2; i < 4; i++) {
    ck_rc(party_acquire(i, soon(z[i])), ZKE_LIMIT);
    ck_says(PATH " has given all of its 2147483647 numbers");
    ck_rc(party_try(i), ZKE_LIMIT);
    ck_assert_int_eq(in_line(), 2);
  }
  play(
      "ann release; all dispatch;"
      "bob is HELD;"
      "cid start -> LIMIT;"
      "bob release");
  ck_ok(zke_delete(z[1], PATH, -1));
  play("cid acquire");
}

/* A number has ten digits, with a sign in front or in place of the first, fits
 * 32 bits, and ends the name: so foreign children are not taken for entries. */
TEST(a_number_has_the_form_that_a_create_gives_it) {
  static const struct {
    const char *text;
    int32_t number;
  } numbers[] = {{"0000000000", 0},
                 {"0000000012", 12},
                 {"2147483647", INT32_MAX},
                 {"-000000012", -12},
                 {"-2147483648", INT32_MIN}};
  static const char *const others[] = {
      "",           "12",          "000000001",    "00000000001", "00000000x1",
      "2147483648", "-2147483649", "-0000000001x", " 000000001",  "--00000001"};
  int32_t number = 5;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    ck_assert_msg(!zke_recipe_number(others[i], &number), "%s", others[i]);
  ck_assert_int_eq(number, 5);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    ck_assert(zke_recipe_number(numbers[i].text, &number));
    ck_assert_int_eq(number, numbers[i].number);
  }
}

/* ---- several ---- */

/* They hold one at a time, in the order in which they joined, each with a
 * greater token than all earlier ones. */
TEST_ALONE(first_come_first_served) {
  play_line(
      _i,
      "ann start; bob start; cid start; dan start; eve start;"
      "all dispatch;"
      "line ann (bob) (cid) (dan) (eve);"
      "ann is HELD; bob is WAITING; eve is WAITING;"
      "ann release; all dispatch;"
      "line bob (cid) (dan) (eve);"
      "bob is HELD; cid is WAITING;"
      "bob release; all dispatch;"
      "line cid (dan) (eve);"
      "cid release; all dispatch; dan release; all dispatch;"
      "line eve;"
      "eve is HELD;"
      "told ann HELD, ann OUT, bob HELD, bob OUT, cid HELD, cid OUT, dan HELD, "
      "dan OUT, eve HELD");
}

/* A waiter in the middle gives up: those behind it keep their places, and do
 * not overtake the holder. */
TEST_LINES(a_waiter_that_leaves_lets_nobody_in) {
  play_line(_i,
            "ann start; bob start; cid start; bob release; all dispatch;"
            "bob is OUT; cid is WAITING;"
            "line ann (cid);"
            "ann release; all dispatch;"
            "cid is HELD");
}

/* A refusal leaves nothing, and its sentence describes the holder: path, name,
 * pid and since when. */
TEST_LINES(try_is_refused_naming_the_holder) {
  char pid[40];
  open_line(_i);
  play(
      "ann acquire;"
      "bob try -> REFUSED;"
      "said " PATH
      " is held by ann (pid ;"
      "said since 20");
  snprintf(pid, sizeof pid, "pid %d", (int)getpid());
  ck_says(pid);
  play(
      "bob is OUT; bob watches 0;"
      "line ann");
  ck_assert_int_eq(in_line(), 1);
  play("ann release; bob try");
}

/* So does a timeout, with a deadline in the past or soon: the call waits until
 * then, and not much longer. */
TEST_LINES(a_timeout_names_the_holder_and_leaves_nothing) {
  open_line(_i);
  play("ann acquire");
  for (int i = 0; i < 2; i++) {
    int64_t deadline = zke_now(z[1]) + (i ? 20 : -1);
    ck_rc(party_acquire(1, deadline), ZKE_OPERATIONTIMEOUT);
    ck_says(PATH " is held by ann (pid ");
    ck_assert(zke_now(z[1]) >= deadline);
    play(
        "bob is OUT; bob watches 0;"
        "line ann");
    ck_assert_int_eq(in_line(), 1);
  }
}

/* A passed deadline, even the earliest time, still gets what is free.  If a
 * reply is lost the call ends, and leaves nothing. */
TEST_LINES(what_is_free_needs_no_time) {
  open_line(_i);
  ck_ok(party_acquire(0, INT64_MIN));
  ck_ok(zke_test_fail(z[1], ZKE_TEST_FAIL_BEFORE, 0));
  int rc = party_acquire(1, INT64_MIN);
  ck_assert(rc == ZKE_CONNECTIONLOSS || rc == ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(in_line(), 1);
}

/* A reply is lost with no time left to retry: no orphan entry stays in line. */
TEST_LINES(a_lost_reply_at_the_deadline_leaves_nothing) {
  open_line(_i);
  play("ann try; ann release"); /* makes the directory */
  ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_AFTER, 0));
  if (party_acquire(0, zke_now(z[0])) == ZKE_OK) play("ann release");
  ck_assert_int_eq(in_line(), 0);
  play("bob try");
}

/* solid_queue#761: a late second release raised a semaphore above its limit.
 * Here a second release does nothing, whatever is held by then. */
TEST_LINES(a_second_release_gives_nothing_back) {
  play_line(_i,
            "ann acquire; ann release; bob acquire;"
            "ann release -> LOST;"
            "ann' release -> LOST;"
            "bob check;"
            "ann try -> REFUSED;"
            "line bob");
}

/* A release whose reply was lost is repeated for that acquisition only, not for
 * a later one of its session. */
TEST_LINES(a_repeated_release_hits_no_later_acquisition) {
  open_line(_i);
  play("ann acquire");
  ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_AFTER, 0));
  play(
      "ann release; ann' acquire;"
      "ann release -> LOST;"
      "ann' check");
}

/* ---- waiting ---- */

/* P7: a waiting thread wakes when its turn comes, and has the greater token. */
TEST_LINES(a_waiting_thread_gets_it_on_release) {
  open_line(_i);
  play("ann acquire");
  int64_t token = line->token(party[0]);
  play(
      "bob waits; ann release; bob returns;"
      "bob is HELD");
  ck_assert_int_gt(line->token(party[1]), token);
}

/* A cancelled wait leaves the line, also if it had joined before.  Its sentence
 * names the path, and the next call on the object is not affected. */
TEST_LINES(cancel_ends_the_wait_of_another_thread) {
  open_line(_i);
  play("ann acquire");
  for (int i = 0; i < 2; i++) {
    if (i) play("bob start");
    play(
        "bob waits; bob cancels;"
        "bob returns -> CANCELLED;"
        "said " PATH
        ";"
        "bob is OUT; bob watches 0;"
        "line ann");
    ck_assert_int_eq(in_line(), 1);
  }
  play("ann release; bob acquire");
}

/* A cancel that finds no wait says so, and does not end a later wait. */
TEST_LINES(cancel_without_a_wait_does_nothing) {
  play_line(_i,
            "ann acquire;"
            "bob cancel -> IDLE;"
            "bob acquire_now -> OPERATIONTIMEOUT");
}

/* A release gives up another thread's wait, which must end. */
TEST_LINES(a_release_ends_the_wait_of_another_thread) {
  open_line(_i);
  play(
      "ann acquire; bob waits; bob release;"
      "bob returns -> LOST;"
      "line ann");
  ck_assert_int_eq(in_line(), 1);
}

/* acquire() after start() waits in the place that start() took. */
TEST_ALONE(a_started_one_can_be_waited_for) {
  play_line(_i,
            "ann start; bob start; cid start; bob waits; ann release;"
            "bob returns; all dispatch;"
            "line bob (cid);"
            "bob is HELD; cid is WAITING");
}

/* ---- the listener ---- */

/* A started party hears of its turn in zke_dispatch(), and not before. */
TEST_LINES(the_listener_hears_its_turn_in_dispatch) {
  play_line(_i,
            "ann acquire; bob start; all dispatch; ann release;"
            "told ann HELD, ann OUT;"
            "all dispatch;"
            "told bob HELD");
}

static int hook_rc; /* of a listener's call */

static void release_what_is_held(void *x, int event) {
  if (event == ZKE_LINE_HELD) hook_rc = line->release(x);
}

/* A listener's release takes effect immediately, also inside the start() that
 * got it, and in a dispatch. */
TEST_LINES(a_listener_may_release) {
  open_line(_i);
  hook_rc = 1;
  line_hook = release_what_is_held;
  play(
      "ann start;"
      "ann is OUT;"
      "line");
  ck_ok(hook_rc);
  line_hook = NULL;
  play("ann acquire; bob start; ann release");
  line_hook = release_what_is_held;
  play(
      "all dispatch;"
      "bob is OUT;"
      "line");
  ck_ok(hook_rc);
}

static int freed;

static void free_what_is_held(void *x, int event) {
  freed++;
  ck_assert_int_eq(event, ZKE_LINE_HELD);
  line->free(x);
  party[1] = NULL;
}

/* The listener frees the object when it hears HELD: the tree has nothing of it,
 * and the listener is not called again. */
TEST_LINES(a_listener_may_free) {
  open_line(_i);
  play("ann acquire; bob start; ann release");
  line_hook = free_what_is_held;
  play(
      "all dispatch;"
      "bob watches 0;"
      "line");
  ck_assert_int_eq(freed, 1);
}

static void start_what_is_lost(void *x, int event) {
  line_hook = NULL; /* a candidate also hears of its refusal */
  if (event == ZKE_LINE_LOST) hook_rc = line->start(x, line->others);
}

/* One object is one contender: until a blocking call has returned, no other
 * call on it may join; else both would hold. */
TEST_LINES(nobody_joins_while_a_call_still_runs) {
  open_line(_i);
  hook_rc = 1;
  play("ann acquire; bob waits");
  line_hook = start_what_is_lost;
  play(
      "bob loses;"
      "bob returns -> LOST");
  line_hook = NULL;
  ck_assert_int_eq(hook_rc, ZKE_MISUSE);
  play(
      "line ann;"
      "bob start"); /* now it may */
}

/* ---- losing ---- */

/* A holder that has not dispatched learns of its loss when it releases. */
TEST_LINES(a_release_tells_of_a_loss) {
  open_line(_i);
  play("ann acquire; ann loses; ann release -> LOST; ann is OUT");
}

/* The znodes of the holder and of a waiter are deleted: both hear LOST, and
 * their releases take nothing from the next holder.  They can join again. */
TEST_LINES(a_deleted_place_is_lost) {
  for (int part = 0; part < line_kinds[_i].places; part++) {
    open_line(_i);
    play("ann acquire; bob start; cid start");
    delete_place(z[0], part);
    delete_place(z[2], part);
    play(
        "ann dispatches; cid dispatches;"
        "told ann HELD, ann LOST, cid LOST;"
        "ann is LOST; cid is LOST;"
        "all dispatch");
    /* only the holder of a multi-lock releases its other locks */
    if (!(line->is & LINE_KEEPS_REST))
      play(
          "bob is HELD;"
          "told bob HELD");
    play(
        "ann release -> LOST;"
        "cid release -> LOST;"
        "all dispatch;"
        "bob is HELD;"
        "bob check;"
        "line bob;"
        "ann start;"
        "ann is WAITING;"
        "line bob (ann)");
    ck_assert_int_eq(in_line(), 2);
    told[0] = '\0';
    close_line();
  }
}

/* Without a dispatch the next call finds out; an operation from before fails,
 * also if the listener has heard of the loss since. */
TEST_LINES(the_next_call_finds_a_place_deleted) {
  for (int part = 0; part < line_kinds[_i].places; part++) {
    zke_op ops[2];
    open_line(_i);
    for (int i = 0; i < 2; i++) {
      play("ann acquire");
      ck_ok(line->ops(party[0], ops));
      ck_ok(zke_multi(z[0], ops, line->ops_count, NULL));
      delete_place(z[0], part);
      if (i == 1)
        play(
            "ann dispatches;"
            "ann is LOST");
      /* the last znode of a lease stands for all of them */
      int expected = part == line->places - 1 || i ? ZKE_NONODE : ZKE_OK;
      ck_rc(zke_multi(z[0], ops, line->ops_count, NULL), expected);
      play(
          "ann check -> LOST;"
          "ann is LOST;"
          "told ann HELD, ann LOST;"
          "ann op -> LOST;"
          "ann release -> LOST;"
          "told ann OUT");
    }
    close_line();
  }
}

/* A place is deleted, or any one of its several znodes: a blocked call ends, a
 * started party hears it; either holds nothing and leaves nothing. */
TEST_LINES(a_waiter_whose_place_is_deleted_has_lost) {
  for (int part = 0; part < line_kinds[_i].places; part++) {
    open_line(_i);
    play("ann acquire; bob waits; cid start");
    delete_place(z[1], part);
    delete_place(z[2], part);
    play(
        "bob returns -> LOST;"
        "cid dispatches;"
        "cid is LOST;"
        "line ann;"
        "ann check");
    ck_assert_ptr_nonnull(strstr(told, "bob LOST"));
    ck_assert_int_eq(in_line(), 1);
    close_line();
  }
}

/* "After the session is lost, no recipe object still claims to hold": it hears
 * LOST, and each call says why; the next in line holds (P6). */
TEST_LINES(an_expired_session_holds_nothing) {
  void *late = NULL;
  open_line(_i);
  play(
      "ann acquire; bob start; ann expires; ann dispatches;"
      "told ann HELD, ann LOST;"
      "ann is LOST;"
      "ann check -> INVALIDSTATE;"
      "ann op -> INVALIDSTATE;"
      "ann release -> INVALIDSTATE;"
      "ann acquire -> INVALIDSTATE;"
      "ann try -> INVALIDSTATE;"
      "ann start -> INVALIDSTATE");
  ck_rc(line->create(z[0], PATH, &(line_options){0}, &late), ZKE_INVALIDSTATE);
  play(
      "all dispatch;"
      "bob is HELD;"
      "line bob");
}

/* The same without a dispatch: the next call finds out, whichever it is. */
TEST_LINES(an_expired_session_is_found_by_the_next_call) {
  play_line(_i,
            "ann acquire; ann expires;"
            "ann check -> INVALIDSTATE;"
            "ann is LOST;"
            "bob expires;"
            "bob acquire -> INVALIDSTATE;"
            "bob acquire -> INVALIDSTATE");
}

/* A blocked call does not outlast its session. */
TEST_LINES(a_waiter_whose_session_expires_returns) {
  play_line(_i,
            "ann acquire; bob waits; bob expires;"
            "bob returns -> INVALIDSTATE;"
            "bob is LOST;"
            "line ann;"
            "told ann HELD, bob LOST");
}

/* P4: an overflow drops one-shot watches, also a holder's watch on its own
 * place.  It watches again, so it hears of a later loss. */
TEST_LINES(a_loss_after_an_overflow_is_heard) {
  open_line(_i);
  zke *session = open_to_flood();
  void *mine = make_party(session, &(line_options){.who = "eve"});
  ck_ok(line->acquire(mine, line->others, soon(session)));
  flood(session);
  delete_place(session, 0);
  ck_ok(zke_dispatch(session, NULL));
  ck_told("eve HELD, eve LOST");
  line->free(mine);
  ck_ok(zke_close(session));
}

/* One allocation fails, or all, anywhere in the dispatch that brings its turn:
 * its listener hears of the turn, once. */
TEST_LOOP(a_turn_is_heard_when_memory_was_short, 0, 2 * LINE_KINDS) {
  test_heap heap = {.fail_all = _i % 2};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  int failed = 0;
  line = &line_kinds[_i / 2];
  ck_ok(zke_open(":memory:", &o, &z[0]));
  ck_ok(zke_open_session(z[0], &o, &z[1]));
  for (bool more = true; more;) {
    void *first = make_party(z[0], &(line_options){0});
    void *second = make_party(z[1], &(line_options){.who = "bob"});
    ck_ok(line->acquire(first, line->first, soon(z[0])));
    ck_ok(line->start(second, line->others));
    ck_ok(line->release(first));
    heap.fail_at = heap.calls + ++failed;
    zke_dispatch(z[1], NULL);
    more = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_until((dispatch_on(z[1]), line->state(second) == ZKE_LINE_HELD), 5000);
    ck_told("bob HELD");
    line->free(first);
    line->free(second);
    told[0] = '\0';
  }
  ck_assert_int_ge(failed, 5);
  ck_ok(zke_close(z[1]));
  ck_ok(zke_close(z[0]));
}

/* ---- a busy store ---- */

/* The function of a batch: occupies the store until it is told to end. */
static atomic_int busy; /* 0: it is to end; 2: it runs */
static int keep_busy(zke *session, void *context) {
  (void)session, (void)context;
  atomic_store(&busy, 2);
  while (atomic_load(&busy)) usleep(1000);
  return ZKE_OK;
}

static int run_busy(call *c) {
  (void)c;
  return zke_batch(z[0], keep_busy, NULL);
}

/* Another thread has the store, and calls have no time. */
static int64_t begin_busy(call *c) {
  atomic_store(&busy, 1);
  call_begin(c, run_busy, NULL, 0, 0);
  ck_until(atomic_load(&busy) == 2, 5000);
  return zke_limit(z[0], 1); /* a limit that has passed */
}

static void end_busy(call *c, int64_t limit) {
  zke_limit(z[0], limit);
  atomic_store(&busy, 0);
  call_end(c);
  ck_ok(c->rc);
}

/* State and token come from memory.  If the store cannot be asked because
 * another thread has it, nothing is known about the lock, and that is not a
 * loss.  The end of the session is one, as soon as it can be seen. */
TEST_LINES(a_store_that_is_busy_is_no_loss) {
  call c;
  open_line(_i);
  play("ann acquire");
  int64_t token = line->token(party[0]);
  int64_t limit = begin_busy(&c);
  ck_rc(zke_sync(z[0], "/"), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(line->state(party[0]), ZKE_LINE_HELD);
  ck_assert_int_eq(line->token(party[0]), token);
  end_busy(&c, limit);
  play(
      "ann expires;"
      "ann check -> INVALIDSTATE;"
      "ann is LOST");
}

/* A call of the holder asks the store.  If that fails, it holds as before, and
 * a reentrant lock is not acquired once more. */
TEST(holding_again_in_vain_changes_nothing) {
  zke_lock_options reentrant = {.size = sizeof reentrant, .reentrant = 1};
  zke_lock *lock;
  zke_election *election;
  call c;
  open_sessions();
  ck_ok(zke_lock_new(z[0], PATH, &reentrant, &lock));
  ck_ok(zke_election_new(z[0], OTHER, NULL, &election));
  ck_ok(zke_lock_acquire(lock, soon(z[0])));
  ck_ok(zke_election_lead(election, soon(z[0])));
  int64_t limit = begin_busy(&c);
  ck_rc(zke_lock_acquire(lock, soon(z[0])), ZKE_OPERATIONTIMEOUT);
  ck_rc(zke_election_lead(election, soon(z[0])), ZKE_OPERATIONTIMEOUT);
  end_busy(&c, limit);
  ck_ok(zke_lock_check(lock));
  ck_ok(zke_election_check(election));
  ck_ok(zke_lock_release(lock));
  ck_rc(zke_lock_check(lock), ZKE_LOST);
  zke_lock_free(lock);
  zke_election_free(election);
}

/* ---- deadlocks ---- */

/* A thread that waits for what it holds by another object would wait forever:
 * the call fails, unless the option turns the check off. */
TEST_NO_ELECTIONS(two_objects_of_one_thread_deadlock) {
  open_line(_i);
  ck_ok(party_acquire(0, soon(z[0])));
  for (int off = 0; off < 2; off++) {
    void *again = make_party(z[0], &(line_options){.no_deadlock_check = off});
    ck_rc(line->acquire(again, line->first, zke_now(z[0]) + (off ? 20 : 5000)),
          off ? ZKE_OPERATIONTIMEOUT : ZKE_DEADLOCK);
    ck_says(off ? "is held by ann" : "this thread");
    ck_assert_int_eq(in_line(), 1);
    line->free(again);
  }
}

/* Ann holds what bob waits for.  She asks for a lock of bob's, which closes a
 * circle, and her call reports it. */
TEST_NO_ELECTIONS(a_lock_that_closes_a_circle_is_told) {
  play_line(_i,
            "ann acquire;"
            "bob locks;"
            "bob waits;"
            "ann locks -> DEADLOCK;"
            "said would wait for ever: /beside is held by bob;"
            "said who waits for " PATH
            ", held by this thread;"
            "ann check;"
            "ann release;"
            "bob returns;"
            "bob unlocks");
}

/* The other way round: the wait in the line closes the circle, whether it had
 * joined before or not.  It then leaves the line. */
TEST_NO_ELECTIONS(a_wait_that_closes_a_circle_is_told) {
  open_line(_i);
  for (int i = 0; i < 2; i++) {
    play("ann acquire; bob locks");
    if (i) play("bob start");
    play(
        "ann waits_for_lock;"
        "bob acquire -> DEADLOCK;"
        "said would wait for ever: " PATH
        " is held by ann;"
        "said who waits for /beside, held by this thread;"
        "bob is OUT;"
        "line ann;"
        "bob unlocks;"
        "ann returns;"
        "ann unlocks;"
        "ann release");
  }
}

/* A party that has only joined is not blocked, so it may still release. */
TEST_NO_ELECTIONS(a_started_one_closes_no_circle) {
  play_line(_i,
            "ann acquire; bob locks; bob start;"
            "ann locks_now -> OPERATIONTIMEOUT;"
            "bob unlocks; ann locks; ann unlocks");
}

/* Ann does not wait, bob waits for ann, cid for bob: all get theirs. */
TEST_NO_ELECTIONS(a_chain_is_no_circle) {
  play_line(_i,
            "ann acquire; bob locks; bob waits; cid waits_for_lock;"
            "ann release; bob returns; bob unlocks; cid returns;"
            "cid unlocks");
}

/* With no_deadlock_check a circle lasts until the deadline. */
TEST_NO_ELECTIONS(the_check_can_be_turned_off) {
  open_line(_i);
  line->free(party[1]);
  party[1] = make_party(z[1], &(line_options){.no_deadlock_check = 1});
  play(
      "ann acquire; bob locks; ann waits_for_lock;"
      "bob acquire_now -> OPERATIONTIMEOUT;"
      "bob unlocks; ann returns; ann unlocks");
}

/* ---- in the middle of a call ---- */

static void *other_party; /* the intruder's */

static void releases(void) { ck_ok(line->release(other_party)); }

/* The holder releases at the n-th moment of a try: the try succeeds, or names
 * that holder, never itself. */
TEST_NO_ELECTIONS(a_try_is_never_refused_by_itself) {
  bool more = true;
  line = &line_kinds[_i];
  for (int n = 1; more; n++) {
    open_two();
    void *own = make_party(caller, &(line_options){.who = "caller"});
    other_party = make_party(intruder, &(line_options){.who = "intruder"});
    ck_ok(line->acquire(other_party, line->first, ZKE_FOREVER));
    act_between(n, releases);
    int rc = line->try_once(own, line->others);
    more = acted();
    if (rc != ZKE_OK) {
      ck_assert_int_eq(rc, line->refusal);
      ck_says("is held by intruder");
    }
    line->free(other_party);
    line->free(own);
    close_two();
  }
}

static void session_ends(void) {
  ck_ok(zke_expire(intruder, zke_session_id(caller)));
}

/* The session ends in the middle of a call, which is the first to find out: a
 * waiter acquires or releases, a holder releases.  The listener hears LOST,
 * once, and nothing else. */
TEST_LOOP(a_call_that_finds_its_session_ended_tells_the_loss, 0,
          3 * LINE_KINDS) {
  int found = 0, how = _i / LINE_KINDS;
  line = &line_kinds[_i % LINE_KINDS];
  bool more = true;
  for (int n = 1; more; n++) {
    open_two();
    void *own = make_party(caller, &(line_options){.who = "ann"});
    other_party = make_party(intruder, &(line_options){0});
    ck_ok(line->acquire(other_party, line->first, ZKE_FOREVER));
    ck_ok(line->start(own, line->others));
    if (how == 2) ck_ok(line->release(other_party));
    dispatch_on(caller);
    told[0] = '\0';
    act_at(n, session_ends);
    int rc = how ? line->release(own)
                 : line->acquire(own, line->others, zke_now(caller) + 50);
    more = acted();
    if (rc == ZKE_INVALIDSTATE) {
      ck_told("ann LOST");
      found++;
    }
    line->free(own);
    line->free(other_party);
    close_two();
  }
  ck_assert_int_gt(found, 0);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 25 };
static int inside, entered;

/* A thread that acquires and releases, and never meets another inside. */
static void *enter_and_leave(void *session) {
  void *x = make_party(session, &(line_options){0});
  for (int i = 0; i < ROUNDS; i++) {
    ck_ok(line->acquire(x, line->others, zke_now(session) + 20000));
    ck_assert_int_eq(__atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST), 1);
    entered++;
    __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
    ck_ok(line->release(x));
  }
  line->free(x);
  return NULL;
}

/* Four objects of one session on four threads: never two inside, and each gets
 * its turns. */
TEST_ALONE(threads_of_one_session_exclude_each_other) {
  pthread_t thread[THREADS];
  open_line(_i);
  for (int i = 0; i < THREADS; i++)
    pthread_create(&thread[i], NULL, enter_and_leave, z[0]);
  for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
  ck_assert_int_eq(entered, THREADS * ROUNDS);
}

/* ---- any history ---- */

/* What only some recipes can: a theft, or handing over an office. */
static void out_of_turn(unsigned *random, int i) {
  const char *heir = identities[rand_r(random) % 3];
  if (line == &line_kinds[LINE_LOCK]) party_does(i, "steal", NULL);
  if (line == &line_kinds[LINE_ELECTION]) party_does(i, "hand_over", heir);
}

static int held; /* how often any party held */

/* By the tree, no two hold. */
static void expect_one_holder(unsigned *random) {
  int count = 0;
  (void)random;
  for (int i = 0; i < PARTIES; i++) {
    if (party[i] && line->state(party[i]) == ZKE_LINE_HELD)
      count += line->check(party[i]) == ZKE_OK;
  }
  ck_assert_int_le(count, 1);
  held += count;
}

/* Random calls on six objects, one after the other, with deleted places and
 * lost sessions: never two holders, and each new holder has a greater token
 * than all earlier ones. */
TEST_ALONE(tokens_increase_in_any_history) {
  open_line(_i);
  play_history(&(line_history){
      .calls = 1500, .also = out_of_turn, .check = expect_one_holder});
  ck_assert_int_gt(held, 0);
}

/* ---- deaths, lost replies, faults ---- */

/* In a process: hold until it is killed. */
static void hold_on(zke *own) {
  void *mine = make_party(own, &(line_options){0});
  int rc = line->acquire(mine, line->first, soon(own));
  if (rc != ZKE_OK) give_up("acquire", rc);
  store(&shared->stage[0], 1);
  for (;;) pause();
}

static int acquire_on(call *c) {
  return line->acquire(c->object, c->how, c->deadline);
}

/* A clock at a hundredth of the kernel's speed: ten seconds are too short for a
 * sweep, but a second is enough for the pauses while the kernel releases the
 * files of a dead process. */
static zke_os kernel;
static int64_t started[3];
static int64_t slow_clock(void *context, int which) {
  int64_t passed = kernel.clock(context, which) - started[which];
  return started[which] + passed / 100;
}

static zke *open_slowly(void) {
  zke *own;
  zke_os_default(&kernel);
  for (int i = 0; i < 3; i++) started[i] = kernel.clock(kernel.context, i);
  zke_os os = kernel;
  os.clock = slow_clock;
  zke_options o = {.size = sizeof o, .os = &os};
  ck_ok(zke_open(test_path("db"), &o, &own));
  return own;
}

/* P6: the kernel tells a waiter that the holder was killed; no sweep does. */
TEST_LINES(the_kernel_tells_of_a_holders_death) {
  call c;
  line = &line_kinds[_i];
  share();
  pid_t pid = spawn(0, hold_on);
  store(&shared->go, 1);
  ck_until(load(&shared->stage[0]) || load(&shared->rc[0]), 10000);
  ck_assert_msg(!load(&shared->rc[0]), "%s", shared->sentence);
  z[0] = open_slowly();
  void *mine = make_party(z[0], &(line_options){0});
  call_begin(&c, acquire_on, mine, line->others, ZKE_FOREVER);
  ck_until(line->state(mine) == ZKE_LINE_WAITING && watches(z[0]), 5000);
  kill_child(pid);
  call_end(&c);
  ck_ok(c.rc);
  ck_ok(line->check(mine));
  line->free(mine);
  close_last(z[0]);
}

/* Is refused, then waits behind another. */
static int wait_behind(zke *user, void *first, void *second) {
  int64_t deadline = zke_now(user) + recipe_patience_ms;
  int rc = line->acquire(first, line->first, deadline);
  if (rc == ZKE_OK) rc = line->check(first);
  if (rc != ZKE_OK) return rc;
  rc = line->try_once(second, line->others);
  if (rc != line->refusal) return rc < 0 ? rc : zke_fail(ZKE_LOST, "not held");
  rc = line->start(second, line->others);
  if (rc == ZKE_OK) rc = line->release(first);
  if (rc == ZKE_OK) rc = line->acquire(second, line->others, deadline);
  if (rc == ZKE_OK) rc = line->release(second);
  return rc;
}

static int use_line(zke *user) { return use_by_two(user, wait_behind); }

/* Another party gets it, and holds alone. */
static void check_next(zke *other, int rc) {
  void *x = make_party(other, &(line_options){0});
  (void)rc;
  ck_ok(line->acquire(x, line->first, zke_now(other) + 5000));
  ck_assert_int_eq(entries(other, PATH), line->places);
  ck_assert_int_eq(entries(other, OTHER), line->ops_count - 1);
  line->free(x);
  ck_assert_int_eq(entries(other, PATH) + entries(other, OTHER), 0);
  ck_assert_int_eq(watches(other), 0);
}

static const recipe_use use = {"line", NULL, use_line, check_next};

/* A process that is killed at any change does not block others (P6).
 */
TEST_LINES(a_death_anywhere_lets_others_go_on) {
  line = &line_kinds[_i];
  ck_assert_int_gt(recipe_deaths(&use), 20);
}

/* The use recovers from a reply lost before or after its change (P2). */
TEST_LINES(a_lost_reply_is_made_good) {
  line = &line_kinds[_i];
  recipe_lost_replies(&use);
}

/* A failed step or an ended session at any place gives a code and a sentence,
 * and leaves no memory, descriptors or znodes (P11).  The rows share most of
 * their code, so each tries fewer places. */
TEST_LINES(a_fault_leaves_nothing_behind) {
  line = &line_kinds[_i];
  setenv("FAULT_MOST", "80", 0);
  recipe_faults(&use);
}
