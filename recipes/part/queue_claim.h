/* queue_claim.h - for whoever writes a recipe: the claims that an object holds
 *
 * An object may end and prolong those claims only that are in its list.  See
 * queue_tree.h. */
#ifndef ZKEMBED_RECIPES_QUEUE_CLAIM_H
#define ZKEMBED_RECIPES_QUEUE_CLAIM_H

#include "queue_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making ---- */

/* zke_q_claim_items - claim the first items, all in one step; inside zke_q_do()
 *
 *   most       1 to ZKE_Q_BATCH; fewer where no more are there, or they are too
 *              large for one step
 *   items      out: room for so many, all of them NULL; each one block
 *   count_out  out: how many there are; 0 on failure
 *
 * Returns as zke_q_change(), or ZKE_Q_NOTHING: there is no item; ZKE_Q_AGAIN:
 * another consumer was faster. */
int zke_q_claim_items(zke_queue *q, int most, zke_queue_item **items,
                      int *count_out);

/* zke_q_own_claim - this object's claim of an item
 *
 *   at  out: where it stands in the list; it points to NULL where it does not
 *
 * Returns ZKE_OK, ZKE_LOST: it has none, or what a read says. */
int zke_q_own_claim(zke_queue *q, const zke_queue_item *item,
                    zke_q_claim ***at);

/* ---- seeing that they are there ---- */

/* zke_q_verify      - is the claim's znode there?  The file is asked.
 *                     ZKE_LOST: no
 * zke_q_see_claims  - look after the claims whose watch has fired, and tell of
 *                     those that are lost
 * zke_q_lose_claims - the session has ended: tell of each that it is lost */
int zke_q_verify(zke_queue *q, const zke_q_claim *c);
int zke_q_see_claims(zke_queue *q);
void zke_q_lose_claims(zke_queue *q);

/* ---- ending ----
 *
 * Each is one step.  ZKE_LOST: the claim was not held any more, and the object
 * has forgotten it; but see zke_q_ack(). */

/* zke_q_prolong - have a claim end at another time
 *
 *   ms  from now; ZKE_FOREVER: with the session
 *
 * After ZKE_CONNECTIONLOSS nobody knows the time: zke_q_own_claim() looks. */
int zke_q_prolong(zke_queue *q, zke_q_claim **at, const zke_queue_item *item,
                  int64_t ms);

/* zke_q_release - give a claim back, or bury the item after the last attempt.
 * Whatever is returned, the claim is not held any more
 *
 *   delay_ms  nobody can have the item before; 0: no delay
 *   reason    for a burial */
int zke_q_release(zke_queue *q, zke_q_claim **at, const zke_queue_item *item,
                  int64_t delay_ms, const char *reason);

/* What is acknowledged in one step; all of it is borrowed. */
typedef struct zke_q_acks {
  const zke_queue_item *const *items;
  int item_count;
  zke_q_more more;
} zke_q_acks;

/* zke_q_ack - delete claims and items, and make the caller's changes, all or
 * nothing.  Of several items of which one is lost, all stay in the list, the
 * lost one too: acknowledged one by one they tell which it is */
int zke_q_ack(zke_queue *q, zke_q_acks *d);

/* zke_q_give_up_claims - discard all claims, now or as soon as the session can
 * zke_q_forget_claims  - release their memory; nothing changes in the file */
void zke_q_give_up_claims(zke_queue *q);
void zke_q_forget_claims(zke_queue *q);

#ifdef __cplusplus
}
#endif

#endif
