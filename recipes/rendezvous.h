/* rendezvous.h - parties meet and exchange what they brought
 *
 * N parties, each with its data; all get everybody's once all are there:
 *
 *     zke_rendezvous *meeting;
 *     zke_party_list *who;
 *     zke_rendezvous_new(z, "/meetings/startup", 3, NULL, &meeting);
 *     if (zke_rendezvous_meet(meeting, "host:80", 7, deadline, &who, NULL))
 *       return;  // zke_errmsg() tells how many are missing, and who is here
 *     for (int i = 0; i < who->count; i++)
 *       printf("%s at %s\n", who->data[i].identity, who->data[i].data);
 *     zke_free(who);
 *     zke_rendezvous_free(meeting);
 *
 * Or as in ZooKeeper's text: the initiator makes a znode, starts a master and
 * workers and tells them its path; the master fills it in, all others wait for
 * that, and learn when the initiator has gone:
 *
 *     initiator:  zke_rendezvous_prepare(z, "/meetings/7", 1, deadline);
 *     master:     zke_rendezvous_fill(z, "/meetings/7", "host:80", 7,
 *                                     deadline, NULL);
 *     worker:     zke_rendezvous_point *point;
 *                 zke_rendezvous_point_new(z, "/meetings/7", NULL, &point);
 *                 zke_rendezvous_point_wait(point, deadline, &data, &len,
 *                                           NULL);
 *                 zke_rendezvous_point_free(point);
 *
 * The rules that every recipe keeps stand in support.h, the algorithms in
 * double_barrier.c (a meeting) and rendezvous.c (a point).  The point is the
 * rendezvous of ZooKeeper's page "Recipes and Solutions"; the meeting is an
 * addition.
 *
 * LAYOUT.  A meeting is a double barrier (double_barrier.h) of its own kind,
 * marked "zkembed rendezvous", whose rounds are left as soon as they have
 * begun; `ready` holds what everybody brought.  A point is one znode: "zkembed
 * rendezvous-point", then a line "empty", or "filled <session> <pid>
 * <identity>" and what the master wrote.
 *
 * IF A PROCESS DIES before all are there, it is not there, and the others go on
 * waiting.  Afterwards everybody has everything, whichever party dies: what it
 * brought stays.  A meeting whose parties all died leaves `ready`, which the
 * next one clears away.  A point that was prepared as an ephemeral goes with
 * its initiator, and those that wait are told (ZKE_BROKEN).  Of a persistent
 * one this only tells that somebody has deleted it.  It is filled or
 * not; there is nothing between.
 *
 * WHO IS WOKEN: all N when the last has come, nobody before.  All that wait at
 * a point when it is filled.
 *
 * COSTS: a meeting is three writes for each party (its znode made, its leaving,
 * the znode's end) and one more for the one that comes last, besides some ten
 * reads.  A point is one write to prepare, after two reads, and one to fill;
 * each process that waits reads it and sets a watch, and reads it again when it
 * is filled.
 *
 * LOSING THE SESSION while waiting ends that with ZKE_INVALIDSTATE; nothing is
 * held afterwards that could be lost.
 *
 * FENCING: the zxid of the meeting, or of the filling, increases from one to
 * the next.
 *
 * ON AN ENSEMBLE (zookeeper.h): a party that was silent for the session's
 * timeout is not there any more; its place is another's. A point is the same.
 *
 * MISTAKES, and what they come to:
 * - Different N on one path: the second party gets ZKE_OTHERKIND.
 * - Filling twice: ZKE_HELD.  A point is filled once; for a value that changes
 *   use config.h.
 * - Filling what was not prepared: ZKE_NONODE.
 * - Two threads with one object: the second gets ZKE_MISUSE.
 * - fork(), closing the handle first: as for every recipe (support.h).
 */
#ifndef ZKEMBED_RECIPES_RENDEZVOUS_H
#define ZKEMBED_RECIPES_RENDEZVOUS_H

#include "double_barrier.h"
#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------
 * A meeting of N
 * --------------------------------------------------------------------- */

typedef struct zke_rendezvous zke_rendezvous;

/* What a listener hears after zke_rendezvous_start(); token: of the meeting.
 * It runs inside zke_dispatch(), zke_wait() or a call on the object, and may
 * call the object or free it.
 *
 * Example: meet without blocking, and use what all have brought.
 *
 *     static void met(zke_rendezvous *meeting, int event, int64_t token,
 *                     void *context) {
 *       zke_party_list *who = NULL;
 *       (void)context, (void)token;
 *       if (event != ZKE_RENDEZVOUS_MET) return;
 *       if (zke_rendezvous_list(meeting, &who, NULL) == ZKE_OK)
 *         printf("%d have met\n", who->count);
 *       zke_free(who);
 *     }
 *
 *     static int come(zke *z, zke_rendezvous **meeting) {
 *       zke_rendezvous_options o = ZKE_INIT(zke_rendezvous_options);
 *       o.listener = met;
 *       int rc = zke_rendezvous_new(z, "/meetings/startup", 3, &o, meeting);
 *       if (rc != ZKE_OK) return rc;
 *       return zke_rendezvous_start(*meeting, "host:80", 7);
 *     }
 */
enum {
  ZKE_RENDEZVOUS_MET = 1, /* zke_rendezvous_list() has what they brought */
  ZKE_RENDEZVOUS_LOST = 2 /* its place was taken away, or the session */
};
typedef void (*zke_rendezvous_fn)(zke_rendezvous *meeting, int event,
                                  int64_t token, void *context);

typedef struct zke_rendezvous_options {
  size_t size;
  zke_rendezvous_fn listener; /* or NULL */
  void *context;              /* for the listener; borrowed */
} zke_rendezvous_options;

/* zke_rendezvous_new - an object for one party; writes nothing
 *
 *   path         of the meeting; made as a container when first needed
 *   parties      N, 1 to ZKE_DOUBLE_BARRIER_MOST; the same for all
 *   options      NULL for the defaults; copied
 *   meeting_out  out, not NULL; NULL on failure.  For zke_rendezvous_free()
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS (the path, parties), ZKE_NOMEM, or what the
 * handle's state asks for.
 * Threads: any.  In a callback: yes.  Blocks: on the disk.  Since 0.1. */
ZKE_API int zke_rendezvous_new(zke *z, const char *path, int parties,
                               const zke_rendezvous_options *options,
                               zke_rendezvous **meeting_out);

/* zke_rendezvous_free - give up waiting, and release the object; NULL is fine
 *
 * What was met stays in the lists that were given.
 * Threads: any, while no other call on it runs.  In a callback: yes.
 * Blocks: on the disk, and until a listener on another thread has returned. */
ZKE_API void zke_rendezvous_free(zke_rendezvous *meeting);

/* zke_rendezvous_meet - bring something, wait for all, get what they brought
 *
 * The object can be used again at once: the next meeting begins when N have
 * come for it and all of this one have what they came for.  Parties beyond N
 * wait for the next meeting.
 *
 *   data,len     what this party brings; NULL and 0 for nothing
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *   list_out     out: one block, for zke_free(): all N, this party too, in the
 *                order in which they came: data, identity, pid, session
 *   token_out    out: the meeting's zxid
 *
 * Returns ZKE_OK, or, without having been counted,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence says how many are
 *                         missing and who is there
 *   ZKE_CANCELLED         zke_rendezvous_cancel()
 *   ZKE_LOST              its znode was deleted by somebody
 *   ZKE_OTHERKIND         the path is another recipe's, or has another N
 *   ZKE_LIMIT             what N parties bring is more than fits one value, or
 *                         the directory has given 2147483647 numbers
 *   ZKE_MISUSE            another thread's call runs
 *   ZKE_INVALIDSTATE      the session has ended
 * A party that withdraws (deadline, cancel) when all are there has met them all
 * the same: ZKE_OK.
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_rendezvous_meet(zke_rendezvous *meeting, const void *data,
                                int len, int64_t deadline_ms,
                                zke_party_list **list_out, int64_t *token_out);

/* Without blocking: zke_dispatch() does the rest, the listener is told.
 *
 * zke_rendezvous_start   - come
 * zke_rendezvous_step    - look again now, as dispatches do by themselves
 * zke_rendezvous_stop    - go again
 * zke_rendezvous_list    - what the last meeting brought
 * zke_rendezvous_cancel  - the blocking call on it returns ZKE_CANCELLED;
 *                          ZKE_IDLE where none runs
 * zke_rendezvous_missing - while it waits: how many have to come yet; else: how
 *                          many are still inside of its last meeting, 0 where
 *                          there was none
 * zke_rendezvous_parties - who is there: those that wait are of kind "waiting"
 *
 * Return ZKE_OK, or
 *   ZKE_MISUSE        start: this object waits already, or another thread's
 *                     call runs
 *   ZKE_OTHERKIND     start: the path is another recipe's, or has another N
 *   ZKE_HELD          stop: all have come, so they have met
 *   ZKE_LOST          stop: this object does not wait
 *   ZKE_NONODE        list: there was no meeting yet
 *   ZKE_BADARGUMENTS  an object is NULL, len is negative, or parties has no
 *                     list_out
 *   ZKE_INVALIDSTATE  the session has ended
 * After a start that failed this party is not counted.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_rendezvous_start(zke_rendezvous *meeting, const void *data,
                                 int len);
ZKE_API int zke_rendezvous_step(zke_rendezvous *meeting);
ZKE_API int zke_rendezvous_stop(zke_rendezvous *meeting);
ZKE_API int zke_rendezvous_list(zke_rendezvous *meeting,
                                zke_party_list **list_out, int64_t *token_out);
ZKE_API int zke_rendezvous_cancel(zke_rendezvous *meeting);
ZKE_API int zke_rendezvous_missing(zke_rendezvous *meeting, int *count_out);
ZKE_API int zke_rendezvous_parties(zke *z, const char *path,
                                   zke_party_list **list_out);

/* ------------------------------------------------------------------------
 * A point that a master fills in
 *
 * Example: the initiator and the master in one program.  The point goes with
 * this session.
 *
 *     rc = zke_rendezvous_prepare(z, "/meetings/7", 1, deadline);
 *     if (rc == ZKE_OK)
 *       rc = zke_rendezvous_fill(z, "/meetings/7", "host:80", 7, deadline,
 *                                NULL);
 *
 * Example: a worker, which may have been started before the initiator.
 *
 *     char *where = NULL;
 *     rc = zke_rendezvous_point_new(z, "/meetings/7", NULL, &point);
 *     if (rc == ZKE_OK)
 *       rc = zke_rendezvous_point_wait(point, deadline, &where, NULL, NULL);
 *     if (rc == ZKE_OK) printf("the master is at %s\n", where);
 *     zke_free(where);
 *     zke_rendezvous_point_free(point);
 * --------------------------------------------------------------------- */

/* zke_rendezvous_prepare - make the znode, empty
 *
 *   path         its parents are made where they are missing
 *   ephemeral    1: it goes with this session, and all that wait learn it
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Returns ZKE_OK, also where an empty point is there already (but for an
 * ephemeral one only where it is this session's); ZKE_HELD where it is there
 * and filled, or another session's, or ephemeral and a persistent one was asked
 * for, or the other way round; ZKE_OTHERKIND where the path is something else;
 * ZKE_CONNECTIONLOSS where the reply was lost, nothing is there, and something
 * has come or gone in the directory above since: the point may have been
 * prepared and removed, and is not made a second time; or as zke_create().
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_rendezvous_prepare(zke *z, const char *path, int ephemeral,
                                   int64_t deadline_ms);

/* zke_rendezvous_fill - write what the others wait for, once
 *
 *   data,len     NULL and 0 for nothing
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *   token_out    out: the zxid of the filling
 *
 * Returns ZKE_OK, or
 *   ZKE_HELD            it is filled already; the sentence says by whom, since
 *                       when
 *   ZKE_NONODE          it was not prepared, or the initiator has gone
 *   ZKE_OTHERKIND       the path is something else
 *   ZKE_CONNECTIONLOSS  the reply was lost, and before this call looked again
 *                       the point was removed: it may have been filled.  One
 *                       that was prepared in its place is left as it is
 * or as zke_set().  A filling whose reply was lost is recognised, and is
 * ZKE_OK.  The call looks at the point, and then writes: what is prepared in
 * the place of a removed point between the two is filled.
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_rendezvous_fill(zke *z, const char *path, const void *data,
                                int len, int64_t deadline_ms,
                                int64_t *token_out);

typedef struct zke_rendezvous_point zke_rendezvous_point;

/* What a listener hears, for zke_rendezvous_point_start():
 *
 *     (nothing there) -> EMPTY -> FILLED -> REMOVED -> EMPTY -> ...
 *
 * REMOVED may come after EMPTY as well.  A state that came and went between two
 * dispatches is not heard of. */
enum {
  ZKE_RENDEZVOUS_POINT_FILLED = 1,  /* with the token and what was filled in */
  ZKE_RENDEZVOUS_POINT_REMOVED = 2, /* it was there and has gone; where it was
                                       ephemeral, so has the initiator: clean
                                       up */
  ZKE_RENDEZVOUS_POINT_EMPTY = 3,   /* prepared, not yet filled */
  ZKE_RENDEZVOUS_POINT_LOST = 4     /* the session has ended: nothing more is
                                       heard */
};

/* data: what was filled in, with FILLED, else NULL; it lives until the listener
 * returns. */
typedef void (*zke_rendezvous_point_fn)(zke_rendezvous_point *point, int event,
                                        int64_t token, const char *data,
                                        int len, void *context);

typedef struct zke_rendezvous_point_options {
  size_t size;
  zke_rendezvous_point_fn listener; /* or NULL */
  void *context;                    /* for the listener; borrowed */
} zke_rendezvous_point_options;

/* zke_rendezvous_point_new  - an object for one that waits; writes nothing
 * zke_rendezvous_point_free - NULL is fine; while no other call on it runs
 *
 *   path       of the point; it need not exist
 *   options    NULL for the defaults; copied
 *   point_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, ZKE_NOMEM, or what the handle's state asks
 * for.
 * Threads: any.  In a callback: yes.  Blocks: on the disk.  Since 0.1. */
ZKE_API int zke_rendezvous_point_new(
    zke *z, const char *path, const zke_rendezvous_point_options *options,
    zke_rendezvous_point **point_out);
ZKE_API void zke_rendezvous_point_free(zke_rendezvous_point *point);

/* zke_rendezvous_point_wait - wait until it is filled
 *
 * Where it does not exist yet it waits for that first.
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *   data_out     out: what was filled in, one block, for zke_free(); followed
 *                by a NUL that is not counted
 *   len_out      out: bytes of it
 *   token_out    out: the zxid of the filling
 *
 * Returns ZKE_OK, or
 *   ZKE_BROKEN            it was there and has gone; where it was ephemeral, so
 *                         has the initiator
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence says what is missing
 *   ZKE_CANCELLED         zke_rendezvous_point_cancel()
 *   ZKE_OTHERKIND         the path is something else
 *   ZKE_MISUSE            another thread waits with this object
 *   ZKE_INVALIDSTATE      the session has ended
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_rendezvous_point_wait(zke_rendezvous_point *point,
                                      int64_t deadline_ms, char **data_out,
                                      int *len_out, int64_t *token_out);

/* zke_rendezvous_point_start  - tell the listener what is there and what
 *                               becomes of it
 * zke_rendezvous_point_step   - look again now, as dispatches do by themselves
 * zke_rendezvous_point_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                               ZKE_IDLE where none runs
 *
 * Start and step return ZKE_OK, ZKE_OTHERKIND where the path is something else,
 * ZKE_INVALIDSTATE when the session has ended, or what zke_get() returns: start
 * has to be called again then, a step is repeated by dispatches.
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_rendezvous_point_start(zke_rendezvous_point *point);
ZKE_API int zke_rendezvous_point_step(zke_rendezvous_point *point);
ZKE_API int zke_rendezvous_point_cancel(zke_rendezvous_point *point);

#ifdef __cplusplus
}
#endif

#endif
