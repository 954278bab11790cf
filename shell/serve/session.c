/* session.c - sessions of the protocol server
 *
 * A client's session is a kept session of the library (zke_attach()): it
 * outlives its connection, and the server.  This file knows when it ends, which
 * connection it has, and which of its events have been sent.
 *
 *     client_open(), client_attach() --> connected <--\
 *                                         |   |       | client_attach()
 *                 its connection has gone |   |       |
 *                                         |   \--> away
 *                                         v         |
 *                 over: its time is over, or another process has ended it, or
 *                 another server has it now
 *
 * Time: ZooKeeper's rules.  A session that was silent for its timeout ends at
 * the next tick.  The clock is the server's, which advances by half a tick at
 * most while the server stands still.  The library's own timeout is longer: it
 * ends the sessions of a dead server.
 */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

/* ------------------------------------------------------------------------
 * Events
 *
 * Events go from the library's queue into a connection's output at three
 * moments: before an answer that may show their change, when the store's
 * descriptor reports them, and before a watch is changed.
 * --------------------------------------------------------------------- */

/* How many events of a session the library keeps; once a round they go into its
 * connection's output.  One transaction may make very many, for a watch of a
 * whole tree.  If there are more, the client loses some, and those of lasting
 * watches are not repeated when it comes back. */
enum { EVENTS_MOST = 1 << 20 };

/* Should the client get this event?  Answers do not count for the limit of
 * waiting bytes: one may be large, and its client reads it.  The library's own
 * additions to ZooKeeper's events are not for the wire: if events were dropped,
 * the connection is dropped, too.  No event tells a client that; but when it
 * comes back, it names its watches with the last zxid that it saw. */
static bool is_for_client(conn *c, int type) {
  conns_relieve(c->server);
  if (c->gone || c->dropped) return false;
  if (type == ZKE_EVENT_OVERFLOW)
    conn_tell(c, TELL_UNREAD,
              "ended, since more than %d events waited for it at a time, and "
              "were lost",
              EVENTS_MOST);
  else if (c->events > CONN_OUT_MOST)
    conn_tell(c, TELL_UNREAD,
              "ended, since %zu bytes of events wait for it and further ones "
              "would be lost",
              c->events);
  else
    return type > 0;
  conn_drop(c);
  return false;
}

/* The watcher of all watches on the wire: puts the event into the connection's
 * output.  The events of one dispatch come in the library's order, which is
 * ZooKeeper's. */
void client_watcher(zke *z, int type, int state, const char *path,
                    void *context) {
  conn *c = context;
  (void)z, (void)state;
  if (!is_for_client(c, type)) return;
  fault_event(c->server, c, path);
  zke_jute_reply_header head = {ZKE_JUTE_XID_EVENT, -1, 0};
  zke_jute_watcher_event event = {type, ZKE_STATE_CONNECTED, path};
  size_t at = zke_jute_begin(&c->out);
  zke_jute_write(&c->out, &zke_jute_of_reply_header, &head);
  zke_jute_write(&c->out, &zke_jute_of_watcher_event, &event);
  zke_jute_end(&c->out, at);
  conn_event(c, c->out.len - at);
  c->issued++;
  c->server->counts.sent++;
  conn_touch(c);
}

/* Marks the session; it ends in the next round.  It does not end here, because
 * the caller may be inside a call of the library on its handle. */
void client_over(client *session) {
  session->over = true;
  session->server->some_over = true;
}

/* The default watcher: the session has ended, but not by its client: a person
 * has expired it, or another server on the file has it now. */
static void client_ended(zke *z, int type, int state, const char *path,
                         void *context) {
  (void)z, (void)path;
  if (type == ZKE_EVENT_SESSION &&
      (state == ZKE_STATE_EXPIRED || state == ZKE_STATE_MOVED))
    client_over(context);
}

/* Sends the events of changes up to a zxid, so that a reply that shows a change
 * comes after the event of that change.  False: they cannot be read now, and
 * such a reply must not come before them.  client_ended() handles the session's
 * end. */
bool client_events(client *session, int64_t zxid) {
  int rc = zke_dispatch_to(session->z, zxid, NULL, NULL);
  return rc == ZKE_OK || rc == ZKE_SESSIONEXPIRED || rc == ZKE_SESSIONMOVED ||
         rc == ZKE_INVALIDSTATE;
}

/* Short, so that a client whose request need not wait hardly notices; longer
 * while processes write without a pause, so that the server gets its turn. */
enum { PATIENCE_MS = 20, PATIENCE_MOST_MS = 100 };

void server_limit(server *s, zke *z) {
  int64_t ms = PATIENCE_MS * (int64_t)(s->blocked_rounds + 1);
  if (ms > PATIENCE_MOST_MS) ms = PATIENCE_MOST_MS;
  zke_limit(z, s->blocked ? 0 : zke_now(z) + ms);
}

/* A thread has one limit, so any handle can remove it. */
void server_unlimit(server *s) { zke_limit(s->z, ZKE_FOREVER); }

/* Records that another process has the file: further calls of this round try
 * once and do not wait. */
void server_blocked(server *s) { s->blocked = true; }

/* The function of a batch that changes nothing. */
static int write_nothing(zke *z, void *context) {
  (void)z, (void)context;
  return ZKE_OK;
}

/* Tries a batch without changes, which costs no sync. */
bool server_can_write(server *s) {
  server_limit(s, s->z);
  if (zke_batch(s->z, write_nothing, NULL) == ZKE_OPERATIONTIMEOUT)
    server_blocked(s);
  server_unlimit(s);
  return !s->blocked;
}

/* Records the zxid of the thread's latest call, unless a greater one is
 * known. */
void server_saw(server *s) {
  int64_t zxid = zke_zxid();
  if (zxid > s->zxid) s->zxid = zxid;
}

/* The file's current zxid; if it cannot be read, the latest known one. */
int64_t server_zxid(server *s) {
  if (zke_exists(s->z, "/", NULL, NULL, NULL) == ZKE_OK) server_saw(s);
  return s->zxid;
}

/* ------------------------------------------------------------------------
 * Beginning and end
 *
 * A session's handle and its place in the server's list begin and end together:
 * client_enter() and client_free().
 * --------------------------------------------------------------------- */

/* The timeout that a client asks for, brought into the server's limits. */
static int64_t negotiate(const server *s, int64_t timeout_ms) {
  if (timeout_ms < s->timeout_min_ms) return s->timeout_min_ms;
  return timeout_ms > s->timeout_max_ms ? s->timeout_max_ms : timeout_ms;
}

/* The time is rounded up to the next tick, so that a session lives longer than
 * its timeout, but by at most one tick. */
void client_heard(server *s, client *session) {
  int64_t end = s->now_ms + session->timeout_ms;
  session->expires_ms = (end / s->tick_ms + 1) * s->tick_ms;
  zke_touch(session->z);
}

/* Is the session's client connected, and not held? */
static bool is_connected(const client *session) {
  const conn *c = session->conn;
  return c && !c->dropped && !c->gone && !c->faults.deaf;
}

/* After the clock was moved: sessions whose clients are connected and not held
 * count as heard from. */
void clients_heard(server *s) {
  for (client *at = s->sessions; at; at = at->next)
    if (is_connected(at)) client_heard(s, at);
}

/* The options of the library's session.  Its timeout ends the sessions of a
 * dead server.  While the server lives, the server's own timeout must come
 * first, even if the library counts a pause of the server as 1.5 seconds.  One
 * short frame can ask for a large node thousands of times, so a multiRead's
 * data has a limit. */
static zke_options options_for(const server *s, client *session,
                               int64_t timeout_ms, const conn *c) {
  enum { PAUSE_MS = 1500, READ_MOST = 64 * 1024 * 1024 };
  zke_options o = ZKE_INIT(zke_options);
  o.timeout_ms = negotiate(s, timeout_ms) + 2 * s->tick_ms + PAUSE_MS;
  o.watcher = client_ended;
  o.watcher_context = session;
  o.event_limit = EVENTS_MOST;
  o.identity = c->address;
  o.read_limit = READ_MOST;
  return o;
}

/* A session that is not in the list; NULL without memory. */
static client *client_new(server *s) {
  client *new = calloc(1, sizeof *new);
  if (new) new->server = s;
  return new;
}

/* Puts it into the list, once it has its handle. */
static void client_enter(server *s, client *new) {
  new->id = zke_session_id(new->z);
  zke_password(new->z, new->password);
  new->next = s->sessions;
  new->link = &s->sessions;
  if (new->next) new->next->link = &new->next;
  s->sessions = new;
  s->session_count++;
}

/* Gives it its connection.  A TCP connection has its address as an identity. */
static void client_connect(server *s, client *session, conn *c,
                           int64_t timeout_ms) {
  session->timeout_ms = negotiate(s, timeout_ms);
  session->conn = c;
  c->session = session;
  if (!c->is_unix) zke_vouch(session->z, "ip", c->address);
  client_heard(s, session);
}

/* A new session, connected to c.  On failure c is unchanged, and ZooKeeper's
 * code says why. */
int client_open(server *s, conn *c, int64_t timeout_ms) {
  client *new = client_new(s);
  if (!new) return ZKE_NOMEM;
  zke_options options = options_for(s, new, timeout_ms, c);
  int rc = zke_open_session(s->z, &options, &new->z);
  if (rc != ZKE_OK) {
    free(new);
    return rc;
  }
  client_enter(s, new);
  client_connect(s, new, c, timeout_ms);
  return ZKE_OK;
}

/* This server's session with that id, unless it is over; NULL: none. */
client *client_find(server *s, int64_t id) {
  for (client *at = s->sessions; at; at = at->next)
    if (at->id == id && !at->over) return at;
  return NULL;
}

/* The watches of a connection are rows of the session, and go with the
 * connection.  If that cannot be written now, their events are lost. */
void client_detach(client *session) {
  conn *c = session->conn;
  session->conn = NULL;
  if (!c) return;
  c->session = NULL;
  server_limit(session->server, session->z);
  if (zke_forget(session->z, client_watcher, c) == ZKE_OPERATIONTIMEOUT)
    server_blocked(session->server);
  server_unlimit(session->server);
}

/* Drops a session's connection. */
static void client_disconnect(client *session) {
  if (session->conn) conn_drop(session->conn);
  client_detach(session);
}

/* The library's attachment is new each time: watches, pending events and
 * identities of the old connection are gone.  A session that this server does
 * not have may be another server's, or from before a restart.  A wrong password
 * also closes the session's connection, as in ZooKeeper. */
int client_attach(server *s, conn *c, int64_t id, const char *password,
                  int64_t timeout_ms) {
  client *session = client_find(s, id), *new = NULL;
  zke *z;
  if (!session) session = new = client_new(s);
  if (!session) return ZKE_NOMEM;
  zke_options options = options_for(s, session, timeout_ms, c);
  int rc = zke_attach(s->z, id, (const unsigned char *)password, &options, &z);
  if (!new && (rc == ZKE_OK || rc == ZKE_AUTHFAILED))
    client_disconnect(session);
  if (rc != ZKE_OK) {
    free(new);
    return rc;
  }
  zke_close(session->z);
  session->z = z;
  if (new) client_enter(s, new);
  client_connect(s, session, c, timeout_ms);
  return ZKE_OK;
}

/* Takes it off the list and frees it; release() gives up its handle. */
static int client_free(server *s, client *session, int (*release)(zke *z)) {
  *session->link = session->next;
  if (session->next) session->next->link = session->link;
  s->session_count--;
  if (session->conn) session->conn->session = NULL;
  int rc = release(session->z);
  free(session);
  return rc;
}

/* Its nodes go in one transaction.  If that cannot be written now, the library
 * does it as soon as possible. */
int client_close(server *s, client *session) {
  return client_free(s, session, zke_close);
}

/* It lives on in the file, unless it is over or now another server's. */
int client_leave(server *s, client *session) {
  int rc = client_free(s, session, zke_detach);
  bool gone = rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE ||
              rc == ZKE_SESSIONMOVED;
  return gone ? ZKE_OK : rc;
}

/* How many sessions end in one round, each by a transaction: other clients'
 * requests come in between. */
enum { END_AT_ONCE = 256 };

/* Checks the sessions' time once a tick, and ended sessions as soon as there is
 * one.  The client of a session that is over finds out when it comes back.
 * While another process writes, sessions stay until the next round. */
bool clients_expire(server *s) {
  bool tick = s->now_ms / s->tick_ms != s->swept_ms / s->tick_ms;
  if (!tick && !s->some_over) return false;
  int left = END_AT_ONCE;
  s->swept_ms = s->now_ms;
  s->some_over = s->is_behind = false;
  for (client *at = s->sessions, *next; at; at = next) {
    next = at->next;
    if (!at->over && s->now_ms < at->expires_ms) continue;
    s->is_behind = s->some_over = left-- == 0;
    if (s->is_behind) break;
    s->some_over = !server_can_write(s);
    if (s->some_over) break;
    s->counts.expired++;
    if (at->conn) conn_drop(at->conn);
    server_limit(s, at->z); /* another process may have begun to write */
    client_close(s, at);
    server_unlimit(s);
  }
  return tick;
}
