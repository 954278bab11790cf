/* recipe_torture.c - recipes in processes that are stopped and killed
 *
 * Workers use each recipe of the table below in a loop, on a few paths.  This
 * program stops them (SIGSTOP), continues them, kills them with SIGKILL at
 * random instants, and starts others in their place.  Now and then one of their
 * changes loses its reply, before or after it took effect.  They append what
 * they do to a file.  At the end an inspector uses each recipe once more,
 * empties the queues, finishes the transactions, reads the fenced tables and
 * runs zke_check(); and the history is checked (recipe_history.h).
 *
 *   KILLS=n     how many; 2000
 *   SEED=n      printed; it decides the kills, and what the workers do, as far
 *               as the scheduler lets it
 *   SECONDS=n   end after this time, whatever KILLS says; no limit
 *   RECIPE=s    only the recipes whose name contains it
 *
 * Arguments: a directory for the database; /dev/shm if there is one.
 *
 * To add a recipe, write a function that does one round of it and a line in the
 * table, and a check of the history if it needs a new kind of rule.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipe_history.h"
#include "recipes/barrier.h"
#include "recipes/config.h"
#include "recipes/counter.h"
#include "recipes/double_barrier.h"
#include "recipes/election.h"
#include "recipes/fence.h"
#include "recipes/group.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/names.h"
#include "recipes/partition.h"
#include "recipes/periodic.h"
#include "recipes/persistent_node.h"
#include "recipes/queue.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "recipes/two_phase.h"
#include "test/program.h"

enum {
  WORKERS = 6,
  RESOURCES = 2,     /* paths of each recipe */
  WAIT_MS = 20000,   /* a worker's deadline */
  SETTLE_MS = 60000, /* for the workers to end by themselves */
  READERS = 1 << 20, /* capacity of a read/write lock: a writer takes all */
  PERMITS = 4,       /* of a semaphore */
  PARTIES = 3,       /* of a barrier */
  SITES = 3,         /* of a transaction */
  OPEN = 3,          /* transactions at a time, about */
  PERIOD_MS = 30,    /* of a job */
  FASHION = 4        /* recipes in use at a time, so that the workers meet */
};
#define PROGRESS_NS INT64_C(15000000000)
#define FASHION_NS INT64_C(40000000)

static int32_t people; /* processes so far */
static char directory[4000], database[4100], history_path[4100];

/* ---- a worker ---- */

typedef struct worker {
  zke *z;
  int history; /* descriptor */
  int32_t who;
  unsigned random;
  int16_t recipe, resource; /* of the present round */
  int64_t items;            /* put so far */
  sqlite3 *db;              /* the program's own connection, once it is open */
  char path[64];
} worker;

static void note(const worker *w, int event, int64_t number, int weight) {
  history_write(w->history, (history_record){.number = number,
                                             .who = w->who,
                                             .recipe = w->recipe,
                                             .resource = w->resource,
                                             .weight = weight,
                                             .event = event});
}

static int chance(worker *w, int of) { return rand_r(&w->random) % of; }

static int64_t deadline(const worker *w) { return zke_now(w->z) + WAIT_MS; }

/* Hold something for a while: mostly no time, sometimes milliseconds. */
static void linger(worker *w) {
  if (chance(w, 4) == 0) poll(NULL, 0, chance(w, 4));
}

/* Record the outcome of a request; true if it was granted. */
static bool judge(const worker *w, int rc, int64_t number, int weight) {
  if (rc == ZKE_OK) {
    note(w, HISTORY_TAKEN, number, weight);
  } else {
    note(w, HISTORY_GAVE_UP, 0, 0);
    if (rc != ZKE_OPERATIONTIMEOUT && rc != ZKE_HELD)
      note(w, HISTORY_FAILED, rc, 0);
  }
  return rc == ZKE_OK;
}

/* A call that must succeed. */
static void must(const worker *w, int rc) {
  if (rc == ZKE_OK) return;
  note(w, HISTORY_FAILED, rc, 0);
  fprintf(stderr, "%s: %s\n", w->path, zke_errmsg());
}

/* Was the call too late: did its deadline pass, or was a reply lost with no
 * time left to retry? */
static bool was_late(const worker *w, int rc, int64_t deadline_ms) {
  return rc == ZKE_OPERATIONTIMEOUT ||
         (rc == ZKE_CONNECTIONLOSS && zke_now(w->z) + 60 > deadline_ms);
}

/* ---- one round of each recipe ---- */

/* Do others see who holds the lock, with this token? */
static bool is_shown(const worker *w, int64_t token) {
  zke_party_list *list = NULL;
  must(w, zke_lock_parties(w->z, w->path, &list));
  bool shown = list && list->count && list->data[0].mzxid == token &&
               list->data[0].session == zke_session_id(w->z);
  zke_free(list);
  return shown;
}

static void do_lock(worker *w) {
  zke_lock *lock = NULL;
  must(w, zke_lock_new(w->z, w->path, NULL, &lock));
  note(w, HISTORY_WANTED, 0, 0);
  int rc =
      chance(w, 8) ? zke_lock_acquire(lock, deadline(w)) : zke_lock_try(lock);
  if (judge(w, rc, zke_lock_token(lock), 1)) {
    linger(w);
    must(w, zke_lock_check(lock));
    if (!is_shown(w, zke_lock_token(lock))) must(w, ZKE_DATAINCONSISTENCY);
    note(w, HISTORY_LEAVING, 0, 0);
    if (chance(w, 4)) must(w, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

static void do_rwlock(worker *w) {
  zke_rwlock *lock = NULL;
  bool writes = chance(w, 3) == 0;
  must(w, zke_rwlock_new(w->z, w->path, NULL, &lock));
  note(w, HISTORY_WANTED, 0, 0);
  int rc = zke_rwlock_acquire(lock, writes ? ZKE_RWLOCK_WRITE : ZKE_RWLOCK_READ,
                              deadline(w));
  if (judge(w, rc, zke_rwlock_token(lock), writes ? READERS : 1)) {
    linger(w);
    note(w, HISTORY_LEAVING, 0, 0);
    must(w, zke_rwlock_release(lock));
  }
  zke_rwlock_free(lock);
}

static void do_election(worker *w) {
  zke_election *e = NULL;
  must(w, zke_election_new(w->z, w->path, NULL, &e));
  note(w, HISTORY_WANTED, 0, 0);
  int rc = zke_election_lead(e, deadline(w));
  if (judge(w, rc, zke_election_token(e), 1)) {
    if (chance(w, 2)) must(w, zke_election_ready(e));
    linger(w);
    note(w, HISTORY_LEAVING, 0, 0);
    must(w, zke_election_resign(e));
  }
  zke_election_free(e);
}

static void put(worker *w, zke_queue *queue) {
  int64_t number = (int64_t)w->who << 32 | ++w->items;
  note(w, HISTORY_PUTTING, number, 0);
  int rc = zke_queue_put(queue, &number, sizeof number, NULL, deadline(w));
  if (rc == ZKE_OK) note(w, HISTORY_PUT, number, 0);
  must(w, rc);
}

static int64_t number_of(const zke_queue_item *item) {
  int64_t number = -1;
  if (item->len == sizeof number) memcpy(&number, item->data, sizeof number);
  return number;
}

/* At most once. */
static void take(worker *w, zke_queue *queue) {
  zke_queue_item *item = NULL;
  int rc = zke_queue_take(queue, zke_now(w->z) + chance(w, 50), &item);
  if (rc == ZKE_OK)
    note(w, HISTORY_GOT, number_of(item), 0);
  else if (rc != ZKE_OPERATIONTIMEOUT)
    must(w, rc);
  zke_free(item);
}

/* A claim or a lock may have gone to another. */
static void may_lose(worker *w, int rc) {
  if (rc != ZKE_LOST) must(w, rc);
}

/* At least once: only the acknowledgement finishes the item. */
static void work_on(worker *w, zke_queue *queue, const zke_queue_item *item) {
  linger(w);
  if (!chance(w, 3)) may_lose(w, zke_queue_prolong(queue, item, 5));
  if (chance(w, 5)) {
    note(w, HISTORY_ACKING, number_of(item), 0);
    int rc = zke_queue_ack(queue, item, NULL, 0, NULL);
    if (rc == ZKE_OK) note(w, HISTORY_ACKED, number_of(item), 0);
    may_lose(w, rc);
  } else {
    may_lose(w, zke_queue_release(queue, item, chance(w, 10), NULL));
  }
}

static void claim(worker *w, zke_queue *queue) {
  enum { SOME = 3 };
  zke_queue_item *items[SOME] = {NULL};
  int count = 0;
  int rc = zke_queue_claim_some(queue, 1 + chance(w, SOME),
                                zke_now(w->z) + chance(w, 50), items, &count);
  for (int i = 0; i < count; i++) work_on(w, queue, items[i]);
  if (rc != ZKE_OK && rc != ZKE_OPERATIONTIMEOUT) must(w, rc);
  for (int i = 0; i < count; i++) zke_free(items[i]);
}

/* Some of the claims end before the work does. */
static void use_queue(worker *w, void (*out)(worker *, zke_queue *)) {
  zke_queue_options o = {.size = sizeof o, .claim_ms = chance(w, 3)};
  zke_queue *queue = NULL;
  must(w, zke_queue_new(w->z, w->path, &o, &queue));
  if (chance(w, 2))
    put(w, queue);
  else
    out(w, queue);
  zke_queue_free(queue);
}

static void do_queue(worker *w) { use_queue(w, take); }
static void do_claims(worker *w) { use_queue(w, claim); }

/* Do the parties that met include this one's data, and nothing twice? */
static bool has_brought(const worker *w, const zke_party_list *list) {
  int32_t who[PARTIES];
  bool mine = false;
  if (list->count != PARTIES) return false;
  for (int i = 0; i < PARTIES; i++) {
    if (list->data[i].len != sizeof who[i]) return false;
    memcpy(&who[i], list->data[i].data, sizeof who[i]);
    for (int j = 0; j < i; j++) {
      if (who[j] == who[i]) return false;
    }
    if (who[i] == w->who) mine = true;
  }
  return mine;
}

/* A party is out.  If its grace ended before it could withdraw, it may still be
 * counted, like a party that died inside: then do not record this. */
static void note_withdrawal(const worker *w, int64_t began) {
  if (zke_now(w->z) < began + ZKE_GRACE_MS) note(w, HISTORY_GAVE_UP, 0, 0);
}

static void do_barrier(worker *w) {
  zke_double_barrier *barrier = NULL;
  int64_t round = 0, began = zke_now(w->z), end = began + chance(w, 100);
  must(w, zke_double_barrier_new(w->z, w->path, PARTIES, NULL, &barrier));
  note(w, HISTORY_ENTERING, 0, 0);
  int rc = zke_double_barrier_enter(barrier, NULL, 0, end, &round);
  if (rc == ZKE_OK) {
    note(w, HISTORY_PASSED, round, 0);
    rc = zke_double_barrier_leave(barrier, deadline(w));
    if (rc != ZKE_BROKEN) must(w, rc);
  } else {
    note_withdrawal(w, began);
    if (!was_late(w, rc, end)) must(w, rc);
  }
  zke_double_barrier_free(barrier);
}

static void do_meeting(worker *w) {
  zke_double_barrier *meeting = NULL;
  zke_party_list *who = NULL;
  int64_t token = 0, began = zke_now(w->z), end = began + chance(w, 100);
  must(w, zke_double_barrier_new(w->z, w->path, PARTIES, NULL, &meeting));
  note(w, HISTORY_ENTERING, 0, 0);
  int rc = zke_double_barrier_meet(meeting, &w->who, sizeof w->who, end, &who,
                                   &token);
  if (rc == ZKE_OK) {
    note(w, HISTORY_PASSED, token, 0);
    must(w, has_brought(w, who) ? ZKE_OK : ZKE_DATAINCONSISTENCY);
  } else {
    note_withdrawal(w, began);
    if (!was_late(w, rc, end)) must(w, rc);
  }
  zke_free(who);
  zke_double_barrier_free(meeting);
}

/* A set that lost its reply while others changed the directory may be in doubt.
 * Then its barrier must not stand. */
static void must_not_stand(worker *w) {
  zke_party_list *list = NULL;
  must(w, zke_barrier_parties(w->z, w->path, &list));
  if (list && list->count && list->data[0].session == zke_session_id(w->z))
    must(w, ZKE_DATAINCONSISTENCY);
  zke_free(list);
}

/* Remove nothing if there is no barrier: token 0 would also remove one that is
 * set from now on. */
static void remove_gate(worker *w, zke_barrier *gate) {
  int64_t token = 0;
  linger(w);
  must(w, zke_barrier_get(gate, &token));
  if (!token) return;
  note(w, HISTORY_LEAVING, token, 0);
  int rc = zke_barrier_remove(gate, token, deadline(w));
  if (rc != ZKE_NONODE) must(w, rc);
}

/* A set gate counts as taken from when it stands until a process begins to
 * remove it. */
static void set_gate(worker *w) {
  zke_barrier_options o = {.size = sizeof o, .ephemeral = chance(w, 2)};
  zke_barrier *gate = NULL;
  int64_t token = 0;
  must(w, zke_barrier_new(w->z, w->path, &o, &gate));
  int rc = zke_barrier_set(gate, NULL, 0, deadline(w), &token);
  if (rc == ZKE_OK) note(w, HISTORY_TAKEN, token, 0);
  if (rc == ZKE_OK || rc == ZKE_HELD)
    remove_gate(w, gate);
  else if (rc == ZKE_CONNECTIONLOSS)
    must_not_stand(w);
  else
    must(w, rc);
  zke_barrier_free(gate);
}

static void pass_gate(worker *w) {
  zke_barrier *gate = NULL;
  int64_t end = zke_now(w->z) + chance(w, 100);
  must(w, zke_barrier_new(w->z, w->path, NULL, &gate));
  note(w, HISTORY_ENTERING, 0, 0);
  int rc = zke_barrier_wait(gate, end);
  note(w, rc == ZKE_OK ? HISTORY_PASSED : HISTORY_GAVE_UP, 0, 0);
  if (!was_late(w, rc, end)) must(w, rc);
  zke_barrier_free(gate);
}

static void do_gate(worker *w) {
  if (chance(w, 3))
    pass_gate(w);
  else
    set_gate(w);
}

/* Each addition adds 1, so no sum may come twice. */
static void do_counter(worker *w) {
  zke_counter *counter = NULL;
  int64_t sum = 0;
  must(w, zke_counter_new(w->z, w->path, NULL, &counter));
  for (int i = 0; i < 3; i++) {
    note(w, HISTORY_PUTTING, 0, 0);
    int rc = zke_counter_add_and_get(counter, 1, deadline(w), &sum, NULL);
    if (rc == ZKE_OK) note(w, HISTORY_GOT, sum, 0);
    must(w, rc);
  }
  zke_counter_free(counter);
}

static void do_semaphore(worker *w) {
  zke_semaphore_options o = {.size = sizeof o, .limit = PERMITS};
  zke_semaphore *sem = NULL;
  int permits = 1 + chance(w, PERMITS);
  must(w, zke_semaphore_new(w->z, w->path, &o, &sem));
  note(w, HISTORY_WANTED, 0, 0);
  int rc = chance(w, 8) ? zke_semaphore_acquire(sem, permits, deadline(w))
                        : zke_semaphore_try(sem, permits);
  if (judge(w, rc, zke_semaphore_token(sem), permits)) {
    linger(w);
    must(w, zke_semaphore_check(sem));
    note(w, HISTORY_LEAVING, 0, 0);
    if (chance(w, 4)) must(w, zke_semaphore_release(sem));
  }
  zke_semaphore_free(sem);
}

/* The same of all resources. */
static void note_all(worker *w, int event, int64_t number) {
  int16_t resource = w->resource;
  for (w->resource = 0; w->resource < RESOURCES; w->resource++)
    note(w, event, number, 1);
  w->resource = resource;
}

/* All of the locks; in any order. */
static void hold_all(worker *w) {
  char path[RESOURCES][sizeof w->path];
  zke_multilock_item items[RESOURCES];
  zke_multilock *all = NULL;
  int first = chance(w, RESOURCES);
  for (int i = 0; i < RESOURCES; i++) {
    snprintf(path[i], sizeof path[i], "/multilock/%d", (first + i) % RESOURCES);
    items[i] = (zke_multilock_item){path[i], ZKE_MULTILOCK_LOCK};
  }
  must(w, zke_multilock_new(w->z, items, RESOURCES, NULL, &all));
  note_all(w, HISTORY_WANTED, 0);
  int rc = chance(w, 8) ? zke_multilock_acquire(all, deadline(w))
                        : zke_multilock_try(all);
  if (rc == ZKE_OK) {
    note_all(w, HISTORY_TAKEN, zke_multilock_token(all));
    linger(w);
    must(w, zke_multilock_check(all));
    note_all(w, HISTORY_LEAVING, 0);
    if (chance(w, 4)) must(w, zke_multilock_release(all));
  } else {
    note_all(w, HISTORY_GAVE_UP, 0);
    if (rc != ZKE_OPERATIONTIMEOUT && rc != ZKE_HELD) must(w, rc);
  }
  zke_multilock_free(all);
}

static void do_multilock(worker *w) {
  if (chance(w, 2))
    hold_all(w);
  else
    do_lock(w);
}

/* Note when this process's run began, by the job's record. */
static void note_run(worker *w, const char *name) {
  zke_periodic_record *last = NULL;
  must(w, zke_periodic_get(w->z, "/periodic", name, &last));
  if (last) note(w, HISTORY_GOT, last->start_ms, 0);
  zke_free(last);
}

static void do_periodic(worker *w) {
  zke_periodic_options o = {.size = sizeof o, .period_ms = PERIOD_MS};
  zke_periodic *job = NULL;
  const char *name = strrchr(w->path, '/') + 1;
  must(w, zke_periodic_new(w->z, "/periodic", name, &o, &job));
  int rc = chance(w, 2) ? zke_periodic_acquire(job, deadline(w))
                        : zke_periodic_try(job);
  if (rc == ZKE_OK) {
    note(w, HISTORY_TAKEN, zke_periodic_token(job), 1);
    note_run(w, name);
    linger(w);
    note(w, HISTORY_LEAVING, 0, 0);
    must(w, zke_periodic_release(job, 0));
  } else if (rc != ZKE_LIMIT && rc != ZKE_HELD) {
    must(w, rc);
  }
  zke_periodic_free(job);
}

/* A binding that lost its reply while others changed the directory may be in
 * doubt.  Then it must not exist. */
static void must_be_unbound(worker *w, zke_names *names) {
  zke_binding *b = NULL;
  int rc = zke_names_lookup(names, "printer", &b);
  if (rc != ZKE_NONODE) must(w, rc);
  if (b && b->session == zke_session_id(w->z)) must(w, ZKE_DATAINCONSISTENCY);
  zke_free(b);
}

/* Bind a name for the session, and unbind it. */
static void do_names(worker *w) {
  zke_names *names = NULL;
  int64_t token = 0;
  must(w, zke_names_new(w->z, w->path, NULL, &names));
  int rc = zke_names_bind(names, "printer", &w->who, sizeof w->who, 1,
                          deadline(w), &token);
  if (rc == ZKE_CONNECTIONLOSS) {
    must_be_unbound(w, names);
    rc = ZKE_OK;
  } else if (rc == ZKE_OK) {
    note(w, HISTORY_TAKEN, token, 1);
    linger(w);
    note(w, HISTORY_LEAVING, 0, 0);
    rc = zke_names_unbind(names, "printer", token, deadline(w));
  }
  if (rc != ZKE_HELD) must(w, rc);
  zke_names_free(names);
}

static void do_persistent_node(worker *w) {
  char path[80];
  zke_persistent_node *node = NULL;
  snprintf(path, sizeof path, "%s/status", w->path);
  must(w, zke_persistent_node_new(w->z, path, NULL, 0, NULL, &node));
  note(w, HISTORY_WANTED, 0, 0);
  int rc = zke_persistent_node_acquire(node, deadline(w));
  if (judge(w, rc, zke_persistent_node_token(node), 1)) {
    linger(w);
    note(w, HISTORY_LEAVING, 0, 0);
    must(w, zke_persistent_node_release(node));
  }
  zke_persistent_node_free(node);
}

/* Is a member in the list? */
static bool is_member(const zke_party_list *list, const char *name) {
  for (int i = 0; i < list->count; i++) {
    if (strcmp(list->data[i].name, name) == 0) return true;
  }
  return false;
}

/* A member that has joined is in the list until it leaves. */
static void do_group(worker *w) {
  zke_group *group = NULL;
  zke_party_list *list = NULL;
  char *self = NULL;
  must(w, zke_group_new(w->z, w->path, NULL, &group));
  must(w, zke_group_join(group, NULL, 0, deadline(w)));
  must(w, zke_group_self(group, &self));
  if (chance(w, 2)) must(w, zke_group_wait(group, 1, deadline(w)));
  must(w, zke_group_list(group, &list));
  if (self && list && is_member(list, self))
    note(w, HISTORY_PASSED, list->count, 0);
  else
    must(w, ZKE_DATAINCONSISTENCY);
  must(w, zke_group_leave(group));
  zke_free(self);
  zke_free(list);
  zke_group_free(group);
}

/* Both values change together; the reply may be lost. */
static void set_both(worker *w) {
  char path[2][80];
  zke_op ops[2];
  int64_t number = (int64_t)w->who << 32 | ++w->items;
  for (int i = 0; i < 2; i++)
    snprintf(path[i], sizeof path[i], "%s/%c", w->path, 'a' + i);
  for (int i = 0; i < 2; i++)
    zke_op_set(&ops[i], path[i], &number, sizeof number, -1);
  int rc = zke_multi(w->z, ops, 2, NULL);
  if (rc == ZKE_NONODE) {
    for (int i = 0; i < 2; i++)
      zke_op_create(&ops[i], path[i], "12345678", 8, ZKE_OPEN_ACL,
                    ZKE_PERSISTENT);
    rc = zke_multi(w->z, ops, 2, NULL);
  }
  if (rc != ZKE_NODEEXISTS && rc != ZKE_CONNECTIONLOSS) must(w, rc);
}

/* So the cache must show one moment. */
static void do_config(worker *w) {
  zke_config *config = NULL;
  zke_config_tree *tree = NULL;
  must(w, zke_ensure_path(w->z, w->path, ZKE_PERSISTENT, deadline(w)));
  must(w, zke_config_new(w->z, w->path, NULL, &config));
  must(w, zke_config_start(config));
  for (int i = 0; i < 3; i++) {
    set_both(w);
    must(w, zke_dispatch(w->z, NULL));
    must(w, zke_config_list(config, "", &tree));
    const zke_config_node *at = tree ? tree->data : NULL;
    bool both = tree && tree->count == 3 && at[1].len == 8 && at[2].len == 8 &&
                memcmp(at[1].data, at[2].data, 8) == 0;
    must(w, both || (tree && tree->count < 2) ? ZKE_OK : ZKE_DATAINCONSISTENCY);
    if (both) note(w, HISTORY_PASSED, at[1].stat.mzxid, 0);
    zke_free(tree);
    tree = NULL;
  }
  zke_config_free(config);
}

/* ---- a partition: its items are the resources ---- */

static const char *const shards[RESOURCES] = {"0", "1"};

static void note_shard(worker *w, const char *item, int event, int64_t number) {
  w->resource = (int16_t)(item[0] - '0');
  note(w, event, number, 1);
}

static void hear_shard(zke_partition *p, int event, const char *item,
                       int64_t token, void *context) {
  worker *w = context;
  if (event == ZKE_PARTITION_ACQUIRED)
    note_shard(w, item, HISTORY_TAKEN, token);
  else
    note_shard(w, item, HISTORY_LEAVING, 0);
  if (event == ZKE_PARTITION_RELEASE) must(w, zke_partition_release(p, item));
}

static void do_partition(worker *w) {
  char name[20];
  zke_partition *p = NULL;
  snprintf(name, sizeof name, "w%d", w->who);
  zke_partition_options o = {
      .size = sizeof o, .name = name, .listener = hear_shard, .context = w};
  must(w, zke_partition_new(w->z, "/partition", shards, RESOURCES, &o, &p));
  must(w, zke_partition_start(p));
  for (int i = chance(w, 4); i > 0; i--) {
    int64_t end = zke_now(w->z) + chance(w, 40);
    int rc = zke_partition_wait(p, end);
    if (!was_late(w, rc, end)) must(w, rc);
    linger(w);
  }
  for (int i = 0; i < RESOURCES; i++)
    note_shard(w, shards[i], HISTORY_LEAVING, 0);
  zke_partition_free(p);
}

/* ---- transactions ----
 *
 * A transaction's payload is its number, which decides everything else: its
 * form and how each site votes, whichever process acts for the site.  So its
 * outcome is known beforehand, except in the ephemeral form, where a death
 * aborts.  A process acts for a site while it holds the site's lock. */

static const char *const sites[SITES] = {"ann", "bob", "cat"};

static int form_of(int64_t number) {
  return (int)(number & 3); /* each of the four */
}

static int vote_of(int64_t number, int site) {
  uint64_t mixed = (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15);
  return (mixed >> (40 + 4 * site)) % 8 ? ZKE_TWO_PHASE_COMMIT
                                        : ZKE_TWO_PHASE_ABORT;
}

static void note_decision(worker *w, int64_t number, int decision) {
  note(w, HISTORY_DECIDED, number, decision == ZKE_TWO_PHASE_COMMIT);
}

/* Wait a limited time for the decision, and acknowledge it. */
static void conclude(worker *w, zke_two_phase *t, int64_t number, int ms) {
  int decision = 0;
  int64_t end = zke_now(w->z) + ms;
  int rc = zke_two_phase_wait(t, end, &decision);
  if (rc == ZKE_OK) {
    note_decision(w, number, decision);
    must(w, zke_two_phase_ack(t));
  } else if (!was_late(w, rc, end)) {
    must(w, rc);
  }
}

static void coordinate(worker *w) {
  zke_two_phase *t = NULL;
  char name[40];
  int64_t number = (int64_t)w->who << 32 | ++w->items;
  zke_two_phase_options o = {.size = sizeof o, .form = form_of(number)};
  snprintf(name, sizeof name, "t%lld", (long long)number);
  must(w, zke_two_phase_begin(w->z, w->path, name, &number, sizeof number,
                              sites, SITES, &o, &t));
  if (t) conclude(w, t, number, chance(w, 50));
  zke_two_phase_free(t);
}

/* A transaction that was pending a moment ago may be over. */
static zke_two_phase *take_part(worker *w, const char *name, int site) {
  zke_two_phase *t = NULL;
  int64_t number = strtoll(name + 1, NULL, 10);
  int vote = vote_of(number, site);
  int rc = zke_two_phase_open(w->z, w->path, name, sites[site], NULL, &t);
  if (rc != ZKE_NONODE) must(w, rc);
  if (!t) return NULL;
  note(w, HISTORY_VOTING, number, vote == ZKE_TWO_PHASE_COMMIT);
  must(w, zke_two_phase_vote(t, vote));
  return t;
}

static zke_lock *lock_of(worker *w, int site) {
  zke_lock *lock = NULL;
  char path[64];
  snprintf(path, sizeof path, "/sites/%d%s", w->resource, sites[site]);
  must(w, zke_lock_new(w->z, path, NULL, &lock));
  return lock;
}

static zke_strings *pending(worker *w, const char *site) {
  zke_strings *names = NULL;
  must(w, zke_two_phase_pending(w->z, w->path, site, NULL, NULL, &names));
  return names;
}

/* Do everything that a site has to do, unless another process acts for it. */
static void serve(worker *w, int site) {
  zke_lock *lock = lock_of(w, site);
  if (zke_lock_try(lock) == ZKE_OK) {
    zke_strings *names = pending(w, sites[site]);
    for (int i = 0; names && i < names->count; i++) {
      zke_two_phase *t = take_part(w, names->data[i], site);
      int64_t number = strtoll(names->data[i] + 1, NULL, 10);
      if (t) conclude(w, t, number, chance(w, 50));
      zke_two_phase_free(t);
    }
    zke_free(names);
  }
  zke_lock_free(lock);
}

static int count_pending(worker *w) {
  zke_strings *names = pending(w, NULL);
  int count = names ? names->count : 0;
  zke_free(names);
  return count;
}

static void do_two_phase(worker *w) {
  if (chance(w, 4) == 0 && count_pending(w) < OPEN)
    coordinate(w);
  else
    serve(w, chance(w, SITES));
}

/* ---- a fence ----
 *
 * Each resource has a table, fenced by a lock that is also stolen now and then.
 * Its holders add rows, and keep writing when they have lost the lock.  A row
 * has its own number, and the writer's token in two columns.  The fence is on
 * one of these, and changes between them.  So the tokens never fall from row to
 * row. */

enum { FENCED = 1 }; /* no result of the API: the fence has refused the row */

static bool fence_said(const char *sentence) {
  return strstr(sentence, "fenced: that token does not hold ") != NULL;
}

/* A zke_sql_fn: run an SQL text. */
static int run_sql(sqlite3 *db, int64_t zxid, void *sql) {
  (void)zxid;
  return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* In the engine's transaction. */
static int write_by_multi(worker *w, char *sql) {
  zke_op op;
  zke_op_sql(&op, run_sql, sql);
  int rc = zke_multi(w->z, &op, 1, NULL);
  if (rc <= 0) return rc;
  return fence_said(zke_errmsg()) ? FENCED : ZKE_SQL;
}

/* On the program's own connection. */
static int write_by_own(worker *w, char *sql) {
  int rc = zke_sql_begin(w->z, w->db);
  if (rc != ZKE_OK) return rc;
  if (run_sql(w->db, 0, sql) == SQLITE_OK) return zke_sql_commit(w->z, w->db);
  rc = fence_said(sqlite3_errmsg(w->db)) ? FENCED : ZKE_SQL;
  must(w, zke_sql_rollback(w->z, w->db));
  return rc;
}

/* Add a row with a token; ZKE_OK, FENCED, or ZKE_CONNECTIONLOSS: unknown. */
static int add_row(worker *w, int64_t token) {
  char sql[160];
  int64_t number = (int64_t)w->who << 32 | ++w->items;
  snprintf(sql, sizeof sql,
           "INSERT INTO fenced_%d(number,one,two) VALUES(%lld,%lld,%lld)",
           w->resource, (long long)number, (long long)token, (long long)token);
  note(w, HISTORY_PUTTING, number, 0);
  int rc = (chance(w, 2) ? write_by_multi : write_by_own)(w, sql);
  if (rc == ZKE_OK) note(w, HISTORY_PUT, number, 0);
  if (rc == FENCED) note(w, HISTORY_GAVE_UP, number, 0);
  if (rc < 0 && rc != ZKE_CONNECTIONLOSS) must(w, rc);
  return rc;
}

/* The table has a whole fence: both triggers. */
static void must_be_fenced(worker *w) {
  char sql[160];
  sqlite3_stmt *st = NULL;
  snprintf(sql, sizeof sql,
           "SELECT count(*) FROM sqlite_schema WHERE type='trigger' AND "
           "tbl_name='fenced_%d' AND name GLOB 'fence_zke_*'",
           w->resource);
  bool whole = sqlite3_prepare_v2(w->db, sql, -1, &st, NULL) == SQLITE_OK &&
               sqlite3_step(st) == SQLITE_ROW &&
               sqlite3_column_int64(st, 0) == 2;
  sqlite3_finalize(st);
  if (!whole) must(w, ZKE_DATAINCONSISTENCY);
}

/* Fence the table, by either column; false: there is no table yet.  A fence by
 * the other column may stay.  If others made that one after this call lost its
 * reply, nobody can tell whether this fence was there before it.  In each case
 * the table is fenced. */
static bool set_fence(worker *w) {
  char table[20];
  zke_fence_options o = {.size = sizeof o,
                         .column = chance(w, 2) ? "one" : "two",
                         .replace = chance(w, 8) == 0};
  snprintf(table, sizeof table, "fenced_%d", w->resource);
  int rc = zke_fence_set(w->z, table, w->path, &o);
  if (rc == ZKE_BADARGUMENTS) return false;
  if (rc != ZKE_NODEEXISTS && rc != ZKE_CONNECTIONLOSS) must(w, rc);
  must_be_fenced(w);
  return true;
}

/* Open the connection, and make the table and the fence if needed. */
static void prepare_fence(worker *w) {
  char sql[160];
  snprintf(sql, sizeof sql,
           "CREATE TABLE IF NOT EXISTS fenced_%d(id INTEGER PRIMARY KEY,"
           "number INTEGER UNIQUE,one INTEGER,two INTEGER)",
           w->resource);
  if (!w->db) {
    if (sqlite3_open(database, &w->db) != SQLITE_OK) abort();
    must(w, zke_sql_adopt(w->z, w->db));
  }
  while (!set_fence(w)) {
    int rc = write_by_multi(w, sql);
    if (rc != ZKE_CONNECTIONLOSS) must(w, rc);
  }
}

/* A write is refused only if its writer has lost the lock. */
static void write_as_holder(worker *w, zke_lock *lock, int64_t token) {
  for (int i = chance(w, 3); i >= 0; i--) {
    if (add_row(w, token) == FENCED && zke_lock_check(lock) == ZKE_OK)
      must(w, ZKE_DATAINCONSISTENCY);
    linger(w);
  }
}

static void do_fence(worker *w) {
  zke_lock *lock = NULL;
  prepare_fence(w);
  must(w, zke_lock_new(w->z, w->path, NULL, &lock));
  int rc =
      chance(w, 4) ? zke_lock_acquire(lock, deadline(w)) : zke_lock_steal(lock);
  int64_t token = zke_lock_token(lock);
  if (rc == ZKE_OK) {
    note(w, HISTORY_TAKEN, token, 1);
    write_as_holder(w, lock, token);
    note(w, HISTORY_LEAVING, 0, 0);
    may_lose(w, zke_lock_release(lock));
    if (add_row(w, token) == ZKE_OK) must(w, ZKE_DATAINCONSISTENCY);
  } else if (rc != ZKE_OPERATIONTIMEOUT) {
    may_lose(w, rc); /* stolen while it was being acquired */
  }
  zke_lock_free(lock);
}

/* ---- the checks of each recipe ---- */

static bool complain_of(history_case *c, const char *text, int64_t number) {
  if (!c->problem[0])
    snprintf(c->problem, sizeof c->problem, "%s (%lld)", text,
             (long long)number);
  return false;
}

static bool check_permits(history_case *c) {
  return history_exclusive(c, PERMITS) && history_progress(c, PROGRESS_NS);
}

/* When a set gate ended: a process began to remove it, or its setter died.  A
 * death is recorded before the signal, so the setter may still append a record
 * after it. */
static int64_t gate_end(const history *h, int at) {
  const history_record *set = &h->at[at];
  for (int i = 0; i < h->count; i++) {
    const history_record *r = &h->at[i];
    bool removes = r->event == HISTORY_LEAVING && r->number == set->number;
    bool dies = r->event == HISTORY_DYING && r->who == set->who;
    if (removes || dies) return r->when;
  }
  return INT64_MAX;
}

/* No party came after a barrier was set and passed it before it was removed. */
static bool nobody_slipped(history_case *c, int at) {
  const history *h = c->h;
  int64_t end = gate_end(h, at), *came = NULL;
  bool good = true;
  came = calloc((size_t)people + 1, sizeof *came);
  if (!came) abort();
  for (int i = at + 1; i < h->count && h->at[i].when < end; i++) {
    const history_record *r = &h->at[i];
    if (r->event == HISTORY_ENTERING) came[r->who] = r->when;
    if (r->event == HISTORY_PASSED && came[r->who])
      good = complain_of(c, "passed while a barrier stood", r->who);
    if (r->event == HISTORY_GAVE_UP) came[r->who] = 0;
  }
  free(came);
  return good;
}

static bool check_gate(history_case *c) {
  bool good = true;
  for (int i = 0; i < c->h->count && good; i++) {
    if (c->h->at[i].event == HISTORY_TAKEN) good = nobody_slipped(c, i);
  }
  return good;
}

static int by_value(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* No sum was returned twice.  The final value is the number of the sums
 * returned, plus at most the additions that dead processes had begun. */
static bool check_counter(history_case *c) {
  int64_t begun = 0, told = 0, last = -1;
  int64_t *sums = calloc((size_t)c->h->count + 1, sizeof *sums);
  if (!sums) abort();
  for (int i = 0; i < c->h->count; i++) {
    const history_record *r = &c->h->at[i];
    begun += r->event == HISTORY_PUTTING;
    if (r->event == HISTORY_GOT) sums[told++] = r->number;
    if (r->event == HISTORY_LEFT) last = r->number;
  }
  qsort(sums, (size_t)told, sizeof *sums, by_value);
  bool good = true;
  for (int64_t i = 1; i < told && good; i++) {
    if (sums[i] == sums[i - 1])
      good = complain_of(c, "two additions gave the same sum", sums[i]);
  }
  if (good && last >= 0 && (last < told || last > begun))
    good = complain_of(c, "additions were lost or made twice", last);
  free(sums);
  return good;
}

/* The sorted numbers of all records of a kind. */
static int64_t *sorted_numbers(const history *h, int event, size_t *count) {
  int64_t *numbers = calloc((size_t)h->count + 1, sizeof *numbers);
  if (!numbers) abort();
  *count = 0;
  for (int i = 0; i < h->count; i++) {
    if (h->at[i].event == event) numbers[(*count)++] = h->at[i].number;
  }
  qsort(numbers, *count, sizeof *numbers, by_value);
  return numbers;
}

/* Look up each record of one kind among those of another: it must be there, or
 * it must not. */
static bool all_are_in(history_case *c, int event, int other, bool there,
                       const char *problem) {
  size_t count;
  int64_t *numbers = sorted_numbers(c->h, other, &count);
  bool good = true;
  for (int i = 0; i < c->h->count && good; i++) {
    const history_record *r = &c->h->at[i];
    if (r->event != event) continue;
    bool found = bsearch(&r->number, numbers, count, sizeof *numbers, by_value);
    if (found != there) good = complain_of(c, problem, r->number);
  }
  free(numbers);
  return good;
}

/* The table has the acknowledged rows, and no refused ones. */
static bool check_fence(history_case *c) {
  return all_are_in(c, HISTORY_PUT, HISTORY_LEFT, true, "a row was lost") &&
         all_are_in(c, HISTORY_GAVE_UP, HISTORY_LEFT, false,
                    "a row is there that was refused") &&
         all_are_in(c, HISTORY_LEFT, HISTORY_PUTTING, true,
                    "a row that nobody wrote");
}

/* The decision follows from the votes that the sites must give. */
static bool check_outcome(history_case *c, const history_record *r) {
  bool all = true;
  for (int site = 0; site < SITES; site++) {
    if (vote_of(r->number, site) == ZKE_TWO_PHASE_ABORT) all = false;
  }
  if (r->weight && !all)
    return complain_of(c, "committed in spite of a vote to abort", r->number);
  if (!r->weight && all && !(form_of(r->number) & ZKE_TWO_PHASE_EPHEMERAL))
    return complain_of(c, "aborted though nobody wanted that", r->number);
  return true;
}

static bool check_two_phase(history_case *c) {
  for (int i = 0; i < c->h->count; i++) {
    const history_record *r = &c->h->at[i];
    if (r->event == HISTORY_LEFT)
      return complain_of(c, "transactions without an end", r->number);
    if (r->event == HISTORY_DECIDED && !check_outcome(c, r)) return false;
  }
  return history_decisions(c, SITES);
}

/* Runs are at least a period apart, whichever process dies in them. */
static bool check_periodic(history_case *c) {
  int64_t last = INT64_MIN;
  for (int i = 0; i < c->h->count; i++) {
    const history_record *r = &c->h->at[i];
    if (r->event != HISTORY_GOT) continue;
    if (last != INT64_MIN && r->number - last < PERIOD_MS)
      return complain_of(c, "two runs in a period", r->number);
    last = r->number;
  }
  return history_exclusive(c, 1);
}

static bool check_alone(history_case *c) { return history_exclusive(c, 1); }

/* It checks itself. */
static bool check_nothing(history_case *c) { return !c->problem[0]; }

static bool check_one_holder(history_case *c) {
  return history_exclusive(c, 1) && history_progress(c, PROGRESS_NS);
}

static bool check_readers(history_case *c) {
  return history_exclusive(c, READERS) && history_progress(c, PROGRESS_NS);
}

static bool check_queue(history_case *c) { return history_queue(c, false); }
static bool check_claims(history_case *c) { return history_queue(c, true); }
static bool check_barrier(history_case *c) {
  return history_barrier(c, PARTIES);
}

/* ---- the table ---- */

/* What is left of a queue. */
static void empty_queue(worker *w) {
  zke_queue *queue = NULL;
  zke_queue_item *item;
  must(w, zke_queue_new(w->z, w->path, NULL, &queue));
  while (zke_queue_take(queue, zke_now(w->z) + 300, &item) == ZKE_OK) {
    note(w, HISTORY_LEFT, number_of(item), 0);
    zke_free(item);
  }
  zke_queue_free(queue);
}

/* The counter's final value. */
static void read_counter(worker *w) {
  zke_counter *counter = NULL;
  int64_t sum = 0;
  must(w, zke_counter_new(w->z, w->path, NULL, &counter));
  must(w, zke_counter_get(counter, &sum, NULL));
  note(w, HISTORY_LEFT, sum, 0);
  zke_counter_free(counter);
}

/* Check the fence once more, then read the rows of its table in order. */
static void read_fenced(worker *w) {
  char sql[80];
  sqlite3_stmt *st = NULL;
  int64_t last = 0;
  do_fence(w);
  snprintf(sql, sizeof sql, "SELECT number,one,two FROM fenced_%d ORDER BY id",
           w->resource);
  if (sqlite3_prepare_v2(w->db, sql, -1, &st, NULL) != SQLITE_OK) abort();
  while (sqlite3_step(st) == SQLITE_ROW) {
    int64_t one = sqlite3_column_int64(st, 1),
            two = sqlite3_column_int64(st, 2);
    note(w, HISTORY_LEFT, sqlite3_column_int64(st, 0), 0);
    if (one != two || one < last) must(w, ZKE_DATAINCONSISTENCY);
    last = one;
  }
  sqlite3_finalize(st);
}

/* All sites of a transaction return. */
static void end_transaction(worker *w, const char *name) {
  zke_two_phase *t[SITES];
  int64_t number = strtoll(name + 1, NULL, 10);
  for (int i = 0; i < SITES; i++) t[i] = take_part(w, name, i);
  for (int i = 0; i < SITES; i++) {
    if (t[i]) conclude(w, t[i], number, WAIT_MS);
  }
  for (int i = 0; i < SITES; i++) zke_two_phase_free(t[i]);
}

/* The sites' locks are free once the deaths of their last holders have been
 * noticed. */
static void end_transactions(worker *w) {
  zke_lock *locks[SITES];
  for (int i = 0; i < SITES; i++) {
    locks[i] = lock_of(w, i);
    must(w, zke_lock_acquire(locks[i], deadline(w)));
  }
  zke_strings *names = pending(w, NULL);
  for (int i = 0; names && i < names->count; i++)
    end_transaction(w, names->data[i]);
  zke_free(names);
  int left = count_pending(w);
  if (left) note(w, HISTORY_LEFT, left, 0);
  for (int i = 0; i < SITES; i++) zke_lock_free(locks[i]);
}

typedef struct torture_recipe {
  const char *name; /* of its directory, too */
  void (*round)(worker *w);
  bool (*check)(history_case *c);
  void (*end)(worker *w); /* the final inspection; NULL: one more round */
} torture_recipe;

static const torture_recipe recipes[] = {
    {"lock", do_lock, check_one_holder, NULL},
    {"rwlock", do_rwlock, check_readers, NULL},
    {"multilock", do_multilock, check_one_holder, NULL},
    {"semaphore", do_semaphore, check_permits, NULL},
    {"election", do_election, check_one_holder, NULL},
    {"queue", do_queue, check_queue, empty_queue},
    {"claims", do_claims, check_claims, empty_queue},
    {"barrier", do_gate, check_gate, NULL},
    {"double_barrier", do_barrier, check_barrier, NULL},
    {"meet", do_meeting, check_barrier, NULL},
    {"counter", do_counter, check_counter, read_counter},
    {"two_phase", do_two_phase, check_two_phase, end_transactions},
    {"periodic", do_periodic, check_periodic, NULL},
    {"partition", do_partition, check_alone, NULL},
    {"names", do_names, check_alone, NULL},
    {"persistent_node", do_persistent_node, check_one_holder, NULL},
    {"group", do_group, check_nothing, NULL},
    {"config", do_config, check_nothing, NULL},
    {"fence", do_fence, check_fence, read_fenced},
};

enum { RECIPES = sizeof recipes / sizeof *recipes };

/* Only these; NULL: all. */
static const char *wanted(void) {
  const char *only = getenv("RECIPE");
  return only && only[0] ? only : NULL;
}

static bool is_wanted(int recipe) {
  return !wanted() || strstr(recipes[recipe].name, wanted());
}

/* ---- workers as processes ---- */

static volatile int *stop; /* shared */

/* The recipes take turns, a few at a time. */
static int choose_recipe(worker *w) {
  int64_t turn = history_now() / FASHION_NS;
  if (wanted()) return chance(w, RECIPES);
  return (int)((turn + chance(w, FASHION)) % RECIPES);
}

static void choose_path(worker *w, int recipe, int resource) {
  w->recipe = (int16_t)recipe;
  w->resource = (int16_t)resource;
  snprintf(w->path, sizeof w->path, "/%s/%d", recipes[recipe].name, resource);
}

/* The disk does not fail here, so the engine has no errors to report.  Then the
 * only lost replies are those that lose_a_reply() asks for. */
static void hear_log(void *context, int level, const char *text) {
  if (level != ZKE_LOG_ERROR) return;
  note(context, HISTORY_FAILED, ZKE_SYSTEMERROR, 0);
  fprintf(stderr, "the engine: %s\n", text);
}

static void open_worker(worker *w) {
  zke_options o = {.size = sizeof o, .log = hear_log, .log_context = w};
  w->history = open(history_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (w->history < 0) abort();
  must(w, zke_open(database, &o, &w->z));
  if (!w->z) _exit(1);
}

/* Sometimes make one of the next changes lose its reply. */
static void lose_a_reply(worker *w) {
  if (chance(w, 8) == 0)
    must(w, zke_test_fail(w->z, 1 + chance(w, 2), chance(w, 4)));
}

static void work(int32_t who, unsigned seed) {
  worker w = {.who = who, .random = seed * 2654435761u + (unsigned)who};
  open_worker(&w);
  while (!*stop) {
    int recipe = choose_recipe(&w);
    if (!is_wanted(recipe)) continue;
    choose_path(&w, recipe, chance(&w, RESOURCES));
    lose_a_reply(&w);
    recipes[recipe].round(&w);
  }
  sqlite3_close(w.db);
  must(&w, zke_close(w.z));
  _exit(0);
}

typedef struct slot {
  pid_t pid;
  int32_t who;
  bool stopped;
  int64_t go_on; /* ns: when */
} slot;

static slot slots[WORKERS];
static worker killer = {.recipe = -1}; /* for its notes */

static void note_about(const slot *s, int event) {
  killer.who = s->who;
  note(&killer, event, 0, 0);
}

static void start(slot *s, unsigned seed) {
  *s = (slot){.who = ++people};
  s->pid = program_fork();
  if (s->pid == 0) work(s->who, seed);
}

static void kill_one(slot *s) {
  note_about(s, HISTORY_DYING);
  program_kill(s->pid);
}

static void stop_one(slot *s, int64_t ns) {
  if (s->stopped) return;
  note_about(s, HISTORY_STOPPED);
  kill(s->pid, SIGSTOP);
  s->stopped = true;
  s->go_on = history_now() + ns;
}

static void continue_one(slot *s) {
  if (!s->stopped) return;
  kill(s->pid, SIGCONT);
  note_about(s, HISTORY_CONTINUED);
  s->stopped = false;
}

/* Did a process end by itself?  Then something is wrong. */
static bool has_ended(slot *s) {
  int status;
  if (waitpid(s->pid, &status, WNOHANG) != s->pid) return false;
  fprintf(stderr, "process %d ended by itself: %x\n", s->who, (unsigned)status);
  return true;
}

/* Stop, continue and kill until there are enough kills, or time is up.  Returns
 * the kills, or -1. */
static long torment(unsigned seed, long kills) {
  unsigned random = seed;
  long done = 0, seconds = program_setting("SECONDS", 0);
  int64_t began = history_now();
  for (int i = 0; i < WORKERS; i++) start(&slots[i], seed);
  while (done < kills) {
    poll(NULL, 0, rand_r(&random) % 8);
    int64_t now = history_now();
    if (seconds && now - began > seconds * INT64_C(1000000000)) break;
    for (int i = 0; i < WORKERS; i++) {
      if (has_ended(&slots[i])) return -1;
      if (slots[i].stopped && slots[i].go_on < now) continue_one(&slots[i]);
    }
    slot *s = &slots[rand_r(&random) % WORKERS];
    if (rand_r(&random) % 3 == 0) {
      stop_one(s, rand_r(&random) % 30 * INT64_C(1000000));
    } else {
      kill_one(s);
      start(s, seed);
      done++;
    }
  }
  return done;
}

/* Let all processes end by themselves.  False: one does not. */
static bool settle(void) {
  int64_t end = program_ms() + SETTLE_MS;
  bool good = true;
  *stop = 1;
  for (int i = 0; i < WORKERS; i++) continue_one(&slots[i]);
  for (int i = 0; i < WORKERS; i++) {
    if (program_await(slots[i].pid, end, NULL)) continue;
    fprintf(stderr, "process %d does not end\n", slots[i].who);
    good = false;
    kill_one(&slots[i]);
  }
  return good;
}

/* ---- the end ---- */

static void complain(void *context, const char *sentence) {
  (void)context;
  fprintf(stderr, "zke_check: %s\n", sentence);
}

/* In a separate process, so the next run may fork. */
static void inspect(void) {
  worker w = {.who = ++people};
  open_worker(&w);
  for (int i = 0; i < RECIPES; i++) {
    for (int j = 0; j < RESOURCES && is_wanted(i); j++) {
      choose_path(&w, i, j);
      if (recipes[i].end)
        recipes[i].end(&w);
      else
        recipes[i].round(&w);
    }
  }
  sqlite3_close(w.db);
  must(&w, zke_check(w.z, complain, NULL));
  must(&w, zke_close(w.z));
}

/* The records that concern one path, and all deaths and stops. */
static history part_of(const history *h, int recipe, int resource) {
  history part = {0};
  for (int i = 0; i < h->count; i++) {
    const history_record *r = &h->at[i];
    if (r->recipe < 0 || (r->recipe == recipe && r->resource == resource))
      history_add(&part, *r);
  }
  return part;
}

static bool check_one(const history *h, int recipe, int resource) {
  history part = part_of(h, recipe, resource);
  history_case c = {.h = &part, .recipe = recipe, .resource = resource};
  bool good = recipes[recipe].check(&c) && history_no_failure(&c);
  if (!good) printf("%s/%d: %s\n", recipes[recipe].name, resource, c.problem);
  history_free(&part);
  return good;
}

/* Print how much was done with each, so a run that did little is noticed. */
static void count_done(const history *h) {
  for (int i = 0; i < RECIPES; i++) {
    int done = 0;
    for (int j = 0; j < h->count; j++) {
      int event = h->at[j].event;
      done += h->at[j].recipe == i &&
              (event == HISTORY_TAKEN || event == HISTORY_GOT ||
               event == HISTORY_ACKED || event == HISTORY_PASSED ||
               event == HISTORY_DECIDED);
    }
    printf("%s%s %d", i ? ", " : "", recipes[i].name, done);
  }
  printf("\n");
}

static bool check_all(void) {
  history h;
  bool good = history_read(history_path, &h);
  for (int i = 0; i < RECIPES; i++) {
    for (int j = 0; j < RESOURCES; j++) good &= check_one(&h, i, j);
  }
  count_done(&h);
  printf("%d records by %d processes\n", h.count, people);
  history_free(&h);
  return good;
}

static void choose_directory(const char *given) {
  program_directory(directory, sizeof directory, "zke-recipes", given, true);
  snprintf(database, sizeof database, "%s/db", directory);
  snprintf(history_path, sizeof history_path, "%s/history", directory);
}

int main(int argc, char **argv) {
  unsigned seed = program_seed();
  choose_directory(argc > 1 ? argv[1] : "/tmp");
  stop = program_share(sizeof *stop);
  killer.history = open(history_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  long kills = torment(seed, program_setting("KILLS", 2000));
  bool good = kills >= 0;
  if (!settle()) good = false;
  inspect();
  if (!check_all()) good = false;
  printf("recipe_torture: %ld kills, %s\n", kills, good ? "good" : "BAD");
  program_clean_up(directory, good);
  return good ? 0 : 1;
}
