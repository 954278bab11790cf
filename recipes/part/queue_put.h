/* queue_put.h - for recipe authors: one put into a queue
 *
 * A put reads the state it depends on and makes one step.  Its caller repeats
 * it, by zke_q_do(), and waits if there is no room.  See queue_tree.h. */
#ifndef ZKEMBED_RECIPES_QUEUE_PUT_H
#define ZKEMBED_RECIPES_QUEUE_PUT_H

#include "queue_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The items put in one step; all of it is borrowed. */
typedef struct zke_q_load {
  zke_queue *q;
  const zke_queue_value *values;
  int count;
  int priority;       /* 1 to 999 */
  int mode;           /* of the items: persistent or ephemeral, sequential */
  int64_t due_ms;     /* of zke_wall(); 0: no delay */
  const char *key;    /* of the one item, or NULL */
  const char *letter; /* path of the dead letter that it was, or NULL */
  const char *death;  /* path of its child, or NULL */
  zke_q_more *more;   /* or NULL */
} zke_q_load;

/* zke_q_try_put - one try of a put, for zke_q_do(): read the state it depends
 *                 on, and make the step
 *
 *   arg  a zke_q_load
 *
 * Returns as zke_q_change(), or
 *   ZKE_Q_AGAIN     something has changed since the read; mostly that was
 *                   another put, so some put always succeeds
 *   ZKE_Q_NOTHING   there is no room now
 *   ZKE_LIMIT       the queue can never hold so many, or numbers are used up
 *   ZKE_NODEEXISTS  an item has the key */
int zke_q_try_put(zke *z, void *arg);

/* zke_q_room - is there room for so many items?
 *
 *   need     how many; any number is fine in a queue without a limit
 *   version  out: while "entries" has it, nothing was put (Q2); -1
 *            without a limit, when any version will do
 *
 * Returns ZKE_OK, ZKE_Q_NOTHING: no, ZKE_Q_AGAIN: the queue was removed, or the
 * code of a failed read. */
int zke_q_room(zke_queue *q, int need, int32_t *version);

#ifdef __cplusplus
}
#endif

#endif
