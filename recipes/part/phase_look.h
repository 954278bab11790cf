/* phase_look.h - for recipe authors: a participant of a two-phase commit, which
 * looks for the decision
 *
 * Each look reads the decision; the participant that must decide now also reads
 * the votes, and decides.  See phase_step.h.  Call every function here with the
 * mutex of the object held, except zke_phase_destroy(). */
#ifndef ZKEMBED_RECIPES_PHASE_LOOK_H
#define ZKEMBED_RECIPES_PHASE_LOOK_H

#include "object.h"
#include "phase_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A site's vote. */
typedef struct zke_phase_vote {
  char *path;
  bool watched; /* by this object; the watch has not fired */
} zke_phase_vote;

/* A participant: the coordinator, a site, or an onlooker.  Guarded by the mutex
 * of the zke_recipe; head, paths, coordinator and own do not change after the
 * object was made. */
struct zke_two_phase {
  zke_recipe r;          /* first; its path is the transaction's */
  zke_phase_head head;   /* as it was written */
  zke_phase_vote *votes; /* in the order of the sites */
  char *decision;        /* paths of three children: "decision", */
  char *leader;          /* "coordinator", */
  char *id;              /* "id-<id>" */
  bool coordinator;      /* it began the transaction */
  bool leader_watched;   /* "coordinator" is watched */
  bool joined;           /* the ephemeral vote may be this object's */
  bool waiting;          /* a blocking call runs */
  int own;               /* index of its site; -1: an onlooker or coordinator */
  int state;             /* ZKE_TWO_PHASE_…; UNDECIDED until it is known */
  int64_t token;         /* czxid of the decision, or 0 */
  zke_two_phase_fn listener;
  void *context;
};

/* zke_phase_prepare - make the paths of the children named in the head.
 *                     Returns ZKE_OK or ZKE_NOMEM */
int zke_phase_prepare(zke_two_phase *t);

/* The members of the class; see zke_recipe_class. */
void zke_phase_event(zke_recipe *r, int type, const char *path);
int zke_phase_step(zke_recipe *r);
void zke_phase_ended(zke_recipe *r);
void zke_phase_destroy(zke_recipe *r);

/* zke_phase_look_decision - look whether it is decided
 *
 * Sets the state; watches "decision" if there is none yet.
 *
 * Returns ZKE_OK, also if the transaction has gone (ZKE_TWO_PHASE_LOST);
 * ZKE_LOOK_AGAIN: it went during the look; as zke_phase_meddled(); or the code
 * of a failed read. */
int zke_phase_look_decision(zke_two_phase *t);

/* zke_phase_read_child - read a child of this transaction, not of a later
 * transaction with the same name
 *
 *   got  out, for zke_results_clear()
 *
 * Returns ZKE_OK; ZKE_NONODE: it is missing; ZKE_LOOK_AGAIN: the transaction
 * has gone; or the code of a failed read. */
int zke_phase_read_child(const zke_two_phase *t, const char *path,
                         zke_op_result *got);

/* zke_phase_read_vote - read the vote of a site
 *
 *   i      index of the site
 *   watch  watch it, too, if it exists
 *   vote   out: ZKE_TWO_PHASE_UNDECIDED if it says nothing yet
 *
 * Returns as zke_get(): ZKE_NONODE: there is none. */
int zke_phase_read_vote(zke_two_phase *t, int i, bool watch, int *vote);

/* zke_phase_missing_votes - read which sites have no vote, for people; "" if
 * the read fails.  Returns as zke_phase_view_read() */
int zke_phase_missing_votes(const zke_two_phase *t, char *names, size_t size);

/* zke_phase_decide - make the decision
 *
 *   why  one line, for people
 *
 * Never ZKE_OK.  ZKE_LOOK_AGAIN: there is a decision now, this one or another,
 * or the votes or znodes it depends on have changed; else as zke_steps_do(). */
int zke_phase_decide(zke_two_phase *t, int decision, const char *why);

/* zke_phase_gone    - fail: the transaction has gone.  Returns ZKE_LOST
 * zke_phase_meddled - fail: T1, T2 or T5 cannot be relied on here.  Returns
 *                     ZKE_RUNTIMEINCONSISTENCY */
int zke_phase_gone(const zke_two_phase *t);
int zke_phase_meddled(const zke_two_phase *t);

#ifdef __cplusplus
}
#endif

#endif
