/* test_outbox.c - the outbox of the SQLite extension (shell/extension/outbox.c)
 *
 * Rows that commit with the program's own rows reach the tree once and in
 * order, whichever process wrote them, and whichever dies.  The extension is
 * the shared library that users load.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/shell/sql.h"
#include "test/test.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- connections ---- */

static const char *file;

/* A program's connection, without the extension. */
static sqlite3 *plain(void) {
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(file, &db), SQLITE_OK);
  sqlite3_busy_timeout(db, 10000);
  sqlite3_exec(db, "PRAGMA wal_autocheckpoint=0", NULL, NULL, NULL);
  return db;
}

static sqlite3 *loaded(void) {
  sqlite3 *db = plain();
  sql_load(db);
  return db;
}

static const char *ask(sqlite3 *db, const char *sql) {
  return sql_ask(db, sql, ";", "-");
}

#define expect(db, sql, text) ck_assert_str_eq(ask(db, sql), text)

static void run(sqlite3 *db, const char *sql) {
  char *error = NULL;
  if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
    ck_abort_msg("%s: %s", sql, error);
}

/* A database with the table orders and an outbox, and a connection that has
 * moved all rows. */
static sqlite3 *begin(void) {
  file = test_path("a.db");
  sqlite3 *db = loaded();
  run(db, "CREATE TABLE orders(n INTEGER PRIMARY KEY,t)");
  expect(db, "SELECT zke_outbox()", "1");
  return db;
}

/* The items of the queue "jobs", in order. */
static const char *const items =
    "SELECT group_concat(data,' ')FROM(SELECT CAST(data AS TEXT)AS data FROM "
    "zke_nodes WHERE path LIKE '/queues/jobs/entries/entry-%' ORDER BY path)";
/* A commit moves its rows if no other process is in its way; a call always
 * does. */
static void settle(sqlite3 *db) { expect(db, "SELECT zke_outbox()", "1"); }

static const char *const waiting = "SELECT count(*)FROM zkembed_outbox";

/* ---- sending ---- */

/* Rows sent in a transaction arrive when it commits, or not at all. */
TEST(sending_is_a_part_of_the_transaction) {
  sqlite3 *db = begin();
  run(db, "BEGIN;INSERT INTO orders VALUES(7,'x')");
  expect(db, "SELECT zke_send_push('jobs','one')", "1");
  expect(db, "SELECT zke_send_set('/a/b/c','two')", "2");
  expect(db, "SELECT zke_send_tell('orders')", "3");
  expect(db, "SELECT last_insert_rowid()", "7");
  expect(db, "SELECT zke_exists('/a')", "0");
  run(db, "COMMIT");
  expect(db, items, "one");
  expect(db, "SELECT zke_get('/a/b/c'),zke_version('/a/b/c')", "two|0");
  expect(db, "SELECT zke_version('/tables/orders')", "0");
  run(db, "BEGIN");
  expect(db, "SELECT zke_send_push('jobs','no')", "4");
  run(db, "ROLLBACK;BEGIN;SAVEPOINT s");
  expect(db, "SELECT zke_send_push('jobs','no')", "4");
  run(db, "ROLLBACK TO s");
  expect(db, "SELECT zke_send_push('jobs',x'7400')", "4");
  run(db, "COMMIT");
  expect(db, "SELECT hex(max(data))FROM zke_nodes WHERE path LIKE '%/entry-%'",
         "7400");
  expect(db, waiting, "0");
  sql_close(db);
}

/* Without a transaction each send is its own.  Missing arguments are
 * reported. */
TEST(sending_alone) {
  file = test_path("a.db");
  sqlite3 *db = loaded();
  expect(db, "SELECT zke_send_push('jobs','one')",
         "ZKE_MISUSE: zke_send_push(): the database has no outbox: call "
         "zke_outbox() once, before BEGIN");
  run(db, "BEGIN IMMEDIATE");
  ck_assert(strstr(ask(db, "SELECT zke_outbox()"), "would wait for itself"));
  run(db, "ROLLBACK");
  expect(db, "SELECT zke_outbox()", "1");
  expect(db, "SELECT zke_send_push('jobs','one')", "1");
  expect(db, items, "one");
  expect(db, "SELECT zke_send_set(NULL,1)",
         "NOT NULL constraint failed: zkembed_outbox.path");
  sql_close(db);
}

/* A connection's first call may be inside its transaction. */
TEST(the_first_call_is_a_send) {
  sqlite3 *db = begin(), *other = loaded();
  run(other, "BEGIN IMMEDIATE");
  expect(other, "SELECT zke_send_push('jobs','one')", "1");
  run(other, "COMMIT");
  expect(other, "SELECT zke_exists('/queues/jobs')", "1");
  expect(db, items, "one");
  sql_close(other);
  sql_close(db);
}

/* No row is moved while a query or a transaction of the connection reads, since
 * SQLite would then refuse what it writes. */
TEST(readers_can_write) {
  sqlite3 *db = begin(), *other = loaded();
  sqlite3_stmt *st;
  expect(db, "SELECT zke_tell('orders')", "/tables/orders");
  run(db, "CREATE TABLE t(n);INSERT INTO t VALUES(1),(2)");
  sqlite3_prepare_v2(db, "SELECT n FROM t", -1, &st, NULL);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
    run(db, "INSERT INTO orders(t)VALUES('x')");
    expect(db, "SELECT zke_exists('/queues')", "0");
  }
  sqlite3_finalize(st);
  expect(db, "SELECT zke_version('/tables/orders')", "1");
  run(db, "SELECT zke_untell('orders');BEGIN;SELECT * FROM t");
  expect(db, "SELECT zke_send_push('jobs','one')", "2");
  run(db, "COMMIT");
  run(other, "BEGIN;SELECT * FROM t"); /* its first call */
  expect(other, "SELECT zke_send_push('jobs','two')", "3");
  run(other, "COMMIT");
  settle(db);
  expect(db, items, "one two");
  sql_close(other);
  sql_close(db);
}

/* A guid that the queue already has was sent before. */
TEST(guids_tell_a_second_send_apart) {
  sqlite3 *db = begin();
  run(db, "BEGIN");
  for (int i = 0; i < 3; i++) ask(db, "SELECT zke_send_push('jobs','a','g1')");
  ask(db, "SELECT zke_send_push('jobs','b','g2')");
  run(db, "COMMIT");
  settle(db);
  expect(db, items, "a b");
  expect(db, "SELECT count(*)FROM zkembed_outbox_dead", "0");
  sql_close(db);
}

/* In a transaction of zke_begin(), together with changes of the tree. */
TEST(sending_between_begin_and_commit) {
  sqlite3 *db = begin();
  expect(db, "SELECT zke_begin()", "1");
  run(db, "INSERT INTO orders VALUES(1,'x')");
  run(db,
      "INSERT INTO zkembed_outbox(operation,path,data)"
      "VALUES('push','jobs','one')");
  expect(db, "SELECT zke_commit()", "1");
  expect(db, items, "one");
  expect(db, "SELECT zke_begin()", "1");
  ask(db, "SELECT zke_send_push('jobs','no')");
  expect(db, "SELECT zke_rollback()", "1");
  expect(db, items, "one");
  sql_close(db);
}

/* ---- rows of others ---- */

static void *insert_one(void *arg) {
  sqlite3 *db = plain();
  (void)arg;
  run(db,
      "INSERT INTO zkembed_outbox(operation,path,data)"
      "VALUES('push','jobs','from afar')");
  sql_close(db);
  return NULL;
}

/* A connection that waits moves the row of a program without the extension. */
TEST(waiting_moves_the_rows_of_others) {
  sqlite3 *db = begin();
  pthread_t thread;
  expect(db, "SELECT zke_queue_pop('jobs',0)", "-");
  ck_assert_int_eq(pthread_create(&thread, NULL, insert_one, NULL), 0);
  expect(db, "SELECT CAST(zke_queue_data(zke_queue_pop('jobs',60000))AS TEXT)",
         "from afar");
  pthread_join(thread, NULL);
  sql_close(db);
}

/* More rows than one look moves, in the order of their transactions. */
TEST(many_rows) {
  sqlite3 *db = begin(), *other = plain();
  run(other,
      "WITH RECURSIVE c(i)AS(SELECT 1 UNION ALL SELECT i+1 FROM c WHERE "
      "i<1500)INSERT INTO zkembed_outbox(operation,path,data)SELECT CASE i%50 "
      "WHEN 0 THEN 'set' ELSE 'push' END,CASE i%50 WHEN 0 THEN '/n' ELSE "
      "'jobs' END,i FROM c");
  expect(db, "SELECT zke_outbox()", "1");
  expect(db, waiting, "0");
  expect(db, "SELECT zke_get('/n'),zke_version('/n')", "1500|29");
  expect(db,
         "SELECT count(*),min(CAST(data AS TEXT)=CAST(i AS TEXT))FROM(SELECT "
         "data,(row_number()OVER(ORDER BY path)-1)*50/49+1 AS i FROM zke_nodes "
         "WHERE path LIKE '/queues/jobs/entries/entry-%')",
         "1470|1");
  sql_close(other);
  sql_close(db);
}

/* A refused row is put aside with its reason, and later rows pass. */
TEST(refused_rows_hold_up_nobody) {
  sqlite3 *db = begin(), *other = plain();
  expect(db, "SELECT zke_lock('l')>0", "1");
  expect(db, "SELECT zke_create('/e',NULL,'ephemeral')", "/e");
  run(other,
      "INSERT INTO zkembed_outbox(operation,path,data)VALUES"
      "('set','/ok','1'),('set','nopath','2'),('set','/ok','3'),"
      "('drop','/ok','4'),('push','/locks/l','5'),('push','jobs','6'),"
      "('set','/e/f','7'),('set','/large',zeroblob(2000000)),"
      "('set','/z'||char(0)||'y','8'),('set','/ok','9');"
      "INSERT INTO zkembed_outbox(operation,path,guid)VALUES"
      "('push','jobs',char(10)),('push','jobs','g'||char(0)),"
      "('push','jobs','g')");
  expect(db, "SELECT zke_outbox()", "1");
  expect(db, waiting, "0");
  expect(db, "SELECT CAST(zke_get('/ok')AS TEXT),zke_version('/ok')", "9|2");
  expect(db, "SELECT id,error FROM zkembed_outbox_dead ORDER BY id",
         "2|ZKE_BADARGUMENTS;4|ZKE_UNIMPLEMENTED;5|ZKE_OTHERKIND;"
         "7|ZKE_NOCHILDRENFOREPHEMERALS;8|ZKE_BADARGUMENTS;"
         "9|ZKE_BADARGUMENTS;11|ZKE_BADARGUMENTS;12|ZKE_BADARGUMENTS");
  expect(db,
         "SELECT operation,path,data,sentence FROM zkembed_outbox_dead "
         "WHERE id=2 AND time LIKE '20__-__-__T__:__:__Z'",
         "set|nopath|2|malformed path nopath: it does not begin with /");
  run(other,
      "INSERT INTO zkembed_outbox SELECT id,operation,path,data,guid FROM "
      "zkembed_outbox_dead WHERE id=2");
  expect(db, "SELECT zke_outbox()", "1");
  expect(db, waiting, "0");
  expect(db, items, "6");
  sql_close(other);
  sql_close(db);
}

/* A full queue refuses.  So does a znode that the session may not write. */
TEST(full_queues_and_rights) {
  sqlite3 *db = begin();
  zke *z = test_open(file);
  zke_acl read_only = {ZKE_PERM_READ, "world", "anyone"};
  const zke_acls acls = {1, &read_only};
  ck_ok(zke_create(z, "/mine", "", 0, &acls, ZKE_PERSISTENT, NULL, NULL));
  expect(db, "SELECT zke_queue_push('jobs','0')", "1");
  ck_ok(zke_set(z, "/queues/jobs", "zkembed queue\nlimit 2\n", 22, -1, NULL));
  run(db, "BEGIN");
  ask(db, "SELECT zke_send_push('jobs',column1)FROM(VALUES(1),(2),(3))");
  ask(db, "SELECT zke_send_set('/mine','x')");
  run(db, "COMMIT");
  settle(db);
  expect(db, items, "0 1");
  expect(db, "SELECT data,error FROM zkembed_outbox_dead ORDER BY id",
         "2|ZKE_LIMIT;3|ZKE_LIMIT;x|ZKE_NOAUTH");
  ck_ok(zke_close(z));
  sql_close(db);
}

/* ---- tables ---- */

/* Every way to change a table is reported, also by programs without the
 * extension. */
TEST(tables_tell) {
  static const char *const changes[] = {
      "INSERT INTO w VALUES(1,1)",
      "INSERT INTO w VALUES(2,1),(3,1),(4,1)",
      "REPLACE INTO w VALUES(1,2)",
      "INSERT OR IGNORE INTO w VALUES(9,2)",
      "UPDATE w SET b=3",
      "INSERT INTO w VALUES(1,4)ON CONFLICT DO UPDATE SET b=4",
      "DELETE FROM w WHERE a=2",
      "BEGIN;INSERT INTO w VALUES(5,5);UPDATE w SET b=6;COMMIT",
      "DELETE FROM w"};
  sqlite3 *db = begin(), *other = plain();
  run(db, "CREATE TABLE w(a INTEGER PRIMARY KEY,b)WITHOUT ROWID");
  expect(db, "SELECT zke_tell('W')", "/tables/w");
  expect(db, "SELECT zke_tell('w'),zke_version('/tables/w')", "/tables/w|0");
  for (int i = 0; i < (int)(sizeof changes / sizeof *changes); i++) {
    char version[16];
    run(other, changes[i]);
    expect(db, waiting, "1");
    snprintf(version, sizeof version, "%d", i + 1);
    expect(db, "SELECT zke_outbox()", "1");
    expect(db, "SELECT zke_version('/tables/w')", version);
  }
  run(other, "BEGIN;INSERT INTO w VALUES(1,1);ROLLBACK");
  expect(db, waiting, "0");
  expect(db, "SELECT zke_untell('w'),zke_untell('w')", "1|0");
  run(other, "INSERT INTO w VALUES(1,1)");
  expect(db, waiting, "0");
  sql_close(other);
  sql_close(db);
}

/* Names are quoted; a name of no table is refused. */
TEST(names_of_tables) {
  sqlite3 *db = begin();
  run(db,
      "CREATE TABLE \"a \"\"b'\"(x);CREATE VIEW v AS SELECT 1;"
      "CREATE TABLE \"a/\"(x);CREATE TEMP TABLE t(x)");
  expect(db, "SELECT zke_tell('a \"b''')", "/tables/a \"b'");
  run(db, "INSERT INTO \"a \"\"b'\" VALUES(1)");
  expect(db, "SELECT zke_version('/tables/a \"b''')", "1");
  run(db, "ALTER TABLE \"a \"\"b'\" RENAME TO c;INSERT INTO c VALUES(1)");
  expect(db, "SELECT zke_version('/tables/a \"b''')", "2");
  expect(db, "SELECT zke_untell('c')", "1");
  expect(db, "SELECT count(*)FROM sqlite_schema WHERE type='trigger'", "0");
  static const char *const none[] = {"nothing",        "v", "t",
                                     "zkembed_outbox", "",  "sqlite_schema"};
  for (int i = 0; i < 6; i++) {
    char sql[64], text[96];
    snprintf(sql, sizeof sql, "SELECT zke_tell('%s')", none[i]);
    snprintf(text, sizeof text, "ZKE_NONODE: the database has no table %s",
             none[i]);
    expect(db, sql, text);
  }
  ck_assert(strstr(ask(db, "SELECT zke_tell('a/')"), "ZKE_BADARGUMENTS"));
  ck_assert(strstr(ask(db, "SELECT zke_tell(NULL)"), "ZKE_BADARGUMENTS"));
  expect(db, "SELECT count(*)FROM sqlite_schema WHERE type='trigger'", "0");
  sql_close(db);
}

/* ---- hooks ---- */

static int foreign(void *arg, sqlite3 *db, const char *name, int pages) {
  (void)arg, (void)db, (void)name, (void)pages;
  return SQLITE_OK;
}

/* Each call sets the hook again; a foreign hook is refused. */
TEST(the_hook_is_looked_at) {
  sqlite3 *db = begin();
  run(db, "PRAGMA wal_autocheckpoint=10");
  expect(db, "SELECT zke_exists('/queues')", "0");
  ask(db, "SELECT zke_send_push('jobs','one')");
  expect(db, items, "one");
  sqlite3_wal_hook(db, foreign, db);
  ck_assert(strstr(ask(db, "SELECT zke_exists('/')"),
                   "ZKE_MISUSE: SQLite has "
                   "one WAL hook"));
  expect(db, "SELECT zke_exists('/')", "1");
  ask(db, "SELECT zke_send_push('jobs','two')");
  expect(db, items, "one two");
  sql_close(db);
}

/* While another process has the writers' gate, a commit does not wait for it; a
 * later call moves the rows. */
TEST(the_hook_does_not_wait) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  sqlite3 *db = begin();
  ask(db, "SELECT zke_send_set('/a','one')");
  int gate = open(test_path("a.db-zke/gate"), O_RDWR);
  ck_assert_int_eq(fcntl(gate, F_OFD_SETLK, &lock), 0);
  int64_t before = test_now();
  ask(db, "SELECT zke_send_set('/a','two')");
  ck_assert_int_lt(test_now() - before, test_patience(2000));
  expect(db, waiting, "1");
  close(gate);
  expect(db, "SELECT zke_get('/a')", "two");
  expect(db, waiting, "0");
  sql_close(db);
}

/* ---- deaths ---- */

/* What the children report to the parent after each step. */
static int steps;

static void tell_step(void) {
  if (write(steps, "", 1) != 1) _exit(1);
}

/* A connection's statement, without an assertion: 0, or 1 for an error. */
static int must(sqlite3 *db, const char *sql) {
  return sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK;
}

/* Commit orders and roll some back, each with its row in the outbox. */
static int write_orders(void *context) {
  bool extended = *(const bool *)context;
  sqlite3 *db = extended ? loaded() : plain();
  if (extended) ask(db, "SELECT zke_session()");
  must(db, "PRAGMA synchronous=FULL");
  for (int i = 0;; i++) {
    if (must(db, "BEGIN IMMEDIATE;INSERT INTO orders(t)VALUES('x')")) return 1;
    tell_step();
    if (extended)
      ask(db, "SELECT zke_send_push('jobs',max(n))FROM orders");
    else if (must(db,
                  "INSERT INTO zkembed_outbox(operation,path,data)SELECT "
                  "'push','jobs',max(n)FROM orders"))
      return 1;
    if (i % 7 == 6 && must(db,
                           "INSERT INTO zkembed_outbox(operation,path)"
                           "VALUES('set','wrong')"))
      return 1;
    tell_step();
    if (must(db, i % 3 == 2 ? "ROLLBACK" : "COMMIT")) return 1;
    tell_step();
  }
}

/* Move all rows, forever. */
static int move_orders(void *context) {
  sqlite3 *db = loaded();
  (void)context;
  while (strcmp(ask(db, "SELECT zke_outbox()"), "1") == 0) {
    tell_step();
    while (strcmp(ask(db, waiting), "0") == 0) test_pause();
  }
  return 1;
}

static void kill_it(pid_t pid) {
  ck_assert_int_eq(kill(pid, SIGKILL), 0);
  ck_assert_int_eq(test_child_end(pid), 128 + SIGKILL);
}

/* A writer and a mover are killed after some of their steps, again and again.
 * At the end the queue has each committed order once, in the order of the
 * commits, and no others. */
TEST(processes_are_killed) {
  unsigned seed = test_seed();
  int ends[2];
  char byte;
  sqlite3 *db = begin();
  sql_close(db);
  ck_assert_int_eq(pipe(ends), 0);
  steps = ends[1];
  for (long round = test_sample(3000, 200); round > 0; round--) {
    bool extended = rand_r(&seed) % 2;
    pid_t writer = test_child(write_orders, &extended);
    pid_t mover = rand_r(&seed) % 3 ? test_child(move_orders, NULL) : 0;
    for (int n = rand_r(&seed) % 60; n >= 0; n--)
      ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    bool first = rand_r(&seed) % 2;
    if (mover && first) kill_it(mover);
    kill_it(writer);
    if (mover && !first) kill_it(mover);
  }
  db = loaded();
  expect(db, "SELECT zke_outbox()", "1");
  expect(db, waiting, "0");
  ck_assert_str_ne(ask(db, "SELECT count(*)FROM orders"), "0");
  char all[4096];
  snprintf(all, sizeof all,
           "SELECT(%s)=(SELECT group_concat(n,' ')FROM(SELECT n FROM orders "
           "ORDER BY n))",
           items);
  expect(db, all, "1");
  zke *z = test_open(file);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  sql_close(db);
}
