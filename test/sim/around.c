/* around.c - see around.h */
#include "test/sim/around.h"

#include "test/sim/forked.h"
#include "test/sim/known.h"
#include "test/sim/plan.h"

static int do_count(const ops_actor *a) {
  int64_t count = 0;
  return zke_count(a->z, "/q", &count);
}

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
  int rc = zke_sessions(a->z, &list);
  zke_free(list);
  return rc;
}

static int do_watches(const ops_actor *a) {
  zke_watch_list *list = NULL;
  int rc = sim_load(a->slot, 2) ? zke_watches(a->z, &list)
                                : zke_waiters(a->z, &list);
  zke_free(list);
  return rc;
}

static int do_counters(const ops_actor *a) {
  zke_counts counts;
  return zke_counters(a->z, &counts);
}

static int do_acl(const ops_actor *a) {
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
  if (the_plan.k.history) return ZKE_OK; /* history.c has it */
  return zke_history_keep(a->z, sim_load(a->slot, 3) ? 50 : 0, 0);
}

static int do_history(const ops_actor *a) {
  zke_change_list *changes = NULL;
  int rc = zke_history(a->z, "/", 0, 20, &changes);
  zke_free(changes);
  return rc;
}

static int do_pending(const ops_actor *a) {
  int pending = 0;
  return zke_pending(a->z, &pending);
}

static int do_check(const ops_actor *a) {
  zke_op ops[2];
  zke_op_result r[2] = {{0}};
  zke_op_check(&ops[0], "/l", sim_load(a->slot, 2) ? -1 : 7);
  zke_op_create(&ops[1], "/l/n-", NULL, -1, ZKE_OPEN_ACL,
                ZKE_EPHEMERAL_SEQUENTIAL);
  int rc = zke_multi(a->z, ops, 2, r);
  zke_results_clear(r, 2);
  return rc;
}

static int do_raise(const ops_actor *a) {
  zke_stat stat;
  return zke_raise_sequence(a->z, "/line", (int)sim_load(a->slot, 100), &stat);
}

/* A node that only whoever has the password may read or remove. */
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

/* A quota of the queue, which the log then is told of. */
static int do_quota(const ops_actor *a) {
  static const char limits[] = "count=3,bytes=-1";
  const int len = (int)sizeof limits - 1;
  int rc = zke_create(a->z, "/zookeeper/quota/q", NULL, -1, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT, NULL, NULL);
  if (rc == ZKE_OK || rc == ZKE_NODEEXISTS)
    rc = zke_create(a->z, "/zookeeper/quota/q/zookeeper_limits", limits, len,
                    ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  if (rc == ZKE_NODEEXISTS && sim_load(a->slot, 2))
    rc = zke_delete(a->z, "/zookeeper/quota/q/zookeeper_limits", -1);
  return rc;
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

static const struct {
  const char *name;
  int (*fn)(const ops_actor *a);
} all[] = {{"count", do_count},
           {"usage", do_usage},
           {"ephemerals", do_ephemerals},
           {"sync", do_sync},
           {"sessions", do_sessions},
           {"watches", do_watches},
           {"counters", do_counters},
           {"get_acl, set_acl", do_acl},
           {"compact", do_compact},
           {"history_keep", do_history_keep},
           {"history", do_history},
           {"pending", do_pending},
           {"multi with a check", do_check},
           {"raise_sequence", do_raise},
           {"create with an ACL", do_private},
           {"quota", do_quota},
           {"overdue", do_overdue},
           {"turn", do_turn},
           {"touch", do_touch},
           {"bad path", do_bad_path}};

void around_any(const ops_actor *a) {
  size_t i = sim_load(a->slot, sizeof all / sizeof *all);
  known_call c = known_begin(a->slot, all[i].name);
  known_end(c, all[i].fn(a));
}
