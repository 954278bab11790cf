/* echo.c - the floor of part_served: a server that answers and does no work
 *
 * One thread and one epoll, as `zke serve`.  Each frame is answered with fixed
 * bytes, as many as a real answer has.  As many bytes as a round's changes of
 * persistent nodes have are written to a file at once, and synced, before their
 * answers are sent.  So this is what sockets, and the disk, leave to any server
 * of one thread with this load on this machine.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "recipes/jute.h"

enum {
  READ_BYTES = 1 << 16,
  EVENTS = 256,
  LOG_BYTES = 1 << 22, /* written over and over: of a round at most */
  STAT_BYTES = 68
};

typedef struct peer {
  int fd;
  bool greeted;
  char *in;
  size_t in_len;
  zke_jute_writer out;
} peer;

typedef struct echo {
  int epoll, listener, log;
  size_t to_sync; /* bytes of the round's changes that are to be on the disk */
} echo;

static char filler[LOG_BYTES];

/* ---- frames ---- */

/* Answers with so many bytes behind the reply's header. */
static void put_answer(peer *p, int xid, size_t size) {
  zke_jute_writer record = {.data = filler, .len = size};
  zke_jute_reply_header head = {xid, 1, 0};
  size_t at = zke_jute_begin(&p->out);
  zke_jute_write(&p->out, &zke_jute_of_reply_header, &head);
  zke_jute_append(&p->out, &record);
  zke_jute_end(&p->out, at);
}

static void put_connected(peer *p) {
  static const char password[16];
  zke_jute_connect_response a = {0, 30000, 1, {sizeof password, password}};
  size_t at = zke_jute_begin(&p->out);
  zke_jute_write(&p->out, &zke_jute_of_connect_response, &a);
  zke_jute_end(&p->out, at);
  p->greeted = true;
}

/* The flags are the last number of a create. */
static void answer(echo *e, peer *p, const char *frame, size_t len) {
  if (!p->greeted) {
    put_connected(p);
    return;
  }
  if (len < 8) die("echo: a frame of %zu bytes", len);
  int xid = zke_jute_length(frame), type = zke_jute_length(frame + 4);
  bool is_create = type == ZKE_JUTE_CREATE;
  bool is_ephemeral = is_create && zke_jute_length(frame + len - 4) & 1;
  if (type == ZKE_JUTE_SET_DATA || (is_create && !is_ephemeral))
    e->to_sync += len;
  size_t size = STAT_BYTES;
  if (type == ZKE_JUTE_GET_DATA) size += DATA_BYTES + 4;
  if (is_create) size = 4 + sizeof "/bench-served/n-0123456789" - 1;
  put_answer(p, xid, type == ZKE_JUTE_CLOSE ? 0 : size);
}

/* ---- connections ---- */

static void peer_free(peer *p) {
  close(p->fd);
  zke_jute_writer_free(&p->out);
  free(p->in);
  free(p);
}

/* Reads once, and answers what is whole; false: the peer has gone. */
static bool peer_read(echo *e, peer *p) {
  ssize_t n = recv(p->fd, p->in + p->in_len, 2 * READ_BYTES - p->in_len, 0);
  if (n <= 0) return false;
  p->in_len += (size_t)n;
  size_t at = 0;
  while (p->in_len - at >= 4) {
    size_t len = (size_t)zke_jute_length(p->in + at);
    if (p->in_len - at - 4 < len) break;
    answer(e, p, p->in + at + 4, len);
    at += 4 + len;
  }
  memmove(p->in, p->in + at, p->in_len - at);
  p->in_len -= at;
  return true;
}

/* The load reads all the time, so what does not fit is waited for. */
static void peer_send(peer *p) {
  if (p->out.failed) die("echo: no memory");
  for (size_t at = 0; at < p->out.len;) {
    ssize_t n = send(p->fd, p->out.data + at, p->out.len - at, MSG_NOSIGNAL);
    if (n <= 0) break;
    at += (size_t)n;
  }
  zke_jute_writer_free(&p->out);
}

static void echo_accept(echo *e) {
  int yes = 1, fd = accept4(e->listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  peer *p = allocate(sizeof *p);
  *p = (peer){.fd = fd, .in = allocate(2 * READ_BYTES)};
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};
  if (epoll_ctl(e->epoll, EPOLL_CTL_ADD, fd, &event)) die("echo: epoll_ctl");
}

/* ---- the server ---- */

/* Writes as many bytes as the round's changes have, and syncs. */
static void echo_sync(echo *e) {
  size_t size = e->to_sync < LOG_BYTES ? e->to_sync : LOG_BYTES;
  if (!size) return;
  if (pwrite(e->log, filler, size, 0) < 0 || fdatasync(e->log))
    die("echo: the log");
  e->to_sync = 0;
}

/* Reads from all that are ready, syncs once, and answers all. */
static void echo_round(echo *e) {
  struct epoll_event events[EVENTS];
  int n = epoll_wait(e->epoll, events, EVENTS, -1);
  for (int i = 0; i < n; i++) {
    peer *p = events[i].data.ptr;
    if (!p) {
      echo_accept(e);
    } else if (!peer_read(e, p)) {
      peer_free(p);
      events[i].data.ptr = NULL;
    }
  }
  echo_sync(e);
  for (int i = 0; i < n; i++)
    if (events[i].data.ptr) peer_send(events[i].data.ptr);
}

/* On any processor, as the other servers are. */
static void unpin(void) {
  cpu_set_t all;
  memset(&all, 0xff, sizeof all);
  sched_setaffinity(0, sizeof all, &all);
}

/* PATH of the log: says the port, then answers for ever. */
void role_echo(char **argv) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof at;
  struct epoll_event event = {.events = EPOLLIN};
  echo e = {.epoll = epoll_create1(EPOLL_CLOEXEC)};
  e.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(e.listener, (struct sockaddr *)&at, size) ||
      listen(e.listener, EVENTS) ||
      getsockname(e.listener, (struct sockaddr *)&at, &size))
    die("echo: no port");
  e.log = open(argv[0], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (e.log < 0 || pwrite(e.log, filler, sizeof filler, 0) < 0 || fsync(e.log))
    die("echo: no log");
  if (epoll_ctl(e.epoll, EPOLL_CTL_ADD, e.listener, &event)) die("epoll_ctl");
  unpin();
  say(ntohs(at.sin_port));
  for (;;) echo_round(&e);
}
