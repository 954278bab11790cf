/* tree.c - see tree.h */
#include "test/sim/tree.h"

#include <stdio.h>
#include <string.h>

#include "test/sim/known.h"
#include "test/sim/plan.h"
#include "test/sim/watches.h"

enum { OPS = 4, TTL_MS = 300 };

/* Few paths, so that calls meet. */
static const char *a_path(const ops_actor *a) {
  static const char *const all[] = {"/t", "/t/a", "/t/a/x", "/t/b", "/t/b/x"};
  return all[sim_load(a->slot, sizeof all / sizeof *all)];
}

/* Of which about half are right. */
static int a_version(const ops_actor *a) {
  return sim_load(a->slot, 2) ? -1 : (int)sim_load(a->slot, 3);
}

/* NULL, empty, or one byte. */
static int a_length(const ops_actor *a) {
  return (int)sim_load(a->slot, 3) - 1;
}

/* Of a multi or by itself: a change at random. */
static void fill(const ops_actor *a, zke_op *op) {
  const char *path = a_path(a);
  int mode = (int)sim_load(a->slot, ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL + 1);
  int len = a_length(a), version = a_version(a);
  const char *data = len < 0 ? NULL : "x";
  switch (sim_load(a->slot, 6)) {
    case 0:
      zke_op_delete(op, path, version);
      break;
    case 1:
      zke_op_set(op, path, data, len, version);
      break;
    case 2:
      zke_op_check(op, path, version);
      break;
    default:
      if (mode >= ZKE_PERSISTENT_WITH_TTL)
        zke_op_create_ttl(op, path, data, len, ZKE_OPEN_ACL, mode, TTL_MS);
      else
        zke_op_create(op, path, data, len, ZKE_OPEN_ACL, mode);
  }
}

/* The change, or the check, as a call of its own. */
static int single(zke *z, const zke_op *op) {
  zke_stat stat;
  switch (op->type) {
    case ZKE_OP_DELETE:
      return zke_delete(z, op->path, op->version);
    case ZKE_OP_SET:
      return zke_set(z, op->path, op->data, op->len, op->version, &stat);
    case ZKE_OP_CHECK:
      return zke_exists(z, op->path, NULL, NULL, &stat);
    default:
      if (op->ttl_ms)
        return zke_create_ttl(z, op->path, op->data, op->len, op->acls,
                              op->mode, op->ttl_ms, NULL, &stat);
      return zke_create(z, op->path, op->data, op->len, op->acls, op->mode,
                        NULL, &stat);
  }
}

/* One change, or a look. */
static int do_single(const ops_actor *a) {
  zke_op op;
  fill(a, &op);
  return single(a->z, &op);
}

/* Some changes, all or nothing. */
static int do_multi(const ops_actor *a) {
  zke_op ops[OPS];
  zke_op_result r[OPS] = {{0}};
  int count = 1 + (int)sim_load(a->slot, OPS);
  for (int i = 0; i < count; i++) fill(a, &ops[i]);
  int rc = zke_multi(a->z, ops, count, r);
  zke_results_clear(r, count);
  return rc;
}

/* What the tree refuses is no failure of a batch. */
static int batch_body(zke *z, void *context) {
  const ops_actor *a = context;
  int rc = ZKE_OK;
  for (int i = 0; i < OPS; i++) {
    zke_op op;
    fill(a, &op);
    rc = single(z, &op);
    if (rc != ZKE_OK && rc > ZKE_NONODE) return rc;
  }
  return sim_load(a->slot, 4) ? ZKE_OK : ZKE_CANCELLED;
}

/* Several calls in one transaction, of which nothing may stay. */
static int do_batch(const ops_actor *a) {
  ops_actor own = *a;
  int rc = zke_batch(a->z, batch_body, &own);
  return rc == ZKE_CANCELLED ? ZKE_OK : rc;
}

/* Several nodes in one state. */
static int do_read(const ops_actor *a) {
  zke_op ops[OPS];
  zke_op_result r[OPS] = {{0}};
  for (int i = 0; i < OPS; i++) {
    const char *path = a_path(a);
    (sim_load(a->slot, 2) ? zke_op_get : zke_op_children)(&ops[i], path);
  }
  int rc = zke_multi_read(a->z, ops, OPS, r);
  zke_results_clear(r, OPS);
  return rc;
}

/* How many nodes lie below one? */
static int do_count(const ops_actor *a) {
  int64_t count;
  return zke_count(a->z, a_path(a), &count);
}

/* The next number, higher or not. */
static int do_raise(const ops_actor *a) {
  zke_stat stat;
  const char *path = a_path(a);
  return zke_raise_sequence(a->z, path, (int)sim_load(a->slot, 20), &stat);
}

/* A node that anybody may change, or nobody any more. */
static int do_acl(const ops_actor *a) {
  zke_stat stat;
  const zke_acls *acls = sim_load(a->slot, 2) ? ZKE_OPEN_ACL : ZKE_READ_ACL;
  return zke_set_acl(a->z, "/t/a", a_version(a), acls, &stat);
}

/* A watch, of which only judge.c knows what it is to be told. */
static int do_watch(const ops_actor *a) {
  zke_stat stat = {.version = 0};
  const char *path = a_path(a);
  uint64_t kind = sim_load(a->slot, 3);
  watch *w = watches_new(a->slot, path, kind == 2);
  if (kind == 0) return zke_exists(a->z, path, watches_event, w, &stat);
  if (kind == 1)
    return zke_get(a->z, path, watches_event, w, NULL, NULL, &stat);
  return zke_children(a->z, path, watches_event, w, NULL, &stat);
}

/* By weight.  What the tree refuses is no failure of the call. */
void tree_any(const ops_actor *a) {
  static const struct {
    const char *name;
    int (*fn)(const ops_actor *a);
    int weight;
  } all[] = {{"tree: one", do_single, 5},  {"tree: multi", do_multi, 3},
             {"tree: batch", do_batch, 1}, {"tree: read", do_read, 2},
             {"tree: count", do_count, 1}, {"tree: raise", do_raise, 1},
             {"tree: watch", do_watch, 4}, {"tree: set_acl", do_acl, 1}};
  size_t i = 0;
  for (int n = (int)sim_load(a->slot, 18); n >= all[i].weight; i++)
    n -= all[i].weight;
  known_call c = known_begin(a->slot, all[i].name);
  int rc = all[i].fn(a);
  known_end(c, rc == ZKE_NOAUTH ? ZKE_OK : rc);
}
