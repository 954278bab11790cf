/* multilock.c - several locks together: all of them or none
 *
 * An entry in each of several lines (line.h): all are made in one step, marked
 * as holding in one step, and removed in one step.
 *
 *   acquire
 *     1. Make the directory of each lock (multilock_place).
 *     2. Make an entry in each, with one guid, in one step (multilock_make).
 *     3. For each line whose turn has not come: read it, and watch the nearest
 *        entry that blocks this one (zke_line_turn).
 *     4. All turns have come: write "held" into all entries, in one step; its
 *        zxid is the token (multilock_take_office).  If all turns had come when
 *        the entries were made, no write is needed: the czxid is the token.
 *     5. Else sleep until a watch fires, and go back to 3.
 *   release
 *     Delete all entries in one step.
 *
 * Why the turns may be checked one after the other: once the turn of an entry
 * has come it stays, because entries in front only go.  (A thief deletes the
 * entry; then the step of 4 fails, and all is lost.)  So when the last turn has
 * come the others still have, if their entries exist, and the write of step 4
 * checks that.  (If it needs no write, it has held all of them since they were
 * made, and if one is missing by then, it was taken away from a holder.)
 *
 * Why two multi-locks cannot wait for each other: the numbers of all entries of
 * one are given in one transaction, so the same one of the two comes first in
 * every line that they share.
 *
 * If the process dies, or loses its session, at any point, all entries go in
 * one step.  A lost reply: of 2, the guid tells; of 4, it is written again, and
 * the later zxid counts; of the release, it is fine if the entries are missing.
 *
 * The states are those of a line (line.c).  Invariants:
 *  1. state is WAITING or HELD only while `own` is not NULL; `own` is also set
 *     while a lost multi-lock keeps its other locks.
 *  2. seat.turn never becomes false while the entries are the same.
 *
 * Begin with multilock_join(), then multilock_look(). */
#include "multilock.h"

#include <stdio.h>
#include <string.h>

#include "part/deadlock.h"
#include "part/limit.h"
#include "part/line.h"
#include "part/party.h"
#include "part/text.h"
#include "part/znode.h"

_Static_assert(ZKE_MULTILOCK_LOCK == (int)ZKE_LINE_LOCK &&
                   ZKE_MULTILOCK_WRITE == (int)ZKE_LINE_WRITE &&
                   ZKE_MULTILOCK_READ == (int)ZKE_LINE_READ,
               "a mode is the kind of its entries");

/* One of the lines. */
typedef struct multilock_seat {
  char *path;    /* the lock's directory; a copy */
  int kind;      /* ZKE_LINE_LOCK, _WRITE or _READ */
  bool turn;     /* its turn has come */
  char *watched; /* path of the entry that it waits behind, or NULL */
} multilock_seat;

/* The mutex of r guards what changes: from state on. */
struct zke_multilock {
  zke_recipe r; /* its path is the first lock's */
  int count;    /* of seats */
  multilock_seat *seats;
  char *data; /* the user's, or NULL; a copy */
  int len;    /* bytes of it */
  bool no_check;
  zke_multilock_fn listener;
  void *context;
  int state;        /* ZKE_LINE_… */
  bool blocking;    /* a thread is inside a blocking call */
  bool at_once;     /* no line has changed since the entries were made */
  bool own_watched; /* all entries are watched */
  zke_strings *own; /* paths of the entries, in the order of seats, or NULL */
  int64_t czxid;    /* of the entries */
  int64_t token;    /* fencing value, 0 when not held */
  uint64_t actor;   /* the thread that joined: the holder for deadlocks */
};

/* By seat.kind: the entry's kind, and that of the directory. */
static const char *const multilock_kinds[] = {"lock-", "__WRIT__", "__READ__"};
static const char *const multilock_places[] = {"lock", "rwlock", "rwlock"};

/* ---- states ---- */

/* As line_change(), for all of the locks together. */
static void multilock_change(zke_multilock *ml, int state, int64_t token) {
  bool news = ml->state != state;
  ml->state = state;
  ml->token = token;
  if (news) zke_recipe_tell(&ml->r, state, token, NULL, 0);
}

/* Remove the watches of the entries that it waited for. */
static void multilock_unwatch(zke_multilock *ml) {
  for (int i = 0; i < ml->count; i++) {
    multilock_seat *seat = &ml->seats[i];
    if (seat->watched) {
      zke_remove_watch(ml->r.z, seat->watched, ZKE_WATCH_CHILD,
                       zke_recipe_watcher, &ml->r);
    }
    zke_free(seat->watched);
    seat->watched = NULL;
  }
}

/* Delete all entries, now or later.  Their watches go first, so the object does
 * not hear of their end. */
static int multilock_take_back(zke_multilock *ml) {
  zke_sentence kept;
  for (int i = 0; ml->own_watched && i < ml->own->count; i++) {
    zke_remove_watch(ml->r.z, ml->own->data[i], ZKE_WATCH_DATA,
                     zke_recipe_watcher, &ml->r);
  }
  int rc = ml->own ? zke_recipe_discard_all(ml->r.z, ml->own) : ZKE_OK;
  if (rc != ZKE_OK) zke_recipe_keep(&kept);
  multilock_unwatch(ml);
  zke_free(ml->own);
  ml->own = NULL;
  ml->own_watched = false;
  return rc == ZKE_OK ? ZKE_OK : zke_recipe_restore(&kept, rc);
}

/* Leave all lines.  If an entry cannot be deleted now, the session deletes it
 * later. */
static int multilock_leave(zke_multilock *ml) {
  int rc = multilock_take_back(ml);
  if (zke_recipe_has_ended(&ml->r, rc)) return rc; /* it is LOST, not OUT */
  multilock_change(ml, ZKE_LINE_OUT, 0);
  if (ml->blocking) zke_wake(ml->r.z); /* another thread waits in this place */
  return rc;
}

/* An entry has gone, so all locks are lost.  If it waits, it gives up the
 * others.  A holder keeps them until it releases: it may still be at work on
 * the protected things. */
static void multilock_lose(zke_multilock *ml) {
  if (ml->state == ZKE_LINE_WAITING) multilock_take_back(ml);
  multilock_change(ml, ZKE_LINE_LOST, 0);
}

/* Report that a place was taken away; returns ZKE_LOST. */
static int multilock_is_lost(const zke_multilock *ml) {
  return zke_recipe_fail(ZKE_LOST, "a place of the multilock %s was taken away",
                         ml->r.path);
}

/* Go out after a failure.  Returns rc, and keeps its sentence.  After the
 * session's end there is nothing to do: all is LOST, and stays so. */
static int multilock_give_up(zke_multilock *ml, int rc) {
  zke_sentence kept;
  if (zke_recipe_has_ended(&ml->r, rc) || ml->r.ended) return rc;
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_grace(ml->r.z);
  multilock_leave(ml);
  zke_limit(ml->r.z, limit);
  return zke_recipe_restore(&kept, rc);
}

/* ---- the entries ----
 *
 * Every write goes into all of them in one step, so no process ever sees a part
 * of the locks held.  But when the holder of one of the lines left, it may have
 * granted that one (line.c); here that does not count. */

/* A state that is written into all entries, for zke_retry(). */
typedef struct multilock_write {
  const zke_op *ops;
  zke_op_result *results;
  int count; /* of both */
} multilock_write;

/* One try.  Twice does no harm: it writes the same, and the later zxid
 * counts. */
static int multilock_try_write(zke *z, void *arg) {
  const multilock_write *w = arg;
  zke_results_clear(w->results, w->count);
  return zke_recipe_multi(z, w->ops, w->count, w->results);
}

/* Change the state of all entries in one step: the token is one zxid for all of
 * them.  ZKE_NONODE: one has gone, and none was changed. */
static int multilock_write_all(zke_multilock *ml, const char *state,
                               int64_t *zxid) {
  zke *z = ml->r.z;
  size_t n = (size_t)ml->count;
  int len = 0, rc = ZKE_NOMEM;
  char *text = zke_line_text(z, state, ml->actor, ml->data, ml->len, &len);
  zke_op *ops = zke_alloc(z, n * sizeof *ops);
  zke_op_result *results = zke_alloc(z, n * sizeof *results);
  if (text && ops && results) {
    multilock_write w = {ops, results, ml->count};
    for (int i = 0; i < ml->count; i++)
      zke_op_set(&ops[i], ml->own->data[i], text, len, -1);
    rc = zke_retry(z, multilock_try_write, &w, ZKE_FOREVER);
    if (rc == ZKE_OK) *zxid = results[0].stat.mzxid;
    zke_results_clear(results, ml->count);
  }
  zke_free(results);
  zke_free(ops);
  zke_free(text);
  return rc;
}

/* Watch the own entries unless they are watched; ZKE_NONODE if one has gone. */
static int multilock_watch_own(zke_multilock *ml) {
  int rc = ZKE_OK;
  if (ml->own_watched) return ZKE_OK;
  for (int i = 0; i < ml->count && rc == ZKE_OK; i++) {
    rc = zke_get(ml->r.z, ml->own->data[i], zke_recipe_watcher, &ml->r, NULL,
                 NULL, NULL);
  }
  ml->own_watched = rc == ZKE_OK;
  return rc;
}

/* Look at the lines whose turn had not come.  ZKE_OK: all turns have come;
 * ZKE_NOT_YET: not all, and each missing one is watched; ZKE_NONODE: an entry
 * has gone.
 *
 * at_once stays set only if no line has changed since the step that made the
 * entries (pzxid): then no mark is needed. */
static int multilock_look(zke_multilock *ml) {
  bool all = true;
  for (int i = 0; i < ml->count; i++) {
    multilock_seat *seat = &ml->seats[i];
    int64_t pzxid = 0;
    if (seat->turn) continue;
    int rc = zke_line_turn(&ml->r, seat->path, ml->own->data[i], &seat->watched,
                           &pzxid);
    if (rc < 0) return rc;
    seat->turn = rc == ZKE_OK;
    if (!seat->turn || pzxid != ml->czxid) ml->at_once = false;
    all = all && seat->turn;
  }
  return all ? ZKE_OK : ZKE_NOT_YET;
}

/* All turns have come: mark the entries, if necessary, and hold. */
static int multilock_take_office(zke_multilock *ml) {
  int64_t token = ml->czxid;
  int rc = ml->at_once ? ZKE_OK : multilock_write_all(ml, "held", &token);
  if (rc == ZKE_OK) multilock_change(ml, ZKE_LINE_HELD, token);
  return rc;
}

/* A look in either state.  While held, it only checks that the own entries
 * exist. */
static int multilock_go_on(zke_multilock *ml) {
  int rc = 1;
  if (ml->state == ZKE_LINE_WAITING) rc = multilock_look(ml);
  if (rc == ZKE_OK) rc = multilock_take_office(ml);
  if (rc < 0) return rc;
  return ml->state == ZKE_LINE_WAITING || ml->listener ? multilock_watch_own(ml)
                                                       : ZKE_OK;
}

/* If an entry has gone, the others go with it: all or none.  As in
 * zke_line_step(), an error that no caller can get ends the wait. */
static int multilock_step(zke_recipe *r) {
  zke_multilock *ml = (zke_multilock *)r;
  if (ml->state != ZKE_LINE_WAITING && ml->state != ZKE_LINE_HELD)
    return ZKE_OK;
  int rc = multilock_go_on(ml);
  if (rc == ZKE_OTHERKIND && !ml->blocking) return multilock_give_up(ml, rc);
  if (rc != ZKE_NONODE) return rc;
  multilock_lose(ml);
  return ZKE_OK; /* the state tells it */
}

/* ---- the object ---- */

/* Any change of an entry uses up its watch, and an overflow all of them. */
static void multilock_event(zke_recipe *r, int type, const char *path) {
  zke_multilock *ml = (zke_multilock *)r;
  (void)type;
  for (int i = 0; ml->own && i < ml->own->count; i++) {
    if (!*path || strcmp(path, ml->own->data[i]) == 0) ml->own_watched = false;
  }
}

/* The session's end takes all entries; an object that was out hears nothing. */
static void multilock_ended(zke_recipe *r) {
  zke_multilock *ml = (zke_multilock *)r;
  if (ml->state == ZKE_LINE_WAITING || ml->state == ZKE_LINE_HELD)
    multilock_change(ml, ZKE_LINE_LOST, 0);
}

/* The number is the token, or 0. */
static void multilock_deliver(zke_recipe *r, int event, int64_t number,
                              const char *text, int len) {
  zke_multilock *ml = (zke_multilock *)r;
  (void)text, (void)len;
  if (ml->listener) ml->listener(ml, event, number, ml->context);
}

/* The object is freed: leave all lines. */
static void multilock_quit(zke_recipe *r) {
  multilock_leave((zke_multilock *)r);
}

/* No znode is left at this point: quit has discarded them. */
static void multilock_destroy(zke_recipe *r) {
  zke_multilock *ml = (zke_multilock *)r;
  for (int i = 0; i < ml->count; i++) {
    zke_free(ml->seats[i].path);
    zke_free(ml->seats[i].watched);
  }
  zke_free(ml->seats);
  zke_free(ml->data);
  zke_free(ml->own);
}

static const zke_recipe_class multilock_class = {.name = "multilock",
                                                 .event = multilock_event,
                                                 .step = multilock_step,
                                                 .ended = multilock_ended,
                                                 .deliver = multilock_deliver,
                                                 .quit = multilock_quit,
                                                 .destroy = multilock_destroy};

/* Is this a list of locks?  The engine checks the form of the paths. */
static int multilock_check_items(zke *z, const zke_multilock_item *items,
                                 int count) {
  if (!items || count < 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a multilock of %d locks", count);
  for (int i = 0; i < count; i++) {
    int rc = zke_exists(z, items[i].path, NULL, NULL, NULL);
    if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
    if (items[i].path[1] == '\0')
      return zke_recipe_fail(ZKE_BADARGUMENTS, "a lock cannot be at /");
    if (items[i].mode < ZKE_MULTILOCK_LOCK ||
        items[i].mode > ZKE_MULTILOCK_READ) {
      return zke_recipe_fail(ZKE_BADARGUMENTS, "unknown mode %d of %s",
                             items[i].mode, items[i].path);
    }
    for (int j = 0; j < i; j++) {
      if (strcmp(items[i].path, items[j].path) == 0)
        return zke_recipe_fail(ZKE_BADARGUMENTS, "%s is named twice",
                               items[i].path);
    }
  }
  return ZKE_OK;
}

/* Copy the arguments.  If memory is short the rest stays NULL, which destroy
 * accepts. */
static int multilock_fill(zke_multilock *ml, const zke_multilock_item *items,
                          int count, const zke_multilock_options *o) {
  zke *z = ml->r.z;
  ml->no_check = o->no_deadlock_check != 0;
  ml->listener = o->listener;
  ml->context = o->context;
  ml->seats = zke_alloc(z, (size_t)count * sizeof *ml->seats);
  if (!ml->seats) return ZKE_NOMEM;
  for (; ml->count < count; ml->count++) {
    multilock_seat *seat = &ml->seats[ml->count];
    const char *path = items[ml->count].path;
    seat->kind = items[ml->count].mode;
    seat->path = zke_recipe_copy(z, path, strlen(path));
    if (!seat->path) return ZKE_NOMEM;
  }
  if (!o->data || o->len == 0) return ZKE_OK;
  ml->len = o->len;
  ml->data = zke_recipe_copy(z, o->data, (size_t)o->len);
  return ml->data ? ZKE_OK : ZKE_NOMEM;
}

/* The options given, or the defaults. */
static int multilock_options(const zke_multilock_options *given,
                             zke_multilock_options *o) {
  int rc = zke_take_options(given, o, sizeof *o, "zke_multilock_options");
  if (rc != ZKE_OK) return rc;
  if (o->len < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "data of length %d", o->len);
  return ZKE_OK;
}

/* The object's own path is the first item's, for sentences; each item has a
 * separate line. */
int zke_multilock_new(zke *z, const zke_multilock_item *items, int count,
                      const zke_multilock_options *options,
                      zke_multilock **ml_out) {
  zke_multilock_options o;
  zke_recipe *r = NULL;
  if (!ml_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "ml_out is NULL");
  *ml_out = NULL;
  int rc = multilock_options(options, &o);
  if (rc == ZKE_OK) rc = multilock_check_items(z, items, count);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, items[0].path, &multilock_class, sizeof(zke_multilock),
                      &r);
  if (rc != ZKE_OK) return rc;
  rc = multilock_fill((zke_multilock *)r, items, count, &o);
  if (rc == ZKE_OK)
    *ml_out = (zke_multilock *)r;
  else
    zke_recipe_free(r);
  return rc;
}

/* Leaves all lines, so objects that wait behind any entry continue
 * immediately. */
void zke_multilock_free(zke_multilock *ml) {
  zke_recipe_free((zke_recipe *)ml);
}

/* ---- in ---- */

/* Make the directories: each belongs to the recipe of its item's mode, and its
 * data says so. */
static int multilock_place(zke_multilock *ml, int64_t deadline_ms) {
  int rc = ZKE_OK;
  for (int i = 0; i < ml->count && rc == ZKE_OK; i++) {
    const multilock_seat *seat = &ml->seats[i];
    rc = zke_recipe_place(ml->r.z, seat->path, multilock_places[seat->kind],
                          ZKE_CONTAINER, NULL, deadline_ms);
  }
  return rc;
}

/* Make the entries; a container may be removed before it is entered. */
static int multilock_make(zke_multilock *ml, const char *state,
                          int64_t deadline_ms) {
  zke *z = ml->r.z;
  int len = 0, rc = ZKE_OK;
  char *text = zke_line_text(z, state, ml->actor, ml->data, ml->len, &len);
  zke_seat *seats = zke_alloc(z, (size_t)ml->count * sizeof *seats);
  if (!text || !seats) rc = ZKE_NOMEM;
  for (int i = 0; i < ml->count && rc == ZKE_OK; i++) {
    seats[i] = (zke_seat){ml->seats[i].path, multilock_kinds[ml->seats[i].kind],
                          text, len};
  }
  do {
    if (rc != ZKE_NOMEM) rc = multilock_place(ml, deadline_ms);
    if (rc == ZKE_OK)
      rc = zke_recipe_create_all(z, seats, ml->count, deadline_ms, &ml->own,
                                 &ml->czxid);
    if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
  } while (zke_recipe_again(z, &rc));
  zke_free(seats);
  zke_free(text);
  return rc;
}

/* Make the entries, and look.  If the object's locks were lost, it gives up the
 * rest of them first; if the object is in the lines, or another thread's call
 * uses it, it is refused.  If the process dies after the entries were made, its
 * session's end removes all of them. */
static int multilock_join(zke_multilock *ml, bool blocking,
                          int64_t deadline_ms) {
  if (ml->state == ZKE_LINE_LOST && !ml->blocking) {
    int rc = multilock_leave(ml);
    if (rc != ZKE_OK) return rc;
  }
  if (ml->state != ZKE_LINE_OUT || ml->blocking) {
    return zke_recipe_fail(
        ZKE_MISUSE, "this object already holds or waits for the multilock %s",
        ml->r.path);
  }
  ml->actor = zke_line_actor();
  int rc = multilock_make(ml, blocking ? "waiting" : "queued", deadline_ms);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < ml->count; i++) ml->seats[i].turn = false;
  ml->at_once = true;
  ml->state = ZKE_LINE_WAITING;
  rc = zke_recipe_look(&ml->r);
  return rc == ZKE_OK ? ZKE_OK : multilock_give_up(ml, rc);
}

/* Fail with rc, and name the first missing lock and its holder.  ZKE_HELD: only
 * if living processes block that lock, else ZKE_NONODE. */
static int multilock_say_held(zke_multilock *ml, int rc) {
  int i = 0;
  while (i + 1 < ml->count && ml->seats[i].turn) i++;
  const zke_strings keeper = {ml->seats[i].watched != NULL,
                              &ml->seats[i].watched};
  if (rc == ZKE_HELD &&
      zke_recipe_bury_all(ml->r.z, ml->seats[i].path, &keeper) != ZKE_OK)
    return ZKE_NONODE;
  return zke_line_say_held(ml->r.z, rc, multilock_places[ml->seats[i].kind],
                           ml->seats[i].path,
                           ml->own ? ml->own->data[i] : NULL);
}

/* ---- the blocking call ---- */

/* For zke_recipe_await(): has the wait ended, and with which result? */
static int multilock_is_done(zke_recipe *r) {
  const zke_multilock *ml = (zke_multilock *)r;
  if (ml->state == ZKE_LINE_HELD) return ZKE_OK;
  return ml->state == ZKE_LINE_WAITING ? ZKE_NOT_YET : multilock_is_lost(ml);
}

/* It has joined without blocking and blocks now: its entries must show this,
 * and its thread, for the search for deadlocks. */
static int multilock_begin_blocking(zke_multilock *ml) {
  int64_t zxid;
  ml->actor = zke_line_actor();
  int rc = multilock_write_all(ml, "waiting", &zxid);
  if (rc == ZKE_NONODE) multilock_lose(ml);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* As zke_line_acquire(): write "waiting" first, then look for a deadlock.
 * After any failure the object is out of all lines. */
static int multilock_acquire(zke_multilock *ml, int64_t deadline_ms) {
  int rc = ZKE_OK;
  if (ml->state == ZKE_LINE_WAITING && !ml->blocking) {
    ml->blocking = true;
    rc = multilock_begin_blocking(ml);
  } else {
    rc = multilock_join(ml, true, deadline_ms);
    if (rc != ZKE_OK) return rc;
    ml->blocking = true;
  }
  if (rc == ZKE_OK && ml->state == ZKE_LINE_WAITING && !ml->no_check)
    rc = zke_line_detect(ml->r.z, ml->actor, ml->count);
  if (rc == ZKE_OK)
    rc = zke_recipe_await(&ml->r, multilock_is_done, deadline_ms);
  ml->blocking = false;
  if (rc == ZKE_OPERATIONTIMEOUT) multilock_say_held(ml, rc);
  return rc == ZKE_OK ? ZKE_OK : multilock_give_up(ml, rc);
}

/* Ends with all locks, or with none. */
int zke_multilock_acquire(zke_multilock *ml, int64_t deadline_ms) {
  int rc = zke_recipe_enter_by((zke_recipe *)ml, deadline_ms);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&ml->r, multilock_acquire(ml, deadline_ms));
}

/* Leave again if anybody is before it in any of the lines. */
static int multilock_try(zke_multilock *ml) {
  int rc = multilock_join(ml, false, ZKE_FOREVER);
  if (rc != ZKE_OK) return rc;
  while (rc == ZKE_OK && ml->state == ZKE_LINE_WAITING) {
    rc = multilock_say_held(ml, ZKE_HELD);
    if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
    if (zke_recipe_again(ml->r.z, &rc)) rc = zke_recipe_look(&ml->r);
  }
  if (rc == ZKE_OK && ml->state == ZKE_LINE_LOST) rc = multilock_is_lost(ml);
  return rc == ZKE_OK ? ZKE_OK : multilock_give_up(ml, rc);
}

/* Leaves all lines immediately if anybody is before it in one of them. */
int zke_multilock_try(zke_multilock *ml) {
  int rc = zke_recipe_enter((zke_recipe *)ml);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&ml->r, multilock_try(ml));
}

/* Joins, and leaves the rest to dispatching: the listener hears HELD. */
int zke_multilock_start(zke_multilock *ml) {
  int rc = zke_recipe_enter((zke_recipe *)ml);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&ml->r, multilock_join(ml, false, ZKE_FOREVER));
}

/* For a program without a dispatch: looks as after an event. */
int zke_multilock_step(zke_multilock *ml) {
  return zke_recipe_step((zke_recipe *)ml);
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_multilock_cancel(zke_multilock *ml) {
  return zke_recipe_cancel((zke_recipe *)ml);
}

/* ---- out, and looking ---- */

/* Asks the file for each of the znodes. */
static int multilock_check(zke_multilock *ml) {
  if (ml->state == ZKE_LINE_HELD) {
    int rc = ZKE_OK;
    for (int i = 0; i < ml->count && rc == ZKE_OK; i++)
      rc = zke_exists(ml->r.z, ml->own->data[i], NULL, NULL, NULL);
    if (rc != ZKE_NONODE) return rc;
    multilock_lose(ml);
  }
  return zke_recipe_fail(ZKE_LOST, "the multilock %s is not held", ml->r.path);
}

/* It also gives up a wait, and the remaining locks of a lost multi-lock; then
 * the result is ZKE_LOST. */
int zke_multilock_release(zke_multilock *ml) {
  int rc = zke_recipe_enter((zke_recipe *)ml);
  if (rc != ZKE_OK) return rc;
  if (ml->state == ZKE_LINE_HELD) multilock_check(ml); /* lost unheard? */
  if (ml->state == ZKE_LINE_WAITING || ml->state == ZKE_LINE_HELD) {
    rc = multilock_leave(ml);
  } else {
    int left = multilock_leave(ml);
    rc = left == ZKE_OK ? multilock_check(ml) : left;
  }
  return zke_recipe_leave(&ml->r, rc);
}

/* An object that cannot be entered holds nothing that the caller can rely
 * on. */
int zke_multilock_state(zke_multilock *ml) {
  if (zke_recipe_enter_memory((zke_recipe *)ml) != ZKE_OK)
    return ZKE_MULTILOCK_LOST;
  int state = ml->state;
  zke_recipe_leave(&ml->r, ZKE_OK);
  return state;
}

/* 0 for an object that cannot be entered: no one accepts this fencing value. */
int64_t zke_multilock_token(zke_multilock *ml) {
  if (zke_recipe_enter_memory((zke_recipe *)ml) != ZKE_OK) return 0;
  int64_t token = ml->token;
  zke_recipe_leave(&ml->r, ZKE_OK);
  return token;
}

/* Asks the file, for each entry: if one has gone, nothing is held. */
int zke_multilock_check(zke_multilock *ml) {
  int rc = zke_recipe_enter((zke_recipe *)ml);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&ml->r, multilock_check(ml));
}

/* An operation for each lock: the multi fails if any of them has gone. */
static int multilock_ops(zke_multilock *ml, zke_op *ops, int count) {
  if (count != ml->count)
    return zke_recipe_fail(ZKE_BADARGUMENTS,
                           "room for %d operations, but %d locks", count,
                           ml->count);
  if (ml->state != ZKE_LINE_HELD) return multilock_check(ml);
  for (int i = 0; i < count; i++) zke_op_check(&ops[i], ml->own->data[i], -1);
  return ZKE_OK;
}

/* One operation for each lock, in the caller's array. */
int zke_multilock_ops(zke_multilock *ml, zke_op *ops, int count) {
  if (!ops) return zke_recipe_fail(ZKE_BADARGUMENTS, "ops is NULL");
  int rc = zke_recipe_enter((zke_recipe *)ml);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&ml->r, multilock_ops(ml, ops, count));
}
