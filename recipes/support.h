/* support.h - what a program needs of the recipes besides their own headers
 *
 * zke_retry() repeats what lost its reply, zke_ensure_path() makes a directory,
 * and zke_party_list is what every recipe answers with that is asked who holds
 * and who waits.
 *
 *     int rc = zke_ensure_path(z, "/app/locks", ZKE_CONTAINER, deadline);
 *
 * Who waits for whom in a whole tree is told by deadlock.h.  Whoever writes a
 * recipe begins with object.h.
 *
 * What every recipe keeps to (numbers of doc/recipes.md):
 *
 * - One object is one participant on one handle.  Free it before the handle
 *   is closed; freeing gives up what it holds.
 * - A call with a deadline has one absolute deadline of zke_now() for all that
 *   it waits for, the database's other writers included; one without a
 *   deadline waits for them as long as a single call, options.busy_timeout_ms.
 *   Beyond the deadline, or where that has passed already, it goes on for at
 *   most ZKE_GRACE_MS, to begin and to clean up, and so does a free beyond the
 *   busy timeout: once, however much there is to give up.  What the disk takes
 *   is not counted.  Nor is what other threads' calls on the same object take
 *   before, while they do not sleep: they take turns in it.
 * - When a blocking call returns anything but ZKE_OK the participant is out,
 *   and so it is after giving up what it held and after free.  Its znode is
 *   gone, or the session remembers it and removes it as soon as it can
 *   (zke_discard()): after a full disk, or once a writer that stood still goes
 *   on.  Others wait for that, but nothing comes of it: what is not held when
 *   the call returns will not be held later.  A program has to go on calling
 *   or dispatching, or close the handle.
 * - Waiting is zke_wait(): callbacks of other watches on the handle run
 *   meanwhile.  Without blocking calls a recipe goes on inside
 *   zke_dispatch().  What it cannot do there (the disk is full, another process
 *   keeps the database for the busy timeout) it tries again in later
 *   dispatches, after pauses that double: zke_next_deadline() and the
 *   descriptor tell when.
 * - A listener runs like a watcher: inside zke_dispatch(), zke_wait() or the
 *   recipe's own calls, with no lock held, one at a time and in order, on
 *   whichever thread that is.  It may call the recipe, and free it: a call
 *   that runs on the object meanwhile returns what it has come to, or
 *   ZKE_CLOSING.
 * - cancel is for the call with a deadline that another thread has running on
 *   the object: that returns ZKE_CANCELLED, or what it has come to.  Where none
 *   is running cancel returns ZKE_IDLE and does nothing, also later: to stop a
 *   call that may be about to begin, call cancel again until it returns ZKE_OK
 *   or the call has returned.
 * - Cancellation of a thread (pthread_cancel()) is held off inside a recipe's
 *   call, but for the sleep of a blocking one.  A thread that is cancelled
 *   there gives up its place as free does; every further call on the object but
 *   free returns ZKE_CLOSING, and so does one that another thread is inside.
 *   Free it from a cleanup handler.
 * - To give up what the object does not have, or has lost, is ZKE_LOST.  To
 *   give up what another thread's blocking call waits for ends that call with
 *   ZKE_LOST.
 * - A session's end ends everything its objects hold; they say so at once and
 *   every call but free returns ZKE_INVALIDSTATE.
 * - Errors are zkembed's; zke_errmsg() has the sentence.
 */
#ifndef ZKEMBED_RECIPES_SUPPORT_H
#define ZKEMBED_RECIPES_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
  ZKE_RETRIES = 10,
  ZKE_GRACE_MS = 200 /* beyond a deadline, to begin and to clean up */
};

/* zke_retry - do something again while its reply gets lost
 *
 * Calls fn until it returns anything but ZKE_CONNECTIONLOSS (an I/O error at
 * COMMIT: the change may have been made) or ZKE_OPERATIONTIMEOUT (others kept
 * the database for the whole busy timeout: nothing was changed), at most
 * ZKE_RETRIES times more, with pauses of 5, 10, 15 … ms, never beyond the
 * deadline, nor beyond zke_limit()'s.  The calls that fn makes wait for others
 * no longer either.  fn must be able to tell that its last try had succeeded.
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER for the ten tries; 0 for one try
 *                that waits as any call does
 *
 * Returns what fn returned last.  Threads: any.  In a callback: yes. */
typedef int (*zke_retry_fn)(zke *z, void *arg);
ZKE_API int zke_retry(zke *z, zke_retry_fn fn, void *arg, int64_t deadline_ms);

/* zke_ensure_path - create what is missing of a path
 *
 *   mode  of the nodes made: ZKE_PERSISTENT or ZKE_CONTAINER
 *
 * Returns ZKE_OK where the path exists afterwards, else as zke_create().
 * Lost replies are retried.  Threads: any.  In a callback: yes. */
ZKE_API int zke_ensure_path(zke *z, const char *path, int mode,
                            int64_t deadline_ms);

/* Who holds something or waits for it. */
typedef struct zke_party {
  const char *name;  /* of its znode, without the directory */
  const char *kind;  /* what stands before the number: "lock-" */
  int held;          /* 1: holds, 0: waits */
  int office;        /* 1: its data says that it holds */
  int permits;       /* of a semaphore; else 1 */
  int64_t session;   /* the znode's ephemeral owner */
  int64_t czxid;     /* of its znode */
  int64_t mzxid;     /* a holder's: the fencing value */
  int64_t queued_ms; /* when it came, ms since 1970 */
  int64_t since_ms;  /* when it took office; a waiter: when it came */
  const char *identity;
  int64_t pid; /* in its own PID namespace; for display */
  const char *data;
  int len; /* bytes of data; -1: none */
  int64_t reserved[4];
} zke_party;

/* One block, released by zke_free(). */
typedef struct zke_party_list {
  int count;
  const zke_party *data; /* in the order of the queue, holders first */
} zke_party_list;

/* The states of whoever stands in a line: a lock, a semaphore, an election … */
enum { ZKE_LINE_OUT, ZKE_LINE_WAITING, ZKE_LINE_HELD, ZKE_LINE_LOST };

#ifdef __cplusplus
}
#endif

#endif
