/* outbox.c - an order's row and its message, in one commit
 *
 *   outbox DATABASE          the demo: makes DATABASE, starts the other two,
 *                            kills one of each and checks the tables
 *   outbox DATABASE shop N   place N orders
 *   outbox DATABASE mailer   confirm orders, until it is killed
 *
 * A shop writes a row into its table "orders", and a mailer in another process
 * is to confirm it.  If row and message are two commits, a death between them
 * leaves an order that nobody confirms, or a message about no order.  Here the
 * message is an item of a queue in the same database:
 *
 *   orders            the shop's table
 *   mail              the mailer's: what was sent
 *   /outbox           the queue (recipes/queue.h): a reference for each order
 *
 * The shop puts the item and inserts the row in one step (zke_queue_put_with()
 * with zke_op_sql()); the mailer is woken by it.  It stores what it has done in
 * one step with the acknowledgement (zke_queue_ack() with zke_op_sql()).  So
 * every order is confirmed once, whatever dies at whatever moment, by one sync
 * for each step.
 */
#define _XOPEN_SOURCE 700 /* posix_spawn, kill */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/queue.h"
#include "zkembed.h"

extern char **environ;

enum {
  ORDERS = 40,         /* of each shop of the demo */
  PATIENCE_MS = 60000, /* so long for a lock or an item: something is wrong */
  NO_ORDER = 1000      /* own code: the item is about an order that is not */
};

static const char tables[] =
    "CREATE TABLE IF NOT EXISTS orders(id INTEGER PRIMARY KEY,"
    "reference TEXT NOT NULL UNIQUE,what TEXT NOT NULL,zxid INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS mail(id INTEGER PRIMARY KEY,"
    "order_id INTEGER NOT NULL REFERENCES orders,text TEXT NOT NULL)";

/* ---- small things ---- */

static void give_up(const char *what, const char *why) {
  fprintf(stderr, "outbox: %s: %s\n", what, why);
  exit(1);
}

/* For calls that fail only when the disk or the program itself is broken. */
static void must(int rc, const char *what) {
  if (rc != ZKE_OK) give_up(what, zke_errmsg());
}

/* For zke_op_sql(): run a text. */
static int run_text(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid;
  return sqlite3_exec(db, context, NULL, NULL, NULL);
}

/* Open the shop's database, and make the tables that are missing in it. */
static zke *open_shop(const char *database, const char *identity) {
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
  return z;
}

static zke_queue *open_outbox(zke *z) {
  zke_queue *queue;
  must(zke_queue_new(z, "/outbox", NULL, &queue), "/outbox");
  return queue;
}

/* ---- the shop ---- */

typedef struct order {
  char reference[64]; /* known before the row is there: the item bears it */
  const char *what;
} order;

/* The row, in the transaction that puts the item; zxid is the transaction's. */
static int insert_order(sqlite3 *db, int64_t zxid, void *context) {
  const order *o = context;
  sqlite3_stmt *st;
  int rc = sqlite3_prepare_v2(
      db, "INSERT INTO orders(reference,what,zxid)VALUES(?,?,?)", -1, &st,
      NULL);
  if (rc != SQLITE_OK) return rc;
  sqlite3_bind_text(st, 1, o->reference, -1, SQLITE_STATIC);
  sqlite3_bind_text(st, 2, o->what, -1, SQLITE_STATIC);
  sqlite3_bind_int64(st, 3, zxid);
  sqlite3_step(st);
  return sqlite3_finalize(st); /* the code of the step, if it failed */
}

static void place_order(zke *z, zke_queue *queue, order *o) {
  zke_queue_value value = {o->reference, (int)strlen(o->reference)};
  int64_t until = zke_now(z) + PATIENCE_MS;
  zke_op row;
  zke_op_sql(&row, insert_order, o);
  must(zke_queue_put_with(queue, &value, 1, NULL, &row, 1, NULL, until),
       o->reference);
}

static void be_shop(const char *database, long count) {
  zke *z = open_shop(database, "shop");
  zke_queue *queue = open_outbox(z);
  for (long i = 0; i < count; i++) {
    order o = {.what = i % 2 ? "tea" : "coffee"};
    snprintf(o.reference, sizeof o.reference, "%" PRIx64 "-%ld",
             zke_session_id(z), i);
    place_order(z, queue, &o);
  }
  zke_queue_free(queue);
  must(zke_close(z), "closing");
}

/* ---- the mailer ---- */

/* What was sent, in the transaction that acknowledges the item. */
static int insert_mail(sqlite3 *db, int64_t zxid, void *context) {
  const zke_queue_item *item = context;
  sqlite3_stmt *st;
  (void)zxid;
  int rc = sqlite3_prepare_v2(
      db,
      "INSERT INTO mail(order_id,text)SELECT id,'your '||what||' comes' "
      "FROM orders WHERE reference=?",
      -1, &st, NULL);
  if (rc != SQLITE_OK) return rc;
  sqlite3_bind_text(st, 1, item->data, item->len, SQLITE_STATIC);
  sqlite3_step(st);
  rc = sqlite3_finalize(st);
  if (rc == SQLITE_OK && sqlite3_changes(db) != 1)
    return zke_fail(NO_ORDER, "no order %s", item->data);
  return rc;
}

/* ZKE_LOST: the item is another's by now, which will confirm it; nothing was
 * stored. */
static void confirm(zke_queue *queue, zke_queue_item *item) {
  zke_op sent;
  zke_op_sql(&sent, insert_mail, item);
  int rc = zke_queue_ack(queue, item, &sent, 1, NULL);
  if (rc != ZKE_LOST) must(rc, item->data);
}

static void be_mailer(const char *database) {
  zke *z = open_shop(database, "mailer");
  zke_queue *queue = open_outbox(z);
  for (;;) {
    zke_queue_item *item;
    must(zke_queue_claim(queue, ZKE_FOREVER, &item), "waiting for orders");
    confirm(queue, item);
    zke_free(item);
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

/* For zke_op_sql(): the first number of a query. */
typedef struct question {
  const char *sql;
  int64_t answer;
} question;

static int ask(sqlite3 *db, int64_t zxid, void *context) {
  question *q = context;
  sqlite3_stmt *st;
  (void)zxid;
  int rc = sqlite3_prepare_v2(db, q->sql, -1, &st, NULL);
  if (rc != SQLITE_OK) return rc;
  if (sqlite3_step(st) == SQLITE_ROW) q->answer = sqlite3_column_int64(st, 0);
  return sqlite3_finalize(st);
}

static int64_t number(zke *z, const char *sql) {
  question q = {sql, -1};
  zke_op op;
  zke_op_result r;
  zke_op_sql(&op, ask, &q);
  must(zke_multi_read(z, &op, 1, &r), sql);
  if (r.rc != ZKE_OK) give_up(sql, "cannot be answered");
  return q.answer;
}

/* Orders without a confirmation are those whose item is still there. */
static bool is_all_sent(zke *z, zke_queue *queue) {
  zke_queue_counts c;
  must(zke_queue_size(queue, &c), "/outbox");
  return c.items == 0 && number(z,
                                "SELECT count(*)FROM orders WHERE id NOT IN"
                                "(SELECT order_id FROM mail)") == 0;
}

static void woken(zke *z, int type, int state, const char *path,
                  void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

/* Wait until the queue is empty: each end of an item is an event. */
static void await_all_sent(zke *z, zke_queue *queue) {
  must(zke_add_watch(z, "/outbox", ZKE_WATCH_PERSISTENT_RECURSIVE, woken, NULL),
       "/outbox");
  while (!is_all_sent(z, queue))
    must(zke_wait(z, zke_now(z) + PATIENCE_MS), "waiting for the mailers");
}

/* A shop and a mailer are killed in the middle. */
static bool demo(const char *program, const char *database) {
  char count[16];
  snprintf(count, sizeof count, "%d", ORDERS);
  pid_t shop[2], mailer[2];
  for (int i = 0; i < 2; i++) {
    shop[i] = start(program, database, "shop", i ? count : "1000000");
    mailer[i] = start(program, database, "mailer", NULL);
  }
  while (waitpid(shop[1], NULL, 0) < 0 && errno == EINTR) continue;
  end(shop[0]);
  end(mailer[0]);
  zke *z = open_shop(database, "demo");
  zke_queue *queue = open_outbox(z);
  await_all_sent(z, queue);
  end(mailer[1]);
  int64_t orders = number(z, "SELECT count(*)FROM orders");
  int64_t mail = number(z, "SELECT count(*)FROM mail");
  int64_t twice =
      number(z, "SELECT count(*)-count(DISTINCT order_id)FROM mail");
  printf("a shop and a mailer were killed; every order has one mail: %s\n",
         orders == mail && !twice ? "yes" : "NO");
  zke_queue_free(queue);
  must(zke_close(z), "closing");
  return orders == mail && !twice && orders >= ORDERS;
}

int main(int argc, char **argv) {
  if (argc == 2) return demo(argv[0], argv[1]) ? 0 : 1;
  if (argc == 4 && strcmp(argv[2], "shop") == 0)
    be_shop(argv[1], strtol(argv[3], NULL, 10));
  else if (argc == 3 && strcmp(argv[2], "mailer") == 0)
    be_mailer(argv[1]);
  else
    give_up("usage", "outbox DATABASE [shop N | mailer]");
  return 0;
}
