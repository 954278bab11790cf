/* queue_put.h - for whoever writes a recipe: one put into a queue
 *
 * A put reads what it rests on and makes one step.  Its caller repeats it, by
 * zke_q_do(), and waits where there is no room.  See queue_tree.h. */
#ifndef ZKEMBED_RECIPES_QUEUE_PUT_H
#define ZKEMBED_RECIPES_QUEUE_PUT_H

#include "queue_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is put in one step; all of it is borrowed. */
typedef struct zke_q_load {
  zke_queue *q;
  const zke_queue_value *values;
  int count;
  int priority;       /* 1 to 999 */
  int mode;           /* of the items: persistent or ephemeral, sequential */
  int64_t due_ms;     /* of zke_wall(); 0: to be taken at once */
  const char *key;    /* of the one item, or NULL */
  const char *letter; /* path of the dead letter it was, or NULL */
  const char *death;  /* path of its child, or NULL */
  zke_q_more *more;   /* or NULL */
} zke_q_load;

/* zke_q_try_put - a try of a put, for zke_q_do(): read what it rests on, and
 * make the step
 *
 *   arg  a zke_q_load
 *
 * Returns as zke_q_change(), or
 *   ZKE_Q_AGAIN     something has changed in between; that was another put in
 *                   most cases, so some put always succeeds
 *   ZKE_Q_NOTHING   there is no room now
 *   ZKE_LIMIT       there never will be for so many, or numbers are used up
 *   ZKE_NODEEXISTS  an item has the key */
int zke_q_try_put(zke *z, void *arg);

/* zke_q_room - is there room for so many items?
 *
 *   need     so many; any number is fine in a queue without a limit
 *   version  out: as long as "entries" has it, nothing was put since (Q2); -1
 *            without a limit, where any version will do
 *
 * Returns ZKE_OK, ZKE_Q_NOTHING: no, ZKE_Q_AGAIN: the queue was removed, or
 * what a read says. */
int zke_q_room(zke_queue *q, int need, int32_t *version);

#ifdef __cplusplus
}
#endif

#endif
