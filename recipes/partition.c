/* partition.c - a set of work items, divided among the members
 *
 * There is no coordinator.  Each member computes the same plan from the same
 * facts, and the item's znode decides who has it.  One look (part_step()):
 *
 *   1. Read the members and their names, and watch the directory
 *      (zke_pt_plan_read()).  If this member's znode is not among them, all is
 *      lost.
 *   2. Watch the member before this one in the list, so its death is noticed
 *      immediately (part_watch_neighbour()).
 *   3. Divide: for each item in the order of its bytes take the member with the
 *      highest hash among the members that have room (zke_pt_plan_choose()).
 *   4. First release: ask the listener to release the items that go to another
 *      member (RELEASE).  The znode stays until the listener has done so.
 *   5. Then take: create the znode of each item that the plan gives to this
 *      member.  If the znode exists already, its owner must release it first:
 *      watch it, and look again when it goes, or after release_ms
 *      (zke_pt_item_step()).
 *
 * Two members may have read different lists for a moment and want the same
 * item.  That costs a wait, but never gives two owners, since a znode is made
 * only once.  When the lists agree, so do the plans.  If a process dies
 * anywhere, its znodes go with its session in one step, and the others repeat 1
 * to 5.
 *
 * part/partition_item.c says how a member takes and releases one item, why a
 * late step does not hit the next owner, and what happens after a lost reply.
 *
 * Start reading at part_step() and part_follow(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "partition.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/partition_item.h"
#include "part/partition_plan.h"
#include "part/text.h"
#include "part/znode.h"

#define PARTITION_PLACE "partition"
#define ITEMS_PLACE "partition-items"

/* ---- one look ---- */

/* The membership was taken away: the znode was deleted, or the session has
 * ended.  The listener hears of each item. */
static void part_lose(zke_partition *p) {
  if (!p->znode) return;
  for (int i = 0; i < p->count; i++) zke_pt_item_abandon(&p->item[i]);
  zke_free(p->znode);
  p->znode = NULL;
  p->gone = true;
}

/* Make the directory of the items' znodes if it is missing: it is a container,
 * and goes when it has been empty for a while. */
static int part_place_items(zke_partition *p) {
  return zke_recipe_place(p->r.z, p->items, ITEMS_PLACE, ZKE_CONTAINER, NULL,
                          ZKE_FOREVER);
}

/* Note which items the plan gives to this member, and move each item towards
 * that.  Releases come first, so members that exchange items do not wait longer
 * for each other than they must.  If the directory has gone, make it and try
 * the item again, whatever its state: an item that this member waits for has
 * lost its watch. */
static int part_follow(zke_partition *p, zke_pt_plan *plan, int self) {
  for (int i = 0; i < p->count; i++)
    p->item[i].mine =
        zke_pt_plan_choose(plan, p->item[i].name, p->count) == self;
  int rc = ZKE_OK;
  for (int mine = 0; mine <= 1; mine++) {
    for (int i = 0; i < p->count && rc == ZKE_OK; i++) {
      if (p->item[i].mine != mine) continue;
      rc = zke_pt_item_step(&p->item[i]);
      if (rc != ZKE_NONODE) continue;
      rc = part_place_items(p);
      if (rc == ZKE_OK) rc = zke_pt_item_step(&p->item[i]);
    }
  }
  return rc;
}

/* Remove the watch of the neighbour: it is another member now. */
static void part_forget_neighbour(zke_partition *p) {
  if (!p->neighbour) return;
  zke_remove_watch(p->r.z, p->neighbour, ZKE_WATCH_DATA, zke_recipe_watcher,
                   &p->r);
  zke_free(p->neighbour);
  p->neighbour = NULL;
}

/* Watch the member before this one; the first member watches the last.  When
 * the owner of a watched znode dies, the kernel tells it immediately; the
 * watcher removes the dead session, and the watch of the directory then tells
 * all the others. */
static int part_watch_neighbour(zke_partition *p, const zke_pt_plan *plan,
                                int self) {
  int before = (self + plan->count - 1) % plan->count;
  const char *znode = plan->members[before].znode;
  if (p->neighbour && strcmp(zke_recipe_name(p->neighbour), znode) == 0)
    return ZKE_OK;
  part_forget_neighbour(p);
  if (before == self) return ZKE_OK;
  char *path = zke_recipe_path(p->r.z, p->members, znode);
  if (!path) return ZKE_NOMEM;
  int rc = zke_get(p->r.z, path, zke_recipe_watcher, &p->r, NULL, NULL, NULL);
  if (rc == ZKE_OK)
    p->neighbour = path;
  else
    zke_free(path);
  return rc == ZKE_NONODE ? ZKE_OK : rc; /* the directory's watch tells */
}

/* One look: the members, the neighbour, and the items to take, to keep and to
 * release.  If the member's znode is not among the others, it has lost its
 * place. */
static int part_step(zke_recipe *r) {
  zke_partition *p = (zke_partition *)r;
  zke_pt_plan plan;
  if (!p->znode) return ZKE_OK;
  bool watch = !p->members_watched;
  int rc = zke_pt_plan_read(r, p->members, watch, &plan);
  if (rc == ZKE_NONODE) {
    part_lose(p);
    return ZKE_OK;
  }
  if (rc != ZKE_OK) return rc;
  p->members_watched = true;
  int self = zke_pt_plan_find(&plan, p->znode);
  if (self < 0)
    part_lose(p);
  else
    rc = part_watch_neighbour(p, &plan, self);
  if (rc == ZKE_OK && self >= 0) rc = part_follow(p, &plan, self);
  zke_pt_plan_free(&plan);
  return rc;
}

/* Notes the fired watches, so the step sets them again. */
static void part_event(zke_recipe *r, int type, const char *path) {
  zke_partition *p = (zke_partition *)r;
  bool all = type == ZKE_EVENT_OVERFLOW;
  if (all || strcmp(path, p->members) == 0) p->members_watched = false;
  if (p->neighbour && (all || strcmp(path, p->neighbour) == 0)) {
    zke_free(p->neighbour);
    p->neighbour = NULL;
  }
  for (int i = 0; i < p->count; i++) {
    if (all || strcmp(path, p->item[i].path) == 0) p->item[i].watched = false;
  }
}

/* ---- giving up, and the class ---- */

/* The session has ended: all items are lost with it, and others have them
 * already or soon. */
static void part_ended(zke_recipe *r) { part_lose((zke_partition *)r); }

/* Call the listener, without the mutex.  The text is the item, the number its
 * token. */
static void part_deliver(zke_recipe *r, int event, int64_t number,
                         const char *text, int len) {
  zke_partition *p = (zke_partition *)r;
  (void)len;
  if (p->listener) p->listener(p, event, text, number, p->context);
}

/* Delete the znodes of all items that this member has, and its own last: in one
 * step.  ZKE_NONODE: one of them has gone, or an item is another's by now, and
 * none was deleted. */
static int part_delete_all(zke_partition *p) {
  size_t room = ZKE_PT_REMOVAL_OPS * (size_t)p->count + 1;
  zke_op *ops = zke_alloc(p->r.z, room * sizeof *ops), *op = ops;
  if (!ops) return ZKE_NOMEM;
  for (int i = 0; i < p->count; i++) {
    if (zke_pt_item_is_held(&p->item[i]))
      op = zke_pt_add_removal(op, &p->item[i]);
  }
  zke_op_delete(op++, p->znode, -1);
  int rc = zke_recipe_multi(p->r.z, ops, (int)(op - ops), NULL);
  zke_free(ops);
  return rc;
}

/* Delete the items' znodes one by one, now or later, if the one step failed or
 * is in doubt. */
static int part_discard_all(zke_partition *p) {
  int rc = ZKE_OK;
  for (int i = 0; i < p->count; i++) {
    int one = zke_pt_item_discard(&p->item[i]);
    if (rc == ZKE_OK) rc = one;
  }
  int own = zke_recipe_discard(p->r.z, p->znode, ZKE_EPHEMERAL, 0);
  return rc == ZKE_OK ? own : rc;
}

/* Give everything up, in one step if possible.  An item that was taken away is
 * left out, and reported as lost.  If its next owner takes an item after that,
 * the step fails, and the item stays with that owner.
 *
 *   tell  the listener did not ask for this, and hears of each item */
static int part_quit(zke_partition *p, bool tell) {
  bool known = true;
  if (!p->znode) return ZKE_OK;
  for (int i = 0; i < p->count; i++)
    known = zke_pt_item_leave(&p->item[i], tell) && known;
  int rc = known ? part_delete_all(p) : ZKE_NONODE;
  if (rc != ZKE_OK) rc = part_discard_all(p);
  part_forget_neighbour(p);
  for (int i = 0; i < p->count; i++) zke_pt_item_drop(&p->item[i]);
  zke_free(p->znode);
  p->znode = NULL;
  return rc;
}

/* The object is freed: others can have its items immediately. */
static void part_going(zke_recipe *r) { part_quit((zke_partition *)r, false); }

/* No znode is left at this point: quit has discarded them. */
static void part_destroy(zke_recipe *r) {
  zke_partition *p = (zke_partition *)r;
  for (int i = 0; i < p->count; i++) zke_pt_item_clear(&p->item[i]);
  zke_free(p->item);
  zke_free(p->members);
  zke_free(p->items);
  zke_free(p->data);
  zke_free(p->znode);
  zke_free(p->neighbour);
}

static const zke_recipe_class part_class = {.name = "partition",
                                            .event = part_event,
                                            .step = part_step,
                                            .ended = part_ended,
                                            .deliver = part_deliver,
                                            .quit = part_going,
                                            .destroy = part_destroy};

/* ---- making one ---- */

/* For qsort(): items by name. */
static int part_order(const void *a, const void *b) {
  return strcmp(((const zke_pt_item *)a)->name, ((const zke_pt_item *)b)->name);
}

/* The items are sorted: so members divide the same items in the same way,
 * whatever order they were given in. */
static int part_fill(zke_partition *p, const char *const *items, int count) {
  int rc = ZKE_OK;
  p->item = zke_alloc(p->r.z, (size_t)count * sizeof *p->item);
  if (!p->members || !p->items || !p->item) return ZKE_NOMEM;
  while (p->count < count && rc == ZKE_OK) {
    const char *name = items[p->count];
    if (!name || !*name)
      return zke_recipe_fail(ZKE_BADARGUMENTS, "an item is empty");
    rc = zke_pt_item_init(p, name, &p->item[p->count++]);
  }
  if (rc != ZKE_OK) return rc;
  qsort(p->item, (size_t)count, sizeof *p->item, part_order);
  for (int i = 1; i < count; i++) {
    if (part_order(&p->item[i - 1], &p->item[i]) == 0)
      return zke_recipe_fail(ZKE_BADARGUMENTS, "the item %s is there twice",
                             p->item[i].name);
  }
  return ZKE_OK;
}

/* The data of this member's znode, from the items in their order. */
static int part_describe(zke_partition *p, const char *name) {
  uint64_t hash = ZKE_PT_HASH;
  for (int i = 0; i < p->count; i++) hash = zke_pt_hash(hash, p->item[i].name);
  p->data = zke_pt_member_data(p->r.z, hash, name);
  return p->data ? ZKE_OK : ZKE_NOMEM;
}

/* Check the arguments without touching the file: so a caller's mistake is
 * reported whatever the handle's state. */
static int part_check(const char *const *items, int count,
                      const zke_partition_options *o) {
  if (!items || count < 1)
    return zke_recipe_fail(ZKE_BADARGUMENTS, "there are no items");
  if (o->release_ms < 0 || (o->name && strchr(o->name, '\n')))
    return zke_recipe_fail(ZKE_BADARGUMENTS, "name or release_ms");
  return ZKE_OK;
}

/* Makes no znode; joining does. */
int zke_partition_new(zke *z, const char *path, const char *const *items,
                      int count, const zke_partition_options *options,
                      zke_partition **p_out) {
  zke_partition_options o;
  zke_recipe *r = NULL;
  int rc = zke_recipe_options(p_out, options, &o, zke_partition_options);
  if (rc == ZKE_OK) rc = part_check(items, count, &o);
  if (rc == ZKE_OK)
    rc = zke_recipe_new(z, path, &part_class, sizeof(zke_partition), &r);
  if (rc != ZKE_OK) return rc;
  zke_partition *p = (zke_partition *)r;
  p->members = zke_recipe_path(z, path, "members");
  p->items = zke_recipe_path(z, path, "items");
  p->release_ms = o.release_ms;
  p->listener = o.listener;
  p->context = o.context;
  rc = part_fill(p, items, count);
  if (rc == ZKE_OK) rc = part_describe(p, o.name ? o.name : "");
  if (rc == ZKE_OK)
    *p_out = p;
  else
    zke_recipe_free(r);
  return rc;
}

/* Leaves, if it is a member. */
void zke_partition_free(zke_partition *p) { zke_recipe_free((zke_recipe *)p); }

/* ---- in and out ---- */

/* Do the earlier members divide the same items? */
static int part_compare(zke_partition *p) {
  zke_pt_plan plan;
  int rc = zke_pt_plan_read(&p->r, p->members, false, &plan);
  if (rc != ZKE_OK) return rc;
  int self = zke_pt_plan_find(&plan, p->znode);
  for (int i = 0; i < self && rc == ZKE_OK; i++) {
    const zke_pt_member *m = &plan.members[i];
    if (!zke_pt_member_agrees(m, p->data))
      rc = zke_recipe_fail(ZKE_OTHERKIND,
                           "the member %s of %s divides other items",
                           zke_pt_member_name(m), p->r.path);
  }
  zke_pt_plan_free(&plan);
  return rc;
}

/* Report that somebody has deleted the member's znode; returns ZKE_LOST. */
static int part_lost(const zke_partition *p) {
  return zke_recipe_fail(ZKE_LOST, "the membership of %s was taken away",
                         p->r.path);
}

/* A member with other items is refused after its znode was made, since two such
 * members could join at the same moment: then at least the later one sees the
 * other.  If the process dies here, its session's end removes the znode.  The
 * look may find that the znode has gone already. */
static int part_join(zke_partition *p) {
  if (p->znode)
    return zke_recipe_fail(ZKE_MISUSE, "already a member of %s", p->r.path);
  int rc = zke_recipe_place(p->r.z, p->r.path, PARTITION_PLACE, ZKE_CONTAINER,
                            NULL, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = part_place_items(p);
  if (rc == ZKE_OK)
    rc = zke_pt_member_create(p->r.z, p->members, p->data, &p->znode);
  if (rc != ZKE_OK) return rc;
  p->gone = false;
  rc = part_compare(p);
  if (rc == ZKE_OK) rc = zke_recipe_look(&p->r);
  if (rc == ZKE_OK) return p->znode ? ZKE_OK : part_lost(p);
  zke_sentence kept;
  zke_recipe_keep(&kept);
  int64_t limit = zke_recipe_grace(p->r.z);
  part_quit(p, true);
  zke_limit(p->r.z, limit);
  return zke_recipe_restore(&kept, rc);
}

/* Several threads may use the object; a second start is refused. */
int zke_partition_start(zke_partition *p) {
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&p->r, part_join(p));
}

/* Report that the object is not a member; returns ZKE_LOST. */
static int part_is_none(const zke_partition *p) {
  return zke_recipe_fail(ZKE_LOST, "this object is not a member of %s",
                         p->r.path);
}

/* Another thread's blocking call is told as well. */
int zke_partition_leave(zke_partition *p) {
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  bool member = p->znode != NULL;
  rc = part_quit(p, false);
  zke_wake(p->r.z); /* a waiting thread must notice */
  if (!member) rc = part_is_none(p);
  return zke_recipe_leave(&p->r, rc);
}

/* The item of that name, or NULL. */
static zke_pt_item *part_find(zke_partition *p, const char *item) {
  for (int i = 0; item && i < p->count; i++) {
    if (strcmp(p->item[i].name, item) == 0) return &p->item[i];
  }
  return NULL;
}

/* Report that another member has the item; returns ZKE_LOST. */
static int part_not_owned(const zke_partition *p, const char *item) {
  return zke_recipe_fail(ZKE_LOST, "the item %s of %s is not this member's",
                         item ? item : "NULL", p->r.path);
}

/* The item of that name, if this member has it; else NULL, with the sentence
 * for ZKE_LOST. */
static zke_pt_item *part_find_held(zke_partition *p, const char *item) {
  zke_pt_item *it = part_find(p, item);
  if (it && zke_pt_item_is_held(it)) return it;
  part_not_owned(p, item);
  return NULL;
}

/* Another member has the item.  The next step is due, since the plan may give
 * it back; a waiting thread makes that step. */
static int part_robbed(zke_partition *p, const char *item) {
  p->r.changed = true;
  zke_wake(p->r.z);
  return part_not_owned(p, item);
}

/* Only an item that was asked for may be released.  The next owner takes it
 * when its znode goes; if the plan has changed in between, the item comes back.
 * No event reports this, so a waiting thread is woken: the state may be SETTLED
 * now, or its call must look again. */
static int part_release(zke_partition *p, const char *item) {
  zke_pt_item *it = part_find_held(p, item);
  if (!it) return ZKE_LOST;
  if (it->state != ZKE_PT_ASKED)
    return zke_recipe_fail(ZKE_MISUSE, "the item %s of %s was not asked back",
                           item, p->r.path);
  int rc = zke_pt_item_release(it);
  if (rc == ZKE_LOST) return part_robbed(p, item);
  if (rc != ZKE_OK || zke_recipe_look(&p->r) != ZKE_OK)
    p->r.changed = true; /* it may come back */
  zke_wake(p->r.z);
  return rc;
}

/* May be called by the listener, or later. */
int zke_partition_release(zke_partition *p, const char *item) {
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&p->r, part_release(p, item));
}

/* ---- states ---- */

/* SETTLED if the member has exactly the items that the plan gives it. */
static int part_state(const zke_partition *p) {
  int state = ZKE_PARTITION_SETTLED;
  if (!p->znode) return p->gone ? ZKE_PARTITION_LOST : ZKE_PARTITION_OUT;
  for (int i = 0; i < p->count; i++) {
    if (p->item[i].state == ZKE_PT_ASKED) return ZKE_PARTITION_RELEASING;
    if (p->item[i].mine && p->item[i].state != ZKE_PT_OWNED)
      state = ZKE_PARTITION_ALLOCATING;
  }
  return state;
}

/* The time, of zke_now(), when the first of the owners that this member waits
 * for has used up its release_ms, or ZKE_FOREVER. */
static int64_t part_next(const zke_partition *p) {
  int64_t next = ZKE_FOREVER;
  for (int i = 0; i < p->count && p->release_ms; i++) {
    int64_t since = p->item[i].since;
    if (p->item[i].state != ZKE_PT_WANTED) continue;
    if (p->release_ms < next - since) next = since + p->release_ms;
  }
  return next;
}

/* For zke_recipe_await(): is the state SETTLED?  Another thread may leave
 * meanwhile, or the znode may be deleted. */
static int part_is_settled(zke_recipe *r) {
  const zke_partition *p = (const zke_partition *)r;
  int state = part_state(p);
  if (state == ZKE_PARTITION_SETTLED) return ZKE_OK;
  if (state == ZKE_PARTITION_OUT) return part_is_none(p);
  bool lost = state == ZKE_PARTITION_LOST && !r->ended;
  return lost ? part_lost(p) : ZKE_NOT_YET;
}

/* "the item a of /shards is held by x (pid 1) since …" */
static int part_say(const zke_partition *p, int rc) {
  char what[256];
  for (int i = 0; i < p->count; i++) {
    const zke_pt_item *it = &p->item[i];
    if (it->state != ZKE_PT_WANTED && it->state != ZKE_PT_ASKED) continue;
    snprintf(what, sizeof what, "the item %.80s of %.120s", it->name,
             p->r.path);
    return zke_recipe_say_held(p->r.z, rc, what, it->path);
  }
  return rc;
}

/* Sleeps at most until an owner's release_ms is over; then the next step takes
 * its item.  If that step fails, as others keep the database, that time is
 * still over: so the deadline is compared with the clock as well. */
static int part_wait(zke_partition *p, int64_t deadline_ms) {
  for (;;) {
    int64_t next = part_next(p);
    bool last = deadline_ms <= next || zke_now(p->r.z) >= deadline_ms;
    int rc =
        zke_recipe_await(&p->r, part_is_settled, last ? deadline_ms : next);
    if (rc != ZKE_OPERATIONTIMEOUT) return rc;
    if (last) return part_say(p, rc);
    p->r.changed = true; /* an owner's release_ms is over */
  }
}

/* Unless it returns ZKE_LOST, the object stays a member. */
int zke_partition_wait(zke_partition *p, int64_t deadline_ms) {
  int rc = zke_recipe_enter_by((zke_recipe *)p, deadline_ms);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&p->r, part_wait(p, deadline_ms));
}

/* Takes no lock of the object: the call to be cancelled may hold it. */
int zke_partition_cancel(zke_partition *p) {
  return zke_recipe_cancel((zke_recipe *)p);
}

/* Also for a program that does not dispatch: takes overdue items. */
int zke_partition_step(zke_partition *p) {
  return zke_recipe_step((zke_recipe *)p);
}

/* For a program with its own loop: when to call step. */
int zke_partition_due(zke_partition *p, int64_t *deadline_out) {
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  if (deadline_out) *deadline_out = part_next(p);
  return zke_recipe_leave(&p->r, rc);
}

/* From memory. */
int zke_partition_state(zke_partition *p) {
  if (zke_recipe_enter_memory((zke_recipe *)p) != ZKE_OK)
    return ZKE_PARTITION_LOST;
  int state = part_state(p);
  zke_recipe_leave(&p->r, ZKE_OK);
  return state;
}

/* The zxid of the item's znode: greater than that of any earlier owner. */
int64_t zke_partition_token(zke_partition *p, const char *item) {
  if (zke_recipe_enter_memory((zke_recipe *)p) != ZKE_OK) return 0;
  const zke_pt_item *it = part_find(p, item);
  int64_t token = it ? it->token : 0;
  zke_recipe_leave(&p->r, ZKE_OK);
  return token;
}

/* The look has set the watch that would have made the next step ask.  So if the
 * item is lost, that step is due (part_robbed()). */
static int part_check_item(zke_partition *p, const char *item) {
  zke_pt_item *it = part_find_held(p, item);
  if (!it) return ZKE_LOST;
  int rc = zke_pt_item_check(it);
  return rc == ZKE_LOST ? part_robbed(p, item) : rc;
}

/* The answer is true at the moment of the read. */
int zke_partition_check(zke_partition *p, const char *item) {
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&p->r, part_check_item(p, item));
}

/* Makes the user's multi fail unless the item's twin still exists; it goes with
 * the item in one step. */
int zke_partition_op(zke_partition *p, const char *item, zke_op *op) {
  if (!op) return zke_recipe_fail(ZKE_BADARGUMENTS, "op is NULL");
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  const zke_pt_item *it = part_find_held(p, item);
  if (it) zke_op_check(op, it->twin, -1);
  return zke_recipe_leave(&p->r, it ? ZKE_OK : ZKE_LOST);
}

/* The names of the member's items, in one block. */
static zke_strings *part_names(const zke_partition *p) {
  size_t size = sizeof(zke_strings) + (size_t)p->count * sizeof(char *);
  for (int i = 0; i < p->count; i++) size += strlen(p->item[i].name) + 1;
  zke_strings *s = zke_alloc(p->r.z, size);
  if (!s) return NULL;
  s->data = (char **)(void *)(s + 1);
  char *text = (char *)(s->data + p->count);
  for (int i = 0; i < p->count; i++) {
    if (!zke_pt_item_is_held(&p->item[i])) continue;
    s->data[s->count++] = text;
    text = stpcpy(text, p->item[i].name) + 1;
  }
  return s;
}

/* From memory, in the order of their bytes. */
int zke_partition_list(zke_partition *p, zke_strings **items_out) {
  if (!items_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "items_out is NULL");
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  zke_strings *s = part_names(p);
  if (s) *items_out = s;
  return zke_recipe_leave(&p->r, s ? ZKE_OK : ZKE_NOMEM);
}

/* ---- looking without an object ---- */

/* The owners as they are read, before they are packed.  There is room for all
 * from the start. */
typedef struct part_roll {
  zke_partition_owner *data;
  zke_session_list **who; /* the session of each */
  int count;
} part_roll;

/* Note the owner of an item's znode. */
static int part_note(zke *z, const char *path, const char *item,
                     part_roll *roll) {
  zke_stat stat;
  zke_session_list *who = NULL;
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  if (rc == ZKE_OK) rc = zke_sessions(z, stat.ephemeralOwner, &who);
  if (rc != ZKE_OK) return rc == ZKE_NONODE ? ZKE_OK : rc; /* it has gone */
  roll->who[roll->count] = who;
  roll->data[roll->count++] =
      (zke_partition_owner){.item = item,
                            .identity = who->data[0].identity,
                            .pid = who->data[0].pid,
                            .session = stat.ephemeralOwner,
                            .token = stat.czxid,
                            .since_ms = stat.ctime};
  return ZKE_OK;
}

/* The whole list in one block, texts after the records; NULL without memory. */
static zke_partition_owners *part_pack(zke *z, const part_roll *roll) {
  size_t size = sizeof(zke_partition_owners);
  for (int i = 0; i < roll->count; i++) {
    size += sizeof(zke_partition_owner) + strlen(roll->data[i].item) +
            strlen(roll->data[i].identity) + 2;
  }
  zke_partition_owners *list = zke_alloc(z, size);
  if (!list) return NULL;
  zke_partition_owner *owner = (zke_partition_owner *)(void *)(list + 1);
  char *text = (char *)(owner + roll->count);
  for (int i = 0; i < roll->count; i++) {
    owner[i] = roll->data[i];
    owner[i].item = text;
    text = stpcpy(text, roll->data[i].item) + 1;
    owner[i].identity = text;
    text = stpcpy(text, roll->data[i].identity) + 1;
  }
  list->count = roll->count;
  list->data = owner;
  return list;
}

/* Reads one item after the other; if an item changes hands meanwhile, the list
 * shows its owner at the time of reading.  The names become those of the
 * items. */
static int part_call_roll(zke *z, const char *directory,
                          const zke_strings *names, part_roll *roll) {
  size_t n = (size_t)names->count + 1;
  int rc = ZKE_OK;
  roll->data = zke_alloc(z, n * sizeof *roll->data);
  roll->who = zke_alloc(z, n * sizeof(zke_session_list *));
  if (!roll->data || !roll->who) return ZKE_NOMEM;
  for (int i = 0; i < names->count && rc == ZKE_OK; i++) {
    char *name = names->data[i], *path = zke_recipe_path(z, directory, name);
    if (!path) return ZKE_NOMEM;
    if (zke_pt_read_name(name)) rc = part_note(z, path, name, roll);
    zke_free(path);
  }
  return rc;
}

/* For callers without an object: each item with its owner. */
int zke_partition_parties(zke *z, const char *path,
                          zke_partition_owners **list_out) {
  zke_strings *names = NULL;
  part_roll roll = {0};
  int rc = zke_exists(z, path, NULL, NULL, NULL); /* checks the path */
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  char *items = zke_recipe_path(z, path, "items");
  rc = items ? zke_children(z, items, NULL, NULL, &names, NULL) : ZKE_NOMEM;
  if (rc == ZKE_OK) rc = part_call_roll(z, items, names, &roll);
  if (rc == ZKE_NONODE) rc = ZKE_OK;
  zke_partition_owners *list = rc == ZKE_OK ? part_pack(z, &roll) : NULL;
  if (rc == ZKE_OK && !list) rc = ZKE_NOMEM;
  if (rc == ZKE_OK) *list_out = list;
  for (int i = 0; i < roll.count; i++) zke_free(roll.who[i]);
  zke_free(roll.data);
  zke_free(roll.who);
  zke_free(names);
  zke_free(items);
  return rc;
}
