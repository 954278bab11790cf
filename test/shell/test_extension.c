/* test_extension.c - zkembed in the SQL of a connection (doc/extension.md)
 *
 * The extension is the shared library that users load, in a program that has
 * SQLite linked statically. */
#define SQLITE_CORE 1 /* no macros for its functions */

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sqlite3ext.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/shell/sql.h"
#include "test/test.h"

/* ---- connections ---- */

static sqlite3 *connect_to(const char *path, int flags) {
  sqlite3 *db;
  int more = flags ? flags : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  ck_assert_int_eq(sqlite3_open_v2(path, &db, more, NULL), SQLITE_OK);
  sql_load(db);
  return db;
}

static sqlite3 *connect_here(void) { return connect_to(test_path("a.db"), 0); }

static const char *ask(sqlite3 *db, const char *sql) {
  return sql_ask(db, sql, "\n", "NULL");
}

#define expect(db, sql, text) ck_assert_str_eq(ask(db, sql), text)

/* The statement fails with this code, and these words are in the sentence. */
#define refused(db, sql, code, words)                                         \
  do {                                                                        \
    const char *said_ = ask(db, sql);                                         \
    if (strncmp(said_, code ": ", strlen(code) + 2) || !strstr(said_, words)) \
      ck_abort_msg("%s: %s", sql, said_);                                     \
  } while (0)

static long long number(sqlite3 *db, const char *sql) {
  const char *text = ask(db, sql);
  char *end;
  long long n = strtoll(text, &end, 10);
  if (*end || end == text) ck_abort_msg("%s: %s", sql, text);
  return n;
}

/* ---- functions ---- */

typedef struct example {
  const char *sql, *result;
} example;

/* All in one connection, in this order. */
static const example examples[] = {
    {"SELECT zke_create('/a', 'one')", "/a"},
    {"SELECT zke_get('/a'), zke_version('/a'), zke_exists('/a')", "one|0|1"},
    {"SELECT zke_get('/b'), zke_version('/b'), zke_exists('/b')",
     "NULL|NULL|0"},
    {"SELECT zke_create('/a')",
     "ZKE_NODEEXISTS: there is a node at /a already"},
    {"SELECT zke_set('/a', x'00ff', 0), hex(zke_get('/a'))", "1|00FF"},
    {"SELECT zke_set('/a', NULL), zke_get('/a')", "2|NULL"},
    {"SELECT zke_set('/a', 'x', 0)", "ZKE_BADVERSION: /a has version 2, not 0"},
    {"SELECT zke_set('/a', 'x', 4294967298)",
     "ZKE_BADARGUMENTS: zke_set(): argument 3 is \"4294967298\", not a number "
     "of 32 bits"},
    {"SELECT zke_delete('/a', 'x')",
     "ZKE_BADARGUMENTS: zke_delete(): argument 2 is \"x\", not a number of 32 "
     "bits"},
    {"SELECT zke_create('/a/s-', NULL, 'persistent_sequential')",
     "/a/s-0000000000"},
    {"SELECT zke_create('/a/e', 1.5, 'ephemeral'), zke_get('/a/e')",
     "/a/e|1.5"},
    {"SELECT zke_create('/a/x', 1, 'strange')",
     "ZKE_BADARGUMENTS: zke_create(): the mode \"strange\" is none of "
     "persistent, "
     "ephemeral, persistent_sequential, ephemeral_sequential, container"},
    {"SELECT name, path FROM zke_children_of('/a')",
     "e|/a/e\ns-0000000000|/a/s-0000000000"},
    {"SELECT path FROM zke_children_of('/') WHERE name = 'a'", "/a"},
    {"SELECT * FROM zke_children_of('/b')", "ZKE_NONODE: no node at /b"},
    {"SELECT * FROM zke_children_of",
     "ZKE_BADARGUMENTS: zke_children_of(): argument 1 is missing"},
    {"SELECT * FROM zke_children_of('/a' || char(0))",
     "ZKE_BADARGUMENTS: zke_children_of(): argument 1 has a zero byte"},
    {"SELECT c.path FROM zke_children_of('/') AS p, zke_children_of(p.path) "
     "AS c WHERE p.name = 'a'",
     "/a/e\n/a/s-0000000000"},
    {"SELECT zke_delete('/a/e'), zke_delete('/a/s-0000000000', 0)", "1|1"},
    {"SELECT zke_delete('/a/e')", "ZKE_NONODE: no node at /a/e"},
    {"SELECT zke_get(NULL)", "ZKE_BADARGUMENTS: zke_get(): the path is NULL"},
    {"SELECT zke_get('a')",
     "ZKE_BADARGUMENTS: malformed path a: it does not begin with /"},

    {"SELECT zke_lock('l', 0) > 0, zke_holder('l')", "1|test_extension"},
    {"SELECT zke_lock('l', 0)",
     "ZKE_MISUSE: zke_lock(): this connection holds /locks/l already"},
    {"SELECT kind, path, token > 0 FROM zke_locks_held()", "lock|/locks/l|1"},
    {"SELECT zke_unlock('l'), zke_holder('l')", "1|NULL"},
    {"SELECT zke_unlock('l')",
     "ZKE_LOST: /locks/l is not held by this connection"},
    {"SELECT zke_lock('l') > 0, zke_lock('m') > 0", "1|1"},
    {"SELECT zke_unlock(path) FROM zke_locks_held()", "1\n1"},
    {"SELECT zke_lock('/elsewhere/l') > 0, zke_unlock('/elsewhere/l')", "1|1"},
    {"SELECT zke_lock(NULL)",
     "ZKE_BADARGUMENTS: zke_lock(): a name is missing"},
    {"SELECT zke_lock('a' || char(0) || 'b')",
     "ZKE_BADARGUMENTS: zke_lock(): argument 1 has a zero byte"},
    {"SELECT zke_lock_join('l') > 0, zke_unlock('l')", "1|1"},
    {"SELECT zke_semaphore('s', 2) > 0, zke_semaphore_release('s')", "1|1"},
    {"SELECT zke_elect('e', 'me', 0) > 0, zke_leader('e'), zke_resign('e'), "
     "zke_leader('e')",
     "1|me|1|NULL"},
    {"SELECT zke_elect_join('e', 'me') > 0, zke_elect_join('e', 'me') > 0, "
     "zke_resign('e')",
     "1|1|1"},
    {"SELECT zke_semaphore_join('s', 2) > 0, zke_semaphore_release('s')",
     "1|1"},
    {"SELECT zke_once('j', 3600000) > 0", "1"},
    {"SELECT zke_once_done('j'), zke_once('j', 3600000)", "1|NULL"},
    {"SELECT zke_once_done('j')",
     "ZKE_LOST: /jobs/j is not run by this connection"},
    {"SELECT zke_counter('c'), zke_counter_add('c', 5), zke_counter_add('c'), "
     "zke_counter_set('c', -1), zke_counter('c')",
     "0|5|6|-1|-1"},
    {"SELECT zke_counter_set('c', 1e30)",
     "ZKE_BADARGUMENTS: zke_counter_set(): argument 2 is \"1.0e+30\", not a "
     "number of 64 bits"},
    {"SELECT zke_counter_add('c', ' 2 '), zke_counter_set('c', -1.0)", "1|-1"},

    {"SELECT zke_queue_push('q', 'one'), zke_queue_push('q', 'two', 0, 1), "
     "zke_queue_push('q', 'later', 3600000), zke_queue_size('q')",
     "1|1|1|3"},
    {"SELECT zke_queue_push('q', 'x', 9223372036854775807)",
     "ZKE_BADARGUMENTS: options.due_ms is 9223372036854775807, not 0 to "
     "9999999999999"},
    {"SELECT zke_queue_pop('q', 0), zke_queue_pop('q', 0), "
     "zke_queue_pop('q', 0)",
     "1|2|NULL"},
    {"SELECT zke_queue_data(1), zke_queue_data(2)", "two|one"},
    {"SELECT zke_queue_prolong(1, 60000), zke_queue_ack(1), "
     "zke_queue_release(2, 0), zke_queue_size('q')",
     "1|1|1|2"},
    {"SELECT zke_queue_join('q'), zke_queue_join('q')", "3|NULL"},
    {"SELECT zke_queue_ack(3), zke_queue_push('q', 'four')", "1|1"},
    {"SELECT zke_dispatch(100)", "1"},
    {"SELECT zke_queue_join('q'), zke_queue_leave('q')", "4|1"},
    {"SELECT zke_queue_data(4), zke_queue_ack(4)", "four|1"},
    {"SELECT zke_queue_push('empty', ''), zke_queue_pop('empty', 0)", "1|5"},
    {"SELECT typeof(zke_queue_data(5)), zke_queue_ack(5)", "blob|1"},
    {"SELECT zke_queue_push('poison', 'x'), "
     "zke_queue_release(zke_queue_pop('poison', 0)), "
     "zke_queue_release(zke_queue_pop('poison', 0)), "
     "zke_queue_release(zke_queue_pop('poison', 0)), "
     "zke_queue_release(zke_queue_pop('poison', 0)), "
     "zke_queue_release(zke_queue_pop('poison', 0)), "
     "zke_queue_pop('poison', 0)",
     "1|1|1|1|1|1|NULL"},
    {"SELECT zke_queue_ack(1)",
     "ZKE_LOST: zke_queue_ack(): this connection has no item 1"},

    {"SELECT zke_wait('/a', 1, 0), zke_wait('/a', 2, 1), zke_wait('/b', 0)",
     "2|NULL|-1"},
    {"SELECT zke_wait('/a' || char(0) || 'b', 0)",
     "ZKE_BADARGUMENTS: zke_wait(): argument 1 has a zero byte"},
    {"SELECT zke_watch(NULL)",
     "ZKE_BADARGUMENTS: zke_watch(): the path is NULL"},
    {"SELECT zke_dispatch()", "0"},
    {"SELECT zke_watch('/a'), zke_fd() > 2, zke_set('/a', ''), zke_dispatch()",
     "2|1|3|1"},
    {"SELECT count(*) FROM zke_changes(0)", "0"},
    {"SELECT count(*) FROM zke_changes('x')",
     "ZKE_BADARGUMENTS: zke_changes(): argument 1 is \"x\", not a number of 64 "
     "bits"},

    {"CREATE TABLE t(x)", ""},
    {"SELECT zke_begin()", "1"},
    {"SELECT zke_begin()",
     "ZKE_MISUSE: zke_begin() in a transaction, which would still see the old "
     "rows: call it before BEGIN or after COMMIT (Python: "
     "isolation_level=None)"},
    {"SELECT zke_close()",
     "ZKE_MISUSE: zke_close() between zke_begin() and its end"},
    {"INSERT INTO t VALUES(1)", ""},
    {"SELECT zke_rollback(), (SELECT count(*) FROM t)", "1|0"},
    {"SELECT zke_commit()",
     "ZKE_MISUSE: zke_commit() without zke_begin() on this thread"},
    {"SELECT zke_begin()", "1"},
    {"ROLLBACK", ""},
    {"SELECT zke_begin(), zke_commit()", "1|1"},
    {"SELECT zke_session() > 0, zke_close(), zke_session() > 0", "1|1|1"},
    {"SELECT zke_release_name()", ZKE_VERSION},
};

/* What each function returns, and how it fails. */
TEST(functions) {
  sqlite3 *db = connect_here();
  for (size_t i = 0; i < sizeof examples / sizeof *examples; i++)
    expect(db, examples[i].sql, examples[i].result);
  sql_close(db);
}

/* A job whose end could not be written still runs, and can end later. */
TEST(failed_end) {
  sqlite3 *db = connect_here();
  zke *z = test_open(test_path("a.db"));
  zke_acl read_only = {ZKE_PERM_READ | ZKE_PERM_ADMIN, "world", "anyone"};
  const zke_acls acls = {1, &read_only};
  ck_assert_int_gt(number(db, "SELECT zke_once('j', 3600000)"), 0);
  ck_ok(zke_set_acl(z, "/jobs/j", -1, &acls, NULL));
  refused(db, "SELECT zke_once_done('j')", "ZKE_NOAUTH", "");
  ck_ok(zke_set_acl(z, "/jobs/j", -1, ZKE_OPEN_ACL, NULL));
  ck_ok(zke_close(z));
  expect(db, "SELECT kind FROM zke_locks_held()", "periodic");
  expect(db, "SELECT zke_once_done('j')", "1");
  expect(db, "SELECT kind FROM zke_locks_held()", "");
  sql_close(db);
}

/* ---- several connections ---- */

/* Connections of this process, other processes and the library's own handles
 * stand in one line.  Whatever ends a connection lets the next one in. */
TEST(one_line) {
  sqlite3 *a = connect_here(), *b = connect_here();
  ck_assert_int_gt(number(a, "SELECT zke_lock('l')"), 0);
  expect(b, "SELECT zke_lock('l', 20)", "NULL");
  expect(b, "SELECT zke_lock_join('l')", "NULL");
  expect(b, "SELECT kind, token FROM zke_locks_held()", "lock|NULL");
  sql_close(a);
  while (strcmp(ask(b, "SELECT zke_lock_join('l')"), "NULL") == 0) test_pause();
  sql_close(b);
}

/* A process that takes the lock, reports it, and waits to be killed. */
typedef struct holder {
  const char *path;
  int fd;
} holder;

static int hold_and_wait(void *arg) {
  const holder *h = arg;
  sqlite3 *db = connect_to(h->path, 0);
  if (number(db, "SELECT zke_lock('l')") <= 0) return 1;
  if (write(h->fd, ".", 1) != 1) return 2;
  for (;;) pause();
}

/* The death of a process is noticed at once (P6), and the token grows. */
TEST(death_hands_over) {
  int ends[2];
  char byte, path[512];
  ck_assert_int_eq(pipe(ends), 0);
  snprintf(path, sizeof path, "%s", test_path("a.db"));
  holder h = {path, ends[1]};
  long long before = 0;
  for (int i = 0; i < 3; i++) {
    pid_t pid = test_child(hold_and_wait, &h);
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    sqlite3 *db = connect_to(path, 0);
    expect(db, "SELECT zke_lock('l', 1)", "NULL");
    kill(pid, SIGKILL);
    long long token = number(db, "SELECT zke_lock('l', 60000)");
    ck_assert_int_gt(token, before);
    before = token;
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    sql_close(db);
  }
  close(ends[0]), close(ends[1]);
}

/* ---- waiting ---- */

typedef struct asking {
  sqlite3 *db;
  const char *sql;
  char answer[256];
  atomic_bool done;
} asking;

static void *ask_aside(void *arg) {
  asking *a = arg;
  snprintf(a->answer, sizeof a->answer, "%s", ask(a->db, a->sql));
  a->done = true;
  return NULL;
}

/* sqlite3_interrupt() ends each function that waits, which then leaves its
 * line.  An interruption counts only while the statement runs. */
TEST_LOOP(interrupted, 0, 5) {
  static const char *const waits[] = {
      "SELECT zke_lock('l')", "SELECT zke_semaphore('s', 1)",
      "SELECT zke_elect('e', 'b')", "SELECT zke_queue_pop('q')",
      "SELECT zke_wait('/a', -1)"};
  sqlite3 *a = connect_here(), *b = connect_here();
  ask(a,
      "SELECT zke_lock('l'), zke_semaphore('s', 1), zke_elect('e', 'a'), "
      "zke_queue_pop('q', 1)");
  expect(b, "SELECT zke_queue_pop('q', 1)", "NULL"); /* each has its place */
  const char *nodes = "SELECT path FROM zke_nodes";
  const char *before = ask(a, nodes);
  asking x = {.db = b, .sql = waits[_i]};
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, ask_aside, &x), 0);
  while (!x.done) {
    sqlite3_interrupt(b);
    test_pause();
  }
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_str_eq(x.answer, "interrupted");
  expect(a, nodes, before);
  ck_assert_int_gt(number(b, "SELECT zke_lock('m')"), 0);
  sql_close(a), sql_close(b);
}

/* A deadline holds also while another program keeps SQLite's write lock: the
 * wait ends neither later nor earlier. */
TEST(wait_beside_a_writer) {
  sqlite3 *db = connect_here(), *other;
  expect(db, "SELECT zke_create('/a')", "/a");
  ck_assert_int_eq(sqlite3_open(test_path("a.db"), &other), SQLITE_OK);
  expect(other, "BEGIN IMMEDIATE", "");
  int64_t before = test_now();
  expect(db, "SELECT zke_wait('/a', 0, 1)", "NULL");
  ck_assert_int_lt(test_now() - before, test_patience(2000));
  before = test_now(); /* longer than a call waits for the lock */
  expect(db, "SELECT zke_wait('/a', 0, 5500)", "NULL");
  ck_assert_int_ge(test_now() - before, 5500);
  expect(other, "ROLLBACK", "");
  sql_close(other), sql_close(db);
}

/* A connection may wait for several things.  A call that asks about one of them
 * leaves zke_fd() readable for the others. */
TEST(two_lines) {
  sqlite3 *a = connect_here(), *b = connect_here();
  struct pollfd fd = {.events = POLLIN};
  ck_assert_int_gt(number(a, "SELECT zke_lock('l')"), 0);
  expect(b, "SELECT zke_lock_join('l')", "NULL");
  fd.fd = (int)number(b, "SELECT zke_fd()");
  expect(a, "SELECT zke_unlock('l')", "1");
  ck_assert_int_eq(poll(&fd, 1, -1), 1);
  expect(b, "SELECT zke_lock_join('m') > 0", "1");
  ck_assert_int_eq(poll(&fd, 1, test_patience(2000)), 1);
  expect(b, "SELECT zke_lock_join('l') > 0", "1");
  sql_close(a), sql_close(b);
}

/* ---- the history ---- */

/* The command keeps the history; the extension has no function for it. */
static void command(const char *words) {
  char line[1200];
  snprintf(line, sizeof line, "%s '%s' %s >/dev/null", test_zke(),
           test_path("a.db"), words);
  ck_assert_int_eq(system(line), 0);
}

/* zke_changes(): each change after a zxid, at a path and below it, with its
 * author; no rows if no history is kept, even if there was one before. */
TEST(changes) {
  sqlite3 *db = connect_here();
  char sql[200];
  expect(db, "SELECT zke_create('/a', '1')", "/a");
  expect(db, "SELECT * FROM zke_changes(0)", "");
  command("history on");
  expect(db, "SELECT * FROM zke_changes(0)", "");
  expect(db, "SELECT zke_create('/a/b'), zke_create('/ab')", "/a/b|/ab");
  expect(db, "SELECT zke_set('/a', '2'), zke_delete('/a/b')", "1|1");
  expect(db, "SELECT type, path FROM zke_changes(0)",
         "created|/a/b\ncreated|/ab\nchanged|/a\ndeleted|/a/b");
  expect(db, "SELECT type, path FROM zke_changes(0, '/a')",
         "created|/a/b\nchanged|/a\ndeleted|/a/b");
  expect(db, "SELECT type FROM zke_changes(0, '/a/b')", "created\ndeleted");
  expect(db,
         "SELECT count(*) FROM zke_changes(0) WHERE session = zke_session() "
         "AND identity = 'test_extension' AND pid > 0 AND "
         "abs(time_ms / 1000 - strftime('%s')) < 60",
         "4");
  long long zxid = number(
      db, "SELECT zxid FROM zke_changes(0, '/ab') WHERE type = 'created'");
  snprintf(sql, sizeof sql,
           "SELECT min(zxid) > %lld, count(*) FROM "
           "zke_changes(%lld)",
           zxid, zxid);
  expect(db, sql, "1|2");
  expect(db, "SELECT count(*) FROM zke_changes(1e18)", "0");
  refused(db, "SELECT * FROM zke_changes(-1)", "ZKE_BADARGUMENTS",
          "zke_changes(): after the zxid -1");
  refused(db, "SELECT * FROM zke_changes(0, 'a')", "ZKE_BADARGUMENTS",
          "malformed path a");
  expect(db, "BEGIN", ""); /* its snapshot includes the history */
  expect(db, "SELECT count(*) FROM zke_changes(0)", "4");
  command("create /c");
  expect(db, "SELECT count(*) FROM zke_changes(0)", "4");
  expect(db, "COMMIT", "");
  expect(db, "SELECT count(*) FROM zke_changes(0)", "5");
  command("history off");
  expect(db, "SELECT count(*) FROM zke_changes(0)", "0");
  sql_close(db);
}

/* ---- transactions ---- */

/* Functions that wait or protect are refused in a transaction.  Functions that
 * change the tree are part of a transaction that writes.  Nothing is lost by a
 * refusal. */
TEST(transactions) {
  sqlite3 *db = connect_here();
  expect(db, "CREATE TABLE t(x)", "");
  expect(db, "SELECT zke_create('/a', '1')", "/a");
  expect(db, "BEGIN", "");
  expect(db, "SELECT zke_set('/a', '2')", "1");
  expect(db, "SELECT count(*) FROM t", "0");
  refused(db, "SELECT zke_lock('l')", "ZKE_MISUSE", "isolation_level=None");
  refused(db, "SELECT zke_queue_pop('q', 0)", "ZKE_MISUSE", "in a transaction");
  refused(db, "SELECT zke_wait('/a', 0, 0)", "ZKE_MISUSE", "in a transaction");
  expect(db, "SELECT zke_set('/a', '3')", "2");
  expect(db, "INSERT INTO t VALUES(1)", "database is locked"); /* it has read */
  expect(db, "ROLLBACK", "");
  expect(db, "BEGIN", "");
  expect(db, "INSERT INTO t VALUES(1)", "");
  refused(db, "SELECT zke_set('/a', '4')", "ZKE_MISUSE",
          "would wait for itself");
  expect(db, "SELECT zke_get('/a')", "3");
  expect(db, "COMMIT", "");
  expect(db, "SELECT zke_set('/a', '4'), (SELECT x FROM t)", "3|1");
  sql_close(db);
}

static const char *ask_elsewhere(sqlite3 *db, const char *sql) {
  static asking x;
  pthread_t thread;
  x = (asking){.db = db, .sql = sql};
  ck_assert_int_eq(pthread_create(&thread, NULL, ask_aside, &x), 0);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  return x.answer;
}

/* The transaction of zke_begin() belongs to a thread.  The end of the
 * connection, and the thread's next call after a plain ROLLBACK, end it for
 * others. */
TEST(begin_ends) {
  sqlite3 *a = connect_here(), *b = connect_here();
  expect(b, "CREATE TABLE t(x)", "");
  expect(a, "SELECT zke_begin()", "1");
  ck_assert_str_eq(
      ask_elsewhere(a, "SELECT zke_commit()"),
      "ZKE_MISUSE: zke_commit() without zke_begin() on this thread");
  expect(a, "SELECT zke_session() > 0, zke_commit()", "1|1");
  expect(a, "SELECT zke_begin()", "1");
  expect(a, "ROLLBACK", "");
  ck_assert_str_eq(ask_elsewhere(a, "SELECT zke_close()"),
                   "ZKE_MISUSE: zke_close() between zke_begin() and its end");
  expect(a, "SELECT zke_exists('/a')", "0");
  expect(b, "SELECT zke_create('/a')", "/a");
  expect(a, "SELECT zke_begin()", "1");
  expect(a, "INSERT INTO t VALUES(1)", "");
  sql_close(a);
  expect(b, "SELECT zke_create('/b'), count(*) FROM t", "/b|0");
  sql_close(b);
}

/* A connection that is closed meanwhile holds nothing after that.  The calls of
 * other threads do not wait to end its session. */
TEST(closed_beside_begin) {
  sqlite3 *a = connect_here(), *b = connect_here(), *c = connect_here();
  sqlite3 *other = connect_to(test_path("b.db"), 0);
  expect(b, "SELECT zke_create('/a')", "/a");
  ck_assert_int_gt(number(c, "SELECT zke_lock('l')"), 0);
  expect(a, "SELECT zke_begin()", "1");
  refused(a, "SELECT zke_get('/a')", "ZKE_MISUSE", "and its end");
  refused(b, "SELECT zke_close()", "ZKE_MISUSE", "and its end");
  sql_close(c);
  int64_t before = test_now();
  ck_assert_str_eq(ask_elsewhere(other, "SELECT zke_get('/a')"), "NULL");
  ck_assert_int_lt(test_now() - before, test_patience(5000));
  expect(a, "SELECT zke_commit()", "1");
  ck_assert_int_gt(number(b, "SELECT zke_lock('l', 60000)"), 0);
  sql_close(a), sql_close(b), sql_close(other);
}

/* The first call would wait for the transaction's own lock. */
TEST(first_call_in_a_transaction) {
  sqlite3 *db = connect_here();
  expect(db, "BEGIN IMMEDIATE", "");
  refused(db, "SELECT zke_get('/a')", "ZKE_MISUSE", "first call");
  refused(db, "SELECT * FROM zke_locks_held()", "ZKE_MISUSE", "first call");
  expect(db, "COMMIT", "");
  expect(db, "SELECT zke_get('/a')", "NULL");
  sql_close(db);
}

/* If the program's own transaction keeps a function from adopting the
 * connection, a later call adopts it. */
TEST(adopted_later) {
  sqlite3 *db = connect_here();
  expect(db, "PRAGMA journal_mode=WAL", "wal");
  expect(db, "CREATE TABLE t(x)", "");
  expect(db, "BEGIN", "");
  expect(db, "SELECT count(*) FROM t", "0");
  expect(db, "SELECT zke_exists('/a')", "0");
  expect(db, "COMMIT", "");
  expect(db, "SELECT zke_begin(), zke_commit()", "1|1");
  expect(db, "PRAGMA wal_autocheckpoint", "0");
  sql_close(db);
}

/* A lock's token fences the program's rows, also in a trigger: only this
 * function may be called there. */
TEST(fence) {
  sqlite3 *a = connect_here(), *b = connect_here();
  char sql[256];
  expect(a, "CREATE TABLE t(x, token)", "");
  expect(a, "SELECT zke_session() > 0", "1");
  expect(b, "SELECT zke_session() > 0", "1");
  expect(a,
         "CREATE TRIGGER g BEFORE INSERT ON t BEGIN SELECT "
         "zke_claim('/locks/l', NEW.token); END",
         "");
  long long token = number(a, "SELECT zke_lock('l')");
  snprintf(sql, sizeof sql, "INSERT INTO t VALUES(1, %lld)", token);
  expect(b, sql, "");
  expect(a, "SELECT zke_unlock('l')", "1");
  expect(b, sql, "fenced: that token does not hold /locks/l");
  expect(a, "CREATE VIEW v AS SELECT zke_unlock('l')", "");
  expect(a, "SELECT * FROM v", "unsafe use of zke_unlock()");
  expect(a, "CREATE VIEW w AS SELECT * FROM zke_locks_held", "");
  expect(a, "SELECT * FROM w",
         "unsafe use of virtual table \"zke_locks_held\"");
  sql_close(a), sql_close(b);
}

/* A program that only writes its own rows does not make the log grow without
 * end, though its connection makes no checkpoints (P12). */
TEST(log_stays_short) {
  struct stat st;
  char log[512];
  sqlite3 *db = connect_here();
  expect(db, "CREATE TABLE t(x)", "");
  expect(db, "SELECT zke_session() > 0", "1");
  expect(db, "PRAGMA synchronous=OFF", "");
  for (int i = 0; i < 3000; i++)
    expect(db, "INSERT INTO t VALUES(zeroblob(4000))", "");
  snprintf(log, sizeof log, "%s-wal", test_path("a.db"));
  ck_assert_int_eq(stat(log, &st), 0);
  ck_assert_int_lt(st.st_size, 2500 * 4096);
  expect(db, "SELECT count(*) FROM t", "3000");
  sql_close(db);
}

/* ---- connections of all kinds ---- */

/* Loaded twice, also from another file, closed with open statements, closed and
 * used again. */
TEST(connection_ends) {
  char command[1200];
  sqlite3 *a = connect_here(), *b = connect_here();
  sql_load(a);
  ck_assert_int_gt(number(a, "SELECT zke_lock('l')"), 0);
  sql_load(a);
  snprintf(command, sizeof command, "cp '%s' '%s'", sql_library(),
           test_path("zkembed.so"));
  ck_assert_int_eq(system(command), 0);
  sqlite3_enable_load_extension(a, 1);
  ck_assert_int_eq(
      sqlite3_load_extension(a, test_path("zkembed.so"), NULL, NULL),
      SQLITE_OK);
  expect(a, "SELECT zke_holder('l') IS NULL", "0");
  sqlite3_stmt *st;
  ck_assert_int_eq(sqlite3_prepare_v2(a, "SELECT 1", -1, &st, NULL), SQLITE_OK);
  ck_assert_int_eq(sqlite3_close_v2(a), SQLITE_OK);
  expect(b, "SELECT zke_lock('l', 1)", "NULL"); /* a is a zombie */
  sqlite3_finalize(st);
  ck_assert_int_gt(number(b, "SELECT zke_lock('l', 60000)"), 0);
  expect(b, "SELECT zke_close()", "1");
  expect(b, "SELECT zke_holder('l')", "NULL");
  expect(b, "SELECT zke_begin(), zke_commit()", "1|1");
  sql_close(b);
}

/* Databases without a file, and without the permission to write. */
TEST(other_databases) {
  sqlite3 *db = connect_to(":memory:", 0);
  expect(db, "PRAGMA encoding = 'UTF-16'", "");
  expect(db, "SELECT zke_create('/a', 'one'), hex(zke_get('/a'))", "/a|6F6E65");
  refused(db, "SELECT zke_begin()", "ZKE_BADARGUMENTS", "no file to write to");
  sql_close(db);
  db = connect_to("", 0);
  expect(db, "SELECT zke_create('/a', '1'), zke_get('/a')", "/a|1");
  sql_close(db);
  db = connect_to("file:/shared?vfs=memdb",
                  SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI);
  refused(db, "SELECT zke_create('/a')", "ZKE_BADARGUMENTS", "use a file");
  sql_close(db);
  db = connect_here();
  expect(db, "SELECT zke_create('/a', '1')", "/a");
  expect(db, "ATTACH ':memory:' AS other", "");
  expect(db, "SELECT zke_get('/a')", "1"); /* of main */
  sql_close(db);
  db = connect_to(test_path("a.db"), SQLITE_OPEN_READONLY);
  expect(db, "SELECT zke_get('/a')", "1");
  refused(db, "SELECT zke_set('/a', '2')", "ZKE_READONLY", "");
  sql_close(db);
}

/* A handle on another file of that name would have the locks of other rows. */
TEST(replaced) {
  char other[512];
  sqlite3 *db = connect_here();
  expect(db, "SELECT zke_create('/a')", "/a");
  snprintf(other, sizeof other, "%s", test_path("b.db"));
  ck_assert_int_eq(rename(test_path("a.db"), other), 0);
  expect(db, "SELECT zke_close()", "1");
  refused(db, "SELECT zke_get('/a')", "ZKE_REPLACED", "a.db was removed");
  ck_assert_int_ne(access(test_path("a.db"), F_OK), 0);
  sql_close(db);
}

static int ask_in_child(void *db) {
  return strncmp(ask(db, "SELECT zke_get('/a')"), "ZKE_FORKED: ", 12) != 0;
}

/* P9: a child of fork() has a copy, which is refused and harms nobody. */
TEST(forked) {
  sqlite3 *db = connect_here();
  ck_assert_int_gt(number(db, "SELECT zke_lock('l')"), 0);
  ck_assert_int_eq(test_child_end(test_child(ask_in_child, db)), 0);
  expect(db, "SELECT zke_unlock('l'), zke_begin()", "1|1");
  ck_assert_int_eq(test_child_end(test_child(ask_in_child, db)), 0);
  expect(db, "SELECT zke_commit()", "1");
  sql_close(db);
}

/* ---- another SQLite library ---- */

typedef struct library_of {
  int (*open)(const char *, sqlite3 **);
  int (*exec)(sqlite3 *, const char *, void *, void *, char **);
  int (*close)(sqlite3 *);
  int (*enable)(sqlite3 *, int);
  int (*load)(sqlite3 *, const char *, const char *, char **);
} library_of;

static void *symbol(void *from, const char *name) {
  void *found = dlsym(from, name);
  if (!found) ck_abort_msg("%s: %s", name, dlerror());
  return found;
}

/* A copy of the library that contains this program's SQLite is another SQLite;
 * so is the system's, if SQLite is compiled in.  (Sanitizers forbid
 * RTLD_DEEPBIND.) */
static library_of load_another(void) {
  Dl_info is;
  char command[1200];
  library_of o;
  const char *another = "libsqlite3.so.0";
  if (dladdr((void *)(uintptr_t)sqlite3_open, &is) &&
      strstr(is.dli_fname, "libsqlite3")) {
    another = test_path("another.so");
    snprintf(command, sizeof command, "cp '%s' '%s'", is.dli_fname, another);
    ck_assert_int_eq(system(command), 0);
  }
  void *so = dlopen(another, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (!so) ck_abort_msg("%s", dlerror());
  *(void **)&o.open = symbol(so, "sqlite3_open");
  *(void **)&o.exec = symbol(so, "sqlite3_exec");
  *(void **)&o.close = symbol(so, "sqlite3_close");
  *(void **)&o.enable = symbol(so, "sqlite3_enable_load_extension");
  *(void **)&o.load = symbol(so, "sqlite3_load_extension");
  return o;
}

static sqlite3_api_routines old;

static int says_old(void) { return 3031001; }

static int copy_table(sqlite3 *db, char **error,
                      const sqlite3_api_routines *api) {
  (void)db, (void)error;
  old = *api;
  old.libversion_number = says_old;
  return SQLITE_OK;
}

/* An older SQLite lacks functions that the extension would call. */
TEST(old_library) {
  sqlite3 *db;
  char *error = NULL;
  int (*init)(sqlite3 *, char **, const sqlite3_api_routines *);
  void *so = dlopen(sql_library(), RTLD_NOW | RTLD_LOCAL);
  if (!so) ck_abort_msg("%s", dlerror());
  *(void **)&init = symbol(so, "sqlite3_zkembed_init");
  sqlite3_auto_extension((void (*)(void))copy_table);
  ck_assert_int_eq(sqlite3_open(":memory:", &db), SQLITE_OK);
  sqlite3_cancel_auto_extension((void (*)(void))copy_table);
  ck_assert_int_eq(init(db, &error, &old), SQLITE_ERROR);
  ck_assert(strstr(error, "needs SQLite 3.37.2"));
  sqlite3_free(error);
  sql_close(db);
  dlclose(so);
}

/* The extension cannot be loaded into a second SQLite.  When the second SQLite
 * opens the file by itself, zkembed stops. */
TEST_LOOP(another_library, 0, !TEST_ADDRESS_SANITIZER) {
  library_of o = load_another();
  sqlite3 *db = connect_here(), *other;
  char *error = NULL;
  expect(db, "SELECT zke_create('/a')", "/a");
  ck_assert_int_eq(o.open(test_path("a.db"), &other), SQLITE_OK);
  o.enable(other, 1);
  ck_assert_int_ne(o.load(other, sql_library(), NULL, &error), SQLITE_OK);
  ck_assert_ptr_nonnull(strstr(error, "another SQLite library"));
  ck_assert_int_eq(o.exec(other, "SELECT * FROM zke_nodes", NULL, NULL, NULL),
                   SQLITE_OK);
  while (strcmp(ask(db, "SELECT zke_get('/a')"), "NULL") == 0) test_pause();
  refused(db, "SELECT zke_get('/a')", "ZKE_SYSTEMERROR",
          "another SQLite library of this process has");
  ck_assert_int_eq(o.close(other), SQLITE_OK); /* and breaks the locks of db */
  sql_close(db);
}
