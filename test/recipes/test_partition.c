/* test_partition.c - recipes/partition: items divided among the members
 *
 * Each item belongs to a member, and never to two at the same time. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/partition.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"
#include "steps.h"

#define PATH "/shards"
enum { MANY = 4, ITEMS = 10 };

static const char *const items[ITEMS] = {"a",        "b/c", "c d", "%41", "e.f",
                                         "\xc3\xa9", "g",   "h",   "i",   "j"};

static int64_t release_ms;
static bool lets_go = true;
static int heard[PARTIES][4]; /* the number of each event */

/* The item's index. */
static int index_of(const char *item) {
  for (int i = 0; i < ITEMS; i++) {
    if (strcmp(items[i], item) == 0) return i;
  }
  ck_abort_msg("a strange item");
  return -1;
}

static int owner[ITEMS]; /* the member that believes it is the owner; from 1 */
static int64_t tokens[ITEMS];

/* A member: it begins and ends its work by its events, and no other member may
 * work on the item. */
static void hear(zke_partition *who, int event, const char *item, int64_t token,
                 void *context) {
  int member = (int)((int(*)[4])context - heard), i = index_of(item);
  heard[member][event]++;
  if (event == ZKE_PARTITION_ACQUIRED) {
    ck_assert_msg(owner[i] == 0, "%s has two owners", item);
    ck_assert_int_gt(token, tokens[i]);
    tokens[i] = token;
    owner[i] = member + 1;
  } else if (event == ZKE_PARTITION_LOST) {
    if (owner[i] == member + 1) owner[i] = 0;
  } else if (lets_go) {
    ck_assert_int_eq(owner[i], member + 1);
    owner[i] = 0;
    ck_ok(zke_partition_release(who, item));
  }
}

static int create(zke *session, const char *name, void **object) {
  zke_partition_options o = {.size = sizeof o,
                             .name = name,
                             .release_ms = release_ms,
                             .listener = hear,
                             .context = heard[party_named(name)]};
  return zke_partition_new(session, PATH, items, ITEMS, &o,
                           (zke_partition **)object);
}

/* Count, and perhaps delete, the second znodes that owners have besides the
 * items'. */
static int twins_there(bool delete) {
  zke_strings *names;
  char path[128];
  int count = 0,
      rc = zke_children(z[4], PATH "/items", NULL, NULL, &names, NULL);
  if (rc == ZKE_NONODE) return 0;
  ck_ok(rc);
  for (int i = 0; i < names->count; i++) {
    if (strncmp(names->data[i], "own-", 4) != 0) continue;
    count++;
    snprintf(path, sizeof path, PATH "/items/%s", names->data[i]);
    if (delete) ck_ok(zke_delete(z[4], path, -1));
  }
  zke_free(names);
  return count;
}

static int twins(void) { return twins_there(false); }

/* All members leave: no item has an owner, and no watch is left. */
static void end(void) {
  zke_partition_owners *list;
  free_parties();
  ck_assert_int_eq(twins(), 0);
  ck_ok(zke_partition_parties(z[4], PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_assert_int_eq(all_watches(z[4]), 0);
  ck_ok(zke_check(z[4], NULL, NULL));
  close_sessions();
}

/* What a member has. */
static int has(int i) {
  zke_strings *names;
  ck_ok(zke_partition_list(party[i], &names));
  int count = names->count;
  for (int j = 0; j < count; j++)
    ck_assert_int_gt(zke_partition_token(party[i], names->data[j]), 0);
  zke_free(names);
  return count;
}

/* Every item has one owner, no member more than its share, and the list
 * agrees. */
static void check_division(int members) {
  zke_partition_owners *list;
  int all = 0;
  for (int i = 0; i < PARTIES; i++) {
    if (zke_partition_state(party[i]) != ZKE_PARTITION_SETTLED) continue;
    int count = has(i);
    ck_assert_int_le(count, (ITEMS + members - 1) / members);
    all += count;
  }
  ck_assert_int_eq(all, ITEMS);
  ck_ok(zke_partition_parties(z[4], PATH, &list));
  ck_assert_int_eq(list->count, ITEMS);
  for (int i = 0; i < ITEMS; i++) {
    const zke_partition_owner *o = &list->data[i];
    int k = index_of(o->item);
    ck_assert_int_gt(owner[k], 0);
    ck_assert_str_eq(o->identity, identities[owner[k] - 1]);
    ck_assert_int_eq(o->token, tokens[k]);
    ck_assert_int_eq(o->pid, getpid());
    ck_assert_int_gt(o->since_ms, 0);
  }
  zke_free(list);
}

/* ---- steps as text ----
 *
 * A member is ann, bob, cid or dan. */

STEP(start, zke_partition_start(s->object))
STEP(leave, zke_partition_leave(s->object))
STEP(step, zke_partition_step(s->object))
STEP(wait, zke_partition_wait(s->object, s->deadline))
STEP(check, zke_partition_check(s->object, s->rest))
STEP(has, sees(s, "%d", has(s->who)))
STEP(lost, sees(s, "%d", heard[s->who][ZKE_PARTITION_LOST]))
STEP(asked, sees(s, "%d", heard[s->who][ZKE_PARTITION_RELEASE]))
STEP(twins, sees(s, "%d", twins()))
STEP(divided, (check_division(atoi(s->rest)), ZKE_OK))

static int step_untwin(step *s) {
  ck_step(s, twins_there(true) > 0, "there is none");
  return ZKE_OK;
}

static const char *state_of(const step *s) {
  static const char *const names[] = {
      [ZKE_PARTITION_OUT] = "OUT",
      [ZKE_PARTITION_ALLOCATING] = "ALLOCATING",
      [ZKE_PARTITION_SETTLED] = "SETTLED",
      [ZKE_PARTITION_RELEASING] = "RELEASING",
      [ZKE_PARTITION_LOST] = "LOST",
  };
  return names[zke_partition_state(s->object)];
}

STEP(is, sees(s, "%s", state_of(s)))

/* "becomes SETTLED": dispatch until it is. */
static int step_becomes(step *s) {
  ck_until((dispatch_all(), strcmp(state_of(s), s->rest) == 0), 5000);
  return ZKE_OK;
}

/* P's items, or all, count as free before their owners are told. */
static int step_forget(step *s) {
  for (int i = 0; i < ITEMS; i++)
    if (s->who < 0 || owner[i] == s->who + 1) owner[i] = 0;
  return ZKE_OK;
}

/* Wait until all items that were asked for are overdue. */
static int step_overdue(step *s) {
  int64_t due = zke_now(s->session) + release_ms;
  ck_until(zke_now(s->session) > due, 5000);
  return ZKE_OK;
}

/* "due never". */
static int step_due(step *s) {
  int64_t next;
  ck_ok(zke_partition_due(s->object, &next));
  return sees(s, "%s", next == ZKE_FOREVER ? "never" : "some day");
}

/* "release 5": release each item that another member should have.  Each can be
 * released once. */
static int step_release(step *s) {
  int count = 0;
  for (int i = 0; i < ITEMS; i++) {
    int rc = zke_partition_release(s->object, items[i]);
    if (rc == ZKE_MISUSE) continue; /* it stays */
    ck_ok(rc);
    ck_rc(zke_partition_release(s->object, items[i]), ZKE_LOST);
    owner[i] = 0;
    count++;
  }
  return sees(s, "%d", count);
}

/* "fenced 5 of 10": this many of the steps with P's operations fail, each
 * because another member now has the item. */
static int step_fenced(step *s) {
  int fenced = 0, tried = 0;
  for (int i = 0; i < ITEMS; i++) {
    zke_op op;
    if (zke_partition_op(s->object, items[i], &op) != ZKE_OK) continue;
    int rc = zke_multi(s->session, &op, 1, NULL);
    bool robbed = owner[i] && owner[i] != s->who + 1;
    ck_rc(rc, robbed ? ZKE_NONODE : ZKE_OK);
    fenced += robbed;
    tried++;
  }
  return sees(s, "%d of %d", fenced, tried);
}

static const step_verb verbs[] = {
    VERB(start),   VERB(leave),   VERB(step),    VERB(wait),   VERB(check),
    VERB(has),     VERB(lost),    VERB(asked),   VERB(twins),  VERB(untwin),
    VERB(divided), VERB(is),      VERB(becomes), VERB(forget), VERB(overdue),
    VERB(due),     VERB(release), VERB(fenced),  {NULL, NULL}};

static void release(void *object) { zke_partition_free(object); }
static int cancel(void *object) { return zke_partition_cancel(object); }

static const step_recipe of_partition = {
    .verbs = verbs, .create = create, .free = release, .cancel = cancel};

static void begin(void) {
  memset(heard, 0, sizeof heard);
  memset(owner, 0, sizeof owner);
  memset(tokens, 0, sizeof tokens);
  open_steps(&of_partition);
  closes = end;
}

static void play_members(const char *script) {
  begin();
  play(script);
}

/* Members come one after the other, and leave again.  The items are always
 * divided, with one owner each at any time (the listener checks). */
TEST(joins_and_leaves) {
  play_members(
      "ann start; all dispatch; divided 1; bob start; all dispatch; divided 2;"
      "cid start; all dispatch; divided 3; dan start; all dispatch; divided 4;"
      "ann forget; ann expires; all dispatch; divided 3;"
      "bob forget; bob leave; all dispatch; divided 2;"
      "cid forget; cid expires; all dispatch; divided 1;"
      "ann is LOST; bob is OUT; dan start -> MISUSE");
}

/* Any text is an item.  In the names of znodes, letters, digits, '-' and '_'
 * stand for themselves; other bytes are escaped. */
TEST(any_text_is_an_item) {
  static const char *const names[] = {"a",     "b%2Fc", "c%20d",
                                      "%2541", "e%2Ef", "%C3%A9"};
  begin();
  ck_ok(zke_partition_start(party[0]));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[64];
    snprintf(path, sizeof path, PATH "/items/item-%s", names[i]);
    ck_ok(zke_exists(z[4], path, NULL, NULL, NULL));
  }
  check_division(1);
}

/* The division depends only on names and items, not on the order of arrival.  A
 * member that comes again gets the same items. */
TEST(the_division_follows_from_names_and_items) {
  int first[ITEMS];
  begin();
  play("ann start; bob start; cid start; dan start; all dispatch");
  memcpy(first, owner, sizeof first);
  play(
      "ann forget; ann leave; all dispatch; bob forget; bob leave;"
      "all dispatch; cid forget; cid leave; all dispatch; dan forget;"
      "dan leave; all dispatch;"
      "dan start; cid start; bob start; ann start; all dispatch");
  ck_assert_int_eq(memcmp(first, owner, sizeof first), 0);
}

/* A change does not touch items that stay with their members. */
TEST(moves_little) {
  int64_t before[ITEMS];
  int moved = 0;
  begin();
  play("ann start; bob start; cid start; all dispatch");
  memcpy(before, tokens, sizeof before);
  play("dan start; all dispatch");
  for (int i = 0; i < ITEMS; i++) moved += tokens[i] != before[i];
  ck_assert_int_ge(moved, has(3));
  ck_assert_int_le(moved, ITEMS / 2);
}

/* An item that is not released stays with its owner; its next owner waits, and
 * can say for whom.  Once released, it changes hands immediately, and wakes no
 * other member. */
TEST(waits_for_release) {
  int gone = 0;
  lets_go = false;
  begin();
  play(
      "ann start; bob start; bob is ALLOCATING; all dispatch;"
      "ann is RELEASING; ann asked 5; ann has 10; bob has 0;"
      "bob wait_10 -> OPERATIONTIMEOUT; said of " PATH
      " is held by ann (pid ;"
      "bob due never");
  for (int i = 0; i < ITEMS; i++) {
    if (zke_partition_release(party[0], items[i]) == ZKE_MISUSE) continue;
    owner[i] = 0;
    ck_assert_int_eq(dispatch_on(z[1]), 1);
    ck_assert_int_eq(owner[i], 2);
    ck_assert_int_eq(has(1), ++gone);
    ck_rc(zke_partition_release(party[0], items[i]), ZKE_LOST);
  }
  ck_assert_int_eq(gone, ITEMS / 2);
  play("ann wait_now; bob wait_now; divided 2");
}

/* An endless time to let go is like none: nothing is due. */
TEST(an_endless_time_to_let_go_is_as_none) {
  release_ms = ZKE_FOREVER;
  lets_go = false;
  play_members(
      "ann start; bob start; bob is ALLOCATING; bob due never;"
      "bob wait_10 -> OPERATIONTIMEOUT; bob has 0");
}

/* After the time to let go its next owner takes the item; the old one is
 * told. */
TEST(taken_at_deadline) {
  int64_t next;
  release_ms = 40;
  lets_go = false;
  begin();
  play("ann start");
  int64_t start = zke_now(z[1]);
  play("bob start"); /* the other does not dispatch */
  ck_ok(zke_partition_due(party[1], &next));
  ck_assert_int_le(next, zke_now(z[1]) + 40);
  ck_assert_int_ge(next, start + 40);
  play("forget; bob wait");
  ck_assert_int_ge(zke_now(z[1]), next);
  play("bob has 5; ann dispatches; ann lost 5; ann has 5; ann is SETTLED");
}

/* An owner releases too late, and has not dispatched since: the release reports
 * that another has the item, and the listener hears it. */
TEST(a_late_release_tells_of_the_loss) {
  int late = 0;
  release_ms = 40;
  lets_go = false;
  begin();
  play("ann start; bob start; ann dispatches; ann asked 5; forget; bob wait");
  for (int i = 0; i < ITEMS; i++) {
    if (!zke_partition_token(party[1], items[i])) continue;
    ck_rc(zke_partition_release(party[0], items[i]), ZKE_LOST);
    ck_assert_int_eq(heard[0][ZKE_PARTITION_LOST], ++late);
    ck_assert_int_eq(zke_partition_token(party[0], items[i]), 0);
  }
  ck_assert_int_eq(late, ITEMS / 2);
  play("bob has 5; all dispatch; ann lost 5; ann wait");
}

/* A member has lost items and does not know it: a step with its operation fails
 * for each item that it no longer has. */
TEST(an_operation_fences_a_member_that_was_robbed) {
  release_ms = 40;
  play_members(
      "ann start; bob start; forget; bob wait; ann has 10;"
      "ann fenced 5 of 10; bob has 5; bob fenced 0 of 5; twins 10");
}

/* A member takes items at their deadline, and leaves with them, and a reply is
 * lost: it gets each item once, and leaves no znodes. */
TEST_LOOP(a_lost_reply_leaves_no_twin, ZKE_TEST_FAIL_BEFORE,
          ZKE_TEST_FAIL_AFTER + 1) {
  release_ms = 1;
  lets_go = false;
  for (int n = 0; n < ITEMS / 2; n++) {
    begin();
    play("ann start; bob start; overdue; forget");
    ck_ok(zke_test_fail(z[1], _i, n));
    play("bob step; bob fails none; bob has 5; twins 10");
    for (int i = 0; i < ITEMS; i++)
      ck_ok(zke_partition_check(party[owner[i] == 2], items[i]));
    play("ann dispatches; ann has 5");
    ck_ok(zke_test_fail(z[1], _i, 0));
    play("bob leave; twins 5");
    end();
  }
}

/* A start whose n-th read is lost, with no time to repeat it, fails and gives
 * back what it has taken.  The listener hears of no item, since another may
 * have it by then. */
TEST(a_start_that_fails_tells_of_no_item) {
  int failed = 0;
  begin();
  for (int n = 0; n < 4 * ITEMS; n++) {
    memset(heard, 0, sizeof heard);
    memset(owner, 0, sizeof owner);
    ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_READ, n));
    int64_t limit = zke_limit(z[0], zke_now(z[0]));
    bool fails = zke_partition_start(party[0]) != ZKE_OK;
    zke_limit(z[0], limit);
    ck_ok(zke_test_fail(z[0], 0, 0));
    ck_assert_int_eq(heard[0][ZKE_PARTITION_ACQUIRED], fails ? 0 : ITEMS);
    if (!fails) ck_ok(zke_partition_leave(party[0]));
    failed += fails;
  }
  ck_assert_int_ge(failed, ITEMS);
}

/* A release loses its reply: the item still goes to its next owner, once. */
TEST_LOOP(a_lost_reply_of_a_release_frees_the_item, ZKE_TEST_FAIL_BEFORE,
          ZKE_TEST_FAIL_AFTER + 1) {
  int released = 0;
  lets_go = false;
  begin();
  play("ann start; bob start; ann dispatches");
  for (int i = 0; i < ITEMS; i++) {
    ck_ok(zke_test_fail(z[0], _i, 0));
    int rc = zke_partition_release(party[0], items[i]);
    ck_ok(zke_test_fail(z[0], 0, 0));
    if (rc == ZKE_MISUSE) continue; /* it stays */
    ck_ok(rc);
    released++;
    owner[i] = 0;
    ck_assert_int_eq(twins(), ITEMS - 1);
    dispatch_on(z[1]);
    ck_assert_int_eq(has(1), released);
  }
  ck_assert_int_eq(released, ITEMS / 2);
  play("divided 2");
}

/* Ann begins to take items that bob kept too long, or left, and her n-th read
 * is lost: she may have made an item's znode without knowing it.  Then she is
 * alone. */
static void take_and_not_see(bool overdue, int n) {
  lets_go = !overdue;
  play(overdue ? "bob start; ann start; all dispatch; overdue; bob forget"
               : "ann start; bob start; all dispatch; bob leave; bob forget");
  ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_READ, n));
  zke_partition_step(party[0]);
  play("ann fails none");
  if (overdue) play("bob leave");
  lets_go = true;
}

/* A member has made an item's znode, or taken it when it was overdue (1), and
 * could not read it.  Before it looks again another member comes, which waits
 * for items without a limit, and by the plan the item belongs to it: the item
 * goes there. */
TEST_LOOP(an_item_that_was_got_unseen_is_given_up, 0, 2) {
  for (int n = 0; n < 12; n++) {
    release_ms = _i;
    begin();
    take_and_not_see(_i, n);
    release_ms = 0;
    play(
        "cid renewed; cid start; cid becomes SETTLED; ann becomes SETTLED;"
        "twins 10; divided 2");
    end();
  }
}

/* A member has made an item's znode, and could not read it.  The znodes of all
 * items are deleted, and the member leaves: no twin is left. */
TEST(an_item_that_was_got_unseen_and_deleted_leaves_no_twin) {
  for (int n = 0; n < 12; n++) {
    zke_strings *names;
    char path[128];
    begin();
    take_and_not_see(false, n);
    ck_ok(zke_children(z[4], PATH "/items", NULL, NULL, &names, NULL));
    for (int i = 0; i < names->count; i++) {
      snprintf(path, sizeof path, PATH "/items/%s", names->data[i]);
      if (strncmp(names->data[i], "item-", 5) == 0)
        ck_ok(zke_delete(z[4], path, -1));
    }
    zke_free(names);
    play("ann leave");
    end();
  }
}

static zke *loser; /* its reads after the next pause are lost */

static void lose_a_read(void *context, int64_t ns) {
  (void)context, (void)ns;
  if (loser) ck_ok(zke_test_fail(loser, ZKE_TEST_FAIL_READ, 0));
  loser = NULL;
}

/* The n-th change of a member that takes items loses its reply, and so does the
 * next read.  Then the member leaves, and another read is lost: no twin is
 * left. */
TEST_LOOP(an_item_that_was_got_unseen_leaves_no_twin, 0, 6) {
  zke_os os = {.size = sizeof os, .sleep = lose_a_read};
  for (int m = 0; m < 12; m++) {
    memset(owner, 0, sizeof owner);
    memset(tokens, 0, sizeof tokens);
    open_steps_by(&of_partition, ":memory:", &os);
    play("ann start; bob start; all dispatch; bob leave; forget");
    loser = z[0];
    ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_AFTER, _i));
    zke_partition_step(party[0]);
    loser = NULL;
    ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_READ, m));
    zke_partition_leave(party[0]);
    play("ann fails none; twins 0; forget");
    end();
  }
}

/* An owner's second znodes are deleted: its items can still be taken and
 * released, and it can leave. */
TEST(items_without_a_twin_change_hands) {
  release_ms = 40;
  lets_go = false;
  begin();
  play(
      "ann start; untwin; bob start; forget; bob wait; bob has 5;"
      "all dispatch; ann lost 5; untwin");
  for (int i = 0; i < ITEMS; i++)
    owner[i] = zke_partition_token(party[0], items[i]) ? 1 : 2;
  lets_go = true;
  play(
      "cid start; all dispatch; divided 3; untwin; ann forget; bob forget;"
      "ann leave; bob leave; all dispatch; cid has 10");
}

/* Each owner has the full time to let go, even if it has just taken the item
 * and the next member has already waited long. */
TEST(each_owner_has_its_time) {
  zke_stat before, after;
  int64_t due;
  char path[64];
  int i = 0;
  release_ms = 300;
  lets_go = false;
  begin();
  play("ann start; bob start; ann dispatches; overdue");
  /* One of the items that were asked for. */
  while (items[i][1] || zke_partition_release(party[0], items[i]) != ZKE_OK)
    i++;
  snprintf(path, sizeof path, PATH "/items/item-%s", items[i]);
  ck_ok(zke_create(z[4], path, "another", 7, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                   NULL));
  before = test_stat(z[4], path);
  int64_t now = zke_now(z[1]);
  play("forget; bob dispatches");
  after = test_stat(z[4], path);
  ck_assert_int_eq(after.czxid, before.czxid);
  ck_assert_int_eq(has(1), ITEMS / 2 - 1);
  ck_ok(zke_partition_due(party[1], &due));
  ck_assert_int_ge(due, now + 300);
  play("bob wait; bob has 5");
}

/* The directory of the items is removed while a member waits for one: it makes
 * the directory again, and takes the item. */
TEST(the_directory_of_the_items_goes) {
  zke_partition *one, *two;
  zke_strings *names;
  begin();
  ck_ok(zke_partition_new(z[0], PATH, items, 2, NULL, &one));
  ck_ok(zke_partition_new(z[1], PATH, items, 2, NULL, &two));
  ck_ok(zke_partition_start(one));
  ck_ok(zke_partition_start(two));
  ck_assert_int_eq(zke_partition_state(two), ZKE_PARTITION_ALLOCATING);
  ck_ok(zke_delete(z[4], PATH "/items/item-a", -1));
  ck_ok(zke_delete(z[4], PATH "/items/item-b%2Fc", -1));
  twins_there(true);
  ck_ok(zke_delete(z[4], PATH "/items", -1));
  dispatch_on(z[1]);
  ck_assert_int_eq(zke_partition_state(two), ZKE_PARTITION_SETTLED);
  ck_ok(zke_partition_list(two, &names));
  ck_assert_int_eq(names->count, 1);
  zke_free(names);
  zke_partition_free(one);
  zke_partition_free(two);
}

/* A check that finds an item in other hands also tells the listener, if the
 * step for that event has failed.  When the item is free the member takes it
 * again. */
TEST(a_check_that_fails_tells_the_listener) {
  begin();
  play("ann start; delete " PATH
       "/items/item-a;"
       "ephemeral " PATH "/items/item-a another; ann fails read");
  ck_ok(zke_dispatch(z[0], NULL));
  play("ann fails none; ann check a -> LOST; ann lost 1; ann has 9");
  ck_assert_int_eq(zke_partition_token(party[0], "a"), 0);
  play(
      "ann check a -> LOST; ann becomes ALLOCATING;"
      "delete " PATH
      "/items/item-a; ann becomes SETTLED; ann has 10;"
      "ann check a");
}

/* The end of its session or the deletion of its znode takes all items from a
 * member. */
TEST(a_lost_session_or_znode_loses_all_items) {
  zke_op ops[2];
  begin();
  play("ann start; ann check a; ann check none -> LOST; bob check a -> LOST");
  ck_ok(zke_partition_op(party[0], "a", &ops[0]));
  zke_op_create(&ops[1], "/guarded", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  play("empty " PATH "/members");
  ck_ok(zke_multi(z[0], ops, 1, NULL)); /* no other member can have the item
                                           yet */
  dispatch_on(z[0]);
  ck_rc(zke_multi(z[0], ops, 2, NULL), ZKE_NONODE);
  ck_assert_int_eq(zke_partition_token(party[0], "a"), 0);
  ck_rc(zke_partition_op(party[0], "a", &ops[0]), ZKE_LOST);
  play(
      "ann lost 10; ann is LOST; ann check a -> LOST; ann wait_now -> LOST;"
      "ann expires; bob start; bob expires; bob is LOST; bob lost 10");
  ck_rc(zke_partition_release(party[1], "a"), ZKE_INVALIDSTATE);
}

/* A member's znode is deleted while its session lives: its items are free for
 * another member, and for this one when it starts again. */
TEST(a_lost_member_keeps_no_item) {
  play_members(
      "ann start; ann has 10; empty " PATH
      "/members; all dispatch;"
      "ann is LOST; ann lost 10;"
      "ann start; ann has 10; empty " PATH
      "/members; all dispatch;"
      "ann is LOST; ann lost 20; bob start; bob has 10; bob leave; forget");
}

/* Another thread cancels a member that waits for items; a member that has not
 * joined cannot wait.  A thread waits until the member is settled, and another
 * thread releases the last item: the wait ends, although nothing else
 * happens. */
TEST(a_wait_ends_by_a_cancel_or_by_a_release) {
  lets_go = false;
  play_members(
      "bob wait_now -> LOST; ann start; bob start;"
      "bob begins wait; bob cancels; bob returns -> CANCELLED;"
      "ann dispatches; ann waits wait; ann release 5; ann returns");
}

/* P11: duplicate, empty or missing items, and other bad arguments, are refused;
 * so is a member with other items than the existing ones. */
TEST(bad_arguments) {
  const char *const twice[] = {"a", "b", "a"}, *const empty[] = {"a", ""};
  zke_partition_options o = {.size = 1};
  zke_partition *other;
  begin();
  ck_rc(zke_partition_new(z[4], PATH, twice, 3, NULL, &other),
        ZKE_BADARGUMENTS);
  ck_says("a is there twice");
  ck_rc(zke_partition_new(z[4], PATH, empty, 2, NULL, &other),
        ZKE_BADARGUMENTS);
  ck_rc(zke_partition_new(z[4], PATH, items, 0, NULL, &other),
        ZKE_BADARGUMENTS);
  ck_rc(zke_partition_new(z[4], PATH, NULL, 1, NULL, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_partition_new(z[4], PATH, items, 1, &o, &other), ZKE_BADARGUMENTS);
  o = (zke_partition_options){.size = sizeof o, .release_ms = -1};
  ck_rc(zke_partition_new(z[4], PATH, items, 1, &o, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_partition_new(z[4], PATH, items, 1, NULL, NULL), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  ck_rc(zke_partition_list(party[0], NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_partition_op(party[0], "a", NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_partition_parties(z[4], PATH, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_partition_leave(party[0]), ZKE_LOST);
  zke_partition_free(NULL);
  /* Other items than the existing ones. */
  ck_ok(zke_partition_start(party[0]));
  ck_ok(zke_partition_new(z[4], PATH, items, 3, NULL, &other));
  ck_rc(zke_partition_start(other), ZKE_OTHERKIND);
  ck_says("the member ann of " PATH " divides other items");
  zke_partition_free(other);
  /* Foreign children, and another kind. */
  play("ephemeral " PATH "/members/x; ephemeral " PATH
       "/items/x;"
       "ephemeral " PATH
       "/items/item-%4; all dispatch; divided 1;"
       "create /lock zkembed lock");
  ck_ok(zke_partition_new(z[4], "/lock", items, 3, NULL, &other));
  ck_rc(zke_partition_start(other), ZKE_OTHERKIND);
  zke_partition_free(other);
  ck_ok(zke_partition_step(party[0]));
}

/* ---- proof ---- */

/* The typical use: join, get the items, leave. */
static int use(zke *user) {
  zke_partition *mine = NULL;
  int rc = zke_partition_new(user, PATH, items, 2, NULL, &mine);
  if (rc == ZKE_OK) rc = zke_partition_start(mine);
  if (rc == ZKE_OK) rc = zke_partition_wait(mine, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_partition_leave(mine);
  zke_partition_free(mine);
  return rc;
}

/* Another member gets both items once the user's death is noticed. */
static void check(zke *other, int rc) {
  zke_partition *mine;
  zke_strings *names;
  (void)rc;
  ck_ok(zke_partition_new(other, PATH, items, 2, NULL, &mine));
  ck_ok(zke_partition_start(mine));
  int64_t deadline = zke_now(other) + 5000;
  for (int count = 0; count < 2;) { /* until the other's death is noticed */
    ck_assert_int_lt(zke_now(other), deadline);
    ck_ok(zke_partition_wait(mine, deadline));
    ck_ok(zke_partition_list(mine, &names));
    count = names->count;
    zke_free(names);
    if (count < 2) zke_wait(other, deadline);
  }
  zke_partition_free(mine);
}

static const recipe_use uses[] = {{"partition", NULL, use, check}};

RECIPE_TESTS(uses, 5, 60);

/* Two members on one handle: one that leaves does not touch the other's items,
 * even those that it tried to get when a reply was lost. */
TEST(two_members_on_one_handle) {
  zke_partition_options o = {.size = sizeof o, .name = "second"};
  zke_partition *second;
  lets_go = false;
  begin();
  play("ann start; all dispatch");
  for (int skip = 0; skip < 40; skip++) {
    ck_ok(zke_partition_new(z[0], PATH, items, ITEMS, &o, &second));
    ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_READ, skip));
    zke_partition_start(second);
    zke_partition_free(second);
    ck_ok(zke_test_fail(z[0], 0, 0));
    for (int i = 0; i < ITEMS; i++)
      ck_ok(zke_partition_check(party[0], items[i]));
  }
}
