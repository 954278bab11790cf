/* test_discovery.c - recipes/discovery: where a service can be reached
 *
 * Services register a name, an address and a payload; others watch the list and
 * pick from it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipes/discovery.h"

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

#define BASE "/services"
#define PATH BASE "/web"

/* ---- what a listener hears, as one text ---- */

typedef struct heard {
  char text[2000];
  zke_discovery *free_it;
} heard;

/* The listener: writes "+address/payload", "~…", "-…", READY and LOST, and
 * frees the service if the test asks for it. */
static void hear(zke_discovery *d, int event, const zke_instance *i,
                 void *context) {
  static const char *const names[] = {"", "+", "~", "-", "READY", "LOST"};
  heard *h = context;
  size_t at = strlen(h->text);
  snprintf(h->text + at, sizeof h->text - at, "%s%s%s%s ", names[event],
           i ? i->address : "", i ? "/" : "", i ? i->payload : "");
  if (h->free_it) {
    ck_assert_ptr_eq(h->free_it, d);
    h->free_it = NULL;
    zke_discovery_free(d);
  }
}

static void expect(zke *z, heard *h, const char *text) {
  int count = 1;
  while (count && zke_dispatch(z, &count) == ZKE_OK) continue;
  ck_assert_str_eq(h->text, text);
  h->text[0] = '\0';
}

static zke_discovery *make(zke *z, const char *name, heard *h) {
  zke_discovery_options o = {.size = sizeof o};
  zke_discovery *d = NULL;
  if (h) {
    o.listener = hear;
    o.context = h;
  }
  ck_ok(zke_discovery_new(z, BASE, name, &o, &d));
  return d;
}

static void enlist(zke_discovery *d, const char *address, const char *payload) {
  ck_ok(zke_discovery_register(d, address, payload, (int)strlen(payload),
                               ZKE_FOREVER));
}

/* ---- registering and finding ---- */

/* An instance is listed as it was registered, with bytes that are 0, its owner
 * and its time; the file and the watched list in memory say the same. */
TEST(address_and_payload) {
  zke_options o = {.size = sizeof o, .identity = "ann"};
  zke *z = test_open(":memory:"), *a;
  ck_ok(zke_open_session(z, &o, &a));
  zke_discovery *d = make(a, "web", NULL), *e = make(a, "web", NULL),
                *look = make(z, "web", NULL);
  zke_instance_list *list;
  ck_ok(zke_discovery_list(look, &list));
  ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_ok(zke_discovery_register(d, "host:1", "a\n\0b", 4, ZKE_FOREVER));
  enlist(e, "", "");
  for (int round = 0; round < 2; round++) { /* file, memory */
    ck_ok(zke_discovery_list(look, &list));
    ck_assert_int_eq(list->count, 2);
    const zke_instance *i = list->data;
    ck_assert_str_eq(i[0].address, "host:1");
    ck_assert_int_eq(i[0].len, 4);
    ck_assert_mem_eq(i[0].payload, "a\n\0b", 5);
    ck_assert_str_eq(i[0].identity, "ann");
    ck_assert_int_eq(i[0].pid, getpid());
    ck_assert_int_eq(i[0].session, zke_session_id(a));
    ck_assert_int_gt(i[0].since_ms, 0);
    ck_assert_int_gt(i[1].czxid, i[0].czxid);
    ck_assert_str_ne(i[0].id, i[1].id);
    ck_assert_str_eq(i[1].address, "");
    ck_assert_int_eq(i[1].len, 0);
    ck_assert_str_eq(i[1].payload, "");
    zke_free(list);
    ck_ok(zke_discovery_start(look));
  }
  ck_rc(zke_discovery_register(d, "x", "", 0, ZKE_FOREVER), ZKE_MISUSE);
  ck_ok(zke_discovery_unregister(d));
  ck_rc(zke_discovery_unregister(d), ZKE_LOST);
  ck_rc(zke_discovery_update(d, "x", "", 0, ZKE_FOREVER), ZKE_LOST);
  zke_discovery_free(d);
  zke_discovery_free(e);
  zke_discovery_free(look);
  ck_assert_int_eq(entries(z, PATH), 0);
  ck_assert_int_eq(all_watches(z), 0);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* The listener hears of instances that come, change and go with their session,
 * and of those of its own service only. */
TEST(watched_list) {
  zke *z = test_open(":memory:"), *a = test_session(z, NULL);
  heard h = {{0}, NULL}, mine = {{0}, NULL};
  zke_discovery *d = make(a, "web", &mine), *look = make(z, "web", &h),
                *other = make(a, "mail", NULL);
  enlist(d, "1", "x");
  ck_ok(zke_discovery_start(look));
  expect(z, &h, "+1/x READY ");
  enlist(other, "9", "");
  ck_ok(zke_discovery_update(d, "2", "y", 1, ZKE_FOREVER));
  expect(z, &h, "~2/y ");
  ck_assert_int_eq(zke_discovery_state(other), ZKE_DISCOVERY_ADDED);
  ck_ok(zke_expire(z, zke_session_id(a)));
  expect(z, &h, "-2/y ");
  expect(a, &mine, "LOST ");
  ck_assert_int_eq(zke_discovery_state(d), ZKE_DISCOVERY_LOST);
  ck_assert_int_eq(zke_discovery_state(look), ZKE_DISCOVERY_OUT);
  ck_ok(zke_discovery_step(look));
  ck_rc(zke_discovery_register(d, "x", "", 0, 0), ZKE_INVALIDSTATE);
  zke_discovery_free(d);
  zke_discovery_free(other);
  zke_discovery_free(look);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* ---- which services there are ---- */

/* The listener of all services: writes "+name", "-name", R when ready and L
 * when lost. */
static void note_service(zke_services *services, int event, const char *name,
                         void *context) {
  char *text = context;
  size_t used = strlen(text);
  (void)services;
  snprintf(text + used, 200 - used, "%c%s ", "?+?-RL"[event], name ? name : "");
}

#define ck_services(expected)                       \
  do {                                              \
    int count_ = 1;                                 \
    while (count_) ck_ok(zke_dispatch(z, &count_)); \
    ck_assert_str_eq(services, expected);           \
    services[0] = '\0';                             \
  } while (0)

/* A service is there from its first instance to its last one; what is no
 * service is not told. */
TEST(services_come_and_go) {
  char services[200] = "";
  zke *z = test_open(":memory:"), *a = test_session(z, NULL);
  zke_services *s;
  zke_services_options o = {
      .size = sizeof o, .listener = note_service, .context = services};
  ck_rc(zke_services_new(z, "/", &o, &s), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(s);
  ck_rc(zke_services_new(z, "/services", &o, NULL), ZKE_BADARGUMENTS);
  zke_discovery *web = make(a, "web", NULL), *more = make(a, "web", NULL),
                *mail = make(a, "mail", NULL);
  enlist(web, "1", "");
  ck_ok(zke_services_new(z, "/services", &o, &s));
  ck_ok(zke_services_step(s)); /* not started: nothing */
  ck_services("");
  ck_ok(zke_services_start(s));
  ck_ok(zke_services_step(s));
  ck_services("+web R ");
  enlist(more, "2", "");
  ck_services("");
  enlist(mail, "3", "");
  ck_services("+mail ");
  ck_ok(zke_discovery_update(mail, "4", "", 0, ZKE_FOREVER));
  ck_ok(zke_discovery_unregister(web));
  ck_services("");
  ck_ok(zke_discovery_unregister(more));
  ck_services("-web ");
  enlist(web, "1", "");
  ck_services("+web ");
  ck_ok(zke_create(a, "/services/none", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_ok(zke_create(a, "/services/none/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                   NULL, NULL));
  ck_services("");
  ck_ok(zke_expire(z, zke_session_id(a)));
  int count = 1;
  while (count) ck_ok(zke_dispatch(z, &count));
  ck_assert_int_eq((int)strlen(services), 11);
  ck_assert(strstr(services, "-web ") && strstr(services, "-mail "));
  zke_services_free(s);
  zke_services_free(NULL);
  ck_rc(zke_services_start(NULL), ZKE_BADARGUMENTS);
  ck_assert_int_eq(all_watches(z), 0);
  zke_discovery_free(web);
  zke_discovery_free(more);
  zke_discovery_free(mail);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

static void free_services(zke_services *services, int event, const char *name,
                          void *context) {
  int *events = context;
  (void)event, (void)name;
  if (++*events == 1) zke_services_free(services);
}

/* The listener of all services frees them at the first event: no second event,
 * no watch is left. */
TEST(services_listener_frees) {
  int events = 0;
  zke *z = test_open(":memory:");
  zke_services *s;
  zke_services_options o = {
      .size = sizeof o, .listener = free_services, .context = &events};
  zke_discovery *web = make(z, "web", NULL), *mail = make(z, "mail", NULL);
  enlist(web, "1", "");
  enlist(mail, "1", "");
  ck_ok(zke_services_new(z, "/services", &o, &s));
  zke_services_start(s);
  ck_assert_int_eq(events, 1);
  zke_discovery_free(web);
  zke_discovery_free(mail);
  ck_assert_int_eq(all_watches(z), 0);
  ck_ok(zke_close(z));
}

/* The listener frees the service at the first event, inside the start(); others
 * can be made after it. */
TEST(listener_frees) {
  zke *z = test_open(":memory:"), *a = test_session(z, NULL);
  heard h = {{0}, NULL};
  zke_discovery *d = make(a, "web", NULL), *look = make(z, "web", &h);
  enlist(d, "1", "");
  h.free_it = look;
  ck_ok(zke_discovery_start(look));
  ck_assert_str_eq(h.text, "+1/ ");
  enlist(look = make(z, "web", NULL), "2", "");
  zke_discovery_free(look);
  zke_discovery_free(d);
  ck_ok(zke_close(a));
  ck_ok(zke_close(z));
}

/* Services are listed while they have instances; a directory of another kind is
 * none. */
TEST(names_of_services) {
  zke *z = test_open(":memory:");
  zke_discovery *d = make(z, "web", NULL), *e = make(z, "mail", NULL);
  zke_strings *names;
  ck_ok(zke_discovery_names(z, BASE, &names));
  ck_assert_int_eq(names->count, 0);
  zke_free(names);
  enlist(d, "1", "");
  enlist(e, "2", "");
  ck_ok(zke_create(z, BASE "/odd", "zkembed services\n", 17, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_create(z, BASE "/odd/x", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_ok(zke_discovery_names(z, BASE, &names));
  ck_assert_int_eq(names->count, 2);
  ck_assert_str_eq(names->data[0], "mail");
  ck_assert_str_eq(names->data[1], "web");
  zke_free(names);
  ck_ok(zke_discovery_unregister(e));
  ck_ok(zke_discovery_names(z, BASE, &names));
  ck_assert_int_eq(names->count, 1);
  zke_free(names);
  zke_discovery_free(d);
  zke_discovery_free(e);
  ck_ok(zke_close(z));
}

/* ---- picking ---- */

enum { N = 4 };

/* Register an instance whose address is i. */
static zke_discovery *offer(zke *z, int i) {
  char address[8];
  zke_discovery *d = make(z, "web", NULL);
  snprintf(address, sizeof address, "%d", i);
  enlist(d, address, "");
  return d;
}

/* Pick an instance by a rule: which one, by its address. */
static int pick(zke_discovery *d, int rule) {
  zke_instance *i = NULL;
  ck_ok(zke_discovery_pick(d, rule, &i));
  int n = atoi(i->address);
  zke_free(i);
  return n;
}

/* The first is the oldest that is still there; where there is none any more
 * every way to pick says so. */
TEST(picks_the_first) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_discovery *look = make(y, "web", NULL), *d[3];
  zke_instance *none = NULL;
  ck_rc(zke_discovery_pick(look, ZKE_PICK_FIRST, &none), ZKE_NONODE);
  ck_assert_ptr_null(none);
  for (int i = 0; i < 3; i++) d[i] = offer(z, i);
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_int_eq(pick(look, ZKE_PICK_FIRST), 0);
  ck_assert_int_eq(pick(look, ZKE_PICK_FIRST), 0);
  zke_discovery_free(d[0]);
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_int_eq(pick(look, ZKE_PICK_FIRST), 1);
  for (int i = 1; i < 3; i++) zke_discovery_free(d[i]);
  ck_ok(zke_dispatch(y, NULL));
  ck_rc(zke_discovery_pick(look, ZKE_PICK_RANDOM, &none), ZKE_NONODE);
  ck_rc(zke_discovery_pick(look, ZKE_PICK_ROUND_ROBIN, &none), ZKE_NONODE);
  zke_discovery_free(look);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Each in its turn; whoever comes or goes, nobody else is left out. */
TEST(picks_in_turn) {
  zke *z = test_open(":memory:"), *y = test_session(z, NULL);
  zke_discovery *look = make(y, "web", NULL), *d[N];
  for (int i = 0; i < N; i++) d[i] = offer(z, i);
  for (int i = 0; i < 3 * N; i++)
    ck_assert_int_eq(pick(look, ZKE_PICK_ROUND_ROBIN), i % N);
  ck_assert_int_eq(pick(look, ZKE_PICK_ROUND_ROBIN), 0);
  zke_discovery_free(d[0]); /* the one just picked */
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_int_eq(pick(look, ZKE_PICK_ROUND_ROBIN), 1);
  zke_discovery_free(d[2]); /* the one that would be next */
  ck_ok(zke_dispatch(y, NULL));
  d[0] = offer(z, 7);
  ck_ok(zke_dispatch(y, NULL));
  ck_assert_int_eq(pick(look, ZKE_PICK_ROUND_ROBIN), 3);
  ck_assert_int_eq(pick(look, ZKE_PICK_ROUND_ROBIN), 7);
  ck_assert_int_eq(pick(look, ZKE_PICK_ROUND_ROBIN), 1);
  zke_discovery_free(d[0]);
  zke_discovery_free(d[1]);
  zke_discovery_free(d[3]);
  zke_discovery_free(look);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* Of 4000 picks each gets 1000, give or take six times the deviation. */
TEST(picks_at_random) {
  zke *z = test_open(":memory:");
  zke_discovery *look = make(z, "web", NULL), *d[N];
  int got[N] = {0}, repeated = 0;
  for (int i = 0; i < N; i++) d[i] = offer(z, i);
  for (int i = 0, last = -1; i < 4000; i++) {
    int n = pick(look, ZKE_PICK_RANDOM);
    got[n]++;
    repeated += n == last;
    last = n;
  }
  for (int i = 0; i < N; i++) ck_assert(got[i] > 830 && got[i] < 1170);
  ck_assert(repeated > 830 && repeated < 1170);
  for (int i = 0; i < N; i++) zke_discovery_free(d[i]);
  zke_discovery_free(look);
  ck_ok(zke_close(z));
}

/* Threads that share an object share the round. */
static void *pick_many(void *arg) {
  static int64_t counts[2][N];
  static int thread;
  int64_t *mine = counts[__atomic_fetch_add(&thread, 1, __ATOMIC_RELAXED)];
  for (int i = 0; i < 1000; i++) mine[pick(arg, ZKE_PICK_ROUND_ROBIN)]++;
  return mine;
}

/* Two threads that pick in turn use all instances evenly together. */
TEST(picks_by_threads) {
  zke *z = test_open(":memory:");
  zke_discovery *look = make(z, "web", NULL), *d[N];
  pthread_t t[2];
  void *counts[2];
  for (int i = 0; i < N; i++) d[i] = offer(z, i);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(pthread_create(&t[i], NULL, pick_many, look), 0);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(pthread_join(t[i], &counts[i]), 0);
  for (int i = 0; i < N; i++)
    ck_assert_int_eq(((int64_t *)counts[0])[i] + ((int64_t *)counts[1])[i],
                     2000 / N);
  for (int i = 0; i < N; i++) zke_discovery_free(d[i]);
  zke_discovery_free(look);
  ck_ok(zke_close(z));
}

/* ---- waiting, refusals ---- */

static void *wait_there(void *arg) {
  static int rc;
  rc = zke_discovery_wait(arg, 1, ZKE_FOREVER);
  return &rc;
}

/* wait() ends when enough are there, from another process too; the deadline's
 * sentence counts those that are there. */
TEST(waits_for_instances) {
  zke *z = test_open(test_path("db")), *y = test_open(test_path("db"));
  zke_discovery *look = make(y, "web", NULL), *d;
  pthread_t thread;
  void *rc;
  ck_rc(zke_discovery_wait(look, 1, zke_now(y) + 20), ZKE_OPERATIONTIMEOUT);
  ck_says("waited for 1 members of the service " PATH "; 0 are there");
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_there, look), 0);
  d = offer(z, 1);
  ck_assert_int_eq(pthread_join(thread, &rc), 0);
  ck_ok(*(int *)rc);
  ck_rc(zke_discovery_cancel(look), ZKE_IDLE);
  ck_rc(zke_discovery_wait(look, 2, zke_now(y) + 20), ZKE_OPERATIONTIMEOUT);
  zke_discovery_free(d);
  zke_discovery_free(look);
  ck_ok(zke_close(y));
  ck_ok(zke_close(z));
}

/* A group's directory is no service: nothing registers there, and nothing is
 * picked. */
TEST(other_kind) {
  zke *z = test_open(":memory:");
  zke_discovery *d = make(z, "web", NULL);
  zke_group *g;
  zke_instance *i;
  ck_ok(zke_group_new(z, PATH, NULL, &g));
  ck_ok(zke_group_join(g, "", 0, ZKE_FOREVER)); /* a group is no service */
  ck_rc(zke_discovery_register(d, "", "", 0, 0), ZKE_OTHERKIND);
  ck_rc(zke_discovery_start(d), ZKE_OTHERKIND);
  ck_rc(zke_discovery_pick(d, 0, &i), ZKE_OTHERKIND);
  zke_group_free(g);
  zke_discovery_free(d);
  ck_ok(zke_close(z));
}

/* P11: bad bases and names, and calls without an object, are refused; the root
 * is a base. */
TEST(bad_arguments) {
  zke *z = test_open(":memory:");
  zke_discovery_options o = {.size = 3};
  zke_discovery *d = (zke_discovery *)&o;
  zke_instance *i;
  zke_instance_list *list;
  zke_strings *names;
  ck_rc(zke_discovery_new(z, BASE, "web", &o, &d), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(d);
  static const char *const bad[][2] = {{NULL, "x"}, {BASE, NULL},
                                       {BASE, ""},  {BASE, "a/b"},
                                       {"x", "x"},  {"/a/", "x"}};
  for (size_t n = 0; n < sizeof bad / sizeof *bad; n++)
    ck_rc(zke_discovery_new(z, bad[n][0], bad[n][1], NULL, &d),
          ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_new(z, BASE, "web", NULL, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_new(NULL, BASE, "web", NULL, &d), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_register(NULL, "", "", 0, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_unregister(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_start(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_list(NULL, &list), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_wait(NULL, 1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_cancel(NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_pick(NULL, 0, &i), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_names(z, "x", &names), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_names(z, BASE, NULL), ZKE_BADARGUMENTS);
  ck_ok(zke_discovery_new(z, "/", "web", NULL, &d)); /* the root is a base */
  enlist(d, "1", "");
  ck_ok(zke_exists(z, "/web", NULL, NULL, NULL));
  ck_ok(zke_discovery_names(z, "/", &names));
  ck_assert_int_eq(names->count, 1);
  ck_assert_str_eq(names->data[0], "web");
  zke_free(names);
  ck_rc(zke_discovery_update(d, NULL, "", 0, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_update(d, "a\nb", "", 0, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_update(d, "a", NULL, 1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_update(d, "a", "", -1, 0), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_list(d, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_pick(d, 0, NULL), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_pick(d, 3, &i), ZKE_BADARGUMENTS);
  ck_rc(zke_discovery_pick(d, -1, &i), ZKE_BADARGUMENTS);
  zke_discovery_free(NULL);
  zke_discovery_free(d);
  ck_ok(zke_close(z));
}

/* ---- deaths, lost replies, faults, processes ---- */

/* The typical use: register, update, pick, unregister. */
static int use(zke *z) {
  heard h = {{0}, NULL};
  zke_discovery_options o = {.size = sizeof o, .listener = hear, .context = &h};
  zke_discovery *d = NULL;
  zke_instance *i = NULL;
  int rc = zke_discovery_new(z, BASE, "web", &o, &d);
  if (rc == ZKE_OK) rc = zke_discovery_register(d, "1", "x", 1, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_discovery_update(d, "2", "y", 1, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = zke_discovery_pick(d, ZKE_PICK_ROUND_ROBIN, &i);
  if (rc == ZKE_OK && strcmp(i->address, "2") != 0) rc = ZKE_SYSTEMERROR;
  zke_free(i);
  if (rc == ZKE_OK) rc = zke_discovery_unregister(d);
  zke_discovery_free(d);
  return rc;
}

/* The dead one's instance goes; others register and are found. */
static void check(zke *z, int rc) {
  (void)rc;
  until_empty(z, PATH);
  zke_discovery *d = offer(z, 5);
  ck_assert_int_eq(pick(d, ZKE_PICK_FIRST), 5);
  zke_discovery_free(d);
}

static const recipe_use uses[] = {{"discovery", NULL, use, check}};

RECIPE_TESTS(uses, 10, 0);

/* Two processes offer a service; one is killed; the clients go to the other. */
TEST(clients_go_to_the_process_that_is_left) {
  const char *db = test_path("db");
  pid_t pids[2];
  for (int i = 0; i < 2; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    zke *z;
    zke_discovery *d;
    int rc = zke_open(db, NULL, &z);
    if (rc == ZKE_OK) rc = zke_discovery_new(z, BASE, "web", NULL, &d);
    if (rc == ZKE_OK)
      rc = zke_discovery_register(d, i ? "1" : "0", "", 0, ZKE_FOREVER);
    while (rc == ZKE_OK) pause();
    _exit(1);
  }
  zke *z = test_open(db);
  zke_discovery *look = make(z, "web", NULL);
  ck_ok(zke_discovery_wait(look, 2, zke_now(z) + test_patience(10000)));
  ck_assert_int_eq(kill(pids[0], SIGKILL), 0);
  zke_instance_list *list = NULL;
  do {
    zke_free(list);
    zke_wait(z, zke_now(z) + 10000);
    ck_ok(zke_discovery_list(look, &list));
  } while (list->count == 2);
  zke_free(list);
  ck_assert_int_eq(pick(look, ZKE_PICK_RANDOM), 1);
  ck_assert_int_eq(kill(pids[1], SIGKILL), 0);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(waitpid(pids[i], NULL, 0), pids[i]);
  zke_discovery_free(look);
  ck_ok(zke_close(z));
}
