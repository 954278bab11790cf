/* judge.c - see judge.h */
#include "test/sim/judge.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/model/model.h"
#include "test/sim/notes.h"
#include "test/sim/known.h"
#include "test/sim/load.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"
#include "test/sim/wait.h"

/* How soon, at rest, a change's event has been delivered. */
enum {
  PATIENCE_MS = 2500,
  SESSIONS = 4096,
  EPOCHS = 256,
  FLOATS = 6,
  CHOICES = 16,
  TRIES = 200
};

/* The history's rows of one zxid. */
typedef struct rows {
  const history_change *at;
  int count;
} rows;

static model *tree;
static zke *observer; /* gets all changes, as the history does */
static notes_events made;
static int64_t clock_ms; /* the model's */
static int64_t playing;  /* the zxid being played */
static const history_changes *history;

static struct {
  int64_t id;
  int64_t seen; /* the last zxid that it has seen, or was told of */
  zke *z;
} sessions[SESSIONS];
static int session_count;

/* What is wrong under the current assumption about calls of unknown outcome;
 * and for each place where several of them fit, which one is taken. */
static char finding[512];
static struct { int taken, fit; } choices[CHOICES];
static int choice_count;

/* What is left of each epoch: its last zxid. */
static int64_t lasts[EPOCHS];
static int epoch_count;

/* Keeps the first finding. */
static void found(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static void found(const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (!finding[0]) vsnprintf(finding, sizeof finding, format, args);
  va_end(args);
}

/* ---- the model ---- */

/* Memory for the model's answers comes from the simulation. */
static void *resize(void *context, void *block, size_t size) {
  (void)context;
  if (size) return sim_resize(block, size);
  free(block);
  return NULL;
}

/* All clocks of the model show the time of the current row. */
static int64_t model_clock(void *context, int which) {
  (void)context, (void)which;
  return clock_ms * SIM_MS;
}

/* Never called. */
static int64_t model_pid(void *context) {
  (void)context;
  return 1;
}

static const zke_allocator allocator = {.resize = resize};

/* The observer's watcher: collect a change's events. */
static void on_change(zke *z, int type, int state, const char *path,
                      void *context) {
  (void)z, (void)state, (void)context;
  if (type >= 0) notes_event_add(&made, type, path, playing);
}

/* Did the session live in the current epoch?  After a power cut no earlier
 * session does.  But a new epoch also begins if the files do not say which
 * zxids were used, and then living sessions continue (doc/design.md 7). */
static bool is_in_epoch(int64_t session) {
  for (int i = 0; i < session_count; i++)
    if (sessions[i].id == session)
      return playing >> 32 <= sessions[i].seen >> 32;
  return false;
}

/* A watch of the load, in the model. */
static void on_owed(zke *z, int type, int state, const char *path,
                    void *context) {
  (void)z, (void)state;
  noted *c = context;
  if (type >= 0 && is_in_epoch(c->session))
    notes_event_add(&c->owed, type, path, playing);
}

/* A session of the model with a given id, which is its zxid. */
static zke *open_at(zke *of, int64_t id) {
  static const zke_options fresh = ZKE_INIT(zke_options);
  zke_options o = fresh;
  zke *z = NULL;
  int64_t zxid = model_zxid(tree);
  model_set_zxid(tree, id - 1);
  o.allocator = allocator;
  model_engine.open_session(of, &o, &z);
  model_set_zxid(tree, zxid);
  return z;
}

/* An empty tree, and the observer; no session has its id. */
static void model_start(void) {
  static zke_os os = {.clock = model_clock, .pid = model_pid};
  zke_options o = ZKE_INIT(zke_options);
  zke *first = NULL;
  o.os = &os;
  o.allocator = allocator;
  o.container_ms = ops_container_ms;
  model_engine.open(&model_engine, "model:", &o, &first);
  tree = model_of(first);
  observer = open_at(first, 0);
  model_engine.close(first);
  model_engine.add_auth(observer, "digest", OPS_USER, (int)strlen(OPS_USER));
  model_engine.add_watch(observer, "/", ZKE_WATCH_PERSISTENT_RECURSIVE,
                         on_change, NULL);
}

/* The last zxid that a session has seen, or was told of. */
static int64_t last_seen(int64_t session) {
  int64_t last = session;
  for (int i = 0; i < notes_count; i++) {
    const noted *c = notes_all[i];
    if (c->session != session) continue;
    if (c->zxid > last) last = c->zxid;
    for (int k = 0; k < c->told.count; k++)
      if (c->told.at[k].zxid > last) last = c->told.at[k].zxid;
  }
  return last;
}

/* The session with an id; it begins when first mentioned. */
static zke *session_of(int64_t id) {
  for (int i = 0; i < session_count; i++)
    if (sessions[i].id == id) return sessions[i].z;
  if (!id) return observer;
  if (session_count == SESSIONS) sim_bug("too many sessions");
  zke *z = open_at(observer, id);
  sessions[session_count].id = id;
  sessions[session_count].seen = last_seen(id);
  sessions[session_count++].z = z;
  return z;
}

/* Collect what has changed. */
static void observe(void) {
  made.count = 0;
  model_engine.dispatch(observer, NULL);
}

/* The change stays, so its watchers are called. */
static void hear(void) {
  for (int i = 0; i < session_count; i++)
    model_engine.dispatch(sessions[i].z, NULL);
}

/* Does the node exist, and is it not ephemeral? */
static bool is_lasting(const char *path) {
  zke_stat stat = {.version = 0};
  int rc = model_engine.exists(observer, path, NULL, NULL, &stat);
  return rc == ZKE_OK && !stat.ephemeralOwner;
}

/* ---- the outcome of a call ---- */

enum fate { KNOWN, MAYBE, NOTHING };

/* Is the outcome unknown to all processes? */
static bool is_unknown(const noted *c) {
  return !c->done || c->rc == ZKE_CONNECTIONLOSS;
}

/* Does a code come from the tree, rather than from the disk or the session? */
static bool is_of_tree(int rc) {
  return rc == ZKE_OK || rc == ZKE_BADARGUMENTS || rc == ZKE_NOWATCHER ||
         (rc <= ZKE_NONODE && rc >= ZKE_NOTEMPTY) || rc == ZKE_INVALIDACL;
}

/* Threads set and remove the same watch, in an unknown order. */
static bool is_of_threads(const noted *c) {
  return the_plan.k.threads > 1 &&
         (c->kind == NOTES_add_watch || c->kind == NOTES_remove_watch ||
          c->kind == NOTES_forget);
}

/* Does it ask what its session was told?  watchers.c judges that. */
static bool is_of_told(const noted *c) {
  bool any = false;
  for (int i = 0; c->ops && i < c->len; i++)
    any |= c->ops[i].type == ZKE_OP_UNTOLD;
  return any;
}

/* Results inside a batch count if the batch was committed. */
static enum fate fate_of(const noted *c) {
  const noted *b = c->batch;
  bool changes = notes_does(c->kind) == 'C' || c->kind == NOTES_discard;
  if (c->kind == NOTES_batch || is_of_threads(c) || is_of_told(c))
    return NOTHING;
  if (is_unknown(c)) return MAYBE;
  if (b && b->done && b->rc != ZKE_OK && !is_unknown(b)) return NOTHING;
  if (b && is_unknown(b))
    return changes && c->rc == ZKE_OK && b->session ? MAYBE : NOTHING;
  if (c->kind == NOTES_add_auth && c->rc == ZKE_OK) return KNOWN;
  return c->zxid && is_of_tree(c->rc) ? KNOWN : NOTHING;
}

/* Has it changed the tree, and was that acknowledged? */
static bool makes_change(const noted *c) {
  return c->rc == ZKE_OK && notes_does(c->kind) == 'C';
}

/* ---- what a power cut has left ---- */

/* The last remaining zxid of an epoch. */
static int64_t *last_of(int64_t zxid) {
  for (int i = 0; i < epoch_count; i++)
    if (lasts[i] >> 32 == zxid >> 32) return &lasts[i];
  if (epoch_count == EPOCHS) sim_bug("too many epochs");
  lasts[epoch_count] = zxid >> 32 << 32;
  return &lasts[epoch_count++];
}

/* This zxid remains. */
static void note_last(int64_t zxid) {
  int64_t *last = last_of(zxid);
  if (zxid > *last) *last = zxid;
}

/* Does the call leave no row, although it is synced: a set of an ACL? */
static bool is_durable_alone(const noted *c) {
  return c->kind == NOTES_set_acl && c->rc == ZKE_OK && fate_of(c) == KNOWN;
}

/* Find the last remaining zxid of each epoch. */
static void find_lasts(void) {
  for (int i = 0; i < history->count; i++) note_last(history->at[i].zxid);
  for (int i = 0; i < notes_count; i++)
    if (is_durable_alone(notes_all[i])) note_last(notes_all[i]->zxid);
}

/* Did a power cut undo this state?  Not in the last epoch. */
static bool is_lost(int64_t zxid) {
  if (zxid >> 32 == lasts[epoch_count - 1] >> 32) return false;
  return zxid > *last_of(zxid);
}

/* Does such a change survive a power cut?  Not if it is about an ephemeral
 * node. */
static bool op_is_lasting(int type, int mode, const char *path) {
  if (type == ZKE_OP_CREATE)
    return mode != ZKE_EPHEMERAL && mode != ZKE_EPHEMERAL_SEQUENTIAL;
  return type != ZKE_OP_CHECK && is_lasting(path);
}

/* The same of a call; a multi with one lasting part survives. */
static bool call_is_lasting(const noted *c) {
  bool any = false;
  for (int i = 0; c->ops && i < c->len; i++)
    any |= op_is_lasting(c->ops[i].type, c->ops[i].mode, c->ops[i].path);
  if (c->ops) return any;
  return op_is_lasting(c->kind == NOTES_create ? ZKE_OP_CREATE : ZKE_OP_SET,
                       c->number, c->path);
}

/* Nothing that was undone should have lasted, and no one saw any lasting change
 * of it. */
static void check_lost(const noted *c) {
  if (makes_change(c) && call_is_lasting(c))
    found("P8: %s of %s, zxid %llx, was acknowledged and is lost",
          notes_name(c->kind), c->path ? c->path : "", (long long)c->zxid);
  bool saw = c->rc == ZKE_OK && !c->stat.ephemeralOwner &&
             (is_lost(c->stat.mzxid) || is_lost(c->stat.czxid));
  if (saw)
    found("P8: %s of %s saw a change of zxid %llx, which a cut took back",
          notes_name(c->kind), c->path, (long long)c->stat.mzxid);
}

/* ---- playing a call ---- */

/* The engine's answer and the model's, from just before the first
 * difference. */
static void differs(const noted *c, const char *engine, const char *other) {
  size_t at = 0;
  while (engine[at] && engine[at] == other[at]) at++;
  at = at > 40 ? at - 40 : 0;
  found("P2: %s of %s by %llx, zxid %llx: ...%.160s; the model: ...%.160s",
        notes_name(c->kind), c->path ? c->path : "", (long long)c->session,
        (long long)c->zxid, engine + at, other + at);
}

/* Has the model made exactly the history's changes? */
static bool same_rows(const rows *r) {
  bool same = made.count == r->count;
  for (int i = 0; i < made.count && same; i++)
    same = made.at[i].type == r->at[i].type &&
           strcmp(made.at[i].path, r->at[i].path) == 0;
  return same;
}

/* Ask the model as a session, in the state before that zxid, or, for a read, in
 * the read's own state.  The caller frees the answer. */
static char *ask_as(zke *z, noted *c, int64_t before) {
  noted asked = *c;
  zke_stat stat;
  int rc;
  asked.fn = c->fn ? on_owed : NULL;
  asked.context = c->target ? c->target : c;
  model_set_zxid(tree, before);
  char *text = notes_make(&model_engine, z, &asked, &rc, &stat);
  observe();
  model_set_zxid(tree, playing);
  return text;
}

/* The same, as the session that made the call. */
static char *ask(noted *c, int64_t before) {
  return ask_as(session_of(c->session), c, before);
}

/* Is it the answer of a session that has ended but has not noticed?  Adding an
 * identity does not look at the file. */
static bool is_unheard(const noted *c, const char *other) {
  static const char ended[] = "ZKE_INVALIDSTATE";
  return c->kind == NOTES_add_auth &&
         strncmp(other, ended, sizeof ended - 1) == 0;
}

typedef bool fitting(noted *c, const rows *r, char **text);

/* Does the model make those changes, whatever its answer? */
static bool gives_rows(noted *c, const rows *r, char **text) {
  free(*text);
  *text = ask(c, playing - 1);
  return same_rows(r);
}

/* Does it give that answer and make those changes? */
static bool gives_answer(noted *c, const rows *r, char **text) {
  bool changes = makes_change(c) || c->kind == NOTES_raise_sequence;
  free(*text);
  *text = ask(c, changes || !c->done ? playing - 1 : playing);
  bool same = strcmp(*text, c->text) == 0 || is_unheard(c, *text);
  return same && same_rows(r);
}

/* May a call have come before this one, although no row shows it? */
static bool is_floating(const noted *f, const noted *c) {
  switch (f->kind) {
    case NOTES_add_auth:
      return f->session == c->session;
    case NOTES_set_acl:
      return fate_of(f) == MAYBE || is_lost(f->zxid);
    case NOTES_raise_sequence:
      return fate_of(f) == MAYBE;
    default:
      return false;
  }
}

/* Calls that leave no row: they are made when a later answer requires it.  So
 * are identities that other threads may have added in the meantime. */
static int find_floats(const noted *c, noted *out[FLOATS]) {
  int64_t by = c->zxid ? c->zxid : playing;
  int count = 0;
  for (int i = 0; i < notes_count && count < FLOATS; i++) {
    noted *f = notes_all[i];
    if (is_floating(f, c) && !f->used && f != c && f->from <= by)
      out[count++] = f;
  }
  return count;
}

/* The pzxid that shows that a call has seen another's change; else the zxid
 * being played. */
static int64_t seen_of(const noted *c, const noted *f) {
  for (int i = 0; c->pzxids && i < c->len; i++)
    if (c->pzxids[i] && f->path && strcmp(c->ops[i].path, f->path) == 0)
      return c->pzxids[i];
  return c->stat.pzxid ? c->stat.pzxid : playing;
}

/* Make those whose bits are set.  The session of one may have ended since; then
 * the observer may make it. */
static void make_floats(noted *floats[], int count, int set, const noted *c) {
  for (int i = 0; i < count; i++) {
    noted *f = floats[i];
    int64_t before = seen_of(c, f) - 1;
    zke *z = f->kind == NOTES_add_auth ? session_of(f->session) : observer;
    if (!(set >> i & 1)) continue;
    f->used = true;
    free(ask_as(z, f, before));
  }
}

/* Restore the tree to its state before them. */
static void unuse_floats(noted *floats[], int count) {
  for (int i = 0; i < count; i++) floats[i]->used = false;
}

/* Does it fit what is known, possibly with some of the calls before it?  If
 * `keep`, make it in the model; else leave the tree as it was. */
static bool try_call(noted *c, const rows *r, fitting *fits, bool keep,
                     char **text) {
  noted *floats[FLOATS];
  session_of(c->session);
  int count = find_floats(c, floats);
  void *before = count || !keep ? sim_zero(model_used(tree)) : NULL;
  if (before) model_save(tree, before);
  bool fit = fits(c, r, text);
  for (int set = 1; set < 1 << count && !fit; set++) {
    model_restore(tree, before);
    unuse_floats(floats, count);
    make_floats(floats, count, set, c);
    fit = fits(c, r, text);
  }
  if (!keep) {
    model_restore(tree, before);
    unuse_floats(floats, count);
  }
  free(before);
  return fit;
}

/* Play a call with a known answer, with the calls that may have come before
 * it. */
static void play_call(noted *c, const rows *r) {
  char *text = NULL;
  bool fit = try_call(c, r, gives_answer, true, &text);
  if (!fit && strcmp(text, c->text) != 0) differs(c, c->text, text);
  if (!fit)
    found("%s: %s of %s, zxid %llx, has %d rows in the history, not %d",
          r->count ? "P2" : "P8", notes_name(c->kind), c->path ? c->path : "",
          (long long)c->zxid, r->count, made.count);
  load_count.judged++;
  c->used = true;
  if (c->kind == NOTES_set_watch) hear(); /* events that it has missed */
  free(text);
}

/* A change happens during its call, by a clock that was not set. */
static bool is_in_time(const noted *c, const rows *r) {
  int64_t at = r->count ? r->at->time_ms : 0;
  return !at || !c->wall_end || (at >= c->wall_begin && at <= c->wall_end);
}

static void check_time(const noted *c, const rows *r) {
  if (!is_in_time(c, r))
    found("P2: the change %llx is of %lld ms, its call from %lld to %lld",
          (long long)c->zxid, (long long)r->at->time_ms,
          (long long)c->wall_begin, (long long)c->wall_end);
}

/* ---- rows without a known answer ---- */

/* May the call, which has an unknown outcome, have made these changes? */
static bool may_be_of(const noted *c, const rows *r) {
  return c->session == r->at->session && notes_does(c->kind) == 'C' &&
         !c->used && c->from < playing && fate_of(c) == MAYBE &&
         (!c->zxid || c->zxid == playing) && is_in_time(c, r);
}

/* The calls that make them in the model, which leaves the tree as it was. */
static int find_unknown(const rows *r, noted *out[CHOICES], char **text) {
  int count = 0;
  for (int i = 0; i < notes_count && count < CHOICES; i++) {
    noted *c = notes_all[i];
    if (may_be_of(c, r) && try_call(c, r, gives_rows, false, text))
      out[count++] = c;
  }
  return count;
}

/* Which of several is taken this time: the first, until that leads to a
 * difference. */
static int choose(int fit) {
  if (choice_count == CHOICES) return 0;
  choices[choice_count].fit = fit;
  return choices[choice_count++].taken;
}

/* Has a call of the session, with an unknown outcome, made them? */
static bool is_of_unknown(const rows *r) {
  noted *fit[CHOICES];
  char *text = NULL;
  int count = find_unknown(r, fit, &text);
  int take = count > 1 ? choose(count) : 0;
  if (count) {
    fit[take]->used = true;
    try_call(fit[take], r, gives_rows, true, &text);
  }
  free(text);
  return count > 0;
}

/* Has the session discarded the node? */
static bool is_discarded(const history_change *row) {
  for (int i = 0; i < notes_count; i++) {
    const noted *c = notes_all[i];
    if (c->kind == NOTES_discard && c->session == row->session &&
        strncmp(c->path, row->path, strlen(c->path)) == 0)
      return row->owner == row->session;
  }
  return false;
}

/* A discard may be done later, together with others. */
static bool is_of_discards(const rows *r) {
  for (int i = 0; i < r->count; i++)
    if (r->at[i].type != ZKE_EVENT_DELETED || !is_discarded(&r->at[i]))
      return false;
  for (int i = 0; i < r->count; i++) {
    model_set_zxid(tree, playing - 1);
    if (model_engine.remove(observer, r->at[i].path, -1) != ZKE_OK)
      return false;
  }
  observe();
  return same_rows(r);
}

/* A session's end removes all it owns. */
static bool is_of_end(const rows *r) {
  session_of(r->at->session);
  model_set_zxid(tree, playing - 1);
  model_engine.expire(observer, r->at->session);
  observe();
  return same_rows(r);
}

/* A container or TTL node, each by itself. */
static bool is_of_sweep(const rows *r) {
  model_set_zxid(tree, playing - 1);
  bool due = model_sweep_one(tree, r->at->path);
  observe();
  return due && same_rows(r);
}

/* Is it the root of a corner? */
static bool is_corner(const char *path) {
  const char *rest = notes_corner(path);
  return rest && !*rest;
}

/* A corner is made or removed. */
static bool is_of_corner(const rows *r) {
  const char *path = r->at->path;
  if (!is_corner(path)) return false;
  model_set_zxid(tree, playing - 1);
  if (r->at->type == ZKE_EVENT_CREATED)
    model_engine.create(observer, path, NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                        NULL, NULL);
  else
    model_engine.remove(observer, path, -1);
  observe();
  return same_rows(r);
}

/* Find out what caused these rows, of one session, and play them. */
static void explain(const rows *r) {
  clock_ms = r->at->time_ms;
  if (is_of_corner(r)) return;
  bool known = !r->at->session
                   ? is_of_sweep(r)
                   : is_of_unknown(r) || is_of_discards(r) || is_of_end(r);
  if (!known)
    found(
        "P2: nobody has asked for %d rows of zxid %llx, session %llx: event %d "
        "of %s",
        r->count, (long long)playing, (long long)r->at->session, r->at->type,
        r->at->path);
}

/* An epoch's first zxid has the ends of all sessions. */
static void explain_all(const rows *r) {
  for (int i = 0, n; i < r->count; i += n) {
    for (n = 1; i + n < r->count; n++)
      if (r->at[i + n].session != r->at[i].session) break;
    explain(&(rows){r->at + i, n});
  }
}

/* ---- the whole history ---- */

/* An identity has no zxid: it was added after everything that its session had
 * seen; the order among several threads is unknown. */
static int64_t place_of(int at) {
  const noted *c = notes_all[at];
  int64_t place = c->kind == NOTES_add_auth ? c->from : c->zxid;
  if (c->kind != NOTES_add_auth) return place;
  if (the_plan.k.threads > 1) return 0;
  for (int i = 0; i < at; i++)
    if (notes_all[i]->session == c->session && notes_all[i]->zxid > place)
      place = notes_all[i]->zxid;
  return place;
}

typedef struct placed {
  int64_t zxid;
  int order; /* a change before what saw it; else in order of their begin */
  noted *c;
} placed;

/* For qsort(): the order of play.  If two have raised a counter with one zxid,
 * the higher one did it, and the other saw it. */
static int by_place(const void *a, const void *b) {
  const placed *x = a, *y = b;
  if (x->zxid != y->zxid) return x->zxid < y->zxid ? -1 : 1;
  if (x->order != y->order) return x->order - y->order;
  return y->c->number - x->c->number;
}

/* The calls with known answers, in order: a possible change of the tree comes
 * before the calls that saw it. */
static placed *arrange(int *count_out) {
  placed *all = sim_zero(sizeof *all * (size_t)(notes_count + 1));
  int count = 0;
  for (int i = 0; i < notes_count; i++) {
    noted *c = notes_all[i];
    int64_t zxid = place_of(i);
    if (fate_of(c) != KNOWN || !zxid) continue;
    last_of(zxid);
    bool may_change = notes_does(c->kind) == 'M';
    all[count++] = (placed){zxid,
                            makes_change(c) ? 0
                            : may_change    ? 1
                                            : i + 2,
                            c};
  }
  qsort(all, (size_t)count, sizeof *all, by_place);
  *count_out = count;
  return all;
}

/* A call with a state that a power cut undid.  But a raised counter has no row,
 * and may have stayed. */
static void play_lost(noted *c) {
  check_lost(c);
  if (c->kind != NOTES_raise_sequence || c->rc != ZKE_OK || !choose(2)) return;
  c->used = true;
  free(ask(c, playing - 1));
}

/* Play the rows of a zxid with their call, if there is one. */
static noted *play_change(const rows *r, const placed *p) {
  noted *c = p && p->zxid == playing && makes_change(p->c) ? p->c : NULL;
  if (r->count) clock_ms = r->at->time_ms;
  if (c) {
    play_call(c, r);
    check_time(c, r);
  } else if (r->count) {
    explain_all(r);
  }
  hear();
  return c;
}

/* For qsort(): ascending. */
static int by_number(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Go through rows and calls by zxid: the change, then the calls that saw it. */
static void play(const placed *p, const placed *end) {
  const history_change *row = history->at, *last = row + history->count;
  const rows none = {NULL, 0};
  while (!finding[0] && (p < end || row < last)) {
    rows r = {row, 0};
    playing =
        row < last && (p == end || row->zxid < p->zxid) ? row->zxid : p->zxid;
    for (; row < last && row->zxid == playing; row++) r.count++;
    if (!is_lost(playing)) p += play_change(&r, p < end ? p : NULL) != NULL;
    for (; p < end && p->zxid == playing; p++) {
      if (is_lost(playing))
        play_lost(p->c);
      else if (!p->c->used)
        play_call(p->c, &none);
    }
  }
}

/* ---- at the end ---- */

/* Nothing of a batch exists without the rest. */
static void check_batches(void) {
  for (int i = 0; i < notes_count; i++) {
    const noted *b = notes_all[i];
    int of = 0, there = 0;
    if (b->kind != NOTES_batch || !is_unknown(b)) continue;
    for (int k = i; k < notes_count; k++) {
      const noted *c = notes_all[k];
      if (c->batch != b || !c->done || !makes_change(c)) continue;
      of++;
      there += c->used;
    }
    if (there && there < of)
      found("P2: %d of %d changes of a batch are there", there, of);
  }
}

/* Is the session alive and at rest, and the change an old one? */
static bool is_told(int64_t session, int64_t zxid) {
  bool lives = false;
  for (int i = 0; i < SIM_SLOTS; i++)
    lives |= known_of[i].id == session && sched_lives(i) && !known_of[i].lost;
  if (!lives) return false;
  int64_t now = wait_clock(ZKE_CLOCK_REALTIME) / SIM_MS;
  for (int i = history->count; i-- > 0 && history->at[i].zxid >= zxid;)
    if (now - history->at[i].time_ms < PATIENCE_MS) return false;
  return true;
}

/* Report an event that a watch got, or did not get. */
static void watch_differs(const noted *c, const char *what,
                          const notes_event *e) {
  found("P3: a watch by %s of %s by %llx, zxid %llx, %s event %d of %s, %llx",
        notes_name(c->kind), c->path, (long long)c->session, (long long)c->zxid,
        what, e->type, e->path, (long long)e->zxid);
}

/* The same change, reported in the same way? */
static bool same_event(const notes_event *a, const notes_event *b) {
  return a->zxid == b->zxid && a->type == b->type &&
         strcmp(a->path, b->path) == 0;
}

/* Was this event dropped because there were too many?  Then one-shot watches
 * were, too. */
static bool is_cut(const noted *c, const notes_event *owed) {
  return c->cut && (owed->zxid <= c->cut || c->kind != NOTES_add_watch);
}

/* Did the watch get exactly the events that it should, in that order?  Its
 * session has got events up to a zxid. */
static void check_watch(const noted *c, int64_t heard) {
  const notes_event *told = c->told.at, *end = told + c->told.count;
  for (int i = 0; i < c->owed.count; i++) {
    const notes_event *owed = &c->owed.at[i];
    if (told < end && same_event(told, owed)) {
      told++;
    } else if (!is_cut(c, owed)) {
      if (told < end || owed->zxid < heard || is_told(c->session, owed->zxid))
        watch_differs(c, "was not told of", owed);
      return;
    }
  }
  if (told == end) return;
  if (!is_lost(told->zxid)) watch_differs(c, "was told of", told);
  if (told->type == ZKE_EVENT_CHANGED && is_lasting(told->path))
    watch_differs(c, "was told before a cut of", told);
}

/* The last event that the call's session has got since the call.  Earlier
 * events say nothing about a watch since an older state. */
static int64_t heard_since(int call) {
  int64_t heard = 0;
  for (int i = 0; i < notes_count; i++) {
    const noted *c = notes_all[i];
    if (c->session != notes_all[call]->session) continue;
    for (int k = 0; k < c->told.count; k++)
      if (c->told.at[k].when > call && c->told.at[k].zxid > heard)
        heard = c->told.at[k].zxid;
  }
  return heard;
}

/* Then it is unknown which events were still to come. */
static bool is_removed(const noted *watch) {
  for (int i = 0; i < notes_count; i++)
    if (notes_all[i]->target == watch) return true;
  return false;
}

/* Check each watch that the model has set, too. */
static void check_watches(void) {
  for (int i = 0; i < notes_count; i++) {
    const noted *c = notes_all[i];
    if (c->fn && c->used && !is_removed(c)) check_watch(c, heard_since(i));
  }
}

/* Make another choice than the last ones; false: all were tried. */
static bool choose_again(void) {
  while (choice_count > 0) {
    if (++choices[choice_count - 1].taken < choices[choice_count - 1].fit)
      return true;
    choices[--choice_count].taken = 0;
  }
  return false;
}

/* Play everything from the beginning. */
static void play_all(const placed *all, int count) {
  finding[0] = '\0';
  session_count = choice_count = 0;
  for (int i = 0; i < notes_count; i++) {
    notes_all[i]->used = false;
    notes_all[i]->owed.count = 0;
  }
  model_start();
  play(all, all + count);
  check_batches();
  check_watches();
  model_end(tree);
}

/* Is it about a node in a corner, or a set of the corner? */
static bool is_of_a_corner(const history_change *c) {
  const char *rest = notes_corner(c->path);
  return rest && (*rest || c->type == ZKE_EVENT_CHANGED);
}

/* Corners are judged elsewhere; these are the other rows. */
static history_changes *without_corners(const history_changes *list) {
  size_t size = sizeof *list->at * (size_t)(list->count + 1);
  history_changes *out = sim_zero(sizeof *out);
  history_change *to = sim_zero(size);
  out->at = to;
  for (int i = 0; i < list->count; i++)
    if (!is_of_a_corner(&list->at[i])) to[out->count++] = list->at[i];
  return out;
}

/* After a difference, play everything again with each other choice of what is
 * unknown.  The first difference is reported. */
void judge(const history_changes *list) {
  char first[sizeof finding];
  int count;
  /* a backup returns the tree to a state without a zxid */
  for (int i = 0; i < the_plan.faults; i++)
    if (the_plan.fault[i].kind == 'A') return;
  history = without_corners(list);
  find_lasts();
  placed *all = arrange(&count);
  qsort(lasts, (size_t)epoch_count, sizeof *lasts, by_number);
  if (!epoch_count) return;
  play_all(all, count);
  memcpy(first, finding, sizeof first);
  for (int i = 0; finding[0] && i < TRIES && choose_again(); i++)
    play_all(all, count);
  if (finding[0]) sim_found("%s", first);
  free(all);
}

/* ---- the last look ---- */

/* Read a node and all below it. */
static void look_over(const ops_actor *a, const char *path) {
  zke_strings *names = NULL;
  zke_stat stat = {.version = 0};
  char below[256];
  if (is_corner(path)) return;
  if (zke_get(a->z, path, NULL, NULL, NULL, NULL, &stat) != ZKE_OK) return;
  if (stat.aversion) zke_get_acl(a->z, path, NULL, NULL);
  if (!stat.numChildren) return;
  if (zke_children(a->z, path, NULL, NULL, &names, NULL) != ZKE_OK) return;
  for (int i = 0; i < names->count; i++) {
    snprintf(below, sizeof below, "%s/%s", path[1] ? path : "", names->data[i]);
    look_over(a, below);
  }
  zke_free(names);
}

/* As a session that may see everything. */
void judge_look(const ops_actor *a) {
  zke_add_auth(a->z, "digest", OPS_USER, (int)strlen(OPS_USER));
  look_over(a, "/");
}
