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
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * kazoo has this recipe as SetPartitioner, which releases everything at each
 * change of members; here an item that stays with its member is not touched.
 *
 * LAYOUT:
 *
 *     /shards                             container, "zkembed partition"
 *       members                           container
 *         _c_<guid>-member-0000000000     ephemeral: "<hash of items> <name>"
 *       items                             container
 *         item-<item>                     ephemeral: its owner has it; its data
 *                                         names the owner's znode and the twin
 *         own-<guid>                      ephemeral: the twin of an item
 *
 * WHO GETS WHAT: each item, in the order of bytes, goes to the member with the
 * highest hash of item and member's name, among the members that have fewer
 * than ceil(items / members) so far.  So the division depends only on the items
 * and the members' names.  A member that comes back with its name gets the same
 * items, and a change moves little more than it must.
 *
 * AT MOST ONE OWNER: an item is owned by the member that made its znode.
 * Before an item goes to another member, its owner hears ZKE_PARTITION_RELEASE,
 * and must call zke_partition_release().  If it does not within release_ms, the
 * next owner takes the item, in one step, and the old owner hears
 * ZKE_PARTITION_LOST.  If the item goes to a third member meanwhile, that one
 * waits release_ms as well.  Work on an item that stays with its member is not
 * disturbed.
 *
 *     not owned --- ACQUIRED ---> owned --- RELEASE ---> asked for
 *         ^                         |                        |
 *         '------ LOST -------------'                        |
 *         '------ zke_partition_release(), or LOST ----------'
 *
 * IF THE PROCESS DIES its znodes go with its session, all in one step.  The
 * kernel tells the others, and the items' next owners take them immediately.
 * zke_partition_leave() is one step as well, unless an item's next owner takes
 * it at that moment: then that owner keeps it, and the others go one by one.
 *
 * THE TWIN: all owners of an item use the same path for its znode.  So each
 * makes a second znode, the twin, in the same step, under a unique name; and
 * taking, releasing and leaving delete both.  A step that comes too late does
 * not find the twin, and does not touch the item, which has a new owner then.
 * Two cases are less safe.  If somebody deletes a twin, it protects no more.
 * And on an ensemble, if a member gives up and its step gets no reply, the
 * member reads the znode and then deletes it by its version.
 *
 * A twin may stay until its session ends if a member made it by a step that got
 * no reply, tried again, and finds that somebody has deleted the item's znode.
 * The same holds if the member gives up and cannot read anything.  Such a twin
 * blocks no member from taking the item.
 *
 * WHO IS WOKEN: all members when a member joins or goes.  When an item is
 * released, only its next owner.  Each member also watches one other, in a
 * ring, so a death is noticed immediately.
 *
 * COSTS, in transactions of the database: when members change, each member
 * reads their names twice (the list; the data), and makes one write and one
 * watch for each item that it gets.  It sets the watch of the list again, and
 * that of its neighbour if it has a new one.  Setting a watch is one small
 * write, and so is removing it.  Releasing an item is one read and two writes:
 * its watch, its znodes.  Leaving looks at each item, removes the watches, and
 * deletes all znodes in one write.  While nothing changes, nothing is read.
 *
 * LOSING THE SESSION, or the member's znode, loses every item: the listener
 * hears ZKE_PARTITION_LOST for each item that it knows of.  If the session
 * lives, the object deletes the items' znodes as soon as it has noticed.
 *
 * FENCING: zke_partition_token() is the zxid of taking an item, greater than
 * that of every earlier owner.  zke_partition_op() makes a zke_multi() fail if
 * another member has taken the item by then.  But if somebody deletes the
 * item's znode, a member that finds it missing takes the item and the op does
 * not notice: against that, guard by the token.
 *
 * ON AN ENSEMBLE (zookeeper.h): a member that was silent for the session's
 * timeout has lost its items, and may not know it: guard by the token.
 *
 * MISTAKES, and their results:
 * - Members with different items: the later one gets ZKE_OTHERKIND from start.
 *   To change the set of items, stop all members first.
 * - Never releasing: with release_ms 0 the next owner waits for ever, and
 *   zke_partition_wait() of the others times out.
 * - Continuing after ZKE_PARTITION_LOST, or working without dispatching:
 *   another member has the item.  If something must not happen twice, guard it
 *   with the token.
 * - Names that differ at each start: a member gets other items each time.
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
  ZKE_PARTITION_ACQUIRED = 1, /* it is this member's; with its token */
  ZKE_PARTITION_RELEASE = 2,  /* release it, within release_ms */
  ZKE_PARTITION_LOST = 3      /* it was taken away.  As a state: the membership
                                 or the session was */
};

/* item belongs to the recipe, and lives until the listener returns.  The
 * listener may call the partition, mostly zke_partition_release(), or free
 * it. */
typedef void (*zke_partition_fn)(zke_partition *p, int event, const char *item,
                                 int64_t token, void *context);

/* The values of zke_partition_state(), with ZKE_PARTITION_LOST.
 *
 *     OUT, LOST -> ALLOCATING, SETTLED   zke_partition_start()
 *     SETTLED <-> ALLOCATING             a change of members gives it items,
 *                                        and the last one has come
 *     SETTLED, ALLOCATING <-> RELEASING  items are asked for, and were released
 *     any -> OUT                         zke_partition_leave()
 *     any -> LOST                        the znode or the session has gone
 */
enum {
  ZKE_PARTITION_OUT = 0,        /* not a member */
  ZKE_PARTITION_ALLOCATING = 1, /* others still have items of its share */
  ZKE_PARTITION_SETTLED = 2,    /* has all of its share */
  ZKE_PARTITION_RELEASING = 4   /* must release an item */
};

typedef struct zke_partition_options {
  size_t size;
  const char *name;   /* of the member: the same name gets the same items again;
                         no newline; copied.  NULL: the name of its znode, which
                         is new each time */
  int64_t release_ms; /* how long this member waits for another one to release
                         an item, before it takes it; 0 and ZKE_FOREVER: for
                         ever */
  zke_partition_fn listener;
  void *context;
} zke_partition_options;

/* zke_partition_new  - an object for one member; writes nothing
 * zke_partition_free - leave, and release the object
 *
 * Free gives up everything as leave does, and the others can take the items
 * immediately.
 *
 *   path         made as a container when first needed
 *   items,count  the same for all members, in any order; copied
 *   options      NULL for the defaults; copied
 *   p_out        out; for zke_partition_free()
 *
 * new returns ZKE_OK, or ZKE_BADARGUMENTS also if an item is empty or given
 * twice, or if there are none. */
ZKE_API int zke_partition_new(zke *z, const char *path,
                              const char *const *items, int count,
                              const zke_partition_options *options,
                              zke_partition **p_out);
ZKE_API void zke_partition_free(zke_partition *p);

/* zke_partition_start - become a member; the listener is told
 * zke_partition_leave - release everything, and stop being a member
 *
 * Example: a worker that takes part for a while.
 *
 *     rc = zke_partition_start(p);
 *     if (rc == ZKE_OK) rc = zke_partition_wait(p, deadline);
 *     if (rc == ZKE_OK) zke_wait(z, deadline);  // the listener does the work
 *     if (rc == ZKE_OK) rc = zke_partition_leave(p);
 *
 * start returns ZKE_OK, or one of these, and then the object is not a member
 * and the listener hears of no item, or hears that it was lost:
 *   ZKE_OTHERKIND  the path belongs to something else, or the members there
 *                  divide other items (the sentence names a member)
 *   ZKE_MISUSE     it is a member already, and stays one
 *   ZKE_LOST       somebody has deleted its znode before its first look
 *   or the reason why the file could not be written.
 *
 * leave returns ZKE_OK, or ZKE_LOST if the object is not a member, or not any
 * more; after another code the session deletes the znodes as soon as it can.
 * Another thread's wait ends with ZKE_LOST. */
ZKE_API int zke_partition_start(zke_partition *p);
ZKE_API int zke_partition_leave(zke_partition *p);

/* zke_partition_release - the work on an item has ended; its next owner may
 * have it
 *
 * Call it in the listener, or later on any thread, when the work is done.
 *
 * Example: another thread has finished the work on an item.
 *
 *     rc = zke_partition_release(p, "a");
 *     if (rc == ZKE_LOST) printf("it took too long\n");
 *
 * Returns ZKE_OK, ZKE_MISUSE if the item was not asked for, or ZKE_LOST if this
 * member does not have it any more.  The listener hears of the loss, too, if it
 * had not yet.  After any other code the member does not have it either, and
 * the session deletes the znode as soon as it can. */
ZKE_API int zke_partition_release(zke_partition *p, const char *item);

/* zke_partition_wait - wait for the state SETTLED: the member has its share and
 * no more
 *
 * Returns ZKE_OK, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names an item and the
 *                         member that has it.  The object stays a member
 *   ZKE_CANCELLED         zke_partition_cancel(); it stays a member
 *   ZKE_LOST              the object is not a member, or not any more
 *   ZKE_INVALIDSTATE      the session has ended
 *
 * Threads: any; several may wait. */
ZKE_API int zke_partition_wait(zke_partition *p, int64_t deadline_ms);

/* zke_partition_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                        ZKE_IDLE if none runs
 * zke_partition_step   - look again: at the deadline below
 * zke_partition_due    - when to call step, in the time of zke_now(), or
 *                        ZKE_FOREVER: the time when this member has waited
 *                        release_ms for an item
 * zke_partition_state  - ZKE_PARTITION_…, from memory
 * zke_partition_token  - an item's fencing value, 0 unless this member has it
 * zke_partition_check  - ask the file: ZKE_OK while this member has the item,
 *                        else ZKE_LOST; the listener hears of the loss, too, if
 *                        it had not yet
 * zke_partition_op     - for a zke_multi() of the program: fails with
 *                        ZKE_NONODE if this member's znode of the item has gone
 *                        with its twin: it was taken or released, or the
 *                        session has ended.  ZKE_LOST if this member does not
 *                        have the item.  An op points into the object: it is
 *                        valid until the next call that takes or gives up
 *                        items, or frees; dispatching is one, also on another
 *                        thread
 * zke_partition_list   - the member's items, sorted, including those to
 *                        release; one block for zke_free()
 *
 * Only check and step read the file; the others answer from memory.
 *
 * Example: work through the items that this member has.
 *
 *     zke_strings *mine;
 *     rc = zke_partition_list(p, &mine);
 *     for (int i = 0; rc == ZKE_OK && i < mine->count; i++)
 *       if (zke_partition_check(p, mine->data[i]) == ZKE_OK)
 *         printf("a round of %s\n", mine->data[i]);
 *     if (rc == ZKE_OK) zke_free(mine);
 */
ZKE_API int zke_partition_cancel(zke_partition *p);
ZKE_API int zke_partition_step(zke_partition *p);
ZKE_API int zke_partition_due(zke_partition *p, int64_t *deadline_out);
ZKE_API int zke_partition_state(zke_partition *p);
ZKE_API int64_t zke_partition_token(zke_partition *p, const char *item);
ZKE_API int zke_partition_check(zke_partition *p, const char *item);
ZKE_API int zke_partition_op(zke_partition *p, const char *item, zke_op *op);
ZKE_API int zke_partition_list(zke_partition *p, zke_strings **items_out);

/* One item that is owned. */
typedef struct zke_partition_owner {
  const char *item;
  const char *identity; /* of the owner's session */
  int64_t pid;          /* in its own PID namespace; for display */
  int64_t session;      /* the owner's */
  int64_t token;        /* the owner's fencing value */
  int64_t since_ms;     /* when it took the item, ms since 1970 */
  int64_t reserved[4];
} zke_partition_owner;

/* One block, released by zke_free(). */
typedef struct zke_partition_owners {
  int count;
  const zke_partition_owner *data;
} zke_partition_owners;

/* zke_partition_parties - the owner of each item, sorted by the znodes' names;
 * items without an owner are left out
 *
 * Items are read one after the other: if an item changes hands meanwhile, the
 * list shows its owner at the time of reading.
 *
 * Example: which member has which item.
 *
 *     zke_partition_owners *all;
 *     rc = zke_partition_parties(z, "/shards", &all);
 *     for (int i = 0; rc == ZKE_OK && i < all->count; i++)
 *       printf("%s: %s\n", all->data[i].item, all->data[i].identity);
 *     if (rc == ZKE_OK) zke_free(all);
 *
 *   list_out  count 0 if the path is missing */
ZKE_API int zke_partition_parties(zke *z, const char *path,
                                  zke_partition_owners **list_out);

#ifdef __cplusplus
}
#endif

#endif
