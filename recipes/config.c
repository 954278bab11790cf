/* config.c - a node, or all below it, kept current in memory
 *
 * The memory is a tree that never changes: each look makes a new one, and the
 * listener is told of the differences between the last one it heard of and
 * the newest.  So whoever reads sees one moment, and nothing is lost where
 * changes come faster than they are told.
 *
 * A look is one zke_multi_read() of every node that is known, repeated with
 * the new ones until the nodes list no child that was not read: then all of it
 * is of one snapshot. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

enum {
  VIEW_PASSES = 200
}; /* levels of a tree, and nodes that come meanwhile */

/* ---- trees: one block, counted ---- */

typedef struct tree_block {
  zke_config_tree t; /* first: the block is given away as one */
  int refs;
} tree_block;

static size_t tree_bytes(const zke_config_node *n) {
  return strlen(n->name) + 1 + (n->len > 0 ? (size_t)n->len : 0) + 1;
}

/* Copy nodes into a tree of their own. */
static zke_config_tree *tree_make(zke *z, const zke_config_node *nodes,
                                  int count) {
  size_t size = sizeof(tree_block) + (size_t)count * sizeof *nodes;
  for (int i = 0; i < count; i++) size += tree_bytes(&nodes[i]);
  tree_block *b = zke_alloc(z, size);
  if (!b) {
    zke_fail(ZKE_NOMEM, "no memory for a tree of %d nodes", count);
    return NULL;
  }
  zke_config_node *copy = (zke_config_node *)(void *)(b + 1);
  char *text = (char *)(copy + count);
  for (int i = 0; i < count; i++) {
    const zke_config_node *n = &nodes[i];
    size_t len = n->len > 0 ? (size_t)n->len : 0, name = strlen(n->name) + 1;
    copy[i] = *n;
    copy[i].name = memcpy(text, n->name, name);
    copy[i].data = n->data ? text + name : NULL;
    if (n->data && len) memcpy(text + name, n->data, len);
    text += name + len + 1;
  }
  b->refs = 1;
  b->t.count = count;
  b->t.data = copy;
  return &b->t;
}

static zke_config_tree *tree_ref(zke_config_tree *t) {
  if (t) ((tree_block *)(void *)t)->refs++;
  return t;
}

static void tree_unref(zke_config_tree *t) {
  if (t && --((tree_block *)(void *)t)->refs == 0) zke_free(t);
}

/* The index of the first node whose name is not less. */
static int tree_lower(const zke_config_tree *t, const char *name) {
  int low = 0, high = t ? t->count : 0;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (strcmp(t->data[middle].name, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

const zke_config_node *zke_view_find(const zke_config_tree *tree,
                                     const char *name) {
  int i = tree_lower(tree, name);
  bool found = tree && i < tree->count && !strcmp(tree->data[i].name, name);
  return found ? &tree->data[i] : NULL;
}

/* The next difference of two trees, from *i and *j on: false: none. */
static bool tree_differ(const zke_config_tree *a, const zke_config_tree *b,
                        int *i, int *j, const zke_config_node **before,
                        const zke_config_node **now) {
  for (;;) {
    *before = a && *i < a->count ? &a->data[*i] : NULL;
    *now = b && *j < b->count ? &b->data[*j] : NULL;
    if (!*before && !*now) return false;
    int order = !*before ? 1
                : !*now  ? -1
                         : strcmp((*before)->name, (*now)->name);
    if (order > 0) *before = NULL;
    if (order < 0) *now = NULL;
    *i += order <= 0;
    *j += order >= 0;
    if (order || (*before)->stat.mzxid != (*now)->stat.mzxid) return true;
  }
}

static bool tree_changed(const zke_config_tree *a, const zke_config_tree *b) {
  const zke_config_node *before, *now;
  int i = 0, j = 0;
  return tree_differ(a, b, &i, &j, &before, &now);
}

/* ---- reading one ---- */

/* The paths that are read together, and what came of it. */
typedef struct reader {
  zke *z;
  const char *root; /* "" for "/" */
  int levels;
  char **paths; /* sorted */
  int count;
  int parents; /* how many of the operations list children */
  int *of;     /* the path's index of each such operation */
  zke_op *ops; /* a get for each path, then those that list children */
  zke_op_result *results;
} reader;

static int reader_nomem(void) {
  return zke_recipe_fail(ZKE_NOMEM, "no memory for reading a tree");
}

static void reader_drop_paths(char **paths, int count) {
  for (int i = 0; paths && i < count; i++) zke_free(paths[i]);
  zke_free(paths);
}

static void reader_drop_results(reader *r) {
  if (r->results) zke_results_clear(r->results, r->count + r->parents);
  zke_free(r->results);
  zke_free(r->ops);
  zke_free(r->of);
  r->results = NULL;
  r->ops = NULL;
  r->of = NULL;
  r->parents = 0;
}

/* A path's name below the root. */
static const char *reader_name(const reader *r, const char *path) {
  const char *rest = path + strlen(r->root);
  return rest + (*rest == '/');
}

/* Are the children of a node at this path looked at? */
static bool view_descends(const char *root, int levels, const char *path) {
  int level = 0;
  for (const char *p = path + strlen(root); *p; p++)
    level += *p == '/' && p[1]; /* "/" itself is none */
  return levels == 0 || level < levels;
}

static int path_order(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The path of a node below the root, or of the root; one block. */
static char *reader_path(const reader *r, const char *name) {
  if (*name) return zke_recipe_path(r->z, r->root, name);
  const char *root = *r->root ? r->root : "/";
  char *path = zke_alloc(r->z, strlen(root) + 1);
  return path ? memcpy(path, root, strlen(root)) : NULL;
}

/* Begin with the root and what is known below it. */
static int reader_begin(reader *r, const zke_config_tree *known) {
  int count = known ? known->count : 0;
  r->paths = zke_alloc(r->z, ((size_t)count + 1) * sizeof *r->paths);
  if (!r->paths) return reader_nomem();
  for (int i = -1; i < count; i++) {
    const char *name = i < 0 ? "" : known->data[i].name;
    if (i >= 0 && !*name) continue; /* the root is in already */
    char *path = reader_path(r, name);
    if (!path) return reader_nomem();
    r->paths[r->count++] = path;
  }
  qsort(r->paths, (size_t)r->count, sizeof *r->paths, path_order);
  return ZKE_OK;
}

/* Read all paths and their children in one snapshot. */
static int reader_read(reader *r) {
  size_t most = 2 * (size_t)r->count;
  r->ops = zke_alloc(r->z, most * sizeof *r->ops);
  r->of = zke_alloc(r->z, (size_t)r->count * sizeof *r->of);
  r->results = zke_alloc(r->z, most * sizeof *r->results);
  if (!r->ops || !r->of || !r->results) return reader_nomem();
  for (int i = 0; i < r->count; i++) {
    zke_op_get(&r->ops[i], r->paths[i]);
    if (!view_descends(r->root, r->levels, r->paths[i])) continue;
    zke_op_children(&r->ops[r->count + r->parents], r->paths[i]);
    r->of[r->parents++] = i;
  }
  int rc =
      zke_recipe_multi_read(r->z, r->ops, r->count + r->parents, r->results);
  for (int i = 0; i < r->count + r->parents && rc == ZKE_OK; i++) {
    int each = r->results[i].rc;
    if (each != ZKE_OK && each != ZKE_NONODE && each != ZKE_NOAUTH)
      rc = zke_recipe_fail(each, "cannot read %s", r->ops[i].path);
  }
  return rc;
}

static int reader_children(const reader *r, int parent) {
  const zke_strings *names = r->results[r->count + parent].children;
  return names ? names->count : 0;
}

/* The paths that the children just read stand for, and the root's. */
static int reader_listed(const reader *r, char ***paths_out, int *count_out) {
  int total = 1, n = 0;
  for (int i = 0; i < r->parents; i++) total += reader_children(r, i);
  char **paths = zke_alloc(r->z, (size_t)total * sizeof *paths);
  if (!paths) return reader_nomem();
  paths[n] = reader_path(r, "");
  n += paths[n] != NULL;
  for (int i = 0; i < r->parents && n; i++) {
    const zke_strings *names = r->results[r->count + i].children;
    const char *parent = r->paths[r->of[i]];
    for (int j = 0; j < reader_children(r, i); j++) {
      char *path =
          zke_recipe_path(r->z, parent[1] ? parent : "", names->data[j]);
      if (path) paths[n++] = path;
    }
  }
  if (n < total) {
    reader_drop_paths(paths, n);
    return reader_nomem();
  }
  qsort(paths, (size_t)n, sizeof *paths, path_order);
  *paths_out = paths;
  *count_out = n;
  return ZKE_OK;
}

/* One reading; *done when every child that is listed was read as well. */
static int reader_pass(reader *r, bool *done) {
  char **paths = NULL;
  int count = 0;
  reader_drop_results(r);
  int rc = reader_read(r);
  if (rc == ZKE_OK) rc = reader_listed(r, &paths, &count);
  if (rc != ZKE_OK) return rc;
  *done = true;
  for (int i = 0; i < count && *done; i++) {
    *done = bsearch(&paths[i], r->paths, (size_t)r->count, sizeof *paths,
                    path_order) != NULL;
  }
  if (*done) {
    reader_drop_paths(paths, count);
    return ZKE_OK;
  }
  reader_drop_results(r);
  reader_drop_paths(r->paths, r->count);
  r->paths = paths;
  r->count = count;
  return ZKE_OK;
}

static int node_order(const void *a, const void *b) {
  return strcmp(((const zke_config_node *)a)->name,
                ((const zke_config_node *)b)->name);
}

/* Make a tree of what was read. */
static int reader_tree(const reader *r, zke_config_tree **tree_out) {
  zke_config_node *nodes = zke_alloc(r->z, (size_t)r->count * sizeof *nodes);
  int n = 0;
  if (!nodes) return reader_nomem();
  for (int i = 0; i < r->count; i++) {
    const zke_op_result *result = &r->results[i];
    if (result->rc != ZKE_OK) continue;
    nodes[n++] = (zke_config_node){.name = reader_name(r, r->paths[i]),
                                   .data = result->data,
                                   .len = result->len,
                                   .stat = result->stat};
  }
  qsort(nodes, (size_t)n, sizeof *nodes, node_order);
  *tree_out = tree_make(r->z, nodes, n);
  zke_free(nodes);
  return *tree_out ? ZKE_OK : ZKE_NOMEM;
}

int zke_view_read(zke *z, const char *path, int levels,
                  const zke_config_tree *known, zke_config_tree **tree_out) {
  reader r = {.z = z, .root = path[1] ? path : "", .levels = levels};
  bool done = false;
  int rc = reader_begin(&r, known);
  for (int i = 0; i < VIEW_PASSES && rc == ZKE_OK && !done; i++)
    rc = reader_pass(&r, &done);
  if (rc == ZKE_OK && !done)
    rc = zke_recipe_fail(ZKE_OPERATIONTIMEOUT,
                         "%s is too deep, or grows faster than it is read",
                         path);
  if (rc == ZKE_OK) rc = reader_tree(&r, tree_out);
  reader_drop_results(&r);
  reader_drop_paths(r.paths, r.count);
  return rc;
}

/* ---- the view ---- */

/* The news are told once there is memory for it. */
static int view_tell(zke_view *v) {
  v->owing = !zke_recipe_tell(&v->r, ZKE_VIEW_NEWS, v->revision, NULL, 0);
  return v->owing
             ? zke_recipe_fail(ZKE_NOMEM, "no memory to tell what has changed")
             : ZKE_OK;
}

/* Watch what has to be watched anew, and read. */
static int view_look(zke_view *v) {
  zke_config_tree *tree = NULL;
  int rc = ZKE_OK;
  if (v->levels < 0)
    rc = zke_exists(v->r.z, v->r.path, zke_recipe_watcher, &v->r, NULL);
  if (rc == ZKE_OK || rc == ZKE_NONODE)
    rc = zke_view_read(v->r.z, v->r.path, v->levels, v->tree, &tree);
  if (rc != ZKE_OK) return rc;
  bool changed = v->revision == 0 || tree_changed(v->tree, tree);
  tree_unref(v->tree);
  v->tree = tree;
  if (!changed) return ZKE_OK;
  v->revision++;
  return v->listens ? view_tell(v) : ZKE_OK;
}

static int view_watch(zke_view *v) {
  if (v->levels < 0) return ZKE_OK;
  return zke_add_watch(v->r.z, v->r.path, ZKE_WATCH_PERSISTENT_RECURSIVE,
                       zke_recipe_watcher, &v->r);
}

void zke_view_event(zke_view *v, int type, const char *path) {
  char *hint = NULL;
  if (!v->all && !v->hint && type > 0)
    hint = zke_alloc(v->r.z, strlen(path) + 1);
  if (hint)
    v->hint = memcpy(hint, path, strlen(path));
  else
    v->all = true;
}

/* Has what the event tells of been seen already, or is it of no concern?  The
 * first event of many makes the view read what all of them are about. */
static bool view_knows(const zke_view *v) {
  size_t root = strlen(v->r.path);
  if (v->all || !v->hint || v->levels < 0) return false;
  if (strncmp(v->hint, v->r.path, root) != 0) return true;
  const char *rest = v->hint + root;
  if (*rest && *rest != '/') return true;
  const char *end = strrchr(v->hint, '/');
  if (*rest && v->levels > 0) { /* is its parent's list looked at? */
    int level = 0;
    for (const char *p = rest; p < end; p++) level += *p == '/';
    if (level >= v->levels) return true;
  }
  zke_stat stat;
  const zke_config_node *n = zke_view_find(v->tree, rest + (*rest == '/'));
  int rc = zke_exists(v->r.z, v->hint, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return n == NULL;
  return rc == ZKE_OK && n && n->stat.mzxid == stat.mzxid;
}

int zke_view_step(zke_view *v) {
  if (!v->watching) return ZKE_OK;
  bool known = view_knows(v);
  zke_free(v->hint);
  v->hint = NULL;
  v->all = true; /* until it has worked */
  int rc = v->owing ? view_tell(v) : ZKE_OK;
  if (rc == ZKE_OK && !known) rc = view_look(v);
  if (rc == ZKE_OK) v->all = false;
  return rc;
}

int zke_view_start(zke_view *v) {
  if (v->watching) return v->all || v->owing ? zke_view_step(v) : ZKE_OK;
  int rc = view_watch(v);
  if (rc != ZKE_OK) return rc;
  rc = view_look(v);
  v->watching = v->revision > 0;
  if (!v->watching)
    zke_remove_watch(v->r.z, v->r.path, ZKE_WATCH_ANY, zke_recipe_watcher,
                     &v->r);
  return rc;
}

static bool view_going(zke_view *v) {
  pthread_mutex_lock(&v->r.m);
  bool going = v->r.going;
  pthread_mutex_unlock(&v->r.m);
  return going;
}

void zke_view_deliver(zke_view *v, zke_view_fn fn) {
  const zke_config_node *before, *now;
  int i = 0, j = 0;
  pthread_mutex_lock(&v->r.m);
  zke_config_tree *old = v->told, *new_ = tree_ref(v->tree);
  v->told = tree_ref(new_);
  pthread_mutex_unlock(&v->r.m);
  while (tree_differ(old, new_, &i, &j, &before, &now) && !view_going(v))
    fn(v, before, now);
  pthread_mutex_lock(&v->r.m);
  tree_unref(old);
  tree_unref(new_);
  pthread_mutex_unlock(&v->r.m);
}

void zke_view_free(zke_view *v) {
  tree_unref(v->tree);
  tree_unref(v->told);
  zke_free(v->hint);
}

/* ---- the object ---- */

struct zke_config {
  zke_view v;
  zke_config_fn listener;
  void *context;
  bool waiting;       /* a blocking call runs */
  bool ready;         /* ZKE_CONFIG_READY was told */
  const char *wanted; /* the node that it waits for, or NULL: the revision */
  int64_t since;      /* the revision, or mzxid, that has passed then */
};

static void config_event(zke_recipe *r, int type, const char *path) {
  zke_view_event((zke_view *)r, type, path);
}

static int config_step(zke_recipe *r) { return zke_view_step((zke_view *)r); }

static void config_ended(zke_recipe *r) {
  if (((zke_view *)r)->watching)
    zke_recipe_tell(r, ZKE_CONFIG_LOST, 0, NULL, 0);
}

static void config_say(zke_view *v, const zke_config_node *before,
                       const zke_config_node *now) {
  zke_config *c = (zke_config *)v;
  int event = !before ? ZKE_CONFIG_ADDED
              : !now  ? ZKE_CONFIG_REMOVED
                      : ZKE_CONFIG_CHANGED;
  c->listener(c, event, before, now, c->context);
}

static void config_deliver(zke_recipe *r, int event, int64_t number,
                           const char *text, int len) {
  zke_config *c = (zke_config *)r;
  (void)number, (void)text, (void)len;
  if (!c->listener) return;
  if (event != ZKE_VIEW_NEWS) {
    c->listener(c, event, NULL, NULL, c->context);
    return;
  }
  zke_view_deliver(&c->v, config_say);
  if (!c->ready && !view_going(&c->v)) {
    c->ready = true;
    c->listener(c, ZKE_CONFIG_READY, NULL, NULL, c->context);
  }
}

static void config_destroy(zke_recipe *r) { zke_view_free((zke_view *)r); }

static const zke_recipe_class config_class = {.name = "configuration",
                                              .event = config_event,
                                              .step = config_step,
                                              .ended = config_ended,
                                              .deliver = config_deliver,
                                              .destroy = config_destroy};

int zke_config_new(zke *z, const char *path, const zke_config_options *options,
                   zke_config **config_out) {
  zke_config_options o;
  zke_recipe *r = NULL;
  if (!config_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "config_out is NULL");
  *config_out = NULL;
  int rc = zke_take_options(options, &o, sizeof o, "zke_config_options");
  if (rc != ZKE_OK) return rc;
  if (o.levels < -1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "levels is %d", o.levels);
  rc = zke_recipe_new(z, path, &config_class, sizeof(zke_config), &r);
  if (rc != ZKE_OK) return rc;
  zke_config *c = (zke_config *)r;
  c->v.levels = o.levels;
  c->v.listens = o.listener != NULL;
  c->listener = o.listener;
  c->context = o.context;
  *config_out = c;
  return ZKE_OK;
}

void zke_config_free(zke_config *config) {
  zke_recipe_free((zke_recipe *)config);
}

int zke_config_start(zke_config *config) {
  int rc = zke_recipe_enter((zke_recipe *)config);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&config->v.r, zke_view_start(&config->v));
}

int zke_config_step(zke_config *config) {
  return zke_recipe_step((zke_recipe *)config);
}

/* ---- out of memory, into the program ---- */

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

int zke_config_get(zke_config *config, const char *name, char **data_out,
                   int *len_out, zke_stat *stat_out) {
  int rc = config_enter(config, name);
  if (rc != ZKE_OK) return rc;
  zke_recipe *r = &config->v.r;
  const zke_config_node *n = zke_view_find(config->v.tree, name);
  if (n)
    rc = config_copy(r->z, n, data_out, len_out, stat_out);
  else
    rc = zke_recipe_fail(ZKE_NONODE, "no node %s/%s", r->path, name);
  return zke_recipe_leave(r, rc);
}

/* Is a node at the name or below it? */
static bool config_is_below(const char *node, const char *name) {
  size_t len = strlen(name);
  if (strncmp(node, name, len) != 0) return false;
  return !len || !node[len] || node[len] == '/';
}

/* The part of a tree at a name and below.  What begins with the name stands
 * together, but "a-b" comes between "a" and "a/b". */
static zke_config_tree *config_part(zke *z, const zke_config_tree *t,
                                    const char *name) {
  int first = tree_lower(t, name), n = 0;
  int most = t->count - first;
  zke_config_node *nodes = zke_alloc(z, ((size_t)most + 1) * sizeof *nodes);
  if (!nodes) return NULL;
  for (int i = first; i < t->count; i++) {
    const char *node = t->data[i].name;
    if (strncmp(node, name, strlen(name)) != 0) break;
    if (config_is_below(node, name)) nodes[n++] = t->data[i];
  }
  zke_config_tree *part = tree_make(z, nodes, n);
  zke_free(nodes);
  return part;
}

int zke_config_list(zke_config *config, const char *name,
                    zke_config_tree **tree_out) {
  if (!tree_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "tree_out is NULL");
  int rc = config_enter(config, name);
  if (rc != ZKE_OK) return rc;
  zke_config_tree *part = config_part(config->v.r.z, config->v.tree, name);
  if (part)
    *tree_out = part;
  else
    rc = zke_recipe_fail(ZKE_NOMEM, "no memory for a list of nodes");
  return zke_recipe_leave(&config->v.r, rc);
}

int64_t zke_config_revision(zke_config *config) {
  if (zke_recipe_enter((zke_recipe *)config) != ZKE_OK) return 0;
  int64_t revision = config->v.revision;
  zke_recipe_leave(&config->v.r, ZKE_OK);
  return revision;
}

/* ---- waiting ---- */

/* What a wait is about: the mzxid of a node, 0 where it is missing, or the
 * revision. */
static int64_t config_current(const zke_config *c) {
  if (!c->wanted) return c->v.revision;
  const zke_config_node *n = zke_view_find(c->v.tree, c->wanted);
  return n ? n->stat.mzxid : 0;
}

static int config_done(zke_recipe *r) {
  const zke_config *c = (const zke_config *)r;
  int64_t current = config_current(c);
  bool done = c->wanted ? current != c->since : current > c->since;
  return done ? ZKE_OK : 1;
}

static int config_await(zke_config *c, int64_t deadline_ms) {
  int rc = zke_view_start(&c->v);
  if (rc == ZKE_OK) rc = zke_recipe_await(&c->v.r, config_done, deadline_ms);
  if (rc != ZKE_OPERATIONTIMEOUT || config_done(&c->v.r) == ZKE_OK) return rc;
  return zke_recipe_fail(rc, "%s%s%s did not change until the deadline",
                         c->v.r.path, c->wanted && *c->wanted ? "/" : "",
                         c->wanted ? c->wanted : "");
}

static int config_wait(zke_config *config, const char *wanted, int64_t since,
                       int64_t deadline_ms, int64_t *out) {
  int rc = zke_recipe_enter_by((zke_recipe *)config, deadline_ms);
  if (rc != ZKE_OK) return rc;
  zke_recipe *r = &config->v.r;
  if (config->waiting) {
    rc = zke_recipe_fail(
        ZKE_MISUSE, "another thread waits with this object for %s", r->path);
    return zke_recipe_leave(r, rc);
  }
  config->waiting = true;
  config->wanted = wanted;
  config->since = since;
  rc = config_await(config, deadline_ms);
  if (rc == ZKE_OK && out) *out = config_current(config);
  config->waiting = false;
  config->wanted = NULL;
  return zke_recipe_leave(r, rc);
}

int zke_config_wait(zke_config *config, int64_t revision, int64_t deadline_ms,
                    int64_t *revision_out) {
  return config_wait(config, NULL, revision, deadline_ms, revision_out);
}

int zke_config_wait_node(zke_config *config, const char *name, int64_t mzxid,
                         int64_t deadline_ms, int64_t *mzxid_out) {
  if (!name) return zke_recipe_fail(ZKE_BADARGUMENTS, "the name is NULL");
  return config_wait(config, name, mzxid, deadline_ms, mzxid_out);
}

int zke_config_cancel(zke_config *config) {
  return zke_recipe_cancel((zke_recipe *)config);
}

/* ---- changing ---- */

typedef struct config_change {
  const char *path;
  const void *data;
  int len, version;
  const zke_op *guards;
  int guard_count;
  bool unsure; /* the last try may have done it */
  zke_stat stat;
} config_change;

/* After a lost reply: is it there, as the next version? */
static int config_recognise(zke *z, config_change *c) {
  char *data = NULL;
  int len = -1;
  int rc = zke_get(z, c->path, NULL, NULL, &data, &len, &c->stat);
  if (rc != ZKE_OK) return rc;
  bool mine = c->stat.version == c->version + 1 && len == c->len &&
              (len <= 0 || memcmp(data, c->data, (size_t)len) == 0);
  zke_free(data);
  if (mine) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADVERSION, "%s has version %d, not %d", c->path,
                         c->stat.version, c->version);
}

/* A guard does not hold.  Where an earlier try may have been done, its guards
 * held: is it there, or can nobody tell? */
static int config_not_guarded(zke *z, config_change *c, const char *guard) {
  zke_sentence kept;
  int rc = zke_recipe_fail(ZKE_LOST, "%s was not set: the guard %s is not held",
                           c->path, guard);
  if (!c->unsure) return rc;
  zke_recipe_keep(&kept);
  if (c->version >= 0) {
    rc = config_recognise(z, c);
    if (rc != ZKE_BADVERSION) return rc;
    return zke_recipe_restore(&kept, ZKE_LOST);
  }
  return zke_recipe_fail(ZKE_CONNECTIONLOSS,
                         "whether %s was set is not known: the reply was lost, "
                         "and by now the guard %s is not held",
                         c->path, guard);
}

/* Do it in one step with its guards, none of which may fail. */
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
    if (rc != ZKE_OK && rc != ZKE_CONNECTIONLOSS && held < n)
      rc = config_not_guarded(z, c, c->guards[held].path);
    zke_results_clear(results, (int)n + 1);
  }
  zke_free(results);
  zke_free(ops);
  return rc;
}

static int config_do(zke *z, config_change *c, const zke_op *op) {
  if (c->guard_count) return config_do_guarded(z, c, op);
  if (op->type == ZKE_OP_SET)
    return zke_set(z, op->path, op->data, op->len, op->version, &c->stat);
  return zke_create(z, op->path, op->data, op->len, op->acls, op->mode, NULL,
                    &c->stat);
}

static int config_try_set(zke *z, void *arg) {
  config_change *c = arg;
  zke_op op;
  zke_op_set(&op, c->path, c->data, c->len, c->version);
  int rc = config_do(z, c, &op);
  if (rc == ZKE_BADVERSION && c->unsure) rc = config_recognise(z, c);
  if (rc == ZKE_NONODE && c->version == -1) {
    zke_op_create(&op, c->path, c->data, c->len, ZKE_OPEN_ACL, ZKE_PERSISTENT);
    rc = config_do(z, c, &op);
  }
  c->unsure = c->unsure || rc == ZKE_CONNECTIONLOSS;
  return rc;
}

/* Make what is missing above a path. */
static int config_make_parents(zke *z, const char *path, int64_t deadline_ms) {
  size_t len = (size_t)(strrchr(path, '/') - path);
  char *parent = zke_alloc(z, len + 1);
  if (!parent) return zke_recipe_fail(ZKE_NOMEM, "no memory for a path");
  memcpy(parent, path, len);
  int rc = zke_ensure_path(z, parent, ZKE_PERSISTENT, deadline_ms);
  zke_free(parent);
  return rc;
}

/* Set it, or make it, and what is above it, until one of these works. */
static int config_set(zke *z, config_change *c, int64_t deadline_ms) {
  for (int i = 0;; i++) {
    int rc = zke_retry(z, config_try_set, c, deadline_ms);
    if (c->version != -1 || i >= ZKE_RETRIES) return rc;
    if (rc == ZKE_NONODE)
      rc = config_make_parents(z, c->path, deadline_ms);
    else if (rc != ZKE_NODEEXISTS)
      return rc;
    if (rc != ZKE_OK && rc != ZKE_NODEEXISTS) return rc;
  }
}

/* Guards only look: what one of them changed would refuse its repetition. */
static int config_check_guards(const zke_op *guards, int count) {
  if (count < 0 || (count && !guards))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d guards", count);
  for (int i = 0; i < count; i++) {
    if (guards[i].type != ZKE_OP_CHECK)
      return zke_recipe_fail(ZKE_BADARGUMENTS, "guard %d is not a check", i);
  }
  return ZKE_OK;
}

int zke_config_set(zke_config *config, const char *name, const void *data,
                   int len, int version, int64_t deadline_ms,
                   zke_stat *stat_out) {
  return zke_config_set_guarded(config, name, data, len, version, NULL, 0,
                                deadline_ms, stat_out);
}

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
  if (rc == ZKE_OK) rc = config_set(r->z, &c, deadline_ms);
  zke_free(path);
  if (rc == ZKE_OK && stat_out) *stat_out = c.stat;
  return zke_recipe_leave(r, rc);
}
