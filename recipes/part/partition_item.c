/* partition_item.c - holding one item of a partition
 *
 * This file knows the znode of an item and its twin, and the states through
 * which a member gets the item and gives it up.  partition_plan.c decides which
 * items the member gets, and tells it (mine).
 *
 * The znode of an item has the same path for every owner, and its versions do
 * not distinguish owners.  So each creation also makes a twin, in the same
 * step: a znode with a name that is never used again.  The item's data names
 * the twin.  To take, release or leave an item, one step deletes both.  If the
 * item has another owner by then, the twin has gone, and the step changes
 * nothing.
 *
 * Invariant: every deletion of a znode here knows its twin: this object's own
 * (twin), or the one that the znode's data names (seen).  If somebody has
 * deleted only the twin, the item is deleted by its path after a look at its
 * czxid: an owner that comes in between is not noticed.
 *
 * A lost reply: the data of an item's znode also names its owner's member
 * znode, which has a unique name.  So a look at it shows whether the creation
 * was made, and which twin belongs to it (item_note_owner()).  If the plan
 * changes before that look, the znode is deleted (item_withdraw()).
 *
 * Start reading at zke_pt_item_step() and item_try_acquire(); for the other way
 * at zke_pt_item_release() and item_delete(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "partition_item.h"

#include <stdio.h>
#include <string.h>

#include "limit.h"
#include "text.h"
#include "znode.h"

#define ITEM_PREFIX "item-"
#define TWIN_PREFIX "own-"

/* The length of a twin's name: the prefix, and a guid without its NUL. */
enum { TWIN_NAME = sizeof TWIN_PREFIX - 1 + ZKE_RECIPE_GUID - 1 };

/* ---- names ---- */

/* Is the byte kept as it is in a znode's name?  All others become %XX, so any
 * text can be an item, and two items never have one znode. */
static bool character_is_plain(unsigned char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
         (c >= 'a' && c <= 'z') || c == '-' || c == '_';
}

/* "directory/item-<item>" in one block; NULL without memory. */
static char *name_path(zke *z, const char *directory, const char *item) {
  return zke_recipe_escape(z, directory, ITEM_PREFIX, item, character_is_plain);
}

/* The value of a hexadecimal digit, or -1. */
static int name_digit(char c) {
  const char *digits = "0123456789ABCDEF";
  const char *at = c ? strchr(digits, c) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* The result is never longer than the input.  Strict, since anybody may put a
 * node of any name next to those of members. */
bool zke_pt_read_name(char *name) {
  char *text = name;
  if (strncmp(name, ITEM_PREFIX, strlen(ITEM_PREFIX)) != 0) return false;
  for (name += strlen(ITEM_PREFIX); *name; name++) {
    if (*name == '%') {
      int high = name_digit(name[1]), low = high < 0 ? -1 : name_digit(name[2]);
      if (low < 0) return false;
      *text++ = (char)(high * 16 + low);
      name += 2;
    } else if (character_is_plain((unsigned char)*name)) {
      *text++ = *name;
    } else {
      return false;
    }
  }
  *text = '\0';
  return true;
}

/* Is it the name of a twin, as a member makes it? */
static bool name_is_twin(const char *name) {
  size_t prefix = strlen(TWIN_PREFIX);
  return strlen(name) == TWIN_NAME && strncmp(name, TWIN_PREFIX, prefix) == 0 &&
         strspn(name + prefix, "0123456789abcdef-") == TWIN_NAME - prefix;
}

/* Room for the path of a twin; NULL without memory. */
static char *name_twin_room(zke *z, const char *directory) {
  return zke_alloc(z, strlen(directory) + TWIN_NAME + 2);
}

/* Write "directory/<name of a twin>" to a block of name_twin_room(). */
static void name_twin_path(const char *directory, const char *name,
                           char *path) {
  snprintf(path, strlen(directory) + TWIN_NAME + 2, "%s/%s", directory, name);
}

/* The paths of twins change with each creation, and there is room for any. */
int zke_pt_item_init(zke_partition *p, const char *name, zke_pt_item *it) {
  zke *z = p->r.z;
  it->p = p;
  it->name = zke_recipe_copy(z, name, strlen(name));
  it->path = name_path(z, p->items, name);
  it->twin = name_twin_room(z, p->items);
  it->seen = name_twin_room(z, p->items);
  bool whole = it->name && it->path && it->twin && it->seen;
  return whole ? ZKE_OK : ZKE_NOMEM;
}

/* Some of them may be missing. */
void zke_pt_item_clear(zke_pt_item *it) {
  zke_free(it->name);
  zke_free(it->path);
  zke_free(it->twin);
  zke_free(it->seen);
}

/* ---- telling and forgetting ---- */

/* An item stays held after the request, until it is released. */
bool zke_pt_item_is_held(const zke_pt_item *it) {
  return it->state == ZKE_PT_OWNED || it->state == ZKE_PT_ASKED;
}

/* Queue an event for the listener, with the item and its token. */
static void item_tell(const zke_pt_item *it, int event) {
  zke_recipe_tell(&it->p->r, event, it->token, it->name, (int)strlen(it->name));
}

/* A held item is held no more.  Notes that the listener has not heard are
 * dropped, since another member may have the item by then; LOST is told only if
 * it has heard ACQUIRED.
 *
 *   tell  the listener did not ask for this */
static void item_tell_end(const zke_pt_item *it, bool tell) {
  zke_recipe_untell(&it->p->r, ZKE_PARTITION_RELEASE, it->name);
  if (zke_recipe_untell(&it->p->r, ZKE_PARTITION_ACQUIRED, it->name)) return;
  if (tell) item_tell(it, ZKE_PARTITION_LOST);
}

/* `tried` stays: a znode may exist all the same. */
void zke_pt_item_drop(zke_pt_item *it) {
  it->state = ZKE_PT_NONE;
  it->token = 0;
}

/* Delete the twin of this object's znode, now or later.  No other znode has
 * that name. */
static int item_discard_twin(zke_pt_item *it) {
  if (!it->paired) return ZKE_OK;
  it->paired = false;
  return zke_recipe_discard(it->p->r.z, it->twin, ZKE_EPHEMERAL, 0);
}

/* The item is held no more; the listener hears this if it was held.  An item
 * that was only wanted is dropped without a note.  A twin is left if only the
 * item's znode was deleted, by another program. */
static void item_lose(zke_pt_item *it) {
  if (zke_pt_item_is_held(it)) {
    item_tell_end(it, true);
    if (!it->p->r.ended) item_discard_twin(it);
  }
  zke_pt_item_drop(it);
}

/* Take the watch back, before this object deletes its own znode of the item:
 * otherwise its event would stay in the queue until the next dispatch. */
static void item_unwatch(zke_pt_item *it) {
  if (it->watched)
    zke_remove_watch(it->p->r.z, it->path, ZKE_WATCH_DATA, zke_recipe_watcher,
                     &it->p->r);
  it->watched = false;
}

/* ---- looking ---- */

/* Does the data of an item's znode say that this object has made it? */
static bool item_is_own(const zke_partition *p, const char *data) {
  size_t length = p->znode ? strlen(p->znode) : 0;
  return data && length && strncmp(data, p->znode, length) == 0 &&
         data[length] == '\n';
}

/* Read the name of the twin in the data of an item's znode. */
static void item_read_twin(zke_pt_item *it, const char *data) {
  const char *line = data ? strchr(data, '\n') : NULL;
  *it->seen = '\0';
  if (line && name_is_twin(line + 1))
    name_twin_path(it->p->items, line + 1, it->seen);
}

/* The twin that was read belongs to this object's own znode. */
static void item_adopt_twin(zke_pt_item *it) {
  memcpy(it->twin, it->seen, strlen(it->seen) + 1);
  it->paired = *it->twin != '\0';
}

/* Read an item's znode, and the name of its twin.  mine: this object has made
 * it, not another member on the same handle. */
static int item_read(zke_pt_item *it, bool watch, zke_stat *stat, bool *mine) {
  zke_recipe *r = &it->p->r;
  char *data = NULL;
  int rc = zke_get(r->z, it->path, watch ? zke_recipe_watcher : NULL, r, &data,
                   NULL, stat);
  if (rc == ZKE_OK) item_read_twin(it, data);
  *mine = rc == ZKE_OK && item_is_own(it->p, data);
  zke_free(data);
  return rc;
}

/* Look at an item's znode, and watch it unless it is watched.  A missing znode
 * gets no watch: the caller makes it, or gives it up. */
static int item_look(zke_pt_item *it, zke_stat *stat, bool *mine) {
  int rc = item_read(it, !it->watched, stat, mine);
  if (rc == ZKE_OK) it->watched = true;
  return rc;
}

/* Has a held item gone, or does it have another owner?  If the read fails, it
 * counts as held. */
static bool item_is_gone(const zke_pt_item *it) {
  zke_stat stat;
  int rc = zke_exists(it->p->r.z, it->path, NULL, NULL, &stat);
  return rc == ZKE_NONODE || (rc == ZKE_OK && stat.czxid != it->token);
}

/* By now the path may belong to another member, or to a later znode of this
 * object: so this compares the data, and the czxid. */
int zke_pt_item_check(zke_pt_item *it) {
  zke_stat stat;
  bool mine;
  int rc = item_look(it, &stat, &mine);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  if (mine && stat.czxid == it->token) return ZKE_OK;
  item_lose(it);
  return ZKE_LOST;
}

/* ---- getting it ---- */

/* Make this object's znode of the item and its twin, in one step with the first
 * n operations in ops; there must be room for two more.  Each creation gets a
 * twin of a new name. */
static int item_make(zke_pt_item *it, zke_op *ops, int n) {
  const zke_partition *p = it->p;
  char name[TWIN_NAME + 1] = TWIN_PREFIX;
  size_t size = strlen(p->znode) + TWIN_NAME + 2;
  char *data = zke_alloc(p->r.z, size);
  if (!data) return ZKE_NOMEM;
  zke_recipe_guid(p->r.z, name + strlen(TWIN_PREFIX));
  name_twin_path(p->items, name, it->twin);
  it->paired = true;
  snprintf(data, size, "%s\n%s", p->znode, name);
  zke_op_create(&ops[n], it->path, data, (int)strlen(data), ZKE_OPEN_ACL,
                ZKE_EPHEMERAL);
  zke_op_create(&ops[n + 1], it->twin, "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  int rc = zke_recipe_multi(p->r.z, ops, n + 2, NULL);
  zke_free(data);
  return rc;
}

/* The item's znode is its lock.  ZKE_NODEEXISTS: another member still has its
 * znode there and must release it first, or this try was made before its reply
 * was lost. */
static int item_create(zke_pt_item *it) {
  zke_op ops[2];
  return item_make(it, ops, 0);
}

/* Delete another member's znode of the item, and its twin unless that is "".
 * The same step makes this object's own.  ZKE_NONODE: one of the two to be
 * deleted has gone. */
static int item_replace(zke_pt_item *it, const char *twin) {
  zke_op ops[4];
  int n = 0;
  if (*twin) zke_op_delete(&ops[n++], twin, -1);
  zke_op_delete(&ops[n++], it->path, -1);
  return item_make(it, ops, n);
}

/* The owner has not released the item in time: take it, in one step, so there
 * is no moment without an owner in which a third member could come.
 *
 * Only the owner that was waited for has used up its time.  If its twin can be
 * deleted, it still has the item.  The look before finds out whether only the
 * twin has gone: then another program has deleted it, and the item is taken
 * without.  ZKE_LOOK_AGAIN: the znode is another one.  Its owner has just got
 * the item, or it is this object's, made by a try that lost its reply. */
static int item_take(zke_pt_item *it) {
  const char *twin = it->seen;
  zke_stat stat;
  for (;;) {
    int rc = zke_exists(it->p->r.z, it->path, NULL, NULL, &stat);
    if (rc != ZKE_OK) return rc;
    if (stat.czxid != it->awaited) return ZKE_LOOK_AGAIN;
    rc = item_replace(it, twin);
    if (rc != ZKE_NONODE || !*twin) return rc;
    twin = "";
  }
}

/* Something is at the item's path.  If it is this object's znode, it has the
 * item; else it waits for the other znode to go.  The owner's time to release
 * the item begins when this member first sees its znode.  ZKE_LOOK_AGAIN: it
 * has gone in between. */
static int item_note_owner(zke_pt_item *it) {
  zke_stat stat;
  bool mine;
  int rc = item_look(it, &stat, &mine);
  if (rc == ZKE_NONODE) return ZKE_LOOK_AGAIN;
  if (rc != ZKE_OK) return rc;
  it->tried = false;
  if (mine && !zke_pt_item_is_held(it)) {
    it->state = ZKE_PT_OWNED;
    it->token = stat.czxid;
    item_adopt_twin(it);
    item_tell(it, ZKE_PARTITION_ACQUIRED);
  } else if (!mine &&
             (it->state != ZKE_PT_WANTED || it->awaited != stat.czxid)) {
    it->state = ZKE_PT_WANTED;
    it->awaited = stat.czxid;
    it->since = zke_now(it->p->r.z);
  }
  return ZKE_OK;
}

/* Has the holder used up its time to release the item?  release_ms 0: there is
 * no limit. */
static bool item_is_overdue(const zke_pt_item *it) {
  int64_t time = it->p->release_ms;
  return it->state == ZKE_PT_WANTED && time &&
         zke_now(it->p->r.z) - it->since >= time;
}

/* One step: get an item that the plan gives to this member.  ZKE_LOOK_AGAIN: it
 * changed hands in between.  ZKE_NONODE: the directory has gone. */
static int item_try_acquire(zke *z, void *arg) {
  zke_pt_item *it = arg;
  int rc = ZKE_LOOK_AGAIN;
  (void)z;
  if (it->state == ZKE_PT_WANTED && it->watched && !item_is_overdue(it))
    return ZKE_OK; /* an event will come */
  it->tried = true;
  if (item_is_overdue(it)) {
    rc = item_take(it);
    it->watched = it->watched && rc != ZKE_OK; /* the watched one has gone */
    if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
  }
  if (rc == ZKE_LOOK_AGAIN) rc = item_create(it);
  return rc == ZKE_OK || rc == ZKE_NODEEXISTS ? item_note_owner(it) : rc;
}

/* ---- giving it up ---- */

/* Without the twin the step fails: then the item has another owner. */
zke_op *zke_pt_add_removal(zke_op *op, const zke_pt_item *it) {
  zke_op_delete(op++, it->twin, -1);
  zke_op_delete(op++, it->path, -1);
  return op;
}

/* Delete this object's znode of an item, and its twin. */
static int item_try_delete(zke *z, void *arg) {
  zke_op ops[ZKE_PT_REMOVAL_OPS];
  zke_pt_add_removal(ops, arg);
  return zke_recipe_multi(z, ops, ZKE_PT_REMOVAL_OPS, NULL);
}

/* Delete this object's znode of an item with its twin: in one step, which
 * changes nothing if the item has another owner by now.  If that step failed,
 * or may have been made, they are discarded one by one, now or later: the znode
 * by its czxid, 0 for any of the session.  The twin goes last, so a znode is
 * never without one. */
static int item_delete(zke_pt_item *it, int64_t czxid) {
  zke *z = it->p->r.z;
  int rc = ZKE_NONODE, twin = ZKE_OK;
  int64_t limit = zke_recipe_allow(z);
  if (czxid && it->paired) rc = zke_retry(z, item_try_delete, it, ZKE_FOREVER);
  if (rc != ZKE_OK) {
    rc = zke_recipe_discard(z, it->path, ZKE_EPHEMERAL, czxid);
    twin = item_discard_twin(it);
  }
  it->paired = false;
  zke_limit(z, limit);
  return rc == ZKE_OK ? twin : rc;
}

/* A creation was tried and may have worked: find the znode it has made.  There
 * is none if the znode is missing, or is not this object's. */
static int item_try_find(zke *z, void *arg) {
  zke_pt_item *it = arg;
  zke_stat stat;
  bool mine;
  (void)z;
  int rc = item_read(it, false, &stat, &mine);
  it->found = mine ? stat.czxid : 0;
  if (mine) item_adopt_twin(it);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Delete the znode that item_try_find() has found.  If there is none, delete
 * the twin of the last try, if it exists: the item's znode may have been
 * deleted without it. */
static int item_delete_found(zke_pt_item *it) {
  return it->found ? item_delete(it, it->found) : item_discard_twin(it);
}

/* If it is not known whether a creation has worked, any znode of the session at
 * the path is deleted.  If that is another member's on the same handle, that
 * member hears that it has lost the item, and takes it again. */
int zke_pt_item_discard(zke_pt_item *it) {
  zke *z = it->p->r.z;
  if (zke_pt_item_is_held(it)) return item_delete(it, it->token);
  if (!it->tried) return ZKE_OK;
  it->tried = false;
  int64_t limit = zke_recipe_allow(z);
  int rc = zke_retry(z, item_try_find, it, ZKE_FOREVER);
  zke_limit(z, limit);
  return rc == ZKE_OK ? item_delete_found(it) : item_delete(it, 0);
}

/* This member has waited for the item, or has tried to get it, and the plan now
 * gives it to another member.  A creation may have made a znode unnoticed:
 * delete it.  Otherwise the next owner would wait for a member that does not
 * know that it has the item.  If the look fails, `tried` stays, and the next
 * step looks. */
static int item_withdraw(zke_pt_item *it) {
  item_unwatch(it);
  zke_pt_item_drop(it);
  if (!it->tried) return ZKE_OK;
  int rc = zke_retry(it->p->r.z, item_try_find, it, ZKE_FOREVER);
  if (rc != ZKE_OK) return rc;
  it->tried = false;
  return item_delete_found(it);
}

/* If the item was taken away in between, this tells the listener that it is
 * lost: the event for that would go with the watch. */
int zke_pt_item_release(zke_pt_item *it) {
  bool gone = item_is_gone(it);
  item_unwatch(it);
  if (gone) {
    item_lose(it);
    return ZKE_LOST;
  }
  int rc = zke_pt_item_discard(it);
  zke_pt_item_drop(it);
  return rc;
}

/* If the item was taken away before, this tells the listener that it is lost,
 * even if the member leaves by itself. */
bool zke_pt_item_leave(zke_pt_item *it, bool tell) {
  if (zke_pt_item_is_held(it) && item_is_gone(it))
    item_lose(it);
  else if (zke_pt_item_is_held(it))
    item_tell_end(it, tell);
  item_unwatch(it);
  return zke_pt_item_is_held(it) || !it->tried;
}

/* The znode of a living session still exists.  It is deleted now; otherwise
 * others would wait for it in vain, and so would this object, once it is
 * started again. */
void zke_pt_item_abandon(zke_pt_item *it) {
  if (!it->p->r.ended) {
    item_unwatch(it);
    zke_pt_item_discard(it);
  }
  item_lose(it);
}

/* ---- the step ---- */

/* First check whether this member still holds the item; the rest depends on it.
 * A release is only asked for here: the listener, or the program, does it
 * (zke_partition_release()). */
int zke_pt_item_step(zke_pt_item *it) {
  int rc = ZKE_OK;
  if (zke_pt_item_is_held(it) && !it->watched) rc = zke_pt_item_check(it);
  if (rc != ZKE_OK && rc != ZKE_LOST) return rc;
  if (it->mine && !zke_pt_item_is_held(it))
    return zke_recipe_do(it->p->r.z, item_try_acquire, it, ZKE_FOREVER);
  if (!it->mine && it->state == ZKE_PT_OWNED) {
    it->state = ZKE_PT_ASKED;
    item_tell(it, ZKE_PARTITION_RELEASE);
  } else if (!it->mine && (it->state == ZKE_PT_WANTED || it->tried)) {
    return item_withdraw(it);
  }
  return ZKE_OK;
}
