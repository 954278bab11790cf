/* test_wait.c - waiting alone and in a host's poll loop, as a good guest
 *
 * A waiter and a writer share a tree: two sessions of one store in memory, or
 * two stores on one file.  If something must happen while the waiter sleeps, a
 * second thread does it as soon as the OS table has seen the waiter fall
 * asleep.
 */
#include "test/seam.h"
#include "test/engine/calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

SIDE_BY_SIDE(4);

enum { IN_MEMORY, IN_FILE, BY_POLL /* a file, without epoll */, WAYS };

static zke *waiter, *writer;
static test_events seen;

/* ---- an OS table that reports sleeping and can lose bytes ---- */

static atomic_int asleep; /* threads inside the waiter's poll() */
static atomic_bool mute;  /* the writer's wake-ups are lost */

static void fall_asleep(seam_call *c) {
  (void)c;
  atomic_fetch_add(&asleep, 1);
}

static void wake_up(seam_call *c) {
  (void)c;
  atomic_fetch_sub(&asleep, 1);
}

static void lose_bytes(seam_call *c) {
  if (mute) seam_refuse(c, (int64_t)c->size);
}

static void begin(int way) {
  static seam telling = {.before = {[SEAM_poll] = fall_asleep},
                         .after = {[SEAM_poll] = wake_up},
                         .fail = {[SEAM_poller] = {.result = -ENOSYS}}},
              losing = {.before = {[SEAM_write] = lose_bytes}};
  seam_fail(&telling, SEAM_poller, way == BY_POLL);
  zke_options writes = {.size = sizeof writes, .os = seam_os(&losing)};
  const char *name = way == IN_MEMORY ? ":memory:" : test_path("wait.db");
  waiter = open_as(name, .os = seam_os(&telling), .watcher = test_record,
                   .watcher_context = &seen);
  if (way == IN_MEMORY) {
    writer = test_session(waiter, NULL);
  } else {
    ck_ok(zke_open(name, &writes, &writer));
  }
  make(writer, "/n");
}

static void watch(zke *z, test_events *events) {
  ck_ok(zke_add_watch(z, "/n", ZKE_WATCH_PERSISTENT, test_record, events));
}

static void watch_root(zke *z) {
  ck_ok(zke_exists(z, "/", test_record, &seen, NULL));
}

/* ---- zke_wait alone ---- */

/* zkembed.h: without events the wait ends at its deadline, not before. */
TEST_LOOP(wait_ends_at_its_deadline, 0, WAYS) {
  begin(_i);
  watch(waiter, &seen);
  for (int ms = 1; ms < 100; ms *= 3) {
    int64_t deadline = zke_now(waiter) + ms;
    ck_rc(zke_wait(waiter, deadline), ZKE_OPERATIONTIMEOUT);
    ck_assert_int_ge(zke_now(waiter), deadline);
  }
  ck_assert_int_eq(seen.count, 0);
}

/* The same over several of the library's own ticks (P7). */
TEST_LOOP(ticks_do_not_end_a_wait, 0, WAYS) {
  begin(_i);
  watch(waiter, &seen);
  int64_t deadline = zke_now(waiter) + 1500;
  ck_rc(zke_wait(waiter, deadline), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(zke_now(waiter), deadline);
}

/* zkembed.h: with a deadline in the past it is a dispatch. */
TEST_LOOP(past_deadline_only_dispatches, 0, WAYS) {
  begin(_i);
  watch(waiter, &seen);
  const int64_t past[] = {zke_now(waiter), zke_now(waiter) - 1, 0, -1,
                          INT64_MIN};
  for (int i = 0; i < 5; i++) {
    ck_rc(zke_wait(waiter, past[i]), ZKE_OPERATIONTIMEOUT);
    ck_ok(change(writer, "/n"));
    ck_rc(zke_wait(waiter, past[i]), ZKE_OK);
    ck_assert_int_eq(seen.count, i + 1);
  }
}

/* Dispatch what is pending; true if nothing is left. */
static bool is_idle(zke *z) {
  int pending = 7;
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_pending(z, &pending));
  return pending == 0;
}

/* zkembed.h, zke_pending: 1 from the change until the dispatch, and at the
 * session's end. */
TEST_LOOP(pending_tells_of_work, 0, WAYS) {
  int pending = 7;
  begin(_i);
  watch(waiter, &seen);
  for (int i = 0; i < 3; i++) {
    ck_until(is_idle(waiter), 10000);
    ck_ok(change(writer, "/n"));
    ck_ok(zke_pending(waiter, &pending));
    ck_assert_int_eq(pending, 1);
    ck_ok(zke_pending(waiter, &pending)); /* asking removes nothing */
    ck_assert_int_eq(pending, 1);
    ck_ok(zke_dispatch(waiter, NULL));
    ck_assert_int_eq(seen.count, i + 1);
  }
  ck_ok(zke_expire(writer, zke_session_id(waiter)));
  ck_ok(zke_pending(waiter, &pending));
  ck_assert_int_eq(pending, 1);
  ck_rc(zke_pending(waiter, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_pending(NULL, &pending), ZKE_BADARGUMENTS);
}

/* P4: a change made before the wait ends it, whichever session made it. */
TEST_LOOP(earlier_change_ends_the_wait, 0, WAYS) {
  begin(_i);
  watch(waiter, &seen);
  ck_ok(change(writer, "/n"));
  ck_ok(zke_wait(waiter, ZKE_FOREVER));
  test_expect(waiter, &seen, "CHANGED /n");
  ck_ok(change(waiter, "/n"));
  ck_ok(zke_wait(waiter, ZKE_FOREVER));
  test_expect(waiter, &seen, "CHANGED /n");
}

/* The task of a second thread, and its result. */
typedef struct task {
  int (*run)(void);
  int rc;
} task;

static void *run_when_asleep(void *argument) {
  task *t = argument;
  while (!asleep) test_pause();
  t->rc = t->run();
  return NULL;
}

/* Wait until something comes; run() is called once we sleep. */
static int wait_while(int (*run)(void), int64_t deadline) {
  task t = {.run = run, .rc = -1};
  pthread_t thread = begin_thread(run_when_asleep, &t);
  int rc = zke_wait(waiter, deadline);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_ok(t.rc);
  return rc;
}

static int writer_changes(void) { return change(writer, "/n"); }
static int waiter_changes(void) { return change(waiter, "/n"); }
static int writer_expires_waiter(void) {
  return zke_expire(writer, zke_session_id(waiter));
}

/* zkembed.h: a change by another session ends the sleep. */
TEST_LOOP(change_ends_the_sleep, 0, WAYS) {
  begin(_i);
  watch(waiter, &seen);
  ck_ok(wait_while(writer_changes, ZKE_FOREVER));
  test_expect(waiter, &seen, "CHANGED /n");
}

/* So does a change by another thread through the sleeping handle itself. */
TEST_LOOP(own_change_ends_the_sleep, 0, WAYS) {
  begin(_i);
  watch(waiter, &seen);
  ck_ok(wait_while(waiter_changes, ZKE_FOREVER));
  test_expect(waiter, &seen, "CHANGED /n");
}

/* So does the session's expiry. */
TEST_LOOP(expiry_ends_the_sleep, 0, WAYS) {
  begin(_i);
  ck_ok(wait_while(writer_expires_waiter, ZKE_FOREVER));
  test_expect(waiter, &seen, "SESSION -112");
}

static int writer_changes_unheard(void) {
  mute = true;
  int rc = change(writer, "/n");
  mute = false;
  return rc;
}

/* P7: a lost wake-up is found at the tick, which comes within a second. */
TEST(lost_wakeup_is_made_up_for) {
  begin(IN_FILE);
  watch(waiter, &seen);
  int64_t start = zke_now(waiter);
  ck_ok(wait_while(writer_changes_unheard, start + test_patience(15000)));
  ck_assert_int_lt(zke_now(waiter), start + test_patience(10000));
  test_expect(waiter, &seen, "CHANGED /n");
}

/* zkembed.h: zke_now() is the monotonic clock of the OS table. */
TEST_LOOP(now_is_the_monotonic_clock, 0, WAYS) {
  begin(_i);
  int64_t before = test_now();
  int64_t now = zke_now(waiter);
  ck_assert_int_ge(now, before);
  ck_assert_int_le(now, test_now());
}

/* ---- the descriptor ---- */

/* zkembed.h: it is readable as soon as there is work, whichever session made
 * it, and no longer once that was dispatched. */
TEST_LOOP(descriptor_is_readable_while_there_is_work, 0, 2 * WAYS) {
  begin(_i / 2);
  zke *changer = _i % 2 ? waiter : writer;
  watch(waiter, &seen);
  for (int i = 0; i < 20; i++) {
    /* Again, in case a tick came in between. */
    ck_until((zke_dispatch(waiter, NULL), !readable(waiter, 0)), 5000);
    ck_ok(change(changer, "/n"));
    ck_assert(readable(waiter, 0));
    test_expect(waiter, &seen, "CHANGED /n");
  }
}

/* zkembed.h: one descriptor for the life of the handle, close-on-exec (P9). */
TEST_LOOP(descriptor_is_one, 0, WAYS) {
  begin(_i);
  int first = -1, second = -1;
  ck_ok(zke_fd(waiter, &first));
  watch(waiter, &seen);
  ck_ok(change(writer, "/n"));
  ck_ok(zke_dispatch(waiter, NULL));
  ck_ok(zke_fd(waiter, &second));
  ck_assert_int_eq(first, second);
  ck_assert_int_eq(fcntl(first, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ck_ok(zke_fd(writer, &second));
  ck_assert_int_ne(first, second);
}

/* P7: a session with a watch on a file must be dispatched within a second. */
TEST(deadline_of_a_watcher_is_near) {
  begin(IN_FILE);
  watch(waiter, &seen);
  for (int i = 0; i < 3; i++) {
    int64_t deadline = deadline_of(waiter);
    ck_assert_int_le(deadline, zke_now(waiter) + 1000);
    ck_ok(zke_dispatch(waiter, NULL));
  }
}

static int64_t stopped_ns; /* for all clocks but the wall clock */

static void stop_clock(seam_call *c) {
  if (c->how != ZKE_CLOCK_REALTIME) seam_refuse(c, stopped_ns);
}

/* zkembed.h: a dispatch at the deadline, in the units of zke_now(), does what
 * was due; otherwise a host's loop would spin until the millisecond is over. */
TEST_LOOP(dispatch_at_the_deadline_moves_it, 0, WAYS) {
  static seam s = {.before = {[SEAM_clock] = stop_clock}};
  stopped_ns = INT64_C(5000700000); /* 0.7 ms after a full one */
  waiter = open_as(_i == IN_MEMORY ? ":memory:" : test_path("wait.db"),
                   .os = seam_os(&s));
  watch_root(waiter);
  for (int i = 0; i < 20; i++) {
    int64_t deadline = 0, next = 0;
    ck_ok(zke_dispatch(waiter, NULL));
    deadline = deadline_of(waiter);
    ck_assert_int_gt(deadline, zke_now(waiter));
    stopped_ns = deadline * 1000000;
    ck_ok(zke_dispatch(waiter, NULL));
    next = deadline_of(waiter);
    ck_assert_int_gt(next, deadline);
    stopped_ns += 700000;
  }
}

/* ---- a host's own loop ---- */

enum { SOURCES = 6 };

/* A handle in the loop. */
typedef struct source {
  zke *z;
  test_events events;
} source;

/* Milliseconds to sleep without missing a source's deadline. */
static int sleep_ms(const source *s, int count, int64_t until) {
  int64_t next = until;
  for (int i = 0; i < count; i++) {
    int64_t deadline = deadline_of(s[i].z);
    if (deadline < next) next = deadline;
  }
  int64_t ms = next - zke_now(s[0].z);
  return ms < 0 ? 0 : (int)ms;
}

/* One iteration of the loop: sleep in poll(2), then dispatch each source that
 * is ready or due.  Returns the result of poll(). */
static int turn(source *s, int count, int64_t until) {
  struct pollfd fds[SOURCES];
  for (int i = 0; i < count; i++) {
    fds[i] = (struct pollfd){.events = POLLIN};
    ck_ok(zke_fd(s[i].z, &fds[i].fd));
  }
  int n = poll(fds, (nfds_t)count, sleep_ms(s, count, until));
  ck_assert_int_ge(n, 0);
  for (int i = 0; i < count; i++) {
    int64_t deadline = deadline_of(s[i].z);
    if (fds[i].revents || deadline <= zke_now(s[i].z))
      ck_ok(zke_dispatch(s[i].z, NULL));
  }
  return n;
}

/* Two sessions in memory, one in another memory, two stores on one file, one on
 * another file; each watches /n. */
static void open_sources(source *s) {
  s[0].z = test_open(":memory:");
  s[1].z = test_session(s[0].z, NULL);
  s[2].z = test_open(":memory:");
  s[3].z = test_open(test_path("one.db"));
  s[4].z = test_open(test_path("one.db"));
  s[5].z = test_open(test_path("two.db"));
  for (int i = 0; i < SOURCES; i++) {
    int rc = create(s[i].z, "/n", ZKE_PERSISTENT);
    ck_assert(rc == ZKE_OK || rc == ZKE_NODEEXISTS);
    watch(s[i].z, &s[i].events);
  }
}

/* Which sources share a tree. */
static const int tree[SOURCES] = {0, 0, 2, 3, 3, 5};

static int told(const source *s, int changer) {
  int count = 0;
  for (int i = 0; i < SOURCES; i++)
    count += tree[i] == tree[changer] && s[i].events.count > 0;
  return count;
}

/* Issue, "Waiting and threads": several handles in one foreign poll loop; a
 * change through any of them reaches exactly those on its tree. */
TEST(one_loop_serves_many_handles) {
  static source s[SOURCES];
  open_sources(s);
  for (int round = 0; round < 5 * SOURCES; round++) {
    int changer = round % SOURCES;
    int audience = 0;
    for (int i = 0; i < SOURCES; i++) audience += tree[i] == tree[changer];
    ck_ok(change(s[changer].z, "/n"));
    int64_t end = zke_now(s[0].z) + 5000;
    while (told(s, changer) < audience && zke_now(s[0].z) < end)
      turn(s, SOURCES, end);
    for (int i = 0; i < SOURCES; i++) {
      ck_assert_int_eq(s[i].events.count, tree[i] == tree[changer]);
      s[i].events.count = 0;
    }
  }
  for (int i = 0; i < SOURCES; i++) ck_ok(zke_close(s[i].z));
}

/* P7 in a foreign loop: the deadline, or the descriptor's own timer, finds the
 * event whose wake-up was lost. */
TEST(loop_makes_up_for_a_lost_wakeup) {
  begin(IN_FILE);
  source s = {.z = waiter};
  watch(waiter, &s.events);
  ck_ok(zke_dispatch(waiter, NULL));
  ck_ok(writer_changes_unheard());
  int64_t end = zke_now(waiter) + 3000;
  while (!s.events.count && zke_now(waiter) < end) turn(&s, 1, end);
  test_expect(waiter, &s.events, "CHANGED /n");
}

/* Issue, first figures: an idle waiter wakes up at most five times a second;
 * twice that is allowed here, but not a loop that spins. */
TEST_LOOP(idle_loop_does_not_spin, 0, WAYS) {
  begin(_i);
  source s = {.z = waiter};
  watch(waiter, &s.events);
  int64_t end = zke_now(waiter) + 1000;
  int turns = 0;
  for (; zke_now(waiter) < end; turns++) turn(&s, 1, end);
  ck_assert_int_le(turns, 10);
}

/* A lease; and the time after it in which another handle would have ended the
 * session. */
enum { LEASE = 2500, SWEPT = 1500 };

/* The clock of leases, on which a pause between two readings by this process is
 * at most a second.  So if the process stood still, whichever thread continues
 * first, the other's lease has not expired. */
static void lease_clock(seam_call *c) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static int64_t looked, lost;
  if (c->how != ZKE_CLOCK_BOOTTIME) return;
  pthread_mutex_lock(&mutex);
  int64_t now = seam_clock(c->how);
  if (looked && now - looked > 1000000000) lost += now - looked - 1000000000;
  looked = now;
  seam_refuse(c, now - lost);
  pthread_mutex_unlock(&mutex);
}

static void begin_leased(int way) {
  static seam s = {.before = {[SEAM_clock] = lease_clock}};
  zke_options usual = {.size = sizeof usual, .os = seam_os(&s)}, leased = usual;
  leased.lease_ms = LEASE;
  const char *name = way == IN_MEMORY ? ":memory:" : test_path("wait.db");
  ck_ok(zke_open(name, &usual, &writer));
  ck_ok(way == IN_MEMORY ? zke_open_session(writer, &leased, &waiter)
                         : zke_open(name, &leased, &waiter));
}

static void expect_alive(void) {
  ck_ok(see(waiter, "/"));
  ck_ok(zke_dispatch(waiter, NULL));
  ck_assert_int_eq(zke_state(waiter), ZKE_STATE_CONNECTED);
}

/* P5: a host that honours zke_next_deadline() keeps the lease, however idle. */
TEST_LOOP(loop_keeps_a_lease, 0, WAYS) {
  begin_leased(_i);
  source s[] = {{.z = waiter}, {.z = writer}};
  int64_t end = zke_now(waiter) + LEASE + SWEPT;
  while (zke_now(waiter) < end) turn(s, 2, end);
  expect_alive();
}

static void *wait_too(void *argument) {
  int64_t *deadline = argument;
  zke_wait(writer, *deadline); /* sweeps meanwhile */
  return NULL;
}

/* P5, and zkembed.h, zke_fd: the descriptor alone suffices.  A host that never
 * reads the deadline keeps the lease from the first moment. */
TEST_LOOP(descriptor_keeps_a_lease, 0, 2) {
  begin_leased(_i);
  int fd = -1;
  int64_t end = zke_now(waiter) + LEASE + SWEPT, left;
  ck_ok(zke_fd(waiter, &fd));
  pthread_t thread = begin_thread(wait_too, &end);
  while ((left = end - zke_now(waiter)) > 0) {
    struct pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, (int)left) > 0) zke_dispatch(waiter, NULL);
  }
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  expect_alive();
}

/* P5: sleeping in zke_wait() keeps it too. */
TEST_LOOP(wait_keeps_a_lease, 0, WAYS) {
  begin_leased(_i);
  int64_t end = zke_now(waiter) + LEASE + SWEPT;
  pthread_t thread = begin_thread(wait_too, &end);
  ck_rc(zke_wait(waiter, end), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  expect_alive();
}

/* ---- a good guest (P9) ---- */

/* What a library must not change. */
typedef struct process {
  sigset_t mask, pending;
  struct sigaction actions[NSIG];
  mode_t umask;
  int threads;
} process;

/* How many threads this process has. */
static int count_threads(void) {
  int count = 0;
  DIR *d = opendir("/proc/self/task");
  ck_assert_ptr_nonnull(d);
  for (struct dirent *e; (e = readdir(d)) != NULL;)
    count += e->d_name[0] != '.';
  closedir(d);
  return count;
}

/* Read it. */
static process look(void) {
  process p;
  memset(&p, 0, sizeof p);
  ck_assert_int_eq(pthread_sigmask(SIG_SETMASK, NULL, &p.mask), 0);
  ck_assert_int_eq(sigpending(&p.pending), 0);
  for (int i = 1; i < NSIG; i++) sigaction(i, NULL, &p.actions[i]);
  p.umask = umask(0);
  umask(p.umask);
  p.threads = count_threads();
  return p;
}

/* Assert that nothing of it has changed. */
static void same_process(const process *before) {
  process after = look();
  for (int i = 1; i < NSIG; i++) {
    const struct sigaction *x = &before->actions[i], *y = &after.actions[i];
    ck_assert_int_eq(sigismember(&before->mask, i),
                     sigismember(&after.mask, i));
    ck_assert_int_eq(sigismember(&before->pending, i),
                     sigismember(&after.pending, i));
    ck_assert(x->sa_handler == y->sa_handler);
    ck_assert_int_eq(x->sa_flags, y->sa_flags);
  }
  ck_assert_uint_eq(before->umask, after.umask);
  ck_assert_int_eq(before->threads, after.threads);
}

/* P9: opening, changing, waiting, expiring and closing leave no trace. */
TEST_LOOP(process_is_left_alone, 0, WAYS) {
  process before = look();
  begin(_i);
  watch(waiter, &seen);
  ck_ok(change(writer, "/n"));
  ck_ok(zke_wait(waiter, ZKE_FOREVER));
  ck_rc(zke_wait(waiter, zke_now(waiter) + 600), ZKE_OPERATIONTIMEOUT);
  same_process(&before);
  ck_ok(zke_expire(writer, zke_session_id(waiter)));
  ck_ok(zke_wait(waiter, ZKE_FOREVER));
  ck_ok(zke_close(waiter));
  ck_ok(change(writer, "/n"));
  same_process(&before);
  ck_ok(zke_close(writer));
  same_process(&before);
}

enum { FIFOS = 8 };

/* The descriptors of this process that are FIFOs next to a database. */
static int find_fifos(int *fds) {
  int count = 0;
  for (int fd = 0; fd < 1024; fd++) {
    char link[64], target[4096];
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n < 0 || fstat(fd, &st) || !S_ISFIFO(st.st_mode)) continue;
    target[n] = '\0';
    if (!strstr(target, "-zke/")) continue;
    ck_assert_int_lt(count, FIFOS);
    fds[count++] = fd;
  }
  return count;
}

/* Close a session's ends of the FIFO, as if its process were dying: its
 * liveness lock is held, but the FIFO has no reader. */
static void bury(const int *fds, int count) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(null, 0);
  for (int i = 0; i < count; i++)
    ck_assert_int_eq(dup3(null, fds[i], O_CLOEXEC), fds[i]);
  close(null);
}

/* A waiter that the writer has woken once and that then lost its FIFO. */
static void begin_buried(void) {
  int fds[FIFOS];
  waiter = test_open(test_path("wait.db"));
  int count = find_fifos(fds);
  ck_assert_int_ge(count, 1);
  writer = test_open(test_path("wait.db"));
  make(writer, "/n");
  watch(waiter, &seen);
  ck_ok(change(writer, "/n"));
  bury(fds, count);
}

/* P9: waking a session whose reader is gone neither kills this process nor
 * leaves a SIGPIPE pending. */
TEST(waking_the_dead_raises_no_sigpipe) {
  struct sigaction action = {.sa_handler = SIG_DFL};
  ck_assert_int_eq(sigaction(SIGPIPE, &action, NULL), 0);
  begin_buried();
  process before = look();
  ck_assert_int_eq(sigismember(&before.mask, SIGPIPE), 0);
  for (int i = 0; i < 3; i++) ck_ok(change(writer, "/n"));
  same_process(&before);
}

static sigset_t block_sigpipe(void) {
  sigset_t pipe_only;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  ck_assert_int_eq(pthread_sigmask(SIG_BLOCK, &pipe_only, NULL), 0);
  return pipe_only;
}

/* P9: nor is one left pending if the host blocks the signal. */
TEST(blocked_sigpipe_is_not_left_pending) {
  begin_buried();
  block_sigpipe();
  process before = look();
  ck_assert_int_eq(sigismember(&before.pending, SIGPIPE), 0);
  for (int i = 0; i < 3; i++) ck_ok(change(writer, "/n"));
  same_process(&before);
}

/* P9: nor is one removed that was the host's. */
TEST(pending_sigpipe_stays_the_hosts) {
  begin_buried();
  sigset_t pipe_only = block_sigpipe();
  ck_assert_int_eq(raise(SIGPIPE), 0);
  process before = look();
  ck_assert_int_eq(sigismember(&before.pending, SIGPIPE), 1);
  for (int i = 0; i < 3; i++) ck_ok(change(writer, "/n"));
  same_process(&before);
  static const struct timespec at_once;
  ck_assert_int_eq(sigtimedwait(&pipe_only, NULL, &at_once), SIGPIPE);
}

/* P9: every descriptor is close-on-exec, including SQLite's. */
TEST_LOOP(descriptors_are_close_on_exec, 0, WAYS) {
  bool ours[1024];
  for (int fd = 0; fd < 1024; fd++) ours[fd] = fcntl(fd, F_GETFD) >= 0;
  begin(_i);
  watch(waiter, &seen);
  ck_ok(change(writer, "/n"));
  ck_ok(zke_wait(waiter, ZKE_FOREVER));
  int count = 0;
  for (int fd = 0; fd < 1024; fd++) {
    int flags = fcntl(fd, F_GETFD);
    if (ours[fd] || flags < 0) continue;
    ck_assert_msg(flags & FD_CLOEXEC, "descriptor %d", fd);
    count++;
  }
  ck_assert_int_gt(count, 0);
}
