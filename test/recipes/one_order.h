/* one_order.h - do the steps of several clients fit one order?
 *
 * Clients write, read and watch registers, one on each service.  A register's
 * value is the number of its writes, so their order is known.  An order of all
 * steps that keeps the order of each client exists exactly if these edges have
 * no cycle: from each step to its client's next; from a write to the next write
 * of its register; from a write to the reads of it, and from them to the next
 * write; from a write to the event that reports it.
 */
#ifndef ZKE_TEST_ONE_ORDER_H
#define ZKE_TEST_ONE_ORDER_H

#include <stdbool.h>

enum { STEP_WRITE, STEP_READ, STEP_HEAR };

enum { ONE_ORDER_MOST = 256 }; /* steps of one program */

typedef struct order_step {
  int kind, client, service;
  int value; /* written or read; of an event: at least this */
} order_step;

/* Each client's steps stand in the order in which it made them.  The steps of
 * two clients may be interleaved, or all of one client's may come first. */
bool one_order_fits(const order_step *steps, int count);

#endif
