/* test_crash.c - deaths and failed syncs that the simulated host does not have
 *
 * P2, P8, P11.  A process is killed at each call of a creation inside another
 * program's file, and inside a sync while others read the file, keep its
 * session or can only read.  The sync of the program's own commit fails, or
 * that of the process that opens the file next.  The simulation (test/sim) has
 * all other deaths and failed syncs.
 */
#define _GNU_SOURCE
#include "test/power/powervfs.h"
#include "test/engine/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a creation in another program's file ---- */

/* A worker opens the file as another program's, and dies at its n-th call, or
 * completes. */
static bool dies_opening(const char *file, int n) {
  char said[512] = "";
  size_t used = 0;
  ssize_t got;
  test_worker w = test_spawn("talk", NULL);
  test_tell(&w, "arm %d\nopen %s host\nexit 0", n, file);
  while ((got = read(w.out, said + used, sizeof said - 1 - used)) > 0)
    used += (size_t)got;
  int status = test_wait(&w);
  if (status == 128 + SIGKILL) return true;
  ck_assert_msg(status == 0 && strstr(said, "\nok"), "%d: %s", status, said);
  return false;
}

/* P2, design.md 8: the next process to open the file finishes an interrupted
 * creation, and the program's own tables are untouched. */
TEST(killed_while_creating_the_tables) {
  char name[32];
  int n = 1;
  for (bool died = true; died; n += (int)test_stride(6)) {
    zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_HOST};
    sqlite3 *db = NULL;
    zke_stat stat;
    zke *z;
    snprintf(name, sizeof name, "new-%d.db", n);
    const char *file = test_path(name);
    ck_assert_int_eq(sqlite3_open(file, &db), SQLITE_OK);
    must(db,
         "PRAGMA user_version=7;CREATE TABLE orders(a)"
         ";INSERT INTO orders VALUES(1)");
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
    died = dies_opening(file, n);
    ck_ok(zke_open(file, &o, &z));
    ck_ok(zke_check(z, NULL, NULL));
    stat = test_stat(z, "/zookeeper");
    ck_assert_int_eq(stat.numChildren, 2);
    ck_ok(zke_close(z));
    ck_assert_int_eq(test_number(file, "SELECT count(*)FROM orders"), 1);
    ck_assert_int_eq(test_number(file, "PRAGMA user_version"), 7);
  }
  printf("create the tables: %d points\n", n - 1);
  ck_assert_int_gt(n, 10);
}

/* ---- a process that dies inside a sync ---- */

/* Other parties when the database is opened again. */
enum {
  DEATH_KEPT = 1,     /* a child that keeps the dead process's session alive */
  DEATH_SEEN = 2,     /* another program reads, and recovers the log */
  DEATH_READONLY = 4, /* the next handle is read-only */
  DEATHS = 8
};

static bool dying; /* in the process that will be killed */

static void die_in_sync(power_event event) {
  if (dying && event == POWER_SYNC) raise(SIGKILL);
}

/* Keep the session alive in a child until the pipe's writers are gone. */
static void keep_alive(zke *z, const int *until) {
  int fd;
  char end;
  if (zke_keepalive_fd(z, &fd) != ZKE_OK) _exit(1);
  if (fork() != 0) return;
  close(until[1]);
  if (read(until[0], &end, 1) != 0) _exit(1);
  _exit(0);
}

/* In a child process: /said is acknowledged, then the process is killed after
 * /unsaid was written and before it is synced. */
static void die_deciding(const char *file, int death, const int *until) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  zke *z;
  power_begin(test_path("power"), die_in_sync);
  if (zke_open(file, &o, &z) != ZKE_OK || create(z, "/said", 0) != ZKE_OK)
    _exit(1);
  if (death & DEATH_KEPT) keep_alive(z, until);
  dying = true;
  create(z, "/unsaid", 0);
  _exit(2);
}

/* A program that uses SQLite only, and reads. */
static sqlite3 *foreign_reader(const char *file) {
  sqlite3 *db = NULL;
  ck_assert_int_eq(
      sqlite3_open_v2(file, &db, SQLITE_OPEN_READWRITE, "unix-power"),
      SQLITE_OK);
  must(db, "SELECT * FROM zkembed_node");
  return db;
}

/* The database after a power cut that loses all that was not synced. */
static const char *disk_after_cut(void) {
  uint64_t random = 1;
  power_loss loss = {0};
  const char *directory = test_path("cut");
  ck_assert_int_eq(mkdir(directory, 0700), 0);
  power_image(directory, POWER_NONE, &random, &loss);
  return test_path("cut/a.db");
}

/* P8: a process is killed inside the sync of its commit.  What the next process
 * to open the database reads survives a power cut, whichever process has read
 * it or keeps the dead process's session meanwhile. */
TEST_LOOP(killed_in_the_sync, 0, DEATHS) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  sqlite3 *reader = NULL;
  zke *z;
  int until[2];
  ck_assert_int_eq(mkdir(test_path("power"), 0700), 0);
  const char *file = test_path("power/a.db");
  ck_assert_int_eq(pipe(until), 0);
  pid_t pid = fork();
  if (pid == 0) die_deciding(file, _i, until);
  ck_assert_int_eq(test_child_end(pid), 128 + SIGKILL);
  power_begin(test_path("power"), NULL);
  power_doubt("a.db-wal");
  if (_i & DEATH_SEEN) reader = foreign_reader(file);
  if (_i & DEATH_READONLY) o.flags = ZKE_OPEN_READONLY;
  ck_ok(zke_open(file, &o, &z));
  ck_ok(see(z, "/said"));
  ck_ok(see(z, "/unsaid"));
  zke *after = test_open(disk_after_cut());
  ck_ok(see(after, "/said"));
  ck_ok(see(after, "/unsaid"));
  ck_ok(zke_close(after));
  ck_ok(zke_close(z));
  sqlite3_close(reader);
  close(until[0]);
  close(until[1]);
}

/* In a child process: the program commits a row by its own connection.  The
 * process is killed in the sync, or the sync fails and it exits. */
static void die_committing(const char *file, bool failing) {
  zke_options o = {
      .size = sizeof o, .flags = ZKE_OPEN_HOST, .vfs = "unix-power"};
  const char *const made = "CREATE TABLE orders(id)";
  const char *const added = "INSERT INTO orders VALUES(1)";
  sqlite3 *db = NULL;
  zke *z;
  power_begin(test_path("power"), die_in_sync);
  if (zke_open(file, &o, &z) != ZKE_OK ||
      sqlite3_open_v2(file, &db, SQLITE_OPEN_READWRITE, "unix-power") ||
      zke_sql_adopt(z, db) != ZKE_OK || zke_sql_begin(z, db) != ZKE_OK ||
      sqlite3_exec(db, made, NULL, NULL, NULL) ||
      zke_sql_commit(z, db) != ZKE_OK || zke_sql_begin(z, db) != ZKE_OK ||
      sqlite3_exec(db, added, NULL, NULL, NULL))
    _exit(1);
  if (failing) power_fail("a.db-wal", 1);
  dying = !failing;
  _exit(zke_sql_commit(z, db) == ZKE_CONNECTIONLOSS ? 2 : 3);
}

/* P2, P8: the program's own commit raises no zxid.  Still, what the next
 * process to open the database reads of it survives a power cut: after a death
 * in its sync (0), and after a failed sync (1). */
TEST_LOOP(process_ends_in_a_guests_sync, 0, 2) {
  ck_assert_int_eq(mkdir(test_path("power"), 0700), 0);
  const char *file = test_path("power/a.db");
  pid_t pid = fork();
  if (pid == 0) die_committing(file, _i);
  ck_assert_int_eq(test_child_end(pid), _i ? 2 : 128 + SIGKILL);
  power_begin(test_path("power"), NULL);
  power_doubt("a.db-wal");
  open_as(file, .vfs = "unix-power");
  ck_assert_int_eq(test_number(file, "SELECT count(*)FROM orders"), 1);
  const char *cut = disk_after_cut();
  ck_assert_int_eq(test_number(cut, "SELECT count(*)FROM orders"), 1);
}

/* ---- syncs of the log that fail ---- */

/* Assert that the node would survive a power cut now. */
static void node_survives(const char *path) {
  zke *z = test_open(disk_after_cut());
  ck_ok(see(z, path));
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}

/* A database on the simulated disk, fully synced, with an ephemeral node. */
static zke *open_on_power(power_hook hook) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  ck_assert_int_eq(mkdir(test_path("power"), 0700), 0);
  zke *z = test_open(test_path("power/a.db"));
  ck_ok(zke_close(z));
  power_begin(test_path("power"), hook);
  ck_ok(zke_open(test_path("power/a.db"), &o, &z));
  make_as(z, "/e", ZKE_EPHEMERAL);
  return z;
}

/* P8, P2: ephemeral changes are not synced by themselves, and the sync of a
 * checkpoint fails.  The kernel then regards them as written, and its next sync
 * succeeds.  A durable change that is acknowledged afterwards survives: the log
 * is recovered before, immediately or, if that fails too (more failures), by
 * the change itself. */
TEST_LOOP(a_failed_sync_in_a_checkpoint_loses_nothing, 1, 4) {
  static char data[65536];
  zke *z = open_on_power(NULL);
  power_fail("a.db-wal", _i);
  for (int i = 0; i < 200 && power_failed() == 0; i++)
    ck_ok(zke_set(z, "/e", data, sizeof data, -1, NULL));
  ck_assert_int_gt(power_failed(), 0);
  if (create(z, "/said", 0) != ZKE_OK) make(z, "/said");
  ck_assert_int_eq(power_failed(), _i);
  node_survives("/said");
}

/* The same if the last close fails, and the process that opens the file next
 * makes the change. */
TEST(a_failed_sync_at_the_last_close_loses_nothing) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  zke *z = open_on_power(NULL);
  power_fail("a.db-wal", 1);
  ck_ok(zke_close(z));
  ck_assert_int_eq(power_failed(), 1);
  ck_ok(zke_open(test_path("power/a.db"), &o, &z));
  make(z, "/said");
  node_survives("/said");
}

/* P8: a process is killed inside the sync of its commit.  The next process to
 * open the database cannot sync the log, and is refused.  The one after it sees
 * the commit, which stays. */
TEST(opening_after_one_that_could_not_sync) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  zke *z = NULL;
  ck_assert_int_eq(mkdir(test_path("power"), 0700), 0);
  const char *file = test_path("power/a.db");
  pid_t pid = fork();
  if (pid == 0) die_deciding(file, 0, NULL);
  ck_assert_int_eq(test_child_end(pid), 128 + SIGKILL);
  power_begin(test_path("power"), NULL);
  power_doubt("a.db-wal");
  power_fail("a.db-wal", 1);
  ck_rc(zke_open(file, &o, &z), ZKE_SYSTEMERROR);
  ck_says("syncing the log");
  ck_ok(zke_open(file, &o, &z));
  ck_ok(see(z, "/unsaid"));
  node_survives("/unsaid");
}

/* P8: a process leaves a complete commit in the log that it could not sync, and
 * another dies while it writes the header of the WAL-index, so that an open
 * store has to recover.  It syncs the log before it shows the commit.  If that
 * fails (1), it does not trust the log, but moves it into the database; it used
 * to trust the next sync. */
TEST_LOOP(recovery_by_an_open_store, 0, 2) {
  struct stat log;
  const char *db = test_path("a.db");
  test_worker w = test_spawn("talk", NULL), other = test_spawn("talk", NULL);
  test_ask(&w, "open %s", db);
  test_ask(&other, "open %s", db);
  test_ask(&other, "failsync 0 1");
  test_say(&other, "create /unsaid x 0");
  ck_assert_int_eq(atoi(test_line(&other)), ZKE_CONNECTIONLOSS);
  test_kill(&other, SIGKILL);
  test_ask(&w, "syncs");
  int fd = open(test_path("a.db-shm"), O_RDWR | O_CLOEXEC);
  ck_assert_int_eq(pwrite(fd, "torn", 4, 40), 4); /* a checksum */
  ck_assert_int_eq(close(fd), 0);
  if (_i) {
    test_ask(&w, "failsync 0 1");
    test_say(&w, "exists /unsaid");
    ck_assert_int_ne(atoi(test_line(&w)), ZKE_OK);
  }
  test_ask(&w, "exists /unsaid");
  ck_assert_int_ge(atoi(test_ask(&w, "syncs")), 1);
  ck_assert_int_eq(stat(test_path("a.db-wal"), &log), 0);
  ck_assert(_i ? log.st_size == 0 : log.st_size > 0);
  test_ask(&w, "close");
  ck_assert_int_eq(test_wait(&w), 0);
}
