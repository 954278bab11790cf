/* test_lab_recipes: every recipe in the laboratory
 *
 * Each is used by two or three processes.  In one schedule the laboratory lets
 * one of them die, ends a session, loses a reply and stops one for a while, and
 * nothing that the recipe promises may break.
 *
 * Environment: SECONDS, of processor time for each recipe; RECIPE, the only one
 * to run; SEED, of the choices; REPLAY, a schedule of that recipe.  With any of
 * the first three it prints what was done. */
#include "test/test.h"
#include "test/lab/zkembed-lab.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/barrier.h"
#include "recipes/config.h"
#include "recipes/counter.h"
#include "recipes/deadlock.h"
#include "recipes/discovery.h"
#include "recipes/double_barrier.h"
#include "recipes/election.h"
#include "recipes/group.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/names.h"
#include "recipes/partition.h"
#include "recipes/periodic.h"
#include "recipes/persistent_node.h"
#include "recipes/queue.h"
#include "recipes/rendezvous.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "recipes/singleton.h"
#include "recipes/two_phase.h"

/* What the processes of a schedule know of each other. */
static struct {
  bool open;
  int came, left;
  int tries, done;
  int committed, aborted;
} shared;

/* Has a call succeeded?  It may fail because the session has ended. */
static bool went(int rc) {
  if (rc == ZKE_OK) return true;
  if (rc != ZKE_INVALIDSTATE && rc != ZKE_LOST)
    zke_lab_fail("%s: %s", zke_error_name(rc), zke_errmsg());
  return false;
}

static void stay(const char *section, int limit) {
  zke_lab_enter(section, limit);
  zke_lab_leave(section);
}

/* ---- lines ---- */

static void use_lock(zke *z, void *path) {
  zke_lock *lock = NULL;
  if (!went(zke_lock_new(z, path, NULL, &lock))) return;
  if (went(zke_lock_acquire(lock, ZKE_FOREVER))) {
    stay(path, 1);
    went(zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

/* Ask for the second while holding the first.  Two that do so crosswise wait
 * for each other, and one is told. */
static void take_both(zke *z, const char *first, const char *second) {
  zke_lock *one = NULL, *other = NULL;
  int rc = zke_lock_new(z, first, NULL, &one);
  if (rc == ZKE_OK) rc = zke_lock_new(z, second, NULL, &other);
  if (rc == ZKE_OK) rc = zke_lock_acquire(one, ZKE_FOREVER);
  if (rc == ZKE_OK) {
    rc = zke_lock_acquire(other, ZKE_FOREVER);
    if (rc == ZKE_OK) stay("both", 1);
  }
  zke_lock_free(other);
  zke_lock_free(one);
  if (rc != ZKE_DEADLOCK) went(rc);
}

static void use_both(zke *z, void *first) {
  take_both(z, first, strcmp(first, "/a") == 0 ? "/b" : "/a");
}

static void use_both_at_once(zke *z, void *first) {
  const char *second = strcmp(first, "/a") == 0 ? "/b" : "/a";
  const zke_multilock_item items[] = {{first, ZKE_MULTILOCK_LOCK},
                                      {second, ZKE_MULTILOCK_LOCK}};
  zke_multilock *ml = NULL;
  if (!went(zke_multilock_new(z, items, 2, NULL, &ml))) return;
  if (went(zke_multilock_acquire(ml, ZKE_FOREVER))) {
    zke_lab_enter("/a", 1);
    stay("/b", 1);
    zke_lab_leave("/a");
    went(zke_multilock_release(ml));
  }
  zke_multilock_free(ml);
}

static void use_rwlock(zke *z, void *writes) {
  int mode = writes ? ZKE_RWLOCK_WRITE : ZKE_RWLOCK_READ;
  const char *section = writes ? "writes" : "reads";
  zke_rwlock *rw = NULL;
  if (!went(zke_rwlock_new(z, "/rwlock", NULL, &rw))) return;
  if (went(zke_rwlock_acquire(rw, mode, ZKE_FOREVER))) {
    zke_lab_enter(section, writes ? 1 : ZKE_LAB_MOST);
    zke_lab_exclude(section, writes ? "reads" : "writes");
    zke_lab_leave(section);
    went(zke_rwlock_release(rw));
  }
  zke_rwlock_free(rw);
}

static void use_semaphore(zke *z, void *all) {
  const char *section = all ? "has all" : "has one";
  zke_semaphore_options o = ZKE_INIT(zke_semaphore_options);
  zke_semaphore *sem = NULL;
  o.limit = 2;
  if (!went(zke_semaphore_new(z, "/sem", &o, &sem))) return;
  if (went(zke_semaphore_acquire(sem, all ? 2 : 1, ZKE_FOREVER))) {
    zke_lab_enter(section, all ? 1 : 2);
    zke_lab_exclude(section, all ? "has one" : "has all");
    zke_lab_leave(section);
    went(zke_semaphore_release(sem));
  }
  zke_semaphore_free(sem);
}

static int run_alone(zke_singleton *s, int64_t token, void *arg) {
  (void)s;
  (void)token;
  (void)arg;
  stay("runs", 1);
  return 0;
}

static void use_singleton(zke *z, void *arg) {
  zke_singleton *s = NULL;
  (void)arg;
  if (!went(zke_singleton_new(z, "/singleton", NULL, &s))) return;
  went(zke_singleton_serve(s, ZKE_FOREVER, run_alone, NULL));
  zke_singleton_free(s);
}

static void use_election(zke *z, void *arg) {
  zke_election *e = NULL;
  (void)arg;
  if (!went(zke_election_new(z, "/election", NULL, &e))) return;
  if (went(zke_election_lead(e, ZKE_FOREVER))) {
    zke_lab_enter("leads", 1);
    went(zke_election_ready(e));
    zke_lab_leave("leads");
    went(zke_election_resign(e));
  }
  zke_election_free(e);
}

/* At some time nobody leads any more. */
static void observe(zke *z, void *arg) {
  zke_observer *o = NULL;
  (void)arg;
  if (!went(zke_observer_new(z, "/election", NULL, &o))) return;
  went(zke_observer_wait(o, 0, ZKE_FOREVER));
  zke_observer_free(o);
}

/* ---- meetings ---- */

static void close_barrier(zke *z, void *arg) {
  zke_barrier *barrier = NULL;
  (void)arg;
  if (!went(zke_barrier_new(z, "/barrier", NULL, &barrier))) return;
  went(zke_barrier_set(barrier, NULL, 0, ZKE_FOREVER, NULL));
  zke_barrier_free(barrier);
}

static void open_barrier(zke *z, void *arg) {
  zke_barrier *barrier = NULL;
  (void)arg;
  if (!went(zke_barrier_new(z, "/barrier", NULL, &barrier))) return;
  shared.open = true;
  went(zke_barrier_remove(barrier, 0, ZKE_FOREVER));
  zke_barrier_free(barrier);
}

static void pass_barrier(zke *z, void *arg) {
  zke_barrier *barrier = NULL;
  (void)arg;
  if (!went(zke_barrier_new(z, "/barrier", NULL, &barrier))) return;
  if (went(zke_barrier_wait(barrier, ZKE_FOREVER))) zke_lab_assert(shared.open);
  zke_barrier_free(barrier);
}

static void use_double_barrier(zke *z, void *arg) {
  zke_double_barrier *barrier = NULL;
  (void)arg;
  if (!went(zke_double_barrier_new(z, "/double", 2, NULL, &barrier))) return;
  shared.came++;
  if (went(zke_double_barrier_enter(barrier, NULL, 0, ZKE_FOREVER, NULL))) {
    zke_lab_assert(shared.came == 2);
    shared.left++;
    int rc = zke_double_barrier_leave(barrier, ZKE_FOREVER);
    if (rc == ZKE_OK) zke_lab_assert(shared.left == 2);
    if (rc != ZKE_BROKEN) went(rc);
  }
  zke_double_barrier_free(barrier);
}

static void meet(zke *z, void *brought) {
  zke_rendezvous *meeting = NULL;
  zke_party_list *who = NULL;
  if (!went(zke_rendezvous_new(z, "/meeting", 2, NULL, &meeting))) return;
  if (went(zke_rendezvous_meet(meeting, brought, 1, ZKE_FOREVER, &who, NULL))) {
    zke_lab_assert(who->count == 2);
    zke_lab_assert(who->data[0].data[0] + who->data[1].data[0] == 'a' + 'b');
    zke_free(who);
  }
  zke_rendezvous_free(meeting);
}

/* ---- who is there ---- */

/* Tell that something was seen, and wait for it. */
static bool tell_seen(zke *z) {
  int rc = ZKE_CONNECTIONLOSS;
  while (rc == ZKE_CONNECTIONLOSS)
    rc = zke_create(z, "/seen", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                    NULL);
  return rc == ZKE_NODEEXISTS || went(rc);
}

static void wake_up(zke *z, int type, int state, const char *path,
                    void *context) {
  (void)z;
  (void)type;
  (void)state;
  (void)path;
  (void)context;
}

static void await_seen(zke *z) {
  int rc;
  while ((rc = zke_exists(z, "/seen", wake_up, NULL, NULL)) == ZKE_NONODE) {
    rc = zke_wait(z, ZKE_FOREVER);
    if (rc != ZKE_OK) break;
  }
  zke_forget(z, wake_up, NULL);
}

static void use_group(zke *z, void *hosts) {
  zke_group *group = NULL;
  if (!went(zke_group_new(z, "/group", NULL, &group))) return;
  if (went(zke_group_join(group, NULL, 0, ZKE_FOREVER))) {
    if (!hosts)
      await_seen(z);
    else if (went(zke_group_wait(group, 2, ZKE_FOREVER)))
      tell_seen(z);
    went(zke_group_leave(group));
  }
  zke_group_free(group);
}

static void offer_service(zke *z, void *arg) {
  zke_discovery *service = NULL;
  (void)arg;
  if (!went(zke_discovery_new(z, "/services", "web", NULL, &service))) return;
  if (went(zke_discovery_register(service, "host:80", NULL, 0, ZKE_FOREVER))) {
    await_seen(z);
    went(zke_discovery_unregister(service));
  }
  zke_discovery_free(service);
}

static void find_service(zke *z, void *arg) {
  zke_discovery *service = NULL;
  zke_instance *instance = NULL;
  (void)arg;
  if (!went(zke_discovery_new(z, "/services", "web", NULL, &service))) return;
  if (went(zke_discovery_wait(service, 1, ZKE_FOREVER))) {
    int rc = zke_discovery_pick(service, ZKE_PICK_FIRST, &instance);
    if (rc == ZKE_OK)
      zke_lab_assert(strcmp(instance->address, "host:80") == 0);
    else if (rc != ZKE_NONODE)
      went(rc);
    zke_free(instance);
    tell_seen(z);
  }
  zke_discovery_free(service);
}

static void heard(zke_partition *p, int event, const char *item, int64_t token,
                  void *context) {
  (void)token;
  (void)context;
  if (event == ZKE_PARTITION_ACQUIRED) zke_lab_enter(item, 1);
  if (event != ZKE_PARTITION_ACQUIRED) zke_lab_leave(item);
  if (event == ZKE_PARTITION_RELEASE) went(zke_partition_release(p, item));
}

static void use_partition(zke *z, void *name) {
  static const char *const items[] = {"x", "y"};
  zke_partition_options o = ZKE_INIT(zke_partition_options);
  zke_partition *p = NULL;
  o.name = name;
  o.listener = heard;
  if (!went(zke_partition_new(z, "/shards", items, 2, &o, &p))) return;
  if (went(zke_partition_start(p)) &&
      went(zke_partition_wait(p, ZKE_FOREVER))) {
    zke_lab_leave("x");
    zke_lab_leave("y");
    went(zke_partition_leave(p));
  }
  zke_partition_free(p);
}

static void keep_node(zke *z, void *arg) {
  zke_persistent_node *node = NULL;
  (void)arg;
  if (!went(zke_persistent_node_new(z, "/status", "up", 2, NULL, &node)))
    return;
  if (went(zke_persistent_node_acquire(node, ZKE_FOREVER))) {
    stay("keeps", 1);
    went(zke_persistent_node_release(node));
  }
  zke_persistent_node_free(node);
}

/* ---- data ---- */

static void put_items(zke *z, void *arg) {
  static const char *const items[] = {"1", "2"};
  zke_queue *queue = NULL;
  (void)arg;
  if (!went(zke_queue_new(z, "/queue", NULL, &queue))) return;
  for (int i = 0; i < 2; i++)
    if (!went(zke_queue_put(queue, items[i], 1, NULL, ZKE_FOREVER))) break;
  zke_queue_free(queue);
}

/* What comes of an item is a znode, made together with the acknowledgement: an
 * item that is done twice is found there. */
static void take_item(zke *z, void *arg) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  zke_op made;
  char path[16];
  (void)arg;
  if (!went(zke_queue_new(z, "/queue", NULL, &queue))) return;
  if (went(zke_queue_claim(queue, ZKE_FOREVER, &item))) {
    stay(item->data, 1);
    snprintf(path, sizeof path, "/done-%s", item->data);
    zke_op_create(&made, path, NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
    if (went(zke_queue_ack(queue, item, &made, 1, NULL))) shared.done++;
  }
  zke_free(item);
  zke_queue_free(queue);
}

static void see_items(zke *z, void *arg) {
  int found = zke_exists(z, "/done-1", NULL, NULL, NULL) == ZKE_OK;
  found += zke_exists(z, "/done-2", NULL, NULL, NULL) == ZKE_OK;
  (void)arg;
  zke_lab_assert(found >= shared.done);
}

static void count_up(zke *z, void *arg) {
  zke_counter *counter = NULL;
  (void)arg;
  if (!went(zke_counter_new(z, "/counter", NULL, &counter))) return;
  for (int i = 0; i < 2; i++) {
    shared.tries++;
    if (!went(zke_counter_add_and_get(counter, 1, ZKE_FOREVER, NULL, NULL)))
      break;
    shared.done++;
  }
  zke_counter_free(counter);
}

static void see_count(zke *z, void *arg) {
  zke_counter *counter = NULL;
  int64_t value = 0;
  (void)arg;
  if (zke_counter_new(z, "/counter", NULL, &counter) != ZKE_OK) return;
  zke_counter_get(counter, &value, NULL);
  zke_counter_free(counter);
  zke_lab_assert(value >= shared.done && value <= shared.tries);
}

static void begin_sale(zke *z, void *arg) {
  static const char *const sites[] = {"bank", "shop"};
  zke_two_phase_options o = ZKE_INIT(zke_two_phase_options);
  zke_two_phase *t = NULL;
  (void)arg;
  o.form = ZKE_TWO_PHASE_SITES | ZKE_TWO_PHASE_EPHEMERAL;
  if (went(zke_two_phase_begin(z, "/2pc", "sale", "tea", 3, sites, 2, &o, &t)))
    zke_two_phase_free(t);
}

/* A site, or NULL for an onlooker. */
static void take_part(zke *z, void *site) {
  zke_two_phase *t = NULL;
  int decision = 0;
  int rc = zke_two_phase_open(z, "/2pc", "sale", site, NULL, &t);
  if (rc != ZKE_NONODE && !went(rc)) return;
  if (rc == ZKE_OK && site) rc = zke_two_phase_vote(t, ZKE_TWO_PHASE_COMMIT);
  if (rc == ZKE_OK) rc = zke_two_phase_wait(t, ZKE_FOREVER, &decision);
  if (rc == ZKE_OK) {
    shared.committed += decision == ZKE_TWO_PHASE_COMMIT;
    shared.aborted += decision == ZKE_TWO_PHASE_ABORT;
    zke_lab_assert(!shared.committed || !shared.aborted);
    if (site) rc = zke_two_phase_ack(t);
  }
  if (rc != ZKE_NONODE) went(rc);
  zke_two_phase_free(t);
}

static void use_name(zke *z, void *arg) {
  zke_names *names = NULL;
  int64_t token;
  (void)arg;
  if (!went(zke_names_new(z, "/names", NULL, &names))) return;
  int rc = zke_names_bind(names, "printer", "a", 1, 1, ZKE_FOREVER, &token);
  if (rc != ZKE_HELD && went(rc)) {
    stay("bound", 1);
    went(zke_names_unbind(names, "printer", token, ZKE_FOREVER));
  }
  rc = zke_names_bind(names, "last", "z", 1, 0, ZKE_FOREVER, NULL);
  if (rc != ZKE_HELD) went(rc);
  zke_names_free(names);
}

static void await_name(zke *z, void *arg) {
  zke_names *names = NULL;
  zke_binding *b = NULL;
  (void)arg;
  if (!went(zke_names_new(z, "/names", NULL, &names))) return;
  if (went(zke_names_wait(names, "last", ZKE_FOREVER, &b)))
    zke_lab_assert(strcmp(b->value, "z") == 0);
  zke_free(b);
  zke_names_free(names);
}

static void write_config(zke *z, void *arg) {
  static const char *const values[] = {"1", "2", "3"};
  zke_config *config = NULL;
  (void)arg;
  if (!went(zke_config_new(z, "/config", NULL, &config))) return;
  for (int i = 0; i < 3; i++)
    if (!went(zke_config_set(config, "a", values[i], 1, -1, ZKE_FOREVER, NULL)))
      break;
  zke_config_free(config);
}

/* Values come in the order in which they were written, and the last one comes
 * in any case. */
static void read_config(zke *z, void *arg) {
  zke_config *config = NULL;
  int64_t revision = 0;
  char value = '0';
  (void)arg;
  if (!went(zke_config_new(z, "/config", NULL, &config))) return;
  while (value < '3' &&
         went(zke_config_wait(config, revision, ZKE_FOREVER, &revision))) {
    char *data = NULL;
    int rc = zke_config_get(config, "a", &data, NULL, NULL);
    if (rc != ZKE_NONODE && !went(rc)) break;
    if (data) {
      zke_lab_assert(*data >= value);
      value = *data;
    }
    zke_free(data);
  }
  zke_config_free(config);
}

/* ---- times ---- */

static void run_job(zke *z, void *arg) {
  zke_periodic_options o = ZKE_INIT(zke_periodic_options);
  zke_periodic *job = NULL;
  (void)arg;
  o.period_ms = 1000;
  if (!went(zke_periodic_new(z, "/jobs", "rotate", &o, &job))) return;
  if (went(zke_periodic_acquire(job, ZKE_FOREVER))) {
    stay("does it", 1);
    went(zke_periodic_release(job, 0));
  }
  zke_periodic_free(job);
}

/* ---- all of them ---- */

typedef struct party {
  zke_lab_fn fn;
  const char *arg;
} party;

typedef struct recipe {
  const char *name;
  party parties[3];
  bool waits;    /* who dies or loses its session is missed by the others */
  bool timeouts; /* a deadline is what it waits for */
  zke_lab_fn setup, finally;
} recipe;

static const recipe recipes[] = {
    {.name = "lock",
     .parties = {{use_lock, "/a"}, {use_lock, "/a"}, {use_lock, "/a"}}},
    {.name = "deadlock", .parties = {{use_both, "/a"}, {use_both, "/b"}}},
    {.name = "multilock",
     .parties = {{use_both_at_once, "/a"},
                 {use_both_at_once, "/b"},
                 {use_lock, "/a"}}},
    {.name = "rwlock",
     .parties = {{use_rwlock, NULL}, {use_rwlock, NULL}, {use_rwlock, "w"}}},
    {.name = "semaphore",
     .parties = {{use_semaphore, NULL},
                 {use_semaphore, NULL},
                 {use_semaphore, "all"}}},
    {.name = "singleton",
     .parties = {{use_singleton, NULL}, {use_singleton, NULL}}},
    {.name = "election",
     .parties = {{use_election, NULL}, {use_election, NULL}, {observe, NULL}}},
    {.name = "barrier",
     .parties = {{open_barrier, NULL},
                 {pass_barrier, NULL},
                 {pass_barrier, NULL}},
     .setup = close_barrier,
     .waits = true},
    {.name = "double_barrier",
     .parties = {{use_double_barrier, NULL}, {use_double_barrier, NULL}},
     .waits = true,
     .timeouts = true}, /* a step whose reply was lost is made again later */
    {.name = "rendezvous",
     .parties = {{meet, "a"}, {meet, "b"}},
     .waits = true,
     .timeouts = true}, /* as well */
    {.name = "group",
     .parties = {{use_group, "hosts"}, {use_group, NULL}},
     .waits = true},
    {.name = "discovery",
     .parties = {{offer_service, NULL}, {find_service, NULL}},
     .waits = true},
    {.name = "partition",
     .parties = {{use_partition, "a"}, {use_partition, "b"}}},
    {.name = "persistent_node",
     .parties = {{keep_node, NULL}, {keep_node, NULL}}},
    {.name = "queue",
     .parties = {{put_items, NULL}, {take_item, NULL}, {take_item, NULL}},
     .waits = true,
     .finally = see_items},
    {.name = "counter",
     .parties = {{count_up, NULL}, {count_up, NULL}},
     .finally = see_count},
    {.name = "two_phase",
     .parties = {{take_part, "bank"}, {take_part, "shop"}, {take_part, NULL}},
     .waits = true,
     .setup = begin_sale},
    {.name = "names",
     .parties = {{use_name, NULL}, {use_name, NULL}, {await_name, NULL}},
     .waits = true},
    {.name = "config",
     .parties = {{write_config, NULL}, {read_config, NULL}},
     .waits = true},
    /* The second run waits for the end of the first one's period. */
    {.name = "periodic",
     .parties = {{run_job, NULL}, {run_job, NULL}},
     .timeouts = true}};

enum { RECIPES = sizeof recipes / sizeof recipes[0], SHORT_MS = 400 };

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text && *text ? atof(text) : otherwise;
}

static bool named(const char *variable) {
  const char *text = getenv(variable);
  return text && *text;
}

static zke_lab *build(const recipe *r) {
  static const char *const names[] = {"a", "b", "c"};
  zke_lab_options o = ZKE_INIT(zke_lab_options);
  zke_lab *lab = NULL;
  o.waits = r->waits;
  o.timeouts = r->timeouts;
  o.time_ms = (int64_t)(number("SECONDS", SHORT_MS / 1000.0) * 1000);
  o.seed = (uint64_t)number("SEED", 0);
  ck_rc(zke_lab_new(&o, &lab), ZKE_OK);
  for (int i = 0; i < 3 && r->parties[i].fn; i++)
    ck_rc(zke_lab_process(lab, names[i], r->parties[i].fn,
                          (void *)(uintptr_t)r->parties[i].arg),
          ZKE_OK);
  zke_lab_setup(lab, r->setup, NULL);
  zke_lab_finally(lab, r->finally, NULL);
  ck_rc(zke_lab_state(lab, &shared, sizeof shared), ZKE_OK);
  return lab;
}

static void tell(const recipe *r, const zke_lab_result *found) {
  if (!named("SECONDS") && !named("RECIPE") && !named("SEED")) return;
  printf("%-16s %9lld schedules %9lld states %10lld calls%s\n", r->name,
         (long long)found->schedules, (long long)found->states,
         (long long)found->calls, found->exhausted ? ": all there are" : "");
  fflush(stdout);
}

LIMIT(0);

/* Each recipe with its processes, faults and checks: nothing is found in the
 * time that SECONDS gives. A finding is drawn, with the command that repeats
 * it. */
TEST_LOOP(recipes_hold_in_the_laboratory, 0, RECIPES) {
  const recipe *r = &recipes[_i];
  zke_lab_result found;
  if (named("RECIPE") && strcmp(getenv("RECIPE"), r->name) != 0) return;
  zke_lab *lab = build(r);
  const char *schedule = getenv("REPLAY");
  ck_rc(schedule && *schedule ? zke_lab_replay(lab, schedule, &found)
                              : zke_lab_run(lab, &found),
        ZKE_OK);
  tell(r, &found);
  if (found.found) {
    char why[512], replay[4096];
    snprintf(why, sizeof why, "%s", found.why);
    snprintf(replay, sizeof replay, "%s", found.schedule);
    zke_lab_picture(lab, replay, "-");
    ck_abort_msg("%s: %s\nmake lab RECIPE=%s REPLAY=%s", r->name, why, r->name,
                 replay);
  }
  zke_lab_free(lab);
}
