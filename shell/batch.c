/* batch.c - operations that go into one multi each some hundred (batch.h)
 *
 * A multi costs one transaction, whose price hardly depends on how much it
 * does: so operations are kept until a batch is full, and then done together.
 * A batch is empty after each run, whatever came of it: what was refused is not
 * tried again.
 */
#include "batch.h"

#include "../recipes/support.h"
#include "../recipes/znode.h"

/* Forget the operations, done or not, and release what they point to. */
void batch_clear(batch *b) {
  while (b->count > 0) b->release(b->owned[--b->count]);
  b->bytes = 0;
}

/* Count what a successful run has done.  Operations of other types, such as
 * checks, are not counted. */
static void batch_counted(batch *b) {
  for (int i = 0; i < b->count; i++) {
    b->created += b->ops[i].type == ZKE_OP_CREATE;
    b->changed += b->ops[i].type == ZKE_OP_SET;
    b->deleted += b->ops[i].type == ZKE_OP_DELETE;
  }
}

/* One multi; a failed one has changed nothing, and refused() decides what that
 * means.  It is asked before the batch is cleared, so that it can look at the
 * operations, and do them one by one. */
int batch_run(batch *b) {
  int status = 0;
  if (b->count == 0) return 0;
  int rc = zke_recipe_multi(b->c->z, b->ops, b->count, NULL);
  if (rc == ZKE_OK)
    batch_counted(b);
  else
    status = b->refused(b->owner, rc);
  batch_clear(b);
  return status;
}

/* Runs the batch before the new operation would make it too large, not after it
 * is full: so the last batch is the caller's to run.  An operation that alone
 * has more than most_bytes goes by itself. */
int batch_add(batch *b, const zke_op *op, void *owned) {
  int64_t bytes = op->len > 0 ? op->len : 0;
  int status = 0;
  if (b->count == b->most || b->bytes + bytes > b->most_bytes)
    status = batch_run(b);
  if (status) {
    b->release(owned);
    return status;
  }
  b->ops[b->count] = *op;
  b->owned[b->count++] = owned;
  b->bytes += bytes;
  return 0;
}
