/* singleton.h - one of N processes runs the worker, the next is warm
 *
 *     static int work(zke_singleton *s, int64_t token, void *arg) {
 *       while (zke_singleton_check(s) == ZKE_OK) {
 *         // One round of work.
 *       }
 *       return 0;
 *     }
 *
 *     zke_singleton *s;
 *     zke_singleton_new(z, "/workers/mailer", NULL, &s);
 *     // from cron: run, or be told which process does
 *     if (zke_singleton_try(s) == ZKE_HELD)
 *       fprintf(stderr, "%s\n", zke_errmsg());
 *     // or stand by; in an event loop, zke_singleton_start() and a listener
 *     zke_singleton_serve(s, ZKE_FOREVER, work, NULL);
 *     zke_singleton_free(s);
 *
 * The rules that every recipe keeps stand in support.h: deadlines, listeners,
 * cancellation, what a failed call leaves, the end of the session, fork().
 * A singleton is a lock (lock.h) that is held for good: the same line, without
 * the search for deadlocks, with a watch of the object's own znode, and with a
 * call that runs a worker.  An election (election.h) also tells the others
 * which one leads.
 *
 * LAYOUT, as a lock's:
 *
 *     /workers/mailer                   container, data "zkembed singleton"
 *       _c_<guid>-lock-0000000000       runs
 *       _c_<guid>-lock-0000000001       stands by, watching the one before it
 *
 * IF THE PROCESS DIES its znode goes with its session; the next in line is
 * told by the kernel and runs.  Nothing else is left behind at any step.
 *
 * WHO IS WOKEN: the next in line and nobody else.
 *
 * COSTS, in transactions of the database: as a lock's (lock.h), and one small
 * write more to take over, and one to release: the watch of the object's own
 * znode is set and taken back.  A process that stands by costs nothing while it
 * waits.
 *
 * LOSING THE SESSION, or the znode to zke_singleton_replace(): the listener
 * hears ZKE_SINGLETON_LOST; zke_singleton_check() fails, and so does a multi
 * with zke_singleton_op().  The worker has to stop then, since another process
 * runs it.
 *
 * FENCING: zke_singleton_token() is the zxid of taking over, greater than the
 * token of every process that ran before.
 *
 * ON AN ENSEMBLE (zookeeper.h): a worker that was silent for the session's
 * timeout is replaced, and may run on beside the next one until it looks: guard
 * by zke_singleton_op() or the token.
 *
 * MISTAKES, and what they come to:
 * - A worker that never calls zke_singleton_check(), nor dispatches: it works
 *   on after the process was stopped for long and another one took over.  Check
 *   between two rounds, and guard what must not happen twice with the op (same
 *   database) or the token (anything else).
 * - Calling serve in a loop without looking at its result: after
 *   ZKE_INVALIDSTATE the session has ended, and each call fails at once.
 * - Two threads of a process share an object: the second gets ZKE_MISUSE.
 */
#ifndef ZKEMBED_RECIPES_SINGLETON_H
#define ZKEMBED_RECIPES_SINGLETON_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_singleton zke_singleton;

/* What zke_singleton_state() returns, and, but for WAITING, what a listener
 * hears.
 *
 *     OUT -> WAITING         acquire, try, start: the znode is made
 *     WAITING -> HELD        nobody is in front any more
 *     HELD, WAITING -> OUT   release, free; a failed acquire or try
 *     HELD, WAITING -> LOST  the znode or the session has gone
 *     LOST -> WAITING        the next acquire, try or start
 */
enum {
  ZKE_SINGLETON_OUT = ZKE_LINE_OUT,         /* it neither runs nor stands by */
  ZKE_SINGLETON_WAITING = ZKE_LINE_WAITING, /* it stands by */
  ZKE_SINGLETON_HELD = ZKE_LINE_HELD,       /* it runs */
  ZKE_SINGLETON_LOST = ZKE_LINE_LOST        /* it did, and was taken off */
};

/* Called when the state changes; the token with ZKE_SINGLETON_HELD, else 0.
 *
 * Example: an event loop that starts and stops its timer.
 *
 *     static void turn(zke_singleton *s, int state, int64_t token,
 *                      void *running) {
 *       (void)s;
 *       *(int *)running = state == ZKE_SINGLETON_HELD;
 *       if (token) printf("running with token %lld\n", (long long)token);
 *     }
 *
 *     static int stand_by(zke *z, int *running, zke_singleton **s) {
 *       zke_singleton_options o = ZKE_INIT(zke_singleton_options);
 *       o.listener = turn;
 *       o.context = running;
 *       int rc = zke_singleton_new(z, "/workers/mailer", &o, s);
 *       return rc == ZKE_OK ? zke_singleton_start(*s) : rc;
 *     }
 */
typedef void (*zke_singleton_fn)(zke_singleton *s, int state, int64_t token,
                                 void *context);

typedef struct zke_singleton_options {
  size_t size;
  const void *data; /* shown to others by zke_singleton_parties(); copied */
  int len;          /* bytes of it */
  zke_singleton_fn listener; /* or NULL */
  void *context;             /* for the listener; borrowed */
} zke_singleton_options;

/* zke_singleton_new  - an object for one process; writes nothing
 * zke_singleton_free - stop, and release the object; NULL is fine
 *
 *   path     of the worker; made as a container when first needed
 *   options  NULL for the defaults; copied
 *   s_out    out, not NULL; NULL on failure.  For zke_singleton_free()
 *
 * new returns ZKE_OK, ZKE_BADARGUMENTS (the path, s_out is NULL, a negative
 * len), ZKE_NOMEM, or what the handle's state asks for.  After free the
 * listener does not run on any thread.
 * Threads: any; free while no other call on it runs.  In a callback: yes.
 * Block: on the disk.  Since 0.1. */
ZKE_API int zke_singleton_new(zke *z, const char *path,
                              const zke_singleton_options *options,
                              zke_singleton **s_out);
ZKE_API void zke_singleton_free(zke_singleton *s);

/* zke_singleton_acquire - stand by until this object runs
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *
 * Returns ZKE_OK, or, standing by no more,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names the process that
 *                         runs, its pid and since when
 *   ZKE_CANCELLED         zke_singleton_cancel()
 *   ZKE_LOST              the object's znode was deleted by another process, or
 *                         another thread released or freed the object
 *   ZKE_LIMIT             the directory has given 2147483647 numbers
 *   ZKE_OTHERKIND         the path is another recipe's, or
 *                         another library's (lock.h)
 *   ZKE_MISUSE            it runs already, or another call waits
 *   ZKE_INVALIDSTATE      the session has ended
 * Threads: any.  In a callback: yes.  Blocks: until the deadline.  Since 0.1.
 */
ZKE_API int zke_singleton_acquire(zke_singleton *s, int64_t deadline_ms);

/* zke_singleton_try     - run now, or ZKE_HELD with the same sentence
 * zke_singleton_start   - stand by and go on; the listener is told, or the
 *                         state tells, once zke_dispatch() has seen that the
 *                         object's turn has come
 * zke_singleton_release - run or stand by no more, nor does another thread's
 *                         zke_singleton_acquire().  ZKE_LOST where the object
 *                         did neither, or no more; after any other failure the
 *                         session deletes the znode as soon as it can
 *
 * Example: a job of cron that leaves when another run is still at work.
 *
 *     rc = zke_singleton_try(s);
 *     if (rc == ZKE_OK) {
 *       // work
 *       rc = zke_singleton_release(s);
 *     } else if (rc == ZKE_HELD) {
 *       printf("%s\n", zke_errmsg());
 *     }
 *
 * Other results are those of zke_singleton_acquire().
 * Threads: any.  In a callback: yes.  Block: on the disk.  Since 0.1. */
ZKE_API int zke_singleton_try(zke_singleton *s);
ZKE_API int zke_singleton_start(zke_singleton *s);
ZKE_API int zke_singleton_release(zke_singleton *s);

/* zke_singleton_serve - wait, call the worker, stop
 *
 * fn runs on this thread, with no lock held, and may call the object.
 *
 *   deadline_ms  for taking over; the worker takes its time
 *   fn           its result is returned, also where another process runs by
 *                now: zke_singleton_check() tells that
 *   arg          handed to fn; borrowed
 *
 * Returns what fn returned, else as zke_singleton_acquire(); ZKE_CLOSING where
 * a listener freed the object before fn was called.  A thread that is cancelled
 * inside fn frees the object in a cleanup handler of its own.
 * Threads: any.  In a callback: yes.  Blocks: until the deadline, and while fn
 * does. */
typedef int (*zke_singleton_work_fn)(zke_singleton *s, int64_t token,
                                     void *arg);
ZKE_API int zke_singleton_serve(zke_singleton *s, int64_t deadline_ms,
                                zke_singleton_work_fn fn, void *arg);

/* zke_singleton_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                        ZKE_IDLE where none runs
 * zke_singleton_step   - look again now, as dispatches do by themselves
 * zke_singleton_state  - ZKE_SINGLETON_…, as known without asking the file
 * zke_singleton_token  - the fencing value, 0 unless it runs
 * zke_singleton_check  - ask the file: ZKE_OK when it runs, else ZKE_LOST
 * zke_singleton_op     - for a zke_multi() of the program: fails with
 *                        ZKE_NONODE unless this object runs; valid until the
 *                        next call that changes that.  ZKE_LOST where it does
 *                        not run
 *
 * Example: a write that a process that was replaced cannot make.
 *
 *     zke_op ops[2];
 *     rc = zke_singleton_op(s, &ops[0]);
 *     zke_op_set(&ops[1], "/mailer/sent", "12", 2, -1);
 *     if (rc == ZKE_OK) rc = zke_multi(z, ops, 2, NULL);
 *
 * Threads: any.  In a callback: yes.  Check and step block on the disk. */
ZKE_API int zke_singleton_cancel(zke_singleton *s);
ZKE_API int zke_singleton_step(zke_singleton *s);
ZKE_API int zke_singleton_state(zke_singleton *s);
ZKE_API int64_t zke_singleton_token(zke_singleton *s);
ZKE_API int zke_singleton_check(zke_singleton *s);
ZKE_API int zke_singleton_op(zke_singleton *s, zke_op *op);

/* zke_singleton_replace - take the process that runs off, so that the next one
 *                         in line runs
 *
 *   token  of the process that runs, as zke_singleton_parties() showed it
 *          (mzxid): only that run is ended.  0: whichever runs
 *
 * The process is told; whether it stops is its own affair, as is said above.
 *
 * Example: replace a process that has run for more than a day.
 *
 *     zke_party_list *all;
 *     rc = zke_singleton_parties(z, "/workers/mailer", &all);
 *     if (rc == ZKE_OK && all->count &&
 *         zke_wall(z) - all->data[0].since_ms > 86400000)
 *       zke_singleton_replace(z, "/workers/mailer", all->data[0].mzxid);
 *     if (rc == ZKE_OK) zke_free(all);
 *
 * Returns ZKE_OK, or ZKE_NONODE where nobody runs, or not that one any more.
 * Threads: any.  In a callback: yes.  Blocks: on the disk.  Since 0.1. */
ZKE_API int zke_singleton_replace(zke *z, const char *path, int64_t token);

/* zke_singleton_parties - the process that runs (held 1; since when), and those
 * that stand by, in their order
 *
 *   list_out  out, not NULL: one block for zke_free(); count 0 for nobody
 *
 * Threads: any.  In a callback: yes.  Blocks: on the disk.  Since 0.1. */
ZKE_API int zke_singleton_parties(zke *z, const char *path,
                                  zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
