/* zk_link.c - one session's connection to an ensemble
 *
 * The states of a link, and the next ones:
 *
 *   OFF         no socket; a try is due at retry_ms      -> CONNECTING
 *   CONNECTING  connect() is running                     -> GREETING
 *   GREETING    the connect request was sent             -> UP, ENDED
 *   UP          the session lives on this connection
 *   ENDED       the session is over; this is final
 *
 * link_lose() leads from the three middle states back to OFF.
 *
 * Silence: asked_ms is the time of the first byte sent since the server was
 * last heard; 0: no answer is due.  A ping is sent after a third of the
 * session's timeout without sending.  A connection is lost if a server that was
 * asked has been silent until two thirds are over.  A process that was stopped
 * first reads what has come, and then judges.
 *
 * Order: replies come in the order of the requests.  Replies outside that order
 * (ping, auth, setWatches) have their own xids below zero. */
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

/* The states shown above.  Only link_lose() leads back, and only zke_link_end()
 * leads out. */
enum link_state {
  LINK_OFF,
  LINK_CONNECTING,
  LINK_GREETING,
  LINK_UP,
  LINK_ENDED
};

enum {
  LINK_ADDRESSES = 256,  /* of all servers together */
  LINK_CHUNK = 65536,    /* bytes read at a time */
  LINK_KEEP = 1 << 20,   /* bytes of an empty buffer that are kept */
  LINK_ROUNDS = 64,      /* the most chunks that one step reads */
  LINK_OPEN_LEAST = 250, /* ms for an address */
  LINK_PAUSE_FIRST = 20, /* ms after the first failed round of servers */
  LINK_PAUSE_MOST = 1000
};

/* One address of one server.  A server with several is tried once by each of
 * them. */
typedef struct address {
  struct sockaddr_storage to;
  socklen_t len;
} address;

/* A list of requests, in order. */
typedef struct request_list {
  zk_request *first, **end;
} request_list;

struct zk_link {
  zk_link_config c; /* session, password and timeout are the server's */
  enum link_state state;
  int fd; /* -1 in OFF and ENDED */
  uint32_t interest;
  address *addresses;
  int count, next; /* addresses, and the next to try */
  int tried;       /* in this round */
  bool lookup_due; /* a round has ended: hosts may have moved */
  /* wished_ms is the requested timeout; c.timeout_ms is the granted one, which
   * third() uses */
  int64_t wished_ms, retry_ms, pause_ms;
  int64_t give_up_ms; /* CONNECTING, GREETING */
  /* the last byte from the server, the first one to it without an answer, the
   * last one to it, and the time of this step */
  int64_t heard_ms, asked_ms, sent_ms, now_ms;
  int64_t up_ms; /* when this connection began */
  /* the greatest that a server has sent: a server that has seen less refuses
   * the greeting, so a session never goes back in time */
  int64_t zxid;
  /* complete_zxid: the events of all changes up to it have come, see
   * link_note_zxid(); watches_due: setWatches2 without a reply yet */
  int64_t complete_zxid;
  int watches_due;
  uint64_t news; /* see zke_link_news() */
  int32_t xid;
  uint64_t written; /* bytes ever put into `out` */
  zke_jute_writer out;
  size_t out_at; /* bytes of it already sent */
  char *in;
  size_t in_len, in_size;
  request_list queued, sent;
  uint64_t random;
};

/* ---- requests ----
 *
 * Requests belong to their owners.  Here they are chained in one of two lists:
 * queued (not sent, or to be sent again) and sent, both in the order of
 * submission. */

/* An empty list: the next request is chained at `end`.  So a list cannot be
 * copied as it is: see link_sort_out(). */
static void list_init(request_list *list) {
  list->first = NULL;
  list->end = &list->first;
}

/* Add the newest request at the end. */
static void list_add(request_list *list, zk_request *r) {
  r->next = NULL;
  *list->end = r;
  list->end = &r->next;
}

/* Take out the oldest request; NULL: there is none. */
static zk_request *list_take(request_list *list) {
  zk_request *r = list->first;
  if (!r) return NULL;
  list->first = r->next;
  if (!list->first) list->end = &list->first;
  return r;
}

/* Release a request's memory.  Its results (rc, zxid) stay. */
void zke_link_request_clear(zk_request *r) {
  zke_jute_writer_free(&r->body);
  zke_jute_writer_free(&r->sync);
  zke_jute_reader_free(&r->reply);
  free(r->frame);
  r->frame = NULL;
}

/* End a request, by its reply or without one.  done() may release it, so it
 * must be in no list before, and is not touched afterwards. */
static void request_over(zk_request *r, int rc) {
  r->rc = rc;
  r->over = true;
  if (r->done) r->done(r);
}

/* ---- time ----
 *
 * All times come from the caller; there is no clock here.  third() is the unit
 * of the protocol. */

/* A third of the session's timeout: a ping is sent after one third without
 * sending, and a silent server is given up after two. */
static int64_t third(const zk_link *l) { return l->c.timeout_ms / 3 + 1; }

/* When the server's silence began: a third before it was asked, but not before
 * it was last heard.  So a server that does not answer is given up two thirds
 * after it was heard, as other clients do, and one that was asked after a long
 * pause has a third to answer. */
static int64_t silent_since(const zk_link *l) {
  int64_t asked = l->asked_ms - third(l);
  return asked > l->heard_ms ? asked : l->heard_ms;
}

/* xorshift64*, for orders and pauses.  Clients that lose one server at the same
 * moment should not all come to the next one together; unpredictability is not
 * needed. */
static uint64_t link_random(zk_link *l) {
  uint64_t x = l->random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  l->random = x;
  return x * UINT64_C(2685821657736338717);
}

/* The next time at which the state needs a step.  The caller polls the socket
 * for the rest. */
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
 * Opening and losing a connection, and sending.  Only link_lose() leads from a
 * connection back to none: every failure ends there, and the next step begins
 * the next try. */

/* Tell the poller what to poll the socket for.  If the system has no memory for
 * it, the next look tells it. */
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

/* Close the socket, and drop unsent and received bytes: a new connection begins
 * with a greeting.  A forked child may have the socket open, and then close()
 * alone would neither take it from the poller nor end the connection; so both
 * are done first. */
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

/* Apply the loss of the connection to each submitted request: see zk_link.h.
 * sent: how many of the bytes ever written have left; no server knows a request
 * that begins after them.  The order of requests stays: first the requests that
 * were sent, then those that waited. */
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

/* The connection is gone.  The next address is tried immediately.  After all of
 * them, and after a connection that did not last a second, there is a pause,
 * which doubles up to a second: so servers that accept and hang up are not
 * asked without end.  The owner is told last, when the link is consistent
 * again, since it may submit requests in lost(). */
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

/* For an owner that cannot do what a new connection needs; the link tries
 * again. */
void zke_link_drop(zk_link *l, const char *why) { link_lose(l, why); }

/* May a server have made a change by this request?  sent: how many of the bytes
 * ever written have left.  The close of a session does not count as a change:
 * it asks for the end that has come. */
static bool request_may_be_made(const zk_request *r, uint64_t sent) {
  return !r->reads && r->type != ZKE_JUTE_CLOSE && r->begins < sent;
}

/* End the link.  Requests are over with rc; those by which a server may have
 * made a change are over with open_rc.  The order matters: an ended link
 * accepts no request, so one that is submitted in a done() is over immediately,
 * and the loops here end. */
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

/* The owner has ended the link, which says nothing about requests that were
 * sent.  If the handle is closed, no thread looks any more. */
void zke_link_end(zk_link *l, int rc) {
  link_finish(l, rc, rc == ZKE_CLOSING ? rc : ZKE_CONNECTIONLOSS);
}

/* The server says that the session is over.  The requests end first, then the
 * owner is told.  An expiry comes in the order of the replies, so a request
 * without a reply was not made.  A refused identity says nothing about the
 * requests that were sent with it. */
static void link_end_session(zk_link *l, int state) {
  if (state == ZKE_STATE_EXPIRED)
    link_finish(l, ZKE_SESSIONEXPIRED, ZKE_SESSIONEXPIRED);
  else
    link_finish(l, ZKE_AUTHFAILED, ZKE_CONNECTIONLOSS);
  l->c.ended(l->c.owner, state);
}

/* Send as much as fits into the socket; the rest follows when it has room.  May
 * lose the connection.  asked_ms is set by the first byte that leaves after the
 * server was heard, and not moved by later ones: it shows how long the server
 * has been silent. */
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
 * Frames are put into one buffer and leave in that order.  A request stores its
 * offset among all bytes ever written, so after a loss it is known whether it
 * has left. */

/* One frame: a header, then a record or a request's body. */
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

/* Without a connection nothing is kept: the owner sends all of these again on
 * the next one. */
void zke_link_put(zk_link *l, int32_t xid, int type,
                  const zke_jute_record *record, const void *in) {
  if (l->state != LINK_UP) return;
  if (xid == ZK_LINK_XID_WATCHES) l->watches_due++;
  link_frame(l, xid, type, record, in, NULL);
}

/* Numbers of requests are positive, and start again after the last one.
 * Replies out of order have numbers below zero. */
static int32_t link_next_xid(zk_link *l) {
  l->xid = l->xid == INT32_MAX ? 1 : l->xid + 1;
  return l->xid;
}

/* Put a request into the buffer, and into the list that gives the order of the
 * replies.  The sync has the number just before the request's, by which
 * link_take_reply() recognises its reply. */
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

/* It is sent now if there is a connection, else by the next one.  May lose the
 * connection, and so end requests, including this one. */
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

/* Only for a request that waits for a connection: the effect of one that has
 * left is unknown, and its reply must find it. */
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
 * From a name to a session on a server: look up, connect, greet.  Addresses are
 * tried in a random order, each for its share of the time; names are looked up
 * again only after a whole round has failed, since the resolver may block. */

/* Add the addresses of one server.  A host that the resolver does not know has
 * none.  getaddrinfo() may block for as long as the resolver does, with the
 * owner's lock held. */
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

/* Look up all servers, and put their addresses into a random order, to spread
 * clients over the servers.  If no name can be looked up, the known addresses
 * stay: the resolver may be down while the servers are not. */
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

/* How long one address may take to connect, and then to greet.  All of them can
 * be tried within two thirds of the session's timeout, if each gets enough
 * time.  A short requested timeout does not shorten this: servers may grant a
 * longer one. */
static int64_t opening_time(const zk_link *l) {
  int64_t share = 2 * third(l) / l->count;
  if (share > third(l)) share = third(l);
  return share > LINK_OPEN_LEAST ? share : LINK_OPEN_LEAST;
}

/* There is no socket for the next address.  If the host does not support its
 * kind (IPv6 is switched off), the next one is tried.  After a whole round, and
 * if descriptors or memory are short, there is a pause. */
static void link_skip(zk_link *l, int error) {
  bool unknown = error == EAFNOSUPPORT || error == EPROTONOSUPPORT;
  bool go_on = unknown && l->tried < l->count;
  l->state = LINK_OFF;
  l->retry_ms = l->now_ms + (go_on ? 0 : LINK_PAUSE_MOST);
  if (go_on) return;
  l->lookup_due = unknown;
  l->tried = 0;
}

/* Begin a connection to the next address.  If names must be looked up, a step
 * does only that: the resolver may block for longer than an address's time, and
 * only the next step knows the time afterwards. */
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

/* Connected: begin the session, or resume it.  The server's time begins here: a
 * program that steps seldom may find the connection only when the time to
 * connect is over.  A read-only server is never requested: its state may be
 * old, and it accepts no change.  A server that is behind the zxid refuses, and
 * then the next one is tried. */
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

/* Has connect() ended?  When the socket is writable, SO_ERROR has the result.
 */
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

/* Process the server's answer to the greeting.  The session is ours if it has
 * the requested number; another one, or 0, means that ours is over.  A new
 * session takes the server's values.  Then the owner sends first (connected()),
 * and requests that have waited follow: so watches and identities are set
 * before any read. */
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
 * Bytes become frames, and frames become events, replies, or the end of the
 * connection.  A server is not trusted: lengths, numbers and types are checked
 * before they are used. */

/* The events that a server sends: a node was created, deleted or changed, or
 * its children were.  Other types are a client's own, or a later version's. */
static bool event_is_known(int type) {
  return type >= ZKE_EVENT_CREATED && type <= ZKE_EVENT_CHILD;
}

/* An event goes to the owner before the replies after it: so a change is never
 * read before its event is there.  An event of an unknown type is ignored, and
 * a malformed one ends the connection. */
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

/* ZooKeeper's codes have zkembed's numbers.  A code without a name here would
 * mean nothing, so a caller only sees codes of zkembed.h. */
int zke_link_code(int32_t err) {
  if (err > 0 || !strcmp(zke_error_name(err), "ZKE_UNKNOWN"))
    return ZKE_SYSTEMERROR;
  return err;
}

/* Keep the bytes after the header for the waiting caller, since the next frame
 * uses the buffer.  The block has one byte more, so an empty reply has one,
 * too. */
static bool request_keep(zk_request *r, const zke_jute_reader *frame) {
  size_t len = (size_t)(frame->end - frame->at);
  r->frame = malloc(len + 1);
  if (!r->frame) return false;
  memcpy(r->frame, frame->at, len);
  r->reply = (zke_jute_reader){.at = r->frame, .end = r->frame + len};
  return true;
}

/* Take the reply to the oldest request, or to the sync before it.  Replies come
 * in the order of requests, so any other number is an error of the server,
 * which ends the connection.  The request leaves the list before it is over.  A
 * failed sync fails the read after it, which may have read old data. */
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

/* Record the zxid of a header.  The events of all changes up to a reply's zxid
 * have come before the reply, except in two cases:
 * - While a setWatches2 has no reply, its watches are not set yet, and the
 *   events they have missed are still to come.  Other replies do not change
 *   that.
 * - An event may have the zxid of its change, and a change may have more
 *   events. */
static void link_note_zxid(zk_link *l, const zke_jute_reply_header *h) {
  if (h->zxid > l->zxid) l->zxid = h->zxid;
  if (h->xid == ZK_LINK_XID_WATCHES && !h->err && l->watches_due)
    l->watches_due--;
  if (h->xid == ZKE_JUTE_XID_EVENT || l->watches_due) return;
  if (h->zxid > l->complete_zxid) l->complete_zxid = h->zxid;
}

/* A server's internal code for an unknown session.  A server that has just
 * removed the session answers later requests with it. */
enum { LINK_UNKNOWN_SESSION = -12 };

/* One whole frame.  It may end the connection, or the session.  The zxid is
 * recorded first, for the callbacks to find it. */
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

/* Process all complete frames.  The rest moves to the beginning of the buffer.
 * Stops if a frame has ended the connection. */
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
  free(l->in); /* the room of a long reply is not kept */
  l->in = NULL;
  l->in_size = 0;
}

/* Room for one more chunk.  The buffer grows with the bytes received, not with
 * a frame's length: a length of 2 GiB costs a hostile server 2 GiB. */
static bool link_make_room(zk_link *l) {
  if (l->in_size - l->in_len >= LINK_CHUNK) return true;
  size_t size = l->in_len + l->in_len / 2 + 2 * LINK_CHUNK;
  char *grown = realloc(l->in, size);
  if (!grown) return false;
  l->in = grown;
  l->in_size = size;
  return true;
}

/* Read the available bytes, but only some chunks, so a server that sends
 * without end does not keep the caller from its own work.  Any byte counts as a
 * sign of life, even half a frame. */
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
 * The caller's loop calls these.  Begin reading here. */

/* On an open connection: give up a silent server, and ping if nothing was sent
 * for a third of the timeout.  The bytes of this step are processed before: see
 * zke_link_step(). */
static void link_keep_alive(zk_link *l) {
  if (l->asked_ms && l->now_ms >= silent_since(l) + 2 * third(l)) {
    link_lose(l, "the server is silent");
    return;
  }
  if (l->now_ms >= l->sent_ms + third(l)) {
    l->sent_ms = l->now_ms; /* even if the socket accepts nothing now */
    zke_link_put(l, ZKE_JUTE_XID_PING, ZKE_JUTE_PING, NULL, NULL);
  }
  link_flush(l);
}

/* First read what has come, then do what is due: a process that was stopped for
 * long reads its replies before it judges the server by the time. */
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

/* A connecting socket becomes writable when connect() has ended, well or badly.
 */
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

/* Requests that are not over end as at a close. */
void zke_link_free(zk_link *l) {
  if (!l) return;
  zke_link_end(l, ZKE_CLOSING);
  zke_jute_writer_free(&l->out);
  free(l->in);
  free(l->addresses);
  free(l);
}

/* Also called without the owner's mutex. */
int64_t zke_link_session(const zk_link *l) {
  return __atomic_load_n(&l->c.session, __ATOMIC_RELAXED);
}
const unsigned char *zke_link_password(const zk_link *l) {
  return l->c.password;
}
int64_t zke_link_timeout(const zk_link *l) { return l->c.timeout_ms; }
int64_t zke_link_zxid(const zk_link *l) { return l->zxid; }
/* setWatches2 asks for the events missed since then. */
int64_t zke_link_complete(const zk_link *l) { return l->complete_zxid; }
