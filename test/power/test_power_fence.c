/* test_power_fence.c - power cuts while rows are written behind a fence
 *
 * P8 for the promises of fence.h: an acknowledged row is there after the cut, a
 * fence is there completely or not at all, and a row's last writer can no
 * longer write it.  The engine's connection and the program's own write rows.
 * One process with two sessions works on the disk that forgets (powervfs.h).
 * Before every n-th event it forks a child, which knows the same.  The child
 * opens a state that a cut could leave, under a new boot id, and continues with
 * it.
 *
 * The other recipes meet power cuts in the simulated host (test/sim/rounds.h).
 * Its handles have a chroot, and a fence's path does not depend on one.
 *
 *   SEED=n   the first seed, printed
 *   EVERY=n  cut before each n-th event on the disk; 0: after each change
 *   CUTS=n   so many cuts, with further seeds
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "powervfs.h"
#include "recipes/fence.h"
#include "recipes/lock.h"
#include "test/program.h"
#include "test/test.h"

enum {
  IMAGES = 4, /* disks inspected for each cut */
  NAME = 24,
  CELLS = 3,
  CHANGES = 40 /* of a run */
};

/* ---- expected state ---- */

/* A table with one row: 0 if it has no fence. */
typedef struct cell {
  int value, next; /* acknowledged; being written, or the same */
  int64_t token;   /* of the value */
} cell;

typedef struct tally { /* shared with the children */
  long cuts, images, violations;
  long kept, lost;     /* unsynced changes */
  long known, noticed; /* inspected cells; wrong ones */
} tally;

static struct {
  uint64_t random, seed;
  long every, event;
  bool quiet;
  int durability;
  char base[PATH_MAX], database[PATH_MAX];
  zke_os os;
  int64_t clock; /* ms */
  int boot;
  zke *z[2];
  cell cell[CELLS];
  int values;
  int64_t highest; /* token given out */
} run;

static tally *sum;

static uint64_t chance(uint64_t limit) {
  return power_random(&run.random, limit);
}

__attribute__((format(printf, 1, 2))) static void found(const char *format,
                                                        ...) {
  va_list ap;
  __atomic_fetch_add(&sum->violations, 1, __ATOMIC_RELAXED);
  if (run.quiet) return;
  printf("SEED=%llu, cut at event %ld: ", (unsigned long long)run.seed,
         run.event);
  va_start(ap, format);
  vprintf(format, ap);
  va_end(ap);
  printf("\n");
}

/* A call that must succeed, wherever the power fails; otherwise the child
 * exits. */
static void demand(int rc, const char *what) {
  if (rc == ZKE_OK) return;
  found("%s: %s: %s", what, zke_error_name(rc), zke_errmsg());
  fflush(stdout);
  if (run.boot) _exit(0);
  ck_abort_msg("%s: %s", what, zke_error_name(rc));
}

/* ---- the machine ---- */

static int64_t os_clock(void *c, int which) {
  (void)c;
  return ((which == ZKE_CLOCK_REALTIME ? 1700000000000 : 0) + ++run.clock) *
         1000000;
}

static int os_random(void *c, void *buffer, size_t size) {
  (void)c;
  for (size_t i = 0; i < size; i++) ((char *)buffer)[i] = (char)chance(256);
  return 0;
}

static int os_boot_id(void *c, char *buffer, size_t size) {
  (void)c;
  return snprintf(buffer, size, "boot-%d", run.boot);
}

/* The table of system calls; the clock, random bytes and boot id are the run's
 * own.
 */
static void make_machine(void) {
  power_machine(&run.os);
  run.os.clock = os_clock;
  run.os.random = os_random;
  run.os.boot_id = os_boot_id;
}

/* Open the database on the simulated disk. */
static zke *start(void) {
  zke *z = NULL;
  zke_options o = {.size = sizeof o,
                   .vfs = "unix-power",
                   .os = &run.os,
                   .identity = "power",
                   .durability = run.durability,
                   .container_ms = 1 << 30};
  demand(zke_open(run.database, &o, &z), "open");
  return z;
}

/* ---- tables ---- */

/* What to do with the table, or what was read of it. */
typedef struct fenced {
  const char *sql; /* to run */
  char table[NAME], path[NAME];
  int triggers, value;
  int64_t token;
} fenced;

static fenced name_fenced(int number) {
  fenced f = {.sql = NULL};
  snprintf(f.table, sizeof f.table, "fenced_%d", number);
  snprintf(f.path, sizeof f.path, "/fence-%d", number);
  return f;
}

/* A zke_sql_fn: run the SQL of a `fenced`. */
static int run_fenced(sqlite3 *db, int64_t zxid, void *context) {
  const fenced *f = context;
  (void)zxid;
  return sqlite3_exec(db, f->sql, NULL, NULL, NULL);
}

static int change_fenced(zke *z, fenced *f, const char *sql) {
  zke_op op;
  f->sql = sql;
  zke_op_sql(&op, run_fenced, f);
  return zke_multi(z, &op, 1, NULL);
}

/* Make the table and its row, without a fence, and then fence it. */
static int make_fenced(zke *z, fenced *f) {
  char sql[200];
  snprintf(sql, sizeof sql,
           "CREATE TABLE IF NOT EXISTS %s(id INTEGER PRIMARY KEY,value,fence);"
           "INSERT OR REPLACE INTO %s VALUES(1,0,0)",
           f->table, f->table);
  int rc = zke_fence_remove(z, f->table);
  if (rc == ZKE_OK || rc == ZKE_NONODE) rc = change_fenced(z, f, sql);
  return rc == ZKE_OK ? zke_fence_set(z, f->table, f->path, NULL) : rc;
}

static int write_fenced(zke *z, fenced *f, int to, int64_t token) {
  char sql[100];
  snprintf(sql, sizeof sql, "UPDATE %s SET value=%d,fence=%lld", f->table, to,
           (long long)token);
  return change_fenced(z, f, sql);
}

/* Write the row on a connection of the program's own.  It starts with a setting
 * that does not sync, as SQLite can have by default: adopting it must correct
 * that, unless nothing must be durable. */
static int write_as_guest(zke *z, const fenced *f, int to, int64_t token) {
  sqlite3 *db = NULL;
  char sql[100];
  snprintf(sql, sizeof sql, "UPDATE %s SET value=%d,fence=%lld", f->table, to,
           (long long)token);
  int flags = SQLITE_OPEN_READWRITE;
  if (sqlite3_open_v2(run.database, &db, flags, "unix-power") != SQLITE_OK)
    found("%s: %s", run.database, sqlite3_errmsg(db));
  sqlite3_exec(db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
  int rc = zke_sql_adopt(z, db);
  if (rc == ZKE_OK) rc = zke_sql_begin(z, db);
  if (rc == ZKE_OK) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
      found("%s: %s", sql, sqlite3_errmsg(db));
    rc = zke_sql_commit(z, db);
  }
  sqlite3_close(db);
  return rc;
}

/* The holder writes on the engine's connection, or on its own. */
static int write_as_holder(zke *z, fenced *f, int to, int64_t token) {
  return to % 2 ? write_as_guest(z, f, to, token)
                : write_fenced(z, f, to, token);
}

/* Write the row as the lock's holder, and make the fence if there was none.
 * The value 0 removes the fence. */
static int change_fence(zke *z, int number, int from, int to) {
  fenced f = name_fenced(number);
  zke_lock *lock = NULL;
  if (!to) return zke_fence_remove(z, f.table);
  int rc = from ? ZKE_OK : make_fenced(z, &f);
  if (rc == ZKE_OK) rc = zke_lock_new(z, f.path, NULL, &lock);
  if (rc == ZKE_OK) rc = zke_lock_try(lock);
  if (rc == ZKE_OK) rc = write_as_holder(z, &f, to, zke_lock_token(lock));
  if (rc == ZKE_OK) rc = zke_lock_release(lock);
  zke_lock_free(lock);
  return rc;
}

/* Read a row of numbers; false if there is none. */
static bool read_numbers(sqlite3 *db, const char *sql, int64_t number[2]) {
  sqlite3_stmt *st = NULL;
  bool row = sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
             sqlite3_step(st) == SQLITE_ROW;
  for (int i = 0; row && i < 2; i++) number[i] = sqlite3_column_int64(st, i);
  sqlite3_finalize(st);
  return row;
}

/* A zke_sql_fn: a table's triggers, and its row if there are some. */
static int read_table(sqlite3 *db, int64_t zxid, void *context) {
  fenced *f = context;
  char sql[100];
  int64_t number[2] = {0};
  (void)zxid;
  snprintf(sql, sizeof sql,
           "SELECT count(*) FROM sqlite_schema WHERE type='trigger' AND "
           "tbl_name='%s'",
           f->table);
  if (!read_numbers(db, sql, number)) return SQLITE_ERROR;
  f->triggers = (int)number[0];
  if (!f->triggers) return SQLITE_OK;
  snprintf(sql, sizeof sql, "SELECT value,fence FROM %s", f->table);
  if (!read_numbers(db, sql, number)) return SQLITE_ERROR;
  f->value = (int)number[0];
  f->token = number[1];
  return SQLITE_OK;
}

/* An unfenced table has no value; no fence is incomplete. */
static int read_fence(zke *z, int number, int *value, int64_t *token) {
  fenced f = name_fenced(number);
  zke_op op;
  zke_op_result result = {0};
  zke_op_sql(&op, read_table, &f);
  int rc = zke_multi_read(z, &op, 1, &result);
  if (rc == ZKE_OK) rc = result.rc;
  zke_results_clear(&result, 1);
  if (rc == ZKE_OK && f.triggers % 2) found("half a fence of %s", f.table);
  *value = f.value;
  *token = f.token;
  return rc;
}

/* The row's writer no longer holds the lock: it is refused, both before another
 * holds the lock and while it does. */
static void write_late(zke *z, int number, int value) {
  fenced f = name_fenced(number);
  zke_lock *lock = NULL;
  int64_t token = 0;
  demand(read_fence(z, number, &value, &token), f.table);
  demand(zke_lock_new(z, f.path, NULL, &lock), "a fence's lock");
  for (int held = 0; value && held < 2; held++) {
    if (held) demand(zke_lock_try(lock), "a fence's lock");
    int rc = write_fenced(z, &f, value, token);
    if (rc == ZKE_OK || !strstr(zke_errmsg(), "fenced: that token"))
      found("%s, written by a former holder: %s", f.table, zke_error_name(rc));
  }
  zke_lock_free(lock);
}

/* A row's next value: one that it never had, or none. */
static int next_value(int value) {
  return value && chance(2) ? 0 : ++run.values;
}

/* Change a cell once, and note its new state; the zxid rises. */
static void change_cell(zke *z, int number, cell *c) {
  int64_t token = 0;
  int value = 0, next = c->next = next_value(c->value);
  demand(change_fence(z, number, c->value, next), "a change");
  demand(read_fence(z, number, &value, &token), "a look at it");
  if (value != next || (value && token <= run.highest))
    found("table %d: made %d, is %d; zxid %lld after %lld", number, next, value,
          (long long)token, (long long)run.highest);
  if (token > run.highest) run.highest = token;
  *c = (cell){next, next, token};
}

/* ---- after a cut ---- */

static void complain(void *context, const char *sentence) {
  (void)context;
  found("zke_check: %s", sentence);
}

static void look_at_sessions(zke *z) {
  zke_session_list *sessions = NULL;
  demand(zke_sessions(z, -1, &sessions), "sessions");
  if (sessions->count != 1) found("%d sessions of before", sessions->count - 1);
  zke_free(sessions);
}

/* Is it the acknowledged state, with its zxid, or the one being written, with a
 * later zxid? */
static bool may_be(const cell *c, int value, int64_t token) {
  if (value == c->value && (value == 0 || token == c->token)) return true;
  return c->next != c->value && value == c->next &&
         (value == 0 || token > c->token);
}

/* The cell has a permitted value, its last writer is refused, and it can be
 * changed. */
static void look_at_cell(zke *z, int number) {
  const cell *c = &run.cell[number];
  int64_t token = 0;
  int value = 0;
  demand(read_fence(z, number, &value, &token), "a look at a table");
  if (c->value) sum->known++;
  if (!may_be(c, value, token)) {
    sum->noticed++;
    found("table %d was %d (%lld), became %d, is %d (%lld)", number, c->value,
          (long long)c->token, c->next, value, (long long)token);
  }
  write_late(z, number, value);
  cell now = {.value = value};
  for (int i = 0; i < 2; i++) change_cell(z, number, &now);
}

/* ---- cuts ---- */

static void ignore(power_event event) { (void)event; }

/* The child's work. */
static void look(int image) {
  power_loss loss = {0};
  char directory[PATH_MAX];
  alarm((unsigned)test_patience(60));
  run.boot = 1;
  power_lose_side();
  run.random = run.seed * 1000003 + (uint64_t)(run.event * 31 + image);
  snprintf(directory, sizeof directory, "%.3900s/%d", run.base, (int)getpid());
  if (mkdir(directory, 0700) != 0) abort();
  power_image(directory, (power_style)chance(POWER_STYLES), &run.random, &loss);
  __atomic_fetch_add(&sum->images, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&sum->kept, loss.kept, __ATOMIC_RELAXED);
  __atomic_fetch_add(&sum->lost, loss.lost, __ATOMIC_RELAXED);
  snprintf(run.database, sizeof run.database, "%.4000s/a.db", directory);
  power_begin(directory, ignore);
  zke *z = start();
  demand(zke_check(z, complain, NULL), "check");
  look_at_sessions(z);
  for (int i = 0; i < CELLS; i++) look_at_cell(z, i);
  demand(zke_check(z, complain, NULL), "check at the end");
  demand(zke_close(z), "close");
  test_remove(directory);
}

static void *look_apart(void *image) {
  look(*(int *)image);
  return NULL;
}

/* The child's work on its own thread: the forked thread may be in a transaction
 * of the program's connection, in which the library refuses the work. */
static void look_by_a_thread(int image) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, look_apart, &image) != 0) abort();
  pthread_join(thread, NULL);
}

/* The power fails here: children inspect disks that this can leave. */
static void cut(void) {
  sum->cuts++;
  fflush(stdout);
  for (int image = 0; image < IMAGES; image++) {
    int status = 0;
    pid_t pid = _Fork(); /* in the middle of a call: no atfork handlers */
    if (pid < 0) abort();
    if (pid == 0) {
      look_by_a_thread(image);
      fflush(stdout);
      _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0) {
      if (errno != EINTR) abort();
    }
    if (status) found("the child ended as 0x%x", (unsigned)status);
  }
}

static void at_event(power_event event) {
  if (event == POWER_PUBLISH || !run.z[1]) return;
  run.event++;
  if (run.every && (run.event + (long)run.seed) % run.every == 0) cut();
}

/* ---- the work ---- */

/* Both sessions change tables until the power fails. */
static void work(void) {
  zke *z = run.z[0] = start();
  demand(zke_open_session(z, NULL, &run.z[1]), "a second session");
  for (int i = 0; i < CHANGES; i++) {
    int number = (int)chance(CELLS);
    change_cell(run.z[chance(2)], number, &run.cell[number]);
    if (run.every == 0) cut();
  }
  demand(zke_close(run.z[1]), "close");
  demand(zke_close(z), "close");
}

/* One run; counts add up in *sum. */
static void run_once(uint64_t seed, long every, int durability, bool quiet) {
  char directory[PATH_MAX];
  memset(&run, 0, sizeof run);
  run.seed = run.random = seed;
  run.every = every;
  run.durability = durability;
  run.quiet = quiet;
  snprintf(run.base, sizeof run.base, "%s", test_path("cuts"));
  mkdir(run.base, 0700);
  snprintf(directory, sizeof directory, "%.4000s/work", run.base);
  if (mkdir(directory, 0700) != 0) abort();
  snprintf(run.database, sizeof run.database, "%.4000s/a.db", directory);
  make_machine();
  power_begin(directory, at_event);
  work();
  test_remove(directory);
}

static void begin_tally(void) {
  sum = mmap(NULL, sizeof *sum, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(sum != MAP_FAILED);
}

/* ---- the tests ---- */

LIMIT(getenv("CUTS") ? 0 : 120);

/* Cuts at any moment. */
TEST(what_was_acknowledged_survives) {
  uint64_t seed = (uint64_t)program_setting("SEED", 1);
  long cuts = program_setting("CUTS", test_sample(60, 20 / test_stride(2)));
  long every = program_setting("EVERY", 40 * test_stride(2));
  begin_tally();
  printf("fences: SEED=%llu EVERY=%ld\n", (unsigned long long)seed, every);
  do run_once(seed++, every, ZKE_DURABLE_BY_KIND, false);
  while (sum->cuts < cuts);
  printf(
      "%ld cuts, %ld disks looked at; changes not synced: %ld kept, %ld "
      "lost; violations: %ld\n",
      sum->cuts, sum->images, sum->kept, sum->lost, sum->violations);
  ck_assert_int_eq(sum->violations, 0);
  ck_assert_int_gt(sum->lost, 0);
  ck_assert_int_gt(sum->kept, 0);
  ck_assert_int_gt(sum->known, 0);
}

/* With zke_sql_adopt() and zke_sql_begin(), what zke_sql_commit() acknowledges
 * is on the disk immediately after. */
TEST(rows_of_the_programs_own_connection_survive) {
  begin_tally();
  run_once(1, 0, ZKE_DURABLE_BY_KIND, false);
  ck_assert_int_eq(sum->violations, 0);
  ck_assert_int_gt(sum->known, 20);
}

/* Without syncs, the same test finds losses when the power fails before a
 * checkpoint syncs. */
TEST_LOOP(finds_losses_without_durability, 0, POWER_LONG) {
  begin_tally();
  for (uint64_t seed = 5; seed < 15 && !sum->noticed; seed++)
    run_once(seed, 0, ZKE_DURABLE_NONE, true);
  ck_assert_int_gt(sum->cuts, 3);
  ck_assert_int_gt(sum->noticed, 0);
}
