/* persistent_node.c - an ephemeral znode that its owner keeps in place
 *
 * One look (node_try()) does everything that a start, an event and a wait need:
 *
 *   1. Read the znode at the path, and watch it, in one call.
 *   2. There is none: create the ephemeral znode, and missing parents, and look
 *      again, so the new znode is watched.
 *   3. It is this object's: HELD.  The watch fires when it is deleted, and then
 *      the next look makes it again.
 *   4. It is another session's: WAITING.  The watch fires when it goes.
 *
 * Which znode is the object's own?  The one with the czxid that its create
 * returned.  After a lost reply the czxid is unknown; then any znode of this
 * session at the path counts (`unsure`), until one was seen.  That is why one
 * session must not have two objects for a path.
 *
 * A death between two of these steps leaves at most the parents, and a znode
 * that goes with the session.  Writes and deletes name the version or czxid
 * that was read, so another session's znode is left alone.
 *
 * Start reading at node_try(), then zke_persistent_node_acquire(). */
#include "persistent_node.h"

#include <stdio.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

/* Shorter names of the states, which persistent_node.h draws. */
enum {
  OUT = ZKE_PERSISTENT_NODE_OUT,
  WAITING = ZKE_PERSISTENT_NODE_WAITING,
  PRESENT = ZKE_PERSISTENT_NODE_HELD,
  LOST = ZKE_PERSISTENT_NODE_LOST
};

/* Guarded by the mutex of the zke_recipe. */
struct zke_persistent_node {
  zke_recipe r;  /* first: a zke_recipe * is a zke_persistent_node * */
  char *data;    /* the wanted value of the znode; NULL: NULL data */
  int len;       /* its bytes; -1: NULL data */
  bool started;  /* the znode is wanted */
  bool waiting;  /* a blocking call runs */
  bool unsure;   /* a create got no reply: this session's znode may be ours */
  int state;     /* OUT … LOST */
  int64_t czxid; /* of the znode made last; 0: none */
  zke_persistent_node_fn listener;
  void *context;
};

/* ---- the znode ---- */

/* Is the znode at the path this object's? */
static bool node_is_own(const zke_persistent_node *n, const zke_stat *stat) {
  if (n->czxid && stat->czxid == n->czxid) return true;
  return n->unsure && stat->ephemeralOwner == zke_session_id(n->r.z);
}

/* Note a state; the listener hears of a new state, and of a new znode in the
 * same state. */
static void node_change(zke_persistent_node *n, int state, int64_t czxid) {
  bool news = n->state != state || (state == PRESENT && n->czxid != czxid);
  n->state = state;
  n->czxid = czxid;
  if (state == PRESENT) n->unsure = false;
  if (news)
    zke_recipe_tell(&n->r, state, state == PRESENT ? czxid : 0, NULL, 0);
}

/* There is no znode: make it, or its missing parents.
 *
 * ZKE_LOOK_AGAIN: also after a successful creation, since the next look must
 * watch the znode.  Somebody may have made another one since
 * (ZKE_NODEEXISTS). */
static int node_make(zke_persistent_node *n) {
  zke_stat stat;
  int rc = zke_create(n->r.z, n->r.path, n->data, n->len, ZKE_OPEN_ACL,
                      ZKE_EPHEMERAL, NULL, &stat);
  if (rc == ZKE_OK) {
    node_change(n, PRESENT, stat.czxid);
    return ZKE_LOOK_AGAIN;
  }
  n->unsure |= zke_recipe_is_lost(rc);
  if (rc == ZKE_NONODE)
    rc =
        zke_recipe_ensure_above(n->r.z, n->r.path, ZKE_PERSISTENT, ZKE_FOREVER);
  return rc == ZKE_OK ? ZKE_LOOK_AGAIN : zke_recipe_faster(rc);
}

/* One look. */
static int node_try(zke *z, void *arg) {
  zke_persistent_node *n = arg;
  zke_stat stat;
  int rc = zke_get(z, n->r.path, zke_recipe_watcher, &n->r, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return node_make(n);
  if (rc == ZKE_OK && node_is_own(n, &stat))
    node_change(n, PRESENT, stat.czxid);
  else if (rc == ZKE_OK)
    node_change(n, WAITING, 0);
  return rc;
}

/* Look until nothing comes in between: a znode may go after it was seen and
 * before it is watched. */
static int node_look(zke_persistent_node *n) {
  return zke_recipe_do(n->r.z, node_try, n, ZKE_FOREVER);
}

/* The step: set the data of the object's own znode only.  If that has gone, it
 * is made again with the new data.  A lost reply is repeated; the same value
 * written twice does no harm. */
static int node_try_set(zke *z, void *arg) {
  zke_persistent_node *n = arg;
  zke_stat stat;
  int rc = zke_exists(z, n->r.path, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return ZKE_OK;
  if (rc != ZKE_OK || !node_is_own(n, &stat)) return rc;
  rc = zke_set(z, n->r.path, n->data, n->len, stat.version, NULL);
  return zke_recipe_faster(rc);
}

/* Go out: no znode of this object is left, or the session will delete it, and
 * nothing is watched.  The watch goes first, so the deletion is not mistaken
 * for somebody else's. */
static int node_stop(zke_persistent_node *n) {
  int rc = ZKE_OK;
  zke_remove_watch(n->r.z, n->r.path, ZKE_WATCH_DATA, zke_recipe_watcher,
                   &n->r);
  if (n->unsure || n->state == PRESENT)
    rc = zke_recipe_discard(n->r.z, n->r.path, ZKE_EPHEMERAL,
                            n->unsure ? 0 : n->czxid);
  n->started = false;
  n->unsure = false;
  node_change(n, OUT, 0);
  if (n->waiting) zke_wake(n->r.z); /* another thread waits for it */
  return rc;
}

/* ---- the object ---- */

/* An object that is not started keeps nothing. */
static int node_step(zke_recipe *r) {
  zke_persistent_node *n = (zke_persistent_node *)r;
  return n->started ? node_look(n) : ZKE_OK;
}

/* A znode that may have been made went with the session. */
static void node_ended(zke_recipe *r) {
  zke_persistent_node *n = (zke_persistent_node *)r;
  n->unsure = false;
  if (n->started)
    node_change(n, LOST, 0);
  else
    n->state = LOST;
}

/* The number is the znode's czxid, or 0. */
static void node_deliver(zke_recipe *r, int event, int64_t number,
                         const char *text, int len) {
  zke_persistent_node *n = (zke_persistent_node *)r;
  (void)text, (void)len;
  if (n->listener) n->listener(n, event, number, n->context);
}

/* The object is freed: its znode goes, unless it stopped before. */
static void node_quit(zke_recipe *r) {
  zke_persistent_node *n = (zke_persistent_node *)r;
  if (n->started) node_stop(n);
}

/* node_quit() has given up the znode. */
static void node_destroy(zke_recipe *r) {
  zke_free(((zke_persistent_node *)r)->data);
}

static const zke_recipe_class node_class = {.name = "persistent node",
                                            .step = node_step,
                                            .ended = node_ended,
                                            .deliver = node_deliver,
                                            .quit = node_quit,
                                            .destroy = node_destroy};

/* Keep a copy of the value. */
static int node_keep(zke_persistent_node *n, const void *data, int len) {
  char *copy = NULL;
  if (len < -1 || (!data && len > 0))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", len);
  if (data && len >= 0) {
    copy = zke_alloc(n->r.z, (size_t)len + 1);
    if (!copy)
      return zke_recipe_fail(ZKE_NOMEM, "no memory for a znode's data");
    if (len) memcpy(copy, data, (size_t)len);
  }
  zke_free(n->data);
  n->data = copy;
  n->len = len;
  return ZKE_OK;
}

/* The data is copied: the znode may have to be made again at any time. */
int zke_persistent_node_new(zke *z, const char *path, const void *data, int len,
                            const zke_persistent_node_options *options,
                            zke_persistent_node **node_out) {
  zke_persistent_node_options o;
  zke_recipe *r = NULL;
  int rc =
      zke_recipe_options(node_out, options, &o, zke_persistent_node_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &node_class, sizeof(zke_persistent_node), &r);
  if (rc != ZKE_OK) return rc;
  zke_persistent_node *n = (zke_persistent_node *)r;
  n->listener = o.listener;
  n->context = o.context;
  rc = node_keep(n, data, len);
  if (rc == ZKE_OK)
    *node_out = n;
  else
    zke_recipe_free(r);
  return rc;
}

/* Gives up the znode as a release does. */
void zke_persistent_node_free(zke_persistent_node *node) {
  zke_recipe_free((zke_recipe *)node);
}

/* ---- in and out ---- */

/* If the first look fails, later dispatches repeat it: the node is wanted from
 * now on, whatever this call returns. */
int zke_persistent_node_start(zke_persistent_node *node) {
  int rc = zke_recipe_enter((zke_recipe *)node);
  if (rc != ZKE_OK) return rc;
  node->started = true;
  rc = node_look(node);
  if (rc != ZKE_OK) node->r.changed = true;
  return zke_recipe_leave(&node->r, rc);
}

/* Report that the object keeps no znode; returns ZKE_LOST. */
static int node_none(const zke_persistent_node *n) {
  return zke_recipe_fail(ZKE_LOST, "this object does not keep the znode %s",
                         n->r.path);
}

/* For zke_recipe_await(): does the own znode exist?  Another thread may release
 * the object meanwhile, which ends the wait. */
static int node_done(zke_recipe *r) {
  const zke_persistent_node *n = (const zke_persistent_node *)r;
  if (n->state == PRESENT) return ZKE_OK;
  return n->started || r->ended || r->going ? ZKE_NOT_YET : node_none(n);
}

/* For a program that dispatches seldom: it does the work of a dispatch. */
int zke_persistent_node_step(zke_persistent_node *node) {
  return zke_recipe_step((zke_recipe *)node);
}

/* A wait failed with rc: name the owner of the znode, if that is the reason,
 * and go out.  The deadline may have passed, so the deletion has extra time. */
static int node_give_up(zke_persistent_node *n, int rc) {
  char what[256];
  zke_sentence kept;
  if (rc == ZKE_OPERATIONTIMEOUT && n->state == WAITING) {
    snprintf(what, sizeof what, "the znode %s", n->r.path);
    zke_recipe_say_held(n->r.z, rc, what, n->r.path);
  }
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_grace(n->r.z);
  if (!n->r.ended && n->started) node_stop(n);
  zke_limit(n->r.z, limit);
  return zke_recipe_restore(&kept, rc);
}

/* Waits until the node exists as this object's: another session's znode may be
 * at the path.  After a failure the object does not want it any more. */
int zke_persistent_node_acquire(zke_persistent_node *node,
                                int64_t deadline_ms) {
  int rc = zke_recipe_enter_by((zke_recipe *)node, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (node->waiting) {
    rc = zke_recipe_fail(ZKE_MISUSE,
                         "another thread waits with this object for %s",
                         node->r.path);
    return zke_recipe_leave(&node->r, rc);
  }
  node->waiting = true;
  if (!node->started) node->r.changed = true; /* the first step looks */
  node->started = true;
  rc = zke_recipe_await(&node->r, node_done, deadline_ms);
  node->waiting = false;
  if (rc != ZKE_OK) rc = node_give_up(node, rc);
  return zke_recipe_leave(&node->r, rc);
}

/* The watch and the znode go; a later deletion by others does not make the
 * znode again. */
int zke_persistent_node_release(zke_persistent_node *node) {
  int rc = zke_recipe_enter((zke_recipe *)node);
  if (rc != ZKE_OK) return rc;
  rc = node->started ? node_stop(node) : node_none(node);
  return zke_recipe_leave(&node->r, rc);
}

/* The value is stored first, then written: if the process dies in between, the
 * znode goes anyway, and if the write fails, the next znode has the new
 * data. */
int zke_persistent_node_set(zke_persistent_node *node, const void *data,
                            int len, int64_t deadline_ms) {
  int rc = zke_recipe_enter_by((zke_recipe *)node, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = node_keep(node, data, len);
  if (rc == ZKE_OK && node->started)
    rc = zke_recipe_do(node->r.z, node_try_set, node, deadline_ms);
  return zke_recipe_leave(&node->r, rc);
}

/* ---- looking ---- */

/* From memory. */
int zke_persistent_node_state(zke_persistent_node *node) {
  if (zke_recipe_enter_memory((zke_recipe *)node) != ZKE_OK) return LOST;
  int state = node->state;
  zke_recipe_leave(&node->r, ZKE_OK);
  return state;
}

/* The czxid: a new one each time the znode is made. */
int64_t zke_persistent_node_token(zke_persistent_node *node) {
  if (zke_recipe_enter_memory((zke_recipe *)node) != ZKE_OK) return 0;
  int64_t token = node->state == PRESENT ? node->czxid : 0;
  zke_recipe_leave(&node->r, ZKE_OK);
  return token;
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_persistent_node_cancel(zke_persistent_node *node) {
  return zke_recipe_cancel((zke_recipe *)node);
}

/* ---- another session ---- */

/* On a new handle, after the session's end: the same path, data and listener.
 * The old object is not entered, because every call on it would fail; its mutex
 * is held while it is read. */
int zke_persistent_node_renew(zke_persistent_node **node, zke *z) {
  zke_persistent_node *old = node ? *node : NULL, *new_;
  if (!old) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  zke_persistent_node_options o = {
      .size = sizeof o, .listener = old->listener, .context = old->context};
  pthread_mutex_lock(&old->r.m); /* not entered: its session has ended */
  bool started = old->started;
  int rc =
      zke_persistent_node_new(z, old->r.path, old->data, old->len, &o, &new_);
  pthread_mutex_unlock(&old->r.m);
  if (rc != ZKE_OK) return rc;
  *node = new_;
  zke_persistent_node_free(old);
  if (started) zke_persistent_node_start(new_);
  return ZKE_OK;
}
