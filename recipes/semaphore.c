/* semaphore.c - N permits and no more, first come first served
 *
 * A semaphore is a line (line.h) of leases: an entry holds while fewer than
 * `limit` entries are before it.  The line does the waiting, as for a lock
 * (lock.c has the steps).  This file handles the limit: it is stated, compared,
 * changed.
 *
 *   acquire n
 *     1. Read the directory's limit; if the directory is missing, make it with
 *        the stated limit (semaphore_agree).  Another limit than the stated
 *        one, or n above it: ZKE_LIMIT.
 *     2. Make n znodes with one guid, in one step.  Their numbers follow each
 *        other, and the last one stands for all.
 *     3. Read the line and the limit in one snapshot.  If fewer than the limit
 *        are before the last one, write "held" into it, in one step with a
 *        check that the directory still has the version of that limit.
 *     4. Else watch the nearest entries in front, and the directory; sleep; go
 *        back to 3.
 *   release
 *     Delete the n znodes in one step.
 *   resize
 *     Write the new limit into the directory, at the version that was read.
 *
 * Why never more than the limit hold: an entry holds by the mark of step 3,
 * which is written only if the place is within the limit at that moment, and
 * only at the version of the directory that has this limit.  Entries in front
 * can only go, so a place within the limit stays within it.  Only lowering the
 * limit breaks this: marked entries keep their permits, and an entry further
 * ahead that has not looked yet may still be within the new limit.
 *
 * Why no acquisition has only some of its permits: its znodes are made, and
 * deleted, in one step, and the session's end takes all of them.
 *
 * A lost reply: of 2, the guid tells; of 3, the mark is written again; of a
 * release, it is fine if the znodes are missing; of a resize, the limit that is
 * read tells.
 *
 * Invariant: while the object is in the line, l.limit is 1 or more and was read
 * from the directory, and l.weight is the number of the znodes in `own`.  Begin
 * with semaphore_join(). */
#include "semaphore.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/line.h"
#include "part/party.h"
#include "part/text.h"
#include "part/znode.h"

#define SEMAPHORE_PLACE "semaphore"
#define SEMAPHORE_MARK "zkembed semaphore\nlimit "

/* Members except l do not change after zke_semaphore_new(). */
struct zke_semaphore {
  zke_line l; /* kind LEASE; its weight is the number of permits */
  int stated; /* options.limit: to find or to make; 0: none */
  zke_semaphore_fn listener;
  void *context;
};

/* ---- the limit ----
 *
 * The directory's data is "zkembed semaphore\nlimit <N>\n", and nothing else.
 */

/* The limit in a directory's data, or 0: it is not a semaphore. */
static int semaphore_parse(const char *data, int len) {
  size_t mark = strlen(SEMAPHORE_MARK);
  char *end;
  if (!data || len < 0 || strncmp(data, SEMAPHORE_MARK, mark) != 0) return 0;
  long limit = strtol(data + mark, &end, 10);
  return *end == '\n' && limit >= 1 && limit <= INT_MAX ? (int)limit : 0;
}

/* Fail with ZKE_OTHERKIND, and name the recipe that uses the path. */
static int semaphore_other_kind(const char *path, const char *data) {
  size_t mark = strlen("zkembed ");
  if (strncmp(data, "zkembed ", mark) != 0)
    return zke_recipe_fail(ZKE_OTHERKIND,
                           "%s has data of its own: it is no semaphore", path);
  if (strncmp(data + mark, SEMAPHORE_PLACE "\n", strlen(SEMAPHORE_PLACE) + 1) ==
      0)
    return zke_recipe_fail(ZKE_OTHERKIND, "%s is a semaphore without a limit",
                           path);
  return zke_recipe_fail(ZKE_OTHERKIND, "%s is of kind %.*s, not semaphore",
                         path, (int)strcspn(data + mark, "\n"), data + mark);
}

/* Read the directory's limit.  ZKE_NONODE: it is missing, or an empty node,
 * which zke_recipe_place() takes over. */
static int semaphore_read(zke *z, const char *path, int *limit,
                          zke_stat *stat) {
  char *data = NULL;
  int len;
  int rc = zke_get(z, path, NULL, NULL, &data, &len, stat);
  if (rc != ZKE_OK) return rc;
  *limit = semaphore_parse(data, len);
  if (len <= 0)
    rc = zke_recipe_fail(ZKE_NONODE, "there is no semaphore at %s", path);
  else if (*limit == 0)
    rc = semaphore_other_kind(path, data);
  zke_free(data);
  return rc;
}

/* Read the limit; if there is none and one is given, make it.  Somebody else
 * may make it at the same time with another limit: so it is read again into
 * *found. */
static int semaphore_place(zke *z, const char *path, int mode, int limit,
                           int64_t deadline_ms, int *found, zke_stat *stat) {
  char more[32];
  int rc = semaphore_read(z, path, found, stat);
  if (rc != ZKE_NONODE || limit == 0) return rc;
  snprintf(more, sizeof more, "limit %d\n", limit);
  rc = zke_recipe_place(z, path, SEMAPHORE_PLACE, mode, more, deadline_ms);
  return rc == ZKE_OK ? semaphore_read(z, path, found, stat) : rc;
}

/* Asks the file; the limit is the directory's data. */
int zke_semaphore_limit(zke *z, const char *path, int *limit_out) {
  int limit;
  if (!limit_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "limit_out is NULL");
  int rc = semaphore_read(z, path, &limit, NULL);
  if (rc == ZKE_OK) *limit_out = limit;
  return rc;
}

/* A new limit, for zke_recipe_do(). */
typedef struct semaphore_change {
  const char *path;
  int limit;
} semaphore_change;

/* One step.  If an earlier step lost its reply, the limit that is read shows
 * its result.  Others may change the limit too, and the container may go. */
static int semaphore_try_change(zke *z, void *arg) {
  const semaphore_change *c = arg;
  char text[64];
  int found;
  zke_stat stat;
  int rc = semaphore_place(z, c->path, ZKE_PERSISTENT, c->limit, 0, &found,
                           &stat); /* once: the whole is tried again */
  if (rc != ZKE_OK || found == c->limit) return zke_recipe_faster(rc);
  int len = snprintf(text, sizeof text, SEMAPHORE_MARK "%d\n", c->limit);
  return zke_recipe_faster(zke_set(z, c->path, text, len, stat.version, NULL));
}

/* A waiting acquisition watches the directory, and looks again when its data
 * changes.  A smaller limit takes nothing from the holders. */
int zke_semaphore_resize(zke *z, const char *path, int limit,
                         int64_t deadline_ms) {
  semaphore_change c = {path, limit};
  if (limit < 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a limit of %d is below 1", limit);
  if (path && strcmp(path, "/") == 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a semaphore cannot be at /");
  return zke_recipe_do(z, semaphore_try_change, &c, deadline_ms);
}

/* ---- the object ---- */

/* The number is the token, or 0 for a state without one. */
static void semaphore_deliver(zke_recipe *r, int event, int64_t number,
                              const char *text, int len) {
  zke_semaphore *sem = (zke_semaphore *)r;
  (void)text, (void)len;
  if (sem->listener) sem->listener(sem, event, number, sem->context);
}

static const zke_recipe_class semaphore_class = {
    .name = "semaphore",
    .event = zke_line_on_event,
    .step = zke_line_on_step,
    .ended = zke_line_on_ended,
    .deliver = semaphore_deliver,
    .quit = zke_line_on_quit,
    .destroy = zke_line_on_destroy};

/* The options given, or the defaults. */
static int semaphore_options(const zke_semaphore_options *given,
                             zke_semaphore_options *o) {
  int rc = zke_take_options(given, o, sizeof *o, "zke_semaphore_options");
  if (rc != ZKE_OK) return rc;
  if (o->limit < 0)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "a limit of %d is below 0",
                           o->limit);
  return ZKE_OK;
}

/* Makes no znode.  The stated limit is compared with the directory's when
 * permits are asked for. */
int zke_semaphore_new(zke *z, const char *path,
                      const zke_semaphore_options *options,
                      zke_semaphore **sem_out) {
  zke_semaphore_options o;
  zke_recipe *r = NULL;
  if (!sem_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "sem_out is NULL");
  *sem_out = NULL;
  int rc = semaphore_options(options, &o);
  if (rc != ZKE_OK) return rc;
  rc = zke_recipe_new(z, path, &semaphore_class, sizeof(zke_semaphore), &r);
  if (rc != ZKE_OK) return rc;
  zke_semaphore *sem = (zke_semaphore *)r;
  sem->l.place = SEMAPHORE_PLACE;
  sem->l.kind = ZKE_LINE_LEASE;
  sem->l.no_check = o.no_deadlock_check != 0;
  sem->l.watch_own = o.listener != NULL;
  sem->l.data = o.data;
  sem->l.len = o.len;
  sem->stated = o.limit;
  sem->listener = o.listener;
  sem->context = o.context;
  rc = zke_line_init(&sem->l);
  if (rc == ZKE_OK)
    *sem_out = sem;
  else
    zke_recipe_free(r);
  return rc;
}

/* Gives the permits back, so waiting acquisitions continue immediately. */
void zke_semaphore_free(zke_semaphore *sem) {
  zke_recipe_free((zke_recipe *)sem);
}

/* ---- in and out ---- */

/* Make the place: is its limit the stated one, and is it enough?  The stated
 * limit is compared once in an object's life: later zke_semaphore_resize() may
 * change the limit, and the object follows. */
static int semaphore_agree(zke_semaphore *sem, int permits,
                           int64_t deadline_ms) {
  zke_line *l = &sem->l;
  int found;
  zke_stat stat;
  int rc = semaphore_place(l->r.z, l->r.path, ZKE_CONTAINER, sem->stated,
                           deadline_ms, &found, &stat);
  if (rc != ZKE_OK) return rc;
  if (!l->seen && sem->stated && sem->stated != found) {
    return zke_recipe_fail(ZKE_LIMIT,
                           "the semaphore %s has a limit of %d, not of %d",
                           l->r.path, found, sem->stated);
  }
  l->seen = stat.czxid;
  l->limit = found;
  if (permits <= found) return ZKE_OK;
  return zke_recipe_fail(
      ZKE_LIMIT,
      "%d permits of the semaphore %s asked for, but its limit is "
      "%d",
      permits, l->r.path, found);
}

/* The three ways in. */
enum { SEMAPHORE_ACQUIRE, SEMAPHORE_TRY, SEMAPHORE_START };

/* Their common part.  The limit is agreed on before any znode is made, since a
 * lease under another limit could hold wrongly. */
static int semaphore_join(zke_semaphore *sem, int how, int permits,
                          int64_t deadline_ms) {
  zke_line *l = &sem->l;
  if (l->state == ZKE_LINE_LOST) { /* go out before looking at the limit */
    int rc = zke_line_quit(l);
    if (rc != ZKE_OK) return rc;
  }
  if (l->state == ZKE_LINE_OUT) {
    int rc = semaphore_agree(sem, permits, deadline_ms);
    if (rc != ZKE_OK) return rc;
    l->weight = permits;
  }
  if (how == SEMAPHORE_ACQUIRE) return zke_line_acquire(l, deadline_ms);
  if (how == SEMAPHORE_TRY) return zke_line_try(l);
  return zke_line_join(l, false, deadline_ms);
}

/* ZKE_NONODE: the container was removed after it was made and before the znodes
 * were; then everything is repeated.  Without a stated limit nothing is made:
 * then ZKE_NONODE is the answer. */
static int semaphore_go(zke_semaphore *sem, int how, int permits,
                        int64_t deadline_ms) {
  int rc;
  if (permits < 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "%d permits are fewer than 1",
                           permits);
  rc = how == SEMAPHORE_ACQUIRE
           ? zke_recipe_enter_by((zke_recipe *)sem, deadline_ms)
           : zke_recipe_enter((zke_recipe *)sem);
  if (rc != ZKE_OK) return rc;
  do {
    rc = semaphore_join(sem, how, permits, deadline_ms);
    if (rc == ZKE_NONODE && sem->stated) rc = ZKE_LOOK_AGAIN;
  } while (zke_recipe_again(sem->l.r.z, &rc));
  return zke_recipe_leave(&sem->l.r, rc);
}

/* All permits come together: while some are missing, it holds none. */
int zke_semaphore_acquire(zke_semaphore *sem, int permits,
                          int64_t deadline_ms) {
  return semaphore_go(sem, SEMAPHORE_ACQUIRE, permits, deadline_ms);
}

/* Leaves immediately if not all permits are free. */
int zke_semaphore_try(zke_semaphore *sem, int permits) {
  return semaphore_go(sem, SEMAPHORE_TRY, permits, ZKE_FOREVER);
}

/* Joins, and leaves the rest to dispatching: the listener hears HELD. */
int zke_semaphore_start(zke_semaphore *sem, int permits) {
  return semaphore_go(sem, SEMAPHORE_START, permits, ZKE_FOREVER);
}

/* For a program without a dispatch: looks as after an event. */
int zke_semaphore_step(zke_semaphore *sem) {
  int rc = zke_recipe_enter((zke_recipe *)sem);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&sem->l.r, zke_line_step(&sem->l));
}

/* All permits go in one step; some of them alone cannot be given back.  Only
 * this acquisition's znodes go: so a second release takes nothing from another
 * acquisition. */
int zke_semaphore_release(zke_semaphore *sem) {
  int rc = zke_recipe_enter((zke_recipe *)sem);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&sem->l.r, zke_line_release(&sem->l));
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_semaphore_cancel(zke_semaphore *sem) {
  return zke_recipe_cancel((zke_recipe *)sem);
}

/* ---- looking ---- */

/* As of the last look; the file may be newer, see zke_semaphore_check(). */
int zke_semaphore_state(zke_semaphore *sem) {
  return zke_line_api_state((zke_line *)sem);
}

/* The zxid of the mark. */
int64_t zke_semaphore_token(zke_semaphore *sem) {
  return zke_line_api_token((zke_line *)sem);
}

/* The number that this object holds now; 0 if it only waits. */
int zke_semaphore_permits(zke_semaphore *sem) {
  if (zke_recipe_enter_memory((zke_recipe *)sem) != ZKE_OK) return 0;
  int permits = sem->l.state == ZKE_LINE_HELD ? sem->l.weight : 0;
  zke_recipe_leave(&sem->l.r, ZKE_OK);
  return permits;
}

/* Asks the file, for a holder that was stopped for a while. */
int zke_semaphore_check(zke_semaphore *sem) {
  return zke_line_api_check((zke_line *)sem);
}

/* Checks the last of the lease's znodes, which stands for all of them. */
int zke_semaphore_op(zke_semaphore *sem, zke_op *op) {
  return zke_line_api_op((zke_line *)sem, op);
}

/* The limit is read with the leases; each lease is one party, however many
 * permits it has. */
int zke_semaphore_parties(zke *z, const char *path, zke_party_list **list_out) {
  return zke_line_parties(z, path, 0, list_out);
}
