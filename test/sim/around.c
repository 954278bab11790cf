/* around.c - see around.h */
#include "test/sim/around.h"

#include "test/sim/known.h"
#include "test/sim/plan.h"

static uint64_t chance(const ops_actor *a, uint64_t below) {
  return sim_random((sim_stream)(SIM_LOAD + a->slot), below);
}

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
  int rc = zke_ephemerals(a->z, 0, "/", &paths);
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
  int rc = chance(a, 2) ? zke_watches(a->z, &list) : zke_waiters(a->z, &list);
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
  if (chance(a, 4)) return ZKE_OK;
  return zke_compact(a->z, zke_now(a->z) + 1000);
}

static int do_history_keep(const ops_actor *a) {
  if (the_plan.k.history) return ZKE_OK; /* history.c has it */
  return zke_history_keep(a->z, chance(a, 3) ? 50 : 0, 0);
}

static int do_history(const ops_actor *a) {
  zke_change_list *changes = NULL;
  int rc = zke_history(a->z, "/", 0, 20, &changes);
  zke_free(changes);
  return rc;
}

static int do_alarm(const ops_actor *a) {
  int pending = 0;
  return zke_pending(a->z, &pending);
}

static const struct {
  const char *name;
  int (*fn)(const ops_actor *a);
} all[] = {{"count", do_count},           {"usage", do_usage},
           {"ephemerals", do_ephemerals}, {"sync", do_sync},
           {"sessions", do_sessions},     {"watches", do_watches},
           {"counters", do_counters},     {"get_acl, set_acl", do_acl},
           {"compact", do_compact},       {"history_keep", do_history_keep},
           {"history", do_history},       {"pending", do_alarm}};

void around_any(const ops_actor *a) {
  size_t i = chance(a, sizeof all / sizeof *all);
  known_call c = known_begin(a->slot, all[i].name);
  known_end(c, all[i].fn(a));
}
