/* batch.c - operations in groups of some hundred (batch.h)
 *
 * A transaction is synced once, and its cost hardly depends on its size: so
 * operations are kept until a batch is full, and then done together.  A batch
 * is empty after each run, whatever the result: refused operations are not
 * tried again.
 */
#include "batch.h"

/* Forgets the operations, done or not, and releases their memory. */
void batch_clear(batch *b) {
  while (b->count > 0) b->release(b->owned[--b->count]);
  b->bytes = 0;
}

/* Counts the committed operations of a run. */
static void batch_counted(batch *b) {
  for (int i = 0; i < b->count; i++) {
    if (!b->done[i]) continue;
    b->created += b->ops[i].type == ZKE_OP_CREATE;
    b->changed += b->ops[i].type == ZKE_OP_SET;
    b->deleted += b->ops[i].type == ZKE_OP_DELETE;
  }
}

/* Does one operation by its call.  A batch has only these three kinds, which
 * batch_counted() knows. */
static int batch_do(zke *z, const zke_op *op) {
  switch (op->type) {
    case ZKE_OP_CREATE:
      if (!op->ttl_ms)
        return zke_create(z, op->path, op->data, op->len, op->acls, op->mode,
                          NULL, NULL);
      return zke_create_ttl(z, op->path, op->data, op->len, op->acls, op->mode,
                            op->ttl_ms, NULL, NULL);
    case ZKE_OP_SET:
      return zke_set(z, op->path, op->data, op->len, op->version, NULL);
    case ZKE_OP_DELETE:
      return zke_delete(z, op->path, op->version);
    default: /* no command adds one */
      return zke_fail(ZKE_BADARGUMENTS, "%s: operation %d in a batch", op->path,
                      op->type);
  }
}

/* The function of zke_batch(). */
static int batch_all(zke *z, void *context) {
  batch *b = context;
  for (int i = 0; i < b->count && !b->status; i++) {
    int rc = batch_do(z, &b->ops[i]);
    b->done[i] = rc == ZKE_OK;
    if (rc != ZKE_OK) b->status = b->refused(b->owner, &b->ops[i], rc);
  }
  return b->status ? ZKE_CANCELLED : ZKE_OK;
}

/* Operations count when they are committed: with the batch, or, on an ensemble,
 * each by itself.  If no operation has failed, the cause is the disk or another
 * writer. */
int batch_run(batch *b) {
  if (b->count == 0) return 0;
  b->status = 0;
  int rc = store_batch(b->c, batch_all, b);
  if (rc == ZKE_OK || store_of(b->c->sh) == STORE_ENSEMBLE) batch_counted(b);
  if (rc != ZKE_OK && !b->status) b->status = b->refused(b->owner, NULL, rc);
  batch_clear(b);
  return b->status;
}

/* Runs the batch before the new operation would make it too large, not when it
 * is full: so the caller must run the last batch.  An operation with more than
 * most_bytes goes alone. */
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
  b->done[b->count] = false;
  b->owned[b->count++] = owned;
  b->bytes += bytes;
  return 0;
}
