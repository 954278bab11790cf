/* test_quota.c - zke serve: quotas below /zookeeper/quota, their statistics and
 * their limits
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/server/wire.h"

enum { QUOTAEXCEEDED = ZKE_JUTE_QUOTAEXCEEDED };

/* Set a quota like ZooKeeper's setquota: the parent nodes, the limits, and then
 * the statistics. */
static void set_quota(wire *w, const char *path, const char *limits) {
  char node[200];
  size_t root = (size_t)snprintf(node, sizeof node, "/zookeeper/quota");
  for (const char *at = path; *at;) {
    size_t len = 1 + strcspn(at + 1, "/");
    at += len;
    snprintf(node + root, sizeof node - root, "%.*s", (int)(at - path), path);
    int rc = create(w, node, "", 0);
    ck_assert(rc == 0 || rc == ZKE_NODEEXISTS);
  }
  snprintf(node, sizeof node, "/zookeeper/quota%s/zookeeper_limits", path);
  ck_assert_int_eq(create(w, node, limits, 0), 0);
  snprintf(node, sizeof node, "/zookeeper/quota%s/zookeeper_stats", path);
  ck_assert_int_eq(create(w, node, "count=0,bytes=0", 0), 0);
}

/* The statistics of a path are these. */
static void ck_stats(wire *w, const char *path, const char *expected) {
  char node[200];
  zke_jute_get_data_response got;
  snprintf(node, sizeof node, "/zookeeper/quota%s/zookeeper_stats", path);
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, node, 0), 0);
  GET(w, get_data_response, &got);
  ck_assert_int_eq(got.data.len, (int)strlen(expected));
  ck_assert_mem_eq(got.data.data, expected, strlen(expected));
  ck_assert_int_eq(got.stat.dataLength, got.data.len);
  ck_assert_int_eq(got.stat.version, 0);
}

/* ------------------------------------------------------------------------
 * Statistics
 * --------------------------------------------------------------------- */

/* They are calculated at each read, whoever has changed the tree. */
TEST(statistics_are_right_when_they_are_read) {
  const char *file = test_path("app.db");
  wire *w = begin(serve(file, ""));
  zke *z;
  create(w, "/a", "12", 0);
  set_quota(w, "/a", "count=5,bytes=-1");
  ck_stats(w, "/a", "count=1,bytes=2");
  create(w, "/a/b", "1234", ZKE_EPHEMERAL);
  create(w, "/ab", "1", 0);
  ck_stats(w, "/a", "count=2,bytes=6");
  ck_ok(zke_open(file, NULL, &z));
  ck_ok(
      zke_create(z, "/a/c", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_close(z));
  ck_stats(w, "/a", "count=3,bytes=7");
  set(w, "/a/c", "", -1);
  ck_assert_int_eq(erase(w, "/a/b"), 0);
  ck_stats(w, "/a", "count=2,bytes=2");
}

/* A multiRead shows the same.  A quota without limits, or of "/", has no
 * statistics: its node has its own data. */
TEST(statistics_are_those_of_a_quota) {
  wire *w = begin(serve(":memory:", ""));
  zke_jute_get_data_response got;
  create(w, "/a", "12", 0);
  set_quota(w, "/a", "count=5,bytes=-1");
  request(w, ZKE_JUTE_MULTI_READ);
  PART(w, ZKE_JUTE_GET_DATA, read_request, "/zookeeper/quota/a/zookeeper_stats",
       0);
  ck_assert_int_eq(end_multi(w), 0);
  ck_result(w, ZKE_JUTE_GET_DATA, 0);
  GET(w, get_data_response, &got);
  ck_assert_int_eq(got.data.len, 15);
  ck_assert_mem_eq(got.data.data, "count=1,bytes=2", 15);
  ck_assert_int_eq(erase(w, "/zookeeper/quota/a/zookeeper_limits"), 0);
  ck_stats(w, "/a", "count=0,bytes=0");
  set_quota(w, "", "count=5,bytes=-1");
  ck_stats(w, "", "count=0,bytes=0");
  set_quota(w, "/none", "count=5,bytes=-1");
  ck_stats(w, "/none", "count=0,bytes=0");
  create(w, "/zookeeper_stats", "x", 0);
  ck_assert_str_eq(data_at(w, "/zookeeper_stats"), "x");
}

/* Counting needs no permission to read. */
TEST(statistics_count_what_is_protected) {
  static const zke_acl nobody = {ZKE_PERM_CREATE, "world", "anyone"};
  wire *w = begin(serve(":memory:", "--enforce-quota"));
  ck_call(w, ZKE_JUTE_CREATE, create_request, "/a", {3, "123"}, {1, &nobody},
          0);
  set_quota(w, "/a", "count=-1,bytes=-1=;countHardLimit=2");
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, "/a", 0), ZKE_NOAUTH);
  ck_stats(w, "/a", "count=1,bytes=3");
  ck_assert_int_eq(create(w, "/a/b", "", 0), 0);
  ck_assert_int_eq(create(w, "/a/c", "", 0), QUOTAEXCEEDED);
}

/* ------------------------------------------------------------------------
 * Limits
 * --------------------------------------------------------------------- */

/* A create beyond the limit is refused and makes nothing; the quota's own node
 * counts, other subtrees do not, and a deletion makes room. */
TEST(a_hard_limit_of_nodes_is_enforced) {
  wire *w = begin(serve(":memory:", "--enforce-quota"));
  create(w, "/a", "", 0);
  create(w, "/b", "", 0);
  set_quota(w, "/a", "count=1,bytes=-1=;byteHardLimit=-1;countHardLimit=3");
  ck_assert_int_eq(create(w, "/a/1", "", 0), 0);
  ck_assert_int_eq(create(w, "/a/1/2", "", ZKE_EPHEMERAL), 0);
  ck_assert_int_eq(create(w, "/a/3", "", 0), QUOTAEXCEEDED);
  ck_assert_int_eq(create(w, "/a/1/", "", ZKE_PERSISTENT_SEQUENTIAL),
                   QUOTAEXCEEDED);
  ck_assert_int_eq(look(w, ZKE_JUTE_EXISTS, "/a/3", 0), ZKE_NONODE);
  ck_assert_int_eq(set(w, "/a", "any", -1), 0);
  ck_assert_int_eq(create(w, "/b/1", "", 0), 0);
  ck_assert_int_eq(create(w, "/ab", "", 0), 0);
  ck_assert_int_eq(erase(w, "/a/1/2"), 0);
  ck_assert_int_eq(create(w, "/a/3", "", 0), 0);
}

/* A create or a change that brings the subtree's data above the limit is
 * refused; one that reaches the limit is not. */
TEST(a_hard_limit_of_bytes_is_enforced) {
  wire *w = begin(serve(":memory:", "--enforce-quota"));
  create(w, "/a", "1234", 0);
  set_quota(w, "/a", "count=-1,bytes=1=;byteHardLimit=10");
  ck_assert_int_eq(create(w, "/a/1", "123456", 0), 0);
  ck_assert_int_eq(create(w, "/a/2", "1", 0), QUOTAEXCEEDED);
  ck_assert_int_eq(create(w, "/a/2", "", 0), 0);
  ck_assert_int_eq(set(w, "/a/1", "1234567", -1), QUOTAEXCEEDED);
  ck_assert_int_eq(set(w, "/a/1", "1234567", 9), QUOTAEXCEEDED);
  ck_assert_int_eq(set(w, "/a/1", "654321", -1), 0);
  ck_assert_int_eq(set(w, "/a", "", -1), 0);
  ck_assert_int_eq(set(w, "/a/2", "1234", -1), 0);
  ck_assert_int_eq(set(w, "/a/2", "12345", -1), QUOTAEXCEEDED);
  ck_stats(w, "/a", "count=3,bytes=10");
}

/* Other errors of a change come first, as in ZooKeeper: clients that make
 * parents rely on NODEEXISTS. */
TEST(another_fault_is_told_first) {
  wire *w = begin(serve(":memory:", "--enforce-quota"));
  create(w, "/a", "", 0);
  create(w, "/a/1", "", ZKE_EPHEMERAL);
  set_quota(w, "/a", "count=-1,bytes=-1=;byteHardLimit=0;countHardLimit=1");
  ck_assert_int_eq(create(w, "/a", "", 0), ZKE_NODEEXISTS);
  ck_assert_int_eq(create(w, "/a/x/y", "", 0), ZKE_NONODE);
  ck_assert_int_eq(create(w, "/a/1/2", "", 0), ZKE_NOCHILDRENFOREPHEMERALS);
  ck_assert_int_eq(set(w, "/a/x", "1", -1), ZKE_NONODE);
  ck_assert_int_eq(create(w, "/a/2", "", 0), QUOTAEXCEEDED);
}

/* A multi with a change beyond a limit does nothing, and that change has the
 * quota's error. */
TEST(a_multi_is_refused_for_the_change_that_passes_a_limit) {
  wire *w = begin(serve(":memory:", "--enforce-quota"));
  static const char *const paths[] = {"/b", "/a/b", "/c"};
  static const int errors[] = {0, QUOTAEXCEEDED, ZKE_RUNTIMEINCONSISTENCY};
  create(w, "/a", "", 0);
  set_quota(w, "/a", "count=-1,bytes=-1=;countHardLimit=1");
  request(w, ZKE_JUTE_MULTI);
  for (int i = 0; i < 3; i++)
    PART(w, ZKE_JUTE_CREATE, create_request, paths[i], {0, ""}, zke_open_acl,
         0);
  ck_assert_int_eq(end_multi(w), 0);
  for (int i = 0; i < 3; i++) ck_result(w, ZKE_JUTE_ERROR, errors[i]);
  ck_assert(!is_there(w, "/b"));
}

/* Of nested quotas the deepest counts; a removed quota no longer counts;
 * malformed limits are no limits. */
TEST(the_quota_that_counts_is_found) {
  wire *w = begin(serve(":memory:", "--enforce-quota"));
  create(w, "/a", "", 0);
  create(w, "/a/b", "", 0);
  set_quota(w, "/a", "count=-1,bytes=-1=;countHardLimit=2");
  ck_assert_int_eq(create(w, "/a/b/c", "", 0), QUOTAEXCEEDED);
  set_quota(w, "/a/b", "count=-1,bytes=-1=;countHardLimit=2");
  ck_assert_int_eq(create(w, "/a/b/c", "", 0), 0);
  ck_assert_int_eq(create(w, "/a/b/d", "", 0), QUOTAEXCEEDED);
  ck_assert_int_eq(create(w, "/a/d", "", 0), QUOTAEXCEEDED);
  static const char *const malformed[] = {
      "",      "countHardLimit=",  "countHardLimit", "countHardLimit=x",
      ";,;=,", "xcountHardLimit=1"};
  for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
    char path[20];
    ck_assert_int_eq(
        set(w, "/zookeeper/quota/a/zookeeper_limits", malformed[i], -1), 0);
    snprintf(path, sizeof path, "/a/m%d", (int)i);
    ck_assert_int_eq(create(w, path, "", 0), 0);
  }
  ck_assert_int_eq(erase(w, "/zookeeper/quota/a/b/zookeeper_limits"), 0);
  ck_assert_int_eq(create(w, "/a/b/d", "", 0), 0);
}

/* Without the option nothing is refused, as with ZooKeeper. */
TEST(limits_are_not_enforced_unasked) {
  wire *w = begin(serve(":memory:", ""));
  create(w, "/a", "", 0);
  set_quota(w, "/a", "count=1,bytes=0=;countHardLimit=1");
  ck_assert_int_eq(create(w, "/a/b", "x", 0), 0);
  ck_stats(w, "/a", "count=2,bytes=1");
}

/* A soft limit refuses nothing.  With the option it is reported on standard
 * error, once for many changes, and not for a change that is refused for
 * another reason; without the option nothing is counted. */
TEST_LOOP(a_soft_limit_warns, 0, 2) {
  const char *log = test_path("log");
  serving s =
      serve_with(":memory:", "%s 2>'%s'", _i ? "--enforce-quota" : "", log);
  wire *w = begin(s);
  create(w, "/a", "", 0);
  create(w, "/b", "", 0);
  set_quota(w, "/a", "count=2,bytes=-1");
  set_quota(w, "/b", "count=-1,bytes=3");
  create(w, "/c", "", 0);
  set_quota(w, "/c", "count=-1,bytes=3=;countHardLimit=1");
  ck_assert_int_eq(create(w, "/a/1", "", 0), 0);
  ck_assert_int_eq(set(w, "/b", "123", -1), 0);
  ck_assert_int_eq(create(w, "/a/1", "", 0), ZKE_NODEEXISTS);
  ck_assert_int_eq(set(w, "/b", "1234", 9), ZKE_BADVERSION);
  ck_assert_int_eq(access(log, F_OK), 0);
  ck_assert_str_eq(file_text(log), "");
  for (int i = 2; i < 9; i++) {
    char path[20];
    snprintf(path, sizeof path, "/a/%d", i);
    ck_assert_int_eq(create(w, path, "", 0), 0);
  }
  ck_assert_int_eq(set(w, "/b", "1234", -1), 0);
  ck_assert_int_eq(set(w, "/c", "1234", -1), 0);
  /* the refusal is reported although the soft limit was just reported */
  ck_assert_int_eq(create(w, "/c/1", "", 0), _i ? QUOTAEXCEEDED : 0);
  hang_up(w);
  stop(s);
  ck_assert_str_eq(
      file_text(log),
      _i ? "zke: serve: quota exceeded: /a: 3 nodes, soft limit 2\n"
           "zke: serve: quota exceeded: /b: 4 bytes, soft limit 3\n"
           "zke: serve: quota exceeded: /c: 4 bytes, soft limit 3\n"
           "zke: serve: quota exceeded: /c: 2 nodes, hard limit 1\n"
         : "");
}

/* A refused change is reported once for many, with the numbers that it would
 * have caused. */
TEST(a_hard_limit_is_told) {
  const char *log = test_path("log");
  serving s = serve_with(":memory:", "--enforce-quota 2>'%s'", log);
  wire *w = begin(s);
  create(w, "/a", "1", 0);
  create(w, "/b", "1", 0);
  set_quota(w, "/a", "count=9,bytes=-1=;byteHardLimit=-1;countHardLimit=1");
  set_quota(w, "/b", "count=-1,bytes=9=;byteHardLimit=3;countHardLimit=-1");
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(create(w, "/a/1", "", 0), QUOTAEXCEEDED);
    ck_assert_int_eq(set(w, "/b", "1234", -1), QUOTAEXCEEDED);
  }
  hang_up(w);
  stop(s);
  ck_assert_str_eq(file_text(log),
                   "zke: serve: quota exceeded: /a: 2 nodes, hard limit 1\n"
                   "zke: serve: quota exceeded: /b: 4 bytes, hard limit 3\n");
}

/* A named pipe that is full and never emptied. */
static int full_pipe(const char *name) {
  char bytes[4096] = {0};
  ck_assert_int_eq(mkfifo(name, 0600), 0);
  int fd = open(name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  while (write(fd, bytes, sizeof bytes) > 0 || write(fd, bytes, 1) > 0) {
  }
  return fd;
}

/* If standard error is blocked the server may stop, but it holds nothing then:
 * other processes can write.  Two changes that arrive together are one
 * transaction, which meets the refusal. */
TEST(a_full_standard_error_stops_no_other_writer) {
  char bytes[4096];
  const char *file = test_path("app.db"), *log = test_path("log");
  zke *z;
  int fd = full_pipe(log);
  serving s = serve_with(file, "--enforce-quota 2>'%s'", log);
  wire *w = begin(s);
  create(w, "/a", "", 0);
  set_quota(w, "/a", "count=9,bytes=-1=;byteHardLimit=-1;countHardLimit=1");
  for (int i = 0; i < 2; i++)
    ADD(w, ZKE_JUTE_CREATE, create_request, i ? "/a/1" : "/b", {0, ""},
        zke_open_acl, 0);
  send_out(w);
  ck_ok(zke_open(file, NULL, &z));
  ck_until(zke_exists(z, "/b", NULL, NULL, NULL) == ZKE_OK, SOON);
  ck_ok(zke_create(z, "/c", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_close(z));
  while (read(fd, bytes, sizeof bytes) > 0) {
  }
  ck_assert_int_eq(answer_to(w, w->xid - 1), 0);
  ck_assert_int_eq(answer_to(w, w->xid), QUOTAEXCEEDED);
  stop(s);
  close(fd);
}

/* ZooKeeper's getConfig returns nothing from a standalone server. */
TEST(the_configuration_is_empty) {
  wire *w = begin(serve(":memory:", ""));
  ck_assert_str_eq(data_at(w, "/zookeeper/config"), "");
}
