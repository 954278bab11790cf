/* uses.c - see uses.h */
#include "test/recipes/uses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/barrier.h"
#include "recipes/config.h"
#include "recipes/counter.h"
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
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "recipes/two_phase.h"

/* What the processes of a schedule share. */
static struct {
  bool open;
  int came, left;
  int tries, done;
  int votes, refusals, committed, aborted;
  int prepared[2], settled[2]; /* calls of each site that were told that */
  int victims;                 /* that were told of a deadlock */
  int64_t token;               /* of the last holder */
  int works;                   /* with it: the version of /work then */
  int64_t run_ms;              /* when the job began last, or an item is due */
  int acks;                    /* of a transaction */
  int64_t heirs, heir; /* sessions: the one that can be named; the named one */
  bool heir_led;
} shared;

/* Has a deadline ended the call?  If the last reply was lost too, the call
 * reports the loss. */
static bool was_late(int rc) {
  return rc == ZKE_OPERATIONTIMEOUT || rc == ZKE_CONNECTIONLOSS;
}

void *uses_shared(size_t *size_out) {
  *size_out = sizeof shared;
  return &shared;
}

/* Has a call succeeded?  It may fail only if the driver can make it fail. */
static bool went(zke *z, int rc) {
  if (rc == ZKE_OK) return true;
  if (!use_may_fail(z, rc))
    zke_lab_fail("%s: %s", zke_error_name(rc), zke_errmsg());
  return false;
}

static void stay(const char *section, int limit) {
  zke_lab_enter(section, limit);
  zke_lab_leave(section);
}

/* ---- a word from one process to another ---- */

static bool tell_seen(zke *z) {
  int rc = ZKE_CONNECTIONLOSS;
  while (rc == ZKE_CONNECTIONLOSS)
    rc = zke_create(z, "/seen", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                    NULL);
  return rc == ZKE_NODEEXISTS || went(z, rc);
}

static void wake_up(zke *z, int type, int state, const char *path,
                    void *context) {
  (void)z;
  (void)type;
  (void)state;
  (void)path;
  (void)context;
}

/* Sleep until anything has happened; false: it failed. */
static bool sleep_on(zke *z) { return went(z, zke_wait(z, ZKE_FOREVER)); }

/* Sleep until a znode exists; false: that failed. */
static bool await_node(zke *z, const char *path) {
  int rc;
  do rc = zke_exists(z, path, wake_up, NULL, NULL);
  while (rc == ZKE_NONODE && sleep_on(z));
  if (rc != ZKE_NONODE) went(z, rc);
  zke_forget(z, wake_up, NULL);
  return rc == ZKE_OK;
}

static bool await_seen(zke *z) { return await_node(z, "/seen"); }

/* ---- lines ---- */

static void use_lock(zke *z, void *path) {
  zke_lock *lock = NULL;
  if (!went(z, zke_lock_new(z, path, NULL, &lock))) return;
  if (went(z, zke_lock_acquire(lock, ZKE_FOREVER))) {
    stay(path, 1);
    went(z, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

static void use_lock_often(zke *z, void *path) {
  for (int i = 0; i < 3; i++) use_lock(z, path);
}

/* One child is no contender. */
static void prepare_lock(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/a", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  zke_create(z, "/a/foreign", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
             NULL);
}

static void use_lock_until(zke *z, void *path) {
  zke_lock *lock = NULL;
  if (!went(z, zke_lock_new(z, path, NULL, &lock))) return;
  int rc = zke_lock_acquire(lock, zke_now(z) + 1000);
  if (!was_late(rc) && went(z, rc)) {
    stay(path, 1);
    went(z, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

/* The list of parties has this holder as the only one. */
static void find_in_list(zke *z, zke_lock *lock, const char *path) {
  zke_party_list *list = NULL;
  int held = 0;
  if (!went(z, zke_lock_parties(z, path, &list))) return;
  for (int i = 0; i < list->count; i++) held += list->data[i].held;
  bool own = held == 1 && list->data[0].held &&
             list->data[0].session == zke_session_id(z);
  zke_free(list);
  if (zke_lock_check(lock) == ZKE_OK) zke_lab_assert(own);
}

/* A lock acquired twice is held until its second release, and each holder's
 * token is greater than the earlier ones. */
static void use_lock_twice(zke *z, void *path) {
  zke_lock_options o = ZKE_INIT(zke_lock_options);
  zke_lock *lock = NULL;
  o.reentrant = 1;
  if (!went(z, zke_lock_new(z, path, &o, &lock))) return;
  if (went(z, zke_lock_acquire(lock, ZKE_FOREVER))) {
    zke_lab_enter(path, 1);
    bool again = went(z, zke_lock_acquire(lock, ZKE_FOREVER));
    if (again && went(z, zke_lock_release(lock)) &&
        zke_lock_check(lock) == ZKE_OK) {
      zke_lab_assert(zke_lock_token(lock) > shared.token);
      shared.token = zke_lock_token(lock);
      find_in_list(z, lock, path);
    }
    zke_lab_leave(path);
    went(z, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

/* Ask for the second lock while holding the first.  Two processes that do so
 * crosswise wait for each other, and one of them is told. */
static void take_both(zke *z, const char *first, const char *second) {
  zke_lock *one = NULL, *other = NULL;
  int rc = zke_lock_new(z, first, NULL, &one);
  if (rc == ZKE_OK) rc = zke_lock_new(z, second, NULL, &other);
  if (rc == ZKE_OK) rc = zke_lock_acquire(one, ZKE_FOREVER);
  if (rc == ZKE_OK) {
    rc = zke_lock_acquire(other, ZKE_FOREVER);
    if (rc == ZKE_OK) stay("both", 1);
  }
  shared.victims += rc == ZKE_DEADLOCK;
  zke_lab_assert(shared.victims <= 1);
  zke_lock_free(other);
  zke_lock_free(one);
  if (rc != ZKE_DEADLOCK) went(z, rc);
}

static void use_both(zke *z, void *first) {
  take_both(z, first, strcmp(first, "/a") == 0 ? "/b" : "/a");
}

static void use_both_at_once(zke *z, void *first) {
  const char *second = strcmp(first, "/a") == 0 ? "/b" : "/a";
  const zke_multilock_item items[] = {{first, ZKE_MULTILOCK_LOCK},
                                      {second, ZKE_MULTILOCK_LOCK}};
  zke_multilock *ml = NULL;
  if (!went(z, zke_multilock_new(z, items, 2, NULL, &ml))) return;
  if (went(z, zke_multilock_acquire(ml, ZKE_FOREVER))) {
    zke_lab_enter("/a", 1);
    stay("/b", 1);
    zke_lab_leave("/a");
    went(z, zke_multilock_release(ml));
  }
  zke_multilock_free(ml);
}

static void read_or_write(bool writes) {
  const char *section = writes ? "writes" : "reads";
  zke_lab_enter(section, writes ? 1 : ZKE_LAB_MOST);
  zke_lab_exclude(section, writes ? "reads" : "writes");
  zke_lab_yield();
  zke_lab_leave(section);
}

/* A writer's token is greater than the earlier ones. */
static void note_writer(zke_rwlock *rw) {
  zke_lab_assert(zke_rwlock_token(rw) > shared.token);
  shared.token = zke_rwlock_token(rw);
}

static void use_rwlock(zke *z, void *writes) {
  int mode = writes ? ZKE_RWLOCK_WRITE : ZKE_RWLOCK_READ;
  zke_rwlock *rw = NULL;
  if (!went(z, zke_rwlock_new(z, "/rwlock", NULL, &rw))) return;
  if (went(z, zke_rwlock_acquire(rw, mode, ZKE_FOREVER))) {
    if (writes && zke_rwlock_check(rw) == ZKE_OK) note_writer(rw);
    read_or_write(writes);
    went(z, zke_rwlock_release(rw));
  }
  zke_rwlock_free(rw);
}

static void downgrade(zke *z, void *arg) {
  zke_rwlock *rw = NULL;
  (void)arg;
  if (!went(z, zke_rwlock_new(z, "/rwlock", NULL, &rw))) return;
  if (went(z, zke_rwlock_acquire(rw, ZKE_RWLOCK_WRITE, ZKE_FOREVER))) {
    read_or_write(true);
    if (went(z, zke_rwlock_downgrade(rw))) read_or_write(false);
    went(z, zke_rwlock_release(rw));
  }
  zke_rwlock_free(rw);
}

static void use_semaphore(zke *z, void *all) {
  const char *section = all ? "has all" : "has one";
  zke_semaphore_options o = ZKE_INIT(zke_semaphore_options);
  zke_semaphore *sem = NULL;
  o.limit = 2;
  if (!went(z, zke_semaphore_new(z, "/sem", &o, &sem))) return;
  if (went(z, zke_semaphore_acquire(sem, all ? 2 : 1, ZKE_FOREVER))) {
    zke_lab_enter(section, all ? 1 : 2);
    zke_lab_exclude(section, all ? "has one" : "has all");
    zke_lab_leave(section);
    went(z, zke_semaphore_release(sem));
  }
  zke_semaphore_free(sem);
}

static void use_election(zke *z, void *arg) {
  zke_election *e = NULL;
  (void)arg;
  if (!went(z, zke_election_new(z, "/election", NULL, &e))) return;
  if (went(z, zke_election_lead(e, ZKE_FOREVER))) {
    zke_lab_enter("leads", 1);
    went(z, zke_election_ready(e));
    zke_lab_leave("leads");
    went(z, zke_election_resign(e));
  }
  zke_election_free(e);
}

/* Leads until the observer has seen it.  If it dies, another process leads. */
static void lead_until_seen(zke *z, void *arg) {
  zke_election *e = NULL;
  (void)arg;
  zke_lab_spare();
  if (!went(z, zke_election_new(z, "/election", NULL, &e))) return;
  if (went(z, zke_election_lead(e, ZKE_FOREVER))) {
    if (went(z, zke_election_ready(e))) await_seen(z);
    went(z, zke_election_resign(e));
  }
  zke_election_free(e);
}

static void see_leader(zke *z, void *arg) {
  zke_observer *o = NULL;
  (void)arg;
  if (!went(z, zke_observer_new(z, "/election", NULL, &o))) return;
  if (went(z, zke_observer_wait(o, 1, ZKE_FOREVER)) && tell_seen(z)) {
    zke_lab_spare();
    went(z, zke_observer_wait(o, 0, ZKE_FOREVER));
  }
  zke_observer_free(o);
}

/* Waits until there is no leader any more. */
static void observe(zke *z, void *arg) {
  zke_observer *o = NULL;
  (void)arg;
  if (!went(z, zke_observer_new(z, "/election", NULL, &o))) return;
  went(z, zke_observer_wait(o, 0, ZKE_FOREVER));
  zke_observer_free(o);
}

/* ---- meetings ---- */

static void close_barrier(zke *z, void *arg) {
  zke_barrier *barrier = NULL;
  (void)arg;
  if (!went(z, zke_barrier_new(z, "/barrier", NULL, &barrier))) return;
  went(z, zke_barrier_set(barrier, NULL, 0, ZKE_FOREVER, NULL));
  zke_barrier_free(barrier);
}

static void open_barrier(zke *z, void *arg) {
  zke_barrier *barrier = NULL;
  (void)arg;
  if (!went(z, zke_barrier_new(z, "/barrier", NULL, &barrier))) return;
  shared.open = true;
  if (went(z, zke_barrier_remove(barrier, 0, ZKE_FOREVER))) shared.done++;
  zke_barrier_free(barrier);
}

/* The barrier stays as it was set, and as it was removed. */
static void see_barrier(zke *z, void *arg) {
  zke_barrier *barrier = NULL;
  int64_t token = 0;
  (void)arg;
  if (zke_barrier_new(z, "/barrier", NULL, &barrier) != ZKE_OK) return;
  int rc = zke_barrier_get(barrier, &token);
  zke_barrier_free(barrier);
  if (rc != ZKE_OK) return;
  zke_lab_assert(token || shared.open);
  zke_lab_assert(!token || !shared.done);
}

static void pass_barrier(zke *z, void *arg) {
  zke_barrier *barrier = NULL;
  (void)arg;
  zke_lab_spare();
  if (!went(z, zke_barrier_new(z, "/barrier", NULL, &barrier))) return;
  if (went(z, zke_barrier_wait(barrier, ZKE_FOREVER)))
    zke_lab_assert(shared.open);
  zke_barrier_free(barrier);
}

/* Sets the barrier after its first removal.  That removal, however often it is
 * repeated, does not remove the second barrier.  After a lost reply, the
 * removal may leave it unknown whether the second barrier was ever set. */
static void close_again(zke *z, void *arg) {
  zke_barrier *barrier = NULL;
  int64_t token = 0, found = 0;
  (void)arg;
  if (!went(z, zke_barrier_new(z, "/barrier", NULL, &barrier))) return;
  int rc = zke_barrier_set(barrier, NULL, 0, ZKE_FOREVER, &token);
  bool open = rc == ZKE_HELD || rc == ZKE_CONNECTIONLOSS;
  if (!open && went(z, rc) && went(z, zke_barrier_get(barrier, &found)))
    zke_lab_assert(found == token);
  zke_barrier_free(barrier);
}

/* Inside with the other party, then out with it.  The round is broken if the
 * other has died, or if its enter failed after the round had begun and it could
 * not report that (zke_double_barrier_enter()).  The other may then come again
 * and miss the caller, unless both have left. */
static void pass_double_barrier(zke *z, zke_double_barrier *barrier,
                                bool other_may_come_again) {
  zke_lab_assert(shared.came == 2);
  if (!other_may_come_again) zke_lab_spare();
  shared.left++;
  int rc = zke_double_barrier_leave(barrier, ZKE_FOREVER);
  if (rc == ZKE_OK) {
    zke_lab_assert(shared.left == 2);
    zke_lab_spare();
  } else if (rc == ZKE_BROKEN) {
    use_may_fail(z, rc);
  } else {
    went(z, rc);
  }
}

static void use_double_barrier(zke *z, void *other_may_come_again) {
  zke_double_barrier *barrier = NULL;
  if (!went(z, zke_double_barrier_new(z, "/double", 2, NULL, &barrier))) return;
  shared.came++;
  if (went(z, zke_double_barrier_enter(barrier, NULL, 0, ZKE_FOREVER, NULL)))
    pass_double_barrier(z, barrier, other_may_come_again != NULL);
  zke_double_barrier_free(barrier);
}

/* Gives up at its deadline, and comes again. */
static void come_again(zke *z, void *arg) {
  zke_double_barrier *barrier = NULL;
  (void)arg;
  if (!went(z, zke_double_barrier_new(z, "/double", 2, NULL, &barrier))) return;
  shared.came++;
  int64_t deadline = zke_now(z) + 1000;
  int rc = zke_double_barrier_enter(barrier, NULL, 0, deadline, NULL);
  bool late = was_late(rc);
  if (late && zke_state(z) != ZKE_STATE_EXPIRED) {
    shared.came--;
    zke_lab_yield();
    shared.came++;
    rc = zke_double_barrier_enter(barrier, NULL, 0, ZKE_FOREVER, NULL);
    late = false;
  }
  /* If its session has ended, it may be late for a round that has begun. */
  if (!late && went(z, rc)) pass_double_barrier(z, barrier, false);
  zke_double_barrier_free(barrier);
}

static void meet(zke *z, void *brought) {
  zke_double_barrier *meeting = NULL;
  zke_party_list *who = NULL;
  if (!went(z, zke_double_barrier_new(z, "/meeting", 2, NULL, &meeting)))
    return;
  if (went(z, zke_double_barrier_meet(meeting, brought, 1, ZKE_FOREVER, &who,
                                      NULL))) {
    zke_lab_assert(who->count == 2);
    zke_lab_assert(who->data[0].data[0] + who->data[1].data[0] == 'a' + 'b');
    zke_free(who);
  }
  zke_double_barrier_free(meeting);
}

/* ---- members ---- */

static void use_group(zke *z, void *hosts) {
  zke_group *group = NULL;
  if (!went(z, zke_group_new(z, "/group", NULL, &group))) return;
  if (went(z, zke_group_join(group, NULL, 0, ZKE_FOREVER))) {
    if (!hosts)
      await_seen(z);
    else if (went(z, zke_group_wait(group, 2, ZKE_FOREVER)))
      tell_seen(z);
    zke_lab_spare();
    went(z, zke_group_leave(group));
  }
  zke_group_free(group);
}

typedef struct membership {
  int joined, left;
} membership;

static void hear_members(zke_group *group, int event, const zke_party *who,
                         void *context) {
  membership *m = context;
  (void)group;
  (void)who;
  m->joined += event == ZKE_GROUP_JOINED;
  m->left += event == ZKE_GROUP_LEFT;
}

/* The list has the members whose join was reported and whose leaving was
 * not. */
static void compare_members(zke *z, zke_group *group, const membership *m) {
  zke_party_list *list = NULL;
  if (!went(z, zke_group_list(group, &list))) return;
  zke_lab_assert(list->count == m->joined - m->left);
  zke_free(list);
}

/* Hears the one member come, and go. */
static void watch_group(zke *z, void *arg) {
  zke_group_options o = ZKE_INIT(zke_group_options);
  zke_group *group = NULL;
  membership m = {0, 0};
  (void)arg;
  o.listener = hear_members;
  o.context = &m;
  if (!went(z, zke_group_new(z, "/group", &o, &group))) return;
  if (went(z, zke_group_start(group))) {
    bool awake = true;
    while (awake && !m.joined) awake = sleep_on(z);
    if (awake) compare_members(z, group, &m);
    awake = awake && tell_seen(z);
    if (awake) zke_lab_spare();
    while (awake && m.left < m.joined) awake = sleep_on(z);
    if (awake) compare_members(z, group, &m);
  }
  zke_group_free(group);
}

/* A member that is asked to give up an item keeps it for a moment. */
static void heard(zke_partition *p, int event, const char *item, int64_t token,
                  void *context) {
  zke *z = context;
  (void)token;
  if (event == ZKE_PARTITION_ACQUIRED) zke_lab_enter(item, 1);
  if (event == ZKE_PARTITION_RELEASE) zke_lab_yield();
  if (event != ZKE_PARTITION_ACQUIRED) zke_lab_leave(item);
  if (event == ZKE_PARTITION_RELEASE) went(z, zke_partition_release(p, item));
}

static int join_partition(zke *z, const char *name, zke_partition **p) {
  static const char *const items[] = {"x", "y"};
  zke_partition_options o = ZKE_INIT(zke_partition_options);
  o.name = name;
  o.listener = heard;
  o.context = z;
  int rc = zke_partition_new(z, "/shards", items, 2, &o, p);
  if (rc == ZKE_OK) rc = zke_partition_start(*p);
  return rc == ZKE_OK ? zke_partition_wait(*p, ZKE_FOREVER) : rc;
}

static void stop_using_items(void) {
  zke_lab_leave("x");
  zke_lab_leave("y");
}

static void leave_partition(zke *z, zke_partition *p) {
  stop_using_items();
  went(z, zke_partition_leave(p));
}

/* A member that could not wait for all its items may have some. */
static void free_partition(zke_partition *p) {
  stop_using_items();
  zke_partition_free(p);
}

/* There are as many items as members, so each member has at least one. */
static void check_items(zke *z, zke_partition *p) {
  zke_strings *own = NULL;
  if (went(z, zke_partition_list(p, &own))) zke_lab_assert(own->count >= 1);
  zke_free(own);
}

static void use_partition(zke *z, void *name) {
  zke_partition *p = NULL;
  if (went(z, join_partition(z, name, &p))) {
    check_items(z, p);
    leave_partition(z, p);
  }
  free_partition(p);
}

/* Stays until the other member has its part; the other gets everything if this
 * one dies. */
static void share_partition(zke *z, void *name) {
  zke_partition *p = NULL;
  zke_lab_spare();
  if (went(z, join_partition(z, name, &p))) {
    await_seen(z);
    leave_partition(z, p);
  }
  free_partition(p);
}

static void get_part(zke *z, void *name) {
  zke_partition *p = NULL;
  if (went(z, join_partition(z, name, &p))) {
    check_items(z, p);
    if (tell_seen(z)) zke_lab_spare();
    leave_partition(z, p);
  }
  free_partition(p);
}

static void keep_node(zke *z, void *arg) {
  zke_persistent_node *node = NULL;
  (void)arg;
  if (!went(z, zke_persistent_node_new(z, "/status", "up", 2, NULL, &node)))
    return;
  if (went(z, zke_persistent_node_acquire(node, ZKE_FOREVER))) {
    zke_stat stat = {0};
    zke_lab_enter("keeps", 1);
    int rc = zke_exists(z, "/status", NULL, NULL, &stat);
    zke_lab_assert(rc != ZKE_NONODE);
    if (rc == ZKE_OK) zke_lab_assert(stat.ephemeralOwner == zke_session_id(z));
    zke_lab_leave("keeps");
    went(z, zke_persistent_node_release(node));
  }
  zke_persistent_node_free(node);
}

/* ---- data ---- */

static void put_items(zke *z, void *arg) {
  static const char *const items[] = {"1", "2"};
  zke_queue *queue = NULL;
  (void)arg;
  if (!went(z, zke_queue_new(z, "/queue", NULL, &queue))) return;
  for (int i = 0; i < 2; i++) {
    shared.tries++;
    if (!went(z, zke_queue_put(queue, items[i], 1, NULL, ZKE_FOREVER))) break;
    shared.came++;
  }
  zke_lab_spare();
  zke_queue_free(queue);
}

/* The result of an item is a znode that is created together with the
 * acknowledgement, so an item that is done twice is noticed.  If this process
 * dies, another one gets the item. */
static void take_item(zke *z, void *arg) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  zke_op made;
  char path[16];
  (void)arg;
  zke_lab_spare();
  if (!went(z, zke_queue_new(z, "/queue", NULL, &queue))) return;
  if (went(z, zke_queue_claim(queue, ZKE_FOREVER, &item))) {
    stay(item->data, 1);
    snprintf(path, sizeof path, "/done-%s", item->data);
    zke_op_create(&made, path, NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
    if (went(z, zke_queue_ack(queue, item, &made, 1, NULL))) shared.done++;
  }
  zke_free(item);
  zke_queue_free(queue);
}

/* Claims an item and gives it back. */
static void give_back(zke *z, void *arg) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  (void)arg;
  zke_lab_spare();
  if (!went(z, zke_queue_new(z, "/queue", NULL, &queue))) return;
  if (went(z, zke_queue_claim(queue, ZKE_FOREVER, &item))) {
    stay(item->data, 1);
    went(z, zke_queue_release(queue, item, 0, NULL));
  }
  zke_free(item);
  zke_queue_free(queue);
}

/* The number of items left.  They come in the order in which they were put, and
 * none of them is done. */
static int drain(zke *z) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  char path[16], last = '0';
  int count = 0;
  if (zke_queue_new(z, "/queue", NULL, &queue) != ZKE_OK) return 0;
  while (zke_queue_claim(queue, 0, &item) == ZKE_OK) {
    snprintf(path, sizeof path, "/done-%s", item->data);
    zke_lab_assert(zke_exists(z, path, NULL, NULL, NULL) == ZKE_NONODE);
    zke_lab_assert(zke_queue_ack(queue, item, NULL, 0, NULL) == ZKE_OK);
    zke_lab_assert(*item->data > last);
    last = *item->data;
    zke_free(item);
    count++;
  }
  zke_queue_free(queue);
  return count;
}

/* Each item that was put is done or still there, and there are no others. */
static void see_items(zke *z, void *arg) {
  int done = zke_exists(z, "/done-1", NULL, NULL, NULL) == ZKE_OK;
  done += zke_exists(z, "/done-2", NULL, NULL, NULL) == ZKE_OK;
  (void)arg;
  zke_lab_assert(done >= shared.done);
  int all = done + drain(z);
  zke_lab_assert(all >= shared.came && all <= shared.tries);
}

static void count_up(zke *z, void *arg) {
  zke_counter *counter = NULL;
  (void)arg;
  if (!went(z, zke_counter_new(z, "/counter", NULL, &counter))) return;
  for (int i = 0; i < 2; i++) {
    shared.tries++;
    if (!went(z, zke_counter_add_and_get(counter, 1, ZKE_FOREVER, NULL, NULL)))
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

static const char *const sale_sites[] = {"bank", "shop"};

static void begin_form(zke *z, int form) {
  zke_two_phase_options o = ZKE_INIT(zke_two_phase_options);
  zke_two_phase *t = NULL;
  o.form = form;
  if (went(z, zke_two_phase_begin(z, "/2pc", "sale", "tea", 3, sale_sites, 2,
                                  &o, &t)))
    zke_two_phase_free(t);
}

static void begin_sale(zke *z, void *arg) {
  (void)arg;
  begin_form(z, ZKE_TWO_PHASE_SITES | ZKE_TWO_PHASE_EPHEMERAL);
}

static void begin_lasting_sale(zke *z, void *arg) {
  (void)arg;
  begin_form(z, ZKE_TWO_PHASE_SITES);
}

/* All processes that know the decision agree; a commit needs both sites. */
static void note_decision(int decision) {
  shared.committed += decision == ZKE_TWO_PHASE_COMMIT;
  shared.aborted += decision == ZKE_TWO_PHASE_ABORT;
  zke_lab_assert(!shared.committed || !shared.aborted);
  zke_lab_assert(!shared.committed || shared.votes == 2);
  zke_lab_assert(!shared.committed || !shared.refusals);
}

/* A site with its vote, or NULL for an observer.  The death of a site that has
 * opened the transaction aborts it; with persistent votes the others wait until
 * it has voted. */
static void decide(zke *z, const char *site, int vote, bool lasts) {
  zke_two_phase *t = NULL;
  int decision = 0;
  if (!site) zke_lab_spare();
  int rc = zke_two_phase_open(z, "/2pc", "sale", site, NULL, &t);
  if (rc != ZKE_NONODE && !went(z, rc)) return;
  if (!lasts) zke_lab_spare();
  if (rc == ZKE_OK && site) {
    shared.votes++;
    shared.refusals += vote == ZKE_TWO_PHASE_ABORT;
    rc = zke_two_phase_vote(t, vote);
    if (rc == ZKE_OK) zke_lab_spare();
  }
  if (rc == ZKE_OK) rc = zke_two_phase_wait(t, ZKE_FOREVER, &decision);
  if (rc == ZKE_OK) {
    note_decision(decision);
    if (site) rc = zke_two_phase_ack(t);
    shared.acks += site && rc == ZKE_OK;
  }
  /* An observer may come when the sites have finished. */
  if (rc != ZKE_NONODE && rc != ZKE_LOST) went(z, rc);
  zke_two_phase_free(t);
}

static void take_part(zke *z, void *site) {
  decide(z, site, ZKE_TWO_PHASE_COMMIT, false);
}

static void refuse(zke *z, void *site) {
  decide(z, site, ZKE_TWO_PHASE_ABORT, false);
}

/* A site's znode: its vote creates it and its acknowledgement writes it, so its
 * version counts the acknowledgements. */
static const char *sale_row(int site) {
  static const char *const rows[] = {"/row-bank", "/row-shop"};
  return rows[site];
}

/* Count the calls that were told that their operations were done: one for each
 * site. */
static void note_done(int *counts, int site, int done) {
  counts[site] += done == ZKE_TWO_PHASE_DONE;
  zke_lab_assert(counts[site] <= 1);
}

/* Settle what was prepared; without a row, nothing was. */
static int settle(zke_two_phase *t, int site, int decision, bool has_row) {
  zke_op op;
  int done = -1;
  zke_op_set(&op, sale_row(site),
             decision == ZKE_TWO_PHASE_COMMIT ? "sold" : "kept", 4, -1);
  int rc = zke_two_phase_ack_with(t, &op, has_row, NULL, &done);
  if (rc == ZKE_OK) note_done(shared.settled, site, done);
  return rc;
}

/* A site that prepares and settles by the recipe's steps. */
static int sell(zke_two_phase *t, int site, int vote) {
  zke_op op;
  int done = -1, decision = 0;
  zke_op_create(&op, sale_row(site), "?", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  int rc = zke_two_phase_vote_with(t, vote, &op, 1, NULL, &done);
  if (rc != ZKE_OK) return rc;
  note_done(shared.prepared, site, done);
  zke_lab_spare(); /* its vote stays, or its death aborts */
  rc = zke_two_phase_wait(t, ZKE_FOREVER, &decision);
  if (rc != ZKE_OK) return rc;
  shared.committed += decision == ZKE_TWO_PHASE_COMMIT;
  shared.aborted += decision == ZKE_TWO_PHASE_ABORT;
  zke_lab_assert(!shared.committed || !shared.aborted);
  return settle(t, site, decision, done != ZKE_TWO_PHASE_NOT_DONE);
}

/* It may come when everything is over, or (in the ephemeral form) while another
 * process of its site is there. */
static void join_sale(zke *z, const char *name, int vote) {
  int site = strcmp(name, sale_sites[0]) != 0;
  zke_two_phase *t = NULL;
  int rc = zke_two_phase_open(z, "/2pc", "sale", name, NULL, &t);
  if (rc == ZKE_OK) rc = sell(t, site, vote);
  if (rc != ZKE_NONODE && rc != ZKE_LOST && rc != ZKE_HELD) went(z, rc);
  zke_two_phase_free(t);
}

static void take_part_in_sale(zke *z, void *name) {
  join_sale(z, name, ZKE_TWO_PHASE_COMMIT);
}

static void refuse_sale(zke *z, void *name) {
  join_sale(z, name, ZKE_TWO_PHASE_ABORT);
}

/* Each site's row agrees with its vote and its acknowledgement. */
static void see_sale(zke *z, void *arg) {
  zke_two_phase_status *st = NULL;
  (void)arg;
  int there = zke_two_phase_get(z, "/2pc", "sale", &st);
  for (int i = 0; i < 2; i++) {
    zke_stat stat = {.version = -1};
    zke_exists(z, sale_row(i), NULL, NULL, &stat);
    bool settled = there != ZKE_OK || st->sites[i].acknowledged;
    bool voted = there == ZKE_OK && st->sites[i].vote;
    bool sold = there != ZKE_OK ? shared.committed > 0
                                : st->decision == ZKE_TWO_PHASE_COMMIT;
    if (settled && sold) zke_lab_assert(stat.version == 1);
    if (settled) zke_lab_assert(stat.version != 0);
    if (voted) zke_lab_assert(stat.version == settled);
    zke_lab_assert(stat.version <= settled);
    zke_lab_assert(stat.version >= 0 || !shared.prepared[i]);
  }
  zke_free(st);
}

/* Make the directory first, so that fewer changes lose their reply. */
static void prepare_names(zke *z, void *arg) {
  zke_names *names = NULL;
  (void)arg;
  if (!went(z, zke_names_new(z, "/names", NULL, &names))) return;
  went(z, zke_names_bind(names, "first", "a", 1, 0, ZKE_FOREVER, NULL));
  zke_names_free(names);
}

/* After a lost reply, the other's binding and unbinding may leave it unknown
 * whether this binding was ever made.  No other lost reply is reported. */
static void use_name(zke *z, void *arg) {
  zke_names *names = NULL;
  int64_t token;
  (void)arg;
  if (!went(z, zke_names_new(z, "/names", NULL, &names))) return;
  int rc = zke_names_bind(names, "printer", "a", 1, 1, ZKE_FOREVER, &token);
  bool open = rc == ZKE_CONNECTIONLOSS &&
              strstr(zke_errmsg(), "may have been bound and unbound");
  if (rc != ZKE_HELD && !open && went(z, rc)) {
    stay("bound", 1);
    went(z, zke_names_unbind(names, "printer", token, ZKE_FOREVER));
  }
  zke_names_free(names);
}

/* Of two processes that bind the name, one is told that it is bound; if one
 * dies, the other binds it. */
static void bind_name(zke *z, void *arg) {
  zke_names *names = NULL;
  (void)arg;
  zke_lab_spare();
  if (!went(z, zke_names_new(z, "/names", NULL, &names))) return;
  int rc = zke_names_bind(names, "last", "z", 1, 0, ZKE_FOREVER, NULL);
  if (rc != ZKE_HELD && went(z, rc)) shared.done++;
  zke_names_free(names);
}

/* A persistent binding is still there. */
static void see_name(zke *z, const char *name) {
  zke_names *names = NULL;
  zke_binding *b = NULL;
  if (zke_names_new(z, "/names", NULL, &names) != ZKE_OK) return;
  zke_lab_assert(zke_names_lookup(names, name, &b) != ZKE_NONODE);
  zke_free(b);
  zke_names_free(names);
}

static void see_first(zke *z, void *arg) {
  (void)arg;
  see_name(z, "first");
}

static void see_last(zke *z, void *arg) {
  (void)arg;
  if (shared.done) see_name(z, "last");
}

static void await_name(zke *z, void *arg) {
  zke_names *names = NULL;
  zke_binding *b = NULL;
  (void)arg;
  zke_lab_spare();
  if (!went(z, zke_names_new(z, "/names", NULL, &names))) return;
  if (went(z, zke_names_wait(names, "last", ZKE_FOREVER, &b)))
    zke_lab_assert(strcmp(b->value, "z") == 0);
  zke_free(b);
  zke_names_free(names);
}

static void write_config(zke *z, void *arg) {
  static const char *const values[] = {"1", "2", "3"};
  zke_config *config = NULL;
  (void)arg;
  if (!went(z, zke_config_new(z, "/config", NULL, &config))) return;
  for (int i = 0; i < 3; i++) {
    if (!went(z,
              zke_config_set(config, "a", values[i], 1, -1, ZKE_FOREVER, NULL)))
      break;
    shared.done++;
  }
  zke_config_free(config);
}

/* The last value that was acknowledged, or a later one. */
static void see_value(zke *z, void *arg) {
  char *data = NULL;
  (void)arg;
  int rc = zke_get(z, "/config/a", NULL, NULL, &data, NULL, NULL);
  if (rc == ZKE_OK) zke_lab_assert(*data - '0' >= shared.done);
  zke_lab_assert(rc != ZKE_NONODE || !shared.done);
  zke_free(data);
}

/* Values come in the order of their writes, and the last value always comes. */
static void read_config(zke *z, void *arg) {
  zke_config *config = NULL;
  int64_t revision = 0;
  char value = '0';
  (void)arg;
  zke_lab_spare();
  if (!went(z, zke_config_new(z, "/config", NULL, &config))) return;
  while (value < '3' && went(z, zke_config_wait(config, NULL, revision,
                                                ZKE_FOREVER, &revision))) {
    char *data = NULL;
    int rc = zke_config_get(config, "a", &data, NULL, NULL);
    if (rc != ZKE_NONODE && !went(z, rc)) break;
    if (data) {
      zke_lab_assert(*data >= value);
      value = *data;
    }
    zke_free(data);
  }
  zke_config_free(config);
}

/* Sets a node, deletes it and creates it again, with the same version. */
static void rewrite_config(zke *z, void *arg) {
  zke_config *config = NULL;
  int rc = ZKE_CONNECTIONLOSS;
  (void)arg;
  if (!went(z, zke_config_new(z, "/config", NULL, &config))) return;
  if (went(z, zke_config_set(config, "a", "1", 1, -1, ZKE_FOREVER, NULL))) {
    while (rc == ZKE_CONNECTIONLOSS) rc = zke_delete(z, "/config/a", -1);
    if (rc == ZKE_NONODE || went(z, rc))
      went(z, zke_config_set(config, "a", "2", 1, -1, ZKE_FOREVER, NULL));
  }
  zke_config_free(config);
}

/* The listener is told what has changed since it was last told. */
static void hear_config(zke_config *config, int event,
                        const zke_config_node *before,
                        const zke_config_node *now, void *context) {
  char *known = context;
  const zke_config_node *n = before ? before : now;
  (void)config;
  (void)event;
  if (!n || strcmp(n->name, "a") != 0) return;
  zke_lab_assert(before ? *before->data == *known : !*known);
  *known = now ? *now->data : '\0';
}

static void follow_config(zke *z, void *arg) {
  zke_config_options o = ZKE_INIT(zke_config_options);
  zke_config *config = NULL;
  char known = '\0';
  (void)arg;
  zke_lab_spare();
  o.listener = hear_config;
  o.context = &known;
  if (!went(z, zke_config_new(z, "/config", &o, &config))) return;
  if (went(z, zke_config_start(config)))
    while (known != '2' && sleep_on(z)) continue;
  zke_config_free(config);
}

/* ---- times ---- */

/* Runs begin at least a period apart. */
static void note_run(zke *z, zke_periodic *job) {
  zke_periodic_record *r = NULL;
  if (zke_periodic_get(z, "/jobs", "rotate", &r) != ZKE_OK) return;
  if (r->token == zke_periodic_token(job)) {
    zke_lab_assert(!shared.run_ms || r->start_ms - shared.run_ms >= 1000);
    shared.run_ms = r->start_ms;
  }
  zke_free(r);
}

static void run_job(zke *z, void *arg) {
  zke_periodic_options o = ZKE_INIT(zke_periodic_options);
  zke_periodic *job = NULL;
  (void)arg;
  o.period_ms = 1000;
  if (!went(z, zke_periodic_new(z, "/jobs", "rotate", &o, &job))) return;
  if (went(z, zke_periodic_acquire(job, ZKE_FOREVER))) {
    stay("does it", 1);
    note_run(z, job);
    /* If the reply is lost, the record is read again, and another run may have
     * replaced it by then. */
    int rc = zke_periodic_release(job, 0);
    if (rc != ZKE_LOST) went(z, rc);
  }
  zke_periodic_free(job);
}

/* The record of the last run that was seen, or of a later one. */
static void see_run(zke *z, void *arg) {
  zke_periodic_record *r = NULL;
  (void)arg;
  int rc = zke_periodic_get(z, "/jobs", "rotate", &r);
  if (rc == ZKE_OK) zke_lab_assert(r->start_ms >= shared.run_ms);
  zke_lab_assert(rc != ZKE_NONODE || !shared.run_ms);
  zke_free(r);
}

/* ---- by force, and without the recipe ----
 *
 * A holder whose lock was taken away believes for a while that it still has it.
 * So these uses check no critical sections: each holder changes /work in one
 * step with a check that it holds the lock, and the tokens for which that
 * succeeds only grow. */

static void prepare_work(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/work", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

/* Work with a token, guarded by ops[0].  Two processes may be here at the same
 * time; the later token has the greater version. */
static void work(zke *z, zke_op ops[2], int64_t token) {
  zke_op_result r[2] = {{0}};
  zke_op_set(&ops[1], "/work", NULL, -1, -1);
  if (zke_multi(z, ops, 2, r) == ZKE_OK) {
    bool later = r[1].stat.version > shared.works;
    zke_lab_assert(later ? token >= shared.token : token <= shared.token);
    if (later) shared.token = token;
    if (later) shared.works = r[1].stat.version;
  }
  zke_results_clear(r, 2);
}

static void work_locked(zke *z, zke_lock *lock) {
  zke_op ops[2];
  if (zke_lock_op(lock, &ops[0]) == ZKE_OK) work(z, ops, zke_lock_token(lock));
}

/* Has a call succeeded, or was its place in line taken away? */
static bool went_or_lost(zke *z, int rc) {
  return rc != ZKE_LOST && went(z, rc);
}

static void hear_lock(zke_lock *lock, int state, int64_t token, void *lost) {
  (void)lock, (void)token;
  *(bool *)lost = *(bool *)lost || state == ZKE_LOCK_LOST;
}

static zke_lock *lock_heard(zke *z, const char *path, bool *lost) {
  zke_lock_options o = ZKE_INIT(zke_lock_options);
  zke_lock *lock = NULL;
  o.listener = hear_lock;
  o.context = lost;
  went(z, zke_lock_new(z, path, &o, &lock));
  return lock;
}

/* Holds until it hears that the lock was taken away. */
static void hold_till_lost(zke *z, void *path) {
  bool lost = false;
  zke_lock *lock = lock_heard(z, path, &lost);
  if (lock && went(z, zke_lock_acquire(lock, ZKE_FOREVER)) && tell_seen(z)) {
    zke_lab_spare();
    work_locked(z, lock);
    while (!lost && sleep_on(z)) continue;
    zke_lab_assert(lost || zke_state(z) != ZKE_STATE_EXPIRED);
    if (lost) zke_lab_assert(zke_lock_token(lock) == 0);
    if (lost) zke_lab_assert(zke_lock_check(lock) != ZKE_OK);
    work_locked(z, lock);
  }
  zke_lock_free(lock);
}

static void steal_lock(zke *z, void *path) {
  zke_lock *lock = NULL;
  await_seen(z);
  if (!went(z, zke_lock_new(z, path, NULL, &lock))) return;
  if (went(z, zke_lock_steal(lock))) {
    zke_lab_reach("stolen");
    zke_lab_spare();
    work_locked(z, lock);
    went(z, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

/* Stands in line behind the holder that will be robbed, or before it, and may
 * then be robbed itself. */
static void work_in_turn(zke *z, void *path) {
  zke_lock *lock = NULL;
  zke_lab_spare();
  if (!went(z, zke_lock_new(z, path, NULL, &lock))) return;
  if (went_or_lost(z, zke_lock_acquire(lock, ZKE_FOREVER))) {
    work_locked(z, lock);
    went_or_lost(z, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

/* Holds until it has been seen; may lose the lock meanwhile. */
static void hold_a_while(zke *z, void *path) {
  zke_lock *lock = NULL;
  if (!went(z, zke_lock_new(z, path, NULL, &lock))) return;
  if (went(z, zke_lock_acquire(lock, ZKE_FOREVER)) && tell_seen(z)) {
    zke_lab_spare();
    work_locked(z, lock);
    went_or_lost(z, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

/* Breaks the lock of process a, which may have released it meanwhile: no other
 * holder is hit. */
static void break_lock(zke *z, void *path) {
  zke_party_list *list = NULL;
  await_seen(z);
  zke_lab_spare();
  if (!went(z, zke_lock_parties(z, path, &list))) return;
  bool held = list->count > 0 && list->data[0].held &&
              strcmp(list->data[0].identity, "a") == 0;
  int rc = held ? zke_lock_break(z, path, list->data[0].mzxid) : ZKE_OK;
  if (rc != ZKE_NONODE && rc != ZKE_CONNECTIONLOSS) went(z, rc);
  if (held && rc == ZKE_OK) zke_lab_reach("broken");
  zke_free(list);
}

/* Deletes the first node below a path, whoever made it, without the recipe. */
static void delete_first(zke *z, void *path) {
  char child[128];
  zke_strings *names = NULL;
  const char *first = NULL;
  zke_lab_spare();
  if (zke_children(z, path, NULL, NULL, &names, NULL) != ZKE_OK) return;
  for (int i = 0; i < names->count; i++) {
    const char *number = strrchr(names->data[i], '-');
    if (number && (!first || strcmp(number, strrchr(first, '-')) < 0))
      first = names->data[i];
  }
  snprintf(child, sizeof child, "%s/%s", (char *)path, first ? first : "");
  if (first && zke_delete(z, child, -1) == ZKE_OK) zke_lab_reach("deleted");
  zke_free(names);
}

/* Waits for the lock and holds it while another process deletes znodes.  A
 * process that loses its node is told, and the others go on. */
static void lock_by_hand(zke *z, void *path) {
  bool lost = false;
  zke_lock *lock = lock_heard(z, path, &lost);
  if (lock && went_or_lost(z, zke_lock_acquire(lock, ZKE_FOREVER))) {
    work_locked(z, lock);
    zke_lab_yield();
    int64_t before = shared.token;
    if (zke_lock_check(lock) == ZKE_OK)
      zke_lab_assert(zke_lock_token(lock) >= before);
    went_or_lost(z, zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

/* Two permits; the znode of one is deleted. */
static void semaphore_by_hand(zke *z, void *arg) {
  zke_semaphore_options o = ZKE_INIT(zke_semaphore_options);
  zke_semaphore *sem = NULL;
  zke_op ops[2];
  (void)arg;
  o.limit = 2;
  if (!went(z, zke_semaphore_new(z, "/sem", &o, &sem))) return;
  if (went_or_lost(z, zke_semaphore_acquire(sem, 2, ZKE_FOREVER))) {
    if (zke_semaphore_op(sem, &ops[0]) == ZKE_OK &&
        zke_semaphore_check(sem) == ZKE_OK)
      work(z, ops, zke_semaphore_token(sem));
    went_or_lost(z, zke_semaphore_release(sem));
  }
  zke_semaphore_free(sem);
}

static void election_by_hand(zke *z, void *arg) {
  zke_election *e = NULL;
  zke_op ops[2];
  (void)arg;
  if (!went(z, zke_election_new(z, "/election", NULL, &e))) return;
  if (went_or_lost(z, zke_election_lead(e, ZKE_FOREVER))) {
    went_or_lost(z, zke_election_ready(e));
    if (zke_election_op(e, &ops[0]) == ZKE_OK)
      work(z, ops, zke_election_token(e));
    went_or_lost(z, zke_election_resign(e));
  }
  zke_election_free(e);
}

/* Its node is deleted by another process, and it creates it again. */
static void keep_node_by_hand(zke *z, void *arg) {
  zke_persistent_node *node = NULL;
  (void)arg;
  if (!went(z, zke_persistent_node_new(z, "/status", "up", 2, NULL, &node)))
    return;
  if (went(z, zke_persistent_node_acquire(node, ZKE_FOREVER))) {
    if (tell_seen(z)) await_node(z, "/again");
    went(z, zke_persistent_node_release(node));
  }
  zke_persistent_node_free(node);
}

/* Deletes the node, and reports when it exists again. */
static void delete_node(zke *z, void *arg) {
  int rc = ZKE_CONNECTIONLOSS;
  (void)arg;
  await_seen(z);
  while (rc == ZKE_CONNECTIONLOSS) rc = zke_delete(z, "/status", -1);
  await_node(z, "/status");
  rc = ZKE_CONNECTIONLOSS;
  while (rc == ZKE_CONNECTIONLOSS)
    rc = zke_create(z, "/again", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                    NULL);
  if (rc != ZKE_NODEEXISTS) went(z, rc);
}

/* ---- read/write locks that change ---- */

/* If it cannot write immediately, it gives up its place. */
static void upgrade(zke *z, void *arg) {
  zke_rwlock *rw = NULL;
  (void)arg;
  if (!went(z, zke_rwlock_new(z, "/rwlock", NULL, &rw))) return;
  if (went(z, zke_rwlock_acquire(rw, ZKE_RWLOCK_READ, ZKE_FOREVER))) {
    zke_lab_enter("reads", ZKE_LAB_MOST);
    int rc = zke_rwlock_upgrade(rw);
    zke_lab_leave("reads");
    if (rc == ZKE_OK) zke_lab_reach("upgraded");
    if (rc != ZKE_HELD && went(z, rc)) read_or_write(true);
    went(z, zke_rwlock_release(rw));
  }
  zke_rwlock_free(rw);
}

typedef struct reader {
  bool asked, lost, complies;
} reader;

static void hear_rwlock(zke_rwlock *rw, int event, int64_t token, void *arg) {
  reader *r = arg;
  (void)token;
  r->lost = r->lost || event == ZKE_RWLOCK_LOST;
  if (event == ZKE_RWLOCK_LOST) zke_lab_leave("reads");
  if (event != ZKE_RWLOCK_ASKED) return;
  r->asked = true;
  if (!r->complies) return;
  zke_lab_leave("reads");
  zke_rwlock_release(rw);
}

/* Reads until it is asked to release, or until the lock is taken away. */
static void read_until(zke *z, bool complies) {
  zke_rwlock_options o = ZKE_INIT(zke_rwlock_options);
  zke_rwlock *rw = NULL;
  reader r = {.complies = complies};
  o.listener = hear_rwlock;
  o.context = &r;
  if (!went(z, zke_rwlock_new(z, "/rwlock", &o, &rw))) return;
  if (went(z, zke_rwlock_acquire(rw, ZKE_RWLOCK_READ, ZKE_FOREVER))) {
    zke_lab_enter("reads", ZKE_LAB_MOST);
    bool told = tell_seen(z);
    if (told) zke_lab_spare();
    while (told && !r.lost && !(r.asked && complies) && sleep_on(z)) continue;
    zke_lab_leave("reads");
  }
  zke_rwlock_free(rw);
}

static void comply(zke *z, void *arg) {
  (void)arg;
  read_until(z, true);
}

static void insist(zke *z, void *arg) {
  (void)arg;
  read_until(z, false);
}

/* Revokes the lock after the reader has reported itself.  Every holder of that
 * moment has then stopped reading. */
static void revoke(zke *z, void *insists) {
  zke_rwlock *rw = NULL;
  if (!await_seen(z)) return;
  if (!went(z, zke_rwlock_new(z, "/rwlock", NULL, &rw))) return;
  int64_t deadline = insists ? zke_now(z) + 1000 : ZKE_FOREVER;
  if (went(z, zke_rwlock_revoke(rw, deadline, insists != NULL))) {
    zke_lab_spare();
    zke_lab_enter("has revoked", 1);
    if (!insists) zke_lab_exclude("has revoked", "reads");
    zke_lab_leave("has revoked");
  }
  zke_rwlock_free(rw);
}

/* ---- a semaphore whose limit changes ---- */

static void prepare_one(zke *z, void *arg) {
  (void)arg;
  zke_semaphore_resize(z, "/sem", 1, ZKE_FOREVER);
}

static void prepare_two(zke *z, void *arg) {
  (void)arg;
  zke_semaphore_resize(z, "/sem", 2, ZKE_FOREVER);
}

/* Holds the one permit until a second has been granted. */
static void keep_permit(zke *z, void *arg) {
  zke_semaphore *sem = NULL;
  (void)arg;
  if (!went(z, zke_semaphore_new(z, "/sem", NULL, &sem))) return;
  if (went(z, zke_semaphore_acquire(sem, 1, ZKE_FOREVER))) {
    bool alone = !shared.came++; /* else the other one was first */
    if (alone || tell_seen(z)) await_seen(z);
    went(z, zke_semaphore_release(sem));
  }
  zke_semaphore_free(sem);
}

static void raise_limit(zke *z, void *arg) {
  (void)arg;
  went(z, zke_semaphore_resize(z, "/sem", 2, ZKE_FOREVER));
}

static void lower_limit(zke *z, void *arg) {
  (void)arg;
  if (went(z, zke_semaphore_resize(z, "/sem", 1, ZKE_FOREVER)))
    shared.open = true;
}

/* A process that asked after the limit was lowered holds alone. */
static void use_lowered(zke *z, void *arg) {
  zke_semaphore *sem = NULL;
  (void)arg;
  if (!went(z, zke_semaphore_new(z, "/sem", NULL, &sem))) return;
  for (int i = 0; i < 2; i++) {
    bool late = shared.open;
    if (!went(z, zke_semaphore_acquire(sem, 1, ZKE_FOREVER))) break;
    if (late) zke_lab_reach("late");
    stay("has one", late ? 1 : 2);
    if (!went(z, zke_semaphore_release(sem))) break;
  }
  zke_semaphore_free(sem);
}

/* ---- an election whose leader names the next one ---- */

static bool session_lives(zke *z, int64_t session) {
  zke_session_list *list = NULL;
  bool lives = zke_sessions(z, session, &list) == ZKE_OK && list->count > 0;
  zke_free(list);
  return lives;
}

/* Leads twice, and the first time hands over to the heir, which then comes
 * before the third candidate. */
static void lead_and_name(zke *z, const char *name, const char *heir) {
  zke_election_options o = ZKE_INIT(zke_election_options);
  zke_election *e = NULL;
  o.name = name;
  if (!went(z, zke_election_new(z, "/election", &o, &e))) return;
  for (int i = 0; i < (heir ? 2 : 1); i++) {
    if (!went(z, zke_election_lead(e, ZKE_FOREVER))) break;
    bool passed_over = shared.heir && shared.heir != zke_session_id(z);
    if (passed_over) zke_lab_assert(!session_lives(z, shared.heir));
    shared.heir_led = shared.heir_led || zke_session_id(z) == shared.heirs;
    if (shared.heir_led) shared.heir = 0;
    stay("leads", 1);
    int rc = heir && i == 0 ? zke_election_hand_over(e, heir) : ZKE_NONODE;
    if (rc == ZKE_OK) zke_lab_reach("handed over");
    if (rc == ZKE_OK && !shared.heir_led) shared.heir = shared.heirs;
    if (rc != ZKE_NONODE && rc != ZKE_CONNECTIONLOSS && !went(z, rc)) break;
    if (rc != ZKE_OK && !went_or_lost(z, zke_election_resign(e))) break;
  }
  zke_election_free(e);
}

static void hand_over(zke *z, void *name) { lead_and_name(z, name, "heir"); }

static void lead_once(zke *z, void *name) {
  if (strcmp(name, "heir") == 0) shared.heirs = zke_session_id(z);
  lead_and_name(z, name, NULL);
}

/* ---- a queue's item that comes back ---- */

static void prepare_item(zke *z, void *arg) {
  zke_queue *queue = NULL;
  (void)arg;
  if (zke_queue_new(z, "/queue", NULL, &queue) != ZKE_OK) return;
  zke_queue_put(queue, "1", 1, NULL, ZKE_FOREVER);
  zke_queue_free(queue);
}

/* Claims the item if it is there, and returns it, immediately or after a
 * second. */
static void claim_and_return(zke *z, void *later) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  if (!went(z, zke_queue_new(z, "/queue", NULL, &queue))) return;
  int rc = zke_queue_claim(queue, 0, &item);
  if (!was_late(rc) && went(z, rc)) {
    stay(item->data, 1);
    int64_t due = zke_wall(z) + 1000;
    rc = zke_queue_release(queue, item, later ? 1000 : 0, NULL);
    if (went(z, rc) && later) shared.run_ms = due;
    if (rc == ZKE_OK) zke_lab_reach("returned");
  }
  zke_free(item);
  zke_queue_free(queue);
}

/* Always gets it, and not before it is due. */
static void take_returned(zke *z, void *arg) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  (void)arg;
  if (!went(z, zke_queue_new(z, "/queue", NULL, &queue))) return;
  if (went(z, zke_queue_claim(queue, ZKE_FOREVER, &item))) {
    zke_lab_assert(zke_wall(z) >= shared.run_ms);
    stay(item->data, 1);
    shared.tries++;
    shared.done += went(z, zke_queue_ack(queue, item, NULL, 0, NULL));
  }
  zke_free(item);
  zke_queue_free(queue);
}

/* The item is done or there. */
static void see_item(zke *z, void *arg) {
  zke_queue *queue = NULL;
  zke_queue_counts left = {0};
  (void)arg;
  if (zke_queue_new(z, "/queue", NULL, &queue) != ZKE_OK) return;
  zke_queue_size(queue, &left);
  zke_queue_free(queue);
  zke_lab_assert(!shared.done || left.items == 0);
  zke_lab_assert(shared.tries || left.items == 1);
}

/* ---- a configuration that is set by version ---- */

/* Sets the node to its own data by version, twice, unless another process was
 * faster.  The version counts the sets. */
static void count_in_config(zke *z, void *name) {
  zke_config *config = NULL;
  zke_stat stat, set;
  if (!went(z, zke_config_new(z, "/config", NULL, &config))) return;
  for (int i = 0; i < 2; i++) {
    if (!went(z, zke_exists(z, "/config/n", NULL, NULL, &stat))) break;
    shared.tries++;
    int rc =
        zke_config_set(config, "n", name, 1, stat.version, ZKE_FOREVER, &set);
    if (rc == ZKE_OK) zke_lab_assert(set.version == stat.version + 1);
    shared.done += rc == ZKE_OK;
    shared.tries -= rc == ZKE_BADVERSION;
    if (rc != ZKE_BADVERSION && rc != ZKE_CONNECTIONLOSS && !went(z, rc)) break;
  }
  zke_config_free(config);
}

static void prepare_number(zke *z, void *arg) {
  (void)arg;
  zke_create(z, "/config", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  zke_create(z, "/config/n", "a", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
}

static void see_number(zke *z, void *arg) {
  zke_stat stat = {.version = -1};
  (void)arg;
  zke_exists(z, "/config/n", NULL, NULL, &stat);
  zke_lab_assert(stat.version >= shared.done && stat.version <= shared.tries);
}

/* ---- a commit with a coordinator ---- */

/* The sites do not need it any more once it has begun. */
static void coordinate(zke *z, void *arg) {
  zke_two_phase_options o = ZKE_INIT(zke_two_phase_options);
  zke_two_phase *t = NULL;
  int decision = 0;
  (void)arg;
  o.form = ZKE_TWO_PHASE_COORDINATOR;
  int rc =
      zke_two_phase_begin(z, "/2pc", "sale", "tea", 3, sale_sites, 2, &o, &t);
  if (went(z, rc) && tell_seen(z)) {
    zke_lab_spare();
    rc = zke_two_phase_wait(t, ZKE_FOREVER, &decision);
    if (went(z, rc)) note_decision(decision);
    if (rc == ZKE_OK && went(z, zke_two_phase_ack(t))) shared.acks++;
  }
  zke_two_phase_free(t);
}

static void answer_coordinator(zke *z, void *site) {
  await_seen(z);
  decide(z, site, ZKE_TWO_PHASE_COMMIT, true);
}

/* The last acknowledgement has removed the transaction. */
static void see_no_sale(zke *z, void *arg) {
  zke_two_phase_status *st = NULL;
  (void)arg;
  int rc = zke_two_phase_get(z, "/2pc", "sale", &st);
  if (shared.acks == 3) zke_lab_assert(rc == ZKE_NONODE);
  if (shared.acks == 3) zke_lab_reach("acknowledged by all");
  zke_free(st);
}

/* ---- rounds ---- */

/* Enters and leaves twice with the other, unless that dies. */
static void take_two_rounds(zke *z, void *arg) {
  zke_double_barrier *barrier = NULL;
  int rc = ZKE_OK;
  (void)arg;
  if (!went(z, zke_double_barrier_new(z, "/double", 2, NULL, &barrier))) return;
  for (int round = 1; round <= 2 && rc == ZKE_OK; round++) {
    shared.came++;
    rc = zke_double_barrier_enter(barrier, NULL, 0, ZKE_FOREVER, NULL);
    if (!went(z, rc)) break;
    zke_lab_assert(shared.came >= 2 * round);
    zke_lab_yield(); /* a death here breaks the round */
    shared.left++;
    rc = zke_double_barrier_leave(barrier, ZKE_FOREVER);
    if (rc == ZKE_OK) zke_lab_assert(shared.left >= 2 * round);
    if (rc != ZKE_BROKEN) went(z, rc);
  }
  zke_double_barrier_free(barrier);
}

/* ---- all of them ---- */

const use uses[] = {
    {.name = "lock",
     .parties = {{use_lock, "/a"}, {use_lock, "/a"}, {use_lock, "/a"}}},
    {.name = "lock_until",
     .parties = {{use_lock, "/a"},
                 {use_lock_until, "/a"},
                 {use_lock_until, "/a"}},
     .setup = prepare_lock},
    {.name = "lock_twice",
     .parties = {{use_lock_twice, "/a"}, {use_lock_twice, "/a"}}},
    {.name = "lock_threads",
     .parties = {{use_lock, "/a"}, {use_lock, "/a"}, {use_lock, "/a"}},
     .thread = true},
    /* A process that dies or loses its session gives up its place before
     * another one. */
    {.name = "lock_wakes",
     .parties = {{use_lock_often, "/a"},
                 {use_lock_often, "/a"},
                 {use_lock_often, "/a"}},
     .wakes = 1},
    {.name = "deadlock", .parties = {{use_both, "/a"}, {use_both, "/b"}}},
    {.name = "multilock",
     .parties = {{use_both_at_once, "/a"},
                 {use_both_at_once, "/b"},
                 {use_lock, "/a"}}},
    {.name = "rwlock",
     .parties = {{use_rwlock, NULL}, {use_rwlock, NULL}, {use_rwlock, "w"}}},
    {.name = "rwlock_downgrade",
     .parties = {{downgrade, NULL}, {use_rwlock, "w"}, {use_rwlock, NULL}}},
    {.name = "semaphore",
     .parties = {{use_semaphore, NULL},
                 {use_semaphore, NULL},
                 {use_semaphore, "all"}}},
    {.name = "election",
     .parties = {{use_election, NULL}, {use_election, NULL}, {observe, NULL}}},
    {.name = "election_seen",
     .parties = {{lead_until_seen, NULL},
                 {lead_until_seen, NULL},
                 {see_leader, NULL}},
     .waits = true,
     .one_ends = true},
    {.name = "barrier",
     .parties = {{open_barrier, NULL},
                 {pass_barrier, NULL},
                 {pass_barrier, NULL}},
     .setup = close_barrier,
     .finally = see_barrier,
     .waits = true},
    {.name = "barrier_again",
     .parties = {{open_barrier, NULL}, {close_again, NULL}},
     .setup = close_barrier},
    {.name = "double_barrier",
     .parties = {{use_double_barrier, NULL}, {use_double_barrier, NULL}},
     .waits = true,
     .timeouts = true}, /* a step whose reply was lost is repeated later */
    {.name = "double_barrier_again",
     .parties = {{use_double_barrier, "again"}, {come_again, NULL}},
     .waits = true,
     .timeouts = true},
    {.name = "meet",
     .parties = {{meet, "a"}, {meet, "b"}},
     .waits = true,
     .timeouts = true}, /* as well */
    {.name = "group",
     .parties = {{use_group, "hosts"}, {use_group, NULL}},
     .waits = true},
    {.name = "group_heard",
     .parties = {{watch_group, NULL}, {use_group, NULL}},
     .waits = true},
    {.name = "partition",
     .parties = {{use_partition, "a"}, {use_partition, "b"}}},
    {.name = "partition_shared",
     .parties = {{share_partition, "a"}, {get_part, "b"}},
     .waits = true},
    {.name = "persistent_node",
     .parties = {{keep_node, NULL}, {keep_node, NULL}}},
    {.name = "queue",
     .parties = {{put_items, NULL}, {take_item, NULL}, {take_item, NULL}},
     .waits = true,
     .finally = see_items},
    {.name = "queue_back",
     .parties = {{put_items, NULL}, {give_back, NULL}, {take_item, NULL}},
     .waits = true,
     .finally = see_items},
    {.name = "counter",
     .parties = {{count_up, NULL}, {count_up, NULL}},
     .finally = see_count},
    {.name = "two_phase",
     .parties = {{take_part, "bank"}, {take_part, "shop"}, {take_part, NULL}},
     .waits = true,
     .setup = begin_sale},
    {.name = "two_phase_refused",
     .parties = {{take_part, "bank"}, {refuse, "shop"}, {take_part, NULL}},
     .waits = true,
     .setup = begin_sale},
    {.name = "two_phase_rows", /* the bank's next process */
     .parties = {{take_part_in_sale, "bank"},
                 {take_part_in_sale, "shop"},
                 {take_part_in_sale, "bank"}},
     .waits = true,
     .setup = begin_lasting_sale,
     .finally = see_sale},
    {.name = "two_phase_rows_gone",
     .parties = {{take_part_in_sale, "bank"},
                 {take_part_in_sale, "shop"},
                 {take_part_in_sale, "bank"}},
     .waits = true,
     .setup = begin_sale,
     .finally = see_sale},
    {.name = "two_phase_rows_refused",
     .parties = {{take_part_in_sale, "bank"},
                 {refuse_sale, "shop"},
                 {take_part_in_sale, "bank"}},
     .waits = true,
     .setup = begin_lasting_sale,
     .finally = see_sale},
    {.name = "names",
     .parties = {{use_name, NULL}, {use_name, NULL}},
     .setup = prepare_names,
     .finally = see_first},
    {.name = "names_awaited",
     .parties = {{bind_name, NULL}, {bind_name, NULL}, {await_name, NULL}},
     .one_ends = true,
     .finally = see_last},
    {.name = "config",
     .parties = {{write_config, NULL}, {read_config, NULL}},
     .waits = true,
     .finally = see_value},
    {.name = "config_heard",
     .parties = {{rewrite_config, NULL}, {follow_config, NULL}},
     .waits = true},
    {.name = "lock_stolen",
     .parties = {{hold_till_lost, "/a"},
                 {steal_lock, "/a"},
                 {work_in_turn, "/a"}},
     .waits = true,
     .reaches = "stolen",
     .setup = prepare_work},
    {.name = "lock_broken",
     .parties = {{hold_a_while, "/a"}, {break_lock, "/a"}, {use_lock, "/a"}},
     .waits = true,
     .reaches = "broken",
     .setup = prepare_work},
    {.name = "lock_by_hand",
     .parties = {{lock_by_hand, "/a"},
                 {lock_by_hand, "/a"},
                 {delete_first, "/a"}},
     .reaches = "deleted",
     .setup = prepare_work},
    {.name = "semaphore_by_hand",
     .parties = {{semaphore_by_hand, NULL},
                 {semaphore_by_hand, NULL},
                 {delete_first, "/sem"}},
     .reaches = "deleted",
     .setup = prepare_work},
    {.name = "semaphore_robbed",
     .parties = {{semaphore_by_hand, NULL}, {delete_first, "/sem"}},
     .setup = prepare_work},
    {.name = "election_by_hand",
     .parties = {{election_by_hand, NULL},
                 {election_by_hand, NULL},
                 {delete_first, "/election"}},
     .reaches = "deleted",
     .setup = prepare_work},
    {.name = "persistent_node_by_hand",
     .parties = {{keep_node_by_hand, NULL}, {delete_node, NULL}},
     .waits = true},
    {.name = "rwlock_upgrade",
     .parties = {{upgrade, NULL}, {upgrade, NULL}, {use_rwlock, NULL}},
     .reaches = "upgraded"},
    {.name = "rwlock_revoked",
     .parties = {{comply, NULL}, {revoke, NULL}, {use_rwlock, "w"}},
     .waits = true},
    {.name = "rwlock_taken_away",
     .parties = {{insist, NULL}, {revoke, "insists"}},
     .waits = true,
     .timeouts = true},
    {.name = "semaphore_raised",
     .parties = {{keep_permit, NULL}, {keep_permit, NULL}, {raise_limit, NULL}},
     .waits = true,
     .setup = prepare_one},
    {.name = "semaphore_lowered",
     .parties = {{use_lowered, NULL}, {use_lowered, NULL}, {lower_limit, NULL}},
     .reaches = "late",
     .setup = prepare_two},
    {.name = "election_handed",
     .parties = {{hand_over, "a"}, {lead_once, "b"}, {lead_once, "heir"}},
     .reaches = "handed over"},
    {.name = "queue_returned",
     .parties = {{claim_and_return, NULL}, {take_returned, NULL}},
     .reaches = "returned",
     .setup = prepare_item,
     .finally = see_item},
    {.name = "queue_delayed",
     .parties = {{claim_and_return, "later"}, {take_returned, NULL}},
     .reaches = "returned",
     .timeouts = true,
     .wall = true,
     .setup = prepare_item,
     .finally = see_item},
    {.name = "config_versions",
     .parties = {{count_in_config, "a"}, {count_in_config, "b"}},
     .setup = prepare_number,
     .finally = see_number},
    {.name = "two_phase_coordinator",
     .parties = {{coordinate, NULL},
                 {answer_coordinator, "bank"},
                 {answer_coordinator, "shop"}},
     .waits = true,
     .reaches = "acknowledged by all",
     .finally = see_no_sale},
    {.name = "double_barrier_rounds",
     .parties = {{take_two_rounds, NULL}, {take_two_rounds, NULL}},
     .waits = true,
     .timeouts = true},
    /* Each run waits for the end of the period of the one before. */
    {.name = "periodic",
     .parties = {{run_job, NULL}, {run_job, NULL}, {run_job, NULL}},
     .timeouts = true,
     .wall = true,
     .finally = see_run}};

const int uses_count = sizeof uses / sizeof uses[0];
