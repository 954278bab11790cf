/* test_control.c - zke serve --control: faults that a test orders, as a client
 * sees them
 *
 * order() and ck_refused() send orders by HTTP, as a test in any language does.
 * The raw client of wire.h sees what they do.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "wire.h"

/* ------------------------------------------------------------------------
 * Orders
 * --------------------------------------------------------------------- */

/* Send an order for a fault; its number. */
#define arm(...) number_in(order(__VA_ARGS__), "\"fault\":")
#define done(...) number_in(order(__VA_ARGS__), "\"done\":")

static int number_in(const char *json, const char *name) {
  const char *at = strstr(json, name);
  ck_assert_msg(at != NULL, "%s", json);
  return atoi(at + strlen(name));
}

/* The answer is this one, with its sentence in the first line and as the
 * body. */
static void ck_told(const char *told, int status, const char *sentence) {
  char head[700], body[600];
  snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\n", status, sentence);
  snprintf(body, sizeof body, "\r\n\r\n%s\n", sentence);
  ck_assert_msg(strncmp(told, head, strlen(head)) == 0, "%s", told);
  ck_assert_msg(strstr(told, body) != NULL, "%s", told);
}

static void ck_refused(serving s, int status, const char *line,
                       const char *sentence) {
  ck_told(says(s, post_text(line)), status, sentence);
}

/* What the report says of a fault. */
static void ck_fault(serving s, int fault, int seen, int fired,
                     const char *left) {
  char begins[40], ends[100];
  const char *told = says(s, "GET /control HTTP/1.1\r\n\r\n");
  snprintf(begins, sizeof begins, "{\"fault\":%d,", fault);
  snprintf(ends, sizeof ends, "\"seen\":%d,\"fired\":%d,\"left\":%s", seen,
           fired, left);
  const char *at = strstr(told, begins);
  ck_assert_msg(at != NULL, "no fault %d: %s", fault, told);
  const char *found = strstr(at, ends);
  ck_assert_msg(found && found < strchr(at, '}'), "%s is not in %s", ends, at);
}

/* ---- clients ---- */

static serving serve_faults(void) {
  return serve(":memory:", "--control --connections 0");
}

/* Nothing has arrived, and the connection is open.  The server has since
 * answered another client, so it has had time to answer this one. */
static void ck_silent(serving s, wire *w) {
  struct pollfd p = {.fd = w->fd, .events = POLLIN};
  for (int i = 0; i < 3; i++) says(s, "GET /control HTTP/1.1\r\n\r\n");
  ck_assert_int_eq(poll(&p, 1, 0), 0);
}

/* Write a request after others: all arrive together. */
static void add_create(wire *w, const char *path) {
  ADD(w, ZKE_JUTE_CREATE, create_request, path, {0, ""}, zke_open_acl, 0);
}

/* The client comes back by a new connection, which replaces the old one. */
static void come_back(serving s, wire **w) {
  wire *again;
  ck_assert_int_eq(attach(s, &again, *w), (*w)->id);
  hang_up(*w);
  *w = again;
}

/* The client's session is over. */
static void ck_expired(serving s, const wire *w) {
  wire *again;
  ck_assert_int_eq(attach(s, &again, w), 0);
  hang_up(again);
}

/* ------------------------------------------------------------------------
 * Who may ask, and how
 * --------------------------------------------------------------------- */

#define WITHOUT "faults are for a server that was started with --control"

/* A server that was started without the option refuses every order, and names
 * the option. */
TEST(without_the_option_there_is_no_way_to_faults) {
  serving s = serve(":memory:", "");
  ck_refused(s, 403, "expire session=all", WITHOUT);
  ck_told(says(s, "GET /control HTTP/1.1\r\n\r\n"), 403, WITHOUT);
}

/* Nor by a host name that was made to lead here, when the browser sends no
 * Origin. */
TEST(a_page_in_a_browser_may_not_ask) {
  static const char from_page[] =
      "faults are not for pages in a browser: Host wants an address, or "
      "localhost, and there may be no Origin";
  serving s = serve_faults();
  ck_told(says(s,
               "POST /control HTTP/1.1\r\norigin: http://a.example\r\n"
               "Content-Length: 5\r\n\r\nclear"),
          403, from_page);
  ck_told(says(s, "GET /control HTTP/1.1\r\nHost: a.example:80\r\n\r\n"), 403,
          from_page);
  const char *told = says(s, "GET /control HTTP/1.1\r\nhost: [::1]:80\r\n\r\n");
  ck_assert_msg(strstr(told, " 200 OK") != NULL, "%s", told);
}

/* An address of this host other than the loopback's; false: it has none. */
static bool other_address(struct sockaddr_in *out) {
  struct ifaddrs *list;
  bool found = false;
  ck_assert_int_eq(getifaddrs(&list), 0);
  for (struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
    if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET) continue;
    memcpy(out, at->ifa_addr, sizeof *out);
    found = ntohl(out->sin_addr.s_addr) >> 24 != 127;
  }
  freeifaddrs(list);
  return found;
}

/* An order to another address of this host counts as one from another host. */
TEST(another_host_may_not_ask) {
  struct sockaddr_in a;
  if (!other_address(&a)) return;
  serving s = serve(":memory:", "--control --host 0.0.0.0 2>/dev/null");
  wire w = {.fd = socket(AF_INET, SOCK_STREAM, 0)};
  a.sin_port = htons((uint16_t)s.port);
  ck_assert_int_eq(connect(w.fd, (struct sockaddr *)&a, sizeof a), 0);
  const char *text = post_text("clear");
  send_bytes(&w, text, strlen(text));
  ck_told(receive_rest(&w), 403,
          "faults are for programs on the server's own host");
  close(w.fd);
  order(s, "clear");
}

static const struct {
  const char *line;
  int status;
  const char *sentence;
} refused[] = {
    {"", 400, "the body is one order, in one line"},
    {"clear\nclear", 400, "the body is one order, in one line"},
    {"drop-before path='/a", 400,
     "the order is malformed: a quotation mark is not closed"},
    {"lose", 400,
     "there is no order \"lose\"; there are drop-before, drop-after, "
     "hold-request, hold-reply, hold-event, fail, pause, outage, expire, drop, "
     "advance, "
     "stop-clock, start-clock, release, clear, wait"},
    {"drop-before for=3s", 400,
     "drop-before takes session=, type=, path=, skip=, times=, not \"for=3s\""},
    {"drop-before create", 400,
     "drop-before takes session=, type=, path=, skip=, times=, not \"create\""},
    {"stop-clock by=3s", 400, "stop-clock takes nothing, not \"by=3s\""},
    {"expire", 400, "expire wants session="},
    {"wait fired=2", 400, "wait wants fault="},
    {"drop session=0", 400,
     "drop: session= wants the number of a session, or all, not \"0\""},
    {"drop session=0x77", 404, "drop: there is no session 0x77 at this server"},
    {"pause session=119", 404,
     "pause: there is no session 0x77 at this server"},
    {"drop-after session=0x77", 404,
     "drop-after: there is no session 0x77 at this server"},
    {"expire session=0x77", 404, "expire: there is no session 0x77"},
    {"drop-after type=Create", 400,
     "drop-after: type= wants a request (create, getData, ...), change, read, "
     "request or any, not \"Create\""},
    {"drop-after path=", 400,
     "drop-after: path= wants a path, in which * stands for any characters, "
     "not \"\""},
    {"drop-after skip=-1", 400, "drop-after: skip= wants a number, not \"-1\""},
    {"drop-after times=0", 400,
     "drop-after: times= wants a number from 1 on, or all, not \"0\""},
    {"hold-reply for=soon", 400,
     "hold-reply: for= wants a time above 0, in seconds, or a number with ms, "
     "s, m, h or d, not \"soon\""},
    {"outage for=0", 400,
     "outage: for= wants a time above 0, in seconds, or a number with ms, s, "
     "m, "
     "h or d, not \"0\""},
    {"fail type=create error=NOAUTH type=delete", 400,
     "fail: type= is there twice"},
    {"drop session=1 session=1", 400, "drop: session= is there twice"},
    {"hold-event type=create", 400,
     "hold-event takes session=, path=, skip=, times=, for=, not "
     "\"type=create\""},
    {"advance by=1y", 400,
     "advance: by= wants seconds, or a number with ms, s, m, h or d, not "
     "\"1y\""},
    {"fail error=SESSIONEXPIRED", 400,
     "fail: error= wants the name of an error that a server answers, NOAUTH "
     "say, not \"SESSIONEXPIRED\""},
    {"fail type=any", 400,
     "fail: a connect request or a ping has no error; drop-before loses it"},
    {"release fault=9", 404, "release: there is no fault 9"},
    {"clear fault=9", 404, "clear: there is no fault 9"},
    {"wait fault=9", 404, "wait: there is no fault 9"},
    {"wait fault=first", 400,
     "wait: fault= wants the number of a fault, not \"first\""}};

/* Each has its own sentence, and arms nothing. */
TEST(an_order_that_cannot_be_done_is_refused) {
  serving s = serve_faults();
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    ck_refused(s, refused[i].status, refused[i].line, refused[i].sentence);
  ck_assert_ptr_ne(
      strstr(says(s, "GET /control HTTP/1.1\r\n\r\n"), "\"faults\":[]}"), NULL);
}

/* Bytes that do not begin like a request are taken for a frame that is too
 * long. */
TEST(a_malformed_request_of_http_is_refused) {
  static char long_head[17000];
  serving s = serve_faults();
  ck_told(says(s, "GET /elsewhere HTTP/1.1\r\n\r\n"), 404,
          "there is no /elsewhere");
  ck_told(says(s, "GET nowhere HTTP/1.1\r\n\r\n"), 400,
          "the first line is not an HTTP request");
  ck_told(says(s,
               "POST /control HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
               "\r\n"),
          411, "the head tells the length of the body, at most 16384");
  ck_told(says(s, "POST /control HTTP/1.1\r\nContent-Length: 99999\r\n\r\n"),
          413, "the head tells the length of the body, at most 16384");
  memset(long_head, 'a', sizeof long_head - 1);
  memcpy(long_head, "GET /", 5);
  ck_told(says(s, long_head), 431, "the head is longer than 16384 bytes");
  ck_assert_str_eq(says(s, "PUT /control HTTP/1.1\r\n\r\n"), "");
}

/* Bytes after a NUL are not skipped, and the server goes on. */
TEST(a_head_with_a_nul_is_refused) {
  static const char *const heads[] = {"POST /control HTTP/1.1 ~\r\n\r\n",
                                      "GET /control HTTP/1.1\r\nA: ~\r\n\r\n"};
  serving s = serve_faults();
  for (int i = 0; i < 2; i++) {
    char text[100];
    size_t len = strlen(heads[i]);
    memcpy(text, heads[i], len);
    *(char *)memchr(text, '~', len) = '\0';
    wire *w = dial(s.port);
    send_bytes(w, text, len);
    ck_told(receive_rest(w), 400, "the head has a NUL");
    hang_up(w);
  }
}

/* Random heads: each gets an HTTP answer, and the server goes on. */
TEST(heads_of_chance_do_no_harm) {
  static const char letters[] = "/ \t\r?%\"\\HTTP1.control:\377";
  serving s = serve_faults();
  unsigned seed = test_seed();
  for (int i = 0; i < 300; i++) {
    char head[200] = "GET ";
    int len = 4 + rand_r(&seed) % 190;
    for (int k = 4; k < len; k++)
      head[k] =
          letters[(size_t)rand_r(&seed) % sizeof letters]; /* a NUL, too */
    memcpy(head + len, "\r\n\r\n", 4);
    wire *w = dial(s.port);
    send_bytes(w, head, (size_t)len + 4);
    ck_assert_int_eq(strncmp(receive_rest(w), "HTTP/1.1 4", 10), 0);
    hang_up(w);
  }
  says(s, "GET /control HTTP/1.1\r\n\r\n");
}

/* The server does not wait forever for a client that sends no more. */
TEST(a_head_that_does_not_end_ends_the_connection) {
  serving s = serve_faults();
  ck_assert_str_eq(says(s, "GET /control HTTP/1.1\r\n"), "");
  ck_word(s, "mntr", "\nzk_sessionless_connections_expired\t1\n");
}

/* The server executes it when all of it has arrived. */
TEST(an_order_may_come_in_parts) {
  serving s = serve_faults();
  wire *w = dial(s.port);
  const char *text = post_text("stop-clock");
  for (const char *at = text; *at; at++) {
    send_bytes(w, at, 1);
    if (at - text < 4 || at[1] == '\0')
      says(s, "GET /control HTTP/1.1\r\n\r\n");
  }
  ck_assert_ptr_ne(strstr(receive_rest(w), "{\"done\":1}"), NULL);
}

/* Words and orders that arrive together with changes of others are answered,
 * too. */
TEST(words_and_orders_come_beside_a_batch) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s), *word = dial(s.port), *get = dial(s.port);
  says(s, "GET /control HTTP/1.1\r\n\r\n"); /* they are accepted */
  kill(s.pid, SIGSTOP);
  ask_create(a, "/a", "", 0);
  ask_create(b, "/b", "", 0);
  send_bytes(word, "ruok", 4);
  send_bytes(get, "GET /control HTTP/1.1\r\n\r\n", 25);
  kill(s.pid, SIGCONT);
  ck_assert_str_eq(receive_rest(word), "imok");
  ck_assert_int_eq(strncmp(receive_rest(get), "HTTP/1.1 200 OK", 15), 0);
  ck_assert_int_eq(answer(a), 0);
  ck_assert_int_eq(answer(b), 0);
}

/* ------------------------------------------------------------------------
 * Connections that drop
 * --------------------------------------------------------------------- */

/* The request is not executed, and the session lives. */
TEST(a_connection_drops_before_a_request) {
  serving s = serve_faults();
  wire *w = begin(s);
  int fault = arm(s, "drop-before type=create");
  ck_assert_int_eq(ping(w), 0);
  ck_assert(!is_there(w, "/a"));
  ask_create(w, "/a", "", 0);
  ck_closed(w);
  ck_fault(s, fault, 1, 1, "0");
  come_back(s, &w);
  ck_assert(!is_there(w, "/a"));
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
}

/* The request is executed, its reply is lost.  Earlier replies arrive; later
 * requests are not executed. */
TEST(a_connection_drops_after_a_request) {
  serving s = serve_faults();
  wire *w = begin(s);
  int fault = arm(s, "drop-after path=/b");
  add_create(w, "/a");
  add_create(w, "/b");
  add_create(w, "/c");
  send_out(w);
  ck_assert_int_eq(answer_to(w, 1), 0);
  ck_assert(!next_frame(w));
  ck_fault(s, fault, 1, 1, "0");
  come_back(s, &w);
  ck_assert(is_there(w, "/a") && is_there(w, "/b") && !is_there(w, "/c"));
}

/* A request that is refused counts as a request. */
TEST(the_reply_that_is_lost_may_be_an_error) {
  serving s = serve_faults();
  wire *w = begin(s);
  int fault = arm(s, "drop-after type=delete");
  ask_delete(w, "/none");
  ck_closed(w);
  ck_fault(s, fault, 1, 1, "0");
}

/* The session is made, but its client never hears of it. */
TEST(the_reply_to_a_connect_request_is_lost) {
  serving s = serve_faults();
  int fault = arm(s, "drop-after type=connect");
  wire *w = dial(s.port);
  send_connect(w, 0, NULL, 10000, 0);
  ck_assert(!next_frame(w));
  ck_fault(s, fault, 1, 1, "0");
  ck_word(s, "mntr", "zk_global_sessions\t1\n");
  begin(s);
  ck_word(s, "mntr", "zk_global_sessions\t2\n");
}

/* A drop ends the connection of one session, or all, and says how many; with
 * none to drop it is refused. */
TEST(a_connection_is_dropped_now) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s);
  ck_assert_int_eq(done(s, "drop session=%lld", (long long)a->id), 1);
  ck_closed(a);
  ck_assert_int_eq(ping(b), 0);
  char sentence[100], line[100];
  snprintf(line, sizeof line, "drop session=0x%llx", (long long)a->id);
  snprintf(sentence, sizeof sentence, "drop: session 0x%llx has no connection",
           (long long)a->id);
  ck_refused(s, 409, line, sentence);
  come_back(s, &a);
  ck_assert_int_eq(done(s, "drop session=all"), 2);
  ck_closed(a);
  ck_closed(b);
  ck_assert_int_eq(done(s, "drop session=all"), 0);
}

/* ------------------------------------------------------------------------
 * Which requests
 * --------------------------------------------------------------------- */

/* Requests are counted exactly, also over several connections. */
TEST(a_fault_passes_over_some_and_fires_some_times) {
  serving s = serve_faults();
  wire *w = begin(s);
  int fault = arm(s, "drop-before type=setData path=/a skip=2 times=2");
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_assert_int_eq(set(w, "/a", "1", -1), 0);
  ck_assert_int_eq(set(w, "/a", "2", -1), 0);
  for (int i = 0; i < 2; i++) {
    ck_fault(s, fault, 2 + i, i, i ? "1" : "2");
    ask_set(w, "/a", "lost", -1);
    ck_closed(w);
    come_back(s, &w);
  }
  ck_assert_int_eq(set(w, "/a", "3", -1), 0);
  ck_fault(s, fault, 4, 2, "0");
  ck_assert_str_eq(data_at(w, "/a"), "3");
}

/* A fault for one session ignores the others; a fault without a session meets
 * the first request of any. */
TEST(a_fault_is_for_one_session_or_all) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s);
  int fault = arm(s, "fail type=create session=%lld", (long long)a->id);
  int all = arm(s, "fail type=create error=NOAUTH");
  ck_assert_int_eq(create(b, "/b", "", 0), ZKE_NOAUTH);
  ck_assert_int_eq(create(b, "/b", "", 0), 0);
  ck_assert_int_eq(create(a, "/a", "", 0), ZKE_SYSTEMERROR);
  ck_assert_int_eq(create(a, "/a", "", 0), 0);
  ck_fault(s, fault, 1, 1, "0");
  ck_fault(s, all, 1, 1, "0");
}

/* A request meets only the first fault that fires; later faults do not count
 * it. */
TEST(a_request_meets_one_fault) {
  serving s = serve_faults();
  wire *w = begin(s);
  int first = arm(s, "fail error=NOAUTH skip=1");
  int second = arm(s, "fail error=BADVERSION");
  ck_assert_int_eq(create(w, "/a", "", 0), ZKE_BADVERSION);
  ck_assert_int_eq(create(w, "/a", "", 0), ZKE_NOAUTH);
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  ck_fault(s, first, 2, 1, "0");
  ck_fault(s, second, 1, 1, "0");
}

static void ask_multi(wire *w, const char *created, const char *deleted) {
  request(w, ZKE_JUTE_MULTI);
  PART(w, ZKE_JUTE_CREATE, create_request, created, {0, ""}, zke_open_acl, 0);
  PART(w, ZKE_JUTE_DELETE, delete_request, deleted, -1);
  PUT(w, multi_header, -1, 1, -1);
  ask(w);
}

/* A * matches slashes, too; a multi has the paths of all its operations. */
TEST(paths_are_patterns) {
  serving s = serve_faults();
  wire *w = begin(s);
  ck_assert_int_eq(create(w, "/a", "", 0), 0);
  arm(s, "fail path=/a/*");
  ck_assert_int_eq(set(w, "/a", "", -1), 0);
  ck_assert_int_eq(create(w, "/a/b", "", 0), ZKE_SYSTEMERROR);
  ck_assert_int_eq(create(w, "/a/b", "", 0), 0);
  arm(s, "fail path='*/b c'");
  ck_assert_int_eq(create(w, "/a/b c", "", 0), ZKE_SYSTEMERROR);
  arm(s, "fail type=multi path=/a/b");
  ask_multi(w, "/x", "/a/c");
  ck_assert_int_eq(answer(w), 0);
  ask_multi(w, "/x", "/a/b");
  ck_assert_int_eq(answer(w), ZKE_SYSTEMERROR);
  ck_assert(is_there(w, "/a/b") && !is_there(w, "/x"));
  ask_multi(w, "/x", "/a/b");
  ck_assert_int_eq(answer(w), 0);
  ck_assert(!is_there(w, "/a/b") && is_there(w, "/x"));
}

/* It is refused immediately, without the wait for another process. */
TEST(a_change_is_refused_as_late) {
  serving s = serve_faults();
  wire *w = begin(s);
  arm(s, "fail error=OPERATIONTIMEOUT");
  int64_t began = test_now();
  ck_assert_int_eq(create(w, "/a", "", 0), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_lt(test_now() - began, test_patience(4000)); /* not 5 s */
  ck_assert(!is_there(w, "/a"));
}

/* Changes and reads are groups; what a client sends by itself is in neither. */
TEST(a_full_disk_refuses_changes_only) {
  serving s = serve_faults();
  wire *w = begin(s);
  ck_assert_int_eq(create(w, "/a", "before", 0), 0);
  int fault = arm(s, "fail times=all");
  ck_assert_int_eq(set(w, "/a", "after", -1), ZKE_SYSTEMERROR);
  ck_assert_int_eq(create(w, "/b", "", 0), ZKE_SYSTEMERROR);
  ck_assert_str_eq(data_at(w, "/a"), "before");
  ck_assert_int_eq(ping(w), 0);
  ck_fault(s, fault, 2, 2, "null");
  arm(s, "fail type=read error=NOAUTH");
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "/a", 0), ZKE_NOAUTH);
  ck_assert_int_eq(done(s, "clear fault=%d", fault), 1);
  ck_assert_int_eq(set(w, "/a", "after", -1), 0);
}

/* ------------------------------------------------------------------------
 * Holding
 * --------------------------------------------------------------------- */

/* It is not executed, nor are later requests.  Others go on.  The release is
 * answered after its execution. */
TEST(a_request_is_held) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s);
  int fault = arm(s, "hold-request type=create");
  ask_create(a, "/a", "", 0);
  ask_create(a, "/b", "", 0);
  order(s, "wait fault=%d", fault);
  ck_assert(!is_there(b, "/a"));
  ck_assert_int_eq(create(b, "/c", "", 0), 0);
  ck_silent(s, a);
  ck_fault(s, fault, 1, 1, "0,\"holds\":1");
  ck_assert_int_eq(done(s, "release fault=%d", fault), 1);
  ck_assert(is_there(b, "/a"));
  ck_assert_int_eq(answer_to(a, 1), 0);
  ck_assert_int_eq(answer_to(a, 2), 0);
  ck_fault(s, fault, 1, 1, "0,\"holds\":0");
}

/* The change is made and seen.  Later replies and events wait for the held
 * one. */
TEST(a_reply_is_held) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s);
  ck_assert_int_eq(look(a, ZKE_JUTE_GET_CHILDREN, "/", 1), 0);
  int fault = arm(s, "hold-reply type=exists");
  ask_read(a, ZKE_JUTE_EXISTS, "/a", 0);
  order(s, "wait fault=%d", fault);
  ask_create(a, "/a", "", 0);
  ck_until(is_there(b, "/a"), SOON);
  ck_silent(s, a);
  ck_assert_int_eq(done(s, "release session=%lld", (long long)b->id), 0);
  ck_assert_int_eq(done(s, "release session=%lld", (long long)a->id), 1);
  ck_assert_int_eq(answer_to(a, 2), ZKE_NONODE);
  ck_event(a, ZKE_EVENT_CHILD, "/");
  ck_assert_int_eq(answer_to(a, 3), 0);
}

/* The change is made and seen, also by the client that watches; only its event
 * comes late.  The fault does not concern another session's event. */
TEST(an_event_is_held) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s);
  int fault =
      arm(s, "hold-event session=%lld path=/a* skip=1", (long long)a->id);
  for (int i = 0; i < 2; i++) {
    const char *path = i ? "/b" : "/a";
    ck_assert_int_eq(look(a, ZKE_JUTE_EXISTS, path, 1), ZKE_NONODE);
    ck_assert_int_eq(look(b, ZKE_JUTE_EXISTS, path, 1), ZKE_NONODE);
    ck_assert_int_eq(look(a, ZKE_JUTE_GET_CHILDREN, "/", 1), 0);
    ask_create(b, path, "", 0);
    ck_event(b, ZKE_EVENT_CREATED, path);
    ck_assert_int_eq(answer(b), 0);
    ck_event(a, ZKE_EVENT_CREATED, path);
    ck_event(a, ZKE_EVENT_CHILD, "/");
  }
  ck_fault(s, fault, 1, 0, "1");
  ck_assert_int_eq(look(a, ZKE_JUTE_GET_DATA, "/a", 1), 0);
  ck_assert_int_eq(set(b, "/a", "x", -1), 0);
  order(s, "wait fault=%d", fault);
  ask_read(a, ZKE_JUTE_EXISTS, "/b", 0);
  ck_silent(s, a);
  ck_fault(s, fault, 2, 1, "0,\"holds\":1");
  ck_assert_int_eq(done(s, "release fault=%d", fault), 1);
  ck_event(a, ZKE_EVENT_CHANGED, "/a");
  ck_assert_int_eq(answer(a), 0);
}

/* It is released when its time is over. */
TEST(an_event_is_held_for_a_time) {
  serving s = serve_faults();
  wire *a = begin(s);
  order(s, "stop-clock");
  arm(s, "hold-event for=10s");
  ck_assert_int_eq(look(a, ZKE_JUTE_EXISTS, "/a", 1), ZKE_NONODE);
  ask_create(a, "/a", "", 0);
  order(s, "wait fault=1");
  ck_silent(s, a);
  order(s, "advance by=10s");
  ck_event(a, ZKE_EVENT_CREATED, "/a");
  ck_assert_int_eq(answer(a), 0);
}

/* Also if it is more than a socket takes: earlier answers are still being sent
 * when it is held. */
TEST_LOOP(much_is_held_and_arrives, 8, 10) {
  enum { LEN = 900000 };
  static char data[LEN + 1];
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s);
  zke_jute_get_data_response got;
  int small = 65536;
  setsockopt(a->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  memset(data, 'x', LEN);
  ck_assert_int_eq(create(b, "/a", data, 0), 0);
  int fault = arm(s, "hold-reply type=getData skip=%d", _i);
  for (int i = 0; i < _i + 2; i++) ask_read(a, ZKE_JUTE_GET_DATA, "/a", 0);
  for (int i = 0; i < 9; i++) says(s, "GET /control HTTP/1.1\r\n\r\n");
  for (int i = 0; i < _i + 2; i++) {
    if (i == _i) {
      order(s, "wait fault=%d", fault);
      ck_silent(s, a);
      ck_assert_int_eq(done(s, "release"), 1);
    }
    ck_assert_int_eq(answer_to(a, i + 1), 0);
    GET(a, get_data_response, &got);
    ck_assert_int_eq(got.data.len, LEN);
    ck_assert_mem_eq(got.data.data, data, LEN);
  }
}

/* The time is that of the server's clock, which a test moves. */
TEST(what_is_held_goes_on_after_its_time) {
  serving s = serve_faults();
  wire *w = begin(s);
  order(s, "stop-clock");
  arm(s, "hold-request type=create for=5s");
  arm(s, "hold-reply type=setData for=5s");
  ask_create(w, "/a", "", 0);
  ck_silent(s, w);
  order(s, "advance by=4999ms");
  ck_silent(s, w);
  order(s, "advance by=1ms");
  ck_assert_int_eq(answer(w), 0);
  ask_set(w, "/a", "b", -1);
  ck_silent(s, w);
  order(s, "advance by=5s");
  ck_assert_int_eq(answer(w), 0);
  order(s, "start-clock");
  arm(s, "hold-request type=setData for=10ms");
  ck_assert_int_eq(set(w, "/a", "c", -1), 0);
}

/* A client that hangs up meanwhile: what it had sent is executed, as after a
 * slow network. */
TEST_LOOP(a_held_connection_may_go, 0, 2) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s);
  int fault = arm(s, _i ? "hold-reply" : "hold-request");
  ask_create(a, "/a", "", 0);
  order(s, "wait fault=%d", fault);
  hang_up(a);
  ck_assert(is_there(b, "/a") == (_i == 1));
  order(s, "release");
  ck_assert(is_there(b, "/a"));
  ck_fault(s, fault, 1, 1, "0,\"holds\":0");
}

/* The session's next connection ends the held one: the held request is never
 * executed. */
TEST(a_held_request_goes_with_its_connection) {
  serving s = serve_faults();
  wire *w = begin(s);
  int fault = arm(s, "hold-request");
  ask_create(w, "/a", "", 0);
  order(s, "wait fault=%d", fault);
  come_back(s, &w);
  ck_assert_int_eq(done(s, "release"), 0);
  ck_assert(!is_there(w, "/a"));
}

/* A session ends while one of its requests is held. */
TEST(a_session_with_a_held_request_expires) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s);
  int fault = arm(s, "hold-request type=create");
  ask_create(a, "/a", "", 0);
  order(s, "wait fault=%d", fault);
  order(s, "expire session=%lld", (long long)a->id);
  ck_closed(a);
  ck_assert_int_eq(done(s, "release"), 0);
  ck_assert(!is_there(b, "/a"));
}

/* Faults of several kinds on one connection. */
TEST(a_connection_with_held_replies_drops) {
  serving s = serve_faults();
  wire *w = begin(s);
  arm(s, "hold-reply type=create");
  int fault = arm(s, "drop-after type=setData");
  ask_create(w, "/a", "", 0);
  ask_set(w, "/a", "b", -1);
  order(s, "wait fault=%d", fault);
  ck_assert(!next_frame(w));
  come_back(s, &w);
  ck_assert_str_eq(data_at(w, "/a"), "b");
}

/* Held requests and replies of many connections are counted, and each is
 * answered after its release; none is lost. */
TEST(many_connections_are_held_and_released) {
  enum { MANY = 200 };
  static wire *w[MANY];
  serving s = serve_faults();
  for (int i = 0; i < MANY; i++) w[i] = begin(s);
  int requests = arm(s, "hold-request type=create times=%d", MANY / 2);
  int replies = arm(s, "hold-reply type=create times=all");
  for (int i = 0; i < MANY; i++) ask_create(w[i], "/n", "", 2);
  order(s, "wait fault=%d fired=%d", replies, MANY / 2);
  order(s, "wait fault=%d fired=%d", requests, MANY / 2);
  ck_assert_int_eq(done(s, "release fault=%d", requests), MANY / 2);
  order(s, "wait fault=%d fired=%d", replies, MANY / 2);
  ck_assert_int_eq(done(s, "clear"), 2);
  for (int i = 0; i < MANY; i++) ck_assert_int_eq(answer(w[i]), 0);
}

/* ------------------------------------------------------------------------
 * Waiting for a fault
 * --------------------------------------------------------------------- */

/* The order is answered when the fault has fired so often, or is cleared. */
TEST(an_order_waits_for_a_fault) {
  serving s = serve_faults();
  wire *w = begin(s), *one = dial(s.port), *two = dial(s.port),
       *gone = dial(s.port);
  ck_assert_int_eq(arm(s, "fail type=create times=all"), 1);
  const char *text = post_text("wait fault=1 fired=2");
  send_bytes(one, text, strlen(text));
  text = post_text("wait fault=1 fired=3");
  send_bytes(two, text, strlen(text));
  send_bytes(gone, text, strlen(text));
  ck_assert_int_eq(create(w, "/a", "", 0), ZKE_SYSTEMERROR);
  ck_silent(s, one);
  hang_up(gone);
  ck_assert_int_eq(create(w, "/a", "", 0), ZKE_SYSTEMERROR);
  ck_assert_ptr_ne(strstr(receive_rest(one), "\"seen\":2,\"fired\":2"), NULL);
  ck_silent(s, two);
  order(s, "clear");
  ck_told(receive_rest(two), 410, "fault 1 was cleared");
}

/* Bytes after a waiting order are not kept. */
TEST(much_behind_an_order_takes_no_memory) {
  enum { MUCH = 1 << 20, TIMES = 50 };
  static char data[MUCH];
  serving s = serve_faults();
  wire *w = begin(s), *one = dial(s.port);
  arm(s, "fail type=create");
  const char *text = post_text("wait fault=1");
  send_bytes(one, text, strlen(text));
  long before = memory_of(s);
  for (int i = 0; i < TIMES; i++) send_bytes(one, data, sizeof data);
  ck_assert_int_lt(memory_of(s) - before, 10 * 1024);
  ck_assert_int_eq(create(w, "/a", "", 0), ZKE_SYSTEMERROR);
  ck_assert_ptr_ne(strstr(receive_rest(one), "\"fired\":1"), NULL);
}

/* ------------------------------------------------------------------------
 * Sessions and time
 * --------------------------------------------------------------------- */

/* Its client finds out as with ZooKeeper: the connection closes, and on return
 * there is no such session. */
TEST(a_session_expires) {
  serving s = serve_faults();
  wire *a = begin(s), *b = begin(s), *away = begin(s);
  ck_assert_int_eq(create(a, "/a", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(create(away, "/away", "", ZKE_EPHEMERAL), 0);
  int64_t id = away->id;
  ck_assert_int_eq(done(s, "drop session=%lld", (long long)id), 1);
  ck_assert_int_eq(done(s, "expire session=%lld", (long long)a->id), 1);
  ck_closed(a);
  ck_assert(!is_there(b, "/a") && is_there(b, "/away"));
  ck_expired(s, a);
  ck_assert_int_eq(done(s, "expire session=0x%llx", (long long)id), 1);
  ck_assert(!is_there(b, "/away"));
  ck_expired(s, away);
  ck_assert_int_eq(done(s, "expire session=all"), 1);
  ck_closed(b);
  ck_expired(s, b);
}

/* So does a session of another server on the same file. */
TEST(a_session_of_another_server_expires) {
  serving one = serve(test_path("app.db"), "--control");
  serving two = serve(test_path("app.db"), "");
  wire *w = begin(two);
  ck_assert_int_eq(done(one, "expire session=%lld", (long long)w->id), 1);
  ck_closed(w);
  ck_expired(two, w);
}

/* The server's time is moved: a session without its client expires, and a
 * connected client's session does not. */
TEST(time_is_moved) {
  serving s = serve_faults();
  wire *w = begin(s), *away = begin(s), *other = begin(s);
  ck_assert_int_eq(create(away, "/away", "", ZKE_EPHEMERAL), 0);
  order(s, "drop session=%lld", (long long)away->id);
  order(s, "drop session=%lld", (long long)other->id);
  order(s, "advance by=29s");
  ck_assert(is_there(w, "/away"));
  come_back(s, &other);
  order(s, "advance by=4s");
  ck_assert(!is_there(w, "/away"));
  ck_expired(s, away);
  ck_assert_int_eq(ping(w), 0);
  ck_assert_int_eq(ping(other), 0);
}

/* A paused client is not heard and hears nothing, like a stopped process, or
 * one behind a broken network.  Coming back does not help it. */
TEST(a_paused_session_runs_out_of_time) {
  serving s = serve_faults();
  wire *w = begin(s), *paused = begin(s), *again = dial(s.port);
  ck_assert_int_eq(create(paused, "/p", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(look(paused, ZKE_JUTE_EXISTS, "/w", 1), ZKE_NONODE);
  int fault = arm(s, "pause session=%lld", (long long)paused->id);
  ck_assert_int_eq(create(w, "/w", "", 0), 0);
  ask_create(paused, "/q", "", 0);
  ck_silent(s, paused);
  send_connect(again, paused->id, paused->password, 30000, 0);
  order(s, "wait fault=%d fired=2", fault);
  ck_silent(s, again);
  order(s, "advance by=29s");
  ck_assert(is_there(w, "/p"));
  order(s, "advance by=3s");
  ck_assert(!is_there(w, "/p") && !is_there(w, "/q"));
  ck_closed(paused);
  order(s, "release session=%lld", (long long)paused->id);
  ck_assert_int_eq(take_connected(again), 0);
  ck_fault(s, fault, 1, 2, "0");
}

/* The fault that held a connection last is the one that lets it go. */
TEST(a_connection_is_held_by_two_faults) {
  serving s = serve_faults();
  wire *w = begin(s);
  int request = arm(s, "hold-request type=create");
  int reply = arm(s, "hold-reply type=exists");
  ask_read(w, ZKE_JUTE_EXISTS, "/a", 0);
  order(s, "wait fault=%d", reply);
  ask_create(w, "/a", "", 0);
  order(s, "wait fault=%d", request);
  int pause = arm(s, "pause session=%lld", (long long)w->id);
  ck_assert_int_eq(done(s, "release fault=%d", request), 0);
  ck_assert_int_eq(done(s, "release fault=%d", reply), 0);
  ck_silent(s, w);
  ck_assert_int_eq(done(s, "release fault=%d", pause), 1);
  ck_assert_int_eq(answer_to(w, 1), ZKE_NONODE);
  ck_assert_int_eq(answer_to(w, 2), 0);
}

/* A paused session gets no answer and no event until the pause's time has
 * passed; then it gets all of them, in order. */
TEST(a_pause_ends) {
  serving s = serve_faults();
  wire *w = begin(s), *other = begin(s);
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "/a", 1), ZKE_NONODE);
  arm(s, "pause session=%lld for=10s", (long long)w->id);
  ck_assert_int_eq(create(other, "/a", "", 0), 0);
  ask_set(w, "/a", "late", -1);
  ck_silent(s, w);
  order(s, "advance by=10s");
  ck_event(w, ZKE_EVENT_CREATED, "/a");
  ck_assert_int_eq(answer(w), 0);
}

/* Its sessions' time does not pass, however long it really takes.  Nor does the
 * library's own timeout, which is 1.5 s longer. */
TEST(a_clock_that_stands_ends_nobody) {
  serving s = serve(":memory:", "--control --timeout-min 20ms");
  order(s, "stop-clock");
  ck_assert_ptr_ne(
      strstr(says(s, "GET /control HTTP/1.1\r\n\r\n"), "\"clock\":\"stopped\""),
      NULL);
  wire *w = begin_with(s, 20), *again = dial(s.port);
  int64_t until = test_now() + 2000;
  while (test_now() < until) ck_word(s, "mntr", "zk_global_sessions\t1\n");
  send_connect(again, w->id, w->password, 20, 0);
  ck_assert_int_eq(take_connected(again), w->id);
  hang_up(w), hang_up(again);
  order(s, "start-clock");
  ck_until(strstr(says(s, "mntr"), "zk_global_sessions\t0\n"), SOON);
}

/* The creation time of a path's node, in ms. */
static int64_t made_at(wire *w, const char *path) {
  zke_jute_stat_response got;
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, path, 0), 0);
  GET(w, stat_response, &got);
  return got.stat.ctime;
}

/* Nodes with a TTL, and containers, go by the same clock, whether it runs or is
 * stopped.  It does not go back. */
TEST_LOOP(nodes_go_when_time_is_moved, 0, 2) {
  serving s = serve_faults();
  wire *w = begin(s);
  if (_i) order(s, "stop-clock");
  ck_assert_int_eq(create(w, "/before", "", 0), 0);
  ck_call(w, ZKE_JUTE_CREATE_TTL, create_ttl_request, "/ttl", {0, ""},
          zke_open_acl, ZKE_PERSISTENT_WITH_TTL, 60000);
  ck_call(w, ZKE_JUTE_CREATE_CONTAINER, create_request, "/box", {0, ""},
          zke_open_acl, ZKE_CONTAINER);
  ck_assert_int_eq(create(w, "/box/a", "", 0), 0);
  ck_assert_int_eq(erase(w, "/box/a"), 0);
  order(s, "advance by=50s");
  ck_assert(is_there(w, "/ttl") && is_there(w, "/box"));
  order(s, "advance by=11s");
  ck_assert(!is_there(w, "/ttl") && !is_there(w, "/box"));
  order(s, "start-clock");
  ck_assert_int_eq(create(w, "/after", "", 0), 0);
  ck_assert_int_ge(made_at(w, "/after") - made_at(w, "/before"), 61000);
}

/* ------------------------------------------------------------------------
 * Outages
 * --------------------------------------------------------------------- */

/* A new connection is closed at its first word. */
static void ck_no_connection(serving s) {
  wire *w = dial(s.port);
  send_connect(w, 0, NULL, 10000, 0);
  ck_assert(!next_frame(w));
}

/* Clients are refused until the release; orders work. */
TEST(an_outage_is_for_clients) {
  serving s = serve_faults();
  wire *w = begin(s);
  int fault = arm(s, "outage");
  ck_closed(w);
  ck_no_connection(s);
  ck_assert_str_eq(says(s, "ruok"), "");
  ck_fault(s, fault, 2, 2, "null");
  ck_assert_int_eq(done(s, "release"), 1);
  come_back(s, &w);
  ck_assert_str_eq(says(s, "ruok"), "imok");
}

/* It lasts for so many connections, or so long. */
TEST(an_outage_ends) {
  serving s = serve_faults();
  wire *w = begin(s);
  int fault = arm(s, "outage times=2");
  ck_closed(w);
  ck_no_connection(s);
  ck_no_connection(s);
  ck_fault(s, fault, 2, 2, "0");
  come_back(s, &w);
  order(s, "stop-clock");
  arm(s, "outage for=10s");
  ck_closed(w);
  order(s, "advance by=9s");
  ck_no_connection(s);
  order(s, "advance by=1s");
  come_back(s, &w);
}

/* ------------------------------------------------------------------------
 * With other processes
 * --------------------------------------------------------------------- */

/* The request is retried again and again, but counts as one; its fault has
 * fired when it is executed. */
TEST(a_request_that_waits_for_another_process_meets_its_fault_once) {
  serving s = serve(test_path("app.db"), "--control");
  wire *w = begin(s), *other = begin(s);
  int fault = arm(s, "drop-after type=create times=all");
  sqlite3 *db = hold(test_path("app.db"));
  ask_create(w, "/a", "", 0);
  for (int i = 0; i < 3; i++) ck_assert_int_eq(ping(other), 0);
  ck_fault(s, fault, 1, 0, "null");
  release(db);
  ck_closed(w);
  ck_fault(s, fault, 1, 1, "null");
  ck_assert(is_there(other, "/a"));
}

/* The order is answered when the session has ended. */
TEST(an_expiry_waits_for_another_process) {
  serving s = serve(test_path("app.db"), "--control");
  wire *w = begin(s), *other = begin(s), *asking = dial(s.port);
  char line[100];
  ck_assert_int_eq(create(w, "/a", "", ZKE_EPHEMERAL), 0);
  sqlite3 *db = hold(test_path("app.db"));
  snprintf(line, sizeof line, "expire session=%lld", (long long)w->id);
  const char *text = post_text(line);
  send_bytes(asking, text, strlen(text));
  for (int i = 0; i < 3; i++) ck_assert_int_eq(ping(other), 0);
  ck_silent(s, asking);
  release(db);
  ck_assert_ptr_ne(strstr(receive_rest(asking), "{\"done\":1}"), NULL);
  ck_assert(!is_there(other, "/a"));
  ck_closed(w);
}

/* ------------------------------------------------------------------------
 * Random orders
 * --------------------------------------------------------------------- */

/* Random text, mostly of meaningful words. */
static void make_text(char *text, size_t size, unsigned *seed) {
  static const char *const words[] = {
      "drop-before ", "drop-after ", "hold-request ",
      "hold-reply ",  "hold-event ", "fail ",
      "pause ",       "outage ",     "expire ",
      "advance ",     "release ",    "clear ",
      "wait ",        "session=",    "all ",
      "type=",        "create ",     "any ",
      "path=",        "/a* ",        "[",
      "times=",       "1 ",          "for=",
      "1ms ",         "'",           "\"",
      "\\",           "#",           "=",
      "%s%n",         "\r\n",        "\x01",
      "99999999999 ", "fault=",      "error="};
  size_t len = 0;
  text[0] = '\0';
  for (int i = rand_r(seed) % 8; i >= 0; i--)
    len += (size_t)snprintf(
        text + len, size - len, "%s",
        words[(size_t)rand_r(seed) % (sizeof words / sizeof *words)]);
}

/* The server goes on, whatever is ordered while clients come and go. */
TEST(orders_of_chance_do_no_harm) {
  char text[200];
  unsigned seed = test_seed();
  serving s = serve_faults();
  for (int i = 0; i < 400; i++) {
    wire *w = dial(s.port), *asking = dial(s.port);
    make_text(text, sizeof text, &seed);
    const char *whole = post_text(text);
    send_connect(w, 0, NULL, 10000, 0);
    send_bytes(asking, whole, strlen(whole) - (size_t)(i % 10 == 0));
    says(s, "GET /control HTTP/1.1\r\n\r\n");
    hang_up(asking);
    hang_up(w);
  }
  order(s, "clear");
  wire *w = begin(s);
  ck_assert_int_eq(ping(w), 0);
}

/* ------------------------------------------------------------------------
 * The server's end
 * --------------------------------------------------------------------- */

/* The next server on the file has none of the faults, and held requests were
 * not executed. */
TEST_LOOP(faults_end_with_their_server, 0, 2) {
  serving s = serve(test_path("app.db"), "--control");
  wire *a = begin(s), *b = begin(s);
  arm(s, "hold-reply type=setData times=all");
  int fault = arm(s, "hold-request type=create");
  arm(s, "fail times=all");
  ask_create(a, "/a", "", 0);
  order(s, "wait fault=%d", fault);
  arm(s, "pause session=all");
  arm(s, "outage");
  if (_i) {
    kill(s.pid, SIGKILL);
    ended(s);
  } else {
    stop(s);
  }
  s = serve(test_path("app.db"), "--control");
  come_back(s, &a);
  come_back(s, &b);
  ck_assert(!is_there(a, "/a"));
  ck_assert_int_eq(create(b, "/a", "", 0), 0);
  ck_assert_int_eq(done(s, "clear"), 0);
}
