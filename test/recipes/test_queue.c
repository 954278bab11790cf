/* test_queue.c - the queue (recipes/queue.h)
 *
 * Interleavings are driven step by step with several sessions on one store;
 * waiting is done by threads and by processes.  Deaths, lost replies and
 * faults come from recipes.h.
 */
#include "crew.h"
#include "recipes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recipes/queue.h"
#include "test/seam.h"

#define PATH "/jobs"

/* ---- sessions and queues ---- */

enum { SESSIONS = 3 };
static zke *z[SESSIONS]; /* of one store in memory */
static zke_queue *q[SESSIONS];

/* Listeners write here what they hear. */
static char told[SESSIONS][200];

/* The listener: writes the event, the item's name and whether there is a
 * token. */
static void listen(zke_queue *queue, int event, int64_t token, const char *name,
                   void *context) {
  char *text = context;
  (void)queue;
  size_t used = strlen(text);
  snprintf(text + used, 200 - used, "%d %s %s;", event, name ? name : "ended",
           token ? "token" : "-");
}

/* Three sessions of one store, each with the queue, by these options. */
static void open_with(const zke_queue_options *options) {
  static const char *const names[SESSIONS] = {"ann", "bob", "cid"};
  zke_options o = {.size = sizeof o, .identity = names[0]};
  ck_ok(zke_open(":memory:", &o, &z[0]));
  for (int i = 0; i < SESSIONS; i++) {
    o.identity = names[i];
    if (i) ck_ok(zke_open_session(z[0], &o, &z[i]));
    zke_queue_options mine = {.size = sizeof mine};
    if (options) mine = *options;
    mine.context = told[i];
    told[i][0] = '\0';
    ck_ok(zke_queue_new(z[i], PATH, &mine, &q[i]));
  }
}

static void open_all(void) { open_with(NULL); }

static void open_listening(void) {
  zke_queue_options o = {.size = sizeof o, .listener = listen};
  open_with(&o);
}

/* Items, and whatever else others have made beside them. */
static int items(zke *session) {
  zke_strings *names = NULL;
  int rc = zke_children(session, PATH "/entries", NULL, NULL, &names, NULL);
  if (rc == ZKE_NONODE) return 0;
  ck_ok(rc);
  int count = names->count;
  for (int i = 0; i < names->count; i++)
    count -= strcmp(names->data[i], "line") == 0;
  zke_free(names);
  return count;
}

/* Whatever happened: no claim, no place in the line is left. */
static void close_all(void) {
  for (int i = SESSIONS - 1; i >= 0; i--) {
    zke_strings *left = NULL;
    zke_queue_free(q[i]);
    if (zke_ephemerals(z[i], 0, PATH "/taken", &left) == ZKE_OK) {
      ck_assert_int_eq(left->count, 0);
      zke_free(left);
      ck_ok(zke_ephemerals(z[i], 0, PATH "/entries/line", &left));
      ck_assert_int_eq(left->count, 0);
      zke_free(left);
    }
  }
  for (int i = SESSIONS - 1; i >= 0; i--) ck_ok(zke_close(z[i]));
}

static void dispatch_all(void) {
  for (int i = 0; i < SESSIONS; i++) zke_dispatch(z[i], NULL);
}

static void put(zke_queue *queue, const char *text) {
  ck_ok(zke_queue_put(queue, text, (int)strlen(text), NULL, 0));
}

static void put_as(zke_queue *queue, const char *text, int priority,
                   int ephemeral, int64_t due_ms) {
  zke_queue_put_options o = {.size = sizeof o,
                             .priority = priority,
                             .ephemeral = ephemeral,
                             .due_ms = due_ms};
  ck_ok(zke_queue_put(queue, text, (int)strlen(text), &o, 0));
}

static int put_key(zke_queue *queue, const char *text, const char *key) {
  zke_queue_put_options o = {.size = sizeof o, .key = key};
  return zke_queue_put(queue, text, (int)strlen(text), &o, 0);
}

/* Claim the next item, which has this text; the claim has a token. */
static zke_queue_item *claim(zke_queue *queue, const char *text) {
  zke_queue_item *item = NULL;
  ck_ok(zke_queue_claim(queue, 0, &item));
  ck_assert_str_eq(item->data, text);
  ck_assert_int_eq(item->len, (int)strlen(text));
  ck_assert_int_gt(item->token, 0);
  return item;
}

static void ack(zke_queue *queue, zke_queue_item *item) {
  ck_ok(zke_queue_ack(queue, item, NULL, 0, NULL));
  zke_free(item);
}

static void release(zke_queue *queue, zke_queue_item *item) {
  ck_ok(zke_queue_release(queue, item, 0, NULL));
  zke_free(item);
}

/* Take the next item, which has this text, and no token since it is gone. */
static void take(zke_queue *queue, const char *text) {
  zke_queue_item *item = NULL;
  ck_ok(zke_queue_take(queue, 0, &item));
  ck_assert_str_eq(item->data, text);
  ck_assert_int_eq(item->token, 0);
  zke_free(item);
}

/* There is nothing to take or to claim, by deadlines that are over. */
static void expect_nothing(zke_queue *queue) {
  zke_queue_item *item = NULL;
  ck_rc(zke_queue_take(queue, 0, &item), ZKE_OPERATIONTIMEOUT);
  ck_assert_ptr_null(item);
  ck_rc(zke_queue_claim(queue, 0, &item), ZKE_OPERATIONTIMEOUT);
  ck_assert_ptr_null(item);
}

static zke_queue_counts size_of(zke_queue *queue) {
  zke_queue_counts c;
  ck_ok(zke_queue_size(queue, &c));
  return c;
}

/* ---- threads that wait ---- */

typedef struct waiter {
  pthread_t thread;
  zke_queue *queue;
  int64_t deadline;
  bool putting, claiming;
  int rc;
  zke_queue_item *item;
  char sentence[300];
  int done; /* atomic */
} waiter;

/* The thread of a waiter: puts, claims or takes. */
static void *wait_thread(void *arg) {
  waiter *w = arg;
  if (w->putting)
    w->rc = zke_queue_put(w->queue, "late", 4, NULL, w->deadline);
  else if (w->claiming)
    w->rc = zke_queue_claim(w->queue, w->deadline, &w->item);
  else
    w->rc = zke_queue_take(w->queue, w->deadline, &w->item);
  if (w->rc != ZKE_OK)
    snprintf(w->sentence, sizeof w->sentence, "%s", zke_errmsg());
  __atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static bool is_done(waiter *w) {
  return __atomic_load_n(&w->done, __ATOMIC_ACQUIRE) != 0;
}

/* Start a thread and wait until it stands in the line. */
static void begin_wait(waiter *w, zke *session) {
  zke_queue *look;
  ck_ok(zke_queue_new(session, PATH, NULL, &look));
  zke_queue_counts before = size_of(look);
  int count = before.takers + before.putters + 1;
  ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_thread, w), 0);
  ck_until(size_of(look).takers + size_of(look).putters == count, 5000);
  zke_queue_free(look);
}

/* Does the session watch a claim?  That is the last it does before it sleeps.
 */
static bool watches_claim(zke *session) {
  zke_watch_list *list;
  bool found = false;
  ck_ok(zke_watches(session, &list));
  for (int i = 0; i < list->count; i++)
    found |= list->data[i].session == zke_session_id(session) &&
             strncmp(list->data[i].path, PATH "/taken/entry-", 18) == 0;
  zke_free(list);
  return found;
}

static void end_wait(waiter *w, int rc) {
  ck_until(is_done(w), 5000);
  pthread_join(w->thread, NULL);
  ck_assert_msg(w->rc == rc, "waiting gave %s: %s", zke_error_name(w->rc),
                w->sentence);
}

/* ---- order ---- */

/* "The item order is by number". */
TEST(items_go_out_in_the_order_they_came) {
  open_all();
  put(q[0], "a");
  put(q[1], "b");
  put(q[0], "c");
  take(q[2], "a");
  put(q[1], "d");
  take(q[2], "b");
  take(q[1], "c");
  take(q[2], "d");
  expect_nothing(q[2]);
  ck_says("is empty");
  close_all();
}

/* "Priority queue with the same interface, fresh list on every change": one
 * that came later but is more urgent is next, even where the list was read. */
TEST(lower_priorities_go_first) {
  open_all();
  put_as(q[0], "c", 0, 0, 0);
  put_as(q[0], "d", 101, 0, 0);
  put_as(q[0], "b", 9, 0, 0);
  take(q[1], "b");
  put_as(q[0], "a", 1, 0, 0);
  put_as(q[2], "e", 999, 0, 0);
  take(q[1], "a");
  take(q[1], "c");
  take(q[1], "d");
  take(q[1], "e");
  close_all();
}

/* Numbers are compared as numbers, and may wrap around. */
TEST(numbers_may_wrap_around) {
  open_all();
  expect_nothing(q[0]); /* makes the place */
  static const char *const names[] = {PATH "/entries/entry-100-2147483646",
                                      PATH "/entries/entry-100-2147483647",
                                      PATH "/entries/entry-100--2147483648",
                                      PATH "/entries/entry-100--2147483647"};
  static const char *const data[] = {"a", "b", "c", "d"};
  for (int i = 3; i >= 0; i--)
    ck_ok(zke_create(z[0], names[i], data[i], 1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                     NULL, NULL));
  for (int i = 0; i < 4; i++) take(q[1], data[i]);
  close_all();
}

/* The tree gives its last number again and again.  That is a limit of the
 * queue, and says nothing about a key. */
TEST(the_end_of_the_numbers_is_refused) {
  open_all();
  ck_ok(put_key(q[0], "a", "old"));
  ck_ok(zke_raise_sequence(z[1], PATH "/entries", INT32_MAX, NULL));
  put(q[0], "b");
  for (int i = 0; i < 2; i++) {
    ck_rc(zke_queue_put(q[i], "c", 1, NULL, ZKE_FOREVER), ZKE_LIMIT);
    ck_says(PATH "/entries has given all of its 2147483647 numbers");
    ck_rc(put_key(q[i], "c", "old"), ZKE_NODEEXISTS);
    ck_says("an item with the key old");
    ck_rc(put_key(q[i], "c", "new"), ZKE_LIMIT);
    ck_says(PATH "/entries has given all of its 2147483647 numbers");
  }
  ck_rc(zke_exists(z[0], PATH "/keys/key-new", NULL, NULL, NULL), ZKE_NONODE);
  take(q[1], "a");
  take(q[1], "b");
  ck_ok(zke_queue_destroy(q[0], 1));
  ck_ok(put_key(q[1], "c", "new"));
  close_all();
}

/* What something else has put in the way of the next item is no item with its
 * key. */
TEST(a_name_that_is_taken_is_no_key) {
  open_all();
  put(q[0], "a");
  ck_ok(zke_create(z[0], PATH "/entries/entry-100-0000000003", "", 0,
                   ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_rc(put_key(q[0], "b", "k"), ZKE_LIMIT);
  ck_says("entry-100-0000000003 is in the way");
  close_all();
}

/* "Foreign or malformed children in a recipe's directory are ignored". */
TEST(foreign_children_are_ignored) {
  static const char *const names[] = {"entry",
                                      "entry-",
                                      "entry-100",
                                      "entry-100-",
                                      "entry-100-1",
                                      "entry-1-0000000001",
                                      "entry-1000-0000000001",
                                      "entry--10-0000000001",
                                      "entry-100-0000000001x",
                                      "entry-100-99999999999",
                                      "later-100-0000000001",
                                      "later-100-x-0000000001",
                                      "xentry-100-0000000001",
                                      "qn-0000000001"};
  zke_queue_options o = {.size = sizeof o, .limit = 2};
  char path[100];
  open_with(&o);
  expect_nothing(q[0]);
  ck_ok(zke_ensure_path(z[0], PATH "/dead", ZKE_CONTAINER, ZKE_FOREVER));
  ck_ok(zke_ensure_path(z[0], PATH "/taken", ZKE_CONTAINER, ZKE_FOREVER));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, PATH "/entries/%s", names[i]);
    ck_ok(zke_create(z[0], path, "x", 1, ZKE_OPEN_ACL, 0, NULL, NULL));
    snprintf(path, sizeof path, PATH "/dead/%s", names[i]);
    ck_ok(zke_create(z[0], path, "x", 1, ZKE_OPEN_ACL, 0, NULL, NULL));
    snprintf(path, sizeof path, PATH "/taken/%s", names[i]);
    ck_ok(zke_create(z[0], path, "x", 1, ZKE_OPEN_ACL, 0, NULL, NULL));
    snprintf(path, sizeof path, PATH "/entries/line/%s", names[i]);
    ck_ok(zke_create(z[0], path, "x", 1, ZKE_OPEN_ACL, 0, NULL, NULL));
  }
  expect_nothing(q[1]);
  put(q[0], "a"); /* they do not count for the limit either */
  put(q[0], "b");
  zke_queue_counts c = size_of(q[1]);
  ck_assert_int_eq(c.items, 2);
  ck_assert_int_eq(c.claimed, 0);
  ck_assert_int_eq(c.dead, 0);
  ck_assert_int_eq(c.takers, 0);
  take(q[1], "a");
  take(q[1], "b");
  expect_nothing(q[1]);
  close_all();
}

/* NULL data, empty data and zeros come out as they went in. */
TEST(data_is_kept) {
  zke_queue_item *item;
  open_all();
  ck_ok(zke_queue_put(q[0], NULL, -1, NULL, 0));
  ck_ok(zke_queue_put(q[0], "", 0, NULL, 0));
  ck_ok(zke_queue_put(q[0], "a\0b", 3, NULL, 0));
  ck_ok(zke_queue_take(q[1], 0, &item));
  ck_assert_ptr_null(item->data);
  ck_assert_int_eq(item->len, -1);
  zke_free(item);
  ck_ok(zke_queue_claim(q[1], 0, &item));
  ck_assert_str_eq(item->data, "");
  ck_assert_int_eq(item->len, 0);
  ack(q[1], item);
  ck_ok(zke_queue_claim(q[1], 0, &item));
  ck_assert_int_eq(item->len, 3);
  ck_assert_int_eq(memcmp(item->data, "a\0b", 4), 0);
  ack(q[1], item);
  close_all();
}

/* ---- batches ---- */

/* "Batch put in one multi". */
TEST(a_batch_is_one_step) {
  static const zke_queue_value values[] = {{"a", 1}, {"b", 1}, {"c", 1}};
  zke_queue_entries *list;
  open_all();
  ck_ok(zke_queue_put_all(q[0], values, 3, NULL, 0));
  ck_ok(zke_queue_put_all(q[0], NULL, 0, NULL, 0));
  ck_ok(zke_queue_list(q[1], &list));
  ck_assert_int_eq(list->count, 3);
  ck_assert_int_eq(list->data[0].zxid, list->data[2].zxid);
  zke_free(list);
  take(q[1], "a");
  take(q[1], "b");
  take(q[1], "c");
  close_all();
}

/* A batch over the data limit, or the queue's, is refused as a whole. */
TEST(a_batch_that_does_not_fit_is_refused) {
  static char big[600000];
  const zke_queue_value values[] = {{big, sizeof big}, {big, sizeof big}};
  const zke_queue_value small[] = {{"a", 1}, {"b", 1}, {"c", 1}};
  zke_queue_options o = {.size = sizeof o, .limit = 2};
  open_with(&o);
  ck_rc(zke_queue_put_all(q[0], values, 2, NULL, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_put_all(q[0], small, 3, NULL, ZKE_FOREVER), ZKE_LIMIT);
  ck_says("limit 2");
  ck_assert_int_eq(size_of(q[0]).items, 0);
  ck_ok(zke_queue_put_all(q[0], small, 2, NULL, 0));
  ck_rc(zke_queue_put(q[0], "x", 1, NULL, 0), ZKE_LIMIT);
  ck_assert_int_eq(size_of(q[0]).items, 2);
  close_all();
}

/* ---- claims ---- */

/* "At least once under an ephemeral claim with ack, release". */
TEST(a_claim_keeps_others_out_until_it_is_released) {
  open_all();
  put(q[0], "a");
  zke_queue_item *item = claim(q[1], "a");
  ck_assert_int_eq(item->attempts, 1);
  expect_nothing(q[2]);
  ck_says("claimed");
  ck_says("bob");
  ck_ok(zke_queue_check(q[1], item));
  int64_t first = item->token;
  release(q[1], item);
  item = claim(q[2], "a");
  ck_assert_int_eq(item->attempts, 2);
  ck_assert_int_gt(item->token, first); /* fencing */
  ack(q[2], item);
  expect_nothing(q[1]);
  ck_assert_int_eq(items(z[0]), 0);
  ck_assert_int_eq(entries(z[0], PATH "/taken"), 0);
  close_all();
}

/* The next item goes to the next consumer; a released one is first again. */
TEST(several_claims_at_once) {
  open_all();
  put(q[0], "a");
  put(q[0], "b");
  put(q[0], "c");
  zke_queue_item *a = claim(q[1], "a"), *b = claim(q[2], "b");
  release(q[1], a);
  a = claim(q[2], "a");
  take(q[1], "c");
  ack(q[2], b);
  ack(q[2], a);
  close_all();
}

/* A claim ends once: what comes later, or from another object, is refused and
 * does no harm to who has it now (etcd#22082). */
TEST(a_claim_ends_once) {
  open_all();
  put(q[0], "a");
  zke_queue_item *old = claim(q[1], "a");
  ck_rc(zke_queue_ack(q[2], old, NULL, 0, NULL), ZKE_LOST);
  ck_ok(zke_queue_release(q[1], old, 0, NULL));
  ck_rc(zke_queue_release(q[1], old, 0, NULL), ZKE_LOST);
  zke_queue_item *now = claim(q[1], "a"); /* by the same object */
  ck_rc(zke_queue_ack(q[1], old, NULL, 0, NULL), ZKE_LOST);
  ck_rc(zke_queue_release(q[1], old, 0, NULL), ZKE_LOST);
  ck_rc(zke_queue_check(q[1], old), ZKE_LOST);
  ck_ok(zke_queue_check(q[1], now));
  ack(q[1], now);
  zke_free(old);
  close_all();
}

/* "A check of the claim in the same multi as the ack": what the work changes
 * is changed with the acknowledgement, or neither is. */
TEST(ack_takes_the_callers_changes_along) {
  zke_op ops[2];
  zke_op_result results[2];
  open_all();
  put(q[0], "a");
  zke_queue_item *item = claim(q[1], "a");
  zke_op_create(&ops[0], "/result", "r", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_check(&ops[1], "/missing", -1);
  memset(results, 0, sizeof results);
  ck_rc(zke_queue_ack(q[1], item, ops, 2, results), ZKE_NONODE);
  ck_assert_int_eq(results[1].rc, ZKE_NONODE);
  zke_results_clear(results, 2);
  ck_assert_int_eq(items(z[0]), 1);
  ck_rc(zke_exists(z[0], "/result", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_queue_check(q[1], item)); /* still held */
  zke_op_create(&ops[1], "no path", "r", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_rc(zke_queue_ack(q[1], item, ops, 2, NULL), ZKE_MARSHALLINGERROR);
  ck_ok(zke_queue_ack(q[1], item, ops, 1, results));
  ck_assert_str_eq(results[0].path, "/result");
  zke_results_clear(results, 1);
  zke_free(item);
  ck_ok(zke_exists(z[0], "/result", NULL, NULL, NULL));
  close_all();
}

/* "A public way to put the claim's check into the caller's own zke_multi". */
TEST(claim_op_guards_the_callers_multi) {
  zke_op ops[ZKE_QUEUE_OPS + 1];
  open_all();
  put(q[0], "a");
  zke_queue_item *item = claim(q[1], "a"), *peeked;
  ck_ok(zke_queue_ops(item, ops));
  zke_op_create(&ops[ZKE_QUEUE_OPS], "/r-", "", 0, ZKE_OPEN_ACL,
                ZKE_PERSISTENT_SEQUENTIAL);
  ck_ok(zke_multi(z[2], ops, ZKE_QUEUE_OPS + 1, NULL));
  ck_ok(zke_queue_release(q[1], item, 0, NULL));
  ck_rc(zke_multi(z[2], ops, ZKE_QUEUE_OPS + 1, NULL), ZKE_NONODE);
  /* Another claims it: the path is there again, the claim is not. */
  zke_queue_item *other = claim(q[1], "a");
  ck_rc(zke_multi(z[2], ops, ZKE_QUEUE_OPS + 1, NULL), ZKE_BADVERSION);
  release(q[1], other);
  zke_free(item);
  ck_ok(zke_queue_peek(q[1], &peeked));
  ck_rc(zke_queue_ops(peeked, ops), ZKE_BADARGUMENTS);
  zke_free(peeked);
  close_all();
}

/* "After the session is lost, no recipe object still claims to hold anything":
 * and the item is free for others at once. */
TEST(an_expired_session_holds_nothing) {
  zke_op ops[ZKE_QUEUE_OPS];
  open_listening();
  put(q[0], "a");
  zke_queue_item *item = claim(q[1], "a");
  ck_ok(zke_queue_ops(item, ops));
  ck_ok(zke_expire(z[0], zke_session_id(z[1])));
  zke_queue_item *now = claim(q[2], "a");
  ck_rc(zke_multi(z[0], ops, ZKE_QUEUE_OPS, NULL), ZKE_BADVERSION);
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "3 entry-100-0000000001 token;3 ended -;");
  ck_rc(zke_queue_ack(q[1], item, NULL, 0, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_queue_check(q[1], item), ZKE_INVALIDSTATE);
  ck_rc(zke_queue_put(q[1], "b", 1, NULL, 0), ZKE_INVALIDSTATE);
  zke_free(item);
  ack(q[2], now);
  ck_assert_int_eq(items(z[0]), 0);
  close_all();
}

/* The session ends in the middle of an acknowledgement: found by that call. */
TEST(an_ack_after_expiry_fails) {
  open_all();
  put(q[0], "a");
  zke_queue_item *item = claim(q[1], "a");
  ck_ok(zke_expire(z[0], zke_session_id(z[1])));
  int rc = zke_queue_ack(q[1], item, NULL, 0, NULL);
  ck_assert_msg(rc == ZKE_INVALIDSTATE || rc == ZKE_SESSIONEXPIRED, "%d", rc);
  zke_free(item);
  ck_assert_int_eq(items(z[0]), 1);
  take(q[2], "a");
  close_all();
}

/* A claim's znode that somebody deletes: the listener hears it; nothing works
 * with the claim any more. */
TEST(a_broken_claim_is_lost) {
  open_listening();
  put(q[0], "a");
  zke_queue_item *item = claim(q[1], "a");
  ck_ok(zke_delete(z[0], item->claim_path, -1));
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "3 entry-100-0000000001 token;");
  ck_rc(zke_queue_ack(q[1], item, NULL, 0, NULL), ZKE_LOST);
  zke_free(item);
  item = claim(q[2], "a");
  ck_ok(zke_delete(z[0], item->claim_path, -1));
  zke_queue_item *other = claim(q[1], "a");
  ck_rc(zke_queue_ack(q[2], item, NULL, 0, NULL), ZKE_LOST); /* not told yet */
  ck_ok(zke_queue_check(q[1], other));
  zke_free(item);
  ack(q[1], other);
  close_all();
}

/* One's own ack or release is no loss. */
TEST(the_listener_hears_no_loss_after_ack_or_release) {
  open_listening();
  put(q[0], "a");
  release(q[1], claim(q[1], "a"));
  dispatch_all();
  ack(q[1], claim(q[1], "a"));
  dispatch_all();
  ck_assert_str_eq(told[1], "");
  close_all();
}

/* "Ephemeral ones on request": they go with their producer, a claim on them is
 * lost then and leaves nothing (kazoo#366). */
TEST(ephemeral_items_go_with_their_producer) {
  open_all();
  put_as(q[0], "a", 0, 1, 0);
  put_as(q[0], "b", 0, 1, 0);
  put(q[0], "c");
  take(q[2], "a");
  zke_queue_item *item = claim(q[1], "b");
  ck_ok(zke_expire(z[2], zke_session_id(z[0])));
  ck_rc(zke_queue_ack(q[1], item, NULL, 0, NULL), ZKE_LOST);
  ck_assert_int_eq(entries(z[1], PATH "/taken"), 0);
  zke_free(item);
  take(q[1], "c");
  expect_nothing(q[1]);
  close_all();
}

/* "Freeing gives up what it holds". */
TEST(free_releases_what_is_claimed) {
  open_all();
  put(q[0], "a");
  put(q[0], "b");
  zke_free(claim(q[1], "a"));
  zke_free(claim(q[1], "b"));
  expect_nothing(q[2]);
  zke_queue_free(q[1]);
  q[1] = NULL;
  take(q[2], "a");
  take(q[2], "b");
  close_all();
}

/* ---- delays ---- */

/* "Delayed items (not before a time)": passed over until then, by a priority
 * of theirs too. */
TEST(delayed_items_are_passed_over) {
  enum { HOUR_MS = 3600000 };
  int64_t due;
  open_all();
  put_as(q[0], "late", 1, 0, test_wall() + HOUR_MS);
  put(q[0], "a");
  ck_assert_int_eq(size_of(q[1]).delayed, 1);
  take(q[1], "a");
  expect_nothing(q[1]);
  ck_says("is due in");
  ck_ok(zke_queue_due(q[1], &due));
  ck_assert_int_le(due, zke_now(z[1]) + HOUR_MS);
  close_all();
}

/* Waiters wake up for them, when their time has come. */
TEST(delayed_items_wait_for_their_time) {
  zke_queue_item *item;
  open_all();
  int64_t due, at = test_wall() + 200;
  put_as(q[0], "late", 1, 0, at);
  ck_ok(zke_queue_take(q[1], soon(z[1]), &item));
  ck_assert_str_eq(item->data, "late");
  ck_assert_int_eq(item->due_ms, at);
  ck_assert_int_eq(item->priority, 1);
  ck_assert_int_ge(test_wall(), at);
  ck_assert_int_lt(test_wall(), at + 30000);
  zke_free(item);
  ck_ok(zke_queue_due(q[1], &due));
  ck_assert_int_eq(due, ZKE_FOREVER);
  close_all();
}

/* A later put with an earlier time wakes the waiter for that time; a deadline
 * before any of them is kept. */
TEST(a_waiter_sleeps_until_the_earliest) {
  zke_queue_item *item = NULL;
  open_all();
  put_as(q[0], "far", 0, 0, test_wall() + 3600000);
  int64_t before = test_now();
  ck_rc(zke_queue_take(q[1], zke_now(z[1]) + 50, &item), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(test_now(), before + 49);
  waiter w = {.queue = q[1], .deadline = soon(z[1])};
  begin_wait(&w, z[2]);
  int64_t at = test_wall() + 100;
  put_as(q[0], "near", 0, 0, at);
  end_wait(&w, ZKE_OK);
  ck_assert_str_eq(w.item->data, "near");
  ck_assert_int_ge(test_wall(), at);
  zke_free(w.item);
  close_all();
}

/* The time survives the producer, and the database's closing. */
TEST(a_delay_survives) {
  zke_queue *queue;
  zke *own = test_open(test_path("db"));
  int64_t at = test_wall() + 100;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  put_as(queue, "later", 0, 0, at);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  own = test_open(test_path("db"));
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  zke_queue_item *item;
  ck_ok(zke_queue_take(queue, soon(own), &item));
  ck_assert_int_ge(test_wall(), at);
  ck_assert_str_eq(item->data, "later");
  zke_free(item);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
}

/* ---- limits ---- */

/* "A bound on size": claimed and delayed items count until they are gone. */
TEST(a_full_queue_takes_no_more) {
  zke_queue_options o = {.size = sizeof o, .limit = 2};
  open_with(&o);
  put(q[0], "a");
  put_as(q[0], "b", 0, 0, test_wall() + 3600000);
  ck_rc(zke_queue_put(q[1], "c", 1, NULL, 0), ZKE_LIMIT);
  ck_says("full");
  zke_queue_item *item = claim(q[2], "a");
  ck_rc(zke_queue_put(q[1], "c", 1, NULL, 0), ZKE_LIMIT);
  ck_rc(zke_queue_put(q[1], "c", 1, NULL, zke_now(z[1]) + 20), ZKE_LIMIT);
  ack(q[2], item);
  put(q[1], "c");
  ck_rc(zke_queue_put(q[0], "d", 1, NULL, 0), ZKE_LIMIT);
  close_all();
}

/* "Put blocks until room". */
TEST(a_put_waits_for_room) {
  zke_queue_options o = {.size = sizeof o, .limit = 1};
  open_with(&o);
  put(q[0], "a");
  waiter w = {.queue = q[1], .deadline = soon(z[1]), .putting = true};
  begin_wait(&w, z[2]);
  ck_assert_int_eq(size_of(q[0]).putters, 1);
  ck_assert(!is_done(&w));
  take(q[0], "a");
  end_wait(&w, ZKE_OK);
  take(q[0], "late");
  ck_assert_int_eq(size_of(q[0]).putters, 0);
  close_all();
}

/* The limit belongs to the queue: others must agree, those that name none
 * take it over, even those that were there before. */
TEST(the_limit_is_the_queues) {
  zke_queue *two, *five;
  zke_queue_options o = {.size = sizeof o, .limit = 2};
  open_all();
  put(q[0], "a"); /* nobody has named a limit yet */
  ck_ok(zke_queue_new(z[1], PATH, &o, &two));
  put(two, "b");
  ck_rc(zke_queue_put(q[0], "c", 1, NULL, 0), ZKE_LIMIT);
  o.limit = 5;
  ck_ok(zke_queue_new(z[1], PATH, &o, &five));
  ck_rc(zke_queue_put(five, "c", 1, NULL, 0), ZKE_BADARGUMENTS);
  ck_says("limit 2, not 5");
  ck_assert_int_eq(size_of(q[2]).limit, 2);
  o.limit = 0;
  o.attempts = 3;
  zke_queue *three;
  ck_ok(zke_queue_new(z[1], PATH, &o, &three));
  ck_assert_int_eq(size_of(three).limit, 2);
  ck_assert_int_eq(size_of(three).attempts, 3);
  zke_queue_free(two);
  zke_queue_free(five);
  zke_queue_free(three);
  close_all();
}

/* "Holds under concurrency": threads put without pause, one takes; at no time
 * are there more. */
enum { PRODUCERS = 3, EACH = 60, BOUND = 3 };

static void *produce(void *arg) {
  zke_queue *queue = arg;
  for (int i = 0; i < EACH; i++) {
    int rc = zke_queue_put(queue, "x", 1, NULL, ZKE_FOREVER);
    if (rc != ZKE_OK) return (void *)(intptr_t)rc;
  }
  return NULL;
}

/* Many producers on threads put into a bounded queue that one consumer empties:
 * at no look are there more items than the bound, and all come. */
TEST(the_bound_holds_under_concurrency) {
  pthread_t thread[PRODUCERS];
  zke_queue *queue[PRODUCERS];
  zke *own[PRODUCERS];
  zke_queue_options o = {.size = sizeof o, .limit = BOUND};
  int most = 0;
  open_all();
  for (int i = 0; i < PRODUCERS; i++) {
    own[i] = test_session(z[0], NULL);
    ck_ok(zke_queue_new(own[i], PATH, &o, &queue[i]));
    ck_assert_int_eq(pthread_create(&thread[i], NULL, produce, queue[i]), 0);
  }
  for (int i = 0; i < PRODUCERS * EACH; i++) {
    zke_queue_item *item;
    int now = items(z[0]);
    if (now > most) most = now;
    ck_ok(zke_queue_take(q[1], soon(z[1]), &item));
    zke_free(item);
  }
  for (int i = 0; i < PRODUCERS; i++) {
    void *rc;
    pthread_join(thread[i], &rc);
    ck_assert_ptr_null(rc);
    zke_queue_free(queue[i]);
    ck_ok(zke_close(own[i]));
  }
  ck_assert_int_le(most, BOUND);
  expect_nothing(q[1]);
  close_all();
}

/* ---- another process, at every moment of a call ---- */

/* One session reads the clock again and again in a call; at the n-th time
 * another one, on a store of its own, does something. */
static long meddle_at; /* 0: not, or no more */
static int (*meddle)(zke *other);
static zke *meddler;
static int meddled; /* what came of it; 1: nothing */
static bool slept;  /* before the n-th time */

static void meddle_at_look(seam_call *c) {
  (void)c;
  if (meddle_at > 0 && --meddle_at == 0) meddled = meddle(meddler);
}

/* Going to sleep before the n-th reading is the last moment. */
static void meddle_at_sleep(seam_call *c) {
  while (meddle_at > 0 && c->time != 0) {
    slept = true;
    meddle_at = 0;
    meddled = meddle(meddler);
  }
}

static zke *open_meddled(void) {
  static seam s = {
      .before = {[SEAM_clock] = meddle_at_look, [SEAM_poll] = meddle_at_sleep}};
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 1};
  zke *own;
  ck_ok(zke_open(test_path("db"), &o, &meddler));
  o = (zke_options){.size = sizeof o, .os = seam_os(&s)};
  ck_ok(zke_open(test_path("db"), &o, &own));
  return own;
}

/* What a put does, without its retries: this one may be inside the other's
 * transaction. */
static int put_raw(zke *other) {
  zke_op ops[2];
  zke_op_set(&ops[0], PATH "/entries", NULL, -1, -1);
  zke_op_create(&ops[1], PATH "/entries/entry-100-", "b", 1, ZKE_OPEN_ACL,
                ZKE_PERSISTENT_SEQUENTIAL);
  return zke_multi(other, ops, 2, NULL);
}

/* What a claim does to the only item. */
static int claim_raw(zke *other) {
  zke_strings *names = NULL;
  zke_op ops[2];
  char entry[100], taken[100];
  int rc = zke_children(other, PATH "/entries", NULL, NULL, &names, NULL);
  if (rc == ZKE_OK && names->count == 1) rc = ZKE_NONODE; /* the line */
  if (rc == ZKE_OK) {
    snprintf(entry, sizeof entry, PATH "/entries/%s", names->data[0]);
    snprintf(taken, sizeof taken, PATH "/taken/%s", names->data[0]);
    zke_op_set(&ops[0], entry, "a", 1, -1);
    zke_op_create(&ops[1], taken, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
    rc = zke_multi(other, ops, 2, NULL);
  }
  zke_free(names);
  return rc;
}

/* Empty the queue for the next round. */
static void clear_all(zke *own) {
  static const char *const directories[] = {PATH "/taken", PATH "/entries"};
  for (int i = 0; i < 2; i++) {
    zke_strings *names;
    if (zke_children(own, directories[i], NULL, NULL, &names, NULL) != ZKE_OK)
      continue;
    for (int k = 0; k < names->count; k++) {
      char path[200];
      if (strcmp(names->data[k], "line") == 0) continue;
      snprintf(path, sizeof path, "%s/%s", directories[i], names->data[k]);
      ck_ok(zke_delete(own, path, -1));
    }
    zke_free(names);
  }
}

/* At the n-th reading from now; n = 1, 2, 3 ... until there is no such. */
static void meddle_next(long n, int (*what)(zke *other)) {
  meddled = 1;
  meddle = what;
  meddle_at = n;
}

/* "A bound on size that holds under concurrency": whenever the other one puts,
 * there is never more than the limit (Q2), also where the version of "entries"
 * has just wrapped around (1). */
TEST_LOOP(the_bound_holds_at_every_moment, 0, 2) {
  zke *own = open_meddled();
  zke_queue_options o = {.size = sizeof o, .limit = 1};
  zke_queue *queue;
  int refused = 0;
  ck_ok(zke_queue_new(own, PATH, &o, &queue));
  put(queue, "first");
  for (long n = 1; meddled != 1 || n < 3; n++) {
    if (_i) {
      test_set_version(test_path("db"), PATH "/entries", -2);
      ck_ok(put_raw(own));
    }
    clear_all(own);
    meddle_next(n, put_raw);
    int rc = zke_queue_put(queue, "a", 1, NULL, 0);
    meddle_at = 0;
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_LIMIT, "%s", zke_errmsg());
    ck_assert_msg(rc != ZKE_OK || meddled != ZKE_OK,
                  "both were put at clock reading %ld", n);
    refused += rc == ZKE_LIMIT;
  }
  ck_assert_int_gt(refused, 0);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

/* The version of an item counts its claims.  A claim at which it wraps around
 * holds and goes on as any other, and ends when its time has come. */
TEST_LOOP(claims_hold_where_versions_wrap, 0, 3) {
  static const int32_t versions[] = {-3, -2, INT32_MAX};
  const char *db = test_path("db");
  zke_queue_options o = {.size = sizeof o, .claim_ms = 100};
  zke *first = test_open(db), *second = test_open(db);
  zke_queue *own, *other;
  char path[200];
  ck_ok(zke_queue_new(first, PATH, &o, &own));
  ck_ok(zke_queue_new(second, PATH, &o, &other));
  put(own, "a");
  zke_queue_item *item = claim(own, "a"), *later;
  snprintf(path, sizeof path, PATH "/entries/%s", item->name);
  release(own, item);
  test_set_version(db, path, versions[_i]);
  item = claim(own, "a");
  ck_ok(zke_queue_prolong(own, item, 100));
  ck_ok(zke_queue_check(own, item));
  ck_ok(zke_queue_claim(other, soon(second), &later));
  ck_rc(zke_queue_ack(own, item, NULL, 0, NULL), ZKE_LOST);
  ck_ok(zke_queue_prolong(other, later, ZKE_FOREVER));
  zke_free(item);
  ack(other, later);
  zke_queue_free(own);
  zke_queue_free(other);
  ck_ok(zke_close(second));
  ck_ok(zke_close(first));
}

/* "Consume at most once", "at least once": one of the two has the item,
 * whenever the other claims it (Q1). */
TEST(an_item_has_one_consumer_at_every_moment) {
  zke *own = open_meddled();
  zke_queue *queue;
  int lost = 0;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  put(queue, "first");
  for (int claiming = 0; claiming <= 1; claiming++) {
    meddled = 0;
    for (long n = 1; meddled != 1 || n < 3; n++) {
      zke_queue_item *item = NULL;
      clear_all(own);
      put(queue, "a");
      meddle_next(n, claim_raw);
      int rc = claiming ? zke_queue_claim(queue, 0, &item)
                        : zke_queue_take(queue, 0, &item);
      meddle_at = 0;
      ck_assert_msg(rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT, "%d: %s", rc,
                    zke_errmsg());
      ck_assert_msg(rc != ZKE_OK || meddled != ZKE_OK,
                    "both have it at clock reading %ld", n);
      lost += rc != ZKE_OK;
      if (item && claiming) ck_ok(zke_queue_release(queue, item, 0, NULL));
      zke_free(item);
    }
  }
  ck_assert_int_gt(lost, 0);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

/* ---- claims that end ---- */

enum { SHORT_MS = 30 };

static void open_ending_after(int64_t ms) {
  zke_queue_options o = {.size = sizeof o, .claim_ms = ms, .listener = listen};
  open_with(&o);
}

static void open_ending(void) { open_ending_after(SHORT_MS); }

static zke_queue_item *claim_soon(int i, const char *text) {
  zke_queue_item *item = NULL;
  ck_ok(zke_queue_claim(q[i], soon(z[i]), &item));
  ck_assert_str_eq(item->data, text);
  return item;
}

/* A claim that ends keeps the item from others until then. */
TEST(a_claim_that_ends_lasts_until_then) {
  open_ending_after(3600000);
  put(q[0], "a");
  zke_queue_item *item = claim(q[0], "a");
  expect_nothing(q[1]);
  ck_says("is claimed");
  ck_assert_int_eq(size_of(q[2]).claimed, 1);
  ack(q[0], item);
  close_all();
}

/* The consumer lives, and says nothing: another one that sleeps gets the item
 * when the time has come and no earlier, and the first is refused. */
TEST(a_claim_that_ends_goes_on) {
  enum { CLAIM_MS = 200 };
  open_ending_after(CLAIM_MS);
  zke_op op;
  put(q[0], "a");
  int64_t begun = zke_now(z[0]);
  zke_queue_item *first = claim(q[0], "a"), *second = claim_soon(1, "a");
  ck_assert_int_ge(zke_now(z[0]), begun + CLAIM_MS);
  ck_ok(zke_queue_prolong(q[1], second, ZKE_FOREVER));
  ck_assert_int_eq(second->attempts, 2);
  ck_assert_int_gt(second->token, first->token);
  zke_op_create(&op, "/wrong", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_rc(zke_queue_check(q[0], first), ZKE_LOST);
  zke_op own[ZKE_QUEUE_OPS];
  ck_ok(zke_queue_ops(first, own));
  ck_rc(zke_multi(z[0], own, ZKE_QUEUE_OPS, NULL), ZKE_BADVERSION);
  ck_rc(zke_queue_ack(q[0], first, &op, 1, NULL), ZKE_LOST);
  ck_rc(zke_exists(z[2], "/wrong", NULL, NULL, NULL), ZKE_NONODE);
  dispatch_all();
  ck_ok(zke_queue_check(q[1], second));
  ack(q[1], second);
  zke_free(first);
  ck_assert_int_eq(items(z[2]), 0);
  close_all();
}

/* What the first does when another one has the item: each is ZKE_LOST, and does
 * nothing to the second one's claim. */
static int ack_late(zke_queue *queue, zke_queue_item *item) {
  return zke_queue_ack(queue, item, NULL, 0, NULL);
}
static int prolong_late(zke_queue *queue, zke_queue_item *item) {
  return zke_queue_prolong(queue, item, 60000);
}
static int delay_late(zke_queue *queue, zke_queue_item *item) {
  return zke_queue_release(queue, item, 60000, NULL);
}
static int ack_all_late(zke_queue *queue, zke_queue_item *item) {
  return zke_queue_ack_all(queue, &item, 1, NULL, 0, NULL);
}
static int free_late(zke_queue *queue, zke_queue_item *item) {
  (void)item;
  zke_queue_free(queue);
  q[0] = NULL;
  return ZKE_LOST;
}
static int (*const late[])(zke_queue *, zke_queue_item *) = {
    ack_late, prolong_late, delay_late, ack_all_late, free_late};
enum { LATE = sizeof late / sizeof late[0] };

/* A claim's time is over and another consumer has the item: every call with the
 * first claim is ZKE_LOST, and takes nothing from the second. */
TEST_LOOP(a_claim_that_is_over_can_do_nothing, 0, LATE) {
  open_ending();
  put(q[0], "a");
  zke_queue_item *first = claim(q[0], "a"), *second = claim_soon(1, "a");
  ck_ok(zke_queue_prolong(q[1], second, 60000));
  ck_rc(late[_i](q[0], first), ZKE_LOST);
  ck_ok(zke_queue_check(q[1], second));
  expect_nothing(q[2]);
  ack(q[1], second);
  zke_free(first);
  close_all();
}

/* Until another one has it, all is as before. */
TEST(an_ended_claim_is_kept_until_another_comes) {
  open_ending();
  put(q[0], "a");
  zke_queue_item *first = claim(q[0], "a");
  ck_until(size_of(q[1]).ready == 1, 5000);
  ck_assert_int_eq(size_of(q[1]).claimed, 0);
  ck_ok(zke_queue_check(q[0], first));
  ck_ok(zke_queue_prolong(q[0], first, 60000));
  ck_assert_int_eq(size_of(q[1]).claimed, 1);
  expect_nothing(q[1]);
  ck_ok(zke_queue_prolong(q[0], first, 1));
  ck_until(size_of(q[1]).ready == 1, 5000);
  ack(q[0], first);
  ck_assert_int_eq(items(z[2]), 0);
  ck_assert_int_eq(entries(z[2], PATH "/taken"), 0);
  close_all();
}

/* A consumer that prolongs keeps the item, however often the time would have
 * come; for ever is as long as its session. */
TEST(prolonging_keeps_the_item) {
  open_ending();
  zke_stat stat;
  put(q[0], "a");
  zke_queue_item *item = claim(q[0], "a"), *none = NULL;
  for (int i = 0; i < 5; i++) {
    ck_ok(zke_queue_prolong(q[0], item, test_patience(10000)));
    ck_rc(zke_queue_claim(q[1], zke_now(z[1]) + SHORT_MS, &none),
          ZKE_OPERATIONTIMEOUT);
    ck_ok(zke_queue_check(q[0], item));
  }
  ck_ok(zke_queue_prolong(q[0], item, ZKE_FOREVER));
  ck_assert_int_eq(entries(z[2], PATH "/taken"), 1);
  ck_rc(zke_queue_prolong(q[0], item, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_prolong(q[0], NULL, 1), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_prolong(q[1], item, 1), ZKE_LOST);
  ck_ok(zke_exists(z[2], item->claim_path, NULL, NULL, &stat));
  ck_assert_int_eq(stat.version, 0); /* whoever waits was not woken */
  ck_ok(zke_queue_prolong(q[0], item, 1));
  none = claim_soon(1, "a");
  ack(q[1], none);
  zke_free(item);
  close_all();
}

/* The listener of a consumer whose item went on hears so, and only it. */
TEST(the_listener_hears_that_a_claim_has_ended) {
  open_ending();
  put(q[0], "a");
  zke_queue_item *first = claim(q[0], "a"), *second = claim_soon(1, "a");
  dispatch_all();
  ck_assert_str_eq(told[0], "3 entry-100-0000000001 token;");
  ck_assert_str_eq(told[1], "");
  ack(q[1], second);
  zke_free(first);
  close_all();
}

/* The last attempt's time is over: the next one that looks buries the item. */
TEST(an_exhausted_item_whose_claim_ends_is_buried) {
  zke_queue_options o = {.size = sizeof o, .claim_ms = 1, .attempts = 2};
  zke_queue_entries *dead;
  open_with(&o);
  put(q[0], "a");
  zke_queue_item *first = claim(q[0], "a"), *second = claim_soon(1, "a");
  ck_until(size_of(q[2]).ready == 1, 5000);
  expect_nothing(q[2]);
  ck_ok(zke_queue_dead(q[2], &dead));
  ck_assert_int_eq(dead->count, 1);
  ck_assert_int_eq(dead->data[0].attempts, 2);
  ck_assert_str_eq(dead->data[0].reason, "its consumer did not answer in time");
  ck_rc(zke_queue_ack(q[1], second, NULL, 0, NULL), ZKE_LOST);
  ck_assert_int_eq(entries(z[2], PATH "/taken"), 0);
  zke_free(dead);
  zke_free(first);
  zke_free(second);
  close_all();
}

/* A marker without its claim, of one that was discarded in two steps, ends
 * nothing that was claimed since. */
TEST(a_marker_that_was_left_ends_no_later_claim) {
  open_all();
  put(q[0], "a");
  zke_queue_item *item = claim(q[0], "a");
  ck_ok(zke_create(z[2],
                   PATH "/taken/until-0000000000001-0-entry-100-0000000001", "",
                   0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  expect_nothing(q[1]);
  ck_assert_int_eq(size_of(q[1]).claimed, 1);
  ck_assert_int_eq(entries(z[2], PATH "/taken"), 1);
  zke_free(item);
  close_all();
}

/* Somebody waits for a claim without an end, which its consumer has end at
 * once: whoever sleeps hears of it, and gets the item. */
TEST(a_shortened_claim_wakes_waiting_consumers) {
  open_all();
  put(q[0], "a");
  zke_queue_item *item = claim(q[0], "a");
  for (int i = 0; i < 2; i++) {
    waiter w = {.queue = q[1], .deadline = ZKE_FOREVER, .claiming = true};
    begin_wait(&w, z[2]);
    ck_until(watches_claim(z[1]), 5000);
    ck_ok(zke_queue_prolong(q[0], item, 1));
    end_wait(&w, ZKE_OK);
    ck_rc(zke_queue_ack(q[0], item, NULL, 0, NULL), ZKE_LOST);
    zke_free(item);
    release(q[1], w.item);
    item = claim(q[0], "a");
    ck_ok(zke_queue_prolong(q[0], item, 60000)); /* from then on that */
  }
  ack(q[0], item);
  close_all();
}

/* The only claim goes, and one whose time is over stands in its place; again at
 * the next moment where that is inside the other's transaction. */
static int swap_raw(zke *other) {
  zke_strings *names = NULL;
  zke_op ops[3];
  char claim[100], marker[160];
  int rc = zke_children(other, PATH "/taken", NULL, NULL, &names, NULL);
  if (rc == ZKE_OK) {
    snprintf(claim, sizeof claim, PATH "/taken/%s", names->data[0]);
    snprintf(marker, sizeof marker, PATH "/taken/until-0000000000001-1-%s",
             names->data[0]);
    zke_op_delete(&ops[0], claim, -1);
    zke_op_create(&ops[1], claim, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
    zke_op_create(&ops[2], marker, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
    rc = zke_multi(other, ops, 3, NULL);
  }
  zke_free(names);
  if (rc != ZKE_OK) meddle_at = 1;
  return rc;
}

/* Whenever the claim that a consumer waits for becomes another one, which ends,
 * between its look and its sleep too: it does not sleep on. */
TEST(a_claim_that_becomes_another_is_noticed_at_every_moment) {
  zke *own = open_meddled();
  zke_queue *queue, *holder;
  zke_queue_item *held, *item;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  ck_ok(zke_queue_new(meddler, PATH, NULL, &holder));
  slept = false;
  for (long n = 1; !slept; n++) {
    put(queue, "a");
    ck_ok(zke_queue_claim(holder, soon(meddler), &held));
    meddle_next(n, swap_raw);
    int rc = zke_queue_claim(queue, soon(own), &item);
    ck_assert_msg(rc == ZKE_OK, "clock reading %ld: %s", n, zke_errmsg());
    ck_ok(meddled);
    ack(queue, item);
    ck_rc(zke_queue_ack(holder, held, NULL, 0, NULL), ZKE_LOST);
    zke_free(held);
    ck_assert_int_eq(entries(own, PATH "/taken"), 0);
  }
  zke_queue_free(holder);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

static zke_queue *others; /* the meddler's */
static zke_queue_item *others_item;

static int ack_other(zke *other) {
  (void)other;
  return zke_queue_ack(others, others_item, NULL, 0, NULL);
}
static int prolong_other(zke *other) {
  (void)other;
  return zke_queue_prolong(others, others_item, 60000);
}

/* Whenever the first consumer acknowledges or prolongs, while another takes the
 * item over: one of the two has it. */
TEST_LOOP(an_expired_claim_has_one_holder_at_every_moment, 0, 2) {
  zke *own = open_meddled();
  zke_queue_options o = {.size = sizeof o, .claim_ms = 1};
  zke_queue *queue;
  int lost = 0, won = 0;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  ck_ok(zke_queue_new(meddler, PATH, &o, &others));
  for (long n = 1; meddled != 1 || n < 3; n += 3) {
    zke_queue_item *item = NULL;
    put(queue, "a");
    ck_ok(zke_queue_claim(others, soon(meddler), &others_item));
    ck_until(size_of(queue).ready == 1, 5000);
    meddle_next(n, _i ? prolong_other : ack_other);
    int rc = zke_queue_claim(queue, 0, &item);
    meddle_at = 0;
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT, "%s",
                  zke_errmsg());
    ck_assert_msg((rc == ZKE_OK) != (meddled == ZKE_OK) || meddled == 1,
                  "%d and %d at clock reading %ld", rc, meddled, n);
    won += rc == ZKE_OK;
    lost += rc != ZKE_OK;
    if (rc == ZKE_OK) {
      ck_rc(zke_queue_ack(others, others_item, NULL, 0, NULL), ZKE_LOST);
      ck_ok(zke_queue_ack(queue, item, NULL, 0, NULL));
    } else if (_i) {
      ck_ok(zke_queue_ack(others, others_item, NULL, 0, NULL));
    }
    ck_assert_int_eq(items(own), 0);
    zke_free(item);
    zke_free(others_item);
  }
  ck_assert_int_gt(lost, 0);
  ck_assert_int_gt(won, 0);
  zke_queue_free(others);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

/* ---- given back with a delay ---- */

/* An item given back with a delay is listed as delayed, is not claimed before
 * its time, and keeps its place. */
TEST(a_delayed_release_waits_for_its_time) {
  enum { LATER_MS = 1000 }; /* till then all is looked at, on a server, too */
  zke_queue_entries *list;
  open_all();
  put(q[0], "a");
  put(q[0], "b");
  zke_queue_item *item = claim(q[0], "a");
  int64_t begun = zke_wall(z[0]);
  ck_ok(zke_queue_release(q[0], item, LATER_MS, NULL));
  ck_rc(zke_queue_ack(q[0], item, NULL, 0, NULL), ZKE_LOST);
  zke_free(item);
  ck_ok(zke_queue_list(q[1], &list));
  ck_assert_int_eq(list->count, 2);
  ck_assert_int_eq(list->data[0].claimed, 0);
  ck_assert_int_ge(list->data[0].due_ms, begun + LATER_MS);
  ck_assert_int_eq(list->data[0].attempts, 1);
  zke_free(list);
  zke_queue_counts c = size_of(q[1]);
  ck_assert_int_eq(c.items * 100 + c.ready * 10 + c.delayed, 211);
  item = claim_soon(1, "b");
  ck_ok(zke_queue_release(q[1], item, 0, NULL));
  zke_free(item);
  ck_until(size_of(q[1]).ready == 2, 5000);
  ck_assert_int_ge(zke_wall(z[0]), begun + LATER_MS);
  item = claim(q[2], "a"); /* it is where it was */
  ck_assert_int_eq(item->attempts, 2);
  ack(q[2], item);
  take(q[2], "b");
  ck_assert_int_eq(entries(z[2], PATH "/taken"), 0);
  close_all();
}

/* A consumer that sleeps wakes when it is due; the last attempt is buried at
 * once; a delay that is none is none. */
TEST(a_delayed_release_wakes_waiting_consumers) {
  zke_queue_options o = {.size = sizeof o, .attempts = 2};
  open_with(&o);
  put(q[0], "a");
  zke_queue_item *item = claim(q[0], "a");
  waiter w = {.queue = q[1], .deadline = soon(z[1]), .claiming = true};
  begin_wait(&w, z[2]);
  int64_t begun = zke_wall(z[0]);
  ck_ok(zke_queue_release(q[0], item, 60, NULL));
  zke_free(item);
  end_wait(&w, ZKE_OK);
  ck_assert_int_ge(zke_wall(z[0]), begun + 60);
  ck_ok(zke_queue_release(q[1], w.item, 60000, "late"));
  zke_free(w.item);
  ck_assert_int_eq(size_of(q[0]).dead, 1);
  put(q[0], "b");
  item = claim(q[0], "b");
  ck_rc(zke_queue_release(q[0], item, -1, NULL), ZKE_BADARGUMENTS);
  ck_ok(zke_queue_release(q[0], item, 0, NULL));
  zke_free(item);
  take(q[1], "b");
  close_all();
}

/* ---- batches ---- */

/* As many as are there, in order, with one token; they are given back singly,
 * and acknowledged together with a change or not at all. */
TEST(several_items_are_claimed_in_one_step) {
  zke_queue_item *some[4];
  int count;
  zke_op op;
  open_all();
  for (int i = 0; i < 12; i++) put(q[0], i % 2 ? "b" : "a");
  put_as(q[0], "urgent", 1, 0, 0);
  zke_queue_item *other = claim(q[2], "urgent");
  ck_ok(zke_queue_claim_some(q[0], 4, 0, some, &count));
  ck_assert_int_eq(count, 4);
  for (int i = 0; i < 4; i++) {
    ck_assert_str_eq(some[i]->data, i % 2 ? "b" : "a");
    ck_assert_int_eq(some[i]->token, some[0]->token);
    ck_assert_int_eq(some[i]->attempts, 1);
    ck_ok(zke_queue_check(q[0], some[i]));
  }
  ck_assert_int_eq(size_of(q[1]).claimed, 5);
  release(q[0], some[3]);
  zke_op_create(&op, "/done", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_queue_ack_all(q[0], some, 3, &op, 1, NULL));
  ck_ok(zke_exists(z[1], "/done", NULL, NULL, NULL));
  for (int i = 0; i < 3; i++) zke_free(some[i]);
  ack(q[2], other);
  zke_queue_item *rest[20];
  ck_ok(zke_queue_claim_some(q[1], 20, 0, rest, &count));
  ck_assert_int_eq(count, 9);
  ck_assert_ptr_null(rest[9]);
  ck_ok(zke_queue_ack_all(q[1], rest, 9, NULL, 0, NULL));
  for (int i = 0; i < 9; i++) zke_free(rest[i]);
  ck_rc(zke_queue_claim_some(q[1], 20, 0, rest, &count), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(count, 0);
  ck_rc(zke_queue_claim_some(q[1], 0, 0, rest, &count), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_claim_some(q[1], 257, 0, rest, &count), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_claim_some(q[1], 1, 0, NULL, &count), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_claim_some(q[1], 1, 0, rest, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_ack_all(q[1], NULL, 1, NULL, 0, NULL), ZKE_BADARGUMENTS);
  close_all();
}

/* One of them is lost: nothing is acknowledged, the others are held. */
TEST(a_batch_is_acknowledged_or_not) {
  zke_queue_item *some[3];
  int count;
  open_all();
  for (int i = 0; i < 3; i++) put(q[0], "a");
  ck_ok(zke_queue_claim_some(q[0], 3, 0, some, &count));
  ck_ok(zke_delete(z[1], some[1]->claim_path, -1));
  ck_rc(zke_queue_ack_all(q[0], some, 3, NULL, 0, NULL), ZKE_LOST);
  ck_assert_int_eq(size_of(q[1]).items, 3);
  ack(q[0], some[0]);
  ck_rc(zke_queue_ack(q[0], some[1], NULL, 0, NULL), ZKE_LOST);
  ack(q[0], some[2]);
  zke_free(some[1]);
  take(q[1], "a");
  close_all();
}

/* What one step cannot carry is claimed in parts. */
TEST(a_batch_is_as_large_as_a_step) {
  enum { LARGE = 400 * 1024 };
  char *data = calloc(1, LARGE);
  zke_queue_item *some[5];
  int count, sum = 0;
  open_all();
  for (int i = 0; i < 5; i++) ck_ok(zke_queue_put(q[0], data, LARGE, NULL, 0));
  while (sum < 5) {
    ck_ok(zke_queue_claim_some(q[0], 5, 0, some, &count));
    ck_assert_int_ge(count, 1);
    ck_assert_int_le(count, 2);
    sum += count;
    ck_ok(zke_queue_ack_all(q[0], some, count, NULL, 0, NULL));
    for (int i = 0; i < count; i++) zke_free(some[i]);
  }
  free(data);
  close_all();
}

/* ---- keys ---- */

/* One item of a key, from the put until it is out. */
TEST(a_key_is_in_the_queue_once) {
  open_all();
  ck_ok(put_key(q[0], "a", "k"));
  ck_rc(put_key(q[1], "b", "k"), ZKE_NODEEXISTS);
  ck_says("with the key k: entry-100-0000000001");
  ck_ok(put_key(q[1], "b", "K"));
  zke_queue_item *item = claim(q[2], "a");
  ck_assert_str_eq(item->key, "k");
  ck_rc(put_key(q[1], "c", "k"), ZKE_NODEEXISTS);
  ck_ok(zke_queue_release(q[2], item, 1, NULL));
  zke_free(item);
  ck_rc(put_key(q[1], "c", "k"), ZKE_NODEEXISTS);
  ck_until(size_of(q[1]).ready == 2, 5000);
  item = claim(q[2], "a");
  ack(q[2], item);
  ck_ok(put_key(q[1], "c", "k"));
  take(q[0], "b");
  ck_ok(put_key(q[0], "d", "K"));
  take(q[0], "c");
  take(q[0], "d");
  ck_assert_int_eq(entries(z[0], PATH "/keys"), 0);
  put(q[0], "e");
  item = claim(q[0], "e");
  ck_assert_str_eq(item->key, "");
  ack(q[0], item);
  close_all();
}

/* Any line of text is a key, and not two of them the same one. */
TEST(keys_are_any_text) {
  static const char *const keys[] = {
      "/a/b",    "%2Fa%2Fb", "..", "%", "key-a", "a b", "entry-100-0000000001",
      "\xc3\xa4"};
  enum { KEYS = sizeof keys / sizeof keys[0] };
  char largest[257];
  zke_queue_entries *list;
  open_all();
  for (int i = 0; i < KEYS; i++) ck_ok(put_key(q[0], "a", keys[i]));
  for (int i = 0; i < KEYS; i++)
    ck_rc(put_key(q[0], "a", keys[i]), ZKE_NODEEXISTS);
  /* files have these names: '/' and '%' are escaped, and nothing else */
  ck_ok(zke_exists(z[0], PATH "/keys/key-%2Fa%2Fb", NULL, NULL, NULL));
  ck_ok(zke_exists(z[0], PATH "/keys/key-%252Fa%252Fb", NULL, NULL, NULL));
  ck_ok(zke_exists(z[0], PATH "/keys/key-a b", NULL, NULL, NULL));
  ck_ok(zke_exists(z[0], PATH "/keys/key-\xc3\xa4", NULL, NULL, NULL));
  ck_ok(zke_queue_list(q[1], &list));
  for (int i = 0; i < KEYS; i++) ck_assert_str_eq(list->data[i].key, keys[i]);
  zke_free(list);
  for (int i = 0; i < KEYS; i++) take(q[1], "a");
  memset(largest, '/', 256);
  largest[256] = '\0';
  ck_rc(put_key(q[0], "a", largest), ZKE_BADARGUMENTS);
  largest[255] = '\0';
  ck_ok(put_key(q[0], "a", largest));
  ck_rc(put_key(q[0], "a", ""), ZKE_BADARGUMENTS);
  ck_rc(put_key(q[0], "a", "a\nb"), ZKE_BADARGUMENTS);
  ck_rc(put_key(q[0], "a", "\xff"), ZKE_BADARGUMENTS);
  zke_queue_put_options o = {.size = sizeof o, .key = "two"};
  zke_queue_value two[2] = {{"a", 1}, {"b", 1}};
  ck_rc(zke_queue_put_all(q[0], two, 2, &o, 0), ZKE_BADARGUMENTS);
  take(q[1], "a");
  close_all();
}

/* A letter has its item's key, and is put back as any item with it; a key ends
 * with the burial. */
TEST(a_letter_keeps_its_key) {
  zke_queue_options o = {.size = sizeof o, .attempts = 1};
  zke_queue_entries *dead;
  open_with(&o);
  ck_ok(put_key(q[0], "a", "x/y"));
  release(q[1], claim(q[1], "a"));
  ck_ok(zke_queue_dead(q[0], &dead));
  ck_assert_str_eq(dead->data[0].key, "x/y");
  ck_ok(put_key(q[0], "b", "x/y"));
  ck_rc(zke_queue_requeue(q[0], dead->data[0].name, 0), ZKE_NODEEXISTS);
  ck_assert_int_eq(size_of(q[0]).dead, 1);
  take(q[1], "b");
  ck_ok(zke_queue_requeue(q[0], dead->data[0].name, 0));
  ck_rc(put_key(q[0], "b", "x/y"), ZKE_NODEEXISTS);
  ck_rc(zke_queue_requeue(q[0], dead->data[0].name, 0), ZKE_NONODE);
  take(q[1], "a");
  zke_free(dead);
  close_all();
}

/* A key whose item went in another way counts for nothing: with its producer,
 * or by somebody who knows no keys. */
TEST(a_key_without_its_item_keeps_nobody_out) {
  zke_queue_put_options o = {.size = sizeof o, .ephemeral = 1, .key = "e"};
  open_all();
  ck_ok(zke_queue_put(q[2], "a", 1, &o, 0));
  ck_rc(put_key(q[0], "b", "e"), ZKE_NODEEXISTS);
  zke_queue_free(q[2]);
  q[2] = NULL;
  ck_ok(zke_close(z[2]));
  z[2] = NULL;
  ck_assert_int_eq(entries(z[0], PATH "/keys"), 0);
  ck_ok(put_key(q[0], "b", "e"));
  ck_ok(zke_delete(z[0], PATH "/entries/entry-100-0000000002", -1));
  ck_ok(put_key(q[1], "c", "e"));
  ck_rc(put_key(q[0], "d", "e"), ZKE_NODEEXISTS);
  ck_ok(zke_set(z[0], PATH "/keys/key-e", NULL, -1, -1, NULL));
  ck_ok(put_key(q[1], "d", "e")); /* it says nothing any more */
  zke_queue_item *first = claim(q[0], "c"), *second = claim(q[0], "d");
  ack(q[0], first);
  ck_rc(put_key(q[1], "f", "e"), ZKE_NODEEXISTS);
  ack(q[0], second);
  ck_ok(put_key(q[1], "f", "e"));
  take(q[0], "f");
  ck_ok(zke_create(z[0], PATH "/keys/entry-100-0000000006", "of old", 6,
                   ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(put_key(q[1], "g", "e"));
  first = claim(q[0], "g");
  ck_assert_str_eq(first->name, "entry-100-0000000006");
  ck_assert_str_eq(first->key, "e");
  ack(q[0], first);
  for (int i = 0; i < 2; i++) {
    zke_queue_free(q[i]);
    ck_ok(zke_close(z[i]));
  }
}

/* It is refused at once, also where there is no room; with room it waits. */
TEST(a_key_is_refused_before_room_is_waited_for) {
  zke_queue_options o = {.size = sizeof o, .limit = 1};
  zke_queue_put_options k = {.size = sizeof k, .key = "k"};
  open_with(&o);
  ck_ok(put_key(q[0], "a", "k"));
  ck_rc(zke_queue_put(q[1], "b", 1, &k, ZKE_FOREVER), ZKE_NODEEXISTS);
  ck_rc(put_key(q[1], "b", "other"), ZKE_LIMIT);
  take(q[2], "a");
  ck_ok(put_key(q[1], "b", "k"));
  ck_ok(zke_queue_destroy(q[0], 0));
  ck_rc(zke_exists(z[0], PATH, NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(put_key(q[1], "b", "k"));
  take(q[2], "b");
  close_all();
}

static int put_key_other(zke *other) {
  (void)other;
  return put_key(others, "b", "k");
}

/* Whenever another one puts, with the same key or without one: one item has the
 * key, and its znodes name it. */
TEST_LOOP(a_key_has_one_item_at_every_moment, 0, 2) {
  zke *own = open_meddled();
  zke_queue *queue;
  int refused = 0;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  ck_ok(zke_queue_new(meddler, PATH, NULL, &others));
  put(queue, "first");
  take(queue, "first");
  put(others, "first");
  take(others, "first");
  meddled = 0;
  for (long n = 1; meddled != 1 || n < 3; n++) {
    zke_queue_item *item = NULL;
    int keyed = 0;
    meddle_next(n, _i ? put_raw : put_key_other);
    int rc = put_key(queue, "a", "k");
    meddle_at = 0;
    ck_assert_msg(rc == ZKE_OK || (rc == ZKE_NODEEXISTS && !_i), "%s",
                  zke_errmsg());
    if (!_i && meddled != 1) ck_assert_int_ne(rc == ZKE_OK, meddled == ZKE_OK);
    refused += rc != ZKE_OK;
    while (zke_queue_take(queue, 0, &item) == ZKE_OK) {
      keyed += strcmp(item->key, "k") == 0;
      zke_free(item);
    }
    ck_assert_msg(keyed == 1, "%d items: %d and %d at clock reading %ld: %s",
                  keyed, rc, meddled, n, zke_errmsg());
    ck_assert_int_eq(entries(own, PATH "/keys"), 0);
  }
  if (!_i) ck_assert_int_gt(refused, 0);
  zke_queue_free(others);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

/* At each reading of the clock. */
static int put_always(zke *other) {
  meddle_at = 1;
  return put_raw(other);
}

/* Others put at each try of a put with a key: it ends at its deadline, and does
 * not say that the queue is full. */
TEST(a_key_that_is_never_quick_enough_is_not_a_full_queue) {
  zke *own = open_meddled();
  zke_queue *queue;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  put(queue, "first");
  meddle_next(1, put_always);
  int rc = put_key(queue, "a", "k");
  meddle_at = 0;
  ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  ck_says("others changed the tree at each look");
  ck_ok(put_key(queue, "a", "k"));
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

static zke_queue *cancelled;

/* The same, and at some time the call is cancelled. */
static int put_and_cancel(zke *other) {
  static int times;
  meddle_at = 1;
  if (++times == 200) ck_ok(zke_queue_cancel(cancelled));
  return put_raw(other);
}

/* A call that looks again and again without sleeping hears a cancel. */
TEST(a_call_that_is_never_quick_enough_is_cancelled) {
  zke *own = open_meddled();
  zke_queue_put_options o = {.size = sizeof o, .key = "k"};
  ck_ok(zke_queue_new(own, PATH, NULL, &cancelled));
  put(cancelled, "first");
  meddle_next(1, put_and_cancel);
  int rc = zke_queue_put(cancelled, "a", 1, &o, ZKE_FOREVER);
  meddle_at = 0;
  ck_rc(rc, ZKE_CANCELLED);
  zke_queue_free(cancelled);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

/* Deletes what tells whether a step was made: the user znode. */
static int delete_users(zke *other) {
  zke_strings *names;
  char path[200];
  int rc = zke_children(other, PATH "/entries/line", NULL, NULL, &names, NULL);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < names->count && rc == ZKE_OK; i++) {
    snprintf(path, sizeof path, PATH "/entries/line/%s", names->data[i]);
    rc = zke_delete(other, path, -1);
  }
  zke_free(names);
  return rc;
}

enum { OPEN_ENDS = 4 };

/* Loses the reply after the change, or (3) before it.  (1) The claim does not
 * end by itself any more, or (2) has not until now. */
static int prolong_openly(zke *own, zke_queue *queue, zke_queue_item *item,
                          int how) {
  int when = how == 3 ? ZKE_TEST_FAIL_BEFORE : ZKE_TEST_FAIL_AFTER;
  ck_ok(zke_test_fail(own, when, 0));
  return zke_queue_prolong(queue, item, how == 1 ? ZKE_FOREVER : 50000);
}

/* The reply of a prolongation is lost, and the user znode deleted at any moment
 * of the call, so that it may not know what came of it.  Its claim is held
 * still, and is acknowledged. */
TEST_LOOP(a_prolongation_whose_end_is_open_keeps_the_claim, 0, OPEN_ENDS) {
  zke *own = open_meddled();
  zke_queue_options o = {.size = sizeof o, .claim_ms = 60000};
  zke_queue *queue;
  int open = 0;
  ck_ok(zke_queue_new(own, PATH, &o, &queue));
  for (long n = 1;; n++) {
    put(queue, "a");
    zke_queue_item *item = claim(queue, "a");
    if (_i == 2) ck_ok(zke_queue_prolong(queue, item, ZKE_FOREVER));
    meddle_next(n, delete_users);
    int rc = prolong_openly(own, queue, item, _i);
    bool over = meddle_at > 0;
    meddle_at = 0;
    open += rc == ZKE_CONNECTIONLOSS;
    ack(queue, item);
    ck_assert_int_eq(entries(meddler, PATH "/taken"), 0);
    if (over) break;
  }
  ck_assert_int_gt(open, 0);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

/* ---- dead letters ---- */

static int cancel_late(zke *other) {
  static int times;
  (void)other;
  meddle_at = 1;
  if (++times == 500) ck_ok(zke_queue_cancel(cancelled));
  return ZKE_OK;
}

/* Letters have all names that the one of an item could get. */
static void take_names(zke *session, const zke_queue_entry *item, int count) {
  char path[100];
  int64_t number = item->zxid + strtol(strrchr(item->name, '-') + 1, NULL, 10);
  ck_ok(zke_create(session, PATH "/dead", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  snprintf(path, sizeof path, PATH "/dead/%s", item->name);
  for (int i = 0; i < count; i++) {
    ck_ok(zke_create(session, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                     NULL));
    snprintf(path, sizeof path, PATH "/dead/entry-100-%010d",
             (int)(number + i));
  }
}

/* A burial that finds each name taken hears a cancel. */
TEST(a_burial_that_looks_for_a_name_is_cancelled) {
  enum { LETTERS = 2000 };
  zke *own = open_meddled();
  zke_queue_options o = {.size = sizeof o, .attempts = 1};
  zke_queue_entries *list;
  zke_queue_item *item;
  char entry[100];
  ck_ok(zke_queue_new(own, PATH, &o, &cancelled));
  put(cancelled, "a");
  ck_ok(zke_queue_list(cancelled, &list));
  take_names(own, &list->data[0], LETTERS);
  snprintf(entry, sizeof entry, PATH "/entries/%s", list->data[0].name);
  zke_free(list);
  ck_ok(zke_set(own, entry, "a", 1, -1, NULL)); /* it is exhausted */
  meddle_next(1, cancel_late);
  int rc = zke_queue_take(cancelled, zke_now(own) + 20000, &item);
  meddle_at = 0;
  ck_rc(rc, ZKE_CANCELLED);
  ck_assert_int_eq(size_of(cancelled).dead, LETTERS);
  zke_queue_free(cancelled);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

static void open_attempts(int attempts) {
  zke_queue_options o = {.size = sizeof o, .attempts = attempts};
  open_with(&o);
}

static char *only_letter(zke_queue *queue) {
  zke_queue_entries *list;
  ck_ok(zke_queue_dead(queue, &list));
  ck_assert_int_eq(list->count, 1);
  char *name = strdup(list->data[0].name);
  ck_assert_int_eq(list->data[0].claimed, 0);
  zke_free(list);
  return name;
}

/* "After N attempts an item goes to a dead-letter place": with the release of
 * the last one. */
TEST(the_last_release_buries) {
  open_attempts(2);
  put_as(q[0], "a", 7, 0, 0);
  put(q[0], "b");
  release(q[1], claim(q[1], "a"));
  ck_assert_int_eq(size_of(q[0]).dead, 0);
  release(q[2], claim(q[2], "a"));
  zke_queue_counts c = size_of(q[0]);
  ck_assert_int_eq(c.dead, 1);
  ck_assert_int_eq(c.items, 1);
  ck_assert_int_eq(c.claimed, 0);
  take(q[1], "b");
  expect_nothing(q[1]);
  close_all();
}

/* An attempt counts even where its consumer was killed; exhausted items do not
 * go in circles. */
TEST(an_item_that_kills_its_consumers_is_buried) {
  open_attempts(2);
  put(q[0], "poison");
  put(q[0], "b");
  for (int i = 1; i <= 2; i++) {
    zke_queue_item *item = claim(q[i], "poison");
    ck_assert_int_eq(item->attempts, i);
    zke_free(item);
    ck_ok(zke_expire(z[0], zke_session_id(z[i])));
  }
  zke_queue_item *peeked;
  ck_ok(zke_queue_peek(q[0], &peeked)); /* passes over it, changes nothing */
  ck_assert_str_eq(peeked->data, "b");
  zke_free(peeked);
  ck_assert_int_eq(size_of(q[0]).dead, 0);
  take(q[0], "b");
  ck_assert_int_eq(size_of(q[0]).dead, 1);
  free(only_letter(q[0]));
  close_all();
}

/* "Requeue of dead letters with the base name": it never grows (CURATOR-56);
 * attempts begin anew. */
TEST(a_letter_is_requeued_under_its_base_name) {
  open_attempts(1);
  put_as(q[0], "a", 7, 0, 0);
  for (int i = 0; i < 5; i++) {
    zke_queue_item *item = claim(q[1], "a");
    ck_assert_int_eq(item->attempts, 1);
    ck_assert_int_eq(item->priority, 7);
    ck_assert_uint_eq(strlen(item->name), strlen("entry-007-0000000000"));
    release(q[1], item);
    char *name = only_letter(q[2]);
    ck_assert_uint_eq(strlen(name), strlen("entry-007-0000000000"));
    ck_ok(zke_queue_requeue(q[2], name, 0));
    ck_rc(zke_queue_requeue(q[2], name, 0), ZKE_NONODE);
    ck_assert_int_eq(size_of(q[2]).dead, 0);
    free(name);
  }
  ck_rc(zke_queue_requeue(q[2], "../a", 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_requeue(q[2], NULL, 0), ZKE_BADARGUMENTS);
  take(q[0], "a");
  close_all();
}

/* A letter says how often it was claimed, who had it last, and why that one
 * gave it back; of a consumer that died, that it did.  In the order of deaths.
 */
TEST(a_letter_says_how_it_died) {
  zke_queue_entries *list;
  open_attempts(2);
  put(q[0], "a");
  put(q[0], "b");
  zke_queue_item *a = claim(q[1], "a"), *b = claim(q[2], "b");
  ck_ok(zke_queue_release(q[2], b, 0, "no space\nleft"));
  zke_free(b);
  b = claim(q[2], "b");
  ck_ok(zke_queue_release(q[2], b, 0, "no paper\nleft"));
  zke_free(b);
  release(q[1], a);
  zke_free(claim(q[1], "a"));
  ck_ok(zke_expire(z[0], zke_session_id(z[1])));
  expect_nothing(q[0]);
  ck_ok(zke_queue_dead(q[0], &list));
  ck_assert_int_eq(list->count, 2);
  ck_assert_str_eq(list->data[0].name, "entry-100-0000000002");
  ck_assert_str_eq(list->data[0].reason, "no paper left");
  ck_assert_str_ne(list->data[0].identity, "");
  ck_assert_int_eq(list->data[0].pid, getpid());
  ck_assert_int_eq(list->data[0].attempts, 2);
  ck_assert_int_eq(list->data[0].len, 1);
  ck_assert_str_eq(list->data[1].name, "entry-100-0000000001");
  ck_assert_str_eq(list->data[1].reason,
                   "its consumer ended without an answer");
  ck_assert_str_eq(list->data[1].identity, "");
  ck_assert_int_eq(list->data[1].attempts, 2);
  zke_free(list);
  close_all();
}

static zke_queue_item *claim_any(zke_queue *queue) {
  zke_queue_item *item;
  ck_ok(zke_queue_claim(queue, 0, &item));
  return item;
}

/* An item as large as may be has no room for more in the step that buries it:
 * it is buried all the same. */
TEST(the_largest_item_is_buried) {
  enum { LIMIT = 1048576 };
  zke_queue_entries *list;
  open_attempts(1);
  char *data = calloc(1, LIMIT);
  ck_ok(zke_queue_put(q[0], data, LIMIT, NULL, 0));
  free(data);
  release(q[1], claim_any(q[1]));
  ck_ok(zke_queue_dead(q[0], &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].len, LIMIT);
  ck_ok(zke_queue_drop(q[0], list->data[0].name));
  ck_rc(zke_queue_drop(q[0], list->data[0].name), ZKE_NONODE);
  zke_free(list);
  close_all();
}

/* Its key is kept all the same: else a second item would get it. */
TEST(the_largest_item_with_a_key_is_buried_with_it) {
  enum { LIMIT = 1048576 };
  zke_queue_put_options o = {.size = sizeof o, .key = "k"};
  zke_queue_entries *list;
  open_attempts(1);
  char *data = calloc(1, LIMIT);
  int most = LIMIT - (int)strlen("entry-100-0000000001k");
  ck_rc(zke_queue_put(q[0], data, most + 1, &o, 0), ZKE_BADARGUMENTS);
  ck_ok(zke_queue_put(q[0], data, most, &o, 0));
  free(data);
  release(q[1], claim_any(q[1]));
  ck_ok(zke_queue_dead(q[0], &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_str_eq(list->data[0].key, "k");
  ck_ok(put_key(q[0], "b", "k"));
  ck_rc(zke_queue_requeue(q[0], list->data[0].name, 0), ZKE_NODEEXISTS);
  take(q[1], "b");
  ck_ok(zke_queue_requeue(q[0], list->data[0].name, 0));
  ck_rc(put_key(q[0], "b", "k"), ZKE_NODEEXISTS);
  zke_free(list);
  close_all();
}

/* Also where an earlier letter has its name; the items behind it are taken. */
TEST(the_largest_item_is_buried_beside_one_of_its_name) {
  enum { LIMIT = 1048576 };
  const char *path = PATH "/entries/entry-100-0000000001";
  open_attempts(1);
  char *data = calloc(1, LIMIT);
  put(q[0], "a");
  release(q[1], claim(q[1], "a"));
  ck_ok(zke_create(z[0], path, data, LIMIT, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  free(data);
  put(q[0], "b");
  release(q[1], claim_any(q[1]));
  ck_assert_int_eq(size_of(q[0]).dead, 2);
  take(q[1], "b");
  close_all();
}

/* Who makes items by hand may use a name again; both are buried. */
TEST(two_items_of_one_name_become_dead_letters) {
  const char *path = PATH "/entries/entry-100-0000000001";
  zke_queue_entries *list;
  open_attempts(1);
  put(q[0], "a");
  release(q[1], claim(q[1], "a"));
  ck_ok(
      zke_create(z[0], path, "b", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  release(q[1], claim(q[1], "b"));
  ck_ok(zke_queue_dead(q[0], &list));
  ck_assert_int_eq(list->count, 2);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(list->data[i].attempts, 1);
    ck_ok(zke_queue_drop(q[0], list->data[i].name));
  }
  zke_free(list);
  ck_assert_int_eq(size_of(q[0]).dead, 0);
  ck_rc(zke_queue_drop(q[0], "../entries"), ZKE_BADARGUMENTS);
  close_all();
}

/* Two items are put at once and become dead letters. */
static void bury_two(void) {
  zke_queue_value values[2] = {{"a", 1}, {"b", 1}};
  ck_ok(zke_queue_put_all(q[0], values, 2, NULL, 0));
  release(q[1], claim(q[1], "a"));
  release(q[1], claim(q[1], "b"));
}

/* The numbers of the items begin anew with the directory, which goes when
 * nobody uses the queue, and those that were put at once have one zxid.  Each
 * letter gets a name of its own all the same, so that none stands in the way of
 * the items behind it. */
TEST(letters_of_one_put_have_names_of_their_own) {
  open_attempts(1);
  for (int i = 1; i <= 3; i++) {
    bury_two();
    ck_assert_int_eq(size_of(q[0]).dead, 2 * i);
    for (int k = 0; k < SESSIONS; k++) zke_queue_free(q[k]);
    ck_ok(zke_delete(z[0], PATH "/entries/line", -1));
    ck_ok(zke_delete(z[0], PATH "/entries", -1));
    for (int k = 0; k < SESSIONS; k++)
      ck_ok(zke_queue_new(z[k], PATH, NULL, &q[k]));
  }
  put(q[0], "c");
  take(q[1], "c");
  close_all();
}

/* The attempts of a queue that is made do not change one that is there. */
TEST(new_attempts_are_those_of_a_new_queue) {
  zke_queue_options o = {.size = sizeof o, .new_attempts = 4};
  zke_queue *other;
  open_with(&o);
  put(q[0], "a");
  ck_assert_int_eq(size_of(q[0]).attempts, 4);
  o.new_attempts = 5;
  ck_ok(zke_queue_new(z[1], PATH, &o, &other));
  take(other, "a");
  ck_assert_int_eq(size_of(other).attempts, 4);
  zke_queue_free(other);
  ck_ok(zke_queue_new(z[1], "/plain", NULL, &other));
  put(other, "a");
  zke_queue_free(other);
  ck_ok(zke_queue_new(z[1], "/plain", &o, &other));
  take(other, "a");
  ck_assert_int_eq(size_of(other).attempts, 0);
  zke_queue_free(other);
  o.new_attempts = -1;
  ck_rc(zke_queue_new(z[1], "/plain", &o, &other), ZKE_BADARGUMENTS);
  close_all();
}

/* Requeueing needs room like any put, and wakes who waits. */
TEST(requeueing_is_putting) {
  zke_queue_options o = {.size = sizeof o, .attempts = 1, .limit = 1};
  open_with(&o);
  put(q[0], "a");
  release(q[1], claim(q[1], "a"));
  put(q[0], "b");
  char *name = only_letter(q[0]);
  ck_rc(zke_queue_requeue(q[0], name, 0), ZKE_LIMIT);
  ck_assert_int_eq(size_of(q[0]).dead, 1);
  take(q[1], "b");
  waiter w = {.queue = q[1], .deadline = soon(z[1])};
  begin_wait(&w, z[2]);
  ck_ok(zke_queue_requeue(q[0], name, 0));
  end_wait(&w, ZKE_OK);
  ck_assert_str_eq(w.item->data, "a");
  zke_free(w.item);
  free(name);
  close_all();
}

/* ---- waiting ---- */

/* A consumer that sleeps, to take or to claim, gets the item that is put. */
TEST(a_put_ends_the_wait) {
  open_all();
  for (int claiming = 0; claiming <= 1; claiming++) {
    waiter w = {.queue = q[1], .deadline = soon(z[1]), .claiming = claiming};
    begin_wait(&w, z[2]);
    put(q[0], "a");
    end_wait(&w, ZKE_OK);
    ck_assert_str_eq(w.item->data, "a");
    if (claiming)
      ack(q[1], w.item);
    else
      zke_free(w.item);
  }
  close_all();
}

/* … or the item that another consumer gives back, */
TEST(a_release_ends_the_wait) {
  open_all();
  put(q[0], "a");
  zke_queue_item *item = claim(q[0], "a");
  waiter w = {.queue = q[1], .deadline = soon(z[1])};
  begin_wait(&w, z[2]);
  release(q[0], item);
  end_wait(&w, ZKE_OK);
  zke_free(w.item);
  close_all();
}

/* Also where the same object holds the claim in another thread. */
TEST(a_release_by_the_same_object_ends_the_wait) {
  open_all();
  put(q[1], "a");
  zke_queue_item *item = claim(q[1], "a");
  waiter w = {.queue = q[1], .deadline = soon(z[1])};
  begin_wait(&w, z[2]);
  release(q[1], item);
  end_wait(&w, ZKE_OK);
  zke_free(w.item);
  close_all();
}

/* … or the one whose consumer's session ended (P6). */
TEST(an_expired_consumer_ends_the_wait) {
  open_all();
  put(q[0], "a");
  zke_free(claim(q[0], "a"));
  waiter w = {.queue = q[1], .deadline = soon(z[1])};
  begin_wait(&w, z[2]);
  ck_ok(zke_expire(z[2], zke_session_id(z[0])));
  end_wait(&w, ZKE_OK);
  zke_free(w.item);
  close_all();
}

/* "On timeout the sentence names what or who is missing"; nothing is left. */
TEST(a_timeout_says_why_and_leaves_nothing) {
  zke_queue_item *item;
  open_all();
  ck_rc(zke_queue_take(q[1], zke_now(z[1]) + 30, &item), ZKE_OPERATIONTIMEOUT);
  ck_says("the queue /jobs is empty");
  put(q[0], "a");
  zke_queue_item *held = claim(q[0], "a");
  ck_rc(zke_queue_take(q[1], zke_now(z[1]) + 30, &item), ZKE_OPERATIONTIMEOUT);
  ck_says("is held by ann (pid ");
  ck_says("since 20");
  ck_assert_int_eq(size_of(q[0]).takers, 0);
  ack(q[0], held);
  close_all();
}

/* A sleeping consumer, and a producer that sleeps for room, are cancelled:
 * neither stays in a line, and nothing was put. */
TEST(cancel_ends_the_wait_of_another_thread) {
  zke_queue_options o = {.size = sizeof o, .limit = 1};
  open_with(&o);
  waiter w = {.queue = q[1], .deadline = ZKE_FOREVER};
  begin_wait(&w, z[2]);
  ck_until(zke_queue_cancel(q[1]) == ZKE_OK, 10000);
  end_wait(&w, ZKE_CANCELLED);
  put(q[0], "a");
  waiter p = {.queue = q[1], .deadline = ZKE_FOREVER, .putting = true};
  begin_wait(&p, z[2]);
  ck_until(zke_queue_cancel(q[1]) == ZKE_OK, 10000);
  end_wait(&p, ZKE_CANCELLED);
  ck_assert_int_eq(size_of(q[0]).putters + size_of(q[0]).takers, 0);
  ck_assert_int_eq(size_of(q[0]).items, 1);
  close_all();
}

/* The session ends under a blocking call. */
TEST(an_expired_waiter_returns) {
  open_all();
  waiter w = {.queue = q[1], .deadline = ZKE_FOREVER};
  begin_wait(&w, z[2]);
  ck_ok(zke_expire(z[0], zke_session_id(z[1])));
  ck_until(is_done(&w), 5000);
  end_wait(&w, ZKE_INVALIDSTATE);
  close_all();
}

/* One wait for items and one for room at a time. */
TEST(a_second_wait_on_an_object_is_misuse) {
  zke_queue_item *item;
  open_listening();
  waiter w = {.queue = q[1], .deadline = soon(z[1])};
  begin_wait(&w, z[2]);
  ck_rc(zke_queue_take(q[1], soon(z[1]), &item), ZKE_MISUSE);
  ck_rc(zke_queue_start(q[1], ZKE_QUEUE_ITEM), ZKE_MISUSE);
  ck_rc(zke_queue_stop(q[1], ZKE_QUEUE_ITEM), ZKE_MISUSE);
  ck_rc(zke_queue_take(q[1], 0, &item), ZKE_OPERATIONTIMEOUT);
  put(q[1], "a"); /* while the other thread waits */
  end_wait(&w, ZKE_OK);
  zke_free(w.item);
  close_all();
}

/* One's place in the line is deleted: one takes another. */
TEST(a_lost_place_is_taken_again) {
  zke_strings *line;
  char path[200];
  open_all();
  waiter w = {.queue = q[1], .deadline = soon(z[1])};
  waiter v = {.queue = q[2], .deadline = soon(z[2])};
  begin_wait(&w, z[0]);
  begin_wait(&v, z[0]);
  ck_ok(zke_children(z[0], PATH "/entries/line", NULL, NULL, &line, NULL));
  for (int i = 0; i < line->count; i++) {
    snprintf(path, sizeof path, PATH "/entries/line/%s", line->data[i]);
    ck_ok(zke_delete(z[0], path, -1));
  }
  zke_free(line);
  put(q[0], "a");
  put(q[0], "b");
  end_wait(&w, ZKE_OK);
  end_wait(&v, ZKE_OK);
  zke_free(w.item);
  zke_free(v.item);
  close_all();
}

/* ---- without blocking ---- */

static int tries; /* of a listener */

/* A started consumer hears once of all that is there, and no more until it
 * starts again; a stop ends it. */
TEST(the_listener_is_told_of_an_item) {
  open_listening();
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM));
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM));
  dispatch_all();
  ck_assert_str_eq(told[1], "");
  put(q[0], "a");
  put(q[0], "b");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "1  -;"); /* once */
  take(q[1], "a");
  ck_assert_int_eq(size_of(q[0]).takers, 0);
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM));
  ck_assert_str_eq(told[1], "1  -;1  -;"); /* at once */
  ck_ok(zke_queue_stop(q[1], ZKE_QUEUE_ITEM));
  ck_ok(zke_queue_stop(q[1], ZKE_QUEUE_ITEM));
  ck_assert_int_eq(size_of(q[0]).takers, 0);
  close_all();
}

/* Another was quicker: the try fails, and the next put is told again. */
TEST(a_failed_try_waits_on) {
  zke_queue_item *item;
  open_listening();
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM));
  put(q[0], "a");
  zke_dispatch(z[1], NULL);
  take(q[2], "a");
  ck_rc(zke_queue_take(q[1], 0, &item), ZKE_OPERATIONTIMEOUT);
  ck_rc(zke_queue_take(q[1], soon(z[1]), &item), ZKE_MISUSE);
  ck_assert_int_eq(size_of(q[0]).takers, 1);
  put(q[0], "b");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "1  -;1  -;");
  take(q[1], "b");
  close_all();
}

/* The listener was told and has not tried, or could not begin to: it hears of
 * the next put, and of what is there when the program makes a step. */
TEST(who_has_not_tried_is_told_again) {
  open_listening();
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM));
  put(q[0], "a");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "1  -;");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "1  -;"); /* nothing has come */
  put(q[0], "b");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "1  -;1  -;");
  ck_ok(zke_queue_step(q[1]));
  ck_assert_str_eq(told[1], "1  -;1  -;1  -;");
  take(q[1], "a");
  ck_ok(zke_queue_step(q[1]));
  ck_assert_str_eq(told[1], "1  -;1  -;1  -;"); /* it waits no more */
  take(q[1], "b");
  close_all();
}

/* Takes an item when it is told; the first of its tries fails, as items must
 * not be deleted then. */
static void take_second(zke_queue *queue, int event, int64_t token,
                        const char *name, void *context) {
  zke_queue_item *item = NULL;
  listen(queue, event, token, name, context);
  zke_acl keeps = {ZKE_PERM_ALL - ZKE_PERM_DELETE, "world", "anyone"};
  zke_acls acls = {1, &keeps};
  bool first = ++tries == 1;
  if (first) ck_ok(zke_set_acl(z[0], PATH "/entries", -1, &acls, NULL));
  ck_rc(zke_queue_take(queue, 0, &item), first ? ZKE_NOAUTH : ZKE_OK);
  if (first) ck_ok(zke_set_acl(z[0], PATH "/entries", -1, ZKE_OPEN_ACL, NULL));
  zke_free(item);
}

/* A try that has failed inside the listener is told of what ends a claim, also
 * where another item was there at that moment, and has gone or was claimed
 * since.  Until then it is told nothing. */
TEST_LOOP(who_has_failed_is_told_of_the_end_of_a_claim, 0, 3) {
  zke_queue_options o = {.size = sizeof o, .listener = take_second};
  zke_queue_item *first, *second = NULL;
  tries = 0;
  open_with(&o);
  put(q[0], "a");
  put(q[0], "b");
  first = claim(q[2], "a");
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM));
  for (int i = 0; i < 3; i++) zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "1  -;");
  if (_i == 0) take(q[0], "b");
  if (_i > 0) second = claim(q[0], "b");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "1  -;");
  release(_i < 2 ? q[2] : q[0], _i < 2 ? first : second);
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "1  -;1  -;");
  ck_assert_int_eq(size_of(q[0]).takers, 0);
  if (_i == 1) ack(q[0], second);
  if (_i == 2) ack(q[2], first);
  expect_nothing(q[0]);
  close_all();
}

/* Takes one item each time it is told, or waits no more (context: "stop"), but
 * dispatches before, where it is told of the next put.  That one puts. */
static void take_late(zke_queue *queue, int event, int64_t token,
                      const char *name, void *context) {
  zke_queue_item *item = NULL;
  char *text = context;
  bool stops = strcmp(text, "stop") == 0;
  listen(queue, event, token, name, context);
  put(q[0], "b");
  zke_dispatch(z[1], NULL);
  ck_ok(zke_queue_step(queue));
  if (stops) {
    ck_ok(zke_queue_stop(queue, event));
  } else {
    ck_ok(zke_queue_take(queue, 0, &item));
    zke_free(item);
  }
}

/* Whoever waits no more hears nothing more, whatever was to be told. */
TEST_LOOP(who_has_taken_is_not_told_again, 0, 2) {
  zke_queue_options o = {.size = sizeof o, .listener = take_late};
  open_with(&o);
  if (_i) strcpy(told[1], "stop");
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM));
  put(q[0], "a");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], _i ? "stop1  -;" : "1  -;");
  ck_assert_int_eq(size_of(q[0]).items, 2 - !_i);
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM)); /* but after the next start */
  ck_assert_str_eq(told[1], _i ? "stop1  -;1  -;" : "1  -;1  -;");
  close_all();
}

/* The same for a producer before a full queue. */
TEST(the_listener_is_told_of_room) {
  zke_queue_options o = {.size = sizeof o, .limit = 1, .listener = listen};
  open_with(&o);
  put(q[0], "a");
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ROOM));
  ck_rc(zke_queue_start(q[1], 77), ZKE_BADARGUMENTS);
  dispatch_all();
  ck_assert_str_eq(told[1], "");
  take(q[0], "a");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "2  -;");
  put(q[1], "b");
  ck_assert_int_eq(size_of(q[0]).putters, 0);
  close_all();
}

/* Puts two items when it is told of room, and gives up after some tries. */
static void put_two(zke_queue *queue, int event, int64_t token,
                    const char *name, void *context) {
  static const zke_queue_value values[] = {{"x", 1}, {"y", 1}};
  listen(queue, event, token, name, context);
  if (++tries > 9)
    ck_ok(zke_queue_stop(queue, event));
  else
    zke_queue_put_all(queue, values, 2, NULL, 0);
}

/* Whoever puts several in its listener and finds too little room is told when
 * there is room for as many, not again and again. */
TEST(the_listener_is_told_of_room_for_several) {
  zke_queue_options o = {.size = sizeof o, .limit = 3, .listener = put_two};
  tries = 0;
  open_with(&o);
  put(q[0], "a");
  put(q[0], "b");
  put(q[0], "c");
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ROOM));
  take(q[0], "a");
  zke_dispatch(z[1], NULL);
  ck_assert_int_eq(tries, 1);
  take(q[0], "b");
  zke_dispatch(z[1], NULL);
  ck_assert_int_eq(tries, 2);
  ck_assert_int_eq(items(z[0]), 3);
  ck_assert_int_eq(size_of(q[0]).putters, 0);
  close_all();
}

/* A put of several beside that, which does not wait, does not change what the
 * listener is told of. */
TEST(a_put_beside_leaves_the_listener_its_room) {
  static const zke_queue_value values[] = {{"x", 1}, {"y", 1}};
  zke_queue_options o = {.size = sizeof o, .limit = 2, .listener = listen};
  open_with(&o);
  put(q[0], "a");
  put(q[0], "b");
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ROOM));
  ck_rc(zke_queue_put_all(q[1], values, 2, NULL, 0), ZKE_LIMIT);
  take(q[0], "a");
  zke_dispatch(z[1], NULL);
  ck_assert_str_eq(told[1], "2  -;");
  put(q[1], "c");
  ck_assert_int_eq(size_of(q[0]).putters, 0);
  close_all();
}

/* A second start asks for room for one, whatever was tried before. */
TEST(a_start_asks_for_room_for_one) {
  static const zke_queue_value values[] = {{"x", 1}, {"y", 1}};
  zke_queue_options o = {.size = sizeof o, .limit = 2, .listener = listen};
  open_with(&o);
  put(q[0], "a");
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ROOM));
  ck_assert_str_eq(told[1], "2  -;");
  ck_rc(zke_queue_put_all(q[1], values, 2, NULL, 0), ZKE_LIMIT);
  ck_assert_str_eq(told[1], "2  -;");
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ROOM));
  ck_assert_str_eq(told[1], "2  -;2  -;");
  close_all();
}

/* Without listener there is nobody to tell. */
TEST(arguments_are_checked) {
  zke_queue *none = (zke_queue *)1;
  zke_queue_options o = {.size = 3};
  zke_queue_put_options p = {.size = sizeof p, .priority = 1000};
  open_all();
  ck_rc(zke_queue_new(z[0], "jobs", NULL, &none), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(none);
  ck_rc(zke_queue_new(z[0], "/", NULL, &none), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_new(z[0], PATH, &o, &none), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_new(z[0], PATH, NULL, NULL), ZKE_BADARGUMENTS);
  o = (zke_queue_options){.size = sizeof o, .limit = -1};
  ck_rc(zke_queue_new(z[0], PATH, &o, &none), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_start(q[0], ZKE_QUEUE_ITEM), ZKE_MISUSE);
  ck_rc(zke_queue_put(q[0], "x", 1, &p, 0), ZKE_BADARGUMENTS);
  ck_says("options.priority is 1000, not 0 to 999");
  p = (zke_queue_put_options){.size = sizeof p, .due_ms = -1};
  ck_rc(zke_queue_put(q[0], "x", 1, &p, 0), ZKE_BADARGUMENTS);
  ck_says("options.due_ms is -1, not 0 to 9999999999999");
  ck_rc(zke_queue_put(q[0], "x", -2, NULL, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_put_all(q[0], NULL, 1, NULL, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_take(q[0], 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_ack(q[0], NULL, NULL, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_size(q[0], NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_list(q[0], NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_peek(q[0], NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_queue_due(q[0], NULL), ZKE_BADARGUMENTS);
  zke_queue_free(NULL);
  ck_assert_int_eq(size_of(q[0]).items, 0);
  close_all();
}

/* Two recipes of different kinds on one path: a clear error. */
TEST(another_kind_on_the_path_is_refused) {
  zke_queue_item *item;
  open_all();
  ck_ok(zke_create(z[0], PATH, "zkembed lock\n", 13, ZKE_OPEN_ACL, 0, NULL,
                   NULL));
  ck_rc(zke_queue_put(q[0], "x", 1, NULL, 0), ZKE_OTHERKIND);
  ck_says("is of kind lock, not queue");
  ck_rc(zke_queue_take(q[0], 0, &item), ZKE_OTHERKIND);
  ck_assert_int_eq(entries(z[0], PATH), 0);
  close_all();
}

/* Somebody removed all of the queue: it is made anew by the next call. */
TEST(a_removed_queue_is_made_again) {
  static const char *const names[] = {"/entries/line", "/entries", ""};
  char path[100];
  open_all();
  put(q[0], "a");
  take(q[0], "a");
  zke_queue_free(q[0]);
  q[0] = NULL;
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, PATH "%s", names[i]);
    ck_ok(zke_delete(z[0], path, -1));
  }
  put(q[1], "b");
  take(q[2], "b");
  close_all();
}

/* ---- the end of a queue ---- */

/* All nodes of the tree. */
static int nodes_below(zke *session, const char *path) {
  zke_strings *names;
  char child[300];
  int count = 0;
  if (zke_children(session, path, NULL, NULL, &names, NULL) != ZKE_OK) return 0;
  for (int i = 0; i < names->count; i++) {
    snprintf(child, sizeof child, "%s/%s", path[1] ? path : "", names->data[i]);
    if (strcmp(child, "/zookeeper") != 0)
      count += 1 + nodes_below(session, child);
  }
  zke_free(names);
  return count;
}

/* A session at whose dispatch empty containers go at once. */
static zke *open_hasty(const char *name) {
  zke *hasty;
  zke_options o = {.size = sizeof o, .container_ms = ZKE_AT_ONCE};
  ck_ok(zke_open(test_path(name), &o, &hasty));
  return hasty;
}

static bool is_swept(zke *session) {
  ck_ok(zke_dispatch(session, NULL));
  return nodes_below(session, "/") == 0;
}

/* Queues that were used once, each by another object, leave nothing: neither
 * those that were put into and emptied, nor those that were only waited at. */
TEST(one_shot_queues_leave_nothing) {
  long queues = test_sample(1000, 200);
  zke *own = open_hasty("db");
  for (int i = 0; i < queues; i++) {
    zke_queue_options o = {.size = sizeof o, .new_attempts = i % 2};
    zke_queue *queue;
    zke_queue_item *item = NULL;
    char path[100];
    snprintf(path, sizeof path, "/replies/%d", i);
    ck_ok(zke_queue_new(own, path, &o, &queue));
    if (i % 4) put(queue, "x");
    int rc = i % 4 == 3 ? zke_queue_claim(queue, 0, &item)
                        : zke_queue_take(queue, 0, &item);
    ck_rc(rc, i % 4 ? ZKE_OK : ZKE_OPERATIONTIMEOUT);
    if (i % 4 == 3) ck_ok(zke_queue_ack(queue, item, NULL, 0, NULL));
    zke_free(item);
    zke_queue_free(queue);
  }
  ck_until(is_swept(own), 60000);
  ck_ok(zke_close(own));
}

static long dies_at; /* that reading of a clock is the last; 0: none is */

static void die_at_look(seam_call *c) {
  (void)c;
  if (dies_at > 0 && --dies_at == 0) _exit(1);
}

/* Look for an item at a queue of its own, and die at the n-th reading of a
 * clock.  Returns 0 where it ended before. */
static int die_at_a_queue(void *context) {
  long n = *(long *)context;
  zke_queue *queue;
  zke_queue_item *item;
  zke *own;
  char path[100];
  static seam s = {.before = {[SEAM_clock] = die_at_look}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s)};
  snprintf(path, sizeof path, "/replies/%ld", n);
  if (zke_open(test_path("db"), &o, &own) != ZKE_OK) return 2;
  dies_at = n;
  if (zke_queue_new(own, path, NULL, &queue) != ZKE_OK) return 3;
  if (zke_queue_take(queue, 0, &item) != ZKE_OPERATIONTIMEOUT) return 4;
  zke_queue_free(queue);
  return zke_close(own) == ZKE_OK ? 0 : 5;
}

/* Wherever a process dies it leaves no directory that nobody removes (Q6). */
TEST(a_death_leaves_no_queue) {
  int rc = 1;
  test_path("db");
  for (long n = 1; rc == 1; n++)
    rc = test_child_end(test_child(die_at_a_queue, &n));
  ck_assert_int_eq(rc, 0);
  zke *own = open_hasty("db");
  ck_until(is_swept(own), 60000);
  ck_ok(zke_close(own));
}

/* Looking makes nothing. */
TEST(looking_makes_no_queue) {
  zke_queue_item *item;
  zke_queue_entries *list;
  int64_t due;
  open_all();
  ck_rc(zke_queue_peek(q[0], &item), ZKE_NONODE);
  ck_assert_int_eq(size_of(q[0]).items, 0);
  ck_ok(zke_queue_list(q[0], &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_ok(zke_queue_dead(q[0], &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_ok(zke_queue_due(q[0], &due));
  ck_assert(due == ZKE_FOREVER);
  ck_assert_int_eq(nodes_below(z[0], "/"), 0);
  close_all();
}

/* A limit or attempts that somebody has named outlive the emptiness. */
TEST(named_settings_stay) {
  zke *own = open_hasty("db");
  zke_queue_options o = {.size = sizeof o, .limit = 7, .attempts = 2};
  zke_queue *queue;
  zke_stat stat;
  ck_ok(zke_queue_new(own, PATH, &o, &queue));
  put(queue, "x");
  take(queue, "x");
  zke_queue_free(queue);
  ck_until(
      zke_dispatch(own, NULL) == ZKE_OK &&
          zke_exists(own, PATH "/entries", NULL, NULL, &stat) == ZKE_NONODE,
      10000);
  ck_ok(zke_create(own, "/later", "", 0, ZKE_OPEN_ACL, ZKE_CONTAINER, NULL,
                   NULL));
  ck_ok(zke_create(own, "/later/x", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_delete(own, "/later/x", -1));
  ck_until(zke_dispatch(own, NULL) == ZKE_OK &&
               zke_exists(own, "/later", NULL, NULL, NULL) == ZKE_NONODE,
           10000);
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  ck_assert_int_eq(size_of(queue).limit, 7);
  ck_assert_int_eq(size_of(queue).attempts, 2);
  put(queue, "y");
  take(queue, "y");
  ck_ok(zke_queue_destroy(queue, 1));
  ck_rc(zke_queue_destroy(queue, 1), ZKE_NONODE);
  zke_queue_free(queue);
  ck_until(is_swept(own), 10000);
  ck_ok(zke_close(own));
}

/* The numbers begin anew with "entries", but what was decided about an item is
 * never done to another that has its name and its version (Q5). */
TEST_LOOP(a_name_that_comes_again_is_another_item, 0, 3) {
  zke_op ops[ZKE_QUEUE_OPS];
  zke_queue_item *stale, *fresh;
  open_listening();
  put(q[0], "old");
  stale = claim(q[1], "old");
  ck_ok(zke_queue_ops(stale, ops));
  ck_ok(zke_multi(z[1], ops, ZKE_QUEUE_OPS, NULL));
  ck_ok(zke_queue_destroy(q[0], 0));
  put(q[0], "new");
  fresh = claim(q[2], "new");
  ck_assert_str_eq(stale->name, fresh->name);
  ck_assert_int_eq(stale->version, fresh->version);
  ck_rc(zke_multi(z[1], ops, ZKE_QUEUE_OPS, NULL), ZKE_NONODE);
  ck_rc(zke_queue_check(q[1], stale), ZKE_LOST);
  if (_i == 0) ck_rc(zke_queue_ack(q[1], stale, NULL, 0, NULL), ZKE_LOST);
  if (_i == 1) ck_rc(zke_queue_release(q[1], stale, 0, NULL), ZKE_LOST);
  if (_i == 2) zke_dispatch(z[1], NULL);
  if (_i == 2) ck_assert_str_eq(told[1], "3 entry-100-0000000001 token;");
  ck_ok(zke_queue_check(q[2], fresh));
  ack(q[2], fresh);
  zke_free(stale);
  expect_nothing(q[0]);
  close_all();
}

/* A user znode whose version is not the one known, as after a step whose reply
 * could not be looked into, stays: what its object has claimed is guarded by
 * it. */
TEST(an_unknown_version_keeps_the_claims_guarded) {
  zke_op ops[ZKE_QUEUE_OPS];
  zke_strings *line;
  open_all();
  put(q[0], "a");
  zke_queue_item *item = claim(q[1], "a");
  ck_ok(zke_queue_ops(item, ops));
  ck_ok(zke_ephemerals(z[1], 0, PATH "/entries/line", &line));
  ck_assert_int_eq(line->count, 1);
  ck_ok(zke_set(z[1], line->data[0], "", 0, -1, NULL));
  zke_free(line);
  put(q[1], "b");
  ck_ok(zke_multi(z[1], ops, ZKE_QUEUE_OPS, NULL));
  ck_ok(zke_queue_check(q[1], item));
  ack(q[1], item);
  take(q[1], "b");
  expect_nothing(q[1]);
  close_all();
}

enum { BY_ACK, BY_ACK_ALL, BY_RELEASE, BY_DELAY, BY_BURIAL, BY_PROLONG, ENDS };

static int end_claim(int how, zke_queue *queue, zke_queue_item *item) {
  switch (how) {
    case BY_ACK:
      return zke_queue_ack(queue, item, NULL, 0, NULL);
    case BY_ACK_ALL:
      return zke_queue_ack_all(queue, &item, 1, NULL, 0, NULL);
    case BY_DELAY:
      return zke_queue_release(queue, item, 60000, "later");
    case BY_PROLONG:
      return zke_queue_prolong(queue, item, 60000);
    default:
      return zke_queue_release(queue, item, 0, NULL);
  }
}

/* The same once the object of the old claim stands in the new queue, as after a
 * put or after the loss of another claim: then its steps could be made there
 * (Q5). */
TEST_LOOP(an_old_claim_cannot_end_a_later_one, 0, ENDS) {
  zke_queue_options o = {.size = sizeof o, .attempts = _i == BY_BURIAL};
  zke_queue_item *stale, *lost, *fresh;
  open_with(&o);
  put(q[0], "old");
  put(q[0], "old too");
  stale = claim(q[1], "old");
  lost = claim(q[1], "old too");
  ck_ok(zke_queue_destroy(q[0], 0));
  put(q[0], "new");
  fresh = claim(q[2], "new");
  ck_assert_str_eq(stale->name, fresh->name);
  ck_assert_int_eq(stale->version, fresh->version);
  if (_i % 2) put(q[1], "x");
  ck_rc(zke_queue_ack(q[1], lost, NULL, 0, NULL), ZKE_LOST);
  ck_rc(end_claim(_i, q[1], stale), ZKE_LOST);
  ck_rc(zke_queue_check(q[1], stale), ZKE_LOST);
  ck_ok(zke_queue_check(q[2], fresh));
  ack(q[2], fresh);
  if (_i % 2) take(q[0], "x");
  zke_free(stale);
  zke_free(lost);
  expect_nothing(q[0]);
  ck_assert_int_eq(size_of(q[0]).dead, 0);
  close_all();
}

/* Items, in more than one batch, claims, letters, settings. */
TEST(destroying_removes_all) {
  zke_queue_options o = {.size = sizeof o, .attempts = 1};
  zke_queue_item *item;
  open_with(&o);
  put(q[0], "a");
  release(q[1], claim(q[1], "a")); /* a letter */
  ck_rc(zke_queue_destroy(q[0], 1), ZKE_NOTEMPTY);
  ck_says("0 items and 1 dead letters");
  for (int i = 0; i < 600; i++) put(q[0], "b");
  item = claim(q[1], "b");
  ck_rc(zke_queue_destroy(q[0], 1), ZKE_NOTEMPTY);
  ck_rc(zke_queue_destroy(q[0], 2), ZKE_BADARGUMENTS);
  ck_ok(zke_queue_check(q[1], item));
  ck_ok(zke_queue_destroy(q[0], 0));
  ck_assert_int_eq(nodes_below(z[0], "/"), 0);
  ck_rc(zke_queue_destroy(q[0], 0), ZKE_NONODE);
  ck_rc(zke_queue_ack(q[1], item, NULL, 0, NULL), ZKE_LOST);
  zke_free(item);
  put(q[2], "c");
  take(q[1], "c");
  expect_nothing(q[0]);
  close_all();
}

/* Inside the other's transaction it would wait long: so a change is tried that
 * is not repeated. */
static int destroy_other(zke *other) {
  int rc = zke_set(other, "/", "", 0, -1, NULL);
  return rc == ZKE_OK ? zke_queue_destroy(others, 0) : rc;
}
static int destroy_and_claim(zke *other) {
  int rc = destroy_other(other);
  if (rc == ZKE_OK) rc = zke_queue_put(others, "a", 1, NULL, 0);
  return rc == ZKE_OK ? zke_queue_claim(others, 0, &others_item) : rc;
}

/* Whenever another one destroys the queue while this one claims, and perhaps
 * claims the item of the next queue, which has the same name: what was claimed
 * is lost, and the listener hears of it. */
TEST_LOOP(a_claim_that_is_destroyed_is_lost_at_every_moment, 0, 2) {
  static char heard[200];
  zke *own = open_meddled();
  zke_queue_options o = {
      .size = sizeof o, .listener = listen, .context = heard};
  zke_queue *queue;
  int lost = 0;
  ck_ok(zke_queue_new(own, PATH, &o, &queue));
  ck_ok(zke_queue_new(meddler, PATH, NULL, &others));
  meddled = 0;
  for (long n = 1; meddled != 1 || n < 3; n++) {
    zke_queue_item *item = NULL;
    others_item = NULL;
    heard[0] = '\0';
    put(others, "a");
    meddle_next(n, _i ? destroy_and_claim : destroy_other);
    int rc = zke_queue_claim(queue, 0, &item);
    meddle_at = 0;
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT,
                  "%s at clock reading %ld", zke_errmsg(), n);
    if (rc == ZKE_OK && zke_queue_check(queue, item) == ZKE_LOST) {
      lost++;
      ck_until(zke_dispatch(own, NULL) == ZKE_OK && heard[0], 5000);
      ck_assert_str_eq(heard, "3 entry-100-0000000001 token;");
    }
    if (others_item) ck_ok(zke_queue_check(others, others_item));
    zke_free(item);
    zke_free(others_item);
    int gone = zke_queue_destroy(queue, 0);
    ck_assert(gone == ZKE_OK || gone == ZKE_NONODE);
    ck_ok(zke_dispatch(own, NULL));
  }
  ck_assert_int_gt(lost, 0);
  zke_queue_free(others);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

static bool bare;    /* an item was seen without its key */
static long moments; /* until one is put, from when those of before have gone */

/* Are there items, and the key?  false: that cannot be seen, inside a batch of
 * the other one's. */
static bool see_items(zke *other, bool *item, bool *key) {
  zke_op ops[2];
  zke_op_result r[2] = {{0}};
  *item = *key = false;
  zke_op_children(&ops[0], PATH "/entries", NULL, 0);
  zke_op_children(&ops[1], PATH "/keys", NULL, 0);
  bool seen = zke_multi_read(other, ops, 2, r) == ZKE_OK;
  for (int i = 0; r[0].children && i < r[0].children->count; i++)
    *item |= strcmp(r[0].children->data[i], "line") != 0;
  for (int i = 0; r[1].children && i < r[1].children->count; i++)
    *key |= strcmp(r[1].children->data[i], "key-k") == 0;
  zke_results_clear(r, 2);
  return seen;
}

/* Is the item there without its key?  Asked at each reading of the clock. */
static int see_key(zke *other) {
  bool item, key;
  if (see_items(other, &item, &key)) bare |= item && !key;
  meddle_at = 1;
  return ZKE_OK;
}

/* Put an item with a key, and see whether it has its key from then on. */
static int put_and_see(zke *other) {
  bool item = true, key;
  meddle_at = 1;
  if (!see_items(other, &item, &key) || item) return 1;
  if (--moments > 0) return 1;
  int rc = put_key(others, "b", "k");
  if (rc == ZKE_OK) meddle = see_key;
  return rc;
}

/* Whenever somebody puts an item with a key while the queue is destroyed: the
 * item has its key as long as it is there, though the destruction may be given
 * up at any moment. */
TEST(a_destruction_takes_no_item_its_key) {
  zke *own = open_meddled();
  zke_queue *queue;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  ck_ok(zke_queue_new(meddler, PATH, NULL, &others));
  bare = false;
  meddled = 0;
  for (long n = 1; meddled != 1 || n < 3; n++) {
    put(queue, "a");
    put(others, "a");
    moments = n;
    meddle_next(1, put_and_see);
    ck_ok(zke_queue_destroy(queue, 0));
    meddle_at = 0;
    ck_assert_msg(!bare, "without its key after a put at moment %ld", n);
  }
  zke_queue_free(others);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  ck_ok(zke_close(meddler));
}

/* Whoever waits waits on, for an item or for room. */
TEST_LOOP(waiters_survive_the_destruction, 0, 2) {
  zke_queue_options o = {.size = sizeof o, .limit = 1};
  open_with(&o);
  waiter w = {.queue = q[1], .deadline = soon(z[1]), .putting = _i == 1};
  if (_i) put(q[0], "full");
  begin_wait(&w, z[0]);
  ck_rc(zke_queue_destroy(q[1], 0), ZKE_MISUSE);
  ck_ok(zke_queue_destroy(q[0], 0));
  if (!_i) put(q[0], "x");
  end_wait(&w, ZKE_OK);
  /* put into what was being destroyed, or into the queue made since */
  if (_i) ck_assert_int_le(items(z[0]), 1);
  if (!_i) expect_nothing(q[2]);
  zke_free(w.item);
  close_all();
}

/* ---- looking ---- */

/* "Ordered listing with claims (who works on what since when)". */
TEST(the_list_names_the_holders_of_claims) {
  zke_queue_entries *list;
  open_attempts(5);
  put(q[0], "aaa");
  put_as(q[0], "b", 50, 1, 0);
  put_as(q[0], "c", 0, 0, test_wall() + 60000);
  zke_queue_item *item = claim(q[1], "b"), *first;
  ck_ok(zke_queue_list(q[2], &list));
  ck_assert_int_eq(list->count, 3);
  const zke_queue_entry *e = list->data;
  ck_assert_str_eq(e[0].name, item->name);
  ck_assert_int_eq(e[0].claimed, 1);
  ck_assert_int_eq(e[0].attempts, 1);
  ck_assert_int_eq(e[0].token, item->token);
  ck_assert_int_eq(e[0].session, zke_session_id(z[1]));
  ck_assert_int_eq(e[0].producer, zke_session_id(z[0]));
  ck_assert_str_eq(e[0].identity, "bob");
  ck_assert_int_eq(e[0].pid, getpid());
  ck_assert_int_le(test_wall() - e[0].since_ms, 10000);
  ck_assert_int_eq(e[1].claimed, 0);
  ck_assert_int_eq(e[1].len, 3);
  ck_assert_int_eq(e[1].priority, 100);
  ck_assert_int_eq(e[1].producer, 0);
  ck_assert_int_eq(e[1].due_ms, 0);
  ck_assert_int_gt(e[2].due_ms, test_wall());
  zke_free(list);
  ck_ok(zke_queue_peek(q[2], &first));
  ck_assert_str_eq(first->data, "aaa");
  ck_assert_int_eq(first->token, 0);
  zke_free(first);
  zke_queue_counts c = size_of(q[2]);
  ck_assert_int_eq(c.items, 3);
  ck_assert_int_eq(c.ready, 1);
  ck_assert_int_eq(c.claimed, 1);
  ck_assert_int_eq(c.delayed, 1);
  ck_assert_int_eq(c.attempts, 5);
  ack(q[1], item);
  take(q[1], "aaa");
  ck_rc(zke_queue_peek(q[2], &first), ZKE_NONODE);
  close_all();
}

/* ---- who is woken ---- */

enum { CROWD = 20 };

/* A put wakes each that waits, once: who has not looked since is not woken
 * again, and who is not needed waits on. */
TEST(a_put_wakes_each_once) {
  zke *own[CROWD];
  zke_queue *queue[CROWD];
  zke_queue_item *item;
  static char heard[CROWD][200];
  int count;
  open_all();
  for (int i = 0; i < CROWD; i++) {
    zke_queue_options o = {
        .size = sizeof o, .listener = listen, .context = heard[i]};
    own[i] = test_session(z[0], NULL);
    ck_ok(zke_queue_new(own[i], PATH, &o, &queue[i]));
    ck_ok(zke_queue_start(queue[i], ZKE_QUEUE_ITEM));
  }
  for (int i = 0; i < CROWD; i++) zke_dispatch(own[i], NULL);
  put(q[0], "a");
  put(q[0], "b");
  for (int i = 0; i < CROWD; i++) {
    ck_ok(zke_dispatch(own[i], &count));
    ck_assert_int_eq(count, 1);
    ck_assert_str_eq(heard[i], "1  -;");
  }
  take(queue[0], "a");
  take(queue[1], "b");
  for (int i = 2; i < CROWD; i++) {
    ck_rc(zke_queue_take(queue[i], 0, &item), ZKE_OPERATIONTIMEOUT);
    ck_ok(zke_dispatch(own[i], &count));
    ck_assert_int_eq(count, 0); /* a take wakes nobody */
  }
  put(q[0], "c");
  for (int i = 0; i < CROWD; i++) {
    ck_ok(zke_dispatch(own[i], &count));
    ck_assert_int_eq(count, i >= 2);
  }
  take(queue[CROWD - 1], "c");
  for (int i = 0; i < CROWD; i++) {
    zke_queue_free(queue[i]);
    ck_ok(zke_close(own[i]));
  }
  close_all();
}

/* Who has waited in vain is not woken by later puts. */
TEST(a_consumer_that_left_is_not_woken) {
  zke_queue_item *item;
  zke_watch_list *list;
  open_all();
  put(q[0], "a");
  zke_queue_item *held = claim(q[0], "a");
  for (int i = 1; i < SESSIONS; i++)
    ck_rc(zke_queue_take(q[i], zke_now(z[i]) + 20, &item),
          ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_watches(z[0], &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ack(q[0], held);
  close_all();
}

/* Any number of those before one do not look: two that were told by the
 * listener and never dispatch, and the third gets each item; the same for
 * room. */
TEST(consumers_that_do_not_dispatch_hinder_nobody) {
  zke_queue *queue;
  zke_queue_options o = {.size = sizeof o, .limit = 1, .listener = listen};
  open_with(&o);
  zke *own = test_session(z[0], NULL);
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  ck_ok(zke_queue_start(q[0], ZKE_QUEUE_ITEM));
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ITEM));
  for (int i = 0; i < 3; i++) {
    waiter w = {.queue = q[2], .deadline = soon(z[2])};
    begin_wait(&w, own);
    put(queue, "a");
    end_wait(&w, ZKE_OK);
    zke_free(w.item);
  }
  put(queue, "a");
  ck_ok(zke_queue_start(q[0], ZKE_QUEUE_ROOM));
  ck_ok(zke_queue_start(q[1], ZKE_QUEUE_ROOM));
  for (int i = 0; i < 3; i++) {
    waiter w = {.queue = q[2], .deadline = soon(z[2]), .putting = true};
    begin_wait(&w, own);
    take(queue, i ? "late" : "a");
    end_wait(&w, ZKE_OK);
  }
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  close_all();
}

/* Each of many that wait in a row gets one of as many items. */
TEST(a_crowd_is_served) {
  zke *own[CROWD];
  waiter w[CROWD];
  zke_queue *queue[CROWD];
  open_all();
  for (int i = 0; i < CROWD; i++) {
    own[i] = test_session(z[0], NULL);
    ck_ok(zke_queue_new(own[i], PATH, NULL, &queue[i]));
    w[i] = (waiter){.queue = queue[i], .deadline = zke_now(z[0]) + 20000};
    begin_wait(&w[i], z[2]);
  }
  zke_queue_value values[CROWD];
  for (int i = 0; i < CROWD; i++) values[i] = (zke_queue_value){"x", 1};
  ck_ok(zke_queue_put_all(q[0], values, CROWD, NULL, 0));
  for (int i = 0; i < CROWD; i++) {
    end_wait(&w[i], ZKE_OK);
    zke_free(w[i].item);
    zke_queue_free(queue[i]);
    ck_ok(zke_close(own[i]));
  }
  ck_assert_int_eq(size_of(q[0]).items, 0);
  close_all();
}

/* ---- processes ---- */

enum { WORKERS = 4, MAKERS = 2, MOST = 4000, ROUNDS = 40, DEATHS = 4 };

/* What the processes tell the parent; shared->stage: items claimed by each. */
static struct tally {
  int stop;
  int rest;                /* 1: nobody is to use the queue */
  int deaths;              /* how often it was seen gone */
  int made[MAKERS];        /* numbers begun; they outlive their maker */
  char kept[MAKERS][MOST]; /* 1: acknowledged */
} * tally;

static bool stopped(void) { return load(&tally->stop) != 0; }

/* A code that should not have come. */
static void complain(int rc) {
  if (*shared->sentence) return;
  snprintf(shared->sentence, sizeof shared->sentence, "%s: %s",
           zke_error_name(rc), zke_errmsg());
}

static zke_queue *queue_of(zke *own, const zke_queue_options *o) {
  zke_queue *queue = NULL;
  int rc = zke_queue_new(own, PATH, o, &queue);
  if (rc != ZKE_OK) give_up("new", rc);
  return queue;
}

static zke_queue_item *claim_of(zke_queue *queue) {
  zke_queue_item *item = NULL;
  int rc = zke_queue_claim(queue, ZKE_FOREVER, &item);
  if (rc != ZKE_OK) give_up("claim", rc);
  return item;
}

static void claim_for_ever(zke *own) {
  claim_of(queue_of(own, NULL));
  store(&shared->stage[self], 1);
  wait_for(&shared->go, 1000);
}

/* How long it takes, in ms. */
static int64_t kill_a_consumer(void) {
  zke_queue *queue;
  static const char *const files[] = {"db", "db-wal", "db-shm", "db-zke"};
  memset(shared, 0, sizeof *shared);
  for (int i = 0; i < 4; i++) test_remove(test_path(files[i]));
  pid_t pid = spawn(0, claim_for_ever);
  zke *own = test_open(test_path("db"));
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  put(queue, "a");
  store(&shared->go, 1);
  ck_until(load(&shared->stage[0]), 10000);
  waiter w = {.queue = queue, .deadline = zke_now(own) + 10000};
  begin_wait(&w, own);
  int64_t before = test_now();
  kill_child(pid);
  end_wait(&w, ZKE_OK);
  int64_t took = test_now() - before;
  zke_free(w.item);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
  return took;
}

/* "The item is free again as soon as the claim's owner is gone, and a waiting
 * taker is told by the kernel": well before any sweep, which comes four times a
 * second.  The quickest of some, since the machine may be busy. */
TEST(a_killed_consumers_item_goes_to_the_waiter) {
  int64_t quickest = INT64_MAX;
  share();
  for (int i = 0; i < 10 && quickest >= 200; i++) {
    int64_t took = kill_a_consumer();
    if (took < quickest) quickest = took;
  }
  ck_assert_int_lt(quickest, 200);
}

/* Stands in the line and is stopped, inside no call. */
static void wait_and_stop(zke *own) {
  zke_queue_options o = {
      .size = sizeof o, .listener = listen, .context = told[self]};
  int rc = zke_queue_start(queue_of(own, &o), ZKE_QUEUE_ITEM);
  if (rc != ZKE_OK) give_up("start", rc);
  raise(SIGSTOP);
}

/* Two consumers were stopped while they waited: the third gets every item. */
TEST(two_stopped_consumers_hinder_nobody) {
  zke_queue *queue;
  pid_t pid[2];
  int status;
  share();
  for (int i = 0; i < 2; i++) pid[i] = spawn(i, wait_and_stop);
  store(&shared->go, 1);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(waitpid(pid[i], &status, WUNTRACED), pid[i]);
    ck_assert(WIFSTOPPED(status));
  }
  zke *own = test_open(test_path("db"));
  zke *other = test_session(own, NULL);
  zke_queue *in;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  ck_ok(zke_queue_new(other, PATH, NULL, &in));
  for (int i = 0; i < 5; i++) {
    waiter w = {.queue = queue, .deadline = soon(own)};
    begin_wait(&w, other);
    put(in, "a");
    end_wait(&w, ZKE_OK);
    zke_free(w.item);
  }
  zke_queue_free(in);
  zke_queue_free(queue);
  for (int i = 0; i < 2; i++) kill_child(pid[i]);
  ck_ok(zke_close(other));
  ck_ok(zke_close(own));
}

/* Claims for a short time and is stopped; then acknowledges. */
static void claim_and_stop(zke *own) {
  zke_queue_options o = {.size = sizeof o, .claim_ms = SHORT_MS};
  zke_queue *queue = queue_of(own, &o);
  zke_queue_item *item = claim_of(queue);
  raise(SIGSTOP);
  if (zke_queue_ack(queue, item, NULL, 0, NULL) == ZKE_LOST)
    store(&shared->stage[self], 2);
  zke_queue_free(queue);
}

/* Its session lives as long as the process, stopped or not: so only the claim's
 * time lets the item go on. */
TEST(a_stopped_consumers_item_goes_on) {
  zke_queue *queue;
  zke_queue_item *item;
  int status;
  share();
  pid_t pid = spawn(0, claim_and_stop);
  zke *own = test_open(test_path("db"));
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  put(queue, "a");
  store(&shared->go, 1);
  ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
  ck_assert(WIFSTOPPED(status));
  ck_ok(zke_queue_claim(queue, soon(own), &item));
  ck_assert_str_eq(item->data, "a");
  kill(pid, SIGCONT);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(status, 0);
  ck_assert_int_eq(shared->stage[0], 2);
  ck_ok(zke_queue_check(queue, item));
  ack(queue, item);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
}

enum { DELAY_MS = 300 };

static void claim_and_delay(zke *own) {
  zke_queue *queue = queue_of(own, NULL);
  int rc = zke_queue_release(queue, claim_of(queue), DELAY_MS, NULL);
  if (rc != ZKE_OK) give_up("release", rc);
  raise(SIGKILL);
}

/* The one that gave it back is dead, and whoever waits sleeps. */
TEST(a_delay_outlives_its_giver) {
  zke_queue *queue;
  zke_queue_item *item;
  int status;
  share();
  pid_t pid = spawn(0, claim_and_delay);
  zke *own = test_open(test_path("db"));
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  put(queue, "a");
  int64_t begun = zke_wall(own);
  store(&shared->go, 1);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFSIGNALED(status));
  ck_ok(zke_queue_claim(queue, soon(own), &item));
  ck_assert_int_ge(zke_wall(own), begun + DELAY_MS);
  ck_assert_int_eq(item->attempts, 2);
  ack(queue, item);
  zke_queue_free(queue);
  ck_ok(zke_close(own));
}

static int in_use(zke_queue *queue) {
  zke_queue_counts c = size_of(queue);
  return c.claimed + c.takers + c.putters;
}

/* Perhaps: there is something beside the line. */
static bool has_items(zke *own) {
  zke_stat stat;
  if (zke_exists(own, PATH "/entries", NULL, NULL, &stat) != ZKE_OK)
    return false;
  return stat.numChildren >
         (zke_exists(own, PATH "/entries/line", NULL, NULL, NULL) == ZKE_OK);
}

/* While the queue is to go be no user of it, until somebody has seen it gone,
 * or there is something to do.
 *
 *   hasty  of one that puts: now and then not so long, so that this process
 *          comes as the queue goes */
static void rest(zke *own, zke_queue **queue, bool hasty) {
  if (!load(&tally->rest)) return;
  zke_queue_free(*queue);
  for (int n = 1; load(&tally->rest); n++) {
    if (stopped() || (hasty ? (zke_now(own) + n) % 1499 == 0 : has_items(own)))
      break;
    zke_dispatch(own, NULL); /* removes what is unused */
    if (zke_exists(own, PATH, NULL, NULL, NULL) == ZKE_NONODE &&
        __atomic_exchange_n(&tally->rest, 0, __ATOMIC_ACQ_REL))
      __atomic_add_fetch(&tally->deaths, 1, __ATOMIC_RELAXED);
    test_pause();
  }
  *queue = queue_of(own, NULL);
}

static void make_numbers(zke *own) {
  zke_queue *queue = queue_of(own, NULL);
  char text[32];
  rest(own, &queue, false);
  while (!stopped() && tally->made[self] < MOST) {
    int n = tally->made[self]++;
    int len = snprintf(text, sizeof text, "%d-%d", self, n);
    int rc = zke_queue_put(queue, text, len, NULL, zke_now(own) + 20000);
    if (rc == ZKE_OK)
      tally->kept[self][n] = 1;
    else if (rc != ZKE_LIMIT || !stopped()) /* the workers have ended */
      complain(rc);
    rest(own, &queue, true);
  }
  zke_queue_free(queue);
}

/* The work: a znode named after the item, made together with the ack.  An item
 * that comes twice finds it there. */
static int work_on(zke_queue *queue, const zke_queue_item *item) {
  char path[64];
  zke_op op;
  snprintf(path, sizeof path, "/done/%s", item->data);
  zke_op_create(&op, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  return zke_queue_ack(queue, item, &op, 1, NULL);
}

static void work(zke *own) {
  zke_queue *queue = queue_of(own, NULL);
  zke_queue_item *item;
  rest(own, &queue, false);
  while (!stopped()) {
    int rc = zke_queue_claim(queue, zke_now(own) + 50, &item);
    if (rc == ZKE_OPERATIONTIMEOUT) {
      rest(own, &queue, false);
      continue;
    }
    if (rc == ZKE_OK && item->attempts == 1 && item->zxid % 7 == 0) {
      rc = zke_queue_release(queue, item, 0, NULL);
      zke_free(item);
    } else if (rc == ZKE_OK) {
      rc = work_on(queue, item);
      zke_free(item);
      shared->stage[self]++;
    }
    if (rc != ZKE_OK) complain(rc);
  }
  zke_queue_free(queue);
}

/* Kill one at random, or stop it for a while. */
static void harass(pid_t *pid, unsigned *random) {
  int i = rand_r(random) % (WORKERS + MAKERS);
  if (rand_r(random) % 3 == 0) {
    kill(pid[i], SIGSTOP);
    for (int n = rand_r(random) % 30; n > 0; n--) test_pause();
    kill(pid[i], SIGCONT);
    return;
  }
  kill_child(pid[i]);
  pid[i] = i < WORKERS ? spawn(i, work) : spawn(i - WORKERS, make_numbers);
}

/* Items that were acknowledged to their producers: a slow disk takes longer. */
static int count_kept(void) {
  int count = 0;
  for (int m = 0; m < MAKERS; m++) {
    for (int n = 0; n < tally->made[m]; n++) count += tally->kept[m][n] != 0;
  }
  return count;
}

/* What is in the queue in the end is worked on by the parent; then each item
 * that was acknowledged to its producer is done, and none was done twice. */
static void check_numbers(zke *own) {
  zke_queue *queue;
  zke_queue_item *item;
  char path[64];
  int done = 0;
  ck_ok(zke_queue_new(own, PATH, NULL, &queue));
  while (size_of(queue).items > 0) { /* some may have to be waited for */
    ck_ok(zke_queue_claim(queue, soon(own), &item));
    ck_ok(work_on(queue, item));
    zke_free(item);
  }
  ck_until(in_use(queue) == 0, 5000); /* by those killed last */
  ck_assert_int_eq(size_of(queue).dead, 0);
  zke_queue_free(queue);
  for (int m = 0; m < MAKERS; m++) {
    for (int n = 0; n < tally->made[m]; n++) {
      snprintf(path, sizeof path, "/done/%d-%d", m, n);
      if (!tally->kept[m][n]) continue;
      ck_assert_msg(zke_exists(own, path, NULL, NULL, NULL) == ZKE_OK,
                    "item %d-%d was lost", m, n);
      done++;
    }
  }
  ck_assert_int_gt(done, crew_container_ms ? DEATHS : ROUNDS);
}

/* "No queue item lost or acknowledged twice", and the bound holds, while
 * processes are killed and stopped at random.  SEED=… repeats a run's
 * choices.  The second time without a bound, and with a queue that goes
 * whenever nobody uses it, some times at least. */
TEST_LOOP(nothing_is_lost_or_done_twice, 0, 2) {
  unsigned at = test_seed();
  pid_t pid[WORKERS + MAKERS];
  zke_queue_options o = {.size = sizeof o, .limit = 5};
  zke_queue *queue;
  share();
  tally = shared_memory(sizeof *tally);
  if (_i) crew_container_ms = ZKE_AT_ONCE;
  if (_i) o.limit = 0;
  zke *own = NULL;
  store(&shared->go, 1);
  /* Each killed process is followed by one that is forked from here: so this
   * process opens no database while any of them runs. */
  pid_t first = fork();
  if (first == 0) {
    ck_ok(zke_open(test_path("db"), NULL, &own));
    ck_ok(zke_create(own, "/done", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
    ck_ok(zke_queue_new(own, PATH, &o, &queue));
    put(queue, "first");
    zke_queue_free(queue);
    _exit(zke_close(own) == ZKE_OK ? 0 : 1);
  }
  ck_assert_int_eq(waitpid(first, NULL, 0), first);
  for (int i = 0; i < WORKERS + MAKERS; i++)
    pid[i] = i < WORKERS ? spawn(i, work) : spawn(i - WORKERS, make_numbers);
  for (int i = 0; (i < ROUNDS || (_i && tally->deaths < DEATHS) ||
                   count_kept() <= ROUNDS) &&
                  !*shared->sentence;
       i++) {
    if (_i && i % 4 == 0) store(&tally->rest, 1);
    for (int n = rand_r(&at) % 40; n > 0; n--) test_pause();
    harass(pid, &at);
  }
  store(&tally->stop, 1);
  for (int i = 0; i < WORKERS + MAKERS; i++) waitpid(pid[i], NULL, 0);
  ck_assert_str_eq(shared->sentence, "");
  own = test_open(test_path("db"));
  if (!_i) ck_assert_int_le(items(own), 5);
  check_numbers(own);
  ck_ok(zke_check(own, NULL, NULL));
  ck_ok(zke_close(own));
}

/* ---- deaths, lost replies, faults ---- */

/* Put, claim, release, claim, ack with a change; leaves nothing. */
static int use_claims(zke *user) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  zke_op op;
  zke_queue_options o = {
      .size = sizeof o, .limit = 3, .listener = listen, .context = told[0]};
  told[0][0] = '\0';
  zke_op_create(&op, "/done-", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL);
  int rc = zke_queue_new(user, PATH, &o, &queue);
  if (rc == ZKE_OK) rc = zke_queue_put(queue, "x", 1, NULL, 0);
  if (rc == ZKE_OK) rc = zke_queue_claim(queue, 0, &item);
  if (rc == ZKE_OK) rc = zke_queue_release(queue, item, 0, NULL);
  zke_free(item);
  item = NULL;
  if (rc == ZKE_OK) rc = zke_queue_claim(queue, 0, &item);
  if (rc == ZKE_OK) rc = zke_queue_ack(queue, item, &op, 1, NULL);
  zke_free(item);
  zke_queue_free(queue);
  return rc;
}

/* Give back with a delay that is over on return: whether the next claim has to
 * wait, and makes the changes of that, is not left to chance. */
static int delay_shortly(zke *user, zke_queue *queue,
                         const zke_queue_item *item) {
  int rc = zke_queue_release(queue, item, 1, NULL);
  for (int64_t due = zke_wall(user) + 1; zke_wall(user) < due;) test_pause();
  return rc;
}

/* Put with a key, claim several, prolong, give back with a delay, claim again,
 * ack; leaves nothing. */
static int use_batches(zke *user) {
  zke_queue *queue = NULL;
  zke_queue_item *some[2] = {NULL, NULL};
  int count = 0;
  zke_queue_options o = {.size = sizeof o, .claim_ms = 60000};
  int rc = zke_queue_new(user, PATH, &o, &queue);
  if (rc == ZKE_OK) rc = put_key(queue, "x", "k");
  if (rc == ZKE_OK) rc = zke_queue_claim_some(queue, 2, 0, some, &count);
  if (rc == ZKE_OK) rc = zke_queue_prolong(queue, some[0], 50000);
  if (rc == ZKE_OK) rc = delay_shortly(user, queue, some[0]);
  zke_free(some[0]);
  some[0] = NULL;
  if (rc == ZKE_OK)
    rc = zke_queue_claim_some(queue, 2, zke_now(user) + 2000, some, &count);
  if (rc == ZKE_OK) rc = zke_queue_ack_all(queue, some, count, NULL, 0, NULL);
  zke_free(some[0]);
  zke_queue_free(queue);
  return rc;
}

/* The item that was put before is buried and requeued, then waited for. */
static void prepare_letter(zke *other) {
  zke_queue *queue;
  zke_queue_options o = {.size = sizeof o, .attempts = 1};
  ck_ok(zke_queue_new(other, PATH, &o, &queue));
  put(queue, "x");
  zke_queue_free(queue);
}

static int requeue_first(zke_queue *queue) {
  zke_queue_entries *list = NULL;
  int rc = zke_queue_dead(queue, &list);
  if (rc == ZKE_OK && list->count != 1) rc = zke_fail(ZKE_BROKEN, "no letter");
  if (rc == ZKE_OK) rc = zke_queue_requeue(queue, list->data[0].name, 0);
  zke_free(list);
  return rc;
}

/* Uses up an item's attempts, and puts the dead letter back into the queue. */
static int use_letters(zke *user) {
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  int rc = zke_queue_new(user, PATH, NULL, &queue);
  if (rc == ZKE_OK) rc = zke_queue_claim(queue, 0, &item);
  if (rc == ZKE_OK) rc = zke_queue_release(queue, item, 0, NULL);
  zke_free(item);
  item = NULL;
  if (rc == ZKE_OK) rc = requeue_first(queue);
  if (rc == ZKE_OK) rc = zke_queue_take(queue, 0, &item);
  zke_free(item);
  zke_queue_free(queue);
  return rc;
}

/* Two sessions: one waits in vain, then in line for what the other puts. */
static int use_waiting(zke *user) {
  zke *further = NULL;
  zke_queue *in = NULL, *out = NULL;
  zke_queue_item *item = NULL;
  char kept[300] = "";
  zke_queue_options o = {
      .size = sizeof o, .listener = listen, .context = told[0]};
  told[0][0] = '\0';
  int rc = zke_open_session(user, NULL, &further);
  if (rc == ZKE_OK) rc = zke_queue_new(user, PATH, NULL, &in);
  if (rc == ZKE_OK) rc = zke_queue_new(further, PATH, &o, &out);
  if (rc == ZKE_OK) {
    rc = zke_queue_take(out, zke_now(further) + 5, &item);
    rc = rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
  }
  if (rc == ZKE_OK) rc = zke_queue_start(out, ZKE_QUEUE_ITEM);
  if (rc == ZKE_OK) rc = zke_queue_put(in, "x", 1, NULL, 0);
  if (rc == ZKE_OK) rc = zke_dispatch(further, NULL);
  if (rc == ZKE_OK) rc = zke_queue_take(out, 0, &item);
  if (rc != ZKE_OK) snprintf(kept, sizeof kept, "%s", zke_errmsg());
  zke_free(item);
  zke_queue_free(out);
  zke_queue_free(in);
  zke_close(further);
  return rc == ZKE_OK ? rc : zke_fail(rc, "%s", kept);
}

/* Takes what there is, waiting where it is claimed by one that is just dying;
 * an exhausted one is buried. */
static int empty(zke *other, zke_queue *queue) {
  zke_queue_item *item;
  int count = 0;
  for (int64_t end = soon(other); size_of(queue).items > 0;) {
    ck_assert_int_lt(zke_now(other), end);
    if (zke_queue_take(queue, zke_now(other) + 50, &item) != ZKE_OK) continue;
    count++;
    zke_free(item);
  }
  return count;
}

/* At most one item is left; the queue works. */
static void check_queue(zke *other, int rc) {
  zke_queue *queue;
  ck_ok(zke_queue_new(other, PATH, NULL, &queue));
  if (rc == ZKE_OK)
    ck_assert_int_eq(size_of(queue).items + size_of(queue).dead, 0);
  put(queue, "y");
  int count = empty(other, queue);
  ck_assert_int_le(count + size_of(queue).dead, 2);
  ck_assert_int_ge(count, 1);
  zke_queue_free(queue);
}

/* One item, one piece of work done, and only where it is out of the queue. */
static void check_claims(zke *other, int rc) {
  zke_strings *names;
  int done = 0;
  check_queue(other, rc);
  ck_ok(zke_children(other, "/", NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++)
    done += strncmp(names->data[i], "done-", 5) == 0;
  zke_free(names);
  ck_assert_int_le(done, 1);
  if (rc == ZKE_OK) ck_assert_int_eq(done, 1);
}

/* No key is left, or the item that has it. */
static void check_batches(zke *other, int rc) {
  check_queue(other, rc);
  ck_assert_int_eq(entries(other, PATH "/keys"), 0);
}

static const recipe_use uses[] = {
    {"claims", NULL, use_claims, check_claims},
    {"batches", NULL, use_batches, check_batches},
    {"dead letters", prepare_letter, use_letters, check_queue},
    {"waiting", NULL, use_waiting, check_queue}};

RECIPE_TESTS(uses, 20, 20);

/* A call that must not wait survives the lost reply of a read all the same. */
TEST(a_lost_read_is_repeated) {
  open_all();
  put(q[0], "a");
  for (int i = 0; i < 8; i++) {
    ck_ok(zke_test_fail(z[1], ZKE_TEST_FAIL_READ, i));
    take(q[1], "a");
    put(q[0], "a");
  }
  close_all();
}

/* A reply is lost and, before the producer can look, the item is taken: it is
 * not put again.  (Looking for the item by a guid would not find it.) */
static int put_lost(zke *session, zke_queue *queue, int when) {
  ck_ok(zke_test_fail(session, when, 0));
  return zke_queue_put(queue, "x", 1, NULL, zke_now(session) + 2000);
}

/* The reply of a put is lost and its item taken before the producer looks: it
 * is not put again. A put that was lost before its change is. */
TEST(a_lost_put_that_was_taken_is_not_repeated) {
  open_all();
  put(q[0], "first"); /* makes the user znode */
  take(q[1], "first");
  waiter w = {.queue = q[1], .deadline = soon(z[1])};
  begin_wait(&w, z[2]);
  ck_ok(put_lost(z[0], q[0], ZKE_TEST_FAIL_AFTER));
  end_wait(&w, ZKE_OK);
  zke_free(w.item);
  expect_nothing(q[1]);
  ck_ok(put_lost(z[0], q[0], ZKE_TEST_FAIL_BEFORE));
  take(q[1], "x");
  expect_nothing(q[1]);
  close_all();
}
