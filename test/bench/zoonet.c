/* zoonet.c - several services as one: the cost of their common order
 *
 * A client is near one ZooKeeper service, and near the observer of another,
 * whose leader is DELAY_MS away (test/ensemble/services.h).  It works on the
 * near service and through the observer in three ways, in turns:
 *
 *   never-sync  two handles with the servers' own reads: no common order
 *   composed    the same handles in zke_order()
 *   sync-all    a sync before every read, in the same packet
 *
 * First the example of doc/composition.md, many times: how often does the
 * reader see states that fit no order?  Then throughput: a client makes a burst
 * of operations on one service, and then chooses again.  The share is how often
 * it chooses the near one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "recipes/engine/compose.h"
#include "recipes/engine/zookeeper.h"
#include "test/ensemble/services.h"

enum {
  DELAY_MS = 5, /* each way */
  CLIENTS_MOST = 32,
  PASSES = 7,
  TRIES = 200,
  SESSION_MS = 60000
};

enum { NEVER_SYNC, COMPOSED, SYNC_ALL, WAYS, AS_PRINTED = WAYS, ALL_WAYS };
static const char *const way_names[ALL_WAYS] = {"never-sync", "composed",
                                                "sync-all", "as printed"};

enum { NEAR, FAR, SERVICES };

static services servers;

/* ---- handles ---- */

static zke *open_server(service_server which, bool synced) {
  char name[100], query[40];
  zke *z = NULL;
  snprintf(query, sizeof query, "?timeout=%d%s", SESSION_MS,
           synced ? "" : "&sync=0");
  services_name(&servers, which, query, name, sizeof name);
  must(zke_open(name, NULL, &z), "zke_open");
  return z;
}

static void open_way(int way, zke *z[SERVICES]) {
  z[NEAR] = open_server(SERVICES_NEAR, way == SYNC_ALL);
  z[FAR] = open_server(SERVICES_OBSERVER, way == SYNC_ALL);
  if (way == COMPOSED) must(zke_order(z, SERVICES), "zke_order");
}

static void close_way(zke *z[SERVICES]) {
  for (int i = 0; i < SERVICES; i++) must(zke_close(z[i]), "zke_close");
}

/* It may already exist. */
static void make_node(zke *z, const char *path) {
  int rc = zke_create(z, path, data, DATA_BYTES, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                      NULL, NULL);
  if (rc != ZKE_NODEEXISTS) must(rc, path);
}

static void set_number(zke *z, const char *path, int number) {
  char text[16];
  snprintf(text, sizeof text, "%d", number);
  must(zke_set(z, path, text, (int)strlen(text), -1, NULL), path);
}

static int get_number(zke *z, const char *path, zke_watch_fn fn,
                      void *context) {
  char *text;
  int len;
  must(zke_get(z, path, fn, context, &text, &len, NULL), path);
  int number = atoi(text);
  zke_free(text);
  return number;
}

/* ---- the example ----
 *
 * The writer sets "config" on the far service, by its leader, then "go" on the
 * near one.  The reader finds "go", or is told of it, and then reads "config".
 */

static void note_go(zke *z, int type, int state, const char *path,
                    void *context) {
  (void)z, (void)state, (void)path;
  if (type == ZKE_EVENT_CHANGED) *(bool *)context = true;
}

/* When the reader is told of the change its previous call was on the far
 * service: the published algorithm then sees no switch. */
static int read_config(int way, zke *z[SERVICES], bool told) {
  if (way == AS_PRINTED && !told) must(zke_sync(z[FAR], "/"), "zke_sync");
  return get_number(z[FAR], "/config", NULL, NULL);
}

/* Do the reader's results fit no order of the writes? */
static bool is_inconsistent(int way, zke *const writer[SERVICES],
                            zke *z[SERVICES], int number, bool told) {
  bool heard = false;
  if (told) {
    get_number(z[NEAR], "/go", note_go, &heard);
    get_number(z[FAR], "/config", NULL, NULL);
  }
  set_number(writer[FAR], "/config", number);
  set_number(writer[NEAR], "/go", number);
  while (told && !heard)
    must(zke_wait(z[NEAR], zke_now(z[NEAR]) + SESSION_MS), "zke_wait");
  while (!told && get_number(z[NEAR], "/go", NULL, NULL) != number) continue;
  bool wrong = read_config(way, z, told) != number;
  must(zke_sync(z[FAR], "/"), "zke_sync"); /* each try begins up to date */
  while (get_number(z[FAR], "/config", NULL, NULL) != number) continue;
  return wrong;
}

static void count_inconsistent(zke *const writer[SERVICES], bool told) {
  static int number;
  for (int way = 0; way < ALL_WAYS; way++) {
    zke *z[SERVICES];
    int wrong = 0, tries = times(TRIES, 5);
    open_way(way, z);
    for (int i = 0; i < tries; i++)
      wrong += is_inconsistent(way, writer, z, ++number, told);
    close_way(z);
    report_one(told ? "zoonet wrong, told by an event" : "zoonet wrong, polled",
               tries, way_names[way], "", wrong);
  }
}

/* ---- throughput ----
 *
 * A single client makes each burst in each way, one after another: the same
 * operations at the same moment.  Many clients would disturb each other like
 * this, so they have a block of time for each way.
 */

typedef struct load {
  int near_percent, read_percent, burst;
  int way; /* WAYS: all, in turns */
  int pass, block_ms;
} load;

typedef struct client {
  pthread_t thread;
  zke *z[WAYS][SERVICES];
  char path[16];
  unsigned dice;
  const load *what;
  int64_t ns[WAYS], count[WAYS]; /* of the last block */
} client;

static client clients[CLIENTS_MOST];

static bool falls(client *c, int percent) {
  return rand_r(&c->dice) % 100 < percent;
}

static void operate(client *c, zke *z, int read_percent) {
  char *bytes;
  int len;
  if (falls(c, read_percent)) {
    must(zke_get(z, c->path, NULL, NULL, &bytes, &len, NULL), "zke_get");
    zke_free(bytes);
  } else {
    must(zke_set(z, c->path, data, DATA_BYTES, -1, NULL), "zke_set");
  }
}

/* The burst that the dice choose, in one way. */
static void make_burst(client *c, int way) {
  const load *l = c->what;
  int64_t start = now_ns();
  zke *z = c->z[way][falls(c, l->near_percent) ? NEAR : FAR];
  for (int i = 0; i < l->burst; i++) operate(c, z, l->read_percent);
  c->ns[way] += now_ns() - start;
  c->count[way] += l->burst;
}

/* One client's block: its thread.  The dice begin alike in each way. */
static void *work(void *arg) {
  client *c = arg;
  const load *l = c->what;
  int64_t end = now_ns() + l->block_ms * INT64_C(1000000);
  c->dice = (unsigned)(l->pass * CLIENTS_MOST + (int)(c - clients) + 1);
  memset(c->ns, 0, sizeof c->ns);
  memset(c->count, 0, sizeof c->count);
  for (int burst = 0; now_ns() < end; burst++) {
    unsigned dice = c->dice;
    for (int turn = 0; turn < WAYS; turn++) {
      int way = in_turn(burst, turn, WAYS);
      if (l->way != WAYS && l->way != way) continue;
      c->dice = dice;
      make_burst(c, way);
    }
  }
  return NULL;
}

/* A block of so many clients; operations a second of all, by way. */
static void run_block(const load *l, int count, double rate[WAYS]) {
  for (int i = 0; i < count; i++) {
    clients[i].what = l;
    if (pthread_create(&clients[i].thread, NULL, work, &clients[i]) != 0)
      die("zoonet: no thread");
  }
  for (int i = 0; i < count; i++) {
    const client *c = &clients[i];
    pthread_join(c->thread, NULL);
    for (int way = 0; way < WAYS; way++)
      if (c->ns[way])
        rate[way] += (double)c->count[way] * 1e9 / (double)c->ns[way];
  }
}

/* All ways, side by side. */
static void run_pass(load l, int count, double rate[WAYS]) {
  l.way = WAYS;
  l.block_ms = times(1000, 50);
  if (count == 1) {
    run_block(&l, count, rate);
    return;
  }
  l.block_ms = times(400, 50);
  for (int turn = 0; turn < WAYS; turn++) {
    l.way = in_turn(l.pass, turn, WAYS);
    run_block(&l, count, rate);
  }
}

static void report_load(const load *l, int count, const char *what,
                        const char *unit, samples s[WAYS]) {
  char name[48];
  snprintf(name, sizeof name, "zoonet near %d reads %d clients %d%s",
           l->near_percent, l->read_percent, count, what);
  for (int way = 0; way < WAYS; way++) {
    report(name, l->burst, way_names[way], unit, &s[way], NULL, NULL);
    forget(&s[way]);
  }
}

/* Throughput in each way, and its ratio to never-sync in the same pass. */
static void compare(load l, int count) {
  samples s[WAYS] = {{0}}, ratio[WAYS] = {{0}};
  for (l.pass = 0; l.pass < times(PASSES, 1); l.pass++) {
    double rate[WAYS] = {0};
    run_pass(l, count, rate);
    for (int way = 0; way < WAYS; way++) {
      add(&s[way], rate[way]);
      add(&ratio[way], rate[way] / rate[NEVER_SYNC]);
    }
  }
  report_load(&l, count, "", "1/s", s);
  report_load(&l, count, ", ratio", "", ratio);
}

/* They reuse the nodes of previous clients. */
static void open_clients(int count) {
  zke *writer[SERVICES] = {open_server(SERVICES_NEAR, true),
                           open_server(SERVICES_LEADER, true)};
  for (int i = 0; i < count; i++) {
    client *c = &clients[i];
    snprintf(c->path, sizeof c->path, "/k%d", i);
    for (int j = 0; j < SERVICES; j++) make_node(writer[j], c->path);
    for (int way = 0; way < WAYS; way++) open_way(way, c->z[way]);
  }
  close_way(writer);
}

static void close_clients(int count) {
  for (int i = 0; i < count; i++)
    for (int way = 0; way < WAYS; way++) close_way(clients[i].z[way]);
}

/* So many clients, which are never idle for long: their sessions would end. */
static void measure_throughput(int count) {
  static const int near[] = {50, 80}, reads[] = {100, 90, 50};
  static const int bursts[] = {1, 25, 50};
  open_clients(count);
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 3; j++)
      for (int k = 0; k < 3; k++)
        compare((load){.near_percent = near[i],
                       .read_percent = reads[j],
                       .burst = bursts[k]},
                count);
  close_clients(count);
}

static void measure_example(void) {
  zke *writer[SERVICES] = {open_server(SERVICES_NEAR, true),
                           open_server(SERVICES_LEADER, true)};
  make_node(writer[FAR], "/config");
  make_node(writer[NEAR], "/go");
  count_inconsistent(writer, false);
  count_inconsistent(writer, true);
  close_way(writer);
}

void part_zoonet(void) {
  if (!getenv("BENCH_ZOOKEEPER")) return; /* it is not installed */
  must(zke_register_engine(&zke_zookeeper), "zke_register_engine");
  if (!services_start(&servers, "zookeeper", run.directory))
    die("zoonet: the servers do not start");
  services_delay(&servers, DELAY_MS);
  measure_example();
  measure_throughput(1);
  measure_throughput(CLIENTS_MOST);
  services_stop(&servers);
}
