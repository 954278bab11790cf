/* config.c - a node, or all below it, kept current in memory
 *
 * The picture in memory, and the code that keeps it current, is a view
 * (view.h), which the object begins with.  This file has the program's calls:
 * reading the picture, waiting for a change of it, and changing the file.
 *
 * After a lost reply, a change is recognised by the node's data and version
 * (config_recognise()).
 *
 * Start reading at zke_config_set() and config_try_set(). */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/view.h"
#include "part/znode.h"

/* ---- the object ---- */

/* Guarded by the mutex of the zke_recipe that the view begins with. */
struct zke_config {
  zke_view v; /* first: a zke_view * is a zke_config * */
  zke_config_fn listener;
  void *context;
  bool waiting;       /* a blocking call runs */
  bool ready;         /* ZKE_CONFIG_READY was told */
  const char *wanted; /* the node that the call waits for; NULL: a revision */
  int64_t since;      /* the mzxid, or the revision, that it knows */
};

/* The functions of the class are the view's. */
static void config_event(zke_recipe *r, int type, const char *path) {
  zke_view_event((zke_view *)r, type, path);
}

static int config_step(zke_recipe *r) { return zke_view_step((zke_view *)r); }

/* Only a started object tells. */
static void config_ended(zke_recipe *r) {
  if (((zke_view *)r)->watching)
    zke_recipe_tell(r, ZKE_CONFIG_LOST, 0, NULL, 0);
}

/* The event follows from the node before and the node now. */
static void config_say(zke_view *v, const zke_config_node *before,
                       const zke_config_node *now) {
  zke_config *c = (zke_config *)v;
  int event = ZKE_CONFIG_CHANGED;
  if (!before) event = ZKE_CONFIG_ADDED;
  if (!now) event = ZKE_CONFIG_REMOVED;
  c->listener(c, event, before, now, c->context);
}

/* READY is told once, after the first news: then the listener knows
 * everything. */
static void config_deliver(zke_recipe *r, int event, int64_t number,
                           const char *text, int len) {
  zke_config *c = (zke_config *)r;
  (void)number, (void)text, (void)len;
  if (!c->listener) return;
  if (event != ZKE_VIEW_NEWS) {
    c->listener(c, event, NULL, NULL, c->context);
    return;
  }
  if (zke_view_deliver(&c->v, config_say) && !c->ready) {
    c->ready = true;
    c->listener(c, ZKE_CONFIG_READY, NULL, NULL, c->context);
  }
}

/* The watch has been removed before. */
static void config_destroy(zke_recipe *r) { zke_view_free((zke_view *)r); }

static const zke_recipe_class config_class = {.name = "configuration",
                                              .event = config_event,
                                              .step = config_step,
                                              .ended = config_ended,
                                              .deliver = config_deliver,
                                              .destroy = config_destroy};

/* Nothing of the tree is read before the first start or wait. */
int zke_config_new(zke *z, const char *path, const zke_config_options *options,
                   zke_config **config_out) {
  zke_config_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(config_out, options, &o, zke_config_options);
  if (rc != ZKE_OK) return rc;
  if (o.levels < -1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "levels is %d", o.levels);
  rc = zke_recipe_new(z, path, &config_class, sizeof(zke_config), &r);
  if (rc != ZKE_OK) return rc;
  zke_config *c = (zke_config *)r;
  c->v.scope = (zke_view_scope){o.levels, o.select, o.context};
  c->v.listens = o.listener != NULL;
  c->listener = o.listener;
  c->context = o.context;
  *config_out = c;
  return ZKE_OK;
}

/* Copies that the caller got stay valid. */
void zke_config_free(zke_config *config) {
  zke_recipe_free((zke_recipe *)config);
}

/* The first look is made here, so a later get has the tree. */
int zke_config_start(zke_config *config) {
  int rc = zke_recipe_enter((zke_recipe *)config);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&config->v.r, zke_view_start(&config->v));
}

/* For a program that dispatches seldom: it does the work of a dispatch. */
int zke_config_step(zke_config *config) {
  return zke_recipe_step((zke_recipe *)config);
}

/* ---- reading the picture ---- */

/* Enter a started object. */
static int config_enter(zke_config *config, const char *name) {
  if (!name) return zke_recipe_fail(ZKE_BADARGUMENTS, "the name is NULL");
  int rc = zke_recipe_enter((zke_recipe *)config);
  if (rc != ZKE_OK || config->v.watching) return rc;
  rc = zke_recipe_fail(ZKE_MISUSE, "the configuration %s was not started",
                       config->v.r.path);
  return zke_recipe_leave(&config->v.r, rc);
}

/* A node's outputs; fails without memory. */
static int config_copy(zke *z, const zke_config_node *n, char **data_out,
                       int *len_out, zke_stat *stat_out) {
  if (data_out && n->data) {
    char *data = zke_alloc(z, (size_t)n->len + 1);
    if (!data) return zke_recipe_fail(ZKE_NOMEM, "no memory for %s", n->name);
    if (n->len) memcpy(data, n->data, (size_t)n->len);
    *data_out = data;
  } else if (data_out) {
    *data_out = NULL;
  }
  if (len_out) *len_out = n->len;
  if (stat_out) *stat_out = n->stat;
  return ZKE_OK;
}

/* From memory: only dispatches, steps and waits update it. */
int zke_config_get(zke_config *config, const char *name, char **data_out,
                   int *len_out, zke_stat *stat_out) {
  int rc = config_enter(config, name);
  if (rc != ZKE_OK) return rc;
  zke_recipe *r = &config->v.r;
  const zke_config_node *n = zke_view_find(&config->v, name);
  if (n)
    rc = config_copy(r->z, n, data_out, len_out, stat_out);
  else
    rc = zke_recipe_fail(ZKE_NONODE, "no node %s/%s", r->path, name);
  return zke_recipe_leave(r, rc);
}

/* One node and everything below it, from one moment. */
int zke_config_list(zke_config *config, const char *name,
                    zke_config_tree **tree_out) {
  if (!tree_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "tree_out is NULL");
  int rc = config_enter(config, name);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&config->v.r,
                          zke_view_list(&config->v, name, tree_out));
}

/* 0 for an object that cannot be entered, or that has read nothing yet. */
int64_t zke_config_revision(zke_config *config) {
  if (zke_recipe_enter_memory((zke_recipe *)config) != ZKE_OK) return 0;
  int64_t revision = config->v.revision;
  zke_recipe_leave(&config->v.r, ZKE_OK);
  return revision;
}

/* ---- waiting ----
 *
 * The caller passes the revision, or the mzxid of a node, that it knows.  The
 * wait ends when the picture has another one, immediately if it has that
 * already. */

/* The value that a wait compares: a node's mzxid, 0 if the node is missing, or
 * the revision. */
static int64_t config_current(const zke_config *c) {
  if (!c->wanted) return c->v.revision;
  const zke_config_node *n = zke_view_find(&c->v, c->wanted);
  return n ? n->stat.mzxid : 0;
}

/* For one node, any other mzxid than the known one ends the wait; for the whole
 * tree, a later revision. */
static int config_done(zke_recipe *r) {
  const zke_config *c = (const zke_config *)r;
  int64_t current = config_current(c);
  bool done = c->wanted ? current != c->since : current > c->since;
  return done ? ZKE_OK : ZKE_NOT_YET;
}

/* A look after the deadline counts: a change at the last moment is a change. */
static int config_await(zke_config *c, int64_t deadline_ms) {
  int rc = zke_view_start(&c->v);
  if (rc == ZKE_OK) rc = zke_recipe_await(&c->v.r, config_done, deadline_ms);
  if (rc != ZKE_OPERATIONTIMEOUT || config_done(&c->v.r) == ZKE_OK) return rc;
  return zke_recipe_fail(rc, "%s%s%s did not change until the deadline",
                         c->v.r.path, c->wanted && *c->wanted ? "/" : "",
                         c->wanted ? c->wanted : "");
}

/* Only one call may wait with an object, since the object has only one
 * `wanted`.  The call waits for a change of one number, which the caller knows:
 * so nothing is missed between two calls. */
int zke_config_wait(zke_config *config, const char *name, int64_t since,
                    int64_t deadline_ms, int64_t *now_out) {
  int rc = zke_recipe_enter_by((zke_recipe *)config, deadline_ms);
  if (rc != ZKE_OK) return rc;
  zke_recipe *r = &config->v.r;
  if (config->waiting) {
    rc = zke_recipe_fail(
        ZKE_MISUSE, "another thread waits with this object for %s", r->path);
    return zke_recipe_leave(r, rc);
  }
  config->waiting = true;
  config->wanted = name;
  config->since = since;
  rc = config_await(config, deadline_ms);
  if (rc == ZKE_OK && now_out) *now_out = config_current(config);
  config->waiting = false;
  config->wanted = NULL;
  return zke_recipe_leave(r, rc);
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_config_cancel(zke_config *config) {
  return zke_recipe_cancel((zke_recipe *)config);
}

/* ---- changing ----
 *
 * A change goes into the file, and its event brings it into memory, as with
 * anybody's change.  With a version, a lost reply is resolved
 * (config_recognise()); without one, the change is made again, since the last
 * one wins anyway.
 *
 * The deadline may come before the result of a lost try is known.  Then a
 * change with a version gets one more look (zke_recipe_settle()).  If that look
 * does not show it, or there is no version, the call returns
 * ZKE_CONNECTIONLOSS: never a code that means that nothing was changed. */

/* A requested change; all but the last three members are borrowed. */
typedef struct config_change {
  const char *path;
  const void *data;
  int len, version;     /* as for zke_set() */
  const zke_op *guards; /* checks that must hold in the same step */
  int guard_count;
  bool unsure;   /* a try may have done it: its reply was lost */
  int64_t czxid; /* with a version: of the node before that try */
  zke_stat stat; /* out: of the node afterwards */
} config_change;

/* A change with a version has lost its reply, and the node has gone, or others
 * have changed it and it does not show whether the change was made.  The change
 * is not made again: it could set a node that somebody has made since. */
static int config_unknown(const config_change *c) {
  return zke_recipe_in_doubt(
      "whether %s was set is not known: the reply was "
      "lost, and others have changed or deleted it since",
      c->path);
}

/* After a lost reply of a change with a version: does the node have the next
 * version and the same data?  Then the change counts as made, even if somebody
 * else has written the same.  ZKE_NOT_MADE: it was not made, as the node is
 * unchanged.  ZKE_BADVERSION: it was not made, as somebody else has made the
 * next version.  If the node has a later version, was deleted or made again, or
 * may not be read, it is not known: config_unknown(). */
static int config_recognise(zke *z, void *arg) {
  config_change *c = arg;
  char *data = NULL;
  int len = -1;
  int rc = zke_exists(z, c->path, NULL, NULL, &c->stat);
  if (rc == ZKE_OK && c->stat.czxid == c->czxid &&
      c->stat.version == c->version) {
    c->unsure = false;
    return ZKE_NOT_MADE;
  }
  if (rc == ZKE_OK) rc = zke_get(z, c->path, NULL, NULL, &data, &len, &c->stat);
  bool next = rc == ZKE_OK && c->stat.czxid == c->czxid &&
              c->stat.version == zke_recipe_next_version(c->version);
  bool mine = next && len == c->len &&
              (len <= 0 || memcmp(data, c->data, (size_t)len) == 0);
  zke_free(data);
  if (mine) return ZKE_OK;
  if (rc == ZKE_OK ? !next : rc == ZKE_NONODE || rc == ZKE_NOAUTH)
    return config_unknown(c);
  if (rc != ZKE_OK) return rc;
  c->unsure = false;
  return zke_recipe_fail(ZKE_BADVERSION, "%s has version %d, not %d", c->path,
                         c->stat.version, c->version);
}

/* A guard does not hold.  Without a version, an earlier try may have succeeded
 * while the guards held: then it is not known. */
static int config_not_guarded(const config_change *c, const char *guard) {
  if (!c->unsure)
    return zke_recipe_fail(ZKE_LOST, "%s was not set: the guard %s is not held",
                           c->path, guard);
  return zke_recipe_in_doubt(
      "whether %s was set is not known: the reply was "
      "lost, and by now the guard %s is not held",
      c->path, guard);
}

/* Do it in one step with its guards; none of them may fail. */
static int config_do_guarded(zke *z, config_change *c, const zke_op *op) {
  size_t n = (size_t)c->guard_count;
  zke_op *ops = zke_alloc(z, (n + 1) * sizeof *ops);
  zke_op_result *results = zke_alloc(z, (n + 1) * sizeof *results);
  int rc = ops && results ? ZKE_OK : ZKE_NOMEM;
  if (rc == ZKE_OK) {
    memcpy(ops, c->guards, n * sizeof *ops);
    ops[n] = *op;
    rc = zke_recipe_multi(z, ops, (int)n + 1, results);
    c->stat = results[n].stat;
    size_t held = 0;
    while (held < n && results[held].rc == ZKE_OK) held++;
    if (rc != ZKE_OK && !zke_recipe_is_lost(rc) && held < n)
      rc = config_not_guarded(c, c->guards[held].path);
    zke_results_clear(results, (int)n + 1);
  }
  zke_free(results);
  zke_free(ops);
  return rc;
}

/* One change, in one step with its guards if there are any. */
static int config_do(zke *z, config_change *c, const zke_op *op) {
  if (c->guard_count) return config_do_guarded(z, c, op);
  if (op->type == ZKE_OP_SET)
    return zke_set(z, op->path, op->data, op->len, op->version, &c->stat);
  return zke_create(z, op->path, op->data, op->len, op->acls, op->mode, NULL,
                    &c->stat);
}

/* Without a version, make the node if it is missing, and its parents.
 * ZKE_LOOK_AGAIN: others have made or deleted these meanwhile. */
static int config_make(zke *z, config_change *c) {
  zke_op op;
  zke_op_create(&op, c->path, c->data, c->len, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  int rc = config_do(z, c, &op);
  c->unsure |= zke_recipe_is_lost(rc);
  if (rc != ZKE_NONODE) return zke_recipe_faster(rc);
  rc = zke_recipe_ensure_above(z, c->path, ZKE_PERSISTENT, ZKE_FOREVER);
  return rc == ZKE_OK ? ZKE_LOOK_AGAIN : rc;
}

/* With a version: note the node's czxid before the set, so a node that is made
 * again later is not mistaken for it after a lost reply. */
static int config_note_node(zke *z, config_change *c) {
  zke_stat stat = {.czxid = 0};
  int rc = zke_exists(z, c->path, NULL, NULL, &stat);
  c->czxid = stat.czxid;
  return rc == ZKE_NONODE || rc == ZKE_BADARGUMENTS ? ZKE_OK : rc;
}

/* The step.  The set itself checks the guards first, and the path, the node and
 * the version. */
static int config_try_set(zke *z, void *arg) {
  config_change *c = arg;
  zke_op op;
  bool any = c->version == -1;
  int rc = ZKE_OK;
  if (c->unsure && !any) {
    rc = config_recognise(z, c);
    return rc == ZKE_BADVERSION ? ZKE_LOOK_AGAIN : rc;
  }
  if (!any) rc = config_note_node(z, c);
  if (rc != ZKE_OK) return rc;
  zke_op_set(&op, c->path, c->data, c->len, c->version);
  rc = config_do(z, c, &op);
  c->unsure |= zke_recipe_is_lost(rc);
  return any && rc == ZKE_NONODE ? config_make(z, c) : rc;
}

/* Guards only look: a guard that writes would fail when it is repeated. */
static int config_check_guards(const zke_op *guards, int count) {
  if (count < 0 || (count && !guards))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d guards", count);
  for (int i = 0; i < count; i++) {
    if (guards[i].type != ZKE_OP_CHECK)
      return zke_recipe_fail(ZKE_BADARGUMENTS, "guard %d is not a check", i);
  }
  return ZKE_OK;
}

/* Without guards. */
int zke_config_set(zke_config *config, const char *name, const void *data,
                   int len, int version, int64_t deadline_ms,
                   zke_stat *stat_out) {
  return zke_config_set_guarded(config, name, data, len, version, NULL, 0,
                                deadline_ms, stat_out);
}

/* The guards are checks of other nodes, such as zke_lock_op(): the change is
 * made only while they hold. */
int zke_config_set_guarded(zke_config *config, const char *name,
                           const void *data, int len, int version,
                           const zke_op *guards, int count, int64_t deadline_ms,
                           zke_stat *stat_out) {
  if (!name) return zke_recipe_fail(ZKE_BADARGUMENTS, "the name is NULL");
  int rc = zke_recipe_enter_by((zke_recipe *)config, deadline_ms);
  if (rc != ZKE_OK) return rc;
  zke_recipe *r = &config->v.r;
  char *path = *name ? zke_recipe_path(r->z, r->path, name) : NULL;
  config_change c = {.path = path ? path : r->path,
                     .data = data,
                     .len = len,
                     .version = version,
                     .guards = guards,
                     .guard_count = count};
  if (*name && !path) rc = zke_recipe_fail(ZKE_NOMEM, "no memory for a path");
  if (rc == ZKE_OK) rc = config_check_guards(guards, count);
  if (rc == ZKE_OK) rc = zke_recipe_do(r->z, config_try_set, &c, deadline_ms);
  if (c.unsure && c.version != -1)
    rc = zke_recipe_settle(r->z, rc, config_recognise, &c, c.path, "set");
  zke_free(path);
  if (rc == ZKE_OK && stat_out) *stat_out = c.stat;
  return zke_recipe_leave(r, rc);
}
