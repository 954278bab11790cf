/* singleton.c - one of N processes runs the worker, the next is warm
 *
 * A line (line.h) in which one may hold: the order, the watching, lost replies
 * and deaths are decided in line.c, and lock.c tells the algorithm on a page.
 * Two things are different from a lock.  No deadlock is looked for, since a
 * singleton runs for good.  The object's own znode is always watched, so that a
 * process that was replaced hears of it.
 *
 * Added here is zke_singleton_serve(), which acquires, calls the worker, and
 * gives up however the worker ends.
 *
 * Start reading there. */
#include "singleton.h"

#include "entry.h"
#include "line.h"
#include "party.h"
#include "text.h"
#include "znode.h"

#define SINGLETON_PLACE "singleton"

/* Guarded by the mutex of the zke_recipe that the line begins with. */
struct zke_singleton {
  zke_line l; /* first: a zke_recipe * is a zke_singleton * */
  zke_singleton_fn listener;
  void *context;
};

/* ---- the object ---- */

/* The number is the token, or 0. */
static void singleton_deliver(zke_recipe *r, int event, int64_t number,
                              const char *text, int len) {
  zke_singleton *s = (zke_singleton *)r;
  (void)text, (void)len;
  if (s->listener) s->listener(s, event, number, s->context);
}

static const zke_recipe_class singleton_class = {
    .name = "singleton",
    .event = zke_line_on_event,
    .step = zke_line_on_step,
    .ended = zke_line_on_ended,
    .deliver = singleton_deliver,
    .quit = zke_line_on_quit,
    .destroy = zke_line_on_destroy};

/* What makes the line a singleton's. */
int zke_singleton_new(zke *z, const char *path,
                      const zke_singleton_options *options,
                      zke_singleton **s_out) {
  zke_singleton_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(s_out, options, &o, zke_singleton_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &singleton_class, sizeof(zke_singleton), &r);
  if (rc != ZKE_OK) return rc;
  zke_singleton *s = (zke_singleton *)r;
  s->l.place = SINGLETON_PLACE;
  s->l.kind = ZKE_LINE_LOCK;
  s->l.no_check = true; /* it runs for good, not for a while */
  s->l.watch_own = true;
  s->l.data = o.data;
  s->l.len = o.len;
  s->listener = o.listener;
  s->context = o.context;
  rc = zke_line_init(&s->l);
  if (rc == ZKE_OK)
    *s_out = s;
  else
    zke_recipe_free(r);
  return rc;
}

/* Leaves the line, so the next in line runs at once. */
void zke_singleton_free(zke_singleton *s) { zke_recipe_free((zke_recipe *)s); }

/* ---- in and out ---- */

/* The line does it: zke_line_acquire() is where to read on. */
int zke_singleton_acquire(zke_singleton *s, int64_t deadline_ms) {
  int rc = zke_line_enter_by((zke_line *)s, deadline_ms);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&s->l.r, zke_line_acquire(&s->l, deadline_ms));
}

/* Out of the line again at once where another runs. */
int zke_singleton_try(zke_singleton *s) {
  int rc = zke_line_enter((zke_line *)s);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&s->l.r, zke_line_try(&s->l));
}

/* Joins, and leaves the rest to dispatching: the listener hears HELD. */
int zke_singleton_start(zke_singleton *s) {
  int rc = zke_line_enter((zke_line *)s);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&s->l.r, zke_line_join(&s->l, false, ZKE_FOREVER));
}

/* Gives up a place that waits as well. */
int zke_singleton_release(zke_singleton *s) {
  int rc = zke_recipe_enter((zke_recipe *)s);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&s->l.r, zke_line_release(&s->l));
}

/* For pthread_cleanup_push(): the hold of zke_singleton_serve() ends with its
 * thread, too. */
static void singleton_drop(void *s) { zke_recipe_drop(s); }

/* Call the worker, then give up.  The worker's result counts; if the object was
 * replaced or freed meanwhile, so that there is nothing to give up, the worker
 * has not failed.  The token is read once more, since a listener may have
 * released the object before the acquire returned. */
static int singleton_work(zke_singleton *s, zke_singleton_work_fn fn,
                          void *arg) {
  zke_sentence kept;
  int64_t token = zke_singleton_token(s);
  if (!token) return zke_singleton_check(s); /* says why it does not run */
  int rc = fn(s, token, arg);
  zke_recipe_keep(&kept);
  int stopped = zke_singleton_release(s);
  if (rc != ZKE_OK) return zke_recipe_restore(&kept, rc);
  bool gone = stopped == ZKE_LOST || stopped == ZKE_INVALIDSTATE ||
              stopped == ZKE_CLOSING;
  return gone ? ZKE_OK : stopped;
}

/* Acquires, works, and gives up, however the work ends.  The object is held for
 * that long: a listener may free it, and the thread may be cancelled. */
int zke_singleton_serve(zke_singleton *s, int64_t deadline_ms,
                        zke_singleton_work_fn fn, void *arg) {
  if (!fn) return zke_recipe_fail(ZKE_BADARGUMENTS, "fn is NULL");
  if (!s) return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
  volatile int rc = ZKE_OK;
  zke_recipe_hold(&s->l.r); /* a listener may free it */
  pthread_cleanup_push(singleton_drop, &s->l.r);
  rc = zke_singleton_acquire(s, deadline_ms);
  if (rc == ZKE_OK) rc = singleton_work(s, fn, arg);
  pthread_cleanup_pop(1);
  return rc;
}

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
int zke_singleton_cancel(zke_singleton *s) {
  return zke_recipe_cancel((zke_recipe *)s);
}

/* ---- looking ---- */

/* For a program that has no dispatch: looks as an event would make it look. */
int zke_singleton_step(zke_singleton *s) {
  int rc = zke_recipe_enter((zke_recipe *)s);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&s->l.r, zke_line_step(&s->l));
}

/* State and token are those of the last event that was dispatched. */
int zke_singleton_state(zke_singleton *s) {
  return zke_line_api_state((zke_line *)s);
}

int64_t zke_singleton_token(zke_singleton *s) {
  return zke_line_api_token((zke_line *)s);
}

/* Asks the file, for a process that was stopped for a while. */
int zke_singleton_check(zke_singleton *s) {
  return zke_line_api_check((zke_line *)s);
}

/* Checks the own znode, so a change fails once another runs. */
int zke_singleton_op(zke_singleton *s, zke_op *op) {
  return zke_line_api_op((zke_line *)s, op);
}

/* Reads the line without an object; nothing is made. */
int zke_singleton_parties(zke *z, const char *path, zke_party_list **list_out) {
  return zke_line_parties(z, path, 1, list_out);
}

/* Deletes the znode of the process that runs.  That one hears LOST, and the
 * next in line goes on.  Names are unique, so if the process that was read is
 * gone by now, its successor is not hit. */
int zke_singleton_replace(zke *z, const char *path, int64_t token) {
  char *znode = NULL;
  int rc = zke_entry_holder(z, path, token, &znode);
  if (rc == ZKE_NONODE)
    return zke_recipe_fail(rc, "the singleton %s does not run", path);
  if (rc == ZKE_OK) rc = zke_recipe_delete(z, znode);
  zke_free(znode);
  return rc;
}
