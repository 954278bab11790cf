/* side.c - the calls of a run, the same for the engine and for the model
 *
 * Calls that conformance makes too come from its zke.c. */
#include "zkembed.h"

#include "test/conformance/zke.c"
#include "test/model/model.h"
#include "test/model/run.h"

#include <inttypes.h>
#include <poll.h>

/* ---- time and pid from outside ---- */

static int64_t side_clock(void *arg, int which) {
  const run_clock *c = arg;
  int64_t ms = which == ZKE_CLOCK_REALTIME ? c->ms : c->ms - c->ahead;
  return ms * 1000000;
}

/* As the laboratory's processes have it, too. */
static int64_t side_pid(void *arg) {
  (void)arg;
  return 1000;
}

run_side run_engine = {.file = NULL}, run_model = {.file = "model:"};

static cf_store *store_of(zke *anchor) {
  cf_store *s = calloc(1, sizeof *s);
  if (!s) cf_die("out of memory");
  s->anchor = anchor;
  return s;
}

/* Let a new model continue from a tree without nodes: the harness's session
 * gets the id that it has there, and the next change the same zxid. */
static void follow(run_side *side, zke *given) {
  zke *first = side->anchor;
  model_set_zxid(side->model, zke_session_id(given) - 1);
  must(zke_open_session(first, &cf_zke_options, &side->anchor),
       "zke_open_session");
  must(zke_close(first), "zke_close");
  side->store->anchor = side->anchor;
  zke_zxid(); /* from the first call on the thread is told zxids */
  must(zke_sync(given, "/"), "zke_sync");
  model_set_zxid(side->model, zke_zxid());
}

void run_begin(run_side *side, run_clock *clock, int64_t container_ms) {
  zke_os os = ZKE_INIT(zke_os);
  zke_os_fill(&os);
  os.clock = side_clock;
  os.pid = side_pid;
  os.context = clock;
  cf_zke_options.os = &os;
  cf_zke_options.identity = "run";
  cf_zke_options.container_ms = container_ms;
  if (side->file) must(zke_register_engine(&model_engine), "the model");
  side->store = side->given ? store_of(side->given) : cf_store_open(side->file);
  side->anchor = cf_store_anchor(side->store);
  side->model = side->file ? model_of(side->anchor) : NULL;
  cf_zke_options.os = NULL;
  if (side->model && run_engine.given) follow(side, run_engine.given);
}

void run_end(run_side *side) {
  if (side->given)
    free(side->store);
  else
    cf_store_close(side->store);
  if (side->model) model_end(side->model);
}

/* The clock of a given tree advances in sleeps.  The engine sweeps in a
 * dispatch; a second dispatch finds nothing. */
void run_advance(run_side *side, const run_clock *clock) {
  if (side->model) {
    model_sweep(side->model);
  } else {
    zke_sleep(side->anchor, clock->ms - clock->ahead);
    zke_dispatch(side->anchor, NULL);
  }
}

/* ---- the extra calls ---- */

/* A read by zke_multi_read(). */
static void side_read_one(zke *z, zke_op *op, cf_reply *r) {
  zke_op_result result = {0};
  r->rc = zke_multi_read(z, op, 1, &result);
  if (r->rc != ZKE_OK) return;
  r->number = result.rc;
  r->has_count = true;
  r->has_stat = result.rc == ZKE_OK && op->type == ZKE_OP_CHILDREN;
  r->stat = result.stat;
  if (op->type == ZKE_OP_UNTOLD) r->len = result.len;
  if (result.children) keep_names(r, result.children);
  zke_results_clear(&result, 1);
}

/* The list of all sessions (-1), or of one, as text. */
static void side_sessions(zke *z, int64_t session, cf_reply *r) {
  zke_session_list *l = NULL;
  r->rc = zke_sessions(z, session, &l);
  if (r->rc != ZKE_OK) return;
  r->names.data = cf_alloc((size_t)l->count * sizeof *r->names.data + 1);
  r->names.count = l->count;
  r->has_names = true;
  for (int i = 0; i < l->count; i++) {
    const zke_session_info *s = &l->data[i];
    r->names.data[i] =
        cf_text("%" PRIx64 ": pid %" PRId64 " started %" PRId64
                " lease %" PRId64 " alive %d ephemerals %d watches %d",
                s->id, s->pid, s->started_ms, s->lease_ms, s->alive,
                s->ephemerals, s->watches);
  }
  zke_free(l);
}

/* The list of watches as text. */
static void side_watches(zke *z, cf_reply *r) {
  zke_watch_list *l = NULL;
  r->rc = zke_watches(z, &l);
  if (r->rc != ZKE_OK) return;
  r->names.data = cf_alloc((size_t)l->count * sizeof *r->names.data + 1);
  r->names.count = l->count;
  r->has_names = true;
  for (int i = 0; i < l->count; i++) {
    const zke_watch_info *w = &l->data[i];
    r->names.data[i] = cf_text("%" PRIx64 " %s type %d mode %d owner %" PRIx64,
                               w->session, w->path, w->type, w->mode, w->owner);
  }
  zke_free(l);
}

static void side_ephemerals(zke *z, const run_step *s, cf_reply *r) {
  zke_strings *paths = NULL;
  r->rc = zke_ephemerals(z, s->number, s->op.path, &paths);
  if (r->rc == ZKE_OK) keep_names(r, paths);
  zke_free(paths);
}

/* Calls with NULL for their outputs, and arguments that are refused. */
static void side_dead_end(zke *z, const run_step *s, cf_reply *r) {
  const char *path = s->op.path;
  const zke_op foreign = {.type = 99, .path = path};
  zke_op reserved = {.type = ZKE_OP_GET, .path = path};
  zke_op set = {.type = ZKE_OP_SET, .path = path, .len = 3};
  zke_op_result result;
  const int codes[] = {
      zke_get(z, path, NULL, NULL, NULL, NULL, NULL),
      zke_children(z, path, NULL, NULL, NULL, NULL),
      zke_exists(z, path, NULL, NULL, NULL),
      zke_count(z, path, NULL),
      zke_get_acl(z, path, NULL, NULL),
      zke_ephemerals(z, 0, NULL, NULL),
      zke_multi(z, &foreign, 1, NULL),
      zke_multi(z, &set, 1, NULL),
      zke_multi_read(z, &foreign, 1, &result),
      (reserved.reserved[1] = 1, zke_multi_read(z, &reserved, 1, &result)),
      zke_add_watch(z, path, 0, NULL, NULL),
      zke_remove_watch(z, path, 0, NULL, NULL),
      zke_add_auth(z, NULL, "", 0),
      zke_add_auth(z, "digest", "a\0b:c", 5),
      zke_call_at(z, 0, NULL, NULL),
      zke_discard(z, path, ZKE_PERSISTENT, 0),
      zke_raise_sequence(z, path, -1, NULL),
      zke_set(z, path, "abc", -2, -1, NULL),
      zke_set(z, path, NULL, 1, -1, NULL),
      zke_expire(z, 12345),
      zke_multi(z, NULL, 0, NULL)};
  r->path = "";
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    r->path = cf_text("%s %d", r->path, codes[i]);
}

static void side_state(zke *z, cf_reply *r) {
  r->path = cf_text("%d %" PRId64 " %" PRId64 " %" PRIx64, zke_state(z),
                    zke_now(z), zke_wall(z), (uint64_t)zke_session_id(z));
}

/* Set a watch as of this many changes before the root's newest zxid. */
static int side_set_watch(cf_zke *c, const run_step *s) {
  zke_stat stat = {0};
  zke_exists(c->anchor, "/", NULL, NULL, &stat);
  return zke_set_watch(c->z, s->op.path, s->op.type,
                       stat.pzxid + 20 - s->number, watcher,
                       context_of(c, &s->op));
}

/* Calls that return only a code. */
static int side_plain(cf_zke *c, const run_step *s) {
  const cf_op *op = &s->op;
  switch (s->extra) {
    case RUN_DISCARD:
      return zke_discard(c->z, op->path, op->mode, s->number);
    case RUN_FORGET:
      return zke_forget(c->z, watcher, context_of(c, op));
    case RUN_CALL_AT:
      return zke_call_at(c->z, s->number, watcher, context_of(c, op));
    case RUN_SET_WATCH:
      return side_set_watch(c, s);
    case RUN_CHECK_WATCH:
      return zke_check_watch(c->z, s->op.path, s->op.type,
                             s->number ? watcher : NULL, context_of(c, &s->op));
    case RUN_LOSE:
      return zke_test_fail(c->z, op->type, op->len);
    default:
      return zke_set_watcher(c->z, fn_of(op), context_of(c, op));
  }
}

static void side_raise(zke *z, const run_step *s, cf_reply *r) {
  r->rc = zke_raise_sequence(z, s->op.path, (int)s->number, &r->stat);
  r->has_stat = r->rc == ZKE_OK;
}

static void side_usage(zke *z, const run_step *s, cf_reply *r) {
  int64_t bytes = 0;
  r->rc = zke_usage(z, s->op.path, &r->number, &bytes);
  r->has_count = r->rc == ZKE_OK;
  r->path = cf_text("%" PRId64, bytes);
}

static void side_overdue(zke *z, cf_reply *r) {
  int overdue = 0;
  r->rc = zke_overdue(z, &overdue);
  r->has_count = r->rc == ZKE_OK;
  r->number = overdue;
}

static void side_read(zke *z, const run_step *s, cf_reply *r) {
  zke_op op;
  if (s->extra == RUN_UNTOLD)
    zke_op_untold(&op, s->op.path, s->op.len);
  else
    zke_op_children(&op, s->op.path, s->op.data, s->op.len);
  side_read_one(z, &op, r);
}

/* A step that conformance does not have. */
static void side_extra(cf_zke *c, const run_step *s, cf_reply *r) {
  switch (s->extra) {
    case RUN_RAISE:
      side_raise(c->z, s, r);
      break;
    case RUN_AFTER:
    case RUN_UNTOLD:
      side_read(c->z, s, r);
      break;
    case RUN_SESSIONS:
    case RUN_SESSION:
      side_sessions(c->z, s->extra == RUN_SESSION ? s->number : -1, r);
      break;
    case RUN_WATCHES:
      side_watches(c->z, r);
      break;
    case RUN_OVERDUE:
      side_overdue(c->z, r);
      break;
    case RUN_USAGE:
      side_usage(c->z, s, r);
      break;
    case RUN_EPHEMERALS_OF:
      side_ephemerals(c->z, s, r);
      break;
    case RUN_STATE:
      side_state(c->z, r);
      break;
    case RUN_DEAD_END:
      side_dead_end(c->z, s, r);
      break;
    default:
      r->rc = side_plain(c, s);
  }
}

static void side_once(cf_zke *z, const run_step *s, cf_reply *r) {
  *r = (cf_reply){0};
  if (s->extra)
    side_extra(z, s, r);
  else
    cf_zke_call(z, &s->op, r);
}

/* The model makes some steps twice, with its state restored in between. */
void run_call(const run_side *side, cf_zke *z, const run_step *s, cf_reply *r) {
  if (side->model && s->twice) {
    void *before = cf_alloc(model_used(side->model));
    model_save(side->model, before);
    side_once(z, s, r);
    model_restore(side->model, before);
  }
  side_once(z, s, r);
}

int run_batch(cf_zke *z, zke_batch_fn fn, void *arg) {
  return zke_batch(z->z, fn, arg);
}
