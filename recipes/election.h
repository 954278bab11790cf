/* election.h - one leader among candidates, and everybody knows who
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
 * LAYOUT, as Curator's LeaderLatch, and the acknowledgement of ZooKeeper's
 * text:
 *
 *     /election/app                     container, data "zkembed election"
 *       _c_<guid>-latch-0000000000      leads; its data tells the name
 *       _c_<guid>-latch-0000000001      comes next, watching the one before it
 *       _c_<guid>-next-0000000001       the leader has handed over to ...01
 *       leader                          ephemeral: has taken office; its data
 *                                       is "<token> <name>", and behind a
 *                                       newline the leader's value
 *
 * Being first makes a leader; the znode "leader", written by
 * zke_election_ready(), tells others that it has taken office.  Observers
 * watch that znode alone.  It can be written by the leader only, replaces what
 * a former one left, and is written again if somebody deletes it.
 *
 * IF THE PROCESS DIES its znodes go with its session: the next candidate is
 * told by the kernel and leads, observers hear "no leader".  Resigning and
 * handing over are one step: dying before it, one leads still, after it the
 * next one or the successor does; a successor that dies is passed over.  Its
 * mark ("next-") may stay until somebody else leads.
 *
 * WHO IS WOKEN: a leader's end wakes the next candidate, the one it handed
 * over to and the observers.
 *
 * LOSING THE SESSION, or one's znode, ends the candidacy: the listener hears
 * ZKE_ELECTION_FAILURE, zke_election_check() and zke_election_op() fail.  Where
 * only the znode has gone "leader" is taken back.
 *
 * FENCING: zke_election_token() is the zxid of taking office, greater than
 * that of every leader before.
 */
#ifndef ZKEMBED_RECIPES_ELECTION_H
#define ZKEMBED_RECIPES_ELECTION_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_election zke_election;

/* States, as ZooKeeper's LeaderElectionSupport has them.  START, OFFER and
 * DETERMINE are passed within one call: they are seen by the listener, for
 * which zke_election_state() says what goes with the event that it hears. */
enum {
  ZKE_ELECTION_STOP = 0,  /* not a candidate */
  ZKE_ELECTION_START,     /* was asked to become one */
  ZKE_ELECTION_OFFER,     /* making its znode */
  ZKE_ELECTION_DETERMINE, /* looking who is first */
  ZKE_ELECTION_ELECTED,   /* leads */
  ZKE_ELECTION_READY,     /* comes later: waits */
  ZKE_ELECTION_FAILED     /* lost its znode or session */
};

/* Events, in the order in which they come.  OFFER, DETERMINE and READY or
 * ELECTED follow STARTED; after READY comes DETERMINE again when the one
 * before has gone.  FAILURE comes where joining failed or the place was lost;
 * STOP where one resigned, handed over, or gave up waiting to lead. */
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

/* token: of ELECTED events, else 0. */
typedef void (*zke_election_fn)(zke_election *e, int event, int64_t token,
                                void *context);

typedef struct zke_election_options {
  size_t size;
  const char *name; /* of the candidate, shown to others; "" */
  zke_election_fn listener;
  void *context;
} zke_election_options;

/* zke_election_new  - an object for one candidate; does not touch the tree
 * zke_election_free - resign and release the object; NULL is fine
 *
 *   path     of the election; made as a container when first needed
 *   options  NULL for the defaults; copied.  A name has no newline
 *   e_out    out, not NULL; NULL on failure
 *
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_election_new(zke *z, const char *path,
                             const zke_election_options *options,
                             zke_election **e_out);
ZKE_API void zke_election_free(zke_election *e);

/* zke_election_start - become a candidate and go on; the listener is told
 *
 * Returns ZKE_OK, ZKE_MISUSE where it is one already, ZKE_OTHERKIND. */
ZKE_API int zke_election_start(zke_election *e);

/* zke_election_lead - wait until one leads, as a candidate already or from
 * now on
 *
 * Returns ZKE_OK, or, a candidate no more, ZKE_OPERATIONTIMEOUT naming the
 * leader, ZKE_CANCELLED, ZKE_LOST, ZKE_OTHERKIND, ZKE_INVALIDSTATE.
 * Blocks: until the deadline. */
ZKE_API int zke_election_lead(zke_election *e, int64_t deadline_ms);

/* zke_election_ready - tell everybody that one has taken office
 *
 * Writes the znode "leader", in one step with the check that one leads.
 * Returns ZKE_OK, also where it was told already, or ZKE_LOST where one does
 * not lead; after any other code the next step tries again. */
ZKE_API int zke_election_ready(zke_election *e);

/* zke_election_set - give the office a value that observers hear, such as where
 * the leader can be reached
 *
 * Shown from zke_election_ready() on, in the znode "leader"; changed at once
 * where that was called.  The object keeps it for its next office.
 *
 *   data,len     copied; NULL and 0 for none
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Returns ZKE_OK; ZKE_LOST where the office was lost meanwhile,
 * ZKE_BADARGUMENTS where len is negative.  After any other code this can be
 * repeated.
 * Threads: any.  In a callback: yes.  Blocks: on the disk.  Since 0.1. */
ZKE_API int zke_election_set(zke_election *e, const void *data, int len,
                             int64_t deadline_ms);

/* zke_election_resign - a candidate or leader no more
 *
 * Returns ZKE_OK, or ZKE_LOST where it was not one, or was one no more; after
 * any other code it is none any more either, and the session deletes its znodes
 * as soon as it can.
 * Threads: any; zke_election_lead() of another thread returns ZKE_LOST.  In a
 * callback: yes.  Blocks: on the disk. */
ZKE_API int zke_election_resign(zke_election *e);

/* zke_election_hand_over - resign in favour of a candidate
 *
 *   name  as the candidate's options had it; of several the first in line
 *
 * Returns ZKE_OK, ZKE_NONODE where there is no such candidate, ZKE_LOST where
 * one does not lead; then nothing has changed. */
ZKE_API int zke_election_hand_over(zke_election *e, const char *name);

/* zke_election_cancel - the blocking call returns ZKE_CANCELLED;
 * ZKE_IDLE where none runs */
ZKE_API int zke_election_cancel(zke_election *e);

/* zke_election_step  - look again now, as dispatches do by themselves
 * zke_election_state - ZKE_ELECTION_…, as known without asking the file: STOP,
 *                      ELECTED, READY or FAILED; in the listener the state
 *                      that goes with the event
 * zke_election_token - the fencing value, 0 unless one leads
 * zke_election_check - ask the file: ZKE_OK when one leads, else ZKE_LOST
 * zke_election_op    - for one's own zke_multi(): fails with ZKE_NONODE unless
 *                      one leads; valid until the next call that changes the
 *                      candidacy.  ZKE_LOST where one does not lead */
ZKE_API int zke_election_step(zke_election *e);
ZKE_API int zke_election_state(zke_election *e);
ZKE_API int64_t zke_election_token(zke_election *e);
ZKE_API int zke_election_check(zke_election *e);
ZKE_API int zke_election_op(zke_election *e, zke_op *op);

/* zke_election_parties - the leader and those who come next, in order; data is
 * the candidate's name, held 1 for who leads */
ZKE_API int zke_election_parties(zke *z, const char *path,
                                 zke_party_list **list_out);

/* ------------------------------------------------------------------------
 * Observing: who has taken office
 * --------------------------------------------------------------------- */

typedef struct zke_observer zke_observer;

/* Called for each leader that has taken office, again when it changes its
 * value, and with name and value NULL and token 0 when there is none; first
 * with what is the case.  name and value live until the listener returns. */
typedef void (*zke_observer_fn)(zke_observer *o, const char *name,
                                int64_t token, const char *value, int len,
                                void *context);

typedef struct zke_observer_options {
  size_t size;
  zke_observer_fn listener;
  void *context;
} zke_observer_options;

/* zke_observer_new    - an object for one observer; does not touch the tree
 * zke_observer_free   - NULL is fine
 * zke_observer_start  - begin to observe: the listener is told inside this call
 *                       and inside zke_dispatch()
 * zke_observer_step   - look again now, as dispatches do by themselves
 * zke_observer_leader - who leads as of the last look; ZKE_MISUSE before start
 *
 *   name_out   out: the name, one block, or NULL for nobody
 *   token_out  out: its fencing value, or 0
 *   value_out  out: what the leader has set, one block, followed by a NUL;
 *              NULL for nobody.  len_out: its bytes
 *
 * zke_observer_wait   - wait until somebody leads (want 1) or nobody (want 0);
 *                       starts where that has not been done
 * zke_observer_cancel - end another thread's wait
 *
 * Return ZKE_OK, ZKE_OTHERKIND from start and wait, ZKE_OPERATIONTIMEOUT and
 * ZKE_CANCELLED from wait, ZKE_INVALIDSTATE when the session has ended: then
 * nobody is known to lead.  A znode "leader" that no candidate wrote is
 * nobody. */
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
