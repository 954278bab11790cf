/* test_stats.c - the statistics of zke serve: the numbers of mntr and cons
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/server/wire.h"

/* The counters agree with what was done. */
TEST(the_numbers_of_mntr_are_true) {
  serving s = serve(":memory:", "--connections 2");
  wire *w = begin(s), *other = begin(s), *third = dial(s.port);
  ck_assert(!next_frame(third));
  for (int i = 0; i < 3; i++) set(w, "/", "x", -1);
  look(w, ZKE_JUTE_GET_DATA, "/", 1);
  look(w, ZKE_JUTE_EXISTS, "/no", 0);
  hang_up(other);
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
}

/* Make `count` ephemeral nodes, and watch them. */
static void make_many(wire *w, int count) {
  char path[32], *paths[20000];
  zke_strings all = {count, paths}, none = {0, NULL};
  request(w, ZKE_JUTE_MULTI);
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof path, "/%05d", i);
    paths[i] = strdup(path);
    PART(w, ZKE_JUTE_CREATE, create_request, path, {0, ""}, zke_open_acl,
         ZKE_EPHEMERAL);
  }
  ck_assert_int_eq(end_multi(w), 0);
  ck_call(w, ZKE_JUTE_SET_WATCHES, set_watches, w->head.zxid, all, none, none);
  for (int i = 0; i < count; i++) free(paths[i]);
}

/* Anybody may ask for numbers, as often as they like.  Large tables are counted
 * once in a second of the server's clock. */
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
  wire *w = begin(s);
  make_many(w, MANY);
  order(s, "stop-clock");
  for (size_t i = 0; i < count; i++)
    ck_word(s, numbers[i].word, numbers[i].before);
  ck_assert_int_eq(create(w, "/e", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/e", 1), 0);
  for (size_t i = 0; i < count; i++)
    ck_word(s, numbers[i].word, numbers[i].before);
  order(s, "advance by=1s");
  for (size_t i = 0; i < count; i++)
    ck_word(s, numbers[i].word, numbers[i].after);
}

/* All fields of ZooKeeper 3.8 for a connection, in its order. */
TEST(cons_has_the_form_that_old_clients_parse) {
  serving s = serve(":memory:", "");
  wire *w = begin(s);
  char op[8], rest[8];
  long long n[10];
  unsigned long long sid, xid, zxid;
  look(w, ZKE_JUTE_GET_DATA, "/", 0);
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
  ck_assert_int_eq(sid, w->id);
  ck_assert_str_eq(op, "GETD");
  ck_assert_int_eq(n[1], 0);
  ck_assert_int_eq(n[2], 2);
  ck_assert_int_eq(n[3], 2);
  ck_assert_int_eq(n[5], 30000);
  ck_assert_int_eq(xid, w->xid);
  ck_assert_int_eq(zxid, w->head.zxid);
}
