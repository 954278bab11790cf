/* test_counters.c - what the processes count: zke_counters()
 *
 * Time stands unless a test moves it, or a process waits for the gate: so the
 * lengths of waits are known.  The gate is held by the test itself, as
 * doc/format.md 5 tells it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS INT64_C(1000000)
enum { SINCE_AT = 32, COUNTS_AT = 40, PATIENT_MS = 60000 };

static zke *a, *b;

static const char *database(void) { return test_path("counted.db"); }

/* ---- the gate, and a system in which time passes while one waits ---- */

static int gate = -1;
static int64_t held_ns; /* when so much has been slept, the gate is let go */
static int64_t slept_ns;

static int side_file(const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s-zke/%s", database(), name);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
  return fd;
}

/* Hold the gate until others have slept so long for it. */
static void hold_gate(int64_t ns) {
  struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  gate = side_file("gate");
  ck_assert_int_eq(fcntl(gate, F_OFD_SETLK, &l), 0);
  held_ns = ns;
  slept_ns = 0;
}

static void let_go(void) {
  if (gate >= 0) close(gate);
  gate = -1;
}

static void pass(void *context, int64_t ns) {
  test_pass_ns(context, ns);
  slept_ns += ns;
  if (slept_ns >= held_ns) let_go();
}

/* Where nothing has come, time goes by. */
static int driven_poll(void *context, struct pollfd *fds, unsigned count,
                       int timeout) {
  zke_os os;
  zke_os_default(&os);
  int rc = os.poll(context, fds, count, 0);
  if (rc == 0 && timeout > 0) pass(NULL, timeout * MS);
  return rc;
}

static bool disk_is_full; /* what is counted cannot be written */

static int64_t full_pwrite(void *context, int fd, const void *data, size_t size,
                           int64_t at) {
  zke_os os;
  zke_os_default(&os);
  bool counts = at == COUNTS_AT && size > 8;
  return disk_is_full && counts ? -ENOSPC
                                : os.pwrite(context, fd, data, size, at);
}

static bool disk_is_bad; /* what was counted cannot be read */

static int64_t bad_pread(void *context, int fd, void *data, size_t size,
                         int64_t at) {
  zke_os os;
  zke_os_default(&os);
  return disk_is_bad && at == SINCE_AT ? -EIO
                                       : os.pread(context, fd, data, size, at);
}

static const char *boot = "one";

static int pretended_boot(void *context, char *buffer, size_t size) {
  (void)context;
  return snprintf(buffer, size, "%s", boot);
}

/* A handle on this system, with so many ms of lease. */
static zke *open_driven(int lease_ms) {
  static zke_os os;
  if (!os.size) {
    os = test_driven_os();
    os.sleep = pass;
    os.poll = driven_poll;
    os.pwrite = full_pwrite;
    os.pread = bad_pread;
    os.boot_id = pretended_boot;
  }
  zke_options o = ZKE_INIT(zke_options);
  o.os = &os;
  o.busy_timeout_ms = 200;
  o.lease_ms = lease_ms;
  zke *z = NULL;
  ck_ok(zke_open(database(), &o, &z));
  return z;
}

/* ---- what is asserted ---- */

static zke_counts counts(zke *z) {
  zke_counts now = {.since_ms = -1};
  ck_ok(zke_counters(z, &now));
  return now;
}

static int set(zke *z, const char *path) {
  return zke_set(z, path, "x", 1, -1, NULL);
}

static int create(zke *z, const char *path, int mode) {
  return zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, NULL, NULL);
}

static void begin(void) {
  a = open_driven(0);
  b = open_driven(0);
  ck_ok(create(a, "/n", ZKE_PERSISTENT));
}

static void end(void) {
  ck_ok(zke_close(b));
  ck_ok(zke_check(a, NULL, NULL));
  ck_ok(zke_close(a));
}

/* So many waits, so long together and at the longest, as any process sees. */
static void expect_waits(zke *z, int64_t waits, int64_t ns, int64_t most) {
  zke_counts now = counts(z);
  ck_assert_int_eq(now.waits, waits);
  ck_assert_int_eq(now.wait_ns, ns);
  ck_assert_int_eq(now.wait_most_ns, most);
}

/* ---- the writers' line ---- */

/* A change that finds the gate free is no wait, nor are two that follow. */
TEST(changes_that_need_not_wait_count_nothing) {
  begin();
  for (int i = 0; i < 100; i++) {
    ck_ok(set(i % 2 ? a : b, "/n"));
    ck_ok(zke_dispatch(a, NULL));
  }
  expect_waits(b, 0, 0, 0);
  end();
}

/* A change that waited is counted once, with its time, whoever asks. */
TEST(waits_are_counted) {
  begin();
  hold_gate(30 * MS);
  ck_ok(set(a, "/n"));
  int64_t first = slept_ns;
  ck_assert_int_ge(first, 30 * MS);
  expect_waits(a, 1, first, first);
  expect_waits(b, 1, first, first);
  hold_gate(90 * MS);
  ck_ok(set(b, "/n"));
  int64_t second = slept_ns;
  ck_assert_int_gt(second, first);
  expect_waits(a, 2, first + second, second);
  hold_gate(10 * MS);
  ck_ok(set(a, "/n"));
  expect_waits(b, 3, first + second + slept_ns, second);
  end();
}

/* A dispatch has a session to end whose lease is over.  It looks whether the
 * gate is free, and does not wait for it. */
TEST(looks_without_waiting_are_no_waits) {
  begin();
  zke *c = open_driven(1000);
  test_pass_ns(NULL, 2000 * MS);
  hold_gate(INT64_MAX);
  for (int i = 0; i < 10; i++) {
    ck_ok(zke_dispatch(a, NULL));
    test_pass_ns(NULL, 300 * MS);
  }
  ck_assert_int_eq(slept_ns, 0);
  let_go();
  ck_ok(set(a, "/n"));
  ck_assert_int_eq(test_session_count(b), 2);
  expect_waits(b, 0, 0, 0);
  ck_ok(zke_close(c));
  end();
}

/* One that was given up is counted, too.  It is told when the process has had
 * the gate again, whoever asks: the numbers never fall. */
TEST(waits_in_vain_are_counted) {
  begin();
  hold_gate(INT64_MAX);
  ck_rc(set(a, "/n"), ZKE_OPERATIONTIMEOUT);
  int64_t waited = slept_ns;
  ck_assert_int_ge(waited, 200 * MS);
  expect_waits(a, 0, 0, 0);
  expect_waits(b, 0, 0, 0);
  let_go();
  ck_rc(zke_delete(a, "/none", -1), ZKE_NONODE);
  expect_waits(b, 1, waited, waited);
  expect_waits(a, 1, waited, waited);
  end();
}

/* A change that is refused, or is undone, has waited all the same. */
TEST(undone_changes_have_waited) {
  begin();
  zke_op ops[2];
  zke_op_result results[2];
  hold_gate(20 * MS);
  ck_rc(zke_set(a, "/n", "", 0, 77, NULL), ZKE_BADVERSION);
  int64_t all = slept_ns;
  zke_op_create(&ops[0], "/undone", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&ops[1], "/none", -1);
  hold_gate(20 * MS);
  ck_rc(zke_multi(a, ops, 2, results), ZKE_NONODE);
  zke_results_clear(results, 2);
  all += slept_ns;
  ck_assert_int_eq(counts(b).waits, 2);
  ck_assert_int_eq(counts(b).wait_ns, all);
  end();
}

static int batch_fails; /* what its function returns */

static int change_in_batch(zke *z, void *context) {
  (void)context;
  expect_waits(z, 0, 0, 0);
  ck_ok(create(z, "/batch", ZKE_PERSISTENT));
  ck_rc(create(z, "/batch", ZKE_PERSISTENT), ZKE_NODEEXISTS);
  ck_ok(set(z, "/batch"));
  return batch_fails;
}

/* A batch waits once, whatever becomes of it and of its operations. */
TEST_LOOP(batch_waits_once, 0, 2) {
  begin();
  batch_fails = _i ? ZKE_NONODE : ZKE_OK;
  hold_gate(40 * MS);
  ck_rc(zke_batch(a, change_in_batch, NULL), batch_fails);
  expect_waits(b, 1, slept_ns, slept_ns);
  end();
}

/* What cannot be written, on a full disk, is added later. */
TEST(full_disk_delays_what_was_counted) {
  begin();
  disk_is_full = true;
  hold_gate(20 * MS);
  ck_ok(set(a, "/n"));
  int64_t waited = slept_ns;
  expect_waits(a, 0, 0, 0);
  expect_waits(b, 0, 0, 0);
  ck_ok(set(a, "/n"));
  disk_is_full = false;
  ck_ok(set(a, "/n"));
  expect_waits(b, 1, waited, waited);
  ck_ok(set(a, "/n"));
  expect_waits(b, 1, waited, waited);
  end();
}

/* ---- deaths ---- */

/* Wait until z finds only so many sessions; the clock goes on meanwhile. */
static bool are_left(zke *z, int sessions) {
  test_pass_ns(NULL, 300 * MS);
  ck_ok(zke_dispatch(z, NULL));
  return test_session_count(z) == sessions;
}

/* A process that was killed is counted once, though several notice it: some by
 * its FIFO, since they wait for its node, and all by their sweeps. */
TEST(death_is_counted_once) {
  enum { OTHERS = 5 };
  zke *other[OTHERS];
  test_events events = {0};
  begin();
  test_worker w = test_worker_on(database());
  test_ask(&w, "create /e x 1");
  for (int i = 0; i < OTHERS; i++) {
    other[i] = open_driven(0);
    ck_ok(zke_exists(other[i], "/e", test_record, &events, NULL));
  }
  ck_assert_int_eq(counts(a).deaths, 0);
  test_kill(&w, SIGKILL);
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < OTHERS; i++) ck_ok(zke_dispatch(other[i], NULL));
    ck_ok(zke_dispatch(b, NULL));
  }
  ck_until(are_left(b, 2 + OTHERS), PATIENT_MS);
  ck_assert_int_eq(counts(a).deaths, 1);
  ck_rc(zke_exists(a, "/e", NULL, NULL, NULL), ZKE_NONODE);
  for (int i = 0; i < OTHERS; i++) ck_ok(zke_close(other[i]));
  ck_assert_int_eq(counts(a).deaths, 1);
  end();
}

/* A try that finds a dead process's node ends its session by zke_expire(). */
TEST(a_dead_session_that_is_expired_is_a_death) {
  zke_stat stat;
  begin();
  test_worker w = test_worker_on(database());
  test_ask(&w, "create /e x 1");
  ck_ok(zke_exists(a, "/e", NULL, NULL, &stat));
  test_kill(&w, SIGKILL);
  ck_ok(zke_expire(a, stat.ephemeralOwner));
  ck_assert_int_eq(counts(a).deaths, 1);
  ck_assert_int_eq(counts(a).expiries, 0);
  end();
}

/* Sessions that end as they should are no deaths. */
TEST(closed_and_expired_sessions_are_no_deaths) {
  begin();
  zke *c = open_driven(0), *d = open_driven(0);
  ck_ok(zke_close(c));
  ck_ok(zke_expire(a, zke_session_id(d)));
  ck_ok(zke_close(d));
  ck_assert_int_eq(counts(a).deaths, 0);
  ck_assert_int_eq(counts(a).expiries, 0);
  end();
}

static void run_sql(const char *sql) {
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(database(), &db), SQLITE_OK);
  sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
  ck_assert_msg(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK, "%s",
                sqlite3_errmsg(db));
  sqlite3_close(db);
}

/* The end of a dead session that is undone is not counted; the one that is
 * committed is. */
TEST(undone_burial_is_not_counted) {
  begin();
  test_worker w = test_worker_on(database());
  run_sql(
      "CREATE TRIGGER stay BEFORE DELETE ON zkembed_session BEGIN SELECT "
      "RAISE(ABORT,'stay');END");
  test_kill(&w, SIGKILL);
  for (int i = 0; i < 20; i++) are_left(b, 2);
  ck_assert_int_eq(test_session_count(a), 3);
  ck_assert_int_eq(counts(a).deaths, 0);
  run_sql("DROP TRIGGER stay");
  ck_until(are_left(b, 2), PATIENT_MS);
  ck_assert_int_eq(counts(a).deaths, 1);
  end();
}

/* ---- expiries ---- */

/* Of a lease it is known when it was over, and so how late it was ended. */
TEST(late_leases_are_counted) {
  begin();
  for (int i = 1; i <= 2; i++) {
    int64_t late = 700 * i * MS;
    zke *c = open_driven(1000);
    ck_ok(set(c, "/n"));
    test_pass_ns(NULL, 1000 * MS + late);
    ck_ok(zke_dispatch(b, NULL));
    ck_assert_int_eq(test_session_count(a), 2);
    zke_counts now = counts(a);
    ck_assert_int_eq(now.expiries, i);
    ck_assert_int_eq(now.late_ns, (i == 1 ? 700 : 2100) * MS);
    ck_assert_int_eq(now.late_most_ns, late);
    ck_ok(zke_close(c));
  }
  ck_assert_int_eq(counts(a).deaths, 0);
  end();
}

/* A session with a timeout, attached or detached: it is ended after its time,
 * by somebody who did not look for a while. */
TEST_LOOP(late_timeouts_are_counted, 0, 2) {
  begin();
  zke *c = NULL;
  zke_options kept = ZKE_INIT(zke_options);
  kept.timeout_ms = 1000;
  ck_ok(zke_open_session(a, &kept, &c));
  if (_i) ck_ok(zke_detach(c));
  int64_t start = test_clock_ns[ZKE_CLOCK_BOOTTIME];
  for (int i = 0; i < 9; i++) {
    ck_ok(zke_dispatch(a, NULL));
    ck_ok(zke_dispatch(b, NULL));
    test_pass_ns(NULL, 100 * MS);
  }
  ck_assert_int_eq(counts(a).expiries, 0);
  test_pass_ns(NULL, 400 * MS);
  ck_until((zke_dispatch(a, NULL), are_left(b, 2)), PATIENT_MS);
  int64_t passed = test_clock_ns[ZKE_CLOCK_BOOTTIME] - start;
  zke_counts now = counts(b);
  ck_assert_int_eq(now.expiries, 1);
  ck_assert_int_ge(now.late_ns, 300 * MS);
  ck_assert_int_le(now.late_ns, passed - 1000 * MS);
  ck_assert_int_eq(now.late_ns, now.late_most_ns);
  ck_assert_int_eq(now.deaths, 0);
  if (!_i) ck_ok(zke_close(c));
  end();
}

/* ---- checkpoints ---- */

/* The log is emptied when it has grown long, by a compaction, and by the last
 * that closes. */
TEST(checkpoints_are_counted) {
  static char large[100000];
  begin();
  int64_t before = counts(a).checkpoints, most = 0;
  for (int i = 0; counts(b).checkpoints == before; i++) {
    ck_assert_int_lt(i, 1000);
    ck_ok(zke_set(a, "/n", large, sizeof large, -1, NULL));
    if (counts(b).log_pages > most) most = counts(b).log_pages;
  }
  ck_assert_int_gt(most, 1000);
  ck_assert_int_eq(counts(a).checkpoints, before + 1);
  ck_assert_int_eq(counts(b).log_pending, 0);
  ck_ok(set(a, "/n"));
  ck_assert_int_gt(counts(b).log_pending, 0);
  ck_assert_int_lt(counts(b).log_pages, 100);
  ck_ok(zke_compact(a, zke_now(a) + 10000));
  int64_t compacted = counts(b).checkpoints;
  ck_assert_int_gt(compacted, before + 1);
  end();
  a = open_driven(0);
  ck_assert_int_eq(counts(a).checkpoints, compacted + 1);
  ck_ok(zke_close(a));
}

/* ---- when they begin anew ---- */

/* A reboot, which another boot id shows, and a copy of the file. */
TEST_LOOP(counters_begin_anew, 0, 2) {
  begin();
  zke_counts now = counts(a);
  int64_t since = now.since_ms;
  ck_assert_int_eq(since, test_clock_ns[ZKE_CLOCK_REALTIME] / MS);
  hold_gate(20 * MS);
  ck_ok(set(a, "/n"));
  test_pass_ns(NULL, 5000 * MS);
  end();
  a = open_driven(0);
  now = counts(a);
  ck_assert_int_eq(now.since_ms, since);
  ck_assert_int_eq(now.waits, 1);
  ck_ok(zke_close(a));
  if (_i) {
    char command[4096];
    snprintf(command, sizeof command, "cp %s %s.2 && mv %s.2 %s", database(),
             database(), database(), database());
    ck_assert_int_eq(system(command), 0);
  } else {
    boot = "two";
  }
  a = open_driven(0);
  now = counts(a);
  ck_assert_int_eq(now.since_ms, test_clock_ns[ZKE_CLOCK_REALTIME] / MS);
  ck_assert_int_gt(now.since_ms, since);
  ck_assert_int_eq(now.waits, 0);
  ck_assert_int_eq(now.wait_most_ns, 0);
  ck_assert_int_eq(now.checkpoints, 0);
  ck_assert_int_eq(now.deaths, 0);
  ck_ok(zke_close(a));
}

/* A process that was killed by the reboot was not found dead by another. */
TEST(reboot_is_no_death) {
  begin();
  test_worker w = test_worker_on(database());
  test_kill(&w, SIGKILL);
  ck_ok(zke_close(a));
  ck_ok(zke_close(b));
  boot = "two";
  a = open_driven(0);
  ck_assert_int_eq(test_session_count(a), 1);
  ck_assert_int_eq(counts(a).deaths, 0);
  ck_ok(zke_close(a));
}

/* ---- arguments, and files that are not as they should be ---- */

/* A handle that only reads sees the counters too; a tree in memory has none.  A
 * refused call leaves its output alone. */
TEST(counters_of_other_handles) {
  zke_counts now = {.waits = 77};
  zke *memory = test_open(":memory:"), *reader = NULL;
  zke_options o = ZKE_INIT(zke_options);
  o.flags = ZKE_OPEN_READONLY;
  begin();
  hold_gate(20 * MS);
  ck_ok(set(a, "/n"));
  ck_ok(zke_open(database(), &o, &reader));
  expect_waits(reader, 1, slept_ns, slept_ns);
  ck_assert_int_ge(counts(reader).log_pages, 0);
  ck_rc(zke_counters(memory, &now), ZKE_UNIMPLEMENTED);
  ck_rc(zke_counters(a, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_counters(NULL, &now), ZKE_BADARGUMENTS);
  ck_assert_int_eq(now.waits, 77);
  ck_ok(zke_close(reader));
  ck_ok(zke_close(memory));
  end();
}

/* A read-only handle where the directory is gone knows nothing but the log. */
TEST(reader_without_the_file) {
  zke *reader = NULL;
  zke_options o = ZKE_INIT(zke_options);
  o.flags = ZKE_OPEN_READONLY;
  begin();
  end();
  test_remove(test_path("counted.db-zke"));
  ck_ok(zke_open(database(), &o, &reader));
  zke_counts now = counts(reader);
  ck_assert_int_eq(now.since_ms, 0);
  ck_assert_int_eq(now.checkpoints, 0);
  ck_ok(zke_close(reader));
}

/* The numbers are hints: what cannot be a count is none. */
TEST(damaged_numbers_are_none) {
  begin();
  int fd = side_file("live");
  int64_t words[9];
  for (int i = 0; i < 9; i++) words[i] = INT64_MIN + i;
  ck_assert_int_eq(pwrite(fd, words, sizeof words, SINCE_AT), sizeof words);
  zke_counts now = counts(a);
  ck_assert_int_eq(now.since_ms, 0);
  ck_assert_int_eq(now.waits, 0);
  hold_gate(20 * MS);
  ck_ok(set(a, "/n"));
  expect_waits(b, 1, slept_ns, slept_ns);
  for (int i = 0; i < 9; i++) words[i] = INT64_MAX;
  ck_assert_int_eq(pwrite(fd, words, sizeof words, SINCE_AT), sizeof words);
  hold_gate(20 * MS);
  ck_ok(set(a, "/n"));
  now = counts(b);
  ck_assert_int_ge(now.waits, 0);
  ck_assert_int_eq(now.wait_most_ns, INT64_MAX);
  close(fd);
  end();
}

/* Where the numbers cannot be read nothing is written over them: what is to be
 * added waits. */
TEST(unreadable_numbers_stay) {
  zke_counts now;
  begin();
  for (int i = 0; i < 3; i++) {
    hold_gate(20 * MS);
    ck_ok(set(b, "/n"));
  }
  disk_is_bad = true;
  ck_rc(zke_counters(a, &now), ZKE_SYSTEMERROR);
  ck_says("live");
  hold_gate(20 * MS);
  ck_ok(set(a, "/n"));
  disk_is_bad = false;
  ck_assert_int_eq(counts(b).waits, 3);
  ck_assert_int_eq(counts(a).waits, 3);
  ck_ok(set(a, "/n"));
  ck_assert_int_eq(counts(b).waits, 4);
  end();
}

static int ask_in_vain(zke *z, void *context) {
  zke_counts now;
  (void)context;
  ck_ok(create(z, "/before", ZKE_PERSISTENT));
  ck_rc(zke_counters(z, &now), ZKE_SYSTEMERROR);
  ck_says("live");
  ck_ok(create(z, "/behind", ZKE_PERSISTENT));
  return ZKE_OK;
}

/* A batch that asks in vain goes on. */
TEST(unreadable_numbers_break_no_batch) {
  begin();
  disk_is_bad = true;
  ck_ok(zke_batch(a, ask_in_vain, NULL));
  disk_is_bad = false;
  ck_ok(zke_exists(b, "/before", NULL, NULL, NULL));
  ck_ok(zke_exists(b, "/behind", NULL, NULL, NULL));
  end();
}
