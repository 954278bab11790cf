/* tree.c - the tree of a run: its start, and what operations need of it
 *
 * All runs share the server.  A run begins by clearing it.  Then it brings a
 * new zkembed database to the same counters on the nodes that cannot be made
 * anew ("/" and "/zookeeper"), and only then makes CF_BASE.
 *
 * Parts of an operation that depend on the tree (an existing child, the current
 * version, a recently watched path) are filled in from zkembed's side just
 * before it runs.
 */
#include "conformance.h"
#include "test/program.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *cf_directory;

/* ---- lists of paths ---- */

void cf_paths_add(cf_paths *p, const char *path) {
  if (p->count == p->cap) {
    p->cap = 2 * p->cap + 64;
    p->at = realloc(p->at, (size_t)p->cap * sizeof *p->at);
  }
  if (!p->at || !(p->at[p->count++] = strdup(path))) cf_die("out of memory");
}

bool cf_paths_have(const cf_paths *p, const char *path) {
  for (int i = 0; i < p->count; i++) {
    if (strcmp(p->at[i], path) == 0) return true;
  }
  return false;
}

void cf_paths_free(cf_paths *p) {
  for (int i = 0; i < p->count; i++) free(p->at[i]);
  free(p->at);
  *p = (cf_paths){0};
}

/* ---- the server's tree, by the super user ---- */

enum { SPECIALS = 3 };
static const char *const specials[SPECIALS] = {"/", "/zookeeper",
                                               "/zookeeper/quota"};

static void control_call(cf_raw *r, const cf_op *op, cf_reply *reply) {
  cf_raw_call(r, op, reply);
  if (reply->rc != ZKE_OK)
    cf_die("control: %s gives %d", cf_describe(op), reply->rc);
}

static void become_super(cf_raw *r) {
  static const char user[] = "super:conformance";
  cf_op op = {.kind = CF_ADD_AUTH,
              .scheme = "digest",
              .data = user,
              .len = (int)sizeof user - 1};
  cf_reply reply;
  control_call(r, &op, &reply);
}

static bool is_special(const char *path) {
  for (int i = 0; i < SPECIALS; i++) {
    if (strcmp(path, specials[i]) == 0) return true;
  }
  return strcmp(path, "/zookeeper/config") == 0;
}

/* All nodes of a server, parents before children. */
static void list_nodes(cf_raw *r, cf_paths *out) {
  cf_paths_add(out, "/");
  for (int i = 0; i < out->count; i++) {
    cf_op op = {.kind = CF_CHILDREN, .path = out->at[i]};
    cf_reply reply;
    control_call(r, &op, &reply);
    const char *parent = i ? out->at[i] : "";
    for (int k = 0; k < reply.names.count; k++)
      cf_paths_add(out, cf_text("%s/%s", parent, reply.names.data[k]));
    cf_reset();
  }
}

void cf_tree_list(cf_tree *t, cf_paths *out) { list_nodes(t->control, out); }

static void clear_server(cf_raw *r) {
  cf_paths all = {0};
  list_nodes(r, &all);
  for (int i = all.count; i-- > 0;) {
    cf_op op = {.kind = CF_DELETE, .path = all.at[i], .version = -1};
    cf_reply reply;
    if (!is_special(all.at[i])) control_call(r, &op, &reply);
    cf_reset();
  }
  cf_paths_free(&all);
  for (int i = 0; i < SPECIALS; i++) {
    cf_op look = {.kind = CF_GET_ACL, .path = specials[i]};
    cf_op open = {.kind = CF_SET_ACL,
                  .path = specials[i],
                  .acls = zke_open_acl,
                  .version = -1};
    cf_reply reply;
    control_call(r, &look, &reply);
    const zke_acl *a = reply.acls.data;
    if (reply.acls.count != 1 || a->perms != ZKE_PERM_ALL ||
        strcmp(a->scheme, "world") != 0)
      control_call(r, &open, &reply);
    cf_reset();
  }
}

/* ---- bringing zkembed's special nodes to the server's state ---- */

/* One counter of one special node; its last change has a zxid. */
typedef struct lag {
  const char *path;
  bool children; /* creations of children, else version */
  int64_t zxid;  /* the server's */
  int64_t steps; /* how far zkembed lags behind */
  const char *data;
  int len;
} lag;

void cf_must(int rc, const char *what) {
  if (rc != ZKE_OK)
    cf_die("%s: %s: %s", what, zke_error_name(rc), zke_errmsg());
}

static int64_t creates(const zke_stat *s) {
  return ((int64_t)s->cversion + s->numChildren) / 2;
}

/* Fill in the two lags of a node; sets its ACL until the versions agree. */
static void find_lags(cf_tree *t, const char *path, lag two[2]) {
  zke *z = cf_store_anchor(t->store);
  cf_op op = {.kind = CF_GET, .path = path};
  cf_reply reply;
  zke_stat here;
  control_call(t->control, &op, &reply);
  cf_must(zke_exists(z, path, NULL, NULL, &here), path);
  two[0] = (lag){.path = path,
                 .children = true,
                 .zxid = reply.stat.pzxid,
                 .steps = creates(&reply.stat) - creates(&here)};
  two[1] = (lag){.path = path,
                 .zxid = reply.stat.mzxid,
                 .steps = (int64_t)reply.stat.version - here.version,
                 .data = reply.data,
                 .len = reply.len};
  for (int i = here.aversion; i < reply.stat.aversion; i++)
    cf_must(zke_set_acl(z, path, -1, ZKE_OPEN_ACL, NULL), path);
}

/* Append the operations of one step. */
static int add_step(const lag *l, zke_op *ops) {
  if (!l->children) {
    zke_op_set(&ops[0], l->path, l->data, l->len, -1);
    return 1;
  }
  const char *child = cf_whole(l->path[1] ? l->path : "", "/catch-up");
  zke_op_create(&ops[0], child, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_delete(&ops[1], child, -1);
  return 2;
}

/* All steps but the last one, whose data stays. */
static void catch_up_most(zke *z, const lag *l) {
  enum { MOST = 500 };
  zke_op ops[2 * MOST];
  lag light = *l;
  light.len = 0;
  for (int64_t left = l->steps - 1; left > 0;) {
    int count = 0;
    for (int i = 0; i < MOST && left > 0; i++, left--)
      count += add_step(&light, ops + count);
    cf_must(zke_multi(z, ops, count, NULL), l->path);
  }
}

static int by_zxid(const void *a, const void *b) {
  const lag *x = a, *y = b;
  return x->zxid < y->zxid ? -1 : x->zxid > y->zxid;
}

/* The last changes come in the server's order, and together if they were one
 * change there. */
static void catch_up(cf_tree *t) {
  zke *z = cf_store_anchor(t->store);
  lag lags[2 * SPECIALS];
  for (int i = 0; i < SPECIALS; i++) find_lags(t, specials[i], &lags[2 * i]);
  qsort(lags, 2 * SPECIALS, sizeof *lags, by_zxid);
  for (int i = 0, end; i < 2 * SPECIALS; i = end) {
    zke_op ops[4 * SPECIALS];
    int count = 0;
    for (end = i; end < 2 * SPECIALS && lags[end].zxid == lags[i].zxid; end++) {
      if (lags[end].steps <= 0) continue;
      catch_up_most(z, &lags[end]);
      count += add_step(&lags[end], ops + count);
    }
    if (count) cf_must(zke_multi(z, ops, count, NULL), "catching up");
  }
  cf_reset();
}

/* ---- filling in what depends on the tree ---- */

static const char *seat_chroot(const cf_tree *t, const cf_op *op) {
  return t->plan->seat[op->seat].chroot ? CF_BASE : "";
}

void cf_note_watched(cf_tree *t, const cf_op *op) {
  cf_watched *w = &t->recent[t->recent_at % CF_RECENT];
  if (!op->watch && op->kind != CF_ADD_WATCH) return;
  if (!cf_client_passes(op)) return;
  free(w->path);
  w->seat = op->seat;
  w->path = strdup(cf_whole(seat_chroot(t, op), op->path));
  if (!w->path) cf_die("out of memory");
  t->recent_at++;
}

/* Give the operation a path that was watched before.  If it removes a watch,
 * the path must be one that this session has watched. */
static void revisit(cf_tree *t, cf_op *op) {
  size_t base = strlen(seat_chroot(t, op));
  for (unsigned i = 0; i < CF_RECENT; i++) {
    const cf_watched *w = &t->recent[((unsigned)op->revisit + i) % CF_RECENT];
    bool own = w->seat == op->seat;
    if (!w->path || (op->kind == CF_REMOVE_WATCH && !own)) continue;
    if (strncmp(w->path, CF_BASE, base) != 0) continue;
    if (base && w->path[base] != '/') continue;
    op->path = cf_text("%s", w->path + base);
    op->pick = -1;
    return;
  }
}

/* Replace the name by the parent's k-th child. */
static void pick_child(cf_tree *t, cf_op *op) {
  const char *slash = op->path ? strrchr(op->path, '/') : NULL;
  if (!slash || op->path[0] != '/') return;
  size_t len = slash == op->path ? 1 : (size_t)(slash - op->path);
  const char *parent = cf_copy(op->path, len);
  zke_strings *names = NULL;
  if (zke_children(cf_store_anchor(t->store),
                   cf_whole(seat_chroot(t, op), parent), NULL, NULL, &names,
                   NULL) != ZKE_OK)
    return;
  const char *name = names->count ? names->data[op->pick % names->count] : NULL;
  if (name && !cf_ensemble_hides(cf_text("/%s", name))) {
    op->path = cf_text("%s/%s%s%s", len == 1 ? "" : parent, name,
                       op->below ? "/" : "", op->below ? op->below : "");
  }
  zke_free(names);
}

/* Add the current version to op->version. */
static void current_version(cf_tree *t, cf_op *op) {
  zke_stat stat = {0};
  if (op->path && op->path[0] == '/')
    zke_exists(cf_store_anchor(t->store),
               cf_whole(seat_chroot(t, op), op->path), NULL, NULL, &stat);
  int32_t now = op->kind == CF_SET_ACL ? stat.aversion : stat.version;
  op->version = (int)((unsigned)now + (unsigned)op->version);
}

/* A session's path has either one-shot or permanent watches. */
bool cf_stays_here(int seat, const char *path) {
  unsigned hash = (unsigned)seat * 77u + 5381u;
  for (const char *at = path; *at; at++) hash = hash * 33u ^ (unsigned char)*at;
  return hash % 3 == 0;
}

static void separate_watches(cf_tree *t, cf_op *op) {
  if (t->plan->seat[op->seat].client || !op->path) return;
  bool stays = cf_stays_here(op->seat, op->path);
  bool part = op->kind == CF_REMOVE_WATCH && op->type != ZKE_WATCH_ANY;
  if (cf_ensemble && part && stays) {
    cf_mask_used[CF_MASK_BOTH_TABLES]++;
    op->type = ZKE_WATCH_ANY;
  }
  if (op->kind == CF_ADD_WATCH && !stays) {
    op->kind = CF_EXISTS;
    op->watch = 1;
  } else if (op->kind != CF_ADD_WATCH && stays) {
    op->watch = 0;
  }
}

void cf_resolve(cf_tree *t, cf_op *op) {
  for (int i = 0; i < op->count; i++) cf_resolve(t, &op->subs[i]);
  if (op->revisit >= 0) revisit(t, op);
  if (op->pick >= 0) pick_child(t, op);
  if (op->version_rule == CF_CURRENT) current_version(t, op);
  separate_watches(t, op);
}

/* ---- start and end of a run ---- */

/* A database in an empty directory. */
static const char *fresh_file(void) {
  const char *directory = cf_text("%s/run", cf_directory);
  program_remove(directory);
  if (mkdir(directory, 0700) != 0) cf_die("cannot make %s", directory);
  return cf_text("%s/zke.db", directory);
}

/* A session with all permissions, on a server that it has cleared. */
static cf_raw *take_server(cf_raw *r) {
  become_super(r);
  clear_server(r);
  return r;
}

/* zkembed's side: a new database that catches up, or a cleared server. */
static void begin_store(cf_tree *t) {
  const char *file = t->plan->file ? fresh_file() : NULL;
  if (cf_ensemble) {
    t->other = take_server(cf_ensemble_control());
    cf_ensemble_choose(t->plan->seed);
    cf_ensemble_level(t->control, t->other);
    file = cf_ensemble;
  }
  t->file = file ? strdup(file) : NULL;
  t->store = cf_store_open(file);
  if (!cf_ensemble) catch_up(t);
}

void cf_tree_begin(cf_tree *t, const cf_plan *plan) {
  cf_op base = {
      .kind = CF_CREATE, .path = CF_BASE, .data = "", .acls = zke_open_acl};
  cf_reply reply;
  *t = (cf_tree){.plan = plan, .control = take_server(cf_raw_open(""))};
  begin_store(t);
  control_call(t->control, &base, &reply);
  cf_must(zke_create(cf_store_anchor(t->store), CF_BASE, "", 0, ZKE_OPEN_ACL,
                     ZKE_PERSISTENT, NULL, NULL),
          CF_BASE);
}

void cf_tree_end(cf_tree *t) {
  for (int i = 0; i < CF_RECENT; i++) free(t->recent[i].path);
  cf_raw_close(t->control);
  if (t->other) cf_raw_close(t->other);
  cf_store_close(t->store);
  free(t->file);
}
