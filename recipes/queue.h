/* queue.h - items for the first taker, with claims, priorities and delays
 *
 *     zke_queue *queue;
 *     zke_queue_item *item;
 *     if (zke_queue_new(z, "/jobs", NULL, &queue) != ZKE_OK) return;
 *     zke_queue_put(queue, "resize 7", 8, NULL, ZKE_FOREVER);
 *     while (zke_queue_claim(queue, zke_now(z) + 5000, &item) == ZKE_OK) {
 *       // Work on item->data; if this process dies, another one gets it.
 *       if (zke_queue_ack(queue, item, NULL, 0, NULL) != ZKE_OK)
 *         fprintf(stderr, "%s\n", zke_errmsg());
 *       zke_free(item);
 *     }
 *     zke_queue_free(queue);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * queue.c has the algorithm at its head.  It implements the queue of
 * ZooKeeper's page "Recipes and Solutions", including priorities.  Entries and
 * claims follow kazoo's LockingQueue, and delays follow Curator's
 * DistributedDelayQueue.  Dead letters, keys and limits are additions.
 *
 * LAYOUT.  kazoo's LockingQueue has the same items and claims (doc/server.md
 * says what a program that uses both must do):
 *
 *     /jobs                              data "zkembed queue", limit, attempts
 *       entries
 *         entry-100-0000000001           an item: priority 100, number 1
 *         later-100-1790000000000-0000000002   an item, not before this time
 *         line
 *           _c_<guid>-take-0000000000    ephemeral: waits for an item
 *           _c_<guid>-put-0000000001     ephemeral: waits for room
 *           _c_<guid>-user-0000000002    ephemeral: an object's changes
 *       taken
 *         entry-100-0000000001           ephemeral: a claim
 *         until-0000004711000-3-entry-100-0000000001
 *                                        ephemeral: the time at which that
 *                                        claim, which made version 3, ends
 *         entry-100-0000000005           given back with a delay; has a TTL
 *         after-1790000000000-1-entry-100-0000000005
 *                                        the end of that delay; has a TTL
 *       keys
 *         key-invoice 12                 the name of the item with this key
 *         entry-100-0000000001           the key of the item with this name
 *       dead
 *         entry-100-0000000001           claimed too often: the item's data
 *           death                        attempts, consumer, reason, key
 *       stays                            exists if limit or attempts were named
 *
 * All directories are containers, including /jobs and its parents if they are
 * made here.  So a queue without items or dead letters is removed automatically
 * when no object uses it (container_ms), and the next object that needs it
 * makes it again.  But if options.limit or options.attempts were named, it
 * stays, since they apply to all later users; zke_queue_destroy() removes it
 * even then.
 *
 * An item's znode has the item's data; its version counts the claims.  Items
 * are delivered by priority (lower first), then in the order in which they
 * became available: by number, but a delayed item counts as put when it was
 * due.  A released item returns to its place.  In a plain queue, all items have
 * the same priority.
 *
 *     READY ---- claim ----> CLAIMED ---- ack ----> gone
 *       ^                     |    |
 *       |    release, death,  |    '-- release or death after the last
 *       '---- end of claim ---'        attempt ----> DEAD LETTER
 *
 * A take moves an item from READY to gone.  An item with a due time, or one
 * released with a delay, becomes READY at that time.  zke_queue_requeue() makes
 * a new item from a dead letter.
 *
 * EXACTLY ONCE IN AND OUT.  Every change is one zke_multi(), which also writes
 * the object's own "user" znode.  After a lost reply, the version of that znode
 * tells whether the change was made.  So a put is never done twice, even if the
 * item is taken before the producer looks for it.  The outcome stays unknown
 * only if that znode cannot be read either, or somebody has deleted it.  Then
 * the call returns ZKE_CONNECTIONLOSS, or the reason why it could not read.
 *
 * IF THE PROCESS DIES
 *   in a put: all of its items are in the queue, or none;
 *   in a take: the item is still there, or has gone with the process (at most
 *     once);
 *   with a claim, or while it acknowledges: the item is done, or is free again
 *     as soon as the session has ended (at least once).  The kernel tells
 *     waiting takers.
 * Its places in the line are removed with its session.
 *
 * WHO IS WOKEN: each put and the end of each claim wake all waiting processes,
 * and the first that looks gets the item.  So if some of them are stopped, or
 * busy with something else, the others miss nothing.  A process that has not
 * looked since it was woken is not woken again.  Waking only two was tried: if
 * both were stopped, no other process knew of the item.
 *
 * COSTS, in transactions of the database, once the object has been used: a put
 * is one write.  A limit adds one read, and a read of all names when the queue
 * is nearly full; a key adds three reads.  A take or a claim is two reads (the
 * first names; the item) and one write, however long the queue is.  Items that
 * are not due yet add one read for each of their priorities, a key adds one
 * read, and with a listener a claim sets one watch.  An ack, a release and a
 * prolongation are one write each; zke_queue_check() is one read.  A call that
 * has to wait creates and deletes its place in the line.  It also sets and
 * removes one watch on "entries" and one on each item that is claimed or was
 * given back with a delay.  Each of these is a small write.  put_all,
 * claim_some and ack_all use one write for all of their items; claim_some reads
 * each item.
 *
 * LOSING THE SESSION loses its claims.  A claim is also lost if somebody
 * deletes it.  In both cases the listener hears ZKE_QUEUE_LOST, and ack,
 * release, check and a multi with zke_queue_ops() fail.
 *
 * CLAIMS THAT END: with options.claim_ms, or after zke_queue_prolong(), a claim
 * ends at a given time, even if its consumer is alive (it may be stopped or
 * hanging).  After that time the first consumer that asks can have the item, as
 * if it had been released; waiting consumers wake up by themselves.  Until
 * another consumer has it, nothing is lost: ack, release, prolong and check
 * still succeed.  From then on they return ZKE_LOST to the earlier consumer,
 * since each of them is decided in one step that requires the claim.  The clock
 * is that of zke_now(), from options.os: CLOCK_MONOTONIC, which all processes
 * on a machine share (except in a separate time namespace: such processes must
 * not share a queue with others).  It does not run while the machine is
 * suspended, and does not follow the wall clock.  What counts is the clock of
 * the process that looks.  Consumers whose version has no such claims wait
 * until the session ends.
 *
 * FENCING: item->token is the claim's czxid, greater than that of every earlier
 * claim of the item.  In the same database guard changes with zke_queue_ops(),
 * or let zke_queue_ack() make them with the acknowledgement.
 *
 * LIMITS: each look reads the names of all items that are claimed or were given
 * back with a delay.  The numbers in names have 31 bits: they are used up after
 * two billion puts.  A put into a bounded queue that is full reads all names.
 * A claim rewrites the item's data, so keep large data elsewhere.  A program
 * that makes items with zke_create() wakes no one unless it also sets the data
 * of "entries".
 *
 * ON AN ENSEMBLE (zookeeper.h): if a consumer was silent for the session's
 * timeout, its item is delivered again.  The first consumer's ack then returns
 * ZKE_LOST, and none of its operations is done.
 *
 * MISTAKES, and their results:
 * - Freeing a claimed item instead of acknowledging it: the claim lasts until
 *   ack, release or zke_queue_free(), or until its time or the session ends.
 * - Acknowledging twice, or with an object other than the one that claimed the
 *   item: ZKE_LOST, and nothing is changed.
 * - Working longer than the claim lasts: another consumer gets the item, and
 *   the ack returns ZKE_LOST.  Put the effect of the work into the ack's
 *   operations, or guard it with the token: then it does not happen twice.
 * - Using take for work that must be done: if the process dies after the take,
 *   the work is never done.
 * - Waiting for an item with one object in two threads: the second one gets
 *   ZKE_MISUSE.  Each needs a separate object.
 * - Naming a limit or attempts that differ from the queue's: the first call
 *   that uses the queue returns ZKE_BADARGUMENTS.
 */
#ifndef ZKEMBED_RECIPES_QUEUE_H
#define ZKEMBED_RECIPES_QUEUE_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_queue zke_queue;

/* The listener's events.  The listener may call the queue, or free it.
 *
 * Example: items for an event loop.  The listener tries without waiting.  If it
 * finds nothing, it stays registered; after a success it asks again.
 *
 *     static void heard(zke_queue *queue, int event, int64_t token,
 *                       const char *name, void *context) {
 *       zke_queue_item *item;
 *       (void)token, (void)context;
 *       if (event == ZKE_QUEUE_LOST) {
 *         fprintf(stderr, "lost %s\n", name ? name : "the session");
 *       } else if (zke_queue_take(queue, 0, &item) == ZKE_OK) {
 *         printf("working on %s\n", item->data);
 *         zke_free(item);
 *         zke_queue_start(queue, ZKE_QUEUE_ITEM);
 *       }
 *     }
 *
 *     static int listen_to(zke *z, zke_queue **queue) {
 *       zke_queue_options o = ZKE_INIT(zke_queue_options);
 *       o.listener = heard;
 *       int rc = zke_queue_new(z, "/jobs", &o, queue);
 *       return rc == ZKE_OK ? zke_queue_start(*queue, ZKE_QUEUE_ITEM) : rc;
 *     }
 */
enum {
  ZKE_QUEUE_ITEM = 1, /* after zke_queue_start(): something can be taken */
  ZKE_QUEUE_ROOM = 2, /* after zke_queue_start(): there is room */
  ZKE_QUEUE_LOST = 3  /* a claim is lost; token and name are those of the claim
                         and its item.  If name is NULL, the session has ended,
                         and there are no more events */
};
typedef void (*zke_queue_fn)(zke_queue *queue, int event, int64_t token,
                             const char *name, void *context);

typedef struct zke_queue_options {
  size_t size;
  int limit;    /* the most items, including claimed and delayed ones; 0: the
                   queue's own, see zke_queue_new() */
  int attempts; /* claims until an item becomes a dead letter; 0: the queue's
                   own */
  zke_queue_fn listener; /* if set, a claim costs one more small write, for the
                            watch on its znode */
  void *context;
  int new_attempts; /* attempts of a queue that this object makes; an existing
                       queue keeps its own, or none; 0: none */
  int reserved_int; /* 0 */
  int64_t claim_ms; /* how long this object's claims last, ms of zke_now(), 0 to
                       17 years; see CLAIMS THAT END.  0: as long as the
                       session */
} zke_queue_options;

/* zke_queue_new - make an object for one producer or consumer; writes nothing
 *
 * limit and attempts belong to the queue, not to the object.  The first object
 * that names them stores them.  Other objects must name the same values, or 0
 * to use the queue's.  Until they are named there is no limit, and an item can
 * be claimed any number of times.  new_attempts is written when this object
 * makes the queue, and is ignored if the queue exists.
 *
 * Example: at most 1000 items, and after three claims an item is a dead letter.
 *
 *     zke_queue_options o = ZKE_INIT(zke_queue_options);
 *     o.limit = 1000;
 *     o.attempts = 3;
 *     o.claim_ms = 60000;  // a consumer that hangs loses its item
 *     rc = zke_queue_new(z, "/jobs", &o, &queue);
 *
 *   path       of the queue; made as a container when first needed
 *   options    NULL for the defaults; copied
 *   queue_out  out; for zke_queue_free()
 *
 * The first call that uses the queue reads its settings.  It returns
 * ZKE_BADARGUMENTS if the queue's limit or attempts are different, and
 * ZKE_OTHERKIND if the path belongs to something else. */
ZKE_API int zke_queue_new(zke *z, const char *path,
                          const zke_queue_options *options,
                          zke_queue **queue_out);

/* zke_queue_free - release the object, and the claims that it holds
 *
 * The items that it had claimed become free for others.  Items that it returned
 * stay valid until zke_free(). */
ZKE_API void zke_queue_free(zke_queue *queue);

/* ------------------------------------------------------------------------
 * In
 *
 * Example: an invoice to send in an hour, and only once.
 *
 *     zke_queue_put_options o = ZKE_INIT(zke_queue_put_options);
 *     o.due_ms = zke_wall(z) + 3600000;
 *     o.key = "invoice 12";
 *     rc = zke_queue_put(queue, "send 12", 7, &o, zke_now(z) + 5000);
 *     if (rc == ZKE_NODEEXISTS) rc = ZKE_OK;  // it is in the queue already
 * --------------------------------------------------------------------- */

/* Set size and leave the rest zero for the defaults. */
typedef struct zke_queue_put_options {
  size_t size;
  int priority;    /* 1 to 999, lower first; 0: 100 */
  int ephemeral;   /* 1: the item is removed with this session */
  int64_t due_ms;  /* when it can first be taken, ms since 1970, up to the year
                      2286; 0: now */
  const char *key; /* 1 to 255 bytes without control characters: no other item
                      has this key from the put until the item is acknowledged,
                      taken or buried.  Only for a put of one item; copied.
                      NULL: none */
} zke_queue_put_options;

/* zke_queue_put - append an item
 *
 *   data, len    as for zke_create(): len -1 for NULL data; copied
 *   options      NULL for the defaults
 *   deadline_ms  how long to wait for room; if it has passed, do not wait
 *
 * Returns ZKE_OK once the item is on the disk; or, with nothing put,
 *   ZKE_LIMIT         the queue was full until the deadline; or, returned
 *                     immediately, it has used up its numbers
 *   ZKE_NODEEXISTS    an item with that key exists, and the sentence names it.
 *                     It may be ready, delayed or claimed.  Returned
 *                     immediately, even if the queue is full.  An item that was
 *                     deleted by other means does not block its key
 *   ZKE_BADARGUMENTS  an option, or data over the handle's limit
 *   ZKE_MISUSE        it would have to wait, but another thread waits for room
 *                     with this object
 *   ZKE_OPERATIONTIMEOUT  others kept the database, or kept putting, until the
 *                         deadline
 *   ZKE_CANCELLED */
ZKE_API int zke_queue_put(zke_queue *queue, const void *data, int len,
                          const zke_queue_put_options *options,
                          int64_t deadline_ms);

typedef struct zke_queue_value {
  const void *data;
  int len;
} zke_queue_value;

/* zke_queue_put_all - append several items in one step, all or none
 *
 * Example: all parts of a job arrive together, or none does.
 *
 *     zke_queue_value parts[] = {{"part 1", 6}, {"part 2", 6}};
 *     rc = zke_queue_put_all(queue, parts, 2, NULL, zke_now(z) + 5000);
 *
 *   values, count  in this order; 0 does nothing.  options apply to each
 *
 * Returns as zke_queue_put(); ZKE_LIMIT immediately if the queue could never
 * hold that many; ZKE_BADARGUMENTS if their sum is over the data limit. */
ZKE_API int zke_queue_put_all(zke_queue *queue, const zke_queue_value *values,
                              int count, const zke_queue_put_options *options,
                              int64_t deadline_ms);

/* zke_queue_put_with - put items, and make other changes in the same step
 *
 * So there is never a row without the item that announces it, or an item
 * without its row.
 *
 * Example: an order and its item; add_order() is a function for zke_op_sql().
 *
 *     static int place(zke *z, zke_queue *queue, zke_sql_fn add_order,
 *                      char *what) {
 *       zke_queue_value value = {what, (int)strlen(what)};
 *       zke_op op;
 *       zke_op_sql(&op, add_order, what);
 *       return zke_queue_put_with(queue, &value, 1, NULL, &op, 1, NULL,
 *                                 zke_now(z) + 5000);
 *     }
 *
 *   values, value_count  as for zke_queue_put_all(), but at least one
 *   ops, count  more changes for the same step.  They are made once there is
 *               room, after the items.  None is lost or done twice, whatever
 *               happens to the reply.  A function of zke_op_sql() may be called
 *               several times (if others put at the same moment)
 *   results     out, count of them, or NULL; zke_results_clear() releases them.
 *               All zero if a reply was lost, or if nothing was tried
 *
 * Returns as zke_queue_put_all(), or the error of zke_multi() for ops: then
 * nothing was put.  If it returns ZKE_NODEEXISTS and no result has that code,
 * another item has the key. */
ZKE_API int zke_queue_put_with(zke_queue *queue, const zke_queue_value *values,
                               int value_count,
                               const zke_queue_put_options *options,
                               const zke_op *ops, int count,
                               zke_op_result *results, int64_t deadline_ms);

/* ------------------------------------------------------------------------
 * Out
 *
 * Example: the effect of the work is a znode, made together with the ack.  So
 * it exists exactly once, whatever dies in between.
 *
 *     zke_queue_item *item;
 *     zke_op done;
 *     rc = zke_queue_claim(queue, zke_now(z) + 5000, &item);
 *     if (rc == ZKE_OK) {
 *       zke_op_create(&done, "/sent/12", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
 *       rc = zke_queue_ack(queue, item, &done, 1, NULL);
 *       if (rc == ZKE_LOST) printf("another consumer has %s\n", item->name);
 *       zke_free(item);
 *     }
 * --------------------------------------------------------------------- */

/* An item, in one block.  Release it with zke_free() at any time; that neither
 * acknowledges the item nor gives up the claim. */
typedef struct zke_queue_item {
  const char *name; /* of its znode */
  const char *data; /* followed by a NUL; NULL for NULL data */
  int len;
  int priority;
  int attempts;   /* number of its claims, including this one */
  int64_t token;  /* the claim's fencing value; 0: not claimed */
  int64_t zxid;   /* of the put */
  int64_t put_ms; /* when it was put, ms since 1970 */
  int64_t due_ms; /* when it could first be taken, ms since 1970; 0: now */
  /* For the queue, which finds the claim by these: */
  const char *entry_path, *claim_path, *user_path;
  int32_t version;
  int over;
  const char *marker_path, *keyed_path, *key_path;
  const char *key; /* as it was put; "": none */
} zke_queue_item;

/* zke_queue_take  - take the first item out of the queue: at most once
 * zke_queue_claim - claim the first item: at least once
 *
 * An item that has had its last attempt is not returned: the call buries it.
 *
 *   deadline_ms  how long to wait for an item; if it has passed, do not wait
 *   item_out     out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, or
 *   ZKE_OPERATIONTIMEOUT  nothing to take until the deadline; the sentence
 *                         tells whether the queue is empty, all is claimed
 *                         (with one of the holders, and since when), or nothing
 *                         is due
 *   ZKE_MISUSE            it would have to wait, but this object already waits,
 *                         in another thread or since zke_queue_start()
 *   ZKE_CANCELLED, ZKE_INVALIDSTATE */
ZKE_API int zke_queue_take(zke_queue *queue, int64_t deadline_ms,
                           zke_queue_item **item_out);
ZKE_API int zke_queue_claim(zke_queue *queue, int64_t deadline_ms,
                            zke_queue_item **item_out);

/* zke_queue_claim_some - claim the first items, in one step
 *
 * Like zke_queue_claim(), it waits for one item, not for the number asked for.
 * It returns fewer if there are no more, if together they are larger than the
 * data limit, or if the next one must be buried first, or was claimed or
 * removed by another process at that moment.
 *
 *   most       1 to 256
 *   items_out  out, an array of that size: the items in their order, each a
 *              separate block, and NULL after the last.  All have the same
 *              token
 *   count_out  out, not NULL: their number; 0 on failure
 *
 * Example: workers that take up to 16 items at a time.
 *
 *     zke_queue_item *items[16];
 *     int count;
 *     rc = zke_queue_claim_some(queue, 16, deadline, items, &count);
 *     if (rc == ZKE_OK)
 *       rc = zke_queue_ack_all(queue, items, count, NULL, 0, NULL);
 *     for (int i = 0; i < count; i++) zke_free(items[i]);
 *
 * Returns as zke_queue_claim(), or ZKE_BADARGUMENTS. */
ZKE_API int zke_queue_claim_some(zke_queue *queue, int most,
                                 int64_t deadline_ms,
                                 zke_queue_item **items_out, int *count_out);

/* zke_queue_prolong - make a claim end ms milliseconds from now, sooner or
 * later than before
 *
 * For a consumer that is still working; see CLAIMS THAT END.  The new time
 * replaces that of options.claim_ms or of an earlier call.
 *
 * Example: one more minute.
 *
 *     static int go_on(zke_queue *queue, const zke_queue_item *item) {
 *       return zke_queue_prolong(queue, item, 60000);
 *     }
 *
 *   ms  1 to 17 years, or ZKE_FOREVER: as long as the session
 *
 * Returns ZKE_OK, or
 *   ZKE_LOST          the claim is no longer held: another has the item
 *   ZKE_BADARGUMENTS  the item is NULL, or ms is out of range
 *   or the reason why it could not be written: then the claim's end is
 *   unchanged
 *
 * After ZKE_CONNECTIONLOSS it is not known which of the two times applies; the
 * claim is held at least until the earlier one. */
ZKE_API int zke_queue_prolong(zke_queue *queue, const zke_queue_item *item,
                              int64_t ms);

/* zke_queue_ack - done: remove the item, with other changes in the same step
 *
 *   item        from zke_queue_claim() of this object; not freed
 *   ops, count  more changes for the same step, or NULL, 0.  None is lost or
 *               done twice, whatever happens to the reply; a function of
 *               zke_op_sql() may be called several times
 *   results     out, count of them, or NULL; zke_results_clear() releases them.
 *               All zero if a reply was lost, or if nothing was tried
 *
 * Returns ZKE_OK; ZKE_LOST if the claim is no longer held; or the error of
 * zke_multi() for ops: then nothing was changed, and the claim is held. */
ZKE_API int zke_queue_ack(zke_queue *queue, const zke_queue_item *item,
                          const zke_op *ops, int count, zke_op_result *results);

/* zke_queue_ack_all - the same for several items, in one step: all or none
 *
 *   items       item_count of them, 1 to 256, each claimed by this object
 *
 * Returns as zke_queue_ack().  ZKE_LOST: one of the claims is no longer held.
 * Nothing was changed, and the others are still held.  To learn which one was
 * lost, acknowledge each separately. */
ZKE_API int zke_queue_ack_all(zke_queue *queue, zke_queue_item *const *items,
                              int item_count, const zke_op *ops, int count,
                              zke_op_result *results);

/* zke_queue_release - give the item back to its place, after a delay
 *
 * After its last attempt the item becomes a dead letter immediately instead,
 * with the reason and with the session's identity.
 *
 * After the delay, the item returns to its place, before the items that were
 * put after it.  Waiting consumers wake up when it is due, even if this process
 * has ended.
 *
 * Example: try again in a minute, and store the reason.
 *
 *     static int put_off(zke_queue *queue, const zke_queue_item *item) {
 *       return zke_queue_release(queue, item, 60000, "the printer is off");
 *     }
 *
 *   delay_ms  0 to 17 years of zke_wall(), which a reboot does not stop; 0: no
 *             delay.  A waiting process notices within 10 s if the clock is set
 *   reason    a line; NULL: "it was given back".  Copied, and kept only with
 *             the dead letter; a line break in it becomes a space
 *
 * Returns ZKE_OK, ZKE_LOST, ZKE_BADARGUMENTS (the item is NULL, or delay_ms is
 * out of range; nothing was done), or the reason why it could not be written
 * (the disk is full, another writer is stopped).  In the last case the claim is
 * given up anyway: the session deletes it as soon as it can, in its next calls
 * and dispatches.  Then the item is back in its place, without a delay.  After
 * its last attempt, the next consumer that looks buries it without the reason.
 */
ZKE_API int zke_queue_release(zke_queue *queue, const zke_queue_item *item,
                              int64_t delay_ms, const char *reason);

/* zke_queue_check - ask the file: ZKE_OK while the claim is held, else ZKE_LOST
 *
 * The answer is true at the moment of the read.  If work must not be done after
 * a loss, guard it with zke_queue_ops() or with the token. */
ZKE_API int zke_queue_check(zke_queue *queue, const zke_queue_item *item);

/* zke_queue_ops - operations for the program's own zke_multi()
 *
 * They fail with ZKE_NONODE or ZKE_BADVERSION unless the claim is held.  They
 * point into the item, so they are valid as long as the item is.
 *
 * Example: write a result while the claim is held, without ending it.
 *
 *     static int note(zke *z, const zke_queue_item *item) {
 *       zke_op ops[ZKE_QUEUE_OPS + 1];
 *       int rc = zke_queue_ops(item, ops);
 *       zke_op_set(&ops[ZKE_QUEUE_OPS], "/progress", "half", 4, -1);
 *       if (rc == ZKE_OK) rc = zke_multi(z, ops, ZKE_QUEUE_OPS + 1, NULL);
 *       return rc;
 *     }
 *
 *   ops  out: ZKE_QUEUE_OPS of them
 *
 * Returns ZKE_OK, or ZKE_BADARGUMENTS (NULL, or an item without a claim).
 * Blocks: no. */
enum { ZKE_QUEUE_OPS = 3 };
ZKE_API int zke_queue_ops(const zke_queue_item *item,
                          zke_op ops[ZKE_QUEUE_OPS]);

/* zke_queue_cancel - make the blocking call return ZKE_CANCELLED;
 * ZKE_IDLE if none runs */
ZKE_API int zke_queue_cancel(zke_queue *queue);

/* ------------------------------------------------------------------------
 * Without blocking
 *
 * Ask for an event, and when the listener hears it, try with a deadline of 0.
 * A successful try ends the waiting.  After any other try the object still
 * waits, whether others were quicker or the try failed (the database was busy,
 * the disk full).  If an item or room remains, the listener is told again
 * immediately; after a put of several that found too little room, it is told
 * when there is room for that many.
 *
 * After a try that fails inside the listener, the next put or the end of a
 * claim tells it, or zke_queue_step() when the program wants to try again.  A
 * listener that was told and has not tried, or could not begin its try (the
 * session's store was busy), is told by the next put or by zke_queue_step().
 * For an example, see the listener's type above.
 * --------------------------------------------------------------------- */

/* zke_queue_start - tell the listener, from zke_dispatch() or now, of
 *                   ZKE_QUEUE_ITEM or ZKE_QUEUE_ROOM
 * zke_queue_stop  - stop waiting
 *
 *   event  one of the two
 *
 * Returns ZKE_OK, even if it was asked for already; ZKE_BADARGUMENTS;
 * ZKE_MISUSE without a listener, or while another thread waits. */
ZKE_API int zke_queue_start(zke_queue *queue, int event);
ZKE_API int zke_queue_stop(zke_queue *queue, int event);

/* zke_queue_step - look again now, and tell the listener */
ZKE_API int zke_queue_step(zke_queue *queue);

/* zke_queue_due - when the next delayed item can be taken, or the next claim
 * ends
 *
 * No event reports that a time has come, so an event loop that uses
 * zke_queue_start() must try then.
 *
 * Example: the next time at which an event loop has to look.
 *
 *     int64_t due;
 *     rc = zke_queue_due(queue, &due);
 *     if (rc == ZKE_OK && due < deadline) deadline = due;
 *
 *   deadline_out  out, not NULL: ms of zke_now(), or ZKE_FOREVER */
ZKE_API int zke_queue_due(zke_queue *queue, int64_t *deadline_out);

/* ------------------------------------------------------------------------
 * Looking
 *
 * Example: list the dead letters, and put each back.
 *
 *     zke_queue_entries *dead;
 *     rc = zke_queue_dead(queue, &dead);
 *     for (int i = 0; rc == ZKE_OK && i < dead->count; i++) {
 *       const zke_queue_entry *e = &dead->data[i];
 *       printf("%s: %d attempts, %s\n", e->name, e->attempts, e->reason);
 *       zke_queue_requeue(queue, e->name, zke_now(z) + 1000);
 *     }
 *     if (rc == ZKE_OK) zke_free(dead);
 * --------------------------------------------------------------------- */

typedef struct zke_queue_counts {
  int items;   /* all in the queue: the sum of the next three */
  int ready;   /* can be taken now */
  int delayed; /* not yet due */
  int claimed;
  int dead;
  int takers, putters; /* objects that wait for an item, or for room */
  int limit, attempts; /* of the queue; 0: none */
  int64_t reserved[4];
} zke_queue_counts;

typedef struct zke_queue_entry {
  const char *name;
  int len; /* bytes of its data */
  int priority;
  int attempts;
  int64_t zxid;     /* of the put; for a dead letter: of its death */
  int64_t put_ms;   /* when, ms since 1970; for a dead letter: when it died */
  int64_t due_ms;   /* of its put, or of a release with a delay; 0: none */
  int64_t producer; /* session of an ephemeral item, else 0 */
  int claimed;      /* 1: token, session and since_ms are set */
  int64_t token;    /* the claim's fencing value */
  int64_t session;  /* of the consumer */
  int64_t since_ms; /* when it claimed the item, ms since 1970 */
  const char *identity; /* of the consumer; of a dead letter's last one; "" if
                           unknown: it has gone, or is about to go */
  int64_t pid;          /* in its own PID namespace; for display */
  const char *reason;   /* for a dead letter: the reason of the last time it was
                           given back; else "" */
  const char *key;      /* as it was put; "": none */
  int64_t until_ms;     /* when the claim ends, of zke_now(); 0: not before the
                           session ends */
  int64_t reserved[2];
} zke_queue_entry;

/* One block, released by zke_free(). */
typedef struct zke_queue_entries {
  int count;
  const zke_queue_entry *data;
} zke_queue_entries;

/* zke_queue_peek   - the item that would be taken next, without taking it;
 *                    ZKE_NONODE if there is none
 * zke_queue_size   - the number of items of each kind
 * zke_queue_list   - all items in their order, with their consumers
 * zke_queue_dead   - the dead letters, in the order of their deaths: how often
 *                    each was claimed, who gave it back last, and why.  If an
 *                    item is over the data limit less 1 KiB, these may be
 *                    missing: 0 attempts, ""
 *
 * A queue that does not exist counts as empty, and is not made.  peek, list and
 * dead return one block for zke_free().  Peek reads what a take reads.  The
 * others read all names; list and dead also read each item. */
ZKE_API int zke_queue_peek(zke_queue *queue, zke_queue_item **item_out);
ZKE_API int zke_queue_size(zke_queue *queue, zke_queue_counts *counts_out);
ZKE_API int zke_queue_list(zke_queue *queue, zke_queue_entries **entries_out);
ZKE_API int zke_queue_dead(zke_queue *queue, zke_queue_entries **entries_out);

/* zke_queue_requeue - put a dead letter back at the end of the queue, as new
 *
 * The step that puts the item deletes the letter.  The item keeps its priority,
 * and its attempts begin at 0.  The call waits for room as zke_queue_put()
 * does.
 *
 *   name  as zke_queue_dead() shows it
 *
 * Returns as zke_queue_put(); ZKE_BADARGUMENTS if name is not the name of an
 * item; or ZKE_NONODE if there is no such letter.  A letter keeps the key of
 * its item: ZKE_NODEEXISTS if another item has that key now. */
ZKE_API int zke_queue_requeue(zke_queue *queue, const char *name,
                              int64_t deadline_ms);

/* zke_queue_drop - remove a dead letter
 *
 *   name  as zke_queue_dead() shows it
 *
 * Returns ZKE_OK; ZKE_BADARGUMENTS if name is not the name of an item; or
 * ZKE_NONODE if there is no such letter. */
ZKE_API int zke_queue_drop(zke_queue *queue, const char *name);

/* ------------------------------------------------------------------------
 * The end of a queue
 * --------------------------------------------------------------------- */

/* zke_queue_destroy - remove a queue with everything in it
 *
 * Items, dead letters, claims, limit and attempts are removed: the items in
 * several steps, and the rest in one.  Others are not asked:
 *
 * - A consumer that has claimed an item loses the claim: its listener hears
 *   ZKE_QUEUE_LOST, and its calls of ack and release return ZKE_LOST.
 * - A process that waits for an item keeps waiting, and a process that waits
 *   for room gets it.
 * - The next put, take or wait, even of an older object, makes the queue again,
 *   empty, with the limit and the attempts of that object's options.  An item
 *   put during the destruction is either destroyed or in the new queue.
 *
 * This object stops waiting: zke_queue_start() ends.
 *
 * Example: remove the queue of a former customer, if nothing is in it.
 *
 *     rc = zke_queue_destroy(queue, 1);
 *     if (rc == ZKE_NOTEMPTY) printf("not yet: %s\n", zke_errmsg());
 *
 *   only_empty  1: only if there are neither items nor dead letters, as checked
 *               in the step that removes the queue; 0: in any case
 *
 * Returns ZKE_OK, or
 *   ZKE_NONODE            there is no queue
 *   ZKE_NOTEMPTY          only_empty, and there are items or letters; or others
 *                         put faster than this removes; or there are nodes
 *                         below the path that are not the queue's
 *   ZKE_OTHERKIND         the path belongs to something else
 *   ZKE_MISUSE            another thread waits with this object
 *   ZKE_OPERATIONTIMEOUT  another writer was stopped.  As after other errors,
 *                         some items may have gone; the call can be repeated */
ZKE_API int zke_queue_destroy(zke_queue *queue, int only_empty);

#ifdef __cplusplus
}
#endif

#endif
