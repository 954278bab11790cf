/* test_election.c - what only elections promise (recipes/election.h)
 *
 * test_lines tests what all lines promise, and the order of the events, which
 * are those of ZooKeeper's LeaderElectionSupport.  Here are the word, handing
 * over and observers.  The table of system calls lets another session act in
 * the middle of a call.
 */
#include "lines.h"
#include "recipes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/election.h"
#include "recipes/lock.h"

#define WORD PATH "/leader"
#define GUID "01234567-89ab-cdef-0123-456789abcdef"

/* ---- steps as text ---- */

static bool twins;      /* dan's objects are named "twin" */
static int acts;        /* bob's listener takes office (1), and resigns (2) or
                              frees its candidate (3) */
static int64_t highest; /* the highest token that a listener has heard */
static int64_t heard[PARTIES]; /* the last token of each */
static zke_observer *observer[PARTIES];

/* The event that must precede an event; 0: any. */
static int before_event(int event) {
  switch (event) {
    case ZKE_ELECTION_STARTED:
    case ZKE_ELECTION_FAILURE:
    case ZKE_ELECTION_STOP_START:
      return 0;
    case ZKE_ELECTION_READY_START:
      return ZKE_ELECTION_DETERMINE_COMPLETE;
    default:
      return event - 1;
  }
}

/* Let bob's listener make its calls. */
static void act(zke_election *election) {
  ck_ok(zke_election_ready(election));
  if (acts == 2) ck_ok(zke_election_resign(election));
  if (acts == 3) zke_election_free(election);
}

/* A candidate's listener tells READY, ELECTED, FAILED and STOPPED; nothing if
 * there is an observer.  It checks that events come in order and in their
 * states, and that only ELECTED has a token. */
static void listen(zke_election *election, int event, int64_t token, void *c) {
  static const char *const words[] = {
      [ZKE_ELECTION_READY_COMPLETE] = "READY",
      [ZKE_ELECTION_ELECTED_COMPLETE] = "ELECTED",
      [ZKE_ELECTION_FAILURE] = "FAILED",
      [ZKE_ELECTION_STOP_COMPLETE] = "STOPPED"};
  static const char states[] = "SOODDEERRF--";
  static int last[PARTIES];
  const char *who = c;
  if (!who) return; /* of a use */
  int i = party_named(who), *before = &last[i], wanted = before_event(event);
  if (event == ZKE_ELECTION_DETERMINE_START &&
      *before == ZKE_ELECTION_READY_COMPLETE)
    wanted = *before;
  if (wanted) ck_assert_int_eq(*before, wanted);
  *before = event;
  int state = zke_election_state(election);
  ck_assert_int_eq("-SODERF"[state], states[event - ZKE_ELECTION_STARTED]);
  ck_assert_int_eq(token != 0, state == ZKE_ELECTION_ELECTED);
  if (event == ZKE_ELECTION_ELECTED_START) {
    ck_assert_int_gt(token, highest);
    highest = heard[i] = token;
  }
  bool observed = false;
  for (int k = 0; k < PARTIES; k++) observed |= observer[k] != NULL;
  if (words[event] && !observed) tell("%s %s", who, words[event]);
  if (event == ZKE_ELECTION_ELECTED_COMPLETE && acts && who[0] == 'b')
    act(election);
}

/* A candidate with that name; `who` is its listener's, or NULL. */
static zke_election *make(zke *session, const char *name, const char *who) {
  zke_election *election;
  zke_election_options o = {.size = sizeof o,
                            .name = name,
                            .listener = who ? listen : NULL,
                            .context = (void *)(uintptr_t)who};
  ck_ok(zke_election_new(session, PATH, &o, &election));
  return election;
}

static int create(zke *session, const char *who, void **object) {
  *object = make(session, twins && who[0] == 'd' ? "twin" : who, who);
  return ZKE_OK;
}

/* An observer's listener tells "name=value", or "nobody". */
static void observe(zke_observer *o, const char *name, int64_t token,
                    const char *value, int len, void *c) {
  (void)o, (void)c;
  ck_assert_int_eq(name != NULL, token != 0);
  ck_assert_int_eq(name != NULL, value != NULL);
  tell("%s%s%.*s", name ? name : "nobody", len ? "=" : "", len,
       len ? value : "");
}

static zke_observer *observer_of(zke *session) {
  zke_observer *o;
  zke_observer_options options = {.size = sizeof options, .listener = observe};
  ck_ok(zke_observer_new(session, PATH, &options, &o));
  return o;
}

STEP(start, zke_election_start(s->object))
STEP(ready, zke_election_ready(s->object))
STEP(resign, zke_election_resign(s->object))
STEP(step, zke_election_step(s->object))
STEP(hands, zke_election_hand_over(s->object, s->word[0]))
STEP(value, zke_election_set(s->object, *s->rest ? s->rest : NULL,
                             (int)strlen(s->rest), s->deadline))

static int step_check(step *s) {
  int rc = zke_election_check(s->object);
  int64_t token = zke_election_token(s->object);
  ck_step(s, token == (rc ? 0 : heard[s->who]), "it has another token");
  return rc;
}

static int step_is(step *s) {
  static const char *const names[] = {"STOP",    "START", "OFFER", "DETERMINE",
                                      "ELECTED", "READY", "FAILED"};
  return sees(s, "%s", names[zke_election_state(s->object)]);
}

/* Another session deletes P's znode. */
static int step_loses(step *s) {
  char path[200] = "";
  zke_party_list *list;
  ck_ok(zke_election_parties(z[4], PATH, &list));
  for (int i = 0; i < list->count; i++)
    if (strcmp(list->data[i].data, party_name(s->who)) == 0)
      snprintf(path, sizeof path, PATH "/%s", list->data[i].name);
  zke_free(list);
  return zke_delete(z[4], path, -1);
}

/* "queue ann bob cid": the leader, and then the line. */
static int step_queue(step *s) {
  char text[200] = "";
  zke_party_list *list;
  ck_ok(zke_election_parties(s->session, PATH, &list));
  for (int i = 0; i < list->count; i++) {
    const zke_party *p = &list->data[i];
    ck_assert_int_eq(p->held, i == 0);
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "", p->data);
  }
  zke_free(list);
  return sees(s, "%s", text);
}

/* "office ann": the word is ann's, with her token and her session; "office
 * nobody": there is none. */
static int step_office(step *s) {
  char mine[100] = "nobody", *data = NULL;
  zke_stat stat;
  int i = 0, rc = zke_get(s->session, WORD, NULL, NULL, &data, NULL, &stat);
  if (rc == ZKE_NONODE) return sees(s, "nobody");
  ck_ok(rc);
  while (i < SESSIONS && stat.ephemeralOwner != zke_session_id(z[i])) i++;
  if (i < SESSIONS)
    snprintf(mine, sizeof mine, "%lld %s",
             (long long)zke_election_token(party[i]), identities[i]);
  sees(s, "%s", strcmp(mine, data) == 0 ? identities[i] : data);
  zke_free(data);
  return ZKE_OK;
}

/* "changed N": this many children were created or deleted since the last
 * "changed"; the last of them in one step with the word, if there is one. */
static int step_changed(step *s) {
  static int before;
  zke_stat stat = test_stat(s->session, PATH), word;
  int now = stat.cversion - before;
  before = stat.cversion;
  if (!*s->rest) return ZKE_OK;
  if (zke_exists(s->session, WORD, NULL, NULL, &word) == ZKE_OK)
    ck_assert_int_eq(stat.pzxid, word.czxid);
  return sees(s, "%d", now);
}

static int step_observes(step *s) {
  observer[s->who] = observer_of(s->session);
  return *s->rest ? ZKE_OK : zke_observer_start(observer[s->who]);
}

static int step_looks_away(step *s) {
  zke_observer_free(observer[s->who]);
  observer[s->who] = NULL;
  return ZKE_OK;
}

STEP(awaits, zke_observer_wait(observer[s->who], atoi(s->rest), s->deadline))
STEP(gives_up, zke_observer_cancel(observer[s->who]))

/* "leader" answers "ann" or "ann value", or "nobody". */
static int step_leader(step *s) {
  char *name = (char *)s->answer, *value = name;
  int64_t token = -1;
  int len = -1;
  int rc = zke_observer_leader(observer[s->who], &name, &token, &value, &len);
  if (rc != ZKE_OK) return rc;
  ck_step(s, (token > 0) == (name != NULL), "its token is wrong");
  ck_step(s, len == (value ? (int)strlen(value) : 0), "its length is wrong");
  gives(s, "%s%s%s", name ? name : "nobody", len ? " " : "", len ? value : "");
  if (name) ck_step(s, token == heard[party_named(name)], "an old token");
  zke_free(name);
  zke_free(value);
  return rc;
}

/* The last leader that was told; the observer may have missed others. */
static int step_last(step *s) {
  const char *comma = strrchr(told, ',');
  sees(s, "%s", comma ? comma + 2 : told);
  told[0] = '\0';
  return ZKE_OK;
}

static const step_verb verbs[] = {
    VERB(start),      VERB(ready),  VERB(resign),   VERB(hands),
    VERB(value),      VERB(check),  VERB(is),       VERB(loses),
    VERB(queue),      VERB(office), VERB(changed),  VERB(observes),
    VERB(looks_away), VERB(awaits), VERB(gives_up), VERB(leader),
    VERB(last),       VERB(step),   {NULL, NULL}};

static void release(void *object) { zke_election_free(object); }
static bool waits(const step *s) { return sleeps(observer[s->who]); }

static const step_recipe of_election = {
    .verbs = verbs, .create = create, .free = release, .waits = waits};

static void open_all(void) { open_steps(&of_election); }

/* Close everything; nothing may be left. */
static void close_all(void) {
  for (int i = 0; i < PARTIES; i++) zke_observer_free(observer[i]);
  free_parties();
  close_clean(PATH);
}

static void play_election(const char *script) {
  open_all();
  play(script);
  close_all();
}

/* ---- events ---- */

/* A candidate without rivals passes all states in one call; its token comes
 * with ELECTED.  A second resignation finds nothing. */
TEST(the_first_is_elected) {
  play_election(
      "ann is STOP; ann start; told ann ELECTED; ann is ELECTED; ann check;"
      "ann start -> MISUSE; ann resign; told ann STOPPED; ann is STOP;"
      "ann check -> LOST; ann resign -> LOST; told ");
}

/* Candidates behind the leader are told READY, and nothing more until their
 * turn comes or the candidate in front leaves: then their place is determined
 * again.  Each new leader has a greater token (the listener checks). */
TEST(the_others_are_ready_and_follow_in_order) {
  play_election(
      "ann start; bob start; cid start; told ann ELECTED, bob READY, cid READY;"
      "bob is READY; queue ann bob cid; bob check -> LOST;"
      "ann resign; news ann STOPPED, bob ELECTED; queue bob cid; bob check;"
      "ann start; news ann READY; cid resign; news cid STOPPED, ann READY;"
      "bob resign; news bob STOPPED, ann ELECTED");
}

/* The one in front of bob leaves, and bob cannot look, since he may not read
 * the directory; he resigns. */
static void resign_unseeing(void) {
  play("ann start; bob start; told ann ELECTED, bob READY; ann resign");
  ck_ok(zke_set_acl(z[4], PATH, -1, ZKE_CREATOR_ALL_ACL, NULL));
  play("bob dispatches; told ann STOPPED; bob resign; told bob STOPPED");
  ck_ok(zke_set_acl(z[4], PATH, -1, ZKE_OPEN_ACL, NULL));
}

/* A failed look is made up for, but a candidate that has resigned since is told
 * nothing more, nor where it stood before its next candidacy. */
TEST(a_failed_look_tells_nothing_after_a_resignation) {
  open_all();
  ck_ok(zke_add_auth(z[4], "digest", "me:pw", 5));
  resign_unseeing();
  play("bob step; told ");
  resign_unseeing();
  play(
      "ann start; bob start; told ann ELECTED, bob READY;"
      "bob step; told ");
  close_all();
}

/* A leader whose session has ended hears FAILED.  Its word is gone, and none of
 * its calls claims anything (P5, P6). */
TEST(an_expired_session_leads_no_more) {
  play_election(
      "ann start; bob start; ann ready; told ann ELECTED, bob READY;"
      "ann expires; news ann FAILED, bob ELECTED; office nobody;"
      "ann is FAILED; ann check -> INVALIDSTATE; ann ready -> INVALIDSTATE;"
      "ann resign -> INVALIDSTATE");
}

/* P11: invalid arguments are refused, such as a name with a line break; the
 * output is then NULL. */
TEST(arguments_are_checked) {
  zke_election *election = NULL;
  zke_observer *o = NULL;
  zke_election_options options = {.size = sizeof options, .name = "a\nb"};
  open_all();
  ck_rc(zke_election_new(z[0], PATH, &options, &election), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(election);
  ck_rc(zke_election_hand_over(party[0], NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_election_set(party[0], "x", -1, 0), ZKE_BADARGUMENTS);
  play("ann hands bob -> LOST; ann ready -> LOST");
  ck_rc(zke_observer_new(z[0], PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_observer_new(z[0], "x", NULL, &o), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(o);
  ck_rc(zke_observer_new(z[0], PATH, &(zke_observer_options){0}, &o),
        ZKE_BADARGUMENTS);
  ck_assert_ptr_null(o);
  zke_observer_free(NULL);
  close_all();
}

/* An observer does not take another recipe's directory for an election. */
TEST(another_kind_on_the_path_is_refused) {
  zke_lock *lock;
  open_all();
  ck_ok(zke_lock_new(z[0], PATH, NULL, &lock));
  ck_ok(zke_lock_try(lock));
  play("bob observes -> OTHERKIND; said " PATH
       " is of kind lock, not election;"
       "bob awaits 1 -> OTHERKIND; bob leader -> MISUSE");
  zke_lock_free(lock);
  close_all();
}

/* A mark that names no candidate is ignored and removed. */
TEST(a_mark_that_names_nobody_goes) {
  open_line(LINE_ELECTION);
  ck_ok(zke_ensure_path(z[0], PATH, ZKE_CONTAINER, ZKE_FOREVER));
  ck_ok(zke_create(z[0], PATH "/_c_" GUID "-next-0000000000", "x", 1,
                   ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  play(
      "ann start; bob start;"
      "line ann (bob);"
      "ann ready; ann hand_over bob; all dispatch;"
      "line bob;"
      "bob release");
  ck_assert_int_eq(entries(z[0], PATH), 0);
}

/* Without a dispatch: a leader that has lost its place cannot hand over or take
 * office, and does not lead when it is asked to lead again. */
TEST(a_lost_place_is_not_handed_over) {
  play_line(LINE_ELECTION,
            "ann start; ann loses;"
            "ann ready -> LOST;"
            "ann is LOST;"
            "ann start; ann loses;"
            "ann acquire -> LOST;"
            "ann is LOST;"
            "ann start; bob start; ann loses;"
            "ann hand_over bob -> LOST;"
            "ann is LOST;"
            "all dispatch;"
            "bob is HELD");
}

/* The listener takes office, resigns or frees when it hears ELECTED. */
TEST_LOOP(a_listener_may_call_anything, 1, 4) {
  acts = _i;
  open_all();
  play("ann start; bob start; ann resign; all dispatch");
  play(_i == 1 ? "office bob" : "office nobody");
  if (_i == 3) party[1] = NULL;
  close_all();
}

/* ---- taking office ---- */

/* Only the leader may write the word: others are refused; it is written once,
 * however often it is asked for, and not after the place was lost. */
TEST(only_the_leader_takes_office) {
  play_election(
      "ann start; bob start; office nobody;" /* first in line only */
      "bob ready -> LOST; cid ready -> LOST; office nobody;"
      "ann ready; office ann; ann ready; office ann;"
      "delete " WORD
      "; ann loses;"
      "ann dispatches; office nobody;" /* its place is lost */
      "ann ready -> LOST");
}

/* Resigning removes the word in one step with the place.  A former leader's
 * word that was left is replaced in one step: readers never see two or none. */
TEST(the_word_comes_and_goes_in_one_step) {
  play_election(
      "ann start; bob start; ann ready; changed ; ann resign; changed 2;"
      "office nobody; all dispatch; bob ready; office bob;"
      "ann start; ann resign; office bob;" /* a former leader leaves it */
      "bob resign;"
      "ann start; create " WORD
      " 1 old; changed ; ann ready; changed 2;"
      "office ann; ann resign;"
      "ann start; ephemeral " WORD
      " 1 old; changed ; ann ready; changed 2;"
      "office ann");
}

/* "Leader key deleted by somebody else": the leader writes it again. */
TEST(a_deleted_word_is_written_again) {
  play_election(
      "ann start; bob start; ann ready;"
      "delete " WORD
      "; all dispatch; office ann;"
      "delete " WORD
      "; all dispatch; office ann;"
      "set " WORD
      " 9 me; all dispatch; office ann;"
      "delete " WORD
      "; all dispatch; office ann;"
      "ann resign; all dispatch; office nobody");
}

/* A live leader that lost its place removes its own word, not its
 * successor's. */
TEST(a_lost_place_takes_the_word_back) {
  play_election(
      "ann start; bob start; ann ready; ann loses; ann dispatches;"
      "office nobody; all dispatch; office nobody;"
      "bob resign; ann start; bob start; ann ready; ann loses; bob dispatches;"
      "bob ready; ann dispatches; office bob; all dispatch; office bob");
}

/* A new office has no word before ready(), and has it then without a dispatch,
 * whether the last one was handed over or lost. */
TEST(each_office_has_its_own_word) {
  play_election(
      "ann start; bob start; ann ready; ann hands bob; bob resign;"
      "ann start; office nobody; ann ready; office ann; ann loses;"
      "ann check -> LOST; ann start; office nobody; ann ready; office ann");
}

/* Without a dispatch: a leader that has lost its place is told so when it
 * resigns, as it would have been by the dispatch. */
TEST(a_loss_is_told_before_the_resignation) {
  play_election(
      "ann start; told ann ELECTED; ann loses; ann resign -> LOST;"
      "told ann FAILED, ann STOPPED");
}

/* ---- handing over ---- */

/* Handing over puts the named candidate before all earlier ones, which keep
 * their order.  Tokens rise with each hand-over. */
TEST(the_named_one_leads_next) {
  play_election(
      "ann start; bob start; cid start; dan start; ann ready;"
      "told ann ELECTED, bob READY, cid READY, dan READY;"
      "ann hands cid; told ann STOPPED; office nobody; queue cid bob dan;"
      "news bob READY, cid ELECTED;"
      "cid watches 1;" /* its own znode, no longer bob's */
      "cid ready; cid hands dan; all dispatch; queue dan bob; dan check;"
      "ann start; queue dan bob ann; dan resign; all dispatch;"
      "queue bob ann; bob check");
}

/* Refused: a name without a candidate, the leader's own name, and a caller that
 * does not lead.  The leader stays in office. */
TEST(handing_over_to_nobody_changes_nothing) {
  play_election(
      "ann start; bob start; ann ready; told ann ELECTED, bob READY;"
      "ann hands zoe -> NONODE; said no candidate named zoe;"
      "ann hands ann -> NONODE; bob hands ann -> LOST;"
      "news ; ann check; office ann; queue ann bob");
}

/* If two candidates have one name, the first of them leads; a further hand-over
 * to that name makes the other lead. */
TEST(of_several_of_a_name_the_first_leads) {
  twins = true;
  play_election(
      "ann start; bob start; dan start; dan' start; ann hands twin;"
      "all dispatch; dan is ELECTED; dan' is READY; dan hands twin;"
      "all dispatch; dan' is ELECTED; queue twin bob");
}

/* The heir dies before it knows, or while it leads; the next in line leads.
 * Its mark names another znode than that of its next session, and is
 * removed. */
TEST(an_heir_that_dies_is_passed_over) {
  play_election(
      "ann start; bob start; cid start; ann hands cid;"
      "cid expires; all dispatch; bob check; queue bob;"
      "cid renewed; cid start; queue bob cid; entries " PATH
      " -> 2;"
      "ann start; bob hands ann; all dispatch; ann expires; all dispatch;"
      "cid check; queue cid; ann renewed; ann start; queue cid ann;"
      "entries " PATH " -> 2");
}

/* ---- in the middle of a call ---- */

static zke_election *leads, *between, *heir;
static int handed;

static void hands_over(void) { handed = zke_election_hand_over(leads, "heir"); }

/* The leader and the others, each on one of two stores. */
static void meet(zke **of_leader, zke **of_heir) {
  open_two();
  leads = make(*of_leader, "old", NULL);
  between = make(intruder, "between", NULL);
  heir = make(*of_heir, "heir", NULL);
}

static void part(void) {
  zke_election_free(heir);
  zke_election_free(between);
  zke_election_free(leads);
  close_two();
}

static void line_up(void) {
  ck_ok(zke_election_start(leads));
  ck_ok(zke_election_start(between));
  ck_ok(zke_election_start(heir));
  ck_ok(zke_election_ready(leads));
}

static void dispatch_two(void) {
  zke_dispatch(caller, NULL);
  zke_dispatch(intruder, NULL);
}

/* Resign, if it is a candidate. */
static void resign(zke_election *which) {
  int rc = zke_election_resign(which);
  if (rc != ZKE_LOST) ck_ok(rc);
  ck_assert_int_eq(zke_election_state(which), ZKE_ELECTION_STOP);
}

static void go_home(void) {
  resign(leads);
  resign(between);
  resign(heir);
  ck_assert_int_eq(entries(caller, PATH), 0);
  dispatch_two();
}

/* The leader hands over at any moment while the heir is joining: the heir hears
 * of it. */
TEST(an_heir_that_is_joining_hears_of_it) {
  int handed_over = 0;
  bool more = true;
  meet(&intruder, &caller);
  for (int n = 1; more; n++) {
    handed = 1;
    ck_ok(zke_election_start(leads));
    ck_ok(zke_election_ready(leads));
    ck_ok(zke_election_start(between));
    act_at(n, hands_over);
    ck_ok(zke_election_start(heir));
    more = acted();
    while (zke_election_state(heir) != ZKE_ELECTION_ELECTED && handed == ZKE_OK)
      ck_rc(zke_wait(caller, zke_now(caller) + 20000), ZKE_OK);
    zke_dispatch(intruder, NULL);
    ck_assert_int_eq(zke_election_state(between), ZKE_ELECTION_READY);
    handed_over += handed == ZKE_OK;
    go_home();
  }
  ck_assert_int_gt(handed_over, 1);
  part();
}

static void heir_goes(void) { ck_ok(zke_election_resign(heir)); }

/* The intruder deletes the leader's place. */
static void leader_goes(void) {
  zke_strings *own;
  ck_ok(zke_ephemerals(intruder, zke_session_id(caller), PATH "/_c_", &own));
  for (int i = 0; i < own->count; i++)
    ck_ok(zke_delete(intruder, own->data[i], -1));
  zke_free(own);
}

/* The heir goes now, and the leader's place before the caller's next change. */
static void both_go(void) {
  heir_goes();
  act_at(1, leader_goes);
}

/* The heir, the leader's own place, or first one and then the other, goes in
 * the middle of handing over: afterwards exactly one candidate leads. */
TEST_LOOP(handing_over_survives_losses_in_its_middle, 0, 3) {
  static void (*const goes[])(void) = {heir_goes, leader_goes, both_go};
  int refused = 0, lost = 0;
  bool more = true;
  meet(&caller, &intruder);
  for (int n = 1; more; n++) {
    line_up();
    act_at(n, goes[_i]);
    int rc = zke_election_hand_over(leads, "heir");
    more = acted();
    dispatch_two();
    if (_i == 2)
      more = n < 6;
    else if (!more)
      ck_ok(rc);
    if (rc != ZKE_OK) /* else the call was over already */
      ck_assert(rc == (_i ? ZKE_LOST : ZKE_NONODE) ||
                (_i == 2 && rc == ZKE_NONODE));
    refused += rc != ZKE_OK;
    lost += rc == ZKE_LOST;
    int leaders = zke_election_check(leads) == ZKE_OK;
    leaders += zke_election_check(between) == ZKE_OK;
    leaders += zke_election_check(heir) == ZKE_OK;
    ck_assert_int_eq(leaders, 1);
    go_home();
  }
  ck_assert_int_gt(_i ? lost : refused, 0);
  part();
}

/* If the place was taken away before the n-th change of handing over, and a
 * read lost its reply: the place is lost, and nothing was handed over. */
TEST(a_lost_read_is_no_handing_over) {
  meet(&caller, &intruder);
  for (int n = 0; n < 30; n++) {
    line_up();
    act_at(n / 10 + 1, leader_goes);
    ck_ok(zke_test_fail(caller, ZKE_TEST_FAIL_READ, n % 10));
    int rc = zke_election_hand_over(leads, "heir");
    bool gone = acted();
    ck_ok(zke_test_fail(caller, 0, 0));
    if (rc != ZKE_CONNECTIONLOSS) /* a read that is not repeated */
      ck_rc(rc, gone ? ZKE_LOST : ZKE_OK);
    dispatch_two();
    if (rc != ZKE_OK) ck_ok(zke_election_check(gone ? between : leads));
    go_home();
  }
  part();
}

/* Handing over loses its reply, after (1) or before (0) it takes effect, and at
 * some moment the leader's place is deleted: the call succeeds exactly if the
 * heir leads. */
TEST_LOOP(a_place_that_is_taken_away_was_not_handed_over, 0, 2) {
  int lost = 0, when = _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE;
  bool more = true;
  meet(&caller, &intruder);
  for (int n = 1; more; n++) {
    line_up();
    ck_ok(zke_test_fail(caller, when, 0));
    act_between(n, leader_goes);
    int rc = zke_election_hand_over(leads, "heir");
    more = acted();
    ck_ok(zke_test_fail(caller, 0, 0));
    dispatch_two();
    if (rc != ZKE_OK) ck_rc(rc, ZKE_LOST);
    ck_ok(zke_election_check(rc == ZKE_OK ? heir : between));
    lost += rc == ZKE_LOST;
    go_home();
  }
  ck_assert_int_gt(lost, 0);
  part();
}

/* The intruder writes another's word. */
static void word_comes(void) {
  zke_create(intruder, WORD, "1 old", 5, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
             NULL);
}

static void word_goes(void) { zke_delete(intruder, WORD, -1); }

/* Before each change of ready() the place is deleted, or another word comes or
 * goes: at the end the word is the leader's, or there is none. */
TEST_LOOP(taking_office_survives_changes_in_its_middle, 0, 3) {
  static void (*const actions[])(void) = {leader_goes, word_comes, word_goes};
  zke_stat stat;
  bool more = true;
  meet(&caller, &intruder);
  for (int n = 1; more; n++) {
    ck_ok(zke_election_start(leads));
    if (actions[_i] == word_goes) word_comes();
    act_at(n, actions[_i]);
    int rc = zke_election_ready(leads);
    more = acted();
    zke_dispatch(caller, NULL);
    int there = zke_exists(intruder, WORD, NULL, NULL, &stat);
    if (actions[_i] == leader_goes && more) {
      ck_assert(rc == ZKE_LOST || rc == ZKE_OK); /* before it or after it */
      ck_rc(there, ZKE_NONODE);
    } else {
      ck_ok(rc);
      ck_ok(there);
      ck_assert_int_eq(stat.ephemeralOwner, zke_session_id(caller));
    }
    go_home();
  }
  part();
}

/* Make the word unreadable. */
static void word_is_hidden(void) {
  const zke_acl acl = {ZKE_PERM_ALL - ZKE_PERM_READ, "world", "anyone"};
  zke_set_acl(intruder, WORD, -1, &(zke_acls){1, &acl}, NULL);
}

/* A listener that calls ready() as soon as it leads; before the n-th change of
 * that call the word becomes unreadable. */
static void ready_at_once(zke_election *election, int event, int64_t token,
                          void *n) {
  (void)token;
  if (event != ZKE_ELECTION_ELECTED_COMPLETE) return;
  act_at(*(int *)n, word_is_hidden);
  zke_election_ready(election);
}

static int run_lead(call *c) {
  return zke_election_lead(c->object, c->deadline);
}

/* A listener takes office inside lead(), which then cannot read its word and
 * fails: the word is removed with the place. */
TEST(a_lead_that_fails_in_office_takes_the_word_back) {
  int n = 1, failed = 0;
  open_two();
  zke_election_options o = {
      .size = sizeof o, .listener = ready_at_once, .context = &n};
  zke_election *rival = make(intruder, "rival", NULL);
  ck_ok(zke_election_new(caller, PATH, &o, &leads));
  for (bool more = true; more; n++) {
    call c;
    ck_ok(zke_election_start(rival));
    ck_ok(zke_election_start(leads)); /* it waits */
    call_begin(&c, run_lead, leads, 0, ZKE_FOREVER);
    ck_ok(zke_election_resign(rival));
    call_end(&c);
    more = acted();
    failed += c.rc != ZKE_OK;
    ck_rc(zke_exists(intruder, WORD, NULL, NULL, NULL),
          c.rc == ZKE_OK ? ZKE_OK : ZKE_NONODE);
    resign(leads);
    ck_rc(zke_exists(intruder, WORD, NULL, NULL, NULL), ZKE_NONODE);
    zke_dispatch(caller, NULL);
  }
  ck_assert_int_gt(failed, 0);
  zke_election_free(rival);
  zke_election_free(leads);
}

/* ---- observing ---- */

/* One allocation fails, or all, anywhere in the dispatch in which a leader
 * takes office: observers hear of it, once. */
TEST_LOOP(observers_hear_it_when_memory_was_short, 0, 2) {
  test_heap heap = {.fail_all = _i};
  zke_options options = {.size = sizeof options,
                         .allocator = {test_heap_resize, &heap}};
  zke *one, *two;
  int failed = 0;
  ck_ok(zke_open(":memory:", &options, &one));
  ck_ok(zke_open_session(one, &options, &two));
  zke_election *election = make(one, "ann", NULL);
  zke_observer *o = observer_of(two);
  ck_ok(zke_observer_start(o));
  ck_told("nobody");
  for (bool more = true; more;) {
    ck_ok(zke_election_start(election));
    ck_ok(zke_election_ready(election));
    heap.fail_at = heap.calls + ++failed;
    zke_dispatch(two, NULL);
    more = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_until((dispatch_on(two), told[0]), 5000);
    ck_told("ann");
    ck_ok(zke_election_resign(election));
    dispatch_on(two);
    ck_told("nobody");
  }
  ck_assert_int_gt(failed, 3);
  zke_observer_free(o);
  zke_election_free(election);
  ck_ok(zke_close(two));
  ck_ok(zke_close(one));
}

/* An observer hears the state when it starts, then each change: office, death,
 * resignation, handing over.  The first in line is not yet in office. */
TEST(observers_hear_who_is_in_office_and_when_nobody_is) {
  play_election(
      "dan observes; told nobody; ann start; bob start; news ;"
      "ann ready; news ann; ann expires; news nobody; bob ready; news bob;"
      "bob resign; news nobody; dan looks_away;"
      "bob start; bob ready; told bob ELECTED; cid observes; told bob;"
      "cid leader -> bob; cid start; bob hands cid; news nobody;"
      "cid ready; news cid");
}

/* A leader's value comes with its office, can be changed, stays when the word
 * is written again, and goes with the office. */
TEST(observers_hear_of_the_leaders_value) {
  play_election(
      "dan observes; told nobody; ann start; bob start; ann value one; news ;"
      "ann ready; all dispatch; ann value a\nb; all dispatch;"
      "ann value a\nb; news ann=one, ann=a\nb;" /* the second is no news */
      "dan leader -> ann a\nb; delete " WORD
      "; all dispatch;"
      "ann value ; all dispatch; last ann; ann resign; all dispatch;"
      "dan leader -> nobody; bob value two; bob ready;"
      "news nobody, bob=two; bob loses; bob value late -> LOST");
}

/* A word that no candidate could have written counts as nobody. */
TEST(observers_ignore_what_is_no_word) {
  static const char *const no_words[] = {"",    "hello", "12",
                                         "0 x", "-3 x",  "x 12"};
  open_all();
  play("ann start; dan observes; told ann ELECTED, nobody");
  for (int i = 0; i < 6; i++) {
    char script[200];
    snprintf(script, sizeof script,
             "create " WORD
             " %s; all dispatch; dan leader -> nobody;"
             "delete " WORD "; news ",
             no_words[i]);
    play(script);
  }
  close_all();
}

/* An observer waits for a leader, or for its end, on this thread or another; a
 * cancel without a wait has no effect. */
TEST(observers_can_wait) {
  play_election(
      "dan observes; dan awaits_now 0;" /* nobody leads: true already */
      "dan awaits_20 1 -> OPERATIONTIMEOUT; dan gives_up -> IDLE;"
      "dan awaits_20 1 -> OPERATIONTIMEOUT;"
      "ann start; cid observes later; cid begins awaits 1;"
      "ann ready; dan awaits 1; cid returns;"
      "cid begins awaits 0; ann resign; cid returns");
}

/* Only one thread may wait with an observer, for one thing: a second is
 * refused, and the first still gets what it waits for. */
TEST(an_observer_waits_for_one_thing) {
  play_election(
      "cid observes later; cid waits awaits 1; cid awaits 0 -> MISUSE;"
      "said another thread waits with this object;"
      "ann start; ann ready; cid returns; cid awaits_now 1");
}

/* After its session's end an observer reports no leader, and does not take this
 * for the end of the leader that it waits for. */
TEST(an_observer_without_a_session_knows_nobody) {
  play_election(
      "ann start; ann ready; told ann ELECTED; cid observes; told ann;"
      "cid expires; news nobody; cid leader -> INVALIDSTATE;"
      "cid awaits 1 -> INVALIDSTATE;"
      "dan observes; dan waits awaits 0; dan expires;"
      "dan returns -> INVALIDSTATE; ann is ELECTED");
}

/* The word, or "". */
static const char *word(void) {
  static char text[100];
  char *data = NULL;
  int rc = zke_get(z[SESSIONS - 1], WORD, NULL, NULL, &data, NULL, NULL);
  if (rc != ZKE_OK) ck_rc(rc, ZKE_NONODE);
  snprintf(text, sizeof text, "%s", data ? data : "");
  zke_free(data);
  return text;
}

/* ---- any history, one after the other ---- */

/* Hand over, or take office. */
static void hands_over_or_is_ready(unsigned *random, int i) {
  if (rand_r(random) % 3 == 0)
    zke_election_ready(party[i]);
  else
    zke_election_hand_over(party[i], identities[rand_r(random) % 3]);
}

/* Never two leaders; exactly one after all dispatches if there is a candidate;
 * the word is the leader's, or there is none. */
static void expect_one_leader(unsigned *random) {
  int leaders = 0, candidates = 0;
  bool settled = rand_r(random) % 2;
  char start[32];
  if (settled) dispatch_all();
  for (int i = 0; i < PARTIES; i++) {
    if (!party[i]) continue;
    int state = zke_election_state(party[i]);
    candidates += state == ZKE_ELECTION_ELECTED || state == ZKE_ELECTION_READY;
    if (zke_election_check(party[i]) != ZKE_OK) continue;
    leaders++;
    snprintf(start, sizeof start, "%lld ",
             (long long)zke_election_token(party[i]));
    if (*word()) ck_assert(strncmp(word(), start, strlen(start)) == 0);
  }
  if (settled)
    ck_assert_int_eq(leaders, candidates > 0);
  else
    ck_assert_int_le(leaders, 1);
}

/* Random calls, hand-overs and lost sessions: never two leaders, one if there
 * is a candidate and all is dispatched, and rising tokens. */
TEST(any_history_has_one_leader_and_rising_tokens) {
  open_line(LINE_ELECTION);
  play_history(&(line_history){.calls = 3000,
                               .also = hands_over_or_is_ready,
                               .check = expect_one_leader});
}

/* ---- processes ---- */

enum { CROWD = 16 };

/* This process's candidate, named by its number. */
static zke_election *candidate(zke *own) {
  zke_election *election = NULL;
  char name[16];
  zke_election_options o = {.size = sizeof o, .name = name};
  snprintf(name, sizeof name, "p%d", self);
  int rc = zke_election_new(own, PATH, &o, &election);
  if (rc != ZKE_OK) give_up("new", rc);
  return election;
}

/* A process that stands for election, takes office in its turn, and stays. */
static void play_candidate(zke *own) {
  zke_election *election = candidate(own);
  int rc = zke_election_start(election);
  if (rc != ZKE_OK) give_up("volunteer", rc);
  store(&shared->stage[self], -1);
  rc = zke_election_lead(election, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_election_ready(election);
  if (rc != ZKE_OK) give_up("lead", rc);
  store(&shared->stage[self], 1);
  for (;;) test_pause();
}

/* A process that observes, and sleeps between events. */
static void play_observer(zke *own) {
  zke_observer *o = NULL;
  int rc = zke_observer_new(own, PATH, NULL, &o);
  if (rc == ZKE_OK) rc = zke_observer_start(o);
  store(&shared->stage[self], -1);
  while (rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT)
    rc = zke_wait(own, ZKE_FOREVER);
  give_up("observe", rc);
}

/* A kill -9 of the leader wakes the next in line and the observers, and no
 * others; the next one takes office. */
TEST(a_leaders_death_wakes_the_next_and_the_observers) {
  enum { OBSERVER = CROWD - 1 };
  pid_t pid[CROWD];
  long before[CROWD];
  share();
  store(&shared->go, 1);
  for (int i = 0; i < CROWD; i++) {
    pid[i] = spawn(i, i == OBSERVER ? play_observer : play_candidate);
    ck_until(load(&shared->stage[i]) != 0 || *shared->sentence, 10000);
  }
  for (int i = 0; i < 4; i++) {
    ck_until(load(&shared->stage[i]) == 1 || *shared->sentence, 10000);
    ck_assert_str_eq(shared->sentence, "");
    test_settle(shared->bytes, CROWD);
    memcpy(before, shared->bytes, sizeof before);
    kill(pid[i], SIGKILL);
    ck_assert_int_eq(waitpid(pid[i], NULL, 0), pid[i]);
    ck_until(load(&shared->stage[i + 1]) == 1, 10000);
    ck_until(shared->bytes[OBSERVER] > before[OBSERVER], 10000);
    test_settle(shared->bytes, CROWD);
    for (int j = i + 1; j < CROWD; j++) {
      bool woken = shared->bytes[j] > before[j];
      bool due = j == i + 1 || j == OBSERVER;
      ck_assert_msg(woken == due || j == i + 1, "%d was %swoken by %d's death",
                    j, woken ? "" : "not ", i);
    }
  }
  for (int i = 4; i < CROWD; i++) kill(pid[i], SIGKILL);
  while (waitpid(-1, NULL, 0) > 0) continue;
}

/* ---- deaths, lost replies, faults ---- */

/* The typical use: lead, take office, resign. */
static int use_office(zke *user) {
  zke_election *election = NULL;
  zke_election_options o = {.size = sizeof o, .name = "user"};
  int rc = zke_election_new(user, PATH, &o, &election);
  if (rc == ZKE_OK) rc = zke_election_lead(election, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_election_ready(election);
  if (rc == ZKE_OK) rc = zke_election_check(election);
  if (rc == ZKE_OK) rc = zke_election_resign(election);
  zke_election_free(election);
  return rc;
}

/* Two candidates and an observer: office, handing over and back. */
static int hand_to_and_fro(zke *user, zke_election *a, zke_election *b,
                           zke_observer *o) {
  int rc = zke_election_start(a);
  if (rc == ZKE_OK) rc = zke_election_start(b);
  if (rc == ZKE_OK) rc = zke_election_ready(a);
  if (rc == ZKE_OK) rc = zke_observer_wait(o, 1, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_election_hand_over(a, "b");
  if (rc == ZKE_OK) rc = zke_election_lead(b, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_election_ready(b);
  if (rc == ZKE_OK) rc = zke_election_start(a);
  if (rc == ZKE_OK) rc = zke_election_hand_over(b, "a");
  if (rc == ZKE_OK) rc = zke_election_lead(a, zke_now(user) + 2000);
  if (rc == ZKE_OK) rc = zke_election_check(a);
  /* the sentence stays: the heir is gone */
  return rc == ZKE_NONODE ? ZKE_LOST : rc;
}

/* Two candidates of two sessions, and an observer, for hand_to_and_fro(). */
static int use_two(zke *user) {
  zke *further = NULL;
  zke_election *a = NULL, *b = NULL;
  zke_observer *o = NULL;
  char kept[400] = "";
  zke_election_options options = {.size = sizeof options, .listener = listen};
  int rc = zke_open_session(user, NULL, &further);
  options.name = "a";
  if (rc == ZKE_OK) rc = zke_election_new(user, PATH, &options, &a);
  options.name = "b";
  options.listener = NULL;
  if (rc == ZKE_OK) rc = zke_election_new(further, PATH, &options, &b);
  if (rc == ZKE_OK) rc = zke_observer_new(user, PATH, NULL, &o);
  if (rc == ZKE_OK) rc = zke_observer_start(o);
  if (rc == ZKE_OK) rc = hand_to_and_fro(user, a, b, o);
  if (rc != ZKE_OK) snprintf(kept, sizeof kept, "%s", zke_errmsg());
  zke_observer_free(o);
  zke_election_free(b);
  zke_election_free(a);
  zke_close(further);
  return rc == ZKE_OK ? rc : zke_fail(rc, "%s", kept);
}

/* Another candidate leads and takes office; after its term nothing is left. */
static void check_election(zke *by, int rc) {
  zke_election *election = make(by, "other", NULL);
  char *data;
  (void)rc;
  ck_ok(zke_election_lead(election, soon(by)));
  ck_ok(zke_election_ready(election));
  ck_ok(zke_get(by, WORD, NULL, NULL, &data, NULL, NULL));
  ck_assert_str_eq(strchr(data, ' ') + 1, "other");
  zke_free(data);
  ck_assert_int_eq(entries(by, PATH), 2);
  zke_election_free(election);
  ck_assert_int_eq(entries(by, PATH), 0);
  ck_assert_int_eq(watches(by), 0);
}

static const recipe_use uses[] = {{"office", NULL, use_office, check_election},
                                  {"two", NULL, use_two, check_election}};

RECIPE_TESTS(uses, 20, 0);
