/* run.c - one run of operations on both sides
 *
 * Each run begins with equal trees (tree.c).  Then both sides do the same, one
 * operation at a time.  After each one its replies are compared, and the events
 * that its session got up to the reply.  At the end every node is inspected.
 */
#include "conformance.h"

#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int64_t cf_events_compared, cf_replies_compared;

/* A session on both sides. */
typedef struct seat {
  const cf_driver *driver;
  void *server; /* NULL: no session */
  cf_zke *z;
  bool dead;
  cf_paths taken_back; /* from these the C client has removed one watcher */
} seat;

typedef struct run {
  const cf_plan *plan;
  cf_tree tree;
  cf_compare *compare;
  seat seats[CF_SEATS + 1];
  bool verbose;
  const char *why; /* the mismatch, in memory of the operation */
} run;

/* ---- sessions ---- */

static void open_seat(run *r, int i) {
  seat *s = &r->seats[i];
  const cf_seat_plan *plan = &r->plan->seat[i];
  const char *chroot = plan->chroot ? CF_BASE : "";
  s->driver = plan->client ? &cf_client_driver : &cf_raw_driver;
  s->server = s->driver->open(chroot);
  s->z = cf_zke_open(r->tree.store, chroot, plan->sibling);
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

/* Get and compare all events of all sessions. */
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

/* Close both sides; events of the sessions' own ends are dropped. */
static bool close_seat(run *r, int i) {
  seat *s = &r->seats[i];
  int server = s->driver->close(s->server), z = cf_zke_close(s->z);
  s->server = NULL;
  s->z = NULL;
  cf_paths_free(&s->taken_back);
  if (server != z)
    r->why = cf_text("close: ZooKeeper %d, zkembed %d", server, z);
  return server == z;
}

/* End a session: events before the end are compared in order, and its own
 * separately. */
static bool end_seat(run *r, const cf_op *op) {
  seat *s = &r->seats[op->seat];
  if (!flush(r, false)) return false;
  cf_note_end(s->dead ? CF_CLOSE : op->kind);
  if (op->kind == CF_CLOSE || s->dead) {
    if (!close_seat(r, op->seat)) return false;
  } else {
    s->driver->expire(s->server, op->kind == CF_KILL);
    cf_must(zke_expire(cf_store_anchor(r->tree.store), cf_zke_id(s->z)),
            "zke_expire");
    if (cf_ensemble) cf_zke_await_end(s->z);
    s->dead = true;
  }
  return flush(r, true);
}

/* Fill in what depends on the tree, and on whether the session lives. */
static void resolve(run *r, cf_op *op) {
  cf_resolve(&r->tree, op);
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

/* Has the server removed, without an event, a watch that the engine for
 * ensembles keeps, as the C client does? */
static bool spent_watch(const run *r, const cf_op *op, int server, int z) {
  if (!cf_ensemble || r->plan->quiet || op->kind != CF_REMOVE_WATCH ||
      server != ZKE_NOWATCHER || z != ZKE_OK)
    return false;
  cf_mask_used[CF_MASK_SILENCED]++;
  return true;
}

/* Did the C client leave a watch on the server that zkembed does not know? */
static bool left_watch(seat *s, const cf_op *op, int server, int z) {
  if (op->kind != CF_REMOVE_WATCH || s->driver != &cf_client_driver)
    return false;
  if (op->watch && server == ZKE_OK && z == ZKE_OK)
    cf_paths_add(&s->taken_back, op->path);
  if (op->watch || server != ZKE_OK || z != ZKE_NOWATCHER ||
      !cf_paths_have(&s->taken_back, op->path))
    return false;
  cf_mask_used[CF_MASK_LEFT_WATCH]++;
  return true;
}

/* Before these operations zkembed must have dispatched: a new identity applies
 * to later events; watches are removed or changed (masks PENDING and
 * MODE_CHANGE). */
static bool must_listen(const cf_op *op) {
  return op->kind == CF_ADD_AUTH || op->kind == CF_REMOVE_WATCH ||
         op->kind == CF_ADD_WATCH;
}

/* Nodes that the engine for ensembles makes are not counted. */
static void leave_out_sessions(const run *r, const cf_op *op, cf_reply *z) {
  bool top = op->path && strcmp(op->path, "/") == 0;
  if (!cf_ensemble || !top || r->plan->seat[op->seat].chroot) return;
  cf_mask_used[CF_MASK_SHOWN]++;
  z->number -= cf_ensemble_hidden(r->tree.other);
}

static bool compare_call(run *r, int at, const cf_op *op) {
  seat *s = &r->seats[op->seat];
  cf_reply server, z;
  if (op->listen_first || must_listen(op)) cf_zke_listen(s->z);
  s->driver->call(s->server, op, &server);
  cf_zke_call(s->z, op, &z);
  if (op->kind == CF_COUNT) leave_out_sessions(r, op, &z);
  say(r, at, op, &server, &z);
  cf_replies_compared++;
  cf_note_watched(&r->tree, op);
  if (op->kind == CF_ADD_AUTH && server.rc == ZKE_AUTHFAILED) s->dead = true;
  bool left =
      left_watch(s, op, server.rc, z.rc) || spent_watch(r, op, server.rc, z.rc);
  r->why = left ? NULL : cf_compare_reply(r->compare, op, &server, &z);
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

/* Inspect one node in every way, as a session with all identities. */
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
  if (cf_ensemble) return true; /* the server checks itself */
  last->kind = CF_CHECK;
  int rc = zke_check(cf_store_anchor(r->tree.store), violated, r);
  if (rc != ZKE_OK && !r->why) r->why = cf_text("zke_check: %d", rc);
  return rc == ZKE_OK;
}

/* All nodes, all events, the invariants of the file, the closes. */
static bool finish(run *r, cf_op *last) {
  cf_paths all = {0};
  *last = (cf_op){.kind = CF_FLUSH, .pick = -1, .revisit = -1};
  bool same = flush(r, false) && take_identities(r, last);
  if (same) cf_tree_list(&r->tree, &all);
  for (int i = 0; i < all.count && same; i++) {
    cf_reset();
    if (cf_ensemble_hides(all.at[i])) continue;
    same = look_over(r, all.at[i], last);
  }
  same = same && check_store(r, last);
  for (int i = 0; i <= CF_SEATS && same; i++) {
    *last = (cf_op){.kind = CF_CLOSE, .seat = i, .pick = -1, .revisit = -1};
    if (r->seats[i].server) same = end_seat(r, last);
  }
  if (last->path) last->path = cf_text("%s", last->path);
  cf_paths_free(&all);
  return same;
}

/* ---- a whole run ---- */

static void begin(run *r) {
  cf_tree_begin(&r->tree, r->plan);
  r->compare = cf_compare_new();
}

static void end(run *r) {
  for (int i = 0; i <= CF_SEATS; i++) {
    if (r->seats[i].server) close_seat(r, i);
  }
  cf_compare_free(r->compare);
  cf_tree_end(&r->tree);
  cf_reset();
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
  if (!same) cf_tell(&op, at - 1, r.why, out);
  end(&r);
  return !same;
}
