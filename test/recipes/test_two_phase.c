/* test_two_phase.c - recipes/two_phase: all sites do it, or none does
 *
 * Two properties: no two sites decide differently, and they commit only if all
 * have voted to commit. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/two_phase.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes.h"
#include "recipes/part/znode.h"
#include "steps.h"

#define BASE "/2pc"
#define TX "/2pc/tx"

enum {
  SITES = 3,
  C = ZKE_TWO_PHASE_COMMIT,
  A = ZKE_TWO_PHASE_ABORT,
  LOST = ZKE_TWO_PHASE_LOST
};

static const char *const site_names[SITES] = {"a", "b", "c"};

/* ---- steps, as in steps.h ----
 *
 * ann, bob and cid are the sites a, b and c, dan is the coordinator, and eve
 * looks on.
 *
 *     dan proposes [MS]        begin the transaction, perhaps with a time limit
 *     P opens [SITE]           take part; eve and "nobody" are no site
 *     P restarts               another process takes part as P's site
 *     P votes commit, P acks, P aborts [WHY], P steps
 *     P votes_row commit -> done     the same with a row, see below; whether it
 *     P acks_row commit -> done      was written by this call
 *     row a -> ? 0             what the row says, and its version
 *     P wait -> commit         what is decided: the same for all
 *     P is commit              its state: undecided, commit, abort or lost
 *     P heard commit           what its listener has heard since it opened
 *     P pending -> tx          what its site has to see to; eve: all
 *     status -> abort, WHY: a=commit* -b c, led
 *                              the decision; the sites, with "-" if it is not
 *                              there, its vote, "*" if it has acknowledged;
 *                              "led" if the coordinator has not
 */
static int form;               /* of dan's transaction */
static int sites = SITES;      /* the number of its sites */
static int64_t decision_token; /* as a wait returned it */
static char heard[PARTIES][64];

/* By state, and by vote. */
static const char *const words[] = {"undecided", "commit", "abort", "lost"};

static int word_number(const char *word) {
  enum { WORDS = sizeof words / sizeof *words };
  int n = 0;
  ck_assert_ptr_nonnull(word);
  while (n < WORDS && strcmp(words[n], word) != 0) n++;
  ck_assert_msg(n < WORDS, "%s: no such word", word);
  return n;
}

/* The listener: notes the states in their order. */
static void hear(zke_two_phase *who, int state, int64_t token, const char *why,
                 void *context) {
  char *text = context;
  size_t used = strlen(text);
  (void)who, (void)why;
  ck_assert((token > 0) == (state != LOST));
  snprintf(text + used, sizeof *heard - used, "%s%s", used ? " " : "",
           words[state]);
}

/* Free the party's object before it makes another. */
static void forget(int who) {
  zke_two_phase_free(party[who]);
  party[who] = NULL;
  heard[who][0] = '\0';
}

static int step_proposes(step *s) {
  zke_two_phase_options o = {.size = sizeof o,
                             .form = form,
                             .limit_ms = s->word[0] ? atoi(s->word[0]) : 0,
                             .listener = hear,
                             .context = heard[s->who]};
  zke_two_phase *made = (zke_two_phase *)&o; /* NULL after a refusal */
  forget(s->who);
  int rc = zke_two_phase_begin(s->session, BASE, "tx", "pay\0load", 8,
                               site_names, sites, &o, &made);
  ck_step(s, (rc == ZKE_OK) == (made != NULL), "it gives an object");
  party[s->who] = made;
  decision_token = 0;
  return rc;
}

/* The site of the step's participant; NULL: an observer. */
static const char *site_of(const step *s) {
  int i = s->who % SESSIONS;
  return i < SITES ? site_names[i] : NULL;
}

static int step_opens(step *s) {
  zke_two_phase_options o = {
      .size = sizeof o, .listener = hear, .context = heard[s->who]};
  zke_two_phase *made = (zke_two_phase *)&o; /* NULL after a refusal */
  const char *site = s->word[0] ? s->word[0] : site_of(s);
  if (site && strcmp(site, "nobody") == 0) site = NULL;
  forget(s->who);
  int rc = zke_two_phase_open(s->session, BASE, "tx", site, &o, &made);
  ck_step(s, (rc == ZKE_OK) == (made != NULL), "it gives an object");
  party[s->who] = made;
  return rc;
}

static int step_restarts(step *s) {
  forget(s->who);
  renew_session(s->who);
  s->session = z[s->who];
  return step_opens(s);
}

STEP(votes, zke_two_phase_vote(s->object, word_number(s->word[0])))
STEP(acks, zke_two_phase_ack(s->object))
STEP(aborts, zke_two_phase_abort(s->object, s->word[0] ? s->rest : NULL))
STEP(steps, zke_two_phase_step(s->object))

/* A failed wait must give no decision. */
static int step_wait(step *s) {
  int decision = 0;
  int rc = zke_two_phase_wait(s->object, s->deadline, &decision);
  if (rc != ZKE_OK) ck_assert_int_eq(decision, 0);
  if (rc != ZKE_OK) return rc;
  int64_t token = zke_two_phase_token(s->object);
  if (!decision_token) decision_token = token;
  ck_assert_int_gt(token, 0);
  ck_assert_int_eq(token, decision_token);
  ck_assert_int_eq(zke_two_phase_state(s->object), decision);
  gives(s, "%s", words[decision]);
  return rc;
}

static int step_is(step *s) {
  int state = zke_two_phase_state(s->object);
  ck_assert_int_eq(zke_two_phase_token(s->object) > 0,
                   state == C || state == A);
  return sees(s, "%s", words[state]);
}

STEP(heard, sees(s, "%s", heard[s->who]))

static int step_pending(step *s) {
  zke_strings *names = NULL;
  int rc =
      zke_two_phase_pending(s->session, BASE, site_of(s), NULL, NULL, &names);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < names->count; i++)
    gives(s, "%s%s", i ? " " : "", names->data[i]);
  if (names->count == 0) gives(s, "none");
  zke_free(names);
  return rc;
}

/* Check what is true of every status of this transaction. */
static void check_status(const zke_two_phase_status *st) {
  ck_assert_int_eq(st->form, form);
  ck_assert_int_eq(st->len, 8);
  ck_assert_mem_eq(st->payload, "pay\0load", 9);
  ck_assert_int_eq(st->token > 0, st->decision != 0);
  if (decision_token) ck_assert_int_eq(st->token, decision_token);
  ck_assert_int_eq(strstr(st->by, " (pid ") != NULL, st->decision != 0);
  ck_assert_int_eq(st->count, sites);
  for (int i = 0; i < sites; i++) {
    const zke_two_phase_site *site = &st->sites[i];
    ck_assert_str_eq(site->name, site_names[i]);
    ck_assert_int_eq(site->voted_ms >= st->begun_ms, site->vote != 0);
  }
}

static int step_status(step *s) {
  zke_two_phase_status *st;
  int rc = zke_two_phase_get(s->session, BASE, "tx", &st);
  if (rc != ZKE_OK) return rc;
  check_status(st);
  gives(s, "%s%s%s:", words[st->decision], *st->why ? ", " : "", st->why);
  for (int i = 0; i < st->count; i++) {
    const zke_two_phase_site *site = &st->sites[i];
    gives(s, " %s%s%s%s%s", site->present ? "" : "-", site->name,
          site->vote ? "=" : "", site->vote ? words[site->vote] : "",
          site->acknowledged ? "*" : "");
  }
  if (st->coordinator) gives(s, ", led");
  zke_free(st);
  return rc;
}

/* ---- operations with a vote and with an acknowledgement ----
 *
 * Each site makes "/row-a" with its vote, and writes the decision into it with
 * its acknowledgement.  The znode's version counts both, so it shows what is
 * done twice. */

enum { NOT_DONE = ZKE_TWO_PHASE_NOT_DONE, BEFORE = ZKE_TWO_PHASE_DONE_BEFORE };

static const char *row(const char *site) {
  static const char *const rows[SITES] = {"/row-a", "/row-b", "/row-c"};
  return rows[*site - 'a'];
}

/* Vote, and make the row with it. */
static int vote_row(zke_two_phase *who, const char *site, int vote, int *done) {
  zke_op op;
  zke_op_create(&op, row(site), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  return zke_two_phase_vote_with(who, vote, &op, 1, NULL, done);
}

/* Write the decision into the row with the acknowledgement. */
static int ack_row(zke_two_phase *who, const char *site, int decision,
                   int *done) {
  zke_op op;
  zke_op_set(&op, row(site), decision == C ? "C" : "A", 1, -1);
  return zke_two_phase_ack_with(who, &op, 1, NULL, done);
}

/* Make one of the two calls, and answer whether it wrote the row. */
static int step_with_row(step *s,
                         int (*act)(zke_two_phase *who, const char *site,
                                    int word, int *done)) {
  static const char *const dones[] = {"not done", "done", "before", "gone"};
  int done = -1;
  int rc = act(s->object, site_of(s), word_number(s->word[0]), &done);
  if (rc != ZKE_OK) return rc;
  ck_assert_int_ge(done, 0);
  ck_assert_uint_lt((unsigned)done, sizeof dones / sizeof *dones);
  gives(s, "%s", dones[done]);
  return rc;
}

STEP(votes_row, step_with_row(s, vote_row))
STEP(acks_row, step_with_row(s, ack_row))

static int step_row(step *s) {
  char *data = NULL;
  zke_stat stat;
  int rc = zke_get(s->session, row(s->word[0]), NULL, NULL, &data, NULL, &stat);
  if (rc == ZKE_OK) gives(s, "%s %d", data, stat.version);
  zke_free(data);
  return rc;
}

static const step_verb verbs[] = {
    VERB(proposes), VERB(opens),     VERB(restarts), VERB(votes),
    VERB(acks),     VERB(aborts),    VERB(steps),    VERB(wait),
    VERB(is),       VERB(heard),     VERB(pending),  VERB(status),
    VERB(row),      VERB(votes_row), VERB(acks_row), {NULL, NULL}};

static void free_transaction(void *t) { zke_two_phase_free(t); }
static int cancel_wait(void *t) { return zke_two_phase_cancel(t); }

static const step_recipe of_two_phase = {
    .verbs = verbs, .free = free_transaction, .cancel = cancel_wait};

/* Close; no znode and no watch may be left. */
static void end(void) {
  free_parties();
  play("eve pending -> none; status -> NONODE; data /2pc/tx -> NONODE");
  ck_ok(zke_check(z[SESSIONS - 1], NULL, NULL));
  close_clean(BASE);
}

/* A transaction of this form, in which all sites take part. */
static void begin(int its_form) {
  form = its_form;
  open_steps(&of_two_phase);
  closes = end;
  play("dan proposes; ann,bob,cid opens");
}

/* The whole of a test. */
static void play_form(int its_form, const char *script) {
  begin(its_form);
  play(script);
}

#define ALL_VOTE "ann,bob,cid votes commit;"
#define ALL_VOTE_ROWS "ann,bob,cid votes_row commit -> done;"
/* All sites know this decision, and acknowledge it. */
#define ALL_COMMIT "ann,bob,cid wait_now -> commit; ann,bob,cid acks;"
#define ALL_ABORT "ann,bob,cid wait_now -> abort; ann,bob,cid acks;"

/* ---- the forms ---- */

/* Every form commits when all have voted to commit, and not before.  The
 * payload stays until all have acknowledged; then nothing is left. */
TEST_LOOP(all_votes_commit_and_no_fewer, 0, 4) {
  play_form(
      _i,
      "all dispatch; dan,ann is undecided; ann votes commit; all dispatch;"
      "dan,ann is undecided; bob votes commit; all dispatch;"
      "dan,ann is undecided; cid votes commit; all dispatch;"
      "ann,bob,cid,dan heard commit;" ALL_COMMIT
      "status -> commit, all have voted commit: a=commit* b=commit*"
      " c=commit*, led;"
      "dan acks; status -> NONODE; dan acks");
}

/* The first "abort" decides, whatever the other votes; a late vote learns the
 * decision. */
TEST_LOOP(aborts_early, 0, 4) {
  play_form(
      _i,
      "bob votes commit; cid votes abort;"
      "status -> abort, c has voted abort: a b=commit c=abort, led;"
      "all dispatch; ann,bob,cid,dan heard abort; ann votes commit;" ALL_ABORT);
}

/* The coordinator dies before the last vote: the sites finish without it, in
 * every form. */
TEST_LOOP(coordinator_dies, 0, 4) {
  play_form(_i,
            "ann,bob votes commit; all dispatch; dan expires;"
            "cid votes commit; all dispatch; dan heard lost;"
            "ann,bob,cid heard commit;" ALL_COMMIT);
}

/* The same if it dies, or leaves, between the last vote and the announcement.
 * In the coordinator's form it has not looked yet. */
TEST_LOOP(coordinator_goes_before_announcing, 0, 8) {
  begin(_i / 2);
  play(ALL_VOTE);
  if (form & ZKE_TWO_PHASE_COORDINATOR)
    play("status -> undecided: a=commit b=commit c=commit, led");
  play(_i % 2 ? "dan expires" : "dan free");
  play("all dispatch; ann,bob,cid heard commit;" ALL_COMMIT);
}

/* The coordinator's process ends, and its session is a kept one: no other party
 * ends it before its timeout.  Until then it may be taken over; afterwards the
 * transaction is removed. */
TEST_LOOP(a_kept_coordinator_may_come_back, 0, 2) {
  zke_options o = {.size = sizeof o, .timeout_ms = _i ? 300 : 60000};
  unsigned char password[16];
  zke *eve, *taken = NULL;
  open_steps(&of_two_phase);
  eve = z[4];
  ck_ok(zke_close(z[3]));
  ck_ok(zke_open_session(eve, &o, &z[3]));
  ck_ok(zke_password(z[3], password));
  int64_t id = zke_session_id(z[3]);
  play("dan proposes");
  ck_ok(zke_attach(eve, id, password, NULL, &taken));
  play("dan free"); /* its session has moved: nothing is removed */
  ck_ok(zke_close(z[3]));
  play("ann,bob,cid opens;" ALL_VOTE);
  ck_ok(zke_detach(taken));
  play(ALL_COMMIT "eve proposes -> HELD; eve pending -> tx");
  if (_i == 0) ck_ok(zke_attach(eve, id, password, NULL, &taken));
  ck_until((dispatch_on(eve), zke_exists(eve, TX "/coordinator", NULL, NULL,
                                         NULL)) == (_i ? ZKE_NONODE : ZKE_OK),
           10000);
  if (_i == 0) ck_ok(zke_close(taken));
  ck_ok(zke_open_session(eve, NULL, &z[3]));
}

/* Ephemeral votes: a dead site aborts, whether it has voted or not, even if the
 * others learn of its coming and going together.  It comes again and learns the
 * decision. */
TEST_LOOP(dead_site_aborts, 0, 2) {
  play_form(ZKE_TWO_PHASE_EPHEMERAL | _i,
            "ann,bob votes commit; all dispatch; bob expires; all dispatch;"
            "ann heard abort; bob heard lost; dan heard abort;"
            "status -> abort, the site b has died: a=commit -b c, led;"
            "bob restarts; bob heard abort;" ALL_ABORT);
}

/* A site joins and dies before the coordinator has looked once: its death still
 * aborts the transaction. */
TEST(dead_before_seen) {
  form = ZKE_TWO_PHASE_EPHEMERAL;
  open_steps(&of_two_phase);
  play(
      "dan proposes; cid opens; cid expires; dan dispatches; dan heard abort;"
      "cid restarts; ann,bob opens;" ALL_ABORT);
  end();
}

/* Use this session for all. */
static void use_session(zke *session) {
  begin_steps(&of_two_phase);
  form = ZKE_TWO_PHASE_EPHEMERAL;
  for (int i = 0; i < SESSIONS; i++) z[i] = session;
}

static bool seen_coming;

static void see_coming(zke *s, int type, int state, const char *path,
                       void *context) {
  (void)s, (void)state, (void)path, (void)context;
  if (type == ZKE_EVENT_CREATED) seen_coming = true;
}

static void begin_unwatched(zke *s) {
  use_session(s);
  seen_coming = false;
  play("dan proposes; dan free");
  ck_rc(zke_exists(s, TX "/vote-a", see_coming, NULL, NULL), ZKE_NONODE);
}

static int vote_unwatched(zke *s) {
  zke_two_phase *x = NULL;
  int rc = zke_two_phase_open(s, BASE, "tx", "a", NULL, &x);
  if (rc == ZKE_OK) rc = zke_two_phase_vote(x, C);
  zke_two_phase_free(x);
  return rc;
}

static void come_after_the_death(zke *s, int rc) {
  use_session(s);
  ck_until((dispatch_on(s), zke_exists(s, TX "/vote-a", NULL, NULL, NULL)) ==
               ZKE_NONODE,
           10000);
  ck_assert(seen_coming || rc != ZKE_OK);
  play("bob opens; bob votes commit");
  play(seen_coming ? "bob wait_now -> abort"
                   : "bob wait_now -> OPERATIONTIMEOUT; bob aborts enough");
  play("ann,cid opens; ann,bob,cid acks");
  free_parties();
}

/* A site dies anywhere while no party looks.  If it had joined, the next
 * participant aborts; if not, that one waits for it. */
TEST(dead_before_others_come) {
  static const recipe_use u = {"two_phase", begin_unwatched, vote_unwatched,
                               come_after_the_death};
  ck_assert_int_gt(recipe_deaths(&u), 10);
}

/* A vote that was seen and is gone does not count: the last vote comes when
 * another's has vanished, before anyone has noticed.  It does not count either
 * if the site came again meanwhile and has not voted. */
TEST(vanished_vote_does_not_count) {
  play_form(ZKE_TWO_PHASE_EPHEMERAL,
            "ann,bob votes commit; all dispatch; ann expires;"
            "cid votes commit; cid is abort; ann restarts;" ALL_ABORT);
}

/* A site that dies and comes again before anyone looks may vote again. */
TEST(site_comes_again) {
  play_form(ZKE_TWO_PHASE_EPHEMERAL,
            "ann votes commit; ann expires; ann restarts; all dispatch;"
            "dan is undecided;" ALL_VOTE "all dispatch;" ALL_COMMIT);
}

/* Persistent votes: the vote of a site that dies counts.  The restarted process
 * finds the transaction and finishes. */
TEST(site_restarts) {
  play_form(ZKE_TWO_PHASE_SITES,
            "ann votes commit; ann expires; ann votes commit -> INVALIDSTATE;"
            "ann is lost; bob,cid votes commit; ann restarts;"
            "ann pending -> tx; ann heard commit;" ALL_COMMIT);
}

/* A vote's znode was deleted: the site is told and does not look for it
 * forever, and the transaction can be aborted. */
TEST(a_deleted_vote_is_told) {
  play_form(ZKE_TWO_PHASE_SITES,
            "delete /2pc/tx/vote-a; ann votes commit -> NONODE;"
            "said the vote of a on /2pc/tx was deleted;"
            "dan aborts a vote is missing; ann votes commit;" ALL_ABORT);
}

/* Wake-ups: in the coordinator's form votes wake only the coordinator, and of
 * these only the first that was missing.  The decision alone wakes the
 * sites. */
TEST(no_herd) {
  play_form(ZKE_TWO_PHASE_COORDINATOR,
            "cid votes commit; dan dispatches -> 0; ann votes commit;"
            "dan dispatches -> 1; ann,bob,cid dispatches -> 0;"
            "bob votes commit; dan dispatches -> 2;" /* its own decision too */
            "ann,bob,cid dispatches -> 1;" ALL_COMMIT);
}

/* ---- time, force, waiting ---- */

/* The transaction's limit, and the time of its decision; ms since 1970. */
static int64_t limit_ms(int64_t *decided_ms) {
  zke_two_phase_status *st;
  ck_ok(zke_two_phase_get(z[4], BASE, "tx", &st));
  int64_t limit = st->limit_ms;
  if (decided_ms) *decided_ms = st->decided_ms;
  zke_free(st);
  return limit;
}

/* Begin a transaction with a limit of this many ms. */
static void begin_limited(int its_form, int ms) {
  char text[32];
  form = its_form;
  snprintf(text, sizeof text, "dan proposes %d", ms);
  open_steps(&of_two_phase);
  int64_t before = test_wall();
  play(text);
  int64_t limit = limit_ms(NULL);
  ck_assert_int_ge(limit, before + ms);
  ck_assert_int_le(limit, test_wall() + ms);
  play("ann,bob,cid opens");
}

/* Only b votes, and waits, however long that takes.  False: the limit passed
 * before b had voted. */
static bool reaches_limit(int its_form, int ms) {
  int64_t decided;
  int decision = 0;
  begin_limited(its_form, ms);
  play("bob votes commit");
  bool in_time = test_wall() < limit_ms(NULL);
  ck_ok(zke_two_phase_wait(party[1], ZKE_FOREVER, &decision));
  ck_assert_int_eq(decision, A);
  if (in_time)
    play(
        "status -> abort, the time limit, without the vote of a, c:"
        " a b=commit c, led");
  int64_t limit = limit_ms(&decided);
  ck_assert_int_ge(decided, limit);
  play(ALL_ABORT);
  end();
  return in_time;
}

/* At the limit, and not before, any waiting party aborts, also a site in the
 * coordinator's form. */
TEST_LOOP(time_limit, 0, 4) {
  for (int ms = 500; !reaches_limit(_i, ms);) ms *= 2;
}

/* Without blocking calls, step() aborts. */
TEST(step_at_limit) {
  begin_limited(ZKE_TWO_PHASE_SITES, 30);
  int64_t limit = limit_ms(NULL);
  play("dan steps");
  ck_until(test_wall() >= limit, 10000);
  play("dan steps; dan is abort;" ALL_ABORT);
}

/* A timeout says which sites have not voted, and changes nothing. */
TEST(timeout_names_missing) {
  play_form(ZKE_TWO_PHASE_SITES,
            "bob votes commit; dan wait_20 -> OPERATIONTIMEOUT;"
            "said the transaction /2pc/tx waits for the vote of a, c;"
            "ann,cid votes commit; dan wait_now -> commit;" ALL_COMMIT);
}

/* Another thread cancels the coordinator's wait; a second waiting call is
 * refused. */
TEST(cancel_ends_the_wait) {
  play_form(ZKE_TWO_PHASE_SITES,
            "dan begins wait; dan cancels; dan returns -> CANCELLED;"
            "dan waits wait; dan wait_now -> MISUSE; ann votes abort;"
            "dan returns -> abort;" ALL_ABORT);
}

/* Any party may abort, unless the transaction is committed. */
TEST(abort_by_anybody) {
  play_form(ZKE_TWO_PHASE_SITES,
            "ann votes commit; eve opens; eve aborts no\nmoney; eve aborts;"
            "status -> abort, no money: a=commit b c, led;"
            "eve acks -> MISUSE; eve votes commit -> MISUSE;" ALL_ABORT
            "dan proposes; ann,bob,cid opens;" ALL_VOTE
            "dan aborts -> MISUSE; said committed;" ALL_COMMIT);
}

/* A vote is given once; repeating it is allowed. */
TEST_LOOP(votes_are_given_once, 0, 4) {
  begin(_i);
  ck_rc(zke_two_phase_vote(party[0], 0), ZKE_BADARGUMENTS);
  ck_rc(zke_two_phase_vote(party[0], 3), ZKE_BADARGUMENTS);
  play(
      "ann,ann votes commit; ann votes abort -> MISUSE;"
      "said a has voted commit in /2pc/tx; ann acks -> MISUSE;"
      "bob,bob votes abort; dan votes commit -> MISUSE;" ALL_ABORT);
}

/* Two live processes as one site: in the ephemeral form the second is refused,
 * and told about the first. */
TEST(site_is_taken) {
  play_form(ZKE_TWO_PHASE_EPHEMERAL,
            "dan' opens a -> HELD;"
            "said the vote of a in /2pc/tx is held by ann (pid;"
            "ann votes abort;" ALL_ABORT);
}

/* ---- the name, the directory ---- */

/* An object of an earlier transaction does not affect a later one of the same
 * name (its process was stopped for long). */
TEST_LOOP(a_stale_object_does_not_touch_the_next_transaction, 0, 4) {
  play_form(_i, "eve,ann' opens; bob votes abort;" ALL_ABORT
                "dan proposes; ann,bob,cid opens; ann' votes abort -> LOST;"
                "eve aborts old -> LOST; eve wait_now -> LOST; ann' acks;"
                "ann',eve free;" ALL_VOTE "all dispatch;" ALL_COMMIT);
}

/* A name in use is refused, and the sentence says why.  A finished one can be
 * taken, even if the coordinator died in silence. */
TEST(begin_again) {
  play_form(ZKE_TWO_PHASE_SITES,
            "eve proposes -> HELD;"
            "said there is a transaction /2pc/tx, which waits for the vote of"
            " a, b, c;"
            "ann votes abort; all dispatch; eve proposes -> HELD;"
            "said which waits for the acknowledgement of a, b, c;" ALL_ABORT
            "dan expires; data /2pc/tx; eve proposes; eve aborts; eve free;"
            "ann,bob,cid opens; ann,bob,cid heard abort;" ALL_ABORT);
}

/* The status at three moments. */
TEST(status_tells) {
  play_form(ZKE_TWO_PHASE_EPHEMERAL,
            "bob votes commit; status -> undecided: a b=commit c, led;"
            "ann expires; status -> undecided: -a b=commit c, led;"
            "all dispatch; bob wait -> abort; bob acks;"
            "status -> abort, the site a has died: -a b=commit* c, led;"
            "ann restarts;" ALL_ABORT);
}

/* A site's list: the transactions that it has not acknowledged.  Its watcher
 * hears of new ones; other children are ignored. */
TEST(pending_lists) {
  test_events events = {0};
  zke_strings *names;
  zke_two_phase *t2;
  char *payload;
  int len;
  begin(ZKE_TWO_PHASE_SITES);
  play("create /2pc/foreign x; bob pending -> tx");
  ck_ok(zke_two_phase_pending(z[4], BASE, "b", test_record, &events, &names));
  zke_free(names);
  ck_ok(zke_two_phase_begin(z[3], BASE, "t0", "p", 1, &site_names[1], 1, NULL,
                            &t2));
  test_expect(z[4], &events, "CHILD " BASE);
  play("bob pending -> t0 tx; ann pending -> tx; eve pending -> t0 tx");
  ck_ok(zke_two_phase_payload(t2, &payload, &len));
  ck_assert_int_eq(len, 1);
  ck_assert_str_eq(payload, "p");
  zke_free(payload);
  ck_ok(zke_two_phase_abort(t2, NULL));
  zke_two_phase_free(t2);
  ck_ok(zke_two_phase_open(z[1], BASE, "t0", "b", NULL, &t2));
  ck_ok(zke_two_phase_ack(t2));
  zke_two_phase_free(t2);
  play("ann votes abort;" ALL_ABORT "ann pending -> none; delete /2pc/foreign");
  ck_ok(zke_two_phase_pending(z[4], "/none", "a", NULL, NULL, &names));
  ck_assert_int_eq(names->count, 0);
  zke_free(names);
}

/* Foreign children have no effect, except that the emptied znode stays until
 * the list removes it.  Votes not written by the recipe do not count. */
TEST(foreign_children) {
  play_form(ZKE_TWO_PHASE_SITES,
            "create /2pc/tx/vote-x commit; set /2pc/tx/vote-a comm;"
            "set /2pc/tx/vote-a commit; bob,cid votes commit; all dispatch;"
            "dan is undecided; dan aborts;" ALL_ABORT
            "dan acks; status -> abort: a* b=commit* c=commit*;"
            "delete /2pc/tx/vote-x");
}

/* P11: duplicate sites, invalid names of sites, and other bad arguments are
 * refused before anything is made. */
TEST(bad_arguments) {
  const char *const twice[] = {"a", "b", "a"}, *const bad[] = {"a/b"};
  const char *const space[] = {"a b"}, *const empty[] = {""};
  zke_two_phase_options o = {.size = 1};
  zke_two_phase *other = NULL;
  zke_two_phase_status *st;
  zke *s = test_open(":memory:");
#define BEGIN(base, name, payload, len, sites, count, options)            \
  zke_two_phase_begin(s, base, name, payload, len, sites, count, options, \
                      &other)
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 3, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, bad, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, space, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, empty, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, NULL, 1, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", NULL, 1, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", -1, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t/u", "", 0, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, NULL, "", 0, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(NULL, "t", "", 0, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN("nope", "t", "", 0, twice, 2, NULL), ZKE_BADARGUMENTS);
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 2, &o), ZKE_BADARGUMENTS);
  o = (zke_two_phase_options){.size = sizeof o, .form = 4};
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 2, &o), ZKE_BADARGUMENTS);
  o = (zke_two_phase_options){.size = sizeof o, .limit_ms = -1};
  ck_rc(BEGIN(BASE, "t", "", 0, twice, 2, &o), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  ck_rc(zke_exists(s, BASE, NULL, NULL, NULL), ZKE_NONODE); /* untouched */
  ck_ok(zke_create(s, "/lock", "zkembed lock", 12, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_rc(BEGIN("/lock", "t", "", 0, twice, 2, NULL), ZKE_OTHERKIND);
  ck_says("is of kind lock");
  ck_ok(zke_create(s, "/lock/t", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_rc(zke_two_phase_open(s, "/lock", "t", "a", NULL, &other), ZKE_OTHERKIND);
  ck_rc(zke_two_phase_open(s, BASE, "t", "a", NULL, &other), ZKE_NONODE);
  ck_rc(zke_two_phase_open(s, BASE, "t", "a", NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_two_phase_get(s, "/lock", "t", &st), ZKE_OTHERKIND);
  ck_rc(zke_two_phase_get(s, "/lock", "t", NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_two_phase_pending(s, BASE, "a", NULL, NULL, NULL),
        ZKE_BADARGUMENTS);
  ck_ok(BEGIN(BASE, "t", "", 0, twice, 2, NULL));
  zke_two_phase *site = NULL;
  ck_rc(zke_two_phase_open(s, BASE, "t", "x", NULL, &site), ZKE_BADARGUMENTS);
  ck_says("x takes no part in /2pc/t");
  ck_assert_ptr_null(site);
  zke_two_phase_free(other);
  zke_two_phase_free(NULL);
  ck_ok(zke_close(s));
}

/* ---- rows ---- */

/* Make each site lose the reply of its next change; 0: none. */
static void lose_replies(int loss) {
  for (int i = 0; loss && i < SITES; i++) ck_ok(zke_test_fail(z[i], loss, 0));
}

/* Rows come with the votes and are written with the acknowledgements, once; the
 * last acknowledgement is a site's, and removes the transaction too.  A reply
 * may be lost before or after its step takes effect: the call knows whether the
 * step was its own, unless the lost step removed the transaction. */
TEST_LOOP(a_row_comes_with_vote_and_ack, 0, 12) {
  static const int losses[] = {0, ZKE_TEST_FAIL_BEFORE, ZKE_TEST_FAIL_AFTER};
  int loss = losses[_i % 3];
  begin(_i / 3);
  lose_replies(loss);
  play(ALL_VOTE_ROWS
       "row a -> ? 0; row b -> ? 0; row c -> ? 0;"
       "ann,bob,cid votes_row commit -> before; row a -> ? 0; row b -> ? 0;"
       "row c -> ? 0; all dispatch; dan acks; data /2pc/tx/work-c");
  lose_replies(loss);
  play("ann,bob acks_row commit -> done");
  play(loss == ZKE_TEST_FAIL_AFTER ? "cid acks_row commit -> gone"
                                   : "cid acks_row commit -> done");
  play(
      "row a -> C 1; row b -> C 1; row c -> C 1; data /2pc/tx -> NONODE;"
      "cid acks_row abort -> gone; cid votes_row commit -> gone; row c -> C 1");
}

/* The site's next process gives the same operations again, and is told that
 * they were done; in the ephemeral form it votes again. */
TEST_LOOP(a_restarted_site_does_nothing_twice, 0, 4) {
  play_form(_i,
            "ann votes_row commit -> done; ann restarts;"
            "ann votes_row commit -> before; row a -> ? 0;"
            "bob votes_row commit -> done; bob restarts;"
            "bob votes_row commit -> before; row b -> ? 0;"
            "cid votes_row commit -> done; all dispatch; ann is commit;"
            "ann acks_row commit -> done; ann restarts;"
            "ann acks_row commit -> before; row a -> C 1; bob,cid acks");
}

/* A site acknowledges again when all others have: this removes the transaction,
 * and does not repeat the operations.  Before that, only the coordinator was
 * missing. */
TEST(the_last_of_two_acks_does_nothing_twice) {
  play_form(ZKE_TWO_PHASE_SITES, ALL_VOTE_ROWS
            "ann,bob,cid acks_row commit -> done; data /2pc/tx; dan expires;"
            "ann acks_row abort -> before; data /2pc/tx -> NONODE;"
            "row a -> C 1");
}

/* After a vote and an acknowledgement without operations, later calls do not do
 * their operations, and say that none were done. */
TEST(operations_that_come_late_are_not_done) {
  int done = -1;
  begin(ZKE_TWO_PHASE_SITES);
  ck_ok(zke_two_phase_vote_with(party[0], C, NULL, 0, NULL, &done));
  ck_assert_int_eq(done, NOT_DONE);
  play(
      "ann votes_row commit -> not done; data /2pc/tx/work-a -> NONODE;"
      "bob votes_row commit -> done; cid votes commit; ann acks;"
      "ann acks_row commit -> not done; row a -> NONODE;"
      "bob acks_row commit -> done");
  done = -1;
  ck_ok(zke_two_phase_ack_with(party[2], NULL, 0, NULL, &done));
  ck_assert_int_eq(done, NOT_DONE);
}

/* The decision was made without the site: its vote is not given, and its
 * operations are not done.  Those of the acknowledgement are, if there is a
 * row. */
TEST_LOOP(what_is_decided_takes_no_vote, 0, 4) {
  play_form(_i,
            "bob votes_row commit -> done; dan aborts no;"
            "ann votes_row commit -> not done; row a -> NONODE;"
            "status -> abort, no: a b=commit c, led;"
            "bob votes_row commit -> before;" /* before the decision */
            "ann acks_row abort -> NONODE; ann acks;"
            "bob acks_row abort -> done; row b -> A 1; cid acks");
}

/* A vote to abort takes operations along like any other; a vote that differs
 * from the first does not. */
TEST_LOOP(an_abort_takes_operations_along, 0, 4) {
  play_form(_i,
            "bob votes_row commit -> done; bob votes_row abort -> MISUSE;"
            "row b -> ? 0; ann votes_row abort -> done; row a -> ? 0;"
            "cid votes_row commit -> not done; row c -> NONODE;" ALL_ABORT);
}

/* An ephemeral vote goes with its site, but the vote's operations stay.  The
 * site comes again before anyone has looked, and votes again without them. */
TEST(an_ephemeral_vote_is_given_again) {
  play_form(ZKE_TWO_PHASE_EPHEMERAL,
            "ann votes_row commit -> done; ann expires; ann restarts;"
            "status -> undecided: a b c, led; ann votes_row commit -> before;"
            "status -> undecided: a=commit b c, led;"
            "bob,cid votes_row commit -> done; all dispatch;"
            "ann,bob,cid acks_row commit -> done; row a -> C 1; row b -> C 1;"
            "row c -> C 1");
}

/* Foreign znodes keep the transaction from being removed, so the last
 * acknowledgement is written instead, with its operations, once. */
TEST(the_last_ack_among_foreign_znodes) {
  play_form(ZKE_TWO_PHASE_SITES,
            "create /2pc/tx/foreign;" ALL_VOTE_ROWS
            "all dispatch; dan acks; ann,bob,cid acks_row commit -> done;"
            "cid acks_row abort -> before; row a -> C 1; row b -> C 1;"
            "row c -> C 1; delete /2pc/tx/foreign");
}

/* ---- refusals ---- */

/* Codes on which this recipe looks again or removes nothing, and others.  As
 * codes of the caller's operations, they end the call. */
static const int refusals[] = {
    ZKE_NONODE,        ZKE_BADVERSION,   ZKE_NOTEMPTY,        ZKE_NODEEXISTS,
    ZKE_UNIMPLEMENTED, ZKE_BADARGUMENTS, ZKE_MARSHALLINGERROR};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

/* An operation that is refused with this code.  "/full" has a child. */
static void refuse(zke_op *op, int code) {
  if (code == ZKE_NONODE)
    zke_op_set(op, "/none", "", 0, -1);
  else if (code == ZKE_BADVERSION)
    zke_op_check(op, "/full", 7);
  else if (code == ZKE_NOTEMPTY)
    zke_op_delete(op, "/full", -1);
  else if (code == ZKE_NODEEXISTS)
    zke_op_create(op, "/full", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  else
    zke_op_fail(op, code);
}

/* The results of two operations, of which the second was refused. */
static void ck_refused(const zke_op_result *results, int rc) {
  ck_assert_int_eq(results[0].rc, 0);
  ck_assert_ptr_null(results[0].path);
  ck_assert_int_eq(results[1].rc, rc);
}

/* A caller's operation refuses a vote or an acknowledgement, also the last one:
 * the call returns its code, and does and gives nothing. */
TEST_LOOP(a_refusal_has_the_operations_code, 0, REFUSALS) {
  int code = refusals[_i];
  zke_op ops[2];
  zke_op_result results[2];
  begin(ZKE_TWO_PHASE_SITES);
  play("create /full; create /full/x");
  zke_op_create(&ops[0], row("a"), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  refuse(&ops[1], code);
  for (int vote = C; vote <= A; vote++) {
    memset(results, 1, sizeof results);
    ck_rc(zke_two_phase_vote_with(party[0], vote, ops, 2, results, NULL), code);
    ck_refused(results, code);
    ck_rc(zke_two_phase_vote_with(party[0], vote, ops, 2, NULL, NULL), code);
    play("status -> undecided: a b c, led; row a -> NONODE");
  }
  play(ALL_VOTE_ROWS "all dispatch");
  for (int i = SITES - 1; i >= 0; i--) { /* "a" is the last */
    zke_op_set(&ops[0], row(site_names[i]), "C", 1, -1);
    ck_rc(zke_two_phase_ack_with(party[i], ops, 2, results, NULL), code);
    ck_refused(results, code);
    if (i == 0) play("row a -> ? 0; dan acks");
    ck_rc(zke_two_phase_ack_with(party[i], ops, 2, NULL, NULL), code);
    play("data /2pc/tx");
    ck_ok(take_by(i, "acks_row", "commit"));
  }
  play("row a -> C 1; row b -> C 1; row c -> C 1; data /2pc/tx -> NONODE");
}

/* The caller gets the results, as from zke_multi(). */
TEST(operations_have_results) {
  zke_op ops[2];
  zke_op_result results[2];
  begin(ZKE_TWO_PHASE_SITES);
  zke_op_create(&ops[0], "/r-", "?", 1, ZKE_OPEN_ACL,
                ZKE_PERSISTENT_SEQUENTIAL);
  zke_op_create(&ops[1], row("a"), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_two_phase_vote_with(party[0], C, ops, 2, results, NULL));
  ck_assert_ptr_nonnull(strstr(results[0].path, "/r-0"));
  ck_assert_str_eq(results[1].path, row("a"));
  zke_results_clear(results, 2);
  memset(results, 1, sizeof results);
  ck_ok(zke_two_phase_vote_with(party[0], C, ops, 2, results, NULL));
  ck_assert_ptr_null(results[0].path); /* nothing was done */
  ck_assert_int_eq(results[1].rc, 0);
  play("dan aborts");
  zke_op_set(&ops[1], row("a"), "A", 1, 0);
  ck_ok(zke_two_phase_ack_with(party[0], ops, 2, results, NULL));
  ck_assert_int_eq(results[1].stat.version, 1);
  zke_results_clear(results, 2);
  play("bob,cid acks");
}

/* Invalid operations, and parties that take none. */
TEST(wrong_operations) {
  zke_op op, reads;
  zke_op_result result;
  begin(ZKE_TWO_PHASE_SITES);
  zke_op_create(&op, row("a"), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_get(&reads, "/");
#define VOTE(who, vote, ops, count) \
  zke_two_phase_vote_with(who, vote, ops, count, &result, NULL)
#define ACK(who, ops, count) \
  zke_two_phase_ack_with(who, ops, count, &result, NULL)
  ck_rc(VOTE(NULL, C, &op, 1), ZKE_BADARGUMENTS);
  ck_rc(VOTE(party[0], C, NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(VOTE(party[0], C, &op, -1), ZKE_BADARGUMENTS);
  ck_says("-1 operations");
  ck_rc(VOTE(party[0], C, &op, INT32_MAX), ZKE_BADARGUMENTS);
  ck_rc(VOTE(party[0], 3, &op, 1), ZKE_BADARGUMENTS);
  ck_rc(VOTE(party[0], C, &reads, 1), ZKE_BADARGUMENTS);
  ck_rc(VOTE(party[3], C, &op, 1), ZKE_MISUSE);
  ck_rc(ACK(NULL, &op, 1), ZKE_BADARGUMENTS);
  ck_rc(ACK(party[0], NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(ACK(party[0], &op, -1), ZKE_BADARGUMENTS);
  ck_rc(ACK(party[0], &op, 1), ZKE_MISUSE);
  ck_says("is undecided");
  play("eve opens");
  ck_rc(ACK(party[4], &op, 1), ZKE_MISUSE);
  play("dan aborts");
  ck_rc(ACK(party[3], &op, 1), ZKE_MISUSE);
  ck_says("only a site takes operations along");
  op.path = "row";
  ck_rc(ACK(party[0], &op, 1), ZKE_MARSHALLINGERROR);
  ck_rc(ACK(party[0], &reads, 1), ZKE_BADARGUMENTS);
  play("row a -> NONODE;" ALL_ABORT "ann expires");
  ck_rc(ACK(party[0], &op, 1), ZKE_INVALIDSTATE);
#undef VOTE
#undef ACK
}

/* The path of the transaction's "id-…". */
static void find_id(char path[100]) {
  zke_strings *names;
  int i = 0;
  ck_ok(zke_children(z[4], TX, NULL, NULL, &names, NULL));
  while (strncmp(names->data[i], "id-", 3) != 0) i++;
  snprintf(path, 100, TX "/%s", names->data[i]);
  zke_free(names);
}

/* Foreign writes cause no endless loop: neither a vote with an impossible
 * version, nor the sign of a decision without one. */
TEST_LOOP(foreign_writes_end_a_vote, 0, 2) {
  char path[100] = TX "/vote-a";
  begin(ZKE_TWO_PHASE_SITES);
  if (_i) find_id(path);
  for (int n = 0; n < 2; n++) ck_ok(zke_set(z[4], path, "", 0, -1, NULL));
  play(
      "ann votes commit -> RUNTIMEINCONSISTENCY;"
      "said something else has written to /2pc/tx;"
      "ann votes_row commit -> RUNTIMEINCONSISTENCY; row a -> NONODE;"
      "dan aborts somebody was here;" ALL_ABORT);
}

/* An invalid, foreign decision ends the calls that depend on it, and is told to
 * objects without a call.  Once it is gone, everything works again. */
TEST(a_decision_of_something_elses_is_told) {
  play_form(ZKE_TWO_PHASE_SITES,
            "bob,cid votes commit; create /2pc/tx/decision maybe;"
            "dan aborts why -> RUNTIMEINCONSISTENCY;"
            "said something else has written to /2pc/tx;"
            "ann votes commit -> RUNTIMEINCONSISTENCY;"
            "bob steps -> RUNTIMEINCONSISTENCY;"
            "bob wait -> RUNTIMEINCONSISTENCY;"
            "eve opens -> RUNTIMEINCONSISTENCY; all dispatch;"
            "delete /2pc/tx/decision; ann votes commit;" ALL_COMMIT);
}

/* A mark from before the call is not the call's, even if it has the id that the
 * call will use. */
TEST(a_mark_from_before_is_anothers) {
  char id[ZKE_RECIPE_GUID], script[100];
  begin(ZKE_TWO_PHASE_SITES);
  zke_recipe_guid(z[0], id);
  snprintf(script, sizeof script, "create /2pc/tx/work-a %.24s%012lx", id,
           strtoul(id + 24, NULL, 16) + 1);
  play(script);
  play(
      "ann votes_row commit -> before; row a -> NONODE; bob votes "
      "abort;" ALL_ABORT);
}

/* A kept session continues in another process.  That process must give no id
 * that the first has given, so that later znodes of the same name are told
 * apart. */
TEST(another_process_gives_other_ids) {
  enum { NUMBER = 24 }; /* if the session has ended */
  char own[ZKE_RECIPE_GUID], others[ZKE_RECIPE_GUID];
  int fds[2];
  zke *session = test_open(":memory:");
  zke_recipe_guid(session, own);
  ck_assert_int_eq(pipe(fds), 0);
  pid_t child = fork();
  if (child == 0) {
    zke_recipe_guid(session, others);
    _exit(write(fds[1], others, sizeof others) != sizeof others);
  }
  ck_assert_int_eq(read(fds[0], others, sizeof others), sizeof others);
  ck_assert_int_eq(waitpid(child, NULL, 0), child);
  for (int i = 0; i < 3; i++) {
    zke_recipe_guid(session, own);
    ck_assert_str_ne(own + NUMBER, others + NUMBER);
  }
  close(fds[0]);
  close(fds[1]);
  ck_ok(zke_close(session));
}

/* ---- another process in the middle of a call ----
 *
 * ann is the caller.  All others use the intruder's session, and act between
 * two of ann's steps. */

static void open_pair(void) {
  begin_steps(&of_two_phase);
  open_two();
  for (int i = 0; i < SESSIONS; i++) z[i] = i ? intruder : caller;
}

/* Begin a transaction of this many sites; its coordinator leaves immediately.
 * Delete the rows of the round before. */
static void begin_pair(int count) {
  sites = count;
  for (int i = 0; i < 2; i++) zke_delete(intruder, row(site_names[i]), -1);
  play("dan proposes; dan free");
}

static void end_pair(void) {
  free_parties();
  play("status -> NONODE");
}

static void others_ack(void) { play("bob acks_row commit -> done"); }

/* Two sites acknowledge at the same time: whenever the other comes, one is the
 * last.  Both rows are written once. */
TEST(acks_meet_at_every_moment) {
  int n = 0, was_last = 0;
  open_pair();
  for (bool came = true; came && n < 100;) {
    begin_pair(2);
    play("ann,bob opens; ann,bob votes_row commit -> done; ann steps");
    act_at(++n, others_ack);
    play("ann acks_row commit -> done");
    was_last += zke_exists(caller, TX, NULL, NULL, NULL) == ZKE_NONODE;
    came = acted();
    if (!came) others_ack();
    play("row a -> C 1; row b -> C 1");
    end_pair();
  }
  ck_assert_int_gt(was_last, 0);
  ck_assert_int_gt(n, 1);
}

/* The transaction is aborted and finished, and a new one of its name
 * commits. */
static void next_commits(void) {
  play(
      "bob aborts late; bob acks; status -> NONODE; dan proposes;"
      "bob opens a; bob votes commit");
}

/* An observer is never told the decision of a later transaction of the name. */
TEST(a_later_decision_is_anothers) {
  int n = 0, lost = 0;
  open_pair();
  for (bool came = true; came && n < 100;) {
    begin_pair(1);
    play("bob opens a; ann opens nobody");
    act_between(++n, next_commits);
    play("ann steps");
    came = acted();
    if (!came) next_commits();
    play("ann steps; ann is lost; bob wait -> commit; dan,bob acks");
    lost += came;
    end_pair();
  }
  ck_assert_int_gt(lost, 2);
}

/* The znode of the caller's vote goes before each change, and is back before
 * each read. */
static void vote_goes(void);
static void vote_comes(void) {
  zke_create(intruder, TX "/vote-a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
             NULL);
  act_at(1, vote_goes);
}

static void vote_goes(void) {
  zke_delete(intruder, TX "/vote-a", -1);
  act_between(1, vote_comes);
}

/* A vote that others always overtake ends with the call's time; the sentence
 * does not claim that they wrote to it. */
TEST(a_vote_that_is_never_quick_enough_ends) {
  open_pair();
  begin_pair(2);
  play("ann,bob opens; ann steps");
  int64_t limit = zke_limit(caller, zke_now(caller) + 100);
  act_at(1, vote_goes);
  int rc = zke_two_phase_vote(party[0], C);
  acted();
  zke_limit(caller, limit);
  ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  ck_says("others changed the tree at each look");
  zke_create(intruder, TX "/vote-a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
             NULL);
  play("ann votes abort; ann,bob acks");
  end_pair();
}

/* The site's next process, while the first is stopped in its vote: it finds the
 * transaction aborted, undoes what exists, and acknowledges. */
static void others_undo(void) {
  zke_op op;
  int done = -1;
  play("bob aborts late");
  ck_ok(vote_row(party[1], "a", C, &done));
  zke_op_delete(&op, row("a"), -1);
  ck_ok(zke_two_phase_ack_with(party[1], &op, done == BEFORE, NULL, NULL));
}

/* A site's process is stopped in its vote so long that another one has undone
 * its part: it changes nothing when it continues (T5). */
TEST(a_stopped_vote_leaves_no_row) {
  int n = 0, late = 0;
  open_pair();
  for (bool came = true; came && n < 100;) {
    int done = -1;
    begin_pair(2);
    play("ann opens; bob opens a");
    act_at(++n, others_undo);
    int rc = vote_row(party[0], "a", C, &done);
    came = acted();
    ck_ok(rc);
    play(came ? "row a -> NONODE" : "row a -> ? 0");
    late += came && done == NOT_DONE;
    if (!came) others_undo();
    play("cid opens b; cid acks");
    end_pair();
  }
  ck_assert_int_gt(late, 0);
}

/* ---- proof ---- */

static int form_used;

/* Record what a site does for a decision; as a real site would, before it
 * acknowledges. */
static int do_it(zke *s, const char *site, int decision) {
  char path[32];
  snprintf(path, sizeof path, "/done-%s", site);
  int rc = zke_create(s, path, decision == C ? "C" : "A", 1, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT, NULL, NULL);
  if (rc == ZKE_NODEEXISTS) return ZKE_OK;
  if (rc == ZKE_CONNECTIONLOSS) return do_it(s, site, decision);
  return rc;
}

static int finish(zke *s, zke_two_phase *tx, const char *site) {
  int decision = 0;
  int rc = zke_two_phase_wait(tx, zke_now(s) + recipe_patience_ms, &decision);
  if (rc == ZKE_OK) rc = do_it(s, site, decision);
  return rc == ZKE_OK ? zke_two_phase_ack(tx) : rc;
}

/* One process is the coordinator and both sites. */
static int use(zke *s) {
  zke_two_phase_options o = {.size = sizeof o, .form = form_used};
  zke_two_phase *tx = NULL, *a = NULL, *b = NULL;
  int rc = zke_two_phase_begin(s, BASE, "tx", "x", 1, site_names, 2, &o, &tx);
  if (rc == ZKE_OK) rc = zke_two_phase_open(s, BASE, "tx", "a", NULL, &a);
  if (rc == ZKE_OK) rc = zke_two_phase_open(s, BASE, "tx", "b", NULL, &b);
  if (rc == ZKE_OK) rc = zke_two_phase_vote(a, C);
  if (rc == ZKE_OK) rc = zke_two_phase_vote(b, C);
  if (rc == ZKE_OK)
    rc = zke_two_phase_wait(tx, zke_now(s) + recipe_patience_ms, NULL);
  if (rc == ZKE_OK) rc = finish(s, a, "a");
  if (rc == ZKE_OK) rc = finish(s, b, "b");
  if (rc == ZKE_OK) rc = zke_two_phase_ack(tx);
  zke_two_phase_free(a);
  zke_two_phase_free(b);
  zke_two_phase_free(tx);
  return rc;
}

/* What a site has done; '?': nothing. */
static char done(zke *s, const char *site) {
  char path[32], *data = NULL, what = '?';
  snprintf(path, sizeof path, "/done-%s", site);
  if (zke_get(s, path, NULL, NULL, &data, NULL, NULL) == ZKE_OK) what = *data;
  zke_free(data);
  return what;
}

/* Are there no more pending transactions? */
static bool nothing_pending(zke *s) {
  zke_strings *names;
  ck_ok(zke_two_phase_pending(s, BASE, NULL, NULL, NULL, &names));
  bool nothing = names->count == 0;
  zke_free(names);
  if (!nothing) zke_wait(s, zke_now(s) + 1); /* notices deaths */
  return nothing;
}

/* A site comes again: if it has not voted it may still abort. */
static zke_two_phase *come_again(zke *s, const char *site) {
  zke_two_phase *tx = NULL;
  int rc = zke_two_phase_open(s, BASE, "tx", site, NULL, &tx);
  if (rc == ZKE_NONODE) return NULL;
  ck_ok(rc);
  if (zke_two_phase_vote(tx, A) != ZKE_OK) ck_ok(zke_two_phase_vote(tx, C));
  return tx;
}

/* Whatever happened, both sites end with the same decision.  The last step
 * waits until the coordinator's death is noticed. */
static void check(zke *other, int rc) {
  zke_two_phase *tx[2];
  for (int i = 0; i < 2; i++) tx[i] = come_again(other, site_names[i]);
  for (int i = 0; i < 2; i++) {
    if (tx[i]) ck_ok(finish(other, tx[i], site_names[i]));
    zke_two_phase_free(tx[i]);
  }
  ck_until(nothing_pending(other), 5000);
  ck_rc(zke_exists(other, TX, NULL, NULL, NULL), ZKE_NONODE);
  ck_assert_int_eq(done(other, "a"), done(other, "b"));
  if (rc == ZKE_OK) ck_assert_int_eq(done(other, "a"), 'C');
}

static const recipe_use tx_use = {"two_phase", NULL, use, check};

/* The three tests of RECIPE_TESTS() (recipes.h), for each form. */
TEST_LOOP(a_death_anywhere_lets_others_go_on, 0, 4) {
  form_used = _i;
  ck_assert_int_gt(recipe_deaths(&tx_use), 20);
}

/* … */
TEST_LOOP(a_lost_reply_is_made_good, 0, 4) {
  form_used = _i;
  recipe_lost_replies(&tx_use);
}

/* … */
TEST_LOOP(a_fault_leaves_nothing_behind, 0, 4) {
  setenv("FAULT_MOST", "15", 0);
  form_used = _i;
  recipe_faults(&tx_use);
}
