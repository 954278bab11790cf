/* test_interleaving.c - what another process does in the middle of a call
 *
 * Between two changes of a call, another process takes what the call is about
 * to give up, or ends its session.  Or a reply is lost, and another program
 * keeps the database busy.  The recipes here are those whose own programs use
 * other sessions than those of sessions.h.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "recipes/barrier.h"
#include "recipes/config.h"
#include "recipes/counter.h"
#include "recipes/double_barrier.h"
#include "recipes/names.h"
#include "recipes/partition.h"
#include "sessions.h"

/* ---- a number that another process raises ---- */

#define NUMBER "/counters/c"

static zke_counter *make_counter(zke *own) {
  zke_counter *c;
  ck_ok(zke_counter_new(own, NUMBER, NULL, &c));
  return c;
}

static zke_counter *theirs;

static void adds(void) {
  ck_ok(zke_counter_add_and_get(theirs, 1, ZKE_FOREVER, NULL, NULL));
}

/* The number's version wraps around, and another process adds at the n-th
 * moment of an addition: both count. */
TEST(additions_count_where_versions_wrap) {
  bool more = true;
  for (int n = 1; more; n++) {
    int64_t value;
    open_two();
    zke_counter *own = make_counter(caller);
    theirs = make_counter(intruder);
    ck_ok(zke_counter_set(own, 0, ZKE_FOREVER, NULL));
    test_set_version(test_path("db"), NUMBER, -2);
    adds();
    act_between(n, adds);
    ck_ok(zke_counter_add_and_get(own, 1, ZKE_FOREVER, NULL, NULL));
    more = acted();
    ck_ok(zke_counter_get(own, &value, NULL));
    ck_assert_int_eq(value, 2 + more);
    zke_counter_free(own);
    zke_counter_free(theirs);
    close_two();
  }
}

/* ---- an item that its next owner takes ---- */

static const char *const items[] = {"a", "b"};
static zke_partition *second;

static void takes(void) { ck_ok(zke_partition_step(second)); }

/* Two members; the first one's time to let an item go has passed. */
static zke_partition *begin_division(void) {
  zke_partition_options o = {.size = sizeof o, .release_ms = 1};
  zke_partition *first;
  int64_t due;
  open_two();
  ck_ok(zke_partition_new(caller, "/shards", items, 2, NULL, &first));
  ck_ok(zke_partition_new(intruder, "/shards", items, 2, &o, &second));
  ck_ok(zke_partition_start(first));
  ck_ok(zke_partition_start(second));
  ck_ok(zke_partition_due(second, &due));
  ck_until(zke_now(intruder) > due, 5000);
  return first;
}

/* A third member comes: it must not get the second one's items. */
static void ck_kept(void) {
  zke_partition *third;
  zke *late;
  zke_strings *names;
  ck_ok(zke_open_session(intruder, NULL, &late));
  ck_ok(zke_partition_new(late, "/shards", items, 2, NULL, &third));
  ck_ok(zke_partition_start(third));
  ck_ok(zke_partition_list(second, &names));
  for (int i = 0; i < names->count; i++) {
    ck_ok(zke_partition_check(second, names->data[i]));
    ck_assert_int_eq(zke_partition_token(third, names->data[i]), 0);
  }
  zke_free(names);
  zke_partition_free(third);
  ck_ok(zke_close(late));
}

/* A member leaves, and meanwhile an item's next owner takes it: that owner
 * keeps it, whether the first has been asked (1) or has not looked since
 * (0). */
TEST_LOOP(an_item_that_is_taken_from_one_that_leaves_is_kept, 0, 2) {
  int kept = 0, n = 1;
  for (bool more = true; more; n++) {
    zke_strings *names;
    zke_partition *first = begin_division();
    if (_i) ck_ok(zke_partition_step(first));
    ck_assert_int_eq(zke_partition_state(first),
                     _i ? ZKE_PARTITION_RELEASING : ZKE_PARTITION_SETTLED);
    act_at(n, takes);
    ck_ok(zke_partition_leave(first));
    more = acted();
    ck_ok(zke_partition_list(second, &names));
    kept += names->count;
    zke_free(names);
    ck_kept();
    zke_partition_free(first);
    zke_partition_free(second);
    close_two();
  }
  ck_assert_int_gt(n, 3);
  ck_assert_int_gt(kept, 2);
}

/* ---- an item that goes to a third member ---- */

/* By their names, the item goes to the last of these that is present. */
static const char *const ranks[] = {"bob", "cid", "ann"};
static zke_partition *rank[3];

/* The first releases the item, and it goes to the third, unless the second has
 * it. */
static void hands_over(void) {
  int rc = zke_partition_release(rank[0], "a");
  ck_assert(rc == ZKE_OK || rc == ZKE_LOST);
  ck_ok(zke_partition_start(rank[2]));
}

/* A member takes an overdue item, and meanwhile the item goes to a third
 * member, which was never asked: the third keeps it. */
TEST(an_item_is_taken_only_from_the_owner_that_was_waited_for) {
  int had = 0, n = 1;
  for (bool more = true; more; n++) {
    int64_t due;
    open_two();
    for (int i = 0; i < 3; i++) {
      zke_partition_options o = {
          .size = sizeof o, .name = ranks[i], .release_ms = i == 1};
      ck_ok(zke_partition_new(i == 1 ? caller : intruder, "/shards", items, 1,
                              &o, &rank[i]));
    }
    ck_ok(zke_partition_start(rank[0]));
    ck_ok(zke_partition_start(rank[1]));
    ck_ok(zke_partition_step(rank[0]));
    ck_ok(zke_partition_due(rank[1], &due));
    ck_until(zke_now(caller) > due, 5000);
    act_at(n, hands_over);
    ck_ok(zke_partition_step(rank[1]));
    more = acted();
    bool third = zke_partition_token(rank[2], "a") != 0;
    bool taken = zke_partition_token(rank[1], "a") != 0;
    ck_assert(!(third && taken));
    ck_ok(zke_partition_check(rank[third ? 2 : 1], "a"));
    had += third;
    for (int i = 0; i < 3; i++) zke_partition_free(rank[i]);
    close_two();
  }
  ck_assert_int_gt(had, 0);
  ck_assert_int_gt(n, 2);
}

/* ---- a member that joins ---- */

/* How often the listener has heard each event. */
static int events[ZKE_PARTITION_LOST + 1];

static void count_event(zke_partition *p, int event, const char *item,
                        int64_t token, void *context) {
  (void)p, (void)item, (void)token, (void)context;
  events[event]++;
}

/* A member starts while the other store acts.  Returns the start's code; *more:
 * it has acted. */
static int start_beside(int n, void (*action)(void), bool *more) {
  zke_partition_options o = {.size = sizeof o, .listener = count_event};
  zke_partition *p;
  open_two();
  events[ZKE_PARTITION_ACQUIRED] = events[ZKE_PARTITION_LOST] = 0;
  ck_ok(zke_partition_new(caller, "/shards", items, 2, &o, &p));
  act_at(n, action);
  int rc = zke_partition_start(p);
  *more = acted();
  bool member = zke_partition_state(p) == ZKE_PARTITION_SETTLED;
  ck_assert_int_eq(member, rc == ZKE_OK);
  if (!member)
    ck_assert_int_eq(events[ZKE_PARTITION_LOST],
                     events[ZKE_PARTITION_ACQUIRED]);
  zke_partition_free(p);
  close_two();
  return rc;
}

static void delete_members(void) {
  zke_strings *names;
  char path[100];
  if (zke_children(intruder, "/shards/members", NULL, NULL, &names, NULL))
    return;
  for (int i = 0; i < names->count; i++) {
    snprintf(path, sizeof path, "/shards/members/%s", names->data[i]);
    ck_ok(zke_delete(intruder, path, -1));
  }
  zke_free(names);
}

/* The znode of a joining member is deleted: its start says so, unless it has
 * looked before. */
TEST(a_member_that_is_deleted_as_it_joins_is_told) {
  int lost = 0, n = 1;
  for (bool more = true; more; n++) {
    int rc = start_beside(n, delete_members, &more);
    if (rc == ZKE_OK) continue;
    ck_rc(rc, ZKE_LOST);
    ck_says("taken away");
    lost++;
  }
  ck_assert_int_gt(lost, 0);
}

/* Delete an item, and prevent the making of another. */
static void close_items(void) {
  zke_acl acl = {ZKE_PERM_ALL & ~ZKE_PERM_CREATE, "world", "anyone"};
  zke_delete(intruder, "/shards/items/item-a", -1);
  zke_set_acl(intruder, "/shards/items", -1, &(zke_acls){1, &acl}, NULL);
}

/* A member that cannot get all its items gives up, and its listener hears
 * nothing: another may already have what it got. */
TEST(an_item_of_a_start_that_fails_is_not_told) {
  int failed = 0, n = 1;
  for (bool more = true; more; n++) {
    int rc = start_beside(n, close_items, &more);
    zke *own = test_open(test_path("db"));
    ck_ok(zke_set_acl(own, "/shards/items", -1, ZKE_OPEN_ACL, NULL));
    ck_ok(zke_close(own));
    if (rc == ZKE_OK) continue;
    ck_assert_int_eq(events[ZKE_PARTITION_ACQUIRED], 0);
    failed++;
  }
  ck_assert_int_gt(failed, 0);
}

/* ---- a round that has gone ---- */

#define ROUNDS "/rounds"

enum { MATE, NEXT, LAST, OTHERS };
static zke *others[OTHERS];
static zke_double_barrier *party[OTHERS];

/* Each party's session is of the intruder's store. */
static void open_others(void) {
  for (int i = 0; i < OTHERS; i++) {
    ck_ok(zke_open_session(intruder, NULL, &others[i]));
    ck_ok(zke_double_barrier_new(others[i], ROUNDS, 2, NULL, &party[i]));
  }
}

static void close_others(void) {
  for (int i = 0; i < OTHERS; i++) {
    zke_double_barrier_free(party[i]);
    ck_ok(zke_close(others[i]));
  }
}

/* Two parties come, remove the broken round and begin their own. */
static void begin_next_round(void) {
  ck_ok(zke_double_barrier_start(party[NEXT], NULL, 0));
  ck_ok(zke_double_barrier_start(party[LAST], NULL, 0));
}

/* The party's last round must be theirs. */
static void ck_theirs(zke_double_barrier *whose) {
  zke_party_list *list;
  ck_ok(zke_double_barrier_list(whose, &list));
  ck_assert_int_eq(list->count, 2);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(list->data[i].session, zke_session_id(others[NEXT + i]));
  zke_free(list);
}

/* A party in leave finds that a member has died inside, and meanwhile others
 * begin the next round: it must not write into that. */
TEST(a_broken_round_is_not_written_into_the_next) {
  int n = 1;
  for (bool more = true; more; n++) {
    zke_double_barrier *staying;
    open_two();
    open_others();
    ck_ok(zke_double_barrier_new(caller, ROUNDS, 2, NULL, &staying));
    ck_ok(zke_double_barrier_start(party[MATE], NULL, 0));
    ck_ok(zke_double_barrier_enter(staying, NULL, 0, soon(caller), NULL));
    ck_ok(zke_double_barrier_leave_start(staying));
    ck_ok(zke_expire(intruder, zke_session_id(others[MATE])));
    act_at(n, begin_next_round);
    ck_rc(zke_double_barrier_leave(staying, soon(caller)), ZKE_BROKEN);
    more = acted();
    if (!more) begin_next_round();
    ck_ok(zke_double_barrier_enter(party[NEXT], NULL, 0, soon(intruder), NULL));
    ck_ok(zke_double_barrier_enter(party[LAST], NULL, 0, soon(intruder), NULL));
    ck_theirs(party[NEXT]);
    ck_theirs(party[LAST]);
    ck_ok(zke_double_barrier_leave_start(party[NEXT]));
    ck_ok(zke_double_barrier_leave(party[LAST], soon(intruder)));
    ck_ok(zke_double_barrier_leave(party[NEXT], soon(intruder)));
    zke_double_barrier_free(staying);
    close_others();
    close_two();
  }
  ck_assert_int_gt(n, 2);
}

/* ---- a name that gets another binding ---- */

static zke_names *own_names, *other_names;
static int64_t bound, other_bound; /* tokens */
static int other_rc;

/* The intruder replaces the same binding. */
static void rebinds(void) {
  other_rc = zke_names_rebind(other_names, "x", bound, "other", 5, 0,
                              soon(intruder), &other_bound);
}

/* The intruder unbinds the name, and binds it again. */
static void binds_anew(void) {
  other_rc = zke_names_unbind(other_names, "x", bound, soon(intruder));
  if (other_rc != ZKE_OK) return;
  ck_ok(zke_names_bind(other_names, "x", "other", 5, 0, soon(intruder),
                       &other_bound));
}

static int rebind_by_token(void) {
  return zke_names_rebind(own_names, "x", bound, "own", 3, 0, soon(caller),
                          NULL);
}

static int unbind_by_token(void) {
  return zke_names_unbind(own_names, "x", bound, soon(caller));
}

static const struct {
  void (*act)(void);
  int (*call)(void);
} changed[] = {{rebinds, rebind_by_token},
               {binds_anew, rebind_by_token},
               {binds_anew, unbind_by_token}};
enum { CHANGED = sizeof changed / sizeof *changed };

/* Two change the binding of one token: one succeeds, and the other does not
 * touch the new binding. */
TEST_LOOP(a_later_binding_is_left_alone, 0, CHANGED) {
  int n = 1;
  for (bool more = true; more; n++) {
    zke_binding *b = NULL;
    open_two();
    ck_ok(zke_names_new(caller, "/names", NULL, &own_names));
    ck_ok(zke_names_new(intruder, "/names", NULL, &other_names));
    ck_ok(zke_names_bind(own_names, "x", "", 0, 0, soon(caller), &bound));
    other_rc = ZKE_HELD;
    act_between(n, changed[_i].act);
    int rc = changed[_i].call();
    more = acted();
    if (other_rc == ZKE_OK) {
      ck_assert(rc == ZKE_HELD || rc == ZKE_NONODE);
      ck_ok(zke_names_lookup(own_names, "x", &b));
      ck_assert_int_eq(b->token, other_bound);
      zke_free(b);
      ck_ok(zke_names_unbind(other_names, "x", 0, soon(intruder)));
    } else {
      ck_ok(rc);
      if (changed[_i].call == rebind_by_token)
        ck_ok(zke_names_unbind(own_names, "x", 0, soon(caller)));
    }
    ck_assert_int_eq(entries(caller, "/names"), 0);
    zke_names_free(own_names);
    zke_names_free(other_names);
    close_two();
  }
  ck_assert_int_gt(n, 3);
}

/* ---- a name that is set while it is resolved ---- */

static void make_node(zke *session, const char *path, const char *data) {
  ck_ok(zke_create(session, path, data, (int)strlen(data), ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
}

/* Change the name without a rebinding, so its token stays.  It no longer stands
 * for /a, which then gets other data. */
static void aims_elsewhere(void) {
  ck_ok(zke_set(intruder, "/names/x", "/b/a", 4, -1, NULL));
  ck_ok(zke_set(intruder, "/a", "later", 5, -1, NULL));
}

/* A name resolves to its znode before or after the change, even if the new path
 * ends like the old one. */
TEST(a_name_resolves_to_its_whole_path) {
  char *data;
  int n = 1, elsewhere = 0;
  open_two();
  make_node(intruder, "/a", "");
  make_node(intruder, "/b", "");
  make_node(intruder, "/b/a", "new");
  make_node(intruder, "/names", "zkembed names\n");
  make_node(intruder, "/names/x", "");
  ck_ok(zke_names_new(caller, "/names", NULL, &own_names));
  for (bool more = true; more; n++) {
    ck_ok(zke_set(intruder, "/a", "old", 3, -1, NULL));
    ck_ok(zke_set(intruder, "/names/x", "/a", 2, -1, NULL));
    act_between(n, aims_elsewhere);
    ck_ok(zke_names_resolve(own_names, "x", &data, NULL, NULL));
    more = acted();
    elsewhere += strcmp(data, "new") == 0;
    if (strcmp(data, "new") != 0) ck_assert_str_eq(data, "old");
    zke_free(data);
  }
  ck_assert_int_gt(elsewhere, 1);
  zke_names_free(own_names);
}

/* ---- others that are always faster ---- */

static int flaps; /* how often */

/* Before each of the caller's changes the node goes or comes. */
static void flap(void) {
  if (zke_delete(intruder, "/a", -1) == ZKE_NONODE)
    make_node(intruder, "/a", "v");
  if (--flaps > 0) act_at(1, flap);
}

/* A set without a version retries until the node stays: what it finds in
 * between is not reported. */
TEST(a_set_outlasts_a_node_that_flaps) {
  zke_config *c;
  open_two();
  make_node(intruder, "/a", "v");
  ck_ok(zke_config_new(caller, "/a", NULL, &c));
  flaps = 60;
  act_at(1, flap);
  ck_ok(zke_config_set(c, "", "2", 1, -1, soon(caller), NULL));
  ck_assert_int_eq(flaps, 0);
  zke_config_free(c);
}

/* The name comes before it is watched, and goes before it is read. */
static void name_comes(void);

static void name_goes(void) {
  ck_ok(zke_delete(intruder, "/names/x", -1));
  flaps++;
  act_at(1, name_comes);
}

static void name_comes(void) {
  make_node(intruder, "/names/x", "v");
  act_between(1, name_goes);
}

/* A wait for a name that flaps ends at its deadline, if it never finds it. */
TEST(a_wait_for_a_name_that_flaps_ends) {
  open_two();
  make_node(intruder, "/names", "zkembed names\n");
  ck_ok(zke_names_new(caller, "/names", NULL, &own_names));
  flaps = 0;
  act_at(1, name_comes);
  ck_rc(zke_names_wait(own_names, "x", zke_now(intruder) + 300, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_assert_int_gt(flaps, 5);
  zke_names_free(own_names);
}

/* Another process's set, which comes before the step and goes after it. */
static zke_barrier *other_barrier;
static int places_after_pause;
static bool came;

static void goes(void) {
  ck_ok(zke_barrier_remove(other_barrier, 0, ZKE_FOREVER));
}

static void comes(void) {
  came = true;
  if (zke_barrier_set(other_barrier, "", 0, ZKE_FOREVER, NULL) == ZKE_OK)
    act_between(1, goes);
}

static void come_after_pause(void *context, int64_t ns) {
  (void)context, (void)ns;
  act_between(places_after_pause, comes);
}

/* A set that lost its reply has seen that nothing was made.  What others do
 * after that read must not cause doubt. */
TEST(a_setting_that_was_not_made_leaves_no_doubt) {
  int n = 1, doubts = 0, last = 0;
  for (bool more = true; more; n++) {
    zke_barrier *b;
    open_two();
    caller_pauses = come_after_pause;
    ck_ok(zke_barrier_new(caller, "/barrier", NULL, &b));
    ck_ok(zke_barrier_new(intruder, "/barrier", NULL, &other_barrier));
    ck_ok(zke_barrier_set(b, "", 0, ZKE_FOREVER, NULL));
    ck_ok(zke_barrier_remove(b, 0, ZKE_FOREVER));
    places_after_pause = n;
    came = false;
    ck_ok(zke_test_fail(caller, ZKE_TEST_FAIL_BEFORE, 0));
    int rc = zke_barrier_set(b, "", 0, soon(caller), NULL);
    acted();
    more = came;
    caller_pauses = NULL;
    if (rc == ZKE_CONNECTIONLOSS) doubts++, last = n;
    zke_barrier_remove(other_barrier, 0, ZKE_FOREVER);
    zke_barrier_free(b);
    zke_barrier_free(other_barrier);
    close_two();
  }
  ck_assert_int_gt(n, 4);
  ck_assert_int_eq(doubts, last); /* only before the read */
}

/* ---- a reply that is lost, and no time for another try ----
 *
 * Another try is impossible because the deadline has passed, or because a
 * writer begins in the pause and does not end. */

static sqlite3 *writer;

/* The pauses between tries are the session's sleeps.  Time passes only in
 * these, so no deadline comes before the first pause. */
static void write_in_pause(void *context, int64_t ns) {
  if (sqlite3_get_autocommit(writer))
    ck_assert_int_eq(sqlite3_exec(writer, "BEGIN IMMEDIATE", 0, 0, 0),
                     SQLITE_OK);
  test_pass_ns(context, ns);
}

static zke *open_obstructed(void (*pause_)(void *context, int64_t ns)) {
  zke_os os = test_driven_os();
  zke_options o = {.size = sizeof o, .os = &os};
  zke *session;
  os.sleep = pause_;
  ck_ok(zke_open(test_path("db"), &o, &session));
  ck_assert_int_eq(sqlite3_open(test_path("db"), &writer), SQLITE_OK);
  return session;
}

static void close_obstructed(zke *session) {
  sqlite3_close(writer);
  ck_ok(zke_close(session));
}

/* With a version, a last read shows whether the set was made, and the code says
 * so.  Without one this is unknown.  ZKE_OPERATIONTIMEOUT never comes from a
 * set that was made, only from one that the next try has found not made. */
TEST_LOOP(a_set_is_known_after_the_deadline, 0, 10) {
  static const struct {
    int busy, when, version, guards, rc;
  } rows[] = {{1, ZKE_TEST_FAIL_AFTER, 0, 0, ZKE_OK},
              {1, ZKE_TEST_FAIL_BEFORE, 0, 0, ZKE_OPERATIONTIMEOUT},
              {1, ZKE_TEST_FAIL_AFTER, -1, 0, ZKE_CONNECTIONLOSS},
              {1, ZKE_TEST_FAIL_BEFORE, -1, 0, ZKE_CONNECTIONLOSS},
              {1, ZKE_TEST_FAIL_AFTER, 0, 1, ZKE_OK},
              {1, ZKE_TEST_FAIL_BEFORE, 0, 1, ZKE_OPERATIONTIMEOUT},
              {0, ZKE_TEST_FAIL_AFTER, 0, 0, ZKE_OK},
              {0, ZKE_TEST_FAIL_BEFORE, 0, 0, ZKE_CONNECTIONLOSS},
              {0, ZKE_TEST_FAIL_AFTER, -1, 0, ZKE_CONNECTIONLOSS},
              {0, ZKE_TEST_FAIL_AFTER, 0, 1, ZKE_OK}};
  zke *own = open_obstructed(write_in_pause);
  zke_config *c;
  zke_stat stat = {0};
  zke_op guard;
  make_node(own, "/a", "1");
  ck_ok(zke_config_new(own, "/a", NULL, &c));
  zke_op_check(&guard, "/", -1);
  ck_ok(zke_test_fail(own, rows[_i].when, 0));
  int64_t deadline = zke_now(own) + (rows[_i].busy ? 50 : 0);
  int rc = zke_config_set_guarded(c, "", "2", 1, rows[_i].version, &guard,
                                  rows[_i].guards, deadline, &stat);
  ck_rc(rc, rows[_i].rc);
  if (rc == ZKE_OK) ck_assert_int_eq(stat.version, 1);
  if (rows[_i].busy && rc == ZKE_CONNECTIONLOSS) ck_says("a reply was lost");
  zke_config_free(c);
  close_obstructed(own);
}

/* In the first pause another process replaces the binding that it finds; then
 * the writer begins. */
static void replace_in_pause(void *context, int64_t ns) {
  if (sqlite3_get_autocommit(writer))
    ck_ok(zke_names_rebind(other_names, "x", 0, "other", 5, 0, ZKE_FOREVER,
                           NULL));
  write_in_pause(context, ns);
}

/* A rebinding that may have been made and replaced is not a timeout. */
TEST_LOOP(a_replaced_rebinding_is_no_timeout, 0, 2) {
  int when = _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE;
  zke *own = open_obstructed(replace_in_pause);
  zke *other = test_open(test_path("db"));
  ck_ok(zke_names_new(own, "/names", NULL, &own_names));
  ck_ok(zke_names_new(other, "/names", NULL, &other_names));
  ck_ok(zke_names_bind(own_names, "x", "1", 1, 0, soon(own), NULL));
  ck_ok(zke_test_fail(own, when, 0));
  ck_rc(zke_names_rebind(own_names, "x", 0, "2", 1, 0, zke_now(own) + 50, NULL),
        ZKE_CONNECTIONLOSS);
  ck_says("/names/x was bound is not known: a reply was lost");
  zke_names_free(own_names);
  zke_names_free(other_names);
  sqlite3_exec(writer, "ROLLBACK", 0, 0, 0);
  ck_ok(zke_close(other));
  close_obstructed(own);
}

static int set_again(zke *session, void *arg) {
  (void)arg;
  return zke_set(session, "/a", "2", 1, -1, NULL);
}

/* support.h, zke_retry(): a reply was lost, and the next try found the database
 * busy.  That is not a timeout, as the change may have been made. */
TEST_LOOP(a_repeated_change_is_no_timeout, 0, 2) {
  zke *own = open_obstructed(write_in_pause);
  make_node(own, "/a", "1");
  if (_i) ck_ok(zke_test_fail(own, ZKE_TEST_FAIL_AFTER, 0));
  if (!_i) write_in_pause(NULL, 0);
  ck_rc(zke_retry(own, set_again, NULL, zke_now(own) + 50),
        _i ? ZKE_CONNECTIONLOSS : ZKE_OPERATIONTIMEOUT);
  if (_i) ck_says("a reply was lost, and then: ");
  close_obstructed(own);
}

/* A call that binds, rebinds or unbinds a name succeeds if the change was made,
 * and fails if it was not; if the next try could see that, without doubt.
 */
TEST_LOOP(a_name_is_known_after_the_deadline, 0, 10) {
  static const struct {
    int busy, when, what, rc; /* what: 0: bind, 1: rebind, 2: unbind */
  } rows[] = {{1, ZKE_TEST_FAIL_AFTER, 0, ZKE_OK},
              {1, ZKE_TEST_FAIL_BEFORE, 0, ZKE_OPERATIONTIMEOUT},
              {1, ZKE_TEST_FAIL_AFTER, 1, ZKE_OK},
              {1, ZKE_TEST_FAIL_BEFORE, 1, ZKE_OPERATIONTIMEOUT},
              {1, ZKE_TEST_FAIL_AFTER, 2, ZKE_OK},
              {1, ZKE_TEST_FAIL_BEFORE, 2, ZKE_OPERATIONTIMEOUT},
              {0, ZKE_TEST_FAIL_AFTER, 1, ZKE_OK},
              {0, ZKE_TEST_FAIL_BEFORE, 1, ZKE_CONNECTIONLOSS},
              {0, ZKE_TEST_FAIL_AFTER, 2, ZKE_OK},
              {0, ZKE_TEST_FAIL_BEFORE, 2, ZKE_CONNECTIONLOSS}};
  zke *own = open_obstructed(write_in_pause);
  int64_t token = 0;
  int rc = ZKE_OK;
  ck_ok(zke_names_new(own, "/names", NULL, &own_names));
  ck_ok(zke_names_bind(own_names, rows[_i].what ? "x" : "w", "1", 1, 0,
                       soon(own), NULL));
  ck_ok(zke_test_fail(own, rows[_i].when, 0));
  int64_t deadline = zke_now(own) + (rows[_i].busy ? 50 : 0);
  if (rows[_i].what == 0)
    rc = zke_names_bind(own_names, "x", "2", 1, 0, deadline, &token);
  else if (rows[_i].what == 1)
    rc = zke_names_rebind(own_names, "x", 0, "2", 1, 0, deadline, &token);
  else
    rc = zke_names_unbind(own_names, "x", 0, deadline);
  ck_rc(rc, rows[_i].rc);
  zke_names_free(own_names);
  close_obstructed(own);
}

/* A step that loses its reply, and then fails with this code. */
static int lose_then_fail(zke *session, void *arg) {
  int *rc = arg, now = *rc;
  (void)session;
  if (now < 0) return zke_fail(now, "no answer"), now;
  *rc = -now;
  return ZKE_CONNECTIONLOSS;
}

/* The same for other failures that are not an answer; an answer is returned. */
TEST(a_failure_after_a_lost_reply_is_a_doubt) {
  static const struct {
    int rc, doubt;
  } rows[] = {{ZKE_NOMEM, 1},      {ZKE_SYSTEMERROR, 1}, {ZKE_CORRUPT, 1},
              {ZKE_FULL, 1},       {ZKE_CANCELLED, 1},   {ZKE_HELD, 0},
              {ZKE_BADVERSION, 0}, {ZKE_NONODE, 0},      {ZKE_LOST, 0}};
  zke *own = test_open(":memory:");
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int rc = -rows[i].rc, once = rows[i].rc;
    ck_rc(zke_retry(own, lose_then_fail, &rc, ZKE_FOREVER),
          rows[i].doubt ? ZKE_CONNECTIONLOSS : rows[i].rc);
    ck_says(rows[i].doubt ? "a reply was lost, and then: no answer"
                          : "no answer");
    ck_rc(zke_retry(own, lose_then_fail, &once, ZKE_FOREVER), rows[i].rc);
  }
  ck_ok(zke_close(own));
}

/* Memory fails from an allocation after the first pause on. */
static struct {
  test_heap heap;
  long fail_at;
} starved;

static void starve_in_pause(void *context, int64_t ns) {
  test_pass_ns(context, ns);
  starved.heap.fail_at = starved.fail_at;
}

static int sets_a_barrier(zke *own) {
  zke_barrier *b;
  ck_ok(zke_barrier_new(own, "/barrier", NULL, &b));
  ck_ok(zke_test_fail(own, ZKE_TEST_FAIL_AFTER, 1)); /* the directory first */
  int rc = zke_barrier_set(b, "why", 3, ZKE_FOREVER, NULL);
  zke_barrier_free(b);
  return rc;
}

static int binds_a_name(zke *own) {
  zke_names *names;
  ck_ok(zke_names_new(own, "/names", NULL, &names));
  ck_ok(zke_names_bind(names, "w", "1", 1, 0, ZKE_FOREVER, NULL));
  ck_ok(zke_test_fail(own, ZKE_TEST_FAIL_AFTER, 0));
  int rc = zke_names_bind(names, "x", "2", 1, 0, ZKE_FOREVER, NULL);
  zke_names_free(names);
  return rc;
}

static int sets_a_node(zke *own) {
  zke_config *c;
  zke_op guard;
  zke_op_check(&guard, "/", -1);
  make_node(own, "/a", "1");
  ck_ok(zke_config_new(own, "/a", NULL, &c));
  ck_ok(zke_test_fail(own, ZKE_TEST_FAIL_AFTER, 0));
  int rc =
      zke_config_set_guarded(c, "", "2", 1, -1, &guard, 1, ZKE_FOREVER, NULL);
  zke_config_free(c);
  return rc;
}

/* A change was made, and then there is no memory for the read or the next try:
 * the call must not say that nothing was changed. */
TEST_LOOP(no_memory_after_a_lost_reply_is_a_doubt, 0, 3) {
  static int (*const changes[])(zke *) = {sets_a_barrier, binds_a_name,
                                          sets_a_node};
  int doubts = 0, rc = ZKE_CONNECTIONLOSS;
  for (starved.fail_at = 1; rc != ZKE_OK; starved.fail_at++) {
    zke_os os = test_driven_os();
    zke_options o = {.size = sizeof o,
                     .os = &os,
                     .allocator = {test_heap_resize, &starved.heap}};
    zke *own;
    os.sleep = starve_in_pause;
    starved.heap = (test_heap){.fail_all = 1};
    ck_ok(zke_open(":memory:", &o, &own));
    rc = changes[_i](own);
    if (rc != ZKE_OK) ck_rc(rc, ZKE_CONNECTIONLOSS);
    doubts += rc != ZKE_OK;
    starved.heap.fail_at = 0;
    ck_ok(zke_close(own));
  }
  ck_assert_int_gt(doubts, 0);
}

/* If the next try has found the counter unchanged, it is a timeout. */
TEST(a_count_that_was_not_made_is_a_timeout) {
  zke *own = open_obstructed(write_in_pause);
  zke_counter *c;
  ck_ok(zke_counter_new(own, "/count", NULL, &c));
  ck_ok(zke_counter_set(c, 1, soon(own), NULL));
  ck_ok(zke_test_fail(own, ZKE_TEST_FAIL_BEFORE, 0));
  ck_rc(zke_counter_add_and_get(c, 1, zke_now(own) + 50, NULL, NULL),
        ZKE_OPERATIONTIMEOUT);
  sqlite3_exec(writer, "ROLLBACK", 0, 0, 0);
  zke_counter_free(c);
  close_obstructed(own);
}

static int others_version; /* after the intruder's set; 0: none yet */

static void sets(void) {
  zke_stat stat;
  ck_ok(zke_set(intruder, "/a", "other", 5, -1, &stat));
  others_version = stat.version;
}

/* The same while another process sets the node at any moment.  The call knows
 * whether its set was made, unless the other has set the node since: then it is
 * unknown. */
TEST_LOOP(the_last_look_finds_what_others_have_set, 0, 2) {
  int when = _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE;
  int refused = 0, gone_on = 0, n = 1;
  for (bool more = true; more; n++) {
    zke_config *c;
    open_two();
    make_node(intruder, "/a", "1");
    ck_ok(zke_config_new(caller, "/a", NULL, &c));
    ck_ok(zke_test_fail(caller, when, 0));
    others_version = 0;
    int64_t deadline = zke_now(intruder);
    act_between(n, sets);
    int rc = zke_config_set(c, "", "2", 1, 0, deadline, NULL);
    more = acted();
    bool made = _i && others_version != 1;
    if (rc != ZKE_CONNECTIONLOSS) ck_rc(rc, made ? ZKE_OK : ZKE_BADVERSION);
    if (made && !others_version) ck_ok(rc);
    refused += rc == ZKE_BADVERSION;
    gone_on += rc == ZKE_CONNECTIONLOSS && others_version == 2;
    zke_config_free(c);
    ck_ok(zke_delete(intruder, "/a", -1));
    close_two();
  }
  ck_assert_int_gt(refused, 0);
  if (_i) ck_assert_int_gt(gone_on, 0);
}

/* ---- a session that ends ---- */

#define GATE "/gate"

static int lost;     /* how often the listener has heard LOST */
static bool engaged; /* the caller participated when its session ended */
static zke_double_barrier *gate, *other_gate;

static void hear_gate(zke_double_barrier *who, int event, int64_t token,
                      void *context) {
  (void)who, (void)token, (void)context;
  lost += event == ZKE_DOUBLE_BARRIER_LOST;
}

/* The other party always has a znode at the barrier. */
static void session_ends(void) {
  engaged = entries(intruder, GATE) > 1;
  ck_ok(zke_expire(intruder, zke_session_id(caller)));
}

/* The other party waits at a barrier of two. */
static void come_to_gate(void) {
  zke_double_barrier_options o = {.size = sizeof o, .listener = hear_gate};
  ck_ok(zke_double_barrier_new(caller, GATE, 2, &o, &gate));
  ck_ok(zke_double_barrier_new(intruder, GATE, 2, NULL, &other_gate));
  ck_ok(zke_double_barrier_start(other_gate, NULL, 0));
}

static int enter_gate(void) {
  return zke_double_barrier_enter(gate, NULL, 0, zke_now(caller) + 50, NULL);
}

/* Both are inside. */
static void go_inside(void) {
  come_to_gate();
  ck_ok(zke_double_barrier_enter(gate, NULL, 0, soon(caller), NULL));
}

static int leave_gate(void) {
  return zke_double_barrier_leave(gate, zke_now(caller) + 50);
}

static const struct {
  void (*begin)(void);
  int (*call)(void);
} ended[] = {{come_to_gate, enter_gate}, {go_inside, leave_gate}};
enum { ENDED = sizeof ended / sizeof *ended };

/* The session ends in the middle of a call, which is the first to find out.
 * The listener of a participant hears LOST, once.  (test_lines has the recipes
 * with lines.) */
TEST_LOOP(a_call_that_finds_its_session_ended_tells_the_loss, 0, ENDED) {
  int found = 0;
  for (int n = 1, more = 1; more; n++) {
    open_two();
    engaged = false;
    ended[_i].begin();
    lost = 0;
    act_at(n, session_ends);
    int rc = ended[_i].call();
    more = acted();
    if (rc == ZKE_INVALIDSTATE) {
      ck_assert_int_eq(lost, engaged);
      found += engaged;
    }
    zke_double_barrier_free(gate);
    zke_double_barrier_free(other_gate);
    close_two();
  }
  ck_assert_int_gt(found, 0);
}
