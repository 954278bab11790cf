/* test_dispatch_failures.c - what a recipe does when zke_dispatch() fails
 *
 * A foreign writer holds SQLite's lock, the disk is full, or the reply to a
 * read is lost, when an object's turn comes.  Once the obstacle is gone, a
 * later dispatch does the step that failed, without a call on the object.  No
 * call overruns its deadline because of it (support.h; zke_call_at()).
 */
#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "recipes/config.h"
#include "recipes/double_barrier.h"
#include "recipes/election.h"
#include "recipes/group.h"
#include "recipes/lock.h"
#include "recipes/partition.h"
#include "recipes/persistent_node.h"
#include "recipes/queue.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "test/opened.h"
#include "test/seam.h"

static zke *z, *other;

/* ---- obstacles ---- */

static sqlite3 *writer;

/* The disk is full for the log, while a test asks for that. */
static seam disk = {
    .vfs = "disk",
    .fail = {[SEAM_xWrite] = {SQLITE_FULL, .opened_as = SQLITE_OPEN_WAL}}};

enum { WRITER, DISK, READ, OBSTACLES };

/* From now on writes or reads fail: by a full disk, a lost reply, or an open
 * write transaction. */
static void obstruct(int obstacle) {
  if (obstacle == DISK) {
    seam_fail(&disk, SEAM_xWrite, true);
  } else if (obstacle == READ) {
    ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_READ, 0));
  } else {
    ck_assert_int_eq(sqlite3_exec(writer, "BEGIN IMMEDIATE", 0, 0, 0),
                     SQLITE_OK);
  }
}

static void clear(int obstacle) {
  seam_fail(&disk, SEAM_xWrite, false);
  ck_ok(zke_test_fail(z, 0, 0));
  if (obstacle != WRITER) return;
  ck_assert_int_eq(sqlite3_exec(writer, "ROLLBACK", 0, 0, 0), SQLITE_OK);
}

/* z has this busy timeout, in ms; the other session's only obstacle is the
 * writer. */
static void begin(int64_t busy_ms) {
  zke_options o = {
      .size = sizeof o, .busy_timeout_ms = busy_ms, .vfs = seam_vfs(&disk)};
  ck_ok(zke_open(test_path("a.db"), &o, &z));
  other = test_open(test_path("a.db"));
  ck_assert_int_eq(sqlite3_open(test_path("a.db"), &writer), SQLITE_OK);
  sqlite3_busy_timeout(writer, 10000); /* the other may be writing */
}

static int64_t soon(zke *of) { return zke_now(of) + 10000; }

/* ---- a table: what waits, and for what ---- */

typedef struct family {
  const char *name;
  void (*start)(void);   /* z's object waits, or watches */
  void (*provoke)(void); /* the other gives it its turn, or news */
  bool (*arrived)(void); /* it has made its step */
  void (*end)(void);
} family;

static int heard; /* what listeners were told */

/* Delete the holder's znode, as its death would.  A release would make the
 * write that these tests need for the next in line (line.h: a grant). */
static void take_away(const char *directory) {
  ck_ok(zke_lock_break(other, directory, 0));
}

static zke_lock *lock, *held_lock;
static void lock_start(void) {
  ck_ok(zke_lock_new(z, "/l", NULL, &lock));
  ck_ok(zke_lock_new(other, "/l", NULL, &held_lock));
  ck_ok(zke_lock_acquire(held_lock, soon(other)));
  ck_ok(zke_lock_start(lock));
}
static void lock_provoke(void) { take_away("/l"); }
static bool lock_arrived(void) { return zke_lock_state(lock) == ZKE_LOCK_HELD; }
static void lock_end(void) {
  zke_lock_free(lock);
  zke_lock_free(held_lock);
}

static zke_rwlock *rwlock, *held_rwlock;
static void rwlock_start(void) {
  ck_ok(zke_rwlock_new(z, "/rw", NULL, &rwlock));
  ck_ok(zke_rwlock_new(other, "/rw", NULL, &held_rwlock));
  ck_ok(zke_rwlock_acquire(held_rwlock, ZKE_RWLOCK_WRITE, soon(other)));
  ck_ok(zke_rwlock_start(rwlock, ZKE_RWLOCK_READ));
}
static void rwlock_provoke(void) { take_away("/rw"); }
static bool rwlock_arrived(void) { return zke_rwlock_token(rwlock) != 0; }
static void rwlock_end(void) {
  zke_rwlock_free(rwlock);
  zke_rwlock_free(held_rwlock);
}

static zke_semaphore *semaphore, *held_semaphore;
/* The other session holds all permits; z's object waits for them. */
static void semaphore_start(void) {
  zke_semaphore_options o = {.size = sizeof o, .limit = 2};
  ck_ok(zke_semaphore_new(z, "/s", &o, &semaphore));
  ck_ok(zke_semaphore_new(other, "/s", &o, &held_semaphore));
  ck_ok(zke_semaphore_acquire(held_semaphore, 2, soon(other)));
  ck_ok(zke_semaphore_start(semaphore, 2));
}
static void semaphore_provoke(void) {
  ck_ok(zke_semaphore_release(held_semaphore));
}
static bool semaphore_arrived(void) {
  return zke_semaphore_token(semaphore) != 0;
}
static void semaphore_end(void) {
  zke_semaphore_free(semaphore);
  zke_semaphore_free(held_semaphore);
}

static zke_election *election, *leading;
static void election_start(void) {
  ck_ok(zke_election_new(z, "/e", NULL, &election));
  ck_ok(zke_election_new(other, "/e", NULL, &leading));
  ck_ok(zke_election_lead(leading, soon(other)));
  ck_ok(zke_election_start(election));
}
static void election_provoke(void) { ck_ok(zke_election_resign(leading)); }
static bool election_arrived(void) { return zke_election_token(election) != 0; }
static void election_end(void) {
  zke_election_free(election);
  zke_election_free(leading);
}

static zke_persistent_node *node;
static void node_start(void) {
  ck_ok(
      zke_create(other, "/n", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_persistent_node_new(z, "/n", "v", 1, NULL, &node));
  ck_ok(zke_persistent_node_start(node));
}
static void node_provoke(void) { ck_ok(zke_delete(other, "/n", -1)); }
static bool node_arrived(void) { return zke_persistent_node_token(node) != 0; }
static void node_end(void) { zke_persistent_node_free(node); }

static zke_double_barrier *barrier, *second;
static void barrier_start(void) {
  ck_ok(zke_double_barrier_new(z, "/d", 2, NULL, &barrier));
  ck_ok(zke_double_barrier_new(other, "/d", 2, NULL, &second));
  ck_ok(zke_double_barrier_start(barrier, NULL, 0));
}
static void barrier_provoke(void) {
  ck_ok(zke_double_barrier_start(second, NULL, 0));
}
static bool barrier_arrived(void) {
  return zke_double_barrier_state(barrier) == ZKE_DOUBLE_BARRIER_INSIDE;
}
static void barrier_end(void) {
  zke_double_barrier_free(barrier);
  zke_double_barrier_free(second);
}

static zke_queue *queue, *filling;
static void queue_told(zke_queue *q, int event, int64_t token, const char *name,
                       void *context) {
  (void)q, (void)event, (void)token, (void)name, (void)context;
  heard++;
}
static void queue_start(void) {
  zke_queue_options o = {.size = sizeof o, .listener = queue_told};
  ck_ok(zke_queue_new(z, "/q", &o, &queue));
  ck_ok(zke_queue_new(other, "/q", NULL, &filling));
  ck_ok(zke_queue_start(queue, ZKE_QUEUE_ITEM));
}
/* Put an item that another queue takes before this one looks: this one keeps
 * waiting. */
static void queue_provoke(void) {
  zke_queue_item *item = NULL;
  ck_ok(zke_queue_put(filling, "x", 1, NULL, soon(other)));
  ck_ok(zke_queue_take(filling, soon(other), &item));
  zke_free(item);
}
static bool queue_arrived(void) {
  static bool put;
  if (!put) ck_ok(zke_queue_put(filling, "y", 1, NULL, soon(other)));
  put = true;
  return heard > 0;
}
static void queue_end(void) {
  zke_queue_free(queue);
  zke_queue_free(filling);
}

static zke_config *config;
static void config_told(zke_config *c, int event, const zke_config_node *before,
                        const zke_config_node *now, void *context) {
  (void)c, (void)event, (void)before, (void)now, (void)context;
  heard++;
}
static void config_start(void) {
  zke_config_options o = {.size = sizeof o, .listener = config_told};
  ck_ok(zke_create(other, "/c", "1", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_ok(zke_config_new(z, "/c", &o, &config));
  ck_ok(zke_config_start(config));
  heard = 0;
}
static void config_provoke(void) {
  ck_ok(zke_set(other, "/c", "2", 1, -1, NULL));
}
static bool heard_any(void) { return heard > 0; }
static void config_end(void) { zke_config_free(config); }

static zke_group *group, *joining;
static void group_told(zke_group *g, int event, const zke_party *who,
                       void *context) {
  (void)g, (void)event, (void)who, (void)context;
  heard++;
}
static void group_start(void) {
  zke_group_options o = {.size = sizeof o, .listener = group_told};
  ck_ok(zke_group_new(z, "/g", &o, &group));
  ck_ok(zke_group_new(other, "/g", NULL, &joining));
  ck_ok(zke_group_start(group));
  heard = 0;
}
static void group_provoke(void) {
  ck_ok(zke_group_join(joining, "", 0, soon(other)));
}
static void group_end(void) {
  zke_group_free(group);
  zke_group_free(joining);
}

static const family families[] = {
    {"lock", lock_start, lock_provoke, lock_arrived, lock_end},
    {"rwlock", rwlock_start, rwlock_provoke, rwlock_arrived, rwlock_end},
    {"semaphore", semaphore_start, semaphore_provoke, semaphore_arrived,
     semaphore_end},
    {"election", election_start, election_provoke, election_arrived,
     election_end},
    {"node", node_start, node_provoke, node_arrived, node_end},
    {"barrier", barrier_start, barrier_provoke, barrier_arrived, barrier_end},
    {"queue", queue_start, queue_provoke, queue_arrived, queue_end},
    {"config", config_start, config_provoke, heard_any, config_end},
    {"group", group_start, group_provoke, heard_any, group_end}};

enum { FAMILIES = sizeof families / sizeof *families };

/* The turn comes while nothing can be written, and the dispatch that hears of
 * it returns before the obstacle is removed.  The test makes no call on the
 * object. */
TEST_LOOP(goes_on_after_an_obstacle, 0, 2 * OBSTACLES * FAMILIES) {
  const family *f = &families[_i % FAMILIES];
  int obstacle = _i / FAMILIES % OBSTACLES;
  bool waits = _i / FAMILIES / OBSTACLES != 0;
  int64_t deadline;
  begin(20);
  f->start();
  f->provoke();
  obstruct(obstacle);
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_next_deadline(z, &deadline));
  ck_assert_msg(deadline <= zke_now(z) + 3000, "%s", f->name);
  clear(obstacle);
  if (waits)
    ck_until(zke_wait(z, zke_now(z) + 100) <= 0 && f->arrived(), 20000);
  else
    ck_until(zke_dispatch(z, NULL) == ZKE_OK && f->arrived(), 20000);
  f->end();
}

/* ---- time ---- */

/* While the obstacle lasts, each retry comes later than the one before, and
 * none is due immediately: a program that goes by zke_next_deadline() does not
 * spin. */
TEST(pauses_grow) {
  int64_t deadline = 0, longest = 0;
  begin(20);
  lock_start();
  lock_provoke();
  obstruct(DISK);
  for (int i = 0; i < 12 && longest < 100; i++) {
    ck_ok(zke_dispatch(z, NULL));
    ck_ok(zke_next_deadline(z, &deadline));
    ck_assert_int_ne(deadline, ZKE_FOREVER);
    if (deadline - zke_now(z) > longest) longest = deadline - zke_now(z);
    zke_sleep(z, deadline);
  }
  ck_assert_int_ge(longest, 50);
  ck_assert(!lock_arrived());
  clear(DISK);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && lock_arrived(), 20000);
  lock_end();
}

/* When the holder has gone, a foreign writer comes. */
static bool bar_comes = true;
static void bar(zke *of, int type, int state, const char *path, void *context) {
  (void)of, (void)type, (void)state, (void)path, (void)context;
  if (bar_comes) obstruct(WRITER);
}

/* z has a busy timeout of 100 s and stands behind the other in a lock.  When
 * its turn comes, the first watcher that it calls creates the obstacle. */
static char holder[200]; /* the znode in front */

/* A lock of z's that waits for the other session's; z also watches that znode
 * itself. */
static void begin_barred(void) {
  zke_party_list *list = NULL;
  begin(100000);
  ck_ok(zke_lock_new(z, "/l", NULL, &lock));
  ck_ok(zke_lock_new(other, "/l", NULL, &held_lock));
  ck_ok(zke_lock_acquire(held_lock, soon(other)));
  ck_ok(zke_lock_parties(other, "/l", &list));
  snprintf(holder, sizeof holder, "/l/%s", list->data[0].name);
  zke_free(list);
  ck_ok(zke_exists(z, holder, bar, NULL, NULL));
}

static bool over; /* atomic: the call has returned */

static void *dispatch_on(void *arg) {
  (void)arg;
  while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST))
    zke_wait(z, zke_now(z) + 50);
  return NULL;
}

/* Take the lock from the holder once z's lock waits: it then has a watch on the
 * holder's end, besides that of bar(). */
static void *take_away_soon(void *arg) {
  (void)arg;
  zke_watch_list *list = NULL;
  for (bool watched = false; !watched;) {
    if (zke_watches(other, &list) != ZKE_OK) return NULL;
    for (int i = 0; i < list->count; i++)
      watched |= strcmp(list->data[i].path, holder) == 0 &&
                 list->data[i].type == ZKE_WATCH_CHILD;
    zke_free(list);
    if (__atomic_load_n(&over, __ATOMIC_SEQ_CST)) break;
    test_pause();
  }
  zke_lock_break(other, "/l", 0);
  return NULL;
}

/* A call with a deadline is not delayed by the step that a watcher makes for
 * it: on its own thread, or (1) perhaps on another that dispatches. */
TEST_LOOP(deadline_holds_for_a_watchers_step, 0, 2) {
  pthread_t taking, dispatching;
  begin_barred();
  ck_assert_int_eq(pthread_create(&taking, NULL, take_away_soon, NULL), 0);
  if (_i)
    ck_assert_int_eq(pthread_create(&dispatching, NULL, dispatch_on, NULL), 0);
  int64_t now = zke_now(z);
  ck_rc(zke_lock_acquire(lock, now + 1000), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_lt(zke_now(z), now + 50000); /* of 100 s */
  __atomic_store_n(&over, true, __ATOMIC_SEQ_CST);
  pthread_join(taking, NULL);
  if (_i) pthread_join(dispatching, NULL);
  sqlite3_exec(writer, "ROLLBACK", 0, 0, 0); /* if it has begun */
  lock_end();
}

/* Nor is it delayed by another object's step on the same thread. */
TEST(deadline_holds_for_anothers_step) {
  begin_barred();
  ck_ok(zke_lock_start(lock));
  ck_ok(zke_double_barrier_new(z, "/d", 2, NULL, &barrier));
  lock_provoke();
  int64_t now = zke_now(z);
  ck_rc(zke_double_barrier_enter(barrier, NULL, 0, now + 1000, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_assert_int_lt(zke_now(z), now + 50000);
  sqlite3_exec(writer, "ROLLBACK", 0, 0, 0); /* if it has begun */
  bar_comes = false;
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && lock_arrived(), 20000);
  zke_double_barrier_free(barrier);
  lock_end();
}

/* If no call waits on the object, a step waits for the busy timeout, once. */
TEST(dispatch_waits_once) {
  begin(1000);
  lock_start();
  lock_provoke();
  obstruct(WRITER);
  int64_t now = zke_now(z);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_lt(zke_now(z), now + 7000); /* eleven times: 11 s */
  clear(WRITER);
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && lock_arrived(), 20000);
  lock_end();
}

/* … and once in all, not for each object. */
TEST(dispatch_waits_once_for_all) {
  enum { MANY = 40 };
  zke_lock *mine[MANY], *theirs[MANY];
  begin(500);
  for (int i = 0; i < MANY; i++) {
    char path[20];
    snprintf(path, sizeof path, "/l%d", i);
    ck_ok(zke_lock_new(z, path, NULL, &mine[i]));
    ck_ok(zke_lock_new(other, path, NULL, &theirs[i]));
    ck_ok(zke_lock_acquire(theirs[i], soon(other)));
    ck_ok(zke_lock_start(mine[i]));
    take_away(path);
  }
  obstruct(WRITER);
  int64_t now = zke_now(z);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_lt(zke_now(z), now + 10000); /* forty times: 20 s */
  clear(WRITER);
  for (int i = 0; i < MANY; i++) {
    ck_until(zke_dispatch(z, NULL) == ZKE_OK &&
                 zke_lock_state(mine[i]) == ZKE_LOCK_HELD,
             20000);
    zke_lock_free(mine[i]);
    zke_lock_free(theirs[i]);
  }
}

/* An item's claim is overdue, and the step that takes the item waits for a
 * writer: the wait still ends at its deadline. */
TEST(deadline_holds_for_an_overdue_item) {
  static const char *const items[] = {"a", "b"};
  zke_partition_options o = {.size = sizeof o, .release_ms = 20};
  zke_partition *mine, *theirs;
  int64_t due;
  begin(300);
  ck_ok(zke_partition_new(z, "/p", items, 2, &o, &mine));
  ck_ok(zke_partition_new(other, "/p", items, 2, NULL, &theirs));
  ck_ok(zke_partition_start(theirs));
  ck_ok(zke_partition_start(mine));
  ck_ok(zke_partition_due(mine, &due));
  ck_until(zke_now(z) > due, 5000);
  obstruct(WRITER);
  int64_t now = zke_now(z);
  ck_rc(zke_partition_wait(mine, now + 500), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_lt(zke_now(z), now + 10000);
  clear(WRITER);
  ck_ok(zke_partition_wait(mine, soon(z)));
  zke_partition_free(theirs);
  zke_partition_free(mine);
}

/* An object that is freed while a writer blocks it has one grace for all that
 * it gives up. */
TEST(freed_with_much_to_give_up) {
  enum { CLAIMS = 100 };
  zke_queue_item *item = NULL;
  zke_strings *paths = NULL;
  begin(20);
  ck_ok(zke_queue_new(z, "/q", NULL, &queue));
  for (int i = 0; i < CLAIMS; i++) {
    ck_ok(zke_queue_put(queue, "x", 1, NULL, soon(z)));
    ck_ok(zke_queue_claim(queue, soon(z), &item));
    zke_free(item);
  }
  obstruct(WRITER);
  int64_t now = zke_now(z);
  zke_queue_free(queue);
  ck_assert_int_lt(zke_now(z), now + 10000); /* one for each: 20 s */
  clear(WRITER);
  int left = CLAIMS;
  while (left) {
    ck_ok(zke_dispatch(z, NULL));
    ck_ok(zke_ephemerals(other, zke_session_id(z), NULL, &paths));
    left = paths->count;
    zke_free(paths);
  }
}

/* Takes when it is told; the disk is full the first time. */
static void take_told(zke_queue *q, int event, int64_t token, const char *name,
                      void *context) {
  zke_queue_item *item = NULL;
  (void)event, (void)token, (void)name, (void)context;
  if (++heard == 1) obstruct(DISK);
  ck_rc(zke_queue_take(q, 0, &item), heard == 1 ? ZKE_FULL : ZKE_OK);
  zke_free(item);
}

/* How many watches z has. */
static int watched(void) {
  zke_watch_list *list = NULL;
  ck_ok(zke_watches(z, &list));
  int count = 0;
  for (int i = 0; i < list->count; i++)
    count += list->data[i].session == zke_session_id(z);
  zke_free(list);
  return count;
}

/* A try fails inside the listener, and the watches that it needs cannot be set
 * either.  The listener is told nothing until both were done later; then it is
 * told the end of a claim. */
TEST(a_try_that_failed_in_the_listener_is_watched_for_later) {
  zke_queue_options o = {.size = sizeof o, .listener = take_told};
  zke_queue_item *claimed = NULL, *taken = NULL;
  heard = 0;
  begin(20);
  ck_ok(zke_queue_new(z, "/q", &o, &queue));
  ck_ok(zke_queue_new(other, "/q", NULL, &filling));
  ck_ok(zke_queue_start(queue, ZKE_QUEUE_ITEM));
  ck_ok(zke_queue_put(filling, "a", 1, NULL, soon(other)));
  ck_ok(zke_queue_claim(filling, soon(other), &claimed));
  ck_ok(zke_queue_put(filling, "b", 1, NULL, soon(other)));
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && heard, 10000);
  int64_t now = zke_now(z);
  while (zke_now(z) < now + 50) ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(heard, 1);
  clear(DISK);
  /* of "entries", of the claim and of the item that is there */
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && watched() == 3, 10000);
  ck_ok(zke_queue_take(filling, soon(other), &taken));
  for (int i = 0; i < 3; i++) ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(heard, 1);
  ck_ok(zke_queue_release(filling, claimed, 0, NULL));
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && heard == 2, 10000);
  zke_free(claimed);
  zke_free(taken);
  zke_queue_free(queue);
  zke_queue_free(filling);
}

/* ---- the object goes ---- */

static void free_in_listener(zke_lock *l, int state, int64_t token,
                             void *context) {
  (void)token, (void)context;
  if (state == ZKE_LOCK_HELD) zke_lock_free(l);
  if (state == ZKE_LOCK_HELD) heard++;
}

/* Freed before its next try (0), or by its listener during it (1). */
TEST_LOOP(freed_between_two_tries, 0, 2) {
  zke_lock_options o = {.size = sizeof o};
  int64_t deadline;
  begin(20);
  if (_i) o.listener = free_in_listener;
  ck_ok(zke_lock_new(z, "/l", &o, &lock));
  ck_ok(zke_lock_new(other, "/l", NULL, &held_lock));
  ck_ok(zke_lock_acquire(held_lock, soon(other)));
  ck_ok(zke_lock_start(lock));
  lock_provoke();
  obstruct(DISK);
  ck_ok(zke_dispatch(z, NULL));
  clear(DISK);
  if (_i)
    ck_until(zke_dispatch(z, NULL) == ZKE_OK && heard, 20000);
  else
    zke_lock_free(lock);
  ck_ok(zke_next_deadline(z, &deadline)); /* nothing is due */
  ck_assert_msg(deadline > zke_now(z), "a deadline that stays");
  ck_rc(zke_lock_check(held_lock), ZKE_LOST);
  ck_ok(zke_lock_acquire(held_lock, soon(other)));
  zke_lock_free(held_lock);
}

static void told_state(zke_lock *l, int state, int64_t token, void *context) {
  (void)l, (void)token;
  *(int *)context = state;
}

/* The session ends between two tries, while the object has no watch: its
 * listener is still told. */
TEST(session_ends_between_two_tries) {
  int state = 0;
  zke_lock_options o = {
      .size = sizeof o, .listener = told_state, .context = &state};
  begin(20);
  ck_ok(zke_lock_new(z, "/l", &o, &lock));
  ck_ok(zke_lock_new(other, "/l", NULL, &held_lock));
  ck_ok(zke_lock_acquire(held_lock, soon(other)));
  ck_ok(zke_lock_start(lock));
  lock_provoke();
  obstruct(DISK);
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_expire(other, zke_session_id(z)));
  ck_until(zke_dispatch(z, NULL) <= 0 && state == ZKE_LOCK_LOST, 20000);
  seam_fail(&disk, SEAM_xWrite, false);
  lock_end();
}
