/* host.c - the program's own tables: fairness, and the cost of fencing and of a
 * history
 *
 * Fairness: a process updates a row of its own table on its own connection,
 * while writers of the engine make synced changes.  It begins its transactions
 * by BEGIN IMMEDIATE or by zke_sql_begin(), either without pause or, like most
 * programs, with one between them.  It measures each one's updates in the same
 * time, and the longest wait.
 *
 * Fencing: an update in a transaction of many, without a fence, with a trigger
 * that reads zke_tokens for each row, and with zke_claim() once at the
 * beginning.  Then with that trigger while others wait for the lock; SQLite
 * reads their znodes on its way to the holder's.
 *
 * History: the processor time of a lock and unlock in a database with a
 * history, and in one without.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "zkembed.h"
#include "bench.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/lock.h"

enum {
  RIVALS = 4,
  UPDATES = 1000,
  THINK_US = 1000,
  TURNS = 1000,       /* lock and unlock in a block */
  HISTORY_ROWS = 1000 /* less than a block adds: old ones are deleted, too */
};

static const char own_table[] =
    "CREATE TABLE IF NOT EXISTS own(id INTEGER PRIMARY KEY,n INTEGER,"
    "token INTEGER);INSERT OR IGNORE INTO own VALUES(1,0,0)";

static void run_sql(sqlite3 *db, const char *sql) {
  if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
    die("%s: %s", sql, sqlite3_errmsg(db));
}

static zke *host_open(const char *place, char file[PATH_BYTES]) {
  char name[64];
  zke *z;
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_HOST};
  o.busy_timeout_ms = 60000;
  snprintf(name, sizeof name, "%.50s.db", place);
  file_in(file, PATH_BYTES, name);
  must(zke_open(file, &o, &z), "zke_open");
  return z;
}

/* A connection of the program, with its table. */
static sqlite3 *host_connect(zke *z, const char *file) {
  sqlite3 *db;
  if (sqlite3_open(file, &db) != SQLITE_OK)
    die("%s: %s", file, sqlite3_errmsg(db));
  must(zke_sql_adopt(z, db), "zke_sql_adopt");
  sqlite3_busy_timeout(db, 60000);
  run_sql(db, own_table);
  return db;
}

/* ---- a writer without pause ---- */

/* How it begins a transaction. */
enum { WAY_SET, WAY_PLAIN, WAY_LINE };

typedef struct writer {
  zke *z;
  sqlite3 *db;
  int way;
} writer;

static void write_once(const writer *w) {
  static const char update[] = "UPDATE own SET n=n+1";
  if (w->way == WAY_SET) {
    must(zke_set(w->z, "/n", data, DATA_BYTES, -1, NULL), "zke_set");
  } else if (w->way == WAY_PLAIN) {
    run_sql(w->db, "BEGIN IMMEDIATE");
    run_sql(w->db, update);
    run_sql(w->db, "COMMIT");
  } else {
    must(zke_sql_begin(w->z, w->db), "zke_sql_begin");
    run_sql(w->db, update);
    must(zke_sql_commit(w->z, w->db), "zke_sql_commit");
  }
}

/* PLACE WAY MS THINK_US: how many changes, and the longest, ns. */
void role_host(char **argv) {
  char file[PATH_BYTES];
  writer w = {.z = host_open(argv[0], file), .way = atoi(argv[1])};
  int64_t count = 0, longest = 0, at;
  if (w.way == WAY_SET) {
    int rc = zke_create(w.z, "/n", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                        NULL);
    if (rc != ZKE_NODEEXISTS) must(rc, "zke_create");
  } else {
    w.db = host_connect(w.z, file);
  }
  say(0);
  await_command();
  int64_t end = now_ns() + atoll(argv[2]) * 1000000, think = atoll(argv[3]);
  for (int64_t begun = now_ns(); begun < end; begun = now_ns(), count++) {
    write_once(&w);
    at = now_ns();
    if (at - begun > longest) longest = at - begun;
    if (think) sleep_us(think);
  }
  say(count);
  say(longest);
  await_command();
  sqlite3_close(w.db);
  zke_close(w.z);
}

static void compare_way(int way, int think, const char *kind) {
  worker w[RIVALS + 1];
  char how[12], ms[12], us[12], name[80];
  int64_t count[RIVALS + 1], longest[RIVALS + 1], most = 0;
  double others = 0;
  snprintf(ms, sizeof ms, "%d", times(10000, 500));
  for (int i = 0; i <= RIVALS; i++) {
    snprintf(how, sizeof how, "%d", i ? WAY_SET : way);
    snprintf(us, sizeof us, "%d", i ? 0 : think);
    w[i] = worker_start("host", run.cpu[i % 2], kind, how, ms, us, NULL);
    worker_ready(&w[i]);
  }
  for (int i = 0; i <= RIVALS; i++) worker_go(&w[i], 'g');
  for (int i = 0; i <= RIVALS; i++) {
    count[i] = worker_word(&w[i]);
    longest[i] = worker_word(&w[i]);
    if (i) others += (double)count[i] / RIVALS;
    if (i && longest[i] > most) most = longest[i];
  }
  for (int i = 0; i <= RIVALS; i++) worker_go(&w[i], 'e');
  for (int i = 0; i <= RIVALS; i++) worker_end(&w[i]);
  snprintf(name, sizeof name, "%s, updates", kind);
  report_one(name, RIVALS, "zkembed", "", (double)count[0]);
  snprintf(name, sizeof name, "%s, longest wait", kind);
  report_one(name, RIVALS, "zkembed", "ms", (double)longest[0] / 1e6);
  snprintf(name, sizeof name, "%s, each other's changes", kind);
  report_one(name, RIVALS, "zkembed", "", others);
  snprintf(name, sizeof name, "%s, their longest wait", kind);
  report_one(name, RIVALS, "zkembed", "ms", (double)most / 1e6);
}

/* ---- the cost of an update ---- */

/* ns for each update of one transaction, without its commit. */
static double update_many(zke *z, sqlite3 *db, const char *first) {
  sqlite3_stmt *st;
  must(zke_sql_begin(z, db), "zke_sql_begin");
  if (sqlite3_prepare_v2(db, "UPDATE own SET n=n+1 WHERE id=1", -1, &st,
                         NULL) != SQLITE_OK)
    die("%s", sqlite3_errmsg(db));
  int64_t begun = now_ns();
  if (first) run_sql(db, first);
  for (int i = 0; i < UPDATES; i++) {
    if (sqlite3_step(st) != SQLITE_DONE) die("%s", sqlite3_errmsg(db));
    sqlite3_reset(st);
  }
  double took = (double)(now_ns() - begun) / UPDATES;
  sqlite3_finalize(st);
  must(zke_sql_commit(z, db), "zke_sql_commit");
  return took;
}

/* A znode in the line of "/fence", named as by the recipes: names begin with
 * random digits, so a holder's can be anywhere among the others'. */
static void stand_in_line(zke *z, unsigned digits, zke_stat *stat) {
  char path[80];
  snprintf(path, sizeof path,
           "/fence/_c_%08x-0000-4000-8000-000000000000-lock-", digits);
  must(zke_create(z, path, NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                  NULL, stat),
       "zke_create");
}

/* Get the lock of "/fence", and put its token into the row. */
static int64_t hold_fence(zke *z, sqlite3 *db) {
  zke_stat stat;
  char sql[80];
  must(zke_create(z, "/fence", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                  NULL),
       "zke_create");
  stand_in_line(z, 0x80000000u, &stat);
  snprintf(sql, sizeof sql, "UPDATE own SET token=%lld", (long long)stat.czxid);
  run_sql(db, sql);
  return stat.czxid;
}

/* With the trigger; only the number of waiters changes. */
static void cost_of_waiters(zke *z, sqlite3 *db) {
  unsigned random = 1;
  int waiting = 0;
  for (int count = 1; count <= 1000; count *= 10) {
    char name[40];
    samples s = {0};
    for (; waiting < count; waiting++)
      stand_in_line(z, (unsigned)rand_r(&random) * 2u, NULL);
    for (int i = 0; i < times(20, 2); i++)
      add(&s, update_many(z, db, NULL) / 1e3);
    snprintf(name, sizeof name, "update, trigger, %d wait", count);
    report(name, UPDATES, "zkembed", "us", &s, NULL, NULL);
    forget(&s);
  }
}

static void cost_of_fence(void) {
  enum { KINDS = 3 };
  static const char *const names[KINDS] = {"update, no fence", "update, claim",
                                           "update, trigger"};
  char file[PATH_BYTES], claim[80];
  zke *z = host_open("host-fence", file);
  sqlite3 *db = host_connect(z, file);
  snprintf(claim, sizeof claim, "SELECT zke_claim('/fence',%lld)",
           (long long)hold_fence(z, db));
  for (int kind = 0; kind < KINDS; kind++) {
    samples s = {0};
    if (kind == 2)
      run_sql(db,
              "CREATE TRIGGER fence BEFORE UPDATE ON own WHEN NOT EXISTS"
              "(SELECT 1 FROM zke_tokens WHERE path='/fence' AND "
              "token=NEW.token AND instr(name,'-__READ__')=0)BEGIN SELECT "
              "RAISE(ABORT,'fenced');END");
    for (int i = 0; i < times(200, 5); i++)
      add(&s, update_many(z, db, kind == 1 ? claim : NULL) / 1e3);
    report(names[kind], UPDATES, "zkembed", "us", &s, NULL, NULL);
    forget(&s);
  }
  cost_of_waiters(z, db);
  sqlite3_close(db);
  zke_close(z);
}

/* ---- the cost of a history ---- */

/* Acquire and release many times: us of processor time for each. */
static double lock_many(zke *z, zke_lock *lock) {
  int64_t begun = own_cpu_ns();
  for (int i = 0; i < TURNS; i++) {
    must(zke_lock_acquire(lock, zke_now(z) + 60000), "zke_lock_acquire");
    must(zke_lock_release(lock), "zke_lock_release");
  }
  return (double)(own_cpu_ns() - begun) / TURNS / 1e3;
}

/* Blocks with and without a history alternate.  Two neighbours give a ratio. */
static void cost_of_history(void) {
  enum { WITHOUT, WITH, SIDES };
  static const char *const names[SIDES] = {"lock + unlock, CPU",
                                           "lock + unlock, CPU, history"};
  char file[PATH_BYTES];
  zke *z[SIDES];
  zke_lock *lock[SIDES];
  samples took[SIDES] = {{0}}, ratio = {0};
  for (int side = 0; side < SIDES; side++) {
    z[side] = host_open(side == WITH ? "history" : "no-history", file);
    must(zke_lock_new(z[side], "/lock", NULL, &lock[side]), "zke_lock_new");
  }
  must(zke_history_keep(z[WITH], HISTORY_ROWS, 0), "zke_history_keep");
  for (int side = 0; side < SIDES; side++) lock_many(z[side], lock[side]);
  for (int round = 0; round < times(31, 3); round++) {
    double us[SIDES];
    for (int turn = 0; turn < SIDES; turn++) {
      int side = in_turn(round, turn, SIDES);
      us[side] = lock_many(z[side], lock[side]);
      add(&took[side], us[side]);
    }
    add(&ratio, us[WITH] / us[WITHOUT]);
  }
  for (int side = 0; side < SIDES; side++) {
    report(names[side], TURNS, "zkembed", "us", &took[side], NULL, NULL);
    forget(&took[side]);
    zke_lock_free(lock[side]);
    zke_close(z[side]);
  }
  report("history, to without", TURNS, "zkembed", "", &ratio, NULL, NULL);
  forget(&ratio);
}

void part_host(void) {
  compare_way(WAY_PLAIN, 0, "BEGIN IMMEDIATE");
  compare_way(WAY_PLAIN, THINK_US, "BEGIN IMMEDIATE, 1 ms");
  compare_way(WAY_LINE, 0, "zke_sql_begin");
  compare_way(WAY_LINE, THINK_US, "zke_sql_begin, 1 ms");
  cost_of_fence();
  cost_of_history();
}
