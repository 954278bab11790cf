/* test_zk_memory.c - the engine of an ensemble without memory
 *
 * The engine's source is included, with its allocations replaced: in each round
 * of a test the next one fails, until a round has none left to fail.  Whatever
 * fails, each call returns a documented result, the session goes on (unless
 * zkembed.h says that it expires), and nothing is lost: the sanitizers look for
 * leaks.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zkembed.h"

/* Of the test's own thread; the proxy and the server are other processes. */
static struct memory {
  int left;    /* allocations that succeed; -1: all */
  bool failed; /* one has failed */
} memory = {.left = -1};

static bool memory_lacks(void) {
  if (memory.left < 0 || memory.left-- > 0) return false;
  memory.failed = true;
  errno = ENOMEM;
  return true;
}

static void *memory_malloc(size_t size) {
  return memory_lacks() ? NULL : malloc(size);
}

static void *memory_calloc(size_t count, size_t size) {
  return memory_lacks() ? NULL : calloc(count, size);
}

static void *memory_realloc(void *block, size_t size) {
  return memory_lacks() ? NULL : realloc(block, size);
}

static char *memory_strdup(const char *text) {
  return memory_lacks() ? NULL : strdup(text);
}

/* Allocates results. */
static void *memory_resize(void *context, void *block, size_t size) {
  (void)context;
  if (size) return memory_realloc(block, size);
  free(block);
  return NULL;
}

#undef strdup
#define malloc memory_malloc
#define calloc memory_calloc
#define realloc memory_realloc
#define strdup memory_strdup
#include "recipes/engine/jute.c"
#undef FIELD
#undef DEFINE
#include "recipes/engine/zk_handle.c"
#include "recipes/engine/zk_link.c"
#include "recipes/engine/zk_name.c"
#include "recipes/engine/zk_watch.c"
#include "recipes/engine/zookeeper.c"
#undef malloc
#undef calloc
#undef realloc
#undef strdup
#undef fail

#include "test/ensemble/proxy.h"
#include "test/server/wire.h"
#include "test/test.h"

/* ---- what the tests share ---- */

static proxy way;
static char server_name[100];

static void begin_world(void) {
  serving server = serve(":memory:", "");
  ck_assert(proxy_start(&way, server.port));
  snprintf(server_name, sizeof server_name, "zk://127.0.0.1:%d/app", way.port);
  ck_ok(zke_register_engine(&zke_zookeeper));
  zke *z;
  char root[100];
  snprintf(root, sizeof root, "zk://127.0.0.1:%d", server.port);
  ck_ok(zke_open(root, NULL, &z));
  ck_ok(zke_create(z, "/app", "x", 1, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_create(z, "/app/a", "x", 1, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_close(z));
}

static int open_app(zke **z_out) {
  zke_options o = ZKE_INIT(zke_options);
  o.allocator = (zke_allocator){memory_resize, NULL};
  return zke_open(server_name, &o, z_out);
}

/* A call may report that memory is lacking, or that its reply could not be
 * kept, as if that were lost. */
static bool allowed(int rc) {
  switch (rc) {
    case ZKE_OK:
    case ZKE_NOMEM:
    case ZKE_CONNECTIONLOSS:
    case ZKE_OPERATIONTIMEOUT:
    case ZKE_MARSHALLINGERROR:
      return true;
    default:
      return !memory.failed;
  }
}

#define ck_allowed(call)                                      \
  do {                                                        \
    int ck_allowed_ = (call);                                 \
    ck_assert_msg(allowed(ck_allowed_), "%s: %s: %s", #call,  \
                  zke_error_name(ck_allowed_), zke_errmsg()); \
  } while (0)

/* ---- rounds ---- */

static void read_all(zke *z) {
  zke_strings *names = NULL, *own = NULL;
  zke_session_list *sessions = NULL;
  zke_acls *acls = NULL;
  char *data = NULL;
  ck_allowed(zke_get(z, "/a", test_ignore, NULL, &data, NULL, NULL));
  ck_allowed(zke_children(z, "/", test_ignore, NULL, &names, NULL));
  ck_allowed(zke_get_acl(z, "/a", &acls, NULL));
  ck_allowed(zke_ephemerals(z, 0, NULL, &own));
  ck_allowed(zke_sessions(z, -1, &sessions));
  zke_free(data);
  zke_free(names);
  zke_free(acls);
  zke_free(own);
  zke_free(sessions);
}

static void change_all(zke *z) {
  zke_op ops[3];
  zke_op_result r[3] = {{0}};
  char *path = NULL;
  ck_allowed(zke_create(z, "/s-", "1", 1, ZKE_OPEN_ACL,
                        ZKE_PERSISTENT_SEQUENTIAL, &path, NULL));
  ck_allowed(zke_set(z, "/a", "2", 1, -1, NULL));
  ck_allowed(zke_set_acl(z, "/a", -1, ZKE_OPEN_ACL, NULL));
  zke_op_create(&ops[0], "/m-", "1", 1, ZKE_OPEN_ACL,
                ZKE_PERSISTENT_SEQUENTIAL);
  zke_op_set(&ops[1], "/a", "3", 1, -1);
  zke_op_check(&ops[2], "/a", -1);
  ck_allowed(zke_multi(z, ops, 3, r));
  zke_results_clear(r, 3);
  zke_op_get(&ops[0], "/a");
  zke_op_children(&ops[1], "/", NULL, 0);
  zke_op_untold(&ops[2], "/", 100);
  ck_allowed(zke_multi_read(z, ops, 3, r));
  zke_results_clear(r, 3);
  zke_free(path);
}

/* Watches of each kind are set, set again after a loss, and removed. */
static void watch_all(zke *z) {
  char other;
  ck_allowed(zke_get(z, "/a", test_ignore, NULL, NULL, NULL, NULL));
  ck_allowed(zke_add_watch(z, "/", 1, test_ignore, &other));
  ck_allowed(
      zke_set_watch(z, "/a", ZKE_WATCH_CHILD, INT64_MAX, test_ignore, &other));
  ck_allowed(zke_call_at(z, zke_now(z) + 60000, test_ignore, NULL));
  proxy_cut(&way);
  ck_allowed(zke_set(z, "/a", "4", 1, -1, NULL));
  ck_allowed(zke_get(z, "/a", NULL, NULL, NULL, NULL, NULL));
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_forget(z, test_ignore, &other));
  ck_ok(zke_forget(z, test_ignore, NULL));
  ck_allowed(zke_add_auth(z, "digest", "ann:red", 7));
}

static void (*const rounds[])(zke *) = {read_all, change_all, watch_all};
enum { ROUNDS = sizeof rounds / sizeof *rounds, MOST = 1000 };

/* An allocation fails while a handle is opened. */
TEST(opening_without_memory) {
  begin_world();
  int n = 0;
  do {
    zke *z;
    memory = (struct memory){.left = n};
    ck_allowed(open_app(&z));
    memory.left = -1;
    if (z) ck_ok(zke_close(z));
  } while (memory.failed && n++ < MOST);
  ck_assert_int_gt(n, 10);
  ck_assert_int_lt(n, MOST);
  proxy_end(&way);
}

/* An allocation fails in calls: the session goes on. */
TEST_LOOP(calls_without_memory, 0, ROUNDS) {
  begin_world();
  int n = 0;
  do {
    zke *z;
    ck_ok(open_app(&z));
    int64_t id = zke_session_id(z);
    memory = (struct memory){.left = n};
    rounds[_i](z);
    memory.left = -1;
    ck_ok(zke_exists(z, "/a", NULL, NULL, NULL));
    ck_assert_int_eq(zke_session_id(z), id);
    ck_ok(zke_close(z));
  } while (memory.failed && n++ < MOST);
  ck_assert_int_gt(n, 10);
  ck_assert_int_lt(n, MOST);
  proxy_end(&way);
}

/* An allocation fails in zke_discard(): the node is deleted, or the session has
 * ended. */
TEST(discarding_without_memory) {
  begin_world();
  int n = 0;
  do {
    zke *z;
    ck_ok(open_app(&z));
    ck_ok(zke_create(z, "/e-", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                     NULL, NULL));
    memory = (struct memory){.left = n};
    ck_allowed(zke_discard(z, "/e-", ZKE_EPHEMERAL_SEQUENTIAL, 0));
    memory.left = -1;
    ck_until(zke_state(z) == ZKE_STATE_EXPIRED ||
                 zke_discard(z, "/e-", ZKE_EPHEMERAL_SEQUENTIAL, 0) == ZKE_OK,
             10000);
    ck_ok(zke_close(z));
  } while (memory.failed && n++ < MOST);
  ck_assert_int_lt(n, MOST);
  proxy_end(&way);
}
