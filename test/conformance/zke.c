/* zke.c - a session of zkembed
 *
 * A store is the database of one run.  The harness has a session on it (the
 * anchor), which keeps a database in memory alive and looks things up.
 */
#include "conformance.h"

#include <stdlib.h>
#include <string.h>

struct cf_store {
  char *file; /* NULL: in memory */
  zke *anchor;
};

/* Context number n of a session; 0 is the default watcher's. */
typedef struct context {
  cf_zke *z;
  int number;
} context;

struct cf_zke {
  zke *z;
  cf_events events;
  context contexts[CF_WATCHERS + 1];
  bool remote;
  zke *anchor;
};

static void must(int rc, const char *what) {
  if (rc != ZKE_OK)
    cf_die("%s: %s: %s", what, zke_error_name(rc), zke_errmsg());
}

/* Is it an event of the connection, and not of the session or a node?  Events
 * below the engine's session nodes are ignored, too. */
static bool is_beside(int type, int state, const char *path) {
  if (type == ZKE_EVENT_SESSION && state == ZKE_STATE_CONNECTING) return true;
  return strncmp(path, CF_SESSIONS "/", strlen(CF_SESSIONS "/")) == 0;
}

static void watcher(zke *z, int type, int state, const char *path, void *arg) {
  const context *c = arg;
  (void)z;
  if (is_beside(type, state, path)) return;
  cf_events_add(&c->z->events, type, state, path, c->number);
}

/* ---- stores and sessions ---- */

/* Containers and TTL nodes must stay during the whole run. */
zke_options cf_zke_options = {.size = sizeof(zke_options),
                              .container_ms = INT64_C(1) << 40,
                              .event_limit = 1000000};

static zke_options options(const char *chroot) {
  zke_options o = cf_zke_options;
  o.chroot = chroot;
  return o;
}

cf_store *cf_store_open(const char *file) {
  zke_options o = options(NULL);
  cf_store *s = calloc(1, sizeof *s);
  if (!s || (file && !(s->file = strdup(file)))) cf_die("out of memory");
  must(zke_open(file ? file : ":memory:", &o, &s->anchor), "zke_open");
  return s;
}

void cf_store_close(cf_store *s) {
  must(zke_close(s->anchor), "zke_close");
  free(s->file);
  free(s);
}

static bool cf_store_is_remote(const cf_store *s) {
  return s->file && strncmp(s->file, "zk://", 5) == 0;
}

zke *cf_store_anchor(cf_store *s) { return s->anchor; }

cf_zke *cf_zke_open(cf_store *s, const char *chroot, bool sibling) {
  zke_options o = options(*chroot ? chroot : NULL);
  cf_zke *z = calloc(1, sizeof *z);
  if (!z) cf_die("out of memory");
  for (int i = 0; i <= CF_WATCHERS; i++) z->contexts[i] = (context){z, i};
  z->remote = cf_store_is_remote(s);
  z->anchor = s->anchor;
  o.watcher = watcher;
  o.watcher_context = &z->contexts[0];
  if (sibling || !s->file)
    must(zke_open_session(s->anchor, &o, &z->z), "zke_open_session");
  else
    must(zke_open(s->file, &o, &z->z), "zke_open");
  return z;
}

/* After a failed authentication a server hangs up, but keeps the session:
 * another connection resumes and ends it. */
static void end_refused(const cf_zke *z) {
  unsigned char password[16];
  zke *again;
  if (!z->remote || zke_state(z->z) != ZKE_STATE_AUTH_FAILED) return;
  cf_mask_used[CF_MASK_AUTH_END]++;
  must(zke_password(z->z, password), "zke_password");
  must(zke_attach(z->anchor, zke_session_id(z->z), password, NULL, &again),
       "zke_attach");
  must(zke_close(again), "zke_close");
}

int cf_zke_close(cf_zke *z) {
  end_refused(z);
  int rc = zke_close(z->z);
  cf_events_free(&z->events);
  free(z);
  return rc;
}

int64_t cf_zke_id(cf_zke *z) { return zke_session_id(z->z); }

/* A server sends events before its answers to later requests. */
static void ask_server(cf_zke *z) {
  if (z->remote) zke_exists(z->z, "/", NULL, NULL, NULL);
}

/* A session that knows of its end has nothing to dispatch. */
void cf_zke_listen(cf_zke *z) {
  int called = 1;
  ask_server(z);
  while (called) {
    int rc = zke_dispatch(z->z, &called);
    if (rc == ZKE_INVALIDSTATE) return;
    must(rc, "zke_dispatch");
  }
}

void cf_zke_events(cf_zke *z, cf_events *out) {
  cf_zke_listen(z);
  cf_events_move(out, &z->events);
}

void cf_zke_await_end(cf_zke *z) {
  int64_t until = cf_now_ms() + 60000;
  while (zke_state(z->z) != ZKE_STATE_EXPIRED) {
    if (cf_now_ms() > until) cf_die("a session does not hear of its end");
    ask_server(z);
  }
  cf_zke_listen(z);
  cf_events_of_own_end(&z->events);
}

/* ---- operations ---- */

static zke_watch_fn fn_of(const cf_op *op) {
  return op->watch ? watcher : NULL;
}

static void *context_of(cf_zke *z, const cf_op *op) {
  return &z->contexts[op->watch];
}

/* Copy the library's results into the memory of the operation. */
static void keep_path(cf_reply *r, char *path) {
  r->path = cf_text("%s", path);
  zke_free(path);
}

static void keep_data(cf_reply *r, char *data, int len) {
  r->has_data = true;
  r->len = len;
  r->data = NULL;
  if (data) r->data = cf_copy(data, len > 0 ? (size_t)len : 0);
}

static void keep_names(cf_reply *r, const zke_strings *names) {
  r->has_names = true;
  r->names.count = names->count;
  r->names.data = cf_alloc((size_t)names->count * sizeof *r->names.data + 1);
  for (int i = 0; i < names->count; i++)
    r->names.data[i] = cf_text("%s", names->data[i]);
}

static void keep_acls(cf_reply *r, zke_acls *acls) {
  zke_acl *copy = cf_alloc((size_t)acls->count * sizeof *copy + 1);
  for (int i = 0; i < acls->count; i++) {
    copy[i].perms = acls->data[i].perms;
    copy[i].scheme = cf_text("%s", acls->data[i].scheme);
    copy[i].id = cf_text("%s", acls->data[i].id);
  }
  r->has_acls = true;
  r->acls = (zke_acls){acls->count, copy};
  zke_free(acls);
}

static void call_create(zke *z, const cf_op *op, cf_reply *r) {
  char *path = NULL;
  r->rc = op->ttl_ms ? zke_create_ttl(z, op->path, op->data, op->len, &op->acls,
                                      op->mode, op->ttl_ms, &path, &r->stat)
                     : zke_create(z, op->path, op->data, op->len, &op->acls,
                                  op->mode, &path, &r->stat);
  r->has_stat = r->rc == ZKE_OK;
  if (r->rc == ZKE_OK) keep_path(r, path);
}

static void call_get(cf_zke *z, const cf_op *op, cf_reply *r) {
  char *data = NULL;
  int len = 0;
  r->rc = zke_get(z->z, op->path, fn_of(op), context_of(z, op), &data, &len,
                  &r->stat);
  r->has_stat = r->rc == ZKE_OK;
  if (r->rc == ZKE_OK) keep_data(r, data, len);
  zke_free(data);
}

static void call_children(cf_zke *z, const cf_op *op, cf_reply *r) {
  zke_strings *names = NULL;
  r->rc = zke_children(z->z, op->path, fn_of(op), context_of(z, op), &names,
                       &r->stat);
  r->has_stat = r->rc == ZKE_OK;
  if (r->rc == ZKE_OK) keep_names(r, names);
  zke_free(names);
}

static void call_ephemerals(zke *z, const cf_op *op, cf_reply *r) {
  zke_strings *paths = NULL;
  r->rc = zke_ephemerals(z, 0, op->path, &paths);
  if (r->rc == ZKE_OK) keep_names(r, paths);
  zke_free(paths);
}

static void call_get_acl(zke *z, const cf_op *op, cf_reply *r) {
  zke_acls *acls = NULL;
  r->rc = zke_get_acl(z, op->path, &acls, &r->stat);
  r->has_stat = r->rc == ZKE_OK;
  if (r->rc == ZKE_OK) keep_acls(r, acls);
}

static void fill_sub(const cf_op *op, zke_op *to) {
  if (op->kind == CF_CREATE && op->ttl_ms)
    zke_op_create_ttl(to, op->path, op->data, op->len, &op->acls, op->mode,
                      op->ttl_ms);
  else if (op->kind == CF_CREATE)
    zke_op_create(to, op->path, op->data, op->len, &op->acls, op->mode);
  else if (op->kind == CF_DELETE)
    zke_op_delete(to, op->path, op->version);
  else if (op->kind == CF_SET)
    zke_op_set(to, op->path, op->data, op->len, op->version);
  else if (op->kind == CF_CHECK)
    zke_op_check(to, op->path, op->version);
  else if (op->kind == CF_GET)
    zke_op_get(to, op->path);
  else
    zke_op_children(to, op->path, NULL, 0);
}

static void keep_result(const cf_op *op, const zke_op_result *from, bool made,
                        cf_reply *r) {
  r->rc = from->rc;
  if (from->rc != ZKE_OK || !made) return;
  r->stat = from->stat;
  r->has_stat = op->kind != CF_DELETE && op->kind != CF_CHECK;
  if (from->path) r->path = cf_text("%s", from->path);
  if (op->kind == CF_GET) keep_data(r, from->data, from->len);
  if (op->kind == CF_CHILDREN) keep_names(r, from->children);
}

static void call_multi(zke *z, const cf_op *op, cf_reply *r) {
  enum { UNTOUCHED = 12345 };
  size_t n = (size_t)op->count + 1;
  zke_op *ops = cf_alloc(n * sizeof *ops);
  zke_op_result *results = cf_alloc(n * sizeof *results);
  for (int i = 0; i < op->count; i++) {
    fill_sub(&op->subs[i], &ops[i]);
    results[i].rc = UNTOUCHED;
  }
  r->rc = op->kind == CF_MULTI ? zke_multi(z, ops, op->count, results)
                               : zke_multi_read(z, ops, op->count, results);
  if (op->count == 0 || results[0].rc == UNTOUCHED) return;
  r->count = op->count;
  r->subs = cf_alloc(n * sizeof *r->subs);
  for (int i = 0; i < op->count; i++)
    keep_result(&op->subs[i], &results[i], r->rc == ZKE_OK, &r->subs[i]);
  zke_results_clear(results, op->count);
}

static int call_remove_watch(cf_zke *z, const cf_op *op) {
  return zke_remove_watch(z->z, op->path, op->type, op->watch ? watcher : NULL,
                          op->watch ? context_of(z, op) : NULL);
}

/* Operations that return only a code, or also a Stat. */
static int call_plain(cf_zke *z, const cf_op *op, cf_reply *r) {
  switch (op->kind) {
    case CF_DELETE:
      return zke_delete(z->z, op->path, op->version);
    case CF_EXISTS:
      return zke_exists(z->z, op->path, fn_of(op), context_of(z, op), &r->stat);
    case CF_SET:
      return zke_set(z->z, op->path, op->data, op->len, op->version, &r->stat);
    case CF_SET_ACL:
      return zke_set_acl(z->z, op->path, op->version, &op->acls, &r->stat);
    case CF_SYNC:
      return zke_sync(z->z, op->path);
    case CF_COUNT:
      return zke_count(z->z, op->path, &r->number);
    case CF_ADD_WATCH:
      return zke_add_watch(z->z, op->path, op->type, watcher,
                           &z->contexts[op->watch ? op->watch : 1]);
    case CF_REMOVE_WATCH:
      return call_remove_watch(z, op);
    case CF_ADD_AUTH:
      return zke_add_auth(z->z, op->scheme, op->data, op->len);
    default:
      cf_die("zkembed has no %s", cf_kind_name(op->kind));
  }
}

void cf_zke_call(cf_zke *z, const cf_op *op, cf_reply *r) {
  *r = (cf_reply){0};
  switch (op->kind) {
    case CF_CREATE:
      call_create(z->z, op, r);
      break;
    case CF_GET:
      call_get(z, op, r);
      break;
    case CF_CHILDREN:
      call_children(z, op, r);
      break;
    case CF_EPHEMERALS:
      call_ephemerals(z->z, op, r);
      break;
    case CF_GET_ACL:
      call_get_acl(z->z, op, r);
      break;
    case CF_MULTI:
    case CF_MULTI_READ:
      call_multi(z->z, op, r);
      break;
    default:
      r->rc = call_plain(z, op, r);
      r->has_stat =
          r->rc == ZKE_OK && (op->kind == CF_EXISTS || op->kind == CF_SET ||
                              op->kind == CF_SET_ACL);
      r->has_count = r->rc == ZKE_OK && op->kind == CF_COUNT;
      break;
  }
}
