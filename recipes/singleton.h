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
 *     // from cron: run, or be told who does
 *     if (zke_singleton_try(s) == ZKE_HELD)
 *       fprintf(stderr, "%s\n", zke_errmsg());
 *     // or stand by; in an event loop, zke_singleton_start() and a listener
 *     zke_singleton_serve(s, ZKE_FOREVER, work, NULL);
 *     zke_singleton_free(s);
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
 * LOSING THE SESSION, or one's znode to zke_singleton_replace(): the listener
 * hears ZKE_SINGLETON_LOST; zke_singleton_check() and whatever has
 * zke_singleton_op() in its multi fail.  Stop then: another one runs.
 *
 * FENCING: zke_singleton_token() is the zxid of taking over, greater than
 * that of each one that ran before.
 */
#ifndef ZKEMBED_RECIPES_SINGLETON_H
#define ZKEMBED_RECIPES_SINGLETON_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_singleton zke_singleton;

enum {
  ZKE_SINGLETON_OUT = ZKE_LINE_OUT,
  ZKE_SINGLETON_WAITING = ZKE_LINE_WAITING,
  ZKE_SINGLETON_HELD = ZKE_LINE_HELD,
  ZKE_SINGLETON_LOST = ZKE_LINE_LOST
};

/* Called when the state changes; the token with ZKE_SINGLETON_HELD, else 0. */
typedef void (*zke_singleton_fn)(zke_singleton *s, int state, int64_t token,
                                 void *context);

typedef struct zke_singleton_options {
  size_t size;
  const void *data; /* shown to others by zke_singleton_parties() */
  int len;
  zke_singleton_fn listener;
  void *context;
} zke_singleton_options;

/* zke_singleton_new  - an object for one process; does not touch the tree
 * zke_singleton_free - stop, and release the object; NULL is fine
 *
 *   path     of the worker; made as a container when first needed
 *   options  NULL for the defaults; copied
 *   s_out    out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what the handle's state asks for.
 * Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_singleton_new(zke *z, const char *path,
                              const zke_singleton_options *options,
                              zke_singleton **s_out);
ZKE_API void zke_singleton_free(zke_singleton *s);

/* zke_singleton_acquire - stand by until one runs
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *
 * Returns ZKE_OK, or, standing by no more,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names who runs, its
 *                         pid and since when
 *   ZKE_CANCELLED         zke_singleton_cancel()
 *   ZKE_LOST              one's znode was deleted by somebody
 *   ZKE_OTHERKIND         the path is another recipe's
 *   ZKE_MISUSE            it runs already, or another call waits
 *   ZKE_INVALIDSTATE      the session has ended
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_singleton_acquire(zke_singleton *s, int64_t deadline_ms);

/* zke_singleton_try   - run now, or ZKE_HELD with the same sentence
 * zke_singleton_start - stand by and go on; the listener is told, or the state
 *                       tells, once zke_dispatch() has seen one's turn
 * zke_singleton_release - run or stand by no more, nor does another thread's
 *                       zke_singleton_acquire().  ZKE_LOST where one did
 *                       neither, or no more; after any other failure the
 *                       session deletes the znode as soon as it can
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_singleton_try(zke_singleton *s);
ZKE_API int zke_singleton_start(zke_singleton *s);
ZKE_API int zke_singleton_release(zke_singleton *s);

/* zke_singleton_serve - wait, call the worker, stop
 *
 *   deadline_ms  for taking over; the worker takes its time
 *   fn           its result is returned, also where another one runs by now:
 *                zke_singleton_check() tells that
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
 * zke_singleton_op     - for one's own zke_multi(): fails with ZKE_NONODE
 *                        unless one runs; valid until the next call that
 *                        changes that.  ZKE_LOST where one does not
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_singleton_cancel(zke_singleton *s);
ZKE_API int zke_singleton_step(zke_singleton *s);
ZKE_API int zke_singleton_state(zke_singleton *s);
ZKE_API int64_t zke_singleton_token(zke_singleton *s);
ZKE_API int zke_singleton_check(zke_singleton *s);
ZKE_API int zke_singleton_op(zke_singleton *s, zke_op *op);

/* zke_singleton_replace - let the next one run instead of who does
 *
 *   token  of who runs, as zke_singleton_parties() showed it (mzxid); 0 for
 *          whoever it is
 *
 * It is told; whether it stops is its own affair, as is said above.
 * Returns ZKE_OK, or ZKE_NONODE where it does not run. */
ZKE_API int zke_singleton_replace(zke *z, const char *path, int64_t token);

/* zke_singleton_parties - who runs (held 1; since when), and who stands by, in
 * order; count 0 for nobody */
ZKE_API int zke_singleton_parties(zke *z, const char *path,
                                  zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
