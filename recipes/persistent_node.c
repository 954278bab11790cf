/* persistent_node.c - an ephemeral znode that its owner keeps there
 *
 * One look does everything: it reads and watches what is at the path, makes
 * the znode where there is none, and waits for another session's to go.  One's
 * own is known by its czxid; after a lost reply, by its owner. */
#include "persistent_node.h"

#include <stdio.h>
#include <string.h>

#include "limit.h"
#include "object.h"
#include "text.h"
#include "znode.h"

enum {
  OUT = ZKE_PERSISTENT_NODE_OUT,
  WAITING = ZKE_PERSISTENT_NODE_WAITING,
  PRESENT = ZKE_PERSISTENT_NODE_HELD,
  LOST = ZKE_PERSISTENT_NODE_LOST
};

struct zke_persistent_node {
  zke_recipe r;
  char *data; /* the value, or NULL */
  int len;
  bool started;
  bool waiting; /* a blocking call runs */
  bool unsure;  /* a create got no reply: what this session has may be ours */
  int state;
  int64_t czxid; /* of the last one made; 0: none */
  zke_persistent_node_fn listener;
  void *context;
};

/* ---- the znode ---- */

/* Is what stands at the path this object's? */
static bool node_is_own(const zke_persistent_node *n, const zke_stat *stat) {
  if (n->czxid && stat->czxid == n->czxid) return true;
  return n->unsure && stat->ephemeralOwner == zke_session_id(n->r.z);
}

/* A new state, or a new znode. */
static void node_change(zke_persistent_node *n, int state, int64_t czxid) {
  bool news = n->state != state || (state == PRESENT && n->czxid != czxid);
  n->state = state;
  n->czxid = czxid;
  if (state == PRESENT) n->unsure = false;
  if (news)
    zke_recipe_tell(&n->r, state, state == PRESENT ? czxid : 0, NULL, 0);
}

/* Make what is missing above it. */
static int node_make_parents(zke_persistent_node *n) {
  size_t len = (size_t)(strrchr(n->r.path, '/') - n->r.path);
  char *parent = zke_alloc(n->r.z, len + 1);
  if (!parent) return zke_recipe_fail(ZKE_NOMEM, "no memory for a path");
  memcpy(parent, n->r.path, len);
  int rc = zke_ensure_path(n->r.z, parent, ZKE_PERSISTENT, ZKE_FOREVER);
  zke_free(parent);
  return rc;
}

/* Nothing is there: make it.  ZKE_NONODE: look again. */
static int node_make(zke_persistent_node *n) {
  zke_stat stat;
  int rc = zke_create(n->r.z, n->r.path, n->data, n->len, ZKE_OPEN_ACL,
                      ZKE_EPHEMERAL, NULL, &stat);
  if (rc == ZKE_OK) {
    node_change(n, PRESENT, stat.czxid);
    return ZKE_NONODE;
  }
  n->unsure = n->unsure || rc == ZKE_CONNECTIONLOSS;
  if (rc == ZKE_NONODE) rc = node_make_parents(n);
  return rc == ZKE_OK || rc == ZKE_NODEEXISTS ? ZKE_NONODE : rc;
}

/* One look; ZKE_NONODE: look again. */
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

/* Look until nothing comes in between: what was seen may go before it is
 * watched. */
static int node_look(zke_persistent_node *n) {
  int rc = ZKE_NONODE;
  while (rc == ZKE_NONODE) rc = zke_retry(n->r.z, node_try, n, ZKE_FOREVER);
  return rc;
}

/* Set the data of one's own znode, and of no other, until that is done or it
 * has gone. */
static int node_try_set(zke *z, void *arg) {
  zke_persistent_node *n = arg;
  zke_stat stat;
  int rc;
  do {
    rc = zke_exists(z, n->r.path, NULL, NULL, &stat);
    if (rc != ZKE_OK || !node_is_own(n, &stat)) break;
    rc = zke_set(z, n->r.path, n->data, n->len, stat.version, NULL);
  } while (rc == ZKE_BADVERSION || rc == ZKE_NONODE);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Out: nothing of ours is there or it will be deleted, and nothing is
 * watched. */
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

/* An object that was not started keeps nothing. */
static int node_step(zke_recipe *r) {
  zke_persistent_node *n = (zke_persistent_node *)r;
  return n->started ? node_look(n) : ZKE_OK;
}

/* What may have been made went with the session. */
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

void zke_persistent_node_free(zke_persistent_node *node) {
  zke_recipe_free((zke_recipe *)node);
}

/* ---- in and out ---- */

/* Where the first look fails it is repeated by later dispatches: the node is
 * wanted from here on, whatever this call returns. */
int zke_persistent_node_start(zke_persistent_node *node) {
  int rc = zke_recipe_enter((zke_recipe *)node);
  if (rc != ZKE_OK) return rc;
  node->started = true;
  rc = node_look(node);
  if (rc != ZKE_OK) node->r.changed = true;
  return zke_recipe_leave(&node->r, rc);
}

/* Say that the object keeps no znode; returns ZKE_LOST. */
static int node_none(const zke_persistent_node *n) {
  return zke_recipe_fail(ZKE_LOST, "this object does not keep the znode %s",
                         n->r.path);
}

/* Another thread may release what is waited for. */
static int node_done(zke_recipe *r) {
  const zke_persistent_node *n = (const zke_persistent_node *)r;
  if (n->state == PRESENT) return ZKE_OK;
  return n->started || r->ended || r->going ? ZKE_NOT_YET : node_none(n);
}

int zke_persistent_node_step(zke_persistent_node *node) {
  return zke_recipe_step((zke_recipe *)node);
}

/* Whose it is, for a wait that failed; then out. */
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

/* Waits until the node is there as this object's: somebody else's znode may be
 * at the path.  On failure the object wants it no longer. */
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

/* The watch and the znode go; whoever deletes it later is not answered by
 * making it again. */
int zke_persistent_node_release(zke_persistent_node *node) {
  int rc = zke_recipe_enter((zke_recipe *)node);
  if (rc != ZKE_OK) return rc;
  rc = node->started ? node_stop(node) : node_none(node);
  return zke_recipe_leave(&node->r, rc);
}

/* Kept first, written then: if the process dies in between the znode goes
 * anyway, and if the write fails the next making has the new data. */
int zke_persistent_node_set(zke_persistent_node *node, const void *data,
                            int len, int64_t deadline_ms) {
  int rc = zke_recipe_enter_by((zke_recipe *)node, deadline_ms);
  if (rc != ZKE_OK) return rc;
  rc = node_keep(node, data, len);
  if (rc == ZKE_OK && node->started)
    rc = zke_retry(node->r.z, node_try_set, node, deadline_ms);
  return zke_recipe_leave(&node->r, rc);
}

/* ---- looking ---- */

/* From memory. */
int zke_persistent_node_state(zke_persistent_node *node) {
  if (zke_recipe_enter((zke_recipe *)node) != ZKE_OK) return LOST;
  int state = node->state;
  zke_recipe_leave(&node->r, ZKE_OK);
  return state;
}

/* The czxid: another making of the znode has another. */
int64_t zke_persistent_node_token(zke_persistent_node *node) {
  if (zke_recipe_enter((zke_recipe *)node) != ZKE_OK) return 0;
  int64_t token = node->state == PRESENT ? node->czxid : 0;
  zke_recipe_leave(&node->r, ZKE_OK);
  return token;
}

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
int zke_persistent_node_cancel(zke_persistent_node *node) {
  return zke_recipe_cancel((zke_recipe *)node);
}

/* ---- another session ---- */

/* On a new handle, after the session's end: the same path, data and listener.
 * The old object is not entered, because every call on it would fail; its mutex
 * is held for what is read of it. */
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
