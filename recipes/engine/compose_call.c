/* compose_call.c - the watchers of a composed handle, and the beginning and end
 * of a call
 *
 * It promises to the files above it: between the beginning and the end of a
 * call, the order is kept, the thread's limit holds, and the handle stays.  A
 * pair of function and context is called once for an event, with the caller's
 * path, and not after it is forgotten.
 *
 * Contents; each section calls only those above it:
 *
 *   frame_  the watcher or batch that this thread is inside, and its limit
 *   pair_   pairs of function and context: the table of them; registering and
 *   tie_    forgetting them, and what parts call for them
 *   call_   the beginning and end of a call
 *
 * Start with zke_compose_call_begin() and zke_compose_call_end() for the way
 * down, from a call to its part, and with tie_event() for the way up, from a
 * part's event to the watcher.  The invariants are in compose_call.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "compose_call.h"

#include <pthread.h>
#include <unistd.h>

#include "../part/text.h"

/* ---- frame_: what this thread is inside ----
 *
 * A watcher is called with the composed handle, so its bans (close, compact)
 * must be known here: a part would apply them only to its own handle.  Frames
 * are a list on the thread's stack, innermost first, because a watcher may
 * dispatch again, and handles may be used in each other's watchers.  A frame is
 * removed even if its watcher ends the thread. */

/* The time until which a thread's calls on a handle wait: zke_limit().  If h is
 * NULL there is no limit.  The handle may be closed and the next one get its
 * address, so the serial number must match too. */
typedef struct frame_bound {
  const compose *h;
  uint64_t serial;
  int64_t until;
} frame_bound;

/* A watcher, or the function of a batch, that runs on this thread; on the
 * thread's stack. */
typedef struct frame {
  const compose *h;
  compose_part *p; /* source of the event; NULL: a batch */
  struct frame *outer;
  frame_bound limit; /* the caller's */
} frame;

static _Thread_local frame *frame_top;

static _Thread_local frame_bound frame_limit; /* of this thread */

/* Does this thread have a limit on the handle? */
static bool frame_is_limited(const compose *h) {
  return frame_limit.h == h && frame_limit.serial == h->serial;
}

/* Watchers are not limited. */
static void frame_push(frame *f) {
  f->outer = frame_top;
  f->limit = frame_limit;
  frame_limit.h = NULL;
  frame_top = f;
}

/* The watcher has returned, or has ended its thread: restore the caller's
 * limit. */
static void frame_pop(void *arg) {
  const frame *f = arg;
  frame_limit = f->limit;
  frame_top = f->outer;
}

/* Skips the frames of batches. */
compose_part *zke_compose_event_part(const compose *h) {
  const frame *f = frame_top;
  while (f && (f->h != h || !f->p)) f = f->outer;
  return f ? f->p : NULL;
}

/* Is this thread inside a watcher of the handle, or a batch? */
bool zke_compose_is_inside(const compose *h) {
  const frame *f = frame_top;
  while (f && f->h != h) f = f->outer;
  return f;
}

/* Call a watcher.  It may end its thread, and it may fork, so no mutex is taken
 * after it. */
static void frame_call(compose *h, compose_part *p, zke_watch_fn fn,
                       void *context, int type, int state, const char *path) {
  frame f = {.h = h, .p = p};
  frame_push(&f);
  pthread_cleanup_push(frame_pop, &f);
  __atomic_add_fetch(&h->calls, 1, __ATOMIC_SEQ_CST);
  fn((zke *)(void *)h, type, state, path, context);
  __atomic_add_fetch(&h->turn, 1, __ATOMIC_SEQ_CST);
  pthread_cleanup_pop(1);
}

/* The function of a batch has returned, or has ended its thread. */
static void frame_leave_batch(void *arg) {
  const frame *f = arg;
  frame_top = f->outer;
}

/* A batch's function is called with the caller's handle. */
typedef struct batch {
  compose *h;
  zke_batch_fn fn;
  void *context;
} batch;

/* A part calls this.  The frame shows that the thread is inside, so zke_close()
 * is refused. */
static int frame_in_batch(zke *z, void *arg) {
  const batch *b = arg;
  volatile int rc = ZKE_OK;
  frame f = {.h = b->h, .outer = frame_top};
  (void)z;
  frame_top = &f;
  pthread_cleanup_push(frame_leave_batch, &f);
  rc = b->fn((zke *)(void *)b->h, b->context);
  pthread_cleanup_pop(1);
  return rc;
}

/* The part refuses a NULL function itself. */
int zke_compose_batch(compose_part *p, zke_batch_fn fn, void *context) {
  batch b = {p->h, fn, context};
  return zke_batch(p->z, fn ? frame_in_batch : NULL, &b);
}

/* zke_limit() is noted here, and set on a part for each call: a thread's limit
 * is on one handle at a time. */
int64_t zke_compose_limit(zke *z, int64_t deadline_ms) {
  const compose *h = zke_compose_of(z);
  int64_t was = frame_is_limited(h) ? frame_limit.until : ZKE_FOREVER;
  frame_limit.h = deadline_ms == ZKE_FOREVER ? NULL : h;
  frame_limit.serial = h->serial;
  frame_limit.until = deadline_ms;
  return was;
}

/* ---- pair_ and tie_: who watches ----
 *
 * A part knows a pair as tie_event() and the pair's tie to the part.  So the
 * part's own rules for pairs hold: call it once for an event, remove it, forget
 * it.  A forgotten pair stays in the table until all parts have removed it.  So
 * a second thread that forgets it in the meantime finds it, and waits for the
 * parts too: no call returns while the pair can be called. */

/* The context that a part gets for a pair. */
typedef struct tie {
  compose_pair *pair;
  compose_part *p;
} tie;

/* A function and its context, with a tie to each part. */
struct compose_pair {
  compose_pair *next;
  zke_watch_fn fn;
  void *context;
  int busy;     /* calls that register, find or forget it */
  int64_t uses; /* how many of these have begun */
  bool gone;    /* forgotten: the last of these frees it */
  bool told;    /* was told of the end; the leader's */
  tie ties[];
};

/* The bucket of a pair.  Most contexts are blocks, with the same last bits, so
 * these are left out. */
static compose_pair **pair_bucket(compose *h, zke_watch_fn fn,
                                  const void *context) {
  uintptr_t n = (uintptr_t)context / 16 * 31 + (uintptr_t)fn;
  return &h->pairs[(n ^ n / COMPOSE_BUCKETS) % COMPOSE_BUCKETS];
}

/* The link to a pair, or the end of its bucket.  The handle's mutex is held. */
static compose_pair **pair_at(compose *h, zke_watch_fn fn,
                              const void *context) {
  compose_pair **at = pair_bucket(h, fn, context);
  while (*at && ((*at)->fn != fn || (*at)->context != context))
    at = &(*at)->next;
  return at;
}

/* One more call uses the pair, until pair_release().  The handle's mutex is
 * held. */
static void pair_hold(compose_pair *w) {
  w->busy++;
  w->uses++;
}

/* Find a registered pair, for a call about it: NULL, or a pair that stays until
 * pair_release().  forget: its last release must remove it from all parts,
 * unless it is the default watcher. */
static compose_pair *pair_find(compose *h, zke_watch_fn fn, const void *context,
                               bool forget) {
  pthread_mutex_lock(&h->m);
  compose_pair *w = *pair_at(h, fn, context);
  if (w) pair_hold(w);
  if (w && forget) w->gone = w != h->fallback;
  pthread_mutex_unlock(&h->m);
  return w;
}

/* Find or make a pair, for a call that may register it; NULL if out of memory.
 * It stays until pair_release(). */
static compose_pair *pair_use(compose *h, zke_watch_fn fn, void *context) {
  size_t size = sizeof(compose_pair) + (size_t)h->count * sizeof(tie);
  pthread_mutex_lock(&h->m);
  compose_pair *w = *pair_at(h, fn, context);
  if (!w && (w = zke_alloc(h->parts[0]->z, size)) != NULL) {
    compose_pair **at = pair_bucket(h, fn, context);
    w->fn = fn;
    w->context = context;
    for (int i = 0; i < h->count; i++) w->ties[i] = (tie){w, h->parts[i]};
    w->next = *at;
    *at = w;
  }
  if (w) pair_hold(w);
  if (w) w->gone = false;
  pthread_mutex_unlock(&h->m);
  return w;
}

/* The pair's tie to a part. */
static tie *pair_tie(compose_pair *w, const compose_part *p) {
  tie *t = w->ties;
  while (t->p != p) t++;
  return t;
}

/* Tell the pair of an event, unless a mount hides its path: "" or the caller's.
 */
static void tie_tell_outer(const tie *t, int type, int state,
                           const char *outer) {
  compose_part *p = t->p;
  if (*outer && zke_compose_part_hides(p, outer)) return;
  frame_call(p->h, p, t->pair->fn, t->pair->context, type, state, outer);
}

/* The same with a path in a block, which is freed even if the watcher ends its
 * thread.  If there is no memory for it, the pair is told to look at everything
 * again. */
static void tie_tell_long(const tie *t, int type, int state, const char *path) {
  char *outer = zke_compose_part_outer_copy(t->p, path);
  if (outer) {
    pthread_cleanup_push(zke_free, outer);
    tie_tell_outer(t, type, state, outer);
    pthread_cleanup_pop(1);
  } else {
    tie_tell_outer(t, ZKE_EVENT_OVERFLOW, state, "");
  }
}

/* The same with the part's path; "" means no path, and stays. */
static void tie_tell(const tie *t, int type, int state, const char *path) {
  char outer[512] = "";
  if (*path && zke_compose_part_outer_len(t->p, path) >= sizeof outer) {
    tie_tell_long(t, type, state, path);
    return;
  }
  if (*path) zke_compose_part_outer(t->p, path, outer);
  tie_tell_outer(t, type, state, outer);
}

/* Note what a part's event means for all parts; returns the state that the
 * caller is told.  An alarm is not news of the part. */
static int tie_hear(compose_part *p, int type, int state) {
  if (type != ZKE_EVENT_ALARM) zke_compose_order_use(p);
  if (type != ZKE_EVENT_SESSION) return state;
  if (!zke_compose_is_end(state)) return zke_compose_states(p->h);
  zke_compose_order_end(p);
  return state;
}

/* What a part calls for a pair, including the default watcher's. */
static void tie_event(zke *z, int type, int state, const char *path,
                      void *context) {
  const tie *t = context;
  (void)z;
  state = tie_hear(t->p, type, state);
  if (type == ZKE_EVENT_SESSION && zke_compose_is_end(state)) {
    if (t->pair->told) return;
    t->pair->told = true;
  }
  tie_tell(t, type, state, path);
}

/* What a part calls if the handle has no default watcher. */
static void tie_nobody(zke *z, int type, int state, const char *path,
                       void *context) {
  (void)z, (void)path;
  tie_hear(context, type, state);
}

/* Remove the pair from all parts; they wait for its calls on other threads.
 * ZKE_MISUSE: a batch forbids it here, and the pair may still be called. */
static int tie_forget(const compose *h, compose_pair *w) {
  int sum = ZKE_OK;
  for (int i = 0; i < h->count; i++) {
    const compose_part *p = h->parts[i];
    int rc =
        zke_compose_part_excuse(p, zke_forget(p->z, tie_event, &w->ties[i]));
    if (sum == ZKE_OK || rc == ZKE_MISUSE) sum = rc;
  }
  return sum;
}

/* End a call's use of the pair.  The last use of a forgotten pair removes what
 * others have registered since, and frees the pair, unless another call has
 * started to use it in the meantime. */
static void pair_release(compose *h, compose_pair *w) {
  bool back = true, released = false;
  pthread_mutex_lock(&h->m);
  while (w->busy == 1 && w->gone && back && !released) {
    int64_t uses = w->uses;
    pthread_mutex_unlock(&h->m);
    back = tie_forget(h, w) != ZKE_MISUSE;
    pthread_mutex_lock(&h->m);
    released = back && w->uses == uses;
  }
  w->busy--;
  if (released) *pair_at(h, w->fn, w->context) = w->next;
  pthread_mutex_unlock(&h->m);
  if (released) zke_free(w);
}

/* Each part waits for a call of the pair that runs on another thread.  Then the
 * pair is gone, unless it is the default watcher. */
int zke_compose_pair_forget(compose *h, zke_watch_fn fn, const void *context) {
  compose_pair *w = pair_find(h, fn, context, true);
  if (!w) return ZKE_OK;
  int rc = tie_forget(h, w);
  pair_release(h, w);
  return rc;
}

/* The base keeps the time. */
int zke_compose_pair_at(compose *h, int64_t when_ms, zke_watch_fn fn,
                        void *context) {
  compose_pair *w = pair_use(h, fn, context);
  if (!w) return ZKE_NOMEM;
  int rc = zke_call_at(h->parts[0]->z, when_ms, tie_event, &w->ties[0]);
  pair_release(h, w);
  return rc;
}

/* Make a part call the handle's default watcher, or tie_nobody().  It is not a
 * failure if a read-only part refuses. */
static int tie_set_default(compose_part *p, compose_pair *w) {
  int rc = zke_set_watcher(p->z, w ? tie_event : tie_nobody,
                           w ? (void *)pair_tie(w, p) : (void *)p);
  return rc == ZKE_READONLY ? ZKE_OK : rc;
}

/* Each part calls the pair itself, so a pair that also watches is called once
 * for an event.  The pair stays as long as the handle, because a dispatch may
 * still call it. */
int zke_compose_pair_default(compose *h, zke_watch_fn fn, void *context) {
  int sum = ZKE_OK;
  compose_pair *w = fn ? pair_use(h, fn, context) : NULL;
  if (fn && !w) return ZKE_NOMEM;
  pthread_mutex_lock(&h->m);
  h->fallback = w;
  pthread_mutex_unlock(&h->m);
  for (int i = 0; i < h->count; i++) {
    int rc = tie_set_default(h->parts[i], w);
    if (sum == ZKE_OK) sum = rc;
  }
  return sum;
}

/* The handle has no default watcher yet: the part's events are only noted. */
int zke_compose_pair_listen(compose_part *p) {
  if (p->listens) return ZKE_OK;
  int rc = tie_set_default(p, NULL);
  p->listens = rc == ZKE_OK;
  return rc;
}

/* A pair is in the table from its first use, even if that failed. */
bool zke_compose_pair_any(const compose *h) {
  for (int i = 0; i < COMPOSE_BUCKETS; i++)
    if (h->pairs[i]) return true;
  return false;
}

/* The handle is closed, or was never given out. */
void zke_compose_pair_clear(compose *h) {
  for (int i = 0; i < COMPOSE_BUCKETS; i++) {
    for (compose_pair *w = h->pairs[i], *next; w; w = next) {
      next = w->next;
      zke_free(w);
    }
    h->pairs[i] = NULL;
  }
}

/* ---- call_: beginning and end ----
 *
 *     zke_compose_call_begin()      on the part that a path lies in
 *     zke_compose_call_begin_…()    the same with a watcher
 *     zke_compose_call_end()        its end, with the part's result
 *
 *     zke_compose_call_begin_all()  on several parts
 *     zke_compose_call_turn_to()    turn to one of them
 *     zke_compose_call_unlimit()    after that part's own call
 *     zke_compose_call_leave()      the end */

/* When the process forked, a thread of the parent may have held any mutex. */
int zke_compose_check_process(const compose *h) {
  if (h->pid == getpid()) return ZKE_OK;
  return zke_recipe_fail(ZKE_FORKED,
                         "the handle belongs to the parent process");
}

/* For calls that end because another thread is closing their handle. */
int zke_compose_closing(void) {
  return zke_recipe_fail(ZKE_CLOSING, "another thread is closing the handle");
}

/* A call that sleeps checks this after each sleep. */
int zke_compose_check_closing(compose *h) {
  pthread_mutex_lock(&h->m);
  bool closing = h->closing;
  pthread_mutex_unlock(&h->m);
  return closing ? zke_compose_closing() : ZKE_OK;
}

/* In a forked child nothing is counted. */
int zke_compose_call_enter(compose_call *c, zke *z) {
  *c = (compose_call){.h = zke_compose_of(z)};
  compose *h = c->h;
  int rc = zke_compose_check_process(h);
  if (rc != ZKE_OK) return rc;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &c->old_state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &c->old_type);
  pthread_mutex_lock(&h->m);
  bool closing = h->closing;
  if (!closing) h->inside++;
  pthread_mutex_unlock(&h->m);
  if (!closing) return ZKE_OK;
  pthread_setcanceltype(c->old_type, NULL);
  pthread_setcancelstate(c->old_state, NULL);
  return zke_compose_closing();
}

/* Count out, and restore the thread's cancellation.  The last thread to leave
 * lets zke_close() continue.  Returns rc, for use in a return statement. */
int zke_compose_call_leave(compose_call *c, int rc) {
  compose *h = c->h;
  if (h->pid != getpid()) return rc; /* forked in a watcher */
  pthread_mutex_lock(&h->m);
  if (--h->inside == 0) pthread_cond_broadcast(&h->moved);
  pthread_mutex_unlock(&h->m);
  pthread_setcanceltype(c->old_type, NULL);
  pthread_setcancelstate(c->old_state, NULL);
  return rc;
}

/* Refuse a call on a part if a session has ended.  Sessions that could not be
 * ended before are tried again.  A part that lost its own session refuses by
 * itself, in its own order of checks. */
static int call_check_end(const compose_part *p) {
  if (!zke_compose_order_has_ended(p->order)) return ZKE_OK;
  if (zke_compose_is_end(zke_state(p->z))) return ZKE_OK;
  return zke_recipe_fail(ZKE_INVALIDSTATE,
                         "the session of another part has ended");
}

/* Set this thread's limit on the part for the call. */
static void call_limit(compose_call *c) {
  c->limited = frame_is_limited(c->h);
  if (c->limited) c->limit = zke_limit(c->p->z, frame_limit.until);
}

/* The part's own call has returned: restore the part's limit, and note its use.
 * If the part says that its session has ended, end the others.  In a child
 * forked in the meantime, nothing of the parent's is touched. */
int zke_compose_call_unlimit(compose_call *c, int rc) {
  compose_part *p = c->p;
  if (c->h->pid != getpid()) return rc;
  if (c->limited) zke_limit(p->z, c->limit);
  c->limited = false;
  zke_compose_order_use(p);
  if (rc != ZKE_OK && zke_compose_is_end(zke_state(p->z)))
    zke_compose_order_end(p);
  return rc;
}

/* The part's handle, for a call that goes to several parts in turn.  The part
 * keeps the limit until zke_compose_call_unlimit(). */
zke *zke_compose_call_turn_to(compose_call *c, compose_part *p) {
  c->p = p;
  call_limit(c);
  return p->z;
}

/* The part's call is over, and so is the whole call.  In a child forked in a
 * batch, nothing of the parent's is touched. */
int zke_compose_call_end(compose_call *c, int rc) {
  compose_part *p = c->p;
  if (c->h->pid != getpid()) return rc;
  if (rc == ZKE_OK && (c->how & COMPOSE_CHANGE))
    zke_compose_order_fresh(p, c->began);
  zke_compose_call_unlimit(c, rc);
  if (rc != ZKE_OK && !zke_compose_part_is_base(p)) {
    zke_sentence kept;
    zke_recipe_keep(&kept);
    zke_fail(rc, "below %s: %s", p->prefix, kept.text);
  }
  if (c->w) pair_release(c->h, c->w);
  return zke_compose_call_leave(c, rc);
}

/* A watcher, the function of a batch or a cancelled sleep has ended the thread
 * inside a call: count out. */
void zke_compose_call_abandon(void *arg) {
  zke_compose_call_leave(arg, ZKE_OK);
}

/* The part of the call is known, and no session has ended.  If the order cannot
 * be kept, the call is over. */
static int call_start(compose_call *c) {
  int rc = ZKE_OK;
  c->began = zke_compose_order_time(c->p);
  call_limit(c);
  if (c->how & COMPOSE_READ) rc = zke_compose_order_read(c->p);
  return rc == ZKE_OK ? ZKE_OK : zke_compose_call_end(c, rc);
}

/* An ended session is reported before a mount below the path. */
int zke_compose_call_begin(compose_call *c, zke *z, const char *path, int how) {
  int rc = zke_compose_call_enter(c, z);
  if (rc != ZKE_OK) return rc;
  c->how = how;
  c->p = zke_compose_part_find(c->h, path, how & COMPOSE_NAMES);
  c->path = zke_compose_part_inner(c->p, path, how & COMPOSE_NAMES);
  rc = call_check_end(c->p);
  if (rc == ZKE_OK && (how & COMPOSE_BELOW) &&
      zke_compose_part_spans(c->h, path))
    rc = zke_recipe_fail(ZKE_UNIMPLEMENTED,
                         "another service is mounted below %s", path);
  if (rc != ZKE_OK) return zke_compose_call_leave(c, rc);
  return call_start(c);
}

/* The same for a call that registers a watcher, which may be NULL. */
int zke_compose_call_begin_watch(compose_call *c, zke *z, const char *path,
                                 int how, zke_watch_fn fn, void *context) {
  int rc = zke_compose_call_begin(c, z, path, how);
  if (rc != ZKE_OK || !fn) return rc;
  c->w = pair_use(c->h, fn, context);
  if (!c->w) return zke_compose_call_end(c, ZKE_NOMEM);
  c->fn = tie_event;
  c->context = pair_tie(c->w, c->p);
  return ZKE_OK;
}

/* The same for a call about a pair that may not be registered.  The part then
 * gets a context that it does not know, and says so. */
int zke_compose_call_begin_known(compose_call *c, zke *z, const char *path,
                                 zke_watch_fn fn, void *context) {
  int rc = zke_compose_call_begin(c, z, path, 0);
  if (rc != ZKE_OK || !fn) return rc;
  c->w = pair_find(c->h, fn, context, false);
  c->fn = tie_event;
  c->context = c->w ? (void *)pair_tie(c->w, c->p) : (void *)c->h;
  return ZKE_OK;
}

/* Refuse a call that several parts cannot answer together; a handle of one part
 * can.  The call has counted in, and is over if this fails. */
int zke_compose_call_alone(compose_call *c, const char *what) {
  if (c->h->count == 1) return ZKE_OK;
  zke_fail(ZKE_UNIMPLEMENTED,
           "%s: services that are mounted have no common one", what);
  return zke_compose_call_leave(c, ZKE_UNIMPLEMENTED);
}

/* Begin a call on all parts: count in; refuse it if a session has ended. */
int zke_compose_call_begin_all(compose_call *c, zke *z) {
  int rc = zke_compose_call_enter(c, z);
  if (rc != ZKE_OK) return rc;
  rc = call_check_end(c->h->parts[0]);
  return rc == ZKE_OK ? ZKE_OK : zke_compose_call_leave(c, rc);
}

/* No path selects the part: the caller has found it. */
int zke_compose_call_begin_on(compose_call *c, compose_part *p, int how) {
  int rc = call_check_end(p);
  if (rc != ZKE_OK) return zke_compose_call_leave(c, rc);
  c->p = p;
  c->how = how;
  return call_start(c);
}
