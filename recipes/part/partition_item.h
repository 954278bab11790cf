/* partition_item.h - for recipe authors: a partition, and holding its items
 *
 * partition.c is the partition that programs use.  It stands on two files;
 * neither calls the other:
 *
 *   partition_plan.c  the members, and which member gets which item
 *   partition_item.c  holding an item: taking it, giving it up, losing it
 *
 * The layout of the znodes is in partition.h.  Call every function here with
 * the mutex of the partition's zke_recipe held; it guards every member below.
 */
#ifndef ZKEMBED_RECIPES_PARTITION_ITEM_H
#define ZKEMBED_RECIPES_PARTITION_ITEM_H

#include <stdbool.h>
#include <stdint.h>

#include "object.h"
#include "../partition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An item, as this member sees it:
 *
 *     NONE -> WANTED    the plan gives it to this member; another has it still
 *     NONE, WANTED -> OWNED   this member has made the znode
 *     OWNED -> ASKED    the plan gives it to another; the listener was told
 *     WANTED -> NONE    the plan has changed
 *     OWNED, ASKED -> NONE    released, or taken away
 *
 * An item in ASKED must still be released if the plan gives it back: the
 * listener may have stopped its work. */
enum zke_pt_state { ZKE_PT_NONE, ZKE_PT_WANTED, ZKE_PT_OWNED, ZKE_PT_ASKED };

typedef struct zke_pt_item {
  zke_partition *p;  /* its partition */
  char *name, *path; /* the item; its znode */
  char *twin;        /* path of the twin of its own latest znode */
  bool paired;       /* that twin may be there */
  char *seen;        /* twin of the last znode that was seen; "": it has none */
  bool mine;         /* the last plan gives it to this member */
  enum zke_pt_state state;
  bool watched;    /* its znode is watched, and the watch has not fired */
  bool tried;      /* this member tried to create the znode: it may exist.
                      Never while the item is held */
  int64_t found;   /* czxid of the znode made by such a try; 0: none */
  int64_t token;   /* czxid of the znode while it is held, else 0 */
  int64_t awaited; /* czxid of another member's znode that this one waits for */
  int64_t since;   /* of zke_now(): when the wait for that znode began */
} zke_pt_item;

struct zke_partition {
  zke_recipe r;          /* first: a zke_recipe * is a zke_partition * */
  char *members, *items; /* paths of the two directories */
  char *znode;           /* path of its own znode; NULL: it is not a member */
  char *data;            /* of that: zke_pt_member_data() */
  char *neighbour;       /* path of the member that is watched, or NULL */
  int64_t release_ms;    /* how long to wait for a wanted item; 0: for ever */
  int count;             /* of the items */
  zke_pt_item *item;     /* sorted by name */
  bool gone;             /* the membership was taken away */
  bool members_watched;  /* the watch of the directory has not fired */
  zke_partition_fn listener;
  void *context;
};

/* zke_pt_item_init  - set the texts of an item of p; p's paths must be set.
 *                     ZKE_NOMEM leaves some of them out
 * zke_pt_item_clear - release them */
int zke_pt_item_init(zke_partition *p, const char *name, zke_pt_item *it);
void zke_pt_item_clear(zke_pt_item *it);

/* zke_pt_read_name - turn the name of a child of "items" into the item's name,
 * in place.  False if it is not the znode of an item: then the text is no
 * longer usable */
bool zke_pt_read_name(char *name);

/* zke_pt_item_is_held - does this member hold the item, even if it was asked to
 * give it up? */
bool zke_pt_item_is_held(const zke_pt_item *it);

/* zke_pt_item_step - do what the plan says about an item (mine)
 *
 * Takes it, waits for it, asks the listener to release it, or gives up waiting.
 * Tells the listener of changes.  ZKE_NONODE: the directory "items" is missing;
 * any other failure leaves the item for the next look. */
int zke_pt_item_step(zke_pt_item *it);

/* zke_pt_item_check   - ask the file whether this member still holds the item
 * zke_pt_item_release - give up a held item
 *
 * Both return ZKE_LOST if the item was found to belong to another; it is lost
 * then, and the listener is told.  Else check returns as zke_get(), and
 * release as zke_recipe_discard(): whatever it returns, the item is no longer
 * held. */
int zke_pt_item_check(zke_pt_item *it);
int zke_pt_item_release(zke_pt_item *it);

/* zke_pt_item_leave   - the member leaves: tell the listener, and remove the
 *                       watch.  A held item stays held, with its znode.  False
 *                       if only zke_pt_item_discard() can delete the znode: a
 *                       creation may have worked, and its twin is not known
 * zke_pt_item_discard - delete this object's znode and its twin, now or later;
 *                       does nothing if neither can exist.  Returns as
 *                       zke_recipe_discard()
 * zke_pt_item_drop    - forget that it was held or wanted
 * zke_pt_item_abandon - all of these, if the membership was taken away or the
 *                       session has ended
 *
 *   tell  the listener did not ask for this, so tell it of the loss
 *
 * zke_pt_add_removal  - operations that delete the znode of a held item and its
 *                       twin, for a step with others; returns the end of the
 *                       operations, which borrow from the item */
enum { ZKE_PT_REMOVAL_OPS = 2 };
bool zke_pt_item_leave(zke_pt_item *it, bool tell);
int zke_pt_item_discard(zke_pt_item *it);
void zke_pt_item_drop(zke_pt_item *it);
void zke_pt_item_abandon(zke_pt_item *it);
zke_op *zke_pt_add_removal(zke_op *op, const zke_pt_item *it);

#ifdef __cplusplus
}
#endif

#endif
