/* znode.c - znodes that survive lost replies
 *
 * When a COMMIT fails with ZKE_CONNECTIONLOSS, the change was made or was not.
 * The functions here find out, each by a trace that only the lost change can
 * leave: a creation by its guid (zke_creation_find()), a deletion by the node's
 * absence.  If they cannot find out, because the database stays busy or the
 * disk full, they leave the deletion to the session (zke_discard()).
 *
 * A creation, with what may go wrong:
 *
 *   1. give it a guid                          zke_creation_name()
 *   2. create                                  znode_try_create()
 *        no directory:      make it, go to 2
 *        busy:              nothing was made; wait a little, go to 2
 *        reply lost:        now it is unsure; wait a little, go to 3
 *   3. unsure: look for the guid               zke_creation_find()
 *        found:             made; done
 *        missing:           not made; go to 2
 *        cannot be read:    wait a little, go to 3
 *   4. the deadline has come and it is unsure  zke_creation_resolve()
 *        look once more, with some time left for it; if even that fails, tell
 *        the session to remove any znode with this guid
 *
 * If the process dies at any of these, its session ends, and the znode goes
 * with it, unless it is persistent.
 *
 * Invariant: a function that makes an ephemeral znode returns ZKE_OK with its
 * path, or has made sure that none will stay: a caller that fails has nothing
 * to clean up.
 *
 * Sections, each using those above it: multis; places, which are directories of
 * a kind; one creation, with discarding; several in one step; deletion; names
 * and entries; owners of znodes.  Begin with zke_recipe_create(), and
 * znode_try_create() above it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strnlen, getentropy */
#endif

#include "znode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "limit.h"
#include "object.h"
#include "../support.h"
#include "text.h"

/* ---- multis ---- */

/* zkembed, like ZooKeeper, returns ZKE_MARSHALLINGERROR for a malformed path in
 * a transaction, and also for a transaction on an ended session: the handle's
 * state shows which it is. */
static int znode_multi_rc(zke *z, int rc) {
  if (rc != ZKE_MARSHALLINGERROR) return rc;
  int state = zke_state(z);
  bool ended = state == ZKE_STATE_EXPIRED || state == ZKE_STATE_AUTH_FAILED;
  return ended ? ZKE_INVALIDSTATE : rc;
}

/* So a recipe sees one code for an ended session, in every call. */
int zke_recipe_multi(zke *z, const zke_op *ops, int count,
                     zke_op_result *results) {
  return znode_multi_rc(z, zke_multi(z, ops, count, results));
}

int zke_recipe_multi_read(zke *z, const zke_op *ops, int count,
                          zke_op_result *results) {
  return znode_multi_rc(z, zke_multi_read(z, ops, count, results));
}

/* The operations after the refused one have a code that says only this. */
int zke_recipe_refused(const zke_op_result *results, int count) {
  for (int i = 0; i < count; i++) {
    if (results[i].rc && results[i].rc != ZKE_RUNTIMEINCONSISTENCY) return i;
  }
  return -1;
}

/* ---- places ----
 *
 * A place is a directory whose data says what it is for: "zkembed lock".
 * Several processes may make it or take it over at the same time.  Each change
 * requires the version that was read, and after a failed change the process
 * looks again. */

#define ZNODE_MARK "zkembed "

/* The arguments of zke_recipe_place(), for zke_recipe_do(). */
typedef struct znode_place {
  const char *path, *kind, *more;
  int mode;
  zke_stat stat; /* out: of the node that says the kind */
} znode_place;

/* "zkembed lock\nlimit 3\n" in one block. */
static char *znode_place_text(zke *z, const znode_place *p) {
  const char *more = p->more ? p->more : "";
  size_t size = strlen(ZNODE_MARK) + strlen(p->kind) + strlen(more) + 2;
  char *text = zke_alloc(z, size);
  if (text) snprintf(text, size, ZNODE_MARK "%s\n%s", p->kind, more);
  return text;
}

/* Fail with ZKE_OTHERKIND, and say what the place is used for. */
static int znode_other_kind(const znode_place *p, const char *data) {
  size_t mark = strlen(ZNODE_MARK);
  if (strncmp(data, ZNODE_MARK, mark) != 0) {
    return zke_recipe_fail(ZKE_OTHERKIND, "%s has data of its own: it is no %s",
                           p->path, p->kind);
  }
  return zke_recipe_fail(ZKE_OTHERKIND, "%s is of kind %.*s, not %s", p->path,
                         (int)strcspn(data + mark, "\n"), data + mark, p->kind);
}

/* Compare the data with this kind.  ZKE_OK: it is the same, ZKE_OTHERKIND:
 * another one, ZKE_NODEEXISTS: the data is empty, so the node can be taken
 * over. */
static int znode_compare(const znode_place *p, const char *data, int len) {
  size_t mark = strlen(ZNODE_MARK), kind = strlen(p->kind);
  if (len <= 0) return ZKE_NODEEXISTS;
  if (strncmp(data, ZNODE_MARK, mark) == 0 &&
      strncmp(data + mark, p->kind, kind) == 0 &&
      (data[mark + kind] == '\n' || data[mark + kind] == '\0')) {
    return ZKE_OK;
  }
  return znode_other_kind(p, data);
}

/* The parent of a first-level node is "/": it exists, or it is a missing
 * chroot, which cannot be made. */
int zke_recipe_ensure_above(zke *z, const char *path, int mode,
                            int64_t deadline_ms) {
  size_t len = (size_t)(strrchr(path, '/') - path);
  if (!len) return zke_exists(z, "/", NULL, NULL, NULL);
  char *above = zke_recipe_copy(z, path, len);
  int rc = above ? zke_ensure_path(z, above, mode, deadline_ms) : ZKE_NOMEM;
  zke_free(above);
  return rc;
}

/* Make a place, and the missing nodes above it.  Tries twice without waiting:
 * even a call that must not wait for others must finish this.  ZKE_NONODE: a
 * node above has gone again. */
static int znode_make_place(zke *z, znode_place *p, const char *text) {
  int rc = ZKE_NONODE;
  for (int i = 0; i < 2 && rc == ZKE_NONODE; i++) {
    int above = i ? zke_recipe_ensure_above(z, p->path, p->mode, 0) : ZKE_OK;
    if (above != ZKE_OK) return above;
    rc = zke_create(z, p->path, text, (int)strlen(text), ZKE_OPEN_ACL, p->mode,
                    NULL, &p->stat);
  }
  return rc;
}

/* One step: check a place, or take it over, or make it with the missing nodes
 * above it.  Others may do the same, and a node made above may go again before
 * the place is made, as empty containers do.  A lost reply needs no guid here:
 * the next step reads the node. */
static int znode_see_to(zke *z, void *arg) {
  znode_place *p = arg;
  char *data = NULL, *text;
  int len;
  int rc = zke_get(z, p->path, NULL, NULL, &data, &len, &p->stat);
  if (rc == ZKE_OK) rc = znode_compare(p, data, len);
  zke_free(data);
  if (rc != ZKE_NONODE && rc != ZKE_NODEEXISTS) return rc;
  text = znode_place_text(z, p);
  if (!text) return ZKE_NOMEM;
  len = (int)strlen(text);
  if (rc == ZKE_NODEEXISTS)
    rc = zke_set(z, p->path, text, len, p->stat.version, &p->stat);
  else
    rc = znode_make_place(z, p, text);
  zke_free(text);
  return zke_recipe_faster(rc);
}

/* For a recipe that may use any node at the path. */
int zke_recipe_place(zke *z, const char *path, const char *kind, int mode,
                     const char *more, int64_t deadline_ms) {
  znode_place p = {.path = path, .kind = kind, .more = more, .mode = mode};
  return zke_recipe_do(z, znode_see_to, &p, deadline_ms);
}

/* The Stat belongs to the data that was compared or written. */
int zke_recipe_place_seen(zke *z, const char *path, const char *kind, int mode,
                          int64_t deadline_ms, int64_t *czxid) {
  znode_place p = {.path = path, .kind = kind, .mode = mode};
  int rc = zke_recipe_do(z, znode_see_to, &p, deadline_ms);
  if (rc == ZKE_OK) *czxid = p.stat.czxid;
  return rc;
}

/* ---- one creation ----
 *
 * Discarding is here too, as the last resort of a creation with an unknown
 * outcome; and so is the twin of a znode (zke_recipe_find_twin()). */

/* The numbers that this process has used: `count` of them after `before`.  All
 * are atomic. */
static struct {
  uint64_t before, count;
  pid_t process; /* the process that has begun; 0: none */
} znode_given;

enum { ZNODE_NUMBER = 12 }; /* hex digits of a number in a guid */
#define ZNODE_NUMBER_MASK UINT64_C(0xffffffffffff)

/* A number that this process uses once.  A kept session may continue in another
 * process, which must not use the same numbers: so each process begins at a
 * random one, a forked child too.  Without random numbers it continues
 * counting.
 *
 * If two threads begin at the same time, one sets the beginning for both. */
static uint64_t znode_number(void) {
  pid_t pid = getpid();
  uint64_t first, old = __atomic_load_n(&znode_given.before, __ATOMIC_ACQUIRE);
  if (__atomic_load_n(&znode_given.process, __ATOMIC_ACQUIRE) != pid) {
    if (getentropy(&first, sizeof first) == 0)
      __atomic_compare_exchange_n(&znode_given.before, &old, first, false,
                                  __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    __atomic_store_n(&znode_given.process, pid, __ATOMIC_RELEASE);
  }
  return __atomic_load_n(&znode_given.before, __ATOMIC_ACQUIRE) +
         __atomic_add_fetch(&znode_given.count, 1, __ATOMIC_RELAXED);
}

/* Has this process made the znode?  The number in its guid tells. */
static bool znode_is_own(const char *path) {
  const char *name = zke_recipe_name(path);
  if (__atomic_load_n(&znode_given.process, __ATOMIC_ACQUIRE) != getpid() ||
      strncmp(name, ZKE_NAME_MARK, strlen(ZKE_NAME_MARK)) != 0 ||
      strnlen(name, ZKE_NAME_KIND) < ZKE_NAME_KIND)
    return false;
  uint64_t number = strtoull(name + ZKE_NAME_HEAD - ZNODE_NUMBER, NULL, 16);
  uint64_t before = __atomic_load_n(&znode_given.before, __ATOMIC_ACQUIRE);
  uint64_t place = (number - before) & ZNODE_NUMBER_MASK;
  return place > 0 &&
         place <= __atomic_load_n(&znode_given.count, __ATOMIC_RELAXED);
}

/* Versions wrap around and skip -1, which would mean any. */
int32_t zke_recipe_next_version(int32_t version) {
  if (version == -2) return 0;
  return version == INT32_MAX ? INT32_MIN : version + 1;
}

/* The session's id distinguishes sessions, the number distinguishes calls for
 * one session.  The 8000 has the variant of a UUID. */
void zke_recipe_guid(zke *z, char guid[ZKE_RECIPE_GUID]) {
  uint64_t id = (uint64_t)zke_session_id(z);
  snprintf(guid, ZKE_RECIPE_GUID,
           "%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04x-%012" PRIx64,
           id >> 32, id >> 16 & 0xffff, id & 0xffff, 0x8000u,
           znode_number() & ZNODE_NUMBER_MASK);
}

/* Does the name contain this guid? */
static bool znode_bears(const char *name, const char *guid) {
  size_t mark = strlen(ZKE_NAME_MARK);
  return strncmp(name, ZKE_NAME_MARK, mark) == 0 &&
         strncmp(name + mark, guid, ZKE_RECIPE_GUID - 1) == 0;
}

/* Does a znode of that mode end with its session? */
static bool znode_is_ephemeral(int mode) {
  return mode == ZKE_EPHEMERAL || mode == ZKE_EPHEMERAL_SEQUENTIAL;
}

/* Look for a znode that a lost try has made; ZKE_NONODE: it made nothing.
 *
 * An ephemeral one counts only if this session owns it.  The guid contains the
 * session, so another owner means that somebody else has made a znode of that
 * name. */
int zke_creation_find(zke *z, zke_creation *c) {
  zke_strings *names = NULL;
  int rc = zke_children(z, c->directory, NULL, NULL, &names, NULL);
  if (rc != ZKE_OK) return rc;
  rc = ZKE_NONODE;
  for (int i = 0; i < names->count && rc == ZKE_NONODE; i++) {
    if (!znode_bears(names->data[i], c->guid)) continue;
    char *path = zke_recipe_path(z, c->directory, names->data[i]);
    rc = path ? zke_exists(z, path, NULL, NULL, &c->stat) : ZKE_NOMEM;
    if (rc == ZKE_OK && znode_is_ephemeral(c->mode) &&
        c->stat.ephemeralOwner != zke_session_id(z))
      rc = ZKE_NONODE;
    if (rc == ZKE_OK)
      c->path = path;
    else
      zke_free(path);
  }
  zke_free(names);
  return rc;
}

/* Send the creation once. */
static int znode_create_one(zke *z, zke_creation *c) {
  int rc = zke_create(z, c->given, c->data, c->len, ZKE_OPEN_ACL, c->mode,
                      &c->path, &c->stat);
  c->unsure = zke_recipe_is_lost(rc);
  return rc;
}

/* One step.  After a lost reply it looks first: making a second znode would
 * leave the first one there for the rest of the session.
 *
 * A missing directory is made, and then the znode: the directory is a
 * container, which may go whenever it is empty.  The create comes before any
 * look at the directory, because it mostly exists. */
static int znode_try_create(zke *z, void *arg) {
  zke_creation *c = arg;
  int rc;
  if (c->unsure) {
    rc = zke_creation_find(z, c);
    c->unsure = rc != ZKE_NONODE;
    return rc == ZKE_NONODE ? ZKE_NOT_MADE : rc;
  }
  rc = znode_create_one(z, c);
  if (rc != ZKE_NONODE) return rc;
  rc = zke_recipe_place(z, c->directory, c->place, ZKE_CONTAINER, NULL, 0);
  if (rc == ZKE_OK) rc = znode_create_one(z, c);
  return rc == ZKE_NONODE ? ZKE_LOOK_AGAIN : rc;
}

/* zke_creation_find(), as zke_retry() calls it. */
static int znode_find_made(zke *z, void *arg) {
  return zke_creation_find(z, arg);
}

/* The arguments of zke_discard(). */
typedef struct znode_goer {
  const char *path;
  int mode;
  int64_t czxid;
} znode_goer;

/* One try, for zke_retry().  If the delete fails now, the engine deletes the
 * znode later: the first try has registered it. */
static int znode_try_discard(zke *z, void *arg) {
  const znode_goer *g = arg;
  return zke_discard(z, g->path, g->mode, g->czxid);
}

/* A missing twin alone proves nothing: since the read, the znode may have been
 * removed, with its twin, and the next one have taken its place.  So the znode
 * is read once more. */
int zke_recipe_find_twin(zke *z, const char *path, int64_t czxid,
                         const char *twin) {
  zke_stat now;
  int rc = zke_exists(z, twin, NULL, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  rc = zke_exists(z, path, NULL, NULL, &now);
  if (rc == ZKE_NONODE) return ZKE_BADVERSION;
  if (rc != ZKE_OK) return rc;
  return now.czxid == czxid ? ZKE_NONODE : ZKE_BADVERSION;
}

/* Discard it.  zke_retry() repeats failures that others have caused; any other
 * is tried once more, since an obstacle such as short memory may be gone by
 * then. */
static int znode_discard(zke *z, znode_goer *g) {
  int rc = zke_retry(z, znode_try_discard, g, ZKE_FOREVER);
  return rc == ZKE_OK || zke_recipe_is_transient(rc) ? rc
                                                     : znode_try_discard(z, g);
}

/* There is some time for it, though the deadline may have passed.  If the
 * process dies here, the session ends, and the znode goes with it. */
int zke_recipe_discard(zke *z, const char *path, int mode, int64_t czxid) {
  znode_goer g = {path, mode, czxid};
  int64_t limit = zke_recipe_allow(z);
  int rc = znode_discard(z, &g);
  zke_limit(z, limit);
  return rc;
}

/* Step 4 at the head of this file.  If the creation turns out to have been
 * made, it is a success, even after its deadline: that is simpler for the
 * caller than a failure, and true. */
int zke_creation_resolve(zke *z, zke_creation *c, int rc) {
  zke_sentence kept;
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_allow(z);
  int found = zke_retry(z, znode_find_made, c, ZKE_FOREVER);
  zke_limit(z, limit);
  if (found == ZKE_OK) return ZKE_OK;
  if (found != ZKE_NONODE && znode_is_ephemeral(c->mode))
    zke_recipe_discard(z, c->given, c->mode, 0);
  return zke_recipe_restore(&kept, rc);
}

/* Generate the guid and make the path to give to a create; suffix follows the
 * kind, instead of a number from the directory. */
int zke_creation_name(zke *z, zke_creation *c, const char *suffix) {
  size_t size =
      strlen(c->directory) + strlen(c->kind) + strlen(suffix) + ZKE_NAME_ROOM;
  zke_recipe_guid(z, c->guid);
  c->given = zke_alloc(z, size);
  if (!c->given) return ZKE_NOMEM;
  snprintf(c->given, size, "%s/" ZKE_NAME_MARK "%s-%s%s", c->directory, c->guid,
           c->kind, suffix);
  return ZKE_OK;
}

/* Fail with ZKE_LIMIT: the directory has no more numbers. */
int zke_recipe_say_used_up(const char *directory) {
  return zke_recipe_fail(
      ZKE_LIMIT,
      "%s has given all of its 2147483647 numbers: it begins "
      "anew after it was empty for a while, or was deleted",
      directory);
}

/* ZKE_LIMIT if a number does not show the order.  Counters end at 2^31 - 1:
 * every later znode gets that number again, or a negative one if several are
 * made in one step (semantics.md 2.3), so a later entry could stand before one
 * that holds. */
static int znode_check_number(const char *directory, const char *path,
                              const char *given) {
  const char *number = path + strlen(given);
  if (*number != '-' && strcmp(number, "2147483647") != 0) return ZKE_OK;
  return zke_recipe_say_used_up(directory);
}

/* Check the number of a created znode; discard the znode if it is refused. */
static int znode_take_number(zke *z, const zke_creation *c) {
  zke_sentence kept;
  int rc = znode_check_number(c->directory, c->path, c->given);
  if (rc == ZKE_OK) return rc;
  zke_recipe_keep(&kept);
  if (znode_is_ephemeral(c->mode))
    zke_recipe_discard(z, c->given, c->mode, c->stat.czxid);
  else
    zke_recipe_delete(z, c->path);
  return zke_recipe_restore(&kept, rc);
}

/* If the process dies after the creation, the znode goes with its session,
 * unless it is persistent.  Then no process looks for its guid any more, and
 * its data must show the recipe that it has no owner. */
int zke_recipe_create(zke *z, const char *directory, const char *place,
                      const char *kind, const void *data, int len, int mode,
                      int64_t deadline_ms, char **path_out,
                      zke_stat *stat_out) {
  zke_creation c = {.directory = directory,
                    .place = place,
                    .kind = kind,
                    .data = data,
                    .len = len,
                    .mode = mode};
  int rc = zke_creation_name(z, &c, "");
  if (rc == ZKE_OK) rc = zke_recipe_do(z, znode_try_create, &c, deadline_ms);
  if (rc != ZKE_OK && c.unsure) rc = zke_creation_resolve(z, &c, rc);
  if (rc == ZKE_OK) rc = znode_take_number(z, &c);
  zke_free(c.given);
  if (rc == ZKE_OK && path_out)
    *path_out = c.path;
  else
    zke_free(c.path);
  if (rc == ZKE_OK && stat_out) *stat_out = c.stat;
  return rc;
}

/* ---- several creations in one step ----
 *
 * As one creation, with one guid for all of them.  Several in one directory
 * differ by their numbers, which are consecutive, in the order of the seats.
 */

typedef struct znode_creations {
  const zke_seat *seats;
  zke_op *ops;         /* the creates; paths as given, without the numbers */
  zke_op_result *made; /* the nodes that the last try has made, or that were
                          found */
  int count;           /* of each of these */
  char guid[ZKE_RECIPE_GUID];
  bool unsure; /* a try has lost its reply: it may have made them */
} znode_creations;

/* Look for the znode that a lost try has made at seat i: among the entries with
 * the guid, the one after those of earlier seats in the same directory. */
static int znode_recover_seat(zke *z, znode_creations *c, int i) {
  const zke_seat *seat = &c->seats[i];
  zke_entries *e = NULL;
  int before = 0;
  for (int j = 0; j < i; j++)
    before += strcmp(c->seats[j].directory, seat->directory) == 0;
  int rc = zke_recipe_entries(z, seat->directory, &seat->kind, 1, NULL, NULL,
                              &e, NULL);
  if (rc != ZKE_OK) return rc;
  rc = ZKE_NONODE;
  for (int j = 0; j < e->count && rc == ZKE_NONODE; j++) {
    if (!znode_bears(e->data[j].name, c->guid) || before-- > 0) continue;
    char *path = zke_recipe_path(z, seat->directory, e->data[j].name);
    rc = path ? zke_exists(z, path, NULL, NULL, &c->made[i].stat) : ZKE_NOMEM;
    if (rc == ZKE_OK)
      c->made[i].path = path;
    else
      zke_free(path);
  }
  zke_free(e);
  return rc;
}

/* Look for all of them.  All were made or none, so finding one proves that they
 * were; a missing one was deleted since. */
static int znode_recover_all(zke *z, void *arg) {
  znode_creations *c = arg;
  bool found = false;
  zke_results_clear(c->made, c->count);
  for (int i = 0; i < c->count; i++) {
    int rc = znode_recover_seat(z, c, i);
    if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
    found = found || rc == ZKE_OK;
  }
  return found ? ZKE_OK : ZKE_NONODE;
}

/* One try, as znode_try_create(): makes all or none. */
static int znode_try_create_all(zke *z, void *arg) {
  znode_creations *c = arg;
  int rc = c->unsure ? znode_recover_all(z, c) : ZKE_NONODE;
  if (rc != ZKE_NONODE) return rc;
  zke_results_clear(c->made, c->count);
  rc = zke_recipe_multi(z, c->ops, c->count, c->made);
  c->unsure |= zke_recipe_is_lost(rc);
  return rc;
}

/* As zke_creation_resolve(), for all of them.  Each is discarded by the path
 * given to the create: the session finds it by the guid. */
static int znode_resolve_all(zke *z, znode_creations *c, int rc) {
  zke_sentence kept;
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_allow(z);
  int found = zke_retry(z, znode_recover_all, c, ZKE_FOREVER);
  zke_limit(z, limit);
  if (found == ZKE_OK) return ZKE_OK;
  for (int i = 0; i < c->count && found != ZKE_NONODE; i++)
    zke_recipe_discard(z, c->ops[i].path, ZKE_EPHEMERAL_SEQUENTIAL, 0);
  return zke_recipe_restore(&kept, rc);
}

/* Fill in the operations; returns their paths in one block, or NULL without
 * memory. */
static char *znode_creation_ops(zke *z, znode_creations *c) {
  size_t size = 0;
  for (int i = 0; i < c->count; i++)
    size += strlen(c->seats[i].directory) + strlen(c->seats[i].kind) +
            ZKE_NAME_ROOM;
  char *text = zke_alloc(z, size), *at = text;
  for (int i = 0; i < c->count && text; i++) {
    const zke_seat *seat = &c->seats[i];
    zke_op_create(&c->ops[i], at, seat->data, seat->len, ZKE_OPEN_ACL,
                  ZKE_EPHEMERAL_SEQUENTIAL);
    at += sprintf(at, "%s/" ZKE_NAME_MARK "%s-%s", seat->directory, c->guid,
                  seat->kind) +
          1;
  }
  return text;
}

/* The paths made, in one block; "" for one that is missing. */
static zke_strings *znode_made(zke *z, const znode_creations *c) {
  size_t size = sizeof(zke_strings) + (size_t)c->count * sizeof(char *);
  for (int i = 0; i < c->count; i++)
    size += c->made[i].path ? strlen(c->made[i].path) + 1 : 1;
  zke_strings *s = zke_alloc(z, size);
  if (!s) return NULL;
  s->data = (char **)(void *)(s + 1);
  char *text = (char *)(s->data + c->count);
  for (int i = 0; i < c->count; i++) {
    const char *path = c->made[i].path ? c->made[i].path : "";
    s->data[s->count++] = text;
    text = (char *)memcpy(text, path, strlen(path) + 1) + strlen(path) + 1;
  }
  return s;
}

/* Give the caller the paths of all, or discard them, by the paths given to the
 * create: the session finds them by the guid.  They are discarded if memory is
 * short, or if one has a number that shows no order.  If somebody has deleted
 * one, the caller gets the paths and the others are discarded too: after a lost
 * reply a path may not be known. */
static int znode_take_all(zke *z, const znode_creations *c,
                          zke_strings **paths_out) {
  zke_sentence kept;
  int rc = ZKE_OK;
  bool whole = true;
  for (int i = 0; i < c->count && rc == ZKE_OK; i++) {
    if (c->made[i].path)
      rc = znode_check_number(c->seats[i].directory, c->made[i].path,
                              c->ops[i].path);
    else
      whole = false;
  }
  *paths_out = rc == ZKE_OK ? znode_made(z, c) : NULL;
  if (*paths_out && whole) return ZKE_OK;
  if (rc == ZKE_OK && !*paths_out) rc = ZKE_NOMEM;
  zke_recipe_keep(&kept);
  for (int i = 0; i < c->count; i++)
    zke_recipe_discard(z, c->ops[i].path, ZKE_EPHEMERAL_SEQUENTIAL, 0);
  return zke_recipe_restore(&kept, rc);
}

/* All have one guid, so one look after a lost reply is enough: one transaction
 * has made all of them or none. */
int zke_recipe_create_all(zke *z, const zke_seat *seats, int count,
                          int64_t deadline_ms, zke_strings **paths_out,
                          int64_t *czxid_out) {
  znode_creations c = {.seats = seats, .count = count};
  size_t n = (size_t)count;
  int rc = ZKE_NOMEM;
  zke_strings *paths = NULL;
  zke_recipe_guid(z, c.guid);
  c.ops = zke_alloc(z, n * sizeof *c.ops);
  c.made = zke_alloc(z, n * sizeof *c.made);
  char *text = c.ops && c.made ? znode_creation_ops(z, &c) : NULL;
  if (text) rc = zke_retry(z, znode_try_create_all, &c, deadline_ms);
  if (rc != ZKE_OK && c.unsure) rc = znode_resolve_all(z, &c, rc);
  if (rc == ZKE_OK) rc = znode_take_all(z, &c, &paths);
  for (int i = 0; i < count && rc == ZKE_OK; i++) {
    if (c.made[i].path) *czxid_out = c.made[i].stat.czxid;
  }
  if (c.made) zke_results_clear(c.made, count);
  zke_free(c.ops);
  zke_free(c.made);
  zke_free(text);
  *paths_out = paths;
  return rc;
}

/* ---- deletion ---- */

/* One try, for zke_retry().  A missing znode is a success, whether a lost try
 * has deleted it or somebody else. */
static int znode_try_delete(zke *z, void *arg) {
  int rc = zke_delete(z, arg, -1);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Deleting another's znode is no clean-up, so it has no grace after a deadline:
 * it may wait as long as any call of the handle. */
int zke_recipe_delete(zke *z, const char *path) {
  int64_t limit = zke_recipe_limit(z, zke_recipe_patience(z));
  int rc = zke_retry(z, znode_try_delete, (void *)(uintptr_t)path, ZKE_FOREVER);
  zke_limit(z, limit);
  return rc;
}

/* Several deletions, and the code of the first that was refused. */
typedef struct znode_deletions {
  const zke_strings *paths;
  int refused;
} znode_deletions;

/* The function of a batch.  A missing znode counts as deleted; if one is
 * refused, the others are still deleted.  "": see zke_recipe_create_all(). */
static int znode_delete_each(zke *z, void *arg) {
  znode_deletions *d = arg;
  d->refused = ZKE_OK;
  for (int i = 0; i < d->paths->count; i++) {
    const char *path = d->paths->data[i];
    int rc = *path ? zke_delete(z, path, -1) : ZKE_OK;
    if (rc != ZKE_NONODE && d->refused == ZKE_OK) d->refused = rc;
  }
  return ZKE_OK;
}

/* One multi of deletions.  If one was refused, *culprit is its index, else -1;
 * "" is no operation. */
static int znode_delete_in_multi(zke *z, const char *const *paths, int count,
                                 int *culprit) {
  int rc = ZKE_NOMEM, n = 0;
  zke_op *ops = zke_alloc(z, (size_t)count * sizeof *ops);
  zke_op_result *results = zke_alloc(z, (size_t)count * sizeof *results);
  *culprit = -1;
  if (ops && results) {
    for (int i = 0; i < count; i++) {
      if (*paths[i]) zke_op_delete(&ops[n++], paths[i], -1);
    }
    rc = n ? zke_multi(z, ops, n, results) : ZKE_OK;
  }
  for (int i = 0, at = 0; rc != ZKE_OK && i < count && at < n; i++) {
    if (!*paths[i]) continue;
    if (*culprit < 0 && results[at].rc == rc) *culprit = i;
    at++;
  }
  zke_free(ops);
  zke_free(results);
  return rc;
}

/* The same for an engine without batches: a multi, repeated without the one
 * that was refused. */
static int znode_delete_by_multi(zke *z, znode_deletions *d) {
  int count = d->paths->count, rc = ZKE_NOMEM, culprit;
  const char **left = zke_alloc(z, (size_t)(count + 1) * sizeof *left);
  if (!left) return rc;
  for (int i = 0; i < count; i++) left[i] = d->paths->data[i];
  d->refused = ZKE_OK;
  for (;;) {
    rc = znode_delete_in_multi(z, left, count, &culprit);
    if (rc == ZKE_OK || culprit < 0) break;
    if (rc != ZKE_NONODE && d->refused == ZKE_OK) d->refused = rc;
    left[culprit] = "";
  }
  zke_free(left);
  return rc;
}

/* One try; after a lost reply, the next one finds the deleted znodes missing.
 */
static int znode_try_delete_all(zke *z, void *arg) {
  int rc = zke_batch(z, znode_delete_each, arg);
  return rc == ZKE_UNIMPLEMENTED ? znode_delete_by_multi(z, arg) : rc;
}

/* In one step, so they are never seen separately. */
int zke_recipe_delete_all(zke *z, const zke_strings *paths) {
  znode_deletions d = {paths, ZKE_OK};
  int rc = zke_retry(z, znode_try_delete_all, &d, ZKE_FOREVER);
  return rc == ZKE_OK ? d.refused : rc;
}

/* As zke_recipe_discard().  The names contain a guid, so nobody uses these
 * paths again, and no czxid is needed to tell znodes apart. */
int zke_recipe_discard_all(zke *z, const zke_strings *paths) {
  int64_t limit = zke_recipe_allow(z);
  int rc = zke_recipe_delete_all(z, paths);
  if (rc != ZKE_OK) {
    int sum = ZKE_OK;
    for (int i = 0; i < paths->count; i++) {
      znode_goer g = {paths->data[i], ZKE_EPHEMERAL, 0};
      rc = *g.path ? znode_discard(z, &g) : ZKE_OK;
      if (sum == ZKE_OK) sum = rc;
    }
    rc = sum;
  }
  zke_limit(z, limit);
  return rc;
}

/* ---- names and entries ---- */

enum { ZNODE_BARE_GUID = 32 }; /* hex digits of a guid without dashes */

/* The kind in a protected name, or NULL for any other name.  The guid of
 * zkembed and Curator is a UUID; go-zookeeper's has no dashes. */
static const char *znode_kind(const char *name) {
  size_t mark = strlen(ZKE_NAME_MARK);
  if (strncmp(name, ZKE_NAME_MARK, mark) != 0) return NULL;
  size_t bare = strspn(name + mark, "0123456789abcdef");
  size_t head = bare == ZNODE_BARE_GUID ? mark + bare : ZKE_NAME_HEAD;
  if (strnlen(name, head + 1) <= head || name[head] != '-') return NULL;
  return name + head + 1;
}

/* zke_creation_name() and the engine, which adds the number, make the names;
 * other children of the directory do not have this form.  It is matched
 * strictly, because anybody may put a child into a recipe's directory. */
bool zke_recipe_parse(const char *name, const char *const *kinds, int count,
                      zke_entry *out) {
  const char *kind = znode_kind(name);
  for (int i = 0; kind && i < count; i++) {
    size_t len = strlen(kinds[i]);
    int32_t number;
    if (strncmp(kind, kinds[i], len) != 0) continue;
    if (!zke_recipe_number(kind + len, &number)) continue;
    *out = (zke_entry){name, i, number};
    return true;
  }
  return false;
}

/* Do the first len bytes of a name end in this? */
static bool znode_ends(const char *name, size_t len, const char *end) {
  size_t size = strlen(end);
  return len >= size && memcmp(name + len - size, end, size) == 0;
}

/* kazoo's lock is <guid>__lock__<number>, for a reader __rlock__, and its
 * semaphore's permit is the guid alone.  Other clients, and ZooKeeper's page of
 * recipes, put "lock-" and the like before the number, with or without a text
 * before it; the locks that come with ZooKeeper are x-<session>-<number>. */
const char *zke_recipe_foreign(const char *name) {
  static const char *const others[] = {"lock-", "latch-", "lease-", NULL};
  size_t len = strlen(name), guid = strspn(name, "0123456789abcdef");
  int32_t number;
  if (len == ZNODE_BARE_GUID && guid == len) return "kazoo";
  if (len <= ZKE_RECIPE_DIGITS || znode_kind(name)) return NULL;
  len -= ZKE_RECIPE_DIGITS;
  if (!zke_recipe_number(name + len, &number)) return NULL;
  if (znode_ends(name, len, "__lock__") || znode_ends(name, len, "__rlock__"))
    return "kazoo";
  bool other = strncmp(name, "x-", 2) == 0 && name[len - 1] == '-';
  for (int i = 0; others[i] && !other; i++)
    other = znode_ends(name, len, others[i]);
  return other ? "another library" : NULL;
}

/* By number, as the difference of two 32-bit numbers.  The name breaks ties, to
 * give all processes the same order.  Entries of one kind that stay have
 * different numbers, none of them negative.  A number from the counter's end or
 * beyond it exists only until its creator takes it back (znode_check_number());
 * in that moment it may keep others waiting, and it lets no other in. */
static int znode_order(const void *a, const void *b) {
  const zke_entry *x = a, *y = b;
  int32_t by = (int32_t)((uint32_t)x->number - (uint32_t)y->number);
  if (by == 0) return strcmp(x->name, y->name);
  return by < 0 ? -1 : 1;
}

/* The entries among the names, in one block; NULL without memory.  Entries of
 * other libraries fill the array from its end. */
zke_entries *zke_recipe_parse_all(zke *z, const zke_strings *names,
                                  const char *const *kinds, int count) {
  size_t text = 0;
  for (int i = 0; i < names->count; i++) text += strlen(names->data[i]) + 1;
  zke_entries *e =
      zke_alloc(z, sizeof *e + (size_t)names->count * sizeof(zke_entry) + text);
  if (!e) return NULL;
  zke_entry *entry = (zke_entry *)(void *)(e + 1);
  char *copy = (char *)(entry + names->count);
  for (int i = 0; i < names->count; i++) {
    size_t size = strlen(names->data[i]) + 1;
    if (zke_recipe_parse(names->data[i], kinds, count, &entry[e->count]))
      entry[e->count++].name = memcpy(copy, names->data[i], size);
    else if (zke_recipe_foreign(names->data[i]))
      entry[names->count - ++e->others].name =
          memcpy(copy, names->data[i], size);
    else
      continue;
    copy += size;
  }
  qsort(entry, (size_t)e->count, sizeof *entry, znode_order);
  e->data = entry;
  e->other = entry + names->count - e->others;
  return e;
}

/* The names are copied after the entries: one block to free. */
int zke_recipe_entries(zke *z, const char *directory, const char *const *kinds,
                       int count, zke_watch_fn fn, void *context,
                       zke_entries **entries_out, zke_stat *stat_out) {
  zke_strings *names = NULL;
  int rc = zke_children(z, directory, fn, context, &names, stat_out);
  if (rc != ZKE_OK) return rc;
  zke_entries *e = zke_recipe_parse_all(z, names, kinds, count);
  zke_free(names);
  if (!e) return ZKE_NOMEM;
  *entries_out = e;
  return ZKE_OK;
}

/* Room for one more, since a block has at least one byte. */
int zke_recipe_read_entries(zke *z, const char *directory,
                            const zke_entries *entries,
                            zke_op_result **got_out) {
  size_t room = (size_t)entries->count + 1;
  zke_op *ops = zke_alloc(z, room * sizeof *ops);
  zke_op_result *got = zke_alloc(z, room * sizeof *got);
  int count = 0, rc = ops && got ? ZKE_OK : ZKE_NOMEM;
  while (rc == ZKE_OK && count < entries->count) {
    char *path = zke_recipe_path(z, directory, entries->data[count].name);
    if (path) zke_op_get(&ops[count++], path);
    rc = path ? ZKE_OK : ZKE_NOMEM;
  }
  if (rc == ZKE_OK) rc = zke_recipe_multi_read(z, ops, count, got);
  while (count > 0) zke_free((void *)(uintptr_t)ops[--count].path);
  zke_free(ops);
  if (rc != ZKE_OK) {
    zke_free(got);
    got = NULL;
  }
  *got_out = got;
  return rc;
}

/* The guid makes names unique, so the first match is the one. */
int zke_recipe_find(const zke_entries *entries, const char *name) {
  for (int i = 0; i < entries->count; i++) {
    if (strcmp(entries->data[i].name, name) == 0) return i;
  }
  return -1;
}

/* ---- owners of znodes ---- */

/* The former owner of a znode is not a known session.  If it still owns the
 * znode, it lives: on an ensemble it may not have published its node.
 * Otherwise it has ended since: ZKE_NONODE. */
static int znode_ask_owner(zke *z, const char *path, int64_t session) {
  zke_stat stat;
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  if (rc != ZKE_OK) return rc;
  return stat.ephemeralOwner == session ? ZKE_OK : ZKE_NONODE;
}

/* For zke_retry().  After a lost reply the session has gone, which is fine. */
static int znode_try_expire(zke *z, void *arg) {
  return zke_expire(z, *(const int64_t *)arg);
}

/* The session that owned a znode when it was read; returns as
 * zke_recipe_bury().  *who stays NULL if it cannot be shown; else it is for
 * zke_free(), whatever this returns. */
static int znode_owner(zke *z, const char *path, int64_t session,
                       zke_session_list **who) {
  int rc = zke_sessions(z, session, who);
  if (rc == ZKE_NONODE) return znode_ask_owner(z, path, session);
  if (rc != ZKE_OK || (*who)->data[0].alive || (*who)->data[0].timeout_ms)
    return rc;
  rc = zke_retry(z, znode_try_expire, &session, ZKE_FOREVER);
  return rc == ZKE_OK ? ZKE_NONODE : rc;
}

int zke_recipe_bury(zke *z, const char *path, int64_t session) {
  zke_session_list *who = NULL;
  int rc = session ? znode_owner(z, path, session, &who) : ZKE_OK;
  zke_free(who);
  return rc;
}

/* Znodes of one owner often stand together; then it is asked once. */
int zke_recipe_bury_all(zke *z, const char *directory,
                        const zke_strings *names) {
  int64_t lives = 0;
  bool gone = false;
  for (int i = 0; names && i < names->count; i++) {
    zke_stat stat;
    char *path = zke_recipe_path(z, directory, zke_recipe_name(names->data[i]));
    if (!path) return ZKE_NOMEM;
    int rc = zke_exists(z, path, NULL, NULL, &stat);
    if (rc == ZKE_OK && stat.ephemeralOwner != lives)
      rc = zke_recipe_bury(z, path, stat.ephemeralOwner);
    if (rc == ZKE_OK) lives = stat.ephemeralOwner;
    gone = gone || rc == ZKE_NONODE;
    zke_free(path);
  }
  return gone ? ZKE_NONODE : ZKE_OK;
}

/* When a holder took office: the time when it wrote "held", else when it came.
 */
int64_t zke_recipe_since(const zke_stat *stat, const char *data) {
  bool wrote = data && strncmp(data, "held ", 5) == 0;
  return wrote ? stat->mtime : stat->ctime;
}

/* A holder that cannot be read has gone, or its owner cannot be known. */
int zke_recipe_say_hidden(int rc, const char *what, int found) {
  const char *how = found == ZKE_NONODE
                        ? "was held, but is no longer"
                        : "is held; by which process cannot be read";
  return zke_recipe_fail(rc, "%s %s", what, how);
}

/* The owner is read anyway, so checking that it lives costs nothing. */
int zke_recipe_say_held(zke *z, int rc, const char *what, const char *path) {
  char *data = NULL, when[ZKE_RECIPE_WHEN];
  zke_stat stat;
  zke_session_list *who = NULL;
  int found = zke_get(z, path, NULL, NULL, &data, NULL, &stat);
  if (found == ZKE_OK) found = znode_owner(z, path, stat.ephemeralOwner, &who);
  if (found == ZKE_NONODE && rc == ZKE_HELD) {
    rc = found;
  } else if (found != ZKE_OK || !who) {
    rc = zke_recipe_say_hidden(rc, what, found);
  } else {
    zke_recipe_when(zke_recipe_since(&stat, data), when);
    const char *own = "";
    if (stat.ephemeralOwner == zke_session_id(z))
      own = ", this very session,";
    else if (znode_is_own(path))
      own = ", another handle of this very process,";
    zke_fail(rc, "%s is held by %s (pid %" PRId64 ")%s since %s", what,
             who->data[0].identity, who->data[0].pid, own, when);
  }
  zke_free(who);
  zke_free(data);
  return rc;
}
