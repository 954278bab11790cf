/* raw.c - a ZooKeeper session through its wire protocol
 *
 * One connection, which waits for each reply.  It makes the checks that
 * ZooKeeper's C client makes before sending (semantics.md 1.3, 2.1, 4, 6),
 * since zkembed is client and server together.  For operations that the C
 * client lacks it applies the same rules.  Replies come in order, with events
 * between them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "wire.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

int cf_port;

/* Nobody pings: a session lives long, until it asks for the shortest
 * timeout. */
enum { REPLY_MS = 60000, PASSWORD = 16 };

typedef enum raw_state { RAW_ALIVE, RAW_EXPIRED, RAW_AUTH_FAILED } raw_state;

struct cf_raw {
  peer peer;
  raw_state state;
  char *chroot;
  int64_t id, zxid;
  char password[PASSWORD];
  int xid;
  bool starting; /* the server may not be up yet: silence is the end */
  cf_events events;
};

/* ---- frames ---- */

/* A server that is starting may hang up. */
static void send_frame(cf_raw *r) {
  if (!peer_send(&r->peer) && !r->starting) cf_die("the server has hung up");
}

/* The next frame, in memory of the operation; the reader must be freed. */
static bool receive_frame(cf_raw *r, zke_jute_reader *in) {
  zke_jute_reader came;
  int outcome = peer_next(&r->peer, r->starting ? 1000 : REPLY_MS, &came);
  if (outcome == PEER_SILENT && !r->starting)
    cf_die("the server has not answered for %d s", REPLY_MS / 1000);
  if (outcome != PEER_FRAME) return false;
  size_t len = (size_t)(came.end - came.at);
  char *copy = cf_copy(came.at, len);
  *in = (zke_jute_reader){.at = copy, .end = copy + len};
  return true;
}

static void get(zke_jute_reader *in, const zke_jute_record *record, void *to) {
  if (!zke_jute_read(in, record, to)) cf_die("a reply is cut short");
}

/* A path as this session sees it. */
static const char *visible(const cf_raw *r, const char *path) {
  size_t len = strlen(r->chroot);
  if (strncmp(path, r->chroot, len) != 0) return path;
  return path[len] ? path + len : "/";
}

static void note_event(cf_raw *r, zke_jute_reader *in) {
  zke_jute_watcher_event e;
  get(in, &zke_jute_of_watcher_event, &e);
  cf_events_add(&r->events, e.type, e.state, visible(r, e.path), 1);
}

/* Receive up to the reply with this xid; *rc is its error. */
static bool receive_reply(cf_raw *r, int xid, int *rc, zke_jute_reader *in) {
  zke_jute_reply_header head;
  while (receive_frame(r, in)) {
    get(in, &zke_jute_of_reply_header, &head);
    *rc = head.err;
    if (head.xid == xid) {
      r->zxid = head.zxid;
      return true;
    }
    if (head.xid != ZKE_JUTE_XID_EVENT)
      cf_die("reply %d when %d was due", head.xid, xid);
    note_event(r, in);
  }
  return false;
}

/* ---- what the C client checks ---- */

/* The client's answer without asking the server; ZKE_OK: ask. */
static int client_answer(const cf_raw *r, const cf_op *op) {
  bool several = op->kind == CF_MULTI || op->kind == CF_MULTI_READ;
  for (int i = 0; several && i < op->count; i++) {
    if (!cf_client_passes(&op->subs[i])) return ZKE_MARSHALLINGERROR;
  }
  bool pathless = several || op->kind == CF_ADD_AUTH ||
                  op->kind == CF_EPHEMERALS || op->kind == CF_SYNC;
  if (!pathless && !cf_client_passes(op)) return ZKE_BADARGUMENTS;
  if (op->kind == CF_CREATE) {
    bool in_range = op->ttl_ms > 0 && op->ttl_ms <= ZKE_MAX_TTL;
    if (cf_has_ttl(op->mode) ? !in_range : op->ttl_ms != 0)
      return ZKE_BADARGUMENTS;
  }
  if (r->state == RAW_ALIVE) return ZKE_OK;
  return several ? ZKE_MARSHALLINGERROR : ZKE_INVALIDSTATE;
}

/* ---- requests ---- */

/* cf_whole() for possibly invalid paths. */
static const char *rooted(const cf_raw *r, const char *path) {
  if (!path || !*r->chroot) return path;
  return *path ? cf_whole(r->chroot, path) : r->chroot;
}

/* The operation with its paths as the server knows them. */
static cf_op at_root(const cf_raw *r, const cf_op *op) {
  cf_op copy = *op;
  copy.path = rooted(r, op->path);
  copy.subs = cf_alloc((size_t)(op->count + 1) * sizeof *copy.subs);
  for (int i = 0; i < op->count; i++) copy.subs[i] = at_root(r, &op->subs[i]);
  return copy;
}

/* ---- replies ---- */

static void keep_stat(cf_reply *out, const zke_stat *stat) {
  out->stat = *stat;
  out->has_stat = true;
}

static void keep_names(cf_reply *out, const zke_strings *names) {
  int count = names->count < 0 ? 0 : names->count;
  out->names.count = count;
  out->names.data =
      (char **)cf_copy(names->data, (size_t)count * sizeof *names->data);
  out->has_names = true;
}

static void keep_acls(cf_reply *out, const zke_acls *acls) {
  int count = acls->count < 0 ? 0 : acls->count;
  out->acls.count = count;
  out->acls.data =
      (zke_acl *)cf_copy(acls->data, (size_t)count * sizeof *acls->data);
  out->has_acls = true;
}

static void keep_data(cf_reply *out, const zke_jute_get_data_response *got) {
  out->data = got->data.data;
  out->len = got->data.len;
  out->has_data = true;
  keep_stat(out, &got->stat);
}

/* Read the record of an answer of this type.  The texts stay in the frame. */
static void get_body(const cf_raw *r, zke_jute_reader *in, int type,
                     cf_reply *out) {
  const zke_jute_record *record = cf_record_of(type);
  cf_body b;
  if (!record) return;
  get(in, record, &b);
  if (record == &zke_jute_of_path_response) {
    out->path = visible(r, b.path.path);
  } else if (record == &zke_jute_of_create2_response) {
    out->path = visible(r, b.create2.path);
    keep_stat(out, &b.create2.stat);
  } else if (record == &zke_jute_of_stat_response) {
    keep_stat(out, &b.stat.stat);
  } else if (record == &zke_jute_of_get_data_response) {
    keep_data(out, &b.data);
  } else if (record == &zke_jute_of_children_response) {
    keep_names(out, &b.children.children);
  } else if (record == &zke_jute_of_children2_response) {
    keep_names(out, &b.children2.children);
    keep_stat(out, &b.children2.stat);
  } else if (record == &zke_jute_of_acl_response) {
    keep_acls(out, &b.acl.acl);
    keep_stat(out, &b.acl.stat);
  } else if (record == &zke_jute_of_count_response) {
    out->number = b.count.count;
    out->has_count = true;
  } else if (record == &zke_jute_of_error_response) {
    out->rc = b.error.err;
  }
}

/* A multi's rc is that of the first result with a real error. */
static void get_results(const cf_raw *r, zke_jute_reader *in, const cf_op *op,
                        cf_reply *out) {
  zke_jute_multi_header head;
  cf_reply past;
  out->subs = cf_alloc((size_t)(op->count + 1) * sizeof *out->subs);
  for (get(in, &zke_jute_of_multi_header, &head); !head.done;
       get(in, &zke_jute_of_multi_header, &head)) {
    get_body(r, in, head.type,
             out->count < op->count ? &out->subs[out->count] : &past);
    out->count++;
  }
  if (out->count != op->count) cf_die("a multi with %d results", out->count);
  for (int i = 0; op->kind == CF_MULTI && i < out->count && !out->rc; i++)
    out->rc = out->subs[i].rc;
}

/* Keep only paths below the chroot: the server matched its prefix as a
 * string. */
static void leave_below(const cf_raw *r, cf_reply *out) {
  int kept = 0;
  size_t len = strlen(r->chroot);
  for (int i = 0; i < out->names.count; i++) {
    char *path = out->names.data[i];
    bool below = path[len] == '/' || path[len] == '\0';
    if (len && !below) continue;
    out->names.data[kept++] = cf_text("%s", visible(r, path));
  }
  out->names.count = kept;
}

void cf_raw_call(cf_raw *r, const cf_op *op, cf_reply *out) {
  zke_jute_reader in;
  *out = (cf_reply){.rc = client_answer(r, op)};
  out->local = out->rc != ZKE_OK;
  if (out->local) return;
  cf_op whole = at_root(r, op);
  int xid = op->kind == CF_ADD_AUTH ? ZKE_JUTE_XID_AUTH : ++r->xid;
  cf_put_request(&r->peer.out, &whole, xid, 0);
  send_frame(r);
  if (!receive_reply(r, xid, &out->rc, &in))
    cf_die("the server closed the connection on %s", cf_describe(op));
  if (op->kind == CF_ADD_AUTH && out->rc != ZKE_OK) r->state = RAW_AUTH_FAILED;
  bool several = op->kind == CF_MULTI || op->kind == CF_MULTI_READ;
  if (several && in.at < in.end)
    get_results(r, &in, op, out);
  else if (out->rc == ZKE_OK && op->kind != CF_SYNC)
    get_body(r, &in, cf_wire_type(op), out);
  if (op->kind == CF_EPHEMERALS) leave_below(r, out);
  zke_jute_reader_free(&in);
}

/* ---- connections ---- */

/* Ask for a session: id 0 means a new one. */
static void send_greeting(cf_raw *r, int timeout_ms) {
  zke_jute_connect_request first = {
      0, 0, timeout_ms, r->id, {PASSWORD, r->password}};
  peer_begin(&r->peer);
  zke_jute_write(&r->peer.out, &zke_jute_of_connect_request, &first);
  zke_jute_write(&r->peer.out, &zke_jute_of_read_only,
                 &(zke_jute_read_only){0});
  peer_end(&r->peer);
  send_frame(r);
}

typedef enum greeting { NO_ANSWER, NO_SESSION, WELCOME } greeting;

static greeting receive_greeting(cf_raw *r) {
  zke_jute_reader in;
  zke_jute_connect_response got;
  if (!receive_frame(r, &in)) return NO_ANSWER;
  get(&in, &zke_jute_of_connect_response, &got);
  r->id = got.session_id;
  if (got.passwd.len == PASSWORD)
    memcpy(r->password, got.passwd.data, PASSWORD);
  return r->id ? WELCOME : NO_SESSION;
}

static void release(cf_raw *r) {
  peer_hang_up(&r->peer);
  cf_events_free(&r->events);
  free(r->chroot);
  free(r);
}

/* NULL: nobody listens. */
static cf_raw *new_connection(int port, const char *chroot, int64_t id,
                              const char *password) {
  cf_raw *r = calloc(1, sizeof *r);
  if (!r || !(r->chroot = strdup(chroot))) cf_die("out of memory");
  r->id = id;
  if (password) memcpy(r->password, password, PASSWORD);
  if (peer_dial(&r->peer, port)) return r;
  release(r);
  return NULL;
}

static cf_raw *must_connect(int port, const char *chroot, int64_t id,
                            const char *password) {
  cf_raw *r = new_connection(port, chroot, id, password);
  if (!r) cf_die("cannot connect to port %d", port);
  return r;
}

cf_raw *cf_raw_open_at(int port, const char *chroot) {
  cf_raw *r = must_connect(port, chroot, 0, NULL);
  send_greeting(r, CF_LIVE_MS);
  if (receive_greeting(r) != WELCOME) cf_die("cannot begin a session");
  return r;
}

cf_raw *cf_raw_open(const char *chroot) {
  return cf_raw_open_at(cf_port, chroot);
}

static void send_close(cf_raw *r) {
  static const cf_op close = {.kind = CF_CLOSE};
  cf_put_request(&r->peer.out, &close, ++r->xid, 0);
  send_frame(r);
}

/* End the session, and ignore the events that still come. */
int cf_raw_close(cf_raw *r) {
  zke_jute_reader in;
  int rc = ZKE_OK;
  if (r->state == RAW_ALIVE) {
    send_close(r);
    if (!receive_reply(r, r->xid, &rc, &in))
      cf_die("no reply to the close of a session");
  } else if (r->state == RAW_AUTH_FAILED) {
    cf_raw_end(r->id, r->password, false);
  }
  release(r);
  return rc;
}

bool cf_raw_is_up(void) {
  cf_raw *r = new_connection(cf_port, "", 0, NULL);
  if (!r) return false;
  r->starting = true;
  send_greeting(r, CF_SHORT_MS);
  bool up = receive_greeting(r) == WELCOME;
  if (up)
    cf_raw_close(r);
  else
    release(r);
  return up;
}

/* Take over a session, with a CLOSE right after: its former owner comes back
 * immediately and finds it ended.  The owner may even be faster, and take over
 * this connection's session in turn. */
static greeting take_over(int64_t id, const char *password, int timeout_ms,
                          bool end) {
  zke_jute_reader in;
  cf_raw *r = must_connect(cf_port, "", id, password);
  send_greeting(r, timeout_ms);
  if (end) send_close(r);
  greeting answer = receive_greeting(r);
  while (end && answer == WELCOME && receive_frame(r, &in)) continue;
  release(r);
  return answer;
}

int64_t cf_raw_look(cf_raw *r) {
  cf_op look = {.kind = CF_EXISTS, .path = "/"};
  cf_reply reply;
  cf_raw_call(r, &look, &reply);
  return r->zxid;
}

/* The expiry is the only possible change, and it has a zxid. */
void cf_raw_await_expiry(cf_raw *watch, int64_t before) {
  int64_t end = cf_now_ms() + 30000;
  while (cf_raw_look(watch) == before) {
    if (cf_now_ms() > end) cf_die("a session does not expire");
    poll(NULL, 0, 2);
  }
}

void cf_raw_end(int64_t id, const char password[PASSWORD], bool by_timeout) {
  if (!by_timeout) {
    while (take_over(id, password, CF_LIVE_MS, true) != NO_SESSION)
      poll(NULL, 0, 1);
    return;
  }
  cf_raw *watch = cf_raw_open("");
  int64_t before = cf_raw_look(watch);
  if (take_over(id, password, CF_SHORT_MS, false) != WELCOME)
    cf_die("a session is gone");
  cf_raw_await_expiry(watch, before);
  cf_raw_close(watch);
}

/* ---- as a driver ---- */

static void *raw_open(const char *chroot) { return cf_raw_open(chroot); }

static void raw_call(void *session, const cf_op *op, cf_reply *reply) {
  cf_raw_call(session, op, reply);
}

static void raw_events(void *session, cf_events *out) {
  cf_raw *r = session;
  cf_events_move(out, &r->events);
}

static int64_t raw_id(void *session) {
  const cf_raw *r = session;
  return r->id;
}

static void raw_expire(void *session, bool by_timeout) {
  cf_raw *r = session;
  if (r->state == RAW_EXPIRED) return;
  peer_hang_up(&r->peer);
  r->state = RAW_EXPIRED;
  cf_raw_end(r->id, r->password, by_timeout);
}

/* A read's answer comes after all earlier events. */
static void raw_flush(void *session) {
  cf_op look = {.kind = CF_EXISTS, .path = "/"};
  cf_reply reply;
  cf_raw_call(session, &look, &reply);
}

static int raw_close(void *session) { return cf_raw_close(session); }

const cf_driver cf_raw_driver = {"raw",      raw_open, raw_call,   raw_flush,
                                 raw_events, raw_id,   raw_expire, raw_close};
