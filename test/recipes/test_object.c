/* test_object.c - what the objects of all recipes promise
 *
 * Each recipe with a blocking call is a row of the table below.  For each:
 *
 * - A listener may free the object while a blocking call runs on it, in that
 *   call's thread or in another that dispatches.  The object is not used
 *   afterwards.
 * - A thread that gives up what another thread waits for ends that wait.
 * - Giving up what an object does not have is ZKE_LOST.
 *
 * - Below a missing chroot nothing can be made, and the sentence says so.
 * - In the function of a batch objects do nothing.
 * - Without an object, or a handle, each function of the recipes' headers is
 *   ZKE_BADARGUMENTS.
 *
 * And for some: a call ends if a listener frees the object before it sleeps;
 * the sleeping call repeats a look that has failed.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
#include "recipes/part/object.h"
#include "recipes/partition.h"
#include "recipes/periodic.h"
#include "recipes/persistent_node.h"
#include "recipes/queue.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "recipes/two_phase.h"
#include "test/seam.h"
#include "test/test.h"

#define TEST_FUNCTION_LIST "recipe_list.h"
#include "test/functions.h"

/* ---- memory that is not used again ---- */

enum { POISON = 0xdd };

typedef struct block {
  struct block *next; /* in the list of released blocks */
  size_t size;
} block;

static block *released;

/* With a sanitizer, release blocks for it to watch. */
static void heap_release(block *b) {
#if TEST_ADDRESS_SANITIZER
  free(b);
#else
  static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
  memset(b + 1, POISON, b->size);
  pthread_mutex_lock(&heap);
  b->next = released;
  released = b;
  pthread_mutex_unlock(&heap);
#endif
}

/* An allocator that keeps and poisons released blocks, to find writes to
 * them. */
static void *heap_resize(void *context, void *old, size_t size) {
  block *b = old ? (block *)old - 1 : NULL, *new_ = NULL;
  (void)context;
  if (size) {
    new_ = malloc(sizeof *new_ + size);
    if (!new_) return NULL;
    new_->size = size;
    if (b) memcpy(new_ + 1, b + 1, b->size < size ? b->size : size);
  }
  if (b) heap_release(b);
  return new_ ? new_ + 1 : NULL;
}

static bool all_poison(const block *b) {
  const unsigned char *byte = (const unsigned char *)(b + 1);
  for (size_t i = 0; i < b->size; i++)
    if (byte[i] != POISON) return false;
  return true;
}

/* Released blocks were not written to.  (No assertion for each byte: Check
 * makes a system call for each.) */
static void heap_check(void) {
  while (released) {
    block *b = released;
    ck_assert_msg(all_poison(b), "written to after it was released");
    released = b->next;
    free(b);
  }
}

/* ---- sessions ---- */

static zke *z, *other;
static atomic_int sleeps; /* how often z's threads have begun to sleep */

static void count_sleep(seam_call *c) {
  if (c->time) atomic_fetch_add(&sleeps, 1);
}

/* Each time with another database. */
static void begin(void) {
  static int databases;
  char name[32];
  snprintf(name, sizeof name, "%d.db", databases++);
  static seam s = {.before = {[SEAM_poll] = count_sleep}};
  zke_options o = {
      .size = sizeof o, .os = seam_os(&s), .allocator = {heap_resize, NULL}};
  ck_ok(zke_open(test_path(name), &o, &z));
  other = test_open(test_path(name));
}

static void end(void) {
  ck_ok(zke_close(other));
  ck_ok(zke_close(z));
  heap_check();
}

static int64_t soon(void) { return zke_now(z) + 10000; }

/* ---- a listener that frees ---- */

static void *object; /* z's */
static void (*free_object)(void *);
static atomic_int armed;     /* calls of the listener count now */
static atomic_int told;      /* how many there were */
static int free_at;          /* which of them frees the object; 0: none */
static atomic_int was_freed; /* it was */

static void heard(void *x) {
  if (!armed || x != object) return;
  if (atomic_fetch_add(&told, 1) + 1 != free_at) return;
  free_object(x);
  was_freed = 1;
}

/* ---- the table ---- */

typedef struct kind {
  const char *name;
  void *(*make)(zke *of);
  void (*free)(void *object);
  int (*begin)(void *object);   /* before the blocking call, or NULL */
  int (*block)(void *object);   /* one call that waits at most ten seconds */
  int (*give_up)(void *object); /* or NULL */
  void (*before)(void);         /* by the other session: makes it wait, or
                                   NULL */
  void (*nudge)(void);          /* and then ends that */
  void (*after)(void);          /* cleans up, or NULL */
} kind;

static const kind *current;
static void *theirs;

/* The other session holds what the call waits for, and gives it up. */
static void others_take(void) {
  theirs = current->make(other);
  ck_ok(current->block(theirs));
}
static void others_give_up(void) { ck_ok(current->give_up(theirs)); }
static void others_free(void) { current->free(theirs); }

/* Listeners, by their parameters. */
#define HEARS(type)                                                      \
  static void hear_##type(zke_##type *o, int what, int64_t n, void *c) { \
    (void)what, (void)n, (void)c;                                        \
    heard(o);                                                            \
  }
#define HEARS_OF(type, thing)                                           \
  static void hear_##type(zke_##type *o, int what, thing *t, void *c) { \
    (void)what, (void)t, (void)c;                                       \
    heard(o);                                                           \
  }
#define HEARS_TEXT(type)                                      \
  static void hear_##type(zke_##type *o, int what, int64_t n, \
                          const char *text, void *c) {        \
    (void)what, (void)n, (void)text, (void)c;                 \
    heard(o);                                                 \
  }

/* An object with a listener, and a call on it that blocks.  In `making` the
 * options are o, the session is of; in `blocking` the object is x. */
#define OBJECT(type, making, blocking)                                    \
  static void *make_##type(zke *of) {                                     \
    zke_##type##_options o = {.size = sizeof o, .listener = hear_##type}; \
    zke_##type *x = NULL;                                                 \
    ck_ok(making);                                                        \
    return x;                                                             \
  }                                                                       \
  static void free_##type(void *x) { zke_##type##_free(x); }              \
  static int block_##type(void *x) { return blocking; }
#define BLOCKS(name, blocking) \
  static int block_##name(void *x) { return blocking; }
#define BEGINS(name, beginning) \
  static int begin_##name(void *x) { return beginning; }
#define GIVES_UP(name, giving) \
  static int give_up_##name(void *x) { return giving; }

HEARS(lock)
OBJECT(lock, zke_lock_new(of, "/lock", &o, &x), zke_lock_acquire(x, soon()))
GIVES_UP(lock, zke_lock_release(x))

HEARS(rwlock)
OBJECT(rwlock, zke_rwlock_new(of, "/rwlock", &o, &x),
       zke_rwlock_acquire(x, ZKE_RWLOCK_WRITE, soon()))
GIVES_UP(rwlock, zke_rwlock_release(x))

HEARS(semaphore)
OBJECT(semaphore, (o.limit = 1, zke_semaphore_new(of, "/semaphore", &o, &x)),
       zke_semaphore_acquire(x, 1, soon()))
GIVES_UP(semaphore, zke_semaphore_release(x))

static const zke_multilock_item items[] = {{"/ma", ZKE_MULTILOCK_LOCK},
                                           {"/mb", ZKE_MULTILOCK_LOCK}};
HEARS(multilock)
OBJECT(multilock, zke_multilock_new(of, items, 2, &o, &x),
       zke_multilock_acquire(x, soon()))
GIVES_UP(multilock, zke_multilock_release(x))

HEARS(persistent_node)
OBJECT(persistent_node,
       zke_persistent_node_new(of, "/persistent", "", 0, &o, &x),
       zke_persistent_node_acquire(x, soon()))
GIVES_UP(persistent_node, zke_persistent_node_release(x))

HEARS(election)
OBJECT(election, zke_election_new(of, "/election", &o, &x),
       zke_election_lead(x, soon()))
GIVES_UP(election, zke_election_resign(x))

static void hear_observer(zke_observer *x, const char *name, int64_t token,
                          const char *value, int len, void *context) {
  (void)name, (void)token, (void)value, (void)len, (void)context;
  heard(x);
}
OBJECT(observer, zke_observer_new(of, "/election", &o, &x),
       zke_observer_wait(x, 1, soon()))
BEGINS(observer, zke_observer_start(x))
static void others_lead(void) {
  theirs = make_election(other);
  ck_ok(zke_election_lead(theirs, soon()));
  ck_ok(zke_election_ready(theirs));
}
static void free_leader(void) { zke_election_free(theirs); }

HEARS_OF(group, const zke_party)
OBJECT(group, zke_group_new(of, "/group", &o, &x), zke_group_wait(x, 1, soon()))
BEGINS(group, zke_group_start(x))
GIVES_UP(group, zke_group_leave(x))
static void others_join(void) {
  theirs = make_group(other);
  ck_ok(zke_group_join(theirs, "", 0, soon()));
}

static const char *const shards[] = {"a", "b", "c"};
static void hear_partition(zke_partition *x, int event, const char *item,
                           int64_t token, void *context) {
  (void)event, (void)item, (void)token, (void)context;
  heard(x);
}
OBJECT(partition, zke_partition_new(of, "/partition", shards, 3, &o, &x),
       zke_partition_wait(x, soon()))
BEGINS(partition, zke_partition_start(x))
GIVES_UP(partition, zke_partition_leave(x))
static void others_divide(void) {
  theirs = make_partition(other);
  ck_ok(zke_partition_start(theirs));
}

HEARS_TEXT(queue)
static int block_take(zke_queue *x) {
  zke_queue_item *item = NULL;
  int rc = zke_queue_take(x, soon(), &item);
  zke_free(item);
  return rc;
}
OBJECT(queue, zke_queue_new(of, "/queue", &o, &x), block_take(x))
BEGINS(queue, zke_queue_start(x, ZKE_QUEUE_ITEM))
static void others_put(void) {
  theirs = make_queue(other);
  ck_ok(zke_queue_put(theirs, "x", 1, NULL, soon()));
}

HEARS(barrier)
OBJECT(barrier, zke_barrier_new(of, "/barrier", &o, &x),
       zke_barrier_wait(x, soon()))
BEGINS(barrier, zke_barrier_start(x))
static void others_set(void) {
  theirs = make_barrier(other);
  ck_ok(zke_barrier_set(theirs, "", 0, soon(), NULL));
}
static void others_remove(void) {
  ck_ok(zke_barrier_remove(theirs, 0, soon()));
}

HEARS(double_barrier)
OBJECT(double_barrier, zke_double_barrier_new(of, "/double", 2, &o, &x),
       zke_double_barrier_enter(x, NULL, 0, soon(), NULL))
GIVES_UP(double_barrier, zke_double_barrier_stop(x))
static void others_start(void) {
  theirs = make_double_barrier(other);
  ck_ok(zke_double_barrier_start(theirs, NULL, 0));
}
BEGINS(leave, zke_double_barrier_enter(x, NULL, 0, soon(), NULL))
BLOCKS(leave, zke_double_barrier_leave(x, soon()))
GIVES_UP(leave, zke_double_barrier_leave(x, 0))
static void others_leave(void) {
  ck_ok(zke_double_barrier_enter(theirs, NULL, 0, soon(), NULL));
  ck_ok(zke_double_barrier_leave_start(theirs));
}

static int block_meet(void *x) {
  zke_party_list *list = NULL;
  int rc = zke_double_barrier_meet(x, "", 0, soon(), &list, NULL);
  zke_free(list);
  return rc;
}
/* A meeting of one party. */
static void *make_alone(zke *of) {
  zke_double_barrier_options o = {.size = sizeof o,
                                  .listener = hear_double_barrier};
  zke_double_barrier *x = NULL;
  ck_ok(zke_double_barrier_new(of, "/alone", 1, &o, &x));
  return x;
}
static void nothing(void) {}

static const char *const sites[] = {"site"};
HEARS_TEXT(two_phase)
static int block_decision(zke_two_phase *x) {
  int decision;
  return zke_two_phase_wait(x, soon(), &decision);
}
OBJECT(two_phase,
       zke_two_phase_begin(of, "/2pc", "tx", "", 0, sites, 1, &o, &x),
       block_decision(x))
static void others_vote(void) {
  zke_two_phase *t = NULL;
  ck_ok(zke_two_phase_open(other, "/2pc", "tx", "site", NULL, &t));
  ck_ok(zke_two_phase_vote(t, ZKE_TWO_PHASE_COMMIT));
  theirs = t;
}
static void free_vote(void) { zke_two_phase_free(theirs); }

static void hear_config(zke_config *x, int event, const zke_config_node *before,
                        const zke_config_node *now, void *context) {
  (void)event, (void)before, (void)now, (void)context;
  heard(x);
}
OBJECT(config, zke_config_new(of, "/config", &o, &x),
       zke_config_wait(x, "a", 0, soon(), NULL))
BEGINS(config, zke_config_start(x))
static void others_configure(void) {
  ck_ok(zke_ensure_path(other, "/config", ZKE_PERSISTENT, soon()));
  ck_ok(zke_create(other, "/config/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
}

static void hear_counter(zke_counter *x, int event, int64_t value,
                         int64_t token, void *context) {
  (void)event, (void)value, (void)token, (void)context;
  heard(x);
}
static int64_t counted;
OBJECT(counter, zke_counter_new(of, "/counter", &o, &x),
       zke_counter_wait(x, counted, soon(), NULL, NULL))
BEGINS(counter, zke_counter_start(x))
static void others_begin_to_count(void) {
  theirs = make_counter(other);
  ck_ok(zke_counter_set(theirs, 1, soon(), &counted));
}
static void others_count(void) {
  ck_ok(zke_counter_add_and_get(theirs, 1, soon(), NULL, NULL));
}

static void hear_periodic(zke_periodic *x, int state, void *context) {
  (void)state, (void)context;
  heard(x);
}
OBJECT(periodic,
       (o.period_ms = 1, zke_periodic_new(of, "/jobs", "job", &o, &x)),
       zke_periodic_acquire(x, soon()))
GIVES_UP(periodic, zke_periodic_release(x, 0))

#define TAKEN(t)                                                       \
  {                                                                    \
#t, make_##t, free_##t, NULL, block_##t, give_up_##t, others_take, \
        others_give_up, others_free                                    \
  }
/* First the rows whose wait ends when another thread gives up. */
static const kind kinds[] = {
    TAKEN(lock),
    TAKEN(rwlock),
    TAKEN(semaphore),
    TAKEN(multilock),
    TAKEN(persistent_node),
    TAKEN(election),
    {"partition", make_partition, free_partition, begin_partition,
     block_partition, give_up_partition, others_divide, others_give_up,
     others_free},
    {"observer", make_observer, free_observer, begin_observer, block_observer,
     NULL, NULL, others_lead, free_leader},
    {"group", make_group, free_group, begin_group, block_group, give_up_group,
     NULL, others_join, others_free},
    {"queue", make_queue, free_queue, begin_queue, block_queue, NULL, NULL,
     others_put, others_free},
    {"barrier", make_barrier, free_barrier, begin_barrier, block_barrier, NULL,
     others_set, others_remove, others_free},
    {"enter", make_double_barrier, free_double_barrier, NULL,
     block_double_barrier, give_up_double_barrier, NULL, others_start,
     others_free},
    {"leave", make_double_barrier, free_double_barrier, begin_leave,
     block_leave, give_up_leave, others_start, others_leave, others_free},
    {"meet", make_double_barrier, free_double_barrier, NULL, block_meet,
     give_up_double_barrier, NULL, others_start, others_free},
    {"two_phase", make_two_phase, free_two_phase, NULL, block_two_phase, NULL,
     NULL, others_vote, free_vote},
    {"config", make_config, free_config, begin_config, block_config, NULL, NULL,
     others_configure, NULL},
    {"counter", make_counter, free_counter, begin_counter, block_counter, NULL,
     others_begin_to_count, others_count, others_free},
    {"meet at once", make_alone, free_double_barrier, NULL, block_meet,
     give_up_double_barrier, NULL, nothing, NULL},
    {"periodic", make_periodic, free_periodic, NULL, block_periodic,
     give_up_periodic, NULL, nothing, NULL},
};

enum { KINDS = sizeof kinds / sizeof *kinds, ENDING = 7 };

/* ---- a call in another thread ---- */

static atomic_bool returned;
static int returned_rc;

static void *run_block(void *arg) {
  (void)arg;
  returned_rc = current->block(object);
  returned = true;
  return NULL;
}

/* The call sleeps, or has returned. */
static pthread_t start_block(void) {
  pthread_t thread;
  int before = sleeps;
  returned = false;
  ck_assert_int_eq(pthread_create(&thread, NULL, run_block, NULL), 0);
  ck_until(sleeps > before || returned, 10000);
  return thread;
}

/* ---- freed by the listener ---- */

enum { MOST = 4 }; /* events, each of which frees the object once */

/* The call ends, well or not, and the object has given up everything.  The
 * listener runs in the blocked thread, or in this one, which dispatches. */
static void free_in_listener(int at, bool dispatches) {
  free_object = current->free;
  free_at = at;
  armed = told = was_freed = 0;
  if (current->before) current->before();
  object = current->make(z);
  if (current->begin) ck_ok(current->begin(object));
  armed = 1;
  pthread_t thread = start_block();
  current->nudge();
  while (dispatches && !returned) {
    ck_ok(zke_dispatch(z, NULL));
    test_pause();
  }
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  armed = 0;
  ck_assert_int_ne(returned_rc, ZKE_RUNTIMEINCONSISTENCY);
  if (current->after) current->after();
  if (!was_freed) current->free(object);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_msg(test_ephemerals(z, other) == 0, "%s: freed at %d",
                current->name, at);
}

/* Every recipe's listener may free its object at any event, in a call or a
 * dispatch: the call ends, and released memory is not written to (the allocator
 * poisons it). */
TEST_LOOP(freed_by_its_listener, 0, KINDS) {
  current = &kinds[_i];
  for (int dispatches = 0; dispatches < 2; dispatches++) {
    was_freed = 1;
    for (int at = 1; at <= MOST && was_freed; at++) {
      begin();
      free_in_listener(at, dispatches);
      end();
    }
  }
}

BLOCKS(two, zke_group_wait(x, 2, soon()))
BLOCKS(other_node, zke_config_wait(x, "b", 0, soon(), NULL))

/* Calls whose first look calls the listener, and that then wait. */
static const kind telling[] = {
    {"observer", make_observer, free_observer, NULL, block_observer, NULL, NULL,
     NULL, NULL},
    {"group", make_group, free_group, NULL, block_two, NULL, others_join, NULL,
     others_free},
    {"config", make_config, free_config, NULL, block_other_node, NULL,
     others_configure, NULL, NULL}};

/* The first look calls the listener before the call sleeps, and the listener
 * frees the object: the call ends instead of sleeping forever. */
TEST_LOOP(freed_before_its_call_sleeps, 0, 3) {
  const kind *k = &telling[_i];
  free_object = k->free;
  free_at = 1;
  begin();
  if (k->before) k->before();
  object = k->make(z);
  current = k;
  armed = 1;
  ck_rc(k->block(object), ZKE_CLOSING);
  armed = 0;
  ck_assert_int_eq(was_freed, 1);
  if (k->after) k->after();
  end();
}

/* ---- a look that fails ---- */

/* An object whose first looks fail. */
typedef struct thing {
  zke_recipe r;
  int failures; /* still to come */
  bool there;
} thing;

static int thing_step(zke_recipe *r) {
  thing *t = (thing *)r;
  if (t->failures > 0) {
    t->failures--;
    return zke_fail(ZKE_OPERATIONTIMEOUT, "not yet");
  }
  t->there = true;
  return ZKE_OK;
}

static int thing_is_there(zke_recipe *r) {
  return ((thing *)r)->there ? ZKE_OK : ZKE_NOT_YET;
}

static const zke_recipe_class thing_class = {.name = "thing",
                                             .step = thing_step};

static void *run_thing(void *arg) {
  zke_recipe *r = arg;
  returned_rc = zke_recipe_enter_by(r, ZKE_FOREVER);
  if (returned_rc == ZKE_OK)
    returned_rc =
        zke_recipe_leave(r, zke_recipe_await(r, thing_is_there, ZKE_FOREVER));
  returned = true;
  return NULL;
}

/* A look that a call on another thread had to make has failed: the sleeping
 * call is woken to repeat it until it succeeds. */
TEST_LOOP(failed_look_is_made_by_who_sleeps, 1, 4) {
  zke_recipe *r = NULL;
  pthread_t thread;
  begin();
  ck_ok(zke_recipe_new(z, "/thing", &thing_class, sizeof(thing), &r));
  ((thing *)r)->failures = _i;
  int before = sleeps;
  returned = false;
  ck_assert_int_eq(pthread_create(&thread, NULL, run_thing, r), 0);
  ck_until(sleeps > before, 10000);
  ck_rc(zke_recipe_step(r), ZKE_OPERATIONTIMEOUT);
  ck_until(returned, 10000);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_ok(returned_rc);
  zke_recipe_free(r);
  end();
}

/* ---- given up ---- */

/* The call ends. */
TEST_LOOP(given_up_by_another_thread, 0, ENDING) {
  current = &kinds[_i];
  begin();
  current->before();
  object = current->make(z);
  if (current->begin) ck_ok(current->begin(object));
  pthread_t thread = start_block();
  ck_ok(current->give_up(object));
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_msg(returned_rc == ZKE_LOST, "%s: %s", current->name,
                zke_error_name(returned_rc));
  current->free(object);
  current->after();
  end();
}

/* Giving up what is not held, or no longer held, is ZKE_LOST for every
 * recipe. */
TEST_LOOP(nothing_to_give_up, 0, KINDS) {
  current = &kinds[_i];
  if (!current->give_up) return;
  begin();
  object = current->make(z);
  ck_rc(current->give_up(object), ZKE_LOST);
  if (current->after == others_free && current->nudge == others_give_up &&
      !current->begin && current->before == others_take) {
    ck_ok(current->block(object));
    ck_ok(current->give_up(object));
    ck_rc(current->give_up(object), ZKE_LOST);
  }
  current->free(object);
  end();
}

/* ---- in the way ---- */

static bool dies; /* this process will die, and keeps what it took */
static int told_by[2];

/* Take something without waiting, by a new object, and free that. */
#define TAKES(name, type, make, take) \
  static int name(zke *of) {          \
    zke_##type *x = NULL;             \
    int rc = make;                    \
    if (rc == ZKE_OK) rc = take;      \
    if (!dies) zke_##type##_free(x);  \
    return rc;                        \
  }                                   \
  struct kind

static const zke_semaphore_options two_permits = {.size = sizeof two_permits,
                                                  .limit = 2};
static const zke_barrier_options while_it_lives = {
    .size = sizeof while_it_lives, .ephemeral = 1};
static const zke_periodic_options hourly = {.size = sizeof hourly,
                                            .period_ms = 3600000,
                                            .retry = ZKE_PERIODIC_RETRY_DEAD};
static const zke_two_phase_options ephemeral_form = {
    .size = sizeof ephemeral_form, .form = ZKE_TWO_PHASE_EPHEMERAL};

TAKES(take_lock, lock, zke_lock_new(of, "/d", NULL, &x), zke_lock_try(x));
TAKES(take_lock_late, lock, zke_lock_new(of, "/d", NULL, &x),
      zke_lock_acquire(x, zke_now(of)));
TAKES(take_to_write, rwlock, zke_rwlock_new(of, "/d", NULL, &x),
      zke_rwlock_try(x, ZKE_RWLOCK_WRITE));
TAKES(take_to_read, rwlock, zke_rwlock_new(of, "/d", NULL, &x),
      zke_rwlock_try(x, ZKE_RWLOCK_READ));
TAKES(wait_to_write, rwlock, zke_rwlock_new(of, "/d", NULL, &x),
      zke_rwlock_start(x, ZKE_RWLOCK_WRITE));
TAKES(upgrade, rwlock, zke_rwlock_new(of, "/d", NULL, &x),
      (rc = zke_rwlock_try(x, ZKE_RWLOCK_READ)) == ZKE_OK
          ? zke_rwlock_upgrade(x)
          : rc);
TAKES(take_permit, semaphore, zke_semaphore_new(of, "/d", &two_permits, &x),
      zke_semaphore_try(x, 1));
TAKES(take_both, multilock, zke_multilock_new(of, items, 2, NULL, &x),
      zke_multilock_try(x));
TAKES(take_office, election, zke_election_new(of, "/d", NULL, &x),
      zke_election_lead(x, zke_now(of)));
TAKES(take_name, names, zke_names_new(of, "/d", NULL, &x),
      zke_names_bind(x, "n", "", 0, 1, ZKE_FOREVER, NULL));
TAKES(take_barrier, barrier, zke_barrier_new(of, "/d", &while_it_lives, &x),
      zke_barrier_set(x, "", 0, ZKE_FOREVER, NULL));
TAKES(take_run, periodic, zke_periodic_new(of, "/d", "job", &hourly, &x),
      zke_periodic_try(x));
TAKES(take_vote, two_phase, zke_two_phase_open(of, "/d", "t", "site", NULL, &x),
      ZKE_OK);

static int take_item(zke *of) {
  zke_queue *x = NULL;
  zke_queue_item *item = NULL;
  int rc = zke_queue_new(of, "/d", NULL, &x);
  if (rc == ZKE_OK) rc = zke_queue_claim(x, 0, &item);
  if (!dies) zke_queue_free(x);
  zke_free(item);
  return rc;
}

static void put_item(void) {
  zke_queue *x = NULL;
  ck_ok(zke_queue_new(other, "/d", NULL, &x));
  ck_ok(zke_queue_put(x, "", 0, NULL, 0));
  zke_queue_free(x);
}

/* `other`, which lives, has it too. */
static void other_reads(void) {
  zke_rwlock *x = NULL;
  ck_ok(zke_rwlock_new(other, "/d", NULL, &x));
  ck_ok(zke_rwlock_try(x, ZKE_RWLOCK_READ));
  theirs = x;
}
static void other_stops_reading(void) { zke_rwlock_free(theirs); }

static void other_has_permit(void) {
  zke_semaphore *x = NULL;
  ck_ok(zke_semaphore_new(other, "/d", &two_permits, &x));
  ck_ok(zke_semaphore_try(x, 1));
  theirs = x;
}
static void other_gives_permit_back(void) { zke_semaphore_free(theirs); }

static void other_begins(void) {
  ck_ok(zke_two_phase_begin(other, "/d", "t", "", 0, sites, 1, &ephemeral_form,
                            (zke_two_phase **)&theirs));
}
static void other_leaves(void) { zke_two_phase_free(theirs); }

static const struct grave {
  const char *name;
  int (*take)(zke *of);
  int refused;          /* what take() returns while the first one lives */
  int (*hold)(zke *of); /* the first one's call; NULL: take() */
  void (*before)(void), (*after)(void);
} graves[] = {{"lock", take_lock, ZKE_HELD, NULL, NULL, NULL},
              {"late", take_lock_late, ZKE_OPERATIONTIMEOUT, NULL, NULL, NULL},
              {"write", take_to_write, ZKE_HELD, NULL, NULL, NULL},
              {"read", take_to_read, ZKE_HELD, wait_to_write, other_reads,
               other_stops_reading},
              {"upgrade", upgrade, ZKE_HELD, take_to_read, NULL, NULL},
              {"semaphore", take_permit, ZKE_HELD, NULL, other_has_permit,
               other_gives_permit_back},
              {"multilock", take_both, ZKE_HELD, NULL, NULL, NULL},
              {"election", take_office, ZKE_OPERATIONTIMEOUT, NULL, NULL, NULL},
              {"names", take_name, ZKE_HELD, NULL, NULL, NULL},
              {"barrier", take_barrier, ZKE_HELD, NULL, NULL, NULL},
              {"periodic", take_run, ZKE_HELD, NULL, NULL, NULL},
              {"vote", take_vote, ZKE_HELD, NULL, other_begins, other_leaves},
              {"queue", take_item, ZKE_OPERATIONTIMEOUT, NULL, put_item, NULL}};

enum { GRAVES = sizeof graves / sizeof *graves };

/* The process that dies: it takes what the row says, and reports its session,
 * or why it failed.  It makes no assertions. */
static int hold_and_stay(void *arg) {
  const struct grave *g = &graves[*(int *)arg];
  zke *own = NULL;
  dies = true;
  int rc = zke_open(test_path("0.db"), NULL, &own);
  if (rc == ZKE_OK) rc = (g->hold ? g->hold : g->take)(own);
  int64_t told_now = rc == ZKE_OK ? zke_session_id(own) : rc;
  if (write(told_by[1], &told_now, sizeof told_now) < 0) return 1;
  for (;;) pause();
}

/* A call without waiting is refused only because of living holders: the kernel
 * knows of a death immediately, so it is asked.  The dead session leaves
 * nothing. */
TEST_LOOP(the_dead_keep_nobody_out, 0, GRAVES) {
  const struct grave *g = &graves[_i];
  int64_t session;
  char fifo[64];
  ck_assert_int_eq(pipe(told_by), 0);
  begin();
  if (g->before) g->before();
  pid_t pid = test_child(hold_and_stay, &_i);
  ck_assert_int_eq(read(told_by[0], &session, sizeof session), sizeof session);
  ck_assert_msg(session > 0, "%s: %d", g->name, (int)session);
  ck_rc(g->take(z), g->refused);
  ck_assert_int_eq(kill(pid, SIGKILL), 0);
  ck_assert_int_eq(test_child_end(pid), 128 + SIGKILL);
  ck_assert_msg(g->take(z) == ZKE_OK, "%s: %s", g->name, zke_errmsg());
  snprintf(fifo, sizeof fifo, "0.db-zke/%016llx", (unsigned long long)session);
  ck_assert_int_eq(access(test_path(fifo), F_OK), -1);
  if (g->after) g->after();
  end();
}

/* ---- below a chroot that is missing ---- */

static char at[20]; /* the path of the object */
static char said[200];

/* Makes an object of `of`, makes one call on it, and keeps its sentence. */
#define MAKES(name, type, making, call)              \
  static int makes_##name(zke *of) {                 \
    zke_##type *x = NULL;                            \
    int rc = making;                                 \
    if (rc == ZKE_OK) rc = call;                     \
    snprintf(said, sizeof said, "%s", zke_errmsg()); \
    zke_##type##_free(x);                            \
    return rc;                                       \
  }

MAKES(lock, lock, zke_lock_new(of, at, NULL, &x), zke_lock_try(x))
MAKES(steal, lock, zke_lock_new(of, at, NULL, &x), zke_lock_steal(x))
MAKES(rwlock, rwlock, zke_rwlock_new(of, at, NULL, &x),
      zke_rwlock_try(x, ZKE_RWLOCK_READ))
static int makes_semaphore(zke *of) {
  zke_semaphore_options o = {.size = sizeof o, .limit = 1};
  zke_semaphore *x = NULL;
  int rc = zke_semaphore_new(of, at, &o, &x);
  if (rc == ZKE_OK) rc = zke_semaphore_try(x, 1);
  snprintf(said, sizeof said, "%s", zke_errmsg());
  zke_semaphore_free(x);
  return rc;
}
static int makes_multilock(zke *of) {
  const zke_multilock_item both[] = {{at, ZKE_MULTILOCK_LOCK},
                                     {"/other", ZKE_MULTILOCK_LOCK}};
  zke_multilock *x = NULL;
  int rc = zke_multilock_new(of, both, 2, NULL, &x);
  if (rc == ZKE_OK) rc = zke_multilock_try(x);
  snprintf(said, sizeof said, "%s", zke_errmsg());
  zke_multilock_free(x);
  return rc;
}
MAKES(election, election, zke_election_new(of, at, NULL, &x),
      zke_election_start(x))
MAKES(persistent_node, persistent_node,
      zke_persistent_node_new(of, at, "", 0, NULL, &x),
      zke_persistent_node_start(x))
MAKES(group, group, zke_group_new(of, at, NULL, &x),
      zke_group_join(x, "", 0, soon()))
MAKES(partition, partition, zke_partition_new(of, at, shards, 3, NULL, &x),
      zke_partition_start(x))
MAKES(put, queue, zke_queue_new(of, at, NULL, &x),
      zke_queue_put(x, "", 0, NULL, soon()))
static int take_one(zke_queue *x) {
  zke_queue_item *item = NULL;
  int rc = zke_queue_take(x, 0, &item);
  zke_free(item);
  return rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
}
MAKES(take, queue, zke_queue_new(of, at, NULL, &x), take_one(x))
static int listen_for_items(zke_queue *x) {
  return zke_queue_start(x, ZKE_QUEUE_ITEM);
}
static int makes_start(zke *of) {
  zke_queue_options o = {.size = sizeof o, .listener = hear_queue};
  zke_queue *x = NULL;
  int rc = zke_queue_new(of, at, &o, &x);
  if (rc == ZKE_OK) rc = listen_for_items(x);
  snprintf(said, sizeof said, "%s", zke_errmsg());
  zke_queue_free(x);
  return rc;
}
MAKES(barrier, barrier, zke_barrier_new(of, at, NULL, &x),
      zke_barrier_set(x, "", 0, soon(), NULL))
MAKES(double_barrier, double_barrier,
      zke_double_barrier_new(of, at, 2, NULL, &x),
      zke_double_barrier_start(x, "", 0))
MAKES(two_phase, two_phase,
      zke_two_phase_begin(of, at, "tx", "", 0, sites, 1, NULL, &x), ZKE_OK)
MAKES(config, config, zke_config_new(of, at, NULL, &x),
      zke_config_set(x, "", "", 0, -1, soon(), NULL))
MAKES(names, names, zke_names_new(of, at, NULL, &x),
      zke_names_bind(x, "a", "", 0, 0, soon(), NULL))
MAKES(counter, counter, zke_counter_new(of, at, NULL, &x),
      zke_counter_add_and_get(x, 1, soon(), NULL, NULL))
static int makes_periodic(zke *of) {
  zke_periodic_options o = {.size = sizeof o, .period_ms = 1};
  zke_periodic *x = NULL;
  int rc = zke_periodic_new(of, at, "job", &o, &x);
  if (rc == ZKE_OK) rc = zke_periodic_try(x);
  snprintf(said, sizeof said, "%s", zke_errmsg());
  zke_periodic_free(x);
  return rc;
}

static const struct {
  const char *name;
  int (*makes)(zke *of);
} makers[] = {{"lock", makes_lock},
              {"steal", makes_steal},
              {"rwlock", makes_rwlock},
              {"semaphore", makes_semaphore},
              {"multilock", makes_multilock},
              {"election", makes_election},
              {"persistent_node", makes_persistent_node},
              {"group", makes_group},
              {"partition", makes_partition},
              {"put", makes_put},
              {"take", makes_take},
              {"start", makes_start},
              {"barrier", makes_barrier},
              {"double_barrier", makes_double_barrier},
              {"two_phase", makes_two_phase},
              {"config", makes_config},
              {"names", makes_names},
              {"counter", makes_counter},
              {"periodic", makes_periodic}};
enum { MAKERS = sizeof makers / sizeof *makers };

/* For any depth of the object's path, the call ends and names the chroot.  Once
 * the chroot exists, the same call makes what it needs. */
TEST_LOOP(a_missing_chroot_is_named, 0, MAKERS) {
  for (int deep = 0; deep < 2; deep++) {
    snprintf(at, sizeof at, deep ? "/above/%d" : "/%d", _i);
    begin();
    zke *below = test_session(z, "/app");
    int rc = makers[_i].makes(below);
    ck_assert_msg(rc == ZKE_NONODE && strstr(said, "/app"), "%s %s: %s: %s",
                  makers[_i].name, at, zke_error_name(rc), said);
    ck_ok(
        zke_create(z, "/app", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
    ck_ok(makers[_i].makes(below));
    ck_ok(zke_close(below));
    end();
  }
}

/* ---- in a batch ---- */

/* The function of a batch that is undone.  No object, old or new, does
 * anything; queries of its state work. */
static int use_in_batch(zke *of, void *context) {
  const kind *k = context;
  ck_rc(k->block(object), ZKE_MISUSE);
  ck_says("in the function of a batch");
  if (k->give_up) ck_rc(k->give_up(object), ZKE_MISUSE);
  k->free(object);
  for (int i = 0; i < MAKERS; i++) {
    snprintf(at, sizeof at, "/%d", i);
    ck_rc(makers[i].makes(of), ZKE_MISUSE);
  }
  return ZKE_CANCELLED;
}

/* An object that was used in a batch works as before afterwards, and no other
 * object gets what it holds. */
TEST_LOOP(a_batch_has_no_recipes, 0, KINDS) {
  current = &kinds[_i];
  begin();
  object = current->make(z);
  ck_rc(zke_batch(z, use_in_batch, (void *)(uintptr_t)current), ZKE_CANCELLED);
  if (current->before == others_take) {
    ck_ok(current->block(object));
    ck_rc(zke_batch(z, use_in_batch, (void *)(uintptr_t)current),
          ZKE_CANCELLED);
    ck_ok(current->give_up(object));
  }
  current->free(object);
  end();
}

/* Ask in a batch whether the object holds. */
static int ask_in_batch(zke *of, void *context) {
  int64_t *token = context;
  (void)of;
  ck_assert_int_eq(zke_lock_state(object), ZKE_LOCK_HELD);
  *token = zke_lock_token(object);
  return ZKE_OK;
}

/* In a batch a program may ask what its objects hold. */
TEST(a_batch_may_ask_what_is_held) {
  int64_t token = 0;
  begin();
  object = make_lock(z);
  ck_ok(block_lock(object));
  ck_ok(zke_batch(z, ask_in_batch, &token));
  ck_assert_int_eq(token, zke_lock_token(object));
  free_lock(object);
  end();
}

/* ---- no object ---- */

/* A function without an object or a handle returns ZKE_BADARGUMENTS.  Functions
 * that return a number cannot; zke_retry() only passes on the handle. */
TEST(no_object_is_refused) {
  for (const test_function *f = test_functions; f->name; f++) {
    if (strstr("_state _mode _permits _retry", strrchr(f->name, '_'))) continue;
    int rc = f->call(NULL);
    ck_assert_msg(rc == ZKE_BADARGUMENTS, "%s: %d", f->name, rc);
  }
}

/* ---- a step ---- */

/* The results of a step's tries, in turn; the last one is repeated. */
typedef struct script {
  const int *codes;
  int count, tries;
} script;

static int play(zke *of, void *arg) {
  script *s = arg;
  (void)of;
  int now = s->tries++ < s->count ? s->tries - 1 : s->count - 1;
  return zke_fail(s->codes[now], "as the script says");
}

enum { L = ZKE_CONNECTIONLOSS, T = ZKE_OPERATIONTIMEOUT, SHORT = 4 };

static const struct {
  const char *what;
  int codes[SHORT], count, rc, tries;
} scripts[] = {
    {"others are faster", {ZKE_LOOK_AGAIN, ZKE_LOOK_AGAIN, 0}, 3, 0, 3},
    {"lost, and not made", {L, ZKE_NOT_MADE, 0}, 3, 0, 3},
    {"no doubt is left", {L, ZKE_NOT_MADE, ZKE_FULL}, 3, ZKE_FULL, 3},
    {"a doubt is left", {L, ZKE_FULL}, 2, L, 2},
    {"others do not settle it", {L, ZKE_LOOK_AGAIN, ZKE_FULL}, 3, L, 3},
    {"a refusal is an answer", {L, ZKE_HELD}, 2, ZKE_HELD, 2},
    {"nobody can tell", {L, ZKE_IN_DOUBT}, 2, L, 2},
    {"lost each time", {L}, 1, L, ZKE_RETRIES + 1},
    {"busy each time", {T}, 1, T, ZKE_RETRIES + 1},
    {"not made each time", {ZKE_NOT_MADE}, 1, T, ZKE_RETRIES + 1}};

/* Which codes end a step, with which result, after how many tries. */
TEST_LOOP(a_step_is_made_until_it_is_decided, 0,
          (int)(sizeof scripts / sizeof *scripts)) {
  script s = {scripts[_i].codes, scripts[_i].count, 0};
  z = test_open(test_path("db"));
  int rc = zke_recipe_do(z, play, &s, ZKE_FOREVER);
  ck_assert_msg(rc == scripts[_i].rc, "%s: %d", scripts[_i].what, rc);
  ck_assert_int_eq(s.tries, scripts[_i].tries);
  ck_ok(zke_close(z));
}

/* A step whose replies are always lost ends even without a deadline. */
TEST(replies_that_are_always_lost_end_a_step) {
  static const int codes[] = {L, ZKE_NOT_MADE, L, ZKE_NOT_MADE, L, ZKE_NOT_MADE,
                              L, ZKE_NOT_MADE, L, ZKE_NOT_MADE, L, ZKE_NOT_MADE,
                              L, ZKE_NOT_MADE, L, ZKE_NOT_MADE, L, ZKE_NOT_MADE,
                              L, ZKE_NOT_MADE, L, ZKE_NOT_MADE, 0};
  script s = {codes, (int)(sizeof codes / sizeof *codes), 0};
  z = test_open(test_path("db"));
  ck_rc(zke_recipe_do(z, play, &s, ZKE_FOREVER), L);
  ck_assert_int_eq(s.tries, 2 * ZKE_RETRIES + 1);
  ck_ok(zke_close(z));
}

/* So does a step that others always overtake: after the time that any call has,
 * if it has no deadline. */
TEST(others_that_are_always_faster_end_a_step) {
  static const int codes[] = {ZKE_LOOK_AGAIN};
  script s = {codes, 1, 0};
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 100};
  ck_ok(zke_open(test_path("db"), &o, &z));
  ck_rc(zke_recipe_do(z, play, &s, 0), T);
  ck_says("others changed the tree at each look");
  ck_assert_int_gt(s.tries, 1);
  ck_ok(zke_close(z));
}
