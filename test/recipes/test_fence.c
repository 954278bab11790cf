/* test_fence.c - recipes/fence: rows without the current token are refused
 *
 * SQLite refuses a former holder's writes in every way of writing.  The
 * holder's writes pass, and other tables are not affected.
 */
#include "recipes/fence.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes.h"
#include "recipes/election.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "recipes/part/znode.h"
#include "test/opened.h"

#define LOCK "/locks/pay"

static const char *shop; /* the database's path */

/* ---- a database of the program's ---- */

static sqlite3 *plain(void) {
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(shop, &db), SQLITE_OK);
  sqlite3_busy_timeout(db, 5000);
  return db;
}

static void must(sqlite3 *db, const char *sql) {
  int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  ck_assert_msg(rc == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
}

/* The same by a separate connection. */
static void must_once(const char *sql) {
  sqlite3 *db = plain();
  must(db, sql);
  sqlite3_close(db);
}

/* A shop with two tables, and the tree in the same file. */
static zke *open_shop(void) {
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_HOST};
  zke *z;
  shop = test_path("shop.db");
  ck_ok(zke_open(shop, &o, &z));
  must_once(
      "CREATE TABLE pay(id INTEGER PRIMARY KEY,sum,fence INTEGER);"
      "CREATE TABLE other(id INTEGER PRIMARY KEY,sum,fence INTEGER);"
      "INSERT INTO pay VALUES(1,0,0);INSERT INTO other VALUES(1,0,0)");
  return z;
}

static zke_lock *acquire(zke *z) {
  zke_lock *lock;
  ck_ok(zke_lock_new(z, LOCK, NULL, &lock));
  ck_ok(zke_lock_acquire(lock, zke_now(z) + test_patience(5000)));
  return lock;
}

/* ---- the ways to write ---- */

/* Did the write pass?  Any failure must be the fence's. */
static bool passed(int rc, const char *sentence) {
  static const char expected[] = "fenced: that token does not hold /";
  if (rc == SQLITE_OK) return true;
  ck_assert_msg(strstr(sentence, expected) != NULL, "%d: %s", rc, sentence);
  return false;
}

static bool by_plain(zke *z, const char *sql) {
  sqlite3 *db = plain();
  (void)z;
  int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  bool through = passed(rc, sqlite3_errmsg(db));
  if (!through)
    ck_assert_int_eq(sqlite3_extended_errcode(db), SQLITE_CONSTRAINT_TRIGGER);
  sqlite3_close(db);
  return through;
}

static bool by_adopted(zke *z, const char *sql) {
  sqlite3 *db = plain();
  ck_ok(zke_sql_adopt(z, db));
  ck_ok(zke_sql_begin(z, db));
  int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
  bool through = passed(rc, sqlite3_errmsg(db));
  ck_ok(through ? zke_sql_commit(z, db) : zke_sql_rollback(z, db));
  sqlite3_close(db);
  return through;
}

static int run(sqlite3 *db, int64_t zxid, void *sql) {
  (void)zxid;
  return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static bool by_op(zke *z, const char *sql) {
  zke_op op;
  zke_op_sql(&op, run, (void *)(uintptr_t)sql);
  int rc = zke_multi(z, &op, 1, NULL);
  return passed(rc, rc == ZKE_OK ? "" : zke_errmsg());
}

/* By the sqlite3 shell, if it is installed; otherwise as by_plain(). */
static bool by_shell(zke *z, const char *sql) {
  char command[1000], line[600] = "";
  if (system("command -v sqlite3 >/dev/null") != 0) return by_plain(z, sql);
  snprintf(command, sizeof command,
           "sqlite3 -cmd '.timeout 5000' %s \"%s\" 2>&1", shop, sql);
  FILE *said = popen(command, "r");
  ck_assert_ptr_nonnull(said);
  if (!fgets(line, sizeof line, said)) line[0] = '\0';
  while (fgetc(said) != EOF) continue;
  return passed(pclose(said), line);
}

static bool (*const ways[])(zke *z, const char *sql) = {by_plain, by_adopted,
                                                        by_op, by_shell};
enum { WAYS = sizeof ways / sizeof *ways };

/* Statements with a token, %1$lld. */
static const char *const statements[] = {
    "INSERT INTO pay(sum,fence) VALUES(1,%lld)",
    "UPDATE pay SET sum=sum+1,fence=%lld WHERE id=1",
    "INSERT OR REPLACE INTO pay VALUES(1,5,%lld)",
    "INSERT OR IGNORE INTO pay(sum,fence) VALUES(2,%lld)",
    "UPDATE OR IGNORE pay SET fence=%lld",
    ("INSERT INTO pay VALUES(1,6,%lld) ON CONFLICT DO UPDATE SET "
     "fence=excluded.fence")};
enum { STATEMENTS = sizeof statements / sizeof *statements };

/* Does zke_claim() find the token current at the path?  It must say the same on
 * the engine's connection and on an adopted one. */
static bool claims(zke *z, const char *path, int64_t token) {
  char sql[100];
  snprintf(sql, sizeof sql, "SELECT zke_claim('%s',%lld)", path,
           (long long)token);
  bool claimed = by_op(z, sql);
  ck_assert_int_eq(by_adopted(z, sql), claimed);
  return claimed;
}

static int64_t triggers(void) {
  return test_number(shop,
                     "SELECT count(*)FROM sqlite_schema WHERE type='trigger'");
}

/* How many of all statements pass, in all ways, with this token.  A refused one
 * must change nothing.  If there is a fence, zke_claim() must agree with it. */
static int passing(zke *z, int64_t token) {
  int count = 0;
  for (int s = 0; s < STATEMENTS; s++) {
    char sql[200];
    snprintf(sql, sizeof sql, statements[s], (long long)token);
    for (int w = 0; w < WAYS; w++) {
      int64_t rows =
          test_number(shop, "SELECT count(*)*1000000+sum(sum) FROM pay");
      bool through = ways[w](z, sql);
      count += through;
      if (!through)
        ck_assert_int_eq(
            test_number(shop, "SELECT count(*)*1000000+sum(sum) FROM pay"),
            rows);
    }
  }
  if (triggers() > 0) ck_assert_int_eq(claims(z, LOCK, token), count > 0);
  return count;
}

#define ck_passes(z, token) \
  ck_assert_int_eq(passing(z, token), STATEMENTS *WAYS)
#define ck_fenced(z, token) ck_assert_int_eq(passing(z, token), 0)

/* ---- which writers are refused ---- */

/* The holder's writes pass; without a token none does.  Another table is not
 * affected; without the fence, none is. */
TEST(holders_write_and_others_do_not) {
  zke *z = open_shop();
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  ck_fenced(z, 0);
  zke_lock *lock = acquire(z);
  int64_t token = zke_lock_token(lock);
  ck_passes(z, token);
  ck_fenced(z, token - 1);
  ck_assert(!by_plain(z, "INSERT INTO pay(sum) VALUES(1)"));
  ck_assert(!by_plain(z, "INSERT INTO pay(sum,fence) VALUES(1,'x')"));
  ck_assert(!by_plain(z, "INSERT INTO pay(sum,fence) VALUES(1,NULL)"));
  must_once("INSERT INTO other(sum) VALUES(1);UPDATE other SET sum=sum+1");
  ck_ok(zke_lock_release(lock));
  ck_fenced(z, token);
  ck_ok(zke_fence_remove(z, "pay"));
  ck_passes(z, token);
  zke_lock_free(lock);
}

enum { STEAL, BREAK, EXPIRE, CLOSE, LOSSES };

/* After a steal, a break, an expiry or a close the former holder is refused,
 * even before the next one holds.  The next holder is not. */
TEST_LOOP(a_former_holder_is_refused, 0, LOSSES) {
  zke *z = open_shop(), *next = test_open(shop);
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  zke_lock *lock = acquire(z), *other;
  int64_t token = zke_lock_token(lock);
  ck_passes(z, token);
  ck_ok(zke_lock_new(next, LOCK, NULL, &other));
  if (_i == STEAL) ck_ok(zke_lock_steal(other));
  if (_i == BREAK) ck_ok(zke_lock_break(next, LOCK, token));
  if (_i == EXPIRE) ck_ok(zke_expire(next, zke_session_id(z)));
  if (_i == CLOSE) {
    zke_lock_free(lock);
    ck_ok(zke_close(z));
  }
  ck_fenced(next, token); /* before the next one holds */
  if (_i != STEAL)
    ck_ok(zke_lock_acquire(other, zke_now(next) + test_patience(5000)));
  ck_fenced(next, token);
  ck_passes(next, zke_lock_token(other));
  zke_lock_free(other);
  if (_i != CLOSE) {
    zke_lock_free(lock);
    ck_ok(zke_close(z));
  }
}

/* A process that takes the lock, writes its token, and sleeps. */
static void hold_for_ever(int out) {
  zke *z;
  zke_lock *lock;
  if (zke_open(shop, NULL, &z) != ZKE_OK ||
      zke_lock_new(z, LOCK, NULL, &lock) != ZKE_OK ||
      zke_lock_acquire(lock, zke_now(z) + test_patience(5000)) != ZKE_OK)
    _exit(1);
  int64_t token = zke_lock_token(lock);
  if (write(out, &token, sizeof token) != sizeof token) _exit(2);
  for (;;) pause();
}

/* Start it; its token. */
static pid_t start_holder(int64_t *token) {
  int ends[2];
  ck_assert_int_eq(pipe(ends), 0);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) hold_for_ever(ends[1]);
  close(ends[1]);
  ck_assert_int_eq(read(ends[0], token, sizeof *token), sizeof *token);
  close(ends[0]);
  return pid;
}

/* kill -9 of the holder, with a process that takes over, or with none until
 * another process starts later. */
TEST_LOOP(a_dead_holder_is_refused, 0, 2) {
  zke *z = open_shop();
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  if (_i) ck_ok(zke_close(z));
  int64_t token;
  pid_t pid = start_holder(&token);
  ck_assert(by_plain(NULL,
                     "UPDATE pay SET sum=0,fence=(SELECT token FROM "
                     "zke_tokens WHERE path='" LOCK "')"));
  ck_assert_int_eq(test_number(shop, "SELECT fence FROM pay"), token);
  ck_assert_int_eq(kill(pid, SIGKILL), 0);
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
  if (_i) z = test_open(shop);
  zke_lock *lock = acquire(z);
  ck_fenced(z, token);
  ck_passes(z, zke_lock_token(lock));
  zke_lock_free(lock);
}

/* A restart: only the file remains, and later tokens differ. */
TEST(a_restart_refuses_all_tokens_before) {
  zke *z = open_shop();
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  zke_lock *lock = acquire(z);
  int64_t token = zke_lock_token(lock);
  zke_lock_free(lock);
  ck_ok(zke_close(z));
  z = test_open(shop);
  ck_fenced(z, token);
  lock = acquire(z);
  ck_assert_int_gt(zke_lock_token(lock), token);
  ck_fenced(z, token);
  zke_lock_free(lock);
}

/* A connection's temporary tables and views do not replace zkembed's. */
TEST(temporary_names_deceive_nobody) {
  zke *z = open_shop();
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  sqlite3 *db = plain();
  must(db,
       "CREATE TEMP TABLE zke_tokens(path,token,session,name);"
       "INSERT INTO temp.zke_tokens VALUES('" LOCK "',7,1,'x')");
  ck_assert_int_ne(
      sqlite3_exec(db, "INSERT INTO pay(fence) VALUES(7)", NULL, NULL, NULL),
      SQLITE_OK);
}

/* A DELETE has no token, so it passes.  With an update of its row before it, in
 * the same transaction, it does not. */
TEST(a_deletion_is_covered_by_an_update) {
  zke *z = open_shop();
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  ck_assert(!by_op(z,
                   "UPDATE pay SET fence=7 WHERE id=1;"
                   "DELETE FROM pay WHERE id=1"));
  ck_assert_int_eq(test_number(shop, "SELECT count(*)FROM pay"), 1);
  must_once("DELETE FROM pay WHERE id=1");
}

/* ---- other recipes' tokens ---- */

static bool pays(zke *z, int64_t token) {
  char sql[100];
  snprintf(sql, sizeof sql, statements[0], (long long)token);
  return by_op(z, sql);
}

/* A semaphore's tokens: each of two acquisitions passes, a released one does
 * not. */
TEST(a_semaphores_tokens) {
  zke *z = open_shop();
  zke_semaphore_options o = {.size = sizeof o, .limit = 3};
  zke_semaphore *one, *two;
  ck_ok(zke_fence_set(z, "pay", "/sem", NULL));
  ck_ok(zke_semaphore_new(z, "/sem", &o, &one));
  ck_ok(zke_semaphore_new(z, "/sem", &o, &two));
  ck_ok(zke_semaphore_acquire(one, 2, zke_now(z) + 5000));
  ck_ok(zke_semaphore_acquire(two, 1, zke_now(z) + 5000));
  int64_t token = zke_semaphore_token(one);
  ck_assert(pays(z, token) && pays(z, zke_semaphore_token(two)));
  ck_ok(zke_semaphore_release(one));
  ck_assert(!pays(z, token) && pays(z, zke_semaphore_token(two)));
  zke_semaphore_free(one);
  zke_semaphore_free(two);
}

/* A leader's token, from its election to its resignation. */
TEST(a_leaders_token) {
  zke *z = open_shop();
  zke_election_options o = {.size = sizeof o, .name = "n"};
  zke_election *e;
  ck_ok(zke_fence_set(z, "pay", "/e", NULL));
  ck_ok(zke_election_new(z, "/e", &o, &e));
  ck_ok(zke_election_lead(e, zke_now(z) + 5000));
  int64_t token = zke_election_token(e);
  ck_assert(pays(z, token));
  ck_ok(zke_election_ready(e));
  ck_assert(pays(z, token));
  ck_ok(zke_election_resign(e));
  ck_assert(!pays(z, token));
  zke_election_free(e);
}

/* A multi-lock's single token, at each of its paths. */
TEST(a_multilocks_token) {
  zke *z = open_shop();
  static const zke_multilock_item both[] = {{LOCK, ZKE_MULTILOCK_LOCK},
                                            {"/rw", ZKE_MULTILOCK_WRITE}};
  zke_multilock *m;
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  ck_ok(zke_fence_set(z, "other", "/rw", NULL));
  ck_ok(zke_multilock_new(z, both, 2, NULL, &m));
  ck_ok(zke_multilock_acquire(m, zke_now(z) + 5000));
  char sql[100];
  int64_t token = zke_multilock_token(m);
  snprintf(sql, sizeof sql, "UPDATE other SET fence=%lld", (long long)token);
  ck_assert(pays(z, token) && by_op(z, sql));
  ck_ok(zke_multilock_release(m));
  ck_assert(!pays(z, token) && !by_op(z, sql));
  zke_multilock_free(m);
}

/* Is the token accepted?  The trigger and zke_claim() must agree. */
static bool may_write(zke *z, int64_t token) {
  bool paid = pays(z, token);
  ck_assert_int_eq(claims(z, "/rw", token), paid);
  return paid;
}

/* A read/write lock's writer may write.  Its readers may not, and a writer that
 * became a reader may not either. */
TEST(a_writers_token) {
  zke *z = open_shop();
  zke_rwlock *rw;
  ck_ok(zke_fence_set(z, "pay", "/rw", NULL));
  ck_ok(zke_rwlock_new(z, "/rw", NULL, &rw));
  ck_ok(zke_rwlock_acquire(rw, ZKE_RWLOCK_READ, zke_now(z) + 5000));
  ck_assert(!may_write(z, zke_rwlock_token(rw)));
  ck_ok(zke_rwlock_upgrade(rw));
  int64_t token = zke_rwlock_token(rw);
  ck_assert(may_write(z, token));
  ck_ok(zke_rwlock_downgrade(rw));
  ck_assert(!may_write(z, token) && !may_write(z, zke_rwlock_token(rw)));
  zke_rwlock_free(rw);
}

/* ---- names ---- */

/* This must be the only fence. */
static void expect_fence(zke *z, const char *table, const char *path,
                         const char *column) {
  zke_fence_infos *list;
  ck_ok(zke_fence_list(z, &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_str_eq(list->data[0].table, table);
  ck_assert_str_eq(list->data[0].path, path);
  ck_assert_str_eq(list->data[0].column, column);
  zke_free(list);
}

/* Names of tables, columns and paths that would end a quote, a comment or a
 * statement, and SQL keywords. */
static const char *const hostile[] = {"select",
                                      "two words",
                                      "it's",
                                      "\"quoted\"",
                                      "a\"b",
                                      "[brackets]",
                                      "`ticks`",
                                      "x;DROP TABLE pay;--",
                                      "'||(SELECT 1)||'",
                                      "/*comment",
                                      "%s%n%Q?1:a@b$c",
                                      "\\back",
                                      "a WHERE path='x' AND token=NEW.\"y\"",
                                      "Größe \xe2\x82\xac \xf0\x9f\x94\x92",
                                      "new",
                                      "rowid2",
                                      "1"};
enum { HOSTILE = sizeof hostile / sizeof *hostile };

/* With names that would break out of quotes or statements, a fence is made,
 * found, enforced and removed, and no other table is changed. */
TEST_LOOP(names_break_out_of_nothing, 0, HOSTILE) {
  zke *z = open_shop();
  const char *name = hostile[_i];
  char path[200] = "/l";
  size_t len = strlen(path);
  for (const char *c = name; *c; c++) {   /* a znode's name has no '/', and */
    if ((unsigned char)*c >= 0xf0) break; /* nothing beyond 16 bits */
    path[len++] = *c == '/' ? '_' : *c;
  }
  zke_lock *lock;
  zke_fence_options o = {.size = sizeof o, .column = name};
  char *sql = sqlite3_mprintf(
      "CREATE TABLE \"%w\"(id INTEGER PRIMARY KEY,\"%w\")", name, name);
  must_once(sql);
  sqlite3_free(sql);
  ck_ok(zke_fence_set(z, name, path, &o));
  ck_assert_int_eq(triggers(), 2);
  expect_fence(z, name, path, name);
  ck_ok(zke_lock_new(z, path, NULL, &lock));
  ck_ok(zke_lock_acquire(lock, zke_now(z) + 5000));
  for (int wrong = 0; wrong < 2; wrong++) {
    sql = sqlite3_mprintf("INSERT INTO \"%w\"(\"%w\") VALUES(%lld)", name, name,
                          (long long)zke_lock_token(lock) + wrong);
    ck_assert_int_eq(by_plain(z, sql), !wrong);
    sqlite3_free(sql);
  }
  must_once("INSERT INTO pay VALUES(2,0,0)"); /* nothing else was changed */
  ck_ok(zke_fence_remove(z, name));
  ck_assert_int_eq(triggers(), 0);
  zke_lock_free(lock);
}

/* Names are found in upper and lower case, as by SQLite.  A renamed table or
 * column stays fenced, also if there is a new table of the old name. */
TEST(a_renamed_table_stays_fenced) {
  zke *z = open_shop();
  ck_ok(zke_fence_set(z, "PAY", LOCK, NULL));
  must_once(
      "ALTER TABLE pay RENAME TO \"paid 'off'\";"
      "ALTER TABLE \"paid 'off'\" RENAME COLUMN fence TO \"its \"\"token\";"
      "CREATE TABLE pay(id INTEGER PRIMARY KEY,sum,fence)");
  expect_fence(z, "paid 'off'", LOCK, "its \"token");
  ck_assert(!by_plain(z, "INSERT INTO \"paid 'off'\" VALUES(9,9,9)"));
  ck_ok(zke_fence_set(z, "pay", "/b", NULL));
  ck_assert_int_eq(triggers(), 4);
  ck_ok(zke_fence_remove(z, "Paid 'Off'"));
  expect_fence(z, "pay", "/b", "fence");
}

/* ---- what is refused ---- */

/* Things that cannot be fenced, and paths without a lock, are refused with a
 * sentence that says why; no trigger is made. */
TEST(what_cannot_be_fenced_is_told) {
  zke *z = open_shop();
  zke_fence_options o = {.size = sizeof o, .column = "nope"};
  zke_fence_infos *list = (zke_fence_infos *)z;
  must_once("CREATE VIEW v AS SELECT * FROM pay");
  static const char *const bad[][2] = {{"nothere", "is not a table"},
                                       {"v", "is a view"},
                                       {"zkembed_node", "zkembed's own"},
                                       {"main.pay", "is not a table"},
                                       {"\"pay\"", "is not a table"},
                                       {"sqlite_schema", "not a table"},
                                       {"", "missing"}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ck_rc(zke_fence_set(z, bad[i][0], LOCK, NULL), ZKE_BADARGUMENTS);
    ck_says(bad[i][1]);
  }
  ck_rc(zke_fence_set(z, "pay", LOCK, &o), ZKE_BADARGUMENTS);
  ck_says("pay has no column \"nope\"");
  static const char *const paths[] = {"/", "", "a", "/a/", "/a//b", "/a/../b"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    ck_rc(zke_fence_set(z, "pay", paths[i], NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_fence_set(z, NULL, LOCK, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_fence_set(z, "pay", NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_fence_remove(z, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_fence_remove(z, "pay"), ZKE_NONODE);
  ck_says("pay has no fence");
  ck_rc(zke_fence_list(z, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_fence_list(NULL, &list), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(list);
  ck_assert_int_eq(triggers(), 0);
}

/* A virtual table cannot have triggers.  SQLite may be built without the module
 * that the test uses. */
TEST(a_virtual_table_cannot_be_fenced) {
  zke *z = open_shop();
  if (sqlite3_compileoption_used("ENABLE_RTREE")) {
    must_once("CREATE VIRTUAL TABLE r USING rtree(id,a,b)");
    ck_rc(zke_fence_set(z, "r", LOCK, NULL), ZKE_BADARGUMENTS);
    ck_says("is a virtual table");
    ck_assert_int_eq(triggers(), 0);
  } else {
    puts("not tried: this SQLite was built without R-Trees");
  }
}

/* The same fence again changes nothing; another is refused, or replaces it. */
TEST(a_second_lock_only_when_asked) {
  zke *z = open_shop();
  zke_fence_options o = {.size = sizeof o, .replace = 1};
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  int64_t version = test_number(shop, "PRAGMA schema_version");
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  ck_assert_int_eq(test_number(shop, "PRAGMA schema_version"), version);
  ck_rc(zke_fence_set(z, "pay", "/b", NULL), ZKE_NODEEXISTS);
  ck_says("pay is fenced already, by /locks/pay in the column \"fence\"");
  o.column = "sum";
  ck_ok(zke_fence_set(z, "pay", "/b", &o));
  expect_fence(z, "pay", "/b", "sum");
  ck_assert_int_eq(triggers(), 2);
}

/* In the pause between two tries, another process makes another fence. */
static void fence_in_pause(void *context, int64_t ns) {
  zke_fence_options o = {.size = sizeof o, .replace = 1};
  (void)ns;
  ck_ok(zke_fence_set(*(zke **)context, "pay", "/others", &o));
}

/* A change loses its reply, and then another process makes its own fence: that
 * one stays.  A removal succeeds: it was made, or its fence is gone.  If a new
 * fence was made, the call cannot know that. */
TEST_LOOP(a_lost_reply_spares_the_next_fence, 0, 6) {
  enum { REMOVES, REPLACES, BEGINS };
  zke *y = open_shop(), *z;
  zke_os os = {.size = sizeof os, .context = &y, .sleep = fence_in_pause};
  zke_options o = {.size = sizeof o, .os = &os};
  int what = _i / 2;
  bool made = _i % 2;
  zke_fence_options f = {.size = sizeof f, .replace = what == REPLACES};
  ck_ok(zke_open(shop, &o, &z));
  if (what != BEGINS) ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  ck_ok(zke_test_fail(z, made ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE, 0));
  if (what == REMOVES)
    ck_ok(zke_fence_remove(z, "pay"));
  else if (made)
    ck_rc(zke_fence_set(z, "pay", "/mine", &f), ZKE_CONNECTIONLOSS);
  else
    ck_rc(zke_fence_set(z, "pay", "/mine", &f),
          what == BEGINS ? ZKE_NODEEXISTS : ZKE_OK);
  if (made) expect_fence(z, "pay", "/others", "fence");
  ck_ok(zke_close(z));
}

/* One of the two triggers was dropped: the fence is completed again.  A
 * program's own trigger with such a name is not taken for a fence. */
TEST(half_a_fence_is_mended) {
  zke *z = open_shop();
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  sqlite3 *db = plain();
  char sql[100];
  snprintf(
      sql, sizeof sql, "DROP TRIGGER fence_zke_%llx_update",
      (unsigned long long)test_number(shop, "SELECT zxid FROM zkembed_meta"));
  must(db, sql);
  must(db,
       "CREATE TRIGGER fence_zke_mine_insert AFTER INSERT ON other BEGIN "
       "SELECT 1;END");
  sqlite3_close(db);
  expect_fence(z, "pay", LOCK, "fence");
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  ck_assert_int_eq(triggers(), 3);
  ck_fenced(z, 7);
}

/* A fence keeps zkembed's tables in the database; a tree in memory has no
 * fences. */
TEST(tables_stay_while_there_is_a_fence) {
  zke *z = open_shop(), *memory = test_open(":memory:");
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  ck_rc(zke_remove_tables(z), ZKE_NOTEMPTY);
  ck_ok(zke_fence_remove(z, "pay"));
  ck_ok(zke_remove_tables(z));
  ck_ok(zke_close(z));
  must_once("INSERT INTO pay VALUES(2,0,0)");
  ck_rc(zke_fence_set(memory, "pay", LOCK, NULL), ZKE_UNIMPLEMENTED);
  ck_says("in memory");
}

/* ---- deaths, lost replies, faults ----
 *
 * A holder makes the fence, removes it, or writes a fenced row, and any step
 * goes wrong.  Afterwards the table has a whole fence or none, and the row is
 * the old or the new one. */

static const char fenced_row[] = "UPDATE pay SET sum=1,fence=%lld WHERE id=1";

/* A zke_sql_fn: write the row with the token that the context points to. */
static int write_in_step(sqlite3 *db, int64_t zxid, void *token) {
  char sql[100];
  (void)zxid;
  snprintf(sql, sizeof sql, fenced_row, (long long)*(int64_t *)token);
  return sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK ? ZKE_OK
                                                              : ZKE_SQL;
}

static int try_to_write(zke *z, void *token) {
  zke_op op;
  zke_op_sql(&op, write_in_step, token);
  return zke_recipe_multi(z, &op, 1, NULL);
}

static int write_row(zke *z, zke_lock *lock) {
  int64_t token = zke_lock_token(lock);
  return zke_retry(z, try_to_write, &token, zke_now(z) + recipe_patience_ms);
}

static int make_fence(zke *z) {
  zke_fence_infos *list = NULL;
  int rc = zke_fence_set(z, "pay", LOCK, NULL);
  if (rc == ZKE_OK) rc = zke_fence_list(z, &list);
  zke_free(list);
  return rc;
}

/* What a holder does; for FENCED the fence exists before, and stays. */
enum { MAKING, REMOVING, FENCED };

static int use_as_holder(zke *z, int what) {
  zke_lock *lock = NULL;
  int rc = zke_lock_new(z, LOCK, NULL, &lock);
  if (rc == ZKE_OK)
    rc = zke_lock_acquire(lock, zke_now(z) + recipe_patience_ms);
  if (rc == ZKE_OK && what == MAKING) rc = make_fence(z);
  if (rc == ZKE_OK) rc = write_row(z, lock);
  if (rc == ZKE_OK && what == REMOVING) rc = zke_fence_remove(z, "pay");
  zke_lock_free(lock);
  return rc;
}

static int use_making(zke *z) { return use_as_holder(z, MAKING); }
static int use_removing(zke *z) { return use_as_holder(z, REMOVING); }
static int use_writing(zke *z) { return use_as_holder(z, FENCED); }

static void prepare_table(zke *z) {
  (void)z;
  shop = test_path("recipe/db");
  must_once(
      "CREATE TABLE IF NOT EXISTS pay(id INTEGER PRIMARY KEY,sum,fence "
      "INTEGER);INSERT OR REPLACE INTO pay VALUES(1,0,0)");
}

static void prepare_fenced(zke *z) {
  prepare_table(z);
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
}

static bool writes(zke *z, int64_t token) {
  char sql[100];
  snprintf(sql, sizeof sql, fenced_row, (long long)token);
  bool through = by_plain(z, sql);
  ck_assert_int_eq(by_op(z, sql), through);
  ck_assert_int_eq(claims(z, LOCK, token), through);
  return through;
}

/* The next holder completes the fence and gets the lock.  Then it may write;
 * the former holder, whose token is in the row or still in the view, may
 * not. */
static void take_over(zke *z) {
  int64_t former[] = {
      test_number(shop, "SELECT fence FROM pay"),
      test_number(shop, "SELECT token FROM zke_tokens WHERE path='" LOCK "'")};
  ck_ok(zke_fence_set(z, "pay", LOCK, NULL));
  ck_assert_int_eq(triggers(), 2);
  expect_fence(z, "pay", LOCK, "fence");
  zke_lock *lock = acquire(z);
  for (int i = 0; i < 2; i++)
    if (former[i] > 0) ck_assert(!writes(z, former[i]));
  ck_assert(writes(z, zke_lock_token(lock)));
  zke_lock_free(lock);
  ck_ok(zke_fence_remove(z, "pay"));
}

/* After a success there are `there` triggers; otherwise two or none, but two if
 * the use does not change the fence. */
static void check_fence(zke *z, int rc, int there, bool stays) {
  int64_t count = triggers();
  if (rc == ZKE_OK || stays) ck_assert_int_eq(count, there);
  ck_assert(count == 0 || count == 2);
  if (rc == ZKE_OK)
    ck_assert_int_eq(test_number(shop, "SELECT sum FROM pay"), 1);
  ck_assert_int_eq(test_number(shop, "SELECT (sum=1)=(fence>0) FROM pay"), 1);
  take_over(z);
}

static void check_made(zke *z, int rc) { check_fence(z, rc, 2, false); }
static void check_removed(zke *z, int rc) { check_fence(z, rc, 0, false); }
static void check_written(zke *z, int rc) { check_fence(z, rc, 2, true); }

static const recipe_use uses[] = {
    {"making a fence", prepare_table, use_making, check_made},
    {"removing a fence", prepare_fenced, use_removing, check_removed},
    {"writing a fenced row", prepare_fenced, use_writing, check_written}};

RECIPE_TESTS(uses, 10, 0);
