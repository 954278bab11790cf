/* test_names.c - recipes/names: names that stand for values, or for znodes
 *
 * A name is bound by one binding at a time, which is there whole or not at all.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/names.h"
#include "recipes/part/znode.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"

#define PATH "/names"

static zke_names *make(zke *z) {
  zke_names *n = NULL;
  ck_ok(zke_names_new(z, PATH, NULL, &n));
  return n;
}

static zke *session(zke *z, const char *identity) {
  zke_options o = {.size = sizeof o, .identity = identity};
  zke *further;
  ck_ok(zke_open_session(z, &o, &further));
  return further;
}

/* Bind a persistent name; its token. */
static int64_t bind(zke_names *n, const char *name, const char *value) {
  int64_t token = 0;
  ck_ok(zke_names_bind(n, name, value, (int)strlen(value), 0, ZKE_FOREVER,
                       &token));
  ck_assert_int_gt(token, 0);
  return token;
}

/* What a name stands for, or "none". */
static const char *value(zke_names *n, const char *name) {
  static char text[200];
  zke_binding *b = NULL;
  int rc = zke_names_lookup(n, name, &b);
  if (rc == ZKE_NONODE) return "none";
  ck_ok(rc);
  snprintf(text, sizeof text, "%s", b->value);
  zke_free(b);
  return text;
}

/* ---- binding ---- */

/* A binding is found with its value, token, owner and time; whoever knows the
 * token unbinds it. An empty value is a value. */
TEST(bind_lookup_unbind) {
  zke *z = test_open(":memory:"), *a = session(z, "ann\nand co");
  zke_names *n = make(a), *m = make(z);
  zke_binding *b;
  zke_stat stat;
  ck_assert_str_eq(value(m, "x"), "none");
  ck_rc(zke_names_lookup(m, "x", &b), ZKE_NONODE);
  ck_says(PATH "/x is not bound");
  int64_t token = bind(n, "x", "1\n2");
  ck_ok(zke_names_lookup(m, "x", &b));
  ck_ok(zke_exists(z, PATH "/x", NULL, NULL, &stat));
  ck_assert_str_eq(b->name, "x");
  ck_assert_str_eq(b->value, "1\n2");
  ck_assert_int_eq(b->len, 3);
  ck_assert_int_eq(b->token, token);
  ck_assert_int_eq(stat.czxid, token);
  ck_assert_int_eq(b->since_ms, stat.ctime);
  ck_assert_int_eq(b->ephemeral, 0);
  ck_assert_int_eq(b->session, zke_session_id(a));
  ck_assert_int_eq(b->pid, getpid());
  ck_assert_str_eq(b->identity, "ann and co");
  zke_free(b);
  ck_ok(zke_names_unbind(m, "x", token, ZKE_FOREVER)); /* by anybody */
  ck_assert_str_eq(value(n, "x"), "none");
  ck_rc(zke_names_unbind(n, "x", 0, ZKE_FOREVER), ZKE_NONODE);
  ck_assert_int_eq(entries(z, PATH), 0);
  ck_ok(zke_names_bind(n, "empty", NULL, 0, 0, ZKE_FOREVER, NULL));
  ck_assert_str_eq(value(n, "empty"), "");
  zke_names_free(n);
  zke_names_free(m);
  ck_assert_int_eq(entries(z, PATH), 2); /* bound all the same */
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* A bound name is refused, and the sentence names the owner. */
TEST(refused_naming_the_owner) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  zke_names *n = make(a), *m = make(z);
  int64_t token = bind(n, "x", "1"), other = 7;
  char who[64];
  snprintf(who, sizeof who, "is bound by ann (pid %d) since 20", (int)getpid());
  for (int i = 0; i < 3; i++) {
    ck_rc(zke_names_bind(m, "x", "2", 1, i, ZKE_FOREVER, &other), ZKE_HELD);
    ck_says(who);
    ck_assert_int_eq(other, 7);
    ck_rc(zke_names_rebind(m, "x", token + 1, "2", 1, 0, ZKE_FOREVER, &other),
          ZKE_HELD);
    ck_says(who);
    ck_rc(zke_names_unbind(m, "x", token + 1, ZKE_FOREVER), ZKE_HELD);
    ck_says(who);
    if (i == 1) ck_ok(zke_close(a)); /* known after its session as well */
    if (i == 0) zke_names_free(n);
  }
  ck_assert_str_eq(value(m, "x"), "1");
  zke_names_free(m);
  ck_ok(zke_close(z));
}

/* A name is rebound only from the binding whose token is given, or from any,
 * with a greater token; it is never unbound in between. */
TEST(rebind_in_one_step) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  zke_names *n = make(a), *m = make(z);
  int64_t first, second, third;
  ck_rc(zke_names_rebind(m, "x", 0, "1", 1, 0, ZKE_FOREVER, NULL), ZKE_NONODE);
  first = bind(n, "x", "1");
  ck_ok(zke_names_rebind(m, "x", first, "2", 1, 1, ZKE_FOREVER, &second));
  ck_assert_int_gt(second, first);
  ck_assert_str_eq(value(n, "x"), "2");
  ck_rc(zke_names_rebind(n, "x", first, "3", 1, 0, ZKE_FOREVER, NULL),
        ZKE_HELD);
  ck_ok(zke_names_rebind(n, "x", 0, "3", 1, 0, ZKE_FOREVER, &third));
  ck_assert_int_gt(third, second);
  ck_assert_int_eq(entries(z, PATH), 2);
  ck_ok(zke_names_unbind(n, "x", 0, ZKE_FOREVER));
  ck_rc(zke_names_rebind(m, "x", 0, "1", 1, 0, ZKE_FOREVER, NULL), ZKE_NONODE);
  zke_names_free(n);
  zke_names_free(m);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* An ephemeral binding ends with its session, and the name is free again. */
TEST(ephemeral_goes_with_the_session) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  zke_names *n = make(a), *m = make(z);
  zke_binding *b;
  ck_ok(zke_names_bind(n, "x", "1", 1, 1, ZKE_FOREVER, NULL));
  ck_ok(zke_names_lookup(m, "x", &b));
  ck_assert_int_eq(b->ephemeral, 1);
  zke_free(b);
  zke_names_free(n);
  ck_assert_str_eq(value(m, "x"), "1");
  ck_ok(zke_expire(z, zke_session_id(a)));
  ck_assert_str_eq(value(m, "x"), "none");
  ck_assert_int_eq(entries(z, PATH), 0);
  bind(m, "x", "2");
  zke_names_free(m);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* After its session's end each call says so, and changes nothing. */
TEST(an_ended_session_is_told) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  zke_names *n = make(a);
  zke_binding *b;
  zke_binding_list *list;
  ck_ok(zke_expire(z, zke_session_id(a)));
  ck_ok(zke_dispatch(a, NULL));
  ck_rc(zke_names_bind(n, "x", "", 0, 0, 0, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_names_lookup(n, "x", &b), ZKE_INVALIDSTATE);
  ck_rc(zke_names_list(n, &list), ZKE_INVALIDSTATE);
  ck_rc(zke_names_wait(n, "x", 0, NULL), ZKE_INVALIDSTATE);
  zke_names_free(n);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* ---- lost replies ---- */

/* The unbinding was made, its reply lost, and the name bound anew by another
 * before the repetition: that one's binding stays. */
static void *bind_at_once(void *arg) {
  while (zke_names_bind(arg, "x", "next", 4, 0, 0, NULL) == ZKE_HELD)
    test_pause();
  return NULL;
}

/* An unbinding whose reply was lost is repeated, while another process binds
 * the name: the new binding stays. */
TEST(lost_unbinding_hits_no_other) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_names *n = make(z), *m = make(y);
  for (int i = 0; i < 10; i++) {
    pthread_t thread;
    bind(n, "x", "mine");
    ck_assert_int_eq(pthread_create(&thread, NULL, bind_at_once, m), 0);
    ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_AFTER, 0));
    ck_ok(zke_names_unbind(n, "x", 0, soon(z)));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_str_eq(value(n, "x"), "next");
    ck_ok(zke_names_unbind(n, "x", 0, soon(z)));
  }
  zke_names_free(n);
  zke_names_free(m);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* A reply that is lost before anything was changed, of whichever read, does not
 * pass for an unbinding: afterwards the name is unbound. */
TEST(lost_read_is_no_unbinding) {
  zke *z = test_open(":memory:");
  zke_names *n = make(z);
  int unbound = 0;
  for (int skip = 0; skip < 8; skip++) {
    bind(n, "x", "mine");
    ck_ok(zke_test_fail(z, ZKE_TEST_FAIL_READ, skip));
    int rc = zke_names_unbind(n, "x", 0, soon(z));
    ck_ok(zke_test_fail(z, 0, 0));
    if (rc != ZKE_OK) ck_rc(rc, ZKE_CONNECTIONLOSS); /* not repeated */
    ck_assert_str_eq(value(n, "x"), rc == ZKE_OK ? "none" : "mine");
    unbound += rc == ZKE_OK;
    if (rc != ZKE_OK) ck_ok(zke_names_unbind(n, "x", 0, soon(z)));
  }
  ck_assert_int_gt(unbound, 4);
  zke_names_free(n);
  ck_ok(zke_close(z));
}

/* The pause between two tries: the other process unbinds the name. */
static void unbind_in_pause(void *context, int64_t ns) {
  struct timespec t = {0, (long)ns};
  zke_names_unbind(*(zke_names **)context, "x", 0, 0);
  nanosleep(&t, NULL);
}

/* A binding whose reply was lost, and that was unbound before it could be
 * repeated, is not made again, since nobody would unbind it; but one that was
 * never made is. */
TEST_LOOP(lost_binding_is_not_made_twice, 0, 2) {
  zke_names *other = NULL;
  zke_os os = {.size = sizeof os, .context = &other, .sleep = unbind_in_pause};
  zke_options o = {.size = sizeof o, .os = &os};
  zke *z, *y = test_open(test_path("db"));
  ck_ok(zke_open(test_path("db"), &o, &z));
  zke_names *n = make(z);
  other = make(y);
  bind(n, "w", "makes the directory");
  int when = _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE;
  ck_ok(zke_test_fail(z, when, 0));
  ck_rc(zke_names_bind(n, "x", "mine", 4, 0, soon(z), NULL),
        _i ? ZKE_CONNECTIONLOSS : ZKE_OK);
  if (_i) ck_says("may have been bound and unbound");
  ck_assert_str_eq(value(n, "x"), _i ? "none" : "mine");
  zke_names_free(n);
  zke_names_free(other);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* A rebinding whose reply was lost finds the name free: it was made and then
 * unbound, or the one of before was.  Nobody can tell, so it is no
 * ZKE_NONODE. */
TEST_LOOP(lost_rebinding_that_was_unbound_is_a_doubt, 0, 2) {
  zke_names *other = NULL;
  zke_os os = {.size = sizeof os, .context = &other, .sleep = unbind_in_pause};
  zke_options o = {.size = sizeof o, .os = &os};
  zke *z, *y = test_open(test_path("db"));
  ck_ok(zke_open(test_path("db"), &o, &z));
  zke_names *n = make(z);
  other = make(y);
  int64_t token = bind(n, "x", "old");
  int when = _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE;
  ck_ok(zke_test_fail(z, when, 0));
  ck_rc(zke_names_rebind(n, "x", token, "mine", 4, 0, soon(z), NULL),
        ZKE_CONNECTIONLOSS);
  ck_says("may have been bound and unbound");
  ck_assert_str_eq(value(n, "x"), "none");
  zke_names_free(n);
  zke_names_free(other);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* For the pause between two tries: another name is bound in the first, and then
 * the next change is lost before it takes effect. */
typedef struct late {
  zke *z;
  zke_names *other;
  int pauses;
} late;

static void bind_another_in_pause(void *context, int64_t ns) {
  struct timespec t = {0, (long)ns};
  late *l = context;
  if (l->pauses++ == 0) {
    zke_test_fail(l->z, ZKE_TEST_FAIL_BEFORE, 0);
    zke_names_bind(l->other, "y", "other", 5, 0, 0, NULL);
    zke_names_unbind(l->other, "y", 0, 0);
  }
  nanosleep(&t, NULL);
}

/* What others changed before the step that lost its reply is no reason for a
 * doubt: the first reads are repeated after a change of another name, and then
 * the binding is lost before it was made.  It is made all the same. */
TEST(lost_binding_goes_by_its_own_step) {
  late l = {.pauses = 0};
  zke_os os = {
      .size = sizeof os, .context = &l, .sleep = bind_another_in_pause};
  zke_options o = {.size = sizeof o, .os = &os};
  zke *y = test_open(test_path("db"));
  int late_ones = 0;
  ck_ok(zke_open(test_path("db"), &o, &l.z));
  zke_names *n = make(l.z);
  l.other = make(y);
  bind(n, "w", "makes the directory");
  for (int skip = 0; skip < 8; skip++) {
    l.pauses = 0;
    ck_ok(zke_test_fail(l.z, ZKE_TEST_FAIL_READ, skip));
    int rc = zke_names_bind(n, "x", "mine", 4, 0, soon(l.z), NULL);
    ck_ok(zke_test_fail(l.z, 0, 0));
    if (!l.pauses && rc != ZKE_OK) continue; /* that read is not repeated */
    ck_ok(rc);
    ck_assert_str_eq(value(n, "x"), "mine");
    ck_ok(zke_names_unbind(n, "x", 0, soon(l.z)));
    late_ones += l.pauses > 1;
  }
  ck_assert_int_gt(late_ones, 0);
  zke_names_free(n);
  zke_names_free(l.other);
  ck_ok(zke_close(y));
  ck_ok(zke_close(l.z));
}

/* A binding whose reply was lost, and for whose repetition no time is left, is
 * a success all the same: it is there, with its token.  One that was not made
 * fails.  So is a rebinding. */
TEST_LOOP(lost_binding_is_known_after_the_deadline, 0, 4) {
  zke *z = test_open(":memory:");
  zke_names *n = make(z);
  int64_t token = 0, old = 0;
  bool again = _i / 2, made = _i % 2;
  bind(n, "w", "makes the directory");
  if (again) old = bind(n, "x", "old");
  ck_ok(zke_test_fail(z, made ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE, 0));
  int rc = again ? zke_names_rebind(n, "x", old, "mine", 4, 0, 0, &token)
                 : zke_names_bind(n, "x", "mine", 4, 0, 0, &token);
  ck_rc(rc, made ? ZKE_OK : ZKE_CONNECTIONLOSS);
  const char *before = again ? "old" : "none";
  ck_assert_str_eq(value(n, "x"), made ? "mine" : before);
  if (made) ck_ok(zke_names_unbind(n, "x", token, soon(z)));
  zke_names_free(n);
  ck_ok(zke_close(z));
}

/* ---- looking ---- */

/* The list has all names in order, also nodes that were made by hand or have no
 * data. */
TEST(list_of_one_moment) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  zke_names *n = make(a);
  zke_binding_list *list;
  ck_ok(zke_names_list(n, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  bind(n, "b", "2");
  ck_ok(zke_names_bind(n, "a", "1", 1, 1, ZKE_FOREVER, NULL));
  ck_ok(zke_create(z, PATH "/c", "by hand\n", 8, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_ok(zke_create(z, PATH "/d", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_ok(zke_names_list(n, &list));
  ck_assert_int_eq(list->count, 4);
  const zke_binding *b = list->data;
  ck_assert_str_eq(b[0].name, "a");
  ck_assert_str_eq(b[0].value, "1");
  ck_assert_int_eq(b[0].ephemeral, 1);
  ck_assert_str_eq(b[0].identity, "ann");
  ck_assert_str_eq(b[1].name, "b");
  ck_assert_str_eq(b[1].value, "2");
  ck_assert_int_eq(b[1].ephemeral, 0);
  ck_assert_str_eq(b[2].value, "by hand\n");
  ck_assert_str_eq(b[2].identity, "");
  ck_assert_int_eq(b[3].len, 0);
  zke_free(list);
  zke_names_free(n);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* A name made by other means, whatever its data looks like, is a name. */
TEST(made_by_hand) {
  static const char *const texts[] = {
      "", "x\ny", "id-1 zz 5 me\n", "id-1 1\n", "id-1 1 5\nx y", "\n"};
  zke *z = test_open(":memory:");
  zke_names *n = make(z);
  bind(n, "keep", "");
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    ck_ok(zke_create(z, PATH "/x", texts[i], (int)strlen(texts[i]),
                     ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
    ck_assert_str_eq(value(n, "x"), texts[i]);
    ck_rc(zke_names_bind(n, "x", "", 0, 0, 0, NULL), ZKE_HELD);
    ck_says("is bound since 20");
    if (i % 2) ck_ok(zke_names_rebind(n, "x", 0, "", 0, 0, 0, NULL));
    ck_ok(zke_names_unbind(n, "x", 0, ZKE_FOREVER));
    ck_assert_int_eq(entries(z, PATH), 2);
  }
  /* a binding whose twin somebody took away */
  bind(n, "x", "1");
  zke_strings *names;
  ck_ok(zke_children(z, PATH, NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    char path[200];
    snprintf(path, sizeof path, PATH "/%s", names->data[i]);
    if (strncmp(names->data[i], "_c_", 3) == 0) ck_ok(zke_delete(z, path, -1));
  }
  zke_free(names);
  ck_ok(zke_names_unbind(n, "x", 0, ZKE_FOREVER));
  ck_ok(zke_names_unbind(n, "keep", 0, ZKE_FOREVER));
  ck_assert_int_eq(entries(z, PATH), 0);
  zke_names_free(n);
  ck_ok(zke_close(z));
}

/* A name whose value is a path gives that node's data and Stat; a value that is
 * no path, or a path without a node, is told. */
TEST(resolves_to_a_znode) {
  zke *z = test_open(":memory:");
  zke_names *n = make(z);
  char *data = NULL;
  int len = 0;
  zke_stat stat, real;
  ck_rc(zke_names_resolve(n, "x", &data, &len, &stat), ZKE_NONODE);
  bind(n, "x", "/target");
  bind(n, "no", "target");
  bind(n, "bad", "/target/");
  ck_rc(zke_names_resolve(n, "x", &data, &len, &stat), ZKE_NONODE);
  ck_says(PATH "/x stands for /target");
  ck_rc(zke_names_resolve(n, "no", &data, &len, &stat), ZKE_BADARGUMENTS);
  ck_rc(zke_names_resolve(n, "bad", &data, &len, &stat), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(data);
  ck_ok(zke_create(z, "/target", "abc", 3, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   &real));
  ck_ok(zke_names_resolve(n, "x", &data, &len, &stat));
  ck_assert_str_eq(data, "abc");
  ck_assert_int_eq(len, 3);
  ck_assert_int_eq(stat.czxid, real.czxid);
  zke_free(data);
  ck_ok(zke_names_resolve(n, "x", NULL, NULL, NULL));
  zke_names_free(n);
  ck_ok(zke_close(z));
}

/* ---- waiting ---- */

typedef struct waiter {
  zke_names *n;
  pthread_t thread;
  zke_binding *b;
  int rc, done;
} waiter;

static void *wait_there(void *arg) {
  waiter *w = arg;
  w->rc = zke_names_wait(w->n, "x", ZKE_FOREVER, &w->b);
  __atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void wait_begin(waiter *w, zke *z, zke_names *n) {
  *w = (waiter){.n = n};
  ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_there, w), 0);
  ck_until(all_watches(z) > 0, 5000);
}

static int wait_end(waiter *w) {
  ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
  return w->rc;
}

/* wait() sleeps until the name is bound, and not because of others; a deadline,
 * a cancel and the session's end finish it. */
TEST(waits_until_bound) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_names *n = make(z), *m = make(y);
  waiter w;
  wait_begin(&w, z, m);
  bind(n, "other", "");
  ck_ok(zke_wake(y));
  ck_rc(zke_names_wait(m, "x", 0, NULL), ZKE_MISUSE);
  ck_assert(!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
  bind(n, "x", "1");
  ck_ok(wait_end(&w));
  ck_assert_str_eq(w.b->value, "1");
  zke_free(w.b);
  ck_ok(zke_names_wait(m, "x", 0, NULL)); /* bound already */
  ck_assert_int_eq(all_watches(z), 0);
  ck_ok(zke_names_unbind(n, "x", 0, ZKE_FOREVER));
  int64_t begin = zke_now(y);
  ck_rc(zke_names_wait(m, "x", begin + 30, NULL), ZKE_OPERATIONTIMEOUT);
  ck_says(PATH "/x was not bound");
  ck_assert_int_ge(zke_now(y), begin + 30);
  ck_assert_int_eq(all_watches(z), 0);
  wait_begin(&w, z, m);
  ck_until(zke_names_cancel(m) == ZKE_OK, 10000);
  ck_rc(wait_end(&w), ZKE_CANCELLED);
  ck_assert_int_eq(all_watches(z), 0);
  wait_begin(&w, z, m);
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_rc(wait_end(&w), ZKE_INVALIDSTATE);
  zke_names_free(n);
  zke_names_free(m);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* ---- refusals ---- */

/* Another recipe's directory is neither read nor changed. */
TEST(other_kind) {
  zke *z = test_open(":memory:");
  zke_names *n = make(z);
  zke_binding_list *list;
  ck_ok(zke_recipe_place(z, PATH, "lock", ZKE_PERSISTENT, NULL, ZKE_FOREVER));
  ck_rc(zke_names_bind(n, "x", "", 0, 0, 0, NULL), ZKE_OTHERKIND);
  ck_rc(zke_names_rebind(n, "x", 0, "", 0, 0, 0, NULL), ZKE_OTHERKIND);
  ck_rc(zke_names_unbind(n, "x", 0, 0), ZKE_OTHERKIND);
  ck_rc(zke_names_list(n, &list), ZKE_OTHERKIND);
  ck_rc(zke_names_wait(n, "x", 0, NULL), ZKE_OTHERKIND);
  ck_assert_int_eq(entries(z, PATH), 0);
  zke_names_free(n);
  ck_ok(zke_close(z));
}

/* P11: names that cannot be nodes or are kept for recipes, and calls without an
 * object, are refused. */
TEST(bad_arguments) {
  static const char *const names[] = {NULL, "", "a/b", "_c_x", ".", ".."};
  zke *z = test_open(":memory:");
  zke_names *n = (zke_names *)&z;
  zke_binding *b;
  ck_rc(zke_names_new(z, "x", NULL, &n), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(n);
  ck_rc(zke_names_new(z, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_names_new(NULL, PATH, NULL, &n), ZKE_BADARGUMENTS);
  n = make(z);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    ck_rc(zke_names_bind(n, names[i], "", 0, 0, 0, NULL), ZKE_BADARGUMENTS);
    ck_rc(zke_names_lookup(n, names[i], &b), ZKE_BADARGUMENTS);
    ck_rc(zke_names_unbind(n, names[i], 0, 0), ZKE_BADARGUMENTS);
    ck_rc(zke_names_wait(n, names[i], 0, NULL), ZKE_BADARGUMENTS);
  }
  ck_rc(zke_names_bind(n, "x", NULL, 1, 0, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_names_bind(n, "x", "", -1, 0, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_names_rebind(n, "x", 0, "", -1, 0, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_names_lookup(n, "x", NULL), ZKE_BADARGUMENTS);
  zke_names_free(NULL);
  zke_names_free(n);
  ck_ok(zke_close(z));
}

/* ---- deaths, lost replies, faults, processes ---- */

/* The typical use: bind, rebind, wait, unbind, by tokens. */
static int use(zke *z) {
  zke_names *n = NULL;
  zke_binding *b = NULL;
  int64_t token = 0;
  int rc = zke_names_new(z, PATH, NULL, &n);
  if (rc == ZKE_OK) rc = zke_names_bind(n, "x", "1", 1, 0, ZKE_FOREVER, &token);
  if (rc == ZKE_OK)
    rc = zke_names_rebind(n, "x", token, "2", 1, 0, ZKE_FOREVER, &token);
  if (rc == ZKE_OK) rc = zke_names_wait(n, "x", zke_now(z) + 1000, &b);
  if (rc == ZKE_OK && (b->token != token || strcmp(b->value, "2") != 0))
    rc = ZKE_SYSTEMERROR;
  zke_free(b);
  if (rc == ZKE_OK) rc = zke_names_unbind(n, "x", token, ZKE_FOREVER);
  zke_names_free(n);
  return rc;
}

/* It is bound whole or not at all, and others can unbind and bind. */
static void check(zke *z, int rc) {
  zke_names *n = make(z);
  bool bound = strcmp(value(n, "x"), "none") != 0;
  if (rc == ZKE_OK) ck_assert(!bound);
  ck_assert_int_eq(entries(z, PATH), bound ? 2 : 0);
  if (bound) ck_ok(zke_names_unbind(n, "x", 0, soon(z)));
  bind(n, "x", "3");
  zke_names_free(n);
}

static const recipe_use uses[] = {{"names", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);

/* Of several processes that want a name one gets it at a time. */
TEST(one_process_at_a_time_has_a_name) {
  enum { N = 4, EACH = 15 };
  const char *db = test_path("db");
  pid_t pids[N];
  for (int i = 0; i < N; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    zke *z;
    zke_names *n;
    zke_binding *b;
    int64_t token;
    int rc = zke_open(db, NULL, &z), done = 0;
    if (rc == ZKE_OK) rc = zke_names_new(z, PATH, NULL, &n);
    while (done < EACH && (rc == ZKE_OK || rc == ZKE_HELD)) {
      rc = zke_names_bind(n, "x", "", 0, done % 2, ZKE_FOREVER, &token);
      if (rc != ZKE_OK) continue;
      rc = zke_names_lookup(n, "x", &b);
      if (rc == ZKE_OK && b->token != token) rc = 1;
      if (rc == ZKE_OK) rc = zke_names_unbind(n, "x", token, ZKE_FOREVER);
      done++;
    }
    _exit(rc == ZKE_OK ? 0 : 1);
  }
  for (int i = 0; i < N; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, 0);
  }
  zke *z = test_open(db);
  ck_assert_int_eq(entries(z, PATH), 0);
  ck_ok(zke_close(z));
}
