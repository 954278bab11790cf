/* test_proxy.c - the effect of a proxy on connections
 *
 * A raw client talks to `zke serve` through it: each order does what proxy.h
 * says, and nothing else.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test/ensemble/proxy.h"
#include "test/server/wire.h"

static serving server;
static proxy between;

static void open_both(void) {
  server = serve(":memory:", "");
  ck_assert(proxy_start(&between, server.port));
}

/* A new session through the proxy. */
static wire *begin_through(void) {
  return begin((serving){.pid = between.pid, .port = between.port});
}

/* Requests and answers arrive; so does a word, which is no frame.
 */
TEST(all_passes) {
  open_both();
  wire *w = begin_through();
  ck_assert_int_eq(create(w, "/a", "x", 0), 0);
  ck_assert_str_eq(data_at(w, "/a"), "x");
  ck_assert_int_eq(proxy_links(&between), 1);
  hang_up(w);
  ck_until(proxy_links(&between) == 0, SOON);
  w = dial(between.port);
  send_bytes(w, "ruok", 4);
  ck_assert_str_eq(receive_rest(w), "imok");
  hang_up(w);
  proxy_end(&between);
}

/* Without a client, bytes that look like the beginning of a frame do not wait
 * for the rest. */
TEST(plain_bytes_pass) {
  static const char half[] = "\0\0\0\144ab";
  struct sockaddr_in here = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof here;
  char got[sizeof half];
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  ck_assert_int_eq(bind(listener, (struct sockaddr *)&here, len), 0);
  ck_assert_int_eq(listen(listener, 1), 0);
  ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&here, &len), 0);
  ck_assert(proxy_start(&between, ntohs(here.sin_port)));
  proxy_plain(&between);
  wire *w = dial(between.port);
  send_bytes(w, half, sizeof half);
  int server_end = accept(listener, NULL, NULL);
  ck_assert_int_eq(recv(server_end, got, sizeof got, MSG_WAITALL), sizeof half);
  ck_assert_int_eq(memcmp(got, half, sizeof half), 0);
  hang_up(w);
  close(server_end);
  close(listener);
  proxy_end(&between);
}

/* A frame of a megabyte comes in many pieces, and is whole again. */
TEST(a_long_frame_passes) {
  enum { LONG = 1000000 };
  char *data = malloc(LONG + 1);
  open_both();
  wire *w = begin_through();
  memset(data, 'y', LONG);
  data[LONG] = '\0';
  ck_assert_int_eq(create(w, "/a", data, 0), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 0), 0);
  zke_jute_get_data_response got;
  GET(w, get_data_response, &got);
  ck_assert_int_eq(got.data.len, LONG);
  ck_assert(memcmp(got.data.data, data, LONG) == 0);
  hang_up(w);
  proxy_end(&between);
  free(data);
}

/* An answer takes at least as long as both delays together; pipelined requests
 * share it. */
TEST(a_delay_holds_each_way) {
  open_both();
  wire *w = begin_through();
  proxy_delay(&between, 40, 60);
  int64_t before = test_now();
  for (int i = 0; i < 5; i++) ask_read(w, ZKE_JUTE_EXISTS, "/", 0);
  for (int i = 4; i >= 0; i--) ck_assert_int_eq(answer_to(w, w->xid - i), 0);
  ck_assert_int_ge(test_now() - before, 100);
  hang_up(w);
  proxy_end(&between);
}

/* A cut connection is over; another works. */
TEST(a_cut_ends_connections_and_no_more) {
  open_both();
  wire *w = begin_through();
  ck_assert_int_eq(proxy_cut(&between), 1);
  ck_assert_int_eq(proxy_links(&between), 0);
  ck_closed(w);
  hang_up(w);
  w = begin_through();
  ck_assert_int_eq(create(w, "/a", "x", 0), 0);
  hang_up(w);
  proxy_end(&between);
}

/* While the proxy refuses, new connections fail and existing ones work. */
TEST(refusing_hurts_only_new_connections) {
  open_both();
  wire *w = begin_through();
  proxy_refuse(&between, true);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)between.port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  ck_assert_int_eq(connect(fd, (struct sockaddr *)&to, sizeof to), -1);
  ck_assert_int_eq(errno, ECONNREFUSED);
  close(fd);
  ck_assert_int_eq(create(w, "/a", "x", 0), 0);
  hang_up(w);
  proxy_refuse(&between, false);
  w = begin_through();
  ck_assert_str_eq(data_at(w, "/a"), "x");
  hang_up(w);
  proxy_end(&between);
}

/* While it is frozen a request gets no answer and no error; then an answer. */
TEST(frozen_connections_are_silent_and_go_on) {
  open_both();
  wire *w = begin_through();
  proxy_freeze(&between, true);
  ask_create(w, "/a", "x", 0);
  struct pollfd come = {.fd = w->fd, .events = POLLIN};
  ck_assert_int_eq(poll(&come, 1, 100), 0);
  proxy_freeze(&between, false);
  ck_assert_int_eq(answer(w), 0);
  hang_up(w);
  proxy_end(&between);
}

/* The selected change does not reach the server, or its answer does not reach
 * the client; earlier changes and reads pass. */
TEST_LOOP(the_change_that_is_meant_is_lost, PROXY_BEFORE, PROXY_AFTER + 1) {
  open_both();
  wire *w = begin_through();
  proxy_lose(&between, _i, 1);
  ck_assert_int_eq(create(w, "/a", "x", 0), 0);
  ck_assert(is_there(w, "/a"));
  ask_create(w, "/b", "x", 0);
  ck_closed(w);
  hang_up(w);
  ck_assert_int_eq(proxy_lost(&between), 1);
  w = begin_through();
  ck_assert_int_eq(is_there(w, "/b"), _i == PROXY_AFTER);
  ck_assert_int_eq(create(w, "/c", "x", 0), 0);
  hang_up(w);
  proxy_end(&between);
}

/* The next connection goes to another server at another port. */
TEST(the_aim_counts_for_new_connections) {
  open_both();
  serving other = serve(":memory:", "");
  wire *w = begin_through();
  proxy_aim(&between, other.port);
  ck_assert_int_eq(create(w, "/a", "x", 0), 0);
  hang_up(w);
  w = begin_through();
  ck_assert(!is_there(w, "/a"));
  hang_up(w);
  proxy_end(&between);
}
