/* stub.c - see stub.h */
#include "stub.h"

#include <check.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "recipes/engine/jute.h"
#include "test/test.h"

enum { STUB_FRAME = 4 << 20 };

/* ---- frames ---- */

static bool stub_read(int fd, void *bytes, size_t len) {
  return recv(fd, bytes, len, MSG_WAITALL) == (ssize_t)len;
}

static void stub_send(int fd, zke_jute_writer *w, size_t frame) {
  zke_jute_end(w, frame);
  send(fd, w->data, w->len, MSG_NOSIGNAL);
  zke_jute_writer_free(w);
}

/* ---- answers ---- */

static void stub_greet(stub *s, int fd, char *frame, size_t len) {
  zke_jute_reader r = {.at = frame, .end = frame + len};
  zke_jute_connect_request asked = {0};
  if (zke_jute_read(&r, &zke_jute_of_connect_request, &asked))
    s->last_zxid = (long)asked.last_zxid_seen;
  zke_jute_writer w = {0};
  zke_jute_connect_response hello = {
      0, s->timeout_ms, s->session, {16, "0123456789abcdef"}};
  size_t at = zke_jute_begin(&w);
  zke_jute_write(&w, &zke_jute_of_connect_response, &hello);
  zke_jute_write(&w, &zke_jute_of_read_only, &(zke_jute_read_only){0});
  stub_send(fd, &w, at);
}

/* A multi of one create. */
static void stub_multi(zke_jute_writer *w, const char *made) {
  zke_jute_multi_header create = {ZKE_JUTE_CREATE, false, 0},
                        end = {-1, true, -1};
  zke_jute_write(w, &zke_jute_of_multi_header, &create);
  zke_jute_write(w, &zke_jute_of_path_response,
                 &(zke_jute_path_response){made});
  zke_jute_write(w, &zke_jute_of_multi_header, &end);
}

static void stub_body(const stub *s, zke_jute_writer *w, int type) {
  zke_stat stat = {.czxid = 1};
  char *none[1] = {NULL};
  switch (type) {
    case ZKE_JUTE_CREATE2:
      zke_jute_write(w, &zke_jute_of_create2_response,
                     &(zke_jute_create2_response){s->made, stat});
      break;
    case ZKE_JUTE_MULTI:
      stub_multi(w, s->made);
      break;
    case ZKE_JUTE_SYNC:
      zke_jute_write(w, &zke_jute_of_path_response,
                     &(zke_jute_path_response){"/"});
      break;
    case ZKE_JUTE_GET_DATA:
      zke_jute_write(w, &zke_jute_of_get_data_response,
                     &(zke_jute_get_data_response){{1, "x"}, stat});
      break;
    case ZKE_JUTE_GET_CHILDREN2:
      zke_jute_write(w, &zke_jute_of_children2_response,
                     &(zke_jute_children2_response){{0, none}, stat});
      break;
    case ZKE_JUTE_EXISTS:
    case ZKE_JUTE_SET_DATA:
      zke_jute_write(w, &zke_jute_of_stat_response,
                     &(zke_jute_stat_response){stat});
      break;
    default:
      break; /* a header is all */
  }
}

static void stub_answer(stub *s, int fd, const zke_jute_request_header *h) {
  zke_jute_writer w = {0};
  zke_jute_reply_header reply = {h->xid, s->zxid, 0};
  int event = atomic_exchange(&s->event_bytes, 0);
  if (event) send(fd, s->event, (size_t)event, MSG_NOSIGNAL);
  if (h->type == ZKE_JUTE_PING) s->pings++;
  if (h->type == ZKE_JUTE_AUTH) s->auths++;
  if (h->type == ZKE_JUTE_SYNC) s->syncs++;
  size_t at = zke_jute_begin(&w);
  zke_jute_write(&w, &zke_jute_of_reply_header, &reply);
  stub_body(s, &w, h->type);
  stub_send(fd, &w, at);
}

/* Note a setWatches2; false: it gets no answer. */
static bool stub_watches(stub *s, zke_jute_reader *r) {
  zke_jute_set_watches2 all = {0};
  if (zke_jute_read(r, &zke_jute_of_set_watches2, &all))
    s->relative = (long)all.relative_zxid;
  zke_jute_reader_free(r);
  return ++s->watches <= s->answered;
}

/* Take one frame of a client; false: its connection is over. */
static bool stub_take(stub *s, stub_client *c) {
  char head[4], *frame = s->frame;
  if (!stub_read(c->fd, head, 4)) return false;
  int32_t len = zke_jute_length(head);
  if (len < 0 || len > STUB_FRAME) return false;
  if (!stub_read(c->fd, frame, (size_t)len)) return false;
  if (len > s->longest) s->longest = len;
  if (s->silent) return true;
  if (!c->greeted) {
    c->greeted = true;
    stub_greet(s, c->fd, frame, (size_t)len);
    return true;
  }
  zke_jute_reader r = {.at = frame, .end = frame + len};
  zke_jute_request_header h;
  if (!zke_jute_read(&r, &zke_jute_of_request_header, &h)) return false;
  if (h.type == ZKE_JUTE_SET_WATCHES2 && !stub_watches(s, &r)) return true;
  stub_answer(s, c->fd, &h);
  return h.type != ZKE_JUTE_CLOSE;
}

/* ---- connections ---- */

/* Replies do not wait for the acknowledgement of earlier ones. */
static void stub_accept(stub *s) {
  int on = 1, fd = accept(s->fd, NULL, NULL);
  if (fd >= 0) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  for (int i = 0; i < STUB_CLIENTS && fd >= 0; i++) {
    if (s->client[i].fd >= 0) continue;
    s->client[i] = (stub_client){.fd = fd};
    s->clients++;
    fd = -1;
  }
  if (fd >= 0) close(fd);
}

static void stub_close(stub *s, stub_client *c) {
  if (c->fd < 0) return;
  close(c->fd);
  c->fd = -1;
  s->clients--;
}

static void stub_look(stub *s) {
  struct pollfd p[STUB_CLIENTS + 1] = {{.fd = s->fd, .events = POLLIN}};
  for (int i = 0; i < STUB_CLIENTS; i++)
    p[i + 1] = (struct pollfd){.fd = s->client[i].fd, .events = POLLIN};
  if (poll(p, STUB_CLIENTS + 1, 10) <= 0) return;
  for (int i = 0; i < STUB_CLIENTS; i++) {
    stub_client *c = &s->client[i];
    if (p[i + 1].revents && !stub_take(s, c)) stub_close(s, c);
  }
  if (p[0].revents) stub_accept(s);
}

static void *stub_run(void *arg) {
  stub *s = arg;
  while (!s->over) {
    if (s->cut) {
      for (int i = 0; i < STUB_CLIENTS; i++) stub_close(s, &s->client[i]);
      s->cut = false;
    }
    stub_look(s);
  }
  return NULL;
}

void stub_cut(stub *s) {
  s->cut = true;
  ck_until(!s->cut, 10000);
}

void stub_begin(stub *s) {
  struct sockaddr_in a = {.sin_family = AF_INET};
  socklen_t size = sizeof a;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  memset(s, 0, sizeof *s);
  s->session = 0x1234;
  s->timeout_ms = 4000;
  s->made = "/x";
  s->zxid = 1;
  s->answered = INT_MAX;
  s->frame = malloc(STUB_FRAME);
  ck_assert_ptr_nonnull(s->frame);
  for (int i = 0; i < STUB_CLIENTS; i++) s->client[i].fd = -1;
  s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ck_assert_int_eq(bind(s->fd, (struct sockaddr *)&a, sizeof a), 0);
  ck_assert_int_eq(listen(s->fd, 16), 0);
  ck_assert_int_eq(getsockname(s->fd, (struct sockaddr *)&a, &size), 0);
  s->port = ntohs(a.sin_port);
  ck_assert_int_eq(pthread_create(&s->thread, NULL, stub_run, s), 0);
}

void stub_end(stub *s) {
  s->over = true;
  pthread_join(s->thread, NULL);
  for (int i = 0; i < STUB_CLIENTS; i++) stub_close(s, &s->client[i]);
  close(s->fd);
  free(s->frame);
}
