/* served.c - servers of ZooKeeper's protocol, side by side
 *
 *   requests  how many a second, by frames that are made here: all servers have
 *             the same client, which costs little.  One, eight and 64
 *             connections, each with one request at a time or with 64 ahead.
 *             Changes of persistent nodes are on the disk before they are
 *             answered
 *
 * The part "connections" is only `zke serve`, on a tree in memory: the time
 * from its start to its first reply, and the cost of idle connections.
 *
 * The servers are `zke serve` and ZooKeeper.  BENCH_SERVED and BENCH_ZOOKEEPER
 * are host:port; peers.sh starts the servers.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "recipes/engine/jute.h"

enum {
  CLIENTS_MOST = 64,
  AHEAD = 64,
  PASSES = 15,
  BLOCK_MS = 100,
  STARTS = 21,
  IN_BYTES = 1 << 16
};

#define NODE "/bench-served"

/* ---- one connection ---- */

typedef struct client {
  int fd;
  int on_the_way;    /* unanswered requests */
  char in[IN_BYTES]; /* a part of the received bytes, in_len */
  size_t in_len;
  char set[64]; /* the node that it sets */
} client;

typedef enum kind { GET, CREATE_EPHEMERAL, CREATE, SET, KINDS } kind;

static const char *const kind_names[KINDS] = {"served get", "served ephemeral",
                                              "served create", "served set"};

static void send_all(client *c, zke_jute_writer *w) {
  if (w->failed) die("served: no memory");
  for (size_t at = 0; at < w->len;) {
    ssize_t n = send(c->fd, w->data + at, w->len - at, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) die("served: send: %s", strerror(errno));
    if (n > 0) at += (size_t)n;
  }
  zke_jute_writer_free(w);
}

/* Write one request of that kind. */
static void put_request(const client *c, kind k, zke_jute_writer *w) {
  static const int types[] = {ZKE_JUTE_GET_DATA, ZKE_JUTE_CREATE,
                              ZKE_JUTE_CREATE, ZKE_JUTE_SET_DATA};
  zke_jute_bytes bytes = {DATA_BYTES, data};
  zke_jute_request_header head = {1, types[k]};
  size_t at = zke_jute_begin(w);
  zke_jute_write(w, &zke_jute_of_request_header, &head);
  if (k == GET)
    zke_jute_write(w, &zke_jute_of_read_request,
                   &(zke_jute_read_request){NODE, 0});
  else if (k == SET)
    zke_jute_write(w, &zke_jute_of_set_data_request,
                   &(zke_jute_set_data_request){c->set, bytes, -1});
  else
    zke_jute_write(
        w, &zke_jute_of_create_request,
        &(zke_jute_create_request){NODE "/n-", bytes, zke_open_acl,
                                   k == CREATE ? ZKE_PERSISTENT_SEQUENTIAL
                                               : ZKE_EPHEMERAL_SEQUENTIAL});
  zke_jute_end(w, at);
}

/* An answer with an error is no valid figure. */
static void check_answer(char *frame, size_t len) {
  zke_jute_reader r = {.at = frame, .end = frame + len};
  zke_jute_reply_header head = {0};
  if (!zke_jute_read(&r, &zke_jute_of_reply_header, &head) || head.err)
    die("served: a request was refused: %d", (int)head.err);
}

/* Take the answers from the received bytes; how many. */
static int take_answers(client *c, bool greeting) {
  size_t at = 0;
  int count = 0;
  while (c->in_len - at >= 4) {
    size_t len = (size_t)zke_jute_length(c->in + at);
    if (len + 4 > sizeof c->in) die("served: a frame of %zu bytes", len);
    if (c->in_len - at - 4 < len) break;
    if (!greeting) check_answer(c->in + at + 4, len);
    at += 4 + len;
    count++;
  }
  memmove(c->in, c->in + at, c->in_len - at);
  c->in_len -= at;
  c->on_the_way -= count;
  return count;
}

/* Read what is there, or wait for it; the number of answers in it. */
static int receive(client *c, bool greeting) {
  ssize_t n = recv(c->fd, c->in + c->in_len, sizeof c->in - c->in_len, 0);
  if (n <= 0) die("served: the server has hung up");
  c->in_len += (size_t)n;
  return take_answers(c, greeting);
}

static void wait_for_all(client *c, bool greeting) {
  while (c->on_the_way) receive(c, greeting);
}

/* Send a frame, with a request's header or a record, or both, and wait for its
 * answer; if it is a greeting the answer has no header. */
static void ask(client *c, const zke_jute_request_header *head,
                const zke_jute_record *record, const void *r, bool greeting) {
  zke_jute_writer w = {0};
  size_t at = zke_jute_begin(&w);
  if (head) zke_jute_write(&w, &zke_jute_of_request_header, head);
  if (record) zke_jute_write(&w, record, r);
  zke_jute_end(&w, at);
  send_all(c, &w);
  c->on_the_way = 1;
  wait_for_all(c, greeting);
}

/* Make a node, unless it exists. */
static void need_node(client *c, const char *path, int mode) {
  zke_jute_request_header head = {1, ZKE_JUTE_CREATE};
  zke_jute_create_request r = {path, {DATA_BYTES, data}, zke_open_acl, mode};
  ask(c, &head, &zke_jute_of_create_request, &r,
      true); /* whatever the answer */
}

/* Connect to host:port, and begin a session. */
static client *client_begin(const char *address, int number) {
  static const char none[16];
  client *c = allocate(sizeof *c);
  struct sockaddr_in to = {.sin_family = AF_INET};
  const char *colon = strchr(address, ':');
  char host[64];
  int yes = 1;
  if (!colon) die("served: %s is not host:port", address);
  snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
  to.sin_port = htons((uint16_t)atoi(colon + 1));
  inet_pton(AF_INET, host, &to.sin_addr);
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
    die("served: %s: %s", address, strerror(errno));
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  zke_jute_connect_request greeting = {0, 0, 30000, 0, {sizeof none, none}};
  ask(c, NULL, &zke_jute_of_connect_request, &greeting, true);
  snprintf(c->set, sizeof c->set, NODE "/set-%d", number);
  need_node(c, NODE, ZKE_PERSISTENT);
  need_node(c, c->set, ZKE_PERSISTENT);
  return c;
}

/* End its session, and so its ephemeral nodes. */
static void client_end(client *c) {
  ask(c, &(zke_jute_request_header){1, ZKE_JUTE_CLOSE}, NULL, NULL, false);
  close(c->fd);
  free(c);
}

/* ---- all connections ---- */

/* Keep `ahead` requests under way. */
static void fill_up(client *c, kind k, int ahead) {
  zke_jute_writer w = {0};
  for (; c->on_the_way < ahead; c->on_the_way++) put_request(c, k, &w);
  if (w.len) send_all(c, &w);
}

/* Connections to a server, with poll()'s array. */
typedef struct crowd {
  int count;
  client *c[CLIENTS_MOST];
  struct pollfd p[CLIENTS_MOST];
} crowd;

static void crowd_begin(crowd *w, const char *address, int clients) {
  w->count = clients;
  for (int i = 0; i < clients; i++) {
    w->c[i] = client_begin(address, i);
    w->p[i] = (struct pollfd){.fd = w->c[i]->fd, .events = POLLIN};
  }
}

static void crowd_end(crowd *w) {
  for (int i = 0; i < w->count; i++) client_end(w->c[i]);
}

/* Requests a second: send for some time, and wait until the last answer: thus a
 * server that answers many together loses none at the block's end. */
static double rate(crowd *w, kind k, int ahead) {
  int64_t count = 0, start = now_ns();
  int64_t end = start + BLOCK_MS * INT64_C(1000000);
  for (int i = 0; i < w->count; i++) fill_up(w->c[i], k, ahead);
  while (now_ns() < end) {
    if (poll(w->p, (nfds_t)w->count, -1) < 0 && errno != EINTR) die("poll");
    for (int i = 0; i < w->count; i++) {
      if (!w->p[i].revents) continue;
      count += receive(w->c[i], false);
      fill_up(w->c[i], k, ahead);
    }
  }
  for (int i = 0; i < w->count; i++) {
    count += w->c[i]->on_the_way;
    wait_for_all(w->c[i], false);
  }
  return (double)count * 1e9 / (double)(now_ns() - start);
}

/* ---- the servers ---- */

enum { SERVERS = 2 };
static const char *const names[SERVERS] = {"served", "zookeeper"};
static const char *address[SERVERS]; /* NULL: not available */

static void report_requests(kind k, int clients, int ahead, int i,
                            samples *rates) {
  char name[64];
  snprintf(name, sizeof name, "%s%s", kind_names[k],
           ahead > 1 ? ", 64 ahead" : "");
  report(name, clients, names[i], "1/s", rates, NULL, NULL);
}

/* The servers alternate in short blocks, since a machine's speed varies. */
static void compare(kind k, int clients, int ahead) {
  static crowd w[SERVERS];
  samples rates[SERVERS] = {{0}};
  for (int i = 0; i < SERVERS; i++)
    if (address[i]) crowd_begin(&w[i], address[i], clients);
  for (int pass = 0; pass < times(PASSES, 1); pass++) {
    for (int turn = 0; turn < SERVERS; turn++) {
      int i = in_turn(pass, turn, SERVERS);
      if (address[i]) add(&rates[i], rate(&w[i], k, ahead));
    }
  }
  for (int i = 0; i < SERVERS; i++) {
    if (!address[i]) continue;
    report_requests(k, clients, ahead, i, &rates[i]);
    forget(&rates[i]);
    crowd_end(&w[i]);
  }
}

static void compare_requests(void) {
  static const int clients[] = {1, 8, 64};
  for (kind k = 0; k < KINDS; k++) {
    for (int i = 0; i < 3; i++) {
      compare(k, clients[i], 1);
      compare(k, clients[i], AHEAD);
    }
  }
}

/* ---- start ---- */

/* Start our own server, with a tree in memory; its address. */
static worker start_server(char *address_out, size_t size) {
  const char *program = getenv("BENCH_ZKE");
  const char *argv[] = {program ? program : "build/zke",
                        ":memory:",
                        "serve",
                        "--port",
                        "0",
                        "--print-port",
                        "--connections",
                        "0",
                        NULL};
  char line[32] = "";
  worker w = worker_run((char **)(uintptr_t)argv);
  for (size_t len = 0; !strchr(line, '\n'); len++)
    if (len == sizeof line - 1 || read(w.out, line + len, 1) != 1)
      die("served: %s has not begun", argv[0]);
  snprintf(address_out, size, "127.0.0.1:%d", (int)strtol(line, NULL, 10));
  return w;
}

/* The time from the command until a client has a session and the answers to its
 * first requests, two creates. */
static void measure_start(void) {
  char where[32];
  samples s = {0};
  for (int pass = 0; pass < times(STARTS, 1); pass++) {
    int64_t start = now_ns();
    worker w = start_server(where, sizeof where);
    client *c = client_begin(where, 0);
    add(&s, (double)(now_ns() - start) / 1e6);
    client_end(c);
    worker_kill(&w);
  }
  report("start to first reply", 0, names[0], "ms", &s, NULL, NULL);
  forget(&s);
}

/* ---- idle connections ---- */

/* A connection with only a session; its descriptor. */
static int begin_idle(const char *where) {
  client *c = client_begin(where, 0);
  int fd = c->fd;
  free(c);
  return fd;
}

/* Each connection sends a ping, and takes its answer. */
static void ping_all(const int *fds, int count) {
  zke_jute_request_header head = {ZKE_JUTE_XID_PING, ZKE_JUTE_PING};
  for (int i = 0; i < count; i++)
    ask(&(client){.fd = fds[i]}, &head, NULL, NULL, false);
}

/* A server's memory without files, KiB. */
static double memory_of(const worker *w) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/status", (long)w->pid);
  return strtod(proc_value(path, "RssAnon"), NULL);
}

/* The cost of a connection that only pings, every ten seconds as with the usual
 * timeout of 30 seconds: the server's memory and processor time. */
static void measure_idle(void) {
  enum { MANY = 10000, FEW = 100, SECONDS = 20, BETWEEN_S = 10 };
  static int fds[MANY];
  int count = times(MANY, FEW);
  char where[32];
  worker w = start_server(where, sizeof where);
  close(begin_idle(where)); /* the first one needs more */
  double before = memory_of(&w);
  for (int i = 0; i < count; i++) fds[i] = begin_idle(where);
  ping_all(fds, count);
  report_one("idle connection", count, names[0], "KiB",
             (memory_of(&w) - before) / count);
  int64_t start = now_ns();
  double cpu = worker_cpu_ns(&w);
  do {
    sleep_us(times(BETWEEN_S, 1) * INT64_C(1000000));
    ping_all(fds, count);
  } while (now_ns() - start < times(SECONDS, 1) * INT64_C(1000000000));
  report_one("idle connections, CPU", count, names[0], "%",
             (worker_cpu_ns(&w) - cpu) * 100 / (double)(now_ns() - start));
  worker_kill(&w);
  for (int i = 0; i < count; i++) close(fds[i]);
}

void part_connections(void) {
  measure_start();
  measure_idle();
}

void part_served(void) {
  address[0] = getenv("BENCH_SERVED");
  address[1] = getenv("BENCH_ZOOKEEPER");
  if (address[0]) compare_requests();
}
