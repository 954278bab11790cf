/* bench_recipes.c - the recipes beside the same steps in hand-written SQL
 *
 * In one process: a lock taken and released that nobody else wants, an item
 * put into a queue, an item taken out.  Between processes: a lock that goes
 * from hand to hand, and from a holder that is killed to the next in line.
 *
 * The raw side makes the row changes and reads that the job needs:
 *
 *   lock      append an ephemeral; list the children; delete it
 *   put       append a durable item and write its directory, which is what
 *             takers watch
 *   take      list the items, list the claims, read the first, delete it
 *   hand-over delete, leaving the watcher an event, and one byte to its FIFO;
 *             the watcher: its events, the children, its state "held"
 *
 * What the recipes do beyond that, to survive lost replies for example, is
 * their own expense.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK "/lock"
#define ITEMS "/queue/entries"
#define CLAIMS "/queue/taken"
#define ENTRY "_c_00000000-0000-0000-8000-%012x-lock-"

enum { WAITING = 16, RING = WAITING + 1, NAMES_BYTES = 8192 };

/* As long as the line that a lock's znode holds. */
static const char queued[] = "waiting 0123456789abcdef\n";
static const char held[] = "held 0123456789abcdef\n";

/* ---- in one process ---- */

static raw_key lock_key, items_key, claims_key;

static void set_keys(void) {
  key_set(&lock_key, "/", "lock");
  key_set(&items_key, "/queue", "entries");
  key_set(&claims_key, "/queue", "taken");
}

void recipes_prepare(pair *p) {
  raw_key queue;
  set_keys();
  key_set(&queue, "/", "queue");
  raw_create_container(p->r, &lock_key);
  raw_create(p->r, &queue, 1, false, "", 0);
  raw_create(p->r, &items_key, 1, false, "", 0);
  raw_create(p->r, &claims_key, 1, false, "", 0);
  must(zke_lock_new(p->z, LOCK, NULL, &p->lock), "zke_lock_new");
  must(zke_queue_new(p->z, "/queue", NULL, &p->queue), "zke_queue_new");
}

void recipes_finish(pair *p) {
  zke_lock_free(p->lock);
  zke_queue_free(p->queue);
}

static void pick_none(pair *p, raw_key *key) { (void)p, (void)key; }

static void engine_lock(pair *p, const raw_key *key) {
  (void)key;
  must(zke_lock_acquire(p->lock, ZKE_FOREVER), "zke_lock_acquire");
  must(zke_lock_release(p->lock), "zke_lock_release");
}

/* A name's number, which is at its end. */
static int64_t number_of(const char *name) {
  return strtoll(name + strlen(name) - 10, NULL, 10);
}

/* The entry right before one's own; false: one is the first. */
static bool find_before(raw *r, const raw_key *own, raw_key *before_out) {
  char names[NAMES_BYTES];
  const char *name = names, *found = NULL;
  raw_stat stat;
  int64_t most = -1, limit = number_of(own->name);
  for (int i = raw_children(r, &lock_key, names, &stat); i > 0; i--) {
    int64_t number = number_of(name);
    if (number < limit && number > most) {
      most = number;
      found = name;
    }
    name += strlen(name) + 1;
  }
  if (found) key_set(before_out, LOCK, found);
  return found != NULL;
}

/* Append an entry to the line, with a name like the recipe's. */
static void raw_queue_up(raw *r, raw_key *own) {
  static unsigned counter;
  char prefix[64];
  snprintf(prefix, sizeof prefix, ENTRY, ++counter);
  raw_append(r, &lock_key, prefix, true, false, queued, sizeof queued - 1, own);
}

static void raw_side_lock(pair *p, const raw_key *key) {
  raw_key own, before;
  (void)key;
  raw_queue_up(p->r, &own);
  if (find_before(p->r, &own, &before)) die("%s is before us", before.path);
  raw_delete(p->r, &own);
}

static void engine_put(pair *p, const raw_key *key) {
  (void)key;
  must(zke_queue_put(p->queue, data, DATA_BYTES, NULL, ZKE_FOREVER),
       "zke_queue_put");
}

static void raw_side_put(pair *p, const raw_key *key) {
  raw_key own;
  (void)key;
  raw_append(p->r, &items_key, "entry-100-", false, true, data, DATA_BYTES,
             &own);
}

static void engine_take(pair *p, const raw_key *key) {
  zke_queue_item *item;
  (void)key;
  must(zke_queue_take(p->queue, ZKE_FOREVER, &item), "zke_queue_take");
  if (item->len != DATA_BYTES) die("%s has %d bytes", item->name, item->len);
  zke_free(item);
}

static void raw_side_take(pair *p, const raw_key *key) {
  char names[NAMES_BYTES], claims[NAMES_BYTES], bytes[DATA_BYTES];
  raw_stat stat;
  raw_key item;
  (void)key;
  if (raw_children(p->r, &items_key, names, &stat) == 0) die("nothing to take");
  if (raw_children(p->r, &claims_key, claims, &stat) != 0) die("claimed");
  key_set(&item, ITEMS, names);
  if (raw_get(p->r, &item, bytes, &stat) != DATA_BYTES) die("%s", item.path);
  raw_delete(p->r, &item);
}

const comparison recipe_comparisons[] = {
    {.name = "lock + unlock",
     .target = 1.4,
     .batch = 50,
     .step = 1,
     .pick = pick_none,
     .timed = {engine_lock, raw_side_lock}},
    {.name = "queue put",
     .target = 1.5,
     .batch = 4,
     .step = 1,
     .durable = true,
     .pick = pick_none,
     .timed = {engine_put, raw_side_put},
     .after = {engine_take, raw_side_take}},
    {.name = "queue take",
     .target = 1.5,
     .batch = 4,
     .step = 1,
     .durable = true,
     .pick = pick_none,
     .before = {engine_put, raw_side_put},
     .timed = {engine_take, raw_side_take}},
};
const int recipe_comparison_count =
    sizeof recipe_comparisons / sizeof recipe_comparisons[0];

/* ---- contenders, each a process ----
 *
 * Told to go it says 0 and joins the line; holding the lock, it says when that
 * was and how many wake-ups it has sent.  Told again it releases, and says when
 * it began to, and the same number. */

static zke_os os;
static int64_t wakeups; /* bytes written to FIFOs */

static int64_t counting_write(void *context, int fd, const void *bytes,
                              size_t size) {
  zke_file file;
  int64_t n = os.write(context, fd, bytes, size);
  if (n > 0 && os.fstat(context, fd, &file) == 0 && file.type == ZKE_FILE_FIFO)
    wakeups += n;
  return n;
}

static void say_when(int64_t at) {
  say(at);
  say(wakeups);
  wakeups = 0;
}

void role_contend(const char *file, const char *path) {
  zke *z;
  zke_lock *lock;
  zke_os_default(&os);
  zke_os counting = os;
  zke_options o = {.size = sizeof o, .os = &counting};
  counting.write = counting_write;
  must(zke_open(file, &o, &z), "zke_open");
  must(zke_lock_new(z, path, NULL, &lock), "zke_lock_new");
  for (;;) {
    await_go();
    say(0);
    must(zke_lock_acquire(lock, ZKE_FOREVER), "zke_lock_acquire");
    say_when(now_ns());
    await_go();
    int64_t start = now_ns();
    must(zke_lock_release(lock), "zke_lock_release");
    say_when(start);
  }
}

static void fifo_name(char *name, size_t size, const char *file,
                      int64_t session) {
  snprintf(name, size, "%s-%" PRId64, file, session);
}

/* A byte for another session; the descriptor is kept. */
static void raw_wake(const char *file, int64_t session) {
  static int known[64];
  char name[3200];
  if (session < 1 || session >= 64) die("session %d", (int)session);
  if (!known[session]) {
    fifo_name(name, sizeof name, file, session);
    known[session] = open(name, O_RDWR | O_CLOEXEC);
  }
  if (write(known[session], "", 1) != 1) die("cannot wake: %d", errno);
  wakeups++;
}

/* Wait until nobody is before one's own entry. */
static void raw_acquire(raw *r, int fifo, raw_key *own) {
  raw_key before;
  bool waited = false;
  char byte;
  raw_queue_up(r, own);
  while (find_before(r, own, &before)) {
    raw_watch(r, &before, RAW_WATCH_END);
    if (read(fifo, &byte, 1) != 1) die("not woken");
    raw_events(r);
    waited = true;
  }
  if (waited) raw_set(r, own, held, sizeof held - 1);
}

void role_raw_contend(const char *file, const char *path) {
  char name[3200];
  raw_key own;
  (void)path;
  set_keys();
  raw *r = raw_open(file);
  fifo_name(name, sizeof name, file, raw_session(r));
  int fifo = mkfifo(name, 0600) == 0 ? open(name, O_RDWR | O_CLOEXEC) : -1;
  if (fifo < 0) die("no FIFO: %s", strerror(errno));
  for (;;) {
    await_go();
    say(0);
    raw_acquire(r, fifo, &own);
    say_when(now_ns());
    await_go();
    int64_t start = now_ns();
    raw_delete(r, &own);
    if (raw_woken(r)) raw_wake(file, raw_woken(r));
    say_when(start);
  }
}

/* ---- a ring of them: each waits behind the one before it ---- */

typedef struct ring {
  char file[3100];
  const char *role;
  zke *z; /* ours, or r */
  raw *r;
  int holder;
  peer p[RING];
} ring;

static int ring_members(ring *g) {
  char bytes[DATA_BYTES];
  if (g->z) {
    zke_stat stat;
    int rc = zke_exists(g->z, LOCK, NULL, NULL, &stat);
    if (rc == ZKE_NONODE) return 0;
    must(rc, "zke_exists");
    return stat.numChildren;
  }
  raw_stat stat;
  raw_get(g->r, &lock_key, bytes, &stat);
  return (int)stat.nchild;
}

static void ring_await(ring *g, int members) {
  while (ring_members(g) != members) sleep_us(PAUSE_US / 10);
}

/* What a contender says after its turn has come, or gone. */
typedef struct turn {
  int64_t at, wakeups;
} turn;

static turn ring_turn(ring *g, int i) {
  turn t = {.at = peer_word(&g->p[i])};
  t.wakeups = peer_word(&g->p[i]);
  return t;
}

static void ring_add(ring *g, int i) {
  g->p[i] = peer_start(g->role, run.cpu[i % 2], g->file, LOCK);
  peer_go(&g->p[i]);
}

static void ring_start(ring *g, bool raw_side) {
  *g = (ring){.role = raw_side ? "raw-contend" : "contend"};
  file_in(g->file, sizeof g->file, raw_side ? "raw-ring.db" : "ring.db");
  if (raw_side) {
    g->r = raw_open(g->file);
    raw_create_container(g->r, &lock_key);
  } else {
    must(zke_open(g->file, NULL, &g->z), "zke_open");
  }
  for (int i = 0; i < RING; i++) {
    ring_add(g, i);
    ring_await(g, i + 1);
  }
  peer_word(&g->p[0]);
  ring_turn(g, 0);
}

static void ring_end(ring *g) {
  for (int i = 0; i < RING; i++) peer_kill(&g->p[i]);
  if (g->z) must(zke_close(g->z), "zke_close");
  if (g->r) raw_close(g->r);
}

/* What is counted while the lock goes round. */
typedef struct passes {
  samples took;               /* release to acquired, us */
  int64_t releasing, holding; /* wake-ups sent */
} passes;

/* From the last to the first both are on one CPU: no sample.  All others are
 * asleep. */
static double ring_pass(ring *g, passes *p, bool counts) {
  int holder = g->holder, next = (holder + 1) % RING;
  ring_await(g, RING);
  sleep_us(PAUSE_US);
  peer_go(&g->p[holder]);
  if (peer_word(&g->p[next]) != 0) die("a contender is out of step");
  turn held_by = ring_turn(g, next), released = ring_turn(g, holder);
  double took = (double)(held_by.at - released.at) / 1000;
  peer_go(&g->p[holder]);
  g->holder = next;
  if (!counts || next == 0) return took;
  add(&p->took, took);
  p->releasing += released.wakeups;
  p->holding += held_by.wakeups;
  return took;
}

/* The holder is killed; another process comes in its place. */
static double ring_kill(ring *g) {
  int next = (g->holder + 1) % RING;
  ring_await(g, RING);
  double took = death(&g->p[next], &g->p[g->holder]);
  peer_word(&g->p[next]); /* the wake-ups it sent */
  ring_add(g, g->holder);
  g->holder = next;
  return took;
}

static double per_release, per_taking; /* for the other table */

void recipes_compare_hand_over(void) {
  static ring g[2];
  passes p[2] = {{.releasing = 0}, {.releasing = 0}};
  samples ratio = {0};
  int rounds = run.quick ? 10 : 400;
  set_keys();
  ring_start(&g[0], false);
  ring_start(&g[1], true);
  for (int round = -RING; round < rounds; round++) {
    double took[2];
    for (int i = 0; i < 2; i++) {
      int which = (round + RING + i) % 2;
      took[which] = ring_pass(&g[which], &p[which], round >= 0);
    }
    if (round >= 0 && g[0].holder != 0) add(&ratio, took[0] / took[1]);
  }
  ring_end(&g[0]);
  ring_end(&g[1]);
  per_release = (double)p[0].releasing / ratio.count;
  per_taking = (double)p[0].holding / ratio.count;
  report_ratio("hand-over, 16 waiting", &p[0].took, &p[1].took, &ratio, 1.5);
  forget(&p[0].took);
  forget(&p[1].took);
  forget(&ratio);
}

/* ---- the second table ---- */

static void time_deaths(void) {
  static ring g;
  char fifo[3100];
  samples bare = {0}, s = {0};
  file_in(fifo, sizeof fifo, "fifo");
  if (mkfifo(fifo, 0600)) die("mkfifo: %s", strerror(errno));
  peer reader = peer_start("read", run.cpu[1], fifo, "");
  ring_start(&g, false);
  for (int i = run.quick ? 5 : 100; i > 0; i--) {
    peer holder = peer_start("hold", run.cpu[0], fifo, "");
    peer_word(&holder);
    add(&bare, death(&reader, &holder));
    add(&s, ring_kill(&g));
  }
  ring_end(&g);
  peer_kill(&reader);
  unlink(fifo);
  report_time("bare: kill -9 to the hang-up of a FIFO, again", "us", &bare, 0);
  report_time("kill -9 of a lock's holder to the next one's", "us", &s, 2000);
  forget(&bare);
  forget(&s);
}

static void time_one(const char *name, double value, double target) {
  samples s = {0};
  add(&s, value);
  report_time(name, "each", &s, target);
  forget(&s);
}

void recipes_time(void) {
  time_one("wake-ups sent by a release, 16 waiting", per_release, 1);
  time_one("the same by who takes over (to itself)", per_taking, 0);
  time_deaths();
}
