/* compose_part.c - the parts of a composed handle, and their common order
 *
 * It promises to the files above it: a call finds the part that its path lies
 * in, reads of a part are as new as the order requires, and the sessions of an
 * order end together.
 *
 * Contents; each section calls only those above it:
 *
 *   order_  the common order of parts, and the common end of their sessions;
 *           functions for the files above begin with zke_compose_order_
 *   part_   paths and session ids of one part, and the state of all;
 *           zke_compose_part_
 *
 * Start with the comments at the top of the two sections.  Then read
 * zke_compose_order_read() for the order, zke_compose_order_end() for the end,
 * and zke_compose_part_find() for the tree.
 *
 * The invariants are in compose_part.h.  This file adds one: an order's mutex
 * guards its members and those of its parts that follow `order`, except
 * `listens`.  They change without it only while an order is made or merged, or
 * a part joins it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "compose_part.h"

#include <string.h>

#include "../part/text.h"

compose *zke_compose_of(zke *z) { return (compose *)(void *)z; }

/* ---- order_: the common order, and the common end ----
 *
 * A use is a call that has returned, or an event just before it is told.  The
 * time (compose_part.h) is read before the sync begins, because the sync does
 * not cover what happens on other parts in the meantime.
 *
 *     others > fresh   out of date: the next read sends a sync first
 *     others <= fresh  the part shows at least all that was known when it was
 *                      last brought up to date
 *
 * A use of a part puts all others out of date, and does not change the part
 * itself.  So successive reads of one part need one sync in total.
 * doc/composition.md argues why this is enough.
 *
 * The end of a session spreads.  The thread that finds it, by a call or by an
 * event, ends the sessions of all other parts, including those of other
 * handles.  It pins such a part meanwhile, and a close of the part's handle
 * waits.  A part is over once its session has ended, or cannot be ended.  If a
 * session could not be ended for a temporary reason, later calls and dispatches
 * try again; until then all calls are refused, so no caller can tell. */

/* The parts that share one order, and its time.  The last part to leave frees
 * it. */
struct compose_order {
  pthread_mutex_t m;
  pthread_cond_t unpinned;
  compose_part *first;
  int64_t time;
  bool ended;
};

/* An order without parts, in a block from the handle; NULL if out of memory. */
compose_order *zke_compose_order_new(zke *z) {
  compose_order *o = zke_alloc(z, sizeof *o);
  if (!o) return NULL;
  pthread_mutex_init(&o->m, NULL);
  pthread_cond_init(&o->unpinned, NULL);
  return o;
}

/* Free an order that no part uses any more; NULL is fine. */
void zke_compose_order_free(compose_order *o) {
  if (!o) return;
  pthread_cond_destroy(&o->unpinned);
  pthread_mutex_destroy(&o->m);
  zke_free(o);
}

/* Add a part to an order.  No other thread may use either.  So the mutex is not
 * taken, and from then on p->order is read without it. */
void zke_compose_order_add(compose_order *o, compose_part *p) {
  p->order = o;
  p->next = o->first;
  o->first = p;
}

/* A part belongs to one order, so the parts of `from` are linked again. */
void zke_compose_order_merge(compose_order *from, compose_order *to) {
  for (compose_part *p = from->first, *next; p; p = next) {
    next = p->next;
    zke_compose_order_add(to, p);
  }
  zke_compose_order_free(from);
}

/* Take a part out.  The last part frees the order. */
void zke_compose_order_remove(compose_part *p) {
  compose_order *o = p->order;
  pthread_mutex_lock(&o->m);
  while (p->pins > 0) pthread_cond_wait(&o->unpinned, &o->m);
  compose_part **at = &o->first;
  while (*at != p) at = &(*at)->next;
  *at = p->next;
  bool empty = !o->first;
  pthread_mutex_unlock(&o->m);
  if (empty) zke_compose_order_free(o);
}

/* A part was used: all others are now out of date.  Called after each call of
 * the part, and before an event of the part is told. */
void zke_compose_order_use(compose_part *p) {
  compose_order *o = p->order;
  pthread_mutex_lock(&o->m);
  o->time++;
  for (compose_part *q = o->first; q; q = q->next) {
    if (q != p) q->others = o->time;
  }
  pthread_mutex_unlock(&o->m);
}

/* All parts may be out of date: what was done before they had a common order is
 * unknown.  Times of an earlier order mean nothing in this one. */
void zke_compose_order_begin(compose_order *o) {
  pthread_mutex_lock(&o->m);
  for (compose_part *p = o->first; p; p = p->next) {
    p->others = 0;
    p->fresh = -1;
  }
  pthread_mutex_unlock(&o->m);
}

/* The argument for zke_compose_order_fresh() afterwards. */
int64_t zke_compose_order_time(const compose_part *p) {
  pthread_mutex_lock(&p->order->m);
  int64_t now = p->order->time;
  pthread_mutex_unlock(&p->order->m);
  return now;
}

/* A sync or a change that began at that time has succeeded: from now on, reads
 * of the part show at least what was known then. */
void zke_compose_order_fresh(compose_part *p, int64_t began) {
  pthread_mutex_lock(&p->order->m);
  if (p->fresh < began) p->fresh = began;
  pthread_mutex_unlock(&p->order->m);
}

/* May the part be older than what was done or heard elsewhere? */
static bool order_is_behind(const compose_part *p) {
  pthread_mutex_lock(&p->order->m);
  bool behind = p->others > p->fresh;
  pthread_mutex_unlock(&p->order->m);
  return behind;
}

/* Before a read: bring the part up to date if necessary.  Two threads may both
 * find it necessary; each needs a sync that began after its own past. */
int zke_compose_order_read(compose_part *p) {
  if (p->is_file || !order_is_behind(p)) return ZKE_OK;
  int64_t began = zke_compose_order_time(p);
  int rc = zke_sync(p->z, "/");
  if (rc == ZKE_OK) zke_compose_order_fresh(p, began);
  return rc;
}

/* Pin a part with a session that must still end; NULL: none is left. */
static compose_part *order_pin_next(compose_order *o) {
  pthread_mutex_lock(&o->m);
  compose_part *p = o->first;
  while (p && (p->over || p->tried)) p = p->next;
  if (p) p->pins++;
  if (p) p->tried = true;
  pthread_mutex_unlock(&o->m);
  return p;
}

/* Unpin the part.  over: its session has ended or can never be ended, so no
 * call has to try again. */
static void order_unpin(compose_part *p, bool over) {
  compose_order *o = p->order;
  pthread_mutex_lock(&o->m);
  if (over) p->over = true;
  p->pins--;
  pthread_cond_broadcast(&o->unpinned);
  pthread_mutex_unlock(&o->m);
}

/* May a later call end a session that could not be ended now?  A file may be
 * busy or full, a batch may forbid it here, or memory may be short.  If an
 * engine can never do it, the part counts as over: its session ends when the
 * part is closed. */
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

/* End a part's session.  This does not wait for an ensemble that cannot be
 * reached now: later calls try again, and each would wait as long.  zke_limit()
 * would not do, because this thread may have a limit on another handle. */
static int order_expire(const compose_part *p) {
  if (!p->is_file && zke_state(p->z) == ZKE_STATE_CONNECTING)
    return ZKE_OPERATIONTIMEOUT;
  return zke_expire(p->z, p->own);
}

/* End the remaining sessions of all parts; each part's engine tells its own
 * watchers.  A session that cannot be ended now is left to a later call. */
static void order_end_others(compose_order *o) {
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
void zke_compose_order_end(compose_part *p) {
  compose_order *o = p->order;
  pthread_mutex_lock(&o->m);
  p->over = true;
  o->ended = true;
  pthread_mutex_unlock(&o->m);
  order_end_others(o);
}

/* Has one of the sessions ended?  *left: another must still be ended. */
static bool order_look(compose_order *o, bool *left) {
  *left = false;
  pthread_mutex_lock(&o->m);
  bool ended = o->ended;
  for (const compose_part *p = o->first; p && ended; p = p->next)
    *left = *left || !p->over;
  pthread_mutex_unlock(&o->m);
  return ended;
}

/* Sessions that could not be ended before are tried again. */
bool zke_compose_order_has_ended(compose_order *o) {
  bool left, ended = order_look(o, &left);
  if (left) order_end_others(o);
  return ended;
}

/* ---- part_: paths and session ids ----
 *
 * A path of the caller's tree lies in the part with the longest prefix that
 * covers it.  Inside the part, the path is the rest after the prefix:
 *
 *     mounted at /a   caller's   part       its own
 *                     /a         mounted    /
 *                     /a/b       mounted    /b
 *                     /ab        base       /ab
 *                     /a/        mounted    /a/, which it refuses
 *     with a number   /a/        mounted    /, which makes /0000000000
 *     with a number   /a         base       /a, which makes /a0000000000
 *
 * So the part's path is the end of the caller's text, and never copied.
 * Results and events need the full path, in a new block.  The base's nodes at
 * or below a prefix are hidden: events and lists leave them out.
 *
 * Ids.  The caller knows one number for the sessions of all parts, the base's,
 * so recipes find their own nodes on every part.  Another session's number is
 * shown with the part's mark, in bits that session numbers rarely reach.  So
 * the same number on two services is shown as two.  zke_compose_part_take_id()
 * converts back. */

/* The base is the part without a prefix: its paths and ids are the caller's. */
bool zke_compose_part_is_base(const compose_part *p) {
  return p->prefix_len == 0;
}

/* A file that was opened read-only has no events.  Waiting calls treat it as if
 * it were not there. */
int zke_compose_part_excuse(const compose_part *p, int rc) {
  return rc == ZKE_READONLY && !zke_compose_part_is_base(p) ? ZKE_OK : rc;
}

/* Is path at or below the prefix?  A sequential path equal to the prefix is
 * not: "/a0000000001" is a sibling of "/a". */
static bool part_covers(const compose_part *p, const char *path,
                        bool sequential) {
  if (strncmp(path, p->prefix, p->prefix_len) != 0) return false;
  char next = path[p->prefix_len];
  return next == '/' || (next == '\0' && !sequential);
}

/* The part with the longest prefix that covers the path; the base for NULL. */
compose_part *zke_compose_part_find(const compose *h, const char *path,
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
 * if a sequential name follows it, so a malformed path stays malformed. */
const char *zke_compose_part_inner(const compose_part *p, const char *path,
                                   bool sequential) {
  if (!path || zke_compose_part_is_base(p)) return path;
  const char *inner = path + p->prefix_len;
  if (*inner == '\0') return "/";
  return inner[1] == '\0' && !sequential ? path : inner;
}

/* Does a mount hide a node of this part? */
bool zke_compose_part_hides(const compose_part *p, const char *outer) {
  return zke_compose_part_find(p->h, outer, false) != p;
}

/* Is something mounted below the path? */
bool zke_compose_part_spans(const compose *h, const char *path) {
  size_t len = path ? strlen(path) : 0;
  if (len == 1) len = 0; /* "/" */
  for (int i = 1; i < h->count && path; i++) {
    const char *prefix = h->parts[i]->prefix;
    if (strncmp(prefix, path, len) == 0 && prefix[len] == '/') return true;
  }
  return false;
}

/* The part's "/" is the mount point itself, without a slash. */
size_t zke_compose_part_outer_len(const compose_part *p, const char *inner) {
  size_t len = strlen(inner);
  return p->prefix_len + (len > 1 || zke_compose_part_is_base(p) ? len : 0);
}

/* The path of a part's node in the caller's tree. */
void zke_compose_part_outer(const compose_part *p, const char *inner,
                            char *out) {
  size_t len = zke_compose_part_outer_len(p, inner);
  memcpy(out, p->prefix, p->prefix_len);
  memcpy(out + p->prefix_len, inner, len - p->prefix_len);
  out[len] = '\0';
}

/* The same in a block; NULL if out of memory. */
char *zke_compose_part_outer_copy(const compose_part *p, const char *inner) {
  char *out = zke_alloc(p->z, zke_compose_part_outer_len(p, inner) + 1);
  if (out) zke_compose_part_outer(p, inner, out);
  return out;
}

/* The session id that the caller sees: the base's. */
int64_t zke_compose_id(const compose *h) { return h->parts[0]->own; }

/* Convert a session of the part to the id shown to the caller: the own session
 * gets the base's id, another gets the part's mark.  If another would be shown
 * as the base's, it gets the number that the mark would give the own session,
 * which is free.  So two sessions never share an id. */
int64_t zke_compose_part_show_id(const compose_part *p, int64_t session) {
  int64_t shown = session ^ p->mark, id = zke_compose_id(p->h);
  if (session == 0) return 0;
  if (session == p->own) return id;
  return shown == id ? p->own ^ p->mark : shown;
}

/* The part's session for an id that the caller was shown. */
int64_t zke_compose_part_take_id(const compose_part *p, int64_t shown) {
  int64_t id = zke_compose_id(p->h);
  if (shown == id) return p->own;
  return shown == (p->own ^ p->mark) ? id ^ p->mark : shown ^ p->mark;
}

/* Convert the owner in a Stat to the id shown to the caller; NULL is fine. */
void zke_compose_part_show_stat(const compose_part *p, zke_stat *stat) {
  if (stat)
    stat->ephemeralOwner = zke_compose_part_show_id(p, stat->ephemeralOwner);
}

/* Is it a state that a session never leaves? */
bool zke_compose_is_end(int state) {
  return state == ZKE_STATE_EXPIRED || state == ZKE_STATE_MOVED ||
         state == ZKE_STATE_AUTH_FAILED;
}

/* The state of all parts together: ended if one has ended, connected only if
 * all are. */
int zke_compose_states(const compose *h) {
  bool left;
  int sum = zke_state(h->parts[0]->z);
  for (int i = 1; i < h->count && !zke_compose_is_end(sum); i++) {
    int state = zke_state(h->parts[i]->z);
    if (zke_compose_is_end(state) || state == ZKE_STATE_CONNECTING) sum = state;
  }
  if (zke_compose_is_end(sum)) return sum;
  return order_look(h->parts[0]->order, &left) ? ZKE_STATE_EXPIRED : sum;
}

/* A part without a handle yet; NULL if out of memory. */
compose_part *zke_compose_part_new(zke *z, const char *prefix) {
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
