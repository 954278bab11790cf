/* ops.c - fuzz target: any sequence of calls on a tree in memory
 *
 * Each byte of the input selects a function, the following bytes are its
 * arguments.  Up to four sessions share the store; watchers call the library.
 * In every case results are documented ones, outputs can be read to their ends,
 * zke_check() finds nothing, and nothing leaks.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fuzz.h"

enum {
  OPS_SESSIONS = 4,
  OPS_CALLS_MOST = 300,
  OPS_BATCH = 59 /* the byte that begins one */
};

typedef struct ops_run {
  fuzz_input in;
  fuzz_world world;
  zke_os os;
  zke *z[OPS_SESSIONS];
  int depth; /* nested callbacks */
} ops_run;

/* ---- arguments ---- */

/* A path: mostly of a few short names, so that calls meet; free() it. */
static char *ops_path(ops_run *r) {
  static const char *const names[] = {
      "/a",     "/b", "/c", "/\xc3\xa9", "/n-", "/zookeeper",
      "/quota", "/",  "/.", "/a\x7f",    "//"};
  unsigned how = fuzz_byte(&r->in);
  if (how >= 240) return fuzz_text(&r->in, how - 240);
  char *path = calloc(1, 64);
  FUZZ_EXPECT(path);
  unsigned parts = how % 4;
  if (parts == 0) path[0] = '/';
  for (; parts; parts--) {
    unsigned name = fuzz_byte(&r->in);
    strcat(path, names[name < 224 ? name % 5 : name % 11]);
  }
  return path;
}

/* A value: NULL, empty, inline, or large enough for its own row. */
static const char *ops_value(ops_run *r, int *len) {
  static const char bytes[2048] = "value";
  static const int lengths[] = {0, 1, 199, 200, 201, 2048, -2, -1};
  unsigned how = fuzz_byte(&r->in);
  *len = how < 16 ? lengths[how % 8] : (int)how;
  if (how >= 8 && how < 16) {
    *len = -1;
    return NULL;
  }
  return bytes;
}

static int ops_version(ops_run *r) {
  unsigned how = fuzz_byte(&r->in);
  return how < 128 ? -1 : (int)(how % 8) - 2;
}

/* An ACL of at most three entries, which are put into data. */
static zke_acls ops_acls(ops_run *r, zke_acl data[3]) {
  static const zke_acl entries[] = {
      {ZKE_PERM_ALL, "world", "anyone"},
      {ZKE_PERM_READ, "world", "anyone"},
      {ZKE_PERM_ALL, "auth", ""},
      {ZKE_PERM_CREATE | ZKE_PERM_ADMIN, "digest", "u:abc"},
      {ZKE_PERM_DELETE | ZKE_PERM_WRITE, "digest", "u\\\n:"},
      {-1, "digest", "a:b:c"},
      {0, "world", NULL},
      {ZKE_PERM_ALL, "ip", "127.0.0.1"},
      {ZKE_PERM_ALL, NULL, NULL}};
  unsigned how = fuzz_byte(&r->in);
  if (how < 160) return zke_open_acl;
  int count = (int)(how % 4);
  for (int i = 0; i < count; i++)
    data[i] = entries[fuzz_byte(&r->in) % (sizeof entries / sizeof *entries)];
  return (zke_acls){count, data};
}

/* ---- reading results ---- */

static void ops_read_strings(zke_strings *s) {
  if (!s) return;
  for (int i = 0; i < s->count; i++) FUZZ_EXPECT(strlen(s->data[i]) < 4096);
  FUZZ_EXPECT(!s->data[s->count]);
  zke_free(s);
}

static void ops_read_data(char *data, int len, const zke_stat *stat) {
  FUZZ_EXPECT(len >= 0 ? data && data[len] == '\0' : len == -1 && !data);
  FUZZ_EXPECT(stat->dataLength == (len < 0 ? 0 : len));
  zke_free(data);
}

/* A watcher that works: it reads, registers itself again, or changes. */
static void ops_watcher(zke *z, int type, int state, const char *path,
                        void *context) {
  ops_run *r = context;
  FUZZ_EXPECT(path && strlen(path) < 4096);
  (void)type, (void)state;
  if (r->depth >= 3) return;
  r->depth++;
  switch (fuzz_byte(&r->in) % 8) {
    case 0:
      fuzz_rc(zke_exists(z, path, ops_watcher, r, NULL));
      break;
    case 1:
      fuzz_rc(zke_set(z, path, "w", 1, -1, NULL));
      break;
    case 2:
      fuzz_rc(zke_delete(z, path, -1));
      break;
    case 3:
      fuzz_rc(zke_dispatch(z, NULL));
      break;
    case 4:
      fuzz_rc(zke_remove_watch(z, path, ZKE_WATCH_ANY, NULL, NULL));
      break;
    case 5:
      FUZZ_EXPECT(zke_close(z) == ZKE_MISUSE);
      break;
    default:
      break;
  }
  r->depth--;
}

static zke_watch_fn ops_maybe_watcher(ops_run *r) {
  return fuzz_byte(&r->in) & 1 ? ops_watcher : NULL;
}

/* ---- single calls ---- */

static void ops_create(ops_run *r, zke *z) {
  zke_acl data[3];
  char *made = NULL, *path = ops_path(r);
  int len, mode = (int)(fuzz_byte(&r->in) % 9) - 1;
  const char *value = ops_value(r, &len);
  zke_acls acls = ops_acls(r, data);
  int rc = mode < ZKE_PERSISTENT_WITH_TTL
               ? zke_create(z, path, value, len, &acls, mode, &made, NULL)
               : zke_create_ttl(z, path, value, len, &acls, mode,
                                fuzz_int(&r->in), &made, NULL);
  FUZZ_EXPECT((fuzz_rc(rc) == ZKE_OK) == (made != NULL));
  if (made) FUZZ_EXPECT(strncmp(made, path, strlen(path)) == 0);
  zke_free(made);
  free(path);
}

static void ops_delete(ops_run *r, zke *z) {
  char *path = ops_path(r);
  fuzz_rc(zke_delete(z, path, ops_version(r)));
  free(path);
}

static void ops_set(ops_run *r, zke *z) {
  char *path = ops_path(r);
  int len;
  const char *value = ops_value(r, &len);
  zke_stat stat;
  int rc = fuzz_rc(zke_set(z, path, value, len, ops_version(r), &stat));
  if (rc == ZKE_OK) FUZZ_EXPECT(stat.dataLength == (len < 0 ? 0 : len));
  free(path);
}

static void ops_get(ops_run *r, zke *z) {
  char *data = NULL, *path = ops_path(r);
  int len = 0;
  zke_stat stat;
  int rc =
      fuzz_rc(zke_get(z, path, ops_maybe_watcher(r), r, &data, &len, &stat));
  if (rc == ZKE_OK) ops_read_data(data, len, &stat);
  free(path);
}

static void ops_exists(ops_run *r, zke *z) {
  char *path = ops_path(r);
  fuzz_rc(zke_exists(z, path, ops_maybe_watcher(r), r, NULL));
  free(path);
}

static void ops_children(ops_run *r, zke *z) {
  char *path = ops_path(r);
  zke_strings *names = NULL;
  zke_stat stat;
  int rc =
      fuzz_rc(zke_children(z, path, ops_maybe_watcher(r), r, &names, &stat));
  if (rc == ZKE_OK) FUZZ_EXPECT(names->count == stat.numChildren);
  ops_read_strings(names);
  free(path);
}

static void ops_multi(ops_run *r, zke *z) {
  static const int codes[] = {ZKE_NOAUTH, ZKE_BADARGUMENTS, ZKE_FULL, ZKE_OK};
  enum { MOST = 6 };
  zke_op ops[MOST];
  zke_op_result results[MOST];
  zke_acl data[MOST][3];
  zke_acls acls[MOST];
  char *paths[MOST];
  int count = (int)(fuzz_byte(&r->in) % (MOST + 1)), len;
  bool read = fuzz_byte(&r->in) % 4 == 0;
  memset(results, 0, sizeof results);
  for (int i = 0; i < count; i++) {
    paths[i] = ops_path(r);
    unsigned type = fuzz_byte(&r->in);
    const char *value = ops_value(r, &len);
    acls[i] = ops_acls(r, data[i]);
    switch (read ? 4 + type % 3 : type % 7) {
      case 0:
      case 1:
        zke_op_create(&ops[i], paths[i], value, len, &acls[i],
                      (int)(type / 7 % 5));
        break;
      case 2:
        zke_op_delete(&ops[i], paths[i], ops_version(r));
        break;
      case 3:
        zke_op_set(&ops[i], paths[i], value, len, ops_version(r));
        break;
      case 4:
        zke_op_get(&ops[i], paths[i]);
        break;
      case 5:
        zke_op_children(&ops[i], paths[i], NULL, 0);
        break;
      case 6:
        zke_op_fail(&ops[i], codes[fuzz_byte(&r->in) % 4]);
        break;
      default:
        zke_op_check(&ops[i], paths[i], ops_version(r));
    }
  }
  fuzz_rc((read ? zke_multi_read : zke_multi)(z, ops, count, results));
  for (int i = 0; i < count; i++) {
    fuzz_rc(results[i].rc);
    free(paths[i]);
  }
  zke_results_clear(results, count);
}

static void ops_add_watch(ops_run *r, zke *z) {
  char *path = ops_path(r);
  fuzz_rc(zke_add_watch(z, path, (int)(fuzz_byte(&r->in) % 3), ops_watcher, r));
  free(path);
}

static void ops_set_watch(ops_run *r, zke *z) {
  char *path = ops_path(r);
  int type = (int)(fuzz_byte(&r->in) % 6);
  int64_t since = zke_zxid() - fuzz_byte(&r->in) % 8;
  fuzz_rc(zke_set_watch(z, path, type, since, ops_watcher, r));
  fuzz_rc(zke_check_watch(z, path, type, ops_watcher, r));
  fuzz_rc(zke_dispatch_to(z, since, NULL, NULL));
  free(path);
}

static void ops_vouch(ops_run *r, zke *z) {
  static const char *const schemes[] = {"ip", "sasl", "super", "auth",
                                        "digest"};
  char *id = fuzz_text(&r->in, fuzz_byte(&r->in) % 12);
  if (fuzz_byte(&r->in) % 4 == 0)
    fuzz_rc(zke_clear_auth(z));
  else
    fuzz_rc(zke_vouch(z, schemes[fuzz_byte(&r->in) % 5], id));
  free(id);
}

static void ops_remove_watch(ops_run *r, zke *z) {
  char *path = ops_path(r);
  unsigned type = fuzz_byte(&r->in);
  fuzz_rc(zke_remove_watch(z, path, (int)(type % 5),
                           type & 8 ? NULL : ops_watcher, r));
  free(path);
}

static void ops_dispatch(ops_run *r, zke *z) {
  int64_t deadline;
  int fd;
  (void)r;
  fuzz_rc(zke_dispatch(z, NULL));
  fuzz_rc(zke_next_deadline(z, &deadline));
  fuzz_rc(zke_fd(z, &fd));
}

static void ops_wait(ops_run *r, zke *z) {
  fuzz_rc(zke_wait(z, zke_now(z) + (int64_t)fuzz_byte(&r->in)));
}

static void ops_pass_time(ops_run *r, zke *z) {
  static const int64_t ms[] = {1, 300, 2000, 61000};
  (void)z;
  r->world.now += ms[fuzz_byte(&r->in) % 4] * 1000000;
}

static void ops_auth(ops_run *r, zke *z) {
  unsigned len = fuzz_byte(&r->in) % 8;
  char *cert = len ? fuzz_text(&r->in, len) : strdup("u:p");
  bool strange = fuzz_byte(&r->in) > 250;
  fuzz_rc(zke_add_auth(z, strange ? "ip" : "digest", cert, (int)strlen(cert)));
  free(cert);
}

static void ops_acl(ops_run *r, zke *z) {
  zke_acl data[3];
  char *path = ops_path(r);
  zke_acls acls = ops_acls(r, data), *got = NULL;
  fuzz_rc(zke_set_acl(z, path, ops_version(r), &acls, NULL));
  if (fuzz_rc(zke_get_acl(z, path, &got, NULL)) == ZKE_OK) {
    FUZZ_EXPECT(got->count > 0);
    for (int i = 0; i < got->count; i++)
      FUZZ_EXPECT(strlen(got->data[i].scheme) && got->data[i].id);
  }
  zke_free(got);
  free(path);
}

static void ops_inspect(ops_run *r, zke *z) {
  zke_session_list *sessions = NULL;
  zke_watch_list *watches = NULL;
  (void)r;
  fuzz_rc(zke_sessions(z, -1, &sessions));
  fuzz_rc(zke_watches(z, &watches));
  for (int i = 0; sessions && i < sessions->count; i++)
    FUZZ_EXPECT(sessions->data[i].identity && sessions->data[i].events >= 0);
  for (int i = 0; watches && i < watches->count; i++)
    FUZZ_EXPECT(watches->data[i].path[0] == '/');
  zke_free(sessions);
  zke_free(watches);
}

static void ops_count(ops_run *r, zke *z) {
  char *path = ops_path(r);
  zke_strings *paths = NULL;
  int64_t count = 0;
  if (fuzz_rc(zke_count(z, path, &count)) == ZKE_OK) FUZZ_EXPECT(count >= 0);
  fuzz_rc(zke_ephemerals(z, 0, path, &paths));
  ops_read_strings(paths);
  free(path);
}

static void ops_check(ops_run *r, zke *z) {
  (void)r;
  int rc = fuzz_rc(zke_check(z, NULL, NULL));
  FUZZ_EXPECT(rc != ZKE_DATAINCONSISTENCY && rc != ZKE_CORRUPT);
}

static void ops_expire(ops_run *r, zke *z) {
  zke *other = r->z[fuzz_byte(&r->in) % OPS_SESSIONS];
  fuzz_rc(zke_expire(z, zke_session_id(other)));
}

static void ops_lose_reply(ops_run *r, zke *z) {
  unsigned how = fuzz_byte(&r->in);
  fuzz_rc(zke_test_fail(z, (int)(how % 3), (int)(how / 3 % 4)));
}

/* ---- the run ---- */

static zke_options ops_options(ops_run *r) {
  unsigned how = fuzz_byte(&r->in);
  zke_options o = {.size = sizeof o};
  o.os = &r->os;
  o.allocator = (zke_allocator){fuzz_resize, &r->world};
  o.event_limit = how & 1 ? 4 : 0;
  o.lease_ms = how & 2 ? 500 : 0;
  o.chroot = how % 16 == 4 ? "/a" : NULL;
  o.watcher = how & 8 ? ops_watcher : NULL;
  o.watcher_context = r;
  return o;
}

/* Begin the i-th session, or end it and begin another; one always stays, since
 * the tree ends with the last one. */
static void ops_renew(ops_run *r, int i) {
  int other = 0;
  while (other < OPS_SESSIONS && (other == i || !r->z[other])) other++;
  if (other == OPS_SESSIONS) return;
  if (r->z[i]) fuzz_rc(zke_close(r->z[i]));
  zke_options o = ops_options(r);
  if (o.event_limit) o.flags = ZKE_OPEN_LIGHT; /* in half of all inputs */
  fuzz_rc(zke_open_session(r->z[other], &o, &r->z[i]));
}

/* One call, or a session's beginning, which is not allowed in a batch. */
static void ops_call(ops_run *r, bool in_batch) {
  static void (*const calls[])(ops_run *, zke *) = {
      ops_create,    ops_create,       ops_delete,   ops_set,
      ops_get,       ops_exists,       ops_children, ops_multi,
      ops_add_watch, ops_remove_watch, ops_dispatch, ops_wait,
      ops_pass_time, ops_auth,         ops_acl,      ops_inspect,
      ops_count,     ops_check,        ops_expire,   ops_lose_reply,
      ops_set_watch, ops_vouch};
  unsigned what = fuzz_byte(&r->in);
  int i = (int)(what / 64);
  what %= 64;
  if (!in_batch && (what >= 60 || !r->z[i]))
    ops_renew(r, i);
  else if (r->z[i])
    calls[what % (sizeof calls / sizeof *calls)](r, r->z[i]);
}

/* Calls by any of the sessions, in a batch of one of them. */
static int ops_in_batch(zke *z, void *context) {
  ops_run *r = context;
  unsigned how = fuzz_byte(&r->in);
  FUZZ_EXPECT(zke_batch(z, ops_in_batch, r) == ZKE_MISUSE);
  for (unsigned i = 0; i < how % 16 && r->in.left; i++) ops_call(r, true);
  return how < 200 ? ZKE_OK : ZKE_CANCELLED;
}

/* One step of a run. */
static void ops_next(ops_run *r) {
  zke *z = r->z[r->in.left % OPS_SESSIONS];
  if (z && *r->in.at == OPS_BATCH) {
    fuzz_byte(&r->in);
    fuzz_rc(zke_batch(z, ops_in_batch, r));
  } else {
    ops_call(r, false);
  }
}

static int fuzz_ops(const uint8_t *data, size_t size) {
  ops_run r;
  memset(&r, 0, sizeof r);
  r.in = (fuzz_input){data, size};
  r.os = fuzz_world_begin(&r.world);
  zke_options o = ops_options(&r);
  FUZZ_EXPECT(zke_open(":memory:", &o, &r.z[0]) == ZKE_OK);
  for (int i = 0; i < OPS_CALLS_MOST && r.in.left; i++) ops_next(&r);
  zke_options plain = {.size = sizeof plain};
  zke *checker = NULL, *any = NULL;
  for (int i = 0; i < OPS_SESSIONS; i++) any = r.z[i] ? r.z[i] : any;
  if (zke_open_session(any, &plain, &checker) == ZKE_OK) {
    FUZZ_EXPECT(zke_check(checker, NULL, NULL) == ZKE_OK);
    zke_close(checker);
  }
  for (int i = 0; i < OPS_SESSIONS; i++) fuzz_rc(zke_close(r.z[i]));
  fuzz_world_end(&r.world);
  return 0;
}

FUZZ_TARGET(fuzz_ops)
