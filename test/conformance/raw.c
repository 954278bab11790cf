/* raw.c - a ZooKeeper session through its wire protocol
 *
 * One blocking TCP connection.  It makes the checks that ZooKeeper's C client
 * makes before sending (semantics.md 1.3, 2.1, 4, 6), since zkembed is client
 * and server together.  For operations that the C client lacks it applies the
 * same rules.  Replies come in order, with events between them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "conformance.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int cf_port;

/* Nobody pings: a session lives long, until it asks for the shortest
 * timeout. */
enum { REPLY_SECONDS = 60, PASSWORD = 16, LIVE_MS = 3600000, SHORT_MS = 1 };

/* Operation numbers on the wire. */
enum {
  WIRE_CREATE = 1,
  WIRE_DELETE = 2,
  WIRE_EXISTS = 3,
  WIRE_GET = 4,
  WIRE_SET = 5,
  WIRE_GET_ACL = 6,
  WIRE_SET_ACL = 7,
  WIRE_CHILDREN = 8,
  WIRE_SYNC = 9,
  WIRE_CHILDREN2 = 12,
  WIRE_CHECK = 13,
  WIRE_MULTI = 14,
  WIRE_CREATE2 = 15,
  WIRE_REMOVE_WATCH = 18,
  WIRE_CREATE_CONTAINER = 19,
  WIRE_CREATE_TTL = 21,
  WIRE_MULTI_READ = 22,
  WIRE_AUTH = 100,
  WIRE_EPHEMERALS = 103,
  WIRE_COUNT = 104,
  WIRE_ADD_WATCH = 106,
  WIRE_CLOSE = -11,
  WIRE_ERROR = -1, /* in the results of a multi */
  XID_EVENT = -1,
  XID_AUTH = -4
};

typedef enum raw_state { RAW_ALIVE, RAW_EXPIRED, RAW_AUTH_FAILED } raw_state;

struct cf_raw {
  int fd;
  raw_state state;
  char *chroot;
  int64_t id, zxid;
  char password[PASSWORD];
  int xid;
  bool starting;  /* the server may not be up yet: silence is the end */
  char *out, *in; /* the frame being sent; received bytes */
  size_t out_len, out_cap, in_at, in_len, in_cap;
  cf_events events;
};

/* ---- writing a frame: 4 bytes of length, then the request ---- */

static void put(cf_raw *r, const void *bytes, size_t len) {
  if (r->out_len + len > r->out_cap) {
    r->out_cap = 2 * (r->out_len + len) + 256;
    r->out = realloc(r->out, r->out_cap);
    if (!r->out) cf_die("out of memory");
  }
  if (len) memcpy(r->out + r->out_len, bytes, len);
  r->out_len += len;
}

static void put_int(cf_raw *r, int32_t value) {
  uint32_t wire = htonl((uint32_t)value);
  put(r, &wire, sizeof wire);
}

static void put_long(cf_raw *r, int64_t value) {
  put_int(r, (int32_t)((uint64_t)value >> 32));
  put_int(r, (int32_t)((uint64_t)value & 0xffffffffu));
}

static void put_bool(cf_raw *r, bool value) { put(r, value ? "\1" : "", 1); }

static void put_bytes(cf_raw *r, const void *bytes, int len) {
  put_int(r, len);
  if (len > 0) put(r, bytes, (size_t)len);
}

static void put_string(cf_raw *r, const char *text) {
  put_bytes(r, text, text ? (int)strlen(text) : -1);
}

static void put_acls(cf_raw *r, const zke_acls *acls) {
  put_int(r, acls->count);
  for (int i = 0; i < acls->count; i++) {
    put_int(r, acls->data[i].perms);
    put_string(r, acls->data[i].scheme);
    put_string(r, acls->data[i].id);
  }
}

static void begin(cf_raw *r) {
  r->out_len = 0;
  put_int(r, 0);
}

static void begin_request(cf_raw *r, int xid, int type) {
  begin(r);
  put_int(r, xid);
  put_int(r, type);
}

static void send_frame(cf_raw *r) {
  uint32_t wire = htonl((uint32_t)(r->out_len - 4));
  memcpy(r->out, &wire, sizeof wire);
  for (size_t at = 0; at < r->out_len;) {
    ssize_t n = send(r->fd, r->out + at, r->out_len - at, MSG_NOSIGNAL);
    if (n < 0 && r->starting) return;
    if (n < 0 && errno != EINTR) cf_die("send: %s", strerror(errno));
    if (n > 0) at += (size_t)n;
  }
}

/* ---- reading ---- */

typedef struct reader {
  const char *at, *end;
} reader;

static const char *get(reader *in, size_t len) {
  if ((size_t)(in->end - in->at) < len) cf_die("a reply is cut short");
  in->at += len;
  return in->at - len;
}

static int32_t get_int(reader *in) {
  uint32_t wire;
  memcpy(&wire, get(in, sizeof wire), sizeof wire);
  return (int32_t)ntohl(wire);
}

static int64_t get_long(reader *in) {
  uint64_t high = (uint32_t)get_int(in);
  return (int64_t)(high << 32 | (uint32_t)get_int(in));
}

/* A copy with a NUL after it; NULL for length -1. */
static char *get_bytes(reader *in, int *len) {
  *len = get_int(in);
  return *len < 0 ? NULL : cf_copy(get(in, (size_t)*len), (size_t)*len);
}

static char *get_string(reader *in) {
  int len;
  return get_bytes(in, &len);
}

static void get_strings(reader *in, zke_strings *out) {
  int count = get_int(in);
  out->count = count < 0 ? 0 : count;
  out->data = cf_alloc((size_t)out->count * sizeof *out->data + 1);
  for (int i = 0; i < out->count; i++) out->data[i] = get_string(in);
}

static void get_acls(reader *in, zke_acls *out) {
  int count = get_int(in);
  if (count < 0) count = 0;
  zke_acl *data = cf_alloc((size_t)count * sizeof *data + 1);
  for (int i = 0; i < count; i++) {
    data[i].perms = get_int(in);
    data[i].scheme = get_string(in);
    data[i].id = get_string(in);
  }
  *out = (zke_acls){count, data};
}

static void get_stat(reader *in, zke_stat *s) {
  s->czxid = get_long(in);
  s->mzxid = get_long(in);
  s->ctime = get_long(in);
  s->mtime = get_long(in);
  s->version = get_int(in);
  s->cversion = get_int(in);
  s->aversion = get_int(in);
  s->ephemeralOwner = get_long(in);
  s->dataLength = get_int(in);
  s->numChildren = get_int(in);
  s->pzxid = get_long(in);
}

/* Have len bytes after in_at; false at the connection's end. */
static bool receive(cf_raw *r, size_t len) {
  while (r->in_len - r->in_at < len) {
    if (r->in_at) {
      memmove(r->in, r->in + r->in_at, r->in_len - r->in_at);
      r->in_len -= r->in_at;
      r->in_at = 0;
    }
    if (r->in_cap < len + 65536) {
      r->in_cap = 2 * len + 65536;
      r->in = realloc(r->in, r->in_cap);
      if (!r->in) cf_die("out of memory");
    }
    ssize_t n = recv(r->fd, r->in + r->in_len, r->in_cap - r->in_len, 0);
    bool late = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (late && r->starting) return false;
    if (late) cf_die("the server has not answered for %d s", REPLY_SECONDS);
    if (n == 0 || (n < 0 && errno != EINTR)) return false;
    if (n > 0) r->in_len += (size_t)n;
  }
  return true;
}

/* The next frame; it is valid until the next call. */
static bool receive_frame(cf_raw *r, reader *in) {
  if (!receive(r, 4)) return false;
  reader head = {r->in + r->in_at, r->in + r->in_at + 4};
  size_t len = (size_t)get_int(&head);
  if (!receive(r, 4 + len)) return false;
  *in = (reader){r->in + r->in_at + 4, r->in + r->in_at + 4 + len};
  r->in_at += 4 + len;
  return true;
}

/* A path as this session sees it. */
static const char *visible(const cf_raw *r, const char *path) {
  size_t len = strlen(r->chroot);
  if (strncmp(path, r->chroot, len) != 0) return path;
  return path[len] ? path + len : "/";
}

static void note_event(cf_raw *r, reader *in) {
  int type = get_int(in), state = get_int(in);
  cf_events_add(&r->events, type, state, visible(r, get_string(in)), 1);
}

/* Receive up to the reply with this xid; *rc is its error. */
static bool receive_reply(cf_raw *r, int xid, int *rc, reader *in) {
  while (receive_frame(r, in)) {
    int got = get_int(in);
    int64_t zxid = get_long(in);
    *rc = get_int(in);
    if (got == xid) {
      r->zxid = zxid;
      return true;
    }
    if (got != XID_EVENT) cf_die("reply %d when %d was due", got, xid);
    note_event(r, in);
  }
  return false;
}

/* ---- what the C client checks ---- */

static bool has_ttl(int mode) {
  return mode == ZKE_PERSISTENT_WITH_TTL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

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
    if (has_ttl(op->mode) ? !in_range : op->ttl_ms != 0)
      return ZKE_BADARGUMENTS;
  }
  if (r->state == RAW_ALIVE) return ZKE_OK;
  return several ? ZKE_MARSHALLINGERROR : ZKE_INVALIDSTATE;
}

/* ---- requests ---- */

static int create_type(const cf_op *op, bool whole) {
  if (op->mode == ZKE_CONTAINER) return WIRE_CREATE_CONTAINER;
  if (has_ttl(op->mode)) return WIRE_CREATE_TTL;
  return whole ? WIRE_CREATE2 : WIRE_CREATE;
}

static int wire_type(const cf_op *op) {
  switch (op->kind) {
    case CF_CREATE:
      return create_type(op, op->whole);
    case CF_DELETE:
      return WIRE_DELETE;
    case CF_EXISTS:
      return WIRE_EXISTS;
    case CF_GET:
      return WIRE_GET;
    case CF_SET:
      return WIRE_SET;
    case CF_CHILDREN:
      return op->whole ? WIRE_CHILDREN2 : WIRE_CHILDREN;
    case CF_GET_ACL:
      return WIRE_GET_ACL;
    case CF_SET_ACL:
      return WIRE_SET_ACL;
    case CF_SYNC:
      return WIRE_SYNC;
    case CF_MULTI:
      return WIRE_MULTI;
    case CF_MULTI_READ:
      return WIRE_MULTI_READ;
    case CF_COUNT:
      return WIRE_COUNT;
    case CF_EPHEMERALS:
      return WIRE_EPHEMERALS;
    case CF_ADD_WATCH:
      return WIRE_ADD_WATCH;
    case CF_REMOVE_WATCH:
      return WIRE_REMOVE_WATCH;
    case CF_ADD_AUTH:
      return WIRE_AUTH;
    case CF_CHECK:
      return WIRE_CHECK;
    default:
      cf_die("no request for %s", cf_kind_name(op->kind));
  }
}

static void put_create(cf_raw *r, const cf_op *op) {
  put_bytes(r, op->data, op->len);
  put_acls(r, &op->acls);
  put_int(r, op->mode);
  if (has_ttl(op->mode)) put_long(r, op->ttl_ms);
}

/* The arguments after the path in a request. */
static void put_arguments(cf_raw *r, const cf_op *op) {
  switch (op->kind) {
    case CF_CREATE:
      put_create(r, op);
      break;
    case CF_SET:
      put_bytes(r, op->data, op->len);
      put_int(r, op->version);
      break;
    case CF_DELETE:
    case CF_CHECK:
      put_int(r, op->version);
      break;
    case CF_SET_ACL:
      put_acls(r, &op->acls);
      put_int(r, op->version);
      break;
    case CF_EXISTS:
    case CF_GET:
    case CF_CHILDREN:
      put_bool(r, op->watch != 0);
      break;
    case CF_ADD_WATCH:
    case CF_REMOVE_WATCH:
      put_int(r, op->type);
      break;
    default:
      break;
  }
}

static void put_multi_head(cf_raw *r, int type, bool done) {
  put_int(r, type);
  put_bool(r, done);
  put_int(r, -1);
}

/* cf_whole() for possibly invalid paths. */
static const char *rooted(const cf_raw *r, const char *path) {
  if (!path || !*r->chroot) return path;
  return *path ? cf_whole(r->chroot, path) : r->chroot;
}

/* An operation of a multi: container, TTL and create2 have their own types. */
static void put_sub(cf_raw *r, const cf_op *sub, bool reading) {
  bool children = reading && sub->kind == CF_CHILDREN;
  put_multi_head(r, children ? WIRE_CHILDREN : wire_type(sub), false);
  put_string(r, rooted(r, sub->path));
  put_arguments(r, sub);
}

static void put_body(cf_raw *r, const cf_op *op) {
  if (op->kind == CF_ADD_AUTH) {
    put_int(r, 0);
    put_string(r, op->scheme);
    put_bytes(r, op->data, op->len);
  } else if (op->kind == CF_MULTI || op->kind == CF_MULTI_READ) {
    for (int i = 0; i < op->count; i++)
      put_sub(r, &op->subs[i], op->kind == CF_MULTI_READ);
    put_multi_head(r, -1, true);
  } else {
    put_string(r, rooted(r, op->path));
    put_arguments(r, op);
  }
}

/* ---- replies ---- */

static void get_created(cf_raw *r, reader *in, bool whole, cf_reply *out) {
  out->path = visible(r, get_string(in));
  if (whole) get_stat(in, &out->stat);
  out->has_stat = whole;
}

static void get_stat_reply(reader *in, cf_reply *out) {
  get_stat(in, &out->stat);
  out->has_stat = true;
}

static void get_data_reply(reader *in, cf_reply *out) {
  out->data = get_bytes(in, &out->len);
  out->has_data = true;
  get_stat_reply(in, out);
}

static void get_names(reader *in, cf_reply *out) {
  get_strings(in, &out->names);
  out->has_names = true;
}

/* One result of a multi of either kind; false at the end. */
static bool get_result(cf_raw *r, reader *in, cf_reply *out) {
  int type = get_int(in);
  bool done = *get(in, 1) != 0;
  get_int(in); /* the header's error is the same as the body's */
  if (done) return false;
  switch (type) {
    case WIRE_ERROR:
      out->rc = get_int(in);
      break;
    case WIRE_CREATE:
      get_created(r, in, false, out);
      break;
    case WIRE_CREATE2:
      get_created(r, in, true, out);
      break;
    case WIRE_SET:
      get_stat_reply(in, out);
      break;
    case WIRE_GET:
      get_data_reply(in, out);
      break;
    case WIRE_CHILDREN:
      get_names(in, out);
      break;
    default:
      break;
  }
  return true;
}

/* A multi's rc is that of the first result with a real error. */
static void get_results(cf_raw *r, reader *in, const cf_op *op, cf_reply *out) {
  cf_reply past;
  out->subs = cf_alloc((size_t)(op->count + 1) * sizeof *out->subs);
  while (get_result(r, in,
                    out->count < op->count ? &out->subs[out->count] : &past))
    out->count++;
  if (out->count != op->count) cf_die("a multi with %d results", out->count);
  for (int i = 0; op->kind == CF_MULTI && i < out->count && !out->rc; i++)
    out->rc = out->subs[i].rc;
}

/* Keep only paths below the chroot: the server matched its prefix as a
 * string. */
static void get_ephemerals(cf_raw *r, reader *in, cf_reply *out) {
  get_names(in, out);
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

static void get_body(cf_raw *r, reader *in, const cf_op *op, cf_reply *out) {
  switch (op->kind) {
    case CF_CREATE:
      get_created(r, in, wire_type(op) != WIRE_CREATE, out);
      break;
    case CF_EXISTS:
    case CF_SET:
    case CF_SET_ACL:
      get_stat_reply(in, out);
      break;
    case CF_GET:
      get_data_reply(in, out);
      break;
    case CF_CHILDREN:
      get_names(in, out);
      if (op->whole) get_stat_reply(in, out);
      break;
    case CF_GET_ACL:
      get_acls(in, &out->acls);
      out->has_acls = true;
      get_stat_reply(in, out);
      break;
    case CF_COUNT:
      out->number = get_int(in);
      out->has_count = true;
      break;
    case CF_EPHEMERALS:
      get_ephemerals(r, in, out);
      break;
    default:
      break;
  }
}

void cf_raw_call(cf_raw *r, const cf_op *op, cf_reply *out) {
  reader in;
  *out = (cf_reply){.rc = client_answer(r, op)};
  out->local = out->rc != ZKE_OK;
  if (out->local) return;
  int xid = op->kind == CF_ADD_AUTH ? XID_AUTH : ++r->xid;
  begin_request(r, xid, wire_type(op));
  put_body(r, op);
  send_frame(r);
  if (!receive_reply(r, xid, &out->rc, &in))
    cf_die("the server closed the connection on %s", cf_describe(op));
  if (op->kind == CF_ADD_AUTH && out->rc != ZKE_OK) r->state = RAW_AUTH_FAILED;
  bool several = op->kind == CF_MULTI || op->kind == CF_MULTI_READ;
  if (several && in.at < in.end)
    get_results(r, &in, op, out);
  else if (out->rc == ZKE_OK)
    get_body(r, &in, op, out);
}

/* ---- connections ---- */

static int try_connect(int port) {
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) cf_die("socket: %s", strerror(errno));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
  close(fd);
  return -1;
}

static void limit_silence(int fd, int seconds) {
  struct timeval limit = {.tv_sec = seconds};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

/* Ask for a session: id 0 means a new one. */
static void send_greeting(cf_raw *r, int timeout_ms) {
  begin(r);
  put_int(r, 0);
  put_long(r, 0);
  put_int(r, timeout_ms);
  put_long(r, r->id);
  put_bytes(r, r->password, PASSWORD);
  put_bool(r, false);
  send_frame(r);
}

typedef enum greeting { NO_ANSWER, NO_SESSION, WELCOME } greeting;

static greeting receive_greeting(cf_raw *r) {
  reader in;
  int len;
  if (!receive_frame(r, &in)) return NO_ANSWER;
  get_int(&in);
  get_int(&in);
  r->id = get_long(&in);
  const char *password = get_bytes(&in, &len);
  if (len == PASSWORD) memcpy(r->password, password, PASSWORD);
  return r->id ? WELCOME : NO_SESSION;
}

static void release(cf_raw *r) {
  if (r->fd >= 0) close(r->fd);
  cf_events_free(&r->events);
  free(r->chroot);
  free(r->out);
  free(r->in);
  free(r);
}

static cf_raw *new_connection(int port, const char *chroot, int64_t id,
                              const char *password) {
  cf_raw *r = calloc(1, sizeof *r);
  if (!r || !(r->chroot = strdup(chroot))) cf_die("out of memory");
  r->id = id;
  if (password) memcpy(r->password, password, PASSWORD);
  r->fd = try_connect(port);
  limit_silence(r->fd, REPLY_SECONDS);
  return r;
}

cf_raw *cf_raw_open_at(int port, const char *chroot) {
  cf_raw *r = new_connection(port, chroot, 0, NULL);
  if (r->fd < 0) cf_die("cannot connect to port %d", port);
  send_greeting(r, LIVE_MS);
  if (receive_greeting(r) != WELCOME) cf_die("cannot begin a session");
  return r;
}

cf_raw *cf_raw_open(const char *chroot) {
  return cf_raw_open_at(cf_port, chroot);
}

/* End the session, and ignore the events that still come. */
int cf_raw_close(cf_raw *r) {
  reader in;
  int rc = ZKE_OK;
  if (r->state == RAW_ALIVE) {
    begin_request(r, ++r->xid, WIRE_CLOSE);
    send_frame(r);
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
  bool up = r->fd >= 0;
  if (up) {
    r->starting = true;
    limit_silence(r->fd, 1);
    send_greeting(r, SHORT_MS);
    up = receive_greeting(r) == WELCOME;
  }
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
  cf_raw *r = new_connection(cf_port, "", id, password);
  if (r->fd < 0) cf_die("cannot connect to port %d", cf_port);
  send_greeting(r, timeout_ms);
  if (end) {
    begin_request(r, ++r->xid, WIRE_CLOSE);
    send_frame(r);
  }
  greeting answer = receive_greeting(r);
  while (end && answer == WELCOME && receive(r, 1)) r->in_at = r->in_len;
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
    while (take_over(id, password, LIVE_MS, true) != NO_SESSION)
      poll(NULL, 0, 1);
    return;
  }
  cf_raw *watch = cf_raw_open("");
  int64_t before = cf_raw_look(watch);
  if (take_over(id, password, SHORT_MS, false) != WELCOME)
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
  close(r->fd);
  r->fd = -1;
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
