/* test_admin.c - what zke serve tells of itself: pages of JSON by HTTP, the
 * numbers of mntr and cons, and who sends something else to its port
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "test/server/wire.h"

/* What the server answers to these bytes; it closes behind it. */
static const char *asked(serving s, const char *bytes, size_t len) {
  wire w = dial(s.port);
  send_bytes(&w, bytes, len);
  const char *text = receive_rest(&w);
  hang_up(&w);
  return text;
}

/* A page; the status of the answer is checked, and its length. */
static const char *page(serving s, const char *path, const char *status) {
  char request[200];
  size_t announced;
  snprintf(request, sizeof request,
           "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
  const char *text = asked(s, request, strlen(request));
  ck_assert_msg(strncmp(text, "HTTP/1.1 ", 9) == 0, "%s", text);
  ck_assert_msg(strncmp(text + 9, status, strlen(status)) == 0, "%s", text);
  const char *body = strstr(text, "\r\n\r\n") + 4;
  ck_assert_int_eq(
      sscanf(strstr(text, "Content-Length: "), "%*s %zu", &announced), 1);
  ck_assert_uint_eq(strlen(body), announced);
  ck_assert_ptr_nonnull(strstr(text, "\r\nConnection: close\r\n"));
  return body;
}

#define ck_page(s, path, part)                                            \
  do {                                                                    \
    const char *got_ = page(s, path, "200 OK\r\n");                       \
    ck_assert_msg(strstr(got_, part) != NULL, "%s: %s in %s", path, part, \
                  got_);                                                  \
  } while (0)

/* ------------------------------------------------------------------------
 * Pages
 * --------------------------------------------------------------------- */

/* Each command of ZooKeeper's that means something here, with its members. */
TEST(pages_tell_what_the_words_do) {
  serving s = serve(":memory:", "--timeout-min 5s");
  wire w = begin(s);
  char part[100];
  create(&w, "/e", "", ZKE_EPHEMERAL);
  look(&w, ZKE_JUTE_GET_DATA, "/e", 1);
  look(&w, ZKE_JUTE_GET_CHILDREN, "/e", 1);
  ck_page(s, "/commands/configuration", "\"tick_time\": 2500,");
  ck_page(s, "/commands/configuration", "\"client_port_listen_backlog\": -1,");
  ck_page(s, "/commands/configuration", "\"data_log_dir\": \":memory:\",");
  ck_page(s, "/commands/conf", "\"command\": \"configuration\",");
  snprintf(part, sizeof part, "\"session_id\": %lld,", (long long)w.id);
  ck_page(s, "/commands/connections", part);
  ck_page(s, "/commands/cons", "\"last_operation\": \"GETC\",");
  snprintf(part, sizeof part, "\"%lld\": [\n      \"/e\"\n    ]",
           (long long)w.id);
  ck_page(s, "/commands/dump", part);
  ck_page(s, "/commands/environment", "\"zookeeper.version\": \"3.8.");
  ck_page(s, "/commands/is_read_only", "\"read_only\": false,");
  ck_page(s, "/commands/monitor", "\"ephemerals_count\": 1,");
  ck_page(s, "/commands/server_stats", "\"packets_received\": 4,");
  ck_page(s, "/commands/stats?x=1", "\"node_count\": 5,");
  ck_page(s, "/commands/stats", "\"connections\": [");
  ck_page(s, "/commands/watch_summary", "\"num_total_watches\": 2,");
  ck_page(s, "/commands/watches", part);
  snprintf(part, sizeof part, "\"/e\": [\n      %lld\n    ]", (long long)w.id);
  ck_page(s, "/commands/watches_by_path", part);
  ck_page(s, "/commands", "<a href=\"/commands/stats\">stats</a>");
  ck_page(s, "/commands/", "<a href=\"/commands/dump\">dump</a>");
  ck_assert_str_eq(page(s, "/commands/ruok", "200 OK\r\n"),
                   "{\n  \"command\": \"ruok\",\n  \"error\": null\n}");
  hang_up(&w);
  stop(s);
}

/* No node has such a path, but a watch may. */
TEST(a_watch_of_what_is_no_utf8_is_shown) {
  serving s = serve(":memory:", "");
  wire w = begin(s);
  char part[100];
  look(&w, ZKE_JUTE_EXISTS, "/e\377", 1);
  look(&w, ZKE_JUTE_EXISTS, "/e", 1);
  ck_page(s, "/commands/watches", "\"base64\": \"L2X/\"");
  snprintf(part, sizeof part, "\"/e\\\\xff\": [\n      %lld\n    ]",
           (long long)w.id);
  ck_page(s, "/commands/watches_by_path", part);
  hang_up(&w);
  stop(s);
}

/* A page that does not exist is answered by 404 with a sentence, whatever bytes
 * its name has. */
TEST(what_is_no_page_has_a_sentence) {
  serving s = serve(":memory:", "");
  ck_assert_str_eq(page(s, "/commands/nosuch", "404 Not Found\r\n"),
                   "{\n  \"command\": \"nosuch\",\n"
                   "  \"error\": \"Unknown command: nosuch\"\n}");
  ck_assert_str_eq(page(s, "/commandsx", "404 "), "there is no /commandsx\n");
  ck_assert_ptr_nonnull(
      strstr(page(s, "/commands/\377\"\\", "404 Not Found\r\n"), "base64"));
  stop(s);
}

/* A page of the web gets nothing, whether it tells its origin or its own name
 * leads here.  Where other hosts reach the server it has names. */
TEST(a_page_in_a_browser_is_refused) {
  static const struct {
    const char *host, *more;
    bool alone, with_others; /* is it answered? */
  } heads[] = {{"127.0.0.1:2181", "", true, true},
               {"LocalHost", "", true, true},
               {"[::1]:2181", "", true, true},
               {"evil.example", "", false, true},
               {"localhost", "Origin: http://evil.example\r\n", false, false}};
  static const char *const paths[] = {"/commands", "/commands/",
                                      "/commands/dump"};
  for (int others = 0; others < 2; others++) {
    serving s = serve(":memory:", others ? "--host 0.0.0.0" : "");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
      for (size_t k = 0; k < sizeof paths / sizeof *paths; k++) {
        char text[200];
        bool answered = others ? heads[i].with_others : heads[i].alone;
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n",
                 paths[k], heads[i].host, heads[i].more);
        const char *told = asked(s, text, strlen(text));
        ck_assert_msg(
            strncmp(told, answered ? "HTTP/1.1 200 " : "HTTP/1.1 403 ", 13) ==
                0,
            "%s%s", text, told);
      }
    }
    stop(s);
  }
}

/* A head that comes byte by byte is waited for, and holds up nobody. */
TEST(a_head_may_come_in_single_bytes) {
  static const char request[] =
      "GET /commands/ruok HTTP/1.1\r\nHost: [::1]\r\nX: y\r\n\r\n";
  serving s = serve(":memory:", "");
  wire w = dial(s.port), other = begin(s);
  for (size_t i = 0; i < sizeof request - 1; i++) {
    send_bytes(&w, request + i, 1);
    ck_assert_int_eq(ping(&other), 0);
  }
  ck_assert_ptr_nonnull(strstr(receive_rest(&w), "\"ruok\""));
  hang_up(&w);
  hang_up(&other);
  stop(s);
}

/* Who says nothing more is not waited for without end. */
TEST(a_head_that_does_not_end_ends_the_connection) {
  serving s = serve(":memory:", "");
  wire w = dial(s.port);
  send_bytes(&w, "GET /commands/ruok HTTP/1.1\r\n", 29);
  ck_assert_str_eq(receive_rest(&w), "");
  hang_up(&w);
  ck_word(s, "mntr", "\nzk_sessionless_connections_expired\t1\n");
  stop(s);
}

/* Heads of chance: an answer of HTTP each, and the server goes on. */
TEST(malformed_heads_do_no_harm) {
  static const char letters[] = "/ \t\r?%\"\\HTTP1.acomnds:\377";
  serving s = serve(":memory:", "");
  srand(test_seed());
  for (int i = 0; i < 300; i++) {
    char head[200] = "GET ";
    int len = 4 + rand() % 190;
    for (int k = 4; k < len; k++)
      head[k] = letters[(size_t)rand() % sizeof letters]; /* a NUL, too */
    memcpy(head + len, "\r\n\r\n", 4);
    ck_assert_int_eq(strncmp(asked(s, head, (size_t)len + 4), "HTTP/1.1 4", 10),
                     0);
  }
  ck_page(s, "/commands/ruok", "ruok");
  stop(s);
}

/* ------------------------------------------------------------------------
 * Numbers
 * --------------------------------------------------------------------- */

/* What is counted is what was done. */
TEST(the_numbers_of_mntr_are_true) {
  serving s = serve(":memory:", "--connections 2");
  wire w = begin(s), other = begin(s), third = dial(s.port);
  ck_assert(!next_frame(&third));
  hang_up(&third);
  for (int i = 0; i < 3; i++) set(&w, "/", "x", -1);
  look(&w, ZKE_JUTE_GET_DATA, "/", 1);
  look(&w, ZKE_JUTE_EXISTS, "/no", 0);
  hang_up(&other);
  const char *got;
  ck_until((got = says(s, "mntr"), strstr(got, "zk_version")) != NULL, SOON);
  static const char *const lines[] = {"zk_server_state\tstandalone",
                                      "zk_cnt_updatelatency\t3",
                                      "zk_cnt_readlatency\t2",
                                      "zk_connection_rejected\t1",
                                      "zk_global_sessions\t2",
                                      "zk_watch_count\t1",
                                      "zk_znode_count\t4",
                                      "zk_outstanding_requests\t0",
                                      "zk_min_client_response_size\t16",
                                      "zk_last_client_response_size\t16",
                                      "zk_max_client_response_size\t89",
                                      "zk_packets_received\t8"};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
    ck_assert_msg(strstr(got, lines[i]) != NULL, "%s: %s", lines[i], got);
  hang_up(&w);
  stop(s);
}

/* Sends an order of a test, which is done. */
static void order(serving s, const char *line) {
  char text[200];
  snprintf(text, sizeof text,
           "POST /control HTTP/1.1\r\nContent-Length: %zu\r\n\r\n%s",
           strlen(line), line);
  const char *told = asked(s, text, strlen(text));
  ck_assert_msg(strncmp(told, "HTTP/1.1 200 OK", 15) == 0, "%s", told);
}

/* Makes so many ephemeral nodes, and watches them. */
static void make_many(wire *w, int count) {
  char path[32], *paths[20000];
  zke_strings all = {count, paths}, none = {0, NULL};
  request(w, ZKE_JUTE_MULTI);
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "/%05d", i);
    paths[i] = strdup(path);
    PUT(w, multi_header, ZKE_JUTE_CREATE, 0, -1);
    PUT(w, create_request, path, {0, ""}, zke_open_acl, ZKE_EPHEMERAL);
  }
  PUT(w, multi_header, -1, 1, -1);
  ask(w);
  ck_assert_int_eq(answer(w), 0);
  request(w, ZKE_JUTE_SET_WATCHES);
  PUT(w, set_watches, w->head.zxid, all, none, none);
  ask(w);
  ck_assert_int_eq(answer(w), 0);
  for (int i = 0; i < count; i++) free(paths[i]);
}

/* Anybody may ask for numbers, without end.  What is counted row by row is told
 * again for a second of the server's clock, where it is many rows. */
TEST(numbers_of_many_rows_are_kept_for_a_second) {
  enum { MANY = 10001 };
  static const struct {
    const char *word, *before, *after;
  } numbers[] = {
      {"srvr", "Node count: 10005\n", "Node count: 10006\n"},
      {"mntr", "znode_count\t10005\n", "znode_count\t10006\n"},
      {"mntr", "ephemerals_count\t10001\n", "ephemerals_count\t10002\n"},
      {"mntr", "watch_count\t10001\n", "watch_count\t10002\n"},
      {"wchs", "watching 10001 paths\n", "watching 10002 paths\n"},
      {"wchs", "Total watches:10001\n", "Total watches:10002\n"}};
  size_t count = sizeof numbers / sizeof *numbers;
  serving s = serve(":memory:", "--control");
  wire w = begin(s);
  make_many(&w, MANY);
  order(s, "stop-clock");
  for (size_t i = 0; i < count; i++)
    ck_word(s, numbers[i].word, numbers[i].before);
  ck_assert_int_eq(create(&w, "/e", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(look(&w, ZKE_JUTE_GET_DATA, "/e", 1), 0);
  for (size_t i = 0; i < count; i++)
    ck_word(s, numbers[i].word, numbers[i].before);
  order(s, "advance by=1s");
  for (size_t i = 0; i < count; i++)
    ck_word(s, numbers[i].word, numbers[i].after);
  hang_up(&w);
  stop(s);
}

/* All that ZooKeeper 3.8 says of a connection, in its order. */
TEST(cons_has_the_form_that_old_clients_parse) {
  serving s = serve(":memory:", "");
  wire w = begin(s);
  char op[8], rest[8];
  long long n[10];
  unsigned long long sid, xid, zxid;
  look(&w, ZKE_JUTE_GET_DATA, "/", 0);
  const char *line = strstr(says(s, "cons"), "sid="), *start = line;
  while (start[-1] != '/') start--;
  ck_assert_int_eq(
      sscanf(start,
             "127.0.0.1:%lld[1](queued=%lld,recved=%lld,sent=%lld,sid=0x%llx,"
             "lop=%7[A-Z],est=%lld,to=%lld,lcxid=0x%llx,lzxid=0x%llx,"
             "lresp=%lld,llat=%lld,minlat=%lld,avglat=%lld,maxlat=%*d%7[)]",
             &n[0], &n[1], &n[2], &n[3], &sid, op, &n[4], &n[5], &xid, &zxid,
             &n[6], &n[7], &n[8], &n[9], rest),
      15);
  ck_assert_int_eq(sid, w.id);
  ck_assert_str_eq(op, "GETD");
  ck_assert_int_eq(n[1], 0);
  ck_assert_int_eq(n[2], 2);
  ck_assert_int_eq(n[3], 2);
  ck_assert_int_eq(n[5], 30000);
  ck_assert_int_eq(xid, w.xid);
  ck_assert_int_eq(zxid, w.head.zxid);
  hang_up(&w);
  stop(s);
}
