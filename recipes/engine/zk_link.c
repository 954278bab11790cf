/* zk_link.c - one session's connection to an ensemble
 *
 * The states of a link, and what leads on:
 *
 *   OFF         no socket; a try is due at retry_ms      -> CONNECTING
 *   CONNECTING  connect() is under way                   -> GREETING
 *   GREETING    the connect request was sent             -> UP, ENDED
 *   UP          the session lives on this connection
 *   ENDED       the session is over; nothing happens any more
 *
 * link_lose() leads from each of the three in the middle back to OFF.
 *
 * Silence: asked_ms is when the first byte was sent that nothing was heard
 * after; 0: nothing is waited for.  A ping goes out after a third of the
 * session's timeout without sending.  A connection is lost when a server that
 * was asked has said nothing until two thirds are over.  A process that was
 * stopped reads first what came meanwhile, and judges then.
 *
 * Order: replies come in the order of the requests.  What has a reply out of
 * that order (ping, auth, setWatches) has an xid of its own below zero. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* getentropy */
#endif

#include "zk_link.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* The states of the drawing above. link_lose() is the only way back, and
 * zke_link_end() the only way out. */
enum link_state {
  LINK_OFF,
  LINK_CONNECTING,
  LINK_GREETING,
  LINK_UP,
  LINK_ENDED
};

enum {
  LINK_ADDRESSES = 256,  /* of all servers together */
  LINK_CHUNK = 65536,    /* bytes that are read at a time */
  LINK_KEEP = 1 << 20,   /* bytes of a buffer that is empty */
  LINK_ROUNDS = 64,      /* chunks that one step reads at most */
  LINK_OPEN_LEAST = 250, /* ms for an address */
  LINK_PAUSE_FIRST = 20, /* ms after the first round of servers that failed */
  LINK_PAUSE_MOST = 1000
};

/* One address of one server. A server with several is tried once by each of
 * them. */
typedef struct address {
  struct sockaddr_storage to;
  socklen_t len;
} address;

/* Requests in their order. */
typedef struct request_list {
  zk_request *first, **end;
} request_list;

struct zk_link {
  zk_link_config c; /* session, password and timeout are the server's */
  enum link_state state;
  int fd; /* -1 in OFF and ENDED */
  uint32_t interest;
  address *addresses;
  int count, next; /* addresses, and which is tried next */
  int tried;       /* in this round */
  bool lookup_due; /* the round is over: hosts may have moved */
  /* wished_ms is the timeout that is asked for; c.timeout_ms is what the server
   * has granted and what third() counts by */
  int64_t wished_ms, retry_ms, pause_ms;
  int64_t give_up_ms; /* CONNECTING, GREETING */
  /* the last byte from the server, the first one to it that it has not
   * answered, the last one to it, and the time of this step */
  int64_t heard_ms, asked_ms, sent_ms, now_ms;
  int64_t up_ms; /* since when there is this connection */
  /* the greatest that a server has told: a server that is behind it refuses the
   * greeting, so a session never goes back in time */
  int64_t zxid;
  /* complete_zxid: the events of all changes up to it have come, see
   * link_note_zxid(); watches_due: setWatches2 that have no reply yet */
  int64_t complete_zxid;
  int watches_due;
  uint64_t news; /* see zke_link_news() */
  int32_t xid;
  uint64_t written; /* bytes ever put into `out` */
  zke_jute_writer out;
  size_t out_at; /* of it was sent */
  char *in;
  size_t in_len, in_size;
  request_list queued, sent;
  uint64_t random;
};

/* ---- requests ----
 *
 * Requests lie with their owners. Here they are chained in one of two lists:
 * queued (not sent, or to be sent again) and sent, both in the order in which
 * they were submitted. */

/* An empty list: `end` is where the next request is chained. So a list cannot
 * be copied as it is: see link_sort_out(). */
static void list_init(request_list *list) {
  list->first = NULL;
  list->end = &list->first;
}

/* The newest request, behind all others. */
static void list_add(request_list *list, zk_request *r) {
  r->next = NULL;
  *list->end = r;
  list->end = &r->next;
}

/* The oldest request, which is in no list then; NULL: there is none. */
static zk_request *list_take(request_list *list) {
  zk_request *r = list->first;
  if (!r) return NULL;
  list->first = r->next;
  if (!list->first) list->end = &list->first;
  return r;
}

/* Release what a request holds. What it says of its end (rc, zxid) stays. */
void zke_link_request_clear(zk_request *r) {
  zke_jute_writer_free(&r->body);
  zke_jute_writer_free(&r->sync);
  zke_jute_reader_free(&r->reply);
  free(r->frame);
  r->frame = NULL;
}

/* End a request, by its reply or without one. Its owner may release it in
 * done(), so it is in no list before, and nothing of it is touched behind that.
 */
static void request_over(zk_request *r, int rc) {
  r->rc = rc;
  r->over = true;
  if (r->done) r->done(r);
}

/* ---- time ----
 *
 * All times are those that the caller gives; there is no clock here. third() is
 * the unit that the protocol counts in. */

/* A third of the session's timeout, in which the protocol counts: a ping after
 * one third of silence, and a server is given up after two. */
static int64_t third(const zk_link *l) { return l->c.timeout_ms / 3 + 1; }

/* From when on the server is taken to be silent: from when it was asked, but a
 * third earlier, and not before it was last heard. So a server that does not
 * answer is given up two thirds after it was heard, as other clients do, and
 * one that was asked after a long pause has a third to answer. */
static int64_t silent_since(const zk_link *l) {
  int64_t asked = l->asked_ms - third(l);
  return asked > l->heard_ms ? asked : l->heard_ms;
}

/* xorshift64*, for orders and pauses. Clients that lose one server at the same
 * moment should not come to the next one together; nothing here has to be
 * unpredictable. */
static uint64_t link_random(zk_link *l) {
  uint64_t x = l->random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  l->random = x;
  return x * UINT64_C(2685821657736338717);
}

/* The next of what the states wait for by time. What they wait for by the
 * socket, the caller polls for. */
int64_t zke_link_due(const zk_link *l) {
  int64_t ping = l->sent_ms + third(l);
  int64_t silent = silent_since(l) + 2 * third(l);
  switch (l->state) {
    case LINK_OFF:
      return l->retry_ms;
    case LINK_CONNECTING:
    case LINK_GREETING:
      return l->give_up_ms;
    case LINK_UP:
      return l->asked_ms && silent < ping ? silent : ping;
    case LINK_ENDED:
      break;
  }
  return ZKE_FOREVER;
}

/* ---- the socket ----
 *
 * Opening and losing a connection, and sending. link_lose() is the one way from
 * a connection back to none: whatever goes wrong ends there, and the next step
 * begins the next try. */

/* Tell the poller what the socket is polled for now. Where the system has no
 * memory for it, it is told at the next look. */
static void link_interest(zk_link *l) {
  uint32_t events = EPOLLIN;
  if (l->fd < 0) return;
  if (l->state == LINK_CONNECTING) events = EPOLLOUT;
  if (l->out_at < l->out.len) events |= EPOLLOUT;
  if (events == l->interest) return;
  struct epoll_event e = {.events = events};
  int how = l->interest ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(l->c.poller, how, l->fd, &e) == 0) l->interest = events;
}

/* Close the socket, and forget what was to be sent and had come: a new
 * connection begins with a greeting. A forked child may have the socket open,
 * and then close() alone would neither take it from the poller nor end the
 * connection; so both are done first. */
static void link_close(zk_link *l) {
  struct epoll_event e = {.events = 0};
  if (l->fd < 0) return;
  if (l->interest) epoll_ctl(l->c.poller, EPOLL_CTL_DEL, l->fd, &e);
  shutdown(l->fd, SHUT_RDWR);
  close(l->fd);
  l->news++;
  l->fd = -1;
  l->watches_due = 0;
  l->interest = 0;
  l->in_len = 0;
  l->out.len = l->out_at = 0;
  l->out.failed = false;
  l->asked_ms = 0;
}

/* What the loss of the connection means for each request that was submitted to
 * it: see zk_link.h. sent: so many of the bytes ever written have left; a
 * request that begins behind them is not known to any server. The order of
 * requests stays. First come the requests that were sent, then those that
 * waited. */
static void link_sort_out(zk_link *l, uint64_t sent) {
  request_list before = l->sent, behind = l->queued;
  zk_request *r;
  if (!before.first) return;
  if (!behind.first) list_init(&behind);
  list_init(&l->sent);
  list_init(&l->queued);
  while ((r = before.first)) {
    before.first = r->next;
    r->is_sent = false;
    if (r->reads || r->begins >= sent)
      list_add(&l->queued, r);
    else
      request_over(r, ZKE_CONNECTIONLOSS);
  }
  while ((r = behind.first)) {
    behind.first = r->next;
    list_add(&l->queued, r);
  }
}

/* The connection is gone. The next address is tried at once. After all of them,
 * and after a connection that did not last a second, there is a pause, which
 * doubles up to a second: so servers that accept and hang up are not asked
 * without end. The owner is told last, when the link is whole again, since it
 * may submit requests in lost(). */
static void link_lose(zk_link *l, const char *why) {
  bool was_up = l->state == LINK_UP;
  uint64_t sent = l->written - (l->out.len - l->out_at);
  if (l->fd < 0) return;
  link_close(l);
  l->state = LINK_OFF;
  l->retry_ms = l->now_ms;
  bool brief = was_up && l->now_ms - l->up_ms < LINK_PAUSE_MOST;
  if (was_up && !brief) l->tried = 0;
  if (was_up && !brief) l->pause_ms = 0;
  if (brief || l->tried >= l->count) {
    int64_t pause = l->pause_ms ? l->pause_ms : LINK_PAUSE_FIRST;
    l->retry_ms += pause / 2 + (int64_t)(link_random(l) % (uint64_t)pause);
    l->pause_ms = pause < LINK_PAUSE_MOST / 2 ? 2 * pause : LINK_PAUSE_MOST;
    l->lookup_due = l->tried >= l->count;
    l->tried = 0;
  }
  link_sort_out(l, sent);
  if (was_up) l->c.lost(l->c.owner, why);
}

/* For an owner that could not do what a new connection needs; the link tries
 * again. */
void zke_link_drop(zk_link *l, const char *why) { link_lose(l, why); }

/* May a server have made a change by this request? sent: so many of the bytes
 * ever written have left. The close of a session is no change: it wants the end
 * that has come. */
static bool request_may_be_made(const zk_request *r, uint64_t sent) {
  return !r->reads && r->type != ZKE_JUTE_CLOSE && r->begins < sent;
}

/* End the link. Requests are over with rc. One by which a server may have made
 * a change is over with open_rc. The order matters: an ended link takes no
 * request, so one that is submitted in a done() is over at once, and the loops
 * here come to an end. */
static void link_finish(zk_link *l, int rc, int open_rc) {
  zk_request *r;
  uint64_t sent = l->written - (l->out.len - l->out_at);
  if (l->state == LINK_ENDED) return;
  link_close(l);
  l->state = LINK_ENDED;
  l->news++;
  while ((r = list_take(&l->sent)))
    request_over(r, request_may_be_made(r, sent) ? open_rc : rc);
  while ((r = list_take(&l->queued))) request_over(r, rc);
}

/* The end is the owner's own, and says nothing of what was sent. Where the
 * handle is closed nobody looks any more. */
void zke_link_end(zk_link *l, int rc) {
  link_finish(l, rc, rc == ZKE_CLOSING ? rc : ZKE_CONNECTIONLOSS);
}

/* The server says that the session is over. The requests end first, then the
 * owner is told. That it has expired comes in the order of the replies, so what
 * has no reply was not made. A refused identity says nothing of the requests
 * that were sent beside it. */
static void link_end_session(zk_link *l, int state) {
  if (state == ZKE_STATE_EXPIRED)
    link_finish(l, ZKE_SESSIONEXPIRED, ZKE_SESSIONEXPIRED);
  else
    link_finish(l, ZKE_AUTHFAILED, ZKE_CONNECTIONLOSS);
  l->c.ended(l->c.owner, state);
}

/* Send what fits into the socket; the rest goes when that takes more. May lose
 * the connection. asked_ms is set by the first byte that leaves after the
 * server was heard, and not moved by later ones: what counts is how long the
 * server has been silent. */
static void link_flush(zk_link *l) {
  if (l->fd < 0 || l->state == LINK_CONNECTING) return;
  if (l->out.failed) {
    link_lose(l, "out of memory for requests");
    return;
  }
  while (l->out_at < l->out.len) {
    ssize_t n = send(l->fd, l->out.data + l->out_at, l->out.len - l->out_at,
                     MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n < 0) {
      link_lose(l, "the server closed the connection");
      return;
    }
    l->out_at += (size_t)n;
    l->sent_ms = l->now_ms;
    if (!l->asked_ms) l->asked_ms = l->now_ms;
  }
  if (l->out_at == l->out.len) l->out.len = l->out_at = 0;
  link_interest(l);
}

/* ---- sending ----
 *
 * Frames are put into one buffer and leave in that order. A request remembers
 * where it begins among all bytes ever written, so that a loss can tell whether
 * it has left. */

/* One frame: a header, a record or what a request holds. */
static void link_frame(zk_link *l, int32_t xid, int type,
                       const zke_jute_record *record, const void *in,
                       const zke_jute_writer *body) {
  size_t before = l->out.len, at = zke_jute_begin(&l->out);
  zke_jute_request_header header = {xid, type};
  zke_jute_write(&l->out, &zke_jute_of_request_header, &header);
  if (record) zke_jute_write(&l->out, record, in);
  if (body) zke_jute_append(&l->out, body);
  zke_jute_end(&l->out, at);
  l->written += l->out.len - before;
}

/* Where there is no connection nothing is kept: the next one begins anew with
 * all that is sent in this way. */
void zke_link_put(zk_link *l, int32_t xid, int type,
                  const zke_jute_record *record, const void *in) {
  if (l->state != LINK_UP) return;
  if (xid == ZK_LINK_XID_WATCHES) l->watches_due++;
  link_frame(l, xid, type, record, in, NULL);
}

/* Numbers of requests are positive; after the last one they begin anew. 0 and
 * below are not used for requests: numbers below zero are those of replies out
 * of order. */
static int32_t link_next_xid(zk_link *l) {
  l->xid = l->xid == INT32_MAX ? 1 : l->xid + 1;
  return l->xid;
}

/* Put a request into the buffer, and into the list in whose order the replies
 * come. The sync has the number just before the request's own, by which
 * link_take_reply() knows its reply. */
static void link_send(zk_link *l, zk_request *r) {
  r->begins = l->written;
  r->is_sent = true;
  r->syncing = r->sync.len > 0;
  r->sync_rc = 0;
  if (r->syncing)
    link_frame(l, link_next_xid(l), ZKE_JUTE_SYNC, NULL, NULL, &r->sync);
  r->xid = link_next_xid(l);
  link_frame(l, r->xid, r->type, NULL, NULL, &r->body);
  list_add(&l->sent, r);
}

/* It is sent now where there is a connection, else by the next one. May lose
 * the connection, and so end requests, this one too. */
void zke_link_submit(zk_link *l, zk_request *r, int64_t now_ms) {
  l->now_ms = now_ms;
  if (l->state == LINK_ENDED) {
    request_over(r, ZKE_INVALIDSTATE);
    return;
  }
  if (l->state != LINK_UP) {
    list_add(&l->queued, r);
    return;
  }
  link_send(l, r);
  link_flush(l);
}

/* Only one that waits for a connection: of a request that has left nobody knows
 * what it does, and its reply has to find it. */
bool zke_link_take_back(zk_link *l, zk_request *r, int rc) {
  zk_request **at = &l->queued.first;
  if (r->over) return true;
  if (r->is_sent) return false;
  while (*at && *at != r) at = &(*at)->next;
  if (!*at) return false;
  *at = r->next;
  if (l->queued.end == &r->next) l->queued.end = at;
  request_over(r, rc);
  return true;
}

/* ---- connecting ----
 *
 * From a name to a session on a server: look up, connect, greet. Addresses are
 * tried in a random order, each for its share of the time; names are looked up
 * again only when a whole round has failed, since the resolver may block. */

/* The addresses of one server, behind those that are there. A host that the
 * resolver does not know has none. getaddrinfo() may block for as long as the
 * resolver does, with the owner's lock held. */
static void add_addresses(zk_link *l, const zk_server *server) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;
  if (getaddrinfo(server->host, server->port, &hints, &all) != 0) return;
  for (struct addrinfo *a = all; a && l->count < LINK_ADDRESSES;
       a = a->ai_next) {
    if (a->ai_addrlen > sizeof l->addresses->to) continue;
    address *to = &l->addresses[l->count++];
    memcpy(&to->to, a->ai_addr, a->ai_addrlen);
    to->len = a->ai_addrlen;
  }
  freeaddrinfo(all);
}

/* Look up all servers, and put their addresses into a random order, so that
 * clients spread over the servers. Where no name can be looked up, those
 * addresses that are known stay: the resolver may be down while the servers are
 * not. */
static void link_resolve(zk_link *l) {
  int known = l->count;
  l->count = l->next = 0;
  for (int i = 0; i < l->c.name->count; i++)
    add_addresses(l, &l->c.name->servers[i]);
  l->lookup_due = false;
  if (!l->count) l->count = known;
  for (int i = l->count - 1; i > 0; i--) {
    int other = (int)(link_random(l) % (uint64_t)(i + 1));
    address one = l->addresses[i];
    l->addresses[i] = l->addresses[other];
    l->addresses[other] = one;
  }
}

/* How long one address may take to connect, and then to greet: so short that
 * all of them can be tried within two thirds of the session's timeout, as far
 * as that leaves each a sensible time. A short timeout that is wished for takes
 * none of that time away: servers may grant a longer one. */
static int64_t opening_time(const zk_link *l) {
  int64_t share = 2 * third(l) / l->count;
  if (share > third(l)) share = third(l);
  return share > LINK_OPEN_LEAST ? share : LINK_OPEN_LEAST;
}

/* There is no socket for the next address.  Where the host does not have its
 * kind (IPv6 is switched off) the one behind it may do; after a whole round,
 * and where descriptors or memory lack, there is a pause. */
static void link_skip(zk_link *l, int error) {
  bool unknown = error == EAFNOSUPPORT || error == EPROTONOSUPPORT;
  bool go_on = unknown && l->tried < l->count;
  l->state = LINK_OFF;
  l->retry_ms = l->now_ms + (go_on ? 0 : LINK_PAUSE_MOST);
  if (go_on) return;
  l->lookup_due = unknown;
  l->tried = 0;
}

/* Begin a connection to the next address. Where names are to be looked up this
 * is all that a step does: the resolver may block for longer than an address
 * has, and only the next step knows the time behind it. */
static void link_connect(zk_link *l) {
  int on = 1;
  if (!l->count || l->lookup_due) {
    link_resolve(l);
    l->retry_ms = l->now_ms + (l->count ? 0 : LINK_PAUSE_MOST);
    return;
  }
  l->tried++;
  const address *a = &l->addresses[l->next++ % l->count];
  l->fd =
      socket(a->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (l->fd < 0) {
    link_skip(l, errno);
    return;
  }
  l->state = LINK_CONNECTING;
  l->news++;
  l->give_up_ms = l->now_ms + opening_time(l);
  setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(l->fd, (const struct sockaddr *)&a->to, a->len) != 0 &&
      errno != EINPROGRESS && errno != EINTR) {
    link_lose(l, "no connection");
    return;
  }
  link_interest(l);
}

/* The connection is there: begin the session, or take it up. The server has its
 * time from here on: a program that steps seldom may find the connection only
 * when the time to connect is over. A read-only server
 * is never asked for: its state may be old, and it takes no change. The zxid
 * makes a server that is behind what this session has seen refuse, and then the
 * next one is tried. */
static void link_greet(zk_link *l) {
  zke_jute_connect_request hello = {
      .last_zxid_seen = l->zxid,
      .time_out = (int32_t)l->wished_ms,
      .session_id = l->c.session,
      .passwd = {16, (const char *)l->c.password}};
  zke_jute_read_only never = {0};
  l->state = LINK_GREETING;
  l->give_up_ms = l->now_ms + opening_time(l);
  l->news++;
  l->heard_ms = l->now_ms;
  size_t at = zke_jute_begin(&l->out);
  zke_jute_write(&l->out, &zke_jute_of_connect_request, &hello);
  zke_jute_write(&l->out, &zke_jute_of_read_only, &never);
  zke_jute_end(&l->out, at);
  l->written += l->out.len - at;
  link_flush(l);
}

/* Has connect() come to an end? A socket that became writable tells by SO_ERROR
 * how it went. */
static void link_look_connected(zk_link *l) {
  struct pollfd p = {.fd = l->fd, .events = POLLOUT};
  int error = 0;
  socklen_t len = sizeof error;
  if (poll(&p, 1, 0) <= 0) return;
  if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error)
    link_lose(l, "no connection");
  else
    link_greet(l);
}

/* Take the server's answer to the greeting. The session is ours if it has the
 * number that was asked for; another one, or 0, means that ours is over. A new
 * session takes what the server says. Then the owner speaks first
 * (connected()), and requests that have waited follow: so watches and
 * identities are there before any read. */
static void link_take_greeting(zk_link *l, zke_jute_reader *frame) {
  zke_jute_connect_response answer;
  bool good = zke_jute_read(frame, &zke_jute_of_connect_response, &answer);
  if (good && l->c.session && answer.session_id != l->c.session) {
    link_end_session(l, ZKE_STATE_EXPIRED);
    return;
  }
  if (!good || answer.session_id == 0 || answer.time_out <= 0 ||
      answer.passwd.len != 16) {
    link_lose(l, "no greeting of a ZooKeeper server");
    return;
  }
  __atomic_store_n(&l->c.session, answer.session_id, __ATOMIC_RELAXED);
  l->c.timeout_ms = answer.time_out;
  memcpy(l->c.password, answer.passwd.data, 16);
  l->state = LINK_UP;
  l->up_ms = l->now_ms;
  l->asked_ms = 0;
  l->c.connected(l->c.owner);
  zk_request *r;
  while (l->state == LINK_UP && (r = list_take(&l->queued))) link_send(l, r);
  link_flush(l);
}

/* ---- receiving ----
 *
 * Bytes become frames, and frames events, replies, or the end of the
 * connection. A server is not trusted: lengths, numbers and types are checked
 * before anything is done by them. */

/* What a server tells of: a node was created, deleted or changed, or its
 * children were.  Other types are a client's own, or a later version's. */
static bool event_is_known(int type) {
  return type >= ZKE_EVENT_CREATED && type <= ZKE_EVENT_CHILD;
}

/* An event goes to the owner at once, before the replies behind it: so a change
 * is never read before its event is there. An event of an unknown type is
 * ignored, and a malformed one ends the connection. */
static void link_take_event(zk_link *l, zke_jute_reader *frame, int64_t zxid) {
  zke_jute_watcher_event event;
  if (!zke_jute_read(frame, &zke_jute_of_watcher_event, &event) ||
      !event.path) {
    link_lose(l, "the server sent a malformed event");
    return;
  }
  if (!event_is_known(event.type)) return;
  l->c.event(l->c.owner, event.type, event.path, zxid > 0 ? zxid : 0);
}

/* ZooKeeper's codes are zkembed's own, by number. One that has no name here
 * says nothing to a caller. So a caller only ever sees codes of zkembed.h. */
int zke_link_code(int32_t err) {
  if (err > 0 || !strcmp(zke_error_name(err), "ZKE_UNKNOWN"))
    return ZKE_SYSTEMERROR;
  return err;
}

/* Keep what stands behind the header for the caller that waits: the buffer is
 * the next frame's. One byte more than the reply has is taken, so that an empty
 * one has a block, too. */
static bool request_keep(zk_request *r, const zke_jute_reader *frame) {
  size_t len = (size_t)(frame->end - frame->at);
  r->frame = malloc(len + 1);
  if (!r->frame) return false;
  memcpy(r->frame, frame->at, len);
  r->reply = (zke_jute_reader){.at = r->frame, .end = r->frame + len};
  return true;
}

/* Take the reply to the oldest request, or to the sync before it. Replies come
 * in the order of requests, so any other number is an error of the server,
 * which ends the connection. The request is out of the list before it is over.
 * A failed sync fails the read behind it, which may have read old data. */
static void link_take_reply(zk_link *l, const zke_jute_reply_header *h,
                            zke_jute_reader *frame) {
  zk_request *r = l->sent.first;
  int32_t before = r && r->xid > 1 ? r->xid - 1 : INT32_MAX;
  if (r && r->syncing && h->xid == before) {
    r->syncing = false;
    r->sync_rc = h->err;
    return;
  }
  if (!r || r->syncing || h->xid != r->xid) {
    link_lose(l, "the server sent a reply to no request of ours");
    return;
  }
  if (!request_keep(r, frame)) {
    link_lose(l, "out of memory for a reply");
    return;
  }
  list_take(&l->sent);
  r->zxid = h->zxid > 0 ? h->zxid : 0;
  request_over(r, zke_link_code(h->err ? h->err : r->sync_rc));
  if (h->err == ZKE_SESSIONEXPIRED) link_end_session(l, ZKE_STATE_EXPIRED);
}

/* Note what a header says of the zxid. The events of all changes up to a
 * reply's zxid have come before the reply, but for two cases:
 * - While a setWatches2 has no reply, its watches are not set yet, and what
 *   they have missed is still to come. Other replies say nothing of that.
 * - An event may have the zxid of its change, and a change may have more
 *   events. */
static void link_note_zxid(zk_link *l, const zke_jute_reply_header *h) {
  if (h->zxid > l->zxid) l->zxid = h->zxid;
  if (h->xid == ZK_LINK_XID_WATCHES && !h->err && l->watches_due)
    l->watches_due--;
  if (h->xid == ZKE_JUTE_XID_EVENT || l->watches_due) return;
  if (h->zxid > l->complete_zxid) l->complete_zxid = h->zxid;
}

/* A server's code for a session that it does not know, internal to it; one
 * that has just removed the session answers with it what still comes. */
enum { LINK_UNKNOWN_SESSION = -12 };

/* One whole frame. It may end the connection, or the session. The zxid is noted
 * first, so that what is called here finds it. */
static void link_take_frame(zk_link *l, zke_jute_reader *frame) {
  zke_jute_reply_header h;
  if (l->state == LINK_GREETING) {
    link_take_greeting(l, frame);
    return;
  }
  if (!zke_jute_read(frame, &zke_jute_of_reply_header, &h)) {
    link_lose(l, "the server sent half a header");
    return;
  }
  if (h.err == LINK_UNKNOWN_SESSION) h.err = ZKE_SESSIONEXPIRED;
  link_note_zxid(l, &h);
  if (h.xid == ZKE_JUTE_XID_EVENT)
    link_take_event(l, frame, h.zxid);
  else if (h.xid == ZKE_JUTE_XID_AUTH && h.err)
    link_end_session(l, ZKE_STATE_AUTH_FAILED);
  else if (h.xid == ZK_LINK_XID_WATCHES && h.err)
    link_lose(l, "the server did not set the watches again");
  else if (h.xid >= 0)
    link_take_reply(l, &h, frame);
  else if (h.xid != ZKE_JUTE_XID_PING && h.xid != ZKE_JUTE_XID_AUTH &&
           h.xid != ZK_LINK_XID_WATCHES)
    link_lose(l, "the server sent a reply with an unknown number");
}

/* All frames that have come as a whole. What is left moves to the beginning of
 * the buffer. It stops where a frame has ended the connection. */
static void link_take_frames(zk_link *l) {
  size_t at = 0;
  while (l->fd >= 0 && l->in_len - at >= 4) {
    int32_t len = zke_jute_length(l->in + at);
    if (len < 0 || len > ZK_LINK_REPLY_MOST) {
      link_lose(l, "the server sent a frame of an impossible length");
      return;
    }
    if (l->in_len - at - 4 < (size_t)len) break;
    zke_jute_reader frame = {.at = l->in + at + 4, .end = l->in + at + 4 + len};
    at += 4 + (size_t)len;
    link_take_frame(l, &frame);
    zke_jute_reader_free(&frame);
  }
  if (l->fd < 0) return;
  memmove(l->in, l->in + at, l->in_len - at);
  l->in_len -= at;
  if (l->in_len || l->in_size <= LINK_KEEP) return;
  free(l->in); /* a long reply need not be remembered by its room */
  l->in = NULL;
  l->in_size = 0;
}

/* Room for one chunk more. The buffer grows with what has come, and not with
 * what a frame's length says: a length of 2 GiB costs a hostile server 2 GiB.
 */
static bool link_make_room(zk_link *l) {
  if (l->in_size - l->in_len >= LINK_CHUNK) return true;
  size_t size = l->in_len + l->in_len / 2 + 2 * LINK_CHUNK;
  char *grown = realloc(l->in, size);
  if (!grown) return false;
  l->in = grown;
  l->in_size = size;
  return true;
}

/* Read what is there, some chunks at most, so that a server that sends without
 * end does not keep the caller from its own work. Any byte counts as a sign of
 * life, also half a frame. */
static void link_receive(zk_link *l) {
  for (int i = 0; i < LINK_ROUNDS && l->fd >= 0; i++) {
    if (!link_make_room(l)) {
      link_lose(l, "out of memory for a reply");
      return;
    }
    ssize_t n = recv(l->fd, l->in + l->in_len, LINK_CHUNK, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) {
      link_lose(l, "the server closed the connection");
      return;
    }
    l->in_len += (size_t)n;
    l->news++;
    l->heard_ms = l->now_ms;
    l->asked_ms = 0;
    link_take_frames(l);
    if (n < LINK_CHUNK) return;
  }
}

/* ---- steps ----
 *
 * What the caller's loop calls. Begin reading here. */

/* On an open connection: give up a silent server, and ping where nothing was
 * sent for a third of the timeout. What was received in this step is looked at
 * before: see zke_link_step(). */
static void link_keep_alive(zk_link *l) {
  if (l->asked_ms && l->now_ms >= silent_since(l) + 2 * third(l)) {
    link_lose(l, "the server is silent");
    return;
  }
  if (l->now_ms >= l->sent_ms + third(l)) {
    l->sent_ms = l->now_ms; /* also where the socket takes nothing now */
    zke_link_put(l, ZKE_JUTE_XID_PING, ZKE_JUTE_PING, NULL, NULL);
  }
  link_flush(l);
}

/* First what has come, then what is due: a process that was stopped for long
 * reads its replies before it judges the server by the time. */
void zke_link_step(zk_link *l, int64_t now_ms) {
  l->now_ms = now_ms;
  if (l->state == LINK_GREETING || l->state == LINK_UP) {
    link_flush(l);
    link_receive(l);
  }
  if (l->state == LINK_OFF && now_ms >= l->retry_ms) link_connect(l);
  if (l->state == LINK_CONNECTING) link_look_connected(l);
  bool opening = l->state == LINK_CONNECTING || l->state == LINK_GREETING;
  if (opening && now_ms >= l->give_up_ms) link_lose(l, "no answer");
  if (l->state == LINK_UP) link_keep_alive(l);
}

/* While it connects, a socket becomes writable when that has come to an end,
 * well or badly. */
int zke_link_poll(const zk_link *l, short *events) {
  *events = l->state == LINK_CONNECTING ? POLLOUT : POLLIN;
  if (l->out_at < l->out.len) *events |= POLLOUT;
  return l->fd;
}

bool zke_link_is_up(const zk_link *l) { return l->state == LINK_UP; }

uint64_t zke_link_news(const zk_link *l) { return l->news; }

/* ---- beginning and end ---- */

/* Nothing is done yet: the first step looks for a server. */
zk_link *zke_link_new(const zk_link_config *config) {
  zk_link *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  l->addresses = calloc(LINK_ADDRESSES, sizeof *l->addresses);
  if (!l->addresses) {
    free(l);
    return NULL;
  }
  l->c = *config;
  l->wished_ms = config->timeout_ms;
  l->fd = -1;
  list_init(&l->queued);
  list_init(&l->sent);
  if (getentropy(&l->random, sizeof l->random) != 0 || !l->random)
    l->random = (uint64_t)(uintptr_t)l | 1;
  return l;
}

/* Requests that are not over end as those of a close do. */
void zke_link_free(zk_link *l) {
  if (!l) return;
  zke_link_end(l, ZKE_CLOSING);
  zke_jute_writer_free(&l->out);
  free(l->in);
  free(l->addresses);
  free(l);
}

/* Also asked without the owner's mutex. */
int64_t zke_link_session(const zk_link *l) {
  return __atomic_load_n(&l->c.session, __ATOMIC_RELAXED);
}
const unsigned char *zke_link_password(const zk_link *l) {
  return l->c.password;
}
int64_t zke_link_timeout(const zk_link *l) { return l->c.timeout_ms; }
int64_t zke_link_zxid(const zk_link *l) { return l->zxid; }
/* From which on setWatches2 asks for what was missed. */
int64_t zke_link_complete(const zk_link *l) { return l->complete_zxid; }
