/* client.c - fuzz target: what a server sends to the client of an ensemble
 *
 * The engine of recipes/engine runs against a server that is the input: it
 * answers requests well and badly, sends events, half frames and lengths of 2
 * GiB, answers what was never asked, and hangs up.  Whatever it does, each call
 * returns one of the documented results, and nothing leaks.
 *
 * Connections and the clock are replaced in the text of the two files that use
 * them.  A connection is a pair of sockets; the server acts whenever the engine
 * would wait; time advances when nothing has come.  At the input's end the
 * server hangs up and accepts no more connections, so every call reaches its
 * deadline.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"
#include "recipes/engine/jute.h"

int fuzz_client(const uint8_t *data, size_t size);

enum {
  CLIENT_REQUESTS = 64, /* that the server remembers */
  CLIENT_CALLS = 24,    /* of one input, at most */
  CLIENT_CONNECTIONS = 8
};

/* A request that the server has not answered yet. */
typedef struct client_request {
  int32_t xid, type;
} client_request;

/* The server, and the engine's environment. */
static struct client_server {
  fuzz_input in;
  int fd; /* the server's end of the connection; -1: none */
  int connections;
  int64_t now; /* ns */
  bool greeted;
  client_request asked[CLIENT_REQUESTS];
  int first, count;
  char got[1 << 16]; /* of an incomplete request */
  size_t got_len;
} client;

/* ---- the server ---- */

static void client_hang_up(void) {
  if (client.fd >= 0) close(client.fd);
  client.fd = -1;
}

/* Bytes that do not fit into the socket are lost, as on a broken connection. */
static void client_send(const void *bytes, size_t len) {
  if (len && send(client.fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
    client_hang_up();
}

static void client_send_frame(zke_jute_writer *w, size_t at) {
  zke_jute_end(w, at);
  FUZZ_EXPECT(!w->failed);
  client_send(w->data, w->len);
  zke_jute_writer_free(w);
}

/* Remember every request except the greeting. */
static void client_note(char *frame, size_t len) {
  zke_jute_reader r = {.at = frame, .end = frame + len};
  zke_jute_request_header h;
  if (!client.greeted) {
    client.greeted = true;
    return;
  }
  FUZZ_EXPECT(zke_jute_read(&r, &zke_jute_of_request_header, &h));
  zke_jute_reader_free(&r);
  if (client.count == CLIENT_REQUESTS) return;
  int at = (client.first + client.count++) % CLIENT_REQUESTS;
  client.asked[at] = (client_request){h.xid, h.type};
}

/* Read the engine's frames, which are well formed. */
static void client_listen(void) {
  size_t at = 0;
  ssize_t n = recv(client.fd, client.got + client.got_len,
                   sizeof client.got - client.got_len, MSG_DONTWAIT);
  if (n > 0) client.got_len += (size_t)n;
  while (client.got_len - at >= 4) {
    int32_t len = zke_jute_length(client.got + at);
    FUZZ_EXPECT(len >= 8 && (size_t)len < sizeof client.got - 4);
    if (client.got_len - at - 4 < (size_t)len) break;
    client_note(client.got + at + 4, (size_t)len);
    at += 4 + (size_t)len;
  }
  memmove(client.got, client.got + at, client.got_len - at);
  client.got_len -= at;
}

/* The input's next bytes, at most `most`; free() them. */
static char *client_take(size_t most, size_t *len) {
  *len = most < client.in.left ? most : client.in.left;
  return fuzz_text(&client.in, *len);
}

/* Grant a session, perhaps with an odd timeout and password. */
static void client_welcome(bool odd) {
  static const char password[16] = "a password";
  zke_jute_writer w = {0};
  zke_jute_connect_response answer = {
      0,
      odd ? (int32_t)fuzz_int(&client.in) : 10000,
      odd ? fuzz_int(&client.in) : 77,
      {odd ? (int)(fuzz_byte(&client.in) % 17) : 16, password}};
  size_t at = zke_jute_begin(&w);
  zke_jute_write(&w, &zke_jute_of_connect_response, &answer);
  zke_jute_write(&w, &zke_jute_of_read_only, &(zke_jute_read_only){0});
  client_send_frame(&w, at);
}

/* Write bytes of the input as a body. */
static void client_put_bytes(zke_jute_writer *w) {
  size_t len;
  char *bytes = client_take(fuzz_byte(&client.in), &len);
  for (size_t i = 0; i < len; i += 4) {
    char four[4] = {0};
    memcpy(four, bytes + i, len - i < 4 ? len - i : 4);
    zke_jute_writer piece = {.data = four, .len = 4};
    zke_jute_append(w, &piece);
  }
  free(bytes);
}

/* A correct body of the type's record, with the input's values. */
static void client_put_answer(zke_jute_writer *w, int32_t type) {
  char *text = fuzz_text(&client.in, fuzz_byte(&client.in) % 20);
  char one[] = "a", two[] = "q-0000000001", *names[] = {text, one, two, text};
  zke_strings list = {(int)(fuzz_byte(&client.in) % 5), names};
  zke_stat stat = {.czxid = fuzz_byte(&client.in), .ephemeralOwner = 77};
  zke_acl entry = {31, "world", text};
  switch (type) {
    case ZKE_JUTE_CREATE2:
    case ZKE_JUTE_CREATE_TTL:
    case ZKE_JUTE_CREATE_CONTAINER:
      zke_jute_write(w, &zke_jute_of_create2_response,
                     &(zke_jute_create2_response){text, stat});
      break;
    case ZKE_JUTE_GET_DATA:
      zke_jute_write(
          w, &zke_jute_of_get_data_response,
          &(zke_jute_get_data_response){{(int)strlen(text), text}, stat});
      break;
    case ZKE_JUTE_GET_CHILDREN2:
      zke_jute_write(w, &zke_jute_of_children2_response,
                     &(zke_jute_children2_response){list, stat});
      break;
    case ZKE_JUTE_GET_EPHEMERALS:
      zke_jute_write(w, &zke_jute_of_children_response,
                     &(zke_jute_children_response){list});
      break;
    case ZKE_JUTE_GET_ACL:
      zke_jute_write(w, &zke_jute_of_acl_response,
                     &(zke_jute_acl_response){{1, &entry}, stat});
      break;
    default:
      zke_jute_write(w, &zke_jute_of_stat_response,
                     &(zke_jute_stat_response){stat});
      break;
  }
  free(text);
}

/* Answer the oldest request: with an error, with a good body, or with bytes of
 * the input. */
static void client_answer(bool good) {
  client_request asked = {(int32_t)fuzz_int(&client.in), 0};
  if (client.count) {
    asked = client.asked[client.first];
    client.first = (client.first + 1) % CLIENT_REQUESTS;
    client.count--;
  }
  zke_jute_writer w = {0};
  unsigned how = good ? 0 : fuzz_byte(&client.in);
  zke_jute_reply_header h = {asked.xid, fuzz_byte(&client.in), 0};
  if (how & 1) h.err = -(int32_t)(fuzz_byte(&client.in) % 130);
  size_t at = zke_jute_begin(&w);
  zke_jute_write(&w, &zke_jute_of_reply_header, &h);
  if (how & 2) client_put_bytes(&w);
  if (good || how & 4) client_put_answer(&w, asked.type);
  client_send_frame(&w, at);
}

static void client_event(void) {
  zke_jute_writer w = {0};
  int type = (int)(fuzz_byte(&client.in) % 6);
  char *path = fuzz_text(&client.in, fuzz_byte(&client.in) % 8);
  zke_jute_reply_header h = {ZKE_JUTE_XID_EVENT, -1, 0};
  size_t at = zke_jute_begin(&w);
  zke_jute_write(&w, &zke_jute_of_reply_header, &h);
  zke_jute_write(&w, &zke_jute_of_watcher_event,
                 &(zke_jute_watcher_event){type, ZKE_STATE_CONNECTED,
                                           *path ? path : "/a"});
  client_send_frame(&w, at);
  free(path);
}

/* Bytes after their length, or after any length. */
static void client_bytes(bool honest) {
  int64_t any = honest ? 0 : fuzz_int(&client.in);
  size_t len;
  char *bytes = client_take(fuzz_byte(&client.in), &len);
  uint32_t said = honest ? (uint32_t)len : (uint32_t)any;
  unsigned char head[4];
  fuzz_length(head, said);
  client_send(head, sizeof head);
  if (client.fd >= 0) client_send(bytes, len);
  free(bytes);
}

/* Bytes without a length, which make half frames. */
static void client_half(void) {
  size_t len;
  char *bytes = client_take(fuzz_byte(&client.in) % 16, &len);
  client_send(bytes, len);
  free(bytes);
}

/* One act of the server. */
static void client_act(void) {
  switch (fuzz_byte(&client.in) % 16) {
    case 0:
      client_welcome(true);
      break;
    case 1:
      client_bytes(true);
      break;
    case 2:
      client_bytes(false);
      break;
    case 3:
      client_half();
      break;
    case 4:
      client_hang_up();
      break;
    case 5:
      break; /* silence */
    case 6:
    case 7:
      client_event();
      break;
    case 8:
    case 9:
      client_answer(false);
      break;
    case 10:
      client_welcome(false);
      break;
    default:
      client_answer(true);
      break;
  }
}

/* ---- system calls of the engine ---- */

/* A new connection begins with a good greeting, or with anything. */
static int client_socket(int domain, int type, int protocol) {
  int fds[2];
  (void)domain, (void)type, (void)protocol;
  client_hang_up();
  client.greeted = false;
  client.got_len = 0;
  client.first = client.count = 0;
  FUZZ_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
                         fds) == 0);
  client.fd = fds[1];
  return fds[0];
}

static int client_connect(int fd, const struct sockaddr *to, socklen_t len) {
  (void)fd, (void)to, (void)len;
  bool taken = client.in.left && client.connections++ < CLIENT_CONNECTIONS;
  if (taken) return 0;
  client_hang_up();
  errno = ECONNREFUSED;
  return -1;
}

/* The engine would wait: the server reads and acts. */
static int client_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
  if (client.fd >= 0) client_listen();
  if (client.fd >= 0 && client.greeted) {
    if (client.in.left)
      client_act();
    else
      client_hang_up();
  }
  int rc = poll(fds, count, 0);
  if (rc == 0 && timeout_ms > 0) client.now += timeout_ms * INT64_C(1000000);
  return rc;
}

/* Time advances a little at each call. */
static int client_clock(clockid_t which, struct timespec *out) {
  (void)which;
  client.now += 1000;
  out->tv_sec = (time_t)(client.now / 1000000000);
  out->tv_nsec = (long)(client.now % 1000000000);
  return 0;
}

#define socket client_socket
#define connect client_connect
#define poll client_poll
#define clock_gettime client_clock
#include "recipes/engine/zk_handle.c"
#include "recipes/engine/zk_link.c"
#undef socket
#undef connect
#undef poll
#undef clock_gettime

#include "recipes/engine/zookeeper.h"

/* ---- the program ---- */

static void client_watcher(zke *z, int type, int state, const char *path,
                           void *arg) {
  (void)z, (void)type, (void)state, (void)arg;
  FUZZ_EXPECT(path && strlen(path) < 1 << 20);
}

/* Read every text of a list. */
static void client_see(const zke_strings *list) {
  for (int i = 0; list && i < list->count; i++)
    FUZZ_EXPECT(strlen(list->data[i]) < 1 << 20);
}

static void client_read(zke *z, unsigned which) {
  zke_strings *names = NULL;
  zke_session_list *sessions = NULL;
  zke_acls *acls = NULL;
  zke_stat stat;
  char *data = NULL;
  int len;
  int64_t number;
  switch (which) {
    case 0:
      fuzz_rc(zke_get(z, "/a", client_watcher, NULL, &data, &len, &stat));
      break;
    case 1:
      fuzz_rc(zke_children(z, "/a", client_watcher, NULL, &names, &stat));
      break;
    case 2:
      fuzz_rc(zke_exists(z, "/a/b", client_watcher, &client, &stat));
      break;
    case 3:
      fuzz_rc(zke_get_acl(z, "/a", &acls, &stat));
      break;
    case 4:
      fuzz_rc(zke_ephemerals(z, 0, "/", &names));
      break;
    case 5:
      fuzz_rc(zke_count(z, "/", &number));
      break;
    default:
      fuzz_rc(zke_sessions(z, -1, &sessions));
      break;
  }
  client_see(names);
  zke_free(names);
  zke_free(sessions);
  zke_free(acls);
  zke_free(data);
}

static void client_several(zke *z, bool reads) {
  zke_op ops[3];
  zke_op_result results[3] = {{0}, {0}, {0}};
  if (reads) {
    zke_op_get(&ops[0], "/a");
    zke_op_children(&ops[1], "/a", NULL, 0);
    zke_op_get(&ops[2], "/b");
    fuzz_rc(zke_multi_read(z, ops, 3, results));
  } else {
    zke_op_create(&ops[0], "/a/q-", "x", 1, ZKE_OPEN_ACL, 2);
    zke_op_set(&ops[1], "/a", "y", 1, -1);
    zke_op_delete(&ops[2], "/b", -1);
    fuzz_rc(zke_multi(z, ops, 3, results));
  }
  zke_results_clear(results, 3);
}

static void client_change(zke *z, unsigned which) {
  zke_stat stat;
  char *path = NULL;
  switch (which) {
    case 0:
      fuzz_rc(zke_create(z, "/a/q-", "x", 1, ZKE_OPEN_ACL,
                         ZKE_EPHEMERAL_SEQUENTIAL, &path, &stat));
      zke_free(path);
      break;
    case 1:
      fuzz_rc(zke_set(z, "/a", "y", 1, -1, &stat));
      break;
    case 2:
      fuzz_rc(zke_delete(z, "/a", 3));
      break;
    case 3:
      fuzz_rc(zke_set_acl(z, "/a", -1, ZKE_READ_ACL, &stat));
      break;
    case 4:
      fuzz_rc(zke_discard(z, "/a/q-", ZKE_EPHEMERAL_SEQUENTIAL, 0));
      break;
    default:
      fuzz_rc(zke_add_auth(z, "digest", "ann:red", 7));
      break;
  }
}

static void client_watch(zke *z, unsigned which) {
  switch (which) {
    case 0:
      fuzz_rc(zke_add_watch(z, "/a", ZKE_WATCH_PERSISTENT_RECURSIVE,
                            client_watcher, NULL));
      break;
    case 1:
      fuzz_rc(
          zke_set_watch(z, "/a", ZKE_WATCH_DATA, 5, client_watcher, &client));
      break;
    case 2:
      fuzz_rc(zke_remove_watch(z, "/a", ZKE_WATCH_ANY, NULL, NULL));
      break;
    case 3:
      fuzz_rc(zke_forget(z, client_watcher, NULL));
      break;
    case 4:
      fuzz_rc(zke_wait(z, zke_now(z) + 7000));
      break;
    default:
      fuzz_rc(zke_dispatch(z, NULL));
      break;
  }
}

static void client_call(zke *z) {
  unsigned which = fuzz_byte(&client.in) % 32;
  if (which < 7)
    client_read(z, which);
  else if (which < 9)
    client_several(z, which == 8);
  else if (which < 15)
    client_change(z, which - 9);
  else if (which < 21)
    client_watch(z, which - 15);
  else
    client_read(z, which % 7);
}

int fuzz_client(const uint8_t *data, size_t size) {
  static bool known;
  fuzz_world world = {.blocks = 0};
  zke_options o = ZKE_INIT(zke_options);
  zke *z = NULL;
  if (!known) FUZZ_EXPECT(zke_register_engine(&zke_zookeeper) == ZKE_OK);
  known = true;
  memset(&client, 0, sizeof client);
  client.in = (fuzz_input){data, size};
  client.fd = -1;
  client.now = INT64_C(1000000000000);
  o.allocator = (zke_allocator){fuzz_resize, &world};
  o.watcher = client_watcher;
  int rc = fuzz_rc(zke_open("zk://127.0.0.1:1/base", &o, &z));
  FUZZ_EXPECT((rc == ZKE_OK) == (z != NULL));
  for (int i = 0; z && i < CLIENT_CALLS && client.in.left; i++) client_call(z);
  if (z) fuzz_rc(zke_close(z));
  client_hang_up();
  fuzz_world_end(&world);
  return 0;
}

FUZZ_TARGET(fuzz_client)
