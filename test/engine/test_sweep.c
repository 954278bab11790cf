/* test_sweep.c - which process sweeps and when, and what could keep it from
 * reaping
 *
 * White-box.  The clock stands still unless a test moves it, so that a tick
 * comes when the test wants it.  Each handle has a seat, which counts its
 * system calls and can refuse it the gate.  The dead are processes that were
 * killed; if the sweep should find them, only watches of children wait for
 * them. */
#define _GNU_SOURCE
#include "zkembed.c"
#include "test/seam.h"
#include "test/engine/calls.h"

/* ---- a clock that stands still, a system that counts ---- */

typedef struct seat {
  int granted;      /* how many times the gate is free before it is … */
  int refused;      /* … refused, this many times */
  int tries;        /* to lock the gate */
  int instants;     /* … at this many different times */
  int64_t tried_at; /* the last of them */
  int sleeps;       /* between two tries */
  int stamps;       /* sweeps that it recorded */
  int64_t slow;     /* ms that pass at each try for the gate */
  int64_t work;     /* ms that pass at each probe of a session */
  bool broken;      /* each try fails */
  bool blind;       /* the kernel does not tell it which sessions live */
  int failing;      /* … or this many of the next tries fail */
  bool dies;        /* it dies after it has recorded a sweep */
  int64_t stops_at; /* it is stopped for STOP when it writes this hint, … */
  bool late;        /* … or just after it has written it */
} seat;

enum { STOP = 3600 * 1000 }; /* ms */

static seat seats[2];
static int64_t clinging; /* a session whose lock the kernel holds, or 0 */

static void before_sleep(seam_call *c) {
  seat *at = c->seam->context;
  at->sleeps++;
}

/* The gate: counts at how many times of the clock it was tried. */
static void try_gate(seam_call *c) {
  seat *at = c->seam->context;
  if (c->at != SIDE_GATE || c->how != ZKE_LOCK_EXCLUSIVE) return;
  at->instants += at->tried_at != seam_ahead;
  at->tried_at = seam_ahead;
  at->tries++;
  seam_pass(at->slow);
  if (at->broken || (at->failing > 0 && at->failing--)) {
    seam_refuse(c, -EIO);
  } else if (at->refused > 0 && --at->granted < 0) {
    at->refused--;
    seam_refuse(c, -EAGAIN);
  }
}

static void before_probe(seam_call *c) {
  seat *at = c->seam->context;
  seam_pass(at->work);
  if (at->blind)
    seam_refuse(c, -EIO);
  else if (clinging && c->at == clinging)
    seam_refuse(c, 1);
}

static void before_pwrite(seam_call *c) {
  seat *at = c->seam->context;
  at->stamps += c->at == SIDE_SWEEP_AT;
  if (at->stops_at && c->at == at->stops_at && !at->late) seam_pass(STOP);
}

static void after_pwrite(seam_call *c) {
  seat *at = c->seam->context;
  if (at->dies && c->at == SIDE_SWEEP_AT) _exit(7);
  if (!at->stops_at || c->at != at->stops_at) return;
  if (at->late) seam_pass(STOP);
  at->stops_at = 0;
}

/* The ticks' jitter is the same in each run. */
static void no_chance(seam_call *c) {
  memset(c->data, 0x5a, c->size);
  seam_refuse(c, 0);
}

#define SYSTEM_OF(seat)                       \
  {                                           \
    .context = (seat),                        \
    .before = {[SEAM_sleep] = before_sleep,   \
               [SEAM_lock_range] = try_gate,  \
               [SEAM_probe] = before_probe,   \
               [SEAM_pwrite] = before_pwrite, \
               [SEAM_random] = no_chance},    \
    .after = {[SEAM_pwrite] = after_pwrite},  \
  }
static seam systems[] = {SYSTEM_OF(&seats[0]), SYSTEM_OF(&seats[1])};

/* ---- a disk whose syncs fail, or that is full ---- */

static int64_t full_ms; /* that pass until it is found full */

static int refused; /* writes */

static void find_full(seam_call *c) {
  if (c->result != SQLITE_FULL) return;
  refused++;
  seam_pass(full_ms);
}

static seam disk = {
    .vfs = "faulty",
    .after = {[SEAM_xWrite] = find_full},
    .fail = {[SEAM_xSync] = {.result = SQLITE_IOERR_FSYNC},
             [SEAM_xWrite] = {SQLITE_FULL, .opened_as = SQLITE_OPEN_WAL}}};

/* ---- handles in poll loops ---- */

static zke *looping[2];
static test_events heard;

/* A handle on the clock that the test sets. */
static zke *open_named(const char *name, seat *at, const char *vfs) {
  zke *z = NULL;
  seam_stand();
  zke_options o = {.size = sizeof o,
                   .vfs = vfs,
                   .durability = vfs ? ZKE_DURABLE_ALL : ZKE_DURABLE_NONE,
                   .container_ms = 1,
                   .os = seam_os(&systems[at - seats])};
  ck_ok(zke_open(name, &o, &z));
  return z;
}

static zke *open_at(seat *at, const char *vfs) {
  return open_named(test_path("a.db"), at, vfs);
}

static void watch_group(zke *z) {
  ck_ok(zke_children(z, "/group", test_record, &heard, NULL, NULL));
}

/* In how many ms it must be dispatched. */
static int64_t wants(zke *z) {
  int64_t at = ZKE_FOREVER;
  if (z) ck_ok(zke_next_deadline(z, &at));
  return at == ZKE_FOREVER ? at : at - zke_now(z);
}

/* Let time pass, and dispatch each handle when it is due. */
static void live_on(int64_t ms) {
  int64_t end = seam_ahead + ms * ZKE_MS;
  while (seam_ahead < end) {
    int64_t left = base_min(wants(looping[0]), wants(looping[1]));
    seam_pass(base_max(base_min(left, (end - seam_ahead) / ZKE_MS), 1));
    for (int i = 0; i < 2; i++)
      if (wants(looping[i]) <= 0) zke_dispatch(looping[i], NULL);
  }
}

/* A handle in its loop, the first one, which watches the group and gets the
 * duty. */
static void take_duty(zke *z) {
  watch_group(z);
  looping[0] = z;
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_assert(z->s->sweep.duty);
}

static zke *open_holder(const char *vfs) {
  zke *z = open_at(&seats[0], vfs);
  take_duty(z);
  return z;
}

/* ---- processes that will die ---- */

/* What these processes do before they wait for their death. */
static void own(const char *path, int sessions) {
  zke *z = open_at(&seats[0], NULL), *more;
  create(z, "/group", ZKE_PERSISTENT);
  create(z, "/bad", ZKE_PERSISTENT);
  make_as(z, path, ZKE_EPHEMERAL);
  for (int i = 1; i < sessions; i++) ck_ok(zke_open_session(z, NULL, &more));
}

/* The same with light sessions of one carrier: the first owns /bad/m, which a
 * test makes impossible to remove, and each other one owns the node. */
static void own_light(const char *path, int sessions) {
  zke *z = open_at(&seats[0], NULL), *more;
  zke_options light = {.size = sizeof light, .flags = ZKE_OPEN_LIGHT};
  make(z, "/group");
  make(z, "/bad");
  for (int i = 0; i < sessions; i++) {
    ck_ok(zke_open_session(z, &light, &more));
    make_as(more, i ? path : "/bad/m", ZKE_EPHEMERAL);
  }
}

/* A process that owns what a function makes; it starts before the test has a
 * handle. */
static pid_t start_owner_by(void (*owns)(const char *path, int sessions),
                            const char *path, int sessions) {
  int ready[2];
  char byte;
  test_path("a.db"); /* the directory is the parent's */
  seam_stand();      /* and the time */
  ck_assert_int_eq(pipe(ready), 0);
  fflush(NULL);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    owns(path, sessions);
    if (write(ready[1], ".", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  ck_assert_int_eq(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  return pid;
}

/* The process owns a node and has this many sessions. */
static pid_t start_owner(const char *path, int sessions) {
  return start_owner_by(own, path, sessions);
}

/* ---- a store that cannot write ---- */

static sqlite3 *foreign;

static void run_sql(const char *text) {
  if (!foreign) foreign = plain_open(test_path("a.db"));
  must(foreign, text);
}

/* Delete the parent of a node, so the node cannot be removed. */
static void lose_bad(void) {
  damaged = true;
  sql_on(test_path("a.db"),
         "DELETE FROM zkembed_node WHERE parent='/' AND name='bad'");
}

/* A COMMIT fails, and a foreign reader keeps the log that it left from being
 * moved into the database. */
static void bring_in_doubt(zke *z) {
  run_sql("BEGIN; SELECT * FROM zkembed_meta");
  seam_fail(&disk, SEAM_xSync, true);
  ck_rc(change(z, "/group"), ZKE_CONNECTIONLOSS);
  seam_fail(&disk, SEAM_xSync, false);
  ck_ok(zke_dispatch(z, NULL)); /* reconnected */
  ck_assert_int_eq(z->s->health, HEALTH_IN_DOUBT);
}

static void end_doubt(zke *z) {
  run_sql("COMMIT");
  ck_ok(change(z, "/group"));
  ck_assert_int_eq(z->s->health, HEALTH_GOOD);
}

/* design.md 8: a change recovers the store first, and so does a session that
 * begins or is attached.  They used to fail until another call had done so. */
TEST_LOOP(new_session_recovers_first, 0, 2) {
  zke *z = open_at(&seats[0], NULL), *more = NULL;
  unsigned char password[16];
  make(z, "/group");
  ck_ok(zke_close(z));
  z = open_at(&seats[0], seam_vfs(&disk));
  zke *kept = session_as(z, .timeout_ms = 60000);
  ck_ok(zke_password(kept, password));
  bring_in_doubt(z);
  int64_t id = zke_session_id(kept);
  if (_i)
    ck_rc(zke_attach(z, id, password, NULL, &more), ZKE_CONNECTIONLOSS);
  else
    ck_rc(zke_open_session(z, NULL, &more), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(zke_state(kept), ZKE_STATE_CONNECTED);
  run_sql("COMMIT");
  ck_ok(_i ? zke_attach(z, id, password, NULL, &more)
           : zke_open_session(z, NULL, &more));
  ck_assert_int_eq(z->s->health, HEALTH_GOOD);
}

/* P6: a process with the duty that cannot write gives the duty away and records
 * no sweep, so that another one reaps.  It used to keep the duty and record
 * sweeps, and no session was reaped while its reader was there. */
TEST(holder_in_doubt_gives_the_duty_away) {
  pid_t pid = start_owner("/group/m", 1);
  zke *holder = open_holder(seam_vfs(&disk));
  zke *other = open_at(&seats[1], NULL);
  watch_group(other);
  looping[1] = other;
  heard.count = 0;
  bring_in_doubt(holder);
  seats[0].stamps = 0;
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_assert(!holder->s->sweep.duty);
  ck_assert(other->s->sweep.duty);
  ck_assert_int_eq(seats[0].stamps, 0);
  kill_child(pid);
  live_on((int64_t)2 * ZKE_DUTY_TICK_MS);
  ck_rc(see(other, "/group/m"), ZKE_NONODE);
  ck_assert_int_ge(heard.count, 1);
  ck_assert_int_eq(holder->s->health, HEALTH_IN_DOUBT);
  ck_assert_int_eq(seats[0].stamps, 0);
  end_doubt(holder);
}

/* P6: a sweep that failed for lack of something in its own process does not
 * keep another process from sweeping.  (1: it cannot learn who is dead.) */
TEST_LOOP(failed_sweep_is_not_noted, 0, 2) {
  pid_t pid = start_owner("/group/m", 1);
  zke *holder = open_holder(NULL), *other = open_at(&seats[1], NULL);
  kill_child(pid);
  seats[0].broken = !_i, seats[0].blind = _i;
  live_on(ZKE_TICK_MS);
  ck_assert(!holder->s->sweep.duty);
  ck_assert(sweep_age(other->s) == INT64_MAX);
  watch_group(other);
  looping[1] = other;
  heard.count = 0;
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_assert_int_ge(heard.count, 1);
  ck_rc(see(other, "/group/m"), ZKE_NONODE);
  seats[0].broken = seats[0].blind = false;
}

/* P2, P10: a store in doubt tries to recover once a tick and does not wait.  It
 * used to try at each dispatch, with the gate locked and up to 50 ms for the
 * reader to go. */
TEST(store_in_doubt_recovers_once_a_tick) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(seam_vfs(&disk));
  bring_in_doubt(z);
  seam_pass(ZKE_DUTY_TICK_MS);
  seats[0] = (seat){0};
  for (int i = 0; i < 100; i++) {
    ck_ok(zke_dispatch(z, NULL));
    seam_pass(2);
  }
  ck_assert_int_eq(seats[0].tries, 1);
  ck_assert_int_eq(seats[0].sleeps, 0);
  ck_assert_int_eq(z->s->health, HEALTH_IN_DOUBT);
  run_sql("COMMIT");
  live_on(ZKE_DUTY_TICK_MS);
  ck_assert_int_eq(z->s->health, HEALTH_GOOD);
  ck_assert_int_eq(seats[0].sleeps, 0);
  ck_assert_int_eq(sqlite3_close(foreign), SQLITE_OK);
  ck_ok(zke_close(z));
  kill_child(pid);
}

/* P9: a dispatch does not wait for the gate even if it has to reconnect, and
 * zke_wait() does not wait longer than it was asked to.  Both used to take the
 * store's busy timeout. */
TEST(broken_store_is_not_waited_for) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(seam_vfs(&disk));
  seam_fail(&disk, SEAM_xSync, true);
  ck_rc(change(z, "/group"), ZKE_CONNECTIONLOSS);
  seam_fail(&disk, SEAM_xSync, false);
  ck_assert_int_eq(z->s->health, HEALTH_BROKEN);
  seats[0] = (seat){.refused = INT_MAX};
  ck_rc(zke_dispatch(z, NULL), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(seats[0].sleeps, 0);
  int64_t before = zke_now(z);
  ck_rc(zke_wait(z, before + 50), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_le(zke_now(z), before + 60);
  seats[0].refused = 0;
  seam_pass(ZKE_DUTY_TICK_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_lt(z->s->health, HEALTH_BROKEN);
  ck_ok(see(z, "/group/m"));
  ck_ok(zke_close(z));
  kill_child(pid);
}

/* ---- what a sweep achieves ---- */

/* P6, P11: a dead session that cannot be ended, since its node's parent is
 * missing, blocks neither later sessions nor nodes that are due. */
TEST(a_session_that_cannot_be_removed_holds_up_no_other) {
  pid_t first = start_owner("/bad/m", 1), second = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  make_as(z, "/full", ZKE_CONTAINER);
  make(z, "/full/n");
  ck_ok(zke_delete(z, "/full/n", -1));
  ck_ok(zke_create_ttl(z, "/brief", "", 0, ZKE_OPEN_ACL,
                       ZKE_PERSISTENT_WITH_TTL, 1, NULL, NULL));
  lose_bad();
  heard.count = 0;
  kill_child(first);
  kill_child(second);
  ck_assert_int_eq(test_session_count(z), 3);
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_assert_int_eq(heard.count, 1);
  ck_rc(see(z, "/full"), ZKE_NONODE);
  ck_rc(see(z, "/brief"), ZKE_NONODE);
  ck_ok(see(z, "/bad/m"));
  ck_assert_int_eq(test_session_count(z), 2);
}

/* P6: a process could not reap a session, since its disk is full, and has put
 * it off.  The session does not wait for this process: another that can reap it
 * gets the duty.  The duty used to stay with the one that could not. */
TEST(put_off_burial_is_left_to_another) {
  enum { SLOW = 1000 };
  pid_t pid = start_owner("/group/m", 1);
  zke *holder = open_holder(seam_vfs(&disk)), *other = open_at(&seats[1], NULL);
  seam_fail(&disk, SEAM_xWrite, true);
  full_ms = SLOW;
  kill_child(pid);
  live_on((int64_t)SLOW + 4 * ZKE_TICK_MS);
  ck_assert_int_ge(refused, 1);
  seam_fail(&disk, SEAM_xWrite,
            false); /* the holder could, but has put it off */
  ck_ok(see(holder, "/group/m"));
  watch_group(other);
  looping[1] = other;
  heard.count = 0;
  live_on((int64_t)2 * ZKE_TICK_MS);
  ck_rc(see(other, "/group/m"), ZKE_NONODE);
  ck_assert_int_ge(heard.count, 1);
}

/* A session that could not be reaped is not tried again for a while, each in
 * proportion to the time that its own failure took; then all are reaped. */
TEST(burials_are_put_off_one_by_one) {
  enum { SLOW = 1000 };
  pid_t first = start_owner("/group/m", 1), second = start_owner("/group/n", 1);
  zke *z = open_holder(seam_vfs(&disk));
  seam_fail(&disk, SEAM_xWrite, true);
  full_ms = SLOW;
  kill_child(first);
  kill_child(second);
  live_on((int64_t)2 * SLOW + 4 * ZKE_TICK_MS);
  ck_assert_uint_eq(z->s->sess.put_off.len, 4 * sizeof(int64_t));
  int before = refused;
  live_on((int64_t)4 * ZKE_TICK_MS);
  ck_assert_int_eq(refused, before);
  seam_fail(&disk, SEAM_xWrite, false);
  live_on((int64_t)END_REST * SLOW + 4 * ZKE_TICK_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_rc(see(z, "/group/n"), ZKE_NONODE);
}

/* Another takes the gate after the first reaping, which failed: the sweep tries
 * no more.  It used to try them all, since it looked only at the first
 * failure. */
TEST(busy_gate_ends_the_sweep) {
  enum { DEAD = 4 };
  pid_t pid[DEAD];
  char path[16];
  for (int i = 0; i < DEAD; i++) {
    snprintf(path, sizeof path, "/bad/m%d", i);
    pid[i] = start_owner(path, 1);
  }
  zke *z = open_holder(NULL);
  lose_bad();
  for (int i = 0; i < DEAD; i++) kill_child(pid[i]);
  seam_pass(ZKE_DUTY_TICK_MS);
  seats[0] = (seat){.granted = 1, .refused = INT_MAX};
  ck_ok(zke_dispatch(z, NULL));
  int one = 1 + 2 * ZKE_GATE_SPINS;
  ck_assert_int_gt(seats[0].tries, 1);
  ck_assert_int_le(seats[0].tries, 1 + one);
  seats[0].refused = 0;
}

/* P6: one of a store's sessions sweeps for all.  If its host no longer
 * dispatches it, another takes over. */
TEST(session_takes_the_sweep_over) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z[2] = {open_holder(NULL), NULL};
  ck_ok(zke_open_session(z[0], NULL, &z[1]));
  watch_group(z[1]);
  looping[1] = z[1];
  live_on((int64_t)2 * ZKE_TICK_MS);
  int late = z[0]->s->sweep.by == z[0]->id ? 0 : 1;
  ck_assert_int_eq(z[0]->s->sweep.by, z[late]->id);
  looping[late] = NULL;
  heard.count = 0;
  kill_child(pid);
  live_on((int64_t)ZKE_TICK_MS + 2 * ZKE_DUTY_TICK_MS);
  ck_assert_int_eq(z[0]->s->sweep.by, z[!late]->id);
  ck_rc(see(z[!late], "/group/m"), ZKE_NONODE);
  ck_assert_int_ge(heard.count, 1);
  seats[0].stamps = 0;
  live_on(ZKE_TICK_MS); /* … and continues like a holder of the duty */
  ck_assert_int_ge(seats[0].stamps, ZKE_TICK_MS / ZKE_DUTY_TICK_MS - 1);
  ck_ok(zke_close(z[1]));
  ck_ok(zke_close(z[0]));
}

enum { CROWD = SWEEP_FEW + 36, SLOW_MS = ZKE_TICK_MS * 9 / 10 };

/* P6: a holder of the duty that comes late probes all sessions, however many
 * there are, whichever quarter is due.  It used to probe a quarter of them. */
TEST_LOOP(late_sweep_probes_all, 0, 4) {
  pid_t pid = start_owner("/group/m", CROWD);
  zke *z = open_holder(NULL);
  for (int i = 0; i <= _i; i++) {
    seam_pass(SLOW_MS);
    ck_ok(zke_dispatch(z, NULL));
  }
  ck_assert_int_eq(test_session_count(z), CROWD + 1);
  kill_child(pid);
  seam_pass(SLOW_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(test_session_count(z), 1);
}

/* P6: if the holder of the duty does nothing, a waiting process sweeps at each
 * of its ticks, in a poll loop and in zke_wait().  Its own last sweep used to
 * be too recent at every second tick. */
TEST_LOOP(every_tick_sweeps_for_an_idle_holder, 0, 2) {
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
  ck_assert(holder->s->sweep.duty);
  ck_ok(zke_close(holder));
  ck_ok(zke_close(z));
  kill_child(pid);
}

/* ---- a gate that is busy ---- */

enum { BUSY = 60 }; /* more than it tries without a pause */

/* P6: a sweep inside zke_wait() or another call stands in line at the gate for
 * a moment, so the dead are reaped immediately although others write.  It used
 * to give up after its first tries, again and again. */
TEST_LOOP(sweep_stands_in_line, 0, 2) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  ck_assert_int_gt(BUSY, ZKE_GATE_SPINS + 1);
  heard.count = 0;
  kill_child(pid);
  seam_pass(_i ? ZKE_TICK_MS : ZKE_DUTY_TICK_MS);
  int64_t before = seam_ahead;
  seats[0] = (seat){.refused = BUSY};
  if (_i == 0)
    ck_ok(zke_wait(z, zke_now(z) + ZKE_DUTY_TICK_MS / 2));
  else
    ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_assert_int_eq(seats[0].refused, 0);
  ck_assert_int_gt(seats[0].sleeps, 0);
  ck_assert_int_le(seam_ahead - before, SWEEP_PATIENCE);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  test_expect(z, &heard, "CHILD /group");
}

/* … for a moment only; */
TEST(sweep_leaves_the_line) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  kill_child(pid);
  seam_pass((int64_t)2 * ZKE_TICK_MS);
  int64_t before = seam_ahead;
  seats[0] = (seat){.refused = INT_MAX};
  ck_ok(see(z, "/group/m"));
  ck_assert_int_eq(seam_ahead - before, SWEEP_PATIENCE);
  seats[0].refused = 0;
  live_on(ZKE_TICK_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
}

/* … and if its process does not have the duty, the next process that checks
 * sweeps immediately.  That process used to assume for most of a second that
 * the sweep had been made. */
TEST(busy_sweep_is_left_to_the_next) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_at(&seats[0], NULL), *other = open_at(&seats[1], NULL);
  kill_child(pid);
  seam_pass((int64_t)2 * ZKE_TICK_MS);
  seats[0] = (seat){.refused = INT_MAX};
  ck_ok(see(z, "/group/m"));
  ck_assert_int_gt(seats[0].tries, 0);
  ck_rc(see(other, "/group/m"), ZKE_NONODE);
  seats[0].refused = 0;
}

/* P6: a call that changes something stands in the line anyway, so its sweep
 * waits longer.  While forty processes wrote without pause, no sweep was
 * completed. */
TEST(change_waits_longer_to_sweep) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_at(&seats[0], NULL);
  kill_child(pid);
  seam_pass((int64_t)2 * ZKE_TICK_MS);
  int64_t before = seam_ahead;
  seats[0] = (seat){.refused = 20 * BUSY};
  ck_ok(change(z, "/group"));
  ck_assert_int_gt(seam_ahead - before, 2 * SWEEP_PATIENCE);
  ck_assert_int_eq(seats[0].refused, 0);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
}

/* … but not for all of the call's time. */
TEST(change_keeps_time_for_itself) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_at(&seats[0], NULL);
  kill_child(pid);
  seam_pass((int64_t)2 * ZKE_TICK_MS);
  int64_t before = seam_ahead;
  seats[0] = (seat){.refused = INT_MAX};
  zke_limit(z, zke_now(z) + 1000);
  ck_rc(change(z, "/group"), ZKE_OPERATIONTIMEOUT);
  ck_says("within 500 ms");
  ck_assert_int_le(seam_ahead - before, 1010 * ZKE_MS);
  zke_limit(z, ZKE_FOREVER);
  seats[0].refused = 0;
}

/* P6: a holder of the duty that only dispatches, and always finds the gate
 * busy, keeps no other process from sweeping.  It used to record a sweep, and
 * the dead session was not reaped. */
TEST(busy_holder_hides_nothing) {
  pid_t pid = start_owner("/group/m", 1);
  zke *holder = open_holder(NULL), *z = open_at(&seats[1], NULL);
  watch_group(z);
  looping[1] = z;
  live_on((int64_t)2 * ZKE_TICK_MS);
  heard.count = 0;
  kill_child(pid);
  seats[0] = (seat){.refused = INT_MAX};
  live_on((int64_t)2 * ZKE_TICK_MS + ZKE_DUTY_TICK_MS);
  ck_assert_int_gt(seats[0].tries, 0);
  ck_assert_int_ge(heard.count, 1);
  ck_assert(holder->s->sweep.duty);
  seats[0].refused = 0;
}

/* … and a sweep in zke_dispatch() does not wait at all, in time or late, but
 * leaves it to the next tick. */
TEST_LOOP(sweep_of_a_dispatch_does_not_wait, 0, 2) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  heard.count = 0;
  kill_child(pid);
  seats[0] = (seat){.refused = BUSY};
  seam_pass(_i ? ZKE_TICK_MS : ZKE_DUTY_TICK_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(seats[0].sleeps, 0);
  ck_assert_int_gt(seats[0].refused, 0);
  ck_assert_int_gt(seats[0].tries, 0);
  ck_assert_int_eq(heard.count, 0);
  seats[0].refused = 0;
  seam_pass(ZKE_DUTY_TICK_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(seats[0].sleeps, 0);
  ck_assert_int_eq(heard.count, 1);
}

/* ---- detached sessions ---- */

enum { TIMEOUT = 10000, HOUR = 3600 * 1000 };

/* A kept session, which owns /x, is detached by its host. */
static void detach_one(zke *z) {
  zke *kept = session_as(z, .timeout_ms = TIMEOUT);
  make_as(kept, "/x", ZKE_EPHEMERAL);
  ck_ok(zke_detach(kept));
}

/* The session has its whole timeout from now on, and then ends. */
static void expect_a_timeout(zke *z) {
  ck_ok(see(z, "/x"));
  live_on(TIMEOUT - (int64_t)4 * ZKE_TICK_MS);
  ck_ok(see(z, "/x"));
  live_on((int64_t)8 * ZKE_TICK_MS);
  ck_rc(see(z, "/x"), ZKE_NONODE);
}

/* P5: time in which no process swept does not count for a detached session,
 * even if that cannot be recorded at first. */
TEST(no_timeout_is_judged_before_it_is_stamped) {
  zke *z = open_at(&seats[0], NULL);
  make(z, "/group");
  detach_one(z);
  take_duty(z);
  seam_pass(HOUR);
  seats[0].failing = 1;
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(seats[0].failing, 0);
  expect_a_timeout(z);
}

/* … nor if the process that noticed was killed after recording its sweep. */
TEST(note_of_a_sweep_comes_after_the_stamps) {
  zke *z = open_at(&seats[0], NULL);
  make(z, "/group");
  detach_one(z);
  take_duty(z);
  seam_pass(HOUR);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    seats[1].dies = true;
    open_at(&seats[1], NULL);
    _exit(0);
  }
  ck_assert_int_eq(test_child_end(pid), 7);
  ck_ok(zke_dispatch(z, NULL));
  expect_a_timeout(z);
}

/* P5: nor does time count in which the only process that sweeps was stopped
 * inside a sweep: before it had recorded it (0), after that (1), or at the gate
 * (2), before it ended another session, whose time was over. */
TEST_LOOP(stop_inside_a_sweep_does_not_count, 0, 3) {
  zke *z = open_at(&seats[0], NULL);
  make(z, "/group");
  take_duty(z);
  zke *first = session_as(z, .timeout_ms = TIMEOUT / 2);
  make_as(first, "/first", ZKE_EPHEMERAL);
  ck_ok(zke_detach(first));
  if (_i == 2) live_on(TIMEOUT / 2 - ZKE_TICK_MS / 2);
  detach_one(z);
  seats[0].stops_at = _i ? SIDE_SWEEP_AT : SIDE_FILES_AT;
  seats[0].late = _i == 1;
  if (_i == 2) {
    seats[0].stops_at = 0;
    seats[0].slow = STOP;
    while (see(z, "/first") == ZKE_OK) live_on(1);
    seats[0].slow = 0;
  }
  live_on(ZKE_TICK_MS);
  ck_assert_int_eq(seats[0].stops_at, 0);
  ck_rc(see(z, "/first"), _i == 2 ? ZKE_NONODE : ZKE_OK);
  expect_a_timeout(z);
}

/* Another process opens the file, sweeps if that is due, and closes it. */
static void visit(void) {
  zke *z = open_at(&seats[1], NULL);
  ck_ok(zke_close(z));
}

/* P5: a sweep that fails still counts as a sweep, so time counts for detached
 * sessions even if each sweep fails: for the process that sweeps (0), and for
 * others that begin in between (1).  In an earlier version it never did, since
 * the first failure hid all later sweeps. */
TEST_LOOP(time_counts_though_each_sweep_fails, 0, 2) {
  zke *z = open_at(&seats[0], NULL);
  make(z, "/group");
  make(z, "/bad");
  make_as(z, "/bad/due", ZKE_CONTAINER);
  make(z, "/bad/due/n");
  take_duty(z);
  ck_ok(zke_delete(z, "/bad/due/n", -1));
  lose_bad();
  detach_one(z);
  for (int ms = 0; ms < TIMEOUT + 2 * ZKE_TICK_MS; ms += ZKE_TICK_MS) {
    live_on(ZKE_TICK_MS);
    ck_assert(!z->s->sweep.duty); /* it failed */
    if (_i) visit();
    ck_assert(ms > TIMEOUT - 2 * ZKE_TICK_MS || see(z, "/x") == ZKE_OK);
  }
  ck_rc(see(z, "/x"), ZKE_NONODE);
}

/* … and if no sweep gets the gate, also for the next process that sweeps. */
TEST_LOOP(time_counts_though_the_gate_is_busy, 0, 2) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(NULL);
  detach_one(z);
  kill_child(pid);
  seats[0] = (seat){.refused = INT_MAX};
  live_on(TIMEOUT / 2);
  ck_assert_int_gt(seats[0].tries, 0);
  ck_assert_int_eq(test_session_count(z), 3);
  if (_i) visit();
  seats[0].refused = 0;
  live_on(TIMEOUT / 2 - (int64_t)2 * ZKE_TICK_MS);
  ck_ok(see(z, "/x"));
  live_on((int64_t)4 * ZKE_TICK_MS);
  ck_rc(see(z, "/x"), ZKE_NONODE);
}

/* ---- leases ---- */

static zke *lease(zke *z, int64_t ms) { return session_as(z, .lease_ms = ms); }

static int64_t stamp_of(const zke *z) {
  return side_read_hint(z->s, lease_slot_at(z->slot));
}

/* A session's lease has expired while its process was stopped.  In zke_sleep(),
 * which reads nothing, it does not know that.  It used to stamp the slot, which
 * another session had by then, and so kept that session alive without calls. */
TEST(no_lease_is_renewed_in_anothers_slot) {
  zke *z = open_at(&seats[0], NULL), *other = open_at(&seats[1], NULL);
  zke *over = lease(z, 4000);
  seam_pass(HOUR); /* it is stopped */
  ck_ok(see(other, "/"));
  ck_assert_int_eq(test_session_count(other), 2);
  zke *young = lease(other, 2000);
  int64_t began = young->lease_at;
  ck_assert_int_eq(young->slot, over->slot);
  seam_pass(1);
  ck_ok(zke_sleep(over, zke_now(over) + 1500));
  ck_assert_int_eq(stamp_of(over), began);
  seam_pass(1000);
  ck_ok(see(other, "/"));
  ck_assert_int_eq(test_session_count(other), 2); /* it hangs: expired too */
  ck_rc(see(over, "/"), ZKE_SESSIONEXPIRED);
  ck_ok(zke_close(over));
  zke_close(young);
}

/* P5: a slot's former owner was stopped just before it wrote a stamp, and
 * writes it late: the new owner's next call overwrites it.  The former owner
 * does not take the slot for its own, and writes no more. */
TEST(late_stamp_is_written_over) {
  zke *z = open_at(&seats[0], NULL), *other = open_at(&seats[1], NULL);
  zke *over = lease(z, 4000);
  seam_pass(1000);
  seats[0].stops_at = lease_slot_at(over->slot);
  ck_ok(zke_dispatch(over, NULL)); /* it is stopped in this */
  ck_assert_int_eq(seats[0].stops_at, 0);
  ck_ok(see(other, "/"));
  zke *young = lease(other, 8000);
  ck_assert_int_eq(young->slot, over->slot);
  seam_pass(2000);
  side_write_hint(z->s, lease_slot_at(young->slot), young->lease_at - HOUR);
  lease_stamp(over);
  ck_assert_int_lt(stamp_of(young), young->lease_at);
  lease_stamp(young);
  ck_assert_int_eq(stamp_of(young), host_boottime(z->s));
  ck_assert_int_eq(stamp_of(young), young->lease_at);
  zke_close(over);
}

/* zkembed.h, lease_ms: a stamp that took longer than the lease does not shut a
 * session out of its own slot: its next call renews the lease. */
TEST(a_session_that_wrote_a_late_stamp_lives_on) {
  zke *z = open_at(&seats[0], NULL), *late = lease(z, 4000);
  seam_pass(1000);
  seats[0].stops_at = lease_slot_at(late->slot);
  lease_stamp(late);
  ck_assert_int_eq(seats[0].stops_at, 0);
  for (int i = 0; i < 5; i++) {
    ck_ok(see(late, "/"));
    ck_assert_int_eq(test_session_count(z), 2);
    seam_pass(3000);
  }
  ck_ok(see(late, "/"));
}

/* P5: a store that is stopped while it waits for the gate finds its leases
 * expired when it continues, and their slots taken by others.  It used to write
 * old stamps there, by which a living session was ended. */
TEST(no_lease_is_extended_in_anothers_slot) {
  zke *z = open_at(&seats[0], NULL), *other = open_at(&seats[1], NULL);
  zke *over = lease(z, 4000);
  seam_pass(3000);
  z->s->since = host_boottime(z->s); /* it waits … */
  seam_pass(HOUR);                   /* … and is stopped */
  ck_ok(see(other, "/"));
  ck_assert_int_eq(test_session_count(other), 2);
  zke *young = lease(other, 1000);
  ck_assert_int_eq(young->slot, over->slot);
  lease_extend(z->s);
  ck_assert_int_eq(side_read_hint(z->s, lease_slot_at(over->slot)),
                   young->lease_at);
  zke_close(over);
  ck_ok(see(other, "/"));
}

/* ---- at a busy gate ---- */

/* Another party has the gate and does nothing. */
static int hold_gate(zke *z) {
  int fd = open(z->s->gate, O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(os_lock(NULL, fd, SIDE_GATE, ZKE_LOCK_EXCLUSIVE), 0);
  return fd;
}

/* P6, P10: after a reported death, reaping is tried less and less often while
 * the gate is busy, and within 16 ms once it is free; even if the kernel had
 * kept the dead session's lock so long that it was probed only once a second.
 * It used to be tried a thousand times a second. */
TEST_LOOP(burial_at_a_busy_gate, 0, 2) {
  pid_t pid = start_owner("/group/m", 1);
  open_holder(NULL); /* it sweeps, so the other does not */
  zke *z = open_at(&seats[1], NULL);
  zke_stat stat;
  ck_ok(zke_exists(z, "/group/m", test_record, &heard, &stat));
  looping[1] = z;
  live_on(ZKE_TICK_MS);
  heard.count = 0;
  if (_i) clinging = stat.ephemeralOwner;
  int fd = hold_gate(z);
  kill_child(pid);
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
  live_on(NOTICE_BUSY_MS);
  ck_assert_int_eq(heard.count, 1);
}

/* P6: if a death notice reports a carrier's death, a light session that cannot
 * be ended does not block those after it, and only it is put off.  It used to
 * block them, and was tried at each probe. */
TEST(light_session_that_fails_stops_no_other) {
  pid_t pid = start_owner_by(own_light, "/group/m", 2);
  open_holder(NULL); /* it sweeps, so the other does not */
  zke *z = open_at(&seats[1], NULL);
  ck_ok(zke_exists(z, "/group/m", test_record, &heard, NULL));
  ck_ok(zke_exists(z, "/bad/m", test_record, &heard, NULL));
  looping[1] = z;
  live_on(ZKE_TICK_MS);
  heard.count = 0;
  lose_bad();
  seats[1].work = 1;
  kill_child(pid);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(heard.count, 1);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_ok(see(z, "/bad/m"));
  seam_pass(5);
  seats[1].tries = 0;
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(seats[1].tries, 0);
  seats[1].work = 0;
}

static char logged[512];

static void keep_log(void *context, int level, const char *text) {
  (void)context, (void)level;
  snprintf(logged, sizeof logged, "%s", text);
}

/* P5, P6: if the end of a light session could not be written, it is written
 * later, and is no death: its process lives.  The logger used to be told of a
 * death. */
TEST(end_that_comes_late_is_no_death) {
  zke *z = open_at(&seats[0], NULL);
  make(z, "/group");
  ck_ok(zke_close(z));
  z = open_holder(seam_vfs(&disk));
  zke *light = session_as(z, .flags = ZKE_OPEN_LIGHT);
  make_as(light, "/group/m", ZKE_EPHEMERAL);
  seam_fail(&disk, SEAM_xWrite, true);
  ck_rc(zke_close(light), ZKE_FULL);
  seam_fail(&disk, SEAM_xWrite, false);
  ck_ok(see(z, "/group/m"));
  z->s->log = keep_log;
  live_on(ZKE_TICK_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_assert_msg(strstr(logged, "ended: closed") != NULL, "%s", logged);
}

/* ---- removing many nodes ---- */

static void with_store(zke *z, void (*run)(store *s)) {
  ck_ok(api_enter(z, NULL, API_LIGHT, NULL));
  run(z->s);
  ck_ok(api_leave(z, ZKE_OK));
}

static void sweep_all(store *s) {
  sweep w = {.all = true};
  sweep_run(s, &w);
  ck_ok(w.rc);
}

/* Make count nodes below a parent in one transaction. */
static void make_many(zke *z, const char *parent, int count, int mode) {
  static zke_op op[4096];
  static char path[4096][48];
  ck_assert_int_le(count, 4096);
  for (int i = 0; i < count; i++) {
    snprintf(path[i], sizeof path[i], "%s/%06d", parent, i);
    if (mode == ZKE_PERSISTENT_WITH_TTL)
      zke_op_create_ttl(&op[i], path[i], "", 0, ZKE_OPEN_ACL, mode, 1);
    else
      zke_op_create(&op[i], path[i], "", 0, ZKE_OPEN_ACL, mode);
  }
  ck_ok(zke_multi(z, op, count, NULL));
}

/* SQLite's work for a call, in instructions of its virtual machine. */
static int64_t instructions;

static int count_instruction(void *arg) {
  (void)arg;
  instructions++;
  return 0;
}

static void count_for(zke *z, bool on) {
  instructions = 0;
  sqlite3_progress_handler(z->s->db, on, on ? count_instruction : NULL, NULL);
}

/* Instructions for the end of a session that owns this many nodes. */
static double end_of_many(zke *z, int count) {
  zke *owner = test_session(z, NULL);
  make_many(owner, "/group", count, ZKE_EPHEMERAL);
  count_for(z, true);
  ck_ok(zke_expire(z, zke_session_id(owner)));
  int64_t took = instructions;
  count_for(z, false);
  ck_assert_int_eq(child_count(z, "/group"), 0);
  ck_ok(zke_close(owner));
  return (double)took / count;
}

/* P10: others wait while the nodes of a dead session are removed.  A node costs
 * the same among few and among many, and less than half of what it cost when
 * its parent was loaded and counted for each (165 instructions). */
TEST(end_of_many_costs_little_each) {
  zke *z = open_at(&seats[0], NULL);
  make(z, "/group");
  double few = end_of_many(z, 256), many = end_of_many(z, 4096);
  printf("a node of a session that ends: %.0f, %.0f instructions\n", few, many);
  ck_assert_double_gt(few, 20);
  ck_assert_double_lt(many, few * 1.1);
  ck_assert_double_lt(many, 85);
}

/* P6: the limit on a call's wait for others does not limit its own work: the
 * end of a session is one transaction, however long it takes. */
TEST(end_of_many_is_not_cut_off) {
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(NULL), *owner = test_session(z, NULL);
  make_many(owner, "/group", 1000, ZKE_EPHEMERAL);
  seats[0].slow = (int64_t)60 * 60 * 1000; /* past every deadline */
  ck_ok(zke_expire(z, zke_session_id(owner)));
  seats[0].slow = 0;
  ck_assert_int_eq(child_count(z, "/group"), 1);
  ck_ok(zke_close(owner));
  ck_ok(zke_close(z));
  kill_child(pid);
}

/* Semantics 9: a sweep does not read nodes with a TTL that have children,
 * however many there are and however long ago they expired; when the last child
 * has gone they are removed.  It used to read each of them four times a
 * second. */
TEST(overdue_parents_are_not_looked_at) {
  enum { MANY = 1000 };
  char path[64];
  zke *z = open_at(&seats[0], NULL);
  make(z, "/t");
  count_for(z, true);
  with_store(z, sweep_all);
  int64_t none = instructions;
  count_for(z, false);
  make_many(z, "/t", MANY, ZKE_PERSISTENT_WITH_TTL);
  for (int i = 0; i < MANY; i++) {
    snprintf(path, sizeof path, "/t/%06d/c", i);
    make_as(z, path, i % 2 ? ZKE_PERSISTENT : ZKE_EPHEMERAL);
    if (i % 3 == 0) ck_ok(change(z, "/t/000000"));
  }
  seam_pass(100);
  count_for(z, true);
  with_store(z, sweep_all);
  ck_assert_int_le(instructions, none + 10);
  count_for(z, false);
  ck_assert_int_eq(child_count(z, "/t"), MANY);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_delete(z, "/t/000008/c", -1));
  with_store(z, sweep_all);
  ck_rc(see(z, "/t/000008"), ZKE_NONODE);
  ck_assert_int_eq(child_count(z, "/t"), MANY - 1);
}

/* P9: a dispatch that finds many nodes due removes them without a sync, many in
 * a transaction, and stops when its time is up; the next one continues.  Each
 * used to be a synced transaction, 64 of them in a dispatch. */
TEST(due_nodes_go_in_unsynced_batches) {
  enum { MANY = NODE_REMOVAL * 5 };
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(seam_vfs(&disk));
  z->s->durability = ZKE_DURABLE_BY_KIND;
  make(z, "/t");
  make_many(z, "/t", MANY, ZKE_PERSISTENT_WITH_TTL);
  seam_pass(ZKE_DUTY_TICK_MS);
  seats[0] = (seat){.slow = SWEEP_REMOVAL_MS / 2};
  disk.calls[SEAM_xSync] = 0;
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(child_count(z, "/t"), MANY - 2 * NODE_REMOVAL);
  ck_assert_int_eq(seats[0].tries, 2);
  seats[0].slow = 0;
  seam_pass(ZKE_DUTY_TICK_MS);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(child_count(z, "/t"), 0);
  ck_assert_int_eq(disk.calls[SEAM_xSync], 0);
  ck_ok(zke_close(z));
  kill_child(pid);
}

/* P11, P6: what cannot be written for lack of space is left, completely.  If
 * reaping takes long before it fails, it is tried less often, so that it
 * occupies neither a processor nor the gate; once there is space it succeeds.
 * It used to be tried at each sweep. */
TEST_LOOP(full_disk_leaves_all_and_is_tried_seldom, 0, 2) {
  enum { SLOW = 100, SECONDS = 20 };
  pid_t pid = start_owner("/group/m", 1);
  zke *z = open_holder(seam_vfs(&disk));
  make(z, "/t");
  make_many(z, "/t", 10, ZKE_PERSISTENT_WITH_TTL);
  zke_stat stat;
  if (_i) ck_ok(zke_exists(z, "/group/m", test_record, &heard, &stat));
  seam_fail(&disk, SEAM_xWrite, true);
  full_ms = SLOW;
  refused = 0;
  heard.count = 0;
  kill_child(pid);
  ck_ok(zke_dispatch(z, NULL));
  seam_pass(ZKE_DUTY_TICK_MS);
  int64_t end = seam_ahead + SECONDS * 1000 * ZKE_MS;
  int nodes = 0;
  while (seam_ahead < end) {
    int before = refused;
    ck_ok(zke_dispatch(z, NULL));
    seam_pass(ZKE_DUTY_TICK_MS);
    nodes += refused > before;
  }
  ck_assert_int_gt(nodes, 1);
  ck_ok(see(z, "/group/m"));
  ck_assert_int_eq(child_count(z, "/t"), 10);
  ck_assert_int_eq(heard.count, 0);
  ck_ok(zke_check(z, NULL, NULL));
  printf("full disk: %d writes refused in %d s\n", refused, SECONDS);
  ck_assert_int_le(refused, 60);
  seam_fail(&disk, SEAM_xWrite, false);
  live_on((int64_t)END_REST * SLOW * 2 + (int64_t)2 * ZKE_TICK_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
  ck_assert_int_eq(child_count(z, "/t"), 0);
}

/* The same for a kept session that its host has not heard from for its timeout:
 * the host used to try to end it every 10 ms. */
TEST(full_disk_is_tried_seldom_by_a_host) {
  enum { SLOW = 100, SECONDS = 20 };
  zke *z = open_at(&seats[0], seam_vfs(&disk));
  make(z, "/group");
  zke *kept = session_as(z, .timeout_ms = 1000);
  make_as(kept, "/group/m", ZKE_EPHEMERAL);
  looping[0] = z;
  seam_fail(&disk, SEAM_xWrite, true);
  full_ms = SLOW;
  live_on((int64_t)SECONDS * 1000);
  ck_ok(see(z, "/group/m"));
  ck_assert_int_ge(refused, 2);
  ck_assert_int_le(refused, 60);
  seam_fail(&disk, SEAM_xWrite, false);
  live_on((int64_t)END_REST * SLOW * 2 + (int64_t)2 * ZKE_TICK_MS);
  ck_rc(see(z, "/group/m"), ZKE_NONODE);
}
