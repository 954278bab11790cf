/* test_leftovers.c - znodes that could not be deleted on leaving
 *
 * A foreign writer holds SQLite's lock, or the disk is full, so a participant
 * cannot delete its znode when it is freed, withdraws or releases.  The znode
 * has no effect any more, and goes at the session's next call or dispatch once
 * the obstacle is gone (support.h; zke_discard()).
 */
#include <poll.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recipes/counter.h"
#include "recipes/double_barrier.h"
#include "recipes/election.h"
#include "recipes/group.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/partition.h"
#include "recipes/persistent_node.h"
#include "recipes/queue.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "test/opened.h"
#include "test/seam.h"

static zke *z, *other;
static sqlite3 *writer;

static zke *open_at(const char *name) {
  zke *opened = NULL;
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 20};
  ck_ok(zke_open(test_path(name), &o, &opened));
  return opened;
}

static zke *open_impatient(void) { return open_at("a.db"); }

static void begin_at(const char *name) {
  z = open_at(name);
  other = open_at(name);
  ck_assert_int_eq(sqlite3_open(test_path(name), &writer), SQLITE_OK);
}

static void begin(void) { begin_at("a.db"); }

static void obstruct(void) {
  ck_assert_int_eq(sqlite3_exec(writer, "BEGIN IMMEDIATE", 0, 0, 0), SQLITE_OK);
}

static void clear(void) {
  ck_assert_int_eq(sqlite3_exec(writer, "ROLLBACK", 0, 0, 0), SQLITE_OK);
}

static int64_t soon(zke *of) { return zke_now(of) + test_patience(10000); }

/* ---- the engine ---- */

static void make(const char *path, int mode, char **made, int64_t *czxid) {
  zke_stat stat;
  ck_ok(zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, made, &stat));
  *czxid = stat.czxid;
}

/* The zxid of a change made now. */
static int64_t next_zxid(void) {
  zke_stat stat;
  ck_ok(zke_set(z, "/zxid", "", 0, -1, &stat));
  return stat.mzxid;
}

/* A discard that removes nodes uses one zxid; one that finds no nodes uses
 * none, and writes nothing. */
TEST(discarding_nothing_uses_no_zxid) {
  int64_t czxid;
  begin();
  make("/zxid", ZKE_PERSISTENT, NULL, &czxid);
  make("/s-", ZKE_EPHEMERAL_SEQUENTIAL, NULL, &czxid);
  make("/s-", ZKE_EPHEMERAL_SEQUENTIAL, NULL, &czxid);
  int64_t before = next_zxid();
  ck_ok(zke_discard(z, "/nope", ZKE_EPHEMERAL, 0));
  ck_ok(zke_discard(z, "/nope-", ZKE_EPHEMERAL_SEQUENTIAL, 0));
  ck_assert_int_eq(next_zxid(), before + 1);
  ck_ok(zke_discard(z, "/s-", ZKE_EPHEMERAL_SEQUENTIAL, 0));
  ck_assert_int_eq(next_zxid(), before + 3);
}

/* zke_discard() deletes the session's own ephemeral of that name and czxid, or
 * its own numbered ones, and no similar nodes. */
TEST(discards_own_nodes_only) {
  char *made = NULL, *longer = NULL, *dashed = NULL;
  int64_t czxid, theirs;
  zke_stat stat;
  begin();
  make("/e", ZKE_EPHEMERAL, NULL, &czxid);
  ck_ok(
      zke_create(other, "/o", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, &stat));
  ck_ok(zke_discard(z, "/o", ZKE_EPHEMERAL, 0)); /* another's */
  ck_ok(zke_exists(z, "/o", NULL, NULL, NULL));
  ck_ok(zke_discard(z, "/e", ZKE_EPHEMERAL, czxid - 1)); /* another life */
  ck_ok(zke_exists(z, "/e", NULL, NULL, NULL));
  ck_ok(zke_discard(z, "/e", ZKE_EPHEMERAL, czxid));
  ck_rc(zke_exists(z, "/e", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_discard(z, "/e", ZKE_EPHEMERAL, 0)); /* it is gone */
  make("/s-", ZKE_EPHEMERAL, NULL, &theirs);
  make("/s-x", ZKE_EPHEMERAL, NULL, &theirs);
  make("/s-1", ZKE_EPHEMERAL_SEQUENTIAL, &longer, &theirs);
  make("/s--", ZKE_EPHEMERAL_SEQUENTIAL, &dashed, &theirs);
  make("/s-", ZKE_EPHEMERAL_SEQUENTIAL, &made, &czxid);
  ck_ok(zke_discard(z, "/s-", ZKE_EPHEMERAL_SEQUENTIAL, 0));
  ck_rc(zke_exists(z, made, NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_exists(z, "/s-", NULL, NULL, NULL));
  ck_ok(zke_exists(z, "/s-x", NULL, NULL, NULL));
  ck_ok(zke_exists(z, longer, NULL, NULL, NULL));
  ck_ok(zke_exists(z, dashed, NULL, NULL, NULL));
  for (int i = 0; i < 4; i++) { /* also numbers below zero */
    static const char *const last[] = {"0000000000", "2147483647", "-000000001",
                                       "-2147483648"};
    char path[32];
    snprintf(path, sizeof path, "/n%s", last[i]);
    make(path, ZKE_EPHEMERAL, NULL, &theirs);
    ck_ok(zke_discard(z, "/n", ZKE_EPHEMERAL_SEQUENTIAL, theirs));
    ck_rc(zke_exists(z, path, NULL, NULL, NULL), ZKE_NONODE);
  }
  zke_free(made);
  zke_free(longer);
  zke_free(dashed);
  ck_rc(zke_discard(NULL, "/e", ZKE_EPHEMERAL, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_discard(z, "/e", ZKE_PERSISTENT, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_discard(z, "e", ZKE_EPHEMERAL, 0), ZKE_BADARGUMENTS);
  ck_ok(zke_create(z, "/p", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_discard(z, "/p", ZKE_EPHEMERAL, 0));
  ck_ok(zke_exists(z, "/p", NULL, NULL, NULL));
}

/* Discarded nodes go before any other change of the session; if they cannot,
 * the change fails. */
TEST(changes_wait_for_what_is_discarded) {
  int64_t czxid, deadline;
  begin();
  make("/e", ZKE_EPHEMERAL, NULL, &czxid);
  obstruct();
  ck_rc(zke_discard(z, "/e", ZKE_EPHEMERAL, 0), ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_next_deadline(z, &deadline));
  ck_assert_int_le(deadline, zke_now(z) + 250);
  ck_rc(zke_create(z, "/n", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_exists(z, "/e", NULL, NULL, NULL)); /* reads go on */
  clear();
  make("/n", ZKE_EPHEMERAL, NULL, &czxid);
  ck_rc(zke_exists(other, "/e", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_exists(other, "/n", NULL, NULL, NULL));
}

/* An allocator that holds a thread inside a call until it is released. */
static _Thread_local bool stays;
static atomic_bool inside, let_go;
static atomic_int beside; /* other threads' blocks meanwhile */

/* An allocator that can wait, so that a thread stays inside a call of the
 * handle. */
static void *slow_resize(void *context, void *block, size_t size) {
  (void)context;
  if (inside && !let_go && !stays && size) beside++;
  if (stays) inside = true;
  while (stays && !let_go) test_pause();
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

/* A thread that waits inside zke_children(). */
static void *list_slowly(void *arg) {
  zke_strings *names = NULL;
  stays = true;
  int rc = zke_children(z, "/", NULL, NULL, &names, NULL);
  zke_free(names);
  *(int *)arg = rc;
  return NULL;
}

/* zkembed.h: while another thread has the store, zke_discard() notes what must
 * go, and uses the allocator in parallel with that thread.  If it gives up
 * waiting, the descriptor must report that there is work.  (Once it did
 * not.) */
TEST(noted_beside_another_call) {
  int rc;
  int64_t czxid;
  pthread_t lister;
  struct pollfd p = {.events = POLLIN};
  zke_options o = {.size = sizeof o,
                   .busy_timeout_ms = 20,
                   .allocator = {slow_resize, NULL}};
  ck_ok(zke_open(test_path("a.db"), &o, &z));
  other = open_impatient();
  make("/e", ZKE_EPHEMERAL, NULL, &czxid);
  ck_ok(zke_fd(z, &p.fd));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(poll(&p, 1, 0), 0);
  pthread_create(&lister, NULL, list_slowly, &rc);
  ck_until(inside, 60000);
  ck_rc(zke_discard(z, "/e", ZKE_EPHEMERAL, 0), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(beside, 1);
  ck_assert_int_eq(poll(&p, 1, 0), 1);
  let_go = true;
  pthread_join(lister, NULL);
  ck_ok(rc);
  ck_ok(zke_dispatch(z, NULL));
  ck_rc(zke_exists(other, "/e", NULL, NULL, NULL), ZKE_NONODE);
}

enum { PATIENT_MS = 60000 }; /* the busy timeout of a patient handle */

/* A limit holds for one thread, and does not extend the busy timeout. */
TEST(a_limit_is_a_threads_within_the_busy_timeout) {
  zke_options o = {.size = sizeof o, .busy_timeout_ms = PATIENT_MS};
  zke *y = NULL;
  begin();
  ck_ok(zke_open(test_path("a.db"), &o, &y));
  ck_assert_int_eq(zke_busy_timeout(z), 20);
  ck_assert_int_eq(zke_busy_timeout(y), PATIENT_MS);
  ck_assert_int_eq(zke_busy_timeout(NULL), 0);
  obstruct();
  int64_t now = zke_now(y);
  ck_assert_int_eq(zke_limit(y, now + 30), ZKE_FOREVER);
  ck_rc(zke_create(y, "/n", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL),
        ZKE_OPERATIONTIMEOUT);
  ck_assert_int_lt(zke_now(y), now + PATIENT_MS / 2);
  ck_assert_int_eq(zke_limit(y, ZKE_FOREVER), now + 30);
  clear();
  ck_ok(zke_create(y, "/n", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
}

/* ---- a table: what is held, and how it is given up ---- */

typedef struct family {
  const char *name;
  void (*hold)(void);    /* makes the object, which then holds */
  void (*free_it)(void); /* frees it */
} family;

static zke_lock *lock;
static void lock_hold(void) {
  ck_ok(zke_lock_new(z, "/l", NULL, &lock));
  ck_ok(zke_lock_acquire(lock, soon(z)));
}
static void lock_free_it(void) { zke_lock_free(lock); }

static zke_rwlock *rwlock;
static void rwlock_hold(void) {
  ck_ok(zke_rwlock_new(z, "/rw", NULL, &rwlock));
  ck_ok(zke_rwlock_acquire(rwlock, ZKE_RWLOCK_WRITE, soon(z)));
}
static void rwlock_free_it(void) { zke_rwlock_free(rwlock); }

static zke_multilock *multilock;
static void multilock_hold(void) {
  zke_multilock_item items[] = {{.path = "/a"}, {.path = "/b"}};
  ck_ok(zke_multilock_new(z, items, 2, NULL, &multilock));
  ck_ok(zke_multilock_acquire(multilock, soon(z)));
}
static void multilock_free_it(void) { zke_multilock_free(multilock); }

static zke_semaphore *semaphore;
static void semaphore_hold(void) {
  zke_semaphore_options o = {.size = sizeof o, .limit = 3};
  ck_ok(zke_semaphore_new(z, "/s", &o, &semaphore));
  ck_ok(zke_semaphore_acquire(semaphore, 2, soon(z)));
}
static void semaphore_free_it(void) { zke_semaphore_free(semaphore); }

static zke_election *election;
static void election_hold(void) {
  ck_ok(zke_election_new(z, "/e", NULL, &election));
  ck_ok(zke_election_lead(election, soon(z)));
  ck_ok(zke_election_ready(election));
}
static void election_free_it(void) { zke_election_free(election); }

static zke_group *group;
static void group_hold(void) {
  ck_ok(zke_group_new(z, "/g", NULL, &group));
  ck_ok(zke_group_join(group, "", 0, soon(z)));
}
static void group_free_it(void) { zke_group_free(group); }

static zke_queue *queue;
/* z has a claim on the queue's only item. */
static void queue_hold(void) {
  zke_queue_item *item = NULL;
  ck_ok(zke_queue_new(z, "/q", NULL, &queue));
  ck_ok(zke_queue_put(queue, "x", 1, NULL, soon(z)));
  ck_ok(zke_queue_claim(queue, soon(z), &item));
  zke_free(item);
}
static void queue_free_it(void) { zke_queue_free(queue); }

static zke_counter *counter;
static void counter_hold(void) {
  ck_ok(zke_counter_new(z, "/c", NULL, &counter));
  ck_ok(zke_counter_set(counter, 1, soon(z), NULL));
}
static void counter_free_it(void) { zke_counter_free(counter); }

static zke_double_barrier *barrier;
static void barrier_hold(void) {
  ck_ok(zke_double_barrier_new(z, "/d", 2, NULL, &barrier));
  ck_ok(zke_double_barrier_start(barrier, NULL, 0));
}
static void barrier_free_it(void) { zke_double_barrier_free(barrier); }

static const family families[] = {
    {"lock", lock_hold, lock_free_it},
    {"rwlock", rwlock_hold, rwlock_free_it},
    {"multilock", multilock_hold, multilock_free_it},
    {"semaphore", semaphore_hold, semaphore_free_it},
    {"election", election_hold, election_free_it},
    {"group", group_hold, group_free_it},
    {"queue", queue_hold, queue_free_it},
    {"counter", counter_hold, counter_free_it},
    {"double barrier", barrier_hold, barrier_free_it}};

enum { FAMILIES = sizeof families / sizeof *families };

/* The object is freed while its znode cannot be deleted: the next dispatch or
 * call after the obstacle deletes it, without the object. */
TEST_LOOP(freed_behind_an_obstacle, 0, 2 * FAMILIES) {
  const family *f = &families[_i % FAMILIES];
  begin();
  f->hold();
  ck_assert_msg(test_ephemerals(z, other) > 0, "%s", f->name);
  obstruct();
  f->free_it();
  ck_ok(zke_dispatch(z, NULL));
  clear();
  ck_assert_msg(test_ephemerals(z, other) > 0, "%s", f->name);
  if (_i < FAMILIES) {
    ck_until(zke_dispatch(z, NULL) == ZKE_OK && test_ephemerals(z, other) == 0,
             10000);
  } else {
    int64_t czxid;
    make("/mine", ZKE_EPHEMERAL, NULL, &czxid);
    ck_assert_msg(test_ephemerals(z, other) == 1, "%s", f->name);
  }
}

/* A candidate whose deadline passes while a writer blocks it is not elected
 * afterwards; the next one is. */
TEST(not_elected_after_its_time) {
  zke_election *leader, *late, *next;
  begin();
  zke *third = open_impatient();
  ck_ok(zke_election_new(other, "/e", NULL, &leader));
  ck_ok(zke_election_new(z, "/e", NULL, &late));
  ck_ok(zke_election_new(third, "/e", NULL, &next));
  ck_ok(zke_election_lead(leader, soon(other)));
  ck_ok(zke_election_start(late));
  obstruct();
  ck_rc(zke_election_lead(late, zke_now(z) + 50), ZKE_OPERATIONTIMEOUT);
  clear();
  ck_assert_int_eq(zke_election_token(late), 0);
  ck_ok(zke_election_start(next));
  ck_ok(zke_election_resign(leader));
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && zke_dispatch(third, NULL) == 0 &&
               zke_election_token(next) != 0,
           10000);
  ck_assert_int_eq(zke_election_token(late), 0);
  zke_election_free(leader);
  zke_election_free(late);
  zke_election_free(next);
}

/* ---- a full disk ---- */

static void empty_disk(void) {
  ck_assert_int_eq(unlink(test_path("disk/ballast")), 0);
}

/* Begin with files on a disk of this many KiB, and with nodes for fill();
 * false: no such disk is possible. */
static bool begin_on_disk(int kib) {
  if (!test_small_disk("disk", kib)) return false;
  begin_at("disk/a.db");
  ck_ok(zke_create(z, "/large", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, 0, 0));
  ck_ok(zke_create(z, "/small", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, 0, 0));
  return true;
}

/* Fill the disk until no change succeeds: no large one, for which the database
 * has no room, and not the smallest, for which the log still has room from
 * earlier changes.  False: that cannot be known now. */
static bool fill(void) {
  static char data[20000];
  int rc;
  test_fill_disk(test_path("disk/ballast"));
  do {
    rc = zke_set(other, "/large", data, sizeof data, -1, NULL);
  } while (rc == ZKE_OK);
  if (rc == ZKE_FULL) {
    do {
      rc = zke_set(other, "/small", "", 0, -1, NULL);
    } while (rc == ZKE_OK);
  }
  if (rc != ZKE_FULL) empty_disk();
  return rc == ZKE_FULL;
}

/* ---- the queue ---- */

/* Can another get the item, or (last) is it a dead letter? */
static bool is_given_back(zke_queue *theirs, bool last, zke_queue_item **out) {
  zke_queue_counts c;
  ck_ok(zke_dispatch(z, NULL));
  if (zke_queue_claim(theirs, 0, out) == ZKE_OK) return !last;
  ck_ok(zke_queue_size(theirs, &c));
  return last && c.dead == 1;
}

/* An item cannot be returned, or not buried: the claim is given up, and the
 * item is available again as soon as that can be written.
 *
 *   _i & 1  the disk is full; else a writer blocks
 *   _i & 2  it was the last attempt */
TEST_LOOP(given_back_behind_an_obstacle, 0, 4) {
  zke_queue_options o = {.size = sizeof o, .attempts = _i & 2 ? 1 : 2};
  zke_queue *theirs;
  zke_queue_item *item = NULL, *again = NULL;
  bool full = _i & 1;
  if (!full)
    begin();
  else if (!begin_on_disk(4096))
    return;
  ck_ok(zke_queue_new(z, "/q", &o, &queue));
  ck_ok(zke_queue_new(other, "/q", NULL, &theirs));
  ck_ok(zke_queue_put(queue, "x", 1, NULL, soon(z)));
  ck_ok(zke_queue_claim(queue, soon(z), &item));
  if (full)
    ck_assert(fill());
  else
    obstruct();
  ck_rc(zke_queue_release(queue, item, 0, NULL),
        full ? ZKE_FULL : ZKE_OPERATIONTIMEOUT);
  full ? empty_disk() : clear();
  ck_rc(zke_queue_check(queue, item), ZKE_LOST);
  ck_until(is_given_back(theirs, _i & 2, &again), 10000);
  ck_rc(zke_queue_release(queue, item, 0, NULL), ZKE_LOST);
  zke_free(again);
  zke_free(item);
  zke_queue_free(theirs);
  zke_queue_free(queue);
}

static int told;    /* of an item */
static bool greedy; /* the listener tries by itself, first behind an obstacle */
static zke_queue_item *got; /* the item that it got */

/* A listener that claims when it hears of an item, behind an obstacle if the
 * test asks for that. */
static void hear(zke_queue *of, int event, int64_t token, const char *name,
                 void *context) {
  (void)token;
  (void)name;
  (void)context;
  if (event == ZKE_QUEUE_ITEM && ++told == 1 && greedy) obstruct();
  if (greedy) zke_queue_claim(of, 0, &got);
  if (told == 1 && greedy) clear();
}

/* Open sessions, an item, and a listener that will hear of it. */
static zke_queue *begin_listening(void) {
  zke_queue_options o = {.size = sizeof o, .listener = hear};
  zke_queue *theirs;
  begin();
  ck_ok(zke_queue_new(z, "/q", &o, &queue));
  ck_ok(zke_queue_new(other, "/q", NULL, &theirs));
  ck_ok(zke_queue_start(queue, ZKE_QUEUE_ITEM));
  ck_ok(zke_queue_put(theirs, "x", 1, NULL, soon(other)));
  return theirs;
}

static void end_listening(zke_queue *theirs) {
  ck_assert_ptr_nonnull(got);
  zke_free(got);
  zke_queue_free(theirs);
  zke_queue_free(queue);
}

/* A try that fails because the database is busy does not end the wait: the item
 * is still there, so the listener is told again. */
TEST(a_take_that_failed_is_told_again) {
  zke_queue *theirs = begin_listening();
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && told == 1, 10000);
  obstruct();
  ck_rc(zke_queue_claim(queue, 0, &got), ZKE_OPERATIONTIMEOUT);
  clear();
  ck_assert_int_eq(told, 2);
  ck_ok(zke_queue_claim(queue, 0, &got));
  end_listening(theirs);
}

/* If the listener made the try, the dispatch returns, and the listener is told
 * again at the next step, or the next put. */
TEST_LOOP(a_try_of_the_listener_that_failed_is_told_later, 0, 2) {
  zke_queue *theirs = begin_listening();
  greedy = true;
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && told > 0, 10000);
  ck_assert_int_eq(told, 1);
  ck_assert_ptr_null(got);
  if (_i) {
    ck_ok(zke_queue_put(theirs, "y", 1, NULL, soon(other)));
    ck_until(zke_dispatch(z, NULL) == ZKE_OK && told == 2, 10000);
  } else {
    ck_ok(zke_queue_step(queue));
    ck_assert_int_eq(told, 2);
  }
  end_listening(theirs);
}

/* ---- releasing, waiting ---- */

/* After a failed release the lock is not held, and no call on the object is
 * needed. */
TEST(released_behind_an_obstacle) {
  zke_lock *second;
  begin();
  lock_hold();
  ck_ok(zke_lock_new(other, "/l", NULL, &second));
  ck_rc(zke_lock_try(second), ZKE_HELD);
  obstruct();
  ck_rc(zke_lock_release(lock), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(zke_lock_state(lock), ZKE_LOCK_OUT);
  clear();
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && zke_lock_try(second) == ZKE_OK,
           10000);
  zke_lock_free(second);
  zke_lock_free(lock);
}

static int only_read(void) { return zke_exists(z, "/l", NULL, NULL, NULL); }
static int only_dispatch(void) { return zke_dispatch(z, NULL) < 0; }
static int only_wait(void) {
  return zke_wait(z, 0) == ZKE_OPERATIONTIMEOUT ? ZKE_OK : 1;
}
static int release_again(void) {
  return zke_lock_release(lock) == ZKE_LOST ? ZKE_OK : 1;
}
static int check_only(void) {
  return zke_lock_check(lock) == ZKE_LOST ? ZKE_OK : 1;
}

/* An obstacle makes a release fail; then the clock is stopped. */
static void release_in_vain(void) {
  begin();
  ck_ok(zke_close(z));
  static seam s;
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 20, .os = seam_os(&s)};
  ck_ok(zke_open(test_path("a.db"), &o, &z));
  lock_hold();
  obstruct();
  ck_rc(zke_lock_release(lock), ZKE_OPERATIONTIMEOUT);
  seam_stand();
}

/* zke_discard(): each call of the session tries again, however soon after a
 * failed one.  Here no time passes between them. */
TEST_LOOP(gone_with_the_next_call, 0, 5) {
  int (*const calls[])(void) = {only_read, only_dispatch, only_wait,
                                release_again, check_only};
  zke_lock *second;
  release_in_vain();
  ck_ok(zke_lock_new(other, "/l", NULL, &second));
  for (int i = 0; i < 3; i++) ck_ok(zke_dispatch(z, NULL));
  clear();
  ck_ok(calls[_i]());
  ck_ok(zke_lock_try(second));
  zke_lock_free(second);
  zke_lock_free(lock);
}

/* A dispatch waits for the other writer when its try is due.  Reads that fail
 * before do not delay that; else the try would never come in a program that
 * reads often. */
TEST(reads_do_not_put_off_the_next_try) {
  int64_t due, later;
  release_in_vain();
  ck_ok(only_read()); /* the pause may be over when the clock stops */
  ck_ok(zke_next_deadline(z, &due));
  for (int i = 0; i < 5; i++) ck_ok(only_read());
  ck_ok(zke_next_deadline(z, &later));
  ck_assert_int_eq(later, due);
  clear();
  zke_lock_free(lock);
}

/* ---- rounds that cannot be left ---- */

/* What keeps a member in its round, and the code of a leave then. */
typedef struct obstacle {
  bool disk;
  int code;
} obstacle;
static const obstacle obstacles[] = {{false, ZKE_OPERATIONTIMEOUT},
                                     {true, ZKE_FULL}};

static bool begin_with(const obstacle *o) {
  if (o->disk) return begin_on_disk(32768);
  begin();
  return true;
}

/* False: another connection is writing. */
static bool come_between(const obstacle *o) {
  if (o->disk) return fill();
  return sqlite3_exec(writer, "BEGIN IMMEDIATE", 0, 0, 0) == SQLITE_OK;
}

static void go_away(const obstacle *o) {
  if (o->disk)
    empty_disk();
  else
    clear();
}

/* z only dispatches, and makes no call on an object. */
static void wait_until_gone(void) {
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && test_ephemerals(z, other) == 0,
           10000);
}

static int leave_by(bool start) {
  return start ? zke_double_barrier_leave_start(barrier)
               : zke_double_barrier_leave(barrier, zke_now(z) + 50);
}

/* A member that cannot leave is out, and the others see it as dead: they get
 * out as soon as its znode is gone. */
TEST_LOOP(round_is_not_left, 0, 4) {
  const obstacle *o = &obstacles[_i % 2];
  zke_double_barrier *second;
  if (!begin_with(o)) return;
  barrier_hold();
  ck_ok(zke_double_barrier_new(other, "/d", 2, NULL, &second));
  ck_ok(zke_double_barrier_enter(second, NULL, 0, soon(other), NULL));
  ck_ok(zke_double_barrier_enter(barrier, NULL, 0, soon(z), NULL));
  ck_assert(come_between(o));
  ck_rc(leave_by(_i / 2), o->code);
  ck_assert_int_eq(zke_double_barrier_state(barrier), ZKE_DOUBLE_BARRIER_OUT);
  go_away(o);
  wait_until_gone();
  ck_rc(zke_double_barrier_leave(second, soon(other)), ZKE_BROKEN);
  ck_rc(zke_double_barrier_leave(barrier, 0), ZKE_LOST);
  ck_ok(zke_double_barrier_start(barrier, NULL, 0));
  ck_ok(zke_double_barrier_enter(second, NULL, 0, soon(other), NULL));
  zke_double_barrier_free(second);
  zke_double_barrier_free(barrier);
}

/* An obstacle that comes at the n-th reading of the clock by a session; each
 * call reads it. */
static struct {
  const obstacle *o; /* NULL: none */
  long calls;        /* until it comes */
  bool came;
} coming;

/* A clock at whose chosen reading an obstacle comes, which reads the clock
 * too. */
static void before_look(seam_call *c) {
  const obstacle *o = coming.o;
  (void)c;
  if (!o || --coming.calls > 0) return;
  coming.o = NULL; /* it reads the clock too */
  coming.came = come_between(o);
  if (!coming.came) coming.o = o;
}

/* A handle with that clock and a short busy timeout. */
static zke *open_watched_clock(const char *db) {
  zke *opened = NULL;
  static seam s = {.before = {[SEAM_clock] = before_look}};
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 20, .os = seam_os(&s)};
  ck_ok(zke_open(test_path(db), &o, &opened));
  return opened;
}

static int met;
static void count_meetings(zke_double_barrier *m, int event, int64_t token,
                           void *context) {
  (void)m, (void)token, (void)context;
  met += event == ZKE_DOUBLE_BARRIER_ENTERED;
}

static zke_double_barrier *meeting, *second, *third;

/* One meeting of z with the second, obstructed before its n-th call; then one
 * of the others.  Returns the number of calls. */
static long meet_obstructed(const obstacle *o, long n) {
  ck_ok(zke_double_barrier_start(meeting, "a", 1));
  ck_ok(zke_double_barrier_meet(second, "b", 1, soon(other), NULL, NULL));
  coming.o = o;
  coming.calls = n;
  coming.came = false;
  zke_double_barrier_meet(meeting, NULL, 0, zke_now(z), NULL, NULL);
  coming.o = NULL;
  if (coming.came) go_away(o);
  ck_until(zke_double_barrier_step(meeting) == ZKE_OK &&
               zke_dispatch(z, NULL) == ZKE_OK &&
               test_ephemerals(z, other) == 0,
           10000);
  ck_ok(zke_double_barrier_start(second, "b", 1));
  ck_ok(zke_double_barrier_meet(third, "c", 1, soon(other), NULL, NULL));
  ck_ok(zke_double_barrier_enter(second, NULL, 0, soon(other), NULL));
  ck_ok(zke_double_barrier_leave(second, soon(other)));
  return n - coming.calls;
}

/* A meeting that cannot be left is over, and does not delay the next one.  The
 * obstacle comes before calls from its last back to the one that begins it. */
TEST_LOOP(meeting_is_not_left, 0, 2) {
  const obstacle *o = &obstacles[_i];
  zke_double_barrier_options heard = {.size = sizeof heard,
                                      .listener = count_meetings};
  if (!begin_with(o)) return;
  ck_ok(zke_close(z));
  z = open_watched_clock(o->disk ? "disk/a.db" : "a.db");
  ck_ok(zke_double_barrier_new(z, "/r", 2, &heard, &meeting));
  ck_ok(zke_double_barrier_new(other, "/r", 2, NULL, &second));
  ck_ok(zke_double_barrier_new(other, "/r", 2, NULL, &third));
  long calls = meet_obstructed(o, 1000000);
  for (int before = 0; before < met && calls > 0; calls -= o->disk ? 7 : 3) {
    before = met;
    meet_obstructed(o, calls);
  }
  zke_double_barrier_free(meeting);
  zke_double_barrier_free(second);
  zke_double_barrier_free(third);
}

/* ---- watches that are never dispatched ---- */

static void ignore(zke_lock *l, int state, int64_t token, void *context) {
  (void)l, (void)state, (void)token, (void)context;
}

/* How many events wait for a session. */
static int pending(void) {
  zke_session_list *list = NULL;
  ck_ok(zke_sessions(other, zke_session_id(z), &list));
  int events = list->data[0].events + list->data[0].watches;
  zke_free(list);
  return events;
}

/* After a thousand uses, a handle that is never dispatched has only a few
 * watchers left to remove. */
TEST(nothing_piles_up_without_dispatch) {
  zke_lock_options o = {.size = sizeof o, .listener = ignore};
  begin();
  ck_ok(zke_lock_new(z, "/l", &o, &lock));
  ck_ok(zke_election_new(z, "/e", NULL, &election));
  for (int i = 0; i < 1000; i++) {
    ck_ok(zke_lock_acquire(lock, soon(z)));
    ck_ok(zke_lock_release(lock));
    ck_ok(zke_election_lead(election, soon(z)));
    ck_ok(zke_election_resign(election));
    if (i % 50 == 49) ck_assert_int_lt(pending(), 10);
  }
  zke_lock_free(lock);
  zke_election_free(election);
}

/* ---- one thread, one holder ---- */

static void *acquire_again(void *arg) {
  *(int *)arg = zke_lock_acquire(lock, soon(z));
  return NULL;
}

/* A reentrant lock counts only for the thread that holds it: another thread's
 * acquire is refused. */
TEST(reentrance_is_a_threads) {
  zke_lock_options o = {.size = sizeof o, .reentrant = 1};
  pthread_t thread;
  int rc = 0;
  begin();
  ck_ok(zke_lock_new(z, "/l", &o, &lock));
  ck_ok(zke_lock_acquire(lock, soon(z)));
  ck_ok(zke_lock_acquire(lock, soon(z)));
  ck_assert_int_eq(pthread_create(&thread, NULL, acquire_again, &rc), 0);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(rc, ZKE_MISUSE);
  ck_ok(zke_lock_release(lock));
  ck_ok(zke_lock_check(lock));
  ck_ok(zke_lock_release(lock));
  ck_rc(zke_lock_check(lock), ZKE_LOST);
  zke_lock_free(lock);
}

/* A call with a short deadline on a busy database takes little longer. */
TEST(deadlines_hold) {
  zke_options o = {.size = sizeof o, .busy_timeout_ms = PATIENT_MS};
  zke *y = NULL;
  zke_lock *l = NULL;
  begin();
  ck_ok(zke_open(test_path("a.db"), &o, &y));
  ck_ok(zke_lock_new(y, "/l", NULL, &l));
  ck_ok(zke_lock_acquire(l, soon(y)));
  ck_ok(zke_lock_release(l));
  obstruct();
  int64_t now = zke_now(y);
  ck_rc(zke_lock_acquire(l, now + 100), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_lt(zke_now(y), now + PATIENT_MS / 2);
  clear();
  zke_lock_free(l);
}
