/* test_engines.c - other engines behind zkembed.h
 *
 * A very small engine: the arguments that zke_open() gives it, that each call
 * with its handle reaches it, and the results of calls that it lacks.
 */
#include "test/functions.h"
#include "test/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A handle of the small engine. */
typedef struct small {
  zke_handle head;
  int closed;
} small;

static small only;
static char opened[64];

/* Opens every name but one. */
static int small_open(const zke_engine *engine, const char *name,
                      const zke_options *options, zke **z_out) {
  if (strstr(name, "refused")) return zke_fail(ZKE_CANTOPEN, "not this one");
  snprintf(opened, sizeof opened, "%s", name);
  only = (small){.head = {engine, options->allocator}};
  *z_out = (zke *)(void *)&only;
  return ZKE_OK;
}

static int small_close(zke *z) {
  ((small *)(void *)z)->closed = 1;
  return ZKE_OK;
}

/* Reports the call, and the state it saw. */
static int small_remove(zke *z, const char *path, int version) {
  zke_set_zxid(77);
  return zke_fail(ZKE_BADVERSION, "%s %d %d", path, version,
                  z == (zke *)(void *)&only);
}

static int64_t small_id(zke *z) {
  (void)z;
  return 5;
}

static int small_state(zke *z) {
  (void)z;
  return ZKE_STATE_CONNECTING;
}

static int64_t small_number(zke *z) {
  (void)z;
  return 6;
}

static int64_t small_limit(zke *z, int64_t deadline_ms) {
  (void)z;
  return deadline_ms;
}

static zke_engine small_engine(const char *prefix) {
  zke_engine e = ZKE_INIT(zke_engine);
  e.prefix = prefix;
  e.open = small_open;
  e.close = small_close;
  e.remove = small_remove;
  e.session_id = small_id;
  e.state = small_state;
  e.now = small_number;
  e.wall = small_number;
  e.busy_timeout = small_number;
  e.event_zxid = small_number;
  e.turn = small_number;
  e.limit = small_limit;
  return e;
}

/* Calls that report themselves by their sentence. */
static int full_detach(zke *z) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "detach");
}

static int full_rearm(zke *z) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "rearm");
}

static int full_vouch(zke *z, const char *scheme, const char *id) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "vouch %s %s", scheme, id);
}

static int full_compact(zke *z, int64_t deadline_ms) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "compact %d", (int)deadline_ms);
}

static int full_test_fail(zke *z, int when, int skip) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "test_fail %d %d", when, skip);
}

static int full_remove_watch(zke *z, const char *path, int type,
                             zke_watch_fn fn, void *context) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "remove_watch %s %d %d", path, type,
                  fn == test_ignore && context == &only);
}

static int full_set_watch(zke *z, const char *path, int type, int64_t zxid,
                          zke_watch_fn fn, void *context) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "set_watch %s %d %d %d", path, type,
                  (int)zxid, fn == test_ignore && context == &only);
}

static int full_raise(zke *z, const char *path, int next, zke_stat *stat_out) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "raise %s %d %d", path, next, !stat_out);
}

static int full_set_acl(zke *z, const char *path, int version,
                        const zke_acls *acls, zke_stat *stat_out) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "set_acl %s %d %d %d", path, version,
                  acls->count, !stat_out);
}

static int full_get_acl(zke *z, const char *path, zke_acls **acls_out,
                        zke_stat *stat_out) {
  (void)z;
  return zke_fail(ZKE_BADVERSION, "get_acl %s %d %d", path, !acls_out,
                  !stat_out);
}

static zke *open_full(void) {
  zke_engine e = small_engine("full://");
  zke *z = NULL;
  e.detach = full_detach;
  e.rearm = full_rearm;
  e.vouch = full_vouch;
  e.compact = full_compact;
  e.test_fail = full_test_fail;
  e.remove_watch = full_remove_watch;
  e.set_watch = full_set_watch;
  e.raise_sequence = full_raise;
  e.set_acl = full_set_acl;
  e.get_acl = full_get_acl;
  ck_ok(zke_register_engine(&e));
  ck_ok(zke_open("full://there", NULL, &z));
  return z;
}

static zke *open_small(const char *name) {
  zke_engine e = small_engine("small://");
  zke *z = NULL;
  ck_ok(zke_register_engine(&e));
  ck_ok(zke_open(name, NULL, &z));
  return z;
}

/* A name goes to the engine that has registered its prefix, all others to
 * files; a name that only an engine could open is never a file's. */
TEST(a_name_is_its_engines) {
  zke *z = open_small("small://there");
  ck_assert_str_eq(opened, "small://there");
  ck_ok(zke_close(z));
  ck_assert_int_eq(only.closed, 1);
  ck_rc(zke_open("small://refused", NULL, &z), ZKE_CANTOPEN);
  ck_assert_ptr_null(z);
  ck_assert_str_eq(zke_errmsg(), "not this one");
  ck_rc(zke_open("strange://there", NULL, &z), ZKE_CANTOPEN);
  ck_assert_str_eq(zke_errmsg(),
                   "strange://there: no engine for such names is registered");
  ck_ok(zke_open(":memory:", NULL, &z));
  ck_rc(zke_delete(z, "/a", -1), ZKE_NONODE);
  ck_ok(zke_close(z));
}

/* If two prefixes match, the longer one counts, in any order of registration.
 * An empty one matches all other names, including files. */
TEST(the_longest_prefix_counts) {
  zke_engine all = small_engine(""), longer = small_engine("small://x");
  zke *z = open_small("small://x");
  ck_assert_str_eq(only.head.engine->prefix, "small://");
  ck_ok(zke_register_engine(&longer));
  ck_ok(zke_register_engine(&all));
  ck_ok(zke_open("small://x", NULL, &z));
  ck_assert_str_eq(only.head.engine->prefix, "small://x");
  ck_ok(zke_open("small://y", NULL, &z));
  ck_assert_str_eq(only.head.engine->prefix, "small://");
  ck_ok(zke_open(":memory:", NULL, &z));
  ck_assert_str_eq(only.head.engine->prefix, "");
}

/* A call arrives with its arguments; the caller gets its result, sentence and
 * zxid. */
TEST(a_call_arrives) {
  zke *z = open_small("small://there");
  ck_rc(zke_delete(z, "/a/b", 3), ZKE_BADVERSION);
  ck_assert_str_eq(zke_errmsg(), "/a/b 3 1");
  ck_assert_int_eq(zke_zxid(), 77);
  ck_assert_int_eq(zke_session_id(z), 5);
  ck_assert_int_eq(zke_state(z), ZKE_STATE_CONNECTING);
  ck_assert_int_eq(zke_now(z), 6);
  ck_assert_int_eq(zke_limit(z, 9), 9);
}

#define ck_arrives(call, sentence)            \
  do {                                        \
    ck_rc(call, ZKE_BADVERSION);              \
    ck_assert_str_eq(zke_errmsg(), sentence); \
  } while (0)

/* Each argument arrives in its place. */
TEST(arguments_arrive_in_their_places) {
  zke *z = open_full();
  ck_arrives(zke_detach(z), "detach");
  ck_arrives(zke_rearm(z), "rearm");
  ck_arrives(zke_vouch(z, "s", "i"), "vouch s i");
  ck_arrives(zke_compact(z, 4), "compact 4");
  ck_arrives(zke_test_fail(z, 2, 3), "test_fail 2 3");
  ck_arrives(zke_remove_watch(z, "/a", 3, test_ignore, &only),
             "remove_watch /a 3 1");
  ck_arrives(zke_set_watch(z, "/a", 2, 9, test_ignore, &only),
             "set_watch /a 2 9 1");
  ck_arrives(zke_raise_sequence(z, "/a", 8, NULL), "raise /a 8 1");
  ck_arrives(zke_set_acl(z, "/a", 7, ZKE_OPEN_ACL, NULL), "set_acl /a 7 1 1");
  ck_arrives(zke_get_acl(z, "/a", NULL, NULL), "get_acl /a 1 1");
}

/* A call that the engine lacks is refused by a sentence that names it, and the
 * file engine never sees the handle. */
TEST(what_is_lacking_is_said) {
  const char *there = " zke_close zke_delete zke_state zke_wait ";
  zke *z = open_small("small://there");
  for (const test_function *f = test_functions; f->name; f++) {
    if (test_is_among(f, there)) continue;
    int rc = f->call(z);
    ck_assert_msg(rc == ZKE_UNIMPLEMENTED, "%s: %d", f->name, rc);
    char sentence[96];
    snprintf(sentence, sizeof sentence, "%s() is not offered on small://",
             f->name);
    ck_assert_str_eq(zke_errmsg(), sentence);
  }
  ck_rc(zke_wait(z, 0), ZKE_UNIMPLEMENTED); /* is zke_wait_turn() */
}

static int resized;

static void *count_resize(void *context, void *block, size_t size) {
  resized++;
  (void)context;
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

/* An engine's results are allocated by the handle's allocator, and freed by
 * it. */
TEST(results_come_from_the_handles_allocator) {
  zke_options o = ZKE_INIT(zke_options);
  zke *z = open_small("small://there");
  void *block = zke_alloc(z, 10);
  ck_assert_ptr_nonnull(block);
  zke_free(block);
  o.allocator.resize = count_resize;
  ck_ok(zke_open("small://there", &o, &z));
  block = zke_alloc(z, 10);
  ck_assert_int_eq(resized, 1);
  zke_free(block);
  ck_assert_int_eq(resized, 2);
}

/* A table that lacks a required member is refused. */
TEST_LOOP(a_table_without_a_required_member, 0, 11) {
  zke_engine e = small_engine("none://");
  zke *z = NULL;
  if (_i == 0) e.prefix = NULL;
  if (_i == 1) e.open = NULL;
  if (_i == 2) e.close = NULL;
  if (_i == 3) e.session_id = NULL;
  if (_i == 4) e.state = NULL;
  if (_i == 5) e.now = NULL;
  if (_i == 6) e.wall = NULL;
  if (_i == 7) e.busy_timeout = NULL;
  if (_i == 8) e.limit = NULL;
  if (_i == 9) e.event_zxid = NULL;
  if (_i == 10) e.turn = NULL;
  ck_rc(zke_register_engine(&e), ZKE_BADARGUMENTS);
  ck_rc(zke_open("none://there", NULL, &z), ZKE_CANTOPEN);
}

/* A table of an older header is shorter; the missing members count as lacking.
 * It is refused if one of them is required.  So is the ninth engine. */
TEST(tables_are_looked_at) {
  zke_engine e = small_engine("old://");
  zke *z = NULL;
  ck_rc(zke_register_engine(NULL), ZKE_BADARGUMENTS);
  e.size = 5;
  ck_rc(zke_register_engine(&e), ZKE_BADARGUMENTS);
  e = small_engine("old://");
  e.size -= sizeof e.test_fail;
  ck_ok(zke_register_engine(&e));
  ck_ok(zke_open("old://", NULL, &z));
  ck_rc(zke_test_fail(z, 0, 0), ZKE_UNIMPLEMENTED);
  static char prefixes[8][8];
  for (int i = 0; i < 7; i++) {
    snprintf(prefixes[i], sizeof prefixes[i], "%d://", i);
    e.prefix = prefixes[i];
    ck_ok(zke_register_engine(&e));
    ck_ok(zke_register_engine(&e)); /* again does no harm */
  }
  e.prefix = "ninth://";
  ck_rc(zke_register_engine(&e), ZKE_MISUSE);
  ck_ok(zke_open("6://", NULL, &z));
}
