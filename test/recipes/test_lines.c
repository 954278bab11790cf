/* test_lines.c - what all recipes promise whose participants stand in line
 *
 * Each test runs for each of them: somebody holds, others wait behind.  The
 * programs of the recipes test what each has besides.
 */
#include "sessions.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "recipes/election.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "recipes/part/text.h"

#define PATH "/line/a"
#define OTHER "/line/b" /* of the multi-lock */

/* ---- the table ---- */

/* A recipe, used so that only one can hold. */
typedef struct kind {
  int places; /* entries that each has below PATH */
  /* who: whose name its listener writes by tell(); NULL: no listener */
  void *(*make)(zke *session, const char *who, int no_deadlock_check);
  void (*free)(void *x);
  int (*acquire)(void *x, int64_t deadline);
  int (*try_once)(void *x);
  int (*start)(void *x);
  int (*release)(void *x);
  int (*cancel)(void *x);
  int (*check)(void *x);
  int (*state)(void *x);
  int64_t (*token)(void *x);
  int (*op)(void *x); /* what guards a multi; how many does not matter */
} kind;

/* What is called alike in each of them. */
#define LISTENS(type)                                                    \
  LISTENER(hear_##type, type);                                           \
  static void type##_free(void *x) { zke_##type##_free(x); }             \
  static int type##_release(void *x) { return zke_##type##_release(x); } \
  static int type##_cancel(void *x) { return zke_##type##_cancel(x); }   \
  static int type##_check(void *x) { return zke_##type##_check(x); }     \
  static int type##_state(void *x) { return zke_##type##_state(x); }     \
  static int64_t type##_token(void *x) { return zke_##type##_token(x); }

static int lock_op(void *x) { return zke_lock_op(x, &(zke_op){0}); }
static int rwlock_op(void *x) { return zke_rwlock_op(x, &(zke_op){0}); }
static int semaphore_op(void *x) { return zke_semaphore_op(x, &(zke_op){0}); }
static int multilock_op(void *x) {
  return zke_multilock_ops(x, (zke_op[2]){{0}}, 2);
}

LISTENS(lock)
LISTENS(multilock)
LISTENS(rwlock)
LISTENS(semaphore)

/* What is not: how it is made, with options o, and what its calls are given.
 */
#define LINE(id, type, making, acquiring, trying, starting)             \
  static void *id##_make(zke *of, const char *who, int no_check) {      \
    zke_##type *x;                                                      \
    zke_##type##_options o = {.size = sizeof o,                         \
                              .no_deadlock_check = no_check,            \
                              .listener = who ? hear_##type : NULL,     \
                              .context = (void *)(uintptr_t)who};       \
    ck_ok(making);                                                      \
    return x;                                                           \
  }                                                                     \
  static int id##_acquire(void *x, int64_t until) { return acquiring; } \
  static int id##_try(void *x) { return trying; }                       \
  static int id##_start(void *x) { return starting; }

static const zke_multilock_item both[] = {{PATH, ZKE_MULTILOCK_LOCK},
                                          {OTHER, ZKE_MULTILOCK_WRITE}};

LINE(lock, lock, zke_lock_new(of, PATH, &o, &x), zke_lock_acquire(x, until),
     zke_lock_try(x), zke_lock_start(x))
LINE(permit, semaphore, (o.limit = 1, zke_semaphore_new(of, PATH, &o, &x)),
     zke_semaphore_acquire(x, 1, until), zke_semaphore_try(x, 1),
     zke_semaphore_start(x, 1))
LINE(permits, semaphore, (o.limit = 3, zke_semaphore_new(of, PATH, &o, &x)),
     zke_semaphore_acquire(x, 2, until), zke_semaphore_try(x, 2),
     zke_semaphore_start(x, 2))
LINE(writer, rwlock, zke_rwlock_new(of, PATH, &o, &x),
     zke_rwlock_acquire(x, ZKE_RWLOCK_WRITE, until),
     zke_rwlock_try(x, ZKE_RWLOCK_WRITE), zke_rwlock_start(x, ZKE_RWLOCK_WRITE))
LINE(multilock, multilock, zke_multilock_new(of, both, 2, &o, &x),
     zke_multilock_acquire(x, until), zke_multilock_try(x),
     zke_multilock_start(x))

#define KIND(id, type)                                                   \
  .make = id##_make, .acquire = id##_acquire, .try_once = id##_try,      \
  .start = id##_start, .free = type##_free, .release = type##_release,   \
  .cancel = type##_cancel, .check = type##_check, .state = type##_state, \
  .token = type##_token, .op = type##_op

static const kind kinds[] = {
    {.places = 1, KIND(lock, lock)},
    {.places = 1, KIND(permit, semaphore)},
    {.places = 2, KIND(permits, semaphore)},
    {.places = 1, KIND(writer, rwlock)},
    {.places = 1, KIND(multilock, multilock)},
};
enum { KINDS = sizeof kinds / sizeof *kinds };
#define TEST_EACH(name) TEST_LOOP(name, 0, KINDS)

/* ---- a line ---- */

static const kind *k;
static void *x[SESSIONS]; /* one object a session; each listens */

static void open_line(int which) {
  k = &kinds[which];
  open_sessions();
  for (int i = 0; i < SESSIONS; i++) x[i] = k->make(z[i], identities[i], 0);
}

/* How many stand in line. */
static int in_line(void) {
  int count = entries(z[SESSIONS - 1], PATH);
  ck_assert_int_eq(count % k->places, 0);
  return count / k->places;
}

/* Free all; nobody stands in line and no session watches anything then. */
static void close_line(void) {
  for (int i = 0; i < SESSIONS; i++) k->free(x[i]);
  ck_assert_int_eq(in_line() + entries(z[SESSIONS - 1], OTHER), 0);
  ck_assert_int_eq(all_watches(z[SESSIONS - 1]), 0);
  close_sessions();
}

static int run_acquire(call *c) { return k->acquire(c->object, c->deadline); }

/* The first holds, the second waits in a call on a thread of its own. */
static void hold_and_wait(call *second) {
  ck_ok(k->acquire(x[0], soon(z[0])));
  call_begin(second, run_acquire, x[1], 0, ZKE_FOREVER);
  ck_until(k->state(x[1]) == ZKE_LINE_WAITING, 5000);
  ck_assert(!call_is_done(second));
}

/* Delete what the session has in line. */
static void delete_place(zke *session) {
  zke_strings *own;
  ck_ok(zke_ephemerals(session, 0, PATH, &own));
  ck_assert_int_eq(own->count, k->places);
  ck_ok(zke_delete(z[SESSIONS - 1], own->data[0], -1));
  zke_free(own);
}

/* ---- one alone ---- */

/* Only while it is held do state, token, check() and op() say so; the listener
 * hears of both, and is given the token. */
TEST_EACH(acquire_holds_and_release_gives_up) {
  open_line(_i);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(k->state(x[0]), ZKE_LINE_OUT);
    ck_assert_int_eq(k->token(x[0]), 0);
    ck_rc(k->check(x[0]), ZKE_LOST);
    ck_rc(k->op(x[0]), ZKE_LOST);
    ck_rc(k->release(x[0]), ZKE_LOST);
    ck_ok(k->acquire(x[0], soon(z[0])));
    ck_assert_int_eq(k->state(x[0]), ZKE_LINE_HELD);
    ck_assert_int_gt(k->token(x[0]), 0);
    ck_assert_int_eq(k->token(x[0]), told_token);
    ck_ok(k->check(x[0]));
    ck_ok(k->op(x[0]));
    ck_assert_int_eq(in_line(), 1);
    ck_ok(k->release(x[0]));
    ck_assert_int_eq(in_line(), 0);
  }
  ck_told("ann HELD; ann OUT; ann HELD; ann OUT");
  close_line();
}

/* A free gives up what is held: the next one gets it at once.  (close_line()
 * frees a NULL in its place.) */
TEST_EACH(free_gives_up) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  k->free(x[0]);
  x[0] = NULL;
  ck_ok(k->try_once(x[1]));
  close_line();
}

/* One object is one contender: it neither joins twice nor changes its way of
 * waiting for the worse; what it has stays. */
TEST_EACH(an_object_in_use_is_refused) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  ck_rc(k->acquire(x[0], soon(z[0])), ZKE_MISUSE);
  ck_rc(k->try_once(x[0]), ZKE_MISUSE);
  ck_rc(k->start(x[0]), ZKE_MISUSE);
  ck_ok(k->check(x[0]));
  ck_assert_int_eq(in_line(), 1);
  close_line();
}

/* The directory is a container, which goes when nobody uses it: it is made
 * again, with all above it. */
TEST_EACH(a_removed_directory_is_made_again) {
  open_line(_i);
  for (int i = 0; i < 3; i++) {
    ck_ok(k->acquire(x[0], soon(z[0])));
    ck_ok(k->release(x[0]));
    ck_ok(zke_delete(z[1], PATH, -1));
    int rc = zke_delete(z[1], OTHER, -1);
    if (rc != ZKE_NONODE) ck_ok(rc);
    ck_ok(zke_delete(z[1], "/line", -1));
  }
  close_line();
}

/* A directory counts to 2^31 - 1 and gives that number for ever after, so of
 * two with it the later one could stand first.  Nobody gets it: the one before
 * is the last that holds, and whoever comes then is refused and leaves nothing.
 */
TEST_EACH(the_end_of_the_numbers_is_refused) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  ck_ok(zke_raise_sequence(z[1], PATH, INT32_MAX - k->places, NULL));
  ck_ok(k->start(x[1]));
  for (int i = 2; i < 4; i++) {
    ck_rc(k->acquire(x[i], soon(z[i])), ZKE_LIMIT);
    ck_says(PATH " has given all of its 2147483647 numbers");
    ck_rc(k->try_once(x[i]), ZKE_LIMIT);
    ck_assert_int_eq(in_line(), 2);
  }
  ck_ok(k->release(x[0]));
  dispatch_all();
  ck_assert_int_eq(k->state(x[1]), ZKE_LINE_HELD);
  ck_rc(k->start(x[2]), ZKE_LIMIT);
  ck_ok(k->release(x[1]));
  ck_ok(zke_delete(z[1], PATH, -1));
  ck_ok(k->acquire(x[2], soon(z[2])));
  close_line();
}

/* A deadline that is over still gets what is free. */
TEST_EACH(what_is_free_needs_no_time) {
  open_line(_i);
  ck_ok(k->acquire(x[0], INT64_MIN));
  close_line();
}

/* P11: without an object there is no token, and no crash. */
TEST_EACH(no_object_has_no_token) {
  open_line(_i);
  ck_assert_int_eq(k->token(NULL), 0);
  close_line();
}

/* ---- several ---- */

/* They hold in the order in which they joined, one at a time, each with a
 * greater token than all before. */
TEST_EACH(first_come_first_served) {
  int64_t last = 0;
  open_line(_i);
  for (int i = 0; i < SESSIONS; i++) ck_ok(k->start(x[i]));
  for (int i = 0; i < SESSIONS; i++) {
    dispatch_all();
    for (int j = i; j < SESSIONS; j++)
      ck_assert_int_eq(k->state(x[j]),
                       j == i ? ZKE_LINE_HELD : ZKE_LINE_WAITING);
    ck_assert_int_gt(k->token(x[i]), last);
    last = k->token(x[i]);
    ck_ok(k->release(x[i]));
  }
  close_line();
}

/* One in the middle gives up: those behind it keep their place, and do not come
 * past the holder. */
TEST_EACH(a_waiter_that_leaves_lets_nobody_in) {
  open_line(_i);
  for (int i = 0; i < 3; i++) ck_ok(k->start(x[i]));
  ck_ok(k->release(x[1]));
  dispatch_all();
  ck_assert_int_eq(k->state(x[1]), ZKE_LINE_OUT);
  ck_assert_int_eq(k->state(x[2]), ZKE_LINE_WAITING);
  ck_ok(k->release(x[0]));
  dispatch_all();
  ck_assert_int_eq(k->state(x[2]), ZKE_LINE_HELD);
  close_line();
}

/* A refusal leaves nothing, and its sentence tells whom to ask: path, name, pid
 * and since when. */
TEST_EACH(try_is_refused_naming_the_holder) {
  char pid[40];
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  ck_rc(k->try_once(x[1]), ZKE_HELD);
  ck_says(PATH " is held by ann (pid ");
  snprintf(pid, sizeof pid, "pid %d", (int)getpid());
  ck_says(pid);
  ck_says("since 20");
  ck_assert_int_eq(k->state(x[1]), ZKE_LINE_OUT);
  ck_assert_int_eq(in_line(), 1);
  ck_assert_int_eq(watches(z[1]), 0);
  ck_ok(k->release(x[0]));
  ck_ok(k->try_once(x[1]));
  close_line();
}

/* So does a deadline, in the past or in a moment: it is waited for, and not
 * longer than a test takes. */
TEST_EACH(a_timeout_names_the_holder_and_leaves_nothing) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  for (int i = 0; i < 2; i++) {
    int64_t deadline = zke_now(z[1]) + (i ? 20 : -1);
    ck_rc(k->acquire(x[1], deadline), ZKE_OPERATIONTIMEOUT);
    ck_says(PATH " is held by ann (pid ");
    ck_assert(zke_now(z[1]) >= deadline);
    ck_assert_int_eq(k->state(x[1]), ZKE_LINE_OUT);
    ck_assert_int_eq(in_line(), 1);
    ck_assert_int_eq(watches(z[1]), 0);
  }
  close_line();
}

/* P7: a thread that waits wakes when its turn comes, and has the greater
 * token. */
TEST_EACH(a_waiting_thread_gets_it_on_release) {
  call c;
  open_line(_i);
  hold_and_wait(&c);
  int64_t token = k->token(x[0]);
  ck_ok(k->release(x[0]));
  call_end(&c);
  ck_ok(c.rc);
  ck_assert_int_gt(k->token(x[1]), token);
  close_line();
}

/* A cancelled wait leaves the line; its sentence names the path; the next call
 * on the object is not hit. */
TEST_EACH(cancel_ends_the_wait_of_another_thread) {
  call c;
  open_line(_i);
  hold_and_wait(&c);
  ck_until(k->cancel(x[1]) == ZKE_OK, 10000);
  call_end(&c);
  ck_assert_int_eq(c.rc, ZKE_CANCELLED);
  ck_assert_ptr_nonnull(strstr(c.sentence, PATH));
  ck_assert_int_eq(k->state(x[1]), ZKE_LINE_OUT);
  ck_assert_int_eq(in_line(), 1);
  ck_ok(k->release(x[0]));
  ck_ok(k->acquire(x[1], soon(z[1])));
  close_line();
}

/* A cancel that finds no wait says so, and does not end a later one. */
TEST_EACH(cancel_without_a_wait_does_nothing) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  ck_rc(k->cancel(x[1]), ZKE_IDLE);
  ck_rc(k->acquire(x[1], zke_now(z[1])), ZKE_OPERATIONTIMEOUT);
  close_line();
}

/* acquire() after start() waits in the place that was taken before. */
TEST_EACH(a_started_one_can_be_waited_for) {
  call c;
  open_line(_i);
  for (int i = 0; i < 3; i++) ck_ok(k->start(x[i]));
  call_begin(&c, run_acquire, x[1], 0, ZKE_FOREVER);
  ck_ok(k->release(x[0]));
  call_end(&c);
  ck_ok(c.rc);
  ck_assert_int_eq(k->state(x[1]), ZKE_LINE_HELD);
  dispatch_all();
  ck_assert_int_eq(k->state(x[2]), ZKE_LINE_WAITING);
  close_line();
}

/* A started one hears of its turn in zke_dispatch(), and not before. */
TEST_EACH(the_listener_hears_its_turn_in_dispatch) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  ck_ok(k->start(x[1]));
  dispatch_all();
  ck_ok(k->release(x[0]));
  ck_told("ann HELD; ann OUT");
  dispatch_all();
  ck_told("bob HELD");
  close_line();
}

/* ---- entries of other libraries ---- */

#define GUID "0123456789abcdef0123456789abcdef"

/* The names that other libraries give to what they make in a line's
 * directory, and what the refusal says of them. */
static const struct {
  const char *name, *whose;
} foreign[] = {{GUID "__lock__0000000000", "kazoo"},
               {GUID "__rlock__0000000004", "kazoo"},
               {GUID, "kazoo"},
               {"lock-0000000000", "another library"},
               {"me-latch-0000000000", "another library"},
               {"lease--000000007", "another library"},
               {"x-72057594037927936-0000000002", "another library"}};
enum { FOREIGN = sizeof foreign / sizeof *foreign };

/* Its owner is eve, the last session. */
static void add_foreign(int i) {
  char path[128];
  snprintf(path, sizeof path, PATH "/%s", foreign[i].name);
  ck_ok(zke_create(z[SESSIONS - 1], path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                   NULL, NULL));
}

static void remove_foreign(int i) {
  char path[128];
  snprintf(path, sizeof path, PATH "/%s", foreign[i].name);
  ck_ok(zke_delete(z[SESSIONS - 1], path, -1));
}

/* Two libraries that do not see each other's entries would both hold: whoever
 * finds such an entry is refused, and is told whose it is. */
TEST_EACH(another_librarys_entry_is_refused) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  ck_ok(k->release(x[0]));
  for (int i = 0; i < FOREIGN; i++) {
    add_foreign(i);
    ck_rc(k->acquire(x[0], soon(z[0])), ZKE_OTHERKIND);
    ck_says(foreign[i].whose);
    ck_says(foreign[i].name);
    ck_rc(k->try_once(x[0]), ZKE_OTHERKIND);
    ck_rc(k->start(x[0]), ZKE_OTHERKIND);
    ck_assert_int_eq(k->state(x[0]), ZKE_LINE_OUT);
    ck_assert_int_eq(entries(z[0], PATH), 1);
    remove_foreign(i);
    ck_ok(k->acquire(x[0], soon(z[0])));
    ck_ok(k->release(x[0]));
  }
  close_line();
}

/* One that comes later takes nothing from the holder, which does not look.
 * Those that wait are refused when their turn comes: a call says so, and the
 * listener of one that has no call hears OUT. */
TEST_EACH(another_librarys_entry_ends_a_wait) {
  call c;
  open_line(_i);
  hold_and_wait(&c);
  ck_ok(k->start(x[2]));
  add_foreign(0);
  ck_ok(k->check(x[0]));
  told[0] = '\0';
  ck_ok(k->release(x[0]));
  call_end(&c);
  ck_assert_int_eq(c.rc, ZKE_OTHERKIND);
  dispatch_all();
  ck_assert_int_eq(k->state(x[2]), ZKE_LINE_OUT);
  ck_assert_ptr_nonnull(strstr(told, "ann OUT"));
  ck_assert_ptr_nonnull(strstr(told, "cid OUT"));
  ck_assert_ptr_null(strstr(told, "HELD"));
  remove_foreign(0);
  close_line();
}

/* ---- losing ---- */

/* The place of a blocked call is deleted: the call ends, and holds nothing. */
TEST_EACH(a_waiter_whose_place_is_deleted_has_lost) {
  call c;
  open_line(_i);
  hold_and_wait(&c);
  delete_place(z[1]);
  call_end(&c);
  ck_assert_int_eq(c.rc, ZKE_LOST);
  ck_assert_int_eq(in_line(), 1);
  ck_ok(k->check(x[0]));
  close_line();
}

/* "After the session is lost, no recipe object still claims to hold": it hears
 * LOST, and each call says why; the next one holds (P6). */
TEST_EACH(an_expired_session_holds_nothing) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  ck_ok(k->start(x[1]));
  ck_ok(zke_expire(z[2], zke_session_id(z[0])));
  zke_dispatch(z[0], NULL);
  ck_told("ann HELD; ann LOST");
  ck_assert_int_eq(k->state(x[0]), ZKE_LINE_LOST);
  ck_assert_int_eq(k->token(x[0]), 0);
  ck_rc(k->check(x[0]), ZKE_INVALIDSTATE);
  ck_rc(k->op(x[0]), ZKE_INVALIDSTATE);
  ck_rc(k->release(x[0]), ZKE_INVALIDSTATE);
  ck_rc(k->acquire(x[0], ZKE_FOREVER), ZKE_INVALIDSTATE);
  ck_rc(k->try_once(x[0]), ZKE_INVALIDSTATE);
  ck_rc(k->start(x[0]), ZKE_INVALIDSTATE);
  dispatch_all();
  ck_assert_int_eq(k->state(x[1]), ZKE_LINE_HELD);
  close_line();
}

/* The same where nothing was dispatched: the next call finds out. */
TEST_EACH(an_expired_session_is_found_by_the_next_call) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  ck_ok(zke_expire(z[2], zke_session_id(z[0])));
  ck_rc(k->check(x[0]), ZKE_INVALIDSTATE);
  ck_assert_int_eq(k->token(x[0]), 0);
  ck_assert_int_eq(k->state(x[0]), ZKE_LINE_LOST);
  close_line();
}

/* The function of a batch: keeps the store until it is told to end. */
static atomic_int busy; /* 0: it is to end; 2: it runs */
static int keep_busy(zke *session, void *context) {
  (void)session, (void)context;
  atomic_store(&busy, 2);
  while (atomic_load(&busy)) usleep(1000);
  return ZKE_OK;
}

static int run_busy(call *c) {
  (void)c;
  return zke_batch(z[0], keep_busy, NULL);
}

/* State and token are told from memory.  That the store could not be asked, as
 * another thread has it, says nothing about what is held, and is no loss; the
 * session's end is one, as soon as it can be seen. */
TEST_EACH(a_store_that_is_busy_is_no_loss) {
  call c;
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  int64_t token = k->token(x[0]);
  atomic_store(&busy, 1);
  call_begin(&c, run_busy, NULL, 0, 0);
  ck_until(atomic_load(&busy) == 2, 5000);
  int64_t limit = zke_limit(z[0], 1); /* one that has passed */
  ck_rc(zke_sync(z[0], "/"), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(k->state(x[0]), ZKE_LINE_HELD);
  ck_assert_int_eq(k->token(x[0]), token);
  zke_limit(z[0], limit);
  atomic_store(&busy, 0);
  call_end(&c);
  ck_ok(c.rc);
  ck_ok(zke_expire(z[2], zke_session_id(z[0])));
  ck_rc(k->check(x[0]), ZKE_INVALIDSTATE);
  ck_assert_int_eq(k->state(x[0]), ZKE_LINE_LOST);
  ck_assert_int_eq(k->token(x[0]), 0);
  close_line();
}

/* A call on what is held already asks the store; where that fails it is held as
 * before, and a reentrant lock not once more. */
TEST(holding_again_in_vain_changes_nothing) {
  zke_lock_options reentrant = {.size = sizeof reentrant, .reentrant = 1};
  zke_lock *lock;
  zke_election *election;
  call c;
  open_sessions();
  ck_ok(zke_lock_new(z[0], PATH, &reentrant, &lock));
  ck_ok(zke_election_new(z[0], OTHER, NULL, &election));
  ck_ok(zke_lock_acquire(lock, soon(z[0])));
  ck_ok(zke_election_lead(election, soon(z[0])));
  atomic_store(&busy, 1);
  call_begin(&c, run_busy, NULL, 0, 0);
  ck_until(atomic_load(&busy) == 2, 5000);
  int64_t limit = zke_limit(z[0], 1); /* one that has passed */
  ck_rc(zke_lock_acquire(lock, soon(z[0])), ZKE_OPERATIONTIMEOUT);
  ck_rc(zke_election_lead(election, soon(z[0])), ZKE_OPERATIONTIMEOUT);
  zke_limit(z[0], limit);
  atomic_store(&busy, 0);
  call_end(&c);
  ck_ok(zke_lock_check(lock));
  ck_ok(zke_election_check(election));
  ck_ok(zke_lock_release(lock));
  ck_rc(zke_lock_check(lock), ZKE_LOST);
  zke_lock_free(lock);
  zke_election_free(election);
  close_sessions();
}

/* A blocked call does not outlast its session. */
TEST_EACH(a_waiter_whose_session_expires_returns) {
  call c;
  open_line(_i);
  hold_and_wait(&c);
  ck_ok(zke_expire(z[2], zke_session_id(z[1])));
  call_end(&c);
  ck_assert_int_eq(c.rc, ZKE_INVALIDSTATE);
  ck_assert_int_eq(k->state(x[1]), ZKE_LINE_LOST);
  ck_assert_int_eq(in_line(), 1);
  ck_told("ann HELD; bob LOST");
  close_line();
}

/* One allocation fails, or all, anywhere in the dispatch in which its turn
 * comes: its listener hears of it, once. */
TEST_LOOP(a_turn_is_heard_when_memory_was_short, 0, 2 * KINDS) {
  test_heap heap = {.fail_all = _i % 2};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  int failed = 0;
  k = &kinds[_i / 2];
  ck_ok(zke_open(":memory:", &o, &z[0]));
  ck_ok(zke_open_session(z[0], &o, &z[1]));
  for (bool more = true; more;) {
    x[0] = k->make(z[0], NULL, 0);
    x[1] = k->make(z[1], "bob", 0);
    ck_ok(k->acquire(x[0], soon(z[0])));
    ck_ok(k->start(x[1]));
    ck_ok(k->release(x[0]));
    heap.fail_at = heap.calls + ++failed;
    zke_dispatch(z[1], NULL);
    more = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_until((dispatch_on(z[1]), k->state(x[1]) == ZKE_LINE_HELD), 5000);
    ck_told("bob HELD");
    for (int i = 0; i < 2; i++) k->free(x[i]);
  }
  ck_assert_int_gt(failed, 5);
  ck_ok(zke_close(z[1]));
  ck_ok(zke_close(z[0]));
}

/* P4: an overflow drops one-shot watches, also those of a holder on its own
 * place.  It watches again, and so hears of a loss that follows. */
TEST_EACH(a_loss_after_an_overflow_is_heard) {
  open_line(_i);
  zke *session = open_to_flood();
  void *mine = k->make(session, "eve", 0);
  ck_ok(k->acquire(mine, soon(session)));
  flood(session);
  delete_place(session);
  ck_ok(zke_dispatch(session, NULL));
  ck_told("eve HELD; eve LOST");
  k->free(mine);
  ck_ok(zke_close(session));
  close_line();
}

/* A reply that is lost when there is no time left to try again: nothing stands
 * in line in nobody's name. */
TEST_EACH(a_lost_reply_at_the_deadline_leaves_nothing) {
  open_line(_i);
  ck_ok(k->try_once(x[0])); /* makes the directory */
  ck_ok(k->release(x[0]));
  ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_AFTER, 0));
  if (k->acquire(x[0], zke_now(z[0])) == ZKE_OK) ck_ok(k->release(x[0]));
  ck_assert_int_eq(in_line(), 0);
  ck_ok(k->try_once(x[1]));
  close_line();
}

/* A number has ten digits, a sign among or before them and 32 bits, and there
 * is nothing else: so what others put into a directory is not taken for an
 * entry. */
TEST(a_number_has_the_form_that_a_create_gives_it) {
  static const struct {
    const char *text;
    int32_t number;
  } numbers[] = {{"0000000000", 0},
                 {"0000000012", 12},
                 {"2147483647", INT32_MAX},
                 {"-000000012", -12},
                 {"-2147483648", INT32_MIN}};
  static const char *const others[] = {
      "",           "12",          "000000001",    "00000000001", "00000000x1",
      "2147483648", "-2147483649", "-0000000001x", " 000000001",  "--00000001"};
  int32_t number = 5;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    ck_assert_msg(!zke_recipe_number(others[i], &number), "%s", others[i]);
  ck_assert_int_eq(number, 5);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    ck_assert(zke_recipe_number(numbers[i].text, &number));
    ck_assert_int_eq(number, numbers[i].number);
  }
}

/* ---- deadlocks ---- */

/* A thread that waits for what it holds by another object would wait for ever:
 * it is told, unless the option turns the check off. */
TEST_EACH(two_objects_of_one_thread_deadlock) {
  open_line(_i);
  ck_ok(k->acquire(x[0], soon(z[0])));
  for (int off = 0; off < 2; off++) {
    void *again = k->make(z[0], NULL, off);
    ck_rc(k->acquire(again, zke_now(z[0]) + (off ? 20 : 5000)),
          off ? ZKE_OPERATIONTIMEOUT : ZKE_DEADLOCK);
    ck_says(off ? "is held by ann" : "this thread");
    ck_assert_int_eq(in_line(), 1);
    k->free(again);
  }
  close_line();
}
