/* batch.h - operations that are done some hundred at a time, by zke_batch()
 *
 * deleteall, cp and import change any number of nodes.  Others see a batch
 * whole or not at all, and they see the batches one after the other: an
 * interruption leaves the first of them done.  Each operation has its own
 * result, and the batch's owner decides what a refusal means.  An operation
 * points to memory of its own, which the batch releases when the operation has
 * been done or was given up.
 *
 *     batch b = {.c = c, .most = BATCH_MOST, .most_bytes = limit,
 *                .release = free, .refused = refused, .owner = me};
 *     while (!status && …) status = batch_add(&b, &op, owned);
 *     if (!status) status = batch_run(&b);
 *     batch_clear(&b);
 */
#ifndef ZKE_SHELL_BATCH_H
#define ZKE_SHELL_BATCH_H

#include "shell.h"

enum { BATCH_MOST = 500 };

typedef struct batch {
  /* set by the owner, before the first operation */
  call *c;            /* whose failure it is, and whose handle is used */
  int most;           /* operations at once, up to BATCH_MOST */
  int64_t most_bytes; /* of data at once; one operation may have more */
  void (*release)(void *owned);
  /* an operation was refused: 0 where the others go on, or the exit code after
   * fail_with(): then nothing of this batch is done; on an ensemble, what
   * stands before op.  Called in store_batch(); op is NULL where the batch as a
   * whole failed */
  int (*refused)(void *owner, const zke_op *op, int rc);
  void *owner;

  /* the batch's own; zero at the beginning */
  int64_t created, changed, deleted; /* nodes, so far, by all runs */
  int status;                        /* exit code of the run, or 0 */
  int count;                         /* operations that are not done yet */
  int64_t bytes;                     /* of their data */
  zke_op ops[BATCH_MOST];
  bool done[BATCH_MOST];   /* by the run: the operation was not refused */
  void *owned[BATCH_MOST]; /* what the operation of that index points to */
} batch;

/* batch_add   - put an operation in, and take over what it points to, also on
 *               failure; runs the batch first where it is full
 * batch_run   - do what is in it; it is empty then.  0 or the exit code
 * batch_clear - give up what is in it */
int batch_add(batch *b, const zke_op *op, void *owned);
int batch_run(batch *b);
void batch_clear(batch *b);

#endif
