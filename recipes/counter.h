/* counter.h - a number that several processes count with
 *
 *     zke_counter *hits;
 *     int64_t now, before;
 *     zke_counter_new(z, "/counters/hits", NULL, &hits);
 *     zke_counter_add_and_get(hits, 1, deadline, &now, NULL);
 *     zke_counter_get_and_add(hits, 10, deadline, &before, NULL);
 *     if (zke_counter_compare_and_set(hits, 11, 0, deadline, NULL) ==
 *         ZKE_BADVERSION)
 *       fprintf(stderr, "%s\n", zke_errmsg());  // it is not 11 but ...
 *     zke_counter_free(hits);
 *
 * LAYOUT:
 *
 *     /counters/hits              persistent, data "zkembed counter" and, on
 *                                 the next line, the number
 *       writer-<session>-<object> ephemeral, one for each object that has
 *                                 changed the number: its version counts
 *                                 these changes
 *
 * EXACTLY ONCE.  The number and the version of the writer's own znode change
 * in one multi.  When a reply was lost, that version says whether the change
 * had been made, whatever others have counted since.
 *
 * IF THE PROCESS DIES before a change it was not made, after it it was; there
 * is nothing between.  Its writer's znode goes with its session.
 *
 * WHO IS WOKEN: those who listen or wait, by every change.
 *
 * LOSING THE SESSION: nothing is held; every call but free returns
 * ZKE_INVALIDSTATE, a listener hears ZKE_COUNTER_LOST.  Where that happens
 * while a reply is missing, it stays unknown whether the change was made.
 *
 * FENCING: a change's token is its zxid, greater than those of all changes
 * before.
 *
 * A change is synced to the disk, like every change of persistent state (P8).
 * Numbers that need not survive a power cut are cheaper in one's own way.
 */
#ifndef ZKEMBED_RECIPES_COUNTER_H
#define ZKEMBED_RECIPES_COUNTER_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_counter zke_counter;

enum {
  ZKE_COUNTER_CHANGED = 1, /* the number, and its change's token; at the start:
                              as it is */
  ZKE_COUNTER_REMOVED = 2, /* the znode was deleted; the number is initial */
  ZKE_COUNTER_LOST = 3     /* the session has ended */
};

/* Called after zke_counter_start().  Changes that follow each other fast may
 * be told as one. */
typedef void (*zke_counter_fn)(zke_counter *counter, int event, int64_t value,
                               int64_t token, void *context);

typedef struct zke_counter_options {
  size_t size;
  int64_t initial; /* what a counter that does not exist has; 0 */
  zke_counter_fn listener;
  void *context;
} zke_counter_options;

/* zke_counter_new - an object for one thread of counting; touches nothing
 *
 *   path         of the counter; made with the first change
 *   options      NULL for the defaults; copied
 *   counter_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what the handle's state asks for.
 * Threads: any; several may use one object, and count one after the other.
 * In a callback: yes.  Since 0.1. */
ZKE_API int zke_counter_new(zke *z, const char *path,
                            const zke_counter_options *options,
                            zke_counter **counter_out);

/* zke_counter_free - release the object; NULL is fine.  The number stays.
 * Threads: any, while no other call on it runs.  In a callback: yes. */
ZKE_API void zke_counter_free(zke_counter *counter);

/* zke_counter_get - ask the file
 *
 *   value_out  out: the number
 *   token_out  out: the zxid of its last change; 0: it does not exist
 *
 * Returns ZKE_OK, ZKE_OTHERKIND, or ZKE_DATAINCONSISTENCY where the znode
 * holds no number.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_counter_get(zke_counter *counter, int64_t *value_out,
                            int64_t *token_out);

/* zke_counter_set             - change it, whatever it is
 * zke_counter_compare_and_set - change it if it is what is expected
 * zke_counter_add_and_get     - add, give the sum
 * zke_counter_get_and_add     - add, give what was there before
 *
 *   delta        may be negative
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *   token_out    out: the change's token
 *
 * Return ZKE_OK, or, nothing having changed,
 *   ZKE_BADVERSION         it is not what was expected; the sentence says what
 *   ZKE_LIMIT              the sum does not fit into 64 bits
 *   ZKE_OTHERKIND          the path is not a counter's
 *   ZKE_DATAINCONSISTENCY  the znode holds no number
 * or ZKE_CONNECTIONLOSS where no reply came again and again, or somebody
 * deleted the counter while one was missing: whether it has changed is unknown.
 * Threads: any.  In a callback: yes.  Block: on the disk. */
ZKE_API int zke_counter_set(zke_counter *counter, int64_t value,
                            int64_t deadline_ms, int64_t *token_out);
ZKE_API int zke_counter_compare_and_set(zke_counter *counter, int64_t expected,
                                        int64_t value, int64_t deadline_ms,
                                        int64_t *token_out);
ZKE_API int zke_counter_add_and_get(zke_counter *counter, int64_t delta,
                                    int64_t deadline_ms, int64_t *value_out,
                                    int64_t *token_out);
ZKE_API int zke_counter_get_and_add(zke_counter *counter, int64_t delta,
                                    int64_t deadline_ms, int64_t *value_out,
                                    int64_t *token_out);

/* zke_counter_start - tell the listener from now on; first of all what the
 *                     number is, where the counter exists
 * zke_counter_step  - look again now, as dispatches do by themselves
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_counter_start(zke_counter *counter);
ZKE_API int zke_counter_step(zke_counter *counter);

/* zke_counter_wait - until the last change is another one
 *
 *   token        as zke_counter_get() gave it; 0: until it exists
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *   value_out    out: the number; token_out: its change, 0 where it has been
 *                deleted
 *
 * Returns ZKE_OK, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence says what it is
 *   ZKE_CANCELLED         zke_counter_cancel()
 *   ZKE_MISUSE            another thread waits with this object
 *   ZKE_INVALIDSTATE      the session has ended
 *   ZKE_OTHERKIND, ZKE_DATAINCONSISTENCY as above
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_counter_wait(zke_counter *counter, int64_t token,
                             int64_t deadline_ms, int64_t *value_out,
                             int64_t *token_out);

/* zke_counter_cancel - the blocking call on it returns ZKE_CANCELLED;
 * ZKE_IDLE where none runs.  Threads: any.  Blocks: no. */
ZKE_API int zke_counter_cancel(zke_counter *counter);

#ifdef __cplusplus
}
#endif

#endif
