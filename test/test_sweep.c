/* test_sweep.c - who sweeps and when, and what keeps it from burying
 *
 * White-box.  The clock stands unless a test moves it, so that a tick comes
 * when the test wants it.  Each handle has a seat, which counts what it asks
 * of the system and can refuse it the gate.  The dead are processes that were
 * killed; only watches of children wait for them where the sweep is to find
 * them. */
#define _GNU_SOURCE
#include "../zkembed.c"
#include "test.h"

#include <sys/wait.h>

/* ---- a clock that stands, a system that counts ---- */

typedef struct seat {
  int refused;      /* so often the gate will be */
  int tries;        /* to lock the gate */
  int instants;     /* … at so many different times */
  int64_t tried_at; /* the last of them */
  int sleeps;       /* between two tries */
  int stamps;       /* sweeps that it noted */
} seat;

static seat seats[2];
static int64_t skew;     /* ns by which time went on */
static int64_t clinging; /* a session whose lock the kernel holds, or 0 */

static zke_os sys_real(void) {
  zke_os os;
  zke_os_default(&os);
  return os;
}

/* From the same hour, of whole milliseconds, in all processes of a test. */
static int64_t sys_clock(void *context, int which) {
  static int64_t start;
  (void)context, (void)which;
  if (!start) start = sys_real().clock(NULL, ZKE_CLOCK_BOOTTIME) / ZKE_MS;
  return start * ZKE_MS + skew;
}

static void sys_pass(int64_t ms) { skew += ms * ZKE_MS; }

static void sys_sleep(void *context, int64_t ns) {
  seat *at = context;
  at->sleeps++;
  skew += ns;
}

/* Where nothing has come, time goes by. */
static int sys_poll(void *context, struct pollfd *fds, unsigned count,
                    int timeout) {
  (void)context;
  int rc = sys_real().poll(NULL, fds, count, 0);
  if (rc == 0 && timeout > 0) sys_pass(timeout);
  return rc;
}

/* The kernel's timer knows another time. */
static int sys_timer_set(void *context, int fd, int64_t when) {
  (void)context, (void)fd, (void)when;
  return 0;
}

static int sys_lock(void *context, int fd, int64_t offset, int how) {
  seat *at = context;
  if (offset == LIVE_GATE && how == ZKE_LOCK_EXCLUSIVE) {
    int64_t now = sys_clock(NULL, ZKE_CLOCK_MONOTONIC);
    at->instants += at->tried_at != now;
    at->tried_at = now;
    at->tries++;
    if (at->refused > 0 && at->refused--) return -EAGAIN;
  }
  return sys_real().lock(NULL, fd, offset, how);
}

static int sys_probe(void *context, int fd, int64_t offset) {
  (void)context;
  if (offset == clinging && clinging) return 1;
  return sys_real().probe(NULL, fd, offset);
}

static int64_t sys_pwrite(void *context, int fd, const void *bytes, size_t size,
                          int64_t at) {
  ((seat *)context)->stamps += at == LIVE_SWEEP_AT;
  return sys_real().pwrite(NULL, fd, bytes, size, at);
}

/* The ticks' jitter is the same in each run. */
static int sys_random(void *context, void *bytes, size_t size) {
  (void)context;
  memset(bytes, 0x5a, size);
  return 0;
}

/* ---- a VFS whose syncs fail ---- */

static struct {
  sqlite3_vfs vfs, *under;
  sqlite3_io_methods methods[2]; /* of the database, of its log */
  int (*sync)(sqlite3_file *f, int flags);
  bool fails;
} faulty;

static int faulty_sync(sqlite3_file *f, int flags) {
  return faulty.fails ? SQLITE_IOERR_FSYNC : faulty.sync(f, flags);
}

static int faulty_open(sqlite3_vfs *v, const char *name, sqlite3_file *f,
                       int flags, int *out_flags) {
  (void)v;
  int rc = faulty.under->xOpen(faulty.under, name, f, flags, out_flags);
  bool database = (flags & SQLITE_OPEN_MAIN_DB) != 0;
  if (rc != SQLITE_OK || !(database || (flags & SQLITE_OPEN_WAL))) return rc;
  sqlite3_io_methods *m = &faulty.methods[!database];
  *m = *f->pMethods;
  faulty.sync = m->xSync;
  m->xSync = faulty_sync;
  f->pMethods = m;
  return rc;
}

static void faulty_register(void) {
  faulty.under = sqlite3_vfs_find(NULL);
  faulty.vfs = *faulty.under;
  faulty.vfs.zName = "faulty";
  faulty.vfs.pNext = NULL;
  faulty.vfs.xOpen = faulty_open;
  ck_assert_int_eq(sqlite3_vfs_register(&faulty.vfs, 0), SQLITE_OK);
}

/* ---- handles in poll loops ---- */

static zke *looping[2];
static test_events heard;

static zke *open_at(seat *at, const char *vfs) {
  zke *z = NULL;
  zke_os os = sys_real();
  os.context = at;
  os.clock = sys_clock;
  os.sleep = sys_sleep;
  os.poll = sys_poll;
  os.timer_set = sys_timer_set;
  os.lock = sys_lock;
  os.probe = sys_probe;
  os.pwrite = sys_pwrite;
  os.random = sys_random;
  zke_options o = {.size = sizeof o,
                   .vfs = vfs,
                   .durability = vfs ? ZKE_DURABLE_ALL : ZKE_DURABLE_NONE,
                   .container_ms = 1,
                   .os = &os};
  ck_ok(zke_open(test_path("a.db"), &o, &z));
  return z;
}

static void make(zke *z, const char *path, int mode) {
  ck_ok(zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, NULL, NULL));
}

static int see(zke *z, const char *path) {
  return zke_exists(z, path, NULL, NULL, NULL);
}

static void watch_group(zke *z) {
  ck_ok(zke_children(z, "/group", test_record, &heard, NULL, NULL));
}

/* In how many ms it wants to be dispatched. */
static int64_t wants(zke *z) {
  int64_t at = ZKE_FOREVER;
  if (z) ck_ok(zke_next_deadline(z, &at));
  return at == ZKE_FOREVER ? at : at - zke_now(z);
}

/* Time goes by, and each is dispatched when it wants to be. */
static void live_on(int64_t ms) {
  int64_t end = skew + ms * ZKE_MS;
  while (skew < end) {
    int64_t left = base_min(wants(looping[0]), wants(looping[1]));
    sys_pass(base_max(base_min(left, (end - skew) / ZKE_MS), 1));
    for (int i = 0; i < 2; i++)
      if (wants(looping[i]) <= 0) zke_dispatch(looping[i], NULL);
  }
}

/* The first one in its loop, which watches the group and has the duty. */
static zke *open_holder(const char *vfs) {
  zke *z = open_at(&seats[0], vfs);
  watch_group(z);
  looping[0] = z;
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_assert(z->s->duty);
  return z;
}

/* ---- those who die ---- */

/* What the dead to be do before they wait for it. */
static void own(const char *path, int sessions) {
  zke *z = open_at(&seats[0], NULL), *more;
  zke_create(z, "/group", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  zke_create(z, "/bad", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  make(z, path, ZKE_EPHEMERAL);
  for (int i = 1; i < sessions; i++) ck_ok(zke_open_session(z, NULL, &more));
}

/* A process that owns a node and has so many sessions; begun before the test
 * has a handle. */
static pid_t start_owner(const char *path, int sessions) {
  int ready[2];
  char byte;
  test_in_memory();
  test_path("a.db");                    /* the directory is the parent's */
  sys_clock(NULL, ZKE_CLOCK_MONOTONIC); /* and the hour */
  ck_assert_int_eq(pipe(ready), 0);
  fflush(NULL);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    own(path, sessions);
    if (write(ready[1], ".", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  ck_assert_int_eq(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return pid;
}

static void kill_owner(pid_t pid) {
  ck_assert_int_eq(kill(pid, SIGKILL), 0);
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* ---- a store that cannot write ---- */

static sqlite3 *foreign;

static void run_sql(const char *text) {
  if (!foreign)
    ck_assert_int_eq(sqlite3_open(test_path("a.db"), &foreign), SQLITE_OK);
  ck_assert_int_eq(sqlite3_exec(foreign, text, NULL, NULL, NULL), SQLITE_OK);
}

/* A COMMIT fails, and a foreign reader keeps the log that it left from being
 * moved into the database. */
static void unsettle(zke *z) {
  run_sql("BEGIN; SELECT * FROM meta");
  faulty.fails = true;
  ck_rc(zke_set(z, "/group", "x", 1, -1, NULL), ZKE_CONNECTIONLOSS);
  faulty.fails = false;
  ck_ok(zke_dispatch(z, NULL)); /* opened anew */
  ck_assert(!z->s->broken);
  ck_assert(z->s->unsettled);
}

static void end_unsettled(zke *z) {
  run_sql("COMMIT");
  ck_ok(zke_set(z, "/group", "x", 1, -1, NULL));
  ck_assert(!z->s->unsettled);
}

/* P6: who has the duty and cannot write gives it away and notes no sweep, so
 * that another one buries.  It used to keep both, and nobody was buried while
 * its reader was there. */
START_TEST(unsettled_holder_gives_the_duty_away) {
  pid_t pid = start_owner("/group/m", 1);
  faulty_register();
  zke *holder = open_holder("faulty");
  zke *other = open_at(&seats[1], NULL);
  watch_group(other);
  looping[1] = other;
  heard.count = 0;
  unsettle(holder);
  seats[0].stamps = 0;
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_assert(!holder->s->duty);
  ck_assert(other->s->duty);
  ck_assert_int_eq(seats[0].stamps, 0);
  kill_owner(pid);
  live_on((int64_t)2 * ZKE_DUTY_TICK_MS);
  ck_rc(see(other, "/group/m"), ZKE_NONODE);
  ck_assert_int_ge(heard.count, 1);
  ck_assert(holder->s->unsettled);
  ck_assert_int_eq(seats[0].stamps, 0);
  end_unsettled(holder);
  ck_assert_int_eq(sqlite3_close(foreign), SQLITE_OK);
  ck_ok(zke_close(holder));
  ck_ok(zke_close(other));
}
END_TEST

/* P2, P10: it tries to be rid of that once a tick and waits for nobody.  It
 * used to try at each dispatch, with the gate locked and up to 50 ms for the
 * reader to go. */
START_TEST(unsettled_store_recovers_once_a_tick) {
  pid_t pid = start_owner("/group/m", 1);
  faulty_register();
  zke *z = open_holder("faulty");
  unsettle(z);
  sys_pass(ZKE_DUTY_TICK_MS);
  seats[0] = (seat){0};
  for (int i = 0; i < 100; i++) {
    ck_ok(zke_dispatch(z, NULL));
    sys_pass(2);
  }
  ck_assert_int_eq(seats[0].tries, 1);
  ck_assert_int_eq(seats[0].sleeps, 0);
  ck_assert(z->s->unsettled);
  run_sql("COMMIT");
  live_on(ZKE_DUTY_TICK_MS);
  ck_assert(!z->s->unsettled);
  ck_assert_int_eq(seats[0].sleeps, 0);
  ck_assert_int_eq(sqlite3_close(foreign), SQLITE_OK);
  ck_ok(zke_close(z));
  kill_owner(pid);
}
END_TEST

/* P9: a dispatch does not wait for the gate either when the connection has to
 * be opened anew, and zke_wait() no longer than it was asked to.  Both used to
 * take the store's busy timeout. */
START_TEST(broken_store_is_not_waited_for) {
  pid_t pid = start_owner("/group/m", 1);
  faulty_register();
  zke *z = open_holder("faulty");
  faulty.fails = true;
  ck_rc(zke_set(z, "/group", "x", 1, -1, NULL), ZKE_CONNECTIONLOSS);
  faulty.fails = false;
  ck_assert(z->s->broken);
  seats[0] = (seat){.refused = INT_MAX};
  ck_rc(zke_dispatch(z, NULL), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(seats[0].sleeps, 0);
  int64_t before = zke_now(z);
  ck_rc(zke_wait(z, before + 50), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_le(zke_now(z), before + 60);
  seats[0].refused = 0;
  sys_pass(ZKE_DUTY_TICK_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert(!z->s->broken);
  ck_ok(see(z, "/group/m"));
  ck_ok(zke_close(z));
  kill_owner(pid);
}
END_TEST

/* ---- what a sweep gets done ---- */

/* P6, P11: a dead session that cannot be buried, since its node's parent is
 * gone, keeps neither those that come after it nor the nodes that are due. */
START_TEST(one_that_cannot_be_buried_keeps_no_other) {
  pid_t first = start_owner("/bad/m", 1), second = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  make(z, "/full", ZKE_CONTAINER);
  make(z, "/full/n", ZKE_PERSISTENT);
  ck_ok(zke_delete(z, "/full/n", -1));
  ck_ok(zke_create_ttl(z, "/brief", "", 0, ZKE_OPEN_ACL,
                       ZKE_PERSISTENT_WITH_TTL, 1, NULL, NULL));
  run_sql("DELETE FROM node WHERE parent='/' AND name='bad'");
  ck_assert_int_eq(sqlite3_close(foreign), SQLITE_OK);
  heard.count = 0;
  kill_owner(first);
  kill_owner(second);
  ck_assert_int_eq(test_session_count(z), 3);
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_assert_int_eq(heard.count, 1);
  ck_rc(see(z, "/full"), ZKE_NONODE);
  ck_rc(see(z, "/brief"), ZKE_NONODE);
  ck_ok(see(z, "/bad/m"));
  ck_assert_int_eq(test_session_count(z), 2);
  ck_ok(zke_close(z));
}
END_TEST

enum { CROWD = SWEEP_FEW + 36, SLOW_MS = ZKE_TICK_MS * 9 / 10 };

/* P6: a holder of the duty that comes late probes all sessions, however many
 * there are, whichever turn it is.  It used to probe a quarter of them. */
START_TEST(late_sweep_probes_all) {
  pid_t pid = start_owner("/group/m", CROWD);
  zke *z = open_holder(NULL);
  for (int i = 0; i <= _i; i++) {
    sys_pass(SLOW_MS);
    ck_ok(zke_dispatch(z, NULL));
  }
  ck_assert_int_eq(test_session_count(z), CROWD + 1);
  kill_owner(pid);
  sys_pass(SLOW_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(test_session_count(z), 1);
  ck_ok(zke_close(z));
}
END_TEST

/* P6: where the holder of the duty does not act, one that waits sweeps at each
 * of its ticks, in a poll loop and in zke_wait().  It used to find its own last
 * sweep too young at every second one. */
START_TEST(every_tick_sweeps_for_an_idle_holder) {
  pid_t pid = start_owner("/group/m", 1);
  zke *holder = open_holder(NULL);
  looping[0] = NULL;
  zke *z = open_at(&seats[1], NULL);
  watch_group(z);
  looping[1] = z;
  live_on((int64_t)2 * ZKE_TICK_MS);
  seats[0].stamps = seats[1].stamps = 0;
  if (_i)
    ck_rc(zke_wait(z, zke_now(z) + 20 * ZKE_TICK_MS), ZKE_OPERATIONTIMEOUT);
  else
    live_on((int64_t)20 * ZKE_TICK_MS);
  ck_assert_int_ge(seats[1].stamps, 19);
  ck_assert_int_le(seats[1].stamps, 22);
  ck_assert_int_eq(seats[0].stamps, 0);
  ck_assert(holder->s->duty);
  ck_ok(zke_close(holder));
  ck_ok(zke_close(z));
  kill_owner(pid);
}
END_TEST

/* ---- a gate that is busy ---- */

enum { BUSY = 60 }; /* more than it tries without a pause */

/* P6: a sweep inside zke_wait() or another call stands in line at the gate for
 * a moment, so the dead are buried at once though others write.  It used to
 * give up after its first tries, again and again. */
START_TEST(sweep_stands_in_line) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  ck_assert_int_gt(BUSY, ZKE_GATE_SPINS + 1);
  heard.count = 0;
  kill_owner(pid);
  sys_pass(_i ? ZKE_TICK_MS : ZKE_DUTY_TICK_MS);
  int64_t before = skew;
  seats[0] = (seat){.refused = BUSY};
  if (_i == 0)
    ck_ok(zke_wait(z, zke_now(z) + ZKE_DUTY_TICK_MS / 2));
  else
    ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_assert_int_eq(seats[0].refused, 0);
  ck_assert_int_gt(seats[0].sleeps, 0);
  ck_assert_int_le(skew - before, SWEEP_PATIENCE_MS * ZKE_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  test_expect(z, &heard, "CHILD /group");
  ck_ok(zke_close(z));
}
END_TEST

/* … for a moment only; */
START_TEST(sweep_leaves_the_line) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  kill_owner(pid);
  sys_pass((int64_t)2 * ZKE_TICK_MS);
  int64_t before = skew;
  seats[0] = (seat){.refused = INT_MAX};
  ck_ok(see(z, "/group/m"));
  ck_assert_int_eq(skew - before, SWEEP_PATIENCE_MS * ZKE_MS);
  seats[0].refused = 0;
  live_on(ZKE_TICK_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_ok(zke_close(z));
}
END_TEST

/* … and not at all in zke_dispatch(), in time or late, which leaves it to the
 * next tick. */
START_TEST(sweep_of_a_dispatch_does_not_wait) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  heard.count = 0;
  kill_owner(pid);
  seats[0] = (seat){.refused = BUSY};
  sys_pass(_i ? ZKE_TICK_MS : ZKE_DUTY_TICK_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(seats[0].sleeps, 0);
  ck_assert_int_gt(seats[0].refused, 0);
  ck_assert_int_gt(seats[0].tries, 0);
  ck_assert_int_eq(heard.count, 0);
  seats[0].refused = 0;
  sys_pass(ZKE_DUTY_TICK_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(seats[0].sleeps, 0);
  ck_assert_int_eq(heard.count, 1);
  ck_ok(zke_close(z));
}
END_TEST

/* Somebody else has the gate and does nothing. */
static int hold_gate(zke *z) {
  int fd = open(z->s->gate, O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(sys_real().lock(NULL, fd, LIVE_GATE, ZKE_LOCK_EXCLUSIVE), 0);
  return fd;
}

/* P6, P10: a death that was told is tried to be buried less and less often
 * while the gate is busy, and within 16 ms once it is free; even where the
 * kernel had kept the dead one's lock so long that it was probed once a second
 * only.  It used to be tried a thousand times a second. */
START_TEST(burial_at_a_busy_gate) {
  pid_t pid = start_owner("/group/m", 1);
  zke *holder = open_holder(NULL); /* it sweeps, so the other does not */
  zke *z = open_at(&seats[1], NULL);
  zke_stat stat;
  ck_ok(zke_exists(z, "/group/m", test_record, &heard, &stat));
  looping[1] = z;
  live_on(ZKE_TICK_MS);
  heard.count = 0;
  if (_i) clinging = stat.ephemeralOwner;
  int fd = hold_gate(z);
  kill_owner(pid);
  ck_ok(zke_dispatch(z, NULL));
  if (_i) live_on((int64_t)4 * ZKE_TICK_MS + ZKE_TICK_MS / 2);
  clinging = 0;
  seats[1] = (seat){0};
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_assert_int_gt(seats[1].instants, 50);
  ck_assert_int_le(seats[1].instants, 150);
  ck_assert_int_eq(seats[1].sleeps, 0);
  ck_assert_int_eq(heard.count, 0);
  close(fd);
  looping[0] = NULL;
  live_on(WAIT_BUSY_MS);
  ck_assert_int_eq(heard.count, 1);
  ck_ok(zke_close(holder));
  ck_ok(zke_close(z));
}
END_TEST

int main(int argc, char **argv) {
  Suite *suite = suite_create("sweep");
  TCase *t = tcase_create("sweep");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, unsettled_holder_gives_the_duty_away);
  tcase_add_test(t, unsettled_store_recovers_once_a_tick);
  tcase_add_test(t, broken_store_is_not_waited_for);
  tcase_add_test(t, one_that_cannot_be_buried_keeps_no_other);
  tcase_add_loop_test(t, late_sweep_probes_all, 0, 4);
  tcase_add_loop_test(t, every_tick_sweeps_for_an_idle_holder, 0, 2);
  tcase_add_loop_test(t, sweep_stands_in_line, 0, 2);
  tcase_add_test(t, sweep_leaves_the_line);
  tcase_add_loop_test(t, sweep_of_a_dispatch_does_not_wait, 0, 2);
  tcase_add_loop_test(t, burial_at_a_busy_gate, 0, 2);
  suite_add_tcase(suite, t);
  return test_main(argc, argv, suite);
}
