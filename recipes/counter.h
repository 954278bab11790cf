/* counter.h - a number that several processes count with
 *
 *     zke_counter *hits;
 *     int64_t now;
 *     zke_counter_new(z, "/counters/hits", NULL, &hits);
 *     zke_counter_add_and_get(hits, 1, deadline, &now, NULL);
 *     if (zke_counter_compare_and_set(hits, 1, 0, deadline, NULL) ==
 *         ZKE_BADVERSION)
 *       fprintf(stderr, "%s\n", zke_errmsg());  // it is not 1 but ...
 *     zke_counter_free(hits);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).  The
 * same recipe is Curator's DistributedAtomicLong and SharedCount, and kazoo's
 * Counter.  New here: after a lost reply it is still certain what was counted.
 *
 * LAYOUT:
 *
 *     /counters/hits              persistent, data "zkembed counter" and, on
 *                                 the next line, the number
 *       writer-<session>-<object> ephemeral, one for each object that has
 *                                 changed the number: its version counts
 *                                 these changes
 *
 * EXACTLY ONCE.  The number and the version of the writer's own znode change in
 * one multi.  After a lost reply, that version shows whether the change was
 * made, whatever others have counted since.
 *
 * IF THE PROCESS DIES before a change, it was not made; after it, it was; there
 * is no state in between.  The writer's znode is removed with its session.
 *
 * WHO IS WOKEN: objects that listen or wait, by every change.
 *
 * COSTS, in transactions of the database: a change is one read and one write,
 * and as many again each time another writer was faster.  An object's first
 * change also makes its writer's znode (one write and one read), and the very
 * first change makes the counter.  A get is one read.
 *
 * LOSING THE SESSION: nothing is held; every call except free returns
 * ZKE_INVALIDSTATE, and a listener hears ZKE_COUNTER_LOST.  If a reply is
 * missing at that moment, it stays unknown whether the change was made.
 *
 * FENCING: a change's token is its zxid, greater than those of all earlier
 * changes.
 *
 * A change is synced to the disk, like every change of persistent state (P8).
 * That is expensive for a number that need not survive a power cut.
 *
 * ON AN ENSEMBLE (zookeeper.h): nothing differs except the time that a call
 * takes.
 *
 * MISTAKES, and their results:
 * - get and then set: a change in between is overwritten.  Add, or compare and
 *   set in a loop, as the example below does.
 * - Counting again after ZKE_CONNECTIONLOSS: it may be counted twice.
 * - Deleting the counter while objects that have changed it live: ZKE_NOTEMPTY,
 *   since their znodes are below it.
 * - A counter for each event of a busy program: each change is a transaction.
 *   Add up in memory, and add the sum from time to time. */
#ifndef ZKEMBED_RECIPES_COUNTER_H
#define ZKEMBED_RECIPES_COUNTER_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_counter zke_counter;

/* The listener's events. */
enum {
  ZKE_COUNTER_CHANGED = 1, /* the number, and its change's token; also once at
                              the start */
  ZKE_COUNTER_REMOVED = 2, /* the znode was deleted: the number is
                              options.initial, the token 0 */
  ZKE_COUNTER_LOST = 3     /* the session has ended; number and token are 0 */
};

/* Called after zke_counter_start().  Changes in quick succession may be told as
 * one.
 *
 * Example: show the number.
 *
 *     static void counted(zke_counter *counter, int event, int64_t value,
 *                         int64_t token, void *context) {
 *       (void)counter, (void)token, (void)context;
 *       if (event != ZKE_COUNTER_LOST) printf("%lld\n", (long long)value);
 *     }
 *
 *     static int show(zke *z, zke_counter **counter) {
 *       zke_counter_options o = ZKE_INIT(zke_counter_options);
 *       o.listener = counted;
 *       int rc = zke_counter_new(z, "/counters/hits", &o, counter);
 *       return rc == ZKE_OK ? zke_counter_start(*counter) : rc;
 *     }
 */
typedef void (*zke_counter_fn)(zke_counter *counter, int event, int64_t value,
                               int64_t token, void *context);

typedef struct zke_counter_options {
  size_t size;
  int64_t initial; /* the number of a counter that does not exist; all objects
                      of a counter should use the same */
  zke_counter_fn listener;
  void *context;
} zke_counter_options;

/* zke_counter_new - an object that counts; writes nothing
 *
 *   path         of the counter; made with the first change
 *   options      NULL for the defaults; copied
 *   counter_out  out; for zke_counter_free()
 *
 * Several threads may use one object, and count one after the other. */
ZKE_API int zke_counter_new(zke *z, const char *path,
                            const zke_counter_options *options,
                            zke_counter **counter_out);

/* zke_counter_free - release the object.  The number stays. */
ZKE_API void zke_counter_free(zke_counter *counter);

/* zke_counter_get - ask the file
 *
 *   value_out  out: the number; options.initial if the counter does not exist
 *   token_out  out: the zxid of its last change; 0: it does not exist
 *
 * Returns ZKE_OK, ZKE_OTHERKIND, or ZKE_DATAINCONSISTENCY if the znode holds no
 * number. */
ZKE_API int zke_counter_get(zke_counter *counter, int64_t *value_out,
                            int64_t *token_out);

/* zke_counter_set             - change it, whatever its value
 * zke_counter_compare_and_set - change it if it has the expected value
 * zke_counter_add_and_get     - add, and return the sum
 *
 * Example: take from a stock, but never more than there is.
 *
 *     int64_t stock;
 *     do {
 *       rc = zke_counter_get(counter, &stock, NULL);
 *       if (rc == ZKE_OK && stock > 0)
 *         rc = zke_counter_compare_and_set(counter, stock, stock - 1, deadline,
 *                                          NULL);
 *     } while (rc == ZKE_BADVERSION);
 *
 *   delta        may be negative
 *   deadline_ms  for repeating calls that got no reply
 *   token_out    out: the change's token
 *
 * Return ZKE_OK, or, with nothing changed,
 *   ZKE_BADVERSION         it has another value; the sentence says which
 *   ZKE_LIMIT              the sum does not fit into 64 bits
 *   ZKE_OTHERKIND          the path is not a counter's
 *   ZKE_DATAINCONSISTENCY  the znode holds no number
 *
 * or ZKE_CONNECTIONLOSS if no reply came again and again, or somebody deleted
 * the counter while a reply was missing: it is unknown whether it has
 * changed. */
ZKE_API int zke_counter_set(zke_counter *counter, int64_t value,
                            int64_t deadline_ms, int64_t *token_out);
ZKE_API int zke_counter_compare_and_set(zke_counter *counter, int64_t expected,
                                        int64_t value, int64_t deadline_ms,
                                        int64_t *token_out);
ZKE_API int zke_counter_add_and_get(zke_counter *counter, int64_t delta,
                                    int64_t deadline_ms, int64_t *value_out,
                                    int64_t *token_out);

/* zke_counter_start - tell the listener from now on; first the number, if the
 *                     counter exists
 * zke_counter_step  - look again now
 *
 * Return ZKE_OK, ZKE_OTHERKIND, ZKE_DATAINCONSISTENCY, or the reason why the
 * file could not be read: then the call can be repeated. */
ZKE_API int zke_counter_start(zke_counter *counter);
ZKE_API int zke_counter_step(zke_counter *counter);

/* zke_counter_wait - wait for the next change
 *
 * Example: follow a counter.
 *
 *     int64_t value, token;
 *     rc = zke_counter_get(counter, &value, &token);
 *     while (rc == ZKE_OK) {
 *       printf("%lld\n", (long long)value);
 *       rc = zke_counter_wait(counter, token, deadline, &value, &token);
 *     }
 *
 *   token        from zke_counter_get(); 0: until the counter exists
 *   value_out    out: the number; token_out: its change, 0 if it has been
 *                deleted
 *
 * Returns ZKE_OK, even if the last change is already another one than token;
 * ZKE_OPERATIONTIMEOUT, with a sentence that says the number; ZKE_CANCELLED,
 * ZKE_MISUSE, ZKE_INVALIDSTATE; or as zke_counter_get(). */
ZKE_API int zke_counter_wait(zke_counter *counter, int64_t token,
                             int64_t deadline_ms, int64_t *value_out,
                             int64_t *token_out);

/* zke_counter_cancel - another thread's blocking call returns ZKE_CANCELLED;
 * ZKE_IDLE if none runs */
ZKE_API int zke_counter_cancel(zke_counter *counter);

#ifdef __cplusplus
}
#endif

#endif
