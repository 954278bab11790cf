/* rendezvous.c - parties meet and exchange what they brought
 *
 * A meeting is a double barrier (double_barrier.c) of another kind that is left
 * as soon as it has been entered.  What is here of it passes calls on; only the
 * listener does something, as it has to leave the round.
 *
 * A point is one znode of the user's path.
 *
 *   prepare  Create it, empty.  ZKE_NODEEXISTS: an empty one of the same owner
 *            is as good, and is what a lost reply has left.  If nothing is
 *            there after a lost reply, it is made again only where its
 *            directory has not changed since before.  Else it may have been
 *            made and removed (`gone`): then the call fails.
 *   fill     Read it; if it is empty, write at the version that was read.  If
 *            it is filled with this very text after a lost reply, it was this
 *            call.  If it has gone by then, or is another znode, nobody can say
 *            whether the point that was meant was filled (`gone`): then the
 *            call fails, and fills no second one.
 *   wait     Read and watch it, or its coming; sleep; read again.
 *
 * If a process dies before its step nothing has changed.  An ephemeral point
 * goes with the session that has prepared it.  When it goes, those that wait
 * know that the initiator has gone.
 *
 * Invariants of a point's object:
 *  1. While `listening` or `waiting`, the znode or its coming is watched, or
 *     `changed` is set.
 *  2. data and token are set exactly while state is FILLED.
 *
 * Begin with point_look(). */
#include "rendezvous.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "object.h"
#include "text.h"
#include "znode.h"

/* ---- a meeting ----
 *
 * The barrier's states are the meeting's.  A blocking call leaves the round by
 * itself; without one the barrier's listener leaves it (meeting_told()).
 */

/* No member changes after zke_rendezvous_new(): all state is the barrier's, and
 * so is the mutex. */
struct zke_rendezvous {
  zke_double_barrier *barrier;
  zke_rendezvous_fn listener;
  void *context;
};

/* Get out of a round, without waiting for anybody.  How that ends does not
 * matter, as everybody's data is there: ZKE_OK if the party is out. */
static int meeting_leave(zke_double_barrier *b) {
  int state = zke_double_barrier_state(b);
  if (state != ZKE_DOUBLE_BARRIER_INSIDE && state != ZKE_DOUBLE_BARRIER_LEAVING)
    return ZKE_OK;
  int rc = zke_double_barrier_leave(b, 0);
  return zke_double_barrier_state(b) == ZKE_DOUBLE_BARRIER_OUT ? ZKE_OK : rc;
}

/* The barrier's listener.  If a blocking call runs, that call leaves the round,
 * and the leaving here is refused.  The user's listener may free the meeting,
 * so it is called last. */
static void meeting_told(zke_double_barrier *b, int event, int64_t round,
                         void *context) {
  const zke_rendezvous *m = context;
  if (event == ZKE_DOUBLE_BARRIER_ENTERED) {
    meeting_leave(b);
    if (m->listener)
      m->listener(context, ZKE_RENDEZVOUS_MET, round, m->context);
  } else if (event == ZKE_DOUBLE_BARRIER_LOST) {
    if (m->listener) m->listener(context, ZKE_RENDEZVOUS_LOST, 0, m->context);
  }
}

/* The kind keeps meetings and double barriers on one path apart. */
int zke_rendezvous_new(zke *z, const char *path, int parties,
                       const zke_rendezvous_options *options,
                       zke_rendezvous **meeting_out) {
  zke_rendezvous_options given;
  int rc =
      zke_recipe_options(meeting_out, options, &given, zke_rendezvous_options);
  if (rc == ZKE_OK) rc = zke_recipe_state(z);
  if (rc != ZKE_OK) return rc;
  zke_rendezvous *m = zke_alloc(z, sizeof *m);
  if (!m) return ZKE_NOMEM;
  m->listener = given.listener;
  m->context = given.context;
  zke_double_barrier_options o = {.size = sizeof o,
                                  .kind = "rendezvous",
                                  .listener = meeting_told,
                                  .context = m};
  rc = zke_double_barrier_new(z, path, parties, &o, &m->barrier);
  if (rc == ZKE_OK)
    *meeting_out = m;
  else
    zke_free(m);
  return rc;
}

/* The barrier first: it calls meeting_told() with m. */
void zke_rendezvous_free(zke_rendezvous *meeting) {
  if (!meeting || zke_recipe_stays((zke_recipe *)meeting->barrier)) return;
  zke_double_barrier_free(meeting->barrier);
  zke_free(meeting);
}

/* ZKE_BADARGUMENTS: the object is NULL. */
static int meeting_check(const zke_rendezvous *meeting) {
  if (meeting) return ZKE_OK;
  return zke_recipe_fail(ZKE_BADARGUMENTS, "the object is NULL");
}

/* Blocks until all have come, and gives what all have brought. */
int zke_rendezvous_meet(zke_rendezvous *meeting, const void *data, int len,
                        int64_t deadline_ms, zke_party_list **list_out,
                        int64_t *token_out) {
  int rc = meeting_check(meeting);
  if (rc != ZKE_OK) return rc;
  return zke_double_barrier_meet(meeting->barrier, data, len, deadline_ms,
                                 list_out, token_out);
}

/* For a cleanup handler. */
static void meeting_drop(void *barrier) { zke_recipe_drop(barrier); }

/* Leaves the meeting before, if there was one, and joins the next.  The
 * barrier's listener may free it between the two, and the thread may be
 * cancelled where leaving sleeps. */
int zke_rendezvous_start(zke_rendezvous *meeting, const void *data, int len) {
  volatile int rc = meeting_check(meeting);
  if (rc != ZKE_OK) return rc;
  zke_double_barrier *b = meeting->barrier;
  zke_recipe_hold((zke_recipe *)b);
  pthread_cleanup_push(meeting_drop, b);
  rc = meeting_leave(b);
  if (rc == ZKE_OK) rc = zke_double_barrier_start(b, data, len);
  pthread_cleanup_pop(1);
  return rc;
}

/* For a program that has no dispatch. */
int zke_rendezvous_step(zke_rendezvous *meeting) {
  int rc = meeting_check(meeting);
  return rc == ZKE_OK ? zke_double_barrier_step(meeting->barrier) : rc;
}

/* ZKE_HELD: it is too late, all have met. */
int zke_rendezvous_stop(zke_rendezvous *meeting) {
  int rc = meeting_check(meeting);
  return rc == ZKE_OK ? zke_double_barrier_stop(meeting->barrier) : rc;
}

/* Who met last, and what they brought; from memory. */
int zke_rendezvous_list(zke_rendezvous *meeting, zke_party_list **list_out,
                        int64_t *token_out) {
  zke_party_list *list = NULL;
  int rc = meeting_check(meeting);
  if (rc == ZKE_OK) rc = zke_double_barrier_list(meeting->barrier, &list);
  if (rc != ZKE_OK) return rc;
  if (list->count == 0) {
    zke_free(list);
    return zke_recipe_fail(ZKE_NONODE, "there was no meeting yet");
  }
  if (token_out) *token_out = list->data[0].mzxid;
  if (list_out)
    *list_out = list;
  else
    zke_free(list);
  return ZKE_OK;
}

/* The call that waits is the barrier's. */
int zke_rendezvous_cancel(zke_rendezvous *meeting) {
  int rc = meeting_check(meeting);
  return rc == ZKE_OK ? zke_double_barrier_cancel(meeting->barrier) : rc;
}

/* How many have not come, or not gone; who they are is not wanted. */
int zke_rendezvous_missing(zke_rendezvous *meeting, int *count_out) {
  int rc = meeting_check(meeting);
  if (rc != ZKE_OK) return rc;
  return zke_double_barrier_missing(meeting->barrier, NULL, count_out);
}

/* Needs no object. */
int zke_rendezvous_parties(zke *z, const char *path,
                           zke_party_list **list_out) {
  return zke_double_barrier_parties(z, path, list_out);
}

/* ---- a point's data ----
 *
 * "zkembed rendezvous-point\n", then "empty\n", or "filled <session> <pid>
 * <identity>\n" and what was filled in. */

static const char point_mark[] = "zkembed rendezvous-point\n";
static const char point_empty[] = "zkembed rendezvous-point\nempty\n";

enum { MARK = sizeof point_mark - 1 };

/* A point as it was read.  What follows `filled` is set only if it is. */
typedef struct point_data {
  char *text;   /* the znode's data, one block */
  int text_len; /* bytes of it */
  zke_stat stat;
  bool filled;
  int64_t pid;          /* of the process that has filled it */
  const char *identity; /* in text; ends at a newline */
  const char *data;     /* in text: what was filled in */
  int len;              /* bytes of data */
} point_data;

/* Read a point, and watch it if fn is not NULL.  ZKE_NONODE: it is not there;
 * ZKE_OTHERKIND: it is none.  p->text is for zke_free(), whatever is returned.
 */
static int point_read(zke *z, const char *path, zke_watch_fn fn, void *context,
                      point_data *p) {
  int64_t session;
  memset(p, 0, sizeof *p);
  int rc = zke_get(z, path, fn, context, &p->text, &p->text_len, &p->stat);
  if (rc != ZKE_OK) return rc;
  if (p->text_len < MARK || memcmp(p->text, point_mark, MARK) != 0)
    return zke_recipe_fail(ZKE_OTHERKIND, "%s is not a rendezvous point", path);
  char *line = p->text + MARK;
  char *end = memchr(line, '\n', (size_t)(p->text_len - MARK));
  if (!end || !zke_recipe_read(&line, "filled ", 16, &session) ||
      !zke_recipe_read(&line, " ", 10, &p->pid))
    return ZKE_OK;
  p->filled = true;
  p->identity = *line == ' ' ? line + 1 : end;
  p->data = end + 1;
  p->len = p->text_len - (int)(p->data - p->text);
  return ZKE_OK;
}

/* Fail with ZKE_HELD: "the rendezvous point /meetings/7 is filled by master
 * (pid 12) since 2026-11-20T12:00:00Z". */
static int point_say_filled(const point_data *p, const char *path) {
  char when[ZKE_RECIPE_WHEN];
  zke_recipe_when(p->stat.mtime, when);
  return zke_recipe_fail(
      ZKE_HELD,
      "the rendezvous point %s is filled by %.*s (pid %" PRId64 ") since %s",
      path, (int)(p->data - 1 - p->identity), p->identity, p->pid, when);
}

/* ---- preparing and filling ---- */

/* A preparation or a filling under way, for zke_retry(). */
typedef struct point_change {
  const char *path;
  int mode;      /* a preparation: of the znode */
  char *parent;  /* a preparation: the path above */
  int64_t pzxid; /* a preparation: the last change of the parent's children,
                    before the first try that may have been made */
  char *text;    /* a filling: the znode's new data */
  int len;       /* bytes of text */
  bool unsure;   /* a try has lost its reply: it may have been made */
  int64_t czxid; /* a filling: of the point that was read last; once a try is
                    unsure, of the one that it may have filled */
  bool gone;     /* it cannot be told whether it was made */
  int64_t token; /* a filling: out, its zxid */
} point_change;

/* It is there already: is it as good as the one that was to be made?  If a try
 * is unsure it may have been filled since.  ZKE_LOOK_AGAIN: it has just gone.
 */
static int point_compare(zke *z, const point_change *c) {
  point_data p;
  int64_t owner = c->mode == ZKE_EPHEMERAL ? zke_session_id(z) : 0;
  int rc = point_read(z, c->path, NULL, NULL, &p);
  if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
  if (rc == ZKE_OK && p.stat.ephemeralOwner != owner) {
    rc = zke_recipe_bury(z, c->path, p.stat.ephemeralOwner);
    rc = rc == ZKE_NONODE
             ? ZKE_LOOK_AGAIN
             : zke_recipe_fail(ZKE_HELD, "%s is another's rendezvous point",
                               c->path);
  } else if (rc == ZKE_OK && p.filled && !c->unsure)
    rc = point_say_filled(&p, c->path);
  zke_free(p.text);
  return rc;
}

/* Fail because it is unknown whether the lost try happened.  `done` names what
 * the try does. */
static int point_say_gone(const char *path, const char *done) {
  return zke_recipe_fail(ZKE_CONNECTIONLOSS,
                         "the reply was lost: the rendezvous point %s may have "
                         "been %s and removed",
                         path, done);
}

/* Create it, unless that may have been done before.  ZKE_LOOK_AGAIN: one that
 * was there has gone. */
static int point_make(zke *z, point_change *c, bool may_be_made) {
  int rc = may_be_made
               ? ZKE_NODEEXISTS
               : zke_create(z, c->path, point_empty, sizeof point_empty - 1,
                            ZKE_OPEN_ACL, c->mode, NULL, NULL);
  c->unsure = c->unsure || rc == ZKE_CONNECTIONLOSS;
  return rc == ZKE_NODEEXISTS ? point_compare(z, c) : rc;
}

/* One try.  An empty point that is there already will do; a lost reply is
 * recognised by that.  Where a try was lost, and something has come or gone in
 * the parent since before it, that may have been the point: it is not made a
 * second time.  ZKE_NONODE: the parent has gone.  ZKE_LOOK_AGAIN: c->gone. */
static int point_try_prepare(zke *z, void *arg) {
  point_change *c = arg;
  zke_stat stat;
  int rc = zke_exists(z, c->parent, NULL, NULL, &stat);
  if (rc != ZKE_OK) return rc;
  if (!c->unsure) c->pzxid = stat.pzxid;
  bool may_be_made = stat.pzxid != c->pzxid;
  do {
    rc = point_make(z, c, may_be_made);
    c->gone = may_be_made && rc == ZKE_LOOK_AGAIN;
  } while (!c->gone && zke_recipe_again(z, &rc));
  return rc;
}

/* The path above a point; NULL without memory. */
static char *point_parent(zke *z, const char *path) {
  const char *last = strrchr(path, '/');
  return zke_recipe_copy(z, path, last == path ? 1 : (size_t)(last - path));
}

/* Make the empty point.  If the process dies after that, an ephemeral one goes,
 * and those that wait hear that as BROKEN. */
int zke_rendezvous_prepare(zke *z, const char *path, int ephemeral,
                           int64_t deadline_ms) {
  point_change c = {.path = path,
                    .mode = ephemeral ? ZKE_EPHEMERAL : ZKE_PERSISTENT};
  int rc = zke_exists(z, path, NULL, NULL, NULL); /* checks the path */
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  c.parent = point_parent(z, path);
  if (!c.parent) return ZKE_NOMEM;
  /* A container may go before it has a child.  It is the user's own path, so
   * there is no recipe's directory above it. */
  rc = ZKE_NONODE;
  for (int i = 0; i < ZKE_RETRIES && rc == ZKE_NONODE; i++) {
    rc = zke_recipe_ensure_above(z, path, ZKE_CONTAINER, deadline_ms);
    if (rc == ZKE_OK) rc = zke_retry(z, point_try_prepare, &c, deadline_ms);
  }
  if (c.gone) rc = point_say_gone(path, "prepared");
  zke_free(c.parent);
  return rc;
}

/* Make the data of a filled point.  A line end in the identity would end the
 * line early: it becomes a space. */
static int point_text(zke *z, point_change *c, const void *data, int len) {
  zke_session_list *who = NULL;
  int rc = zke_session(z, zke_session_id(z), &who);
  if (rc != ZKE_OK) return rc;
  size_t room = MARK + strlen(who->data[0].identity) + 64;
  c->text = zke_alloc(z, room + (size_t)len);
  if (c->text) {
    memcpy(c->text, point_mark, MARK);
    c->len = MARK + snprintf(c->text + MARK, room - MARK,
                             "filled %" PRIx64 " %" PRId64 " %s",
                             (uint64_t)who->data[0].id, who->data[0].pid,
                             who->data[0].identity);
    for (int i = MARK; i < c->len; i++) {
      if (c->text[i] == '\n') c->text[i] = ' ';
    }
    c->text[c->len++] = '\n';
    if (len) memcpy(c->text + c->len, data, (size_t)len);
    c->len += len;
  }
  zke_free(who);
  return c->text ? ZKE_OK : ZKE_NOMEM;
}

/* Has the point gone that a lost try may have filled?  rc, p: of the read. */
static bool point_has_gone(const point_change *c, int rc, const point_data *p) {
  if (!c->unsure) return false;
  if (rc == ZKE_NONODE) return true;
  return (rc == ZKE_OK || rc == ZKE_OTHERKIND) && p->stat.czxid != c->czxid;
}

/* One look and one write, which succeeds only on the empty point that was seen,
 * or on one that has come into its place between the two: both have version 0.
 * If it is filled with the same text after a lost reply, this call has done it.
 * ZKE_LOOK_AGAIN: somebody has written to it meanwhile, or it has gone. */
static int point_fill_once(zke *z, point_change *c) {
  point_data p;
  int rc = point_read(z, c->path, NULL, NULL, &p);
  c->gone = point_has_gone(c, rc, &p);
  if (!c->unsure) c->czxid = p.stat.czxid;
  if (c->gone) {
    rc = ZKE_LOOK_AGAIN;
  } else if (rc == ZKE_OK && !p.filled) {
    rc = zke_set(z, c->path, c->text, c->len, p.stat.version, &p.stat);
    c->unsure = c->unsure || rc == ZKE_CONNECTIONLOSS;
    if (rc == ZKE_BADVERSION) rc = ZKE_LOOK_AGAIN;
  } else if (rc == ZKE_OK) {
    bool mine = c->unsure && p.text_len == c->len &&
                memcmp(p.text, c->text, (size_t)c->len) == 0;
    if (!mine) rc = point_say_filled(&p, c->path);
  }
  if (rc == ZKE_OK) c->token = p.stat.mzxid;
  zke_free(p.text);
  return rc;
}

/* One try, repeated while others write to it.  ZKE_LOOK_AGAIN: it has gone. */
static int point_try_fill(zke *z, void *arg) {
  point_change *c = arg;
  int rc;
  do {
    rc = point_fill_once(z, c);
  } while (!c->gone && zke_recipe_again(z, &rc));
  return rc;
}

/* A point is filled once; ZKE_HELD says by which process. */
int zke_rendezvous_fill(zke *z, const char *path, const void *data, int len,
                        int64_t deadline_ms, int64_t *token_out) {
  point_change c = {.path = path};
  if (len < 0 || (!data && len))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", len);
  int rc = point_text(z, &c, data, len);
  if (rc == ZKE_OK) rc = zke_retry(z, point_try_fill, &c, deadline_ms);
  if (c.gone) rc = point_say_gone(path, "filled");
  zke_free(c.text);
  if (rc == ZKE_OK && token_out) *token_out = c.token;
  return rc;
}

/* ---- waiting at a point ----
 *
 *     0 --it is there--> EMPTY --filled--> FILLED
 *     EMPTY, FILLED --it has gone, or is another znode--> REMOVED
 *     REMOVED --it is there again--> EMPTY
 *     any --session's end--> LOST
 */

/* The mutex of r guards what changes: from listening on. */
struct zke_rendezvous_point {
  zke_recipe r;
  zke_rendezvous_point_fn listener;
  void *context;
  bool listening; /* zke_rendezvous_point_start() was called */
  bool waiting;   /* a blocking call runs */
  int state;      /* ZKE_RENDEZVOUS_POINT_…, 0: it was never there */
  int64_t czxid;  /* of the znode that was seen */
  int64_t token;  /* of the filling */
  char *data;     /* what was filled in, or NULL */
  int len;        /* bytes of data */
};

/* Tell the listener a state, with what was filled in.  False without memory for
 * that. */
static bool point_tell(zke_rendezvous_point *p, int state) {
  return zke_recipe_tell(&p->r, state, p->token, p->data, p->len);
}

/* Note a new state, and tell it if somebody listens; the same one is not told
 * again. */
static void point_change_to(zke_rendezvous_point *p, int state) {
  if (p->state == state) return;
  p->state = state;
  if (p->listening) point_tell(p, state);
}

/* Forget what was filled in: the point has gone, or another one is there. */
static void point_forget(zke_rendezvous_point *p) {
  zke_free(p->data);
  p->data = NULL;
  p->len = 0;
  p->token = 0;
}

/* Note what was filled in.  Without memory to have it, or to tell it, it was
 * not seen, and the next look sees it. */
static int point_fill(zke_rendezvous_point *p, const point_data *d) {
  p->data = zke_alloc(p->r.z, (size_t)d->len + 1);
  if (!p->data) return ZKE_NOMEM;
  memcpy(p->data, d->data, (size_t)d->len);
  p->len = d->len;
  p->token = d->stat.mzxid;
  if (p->listening && !point_tell(p, ZKE_RENDEZVOUS_POINT_FILLED)) {
    point_forget(p);
    return zke_recipe_fail(ZKE_NOMEM, "no memory to tell what %s has",
                           p->r.path);
  }
  p->state = ZKE_RENDEZVOUS_POINT_FILLED;
  return ZKE_OK;
}

/* Note what was read.  Another czxid means that the point was removed and
 * prepared again between two looks: both are told. */
static int point_take(zke_rendezvous_point *p, const point_data *d) {
  if (p->czxid != d->stat.czxid) {
    point_forget(p);
    if (p->state) point_change_to(p, ZKE_RENDEZVOUS_POINT_REMOVED);
    p->czxid = d->stat.czxid;
  }
  if (!d->filled) {
    point_change_to(p, ZKE_RENDEZVOUS_POINT_EMPTY);
  } else if (!p->data) {
    return point_fill(p, d);
  }
  return ZKE_OK;
}

/* Look, and watch for what comes next: its coming, its filling, its end.  It
 * may come between the two reads; then it is read again. */
static int point_look(zke_rendezvous_point *p) {
  point_data d;
  int rc;
  do {
    rc = point_read(p->r.z, p->r.path, zke_recipe_watcher, &p->r, &d);
    if (rc == ZKE_NONODE) {
      rc = zke_exists(p->r.z, p->r.path, zke_recipe_watcher, &p->r, NULL);
      if (rc == ZKE_OK) rc = ZKE_LOOK_AGAIN; /* it has come meanwhile */
    } else if (rc == ZKE_OK) {
      rc = point_take(p, &d);
    }
    zke_free(d.text);
  } while (zke_recipe_again(p->r.z, &rc));
  if (rc != ZKE_NONODE) return rc;
  point_forget(p);
  p->czxid = 0;
  if (p->state) point_change_to(p, ZKE_RENDEZVOUS_POINT_REMOVED);
  return ZKE_OK;
}

/* Without a listener or a thread that waits there is nothing to look for. */
static int point_step(zke_recipe *r) {
  zke_rendezvous_point *p = (zke_rendezvous_point *)r;
  return p->listening || p->waiting ? point_look(p) : ZKE_OK;
}

/* Without a session it is not known any more whether the point is there. */
static void point_ended(zke_recipe *r) {
  zke_rendezvous_point *p = (zke_rendezvous_point *)r;
  point_forget(p);
  point_change_to(p, ZKE_RENDEZVOUS_POINT_LOST);
}

/* The number is the token, the text what was filled in. */
static void point_deliver(zke_recipe *r, int event, int64_t number,
                          const char *text, int len) {
  zke_rendezvous_point *p = (zke_rendezvous_point *)r;
  if (p->listener) p->listener(p, event, number, text, len, p->context);
}

/* Release the object's memory. */
static void point_destroy(zke_recipe *r) {
  zke_free(((zke_rendezvous_point *)r)->data);
}

static const zke_recipe_class point_class = {.name = "rendezvous point",
                                             .step = point_step,
                                             .ended = point_ended,
                                             .deliver = point_deliver,
                                             .destroy = point_destroy};

/* An object waits or listens; preparing and filling need none. */
int zke_rendezvous_point_new(zke *z, const char *path,
                             const zke_rendezvous_point_options *options,
                             zke_rendezvous_point **point_out) {
  zke_rendezvous_point_options o;
  zke_recipe *r = NULL;
  int rc =
      zke_recipe_options(point_out, options, &o, zke_rendezvous_point_options);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &point_class, sizeof(zke_rendezvous_point), &r);
  if (rc != ZKE_OK) return rc;
  zke_rendezvous_point *p = (zke_rendezvous_point *)r;
  p->listener = o.listener;
  p->context = o.context;
  *point_out = p;
  return ZKE_OK;
}

/* The point stays; a call that waits ends. */
void zke_rendezvous_point_free(zke_rendezvous_point *point) {
  zke_recipe_free((zke_recipe *)point);
}

/* For zke_recipe_await().  A point that was never prepared is waited for; one
 * that has gone is not. */
static int point_done(zke_recipe *r) {
  const zke_rendezvous_point *p = (const zke_rendezvous_point *)r;
  if (p->state == ZKE_RENDEZVOUS_POINT_FILLED) return ZKE_OK;
  if (r->ended || p->state != ZKE_RENDEZVOUS_POINT_REMOVED) return ZKE_NOT_YET;
  return zke_recipe_fail(ZKE_BROKEN, "the rendezvous point %s has gone",
                         r->path);
}

/* A removal that was seen before the call is not this call's. */
static int point_wait(zke_rendezvous_point *p, int64_t deadline_ms) {
  if (p->state == ZKE_RENDEZVOUS_POINT_REMOVED) p->state = 0;
  p->r.changed = true; /* begin with a look */
  int rc = zke_recipe_await(&p->r, point_done, deadline_ms);
  if (rc != ZKE_OPERATIONTIMEOUT) return rc;
  if (p->state == ZKE_RENDEZVOUS_POINT_EMPTY)
    return zke_recipe_fail(rc, "nobody has filled the rendezvous point %s",
                           p->r.path);
  return zke_recipe_fail(rc, "the rendezvous point %s was not prepared",
                         p->r.path);
}

/* What was filled in, in a block of the caller's. */
static int point_give(const zke_rendezvous_point *p, char **data_out,
                      int *len_out, int64_t *token_out) {
  if (data_out) {
    char *data = zke_alloc(p->r.z, (size_t)p->len + 1);
    if (!data) return ZKE_NOMEM;
    memcpy(data, p->data, (size_t)p->len);
    *data_out = data;
  }
  if (len_out) *len_out = p->len;
  if (token_out) *token_out = p->token;
  return ZKE_OK;
}

/* One blocking call an object.  The watch goes with the call, unless a listener
 * needs it. */
int zke_rendezvous_point_wait(zke_rendezvous_point *point, int64_t deadline_ms,
                              char **data_out, int *len_out,
                              int64_t *token_out) {
  int rc = zke_recipe_enter_by((zke_recipe *)point, deadline_ms);
  if (rc != ZKE_OK) return rc;
  if (point->waiting) {
    rc = zke_recipe_fail(ZKE_MISUSE, "another thread waits at %s",
                         point->r.path);
    return zke_recipe_leave(&point->r, rc);
  }
  point->waiting = true;
  rc = point_wait(point, deadline_ms);
  if (rc == ZKE_OK) rc = point_give(point, data_out, len_out, token_out);
  point->waiting = false;
  if (!point->listening)
    zke_remove_watch(point->r.z, point->r.path, ZKE_WATCH_DATA,
                     zke_recipe_watcher, &point->r);
  return zke_recipe_leave(&point->r, rc);
}

/* The present state is told as the first event, also where it was seen before:
 * for a call that waits on another thread, which goes on from what it has seen.
 * Where nothing is there nothing is told. */
static int point_start(zke_rendezvous_point *p) {
  if (!p->waiting) {
    p->state = 0;
    point_forget(p);
  }
  int rc = point_look(p);
  if (rc != ZKE_OK) return rc;
  bool there = p->state == ZKE_RENDEZVOUS_POINT_EMPTY ||
               p->state == ZKE_RENDEZVOUS_POINT_FILLED;
  if (there && !point_tell(p, p->state))
    return zke_recipe_fail(ZKE_NOMEM, "no memory to tell what %s has",
                           p->r.path);
  p->listening = true;
  return ZKE_OK;
}

/* A second start does nothing. */
int zke_rendezvous_point_start(zke_rendezvous_point *point) {
  int rc = zke_recipe_enter((zke_recipe *)point);
  if (rc != ZKE_OK) return rc;
  if (!point->listening) rc = point_start(point);
  return zke_recipe_leave(&point->r, rc);
}

/* For a program that has no dispatch. */
int zke_rendezvous_point_step(zke_rendezvous_point *point) {
  return zke_recipe_step((zke_recipe *)point);
}

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
int zke_rendezvous_point_cancel(zke_rendezvous_point *point) {
  return zke_recipe_cancel((zke_recipe *)point);
}
