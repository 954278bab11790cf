/* two_phase.h - several sites do something together, or none does
 *
 *     // the coordinator
 *     const char *sites[] = {"bank", "shop"};
 *     zke_two_phase_options o = ZKE_INIT(zke_two_phase_options);
 *     zke_two_phase *all, *one;
 *     int decision;
 *     o.limit_ms = 5000;
 *     zke_two_phase_begin(z, "/2pc", "order-7", "sell 1 tea", 10, sites, 2, &o,
 *                         &all);
 *     zke_two_phase_wait(all, ZKE_FOREVER, &decision);
 *     zke_two_phase_ack(all);
 *     zke_two_phase_free(all);
 *
 *     // each site, told of it by zke_two_phase_pending()
 *     zke_two_phase_open(z, "/2pc", "order-7", "bank", NULL, &one);
 *     // Do the work so that it can be kept or undone, on the disk.
 *     zke_two_phase_vote(one, ZKE_TWO_PHASE_COMMIT);
 *     zke_two_phase_wait(one, deadline, &decision);
 *     // Keep it or undo it.
 *     zke_two_phase_ack(one);
 *     zke_two_phase_free(one);
 *
 * LAYOUT:
 *
 *     /2pc                  container, data "zkembed two-phase"
 *       order-7             persistent: form, time limit, sites, the payload
 *         id-<id>           this transaction, not a later one of the name
 *         coordinator       ephemeral: who began it lives
 *         vote-bank         empty: not yet, version 1: "commit" or "abort"
 *         vote-shop         (ephemeral in that form)
 *         decision          persistent: "commit" or "abort", why, by whom
 *         ack-bank          has done it
 *
 * THE FORMS.  ZKE_TWO_PHASE_SITES: every site watches the votes, and the first
 * to see them all decides.  ZKE_TWO_PHASE_COORDINATOR: only the coordinator
 * watches them and announces; when it dies the sites do.
 * ZKE_TWO_PHASE_EPHEMERAL: each site makes its own vote when it opens the
 * transaction, and it goes when the site dies: that aborts.  The last two can
 * be combined.
 *
 * THE DECISION is one znode.  "commit" is made by a step that checks that each
 * vote is there and is "commit" at that very moment; "abort" by anybody: in
 * one step with a vote "abort", when a site's ephemeral vote has gone, at the
 * time limit, by zke_two_phase_abort().  So it is taken once, and nobody acts
 * on votes that it merely saw.
 *
 * IF A PROCESS DIES
 *   before begin's one step: nothing is there; after it: the transaction
 *     waits for its sites, until the limit;
 *   a site before its vote: the others wait for it, until the limit, or in the
 *     ephemeral form abort; it may also come back and vote;
 *   a site after its vote: persistent votes stand; an ephemeral one aborts
 *     unless the decision was there already;
 *   between votes and decision, coordinator or site: any survivor that waits,
 *     or that opens it later, decides;
 *   before acknowledging: zke_two_phase_pending() names it after the restart,
 *     with payload and outcome still there.
 * The last one to acknowledge removes it in the same step; where the
 * coordinator died last, zke_two_phase_pending() or the next begin of the name
 * does.
 *
 * WHO IS WOKEN: all who wait, by the decision; whoever watches the votes, by
 * the first one that is missing (in the ephemeral form by each); the sites by
 * the coordinator's death in its form.
 *
 * LOSING THE SESSION: the listener hears ZKE_TWO_PHASE_LOST.  Persistent votes
 * stand; open it again on a new session.
 *
 * FENCING: zke_two_phase_token() is the decision's zxid.
 *
 * THE TIME LIMIT is kept as wall-clock time, since it must outlive a reboot:
 * a clock set forward aborts early, one set back late.  It is looked at by
 * whoever waits; without blocking calls call zke_two_phase_step() then.
 */
#ifndef ZKEMBED_RECIPES_TWO_PHASE_H
#define ZKEMBED_RECIPES_TWO_PHASE_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_two_phase zke_two_phase;

/* Forms: one of the first two, and perhaps the third. */
enum {
  ZKE_TWO_PHASE_SITES = 0,
  ZKE_TWO_PHASE_COORDINATOR = 1,
  ZKE_TWO_PHASE_EPHEMERAL = 2
};

/* Votes, decisions and states. */
enum {
  ZKE_TWO_PHASE_UNDECIDED = 0,
  ZKE_TWO_PHASE_COMMIT = 1,
  ZKE_TWO_PHASE_ABORT = 2,
  ZKE_TWO_PHASE_LOST = 3 /* a state: the session has ended, or the transaction
                            was removed before one saw its decision */
};

/* Called once, with ZKE_TWO_PHASE_COMMIT or _ABORT, the token, and why; or
 * with ZKE_TWO_PHASE_LOST. */
typedef void (*zke_two_phase_fn)(zke_two_phase *t, int state, int64_t token,
                                 const char *why, void *context);

typedef struct zke_two_phase_options {
  size_t size;
  int form;         /* begin: ZKE_TWO_PHASE_… */
  int64_t limit_ms; /* begin: abort when not decided after it; 0: never */
  zke_two_phase_fn listener;
  void *context;
} zke_two_phase_options;

/* zke_two_phase_begin - begin a transaction, as its coordinator
 *
 *   base         directory of transactions; made as a container
 *   name         of this one, without '/'
 *   payload,len  what it is about; at most about the data limit
 *   sites,count  who takes part, at least one: different names without '/',
 *                space or newline
 *   options      NULL for the defaults
 *   t_out        out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, or
 *   ZKE_HELD       there is one of that name; the sentence tells since when
 *                  and what it waits for
 *   ZKE_OTHERKIND  base, or base/name, is something else
 *   ZKE_BADARGUMENTS, or what the handle's state asks for
 * Threads: any.  In a callback: yes.  Blocks: on the disk.  Since 0.1. */
ZKE_API int zke_two_phase_begin(zke *z, const char *base, const char *name,
                                const void *payload, int len,
                                const char *const *sites, int count,
                                const zke_two_phase_options *options,
                                zke_two_phase **t_out);

/* zke_two_phase_open - take part in a transaction, or look on
 *
 * In the ephemeral form this makes the site's vote, still empty.
 *
 *   site     one's name; NULL to look on (a restarted coordinator; it may
 *            come too late to see the decision)
 *   options  NULL, or the listener
 *
 * Returns ZKE_OK, or
 *   ZKE_NONODE     no such transaction, or acknowledged by all
 *   ZKE_HELD       the site's vote is another live session's
 *   ZKE_OTHERKIND  base/name is something else
 *   ZKE_BADARGUMENTS  the site does not take part
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_two_phase_open(zke *z, const char *base, const char *name,
                               const char *site,
                               const zke_two_phase_options *options,
                               zke_two_phase **t_out);

/* zke_two_phase_free - leave; NULL is fine
 *
 * An ephemeral vote goes, which aborts what is undecided.  A coordinator hands
 * over to the sites, and acknowledges what it has seen decided.
 * Threads: any, while no other call on it runs.  In a callback: yes. */
ZKE_API void zke_two_phase_free(zke_two_phase *t);

/* zke_two_phase_vote - vote, once
 *
 * Before ZKE_TWO_PHASE_COMMIT be prepared to keep the work as well as to undo
 * it, whatever happens.  ZKE_TWO_PHASE_ABORT decides at once.
 *
 * Returns ZKE_OK, also where one has voted so before, and where it is decided
 * already (zke_two_phase_wait() tells what); or
 *   ZKE_MISUSE  one has voted otherwise, or does not take part
 *   ZKE_LOST    the transaction has gone
 *   ZKE_HELD    the ephemeral vote is another session's
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_two_phase_vote(zke_two_phase *t, int vote);

/* zke_two_phase_wait - wait for the decision
 *
 * Takes it where one can: see the forms.  Can be called again after a timeout.
 *
 *   deadline_ms   of zke_now(); ZKE_FOREVER
 *   decision_out  out: ZKE_TWO_PHASE_COMMIT or _ABORT
 *
 * Returns ZKE_OK, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names the sites that
 *                         have not voted
 *   ZKE_CANCELLED         zke_two_phase_cancel()
 *   ZKE_LOST              the transaction has gone
 *   ZKE_MISUSE            another thread waits with this object
 *   ZKE_INVALIDSTATE      the session has ended
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_two_phase_wait(zke_two_phase *t, int64_t deadline_ms,
                               int *decision_out);

/* zke_two_phase_abort - abort, whoever one is
 *
 *   why  for the others; NULL
 *
 * Returns ZKE_OK where it is aborted now, ZKE_MISUSE where it is committed,
 * ZKE_LOST where it has gone. */
ZKE_API int zke_two_phase_abort(zke_two_phase *t, const char *why);

/* zke_two_phase_ack - say that one has done what was decided
 *
 * The last one removes the transaction.  The coordinator's says that it has
 * seen the decision.
 *
 * Returns ZKE_OK, also a second time; ZKE_MISUSE while undecided, and from an
 * onlooker.  Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_two_phase_ack(zke_two_phase *t);

/* zke_two_phase_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                        ZKE_IDLE where none runs.  Blocks: no.
 * zke_two_phase_step   - look again: at the time limit
 * zke_two_phase_state  - ZKE_TWO_PHASE_…, as known without asking the file
 * zke_two_phase_token  - the decision's zxid, 0 while undecided
 * zke_two_phase_payload - what it is about, one block
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_two_phase_cancel(zke_two_phase *t);
ZKE_API int zke_two_phase_step(zke_two_phase *t);
ZKE_API int zke_two_phase_state(zke_two_phase *t);
ZKE_API int64_t zke_two_phase_token(zke_two_phase *t);
ZKE_API int zke_two_phase_payload(zke_two_phase *t, char **data_out,
                                  int *len_out);

typedef struct zke_two_phase_site {
  const char *name;
  int vote;         /* ZKE_TWO_PHASE_UNDECIDED: none yet, or gone */
  int present;      /* its vote's znode is there: in the ephemeral form, it
                       lives */
  int acknowledged; /* 1 */
  int64_t voted_ms; /* ms since 1970; 0 */
  int64_t reserved[4];
} zke_two_phase_site;

/* One block, released by zke_free(). */
typedef struct zke_two_phase_status {
  int form;
  int decision;       /* ZKE_TWO_PHASE_… */
  const char *why;    /* it was decided so, "" */
  const char *by;     /* "identity (pid n)", "" */
  int64_t token;      /* the decision's zxid */
  int64_t begun_ms;   /* ms since 1970 */
  int64_t limit_ms;   /* ms since 1970; 0: none */
  int64_t decided_ms; /* ms since 1970; 0 */
  int coordinator;    /* 1: it is there, and has not acknowledged */
  const char *payload;
  int len;
  int count;
  const zke_two_phase_site *sites;
} zke_two_phase_status;

/* zke_two_phase_get - one transaction, as of one moment
 *
 *   status_out  out, not NULL
 *
 * Returns ZKE_OK, ZKE_NONODE, ZKE_OTHERKIND. */
ZKE_API int zke_two_phase_get(zke *z, const char *base, const char *name,
                              zke_two_phase_status **status_out);

/* zke_two_phase_pending - transactions that a site has not acknowledged
 *
 * What a site asks when it starts, and again when its watcher is called: new
 * ones come to the list, too.  Removes what all have acknowledged.
 *
 *   site        its name; NULL for all that are there
 *   fn,context  called once when transactions come or go, or NULL.  Nothing
 *               is registered where base is missing
 *   names_out   out, not NULL: sorted
 *
 * Returns ZKE_OK, also where base is missing (none). */
ZKE_API int zke_two_phase_pending(zke *z, const char *base, const char *site,
                                  zke_watch_fn fn, void *context,
                                  zke_strings **names_out);

#ifdef __cplusplus
}
#endif

#endif
