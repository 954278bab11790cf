/* ensemble_torture.c - recipes on a server that fails, over a bad network
 *
 * Eight processes use a lock, an election, a queue and transactions.  On a
 * single ZooKeeper server each uses one of two proxies; on an ensemble each
 * uses a proxy before every server.  Meanwhile this program kills servers,
 * stops them for longer than sessions live, cuts, freezes and refuses
 * connections, loses requests and replies, and stops processes.  It checks
 * these promises:
 *
 *   fencing   the holder of the lock, or the leader, raises "/guarded/…" in one
 *             step with zke_lock_op() or zke_election_op(): no number is
 *             reached twice, its number and its version stay equal, no
 *             acknowledged step is lost, and no token older than one already
 *             seen there gets through.  An ensemble's version is reported,
 *             but not judged: a leader of ZooKeeper 3.8.0 that begins after a
 *             crash may give one a second time (doc/proofs.md)
 *   queue     no item is taken twice; an item is lost only if a take ended
 *             without an answer (recipe_history.h)
 *   two-phase each transaction has one outcome, according to its votes
 *
 *   KILLS=n   how many faults of all kinds; 200
 *   LOSSES=n  continue until so many requests and replies were lost: one in
 *             every few changes is, and other faults come now and then; 0
 *   SEED=n    printed; determines which fault comes when
 *   SERVER=zookeeper   instead of zke
 *   SERVERS=n          an ensemble of n ZooKeeper servers, up to 5: half of the
 *                      killed or stopped servers are its leader, and most of
 *                      the others continue meanwhile
 *
 * Argument: a directory for the server's files, if /dev/shm does not exist.
 * Exit status 1: something was wrong, and the files are kept.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/election.h"
#include "recipes/lock.h"
#include "recipes/queue.h"
#include "recipes/two_phase.h"
#include "recipes/engine/zookeeper.h"
#include "test/ensemble/proxy.h"
#include "test/program.h"
#include "test/torture/recipe_history.h"

enum {
  WORKERS = 8,
  SERVERS = 5, /* at most */
  PROXIES = 2, /* before a single server */
  SITES = 3,
  OPEN = 3, /* transactions at a time, about */
  SESSION_MS = 1500,
  WAIT_MS = 3000,    /* a worker's deadline */
  NUMBERS = 1000000, /* limit of the remembered raises */
  SETTLE_MS = 60000,
  QUEUE = 1, /* the recipes' numbers in the history */
  TWO_PHASE = 2
};

/* The two guarded numbers. */
enum { LOCK, ELECTION, GUARDED };
static const char *const guarded[GUARDED] = {"/guarded/lock",
                                             "/guarded/election"};

static struct shared {
  atomic_int stop, complaints;
  atomic_long tried[GUARDED], acknowledged[GUARDED]; /* raises */
  atomic_int reached[GUARDED][NUMBERS]; /* how often each number was reached */
  atomic_long sessions, taken, decided;
  long leaders; /* killed or stopped leaders */
} * shared;

static char directory[400], history_path[500];

static int history_of(void) {
  int fd = open(history_path, O_WRONLY | O_APPEND | O_CREAT, 0600);
  if (fd < 0) abort();
  return fd;
}

static bool complain(const char *text, int64_t number) {
  atomic_fetch_add(&shared->complaints, 1);
  printf("WRONG: %s (%lld)\n", text, (long long)number);
  fflush(stdout);
  return false;
}

/* ------------------------------------------------------------------------
 * A worker
 * --------------------------------------------------------------------- */

typedef struct worker {
  zke *z;
  int history; /* descriptor */
  int32_t slot, who;
  unsigned random;
  int64_t items; /* put so far, and transactions begun */
} worker;

static int chance(worker *w, int of) { return rand_r(&w->random) % of; }

static int64_t deadline(const worker *w) { return zke_now(w->z) + WAIT_MS; }

static void note(const worker *w, int recipe, int event, int64_t number,
                 int weight) {
  history_write(w->history, (history_record){.number = number,
                                             .who = w->who,
                                             .recipe = (int16_t)recipe,
                                             .weight = weight,
                                             .event = event});
}

/* From now on this is another worker: its unfinished call has no known
 * outcome. */
static void begin_anew(worker *w) {
  note(w, -1, HISTORY_DYING, 0, 0);
  w->who += WORKERS;
}

/* A result that a bad network may give any call. */
static bool may_be(int rc) {
  switch (rc) {
    case ZKE_OK:
    case ZKE_CONNECTIONLOSS:
    case ZKE_OPERATIONTIMEOUT:
    case ZKE_SESSIONEXPIRED:
    case ZKE_INVALIDSTATE:
    case ZKE_LOST:
    case ZKE_HELD:
      return true;
    default:
      return false;
  }
}

/* A call that may fail, but only by the network. */
static int expect(const char *what, int rc) {
  if (may_be(rc)) return rc;
  fprintf(stderr, "%s: %s\n", what, zke_errmsg());
  complain(what, rc);
  return rc;
}

/* Sometimes sleep, even for longer than the session lives: then others hold.
 */
static void doze(worker *w) {
  if (chance(w, 25) == 0) poll(NULL, 0, chance(w, 2 * SESSION_MS));
}

/* Raise a guarded number: its data is the number and the raiser's token.  The
 * guard alone decides whether this process still may. */
static void raise_number(worker *w, int which, zke_op *guard, int64_t token) {
  zke_op ops[2] = {*guard};
  char *data, text[100];
  long long number = 0, seen = 0;
  int len;
  if (zke_get(w->z, guarded[which], NULL, NULL, &data, &len, NULL) != ZKE_OK)
    return;
  if (sscanf(data, "%lld %lld", &number, &seen) != 2)
    complain("a guarded number is none", number);
  zke_free(data);
  doze(w);
  snprintf(text, sizeof text, "%lld %lld", number + 1, (long long)token);
  zke_op_set(&ops[1], guarded[which], text, (int)strlen(text), -1);
  atomic_fetch_add(&shared->tried[which], 1);
  int rc = zke_multi(w->z, ops, 2, NULL);
  if (rc != ZKE_OK) return; /* lost, or no longer the holder */
  atomic_fetch_add(&shared->acknowledged[which], 1);
  if (seen > token) complain("a stale holder got through", token);
  if (number < NUMBERS && atomic_fetch_add(&shared->reached[which][number], 1))
    complain("two held it at once, and reached a number", number);
}

static void do_lock(worker *w) {
  zke_lock *lock = NULL;
  zke_op guard;
  int rc = expect("lock_new", zke_lock_new(w->z, "/lock", NULL, &lock));
  if (rc != ZKE_OK) return;
  rc = expect("lock_acquire", zke_lock_acquire(lock, deadline(w)));
  int64_t token = zke_lock_token(lock);
  if (rc == ZKE_OK && zke_lock_op(lock, &guard) == ZKE_OK) {
    if (chance(w, 4) == 0) poll(NULL, 0, chance(w, 20));
    raise_number(w, LOCK, &guard, token);
    expect("lock_release", zke_lock_release(lock));
  }
  zke_lock_free(lock);
}

static void do_election(worker *w) {
  zke_election *e = NULL;
  zke_op guard;
  int rc =
      expect("election_new", zke_election_new(w->z, "/election", NULL, &e));
  if (rc != ZKE_OK) return;
  rc = expect("election_lead", zke_election_lead(e, deadline(w)));
  int64_t token = zke_election_token(e);
  if (rc == ZKE_OK && zke_election_op(e, &guard) == ZKE_OK) {
    raise_number(w, ELECTION, &guard, token);
    expect("election_resign", zke_election_resign(e));
  }
  zke_election_free(e);
}

static void put(worker *w, zke_queue *queue) {
  int64_t number = (int64_t)w->who << 32 | ++w->items;
  note(w, QUEUE, HISTORY_PUTTING, number, 0);
  int rc = zke_queue_put(queue, &number, sizeof number, NULL, deadline(w));
  if (expect("queue_put", rc) == ZKE_OK) note(w, QUEUE, HISTORY_PUT, number, 0);
}

static int64_t number_of(const zke_queue_item *item) {
  int64_t number = -1;
  if (item->len == sizeof number) memcpy(&number, item->data, sizeof number);
  return number;
}

/* A take that ends without an answer may have taken an item. */
static void take(worker *w, zke_queue *queue) {
  zke_queue_item *item = NULL;
  int rc = zke_queue_take(queue, zke_now(w->z) + chance(w, 100), &item);
  if (rc == ZKE_OK) {
    note(w, QUEUE, HISTORY_GOT, number_of(item), 0);
    atomic_fetch_add(&shared->taken, 1);
  } else {
    expect("queue_take", rc);
    begin_anew(w);
  }
  zke_free(item);
}

static void do_queue(worker *w) {
  zke_queue *queue = NULL;
  int rc = expect("queue_new", zke_queue_new(w->z, "/queue", NULL, &queue));
  if (rc == ZKE_OK && chance(w, 2))
    put(w, queue);
  else if (rc == ZKE_OK)
    take(w, queue);
  zke_queue_free(queue);
}

/* ---- transactions: the name says how each site votes ---- */

static const char *const sites[SITES] = {"ann", "bob", "cat"};

static int vote_of(int64_t number, int site) {
  uint64_t mixed = (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15);
  return (mixed >> (40 + 4 * site)) % 8 ? ZKE_TWO_PHASE_COMMIT
                                        : ZKE_TWO_PHASE_ABORT;
}

/* Wait for the outcome until the deadline, and acknowledge it. */
static void conclude(worker *w, zke_two_phase *t, int64_t number, int ms) {
  int decision = 0;
  int rc = zke_two_phase_wait(t, zke_now(w->z) + ms, &decision);
  if (expect("two_phase_wait", rc) != ZKE_OK) return;
  note(w, TWO_PHASE, HISTORY_DECIDED, number, decision == ZKE_TWO_PHASE_COMMIT);
  atomic_fetch_add(&shared->decided, 1);
  expect("two_phase_ack", zke_two_phase_ack(t));
}

static void coordinate(worker *w) {
  zke_two_phase *t = NULL;
  char name[40];
  int64_t number = (int64_t)w->who << 32 | ++w->items;
  snprintf(name, sizeof name, "t%lld", (long long)number);
  int rc = zke_two_phase_begin(w->z, "/two_phase", name, NULL, 0, sites, SITES,
                               NULL, &t);
  if (expect("two_phase_begin", rc) == ZKE_OK)
    conclude(w, t, number, chance(w, 50));
  zke_two_phase_free(t);
}

/* Vote for a site that has not voted, and see the outcome. */
static void take_part(worker *w, const char *name, int site, int ms) {
  zke_two_phase *t = NULL;
  int64_t number = strtoll(name + 1, NULL, 10);
  int vote = vote_of(number, site);
  int rc = zke_two_phase_open(w->z, "/two_phase", name, sites[site], NULL, &t);
  if (rc != ZKE_NONODE) expect("two_phase_open", rc);
  if (t) {
    note(w, TWO_PHASE, HISTORY_VOTING, number, vote == ZKE_TWO_PHASE_COMMIT);
    if (expect("two_phase_vote", zke_two_phase_vote(t, vote)) == ZKE_OK)
      conclude(w, t, number, ms);
  }
  zke_two_phase_free(t);
}

static zke_strings *pending(worker *w, const char *site) {
  zke_strings *names = NULL;
  expect("two_phase_pending",
         zke_two_phase_pending(w->z, "/two_phase", site, NULL, NULL, &names));
  return names;
}

/* Act for a site, alone: under the site's lock, in the same session.
 */
static void serve(worker *w, int site, int ms) {
  char path[40];
  zke_lock *lock = NULL;
  snprintf(path, sizeof path, "/sites/%s", sites[site]);
  if (expect("site's lock", zke_lock_new(w->z, path, NULL, &lock)) == ZKE_OK &&
      zke_lock_acquire(lock, zke_now(w->z) + ms) == ZKE_OK) {
    zke_strings *names = pending(w, sites[site]);
    for (int i = 0; names && i < names->count; i++)
      take_part(w, names->data[i], site, ms);
    zke_free(names);
  }
  zke_lock_free(lock);
}

static void do_two_phase(worker *w) {
  zke_strings *names = chance(w, 4) ? NULL : pending(w, NULL);
  if (names && names->count < OPEN)
    coordinate(w);
  else
    serve(w, chance(w, SITES), 1 + chance(w, 50));
  zke_free(names);
}

/* ---- its life ---- */

/* hosts: "127.0.0.1:1,127.0.0.1:2" */
static int open_session(const char *hosts, int session_ms, int wait_ms,
                        zke **z_out) {
  char name[300];
  zke_options o = ZKE_INIT(zke_options);
  o.busy_timeout_ms = wait_ms;
  snprintf(name, sizeof name, "zk://%s?timeout=%d", hosts, session_ms);
  return zke_open(name, &o, z_out);
}

/* Work with one session until it ends. */
static void live(worker *w) {
  static void (*const rounds[])(worker *) = {do_lock, do_election, do_queue,
                                             do_queue, do_two_phase};
  atomic_fetch_add(&shared->sessions, 1);
  while (!atomic_load(&shared->stop)) {
    int state = zke_state(w->z);
    if (state != ZKE_STATE_CONNECTED && state != ZKE_STATE_CONNECTING) break;
    rounds[chance(w, 5)](w);
  }
  zke_close(w->z);
  w->z = NULL;
}

static pid_t start_worker(int slot, const char *hosts, unsigned seed) {
  pid_t pid = program_fork();
  if (pid != 0) return pid;
  worker w = {.history = history_of(),
              .slot = slot,
              .who = slot + 1,
              .random = seed * 2654435761u + (unsigned)slot};
  while (!atomic_load(&shared->stop)) {
    if (open_session(hosts, SESSION_MS, WAIT_MS, &w.z) == ZKE_OK)
      live(&w);
    else
      poll(NULL, 0, 20);
  }
  _exit(0);
}

/* ------------------------------------------------------------------------
 * The scene
 * --------------------------------------------------------------------- */

/* A server, and what it needs to start again. */
typedef struct torture_server {
  pid_t pid;
  int port;
  char peer[60], directory[450];
} torture_server;

static struct scene {
  const char *kind;
  unsigned random;
  int servers, proxies, begun; /* begun: servers, ever */
  torture_server server[SERVERS];
  pid_t worker[WORKERS];
  proxy way[SERVERS > PROXIES ? SERVERS : PROXIES];
} scene;

static int among(int of) { return rand_r(&scene.random) % of; }

enum { LOWEST_PORT = 10000 };

/* The first port that the system gives to those who ask for any. */
static int lowest_given(void) {
  int low = 0;
  FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");
  if (f && fscanf(f, "%d", &low) != 1) low = 0;
  if (f) fclose(f);
  return low > LOWEST_PORT + 1000 ? low : 32768;
}

static bool is_free(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)port),
                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool bound = bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
  close(fd);
  return bound;
}

/* A port that is free now, and that the system gives to nobody while its server
 * is down: the server needs it again and again. */
static int free_port(void) {
  static int next = -1;
  int count = lowest_given() - LOWEST_PORT;
  if (next < 0) next = (int)(getpid() * 37L % count);
  for (int i = 0; i < count; i++) {
    next = (next + 1) % count;
    if (is_free(LOWEST_PORT + next)) return LOWEST_PORT + next;
  }
  abort();
}

/* Become a server by the script; a server of an ensemble is given its number
 * and peers. */
static _Noreturn void become_server(int i) {
  const torture_server *s = &scene.server[i];
  const char *args[8 + SERVERS] = {"sh", "test/ensemble/server.sh", scene.kind,
                                   s->directory};
  char port[20], number[20], log[500];
  int count = 4;
  snprintf(port, sizeof port, "%d", s->port);
  snprintf(number, sizeof number, "%d", i + 1);
  snprintf(log, sizeof log, "%s/log", s->directory);
  args[count++] = port;
  if (scene.servers > 1) args[count++] = number;
  for (int k = 0; scene.servers > 1 && k < scene.servers; k++)
    args[count++] = scene.server[k].peer;
  int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, 1);
  dup2(fd, 2);
  execv("/bin/sh", (char *const *)(uintptr_t)args);
  _exit(127);
}

static void start_server(int i) {
  scene.begun++;
  scene.server[i].pid = program_fork();
  if (scene.server[i].pid == 0) become_server(i);
}

/* Does this server report that it leads the ensemble? */
static bool leads(int i) {
  char text[2000];
  size_t len = 0;
  ssize_t n = 1;
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)scene.server[i].port),
                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct timeval soon = {.tv_sec = 1};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
  if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
      send(fd, "srvr", 4, MSG_NOSIGNAL) == 4) {
    while (n > 0 && len < sizeof text - 1) {
      n = recv(fd, text + len, sizeof text - 1 - len, 0);
      if (n > 0) len += (size_t)n;
    }
  }
  close(fd);
  text[len] = '\0';
  return strstr(text, "Mode: leader") != NULL;
}

/* A server: of an ensemble half the time the leader, if it has one. */
static int some_server(void) {
  int any = among(scene.servers);
  if (scene.servers == 1 || among(2)) return any;
  for (int i = 0; i < scene.servers; i++) {
    if (!leads(i)) continue;
    shared->leaders++;
    return i;
  }
  return any;
}

/* Longer than a session lives, about as long, or a moment. */
static int outage_ms(void) {
  int n = among(10);
  if (n == 0) return 2 * SESSION_MS;
  return n < 3 ? among(SESSION_MS) : among(200);
}

/* Stop a process, or the server, for a while. */
static void stop_for_a_while(pid_t pid) {
  kill(pid, SIGSTOP);
  poll(NULL, 0, outage_ms());
  kill(pid, SIGCONT);
}

/* One fault, of any kind. */
static void do_harm(void) {
  proxy *p = &scene.way[among(scene.proxies)];
  int n = among(100), i = n < 17 ? some_server() : 0;
  if (n < 12) {
    program_kill(scene.server[i].pid);
    poll(NULL, 0, outage_ms());
    start_server(i);
  } else if (n < 17) {
    stop_for_a_while(scene.server[i].pid);
  } else if (n < 30) {
    stop_for_a_while(scene.worker[among(WORKERS)]);
  } else if (n < 55) {
    proxy_cut(p);
  } else if (n < 60) {
    proxy_refuse(p, true);
    proxy_cut(p);
    poll(NULL, 0, outage_ms());
    proxy_refuse(p, false);
  } else if (n < 65) {
    proxy_freeze(p, true);
    poll(NULL, 0, outage_ms());
    proxy_freeze(p, false);
  } else if (n < 70) {
    proxy_delay(p, among(30), among(30));
  } else {
    proxy_lose(p, PROXY_BEFORE + among(2), among(5));
  }
}

/* How many requests and replies were lost so far. */
static long lost_so_far(void) {
  long lost = 0;
  for (int i = 0; i < scene.proxies; i++) lost += proxy_lost(&scene.way[i]);
  return lost;
}

static bool is_well(void) { return atomic_load(&shared->complaints) == 0; }

/* Do `faults` faults, with pauses in which an ensemble can elect a leader. */
static void do_harms(long faults) {
  for (; faults > 0 && is_well(); faults--) {
    poll(NULL, 0, among(scene.servers > 1 ? 1500 : 150));
    do_harm();
  }
}

/* Lose requests and replies of every connection all the time, and do another
 * fault after every few hundred losses.  Returns the number of these faults. */
static long lose_many(long losses) {
  long faults = 0, next = 0;
  for (long lost = 0; lost < losses && is_well(); lost = lost_so_far()) {
    for (int i = 0; i < scene.proxies; i++)
      proxy_lose(&scene.way[i], PROXY_BEFORE + among(2), among(4));
    poll(NULL, 0, 2);
    if (lost < next) continue;
    do_harm();
    faults++;
    next = lost + 300;
  }
  return faults;
}

/* ---- the end ---- */

static void calm_down(void) {
  for (int i = 0; i < scene.proxies; i++) {
    proxy_lose(&scene.way[i], PROXY_NEVER, 0);
    proxy_delay(&scene.way[i], 0, 0);
  }
}

/* Wait until the workers end. */
static void settle(void) {
  int64_t end = program_ms() + SETTLE_MS;
  atomic_store(&shared->stop, 1);
  for (int i = 0; i < WORKERS; i++) {
    int status = 0;
    if (!program_await(scene.worker[i], end, &status)) {
      complain("a worker does not end", i);
      program_kill(scene.worker[i]);
    }
    if (status != 0) complain("a worker ended by itself", status);
  }
}

/* The servers, without proxies. */
static const char *direct_hosts(void) {
  static char hosts[250];
  hosts[0] = '\0';
  for (int i = 0; i < scene.servers; i++)
    snprintf(hosts + strlen(hosts), 40, "%s127.0.0.1:%d", i ? "," : "",
             scene.server[i].port);
  return hosts;
}

/* A session of this process on servers with no other work; it survives on the
 * slowest machine. */
static zke *open_directly(void) {
  zke *z = NULL;
  int64_t end = program_ms() + SETTLE_MS;
  while (open_session(direct_hosts(), SETTLE_MS, SETTLE_MS, &z) != ZKE_OK) {
    if (program_ms() > end) {
      fprintf(stderr, "the server does not answer: %s\n", zke_errmsg());
      exit(2);
    }
    poll(NULL, 0, 50);
  }
  return z;
}

static void must(int rc, const char *what) {
  if (rc == ZKE_OK) return;
  fprintf(stderr, "%s: %s\n", what, zke_errmsg());
  exit(2);
}

static void make_tree(void) {
  zke *z = open_directly();
  must(zke_create(z, "/guarded", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL), "/");
  for (int i = 0; i < GUARDED; i++)
    must(zke_create(z, guarded[i], "0 0", 3, ZKE_OPEN_ACL, 0, NULL, NULL),
         guarded[i]);
  must(zke_close(z), "close");
}

static void judge_numbers(zke *z) {
  for (int i = 0; i < GUARDED; i++) {
    char *data;
    int len;
    zke_stat stat;
    must(zke_get(z, guarded[i], NULL, NULL, &data, &len, &stat), guarded[i]);
    long value = atol(data);
    if (value != stat.version && scene.servers == 1)
      complain("two held it at once", value);
    else if (value != stat.version)
      printf("%s: %ld raises, version %d\n", guarded[i], value, stat.version);
    if (value < atomic_load(&shared->acknowledged[i]))
      complain("an acknowledged step is lost", value);
    if (value > atomic_load(&shared->tried[i]))
      complain("a step was made twice", value);
    zke_free(data);
  }
}

/* Take the rest of the queue, and end the transactions. */
static void finish_work(worker *w) {
  zke_queue *queue = NULL;
  zke_queue_item *item;
  must(zke_queue_new(w->z, "/queue", NULL, &queue), "queue_new");
  while (zke_queue_take(queue, zke_now(w->z) + 300, &item) == ZKE_OK) {
    note(w, QUEUE, HISTORY_LEFT, number_of(item), 0);
    zke_free(item);
  }
  zke_queue_free(queue);
  for (int round = 0; round < 2; round++) {
    for (int site = 0; site < SITES; site++) serve(w, site, 2 * SESSION_MS);
  }
}

static bool check_outcomes(const history *h) {
  for (int i = 0; i < h->count; i++) {
    const history_record *r = &h->at[i];
    bool all = true;
    if (r->recipe != TWO_PHASE || r->event != HISTORY_DECIDED) continue;
    for (int site = 0; site < SITES; site++)
      all &= vote_of(r->number, site) == ZKE_TWO_PHASE_COMMIT;
    if (all != (r->weight != 0))
      return complain("an outcome against the votes", r->number);
  }
  return true;
}

static void judge_history(void) {
  history h;
  if (!history_read(history_path, &h)) complain("no history", 0);
  history_case queue = {.h = &h, .recipe = QUEUE};
  history_case two_phase = {.h = &h, .recipe = TWO_PHASE};
  if (!history_queue(&queue, false)) complain(queue.problem, 0);
  if (!history_decisions(&two_phase, SITES)) complain(two_phase.problem, 0);
  check_outcomes(&h);
  history_free(&h);
}

static void judge(void) {
  worker w = {.history = history_of(), .who = 1000000};
  w.z = open_directly();
  judge_numbers(w.z);
  finish_work(&w);
  must(zke_close(w.z), "close");
  judge_history();
}

/* The servers: their kind, directories and ports. */
static void set_servers(void) {
  const char *kind = getenv("SERVER");
  long servers = program_setting("SERVERS", 1);
  scene.kind = kind && kind[0] ? kind : "zke";
  if (servers > 1) scene.kind = "zookeeper";
  scene.servers = servers < 1 || servers > SERVERS ? 1 : (int)servers;
  for (int i = 0; i < scene.servers; i++) {
    torture_server *s = &scene.server[i];
    s->port = free_port();
    snprintf(s->peer, sizeof s->peer, "127.0.0.1:%d:%d", free_port(),
             free_port());
    snprintf(s->directory, sizeof s->directory, "%s/server%d", directory, i);
    if (mkdir(s->directory, 0700) != 0) abort();
  }
  for (int i = 0; i < scene.servers; i++) start_server(i);
}

/* A worker's servers: on an ensemble the proxies before all of it; otherwise
 * the worker's own proxy before the single server. */
static const char *worker_hosts(int slot) {
  static char hosts[250];
  hosts[0] = '\0';
  for (int i = 0; i < scene.proxies; i++) {
    if (scene.servers == 1 && i != slot % scene.proxies) continue;
    snprintf(hosts + strlen(hosts), 40, "%s127.0.0.1:%d", *hosts ? "," : "",
             scene.way[i].port);
  }
  return hosts;
}

/* The directory, the servers, the tree, the proxies and the workers. */
static void set_scene(const char *disk, unsigned seed) {
  program_directory(directory, sizeof directory, "ensemble-torture", disk,
                    true);
  snprintf(history_path, sizeof history_path, "%s/history", directory);
  scene.random = seed;
  set_servers();
  scene.proxies = scene.servers > 1 ? scene.servers : PROXIES;
  must(zke_register_engine(&zke_zookeeper), "register");
  make_tree();
  for (int i = 0; i < scene.proxies; i++) {
    const torture_server *s = &scene.server[i % scene.servers];
    if (!proxy_start(&scene.way[i], s->port)) abort();
  }
  fflush(stdout);
  for (int i = 0; i < WORKERS; i++)
    scene.worker[i] = start_worker(i, worker_hosts(i), seed);
}

static void clean_up(bool good) {
  for (int i = 0; i < scene.servers; i++) program_kill(scene.server[i].pid);
  for (int i = 0; i < scene.proxies; i++) proxy_end(&scene.way[i]);
  program_clean_up(directory, good);
}

int main(int argc, char **argv) {
  unsigned seed = program_seed();
  long faults = program_setting("KILLS", 200);
  shared = program_share(sizeof *shared);
  set_scene(argc > 1 ? argv[1] : "/tmp", seed);
  do_harms(faults);
  faults += lose_many(program_setting("LOSSES", 0));
  calm_down();
  settle();
  judge();
  bool good = is_well();
  printf(
      "ensemble_torture: %d servers begun, %ld times the leader was killed or "
      "stopped, %ld faults, %ld requests or replies lost, %ld sessions; %ld "
      "raises under the lock, %ld under the election, %ld items "
      "taken, %ld outcomes seen\n%d passed, %d failed\n",
      scene.begun, shared->leaders, faults, lost_so_far(),
      (long)atomic_load(&shared->sessions),
      (long)atomic_load(&shared->acknowledged[LOCK]),
      (long)atomic_load(&shared->acknowledged[ELECTION]),
      (long)atomic_load(&shared->taken), (long)atomic_load(&shared->decided),
      good, !good);
  clean_up(good);
  return good ? 0 : 1;
}
