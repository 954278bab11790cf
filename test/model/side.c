/* side.c - the calls of a run, compiled twice: for the engine, and with
 * RUN_MODEL for the model
 *
 * The calls that conformance makes too are its own, from its zke.c. */
#include "zkembed.h"
#include "test/model/model.h"

#ifdef RUN_MODEL
static model *side_model;
#define zke_open(name, options, out) model_open(side_model, options, out)
#define zke_open_session model_open_session
#define zke_close model_close
#define zke_session_id model_session_id
#define zke_state model_state
#define zke_expire model_expire
#define zke_create model_create
#define zke_create_ttl model_create_ttl
#define zke_delete model_delete
#define zke_discard model_discard
#define zke_raise_sequence model_raise_sequence
#define zke_exists model_exists
#define zke_get model_get
#define zke_set model_set
#define zke_children model_children
#define zke_count model_count
#define zke_ephemerals model_ephemerals
#define zke_sync model_sync
#define zke_multi model_multi
#define zke_multi_read model_multi_read
#define zke_results_clear model_results_clear
#define zke_add_auth model_add_auth
#define zke_get_acl model_get_acl
#define zke_set_acl model_set_acl
#define zke_add_watch model_add_watch
#define zke_set_watch model_set_watch
#define zke_check_watch model_check_watch
#define zke_remove_watch model_remove_watch
#define zke_remove_all_watches model_remove_all_watches
#define zke_forget model_forget
#define zke_call_at model_call_at
#define zke_set_watcher model_set_watcher
#define zke_dispatch model_dispatch
#define zke_now model_now
#define zke_wall model_wall
#define zke_sessions model_sessions
#define zke_session model_session
#define zke_watches model_watches
#define zke_waiters model_waiters
#define zke_overdue model_overdue
#define zke_test_fail model_test_fail
#define zke_free model_free

#define cf_zke_options model_cf_options
#define cf_store_open model_cf_store_open
#define cf_store_close model_cf_store_close
#define cf_store_anchor model_cf_store_anchor
#define cf_store_is_remote model_cf_store_is_remote
#define cf_zke_await_end model_cf_zke_await_end
#define cf_zke_open model_cf_open
#define cf_zke_call model_cf_call
#define cf_zke_listen model_cf_listen
#define cf_zke_events model_cf_events
#define cf_zke_id model_cf_id
#define cf_zke_close model_cf_close
#endif

#include "test/conformance/zke.c"
#include "test/model/run.h"

#include <inttypes.h>
#include <poll.h>

/* ---- time and pid from outside ---- */

static int64_t side_clock(void *arg, int which) {
  const run_clock *c = arg;
  int64_t ms = which == ZKE_CLOCK_REALTIME ? c->ms : c->ms - 1000000000;
  return ms * 1000000;
}

static int64_t side_pid(void *arg) {
  (void)arg;
  return 4711;
}

static cf_store *side_store;

/* Begin a side of the run, the engine or the model, on the run's clock. */
static void side_begin(run_clock *clock, int64_t container_ms) {
  zke_os os = {.size = sizeof os,
               .context = clock,
               .clock = side_clock,
               .pid = side_pid};
#ifdef RUN_MODEL
  side_model = model_new((size_t)1 << 28);
  if (!side_model) cf_die("out of memory");
#else
  zke_os own = ZKE_INIT(zke_os);
  zke_os_fill(&own);
  own.clock = side_clock;
  own.pid = side_pid;
  own.context = clock;
  os = own;
#endif
  cf_zke_options.os = &os;
  cf_zke_options.identity = "run";
  cf_zke_options.container_ms = container_ms;
  side_store = cf_store_open(NULL);
  cf_zke_options.os = NULL;
}

static void side_end(void) {
  cf_store_close(side_store);
#ifdef RUN_MODEL
  model_end(side_model);
#endif
}

static zke *side_anchor(void) { return cf_store_anchor(side_store); }

static cf_zke *side_open(const char *chroot) {
  return cf_zke_open(side_store, chroot, true);
}

static int side_expire(int64_t id) { return zke_expire(side_anchor(), id); }

/* The engine sweeps in a dispatch; a second one finds nothing. */
static void side_advance(void) {
#ifdef RUN_MODEL
  model_sweep(side_model);
#else
  zke_dispatch(side_anchor(), NULL);
#endif
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

/* The list of sessions as text. */
static void side_sessions(zke *z, int64_t only, cf_reply *r) {
  zke_session_list *l = NULL;
  r->rc = only ? zke_session(z, only, &l) : zke_sessions(z, &l);
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
static void side_watches(zke *z, bool waiters, cf_reply *r) {
  zke_watch_list *l = NULL;
  r->rc = waiters ? zke_waiters(z, &l) : zke_watches(z, &l);
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

/* Calls whose outputs nobody asks for, and arguments that are refused. */
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
      zke_remove_all_watches(z, path, 0),
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

/* A watch that was set so many changes ago: by the newest zxid of the root. */
static int side_set_watch(cf_zke *c, const run_step *s) {
  zke_stat stat = {0};
  zke_exists(side_anchor(), "/", NULL, NULL, &stat);
  return zke_set_watch(c->z, s->op.path, s->op.type,
                       stat.pzxid + 20 - s->number, watcher,
                       context_of(c, &s->op));
}

/* What gives nothing but a code. */
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
    zke_op_children_after(&op, s->op.path, s->op.data, s->op.len);
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
      side_sessions(c->z, s->extra == RUN_SESSION ? s->number : 0, r);
      break;
    case RUN_WATCHES:
    case RUN_WAITERS:
      side_watches(c->z, s->extra == RUN_WAITERS, r);
      break;
    case RUN_OVERDUE:
      side_overdue(c->z, r);
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

/* Any step.  The model does some of them twice, with its state put back in
 * between. */
static void side_call(cf_zke *z, const run_step *s, cf_reply *r) {
#ifdef RUN_MODEL
  void *before = s->twice ? malloc(model_used(side_model)) : NULL;
  if (before) {
    model_save(side_model, before);
    side_once(z, s, r);
    model_restore(side_model, before);
    free(before);
  }
#endif
  side_once(z, s, r);
}

/* What fn does is one step: the engine's batch.  The model does it call by
 * call, and is set back where the engine undoes all: that is what a batch is to
 * be like. */
static int side_batch(cf_zke *z, zke_batch_fn fn, void *arg) {
#ifdef RUN_MODEL
  void *before = malloc(model_used(side_model));
  if (!before) cf_die("out of memory");
  model_save(side_model, before);
  int rc = fn(z->z, arg);
  if (rc != ZKE_OK) model_restore(side_model, before);
  free(before);
  return rc;
#else
  return zke_batch(z->z, fn, arg);
#endif
}

#ifdef RUN_MODEL
#define SIDE run_model
#define SIDE_NAME "model "
#else
#define SIDE run_engine
#define SIDE_NAME "engine"
#endif

const run_side SIDE = {SIDE_NAME,    side_begin,  side_end,     side_open,
                       cf_zke_close, side_call,   side_advance, cf_zke_events,
                       cf_zke_id,    side_expire, side_anchor,  side_batch};
