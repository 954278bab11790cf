/* test_recipe_sql.c - the program's own SQL in what recipes change
 *
 * zke_op_sql() among the operations that a recipe takes along.  It takes effect
 * once or not at all, whatever happens to the reply; and its function's code is
 * the result.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "recipes.h"
#include "recipes/config.h"
#include "recipes/lock.h"
#include "recipes/queue.h"
#include "recipes/two_phase.h"
#include "recipes/part/znode.h"
#include "test/opened.h"
#include "test/seam.h"

/* What a function does, and how often it was called. */
typedef struct job {
  const char *sql;
  int code; /* what it returns if the SQL succeeded */
  int calls;
} job;

static int work(sqlite3 *db, int64_t zxid, void *context) {
  job *j = context;
  (void)zxid;
  j->calls++;
  int rc = sqlite3_exec(db, j->sql, NULL, NULL, NULL);
  return rc == SQLITE_OK ? j->code : rc;
}

/* Adds a row. */
static job adds(int code) {
  return (job){"INSERT INTO own DEFAULT VALUES", code, 0};
}

/* The first number of a query. */
typedef struct question {
  const char *sql;
  int64_t answer;
} question;

static int ask(sqlite3 *db, int64_t zxid, void *context) {
  question *q = context;
  sqlite3_stmt *st;
  (void)zxid;
  int rc = sqlite3_prepare_v2(db, q->sql, -1, &st, NULL);
  if (rc == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW)
    q->answer = sqlite3_column_int64(st, 0);
  sqlite3_finalize(st);
  return rc;
}

static int64_t number(zke *z, const char *sql) {
  question q = {sql, -1};
  zke_op op;
  zke_op_result result;
  zke_op_sql(&op, ask, &q);
  ck_ok(zke_multi_read(z, &op, 1, &result));
  ck_ok(result.rc);
  return q.answer;
}

static int64_t rows(zke *z) { return number(z, "SELECT count(*)FROM own"); }

/* A store in memory with a table of the program's own. */
static zke *open_own(void) {
  zke *z = test_open(":memory:");
  job j = {"CREATE TABLE own(id INTEGER PRIMARY KEY)", 0, 0};
  zke_op op;
  zke_op_sql(&op, work, &j);
  ck_ok(zke_multi(z, &op, 1, NULL));
  return z;
}

static int64_t soon(zke *z) { return zke_now(z) + 2000; }

/* A function's code, and the call's code for it: small numbers, which mean "not
 * yet" and "look again" inside the recipes; SQLite's codes; codes at which the
 * recipes look or try again; and codes that mean the end of the session, of a
 * claim or of a transaction. */
static const struct {
  int says, rc;
} sentences[] = {
    {1, 1},
    {2, 2},
    {3, 3},
    {SQLITE_FULL, SQLITE_FULL},
    {SQLITE_CONSTRAINT, SQLITE_CONSTRAINT},
    {ZKE_NONODE, ZKE_NONODE},
    {ZKE_BADVERSION, ZKE_BADVERSION},
    {ZKE_NODEEXISTS, ZKE_NODEEXISTS},
    {ZKE_NOTEMPTY, ZKE_NOTEMPTY},
    {ZKE_SESSIONEXPIRED, ZKE_SESSIONEXPIRED},
    {ZKE_CONNECTIONLOSS, ZKE_SQL},
    {ZKE_OPERATIONTIMEOUT, ZKE_SQL},
    {ZKE_INVALIDSTATE, ZKE_SQL},
    {ZKE_RUNTIMEINCONSISTENCY, ZKE_SQL},
    {ZKE_NOMEM, ZKE_SQL},
    {ZKE_LOST, ZKE_LOST},
    {ZKE_OTHERKIND, ZKE_OTHERKIND},
    {-1000, -1000},
};
enum { SENTENCES = sizeof sentences / sizeof *sentences };

/* ---- the queue ---- */

static zke_queue *queue_of(zke *z, int limit) {
  zke_queue_options o = {.size = sizeof o, .limit = limit};
  zke_queue *queue;
  ck_ok(zke_queue_new(z, "/jobs", &o, &queue));
  return queue;
}

static int64_t items(zke_queue *queue) {
  zke_queue_counts counts;
  ck_ok(zke_queue_size(queue, &counts));
  return counts.items;
}

static int put(zke *z, zke_queue *queue, job *j, const char *key) {
  zke_queue_put_options o = {.size = sizeof o, .key = key};
  zke_queue_value value = {"x", 1};
  zke_op op;
  zke_op_sql(&op, work, j);
  return zke_queue_put_with(queue, &value, 1, &o, &op, 1, NULL, soon(z));
}

/* 0: no reply is lost.  The step of a put is the last of its changes. */
static const int losses[] = {0, ZKE_TEST_FAIL_BEFORE, ZKE_TEST_FAIL_AFTER};

/* zke_queue_put_with() makes the row and the item once, whether the reply is
 * lost before the step, after it or not at all; without and with a key. */
TEST_LOOP(a_put_takes_sql_along_once, 0, 6) {
  zke *z = open_own();
  zke_queue *queue = queue_of(z, 0);
  job j = adds(0);
  const char *key = _i < 3 ? NULL : "a";
  ck_ok(zke_queue_put(queue, "first", 5, NULL, soon(z)));
  if (losses[_i % 3]) ck_ok(zke_test_fail(z, losses[_i % 3], 0));
  ck_ok(put(z, queue, &j, key));
  ck_assert_int_eq(rows(z), 1);
  ck_assert_int_eq(items(queue), 2);
  if (losses[_i % 3] == ZKE_TEST_FAIL_BEFORE) ck_assert_int_ge(j.calls, 1);
  zke_queue_free(queue);
}

/* The deadline passes during the step. */
static int work_long(sqlite3 *db, int64_t zxid, void *context) {
  seam_pass(60000);
  return work(db, zxid, context);
}

/* A reply that is lost after the deadline is still resolved. */
TEST(a_late_lost_reply_is_looked_into) {
  static seam s;
  zke_options o = ZKE_INIT(zke_options);
  job make = {"CREATE TABLE own(id INTEGER PRIMARY KEY)", 0, 0}, j = adds(0);
  zke_queue_value value = {"x", 1};
  zke *z;
  zke_op op;
  seam_stand();
  o.os = seam_os(&s);
  ck_ok(zke_open(":memory:", &o, &z));
  zke_op_sql(&op, work, &make);
  ck_ok(zke_multi(z, &op, 1, NULL));
  zke_queue *queue = queue_of(z, 0);
  ck_ok(zke_queue_put(queue, "first", 5, NULL, soon(z)));
  zke_op_sql(&op, work_long, &j);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
  ck_ok(zke_queue_put_with(queue, &value, 1, NULL, &op, 1, NULL, soon(z)));
  ck_assert_int_eq(rows(z), 1);
  ck_assert_int_eq(items(queue), 2);
  zke_queue_free(queue);
}

/* The call returns the function's code, after one call of it; nothing is put,
 * and nothing waits for room. */
TEST_LOOP(a_refused_put_has_the_functions_code, 0, SENTENCES) {
  zke *z = open_own();
  zke_queue *queue = queue_of(z, 5);
  job j = adds(sentences[_i].says);
  int64_t began = zke_now(z);
  ck_rc(put(z, queue, &j, NULL), sentences[_i].rc);
  ck_rc(put(z, queue, &j, "a"), sentences[_i].rc);
  ck_assert_int_eq(j.calls, 2);
  ck_assert(zke_now(z) - began < 2000);
  ck_assert_int_eq(rows(z), 0);
  ck_assert_int_eq(items(queue), 0);
  job broken = {"INSERT INTO missing VALUES(1)", 0, 0};
  ck_rc(put(z, queue, &broken, NULL), SQLITE_ERROR);
  ck_says("no such table: missing");
  zke_queue_free(queue);
}

/* SQL runs only if there is room and the key is free. */
TEST(a_put_that_cannot_be_runs_no_sql) {
  zke *z = open_own();
  zke_queue *queue = queue_of(z, 1);
  job j = adds(0);
  ck_ok(put(z, queue, &j, "a"));
  ck_rc(put(z, queue, &j, "a"), ZKE_NODEEXISTS);
  zke_queue_value value = {"x", 1};
  zke_op op;
  zke_op_result result;
  zke_op_sql(&op, work, &j);
  memset(&result, 1, sizeof result);
  ck_rc(zke_queue_put_with(queue, &value, 1, NULL, &op, 1, &result, 0),
        ZKE_LIMIT);
  ck_assert_int_eq(result.rc, 0);
  ck_assert_int_eq(j.calls, 1);
  ck_assert_int_eq(rows(z), 1);
  zke_queue_free(queue);
}

/* The caller gets the other operations' results, and the call returns their
 * refusal; impossible arguments are refused. */
TEST(a_put_takes_operations_along) {
  zke *z = open_own();
  zke_queue *queue = queue_of(z, 0);
  zke_queue_value values[2] = {{"x", 1}, {"y", 1}};
  job j = adds(0);
  zke_op ops[2];
  zke_op_result results[2];
  zke_op_create(&ops[0], "/row", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_sql(&ops[1], work, &j);
  ck_ok(zke_queue_put_with(queue, values, 2, NULL, ops, 2, results, soon(z)));
  ck_assert_str_eq(results[0].path, "/row");
  zke_results_clear(results, 2);
  ck_rc(zke_queue_put_with(queue, values, 2, NULL, ops, 2, results, soon(z)),
        ZKE_NODEEXISTS);
  ck_assert_int_eq(results[0].rc, ZKE_NODEEXISTS);
  ck_assert_int_eq(rows(z), 1);
  ck_assert_int_eq(items(queue), 2);
  ck_ok(zke_queue_put_with(queue, values, 1, NULL, NULL, 0, NULL, soon(z)));
  ck_rc(zke_queue_put_with(queue, values, 1, NULL, NULL, 1, NULL, soon(z)),
        ZKE_BADARGUMENTS);
  ck_rc(zke_queue_put_with(queue, values, 1, NULL, ops, -1, NULL, soon(z)),
        ZKE_BADARGUMENTS);
  ck_rc(zke_queue_put_with(queue, values, 0, NULL, ops, 2, NULL, soon(z)),
        ZKE_BADARGUMENTS);
  ck_rc(zke_queue_put_with(queue, NULL, 1, NULL, ops, 2, NULL, soon(z)),
        ZKE_BADARGUMENTS);
  ck_rc(zke_queue_put_with(NULL, values, 1, NULL, ops, 2, NULL, soon(z)),
        ZKE_BADARGUMENTS);
  zke_queue_free(queue);
}

/* zke_queue_ack() makes the result's row and ends the claim once. */
TEST_LOOP(an_ack_takes_sql_along_once, 0, 3) {
  zke *z = open_own();
  zke_queue *queue = queue_of(z, 0);
  zke_queue_item *item;
  job j = adds(0);
  zke_op op;
  zke_op_result result;
  ck_ok(zke_queue_put(queue, "x", 1, NULL, soon(z)));
  ck_ok(zke_queue_claim(queue, soon(z), &item));
  zke_op_sql(&op, work, &j);
  if (losses[_i]) ck_ok(zke_test_fail(z, losses[_i], 0));
  ck_ok(zke_queue_ack(queue, item, &op, 1, NULL));
  ck_assert_int_eq(rows(z), 1);
  ck_assert_int_eq(items(queue), 0);
  memset(&result, 1, sizeof result);
  ck_rc(zke_queue_ack(queue, item, &op, 1, &result), ZKE_LOST);
  ck_assert_int_eq(result.rc, 0);
  zke_results_clear(&result, 1);
  ck_assert_int_eq(rows(z), 1);
  zke_free(item);
  zke_queue_free(queue);
}

/* A refused ack returns the function's code, after one call of it, and the
 * claims stay: of one item and of two. */
TEST_LOOP(a_refused_ack_has_the_functions_code, 0, SENTENCES) {
  zke *z = open_own();
  zke_queue *queue = queue_of(z, 0);
  zke_queue_item *some[2];
  job j = adds(sentences[_i].says);
  zke_op op;
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_queue_put(queue, "x", 1, NULL, soon(z)));
    ck_ok(zke_queue_claim(queue, soon(z), &some[i]));
  }
  zke_op_sql(&op, work, &j);
  ck_rc(zke_queue_ack(queue, some[0], &op, 1, NULL), sentences[_i].rc);
  ck_rc(zke_queue_ack_all(queue, some, 2, &op, 1, NULL), sentences[_i].rc);
  ck_assert_int_eq(j.calls, 2);
  ck_assert_int_eq(rows(z), 0);
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_queue_check(queue, some[i]));
    ck_ok(zke_queue_ack(queue, some[i], NULL, 0, NULL));
    zke_free(some[i]);
  }
  zke_queue_free(queue);
}

/* ---- a lock's guard, and zke_recipe_multi() ---- */

/* zke_recipe_multi() makes the call once: it reports a lost reply, and passes
 * on the function's code. */
TEST(a_multi_is_made_once) {
  zke *z = open_own();
  zke_op op;
  job j = adds(0);
  zke_op_sql(&op, work, &j);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_BEFORE, 0));
  ck_rc(zke_recipe_multi(z, &op, 1, NULL), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(rows(z), 0);
  ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
  ck_rc(zke_recipe_multi(z, &op, 1, NULL), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(rows(z), 1);
  j.code = SQLITE_ERROR;
  ck_rc(zke_recipe_multi(z, &op, 1, NULL), SQLITE_ERROR);
  ck_assert_int_eq(rows(z), 1);
}

/* With zke_lock_op() before the SQL, a former holder's function is not called.
 * With it after the SQL, it is called and has no effect. */
TEST_LOOP(a_former_holder_changes_no_row, 0, 2) {
  zke *z = open_own(), *other = test_session(z, NULL);
  zke_lock *lock, *next;
  zke_op ops[2];
  job j = adds(0);
  ck_ok(zke_lock_new(z, "/lock", NULL, &lock));
  ck_ok(zke_lock_acquire(lock, soon(z)));
  zke_op_sql(&ops[1 - _i], work, &j);
  ck_ok(zke_lock_op(lock, &ops[_i]));
  ck_ok(zke_recipe_multi(z, ops, 2, NULL));
  ck_assert_int_eq(rows(z), 1);
  ck_ok(zke_lock_break(other, "/lock", zke_lock_token(lock)));
  ck_ok(zke_lock_new(other, "/lock", NULL, &next));
  ck_ok(zke_lock_acquire(next, soon(other)));
  ck_rc(zke_recipe_multi(z, ops, 2, NULL), ZKE_NONODE);
  ck_assert_int_eq(j.calls, 1 + _i);
  ck_assert_int_eq(rows(z), 1);
  zke_lock_free(next);
  zke_lock_free(lock);
}

/* ---- the two-phase commit ----
 *
 * A site's vote takes along its row in "sale"; its acknowledgement sells the
 * row or deletes it, and adds a row to "told".  The tables show what is done
 * twice: the site is the key of "sale", and "told" takes any number of rows. */

enum { C = ZKE_TWO_PHASE_COMMIT, A = ZKE_TWO_PHASE_ABORT, SETTLES = 2 };
static const char *const sites[] = {"a", "b"};

static const char make_sale[] =
    "CREATE TABLE IF NOT EXISTS sale(site TEXT PRIMARY KEY,state TEXT);"
    "CREATE TABLE IF NOT EXISTS told(site TEXT,decision TEXT);"
    "DELETE FROM sale;DELETE FROM told";

/* A site's statement; ?1 is the site. */
typedef struct part {
  const char *sql, *site;
  int code; /* what it returns if the SQL succeeded */
  int calls;
} part;

static int play(sqlite3 *db, int64_t zxid, void *context) {
  part *p = context;
  sqlite3_stmt *st;
  (void)zxid;
  p->calls++;
  int rc = sqlite3_prepare_v2(db, p->sql, -1, &st, NULL);
  if (rc != SQLITE_OK) return rc;
  sqlite3_bind_text(st, 1, p->site, -1, SQLITE_STATIC);
  sqlite3_step(st);
  rc = sqlite3_finalize(st);
  return rc == SQLITE_OK ? p->code : rc;
}

/* Vote commit, with the row; the function returns `code` at its end. */
static int reserve(zke_two_phase *t, const char *site, int code, int *done) {
  part p = {"INSERT INTO sale VALUES(?1,'?')", site, code, 0};
  zke_op op;
  zke_op_sql(&op, play, &p);
  int rc = zke_two_phase_vote_with(t, C, &op, 1, NULL, done);
  if (code) ck_assert_int_eq(p.calls, 1);
  return rc;
}

/* Acknowledge a decision: sell the row or delete it, and note that. */
static int settle(zke_two_phase *t, const char *site, int decision, int code,
                  int *done) {
  static const char *const sale[] = {"",
                                     "UPDATE sale SET state='C'WHERE site=?1",
                                     "DELETE FROM sale WHERE site=?1"};
  static const char *const told[] = {"", "INSERT INTO told VALUES(?1,'C')",
                                     "INSERT INTO told VALUES(?1,'A')"};
  part parts[SETTLES] = {{sale[decision], site, 0, 0},
                         {told[decision], site, code, 0}};
  zke_op ops[SETTLES];
  for (int i = 0; i < SETTLES; i++) zke_op_sql(&ops[i], play, &parts[i]);
  int rc = zke_two_phase_ack_with(t, ops, SETTLES, NULL, done);
  if (code) ck_assert_int_eq(parts[1].calls, 1);
  return rc;
}

/* Make the tables, or empty them. */
static void prepare_sale(zke *z) {
  job j = {make_sale, 0, 0};
  zke_op op;
  zke_op_sql(&op, work, &j);
  ck_ok(zke_multi(z, &op, 1, NULL));
}

/* The sites' rows are sold, or gone, and each was told once. */
static void ck_settled(zke *z, int decision) {
  bool commit = decision == C;
  ck_assert_int_eq(number(z, "SELECT count(*)FROM sale"), commit ? 2 : 0);
  ck_assert_int_eq(number(z, "SELECT count(*)FROM sale WHERE state='C'"),
                   commit ? 2 : 0);
  ck_assert_int_eq(number(z, "SELECT count(*)FROM told"), 2);
  ck_assert_int_eq(number(z, "SELECT count(DISTINCT site)FROM told"), 2);
  ck_assert_int_eq(number(z, "SELECT count(*)FROM told WHERE decision='C'"),
                   commit ? 2 : 0);
}

/* A store with a transaction: its coordinator leaves immediately, its sites are
 * t. */
static zke *begin_sale(zke_two_phase *t[2]) {
  zke *z = test_open(":memory:");
  zke_two_phase *all;
  prepare_sale(z);
  ck_ok(zke_two_phase_begin(z, "/2pc", "tx", "", 0, sites, 2, NULL, &all));
  zke_two_phase_free(all);
  for (int i = 0; i < 2; i++)
    ck_ok(zke_two_phase_open(z, "/2pc", "tx", sites[i], NULL, &t[i]));
  return z;
}

static void end_sale(zke *z, zke_two_phase *t[2]) {
  for (int i = 0; i < 2; i++) zke_two_phase_free(t[i]);
  ck_rc(zke_exists(z, "/2pc/tx", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* The vote makes the row once, and the acknowledgement sells it once, whether
 * the reply is lost before the step, after it or not at all. */
TEST_LOOP(votes_and_acks_take_sql_along_once, 0, 3) {
  zke_two_phase *t[2];
  zke *z = begin_sale(t);
  int done = -1;
  for (int i = 0; i < 2; i++) {
    if (losses[_i]) ck_ok(zke_test_fail(z, losses[_i], 0));
    ck_ok(reserve(t[i], sites[i], 0, &done));
    ck_assert_int_eq(done, ZKE_TWO_PHASE_DONE);
    ck_ok(reserve(t[i], sites[i], 0, &done));
    ck_assert_int_eq(done, ZKE_TWO_PHASE_DONE_BEFORE);
  }
  ck_assert_int_eq(number(z, "SELECT count(*)FROM sale WHERE state='?'"), 2);
  for (int i = 0; i < 2; i++) {
    if (losses[_i]) ck_ok(zke_test_fail(z, losses[_i], 0));
    ck_ok(settle(t[i], sites[i], C, 0, &done));
    bool gone = i == 1 && losses[_i] == ZKE_TEST_FAIL_AFTER;
    ck_assert_int_eq(done, gone ? ZKE_TWO_PHASE_GONE : ZKE_TWO_PHASE_DONE);
    ck_ok(settle(t[i], sites[i], C, 0, NULL));
  }
  ck_settled(z, C);
  end_sale(z, t);
}

/* The function is called once, the call returns its code, and nothing is
 * changed or given: by a vote, an acknowledgement, or the last one. */
TEST_LOOP(a_refused_site_has_the_functions_code, 0, SENTENCES) {
  int says = sentences[_i].says, rc = sentences[_i].rc;
  zke_two_phase *t[2];
  zke_two_phase_status *st;
  zke *z = begin_sale(t);
  ck_rc(reserve(t[0], "a", says, NULL), rc);
  ck_ok(zke_two_phase_get(z, "/2pc", "tx", &st));
  ck_assert_int_eq(st->sites[0].vote, ZKE_TWO_PHASE_UNDECIDED);
  zke_free(st);
  ck_assert_int_eq(number(z, "SELECT count(*)FROM sale"), 0);
  for (int i = 0; i < 2; i++) ck_ok(reserve(t[i], sites[i], 0, NULL));
  for (int i = 0; i < 2; i++) {
    ck_rc(settle(t[i], sites[i], C, says, NULL), rc);
    ck_assert_int_eq(number(z, "SELECT count(*)FROM told"), i);
    ck_assert_int_eq(number(z, "SELECT count(*)FROM sale WHERE state='?'"),
                     2 - i);
    ck_ok(zke_two_phase_get(z, "/2pc", "tx", &st));
    ck_assert_int_eq(st->sites[i].acknowledged, 0);
    zke_free(st);
    ck_ok(settle(t[i], sites[i], C, 0, NULL));
  }
  ck_settled(z, C);
  end_sale(z, t);
}

/* The sentence is SQLite's, and the site may then vote differently. */
TEST(a_site_whose_row_is_refused_aborts) {
  zke_two_phase *t[2];
  zke *z = begin_sale(t);
  job j = {"INSERT INTO sale VALUES('a','another')", 0, 0};
  zke_op op;
  int done = -1;
  zke_op_sql(&op, work, &j);
  ck_ok(zke_multi(z, &op, 1, NULL));
  ck_rc(reserve(t[0], "a", 0, NULL), SQLITE_CONSTRAINT_PRIMARYKEY);
  ck_says("UNIQUE constraint failed: sale.site");
  ck_ok(zke_two_phase_vote(t[0], A));
  ck_rc(reserve(t[0], "a", 0, NULL), ZKE_MISUSE); /* its next process */
  ck_ok(reserve(t[1], "b", 0, &done)); /* it is decided: no SQL is run */
  ck_assert_int_eq(done, ZKE_TWO_PHASE_NOT_DONE);
  ck_assert_int_eq(number(z, "SELECT count(*)FROM sale"), 1);
  for (int i = 0; i < 2; i++) ck_ok(settle(t[i], sites[i], A, 0, NULL));
  ck_settled(z, A);
  end_sale(z, t);
}

/* ---- deaths, lost replies and faults, with rows ---- */

static int sale_form;

/* A use returns codes of the library; SQLite's code for failed memory is not
 * one. */
static int as_code(int rc) {
  return rc > 0 ? zke_fail(ZKE_SQL, "SQLite's code %d", rc) : rc;
}

static int finish_site(zke *z, zke_two_phase *t, const char *site) {
  int decision = 0;
  int rc = zke_two_phase_wait(t, zke_now(z) + recipe_patience_ms, &decision);
  return rc == ZKE_OK ? as_code(settle(t, site, decision, 0, NULL)) : rc;
}

/* One process is the coordinator and both sites. */
static int use_sale(zke *z) {
  zke_two_phase_options o = {.size = sizeof o, .form = sale_form};
  zke_two_phase *all = NULL, *t[2] = {NULL};
  int rc = zke_two_phase_begin(z, "/2pc", "tx", "", 0, sites, 2, &o, &all);
  for (int i = 0; i < 2 && rc == ZKE_OK; i++)
    rc = zke_two_phase_open(z, "/2pc", "tx", sites[i], NULL, &t[i]);
  for (int i = 0; i < 2 && rc == ZKE_OK; i++)
    rc = as_code(reserve(t[i], sites[i], 0, NULL));
  if (rc == ZKE_OK)
    rc = zke_two_phase_wait(all, zke_now(z) + recipe_patience_ms, NULL);
  for (int i = 0; i < 2 && rc == ZKE_OK; i++)
    rc = finish_site(z, t[i], sites[i]);
  if (rc == ZKE_OK) rc = zke_two_phase_ack(all);
  for (int i = 0; i < 2; i++) zke_two_phase_free(t[i]);
  zke_two_phase_free(all);
  return rc;
}

/* Both sites come again with the same calls; if the transaction is gone, it was
 * settled. */
static void check_sale(zke *other, int rc) {
  zke_two_phase *t[2] = {NULL};
  for (int i = 0; i < 2; i++) {
    int there = zke_two_phase_open(other, "/2pc", "tx", sites[i], NULL, &t[i]);
    if (there == ZKE_NONODE) continue;
    ck_ok(there);
    ck_ok(reserve(t[i], sites[i], 0, NULL));
  }
  for (int i = 0; i < 2; i++) {
    if (t[i]) ck_ok(finish_site(other, t[i], sites[i]));
    zke_two_phase_free(t[i]);
  }
  if (rc != ZKE_OK && number(other, "SELECT count(*)FROM told") == 0) {
    ck_assert_int_eq(number(other, "SELECT count(*)FROM sale"), 0);
    return; /* it was not begun */
  }
  bool sold = number(other, "SELECT count(*)FROM told WHERE decision='C'") > 0;
  if (rc == ZKE_OK) ck_assert(sold);
  ck_settled(other, sold ? C : A);
}

static const recipe_use sale_use = {"two_phase_sql", prepare_sale, use_sale,
                                    check_sale};

/* A site's process dies before and after each of its steps: its next process
 * does what is left, and nothing twice. */
TEST_LOOP(a_death_anywhere_leaves_rows_to_finish, 0, 4) {
  sale_form = _i;
  ck_assert_int_gt(recipe_deaths(&sale_use), 20);
}

/* Each of its replies is lost. */
TEST_LOOP(a_lost_reply_doubles_no_row, 0, 4) {
  sale_form = _i;
  recipe_lost_replies(&sale_use);
}

/* Each of its allocations and system calls fails, and its session ends at any
 * place. */
TEST_LOOP(a_fault_doubles_no_row, 0, 4) {
  setenv("FAULT_MOST", "15", 0);
  sale_form = _i;
  recipe_faults(&sale_use);
}

/* ---- the configuration ---- */

/* zke_config_set_guarded() is repeated after a lost reply, and only its guards
 * could show that the first try took effect.  So an operation that writes is
 * refused as a guard. */
TEST(sql_is_no_guard) {
  zke *z = open_own();
  zke_config *config;
  zke_op op;
  job j = adds(0);
  ck_ok(zke_config_new(z, "/app", NULL, &config));
  zke_op_sql(&op, work, &j);
  ck_rc(zke_config_set_guarded(config, "mode", "on", 2, -1, &op, 1, soon(z),
                               NULL),
        ZKE_BADARGUMENTS);
  ck_says("guard 0 is not a check");
  ck_assert_int_eq(j.calls, 0);
  zke_config_free(config);
}
