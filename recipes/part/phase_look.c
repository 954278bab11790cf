/* phase_look.c - what a participant of a two-phase commit watches, and how it
 * decides
 *
 * This file knows the object: what it has read, and which watches it has.  It
 * promises its callers: a look ends with the decision known, or with watches on
 * everything that can bring it, or it fails.  These are
 *
 *   "decision"     always
 *   the votes      if this object must decide for all
 *   "coordinator"  else: when it goes, this object must decide
 *
 * That needs no agreement: if several decide at the same time, one makes the
 * decision, and the others read it (T1).  The time limit fires no watch; a look
 * after the limit finds it, and zke_two_phase_wait() makes one.
 *
 * Invariants:
 *  1. The state leaves ZKE_TWO_PHASE_UNDECIDED once, and never changes after
 *     that; the listener hears of it then, and of nothing else
 *     (phase_conclude()).
 *  2. `watched` of a vote and `leader_watched` are true only while there is
 *     such a watch, or until the event of a fired one is called.
 *
 * Start reading at zke_phase_step() and phase_look(), then phase_look_votes()
 * and phase_try_decide(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "phase_look.h"

#include <stdio.h>
#include <string.h>

#include "text.h"

/* ---- the object ---- */

int zke_phase_prepare(zke_two_phase *t) {
  zke *z = t->r.z;
  const char *tx = t->r.path;
  bool all = true;
  t->votes = zke_alloc(z, (size_t)t->head.count * sizeof *t->votes);
  t->decision = zke_phase_path(z, tx, "decision", "");
  t->leader = zke_phase_path(z, tx, "coordinator", "");
  t->id = zke_phase_path(z, tx, "id-", t->head.id);
  for (int i = 0; t->votes && i < t->head.count; i++) {
    t->votes[i].path = zke_phase_path(z, tx, "vote-", t->head.sites[i]);
    all = all && t->votes[i].path;
  }
  return t->votes && t->decision && t->leader && t->id && all ? ZKE_OK
                                                              : ZKE_NOMEM;
}

/* Persistent znodes stay: later participants need the decision. */
void zke_phase_destroy(zke_recipe *r) {
  zke_two_phase *t = (zke_two_phase *)r;
  for (int i = 0; t->votes && i < t->head.count; i++)
    zke_free(t->votes[i].path);
  zke_free(t->votes);
  zke_free(t->decision);
  zke_free(t->leader);
  zke_free(t->id);
  zke_phase_head_free(&t->head);
}

/* ---- the decision ---- */

int zke_phase_gone(const zke_two_phase *t) {
  return zke_recipe_fail(ZKE_LOST, "the transaction %s has gone", t->r.path);
}

int zke_phase_meddled(const zke_two_phase *t) {
  return zke_recipe_fail(ZKE_RUNTIMEINCONSISTENCY,
                         "something else has written to %s", t->r.path);
}

/* Take back a watch that is no longer needed: it would keep the engine busy
 * with unread events. */
static void phase_unwatch_path(zke_two_phase *t, const char *path,
                               bool *watched) {
  if (!*watched) return;
  zke_remove_watch(t->r.z, path, ZKE_WATCH_DATA, zke_recipe_watcher, &t->r);
  *watched = false;
}

/* The end of the transaction is known: record it, and tell the listener, once.
 * Without memory for the reason, tell it without one. */
static void phase_conclude(zke_two_phase *t, int state, int64_t token,
                           const char *why, int len) {
  if (t->state != ZKE_TWO_PHASE_UNDECIDED) return;
  t->state = state;
  t->token = token;
  if (!zke_recipe_tell(&t->r, state, token, why, len))
    zke_recipe_tell(&t->r, state, token, NULL, 0);
  if (t->r.ended) return;
  phase_unwatch_path(t, t->leader, &t->leader_watched);
  for (int i = 0; i < t->head.count; i++)
    phase_unwatch_path(t, t->votes[i].path, &t->votes[i].watched);
}

/* Record a decision that was read.  Its znode is made once, so it is final.  If
 * it says neither word, another program has made it, and no other decision can
 * be made. */
static int phase_note_decision(zke_two_phase *t, const zke_op_result *node) {
  const char *why = node->data ? node->data + strcspn(node->data, "\n") : "";
  why += *why == '\n';
  int state = zke_phase_word(node->data);
  if (!state) return zke_phase_meddled(t);
  phase_conclude(t, state, node->stat.czxid, why, (int)strcspn(why, "\n"));
  return ZKE_OK;
}

/* In one snapshot with the id, since a later transaction of the same name has
 * another id, and its children say nothing about this one (T3). */
int zke_phase_read_child(const zke_two_phase *t, const char *path,
                         zke_op_result *got) {
  zke_op ops[2];
  zke_op_result read[2] = {{0}};
  zke_op_get(&ops[0], t->id);
  zke_op_get(&ops[1], path);
  int rc = zke_recipe_multi_read(t->r.z, ops, 2, read);
  if (rc == ZKE_OK) rc = read[0].rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : read[0].rc;
  if (rc == ZKE_OK) rc = read[1].rc;
  *got = read[1];
  zke_results_clear(read, 1);
  return rc;
}

/* Read the decision, if there is one.  ZKE_LOOK_AGAIN: this transaction has
 * gone. */
static int phase_read_decision(zke_two_phase *t) {
  zke_op_result got;
  int rc = zke_phase_read_child(t, t->decision, &got);
  if (rc == ZKE_OK) rc = phase_note_decision(t, &got);
  zke_results_clear(&got, 1);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* How to look for the decision:
 *
 *   1. Does the transaction exist, and is it this one (T3)?
 *   2. Watch "decision".  It is still missing, so use zke_exists(), whose watch
 *      also waits for a creation.
 *   3. Read it.  If everything was removed since 1, look again
 *      (ZKE_LOOK_AGAIN); then 1 finds that it has gone. */
int zke_phase_look_decision(zke_two_phase *t) {
  zke *z = t->r.z;
  int rc = zke_exists(z, t->id, NULL, NULL, NULL);
  if (rc == ZKE_OK)
    rc = zke_exists(z, t->decision, zke_recipe_watcher, &t->r, NULL);
  else if (rc == ZKE_NONODE) {
    phase_conclude(t, ZKE_TWO_PHASE_LOST, 0, "", 0);
    return ZKE_OK;
  }
  return rc == ZKE_OK || rc == ZKE_NONODE ? phase_read_decision(t) : rc;
}

/* ---- deciding ---- */

/* A decision to be made. */
typedef struct phase_choice {
  const zke_two_phase *t;
  int word;   /* ZKE_TWO_PHASE_COMMIT or _ABORT */
  char *text; /* the znode's data */
} phase_choice;

/* Create the decision; no vote is given afterwards (T5).  "commit" requires in
 * the same step that each vote has version 1, as a vote for "commit" has (T2).
 */
static int phase_try_decide(zke *z, void *arg) {
  const phase_choice *c = arg;
  const zke_phase_head *h = &c->t->head;
  zke_phase_steps s;
  zke_steps_begin(&s, z, c->t->r.path, h->count + 2);
  zke_steps_set(&s, "id-", h->id, "", -1); /* T5 */
  for (int i = 0; i < h->count && c->word == ZKE_TWO_PHASE_COMMIT; i++)
    zke_steps_check(&s, "vote-", h->sites[i], 1);
  zke_steps_create(&s, "decision", "", c->text, ZKE_PERSISTENT);
  return zke_steps_do(&s);
}

/* After a lost reply, a second try finds that the znode exists, which is just
 * as good: the next look reads the decision, this one or another. */
int zke_phase_decide(zke_two_phase *t, int decision, const char *why) {
  phase_choice c = {.t = t, .word = decision};
  c.text = zke_phase_decision_text(t->r.z, decision, why);
  if (!c.text) return ZKE_NOMEM;
  int rc = zke_retry(t->r.z, phase_try_decide, &c, ZKE_FOREVER);
  zke_free(c.text);
  return rc == ZKE_OK ? ZKE_LOOK_AGAIN : zke_recipe_faster(rc);
}

/* Has the transaction's limit passed, by the wall clock?  Any participant that
 * sees this may abort it. */
static bool phase_is_late(const zke_two_phase *t) {
  return t->head.limit_ms && zke_wall(t->r.z) >= t->head.limit_ms;
}

int zke_phase_missing_votes(const zke_two_phase *t, char *names, size_t size) {
  zke_phase_view v;
  names[0] = '\0';
  int rc = zke_phase_view_read(t->r.z, t->r.path, &v);
  if (rc != ZKE_OK) return rc;
  zke_phase_list_missing(&v, false, names, size);
  zke_phase_view_free(&v);
  return ZKE_OK;
}

/* The reason names the sites that did not vote.  Without memory for it the
 * decision is made all the same. */
static int phase_decide_late(zke_two_phase *t) {
  char why[256], names[160];
  zke_phase_missing_votes(t, names, sizeof names);
  snprintf(why, sizeof why, "the time limit%s%s",
           *names ? ", without the vote of " : "", names);
  return zke_phase_decide(t, ZKE_TWO_PHASE_ABORT, why);
}

/* ---- the votes ---- */

/* A vote counts if its znode has version 1 (T2). */
int zke_phase_read_vote(zke_two_phase *t, int i, bool watch, int *vote) {
  char *data = NULL;
  zke_stat stat;
  zke_phase_vote *v = &t->votes[i];
  watch = watch && !v->watched;
  int rc = zke_get(t->r.z, v->path, watch ? zke_recipe_watcher : NULL,
                   watch ? &t->r : NULL, &data, NULL, &stat);
  *vote = ZKE_TWO_PHASE_UNDECIDED;
  if (rc == ZKE_OK) {
    v->watched = v->watched || watch;
    if (stat.version == 1) *vote = zke_phase_word(data);
  }
  zke_free(data);
  return rc;
}

/* Did a site come, with an ephemeral vote that has gone (T8)?  ZKE_OK: it has
 * not come yet; ZKE_NONODE: it has died; ZKE_LOOK_AGAIN: its vote exists.  In
 * one snapshot, since it may come just now. */
static int phase_has_died(const zke_two_phase *t, int i) {
  zke_op_result got[2] = {{0}};
  zke_phase_steps s;
  zke_steps_begin(&s, t->r.z, t->r.path, 2);
  zke_steps_get(&s, "vote-", t->head.sites[i]);
  zke_steps_get(&s, "came-", t->head.sites[i]);
  int rc = zke_steps_read(&s, got);
  bool came = got[1].rc == ZKE_OK && got[1].stat.version != 0;
  if (rc == ZKE_OK && got[0].rc == ZKE_OK) rc = ZKE_LOOK_AGAIN;
  if (rc == ZKE_OK && came) rc = ZKE_NONODE;
  zke_results_clear(got, 2);
  return rc;
}

/* The vote is missing.  Watch for it, and then find out whether its site has
 * not come yet, or has died: abort. */
static int phase_miss_vote(zke_two_phase *t, int i) {
  zke_phase_vote *v = &t->votes[i];
  char why[160];
  int rc = v->watched
               ? ZKE_NONODE
               : zke_exists(t->r.z, v->path, zke_recipe_watcher, &t->r, NULL);
  v->watched = rc == ZKE_OK || rc == ZKE_NONODE;
  if (rc == ZKE_OK) return ZKE_LOOK_AGAIN; /* it has come */
  if (rc == ZKE_NONODE) rc = phase_has_died(t, i);
  if (rc != ZKE_NONODE) return rc;
  snprintf(why, sizeof why, "the site %.100s has died", t->head.sites[i]);
  return zke_phase_decide(t, ZKE_TWO_PHASE_ABORT, why);
}

/* Look at one vote, as the one that decides.  A persistent vote does not change
 * once given: only a missing one needs a watch. */
static int phase_look_vote(zke_two_phase *t, int i, int *vote) {
  bool ephemeral = t->head.form & ZKE_TWO_PHASE_EPHEMERAL;
  int rc = zke_phase_read_vote(t, i, ephemeral, vote);
  if (rc == ZKE_OK && !ephemeral && !*vote)
    rc = zke_phase_read_vote(t, i, true, vote);
  return rc == ZKE_NONODE ? phase_miss_vote(t, i) : rc;
}

/* Look at the votes, and decide if possible.  A watch on the first missing one
 * is enough: while it is missing, only the limit or an "abort" can decide, and
 * that brings the decision itself.  Ephemeral ones are all watched, since any
 * may go. */
static int phase_look_votes(zke_two_phase *t) {
  bool all = true, ephemeral = t->head.form & ZKE_TWO_PHASE_EPHEMERAL;
  for (int i = 0; i < t->head.count && (all || ephemeral); i++) {
    int vote, rc = phase_look_vote(t, i, &vote);
    if (rc != ZKE_OK) return rc;
    if (vote == ZKE_TWO_PHASE_ABORT)
      return zke_phase_decide(t, vote, "a site has voted abort");
    all = all && vote == ZKE_TWO_PHASE_COMMIT;
  }
  if (all)
    return zke_phase_decide(t, ZKE_TWO_PHASE_COMMIT, "all have voted commit");
  return phase_is_late(t) ? phase_decide_late(t) : ZKE_OK;
}

/* ---- the look ---- */

/* Must this object watch the votes?  In the coordinator's form the coordinator
 * does while it lives: the sites watch its znode, and take over when that goes.
 * It is read by zke_get(), since the watch of zke_exists() would also wait for
 * a creation.  After the limit everybody may decide. */
static int phase_is_watcher(zke_two_phase *t, bool *watcher) {
  *watcher = true;
  if (!(t->head.form & ZKE_TWO_PHASE_COORDINATOR) || t->coordinator ||
      phase_is_late(t))
    return ZKE_OK;
  zke_watch_fn fn = t->leader_watched ? NULL : zke_recipe_watcher;
  int rc = zke_get(t->r.z, t->leader, fn, &t->r, NULL, NULL, NULL);
  t->leader_watched = rc == ZKE_OK;
  *watcher = rc == ZKE_NONODE;
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* One look.  The decision comes first, since it ends the looking.  The
 * participant that must decide for all looks at the votes.  ZKE_LOOK_AGAIN:
 * something has changed in between. */
static int phase_look(zke_two_phase *t) {
  bool watcher;
  int rc = zke_phase_look_decision(t);
  if (rc != ZKE_OK || t->state != ZKE_TWO_PHASE_UNDECIDED) return rc;
  rc = phase_is_watcher(t, &watcher);
  return rc == ZKE_OK && watcher ? phase_look_votes(t) : rc;
}

/* Looks are repeated while the transaction changes, and until it is decided. */
int zke_phase_step(zke_recipe *r) {
  zke_two_phase *t = (zke_two_phase *)r;
  int rc;
  do {
    if (t->state != ZKE_TWO_PHASE_UNDECIDED) return ZKE_OK;
    rc = phase_look(t);
  } while (zke_recipe_again(r->z, &rc));
  return rc;
}

/* A one-shot watch has fired. */
void zke_phase_event(zke_recipe *r, int type, const char *path) {
  zke_two_phase *t = (zke_two_phase *)r;
  if (strcmp(path, t->leader) == 0) t->leader_watched = false;
  for (int i = 0; i < t->head.count; i++) {
    zke_phase_vote *v = &t->votes[i];
    if (type == ZKE_EVENT_OVERFLOW) v->watched = t->leader_watched = false;
    if (strcmp(path, v->path) == 0) v->watched = false;
  }
}

/* Without a session no more events of the transaction come. */
void zke_phase_ended(zke_recipe *r) {
  phase_conclude((zke_two_phase *)r, ZKE_TWO_PHASE_LOST, 0, "", 0);
}
