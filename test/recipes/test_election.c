/* test_election.c - what elections have besides other lines
 * (recipes/election.h)
 *
 * test_lines has what all lines promise, and the order of the events, which are
 * those of ZooKeeper's LeaderElectionSupport.  Here are the word, handing over
 * and observers.  What happens in the middle of a call is brought about by the
 * table of system calls: another session acts there.
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
#include "recipes/part/limit.h"

#define WORD PATH "/leader"
#define GUID "01234567-89ab-cdef-0123-456789abcdef"

static zke_election *e[SESSIONS];

/* What each listener heard. */
static char heard[SESSIONS][600];
static int64_t heard_token;

/* The listener of a candidate: writes its events in words; the token comes with
 * those of ELECTED only. */
static void listen(zke_election *election, int event, int64_t token, void *c) {
  static const char *const words[] = {"START",
                                      "OFFER_START",
                                      "OFFER_COMPLETE",
                                      "DETERMINE_START",
                                      "DETERMINE_COMPLETE",
                                      "ELECTED_START",
                                      "ELECTED_COMPLETE",
                                      "READY_START",
                                      "READY_COMPLETE",
                                      "FAILED",
                                      "STOP_START",
                                      "STOP_COMPLETE"};
  char *text = c;
  size_t used = strlen(text);
  (void)election;
  snprintf(text + used, sizeof heard[0] - used, "%s%s", used ? " " : "",
           words[event - ZKE_ELECTION_STARTED]);
  bool elected = event == ZKE_ELECTION_ELECTED_START ||
                 event == ZKE_ELECTION_ELECTED_COMPLETE;
  ck_assert_int_eq(token != 0, elected);
  if (elected) heard_token = token;
}

#define OFFERED "START OFFER_START OFFER_COMPLETE "
#define DETERMINED "DETERMINE_START DETERMINE_COMPLETE "
#define ELECTED DETERMINED "ELECTED_START ELECTED_COMPLETE"
#define READY DETERMINED "READY_START READY_COMPLETE"
#define STOPPED "STOP_START STOP_COMPLETE"

#define ck_heard(i, expected)             \
  do {                                    \
    ck_assert_str_eq(heard[i], expected); \
    heard[i][0] = '\0';                   \
  } while (0)

/* A candidate with that name, whose listener writes to text, where given. */
static zke_election *make(zke *session, const char *name, char *text) {
  zke_election *election;
  zke_election_options o = {.size = sizeof o,
                            .name = name,
                            .listener = text ? listen : NULL,
                            .context = text};
  ck_ok(zke_election_new(session, PATH, &o, &election));
  return election;
}

static void open_all(void) {
  open_sessions();
  for (int i = 0; i < SESSIONS; i++) e[i] = make(z[i], identities[i], heard[i]);
}

/* Nothing stays behind. */
static void close_all(void) {
  for (int i = 0; i < SESSIONS; i++) zke_election_free(e[i]);
  close_clean(PATH);
}

static void volunteer(int count) {
  for (int i = 0; i < count; i++) ck_ok(zke_election_start(e[i]));
  memset(heard, 0, sizeof heard);
}

/* The path of a candidate's znode. */
static const char *latch(int i) {
  static char path[200];
  zke_strings *own;
  ck_ok(zke_ephemerals(z[3], zke_session_id(z[i]), PATH "/_c_", &own));
  ck_assert_int_eq(own->count, 1);
  snprintf(path, sizeof path, "%s", own->data[0]);
  zke_free(own);
  return path;
}

/* "ann bob cid": the leader and who comes next; "ann!" is in office. */
static const char *queue(void) {
  static char text[200];
  zke_party_list *list;
  text[0] = '\0';
  ck_ok(zke_election_parties(z[SESSIONS - 1], PATH, &list));
  for (int i = 0; i < list->count; i++) {
    const zke_party *p = &list->data[i];
    ck_assert_int_eq(p->held, i == 0);
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s", used ? " " : "",
             p->data ? p->data : "-");
  }
  zke_free(list);
  return text;
}

/* The word of who is in office, or "". */
static const char *word(void) {
  static char text[100];
  char *data = NULL;
  int rc = zke_get(z[SESSIONS - 1], WORD, NULL, NULL, &data, NULL, NULL);
  if (rc != ZKE_OK) ck_rc(rc, ZKE_NONODE);
  snprintf(text, sizeof text, "%s", data ? data : "");
  zke_free(data);
  return text;
}

static const char *word_of(int i) {
  static char text[100];
  snprintf(text, sizeof text, "%lld %s", (long long)zke_election_token(e[i]),
           identities[i]);
  return text;
}

/* Who has lost its session has another from now on. */
static void renew(int i) {
  zke_election_free(e[i]);
  renew_session(i);
  e[i] = make(z[i], identities[i], heard[i]);
}

static int run_lead(call *c) {
  return zke_election_lead(c->object, c->deadline);
}

/* zke_election_lead() on a thread of its own. */
static void lead_aside(call *c, zke_election *election, int64_t deadline) {
  call_begin(c, run_lead, election, 0, deadline);
}

/* ---- events ---- */

/* Whether or not it was a candidate. */
static void resign(zke_election *which) {
  int rc = zke_election_resign(which);
  if (rc != ZKE_LOST) ck_ok(rc);
  ck_assert_int_eq(zke_election_state(which), ZKE_ELECTION_STOP);
}

/* A candidate without rivals passes all states in one call; its token comes
 * with ELECTED; resigning ends its candidacy once. */
TEST(the_first_is_elected) {
  open_all();
  ck_assert_int_eq(zke_election_state(e[0]), ZKE_ELECTION_STOP);
  ck_ok(zke_election_start(e[0]));
  ck_heard(0, OFFERED ELECTED);
  ck_assert_int_eq(zke_election_state(e[0]), ZKE_ELECTION_ELECTED);
  ck_assert_int_gt(zke_election_token(e[0]), 0);
  ck_assert_int_eq(heard_token, zke_election_token(e[0]));
  ck_ok(zke_election_check(e[0]));
  ck_rc(zke_election_start(e[0]), ZKE_MISUSE);
  ck_ok(zke_election_resign(e[0]));
  ck_heard(0, STOPPED);
  ck_assert_int_eq(zke_election_state(e[0]), ZKE_ELECTION_STOP);
  ck_assert_int_eq(zke_election_token(e[0]), 0);
  ck_rc(zke_election_check(e[0]), ZKE_LOST);
  ck_rc(zke_election_resign(e[0]), ZKE_LOST); /* is none */
  ck_heard(0, "");
  close_all();
}

/* The states that a listener sees, in the order of its events. */
static void note_state(zke_election *election, int event, int64_t token,
                       void *context) {
  char *text = context;
  (void)event, (void)token;
  text[strlen(text)] = "-SODERF"[zke_election_state(election)];
}

/* START, OFFER and DETERMINE are passed inside one call, and seen by the
 * listener. */
TEST(the_listener_sees_each_state) {
  char states[64] = "";
  zke_election *mine;
  zke_election_options o = {
      .size = sizeof o, .listener = note_state, .context = states};
  open_all();
  ck_ok(zke_election_start(e[0]));
  ck_ok(zke_election_new(z[1], PATH, &o, &mine));
  ck_ok(zke_election_start(mine));
  ck_assert_str_eq(states, "SOODDRR");
  ck_assert_int_eq(zke_election_state(mine), ZKE_ELECTION_READY);
  ck_ok(zke_election_resign(e[0]));
  memset(states, 0, sizeof states);
  dispatch_all();
  ck_assert_str_eq(states, "DDEE");
  ck_assert_int_eq(zke_election_state(mine), ZKE_ELECTION_ELECTED);
  ck_ok(zke_expire(z[0], zke_session_id(z[1])));
  memset(states, 0, sizeof states);
  dispatch_all();
  ck_assert_str_eq(states, "F");
  zke_election_free(mine);
  close_all();
}

/* Those behind the leader are told READY, and nothing more until their turn;
 * each new leader has a greater token. */
TEST(the_others_are_ready_and_follow_in_order) {
  open_all();
  ck_ok(zke_election_start(e[0]));
  ck_ok(zke_election_start(e[1]));
  ck_ok(zke_election_start(e[2]));
  ck_heard(1, OFFERED READY);
  ck_heard(2, OFFERED READY);
  ck_assert_int_eq(zke_election_state(e[1]), ZKE_ELECTION_READY);
  ck_assert_str_eq(queue(), "ann bob cid");
  ck_rc(zke_election_check(e[1]), ZKE_LOST);
  int64_t token = zke_election_token(e[0]);
  ck_ok(zke_election_resign(e[0]));
  dispatch_all();
  ck_heard(1, ELECTED);
  ck_heard(2, "");
  ck_assert_int_gt(zke_election_token(e[1]), token);
  ck_assert_str_eq(queue(), "bob cid");
  close_all();
}

/* The one before goes, but it did not lead: determined anew, ready again. */
TEST(a_candidate_that_moves_up_determines_again) {
  open_all();
  volunteer(3);
  ck_ok(zke_election_resign(e[1]));
  dispatch_all();
  ck_heard(0, "");
  ck_heard(1, STOPPED);
  ck_heard(2, READY);
  ck_ok(zke_election_resign(e[0]));
  dispatch_all();
  ck_heard(2, ELECTED);
  close_all();
}

/* A leader whose session has ended hears FAILED; the word of its office has
 * gone; no call of it claims anything (P5, P6). */
TEST(an_expired_session_leads_no_more) {
  open_all();
  volunteer(2);
  ck_ok(zke_election_ready(e[0]));
  ck_ok(zke_expire(z[3], zke_session_id(z[0])));
  dispatch_all();
  ck_heard(0, "FAILED");
  ck_heard(1, ELECTED);
  ck_assert_str_eq(word(), "");
  ck_assert_int_eq(zke_election_state(e[0]), ZKE_ELECTION_FAILED);
  ck_assert_int_eq(zke_election_token(e[0]), 0);
  ck_rc(zke_election_check(e[0]), ZKE_INVALIDSTATE);
  ck_rc(zke_election_ready(e[0]), ZKE_INVALIDSTATE);
  ck_rc(zke_election_resign(e[0]), ZKE_INVALIDSTATE);
  close_all();
}

/* P11: arguments that make no sense are refused, among them a name with a line
 * break; the output is NULL then. */
TEST(arguments_are_checked) {
  zke_election *election = NULL;
  zke_observer *o = NULL;
  zke_election_options options = {.size = sizeof options, .name = "a\nb"};
  open_all();
  ck_rc(zke_election_new(z[0], PATH, &options, &election), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(election);
  ck_rc(zke_election_hand_over(e[0], NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_election_hand_over(e[0], "bob"), ZKE_LOST);
  ck_rc(zke_election_ready(e[0]), ZKE_LOST);
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
  zke_observer *o = NULL;
  open_all();
  ck_ok(zke_lock_new(z[0], PATH, NULL, &lock));
  ck_ok(zke_lock_try(lock));
  ck_ok(zke_observer_new(z[1], PATH, NULL, &o));
  ck_rc(zke_observer_start(o), ZKE_OTHERKIND);
  ck_says(PATH " is of kind lock, not election");
  ck_rc(zke_observer_wait(o, 1, soon(z[1])), ZKE_OTHERKIND);
  ck_rc(zke_observer_leader(o, NULL, NULL, NULL, NULL), ZKE_MISUSE);
  zke_observer_free(o);
  zke_lock_free(lock);
  close_all();
}

/* A mark that names nobody is ignored, and does not stay. */
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
  close_line();
}

/* Nobody dispatches: a leader that has lost its place hands nothing over, takes
 * no office, and leads no longer when it is asked to lead again. */
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

/* A listener may take office, resign, or free its candidate. */
static void acts(zke_election *election, int event, int64_t token, void *c) {
  const int *what = c;
  (void)token;
  if (event != ZKE_ELECTION_ELECTED_COMPLETE) return;
  ck_ok(zke_election_ready(election));
  if (*what == 1) ck_ok(zke_election_resign(election));
  if (*what == 2) zke_election_free(election);
}

/* The listener takes office, resigns or frees, as it hears that it is
 * elected. */
TEST_LOOP(a_listener_may_call_anything, 0, 3) {
  int what = _i;
  zke_election *election;
  zke_election_options o = {
      .size = sizeof o, .listener = acts, .context = &what};
  open_all();
  volunteer(1);
  ck_ok(zke_election_new(z[1], PATH, &o, &election));
  ck_ok(zke_election_start(election));
  ck_ok(zke_election_resign(e[0]));
  dispatch_all();
  ck_assert_int_eq(*word() != '\0', what == 0);
  if (what != 2) zke_election_free(election);
  close_all();
}

/* ---- taking office ---- */

/* The word is the leader's alone: refused to others, once however often it is
 * asked for, and not written again after the place was lost. */
TEST(only_the_leader_takes_office) {
  open_all();
  volunteer(2);
  ck_assert_str_eq(word(), ""); /* first in line is not yet in office */
  ck_rc(zke_election_ready(e[1]), ZKE_LOST);
  ck_rc(zke_election_ready(e[2]), ZKE_LOST);
  ck_assert_str_eq(word(), "");
  ck_ok(zke_election_ready(e[0]));
  ck_assert_str_eq(word(), word_of(0));
  ck_ok(zke_election_ready(e[0])); /* twice does no harm */
  zke_stat stat;
  ck_ok(zke_exists(z[1], WORD, NULL, NULL, &stat));
  ck_assert_int_eq(stat.ephemeralOwner, zke_session_id(z[0]));
  ck_ok(zke_delete(z[3], WORD, -1));
  ck_ok(zke_delete(z[3], latch(0), -1));
  ck_ok(zke_dispatch(z[0], NULL)); /* wants to write it again, but is none */
  ck_assert_str_eq(word(), "");
  ck_rc(zke_election_ready(e[0]), ZKE_LOST);
  close_all();
}

/* Resigning takes it back in one step with the place. */
TEST(resigning_takes_the_word_back) {
  test_events seen = {0};
  open_all();
  volunteer(2);
  ck_ok(zke_election_ready(e[0]));
  ck_ok(zke_add_watch(z[3], WORD, ZKE_WATCH_PERSISTENT, test_record, &seen));
  zke_stat before, after;
  ck_ok(zke_exists(z[3], PATH, NULL, NULL, &before));
  ck_ok(zke_election_resign(e[0]));
  ck_ok(zke_exists(z[3], PATH, NULL, NULL, &after));
  ck_assert_int_eq(after.cversion, before.cversion + 2);
  test_expect(z[3], &seen, "DELETED " WORD);
  dispatch_all();
  ck_ok(zke_election_ready(e[1]));
  ck_assert_str_eq(word(), word_of(1));
  ck_ok(zke_remove_watch(z[3], WORD, ZKE_WATCH_ANY, test_record, &seen));
  close_all();
}

/* A former leader's word that somehow stayed is replaced, in one step: nobody
 * sees two or none. */
TEST_LOOP(a_stale_word_is_replaced, 0, 2) {
  zke_stat word_stat, place;
  open_all();
  volunteer(1);
  ck_ok(zke_create(z[3], WORD, "1 old", 5, ZKE_OPEN_ACL,
                   _i ? ZKE_PERSISTENT : ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_exists(z[3], PATH, NULL, NULL, &place));
  ck_ok(zke_election_ready(e[0]));
  ck_assert_str_eq(word(), word_of(0));
  ck_ok(zke_exists(z[3], WORD, NULL, NULL, &word_stat));
  ck_assert_int_eq(word_stat.ephemeralOwner, zke_session_id(z[0]));
  int version = place.cversion;
  ck_ok(zke_exists(z[3], PATH, NULL, NULL, &place));
  ck_assert_int_eq(place.cversion, version + 2);
  ck_assert_int_eq(place.pzxid, word_stat.czxid);
  close_all();
}

/* "Leader key deleted by somebody else": it is written again. */
TEST(a_deleted_word_is_written_again) {
  open_all();
  volunteer(2);
  ck_ok(zke_election_ready(e[0]));
  for (int i = 0; i < 3; i++) {
    ck_ok(zke_delete(z[3], WORD, -1));
    dispatch_all();
    ck_assert_str_eq(word(), word_of(0));
  }
  ck_ok(zke_set(z[3], WORD, "9 me", 4, -1, NULL));
  dispatch_all();
  ck_assert_str_eq(word(), word_of(0));
  ck_ok(zke_election_resign(e[0]));
  dispatch_all();
  ck_assert_str_eq(word(), "");
  close_all();
}

/* Who lost its place, but lives, takes its word back; not the next one's. */
TEST_LOOP(a_lost_place_takes_the_word_back, 0, 2) {
  open_all();
  volunteer(2);
  ck_ok(zke_election_ready(e[0]));
  ck_ok(zke_delete(z[3], latch(0), -1));
  if (_i) {
    zke_dispatch(z[1], NULL);
    ck_ok(zke_election_ready(e[1]));
  }
  zke_dispatch(z[0], NULL);
  ck_assert_str_eq(word(), _i ? word_of(1) : "");
  dispatch_all();
  ck_assert_str_eq(word(), _i ? word_of(1) : "");
  close_all();
}

/* ---- handing over ---- */

/* Handing over brings the named candidate before all that came earlier; these
 * keep their order. Tokens rise with each hand-over. */
TEST(the_named_one_leads_next) {
  open_all();
  volunteer(4);
  ck_ok(zke_election_ready(e[0]));
  int64_t token = zke_election_token(e[0]);
  ck_ok(zke_election_hand_over(e[0], "cid"));
  ck_heard(0, STOPPED);
  ck_assert_str_eq(word(), "");
  ck_assert_str_eq(queue(), "cid bob dan");
  dispatch_all();
  ck_heard(1, READY);
  ck_heard(2, ELECTED);
  ck_heard(3, "");
  ck_assert_int_eq(watches(z[2]), 1); /* its own znode, not bob's any more */
  ck_assert_int_gt(zke_election_token(e[2]), token);
  token = zke_election_token(e[2]);
  ck_ok(zke_election_ready(e[2]));
  ck_ok(zke_election_hand_over(e[2], "dan")); /* and on */
  dispatch_all();
  ck_assert_str_eq(queue(), "dan bob");
  ck_assert_int_gt(zke_election_token(e[3]), token);
  ck_ok(zke_election_start(e[0]));
  ck_assert_str_eq(queue(), "dan bob ann");
  token = zke_election_token(e[3]);
  ck_ok(zke_election_resign(e[3]));
  dispatch_all();
  ck_assert_str_eq(queue(), "bob ann");
  ck_assert_int_gt(zke_election_token(e[1]), token);
  close_all();
}

/* A name that no candidate has, the leader's own, or a caller that does not
 * lead: refused, and the leader stays in office. */
TEST(handing_over_to_nobody_changes_nothing) {
  open_all();
  volunteer(2);
  ck_ok(zke_election_ready(e[0]));
  ck_rc(zke_election_hand_over(e[0], "zoe"), ZKE_NONODE);
  ck_says("no candidate named zoe");
  ck_rc(zke_election_hand_over(e[0], "ann"), ZKE_NONODE); /* oneself */
  ck_rc(zke_election_hand_over(e[1], "ann"), ZKE_LOST);   /* leads not */
  dispatch_all();
  ck_ok(zke_election_check(e[0]));
  ck_assert_str_eq(word(), word_of(0));
  ck_assert_str_eq(queue(), "ann bob");
  ck_heard(0, "");
  close_all();
}

/* Two candidates have one name: the first of them is meant; handed on to the
 * same name, the other. */
TEST(of_several_of_a_name_the_first_leads) {
  zke_election *twin[2];
  open_all();
  volunteer(2);
  for (int i = 0; i < 2; i++) {
    twin[i] = make(z[3], "twin", NULL);
    ck_ok(zke_election_start(twin[i]));
  }
  ck_ok(zke_election_hand_over(e[0], "twin"));
  dispatch_all();
  ck_ok(zke_election_check(twin[0]));
  ck_rc(zke_election_check(twin[1]), ZKE_LOST);
  ck_ok(zke_election_hand_over(twin[0], "twin")); /* to the other one */
  dispatch_all();
  ck_ok(zke_election_check(twin[1]));
  ck_assert_str_eq(queue(), "twin bob");
  for (int i = 0; i < 2; i++) zke_election_free(twin[i]);
  close_all();
}

/* The heir dies before it knows, or when it leads; the next in line leads. */
TEST_LOOP(an_heir_that_dies_is_passed_over, 0, 2) {
  open_all();
  volunteer(3);
  ck_ok(zke_election_hand_over(e[0], "cid"));
  if (_i) dispatch_all();
  ck_ok(zke_expire(z[3], zke_session_id(z[2])));
  dispatch_all();
  ck_ok(zke_election_check(e[1]));
  ck_assert_str_eq(queue(), "bob");
  renew(2);
  ck_ok(zke_election_start(e[2])); /* its mark is for another znode */
  ck_assert_str_eq(queue(), "bob cid");
  ck_assert_int_eq(entries(z[0], PATH), 2); /* and has gone */
  close_all();
}

/* ---- in the middle of a call ---- */

static zke_election *leads, *between, *heir;
static int handed;

static void hands_over(void) { handed = zke_election_hand_over(leads, "heir"); }

/* The leader hands over while the heir is still joining: wherever that falls,
 * the heir hears of it. */
TEST(an_heir_that_is_joining_hears_of_it) {
  int handed_over = 0;
  open_two();
  leads = make(intruder, "old", NULL);
  between = make(intruder, "between", NULL);
  heir = make(caller, "heir", NULL);
  for (int n = 1;; n++) {
    handed = 1;
    ck_ok(zke_election_start(leads));
    ck_ok(zke_election_ready(leads));
    ck_ok(zke_election_start(between));
    act_at(n, hands_over);
    ck_ok(zke_election_start(heir));
    bool more = acted();
    while (zke_election_state(heir) != ZKE_ELECTION_ELECTED && handed == ZKE_OK)
      ck_rc(zke_wait(caller, zke_now(caller) + 20000), ZKE_OK);
    zke_dispatch(intruder, NULL);
    ck_assert_int_eq(zke_election_state(between), ZKE_ELECTION_READY);
    handed_over += handed == ZKE_OK;
    resign(heir);
    resign(between);
    resign(leads);
    ck_assert_int_eq(entries(caller, PATH), 0);
    zke_dispatch(caller, NULL);
    zke_dispatch(intruder, NULL);
    if (!more) break;
  }
  ck_assert_int_gt(handed_over, 1);
  zke_election_free(heir);
  zke_election_free(between);
  zke_election_free(leads);
  close_two();
}

static void heir_goes(void) { ck_ok(zke_election_resign(heir)); }
/* The leader's place is deleted under it, by the intruder. */
static void leader_goes(void) {
  char path[200];
  zke_strings *own;
  ck_ok(zke_ephemerals(intruder, zke_session_id(caller), PATH "/_c_", &own));
  for (int i = 0; i < own->count; i++) {
    snprintf(path, sizeof path, "%s", own->data[i]);
    ck_ok(zke_delete(intruder, path, -1));
  }
  zke_free(own);
}

/* The heir, or the leader's own place, goes in the middle of handing over:
 * somebody leads afterwards, and only one. */
TEST_LOOP(handing_over_survives_losses_in_its_middle, 0, 2) {
  open_two();
  leads = make(caller, "old", NULL);
  between = make(intruder, "between", NULL);
  heir = make(intruder, "heir", NULL);
  int refused = 0;
  for (int n = 1;; n++) {
    ck_ok(zke_election_start(leads));
    ck_ok(zke_election_start(between));
    ck_ok(zke_election_start(heir));
    ck_ok(zke_election_ready(leads));
    act_at(n, _i ? leader_goes : heir_goes);
    int rc = zke_election_hand_over(leads, "heir");
    bool more = acted();
    zke_dispatch(caller, NULL);
    zke_dispatch(intruder, NULL);
    if (!more || rc == ZKE_OK) /* it was over already */
      ck_ok(rc);
    else
      ck_rc(rc, _i ? ZKE_LOST : ZKE_NONODE);
    refused += rc != ZKE_OK;
    int leaders = 0;
    leaders += zke_election_check(leads) == ZKE_OK;
    leaders += zke_election_check(between) == ZKE_OK;
    leaders += zke_election_check(heir) == ZKE_OK;
    ck_assert_int_eq(leaders, 1);
    resign(leads);
    resign(heir);
    resign(between);
    ck_assert_int_eq(entries(caller, PATH), 0);
    zke_dispatch(caller, NULL);
    zke_dispatch(intruder, NULL);
    if (!more) break;
  }
  ck_assert_int_gt(refused, 0);
  zke_election_free(heir);
  zke_election_free(between);
  zke_election_free(leads);
  close_two();
}

/* One call: the leader's place is deleted before its n-th change, and the read
 * that comes after `skip` others loses its reply. */
static void hand_over_what_is_lost(int n, int skip) {
  ck_ok(zke_election_start(leads));
  ck_ok(zke_election_start(heir));
  ck_ok(zke_election_ready(leads));
  act_at(n, leader_goes);
  ck_ok(zke_test_fail(caller, ZKE_TEST_FAIL_READ, skip));
  int rc = zke_election_hand_over(leads, "heir");
  ck_ok(zke_test_fail(caller, 0, 0));
  if (!acted())
    ck_assert(rc == ZKE_OK || rc == ZKE_CONNECTIONLOSS);
  else if (rc != ZKE_CONNECTIONLOSS) /* a read that is not repeated */
    ck_rc(rc, ZKE_LOST);
  zke_dispatch(caller, NULL);
  zke_dispatch(intruder, NULL);
  resign(leads);
  resign(heir);
  zke_dispatch(caller, NULL);
  zke_dispatch(intruder, NULL);
}

/* A place that was taken away in the middle of handing over is lost, also where
 * a read has lost its reply: nothing was handed over. */
TEST(a_lost_read_is_no_handing_over) {
  open_two();
  leads = make(caller, "old", NULL);
  heir = make(intruder, "heir", NULL);
  for (int n = 1; n <= 3; n++) {
    for (int skip = 0; skip < 10; skip++) hand_over_what_is_lost(n, skip);
  }
  zke_election_free(heir);
  zke_election_free(leads);
  close_two();
}

/* Handing over loses its reply, made (1) or not (0), and at some moment the
 * leader's place is deleted: the call says that it was handed over exactly if
 * the heir leads. */
TEST_LOOP(a_place_that_is_taken_away_was_not_handed_over, 0, 2) {
  int lost = 0, when = _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE;
  bool more = true;
  open_two();
  leads = make(caller, "old", NULL);
  between = make(intruder, "between", NULL);
  heir = make(intruder, "heir", NULL);
  for (int n = 1; more; n++) {
    ck_ok(zke_election_start(leads));
    ck_ok(zke_election_start(between));
    ck_ok(zke_election_start(heir));
    ck_ok(zke_election_ready(leads));
    ck_ok(zke_test_fail(caller, when, 0));
    act_between(n, leader_goes);
    int rc = zke_election_hand_over(leads, "heir");
    more = acted();
    ck_ok(zke_test_fail(caller, 0, 0));
    zke_dispatch(caller, NULL);
    zke_dispatch(intruder, NULL);
    if (rc != ZKE_OK) ck_rc(rc, ZKE_LOST);
    ck_ok(zke_election_check(rc == ZKE_OK ? heir : between));
    lost += rc == ZKE_LOST;
    resign(leads);
    resign(between);
    resign(heir);
    zke_dispatch(caller, NULL);
    zke_dispatch(intruder, NULL);
  }
  ck_assert_int_gt(lost, 0);
  zke_election_free(heir);
  zke_election_free(between);
  zke_election_free(leads);
  close_two();
}

/* The heir goes, and the leader's place before the caller's next change. */
static void both_go(void) {
  heir_goes();
  act_at(1, leader_goes);
}

/* The heir goes in the middle of handing over, and then the leader's place
 * while it is watched again: the call ends with a code for it. */
TEST(handing_over_survives_the_loss_of_both) {
  int lost = 0;
  open_two();
  leads = make(caller, "old", NULL);
  heir = make(intruder, "heir", NULL);
  for (int n = 1; n <= 6; n++) {
    ck_ok(zke_election_start(leads));
    ck_ok(zke_election_start(heir));
    ck_ok(zke_election_ready(leads));
    act_at(n, both_go);
    int rc = zke_election_hand_over(leads, "heir");
    acted();
    ck_assert(rc == ZKE_OK || rc == ZKE_LOST || rc == ZKE_NONODE);
    lost += rc == ZKE_LOST;
    zke_dispatch(caller, NULL);
    zke_dispatch(intruder, NULL);
    resign(leads);
    resign(heir);
    ck_assert_int_eq(entries(caller, PATH), 0);
    zke_dispatch(caller, NULL);
    zke_dispatch(intruder, NULL);
  }
  ck_assert_int_gt(lost, 0);
  zke_election_free(heir);
  zke_election_free(leads);
  close_two();
}

/* Taking office while somebody takes the place away, or another's word is put
 * in between. */
static void word_comes(void) {
  zke_create(intruder, WORD, "1 old", 5, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
             NULL);
}

static void word_goes(void) { zke_delete(intruder, WORD, -1); }

/* Before each change of ready() the place is deleted, or another word comes or
 * goes: in the end the word is the leader's, or there is none. */
TEST_LOOP(taking_office_survives_changes_in_its_middle, 0, 3) {
  static void (*const actions[])(void) = {leader_goes, word_comes, word_goes};
  zke_stat stat;
  open_two();
  leads = make(caller, "old", NULL);
  for (int n = 1;; n++) {
    ck_ok(zke_election_start(leads));
    if (actions[_i] == word_goes) word_comes();
    act_at(n, actions[_i]);
    int rc = zke_election_ready(leads);
    bool more = acted();
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
    resign(leads);
    ck_assert_int_eq(entries(caller, PATH), 0);
    zke_dispatch(caller, NULL);
    if (!more) break;
  }
  zke_election_free(leads);
  close_two();
}

/* The word can be read no more. */
static void word_is_hidden(void) {
  const zke_acl acl = {ZKE_PERM_ALL - ZKE_PERM_READ, "world", "anyone"};
  zke_set_acl(intruder, WORD, -1, &(zke_acls){1, &acl}, NULL);
}

/* The listener of one that says that it is ready as soon as it leads; before
 * the n-th change of that the word is hidden. */
static void ready_at_once(zke_election *election, int event, int64_t token,
                          void *n) {
  (void)token;
  if (event != ZKE_ELECTION_ELECTED_COMPLETE) return;
  act_at(*(int *)n, word_is_hidden);
  zke_election_ready(election);
}

/* A listener takes office inside lead(), which then cannot read its word and
 * fails: the word goes with the place. */
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
    lead_aside(&c, leads, ZKE_FOREVER);
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
  close_two();
}

/* ---- without memory ---- */

static test_heap heap;

/* Two sessions whose allocations can fail. */
static void open_short(void) {
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  heap = (test_heap){0};
  ck_ok(zke_open(":memory:", &o, &z[0]));
  ck_ok(zke_open_session(z[0], &o, &z[1]));
  e[0] = make(z[0], "ann", NULL);
  e[1] = make(z[1], "bob", heard[1]);
}

static void close_short(void) {
  for (int i = 1; i >= 0; i--) {
    zke_election_free(e[i]);
    ck_ok(zke_close(z[i]));
  }
}

/* ---- observing ---- */

static char observed[400];

/* The listener of an observer: writes "name=value", or "nobody". */
static void observe(zke_observer *o, const char *name, int64_t token,
                    const char *value, int len, void *c) {
  size_t used = strlen(observed);
  (void)o, (void)c;
  ck_assert_int_eq(name != NULL, token != 0);
  ck_assert_int_eq(name != NULL, value != NULL);
  snprintf(observed + used, sizeof observed - used, "%s%s%s%.*s",
           used ? " " : "", name ? name : "nobody", len ? "=" : "", len,
           len ? value : "");
}

#define ck_observed(expected)             \
  do {                                    \
    ck_assert_str_eq(observed, expected); \
    observed[0] = '\0';                   \
  } while (0)

/* The path of the leader's znode. */
static const char *parties_first(zke *session) {
  static char path[128];
  zke_party_list *list;
  ck_ok(zke_election_parties(session, PATH, &list));
  snprintf(path, sizeof path, PATH "/%s", list->data[0].name);
  zke_free(list);
  return path;
}

static zke_observer *observer_of(zke *session) {
  zke_observer *o;
  zke_observer_options options = {.size = sizeof options, .listener = observe};
  ck_ok(zke_observer_new(session, PATH, &options, &o));
  ck_ok(zke_observer_start(o));
  return o;
}

/* An observer hears what is the case when it starts, then each change: office,
 * death, resignation. First in line is not in office. */
TEST(observers_hear_who_is_in_office_and_when_nobody_is) {
  open_all();
  zke_observer *o = observer_of(z[3]);
  ck_observed("nobody");
  volunteer(2);
  dispatch_all();
  ck_observed(""); /* first in line is not in office */
  ck_ok(zke_election_ready(e[0]));
  dispatch_all();
  ck_observed("ann");
  ck_ok(zke_expire(z[3], zke_session_id(z[0])));
  dispatch_all();
  ck_observed("nobody");
  ck_ok(zke_election_ready(e[1]));
  dispatch_all();
  ck_observed("bob");
  ck_ok(zke_election_resign(e[1]));
  dispatch_all();
  ck_observed("nobody");
  zke_observer_free(o);
  ck_ok(zke_election_start(e[1]));
  ck_ok(zke_election_ready(e[1]));
  o = observer_of(z[2]);
  ck_observed("bob"); /* first of all what is the case */
  char *name;
  int64_t token;
  ck_ok(zke_observer_leader(o, &name, &token, NULL, NULL));
  ck_assert_str_eq(name, "bob");
  ck_assert_int_eq(token, zke_election_token(e[1]));
  zke_free(name);
  zke_observer_free(o);
  close_all();
}

/* A leader's value: with its office, changed in place, kept when the word is
 * written again, and gone with the office. */
TEST(observers_hear_of_the_leaders_value) {
  char *value;
  int len;
  open_all();
  zke_observer *o = observer_of(z[3]);
  volunteer(2);
  ck_ok(zke_election_set(e[0], "one", 3, soon(z[0])));
  dispatch_all();
  ck_observed("nobody"); /* not in office yet */
  ck_ok(zke_election_ready(e[0]));
  dispatch_all();
  ck_ok(zke_election_set(e[0], "a\nb", 3, soon(z[0])));
  dispatch_all();
  ck_ok(zke_election_set(e[0], "a\nb", 3, soon(z[0]))); /* no news */
  dispatch_all();
  ck_observed("ann=one ann=a\nb");
  ck_ok(zke_observer_leader(o, NULL, NULL, &value, &len));
  ck_assert_int_eq(len, 3);
  ck_assert_str_eq(value, "a\nb");
  zke_free(value);
  ck_ok(zke_delete(z[2], WORD, -1));
  dispatch_all();
  ck_ok(zke_election_set(e[0], NULL, 0, soon(z[0])));
  dispatch_all();
  const char *last = strrchr(observed, ' '); /* it may have missed the word */
  ck_assert_str_eq(last ? last + 1 : observed, "ann");
  observed[0] = '\0';
  ck_ok(zke_election_resign(e[0]));
  dispatch_all();
  ck_ok(zke_observer_leader(o, NULL, NULL, &value, &len));
  ck_assert_ptr_null(value);
  ck_assert_int_eq(len, 0);
  ck_ok(zke_election_set(e[1], "two", 3, soon(z[1])));
  ck_ok(zke_election_ready(e[1]));
  dispatch_all();
  ck_observed("nobody bob=two");
  ck_ok(zke_delete(z[2], parties_first(z[2]), -1));
  ck_rc(zke_election_set(e[1], "late", 4, soon(z[1])), ZKE_LOST);
  ck_rc(zke_election_set(e[1], "x", -1, 0), ZKE_BADARGUMENTS);
  zke_observer_free(o);
  close_all();
}

/* One allocation fails, or all, anywhere in the dispatch in which a leader
 * takes office: observers hear of it, once. */
TEST_LOOP(observers_hear_it_when_memory_was_short, 0, 2) {
  int failed = 0;
  open_short();
  heap.fail_all = _i;
  zke_observer *o = observer_of(z[1]);
  ck_observed("nobody");
  for (bool more = true; more;) {
    ck_ok(zke_election_start(e[0]));
    ck_ok(zke_election_ready(e[0]));
    heap.fail_at = heap.calls + ++failed;
    zke_dispatch(z[1], NULL);
    more = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_until((dispatch_on(z[1]), observed[0]), 5000);
    ck_observed("ann");
    ck_ok(zke_election_resign(e[0]));
    dispatch_on(z[1]);
    ck_observed("nobody");
  }
  ck_assert_int_gt(failed, 3);
  zke_observer_free(o);
  close_short();
}

/* Handing over: nobody, then the heir as soon as it takes office. */
TEST(observers_hear_of_a_hand_over) {
  open_all();
  zke_observer *o = observer_of(z[3]);
  volunteer(3);
  ck_ok(zke_election_ready(e[0]));
  dispatch_all();
  ck_ok(zke_election_hand_over(e[0], "cid"));
  dispatch_all();
  ck_ok(zke_election_ready(e[2]));
  dispatch_all();
  ck_observed("nobody ann nobody cid");
  zke_observer_free(o);
  close_all();
}

/* No word that a candidate could have written: nobody. */
TEST(observers_ignore_what_is_no_word) {
  static const char *const no_words[] = {"",    "hello", "12",
                                         "0 x", "-3 x",  "x 12"};
  open_all();
  volunteer(1);
  zke_observer *o = observer_of(z[3]);
  observed[0] = '\0';
  for (int i = 0; i < 6; i++) {
    ck_ok(zke_create(z[0], WORD, no_words[i], (int)strlen(no_words[i]),
                     ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
    dispatch_all();
    char *name = (char *)(uintptr_t) "";
    int64_t token = 1;
    ck_ok(zke_observer_leader(o, &name, &token, NULL, NULL));
    ck_assert_ptr_null(name);
    ck_assert_int_eq(token, 0);
    ck_ok(zke_delete(z[0], WORD, -1));
    dispatch_all();
  }
  ck_observed("");
  zke_observer_free(o);
  close_all();
}

/* A thread that waits for a leader, says so, and waits for its end. */
static void *await_leader(void *context) {
  call *c = context;
  zke_observer *o;
  c->rc = zke_observer_new(z[2], PATH, NULL, &o);
  if (c->rc == ZKE_OK) c->rc = zke_observer_wait(o, 1, c->deadline);
  __atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
  if (c->rc == ZKE_OK) c->rc = zke_observer_wait(o, 0, c->deadline);
  zke_observer_free(o);
  return NULL;
}

/* An observer waits for a leader, or for its end, on this thread or another; a
 * cancel without a wait hits nothing. */
TEST(observers_can_wait) {
  call c = {.rc = 1};
  open_all();
  zke_observer *o = observer_of(z[3]);
  ck_ok(zke_observer_wait(o, 0, 0)); /* nobody leads: so it is */
  ck_rc(zke_observer_wait(o, 1, zke_now(z[3]) + 20), ZKE_OPERATIONTIMEOUT);
  ck_rc(zke_observer_cancel(o), ZKE_IDLE);
  ck_rc(zke_observer_wait(o, 1, zke_now(z[3]) + 20), ZKE_OPERATIONTIMEOUT);
  volunteer(1);
  c.deadline = soon(z[2]);
  pthread_create(&c.thread, NULL, await_leader, &c);
  ck_ok(zke_election_ready(e[0]));
  ck_ok(zke_observer_wait(o, 1, soon(z[3])));
  ck_until(__atomic_load_n(&c.done, __ATOMIC_ACQUIRE), 5000);
  ck_ok(zke_election_resign(e[0]));
  pthread_join(c.thread, NULL);
  ck_ok(c.rc);
  zke_observer_free(o);
  close_all();
}

static int run_observe(call *c) {
  return zke_observer_wait(c->object, c->how, c->deadline);
}

/* One thread waits with an observer, for one thing: a second one is refused,
 * and the first still gets what it waits for. */
TEST(an_observer_waits_for_one_thing) {
  call c;
  open_all();
  zke_observer *o;
  ck_ok(zke_observer_new(z[2], PATH, NULL, &o));
  call_begin(&c, run_observe, o, 1, soon(z[2]));
  ck_until(watches(z[2]) == 1, 5000);
  ck_rc(zke_observer_wait(o, 0, soon(z[2])), ZKE_MISUSE);
  ck_says("another thread waits with this object");
  volunteer(1);
  ck_ok(zke_election_ready(e[0]));
  call_end(&c);
  ck_ok(c.rc);
  ck_ok(zke_observer_wait(o, 1, 0)); /* now it may */
  zke_observer_free(o);
  close_all();
}

/* An observer whose session ends while it waits for nobody to lead does not
 * take its own end for that of the leader. */
TEST(an_observer_without_a_session_waits_for_nobody) {
  call c;
  open_all();
  volunteer(1);
  ck_ok(zke_election_ready(e[0]));
  zke_observer *o = observer_of(z[2]);
  call_begin(&c, run_observe, o, 0, ZKE_FOREVER);
  ck_until(zke_observer_wait(o, 1, 0) == ZKE_MISUSE, 5000);
  ck_ok(zke_expire(z[3], zke_session_id(z[2])));
  call_end(&c);
  ck_rc(c.rc, ZKE_INVALIDSTATE);
  ck_assert_int_eq(zke_election_state(e[0]), ZKE_ELECTION_ELECTED);
  zke_observer_free(o);
  close_all();
}

/* After its session's end an observer claims no leader. */
TEST(an_observer_without_a_session_knows_nobody) {
  open_all();
  volunteer(1);
  ck_ok(zke_election_ready(e[0]));
  zke_observer *o = observer_of(z[2]);
  ck_observed("ann");
  ck_ok(zke_expire(z[3], zke_session_id(z[2])));
  dispatch_all();
  ck_observed("nobody");
  ck_rc(zke_observer_leader(o, NULL, NULL, NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_observer_wait(o, 1, soon(z[3])), ZKE_INVALIDSTATE);
  zke_observer_free(o);
  close_all();
}

/* ---- any history, one after the other ---- */

/* A hand-over, or an office that is taken. */
static void hands_over_or_is_ready(unsigned *random, int i) {
  if (rand_r(random) % 3 == 0)
    zke_election_ready(party[i]);
  else
    zke_election_hand_over(party[i], identities[rand_r(random) % 3]);
}

/* Never two leaders; with everything dispatched one, where there is a
 * candidate; the word is the leader's or nobody's. */
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

/* Random calls, hand-overs and lost sessions: never two leaders, one where
 * there is a candidate and all is dispatched, and rising tokens. */
TEST(any_history_has_one_leader_and_rising_tokens) {
  open_line(LINE_ELECTION);
  play_history(&(line_history){.calls = 3000,
                               .also = hands_over_or_is_ready,
                               .check = expect_one_leader});
  close_line();
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

/* A process that stands for election, takes office when it is its turn, and
 * stays there. */
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

/* A process that observes, and sleeps between the events. */
static void play_observer(zke *own) {
  zke_observer *o = NULL;
  int rc = zke_observer_new(own, PATH, NULL, &o);
  if (rc == ZKE_OK) rc = zke_observer_start(o);
  store(&shared->stage[self], -1);
  while (rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT)
    rc = zke_wait(own, ZKE_FOREVER);
  give_up("observe", rc);
}

/* The leader's kill -9 wakes the next in line and who observes, and nobody
 * else; the next one takes office. */
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

/* Nobody else believes to lead. */
static void rule(zke_election *election) {
  store(&shared->inside[self], 1);
  for (int n = 0; n < 20; n++) {
    for (int i = 0; i < CROWD; i++) {
      if (i != self && load(&shared->inside[i])) give_up("two lead", i);
    }
  }
  log_token(zke_election_token(election));
}

/* One term: lead, perhaps take office, and hand over to a random process or
 * resign. */
static int play_term(zke_election *election, unsigned *random) {
  char name[16];
  int rc = zke_election_lead(election, ZKE_FOREVER);
  if (rc != ZKE_OK) return rc;
  rule(election);
  if (rand_r(random) % 2) rc = zke_election_ready(election);
  store(&shared->inside[self], 0);
  if (rc != ZKE_OK) return rc;
  snprintf(name, sizeof name, "p%d", rand_r(random) % 4);
  rc = rand_r(random) % 3 ? zke_election_hand_over(election, name) : ZKE_NONODE;
  return rc == ZKE_NONODE ? zke_election_resign(election) : rc;
}

/* A process that does nothing else, until it is killed. */
static void play_terms(zke *own) {
  zke_election *election = candidate(own);
  unsigned random = crew_seed;
  int rc = ZKE_OK;
  while (rc == ZKE_OK) rc = play_term(election, &random);
  give_up("term", rc);
}

/* Terms, hand-overs and deaths: never two leaders, always a next one, and
 * their tokens rise. */
TEST(tokens_rise_while_leaders_are_killed) {
  share();
  strike_at_random(play_terms, 30, &shared->logged, 30);
  expect_rising_tokens();
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
  /* the sentence stays: to whom it was to go has gone */
  return rc == ZKE_NONODE ? ZKE_LOST : rc;
}

/* Two candidates of two sessions and an observer; hand_to_and_fro() has what
 * they do. */
static int use_two(zke *user) {
  zke *further = NULL;
  zke_election *a = NULL, *b = NULL;
  zke_observer *o = NULL;
  char kept[400] = "";
  zke_election_options options = {
      .size = sizeof options, .listener = listen, .context = heard[0]};
  heard[0][0] = '\0';
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

/* Another leads and takes office; whatever stayed is gone after its term. */
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
