/* compose.c - several services as one
 *
 * An engine for zkembed.h.  Its handle has parts, which are handles of other
 * engines, and owns them.  A call finds the part that its path lies in, keeps
 * the order, makes the part's own call, and returns the caller's paths and
 * session ids.
 *
 *     zke_compose_call_begin()  count in; find the part; has a session ended?
 *                               before a read, if the part may be out of date:
 *                               zke_sync()
 *     zke_get(part…)            the call itself
 *     zke_compose_call_end()    note that the part was used; count out
 *
 * An event takes the opposite way: a part's dispatch calls the files below.
 * They note that the part was heard from, and call the watcher with this handle
 * and the caller's path.
 *
 * This file knows what the calls about nodes and their watches mean for several
 * services, which calls must be refused, and how services are put together.
 * The files below it, the lowest first:
 *
 *     compose_part.c     parts: paths, session ids, the common order and end
 *     compose_call.c     watchers; the beginning and end of a call
 *     compose_handle.c   dispatching and sleeping; making and closing a handle
 *     compose_session.c  identities, sessions, time: calls without a path
 *
 * It promises what compose.h says.  The invariants of a handle are in the
 * headers of these files.  This file adds two:
 *
 *   1. A function of the table either begins one call and ends it, or does not
 *      count in.  This file takes no mutex.
 *   2. A call that changes a part first allocates everything that its result
 *      needs.  So it can always report what was done.
 *
 * Contents; each section calls only those above it.  A function compose_… is in
 * the table, with the contract of zke_… in zkembed.h, or it helps one of those.
 *
 *     compose_  nodes, with the paths of results (paths_); several operations
 *               (several_); watches; the table
 *     zke_      zke_order() (join_) and zke_mount() (mount_)
 *
 * Start with compose_get(), which is typical; then read compose_several() and
 * zke_mount(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "compose.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "compose_handle.h"
#include "compose_session.h"
#include "../part/text.h"

enum { NUMBER_LEN = 11 }; /* of a sequential node, including a sign */

/* ---- compose_: nodes ----
 *
 * Most functions are alike: begin on the part that the path lies in, make the
 * part's call of the same name, convert its Stat, end.  A call that fails sets
 * no output, like the part's own call.  Reads are COMPOSE_READ, and may send a
 * sync first.  A COMPOSE_CHANGE that succeeds brings the part up to date. */

/* Room for the path of a node to be created. */
typedef struct path_room {
  char *text;
  size_t len; /* of the room, without the NUL */
} path_room;

/* Make room for the new node's path in the caller's tree before the node is
 * created, so that lack of memory cannot hide a creation.  out->text stays NULL
 * if the part's own path is also the caller's. */
static int compose_make_room(const compose_part *p, const char *path,
                             path_room *out) {
  if (!path || zke_compose_part_is_base(p)) return ZKE_OK;
  out->len = strlen(path) + NUMBER_LEN;
  out->text = zke_alloc(p->z, out->len + 1);
  return out->text ? ZKE_OK : ZKE_NOMEM;
}

/* Convert the path of a result to the caller's, in the room made for it.  A
 * part's path may come from a server, which is not trusted.  If it is too long
 * to be the node's, it is unknown what was made, as if the reply were lost. */
static int compose_show_path(const compose_part *p, char **path, path_room *r) {
  if (!*path || !r->text) return ZKE_OK;
  if (zke_compose_part_outer_len(p, *path) > r->len)
    return zke_recipe_fail(ZKE_CONNECTIONLOSS,
                           "made, but at another path than was asked for");
  zke_compose_part_outer(p, *path, r->text);
  zke_free(*path);
  *path = r->text;
  r->text = NULL;
  return ZKE_OK;
}

/* Does the mode append a number to the path? */
static bool compose_is_sequential(int mode) {
  return mode == ZKE_PERSISTENT_SEQUENTIAL ||
         mode == ZKE_EPHEMERAL_SEQUENTIAL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

/* The flag of a call that creates in that mode. */
static int compose_names(int mode) {
  return compose_is_sequential(mode) ? COMPOSE_NAMES : 0;
}

/* Both creates: the call of the part. */
static int compose_make_there(const compose_call *c, const zke_op *op,
                              char **path_out, zke_stat *stat_out) {
  zke *z = c->p->z;
  if (op->ttl_ms)
    return zke_create_ttl(z, c->path, op->data, op->len, op->acls, op->mode,
                          op->ttl_ms, path_out, stat_out);
  return zke_create(z, c->path, op->data, op->len, op->acls, op->mode, path_out,
                    stat_out);
}

/* Both creates. */
static int compose_make(zke *z, const zke_op *op, char **path_out,
                        zke_stat *stat_out) {
  compose_call c;
  char *path = NULL;
  path_room made = {0};
  int rc = zke_compose_call_begin(&c, z, op->path,
                                  COMPOSE_CHANGE | compose_names(op->mode));
  if (rc != ZKE_OK) return rc;
  if (path_out) rc = compose_make_room(c.p, op->path, &made);
  if (rc == ZKE_OK)
    rc = compose_make_there(&c, op, path_out ? &path : NULL, stat_out);
  if (rc == ZKE_OK) rc = compose_show_path(c.p, &path, &made);
  if (rc == ZKE_OK) {
    zke_compose_part_show_stat(c.p, stat_out);
    if (path_out) *path_out = path;
  } else {
    zke_free(path);
  }
  zke_free(made.text);
  return zke_compose_call_end(&c, rc);
}

/* zke_create(), as an operation for compose_make(). */
static int compose_create(zke *z, const char *path, const void *data, int len,
                          const zke_acls *acls, int mode, char **path_out,
                          zke_stat *stat_out) {
  zke_op op = {.path = path, .data = data, .len = len, .acls = acls};
  op.mode = mode;
  return compose_make(z, &op, path_out, stat_out);
}

/* The part refuses a time of 0, but compose_make() takes 0 for no time. */
static int compose_create_ttl(zke *z, const char *path, const void *data,
                              int len, const zke_acls *acls, int mode,
                              int64_t ttl_ms, char **path_out,
                              zke_stat *stat_out) {
  zke_op op = {.path = path, .data = data, .len = len, .acls = acls};
  op.mode = mode;
  op.ttl_ms = ttl_ms ? ttl_ms : -1;
  return compose_make(z, &op, path_out, stat_out);
}

/* zke_delete().  The mount point is the part's "/"; the part refuses to delete
 * it. */
static int compose_remove(zke *z, const char *path, int version) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, COMPOSE_CHANGE);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(&c, zke_delete(c.p->z, c.path, version));
}

/* zke_discard().  Its success does not mean that the part was asked just now,
 * so it does not bring the part up to date. */
static int compose_discard(zke *z, const char *path, int mode, int64_t czxid) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, compose_names(mode));
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(&c, zke_discard(c.p->z, c.path, mode, czxid));
}

/* zke_raise_sequence(), which only files have.  They are never out of date, so
 * it need not count as a change. */
static int compose_raise_sequence(zke *z, const char *path, int next,
                                  zke_stat *stat_out) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, 0);
  if (rc != ZKE_OK) return rc;
  rc = zke_raise_sequence(c.p->z, c.path, next, stat_out);
  if (rc == ZKE_OK) zke_compose_part_show_stat(c.p, stat_out);
  return zke_compose_call_end(&c, rc);
}

/* zke_exists().  The watch is on the part that the node lies in. */
static int compose_exists(zke *z, const char *path, zke_watch_fn fn,
                          void *context, zke_stat *stat_out) {
  compose_call c;
  int rc = zke_compose_call_begin_watch(&c, z, path, COMPOSE_READ, fn, context);
  if (rc != ZKE_OK) return rc;
  rc = zke_exists(c.p->z, c.path, c.fn, c.context, stat_out);
  if (rc == ZKE_OK) zke_compose_part_show_stat(c.p, stat_out);
  return zke_compose_call_end(&c, rc);
}

/* zke_get(); the data is the part's block, which zke_free() accepts too. */
static int compose_get(zke *z, const char *path, zke_watch_fn fn, void *context,
                       char **data_out, int *len_out, zke_stat *stat_out) {
  compose_call c;
  int rc = zke_compose_call_begin_watch(&c, z, path, COMPOSE_READ, fn, context);
  if (rc != ZKE_OK) return rc;
  rc = zke_get(c.p->z, c.path, c.fn, c.context, data_out, len_out, stat_out);
  if (rc == ZKE_OK) zke_compose_part_show_stat(c.p, stat_out);
  return zke_compose_call_end(&c, rc);
}

/* zke_set().  A success brings the part up to date: it shows at least this
 * change, and everything its service ordered before it. */
static int compose_set(zke *z, const char *path, const void *data, int len,
                       int version, zke_stat *stat_out) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, COMPOSE_CHANGE);
  if (rc != ZKE_OK) return rc;
  rc = zke_set(c.p->z, c.path, data, len, version, stat_out);
  if (rc == ZKE_OK) zke_compose_part_show_stat(c.p, stat_out);
  return zke_compose_call_end(&c, rc);
}

/* zke_children().  A mount point is among its parent's children, because the
 * base has a node there; the base's nodes below it are not shown. */
static int compose_children(zke *z, const char *path, zke_watch_fn fn,
                            void *context, zke_strings **names_out,
                            zke_stat *stat_out) {
  compose_call c;
  int rc = zke_compose_call_begin_watch(&c, z, path, COMPOSE_READ, fn, context);
  if (rc != ZKE_OK) return rc;
  rc = zke_children(c.p->z, c.path, c.fn, c.context, names_out, stat_out);
  if (rc == ZKE_OK) zke_compose_part_show_stat(c.p, stat_out);
  return zke_compose_call_end(&c, rc);
}

/* zke_count(): no part can count what is mounted below the path. */
static int compose_count(zke *z, const char *path, int64_t *count_out) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, COMPOSE_READ | COMPOSE_BELOW);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(&c, zke_count(c.p->z, c.path, count_out));
}

/* zke_usage(), with the same limit. */
static int compose_usage(zke *z, const char *path, int64_t *count_out,
                         int64_t *bytes_out) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, COMPOSE_READ | COMPOSE_BELOW);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(&c,
                              zke_usage(c.p->z, c.path, count_out, bytes_out));
}

/* zke_sync() of the path's part, which is up to date afterwards. */
static int compose_sync(zke *z, const char *path) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, COMPOSE_CHANGE);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(&c, zke_sync(c.p->z, c.path));
}

/* zke_get_acl().  Permissions are the part's own; those of the base's mount
 * point have no effect below it. */
static int compose_get_acl(zke *z, const char *path, zke_acls **acls_out,
                           zke_stat *stat_out) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, COMPOSE_READ);
  if (rc != ZKE_OK) return rc;
  rc = zke_get_acl(c.p->z, c.path, acls_out, stat_out);
  if (rc == ZKE_OK) zke_compose_part_show_stat(c.p, stat_out);
  return zke_compose_call_end(&c, rc);
}

/* zke_set_acl(), on the part alone. */
static int compose_set_acl(zke *z, const char *path, int version,
                           const zke_acls *acls, zke_stat *stat_out) {
  compose_call c;
  int rc = zke_compose_call_begin(&c, z, path, COMPOSE_CHANGE);
  if (rc != ZKE_OK) return rc;
  rc = zke_set_acl(c.p->z, c.path, version, acls, stat_out);
  if (rc == ZKE_OK) zke_compose_part_show_stat(c.p, stat_out);
  return zke_compose_call_end(&c, rc);
}

/* Paths for a list of strings in one block, each with the part it lies in. */
typedef struct paths {
  int count;
  struct {
    compose_part *p;
    const char *path;
  } * data;
} paths;

/* Add a part's paths.  They are not copied: `more` must stay until
 * paths_show(). */
static int paths_add(paths *l, compose_part *p, const zke_strings *more) {
  size_t room = (size_t)l->count + (size_t)more->count;
  void *data = realloc(l->data, (room ? room : 1) * sizeof *l->data);
  if (!data) return zke_recipe_fail(ZKE_NOMEM, "out of memory");
  l->data = data;
  for (int i = 0; i < more->count; i++) {
    l->data[l->count].p = p;
    l->data[l->count++].path = more->data[i];
  }
  return ZKE_OK;
}

/* The order of bytes, like that of the parts' own lists. */
static int paths_compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The caller's paths, without hidden ones and those that do not begin with
 * prefix; NULL if out of memory. */
static zke_strings *paths_show(zke *z, const paths *l, const char *prefix) {
  size_t size = sizeof(zke_strings) + (size_t)l->count * sizeof(char *);
  for (int i = 0; i < l->count; i++)
    size += zke_compose_part_outer_len(l->data[i].p, l->data[i].path) + 1;
  zke_strings *out = zke_alloc(z, size);
  if (!out) return NULL;
  out->data = (char **)(void *)(out + 1);
  char *at = (char *)(out->data + l->count);
  for (int i = 0; i < l->count; i++) {
    const compose_part *p = l->data[i].p;
    zke_compose_part_outer(p, l->data[i].path, at);
    if (zke_compose_part_hides(p, at)) continue;
    if (prefix && strncmp(at, prefix, strlen(prefix)) != 0) continue;
    out->data[out->count++] = at;
    at += strlen(at) + 1;
  }
  return out;
}

/* One part's ephemerals of a session, given by its shown id.  It asks for all
 * of them, because a prefix is a path of the caller's tree.  *found stays NULL
 * if the part does not know the session.  So an engine that can list only its
 * own session's is not asked for another's. */
static int compose_find_ephemerals(compose_call *c, compose_part *p,
                                   int64_t session, zke_strings **found) {
  zke_session_list *who = NULL;
  int64_t id = session ? zke_compose_part_take_id(p, session) : 0;
  zke *z = zke_compose_call_turn_to(c, p);
  int rc = zke_compose_order_read(p);
  if (rc == ZKE_OK && id && id != p->own) rc = zke_sessions(z, id, &who);
  if (rc == ZKE_OK) rc = zke_ephemerals(z, id, NULL, found);
  zke_free(who);
  zke_compose_call_unlimit(c, rc);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* The ephemerals of all parts, in one sorted list. */
static int compose_ephemerals(zke *z, int64_t session, const char *prefix,
                              zke_strings **paths_out) {
  compose_call c;
  paths l = {0};
  zke_strings *found[ZKE_MOUNTS] = {NULL}, *out = NULL;
  int rc = zke_compose_call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < c.h->count && rc == ZKE_OK; i++) {
    compose_part *p = c.h->parts[i];
    rc = compose_find_ephemerals(&c, p, session, &found[i]);
    if (rc == ZKE_OK && found[i]) rc = paths_add(&l, p, found[i]);
  }
  if (rc == ZKE_OK && paths_out) {
    out = paths_show(z, &l, prefix);
    rc = out ? ZKE_OK : ZKE_NOMEM;
  }
  if (out && out->count > 1)
    qsort(out->data, (size_t)out->count, sizeof(char *), paths_compare);
  for (int i = 0; i < c.h->count; i++) zke_free(found[i]);
  free(l.data);
  if (rc == ZKE_OK && paths_out) *paths_out = out;
  return zke_compose_call_leave(&c, rc);
}

/* ---- compose_: several operations ----
 *
 * All must lie in one part.  The part gets a copy of the operations with its
 * own paths, which are the ends of the caller's; results are changed in place.
 * All memory that the results of changes need is allocated before the part's
 * call.  So a call that made its changes does not fail afterwards. */

/* The operations of one call, as the part gets them. */
typedef struct several {
  zke_op *ops;      /* with the part's paths */
  path_room *rooms; /* for the callers' paths of created nodes */
  int count;
} several;

/* Release what several_take() made, even if it failed half-way. */
static void several_free(several *s) {
  for (int i = 0; i < s->count && s->rooms; i++) zke_free(s->rooms[i].text);
  free(s->rooms);
  free(s->ops);
}

/* Does the operation have a path that counts? */
static bool several_has_path(const zke_op *op) {
  return op->path && op->type != ZKE_OP_FAIL && op->type != ZKE_OP_SQL;
}

/* Does the operation create a node with a number? */
static bool several_is_sequential(const zke_op *op) {
  return op->type == ZKE_OP_CREATE && compose_is_sequential(op->mode);
}

/* The part that all operations lie in; an operation without a path lies
 * anywhere.  Refused if two operations lie in different parts, or one concerns
 * two parts. */
static int several_find(const compose *h, const zke_op *ops, int count,
                        compose_part **out) {
  const char *first = NULL;
  *out = h->parts[0];
  for (int i = 0; i < count; i++) {
    const char *path = ops[i].path;
    if (!several_has_path(&ops[i])) continue;
    compose_part *p =
        zke_compose_part_find(h, path, several_is_sequential(&ops[i]));
    if (ops[i].type == ZKE_OP_UNTOLD && zke_compose_part_spans(h, path))
      return zke_recipe_fail(ZKE_UNIMPLEMENTED,
                             "another service is mounted below %s", path);
    if (first && p != *out)
      return zke_recipe_fail(
          ZKE_UNIMPLEMENTED,
          "%s and %s lie in two services: no call is about both at once", first,
          path);
    *out = p;
    first = path;
  }
  return ZKE_OK;
}

/* Copy the operations, with the part's paths and rooms for results.
 * several_free() must follow even if it fails. */
static int several_take(several *s, const compose_part *p, const zke_op *ops,
                        int count) {
  int rc = ZKE_OK;
  s->ops = malloc((size_t)count * sizeof *s->ops);
  s->rooms = calloc((size_t)count, sizeof *s->rooms);
  if (!s->ops || !s->rooms) return zke_recipe_fail(ZKE_NOMEM, "out of memory");
  for (s->count = 0; s->count < count && rc == ZKE_OK; s->count++) {
    int i = s->count;
    s->ops[i] = ops[i];
    if (!several_has_path(&ops[i])) continue;
    s->ops[i].path =
        zke_compose_part_inner(p, ops[i].path, several_is_sequential(&ops[i]));
    if (ops[i].type == ZKE_OP_CREATE)
      rc = compose_make_room(p, ops[i].path, &s->rooms[i]);
  }
  return rc;
}

/* Convert the paths of changes that watchers were not told of yet.  If out of
 * memory, the operation fails with ZKE_RUNTIMEINCONSISTENCY, as if there were
 * too many changes (zke_op_untold()); the call does not fail. */
static void several_show_untold(compose_part *p, zke_op_result *r) {
  paths l = {0};
  zke_strings *own = r->children;
  r->children =
      paths_add(&l, p, own) == ZKE_OK ? paths_show(p->z, &l, NULL) : NULL;
  if (!r->children) r->rc = ZKE_RUNTIMEINCONSISTENCY;
  zke_free(own);
  free(l.data);
}

/* Convert the part's results to the caller's: all of them, or none. */
static int several_show(several *s, compose_part *p, zke_op_result *results) {
  int rc = ZKE_OK;
  for (int i = 0; i < s->count && rc == ZKE_OK; i++) {
    zke_op_result *r = &results[i];
    if (r->rc != ZKE_OK) continue;
    zke_compose_part_show_stat(p, &r->stat);
    rc = compose_show_path(p, &r->path, &s->rooms[i]);
    if (s->ops[i].type == ZKE_OP_UNTOLD && r->children)
      several_show_untold(p, r);
  }
  if (rc != ZKE_OK) zke_results_clear(results, s->count);
  return rc;
}

typedef int (*compose_multi_fn)(zke *z, const zke_op *ops, int count,
                                zke_op_result *results);

/* The rest of a call that has begun on its part. */
static int several_call(compose_call *c, const zke_op *ops, int count,
                        zke_op_result *results, compose_multi_fn fn) {
  several s = {0};
  int rc = ZKE_OK;
  bool taken = ops && count > 0;
  if (taken) rc = several_take(&s, c->p, ops, count);
  if (rc == ZKE_OK) rc = fn(c->p->z, taken ? s.ops : ops, count, results);
  if (rc == ZKE_OK && results) rc = several_show(&s, c->p, results);
  several_free(&s);
  return zke_compose_call_end(c, rc);
}

/* zke_multi() and zke_multi_read(), on the part that all paths lie in.  A call
 * without operations goes to the base. */
static int compose_several(zke *z, const zke_op *ops, int count,
                           zke_op_result *results, int how,
                           compose_multi_fn fn) {
  compose_call c;
  compose_part *p;
  int rc = zke_compose_call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  rc = several_find(c.h, ops, ops ? count : 0, &p);
  if (rc != ZKE_OK) return zke_compose_call_leave(&c, rc);
  rc = zke_compose_call_begin_on(&c, p, how);
  return rc != ZKE_OK ? rc : several_call(&c, ops, count, results, fn);
}

/* zke_multi(): only one service can promise all or nothing, so all paths must
 * lie in one. */
static int compose_multi(zke *z, const zke_op *ops, int count,
                         zke_op_result *results) {
  return compose_several(z, ops, count, results, COMPOSE_CHANGE, zke_multi);
}

/* zke_multi_read(): the same holds for one snapshot. */
static int compose_multi_read(zke *z, const zke_op *ops, int count,
                              zke_op_result *results) {
  return compose_several(z, ops, count, results, COMPOSE_READ, zke_multi_read);
}

/* Only a handle of one part has batches.  The function may end its thread. */
static int compose_batch(zke *z, zke_batch_fn fn, void *context) {
  compose_call c;
  volatile int rc = zke_compose_call_begin(&c, z, "/", COMPOSE_CHANGE);
  if (rc != ZKE_OK) return rc;
  if (c.h->count > 1)
    return zke_compose_call_end(
        &c, zke_recipe_fail(ZKE_UNIMPLEMENTED,
                            "a batch is one service's, and others "
                            "are mounted here"));
  pthread_cleanup_push(zke_compose_call_abandon, &c);
  rc = zke_compose_batch(c.p, fn, context);
  pthread_cleanup_pop(0);
  return zke_compose_call_end(&c, rc);
}

/* ---- compose_: watches ----
 *
 * The part that the path lies in gets a function and a context (c.fn,
 * c.context) that stand for the caller's pair.  A pair may watch on several
 * parts: then each has one pair for it, which is called for that part's events.
 * The same two find or remove the pair's watches on the part.  For a pair that
 * is not noted, the part gets a context that it does not know, and refuses it
 * in its own words. */

/* zke_add_watch().  A recursive watch sees one service's nodes, so it must not
 * lie above a mount. */
static int compose_add_watch(zke *z, const char *path, int mode,
                             zke_watch_fn fn, void *context) {
  compose_call c;
  bool below = mode == ZKE_WATCH_PERSISTENT_RECURSIVE;
  int how = COMPOSE_READ | (below ? COMPOSE_BELOW : 0);
  int rc = zke_compose_call_begin_watch(&c, z, path, how, fn, context);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(
      &c, zke_add_watch(c.p->z, c.path, mode, c.fn, c.context));
}

/* zke_set_watch().  The zxid is one of the part that the path lies in. */
static int compose_set_watch(zke *z, const char *path, int type, int64_t zxid,
                             zke_watch_fn fn, void *context) {
  compose_call c;
  int rc = zke_compose_call_begin_watch(&c, z, path, COMPOSE_READ, fn, context);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(
      &c, zke_set_watch(c.p->z, c.path, type, zxid, c.fn, c.context));
}

/* zke_check_watch(), for the pair under which the part knows it. */
static int compose_check_watch(zke *z, const char *path, int type,
                               zke_watch_fn fn, void *context) {
  compose_call c;
  int rc = zke_compose_call_begin_known(&c, z, path, fn, context);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(
      &c, zke_check_watch(c.p->z, c.path, type, c.fn, c.context));
}

/* zke_remove_watch(), on the part that the path lies in: no other part has a
 * watch of that path.  The pair stays noted until zke_forget(), because it may
 * watch other paths. */
static int compose_remove_watch(zke *z, const char *path, int type,
                                zke_watch_fn fn, void *context) {
  compose_call c;
  int rc = zke_compose_call_begin_known(&c, z, path, fn, context);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(
      &c, zke_remove_watch(c.p->z, c.path, type, c.fn, c.context));
}

/* zke_forget(), in any state of the session. */
static int compose_forget(zke *z, zke_watch_fn fn, void *context) {
  compose_call c;
  int rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_leave(&c, zke_compose_pair_forget(c.h, fn, context));
}

/* zke_call_at(), in any state, as with one service. */
static int compose_call_at(zke *z, int64_t when_ms, zke_watch_fn fn,
                           void *context) {
  compose_call c;
  if (!fn) return zke_recipe_fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  rc = zke_compose_pair_at(c.h, when_ms, fn, context);
  return zke_compose_call_leave(&c, rc);
}

/* zke_set_watcher(), in any state. */
static int compose_set_watcher(zke *z, zke_watch_fn fn, void *context) {
  compose_call c;
  int rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_leave(&c, zke_compose_pair_default(c.h, fn, context));
}

/* ---- the table ---- */

/* The engine is not registered, so it is never opened by a name. */
static int compose_open(const zke_engine *engine, const char *name,
                        const zke_options *options, zke **z_out) {
  (void)engine, (void)options, (void)z_out;
  return zke_recipe_fail(ZKE_UNIMPLEMENTED, "%s: composed handles have no name",
                         name);
}

/* The functions that zkembed.h calls for a composed handle.  Those missing here
 * are ZKE_UNIMPLEMENTED, or made of these. */
static const zke_engine compose_engine = {
    .size = sizeof(zke_engine),
    .prefix = "a composed handle",
    .open = compose_open,
    .open_session = zke_compose_open_session,
    .attach = zke_compose_attach,
    .detach = zke_compose_no_session,
    .password = zke_compose_password,
    .touch = zke_compose_no_session,
    .rearm = zke_compose_no_session,
    .close = zke_compose_close,
    .session_id = zke_compose_session_id,
    .state = zke_compose_state,
    .expire = zke_compose_expire,
    .keepalive_fd = zke_compose_keepalive_fd,
    .create = compose_create,
    .create_ttl = compose_create_ttl,
    .remove = compose_remove,
    .discard = compose_discard,
    .raise_sequence = compose_raise_sequence,
    .exists = compose_exists,
    .get = compose_get,
    .set = compose_set,
    .children = compose_children,
    .count = compose_count,
    .usage = compose_usage,
    .ephemerals = compose_ephemerals,
    .sync = compose_sync,
    .multi = compose_multi,
    .multi_read = compose_multi_read,
    .batch = compose_batch,
    .add_auth = zke_compose_add_auth,
    .vouch = zke_compose_vouch,
    .clear_auth = zke_compose_clear_auth,
    .get_acl = compose_get_acl,
    .set_acl = compose_set_acl,
    .add_watch = compose_add_watch,
    .set_watch = compose_set_watch,
    .check_watch = compose_check_watch,
    .remove_watch = compose_remove_watch,
    .forget = compose_forget,
    .call_at = compose_call_at,
    .set_watcher = compose_set_watcher,
    .now = zke_compose_now,
    .wall = zke_compose_wall,
    .sleep = zke_compose_sleep,
    .busy_timeout = zke_compose_busy_timeout,
    .limit = zke_compose_limit,
    .fd = zke_compose_fd,
    .next_deadline = zke_compose_next_deadline,
    .pending = zke_compose_pending,
    .dispatch = zke_compose_dispatch,
    .dispatch_to = zke_compose_dispatch_to,
    .event_zxid = zke_compose_event_zxid,
    .turn = zke_compose_turn,
    .wait_turn = zke_compose_wait_turn,
    .wake = zke_compose_wake,
    .sessions = zke_compose_sessions,
    .watches = zke_compose_watches,
    .overdue = zke_compose_overdue,
    .check = zke_compose_check,
    .compact = zke_compose_compact,
    .test_fail = zke_compose_test_fail,
};

/* ---- zke_: what a program calls ----
 *
 * Both run while nothing else uses the handles (compose.h), and so change
 * orders without a lock. */

/* Does the handle come from zke_order() or zke_mount()? */
static bool compose_is(const zke *z) {
  return ((const zke_handle *)(const void *)z)->engine == &compose_engine;
}

/* The handle as a composed one: the handle itself, or a new one around it. */
static int compose_take(zke *z, compose **out) {
  if (!compose_is(z)) return zke_compose_wrap(z, &compose_engine, out);
  compose *h = *out = zke_compose_of(z);
  int rc = zke_compose_check_process(h);
  if (rc != ZKE_OK) return rc;
  if (zke_compose_is_inside(h))
    return zke_recipe_fail(ZKE_MISUSE, "called in a callback of the handle");
  if (!zke_compose_is_end(zke_compose_states(h))) return ZKE_OK;
  return zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
}

/* Move all parts of the handle to another order.  Other parts that share the
 * old order move too, each staying in its own handle. */
static void join_move(compose *h, compose_order *to) {
  for (int i = 0; i < h->count; i++) {
    compose_part *p = h->parts[i];
    if (p->order != to) zke_compose_order_merge(p->order, to);
  }
}

/* Are these n different handles? */
static bool join_is_good(zke *const *handles, int n) {
  bool good = handles;
  for (int i = 0; good && i < n; i++) {
    good = handles[i];
    for (int j = 0; j < i; j++) good = good && handles[j] != handles[i];
  }
  return good;
}

/* Make the handles composed ones.  If one fails, the wrappers made so far are
 * removed. */
static int join_wrap(zke *const *handles, int n, compose **out) {
  int rc = ZKE_OK, made = 0;
  while (made < n && rc == ZKE_OK) {
    rc = compose_take(handles[made], &out[made]);
    if (rc == ZKE_OK) made++;
  }
  for (int i = 0; i < n && rc == ZKE_OK; i++) rc = zke_compose_listen(out[i]);
  for (int i = 0; i < made && rc != ZKE_OK; i++)
    if (!compose_is(handles[i])) zke_compose_undo(out[i]);
  return rc;
}

/* No part moves before all handles are wrapped.  So undoing a failure means
 * removing the wrappers. */
int zke_order(zke **handles, int n) {
  if (n < 1 || !join_is_good(handles, n))
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "handles that are NULL, or one twice");
  compose **out = calloc((size_t)n, sizeof(compose *));
  if (!out) return zke_recipe_fail(ZKE_NOMEM, "out of memory");
  int rc = join_wrap(handles, n, out);
  for (int i = 0; i < n && rc == ZKE_OK; i++) {
    join_move(out[i], out[0]->parts[0]->order);
    handles[i] = (zke *)(void *)out[i];
  }
  if (rc == ZKE_OK) zke_compose_order_begin(out[0]->parts[0]->order);
  free(out);
  return rc;
}

/* Is there room for another mount, at the prefix? */
static int mount_check_place(const compose *h, const char *prefix) {
  for (int i = 0; i < h->count; i++) {
    if (strcmp(h->parts[i]->prefix, prefix) == 0)
      return zke_recipe_fail(ZKE_NODEEXISTS, "%s is mounted on already",
                             prefix);
  }
  if (h->count == ZKE_MOUNTS || zke_compose_part_spans(h, prefix))
    return zke_recipe_fail(
        ZKE_BADARGUMENTS,
        "%s: another mount lies below it, or there are %d parts", prefix,
        ZKE_MOUNTS);
  if (zke_compose_pair_any(h))
    return zke_recipe_fail(ZKE_MISUSE, "mount before watchers are registered");
  return ZKE_OK;
}

/* May other be mounted on z there?  The engine checks that the prefix is a path
 * and has a node. */
static int mount_check(zke *z, const char *prefix, zke *other) {
  if (!z || !prefix || !other || z == other || compose_is(other))
    return zke_recipe_fail(
        ZKE_BADARGUMENTS,
        "a mount needs a prefix and two handles, the other one as "
        "zke_open() gave it");
  if (strcmp(prefix, "/") == 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "/ cannot be mounted on");
  int rc = zke_exists(z, prefix, NULL, NULL, NULL);
  if (rc != ZKE_OK || !compose_is(z)) return rc;
  const compose *h = zke_compose_of(z);
  for (int i = 0; i < h->count; i++) {
    if (h->parts[i]->z == other)
      return zke_recipe_fail(ZKE_BADARGUMENTS, "the handle is mounted already");
  }
  return mount_check_place(h, prefix);
}

/* The wrapper of a plain handle is made first, and removed if the part cannot
 * be added. */
int zke_mount(zke **z, const char *prefix, zke *other) {
  compose *h = NULL;
  int rc = mount_check(z ? *z : NULL, prefix, other);
  if (rc != ZKE_OK) return rc;
  int state = zke_state(other);
  if (zke_compose_is_end(state) || state == ZKE_STATE_CLOSED)
    return zke_recipe_fail(ZKE_INVALIDSTATE, "the other session has ended");
  if (zke_session_id(*z) == 0 && zke_session_id(other) != 0)
    return zke_recipe_fail(ZKE_READONLY,
                           "the handle has no session, and the other one has");
  rc = compose_take(*z, &h);
  if (rc != ZKE_OK) return rc;
  compose_part *p = zke_compose_part_new(other, prefix);
  rc = p ? zke_compose_listen(h) : ZKE_NOMEM;
  if (rc == ZKE_OK) rc = zke_compose_show_in_fd(h, p);
  if (rc == ZKE_OK) rc = zke_compose_pair_listen(p);
  if (rc == ZKE_OK) {
    zke_compose_adopt(h, p, h->parts[0]->order);
    zke_compose_order_begin(p->order);
    *z = (zke *)(void *)h;
    return ZKE_OK;
  }
  zke_free(p);
  if (!compose_is(*z)) zke_compose_undo(h);
  return rc;
}
