/* test_group.c - recipes/group: who is there
 *
 * A member is there while its process lives, and everybody sees the same
 * members. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/group.h"
#include "recipes/part/znode.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"

#define PATH "/groups/g"
#define GUID "_c_00000000-0000-0000-0000-000000000000-"

/* ---- what a listener hears, as one text ---- */

typedef struct heard {
  char text[2000];
  int64_t pid; /* of the last one */
  zke_group *free_it;
  int64_t left[8]; /* pids, in the order of the news */
  int lefts;
} heard;

/* The listener: writes "+name:data", "~…", "-…", READY and LOST, notes the pids
 * of those that left, and frees the group if the test asks for it. */
static void hear(zke_group *g, int event, const zke_party *who, void *context) {
  static const char *const names[] = {"", "+", "~", "-", "READY", "LOST"};
  heard *h = context;
  size_t at = strlen(h->text);
  snprintf(h->text + at, sizeof h->text - at, "%s%s%s%s ", names[event],
           who ? who->identity : "", who ? ":" : "", who ? who->data : "");
  if (who) h->pid = who->pid;
  if (event == ZKE_GROUP_LEFT && h->lefts < 8) h->left[h->lefts++] = who->pid;
  if (h->free_it) {
    h->free_it = NULL;
    zke_group_free(g);
  }
}

static void expect(zke *z, heard *h, const char *text) {
  int count = 1;
  while (count && zke_dispatch(z, &count) == ZKE_OK) continue;
  ck_assert_str_eq(h->text, text);
  h->text[0] = '\0';
}

static zke *session(zke *z, const char *identity) {
  zke_options o = {.size = sizeof o, .identity = identity};
  zke *further;
  ck_ok(zke_open_session(z, &o, &further));
  return further;
}

static zke_group *make(zke *z, heard *h) {
  zke_group_options o = {.size = sizeof o};
  zke_group *g = NULL;
  if (h) {
    o.listener = hear;
    o.context = h;
  }
  ck_ok(zke_group_new(z, PATH, &o, &g));
  return g;
}

static void join(zke_group *g, const char *data) {
  ck_ok(zke_group_join(g, data, (int)strlen(data), ZKE_FOREVER));
}

/* The path of an object's own znode. */
static const char *own(zke_group *g) {
  static char path[200];
  char *name;
  ck_ok(zke_group_self(g, &name));
  snprintf(path, sizeof path, PATH "/%s", name);
  zke_free(name);
  return path;
}

/* ---- coming and going ---- */

/* The list has each member's identity, process, data and time, in the order of
 * joining: read from the file, then from memory. */
TEST(members_with_identity_and_time) {
  zke *z = test_open(":memory:"), *a = session(z, "ann"),
      *b = session(z, "bob");
  zke_group *ga = make(a, NULL), *gb = make(b, NULL), *look = make(z, NULL);
  zke_party_list *list;
  zke_stat stat;
  ck_ok(zke_group_list(look, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  join(ga, "host:1");
  join(gb, "");
  ck_ok(zke_exists(z, own(ga), NULL, NULL, &stat));
  for (int i = 0; i < 2; i++) { /* out of the file, then out of memory */
    ck_ok(zke_group_list(look, &list));
    ck_assert_int_eq(list->count, 2);
    const zke_party *p = list->data;
    ck_assert_str_eq(strrchr(own(ga), '/') + 1, p[0].name);
    ck_assert_str_eq(p[0].identity, "ann");
    ck_assert_str_eq(p[0].data, "host:1");
    ck_assert_int_eq(p[0].len, 6);
    ck_assert_int_eq(p[0].pid, getpid());
    ck_assert_int_eq(p[0].session, zke_session_id(a));
    ck_assert_int_eq(p[0].since_ms, stat.ctime);
    ck_assert_int_eq(p[0].czxid, stat.czxid);
    ck_assert_int_eq(p[0].held, 1);
    ck_assert_str_eq(p[1].identity, "bob");
    ck_assert_int_eq(p[1].len, 0);
    zke_free(list);
    ck_ok(zke_group_start(look));
  }
  zke_group_free(ga);
  zke_group_free(gb);
  zke_group_free(look);
  ck_ok(zke_close(a));
  ck_ok(zke_close(b));
  ck_ok(zke_close(z));
}

/* The listener hears which members join, change and leave, with their data; a
 * member that left is named as it was. */
TEST(listener_hears_members) {
  zke *z = test_open(":memory:"), *a = session(z, "ann"),
      *b = session(z, "bob");
  heard h = {{0}, 0, NULL, {0}, 0};
  zke_group *ga = make(a, NULL), *gb = make(b, NULL), *look = make(z, &h);
  join(ga, "1");
  ck_ok(zke_group_start(look));
  expect(z, &h, "+ann:1 READY ");
  ck_assert_int_eq(h.pid, getpid());
  ck_ok(zke_group_start(look));
  join(gb, "2");
  expect(z, &h, "+bob:2 ");
  ck_ok(zke_group_update(ga, "one\nand a half", 14, ZKE_FOREVER));
  expect(z, &h, "~ann:one\nand a half ");
  ck_ok(zke_group_leave(ga));
  expect(z, &h, "-ann:one\nand a half ");
  h.pid = 0;
  zke_group_free(gb);
  ck_ok(zke_close(b)); /* who it was is known after its session */
  expect(z, &h, "-bob:2 ");
  ck_assert_int_eq(h.pid, getpid());
  join(ga, "");
  expect(z, &h, "+ann: ");
  zke_group_free(ga);
  zke_group_free(look);
  ck_assert_int_eq(all_watches(z), 0);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* Who only joined is not woken by others, but hears of its own end. */
TEST(joined_without_start) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  heard h = {{0}, 0, NULL, {0}, 0};
  zke_group *ga = make(a, &h), *gz = make(z, NULL);
  int count;
  join(ga, "1");
  join(gz, "2");
  ck_ok(zke_dispatch(a, &count));
  ck_assert_int_eq(count, 0);
  ck_ok(zke_group_update(ga, "3", 1, ZKE_FOREVER)); /* its watch stays */
  expect(a, &h, "");
  ck_ok(zke_delete(z, own(ga), -1));
  expect(a, &h, "LOST ");
  ck_assert_int_eq(zke_group_state(ga), ZKE_GROUP_LOST);
  zke_group_free(ga);
  zke_group_free(gz);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* One object is one member: a second join is refused, a second leave has
 * nothing to leave; afterwards it may join again. */
TEST(join_twice_leave_twice) {
  zke *z = test_open(":memory:");
  zke_group *g = make(z, NULL);
  char *name;
  ck_rc(zke_group_leave(g), ZKE_LOST);
  ck_says(PATH);
  ck_rc(zke_group_update(g, "", 0, 0), ZKE_LOST);
  ck_rc(zke_group_self(g, &name), ZKE_LOST);
  join(g, "");
  ck_assert_int_eq(zke_group_state(g), ZKE_GROUP_JOINED);
  ck_rc(zke_group_join(g, "", 0, 0), ZKE_MISUSE);
  ck_assert_int_eq(entries(z, PATH), 1);
  ck_ok(zke_group_leave(g));
  ck_assert_int_eq(entries(z, PATH), 0);
  ck_assert_int_eq(all_watches(z), 0);
  ck_rc(zke_group_leave(g), ZKE_LOST);
  join(g, "again");
  zke_group_free(g);
  ck_assert_int_eq(entries(z, PATH), 0);
  ck_ok(zke_close(z));
}

/* Taken away by somebody: told, known, and one can join again. */
TEST(a_member_that_was_taken_away_can_join_again) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  heard h = {{0}, 0, NULL, {0}, 0};
  zke_group *g = make(a, &h);
  ck_ok(zke_group_start(g));
  join(g, "1");
  expect(a, &h, "READY +ann:1 ");
  ck_ok(zke_delete(z, own(g), -1));
  ck_rc(zke_group_update(g, "2", 1, ZKE_FOREVER), ZKE_LOST); /* finds out */
  expect(a, &h, "LOST -ann:1 ");
  join(g, "3");
  expect(a, &h, "+ann:3 ");
  ck_ok(zke_delete(z, own(g), -1));
  expect(a, &h, "LOST -ann:3 ");
  zke_group_free(g);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* The session's end takes its member away: others hear of it, the member itself
 * hears LOST once, and no call of it works any more. */
TEST(a_member_goes_with_its_session) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  heard h = {{0}, 0, NULL, {0}, 0}, other = {{0}, 0, NULL, {0}, 0};
  zke_party_list *list;
  zke_group *g = make(a, &h), *look = make(z, &other);
  ck_ok(zke_group_start(look));
  join(g, "1");
  expect(z, &other, "READY +ann:1 ");
  ck_ok(zke_expire(z, zke_session_id(a)));
  expect(z, &other, "-ann:1 ");
  expect(a, &h, "LOST ");
  ck_assert_int_eq(zke_group_state(g), ZKE_GROUP_LOST);
  ck_rc(zke_group_join(g, "", 0, 0), ZKE_INVALIDSTATE);
  ck_rc(zke_group_leave(g), ZKE_INVALIDSTATE);
  ck_rc(zke_group_list(g, &list), ZKE_INVALIDSTATE);
  ck_rc(zke_group_wait(g, 0, 0), ZKE_INVALIDSTATE);
  expect(a, &h, "");
  zke_group_free(g);
  zke_group_free(look);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* The listener frees the group at the first of two events: the second does not
 * come, and the member is gone. */
TEST(listener_frees) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  heard h = {{0}, 0, NULL, {0}, 0};
  zke_group *g = make(z, &h), *ga = make(a, NULL);
  join(ga, "1");
  join(g, "2");
  h.free_it = g;
  ck_ok(zke_group_start(g));
  ck_assert_int_eq(h.text[0], '+'); /* one of the two, and no more */
  ck_assert_ptr_eq(strchr(h.text, ' '), h.text + strlen(h.text) - 1);
  ck_assert_int_eq(entries(z, PATH), 1);
  zke_group_free(ga);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* P4: who came and went while events were dropped is told in the end. */
TEST(an_overflow_hides_nobody) {
  zke *z = test_open(":memory:"), *a = session(z, "ann");
  zke_options few = {.size = sizeof few, .event_limit = 4, .identity = "eve"};
  heard h = {{0}, 0, NULL, {0}, 0};
  zke *y;
  ck_ok(zke_open_session(z, &few, &y));
  zke_group *look = make(y, &h), *g = make(a, NULL), *mine = make(y, NULL);
  ck_ok(zke_group_start(look));
  join(mine, "me");
  expect(y, &h, "READY +eve:me ");
  for (int i = 0; i < 10; i++) {
    join(g, "x");
    if (i < 9) ck_ok(zke_group_leave(g));
  }
  ck_ok(zke_delete(z, own(mine), -1));
  expect(y, &h, "+ann:x -eve:me "); /* by name */
  ck_assert_int_eq(zke_group_state(mine), ZKE_GROUP_LOST);
  zke_group_free(look);
  zke_group_free(g);
  zke_group_free(mine);
  ck_ok(zke_close(y));
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* ---- what is not ours ---- */

/* Other children are no members; numbers are compared as numbers. */
TEST(foreign_children) {
  zke *z = test_open(":memory:");
  heard h = {{0}, 0, NULL, {0}, 0};
  static const char *const names[] = {"x",
                                      "member-0000000001",
                                      GUID "member-",
                                      GUID "member-00000001",
                                      GUID "member-00000000x1",
                                      GUID "lock-0000000001",
                                      GUID "member-99999999999",
                                      GUID "member-0000000001x"};
  zke_party_list *list;
  zke_group *g = make(z, &h);
  ck_ok(zke_group_start(g));
  join(g, "me");
  ck_ok(zke_dispatch(z, NULL));
  h.text[0] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char path[200];
    snprintf(path, sizeof path, PATH "/%s", names[i]);
    ck_ok(zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  }
  ck_ok(zke_create(z, PATH "/" GUID "member-0000000007", "", 0, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL)); /* goes with nobody */
  expect(z, &h, "");
  /* members as others might write them, before and after the wrap-around */
  ck_ok(zke_create(z, PATH "/" GUID "member--2147483648", NULL, -1,
                   ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_create(z, PATH "/" GUID "member-2147483647", "7 \nx", 4,
                   ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_create(z, PATH "/" GUID "member-2147483646", "no head\n", 8,
                   ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_group_list(g, &list));
  ck_assert_int_eq(list->count, 1); /* not dispatched */
  zke_free(list);
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_group_list(g, &list));
  ck_assert_int_eq(list->count, 4);
  const zke_party *p = list->data;
  int at = p[0].data[0] == 'm' ? 1 : 0; /* 0 stands at either end */
  ck_assert_str_eq(p[at].data, "no head\n");
  ck_assert_str_eq(p[at].identity, "");
  ck_assert_str_eq(p[at + 1].data, "x");
  ck_assert_int_eq(p[at + 1].pid, 7);
  ck_assert_str_eq(p[at + 2].data, "");
  zke_free(list);
  zke_group_free(g);
  ck_ok(zke_close(z));
}

/* A path that is another recipe's is refused. */
TEST(other_kind) {
  zke *z = test_open(":memory:");
  zke_group *g = make(z, NULL);
  ck_ok(zke_recipe_place(z, PATH, "lock", ZKE_PERSISTENT, NULL, ZKE_FOREVER));
  ck_rc(zke_group_join(g, "", 0, 0), ZKE_OTHERKIND);
  ck_says("lock");
  ck_rc(zke_group_start(g), ZKE_OTHERKIND);
  ck_rc(zke_group_wait(g, 0, 0), ZKE_OTHERKIND);
  ck_assert_int_eq(entries(z, PATH), 0);
  zke_group_free(g);
  ck_ok(zke_close(z));
}

/* P11: arguments that make no sense, and calls without a group, are refused;
 * the output is NULL then. */
TEST(bad_arguments) {
  zke *z = test_open(":memory:");
  zke_group_options o = {.size = 3};
  zke_group *g = (zke_group *)&o;
  ck_rc(zke_group_new(z, PATH, &o, &g), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(g);
  ck_rc(zke_group_new(z, "x", NULL, &g), ZKE_BADARGUMENTS);
  ck_rc(zke_group_new(z, PATH, NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_group_new(NULL, PATH, NULL, &g), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_group_state(NULL), ZKE_GROUP_LOST);
  g = make(z, NULL);
  ck_rc(zke_group_join(g, NULL, 1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_group_join(g, "x", -1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_group_update(g, "x", -1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_group_list(g, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_group_self(g, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_group_wait(g, -1, 0), ZKE_BADARGUMENTS);
  zke_group_free(NULL);
  zke_group_free(g);
  ck_ok(zke_close(z));
}

/* ---- waiting ---- */

typedef struct waiter {
  zke_group *g;
  int members;
  pthread_t thread;
  int rc, done;
} waiter;

static void *wait_there(void *arg) {
  waiter *w = arg;
  w->rc = zke_group_wait(w->g, w->members, ZKE_FOREVER);
  __atomic_store_n(&w->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void wait_begin(waiter *w, zke_group *g, int members) {
  *w = (waiter){.g = g, .members = members};
  ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_there, w), 0);
}

static int wait_end(waiter *w) {
  ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
  return w->rc;
}

/* wait() ends when so many are there, also of other processes; a deadline, a
 * cancel and the session's end finish it too, each with its code. */
TEST(waits_for_members) {
  zke *z = test_open(test_path("db")), *a = session(z, "ann"),
      *b = session(z, "bob"), *y = test_open(test_path("db"));
  zke_group *ga = make(a, NULL), *gb = make(b, NULL), *look = make(y, NULL);
  waiter w;
  ck_ok(zke_group_wait(look, 0, 0));
  wait_begin(&w, look, 2);
  join(ga, "");
  ck_rc(zke_group_wait(ga, 2, zke_now(a) + 20), ZKE_OPERATIONTIMEOUT);
  ck_says("waited for 2 members of the group " PATH "; 1 are there: ann (pid ");
  ck_assert(!__atomic_load_n(&w.done, __ATOMIC_ACQUIRE));
  join(gb, "");
  ck_ok(wait_end(&w));
  ck_ok(zke_group_wait(look, 2, 0));
  ck_ok(zke_group_leave(ga));
  ck_rc(zke_group_wait(look, 2, 0), ZKE_OPERATIONTIMEOUT); /* a last look */
  wait_begin(&w, look, 2);
  while (zke_group_wait(look, 0, 0) == ZKE_OK) test_pause();
  ck_rc(zke_group_wait(look, 0, 0), ZKE_MISUSE);
  ck_until(zke_group_cancel(look) == ZKE_OK, 10000);
  ck_rc(wait_end(&w), ZKE_CANCELLED);
  wait_begin(&w, look, 9);
  ck_ok(zke_expire(z, zke_session_id(y)));
  ck_rc(wait_end(&w), ZKE_INVALIDSTATE);
  zke_group_free(ga);
  zke_group_free(gb);
  zke_group_free(look);
  ck_ok(zke_close(y));
  ck_ok(zke_close(a));
  ck_ok(zke_close(b));
  ck_ok(zke_close(z));
}

/* ---- deaths, lost replies, faults, processes ---- */

/* The typical use: join, look, change the data, wait, list, leave. */
static int use(zke *z) {
  heard h = {{0}, 0, NULL, {0}, 0};
  zke_group_options o = {.size = sizeof o, .listener = hear, .context = &h};
  zke_group *g = NULL;
  zke_party_list *list = NULL;
  int rc = zke_group_new(z, PATH, &o, &g);
  if (rc == ZKE_OK) rc = zke_group_join(g, "1", 1, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_group_start(g);
  if (rc == ZKE_OK) rc = zke_group_update(g, "2", 1, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_group_wait(g, 1, zke_now(z) + 1000);
  if (rc == ZKE_OK) rc = zke_group_list(g, &list);
  if (rc == ZKE_OK && list->count != 1) rc = ZKE_SYSTEMERROR;
  zke_free(list);
  if (rc == ZKE_OK) rc = zke_group_leave(g);
  zke_group_free(g);
  return rc;
}

/* Nobody is left, and another can join. */
static void check(zke *z, int rc) {
  zke_group *g = make(z, NULL);
  (void)rc;
  until_empty(z, PATH);
  join(g, "");
  ck_ok(zke_group_wait(g, 1, soon(z)));
  ck_assert_int_eq(entries(z, PATH), 1);
  zke_group_free(g);
}

static const recipe_use uses[] = {{"group", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);

/* Processes join; all see all; one is killed, and the others hear of it. */
TEST(a_killed_process_leaves_the_group) {
  enum { N = 4 };
  const char *db = test_path("db");
  pid_t pids[N];
  int complete[2];
  char bytes[N];
  ck_assert_int_eq(pipe(complete), 0);
  for (int i = 0; i < N; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    zke *z;
    zke_group *g;
    zke_party_list *list = NULL;
    int rc = zke_open(db, NULL, &z);
    if (rc == ZKE_OK) rc = zke_group_new(z, PATH, NULL, &g);
    if (rc == ZKE_OK) rc = zke_group_join(g, "", 0, soon(z));
    if (rc == ZKE_OK)
      rc = zke_group_wait(g, N, zke_now(z) + test_patience(10000));
    int count = N;
    if (write(complete[1], "", 1) != 1) rc = 1;
    while (rc == ZKE_OK && count == N) {
      zke_wait(z, zke_now(z) + 10000);
      rc = zke_group_list(g, &list);
      if (rc == ZKE_OK) count = list->count;
      zke_free(list);
    }
    _exit(rc == ZKE_OK && count < N ? 0 : 1);
  }
  zke *z = test_open(db);
  heard h = {{0}, 0, NULL, {0}, 0};
  zke_group *look = make(z, &h);
  ck_ok(zke_group_wait(look, N, zke_now(z) + test_patience(10000)));
  h.text[0] = '\0';
  for (int i = 0; i < N; i++)
    ck_assert_int_eq(read(complete[0], &bytes[i], 1), 1);
  ck_assert_int_eq(kill(pids[0], SIGKILL), 0);
  while (!h.lefts) ck_ok(zke_wait(z, zke_now(z) + test_patience(10000)));
  /* The others go as soon as they hear of it, perhaps within the same news,
   * which come by name: but the dead one is among the first. */
  bool told = false;
  for (int i = 0; i < h.lefts; i++) told = told || h.left[i] == pids[0];
  ck_assert(told);
  for (int i = 0; i < N; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, i ? 0 : SIGKILL);
  }
  zke_group_free(look);
  ck_ok(zke_close(z));
}

/* Allocations of zkembed's for one who comes and one who goes, in a group of so
 * many. */
static long cost(const char *file, int members) {
  zke *z = test_open(test_path(file)), *y;
  test_heap heap = {0};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  heard h = {{0}, 0, NULL, {0}, 0};
  zke_group_options options = {
      .size = sizeof options, .listener = hear, .context = &h};
  zke_group *g, *one;
  zke_party_list *list;
  long before = 0;
  ck_ok(zke_group_new(z, PATH, NULL, &one));
  ck_ok(zke_group_join(one, "x", 1, ZKE_FOREVER));
  for (int i = 1; i < members; i++)
    ck_ok(zke_create(z, PATH "/" GUID "member-", "7 it\nx", 6, ZKE_OPEN_ACL,
                     ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL));
  ck_ok(zke_open(test_path(file), &o, &y));
  ck_ok(zke_group_new(y, PATH, &options, &g));
  ck_ok(zke_group_wait(g, members, ZKE_FOREVER));
  for (int i = 0; i < 3; i++) { /* the last time counts: arrays have grown */
    before = heap.calls;
    ck_ok(zke_group_leave(one));
    h.text[0] = '\0';
    while (!strstr(h.text, "-")) ck_ok(zke_wait(y, zke_now(y) + 10000));
    ck_ok(zke_group_join(one, "x", 1, ZKE_FOREVER));
    ck_ok(zke_group_wait(g, members, zke_now(y) + 10000));
  }
  before = heap.calls - before;
  ck_ok(zke_group_list(g, &list));
  ck_assert_int_eq(list->count, members);
  zke_free(list);
  zke_group_free(g);
  zke_group_free(one);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
  return before;
}

/* As much in a large group as in a small one, give or take a wake-up. */
TEST(a_coming_costs_the_same_in_any_group) {
  long few = cost("few", 5), many = cost("many", 1000);
  ck_assert_int_lt(many, few + 50);
}
