/* test_group.c - recipes/group: who is there
 *
 * A member is in the group while its process lives, and all see the same
 * members. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"
#include "steps.h"

#define PATH "/groups/g"
#define GUID "_c_00000000-0000-0000-0000-000000000000-"

/* ---- steps as text ---- */

static bool frees; /* the listener frees its object */
static bool deaf;  /* no listener */

/* The listener tells "ann: +bob:data", "~…", "-…", READY and LOST. */
static void hear(zke_group *g, int event, const zke_party *who, void *context) {
  static const char *const names[] = {"", "+", "~", "-", "READY", "LOST"};
  tell("%s %s%s%s%s", (const char *)context, names[event],
       who ? who->identity : "", who ? ":" : "", who ? who->data : "");
  if (who && *who->identity) ck_assert_int_eq(who->pid, getpid());
  if (frees) zke_group_free(g);
}

static zke_group *make(zke *session, zke_group_fn fn, void *context) {
  zke_group_options o = {.size = sizeof o, .listener = fn, .context = context};
  zke_group *g = NULL;
  ck_ok(zke_group_new(session, PATH, &o, &g));
  return g;
}

static int create(zke *session, const char *who, void **object) {
  *object = make(session, deaf ? NULL : hear, (void *)(uintptr_t)who);
  return ZKE_OK;
}

STEP(join,
     zke_group_join(s->object, s->rest, (int)strlen(s->rest), s->deadline))
STEP(update,
     zke_group_update(s->object, s->rest, (int)strlen(s->rest), s->deadline))
STEP(leave, zke_group_leave(s->object))
STEP(start, zke_group_start(s->object))
STEP(wait, zke_group_wait(s->object, atoi(s->rest), s->deadline))

static int step_is(step *s) {
  static const char *const names[] = {[ZKE_GROUP_OUT] = "OUT",
                                      [ZKE_GROUP_JOINED] = "JOINED",
                                      [ZKE_GROUP_LOST] = "LOST"};
  return sees(s, "%s", names[zke_group_state(s->object)]);
}

/* The path of P's znode. */
static int own_path(step *s, char path[200]) {
  char *name = NULL;
  int rc = zke_group_self(s->object, &name);
  snprintf(path, 200, PATH "/%s", name ? name : "");
  zke_free(name);
  return rc;
}

/* Delete it. */
static int step_loses(step *s) {
  char path[200];
  int rc = own_path(s, path);
  return rc == ZKE_OK ? zke_delete(z[4], path, -1) : rc;
}

/* "list" answers "ann:data bob:"; each must agree with its znode. */
static int step_list(step *s) {
  zke_party_list *list = NULL;
  int rc = zke_group_list(s->object, &list);
  for (int i = 0; rc == ZKE_OK && i < list->count; i++) {
    const zke_party *p = &list->data[i];
    char path[200];
    snprintf(path, sizeof path, PATH "/%s", p->name);
    zke_stat stat = test_stat(z[4], path);
    ck_assert_int_eq(p->len, (int)strlen(p->data));
    ck_assert_int_eq(p->session, stat.ephemeralOwner);
    ck_assert_int_eq(p->since_ms, stat.ctime);
    ck_assert_int_eq(p->czxid, stat.czxid);
    ck_assert_int_eq(p->held, 1);
    if (*p->identity) ck_assert_int_eq(p->pid, getpid());
    gives(s, "%s%s:%s", i ? " " : "", p->identity, p->data);
  }
  if (rc == ZKE_OK && list->count == 0) gives(s, "none");
  zke_free(list);
  return rc;
}

static const step_verb verbs[] = {VERB(join),  VERB(update), VERB(leave),
                                  VERB(start), VERB(wait),   VERB(is),
                                  VERB(loses), VERB(list),   {NULL, NULL}};

static void release(void *object) { zke_group_free(object); }
static int cancel(void *object) { return zke_group_cancel(object); }

static const step_recipe of_group = {
    .verbs = verbs, .create = create, .free = release, .cancel = cancel};

/* ---- coming and going ---- */

/* The list has each member's identity, process, data and time, in order of
 * joining: read from the file, then from memory. */
TEST(members_with_identity_and_time) {
  play_steps(&of_group,
             "cid list -> none; bob join host:1; ann join ;"
             "cid list -> bob:host:1 ann:; cid start;"
             "cid list -> bob:host:1 ann:");
}

/* The listener hears which members join, change and leave, with their data; a
 * member that left is named even after its session's end. */
TEST(listener_hears_members) {
  play_steps(&of_group,
             "ann join 1; cid start; told cid +ann:1, cid READY; cid start;"
             "bob join 2; news cid +bob:2;"
             "ann update one\nand a half; news cid ~ann:one\nand a half;"
             "ann leave; news cid -ann:one\nand a half;"
             "bob free; bob expires; news cid -bob:2;"
             "ann join ; news cid +ann:; ann free; cid free; watches 0");
}

/* An object that has only joined is not woken by others, but hears of its own
   end.
 */
TEST(joined_without_start) {
  play_steps(&of_group,
             "ann join 1; bob join 2; ann dispatches -> 0;"
             "ann update 3; news ;" /* its watch stays */
             "ann loses; news ann LOST; ann is LOST");
}

/* Events from before the start do not hide later ones. */
TEST(joined_before_the_start) {
  play_steps(&of_group,
             "ann join 1; bob join 2; ann update 3; news ; ann start;"
             "told ann +ann:3, ann +bob:2, ann READY; bob update 4;"
             "news ann ~bob:4");
}

/* One object is one member: a second join is refused, and so is a second leave;
 * then it may join again. */
TEST(join_twice_leave_twice) {
  play_steps(&of_group,
             "ann leave -> LOST; said " PATH
             "; ann update -> LOST;"
             "ann loses -> LOST;" /* it has no znode */
             "ann join ; ann is JOINED; ann join_now -> MISUSE;"
             "entries " PATH " -> 1; ann leave; entries " PATH
             " -> 0;"
             "watches 0; ann leave -> LOST; ann join again; ann free;"
             "entries " PATH " -> 0");
}

/* A deleted member hears LOST, its calls know it, and it can join again. */
TEST(a_member_that_was_taken_away_can_join_again) {
  play_steps(&of_group,
             "ann start; ann join 1; news ann READY, ann +ann:1; ann loses;"
             "ann update 2 -> LOST;" /* finds out */
             "news ann LOST, ann -ann:1; ann join 3; news ann +ann:3;"
             "ann loses; news ann LOST, ann -ann:3");
}

/* The session's end removes its member: others hear of it, the member itself
 * hears LOST once, and its calls no longer work. */
TEST(a_member_goes_with_its_session) {
  play_steps(&of_group,
             "eve start; ann join 1; news eve READY, eve +ann:1; ann expires;"
             "eve dispatches; told eve -ann:1; ann dispatches; told ann LOST;"
             "ann is LOST; ann join_now -> INVALIDSTATE;"
             "ann leave -> INVALIDSTATE; ann list -> INVALIDSTATE;"
             "ann wait_now 0 -> INVALIDSTATE; news ");
}

/* The listener frees the group at the first of two events: the second does not
 * come, and the member is gone. */
TEST(listener_frees) {
  open_steps(&of_group);
  play("ann join x; bob join x");
  frees = true;
  play("bob start");
  ck_assert_int_eq(strncmp(told, "bob +", 5), 0); /* one of the two */
  ck_assert_ptr_null(strchr(told, ','));
  party[1] = NULL;
  play("entries " PATH " -> 1");
}

/* P4: members that came or went while events were dropped are told at the
 * end. */
TEST(an_overflow_hides_nobody) {
  play_steps(&of_group,
             "dan renewed 4; dan start; bob join me;"
             "news dan READY, dan +bob:me;"
             "ann join x; ann leave; ann join x; ann leave; ann join x;"
             "ann leave; ann join x; ann leave; ann join x; ann leave;"
             "ann join x; bob loses; dan dispatches;"
             "told dan +ann:x, dan -bob:me;"
             "bob dispatches; told bob LOST; bob is LOST");
}

/* ---- foreign nodes ---- */

/* Other children are not members; numbers are compared as numbers. */
TEST(foreign_children) {
  static const char *const names[] = {"x",
                                      "member-0000000001",
                                      GUID "member-",
                                      GUID "member-00000001",
                                      GUID "member-00000000x1",
                                      GUID "lock-0000000001",
                                      GUID "member-99999999999",
                                      GUID "member-0000000001x"};
  zke_party_list *list;
  open_steps(&of_group);
  play("ann start; ann join me; news ann READY, ann +ann:me");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[200];
    snprintf(path, sizeof path, PATH "/%s", names[i]);
    ck_ok(
        zke_create(z[4], path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  }
  play("create " PATH "/" GUID
       "member-0000000007; news ;" /* no ephemeral */
       /* members as others might write them, about the wrap-around */
       "ephemeral " PATH "/" GUID
       "member-2147483647 7 \nx;"
       "ephemeral " PATH "/" GUID "member-2147483646 no head\n");
  ck_ok(zke_create(z[4], PATH "/" GUID "member--2147483648", NULL, -1,
                   ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  play("ann list -> ann:me; ann dispatches"); /* not dispatched, and then */
  ck_ok(zke_group_list(party[0], &list));
  ck_assert_int_eq(list->count, 4);
  const zke_party *p = list->data;
  int at = p[0].data[0] == 'm' ? 1 : 0; /* 0 is at either end */
  ck_assert_str_eq(p[at].data, "no head\n");
  ck_assert_str_eq(p[at].identity, "");
  ck_assert_str_eq(p[at + 1].data, "x");
  ck_assert_int_eq(p[at + 1].pid, 7);
  ck_assert_str_eq(p[at + 2].data, "");
  zke_free(list);
}

/* A path that is another recipe's is refused. */
TEST(other_kind) {
  play_steps(&of_group,
             "create /groups; create " PATH
             " zkembed lock\n; ann join_now -> OTHERKIND;"
             "said lock; ann start -> OTHERKIND; ann wait_now 0 -> OTHERKIND;"
             "entries " PATH " -> 0");
}

/* P11: invalid arguments, and calls without a group, are refused; the output is
 * then NULL. */
TEST(bad_arguments) {
  zke *own = test_open(":memory:");
  zke_group_options o = {.size = 3};
  zke_group *g = (zke_group *)&o;
  ck_rc(zke_group_new(own, PATH, &o, &g), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(g);
  ck_rc(zke_group_new(own, "x", NULL, &g), ZKE_BADARGUMENTS);
  ck_rc(zke_group_new(own, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_group_new(NULL, PATH, NULL, &g), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_group_state(NULL), ZKE_GROUP_LOST);
  g = make(own, NULL, NULL);
  ck_rc(zke_group_join(g, NULL, 1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_group_join(g, "x", -1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_group_update(g, "x", -1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_group_list(g, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_group_self(g, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_group_wait(g, -1, 0), ZKE_BADARGUMENTS);
  zke_group_free(NULL);
  zke_group_free(g);
  ck_ok(zke_close(own));
}

/* ---- waiting ---- */

/* wait() ends when there are enough members, also without a listener; a
 * deadline, a cancel and the session's end also end it, each with its code. */
TEST(waits_for_members) {
  deaf = true;
  play_steps(&of_group,
             "cid wait_now 0; cid waits wait 2; ann join ;"
             "ann wait_20 2 -> OPERATIONTIMEOUT;"
             "said waited for 2 members of the group " PATH
             "; said 1 are there: ann (pid ;"
             "cid still; bob join ; cid returns; cid wait_now 2; ann leave;"
             "cid wait_now 2 -> OPERATIONTIMEOUT;" /* a last look */
             "cid waits wait 2; cid wait_now 0 -> MISUSE; cid cancels;"
             "cid returns -> CANCELLED;"
             "cid waits wait 9; cid expires; cid returns -> INVALIDSTATE");
}

/* ---- deaths, lost replies, faults ---- */

/* A listener that counts the members that left. */
static void count_left(zke_group *g, int event, const zke_party *who,
                       void *context) {
  (void)g, (void)who;
  *(int *)context += event == ZKE_GROUP_LEFT;
}

/* The typical use: join, look, change the data, wait, list, leave. */
static int use(zke *own) {
  int left = 0;
  zke_group_options o = {
      .size = sizeof o, .listener = count_left, .context = &left};
  zke_group *g = NULL;
  zke_party_list *list = NULL;
  int rc = zke_group_new(own, PATH, &o, &g);
  if (rc == ZKE_OK) rc = zke_group_join(g, "1", 1, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_group_start(g);
  if (rc == ZKE_OK) rc = zke_group_update(g, "2", 1, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_group_wait(g, 1, zke_now(own) + 1000);
  if (rc == ZKE_OK) rc = zke_group_list(g, &list);
  if (rc == ZKE_OK && list->count != 1) rc = ZKE_SYSTEMERROR;
  zke_free(list);
  if (rc == ZKE_OK) rc = zke_group_leave(g);
  zke_group_free(g);
  return rc;
}

/* No member is left, and another can join. */
static void check(zke *own, int rc) {
  zke_group *g = make(own, NULL, NULL);
  (void)rc;
  until_empty(own, PATH);
  ck_ok(zke_group_join(g, "", 0, ZKE_FOREVER));
  ck_ok(zke_group_wait(g, 1, soon(own)));
  ck_assert_int_eq(entries(own, PATH), 1);
  zke_group_free(g);
}

static const recipe_use uses[] = {{"group", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);

/* zkembed's allocations for a member that joins and leaves, in a group of this
 * many. */
static long cost(const char *file, int members) {
  zke *own = test_open(test_path(file)), *y;
  test_heap heap = {0};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  int left = 0;
  zke_group_options options = {
      .size = sizeof options, .listener = count_left, .context = &left};
  zke_group *g, *one;
  zke_party_list *list;
  long before = 0;
  ck_ok(zke_group_new(own, PATH, NULL, &one));
  ck_ok(zke_group_join(one, "x", 1, ZKE_FOREVER));
  for (int i = 1; i < members; i++)
    ck_ok(zke_create(own, PATH "/" GUID "member-", "7 it\nx", 6, ZKE_OPEN_ACL,
                     ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL));
  ck_ok(zke_open(test_path(file), &o, &y));
  ck_ok(zke_group_new(y, PATH, &options, &g));
  ck_ok(zke_group_wait(g, members, ZKE_FOREVER));
  for (int i = 0; i < 3; i++) { /* the last time counts: arrays have grown */
    before = heap.calls;
    ck_ok(zke_group_leave(one));
    left = 0;
    while (!left) ck_ok(zke_wait(y, zke_now(y) + 10000));
    ck_ok(zke_group_join(one, "x", 1, ZKE_FOREVER));
    ck_ok(zke_group_wait(g, members, zke_now(y) + 10000));
  }
  before = heap.calls - before;
  ck_ok(zke_group_list(g, &list));
  ck_assert_int_eq(list->count, members);
  zke_free(list);
  zke_group_free(g);
  zke_group_free(one);
  ck_ok(zke_close(y));
  ck_ok(zke_close(own));
  return before;
}

/* The cost is the same in a large group as in a small one, except for a
 * wake-up. */
TEST(a_coming_costs_the_same_in_any_group) {
  long few = cost("few", 5), many = cost("many", 1000);
  ck_assert_int_lt(many, few + 50);
}
