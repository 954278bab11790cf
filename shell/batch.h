/* batch.h - operations in groups of some hundred, by zke_batch()
 *
 * deleteall, cp and import change any number of nodes.  Others see a batch as a
 * whole or not at all, and the batches in order: an interruption leaves the
 * first ones done.  Each operation has its own result, and the batch's owner
 * decides what a refusal means.  An operation points to separate memory, which
 * the batch releases after the operation was done or given up.
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
  call *c;            /* the call that may fail, and its handle */
  int most;           /* operations per batch, up to BATCH_MOST */
  int64_t most_bytes; /* of data per batch; one operation may have more */
  void (*release)(void *owned);
  /* an operation was refused: returns 0 if the others continue; or the exit
   * code after fail_with(): then nothing of this batch is done; on an ensemble
   * only the operations before op.  Called in store_batch(); op is NULL if the
   * batch as a whole failed */
  int (*refused)(void *owner, const zke_op *op, int rc);
  void *owner;

  /* the batch's own; zero at the start */
  int64_t created, changed, deleted; /* nodes, so far, by all runs */
  int status;                        /* exit code of the run, or 0 */
  int count;                         /* operations that are not yet done */
  int64_t bytes;                     /* of their data */
  zke_op ops[BATCH_MOST];
  bool done[BATCH_MOST];   /* by the run: the operation was not refused */
  void *owned[BATCH_MOST]; /* the memory of the operation with that index */
} batch;

/* batch_add   - add an operation, and take over its memory, even on failure;
 *               runs the batch first if it is full
 * batch_run   - do its operations; it is empty then.  0 or the exit code
 * batch_clear - give up its operations */
int batch_add(batch *b, const zke_op *op, void *owned);
int batch_run(batch *b);
void batch_clear(batch *b);

#endif
