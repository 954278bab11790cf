/* proxy.c - see proxy.h
 *
 * The child is one loop over poll().  Each client's connection is a link with
 * two streams, one for each direction.  A stream collects whole frames, since
 * no part of a lost request may arrive, and holds each until it is due.  Bytes
 * that do not look like a frame (a four-letter word) are passed on as they
 * come.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "recipes/engine/jute.h"

enum {
  LINKS = 256,       /* at most; more wait in the listener's queue */
  READ_ONCE = 65536, /* bytes */
  QUEUED_MOST =
      8 << 20, /* bytes waiting in a stream: above this it reads no more */
  LONGEST_FRAME = 64 << 20
};

/* ------------------------------------------------------------------------
 * Orders
 * --------------------------------------------------------------------- */

typedef enum order_kind {
  ORDER_AIM,
  ORDER_PLAIN,
  ORDER_DELAY,
  ORDER_CUT,
  ORDER_REFUSE,
  ORDER_FREEZE,
  ORDER_LOSE,
  ORDER_LOST,
  ORDER_LINKS
} order_kind;

typedef struct order {
  order_kind kind;
  int first, second;
} order;

/* Give an order, and wait for the answer; -1: the child is gone. */
static long give(proxy *p, order_kind kind, int first, int second) {
  order o = {kind, first, second};
  long answer = -1;
  if (send(p->orders, &o, sizeof o, MSG_NOSIGNAL) != sizeof o) return -1;
  while (recv(p->orders, &answer, sizeof answer, 0) < 0 && errno == EINTR)
    continue;
  return answer;
}

void proxy_aim(proxy *p, int port) { give(p, ORDER_AIM, port, 0); }

void proxy_plain(proxy *p) { give(p, ORDER_PLAIN, 0, 0); }

void proxy_delay(proxy *p, int to_server_ms, int to_client_ms) {
  give(p, ORDER_DELAY, to_server_ms, to_client_ms);
}

long proxy_cut(proxy *p) { return give(p, ORDER_CUT, 0, 0); }
void proxy_refuse(proxy *p, bool refuse) { give(p, ORDER_REFUSE, refuse, 0); }
void proxy_freeze(proxy *p, bool freeze) { give(p, ORDER_FREEZE, freeze, 0); }

void proxy_lose(proxy *p, int when, int skip) {
  give(p, ORDER_LOSE, when, skip);
}

long proxy_lost(proxy *p) { return give(p, ORDER_LOST, 0, 0); }
long proxy_links(proxy *p) { return give(p, ORDER_LINKS, 0, 0); }

/* ------------------------------------------------------------------------
 * The child's state
 * --------------------------------------------------------------------- */

enum { TO_SERVER, TO_CLIENT };

/* Bytes to be sent together, when they are due. */
typedef struct part {
  struct part *next;
  int64_t due_ns;
  size_t len, at; /* at: bytes already sent */
  char bytes[];
} part;

typedef struct stream {
  int from, to;     /* descriptors; each is in both streams of a link */
  char *begun;      /* the first bytes of a frame */
  size_t len, size; /* of begun */
  part *first, **end;
  size_t queued; /* bytes in the parts */
  bool plain;    /* no frames: passed on as it comes */
  bool over;     /* the sender has closed */
} stream;

typedef struct link_state {
  stream way[2];
  bool greeted; /* the client's first frame, which has no header, has passed */
  bool awaits;  /* the reply to this request is to be lost */
  int32_t awaited_xid;
  enum { LIVES, ENDS, RESETS } fate; /* after this turn of the loop */
} link_state;

static struct {
  int orders, listener; /* listener -1: refuses */
  struct sockaddr_in here, server;
  int64_t delay_ns[2];
  bool plain;
  bool frozen;
  int lose, skip; /* as ordered by proxy_lose() */
  long lost;
  link_state *link[LINKS];
  int links;
} at_work;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static struct sockaddr_in loopback(int port) {
  return (struct sockaddr_in){.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void *must(void *block) {
  if (!block) _exit(3);
  return block;
}

/* ------------------------------------------------------------------------
 * Links
 * --------------------------------------------------------------------- */

static void add_link(int client, int server) {
  link_state *l = must(calloc(1, sizeof *l));
  for (int i = 0; i < 2; i++) {
    l->way[i].end = &l->way[i].first;
    l->way[i].plain = at_work.plain;
  }
  l->way[TO_SERVER].from = l->way[TO_CLIENT].to = client;
  l->way[TO_CLIENT].from = l->way[TO_SERVER].to = server;
  at_work.link[at_work.links++] = l;
}

static void empty_stream(stream *s) {
  for (part *p = s->first; p;) {
    part *next = p->next;
    free(p);
    p = next;
  }
  free(s->begun);
}

/* Close both ends.  With reset they see an error instead of an end. */
static void close_link(link_state *l, bool reset) {
  struct linger at_once = {.l_onoff = 1};
  for (int i = 0; i < 2; i++) {
    if (reset)
      setsockopt(l->way[i].from, SOL_SOCKET, SO_LINGER, &at_once,
                 sizeof at_once);
    close(l->way[i].from);
    empty_stream(&l->way[i]);
  }
  free(l);
}

static long cut_all(void) {
  long cut = at_work.links;
  for (int i = 0; i < at_work.links; i++) close_link(at_work.link[i], true);
  at_work.links = 0;
  return cut;
}

/* Close the links that are not to live. */
static void bury(void) {
  int left = 0;
  for (int i = 0; i < at_work.links; i++) {
    link_state *l = at_work.link[i];
    if (l->fate == LIVES)
      at_work.link[left++] = l;
    else
      close_link(l, l->fate == RESETS);
  }
  at_work.links = left;
}

static void accept_one(void) {
  int on = 1;
  int client =
      accept4(at_work.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client < 0) return;
  int server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  int rc = connect(server, (const struct sockaddr *)&at_work.server,
                   sizeof at_work.server);
  if (rc != 0 && errno != EINPROGRESS) {
    close(client);
    close(server);
    return;
  }
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  add_link(client, server);
}

/* ------------------------------------------------------------------------
 * Losses
 * --------------------------------------------------------------------- */

static bool is_change(int32_t type) {
  switch (type) {
    case ZKE_JUTE_CREATE:
    case ZKE_JUTE_CREATE2:
    case ZKE_JUTE_CREATE_CONTAINER:
    case ZKE_JUTE_CREATE_TTL:
    case ZKE_JUTE_DELETE:
    case ZKE_JUTE_DELETE_CONTAINER:
    case ZKE_JUTE_SET_DATA:
    case ZKE_JUTE_SET_ACL:
    case ZKE_JUTE_MULTI:
      return true;
    default:
      return false;
  }
}

/* End the connection, with its unsent bytes. */
static void lose(link_state *l) {
  l->fate = RESETS;
  at_work.lost++;
}

/* Pass on a client's frame?  The request that proxy_lose() selects is passed on
 * only if its reply must be lost. */
static bool request_passes(link_state *l, const char *frame, size_t len) {
  bool greeting = !l->greeted;
  l->greeted = true;
  if (greeting || len < 12 || at_work.lose == PROXY_NEVER) return true;
  if (!is_change(zke_jute_length(frame + 8))) return true;
  if (at_work.skip-- > 0) return true;
  bool before = at_work.lose == PROXY_BEFORE;
  at_work.lose = PROXY_NEVER;
  l->awaits = !before;
  l->awaited_xid = zke_jute_length(frame + 4);
  if (before) lose(l);
  return !before;
}

/* Pass on a server's frame?  Not the awaited reply. */
static bool reply_passes(link_state *l, const char *frame, size_t len) {
  if (!l->awaits || len < 8) return true;
  if (zke_jute_length(frame + 4) != l->awaited_xid) return true;
  lose(l);
  return false;
}

/* ------------------------------------------------------------------------
 * Streams
 * --------------------------------------------------------------------- */

static void queue_bytes(stream *s, const char *bytes, size_t len,
                        int64_t due_ns) {
  part *p = must(malloc(sizeof *p + len));
  *p = (part){.due_ns = due_ns, .len = len};
  memcpy(p->bytes, bytes, len);
  *s->end = p;
  s->end = &p->next;
  s->queued += len;
}

/* The length of the frame at `at`, with its four bytes; 0: it is incomplete. */
static size_t whole_frame(stream *s, size_t at) {
  size_t have = s->len - at;
  if (have < 4) return 0;
  int32_t len = zke_jute_length(s->begun + at);
  s->plain = len < 0 || len > LONGEST_FRAME;
  if (s->plain) return have;
  return have - 4 >= (size_t)len ? (size_t)len + 4 : 0;
}

/* Queue the whole frames that have come.  At the sender's end, queue all the
 * rest, too. */
static void take_frames(link_state *l, int way) {
  stream *s = &l->way[way];
  int64_t due_ns = now_ns() + at_work.delay_ns[way];
  size_t at = 0, len;
  while (l->fate == LIVES && at < s->len) {
    len = s->plain || s->over ? s->len - at : whole_frame(s, at);
    if (len == 0) break;
    const char *frame = s->begun + at;
    bool passes = s->plain || (way == TO_SERVER ? request_passes(l, frame, len)
                                                : reply_passes(l, frame, len));
    if (passes) queue_bytes(s, frame, len, due_ns);
    at += len;
  }
  memmove(s->begun, s->begun + at, s->len - at);
  s->len -= at;
}

static void read_some(link_state *l, int way) {
  stream *s = &l->way[way];
  if (s->size - s->len < READ_ONCE) {
    s->size = s->len * 2 + READ_ONCE;
    s->begun = must(realloc(s->begun, s->size));
  }
  ssize_t n = recv(s->from, s->begun + s->len, READ_ONCE, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) l->fate = RESETS;
  if (n == 0) s->over = true;
  if (n > 0) s->len += (size_t)n;
  take_frames(l, way);
}

/* Send what is due.  After the last bytes of a sender that has closed, the link
 * ends in order. */
static void send_due(link_state *l, int way, int64_t now) {
  stream *s = &l->way[way];
  part *p;
  while (l->fate == LIVES && (p = s->first) != NULL && p->due_ns <= now) {
    ssize_t n = send(s->to, p->bytes + p->at, p->len - p->at, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) {
      l->fate = RESETS;
      return;
    }
    p->at += (size_t)n;
    if (p->at < p->len) return;
    s->queued -= p->len;
    s->first = p->next;
    if (!s->first) s->end = &s->first;
    free(p);
  }
  if (s->over && !s->first) l->fate = ENDS;
}

/* ------------------------------------------------------------------------
 * The child's loop
 * --------------------------------------------------------------------- */

/* Listen, at the port that the keeper holds while nobody listens; or stop. */
static void listen_or_not(bool refuse) {
  int on = 1;
  if (at_work.listener >= 0) close(at_work.listener);
  at_work.listener = -1;
  if (refuse) return;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const struct sockaddr *here = (const struct sockaddr *)&at_work.here;
  if (bind(fd, here, sizeof at_work.here) != 0 || listen(fd, 128) != 0)
    _exit(4);
  at_work.listener = fd;
}

static long obey(const order *o) {
  switch (o->kind) {
    case ORDER_AIM:
      at_work.server = loopback(o->first);
      break;
    case ORDER_PLAIN:
      at_work.plain = true;
      break;
    case ORDER_DELAY:
      at_work.delay_ns[TO_SERVER] = o->first * INT64_C(1000000);
      at_work.delay_ns[TO_CLIENT] = o->second * INT64_C(1000000);
      break;
    case ORDER_CUT:
      return cut_all();
    case ORDER_REFUSE:
      listen_or_not(o->first != 0);
      break;
    case ORDER_FREEZE:
      at_work.frozen = o->first != 0;
      break;
    case ORDER_LOSE:
      at_work.lose = o->first;
      at_work.skip = o->second;
      break;
    case ORDER_LOST:
      return at_work.lost;
    case ORDER_LINKS:
      return at_work.links;
  }
  return 0;
}

/* Take one order; the child exits when its parent's descriptor is closed. */
static void take_order(void) {
  order o;
  ssize_t n = recv(at_work.orders, &o, sizeof o, 0);
  if (n < 0 && errno == EINTR) return;
  if (n != sizeof o) {
    cut_all();
    _exit(0);
  }
  long answer = obey(&o);
  if (send(at_work.orders, &answer, sizeof answer, MSG_NOSIGNAL) < 0) _exit(0);
}

/* What to wait for in one direction, and until when. */
static short wanted_of(const stream *s, int64_t now, int64_t *until) {
  short events = 0;
  if (!s->over && s->queued < QUEUED_MOST) events = POLLIN;
  if (s->first && s->first->due_ns < *until && s->first->due_ns > now)
    *until = s->first->due_ns;
  return events;
}

/* The descriptors to poll: the orders, the listener, then the source of each
 * stream, which is the target of the link's other stream. */
static nfds_t gather(struct pollfd *fds, int64_t *until) {
  int64_t now = now_ns();
  nfds_t count = 2;
  bool room = at_work.links < LINKS && !at_work.frozen;
  fds[0] = (struct pollfd){.fd = at_work.orders, .events = POLLIN};
  fds[1] =
      (struct pollfd){.fd = room ? at_work.listener : -1, .events = POLLIN};
  *until = now + INT64_C(3600000000000);
  for (int i = 0; i < at_work.links; i++) {
    const link_state *l = at_work.link[i];
    for (int way = 0; way < 2; way++) {
      const stream *s = &l->way[way], *back = &l->way[1 - way];
      short events = wanted_of(s, now, until);
      if (back->first && back->first->due_ns <= now) events |= POLLOUT;
      bool idle = at_work.frozen || (s->over && !(events & POLLOUT));
      fds[count++] =
          (struct pollfd){.fd = idle ? -1 : s->from, .events = events};
    }
  }
  return count;
}

static void work_on(link_state *l, const struct pollfd fds[2]) {
  for (int way = 0; way < 2 && l->fate == LIVES; way++) {
    if (fds[way].revents & (POLLIN | POLLHUP | POLLERR)) read_some(l, way);
  }
  int64_t now = now_ns();
  for (int way = 0; way < 2 && l->fate == LIVES; way++) send_due(l, way, now);
}

static _Noreturn void work(void) {
  static struct pollfd fds[2 + 2 * LINKS];
  for (;;) {
    int64_t until;
    nfds_t count = gather(fds, &until);
    int64_t left = until - now_ns();
    if (left < 0) left = 0;
    struct timespec wait = {(time_t)(left / 1000000000),
                            (long)(left % 1000000000)};
    if (ppoll(fds, count, &wait, NULL) < 0 && errno != EINTR) _exit(5);
    int links = at_work.frozen ? 0 : at_work.links;
    for (int i = 0; i < links; i++) work_on(at_work.link[i], &fds[2 + 2 * i]);
    bury();
    if (fds[1].revents & POLLIN) accept_one();
    if (fds[0].revents) take_order();
  }
}

/* ------------------------------------------------------------------------
 * Beginning and end
 * --------------------------------------------------------------------- */

/* Close all descriptors from 3 on, except these two. */
static void close_others(int a, int b) {
  unsigned low = (unsigned)(a < b ? a : b), high = (unsigned)(a < b ? b : a);
  if (low > 3) close_range(3, low - 1, 0);
  if (high > low + 1) close_range(low + 1, high - 1, 0);
  close_range(high + 1, ~0U, 0);
}

/* Of its parent's descriptors the child keeps only the orders and the keeper: a
 * lock or a connection of the parent would live on in it. */
static _Noreturn void become_proxy(int orders, int keeper, int server_port) {
  socklen_t len = sizeof at_work.here;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close_others(orders, keeper);
  at_work.orders = orders;
  at_work.listener = -1;
  at_work.server = loopback(server_port);
  if (getsockname(keeper, (struct sockaddr *)&at_work.here, &len) != 0)
    _exit(2);
  listen_or_not(false);
  work();
}

/* The socket never listens: others with SO_REUSEADDR can bind the port, too,
 * and the system gives it to nobody. */
int proxy_hold_port(int *port) {
  struct sockaddr_in here = loopback(0);
  socklen_t len = sizeof here;
  int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (const struct sockaddr *)&here, len) != 0 ||
      getsockname(fd, (struct sockaddr *)&here, &len) != 0) {
    close(fd);
    return -1;
  }
  *port = ntohs(here.sin_port);
  return fd;
}

/* The parent's part of the start: the child has started when it answers. */
static bool has_begun(proxy *p, int server_port, int keeper, int ends[2]) {
  p->pid = fork();
  if (p->pid == 0) become_proxy(ends[1], keeper, server_port);
  close(ends[1]);
  p->orders = ends[0];
  if (p->pid > 0 && proxy_links(p) == 0) return true;
  proxy_end(p);
  return false;
}

bool proxy_start(proxy *p, int server_port) {
  int ends[2];
  *p = (proxy){.orders = -1};
  int keeper = proxy_hold_port(&p->port);
  if (keeper < 0) return false;
  bool begun =
      socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 &&
      has_begun(p, server_port, keeper, ends);
  close(keeper);
  return begun;
}

void proxy_end(proxy *p) {
  if (p->orders >= 0) close(p->orders);
  if (p->pid > 0) {
    kill(p->pid, SIGKILL);
    while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR) continue;
  }
  *p = (proxy){.orders = -1};
}
