/* queue_item.h - for recipe authors: which item of a queue is next
 *
 * A look reads the first names and all claims in one snapshot and keeps them in
 * the object.  The functions here choose among them, read an item, and add to a
 * step the operations that end an item or a claim.  See queue_tree.h. */
#ifndef ZKEMBED_RECIPES_QUEUE_ITEM_H
#define ZKEMBED_RECIPES_QUEUE_ITEM_H

#include "queue_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the first items ---- */

/* zke_q_look        - read the first items and all claims
 * zke_q_keep_claims - keep the names of "taken" that a caller has read with its
 *                     own list; takes the names from the result.  A missing
 *                     directory is empty
 * zke_q_drop_page   - forget a page; afterwards it says that no item follows */
int zke_q_look(zke_queue *q);
int zke_q_keep_claims(zke_queue *q, zke_op_result *read);
void zke_q_drop_page(zke_q_page *p);

/* zke_q_find_marker - the marker of an item's latest claim or delay, or NULL
 * zke_q_is_claimed  - does it have a claim or a delay that is not over? */
const zke_q_marker *zke_q_find_marker(const zke_queue *q, const char *name);
bool zke_q_is_claimed(const zke_queue *q, const char *name);

/* zke_q_find - the first item of a page's kind that was not passed over and is
 * not claimed; reads further pages as needed.  ZKE_Q_NOTHING: none */
int zke_q_find(zke_queue *q, zke_q_page *p, zke_q_name *out);

/* zke_q_find_due - the same for the items that were put with a time
 *
 * Within one priority the earliest comes first: if that is not due, none is.
 * Sets q->due to the earliest time in the future.
 *
 *   most     priorities up to this one
 *   passing  pass over the items that are due, to find only that time */
int zke_q_find_due(zke_queue *q, int most, bool passing, zke_q_name *out);

/* zke_q_first - read the first item that was not passed over
 *
 *   page_out  its page: (*page_out)->at++ passes it over
 *   item_out  one block
 *
 * ZKE_Q_AGAIN: it was removed or claimed since the look. */
int zke_q_first(zke_queue *q, zke_q_page **page_out, zke_queue_item **item_out);

/* zke_q_pick - look, and return the first item that can be taken; inside
 * zke_q_do()
 *
 *   keep  pass over exhausted items; else the first one is buried
 *
 * ZKE_Q_AGAIN: an item was buried, or has changed since the look. */
int zke_q_pick(zke_queue *q, bool keep, zke_q_page **page_out,
               zke_queue_item **item_out);

/* ---- a step's operations on an item ---- */

/* zke_q_is_exhausted - was it claimed as often as the queue allows?  Its
 * version counts the claims (Q1) */
bool zke_q_is_exhausted(const zke_queue *q, const zke_queue_item *item);

/* zke_q_add_takeover - delete the znodes of an earlier claim or delay that is
 *                      over
 * zke_q_add_removal  - delete the item, at the version that was read, and its
 *                      key
 * zke_q_add_unclaim  - delete a claim that this object holds
 *
 * Each adds operations at op and returns their end.  The enum has the most that
 * each adds. */
enum { ZKE_Q_TAKEOVER_OPS = 2, ZKE_Q_REMOVAL_OPS = 3, ZKE_Q_UNCLAIM_OPS = 2 };
zke_op *zke_q_add_takeover(zke_op *op, const zke_queue_item *item);
zke_op *zke_q_add_removal(zke_op *op, const zke_queue_item *item);
zke_op *zke_q_add_unclaim(zke_op *op, const zke_q_claim *c);

/* ---- dead letters ---- */

/* zke_q_bury - move an item to the dead letters, in one step; inside zke_q_do()
 *
 *   own     this object's claim of it, which ends in the same step; NULL: the
 *           last claim is over or its consumer has gone
 *   reason  why the consumer gives it back; NULL with own NULL
 *
 * Returns as zke_q_change(), or ZKE_LOST: the item has changed since it was
 * read (Q1). */
int zke_q_bury(zke_queue *q, const zke_queue_item *item, const zke_q_claim *own,
               const char *reason);

/* zke_q_split_death - prepare the data of a letter's child "death" for
 *                     zke_q_death(): makes each of its lines end with a NUL
 * zke_q_death       - the text after a word there, or "": the child may be
 *                     missing, or not have it */
void zke_q_split_death(zke_op_result *read);
const char *zke_q_death(const zke_op_result *read, const char *word);

#ifdef __cplusplus
}
#endif

#endif
