/* etcd.c - an etcd server through its gateway for HTTP and JSON
 *
 * BENCH_ETCD=port names the server; test/bench/peers.sh starts one.  etcd has
 * no C client: this uses one connection, with one write and usually one read
 * for each operation.  The gateway translates to gRPC inside the server, which
 * a Go client does by itself; this is part of the figures.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
  LEASE_S = 3600,
  LOCK_LEASE_S = 60, /* as etcd's own clients */
  REFRESH_S = 20,
  TXN_MOST = 100,     /* the server takes 128 operations */
  SETTLE_US = 200000, /* it checks new watches every 100 ms */
  CODED = 4 * ((DATA_BYTES > 256 ? DATA_BYTES : 256) / 3 + 2)
};

/* An HTTP connection, with the bytes read from it. */
typedef struct http {
  int fd;
  char *at;
  size_t size, room;
} http;

typedef struct connection {
  http http;
  http watch; /* another stream */
  char place[64];
  char lease[32];
  int64_t refreshed; /* the lease, ns */
  char own[400];     /* the lock's key, coded */
  char value[CODED]; /* data, coded */
  char *request;
  size_t room;
} connection;

static const char *etcd_absent(void) {
  return getenv("BENCH_ETCD") ? NULL : "no server (make bench-peers)";
}

static void etcd_describe(char *out, size_t size) {
  const char *version = getenv("BENCH_ETCD_VERSION");
  snprintf(out, size, "server %s by its HTTP gateway, which adds to each call",
           version ? version : "unknown");
}

/* ---- HTTP, as far as needed ---- */

static int dial(void) {
  struct sockaddr_in to = {
      .sin_family = AF_INET,
      .sin_port = htons((uint16_t)atoi(getenv("BENCH_ETCD"))),
      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) {
    die("etcd: %s", strerror(errno));
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

static void hang_up(http *h) {
  close(h->fd);
  free(h->at);
  *h = (http){.fd = -1};
}

/* Read more bytes after the present ones, and add a NUL. */
static void more(http *h) {
  if (h->room - h->size < 4096) {
    h->room = 2 * h->room + 16384;
    h->at = realloc(h->at, h->room);
    if (!h->at) die("out of memory");
  }
  ssize_t n = read(h->fd, h->at + h->size, h->room - h->size - 1);
  if (n <= 0) die("etcd: the connection has ended");
  h->size += (size_t)n;
  h->at[h->size] = '\0';
}

/* The end of the line that begins at an offset, without its CR LF. */
static size_t line_end(http *h, size_t from) {
  for (;;) {
    char *end = h->size > from ? strstr(h->at + from, "\r\n") : NULL;
    if (end) return (size_t)(end - h->at);
    more(h);
  }
}

/* The header; returns the offset of the body. */
static size_t header(http *h, bool *chunked_out, size_t *length_out) {
  size_t from = 0, end;
  *chunked_out = false;
  *length_out = 0;
  while ((end = line_end(h, from)) != from) {
    const char *line = h->at + from;
    if (from == 0 && strncmp(line + 8, " 200", 4) != 0) {
      die("etcd: %.200s", line);
    }
    if (!strncasecmp(line, "transfer-encoding: chunked", 26))
      *chunked_out = true;
    if (!strncasecmp(line, "content-length:", 15))
      *length_out = strtoul(line + 15, NULL, 10);
    from = end + 2;
  }
  return from + 2;
}

/* A chunk; returns the offset of its end, 0 for the last one. */
static size_t chunk(http *h, size_t from, size_t *begin_out) {
  size_t end = line_end(h, from), size = strtoul(h->at + from, NULL, 16);
  *begin_out = end + 2;
  while (h->size < end + 2 + size + 2) more(h);
  return size ? end + 2 + size + 2 : 0;
}

/* A whole answer; returns its body, without chunk headers. */
static const char *answer(http *h) {
  bool chunked;
  size_t length, begin, at = header(h, &chunked, &length), body = at;
  if (chunked) {
    while ((at = chunk(h, at, &begin)) != 0) {
    }
  } else {
    while (h->size < body + length) more(h);
  }
  return h->at + body;
}

static void post(connection *c, http *h, const char *path, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));

static void post(connection *c, http *h, const char *path, const char *format,
                 ...) {
  enum { HEADER = 200 };
  va_list ap;
  va_start(ap, format);
  int length = vsnprintf(c->request + HEADER, c->room - HEADER, format, ap);
  va_end(ap);
  if ((size_t)length >= c->room - HEADER) die("etcd: too large a request");
  char head[HEADER];
  int size = snprintf(head, sizeof head,
                      "POST %s HTTP/1.1\r\nHost: localhost\r\n"
                      "Content-Length: %d\r\n\r\n",
                      path, length);
  char *from = memcpy(c->request + HEADER - size, head, (size_t)size);
  h->size = 0;
  for (int sent = 0; sent < size + length;) {
    ssize_t n = write(h->fd, from + sent, (size_t)(size + length - sent));
    if (n <= 0) die("etcd: %s", strerror(errno));
    sent += (int)n;
  }
}

/* ---- JSON ---- */

static const char *coded(char out[static CODED], const char *bytes,
                         size_t size) {
  static const char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *to = out;
  for (size_t i = 0; i < size; i += 3) {
    unsigned word = 0;
    for (size_t k = 0; k < 3; k++) {
      word = word << 8 | (i + k < size ? (unsigned char)bytes[i + k] : 0);
    }
    for (size_t k = 0; k < 4; k++) {
      *to++ = i + k > size ? '=' : digits[word >> (18 - 6 * k) & 63];
    }
  }
  *to = '\0';
  return out;
}

static const char *coded_key(const connection *c, const char *path,
                             char out[static CODED]) {
  char key[200];
  int size = snprintf(key, sizeof key, "%.40s%.140s", c->place, path);
  return coded(out, key, (size_t)size);
}

/* The value of the first member with that name, a string. */
static void member(const char *body, const char *name, char *out, size_t size) {
  char wanted[32];
  snprintf(wanted, sizeof wanted, "\"%s\":\"", name);
  const char *found = strstr(body, wanted);
  if (!found) die("etcd: no %s in %.200s", name, body);
  found += strlen(wanted);
  snprintf(out, size, "%.*s", (int)strcspn(found, "\""), found);
}

/* ---- connecting ---- */

static void *etcd_enter(const char *place, purpose why) {
  connection *c = allocate(sizeof *c);
  snprintf(c->place, sizeof c->place, "%.60s", place);
  c->room = TXN_MOST * (3 * CODED);
  c->request = allocate(c->room);
  c->http.fd = dial();
  c->watch.fd = -1;
  coded(c->value, data, DATA_BYTES);
  post(c, &c->http, "/v3/lease/grant", "{\"TTL\":%d}",
       why == FOR_LOCKING ? LOCK_LEASE_S : LEASE_S);
  member(answer(&c->http), "ID", c->lease, sizeof c->lease);
  c->refreshed = now_ns();
  return c;
}

static void etcd_leave(void *self) {
  connection *c = self;
  post(c, &c->http, "/v3/lease/revoke", "{\"ID\":%s}", c->lease);
  answer(&c->http);
  hang_up(&c->http);
  if (c->watch.fd >= 0) hang_up(&c->watch);
  free(c->request);
  free(c);
}

/* ---- keys ---- */

static void do_get(void *self, const raw_key *key, int count) {
  connection *c = self;
  char name[CODED];
  (void)count;
  post(c, &c->http, "/v3/kv/range", "{\"key\":\"%s\"}",
       coded_key(c, key->path, name));
  if (!strstr(answer(&c->http), "\"value\"")) die("etcd: no %s", key->path);
}

static void put(connection *c, const raw_key *key, const char *lease) {
  char name[CODED];
  post(c, &c->http, "/v3/kv/put",
       "{\"key\":\"%s\",\"value\":\"%s\",\"lease\":%s}",
       coded_key(c, key->path, name), c->value, lease);
  answer(&c->http);
}

static void do_set(void *self, const raw_key *key, int count) {
  (void)count;
  put(self, key, "0");
}

static void do_create(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  put(c, key, c->lease);
}

static void do_delete(void *self, const raw_key *key, int count) {
  connection *c = self;
  char name[CODED];
  (void)count;
  post(c, &c->http, "/v3/kv/deleterange", "{\"key\":\"%s\"}",
       coded_key(c, key->path, name));
  answer(&c->http);
}

static void fill_some(connection *c, const raw_key *key, int count) {
  size_t room = (size_t)count * 3 * CODED, size = 0;
  char *list = allocate(room), name[CODED];
  for (int i = 0; i < count; i++) {
    size += (size_t)snprintf(
        list + size, room - size,
        "%s{\"requestPut\":{\"key\":\"%s\",\"value\":\"%s\"}}", i ? "," : "",
        coded_key(c, key[i].path, name), c->value);
  }
  post(c, &c->http, "/v3/kv/txn", "{\"success\":[%s]}", list);
  answer(&c->http);
  free(list);
}

static void do_fill(void *self, const raw_key *key, int count) {
  for (int done = 0; done < count; done += TXN_MOST) {
    int left = count - done;
    fill_some(self, key + done, left < TXN_MOST ? left : TXN_MOST);
  }
}

/* Keys that begin with the path and a slash: '0' follows it. */
static void do_children(void *self, const raw_key *key, int count) {
  connection *c = self;
  char from[CODED], to[CODED], path[200];
  (void)count;
  snprintf(path, sizeof path, "%s/", key->path);
  coded_key(c, path, from);
  snprintf(path, sizeof path, "%s0", key->path);
  coded_key(c, path, to);
  post(c, &c->http, "/v3/kv/range",
       "{\"key\":\"%s\",\"range_end\":\"%s\",\"keys_only\":true}", from, to);
  if (!strstr(answer(&c->http), "\"key\"")) die("etcd: no %s", key->path);
}

/* ---- watches: one stream each ---- */

static void do_watch(void *self, const raw_key *key, int count) {
  connection *c = self;
  char name[CODED];
  bool chunked;
  size_t length, begin;
  (void)count;
  if (c->watch.fd >= 0) hang_up(&c->watch);
  c->watch = (http){.fd = dial()};
  post(c, &c->watch, "/v3/watch", "{\"create_request\":{\"key\":\"%s\"}}",
       coded_key(c, key->path, name));
  size_t end = chunk(&c->watch, header(&c->watch, &chunked, &length), &begin);
  c->watch.size -= end; /* it has been created; events follow */
  memmove(c->watch.at, c->watch.at + end, c->watch.size + 1);
}

static void do_await(void *self, const raw_key *key, int count) {
  connection *c = self;
  size_t begin;
  (void)key, (void)count;
  chunk(&c->watch, 0, &begin);
  hang_up(&c->watch);
}

/* ---- lock ---- */

static void refresh(connection *c) {
  if (now_ns() - c->refreshed < REFRESH_S * INT64_C(1000000000)) return;
  post(c, &c->http, "/v3/lease/keepalive", "{\"ID\":%s}", c->lease);
  answer(&c->http);
  c->refreshed = now_ns();
}

static void do_lock(void *self, const raw_key *key, int count) {
  connection *c = self;
  char name[CODED];
  (void)key, (void)count;
  refresh(c);
  post(c, &c->http, "/v3/lock/lock", "{\"name\":\"%s\",\"lease\":%s}",
       coded_key(c, "/lock", name), c->lease);
  member(answer(&c->http), "key", c->own, sizeof c->own);
}

static void do_unlock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  post(c, &c->http, "/v3/lock/unlock", "{\"key\":\"%s\"}", c->own);
  answer(&c->http);
}

static void do_open(void *self, const raw_key *key, int count) {
  (void)key, (void)count;
  (void)self;
  etcd_leave(etcd_enter("open", FOR_WORK));
}

const subject subject_etcd = {
    .name = "etcd",
    .promise =
        "other hosts; every change is synced, leased keys too; keeps old "
        "revisions; a dead client's keys go when its lease ends",
    .absent = etcd_absent,
    .version = etcd_describe,
    .open = etcd_enter,
    .close = etcd_leave,
    .lock_pause_us = SETTLE_US,
    .patience_s = LOCK_LEASE_S,
    .act = {[ACT_GET] = do_get,
            [ACT_SET] = do_set,
            [ACT_CREATE] = do_create,
            [ACT_PERSIST] = do_set,
            [ACT_DELETE] = do_delete,
            [ACT_FILL] = do_fill,
            [ACT_CHILDREN] = do_children,
            [ACT_WATCH] = do_watch,
            [ACT_AWAIT] = do_await,
            [ACT_LOCK] = do_lock,
            [ACT_UNLOCK] = do_unlock,
            [ACT_OPEN] = do_open}};
