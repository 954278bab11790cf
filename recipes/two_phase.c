/* two_phase.c - several sites do something together, or none does
 *
 * A transaction from beginning to end; each line is one step (one multi).
 * Functions without a file name are in this file; the others are in
 * recipes/part.
 *
 *   1. begin   the coordinator creates the znode with its head, "id-<id>",
 *              "coordinator" and for each site an empty vote, or, if votes are
 *              ephemeral, "came-<site>" (phase_create_all()).  A site that
 *              comes then creates its vote and writes "came-<site>"
 *              (phase_try_join())
 *   2. vote    a site writes "commit" into its vote; or "abort", and then
 *              "decision" with it (phase_give_vote()).  The same step does the
 *              caller's operations, and creates "work-<site>" for them
 *   3. decide  any participant creates "decision": "commit", if each vote is
 *              "commit" in that step; "abort" at the time limit, or when an
 *              ephemeral vote has gone, or on demand (phase_try_decide(),
 *              phase_look.c)
 *   4. ack     a site that has carried out the decision creates "ack-<site>",
 *              and the coordinator deletes "coordinator" (phase_write_ack()).
 *              A site may do its work in this step: operations of the caller
 *   5. remove  the last one to acknowledge deletes everything instead of 4,
 *              with the same operations (zke_phase_remove(), phase_tree.c)
 *
 * Invariants:
 *
 *   T1  "decision" is created once and never changes its word.  A process that
 *       has read it knows the final outcome; if two decide at the same time,
 *       one creates it, and the other reads it.
 *   T2  A vote's znode has version 0 while it is empty and 1 when it has a
 *       word; it never changes after that, and one that is made again begins at
 *       0 again.  So a check of version 1 is a check of the vote, and 3 relies
 *       on no vote that it merely saw.  A vote for "abort" has version 1 too,
 *       but the decision is made in the same step, so 3 fails.
 *   T3  Every change checks "id-<id>", so it cannot hit a later transaction of
 *       the same name.
 *   T4  Acknowledgements write "decision" at the version that was seen.  So if
 *       two acknowledge at the same time, one fails and looks again, and the
 *       last one knows that it is the last.
 *   T5  "id-<id>" has version 0 until the step that decides raises it.  A vote
 *       checks version 0, so none comes after the decision, and no operation
 *       with it: not even from a process that was stopped for long, after
 *       another one has acknowledged for its site.
 *   T6  The caller's operations are in the step of 2, 4 or 5, after the
 *       recipe's own.  So they are done exactly if this call gives the vote or
 *       the acknowledgement.  A mark with an id of the call stays:
 *       "work-<site>", which outlives an ephemeral vote, or "ack-<site>"
 *       itself.  A call that finds the mark leaves its operations out, and the
 *       id tells whether it was the call's own lost try.
 *   T7  The code of a caller's operation is not used here, since it may be one
 *       on which this recipe looks again.  The index of the refused operation
 *       tells whether it was the caller's or the recipe's (zke_steps_do_with(),
 *       phase_step.c).
 *   T8  An ephemeral vote is created in a step that writes "came-<site>".  So
 *       if that has another version than 0 and the vote is missing, the site
 *       has died, whether anybody had seen its vote or not.
 *
 * A death before a step leaves the transaction unchanged; after it, the step is
 * complete.  Any participant can decide and remove, so no process waits for a
 * dead one, except for its vote and its acknowledgement.  After a lost reply a
 * step is tried again.  If the first try has made it, the second one fails, and
 * the next look finds the decision, the vote or the acknowledgement; begin
 * finds its own id.  Votes and acknowledgements look before each try.
 *
 *     UNDECIDED --- all have voted commit ----> COMMIT --- all acks --> removed
 *         |                                                  ^
 *         '--- abort, limit, a site has died --> ABORT ------'
 *
 * Start reading at phase_try_begin(), then phase_try_vote() and, for the end,
 * phase_try_acknowledge(); the decision begins at zke_phase_step(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "two_phase.h"

#include <stdio.h>
#include <string.h>

#include "part/object.h"
#include "part/phase_list.h"
#include "part/phase_look.h"
#include "part/phase_step.h"
#include "part/phase_tree.h"
#include "part/text.h"
#include "part/znode.h"

#define PHASE_PLACE "two-phase"

/* A vote or an acknowledgement to give. */
typedef struct phase_act {
  zke_two_phase *t;
  int word;   /* of a vote: ZKE_TWO_PHASE_COMMIT or _ABORT */
  char *text; /* of a vote: the data of the decision that _ABORT makes */
  zke_phase_more *more; /* operations for the same step, or NULL */
} phase_act;

/* ---- beginning ---- */

/* A transaction to begin.  The object has its contents. */
typedef struct phase_start {
  zke_two_phase *t;
  const char *base; /* borrowed */
  char *text;       /* the znode's data */
  int len;          /* its bytes */
  bool unsure;      /* a try may have begun it */
} phase_start;

/* All znodes come in one step, so no process sees a transaction with some of
 * its votes.  If the coordinator dies after it, its ephemeral goes, and the
 * sites decide without it. */
static int phase_create_all(zke *z, const phase_start *b) {
  const zke_phase_head *h = &b->t->head;
  const char *kind = h->form & ZKE_TWO_PHASE_EPHEMERAL ? "came-" : "vote-";
  char by[ZKE_PHASE_BY];
  zke_phase_steps s;
  zke_phase_by(z, by);
  zke_steps_begin(&s, z, b->t->r.path, h->count + 3);
  zke_op *own = zke_steps_next(&s);
  if (own)
    zke_op_create(own, s.tx, b->text, b->len, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_steps_create(&s, "id-", h->id, "", ZKE_PERSISTENT);
  zke_steps_create(&s, "coordinator", "", by, ZKE_EPHEMERAL);
  for (int i = 0; i < h->count; i++)
    zke_steps_create(&s, kind, h->sites[i], "", ZKE_PERSISTENT);
  return zke_steps_do(&s);
}

/* There is a transaction of that name.  ZKE_OK: this call began it, and lost
 * the reply.  ZKE_LOOK_AGAIN: it was over and is removed; ZKE_NONODE,
 * ZKE_BADVERSION: it has gone, or is going.  ZKE_HELD: it is in progress. */
static int phase_meet(zke *z, const phase_start *b) {
  const char *path = b->t->r.path;
  char names[160];
  zke_phase_view v;
  bool over = false;
  int rc = zke_phase_view_read(z, path, &v);
  if (rc == ZKE_NONODE && zke_exists(z, path, NULL, NULL, NULL) == ZKE_OK)
    return zke_recipe_fail(ZKE_OTHERKIND, "%s holds only foreign znodes", path);
  if (rc != ZKE_OK) return rc;
  bool own = b->unsure && strcmp(v.head.id, b->t->head.id) == 0;
  if (!own) rc = zke_phase_is_over(z, path, &v, -1, &over);
  if (over) {
    rc = zke_phase_remove(z, path, &v, NULL);
    if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
  } else if (rc == ZKE_OK && !own) {
    bool decided = zke_phase_decided(&v);
    rc = zke_recipe_fail(
        ZKE_HELD, "there is a transaction %s, which waits for %s%s", path,
        decided ? "the acknowledgement of " : "the vote of ",
        zke_phase_list_missing(&v, decided, names, sizeof names));
  }
  zke_phase_view_free(&v);
  return rc;
}

/* One step: make the directory, and the transaction in it.  The directory is a
 * container, which may go before it has a child.  If the transaction exists,
 * this call may have begun it, with a lost reply, or it has ended and must be
 * removed: phase_meet() tells. */
static int phase_try_begin(zke *z, void *arg) {
  phase_start *b = arg;
  int rc = zke_recipe_place(z, b->base, PHASE_PLACE, ZKE_CONTAINER, NULL, 0);
  if (rc != ZKE_OK) return rc;
  rc = phase_create_all(z, b);
  b->unsure |= zke_recipe_is_lost(rc);
  if (rc == ZKE_NODEEXISTS) rc = phase_meet(z, b);
  return zke_recipe_faster(rc);
}

/* ---- taking part ----
 *
 * A site opens the transaction by its name.  In the ephemeral form it then
 * makes its vote, still empty, and the znode tells the others that the site is
 * there.  In the other form the votes exist from the beginning, and the process
 * that acts for a site is unknown until it votes.
 */

/* The ephemeral vote exists.  Is it this session's, or another live session's?
 * ZKE_LOOK_AGAIN: it was a dead session's. */
static int phase_meet_vote(zke_two_phase *t) {
  zke *z = t->r.z;
  const char *path = t->votes[t->own].path;
  zke_stat stat;
  char what[256];
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return ZKE_LOOK_AGAIN;
  if (rc != ZKE_OK || stat.ephemeralOwner == zke_session_id(z)) return rc;
  snprintf(what, sizeof what, "the vote of %.60s in %.120s",
           t->head.sites[t->own], t->r.path);
  rc = zke_recipe_say_held(z, ZKE_HELD, what, path);
  return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : rc;
}

/* The ephemeral vote shows that the site is there, and "came-<site>" that it
 * was (T8).  If the transaction has been removed and begun again, the check of
 * the id makes this fail.  One step; others may change the votes meanwhile. */
static int phase_try_join(zke *z, void *arg) {
  zke_two_phase *t = arg;
  zke_phase_steps s;
  zke_steps_begin(&s, z, t->r.path, 3);
  zke_steps_check(&s, "id-", t->head.id, -1);
  zke_steps_set(&s, "came-", t->head.sites[t->own], "", -1);
  zke_steps_create(&s, "vote-", t->head.sites[t->own], "", ZKE_EPHEMERAL);
  int rc = zke_steps_do(&s);
  if (zke_recipe_is_lost(rc)) t->joined = true; /* perhaps */
  if (rc == ZKE_NODEEXISTS) rc = phase_meet_vote(t);
  if (rc == ZKE_OK) t->joined = true;
  return rc;
}

/* ---- the caller's operations ----
 *
 * T6 says in which step they are, T7 how a refusal is reported; the mark is for
 * a call that has lost its reply. */

/* Were operations done for the own site, and by which call?  The result is in
 * more->done.
 *
 *   prefix  of the mark's name: "work-" or "ack-"
 *
 * ZKE_NONODE: there is no mark, and no operations were done; ZKE_LOOK_AGAIN:
 * the transaction has gone. */
static int phase_read_mark(const zke_two_phase *t, const char *prefix,
                           zke_phase_more *more) {
  zke_op_result got;
  char *path = zke_phase_path(t->r.z, t->r.path, prefix, t->head.sites[t->own]);
  if (!path) return ZKE_NOMEM;
  int rc = zke_phase_read_child(t, path, &got);
  const char *id = got.data ? got.data : "";
  more->done = ZKE_TWO_PHASE_NOT_DONE;
  if (rc == ZKE_OK && *id) {
    bool own = more->tried && strcmp(id, more->id) == 0;
    more->done = own ? ZKE_TWO_PHASE_DONE : ZKE_TWO_PHASE_DONE_BEFORE;
  }
  zke_results_clear(&got, 1);
  zke_free(path);
  return rc;
}

/* ---- voting ----
 *
 * A vote is written once, at version 0 (T2), in a step that fails once there is
 * a decision (T5).  A call looks, writes, and looks again if that failed.
 */

/* The site has voted before: the same, which is allowed, or otherwise. */
static int phase_compare_vote(const zke_two_phase *t, int given, int vote) {
  if (given == vote) return ZKE_OK;
  return zke_recipe_fail(ZKE_MISUSE, "%s has voted %s in %s",
                         t->head.sites[t->own], zke_phase_words[given],
                         t->r.path);
}

/* Give the vote; "abort" in one step with the decision that it means.  The vote
 * must have version 0: it is given once (T2); and so must the id: there is no
 * decision (T5).  The same step does the caller's operations, unless an earlier
 * vote of the site did them, and went with its session (T6).
 *
 *   missing  make the vote's znode in the same step */
static int phase_give_vote(zke *z, const phase_act *a, bool missing) {
  const zke_two_phase *t = a->t;
  const char *site = t->head.sites[t->own];
  bool does = a->more && a->more->done == ZKE_TWO_PHASE_NOT_DONE;
  zke_phase_more *more = does ? a->more : NULL;
  zke_phase_steps s;
  zke_steps_begin(&s, z, t->r.path, 6 + zke_more_count(more));
  zke_steps_check(&s, "id-", t->head.id, 0);
  if (missing) zke_steps_create(&s, "vote-", site, "", ZKE_EPHEMERAL);
  zke_steps_set(&s, "vote-", site, zke_phase_words[a->word], 0);
  if (a->word == ZKE_TWO_PHASE_ABORT) {
    zke_steps_set(&s, "id-", t->head.id, "", 0);
    zke_steps_create(&s, "decision", "", a->text, ZKE_PERSISTENT);
  }
  if (more) zke_steps_create(&s, "work-", site, more->id, ZKE_PERSISTENT);
  return zke_steps_do_with(&s, more);
}

/* Give the vote in an undecided transaction in which the site has none.
 *
 *   there  the result of reading the vote's znode.  Only an ephemeral one may
 *          be missing: then it is made; if it belongs to a dead session, that
 *          session is ended first
 *
 * If the outcome is not known the object counts as joined, so it removes the
 * znode when it goes. */
static int phase_vote_now(zke *z, const phase_act *a, int there) {
  zke_two_phase *t = a->t;
  bool ephemeral = t->head.form & ZKE_TWO_PHASE_EPHEMERAL;
  int rc = there;
  if (!ephemeral) return rc == ZKE_OK ? phase_give_vote(z, a, false) : rc;
  if (rc == ZKE_OK) rc = phase_meet_vote(t);
  if (rc == ZKE_OK || rc == ZKE_NONODE)
    rc = phase_give_vote(z, a, rc == ZKE_NONODE);
  if (rc == ZKE_OK || zke_recipe_is_lost(rc)) t->joined = true;
  return rc;
}

/* The own vote's znode is missing; it is made with the transaction and goes
 * with it.  If the transaction still exists, and is undecided, somebody has
 * deleted the vote alone. */
static int phase_vote_deleted(zke_two_phase *t) {
  int rc = zke_phase_look_decision(t);
  if (rc != ZKE_OK) return rc;
  if (t->state != ZKE_TWO_PHASE_UNDECIDED) return ZKE_LOOK_AGAIN;
  return zke_recipe_fail(ZKE_NONODE, "the vote of %s on %s was deleted",
                         t->head.sites[t->own], t->r.path);
}

/* Read the own vote, and then whether operations were done with it: the step of
 * a vote does them, so a vote that was seen has its mark.  A transaction that
 * has gone, after this object saw its decision, needs no vote.
 *
 *   there  out: the result of reading the vote's znode */
static int phase_read_own(const phase_act *a, int *given, int *there) {
  *there = zke_phase_read_vote(a->t, a->t->own, false, given);
  if (!a->more) return ZKE_OK;
  int rc = phase_read_mark(a->t, "work-", a->more);
  if (rc == ZKE_LOOK_AGAIN && a->t->state != ZKE_TWO_PHASE_UNDECIDED) {
    a->more->done = ZKE_TWO_PHASE_GONE;
    *given = ZKE_TWO_PHASE_UNDECIDED;
    return ZKE_OK;
  }
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* A vote was refused.  ZKE_LOOK_AGAIN: others have changed what it depends on.
 * ZKE_RUNTIMEINCONSISTENCY: something else has written data that T2 and T5 rely
 * on.  At any moment an undecided transaction has its id at version 0, a vote
 * at 0, or at 1 with a word, and no mark of work without one. */
static int phase_see_meddling(const zke_two_phase *t) {
  zke_op_result got[4] = {{0}};
  zke_phase_steps s;
  zke_steps_begin(&s, t->r.z, t->r.path, 4);
  zke_steps_get(&s, "id-", t->head.id);
  zke_steps_get(&s, "decision", "");
  zke_steps_get(&s, "vote-", t->head.sites[t->own]);
  zke_steps_get(&s, "work-", t->head.sites[t->own]);
  int rc = zke_steps_read(&s, got);
  bool undecided = got[0].rc == ZKE_OK && got[1].rc == ZKE_NONODE;
  bool voted = got[2].stat.version == 1 && zke_phase_word(got[2].data);
  bool meddled = got[0].stat.version || (got[2].stat.version && !voted) ||
                 (got[3].rc == ZKE_OK && got[3].len <= 0);
  zke_results_clear(got, 4);
  if (rc != ZKE_OK) return rc;
  return undecided && meddled ? zke_phase_meddled(t) : ZKE_LOOK_AGAIN;
}

/* A vote is given once; the same one again is allowed, another one is refused.
 * If the process dies before the step the site has not voted; after it the vote
 * stays, unless votes are ephemeral and the transaction is undecided. */
static int phase_try_vote(zke *z, void *arg) {
  const phase_act *a = arg;
  zke_two_phase *t = a->t;
  int given, there;
  int rc = zke_phase_look_decision(t);
  if (rc != ZKE_OK) return rc;
  if (t->state == ZKE_TWO_PHASE_LOST) return zke_phase_gone(t);
  rc = phase_read_own(a, &given, &there);
  if (rc != ZKE_OK) return rc;
  if (given) return phase_compare_vote(t, given, a->word);
  if (t->state != ZKE_TWO_PHASE_UNDECIDED) return ZKE_OK;
  if (there == ZKE_NONODE && !(t->head.form & ZKE_TWO_PHASE_EPHEMERAL))
    return phase_vote_deleted(t);
  rc = zke_recipe_faster(phase_vote_now(z, a, there));
  return rc == ZKE_LOOK_AGAIN ? phase_see_meddling(t) : rc;
}

/* ---- acknowledging ----
 *
 * The decision is kept until all sites, and the coordinator if it lives, have
 * acknowledged it; then the last of them removes the transaction.  So if a
 * transaction has gone, all have acknowledged, this participant too, and a
 * repeated try that finds none has succeeded.
 */

/* Has this participant acknowledged, as of the view? */
static bool phase_has_acknowledged(const zke_two_phase *t,
                                   const zke_phase_view *v) {
  return t->own >= 0 ? zke_phase_has(v, "ack-", t->head.sites[t->own])
                     : !zke_phase_has(v, "coordinator", "");
}

/* Write this participant's acknowledgement, unless it exists already.  It also
 * writes the decision, at the version seen, so of two at the same time one
 * looks again (T4).  With operations of the caller it contains the id of the
 * call (T6). */
static int phase_write_ack(zke_two_phase *t, const zke_phase_view *v,
                           zke_phase_more *more) {
  zke_phase_steps s;
  if (phase_has_acknowledged(t, v)) return ZKE_OK;
  zke_steps_begin(&s, t->r.z, t->r.path, 3 + zke_more_count(more));
  zke_steps_check(&s, "id-", t->head.id, -1);
  zke_steps_set(&s, "decision", "", v->got[1].data, v->got[1].stat.version);
  if (t->own >= 0)
    zke_steps_create(&s, "ack-", t->head.sites[t->own], more ? more->id : "",
                     ZKE_PERSISTENT);
  else
    zke_steps_delete(&s, "coordinator", "");
  return zke_steps_do_with(&s, more);
}

/* Have all others acknowledged?  For a coordinator: all sites.  For a site: all
 * other sites, and the coordinator, unless it is dead. */
static int phase_is_last(zke_two_phase *t, const zke_phase_view *v,
                         bool *last) {
  *last = zke_phase_unacknowledged(v, -1) == 0;
  return t->coordinator ? ZKE_OK
                        : zke_phase_is_over(t->r.z, t->r.path, v, t->own, last);
}

/* Acknowledge in the transaction of a view.  The last one removes it instead of
 * writing the acknowledgement, if no other has acknowledged since the view: so
 * if several are the last at the same moment, one of them does it.  If the site
 * has acknowledged before, operations were done, and are not done again. */
static int phase_acknowledge_in(zke_two_phase *t, const zke_phase_view *v,
                                zke_phase_more *more) {
  bool last = false;
  int rc = ZKE_OK;
  if (!zke_phase_decided(v))
    return zke_recipe_fail(ZKE_MISUSE, "%s is undecided", t->r.path);
  if (more && phase_has_acknowledged(t, v)) {
    rc = phase_read_mark(t, "ack-", more);
    more = NULL;
  }
  if (rc == ZKE_OK) rc = phase_is_last(t, v, &last);
  if (rc == ZKE_OK && last) rc = zke_phase_remove(t->r.z, t->r.path, v, more);
  if (rc == ZKE_NOTEMPTY || (rc == ZKE_OK && !last))
    rc = phase_write_ack(t, v, more);
  return rc;
}

/* One step of an acknowledgement.  If somebody else has acknowledged at the
 * same moment it looks again.  If the transaction has gone, all have
 * acknowledged, which is fine.  If the process dies before the step, another
 * one that opens the transaction with the site's name acknowledges. */
static int phase_try_acknowledge(zke *z, void *arg) {
  const phase_act *a = arg;
  zke_two_phase *t = a->t;
  zke_phase_view v;
  int rc = zke_phase_view_read(z, t->r.path, &v);
  bool gone = rc == ZKE_NONODE || rc == ZKE_OTHERKIND;
  if (rc == ZKE_OK) {
    gone = strcmp(v.head.id, t->head.id) != 0;
    if (!gone) rc = phase_acknowledge_in(t, &v, a->more);
    zke_phase_view_free(&v);
  }
  if (gone && a->more) a->more->done = ZKE_TWO_PHASE_GONE;
  return gone ? ZKE_OK : zke_recipe_faster(rc);
}

/* Acknowledge the decision; twice does no harm.
 *
 *   more  a site's, or NULL */
static int phase_acknowledge(zke_two_phase *t, zke_phase_more *more) {
  phase_act a = {.t = t, .more = more};
  return zke_recipe_do(t->r.z, phase_try_acknowledge, &a, ZKE_FOREVER);
}

/* ---- leaving ---- */

/* Delete an ephemeral of this transaction, if this session owns it, now or
 * later.  One of a later transaction of the same name is left alone: id and
 * ephemeral are read in one snapshot.  If they cannot be read, it is deleted
 * all the same; if it belongs to another object of this handle, that object's
 * participant counts as dead, so its transaction is aborted at worst. */
static void phase_drop(zke_two_phase *t, char *path) {
  zke_op_result got;
  int rc = zke_phase_read_child(t, path, &got);
  int64_t czxid = rc == ZKE_OK ? got.stat.czxid : 0;
  zke_results_clear(&got, 1);
  if (rc != ZKE_NONODE && rc != ZKE_LOOK_AGAIN)
    zke_recipe_discard(t->r.z, path, ZKE_EPHEMERAL, czxid);
}

/* A coordinator acknowledges when it goes; a site acknowledges only when it
 * reports that its work is done. */
static void phase_quit(zke_recipe *r) {
  zke_two_phase *t = (zke_two_phase *)r;
  if (t->coordinator &&
      (t->state == ZKE_TWO_PHASE_COMMIT || t->state == ZKE_TWO_PHASE_ABORT))
    phase_acknowledge(t, NULL);
  if (t->coordinator) phase_drop(t, t->leader);
  if (t->joined) phase_drop(t, t->votes[t->own].path);
}

/* The number is the token of the decision, the text its reason. */
static void phase_deliver(zke_recipe *r, int event, int64_t number,
                          const char *text, int len) {
  zke_two_phase *t = (zke_two_phase *)r;
  (void)len;
  if (t->listener) t->listener(t, event, number, text, t->context);
}

static const zke_recipe_class phase_class = {.name = "transaction",
                                             .event = zke_phase_event,
                                             .step = zke_phase_step,
                                             .ended = zke_phase_ended,
                                             .deliver = phase_deliver,
                                             .quit = phase_quit,
                                             .destroy = zke_phase_destroy};

/* ---- the object ---- */

/* Make the object of base/name, without its head.
 *
 *   o  out: the options as given */
static int phase_new(zke *z, const char *base, const char *name,
                     const zke_two_phase_options *given,
                     zke_two_phase_options *o, zke_two_phase **out) {
  zke_recipe *r = NULL;
  if (!out) return zke_recipe_fail(ZKE_BADARGUMENTS, "t_out is NULL");
  *out = NULL;
  int rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  if (!base || !name || !*name || strchr(name, '/'))
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "base/name is not a transaction's path");
  rc = zke_take_options(given, o, sizeof *o, "zke_two_phase_options");
  if (rc != ZKE_OK) return rc;
  char *path = zke_phase_tx_path(z, base, name);
  if (!path) return ZKE_NOMEM;
  rc = zke_recipe_new(z, path, &phase_class, sizeof(zke_two_phase), &r);
  zke_free(path);
  if (rc != ZKE_OK) return rc;
  *out = (zke_two_phase *)r;
  (*out)->own = -1;
  (*out)->listener = o->listener;
  (*out)->context = o->context;
  return ZKE_OK;
}

/* The mutex is held: begin, then watch.  If the watch fails, it is repeated
 * later.  If a try may have begun it, the object is the coordinator's as well:
 * then its znodes go with the object.
 *
 *   given  the limit counts from now on; the id is made here */
static int phase_begin(zke_two_phase *t, const char *base,
                       const zke_phase_head *given) {
  zke *z = t->r.z;
  phase_start b = {.t = t, .base = base};
  zke_phase_head h = *given;
  char id[ZKE_RECIPE_GUID];
  int rc = ZKE_NOMEM;
  zke_recipe_guid(z, id);
  h.id = id;
  if (h.limit_ms) h.limit_ms += zke_wall(z);
  b.text = zke_phase_head_write(z, &h, &b.len);
  if (b.text) t->head.text = zke_recipe_copy(z, b.text, (size_t)b.len);
  if (t->head.text)
    rc = zke_phase_head_parse(z, &t->head, b.len); /* as others do */
  if (rc == ZKE_OK) rc = zke_phase_prepare(t);
  if (rc == ZKE_OK) rc = zke_recipe_do(z, phase_try_begin, &b, ZKE_FOREVER);
  t->coordinator = rc == ZKE_OK || b.unsure;
  if (rc == ZKE_OK) zke_recipe_look(&t->r);
  zke_free(b.text);
  return rc;
}

/* The object is made first, since its path must be known; after any failure it
 * is freed. */
int zke_two_phase_begin(zke *z, const char *base, const char *name,
                        const void *payload, int len, const char *const *sites,
                        int count, const zke_two_phase_options *options,
                        zke_two_phase **t_out) {
  zke_two_phase *t;
  zke_two_phase_options o;
  int rc = phase_new(z, base, name, options, &o, &t);
  if (t_out) *t_out = NULL;
  if (rc != ZKE_OK) return rc;
  zke_phase_head given = {.form = o.form,
                          .limit_ms = o.limit_ms,
                          .count = count,
                          .sites = sites,
                          .payload = payload,
                          .len = len};
  rc = zke_phase_check_sites(sites, count);
  if (rc == ZKE_OK &&
      (!t_out || len < 0 || (!payload && len) || o.limit_ms < 0 ||
       o.limit_ms > INT64_MAX / 4 || (o.form & ~ZKE_PHASE_FORMS)))
    rc = zke_recipe_fail(ZKE_BADARGUMENTS, "t_out, payload, limit or form");
  if (rc == ZKE_OK) rc = zke_recipe_enter(&t->r);
  if (rc == ZKE_OK) {
    rc = phase_begin(t, base, &given);
    if (rc == ZKE_OK) *t_out = t;
    rc = zke_recipe_leave(&t->r, rc);
  }
  if (rc != ZKE_OK) zke_recipe_free(&t->r);
  return rc;
}

/* The mutex is held: read the transaction; in the ephemeral form join. */
static int phase_open(zke_two_phase *t, const char *site) {
  zke *z = t->r.z;
  int rc = zke_phase_head_read(z, t->r.path, &t->head);
  if (rc == ZKE_OK) rc = zke_phase_prepare(t);
  if (rc == ZKE_OK && site) t->own = zke_phase_head_find(&t->head, site);
  if (rc == ZKE_OK && site && t->own < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%s takes no part in %s", site,
                           t->r.path);
  if (rc == ZKE_OK) rc = zke_phase_look_decision(t);
  if (rc == ZKE_NONODE || rc == ZKE_LOOK_AGAIN ||
      (rc == ZKE_OK && t->state == ZKE_TWO_PHASE_LOST))
    return zke_recipe_fail(ZKE_NONODE, "there is no transaction %s", t->r.path);
  if (rc == ZKE_OK && site && t->state == ZKE_TWO_PHASE_UNDECIDED &&
      t->head.form & ZKE_TWO_PHASE_EPHEMERAL)
    rc = zke_recipe_do(z, phase_try_join, t, ZKE_FOREVER);
  return rc == ZKE_OK ? zke_recipe_look(&t->r) : rc;
}

/* If a process opened a transaction and died, it opens it again by the site's
 * name, and finds its vote. */
int zke_two_phase_open(zke *z, const char *base, const char *name,
                       const char *site, const zke_two_phase_options *options,
                       zke_two_phase **t_out) {
  zke_two_phase_options o;
  int rc = phase_new(z, base, name, options, &o, t_out);
  if (rc != ZKE_OK) return rc;
  zke_two_phase *t = *t_out;
  rc = zke_recipe_enter(&t->r);
  if (rc == ZKE_OK) {
    rc = phase_open(t, site);
    if (rc != ZKE_OK) t->listener = NULL;
    rc = zke_recipe_leave(&t->r, rc);
  }
  if (rc == ZKE_OK) return ZKE_OK;
  zke_recipe_free(&t->r);
  *t_out = NULL;
  return rc;
}

/* The session's own znodes go: a coordinator's znode, and ephemeral votes.  Any
 * other vote stays. */
void zke_two_phase_free(zke_two_phase *t) { zke_recipe_free((zke_recipe *)t); }

/* ---- its part: to vote, to abort, to acknowledge ---- */

/* Leave a call with operations.  If one of them was refused, the object does
 * not see its code, because that code may mean to the object that the session
 * has ended (T7). */
static int phase_leave(zke_two_phase *t, const zke_phase_more *more, int rc,
                       int *done_out) {
  if (rc == ZKE_OK && done_out) *done_out = more->done;
  rc = zke_recipe_leave(&t->r, rc);
  return more->refused ? more->code : rc;
}

/* The mutex is held: vote.  A vote for abort decides in the same step.  After
 * the last vote one look is enough to decide. */
static int phase_vote_as(zke_two_phase *t, int vote, zke_phase_more *more) {
  phase_act a = {.t = t, .word = vote, .more = more->count ? more : NULL};
  char why[160];
  if (t->own < 0)
    return zke_recipe_fail(ZKE_MISUSE, "an onlooker has no vote in %s",
                           t->r.path);
  if (vote != ZKE_TWO_PHASE_COMMIT && vote != ZKE_TWO_PHASE_ABORT)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d is not a vote", vote);
  snprintf(why, sizeof why, "%.100s has voted abort", t->head.sites[t->own]);
  if (a.more) zke_recipe_guid(t->r.z, more->id);
  a.text = zke_phase_decision_text(t->r.z, ZKE_TWO_PHASE_ABORT, why);
  if (!a.text) return ZKE_NOMEM;
  int rc = zke_recipe_do(t->r.z, phase_try_vote, &a, ZKE_FOREVER);
  zke_free(a.text);
  if (rc == ZKE_OK) zke_recipe_look(&t->r); /* it may have been the last one */
  return rc;
}

/* The vote and the caller's changes are one step. */
int zke_two_phase_vote_with(zke_two_phase *t, int vote, const zke_op *ops,
                            int count, zke_op_result *results, int *done_out) {
  zke_phase_more more = {.ops = ops, .count = count, .results = results};
  int rc = zke_more_check(&more);
  if (rc == ZKE_OK) rc = zke_recipe_enter((zke_recipe *)t);
  if (rc != ZKE_OK) return rc;
  return phase_leave(t, &more, phase_vote_as(t, vote, &more), done_out);
}

/* A vote without changes of the caller. */
int zke_two_phase_vote(zke_two_phase *t, int vote) {
  return zke_two_phase_vote_with(t, vote, NULL, 0, NULL, NULL);
}

/* Any participant may abort an undecided transaction.  If two decide at the
 * same time, one makes the znode, and the other reads it. */
int zke_two_phase_abort(zke_two_phase *t, const char *why) {
  int rc = zke_recipe_enter((zke_recipe *)t);
  if (rc != ZKE_OK) return rc;
  do {
    rc = zke_phase_look_decision(t);
    if (rc == ZKE_OK && t->state == ZKE_TWO_PHASE_UNDECIDED)
      rc = zke_phase_decide(t, ZKE_TWO_PHASE_ABORT, why ? why : "");
  } while (zke_recipe_again(t->r.z, &rc));
  if (rc == ZKE_OK && t->state == ZKE_TWO_PHASE_LOST) rc = zke_phase_gone(t);
  if (rc == ZKE_OK && t->state == ZKE_TWO_PHASE_COMMIT)
    rc = zke_recipe_fail(ZKE_MISUSE, "%s is committed", t->r.path);
  return zke_recipe_leave(&t->r, rc);
}

/* The mutex is held: acknowledge.  A coordinator's part is lost when it dies,
 * so nothing can be promised for its operations. */
static int phase_acknowledge_as(zke_two_phase *t, zke_phase_more *more) {
  if (t->own < 0 && !t->coordinator)
    return zke_recipe_fail(ZKE_MISUSE, "an onlooker does not acknowledge");
  if (t->own < 0 && more->count)
    return zke_recipe_fail(ZKE_MISUSE, "only a site takes operations along");
  if (!more->count) return phase_acknowledge(t, NULL);
  zke_recipe_guid(t->r.z, more->id);
  return phase_acknowledge(t, more);
}

/* The acknowledgement and the caller's changes are one step: the outcome is
 * applied when the site acknowledges it. */
int zke_two_phase_ack_with(zke_two_phase *t, const zke_op *ops, int count,
                           zke_op_result *results, int *done_out) {
  zke_phase_more more = {.ops = ops, .count = count, .results = results};
  int rc = zke_more_check(&more);
  if (rc == ZKE_OK) rc = zke_recipe_enter((zke_recipe *)t);
  if (rc != ZKE_OK) return rc;
  return phase_leave(t, &more, phase_acknowledge_as(t, &more), done_out);
}

/* The site's work is done: it does not need the decision any more. */
int zke_two_phase_ack(zke_two_phase *t) {
  return zke_two_phase_ack_with(t, NULL, 0, NULL, NULL);
}

/* ---- waiting ---- */

/* For zke_recipe_await(): is it decided?  The await itself reports the
 * session's end. */
static int phase_is_done(zke_recipe *r) {
  const zke_two_phase *t = (const zke_two_phase *)r;
  if (t->state == ZKE_TWO_PHASE_UNDECIDED || r->ended) return ZKE_NOT_YET;
  return t->state == ZKE_TWO_PHASE_LOST ? zke_phase_gone(t) : ZKE_OK;
}

/* When to look again, of zke_now(): at the time limit, if that comes before the
 * deadline.  The limit is a wall time, and the clock may be set meanwhile. */
static int64_t phase_until(const zke_two_phase *t, int64_t deadline_ms) {
  if (!t->head.limit_ms) return deadline_ms;
  int64_t left = t->head.limit_ms - zke_wall(t->r.z);
  int64_t until = zke_now(t->r.z) + (left > 0 ? left : 0);
  return until < deadline_ms ? until : deadline_ms;
}

/* Names the missing votes; without a view the sentence is unchanged. */
static int phase_say_missing(const zke_two_phase *t, int rc) {
  char names[200];
  zke_sentence kept;
  zke_recipe_keep(&kept);
  if (zke_phase_missing_votes(t, names, sizeof names) != ZKE_OK)
    return zke_recipe_restore(&kept, rc);
  return zke_recipe_fail(rc, "the transaction %s waits for %s%s", t->r.path,
                         *names ? "the vote of " : "its coordinator", names);
}

/* Wait for the decision, and look again at the time limit: a waiting
 * participant may be the one that must abort then. */
static int phase_wait(zke_two_phase *t, int64_t deadline_ms) {
  int rc;
  int64_t until;
  do {
    t->r.changed = true;
    until = phase_until(t, deadline_ms);
    rc = zke_recipe_await(&t->r, phase_is_done, until);
  } while (rc == ZKE_OPERATIONTIMEOUT && until < deadline_ms);
  return rc == ZKE_OPERATIONTIMEOUT ? phase_say_missing(t, rc) : rc;
}

/* Only one call may wait with an object. */
int zke_two_phase_wait(zke_two_phase *t, int64_t deadline_ms,
                       int *decision_out) {
  int rc = zke_recipe_enter_by((zke_recipe *)t, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (t->waiting) {
    rc = zke_recipe_fail(ZKE_MISUSE, "another thread waits for %s", t->r.path);
    return zke_recipe_leave(&t->r, rc);
  }
  t->waiting = true;
  rc = phase_wait(t, deadline_ms);
  t->waiting = false;
  if (rc == ZKE_OK && decision_out) *decision_out = t->state;
  return zke_recipe_leave(&t->r, rc);
}

/* ---- other calls ---- */

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_two_phase_cancel(zke_two_phase *t) {
  return zke_recipe_cancel((zke_recipe *)t);
}

/* For a program without a dispatch: looks as after an event. */
int zke_two_phase_step(zke_two_phase *t) {
  return zke_recipe_step((zke_recipe *)t);
}

/* From memory: as of the last look or event. */
int zke_two_phase_state(zke_two_phase *t) {
  if (zke_recipe_enter_memory((zke_recipe *)t) != ZKE_OK)
    return ZKE_TWO_PHASE_LOST;
  int state = t->state;
  zke_recipe_leave(&t->r, ZKE_OK);
  return state;
}

/* The decision's czxid, 0 before it. */
int64_t zke_two_phase_token(zke_two_phase *t) {
  if (zke_recipe_enter_memory((zke_recipe *)t) != ZKE_OK) return 0;
  int64_t token = t->token;
  zke_recipe_leave(&t->r, ZKE_OK);
  return token;
}

/* The coordinator's data for all; it does not change. */
int zke_two_phase_payload(zke_two_phase *t, char **data_out, int *len_out) {
  int rc = zke_recipe_enter((zke_recipe *)t);
  if (rc != ZKE_OK) return rc;
  if (data_out) {
    char *copy = zke_recipe_copy(t->r.z, t->head.payload, (size_t)t->head.len);
    if (copy)
      *data_out = copy;
    else
      rc = ZKE_NOMEM;
  }
  if (rc == ZKE_OK && len_out) *len_out = t->head.len;
  return zke_recipe_leave(&t->r, rc);
}

/* ---- looking without an object ---- */

/* One snapshot, for callers without an object. */
int zke_two_phase_get(zke *z, const char *base, const char *name,
                      zke_two_phase_status **status_out) {
  int rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  if (!base || !name || !status_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "base, name or status_out is NULL");
  char *path = zke_phase_tx_path(z, base, name);
  rc = path ? zke_phase_status(z, path, status_out) : ZKE_NOMEM;
  zke_free(path);
  return rc;
}

/* A site's open transactions, for when it starts.  A missing base has none. */
int zke_two_phase_pending(zke *z, const char *base, const char *site,
                          zke_watch_fn fn, void *context,
                          zke_strings **names_out) {
  zke_strings *names = NULL;
  if (!names_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "names_out is NULL");
  int rc = zke_children(z, base, fn, context, &names, NULL);
  if (rc == ZKE_NONODE) {
    names = zke_alloc(z, sizeof *names);
    rc = names ? ZKE_OK : ZKE_NOMEM;
  }
  if (rc == ZKE_OK) rc = zke_phase_pending(z, base, site, names);
  if (rc == ZKE_OK)
    *names_out = names;
  else
    zke_free(names);
  return rc;
}
