/* test_fork.c - fork() without exec()
 *
 * P9: the child's copy of a handle refuses every call with ZKE_FORKED, keeps
 * nothing alive and does not disturb the parent's; the child may open its own.
 *
 * A child here must not use Check's assertions, which would report to the
 * runner as its parent: it reports by its exit status.
 */
#define _GNU_SOURCE
#include "test/functions.h"
#include "test/engine/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/lock.h"

/* ---- children ---- */

static int in_child(int (*body)(void *), void *context) {
  return test_child_end(test_child(body, context));
}

/* ---- every call on the child's copy ---- */

/* 0, or the number of the call (from 1) that was not refused as it should be.
 * The calls in `others` find another mistake first, or return no code. */
static int call_all(void *context) {
  const char *others =
      " zke_compact zke_create_ttl zke_detach zke_password zke_remove_tables "
      "zke_sql_commit zke_sql_rollback zke_state ";
  for (const test_function *f = test_functions; f->name; f++) {
    if (test_is_among(f, others)) continue;
    int rc = f->call(context);
    if (rc != ZKE_FORKED || !strstr(zke_errmsg(), "parent"))
      return (int)(f - test_functions) + 1;
  }
  int rc = zke_create_ttl(context, "/c", "", 0, ZKE_OPEN_ACL,
                          ZKE_PERSISTENT_WITH_TTL, 1000, NULL, NULL);
  return rc == ZKE_FORKED ? 0 : -1;
}

/* After a child has come and gone, the parent's handle works as before. */
static void expect_working(zke *z) {
  test_events events = {0};
  ck_ok(zke_exists(z, "/n", test_record, &events, NULL));
  ck_ok(zke_set(z, "/n", "parent", 6, -1, NULL));
  test_expect(z, &events, "CHANGED /n");
  ck_ok(see(z, "/e"));
  ck_rc(see(z, "/c"), ZKE_NONODE);
}

static void make_nodes(zke *z) {
  ck_ok(zke_create(z, "/n", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  make_as(z, "/e", ZKE_EPHEMERAL);
}

/* P9: every call on the copy is refused; the parent notices nothing. */
TEST(copy_refuses_every_call) {
  zke *z = test_open(test_path("a.db")), *further = test_session(z, NULL);
  make_nodes(z);
  ck_assert_int_eq(in_child(call_all, z), 0);
  ck_assert_int_eq(in_child(call_all, further), 0);
  expect_working(z);
  expect_working(further);
}

/* P9: the same in memory and for a read-only handle. */
TEST(other_copies_refuse_every_call) {
  zke *z = test_open(":memory:");
  make_nodes(z);
  ck_assert_int_eq(in_child(call_all, z), 0);
  expect_working(z);
  test_open(test_path("a.db"));
  zke *r = open_as(test_path("a.db"), .flags = ZKE_OPEN_READONLY);
  ck_assert_int_eq(in_child(call_all, r), 0);
}

/* Calls that return no code are harmless in the child. */
static int ask_plain(void *context) {
  zke_session_id(context);
  zke_state(context);
  zke_now(context);
  return 0;
}

/* P9: in a forked child, calls that only read memory answer, and the parent's
 * handle still works. */
TEST(plain_questions_do_no_harm) {
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  ck_assert_int_eq(in_child(ask_plain, z), 0);
  expect_working(z);
}

/* A grandchild's copy is refused too; and a handle opened after the first fork
 * is not affected by that fork. */
static int fork_again(void *context) {
  pid_t pid = fork();
  if (pid == 0) _exit(call_all(context));
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || status) return 1;
  return call_all(context);
}

/* P9: the same in a child's child. */
TEST(grandchild_is_refused) {
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  ck_assert_int_eq(in_child(fork_again, z), 0);
  expect_working(z);
  zke *later = test_open(test_path("a.db"));
  expect_working(later);
}

/* ---- what a copy must not do ---- */

/* P5: a child's end ends no session, neither here nor for others. */
TEST(childs_end_ends_no_session) {
  const char *db = test_path("a.db");
  zke *z = test_open(db);
  make_nodes(z);
  for (int i = 0; i < 3; i++) ck_assert_int_eq(in_child(call_all, z), 0);
  test_worker w = test_spawn("talk", NULL);
  char line[4200];
  snprintf(line, sizeof line, "open %s", db);
  test_say(&w, line);
  ck_assert_int_eq(strncmp(test_line(&w), "ok", 2), 0);
  test_say(&w, "watch /e");
  ck_assert_str_eq(test_line(&w), "ok");
  test_say(&w, "wait 1200");
  ck_assert_int_eq(atoi(test_line(&w)), ZKE_OPERATIONTIMEOUT);
  expect_working(z);
  ck_assert_int_eq(test_wait(&w), 0);
}

/* P6, P9: a forked child that outlives its parent does not keep the parent's
 * session alive: the kernel tells the waiter, and the node is removed. */
TEST(forked_child_keeps_nothing_alive) {
  const char *db = test_path("a.db");
  test_events events = {0};
  zke *z = test_open(db);
  test_worker w = test_spawn("hold", db, "/e", NULL);
  ck_assert_int_eq(strncmp(test_line(&w), "ready ", 6), 0);
  test_say(&w, "fork");
  pid_t child = (pid_t)atoi(test_line(&w) + 3);
  ck_assert_int_gt(child, 1);
  ck_ok(zke_exists(z, "/e", test_record, &events, NULL));
  test_kill(&w, SIGKILL);
  test_expect_within(z, &events, "DELETED /e", 2000);
  ck_assert_int_eq(kill(child, 0), 0);
  ck_assert_int_eq(kill(child, SIGKILL), 0);
}

/* ---- the child's own handle ---- */

/* Add one to the number at /n, `times` times; 0 or a result code. */
static int add(zke *z, int times) {
  while (times > 0) {
    char *data = NULL, next[16];
    zke_stat stat;
    int rc = zke_get(z, "/n", NULL, NULL, &data, NULL, &stat);
    if (rc != ZKE_OK) return rc;
    int n = snprintf(next, sizeof next, "%d", atoi(data) + 1);
    zke_free(data);
    rc = zke_set(z, "/n", next, n, stat.version, NULL);
    if (rc == ZKE_OK) times--;
    if (rc != ZKE_OK && rc != ZKE_BADVERSION) return rc;
  }
  return ZKE_OK;
}

static void expect_sum(zke *z, int expected) {
  char *data;
  ck_ok(zke_get(z, "/n", NULL, NULL, &data, NULL, NULL));
  ck_assert_int_eq(atoi(data), expected);
  zke_free(data);
}

enum { TIMES = 100 };

/* A child: opens its own handle, works, says so; works again when told,
 * closes. */
static struct {
  const char *db;
  int told[2], says[2]; /* pipes to and from the child */
} own;

/* The child opens its own handle and works with it, before and after its parent
 * has ended. */
static int work_on_own(void *context) {
  zke *mine;
  char byte = 'x';
  (void)context;
  if (zke_open(own.db, NULL, &mine) != ZKE_OK) return 1;
  if (create(mine, "/child", ZKE_EPHEMERAL) != ZKE_OK) {
    return 2;
  }
  if (add(mine, TIMES) != ZKE_OK) return 3;
  if (write(own.says[1], &byte, 1) != 1) return 4;
  if (read(own.told[0], &byte, 1) != 1) return 5;
  if (add(mine, TIMES) != ZKE_OK) return 6;
  if (zke_check(mine, NULL, NULL) != ZKE_OK) return 7;
  return zke_close(mine) == ZKE_OK ? 0 : 8;
}

/* The child opens its own handle on the same file.  Parent and child, and then
 * a third process after the parent has closed, lose no update of each other. */
TEST(child_opens_its_own) {
  char byte = 'x', line[64];
  own.db = test_path("a.db");
  ck_assert_int_eq(pipe(own.told), 0);
  ck_assert_int_eq(pipe(own.says), 0);
  zke *z = test_open(own.db);
  make_nodes(z);
  pid_t child = test_child(work_on_own, NULL);
  ck_ok(add(z, TIMES));
  ck_assert_int_eq(read(own.says[0], &byte, 1), 1);
  expect_sum(z, 2 * TIMES);
  ck_ok(see(z, "/child"));
  ck_ok(zke_close(z));

  test_worker w = test_spawn("hold", own.db, "/third", NULL);
  ck_assert_int_eq(strncmp(test_line(&w), "ready ", 6), 0);
  ck_assert_int_eq(write(own.told[1], &byte, 1), 1);
  snprintf(line, sizeof line, "add /n %d", TIMES);
  test_say(&w, line);
  ck_assert_str_eq(test_line(&w), "ok");
  ck_assert_int_eq(test_child_end(child), 0);
  ck_assert_int_eq(test_wait(&w), 0);

  z = test_open(own.db);
  expect_sum(z, 4 * TIMES);
  ck_rc(see(z, "/child"), ZKE_NONODE);
}

/* A child that opens only after its parent has closed everything. */
static int open_late(void *context) {
  zke *z;
  if (zke_open(context, NULL, &z) != ZKE_OK) return 1;
  if (add(z, 1) != ZKE_OK) return 2;
  return zke_close(z) == ZKE_OK ? 0 : 3;
}

/* A child forked after the parent's close opens the file like any other
 * process. */
TEST(child_opens_after_the_parents_close) {
  char db[4096];
  snprintf(db, sizeof db, "%s", test_path("a.db"));
  zke *z = test_open(db);
  make_nodes(z);
  ck_ok(zke_close(z));
  ck_assert_int_eq(in_child(open_late, db), 0);
  z = test_open(db);
  expect_sum(z, 1);
}

enum { OTHERS = 32 };

/* A typical worker: it closes all descriptors, and may open its own files
 * before the database.  None of these files is closed then. */
static int open_after_closing(const char *db, int files) {
  zke *z = NULL;
  int fd[OTHERS], lost = 0;
  struct stat log, is;
  for (int i = 3; i < 256; i++) close(i);
  for (int i = 0; i < files; i++)
    fd[i] = open(test_path("worker.log"), O_WRONLY | O_APPEND | O_CREAT, 0600);
  int rc = zke_open(db, NULL, &z);
  for (int i = 0; i < files; i++)
    lost += fstat(fd[i], &is) != 0 ||
            stat(test_path("worker.log"), &log) != 0 || is.st_ino != log.st_ino;
  if (lost) return 1;
  if (files) return rc == ZKE_FORKED ? 0 : 2;
  if (rc != ZKE_OK || add(z, 1) != ZKE_OK) return 3;
  return zke_close(z) == ZKE_OK ? 0 : 4;
}

static int open_with_files(void *db) { return open_after_closing(db, OTHERS); }
static int open_without(void *db) { return open_after_closing(db, 0); }

/* P9: files that a child has opened under the numbers of its parent's
 * descriptors stay open, and it cannot open a database then; a child that has
 * only closed them can. */
TEST(child_that_closes_descriptors) {
  char db[4096];
  snprintf(db, sizeof db, "%s", test_path("a.db"));
  zke *z = test_open(db);
  make_nodes(z);
  ck_assert_int_eq(in_child(open_with_files, db), 0);
  ck_assert_int_eq(in_child(open_without, db), 0);
  expect_sum(z, 1);
}

/* ---- forking at bad moments ---- */

static struct {
  zke *z;
  bool stop; /* by __atomic */
  int rc;
} busy;

/* A thread that keeps the store's lock taken most of the time. */
static void *keep_busy(void *context) {
  (void)context;
  while (!__atomic_load_n(&busy.stop, __ATOMIC_SEQ_CST) && busy.rc == ZKE_OK) {
    busy.rc = zke_set(busy.z, "/n", "", 0, -1, NULL);
    if (busy.rc == ZKE_OK) busy.rc = zke_dispatch(busy.z, NULL);
  }
  return NULL;
}

/* P9: the refusal comes before any lock: a child forked while another thread
 * is inside a call does not hang in it. */
TEST(fork_while_a_thread_is_inside) {
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  busy.z = z;
  pthread_t thread = begin_thread(keep_busy, NULL);
  for (int i = 0; i < 100; i++) ck_assert_int_eq(in_child(call_all, z), 0);
  __atomic_store_n(&busy.stop, true, __ATOMIC_SEQ_CST);
  pthread_join(thread, NULL);
  ck_ok(busy.rc);
  expect_working(z);
}

static struct {
  bool inside; /* by __atomic, as */
  bool stop;
} staying;

/* The function of a batch that keeps the store's lock. */
static int stay_in_batch(zke *z, void *context) {
  (void)z, (void)context;
  __atomic_store_n(&staying.inside, true, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&staying.stop, __ATOMIC_SEQ_CST)) test_pause();
  return ZKE_OK;
}

static void *run_batch(void *z) {
  ck_ok(zke_batch(z, stay_in_batch, NULL));
  return NULL;
}

/* In a child of a process with a thread in SQLite nothing can be opened. */
static int open_nothing(void *context) {
  zke *z;
  int fds = test_fd_count();
  if (zke_open(context, NULL, &z) != ZKE_FORKED) return 1;
  if (test_fd_count() != fds) return 2;
  if (zke_open(context, NULL, &z) != ZKE_FORKED) return 3;
  return 0;
}

/* zkembed.h, ZKE_FORKED: the refusal comes before any of the parent's
 * connections is closed.  That close could wait for ever for a lock of that
 * thread in SQLite.  The child finds the idle connection first. */
TEST(nothing_is_closed_while_a_thread_was_inside) {
  char name[] = ":memory:";
  test_open(test_path("idle.db"));
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  pthread_t thread = begin_thread(run_batch, z);
  ck_until(__atomic_load_n(&staying.inside, __ATOMIC_SEQ_CST), 10000);
  ck_assert_int_eq(in_child(open_nothing, name), 0);
  __atomic_store_n(&staying.stop, true, __ATOMIC_SEQ_CST);
  pthread_join(thread, NULL);
  expect_working(z);
}

static int forked_inside;

static void fork_inside(zke *z, int type, int state, const char *path,
                        void *context) {
  (void)type, (void)state, (void)path, (void)context;
  forked_inside = in_child(call_all, z);
}

/* P9: the same from inside a callback. */
TEST(fork_inside_a_callback) {
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  forked_inside = -1;
  ck_ok(zke_exists(z, "/n", fork_inside, NULL, NULL));
  ck_ok(zke_set(z, "/n", "", 0, -1, NULL));
  ck_ok(zke_wait(z, zke_now(z) + 1000));
  ck_assert_int_eq(forked_inside, 0);
  expect_working(z);
}

/* ---- a child that returns from the callback it was forked in ---- */

enum { CALLBACKS = 64 };
static int ran;       /* callbacks; in the child: since the fork */
static bool is_child; /* of fork_and_return() */
static pid_t child;   /* its id, in the parent */

/* A callback that forks, once; both processes return from it. */
static void fork_and_return(zke *z, int type, int state, const char *path,
                            void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
  ran++;
  if (child || is_child) return;
  child = fork();
  is_child = child == 0;
  if (is_child) ran = 0;
  if (is_child) alarm((unsigned)test_patience(TEST_CHILD_S));
}

static void dispatch_again(zke *z, int type, int state, const char *path,
                           void *context) {
  (void)type, (void)state, (void)path, (void)context;
  ck_assert_ptr_nonnull(z);
  zke_dispatch(z, NULL);
}

/* Make as many callbacks as there are pending events and watchers for each. */
static void make_callbacks(zke *z) {
  static char contexts[CALLBACKS];
  for (int i = 0; i < CALLBACKS; i++)
    ck_ok(zke_add_watch(z, "/n", ZKE_WATCH_PERSISTENT, fork_and_return,
                        &contexts[i]));
  for (int i = 0; i < 3; i++) ck_ok(zke_set(z, "/n", "", 0, -1, NULL));
}

/* In the child, after the call that ran the callback: it returned ZKE_FORKED
 * and ran no other.  The child's own handle works. */
static void end_child(zke *z, int rc) {
  zke *mine;
  if (!is_child) return;
  if (rc != ZKE_FORKED) _exit(1);
  if (!strstr(zke_errmsg(), "parent")) _exit(2);
  if (ran) _exit(3);
  if (call_all(z)) _exit(4);
  if (zke_open(test_path("a.db"), NULL, &mine) != ZKE_OK) _exit(5);
  if (zke_set(mine, "/", "", 0, -1, NULL) != ZKE_OK) _exit(6); /* not watched */
  _exit(zke_close(mine) == ZKE_OK ? 0 : 7);
}

/* In the parent, which has run all callbacks. */
static void expect_forked(zke *z, int callbacks) {
  ck_assert_int_gt(child, 0);
  ck_assert_int_eq(test_child_end(child), 0);
  while (ran < callbacks) ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(ran, callbacks);
}

/* P9: in a wait (0), a dispatch (1), and a dispatch inside a callback (2). */
TEST_LOOP(child_returns_from_a_callback, 0, 3) {
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  if (_i == 2) {
    ck_ok(zke_exists(z, "/n", dispatch_again, NULL, NULL));
    ck_ok(zke_set(z, "/n", "", 0, -1, NULL));
  }
  make_callbacks(z);
  int rc = _i == 0 ? zke_wait(z, ZKE_FOREVER) : zke_dispatch(z, NULL);
  end_child(z, rc);
  ck_ok(rc);
  expect_forked(z, 3 * CALLBACKS);
}

/* P9: the same for a light session, in a dispatch of its carrier's handle. */
TEST(child_returns_from_a_light_sessions_callback) {
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  make_callbacks(session_as(z, .flags = ZKE_OPEN_LIGHT));
  int rc = zke_dispatch(z, NULL);
  end_child(z, rc);
  ck_ok(rc);
  expect_forked(z, 3 * CALLBACKS);
}

/* P9: the same in an alarm. */
TEST(child_returns_from_a_call_at_a_time) {
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  static char contexts[CALLBACKS];
  for (int i = 0; i < CALLBACKS; i++)
    ck_ok(zke_call_at(z, 0, fork_and_return, &contexts[i]));
  int rc = zke_wait(z, ZKE_FOREVER);
  end_child(z, rc);
  ck_ok(rc);
  expect_forked(z, CALLBACKS);
}

/* P9: the same at the session's end, whose event has no path. */
TEST(child_returns_from_the_sessions_end) {
  zke *z = test_open(test_path("a.db"));
  make_nodes(z);
  zke *further = test_session(z, NULL);
  static char contexts[CALLBACKS];
  for (int i = 0; i < CALLBACKS; i++)
    ck_ok(zke_exists(further, "/n", fork_and_return, &contexts[i], NULL));
  ck_ok(zke_expire(z, zke_session_id(further)));
  int rc = zke_wait(further, ZKE_FOREVER);
  end_child(further, rc);
  ck_ok(rc);
  expect_forked(z, CALLBACKS);
}

/* P9: the same while another thread of the parent sometimes holds the store's
 * lock and mutex: the child uses neither. */
TEST(child_returns_among_threads) {
  zke *z = test_open(test_path("a.db"));
  zke *further = test_session(z, NULL);
  make_nodes(z);
  busy.z = further;
  pthread_t thread = begin_thread(keep_busy, NULL);
  ck_ok(zke_add_watch(z, "/n", ZKE_WATCH_PERSISTENT, fork_and_return, NULL));
  for (int i = 0; i < 50; i++) {
    child = 0;
    while (!child) {
      int rc = zke_wait(z, zke_now(z) + 1000);
      if (is_child) _exit(rc != ZKE_FORKED || ran || call_all(z));
    }
    ck_assert_int_eq(test_child_end(child), 0);
  }
  __atomic_store_n(&busy.stop, true, __ATOMIC_SEQ_CST);
  pthread_join(thread, NULL);
  ck_ok(busy.rc);
}

static void fork_in_listener(zke_lock *lock, int event, int64_t token,
                             void *context) {
  (void)lock, (void)event, (void)token, (void)context;
  fork_and_return(NULL, 0, 0, NULL, NULL);
}

/* P9: a recipe's blocking call, where a callback forks in its wait (0), or its
 * listener at its end (1): in the child the call is refused and tells nothing,
 * and the parent has the lock. */
TEST_LOOP(child_returns_into_a_recipe, 0, 2) {
  zke_lock *lock, *held;
  zke *z = test_open(test_path("a.db")), *other = test_open(test_path("a.db"));
  zke_lock_options o = {.size = sizeof o};
  if (_i) o.listener = fork_in_listener;
  make_nodes(z);
  ck_ok(zke_lock_new(other, "/lock", NULL, &held));
  ck_ok(zke_lock_acquire(held, ZKE_FOREVER));
  ck_ok(zke_lock_new(z, "/lock", &o, &lock));
  if (_i)
    ck_ok(zke_lock_start(lock));
  else
    make_callbacks(z);
  int rc = zke_lock_acquire(lock, _i ? zke_now(z) : zke_now(z) + 50);
  if (is_child && _i) rc = zke_lock_acquire(lock, ZKE_FOREVER);
  if (is_child) zke_lock_free(lock);
  end_child(z, rc);
  ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  ck_assert_int_gt(child, 0);
  ck_assert_int_eq(test_child_end(child), 0);
  zke_lock_free(held);
  ck_ok(zke_lock_acquire(lock, zke_now(z) + 5000));
  zke_lock_free(lock);
}

/* ---- in an allocator ---- */

static int forks;

/* realloc() and free(), with a fork() each time, whose child ends. */
static void *resize_forking(void *context, void *block, size_t size) {
  (void)context;
  pid_t pid = fork();
  if (pid == 0) _exit(0);
  forks += pid > 0 && test_child_end(pid) == 0;
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

/* zkembed.h, "Caveats": an allocator may fork, whatever it is called for. */
TEST(fork_inside_an_allocator) {
  zke *z = open_as(test_path("a.db"), .allocator = {resize_forking, NULL});
  ck_assert_int_gt(forks, 0);
  make(z, "/n");
  ck_ok(zke_close(z));
}
