/* support.h - what a program needs of the recipes besides their own headers
 *
 * zke_retry() repeats what lost its reply, zke_ensure_path() makes a directory,
 * and zke_party_list is the answer of every recipe that is asked which
 * processes hold and wait.
 *
 *     int rc = zke_ensure_path(z, "/app/locks", ZKE_CONTAINER, deadline);
 *
 * zke_line_waits() tells who waits for whom in a whole tree.  An author of a
 * recipe begins with part/object.h.
 *
 * WHAT EVERY RECIPE KEEPS TO
 *
 * Objects.  One object is one participant on one handle.  Free it before
 *   the handle is closed: an object borrows its handle.  Freeing gives up what
 *   the object holds.  Options and strings are copied; what a call gives is one
 *   block, for zke_free(), and stays valid after the object and the handle have
 *   gone.
 *
 * Time.  A call with a deadline has one absolute deadline of zke_now() for
 *   all that it waits for, the database's other writers included.  A call
 *   without one waits for other writers as long as a single call,
 *   options.busy_timeout_ms.  Beyond the deadline, also if it has passed
 *   already, a call goes on for at most ZKE_GRACE_MS to begin, and as long
 *   again to clean up, however much there is to give up.  A free has that
 *   second time beyond the busy timeout.  What the disk takes is not counted,
 *   and neither is the time until other threads' calls on the same object have
 *   done their work: threads take turns in an object.  A call that sleeps keeps
 *   no other out.  The sentence of a timeout names the holder, or who is
 *   missing.
 *
 * Failure.  When a blocking call returns anything but ZKE_OK the
 *   participant is out, and so it is after giving up what it held and after
 *   free.  Its znode is gone, or the session remembers it and removes it as
 *   soon as it can (zke_discard()): when a full disk has room again, or a
 *   writer that stood still goes on.  Others wait for that, but what is not
 *   held when the call returns will not be held later.  The program has to go
 *   on calling or dispatching, or close the handle: else nothing is removed.
 *   Two kinds of failure change nothing: ZKE_MISUSE and ZKE_BADARGUMENTS, and
 *   what the handle answers before the call has begun (no memory, a file that
 *   cannot be read; see zke_sync()).  A call for what the object holds already
 *   (a reentrant lock, an election that it leads) only asks the file: where
 *   that cannot be read, the object holds as before.
 *
 * Refusing.  A call that does not wait is refused (ZKE_HELD, nothing to take)
 *   only by processes that live.  Before it says so it asks the kernel, ends
 *   the sessions of those that have died, and looks again.
 *
 * Waiting is zke_wait(): callbacks of other watches on the handle run
 *   meanwhile.  Without blocking calls a recipe goes on inside zke_dispatch().
 *   What it cannot do there (the disk is full, another process keeps the
 *   database for the busy timeout) it tries again in later dispatches, after
 *   pauses that double: zke_next_deadline() and the descriptor tell when.
 *
 * Listeners.  A listener runs like a watcher: inside zke_dispatch(),
 *   zke_wait() or the recipe's own calls, with no lock held, one event at a
 *   time and in order, on whichever thread that is.  It may call the recipe,
 *   and free it: a call that runs on the object meanwhile returns what it has
 *   come to, or ZKE_CLOSING.
 *
 * Cancel.  It is for a call with a deadline that another thread has running
 *   on the object: that call returns ZKE_CANCELLED, or what it has come to.  If
 *   none is running cancel returns ZKE_IDLE and does nothing, also later.  To
 *   stop a call that may be about to begin, call cancel again until it returns
 *   ZKE_OK or the call has returned.
 *
 * pthread_cancel() is held off inside a recipe's call, but for the sleep of a
 *   blocking one.  A thread that is cancelled there gives up its place as free
 *   does.  Every further call on the object but free then returns ZKE_CLOSING,
 *   and so does a call that another thread is inside.  Free the object from a
 *   cleanup handler.
 *
 * Giving up what the object does not have, or has lost, is ZKE_LOST.  Giving up
 *   what another thread's blocking call waits for ends that call with ZKE_LOST.
 *
 * The session's end ends everything that its objects hold.  They say so at
 *   once (state, listener), and every call but free returns ZKE_INVALIDSTATE.
 *   Make new objects on a new handle.
 *
 * Death.  What a process holds is ephemeral: it goes with its session, in one
 *   step, and the kernel tells the processes that wait for it.  Changes that
 *   belong together are one zke_multi(), so there is no half of anything.
 *
 * The token is a zxid: of taking a lock or the lead, of a claim, of a setting,
 *   of a decision.  It is greater than every one before on that path, and
 *   survives a reboot.  Nothing stops a process that has lost what it held: so
 *   guard what must not happen twice by the recipe's op in a zke_multi(), or,
 *   outside of the database, by giving the token to what is protected.
 *
 * Lost replies (ZKE_CONNECTIONLOSS) are resolved: nobody is queued twice,
 *   nothing is put, counted or decided twice.  Only if hardly any time is left
 *   until the deadline the code is returned as it is, and the participant is
 *   out.
 *
 * Kinds.  A recipe's directory begins with the line "zkembed <kind>", such as
 *   "zkembed lock".  Two recipes of different kinds on one path get
 *   ZKE_OTHERKIND.  An existing node without data is taken over.  Foreign or
 *   malformed children are ignored, but for locks of other libraries (lock.h).
 *
 * Directories are containers: they go by themselves when they have been empty
 *   for a while (options.container_ms).  Names in them are those of Curator and
 *   kazoo if that costs nothing.  A directory gives each number below
 *   2147483647 once.  Then ZKE_LIMIT refuses newcomers, since nobody could tell
 *   the order any more: numbers begin again with the directory, after it was
 *   empty for a while or was deleted.
 *
 * On the disk.  What is persistent is synced before the call returns.
 *   Ephemerals, and with them locks, elections and groups, are not (P8).
 *
 * A kept session that another handle attaches (zke_attach()) has ended for the
 *   objects of the old handle: they say LOST and hold nothing.  Their znodes
 *   stay the session's, so for everybody else, also for objects of the new
 *   handle, the session holds as before: these are refused by ZKE_HELD ("this
 *   very session"), or by ZKE_DEADLOCK where the same thread had acquired.  To
 *   go on with a lock use zke_lock_steal(), which leaves no moment without a
 *   holder and gives a new token; to be rid of it, zke_lock_break().  Other
 *   znodes of objects that have gone can be deleted: zke_ephemerals() has them.
 *
 * In the function of a zke_batch() each call on an object is ZKE_MISUSE, but
 *   for its state and token: a batch may be undone, but not what the object has
 *   told.  Free does nothing there: call it later.
 *
 * fork().  An object belongs to the process that made it.  In the child its
 *   calls return ZKE_FORKED; free releases memory and gives up nothing, since
 *   what is held is the parent's.
 *
 * Errors are zkembed's, and zke_errmsg() has the sentence.  Any call can also
 *   return what its handle's state asks for (zkembed.h).
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
  ZKE_RETRIES = 10,  /* times that zke_retry() repeats a call */
  ZKE_GRACE_MS = 200 /* beyond a deadline, to begin and to clean up */
};

/* zke_retry - do something again while its reply gets lost
 *
 * Calls fn until it returns anything but ZKE_CONNECTIONLOSS (an I/O error at
 * COMMIT: the change may have been made) or ZKE_OPERATIONTIMEOUT (others kept
 * the database for the whole busy timeout: nothing was changed), at most
 * ZKE_RETRIES times more, with pauses of 5, 10, 15 … ms, never beyond the
 * deadline, nor beyond zke_limit()'s.  The calls that fn makes wait for other
 * processes no longer than that either, but for the ZKE_GRACE_MS that are left
 * to them where the deadline is nearer or has passed.
 *
 * fn must be able to tell that a try before had succeeded.  A zke_set() of a
 * fixed value may simply be repeated; a zke_create() that fails with
 * ZKE_NODEEXISTS may have been made by the try before; adding 1 to a number
 * must not be repeated without a look.
 *
 * Example: mark a job as done, whatever becomes of a reply.  ZKE_NONODE after a
 * lost reply means that the try before was made.
 *
 *     struct job {
 *       const char *path;
 *       int unsure; // a reply was lost
 *     };
 *
 *     static int finish(zke *z, void *arg) {
 *       struct job *job = arg;
 *       int rc = zke_delete(z, job->path, -1);
 *       if (rc == ZKE_NONODE && job->unsure) rc = ZKE_OK;
 *       if (rc == ZKE_CONNECTIONLOSS) job->unsure = 1;
 *       return rc;
 *     }
 *
 *     static int finish_surely(zke *z, const char *path) {
 *       struct job job = {path, 0};
 *       return zke_retry(z, finish, &job, zke_now(z) + 1000);
 *     }
 *
 *   fn, arg      called on this thread
 *   deadline_ms  of zke_now(); ZKE_FOREVER: only the ten repetitions are an
 *                end; 0 for one try that waits as any call does
 *
 * Returns what fn returned last.  If a try before that has lost its reply, and
 * the last one has failed for want of time, memory or disk (also ZKE_CORRUPT,
 * ZKE_SYSTEMERROR and ZKE_CANCELLED), it returns ZKE_CONNECTIONLOSS: the change
 * may have been made.
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
typedef int (*zke_retry_fn)(zke *z, void *arg);
ZKE_API int zke_retry(zke *z, zke_retry_fn fn, void *arg, int64_t deadline_ms);

/* zke_ensure_path - create what is missing of a path
 *
 * One zke_create() if the parent exists, else one more for each node of the
 * path.
 *
 *   path         nodes that exist are left as they are
 *   mode         of the nodes made, which have empty data: ZKE_PERSISTENT or
 *                ZKE_CONTAINER
 *   deadline_ms  as for zke_retry(): lost replies are retried
 *
 * Returns ZKE_OK if the path exists afterwards, ZKE_BADARGUMENTS for NULL, else
 * as zke_create().
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_ensure_path(zke *z, const char *path, int mode,
                            int64_t deadline_ms);

/* A participant that holds something or waits for it.  Its strings are part of
 * the list's block. */
typedef struct zke_party {
  const char *name;     /* of its znode, without the directory */
  const char *kind;     /* what stands before the number: "lock-" */
  int held;             /* 1: holds, 0: waits */
  int office;           /* 1: its data says that it holds */
  int permits;          /* of a semaphore; else 1 */
  int64_t session;      /* the znode's ephemeral owner */
  int64_t czxid;        /* of its znode */
  int64_t mzxid;        /* a holder's: the fencing value */
  int64_t queued_ms;    /* when it came, ms since 1970 */
  int64_t since_ms;     /* when it took office; a waiter: when it came */
  const char *identity; /* of the session (zke_options); "" if unknown */
  int64_t pid;          /* in its own PID namespace; for display */
  const char *data;     /* what the participant shows, or NULL */
  int len;              /* bytes of data; -1: none */
  int64_t reserved[4];
} zke_party;

/* One block, released by zke_free().  It is a snapshot: when the program reads
 * it, others may have come and gone.
 *
 * Example: how long each one has waited or held.  Any list of parties will do.
 *
 *     // now_ms: since 1970, as since_ms
 *     static void show(const zke_party_list *list, int64_t now_ms) {
 *       for (int i = 0; i < list->count; i++) {
 *         const zke_party *p = &list->data[i];
 *         printf("%s %s (pid %lld) for %lld ms\n",
 *                p->held ? "held by" : "wanted by", p->identity,
 *                (long long)p->pid, (long long)(now_ms - p->since_ms));
 *       }
 *     }
 */
typedef struct zke_party_list {
  int count;
  const zke_party *data; /* in the order of the queue, holders first */
} zke_party_list;

/* The states of a participant in a line: a lock, a semaphore, an election …
 * Each recipe's header has its own names for them. */
enum { ZKE_LINE_OUT, ZKE_LINE_WAITING, ZKE_LINE_HELD, ZKE_LINE_LOST };

/* ------------------------------------------------------------------------
 * Who waits for whom, in all lines of a tree
 *
 *     zke_wait_list *list = NULL;
 *     if (zke_line_waits(z, &list) != ZKE_OK) return;
 *     for (int i = 0; i < list->count; i++)
 *       printf("%s of %s waits for %d others%s\n", list->data[i].path,
 *              list->data[i].identity, list->data[i].keeper_count,
 *              list->data[i].stuck ? ", for ever" : "");
 *     zke_free(list);
 *
 * An actor is what holds and waits: a thread, or several that act as one.  It
 * is a random number of 64 bits, which znodes show as 16 hex digits.
 * --------------------------------------------------------------------- */

/* An entry that keeps another one waiting. */
typedef struct zke_keeper {
  const char *path; /* of its znode */
  int64_t session;  /* which owns it */
  uint64_t actor;   /* 0: its data does not tell */
  int64_t reserved[4];
} zke_keeper;

/* An entry that is kept waiting.  All that it points to is in the list's
 * block. */
typedef struct zke_wait_info {
  const char *path;     /* of its znode: the line is the directory */
  int64_t session;      /* which owns it */
  uint64_t actor;       /* 0: its data does not tell */
  int64_t since_ms;     /* when it came, ms since 1970 */
  const char *identity; /* of the session; "" if it has just ended */
  int64_t pid;          /* in its own PID namespace; for display */
  int blocking; /* 1: inside a blocking call; 0: it can do other things */
  int stuck;    /* 1: for ever, if nobody interferes: it is in a deadlock, or
                   behind one */
  int circle;   /* the number of the deadlock it is in, from 1 on; else 0 */
  int keeper_count;
  const zke_keeper *keepers; /* those that stand right before it, as far as the
                                search for deadlocks looks */
  int64_t reserved[4];
} zke_wait_info;

/* One block, released by zke_free(). */
typedef struct zke_wait_list {
  int count;
  const zke_wait_info *data; /* the youngest first */
} zke_wait_list;

/* zke_line_waits - who waits for whom, in all lines
 *
 * A call that would close a circle fails; so a deadlock is found here only if
 * nobody looked for it (options.no_deadlock_check) or if it could not be seen
 * (several handles of one thread, a session of a part of the tree; see lock.h).
 *
 * What is read is not of one moment: while others come and go, a wait may be
 * missing, or have a keeper that has gone.  It reads all sessions and all their
 * entries, so it is for people and for monitoring, not for each call.
 *
 *   list_out  out, not NULL: one block; count 0 if nobody waits
 *
 * Returns as zke_sessions(), or ZKE_BADARGUMENTS for a NULL list_out.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_line_waits(zke *z, zke_wait_list **list_out);

/* zke_line_actor - this thread, as a znode's data names it
 *
 * Never 0.  A forked child's thread is another one than the parent's.
 * Threads: any.  In a callback: yes.  Blocks: no. */
ZKE_API uint64_t zke_line_actor(void);

/* zke_line_act_as - from here on this thread acts as that actor
 *
 * For programs in which one client's calls run on several threads: what any of
 * them holds and what another waits for are that client's, so a circle through
 * it is found.
 *
 * Example: a pool's thread serves a request of a client, whose actor was drawn
 * by zke_line_actor() on another thread.
 *
 *     #include "recipes/lock.h"
 *
 *     static int serve(zke_lock *lock, uint64_t client, int64_t deadline) {
 *       uint64_t before = zke_line_act_as(client);
 *       int rc = zke_lock_acquire(lock, deadline);
 *       zke_line_act_as(before);
 *       return rc;
 *     }
 *
 *   actor  of zke_line_actor(), on whichever thread; 0: this thread is itself
 *          again
 *
 * Returns what to give back: the actor before, or 0 if it was itself.
 * Threads: any; each has its own.  In a callback: yes.  Blocks: no. */
ZKE_API uint64_t zke_line_act_as(uint64_t actor);

#ifdef __cplusplus
}
#endif

#endif
