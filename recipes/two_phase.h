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
 *     // each site, which finds it with zke_two_phase_pending()
 *     zke_two_phase_open(z, "/2pc", "order-7", "bank", NULL, &one);
 *     // Do the work on the disk, in a way that can be kept or undone.
 *     zke_two_phase_vote(one, ZKE_TWO_PHASE_COMMIT);
 *     zke_two_phase_wait(one, deadline, &decision);
 *     // Keep it or undo it.
 *     zke_two_phase_ack(one);
 *     zke_two_phase_free(one);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * two_phase.c has the algorithm at its head.  It implements the two-phased
 * commit of ZooKeeper's page "Recipes and Solutions", with its variants.
 * Additions: a check of the votes in the step that decides, a time limit, and
 * acknowledgements.
 *
 * LAYOUT:
 *
 *     /2pc                  container, data "zkembed two-phase"
 *       order-7             persistent: form, time limit, sites, the payload
 *         id-<id>           this transaction, not a later one of that name
 *         coordinator       ephemeral: the process that began it is alive
 *         vote-bank         empty: no vote; version 1: "commit" or "abort"
 *         vote-shop         (ephemeral in that form)
 *         came-bank         in the ephemeral form: version 0 until the site has
 *                           come
 *         work-bank         the site's vote had operations; id of the call
 *         decision          persistent: "commit" or "abort", why, by whom
 *         ack-bank          this site has carried out the decision; id of the
 *                           call, if that had operations
 *
 * THE FORMS.  ZKE_TWO_PHASE_SITES: every site watches the votes, and the first
 * to see them all decides.  ZKE_TWO_PHASE_COORDINATOR: only the coordinator
 * watches them and decides; if it dies, the sites do.  ZKE_TWO_PHASE_EPHEMERAL:
 * each site makes its own vote when it opens the transaction.  If the site
 * dies, its vote is removed, which aborts the transaction.  A note that the
 * site has come stays.  So even a participant that comes later aborts, unless
 * the site itself has opened the transaction again first.  The last two forms
 * can be combined.
 *
 * THE DECISION is one znode.  "commit" is made by a step that checks that each
 * vote exists and is "commit" at that moment.  "abort" can be made by any
 * participant: in the same step as its vote "abort", when a site's ephemeral
 * vote has gone, at the time limit, or with zke_two_phase_abort().  So the
 * decision is made only once, and no participant acts on votes that it merely
 * saw.
 *
 * THE SITE'S OWN WORK can be done in the transaction of its vote
 * (zke_two_phase_vote_with()) and of its acknowledgement
 * (zke_two_phase_ack_with()): as znodes, or as rows with zke_op_sql().  Then
 * the work is prepared once the site has voted, and kept or undone once it has
 * acknowledged: exactly once, whatever dies, and whenever.  Neither costs an
 * extra sync.  The decision takes no operations, since any participant may make
 * it, in a process that does not have the others' functions.
 *
 * IF A PROCESS DIES
 *   before begin's one step: nothing is there; after it: the transaction
 *     waits for its sites, until the limit;
 *   a site before its vote: the others wait for it until the limit, or, in the
 *     ephemeral form if it had opened the transaction, abort; the site may also
 *     come back and vote;
 *   a site after its vote: a persistent vote stays valid; losing an
 *     ephemeral one aborts, unless the decision exists already;
 *   coordinator or site between votes and decision: any survivor that waits,
 *     or that opens the transaction later, decides;
 *   before acknowledging: after the restart, zke_two_phase_pending() names the
 *     transaction, and its payload and outcome are still there;
 *   in zke_two_phase_vote_with() or zke_two_phase_ack_with(): the operations
 *     are done together with the vote or acknowledgement, or not at all.  The
 *     same call after the restart does what is missing, and no more.
 * The last participant to acknowledge removes the transaction in the same step.
 * If the coordinator died last, zke_two_phase_pending() or the next begin of
 * that name does.  If the process of a kept session (zke_attach()) has died,
 * the session still counts as alive, since another process may take it over.
 * Its transaction and its ephemeral vote stay until its timeout is over.  That
 * time runs only while some process has the database open.
 *
 * WHO IS WOKEN: the decision wakes all that wait.  The participants that watch
 * the votes wake when the first missing vote is given (in the ephemeral form,
 * at every vote).  In the coordinator's form, the coordinator's death wakes the
 * sites.
 *
 * COSTS, in transactions of the database: begin is one write, plus making the
 * directory once; a vote one write and some reads; the decision one write; an
 * acknowledgement two reads and one write.  So N sites take 2 N + 3 synced
 * writes; in the ephemeral form, each site that opens the transaction adds one.
 * A vote with operations makes one more znode in its write, and one more read.
 * Watches are small writes, too.  Each look at an undecided transaction (begin,
 * open, vote, an event) sets the watch on the decision.  In the form
 * ZKE_TWO_PHASE_SITES, each participant then also reads the votes, and sets a
 * watch on the first missing one, or in the ephemeral form on each.  In the
 * coordinator's form, only the coordinator does this, and the others watch it;
 * they read the votes once it is dead or the time limit is over.
 *
 * LOSING THE SESSION: the listener hears ZKE_TWO_PHASE_LOST.  Persistent votes
 * stay valid; open the transaction again on a new session.
 *
 * FENCING: zke_two_phase_token() is the decision's zxid.
 *
 * THE TIME LIMIT is kept as wall-clock time, since it must survive a reboot.
 * If the clock is set forward, the abort comes early; if it is set back, late.
 * Each waiting participant checks the limit; without blocking calls, call
 * zke_two_phase_step() then.
 *
 * ON AN ENSEMBLE (zookeeper.h): decisions are persistent and never lost, and so
 * are votes but for ephemeral ones.  A coordinator, or a site with an ephemeral
 * vote, that was silent for the session's timeout counts as dead, as after the
 * session's end.  There, operations may be creates, deletes, sets and checks;
 * zke_op_sql() is ZKE_UNIMPLEMENTED.
 *
 * MISTAKES, and their results:
 * - Voting commit before the work is on the disk: after a crash the site cannot
 *   keep its word, and the others have committed.
 * - Undoing the work because zke_two_phase_wait() timed out: the decision may
 *   come at that moment.  Only the decision says what to do; to undo the work,
 *   abort first.
 * - Doing the work before zke_two_phase_vote_with() or zke_two_phase_ack_with()
 *   instead of in their operations: a death in between leaves one without the
 *   other.
 * - Giving zke_two_phase_ack_with() the operations of one outcome without
 *   asking zke_two_phase_wait() which outcome it is: the recipe does not know
 *   what the operations mean.
 * - Acknowledging with zke_two_phase_ack() in one place and with operations in
 *   another: if the one without comes first, the operations are not done.
 * - Not acknowledging: the transaction stays, and its name cannot be used again
 *   (ZKE_HELD names the sites).
 * - Not calling zke_two_phase_pending() after a restart: if a transaction was
 *   decided in the meantime, the site's part of it is never done.
 * - No limit, and a site that never comes: the others wait for ever.
 */
#ifndef ZKEMBED_RECIPES_TWO_PHASE_H
#define ZKEMBED_RECIPES_TWO_PHASE_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_two_phase zke_two_phase;

/* Forms: one of the first two, optionally with the third. */
enum {
  ZKE_TWO_PHASE_SITES = 0,       /* every site watches the votes */
  ZKE_TWO_PHASE_COORDINATOR = 1, /* the coordinator does, while it lives */
  ZKE_TWO_PHASE_EPHEMERAL = 2    /* a site's death aborts */
};

/* Votes, decisions and states. */
enum {
  ZKE_TWO_PHASE_UNDECIDED = 0,
  ZKE_TWO_PHASE_COMMIT = 1,
  ZKE_TWO_PHASE_ABORT = 2,
  ZKE_TWO_PHASE_LOST = 3 /* a state: the session has ended, or the transaction
                            was removed before this object saw its decision */
};

/* What happened to the operations of a vote or an acknowledgement.  At most one
 * of the calls that vote for a site gets ZKE_TWO_PHASE_DONE, whatever replies
 * were lost.  The same holds for the calls that acknowledge for it. */
enum {
  ZKE_TWO_PHASE_NOT_DONE = 0,    /* neither these nor an earlier call's */
  ZKE_TWO_PHASE_DONE = 1,        /* by this call */
  ZKE_TWO_PHASE_DONE_BEFORE = 2, /* those of an earlier call were; not these */
  ZKE_TWO_PHASE_GONE = 3 /* all have acknowledged, and the transaction has gone:
                            it is unknown whether this call, if it lost a reply,
                            or an earlier one did them */
};

/* Called once, with ZKE_TWO_PHASE_COMMIT or _ABORT, the token, and why; or
 * with ZKE_TWO_PHASE_LOST.  why is valid until the listener returns, and "" if
 * there was no memory for it.
 *
 * Example: a site that does not block.
 *
 *     static void decided(zke_two_phase *t, int state, int64_t token,
 *                         const char *why, void *context) {
 *       (void)token, (void)context;
 *       if (state == ZKE_TWO_PHASE_ABORT) printf("undo it: %s\n", why);
 *       if (state == ZKE_TWO_PHASE_COMMIT) printf("keep it\n");
 *       if (state != ZKE_TWO_PHASE_LOST) zke_two_phase_ack(t);
 *     }
 */
typedef void (*zke_two_phase_fn)(zke_two_phase *t, int state, int64_t token,
                                 const char *why, void *context);

typedef struct zke_two_phase_options {
  size_t size;
  int form;         /* for begin: ZKE_TWO_PHASE_… */
  int64_t limit_ms; /* for begin: abort if undecided for this long; 0: never */
  zke_two_phase_fn listener;
  void *context;
} zke_two_phase_options;

/* zke_two_phase_begin - begin a transaction, as its coordinator
 *
 *   base         directory of transactions; made as a container
 *   name         of this transaction, without '/'
 *   payload,len  the description of the work; at most about the data limit;
 *                copied
 *   sites,count  the names of the sites that take part, at least one: different
 *                names without '/', space or newline; copied
 *   options      NULL for the defaults; copied
 *   t_out        out; for zke_two_phase_free()
 *
 * Returns ZKE_OK, or
 *   ZKE_HELD       there is a transaction of that name; the sentence names the
 *                  sites it waits for
 *   ZKE_OTHERKIND  base, or base/name, is something else */
ZKE_API int zke_two_phase_begin(zke *z, const char *base, const char *name,
                                const void *payload, int len,
                                const char *const *sites, int count,
                                const zke_two_phase_options *options,
                                zke_two_phase **t_out);

/* zke_two_phase_open - take part in a transaction, or look on
 *
 * In the ephemeral form this makes the site's vote, which is still empty.
 *
 * Example: a site after a restart.
 *
 *     zke_strings *names = NULL;
 *     char *payload;
 *     int len, decision;
 *     rc = zke_two_phase_pending(z, "/2pc", "bank", NULL, NULL, &names);
 *     for (int i = 0; rc == ZKE_OK && i < names->count; i++) {
 *       rc = zke_two_phase_open(z, "/2pc", names->data[i], "bank", NULL, &t);
 *       if (rc != ZKE_OK) break;
 *       rc = zke_two_phase_payload(t, &payload, &len);
 *       // Is the work of the payload on the disk?  Then vote commit.
 *       if (rc == ZKE_OK) rc = zke_two_phase_vote(t, ZKE_TWO_PHASE_COMMIT);
 *       if (rc == ZKE_OK) rc = zke_two_phase_wait(t, deadline, &decision);
 *       if (rc == ZKE_OK) rc = zke_two_phase_ack(t);
 *       zke_two_phase_free(t);
 *     }
 *     zke_free(names);
 *
 *   site     the site's name; NULL to look on (for a restarted coordinator,
 *            which may come too late to see the decision)
 *   options  NULL, or the listener; form and limit are the transaction's
 *   t_out    out; for zke_two_phase_free()
 *
 * Returns ZKE_OK, or
 *   ZKE_NONODE     no such transaction, or all have acknowledged it
 *   ZKE_HELD       the site's vote belongs to another live session
 *   ZKE_OTHERKIND  base/name is something else
 *   ZKE_BADARGUMENTS  the site does not take part
 *   ZKE_RUNTIMEINCONSISTENCY  as for zke_two_phase_wait() */
ZKE_API int zke_two_phase_open(zke *z, const char *base, const char *name,
                               const char *site,
                               const zke_two_phase_options *options,
                               zke_two_phase **t_out);

/* zke_two_phase_free - leave, and release the object
 *
 * An ephemeral vote is removed, which aborts an undecided transaction.  A
 * coordinator hands over to the sites, and acknowledges a decision that it has
 * seen.  A persistent vote stays: leaving is not aborting. */
ZKE_API void zke_two_phase_free(zke_two_phase *t);

/* zke_two_phase_vote - vote, once
 *
 * Before you vote ZKE_TWO_PHASE_COMMIT, be prepared to keep the work or to undo
 * it, whatever happens.  ZKE_TWO_PHASE_ABORT decides immediately.
 *
 * Returns ZKE_OK, even if the site has already given the same vote, or the
 * decision has already been made (zke_two_phase_wait() returns it); or
 *   ZKE_MISUSE        the site has voted otherwise, or this object looks on
 *   ZKE_BADARGUMENTS  vote is neither of the two
 *   ZKE_LOST          the transaction has gone
 *   ZKE_HELD          the ephemeral vote belongs to another session
 *   ZKE_NONODE        somebody deleted the vote's znode: abort the transaction
 *   ZKE_RUNTIMEINCONSISTENCY  something else has written to the vote's or the
 *                             id's znode: abort; or to the decision's: delete
 *                             that znode */
ZKE_API int zke_two_phase_vote(zke_two_phase *t, int vote);

/* zke_two_phase_vote_with - vote, and make other changes in the same step
 *
 * The operations are done in the transaction that gives the vote; otherwise the
 * vote is not given.  They are done only with a site's first vote.  After a
 * lost reply, or a restart, a call finds that they were done, and leaves out
 * its own.  So a site repeats this call with the same operations until it
 * returns ZKE_OK, and need not know which of its calls did them.  In the
 * ephemeral form the operations stay done when the vote is removed.  A site
 * that comes back in time and votes again does not repeat them.
 *
 * Example: a complete site.  Its row is reserved with its vote, and sold or
 * deleted with its acknowledgement.  The next call for that name finishes the
 * work that a death left undone; zke_two_phase_pending() gives the name.  The
 * three functions are for zke_op_sql().
 *
 *     static int sell(zke *z, char *name, zke_sql_fn insert_row,
 *                     zke_sql_fn mark_sold, zke_sql_fn delete_row) {
 *       zke_two_phase *t;
 *       zke_op op;
 *       int decision, done = ZKE_TWO_PHASE_NOT_DONE;
 *       int rc = zke_two_phase_open(z, "/2pc", name, "shop", NULL, &t);
 *       if (rc != ZKE_OK) return rc;
 *       zke_op_sql(&op, insert_row, name);
 *       rc = zke_two_phase_vote_with(t, ZKE_TWO_PHASE_COMMIT, &op, 1, NULL,
 *                                    &done);
 *       // The row is refused, so the vote was not given.
 *       if (rc > 0) rc = zke_two_phase_vote(t, ZKE_TWO_PHASE_ABORT);
 *       if (rc == ZKE_MISUSE) rc = ZKE_OK;  // so it had voted, and died
 *       if (rc == ZKE_OK) rc = zke_two_phase_wait(t, ZKE_FOREVER, &decision);
 *       if (rc == ZKE_OK) {
 *         bool commit = decision == ZKE_TWO_PHASE_COMMIT;
 *         bool has_row = done != ZKE_TWO_PHASE_NOT_DONE;
 *         zke_op_sql(&op, commit ? mark_sold : delete_row, name);
 *         rc = zke_two_phase_ack_with(t, &op, has_row, NULL, NULL);
 *       }
 *       zke_two_phase_free(t);
 *       return rc;
 *     }
 *
 *   ops, count  the changes to make with the vote; NULL, 0: as
 *               zke_two_phase_vote().  A function of zke_op_sql() may be called
 *               several times; at most one of its calls has an effect
 *   results     out, count of them, or NULL; zke_results_clear() releases them.
 *               All zero if nothing was tried, or if a reply was lost
 *   done_out    out, or NULL; set on ZKE_OK:
 *                 ZKE_TWO_PHASE_DONE         the vote was given by this call,
 *                                            even if its reply was lost
 *                 ZKE_TWO_PHASE_DONE_BEFORE  the site's operations were done
 *                                            with an earlier vote
 *                 ZKE_TWO_PHASE_NOT_DONE     the decision came without the
 *                                            site's vote, the site had voted
 *                                            without operations, or count is 0
 *                 ZKE_TWO_PHASE_GONE         this object has seen the decision,
 *                                            and all have acknowledged since
 *
 * Returns as zke_two_phase_vote(), or the error of zke_multi() for ops: then
 * nothing was changed, and this call gave no vote.  The result of a refused
 * operation has the code.  If no result has it, the error is the recipe's own,
 * such as ZKE_NONODE for a deleted vote, or ops is invalid (a malformed path,
 * data over the limit).  A count below 0 or ops of NULL is also
 * ZKE_BADARGUMENTS.  After ZKE_CONNECTIONLOSS and ZKE_INVALIDSTATE, and
 * ZKE_LOST after a lost reply, it is not known whether the step was done; the
 * next call tells. */
ZKE_API int zke_two_phase_vote_with(zke_two_phase *t, int vote,
                                    const zke_op *ops, int count,
                                    zke_op_result *results, int *done_out);

/* zke_two_phase_wait - wait for the decision
 *
 * The call makes the decision if this participant can: see THE FORMS.  It can
 * be repeated after a timeout.
 *
 * Example: wait for a while, then force a decision.
 *
 *     int decision;
 *     rc = zke_two_phase_wait(t, zke_now(z) + 5000, &decision);
 *     if (rc == ZKE_OPERATIONTIMEOUT) {
 *       printf("%s\n", zke_errmsg());  // which sites have not voted
 *       rc = zke_two_phase_abort(t, "it took too long");
 *       if (rc == ZKE_MISUSE) printf("committed meanwhile\n");
 *     }
 *
 *   decision_out  out: ZKE_TWO_PHASE_COMMIT or _ABORT
 *
 * Returns ZKE_OK, or
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names the sites that
 *                         have not voted
 *   ZKE_LOST              the transaction has gone
 *   ZKE_RUNTIMEINCONSISTENCY  the decision is not valid: something else made it
 *   ZKE_CANCELLED, ZKE_MISUSE, ZKE_INVALIDSTATE */
ZKE_API int zke_two_phase_wait(zke_two_phase *t, int64_t deadline_ms,
                               int *decision_out);

/* zke_two_phase_abort - abort an undecided transaction; any participant or
 * onlooker may
 *
 *   why  for the others, one line; copied.  NULL: ""
 *
 * Returns ZKE_OK if it is aborted now; ZKE_MISUSE if it is committed; ZKE_LOST
 * if it has gone; or ZKE_RUNTIMEINCONSISTENCY as for zke_two_phase_wait(). */
ZKE_API int zke_two_phase_abort(zke_two_phase *t, const char *why);

/* zke_two_phase_ack - say that this participant has carried out the decision
 *
 * The last acknowledgement removes the transaction.  A coordinator's
 * acknowledgement says that it has seen the decision.
 *
 * Returns ZKE_OK, even a second time; ZKE_MISUSE while it is undecided, and
 * from an onlooker. */
ZKE_API int zke_two_phase_ack(zke_two_phase *t);

/* zke_two_phase_ack_with - acknowledge as a site, and make other changes in the
 *                          same step
 *
 * So the outcome is applied exactly once.  The operations are done in the
 * transaction that acknowledges, even if it is the last one, which removes
 * everything.  After a lost reply, or a restart, a call finds that the site has
 * acknowledged, and leaves out its operations.  The caller must know from
 * zke_two_phase_wait() which outcome they belong to.  For an example, see
 * zke_two_phase_vote_with().
 *
 *   ops, count, results  as for zke_two_phase_vote_with()
 *   done_out    out, or NULL; set on ZKE_OK:
 *                 ZKE_TWO_PHASE_DONE         by this call
 *                 ZKE_TWO_PHASE_DONE_BEFORE  the site had acknowledged before,
 *                                            with operations
 *                 ZKE_TWO_PHASE_NOT_DONE     it had acknowledged without any,
 *                                            or count is 0
 *                 ZKE_TWO_PHASE_GONE         all have acknowledged.  The site's
 *                                            operations were done once, if all
 *                                            its acknowledgements had them
 *
 * Returns as zke_two_phase_ack(), or the error of zke_multi() for ops, as for
 * zke_two_phase_vote_with(): then nothing was changed, and this call did not
 * acknowledge.  A coordinator also gets ZKE_MISUSE if count is not 0: a
 * coordinator's part ends with its process.  If it has work to do, it must also
 * take part as a site.  After ZKE_CONNECTIONLOSS and ZKE_INVALIDSTATE it is not
 * known whether the step was done; the next call tells. */
ZKE_API int zke_two_phase_ack_with(zke_two_phase *t, const zke_op *ops,
                                   int count, zke_op_result *results,
                                   int *done_out);

/* zke_two_phase_cancel - make the blocking call return ZKE_CANCELLED;
 *                        ZKE_IDLE if none runs
 * zke_two_phase_step   - look again; use it at the time limit
 * zke_two_phase_state  - ZKE_TWO_PHASE_…, from memory
 * zke_two_phase_token  - the decision's zxid, 0 while undecided; from memory
 * zke_two_phase_payload - the payload, from memory: one block for zke_free(),
 *                        followed by a NUL that len_out does not count */
ZKE_API int zke_two_phase_cancel(zke_two_phase *t);
ZKE_API int zke_two_phase_step(zke_two_phase *t);
ZKE_API int zke_two_phase_state(zke_two_phase *t);
ZKE_API int64_t zke_two_phase_token(zke_two_phase *t);
ZKE_API int zke_two_phase_payload(zke_two_phase *t, char **data_out,
                                  int *len_out);

/* The progress of one site. */
typedef struct zke_two_phase_site {
  const char *name;
  int vote;         /* ZKE_TWO_PHASE_UNDECIDED: none yet, or removed */
  int present;      /* its vote's znode exists: in the ephemeral form, the
                       site is alive */
  int acknowledged; /* 1: it has carried out the decision */
  int64_t voted_ms; /* ms since 1970; 0: no vote */
  int64_t reserved[4];
} zke_two_phase_site;

/* One block, released by zke_free(). */
typedef struct zke_two_phase_status {
  int form;
  int decision;       /* ZKE_TWO_PHASE_… */
  const char *why;    /* the reason of the decision; "" while undecided */
  const char *by;     /* the process that decided: "identity (pid n)", or "" */
  int64_t token;      /* the decision's zxid */
  int64_t begun_ms;   /* ms since 1970 */
  int64_t limit_ms;   /* ms since 1970; 0: none */
  int64_t decided_ms; /* ms since 1970; 0: undecided */
  int coordinator;    /* 1: it is present, and has not acknowledged */
  const char *payload;
  int len;
  int count;
  const zke_two_phase_site *sites;
} zke_two_phase_status;

/* zke_two_phase_get - a snapshot of one transaction
 *
 * Example: the sites that it waits for.
 *
 *     zke_two_phase_status *st;
 *     rc = zke_two_phase_get(z, "/2pc", "order-7", &st);
 *     for (int i = 0; rc == ZKE_OK && i < st->count; i++)
 *       if (!st->sites[i].vote) printf("%s\n", st->sites[i].name);
 *     if (rc == ZKE_OK) zke_free(st);
 *
 *   status_out  out, not NULL: one block
 *
 * Returns ZKE_OK; ZKE_NONODE if there is no such transaction; or ZKE_OTHERKIND
 * if the znode is something else. */
ZKE_API int zke_two_phase_get(zke *z, const char *base, const char *name,
                              zke_two_phase_status **status_out);

/* zke_two_phase_pending - transactions that a site has not acknowledged
 *
 * A site calls this when it starts, and again when its watcher is called, since
 * new transactions may have begun.  The call removes transactions that all have
 * acknowledged.
 *
 *   site        its name; NULL for all transactions
 *   fn,context  called once, when transactions come or go; or NULL.  Nothing
 *               is registered if base is missing
 *   names_out   out, not NULL: sorted
 *
 * Returns ZKE_OK, even if base is missing (there are none). */
ZKE_API int zke_two_phase_pending(zke *z, const char *base, const char *site,
                                  zke_watch_fn fn, void *context,
                                  zke_strings **names_out);

#ifdef __cplusplus
}
#endif

#endif
