/* order_ensemble.c - the common order of real services, checked
 *
 * Random programs: clients, each a thread, write, read and watch one register
 * on each of three services: a file, `zke serve`, and a ZooKeeper service
 * (services.h).  The first client is at the ZooKeeper service's leader; the
 * others are at its observer, which hears of changes some milliseconds later.
 * The results must fit one order of all steps (one_order.h).
 *
 *   never-sync  plain handles, with the servers' own reads: this must be
 *               caught, or this program sees nothing
 *   ordered     the same in zke_order(), and in every second program in
 *               zke_mount() below the file's: none may be wrong
 *
 *   PROGRAMS=n  how many of the second kind; 200
 *   SEED=n      printed; determines the steps of all programs, but not how they
 *               interleave
 *
 * Argument: a directory for files, if /dev/shm does not exist.  Exit status 1:
 * something was wrong.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "recipes/engine/compose.h"
#include "recipes/engine/zookeeper.h"
#include "test/ensemble/services.h"
#include "test/program.h"
#include "test/recipes/one_order.h"

enum { CLIENTS = 3, STEPS = 24, DELAY_MS = 5, MOST_PROGRAMS = 5000 };

/* A busy machine does not end a session of 60 s. */
#define SESSION "?timeout=60000"
enum { ON_FILE, ON_NEAR, ON_FAR, SERVICES };
enum { NEVER_SYNC, ORDERED, MOUNTED };

static const char *const mounts[SERVICES] = {"", "/near", "/far"};

static services servers;
static char file[500];
static zke *admin[SERVICES];

/* A register's watch, with the value at the time it was set. */
typedef struct watch {
  struct client *c;
  int service, value;
  bool armed;
} watch;

typedef struct client {
  pthread_t thread;
  int number;
  zke *z[SERVICES];
  char path[SERVICES][40];
  watch watches[SERVICES];
  unsigned dice;
  order_step steps[STEPS * 2]; /* an event and its read are two */
  int count;
} client;

static client clients[CLIENTS];
static pthread_barrier_t all_open;

static void must(int rc, const char *what) {
  if (rc == ZKE_OK) return;
  fprintf(stderr, "order_ensemble: %s: %s: %s\n", what, zke_error_name(rc),
          zke_errmsg());
  services_stop(&servers);
  exit(2);
}

static int roll(client *c, int sides) { return rand_r(&c->dice) % sides; }

static void add_step(client *c, int kind, int service, int value) {
  if (c->count == STEPS * 2) abort();
  c->steps[c->count++] = (order_step){kind, c->number, service, value};
}

/* ---- one client ---- */

static zke *open_far(int number, const char *query) {
  char name[64];
  zke *z = NULL;
  service_server which = number == 0 ? SERVICES_LEADER : SERVICES_OBSERVER;
  services_name(&servers, which, query, name, sizeof name);
  must(zke_open(name, NULL, &z), name);
  return z;
}

static zke *open_near(const char *query) {
  char name[64];
  zke *z = NULL;
  services_name(&servers, SERVICES_NEAR, query, name, sizeof name);
  must(zke_open(name, NULL, &z), name);
  return z;
}

static zke *open_file(void) {
  zke *z = NULL;
  must(zke_open(file, NULL, &z), file);
  return z;
}

/* If everything is mounted, one handle has all three services. */
static void open_client(client *c, int rule) {
  zke *own[SERVICES];
  own[ON_FILE] = open_file();
  own[ON_NEAR] = open_near(SESSION "&sync=0");
  own[ON_FAR] = open_far(c->number, SESSION "&sync=0");
  if (rule == ORDERED) must(zke_order(own, SERVICES), "zke_order");
  for (int i = 1; i < SERVICES && rule == MOUNTED; i++) {
    must(zke_mount(&own[0], mounts[i], own[i]), "zke_mount");
    own[i] = NULL;
  }
  for (int i = 0; i < SERVICES; i++) c->z[i] = own[i] ? own[i] : own[0];
}

static void close_client(client *c) {
  for (int i = 0; i < SERVICES; i++) {
    if (i > 0 && c->z[i] == c->z[0]) continue;
    must(zke_close(c->z[i]), "zke_close");
  }
}

/* An event reports the write after the one that was read. */
static void heard(zke *z, int type, int state, const char *path,
                  void *context) {
  watch *w = context;
  (void)z, (void)state, (void)path;
  if (type != ZKE_EVENT_CHANGED || !w->armed) return;
  w->armed = false;
  add_step(w->c, STEP_HEAR, w->service, w->value + 1);
}

static void do_write(client *c, int service) {
  zke_stat stat;
  must(zke_set(c->z[service], c->path[service], "", 0, -1, &stat), "zke_set");
  add_step(c, STEP_WRITE, service, stat.version);
}

static void do_read(client *c, int service) {
  watch *w = &c->watches[service];
  zke_stat stat;
  must(zke_get(c->z[service], c->path[service], w->armed ? NULL : heard, w,
               NULL, NULL, &stat),
       "zke_get");
  if (!w->armed) w->value = stat.version;
  w->armed = true;
  add_step(c, STEP_READ, service, stat.version);
}

/* Wait a moment for events of any service.  After an event read another
 * service, often that of the last call: an event is no call, but what follows
 * it must be as new. */
static void do_hear(client *c, int last) {
  int before = c->count, service = roll(c, SERVICES);
  int rc = zke_wait(c->z[service], zke_now(c->z[service]) + roll(c, 4));
  if (rc != ZKE_OPERATIONTIMEOUT) must(rc, "zke_wait");
  if (c->count > before) do_read(c, roll(c, 3) ? last : roll(c, SERVICES));
}

static void make_steps(client *c) {
  int service = roll(c, SERVICES);
  for (int i = 0; i < STEPS && c->count < STEPS * 2 - SERVICES - 1; i++) {
    int what = roll(c, 10);
    if (roll(c, 2)) service = roll(c, SERVICES);
    if (what < 3)
      do_write(c, service);
    else if (what < 8)
      do_read(c, service);
    else
      do_hear(c, service);
  }
}

/* ---- a program ---- */

static int program_rule;

static void *run_client(void *arg) {
  client *c = arg;
  open_client(c, program_rule);
  pthread_barrier_wait(&all_open);
  make_steps(c);
  close_client(c);
  return NULL;
}

static void make_registers(long program) {
  char path[30];
  snprintf(path, sizeof path, "/r%ld", program);
  for (int i = 0; i < SERVICES; i++)
    must(zke_create(admin[i], path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                    NULL),
         path);
}

static void begin_client(client *c, int number, unsigned dice, long program,
                         int rule) {
  *c = (client){.number = number, .dice = dice};
  for (int i = 0; i < SERVICES; i++) {
    snprintf(c->path[i], sizeof c->path[i], "%s/r%ld",
             rule == MOUNTED ? mounts[i] : "", program);
    c->watches[i] = (watch){.c = c, .service = i};
  }
}

static void show(const order_step *steps, int count) {
  static const char *const kinds[] = {"writes", "reads", "hears of"};
  static const char *const names[] = {"file", "near", "far"};
  for (int i = 0; i < count; i++)
    printf("  client %d %s %s %d\n", steps[i].client, kinds[steps[i].kind],
           names[steps[i].service], steps[i].value);
}

/* Run one program; false if its outcome fits no order, which is printed unless
 * it is expected. */
static bool run_program(int rule, unsigned *dice) {
  static long program;
  static order_step steps[ONE_ORDER_MOST];
  int count = 0;
  program++;
  program_rule = rule;
  make_registers(program);
  for (int i = 0; i < CLIENTS; i++) {
    client *c = &clients[i];
    begin_client(c, i, (unsigned)rand_r(dice), program, rule);
    if (pthread_create(&c->thread, NULL, run_client, c) != 0) abort();
  }
  for (int i = 0; i < CLIENTS; i++) {
    const client *c = &clients[i];
    pthread_join(c->thread, NULL);
    memcpy(steps + count, c->steps, (size_t)c->count * sizeof *steps);
    count += c->count;
  }
  bool fits = one_order_fits(steps, count);
  if (!fits && rule != NEVER_SYNC) show(steps, count);
  return fits;
}

static bool check_never_sync(unsigned *dice) {
  for (int i = 1; i <= MOST_PROGRAMS; i++) {
    if (run_program(NEVER_SYNC, dice)) continue;
    printf("never-sync: program %d is wrong, as it should be\n", i);
    return true;
  }
  printf("never-sync: NOT CAUGHT in %d programs\n", MOST_PROGRAMS);
  return false;
}

static bool check_ordered(unsigned *dice, long programs) {
  long wrong = 0;
  for (long i = 0; i < programs; i++)
    wrong += !run_program(i % 2 ? MOUNTED : ORDERED, dice);
  printf("ordered: %ld of %ld programs are wrong\n", wrong, programs);
  return wrong == 0;
}

/* ---- main ---- */

static void set_scene(const char *base) {
  must(zke_register_engine(&zke_zookeeper), "zke_register_engine");
  if (!services_start(&servers, "zke", base)) exit(2);
  services_delay(&servers, DELAY_MS);
  snprintf(file, sizeof file, "%s/file.db", servers.directory);
  admin[ON_FILE] = open_file();
  admin[ON_NEAR] = open_near(SESSION);
  admin[ON_FAR] = open_far(0, SESSION);
  for (int i = 1; i < SERVICES; i++)
    must(zke_create(admin[ON_FILE], mounts[i], "", 0, ZKE_OPEN_ACL,
                    ZKE_PERSISTENT, NULL, NULL),
         mounts[i]);
  pthread_barrier_init(&all_open, NULL, CLIENTS);
}

int main(int argc, char **argv) {
  long programs = program_setting("PROGRAMS", 200);
  unsigned seed = program_seed();
  set_scene(access("/dev/shm", W_OK) == 0 || argc < 2 ? "/dev/shm" : argv[1]);
  unsigned dice = seed;
  int good = check_never_sync(&dice);
  good += check_ordered(&dice, programs);
  for (int i = 0; i < SERVICES; i++) must(zke_close(admin[i]), "zke_close");
  services_stop(&servers);
  printf("%d passed, %d failed\n", good, 2 - good);
  return good < 2;
}
