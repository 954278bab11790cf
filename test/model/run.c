/* run.c - random operations on the engine and on the model, step by step
 *
 * Every result code, Stat, value, list and event of a step is compared, zxids
 * and times literally.  The steps are those of the conformance generator
 * without the restrictions that a server needs: any watch anywhere, lists with
 * NULL, nodes that become due.  A difference is shrunk to a few steps, which
 * are printed with the seed.  `make model` runs this on a tree in memory,
 * test_lab_tables on the laboratory's. */
#include "test/model/run.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAST = 12, CONTAINER_MS = 4000 };

int64_t run_steps_done, run_events_compared;

/* ---- steps ---- */

static uint64_t roll(uint64_t *state) {
  uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
  return z ^ z >> 31;
}

static int below(uint64_t *state, int n) {
  return (int)(roll(state) % (uint64_t)n);
}

#define ANY_OF(d, ...)                    \
  ((const int64_t[]){__VA_ARGS__})[below( \
      d, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))]

/* In a given tree, containers live for a minute, so all times are longer in
 * proportion. */
static int64_t scale(int64_t ms) { return run_engine.given ? 15 * ms : ms; }

/* Short times, so that they pass. */
static void vary_ttl(uint64_t *d, cf_op *op) {
  bool good = op->ttl_ms > 0 && op->ttl_ms <= ZKE_MAX_TTL;
  if (op->mode >= ZKE_PERSISTENT_WITH_TTL && good)
    op->ttl_ms = scale(ANY_OF(d, 1, 1000, 1001, 2000, 2001, 3000, 4000, 5000));
}

/* Prefer paths that exist, are below one that exists, or are watched. */
static void vary_op(uint64_t *d, const cf_plan *plan, cf_op *op) {
  for (int i = 0; i < op->count; i++) vary_op(d, plan, &op->subs[i]);
  int n = below(d, 100);
  if (n < 35 && op->kind <= CF_SET_ACL) op->pick = below(d, 1000);
  if (n < 35 && op->kind == CF_CREATE)
    op->below = plan->name[below(d, plan->names)];
  if (n >= 35 && n < 55) op->revisit = below(d, 1000);
  if (op->kind == CF_CREATE) vary_ttl(d, op);
  if (op->watch || op->kind == CF_ADD_WATCH) op->watch = 1 + below(d, 3);
  if (op->kind == CF_REMOVE_WATCH) op->watch = below(d, 4);
}

/* Draw the arguments that conformance does not have. */
static void make_arguments(uint64_t *d, const cf_plan *plan, run_step *s) {
  cf_op *op = &s->op;
  op->watch = 1 + below(d, 3);
  switch (s->extra) {
    case RUN_ADVANCE:
      s->number = scale(ANY_OF(d, 1001, 2000, 3000, 3999, 4000, 4001));
      break;
    case RUN_RAISE:
      s->number = ANY_OF(d, 0, 1, 5, 40, 100, -1, INT_MAX, INT_MAX - 1);
      break;
    case RUN_DISCARD:
      op->mode = (int)ANY_OF(d, 1, 1, 1, 3, 3, 0, 2);
      s->number = ANY_OF(d, 0, 0, 0, 1, -1);
      break;
    case RUN_CALL_AT:
      s->number = ANY_OF(d, 0, 1, 1001, 2000, 5000, ZKE_FOREVER);
      break;
    case RUN_AFTER:
      op->data = below(d, 4) ? plan->name[below(d, plan->names)] : "";
      op->len = (int)ANY_OF(d, 0, 0, 1, 2, 5, -1);
      break;
    case RUN_UNTOLD:
      op->len = (int)ANY_OF(d, 0, 1, 3, 100, 100, -1);
      break;
    case RUN_LOSE:
      op->type = below(d, 4);
      op->len = below(d, 3);
      break;
    case RUN_SET_WATCH:
    case RUN_CHECK_WATCH:
      op->type = below(d, 6);
      s->number = ANY_OF(d, 0, 1, 3, 10, 40, -1);
      break;
    case RUN_BATCH:
      op->len = 1 + below(d, 12);
      op->type = below(d, 4) ? ZKE_OK : ZKE_CANCELLED;
      break;
    default:
      break;
  }
}

/* An extra keeps the conformance operation's seat and path. */
static void make_step(const cf_plan *plan, int index, run_step *s) {
  static const int weights[] = {
#define WEIGHT(name, weight) weight,
      RUN_EXTRA_LIST(WEIGHT)
#undef WEIGHT
  };
  uint64_t d = plan->seed * UINT64_C(0x632be59bd9b4e019) + (uint64_t)index;
  *s = (run_step){0};
  cf_generate(plan, index, &s->op);
  vary_op(&d, plan, &s->op);
  s->twice = below(&d, 8) == 0;
  int n = below(&d, 10000);
  for (int i = 1; i < RUN_EXTRAS && !s->extra; i++)
    if ((n -= weights[i]) < 0) s->extra = (run_extra)i;
  if (!s->extra) return;
  s->op.kind = CF_CHECK;
  s->op.count = 0;
  make_arguments(&d, plan, s);
}

/* ---- a run ---- */

typedef struct seat {
  cf_zke *e, *m;
  bool dead;
} seat;

typedef struct run {
  const cf_plan *plan;
  run_clock clock;
  seat seats[CF_SEATS];
  char *recent[8]; /* whole paths that were watched */
  unsigned recent_at;
  char *why;
  char *told[LAST]; /* the last steps, as text */
  int told_at;
} run;

static char *keep(const char *text) {
  char *copy = strdup(text);
  if (!copy) cf_die("out of memory");
  return copy;
}

static void differs(run *r, const char *what, const char *engine,
                    const char *model) {
  free(r->why);
  r->why =
      keep(cf_text("%s\n    engine %s\n    model  %s", what, engine, model));
}

static const char *extra_name(run_extra extra) {
#define NAME(name, weight) #name,
  static const char *const names[] = {RUN_EXTRA_LIST(NAME)};
#undef NAME
  return names[extra];
}

static const char *describe(const run_step *s) {
  const cf_op *op = &s->op;
  if (!s->extra) return cf_describe(op);
  const char *path = op->path ? op->path : "NULL";
  return cf_text("%s %s number=%" PRId64 " len=%d mode=%d type=%d watch=%d",
                 extra_name(s->extra), cf_quote(path, (int)strlen(path)),
                 s->number, op->len, op->mode, op->type, op->watch);
}

static void tell(run *r, int at, const run_step *s, const cf_reply *m) {
  char **place = &r->told[r->told_at++ % LAST];
  free(*place);
  *place =
      keep(cf_text("  %4d  seat %d%s %s\n          %s", at, s->op.seat,
                   r->plan->seat[s->op.seat].chroot ? " below " CF_BASE : "",
                   describe(s), m ? cf_describe_reply(m) : ""));
}

/* ---- comparing ---- */

static bool same_stat(const zke_stat *a, const zke_stat *b) {
  return a->czxid == b->czxid && a->mzxid == b->mzxid && a->ctime == b->ctime &&
         a->mtime == b->mtime && a->version == b->version &&
         a->cversion == b->cversion && a->aversion == b->aversion &&
         a->ephemeralOwner == b->ephemeralOwner &&
         a->dataLength == b->dataLength && a->numChildren == b->numChildren &&
         a->pzxid == b->pzxid;
}

static bool same_text(const char *a, const char *b) {
  return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_data(const cf_reply *a, const cf_reply *b) {
  if (a->len != b->len || !a->data != !b->data) return false;
  return a->len <= 0 || !a->data ||
         memcmp(a->data, b->data, (size_t)a->len) == 0;
}

static bool same_names(const zke_strings *a, const zke_strings *b) {
  bool same = a->count == b->count;
  for (int i = 0; i < a->count && same; i++)
    same = strcmp(a->data[i], b->data[i]) == 0;
  return same;
}

static bool same_acls(const zke_acls *a, const zke_acls *b) {
  bool same = a->count == b->count;
  for (int i = 0; i < a->count && same; i++)
    same = a->data[i].perms == b->data[i].perms &&
           strcmp(a->data[i].scheme, b->data[i].scheme) == 0 &&
           strcmp(a->data[i].id, b->data[i].id) == 0;
  return same;
}

/* Are two replies the same, to the last number? */
static bool same_reply(const cf_reply *a, const cf_reply *b) {
  bool same = a->rc == b->rc && a->has_stat == b->has_stat &&
              a->has_names == b->has_names && a->has_acls == b->has_acls &&
              a->has_count == b->has_count && a->count == b->count &&
              a->number == b->number && same_text(a->path, b->path) &&
              same_data(a, b) && same_names(&a->names, &b->names) &&
              same_acls(&a->acls, &b->acls) &&
              (!a->has_stat || same_stat(&a->stat, &b->stat));
  for (int i = 0; i < a->count && same; i++)
    same = same_reply(&a->subs[i], &b->subs[i]);
  return same;
}

/* Are two sessions' events the same, in the same order? */
static bool same_events(const cf_events *a, const cf_events *b) {
  bool same = a->count == b->count;
  for (int i = 0; i < a->count && same; i++) {
    const cf_event *x = &a->at[i], *y = &b->at[i];
    same = x->type == y->type && x->state == y->state && x->watch == y->watch &&
           strcmp(x->path, y->path) == 0;
  }
  return same;
}

/* Times, which cf_describe_reply() leaves out. */
static const char *describe_reply(const cf_reply *r) {
  return cf_text("%s len %d ctime %" PRId64 " mtime %" PRId64,
                 cf_describe_reply(r), r->len, r->stat.ctime, r->stat.mtime);
}

/* The only order that is not promised: that of the watchers at the end. */
static int by_watch(const void *a, const void *b) {
  return ((const cf_event *)a)->watch - ((const cf_event *)b)->watch;
}

static void sort_end(cf_events *e) {
  int first = 0;
  while (first < e->count && e->at[first].type != ZKE_EVENT_SESSION) first++;
  if (first < e->count)
    qsort(e->at + first, (size_t)(e->count - first), sizeof *e->at, by_watch);
}

/* Dispatch on both sides; true: both heard the same. */
static bool listen(run *r, int i) {
  seat *s = &r->seats[i];
  cf_events e = {0}, m = {0};
  if (!s->e) return true;
  cf_zke_events(s->e, &e);
  cf_zke_events(s->m, &m);
  sort_end(&e);
  sort_end(&m);
  bool same = same_events(&e, &m);
  run_events_compared += e.count;
  if (!same)
    differs(r, cf_text("events of seat %d", i), cf_describe_events(&e),
            cf_describe_events(&m));
  cf_events_free(&e);
  cf_events_free(&m);
  return same;
}

static bool listen_all(run *r) {
  bool same = true;
  for (int i = 0; i < CF_SEATS && same; i++) same = listen(r, i);
  return same;
}

/* ---- what depends on the tree, as the model knows it ---- */

static const char *seat_chroot(const run *r, int i) {
  return r->plan->seat[i].chroot ? CF_BASE : "";
}

/* The harness's own session for look-ups, in the model only. */
static cf_zke *looker;

static void ask(run *r, cf_kind kind, const cf_op *op, cf_reply *reply) {
  run_step s = {.op = {.kind = kind}};
  s.op.path = cf_whole(seat_chroot(r, op->seat), op->path);
  *reply = (cf_reply){.rc = ZKE_NONODE};
  if (s.op.path[0] == '/') run_call(&run_model, looker, &s, reply);
}

/* Mostly choose a path that was used lately, so that operations meet. */
static void revisit(run *r, cf_op *op) {
  const char *chroot = seat_chroot(r, op->seat);
  size_t base = strlen(chroot);
  for (unsigned i = 0; i < 8; i++) {
    const char *path = r->recent[((unsigned)op->revisit + i) % 8];
    if (!path || strncmp(path, chroot, base) != 0) continue;
    if (base && path[base] != '/') continue;
    op->path = cf_text("%s", path + base);
    op->pick = -1;
    return;
  }
}

/* Choose an existing child, if the step asks for one. */
static void pick_child(run *r, cf_op *op) {
  const char *slash = op->path ? strrchr(op->path, '/') : NULL;
  if (!slash || op->path[0] != '/') return;
  size_t len = slash == op->path ? 1 : (size_t)(slash - op->path);
  cf_op up = {.seat = op->seat, .path = cf_copy(op->path, len)};
  cf_reply reply;
  ask(r, CF_CHILDREN, &up, &reply);
  if (!reply.names.count) return;
  const char *name = reply.names.data[op->pick % reply.names.count];
  op->path = cf_text("%s/%s%s%s", len == 1 ? "" : up.path, name,
                     op->below ? "/" : "", op->below ? op->below : "");
}

static void current_version(run *r, cf_op *op) {
  cf_reply reply = {0};
  if (op->path) ask(r, CF_EXISTS, op, &reply);
  int32_t now =
      op->kind == CF_SET_ACL ? reply.stat.aversion : reply.stat.version;
  op->version = (int)((unsigned)now + (unsigned)op->version);
}

static void resolve_op(run *r, cf_op *op) {
  for (int i = 0; i < op->count; i++) resolve_op(r, &op->subs[i]);
  if (op->revisit >= 0) revisit(r, op);
  if (op->pick >= 0) pick_child(r, op);
  if (op->version_rule == CF_CURRENT) current_version(r, op);
}

static int64_t id_of(const run *r, int64_t number) {
  const seat *s = &r->seats[(uint64_t)number % CF_SEATS];
  return s->m ? cf_zke_id(s->m) : 12345;
}

/* Discard: the prefix of a numbered node, and the right or a wrong czxid. */
static void resolve_discard(run *r, run_step *s) {
  cf_reply reply = {0};
  if (s->op.path && s->number) ask(r, CF_EXISTS, &s->op, &reply);
  s->number = s->number ? reply.stat.czxid + (s->number < 0) : 0;
  size_t len = s->op.path ? strlen(s->op.path) : 0;
  if (len == 1) s->op.mode = ZKE_EPHEMERAL; /* as CHROOT_ROOT of compare.c */
  if (s->op.mode == ZKE_EPHEMERAL_SEQUENTIAL && len > 11)
    s->op.path = cf_copy(s->op.path, len - 10);
}

/* Fill in what a step takes from the present state. */
static void resolve(run *r, run_step *s) {
  resolve_op(r, &s->op);
  if (s->extra == RUN_DISCARD) resolve_discard(r, s);
  if (s->extra == RUN_CALL_AT && s->number != ZKE_FOREVER)
    s->number += r->clock.ms - r->clock.ahead;
  if (s->extra == RUN_SESSION || s->extra == RUN_EPHEMERALS_OF)
    s->number = id_of(r, s->op.version);
  if (r->seats[s->op.seat].dead && s->op.revive) s->op.kind = CF_CLOSE;
}

static void note_watched(run *r, const cf_op *op) {
  if ((!op->watch && op->kind != CF_ADD_WATCH) || !cf_client_passes(op)) return;
  char **place = &r->recent[r->recent_at++ % 8];
  free(*place);
  *place = keep(cf_whole(seat_chroot(r, op->seat), op->path));
}

/* ---- one step ---- */

static void open_seat(run *r, int i) {
  seat *s = &r->seats[i];
  const char *chroot = seat_chroot(r, i);
  s->e = cf_zke_open(run_engine.store, chroot, true);
  s->m = cf_zke_open(run_model.store, chroot, true);
  s->dead = false;
}

static bool compare_rc(run *r, const char *what, int e, int m) {
  if (e != m) differs(r, what, cf_text("%d", e), cf_text("%d", m));
  return e == m;
}

static bool close_seat(run *r, int i) {
  seat *s = &r->seats[i];
  int e = cf_zke_close(s->e), m = cf_zke_close(s->m);
  s->e = s->m = NULL;
  return compare_rc(r, "close", e, m);
}

static bool end_seat(run *r, const run_step *s) {
  seat *at = &r->seats[s->op.seat];
  if (s->op.kind == CF_CLOSE) return close_seat(r, s->op.seat);
  at->dead = true;
  return compare_rc(r, "expire",
                    zke_expire(run_engine.anchor, cf_zke_id(at->e)),
                    zke_expire(run_model.anchor, cf_zke_id(at->m)));
}

static bool advance(run *r, const run_step *s) {
  r->clock.ms += s->number;
  run_advance(&run_engine, &r->clock);
  run_advance(&run_model, &r->clock);
  return listen_all(r);
}

/* Make the same call on the engine and on the model: same answer? */
static bool compare_call(run *r, int at, const run_step *s) {
  seat *here = &r->seats[s->op.seat];
  cf_reply e, m;
  run_call(&run_engine, here->e, s, &e);
  run_call(&run_model, here->m, s, &m);
  tell(r, at, s, &m);
  note_watched(r, &s->op);
  if (m.rc == ZKE_AUTHFAILED) here->dead = true;
  bool same = same_reply(&e, &m);
  if (!same) differs(r, describe(s), describe_reply(&e), describe_reply(&m));
  return same;
}

/* One step of a run; false: engine and model differ. */
static bool step(run *r, int at, run_step *s) {
  run_steps_done++;
  if (!r->seats[s->op.seat].e) open_seat(r, s->op.seat);
  resolve(r, s);
  bool end = s->op.kind == CF_CLOSE || s->op.kind == CF_EXPIRE ||
             s->op.kind == CF_KILL;
  if (s->op.listen_first && !listen(r, s->op.seat)) return false;
  if (end || s->op.kind == CF_FLUSH || s->extra == RUN_ADVANCE)
    tell(r, at, s, NULL);
  if (s->op.kind == CF_FLUSH) return listen_all(r);
  if (end) return end_seat(r, s);
  return s->extra == RUN_ADVANCE ? advance(r, s) : compare_call(r, at, s);
}

/* ---- several steps in one batch ---- */

typedef struct batch {
  run *r;
  const int *indices; /* of its steps */
  int count, result;
  cf_zke *engine;
  bool same;
} batch;

/* Can the step be part of a batch?  If the batch is undone (result), no step
 * may have effects outside it: a discard is not undone.  A batch refuses
 * sync. */
static bool may_join(const run *r, const run_step *s, int result) {
  const seat *at = &r->seats[s->op.seat];
  if (!at->e || at->dead) return false;
  switch (s->extra) {
    case RUN_NONE:
      return s->op.kind <= CF_ADD_WATCH && s->op.kind != CF_SYNC;
    case RUN_DISCARD:
      return result == ZKE_OK;
    case RUN_RAISE:
    case RUN_AFTER:
    case RUN_UNTOLD:
    case RUN_SESSIONS:
    case RUN_SESSION:
    case RUN_WATCHES:
    case RUN_EPHEMERALS_OF:
    case RUN_USAGE:
      return true;
    default:
      return false;
  }
}

/* Make the steps of a batch on both sides. */
static int batch_steps(zke *z, void *arg) {
  batch *b = arg;
  (void)z;
  for (int i = 0; i < b->count && b->same; i++) {
    run_step s;
    make_step(b->r->plan, b->indices[i], &s);
    if (!may_join(b->r, &s, b->result)) continue;
    run_steps_done++;
    resolve(b->r, &s);
    b->same = compare_call(b->r, b->indices[i], &s);
  }
  return b->same ? b->result : ZKE_BROKEN;
}

/* The model's batch is around the engine's. */
static int batch_engine(zke *z, void *arg) {
  batch *b = arg;
  (void)z;
  return run_batch(b->engine, batch_steps, b);
}

/* Lose no more replies: in a batch they are counted differently. */
static bool lose_none(run *r) {
  run_step s = {.op = {.kind = CF_CHECK}, .extra = RUN_LOSE};
  bool same = true;
  for (s.op.seat = 0; s.op.seat < CF_SEATS && same; s.op.seat++) {
    const seat *at = &r->seats[s.op.seat];
    if (at->e && !at->dead) same = compare_call(r, -1, &s);
  }
  return same;
}

/* Make the next steps in one batch on the engine, and one by one on the model;
 * false: the two differ. */
static bool step_batch(run *r, const run_step *s, const int *indices) {
  seat *at = &r->seats[s->op.seat];
  if (!at->e) open_seat(r, s->op.seat);
  if (at->dead) return true;
  if (!lose_none(r)) return false;
  batch b = {r, indices, s->op.len, s->op.type, at->e, true};
  tell(r, indices[0], s, NULL);
  int rc = run_batch(at->m, batch_engine, &b);
  if (b.same) b.same = compare_rc(r, "batch", rc, b.result);
  return b.same;
}

/* ---- a whole run ---- */

static void violated(void *arg, const char *sentence) {
  differs(arg, "zke_check", sentence, "");
}

static const char *child_path(const char *up, const char *name) {
  return cf_text("%s/%s", up[1] ? up : "", name);
}

/* Compare every node of the tree in every way, through seat 0's handle. */
static bool look_over(run *r, const char *path) {
  static const cf_kind ways[] = {CF_EXISTS, CF_GET, CF_GET_ACL, CF_COUNT,
                                 CF_CHILDREN};
  run_step s = {.op = {.path = path}};
  bool same = true;
  for (size_t i = 0; i < 5 && same; i++) {
    s.op.kind = ways[i];
    same = compare_call(r, -1, &s);
  }
  cf_reply names = {0};
  s.op.kind = CF_CHILDREN;
  if (same) run_call(&run_model, r->seats[0].m, &s, &names);
  for (int i = 0; i < names.names.count && same; i++)
    same = look_over(r, child_path(path, names.names.data[i]));
  return same;
}

/* At the end, every node and session must be the same, and zke_check() must
 * find nothing. */
static bool finish(run *r) {
  run_step s = {.op = {.kind = CF_CHECK}, .extra = RUN_SESSIONS};
  bool same = listen_all(r);
  if (same && r->seats[0].e) same = close_seat(r, 0);
  if (!same) return false;
  open_seat(r, 0);
  same = compare_call(r, -1, &s);
  s.extra = RUN_WATCHES;
  same = same && compare_call(r, -1, &s) && look_over(r, "/");
  return same && zke_check(run_engine.anchor, violated, r) == ZKE_OK;
}

/* Begin a run on an empty engine and an empty model, with one clock: that of a
 * given tree, if there is one. */
static void begin(run *r, const cf_plan *plan) {
  static const run_step base = {
      .op = {.kind = CF_CREATE, .path = CF_BASE, .data = "", .acls = {0}}};
  zke *given = run_engine.given;
  *r = (run){.plan = plan, .clock = {1000000000000, 1000000000}};
  if (given) r->clock.ms = zke_wall(given);
  if (given) r->clock.ahead = r->clock.ms - zke_now(given);
  run_begin(&run_engine, &r->clock, scale(CONTAINER_MS));
  run_begin(&run_model, &r->clock, scale(CONTAINER_MS));
  looker = cf_zke_open(run_model.store, "", true);
  /* One on each side, so that zxids are the same. */
  cf_zke *twin = cf_zke_open(run_engine.store, "", true);
  run_step s = base;
  cf_reply reply;
  s.op.acls = zke_open_acl;
  run_call(&run_model, looker, &s, &reply);
  run_call(&run_engine, twin, &s, &reply);
  for (int i = 0; i < CF_USERS; i++) {
    run_step auth = {.op = {.kind = CF_ADD_AUTH,
                            .scheme = "digest",
                            .data = cf_user(i),
                            .len = (int)strlen(cf_user(i))}};
    run_call(&run_model, looker, &auth, &reply);
  }
  r->seats[CF_SEATS - 1].e = twin;
  r->seats[CF_SEATS - 1].m = looker;
}

/* Close whatever is open on both sides. */
static void end(run *r) {
  for (int i = 0; i < CF_SEATS; i++) {
    if (r->seats[i].e) cf_zke_close(r->seats[i].e);
    if (r->seats[i].m) cf_zke_close(r->seats[i].m);
  }
  run_end(&run_engine);
  run_end(&run_model);
  for (int i = 0; i < 8; i++) free(r->recent[i]);
  for (int i = 0; i < LAST; i++) free(r->told[i]);
  free(r->why);
  cf_reset();
}

static void print_told(const run *r) {
  for (int i = 0; i < LAST; i++) {
    const char *text = r->told[(r->told_at + i) % LAST];
    if (text) puts(text);
  }
  printf("  %s\n", r->why);
}

/* The position of the difference, or -1; prints all steps on demand. */
static int run_steps(const cf_plan *plan, const int *indices, int count,
                     bool print) {
  run r;
  int at;
  bool same = true;
  begin(&r, plan);
  for (at = 0; at < count && same; at++) {
    run_step s;
    cf_reset();
    make_step(plan, indices[at], &s);
    if (s.extra == RUN_BATCH) {
      int left = count - at - 1;
      if (s.op.len > left) s.op.len = left;
      same = step_batch(&r, &s, indices + at + 1);
      at += s.op.len;
    } else {
      same = step(&r, indices[at], &s);
    }
  }
  if (same) {
    cf_reset();
    same = finish(&r);
  }
  if (!same && print) print_told(&r);
  end(&r);
  return same ? -1 : at - 1;
}

/* ---- shrinking ---- */

/* Leave out pieces of this length, from the end. */
static int drop_pieces(const cf_plan *plan, int *kept, int count, int len) {
  int *trial = calloc((size_t)count + 1, sizeof *trial);
  if (!trial) cf_die("out of memory");
  for (int from = count - len; from >= 0; from -= len) {
    memcpy(trial, kept, (size_t)from * sizeof *kept);
    memcpy(trial + from, kept + from + len,
           (size_t)(count - from - len) * sizeof *kept);
    int at = run_steps(plan, trial, count - len, false);
    if (at < 0) continue;
    count = at + 1 < count - len ? at + 1 : count - len;
    memcpy(kept, trial, (size_t)count * sizeof *kept);
    if (from > count) from = count;
  }
  free(trial);
  return count;
}

/* Leave out smaller and smaller pieces of the steps while the difference
 * stays. */
static void shrink(const cf_plan *plan, int *kept, int count) {
  for (int len = count / 2; len > 1; len /= 2)
    count = drop_pieces(plan, kept, count, len);
  for (int before = count + 1; count < before;) {
    before = count;
    count = drop_pieces(plan, kept, count, 1);
  }
  printf("shrunk to %d steps:\n", count);
  run_steps(plan, kept, count, true);
}

/* ---- seeds ---- */

/* A plan in which all sessions can do everything. */
static void make_plan(uint64_t seed, cf_plan *plan) {
  cf_plan_make(seed, plan);
  plan->file = false;
  plan->seats = plan->seats < CF_SEATS ? plan->seats : CF_SEATS - 1;
  for (int i = 0; i <= CF_SEATS; i++) plan->seat[i].client = false;
  plan->seat[CF_SEATS - 1].chroot = false;
  if (seed % 4 == 0) return;
  if (plan->names > 3) plan->names = 3; /* few paths, so that much happens */
  plan->depth = 2;
  plan->seat[0].chroot = false;
}

bool run_seed(uint64_t seed, int length) {
  cf_plan plan;
  int *all = calloc((size_t)length + 1, sizeof *all);
  if (!all) cf_die("out of memory");
  for (int i = 0; i < length; i++) all[i] = i;
  make_plan(seed, &plan);
  bool again = !run_engine.given; /* can the run be repeated? */
  int at = run_steps(&plan, all, length, !again);
  if (at >= 0) {
    printf("DIFFERENCE in seed %" PRIu64 " at step %d\n", seed, at);
    if (again) shrink(&plan, all, at + 1 < length ? at + 1 : length);
    printf("again: SEED=%" PRIu64 " SEEDS=1 OPS=%d\n", seed, length);
    fflush(stdout);
  }
  free(all);
  return at < 0;
}
