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
 *       fprintf(stderr, "%s\n", zke_errmsg());  // who has done it, and when
 *     }
 *     zke_periodic_free(job);
 *
 * LAYOUT:
 *
 *     /jobs                 persistent, data "zkembed periodic"
 *       rotate-logs         persistent: the last run, and no other: start,
 *                           end, status, who, how often tried
 *         running           ephemeral: whoever does it now lives
 *
 * A RUN is claimed in one step, which writes the new record in place of the
 * one that was seen and makes `running`: of several that come at once one has
 * it.  While that one lives nobody else does, not by force either.
 *
 * IF THE PROCESS DIES before that step, nothing is there; after it, `running`
 * goes with its session and the record has no end: the run counts as the
 * period's, or is due again, by the option ZKE_PERIODIC_RETRY_DEAD.  After
 * zke_periodic_release(), which writes the end and removes `running` in one
 * step, nothing is left but the record.
 *
 * THE CLOCK is zke_wall(): a monotonic one does not outlive a reboot.  The
 * job is due when the last start is at least a period away from now, in either
 * direction.  So a clock set forward makes it due early; one set back by less
 * than a period, late, by that much; one set back by a period or more makes it
 * due at once (the last start lies in a future that makes no sense).
 * zke_periodic_acquire() sleeps by the monotonic clock: it sees a step when it
 * wakes.
 * With `aligned` periods begin at multiples of the period since 1970 (plus the
 * offset) instead of at the last start.
 *
 * WHO IS WOKEN: nobody, until it is due; then all that wait in
 * zke_periodic_acquire() look, and one has it.  By the end of a run those to
 * whom it makes a difference.
 *
 * LOSING THE SESSION while doing it, or having `running` deleted: the listener
 * hears ZKE_PERIODIC_LOST; zke_periodic_release() fails, and what has
 * zke_periodic_op() in its multi.
 *
 * FENCING: zke_periodic_token() is the zxid of the claim; it increases from
 * run to run.
 */
#ifndef ZKEMBED_RECIPES_PERIODIC_H
#define ZKEMBED_RECIPES_PERIODIC_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_periodic zke_periodic;

enum {
  ZKE_PERIODIC_OUT = 0,
  ZKE_PERIODIC_HELD = 2, /* this object does it */
  ZKE_PERIODIC_LOST = 3  /* it did, and lost the claim */
};

enum {
  ZKE_PERIODIC_RETRY_DEAD = 1,  /* a run whose process died does not count */
  ZKE_PERIODIC_RETRY_FAILED = 2 /* nor one that ended with a status but 0 */
};

/* Called with ZKE_PERIODIC_LOST. */
typedef void (*zke_periodic_fn)(zke_periodic *job, int state, void *context);

typedef struct zke_periodic_options {
  size_t size;
  int64_t period_ms; /* at least 1 */
  int retry;         /* sum of ZKE_PERIODIC_RETRY_… */
  int aligned;       /* 1: periods begin at multiples of the period */
  int64_t offset_ms; /* of aligned ones */
  zke_periodic_fn listener;
  void *context;
} zke_periodic_options;

/* zke_periodic_new  - an object for one starter; does not touch the tree
 * zke_periodic_free - NULL is fine.  A run that was not done ends as if the
 *                     process had died
 *
 *   base     directory of jobs; made when first needed
 *   name     of the job, without '/'
 *   options  not NULL: there is no default for the period; copied
 *   job_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what the handle's state asks for.
 * Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_periodic_new(zke *z, const char *base, const char *name,
                             const zke_periodic_options *options,
                             zke_periodic **job_out);
ZKE_API void zke_periodic_free(zke_periodic *job);

/* zke_periodic_try - claim the run that is due now
 *
 * Returns ZKE_OK: do it; or
 *   ZKE_LIMIT      it was done in this period; the sentence says by whom,
 *                  when, and when it is due again
 *   ZKE_HELD       somebody does it now; the sentence says who, since when
 *   ZKE_OTHERKIND  the path is something else's
 *   ZKE_MISUSE     this object does it already, or another thread waits
 *   ZKE_INVALIDSTATE
 * zke_periodic_force - the same, whether it is due or not: never ZKE_LIMIT
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_periodic_try(zke_periodic *job);
ZKE_API int zke_periodic_force(zke_periodic *job);

/* zke_periodic_acquire - wait until it is due, and claim it
 *
 * Where another one is first, it waits for the next time.
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *
 * Returns as zke_periodic_try(), but at the deadline ZKE_OPERATIONTIMEOUT with
 * the sentence of ZKE_LIMIT or ZKE_HELD; ZKE_CANCELLED.
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_periodic_acquire(zke_periodic *job, int64_t deadline_ms);

/* zke_periodic_release - it is done; or, beside another thread's acquire: end
 * that call with ZKE_LOST
 *
 *   status  as a program's exit status: 0 when all went well
 *
 * Returns ZKE_OK, or ZKE_LOST where the claim was lost before; after any other
 * code it can be repeated. */
ZKE_API int zke_periodic_release(zke_periodic *job, int status);

/* zke_periodic_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                       ZKE_IDLE where none runs
 * zke_periodic_state  - ZKE_PERIODIC_…, as known without asking the file
 * zke_periodic_token  - the fencing value, 0 unless it runs
 * zke_periodic_check  - ask the file: ZKE_OK while the claim is this object's,
 *                       else ZKE_LOST
 * zke_periodic_op     - for one's own zke_multi(): fails with ZKE_BADVERSION
 *                       or ZKE_NONODE once the claim is lost to another;
 *                       valid until the next call.  ZKE_LOST where it is not
 *                       this object's
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_periodic_cancel(zke_periodic *job);
ZKE_API int zke_periodic_state(zke_periodic *job);
ZKE_API int64_t zke_periodic_token(zke_periodic *job);
ZKE_API int zke_periodic_check(zke_periodic *job);
ZKE_API int zke_periodic_op(zke_periodic *job, zke_op *op);

/* The last run. */
typedef struct zke_periodic_record {
  int64_t start_ms; /* ms since 1970 */
  int64_t end_ms;   /* ms since 1970; 0: it has not ended, or died */
  int status;       /* where it has ended */
  int running;      /* 1: whoever does it lives */
  int tries;        /* runs begun in its period */
  int forced;       /* 1: by zke_periodic_force() */
  int64_t token;    /* of its claim, while it has no end; else of its end */
  int64_t pid;      /* in its own PID namespace; for display */
  const char *identity;
} zke_periodic_record;

/* zke_periodic_get - the last run of a job
 *
 *   record_out  out, not NULL: one block
 *
 * Returns ZKE_OK, ZKE_NONODE where it was never run, ZKE_OTHERKIND. */
ZKE_API int zke_periodic_get(zke *z, const char *base, const char *name,
                             zke_periodic_record **record_out);

#ifdef __cplusplus
}
#endif

#endif
