/* compose_session.c - calls on a composed handle as a whole
 *
 * It promises to compose.c: the caller knows one session, one identity and one
 * time, whichever part holds them; and what cannot be made one is refused.
 *
 * Contents; each section calls only those above it.  Functions zke_compose_…
 * are members of the engine's table.
 *
 *   each_     the same call on all parts: identities, checks
 *   session_  the own session, other sessions, and what they watch
 *   (time)    the clock, and sleeping without events
 *   open_     further sessions on the same parts
 *
 * Start with zke_compose_clear_auth() for a call on all parts, and with
 * zke_compose_expire() for a call on the part that knows the session.
 *
 * Invariant: a function either begins one call and ends it, or does not count
 * in. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "compose_session.h"

#include <stdbool.h>
#include <string.h>

#include "../part/text.h"

enum { SLEEP_ROUND_MS = 250 /* in which each part sleeps once */ };

/* ---- each_: the same call on all parts ----
 *
 *     while (each_next(&e)) each_result(&e, zke_clear_auth(e.part));
 *
 * If a part refuses, the others are still asked: another try does no harm
 * there.  The first failure is the result, with its sentence. */

/* Such a call, while it runs. */
typedef struct each {
  compose_call c;
  zke *part;
  int at, rc;
  zke_sentence kept;
} each;

/* Begin the call on all parts; ZKE_OK: each_end() must follow. */
static int each_begin(each *e, zke *z) {
  e->at = 0;
  e->kept.text[0] = '\0';
  e->rc = zke_compose_call_begin_all(&e->c, z);
  return e->rc;
}

/* Turn to the next part, e->part; false: none is left. */
static bool each_next(each *e) {
  if (e->at == e->c.h->count) return false;
  e->part = zke_compose_call_turn_to(&e->c, e->c.h->parts[e->at++]);
  return true;
}

/* Note the result of that part. */
static void each_result(each *e, int rc) {
  zke_compose_call_unlimit(&e->c, rc);
  if (rc == ZKE_OK || e->rc != ZKE_OK) return;
  e->rc = rc;
  zke_recipe_keep(&e->kept);
}

/* End the call; returns its result. */
static int each_end(each *e) {
  return zke_compose_call_leave(&e->c, zke_recipe_restore(&e->kept, e->rc));
}

/* Add an identity on all parts: each checks it by its own rules. */
int zke_compose_add_auth(zke *z, const char *scheme, const char *cert,
                         int len) {
  each e;
  int rc = each_begin(&e, z);
  if (rc != ZKE_OK) return rc;
  while (each_next(&e))
    each_result(&e, zke_add_auth(e.part, scheme, cert, len));
  return each_end(&e);
}

/* The same for an identity the program vouches for; an ensemble refuses. */
int zke_compose_vouch(zke *z, const char *scheme, const char *id) {
  each e;
  int rc = each_begin(&e, z);
  if (rc != ZKE_OK) return rc;
  while (each_next(&e)) each_result(&e, zke_vouch(e.part, scheme, id));
  return each_end(&e);
}

/* Remove all identities on all parts. */
int zke_compose_clear_auth(zke *z) {
  each e;
  int rc = each_begin(&e, z);
  if (rc != ZKE_OK) return rc;
  while (each_next(&e)) each_result(&e, zke_clear_auth(e.part));
  return each_end(&e);
}

/* zke_check(), on each part in turn: there is no common snapshot. */
int zke_compose_check(zke *z, zke_check_fn fn, void *context) {
  each e;
  int rc = each_begin(&e, z);
  if (rc != ZKE_OK) return rc;
  while (each_next(&e)) each_result(&e, zke_check(e.part, fn, context));
  return each_end(&e);
}

/* zke_compact() on each part; no watcher may call it. */
int zke_compose_compact(zke *z, int64_t deadline_ms) {
  if (zke_compose_event_part(zke_compose_of(z)))
    return zke_recipe_fail(ZKE_MISUSE,
                           "zke_compact() in a callback of the handle");
  each e;
  int rc = each_begin(&e, z);
  if (rc != ZKE_OK) return rc;
  while (each_next(&e)) each_result(&e, zke_compact(e.part, deadline_ms));
  return each_end(&e);
}

/* zke_test_fail() on each part: the next change fails wherever it is made. */
int zke_compose_test_fail(zke *z, int when, int skip) {
  each e;
  int rc = each_begin(&e, z);
  if (rc != ZKE_OK) return rc;
  while (each_next(&e)) each_result(&e, zke_test_fail(e.part, when, skip));
  return each_end(&e);
}

/* ---- session_: the own session and others ----
 *
 * A list of sessions joins the parts' lists; the own session is in it once, as
 * the base shows it.  A number that the caller asks for belongs to some part.
 * Each part is asked for its own form of the number, and refuses if it does not
 * know it.  Sessions that outlive their process are refused: their password
 * would have to open all services together. */

/* zke_session_id(): one number stands for the sessions of all parts. */
int64_t zke_compose_session_id(zke *z) {
  return zke_compose_id(zke_compose_of(z));
}

/* zke_state().  If another thread is closing the handle, or this process is a
 * forked child, the state is closed. */
int zke_compose_state(zke *z) {
  compose_call c;
  if (zke_compose_call_enter(&c, z) != ZKE_OK) return ZKE_STATE_CLOSED;
  return zke_compose_call_leave(&c, zke_compose_states(c.h));
}

/* Only a single service can keep a session. */
static int session_kept(void) {
  return zke_recipe_fail(ZKE_UNIMPLEMENTED,
                         "the session of several services is no kept one");
}

/* A session that outlives its process is attached by its number and password,
 * and several services have no common password. */
int zke_compose_attach(zke *z, int64_t session,
                       const unsigned char password[16],
                       const zke_options *options, zke **z_out) {
  (void)z, (void)session, (void)password, (void)options;
  if (z_out) *z_out = NULL;
  return session_kept();
}

/* Refused like zke_attach(). */
int zke_compose_password(zke *z, unsigned char out[16]) {
  (void)z, (void)out;
  return session_kept();
}

/* zke_detach(), zke_touch() and zke_rearm(): refused for the same reason. */
int zke_compose_no_session(zke *z) {
  (void)z;
  return session_kept();
}

/* End a session other than the own one: ask each part, because a shown number
 * belongs to one of them.  A part that cannot end other sessions is skipped;
 * its refusal is the result if no other part knows the session. */
static int session_expire_other(compose_call *c, int64_t session) {
  int sum = ZKE_NONODE;
  zke_sentence kept = {""};
  for (int i = 0; i < c->h->count; i++) {
    compose_part *p = c->h->parts[i];
    int rc = zke_expire(zke_compose_call_turn_to(c, p),
                        zke_compose_part_take_id(p, session));
    zke_compose_call_unlimit(c, rc);
    if (rc != ZKE_NONODE && rc != ZKE_UNIMPLEMENTED) return rc;
    if (sum == ZKE_UNIMPLEMENTED) continue;
    sum = rc;
    zke_recipe_keep(&kept);
  }
  return zke_recipe_restore(&kept, sum);
}

/* Ends the own session as a whole. */
int zke_compose_expire(zke *z, int64_t session) {
  compose_call c;
  int rc = zke_compose_call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  compose *h = c.h;
  if (session == zke_compose_id(h)) {
    rc = zke_expire(zke_compose_call_turn_to(&c, h->parts[0]), session);
    zke_compose_call_unlimit(&c, rc);
    if (rc == ZKE_OK) zke_compose_order_end(h->parts[0]);
    return zke_compose_call_leave(&c, rc);
  }
  return zke_compose_call_leave(&c, session_expire_other(&c, session));
}

/* zke_keepalive_fd(): one descriptor cannot serve several services. */
int zke_compose_keepalive_fd(zke *z, int *fd_out) {
  compose_call c;
  int rc = zke_compose_call_begin_all(&c, z);
  if (rc == ZKE_OK) rc = zke_compose_call_alone(&c, "zke_keepalive_fd()");
  if (rc == ZKE_OK) rc = zke_compose_call_begin_on(&c, c.h->parts[0], 0);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(&c, zke_keepalive_fd(c.p->z, fd_out));
}

/* Join the parts' lists, with the sessions as shown.  The own session is the
 * base's; NULL if out of memory. */
static zke_session_list *session_join(const compose *h,
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
      info[out->count].id = zke_compose_part_show_id(p, lists[i]->data[j].id);
      info[out->count].carrier =
          zke_compose_part_show_id(p, lists[i]->data[j].carrier);
      info[out->count++].identity = text;
      size_t len = strlen(lists[i]->data[j].identity) + 1;
      memcpy(text, lists[i]->data[j].identity, len);
      text += len;
    }
  }
  return out;
}

/* Join the lists, and free the parts' own. */
static int session_join_out(const compose *h, zke_session_list *lists[],
                            zke_session_list **out) {
  *out = session_join(h, lists);
  for (int i = 0; i < h->count; i++) zke_free(lists[i]);
  return *out ? ZKE_OK : ZKE_NOMEM;
}

/* One part's sessions (-1), or the session with that shown id, in the common
 * order. */
static int session_find(compose_call *c, compose_part *p, int64_t session,
                        zke_session_list **out) {
  zke *z = zke_compose_call_turn_to(c, p);
  int64_t id = session == -1 ? -1 : zke_compose_part_take_id(p, session);
  int rc = zke_compose_order_read(p);
  if (rc == ZKE_OK) rc = zke_sessions(z, id, out);
  return zke_compose_call_unlimit(c, rc);
}

/* zke_sessions().  All sessions: if a part fails, there is no list.  One
 * session: the base has the own one; for another, the parts are asked until one
 * knows it. */
int zke_compose_sessions(zke *z, int64_t session, zke_session_list **list_out) {
  compose_call c;
  zke_session_list *lists[ZKE_MOUNTS] = {NULL}, *out = NULL;
  const int go_on = session == -1 ? ZKE_OK : ZKE_NONODE;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_compose_call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  int count = session == zke_compose_id(c.h) ? 1 : c.h->count;
  rc = go_on;
  for (int i = 0; i < count && rc == go_on; i++)
    rc = session_find(&c, c.h->parts[i], session, &lists[i]);
  if (rc == ZKE_OK) {
    rc = session_join_out(c.h, lists, &out);
  } else {
    for (int i = 0; i < c.h->count; i++) zke_free(lists[i]);
  }
  if (rc == ZKE_OK) *list_out = out;
  return zke_compose_call_leave(&c, rc);
}

/* zke_watches(): an entry names paths and sessions of one service. */
int zke_compose_watches(zke *z, zke_watch_list **list_out) {
  compose_call c;
  int rc = zke_compose_call_begin_all(&c, z);
  if (rc == ZKE_OK) rc = zke_compose_call_alone(&c, "zke_watches()");
  if (rc == ZKE_OK)
    rc = zke_compose_call_begin_on(&c, c.h->parts[0], COMPOSE_READ);
  if (rc != ZKE_OK) return rc;
  return zke_compose_call_end(&c, zke_watches(c.p->z, list_out));
}

/* zke_overdue(): what is overdue on any part. */
int zke_compose_overdue(zke *z, int *overdue_out) {
  compose_call c;
  int sum = 0, one = 0;
  if (!overdue_out)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "overdue_out is NULL");
  int rc = zke_compose_call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < c.h->count && rc == ZKE_OK; i++) {
    rc = zke_overdue(zke_compose_call_turn_to(&c, c.h->parts[i]), &one);
    zke_compose_call_unlimit(&c, rc);
    sum |= one;
  }
  if (rc == ZKE_OK) *overdue_out = sum;
  return zke_compose_call_leave(&c, rc);
}

/* ---- time: the base keeps it for all ---- */

/* zke_now(): all parts have one clock (compose.h), so the base is asked. */
int64_t zke_compose_now(zke *z) {
  return zke_now(zke_compose_of(z)->parts[0]->z);
}

/* zke_wall(), likewise. */
int64_t zke_compose_wall(zke *z) {
  return zke_wall(zke_compose_of(z)->parts[0]->z);
}

/* zke_busy_timeout(): the longest wait of any part. */
int64_t zke_compose_busy_timeout(zke *z) {
  const compose *h = zke_compose_of(z);
  int64_t most = 0;
  for (int i = 0; i < h->count; i++) {
    int64_t one = zke_busy_timeout(h->parts[i]->z);
    if (one > most) most = one;
  }
  return most;
}

/* One round of a sleep: the parts sleep in turn.  To keep its lease or its
 * connection, each part needs a sleep that takes time. */
static int sleep_in_turn(const compose *h, int64_t deadline_ms) {
  int rc = ZKE_OK;
  for (int i = 0; i < h->count && rc == ZKE_OK; i++) {
    int64_t until = deadline_ms, now = zke_now(h->parts[0]->z);
    if (h->count > 1 && until > now + SLEEP_ROUND_MS / h->count)
      until = now + SLEEP_ROUND_MS / h->count;
    rc = zke_sleep(h->parts[i]->z, until);
  }
  return rc;
}

/* zke_sleep(): rounds until the deadline, but at least one. */
int zke_compose_sleep(zke *z, int64_t deadline_ms) {
  compose_call c;
  int rc = zke_compose_call_begin_all(&c, z);
  if (rc != ZKE_OK) return rc;
  compose *h = c.h;
  for (bool more = true; more && rc == ZKE_OK;) {
    rc = sleep_in_turn(h, deadline_ms);
    more = zke_now(h->parts[0]->z) < deadline_ms;
    if (more && zke_compose_check_closing(h) != ZKE_OK) rc = ZKE_CLOSING;
  }
  return zke_compose_call_leave(&c, rc);
}

/* zke_event_zxid() of the part that sent the event this thread's innermost
 * watcher is told of. */
int64_t zke_compose_event_zxid(zke *z) {
  const compose_part *p = zke_compose_event_part(zke_compose_of(z));
  return p ? zke_event_zxid(p->z) : 0;
}

/* ---- open_: further sessions ----
 *
 * A handle like the existing one, on new sessions. */

/* Open a further session on each part. */
static int open_parts(compose *out, const compose *h, compose_order *o,
                      const zke_options *options) {
  int rc = ZKE_OK;
  for (int i = 0; i < h->count && rc == ZKE_OK; i++) {
    zke *z = NULL;
    rc = zke_open_session(h->parts[i]->z, options, &z);
    if (rc != ZKE_OK) break;
    compose_part *p = zke_compose_part_new(z, h->parts[i]->prefix);
    if (p) {
      zke_compose_adopt(out, p, o);
    } else {
      rc = ZKE_NOMEM;
      zke_close(z);
    }
  }
  return rc == ZKE_OK ? zke_compose_listen(out) : rc;
}

/* Can a session on each part have these options?  If not, the call is over. */
static int open_check_options(compose_call *c, const zke_options *o) {
  if (o->timeout_ms) return zke_compose_call_leave(c, session_kept());
  return o->chroot && *o->chroot ? zke_compose_call_alone(c, "a chroot")
                                 : ZKE_OK;
}

/* A session on each part, in a new order.  Results come from the new base's
 * allocator, because the old base may be closed. */
int zke_compose_open_session(zke *z, const zke_options *options, zke **z_out) {
  compose_call c;
  zke_options o = ZKE_INIT(zke_options);
  if (!z_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "z_out is NULL");
  *z_out = NULL;
  int rc = zke_take_options(options, &o, sizeof o, "zke_options");
  if (rc == ZKE_OK) rc = zke_compose_call_begin_all(&c, z);
  if (rc == ZKE_OK) rc = open_check_options(&c, &o);
  if (rc != ZKE_OK) return rc;
  zke *base = c.h->parts[0]->z;
  compose_order *own = zke_compose_order_new(base);
  compose *h = NULL;
  rc = own ? zke_compose_new(base, c.h->handle.engine, &h) : ZKE_NOMEM;
  if (rc != ZKE_OK) {
    zke_compose_order_free(own);
    return zke_compose_call_leave(&c, rc);
  }
  zke_watch_fn fn = o.watcher;
  o.watcher = NULL;
  rc = open_parts(h, c.h, own, &o);
  if (rc == ZKE_OK && fn)
    rc = zke_compose_pair_default(h, fn, o.watcher_context);
  if (rc == ZKE_OK) {
    h->handle.allocator.context = h->parts[0]->z;
    *z_out = (zke *)(void *)h;
  } else {
    zke_compose_abandon(h, own);
  }
  return zke_compose_call_leave(&c, rc);
}
