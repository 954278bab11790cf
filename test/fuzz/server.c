/* server.c - fuzz target: what clients send to `zke FILE serve`
 *
 * The server's loop runs over a tree in memory, and the input is its clients:
 * they greet well and badly, resume sessions, send requests, nested multis,
 * watches, tokens, half frames, wrong lengths, words and HTTP, hang up in the
 * middle, and let time pass.  Whatever they do, each frame of the server is
 * well formed, the tree is sound, and a client that comes last is served.
 *
 * The text of two files is included, to replace connections and the clock: a
 * connection is a pair of sockets, a round does not wait, and time advances
 * when the input says so.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "shell/serve/serve.h"

int fuzz_server(const uint8_t *data, size_t size);

enum { SERVER_PEERS = 3, SERVER_NESTED = 3, SERVER_DATA = 1 << 16 };

/* A client; its session outlives its connection. */
typedef struct server_peer {
  int fd;      /* -1: not connected */
  bool greets; /* its next frame has its session */
  bool loose;  /* it has sent bytes that may be a word or HTTP: it gets text */
  int64_t id;
  char password[16];
  zke_jute_writer got; /* of an incomplete frame */
} server_peer;

/* The input, and the server's environment. */
static struct server_world {
  fuzz_input in;
  fuzz_world world;
  int accepts; /* the next accept's result */
  int64_t now_ms;
  server_peer peers[SERVER_PEERS];
} around;

/* ---- system calls of the server ---- */

static int server_accept(int fd, struct sockaddr *peer, socklen_t *len,
                         int flags) {
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(1)};
  (void)fd, (void)flags;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  memcpy(peer, &in, sizeof in);
  *len = sizeof in;
  return around.accepts;
}

static int server_wait(int fd, struct epoll_event *events, int count,
                       int timeout_ms) {
  (void)timeout_ms;
  return epoll_wait(fd, events, count, 0);
}

static int64_t server_clock(void) { return around.now_ms; }

#define accept4 server_accept
#define epoll_wait server_wait
#define clock_ms server_clock
#include "shell/serve/serve.c"
#include "shell/serve/conn.c"
#undef accept4
#undef epoll_wait
#undef clock_ms

/* ---- the clients ---- */

static void server_hang_up(server_peer *p) {
  if (p->fd >= 0) close(p->fd);
  p->fd = -1;
  zke_jute_writer_free(&p->got);
}

static void server_dial(server *s, server_peer *p) {
  int fds[2];
  server_hang_up(p);
  FUZZ_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                         fds) == 0);
  around.accepts = fds[0];
  p->fd = fds[1];
  p->greets = true;
  p->loose = false;
  if (!conn_accept(s, -1, false, conn_ready)) server_hang_up(p);
}

/* Bytes that do not fit into the socket are lost, as on a broken connection. */
static void server_send(server_peer *p, const void *bytes, size_t len) {
  if (p->fd >= 0 && len &&
      send(p->fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)len)
    server_hang_up(p);
}

static void server_send_frame(server_peer *p, zke_jute_writer *w) {
  zke_jute_end(w, 0);
  FUZZ_EXPECT(!w->failed);
  server_send(p, w->data, w->len);
  zke_jute_writer_free(w);
}

/* The first frame has the session, every other one a header. */
static void server_see(server_peer *p, char *frame, size_t len) {
  zke_jute_reader r = {.at = frame, .end = frame + len};
  zke_jute_connect_response welcome;
  zke_jute_reply_header head;
  if (p->greets) {
    FUZZ_EXPECT(zke_jute_read(&r, &zke_jute_of_connect_response, &welcome));
    FUZZ_EXPECT(welcome.passwd.len == 16);
    p->id = welcome.session_id;
    memcpy(p->password, welcome.passwd.data, 16);
  } else {
    FUZZ_EXPECT(zke_jute_read(&r, &zke_jute_of_reply_header, &head));
    FUZZ_EXPECT(head.err <= 0);
  }
  p->greets = false;
  zke_jute_reader_free(&r);
}

/* Read what the server has sent.  A connection that has sent HTTP or a word
 * gets no frames: its bytes are not inspected. */
static void server_listen(server_peer *p) {
  static char bytes[SERVER_DATA];
  ssize_t n = p->fd < 0 ? 0 : recv(p->fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (n <= 0) {
    if (n == 0) server_hang_up(p);
    return;
  }
  zke_jute_writer piece = {.data = bytes, .len = (size_t)n};
  zke_jute_append(&p->got, &piece);
  size_t at = 0;
  while (!p->loose && p->got.len - at >= 4) {
    int32_t len = zke_jute_length(p->got.data + at);
    FUZZ_EXPECT(len > 0);
    if (p->got.len - at - 4 < (size_t)len) break;
    server_see(p, p->got.data + at + 4, (size_t)len);
    at += 4 + (size_t)len;
  }
  if (p->loose) at = p->got.len;
  memmove(p->got.data, p->got.data + at, p->got.len - at);
  p->got.len -= at;
}

/* ---- requests ---- */

/* A greeting: for a new session, for the previous one, or for any. */
static void server_greet(server_peer *p, unsigned how) {
  zke_jute_writer w = {0};
  zke_jute_connect_request r = {0, 0, 10000, 0, {16, p->password}};
  if (how > 0) r.session_id = p->id;
  if (how > 1) {
    r.last_zxid_seen = fuzz_int(&around.in);
    r.time_out = (int32_t)fuzz_int(&around.in);
    r.session_id = fuzz_int(&around.in);
    r.passwd.len = (int)(fuzz_byte(&around.in) % 18) - 1;
    if (r.passwd.len > 16) r.passwd.len = 16;
  }
  zke_jute_begin(&w);
  zke_jute_write(&w, &zke_jute_of_connect_request, &r);
  if (how < 3)
    zke_jute_write(&w, &zke_jute_of_read_only, &(zke_jute_read_only){how == 2});
  server_send_frame(p, &w);
}

/* The texts of one request, freed after it was sent. */
typedef struct server_texts {
  char *own[64];
  int count;
} server_texts;

/* A path, or an invalid one. */
static const char *server_text(server_texts *t) {
  static const char *const known[] = {"/",
                                      "/a",
                                      "/a/b",
                                      "/a/q-",
                                      "/zookeeper",
                                      "/zookeeper/config",
                                      "/zookeeper/quota",
                                      "/zookeeper/quota/a",
                                      "/zookeeper/quota/a/zookeeper_limits",
                                      "/zookeeper/quota/a/zookeeper_stats",
                                      "count=2,bytes=9=;byteHardLimit=3",
                                      "digest",
                                      "ann:red",
                                      "world",
                                      "anyone",
                                      NULL};
  unsigned which = fuzz_byte(&around.in);
  size_t all = sizeof known / sizeof *known;
  if (which < 224 || t->count == sizeof t->own / sizeof *t->own)
    return known[which % all];
  t->own[t->count] = fuzz_text(&around.in, which % 32);
  return t->own[t->count++];
}

static zke_jute_bytes server_bytes(server_texts *t) {
  const char *text = server_text(t);
  return (zke_jute_bytes){text ? (int)strlen(text) : -1, text};
}

#define SERVER_PUT(w, name, ...) \
  zke_jute_write(w, &zke_jute_of_##name, &(zke_jute_##name){__VA_ARGS__})

/* setWatches, in either form, with the same names in each list. */
static void server_put_watches(zke_jute_writer *w, int type, server_texts *t) {
  char *names[4];
  zke_strings list = {(int)(fuzz_byte(&around.in) % 5), names};
  int64_t zxid = fuzz_int(&around.in);
  /* A list has no nulls. */
  for (int i = 0; i < list.count; i++) {
    const char *text = server_text(t);
    names[i] = (char *)(uintptr_t)(text ? text : "/a");
  }
  if (type == ZKE_JUTE_SET_WATCHES)
    SERVER_PUT(w, set_watches, zxid, list, list, list);
  else
    SERVER_PUT(w, set_watches2, zxid, list, list, list, list, list);
}

static void server_put_create(zke_jute_writer *w, int type, server_texts *t) {
  zke_acl entry = {(int)fuzz_byte(&around.in) % 33, "world", "anyone"};
  zke_acls acl = {1, &entry};
  const char *path = server_text(t);
  zke_jute_bytes bytes = server_bytes(t);
  int32_t flags = (int32_t)(fuzz_byte(&around.in) % 9);
  if (entry.perms == 32) acl.count = (int)(fuzz_byte(&around.in) % 3) - 1;
  if (acl.count > 0) entry.perms %= 32;
  if (type == ZKE_JUTE_CREATE_TTL)
    SERVER_PUT(w, create_ttl_request, path, bytes, acl, flags,
               fuzz_int(&around.in));
  else if (type == ZKE_JUTE_SET_ACL)
    SERVER_PUT(w, set_acl_request, path, acl, flags - 2);
  else
    SERVER_PUT(w, create_request, path, bytes, acl, flags);
}

/* A type's body, except a multi's. */
static void server_put_one(zke_jute_writer *w, int type, server_texts *t) {
  switch (type) {
    case ZKE_JUTE_CREATE:
    case ZKE_JUTE_CREATE2:
    case ZKE_JUTE_CREATE_CONTAINER:
    case ZKE_JUTE_CREATE_TTL:
    case ZKE_JUTE_SET_ACL:
      server_put_create(w, type, t);
      break;
    case ZKE_JUTE_SET_DATA:
      SERVER_PUT(w, set_data_request, server_text(t), server_bytes(t),
                 (int32_t)(fuzz_byte(&around.in) % 4) - 1);
      break;
    case ZKE_JUTE_SET_WATCHES:
    case ZKE_JUTE_SET_WATCHES2:
      server_put_watches(w, type, t);
      break;
    case ZKE_JUTE_AUTH:
      SERVER_PUT(w, auth_packet, 0, server_text(t), server_bytes(t));
      break;
    case ZKE_JUTE_SASL:
      SERVER_PUT(w, sasl_token, server_bytes(t));
      break;
    default: /* a path, and a number that may be wrong */
      SERVER_PUT(w, delete_request, server_text(t),
                 (int32_t)(fuzz_byte(&around.in) % 6) - 1);
      break;
  }
}

/* A valid type, or any number. */
static int server_type(void) {
  static const int known[] = {
      1,  2,  3,  4,  5,  6,  7,   8,   9,   11,  12,  13,  14,  15,  16, 17,
      18, 19, 20, 21, 22, 22, 100, 101, 102, 103, 104, 105, 106, 107, -11};
  unsigned which = fuzz_byte(&around.in);
  if (which > 250) return (int)fuzz_int(&around.in);
  return known[which % (sizeof known / sizeof *known)];
}

/* A body; a multi consists of bodies, which may be multis. */
static void server_put_body(zke_jute_writer *w, int type, int depth,
                            server_texts *t) {
  bool is_multi = type == ZKE_JUTE_MULTI || type == ZKE_JUTE_MULTI_READ;
  if (!is_multi || depth == SERVER_NESTED) {
    server_put_one(w, type, t);
    return;
  }
  for (unsigned left = fuzz_byte(&around.in) % 6; left; left--) {
    int one = server_type();
    SERVER_PUT(w, multi_header, one, 0, -1);
    server_put_body(w, one, depth + 1, t);
  }
  if (fuzz_byte(&around.in) % 8) SERVER_PUT(w, multi_header, -1, 1, -1);
}

/* A request; sometimes its end is missing, or there are more bytes. */
static void server_ask(server_peer *p) {
  zke_jute_writer w = {0};
  server_texts t = {.count = 0};
  int type = server_type();
  unsigned cut = fuzz_byte(&around.in);
  zke_jute_begin(&w);
  SERVER_PUT(&w, request_header, (int32_t)fuzz_int(&around.in), type);
  server_put_body(&w, type, 0, &t);
  if (cut > 240 && w.len > 4 + cut % 16) w.len -= cut % 16;
  if (cut < 4) SERVER_PUT(&w, path_request, "more");
  server_send_frame(p, &w);
  for (int i = 0; i < t.count; i++) free(t.own[i]);
}

/* Bytes after their length, or after any length, or without one. */
static void server_send_bytes(server_peer *p, unsigned how) {
  int64_t any = how ? fuzz_int(&around.in) : 0;
  size_t len = fuzz_byte(&around.in);
  if (len > around.in.left) len = around.in.left;
  uint32_t said = how ? (uint32_t)any : (uint32_t)len;
  unsigned char head[4];
  char *bytes = fuzz_text(&around.in, len);
  p->loose = true;
  fuzz_length(head, said);
  if (how < 2) server_send(p, head, sizeof head);
  server_send(p, bytes, len);
  free(bytes);
}

static void server_send_text(server_peer *p) {
  static const char *const known[] = {
      "ruok",
      "mntr",
      "cons",
      "wchc",
      "srst",
      "dump",
      "GET /control ",
      "GET /control HTTP/1.1\r\n",
      "\r\n\r\n",
      "stat",
      "POST /control HTTP/1.1\r\nContent-Length: "};
  const char *text =
      known[fuzz_byte(&around.in) % (sizeof known / sizeof *known)];
  p->loose = true;
  server_send(p, text, strlen(text));
}

/* One act of a client. */
static void server_act(server *s, server_peer *p, unsigned what) {
  if (p->fd < 0 || what == 0) server_dial(s, p);
  if (what < 5) {
    server_greet(p, what ? what - 1 : 0);
  } else if (what < 8) {
    server_send_bytes(p, what - 5);
  } else if (what == 8) {
    server_send_text(p);
  } else if (what == 9) {
    server_hang_up(p);
  } else if (what == 10) {
    int64_t ms = 100 * (int64_t)fuzz_byte(&around.in);
    around.now_ms += ms;
    around.world.now += ms * 1000000;
  } else {
    server_ask(p);
  }
}

/* ---- the server ---- */

/* A file of users that only its owner can read: "/proc/self/fd/N". */
static const char *server_users(void) {
  static char path[64];
  static const char line[] = "ann:red\n";
  if (*path) return path;
  int fd = memfd_create("users", MFD_CLOEXEC);
  FUZZ_EXPECT(fd >= 0 && fchmod(fd, S_IRUSR) == 0);
  FUZZ_EXPECT(write(fd, line, strlen(line)) == (ssize_t)strlen(line));
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  return path;
}

/* Sort the options into the call, which points into the words; `how` selects
 * them. */
static words *server_options(call *c, unsigned how) {
  char line[200];
  words *w;
  snprintf(line, sizeof line, "serve --timeout-min 1s --users %s%s%s%s",
           server_users(), how & 1 ? " --enforce-quota" : "",
           how & 2 ? " --control" : "", how & 4 ? " --require-sasl" : "");
  FUZZ_EXPECT(!words_split(line, strlen(line), &w));
  c->command = serve_commands;
  FUZZ_EXPECT(args_sort(c, w) == 0);
  return w;
}

/* Like serve_run(), but without listening. */
static void server_begin(server *s, call *c) {
  *s = (server){.c = c, .epoll = -1, .wake = {-1, NULL}};
  FUZZ_EXPECT(serve_options(s) == 0 && serve_open(s) == 0);
  FUZZ_EXPECT(users_load(s) == 0 && serve_prepare(s) == 0);
  (void)zke_zxid();
  FUZZ_EXPECT(zke_rearm(s->z) == ZKE_OK);
}

/* One round, and the clients' reading. */
static void server_round(server *s) {
  FUZZ_EXPECT(serve_round(s) == 0);
  for (int i = 0; i < SERVER_PEERS; i++) server_listen(&around.peers[i]);
}

/* Whatever was before, a new client gets a session.  With --control this is not
 * checked: an ordered outage keeps the client out. */
static void server_serves(server *s) {
  server_peer *p = &around.peers[0];
  server_dial(s, p);
  server_greet(p, 0);
  for (int i = 0; i < 1000 && p->greets && p->fd >= 0; i++) server_round(s);
  FUZZ_EXPECT(!p->greets && p->id > 0);
}

static void server_play(server *s, bool is_controlled) {
  while (around.in.left) {
    unsigned how = fuzz_byte(&around.in);
    server_act(s, &around.peers[(how >> 4) % SERVER_PEERS], how % 16);
    if (how < 128) server_round(s);
  }
  for (int i = 0; i < 3; i++) server_round(s);
  if (!is_controlled) server_serves(s);
  FUZZ_EXPECT(zke_check(s->z, NULL, NULL) == ZKE_OK);
}

int fuzz_server(const uint8_t *data, size_t size) {
  memset(&around, 0, sizeof around);
  around.in = (fuzz_input){data, size};
  around.now_ms = 1000000;
  zke_os os = fuzz_world_begin(&around.world);
  shell sh = {.file = ":memory:",
              .m = PTHREAD_MUTEX_INITIALIZER,
              .quiet = true,
              .persists = true,
              .options = {.size = sizeof(zke_options), .os = &os}};
  sh.options.allocator = (zke_allocator){fuzz_resize, &around.world};
  call c = {.sh = &sh};
  server s;
  FILE *err = stderr;
  for (int i = 0; i < SERVER_PEERS; i++) around.peers[i].fd = -1;
  stderr = fuzz_nowhere();
  unsigned how = fuzz_byte(&around.in);
  words *w = server_options(&c, how);
  server_begin(&s, &c);
  server_play(&s, how & 2);
  for (int i = 0; i < SERVER_PEERS; i++) server_hang_up(&around.peers[i]);
  FUZZ_EXPECT(serve_end(&s) == 0);
  FUZZ_EXPECT(session_close(&sh) == 0);
  run_call_free(&c);
  free(w);
  stderr = err;
  fuzz_world_end(&around.world);
  return 0;
}

FUZZ_TARGET(fuzz_server)
