/* test_host.c - the program's own tables in the same database, and its own SQL
 * in the same transaction
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/seam.h"
#include "test/engine/calls.h"

/* ---- a database of the program's ---- */

/* A program's database, with its own application_id and version. */
static const char *make_shop(void) {
  const char *path = test_path("shop.db");
  sqlite3 *db = plain_open(path);
  must(db,
       "PRAGMA application_id=77;PRAGMA user_version=5;"
       "CREATE TABLE orders(id INTEGER PRIMARY KEY,what TEXT UNIQUE);"
       "CREATE TABLE parts(owner INTEGER REFERENCES orders(id) "
       "DEFERRABLE INITIALLY DEFERRED);"
       "INSERT INTO orders VALUES(1,'first')");
  sqlite3_close(db);
  return path;
}

/* The first column of the first row, as a number; -1: no row. */
static int64_t number_of(sqlite3 *db, const char *text) {
  sqlite3_stmt *st = NULL;
  int64_t n = -1;
  int rc = sqlite3_prepare_v2(db, text, -1, &st, NULL);
  ck_assert_msg(rc == SQLITE_OK, "%s: %s", text, sqlite3_errmsg(db));
  if (sqlite3_step(st) == SQLITE_ROW) n = sqlite3_column_int64(st, 0);
  sqlite3_finalize(st);
  return n;
}

static zke *open_flags(const char *path, unsigned flags) {
  return open_as(path, .flags = flags);
}

/* A handle on the shop, with our tables in it, and its path. */
static const char *shop;
static zke *open_shop(unsigned flags) {
  shop = make_shop();
  return open_flags(shop, ZKE_OPEN_HOST | flags);
}

/* ---- the tables in it ---- */

/* zkembed.h, "The program's own data": the program's tables and its header are
 * unchanged, and once zkembed's tables are there no flag is needed. */
TEST(tables_are_made_beside_the_programs) {
  zke *z = open_shop(0);
  make(z, "/a");
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  ck_assert_int_eq(test_number(shop, "PRAGMA application_id"), 77);
  ck_assert_int_eq(test_number(shop, "PRAGMA user_version"), 5);
  ck_assert_int_eq(test_number(shop, "SELECT count(*)FROM orders"), 1);
  z = test_open(shop);
  ck_ok(see(z, "/a"));
  ck_ok(zke_close(z));
  z = open_flags(shop, ZKE_OPEN_READONLY);
  ck_ok(see(z, "/a"));
}

/* A new file also belongs to the program: its header is not ours. */
TEST(a_new_database_is_the_programs) {
  const char *path = test_path("new.db");
  zke *z = open_flags(path, ZKE_OPEN_HOST);
  make(z, "/a");
  ck_ok(zke_close(z));
  ck_assert_int_eq(test_number(path, "PRAGMA application_id"), 0);
  ck_assert_int_eq(test_number(path, "PRAGMA user_version"), 0);
  z = test_open(path);
  ck_ok(see(z, "/a"));
}

/* P11: without the flag nothing is created in a program's database; a read-only
 * handle creates nothing even with it. */
TEST(without_the_flag_it_is_refused) {
  zke *z;
  zke_options options = {.size = sizeof options,
                         .flags = ZKE_OPEN_HOST | ZKE_OPEN_READONLY};
  shop = make_shop();
  ck_rc(zke_open(shop, NULL, &z), ZKE_NOTADB);
  ck_says("ZKE_OPEN_HOST");
  ck_rc(zke_open(shop, &options, &z), ZKE_NOTADB);
  ck_assert_int_eq(test_number(shop,
                               "SELECT count(*)FROM sqlite_schema WHERE "
                               "name LIKE 'zke%'"),
                   0);
}

/* The database has no side files, and its header says that it has no log. */
static void is_untouched(const char *path) {
  static const char *const suffixes[] = {"-wal", "-shm", "-journal", "-zke"};
  unsigned char head[20];
  char name[300];
  for (int i = 0; i < 4; i++) {
    snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
    ck_assert_msg(access(name, F_OK) != 0, "%s is there", name);
  }
  FILE *f = fopen(path, "r");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fread(head, 1, sizeof head, f), sizeof head);
  fclose(f);
  ck_assert_int_eq(head[18], 1);
  ck_assert_int_eq(head[19], 1);
}

/* A file that cannot hold the tables is refused with a sentence, and left
 * alone: its journal mode is unchanged, and it gets no side files. */
TEST(what_cannot_hold_the_tables_is_refused) {
  static const char *const bad[][2] = {
      {"PRAGMA encoding='UTF-16';CREATE TABLE t(a)", "UTF-16"},
      {"CREATE TABLE zkembed_node(a)", "already exists"},
      {"CREATE VIEW zke_nodes AS SELECT 1", "already exists"},
      {"CREATE TABLE ZKE_mine(a)", "table ZKE_mine already exists"}};
  zke_options options = {.size = sizeof options, .flags = ZKE_OPEN_HOST};
  for (int i = 0; i < 4; i++) {
    char name[16];
    snprintf(name, sizeof name, "bad%d.db", i);
    const char *path = test_path(name);
    sqlite3 *db = plain_open(path);
    must(db, bad[i][0]);
    sqlite3_close(db);
    zke *z;
    ck_rc(zke_open(path, &options, &z), ZKE_NOTADB);
    ck_says(bad[i][1]);
    is_untouched(path);
    ck_assert_int_eq(test_number(path, "SELECT count(*)FROM sqlite_schema"), 1);
  }
}

/* Undo the creation of the tables once, before its first statement is done. */
static int undo_creation(unsigned what, void *context, void *statement,
                         void *text) {
  static bool done;
  (void)what, (void)statement;
  if (done || !strstr(text, "CREATE TABLE zkembed_")) return 0;
  done = true;
  must(context, "ROLLBACK");
  return 0;
}

static int trace_creation(sqlite3 *db, char **error, const void *routines) {
  (void)error, (void)routines;
  return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, undo_creation, db);
}

/* Create the tables once, just before another handle checks whether it can. */
static zke *winner;
static int come_first(unsigned what, void *context, void *statement,
                      void *text) {
  static bool done;
  (void)what, (void)context, (void)statement;
  if (done || strcmp(text, "PRAGMA encoding") != 0) return 0;
  done = true;
  winner = open_flags(shop, ZKE_OPEN_HOST);
  return 0;
}

static int trace_question(sqlite3 *db, char **error, const void *routines) {
  (void)error, (void)routines;
  return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, come_first, NULL);
}

/* Of two handles that create the tables at the same time one is first; the
 * other does not take the tables for the program's. */
TEST(two_make_the_tables_at_once) {
  void (*extension)(void) = (void (*)(void))trace_question;
  shop = make_shop();
  ck_assert_int_eq(sqlite3_auto_extension(extension), SQLITE_OK);
  zke *second = open_flags(shop, ZKE_OPEN_HOST);
  sqlite3_cancel_auto_extension(extension);
  ck_assert_ptr_nonnull(winner);
  make(winner, "/a");
  ck_ok(see(second, "/a"));
}

/* If SQLite itself undoes the creation of the tables, as it may without memory,
 * no table stays in the program's database. */
TEST(an_undone_creation_leaves_nothing) {
  zke_options options = {.size = sizeof options, .flags = ZKE_OPEN_HOST};
  zke *z;
  shop = make_shop();
  void (*extension)(void) = (void (*)(void))trace_creation;
  ck_assert_int_eq(sqlite3_auto_extension(extension), SQLITE_OK);
  ck_rc(zke_open(shop, &options, &z), ZKE_NOMEM);
  sqlite3_cancel_auto_extension(extension);
  ck_assert_int_eq(test_number(shop,
                               "SELECT count(*)FROM sqlite_schema WHERE "
                               "name LIKE 'zke%'"),
                   0);
  ck_ok(zke_close(open_flags(shop, ZKE_OPEN_HOST)));
}

static int write_outbox(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  return sqlite3_exec(db, "UPDATE orders SET id=id", NULL, NULL, NULL);
}

/* A program's outbox is not refused.  Anyone may write to it, and it is removed
 * with the tables, including its triggers; but a trigger of the program that
 * uses it prevents that. */
TEST(the_outbox_goes_with_the_tables) {
  zke *z;
  zke_op op;
  shop = make_shop();
  sqlite3 *db = plain_open(shop);
  must(db,
       "CREATE TABLE zkembed_outbox(id INTEGER PRIMARY KEY AUTOINCREMENT,path);"
       "CREATE TABLE zkembed_outbox_dead(id);"
       "CREATE INDEX zkembed_outbox_tell ON zkembed_outbox(path);"
       "CREATE TRIGGER \"zkembed_outbox_a \"\"b\" AFTER UPDATE ON orders "
       "BEGIN INSERT INTO zkembed_outbox(path)VALUES('x');END");
  z = open_flags(shop, ZKE_OPEN_HOST);
  zke_op_sql(&op, write_outbox, NULL);
  ck_ok(zke_multi(z, &op, 1, NULL));
  ck_assert_int_eq(number_of(db, "SELECT count(*)FROM zkembed_outbox"),
                   number_of(db, "SELECT count(*)FROM orders"));
  must(db,
       "CREATE TRIGGER own AFTER DELETE ON orders BEGIN DELETE FROM "
       "zkembed_outbox;END");
  ck_rc(zke_remove_tables(z), ZKE_NOTEMPTY);
  must(db, "DROP TRIGGER own");
  ck_ok(zke_remove_tables(z));
  ck_ok(zke_close(z));
  ck_assert_int_eq(
      number_of(db, "SELECT count(*)FROM sqlite_schema WHERE sql LIKE '%zke%'"),
      0);
}

static int own_hook(void *arg, sqlite3 *db, const char *name, int pages) {
  (void)arg, (void)db, (void)name, (void)pages;
  return SQLITE_OK;
}

/* A program that only writes its own tables does not make the log grow
 * endlessly, even if it has set its own WAL hook. */
TEST(the_programs_commits_shorten_the_log) {
  zke *z = open_shop(0);
  sqlite3 *db = plain_open(shop);
  struct stat log;
  ck_ok(zke_sql_adopt(z, db));
  must(db, "CREATE TABLE large(data)");
  sqlite3_wal_hook(db, own_hook, NULL);
  for (int i = 0; i < 50; i++) {
    ck_ok(zke_sql_begin(z, db));
    must(db, "INSERT INTO large VALUES(zeroblob(400000))");
    ck_ok(zke_sql_commit(z, db));
  }
  ck_assert_int_eq(stat(test_path("shop.db-wal"), &log), 0);
  ck_assert_int_lt(log.st_size, 30 * 400000);
}

/* P11: a file of a later version; a table of that name that is not ours. */
TEST(another_format_is_refused) {
  zke *z = open_shop(0);
  ck_ok(zke_close(z));
  sqlite3 *db = plain_open(shop);
  must(db, "UPDATE zkembed_meta SET format=1000");
  ck_rc(zke_open(shop, NULL, &z), ZKE_NEWERFORMAT);
  must(db, "UPDATE zkembed_meta SET format=3");
  ck_rc(zke_open(shop, NULL, &z), ZKE_NOTADB);
  ck_says("older");
  must(db, "UPDATE zkembed_meta SET format=-1");
  ck_rc(zke_open(shop, NULL, &z), ZKE_NOTADB);
}

/* A program may take over a file that had only our tables by giving it an
 * application_id: the tables show what it is. */
TEST(a_file_of_ours_may_become_the_programs) {
  const char *path = test_path("ours.db");
  zke *z = test_open(path);
  make(z, "/a");
  ck_ok(zke_close(z));
  sqlite3 *db = plain_open(path);
  must(db, "PRAGMA application_id=99;PRAGMA user_version=1");
  sqlite3_close(db);
  z = test_open(path);
  ck_ok(see(z, "/a"));
}

/* Other page sizes, and a file that returns free pages. */
TEST_LOOP(page_sizes, 0, 3) {
  static const char *const kinds[] = {
      "PRAGMA page_size=512;PRAGMA auto_vacuum=FULL;CREATE TABLE t(a)",
      "PRAGMA page_size=65536;CREATE TABLE t(a)",
      "PRAGMA auto_vacuum=INCREMENTAL;CREATE TABLE t(a)"};
  static char large[20000];
  const char *path = test_path("pages.db");
  sqlite3 *db = plain_open(path);
  must(db, kinds[_i]);
  sqlite3_close(db);
  zke *z = open_flags(path, ZKE_OPEN_HOST);
  for (int i = 0; i < 50; i++) {
    ck_ok(zke_create(z, "/n-", large, (int)sizeof large, ZKE_OPEN_ACL,
                     ZKE_PERSISTENT_SEQUENTIAL, NULL, NULL));
  }
  for (int i = 0; i < 40; i++) {
    char name[32];
    snprintf(name, sizeof name, "/n-%010d", i);
    ck_ok(zke_delete(z, name, -1));
  }
  ck_ok(zke_compact(z, zke_now(z) + 5000));
}

static void remove_in_callback(zke *z, int type, int state, const char *path,
                               void *context) {
  (void)type, (void)state, (void)path;
  *(int *)context = zke_remove_tables(z);
}

/* zke_remove_tables(): the program's database is as before; anything that still
 * uses the tables prevents it; a later tree uses no number again. */
TEST(tables_are_removed) {
  zke *z = open_shop(0), *other;
  zke_stat before;
  ck_ok(
      zke_create(z, "/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, &before));
  other = test_open(shop);
  ck_rc(zke_remove_tables(z), ZKE_NOTEMPTY);
  ck_says("sessions");
  ck_ok(zke_close(other));
  other = test_session(z, NULL);
  ck_rc(zke_remove_tables(z), ZKE_NOTEMPTY);
  ck_ok(zke_close(other));
  sqlite3 *db = plain_open(shop);
  must(db,
       "CREATE TRIGGER fence BEFORE UPDATE ON orders WHEN NOT EXISTS(SELECT 1 "
       "FROM zke_tokens)BEGIN SELECT RAISE(ABORT,'no');END");
  ck_rc(zke_remove_tables(z), ZKE_NOTEMPTY);
  ck_says("trigger");
  must(db, "DROP TRIGGER fence");
  int rc = ZKE_OK;
  ck_ok(zke_exists(z, "/a", remove_in_callback, &rc, NULL));
  ck_ok(change(z, "/a"));
  ck_ok(zke_dispatch(z, NULL));
  ck_rc(rc, ZKE_MISUSE);
  ck_says("zke_remove_tables() from a callback");
  ck_ok(see(z, "/a"));
  ck_ok(zke_history_keep(z, 10, 0));
  ck_ok(zke_sql_adopt(z, db));
  ck_assert_int_eq(plain_run(db, "SELECT zke_claim('/a',1)"), SQLITE_ERROR);
  ck_assert_str_eq(sqlite3_errmsg(db), "fenced: that token does not hold /a");
  ck_ok(zke_remove_tables(z));
  ck_rc(see(z, "/a"), ZKE_REPLACED);
  ck_ok(zke_close(z));
  ck_assert_int_eq(number_of(db,
                             "SELECT count(*)FROM sqlite_schema WHERE "
                             "name LIKE 'zke%'"),
                   0);
  ck_assert_int_eq(number_of(db, "SELECT count(*)FROM orders"), 1);
  ck_assert_int_eq(plain_run(db, "SELECT zke_claim('/a',1)"), SQLITE_ERROR);
  sqlite3_close(db);
  ck_rc(zke_open(shop, NULL, &z), ZKE_NOTADB);
  zke_stat after;
  z = open_flags(shop, ZKE_OPEN_HOST);
  ck_ok(zke_create(z, "/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, &after));
  ck_assert_int_gt(after.czxid, before.czxid);
}

/* The tables of a file that has only ours are not removed. */
TEST(tables_of_an_own_file_stay) {
  zke *z = test_open(test_path("own.db"));
  ck_rc(zke_remove_tables(z), ZKE_BADARGUMENTS);
  make(z, "/a");
  ck_ok(zke_close(z));
  z = test_open(":memory:");
  ck_rc(zke_remove_tables(z), ZKE_BADARGUMENTS);
}

/* ---- SQL in a change ---- */

/* The SQL of a function, and its results. */
typedef struct job {
  const char *sql;
  int code;        /* its result if the SQL has succeeded */
  const char *why; /* the sentence for zke_fail(), or NULL */
  int64_t zxid;
  int calls, result; /* of the SQL */
} job;

static int work(sqlite3 *db, int64_t zxid, void *context) {
  job *j = context;
  j->calls++;
  j->zxid = zxid;
  j->result = j->sql ? plain_run(db, j->sql) : SQLITE_OK;
  if (j->why) return zke_fail(j->code, "%s", j->why);
  return j->code ? j->code : j->result;
}

/* A multi of one piece of SQL and the creation of a znode. */
static int both(zke *z, job *j, const char *path) {
  zke_op ops[2];
  zke_op_sql(&ops[0], work, j);
  zke_op_create(&ops[1], path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  return zke_multi(z, ops, 2, NULL);
}

/* A multi of one piece of SQL. */
static int alone(zke *z, zke_sql_fn fn, void *context) {
  zke_op op;
  zke_op_sql(&op, fn, context);
  return zke_multi(z, &op, 1, NULL);
}

static int64_t orders(const char *path) {
  return test_number(path, "SELECT count(*)FROM orders");
}

/* zke_op_sql(): row and znode appear together, with one zxid; a session that is
 * told of the znode finds the row. */
TEST(row_and_znode_come_together) {
  zke *z = open_shop(0);
  job j = {.sql = "INSERT INTO orders(what)VALUES('second')"};
  ck_ok(both(z, &j, "/o"));
  ck_assert_int_eq(j.calls, 1);
  ck_assert_int_eq(j.zxid, test_stat(z, "/o").czxid);
  ck_assert_int_eq(orders(shop), 2);
}

/* Neither appears if the znode is refused, before the SQL or after it. */
TEST_LOOP(neither_comes_where_the_znode_is_refused, 0, 2) {
  zke *z = open_shop(0);
  job j = {.sql = "INSERT INTO orders(what)VALUES('second')"};
  zke_op ops[2];
  zke_op_result results[2];
  zke_op_sql(&ops[_i], work, &j);
  zke_op_delete(&ops[1 - _i], "/none", -1);
  ck_rc(zke_multi(z, ops, 2, results), ZKE_NONODE);
  ck_assert_int_eq(j.calls, 1 - _i);
  ck_assert_int_eq(results[1 - _i].rc, ZKE_NONODE);
  ck_assert_int_eq(results[_i].rc, _i ? ZKE_RUNTIMEINCONSISTENCY : ZKE_OK);
  ck_assert_int_eq(orders(shop), 1);
}

/* A function's own code becomes the call's, with its sentence or SQLite's; it
 * cannot return the library's own codes. */
TEST(a_refusal_has_the_functions_code) {
  zke *z = open_shop(0);
  static const struct {
    const char *sql, *why;
    int code, result;
    const char *says;
  } cases[] = {
      {"INSERT INTO orders(what)VALUES('first')", NULL, 0,
       SQLITE_CONSTRAINT_UNIQUE, "UNIQUE constraint failed"},
      {"SELECT * FROM missing", NULL, 0, SQLITE_ERROR, "no such table"},
      {NULL, NULL, 4711, 4711, "4711"},
      {NULL, "sold out", ZKE_LIMIT, ZKE_LIMIT, "sold out"},
      {NULL, "gone", ZKE_NONODE, ZKE_NONODE, "gone"},
      {NULL, NULL, -5000, -5000, "-5000"},
      {NULL, "what", ZKE_CONNECTIONLOSS, ZKE_SQL, "what"},
      {NULL, NULL, ZKE_CORRUPT, ZKE_SQL, "-213"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    job j = {.sql = cases[i].sql, .code = cases[i].code, .why = cases[i].why};
    zke_op ops[3];
    zke_op_result results[3];
    zke_op_create(&ops[0], "/o", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
    zke_op_sql(&ops[1], work, &j);
    zke_op_check(&ops[2], "/o", -1);
    int rc = zke_multi(z, ops, 3, results);
    ck_assert_msg(rc == cases[i].result, "case %zu: %d, %s", i, rc,
                  zke_errmsg());
    ck_says(cases[i].says);
    ck_assert_int_eq(results[0].rc, ZKE_OK);
    ck_assert_int_eq(results[1].rc, cases[i].result);
    ck_assert_int_eq(results[2].rc, ZKE_RUNTIMEINCONSISTENCY);
    ck_rc(see(z, "/o"), ZKE_NONODE);
  }
  job j = {.sql = "INSERT INTO orders(what)VALUES('second')"};
  ck_ok(both(z, &j, "/o"));
}

/* What a function must not do is refused, by a sentence that names it, and has
 * no effect. */
TEST(forbidden_statements_are_refused) {
  static const struct {
    const char *sql, *says;
  } bad[] = {
      {"COMMIT", "COMMIT"},
      {"BEGIN", "BEGIN"},
      {"ROLLBACK", "ROLLBACK"},
      {"END", "COMMIT"},
      {"PRAGMA synchronous=OFF", "PRAGMA synchronous"},
      {"PRAGMA user_version", "PRAGMA user_version"},
      {"ATTACH ':memory:' AS x", "ATTACH :memory:"},
      {"DETACH main", "DETACH main"},
      {"DELETE FROM zkembed_node", "of zkembed_node"},
      {"UPDATE zkembed_meta SET zxid=0", "of zkembed_meta"},
      {"INSERT INTO zkembed_blob VALUES(1,x'00')", "of zkembed_blob"},
      {"REPLACE INTO Zkembed_Blob VALUES(1,x'00')", "of zkembed_blob"},
      {"DROP TABLE zkembed_event", "of zkembed_event"},
      {"DROP VIEW zke_nodes", "of zke_nodes"},
      {"DROP INDEX zkembed_node_owner", "of zkembed_node"},
      {"CREATE INDEX i ON zkembed_node(ctime)", "of zkembed_node"},
      {"ALTER TABLE zkembed_node RENAME TO n", "of zkembed_node"},
      {"ALTER TABLE zkembed_node ADD COLUMN x", "of zkembed_node"},
      {"CREATE TRIGGER t AFTER INSERT ON zkembed_node BEGIN SELECT 1;END",
       "of zkembed_node"},
      {"CREATE TEMP TRIGGER t AFTER INSERT ON zkembed_node BEGIN SELECT 1;END",
       "of zkembed_node"},
      {"CREATE TABLE zke_mine(a)", "of zke_mine"},
      {"CREATE VIEW ZKE_mine AS SELECT 1", "of ZKE_mine"},
      {"CREATE TEMP TABLE zkembed_node(a)", "of zkembed_node"},
      {"CREATE TEMP TABLE x(a);ALTER TABLE x RENAME TO zkembed_node", "of x"},
      {"SAVEPOINT zkembed_operation", "SAVEPOINT zkembed_operation"},
      {"RELEASE zkembed_operation", "SAVEPOINT zkembed_operation"},
      {"CREATE TRIGGER t AFTER INSERT ON orders BEGIN DELETE FROM "
       "zkembed_node;END;INSERT INTO orders(what)VALUES('x')",
       "of zkembed_node"}};
  zke *z = open_shop(0);
  make(z, "/a");
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    job j = {.sql = bad[i].sql, .code = 1};
    ck_assert_int_eq(both(z, &j, "/o"), 1);
    ck_assert_msg(j.result != SQLITE_OK, "%s was let pass", bad[i].sql);
    ck_says("not authorized: ");
    ck_says(bad[i].says);
  }
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(see(z, "/a"));
  ck_assert_int_eq(orders(shop), 1);
}

/* SQLite lets a program rename its table to a name that we have not used yet.
 * Then there is no history, which a sentence says, and the table stays the
 * program's. */
TEST(a_renamed_table_is_still_the_programs) {
  zke *z = open_shop(0);
  job j = {.sql = "ALTER TABLE orders RENAME TO zkembed_history"};
  ck_ok(both(z, &j, "/o"));
  ck_rc(zke_history_keep(z, 10, 0), ZKE_SYSTEMERROR);
  ck_says("zkembed_history already exists");
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_remove_tables(z));
  ck_ok(zke_close(z));
  ck_assert_int_eq(test_number(shop, "SELECT count(*)FROM zkembed_history"), 1);
  zke_options options = {.size = sizeof options, .flags = ZKE_OPEN_HOST};
  ck_rc(zke_open(shop, &options, &z), ZKE_NOTADB);
  ck_says("zkembed_history already exists");
}

/* A function may make its own tables, indices and triggers, use savepoints, and
 * read our tables. */
TEST(permitted_statements_pass) {
  static const char *const good[] = {
      "CREATE TABLE mine(zke_token INTEGER);CREATE INDEX i ON mine(zke_token);"
      "INSERT INTO mine VALUES(1);UPDATE mine SET zke_token=2",
      "SAVEPOINT s;DELETE FROM mine;ROLLBACK TO s;RELEASE s",
      "CREATE TRIGGER zke_fence BEFORE UPDATE ON mine WHEN NOT EXISTS(SELECT 1 "
      "FROM zke_tokens)BEGIN SELECT RAISE(ABORT,'no');END",
      "SELECT * FROM zke_nodes;SELECT * FROM zkembed_meta",
      "DROP TRIGGER zke_fence;ALTER TABLE mine ADD COLUMN b;DROP TABLE mine",
      "SAVEPOINT open"};
  zke *z = open_shop(0);
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    char path[16];
    job j = {.sql = good[i]};
    snprintf(path, sizeof path, "/o%zu", i);
    ck_ok(both(z, &j, path));
  }
}

/* Leave a statement open, in the middle of its rows or not. */
static int leave_open(sqlite3 *db, int64_t zxid, void *context) {
  sqlite3_stmt **st = context;
  (void)zxid;
  ck_assert_int_eq(
      sqlite3_prepare_v2(db, "SELECT 1 UNION SELECT 2", -1, st, NULL),
      SQLITE_OK);
  ck_assert_int_eq(sqlite3_step(*st), SQLITE_ROW);
  return ZKE_OK;
}

/* A statement that a function has not finalized fails the operation, and blocks
 * no checkpoint. */
TEST(an_open_statement_is_refused) {
  zke *z = open_shop(0);
  sqlite3_stmt *st;
  ck_rc(alone(z, leave_open, &st), ZKE_MISUSE);
  ck_says("SELECT 1 UNION SELECT 2");
  ck_assert_int_eq(sqlite3_stmt_busy(st), 0);
  sqlite3_finalize(st);
  make(z, "/a");
  ck_ok(zke_compact(z, zke_now(z) + 5000));
}

/* A statement that was left open earlier hides no refusal of a later
 * function. */
TEST(a_refusal_is_heard_beside_an_open_statement) {
  zke *z = open_shop(0);
  sqlite3_stmt *st;
  ck_rc(alone(z, leave_open, &st), ZKE_MISUSE);
  job j = {.code = ZKE_LIMIT, .why = "sold out"};
  ck_rc(both(z, &j, "/o"), ZKE_LIMIT);
  ck_says("sold out");
  sqlite3_finalize(st);
}

/* These calls need no lock. */
static void expect_lockless(zke *z) {
  ck_ok(zke_touch(z));
  ck_ok(zke_wake(z));
  ck_ok(zke_call_at(z, ZKE_FOREVER, test_ignore, NULL));
  ck_assert_int_ge(zke_now(z), 0);
}

/* In a function, every call on a handle that needs a lock is refused, and so is
 * opening another. */
static int call_back(sqlite3 *db, int64_t zxid, void *context) {
  zke *z = context, *other;
  (void)db, (void)zxid;
  ck_rc(create(z, "/b", ZKE_PERSISTENT), ZKE_MISUSE);
  ck_rc(see(z, "/"), ZKE_MISUSE);
  ck_rc(zke_dispatch(z, NULL), ZKE_MISUSE);
  ck_rc(zke_wait(z, 0), ZKE_MISUSE);
  ck_rc(zke_sleep(z, 0), ZKE_MISUSE);
  ck_assert_int_eq(zke_state(z), ZKE_STATE_CLOSED);
  ck_rc(zke_close(z), ZKE_MISUSE);
  ck_rc(zke_sql_begin(z, db), ZKE_MISUSE);
  ck_rc(zke_sql_commit(z, db), ZKE_MISUSE);
  ck_rc(zke_open(":memory:", NULL, &other), ZKE_MISUSE);
  expect_lockless(z);
  return zke_fail(ZKE_OK, "fine");
}

/* Every call that a function makes on a handle is refused, unless it needs no
 * lock; the transaction and the handle are not affected. */
TEST(calls_in_a_function_are_refused) {
  zke *z = open_shop(0);
  ck_ok(alone(z, call_back, z));
  make(z, "/b");
}

/* An operation for a multi_read, or one without its function, is refused before
 * anything runs. */
TEST(malformed_operations_are_refused) {
  zke *z = open_shop(0);
  zke_op op;
  zke_op_result result;
  zke_op_sql(&op, NULL, NULL);
  ck_rc(zke_multi(z, &op, 1, NULL), ZKE_BADARGUMENTS);
  ck_says("fn is NULL");
  ck_rc(zke_multi_read(z, &op, 1, &result), ZKE_BADARGUMENTS);
}

/* SQLite itself undoes a transaction if memory or the disk runs out.  What a
 * function does after that is not committed either. */
static int go_on_after_undo(sqlite3 *db, int64_t zxid, void *context) {
  int *result = context;
  (void)zxid;
  ck_assert_int_ne(plain_run(db,
                             "INSERT INTO orders VALUES(9,'nine');INSERT OR "
                             "ROLLBACK INTO orders VALUES(1,'again')"),
                   SQLITE_OK);
  ck_assert_int_ne(sqlite3_get_autocommit(db), 0);
  *result = plain_run(db, "INSERT INTO orders VALUES(10,'ten')");
  return ZKE_OK;
}

/* If SQLite has undone the transaction, the multi fails and says so, even if
 * the function has returned ZKE_OK. */
TEST(nothing_is_committed_after_an_undo) {
  zke *z = open_shop(0);
  int result = SQLITE_OK;
  ck_rc(alone(z, go_on_after_undo, &result), ZKE_SYSTEMERROR);
  ck_says("undone");
  ck_assert_int_ne(result, SQLITE_OK);
  ck_assert_int_eq(orders(shop), 1);
  make(z, "/a");
}

/* Each row in its own savepoint, whose failure the function ignores.  The first
 * failure undoes everything, and the next savepoint begins a new
 * transaction. */
static int go_on_by_savepoints(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  plain_run(db, "SAVEPOINT r;INSERT OR ROLLBACK INTO orders VALUES(1,'again')");
  plain_run(db, "SAVEPOINT r;INSERT INTO orders VALUES(11,'eleven')");
  plain_run(db, "RELEASE r");
  return ZKE_OK;
}

/* An undo is noticed even if another transaction is open by then: neither its
 * row nor the operations around the function stay. */
TEST(an_undo_is_noticed_behind_savepoints) {
  zke *z = open_shop(0);
  zke_op ops[3];
  zke_op_create(&ops[0], "/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_sql(&ops[1], go_on_by_savepoints, NULL);
  zke_op_create(&ops[2], "/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_rc(zke_multi(z, ops, 3, NULL), ZKE_SYSTEMERROR);
  ck_says("undone");
  ck_rc(see(z, "/a"), ZKE_NONODE);
  ck_rc(see(z, "/b"), ZKE_NONODE);
  ck_assert_int_eq(orders(shop), 1);
  make(z, "/a");
}

/* A savepoint that a function leaves open ends with it: no later function can
 * roll back to it, past the operations between them. */
TEST(a_savepoint_ends_with_its_function) {
  zke *z = open_shop(0);
  job first = {.sql = "SAVEPOINT early;INSERT INTO orders VALUES(12,'twelve')"},
      last = {.sql = "ROLLBACK TO early"};
  zke_op ops[3];
  zke_op_sql(&ops[0], work, &first);
  zke_op_create(&ops[1], "/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_sql(&ops[2], work, &last);
  ck_rc(zke_multi(z, ops, 3, NULL), SQLITE_ERROR);
  ck_says("no such savepoint");
  ck_rc(see(z, "/a"), ZKE_NONODE);
  ck_ok(zke_multi(z, ops, 2, NULL));
  ck_assert_int_eq(orders(shop), 2);
}

/* ZKE_OPEN_FOREIGN_KEYS: with it a deferred constraint refuses the COMMIT, and
 * everything is undone; without it the row is accepted. */
TEST_LOOP(foreign_keys_by_option, 0, 2) {
  zke *z = open_shop(_i ? ZKE_OPEN_FOREIGN_KEYS : 0);
  job j = {.sql = "INSERT INTO parts VALUES(42)"};
  ck_rc(both(z, &j, "/o"), _i ? ZKE_SQL : ZKE_OK);
  if (_i) ck_says("FOREIGN KEY");
  ck_rc(see(z, "/o"), _i ? ZKE_NONODE : ZKE_OK);
  ck_assert_int_eq(test_number(shop, "SELECT count(*)FROM parts"), 1 - _i);
  make(z, "/p");
}

/* A batch: only the refused SQL is undone. */
static int batch_of_sql(zke *z, void *context) {
  job *jobs = context;
  ck_ok(both(z, &jobs[0], "/o0"));
  ck_assert_int_eq(both(z, &jobs[1], "/o1"), SQLITE_CONSTRAINT_PRIMARYKEY);
  ck_ok(both(z, &jobs[2], "/o2"));
  return ZKE_OK;
}

/* A function whose SQL is refused undoes its own znodes too and uses no zxid;
 * those before and after it stay. */
TEST(sql_in_a_batch) {
  zke *z = open_shop(0);
  job jobs[3] = {{.sql = "INSERT INTO orders VALUES(2,'b')"},
                 {.sql = "INSERT INTO orders VALUES(3,'c'),(2,'d')"},
                 {.sql = "INSERT INTO orders VALUES(4,'e')"}};
  ck_ok(zke_batch(z, batch_of_sql, jobs));
  ck_assert_int_eq(jobs[2].zxid, jobs[0].zxid + 1);
  ck_rc(see(z, "/o1"), ZKE_NONODE);
  ck_assert_int_eq(
      test_number(shop, "SELECT group_concat(id)='1,2,4'FROM orders"), 1);
}

/* zke_multi_read(): rows and znodes of one snapshot; nothing can be written,
 * and a refusal concerns one operation. */
TEST(sql_in_a_snapshot) {
  zke *z = open_shop(0);
  job good = {.sql = "SELECT count(*)FROM orders"},
      bad = {.sql = "DELETE FROM orders"},
      temp = {.sql = "CREATE TEMP TABLE t(a)"};
  zke_op ops[4];
  zke_op_result results[4];
  make(z, "/a");
  zke_op_sql(&ops[0], work, &good);
  zke_op_sql(&ops[1], work, &bad);
  zke_op_get(&ops[2], "/a");
  zke_op_sql(&ops[3], work, &temp);
  ck_ok(zke_multi_read(z, ops, 4, results));
  ck_assert_int_eq(results[0].rc, ZKE_OK);
  ck_assert_int_eq(good.zxid, results[2].stat.czxid);
  ck_assert_int_eq(results[1].rc, SQLITE_AUTH);
  ck_assert_int_eq(results[2].rc, ZKE_OK);
  ck_assert_int_eq(results[3].rc, SQLITE_AUTH);
  zke_results_clear(results, 4);
  ck_assert_int_eq(orders(shop), 1);
}

/* If a function may only read, the sentence names the object it would change,
 * not SQLite's schema table. */
TEST(what_a_reader_would_change_is_named) {
  static const struct {
    const char *sql, *says;
  } bad[] = {{"DELETE FROM orders", "change orders"},
             {"CREATE TABLE mine(a)", "change mine"},
             {"CREATE TABLE mine AS SELECT 1", "change mine"},
             {"CREATE TEMP TABLE mine(a)", "change mine"},
             {"CREATE VIEW mine AS SELECT 1", "change mine"},
             {"CREATE INDEX mine ON orders(what)", "change mine"},
             {"CREATE TRIGGER mine AFTER INSERT ON orders BEGIN SELECT 1;END",
              "change mine"},
             {"DROP TABLE orders", "change orders"},
             {"ALTER TABLE orders RENAME TO mine", "change orders"},
             {"ALTER TABLE orders ADD COLUMN x", "change orders"}};
  zke *z = open_shop(0);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    job j = {.sql = bad[i].sql};
    zke_op op;
    zke_op_result result;
    zke_op_sql(&op, work, &j);
    ck_ok(zke_multi_read(z, &op, 1, &result));
    ck_assert_int_eq(result.rc, SQLITE_AUTH);
    ck_says("fn may only read, but would change ");
    ck_says(bad[i].says);
    zke_results_clear(&result, 1);
  }
  ck_assert_int_eq(orders(shop), 1);
}

/* A function cannot write to the schema table either, which SQLite allows with
 * writable_schema. */
static int write_schema(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  sqlite3_db_config(db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 1, (int *)NULL);
  int rc = plain_run(db, "DELETE FROM sqlite_master");
  sqlite3_db_config(db, SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0, (int *)NULL);
  return rc;
}

/* The engine refuses what SQLite would then allow. */
TEST(a_reader_cannot_write_the_schema) {
  zke *z = open_shop(0);
  zke_op op;
  zke_op_result result;
  zke_op_sql(&op, write_schema, NULL);
  ck_ok(zke_multi_read(z, &op, 1, &result));
  ck_assert_int_eq(result.rc, SQLITE_AUTH);
  ck_assert_int_eq(orders(shop), 1);
}

/* A tree in memory can have tables too. */
TEST(sql_in_memory) {
  zke *z = test_open(":memory:");
  job j = {.sql = "CREATE TABLE t(a);INSERT INTO t VALUES(1)"};
  ck_ok(both(z, &j, "/o"));
  job k = {.sql = "INSERT INTO t VALUES(2);SELECT * FROM t"};
  ck_ok(both(z, &k, "/p"));
}

/* If a process dies in the middle, neither row nor znode is left. */
TEST(a_death_in_a_function_leaves_nothing) {
  zke *z = open_shop(0);
  ck_ok(zke_close(z));
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    zke *own;
    job j = {.sql = "INSERT INTO orders VALUES(2,'b')"}, k = {.code = 0};
    zke_op ops[3];
    if (zke_open(shop, NULL, &own) != ZKE_OK) _exit(1);
    zke_op_sql(&ops[0], work, &j);
    zke_op_create(&ops[1], "/o", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
    zke_op_sql(&ops[2], (zke_sql_fn)(void (*)(void))abort, &k);
    zke_multi(own, ops, 3, NULL);
    _exit(2);
  }
  ck_assert_int_eq(test_child_end(child), 128 + SIGABRT);
  z = test_open(shop);
  ck_rc(see(z, "/o"), ZKE_NONODE);
  ck_assert_int_eq(orders(shop), 1);
}

/* A child that is forked in a function and returns from it is told so, and does
 * not touch the parent's transaction. */
static int fork_in(sqlite3 *db, int64_t zxid, void *context) {
  pid_t *child = context;
  (void)db, (void)zxid;
  *child = fork();
  ck_assert_int_ge(*child, 0);
  return ZKE_OK;
}

/* P9: a child that is forked between zke_sql_begin() and its end is told so by
 * every call, and the parent's transaction continues.  The child cannot open
 * anything, since the parent was using SQLite. */
TEST(a_fork_in_a_transaction) {
  zke *z = open_shop(0);
  sqlite3 *db = plain_open(shop);
  ck_ok(zke_sql_adopt(z, db));
  ck_ok(zke_sql_begin(z, db));
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (child == 0) {
    zke *own;
    if (zke_open(":memory:", NULL, &own) != ZKE_FORKED) _exit(1);
    if (see(z, "/") != ZKE_FORKED) _exit(2);
    _exit(zke_sql_commit(z, db) == ZKE_FORKED ? 0 : 3);
  }
  ck_assert_int_eq(test_child_end(child), 0);
  ck_ok(zke_sql_commit(z, db));
}

/* A child that is forked in a function and returns from it gets ZKE_FORKED; the
 * parent commits, and its handle works. */
TEST(a_fork_in_a_function) {
  zke *z = open_shop(0);
  pid_t child = -1;
  zke_op ops[2];
  zke_op_sql(&ops[0], fork_in, &child);
  zke_op_create(&ops[1], "/o", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  int rc = zke_multi(z, ops, 2, NULL);
  if (child == 0) _exit(rc == ZKE_FORKED ? 0 : 1);
  ck_ok(rc);
  ck_assert_int_eq(test_child_end(child), 0);
  ck_ok(see(z, "/o"));
  make(z, "/p");
}

/* A lost reply: the function was called, and its changes share the fate of all
 * others. */
TEST_LOOP(a_lost_reply_is_of_both, 0, 2) {
  zke *z = open_shop(0);
  job j = {.sql = "INSERT INTO orders VALUES(2,'b')"};
  ck_ok(zke_test_fail(z, _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE, 0));
  ck_rc(both(z, &j, "/o"), ZKE_CONNECTIONLOSS);
  ck_rc(see(z, "/o"), _i ? ZKE_OK : ZKE_NONODE);
  ck_assert_int_eq(orders(shop), 1 + _i);
}

/* ---- watchers and rows ---- */

enum { WATCHERS = 3, COMMITS = 200 };

/* Shared with the watchers: how often each was woken, and whether it was told
 * of a commit whose row it could not find. */
typedef struct watcher {
  int woken, missed;
  bool ready;
  sqlite3 *db; /* its own */
} watcher;

/* Looks for the row of the commit that the event reports. */
static void find_row(zke *z, int type, int state, const char *path,
                     void *context) {
  watcher *w = context;
  char sql[80];
  (void)state, (void)path;
  if (type != ZKE_EVENT_CHANGED) return;
  snprintf(sql, sizeof sql, "SELECT count(*)FROM told WHERE zxid=%lld",
           (long long)zke_event_zxid(z));
  sqlite3_stmt *st = NULL;
  if (sqlite3_prepare_v2(w->db, sql, -1, &st, NULL) != SQLITE_OK ||
      sqlite3_step(st) != SQLITE_ROW || sqlite3_column_int(st, 0) != 1)
    __atomic_add_fetch(&w->missed, 1, __ATOMIC_SEQ_CST);
  sqlite3_finalize(st);
  __atomic_add_fetch(&w->woken, 1, __ATOMIC_SEQ_CST);
}

/* A process that watches /n, until it has been woken for each commit. */
static int watch_rows(void *context) {
  watcher *w = context;
  zke *z;
  if (zke_open(shop, NULL, &z) != ZKE_OK) return 1;
  if (sqlite3_open(shop, &w->db) != SQLITE_OK) return 2;
  sqlite3_busy_timeout(w->db, 5000);
  if (zke_add_watch(z, "/n", ZKE_WATCH_PERSISTENT, find_row, w) != ZKE_OK)
    return 3;
  __atomic_store_n(&w->ready, true, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&w->woken, __ATOMIC_SEQ_CST) < COMMITS)
    if (zke_wait(z, zke_now(z) + 60000) != ZKE_OK ||
        zke_dispatch(z, NULL) != ZKE_OK)
      return 4;
  sqlite3_close(w->db);
  return zke_close(z) == ZKE_OK ? 0 : 5;
}

static int add_row(sqlite3 *db, int64_t zxid, void *context) {
  char sql[80];
  (void)context;
  snprintf(sql, sizeof sql, "INSERT INTO told VALUES(%lld)", (long long)zxid);
  return plain_run(db, sql);
}

/* zke_op_sql(), from outside: a process that the znode's change wakes reads the
 * row immediately, with plain SQLite, and always finds it. */
TEST(woken_watchers_find_the_row) {
  zke *z = open_shop(0);
  pid_t pid[WATCHERS];
  watcher *w = mmap(NULL, WATCHERS * sizeof *w, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(w != MAP_FAILED);
  make(z, "/n");
  ck_ok(zke_close(z));
  sqlite3 *db = plain_open(shop);
  must(db, "CREATE TABLE told(zxid INTEGER PRIMARY KEY)");
  sqlite3_close(db);
  for (int i = 0; i < WATCHERS; i++) pid[i] = test_child(watch_rows, &w[i]);
  z = test_open(shop);
  for (int i = 0; i < WATCHERS; i++)
    ck_until(__atomic_load_n(&w[i].ready, __ATOMIC_SEQ_CST), 10000);
  for (int n = 1; n <= COMMITS; n++) {
    zke_op ops[2];
    zke_op_sql(&ops[n % 2], add_row, NULL);
    zke_op_set(&ops[1 - n % 2], "/n", "x", 1, -1);
    ck_ok(zke_multi(z, ops, 2, NULL));
    for (int i = 0; i < WATCHERS; i++) /* so that it waits in the next round */
      ck_until(__atomic_load_n(&w[i].woken, __ATOMIC_SEQ_CST) >= n, 10000);
  }
  for (int i = 0; i < WATCHERS; i++) {
    ck_assert_int_eq(test_child_end(pid[i]), 0);
    ck_assert_int_eq(w[i].woken, COMMITS);
    ck_assert_int_eq(w[i].missed, 0);
  }
}

/* ---- the program's own connection ---- */

/* zke_sql_adopt(): that connection runs no checkpoint, neither after a commit
 * nor when it is closed (P12). */
TEST(an_adopted_connection_makes_no_checkpoint) {
  zke *z = open_shop(0);
  sqlite3 *db = plain_open(shop);
  ck_ok(zke_sql_adopt(z, db));
  must(db, "CREATE TABLE t(a)");
  for (int i = 0; i < 1500; i++)
    must(db, "INSERT INTO t VALUES(randomblob(3000))");
  struct stat log;
  char name[300];
  snprintf(name, sizeof name, "%s-wal", shop);
  ck_assert_int_eq(stat(name, &log), 0);
  ck_assert_int_gt(log.st_size, 1500 * 4096);
  int64_t size = (int64_t)log.st_size;
  sqlite3_close(db);
  ck_assert_int_eq(stat(name, &log), 0);
  ck_assert_int_eq((int64_t)log.st_size, size);
  make(z, "/a"); /* the engine's writer runs it, with the gate */
  ck_ok(zke_close(z));
  ck_assert_int_eq(test_number(shop, "SELECT count(*)FROM t"), 1500);
}

/* P8: however SQLite was built, a commit on an adopted connection is synced,
 * unless the store's changes are not.  A setting that syncs more is kept, and
 * so is one that the program makes afterwards. */
TEST_LOOP(an_adopted_connection_syncs_its_commits, 0, 3) {
  zke_options options = {.size = sizeof options, .durability = _i};
  bool none = _i == ZKE_DURABLE_NONE;
  zke *z;
  shop = make_shop();
  options.flags = ZKE_OPEN_HOST;
  ck_ok(zke_open(shop, &options, &z));
  sqlite3 *db = plain_open(shop);
  for (int level = 0; level <= 3; level++) {
    char set[40];
    snprintf(set, sizeof set, "PRAGMA synchronous=%d", level);
    must(db, set);
    ck_ok(zke_sql_adopt(z, db));
    ck_assert_int_eq(number_of(db, "PRAGMA synchronous"),
                     level < 2 && !none ? 2 : level);
  }
  must(db, "PRAGMA synchronous=NORMAL");
  ck_ok(zke_sql_begin(z, db));
  ck_ok(zke_sql_commit(z, db));
  ck_assert_int_eq(number_of(db, "PRAGMA synchronous"), 1);
  must(db, "BEGIN");
  ck_rc(zke_sql_adopt(z, db), none ? ZKE_OK : ZKE_SYSTEMERROR);
  must(db, "COMMIT");
}

/* Count the statements that set `synchronous`. */
static int count_settings(unsigned what, void *context, void *st, void *text) {
  (void)what, (void)st;
  if (strncmp(text, "PRAGMA synchronous=", 19) == 0) ++*(int *)context;
  return 0;
}

/* P8: the level also holds in the first transaction after the adoption.  If the
 * connection has read the schema before the file got its log, SQLite then takes
 * the default for files with a log, unless a PRAGMA has set the level.  That
 * default can be lower, so the PRAGMA is run even if the level is high enough;
 * few builds of SQLite show the difference in the level itself. */
TEST(a_default_that_is_enough_is_set_all_the_same) {
  int set = 0;
  shop = make_shop();
  sqlite3 *db = plain_open(shop);
  ck_assert_int_eq(number_of(db, "SELECT count(*)FROM orders"), 1);
  zke *z = open_flags(shop, ZKE_OPEN_HOST);
  sqlite3_trace_v2(db, SQLITE_TRACE_STMT, count_settings, &set);
  ck_ok(zke_sql_adopt(z, db));
  ck_assert_int_eq(set, 1);
  must(db, "BEGIN IMMEDIATE;COMMIT");
  ck_assert_int_eq(number_of(db, "PRAGMA synchronous"), 2);
  must(db, "BEGIN");
  ck_ok(zke_sql_adopt(z, db)); /* nothing can be set now, nor need it */
  ck_assert_int_eq(set, 1);
  must(db, "COMMIT");
}

static int synced_directories;
static void count_directory(seam_call *c) {
  synced_directories += seam_type(c->fd) == ZKE_FILE_DIRECTORY;
}

/* P8: the directory entry of a log that the engine's connection has made is
 * synced before a commit of the program: otherwise a power cut would take the
 * synced commit with it. */
TEST(the_log_has_a_synced_name_before_a_guest_commits) {
  static seam s = {.before = {[SEAM_fsync] = count_directory}};
  zke_options options = {.size = sizeof options, .os = seam_os(&s)};
  zke *z = open_shop(0);
  ck_ok(zke_close(z));
  ck_ok(zke_open(shop, &options, &z));
  sqlite3 *db = plain_open(shop);
  ck_ok(zke_sql_adopt(z, db));
  ck_ok(zke_sql_begin(z, db));
  ck_assert_int_eq(synced_directories, 1);
  ck_ok(zke_sql_commit(z, db));
  ck_ok(zke_sql_begin(z, db));
  ck_ok(zke_sql_commit(z, db));
  ck_assert_int_eq(synced_directories, 1); /* once is enough */
}

/* ---- limits and extensions ---- */

static int lower_limits(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  sqlite3_limit(db, SQLITE_LIMIT_LENGTH, 100);
  sqlite3_limit(db, SQLITE_LIMIT_VARIABLE_NUMBER, 1);
  return ZKE_OK;
}

/* zkembed.h, zke_op_sql(): limits that a function sets end with it.  Otherwise
 * the engine's next statements would be refused, and an ACL longer than the
 * limit would be stored as none. */
TEST_LOOP(a_functions_limits_end_with_it, 0, 2) {
  char id[300];
  zke *z = open_shop(0);
  zke_op op;
  zke_op_result result = {0};
  memset(id, 'x', sizeof id);
  memcpy(id, "u:", 2);
  id[sizeof id - 1] = '\0';
  char scheme[] = "digest";
  zke_acl acl = {ZKE_PERM_ALL, scheme, id};
  zke_acls acls = {1, &acl};
  zke_op_sql(&op, lower_limits, NULL);
  ck_ok(_i ? zke_multi_read(z, &op, 1, &result) : zke_multi(z, &op, 1, NULL));
  ck_ok(zke_create(z, "/a", "", 0, &acls, 0, NULL, NULL));
  ck_rc(zke_get(z, "/a", NULL, NULL, NULL, NULL, NULL), ZKE_NOAUTH);
}

/* ---- a commit of its own that fails ---- */

/* Syncs of the log can fail, or its disk can be full. */
static seam disk = {
    .vfs = "disk",
    .fail = {[SEAM_xSync] = {SQLITE_IOERR_FSYNC, .opened_as = SQLITE_OPEN_WAL},
             [SEAM_xWrite] = {SQLITE_FULL, .opened_as = SQLITE_OPEN_WAL}}};

/* An adopted connection to the shop through that VFS. */
static sqlite3 *open_by_disk(zke *z, const char *parameters) {
  sqlite3 *db;
  char uri[400];
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI;
  snprintf(uri, sizeof uri, "file:%s?%s", shop, parameters);
  ck_assert_int_eq(sqlite3_open_v2(uri, &db, flags, seam_vfs(&disk)),
                   SQLITE_OK);
  ck_ok(zke_sql_adopt(z, db));
  return db;
}

static int log_size(void) {
  struct stat log;
  char name[300];
  snprintf(name, sizeof name, "%s-wal", shop);
  return stat(name, &log) == 0 ? (int)log.st_size : -1;
}

/* Count the errors that the engine logs. */
static void count_errors(void *context, int level, const char *sentence) {
  (void)sentence;
  if (level == ZKE_LOG_ERROR) ++*(int *)context;
}

/* P2: if the sync of a guest's COMMIT fails, it is unknown how much of the log
 * is on the disk.  Before the next change is acknowledged, the store has
 * reconnected, and has emptied the log into the database; a read may come
 * before.  The guest can continue. */
TEST(a_failed_sync_of_a_guest_puts_the_log_in_doubt) {
  int errors = 0;
  shop = make_shop();
  zke *z = open_as(shop, .flags = ZKE_OPEN_HOST, .log = count_errors,
                   .log_context = &errors);
  sqlite3 *db = open_by_disk(z, "");
  ck_ok(zke_sql_begin(z, db));
  must(db, "INSERT INTO orders VALUES(2,'b')");
  disk.calls[SEAM_xSync] = 0;
  seam_fail(&disk, SEAM_xSync, true);
  ck_rc(zke_sql_commit(z, db), ZKE_CONNECTIONLOSS);
  ck_says("COMMIT");
  seam_fail(&disk, SEAM_xSync, false);
  ck_assert_int_gt(disk.calls[SEAM_xSync], 0);
  ck_assert_int_eq(errors, 1);
  ck_rc(see(z, "/a"), ZKE_NONODE);
  ck_assert_int_eq(log_size(), 0); /* its content is in the database */
  make(z, "/a");
  int count = (int)number_of(db, "SELECT count(*)FROM orders");
  ck_assert(count == 1 || count == 2);
  ck_ok(zke_sql_begin(z, db));
  must(db, "INSERT INTO orders VALUES(3,'c')");
  ck_ok(zke_sql_commit(z, db));
  ck_assert_int_eq(orders(shop), count + 1);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  sqlite3_close(db);
}

/* How many orders there would be if all processes died now. */
static int orders_after_a_death(void) {
  char command[700];
  char *copy = strdup(test_path("copy.db"));
  snprintf(command, sizeof command, "cp %s %s && cp %s-wal %s-wal", shop, copy,
           shop, copy);
  ck_assert_int_eq(system(command), 0);
  int count = orders(copy);
  free(copy);
  return count;
}

/* P2: if a guest's COMMIT finds no room at any of its writes and this is its
 * result, it was not made.  If a write may damage neighbouring bytes (psow=0),
 * SQLite fills the sector after the last frame, and the commit may already be
 * in the log. */
TEST_LOOP(a_guest_that_finds_no_room, 0, 2) {
  static const char *const parameters[] = {"psow=1", "psow=0"};
  int lost = 0, made = 0, rc = ZKE_FULL;
  zke *z = open_shop(0);
  sqlite3 *db = open_by_disk(z, parameters[_i]);
  for (int n = 1; rc != ZKE_OK; n++) {
    int before = orders(shop);
    ck_ok(zke_sql_begin(z, db));
    must(db, "INSERT INTO orders DEFAULT VALUES");
    disk.fail[SEAM_xWrite].skip = n - 1;
    seam_fail(&disk, SEAM_xWrite, true);
    rc = zke_sql_commit(z, db);
    seam_fail(&disk, SEAM_xWrite, false);
    if (rc == ZKE_FULL) ck_assert_int_eq(orders_after_a_death(), before);
    if (rc == ZKE_OK || rc == ZKE_FULL) continue;
    ck_rc(rc, ZKE_CONNECTIONLOSS);
    lost++;
    made += orders_after_a_death() == before + 1;
    make(z, "/a");
    ck_ok(zke_delete(z, "/a", -1));
  }
  ck_assert_int_eq(lost > 0, _i == 1);
  ck_assert_int_eq(made > 0, _i == 1);
}

/* ---- the program's own transactions ---- */

static int keep_connection(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid;
  *(sqlite3 **)context = db;
  return ZKE_OK;
}

/* zkembed's own connection, which a function is given, is no guest. */
static void expect_own_refused(zke *z) {
  sqlite3 *own = NULL;
  ck_ok(alone(z, keep_connection, &own));
  ck_rc(zke_sql_adopt(z, own), ZKE_BADARGUMENTS);
  ck_says("zkembed's own");
  ck_rc(zke_sql_begin(z, own), ZKE_BADARGUMENTS);
  ck_says("zkembed's own");
}

/* Begin, write, commit; begin, write, roll back; and refused calls. */
TEST(transactions_of_the_programs_connection) {
  zke *z = open_shop(0);
  sqlite3 *db = plain_open(shop), *stranger = plain_open(test_path("other.db"));
  must(stranger, "CREATE TABLE t(a)");
  ck_rc(zke_sql_adopt(z, stranger), ZKE_BADARGUMENTS);
  ck_says("other.db");
  ck_rc(zke_sql_adopt(z, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_sql_begin(z, stranger), ZKE_BADARGUMENTS);
  expect_own_refused(z);
  ck_rc(zke_sql_commit(z, db), ZKE_MISUSE);
  ck_ok(zke_sql_adopt(z, db));
  ck_ok(zke_sql_begin(z, db));
  ck_rc(zke_sql_begin(z, db), ZKE_MISUSE);
  ck_rc(create(z, "/a", ZKE_PERSISTENT), ZKE_MISUSE);
  expect_lockless(z);
  ck_rc(zke_sql_commit(z, stranger), ZKE_MISUSE);
  must(db, "INSERT INTO orders VALUES(2,'b')");
  ck_ok(zke_sql_commit(z, db));
  ck_assert_int_eq(orders(shop), 2);
  ck_ok(zke_sql_begin(z, db));
  must(db, "INSERT INTO orders VALUES(3,'c')");
  ck_ok(zke_sql_rollback(z, db));
  ck_assert_int_eq(orders(shop), 2);
  make(z, "/a");
}

/* A thread that ends in a transaction of this connection, by returning or by
 * pthread_exit(). */
typedef struct leaver {
  zke *z;
  sqlite3 *db;
  bool exits, closes;
  int rc;
} leaver;

static void *leave_transaction(void *context) {
  leaver *l = context;
  l->rc = zke_sql_begin(l->z, l->db);
  sqlite3_exec(l->db, "INSERT INTO orders VALUES(2,'b')", NULL, NULL, NULL);
  if (l->closes) sqlite3_close_v2(l->db), open_drop(NULL, l->db);
  if (l->exits) pthread_exit(NULL);
  return NULL;
}

/* zkembed.h, zke_sql_begin: if a thread ends before its transaction does,
 * nothing of it is left, and the handle, the connection and the gate are free.
 * (2: it has closed the connection.)  In an earlier version the handle could
 * not even be closed. */
TEST_LOOP(a_thread_ends_in_its_transaction, 0, 3) {
  zke *z = open_shop(0), *other = test_open(shop);
  leaver l = {z, plain_open(shop), .exits = _i == 1, .closes = _i == 2};
  ck_ok(zke_sql_adopt(z, l.db));
  pthread_t thread = begin_thread(leave_transaction, &l);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_ok(l.rc);
  make(z, "/a");
  make(other, "/b");
  ck_assert_int_eq(orders(shop), 1);
  if (!l.closes) {
    ck_ok(zke_sql_begin(z, l.db));
    must(l.db, "INSERT INTO orders VALUES(2,'b')");
    ck_ok(zke_sql_commit(z, l.db));
  }
}

/* zkembed.h: zke_sql_commit() ends the transaction whatever it returns, even if
 * SQLite gets no more memory. */
TEST_LOOP(a_transaction_ends_without_memory, 0, 2) {
  zke *z = open_shop(0);
  sqlite3 *db = plain_open(shop);
  sqlite3_db_config(db, SQLITE_DBCONFIG_LOOKASIDE, NULL, 0, 0);
  ck_ok(zke_sql_adopt(z, db));
  ck_ok(zke_sql_begin(z, db));
  must(db, "INSERT INTO orders VALUES(2,'b')");
  sqlite3_hard_heap_limit64(1);
  int rc = _i ? zke_sql_rollback(z, db) : zke_sql_commit(z, db);
  sqlite3_hard_heap_limit64(0);
  ck_assert(sqlite3_get_autocommit(db));
  if (_i) ck_ok(rc);
  make(z, "/a");
  ck_ok(zke_sql_begin(z, db));
  ck_ok(zke_sql_commit(z, db));
}

/* A transaction that the program has ended is reported; so is a deferred
 * constraint. */
TEST(a_commit_that_cannot_be) {
  zke *z = open_shop(0);
  sqlite3 *db = plain_open(shop);
  must(db, "PRAGMA foreign_keys=ON");
  ck_ok(zke_sql_adopt(z, db));
  ck_ok(zke_sql_begin(z, db));
  must(db, "ROLLBACK");
  ck_rc(zke_sql_commit(z, db), ZKE_SYSTEMERROR);
  ck_ok(zke_sql_begin(z, db));
  must(db, "INSERT INTO parts VALUES(42)");
  ck_rc(zke_sql_commit(z, db), ZKE_SQL);
  ck_says("FOREIGN KEY");
  ck_assert_int_eq(number_of(db, "SELECT count(*)FROM parts"), 0);
  make(z, "/a");
}

/* While it writes no other process can, and if a plain writer blocks it, it
 * gives up in time. */
TEST(it_stands_in_the_line) {
  zke *z = open_shop(0);
  zke *other = open_as(shop, .busy_timeout_ms = 50);
  sqlite3 *db = plain_open(shop), *rude = plain_open(shop);
  test_worker w = test_spawn("talk", NULL);
  test_ask(&w, "open %s busy=20", shop);
  ck_ok(zke_sql_adopt(z, db));
  ck_ok(zke_sql_begin(z, db));
  test_tell(&w, "set / x -1");
  ck_assert_ptr_nonnull(strstr(test_line(&w), "writing"));
  ck_ok(zke_sql_commit(z, db));
  test_ask(&w, "set / x -1");
  test_ask(&w, "close");
  ck_assert_int_eq(test_wait(&w), 0);
  must(rude, "BEGIN IMMEDIATE");
  ck_ok(zke_sql_adopt(other, db)); /* its busy timeout is the shorter one */
  ck_rc(zke_sql_begin(other, db), ZKE_OPERATIONTIMEOUT);
  must(rude, "COMMIT");
  ck_ok(zke_sql_begin(other, db));
  ck_ok(zke_sql_commit(other, db));
}

/* If the program has used up all thread keys, no transaction begins; once a key
 * is free again, one does. */
TEST(a_transaction_needs_a_key) {
  pthread_key_t keys[PTHREAD_KEYS_MAX];
  int count = 0;
  zke *z = open_shop(0), *other = test_open(shop);
  sqlite3 *db = plain_open(shop);
  ck_ok(zke_sql_adopt(z, db));
  while (count < PTHREAD_KEYS_MAX && !pthread_key_create(&keys[count], NULL))
    count++;
  ck_rc(zke_sql_begin(z, db), ZKE_NOMEM);
  make(other, "/a"); /* the gate is free */
  while (count > 0) pthread_key_delete(keys[--count]);
  ck_ok(zke_sql_begin(z, db));
  ck_ok(zke_sql_commit(z, db));
}

static int stat_error; /* of fstat on the shop, or 0 */
static void fail_stat(seam_call *c) {
  if (stat_error && strcmp(c->path, shop) == 0) seam_refuse(c, stat_error);
}

/* P11: if the system cannot say which file a connection has, the program is not
 * told that it is the wrong one. */
TEST(a_guest_is_not_refused_for_a_passing_error) {
  zke *z = open_shop(0);
  static seam s = {.before = {[SEAM_stat] = fail_stat}};
  zke_options options = {.size = sizeof options, .os = seam_os(&s)};
  ck_ok(zke_close(z));
  ck_ok(zke_open(shop, &options, &z));
  sqlite3 *db = plain_open(shop);
  stat_error = -EIO;
  ck_rc(zke_sql_adopt(z, db), ZKE_SYSTEMERROR);
  stat_error = -ENOMEM;
  ck_rc(zke_sql_begin(z, db), ZKE_NOMEM);
  stat_error = -ENOENT;
  ck_rc(zke_sql_begin(z, db), ZKE_BADARGUMENTS);
  stat_error = 0;
  ck_ok(zke_sql_begin(z, db));
  ck_ok(zke_sql_commit(z, db));
}

/* The clock advances by 10 ms at each reading. */
static void hurry_clock(seam_call *c) {
  (void)c;
  seam_pass(10);
}

/* How long SQLite wanted to sleep, in ms; it does not. */
static int slept_ms;
static void note_sleep(seam_call *c) {
  slept_ms += (int)c->time / 1000;
  seam_refuse(c, c->time);
}

/* A call waits for the busy timeout in all, not once in the line and again for
 * SQLite's lock; the connection's own timeout is unchanged. */
TEST(a_begin_waits_for_one_timeout) {
  static seam s = {
      .vfs = "wakeful",
      .before = {[SEAM_clock] = hurry_clock, [SEAM_xSleep] = note_sleep}};
  ck_ok(zke_close(open_shop(0)));
  zke *other = open_as(shop, .busy_timeout_ms = 2000, .os = seam_os(&s));
  sqlite3 *db, *rude = plain_open(shop);
  ck_assert_int_eq(
      sqlite3_open_v2(shop, &db, SQLITE_OPEN_READWRITE, seam_vfs(&s)),
      SQLITE_OK);
  ck_ok(zke_sql_adopt(other, db));
  must(rude, "BEGIN IMMEDIATE");
  ck_rc(zke_sql_begin(other, db), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_gt(slept_ms, 0);
  ck_assert_int_lt(slept_ms, 2000);
  ck_assert_int_eq(number_of(db, "PRAGMA busy_timeout"), 2000);
  must(rude, "COMMIT");
  ck_ok(zke_sql_begin(other, db));
  ck_ok(zke_sql_commit(other, db));
}

/* ---- a session that ends while its handle waits for the gate ---- */

static int gate = -1; /* held by the test */
static int64_t ending;

/* While the handle waits, end its session, as another process would, and
 * release the gate. */
static void end_meanwhile(seam_call *c) {
  char sql[100];
  if (gate < 0 || c->time == 0) return;
  snprintf(sql, sizeof sql, "DELETE FROM zkembed_session WHERE id=%lld",
           (long long)ending);
  sqlite3 *db = plain_open(shop);
  must(db, sql);
  sqlite3_close(db);
  close(gate);
  gate = -1;
}

static void hold_gate(void) {
  char path[PATH_MAX];
  struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  snprintf(path, sizeof path, "%s-zke/gate", shop);
  gate = open(path, O_RDWR | O_CLOEXEC);
  ck_assert_int_ge(gate, 0);
  ck_assert_int_eq(fcntl(gate, F_OFD_SETLK, &l), 0);
}

/* zke_sql_begin() does not begin then. */
TEST(a_session_that_ends_meanwhile_begins_nothing) {
  static seam s = {
      .before = {[SEAM_sleep] = end_meanwhile, [SEAM_poll] = end_meanwhile}};
  zke_options o = ZKE_INIT(zke_options);
  zke *z = open_shop(0), *other;
  o.os = seam_os(&s);
  ck_ok(zke_open(shop, &o, &other));
  ending = zke_session_id(other);
  sqlite3 *db = plain_open(shop);
  ck_ok(zke_sql_adopt(other, db));
  hold_gate();
  ck_rc(zke_sql_begin(other, db), ZKE_SESSIONEXPIRED);
  ck_assert_int_eq(gate, -1);
  ck_assert_int_ne(sqlite3_get_autocommit(db), 0);
  make(z, "/a"); /* the gate is free */
  sqlite3_close(db);
  zke_close(other);
}

/* ---- tokens ---- */

/* The view zke_tokens and zke_claim(): the valid token, and one that is not. */
TEST(tokens_in_office) {
  zke *z = open_shop(0);
  zke_stat held;
  char sql[200];
  make(z, "/locks");
  make(z, "/locks/pay");
  ck_ok(zke_create(z, "/locks/pay/l-", "", 0, ZKE_OPEN_ACL,
                   ZKE_EPHEMERAL_SEQUENTIAL, NULL, &held));
  sqlite3 *db = plain_open(shop);
  ck_ok(zke_sql_adopt(z, db));
  snprintf(sql, sizeof sql,
           "SELECT session FROM zke_tokens WHERE path='/locks/pay' AND "
           "token=%lld",
           (long long)held.mzxid);
  ck_assert_int_eq(number_of(db, sql), zke_session_id(z));
  snprintf(sql, sizeof sql, "SELECT zke_claim('/locks/pay',%lld)",
           (long long)held.mzxid);
  ck_assert_int_eq(number_of(db, sql), 1);
  ck_assert_int_eq(plain_run(db, "SELECT zke_claim('/locks/pay',1)"),
                   SQLITE_ERROR);
  ck_assert_ptr_nonnull(strstr(sqlite3_errmsg(db), "fenced"));
  ck_assert_int_eq(plain_run(db, "SELECT zke_claim(NULL,NULL)"), SQLITE_ERROR);
  ck_ok(zke_delete(z, "/locks/pay/l-0000000000", -1));
  ck_assert_int_eq(plain_run(db, sql), SQLITE_ERROR);
  job j = {.sql = sql};
  ck_rc(alone(z, work, &j), SQLITE_ERROR);
  ck_says("fenced");
}

/* The view uses the index of the path. */
TEST(tokens_are_found_by_the_index) {
  zke *z = open_shop(0);
  ck_ok(zke_close(z));
  sqlite3 *db = plain_open(shop);
  sqlite3_stmt *st;
  ck_assert_int_eq(sqlite3_prepare_v2(db,
                                      "EXPLAIN QUERY PLAN SELECT 1 FROM "
                                      "zke_tokens WHERE path='/a' AND token=1",
                                      -1, &st, NULL),
                   SQLITE_OK);
  ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
  const char *plan = (const char *)sqlite3_column_text(st, 3);
  ck_assert_msg(strstr(plan, "PRIMARY KEY (parent=?)") != NULL, "%s", plan);
  sqlite3_finalize(st);
}
