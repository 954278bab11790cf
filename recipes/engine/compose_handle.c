/* compose_handle.c - dispatching and sleeping on a composed handle; making and
 * closing it
 *
 * It promises to compose.c: a waiting thread wakes for an event of any part,
 * for the deadline, for zke_wake() and for the end of the handle.  A close
 * returns only when no other thread is inside.
 *
 * Contents; each section calls only those above it:
 *
 *   wait_  dispatching and sleeping
 *   life_  making and closing a handle
 *
 * Functions for compose.c are named zke_compose_…  Of these, members of the
 * engine's table have the contract that zkembed.h gives for zke_….
 *
 * Start with zke_compose_wait_turn() for the leader and its followers, and with
 * zke_compose_wrap() and zke_compose_close() for a handle's life.  The
 * invariants are in compose_handle.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pthread_condattr_setclock */
#endif

#include "compose_handle.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "../part/text.h"

enum {
  WAIT_PAUSE_MS = 5,       /* before a busy part is dispatched again */
  WAIT_MOST_MS = 60 * 1000 /* one sleep; then look again */
};

/* The mark in the ids of the first mounted part; the second part has twice the
 * mark, and so on. */
#define LIFE_MARK (INT64_C(1) << 59)
_Static_assert(ZKE_MOUNTS - 1 <= INT64_MAX / LIFE_MARK,
               "the mark of the last part fits into an id");

/* ---- wait_: dispatching and sleeping ----
 *
 * A thread that dispatches leads.  Other waiting threads follow: they sleep
 * until the turn changes or the leader stops.  A dispatch on another thread
 * returns immediately.  The leader may dispatch again in a watcher.
 *
 * The leader sleeps in one poll() of the parts' descriptors and a pipe, until
 * the earliest deadline of a part.  zke_wake() and zke_close() write into the
 * pipe: even a byte written before the poll() ends it.  Followers sleep on a
 * condition variable, which the leader signals whenever it stops leading, so at
 * least once for each round of events.
 *
 * A sleep is a cancellation point.  The thread then holds only the count of the
 * call and the lead; the clean-up gives them back. */

/* zke_turn(): raised after each watcher, and by zke_wake(). */
int64_t zke_compose_turn(zke *z) {
  return __atomic_load_n(&zke_compose_of(z)->turn, __ATOMIC_SEQ_CST);
}

/* Become the leader, or lead once more; false: another thread leads. */
static bool wait_lead(compose *h) {
  pthread_mutex_lock(&h->m);
  bool lead = h->leads == 0 || pthread_equal(h->leader, pthread_self());
  if (lead) h->leader = pthread_self();
  if (lead) h->leads++;
  pthread_mutex_unlock(&h->m);
  return lead;
}

/* The thread leads once less; its followers look again. */
static void wait_stop_leading(void *arg) {
  compose *h = arg;
  if (h->pid != getpid()) return; /* forked in a watcher */
  pthread_mutex_lock(&h->m);
  h->leads--;
  pthread_cond_broadcast(&h->moved);
  pthread_mutex_unlock(&h->m);
}

/* Dispatch all parts, or the only one up to a zxid.  The leader is inside, and
 * a watcher may end the thread.  A part's failure does not hold back the events
 * of the others. */
static int wait_dispatch(compose *h, int64_t zxid, int *more_out) {
  volatile int sum = ZKE_OK;
  pthread_cleanup_push(wait_stop_leading, h);
  for (int i = 0; i < h->count; i++) {
    zke *part = h->parts[i]->z;
    int rc = more_out ? zke_dispatch_to(part, zxid, NULL, more_out)
                      : zke_dispatch(part, NULL);
    rc = zke_compose_part_excuse(h->parts[i], rc);
    if (sum == ZKE_OK) sum = rc;
    if (h->pid != getpid()) {
      sum = ZKE_FORKED;
      break;
    }
  }
  if (sum != ZKE_FORKED) zke_compose_order_has_ended(h->parts[0]->order);
  pthread_cleanup_pop(0);
  return sum;
}

/* One dispatch of a call that has counted in.  *count becomes the number of
 * watchers called. */
static int wait_dispatch_once(compose_call *c, int64_t zxid, int *count,
                              int *more_out) {
  compose *h = c->h;
  volatile int rc = ZKE_OK;
  if (!wait_lead(h)) {
    if (more_out) *more_out = 1;
    return ZKE_OK;
  }
  int64_t before = __atomic_load_n(&h->calls, __ATOMIC_SEQ_CST);
  pthread_cleanup_push(zke_compose_call_abandon, c);
  rc = wait_dispatch(h, zxid, more_out);
  pthread_cleanup_pop(0);
  *count = (int)(__atomic_load_n(&h->calls, __ATOMIC_SEQ_CST) - before);
  wait_stop_leading(h);
  return rc;
}

/* zke_dispatch().  If another thread leads, it calls the watchers. */
int zke_compose_dispatch(zke *z, int *count_out) {
  compose_call c;
  int count = 0, rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  rc = wait_dispatch_once(&c, 0, &count, NULL);
  if (rc == ZKE_OK && count_out) *count_out = count;
  return zke_compose_call_leave(&c, rc);
}

/* zke_dispatch_to(), by the zxids of the only part.  If another thread leads
 * there is more to come. */
int zke_compose_dispatch_to(zke *z, int64_t zxid, int *count_out,
                            int *more_out) {
  compose_call c;
  int count = 0, more = 0, rc = zke_compose_call_enter(&c, z);
  if (rc == ZKE_OK) rc = zke_compose_call_alone(&c, "zke_dispatch_to()");
  if (rc != ZKE_OK) return rc;
  rc = wait_dispatch_once(&c, zxid, &count, &more);
  if (rc == ZKE_OK && count_out) *count_out = count;
  if (rc == ZKE_OK && more_out) *more_out = more;
  return zke_compose_call_leave(&c, rc);
}

/* Make the poller readable when the part's descriptor is.  A part without a
 * descriptor is left out. */
static int wait_add_to_poller(const compose *h, int poller,
                              const compose_part *p) {
  int fd = -1, rc = zke_compose_part_excuse(p, zke_fd(p->z, &fd));
  if (rc == ZKE_OK && fd >= 0 &&
      h->os.poller_add(h->os.context, poller, fd, 1) < 0)
    rc = zke_recipe_fail(ZKE_SYSTEMERROR, "polling several services: errno %d",
                         errno);
  return rc;
}

/* A descriptor made later covers all the parts that exist then. */
int zke_compose_show_in_fd(const compose *h, const compose_part *p) {
  return h->poller < 0 ? ZKE_OK : wait_add_to_poller(h, h->poller, p);
}

/* Make a descriptor that is readable when any part's is.  The handle's mutex is
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

/* zke_fd(): the descriptor of the only part, or one that polls all parts. */
int zke_compose_fd(zke *z, int *fd_out) {
  compose_call c;
  if (!fd_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "fd_out is NULL");
  int rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  if (c.h->count == 1)
    return zke_compose_call_leave(&c, zke_fd(c.h->parts[0]->z, fd_out));
  pthread_mutex_lock(&c.h->m);
  if (c.h->poller < 0) rc = wait_make_poller(c.h);
  if (rc == ZKE_OK) *fd_out = c.h->poller;
  pthread_mutex_unlock(&c.h->m);
  return zke_compose_call_leave(&c, rc);
}

/* The earliest deadline of all parts. */
static int wait_deadline(const compose *h, int64_t *out) {
  *out = ZKE_FOREVER;
  for (int i = 0; i < h->count; i++) {
    int64_t one = ZKE_FOREVER;
    const compose_part *p = h->parts[i];
    int rc = zke_compose_part_excuse(p, zke_next_deadline(p->z, &one));
    if (rc != ZKE_OK) return rc;
    if (one < *out) *out = one;
  }
  return ZKE_OK;
}

/* zke_next_deadline(): each part must be called in time, so the earliest
 * deadline counts. */
int zke_compose_next_deadline(zke *z, int64_t *deadline_out) {
  compose_call c;
  int64_t out;
  if (!deadline_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "deadline_out is NULL");
  int rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  rc = wait_deadline(c.h, &out);
  if (rc == ZKE_OK) *deadline_out = out;
  return zke_compose_call_leave(&c, rc);
}

/* zke_pending(): does any part have something to tell? */
int zke_compose_pending(zke *z, int *pending_out) {
  compose_call c;
  int sum = 0;
  if (!pending_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "pending_out is NULL");
  int rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < c.h->count && rc == ZKE_OK && !sum; i++) {
    const compose_part *p = c.h->parts[i];
    rc = zke_compose_part_excuse(p, zke_pending(p->z, &sum));
  }
  if (rc == ZKE_OK) *pending_out = sum;
  return zke_compose_call_leave(&c, rc);
}

/* How long a sleep until that time is, ms. */
static int wait_left(int64_t now, int64_t until) {
  if (until <= now) return 0;
  return until - now > WAIT_MOST_MS ? WAIT_MOST_MS : (int)(until - now);
}

/* How long the leader sleeps, ms. */
static int wait_timeout(const compose *h, int64_t deadline_ms) {
  int64_t next, now = zke_now(h->parts[0]->z), until = deadline_ms;
  if (wait_deadline(h, &next) == ZKE_OK && next < until) until = next;
  return wait_left(now, until);
}

/* A call's sleep is a cancellation point, unless a watcher made the call. */
static void wait_allow_cancel(const compose_call *c) {
  if (!zke_compose_event_part(c->h)) pthread_setcancelstate(c->old_state, NULL);
}

/* The sleep is over: forbid cancellation inside the library again. */
static void wait_forbid_cancel(void) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

/* The leader's thread was cancelled in its sleep. */
static void wait_leave_leading(void *arg) {
  compose_call *c = arg;
  wait_forbid_cancel();
  wait_stop_leading(c->h);
  zke_compose_call_leave(c, ZKE_OK);
}

/* The leader sleeps until a wake or the deadline, and, if `parts` is set, until
 * a part has something. */
static void wait_poll(compose_call *c, int64_t deadline_ms, bool parts) {
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

/* A follower's thread was cancelled in its sleep, and holds the mutex. */
static void wait_leave_following(void *arg) {
  compose_call *c = arg;
  wait_forbid_cancel();
  pthread_mutex_unlock(&c->h->m);
  zke_compose_call_leave(c, ZKE_OK);
}

/* Sleep until the turn changes, the leader stops, the handle closes, or the
 * deadline passes. */
static void wait_follow(compose_call *c, int64_t turn, int64_t deadline_ms) {
  compose *h = c->h;
  int64_t left = wait_left(zke_now(h->parts[0]->z), deadline_ms);
  int64_t ns = h->os.clock(h->os.context, ZKE_CLOCK_MONOTONIC) + left * 1000000;
  struct timespec until = {.tv_sec = (time_t)(ns / 1000000000),
                           .tv_nsec = (long)(ns % 1000000000)};
  pthread_mutex_lock(&h->m);
  pthread_cleanup_push(wait_leave_following, c);
  if (h->leads && !h->closing && zke_compose_turn((zke *)(void *)h) == turn) {
    wait_allow_cancel(c);
    pthread_cond_timedwait(&h->moved, &h->m, &until);
    wait_forbid_cancel();
  }
  pthread_cleanup_pop(0);
  pthread_mutex_unlock(&h->m);
}

/* Dispatch, and sleep if there was nothing.  ZKE_OK: look at the turn.  If
 * another thread's call keeps a part busy, the wait does not fail: the part is
 * soon dispatched again. */
static int wait_as_leader(compose_call *c, int64_t turn, int64_t deadline_ms) {
  compose *h = c->h;
  volatile int rc = ZKE_OK;
  pthread_cleanup_push(zke_compose_call_abandon, c);
  rc = wait_dispatch(h, 0, NULL);
  pthread_cleanup_pop(0);
  if (h->pid != getpid()) return ZKE_FORKED;
  if (rc == ZKE_OPERATIONTIMEOUT) {
    int64_t soon = zke_now(h->parts[0]->z) + WAIT_PAUSE_MS;
    wait_poll(c, soon < deadline_ms ? soon : deadline_ms, false);
    rc = ZKE_OK;
  } else if (rc == ZKE_OK && zke_compose_turn((zke *)(void *)h) == turn) {
    wait_poll(c, deadline_ms, true);
  }
  wait_stop_leading(h);
  return rc;
}

/* The deadline is checked after a dispatch, so a deadline in the past makes
 * this like zke_dispatch(). */
int zke_compose_wait_turn(zke *z, int64_t turn, int64_t deadline_ms) {
  compose_call c;
  int rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  for (bool last = false; rc == ZKE_OK;) {
    if (zke_compose_turn(z) != turn) break;
    if (last) {
      rc = zke_recipe_fail(ZKE_OPERATIONTIMEOUT, "waited until the deadline");
      break;
    }
    last = zke_now(c.h->parts[0]->z) >= deadline_ms;
    if (wait_lead(c.h))
      rc = wait_as_leader(&c, turn, deadline_ms);
    else
      wait_follow(&c, turn, deadline_ms);
    if (rc == ZKE_OK) rc = zke_compose_check_closing(c.h);
  }
  return zke_compose_call_leave(&c, rc);
}

/* End the sleeps of the leader and the followers. */
static void wait_wake(compose *h) {
  (void)h->os.write(h->os.context, h->wakes[1], "", 1);
  pthread_mutex_lock(&h->m);
  pthread_cond_broadcast(&h->moved);
  pthread_mutex_unlock(&h->m);
}

/* zke_wake(): the turn changes first, so no thread that wakes sleeps again. */
int zke_compose_wake(zke *z) {
  compose_call c;
  int rc = zke_compose_call_enter(&c, z);
  if (rc != ZKE_OK) return rc;
  __atomic_add_fetch(&c.h->turn, 1, __ATOMIC_SEQ_CST);
  wait_wake(c.h);
  return zke_compose_call_leave(&c, ZKE_OK);
}

/* ---- life_: making and closing ----
 *
 * A handle is made around an existing one in two steps: first all that may fail
 * for lack of memory, then zke_compose_listen(), which sets the default
 * watcher.  So a failure leaves the existing handle unchanged.
 *
 * A close marks the handle as closing, so no thread comes in; wakes sleepers;
 * waits until no thread is inside; takes each part out of the order, which
 * waits until no thread of another handle has it pinned; and closes it. */

/* Free a handle and its descriptors; it does not close the parts. */
static void life_free(compose *h) {
  zke_compose_pair_clear(h);
  if (h->poller >= 0) h->os.close(h->os.context, h->poller);
  for (int i = 0; i < 2; i++)
    if (h->wakes[i] >= 0) h->os.close(h->os.context, h->wakes[i]);
  for (int i = 0; i < h->count; i++) zke_free(h->parts[i]);
  pthread_cond_destroy(&h->moved);
  pthread_mutex_destroy(&h->m);
  zke_free(h);
}

/* Blocks for the handle's results come from the base's allocator.  Its context
 * is read only to allocate, and the library never resizes a block of these. */
static void *life_resize(void *context, void *block, size_t size) {
  if (size > 0) return block ? NULL : zke_alloc(context, size);
  zke_free(block);
  return NULL;
}

static uint64_t life_serials; /* handles made so far; atomic */

/* A handle without parts; its results use the base's allocator. */
int zke_compose_new(zke *base, const zke_engine *engine, compose **out) {
  pthread_condattr_t monotonic;
  compose *h = zke_alloc(base, sizeof *h);
  if (!h) return ZKE_NOMEM;
  h->handle.engine = engine;
  h->handle.allocator = (zke_allocator){life_resize, base};
  h->pid = getpid();
  h->serial = __atomic_add_fetch(&life_serials, 1, __ATOMIC_RELAXED);
  h->poller = h->wakes[0] = h->wakes[1] = -1;
  zke_os_default(&h->os);
  pthread_mutex_init(&h->m, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&h->moved, &monotonic);
  pthread_condattr_destroy(&monotonic);
  if (h->os.pipe(h->os.context, h->wakes) != 0) {
    life_free(h);
    return zke_recipe_fail(ZKE_SYSTEMERROR, "no descriptors for a pipe");
  }
  *out = h;
  return ZKE_OK;
}

/* Call zke_compose_pair_listen() before the handle is used. */
void zke_compose_adopt(compose *h, compose_part *p, compose_order *o) {
  p->h = h;
  p->mark = h->count * LIFE_MARK;
  h->parts[h->count++] = p;
  zke_compose_order_add(o, p);
}

/* A part that listens already is skipped. */
int zke_compose_listen(const compose *h) {
  int rc = ZKE_OK;
  for (int i = 0; i < h->count && rc == ZKE_OK; i++)
    rc = zke_compose_pair_listen(h->parts[i]);
  return rc;
}

/* Take all parts out of the handle, and free it. */
void zke_compose_undo(compose *h) {
  if (!h) return;
  for (int i = 0; i < h->count; i++) {
    compose_part *p = h->parts[i];
    if (p->listens) zke_set_watcher(p->z, NULL, NULL);
    zke_compose_order_remove(p);
  }
  life_free(h);
}

/* A handle with the base z, in a new order; zke_compose_listen() must follow.
 * z itself does not change. */
int zke_compose_wrap(zke *z, const zke_engine *engine, compose **out) {
  int state = zke_state(z);
  if (zke_compose_is_end(state) || state == ZKE_STATE_CLOSED)
    return zke_recipe_fail(ZKE_INVALIDSTATE, "the session has ended");
  compose *h = NULL;
  int rc = zke_compose_new(z, engine, &h);
  if (rc != ZKE_OK) return rc;
  compose_order *o = zke_compose_order_new(z);
  compose_part *p = o ? zke_compose_part_new(z, "") : NULL;
  if (!p) {
    zke_compose_order_free(o);
    life_free(h);
    return ZKE_NOMEM;
  }
  zke_compose_adopt(h, p, o);
  *out = h;
  return ZKE_OK;
}

/* From now on no thread comes in; false: another thread is closing it. */
static bool life_begin_close(compose *h) {
  pthread_mutex_lock(&h->m);
  bool first = !h->closing;
  h->closing = true;
  pthread_mutex_unlock(&h->m);
  return first;
}

/* Wait until no thread is inside. */
static void life_empty(compose *h) {
  wait_wake(h);
  pthread_mutex_lock(&h->m);
  while (h->inside > 0) pthread_cond_wait(&h->moved, &h->m);
  pthread_mutex_unlock(&h->m);
}

/* A part leaves the order first: then no thread has it pinned. */
int zke_compose_close(zke *z) {
  compose *h = zke_compose_of(z);
  int sum = zke_compose_check_process(h), state, type;
  if (sum != ZKE_OK) return sum;
  if (zke_compose_is_inside(h))
    return zke_recipe_fail(ZKE_MISUSE,
                           "zke_close() in a callback of the handle");
  if (!life_begin_close(h)) return zke_compose_closing();
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
  life_empty(h);
  for (int i = 0; i < h->count; i++) {
    zke_compose_order_remove(h->parts[i]);
    int rc = zke_close(h->parts[i]->z);
    if (sum == ZKE_OK) sum = rc;
  }
  life_free(h);
  pthread_setcanceltype(type, NULL);
  pthread_setcancelstate(state, NULL);
  return sum;
}

/* Close a handle that was not given out yet. */
void zke_compose_abandon(compose *h, compose_order *o) {
  for (int i = 0; i < h->count; i++) zke_close(h->parts[i]->z);
  zke_compose_order_free(o);
  life_free(h);
}
