/* partition.h - a set of work items, divided among the members
 *
 *     static void heard(zke_partition *p, int event, const char *item,
 *                       int64_t token, void *context) {
 *       if (event == ZKE_PARTITION_ACQUIRED) printf("begin with %s\n", item);
 *       if (event == ZKE_PARTITION_RELEASE) {
 *         // Finish what is under way.
 *         zke_partition_release(p, item);
 *       }
 *       if (event == ZKE_PARTITION_LOST) printf("stop %s at once\n", item);
 *     }
 *
 *     const char *items[] = {"a", "b", "c"};
 *     zke_partition_options o = ZKE_INIT(zke_partition_options);
 *     zke_partition *p;
 *     o.name = "node-7";
 *     o.listener = heard;
 *     o.release_ms = 10000;
 *     zke_partition_new(z, "/shards", items, 3, &o, &p);
 *     zke_partition_start(p);  // and dispatch, or:
 *     zke_partition_wait(p, deadline);  // until all are divided
 *     zke_partition_free(p);
 *
 * LAYOUT:
 *
 *     /shards                             container, "zkembed partition"
 *       members                           container
 *         _c_<guid>-member-0000000000     ephemeral: "<hash of items> <name>"
 *       items                             container
 *         item-<item>                     ephemeral: its owner has it
 *
 * WHO GETS WHAT: each item, in the order of bytes, goes to the member with the
 * highest hash of item and member's name, among those that have not got
 * ceil(items / members) yet.  So it follows from the items and the members'
 * names alone, a name gets the same back when it comes again, and a change
 * moves little more than it must.
 *
 * AT MOST ONE OWNER: an item is owned by whoever made its znode.  One that is
 * to go to another member is released by its owner first, when that has heard
 * ZKE_PARTITION_RELEASE and calls zke_partition_release().  If it does not
 * within release_ms, the one to have it next takes it, in one step, and the
 * old owner hears ZKE_PARTITION_LOST.  An item that stays with its member goes
 * on undisturbed.
 *
 * IF THE PROCESS DIES its znodes go with its session, all in one step; the
 * others are told by the kernel, and the items' next owners take them at once.
 * zke_partition_leave() is one step as well.
 *
 * WHO IS WOKEN: all members when one joins or goes; by a released item only
 * its next owner.  Each member also watches one other, in a ring, so that a
 * death is noticed at once.
 *
 * LOSING THE SESSION, or one's member znode, loses every item: the listener
 * hears ZKE_PARTITION_LOST for each.
 *
 * FENCING: zke_partition_token() is the zxid of taking an item, greater than
 * that of every owner before.
 */
#ifndef ZKEMBED_RECIPES_PARTITION_H
#define ZKEMBED_RECIPES_PARTITION_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_partition zke_partition;

/* Events, each with an item. */
enum {
  ZKE_PARTITION_ACQUIRED = 1, /* one's own; with its token */
  ZKE_PARTITION_RELEASE = 2,  /* let it go, within release_ms */
  ZKE_PARTITION_LOST = 3      /* it was taken away; the state where that is
                                 one's membership or session */
};
typedef void (*zke_partition_fn)(zke_partition *p, int event, const char *item,
                                 int64_t token, void *context);

/* States, and ZKE_PARTITION_LOST. */
enum {
  ZKE_PARTITION_OUT = 0,        /* not a member */
  ZKE_PARTITION_ALLOCATING = 1, /* another still has one of one's items */
  ZKE_PARTITION_SETTLED = 2,    /* has all that it is to have */
  ZKE_PARTITION_RELEASING = 4   /* has to let go */
};

typedef struct zke_partition_options {
  size_t size;
  const char *name;   /* of the member; one of its own, new each time */
  int64_t release_ms; /* how long others wait for an item; 0: for ever */
  zke_partition_fn listener;
  void *context;
} zke_partition_options;

/* zke_partition_new  - an object for one member; does not touch the tree
 * zke_partition_free - leave, and release the object; NULL is fine
 *
 *   path         made as a container when first needed
 *   items,count  the same for all members, in any order; copied
 *   options      NULL for the defaults; copied.  A name has no newline
 *   p_out        out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS (an item is empty or there twice), or what
 * the handle's state asks for.  Threads: any.  In a callback: yes.
 * Since 0.1. */
ZKE_API int zke_partition_new(zke *z, const char *path,
                              const char *const *items, int count,
                              const zke_partition_options *options,
                              zke_partition **p_out);
ZKE_API void zke_partition_free(zke_partition *p);

/* zke_partition_start - become a member; the listener is told
 * zke_partition_leave - let everything go, be none
 *
 * Return ZKE_OK, ZKE_MISUSE where one is a member already, ZKE_OTHERKIND where
 * the path is something else, or the members there divide other items (the
 * sentence names one); leave is ZKE_LOST where one is none, or no more.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_partition_start(zke_partition *p);
ZKE_API int zke_partition_leave(zke_partition *p);

/* zke_partition_release - the work on an item has ended; its next owner may
 * have it
 *
 * Returns ZKE_OK, or ZKE_MISUSE where it was not asked for, ZKE_LOST where it
 * is not one's own any more.  After any other code the session gives it back as
 * soon as it can; so does zke_partition_leave() with all of them. */
ZKE_API int zke_partition_release(zke_partition *p, const char *item);

/* zke_partition_wait - wait until one has what one is to have, and no more
 *
 * Returns ZKE_OK, or, a member all the same, ZKE_OPERATIONTIMEOUT naming an
 * item and who has it, or ZKE_CANCELLED; or ZKE_LOST where one is no member,
 * or no more, ZKE_INVALIDSTATE.
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_partition_wait(zke_partition *p, int64_t deadline_ms);

/* zke_partition_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                        ZKE_IDLE where none runs
 * zke_partition_step   - look again: at the deadline below
 * zke_partition_due    - when to call step, of zke_now(), or ZKE_FOREVER: the
 *                        end of another's release_ms
 * zke_partition_state  - ZKE_PARTITION_…, as known without asking the file
 * zke_partition_token  - an item's fencing value, 0 unless it is one's own
 * zke_partition_check  - ask the file: ZKE_OK while the item is one's own, else
 *                        ZKE_LOST
 * zke_partition_op     - for one's own zke_multi(): fails with ZKE_NONODE
 *                        where one has lost one's membership.  ZKE_LOST where
 *                        the item is not one's own.  (An item that was taken
 *                        from a living member is fenced by the token alone.)
 * zke_partition_list   - one's own, sorted, those to release as well
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_partition_cancel(zke_partition *p);
ZKE_API int zke_partition_step(zke_partition *p);
ZKE_API int zke_partition_due(zke_partition *p, int64_t *deadline_out);
ZKE_API int zke_partition_state(zke_partition *p);
ZKE_API int64_t zke_partition_token(zke_partition *p, const char *item);
ZKE_API int zke_partition_check(zke_partition *p, const char *item);
ZKE_API int zke_partition_op(zke_partition *p, const char *item, zke_op *op);
ZKE_API int zke_partition_list(zke_partition *p, zke_strings **items_out);

typedef struct zke_partition_owner {
  const char *item;
  const char *identity; /* of the owner's session */
  int64_t pid;
  int64_t session;
  int64_t token;
  int64_t since_ms; /* ms since 1970 */
  int64_t reserved[4];
} zke_partition_owner;

/* One block, released by zke_free(). */
typedef struct zke_partition_owners {
  int count;
  const zke_partition_owner *data;
} zke_partition_owners;

/* zke_partition_parties - which item is whose, sorted by the znodes' names;
 * what nobody owns is not in it */
ZKE_API int zke_partition_parties(zke *z, const char *path,
                                  zke_partition_owners **list_out);

#ifdef __cplusplus
}
#endif

#endif
