/* jobs.c - a table of jobs that only the leader in office assigns
 *
 *   jobs DATABASE          the demo: makes DATABASE, starts the other three,
 *                          kills a leader, deposes another one, kills a worker,
 *                          and checks the tables
 *   jobs DATABASE add N    add N jobs
 *   jobs DATABASE leader   a candidate, who assigns jobs to workers
 *   jobs DATABASE worker   does what is assigned to it
 *
 * In the database, beside the tree:
 *
 *   jobs       each job: who does it, by which leader's token, and is it done
 *   assigned   each assignment that ever was: with that token
 *   results    what came of the jobs
 *   /boss      the election (recipes/election.h)
 *   /workers   an ephemeral node for each worker that lives
 *   /news      is set when there is something to do, for those who wait
 *   /results   is set with each result
 *
 * A leader that was stopped for long may be deposed (another program deletes
 * its node, ends its session, its lease runs out) and know nothing of it.  When
 * it goes on it must not assign any more.  So it works on a connection of its
 * own, in a transaction of zke_sql_begin(), and asks zke_claim() first whether
 * its token is in office.  Nobody else can take the office before the commit.
 *
 * A worker stores a result together with the job's end, if the job still is its
 * own: in one step by zke_op_sql().
 */
#define _XOPEN_SOURCE 700 /* posix_spawn, kill */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/election.h"
#include "zkembed.h"

extern char **environ;

enum {
  JOBS = 60,           /* of the demo */
  AT_A_TIME = 4,       /* jobs that a leader assigns in one transaction */
  PATIENCE_MS = 60000, /* so long without any event: something is wrong */
  NOT_MINE = 1000      /* own code: the job was given to another worker */
};

static const char tables[] =
    "CREATE TABLE IF NOT EXISTS jobs(id INTEGER PRIMARY KEY,"
    "what TEXT NOT NULL,worker TEXT,token INTEGER,"
    "done INTEGER NOT NULL DEFAULT 0);"
    "CREATE INDEX IF NOT EXISTS jobs_open ON jobs(worker)WHERE NOT done;"
    "CREATE TABLE IF NOT EXISTS assigned(id INTEGER PRIMARY KEY AUTOINCREMENT,"
    "job INTEGER NOT NULL,worker TEXT NOT NULL,token INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS results(id INTEGER PRIMARY KEY,"
    "job INTEGER NOT NULL,worker TEXT NOT NULL)";

/* Jobs that nobody does: they were never assigned, or the worker has gone. */
#define LOOSE                                    \
  "NOT done AND(worker IS NULL OR worker NOT IN" \
  "(SELECT name FROM zke_tokens WHERE path='/workers'))"

/* ---- small things ---- */

static void give_up(const char *what, const char *why) {
  fprintf(stderr, "jobs: %s: %s\n", what, why);
  exit(1);
}

/* For calls that fail only when the disk is broken, or when somebody has ended
 * our session or deleted our node: then a new process begins anew. */
static void must(int rc, const char *what) {
  if (rc == ZKE_OK) return;
  bool ended =
      rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE || rc == ZKE_NONODE;
  if (!ended) give_up(what, zke_errmsg());
  exit(3);
}

/* For zke_op_sql(): run a text. */
static int run_text(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid;
  return sqlite3_exec(db, context, NULL, NULL, NULL);
}

/* A node that may be there already. */
static void have(zke *z, const char *path) {
  int rc = zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  if (rc != ZKE_NODEEXISTS) must(rc, path);
}

/* Open the database, and make what is missing in it. */
static zke *open_jobs(const char *database, const char *identity) {
  zke *z;
  zke_op op;
  char text[sizeof tables];
  zke_options options = ZKE_INIT(zke_options);
  options.flags = ZKE_OPEN_HOST;
  options.identity = identity;
  options.busy_timeout_ms = PATIENCE_MS;
  must(zke_open(database, &options, &z), "opening");
  memcpy(text, tables, sizeof tables);
  zke_op_sql(&op, run_text, text);
  must(zke_multi(z, &op, 1, NULL), "making the tables");
  have(z, "/workers");
  have(z, "/news");
  have(z, "/results");
  return z;
}

/* A connection of this program's own, of the same SQLite library. */
static sqlite3 *connect_to(zke *z, const char *database) {
  sqlite3 *db;
  if (sqlite3_open(database, &db) != SQLITE_OK)
    give_up(database, sqlite3_errmsg(db));
  must(zke_sql_adopt(z, db), "adopting the connection");
  return db;
}

static void woken(zke *z, int type, int state, const char *path,
                  void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

/* Have the next change of /news, or of who works, end a zke_wait(). */
static void watch(zke *z) {
  must(zke_exists(z, "/news", woken, NULL, NULL), "/news");
  must(zke_children(z, "/workers", woken, NULL, NULL, NULL), "/workers");
}

static void tell_news(zke *z) {
  must(zke_set(z, "/news", "", 0, -1, NULL), "/news");
}

/* ---- new jobs ---- */

/* The row and its wake-up are one step. */
static void add(const char *database, long count) {
  zke *z = open_jobs(database, "add");
  char text[] = "INSERT INTO jobs(what)VALUES('count the sheep')";
  zke_op ops[2];
  zke_op_sql(&ops[0], run_text, text);
  zke_op_set(&ops[1], "/news", "", 0, -1);
  for (long i = 0; i < count; i++) must(zke_multi(z, ops, 2, NULL), "adding");
  must(zke_close(z), "closing");
}

/* ---- the leader ---- */

/* Run one statement, in which ?1 is the token and ?2 the job; returns SQLite's
 * code: SQLITE_ROW with *number_out, SQLITE_DONE, or an error. */
static int step(sqlite3 *db, const char *sql, int64_t token, int64_t job,
                int64_t *number_out) {
  sqlite3_stmt *st;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  if (rc != SQLITE_OK) return rc;
  int count = sqlite3_bind_parameter_count(st);
  if (count > 0) sqlite3_bind_int64(st, 1, token);
  if (count > 1) sqlite3_bind_int64(st, 2, job);
  rc = sqlite3_step(st);
  if (rc == SQLITE_ROW && number_out) *number_out = sqlite3_column_int64(st, 0);
  int end = sqlite3_finalize(st);
  return end == SQLITE_OK ? rc : end;
}

/* Give one job that nobody does to the worker with the fewest. */
static int assign_one(sqlite3 *db, int64_t token, bool *found) {
  int64_t job = 0;
  int rc =
      step(db, "SELECT id FROM jobs WHERE " LOOSE " LIMIT 1", token, 0, &job);
  *found = rc == SQLITE_ROW;
  if (!*found) return rc;
  rc = step(db,
            "UPDATE jobs SET token=?1,worker=(SELECT name FROM zke_tokens t "
            "WHERE path='/workers' ORDER BY(SELECT count(*)FROM jobs j WHERE "
            "j.worker=t.name AND NOT done),name LIMIT 1)WHERE id=?2",
            token, job, NULL);
  if (rc != SQLITE_DONE) return rc;
  return step(db,
              "INSERT INTO assigned(job,worker,token)"
              "SELECT id,worker,?1 FROM jobs WHERE id=?2",
              token, job, NULL);
}

/* Everything that is written between begin and commit is the leader's in
 * office, or nothing is written. */
static int assign_some(sqlite3 *db, int64_t token, bool *more) {
  int64_t workers = 0;
  *more = false;
  int rc = step(db, "SELECT zke_claim('/boss',?1)", token, 0, NULL);
  if (rc != SQLITE_ROW) return rc;
  rc = step(db, "SELECT count(*)FROM zke_tokens WHERE path='/workers'", token,
            0, &workers);
  if (rc != SQLITE_ROW || !workers) return rc;
  for (int i = 0; i < AT_A_TIME; i++) {
    rc = assign_one(db, token, more);
    if (!*more || rc != SQLITE_DONE) return rc;
  }
  return SQLITE_DONE;
}

/* One transaction.  False: fenced, another one leads or will. */
static bool assign(zke *z, sqlite3 *db, int64_t token, bool *more) {
  must(zke_sql_begin(z, db), "beginning");
  int rc = assign_some(db, token, more);
  if (rc == SQLITE_ROW || rc == SQLITE_DONE) {
    must(zke_sql_commit(z, db), "committing");
    return true;
  }
  fprintf(stderr, "jobs: leader %d: %s\n", (int)getpid(), sqlite3_errmsg(db));
  must(zke_sql_rollback(z, db), "rolling back");
  return false;
}

/* Assign as long as we lead.  The assignments are told after their commit; if
 * we die in between, the next leader tells them. */
static void lead(zke *z, sqlite3 *db, int64_t token) {
  for (;;) {
    bool more = true;
    watch(z);
    while (more) {
      if (!assign(z, db, token, &more)) return;
      tell_news(z);
      watch(z);
    }
    must(zke_wait(z, ZKE_FOREVER), "waiting for news");
  }
}

static void be_leader(const char *database) {
  zke *z = open_jobs(database, "leader");
  sqlite3 *db = connect_to(z, database);
  for (;;) {
    zke_election *e;
    must(zke_election_new(z, "/boss", NULL, &e), "/boss");
    int rc = zke_election_lead(e, ZKE_FOREVER);
    if (rc == ZKE_OK) lead(z, db, zke_election_token(e));
    if (rc != ZKE_LOST) must(rc, "/boss");
    zke_election_free(e);
  }
}

/* ---- a worker ---- */

typedef struct task {
  const char *worker;
  int64_t job;
} task;

/* The job's end and its result, if it is still ours. */
static int finish(sqlite3 *db, int64_t zxid, void *context) {
  const task *t = context;
  (void)zxid;
  static const char *const sql[] = {
      "UPDATE jobs SET done=1 WHERE id=?1 AND worker=?2 AND NOT done",
      "INSERT INTO results(job,worker)VALUES(?1,?2)"};
  for (int i = 0; i < 2; i++) {
    sqlite3_stmt *st;
    int rc = sqlite3_prepare_v2(db, sql[i], -1, &st, NULL);
    if (rc != SQLITE_OK) return rc;
    sqlite3_bind_int64(st, 1, t->job);
    sqlite3_bind_text(st, 2, t->worker, -1, SQLITE_STATIC);
    sqlite3_step(st);
    rc = sqlite3_finalize(st);
    if (rc != SQLITE_OK) return rc;
    if (sqlite3_changes(db) != 1)
      return zke_fail(NOT_MINE, "job %lld is another's", (long long)t->job);
  }
  return SQLITE_OK;
}

/* A job of ours, or false. */
static bool find_task(sqlite3 *db, task *t) {
  sqlite3_stmt *st;
  if (sqlite3_prepare_v2(db,
                         "SELECT id FROM jobs WHERE worker=? AND NOT done "
                         "LIMIT 1",
                         -1, &st, NULL) != SQLITE_OK)
    give_up("looking for work", sqlite3_errmsg(db));
  sqlite3_bind_text(st, 1, t->worker, -1, SQLITE_STATIC);
  bool found = sqlite3_step(st) == SQLITE_ROW;
  if (found) t->job = sqlite3_column_int64(st, 0);
  if (sqlite3_finalize(st) != SQLITE_OK)
    give_up("looking for work", sqlite3_errmsg(db));
  return found;
}

/* The result, and what wakes those who wait for it.  A job that another one has
 * got meanwhile is left to that one. */
static void do_task(zke *z, task *t) {
  zke_op ops[2];
  zke_op_sql(&ops[0], finish, t);
  zke_op_set(&ops[1], "/results", "", 0, -1);
  int rc = zke_multi(z, ops, 2, NULL);
  if (rc != NOT_MINE) must(rc, "storing a result");
}

static void be_worker(const char *database) {
  zke *z = open_jobs(database, "worker");
  sqlite3 *db = connect_to(z, database);
  char *node;
  must(zke_create(z, "/workers/w-", "", 0, ZKE_OPEN_ACL,
                  ZKE_EPHEMERAL_SEQUENTIAL, &node, NULL),
       "/workers");
  task t = {.worker = strrchr(node, '/') + 1};
  for (;;) {
    watch(z);
    must(zke_exists(z, node, woken, NULL, NULL), node);
    while (find_task(db, &t)) do_task(z, &t);
    must(zke_wait(z, ZKE_FOREVER), "waiting for work");
  }
}

/* ---- the demo ---- */

static pid_t start(const char *program, const char *database, const char *role,
                   const char *count) {
  char *arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)database,
                       (char *)(uintptr_t)role, (char *)(uintptr_t)count, NULL};
  pid_t pid;
  int error = posix_spawnp(&pid, program, NULL, NULL, arguments, environ);
  if (error) give_up(program, strerror(error));
  return pid;
}

static void end(pid_t pid) {
  int status;
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
}

static int64_t number(sqlite3 *db, const char *sql) {
  int64_t n = -1;
  if (step(db, sql, 0, 0, &n) != SQLITE_ROW) give_up(sql, sqlite3_errmsg(db));
  return n;
}

/* Wait until so many jobs have a result. */
static void await_results(zke *z, sqlite3 *db, int64_t count) {
  for (;;) {
    must(zke_exists(z, "/results", woken, NULL, NULL), "/results");
    if (number(db, "SELECT count(*)FROM results") >= count) return;
    must(zke_wait(z, zke_now(z) + PATIENCE_MS), "waiting for results");
  }
}

/* Depose the leader that is in office: delete its node. */
static void depose(zke *z) {
  zke_strings *names;
  char path[200];
  must(zke_children(z, "/boss", NULL, NULL, &names, NULL), "/boss");
  const char *first = NULL;
  for (int i = 0; i < names->count; i++) {
    const char *name = names->data[i], *number = strrchr(name, '-');
    if (number && (!first || strcmp(number, strrchr(first, '-')) < 0))
      first = name;
  }
  snprintf(path, sizeof path, "/boss/%s", first ? first : "none");
  int rc = zke_delete(z, path, -1);
  if (rc != ZKE_NONODE) must(rc, path);
  zke_free(names);
}

static bool check_tables(sqlite3 *db) {
  int64_t results = number(db, "SELECT count(*)FROM results");
  int64_t twice = number(db, "SELECT count(*)-count(DISTINCT job)FROM results");
  int64_t late = number(db,
                        "SELECT count(*)FROM assigned a JOIN assigned b "
                        "ON b.id=a.id+1 WHERE b.token<a.token");
  int64_t leaders = number(db, "SELECT count(DISTINCT token)FROM assigned");
  printf("%s: each job has one result\n",
         results == 2 * JOBS && !twice ? "yes" : "NO");
  printf("%s: nobody assigned after a later leader\n", !late ? "yes" : "NO");
  return results == 2 * JOBS && !twice && !late && leaders > 1;
}

static bool demo(const char *program, const char *database) {
  char count[16];
  zke *z = open_jobs(database, "demo");
  sqlite3 *db = connect_to(z, database);
  pid_t leader[3], worker[3];
  snprintf(count, sizeof count, "%d", JOBS);
  for (int i = 0; i < 3; i++) {
    leader[i] = start(program, database, "leader", NULL);
    worker[i] = start(program, database, "worker", NULL);
  }
  pid_t adder = start(program, database, "add", count);
  await_results(z, db, JOBS / 3);
  depose(z);
  end(worker[0]);
  await_results(z, db, JOBS);
  end(adder);
  end(leader[0]);
  depose(z);
  adder = start(program, database, "add", count);
  await_results(z, db, 2 * JOBS);
  for (int i = 1; i < 3; i++) end(leader[i]), end(worker[i]);
  end(adder);
  bool good = check_tables(db);
  sqlite3_close(db);
  must(zke_close(z), "closing");
  return good;
}

int main(int argc, char **argv) {
  if (argc == 2) return demo(argv[0], argv[1]) ? 0 : 1;
  if (argc == 4 && strcmp(argv[2], "add") == 0)
    add(argv[1], strtol(argv[3], NULL, 10));
  else if (argc == 3 && strcmp(argv[2], "leader") == 0)
    be_leader(argv[1]);
  else if (argc == 3 && strcmp(argv[2], "worker") == 0)
    be_worker(argv[1]);
  else
    give_up("usage", "jobs DATABASE [add N | leader | worker]");
  return 0;
}
