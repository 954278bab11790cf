/* queue_claim.h - for recipe authors: the claims that an object holds
 *
 * An object may end and prolong only the claims in its list.  See queue_tree.h.
 */
#ifndef ZKEMBED_RECIPES_QUEUE_CLAIM_H
#define ZKEMBED_RECIPES_QUEUE_CLAIM_H

#include "queue_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making ---- */

/* zke_q_claim_items - claim the first items, all in one step; inside zke_q_do()
 *
 *   most       1 to ZKE_Q_BATCH; it claims fewer if there are no more, or they
 *              are too large for one step
 *   items      out: an array of that size, all NULL; each item is one block
 *   count_out  out: how many there are; 0 on failure
 *
 * Returns as zke_q_change(), or ZKE_Q_NOTHING: there is no item; ZKE_Q_AGAIN:
 * another consumer was faster. */
int zke_q_claim_items(zke_queue *q, int most, zke_queue_item **items,
                      int *count_out);

/* zke_q_own_claim - this object's claim of an item
 *
 *   at  out: its place in the list; points to NULL if it is not there
 *
 * Returns ZKE_OK, ZKE_LOST: it has none, or the code of a failed read. */
int zke_q_own_claim(zke_queue *q, const zke_queue_item *item,
                    zke_q_claim ***at);

/* ---- checking that they exist ---- */

/* zke_q_verify      - is the claim's znode there?  Asks the file.  ZKE_LOST: no
 * zke_q_see_claims  - check each claim if its watch has fired, and tell the
 *                     listener of lost ones
 * zke_q_lose_claims - the session has ended: tell the listener that all are
 *                     lost */
int zke_q_verify(zke_queue *q, const zke_q_claim *c);
int zke_q_see_claims(zke_queue *q);
void zke_q_lose_claims(zke_queue *q);

/* ---- ending ----
 *
 * Each is one step.  ZKE_LOST: the claim was no longer held, and the object has
 * forgotten it; but see zke_q_ack(). */

/* zke_q_prolong - make a claim end at another time
 *
 *   ms  from now; ZKE_FOREVER: with the session
 *
 * After ZKE_CONNECTIONLOSS the time is not known: zke_q_own_claim() looks. */
int zke_q_prolong(zke_queue *q, zke_q_claim **at, const zke_queue_item *item,
                  int64_t ms);

/* zke_q_release - give a claim back, or bury the item after the last attempt.
 * Whatever it returns, the claim is no longer held
 *
 *   delay_ms  the item cannot be taken during this time; 0: no delay
 *   reason    for a burial */
int zke_q_release(zke_queue *q, zke_q_claim **at, const zke_queue_item *item,
                  int64_t delay_ms, const char *reason);

/* The items acknowledged in one step; all of it is borrowed. */
typedef struct zke_q_acks {
  const zke_queue_item *const *items;
  int item_count;
  zke_q_more more;
} zke_q_acks;

/* zke_q_ack - delete claims and items, and make the caller's changes, all or
 * nothing.  If one of several items is lost, all stay in the list, even the
 * lost one: acknowledge them one by one to find out which it is */
int zke_q_ack(zke_queue *q, zke_q_acks *d);

/* zke_q_give_up_claims - discard all claims, now or as soon as the session can
 * zke_q_forget_claims  - release their memory; nothing changes in the file */
void zke_q_give_up_claims(zke_queue *q);
void zke_q_forget_claims(zke_queue *q);

#ifdef __cplusplus
}
#endif

#endif
