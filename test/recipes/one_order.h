/* one_order.h - do the steps of several clients fit one order?
 *
 * Clients write, read and watch registers, one on each service.  A register's
 * value is how often it was written, so the order of its writes is known.  Then
 * an order of all steps, in which those of each client stand as it has made
 * them, exists exactly where these edges have no circle: from each step to its
 * client's next; from a write to the next one of its register; from a write to
 * those who read it, and from them to the next write; from a write to whom an
 * event has told of it.
 */
#ifndef ZKE_TEST_ONE_ORDER_H
#define ZKE_TEST_ONE_ORDER_H

#include <stdbool.h>

enum { STEP_WRITE, STEP_READ, STEP_HEAR };

enum { ONE_ORDER_MOST = 256 }; /* steps of one program */

typedef struct order_step {
  int kind, client, service;
  int value; /* written, read, or at least there when the event was told */
} order_step;

/* The steps of each client stand as it has made them; those of two clients may
 * be mixed, or stand one client's behind the other's. */
bool one_order_fits(const order_step *steps, int count);

#endif
