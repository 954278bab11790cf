/* run.c - one run of operations on both sides
 *
 * The server is shared by all runs, so a run begins by clearing it and by
 * bringing a fresh database of zkembed to the same counters on the nodes that
 * cannot be made anew ("/" and "/zookeeper"), and only then makes CF_BASE.
 * From there on both sides do the same, one operation at a time; after each
 * one the replies are compared and the events that its session has got up to
 * the reply.  At the end every node is looked at.
 */
#include "conformance.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *cf_directory;
int64_t cf_events_compared, cf_replies_compared;

/* A growing list of paths. */
typedef struct paths {
  char **at;
  int count, cap;
} paths;

static void paths_add(paths *p, const char *path) {
  if (p->count == p->cap) {
    p->cap = 2 * p->cap + 64;
    p->at = realloc(p->at, (size_t)p->cap * sizeof *p->at);
  }
  if (!p->at || !(p->at[p->count++] = strdup(path))) cf_die("out of memory");
}

static bool paths_have(const paths *p, const char *path) {
  for (int i = 0; i < p->count; i++) {
    if (strcmp(p->at[i], path) == 0) return true;
  }
  return false;
}

static void paths_free(paths *p) {
  for (int i = 0; i < p->count; i++) free(p->at[i]);
  free(p->at);
  *p = (paths){0};
}

/* A session on both sides. */
typedef struct seat {
  const cf_driver *driver;
  void *server; /* NULL: no session */
  cf_zke *z;
  bool dead;
  paths taken_back; /* from which the C client has taken one watcher back */
} seat;

/* A path that was watched, as the server knows it. */
typedef struct watched {
  int seat;
  char *path;
} watched;

enum { RECENT = 24 };

typedef struct run {
  const cf_plan *plan;
  cf_raw *control; /* a super user's session on the server */
  cf_store *store;
  cf_compare *compare;
  seat seats[CF_SEATS + 1];
  watched recent[RECENT]; /* a ring */
  unsigned recent_at;
  bool verbose;
  const char *why; /* the mismatch, in memory of the operation */
} run;

/* ---- the server's tree, by the super user ---- */

enum { SPECIALS = 3 };
static const char *const specials[SPECIALS] = {"/", "/zookeeper",
                                               "/zookeeper/quota"};

static void control_call(run *r, const cf_op *op, cf_reply *reply) {
  cf_raw_call(r->control, op, reply);
  if (reply->rc != ZKE_OK)
    cf_die("control: %s gives %d", cf_describe(op), reply->rc);
}

static void become_super(run *r) {
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

/* All nodes of the server, parents before children. */
static void list_tree(run *r, paths *out) {
  paths_add(out, "/");
  for (int i = 0; i < out->count; i++) {
    cf_op op = {.kind = CF_CHILDREN, .path = out->at[i]};
    cf_reply reply;
    control_call(r, &op, &reply);
    const char *parent = i ? out->at[i] : "";
    for (int k = 0; k < reply.names.count; k++)
      paths_add(out, cf_text("%s/%s", parent, reply.names.data[k]));
    cf_reset();
  }
}

static void clear_server(run *r) {
  paths all = {0};
  list_tree(r, &all);
  for (int i = all.count; i-- > 0;) {
    cf_op op = {.kind = CF_DELETE, .path = all.at[i], .version = -1};
    cf_reply reply;
    if (!is_special(all.at[i])) control_call(r, &op, &reply);
    cf_reset();
  }
  paths_free(&all);
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

/* One counter of one special node, behind which a zxid stands. */
typedef struct lag {
  const char *path;
  bool children; /* children made, else version */
  int64_t zxid;  /* the server's */
  int64_t steps; /* that zkembed lags behind */
  const char *data;
  int len;
} lag;

static void must(int rc, const char *what) {
  if (rc != ZKE_OK)
    cf_die("%s: %s: %s", what, zke_error_name(rc), zke_errmsg());
}

static int64_t creates(const zke_stat *s) {
  return ((int64_t)s->cversion + s->numChildren) / 2;
}

/* Fill in the two lags of a node; catches up with its ACL's version. */
static void find_lags(run *r, const char *path, lag two[2]) {
  zke *z = cf_store_anchor(r->store);
  cf_op op = {.kind = CF_GET, .path = path};
  cf_reply reply;
  zke_stat here;
  control_call(r, &op, &reply);
  must(zke_exists(z, path, NULL, NULL, &here), path);
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
    must(zke_set_acl(z, path, -1, ZKE_OPEN_ACL, NULL), path);
}

/* Append what takes one step. */
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

/* All steps but the last, whose data stays. */
static void catch_up_most(zke *z, const lag *l) {
  enum { MOST = 500 };
  zke_op ops[2 * MOST];
  lag light = *l;
  light.len = 0;
  for (int64_t left = l->steps - 1; left > 0;) {
    int count = 0;
    for (int i = 0; i < MOST && left > 0; i++, left--)
      count += add_step(&light, ops + count);
    must(zke_multi(z, ops, count, NULL), l->path);
  }
}

static int by_zxid(const void *a, const void *b) {
  const lag *x = a, *y = b;
  return x->zxid < y->zxid ? -1 : x->zxid > y->zxid;
}

/* The last changes come in the server's order, and together where they were
 * one change there. */
static void catch_up(run *r) {
  zke *z = cf_store_anchor(r->store);
  lag lags[2 * SPECIALS];
  for (int i = 0; i < SPECIALS; i++) find_lags(r, specials[i], &lags[2 * i]);
  qsort(lags, 2 * SPECIALS, sizeof *lags, by_zxid);
  for (int i = 0, end; i < 2 * SPECIALS; i = end) {
    zke_op ops[4 * SPECIALS];
    int count = 0;
    for (end = i; end < 2 * SPECIALS && lags[end].zxid == lags[i].zxid; end++) {
      if (lags[end].steps <= 0) continue;
      catch_up_most(z, &lags[end]);
      count += add_step(&lags[end], ops + count);
    }
    if (count) must(zke_multi(z, ops, count, NULL), "catching up");
  }
  cf_reset();
}

/* ---- sessions ---- */

static void open_seat(run *r, int i) {
  seat *s = &r->seats[i];
  const cf_seat_plan *plan = &r->plan->seat[i];
  const char *chroot = plan->chroot ? CF_BASE : "";
  s->driver = plan->client ? &cf_client_driver : &cf_raw_driver;
  s->server = s->driver->open(chroot);
  s->z = cf_zke_open(r->store, chroot, plan->sibling);
  s->dead = false;
  cf_compare_session(r->compare, s->driver->id(s->server), cf_zke_id(s->z));
}

/* Compare the events that a session has got; true: equal. */
static bool compare_events(run *r, int i, bool any_order) {
  seat *s = &r->seats[i];
  cf_events server = {0}, z = {0};
  s->driver->events(s->server, &server);
  cf_zke_events(s->z, &z);
  unsigned how = any_order ? CF_ANY_ORDER : 0;
  if (s->driver == &cf_client_driver)
    how |= r->plan->quiet ? CF_BY_CLIENT : CF_BY_CLIENT | CF_SILENCED;
  const char *why = cf_compare_events(how, &server, &z);
  cf_events_compared += server.count;
  cf_events_free(&server);
  cf_events_free(&z);
  if (why) r->why = cf_text("%s\n    of session %d", why, i);
  return !why;
}

/* Have and compare all events of all sessions. */
static bool flush(run *r, bool any_order) {
  bool same = true;
  for (int i = 0; i <= CF_SEATS && same; i++) {
    seat *s = &r->seats[i];
    if (!s->server) continue;
    if (!s->dead) s->driver->flush(s->server);
    same = compare_events(r, i, any_order);
  }
  return same;
}

/* Close both sides; what the sessions themselves hear of it is dropped. */
static bool close_seat(run *r, int i) {
  seat *s = &r->seats[i];
  int server = s->driver->close(s->server), z = cf_zke_close(s->z);
  s->server = NULL;
  s->z = NULL;
  paths_free(&s->taken_back);
  if (server != z)
    r->why = cf_text("close: ZooKeeper %d, zkembed %d", server, z);
  return server == z;
}

/* Ends of sessions: events are compared up to it, and those of it apart. */
static bool end_seat(run *r, const cf_op *op) {
  seat *s = &r->seats[op->seat];
  if (!flush(r, false)) return false;
  cf_note_end(s->dead ? CF_CLOSE : op->kind);
  if (op->kind == CF_CLOSE || s->dead) {
    if (!close_seat(r, op->seat)) return false;
  } else {
    s->driver->expire(s->server, op->kind == CF_KILL);
    must(zke_expire(cf_store_anchor(r->store), cf_zke_id(s->z)), "zke_expire");
    s->dead = true;
  }
  return flush(r, true);
}

/* ---- filling in what depends on the tree ---- */

static const char *seat_chroot(const run *r, const cf_op *op) {
  return r->plan->seat[op->seat].chroot ? CF_BASE : "";
}

static void note_watched(run *r, const cf_op *op) {
  watched *w = &r->recent[r->recent_at % RECENT];
  if (!op->watch && op->kind != CF_ADD_WATCH) return;
  if (!cf_client_passes(op)) return;
  free(w->path);
  w->seat = op->seat;
  w->path = strdup(cf_whole(seat_chroot(r, op), op->path));
  if (!w->path) cf_die("out of memory");
  r->recent_at++;
}

/* A path that was watched; one's own where a watch is to be taken back. */
static void revisit(run *r, cf_op *op) {
  size_t base = strlen(seat_chroot(r, op));
  for (unsigned i = 0; i < RECENT; i++) {
    const watched *w = &r->recent[((unsigned)op->revisit + i) % RECENT];
    bool own = w->seat == op->seat;
    if (!w->path || (op->kind == CF_REMOVE_WATCH && !own)) continue;
    if (strncmp(w->path, CF_BASE, base) != 0) continue;
    if (base && w->path[base] != '/') continue;
    op->path = cf_text("%s", w->path + base);
    op->pick = -1;
    return;
  }
}

/* The k-th child of the path's parent in place of the name. */
static void pick_child(run *r, cf_op *op) {
  const char *slash = op->path ? strrchr(op->path, '/') : NULL;
  if (!slash || op->path[0] != '/') return;
  size_t len = slash == op->path ? 1 : (size_t)(slash - op->path);
  const char *parent = cf_copy(op->path, len);
  zke_strings *names = NULL;
  if (zke_children(cf_store_anchor(r->store),
                   cf_whole(seat_chroot(r, op), parent), NULL, NULL, &names,
                   NULL) != ZKE_OK)
    return;
  if (names->count) {
    const char *name = names->data[op->pick % names->count];
    op->path = cf_text("%s/%s%s%s", len == 1 ? "" : parent, name,
                       op->below ? "/" : "", op->below ? op->below : "");
  }
  zke_free(names);
}

/* version becomes the current one plus what it was. */
static void current_version(run *r, cf_op *op) {
  zke_stat stat = {0};
  if (op->path && op->path[0] == '/')
    zke_exists(cf_store_anchor(r->store),
               cf_whole(seat_chroot(r, op), op->path), NULL, NULL, &stat);
  int32_t now = op->kind == CF_SET_ACL ? stat.aversion : stat.version;
  op->version = (int)((unsigned)now + (unsigned)op->version);
}

/* One path of a session has one-shot watches or staying ones, not both. */
static bool stays_here(const cf_op *op) {
  unsigned hash = (unsigned)op->seat * 77u + 5381u;
  for (const char *at = op->path; *at; at++)
    hash = hash * 33u ^ (unsigned char)*at;
  return hash % 3 == 0;
}

static void separate_watches(run *r, cf_op *op) {
  if (r->plan->seat[op->seat].client || !op->path) return;
  bool stays = stays_here(op);
  if (op->kind == CF_ADD_WATCH && !stays) {
    op->kind = CF_EXISTS;
    op->watch = 1;
  } else if (op->kind != CF_ADD_WATCH && stays) {
    op->watch = 0;
  }
}

static void resolve(run *r, cf_op *op) {
  for (int i = 0; i < op->count; i++) resolve(r, &op->subs[i]);
  if (op->revisit >= 0) revisit(r, op);
  if (op->pick >= 0) pick_child(r, op);
  if (op->version_rule == CF_CURRENT) current_version(r, op);
  separate_watches(r, op);
  if (r->seats[op->seat].dead && (op->revive || op->kind > CF_ADD_AUTH))
    op->kind = CF_CLOSE;
}

/* ---- one operation ---- */

static void say(const run *r, int at, const cf_op *op, const cf_reply *server,
                const cf_reply *z) {
  const seat *s = &r->seats[op->seat];
  if (!r->verbose) return;
  printf("  %4d  %s%d%s %s\n", at, s->driver->name, op->seat,
         r->plan->seat[op->seat].chroot ? " below " CF_BASE : "",
         cf_describe(op));
  if (server) {
    printf("          ZooKeeper %s\n", cf_describe_reply(server));
    printf("          zkembed   %s\n", cf_describe_reply(z));
  }
}

/* Did the C client leave a watch on the server that zkembed does not know? */
static bool left_watch(seat *s, const cf_op *op, int server, int z) {
  if (op->kind != CF_REMOVE_WATCH || s->driver != &cf_client_driver)
    return false;
  if (op->watch && server == ZKE_OK && z == ZKE_OK)
    paths_add(&s->taken_back, op->path);
  if (op->watch || server != ZKE_OK || z != ZKE_NOWATCHER ||
      !paths_have(&s->taken_back, op->path))
    return false;
  cf_mask_left_watch();
  return true;
}

/* Operations before which zkembed must have dispatched: an identity counts for
 * events from then on; watches taken back or changed (masks PENDING and
 * MODE_CHANGE). */
static bool must_listen(const cf_op *op) {
  return op->kind == CF_ADD_AUTH || op->kind == CF_REMOVE_WATCH ||
         op->kind == CF_ADD_WATCH;
}

static bool compare_call(run *r, int at, const cf_op *op) {
  seat *s = &r->seats[op->seat];
  cf_reply server, z;
  if (op->listen_first || must_listen(op)) cf_zke_listen(s->z);
  s->driver->call(s->server, op, &server);
  cf_zke_call(s->z, op, &z);
  say(r, at, op, &server, &z);
  cf_replies_compared++;
  note_watched(r, op);
  if (op->kind == CF_ADD_AUTH && server.rc == ZKE_AUTHFAILED) s->dead = true;
  r->why = left_watch(s, op, server.rc, z.rc)
               ? NULL
               : cf_compare_reply(r->compare, op, &server, &z);
  return !r->why && (server.local || compare_events(r, op->seat, false));
}

/* true: both sides agree. */
static bool step(run *r, int at, cf_op *op) {
  if (!r->seats[op->seat].server) open_seat(r, op->seat);
  resolve(r, op);
  if (op->kind == CF_CLOSE || op->kind == CF_EXPIRE || op->kind == CF_KILL) {
    say(r, at, op, NULL, NULL);
    return end_seat(r, op);
  }
  if (op->kind == CF_FLUSH) {
    say(r, at, op, NULL, NULL);
    return flush(r, false);
  }
  return compare_call(r, at, op);
}

/* ---- the end of a run ---- */

/* Look at one node in every way, as a session with all identities. */
static bool look_over(run *r, const char *path, cf_op *last) {
  static const cf_kind ways[] = {CF_EXISTS, CF_GET, CF_CHILDREN, CF_GET_ACL,
                                 CF_COUNT};
  bool same = true;
  for (size_t i = 0; i < sizeof ways / sizeof *ways && same; i++) {
    *last = (cf_op){.kind = ways[i],
                    .seat = CF_SEATS,
                    .path = path,
                    .whole = true,
                    .pick = -1,
                    .revisit = -1};
    same = step(r, -1, last);
  }
  return same;
}

static bool take_identities(run *r, cf_op *last) {
  bool same = true;
  for (int i = 0; i < CF_USERS && same; i++) {
    *last = (cf_op){.kind = CF_ADD_AUTH,
                    .seat = CF_SEATS,
                    .pick = -1,
                    .revisit = -1,
                    .scheme = "digest",
                    .data = cf_user(i),
                    .len = (int)strlen(cf_user(i))};
    same = step(r, -1, last);
  }
  return same;
}

static void violated(void *arg, const char *sentence) {
  run *r = arg;
  r->why = cf_text("zke_check: %s", sentence);
}

static bool check_store(run *r, cf_op *last) {
  last->kind = CF_CHECK;
  int rc = zke_check(cf_store_anchor(r->store), violated, r);
  if (rc != ZKE_OK && !r->why) r->why = cf_text("zke_check: %d", rc);
  return rc == ZKE_OK;
}

/* All nodes, all events, the invariants of the file, the closes. */
static bool finish(run *r, cf_op *last) {
  paths all = {0};
  *last = (cf_op){.kind = CF_FLUSH, .pick = -1, .revisit = -1};
  bool same = flush(r, false) && take_identities(r, last);
  if (same) list_tree(r, &all);
  for (int i = 0; i < all.count && same; i++) {
    cf_reset();
    same = look_over(r, all.at[i], last);
  }
  same = same && check_store(r, last);
  for (int i = 0; i <= CF_SEATS && same; i++) {
    *last = (cf_op){.kind = CF_CLOSE, .seat = i, .pick = -1, .revisit = -1};
    if (r->seats[i].server) same = end_seat(r, last);
  }
  if (last->path) last->path = cf_text("%s", last->path);
  paths_free(&all);
  return same;
}

/* ---- a whole run ---- */

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

/* A database in an empty directory. */
static const char *fresh_file(void) {
  const char *directory = cf_text("%s/run", cf_directory);
  nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
  if (mkdir(directory, 0700) != 0) cf_die("cannot make %s", directory);
  return cf_text("%s/zke.db", directory);
}

static void begin(run *r) {
  cf_op base = {
      .kind = CF_CREATE, .path = CF_BASE, .data = "", .acls = zke_open_acl};
  cf_reply reply;
  r->control = cf_raw_open("");
  become_super(r);
  clear_server(r);
  r->store = cf_store_open(r->plan->file ? fresh_file() : NULL);
  r->compare = cf_compare_new();
  catch_up(r);
  control_call(r, &base, &reply);
  must(zke_create(cf_store_anchor(r->store), CF_BASE, "", 0, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT, NULL, NULL),
       CF_BASE);
}

static void end(run *r) {
  for (int i = 0; i <= CF_SEATS; i++) {
    if (r->seats[i].server) close_seat(r, i);
  }
  for (int i = 0; i < RECENT; i++) free(r->recent[i].path);
  cf_raw_close(r->control);
  cf_compare_free(r->compare);
  cf_store_close(r->store);
  cf_reset();
}

/* Events may be compared at one operation or another: they have no kind. */
static void tell(const run *r, const cf_op *op, int at, cf_mismatch *out) {
  int len = (int)strcspn(r->why, ":");
  bool events = strncmp(r->why, "events", 6) == 0;
  out->at = at;
  snprintf(out->field, sizeof out->field, "%s %.*s",
           events ? "any" : cf_kind_name(op->kind), len, r->why);
  out->text = strdup(cf_text("%s\n    %s", cf_describe(op), r->why));
  if (!out->text) cf_die("out of memory");
}

bool cf_run(const cf_plan *plan, const int *indices, int count, bool verbose,
            cf_mismatch *out) {
  run r = {.plan = plan, .verbose = verbose};
  cf_op op = {0};
  bool same = true;
  int at;
  begin(&r);
  for (at = 0; at < count && same; at++) {
    cf_reset();
    cf_generate(plan, indices[at], &op);
    same = step(&r, indices[at], &op);
  }
  if (same) {
    same = finish(&r, &op);
    at = count + 1;
  }
  if (!same) tell(&r, &op, at - 1, out);
  end(&r);
  return !same;
}
