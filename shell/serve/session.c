/* session.c - sessions of the protocol server
 *
 * A client's session is a kept session of the library (zke_attach()): it
 * outlives its connection, and the server.  This file knows when it ends, which
 * connection it has, and what of its events has been sent.
 *
 *     client_open(), client_attach() --> connected <--\
 *                                         |   |       | client_attach()
 *                 its connection has gone |   |       |
 *                                         |   \--> away
 *                                         v         |
 *                 over: its time is over, or somebody has ended it, or another
 *                 server has it now
 *
 * Time: ZooKeeper's rules.  A session that was not heard of for its timeout
 * ends at the next tick.  The clock is the server's, which goes on by half a
 * tick at most while the server stands still.  The library's own timeout is
 * longer: it ends the sessions of a server that is gone.
 */
#include <stdlib.h>
#include <string.h>

#include "serve.h"

/* ------------------------------------------------------------------------
 * Events
 *
 * Events go from the library's queue into a connection's output at three
 * moments: before an answer that may show their change, when the store's
 * descriptor tells of them, and before a watch is changed.
 * --------------------------------------------------------------------- */

/* Events of a session that the library keeps until they are put into its
 * connection's output, once a round.  One transaction may make very many, for a
 * watch of a whole tree.  Where they are more the client loses some, and those
 * of watches that stay are not made up for when it comes back. */
enum { EVENTS_MOST = 1 << 20 };

/* Is the client told of it?  Answers do not count for what may wait: one may be
 * large, and its client reads it.  What the library adds to ZooKeeper's is not
 * for the wire: where events were dropped the connection is, too.  Its client
 * comes back and names its watches with what it has seen, which no event does.
 */
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
 * output.  Those of one dispatch come in the library's order, which is
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

/* The session ends in the next round.  It is not ended here, because the
 * caller may be inside a call of the library on its handle. */
void client_over(client *session) {
  session->over = true;
  session->server->some_over = true;
}

/* The default watcher: the session has ended by no doing of its client, because
 * a person has expired it, or another server on the file has it now. */
static void client_ended(zke *z, int type, int state, const char *path,
                         void *context) {
  (void)z, (void)path;
  if (type == ZKE_EVENT_SESSION &&
      (state == ZKE_STATE_EXPIRED || state == ZKE_STATE_MOVED))
    client_over(context);
}

/* Sends the events of changes up to a zxid, so that a reply that shows a
 * change comes behind the event that tells of it.  False: they cannot be read
 * now, and such a reply must not come before them.  That the session has ended
 * is told elsewhere (client_ended()). */
bool client_events(client *session, int64_t zxid) {
  int rc = zke_dispatch_to(session->z, zxid, NULL, NULL);
  return rc == ZKE_OK || rc == ZKE_SESSIONEXPIRED || rc == ZKE_SESSIONMOVED ||
         rc == ZKE_INVALIDSTATE;
}

/* Short, so that a client whose request waits for nobody hardly notices; longer
 * where processes write without pause, so that the server gets its turn among
 * them. */
enum { PATIENCE_MS = 20, PATIENCE_MOST_MS = 100 };

void server_limit(server *s, zke *z) {
  int64_t ms = PATIENCE_MS * (int64_t)(s->blocked_rounds + 1);
  if (ms > PATIENCE_MOST_MS) ms = PATIENCE_MOST_MS;
  zke_limit(z, s->blocked ? 0 : zke_now(z) + ms);
}

/* A thread has one limit, so it is taken back by whichever handle. */
void server_unlimit(server *s) { zke_limit(s->z, ZKE_FOREVER); }

/* Notes that another process has the file: calls of this round try once and do
 * not wait. */
void server_blocked(server *s) { s->blocked = true; }

/* The function of a batch that changes nothing. */
static int write_nothing(zke *z, void *context) {
  (void)z, (void)context;
  return ZKE_OK;
}

/* By a batch without changes, which costs no sync. */
bool server_can_write(server *s) {
  server_limit(s, s->z);
  if (zke_batch(s->z, write_nothing, NULL) == ZKE_OPERATIONTIMEOUT)
    server_blocked(s);
  server_unlimit(s);
  return !s->blocked;
}

/* Notes the zxid of the thread's latest call, if none was greater. */
void server_saw(server *s) {
  int64_t zxid = zke_zxid();
  if (zxid > s->zxid) s->zxid = zxid;
}

/* The zxid that the file has now; where it cannot be read, the latest that was
 * seen. */
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

/* What a client asks for, brought into the server's limits. */
static int64_t negotiate(const server *s, int64_t timeout_ms) {
  if (timeout_ms < s->timeout_min_ms) return s->timeout_min_ms;
  return timeout_ms > s->timeout_max_ms ? s->timeout_max_ms : timeout_ms;
}

/* The time is rounded up to the next tick, so that a session lives for longer
 * than its timeout and no longer than that and a tick. */
void client_heard(server *s, client *session) {
  int64_t end = s->now_ms + session->timeout_ms;
  session->expires_ms = (end / s->tick_ms + 1) * s->tick_ms;
  zke_touch(session->z);
}

/* Is the session's client there, and not held? */
static bool is_connected(const client *session) {
  const conn *c = session->conn;
  return c && !c->dropped && !c->gone && !c->faults.deaf;
}

/* After the clock was moved: sessions whose clients are there and are not held
 * count as heard from. */
void clients_heard(server *s) {
  for (client *at = s->sessions; at; at = at->next)
    if (is_connected(at)) client_heard(s, at);
}

/* The options of the library's session.  Its timeout ends sessions whose server
 * is no more; while the server lives it must not be the earlier one, also where
 * the library counts a pause of the server as 1.5 seconds.  One short frame can
 * ask for a large node thousands of times, so what a multiRead reads has a
 * limit. */
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

/* A session that is in no list; NULL without memory. */
static client *client_new(server *s) {
  client *new = calloc(1, sizeof *new);
  if (new) new->server = s;
  return new;
}

/* Puts it into the list, when it has its handle. */
static void client_enter(server *s, client *new) {
  new->id = zke_session_id(new->z);
  zke_password(new->z, new->password);
  new->next = s->sessions;
  new->link = &s->sessions;
  if (new->next) new->next->link = &new->next;
  s->sessions = new;
  s->session_count++;
}

/* Gives it its connection.  One by TCP has its address as an identity. */
static void client_connect(server *s, client *session, conn *c,
                           int64_t timeout_ms) {
  session->timeout_ms = negotiate(s, timeout_ms);
  session->conn = c;
  c->session = session;
  if (!c->is_unix) zke_vouch(session->z, "ip", c->address);
  client_heard(s, session);
}

/* A new session, connected to c.  On failure c is as it was, and ZooKeeper's
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

/* The session of that number at this server, unless it is over; NULL: none. */
client *client_find(server *s, int64_t id) {
  for (client *at = s->sessions; at; at = at->next)
    if (at->id == id && !at->over) return at;
  return NULL;
}

/* The watches of a connection are rows of the session: they go with it.  If
 * that cannot be written now, they fire into the void. */
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

/* Drops the connection that a session has. */
static void client_disconnect(client *session) {
  if (session->conn) conn_drop(session->conn);
  client_detach(session);
}

/* The library's attachment is a new one each time: watches, pending events and
 * identities of the connection before are gone.  A session that this server
 * does not have may be another's, or from before a restart.  A wrong password
 * closes the session's connection as well, as in ZooKeeper. */
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

/* Takes it off the list, and frees it; its handle goes by this function. */
static int client_free(server *s, client *session, int (*release)(zke *z)) {
  *session->link = session->next;
  if (session->next) session->next->link = session->link;
  s->session_count--;
  if (session->conn) session->conn->session = NULL;
  int rc = release(session->z);
  free(session);
  return rc;
}

/* What it owned goes in one transaction.  Where that cannot be written now, the
 * library does it as soon as it can. */
int client_close(server *s, client *session) {
  return client_free(s, session, zke_close);
}

/* It lives on in the file, unless it is over or another server's by now. */
int client_leave(server *s, client *session) {
  int rc = client_free(s, session, zke_detach);
  bool gone = rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE ||
              rc == ZKE_SESSIONMOVED;
  return gone ? ZKE_OK : rc;
}

/* So many sessions end in one round, each by a transaction: requests of others
 * come in between. */
enum { END_AT_ONCE = 256 };

/* Sessions are looked at once a tick; those that somebody has ended, when one
 * is.  The client of one that is over finds out when it comes back.  While
 * another process writes they have to stay until the next round. */
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
    server_limit(s, at->z); /* another may have begun to write since */
    client_close(s, at);
    server_unlimit(s);
  }
  return tick;
}
