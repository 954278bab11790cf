/* partition.c - a set of work items, divided among the members
 *
 * CONTENTS: name_ (an item as a znode's name), plan_ (which member is to have
 * which item), item_ (having one), part_ (the object).
 *
 * There is no coordinator.  Each member computes the same plan from the same
 * facts, and the item's znode decides who has it.  One look (part_step()):
 *
 *   1. Read the members and their names, and watch the directory
 *      (plan_read()).  If this member's znode is not among them, all is lost.
 *   2. Watch the member before this one in the list, so that its death is
 *      noticed at once (part_watch_neighbour()).
 *   3. Divide: for each item in the order of its bytes take the member with the
 *      highest hash among those that have room (plan_choose()).
 *   4. First let go: ask the listener to release what another member is to
 *      have (RELEASE).  The znode stays until it has done so.
 *   5. Then take: create the znode of each item that this member is to have.
 *      Where it is there already, its owner has to let go first: watch it, and
 *      look again when it goes, or after release_ms (item_try_acquire()).
 *
 * Two members may have read different lists for a moment and want the same
 * item.  That costs a wait, never two owners, since a znode is made only once.
 * When the lists agree, so do the plans.  If a process dies anywhere, its
 * znodes go with its session in one step, and 1 to 5 happen in the others.
 *
 * The znode of an item has the same path for every owner, and no version that
 * tells them apart.  So each making has a twin beside it, in the same step: a
 * znode whose name never comes again.  The item's data names the twin, and what
 * takes, releases or leaves deletes both in one step.  Where the item is
 * another's by then the twin has gone, and the step changes nothing.
 *
 * A lost reply: the data of an item's znode also tells its owner's member
 * znode, whose name is unique.  So a look at it tells whether the creation was
 * made, and which twin belongs to it (item_note_owner()).  If the plan changes
 * before that look, what was made goes (item_withdraw()).
 *
 * Where somebody has deleted the twin by hand, the item is deleted by its path
 * after a look at its czxid: an owner that comes in between is not noticed.
 *
 * Start reading at part_step(), then plan_choose() and item_step(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "partition.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part/limit.h"
#include "part/object.h"
#include "part/text.h"
#include "part/znode.h"

#define PARTITION_PLACE "partition"
#define MEMBERS_PLACE "partition-members"
#define ITEMS_PLACE "partition-items"
#define MEMBER_KIND "member-"
#define ITEM_PREFIX "item-"
#define TWIN_PREFIX "own-"

/* The length of a twin's name: the prefix, and a guid without its NUL. */
enum { TWIN_NAME = sizeof TWIN_PREFIX - 1 + ZKE_RECIPE_GUID - 1 };

/* ======================================================================
 * name_
 * ==================================================================== */

/* May the byte stand for itself in a znode's name? All others are %XX, so that
 * any text can be an item, and two items never have one znode. */
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

/* Turn a znode's name into the item, in its place.  False for a name that no
 * member gives; then the text is spoilt. */
static bool name_read(char *name) {
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

/* Is it the name of a twin, as a member gives it? */
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

/* ======================================================================
 * plan_
 * ==================================================================== */

/* FNV-1a, with the NUL at the end of the text, so that "ab" and "c" do not hash
 * as "a" and "bc". */
static uint64_t plan_hash(uint64_t hash, const char *text) {
  do {
    hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
  } while (*text++);
  return hash;
}

/* Mix a hash, so that each bit of the text reaches the highest ones, by which
 * two hashes mostly differ. */
static uint64_t plan_mix(uint64_t x) {
  x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
  x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
  return x ^ x >> 33;
}

static const uint64_t plan_start = UINT64_C(14695981039346656037);

/* One member, in a plan; the texts are the plan's. */
typedef struct plan_member {
  const char *znode; /* its name */
  const char *data;  /* "<hash of items> <name>" */
  int load;          /* so many items were given to it */
} plan_member;

/* The members of one moment, and what the plan has given to each so far.
 * Nothing of it outlives a look but what it says of this member's items and of
 * its neighbour. */
typedef struct division {
  zke_entries *entries; /* of the directory */
  char **paths;         /* of their znodes */
  zke_op *ops;          /* that read them */
  zke_op_result *got;   /* their data, in the same order */
  plan_member *members; /* those of them that were there still */
  int count;            /* of members */
} division;

/* Release what plan_read() has read. */
static void plan_free(division *p) {
  for (int i = 0; p->paths && i < p->entries->count; i++) zke_free(p->paths[i]);
  if (p->got) zke_results_clear(p->got, p->entries->count);
  zke_free(p->paths);
  zke_free(p->ops);
  zke_free(p->got);
  zke_free(p->members);
  zke_free(p->entries);
}

/* The member's name, which its data has behind the first space; a member
 * without one goes by its znode's. */
static const char *plan_name(const plan_member *m) {
  const char *space = strchr(m->data, ' ');
  return space && space[1] ? space + 1 : m->znode;
}

/* Is member a to be preferred to b for an item? The item's name is a part of
 * the hash, so each item has an order of members of its own. Of two members
 * with one name the znode decides. */
static bool plan_prefers(const char *item, const plan_member *a,
                         const plan_member *b) {
  uint64_t seed = plan_hash(plan_start, item);
  uint64_t x = plan_mix(plan_hash(seed, plan_name(a)));
  uint64_t y = plan_mix(plan_hash(seed, plan_name(b)));
  return x != y ? x > y : strcmp(a->znode, b->znode) < 0;
}

/* The member for the next of `items` items: the one that is preferred among
 * those that have less than their share.  Hashing keeps an item with its member
 * when others come and go, and the bound keeps the loads equal; what moves is
 * what the bound moves.  There is at least one member. */
static int plan_choose(division *p, const char *item, int items) {
  int most = (items + p->count - 1) / p->count, best = -1;
  for (int i = 0; i < p->count; i++) {
    if (p->members[i].load >= most) continue;
    if (best < 0 || plan_prefers(item, &p->members[i], &p->members[best]))
      best = i;
  }
  if (best >= 0) p->members[best].load++;
  return best;
}

/* Keep the members whose names were read; one that is missing has gone. They
 * stay in the order of their numbers, which is the same for every reader. */
static void plan_keep_members(division *p) {
  for (int i = 0; i < p->entries->count; i++) {
    if (p->got[i].rc != ZKE_OK || !p->got[i].data) continue;
    p->members[p->count++] =
        (plan_member){p->entries->data[i].name, p->got[i].data, 0};
  }
}

/* Read the data of all entries, as of one moment. */
static int plan_read_data(zke *z, const char *directory, division *p) {
  size_t room = (size_t)p->entries->count + 1;
  p->paths = zke_alloc(z, room * sizeof *p->paths);
  p->ops = zke_alloc(z, room * sizeof *p->ops);
  p->got = zke_alloc(z, room * sizeof *p->got);
  p->members = zke_alloc(z, room * sizeof *p->members);
  if (!p->paths || !p->ops || !p->got || !p->members) return ZKE_NOMEM;
  for (int i = 0; i < p->entries->count; i++) {
    p->paths[i] = zke_recipe_path(z, directory, p->entries->data[i].name);
    if (!p->paths[i]) return ZKE_NOMEM;
    zke_op_get(&p->ops[i], p->paths[i]);
  }
  return zke_recipe_multi_read(z, p->ops, p->entries->count, p->got);
}

/* The members of this moment and the names by which they are known.  The same
 * reading gives the same division in every process, since that is computed from
 * it alone.
 *
 *   watch  the directory, for the object */
static int plan_read(zke_recipe *r, const char *directory, bool watch,
                     division *p) {
  static const char *const kind = MEMBER_KIND;
  *p = (division){0};
  int rc = zke_recipe_entries(r->z, directory, &kind, 1,
                              watch ? zke_recipe_watcher : NULL, r, &p->entries,
                              NULL);
  if (rc == ZKE_OK) rc = plan_read_data(r->z, directory, p);
  if (rc == ZKE_OK)
    plan_keep_members(p);
  else
    plan_free(p);
  return rc;
}

/* The index of a member by its znode's path, or -1. */
static int plan_find(const division *p, const char *znode) {
  for (int i = 0; i < p->count; i++) {
    if (strcmp(p->members[i].znode, zke_recipe_name(znode)) == 0) return i;
  }
  return -1;
}

/* ======================================================================
 * item_
 *
 * Having one item.  Its znode has the same path for every owner; the twin that
 * is made and deleted with it tells the owners apart.  So whatever deletes a
 * znode here knows its twin: this object's own (part_item.twin), or the one
 * that the znode's data names (seen).
 * ==================================================================== */

/* What this member has of an item:
 *
 *     NONE -> WANTED    it is to have it, and another one still has
 *     NONE, WANTED -> OWNED   it has made the znode
 *     OWNED -> ASKED    another one is to have it: the listener was told
 *     WANTED -> NONE    the plan has changed
 *     OWNED, ASKED -> NONE    released, or taken away
 *
 * An item in ASKED that the plan gives back is still to be released: the
 * listener may have stopped its work. */
enum { ITEM_NONE, ITEM_WANTED, ITEM_OWNED, ITEM_ASKED };

typedef struct part_item {
  zke_partition *p;  /* whose it is */
  char *name, *path; /* the item; its znode */
  char *twin;        /* path of the twin of its own znode, the last one */
  bool paired;       /* that twin may be there */
  char *seen;        /* that of the znode which was seen last; "": has none */
  bool mine;         /* by the last plan it is to be this member's */
  int state;         /* ITEM_… */
  bool watched;      /* its znode is watched, and the watch has not fired */
  bool tried;        /* a creation of the znode was tried: it may be there.
                        Never while the item is held */
  int64_t found;     /* czxid of what such a creation has made; 0: nothing */
  int64_t token;     /* czxid of the znode while it is held, else 0 */
  int64_t awaited;   /* czxid of the other member's znode that it waits for */
  int64_t since;     /* of zke_now(): it waits for that znode since then */
} part_item;

/* Guarded by the mutex of the zke_recipe. */
struct zke_partition {
  zke_recipe r;          /* first: a zke_recipe * is a zke_partition * */
  char *members, *items; /* paths of the two directories */
  char *znode;           /* path of its own znode; NULL: it is not a member */
  char *data;            /* of that: "<hash of items> <name>" */
  char *neighbour;       /* path of the member that is watched, or NULL */
  int64_t release_ms;    /* how long a wanted item is waited for; 0: for ever */
  int count;             /* of the items */
  part_item *item;       /* sorted by name */
  bool gone;             /* the membership was taken away */
  bool members_watched;  /* the watch of the directory has not fired */
  zke_partition_fn listener;
  void *context;
};

/* Does this member have the item, also while it is asked to give it up? */
static bool item_is_held(const part_item *it) {
  return it->state == ITEM_OWNED || it->state == ITEM_ASKED;
}

/* Queue an event for the listener, with the item and its token. */
static void item_tell(const part_item *it, int event) {
  zke_recipe_tell(&it->p->r, event, it->token, it->name, (int)strlen(it->name));
}

/* An item that was held is held no more.  What the listener has not heard of it
 * yet is dropped, since another member may have the item by then; LOST is told
 * only if it has heard ACQUIRED.
 *
 *   tell  the listener did not ask for it */
static void item_tell_end(const part_item *it, bool tell) {
  zke_recipe_untell(&it->p->r, ZKE_PARTITION_RELEASE, it->name);
  if (zke_recipe_untell(&it->p->r, ZKE_PARTITION_ACQUIRED, it->name)) return;
  if (tell) item_tell(it, ZKE_PARTITION_LOST);
}

/* Forget that an item was held or wanted. */
static void item_drop(part_item *it) {
  it->state = ITEM_NONE;
  it->token = 0;
}

/* Delete the twin of this object's znode, now or later. Nobody else has a znode
 * of that name. */
static int item_discard_twin(part_item *it) {
  if (!it->paired) return ZKE_OK;
  it->paired = false;
  return zke_recipe_discard(it->p->r.z, it->twin, ZKE_EPHEMERAL, 0);
}

/* The item is held no more; the listener hears that of one that was. An item
 * that was only wanted is dropped in silence.  A twin is left where the item's
 * znode alone was deleted, by hand. */
static void item_lose(part_item *it) {
  if (item_is_held(it)) {
    item_tell_end(it, true);
    if (!it->p->r.ended) item_discard_twin(it);
  }
  item_drop(it);
}

/* Take the watch back, before this object deletes its own znode of the item: or
 * its event would lie about until the next dispatch. */
static void item_unwatch(part_item *it) {
  if (it->watched)
    zke_remove_watch(it->p->r.z, it->path, ZKE_WATCH_DATA, zke_recipe_watcher,
                     &it->p->r);
  it->watched = false;
}

/* Does the data of an item's znode say that this object has made it? */
static bool item_is_own(const zke_partition *p, const char *data) {
  size_t length = p->znode ? strlen(p->znode) : 0;
  return data && length && strncmp(data, p->znode, length) == 0 &&
         data[length] == '\n';
}

/* Read the twin that the data of an item's znode names. */
static void item_read_twin(part_item *it, const char *data) {
  const char *line = data ? strchr(data, '\n') : NULL;
  *it->seen = '\0';
  if (line && name_is_twin(line + 1))
    name_twin_path(it->p->items, line + 1, it->seen);
}

/* The twin that was read is that of this object's own znode. */
static void item_adopt_twin(part_item *it) {
  memcpy(it->twin, it->seen, strlen(it->seen) + 1);
  it->paired = *it->twin != '\0';
}

/* Read an item's znode, and the twin that belongs to it. mine: this object has
 * made it; another member on the same handle may have, too. */
static int item_read(part_item *it, bool watch, zke_stat *stat, bool *mine) {
  zke_recipe *r = &it->p->r;
  char *data = NULL;
  int rc = zke_get(r->z, it->path, watch ? zke_recipe_watcher : NULL, r, &data,
                   NULL, stat);
  if (rc == ZKE_OK) item_read_twin(it, data);
  *mine = rc == ZKE_OK && item_is_own(it->p, data);
  zke_free(data);
  return rc;
}

/* Look at an item's znode, and watch it unless it is watched. A missing znode
 * gets no watch: its caller makes it, or lets it go. */
static int item_look(part_item *it, zke_stat *stat, bool *mine) {
  int rc = item_read(it, !it->watched, stat, mine);
  if (rc == ZKE_OK) it->watched = true;
  return rc;
}

/* Make this object's znode of the item and its twin, in one step with the n
 * operations that ops begins with; there is room for two more.  Each making
 * gets a twin of a new name. */
static int item_make(part_item *it, zke_op *ops, int n) {
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

/* The item's znode is its lock.  ZKE_NODEEXISTS: a member that has to let go
 * first still has its znode there, or this try was made before its reply got
 * lost. */
static int item_create(part_item *it) {
  zke_op ops[2];
  return item_make(it, ops, 0);
}

/* Delete another member's znode of the item, and its twin unless that is "".
 * The same step makes this object's own.  ZKE_NONODE: one of the two that were
 * to be deleted has gone. */
static int item_replace(part_item *it, const char *twin) {
  zke_op ops[4];
  int n = 0;
  if (*twin) zke_op_delete(&ops[n++], twin, -1);
  zke_op_delete(&ops[n++], it->path, -1);
  return item_make(it, ops, n);
}

/* Its owner has had its time: take the item, in one step, so that there is no
 * moment without an owner in which a third member could come.
 *
 * Only the owner that was waited for has had its time.  The deletion of its
 * twin says that the item is still its own.  The look before finds whether the
 * twin alone has gone: then somebody has deleted it by hand, and the item is
 * taken without.  ZKE_LOOK_AGAIN: the znode is another one.  Its owner has the
 * item since a moment ago, or it is this object's, and a try whose reply was
 * lost has made it. */
static int item_take(part_item *it) {
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

/* Something is at the item's path.  Is it this object's znode, then it has the
 * item; else it waits for the other znode to go.  The time that an owner has to
 * let go begins when this member sees its znode for the first time.
 * ZKE_LOOK_AGAIN: it has gone meanwhile. */
static int item_note_owner(part_item *it) {
  zke_stat stat;
  bool mine;
  int rc = item_look(it, &stat, &mine);
  if (rc == ZKE_NONODE) return ZKE_LOOK_AGAIN;
  if (rc != ZKE_OK) return rc;
  it->tried = false;
  if (mine && !item_is_held(it)) {
    it->state = ITEM_OWNED;
    it->token = stat.czxid;
    item_adopt_twin(it);
    item_tell(it, ZKE_PARTITION_ACQUIRED);
  } else if (!mine && (it->state != ITEM_WANTED || it->awaited != stat.czxid)) {
    it->state = ITEM_WANTED;
    it->awaited = stat.czxid;
    it->since = zke_now(it->p->r.z);
  }
  return ZKE_OK;
}

/* Has its holder had the time that it may take to release the item? release_ms
 * 0: it may take any time. */
static bool item_is_overdue(const part_item *it) {
  int64_t time = it->p->release_ms;
  return it->state == ITEM_WANTED && time &&
         zke_now(it->p->r.z) - it->since >= time;
}

/* One step: get an item that this member is to have.  ZKE_LOOK_AGAIN: it
 * changed hands meanwhile.  ZKE_NONODE: the directory has gone. */
static int item_try_acquire(zke *z, void *arg) {
  part_item *it = arg;
  int rc = ZKE_LOOK_AGAIN;
  (void)z;
  if (it->state == ITEM_WANTED && it->watched && !item_is_overdue(it))
    return ZKE_OK; /* it will be told */
  it->tried = true;
  if (item_is_overdue(it)) {
    rc = item_take(it);
    it->watched = it->watched && rc != ZKE_OK; /* what was watched has gone */
    if (rc == ZKE_NONODE) rc = ZKE_LOOK_AGAIN;
  }
  if (rc == ZKE_LOOK_AGAIN) rc = item_create(it);
  return rc == ZKE_OK || rc == ZKE_NODEEXISTS ? item_note_owner(it) : rc;
}

/* Ask the file whether an item that is held is this member's still.  ZKE_LOST:
 * it is not, and the object knows so from here on. */
static int item_check(part_item *it) {
  zke_stat stat;
  bool mine;
  int rc = item_look(it, &stat, &mine);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  if (mine && stat.czxid == it->token) return ZKE_OK;
  item_lose(it);
  return ZKE_LOST;
}

/* Has what is held gone, or is it another's? What cannot be found out counts as
 * still there. */
static bool item_is_gone(const part_item *it) {
  zke_stat stat;
  int rc = zke_exists(it->p->r.z, it->path, NULL, NULL, &stat);
  return rc == ZKE_NONODE || (rc == ZKE_OK && stat.czxid != it->token);
}

/* Delete this object's znode of an item, and its twin. */
static int item_try_delete(zke *z, void *arg) {
  const part_item *it = arg;
  zke_op ops[2];
  zke_op_delete(&ops[0], it->twin, -1);
  zke_op_delete(&ops[1], it->path, -1);
  return zke_recipe_multi(z, ops, 2, NULL);
}

/* Delete this object's znode of an item with its twin: in one step, which
 * changes nothing where the item is another's by now.  What that step did not
 * delete, or may have deleted, goes now or later, one by one: the znode by its
 * czxid, 0 for what the session has there.  The twin goes last, so that a
 * znode is not without one. */
static int item_delete(part_item *it, int64_t czxid) {
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

/* A creation was tried and may have worked: find what it has made.  That is
 * nothing where the znode is missing, or is not this object's. */
static int item_try_find(zke *z, void *arg) {
  part_item *it = arg;
  zke_stat stat;
  bool mine;
  (void)z;
  int rc = item_read(it, false, &stat, &mine);
  it->found = mine ? stat.czxid : 0;
  if (mine) item_adopt_twin(it);
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Delete what item_try_find() has found.  Where that is nothing, the twin of
 * the last try goes, if it is there: the item's znode may have been deleted
 * without it. */
static int item_delete_found(part_item *it) {
  return it->found ? item_delete(it, it->found) : item_discard_twin(it);
}

/* Delete this object's znode of an item, now or later; does nothing where it
 * can have none.  Where it cannot be seen whether a creation has worked, what
 * the session has there goes.  If that is another member's on the same handle,
 * that one hears that it has lost the item, and takes it again. */
static int item_discard(part_item *it) {
  zke *z = it->p->r.z;
  if (item_is_held(it)) return item_delete(it, it->token);
  if (!it->tried) return ZKE_OK;
  it->tried = false;
  int64_t limit = zke_recipe_allow(z);
  int rc = zke_retry(z, item_try_find, it, ZKE_FOREVER);
  zke_limit(z, limit);
  return rc == ZKE_OK ? item_delete_found(it) : item_delete(it, 0);
}

/* This member has waited for the item, or has tried to get it, and the plan now
 * gives it to another member.  A creation may have made a znode that nobody
 * knows of: it is deleted.  Else the next owner would wait for a member that
 * does not know that it has the item.  Where that cannot be seen, `tried`
 * stays, and the next step looks. */
static int item_withdraw(part_item *it) {
  item_unwatch(it);
  item_drop(it);
  if (!it->tried) return ZKE_OK;
  int rc = zke_retry(it->p->r.z, item_try_find, it, ZKE_FOREVER);
  if (rc != ZKE_OK) return rc;
  it->tried = false;
  return item_delete_found(it);
}

/* Bring one item to what it is to be. First it is asked whether it is still
 * this member's, since all else follows from that. A release is only asked for
 * here: the listener, or the program, does it (zke_partition_release()). */
static int item_step(part_item *it) {
  int rc = ZKE_OK;
  if (item_is_held(it) && !it->watched) rc = item_check(it);
  if (rc != ZKE_OK && rc != ZKE_LOST) return rc;
  if (it->mine && !item_is_held(it))
    return zke_recipe_do(it->p->r.z, item_try_acquire, it, ZKE_FOREVER);
  if (!it->mine && it->state == ITEM_OWNED) {
    it->state = ITEM_ASKED;
    item_tell(it, ZKE_PARTITION_RELEASE);
  } else if (!it->mine && (it->state == ITEM_WANTED || it->tried)) {
    return item_withdraw(it);
  }
  return ZKE_OK;
}

/* Let an item go that is held.  ZKE_LOST: it was taken away before, which the
 * listener hears. */
static int item_release(part_item *it) {
  bool gone = item_is_gone(it);
  item_unwatch(it);
  if (gone) {
    item_lose(it);
    return ZKE_LOST;
  }
  int rc = item_discard(it);
  item_drop(it);
  return rc;
}

/* The member gives the item up: tell what is to be told, and take the watch
 * back.  Its znode is still there.  Returns false where that is to be deleted
 * by item_discard() alone: a creation may have worked, and then its twin is not
 * known.
 *
 *   tell  the listener did not ask for it */
static bool item_leave(part_item *it, bool tell) {
  if (item_is_held(it) && item_is_gone(it))
    item_lose(it);
  else if (item_is_held(it))
    item_tell_end(it, tell);
  item_unwatch(it);
  return item_is_held(it) || !it->tried;
}

/* The membership was taken away, and the item with it.  The znode of a session
 * that lives is there still: it goes now, or others would wait for it in vain,
 * and this object, too, once it has been started again. */
static void item_abandon(part_item *it) {
  if (!it->p->r.ended) {
    item_unwatch(it);
    item_discard(it);
  }
  item_lose(it);
}

/* ======================================================================
 * part_
 * ==================================================================== */

/* The membership was taken away: by a deletion of the znode, or with the
 * session.  The listener hears of each item. */
static void part_lose(zke_partition *p) {
  if (!p->znode) return;
  for (int i = 0; i < p->count; i++) item_abandon(&p->item[i]);
  zke_free(p->znode);
  p->znode = NULL;
  p->gone = true;
}

/* Make the directory of the items' znodes where it is missing: it is a
 * container, and goes when it has been empty for a while. */
static int part_place_items(zke_partition *p) {
  return zke_recipe_place(p->r.z, p->items, ITEMS_PLACE, ZKE_CONTAINER, NULL,
                          ZKE_FOREVER);
}

/* Note which items are to be this member's, and bring each item to that.
 * Letting go comes first, so that members that exchange items do not wait for
 * each other longer than they must.  Where the directory has gone it is made,
 * and the item is tried again, whatever its state: one that was waited for has
 * no watch any more that would tell. */
static int part_follow(zke_partition *p, division *plan, int self) {
  for (int i = 0; i < p->count; i++)
    p->item[i].mine = plan_choose(plan, p->item[i].name, p->count) == self;
  int rc = ZKE_OK;
  for (int mine = 0; mine <= 1; mine++) {
    for (int i = 0; i < p->count && rc == ZKE_OK; i++) {
      if (p->item[i].mine != mine) continue;
      rc = item_step(&p->item[i]);
      if (rc != ZKE_NONODE) continue;
      rc = part_place_items(p);
      if (rc == ZKE_OK) rc = item_step(&p->item[i]);
    }
  }
  return rc;
}

/* Take back the watch of the neighbour: another member is that now. */
static void part_forget_neighbour(zke_partition *p) {
  if (!p->neighbour) return;
  zke_remove_watch(p->r.z, p->neighbour, ZKE_WATCH_DATA, zke_recipe_watcher,
                   &p->r);
  zke_free(p->neighbour);
  p->neighbour = NULL;
}

/* Watch the member before this one; the first member watches the last.  Of a
 * znode that is watched the kernel tells at once when its owner has died; its
 * watcher removes the dead session, and the watch of the directory then tells
 * all the others. */
static int part_watch_neighbour(zke_partition *p, const division *plan,
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

/* One look: the members, the neighbour, which items to take, to keep and to
 * let go.  A member whose znode is not among the others has lost its place. */
static int part_step(zke_recipe *r) {
  zke_partition *p = (zke_partition *)r;
  division plan;
  if (!p->znode) return ZKE_OK;
  bool watch = !p->members_watched;
  int rc = plan_read(r, p->members, watch, &plan);
  if (rc == ZKE_NONODE) {
    part_lose(p);
    return ZKE_OK;
  }
  if (rc != ZKE_OK) return rc;
  p->members_watched = true;
  int self = plan_find(&plan, p->znode);
  if (self < 0)
    part_lose(p);
  else
    rc = part_watch_neighbour(p, &plan, self);
  if (rc == ZKE_OK && self >= 0) rc = part_follow(p, &plan, self);
  plan_free(&plan);
  return rc;
}

/* Notes which watches have fired, so that the step sets them again. */
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

/* The session has ended: all items are lost with it, and others have them
 * already or soon. */
static void part_ended(zke_recipe *r) { part_lose((zke_partition *)r); }

/* Call the listener, without the mutex. The text is the item, the number its
 * token. */
static void part_deliver(zke_recipe *r, int event, int64_t number,
                         const char *text, int len) {
  zke_partition *p = (zke_partition *)r;
  (void)len;
  if (p->listener) p->listener(p, event, text, number, p->context);
}

/* Delete the znodes of all items that this member has, each behind its twin,
 * and last its own: in one step.  ZKE_NONODE: one of them has gone, or an item
 * is another's by now, and none was deleted. */
static int part_delete_all(zke_partition *p) {
  int n = 0;
  zke_op *ops = zke_alloc(p->r.z, (2 * (size_t)p->count + 1) * sizeof *ops);
  if (!ops) return ZKE_NOMEM;
  for (int i = 0; i < p->count; i++) {
    if (!item_is_held(&p->item[i])) continue;
    zke_op_delete(&ops[n++], p->item[i].twin, -1);
    zke_op_delete(&ops[n++], p->item[i].path, -1);
  }
  zke_op_delete(&ops[n++], p->znode, -1);
  int rc = zke_recipe_multi(p->r.z, ops, n, NULL);
  zke_free(ops);
  return rc;
}

/* Delete item by item, now or later, what one step did not delete, or may have
 * deleted. */
static int part_discard_all(zke_partition *p) {
  int rc = ZKE_OK;
  for (int i = 0; i < p->count; i++) {
    int one = item_discard(&p->item[i]);
    if (rc == ZKE_OK) rc = one;
  }
  int own = zke_recipe_discard(p->r.z, p->znode, ZKE_EPHEMERAL, 0);
  return rc == ZKE_OK ? own : rc;
}

/* Give everything up, in one step where that can be done.  An item that has
 * been taken away is left out of it, and told as lost.  One that its next owner
 * takes after that makes the step fail, and stays with that one.
 *
 *   tell  the listener did not ask for it, and hears of each item */
static int part_quit(zke_partition *p, bool tell) {
  bool known = true;
  if (!p->znode) return ZKE_OK;
  for (int i = 0; i < p->count; i++)
    known = item_leave(&p->item[i], tell) && known;
  int rc = known ? part_delete_all(p) : ZKE_NONODE;
  if (rc != ZKE_OK) rc = part_discard_all(p);
  part_forget_neighbour(p);
  for (int i = 0; i < p->count; i++) item_drop(&p->item[i]);
  zke_free(p->znode);
  p->znode = NULL;
  return rc;
}

/* The object is freed: others can have its items at once. */
static void part_going(zke_recipe *r) { part_quit((zke_partition *)r, false); }

/* No znode is left at this point: quit has discarded them. */
static void part_destroy(zke_recipe *r) {
  zke_partition *p = (zke_partition *)r;
  for (int i = 0; i < p->count; i++) {
    zke_free(p->item[i].name);
    zke_free(p->item[i].path);
    zke_free(p->item[i].twin);
    zke_free(p->item[i].seen);
  }
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
  return strcmp(((const part_item *)a)->name, ((const part_item *)b)->name);
}

/* The texts of one item.  ZKE_NOMEM leaves some of them out. */
static int part_fill_item(zke_partition *p, const char *name, part_item *it) {
  zke *z = p->r.z;
  it->p = p;
  it->name = zke_recipe_copy(z, name, strlen(name));
  it->path = name_path(z, p->items, name);
  it->twin = name_twin_room(z, p->items);
  it->seen = name_twin_room(z, p->items);
  bool whole = it->name && it->path && it->twin && it->seen;
  return whole ? ZKE_OK : ZKE_NOMEM;
}

/* The items are sorted: so members that were given the same items in another
 * order divide them alike. */
static int part_fill(zke_partition *p, const char *const *items, int count) {
  int rc = ZKE_OK;
  p->item = zke_alloc(p->r.z, (size_t)count * sizeof *p->item);
  if (!p->members || !p->items || !p->item) return ZKE_NOMEM;
  while (p->count < count && rc == ZKE_OK) {
    const char *name = items[p->count];
    if (!name || !*name)
      return zke_recipe_fail(ZKE_BADARGUMENTS, "an item is empty");
    rc = part_fill_item(p, name, &p->item[p->count++]);
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
  uint64_t hash = plan_start;
  size_t size = strlen(name) + 20;
  for (int i = 0; i < p->count; i++) hash = plan_hash(hash, p->item[i].name);
  p->data = zke_alloc(p->r.z, size);
  if (!p->data) return ZKE_NOMEM;
  snprintf(p->data, size, "%016" PRIx64 " %s", hash, name);
  return ZKE_OK;
}

/* What can be refused without touching the file: so a mistake of the caller is
 * told whatever the handle's state. */
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

/* Do those that came before divide the same items?  The hash and the space
 * behind it begin the data of each. */
static int part_compare(zke_partition *p) {
  division plan;
  size_t hash = strcspn(p->data, " ") + 1;
  int rc = plan_read(&p->r, p->members, false, &plan);
  if (rc != ZKE_OK) return rc;
  int self = plan_find(&plan, p->znode);
  for (int i = 0; i < self && rc == ZKE_OK; i++) {
    if (strncmp(plan.members[i].data, p->data, hash) != 0)
      rc = zke_recipe_fail(ZKE_OTHERKIND,
                           "the member %s of %s divides other items",
                           plan_name(&plan.members[i]), p->r.path);
  }
  plan_free(&plan);
  return rc;
}

/* Make this member's znode. */
static int part_make(zke_partition *p) {
  return zke_recipe_create(p->r.z, p->members, MEMBERS_PLACE, MEMBER_KIND,
                           p->data, (int)strlen(p->data),
                           ZKE_EPHEMERAL_SEQUENTIAL, ZKE_FOREVER, &p->znode,
                           NULL);
}

/* Say that somebody has deleted the member's znode; returns ZKE_LOST. */
static int part_lost(const zke_partition *p) {
  return zke_recipe_fail(ZKE_LOST, "the membership of %s was taken away",
                         p->r.path);
}

/* A member with other items is refused after its znode was made, since two such
 * members could join at the same moment: then at least the later one sees the
 * other.  If the process dies here its session's end removes the znode.  The
 * look may find that the znode has gone already. */
static int part_join(zke_partition *p) {
  if (p->znode)
    return zke_recipe_fail(ZKE_MISUSE, "already a member of %s", p->r.path);
  int rc = zke_recipe_place(p->r.z, p->r.path, PARTITION_PLACE, ZKE_CONTAINER,
                            NULL, ZKE_FOREVER);
  if (rc == ZKE_OK) rc = part_place_items(p);
  if (rc == ZKE_OK) rc = part_make(p);
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

/* Say that the object is no member; returns ZKE_LOST. */
static int part_is_none(const zke_partition *p) {
  return zke_recipe_fail(ZKE_LOST, "this object is not a member of %s",
                         p->r.path);
}

/* A blocking call of another thread is told as well. */
int zke_partition_leave(zke_partition *p) {
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  bool member = p->znode != NULL;
  rc = part_quit(p, false);
  zke_wake(p->r.z); /* a thread that waits is to know */
  if (!member) rc = part_is_none(p);
  return zke_recipe_leave(&p->r, rc);
}

/* The item of that name, or NULL. */
static part_item *part_find(zke_partition *p, const char *item) {
  for (int i = 0; item && i < p->count; i++) {
    if (strcmp(p->item[i].name, item) == 0) return &p->item[i];
  }
  return NULL;
}

/* Say that the item is another's; returns ZKE_LOST. */
static int part_not_owned(const zke_partition *p, const char *item) {
  return zke_recipe_fail(ZKE_LOST, "the item %s of %s is not this member's",
                         item ? item : "NULL", p->r.path);
}

/* The item of that name, if this member has it; else NULL, with the sentence
 * for ZKE_LOST. */
static part_item *part_find_held(zke_partition *p, const char *item) {
  part_item *it = part_find(p, item);
  if (it && item_is_held(it)) return it;
  part_not_owned(p, item);
  return NULL;
}

/* An item has turned out to be another's.  The next step is due, since the plan
 * may give it back; a thread that waits makes that step. */
static int part_robbed(zke_partition *p, const char *item) {
  p->r.changed = true;
  zke_wake(p->r.z);
  return part_not_owned(p, item);
}

/* Only what was asked for may be let go.  The next owner takes it when its
 * znode goes; if the plan has changed in between, the item comes back.  No
 * event tells of this, so a thread that waits is woken: the state may be
 * SETTLED now, or its call has to look again.  An item that was taken away
 * meanwhile is told as lost: the event that says so would go with the watch. */
static int part_release(zke_partition *p, const char *item) {
  part_item *it = part_find_held(p, item);
  if (!it) return ZKE_LOST;
  if (it->state != ITEM_ASKED)
    return zke_recipe_fail(ZKE_MISUSE, "the item %s of %s was not asked back",
                           item, p->r.path);
  int rc = item_release(it);
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

/* SETTLED where the member has all that the plan gives it and nothing else. */
static int part_state(const zke_partition *p) {
  int state = ZKE_PARTITION_SETTLED;
  if (!p->znode) return p->gone ? ZKE_PARTITION_LOST : ZKE_PARTITION_OUT;
  for (int i = 0; i < p->count; i++) {
    if (p->item[i].state == ITEM_ASKED) return ZKE_PARTITION_RELEASING;
    if (p->item[i].mine && p->item[i].state != ITEM_OWNED)
      state = ZKE_PARTITION_ALLOCATING;
  }
  return state;
}

/* When the first of the owners that this member waits for has had its time, of
 * zke_now(), or ZKE_FOREVER. */
static int64_t part_next(const zke_partition *p) {
  int64_t next = ZKE_FOREVER;
  for (int i = 0; i < p->count && p->release_ms; i++) {
    int64_t since = p->item[i].since;
    if (p->item[i].state != ITEM_WANTED) continue;
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
    const part_item *it = &p->item[i];
    if (it->state != ITEM_WANTED && it->state != ITEM_ASKED) continue;
    snprintf(what, sizeof what, "the item %.80s of %.120s", it->name,
             p->r.path);
    return zke_recipe_say_held(p->r.z, rc, what, it->path);
  }
  return rc;
}

/* Sleeps at most until an owner has had its time to let go; the next step takes
 * its item then.  Where that step fails, as others keep the database, the time
 * stays over: so the deadline is compared with the clock as well. */
static int part_wait(zke_partition *p, int64_t deadline_ms) {
  for (;;) {
    int64_t next = part_next(p);
    bool last = deadline_ms <= next || zke_now(p->r.z) >= deadline_ms;
    int rc =
        zke_recipe_await(&p->r, part_is_settled, last ? deadline_ms : next);
    if (rc != ZKE_OPERATIONTIMEOUT) return rc;
    if (last) return part_say(p, rc);
    p->r.changed = true; /* somebody's time to let go is over */
  }
}

/* Whatever it returns but ZKE_LOST, the object stays a member. */
int zke_partition_wait(zke_partition *p, int64_t deadline_ms) {
  int rc = zke_recipe_enter_by((zke_recipe *)p, deadline_ms);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&p->r, part_wait(p, deadline_ms));
}

/* Takes no lock of the object, which the call that is to be cancelled may
 * hold. */
int zke_partition_cancel(zke_partition *p) {
  return zke_recipe_cancel((zke_recipe *)p);
}

/* Also for a program that does not dispatch: takes what is overdue. */
int zke_partition_step(zke_partition *p) {
  return zke_recipe_step((zke_recipe *)p);
}

/* For a program with a loop of its own: when to call step. */
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

/* The znode of the item: greater than that of any owner before. */
int64_t zke_partition_token(zke_partition *p, const char *item) {
  if (zke_recipe_enter_memory((zke_recipe *)p) != ZKE_OK) return 0;
  const part_item *it = part_find(p, item);
  int64_t token = it ? it->token : 0;
  zke_recipe_leave(&p->r, ZKE_OK);
  return token;
}

/* The look has set the watch that would have made the next step ask, so that
 * step is due where the item is lost (part_robbed()). */
static int part_check_item(zke_partition *p, const char *item) {
  part_item *it = part_find_held(p, item);
  if (!it) return ZKE_LOST;
  int rc = item_check(it);
  return rc == ZKE_LOST ? part_robbed(p, item) : rc;
}

/* The answer is true at the moment of the read. */
int zke_partition_check(zke_partition *p, const char *item) {
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  return zke_recipe_leave(&p->r, part_check_item(p, item));
}

/* Makes the user's multi fail unless the item's twin is still there, which goes
 * with the item in one step. */
int zke_partition_op(zke_partition *p, const char *item, zke_op *op) {
  if (!op) return zke_recipe_fail(ZKE_BADARGUMENTS, "op is NULL");
  int rc = zke_recipe_enter((zke_recipe *)p);
  if (rc != ZKE_OK) return rc;
  const part_item *it = part_find_held(p, item);
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
    if (!item_is_held(&p->item[i])) continue;
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

/* ---- looking on ---- */

/* The owners as they are read, before they are packed. There is room for all
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
  if (rc == ZKE_OK) rc = zke_session(z, stat.ephemeralOwner, &who);
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

/* All of the roll in one block, texts behind the records; NULL without memory.
 */
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

/* Reads one item after the other; one that changes hands meanwhile is told as
 * it was when it was read.  The names become those of the items. */
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
    if (name_read(name)) rc = part_note(z, path, name, roll);
    zke_free(path);
  }
  return rc;
}

/* For whoever looks from outside: each item with its owner. */
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
