/* compose.c - several services as one
 *
 * An engine behind zkembed.h.  Its handle has parts: handles of other engines,
 * which it owns.  A call finds the part that its path lies in, keeps the order,
 * makes the part's own call, and gives the result the caller's paths and
 * session ids.
 *
 *     call_begin()     count in; which part?; has a session ended?
 *     order_read()     before a read: zke_sync(), where the part may be behind
 *     zke_get(part…)   the call itself
 *     call_end()       note that the part was used; count out
 *
 * An event comes from a part's dispatch into tie_event(), which notes that the
 * part was heard of, and calls the pair with this handle and the caller's path.
 *
 * The sections, each of which calls those above it only:
 *
 *     order_   the common order of parts, and the end of their sessions
 *     part_    paths and session ids of one part
 *     frame_   the watcher that this thread is inside of, and its limit
 *     pair_    pairs of function and context, and what parts call for them
 *     call_    into a call and out of it
 *     compose_ the functions of the engine: nodes, watches, sessions
 *     wait_    dispatching and sleeping
 *     zke_     zke_order() and zke_mount()
 *
 * Locks: a handle's mutex, then its order's.  No lock is held while a part is
 * called or a watcher runs, but for blocks (zke_alloc()) and descriptors
 * (zke_fd()), for which a part calls nobody.
 *
 * Invariants:
 *  1. A part belongs to one handle and to one order, from its making to its
 *     handle's close.  A handle's parts never change once it is in use.
 *  2. One thread at a time dispatches a handle: the leader.  So a pair is
 *     called once at a time, as with one service.
 *  3. While a call is counted in, the handle's memory and its parts stay.
 *  4. A part is not closed while it is pinned (order_end_others()).
 *  5. A pair is in the handle's table while any part may call it.
 *  6. What a part has done is told: whatever needs memory is had before.
 *  7. A thread that is inside a watcher or a batch of the handle has a frame of
 *     it, and what would wait for that thread is refused there.
 *  8. In a forked child no mutex is touched. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_condattr_setclock */
#endif

#include "compose.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "text.h"

typedef struct compose compose;
typedef struct compose_part compose_part;

/* ---- order_: the common order, and the common end ----
 *
 * Time is a number that each use of a part raises: a call that has returned, or
 * an event that is about to be told.  A part is behind where another part was
 * used after the part was last brought up to date, by a sync or by a change.
 * The time is taken before the sync begins, since what happens on other parts
 * meanwhile is not in it.
 *
 *     others > fresh   behind: the next read sends a sync first
 *     others <= fresh  what the part shows is no older than all that was known
 *                      when it was last brought up to date
 *
 * A use of one part makes all others behind, and itself neither behind nor
 * fresh: so reads that follow each other on one part cost one sync together.
 * doc/composition.md has the argument why this is enough.
 *
 * The end of a session goes the other way.  Whoever finds it, by a call or by
 * an event, ends the sessions of all other parts, also of those that belong to
 * other handles: such a part is pinned meanwhile, so that its handle's close
 * waits.  A part is over once its session has ended, or cannot be ended.  What
 * could not be ended for a passing reason is tried again by later calls and
 * dispatches; until then all calls are refused, so that nobody can tell. */

/* The parts that share one order, and its time. The last part to leave frees
 * it. */
typedef struct order {
  pthread_mutex_t m;
  pthread_cond_t unpinned;
  compose_part *first;
  int64_t time;
  bool ended;
} order;

struct compose_part {
  compose *h;
  zke *z;
  char *prefix; /* "" for the base */
  size_t prefix_len;
  int64_t own;  /* the id of its session; 0: read-only */
  int64_t mark; /* what others' ids are shown with */
  bool is_file; /* its reads are never behind */
  order *order; /* constant once in use; its mutex guards what follows */
  compose_part *next;
  int64_t others;   /* when another part was last used */
  int64_t fresh;    /* at least as new as all before this time */
  int pins;         /* threads that end its session */
  bool over, tried; /* its session has ended; this round has tried to end it */
  bool listens;     /* its default watcher is ours; of who makes the handle */
};

/* An order without parts, in a block of the handle's; NULL without memory. */
static order *order_new(zke *z) {
  order *o = zke_alloc(z, sizeof *o);
  if (!o) return NULL;
  pthread_mutex_init(&o->m, NULL);
  pthread_cond_init(&o->unpinned, NULL);
  return o;
}

/* Release an order that has no parts any more; NULL is fine. */
static void order_free(order *o) {
  if (!o) return;
  pthread_cond_destroy(&o->unpinned);
  pthread_mutex_destroy(&o->m);
  zke_free(o);
}

/* Put a part into an order.  No other thread may use either: so the mutex is
 * not taken, and p->order is read without it from then on. */
static void order_add(order *o, compose_part *p) {
  p->order = o;
  p->next = o->first;
  o->first = p;
}

/* Take a part out.  The last one takes the order with it. */
static void order_remove(compose_part *p) {
  order *o = p->order;
  pthread_mutex_lock(&o->m);
  while (p->pins > 0) pthread_cond_wait(&o->unpinned, &o->m);
  compose_part **at = &o->first;
  while (*at != p) at = &(*at)->next;
  *at = p->next;
  bool empty = !o->first;
  pthread_mutex_unlock(&o->m);
  if (empty) order_free(o);
}

/* A part was used: all others are behind it now. It is called behind each call
 * of the part, and before an event of the part is told. */
static void order_use(compose_part *p) {
  order *o = p->order;
  pthread_mutex_lock(&o->m);
  o->time++;
  for (compose_part *q = o->first; q; q = q->next) {
    if (q != p) q->others = o->time;
  }
  pthread_mutex_unlock(&o->m);
}

/* All parts may be behind each other: nothing is known of what was done before
 * they had a common order.  The times of an order that they had before say
 * nothing in this one. */
static void order_begin(order *o) {
  pthread_mutex_lock(&o->m);
  for (compose_part *p = o->first; p; p = p->next) {
    p->others = 0;
    p->fresh = -1;
  }
  pthread_mutex_unlock(&o->m);
}

/* The time at which a sync or a change begins, for order_note_fresh(). */
static int64_t order_time(const compose_part *p) {
  pthread_mutex_lock(&p->order->m);
  int64_t now = p->order->time;
  pthread_mutex_unlock(&p->order->m);
  return now;
}

/* A sync or a change that began at that time has succeeded: from here on reads
 * of the part show at least what was known then. */
static void order_note_fresh(compose_part *p, int64_t began) {
  pthread_mutex_lock(&p->order->m);
  if (p->fresh < began) p->fresh = began;
  pthread_mutex_unlock(&p->order->m);
}

/* May the part show what is older than what was done or heard elsewhere? */
static bool order_is_behind(const compose_part *p) {
  pthread_mutex_lock(&p->order->m);
  bool behind = p->others > p->fresh;
  pthread_mutex_unlock(&p->order->m);
  return behind;
}

/* Before a read: bring the part up to date where it may be behind.  Two threads
 * may both find it so; each needs a sync that began after its own past. */
static int order_read(compose_part *p) {
  if (p->is_file || !order_is_behind(p)) return ZKE_OK;
  int64_t began = order_time(p);
  int rc = zke_sync(p->z, "/");
  if (rc == ZKE_OK) order_note_fresh(p, began);
  return rc;
}

/* A part whose session is still to be ended, pinned; NULL: none is left. */
static compose_part *order_pin_next(order *o) {
  pthread_mutex_lock(&o->m);
  compose_part *p = o->first;
  while (p && (p->over || p->tried)) p = p->next;
  if (p) p->pins++;
  if (p) p->tried = true;
  pthread_mutex_unlock(&o->m);
  return p;
}

/* The thread that has pinned the part is done with it. over: its session is
 * gone, or nothing can end it, so that nobody has to try again. */
static void order_unpin(compose_part *p, bool over) {
  order *o = p->order;
  pthread_mutex_lock(&o->m);
  if (over) p->over = true;
  p->pins--;
  pthread_cond_broadcast(&o->unpinned);
  pthread_mutex_unlock(&o->m);
}

/* May a later call end a session that could not be ended now?  A file may be
 * busy or full, a batch may forbid it here, or memory may be short.  An engine
 * that cannot do it at all counts as over: its session ends when the part is
 * closed. */
static bool order_may_retry(int rc) {
  switch (rc) {
    case ZKE_OPERATIONTIMEOUT:
    case ZKE_MISUSE:
    case ZKE_CONNECTIONLOSS:
    case ZKE_FULL:
    case ZKE_NOMEM:
    case ZKE_SYSTEMERROR:
      return true;
    default:
      return false;
  }
}

/* End a part's session.  An ensemble that cannot be reached now is not waited
 * for: later calls try again, and each of them would wait as long.  (Not by
 * zke_limit(), since this thread may have a limit on another handle.) */
static int order_expire(const compose_part *p) {
  if (!p->is_file && zke_state(p->z) == ZKE_STATE_CONNECTING)
    return ZKE_OPERATIONTIMEOUT;
  return zke_expire(p->z, p->own);
}

/* End the sessions of all parts that have one still: each part's engine tells
 * its own watchers.  What cannot be ended now is left to a later call. */
static void order_end_others(order *o) {
  pthread_mutex_lock(&o->m);
  for (compose_part *p = o->first; p; p = p->next) p->tried = false;
  pthread_mutex_unlock(&o->m);
  zke_sentence kept;
  zke_recipe_keep(&kept);
  for (compose_part *p; (p = order_pin_next(o)) != NULL;) {
    int rc = p->own ? order_expire(p) : ZKE_OK;
    order_unpin(p, !order_may_retry(rc));
  }
  zke_fail(ZKE_INVALIDSTATE, "%s", kept.text);
}

/* A part's session has ended. */
static void order_end(compose_part *p) {
  order *o = p->order;
  pthread_mutex_lock(&o->m);
  p->over = true;
  o->ended = true;
  pthread_mutex_unlock(&o->m);
  order_end_others(o);
}

/* Has one of the sessions ended?  *left: another one is still to be ended. */
static bool order_has_ended(order *o, bool *left) {
  *left = false;
  pthread_mutex_lock(&o->m);
  bool ended = o->ended;
  for (const compose_part *p = o->first; p && ended; p = p->next)
    *left = *left || !p->over;
  pthread_mutex_unlock(&o->m);
  return ended;
}

/* ---- part_: paths and session ids ----
 *
 * A path of the caller's tree lies in the part with the longest prefix that
 * covers it.  Inside the part it is what follows the prefix:
 *
 *     mounted at /a   caller's   part       its own
 *                     /a         mounted    /
 *                     /a/b       mounted    /b
 *                     /ab        base       /ab
 *                     /a/        mounted    /a/, which it refuses
 *     with a number   /a/        mounted    /, which makes /0000000000
 *     with a number   /a         base       /a, which makes /a0000000000
 *
 * So the part's path is the end of the caller's own text, and never copied.
 * Results and events go the other way, into a block of their own.  What the
 * base has at or below a prefix is hidden: it is left out of events and lists.
 *
 * Ids.  The caller knows one number for the sessions of all parts, the base's,
 * so that recipes find their own nodes on every part.  Another session's number
 * is shown with the part's mark, bits that the numbers of sessions do not reach
 * as a rule: the same number on two services is then two.  part_take_id() is
 * the way back. */

enum { COMPOSE_BUCKETS = 64 };

struct compose {
  zke_handle handle;
  pid_t pid; /* that made it */
  int count; /* of parts, the base first */
  compose_part *parts[ZKE_MOUNTS];
  zke_os os;
  int poller;           /* of zke_fd(), -1: not made yet */
  int wakes[2];         /* a pipe that ends the leader's sleep */
  int64_t turn;         /* atomic */
  int64_t calls;        /* of watchers, so far; atomic */
  pthread_mutex_t m;    /* guards all that follows */
  pthread_cond_t moved; /* a turn, a leader, the last call, closing */
  struct pair *pairs[COMPOSE_BUCKETS];
  struct pair *fallback; /* the default watcher's */
  bool closing;
  int inside;       /* calls that are counted in */
  int leads;        /* how often the leader is inside its dispatch */
  pthread_t leader; /* while leads is not 0 */
};

/* The handle as this engine's own: the table of functions has been looked at.
 */
static compose *compose_of(zke *z) { return (compose *)(void *)z; }

/* The base is the part without a prefix: its paths and ids are the caller's. */
static bool part_is_base(const compose_part *p) { return p->prefix_len == 0; }

/* Is path at or below a prefix?  With a number behind it the path of the mount
 * point itself is not: "/a0000000001" is a node beside "/a". */
static bool part_covers(const compose_part *p, const char *path,
                        bool sequential) {
  if (strncmp(path, p->prefix, p->prefix_len) != 0) return false;
  char next = path[p->prefix_len];
  return next == '/' || (next == '\0' && !sequential);
}

/* The part that a path lies in: of those that cover it the one with the longest
 * prefix; the base for NULL. */
static compose_part *part_find(const compose *h, const char *path,
                               bool sequential) {
  compose_part *best = h->parts[0];
  for (int i = 1; i < h->count && path; i++) {
    compose_part *p = h->parts[i];
    if (p->prefix_len > best->prefix_len && part_covers(p, path, sequential))
      best = p;
  }
  return best;
}

/* The part's own path, inside the caller's text.  A trailing slash stays only
 * where a sequential name follows it, so that a malformed path stays one. */
static const char *part_inner(const compose_part *p, const char *path,
                              bool sequential) {
  if (!path || part_is_base(p)) return path;
  const char *inner = path + p->prefix_len;
  if (*inner == '\0') return "/";
  return inner[1] == '\0' && !sequential ? path : inner;
}

/* Is a node of this part hidden by a mount? */
static bool part_hides(const compose_part *p, const char *outer) {
  return part_find(p->h, outer, false) != p;
}

/* Does something lie mounted below the path? */
static bool part_spans(const compose *h, const char *path) {
  size_t len = path ? strlen(path) : 0;
  if (len == 1) len = 0; /* "/" */
  for (int i = 1; i < h->count && path; i++) {
    const char *prefix = h->parts[i]->prefix;
    if (strncmp(prefix, path, len) == 0 && prefix[len] == '/') return true;
  }
  return false;
}

/* The length of a path in the caller's tree, and the path itself, into a buffer
 * that has room for that and a NUL. */
static size_t part_outer_len(const compose_part *p, const char *inner) {
  size_t len = strlen(inner);
  return p->prefix_len + (len > 1 || part_is_base(p) ? len : 0);
}

/* The path of a part's node in the caller's tree, into part_outer_len() bytes
 * and one for the NUL. */
static void part_outer(const compose_part *p, const char *inner, char *out) {
  size_t len = part_outer_len(p, inner);
  memcpy(out, p->prefix, p->prefix_len);
  memcpy(out + p->prefix_len, inner, len - p->prefix_len);
  out[len] = '\0';
}

/* The same as a block; NULL without memory. */
static char *part_outer_copy(const compose_part *p, const char *inner) {
  char *out = zke_alloc(p->z, part_outer_len(p, inner) + 1);
  if (out) part_outer(p, inner, out);
  return out;
}

/* What the caller takes for the session's id: the base's. */
static int64_t compose_id(const compose *h) { return h->parts[0]->own; }

/* A session of the part as the caller is shown it: the own one as the base's,
 * another one with the part's mark.  The number that the own one would have is
 * free, so it goes to the one that would be shown as the base's: two sessions
 * are never shown as one. */
static int64_t part_show_id(const compose_part *p, int64_t session) {
  int64_t shown = session ^ p->mark, id = compose_id(p->h);
  if (session == 0) return 0;
  if (session == p->own) return id;
  return shown == id ? p->own ^ p->mark : shown;
}

/* The part's session for what the caller was shown. */
static int64_t part_take_id(const compose_part *p, int64_t shown) {
  int64_t id = compose_id(p->h);
  if (shown == id) return p->own;
  return shown == (p->own ^ p->mark) ? id ^ p->mark : shown ^ p->mark;
}

/* The owner in a Stat becomes what the caller is shown; NULL is fine. */
static void part_show_stat(const compose_part *p, zke_stat *stat) {
  if (stat) stat->ephemeralOwner = part_show_id(p, stat->ephemeralOwner);
}

/* Is it a state that a session does not come back from? */
static bool state_is_end(int state) {
  return state == ZKE_STATE_EXPIRED || state == ZKE_STATE_MOVED ||
         state == ZKE_STATE_AUTH_FAILED;
}

/* The state of all parts together: an end is everybody's, and a connection is
 * there where all are. */
static int part_states(const compose *h) {
  bool left;
  int sum = zke_state(h->parts[0]->z);
  for (int i = 1; i < h->count && !state_is_end(sum); i++) {
    int state = zke_state(h->parts[i]->z);
    if (state_is_end(state) || state == ZKE_STATE_CONNECTING) sum = state;
  }
  if (state_is_end(sum)) return sum;
  return order_has_ended(h->parts[0]->order, &left) ? ZKE_STATE_EXPIRED : sum;
}

/* ---- frame_: what this thread is inside of ----
 *
 * A watcher is called with the composed handle, so what it may not do there
 * (close, compact) has to be known here: the part would refuse it for the part
 * only.  Frames are a list on the thread's stack, innermost first, since a
 * watcher may dispatch again, and handles may be used in each other's watchers.
 * A frame goes also where its watcher ends the thread. */

/* A watcher, or the function of a batch, that runs on this thread; lies on its
 * stack. */
typedef struct frame {
  const compose *h;
  compose_part *p; /* that the event came from; NULL: a batch */
  struct frame *outer;
  struct {
    const compose *h;
    int64_t until;
  } limit; /* the caller's */
} frame;

static _Thread_local frame *frame_top;

/* zke_limit() of this thread. */
static _Thread_local struct {
  const compose *h;
  int64_t until;
} frame_limit;

/* Watchers are not limited. */
static void frame_push(frame *f) {
  f->outer = frame_top;
  f->limit.h = frame_limit.h;
  f->limit.until = frame_limit.until;
  frame_limit.h = NULL;
  frame_top = f;
}

/* The watcher has returned, or has ended its thread: the caller's limit holds
 * again. */
static void frame_pop(void *arg) {
  const frame *f = arg;
  frame_limit.h = f->limit.h;
  frame_limit.until = f->limit.until;
  frame_top = f->outer;
}

/* The innermost watcher of the handle that runs on this thread, or NULL. */
static const frame *frame_find(const compose *h) {
  const frame *f = frame_top;
  while (f && (f->h != h || !f->p)) f = f->outer;
  return f;
}

/* The function of a batch has returned, or has ended its thread. */
static void frame_leave_batch(void *arg) {
  const frame *f = arg;
  frame_top = f->outer;
}

/* Is this thread inside a watcher of the handle, or a batch? */
static bool frame_is_inside(const compose *h) {
  const frame *f = frame_top;
  while (f && f->h != h) f = f->outer;
  return f;
}

/* Call a watcher.  It may end its thread, and it may fork: so nothing of the
 * handle is touched afterwards but by frame_pop(). */
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

/* ---- pair_: who watches ----
 *
 * A part knows a pair by tie_event() and the pair's tie to it.  So
 * its own rules for pairs (once for an event, taken back, forgotten) hold.
 *
 * A pair that is forgotten stays in the table until all parts have taken it
 * back.  So a second thread that forgets it meanwhile finds it, and waits for
 * the parts as well: none of them returns while the pair can be called. */

typedef struct tie {
  struct pair *pair;
  compose_part *p;
} tie;

typedef struct pair {
  struct pair *next;
  zke_watch_fn fn;
  void *context;
  int busy;     /* calls that register it, look for it or forget it */
  int64_t uses; /* how many of these have begun */
  bool gone;    /* forgotten: the last of these releases it */
  bool told;    /* it knows of the end; the leader's */
  tie ties[];
} pair;

/* Where a pair hangs, if there is one.  Contexts are mostly blocks, whose last
 * bits are alike: so they are left out. */
static pair **pair_bucket(compose *h, zke_watch_fn fn, const void *context) {
  uintptr_t n = (uintptr_t)context / 16 * 31 + (uintptr_t)fn;
  return &h->pairs[(n ^ n / COMPOSE_BUCKETS) % COMPOSE_BUCKETS];
}

/* The handle's mutex is held. */
static pair **pair_at(compose *h, zke_watch_fn fn, const void *context) {
  pair **at = pair_bucket(h, fn, context);
  while (*at && ((*at)->fn != fn || (*at)->context != context))
    at = &(*at)->next;
  return at;
}

/* The pair is in use by one call more, which pair_release() ends.  The handle's
 * mutex is held. */
static void pair_hold(pair *w) {
  w->busy++;
  w->uses++;
}

/* Find a pair, or make it, for a call that may register it; NULL without
 * memory.  It stays until pair_release(). */
static pair *pair_use(compose *h, zke_watch_fn fn, void *context) {
  size_t size = sizeof(pair) + (size_t)h->count * sizeof(tie);
  pthread_mutex_lock(&h->m);
  pair *w = *pair_at(h, fn, context);
  if (!w && (w = zke_alloc(h->parts[0]->z, size)) != NULL) {
    pair **at = pair_bucket(h, fn, context);
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
static tie *pair_tie(pair *w, const compose_part *p) {
  tie *l = w->ties;
  while (l->p != p) l++;
  return l;
}

/* Tell the pair of an event, unless a mount hides its path: "" or the caller's.
 */
static void tie_tell_outer(const tie *t, int type, int state,
                           const char *outer) {
  compose_part *p = t->p;
  if (*outer && part_hides(p, outer)) return;
  frame_call(p->h, p, t->pair->fn, t->pair->context, type, state, outer);
}

/* The same with a path in a block, which goes also where the watcher ends its
 * thread.  Without memory for it the pair is told to look at everything again.
 */
static void tie_tell_long(const tie *t, int type, int state, const char *path) {
  char *outer = part_outer_copy(t->p, path);
  if (outer) {
    pthread_cleanup_push(zke_free, outer);
    tie_tell_outer(t, type, state, outer);
    pthread_cleanup_pop(1);
  } else {
    tie_tell_outer(t, ZKE_EVENT_OVERFLOW, state, "");
  }
}

/* The same with the part's path; "" is no path, and stays as it is. */
static void tie_tell(const tie *t, int type, int state, const char *path) {
  char outer[512] = "";
  if (*path && part_outer_len(t->p, path) >= sizeof outer) {
    tie_tell_long(t, type, state, path);
    return;
  }
  if (*path) part_outer(t->p, path, outer);
  tie_tell_outer(t, type, state, outer);
}

/* Note what a part's event means for all.  The state that the caller is told.
 * An alarm is no news of the part. */
static int tie_hear(compose_part *p, int type, int state) {
  if (type != ZKE_EVENT_ALARM) order_use(p);
  if (type != ZKE_EVENT_SESSION) return state;
  if (!state_is_end(state)) return part_states(p->h);
  order_end(p);
  return state;
}

/* What a part calls for a pair, the default watcher's among them. */
static void tie_event(zke *z, int type, int state, const char *path,
                      void *context) {
  const tie *t = context;
  (void)z;
  state = tie_hear(t->p, type, state);
  if (type == ZKE_EVENT_SESSION && state_is_end(state)) {
    if (t->pair->told) return;
    t->pair->told = true;
  }
  tie_tell(t, type, state, path);
}

/* What a part calls where the handle has no default watcher. */
static void tie_nobody(zke *z, int type, int state, const char *path,
                       void *context) {
  (void)z, (void)path;
  tie_hear(context, type, state);
}

/* Take the pair back from all parts, which wait for its calls on other threads.
 * ZKE_MISUSE: a batch forbids it here, and the pair may still be called. */
static int tie_forget(const compose *h, pair *w) {
  int sum = ZKE_OK;
  for (int i = 0; i < h->count; i++) {
    int rc = zke_forget(h->parts[i]->z, tie_event, &w->ties[i]);
    if (sum == ZKE_OK || rc == ZKE_MISUSE) sum = rc;
  }
  return sum;
}

/* A call that has used the pair is over.  The last one of a forgotten pair
 * takes back what others have registered since, and releases the pair, unless
 * another call has come for it meanwhile. */
static void pair_release(compose *h, pair *w) {
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

/* ---- call_: in and out ----
 *
 * A call is one struct on the caller's stack.  It counts in, which keeps the
 * handle's memory, and counts out at its end, whatever comes between:
 *
 *     call_begin()      on the part that a path lies in
 *     call_begin_…()    the same with a watcher
 *     call_end()        its end, with the part's result
 *
 *     call_begin_all()  on several parts
 *     call_turn_to()    to one of them; call_unlimit() behind its own call
 *     call_leave()      its end
 *
 * One that fails has counted out already.  Cancellation is held off from the
 * one to the other. */

enum {
  CALL_READ = 1,   /* shows the part's state: the order is kept */
  CALL_CHANGE = 2, /* its success makes what is read afterwards fresh */
  CALL_NAMES = 4,  /* the path may end in a slash: a name is appended */
  CALL_BELOW = 8   /* is about all that lies below the path, too */
};

typedef struct call {
  compose *h;
  compose_part *p;
  const char *path; /* the part's */
  zke_watch_fn fn;  /* for the part, with its context */
  void *context;
  pair *w;
  int how;
  int64_t began; /* of the order's time */
  bool limited;
  int64_t limit;           /* of the part, before */
  int old_state, old_type; /* the thread's cancellation */
} call;

/* Count in, in any state of the session.  In a forked child no mutex is
 * touched: a thread of the parent may have held it. */
static int call_enter(call *c, zke *z) {
  *c = (call){.h = compose_of(z)};
  compose *h = c->h;
  if (h->pid != getpid())
    return zke_recipe_fail(ZKE_FORKED,
                           "the handle belongs to the parent process");
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &c->old_state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &c->old_type);
  pthread_mutex_lock(&h->m);
  bool closing = h->closing;
  if (!closing) h->inside++;
  pthread_mutex_unlock(&h->m);
  if (!closing) return ZKE_OK;
  pthread_setcanceltype(c->old_type, NULL);
  pthread_setcancelstate(c->old_state, NULL);
  return zke_recipe_fail(ZKE_CLOSING, "another thread is closing the handle");
}

/* Count out, and give the thread its cancellation back.  The last thread to
 * leave lets zke_close() go on.  Returns rc, so that a call can end by it. */
static int call_leave(call *c, int rc) {
  compose *h = c->h;
  if (h->pid != getpid()) return rc; /* forked in a watcher */
  pthread_mutex_lock(&h->m);
  if (--h->inside == 0) pthread_cond_broadcast(&h->moved);
  pthread_mutex_unlock(&h->m);
  pthread_setcanceltype(c->old_type, NULL);
  pthread_setcancelstate(c->old_state, NULL);
  return rc;
}

/* Refuse a call on a part where a session has ended.  What could not be ended
 * before is tried again.  A part whose own session is over refuses by itself,
 * in its own order of checks. */
static int call_check_end(const compose_part *p) {
  bool left;
  if (!order_has_ended(p->order, &left)) return ZKE_OK;
  if (left) order_end_others(p->order);
  if (state_is_end(zke_state(p->z))) return ZKE_OK;
  return zke_recipe_fail(ZKE_INVALIDSTATE,
                         "the session of another part has ended");
}

/* This thread's limit is given to the part for the call. */
static void call_limit(call *c) {
  c->limited = frame_limit.h == c->h;
  if (c->limited) c->limit = zke_limit(c->p->z, frame_limit.until);
}

/* It is taken back. */
static void call_unlimit(call *c) {
  if (c->limited) zke_limit(c->p->z, c->limit);
  c->limited = false;
}

/* The part's handle, for a call that goes to several, one after the other:
 * between this and call_unlimit() the part keeps to the limit. */
static zke *call_turn_to(call *c, compose_part *p) {
  c->p = p;
  call_limit(c);
  return p->z;
}

/* The part's call is over.  Where the part says that the session has ended, the
 * others end with it.  In a child that was forked in a batch nothing of the
 * parent's is touched. */
static int call_end(call *c, int rc) {
  compose_part *p = c->p;
  if (c->h->pid != getpid()) return rc;
  call_unlimit(c);
  if (rc == ZKE_OK && (c->how & CALL_CHANGE)) order_note_fresh(p, c->began);
  order_use(p);
  if (rc != ZKE_OK && state_is_end(zke_state(p->z))) order_end(p);
  if (rc != ZKE_OK && !part_is_base(p)) {
    zke_sentence kept;
    zke_recipe_keep(&kept);
    zke_fail(rc, "below %s: %s", p->prefix, kept.text);
  }
  if (c->w) pair_release(c->h, c->w);
  return call_leave(c, rc);
}

/* A watcher, the function of a batch or a cancelled sleep has ended the thread
 * inside a call: count out. */
static void call_abandon(void *arg) { call_leave(arg, ZKE_OK); }

/* Begin a call on the part that a path lies in. */
static int call_begin(call *c, zke *z, const char *path, int how) {
  int rc = call_enter(c, z);
  if (rc != ZKE_OK) return rc;
  c->how = how;
  c->p = part_find(c->h, path, how & CALL_NAMES);
  c->path = part_inner(c->p, path, how & CALL_NAMES);
  rc = call_check_end(c->p);
  if (rc == ZKE_OK && (how & CALL_BELOW) && part_spans(c->h, path))
    rc = zke_recipe_fail(ZKE_UNIMPLEMENTED,
                         "another service is mounted below %s", path);
  if (rc != ZKE_OK) return call_leave(c, rc);
  c->began = order_time(c->p);
  call_limit(c);
  if (how & CALL_READ) rc = order_read(c->p);
  return rc == ZKE_OK ? ZKE_OK : call_end(c, rc);
}

/* The same for a call that registers a watcher, which may be NULL. */
static int call_begin_watch(call *c, zke *z, const char *path, int how,
                            zke_watch_fn fn, void *context) {
  int rc = call_begin(c, z, path, how);
  if (rc != ZKE_OK || !fn) return rc;
  c->w = pair_use(c->h, fn, context);
  if (!c->w) return call_end(c, ZKE_NOMEM);
  c->fn = tie_event;
  c->context = pair_tie(c->w, c->p);
  return ZKE_OK;
}

/* The same for a call about a pair that may not be registered: the part then
 * says so of a context that it does not know. */
static int call_begin_known(call *c, zke *z, const char *path, zke_watch_fn fn,
                            void *context) {
  int rc = call_begin(c, z, path, 0);
  if (rc != ZKE_OK || !fn) return rc;
  pthread_mutex_lock(&c->h->m);
  pair *w = *pair_at(c->h, fn, context);
  if (w) pair_hold(w);
  pthread_mutex_unlock(&c->h->m);
  c->w = w;
  c->fn = tie_event;
  c->context = w ? (void *)pair_tie(w, c->p) : (void *)c->h;
  return ZKE_OK;
}

/* Refuse what several parts cannot give together; a handle of one part can.
 * The call has counted in, and is over where this fails. */
static int call_alone(call *c, const char *what) {
  if (c->h->count == 1) return ZKE_OK;
  zke_fail(ZKE_UNIMPLEMENTED,
           "%s: services that are mounted have no common one", what);
  return call_leave(c, ZKE_UNIMPLEMENTED);
}

/* Begin a call on all parts: count in, and refuse where a session has ended. */
static int call_begin_all(call *c, zke *z) {
  int rc = call_enter(c, z);
  if (rc != ZKE_OK) return rc;
  rc = call_check_end(c->h->parts[0]);
  return rc == ZKE_OK ? ZKE_OK : call_leave(c, rc);
}

/* ---- compose_: nodes ----
 *
 * Most functions are alike: begin on the part that the path lies in, make the
 * part's call of the same name, show its Stat, end.  What fails has set no
 * output, as the part's own call has not.  Reads are CALL_READ, and may send a
 * sync before.  What is CALL_CHANGE makes the part fresh where it succeeds. */

enum { NUMBER_LEN = 11 }; /* of a sequential node, a sign among them */

/* Room for the path of a node that is being created. */
typedef struct path_room {
  char *text;
  size_t len; /* that it has room for, beside the NUL */
} path_room;

/* Make room for the caller's path of what is about to be created at a path of
 * the caller's: what was made cannot fail any more for want of memory.
 * out->text stays NULL where the part's own path is the caller's. */
static int compose_make_room(const compose_part *p, const char *path,
                             path_room *out) {
  if (!path || part_is_base(p)) return ZKE_OK;
  out->len = strlen(path) + NUMBER_LEN;
  out->text = zke_alloc(p->z, out->len + 1);
  return out->text ? ZKE_OK : ZKE_NOMEM;
}

/* The path of a result becomes the caller's, in the room that was made for it.
 * A part's path may come from a server, which is not trusted.  Where it is too
 * long to be the node's, nobody knows what was made: that is as if the reply
 * were lost. */
static int compose_show_path(const compose_part *p, char **path, path_room *r) {
  if (!*path || !r->text) return ZKE_OK;
  if (part_outer_len(p, *path) > r->len)
    return zke_recipe_fail(ZKE_CONNECTIONLOSS,
                           "made, but at another path than was asked for");
  part_outer(p, *path, r->text);
  zke_free(*path);
  *path = r->text;
  r->text = NULL;
  return ZKE_OK;
}

/* Does the mode put a number behind the path? */
static bool compose_is_sequential(int mode) {
  return mode == ZKE_PERSISTENT_SEQUENTIAL ||
         mode == ZKE_EPHEMERAL_SEQUENTIAL ||
         mode == ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
}

/* The flag of a call that creates in that mode. */
static int compose_names(int mode) {
  return compose_is_sequential(mode) ? CALL_NAMES : 0;
}

/* Both creates, by the part of the call. */
static int compose_make_there(const call *c, const zke_op *op, char **path_out,
                              zke_stat *stat_out) {
  zke *z = c->p->z;
  if (op->ttl_ms)
    return zke_create_ttl(z, c->path, op->data, op->len, op->acls, op->mode,
                          op->ttl_ms, path_out, stat_out);
  return zke_create(z, c->path, op->data, op->len, op->acls, op->mode, path_out,
                    stat_out);
}

/* Both creates. */
static int compose_make(zke *z, const zke_op *op, char **path_out,
                        zke_stat *stat_out) {
  call c;
  char *path = NULL;
  path_room made = {0};
  int rc = call_begin(&c, z, op->path, CALL_CHANGE | compose_names(op->mode));
  if (rc != ZKE_OK) return rc;
  if (path_out) rc = compose_make_room(c.p, op->path, &made);
  if (rc == ZKE_OK)
    rc = compose_make_there(&c, op, path_out ? &path : NULL, stat_out);
  if (rc == ZKE_OK) rc = compose_show_path(c.p, &path, &made);
  if (rc == ZKE_OK) {
    part_show_stat(c.p, stat_out);
    if (path_out) *path_out = path;
  } else {
    zke_free(path);
  }
  zke_free(made.text);
  return call_end(&c, rc);
}

/* zke_create(), as an operation for compose_make(). */
static int compose_create(zke *z, const char *path, const void *data, int len,
                          const zke_acls *acls, int mode, char **path_out,
                          zke_stat *stat_out) {
  zke_op op = {.path = path, .data = data, .len = len, .acls = acls};
  op.mode = mode;
  return compose_make(z, &op, path_out, stat_out);
}

/* A time of 0 is refused by the part; compose_make() takes it for none. */
static int compose_create_ttl(zke *z, const char *path, const void *data,
                              int len, const zke_acls *acls, int mode,
                              int64_t ttl_ms, char **path_out,
                              zke_stat *stat_out) {
  zke_op op = {.path = path, .data = data, .len = len, .acls = acls};
  op.mode = mode;
  op.ttl_ms = ttl_ms ? ttl_ms : -1;
  return compose_make(z, &op, path_out, stat_out);
}

/* zke_delete().  The mount point is the part's "/", which the part refuses to
 * delete. */
static int compose_remove(zke *z, const char *path, int version) {
  call c;
  int rc = call_begin(&c, z, path, CALL_CHANGE);
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_delete(c.p->z, c.path, version));
}

/* zke_discard().  Its success does not say that the part was asked just now: so
 * nothing is fresh by it. */
static int compose_discard(zke *z, const char *path, int mode, int64_t czxid) {
  call c;
  int rc = call_begin(&c, z, path, compose_names(mode));
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_discard(c.p->z, c.path, mode, czxid));
}

/* zke_raise_sequence(), which only files have: they are never behind, so that
 * it need not count as a change of the order. */
static int compose_raise_sequence(zke *z, const char *path, int next,
                                  zke_stat *stat_out) {
  call c;
  int rc = call_begin(&c, z, path, 0);
  if (rc != ZKE_OK) return rc;
  rc = zke_raise_sequence(c.p->z, c.path, next, stat_out);
  if (rc == ZKE_OK) part_show_stat(c.p, stat_out);
  return call_end(&c, rc);
}

/* zke_exists().  The watch hears of the node on the part that it lies on. */
static int compose_exists(zke *z, const char *path, zke_watch_fn fn,
                          void *context, zke_stat *stat_out) {
  call c;
  int rc = call_begin_watch(&c, z, path, CALL_READ, fn, context);
  if (rc != ZKE_OK) return rc;
  rc = zke_exists(c.p->z, c.path, c.fn, c.context, stat_out);
  if (rc == ZKE_OK) part_show_stat(c.p, stat_out);
  return call_end(&c, rc);
}

/* zke_get(); the data's block is the part's, which zke_free() takes as well. */
static int compose_get(zke *z, const char *path, zke_watch_fn fn, void *context,
                       char **data_out, int *len_out, zke_stat *stat_out) {
  call c;
  int rc = call_begin_watch(&c, z, path, CALL_READ, fn, context);
  if (rc != ZKE_OK) return rc;
  rc = zke_get(c.p->z, c.path, c.fn, c.context, data_out, len_out, stat_out);
  if (rc == ZKE_OK) part_show_stat(c.p, stat_out);
  return call_end(&c, rc);
}

/* zke_set().  A success makes the part fresh: it shows at least this change,
 * and so what its service had ordered before. */
static int compose_set(zke *z, const char *path, const void *data, int len,
                       int version, zke_stat *stat_out) {
  call c;
  int rc = call_begin(&c, z, path, CALL_CHANGE);
  if (rc != ZKE_OK) return rc;
  rc = zke_set(c.p->z, c.path, data, len, version, stat_out);
  if (rc == ZKE_OK) part_show_stat(c.p, stat_out);
  return call_end(&c, rc);
}

/* zke_children().  A mount point is among its parent's children, since a node
 * is there; what the base has below it is not shown. */
static int compose_children(zke *z, const char *path, zke_watch_fn fn,
                            void *context, zke_strings **names_out,
                            zke_stat *stat_out) {
  call c;
  int rc = call_begin_watch(&c, z, path, CALL_READ, fn, context);
  if (rc != ZKE_OK) return rc;
  rc = zke_children(c.p->z, c.path, c.fn, c.context, names_out, stat_out);
  if (rc == ZKE_OK) part_show_stat(c.p, stat_out);
  return call_end(&c, rc);
}

/* zke_count(), which no part can answer for what is mounted below the path. */
static int compose_count(zke *z, const char *path, int64_t *count_out) {
  call c;
  int rc = call_begin(&c, z, path, CALL_READ | CALL_BELOW);
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_count(c.p->z, c.path, count_out));
}

/* zke_usage(), with the same limit. */
static int compose_usage(zke *z, const char *path, int64_t *count_out,
                         int64_t *bytes_out) {
  call c;
  int rc = call_begin(&c, z, path, CALL_READ | CALL_BELOW);
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_usage(c.p->z, c.path, count_out, bytes_out));
}

/* The part that the path lies in.  It is up to date afterwards. */
static int compose_sync(zke *z, const char *path) {
  call c;
  int rc = call_begin(&c, z, path, CALL_CHANGE);
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_sync(c.p->z, c.path));
}

/* zke_get_acl().  Permissions are the part's own; nothing of the base's mount
 * point counts below it. */
static int compose_get_acl(zke *z, const char *path, zke_acls **acls_out,
                           zke_stat *stat_out) {
  call c;
  int rc = call_begin(&c, z, path, CALL_READ);
  if (rc != ZKE_OK) return rc;
  rc = zke_get_acl(c.p->z, c.path, acls_out, stat_out);
  if (rc == ZKE_OK) part_show_stat(c.p, stat_out);
  return call_end(&c, rc);
}

/* zke_set_acl(), on the part alone. */
static int compose_set_acl(zke *z, const char *path, int version,
                           const zke_acls *acls, zke_stat *stat_out) {
  call c;
  int rc = call_begin(&c, z, path, CALL_CHANGE);
  if (rc != ZKE_OK) return rc;
  rc = zke_set_acl(c.p->z, c.path, version, acls, stat_out);
  if (rc == ZKE_OK) part_show_stat(c.p, stat_out);
  return call_end(&c, rc);
}

/* Strings in one block, of paths that lie each in a part. */
typedef struct paths {
  int count, room;
  struct {
    compose_part *p;
    const char *path;
  } * data;
} paths;

/* Add a part's paths.  They are not copied: `more` has to stay until they are
 * shown. */
static int paths_add(paths *l, compose_part *p, const zke_strings *more) {
  int room = l->count + more->count;
  void *data = realloc(l->data, (size_t)(room ? room : 1) * sizeof *l->data);
  if (!data) return zke_recipe_fail(ZKE_NOMEM, "out of memory");
  l->data = data;
  l->room = room;
  for (int i = 0; i < more->count; i++) {
    l->data[l->count].p = p;
    l->data[l->count++].path = more->data[i];
  }
  return ZKE_OK;
}

/* The order of bytes, as that of the parts' own lists. */
static int paths_compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The caller's paths, but the hidden ones and those that do not begin with
 * prefix; NULL without memory. */
static zke_strings *paths_show(zke *z, const paths *l, const char *prefix) {
  size_t size = sizeof(zke_strings) + (size_t)l->count * sizeof(char *);
  for (int i = 0; i < l->count; i++)
    size += part_outer_len(l->data[i].p, l->data[i].path) + 1;
  zke_strings *out = zke_alloc(z, size);
  if (!out) return NULL;
  out->data = (char **)(void *)(out + 1);
  char *at = (char *)(out->data + l->count);
  for (int i = 0; i < l->count; i++) {
    const compose_part *p = l->data[i].p;
    part_outer(p, l->data[i].path, at);
    if (part_hides(p, at)) continue;
    if (prefix && strncmp(at, prefix, strlen(prefix)) != 0) continue;
    out->data[out->count++] = at;
    at += strlen(at) + 1;
  }
  return out;
}

/* One part's ephemerals of a session, as shown; all of them, since a prefix is
 * one of the caller's tree.  *found stays NULL where the part does not know the
 * session: so an engine that can tell only the own session's is asked for no
 * other's. */
static int compose_find_ephemerals(call *c, compose_part *p, int64_t session,
                                   zke_strings **found) {
  zke_session_list *who = NULL;
  int64_t id = session ? part_take_id(p, session) : 0;
  zke *z = call_turn_to(c, p);
  int rc = order_read(p);
  if (rc == ZKE_OK && id && id != p->own) rc = zke_session(z, id, &who);
  if (rc == ZKE_OK) rc = zke_ephemerals(z, id, NULL, found);
  zke_free(who);
  call_unlimit(c);
  order_use(p);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Those of all parts, in one sorted list. */
static int compose_ephemerals(zke *z, int64_t session, const char *prefix,
                              zke_strings **paths_out) {
  call c;
  paths l = {0};
  zke_strings *found[ZKE_MOUNTS] = {NULL}, *out = NULL;
  int rc = call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < c.h->count && rc == ZKE_OK; i++) {
    compose_part *p = c.h->parts[i];
    rc = compose_find_ephemerals(&c, p, session, &found[i]);
    if (rc == ZKE_OK && found[i]) rc = paths_add(&l, p, found[i]);
  }
  if (rc == ZKE_OK && paths_out) {
    out = paths_show(z, &l, prefix);
    rc = out ? ZKE_OK : ZKE_NOMEM;
  }
  if (out && out->count > 1)
    qsort(out->data, (size_t)out->count, sizeof(char *), paths_compare);
  for (int i = 0; i < c.h->count; i++) zke_free(found[i]);
  free(l.data);
  if (rc == ZKE_OK && paths_out) *paths_out = out;
  return call_leave(&c, rc);
}

/* ---- compose_: several operations ----
 *
 * All have to lie in one part.  The part gets a copy of the operations with its
 * own paths, which are the ends of the caller's; results are changed in place.
 * Whatever needs memory is had before the call is made: behind it nothing can
 * fail that was done. */

/* The operations of one call, as their part is given them. */
typedef struct several {
  zke_op *ops;      /* with the part's paths */
  path_room *rooms; /* for the callers' paths of what is created */
  int count;
} several;

/* Release what several_take() has made, also where it has failed half-way. */
static void several_free(several *s) {
  for (int i = 0; i < s->count && s->rooms; i++) zke_free(s->rooms[i].text);
  free(s->rooms);
  free(s->ops);
}

/* Does an operation have a path that counts? */
static bool several_has_path(const zke_op *op) {
  return op->path && op->type != ZKE_OP_FAIL && op->type != ZKE_OP_SQL;
}

/* Does the operation create a node with a number? */
static bool several_is_sequential(const zke_op *op) {
  return op->type == ZKE_OP_CREATE && compose_is_sequential(op->mode);
}

/* The part that all operations lie in; those without a path lie anywhere.
 * Refused where two lie in two, or one is about two. */
static int several_find(const compose *h, const zke_op *ops, int count,
                        compose_part **out) {
  const char *first = NULL;
  *out = h->parts[0];
  for (int i = 0; i < count; i++) {
    const char *path = ops[i].path;
    if (!several_has_path(&ops[i])) continue;
    compose_part *p = part_find(h, path, several_is_sequential(&ops[i]));
    if (ops[i].type == ZKE_OP_UNTOLD && part_spans(h, path))
      return zke_recipe_fail(ZKE_UNIMPLEMENTED,
                             "another service is mounted below %s", path);
    if (first && p != *out)
      return zke_recipe_fail(
          ZKE_UNIMPLEMENTED,
          "%s and %s lie in two services: no call is about both at once", first,
          path);
    *out = p;
    first = path;
  }
  return ZKE_OK;
}

/* Take the operations over, with the part's paths and rooms for results.  Where
 * it fails several_free() has to follow, too. */
static int several_take(several *s, const compose_part *p, const zke_op *ops,
                        int count) {
  int rc = ZKE_OK;
  s->ops = malloc((size_t)count * sizeof *s->ops);
  s->rooms = calloc((size_t)count, sizeof *s->rooms);
  if (!s->ops || !s->rooms) return zke_recipe_fail(ZKE_NOMEM, "out of memory");
  for (s->count = 0; s->count < count && rc == ZKE_OK; s->count++) {
    int i = s->count;
    s->ops[i] = ops[i];
    if (!several_has_path(&ops[i])) continue;
    s->ops[i].path = part_inner(p, ops[i].path, several_is_sequential(&ops[i]));
    if (ops[i].type == ZKE_OP_CREATE)
      rc = compose_make_room(p, ops[i].path, &s->rooms[i]);
  }
  return rc;
}

/* The caller's paths of what watchers were not told yet.  Without memory for
 * them the operation has failed as where there are too many. */
static void several_show_untold(compose_part *p, zke_op_result *r) {
  paths l = {0};
  zke_strings *own = r->children;
  r->children =
      paths_add(&l, p, own) == ZKE_OK ? paths_show(p->z, &l, NULL) : NULL;
  if (!r->children) r->rc = ZKE_RUNTIMEINCONSISTENCY;
  zke_free(own);
  free(l.data);
}

/* The part's results become the caller's: all of them, or none. */
static int several_show(several *s, compose_part *p, zke_op_result *results) {
  int rc = ZKE_OK;
  for (int i = 0; i < s->count && rc == ZKE_OK; i++) {
    zke_op_result *r = &results[i];
    if (r->rc != ZKE_OK) continue;
    part_show_stat(p, &r->stat);
    rc = compose_show_path(p, &r->path, &s->rooms[i]);
    if (s->ops[i].type == ZKE_OP_UNTOLD && r->children)
      several_show_untold(p, r);
  }
  if (rc != ZKE_OK) zke_results_clear(results, s->count);
  return rc;
}

typedef int (*compose_multi_fn)(zke *z, const zke_op *ops, int count,
                                zke_op_result *results);

/* The call has counted in, and knows its part. */
static int several_call(call *c, const zke_op *ops, int count,
                        zke_op_result *results, compose_multi_fn fn) {
  several s = {0};
  int rc = c->how & CALL_READ ? order_read(c->p) : ZKE_OK;
  bool taken = ops && count > 0;
  if (rc == ZKE_OK && taken) rc = several_take(&s, c->p, ops, count);
  if (rc == ZKE_OK) rc = fn(c->p->z, taken ? s.ops : ops, count, results);
  if (rc == ZKE_OK && results) rc = several_show(&s, c->p, results);
  several_free(&s);
  return call_end(c, rc);
}

/* zke_multi() and zke_multi_read(), on the part that all paths lie in.  A call
 * without operations goes to the base. */
static int compose_several(zke *z, const zke_op *ops, int count,
                           zke_op_result *results, int how,
                           compose_multi_fn fn) {
  call c;
  int rc = call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  rc = several_find(c.h, ops, ops ? count : 0, &c.p);
  if (rc == ZKE_OK) rc = call_check_end(c.p);
  if (rc != ZKE_OK) return call_leave(&c, rc);
  c.how = how;
  c.began = order_time(c.p);
  call_limit(&c);
  return several_call(&c, ops, count, results, fn);
}

/* zke_multi(): all or nothing is one service's promise, so all paths have to
 * lie in one. */
static int compose_multi(zke *z, const zke_op *ops, int count,
                         zke_op_result *results) {
  return compose_several(z, ops, count, results, CALL_CHANGE, zke_multi);
}

/* zke_multi_read(): so is one snapshot. */
static int compose_multi_read(zke *z, const zke_op *ops, int count,
                              zke_op_result *results) {
  return compose_several(z, ops, count, results, CALL_READ, zke_multi_read);
}

/* The function of a batch is called with the handle that the caller knows. */
typedef struct batch {
  zke *z;
  zke_batch_fn fn;
  void *context;
} batch;

/* What a part calls: the thread is known to be inside, so that zke_close() is
 * refused. */
static int compose_in_batch(zke *z, void *arg) {
  const batch *b = arg;
  volatile int rc = ZKE_OK;
  frame f = {.h = compose_of(b->z), .outer = frame_top};
  (void)z;
  frame_top = &f;
  pthread_cleanup_push(frame_leave_batch, &f);
  rc = b->fn(b->z, b->context);
  pthread_cleanup_pop(1);
  return rc;
}

/* A handle of one part has batches.  The function may end its thread. */
static int compose_batch(zke *z, zke_batch_fn fn, void *context) {
  call c;
  batch b = {z, fn, context};
  volatile int rc = call_begin(&c, z, "/", CALL_CHANGE);
  if (rc != ZKE_OK) return rc;
  if (c.h->count > 1)
    return call_end(&c, zke_recipe_fail(ZKE_UNIMPLEMENTED,
                                        "a batch is one service's, and others "
                                        "are mounted here"));
  pthread_cleanup_push(call_abandon, &c);
  rc = zke_batch(c.p->z, fn ? compose_in_batch : NULL, &b);
  pthread_cleanup_pop(0);
  return call_end(&c, rc);
}

/* ---- compose_: identities ----
 *
 * A program is the same on all parts.  Where one part refuses, the others have
 * been asked all the same: the caller who tries again does no harm there. */

/* Call each part with what all are to have; the first failure is the result,
 * with its sentence. */
#define COMPOSE_EACH(z, expression)                           \
  do {                                                        \
    call c_;                                                  \
    zke_sentence kept_ = {""};                                \
    int rc_ = call_begin_all(&c_, (z)), sum_ = rc_;           \
    if (rc_ != ZKE_OK) return rc_;                            \
    for (int i_ = 0; i_ < c_.h->count; i_++) {                \
      zke *part = call_turn_to(&c_, c_.h->parts[i_]);         \
      rc_ = (expression);                                     \
      call_unlimit(&c_);                                      \
      if (rc_ != ZKE_OK && sum_ == ZKE_OK) {                  \
        sum_ = rc_;                                           \
        zke_recipe_keep(&kept_);                              \
      }                                                       \
    }                                                         \
    return call_leave(&c_, zke_recipe_restore(&kept_, sum_)); \
  } while (0)

/* An identity is added on all parts: each looks at it by its own rules. */
static int compose_add_auth(zke *z, const char *scheme, const char *cert,
                            int len) {
  COMPOSE_EACH(z, zke_add_auth(part, scheme, cert, len));
}

/* The same for one that the program vouches for, which an ensemble refuses. */
static int compose_vouch(zke *z, const char *scheme, const char *id) {
  COMPOSE_EACH(z, zke_vouch(part, scheme, id));
}

/* All identities go on all parts. */
static int compose_clear_auth(zke *z) { COMPOSE_EACH(z, zke_clear_auth(part)); }

/* ---- compose_: watches ----
 *
 * What is registered is tie_event() with the pair's tie, on the part that the
 * path lies in.  A pair may watch on several parts: then it is one pair on each
 * of them, and is called for each part's events.  What is looked for or taken
 * back is asked of the part by the same tie.  A pair that is not noted is asked
 * for by a context that no part knows: so the part says so in its own words. */

/* zke_add_watch().  A recursive watch sees one service's nodes, so it may not
 * lie above a mount. */
static int compose_add_watch(zke *z, const char *path, int mode,
                             zke_watch_fn fn, void *context) {
  call c;
  bool below = mode == ZKE_WATCH_PERSISTENT_RECURSIVE;
  int how = CALL_READ | (below ? CALL_BELOW : 0);
  int rc = call_begin_watch(&c, z, path, how, fn, context);
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_add_watch(c.p->z, c.path, mode, c.fn, c.context));
}

/* zke_set_watch().  The zxid is the part's that the path lies in. */
static int compose_set_watch(zke *z, const char *path, int type, int64_t zxid,
                             zke_watch_fn fn, void *context) {
  call c;
  int rc = call_begin_watch(&c, z, path, CALL_READ, fn, context);
  if (rc != ZKE_OK) return rc;
  return call_end(&c,
                  zke_set_watch(c.p->z, c.path, type, zxid, c.fn, c.context));
}

/* zke_check_watch(), for the pair as the part knows it. */
static int compose_check_watch(zke *z, const char *path, int type,
                               zke_watch_fn fn, void *context) {
  call c;
  int rc = call_begin_known(&c, z, path, fn, context);
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_check_watch(c.p->z, c.path, type, c.fn, c.context));
}

/* zke_remove_watch().  The pair itself stays noted until zke_forget(): it may
 * watch other paths. */
static int compose_remove_watch(zke *z, const char *path, int type,
                                zke_watch_fn fn, void *context) {
  call c;
  int rc = call_begin_known(&c, z, path, fn, context);
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_remove_watch(c.p->z, c.path, type, c.fn, c.context));
}

/* zke_remove_all_watches(), on the part that the path lies in: a watch of that
 * path is nowhere else. */
static int compose_remove_all_watches(zke *z, const char *path, int type) {
  call c;
  int rc = call_begin(&c, z, path, 0);
  if (rc != ZKE_OK) return rc;
  return call_end(&c, zke_remove_all_watches(c.p->z, c.path, type));
}

/* In any state of the session.  Each part waits for a call of the pair that
 * runs on another thread; then the pair is nobody's any more, unless it is the
 * default watcher. */
static int compose_forget(zke *z, zke_watch_fn fn, void *context) {
  call c;
  int rc = call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  compose *h = c.h;
  pthread_mutex_lock(&h->m);
  pair *w = *pair_at(h, fn, context);
  if (w) pair_hold(w);
  if (w) w->gone = w != h->fallback;
  pthread_mutex_unlock(&h->m);
  if (!w) return call_leave(&c, ZKE_OK);
  rc = tie_forget(h, w);
  pair_release(h, w);
  return call_leave(&c, rc);
}

/* The base keeps the time.  In any state, as with one service. */
static int compose_call_at(zke *z, int64_t when_ms, zke_watch_fn fn,
                           void *context) {
  call c;
  if (!fn) return zke_recipe_fail(ZKE_BADARGUMENTS, "fn is NULL");
  int rc = call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  pair *w = pair_use(c.h, fn, context);
  if (!w) return call_leave(&c, ZKE_NOMEM);
  rc = zke_call_at(c.h->parts[0]->z, when_ms, tie_event, &w->ties[0]);
  pair_release(c.h, w);
  return call_leave(&c, rc);
}

/* Have a part call the handle's default watcher, or nobody. */
static int compose_set_fallback(compose_part *p, pair *w) {
  int rc = zke_set_watcher(p->z, w ? tie_event : tie_nobody,
                           w ? (void *)pair_tie(w, p) : (void *)p);
  return rc == ZKE_READONLY ? ZKE_OK : rc;
}

/* Each part calls the pair itself, so that one that watches, too, is called
 * once for an event.  The pair stays as long as the handle: a dispatch may
 * still call it. */
static int compose_set_watcher(zke *z, zke_watch_fn fn, void *context) {
  call c;
  int rc = call_enter(&c, z), sum = ZKE_OK;
  if (rc != ZKE_OK) return rc;
  pair *w = fn ? pair_use(c.h, fn, context) : NULL;
  if (fn && !w) return call_leave(&c, ZKE_NOMEM);
  pthread_mutex_lock(&c.h->m);
  c.h->fallback = w;
  pthread_mutex_unlock(&c.h->m);
  for (int i = 0; i < c.h->count; i++) {
    rc = compose_set_fallback(c.h->parts[i], w);
    if (sum == ZKE_OK) sum = rc;
  }
  return call_leave(&c, sum);
}

/* ---- compose_: sessions ----
 *
 * A list of sessions is made of the parts' lists; the own one is in it once, as
 * the base has it.  A number that the caller asks for is some part's: each is
 * asked for what the number would be there, and those that do not know it say
 * so.  Sessions that outlive their process are refused: their password would
 * have to open all services at once. */

/* zke_session_id(): one number stands for the sessions of all parts. */
static int64_t compose_session_id(zke *z) { return compose_id(compose_of(z)); }

/* zke_state().  A handle that another thread closes, and a child's copy, are
 * closed. */
static int compose_state(zke *z) {
  call c;
  if (call_enter(&c, z) != ZKE_OK) return ZKE_STATE_CLOSED;
  return call_leave(&c, part_states(c.h));
}

/* Kept sessions are one service's. */
static int compose_kept(void) {
  return zke_recipe_fail(ZKE_UNIMPLEMENTED,
                         "the session of several services is no kept one");
}

/* A session that outlives its process is attached by its number and password,
 * and there is no one password for several. */
static int compose_attach(zke *z, int64_t session,
                          const unsigned char password[16],
                          const zke_options *options, zke **z_out) {
  (void)z, (void)session, (void)password, (void)options;
  if (z_out) *z_out = NULL;
  return compose_kept();
}

/* Refused as zke_attach() is. */
static int compose_password(zke *z, unsigned char out[16]) {
  (void)z, (void)out;
  return compose_kept();
}

/* zke_detach(), zke_touch() and zke_rearm(): refused for the same reason. */
static int compose_no_session(zke *z) {
  (void)z;
  return compose_kept();
}

/* Ask each part for a session that is not the own one: a number that is shown
 * is one part's.  A part that cannot end sessions of others is passed over, and
 * says so where no other part knows the session. */
static int compose_expire_other(call *c, int64_t session) {
  int sum = ZKE_NONODE;
  zke_sentence kept = {""};
  for (int i = 0; i < c->h->count; i++) {
    compose_part *p = c->h->parts[i];
    int rc = zke_expire(call_turn_to(c, p), part_take_id(p, session));
    call_unlimit(c);
    if (rc != ZKE_NONODE && rc != ZKE_UNIMPLEMENTED) return rc;
    if (sum == ZKE_UNIMPLEMENTED) continue;
    sum = rc;
    zke_recipe_keep(&kept);
  }
  return zke_recipe_restore(&kept, sum);
}

/* The own one is ended as a whole. */
static int compose_expire(zke *z, int64_t session) {
  call c;
  int rc = call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  compose *h = c.h;
  if (session == compose_id(h)) {
    rc = zke_expire(call_turn_to(&c, h->parts[0]), session);
    call_unlimit(&c);
    if (rc == ZKE_OK) order_end(h->parts[0]);
    return call_leave(&c, rc);
  }
  return call_leave(&c, compose_expire_other(&c, session));
}

/* zke_keepalive_fd(), which one descriptor cannot be for several services. */
static int compose_keepalive_fd(zke *z, int *fd_out) {
  call c;
  int rc = call_begin_all(&c, z);
  if (rc == ZKE_OK) rc = call_alone(&c, "zke_keepalive_fd()");
  if (rc != ZKE_OK) return rc;
  return call_leave(&c, zke_keepalive_fd(c.h->parts[0]->z, fd_out));
}

/* One list of the parts' lists, with the sessions as they are shown.  The own
 * session is the base's; NULL without memory. */
static zke_session_list *compose_join(const compose *h,
                                      zke_session_list *const lists[]) {
  size_t size = sizeof(zke_session_list), count = 0;
  for (int i = 0; i < h->count; i++) {
    for (int j = 0; lists[i] && j < lists[i]->count; j++, count++)
      size += strlen(lists[i]->data[j].identity) + 1;
  }
  size += count * sizeof(zke_session_info);
  zke_session_list *out = zke_alloc(h->parts[0]->z, size);
  if (!out) return NULL;
  zke_session_info *info = (zke_session_info *)(void *)(out + 1);
  char *text = (char *)(info + count);
  out->data = info;
  for (int i = 0; i < h->count; i++) {
    const compose_part *p = h->parts[i];
    for (int j = 0; lists[i] && j < lists[i]->count; j++) {
      if (i > 0 && lists[i]->data[j].id == p->own) continue;
      info[out->count] = lists[i]->data[j];
      info[out->count].id = part_show_id(p, lists[i]->data[j].id);
      info[out->count].carrier = part_show_id(p, lists[i]->data[j].carrier);
      info[out->count++].identity = text;
      size_t len = strlen(lists[i]->data[j].identity) + 1;
      memcpy(text, lists[i]->data[j].identity, len);
      text += len;
    }
  }
  return out;
}

/* The joined list, and the parts' own released. */
static int compose_join_out(const compose *h, zke_session_list *lists[],
                            zke_session_list **out) {
  *out = compose_join(h, lists);
  for (int i = 0; i < h->count; i++) zke_free(lists[i]);
  return *out ? ZKE_OK : ZKE_NOMEM;
}

/* One part's sessions, or the one that is shown so, in the common order.
 * session: NULL for all. */
static int compose_find_sessions(call *c, compose_part *p,
                                 const int64_t *session,
                                 zke_session_list **out) {
  zke *z = call_turn_to(c, p);
  int rc = order_read(p);
  if (rc == ZKE_OK)
    rc = session ? zke_session(z, part_take_id(p, *session), out)
                 : zke_sessions(z, out);
  call_unlimit(c);
  order_use(p);
  return rc;
}

/* zke_sessions(), of all parts; where one cannot say, there is no list. */
static int compose_sessions(zke *z, zke_session_list **list_out) {
  call c;
  zke_session_list *lists[ZKE_MOUNTS] = {NULL}, *out = NULL;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < c.h->count && rc == ZKE_OK; i++)
    rc = compose_find_sessions(&c, c.h->parts[i], NULL, &lists[i]);
  if (rc == ZKE_OK) {
    rc = compose_join_out(c.h, lists, &out);
  } else {
    for (int i = 0; i < c.h->count; i++) zke_free(lists[i]);
  }
  if (rc == ZKE_OK) *list_out = out;
  return call_leave(&c, rc);
}

/* The own session is the base's.  Of another each part is asked. */
static int compose_session(zke *z, int64_t session,
                           zke_session_list **list_out) {
  call c;
  zke_session_list *lists[ZKE_MOUNTS] = {NULL}, *out = NULL;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  int count = session == compose_id(c.h) ? 1 : c.h->count;
  rc = ZKE_NONODE;
  for (int i = 0; i < count && rc == ZKE_NONODE; i++)
    rc = compose_find_sessions(&c, c.h->parts[i], &session, &lists[i]);
  if (rc == ZKE_OK) rc = compose_join_out(c.h, lists, &out);
  if (rc == ZKE_OK) *list_out = out;
  return call_leave(&c, rc);
}

/* zke_watches(): its entries name paths and sessions of one service. */
static int compose_watches(zke *z, zke_watch_list **list_out) {
  call c;
  int rc = call_begin_all(&c, z);
  if (rc == ZKE_OK) rc = call_alone(&c, "zke_watches()");
  if (rc != ZKE_OK) return rc;
  return call_leave(&c, zke_watches(c.h->parts[0]->z, list_out));
}

/* zke_waiters(), for the same reason of one part only. */
static int compose_waiters(zke *z, zke_watch_list **list_out) {
  call c;
  int rc = call_begin_all(&c, z);
  if (rc == ZKE_OK) rc = call_alone(&c, "zke_waiters()");
  if (rc != ZKE_OK) return rc;
  return call_leave(&c, zke_waiters(c.h->parts[0]->z, list_out));
}

/* zke_overdue(): what is overdue on any part. */
static int compose_overdue(zke *z, int *overdue_out) {
  call c;
  int sum = 0, one = 0;
  if (!overdue_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "overdue_out is NULL");
  int rc = call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < c.h->count && rc == ZKE_OK; i++) {
    rc = zke_overdue(c.h->parts[i]->z, &one);
    sum |= one;
  }
  if (rc == ZKE_OK) *overdue_out = sum;
  return call_leave(&c, rc);
}

/* zke_check(), on each part in turn: they have no snapshot together. */
static int compose_check(zke *z, zke_check_fn fn, void *context) {
  COMPOSE_EACH(z, zke_check(part, fn, context));
}

/* zke_compact(), which no watcher may call, on each part. */
static int compose_compact(zke *z, int64_t deadline_ms) {
  if (frame_find(compose_of(z)))
    return zke_recipe_fail(ZKE_MISUSE,
                           "zke_compact() in a callback of the handle");
  COMPOSE_EACH(z, zke_compact(part, deadline_ms));
}

/* zke_test_fail(), on each part: the next change is to fail wherever it is
 * made. */
static int compose_test_fail(zke *z, int when, int skip) {
  COMPOSE_EACH(z, zke_test_fail(part, when, skip));
}

/* ---- compose_: time ----
 *
 * The base keeps the time for all. */

/* zke_now(): all parts have one clock (compose.h), so the base is asked. */
static int64_t compose_now(zke *z) {
  return zke_now(compose_of(z)->parts[0]->z);
}

/* zke_wall(), likewise. */
static int64_t compose_wall(zke *z) {
  return zke_wall(compose_of(z)->parts[0]->z);
}

/* The longest that any part may wait. */
static int64_t compose_busy_timeout(zke *z) {
  const compose *h = compose_of(z);
  int64_t most = 0;
  for (int i = 0; i < h->count; i++) {
    int64_t one = zke_busy_timeout(h->parts[i]->z);
    if (one > most) most = one;
  }
  return most;
}

/* zke_limit() is noted here, and given to a part for each call: the thread's
 * limit is on one handle at a time. */
static int64_t compose_limit(zke *z, int64_t deadline_ms) {
  const compose *h = compose_of(z);
  int64_t was = frame_limit.h == h ? frame_limit.until : ZKE_FOREVER;
  frame_limit.h = deadline_ms == ZKE_FOREVER ? NULL : h;
  frame_limit.until = deadline_ms;
  return was;
}

/* The base sleeps, for a quarter of a second at a time: between them the other
 * parts' leases are kept, by a sleep that is over at once. */
static int compose_sleep(zke *z, int64_t deadline_ms) {
  call c;
  int rc = call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  compose *h = c.h;
  for (bool more = true; more && rc == ZKE_OK;) {
    int64_t until = deadline_ms, now = zke_now(h->parts[0]->z);
    if (h->count > 1 && until > now + 250) until = now + 250;
    more = until < deadline_ms;
    rc = zke_sleep(h->parts[0]->z, until);
    for (int i = 1; i < h->count && rc == ZKE_OK; i++)
      rc = zke_sleep(h->parts[i]->z, 0);
    pthread_mutex_lock(&h->m);
    if (h->closing && more) rc = ZKE_CLOSING;
    pthread_mutex_unlock(&h->m);
  }
  if (rc == ZKE_CLOSING)
    zke_fail(ZKE_CLOSING, "another thread is closing the handle");
  return call_leave(&c, rc);
}

/* zke_turn(): raised behind each watcher, and by zke_wake(). */
static int64_t compose_turn(zke *z) {
  return __atomic_load_n(&compose_of(z)->turn, __ATOMIC_SEQ_CST);
}

/* zke_event_zxid(), of the part whose event this thread's innermost watcher is
 * told of. */
static int64_t compose_event_zxid(zke *z) {
  const frame *f = frame_find(compose_of(z));
  return f ? zke_event_zxid(f->p->z) : 0;
}

/* ---- wait_: dispatching and sleeping ----
 *
 * A thread that dispatches leads.  Others that wait sleep until the turn
 * changes, or nobody leads any more; others that dispatch return at once.  The
 * leader may dispatch again in a watcher.
 *
 * The leader sleeps in one poll() over the parts' descriptors and a pipe, until
 * the earliest deadline of a part.  zke_wake() and zke_close() write into the
 * pipe: a byte that comes before the poll() ends it all the same.  Those that
 * follow sleep on a condition, which the leader signals whenever it stops to
 * lead, that is at least once for each round of events.
 *
 * A sleep is a cancellation point.  Nothing is held in it but the count of the
 * call, and the lead, which the clean-up gives back. */

/* Become the leader, or once more; false: another thread is. */
static bool wait_lead(compose *h) {
  pthread_mutex_lock(&h->m);
  bool lead = h->leads == 0 || pthread_equal(h->leader, pthread_self());
  if (lead) h->leader = pthread_self();
  if (lead) h->leads++;
  pthread_mutex_unlock(&h->m);
  return lead;
}

/* The thread leads once less; those that follow look again. */
static void wait_stop_leading(void *arg) {
  compose *h = arg;
  if (h->pid != getpid()) return; /* forked in a watcher */
  pthread_mutex_lock(&h->m);
  h->leads--;
  pthread_cond_broadcast(&h->moved);
  pthread_mutex_unlock(&h->m);
}

/* Dispatch all parts, up to a zxid where there is but one.  The leader is
 * inside, and a watcher may end the thread.  One part's failure does not keep
 * the others' events back. */
static int wait_dispatch(compose *h, int64_t zxid, int *more_out) {
  volatile int sum = ZKE_OK;
  bool left;
  pthread_cleanup_push(wait_stop_leading, h);
  for (int i = 0; i < h->count; i++) {
    zke *part = h->parts[i]->z;
    int rc = more_out ? zke_dispatch_to(part, zxid, NULL, more_out)
                      : zke_dispatch(part, NULL);
    if (sum == ZKE_OK) sum = rc;
    if (h->pid != getpid()) {
      sum = ZKE_FORKED;
      break;
    }
  }
  if (sum != ZKE_FORKED && order_has_ended(h->parts[0]->order, &left) && left)
    order_end_others(h->parts[0]->order);
  pthread_cleanup_pop(0);
  return sum;
}

/* One dispatch of a call that has counted in.  *count is raised by the watchers
 * that it called. */
static int wait_dispatch_once(call *c, int64_t zxid, int *count,
                              int *more_out) {
  compose *h = c->h;
  volatile int rc = ZKE_OK;
  if (!wait_lead(h)) {
    if (more_out) *more_out = 1;
    return ZKE_OK;
  }
  int64_t before = __atomic_load_n(&h->calls, __ATOMIC_SEQ_CST);
  pthread_cleanup_push(call_abandon, c);
  rc = wait_dispatch(h, zxid, more_out);
  pthread_cleanup_pop(0);
  *count = (int)(__atomic_load_n(&h->calls, __ATOMIC_SEQ_CST) - before);
  wait_stop_leading(h);
  return rc;
}

/* zke_dispatch().  Where another thread leads, that one calls the watchers. */
static int compose_dispatch(zke *z, int *count_out) {
  call c;
  int count = 0, rc = call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  rc = wait_dispatch_once(&c, 0, &count, NULL);
  if (rc == ZKE_OK && count_out) *count_out = count;
  return call_leave(&c, rc);
}

/* zke_dispatch_to(), by the zxids of one part.  Where another thread leads
 * there is more to come. */
static int compose_dispatch_to(zke *z, int64_t zxid, int *count_out,
                               int *more_out) {
  call c;
  int count = 0, more = 0, rc = call_enter(&c, z);
  if (rc == ZKE_OK) rc = call_alone(&c, "zke_dispatch_to()");
  if (rc != ZKE_OK) return rc;
  rc = wait_dispatch_once(&c, zxid, &count, &more);
  if (rc == ZKE_OK && count_out) *count_out = count;
  if (rc == ZKE_OK && more_out) *more_out = more;
  return call_leave(&c, rc);
}

/* The poller is readable when the part's descriptor is, too. */
static int wait_add_to_poller(const compose *h, int poller,
                              const compose_part *p) {
  int fd, rc = zke_fd(p->z, &fd);
  if (rc == ZKE_OK && h->os.poller_add(h->os.context, poller, fd, 1) < 0)
    rc = zke_recipe_fail(ZKE_SYSTEMERROR, "polling several services: errno %d",
                         errno);
  return rc;
}

/* One descriptor that is readable when a part's is.  The handle's mutex is
 * held. */
static int wait_make_poller(compose *h) {
  int poller = h->os.poller(h->os.context), rc = ZKE_OK;
  if (poller < 0)
    return zke_recipe_fail(
        ZKE_UNIMPLEMENTED,
        "no descriptor that shows several: poll those of the "
        "services, or go by zke_next_deadline()");
  for (int i = 0; i < h->count && rc == ZKE_OK; i++)
    rc = wait_add_to_poller(h, poller, h->parts[i]);
  if (rc == ZKE_OK)
    h->poller = poller;
  else
    h->os.close(h->os.context, poller);
  return rc;
}

/* zke_fd(): a part's own where there is one part, else one that polls all. */
static int compose_fd(zke *z, int *fd_out) {
  call c;
  if (!fd_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "fd_out is NULL");
  int rc = call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  if (c.h->count == 1) return call_leave(&c, zke_fd(c.h->parts[0]->z, fd_out));
  pthread_mutex_lock(&c.h->m);
  if (c.h->poller < 0) rc = wait_make_poller(c.h);
  if (rc == ZKE_OK) *fd_out = c.h->poller;
  pthread_mutex_unlock(&c.h->m);
  return call_leave(&c, rc);
}

/* The least of all parts'. */
static int wait_deadline(const compose *h, int64_t *out) {
  *out = ZKE_FOREVER;
  for (int i = 0; i < h->count; i++) {
    int64_t one;
    int rc = zke_next_deadline(h->parts[i]->z, &one);
    if (rc != ZKE_OK) return rc;
    if (one < *out) *out = one;
  }
  return ZKE_OK;
}

/* zke_next_deadline(): each part has to be called in time, so the first one
 * counts. */
static int compose_next_deadline(zke *z, int64_t *deadline_out) {
  call c;
  int64_t out;
  if (!deadline_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "deadline_out is NULL");
  int rc = call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  rc = wait_deadline(c.h, &out);
  if (rc == ZKE_OK) *deadline_out = out;
  return call_leave(&c, rc);
}

/* zke_pending(): has any part something to tell? */
static int compose_pending(zke *z, int *pending_out) {
  call c;
  int sum = 0;
  if (!pending_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "pending_out is NULL");
  int rc = call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < c.h->count && rc == ZKE_OK && !sum; i++)
    rc = zke_pending(c.h->parts[i]->z, &sum);
  if (rc == ZKE_OK) *pending_out = sum;
  return call_leave(&c, rc);
}

/* Milliseconds for poll(), rounded to what an int holds. */
static int wait_timeout(const compose *h, int64_t deadline_ms) {
  int64_t next, now = zke_now(h->parts[0]->z), until = deadline_ms;
  if (wait_deadline(h, &next) == ZKE_OK && next < until) until = next;
  if (until <= now) return 0;
  return until - now > 60000 ? 60000 : (int)(until - now);
}

/* A call whose sleep is a cancellation point, unless a watcher has made it. */
static void wait_allow_cancel(const call *c) {
  if (!frame_find(c->h)) pthread_setcancelstate(c->old_state, NULL);
}

/* The sleep is over: the thread is not cancelled inside the library. */
static void wait_forbid_cancel(void) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

/* The leader's thread was cancelled in its sleep. */
static void wait_leave_leading(void *arg) {
  call *c = arg;
  wait_forbid_cancel();
  wait_stop_leading(c->h);
  call_leave(c, ZKE_OK);
}

enum { WAIT_PAUSE_MS = 5 };

/* The leader sleeps until a wake or the deadline, and, if it is to, until a
 * part has something. */
static void wait_poll(call *c, int64_t deadline_ms, bool parts) {
  compose *h = c->h;
  struct pollfd fds[ZKE_MOUNTS + 1] = {{.fd = h->wakes[0], .events = POLLIN}};
  unsigned count = 1;
  char drained[64];
  for (int i = 0; i < h->count && parts; i++) {
    if (zke_fd(h->parts[i]->z, &fds[count].fd) != ZKE_OK) continue;
    fds[count++].events = POLLIN;
  }
  int timeout = wait_timeout(h, deadline_ms);
  pthread_cleanup_push(wait_leave_leading, c);
  wait_allow_cancel(c);
  h->os.poll(h->os.context, fds, count, timeout);
  wait_forbid_cancel();
  pthread_cleanup_pop(0);
  if (fds[0].revents) {
    while (h->os.read(h->os.context, h->wakes[0], drained, sizeof drained) ==
           (int64_t)sizeof drained)
      continue;
  }
}

/* A follower's thread was cancelled in its sleep, which has the mutex. */
static void wait_leave_following(void *arg) {
  call *c = arg;
  wait_forbid_cancel();
  pthread_mutex_unlock(&c->h->m);
  call_leave(c, ZKE_OK);
}

/* Sleep until the turn changes, nobody leads, the handle closes, or the
 * deadline. */
static void wait_follow(call *c, int64_t turn, int64_t deadline_ms) {
  compose *h = c->h;
  int64_t now = zke_now(h->parts[0]->z), left = 0;
  if (deadline_ms > now)
    left = deadline_ms - now > 60000 ? 60000 : deadline_ms - now;
  int64_t ns = h->os.clock(h->os.context, ZKE_CLOCK_MONOTONIC) + left * 1000000;
  struct timespec until = {.tv_sec = (time_t)(ns / 1000000000),
                           .tv_nsec = (long)(ns % 1000000000)};
  pthread_mutex_lock(&h->m);
  pthread_cleanup_push(wait_leave_following, c);
  if (h->leads && !h->closing && compose_turn((zke *)(void *)h) == turn) {
    wait_allow_cancel(c);
    pthread_cond_timedwait(&h->moved, &h->m, &until);
    wait_forbid_cancel();
  }
  pthread_cleanup_pop(0);
  pthread_mutex_unlock(&h->m);
}

/* Dispatch, and sleep where nothing was there.  ZKE_OK: look at the turn.  A
 * part that another thread's call keeps busy is no failure of the wait: it is
 * dispatched again soon. */
static int wait_as_leader(call *c, int64_t turn, int64_t deadline_ms) {
  compose *h = c->h;
  volatile int rc = ZKE_OK;
  pthread_cleanup_push(call_abandon, c);
  rc = wait_dispatch(h, 0, NULL);
  pthread_cleanup_pop(0);
  if (h->pid != getpid()) return ZKE_FORKED;
  if (rc == ZKE_OPERATIONTIMEOUT) {
    int64_t soon = zke_now(h->parts[0]->z) + WAIT_PAUSE_MS;
    wait_poll(c, soon < deadline_ms ? soon : deadline_ms, false);
    rc = ZKE_OK;
  } else if (rc == ZKE_OK && compose_turn((zke *)(void *)h) == turn) {
    wait_poll(c, deadline_ms, true);
  }
  wait_stop_leading(h);
  return rc;
}

/* ZKE_CLOSING where another thread has begun to close the handle. */
static int wait_closing(compose *h) {
  pthread_mutex_lock(&h->m);
  bool closing = h->closing;
  pthread_mutex_unlock(&h->m);
  return closing ? zke_recipe_fail(ZKE_CLOSING,
                                   "another thread is closing the handle")
                 : ZKE_OK;
}

/* The deadline is looked at after a dispatch, so that one in the past is as
 * zke_dispatch(). */
static int compose_wait_turn(zke *z, int64_t turn, int64_t deadline_ms) {
  call c;
  int rc = call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  for (bool last = false; rc == ZKE_OK;) {
    if (compose_turn(z) != turn) break;
    if (last) {
      rc = zke_recipe_fail(ZKE_OPERATIONTIMEOUT, "waited until the deadline");
      break;
    }
    last = zke_now(c.h->parts[0]->z) >= deadline_ms;
    if (wait_lead(c.h))
      rc = wait_as_leader(&c, turn, deadline_ms);
    else
      wait_follow(&c, turn, deadline_ms);
    if (rc == ZKE_OK) rc = wait_closing(c.h);
  }
  return call_leave(&c, rc);
}

/* End the leader's sleep, and those of the others. */
static void wait_wake(compose *h) {
  (void)h->os.write(h->os.context, h->wakes[1], "", 1);
  pthread_mutex_lock(&h->m);
  pthread_cond_broadcast(&h->moved);
  pthread_mutex_unlock(&h->m);
}

/* zke_wake(): the turn first, so that none of those who wake sleeps again. */
static int compose_wake(zke *z) {
  call c;
  int rc = call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  __atomic_add_fetch(&c.h->turn, 1, __ATOMIC_SEQ_CST);
  wait_wake(c.h);
  return call_leave(&c, ZKE_OK);
}

/* ---- life ----
 *
 * A handle is made around one that exists in two steps: what may fail for want
 * of memory, and then compose_listen(), which takes the default watcher.  So a
 * failure leaves the handle that was there as it was.
 *
 * Its end: mark it as closing, so that nobody comes in; wake those who sleep;
 * wait until nobody is inside; take each part out of the order, which waits
 * until no other handle's thread has it pinned; close the part. */

/* Release a handle's memory and descriptors; its parts are nobody's. */
static void compose_free(compose *h) {
  for (int i = 0; i < COMPOSE_BUCKETS; i++) {
    for (pair *w = h->pairs[i], *next; w; w = next) {
      next = w->next;
      zke_free(w);
    }
  }
  if (h->poller >= 0) h->os.close(h->os.context, h->poller);
  for (int i = 0; i < 2; i++)
    if (h->wakes[i] >= 0) h->os.close(h->os.context, h->wakes[i]);
  for (int i = 0; i < h->count; i++) zke_free(h->parts[i]);
  pthread_cond_destroy(&h->moved);
  pthread_mutex_destroy(&h->m);
  zke_free(h);
}

/* Blocks for the handle's results, by the base's allocator; its context is only
 * looked at to make one, and nothing of ours grows. */
static void *compose_resize(void *context, void *block, size_t size) {
  if (size > 0) return block ? NULL : zke_alloc(context, size);
  zke_free(block);
  return NULL;
}

/* A handle without parts, for results of the base's allocator. */
static compose *compose_new(zke *base, const zke_engine *engine) {
  pthread_condattr_t monotonic;
  compose *h = zke_alloc(base, sizeof *h);
  if (!h) return NULL;
  h->handle.engine = engine;
  h->handle.allocator = (zke_allocator){compose_resize, base};
  h->pid = getpid();
  h->poller = h->wakes[0] = h->wakes[1] = -1;
  zke_os_default(&h->os);
  pthread_mutex_init(&h->m, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&h->moved, &monotonic);
  pthread_condattr_destroy(&monotonic);
  if (h->os.pipe(h->os.context, h->wakes) == 0) return h;
  compose_free(h);
  zke_fail(ZKE_SYSTEMERROR, "no descriptors for a pipe");
  return NULL;
}

/* A part of no handle yet; NULL without memory. */
static compose_part *part_new(zke *z, const char *prefix) {
  size_t len = strlen(prefix);
  compose_part *p = zke_alloc(z, sizeof *p + len + 1);
  if (!p) return NULL;
  p->z = z;
  p->prefix = memcpy(p + 1, prefix, len + 1);
  p->prefix_len = len;
  p->own = zke_session_id(z);
  p->is_file = !((const zke_handle *)(const void *)z)->engine;
  return p;
}

/* Give a handle a part.  part_listen() has to follow before it is used. */
static void compose_adopt(compose *h, compose_part *p, order *o) {
  p->h = h;
  p->mark = h->count * (INT64_C(1) << 59); /* at most 15 times */
  h->parts[h->count++] = p;
  order_add(o, p);
}

/* From here on the part tells the handle of its session. */
static int part_listen(compose_part *p) {
  if (p->listens) return ZKE_OK;
  int rc = compose_set_fallback(p, NULL);
  p->listens = rc == ZKE_OK;
  return rc;
}

/* part_listen() for all parts.  Where it fails some have lost their own
 * watcher. */
static int compose_listen(const compose *h) {
  int rc = ZKE_OK;
  for (int i = 0; i < h->count && rc == ZKE_OK; i++)
    rc = part_listen(h->parts[i]);
  return rc;
}

/* Take all parts from the handle again, and release it. */
static void compose_undo(compose *h) {
  if (!h) return;
  for (int i = 0; i < h->count; i++) {
    compose_part *p = h->parts[i];
    if (p->listens) zke_set_watcher(p->z, NULL, NULL);
    order_remove(p);
  }
  compose_free(h);
}

/* A handle whose base is z, in an order of its own; compose_listen() has to
 * follow.  z itself is as it was. */
static int compose_wrap(zke *z, const zke_engine *engine, compose **out) {
  int state = zke_state(z);
  if (state_is_end(state) || state == ZKE_STATE_CLOSED)
    return zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
  compose *h = compose_new(z, engine);
  if (!h) return ZKE_NOMEM;
  order *o = order_new(z);
  compose_part *p = o ? part_new(z, "") : NULL;
  if (!p) {
    order_free(o);
    compose_free(h);
    return ZKE_NOMEM;
  }
  compose_adopt(h, p, o);
  *out = h;
  return ZKE_OK;
}

/* Nobody comes in from here on; false: another thread has said so. */
static bool compose_begin_close(compose *h) {
  pthread_mutex_lock(&h->m);
  bool first = !h->closing;
  h->closing = true;
  pthread_mutex_unlock(&h->m);
  return first;
}

/* Wait until nobody is inside. */
static void compose_empty(compose *h) {
  wait_wake(h);
  pthread_mutex_lock(&h->m);
  while (h->inside > 0) pthread_cond_wait(&h->moved, &h->m);
  pthread_mutex_unlock(&h->m);
}

/* A part leaves the order first: then nobody has it pinned. */
static int compose_close(zke *z) {
  compose *h = compose_of(z);
  int sum = ZKE_OK, state, type;
  if (h->pid != getpid())
    return zke_recipe_fail(ZKE_FORKED,
                           "the handle belongs to the parent process");
  if (frame_is_inside(h))
    return zke_recipe_fail(ZKE_MISUSE,
                           "zke_close() in a callback of the handle");
  if (!compose_begin_close(h))
    return zke_recipe_fail(ZKE_CLOSING, "another thread is closing the handle");
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  compose_empty(h);
  for (int i = 0; i < h->count; i++) {
    order_remove(h->parts[i]);
    int rc = zke_close(h->parts[i]->z);
    if (sum == ZKE_OK) sum = rc;
  }
  compose_free(h);
  pthread_setcanceltype(type, NULL);
  pthread_setcancelstate(state, NULL);
  return sum;
}

/* Add a further session on each of the parts. */
static int compose_open_parts(compose *out, const compose *h, order *o,
                              const zke_options *options) {
  int rc = ZKE_OK;
  for (int i = 0; i < h->count && rc == ZKE_OK; i++) {
    zke *z = NULL;
    rc = zke_open_session(h->parts[i]->z, options, &z);
    if (rc != ZKE_OK) break;
    compose_part *p = part_new(z, h->parts[i]->prefix);
    if (p) {
      compose_adopt(out, p, o);
    } else {
      rc = ZKE_NOMEM;
      zke_close(z);
    }
  }
  return rc == ZKE_OK ? compose_listen(out) : rc;
}

/* Close a handle that nobody has been given yet. */
static void compose_abandon(compose *h, order *o) {
  for (int i = 0; i < h->count; i++) zke_close(h->parts[i]->z);
  order_free(o);
  compose_free(h);
}

/* May the options be those of a session on each part?  The call is over where
 * they may not. */
static int compose_check_options(call *c, const zke_options *o) {
  if (o->timeout_ms) return call_leave(c, compose_kept());
  return o->chroot && *o->chroot ? call_alone(c, "a chroot") : ZKE_OK;
}

/* A session on each part, in an order of its own.  Results come from the new
 * base's allocator: the one before may be closed. */
static int compose_open_session(zke *z, const zke_options *options,
                                zke **z_out) {
  call c;
  zke_options o = ZKE_INIT(zke_options);
  if (!z_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "z_out is NULL");
  *z_out = NULL;
  int rc = zke_take_options(options, &o, sizeof o, "zke_options");
  if (rc == ZKE_OK) rc = call_begin_all(&c, z);
  if (rc == ZKE_OK) rc = compose_check_options(&c, &o);
  if (rc != ZKE_OK) return rc;
  zke *base = c.h->parts[0]->z;
  order *own = order_new(base);
  compose *h = own ? compose_new(base, c.h->handle.engine) : NULL;
  if (!h) {
    order_free(own);
    return call_leave(&c, ZKE_NOMEM);
  }
  zke_watch_fn fn = o.watcher;
  o.watcher = NULL;
  rc = compose_open_parts(h, c.h, own, &o);
  if (rc == ZKE_OK && fn)
    rc = compose_set_watcher((zke *)(void *)h, fn, o.watcher_context);
  if (rc == ZKE_OK) {
    h->handle.allocator.context = h->parts[0]->z;
    *z_out = (zke *)(void *)h;
  } else {
    compose_abandon(h, own);
  }
  return call_leave(&c, rc);
}

/* The engine is not registered, so no name comes here. */
static int compose_open(const zke_engine *engine, const char *name,
                        const zke_options *options, zke **z_out) {
  (void)engine, (void)options, (void)z_out;
  return zke_recipe_fail(ZKE_UNIMPLEMENTED, "%s: composed handles have no name",
                         name);
}

/* What zkembed.h calls for a composed handle.  What is not here is
 * ZKE_UNIMPLEMENTED, or made of these. */
static const zke_engine compose_engine = {
    .size = sizeof(zke_engine),
    .prefix = "a composed handle",
    .open = compose_open,
    .open_session = compose_open_session,
    .attach = compose_attach,
    .detach = compose_no_session,
    .password = compose_password,
    .touch = compose_no_session,
    .rearm = compose_no_session,
    .close = compose_close,
    .session_id = compose_session_id,
    .state = compose_state,
    .expire = compose_expire,
    .keepalive_fd = compose_keepalive_fd,
    .create = compose_create,
    .create_ttl = compose_create_ttl,
    .remove = compose_remove,
    .discard = compose_discard,
    .raise_sequence = compose_raise_sequence,
    .exists = compose_exists,
    .get = compose_get,
    .set = compose_set,
    .children = compose_children,
    .count = compose_count,
    .usage = compose_usage,
    .ephemerals = compose_ephemerals,
    .sync = compose_sync,
    .multi = compose_multi,
    .multi_read = compose_multi_read,
    .batch = compose_batch,
    .add_auth = compose_add_auth,
    .vouch = compose_vouch,
    .clear_auth = compose_clear_auth,
    .get_acl = compose_get_acl,
    .set_acl = compose_set_acl,
    .add_watch = compose_add_watch,
    .set_watch = compose_set_watch,
    .check_watch = compose_check_watch,
    .remove_watch = compose_remove_watch,
    .remove_all_watches = compose_remove_all_watches,
    .forget = compose_forget,
    .call_at = compose_call_at,
    .set_watcher = compose_set_watcher,
    .now = compose_now,
    .wall = compose_wall,
    .sleep = compose_sleep,
    .busy_timeout = compose_busy_timeout,
    .limit = compose_limit,
    .fd = compose_fd,
    .next_deadline = compose_next_deadline,
    .pending = compose_pending,
    .dispatch = compose_dispatch,
    .dispatch_to = compose_dispatch_to,
    .event_zxid = compose_event_zxid,
    .turn = compose_turn,
    .wait_turn = compose_wait_turn,
    .wake = compose_wake,
    .sessions = compose_sessions,
    .session = compose_session,
    .watches = compose_watches,
    .waiters = compose_waiters,
    .overdue = compose_overdue,
    .check = compose_check,
    .compact = compose_compact,
    .test_fail = compose_test_fail,
};

/* ---- zke_: what a program calls ----
 *
 * Both are called while nobody else uses the handles (compose.h), and so change
 * orders without a lock. */

/* Is the handle one that zke_order() or zke_mount() has given? */
static bool compose_is(const zke *z) {
  return ((const zke_handle *)(const void *)z)->engine == &compose_engine;
}

/* The handle as a composed one: itself, or one around it. */
static int compose_take(zke *z, compose **out) {
  if (!compose_is(z)) return compose_wrap(z, &compose_engine, out);
  compose *h = *out = compose_of(z);
  if (h->pid != getpid())
    return zke_recipe_fail(ZKE_FORKED,
                           "the handle belongs to the parent process");
  if (frame_is_inside(h))
    return zke_recipe_fail(ZKE_MISUSE, "called in a callback of the handle");
  if (!state_is_end(part_states(h))) return ZKE_OK;
  return zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
}

/* All parts of the handle go over to another order. */
static void compose_move(compose *h, order *to) {
  for (int i = 0; i < h->count; i++) {
    compose_part *p = h->parts[i];
    if (p->order == to) continue;
    /* others that share the old order come along, each with its own handle */
    order *from = p->order;
    for (compose_part *q = from->first, *next; q; q = next) {
      next = q->next;
      order_add(to, q);
    }
    order_free(from);
  }
}

/* Are these n different handles? */
static bool join_is_good(zke *const *handles, int n) {
  bool good = handles;
  for (int i = 0; good && i < n; i++) {
    good = handles[i];
    for (int j = 0; j < i; j++) good = good && handles[j] != handles[i];
  }
  return good;
}

/* The handles as composed ones.  Where one cannot be had those that were made
 * are taken off again. */
static int join_wrap(zke *const *handles, int n, compose **out) {
  int rc = ZKE_OK, made = 0;
  while (made < n && rc == ZKE_OK) {
    rc = compose_take(handles[made], &out[made]);
    if (rc == ZKE_OK) made++;
  }
  for (int i = 0; i < n && rc == ZKE_OK; i++) rc = compose_listen(out[i]);
  for (int i = 0; i < made && rc != ZKE_OK; i++)
    if (!compose_is(handles[i])) compose_undo(out[i]);
  return rc;
}

/* Nothing is moved before all handles are wrapped: so a failure is undone by
 * taking the wrappers off. */
int zke_order(zke **handles, int n) {
  if (n < 1 || !join_is_good(handles, n))
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "handles that are NULL, or one twice");
  compose **out = calloc((size_t)n, sizeof(compose *));
  if (!out) return zke_recipe_fail(ZKE_NOMEM, "out of memory");
  int rc = join_wrap(handles, n, out);
  for (int i = 0; i < n && rc == ZKE_OK; i++) {
    compose_move(out[i], out[0]->parts[0]->order);
    handles[i] = (zke *)(void *)out[i];
  }
  if (rc == ZKE_OK) order_begin(out[0]->parts[0]->order);
  free(out);
  return rc;
}

/* Is there a place for one mount more, at the prefix? */
static int mount_check_place(const compose *h, const char *prefix) {
  for (int i = 0; i < h->count; i++) {
    if (strcmp(h->parts[i]->prefix, prefix) == 0)
      return zke_recipe_fail(ZKE_NODEEXISTS, "%s is mounted on already",
                             prefix);
  }
  if (h->count == ZKE_MOUNTS || part_spans(h, prefix))
    return zke_recipe_fail(
        ZKE_BADARGUMENTS,
        "%s: another mount lies below it, or there are %d parts", prefix,
        ZKE_MOUNTS);
  for (int i = 0; i < COMPOSE_BUCKETS; i++) {
    if (h->pairs[i])
      return zke_recipe_fail(ZKE_MISUSE,
                             "mount before watchers are registered");
  }
  return ZKE_OK;
}

/* May other be mounted on z there?  That a node is at the prefix, and so that
 * it is a path, is the engine's to say. */
static int mount_check(zke *z, const char *prefix, zke *other) {
  if (!z || !prefix || !other || z == other || compose_is(other))
    return zke_recipe_fail(
        ZKE_BADARGUMENTS,
        "a mount needs a prefix and two handles, the other one as "
        "zke_open() gave it");
  if (strcmp(prefix, "/") == 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "/ cannot be mounted on");
  int rc = zke_exists(z, prefix, NULL, NULL, NULL);
  if (rc != ZKE_OK || !compose_is(z)) return rc;
  const compose *h = compose_of(z);
  for (int i = 0; i < h->count; i++) {
    if (h->parts[i]->z == other)
      return zke_recipe_fail(ZKE_BADARGUMENTS, "the handle is mounted already");
  }
  return mount_check_place(h, prefix);
}

/* The wrapper of a plain handle is made before, and taken off where the part
 * cannot be added. */
int zke_mount(zke **z, const char *prefix, zke *other) {
  compose *h = NULL;
  int rc = mount_check(z ? *z : NULL, prefix, other);
  if (rc != ZKE_OK) return rc;
  int state = zke_state(other);
  if (state_is_end(state) || state == ZKE_STATE_CLOSED)
    return zke_recipe_fail(ZKE_INVALIDSTATE, "the other session has ended");
  if (zke_session_id(*z) == 0 && zke_session_id(other) != 0)
    return zke_recipe_fail(ZKE_READONLY,
                           "the handle has no session, and the other one has");
  rc = compose_take(*z, &h);
  if (rc != ZKE_OK) return rc;
  compose_part *p = part_new(other, prefix);
  rc = p ? compose_listen(h) : ZKE_NOMEM;
  if (rc == ZKE_OK && h->poller >= 0) rc = wait_add_to_poller(h, h->poller, p);
  if (rc == ZKE_OK) rc = part_listen(p);
  if (rc == ZKE_OK) {
    compose_adopt(h, p, h->parts[0]->order);
    order_begin(p->order);
    *z = (zke *)(void *)h;
    return ZKE_OK;
  }
  zke_free(p);
  if (!compose_is(*z)) compose_undo(h);
  return rc;
}
