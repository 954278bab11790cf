/* test_zk_watch.c - watchers in memory (zk_watch.h), by its rules */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/engine/zk_watch.h"
#include "test/test.h"

static char a[] = "a", b[] = "b", c[] = "c";
static zk_watches w;

static void end(void) { zke_watchers_free(&w); }
AFTER_EACH(end);

static void put(const char *path, enum zk_watch_kind kind, char *context) {
  zk_watch *entry = zke_watcher_new(&w, path, test_ignore, context);
  ck_assert_ptr_nonnull(entry);
  zke_watcher_put(&w, entry, kind);
}

/* All due calls, as "2 /p a; 4 / b"; those for all pairs come first. */
static const char *due(void) {
  static char text[4000];
  zk_target t;
  text[0] = '\0';
  for (;;) {
    bool told = w.round_type && zke_watcher_next_told(&w, &t);
    if (!told && !zke_watcher_next(&w, INT64_MAX, &t)) return text;
    snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d %s %s",
             *text ? "; " : "", t.type, t.path, (char *)t.context);
    zke_watcher_done(&w, &t);
  }
}

static bool has(const char *path, int type, char *context) {
  zk_watch_query q = {path, type, context ? test_ignore : NULL, context};
  return zke_watcher_find(&w, &q);
}

static bool event(int type, const char *path) {
  return zke_watcher_event(&w, type, path, 0, 0);
}

/* Which kinds each event calls, on its path and on the parent's path. */
TEST(the_table_of_kinds_and_events) {
  static const char *const expected[ZK_WATCH_KINDS][2][4] = {
      [ZK_WATCH_DATA] = {{"1", "2", "3", ""}, {"", "", "", ""}},
      [ZK_WATCH_EXIST] = {{"1", "2", "3", ""}, {"", "", "", ""}},
      [ZK_WATCH_CHILD] = {{"", "2", "", "4"}, {"", "", "", ""}},
      [ZK_WATCH_PERSISTENT] = {{"1", "2", "3", "4"}, {"", "", "", ""}},
      [ZK_WATCH_RECURSIVE] = {{"1", "2", "3", ""}, {"1", "2", "3", ""}}};
  for (int kind = 0; kind < ZK_WATCH_KINDS; kind++) {
    for (int above = 0; above < 2; above++) {
      for (int type = 1; type <= 4; type++) {
        char text[40] = "";
        const char *got = expected[kind][above][type - 1];
        zke_watchers_init(&w, 100);
        put("/p", (enum zk_watch_kind)kind, a);
        event(type, above ? "/p/q" : "/p");
        if (*got)
          snprintf(text, sizeof text, "%s %s a", got, above ? "/p/q" : "/p");
        ck_assert_str_eq(due(), text);
        bool stays = !*got || kind >= ZK_WATCH_PERSISTENT;
        ck_assert_int_eq(has("/p", ZKE_WATCH_ANY, a), stays);
        zke_watchers_free(&w);
      }
    }
  }
}

/* However many watches of a function and its context an event fires, they are
 * called once; other pairs are called, too. */
TEST(one_pair_is_called_once_for_an_event) {
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_DATA, a);
  put("/p", ZK_WATCH_DATA, a);
  put("/p", ZK_WATCH_CHILD, a);
  put("/", ZK_WATCH_RECURSIVE, a);
  put("/p", ZK_WATCH_DATA, b);
  event(ZKE_EVENT_DELETED, "/p");
  ck_assert_str_eq(due(), "2 /p a; 2 /p b");
  event(ZKE_EVENT_CREATED, "/p");
  ck_assert_str_eq(due(), "1 /p a");
  event(ZKE_EVENT_CREATED, "/");
  event(ZKE_EVENT_CHANGED, "/pq/r/s");
  ck_assert_str_eq(due(), "1 / a; 3 /pq/r/s a");
}

static void count_kind(void *arg, const char *path, enum zk_watch_kind kind) {
  int *count = arg;
  ck_assert_str_eq(path, "/p");
  count[kind]++;
}

/* A path and a kind are listed once for setting again, however many pairs watch
 * it. */
TEST(each_path_is_set_again_once) {
  int count[ZK_WATCH_KINDS] = {0};
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_RECURSIVE, a);
  put("/p", ZK_WATCH_DATA, a);
  put("/p", ZK_WATCH_RECURSIVE, b);
  put("/p", ZK_WATCH_DATA, c);
  put("/p", ZK_WATCH_RECURSIVE, c);
  zke_watcher_each(&w, count_kind, count);
  ck_assert_int_eq(count[ZK_WATCH_RECURSIVE], 1);
  ck_assert_int_eq(count[ZK_WATCH_DATA], 1);
  ck_assert_int_eq(count[ZK_WATCH_CHILD], 0);
}

/* "/p" is above "/p/q", not above "/pq". */
TEST(a_recursive_watch_ends_at_a_slash) {
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_RECURSIVE, a);
  event(ZKE_EVENT_CHANGED, "/pq");
  event(ZKE_EVENT_CHANGED, "/");
  ck_assert_str_eq(due(), "");
}

/* Rule 2: the pairs to call are decided when the event arrives. */
TEST(a_watch_that_is_set_after_an_event_is_new) {
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_DATA, a);
  event(ZKE_EVENT_CHANGED, "/p");
  ck_assert(has("/p", ZKE_WATCH_DATA, a)); /* it is due */
  ck_assert(!has("/p", ZKE_WATCH_CHILD, a));
  put("/p", ZK_WATCH_DATA, a);
  event(ZKE_EVENT_CHANGED, "/p");
  event(ZKE_EVENT_CHANGED, "/p");
  ck_assert_str_eq(due(), "3 /p a; 3 /p a");
  ck_assert(!has("/p", ZKE_WATCH_ANY, NULL));
}

/* A path has one persistent mode: the last one requested applies to all its
 * watchers. */
TEST(the_later_mode_of_a_path_counts_for_all) {
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_PERSISTENT, a);
  put("/p", ZK_WATCH_RECURSIVE, b);
  event(ZKE_EVENT_CHANGED, "/p/q");
  event(ZKE_EVENT_CHILD, "/p");
  ck_assert_str_eq(due(), "3 /p/q a; 3 /p/q b");
}

/* Removing one watch of a pair, or all of a pair, also removes their due
 * calls. */
TEST(what_is_taken_back_is_not_called) {
  zk_watch_query q = {"/p", ZKE_WATCH_DATA, test_ignore, a};
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_DATA, a);
  put("/p", ZK_WATCH_CHILD, a);
  put("/p", ZK_WATCH_DATA, b);
  ck_assert(zke_watcher_needed(&w, &q, ZKE_WATCH_DATA));
  zke_watcher_remove(&w, &q);
  ck_assert(has("/p", ZKE_WATCH_CHILD, a));
  ck_assert(!has("/p", ZKE_WATCH_DATA, a));
  q.context = b;
  ck_assert(!zke_watcher_needed(&w, &q, ZKE_WATCH_DATA));
  event(ZKE_EVENT_CHANGED, "/p");
  zke_watcher_remove(&w, &q);
  ck_assert_str_eq(due(), "");
  put("/p", ZK_WATCH_DATA, b);
  event(ZKE_EVENT_CHANGED, "/p");
  put("/x", ZK_WATCH_RECURSIVE, b);
  zke_watcher_forget(&w, test_ignore, b);
  ck_assert_str_eq(due(), "");
  ck_assert(!has("/x", ZKE_WATCH_ANY, NULL));
  ck_assert(has("/p", ZKE_WATCH_CHILD, a));
}

/* A hostile server's path of nothing but slashes takes time by its length, and
 * not by the square of it, which would be minutes here. */
TEST(a_long_path_is_walked_once) {
  enum { LONG = 1 << 20 };
  zk_target t;
  char *path = malloc(LONG + 1);
  memset(path, '/', LONG);
  path[LONG] = '\0';
  zke_watchers_init(&w, 100);
  put("/", ZK_WATCH_RECURSIVE, a);
  event(ZKE_EVENT_CHANGED, path);
  ck_assert(zke_watcher_next(&w, INT64_MAX, &t));
  ck_assert_ptr_eq(t.context, a);
  ck_assert_str_eq(t.path, path);
  zke_watcher_done(&w, &t);
  zke_watchers_free(&w);
  free(path);
}

/* Rule 4. */
TEST(too_many_events_are_told_once) {
  zke_watchers_init(&w, 3);
  put("/", ZK_WATCH_RECURSIVE, a);
  put("/p", ZK_WATCH_CHILD, b);
  for (int i = 0; i < 3; i++) event(ZKE_EVENT_CHANGED, "/p");
  ck_assert_int_eq(w.round_type, 0);
  event(ZKE_EVENT_CHANGED, "/p");
  ck_assert_int_eq(w.pending, 0);
  zk_target t;
  int told = 0;
  while (zke_watcher_next_told(&w, &t)) {
    told++;
    ck_assert_int_eq(t.type, ZKE_EVENT_OVERFLOW);
  }
  ck_assert_int_eq(told, 2);
  ck_assert(!has("/p", ZKE_WATCH_ANY, b));
  event(ZKE_EVENT_CHANGED, "/p");
  ck_assert_str_eq(due(), "3 /p a");
}

/* The caller that adds an event hears that events were dropped, even while
 * pairs must still be told of a gap after a new connection. */
TEST(an_overflow_behind_a_gap_is_told_to_the_caller) {
  zke_watchers_init(&w, 1);
  put("/", ZK_WATCH_RECURSIVE, a);
  ck_assert(zke_watcher_tell_kept(&w));
  ck_assert_int_eq(w.round_type, ZKE_EVENT_OVERFLOW);
  ck_assert(event(ZKE_EVENT_CHANGED, "/p"));
  ck_assert(!event(ZKE_EVENT_CHANGED, "/p"));
}

/* At the end earlier events are reported first, then the end to each pair. */
TEST(the_end_is_told_to_each_pair_once) {
  zk_target t;
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_DATA, a);
  put("/q", ZK_WATCH_DATA, a);
  put("/q", ZK_WATCH_DATA, b);
  ck_assert(zke_watcher_alarm(&w, 1000, test_ignore, c));
  event(ZKE_EVENT_CHANGED, "/p");
  zke_watcher_tell_all(&w, ZKE_EVENT_SESSION);
  ck_assert_int_eq(w.count, 0);
  ck_assert(zke_watcher_next(&w, INT64_MAX, &t));
  zke_watcher_done(&w, &t);
  int told = 0;
  while (zke_watcher_next_told(&w, &t)) told += t.type == ZKE_EVENT_SESSION;
  ck_assert_int_eq(told, 3);
  ck_assert(!zke_watcher_next_alarm(&w, INT64_MAX - 1, &t));
}

/* Alarms come in the order of their times, not of the calls that set them. A
 * later alarm of a pair replaces the previous one, and a forgotten pair has
 * none. */
TEST(alarms_come_in_their_order) {
  zk_target t;
  zke_watchers_init(&w, 100);
  ck_assert_int_eq(zke_watcher_next_due(&w), ZKE_FOREVER);
  ck_assert(zke_watcher_alarm(&w, 300, test_ignore, a));
  ck_assert(zke_watcher_alarm(&w, 200, test_ignore, b));
  ck_assert(zke_watcher_alarm(&w, 100, test_ignore, a));
  ck_assert_int_eq(zke_watcher_next_due(&w), 100);
  ck_assert(!zke_watcher_next_alarm(&w, 99, &t));
  ck_assert(zke_watcher_next_alarm(&w, 250, &t));
  ck_assert_ptr_eq(t.context, a);
  ck_assert(zke_watcher_next_alarm(&w, 250, &t));
  ck_assert_ptr_eq(t.context, b);
  ck_assert(!zke_watcher_next_alarm(&w, 250, &t));
  ck_assert(zke_watcher_alarm(&w, 400, test_ignore, b));
  zke_watcher_forget(&w, test_ignore, b);
  ck_assert_int_eq(zke_watcher_next_due(&w), ZKE_FOREVER);
}

/* dispatch_to: events of changes beyond the zxid wait, and all later ones. */
TEST(events_up_to_a_zxid) {
  zk_target t;
  zke_watchers_init(&w, 100);
  put("/", ZK_WATCH_RECURSIVE, a);
  zke_watcher_event(&w, ZKE_EVENT_CHANGED, "/1", 5, 5);
  zke_watcher_event(&w, ZKE_EVENT_CHANGED, "/2", 0, 8);
  ck_assert(!zke_watcher_next(&w, 4, &t));
  ck_assert(zke_watcher_next(&w, 7, &t));
  ck_assert_int_eq(t.zxid, 5);
  zke_watcher_done(&w, &t);
  ck_assert(!zke_watcher_next(&w, 7, &t));
  ck_assert_str_eq(due(), "3 /2 a");
}

static void count_path(void *arg, const char *path) {
  (void)path;
  ++*(int *)arg;
}

/* An event is untold until its last watcher has returned. */
TEST(untold_is_what_has_not_returned) {
  zk_target t;
  int count = 0;
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_RECURSIVE, a);
  put("/p", ZK_WATCH_RECURSIVE, b);
  event(ZKE_EVENT_CHANGED, "/p/1");
  event(ZKE_EVENT_CHANGED, "/p");
  ck_assert_int_eq(zke_watcher_untold(&w, "/p", count_path, &count), 2);
  ck_assert_int_eq(count, 2);
  ck_assert_int_eq(zke_watcher_untold(&w, "/p/1", NULL, NULL), 1);
  ck_assert_int_eq(zke_watcher_untold(&w, "/q", NULL, NULL), 0);
  ck_assert(zke_watcher_next(&w, INT64_MAX, &t));
  zke_watcher_done(&w, &t);
  ck_assert(zke_watcher_next(&w, INT64_MAX, &t));
  ck_assert_int_eq(zke_watcher_untold(&w, "/", NULL, NULL), 2);
  zke_watcher_done(&w, &t);
  ck_assert_int_eq(zke_watcher_untold(&w, "/", NULL, NULL), 1);
}

/* An event is dropped when its last call is removed, even if nobody dispatches:
 * otherwise a program that forgets its watcher before each dispatch would
 * collect them. */
TEST_LOOP(an_event_that_calls_nobody_is_gone, 0, 2) {
  zke_watchers_init(&w, 100);
  for (int i = 0; i < 3; i++) {
    put("/p", ZK_WATCH_DATA, a);
    put("/p", ZK_WATCH_DATA, b);
    event(ZKE_EVENT_CHANGED, "/p");
    zke_watcher_forget(&w, test_ignore, _i ? a : b);
    ck_assert_int_eq(zke_watcher_untold(&w, "/p", NULL, NULL), 1);
    ck_assert_int_eq(w.pending, 1);
    zke_watcher_remove(
        &w, &(zk_watch_query){"/p", ZKE_WATCH_ANY, test_ignore, _i ? b : a});
    ck_assert_int_eq(zke_watcher_untold(&w, "/p", NULL, NULL), 0);
    ck_assert_ptr_null(w.first);
  }
  ck_assert_int_eq(w.pending, 0);
}

/* After a gap only pairs with a watch that stays are told. */
TEST(a_gap_is_told_to_watches_that_stay) {
  zke_watchers_init(&w, 100);
  put("/p", ZK_WATCH_DATA, a);
  ck_assert(!zke_watcher_tell_kept(&w));
  put("/p", ZK_WATCH_PERSISTENT, b);
  event(ZKE_EVENT_CHANGED, "/p");
  ck_assert(zke_watcher_tell_kept(&w));
  char told[40];
  snprintf(told, sizeof told, "%d  b; 3 /p a; 3 /p b", ZKE_EVENT_OVERFLOW);
  ck_assert_str_eq(due(), told);
  ck_assert(has("/p", ZKE_WATCH_ANY, b));
}
