/* tree.c - see tree.h */
#include "test/sim/tree.h"

#include <stdio.h>
#include <string.h>

#include "test/sim/forked.h"
#include "test/sim/known.h"
#include "test/sim/plan.h"
#include "test/sim/watches.h"

enum { OPS = 4, TTL_MS = 300 };

/* Few paths, so that calls collide. */
static const char *a_path(const ops_actor *a) {
  static const char *const all[] = {"/t", "/t/a", "/t/a/x", "/t/b", "/t/b/x"};
  return all[sim_load(a->slot, sizeof all / sizeof *all)];
}

/* About half of them are right. */
static int a_version(const ops_actor *a) {
  return sim_load(a->slot, 2) ? -1 : (int)sim_load(a->slot, 3);
}

/* NULL, empty, or one byte. */
static int a_length(const ops_actor *a) {
  return (int)sim_load(a->slot, 3) - 1;
}

/* A random change, alone or in a multi. */
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

/* The change, or the check, in its own call. */
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

/* One change, or one read. */
static int do_single(const ops_actor *a) {
  zke_op op;
  fill(a, &op);
  return single(a->z, &op);
}

/* At most OPS operations, all or nothing. */
static int multi(const ops_actor *a, const zke_op *ops, int count) {
  zke_op_result r[OPS] = {{0}};
  int rc = zke_multi(a->z, ops, count, r);
  zke_results_clear(r, count);
  return rc;
}

/* Some changes in one call. */
static int do_multi(const ops_actor *a) {
  zke_op ops[OPS];
  int count = 1 + (int)sim_load(a->slot, OPS);
  for (int i = 0; i < count; i++) fill(a, &ops[i]);
  return multi(a, ops, count);
}

/* A refusal by the tree does not fail the batch. */
static int batch_body(zke *z, void *context) {
  const ops_actor *a = context;
  int rc = ZKE_OK;
  for (int i = 0; i < OPS; i++) {
    zke_op op;
    fill(a, &op);
    rc = single(z, &op);
    if (forked_in_batch(z) || (rc != ZKE_OK && rc > ZKE_NONODE)) return rc;
  }
  return sim_load(a->slot, 4) ? ZKE_OK : ZKE_CANCELLED;
}

/* Several calls in one transaction, which may be undone completely. */
static int do_batch(const ops_actor *a) {
  ops_actor own = *a;
  int rc = zke_batch(a->z, batch_body, &own);
  forked_returned(a->slot, a->z, rc);
  return rc == ZKE_CANCELLED ? ZKE_OK : rc;
}

/* Several nodes in the same state. */
static int do_read(const ops_actor *a) {
  zke_op ops[OPS];
  zke_op_result r[OPS] = {{0}};
  for (int i = 0; i < OPS; i++) {
    const char *path = a_path(a);
    if (sim_load(a->slot, 2))
      zke_op_get(&ops[i], path);
    else
      zke_op_children(&ops[i], path, NULL, 0);
  }
  int rc = zke_multi_read(a->z, ops, OPS, r);
  zke_results_clear(r, OPS);
  return rc;
}

/* How many nodes are below one? */
static int count(const ops_actor *a, const char *path) {
  int64_t count;
  return zke_count(a->z, path, &count);
}

static int do_count(const ops_actor *a) { return count(a, a_path(a)); }
static int do_count_queue(const ops_actor *a) { return count(a, "/q"); }

/* Raise the next number, or try to lower it. */
static int raise_below(const ops_actor *a, const char *path, uint64_t most) {
  zke_stat stat;
  return zke_raise_sequence(a->z, path, (int)sim_load(a->slot, most), &stat);
}

static int do_raise(const ops_actor *a) {
  return raise_below(a, a_path(a), 20);
}
static int do_raise_line(const ops_actor *a) {
  return raise_below(a, "/line", 100);
}

/* Make a node changeable by everyone, or by no one. */
static int do_acl(const ops_actor *a) {
  zke_stat stat;
  const zke_acls *acls = sim_load(a->slot, 2) ? ZKE_OPEN_ACL : ZKE_READ_ACL;
  return zke_set_acl(a->z, "/t/a", a_version(a), acls, &stat);
}

/* A watch; only judge.c knows which events it must get. */
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

/* ---- other calls: they return in time, and do no harm ---- */

static int do_usage(const ops_actor *a) {
  int64_t count = 0, bytes = 0;
  return zke_usage(a->z, "/", &count, &bytes);
}

static int do_ephemerals(const ops_actor *a) {
  zke_strings *paths = NULL;
  int rc = zke_ephemerals(a->z, 0, "/l", &paths);
  zke_free(paths);
  return rc;
}

static int do_sync(const ops_actor *a) { return zke_sync(a->z, "/"); }

static int do_sessions(const ops_actor *a) {
  zke_session_list *list = NULL;
  int rc = zke_sessions(a->z, -1, &list);
  zke_free(list);
  return rc;
}

static int do_watches(const ops_actor *a) {
  zke_watch_list *list = NULL;
  int rc = zke_watches(a->z, &list);
  zke_free(list);
  return rc;
}

static int do_acl_again(const ops_actor *a) {
  zke_acls *acls = NULL;
  int rc = zke_get_acl(a->z, "/l", &acls, NULL);
  if (rc == ZKE_OK) rc = zke_set_acl(a->z, "/l", -1, acls, NULL);
  zke_free(acls);
  return rc;
}

static int do_compact(const ops_actor *a) {
  if (sim_load(a->slot, 4)) return ZKE_OK;
  return zke_compact(a->z, zke_now(a->z) + 1000);
}

static int do_history_keep(const ops_actor *a) {
  if (the_plan.k.history) return ZKE_OK; /* history.c needs it */
  return zke_history_keep(a->z, sim_load(a->slot, 3) ? 50 : 0, 0);
}

static int do_pending(const ops_actor *a) {
  int pending = 0;
  return zke_pending(a->z, &pending);
}

static int do_check(const ops_actor *a) {
  zke_op ops[2];
  zke_op_check(&ops[0], "/l", sim_load(a->slot, 2) ? -1 : 7);
  zke_op_create(&ops[1], "/l/n-", NULL, -1, ZKE_OPEN_ACL,
                ZKE_EPHEMERAL_SEQUENTIAL);
  return multi(a, ops, 2);
}

/* A node that can be read or removed only with its password. */
static int do_private(const ops_actor *a) {
  char *data = NULL;
  int len = 0;
  if (sim_load(a->slot, 2)) return zke_add_auth(a->z, "digest", OPS_USER, 11);
  int rc = zke_create(a->z, "/private", "x", 1, &zke_creator_all_acl,
                      ZKE_PERSISTENT, NULL, NULL);
  if (rc == ZKE_NODEEXISTS)
    rc = zke_get(a->z, "/private", NULL, NULL, &data, &len, NULL);
  if (rc == ZKE_OK && sim_load(a->slot, 2))
    rc = zke_delete(a->z, "/private", -1);
  zke_free(data);
  return rc == ZKE_INVALIDACL || rc == ZKE_NOAUTH ? ZKE_OK : rc;
}

static int do_overdue(const ops_actor *a) {
  int overdue = 0;
  return zke_overdue(a->z, &overdue);
}

static int do_turn(const ops_actor *a) {
  int64_t turn = zke_turn(a->z);
  if (sim_load(a->slot, 2)) return zke_wake(a->z);
  int rc = zke_wait_turn(a->z, turn, zke_now(a->z) + 20);
  forked_returned(a->slot, a->z, rc);
  return rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
}

static int do_touch(const ops_actor *a) { return zke_touch(a->z); }

static int do_bad_path(const ops_actor *a) {
  int rc =
      zke_exists(a->z, sim_load(a->slot, 2) ? "/a//b" : "no", NULL, NULL, NULL);
  return rc == ZKE_BADARGUMENTS ? ZKE_OK : rc;
}

/* ---- which ---- */

typedef struct kind {
  const char *name;
  int (*fn)(const ops_actor *a);
  int weight;
} kind;

/* Make one of the calls, chosen by weight.  A refusal by the tree does not fail
 * the call. */
static void any(const ops_actor *a, const kind *all, int count) {
  int sum = 0;
  for (int i = 0; i < count; i++) sum += all[i].weight;
  int n = (int)sim_load(a->slot, (uint64_t)sum);
  while (n >= all->weight) n -= (all++)->weight;
  known_call c = known_begin(a->slot, all->name);
  int rc = all->fn(a);
  known_end(c, rc == ZKE_NOAUTH ? ZKE_OK : rc);
}

void tree_any(const ops_actor *a) {
  static const kind all[] = {
      {"tree: one", do_single, 5},  {"tree: multi", do_multi, 3},
      {"tree: batch", do_batch, 1}, {"tree: read", do_read, 2},
      {"tree: count", do_count, 1}, {"tree: raise", do_raise, 1},
      {"tree: watch", do_watch, 4}, {"tree: set_acl", do_acl, 1}};
  any(a, all, sizeof all / sizeof *all);
}

void tree_around(const ops_actor *a) {
  static const kind all[] = {{"count", do_count_queue, 1},
                             {"usage", do_usage, 1},
                             {"ephemerals", do_ephemerals, 1},
                             {"sync", do_sync, 1},
                             {"sessions", do_sessions, 1},
                             {"watches", do_watches, 2},
                             {"get_acl, set_acl", do_acl_again, 1},
                             {"compact", do_compact, 1},
                             {"history_keep", do_history_keep, 1},
                             {"pending", do_pending, 1},
                             {"multi with a check", do_check, 1},
                             {"raise_sequence", do_raise_line, 1},
                             {"create with an ACL", do_private, 2},
                             {"overdue", do_overdue, 1},
                             {"wait for a turn", do_turn, 1},
                             {"touch", do_touch, 1},
                             {"bad path", do_bad_path, 1}};
  any(a, all, sizeof all / sizeof *all);
}
