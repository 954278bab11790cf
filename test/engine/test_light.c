/* test_light.c - light sessions, and sessions that outlive their host
 *
 * A carrier `a` has light sessions; b is another store on the same file, or
 * another session of the store in memory.  Kept sessions move between the two.
 */
#include "test/seam.h"
#include "test/engine/calls.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IN_MEMORY, IN_FILE, WAYS };

static zke *a, *b;
static test_events seen, other;

/* Two sessions, a and b, that share the tree in this way. */
static void begin(int way) {
  if (way == IN_MEMORY) {
    ck_ok(zke_open(":memory:", NULL, &a));
    ck_ok(zke_open_session(a, NULL, &b));
  } else {
    ck_ok(zke_open(test_path("light.db"), NULL, &a));
    ck_ok(zke_open(test_path("light.db"), NULL, &b));
  }
}

/* A light session on a handle's carrier. */
static zke *light(zke *z) { return session_as(z, .flags = ZKE_OPEN_LIGHT); }

/* Watch a node that may be missing. */
static int watch(zke *z, const char *path, test_events *events) {
  int rc = zke_exists(z, path, test_record, events, NULL);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* A session as z's database describes it; id 0 if there is none. */
static zke_session_info info(zke *z, int64_t id) {
  zke_session_info found = {0};
  zke_session_list *list = NULL;
  int rc = zke_sessions(z, id, &list);
  if (rc == ZKE_OK)
    found = list->data[0];
  else
    ck_rc(rc, ZKE_NONODE);
  found.identity = NULL;
  zke_free(list);
  return found;
}

/* ---- light sessions ---- */

/* zkembed.h: a light session has no descriptors, whichever handle of its
 * carrier opened it; otherwise it is a session like any other. */
TEST_LOOP(light_sessions_need_no_descriptors, 0, WAYS) {
  enum { MANY = 300 };
  zke *all[MANY];
  char path[32];
  begin(_i);
  int fds = test_fd_count();
  for (int i = 0; i < MANY; i++) {
    all[i] = light(i % 2 ? all[0] : a);
    snprintf(path, sizeof path, "/e%d", i);
    make_as(all[i], path, ZKE_EPHEMERAL);
  }
  ck_assert_int_eq(test_fd_count(), fds);
  zke_session_info row = info(b, zke_session_id(all[7]));
  ck_assert_int_eq(row.carrier, zke_session_id(a));
  ck_assert_int_eq(row.alive, 1);
  ck_assert_int_eq(row.ephemerals, 1);
  ck_assert_int_eq(row.timeout_ms, 0);
  ck_assert_int_eq(test_stat(b, "/e7").ephemeralOwner, zke_session_id(all[7]));
  ck_ok(zke_close(all[7]));
  ck_rc(see(b, "/e7"), ZKE_NONODE);
  ck_ok(see(b, "/e8"));
  for (int i = 0; i < MANY; i++) {
    if (i != 7) ck_ok(zke_close(all[i]));
  }
  ck_assert_int_eq(test_session_count(b), 2);
}

/* A dispatch of the carrier dispatches its light sessions; so does one of a
 * light session.  All have the same descriptor. */
TEST_LOOP(sessions_of_a_carrier_are_dispatched_together, 0, 2 * WAYS) {
  begin(_i % WAYS);
  zke *x = light(a), *y = light(a);
  zke *by = _i < WAYS ? a : x;
  int fd = -1, count = -1;
  ck_ok(zke_fd(y, &fd));
  int carriers = -2;
  ck_ok(zke_fd(a, &carriers));
  ck_assert_int_eq(fd, carriers);
  ck_ok(watch(x, "/n", &seen));
  ck_ok(watch(y, "/n", &other));
  ck_ok(zke_dispatch(by, &count));
  ck_assert_int_eq(count, 0);
  make(b, "/n");
  struct pollfd p = {fd, POLLIN, 0};
  ck_assert_int_eq(poll(&p, 1, 5000), 1);
  ck_ok(zke_dispatch(by, &count));
  ck_assert_int_eq(count, 2);
  test_expect(by, &seen, "CREATED /n");
  test_expect(by, &other, "CREATED /n");
  ck_assert_int_eq(poll(&p, 1, 0), 0);
}

/* zke_dispatch_to() of a light session calls only its own watchers. */
TEST(dispatch_to_tells_one_light_session) {
  begin(IN_FILE);
  zke *x = light(a), *y = light(a);
  int more = -1, fd = -1;
  ck_ok(watch(x, "/n", &seen));
  ck_ok(watch(y, "/n", &other));
  make(b, "/n");
  ck_ok(zke_dispatch_to(x, zke_zxid(), NULL, &more));
  ck_assert_int_eq(seen.count, 1);
  ck_assert_int_eq(other.count, 0);
  ck_ok(zke_fd(a, &fd));
  struct pollfd p = {fd, POLLIN, 0};
  ck_assert_int_eq(poll(&p, 1, 0), 1);
  ck_ok(zke_dispatch(a, NULL));
  ck_assert_int_eq(seen.count, 1);
  ck_assert_int_eq(other.count, 1);
}

/* zke_wait() on a light session returns after its own watcher, and meanwhile
 * calls those of its siblings. */
TEST_LOOP(wait_on_a_light_session, 0, WAYS) {
  begin(_i);
  zke *x = light(a), *y = light(a);
  ck_ok(watch(x, "/x", &seen));
  ck_ok(watch(y, "/y", &other));
  make(b, "/y");
  ck_rc(zke_wait(x, zke_now(x) + 50), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(other.count, 1);
  make(b, "/x");
  ck_ok(zke_wait(x, zke_now(x) + 5000));
  ck_assert_int_eq(seen.count, 1);
}

/* A thread that waits on its own light session, and is told as often as its
 * node is set; any thread that dispatches may call the watcher. */
typedef struct waiter {
  zke *z;
  int told;
  char path[16];
} waiter;

enum { WAITERS = 4, SETS = 50 };

static void count_sets(zke *z, int type, int state, const char *path,
                       void *context) {
  waiter *w = context;
  (void)state, (void)path;
  if (type != ZKE_EVENT_CHANGED) return;
  if (__atomic_add_fetch(&w->told, 1, __ATOMIC_ACQ_REL) < SETS)
    ck_ok(zke_get(z, w->path, count_sets, w, NULL, NULL, NULL));
}

static void *wait_for_sets(void *context) {
  waiter *w = context;
  for (;;) {
    int64_t turn = zke_turn(w->z);
    if (__atomic_load_n(&w->told, __ATOMIC_ACQUIRE) >= SETS) return NULL;
    int rc = zke_wait_turn(w->z, turn, zke_now(w->z) + 20000);
    if (rc != ZKE_OK) return w;
  }
}

/* Threads that wait on light sessions of one carrier each hear of every change
 * that they watch, whichever of them dispatches. */
TEST_LOOP(threads_wait_on_light_sessions, 0, WAYS) {
  pthread_t thread[WAITERS];
  waiter w[WAITERS];
  memset(w, 0, sizeof w);
  begin(_i);
  for (int i = 0; i < WAITERS; i++) {
    w[i].z = light(a);
    snprintf(w[i].path, sizeof w[i].path, "/w%d", i);
    make_as(b, w[i].path, ZKE_EPHEMERAL);
    ck_ok(zke_get(w[i].z, w[i].path, count_sets, &w[i], NULL, NULL, NULL));
  }
  for (int i = 0; i < WAITERS; i++)
    ck_assert_int_eq(pthread_create(&thread[i], NULL, wait_for_sets, &w[i]), 0);
  for (int n = 0; n < SETS; n++) {
    for (int i = 0; i < WAITERS; i++) {
      ck_ok(change(b, w[i].path));
      ck_until(__atomic_load_n(&w[i].told, __ATOMIC_ACQUIRE) > n, 20000);
    }
  }
  for (int i = 0; i < WAITERS; i++) {
    void *late = NULL;
    ck_assert_int_eq(pthread_join(thread[i], &late), 0);
    ck_assert_ptr_null(late);
    ck_ok(zke_close(w[i].z));
  }
}

/* The carrier may be closed first: its own session ends, and the light ones
 * live on with its descriptors, and can be waited on. */
TEST_LOOP(carrier_may_be_closed_first, 0, WAYS) {
  begin(_i);
  zke *x = light(a);
  int64_t carrier = zke_session_id(a);
  make_as(a, "/a", ZKE_EPHEMERAL);
  make_as(x, "/x", ZKE_EPHEMERAL);
  ck_ok(zke_close(a));
  ck_rc(see(b, "/a"), ZKE_NONODE);
  ck_assert_int_eq(info(b, carrier).id, 0);
  ck_assert_int_eq(info(b, zke_session_id(x)).alive, 1);
  ck_ok(watch(x, "/n", &seen));
  zke *y = light(x);
  make(b, "/n");
  ck_ok(zke_wait(x, zke_now(x) + 5000));
  test_expect(x, &seen, "CREATED /n");
  ck_rc(zke_wait(b, zke_now(b) + 600), ZKE_OPERATIONTIMEOUT); /* sweeps */
  ck_ok(see(b, "/x"));
  ck_ok(zke_close(x));
  ck_rc(see(b, "/x"), ZKE_NONODE);
  ck_ok(zke_close(y));
  ck_assert_int_eq(test_session_count(b), 1);
}

/* If another process calls zke_expire() on a light session, the carrier's next
 * dispatch reports it, to that session only. */
TEST_LOOP(expired_light_session_is_told, 0, WAYS) {
  begin(_i);
  zke *x = light(a), *y = light(a);
  ck_ok(watch(x, "/n", &seen));
  ck_ok(watch(y, "/n", &other));
  ck_ok(zke_dispatch(a, NULL));
  ck_ok(zke_expire(b, zke_session_id(x)));
  test_expect(a, &seen, "SESSION -112");
  test_expect(a, &other, "");
  ck_rc(see(x, "/"), ZKE_INVALIDSTATE);
  ck_ok(see(y, "/"));
  /* the carrier's own session may end too */
  ck_ok(zke_expire(b, zke_session_id(a)));
  make(b, "/n");
  ck_ok(zke_dispatch(a, NULL));
  ck_assert_int_eq(other.count, 1);
  zke *late = light(a);
  ck_ok(watch(late, "/n", &seen));
  ck_ok(zke_delete(b, "/n", -1));
  ck_ok(zke_wait(late, zke_now(late) + 900)); /* before its tick */
}

static void close_context(zke *z, int type, int state, const char *path,
                          void *context) {
  zke **victim = context;
  (void)z, (void)type, (void)state, (void)path;
  if (!*victim) return;
  ck_ok(zke_close(*victim));
  *victim = NULL;
}

static void close_self(zke *z, int type, int state, const char *path,
                       void *context) {
  zke *dispatching = context;
  (void)type, (void)state, (void)path;
  ck_rc(zke_close(z), ZKE_MISUSE);
  ck_rc(zke_close(dispatching), ZKE_MISUSE);
}

/* A callback may close another light session with pending events, but neither
 * its own nor the one that is dispatching. */
TEST(callback_closes_a_sibling) {
  begin(IN_FILE);
  enum { MANY = 20 };
  zke *all[MANY];
  for (int i = 0; i < MANY; i++) all[i] = light(a);
  for (int i = 0; i < MANY; i++)
    ck_rc(zke_exists(all[i], "/n", close_context, &all[(i + 7) % MANY], NULL),
          ZKE_NONODE);
  ck_rc(zke_exists(all[0], "/n", close_self, a, NULL), ZKE_NONODE);
  make(b, "/n");
  ck_ok(zke_dispatch(a, NULL));
  int left = 0;
  for (int i = 0; i < MANY; i++) {
    if (!all[i]) continue;
    left++;
    ck_ok(zke_close(all[i]));
  }
  ck_assert_int_gt(left, 0);
  ck_assert_int_lt(left, MANY);
}

/* Alarms of light sessions ring in the carrier's dispatch, in the order of
 * their times, and count for its deadline and its descriptor. */
TEST(alarms_of_light_sessions) {
  begin(IN_FILE);
  enum { MANY = 50 };
  zke *all[MANY];
  int64_t at = 0, first = zke_now(a) + 40;
  int fd = -1;
  ck_ok(zke_fd(a, &fd));
  for (int i = 0; i < MANY; i++) {
    all[i] = light(a);
    ck_ok(zke_call_at(all[i], first + (i * 7) % MANY, test_record, &seen));
  }
  at = deadline_of(a);
  ck_assert_int_eq(at, first);
  while (seen.count < MANY) {
    struct pollfd p = {fd, POLLIN, 0};
    ck_assert_int_eq(poll(&p, 1, 5000), 1);
    ck_ok(zke_dispatch(a, NULL));
  }
  at = deadline_of(a);
  ck_assert(at == ZKE_FOREVER || at > zke_now(a) - 1000);
}

/* ---- a heap that grows while others set times ---- */

static struct {
  int calls, when;  /* the heap's calls, and the one at which … */
  pthread_t thread; /* … another thread sets … */
  zke *z;           /* … this session's time … */
  int64_t at;       /* … to this one */
} growing;

static void *set_a_time(void *arg) {
  (void)arg;
  ck_ok(zke_call_at(growing.z, growing.at, test_record, &seen));
  return NULL;
}

/* Moves each block that grows.  At the chosen call another thread sets a time,
 * after the copy and before the old block is freed. */
static void *moving_resize(void *context, void *block, size_t size) {
  (void)context;
  if (!size) {
    free(block);
    return NULL;
  }
  size_t had = block ? malloc_usable_size(block) : 0;
  void *made = malloc(size);
  if (made && block) memcpy(made, block, had < size ? had : size);
  if (growing.when && ++growing.calls == growing.when) {
    growing.when = 0;
    pthread_create(&growing.thread, NULL, set_a_time, NULL);
    pthread_join(growing.thread, NULL);
  }
  free(block);
  return made;
}

/* A time that another thread sets while a session is opened is not lost, at
 * whichever allocation that happens; at one of them the heap of times grows. */
TEST_LOOP(a_time_is_set_while_the_heap_grows, 1, 30) {
  enum { MANY = 17 }; /* one more than initially fit */
  zke *all[MANY];
  zke_options o = ZKE_INIT(zke_options);
  o.allocator.resize = moving_resize;
  ck_ok(zke_open(":memory:", &o, &a));
  int64_t now = zke_now(a);
  for (int i = 0; i < MANY - 1; i++) {
    all[i] = light(a);
    ck_ok(zke_call_at(all[i], now + 100000 + i, test_record, &seen));
  }
  growing.z = all[MANY - 2];
  growing.at = now + 50000;
  growing.when = _i;
  all[MANY - 1] = light(a);
  int64_t at = deadline_of(a);
  if (!growing.when) ck_assert_int_eq(at, growing.at);
  growing.when = 0;
  for (int i = 0; i < MANY; i++) ck_ok(zke_close(all[i]));
}

/* In a child: hold /held by a light session until the process is killed, of
 * which the kernel tells waiters (P6). */
static int hold_light(void *context) {
  zke *z = NULL, *x = NULL;
  zke_options o = ZKE_INIT(zke_options);
  o.flags = ZKE_OPEN_LIGHT;
  if (zke_open(context, NULL, &z) != ZKE_OK) return 1;
  if (zke_open_session(z, &o, &x) != ZKE_OK) return 2;
  if (zke_create(x, "/held", NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                 NULL) != ZKE_OK)
    return 3;
  for (;;) pause();
}

/* When a carrier's process is killed its light sessions end with it: a process
 * that watches their ephemerals hears of it without a timeout. */
TEST(death_of_a_carrier_is_told_at_once) {
  begin(IN_FILE);
  pid_t pid = test_child(hold_light, (void *)(uintptr_t)test_path("light.db"));
  ck_until(see(b, "/held") == ZKE_OK, 10000);
  zke *x = light(a);
  ck_ok(watch(x, "/held", &seen));
  ck_ok(zke_dispatch(a, NULL));
  ck_assert_int_eq(test_session_count(b), 5);
  kill_child(pid);
  ck_ok(zke_wait(x, zke_now(x) + 10000));
  test_expect(a, &seen, "DELETED /held");
  ck_assert_int_eq(test_session_count(b), 3);
}

static bool no_locks; /* none is granted, and bytes that wake are lost */

static void lose_write(seam_call *c) {
  if (no_locks) seam_refuse(c, (int64_t)c->size);
}

static void fail_lock(seam_call *c) {
  if (no_locks && c->how != ZKE_LOCK_NONE) seam_refuse(c, -EIO);
}

/* Handle `a`, whose locks and writes may fail, and b of another store. */
static void open_failing(void) {
  static seam s = {
      .before = {[SEAM_lock_range] = fail_lock, [SEAM_write] = lose_write}};
  zke_options o = ZKE_INIT(zke_options);
  o.os = seam_os(&s);
  ck_ok(zke_open(test_path("light.db"), &o, &a));
  ck_ok(zke_open(test_path("light.db"), NULL, &b));
}

/* If a light session's end could not be written, it is written later.  A host
 * that looks only at the descriptor does it too (zkembed.h, zke_close), even if
 * its other thread has read the byte that the close sent. */
TEST_LOOP(owed_end_shows_at_the_descriptor, 0, 2) {
  open_failing();
  zke *x = light(a), *y = light(a);
  int fd = -1;
  make_as(x, "/e", ZKE_EPHEMERAL);
  if (_i) ck_ok(zke_close(a)); /* the carrier's only handle */
  ck_ok(zke_fd(y, &fd));
  no_locks = true;
  ck_rc(zke_close(x), ZKE_SYSTEMERROR);
  no_locks = false;
  for (int i = 0; i < 20 && see(b, "/e") == ZKE_OK; i++) {
    struct pollfd p = {fd, POLLIN, 0};
    ck_assert_int_eq(poll(&p, 1, 5000), 1);
    ck_ok(zke_dispatch(y, NULL));
  }
  ck_rc(see(b, "/e"), ZKE_NONODE);
}

/* ---- kept sessions ---- */

enum { SECOND = 1000 };

/* A kept session on a handle's carrier. */
static zke *kept(zke *z, int64_t timeout_ms, unsigned char password[16]) {
  zke *made = session_as(z, .timeout_ms = timeout_ms);
  ck_ok(zke_password(made, password));
  return made;
}

/* A kept session on a's store that owns /e, and whose close could not be
 * written; returns its id. */
static int64_t closed_in_vain(unsigned char password[16]) {
  open_failing();
  zke *x = kept(a, 3600000, password);
  int64_t id = zke_session_id(x);
  make_as(x, "/e", ZKE_EPHEMERAL);
  no_locks = true;
  ck_rc(zke_close(x), ZKE_SYSTEMERROR);
  no_locks = false;
  ck_assert_int_eq(info(b, id).id, id);
  return id;
}

/* If the end of a kept session could not be written, it is written later: the
 * session ends and is not detached, as its close required (zkembed.h,
 * zke_close). */
TEST(owed_end_of_a_kept_session_is_no_detachment) {
  unsigned char password[16];
  int64_t id = closed_in_vain(password);
  ck_until(zke_dispatch(a, NULL) == ZKE_OK && !info(b, id).carrier, 20000);
  ck_assert_int_eq(info(b, id).id, 0);
  ck_rc(see(b, "/e"), ZKE_NONODE);
}

/* If the session is attached again, the debt is void: a detachment that could
 * not be written is made later, and is no end. */
TEST(nothing_is_owed_of_a_session_that_is_attached_again) {
  unsigned char password[16];
  zke *x;
  int64_t id = closed_in_vain(password);
  ck_ok(zke_attach(a, id, password, NULL, &x));
  no_locks = true;
  ck_rc(zke_detach(x), ZKE_SYSTEMERROR);
  no_locks = false;
  ck_until(zke_dispatch(a, NULL) == ZKE_OK && !info(b, id).carrier, 20000);
  ck_assert_int_eq(info(b, id).id, id);
  ck_ok(see(b, "/e"));
}

/* After a detach and an attach, a session still has its ephemerals, but not its
 * watches, events and identities. */
TEST_LOOP(kept_session_is_attached_again, 0, WAYS) {
  unsigned char password[16], wrong[16] = "another password";
  begin(_i);
  zke *x = kept(a, 60 * SECOND, password);
  int64_t id = zke_session_id(x);
  ck_ok(zke_add_auth(x, "digest", "u:p", 3));
  ck_ok(zke_create(x, "/e", "", 0, ZKE_CREATOR_ALL_ACL, ZKE_EPHEMERAL, NULL,
                   NULL));
  ck_ok(watch(x, "/n", &seen));
  ck_ok(watch(x, "/m", &seen));
  make(b, "/n");
  ck_ok(zke_detach(x));
  zke_session_info row = info(b, id);
  ck_assert_int_eq(row.alive, 0);
  ck_assert_int_eq(row.carrier, 0);
  ck_assert_int_eq(row.timeout_ms, 60 * SECOND);
  ck_assert_int_eq(row.watches, 0);
  ck_assert_int_eq(row.events, 0);
  ck_assert_int_eq(row.ephemerals, 1);
  make(b, "/m");
  ck_rc(zke_attach(b, id, wrong, NULL, &x), ZKE_AUTHFAILED);
  ck_assert_ptr_null(x);
  ck_rc(zke_attach(b, zke_session_id(a), password, NULL, &x), ZKE_AUTHFAILED);
  ck_rc(zke_attach(b, id + 77, password, NULL, &x), ZKE_SESSIONEXPIRED);
  ck_ok(zke_attach(b, id, password, NULL, &x));
  ck_assert_int_eq(zke_session_id(x), id);
  row = info(a, id);
  ck_assert_int_eq(row.alive, 1);
  ck_assert_int_eq(row.carrier, zke_session_id(b));
  ck_ok(see(a, "/e"));
  ck_rc(zke_get(x, "/e", NULL, NULL, NULL, NULL, NULL), ZKE_NOAUTH);
  ck_ok(watch(x, "/m", &other));
  ck_ok(zke_delete(a, "/n", -1));
  ck_ok(zke_delete(a, "/m", -1));
  test_expect(b, &other, "DELETED /m");
  test_expect(b, &seen, "");
  ck_ok(zke_close(x));
  ck_assert_int_eq(info(a, id).id, 0);
}

/* A session is attached while another handle has it: that handle is refused
 * from then on, is told once, and its close ends nothing. */
TEST_LOOP(attached_session_moves, 0, 2 * WAYS) {
  unsigned char password[16];
  begin(_i % WAYS);
  zke *x = kept(a, 60 * SECOND, password), *y = NULL;
  zke *sibling = kept(a, 60 * SECOND, password + 0);
  ck_ok(zke_password(x, password));
  make_as(x, "/e", ZKE_EPHEMERAL);
  ck_ok(watch(x, "/n", &seen));
  ck_ok(watch(sibling, "/n", &other));
  ck_ok(zke_dispatch(a, NULL));
  ck_ok(zke_attach(_i < WAYS ? b : a, zke_session_id(x), password, NULL, &y));
  if (_i % 2) {
    test_expect(a, &seen, "SESSION -118");
    ck_rc(see(x, "/e"), ZKE_SESSIONMOVED);
  } else {
    ck_rc(see(x, "/e"), ZKE_SESSIONMOVED);
    ck_rc(create(x, "/f", ZKE_EPHEMERAL), ZKE_SESSIONMOVED);
    test_expect(a, &seen, "SESSION -118");
  }
  test_expect(a, &other, "");
  ck_assert_int_eq(zke_state(x), ZKE_STATE_MOVED);
  ck_rc(zke_wait(x, zke_now(x)), ZKE_SESSIONMOVED);
  ck_ok(zke_close(x));
  ck_ok(see(y, "/e"));
  ck_ok(zke_dispatch(a, NULL));
  ck_ok(zke_close(y));
  ck_rc(see(b, "/e"), ZKE_NONODE);
}

/* A handle whose session has moved without its knowledge ends nothing when it
 * is closed or detached. */
TEST_LOOP(moved_handle_ends_nothing, 0, 2) {
  unsigned char password[16];
  begin(IN_FILE);
  zke *x = kept(a, 60 * SECOND, password), *y = NULL;
  make_as(x, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_attach(b, zke_session_id(x), password, NULL, &y));
  ck_rc(_i ? zke_detach(x) : zke_close(x), _i ? ZKE_SESSIONMOVED : ZKE_OK);
  ck_ok(see(y, "/e"));
  ck_assert_int_eq(info(a, zke_session_id(y)).carrier, zke_session_id(b));
}

/* The last handle of a store may have lost its session to another. */
TEST(moved_handle_may_be_the_last_of_its_store) {
  unsigned char password[16];
  begin(IN_FILE);
  zke *x = kept(a, 60 * SECOND, password), *y = NULL;
  ck_ok(zke_attach(a, zke_session_id(x), password, NULL, &y));
  ck_ok(zke_close(y));
  ck_ok(zke_close(a));
  ck_rc(see(x, "/"), ZKE_SESSIONMOVED);
}

/* If a session ends before a watcher got the event that zke_set_watch() owed
 * it, that event is void once the end was reported, and its carrier sleeps.
 * The carrier used to have work for ever, and its zke_wait() never slept. */
TEST_LOOP(what_is_owed_ends_with_the_session, 0, 2 * WAYS) {
  int pending = 1;
  begin(_i % WAYS);
  zke *x = light(a);
  ck_ok(zke_set_watch(x, "/", ZKE_WATCH_EXIST, 0, test_record, &seen));
  if (_i < WAYS)
    ck_ok(zke_expire(b, zke_session_id(x)));
  else
    ck_rc(zke_add_auth(x, "none", "", 0), ZKE_AUTHFAILED);
  test_expect(a, &seen, _i < WAYS ? "SESSION -112" : "SESSION -113");
  ck_ok(zke_dispatch(a, NULL)); /* its wake-up has been read */
  int64_t at = deadline_of(a);
  ck_assert_int_gt(at, zke_now(a));
  ck_ok(zke_pending(x, &pending));
  ck_assert_int_eq(pending, 0);
  test_expect(a, &seen, "");
}

/* ---- the timeouts of kept sessions, on a clock of the test ---- */

/* Open a and b on a clock that stands still until it is moved. */
static void begin_driven(int way) {
  static seam s;
  zke_options o = ZKE_INIT(zke_options);
  o.os = seam_os(&s);
  seam_stand();
  const char *name = way == IN_MEMORY ? ":memory:" : test_path("light.db");
  ck_ok(zke_open(name, &o, &a));
  ck_ok(way == IN_MEMORY ? zke_open_session(a, NULL, &b)
                         : zke_open(name, &o, &b));
}

/* Let time pass in steps of 100 ms, after each of which z dispatches, and z2
 * unless it is NULL. */
static void pass(zke *z, zke *z2, int64_t ms) {
  for (; ms > 0; ms -= 100) {
    seam_pass(100);
    ck_ok(zke_dispatch(z, NULL));
    if (z2) ck_ok(zke_dispatch(z2, NULL));
  }
}

enum { TIMEOUT = 4 * SECOND };

/* An attached session ends when its host has dispatched for its timeout without
 * hearing from it: neither earlier nor much later.  A touch, or a call by its
 * handle, restarts the time. */
TEST_LOOP(host_ends_what_it_does_not_hear, 0, 3 * WAYS) {
  unsigned char password[16];
  begin_driven(_i % WAYS);
  zke *x = kept(a, TIMEOUT, password), *y = kept(a, TIMEOUT, password);
  make_as(x, "/x", ZKE_EPHEMERAL);
  ck_ok(zke_set_watcher(x, test_record, &seen));
  for (int i = 0; i < 5; i++) {
    pass(a, b, TIMEOUT - 200);
    ck_ok(_i < WAYS ? zke_touch(x) : see(x, "/x"));
    ck_ok(zke_touch(y));
  }
  int64_t at = deadline_of(a);
  ck_assert_int_le(at, zke_now(a) + TIMEOUT + 10);
  pass(a, b, TIMEOUT - 100);
  ck_ok(see(b, "/x"));
  ck_assert_int_eq(seen.count, 0);
  ck_ok(zke_touch(y));
  pass(a, b, 300);
  test_expect(a, &seen, "SESSION -112");
  ck_rc(see(b, "/x"), ZKE_NONODE);
  ck_rc(see(x, "/"), ZKE_INVALIDSTATE);
  ck_ok(see(y, "/"));
}

/* Only the host judges while its process lives, and a pause of the host counts
 * as at most 1.5 s: another process that keeps running ends nothing. */
TEST(time_in_which_the_host_stands_still_does_not_count) {
  unsigned char password[16];
  begin_driven(IN_FILE);
  zke *x = kept(a, TIMEOUT, password);
  make_as(x, "/x", ZKE_EPHEMERAL);
  for (int i = 0; i < 2; i++) {
    pass(b, NULL, 3600 * SECOND / 10); /* a stands still, b sweeps */
    ck_ok(see(b, "/x"));
    ck_ok(zke_dispatch(a, NULL));
    ck_ok(see(b, "/x"));
  }
  pass(a, b, 800); /* 3 s have counted so far */
  ck_ok(see(b, "/x"));
  pass(a, b, 400);
  ck_rc(see(b, "/x"), ZKE_NONODE);
}

/* zkembed.h, zke_detach: a session that has ended, or is another handle's, is
 * not detached; the result used to be ZKE_OK.  Its handle may know that (2, 3)
 * or not. */
TEST_LOOP(what_is_over_is_not_detached, 0, 4) {
  unsigned char password[16];
  begin(IN_FILE);
  zke *x = kept(a, 60 * SECOND, password), *y = NULL;
  int64_t id = zke_session_id(x);
  bool moves = _i % 2, knows = _i / 2;
  ck_ok(moves ? zke_attach(b, id, password, NULL, &y) : zke_expire(b, id));
  if (knows)
    ck_rc(zke_sync(x, "/"), moves ? ZKE_SESSIONMOVED : ZKE_SESSIONEXPIRED);
  int ended = knows ? ZKE_INVALIDSTATE : ZKE_SESSIONEXPIRED;
  ck_rc(zke_detach(x), moves ? ZKE_SESSIONMOVED : ended);
  if (y) ck_ok(see(y, "/"));
}

/* A detached session ends after its timeout, by the sweep of any process; if it
 * is attached before, it lives on. */
TEST_LOOP(detached_session_ends_by_its_stamp, 0, WAYS) {
  unsigned char password[16];
  begin_driven(_i);
  zke *x = kept(a, TIMEOUT, password);
  int64_t id = zke_session_id(x);
  make_as(x, "/x", ZKE_EPHEMERAL);
  for (int i = 0; i < 3; i++) {
    pass(a, b, TIMEOUT - 300);
    ck_ok(zke_detach(x));
    pass(b, NULL, TIMEOUT - 300);
    ck_ok(see(b, "/x"));
    ck_ok(zke_attach(a, id, password, NULL, &x));
  }
  ck_ok(zke_detach(x));
  pass(b, NULL, TIMEOUT + 1500);
  ck_rc(see(b, "/x"), ZKE_NONODE);
  ck_rc(zke_attach(a, id, password, NULL, &x), ZKE_SESSIONEXPIRED);
}

/* Time in which no process sweeps does not count for detached sessions: neither
 * that of a server that was down nor the time that zke_rearm() returns. */
TEST_LOOP(time_in_which_nobody_sweeps_does_not_count, 0, 2) {
  unsigned char password[16];
  int overdue = -1;
  begin_driven(IN_FILE);
  zke *x = kept(a, TIMEOUT, password);
  int64_t id = zke_session_id(x);
  make_as(x, "/x", ZKE_EPHEMERAL);
  ck_ok(zke_detach(x));
  if (_i) {
    pass(a, b, TIMEOUT - 300);
    ck_ok(zke_rearm(a));
  } else {
    pass(a, b, 500);
    seam_pass(3600000);
  }
  ck_ok(zke_dispatch(b, NULL));
  pass(a, b, TIMEOUT - 1700);
  ck_ok(see(b, "/x"));
  ck_ok(zke_overdue(b, &overdue));
  ck_assert_int_eq(overdue, 0);
  ck_ok(zke_attach(b, id, password, NULL, &x));
  ck_ok(zke_detach(x));
  pass(a, b, TIMEOUT + 1500);
  ck_rc(see(b, "/x"), ZKE_NONODE);
}

/* A kept session whose authentication failed can do nothing more, and ends by
 * its timeout like any other; its handle does not change. */
TEST_LOOP(failed_authentication_does_not_keep_a_session, 0, WAYS) {
  unsigned char password[16];
  begin_driven(_i);
  zke *x = kept(a, TIMEOUT, password), *y = kept(a, TIMEOUT, password);
  make_as(x, "/x", ZKE_EPHEMERAL);
  ck_rc(zke_add_auth(x, "nonsense", "", 0), ZKE_AUTHFAILED);
  ck_rc(zke_add_auth(y, "nonsense", "", 0), ZKE_AUTHFAILED);
  pass(a, b, TIMEOUT - 1000);
  ck_ok(see(b, "/x"));
  ck_ok(zke_touch(x));
  ck_ok(zke_expire(b, zke_session_id(y)));
  pass(a, b, TIMEOUT - 1000);
  ck_ok(see(b, "/x"));
  pass(a, b, 2500);
  ck_rc(see(b, "/x"), ZKE_NONODE);
  ck_assert_int_eq(test_session_count(b), 2);
  ck_assert_int_eq(zke_state(x), ZKE_STATE_AUTH_FAILED);
}

/* If another handle of the store attaches it, closing the handle whose
 * authentication failed does not end it. */
TEST_LOOP(failed_handle_does_not_end_a_moved_session, 0, WAYS) {
  unsigned char password[16];
  zke *y = NULL;
  begin(_i);
  zke *x = kept(a, TIMEOUT, password);
  make_as(x, "/x", ZKE_EPHEMERAL);
  ck_rc(zke_add_auth(x, "nonsense", "", 0), ZKE_AUTHFAILED);
  ck_ok(zke_attach(a, zke_session_id(x), password, NULL, &y));
  ck_ok(zke_close(x));
  ck_ok(see(b, "/x"));
  ck_ok(see(y, "/x"));
  ck_ok(zke_close(y));
  ck_rc(see(b, "/x"), ZKE_NONODE);
}

/* A host in a time namespace that cannot read its offset: an hour behind. */
static void strange_clock(seam_call *c) {
  if (c->how == ZKE_CLOCK_BOOTTIME) c->result -= 3600 * INT64_C(1000000000);
}

/* A session that such a host detaches, or restarts the timeout of, gets its
 * whole timeout by the clock of the process that sweeps. */
TEST_LOOP(stamps_of_a_host_with_a_strange_clock, 0, 2) {
  unsigned char password[16];
  static seam s = {.fail = {[SEAM_boot_offset] = {-EIO, .times = SEAM_ALWAYS}},
                   .after = {[SEAM_clock] = strange_clock}};
  begin_driven(IN_FILE);
  zke *strange = open_as(test_path("light.db"), .os = seam_os(&s));
  zke *x = kept(_i ? a : strange, TIMEOUT, password);
  make_as(x, "/x", ZKE_EPHEMERAL);
  ck_ok(zke_detach(x));
  if (_i) ck_ok(zke_rearm(strange));
  pass(a, b, TIMEOUT - 500);
  ck_ok(see(b, "/x"));
  pass(a, b, 2500);
  ck_rc(see(b, "/x"), ZKE_NONODE);
}

/* ---- hosts that die ---- */

/* In a child: a kept session with /kept and a watch; writes its id and password
 * to a file that the parent reads. */
static int host_kept(void *context) {
  zke *z = NULL, *x = NULL;
  unsigned char password[16];
  char path[600];
  zke_options o = ZKE_INIT(zke_options);
  o.timeout_ms = 3 * SECOND;
  if (zke_open(context, NULL, &z) != ZKE_OK) return 1;
  if (zke_open_session(z, &o, &x) != ZKE_OK) return 2;
  if (zke_create(x, "/kept", NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                 NULL) != ZKE_OK)
    return 3;
  if (zke_exists(x, "/n", test_ignore, NULL, NULL) != ZKE_NONODE) return 4;
  if (zke_password(x, password) != ZKE_OK) return 5;
  snprintf(path, sizeof path, "%s.new", (const char *)context);
  FILE *out = fopen(path, "w");
  int64_t id = zke_session_id(x);
  if (!out || fwrite(&id, sizeof id, 1, out) != 1) return 6;
  if (fwrite(password, sizeof password, 1, out) != 1 || fclose(out)) return 7;
  char ready[600];
  snprintf(ready, sizeof ready, "%s.ready", (const char *)context);
  if (rename(path, ready)) return 8;
  for (;;) {
    zke_wait(z, zke_now(z) + 200);
    zke_touch(x);
  }
}

/* The session that a child takes over. */
static struct {
  int64_t id;
  unsigned char password[16];
  bool gives_up; /* it detaches the session and exits */
} moving;

/* In a child: attach it, and keep it until this process is killed. */
static int take_over(void *context) {
  zke *z = NULL, *x = NULL;
  if (zke_open(context, NULL, &z) != ZKE_OK) return 1;
  if (zke_attach(z, moving.id, moving.password, NULL, &x) != ZKE_OK) return 2;
  if (create(x, "/taken", ZKE_PERSISTENT) != ZKE_OK) return 3;
  if (moving.gives_up) return zke_detach(x) != ZKE_OK || zke_close(z) != ZKE_OK;
  for (;;) {
    zke_wait(z, zke_now(z) + 100);
    zke_touch(x);
  }
}

/* P5, P6: a handle whose session another process has taken does not keep it
 * alive, even if its owner has not closed it: when that process is killed, or
 * detaches the session, it ends by its timeout.  It used to stay for ever if
 * only the store of that handle swept. */
TEST_LOOP(moved_handle_keeps_nothing_alive, 0, 2) {
  const char *db = test_path("light.db");
  begin_driven(IN_FILE); /* the child's time is the real one */
  zke *x = kept(a, TIMEOUT, moving.password);
  moving.id = zke_session_id(x);
  moving.gives_up = _i == 1;
  make_as(x, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_set_watcher(x, test_record, &seen));
  pid_t pid = test_child(take_over, (void *)(uintptr_t)db);
  ck_until(zke_touch(x) == ZKE_OK && see(a, "/taken") == ZKE_OK, 20000);
  test_expect(a, &seen, "SESSION -118");
  if (!_i) {
    ck_ok(see(a, "/e"));
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
  }
  test_child_end(pid);
  ck_until((pass(a, NULL, 100), see(a, "/e") == ZKE_NONODE), 20000);
  ck_assert_int_eq(info(a, moving.id).id, 0);
  ck_assert_int_eq(zke_state(x), ZKE_STATE_MOVED);
}

static pid_t start_host(int64_t *id, unsigned char password[16]) {
  const char *db = test_path("light.db");
  pid_t pid = test_child(host_kept, (void *)(uintptr_t)db);
  FILE *in = NULL;
  ck_until((in = fopen(test_path("light.db.ready"), "r")) != NULL, 20000);
  ck_assert_int_eq((int)fread(id, sizeof *id, 1, in), 1);
  ck_assert_int_eq((int)fread(password, 16, 1, in), 1);
  ck_assert_int_eq(fclose(in), 0);
  return pid;
}

/* A host is killed: its ephemerals stay, the process that notices detaches the
 * session, and it can be attached, or else ends. */
TEST_LOOP(killed_hosts_session_can_be_attached, 0, 2) {
  unsigned char password[16];
  int64_t id;
  begin(IN_FILE);
  pid_t pid = start_host(&id, password);
  ck_assert_int_eq(info(b, id).watches, 1);
  kill_child(pid);
  ck_until(zke_wait(b, zke_now(b) + 10) != 7 && info(b, id).carrier == 0,
           10000);
  ck_assert_int_eq(info(b, id).watches, 0);
  ck_ok(see(b, "/kept"));
  ck_assert_int_eq(test_session_count(b), 3);
  if (_i) {
    zke *x = NULL;
    ck_ok(zke_attach(a, id, password, NULL, &x));
    ck_ok(see(x, "/kept"));
    ck_ok(zke_close(x));
  } else {
    ck_until(zke_wait(b, zke_now(b) + 10) != 7 && info(b, id).id == 0, 20000);
  }
  ck_rc(see(b, "/kept"), ZKE_NONODE);
}

/* A host is stopped: its session does not end, however long that takes.
 * Another handle may attach it, and when the host continues, nothing that it
 * does ends the session. */
TEST(stopped_hosts_session_can_be_attached) {
  unsigned char password[16];
  int64_t id;
  zke *x = NULL;
  begin(IN_FILE);
  pid_t pid = start_host(&id, password);
  test_stop(pid, test_path("light.db"));
  int64_t end = test_now() + 4500; /* longer than its timeout */
  while (test_now() < end) zke_wait(b, zke_now(b) + 50);
  ck_ok(see(b, "/kept"));
  ck_assert_int_eq(info(b, id).alive, 1);
  ck_ok(zke_attach(a, id, password, NULL, &x));
  ck_assert_int_eq(kill(pid, SIGCONT), 0);
  end = test_now() + 1500;
  while (test_now() < end) {
    zke_wait(a, zke_now(a) + 50);
    ck_ok(zke_touch(x));
  }
  ck_ok(see(x, "/kept"));
  kill_child(pid);
  ck_ok(see(x, "/kept"));
}

/* Two threads attach one session repeatedly, by two stores: each time one of
 * them has it, its ephemeral is always there, and no handle that lost it can
 * change anything. */
typedef struct rival {
  zke *z;
  int64_t id;
  const unsigned char *password;
  int kept, moved, wrong;
} rival;

static void *attach_often(void *context) {
  rival *r = context;
  for (int i = 0; i < 200; i++) {
    zke *x = NULL;
    int rc = zke_attach(r->z, r->id, r->password, NULL, &x);
    if (rc == ZKE_OK) rc = zke_set(x, "/x", NULL, -1, -1, NULL);
    if (rc == ZKE_OK)
      r->kept++;
    else if (rc == ZKE_SESSIONMOVED)
      r->moved++;
    else
      r->wrong++;
    zke_dispatch(r->z, NULL);
    bool looks = i % 3 != 0;
    if (x && (!looks || see(x, "/x") == ZKE_OK)) {
      rc = zke_detach(x); /* it may have moved by now */
      if (rc != ZKE_OK && rc != ZKE_SESSIONMOVED) r->wrong++;
    } else if (x) {
      if (zke_close(x)) r->wrong++; /* it has moved: nothing ends */
    }
  }
  return NULL;
}

/* Two stores that attach one session at the same time, again and again, either
 * have it or are told that it has moved; nothing else happens to it. */
TEST(rivals_attach_one_session) {
  unsigned char password[16];
  pthread_t thread;
  begin(IN_FILE);
  zke *x = kept(a, 600 * SECOND, password);
  make_as(x, "/x", ZKE_EPHEMERAL);
  rival r[2] = {{.z = a, .id = zke_session_id(x), .password = password},
                {.z = b, .id = zke_session_id(x), .password = password}};
  ck_assert_int_eq(pthread_create(&thread, NULL, attach_often, &r[1]), 0);
  attach_often(&r[0]);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(r[0].wrong + r[1].wrong, 0);
  ck_assert_int_gt(r[0].kept, 0);
  ck_assert_int_gt(r[1].kept, 0);
  ck_ok(zke_close(x)); /* it has moved */
  ck_ok(see(b, "/x"));
  ck_ok(zke_attach(a, r[0].id, password, NULL, &x));
  ck_ok(zke_close(x));
  ck_rc(see(b, "/x"), ZKE_NONODE);
}

/* Incompatible options, and calls on sessions that are not kept. */
TEST(kept_sessions_refuse) {
  unsigned char password[16];
  zke *x = NULL;
  begin(IN_FILE);
  zke_options o = ZKE_INIT(zke_options);
  o.timeout_ms = 1000;
  o.lease_ms = 1000;
  ck_rc(zke_open_session(a, &o, &x), ZKE_BADARGUMENTS);
  o.lease_ms = 0;
  ck_rc(zke_open(test_path("light.db"), &o, &x), ZKE_BADARGUMENTS);
  o.timeout_ms = -1;
  ck_rc(zke_open_session(a, &o, &x), ZKE_BADARGUMENTS);
  o.timeout_ms = ZKE_MAX_TIMEOUT + 1;
  ck_rc(zke_open_session(a, &o, &x), ZKE_BADARGUMENTS);
  o.timeout_ms = 0;
  o.flags = ZKE_OPEN_LIGHT;
  ck_rc(zke_open(test_path("light.db"), &o, &x), ZKE_BADARGUMENTS);
  o.flags = 0;
  o.timeout_ms = 1000;
  ck_ok(zke_open_session(a, &o, &x));
  ck_ok(zke_password(x, password));
  o.timeout_ms = 0;
  o.lease_ms = 1000;
  zke *taken = NULL;
  ck_rc(zke_attach(b, zke_session_id(x), password, &o, &taken),
        ZKE_BADARGUMENTS);
  ck_ok(zke_close(x));
  ck_rc(zke_password(a, password), ZKE_BADARGUMENTS);
  ck_rc(zke_detach(a), ZKE_BADARGUMENTS);
  x = light(a);
  int fd = -1;
  ck_rc(zke_password(x, password), ZKE_BADARGUMENTS);
  ck_rc(zke_detach(x), ZKE_BADARGUMENTS);
  ck_rc(zke_keepalive_fd(x, &fd), ZKE_UNIMPLEMENTED);
  ck_ok(zke_touch(x));
  ck_ok(zke_close(x));
  ck_rc(zke_detach(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_touch(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_rearm(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_password(NULL, password), ZKE_BADARGUMENTS);
  ck_rc(zke_attach(NULL, 1, password, NULL, &x), ZKE_BADARGUMENTS);
  ck_rc(zke_attach(a, 1, NULL, NULL, &x), ZKE_BADARGUMENTS);
  ck_rc(zke_attach(a, 0, password, NULL, &x), ZKE_BADARGUMENTS);
  ck_rc(zke_attach(a, 1, password, NULL, NULL), ZKE_BADARGUMENTS);
}
