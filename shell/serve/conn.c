/* conn.c - connections of the protocol server: frames in, frames out
 *
 * This file knows sockets and bytes, but not their meaning.  A connection
 * without a whole frame and without output has no buffer, so thousands of idle
 * ones cost little.
 *
 * The frame limit bounds the input.  The output is bounded because no request
 * is read while much output waits (conn_full()).  Begin with conn_read() and
 * conn_flush().
 *
 * When a peer hangs up, the server reads and does all that it had sent in its
 * session, as ZooKeeper does: a client need not wait for the answer to its
 * close.  Usually a write notices the hang-up first (`gone`), and the end of
 * the input comes last (`all_read`).  From then on the client cannot be heard.
 * So if another process's writing delays the connection's requests, it ends
 * with its session at the latest.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve.h"

enum { READ_ONCE = 64 * 1024 };

/* ------------------------------------------------------------------------
 * Spare blocks
 *
 * A request needs room for its input, its answer and the output.  Usually all
 * of it is given back within the round, so a few blocks serve all connections,
 * and idle ones have none.
 * --------------------------------------------------------------------- */

void spare_take(server *s, zke_jute_writer *w) {
  if (!w->data && !w->failed && s->spare_count)
    *w = s->spares[--s->spare_count];
}

/* Frees a large block, and any block if enough are spare, so idle memory is
 * bounded. */
void spare_give(server *s, zke_jute_writer *w) {
  bool keep = w->data && w->size <= SPARE_BYTES && s->spare_count < SPARES_MOST;
  if (keep) {
    s->spares[s->spare_count++] =
        (zke_jute_writer){.data = w->data, .size = w->size};
    w->data = NULL;
  }
  zke_jute_writer_free(w);
}

void spares_free(server *s) {
  while (s->spare_count) zke_jute_writer_free(&s->spares[--s->spare_count]);
}

/* ------------------------------------------------------------------------
 * Life
 *
 * From accept() to the socket's end.  A connection is ended in two steps:
 * conn_end() and conn_drop() only mark it, and the loop frees it when no
 * function uses it (serve.c).
 * --------------------------------------------------------------------- */

/* The peer's address as text, and its port. */
static void name_peer(conn *c, const struct sockaddr_storage *peer) {
  const void *address = NULL;
  if (peer->ss_family == AF_INET) {
    const struct sockaddr_in *in = (const void *)peer;
    address = &in->sin_addr;
    c->port = ntohs(in->sin_port);
  } else if (peer->ss_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const void *)peer;
    address = &in->sin6_addr;
    c->port = ntohs(in->sin6_port);
  }
  if (!address ||
      !inet_ntop(peer->ss_family, address, c->address, sizeof c->address))
    memcpy(c->address, "local", sizeof "local");
}

/* Does that address have as many connections as allowed?  Dropped ones do not
 * count: otherwise a client that reconnects would be refused because of its own
 * old connection. */
static bool is_over_limit(const server *s, const conn *c) {
  int count = 0;
  if (!s->address_most || c->is_unix) return false;
  for (const conn *other = s->conns; other; other = other->next)
    count += !other->dropped && strcmp(other->address, c->address) == 0;
  if (count < s->address_most) return false;
  conn_tell(c, TELL_CONNECTIONS,
            "refused, since its address has %d (--connections)", count);
  return true;
}

/* Puts a connection into the server's list and into epoll; false on failure. */
static bool conn_enter(server *s, conn *c) {
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = &c->source};
  if (epoll_ctl(s->epoll, EPOLL_CTL_ADD, c->source.fd, &e) != 0) return false;
  c->next = s->conns;
  c->link = &s->conns;
  if (c->next) c->next->link = &c->next;
  c->waited = EPOLLIN;
  s->conns = c;
  s->conn_count++;
  s->counts.accepted++;
  return true;
}

/* Is there a descriptor for one more connection?  The limit may be changed from
 * outside, so this asks for it. */
static bool has_descriptor(server *s) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  int used = s->own_descriptors + s->conn_count;
  if ((rlim_t)used + DESCRIPTORS_KEPT < limit.rlim_cur) return true;
  server_tell(s, TELL_DESCRIPTORS, "",
              "a client waits until another goes: %d of %llu are in use, and "
              "%d are kept for files (ulimit -Hn)",
              used, (unsigned long long)limit.rlim_cur, DESCRIPTORS_KEPT);
  return false;
}

/* The next client's descriptor, or -1 if there is no client, or no descriptor
 * for it.  Then the client waits in the socket's queue until another one
 * goes. */
static int accept_client(server *s, int listener,
                         struct sockaddr_storage *peer) {
  socklen_t len = sizeof *peer;
  if (!has_descriptor(s)) {
    s->listening_off = true;
    return -1;
  }
  int fd = accept4(listener, (struct sockaddr *)peer, &len,
                   SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
                 errno == ENOMEM)) {
    s->listening_off = true;
    server_tell(s, TELL_DESCRIPTORS, "", "a client waits: %s", strerror(errno));
  }
  return fd;
}

/* A connection that cannot be kept is closed immediately, as in ZooKeeper: its
 * client tries again. */
conn *conn_accept(server *s, int listener, bool is_unix,
                  void (*ready)(server *s, source *from, unsigned events)) {
  struct sockaddr_storage peer = {0};
  int yes = 1;
  int fd = accept_client(s, listener, &peer);
  if (fd < 0) return NULL;
  conn *c = calloc(1, sizeof *c);
  if (!c) {
    close(fd);
    return NULL;
  }
  c->source = (source){fd, ready};
  c->server = s;
  c->is_unix = is_unix;
  c->since_ms = c->heard_ms = s->now_ms;
  name_peer(c, &peer);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  bool refused = is_over_limit(s, c);
  s->counts.refused += refused;
  if (refused || !conn_enter(s, c)) {
    close(fd);
    free(c);
    return NULL;
  }
  return c;
}

/* Puts the connection into the list for this round or the next, only once
 * however often it is touched. */
void conn_touch(conn *c) {
  if (c->is_busy) return;
  c->is_busy = true;
  c->busy_next = c->server->busy;
  c->server->busy = c;
}

/* Ends the connection when its output has been sent. */
void conn_end(conn *c) {
  c->ended = true;
  conn_touch(c);
}

/* Ends the connection immediately: unsent output is lost.  This frees nothing,
 * since the caller may be inside a loop over connections. */
void conn_drop(conn *c) {
  c->dropped = true;
  conn_touch(c);
}

/* Closes the socket and frees the connection, which no longer has a session and
 * is in no list but the server's. */
void conn_free(conn *c) {
  *c->link = c->next;
  if (c->next) c->next->link = c->link;
  c->server->conn_count--;
  c->server->events -= c->events;
  close(c->source.fd);
  while (c->identities) {
    identity *first = c->identities;
    c->identities = first->next;
    free(first);
  }
  sasl_free(c);
  zke_jute_writer_free(&c->out);
  free(c->in);
  free(c);
}

/* ------------------------------------------------------------------------
 * In
 *
 * Bytes are kept until they are a whole frame; this section does not look into
 * it.
 * --------------------------------------------------------------------- */

/* Appends input.  The buffer holds at most a frame or READ_ONCE, plus one read:
 * conn_read(). */
static bool keep(conn *c, const char *data, size_t len) {
  zke_jute_writer spare = {0};
  if (!c->in) {
    spare_take(c->server, &spare);
    c->in = spare.data;
    c->in_size = spare.size;
  }
  if (c->in && c->in_at) memmove(c->in, c->in + c->in_at, c->in_len - c->in_at);
  c->in_len -= c->in_at;
  c->in_at = 0;
  if (!c->in || c->in_size - c->in_len < len) {
    size_t wanted = c->in_len + len + c->in_len / 2;
    char *grown = realloc(c->in, wanted);
    if (!grown) return false;
    c->in = grown;
    c->in_size = wanted;
  }
  memcpy(c->in + c->in_len, data, len);
  c->in_len += len;
  return true;
}

/* Ends a connection whose next bytes do not begin a frame.  If the client was
 * not greeted, they are an unknown word, or another protocol. */
static void refuse_frame(conn *c, const char *bytes, int32_t len) {
  if (!c->greeted)
    conn_tell(
        c, TELL_FRAME,
        "ended, since its first bytes, \"%.4s\", begin neither a word nor "
        "a frame",
        bytes);
  else
    conn_tell(c, TELL_FRAME,
              "ended, since one has %" PRId32 " bytes, and %d are the most",
              len, ZKE_JUTE_FRAME_LIMIT);
  conn_drop(c);
}

/* A frame above the limit is not read: nothing after it could be understood, so
 * the connection ends, as in ZooKeeper. */
char *conn_frame(conn *c, size_t skip, size_t *len_out) {
  size_t at = c->in_at + skip;
  if (c->in_len < at + 4 || c->dropped || c->ended) return NULL;
  if (c->is_text || c->faults.deaf) return NULL;
  int32_t len = zke_jute_length(c->in + at);
  if (len < 0 || len > ZKE_JUTE_FRAME_LIMIT) {
    if (skip == 0) refuse_frame(c, c->in + at, len);
    return NULL;
  }
  *len_out = (size_t)len;
  return c->in_len - at - 4 < (size_t)len ? NULL : c->in + at + 4;
}

/* The first frame was taken.  This gives an empty buffer back: most connections
 * are idle, and ten thousand buffers would need much memory. */
void conn_taken(conn *c, size_t len) {
  c->in_at += 4 + len;
  if (c->in_at < c->in_len) return;
  spare_give(c->server, &(zke_jute_writer){.data = c->in, .size = c->in_size});
  c->in = NULL;
  c->in_at = c->in_len = c->in_size = 0;
}

/* Is nothing left to do for a peer that has hung up?  A session that has not
 * begun is not begun for it: that might take the session of a later connection
 * of the same client.  A fault that holds its input holds it for ever. */
static bool is_done(conn *c) {
  size_t len;
  if (!c->session || c->faults.deaf) return true;
  return c->all_read && !conn_frame(c, 0, &len);
}

/* The system knows this before all input has been read. */
bool conn_hung_up(const conn *c) {
  struct pollfd p = {c->source.fd, POLLRDHUP, 0};
  return c->gone || poll(&p, 1, 0) > 0;
}

/* Drops it immediately if nothing is left to do: if the client comes back in
 * the same round, it must not be refused because of this connection
 * (is_over_limit()). */
void conn_gone(conn *c) {
  c->gone = true;
  if (is_done(c)) conn_drop(c);
}

/* The input has ended.  Epoll would report this in each round, whatever it is
 * asked for, so it forgets the connection. */
static void end_reading(conn *c) {
  c->all_read = true;
  c->waited = 0;
  epoll_ctl(c->server->epoll, EPOLL_CTL_DEL, c->source.fd, NULL);
  conn_gone(c);
}

/* Reads once, unless there is a whole frame with much input after it: then
 * requests come faster than they are taken.  Epoll reports the rest in the
 * socket again.  A connection has one HTTP request: input after it is discarded
 * while its answer is pending. */
void conn_read(conn *c) {
  char buffer[READ_ONCE];
  size_t len;
  if (c->in_len - c->in_at >= READ_ONCE && conn_frame(c, 0, &len)) return;
  ssize_t n = recv(c->source.fd, buffer, sizeof buffer, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0 && c->is_text && c->greeted) return;
  if (n <= 0 || !keep(c, buffer, (size_t)n)) end_reading(c);
}

/* ------------------------------------------------------------------------
 * Out
 *
 * Output goes into a buffer first; conn_flush(), which the loop calls before
 * and after it takes requests, writes it to the socket.  A slow reader is held
 * back in two ways: none of its further requests is read, and if events alone
 * fill the buffer the connection ends (session.c).
 * --------------------------------------------------------------------- */

size_t conn_unread(const conn *c) { return c->out.len - c->sent; }

/* A client that does not read its answers gets no more of them. */
bool conn_full(const conn *c) { return conn_unread(c) >= CONN_OUT_ENOUGH; }

/* A list of clients or of watches may be long, and the client that asks for it
 * need not read it, nor authenticate.  So no list is begun while connections
 * that are about to end have left much unread, all of them together. */
bool conn_takes_text(conn *c) {
  size_t unread = 0;
  for (const conn *other = c->server->conns; other; other = other->next)
    if (other->ended) unread += other->out.len - other->sent;
  if (unread <= CONN_OUT_MOST) return true;
  conn_tell(c, TELL_UNREAD,
            "refused a list, since other clients have left %zu bytes "
            "unread",
            unread);
  conn_drop(c);
  return false;
}

/* The end of the output that may be sent now. */
static size_t sendable(const conn *c) {
  return c->faults.mute_by ? c->faults.mute_at : c->out.len;
}

/* Removes sent bytes from the buffer: all of it, or enough to be worth a
 * move. */
static void forget_sent(conn *c) {
  if (c->sent == c->out.len) {
    spare_give(c->server, &c->out);
  } else if (c->sent > CONN_OUT_ENOUGH) {
    memmove(c->out.data, c->out.data + c->sent, c->out.len - c->sent);
    c->out.len -= c->sent;
  } else {
    return;
  }
  if (c->faults.mute_by) c->faults.mute_at -= c->sent;
  c->sent = 0;
}

/* Sent bytes may have been events: the count is at most the output that is
 * left. */
static void count_events(conn *c) {
  if (c->events <= conn_unread(c)) return;
  c->server->events -= c->events - conn_unread(c);
  c->events = conn_unread(c);
}

/* Waits for requests unless much output waits: a client that does not read is
 * stopped. */
static void wait_for_more(conn *c) {
  struct epoll_event e = {.data.ptr = &c->source};
  if (c->sent < sendable(c)) e.events |= EPOLLOUT;
  if (!conn_full(c) && !c->ended && !c->faults.deaf) e.events |= EPOLLIN;
  if (e.events == c->waited) return;
  c->waited = e.events;
  epoll_ctl(c->server->epoll, EPOLL_CTL_MOD, c->source.fd, &e);
}

/* There is no reader for the output.  Output that a fault holds is lost,
 * too. */
static void throw_away(conn *c) {
  c->sent = c->out.len;
  c->faults.mute_by = 0;
  forget_sent(c);
  count_events(c);
}

void conn_event(conn *c, size_t len) {
  c->events += len;
  c->server->events += len;
}

/* Many clients that do not read could together take all memory, each below its
 * own limit.  This frees the connection's output now and not when it is closed,
 * since further events may come before. */
void conns_relieve(server *s) {
  conn *most = s->conns;
  if (!most || s->events <= EVENTS_UNREAD_MOST) return;
  for (conn *c = most; c; c = c->next)
    if (c->events > most->events) most = c;
  conn_tell(
      most, TELL_UNREAD,
      "ended, since %zu bytes of events wait for clients, and %zu of them "
      "for it",
      s->events, most->events);
  throw_away(most);
  conn_drop(most);
}

/* A write has failed.  Usually the peer has hung up; otherwise it may live, and
 * would wait for its answers for ever. */
static void send_failed(conn *c) {
  if (errno == EPIPE || errno == ECONNRESET || errno == ETIMEDOUT)
    c->gone = true;
  else
    conn_drop(c);
}

/* Sends the output, as far as the socket accepts it. */
static void send_out(conn *c) {
  while (!c->dropped && !c->gone && c->sent < sendable(c)) {
    ssize_t n = send(c->source.fd, c->out.data + c->sent, sendable(c) - c->sent,
                     MSG_NOSIGNAL);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0 && errno != EINTR) send_failed(c);
    if (n < 0) continue;
    c->sent += (size_t)n;
    if (c->ended)
      c->heard_ms = c->server->now_ms; /* it reads (drop_silent()) */
  }
}

/* Usually a write notices that a peer has hung up.  Its last input may still be
 * in the socket then, so reading continues to the end. */
void conn_flush(conn *c) {
  if (c->out.failed) conn_drop(c); /* its last frame may be incomplete */
  send_out(c);
  forget_sent(c);
  count_events(c);
  if (c->gone) throw_away(c);
  if (c->gone) conn_gone(c);
  if (c->ended && c->out.len == 0) conn_drop(c);
  if (!c->dropped && !c->all_read) wait_for_more(c);
}
