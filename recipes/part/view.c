/* view.c - a tree kept current in memory
 *
 * The memory is a picture: the nodes of the file at one moment, sorted by name.
 *
 * A full look (view_look()) reads the root, then the listed children, and so
 * on, until one snapshot has all lists and all nodes that they name
 * (reader_all()).  A tree of three levels that does not change takes three
 * readings; later looks know the names already and take one.
 *
 * A look at changes (view_follow()) costs only as much as has changed:
 *
 *   1. Collect the paths named by events (zke_view_event()).
 *   2. Read these nodes in one snapshot, and in the same snapshot ask which
 *      events of the session have not been delivered yet (zke_op_untold()).
 *   3. Other nodes must be read, too: those named by these events, parents with
 *      new or lost children, and the children of new nodes.  Add their paths,
 *      and go to 2.
 *   4. If no path was added, the last snapshot has all differences from the
 *      picture.  Make the picture from it.
 *
 * So the picture is as of that snapshot, not as of the events.  If it is not
 * known what has changed (events were dropped, a step failed, there was too
 * much), a full look is due.  That is always right.
 *
 * The listener is told of the differences between what it heard last and the
 * picture.  For each changed name, the node that it knows is kept
 * (view_note()), and compared with the picture at delivery.  So changes that
 * come faster than they are delivered become one, and an undone change is not
 * reported.
 *
 * The mutex of the object guards all of it, except the delivery, which holds
 * references to its nodes.
 *
 * Start reading at zke_view_start() and zke_view_step(); then view_look() and
 * reader_pass(), view_follow() and round_follow(); then zke_view_deliver(). */
#include "view.h"

#include <stdlib.h>
#include <string.h>

#include "limit.h"
#include "object.h"
#include "text.h"
#include "znode.h"

enum {
  VIEW_PASSES = 200, /* readings of a full look: one for each level of the tree,
                        and one more each time that nodes have come */
  VIEW_ROUNDS = 20,  /* readings of a look at changes; then all is read */
  VIEW_MOST = 1000,  /* paths of such a look; then all is read */
  VIEW_BOTH = ZKE_CONFIG_INCLUDE | ZKE_CONFIG_DESCEND
};

/* What a view must do at its next step; each includes the ones before. */
enum {
  VIEW_IDLE,
  VIEW_CHECK,  /* look, unless the picture has the named changes already */
  VIEW_FOLLOW, /* look at changes */
  VIEW_ALL     /* look at everything */
};

/* ---- the scope: the part of a tree that is looked at ----
 *
 * Names are relative to the root: "" is the root, "db/host" a grandchild.  A
 * node is looked at if every node above it descends.  The filter and the number
 * of levels, for its own name, decide whether it is kept. */

/* What to do with a node of this name: ZKE_CONFIG_…, or 0: nothing.  Asks the
 * filter for this name only; scope_reaches() checks whether the node is
 * reached. */
static int scope_of(const zke_view_scope *s, const char *name) {
  int what = VIEW_BOTH, level = *name != '\0';
  for (const char *p = name; *p; p++) level += *p == '/';
  if (s->select) what = s->select(name, s->context) & VIEW_BOTH;
  bool down = s->levels == 0 || level < s->levels;
  return down ? what : what & ~ZKE_CONFIG_DESCEND;
}

/* Is a node with this name looked at?  All nodes above it must descend.  The
 * name is changed during the call. */
static bool scope_reaches(const zke_view_scope *s, char *name) {
  bool reached = !*name || scope_of(s, "") & ZKE_CONFIG_DESCEND;
  for (char *p = strchr(name, '/'); p && reached; p = strchr(p + 1, '/')) {
    *p = '\0';
    reached = scope_of(s, name) & ZKE_CONFIG_DESCEND;
    *p = '/';
  }
  return reached && scope_of(s, name);
}

/* Cut a name to its parent's; false: it is the root's. */
static bool scope_cut(char *name) {
  if (!*name) return false;
  char *end = strrchr(name, '/');
  *(end ? end : name) = '\0';
  return true;
}

/* A block with a copy of a text. */
static char *view_text(zke *z, const char *text) {
  char *copy = zke_alloc(z, strlen(text) + 1);
  return copy ? memcpy(copy, text, strlen(text)) : NULL;
}

/* Say that there is no memory; returns ZKE_NOMEM. */
static int view_nomem(void) {
  return zke_recipe_fail(ZKE_NOMEM, "no memory for reading a tree");
}

/* ---- nodes ----
 *
 * A node of the picture is one block with its texts.  Only its Stat ever
 * changes.  It is shared by references, counted under the mutex: so a listener
 * gets a node that stays as it is while the picture changes. */

typedef struct view_node {
  zke_config_node n; /* first: shown to the listener; its texts follow the
                        struct */
  int refs;          /* of the picture, the news, and the delivery */
  bool hidden;       /* read for its Stat and children, but not shown */
} view_node;

/* How many bytes a node's texts take: name and data, each with a NUL after it,
 * so data can be used as a text. */
static size_t node_bytes(const zke_config_node *n) {
  return strlen(n->name) + 1 + (n->len > 0 ? (size_t)n->len : 0) + 1;
}

/* Copy a node with its texts to *text, and move *text past them. */
static void node_copy(zke_config_node *to, const zke_config_node *n,
                      char **text) {
  size_t len = n->len > 0 ? (size_t)n->len : 0, name = strlen(n->name) + 1;
  *to = *n;
  to->name = memcpy(*text, n->name, name);
  to->data = n->data ? *text + name : NULL;
  if (n->data && len) memcpy(*text + name, n->data, len);
  *text += name + len + 1;
}

/* A node in memory and its text in one block, with one reference. NULL without
 * memory. */
static view_node *view_node_make(zke *z, const zke_config_node *n,
                                 bool hidden) {
  view_node *made = zke_alloc(z, sizeof *made + node_bytes(n));
  if (!made) return NULL;
  char *text = (char *)(made + 1);
  node_copy(&made->n, n, &text);
  made->refs = 1;
  made->hidden = hidden;
  return made;
}

/* Nodes are shared: by the picture, the news, and the delivery. */
static view_node *node_ref(view_node *n) {
  if (n) n->refs++;
  return n;
}

/* Release a node; the last one to do so frees it.  NULL is fine. */
static void node_unref(view_node *n) {
  if (n && --n->refs == 0) zke_free(n);
}

/* The node, if it should be shown. */
static const zke_config_node *node_shown(const view_node *n) {
  return n && !n->hidden ? &n->n : NULL;
}

/* Copy nodes into a separate tree, one block. */
static zke_config_tree *tree_make(zke *z, const zke_config_node *nodes,
                                  int count) {
  size_t size = sizeof(zke_config_tree) + (size_t)count * sizeof *nodes;
  for (int i = 0; i < count; i++) size += node_bytes(&nodes[i]);
  zke_config_tree *t = zke_alloc(z, size);
  if (!t) {
    zke_fail(ZKE_NOMEM, "no memory for a tree of %d nodes", count);
    return NULL;
  }
  zke_config_node *copy = (zke_config_node *)(void *)(t + 1);
  char *text = (char *)(copy + count);
  for (int i = 0; i < count; i++) node_copy(&copy[i], &nodes[i], &text);
  t->count = count;
  t->data = copy;
  return t;
}

/* ---- reading everything ----
 *
 * The names of a tree become known level by level, but a picture must be of one
 * moment.  So each reading asks, in one snapshot, for all known nodes, and for
 * the children of nodes to descend into.  If it lists a child that it did
 * not read, the next reading begins with the listed names.  The last reading
 * lists nothing new, and is the picture; the earlier ones only found the
 * names. */

/* The paths that are read together, and the results. */
typedef struct reader {
  zke *z;
  const char *root; /* path of the tree; "" for "/" */
  const zke_view_scope *scope;
  char **paths; /* sorted; NULL for an entry that reader_keep() left out */
  int count;    /* of paths */
  int parents;  /* how many operations list children */
  int *of;      /* for each of these the index of its path */
  zke_op *ops;  /* one for each path, then those that list children, then one
                   that asks for undelivered events */
  zke_op_result *results; /* of ops */
} reader;

/* Release so many paths and their list; NULL is fine. */
static void reader_drop_paths(char **paths, int count) {
  for (int i = 0; paths && i < count; i++) zke_free(paths[i]);
  zke_free(paths);
}

/* Release the last reading's results; the paths stay. */
static void reader_drop_results(reader *r) {
  if (r->results) zke_results_clear(r->results, r->count + r->parents + 1);
  zke_free(r->results);
  zke_free(r->ops);
  zke_free(r->of);
  r->results = NULL;
  r->ops = NULL;
  r->of = NULL;
  r->parents = 0;
}

/* A path's name below the root. */
static const char *name_below(const char *root, const char *path) {
  const char *rest = path + strlen(root);
  return rest + (*rest == '/');
}

/* For qsort() and bsearch(): paths by their bytes. */
static int path_order(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The path of a node below the root, or of the root; one block. */
static char *path_below(zke *z, const char *root, const char *name) {
  if (*name) return zke_recipe_path(z, root, name);
  return view_text(z, *root ? root : "/");
}

/* Begin with the root and the known names below it.  A node that has gone is
 * found missing, which costs only its place in the request. */
static int reader_begin(reader *r, view_node *const *known, int count) {
  r->paths = zke_alloc(r->z, ((size_t)count + 1) * sizeof *r->paths);
  if (!r->paths) return view_nomem();
  for (int i = -1; i < count; i++) {
    const char *name = i < 0 ? "" : known[i]->n.name;
    if (i >= 0 && !*name) continue; /* the root is in already */
    char *path = path_below(r->z, r->root, name);
    if (!path) return view_nomem();
    r->paths[r->count++] = path;
  }
  qsort(r->paths, (size_t)r->count, sizeof *r->paths, path_order);
  return ZKE_OK;
}

/* Read a node: with its data if that is shown, else only its Stat. */
static void op_of(zke_op *op, const char *path, bool data) {
  if (data)
    zke_op_get(op, path);
  else
    zke_op_children(op, path, NULL, 1);
}

/* Fill in the operations; how many. */
static int reader_ops(reader *r) {
  for (int i = 0; i < r->count; i++) {
    int what = scope_of(r->scope, name_below(r->root, r->paths[i]));
    op_of(&r->ops[i], r->paths[i], what & ZKE_CONFIG_INCLUDE);
    if (!(what & ZKE_CONFIG_DESCEND)) continue;
    zke_op_children(&r->ops[r->count + r->parents], r->paths[i], NULL, 0);
    r->of[r->parents++] = i;
  }
  int n = r->count + r->parents;
  zke_op_untold(&r->ops[n], *r->root ? r->root : "/", INT32_MAX);
  return n + 1;
}

/* ZKE_OK if every result can be used.  A missing node, a refused read and an
 * unknown list of undelivered events can be used. */
static int results_check(const zke_op *ops, const zke_op_result *results,
                         int count) {
  for (int i = 0; i < count; i++) {
    int rc = results[i].rc;
    bool unknown =
        rc == ZKE_RUNTIMEINCONSISTENCY && ops[i].type == ZKE_OP_UNTOLD;
    if (rc != ZKE_OK && rc != ZKE_NONODE && rc != ZKE_NOAUTH && !unknown)
      return zke_recipe_fail(rc, "cannot read %s", ops[i].path);
  }
  return ZKE_OK;
}

/* Read all paths and their children in one snapshot. */
static int reader_read(reader *r) {
  size_t most = 2 * (size_t)r->count + 1;
  r->ops = zke_alloc(r->z, most * sizeof *r->ops);
  r->of = zke_alloc(r->z, (size_t)r->count * sizeof *r->of);
  r->results = zke_alloc(r->z, most * sizeof *r->results);
  if (!r->ops || !r->of || !r->results) return view_nomem();
  int n = reader_ops(r);
  int rc = zke_recipe_multi_read(r->z, r->ops, n, r->results);
  return rc == ZKE_OK ? results_check(r->ops, r->results, n) : rc;
}

/* The number of children of the parent with that index; 0 if the node has gone.
 */
static int reader_children(const reader *r, int parent) {
  const zke_strings *names = r->results[r->count + parent].children;
  return names ? names->count : 0;
}

/* Add the paths of a parent's children that must be read. */
static int reader_add_children(const reader *r, int parent, char **paths,
                               int *n) {
  const zke_strings *names = r->results[r->count + parent].children;
  const char *above = r->paths[r->of[parent]];
  for (int i = 0; i < reader_children(r, parent); i++) {
    char *path = zke_recipe_path(r->z, above[1] ? above : "", names->data[i]);
    if (!path) return view_nomem();
    if (scope_of(r->scope, name_below(r->root, path)))
      paths[(*n)++] = path;
    else
      zke_free(path);
  }
  return ZKE_OK;
}

/* The paths of the children just listed, and the root's, sorted.  *paths_out is
 * for reader_drop_paths(). */
static int reader_listed(const reader *r, char ***paths_out, int *count_out) {
  int total = 1, n = 0, rc = ZKE_OK;
  for (int i = 0; i < r->parents; i++) total += reader_children(r, i);
  char **paths = zke_alloc(r->z, (size_t)total * sizeof *paths);
  if (!paths) return view_nomem();
  paths[n] = path_below(r->z, r->root, "");
  if (!paths[n++]) rc = view_nomem();
  for (int i = 0; i < r->parents && rc == ZKE_OK; i++)
    rc = reader_add_children(r, i, paths, &n);
  if (rc != ZKE_OK) {
    reader_drop_paths(paths, n);
    return rc;
  }
  qsort(paths, (size_t)n, sizeof *paths, path_order);
  *paths_out = paths;
  *count_out = n;
  return ZKE_OK;
}

/* Is a path in a sorted list? */
static bool paths_have(char *const *paths, int count, const char *path) {
  return bsearch(&path, paths, (size_t)count, sizeof *paths, path_order);
}

/* Leave out nodes that were read but not listed: they have gone, or the session
 * may not read their parent. */
static void reader_keep(reader *r, char *const *listed, int count) {
  for (int i = 0; i < r->count; i++) {
    if (paths_have(listed, count, r->paths[i])) continue;
    zke_free(r->paths[i]);
    r->paths[i] = NULL;
  }
}

/* One reading.  *done: every listed child was read in the same snapshot, so the
 * nodes are of one moment.  Else the paths are now the listed ones, for the
 * next reading. */
static int reader_pass(reader *r, bool *done) {
  char **paths = NULL;
  int count = 0;
  reader_drop_results(r);
  int rc = reader_read(r);
  if (rc == ZKE_OK) rc = reader_listed(r, &paths, &count);
  if (rc != ZKE_OK) return rc;
  *done = true;
  for (int i = 0; i < count && *done; i++)
    *done = paths_have(r->paths, r->count, paths[i]);
  if (*done) {
    reader_keep(r, paths, count);
    reader_drop_paths(paths, count);
    return ZKE_OK;
  }
  reader_drop_results(r);
  reader_drop_paths(r->paths, r->count);
  r->paths = paths;
  r->count = count;
  return ZKE_OK;
}

/* For qsort(): nodes by their names' bytes, the order of a picture. */
static int node_order(const void *a, const void *b) {
  return strcmp(((const zke_config_node *)a)->name,
                ((const zke_config_node *)b)->name);
}

/* A node from a read; its texts belong to the result, which must live as
 * long. */
static zke_config_node node_read(const char *name, const zke_op_result *r,
                                 bool data) {
  return (zke_config_node){.name = name,
                           .data = data ? r->data : NULL,
                           .len = data ? r->len : -1,
                           .stat = r->stat};
}

/* The nodes read, sorted; the texts are the reader's.  NULL without memory. */
static zke_config_node *reader_nodes(const reader *r, int *count) {
  zke_config_node *nodes = zke_alloc(r->z, (size_t)r->count * sizeof *nodes);
  int n = 0;
  for (int i = 0; nodes && i < r->count; i++) {
    if (r->paths[i] && r->results[i].rc == ZKE_OK)
      nodes[n++] = node_read(name_below(r->root, r->paths[i]), &r->results[i],
                             r->ops[i].type == ZKE_OP_GET);
  }
  if (nodes) qsort(nodes, (size_t)n, sizeof *nodes, node_order);
  *count = n;
  return nodes;
}

/* Read everything as of one moment; `known` says which names to expect.  Call
 * reader_drop() afterwards, whatever this returns. */
static int reader_all(reader *r, view_node *const *known, int count,
                      zke_config_node **nodes_out, int *count_out) {
  bool done = false;
  int rc = reader_begin(r, known, count);
  for (int i = 0; i < VIEW_PASSES && rc == ZKE_OK && !done; i++)
    rc = reader_pass(r, &done);
  if (rc == ZKE_OK && !done)
    rc = zke_recipe_fail(ZKE_OPERATIONTIMEOUT,
                         "%s is too deep, or grows faster than it is read",
                         *r->root ? r->root : "/");
  if (rc != ZKE_OK) return rc;
  *nodes_out = reader_nodes(r, count_out);
  return *nodes_out ? ZKE_OK : view_nomem();
}

/* Release everything that a reader has read, even after a failure. */
static void reader_drop(reader *r) {
  reader_drop_results(r);
  reader_drop_paths(r->paths, r->count);
}

/* A reading without a view, level by level.  A tree that changes while it is
 * read is read again (reader_all()), so the result is of one moment. */
int zke_view_read(zke *z, const char *path, int levels,
                  zke_config_tree **tree_out) {
  zke_view_scope scope = {.levels = levels};
  reader r = {.z = z, .root = path[1] ? path : "", .scope = &scope};
  zke_config_node *nodes = NULL;
  int count = 0;
  int rc = reader_all(&r, NULL, 0, &nodes, &count);
  if (rc == ZKE_OK) *tree_out = tree_make(z, nodes, count);
  if (rc == ZKE_OK && !*tree_out) rc = ZKE_NOMEM;
  zke_free(nodes);
  reader_drop(&r);
  return rc;
}

/* ---- the picture and the news ----
 *
 * v->nodes is the picture, sorted by name: so a node is found by a search, and
 * a subtree is a range.  v->news has, for each name that has changed since
 * the listener was last told, the node that the listener knows.  Every change
 * of the picture goes through view_note(), which also tells a recipe that
 * counts (v->edit).  Room in both arrays is made before a change begins, so no
 * change stops half-way for lack of memory. */

/* A name whose node may differ from the one that the listener heard of last. */
typedef struct view_news {
  view_node *node; /* the node that the listener knows; if it knows none, any
                      node of that name */
  bool known;      /* it knows the node */
  view_node *now;  /* during the delivery: the current node, or NULL */
} view_news;

/* The index of the first node whose name is not less. */
static int view_lower(const zke_view *v, const char *name) {
  int low = 0, high = v->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (strcmp(v->nodes[middle]->n.name, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The node of a name, even a hidden one; or NULL. */
static view_node *view_at(const zke_view *v, const char *name) {
  int i = view_lower(v, name);
  bool found = i < v->count && strcmp(v->nodes[i]->n.name, name) == 0;
  return found ? v->nodes[i] : NULL;
}

/* The node lives as long as the picture: until the mutex is released. */
const zke_config_node *zke_view_find(const zke_view *v, const char *name) {
  return node_shown(view_at(v, name));
}

/* Replace an array that is too small by one with room for so many elements;
 * false without memory. */
static bool view_reserve(zke *z, void *array, int count, int *room, int need,
                         size_t size) {
  void *old;
  if (need <= *room) return true;
  int most = need + need / 2 + 8;
  void *made = zke_alloc(z, (size_t)most * size);
  if (!made) return false;
  memcpy(&old, array, sizeof old);
  if (count) memcpy(made, old, (size_t)count * size);
  zke_free(old);
  memcpy(array, &made, sizeof made);
  *room = most;
  return true;
}

/* A name has changed in the picture: remember the node that the listener knows,
 * unless an earlier change has done so.  There is room.  Nodes that are not
 * shown, and changes of only the Stat, make no news. */
static void view_note(zke_view *v, view_node *before, view_node *now) {
  const zke_config_node *was = node_shown(before), *is = node_shown(now);
  if (!was && !is) return;
  if (was && is && was->stat.mzxid == is->stat.mzxid) return;
  v->moved = true;
  if (v->edit) v->edit(v, was, is);
  if (!v->listens) return;
  const char *name = was ? was->name : is->name;
  int low = 0, high = v->news_count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (strcmp(v->news[middle].node->n.name, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  view_news *at = v->news + low;
  if (low < v->news_count && strcmp(at->node->n.name, name) == 0) return;
  memmove(at + 1, at, (size_t)(v->news_count++ - low) * sizeof *at);
  *at = (view_news){.node = node_ref(was ? before : now), .known = was};
}

/* Make room for so many more nodes and news, before a change of the picture
 * begins. */
static int view_room(zke_view *v, int nodes, int news) {
  if (view_reserve(v->r.z, &v->nodes, v->count, &v->room, v->count + nodes,
                   sizeof(void *)) &&
      view_reserve(v->r.z, &v->news, v->news_count, &v->news_room,
                   v->news_count + news, sizeof *v->news))
    return ZKE_OK;
  return view_nomem();
}

/* Put a node into the picture, replacing the one of its name; there is room.
 * The reference becomes the picture's. */
static void view_put(zke_view *v, view_node *n) {
  int i = view_lower(v, n->n.name);
  view_node **at = v->nodes + i;
  bool found = i < v->count && strcmp((*at)->n.name, n->n.name) == 0;
  view_note(v, found ? *at : NULL, n);
  if (found)
    node_unref(*at);
  else
    memmove(at + 1, at, (size_t)(v->count++ - i) * sizeof(void *));
  *at = n;
}

/* The index of the first node below a name, or with `end` the one after the
 * last.  They are consecutive, but do not follow the node itself: "a-b" comes
 * between "a" and "a/b". */
static int view_below(const zke_view *v, const char *name, bool end) {
  size_t len = strlen(name);
  int low = 0, high = v->count;
  if (!len && end) return v->count;
  if (!len) return v->count && !*v->nodes[0]->n.name;
  while (low < high) {
    int middle = low + (high - low) / 2;
    const char *other = v->nodes[middle]->n.name;
    int order = strncmp(other, name, len);
    if (order == 0) order = (unsigned char)other[len] - '/' - end;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Take nodes out of the picture; there is room for the news. */
static void view_take_out(zke_view *v, int from, int to) {
  for (int i = from; i < to; i++) {
    view_note(v, v->nodes[i], NULL);
    node_unref(v->nodes[i]);
  }
  memmove(v->nodes + from, v->nodes + to,
          (size_t)(v->count - to) * sizeof(void *));
  v->count -= to - from;
}

/* A node has gone, or may no longer be read: remove it and all nodes below it.
 */
static void view_drop(zke_view *v, const char *name) {
  view_take_out(v, view_below(v, name, false), view_below(v, name, true));
  int i = view_lower(v, name);
  if (i < v->count && strcmp(v->nodes[i]->n.name, name) == 0)
    view_take_out(v, i, i + 1);
}

/* From memory; the nodes are sorted by path, so a subtree is a range. */
int zke_view_list(const zke_view *v, const char *name,
                  zke_config_tree **tree_out) {
  int from = view_below(v, name, false), to = view_below(v, name, true), n = 0;
  size_t size = ((size_t)(to - from) + 1) * sizeof(zke_config_node);
  zke_config_node *nodes = zke_alloc(v->r.z, size);
  const zke_config_node *top = zke_view_find(v, name);
  if (nodes && top) nodes[n++] = *top;
  for (int i = from; nodes && i < to; i++) {
    const zke_config_node *shown = node_shown(v->nodes[i]);
    if (shown) nodes[n++] = *shown;
  }
  zke_config_tree *tree = nodes ? tree_make(v->r.z, nodes, n) : NULL;
  zke_free(nodes);
  if (!tree) return zke_recipe_fail(ZKE_NOMEM, "no memory for a list of nodes");
  *tree_out = tree;
  return ZKE_OK;
}

/* ---- a full look ----
 *
 * The nodes read become the picture.  An unchanged node is kept, so it makes no
 * news and no copy. */

/* Is a node the same as when it was read?  Each change of data, children or ACL
 * raises one of these. */
static bool node_is_same(const view_node *n, const zke_config_node *read) {
  const zke_stat *a = &n->n.stat, *b = &read->stat;
  return a->mzxid == b->mzxid && a->pzxid == b->pzxid &&
         a->cversion == b->cversion && a->aversion == b->aversion;
}

/* Make new nodes for those that are not in the picture in this form.  made[]
 * has NULL for the others; after a failure the caller releases the new
 * nodes. */
static int view_make(const zke_view *v, const zke_config_node *read, int count,
                     view_node **made) {
  for (int i = 0; i < count; i++) {
    const view_node *old = view_at(v, read[i].name);
    if (old && node_is_same(old, &read[i])) continue;
    bool shown = scope_of(&v->scope, read[i].name) & ZKE_CONFIG_INCLUDE;
    made[i] = view_node_make(v->r.z, &read[i], !shown);
    if (!made[i]) return view_nomem();
  }
  return ZKE_OK;
}

/* Make the picture from the nodes read and the nodes made for it; there is room
 * for the news.  Both are sorted, so one walk is enough; takes made[]. */
static void view_replace(zke_view *v, const zke_config_node *read, int count,
                         view_node **made) {
  int i = 0, j = 0;
  while (i < v->count || j < count) {
    view_node *old = i < v->count ? v->nodes[i] : NULL;
    int order = old ? -1 : 1;
    if (old && j < count) order = strcmp(old->n.name, read[j].name);
    if (order == 0 && !made[j]) {
      made[j] = node_ref(old);
    } else {
      view_note(v, order <= 0 ? old : NULL, order >= 0 ? made[j] : NULL);
    }
    if (order <= 0) node_unref(old);
    i += order <= 0;
    j += order >= 0;
  }
  zke_free(v->nodes);
  v->nodes = made;
  v->count = v->room = count;
}

/* Have the listener told of the news.  If memory is short it is owed, and the
 * next step tries again. */
static int view_tell(zke_view *v) {
  v->owing = !zke_recipe_tell(&v->r, ZKE_VIEW_NEWS, v->revision, NULL, 0);
  return v->owing
             ? zke_recipe_fail(ZKE_NOMEM, "no memory to tell what has changed")
             : ZKE_OK;
}

/* The picture has changed, or is the first. */
static int view_moved(zke_view *v) {
  if (v->revision && !v->moved) return ZKE_OK;
  v->moved = false;
  v->revision++;
  return v->listens ? view_tell(v) : ZKE_OK;
}

/* Make the picture from the nodes read. */
static int view_take(zke_view *v, const reader *r, const zke_config_node *read,
                     int count) {
  view_node **made = zke_alloc(v->r.z, ((size_t)count + 1) * sizeof(void *));
  if (!made) return view_nomem();
  int rc = view_room(v, 0, v->listens ? v->count + count : 0);
  if (rc == ZKE_OK) rc = view_make(v, read, count, made);
  if (rc == ZKE_OK) {
    v->silent = r->results[r->count + r->parents].len;
    view_replace(v, read, count, made);
    return view_moved(v);
  }
  for (int i = 0; i < count; i++) node_unref(made[i]);
  zke_free(made);
  return rc;
}

/* Read everything, and make it the picture.  A single node has a one-shot
 * watch, which is set again before the reading; a tree has a persistent one. */
static int view_look(zke_view *v) {
  zke_config_node *read = NULL;
  reader r = {.z = v->r.z, .root = v->r.path, .scope = &v->scope};
  int rc = ZKE_OK, count = 0;
  if (v->scope.levels < 0)
    rc = zke_exists(v->r.z, v->r.path, zke_recipe_watcher, &v->r, NULL);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  rc = reader_all(&r, v->nodes, v->count, &read, &count);
  if (rc == ZKE_OK) rc = view_take(v, &r, read, count);
  zke_free(read);
  reader_drop(&r);
  return rc;
}

/* ---- the paths of a look at changes ----
 *
 * v->paths are the nodes for the next reading, sorted by name.  Events add to
 * them, and so does each reading that needs more; v->more says that the last
 * one did.  After a step there are none. */

typedef struct view_path {
  char *path;      /* one block */
  bool data;       /* read it with its data, else only its Stat */
  bool list;       /* list its children and look at them as well */
  view_node *made; /* the node for the picture, made before any change; NULL:
                      the present one gets a new Stat */
} view_path;

/* The name of a path, below the view's. */
static const char *path_name(const zke_view *v, const view_path *p) {
  return name_below(v->r.path, p->path);
}

/* The index of the first path whose name is not less. */
static int paths_lower(const zke_view *v, const char *name) {
  int low = 0, high = v->path_count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (strcmp(path_name(v, &v->paths[middle]), name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The paths were read, or everything will be. */
static void paths_drop(zke_view *v) {
  for (int i = 0; i < v->path_count; i++) {
    zke_free(v->paths[i].path);
    node_unref(v->paths[i].made);
  }
  v->path_count = 0;
}

/* Read a node, too, with its data or its children if requested.  If there are
 * too many, everything will be read.  The paths are sorted, so a second request
 * for a name finds the first. */
static int paths_add(zke_view *v, const char *name, bool data, bool list) {
  int i = paths_lower(v, name);
  view_path *at = v->paths + i;
  if (i < v->path_count && strcmp(path_name(v, at), name) == 0) {
    v->more = v->more || data > at->data || list > at->list;
    at->data = at->data || data;
    at->list = at->list || list;
    return ZKE_OK;
  }
  if (v->path_count >= VIEW_MOST) {
    v->due = VIEW_ALL;
    return ZKE_OK;
  }
  char *path = path_below(v->r.z, v->r.path, name);
  if (!path || !view_reserve(v->r.z, &v->paths, v->path_count, &v->path_room,
                             v->path_count + 1, sizeof *v->paths)) {
    zke_free(path);
    return view_nomem();
  }
  at = v->paths + i;
  memmove(at + 1, at, (size_t)(v->path_count++ - i) * sizeof *at);
  *at = (view_path){.path = path, .data = data, .list = list};
  v->more = true;
  return ZKE_OK;
}

/* Read a name's parent, too: children came or went, so its Stat has changed. */
static int paths_add_parent(zke_view *v, const char *name) {
  char *parent = view_text(v->r.z, name);
  if (!parent) return view_nomem();
  int rc = ZKE_OK;
  if (scope_cut(parent) && scope_reaches(&v->scope, parent))
    rc = paths_add(v, parent, false, false);
  zke_free(parent);
  return rc;
}

/* Add the paths that an event concerns.  type 0: not known. */
static int paths_note(zke_view *v, int type, const char *path) {
  size_t root = strlen(v->r.path);
  if (strncmp(path, v->r.path, root) != 0) return ZKE_OK;
  if (path[root] && path[root] != '/') return ZKE_OK;
  char *name = view_text(v->r.z, name_below(v->r.path, path));
  if (!name) return view_nomem();
  bool reached = scope_reaches(&v->scope, name), parent = !reached;
  int rc = ZKE_OK;
  if (reached)
    rc = paths_add(v, name, scope_of(&v->scope, name) & ZKE_CONFIG_INCLUDE,
                   false);
  if (type) parent = type != ZKE_EVENT_CHANGED;
  if (rc == ZKE_OK && parent) rc = paths_add_parent(v, name);
  zke_free(name);
  return rc;
}

/* ---- a look at changes ----
 *
 * Besides a path that an event has named, these must be read:
 *
 *   its parent    if the node came or went: its numChildren, cversion and pzxid
 *                 have changed
 *   its data      if mzxid has changed
 *   its children  if the node is new: they may have come with it
 *
 * and the paths of the session's undelivered events: these events are in the
 * file already, so the snapshot shows their changes.
 *
 * Some events are never delivered, such as those of a node that the session may
 * not read.  The engine only counts these (zke_op_untold()), and v->silent is
 * the count of the last full look.  If it has grown since, it is not known
 * which node has changed: so everything is read. */

/* One reading. */
typedef struct view_round {
  zke_op *ops; /* one for each path, then those that list children, then one
                  that asks for undelivered events */
  zke_op_result *results; /* of ops */
  int paths;              /* how many are for paths */
  int count;              /* of ops */
} view_round;

/* Release a round's reading, for the next one. */
static void round_drop(view_round *r) {
  if (r->results) zke_results_clear(r->results, r->count);
  zke_free(r->results);
  zke_free(r->ops);
  *r = (view_round){.ops = NULL};
}

/* Read, in one snapshot, the nodes named by events, the children of new ones,
 * and the list of undelivered events.  That list is essential: without it the
 * memory could be older than the file and not know. */
static int round_read(const zke_view *v, view_round *r) {
  size_t most = 2 * (size_t)v->path_count + 1;
  round_drop(r);
  r->ops = zke_alloc(v->r.z, most * sizeof *r->ops);
  r->results = zke_alloc(v->r.z, most * sizeof *r->results);
  if (!r->ops || !r->results) return view_nomem();
  for (int i = 0; i < v->path_count; i++)
    op_of(&r->ops[r->paths++], v->paths[i].path, v->paths[i].data);
  r->count = r->paths;
  for (int i = 0; i < v->path_count; i++) {
    if (v->paths[i].list)
      zke_op_children(&r->ops[r->count++], v->paths[i].path, NULL, 0);
  }
  zke_op_untold(&r->ops[r->count++], v->r.path, VIEW_MOST);
  int rc = zke_recipe_multi_read(v->r.z, r->ops, r->count, r->results);
  return rc == ZKE_OK ? results_check(r->ops, r->results, r->count) : rc;
}

/* Add what a path's reading requires: its parent if it came or went, its data
 * if that has changed, its children if it is new. */
static int round_follow_path(zke_view *v, const char *name,
                             const zke_op_result *r) {
  int what = scope_of(&v->scope, name), rc = ZKE_OK;
  const view_node *old = view_at(v, name);
  const zke_stat *was = old ? &old->n.stat : NULL;
  bool there = r->rc == ZKE_OK;
  if (!there || !was || was->czxid != r->stat.czxid)
    rc = paths_add_parent(v, name);
  if (rc != ZKE_OK || !there) return rc;
  bool data =
      what & ZKE_CONFIG_INCLUDE && (!was || was->mzxid != r->stat.mzxid);
  bool list = what & ZKE_CONFIG_DESCEND && !was && r->stat.numChildren > 0;
  return data || list ? paths_add(v, name, data, list) : ZKE_OK;
}

/* Add what a list of children, or of undelivered events, requires. */
static int round_follow_list(zke_view *v, const zke_op *op,
                             const zke_strings *names) {
  int rc = ZKE_OK;
  for (int i = 0; names && i < names->count && rc == ZKE_OK; i++) {
    if (op->type == ZKE_OP_UNTOLD) {
      rc = paths_note(v, 0, names->data[i]);
      continue;
    }
    char *path = zke_recipe_path(v->r.z, op->path, names->data[i]);
    if (!path) return view_nomem();
    const char *name = name_below(v->r.path, path);
    int what = scope_of(&v->scope, name);
    if (what) rc = paths_add(v, name, what & ZKE_CONFIG_INCLUDE, false);
    zke_free(path);
  }
  return rc;
}

/* Find out what else must be read: v->more, or everything. */
static int round_follow(zke_view *v, const view_round *r) {
  const zke_op_result *untold = &r->results[r->count - 1];
  int rc = ZKE_OK;
  v->more = false;
  if (untold->rc != ZKE_OK || untold->len != v->silent) v->due = VIEW_ALL;
  for (int i = 0; i < r->paths && rc == ZKE_OK; i++)
    rc = round_follow_path(v, name_below(v->r.path, r->ops[i].path),
                           &r->results[i]);
  for (int i = r->paths; i < r->count && rc == ZKE_OK; i++)
    rc = round_follow_list(v, &r->ops[i], r->results[i].children);
  return rc;
}

/* Make the nodes that the picture needs, so nothing can fail later.  If only
 * the Stat has changed and only the picture refers to the node, it is updated
 * in place. */
static int round_make(zke_view *v, const view_round *r) {
  int news = 0, rc = ZKE_OK;
  for (int i = 0; i < v->path_count && rc == ZKE_OK; i++) {
    view_path *p = &v->paths[i];
    const char *name = path_name(v, p);
    view_node *old = view_at(v, name);
    zke_config_node n = node_read(name, &r->results[i], p->data);
    bool hidden = !(scope_of(&v->scope, name) & ZKE_CONFIG_INCLUDE);
    news += 1 + view_below(v, name, true) - view_below(v, name, false);
    if (r->results[i].rc != ZKE_OK) continue;
    if (!p->data && !hidden) {
      if (old->refs == 1) continue;
      n.data = old->n.data;
      n.len = old->n.len;
    }
    p->made = view_node_make(v->r.z, &n, hidden);
    if (!p->made) rc = view_nomem();
  }
  return rc == ZKE_OK ? view_room(v, v->path_count, news) : rc;
}

/* Is the parent of a name in the picture?  If not, the session may not read it,
 * and does not see what is below. */
static bool round_is_seen(const zke_view *v, const char *name) {
  if (!*name) return true;
  const char *end = strrchr(name, '/');
  int from = 0, to = v->count;
  size_t len = end ? (size_t)(end - name) : 0;
  while (from < to) {
    int middle = from + (to - from) / 2;
    const char *other = v->nodes[middle]->n.name;
    int order = strncmp(other, name, len);
    if (order == 0 && other[len]) order = 1;
    if (order == 0) return true;
    if (order < 0)
      from = middle + 1;
    else
      to = middle;
  }
  return false;
}

/* Bring the picture to the moment of the reading.  Nothing can fail here.  The
 * paths are sorted, so parents come before their children, and a node below one
 * that may not be read is dropped with it. */
static void round_apply(zke_view *v, const view_round *r) {
  for (int i = 0; i < v->path_count; i++) {
    view_path *p = &v->paths[i];
    const char *name = path_name(v, p);
    if (r->results[i].rc != ZKE_OK || !round_is_seen(v, name)) {
      view_drop(v, name);
    } else if (p->made) {
      view_put(v, p->made);
      p->made = NULL;
    } else {
      view_at(v, name)->n.stat = r->results[i].stat;
    }
  }
}

/* Look at changes.  On ZKE_OK the picture is of one moment, unless v->due says
 * that everything must be read for that. */
static int view_follow(zke_view *v) {
  view_round r = {.ops = NULL};
  int rc = ZKE_OK;
  v->more = true;
  for (int i = 0; rc == ZKE_OK && v->more && v->due != VIEW_ALL; i++) {
    if (i >= VIEW_ROUNDS) v->due = VIEW_ALL;
    rc = round_read(v, &r);
    if (rc == ZKE_OK) rc = round_follow(v, &r);
  }
  if (rc == ZKE_OK && v->due != VIEW_ALL) rc = round_make(v, &r);
  if (rc == ZKE_OK && v->due != VIEW_ALL) {
    round_apply(v, &r);
    rc = view_moved(v);
  }
  round_drop(&r);
  return rc;
}

/* ---- the view ----
 *
 * Configurations and groups are made of it.  It decides which look is due,
 * keeps the picture, and tells its owner of the differences. */

/* One watch for the whole tree; a single node has its own watch. */
static int view_watch(zke_view *v) {
  if (v->scope.levels < 0) return ZKE_OK;
  return zke_add_watch(v->r.z, v->r.path, ZKE_WATCH_PERSISTENT_RECURSIVE,
                       zke_recipe_watcher, &v->r);
}

/* Set what the next step must do; it may have more to do already. */
static void view_owe(zke_view *v, int due) {
  if (v->due < due) v->due = due;
}

/* Record the path of an event.  If that fails, or an event says that others
 * were lost, everything is read again: never less than what changed. */
void zke_view_event(zke_view *v, int type, const char *path) {
  if (!v->watching) return; /* the first look will read everything */
  bool all = type <= 0 || v->scope.levels < 0;
  if (all || paths_note(v, type, path) != ZKE_OK)
    view_owe(v, VIEW_ALL);
  else if (v->path_count)
    view_owe(v, VIEW_CHECK);
}

/* For changes without events: the next step looks in any case. */
void zke_view_refresh(zke_view *v) {
  view_owe(v, v->scope.levels < 0 ? VIEW_ALL : VIEW_FOLLOW);
  v->r.changed = true;
}

/* Is the event's change in the picture already?  That is so for most of many
 * events that come together: the look after the first one has read the changes
 * of all of them.  The first path tells: if the event's node came or went, it
 * is the parent, whose pzxid has changed too, or at least its cversion if no
 * numbers are left; else it is the only one. */
static bool view_knows(const zke_view *v) {
  zke_config_node n = {.name = path_name(v, &v->paths[0])};
  const view_node *old = view_at(v, n.name);
  int rc = zke_exists(v->r.z, v->paths[0].path, NULL, NULL, &n.stat);
  return rc == ZKE_OK ? old && node_is_same(old, &n) : rc == ZKE_NONODE && !old;
}

/* Do what is due, in the cheapest way that suffices: nothing, the named nodes,
 * or everything.  After any failure everything is due, since half-done work
 * cannot be told from undone work. */
int zke_view_step(zke_view *v) {
  if (!v->watching) return ZKE_OK;
  int rc = v->owing ? view_tell(v) : ZKE_OK;
  if (rc == ZKE_OK && v->due == VIEW_CHECK && view_knows(v)) v->due = VIEW_IDLE;
  if (rc == ZKE_OK && (v->due == VIEW_CHECK || v->due == VIEW_FOLLOW))
    rc = view_follow(v);
  if (rc == ZKE_OK && v->due == VIEW_ALL) rc = view_look(v);
  paths_drop(v);
  v->due = rc == ZKE_OK ? VIEW_IDLE : VIEW_ALL; /* until it has worked */
  return rc;
}

/* The watch comes before the first reading: a change in between fires it, and
 * the tree is read again. */
int zke_view_start(zke_view *v) {
  if (v->watching) return v->due || v->owing ? zke_view_step(v) : ZKE_OK;
  int rc = view_watch(v);
  if (rc != ZKE_OK) return rc;
  rc = view_look(v);
  v->watching = v->revision > 0;
  if (!v->watching)
    zke_remove_watch(v->r.z, v->r.path, ZKE_WATCH_ANY, zke_recipe_watcher,
                     &v->r);
  return rc;
}

/* Asked between two calls of the listener, which may free the object. */
static bool view_going(zke_view *v) {
  pthread_mutex_lock(&v->r.m);
  bool going = v->r.going;
  pthread_mutex_unlock(&v->r.m);
  return going;
}

/* Take the news, with the current nodes; returns how many. */
static int view_take_news(zke_view *v, view_news **news) {
  pthread_mutex_lock(&v->r.m);
  int count = v->news_count;
  *news = v->news;
  v->news = NULL;
  v->news_count = v->news_room = 0;
  for (int i = 0; i < count; i++) {
    view_node *now = view_at(v, (*news)[i].node->n.name);
    if (node_shown(now)) (*news)[i].now = node_ref(now);
  }
  pthread_mutex_unlock(&v->r.m);
  return count;
}

/* Call fn for each changed node, with the node told last and the current one:
 * several changes become one, and an undone change is not reported.  No lock is
 * held; references keep the nodes. */
bool zke_view_deliver(zke_view *v, zke_view_fn fn) {
  view_news *news;
  int count = view_take_news(v, &news);
  for (int i = 0; i < count && !view_going(v); i++) {
    const zke_config_node *before = news[i].known ? &news[i].node->n : NULL;
    const zke_config_node *now = node_shown(news[i].now);
    bool same = before && now && before->stat.mzxid == now->stat.mzxid;
    if ((before || now) && !same) fn(v, before, now);
  }
  pthread_mutex_lock(&v->r.m);
  for (int i = 0; i < count; i++) {
    node_unref(news[i].node);
    node_unref(news[i].now);
  }
  bool there = !v->r.going;
  pthread_mutex_unlock(&v->r.m);
  zke_free(news);
  return there;
}

/* The object has no watch any more, so no event comes. */
void zke_view_free(zke_view *v) {
  for (int i = 0; i < v->count; i++) node_unref(v->nodes[i]);
  for (int i = 0; i < v->news_count; i++) node_unref(v->news[i].node);
  paths_drop(v);
  zke_free(v->nodes);
  zke_free(v->news);
  zke_free(v->paths);
}
