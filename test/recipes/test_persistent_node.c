/* test_persistent_node.c - recipes/persistent_node: an ephemeral znode that its
 * owner makes again when it is deleted
 *
 * Two faults that Curator had are tested for: the parent stays (CURATOR-506),
 * and the path does not grow (CURATOR-190). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/persistent_node.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"

#define PATH "/status/host"

/* ---- what a listener hears, as text ---- */

typedef struct heard {
  char text[500];
  int64_t token;
  int frees;
} heard;

/* The listener writes the states, and frees the node if the test asks for it;
 * each PRESENT must have a greater token. */
static void hear(zke_persistent_node *n, int state, int64_t token,
                 void *context) {
  static const char *const names[] = {"OUT ", "WAITING ", "PRESENT ", "LOST "};
  heard *h = context;
  strcat(h->text, names[state]);
  ck_assert_int_eq(token != 0, state == ZKE_PERSISTENT_NODE_HELD);
  if (token) ck_assert_int_gt(token, h->token); /* each is a new one */
  if (token) h->token = token;
  if (h->frees && h->frees--) zke_persistent_node_free(n);
}

static zke_persistent_node *make(zke *z, heard *h) {
  zke_persistent_node_options o = {.size = sizeof o};
  zke_persistent_node *n = NULL;
  if (h) {
    o.listener = hear;
    o.context = h;
  }
  ck_ok(zke_persistent_node_new(z, PATH, "up", 2, &o, &n));
  return n;
}

static void expect(zke *z, heard *h, const char *text) {
  int count = 1;
  while (count && zke_dispatch(z, &count) == ZKE_OK) continue;
  ck_assert_str_eq(h->text, text);
  h->text[0] = '\0';
}

/* The znode's data, or "none"; and its owner. */
static int64_t owner;
static const char *there(zke *z) {
  static char text[100];
  char *data;
  zke_stat stat;
  owner = 0;
  int rc = zke_get(z, PATH, NULL, NULL, &data, NULL, &stat);
  if (rc == ZKE_NONODE) return "none";
  ck_ok(rc);
  snprintf(text, sizeof text, "%s", data ? data : "NULL");
  zke_free(data);
  owner = stat.ephemeralOwner;
  return text;
}

/* ---- keeping the node ---- */

/* A deleted node comes again, at the same path, with a new token; free deletes
 * it and leaves the parents. */
TEST(comes_again) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, 0, 0};
  zke_persistent_node *n = make(y, &h);
  ck_assert_int_eq(zke_persistent_node_state(n), ZKE_PERSISTENT_NODE_OUT);
  ck_assert_int_eq(zke_persistent_node_token(n), 0);
  ck_ok(zke_persistent_node_start(n));
  expect(y, &h, "PRESENT ");
  for (int i = 0; i < 5; i++) {
    ck_assert_str_eq(there(z), "up");
    ck_assert_int_eq(owner, zke_session_id(y));
    ck_assert_int_eq(zke_persistent_node_token(n), h.token);
    ck_ok(zke_delete(z, PATH, -1));
    expect(y, &h, "PRESENT ");
  }
  ck_ok(zke_persistent_node_start(n)); /* no effect */
  expect(y, &h, "");
  zke_persistent_node_free(n);
  ck_assert_str_eq(there(z), "none");
  ck_assert_int_eq(all_watches(z), 0);
  ck_ok(zke_exists(z, "/status", NULL, NULL, NULL));
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* If it is deleted with its parent, both come again. */
TEST(parents_come_again) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  heard h = {{0}, 0, 0};
  zke_persistent_node *n = make(y, &h);
  ck_ok(zke_persistent_node_start(n));
  zke_op ops[2];
  zke_op_delete(&ops[0], PATH, -1);
  zke_op_delete(&ops[1], "/status", -1);
  ck_ok(zke_multi(z, ops, 2, NULL));
  expect(y, &h, "PRESENT PRESENT ");
  ck_assert_str_eq(there(z), "up");
  zke_persistent_node_free(n);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* A new value is written immediately, or kept for later if the node is missing,
 * and replaces what others wrote. */
TEST(new_value) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_persistent_node *n = make(y, NULL);
  ck_ok(zke_persistent_node_set(n, "early", 5,
                                ZKE_FOREVER)); /* before the start */
  ck_ok(zke_persistent_node_start(n));
  ck_assert_str_eq(there(z), "early");
  ck_ok(zke_persistent_node_set(n, "busy", 4, ZKE_FOREVER));
  ck_assert_str_eq(there(z), "busy");
  ck_ok(zke_set(z, PATH, "theirs", 6, -1, NULL)); /* another's value stays */
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_str_eq(there(z), "theirs");
  ck_ok(zke_persistent_node_set(n, "mine", 4,
                                ZKE_FOREVER)); /* until the next own value */
  ck_assert_str_eq(there(z), "mine");
  ck_ok(zke_delete(z, PATH, -1));
  ck_ok(zke_persistent_node_set(n, "later", 5,
                                ZKE_FOREVER)); /* while it is missing */
  ck_assert_str_eq(there(z), "none");
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_str_eq(there(z), "later");
  ck_ok(zke_persistent_node_set(n, NULL, -1, ZKE_FOREVER));
  ck_assert_str_eq(there(z), "NULL");
  ck_rc(zke_persistent_node_set(n, NULL, 2, ZKE_FOREVER), ZKE_BADARGUMENTS);
  ck_assert_str_eq(there(z), "NULL");
  zke_persistent_node_free(n);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- another's ---- */

/* Another session's node is not touched; its owner is named, and when it goes
 * it is replaced. */
TEST(waits_for_the_other) {
  zke_options o = {.size = sizeof o, .identity = "ann"};
  zke *z = test_open(":memory:"), *y = test_session(z, NULL), *a;
  heard h = {{0}, 0, 0};
  ck_ok(zke_open_session(z, &o, &a));
  zke_persistent_node *n = make(y, &h), *m = make(a, NULL);
  ck_ok(zke_persistent_node_start(m));
  ck_ok(zke_persistent_node_start(n));
  expect(y, &h, "WAITING ");
  ck_assert_int_eq(zke_persistent_node_token(n), 0);
  ck_ok(zke_persistent_node_set(n, "second", 6, ZKE_FOREVER));
  ck_assert_str_eq(there(z), "up");
  zke_persistent_node_free(m);
  expect(y, &h, "PRESENT ");
  ck_assert_str_eq(there(z), "second");
  /* deleted and replaced before it could look */
  ck_ok(zke_delete(z, PATH, -1));
  ck_ok(zke_create(a, PATH, "a", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_persistent_node_set(n, "third", 5,
                                ZKE_FOREVER)); /* not into that node */
  ck_assert_str_eq(there(z), "a");
  expect(y, &h, "WAITING ");
  ck_ok(zke_persistent_node_release(n)); /* and that node is not deleted */
  expect(y, &h, "OUT ");
  ck_assert_str_eq(there(z), "a");
  ck_assert_int_eq(all_watches(z), 0);
  ck_rc(zke_persistent_node_acquire(n, zke_now(y) + 20), ZKE_OPERATIONTIMEOUT);
  ck_says(PATH " is held by ann (pid ");
  ck_assert_int_eq(zke_persistent_node_state(n), ZKE_PERSISTENT_NODE_OUT);
  ck_assert_int_eq(all_watches(z), 0);
  expect(y, &h, "WAITING OUT ");
  ck_ok(zke_close(a));
  ck_ok(zke_persistent_node_acquire(n, zke_now(y)));
  ck_assert_str_eq(there(z), "third");
  zke_persistent_node_free(n);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* A node of the same session that the object did not make is not its own. */
TEST(same_session) {
  zke *z = test_open(":memory:");
  zke_persistent_node *n = make(z, NULL);
  ck_ok(zke_ensure_path(z, "/status", ZKE_PERSISTENT, ZKE_FOREVER));
  ck_ok(
      zke_create(z, PATH, "hand", 4, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_persistent_node_start(n));
  ck_assert_int_eq(zke_persistent_node_state(n), ZKE_PERSISTENT_NODE_WAITING);
  zke_persistent_node_free(n);
  ck_assert_str_eq(there(z), "hand");
  ck_ok(zke_close(z));
}

/* ---- the session's end ---- */

/* After its session's end, or before it, the node moves to another session with
 * its last value; a stopped node stays stopped. */
TEST(renewed_in_another_session) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL),
      *x = test_session(z, NULL);
  heard h = {{0}, 0, 0};
  zke_persistent_node *n = make(y, &h);
  ck_ok(zke_persistent_node_start(n));
  ck_ok(zke_persistent_node_set(n, "busy", 4, ZKE_FOREVER));
  h.text[0] = '\0';
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_assert_str_eq(there(z), "none");
  expect(y, &h, "LOST ");
  ck_assert_int_eq(zke_persistent_node_state(n), ZKE_PERSISTENT_NODE_LOST);
  ck_assert_int_eq(zke_persistent_node_token(n), 0);
  ck_rc(zke_persistent_node_start(n), ZKE_INVALIDSTATE);
  ck_rc(zke_persistent_node_acquire(n, 0), ZKE_INVALIDSTATE);
  ck_rc(zke_persistent_node_set(n, "", 0, ZKE_FOREVER), ZKE_INVALIDSTATE);
  ck_rc(zke_persistent_node_release(n), ZKE_INVALIDSTATE);
  ck_ok(zke_persistent_node_renew(&n, x));
  ck_ok(zke_close(y));
  expect(x, &h, "PRESENT ");
  ck_assert_str_eq(there(z), "busy");
  ck_assert_int_eq(owner, zke_session_id(x));
  ck_ok(zke_delete(z, PATH, -1));
  expect(x, &h, "PRESENT ");
  /* a living session's node moves too */
  y = test_session(z, NULL);
  ck_ok(zke_persistent_node_renew(&n, y));
  ck_assert_str_eq(there(z), "busy");
  ck_assert_int_eq(owner, zke_session_id(y));
  ck_assert_int_eq(all_watches(z), 1);
  ck_ok(zke_persistent_node_release(n));
  ck_ok(zke_persistent_node_renew(&n, x)); /* a stopped node stays stopped */
  ck_assert_str_eq(there(z), "none");
  zke_persistent_node_free(n);
  ck_ok(zke_close(y));
  ck_ok(zke_close(x));
  ck_ok(zke_close(z));
}

/* For the listener that hears of the end. */
static zke *next;
static zke_persistent_node *current;

static void renew_at_once(zke_persistent_node *n, int state, int64_t token,
                          void *context) {
  (void)n, (void)token, (void)context;
  if (state == ZKE_PERSISTENT_NODE_LOST)
    ck_ok(zke_persistent_node_renew(&current, next));
}

/* The listener may renew the node in another session when it hears LOST. */
TEST(renewed_in_the_listener) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_persistent_node_options o = {.size = sizeof o, .listener = renew_at_once};
  next = test_session(z, NULL);
  ck_ok(zke_persistent_node_new(y, PATH, "up", 2, &o, &current));
  ck_ok(zke_persistent_node_start(current));
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_str_eq(there(z), "up");
  ck_assert_int_eq(owner, zke_session_id(next));
  zke_persistent_node_free(current);
  ck_ok(zke_close(next));
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* The listener frees the node at its first event, inside start(): the znode and
 * its watch go. */
TEST(listener_frees) {
  zke *z = test_open(":memory:");
  heard h = {{0}, 0, 1};
  zke_persistent_node *n = make(z, &h);
  ck_ok(zke_persistent_node_start(n));
  ck_assert_str_eq(there(z), "none");
  ck_assert_int_eq(all_watches(z), 0);
  expect(z, &h, "PRESENT ");
  ck_ok(zke_close(z));
}

/* ---- waiting ---- */

static void *hold_there(void *arg) {
  static int rc;
  rc = zke_persistent_node_acquire(arg, ZKE_FOREVER);
  return &rc;
}

static int joined(pthread_t thread) {
  void *rc;
  ck_assert_int_eq(pthread_join(thread, &rc), 0);
  return *(int *)rc;
}

/* acquire() waits while another session has the path; a cancel, the other's
 * release and the session's end end it. */
TEST(acquire_waits_for_the_path) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_persistent_node *m = make(z, NULL), *n = make(y, NULL);
  pthread_t thread;
  ck_ok(zke_persistent_node_acquire(m, zke_now(z)));
  ck_assert_int_eq(pthread_create(&thread, NULL, hold_there, n), 0);
  ck_until(all_watches(z) == 2, 5000);
  ck_rc(zke_persistent_node_acquire(n, 0), ZKE_MISUSE);
  ck_until(zke_persistent_node_cancel(n) == ZKE_OK, 10000);
  ck_rc(joined(thread), ZKE_CANCELLED);
  ck_assert_int_eq(all_watches(z), 1);
  ck_assert_int_eq(pthread_create(&thread, NULL, hold_there, n), 0);
  ck_until(all_watches(z) == 2, 5000);
  ck_ok(zke_persistent_node_release(m));
  ck_ok(joined(thread));
  there(z);
  ck_assert_int_eq(owner, zke_session_id(y));
  ck_ok(zke_persistent_node_release(n));
  ck_ok(zke_persistent_node_start(m));
  ck_assert_int_eq(pthread_create(&thread, NULL, hold_there, n), 0);
  ck_until(all_watches(z) == 2, 5000);
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_rc(joined(thread), ZKE_INVALIDSTATE);
  zke_persistent_node_free(m);
  zke_persistent_node_free(n);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- refusals ---- */

/* P11: invalid arguments are refused, and do not change the object.  A parent
 * that cannot have children is reported immediately. */
TEST(bad_arguments) {
  zke *z = test_open(":memory:");
  zke_persistent_node_options o = {.size = 3};
  zke_persistent_node *n = (zke_persistent_node *)&o;
  ck_rc(zke_persistent_node_new(z, PATH, "", 0, &o, &n), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(n);
  ck_rc(zke_persistent_node_new(z, "x", "", 0, NULL, &n), ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_new(z, PATH, NULL, 1, NULL, &n), ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_new(z, PATH, "", -2, NULL, &n), ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_new(z, PATH, "", 0, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_new(NULL, PATH, "", 0, NULL, &n), ZKE_BADARGUMENTS);
  ck_rc(zke_persistent_node_renew(&n, z), ZKE_BADARGUMENTS);
  n = make(z, NULL);
  zke_persistent_node *same = n;
  ck_rc(zke_persistent_node_renew(&n, NULL), ZKE_BADARGUMENTS);
  ck_assert_ptr_eq(n, same);
  ck_rc(zke_persistent_node_release(n), ZKE_LOST);
  /* a parent that cannot have children is reported immediately */
  ck_ok(
      zke_create(z, "/status", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_rc(zke_persistent_node_acquire(n, soon(z)), ZKE_NOCHILDRENFOREPHEMERALS);
  zke_persistent_node_free(NULL);
  zke_persistent_node_free(n);
  ck_ok(zke_close(z));
}

/* ---- deaths, lost replies, faults ---- */

/* The typical use: wait for the path, change the value, release, and come
 * back. */
static int use(zke *z) {
  heard h = {{0}, 0, 0};
  zke_persistent_node_options o = {
      .size = sizeof o, .listener = hear, .context = &h};
  zke_persistent_node *n = NULL;
  int rc = zke_persistent_node_new(z, PATH, "up", 2, &o, &n);
  if (rc == ZKE_OK) rc = zke_persistent_node_acquire(n, zke_now(z) + 1000);
  if (rc == ZKE_OK) rc = zke_persistent_node_set(n, "busy", 4, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_persistent_node_release(n);
  if (rc == ZKE_OK) rc = zke_persistent_node_acquire(n, zke_now(z) + 1000);
  zke_persistent_node_free(n);
  return rc;
}

/* Another gets the path once the dead one's session has ended. */
static void check(zke *z, int rc) {
  zke_persistent_node *n = make(z, NULL);
  (void)rc;
  ck_ok(zke_persistent_node_acquire(n, soon(z)));
  ck_assert_str_eq(there(z), "up");
  zke_persistent_node_free(n);
  ck_assert_str_eq(there(z), "none");
}

static const recipe_use uses[] = {{"persistent node", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);
