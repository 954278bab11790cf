/* test_singleton.c - recipes/singleton: one runs, the next is warm
 *
 * Never do two run, and when the one ends the next begins. */
#include "recipes/singleton.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"

#define PATH "/workers/w"
enum { MANY = 4 };

static zke *admin, *z[MANY];
static zke_singleton *s[MANY];
static char heard[MANY][32]; /* "R": runs, "O": out, "L": lost */

/* The listener: writes O out, R running, L lost. */
static void hear(zke_singleton *who, int state, int64_t token, void *context) {
  char *text = context;
  (void)who;
  ck_assert_int_eq(token > 0, state == ZKE_SINGLETON_HELD);
  ck_assert_int_lt((int)strlen(text), 30);
  text[strlen(text)] = "O?RL"[state];
}

/* The i-th singleton, named by a letter, on a session of its own. */
static void open_one(int i) {
  char name[2] = {(char)('a' + i), 0};
  zke_options o = {.size = sizeof o, .identity = name};
  zke_singleton_options so = {.size = sizeof so,
                              .data = "port 80",
                              .len = 7,
                              .listener = hear,
                              .context = heard[i]};
  ck_ok(zke_open_session(admin, &o, &z[i]));
  ck_ok(zke_singleton_new(z[i], PATH, &so, &s[i]));
}

static void begin(void) {
  admin = test_open(":memory:");
  for (int i = 0; i < MANY; i++) open_one(i);
}

/* All stop: none stands in line, and nothing is watched. */
static void end(void) {
  zke_party_list *list;
  for (int i = 0; i < MANY; i++) {
    zke_singleton_free(s[i]);
    ck_ok(zke_close(z[i]));
  }
  ck_ok(zke_singleton_parties(admin, PATH, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  close_last(admin);
}

/* One runs; who does, since when, with what data; the others in order. */
TEST(one_runs_and_the_others_stand_in_line) {
  zke_party_list *list;
  begin();
  ck_ok(zke_singleton_try(s[1]));
  for (int i = 0; i < MANY; i++) {
    if (i != 1) ck_ok(zke_singleton_start(s[i]));
  }
  ck_ok(zke_singleton_parties(admin, PATH, &list));
  ck_assert_int_eq(list->count, MANY);
  ck_assert_int_eq(list->data[0].held, 1);
  ck_assert_str_eq(list->data[0].identity, "b");
  ck_assert_int_eq(list->data[0].pid, getpid());
  ck_assert_int_eq(list->data[0].mzxid, zke_singleton_token(s[1]));
  ck_assert_int_gt(list->data[0].since_ms, 0);
  ck_assert_str_eq(list->data[0].data, "port 80");
  for (int i = 1; i < MANY; i++) ck_assert_int_eq(list->data[i].held, 0);
  zke_free(list);
  ck_assert_int_eq(zke_singleton_state(s[0]), ZKE_SINGLETON_WAITING);
  ck_assert_int_eq(zke_singleton_state(s[1]), ZKE_SINGLETON_HELD);
  end();
}

/* The next one takes over, whether the one before stops or dies; only it is
 * woken; tokens increase; whoever died holds nothing. */
TEST(the_next_one_takes_over) {
  int64_t last = 0;
  begin();
  for (int i = 0; i < MANY; i++) ck_ok(zke_singleton_start(s[i]));
  for (int i = 0; i < MANY; i++) {
    for (int j = i + 1; j < MANY; j++)
      ck_assert_int_eq(zke_singleton_state(s[j]), ZKE_SINGLETON_WAITING);
    ck_assert_int_eq(zke_singleton_state(s[i]), ZKE_SINGLETON_HELD);
    ck_assert_int_gt(zke_singleton_token(s[i]), last);
    last = zke_singleton_token(s[i]);
    ck_ok(zke_singleton_check(s[i]));
    if (i % 2) {
      ck_ok(zke_singleton_release(s[i]));
    } else {
      ck_ok(zke_expire(admin, zke_session_id(z[i])));
      ck_assert_int_eq(zke_singleton_state(s[i]), ZKE_SINGLETON_LOST);
      ck_assert_int_eq(zke_singleton_token(s[i]), 0);
      ck_rc(zke_singleton_check(s[i]), ZKE_INVALIDSTATE);
    }
    for (int j = i + 2; j < MANY; j++) ck_assert_int_eq(dispatch_on(z[j]), 0);
    if (i + 1 < MANY) ck_assert_int_gt(dispatch_on(z[i + 1]), 0);
  }
  ck_assert_str_eq(heard[0], "RL");
  ck_assert_str_eq(heard[1], "RO");
  end();
}

/* Replaced by force: told, and what it guards with the op fails. */
TEST(one_that_is_replaced_is_told) {
  zke_op ops[2];
  begin();
  ck_ok(zke_singleton_start(s[0]));
  ck_ok(zke_singleton_start(s[1]));
  int64_t token = zke_singleton_token(s[0]);
  ck_ok(zke_singleton_op(s[0], &ops[0]));
  zke_op_create(&ops[1], "/done", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_rc(zke_singleton_replace(admin, PATH, token + 1), ZKE_NONODE);
  ck_ok(zke_singleton_replace(admin, PATH, token));
  ck_rc(zke_multi(z[0], ops, 2, NULL), ZKE_NONODE);
  dispatch_on(z[0]);
  ck_assert_str_eq(heard[0], "RL");
  ck_rc(zke_singleton_check(s[0]), ZKE_LOST);
  ck_rc(zke_singleton_op(s[0], &ops[0]), ZKE_LOST);
  dispatch_on(z[1]);
  ck_assert_str_eq(heard[1], "R");
  ck_ok(zke_singleton_op(s[1], &ops[0]));
  ck_ok(zke_multi(z[1], ops, 2, NULL));
  ck_ok(zke_singleton_release(s[1]));
  ck_rc(zke_singleton_replace(admin, PATH, 0), ZKE_NONODE);
  end();
}

/* The one that runs is replaced also where its znode may not be read by others;
 * the one that waits keeps its place. */
TEST(hidden_one_is_replaced) {
  char path[200];
  zke_party_list *list;
  begin();
  ck_ok(zke_singleton_start(s[0]));
  ck_ok(zke_singleton_start(s[1]));
  ck_ok(zke_singleton_parties(z[0], PATH, &list));
  snprintf(path, sizeof path, PATH "/%s", list->data[0].name);
  zke_free(list);
  ck_ok(zke_add_auth(z[0], "digest", "a:secret", 8));
  ck_ok(zke_set_acl(z[0], path, -1, ZKE_CREATOR_ALL_ACL, NULL));
  ck_ok(zke_singleton_replace(admin, PATH, 0));
  ck_rc(zke_singleton_check(s[0]), ZKE_LOST);
  ck_ok(zke_singleton_step(s[1])); /* it hears of no hidden znode */
  ck_ok(zke_singleton_check(s[1]));
  end();
}

static int work(zke_singleton *who, int64_t token, void *arg) {
  ck_assert_int_eq(token, zke_singleton_token(who));
  ck_ok(zke_singleton_check(who));
  ck_rc(zke_singleton_try(s[1]), ZKE_HELD);
  return *(int *)arg;
}

/* serve() runs the function while it is the one, and returns what that
 * returned; behind another it keeps to its deadline. */
TEST(serve_runs_while_it_is_the_one) {
  int result = 7;
  begin();
  ck_assert_int_eq(zke_singleton_serve(s[0], ZKE_FOREVER, work, &result), 7);
  ck_assert_int_eq(zke_singleton_state(s[0]), ZKE_SINGLETON_OUT);
  ck_rc(zke_singleton_serve(s[0], 0, NULL, NULL), ZKE_BADARGUMENTS);
  ck_ok(zke_singleton_try(s[1]));
  ck_rc(zke_singleton_serve(s[0], 0, work, &result), ZKE_OPERATIONTIMEOUT);
  end();
}

/* P11: bad arguments and another recipe's directory are refused; foreign
 * children hinder nobody. */
TEST(bad_arguments_and_other_kinds_are_refused) {
  zke_singleton_options o = {.size = 1};
  zke_singleton *other;
  begin();
  ck_rc(zke_singleton_new(admin, PATH, &o, &other), ZKE_BADARGUMENTS);
  o = (zke_singleton_options){.size = sizeof o, .data = "x", .len = -1};
  ck_rc(zke_singleton_new(admin, PATH, &o, &other), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(other);
  ck_rc(zke_singleton_new(admin, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_singleton_new(NULL, PATH, NULL, &other), ZKE_BADARGUMENTS);
  ck_rc(zke_singleton_try(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_singleton_op(s[0], NULL), ZKE_BADARGUMENTS);
  ck_ok(zke_create(admin, "/lock", "zkembed lock", 12, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_singleton_new(admin, "/lock", NULL, &other));
  ck_rc(zke_singleton_try(other), ZKE_OTHERKIND);
  ck_rc(zke_singleton_start(other), ZKE_OTHERKIND);
  ck_rc(zke_singleton_acquire(other, 0), ZKE_OTHERKIND);
  zke_singleton_free(other);
  zke_singleton_free(NULL);
  ck_rc(zke_singleton_release(s[0]), ZKE_LOST);
  /* Foreign children. */
  ck_ok(zke_ensure_path(admin, PATH "/lock-0000000000", ZKE_PERSISTENT,
                        ZKE_FOREVER));
  ck_ok(zke_singleton_try(s[0]));
  ck_ok(zke_singleton_step(s[0]));
  end();
}

/* ---- proof ---- */

static int nothing(zke_singleton *who, int64_t token, void *arg) {
  (void)token, (void)arg;
  return zke_singleton_check(who);
}

/* The typical use: serve, with a function that looks whether it still is the
 * one. */
static int use(zke *user) {
  zke_singleton *a = NULL;
  int rc = zke_singleton_new(user, PATH, NULL, &a);
  if (rc == ZKE_OK)
    rc = zke_singleton_serve(a, zke_now(user) + 2000, nothing, NULL);
  zke_singleton_free(a);
  return rc;
}

static void check(zke *other, int rc) {
  (void)rc;
  ck_ok(use(other));
}

static zke_singleton *warm;

/* One of the other session stands by; the path was used before. */
static void prepare_warm(zke *other) {
  ck_ok(zke_singleton_new(other, PATH, NULL, &warm));
  zke_singleton *first;
  ck_ok(zke_singleton_new(other, PATH, NULL, &first));
  ck_ok(zke_singleton_try(first));
  zke_singleton_free(first);
}

/* Another one stands by while it dies, and takes over. */
static int use_try(zke *user) {
  zke_singleton *a = NULL;
  int rc = zke_singleton_new(user, PATH, NULL, &a);
  if (rc == ZKE_OK) rc = zke_singleton_try(a);
  zke_singleton_free(a);
  return rc;
}

static void check_warm(zke *other, int rc) {
  (void)rc;
  ck_ok(zke_singleton_acquire(warm, zke_now(other) + 5000));
  zke_singleton_free(warm);
}

static const recipe_use uses[] = {{"singleton", NULL, use, check},
                                  {"warm", prepare_warm, use_try, check_warm}};

RECIPE_TESTS(uses, 5, 0);
