/* election.h - one leader among candidates, and all know which one
 *
 *     static void heard(zke_election *e, int event, int64_t token, void *c) {
 *       if (event == ZKE_ELECTION_ELECTED_COMPLETE) zke_election_ready(e);
 *     }
 *
 *     zke_election_options o = ZKE_INIT(zke_election_options);
 *     zke_election *e;
 *     o.name = "node-7";
 *     o.listener = heard;
 *     zke_election_new(z, "/election/app", &o, &e);
 *     zke_election_lead(e, ZKE_FOREVER);  // or _start(e), and dispatch
 *     // It leads.
 *     zke_election_resign(e);
 *     zke_election_free(e);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * lock.c has the algorithm of a line, and election.c the rest.  It is the
 * leader election of ZooKeeper's page "Recipes and Solutions", with the states
 * and events of its LeaderElectionSupport.
 *
 * LAYOUT, as Curator's LeaderLatch, and the acknowledgement of ZooKeeper's
 * text:
 *
 *     /election/app                     container, data "zkembed election"
 *       _c_<guid>-latch-0000000000      leads; its data tells the name
 *       _c_<guid>-latch-0000000001      comes next, watching the one before it
 *       _c_<guid>-next-0000000001       the leader has handed over to ...01
 *       leader                          ephemeral: has taken office; its data
 *                                       is "<token> <name>", and after a
 *                                       newline the leader's value
 *
 * The first candidate is the leader.  The znode "leader", which
 * zke_election_ready() writes, tells others that the leader has taken office:
 * it has read its data, and accepts work.  Observers watch only that znode.
 * Only the leader can write it.  The leader replaces the znode of a former
 * leader, and writes it again if somebody deletes it.
 *
 * IF THE PROCESS DIES its znodes go with its session: the kernel tells the next
 * candidate, which leads, and observers hear "no leader".  Resigning and
 * handing over are one step each.  After a death before that step the session's
 * end does the same; after it the next one, or the successor, leads.  If the
 * successor dies, the next candidate leads; the mark ("next-") may stay until
 * another candidate leads.
 *
 * WHO IS WOKEN: a leader's end wakes the next candidate and the observers, and,
 * if it hands over, also the candidate that it names.
 *
 * COSTS: a candidacy is one write and three reads, one of which sets a watch
 * (two of them if it has to wait).  "leader" is one write and one more watch,
 * and each change of its value one write.  Resigning is one write and two
 * reads.  Removing a watch is a small write.  Only making the directory is
 * synced.  An observer is three reads, one of which sets a watch, and one read
 * and a watch for each change.
 *
 * LOSING THE SESSION, or the znode, ends the candidacy: the listener hears
 * ZKE_ELECTION_FAILURE, zke_election_check() fails, and so does a multi that
 * contains zke_election_op().  If only the znode has gone, the object removes
 * "leader".
 *
 * FENCING: zke_election_token() is the zxid of taking office, greater than
 * that of every earlier leader.
 *
 * ON AN ENSEMBLE (zookeeper.h): one leads by the ensemble's order of changes.
 * The next one replaces a leader that was silent for the session's timeout.
 * The old leader may not know it: guard by zke_election_op() or the token.
 *
 * MISTAKES, and their results:
 * - Two objects for one candidate: they are two candidates, one after the
 *   other.
 * - Leading without zke_election_ready(): observers hear that there is no
 *   leader.
 * - Continuing to lead after a FAILURE: nothing stops the process.  Guard
 *   changes in the same database with zke_election_op(), anything else with
 *   the token.
 * - zke_election_hand_over() to a name that several candidates have: the first
 *   of them in the line leads.
 */
#ifndef ZKEMBED_RECIPES_ELECTION_H
#define ZKEMBED_RECIPES_ELECTION_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_election zke_election;

/* States, as in ZooKeeper's LeaderElectionSupport.  START, OFFER and DETERMINE
 * are passed within one call, and only the listener sees them: there
 * zke_election_state() gives the state of the event it hears.
 *
 *     STOP -> START -> OFFER -> DETERMINE -> ELECTED  or  READY
 *     READY -> DETERMINE -> ELECTED or READY     the one in front has gone
 *     ELECTED, READY -> STOP                     resigned, handed over, gave up
 *     any but STOP -> FAILED                     joining failed, or the place
 *                                                or the session was lost
 *     FAILED -> START                            a new candidacy
 *     FAILED -> STOP                             resigned
 */
enum {
  ZKE_ELECTION_STOP = 0,  /* not a candidate */
  ZKE_ELECTION_START,     /* asked to become one */
  ZKE_ELECTION_OFFER,     /* making its znode */
  ZKE_ELECTION_DETERMINE, /* looking for the first in line */
  ZKE_ELECTION_ELECTED,   /* leads */
  ZKE_ELECTION_READY,     /* not first: waits */
  ZKE_ELECTION_FAILED     /* lost its znode or session */
};

/* Events, in the order in which they come.  OFFER, DETERMINE and READY or
 * ELECTED follow STARTED; after READY comes DETERMINE again when the candidate
 * in front has gone.  FAILURE comes when joining failed or the place was lost;
 * STOP when the candidate resigned, handed over, or gave up waiting to lead.
 * Most programs need only ELECTED_COMPLETE, FAILURE and STOP_COMPLETE. */
enum {
  ZKE_ELECTION_STARTED = 16,
  ZKE_ELECTION_OFFER_START,
  ZKE_ELECTION_OFFER_COMPLETE,
  ZKE_ELECTION_DETERMINE_START,
  ZKE_ELECTION_DETERMINE_COMPLETE,
  ZKE_ELECTION_ELECTED_START,
  ZKE_ELECTION_ELECTED_COMPLETE,
  ZKE_ELECTION_READY_START,
  ZKE_ELECTION_READY_COMPLETE,
  ZKE_ELECTION_FAILURE,
  ZKE_ELECTION_STOP_START,
  ZKE_ELECTION_STOP_COMPLETE
};

/* token: of ELECTED events, else 0.  It may call the object or free it.
 *
 * Example: a program that is a candidate for as long as it runs.
 *
 *     static void heard(zke_election *e, int event, int64_t token, void *c) {
 *       (void)c;
 *       if (event == ZKE_ELECTION_ELECTED_COMPLETE) {
 *         printf("leading with token %lld\n", (long long)token);
 *         zke_election_ready(e);
 *       } else if (event == ZKE_ELECTION_FAILURE) {
 *         puts("no longer a candidate: stop leading at once");
 *       }
 *     }
 *
 *     static int stand(zke *z, zke_election **e) {
 *       zke_election_options o = ZKE_INIT(zke_election_options);
 *       o.name = "node-7";
 *       o.listener = heard;
 *       int rc = zke_election_new(z, "/election/app", &o, e);
 *       return rc == ZKE_OK ? zke_election_start(*e) : rc;
 *     }
 */
typedef void (*zke_election_fn)(zke_election *e, int event, int64_t token,
                                void *context);

typedef struct zke_election_options {
  size_t size;
  const char *name; /* of the candidate, shown to others; NULL is ""; copied */
  zke_election_fn listener;
  void *context;
} zke_election_options;

/* zke_election_new  - an object for one candidate; writes nothing
 * zke_election_free - resign and release the object
 *
 *   path     of the election; made as a container when first needed
 *   options  NULL for the defaults; copied.  A name has no newline, else
 *            ZKE_BADARGUMENTS
 *   e_out    out; for zke_election_free() */
ZKE_API int zke_election_new(zke *z, const char *path,
                             const zke_election_options *options,
                             zke_election **e_out);
ZKE_API void zke_election_free(zke_election *e);

/* ------------------------------------------------------------------------
 * A candidacy
 *
 * Example: lead, change the tree only as the leader, and step down.
 *
 *     zke_op ops[2];
 *     rc = zke_election_lead(e, ZKE_FOREVER);
 *     if (rc == ZKE_OK) rc = zke_election_ready(e);
 *     if (rc == ZKE_OK) rc = zke_election_op(e, &ops[0]);
 *     zke_op_set(&ops[1], "/app/plan", "a", 1, -1);
 *     if (rc == ZKE_OK) rc = zke_multi(z, ops, 2, NULL);
 *     zke_election_resign(e);
 * --------------------------------------------------------------------- */

/* zke_election_start - become a candidate without waiting; the listener is told
 *
 * Returns ZKE_OK; ZKE_MISUSE if it is one already; or ZKE_OTHERKIND if the path
 * is not an election's.  After a failure except ZKE_MISUSE it is not a
 * candidate, and the listener hears FAILURE if it has heard STARTED.  If the
 * directory could not be made or read, the listener hears nothing. */
ZKE_API int zke_election_start(zke_election *e);

/* zke_election_lead - become a candidate if it is not one, and wait until it
 * leads
 *
 * If it already leads, it only asks the file whether that is still so.
 * ZKE_LOST and ZKE_INVALIDSTATE: it does not.  After any other error it leads
 * as before.
 *
 * Returns ZKE_OK, or, not a candidate any more unless it led before,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names the leader
 *   ZKE_LOST              the znode was deleted, or another thread resigned
 *   ZKE_OTHERKIND         the path is not an election's, or another library's
 *                         (lock.h)
 *   ZKE_CANCELLED, ZKE_LIMIT, ZKE_INVALIDSTATE
 *
 * or ZKE_MISUSE: another thread's call waits with this object; nothing has
 * changed. */
ZKE_API int zke_election_lead(zke_election *e, int64_t deadline_ms);

/* zke_election_ready - tell all others that this candidate has taken office
 *
 * Writes the znode "leader", in one step with a check that the candidate leads.
 *
 * Returns ZKE_OK, even if others were told before, or ZKE_LOST if it does not
 * lead.  After any other code the next step tries again. */
ZKE_API int zke_election_ready(zke_election *e);

/* zke_election_set - set a value that observers hear, such as the leader's
 * address
 *
 * The znode "leader" shows it from zke_election_ready() on; after that it is
 * changed immediately.  The object keeps it for its next time in office.
 *
 * Example: the address of this leader.
 *
 *     rc = zke_election_set(e, "10.0.0.7:631", 12, deadline);
 *
 *   data,len     copied; NULL and 0 for none
 *   deadline_ms  for repeating calls that got no reply
 *
 * Returns ZKE_OK; ZKE_LOST if the office was lost meanwhile; ZKE_BADARGUMENTS
 * if len is negative.  After any other code the call can be repeated. */
ZKE_API int zke_election_set(zke_election *e, const void *data, int len,
                             int64_t deadline_ms);

/* zke_election_resign - stop being a candidate or leader
 *
 * The next candidate leads.  The object can become a candidate again, at the
 * end of the line.  Another thread's zke_election_lead() returns ZKE_LOST.
 *
 * Returns ZKE_OK, or ZKE_LOST if it was not a candidate, or had lost its place.
 * After any other code it is not a candidate either, and the session deletes
 * its znodes as soon as it can. */
ZKE_API int zke_election_resign(zke_election *e);

/* zke_election_hand_over - resign in favour of a candidate
 *
 * In one step this candidate leaves and the other becomes the first in line.
 * The other leads when its process has looked.
 *
 *   name  from the candidate's options; of several the first in line
 *
 * Returns ZKE_OK; ZKE_NONODE if there is no such candidate, ZKE_LOST if this
 * one does not lead, ZKE_BADARGUMENTS for NULL: then nothing has changed. */
ZKE_API int zke_election_hand_over(zke_election *e, const char *name);

/* zke_election_cancel - another thread's blocking call returns ZKE_CANCELLED,
 * unless it has succeeded just before; ZKE_IDLE if none runs */
ZKE_API int zke_election_cancel(zke_election *e);

/* zke_election_step  - look again now
 * zke_election_state - ZKE_ELECTION_…, from memory: STOP, ELECTED, READY or
 *                      FAILED; in the listener the state of the event
 * zke_election_token - the fencing value, 0 unless it leads; from memory
 * zke_election_check - ask the file: ZKE_OK if it leads, else ZKE_LOST
 * zke_election_op    - fill *op with an operation for a zke_multi() of the
 *                      program, which fails with ZKE_NONODE unless the
 *                      candidate leads; valid until the next call that changes
 *                      the candidacy.  ZKE_LOST if it does not lead,
 *                      ZKE_BADARGUMENTS for a NULL op.  From memory
 *
 * After the session's end, and if the object cannot be used, state is FAILED
 * and token 0. */
ZKE_API int zke_election_step(zke_election *e);
ZKE_API int zke_election_state(zke_election *e);
ZKE_API int64_t zke_election_token(zke_election *e);
ZKE_API int zke_election_check(zke_election *e);
ZKE_API int zke_election_op(zke_election *e, zke_op *op);

/* zke_election_parties - the leader and the next candidates, in order; data is
 * the candidate's name, held is 1 for the leader
 *
 *   list_out  count 0 without a candidate
 *
 * Returns as zke_lock_parties(). */
ZKE_API int zke_election_parties(zke *z, const char *path,
                                 zke_party_list **list_out);

/* ------------------------------------------------------------------------
 * Observing: which candidate has taken office
 *
 * Example: find the leader, and send work to its address.
 *
 *     char *where = NULL;
 *     rc = zke_observer_wait(o, 1, deadline);
 *     if (rc == ZKE_OK) rc = zke_observer_leader(o, NULL, NULL, &where, NULL);
 *     if (rc == ZKE_OK && where) printf("the leader is at %s\n", where);
 *     zke_free(where);
 * --------------------------------------------------------------------- */

typedef struct zke_observer zke_observer;

/* Called for each leader that has taken office, again when the leader changes
 * its value, and with name and value NULL and token 0 when there is none.  The
 * first call tells the state at the start.  If a leader comes and goes between
 * two dispatches, the listener is not told.  name and value live until the
 * listener returns. */
typedef void (*zke_observer_fn)(zke_observer *o, const char *name,
                                int64_t token, const char *value, int len,
                                void *context);

typedef struct zke_observer_options {
  size_t size;
  zke_observer_fn listener;
  void *context;
} zke_observer_options;

/* zke_observer_new    - an object for one observer; writes nothing
 * zke_observer_free   - release it
 * zke_observer_start  - begin to observe: the listener is told inside this call
 *                       and inside zke_dispatch()
 * zke_observer_step   - look again now
 * zke_observer_leader - the leader as of the last look, from memory; ZKE_MISUSE
 *                       before start
 *
 *   name_out   out: the name, one block, or NULL if there is no leader
 *   token_out  out: its fencing value, or 0
 *   value_out  out: the value that the leader has set, one block, followed by a
 *              NUL; NULL if there is no leader.  len_out: its bytes
 *
 * zke_observer_wait   - wait until there is a leader (want 1) or none (want 0);
 *                       starts the object if necessary
 * zke_observer_cancel - end another thread's wait; ZKE_IDLE if there is none
 *
 * Return ZKE_OK; ZKE_OTHERKIND from start and wait; ZKE_OPERATIONTIMEOUT,
 * ZKE_CANCELLED and ZKE_MISUSE from wait; ZKE_INVALIDSTATE after the session
 * has ended: then no leader is known.  A znode "leader" that no candidate wrote
 * does not count. */
ZKE_API int zke_observer_new(zke *z, const char *path,
                             const zke_observer_options *options,
                             zke_observer **o_out);
ZKE_API void zke_observer_free(zke_observer *o);
ZKE_API int zke_observer_start(zke_observer *o);
ZKE_API int zke_observer_step(zke_observer *o);
ZKE_API int zke_observer_leader(zke_observer *o, char **name_out,
                                int64_t *token_out, char **value_out,
                                int *len_out);
ZKE_API int zke_observer_wait(zke_observer *o, int want, int64_t deadline_ms);
ZKE_API int zke_observer_cancel(zke_observer *o);

#ifdef __cplusplus
}
#endif

#endif
