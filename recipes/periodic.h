/* periodic.h - a job that several processes may start, at most once a period
 *
 *     zke_periodic_options o = ZKE_INIT(zke_periodic_options);
 *     zke_periodic *job;
 *     o.period_ms = 3600 * 1000;
 *     zke_periodic_new(z, "/jobs", "rotate-logs", &o, &job);
 *     if (zke_periodic_try(job) == ZKE_OK) {
 *       int status = system("rotate-logs");
 *       zke_periodic_release(job, status);
 *     } else {
 *       fprintf(stderr, "%s\n", zke_errmsg());  // which process did it, when
 *     }
 *     zke_periodic_free(job);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).  It
 * works like a cron job, but one of several processes runs it.
 *
 * LAYOUT:
 *
 *     /jobs                 persistent, data "zkembed periodic"
 *       rotate-logs         persistent: the last run, and no other: start,
 *                           end, status, who, how often tried
 *         running           ephemeral: the process that does it now lives
 *
 * A RUN is claimed in one step, which makes `running` and writes the new record
 * over the one that was read: if several processes try at the same time, one
 * gets it.  While that process lives, no other can claim, not even by force.
 *
 * IF THE PROCESS DIES before that step, nothing is there; after it, `running`
 * is removed with its session and the record has no end: the run counts for the
 * period, or with ZKE_PERIODIC_RETRY_DEAD the job is due again.  After
 * zke_periodic_release(), which writes the end and removes `running` in one
 * step, only the record is left.  A kept session (zke_attach()) outlives its
 * process: until its timeout is over, the job counts as running.  That time
 * runs only while some process has the database open.
 *
 * THE CLOCK is zke_wall(), since a monotonic clock does not survive a reboot.
 * The job is due when the last start is at least a period away from now, in
 * either direction.  So a clock set forward makes it due early; one set back by
 * less than a period makes it late by that much; one set back by a period or
 * more makes it due immediately (the last start is too far in the future).
 * zke_periodic_acquire() sleeps by the monotonic clock: it sees a clock step
 * when it wakes.
 * With `aligned`, periods begin at multiples of the period since 1970 (plus the
 * offset) instead of at the last start.
 *
 * WHO IS WOKEN: no one, until it is due; then all that wait in
 * zke_periodic_acquire() look, and one gets the run.  The end of a run wakes
 * the waiting objects for which the job may be due then: its period is over, or
 * retry is set.  When a run is forced, the objects with retry set wake as it
 * begins, to wait for its end.
 *
 * COSTS, in transactions of the database: a try is two reads (this session's
 * identity; the record), and one write if the run is claimed; the first try
 * also makes the directory.  A release is a read and a write.  With a listener
 * a claim is one small write more, which sets a watch, and a release one that
 * removes it.  A waiting process costs one try at each time at which it looks;
 * with retry set also two such writes.
 *
 * LOSING THE SESSION during a run, or having `running` deleted: the listener
 * hears ZKE_PERIODIC_LOST; zke_periodic_release() fails, and so does a multi
 * with zke_periodic_op() once another run has been claimed.
 *
 * FENCING: zke_periodic_token() is the zxid of the claim; it increases from run
 * to run.
 *
 * ON AN ENSEMBLE (zookeeper.h): if a run's process was silent for the session's
 * timeout, another process may claim a run while the first one still works:
 * guard by zke_periodic_op() or the token.
 *
 * MISTAKES, and their results:
 * - Not releasing: while the process lives the job runs, for others as well.
 *   zke_periodic_free() ends the run as a death would.
 * - Different periods in two processes for one job: each uses its own.
 * - Taking ZKE_LIMIT for a failure: it means that the work has been done.
 * - Ending another thread's zke_periodic_acquire() by zke_periodic_release():
 *   if that call has just claimed a run, this ends the run, with the given
 *   status.  Use zke_periodic_cancel().
 * - A job that takes longer than its period: the next run begins when it has
 *   been released.
 * - Deleting a job's znode during a run, to have it run again: use
 *   zke_periodic_force().  The run is lost, and its release says so.  But the
 *   next record's versions begin again, so a multi with zke_periodic_op() may
 *   pass while another process has the run; the token tells the two apart.
 */
#ifndef ZKEMBED_RECIPES_PERIODIC_H
#define ZKEMBED_RECIPES_PERIODIC_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_periodic zke_periodic;

/* The values of zke_periodic_state().
 *
 *     OUT, LOST -> HELD   try, force or acquire has claimed a run
 *     HELD -> OUT         zke_periodic_release()
 *     HELD -> LOST        `running` or the session has gone
 */
enum {
  ZKE_PERIODIC_OUT = 0,  /* this object has no run */
  ZKE_PERIODIC_HELD = 2, /* this object has the run */
  ZKE_PERIODIC_LOST = 3  /* it had a run, and lost the claim */
};

/* Runs that do not count: after them the job is due again in the same
 * period. */
enum {
  ZKE_PERIODIC_RETRY_DEAD = 1,  /* a run whose process died */
  ZKE_PERIODIC_RETRY_FAILED = 2 /* a run with a status other than 0 */
};

/* Called with ZKE_PERIODIC_LOST; it may call the object or free it.
 *
 * Example: tell the work to stop.
 *
 *     static void lost(zke_periodic *job, int state, void *stop) {
 *       (void)job, (void)state;
 *       *(int *)stop = 1;
 *     }
 */
typedef void (*zke_periodic_fn)(zke_periodic *job, int state, void *context);

typedef struct zke_periodic_options {
  size_t size;
  int64_t period_ms; /* at least 1 */
  int retry;         /* sum of ZKE_PERIODIC_RETRY_… */
  int aligned;       /* 1: periods begin at multiples of the period */
  int64_t offset_ms; /* aligned periods begin this much later */
  zke_periodic_fn listener;
  void *context;
} zke_periodic_options;

/* zke_periodic_new  - an object for one starter; writes nothing
 * zke_periodic_free - release it.  A run that was not released ends as if the
 *                     process had died
 *
 * Example: every night at two o'clock UTC; a run that failed is repeated.
 *
 *     zke_periodic_options o = ZKE_INIT(zke_periodic_options);
 *     o.period_ms = 24 * 3600 * 1000;
 *     o.aligned = 1;
 *     o.offset_ms = 2 * 3600 * 1000;
 *     o.retry = ZKE_PERIODIC_RETRY_DEAD | ZKE_PERIODIC_RETRY_FAILED;
 *     rc = zke_periodic_new(z, "/jobs", "backup", &o, &job);
 *
 *   base     directory of jobs; made when first needed
 *   name     of the job, without '/', else ZKE_BADARGUMENTS
 *   options  not NULL: there is no default for the period; copied
 *   job_out  out; for zke_periodic_free() */
ZKE_API int zke_periodic_new(zke *z, const char *base, const char *name,
                             const zke_periodic_options *options,
                             zke_periodic **job_out);
ZKE_API void zke_periodic_free(zke_periodic *job);

/* zke_periodic_try - claim the run that is due now
 *
 * Returns ZKE_OK: do the job; or
 *   ZKE_LIMIT         it was done in this period; the sentence says by which
 *                     process, when, and when it is due again
 *   ZKE_HELD          a process does it now; the sentence says which, since
 *                     when
 *   ZKE_OTHERKIND     the path belongs to something else
 *   ZKE_MISUSE        this object does it already, or another thread waits
 *   ZKE_INVALIDSTATE  the session has ended
 *
 * zke_periodic_force - the same, whether it is due or not: never ZKE_LIMIT */
ZKE_API int zke_periodic_try(zke_periodic *job);
ZKE_API int zke_periodic_force(zke_periodic *job);

/* zke_periodic_acquire - wait until it is due, and claim it
 *
 * If another process gets it, the call waits for the next time.
 *
 * Example: a process that does the job whenever it is due.
 *
 *     while ((rc = zke_periodic_acquire(job, ZKE_FOREVER)) == ZKE_OK)
 *       zke_periodic_release(job, 0);
 *
 * Returns ZKE_OK: do the job; or
 *   ZKE_OPERATIONTIMEOUT  at the deadline, with the sentence of ZKE_LIMIT or
 *                         ZKE_HELD
 *   ZKE_CANCELLED         zke_periodic_cancel()
 *   ZKE_LOST              zke_periodic_release() by another thread
 *   others                as zke_periodic_try() */
ZKE_API int zke_periodic_acquire(zke_periodic *job, int64_t deadline_ms);

/* zke_periodic_release - the run has ended; or, if another thread is in
 * acquire: end that call with ZKE_LOST
 *
 *   status  like a program's exit status: 0 if all went well
 *
 * Returns ZKE_OK, or ZKE_LOST if the object has no run, or lost the claim
 * before.  After any other code the claim is held, and the call can be
 * repeated.  The code is also ZKE_LOST if the reply was lost and the job's
 * znode was deleted before the call looked again: then nothing shows whether
 * the run had ended.  ZKE_CONNECTIONLOSS: on an ensemble, the link was lost for
 * longer than the call tries; the call may have ended the run.  If it is
 * repeated after another run has begun, it returns ZKE_LOST. */
ZKE_API int zke_periodic_release(zke_periodic *job, int status);

/* zke_periodic_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                       ZKE_IDLE if none runs
 * zke_periodic_state  - ZKE_PERIODIC_…, from memory
 * zke_periodic_token  - the fencing value, 0 unless it runs
 * zke_periodic_check  - ask the file: ZKE_OK while the claim is this object's,
 *                       else ZKE_LOST
 * zke_periodic_op     - for a zke_multi() of the program: fails with
 *                       ZKE_BADVERSION or ZKE_NONODE once another run has taken
 *                       the claim; valid until the next call.  ZKE_LOST if the
 *                       object has no run
 *
 * Only check reads the file; the others answer from memory.
 *
 * Example: write a result, unless a later run has overtaken this one.
 *
 *     zke_op ops[2];
 *     rc = zke_periodic_op(job, &ops[0]);
 *     zke_op_set(&ops[1], "/backup/last", "12", 2, -1);
 *     if (rc == ZKE_OK) rc = zke_multi(z, ops, 2, NULL);
 */
ZKE_API int zke_periodic_cancel(zke_periodic *job);
ZKE_API int zke_periodic_state(zke_periodic *job);
ZKE_API int64_t zke_periodic_token(zke_periodic *job);
ZKE_API int zke_periodic_check(zke_periodic *job);
ZKE_API int zke_periodic_op(zke_periodic *job, zke_op *op);

/* The last run. */
typedef struct zke_periodic_record {
  int64_t start_ms;     /* ms since 1970 */
  int64_t end_ms;       /* ms since 1970; 0: it has not ended, or died */
  int status;           /* if it has ended */
  int running;          /* 1: a process does it, and lives */
  int tries;            /* runs begun in its period */
  int forced;           /* 1: by zke_periodic_force() */
  int64_t token;        /* of its claim, while it has no end; else of its end */
  int64_t pid;          /* in its own PID namespace; for display */
  const char *identity; /* of the session that did it */
} zke_periodic_record;

/* zke_periodic_get - the last run of a job
 *
 * Example: did last night's backup work?
 *
 *     zke_periodic_record *last;
 *     rc = zke_periodic_get(z, "/jobs", "backup", &last);
 *     if (rc == ZKE_OK) {
 *       if (!last->end_ms && !last->running) printf("it died\n");
 *       if (last->end_ms && last->status) printf("it failed\n");
 *       zke_free(last);
 *     }
 *
 *   record_out  out, not NULL: one block for zke_free()
 *
 * Returns ZKE_OK; ZKE_NONODE if it was never run; or ZKE_OTHERKIND if the znode
 * is not a job's. */
ZKE_API int zke_periodic_get(zke *z, const char *base, const char *name,
                             zke_periodic_record **record_out);

#ifdef __cplusplus
}
#endif

#endif
