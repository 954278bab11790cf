/* test_quota_work.c - quotas of the protocol server: how often a subtree is
 * counted
 *
 * Counting takes as long as the subtree is large, and the server answers nobody
 * meanwhile.  So this test counts the calls of zke_usage().
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* for the file below */
#endif
#include "zkembed.h"

static int usages;

/* zke_usage(), counted. */
static int counted_usage(zke *z, const char *path, int64_t *count,
                         int64_t *bytes) {
  usages++;
  return zke_usage(z, path, count, bytes);
}

#define zke_usage counted_usage
#include "shell/serve/quota.c"
#undef zke_usage
#include "test/test.h"

/* From shell/serve/tell.c: these tests ignore its reports. */
void server_tell(server *s, int kind, const char *about, const char *format,
                 ...) {
  (void)s, (void)kind, (void)about, (void)format;
}

static void make(zke *z, const char *path, const char *text) {
  ck_ok(zke_create(z, path, text, (int)strlen(text), ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
}

/* A server on a tree with quotas: three nodes for /a, three bytes for /b. */
static server begin(void) {
  server s = {.enforce_quota = true};
  ck_ok(zke_open(":memory:", NULL, &s.z));
  make(s.z, "/a", "12");
  make(s.z, "/a/b", "12");
  make(s.z, "/b", "12");
  make(s.z, "/zookeeper/quota/a", "");
  make(s.z, "/zookeeper/quota/a/zookeeper_limits",
       "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3");
  make(s.z, "/zookeeper/quota/b", "");
  make(s.z, "/zookeeper/quota/b/zookeeper_limits",
       "count=-1,bytes=-1=;byteHardLimit=3;countHardLimit=-1");
  usages = 0;
  return s;
}

static void end(server *s) { ck_ok(zke_close(s->z)); }

/* A multi of a thousand operations counts each quota's subtree once, and judges
 * each operation as if it were alone. */
TEST(a_request_counts_each_subtree_once) {
  server s = begin();
  quota_counts *counted = NULL;
  for (int i = 0; i < 1000; i++) {
    ck_assert(!quota_refuses(&s, &counted, "/a/b", false, 2));
    ck_assert(!quota_refuses(&s, &counted, "/a/c", true, 0));
    ck_assert(!quota_refuses(&s, &counted, "/b", false, 3));
    ck_assert(quota_refuses(&s, &counted, "/b", false, 4));
    ck_assert(!quota_refuses(&s, &counted, "/none", true, 100));
  }
  ck_assert_int_eq(usages, 2);
  quota_forget(&counted);
  ck_assert_ptr_null(counted);
  end(&s);
}

/* The next request does not reuse the counts: the tree may have changed. */
TEST(the_next_request_counts_anew) {
  server s = begin();
  quota_counts *counted = NULL;
  ck_assert(!quota_refuses(&s, &counted, "/a/c", true, 0));
  quota_forget(&counted);
  make(s.z, "/a/c", "");
  ck_assert(quota_refuses(&s, &counted, "/a/d", true, 0));
  ck_assert_int_eq(usages, 2);
  quota_forget(&counted);
  end(&s);
}

/* The reads of a multiRead also count each subtree once; a quota below another
 * quota's path is counted by itself. */
TEST(statistics_are_counted_once_too) {
  server s = begin();
  quota_counts *counted = NULL;
  make(s.z, "/zookeeper/quota/a/b", "");
  make(s.z, "/zookeeper/quota/a/b/zookeeper_limits", "count=9,bytes=9");
  for (int i = 0; i < 100; i++) {
    char *of_a =
        quota_stats(&s, &counted, "/zookeeper/quota/a/zookeeper_stats");
    char *of_b =
        quota_stats(&s, &counted, "/zookeeper/quota/a/b/zookeeper_stats");
    ck_assert_str_eq(of_a, "count=2,bytes=4");
    ck_assert_str_eq(of_b, "count=1,bytes=2");
    free(of_a);
    free(of_b);
  }
  ck_assert_int_eq(usages, 2);
  quota_forget(&counted);
  end(&s);
}

/* A soft limit refuses nothing.  A quota without limits is not counted. */
TEST(no_limit_is_not_counted_for) {
  server s = begin();
  quota_counts *counted = NULL;
  ck_ok(zke_set(s.z, "/zookeeper/quota/a/zookeeper_limits", "count=-1,bytes=-1",
                17, -1, NULL));
  ck_assert(!quota_refuses(&s, &counted, "/a/c", true, 9));
  ck_assert_int_eq(usages, 0);
  ck_assert_ptr_null(counted);
  ck_ok(zke_set(s.z, "/zookeeper/quota/a/zookeeper_limits", "count=1,bytes=1",
                15, -1, NULL));
  ck_assert(!quota_refuses(&s, &counted, "/a/c", true, 9));
  ck_assert_int_eq(usages, 1);
  quota_forget(&counted);
  end(&s);
}
