/* test_double_barrier.c - recipes/double_barrier: N begin and end together
 *
 * All parties enter together and leave together, or learn that one died.  Most
 * tests drive several sessions of one store step by step: a session does not
 * know what it has not dispatched. */
#include "recipes/double_barrier.h"
#include "recipes/part/text.h"
#include "recipes/part/znode.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes.h"
#include "steps.h"

#define PATH "/barriers/b"

enum {
  OUT = ZKE_DOUBLE_BARRIER_OUT,
  WAITING = ZKE_DOUBLE_BARRIER_WAITING,
  INSIDE = ZKE_DOUBLE_BARRIER_INSIDE,
  LEAVING = ZKE_DOUBLE_BARRIER_LEAVING,
  LOST = ZKE_DOUBLE_BARRIER_LOST
};

/* ---- steps, as in steps.h ----
 *
 *     P start [DATA], P stop, P leaves      the calls that do not wait
 *     P enter [DATA], P leave, P check, P step
 *     P meet [DATA] -> ann:x bob:y          enter and leave; what all brought
 *     P members -> ann:x bob:y              of its last round
 *     P is WAITING                          its state
 *     P round 2        its round is the second of the test
 *     P missing 2 ann bob!    whom it waits for; "!" marks a dead one
 *     parties inside ann, waiting bob
 *     ready            a round runs, with the number of all that are inside
 *     first_goes       delete the znode of the first party
 */
static int parties; /* of the barrier */

static int state(int i) { return zke_double_barrier_state(party[i]); }

static const char *const state_names[] = {[OUT] = "OUT",
                                          [WAITING] = "WAITING",
                                          [INSIDE] = "INSIDE",
                                          [LEAVING] = "LEAVING",
                                          [LOST] = "LOST"};

static void hear(zke_double_barrier *who, int event, int64_t round,
                 void *context) {
  static const char *const events[] = {
      [ZKE_DOUBLE_BARRIER_ENTERED] = "ENTERED",
      [ZKE_DOUBLE_BARRIER_ALL_LEFT] = "ALL_LEFT",
      [ZKE_DOUBLE_BARRIER_BROKEN] = "BROKEN",
      [LOST] = "LOST"};
  (void)who, (void)round;
  tell("%s %s", (const char *)context, events[event]);
}

static int new_party(zke *session, const char *who, void **object) {
  zke_double_barrier_options o = {.size = sizeof o,
                                  .listener = who ? hear : NULL,
                                  .context = (void *)(uintptr_t)who};
  zke_double_barrier *made = NULL;
  int rc = zke_double_barrier_new(session, PATH, parties, &o, &made);
  *object = made;
  return rc;
}

#define DATA s->rest, (int)strlen(s->rest)
STEP(start, zke_double_barrier_start(s->object, DATA))
STEP(stop, zke_double_barrier_stop(s->object))
STEP(leaves, zke_double_barrier_leave_start(s->object))
STEP(leave, zke_double_barrier_leave(s->object, s->deadline))
STEP(check, zke_double_barrier_check(s->object))
STEP(step, zke_double_barrier_step(s->object))
STEP(is, sees(s, "%s", state_names[state(s->who)]))
STEP(ready, zke_exists(s->session, PATH "/ready", NULL, NULL, NULL))

static int step_enter(step *s) {
  int64_t round = 0;
  int rc = zke_double_barrier_enter(s->object, DATA, s->deadline, &round);
  if (rc == ZKE_OK)
    ck_assert_int_eq(round, zke_double_barrier_token(s->object));
  return rc;
}

/* The data of each party, as "ann:x bob:y"; frees the list. */
static void answer_brought(step *s, zke_party_list *list) {
  for (int i = 0; i < list->count; i++) {
    const zke_party *p = &list->data[i];
    ck_assert_int_eq(p->pid, getpid());
    gives(s, "%s%s:%.*s", i ? " " : "", p->identity, p->len, p->data);
  }
  zke_free(list);
}

static int step_meet(step *s) {
  int64_t round = 0;
  zke_party_list *list = NULL;
  int rc = zke_double_barrier_meet(s->object, DATA, s->deadline, &list, &round);
  if (rc != ZKE_OK) return rc;
  ck_assert_int_eq(round, zke_double_barrier_token(s->object));
  answer_brought(s, list);
  return rc;
}

static int step_members(step *s) {
  zke_party_list *list = NULL;
  int rc = zke_double_barrier_list(s->object, &list);
  if (rc == ZKE_OK) answer_brought(s, list);
  return rc;
}

/* Like sees(), with the text that the step has given so far. */
static int sees_given(step *s) {
  char given[sizeof s->answer];
  strcpy(given, s->answer);
  return sees(s, "%s", given);
}

static int step_missing(step *s) {
  int count = -1;
  zke_party_list *list = NULL;
  ck_ok(zke_double_barrier_missing(s->object, &list, &count));
  gives(s, "%d", count);
  for (int i = 0; i < list->count; i++)
    gives(s, " %s%s", list->data[i].identity,
          strcmp(list->data[i].kind, "dead") == 0 ? "!" : "");
  zke_free(list);
  return sees_given(s);
}

static int step_parties(step *s) {
  zke_party_list *list = NULL;
  ck_ok(zke_double_barrier_parties(s->session, PATH, &list));
  for (int i = 0; i < list->count; i++) {
    const zke_party *p = &list->data[i];
    ck_assert_int_eq(p->held, strcmp(p->kind, "inside") == 0);
    gives(s, "%s%s %s", i ? ", " : "", p->kind, p->identity);
  }
  zke_free(list);
  return sees_given(s);
}

static int rounds; /* that were seen so far */
static int64_t last_round;

/* A new round is later than all earlier ones. */
static int step_round(step *s) {
  int64_t round = zke_double_barrier_token(s->object);
  zke_stat stat;
  if (round > last_round) rounds++;
  if (round > last_round) last_round = round;
  ck_assert_int_eq(round, last_round);
  if (state(s->who) == INSIDE) {
    ck_ok(zke_exists(s->session, PATH "/ready", NULL, NULL, &stat));
    ck_assert_int_eq(stat.czxid, round);
  }
  return sees(s, "%d", rounds);
}

static int step_first_goes(step *s) {
  zke_party_list *list;
  ck_ok(zke_double_barrier_parties(s->session, PATH, &list));
  char *path = zke_recipe_path(s->session, PATH, list->data[0].name);
  int rc = zke_delete(s->session, path, -1);
  zke_free(path);
  zke_free(list);
  return rc;
}

static const step_verb verbs[] = {
    VERB(start),   VERB(stop),  VERB(leaves),     VERB(enter),
    VERB(leave),   VERB(check), VERB(step),       VERB(meet),
    VERB(members), VERB(is),    VERB(round),      VERB(missing),
    VERB(parties), VERB(ready), VERB(first_goes), {NULL, NULL}};

static void free_party(void *b) { zke_double_barrier_free(b); }
static int cancel_call(void *b) { return zke_double_barrier_cancel(b); }

static const step_recipe of_double_barrier = {.verbs = verbs,
                                              .create = new_party,
                                              .free = free_party,
                                              .cancel = cancel_call};

/* Close; no party's znode, no `ready` and no watch may be left. */
static void end(void) {
  free_parties();
  ck_ok(zke_check(z[SESSIONS - 1], NULL, NULL));
  close_clean(PATH);
}

/* A barrier of n. */
static void begin(int n) {
  parties = n;
  open_steps(&of_double_barrier);
  closes = end;
}

/* The whole of a test. */
static void play_barrier(int n, const char *script) {
  begin(n);
  play(script);
}

#define BOTH_ENTER "ann,bob start; all dispatch; ann,bob is INSIDE;"
#define THREE_ENTER "ann,bob,cid start; all dispatch; ann,bob,cid is INSIDE;"
#define THREE_HEARD(event) "told cid " event ", ann " event ", bob " event ";"

/* ---- in and out ---- */

/* No party is inside before the last has come; then all are, in one round.
 * None is out before the last has left; then all are.  This repeats in any
 * order; the rounds' numbers increase. */
TEST(all_enter_and_leave_together) {
  play_barrier(3,
               "ann start; ann missing 2; bob start; all dispatch;"
               "ann,bob is WAITING; bob missing 1; ready -> NONODE;"
               "cid start; cid is INSIDE; all dispatch; ann,bob is INSIDE;"
               "ann,bob,cid round 1;"
               THREE_HEARD("ENTERED")
               "bob,ann leaves; all dispatch; ann,bob is LEAVING;"
               "cid is INSIDE; ann missing 1 cid; cid leaves; cid is OUT;"
               "ready -> NONODE; all dispatch; ann,bob is OUT;"
               THREE_HEARD("ALL_LEFT")
               "bob,cid,ann start; all dispatch; ann,bob,cid round 2;"
               "ann,cid,bob leaves; all dispatch; ann,bob,cid is OUT;"
               "cid,ann,bob start; all dispatch; ann,bob,cid round 3;"
               "cid,bob,ann leaves; all dispatch; ann,bob,cid is OUT");
}

/* A barrier of one. */
TEST(a_barrier_of_one_waits_for_nobody) {
  play_barrier(1,
               "ann enter_now; ann round 1; ann leave; ann enter_now;"
               "ann round 2; ann leave");
}

/* A party that has left may come again before the others hear that all have
   left.
 */
TEST(a_party_may_return_early) {
  play_barrier(
      2, BOTH_ENTER
      "ann,bob leaves; bob start; bob is WAITING;" /* ann is in leave still */
      "ann dispatches; ann is OUT; bob is WAITING; ann start; all dispatch;"
      "bob is INSIDE; ann,bob leaves; all dispatch");
}

/* The members' data and identities, in the order in which they came; any
 * bytes. */
TEST(members_and_parties) {
  zke_party_list *list;
  begin(2);
  ck_ok(zke_double_barrier_list(party[0], &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_ok(zke_double_barrier_start(party[1], "\n\0x\n", 4));
  play("ann,cid start; all dispatch");
  ck_ok(zke_double_barrier_list(party[0], &list));
  ck_assert_int_eq(list->count, 2);
  ck_assert_str_eq(list->data[0].identity, "bob");
  ck_assert_int_eq(list->data[0].len, 4);
  ck_assert_mem_eq(list->data[0].data, "\n\0x\n", 4);
  ck_assert_int_eq(list->data[0].session, zke_session_id(z[1]));
  ck_assert_int_eq(list->data[1].mzxid, zke_double_barrier_token(party[0]));
  ck_assert_int_gt(list->data[1].czxid, list->data[0].czxid);
  zke_free(list);
  play(
      "ann members -> bob:\n ann:; ann leaves;"
      "parties inside bob, leaving ann, waiting cid; ann missing 1 bob");
  ck_ok(zke_double_barrier_parties(z[2], PATH, &list));
  ck_assert_int_gt(list->data[2].queued_ms, 0);
  zke_free(list);
  ck_ok(zke_double_barrier_missing(party[0], NULL, NULL));
  play("bob leaves; all dispatch; cid stop; parties");
}

/* ---- who is woken ---- */

/* An arrival wakes no party, except that the last wakes all; leaving wakes
 * none, except that the last wakes those in leave. */
TEST(no_herd) {
  play_barrier(5,
               "ann,bob,cid,dan start; ann,bob,cid,dan dispatches -> 0;"
               "eve start; ann,bob,cid,dan dispatches -> 1; all dispatch;"
               "cid,ann,eve,bob leaves; ann,bob,cid,eve,dan dispatches -> 0;"
               "dan leaves; ann,bob,cid,eve dispatches -> 1;"
               "ann,bob,cid,dan,eve is OUT");
}

/* ---- late ones and surplus ---- */

/* A party that comes during a round waits for the next, even if there are
 * enough; the next begins when the round has ended. */
TEST(late_parties_wait) {
  play_barrier(2, BOTH_ENTER
               "ann round 1; cid,dan start; all dispatch; cid,dan is WAITING;"
               "dan missing 0; dan enter_now -> OPERATIONTIMEOUT;"
               "said where a round still runs; dan start; ann leaves;"
               "all dispatch; cid is WAITING; bob leaves; all dispatch;"
               "cid,dan is INSIDE; dan round 2; cid,dan leaves; all dispatch");
}

/* Five parties at a barrier of two enter by twos, in order of arrival. */
TEST(surplus_in_order) {
  play_barrier(2,
               "ann,bob,cid,dan,eve start; all dispatch;"
               "parties inside ann, inside bob, waiting cid, waiting dan,"
               " waiting eve;"
               "ann,bob leaves; all dispatch; ann,bob is OUT;"
               "cid,dan is INSIDE; eve is WAITING; cid,dan leaves;"
               "all dispatch; cid,dan is OUT; eve is WAITING; eve missing 1");
}

/* A waiting party that withdraws is not counted, and does not stop the rest. */
TEST(surplus_withdraws) {
  play_barrier(2, BOTH_ENTER
               "cid,dan start;" /* dan is the first to see enough */
               "eve start; dan stop; ann,bob leaves; all dispatch;"
               "cid,eve is INSIDE; cid,eve leaves; all dispatch");
}

/* ---- deaths ---- */

/* A death before the round: the party is just not there. */
TEST(death_before_round) {
  play_barrier(3,
               "ann,bob start; bob expires; ann missing 2; cid start;"
               "ann dispatches; ann is WAITING; dan start;"
               "ann,cid dispatches; ann,cid is INSIDE; ann,cid,dan leaves;"
               "all dispatch; ann is OUT; ann check -> LOST");
}

/* A death inside: all that are in leave or get there receive ZKE_BROKEN, and
 * learn which party died; the last removes what is left, and the barrier can be
 * used again. */
TEST(death_inside) {
  play_barrier(3, THREE_ENTER THREE_HEARD("ENTERED")
               "ann leaves; bob expires; ann dispatches; ann is OUT;"
               "ann check -> BROKEN; told ann BROKEN; cid dispatches;"
               "told cid BROKEN;" /* inside */
               "cid is INSIDE; cid leave -> BROKEN; cid is OUT;"
               "ready -> NONODE; ann,cid,dan start; ann,cid dispatches;"
               "ann is INSIDE; ann check; ann,cid,dan leaves;"
               "ann,cid dispatches; cid is OUT");
}

/* The sentence names the dead. */
TEST(broken_names_the_dead) {
  play_barrier(3, THREE_ENTER
               "bob expires; ann missing 3 ann bob! cid; ann leave -> BROKEN;"
               "said bob (pid; said  died inside; cid leave -> BROKEN;"
               "said bob (pid");
}

/* A death in leave: it had left, so the others are not affected. */
TEST(death_in_leave) {
  play_barrier(3, THREE_ENTER THREE_HEARD("ENTERED")
               "ann,bob leaves; ann expires; bob dispatches; bob is LEAVING;"
               "cid leaves; cid is OUT; bob dispatches; bob is OUT;"
               "told cid ALL_LEFT, bob ALL_LEFT");
}

/* The party in leave that watched a member dies first, then the member: the
 * next in the ring has taken over. */
TEST(death_of_the_guard) {
  play_barrier(4,
               "ann,bob,cid,dan start; all dispatch;"
               "cid leaves;" /* watches dan, ann, bob */
               "ann leaves;" /* watches bob, cid */
               "ann expires;"
               "told dan ENTERED, ann ENTERED, bob ENTERED, cid ENTERED;"
               "cid dispatches; cid is LEAVING;" /* watches bob from now on */
               "bob expires; cid dispatches; cid is OUT; told cid BROKEN;"
               "dan leave -> BROKEN");
}

/* The party that notices a death first tells the others, also those in leave
 * that do not watch the dead one. */
TEST(all_are_told) {
  play_barrier(5,
               "eve,ann,bob,cid,dan start; all dispatch;"
               "told dan ENTERED, ann ENTERED, bob ENTERED, cid ENTERED, eve"
               " ENTERED;"
               "eve leaves;" /* watches all others */
               "bob leaves;" /* watches cid, dan, eve */
               "cid leaves;" /* watches dan, eve */
               "dan expires; cid,eve,bob dispatches; eve,bob,cid is OUT;"
               "ann dispatches;"
               "told cid BROKEN, eve BROKEN, bob BROKEN, ann BROKEN;"
               "ann leaves; ann is OUT; ready -> NONODE");
}

/* A free inside counts as a death there. */
TEST(freed_inside) {
  play_barrier(2, BOTH_ENTER "bob free; ann leave -> BROKEN; ready -> NONODE");
}

/* A `ready` whose members all died lets no party pass, and is removed. */
TEST(stale_ready) {
  play_barrier(2, BOTH_ENTER
               "ann round 1; ann,bob expires; ready; cid start;"
               "cid dispatches; cid is WAITING; cid missing 1; dan start;"
               "cid dispatches; cid,dan is INSIDE; cid round 2;"
               "cid,dan leaves; cid dispatches; cid is OUT; ready -> NONODE");
}

/* The members of a round die one by one while others wait for its end. */
TEST(stale_while_waiting) {
  play_barrier(3, THREE_ENTER
               "bob leaves; ann,bob free; dan,eve,ann' start; all dispatch;"
               "dan is WAITING; cid expires; dan,eve,ann',dan,eve dispatches;"
               "ann',dan,eve is INSIDE; ann',dan,eve leaves; all dispatch");
}

/* ---- deadlines, cancel, withdrawal ---- */

/* A timed enter withdraws: it is not counted, and says who is there and how
 * many are missing. */
TEST(timed_enter) {
  play_barrier(3,
               "bob start; ann enter_30 -> OPERATIONTIMEOUT;"
               "said 2 of 3 parties are at /barriers/b; said bob (pid;"
               "ann is OUT; bob missing 2; cid start; all dispatch;"
               "bob is WAITING; bob,cid stop; cid stop -> LOST");
}

/* After the round has begun, a withdrawal or a deadline has no effect.  A leave
 * reports once how the started enter ended. */
TEST(withdrawal_loses) {
  play_barrier(2,
               "ann,bob start; ann is WAITING;" /* as far as it heard */
               "ann stop -> HELD; ann is INSIDE; ann,bob leaves;"
               "all dispatch; ann leave_now; ann leave_now -> LOST;"
               "ann,bob start; ann,bob enter_now; ann enter_now -> MISUSE;"
               "ann,bob round 1; ann,bob leaves; all dispatch");
}

/* A timed leave: it is out, and for the others it has left normally. */
TEST(timed_leave) {
  play_barrier(3, THREE_ENTER
               "ann leave_20 -> OPERATIONTIMEOUT;"
               "said 2 of the 3 parties inside; said bob (pid; said cid (pid;"
               "ann leave_now -> LOST; bob leave_now -> OPERATIONTIMEOUT;"
               "cid leave_now; ready -> NONODE");
}

/* Cancel, from another thread, enter and leave; one call at a time. */
TEST(enter_and_leave_can_be_cancelled) {
  play_barrier(2,
               "ann waits enter; ann enter_now -> MISUSE; ann stop -> MISUSE;"
               "ann cancels; ann returns -> CANCELLED; ann is OUT;" BOTH_ENTER
               "ann waits leave; ann cancels; ann returns -> CANCELLED;"
               "bob leave"); /* ann has left */
}

/* A blocking enter and leave return when the last party comes, and end with
 * their session. */
TEST(blocked_calls_go_on_when_the_last_comes) {
  play_barrier(2,
               "ann waits enter; bob start; ann returns; ann waits leave;"
               "bob leaves; ann returns; ann waits enter; ann expires;"
               "ann returns -> INVALIDSTATE");
}

/* ---- the session, the party's znode ---- */

/* After the session's end no object claims to be in the barrier, even without a
 * dispatch. */
TEST(session_lost) {
  play_barrier(2,
               "ann start; ann expires; ann dispatches; ann is LOST;"
               "told ann LOST; ann enter_now -> INVALIDSTATE; bob,cid start;"
               "bob dispatches; bob is INSIDE; bob expires; bob is LOST;"
               "bob leave_now -> INVALIDSTATE; cid leave -> BROKEN");
}

/* A party's znode is deleted: waiting, inside, in leave. */
TEST(znode_taken_away) {
  play_barrier(2,
               "ann start; first_goes; ann enter -> LOST; told ann LOST;"
               "ann is OUT;" BOTH_ENTER
               "first_goes; ann dispatches; ann is LOST;"
               "ann leave_now -> LOST; bob leave -> BROKEN;" BOTH_ENTER
               "ann leaves; first_goes; ann dispatches; ann is LOST;"
               "ann start; ann stop;" /* it can begin again */
               "bob leave");
}

/* A party in leave is no longer inside: it cannot enter before it is out. */
TEST(no_entering_while_in_leave) {
  play_barrier(2, BOTH_ENTER
               "told bob ENTERED, ann ENTERED; ann leaves; ann is LEAVING;"
               "ann enter_now -> MISUSE; ann is LEAVING; bob leaves;"
               "all dispatch; ann leave_now; told bob ALL_LEFT, ann ALL_LEFT");
}

/* If a party was told that its round is broken, its leave does not report that
 * all have left, even if `ready` is deleted. */
TEST(broken_stays_broken) {
  play_barrier(2, BOTH_ENTER
               "told bob ENTERED, ann ENTERED;"
               "empty /barriers/b/ready; delete /barriers/b/ready;"
               "all dispatch; told ann BROKEN, bob BROKEN;"
               "ann leave -> BROKEN; bob leaves; all dispatch;"
               "ann,bob is OUT; told ");
}

/* ---- foreign nodes, bad arguments ---- */

/* Make a znode of the barrier. */
static void make(const char *name, const char *data, int mode) {
  char path[128];
  snprintf(path, sizeof path, PATH "/%s", name);
  ck_ok(zke_create(z[4], path, data, (int)strlen(data), ZKE_OPEN_ACL, mode,
                   NULL, NULL));
}

/* Foreign, malformed and ownerless children are ignored. */
TEST(foreign_children) {
  static const char guid[] = "_c_00000000-0000-0000-0000-000000000000-party-";
  static const char *const names[] = {"x", "party-0000000001", "_c_",
                                      "_c_1-party-0000000001",
                                      "lock-000000001"};
  static const char *const texts[] = {"", "waiting", "waiting 1 x",
                                      "waiting x y\n", "inside\n"};
  char name[80];
  begin(2);
  play("ann start");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    make(names[i], "waiting 1 x\n", ZKE_EPHEMERAL);
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    snprintf(name, sizeof name, "%s%010d", guid, (int)i);
    make(name, texts[i], ZKE_EPHEMERAL);
  }
  snprintf(name, sizeof name, "%s%010d", guid, 99);
  make(name, "waiting 1 x\n", ZKE_PERSISTENT);
  play(
      "ann missing 1; bob start; all dispatch; ann,bob is INSIDE;"
      "ann,bob leaves; all dispatch; ann is OUT; empty /barriers/b");
}

/* … below `ready` too: the round ends with the last member's leave, or when
 * the next round begins. */
TEST(foreign_children_of_ready) {
  play_barrier(2, BOTH_ENTER
               "create /barriers/b/ready/a; create /barriers/b/ready/z;"
               "create /barriers/b/ready/z/z; ann leaves;"
               "bob leaves -> NOTEMPTY; bob is OUT;" /* too much */
               "delete /barriers/b/ready/z/z; all dispatch;"
               "ann leave_now -> BROKEN;" BOTH_ENTER
               "create /barriers/b/ready/a;"
               "ann,bob leaves; all dispatch;"
               "ann,bob is OUT; ready -> NONODE");
}

/* A `ready` that is not a round of zkembed's is not followed and not deleted.
 * A round with invalid members is stale. */
TEST(foreign_ready) {
  static const char *const foreign[] = {"", "runnin", "x"};
  static const char *const malformed[] = {
      "running\n", "broken \nx", "running\na 1 2 3 4 99 x\n",
      "running\na 1 2 3 4 -1 x\n\n", "running\na 1 2 3 4 0x\n\n"};
  begin(1);
  play("ann enter; ann leave_now");
  for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
    make("ready", foreign[i], ZKE_PERSISTENT);
    play(
        "ann enter_now -> OTHERKIND; said is not a round; ann is OUT;"
        "delete /barriers/b/ready");
  }
  for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
    make("ready", malformed[i], ZKE_PERSISTENT);
    play("ann enter_now; ann leave_now");
  }
}

/* Another object of ann's session, for two, is refused at this path. */
static void refuse_two(const char *path) {
  zke_double_barrier *other;
  ck_ok(zke_double_barrier_new(z[0], path, 2, NULL, &other));
  ck_rc(zke_double_barrier_start(other, NULL, 0), ZKE_OTHERKIND);
  ck_rc(zke_double_barrier_enter(other, NULL, 0, 0, NULL), ZKE_OTHERKIND);
  zke_double_barrier_free(other);
}

/* A path of another recipe is refused.  All must agree on N, which is not read
 * modulo 2^32. */
TEST(other_kind) {
  char text[128], *data, *line;
  begin(3);
  play("ann start");
  refuse_two(PATH);
  ck_says("is for 3 parties, not for 2");
  ck_ok(zke_recipe_place(z[0], "/lock", "lock", ZKE_PERSISTENT, NULL,
                         ZKE_FOREVER));
  refuse_two("/lock");
  ck_ok(zke_get(z[0], PATH, NULL, NULL, &data, NULL, NULL));
  line = strstr(data, "parties ");
  ck_assert_ptr_nonnull(line);
  snprintf(text, sizeof text, "%.*sparties 4294967298\n", (int)(line - data),
           data);
  zke_free(data);
  ck_ok(zke_set(z[0], PATH, text, (int)strlen(text), -1, NULL));
  refuse_two(PATH);
  ck_says("is for 4294967298 parties, not for 2");
}

/* P11: invalid arguments are refused, such as too many parties; nothing is
 * entered. */
TEST(bad_arguments) {
  zke_double_barrier_options o = {.size = 1};
  zke_double_barrier *other;
  zke_party_list *list;
  begin(2);
  ck_rc(zke_double_barrier_new(z[0], PATH, 0, NULL, &other), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  ck_rc(zke_double_barrier_new(z[0], PATH, ZKE_DOUBLE_BARRIER_MOST + 1, NULL,
                               &other),
        ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_new(z[0], PATH, 2, &o, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_new(z[0], "/", 2, NULL, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_new(z[0], "x", 2, NULL, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_new(z[0], PATH, 2, NULL, NULL), ZKE_BADARGUMENTS);
  zke_double_barrier *b = party[0];
  ck_rc(zke_double_barrier_enter(b, NULL, 1, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_enter(b, "x", -1, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_start(b, NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_list(b, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_parties(z[0], PATH, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_double_barrier_parties(z[0], "x", &list), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_double_barrier_state(NULL), LOST);
  ck_assert_int_eq(zke_double_barrier_token(NULL), 0);
  zke_double_barrier_free(NULL);
  play(
      "ann leave_now -> LOST; ann leaves -> LOST; ann start;"
      "ann start -> MISUSE; ann step");
}

/* ---- a file ----
 *
 * The other parties are processes. eve's session only observes; ann and bob
 * have sessions if the test needs them. */

/* Open a barrier of n. */
static void open_file(int n) {
  parties = n;
  share();
  store(&shared->go, 1);
  begin_steps(&of_double_barrier);
  z[4] = test_open(test_path("db"));
}

/* Sessions and objects of ann, or of ann and bob. */
static void add_parties(int count) {
  for (int i = 0; i < count; i++) {
    z[i] = test_session(z[4], NULL);
    ck_ok(new_party(z[i], identities[i], &party[i]));
  }
}

/* As end(). */
static void end_file(void) {
  free_parties();
  for (int i = 0; i < 2; i++)
    if (z[i]) ck_ok(zke_close(z[i]));
  ck_assert_int_eq(entries(z[4], PATH), 0);
  close_last(z[4]);
}

/* The data of N parties must fit one value: the party that exceeds it is
 * out. */
TEST(too_much_data) {
  static char data[900];
  zke_options o = {.size = sizeof o, .data_limit = 1500};
  memset(data, 'd', sizeof data);
  parties = 2;
  begin_steps(&of_double_barrier);
  ck_ok(zke_open(":memory:", &o, &z[4]));
  for (int i = 0; i < 2; i++) {
    z[i] = test_session(z[4], NULL);
    ck_ok(new_party(z[i], NULL, &party[i]));
  }
  ck_ok(zke_double_barrier_start(party[0], data, sizeof data));
  ck_rc(zke_double_barrier_enter(party[1], data, sizeof data, 0, NULL),
        ZKE_LIMIT);
  ck_says("is too much");
  ck_rc(zke_double_barrier_start(party[1], data, sizeof data), ZKE_LIMIT);
  play(
      "bob is OUT; bob enter_now little; ann dispatches; ann is INSIDE;"
      "ann,bob leaves; ann dispatches");
  end_file();
}

/* The result of an enter of at most a millisecond, and its duration. */
typedef struct hasty {
  int party, rc;
  int64_t took_ms;
} hasty;

static void *hasty_enter(void *arg) {
  hasty *h = arg;
  int64_t began = test_now();
  h->rc = zke_double_barrier_enter(party[h->party], NULL, 0,
                                   zke_now(z[h->party]) + 1, NULL);
  h->took_ms = test_now() - began;
  return NULL;
}

/* Only one party has passed.  The other used up its grace because the machine
 * did not let it run, and could not be told that the round had begun: it counts
 * as dead inside.  Until its session has removed its znode, it can change
 * nothing. */
static void withdrawn_too_late(const hasty *in, const hasty *out) {
  ck_assert_int_eq(in->rc, ZKE_OK);
  ck_assert_int_ge(out->took_ms, ZKE_GRACE_MS);
  ck_until(zke_set(z[out->party], "/", NULL, 0, -1, NULL) == ZKE_OK, 10000);
  ck_rc(zke_double_barrier_leave(party[in->party], ZKE_FOREVER), ZKE_BROKEN);
}

/* Two processes enter and give up after a millisecond, 200 times: either both
 * pass, in one round, or neither. */
TEST(withdrawal_races) {
  int both = 0;
  open_file(2);
  for (int i = 0; i < 2; i++) {
    z[i] = test_open(test_path("db"));
    ck_ok(new_party(z[i], NULL, &party[i]));
  }
  for (int n = 0; n < 200 || (both == 0 && n < 20000); n++) {
    pthread_t thread;
    hasty h[2] = {{.party = 0}, {.party = 1}};
    ck_assert_int_eq(pthread_create(&thread, NULL, hasty_enter, &h[0]), 0);
    if (n % 3 == 0) test_pause();
    dispatch_on(z[4]); /* eve looks at the end: her session must stay alive */
    hasty_enter(&h[1]);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 2; i++)
      ck_assert(h[i].rc == ZKE_OK || h[i].rc == ZKE_OPERATIONTIMEOUT);
    if (h[0].rc != h[1].rc) {
      withdrawn_too_late(&h[h[0].rc != ZKE_OK], &h[h[0].rc == ZKE_OK]);
      continue;
    }
    if (h[0].rc != ZKE_OK) continue;
    both++;
    ck_assert_int_eq(zke_double_barrier_token(party[0]),
                     zke_double_barrier_token(party[1]));
    play("ann leaves; bob leave");
    while (state(0) == LEAVING) ck_ok(zke_wait(z[0], zke_now(z[0]) + 5000));
  }
  ck_assert_int_gt(both, 0);
  end_file();
}

/* ---- processes that are killed or stopped ---- */

static pid_t pids[2]; /* of the parties that are processes */

/* Such a party enters, and leaves when it may. */
static void be_party(zke *own) {
  zke_double_barrier *barrier;
  zke_close(z[4]); /* the parent's: its copy is of no use here */
  int rc = zke_double_barrier_new(own, PATH, parties, NULL, &barrier);
  if (rc == ZKE_OK)
    rc = zke_double_barrier_enter(barrier, NULL, 0, ZKE_FOREVER, NULL);
  if (rc != ZKE_OK) give_up("enter", rc);
  store(&shared->stage[self], INSIDE);
  wait_for(&shared->stage[self], LEAVING);
  shared->rc[self] = zke_double_barrier_leave(barrier, zke_now(own) + 20000);
  zke_double_barrier_free(barrier);
}

/* How many parties there are in all. */
static int arrived(void) {
  int count = 0;
  zke_strings *names = NULL;
  if (zke_children(z[4], PATH, NULL, NULL, &names, NULL) != ZKE_OK) return 0;
  for (int i = 0; i < names->count; i++) count += names->data[i][0] == '_';
  zke_free(names);
  return count;
}

/* Start the i-th process, and wait until it is in line. */
static void process_begins(int i) {
  int before = arrived();
  pids[i] = spawn(i, be_party);
  ck_until(arrived() > before, 10000);
}

static void process_is_inside(int i) {
  ck_until(load(&shared->stage[i]) >= INSIDE || *shared->sentence, 10000);
  ck_assert_str_eq(shared->sentence, "");
}

/* It leaves, and is then stopped in its leave; this many are still inside. */
static void process_stops(int i, int left_inside) {
  store(&shared->stage[i], LEAVING);
  ck_until(entries(z[4], PATH "/ready") == left_inside, 10000);
  test_stop(pids[i], test_path("db"));
}

/* It continues, and hears that its round was broken. */
static void process_hears(int i) {
  int status;
  kill(pids[i], SIGCONT);
  ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
  ck_assert_str_eq(shared->sentence, "");
  ck_assert_int_eq(status, 0);
  ck_assert_int_eq(shared->rc[i], ZKE_BROKEN);
}

/* kill -9 of a member inside: the kernel immediately tells the one in leave. */
TEST(killed_inside) {
  open_file(2);
  process_begins(0);
  add_parties(1);
  play("ann enter; ann leaves; ann dispatches; ann is LEAVING");
  process_is_inside(0);
  kill_child(pids[0]);
  play("ann hears BROKEN; ann is OUT; ann check -> BROKEN");
  end_file();
}

/* kill -9 of a waiting party: it does not count from then on, although its
 * znode may stay for a while. */
TEST(killed_waiting) {
  open_file(2);
  process_begins(0);
  add_parties(2);
  kill_child(pids[0]);
  play(
      "ann start; ann is WAITING; ann missing 1; bob start; ann dispatches;"
      "ann,bob is INSIDE; ann,bob leaves; ann dispatches; ann check -> LOST");
  until_empty(z[4], PATH);
  end_file();
}

/* The parties come in this order: ann, B, C.  B, the only one that watches C in
 * the ring, is stopped in leave; C dies inside.  ann still hears of it, and so
 * does B. */
TEST(a_stopped_neighbour_hides_no_death) {
  open_file(3);
  add_parties(1);
  play("ann start");
  process_begins(0);
  process_begins(1);
  process_is_inside(0);
  process_is_inside(1);
  play("ann enter");
  process_stops(0, 2);
  play("ann leaves");
  kill_child(pids[1]);
  play("ann leave -> BROKEN; said died inside");
  process_hears(0);
  end_file();
}

/* Two processes are inside a round; ann and bob wait for the next. */
static void two_inside(void) {
  open_file(2);
  process_begins(0);
  process_begins(1);
  process_is_inside(0);
  process_is_inside(1);
  add_parties(2);
}

/* The second one dies inside: the next round begins, although the first is
 * stopped, and the first hears that its round was broken. */
static void two_enter_after_a_death(void) {
  kill_child(pids[1]);
  play("bob,ann enter");
  process_hears(0);
}

/* A party that is stopped in leave of a broken round does not block the next
 * round, and hears afterwards how its own ended. */
TEST(a_stopped_member_keeps_out_no_next_round) {
  two_inside();
  process_stops(0, 1);
  play("ann,bob start; bob is WAITING"); /* waiting behind the round */
  two_enter_after_a_death();
  play("ann,bob leaves; ann dispatches; ann is OUT; bob dispatches");
  end_file();
}

/* Waiting parties watch a member of the round.  It may leave and be stopped
 * before it looks again: they still notice what becomes of the others. */
TEST(a_stopped_witness_hides_no_end) {
  two_inside();
  play("ann,bob start"); /* bob watches the first, which is inside */
  process_stops(0, 1);
  play("ann,bob dispatches");
  two_enter_after_a_death();
  end_file();
}

/* ---- meeting ---- */

/* All parties of a meeting get the data of all, in order of arrival, and are
 * out; repeatedly with the same objects. */
TEST(all_who_meet_get_everything) {
  begin(3);
  for (int n = 1; n <= 3; n++) {
    play(
        "cid start two; ann start; bob meet_now one -> cid:two ann: bob:one;"
        "ann,cid meet_now -> cid:two ann: bob:one; ann,bob,cid is OUT;"
        "ready -> NONODE");
    ck_ok(take_by(1, "round", n == 1 ? "1" : n == 2 ? "2" : "3"));
  }
}

/* A meeting's data may be any bytes, and its list has the members' sessions. */
TEST(a_meeting_gives_any_bytes_and_the_sessions) {
  zke_party_list *list;
  begin(2);
  play("ann start");
  ck_ok(zke_double_barrier_meet(party[1], "o\0e", 3, soon(z[1]), &list, NULL));
  ck_assert_int_eq(list->count, 2);
  ck_assert_int_eq(list->data[0].session, zke_session_id(z[0]));
  ck_assert_int_eq(list->data[1].session, zke_session_id(z[1]));
  ck_assert_int_eq(list->data[1].len, 3);
  ck_assert_mem_eq(list->data[1].data, "o\0e", 3);
  zke_free(list);
  play("ann enter_now; ann leave_now");
}

/* At the deadline a party withdraws, and says what is missing; if that is too
 * late, it has met.  The list and the round are optional. */
TEST(a_meeting_that_is_late_has_met) {
  begin(2);
  play(
      "ann meet_20 x -> OPERATIONTIMEOUT;"
      "said 1 of 2 parties are at /barriers/b: ann (pid; bob start 1");
  ck_ok(zke_double_barrier_meet(party[0], "2", 1, 0, NULL, NULL));
  play("bob stop -> HELD; bob members -> bob:1 ann:2; bob leaves");
}

/* ---- deaths, lost replies, faults ---- */

/* A round of two parties of one process. */
static int use_both(zke *mine, zke_double_barrier *x, zke_double_barrier *y) {
  int64_t deadline = zke_now(mine) + recipe_patience_ms;
  int rc = zke_double_barrier_start(x, "x", 1);
  if (rc == ZKE_OK) rc = zke_double_barrier_enter(y, "y", 1, deadline, NULL);
  if (rc == ZKE_OK) rc = zke_double_barrier_enter(x, NULL, 0, deadline, NULL);
  if (rc == ZKE_OK) rc = zke_double_barrier_leave_start(y);
  if (rc == ZKE_OK) rc = zke_double_barrier_leave(x, deadline);
  while (rc == ZKE_OK && zke_double_barrier_state(y) == LEAVING)
    rc = zke_wait(mine, deadline);
  return rc;
}

/* A meeting of the two; x comes first, without blocking. */
static int meet_both(zke *mine, zke_double_barrier *x, zke_double_barrier *y) {
  int64_t deadline = zke_now(mine) + recipe_patience_ms;
  zke_party_list *list = NULL;
  int rc = zke_double_barrier_start(x, "x", 1);
  if (rc == ZKE_OK)
    rc = zke_double_barrier_meet(y, "y", 1, deadline, &list, NULL);
  if (rc == ZKE_OK && (list->count != 2 || list->data[1].data[0] != 'y'))
    rc = ZKE_SYSTEMERROR;
  zke_free(list);
  if (rc == ZKE_OK) rc = zke_double_barrier_enter(x, NULL, 0, deadline, NULL);
  if (rc == ZKE_OK) rc = zke_double_barrier_leave(x, deadline);
  return rc;
}

/* Two parties on one session do that. */
static int use_by(zke *mine, int (*both)(zke *mine, zke_double_barrier *x,
                                         zke_double_barrier *y)) {
  zke_double_barrier *x = NULL, *y = NULL;
  int rc = zke_double_barrier_new(mine, PATH, 2, NULL, &x);
  if (rc == ZKE_OK) rc = zke_double_barrier_new(mine, PATH, 2, NULL, &y);
  if (rc == ZKE_OK) rc = both(mine, x, y);
  zke_double_barrier_free(x);
  zke_double_barrier_free(y);
  return rc;
}

/* The typical uses. */
static int use(zke *mine) { return use_by(mine, use_both); }
static int use_meet(zke *mine) { return use_by(mine, meet_both); }

/* Others continue, and remove what is left. */
static void check(zke *other, int rc) {
  zke_party_list *list;
  (void)rc;
  ck_ok(use(other));
  ck_rc(zke_exists(other, PATH "/ready", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_double_barrier_parties(other, PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
}

static const recipe_use uses[] = {{"double barrier", NULL, use, check},
                                  {"meet", NULL, use_meet, check}};

RECIPE_TESTS(uses, 20, 0);
