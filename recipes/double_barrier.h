/* double_barrier.h - N parties begin together and end together, again and again
 *
 *     zke_double_barrier *barrier;
 *     int64_t round;
 *     zke_double_barrier_new(z, "/barriers/step", 3, NULL, &barrier);
 *     for (int step = 0; step < 10; step++) {
 *       if (zke_double_barrier_enter(barrier, NULL, 0, deadline, &round))
 *         break;  // zke_errmsg() tells how many are missing, and who is here
 *       // Three processes compute this.
 *       if (zke_double_barrier_leave(barrier, deadline))
 *         break;  // zke_errmsg() tells who has not come, or who died
 *     }
 *     zke_double_barrier_free(barrier);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * double_barrier.c has the algorithm.  It is the double barrier of ZooKeeper's
 * page "Recipes and Solutions".  Rounds, their members' names, and BROKEN are
 * additions: in that page's algorithm a party that dies inside looks as if it
 * had left, and if a crash leaves a `ready`, the next party passes alone.
 *
 * LAYOUT
 *
 *     /barriers/step                    container, "zkembed double-barrier",
 *                                       "parties 3"
 *       _c_<guid>-party-0000000007      a party: ephemeral; its data is a line
 *                                       "waiting <pid> <identity>" and then the
 *                                       party's own; or "inside"; or "broken
 *                                       <who died>"
 *       ready                           a round: the list of its members
 *         _c_<guid>-party-0000000004    one for each member that has not left
 *
 * A ROUND is begun by the party that completes the N, in one step: it makes
 * `ready` with N children and writes "inside" into the N znodes, each of which
 * must be unchanged since its owner made it.  A party is inside when "inside"
 * was written into its own znode.  A `ready` alone is not enough: it may be
 * left over from a round whose processes have died, and then lets no party
 * pass.  The zxid of the step is the round's number.  A member leaves by
 * deleting its child of `ready`; the last one, in the same step, deletes
 * `ready` as well.  There is never more than one round at a time.  A party that
 * comes during a round waits for the next, and so do parties beyond N.
 *
 * IF A PROCESS DIES, or frees its object, or loses its session,
 * - before its round begins, it no longer counts: the others still wait;
 * - inside, its znode goes and its child of `ready` stays: the round is broken.
 *   All members that are in leave, or come there later, get ZKE_BROKEN;
 * - in leave, it has left already.  The others are not affected.
 *
 * If all members die, `ready` stays, and the next round removes it.  Nothing
 * else is left.
 *
 * WHO IS WOKEN: all N when the round begins, since each watches its own znode;
 * and all members in leave when it ends or breaks.  When a member leaves that
 * is not the last, only parties that wait for the next round wake.  A party
 * that comes wakes only the members in leave.  They watch the directory's
 * children, so a death inside reaches each of them whatever the others do.  A
 * death is noticed immediately by the nearest member before it in the ring that
 * is in leave (and by the nearest one inside, if it dispatches); if that one is
 * stopped, it is noticed within about a second.
 * If N parties wait for the next round, the last of them, and each that comes
 * later, watches `ready` and one member inside.
 *
 * COSTS, for a party: entering is one write for its znode, leaving one for its
 * child of `ready` and one for the znode; the party that begins the round makes
 * one more write.  On the way in, each party makes about ten reads and sets
 * about five watches.  In leave it watches its own znode, `ready`, the
 * directory, and the members after it in the ring up to the next one in leave.
 * So the first that leaves watches all others, and removes these watches at the
 * end.  The round's beginning and each leaving are synced to the disk.  When a
 * member dies, or a party comes, each member in leave looks again: a snapshot,
 * and setting its watches.
 *
 * IF A PROCESS IS STOPPED (SIGSTOP) inside, the others wait for it in leave: it
 * lives, and has not left.  In leave, or out, it delays neither its own round
 * nor the next one.
 *
 * A WITHDRAWAL (deadline or cancel in enter) deletes the party's znode only if
 * it is unchanged: so a party cannot be out while a round counts it.  If the
 * round has begun, enter returns ZKE_OK all the same.
 *
 * FENCING: the round's number, the zxid of `ready`, increases from round to
 * round.
 *
 * ON AN ENSEMBLE (zookeeper.h): a party that was silent for the session's
 * timeout counts as gone, even if it is at work.
 *
 * MISTAKES, and their results:
 * - Different N on one path: the second party gets ZKE_OTHERKIND.
 * - Fewer processes than N: enter waits until its deadline; the sentence says
 *   how many are missing.
 * - Continuing after ZKE_BROKEN as if all had done their work: the sentence
 *   names the one that has not.
 * - Entering again before leave, or before a leave that was started has ended:
 *   ZKE_MISUSE.
 * - A listener that calls enter, leave or stop while a blocking call runs:
 *   ZKE_MISUSE.
 */
#ifndef ZKEMBED_RECIPES_DOUBLE_BARRIER_H
#define ZKEMBED_RECIPES_DOUBLE_BARRIER_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_double_barrier zke_double_barrier;

/* The states of a party.
 *
 *     OUT -> WAITING            enter, start, meet
 *     WAITING -> INSIDE         its round has begun
 *     WAITING -> OUT            stop; a deadline, cancel, a failure
 *     INSIDE -> LEAVING         leave, leave_start
 *     INSIDE -> OUT             a leaving that has failed
 *     LEAVING -> OUT            all have left, the round is broken, or the call
 *                               does not wait any longer
 *     all but OUT -> LOST       the znode or the session has gone
 *     LOST -> OUT               the next call that enters or leaves
 */
enum {
  ZKE_DOUBLE_BARRIER_OUT = 0,
  ZKE_DOUBLE_BARRIER_WAITING = 1, /* for its round to begin */
  ZKE_DOUBLE_BARRIER_INSIDE = 2,
  ZKE_DOUBLE_BARRIER_LEAVING = 3, /* it has left and waits for the others */
  ZKE_DOUBLE_BARRIER_LOST = 4     /* its znode was taken away, or its session;
                                     told to the listener, too */
};

/* The listener's events, besides ZKE_DOUBLE_BARRIER_LOST.  token: the round.
 * It may run inside a blocking call: there enter, leave and stop are
 * ZKE_MISUSE.
 *
 * Example: steps in an event loop.  The party computes when its round has
 * begun, and enters again when the round has ended.
 *
 *     static void heard(zke_double_barrier *barrier, int event, int64_t token,
 *                       void *context) {
 *       (void)context, (void)token;
 *       if (event == ZKE_DOUBLE_BARRIER_ENTERED) {
 *         // compute
 *         zke_double_barrier_leave_start(barrier);
 *       } else if (event == ZKE_DOUBLE_BARRIER_ALL_LEFT) {
 *         zke_double_barrier_start(barrier, NULL, 0);
 *       } else {
 *         fprintf(stderr, "a party is gone\n");
 *       }
 *     }
 *
 *     static int begin(zke *z, zke_double_barrier **barrier) {
 *       zke_double_barrier_options o = ZKE_INIT(zke_double_barrier_options);
 *       o.listener = heard;
 *       int rc = zke_double_barrier_new(z, "/barriers/step", 3, &o, barrier);
 *       if (rc != ZKE_OK) return rc;
 *       return zke_double_barrier_start(*barrier, NULL, 0);
 *     }
 */
enum {
  ZKE_DOUBLE_BARRIER_ENTERED = 1,  /* the party's round has begun */
  ZKE_DOUBLE_BARRIER_ALL_LEFT = 2, /* and ended, after leave: it is out */
  ZKE_DOUBLE_BARRIER_BROKEN = 3    /* a member is gone: a party that is inside
                                      should leave; after leave it is out */
};
typedef void (*zke_double_barrier_fn)(zke_double_barrier *barrier, int event,
                                      int64_t token, void *context);

typedef struct zke_double_barrier_options {
  size_t size;
  zke_double_barrier_fn listener;
  void *context;
} zke_double_barrier_options;

enum { ZKE_DOUBLE_BARRIER_MOST = 1000 }; /* parties */

/* zke_double_barrier_new - an object for one party; writes nothing
 *
 *   path         of the barrier; made as a container when first needed
 *   parties      N, 1 to ZKE_DOUBLE_BARRIER_MOST; the same for all
 *   options      NULL for the defaults; copied
 *   barrier_out  out; for zke_double_barrier_free() */
ZKE_API int zke_double_barrier_new(zke *z, const char *path, int parties,
                                   const zke_double_barrier_options *options,
                                   zke_double_barrier **barrier_out);

/* zke_double_barrier_free - give up waiting, or break the round if the party is
 * inside, and release the object
 *
 * Leave first: if a party frees its object inside, the others see it as a
 * death. */
ZKE_API void zke_double_barrier_free(zke_double_barrier *barrier);

/* ------------------------------------------------------------------------
 * Entering and leaving
 *
 * Example: one step of a computation.  A broken round is repeated from the data
 * of the step before.
 *
 *     int64_t round;
 *     rc = zke_double_barrier_enter(barrier, "part 1", 6, deadline, &round);
 *     if (rc == ZKE_OK) {
 *       // compute
 *       rc = zke_double_barrier_leave(barrier, deadline);
 *       if (rc == ZKE_BROKEN)
 *         fprintf(stderr, "again: %s\n", zke_errmsg());  // who died
 *     }
 * --------------------------------------------------------------------- */

/* zke_double_barrier_enter - wait until N parties are there
 *
 * After zke_double_barrier_start() it waits in the place that it has, with the
 * data given there, and returns immediately if that round has begun.
 *
 *   data,len     shown to the others of the round; NULL and 0 for none
 *   token_out    out: the round's number
 *
 * Returns ZKE_OK: inside, or, without being counted,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence says how many are
 *                         missing and who is there
 *   ZKE_LOST              somebody deleted its znode
 *   ZKE_OTHERKIND         the path is another recipe's, or has another N
 *   ZKE_LIMIT             the data of N parties does not fit one value, or the
 *                         directory has given all its numbers
 *   ZKE_MISUSE            inside already, or in leave, or another thread's call
 *                         runs
 *   ZKE_CANCELLED, ZKE_INVALIDSTATE
 *
 * If even the withdrawal fails, the code is the same: the party is out, and the
 * session deletes its znode as soon as it can.  If a round begins with that
 * znode before then, the others see a member that died inside. */
ZKE_API int zke_double_barrier_enter(zke_double_barrier *barrier,
                                     const void *data, int len,
                                     int64_t deadline_ms, int64_t *token_out);

/* zke_double_barrier_leave - leave, and wait until the whole round has left
 *
 * After zke_double_barrier_leave_start() it reports how that ended.
 *
 *   deadline_ms  in the past: leave and do not wait
 *
 * Returns ZKE_OK, or, with the party out, which the others see as leaving,
 *   ZKE_BROKEN            a member died inside; the sentence names it
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names who is inside
 *   ZKE_LOST              not inside, or somebody deleted its znode
 *   ZKE_MISUSE            another thread's call runs
 *   ZKE_CANCELLED, ZKE_INVALIDSTATE
 *
 * If the leaving itself fails (a full disk, another writer that is stopped
 * until the deadline), it returns the error's code, which may be any, even
 * ZKE_OPERATIONTIMEOUT.  Then the party is out, but the others see it as a
 * death inside, and get ZKE_BROKEN as soon as its znode has gone.  If the znode
 * cannot be deleted now, the session does so as soon as it can. */
ZKE_API int zke_double_barrier_leave(zke_double_barrier *barrier,
                                     int64_t deadline_ms);

/* zke_double_barrier_meet - enter, and leave without waiting for others to
 * leave: a rendezvous
 *
 * If the leaving fails, the party is out all the same, and it has met.
 *
 *   list_out  out, may be NULL: as zke_double_barrier_list()
 *
 * The rest is as for zke_double_barrier_enter(). */
ZKE_API int zke_double_barrier_meet(zke_double_barrier *barrier,
                                    const void *data, int len,
                                    int64_t deadline_ms,
                                    zke_party_list **list_out,
                                    int64_t *token_out);

/* Without blocking: zke_dispatch() does the rest, and listener and state tell.
 *
 * zke_double_barrier_start       - take a place
 * zke_double_barrier_stop        - give it up; ZKE_HELD if the round has begun:
 *                                  it is inside; ZKE_LOST if it had no place
 * zke_double_barrier_leave_start - leave
 * zke_double_barrier_step        - look again now
 *
 * Codes as above. */
ZKE_API int zke_double_barrier_start(zke_double_barrier *barrier,
                                     const void *data, int len);
ZKE_API int zke_double_barrier_stop(zke_double_barrier *barrier);
ZKE_API int zke_double_barrier_leave_start(zke_double_barrier *barrier);
ZKE_API int zke_double_barrier_step(zke_double_barrier *barrier);

/* zke_double_barrier_cancel - another thread's blocking call returns
 * ZKE_CANCELLED, unless it has succeeded just before; ZKE_IDLE if none runs */
ZKE_API int zke_double_barrier_cancel(zke_double_barrier *barrier);

/* zke_double_barrier_state - ZKE_DOUBLE_BARRIER_OUT …, from memory
 * zke_double_barrier_token - the number of the party's present or last round; 0
 *                            before the first
 * zke_double_barrier_check - ask the file: ZKE_OK inside a round in which all
 *                            live; ZKE_BROKEN if a member of its last round
 *                            died inside; else ZKE_LOST: it is in none */
ZKE_API int zke_double_barrier_state(zke_double_barrier *barrier);
ZKE_API int64_t zke_double_barrier_token(zke_double_barrier *barrier);
ZKE_API int zke_double_barrier_check(zke_double_barrier *barrier);

/* zke_double_barrier_list - the members of the party's present or last round
 *
 * In the order of their coming, with their data.  The list is from memory, so
 * it also has members that have gone.  mzxid is the round's number, since_ms
 * its beginning.
 *
 * Example: who computes with this party, and which part.
 *
 *     zke_party_list *list = NULL;
 *     rc = zke_double_barrier_list(barrier, &list);
 *     for (int i = 0; rc == ZKE_OK && i < list->count; i++)
 *       printf("%s: %s\n", list->data[i].identity, list->data[i].data);
 *     zke_free(list);
 *
 *   list_out  count 0 before the first round */
ZKE_API int zke_double_barrier_list(zke_double_barrier *barrier,
                                    zke_party_list **list_out);

/* zke_double_barrier_missing - the members or parties that this party waits for
 *
 *   list_out   out, may be NULL: the members of its round that have not left,
 *              kind "inside" or "dead"; none before the round has begun
 *   count_out  out: their number; before the round: how many parties are
 *              missing
 *
 * Returns ZKE_OK, or as zke_get(). */
ZKE_API int zke_double_barrier_missing(zke_double_barrier *barrier,
                                       zke_party_list **list_out,
                                       int *count_out);

/* zke_double_barrier_parties - the parties at a barrier
 *
 * First the members of the running round: kind "inside" (held is 1), "dead" or
 * "leaving"; then the waiting parties, in order: kind "waiting".
 *
 *   list_out  count 0 for an unused barrier
 *
 * Returns ZKE_OK, or as zke_get(). */
ZKE_API int zke_double_barrier_parties(zke *z, const char *path,
                                       zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
