/* partition_item.h - for whoever writes a recipe: a partition, and having one
 * of its items
 *
 * partition.c is the partition that programs use.  It stands on two files, of
 * which neither calls the other:
 *
 *   partition_plan.c  the members, and which of them is to have which item
 *   partition_item.c  having an item: taking it, letting it go, losing it
 *
 * The layout of the znodes stands in partition.h.  Every function here is
 * called with the mutex of the partition's zke_recipe held, which guards every
 * member below. */
#ifndef ZKEMBED_RECIPES_PARTITION_ITEM_H
#define ZKEMBED_RECIPES_PARTITION_ITEM_H

#include <stdbool.h>
#include <stdint.h>

#include "object.h"
#include "../partition.h"

#ifdef __cplusplus
extern "C" {
#endif

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
enum zke_pt_state { ZKE_PT_NONE, ZKE_PT_WANTED, ZKE_PT_OWNED, ZKE_PT_ASKED };

typedef struct zke_pt_item {
  zke_partition *p;  /* whose it is */
  char *name, *path; /* the item; its znode */
  char *twin;        /* path of the twin of its own znode, the last one */
  bool paired;       /* that twin may be there */
  char *seen;        /* that of the znode which was seen last; "": has none */
  bool mine;         /* by the last plan it is to be this member's */
  enum zke_pt_state state;
  bool watched;    /* its znode is watched, and the watch has not fired */
  bool tried;      /* a creation of the znode was tried: it may be there.
                      Never while the item is held */
  int64_t found;   /* czxid of what such a creation has made; 0: nothing */
  int64_t token;   /* czxid of the znode while it is held, else 0 */
  int64_t awaited; /* czxid of the other member's znode that it waits for */
  int64_t since;   /* of zke_now(): it waits for that znode since then */
} zke_pt_item;

struct zke_partition {
  zke_recipe r;          /* first: a zke_recipe * is a zke_partition * */
  char *members, *items; /* paths of the two directories */
  char *znode;           /* path of its own znode; NULL: it is not a member */
  char *data;            /* of that: zke_pt_member_data() */
  char *neighbour;       /* path of the member that is watched, or NULL */
  int64_t release_ms;    /* how long a wanted item is waited for; 0: for ever */
  int count;             /* of the items */
  zke_pt_item *item;     /* sorted by name */
  bool gone;             /* the membership was taken away */
  bool members_watched;  /* the watch of the directory has not fired */
  zke_partition_fn listener;
  void *context;
};

/* zke_pt_item_init  - the texts of an item of p, which has its paths by then.
 *                     ZKE_NOMEM leaves some of them out
 * zke_pt_item_clear - release them */
int zke_pt_item_init(zke_partition *p, const char *name, zke_pt_item *it);
void zke_pt_item_clear(zke_pt_item *it);

/* zke_pt_read_name - turn the name of a child of "items" into the item, in its
 * place.  False where it is not the znode of an item: then the text is of no
 * more use */
bool zke_pt_read_name(char *name);

/* zke_pt_item_is_held - does this member have the item, also while it is asked
 * to give it up? */
bool zke_pt_item_is_held(const zke_pt_item *it);

/* zke_pt_item_step - bring an item to what the plan says of it (mine)
 *
 * Takes it, waits for it, asks the listener to release it, or gives up waiting.
 * What has changed is told.  ZKE_NONODE: the directory "items" is missing; any
 * other failure leaves the item for the next look. */
int zke_pt_item_step(zke_pt_item *it);

/* zke_pt_item_check   - ask the file whether a held item is this member's still
 * zke_pt_item_release - let a held item go
 *
 * Both return ZKE_LOST for an item that was found to be another's; it is lost
 * then, and the listener hears that.  Else check returns as zke_get(), and
 * release as zke_recipe_discard(): whatever it is, the item is not held any
 * more. */
int zke_pt_item_check(zke_pt_item *it);
int zke_pt_item_release(zke_pt_item *it);

/* zke_pt_item_leave   - the member leaves: tell what becomes of the item, and
 *                       take the watch back.  What is held stays so, with its
 *                       znode.  False where zke_pt_item_discard() alone can
 *                       delete what there may be: a creation may have worked,
 *                       and then its twin is not known
 * zke_pt_item_discard - delete this object's znode and its twin, now or later;
 *                       does nothing where there can be none.  Returns as
 *                       zke_recipe_discard()
 * zke_pt_item_drop    - forget that it was held or wanted
 * zke_pt_item_abandon - all of these at once, where the membership was taken
 *                       away, or the session has ended
 *
 *   tell  the listener did not ask for it, and hears of the loss
 *
 * zke_pt_add_removal  - what deletes the znode of a held item and its twin, for
 *                       a step with others; returns the end of the operations,
 *                       which borrow from the item */
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
