/* support.c - trying again, and making paths
 *
 * It knows which failures are temporary (zke_recipe_is_transient()) and nothing
 * of recipes.  zke_retry() promises to end: after ten more tries, at the
 * deadline, or with another result.  It does not prevent a repetition from
 * doing a thing twice: only the called function knows what it does.
 *
 * A path is made from its end: most of the time only the last node is missing,
 * or none.  If its parent is missing, all nodes are made from the top. */
#include "support.h"

#include <stdbool.h>
#include <string.h>

#include "part/doubt.h"
#include "part/limit.h"
#include "part/text.h"

/* The deadline is used twice: as the thread's limit, so a call of fn does not
 * wait for another writer beyond it and its grace, and as `end`, so no pause
 * goes beyond it. */
int zke_retry(zke *z, zke_retry_fn fn, void *arg, int64_t deadline_ms) {
  int64_t limit = zke_recipe_limit(z, deadline_ms);
  int64_t end = deadline_ms < limit ? deadline_ms : limit;
  int rc = fn(z, arg);
  bool unsure = zke_recipe_is_lost(rc);
  int failed = 0;
  while (zke_recipe_is_transient(rc) && zke_recipe_pause(z, ++failed, end)) {
    rc = fn(z, arg);
    unsure |= zke_recipe_is_lost(rc);
  }
  zke_limit(z, limit);
  return zke_recipe_doubt(rc, unsure);
}

/* A node to be made, with the arguments of zke_create(). */
typedef struct support_node {
  const char *path;
  const char *data;
  int len, mode;
} support_node;

/* One try.  If the try before lost its reply, it may have made the node: that
 * the node exists is as good as a reply. */
static int support_create(zke *z, void *arg) {
  const support_node *n = arg;
  int rc = zke_create(z, n->path, n->data, n->len, ZKE_OPEN_ACL, n->mode, NULL,
                      NULL);
  return rc == ZKE_NODEEXISTS ? ZKE_OK : rc;
}

/* Create a node and the missing nodes above it; existing nodes stay as they
 * are.  The path is cut at each slash in turn, so one copy of it is enough.
 * ZKE_NONODE: a node above has gone again meanwhile. */
static int support_create_all(zke *z, const support_node *node,
                              int64_t deadline_ms) {
  support_node n = *node;
  int rc = zke_retry(z, support_create, &n, deadline_ms);
  size_t len = strlen(node->path);
  char *path = rc == ZKE_NONODE ? zke_recipe_copy(z, node->path, len) : NULL;
  if (rc != ZKE_NONODE) return rc;
  if (!path) return ZKE_NOMEM;
  n.path = path;
  n.data = "";
  n.len = 0;
  rc = ZKE_OK;
  for (char *at = strchr(path + 1, '/'); at && rc == ZKE_OK;
       at = strchr(at + 1, '/')) {
    *at = '\0';
    rc = zke_retry(z, support_create, &n, deadline_ms);
    *at = '/';
  }
  n.data = node->data;
  n.len = node->len;
  if (rc == ZKE_OK) rc = zke_retry(z, support_create, &n, deadline_ms);
  zke_free(path);
  return rc;
}

/* A container without a child may be removed before its first child is made;
 * then everything is made again. */
static int support_ensure(zke *z, const support_node *n, int64_t deadline_ms) {
  int rc = ZKE_NONODE;
  for (int i = 0; i < ZKE_RETRIES && rc == ZKE_NONODE; i++)
    rc = support_create_all(z, n, deadline_ms);
  return rc;
}

/* Data is empty, not NULL: a recipe can take over an empty node. */
int zke_ensure_path(zke *z, const char *path, int mode, int64_t deadline_ms) {
  support_node n = {path, "", 0, mode};
  if (!path) return zke_recipe_fail(ZKE_BADARGUMENTS, "the path is NULL");
  return support_ensure(z, &n, deadline_ms);
}
