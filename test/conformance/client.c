/* client.c - a ZooKeeper session through its own C client
 *
 * It uses only the asynchronous calls of libzookeeper_mt: one completion thread
 * delivers completions and events in the order of the wire, while synchronous
 * calls may overtake events (semantics.md 5.3).  The caller sleeps until the
 * completion has run.  So there is one operation at a time, and what the
 * completion thread writes needs only the lock that hands it over.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "conformance.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zookeeper/zookeeper.h>

/* The client pings by itself; it waits a sixtieth of the session's timeout
 * before it reconnects. */
enum { ANSWER_SECONDS = 60, MADE_PATH = 8192, SESSION_MS = 20000 };

typedef struct session session;

/* Context number n of a session; 0 is the default watcher's. */
typedef struct context {
  session *s;
  int number;
} context;

struct session {
  zhandle_t *zh;
  bool chroot;
  pthread_mutex_t lock; /* for the following members */
  pthread_cond_t changed;
  int state;   /* last reported to the default watcher */
  bool waited; /* a completion has run */
  cf_reply *reply;
  cf_events events;
  context contexts[CF_WATCHERS + 1];
};

/* ---- called by the completion thread ---- */

/* zkembed has no events of connecting: they are noted, but not kept. */
static void watcher(zhandle_t *zh, int type, int state, const char *path,
                    void *arg) {
  const context *c = arg;
  (void)zh;
  pthread_mutex_lock(&c->s->lock);
  if (type != ZOO_SESSION_EVENT || state == ZOO_EXPIRED_SESSION_STATE ||
      state == ZOO_AUTH_FAILED_STATE)
    cf_events_add(&c->s->events, type, state, path, c->number);
  if (type == ZOO_SESSION_EVENT && c->number == 0) c->s->state = state;
  pthread_cond_broadcast(&c->s->changed);
  pthread_mutex_unlock(&c->s->lock);
}

/* The reply that a completion must fill in. */
static cf_reply *arrived(const void *data, int rc) {
  const session *s = data;
  s->reply->rc = rc;
  return s->reply;
}

static void finish(const void *data) {
  session *s = (session *)(uintptr_t)data;
  pthread_mutex_lock(&s->lock);
  s->waited = true;
  pthread_cond_broadcast(&s->changed);
  pthread_mutex_unlock(&s->lock);
}

/* Keep the Stat of an answer, if it has one. */
static void keep_stat(cf_reply *r, const struct Stat *stat) {
  if (!stat) return;
  r->has_stat = true;
  r->stat = (zke_stat){.czxid = stat->czxid,
                       .mzxid = stat->mzxid,
                       .ctime = stat->ctime,
                       .mtime = stat->mtime,
                       .version = stat->version,
                       .cversion = stat->cversion,
                       .aversion = stat->aversion,
                       .ephemeralOwner = stat->ephemeralOwner,
                       .dataLength = stat->dataLength,
                       .numChildren = stat->numChildren,
                       .pzxid = stat->pzxid};
}

static void keep_path(cf_reply *r, const char *path) {
  if (path) r->path = cf_text("%s", path);
}

static void keep_names(cf_reply *r, const struct String_vector *names) {
  if (!names) return;
  r->has_names = true;
  r->names.count = names->count;
  r->names.data = cf_alloc((size_t)names->count * sizeof *r->names.data + 1);
  for (int i = 0; i < names->count; i++)
    r->names.data[i] = cf_text("%s", names->data[i]);
}

static void void_done(int rc, const void *data) {
  arrived(data, rc);
  finish(data);
}

static void stat_done(int rc, const struct Stat *stat, const void *data) {
  keep_stat(arrived(data, rc), stat);
  finish(data);
}

/* The C client's callback for data. */
static void data_done(int rc, const char *value, int len,
                      const struct Stat *stat, const void *data) {
  cf_reply *r = arrived(data, rc);
  keep_stat(r, stat);
  r->has_data = rc == ZOK;
  r->len = len;
  r->data = len < 0 ? NULL : cf_copy(value, (size_t)len);
  finish(data);
}

static void names_done(int rc, const struct String_vector *names,
                       const void *data) {
  keep_names(arrived(data, rc), names);
  finish(data);
}

static void names_stat_done(int rc, const struct String_vector *names,
                            const struct Stat *stat, const void *data) {
  cf_reply *r = arrived(data, rc);
  keep_names(r, names);
  keep_stat(r, stat);
  finish(data);
}

static void path_done(int rc, const char *path, const void *data) {
  keep_path(arrived(data, rc), path);
  finish(data);
}

/* A sync's answer is the given path, which is not compared. */
static void sync_done(int rc, const char *path, const void *data) {
  (void)path;
  void_done(rc, data);
}

static void path_stat_done(int rc, const char *path, const struct Stat *stat,
                           const void *data) {
  cf_reply *r = arrived(data, rc);
  keep_path(r, path);
  keep_stat(r, stat);
  finish(data);
}

/* The C client's callback for a list. */
static void acl_done(int rc, struct ACL_vector *acls, struct Stat *stat,
                     const void *data) {
  cf_reply *r = arrived(data, rc);
  keep_stat(r, stat);
  r->has_acls = acls != NULL;
  if (acls) {
    zke_acl *copy = cf_alloc((size_t)acls->count * sizeof *copy + 1);
    for (int i = 0; i < acls->count; i++) {
      copy[i].perms = acls->data[i].perms;
      copy[i].scheme = cf_text("%s", acls->data[i].id.scheme);
      copy[i].id = cf_text("%s", acls->data[i].id.id);
    }
    r->acls = (zke_acls){acls->count, copy};
  }
  finish(data);
}

/* ---- calls ---- */

static char *plain(const char *text) { /* the client's structs lack const */
  return (char *)(uintptr_t)text;
}

/* Convert a list to the C client's type. */
static struct ACL_vector *convert(const zke_acls *acls) {
  struct ACL_vector *v = cf_alloc(sizeof *v);
  v->count = acls->count;
  v->data = cf_alloc((size_t)acls->count * sizeof *v->data + 1);
  for (int i = 0; i < acls->count; i++) {
    v->data[i].perms = acls->data[i].perms;
    v->data[i].id.scheme = plain(acls->data[i].scheme);
    v->data[i].id.id = plain(acls->data[i].id);
  }
  return v;
}

static void *chosen(session *s, const cf_op *op) {
  return &s->contexts[op->watch];
}

/* Create by the function that the mode needs. */
static int call_create(session *s, const cf_op *op) {
  const struct ACL_vector *acls = convert(&op->acls);
  zhandle_t *zh = s->zh;
  if (op->ttl_ms && op->whole)
    return zoo_acreate2_ttl(zh, op->path, op->data, op->len, acls, op->mode,
                            op->ttl_ms, path_stat_done, s);
  if (op->ttl_ms)
    return zoo_acreate_ttl(zh, op->path, op->data, op->len, acls, op->mode,
                           op->ttl_ms, path_done, s);
  if (op->whole)
    return zoo_acreate2(zh, op->path, op->data, op->len, acls, op->mode,
                        path_stat_done, s);
  return zoo_acreate(zh, op->path, op->data, op->len, acls, op->mode, path_done,
                     s);
}

static int call_exists(session *s, const cf_op *op) {
  return zoo_awexists(s->zh, op->path, op->watch ? watcher : NULL,
                      chosen(s, op), stat_done, s);
}

static int call_get(session *s, const cf_op *op) {
  return zoo_awget(s->zh, op->path, op->watch ? watcher : NULL, chosen(s, op),
                   data_done, s);
}

static int call_children(session *s, const cf_op *op) {
  watcher_fn fn = op->watch ? watcher : NULL;
  if (op->whole)
    return zoo_awget_children2(s->zh, op->path, fn, chosen(s, op),
                               names_stat_done, s);
  return zoo_awget_children(s->zh, op->path, fn, chosen(s, op), names_done, s);
}

/* The header wants a pointer to the completion's pointer; the library calls
 * what it is given. */
static int call_remove_watch(session *s, const cf_op *op) {
  ZooWatcherType type = (ZooWatcherType)op->type;
  void_completion_t *done = (void_completion_t *)(uintptr_t)void_done;
  if (!op->watch)
    return zoo_aremove_all_watches(s->zh, op->path, type, 0, done, s);
  return zoo_aremove_watches(s->zh, op->path, type, watcher, chosen(s, op), 0,
                             done, s);
}

/* An operation that is one asynchronous call. */
static int call_simple(session *s, const cf_op *op) {
  switch (op->kind) {
    case CF_CREATE:
      return call_create(s, op);
    case CF_DELETE:
      return zoo_adelete(s->zh, op->path, op->version, void_done, s);
    case CF_EXISTS:
      return call_exists(s, op);
    case CF_GET:
      return call_get(s, op);
    case CF_SET:
      return zoo_aset(s->zh, op->path, op->data, op->len, op->version,
                      stat_done, s);
    case CF_CHILDREN:
      return call_children(s, op);
    case CF_GET_ACL:
      return zoo_aget_acl(s->zh, op->path, acl_done, s);
    case CF_SET_ACL:
      return zoo_aset_acl(s->zh, op->path, op->version, convert(&op->acls),
                          void_done, s);
    case CF_SYNC:
      return zoo_async(s->zh, op->path, sync_done, s);
    case CF_REMOVE_WATCH:
      return call_remove_watch(s, op);
    case CF_ADD_AUTH:
      return zoo_add_auth(s->zh, op->scheme, op->data, op->len, void_done, s);
    default:
      cf_die("the C client has no %s", cf_kind_name(op->kind));
  }
}

/* Wait until the client's thread has set the flag. */
static void wait_for(session *s, const bool *flag, const int *value, int want) {
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += ANSWER_SECONDS;
  pthread_mutex_lock(&s->lock);
  while (flag ? !*flag : *value != want) {
    if (pthread_cond_timedwait(&s->changed, &s->lock, &limit))
      cf_die("the C client has not answered for %d s", ANSWER_SECONDS);
  }
  pthread_mutex_unlock(&s->lock);
}

/* If the call was accepted, wait for its completion. */
static void settle(session *s, int rc) {
  if (rc == ZOK)
    wait_for(s, &s->waited, NULL, 0);
  else
    *s->reply = (cf_reply){.rc = rc, .local = true};
}

/* ---- multi ---- */

/* One operation of a multi, for the C client. */
static void fill_sub(const cf_op *op, zoo_op_t *to, struct Stat *stat) {
  switch (op->kind) {
    case CF_CREATE:
      zoo_create_op_init(to, op->path, op->data, op->len, convert(&op->acls),
                         op->mode, cf_alloc(MADE_PATH), MADE_PATH);
      break;
    case CF_DELETE:
      zoo_delete_op_init(to, op->path, op->version);
      break;
    case CF_SET:
      zoo_set_op_init(to, op->path, op->data, op->len, op->version, stat);
      break;
    default:
      zoo_check_op_init(to, op->path, op->version);
      break;
  }
}

/* Multis that would break the client: when it refuses an operation that is not
 * the last, or has a chroot, it frees what it never allocated; and it never
 * completes an empty multi on a dead handle.  Their answers are known. */
static bool would_break(const session *s, const cf_op *op) {
  bool alive = s->state == ZOO_CONNECTED_STATE;
  if (!alive && op->count == 0) return true;
  for (int i = 0; i < op->count; i++) {
    if (alive && cf_client_passes(&op->subs[i])) continue;
    return i + 1 < op->count || s->chroot;
  }
  return false;
}

/* A multi: each operation's own result, as far as the client returns it. */
static void call_multi(session *s, const cf_op *op) {
  enum { UNTOUCHED = 12345 };
  size_t n = (size_t)op->count + 1;
  cf_reply *reply = s->reply;
  if (would_break(s, op)) {
    cf_mask_used[CF_MASK_CLIENT_MULTI]++;
    *reply = (cf_reply){.rc = ZMARSHALLINGERROR, .local = true};
    return;
  }
  zoo_op_t *ops = cf_alloc(n * sizeof *ops);
  zoo_op_result_t *results = cf_alloc(n * sizeof *results);
  struct Stat *stats = cf_alloc(n * sizeof *stats);
  for (int i = 0; i < op->count; i++) {
    fill_sub(&op->subs[i], &ops[i], &stats[i]);
    results[i].err = UNTOUCHED;
  }
  settle(s, zoo_amulti(s->zh, op->count, ops, results, void_done, s));
  if (op->count == 0 || results[0].err == UNTOUCHED) return;
  reply->count = op->count;
  reply->subs = cf_alloc(n * sizeof *reply->subs);
  for (int i = 0; i < op->count; i++) {
    reply->subs[i].rc = results[i].err;
    if (reply->rc != ZOK) continue;
    if (op->subs[i].kind == CF_CREATE)
      keep_path(&reply->subs[i], results[i].value);
    if (op->subs[i].kind == CF_SET) keep_stat(&reply->subs[i], &stats[i]);
  }
}

/* The library answers add_auth on the thread that reads, but sends events and
 * all else by another: earlier events may still be under way.  They have
 * arrived when another call is answered. */
static void call_behind(session *s) {
  static const cf_op look = {.kind = CF_EXISTS, .path = "/"};
  cf_reply unused = {0}, *reply = s->reply;
  s->reply = &unused;
  s->waited = false;
  settle(s, call_simple(s, &look));
  s->reply = reply;
}

/* ---- the driver ---- */

/* Make a call by the C client, and wait for its reply. */
static void client_call(void *arg, const cf_op *op, cf_reply *reply) {
  session *s = arg;
  *reply = (cf_reply){0};
  s->reply = reply;
  s->waited = false;
  if (op->kind == CF_MULTI)
    call_multi(s, op);
  else
    settle(s, call_simple(s, op));
  if (op->kind == CF_ADD_AUTH && reply->rc == ZAUTHFAILED)
    wait_for(s, NULL, &s->state, ZOO_AUTH_FAILED_STATE);
  else if (op->kind == CF_ADD_AUTH && reply->rc == ZOK)
    call_behind(s);
}

static void client_flush(void *arg) {
  cf_op look = {.kind = CF_EXISTS, .path = "/"};
  cf_reply reply;
  client_call(arg, &look, &reply);
}

static void client_events(void *arg, cf_events *out) {
  session *s = arg;
  pthread_mutex_lock(&s->lock);
  cf_events_move(out, &s->events);
  pthread_mutex_unlock(&s->lock);
}

static int64_t client_id(void *arg) {
  session *s = arg;
  return zoo_client_id(s->zh)->client_id;
}

static void silence(void) {
  static FILE *nowhere;
  if (nowhere) return;
  nowhere = fopen("/dev/null", "w");
  if (!nowhere) cf_die("cannot open /dev/null");
  zoo_set_log_stream(nowhere);
}

/* A session by the C client, below a chroot. */
static void *client_open(const char *chroot) {
  char *host = cf_text("127.0.0.1:%d%s", cf_port, chroot);
  session *s = calloc(1, sizeof *s);
  if (!s) cf_die("out of memory");
  s->chroot = *chroot != '\0';
  silence();
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->changed, NULL);
  for (int i = 0; i <= CF_WATCHERS; i++) s->contexts[i] = (context){s, i};
  s->zh = zookeeper_init(host, watcher, SESSION_MS, NULL, &s->contexts[0],
                         ZOO_NO_LOG_CLIENTENV);
  if (!s->zh) cf_die("zookeeper_init fails");
  wait_for(s, NULL, &s->state, ZOO_CONNECTED_STATE);
  return s;
}

/* The default watcher is the last to hear of it. */
static void client_expire(void *arg, bool by_timeout) {
  session *s = arg;
  const clientid_t *id = zoo_client_id(s->zh);
  cf_raw_end(id->client_id, id->passwd, by_timeout);
  wait_for(s, NULL, &s->state, ZOO_EXPIRED_SESSION_STATE);
  pthread_mutex_lock(&s->lock);
  cf_events_of_own_end(&s->events);
  pthread_mutex_unlock(&s->lock);
}

/* The client does not wait for the server's answer; after a failed
 * authentication it does not even tell the server. */
static int client_close(void *arg) {
  session *s = arg;
  clientid_t id = *zoo_client_id(s->zh);
  int rc = zookeeper_close(s->zh);
  if (s->state != ZOO_EXPIRED_SESSION_STATE)
    cf_raw_end(id.client_id, id.passwd, false);
  cf_events_free(&s->events);
  pthread_cond_destroy(&s->changed);
  pthread_mutex_destroy(&s->lock);
  free(s);
  return rc;
}

const cf_driver cf_client_driver = {"client",      client_open,   client_call,
                                    client_flush,  client_events, client_id,
                                    client_expire, client_close};
