/* support.h - what programs use with every recipe, and the rules of all recipes
 *
 * zke_retry() repeats a call if its reply was lost, zke_ensure_path() makes a
 * directory, and zke_party_list lists the processes that hold or wait in any
 * recipe.
 *
 *     int rc = zke_ensure_path(z, "/app/locks", ZKE_CONTAINER, deadline);
 *
 * zke_line_waits() tells which participant waits for which in a whole tree.  To
 * write your own recipe, start with part/object.h.
 *
 * THE RULES OF ALL RECIPES
 *
 * Comments.  A recipe's header describes that recipe alone.  These rules hold
 *   for all recipes, and here too, unless a comment says otherwise:
 *
 * - Everything is since 0.1.
 * - Threads: any.  In a callback: yes.  Blocks: on the disk; a call with a
 *   deadline until the deadline.  Cancel and the functions that answer from
 *   memory (state, token) do not block: they wait only while another thread's
 *   call works on the object or in the handle's store, at most the busy
 *   timeout.
 * - deadline_ms is a time of zke_now(), or ZKE_FOREVER.  If a function does not
 *   wait for others, the deadline limits how long it repeats calls that got no
 *   reply.
 * - new makes an object and writes nothing.  NULL as options means the
 *   defaults.  The output for the object must not be NULL, and is set to NULL
 *   on failure.  A directory is made when it is first needed.
 * - free accepts NULL.  No other call on the object may run.  After free, the
 *   listener does not run on any thread: free waits for a listener that another
 *   thread is running.  If the object's own listener calls free, the memory
 *   stays until the listener returns.
 * - step looks again now, as dispatches do by themselves.  It returns ZKE_OK if
 *   it could look, whatever it found; state has the result.  Otherwise it
 *   returns the reason: call it again, or dispatch.
 * - A list is one block for zke_free().  Its output must not be NULL.
 * - The context in options is borrowed.  A listener may be NULL.
 *
 * Errors.  Any function may also return these, if they can occur:
 *
 *   ZKE_OPERATIONTIMEOUT  the deadline has come, or the busy timeout
 *   ZKE_CANCELLED         the recipe's cancel, by another thread or a callback
 *   ZKE_INVALIDSTATE      the session has ended
 *   ZKE_MISUSE            another thread's call waits with this object; nothing
 *                         has changed
 *   ZKE_OTHERKIND         the path belongs to something else, see Kinds
 *   ZKE_LIMIT             the directory has given all its numbers
 *   ZKE_BADARGUMENTS      NULL for what must not be NULL, a malformed path or
 *                         "/", a value out of its bounds; nothing is done
 *
 * or ZKE_NOMEM, an error of the handle (zkembed.h), or the reason why it could
 * not read or write, such as a full disk.  zke_errmsg() has the sentence.
 *
 * Objects.  One object is one participant on one handle.  An object borrows its
 *   handle: free it before you close the handle, or the behaviour is undefined.
 *   Freeing gives up what the object holds.  Options and strings are copied.
 *   A result that is returned is one block, for zke_free(), and stays valid
 *   after the object and the handle have gone.
 *
 * Time.  A call with a deadline has one absolute deadline for everything it
 *   waits for, including the database's other writers.  A call without one
 *   waits for other writers as long as a single call does,
 *   options.busy_timeout_ms.  A call may overrun its deadline, even one that
 *   has already passed, by ZKE_GRACE_MS to begin and ZKE_GRACE_MS to clean up,
 *   however much it must give up.  A free may also clean up for ZKE_GRACE_MS
 *   after the busy timeout.  Two times do not count: the time of the disk, and
 *   the time that other threads' calls work on the same object, since threads
 *   take turns in an object.  A call that sleeps blocks no other call.  The
 *   sentence of a timeout names the holder or the missing participants.
 *
 * Failure.  When a blocking call returns anything but ZKE_OK, the participant
 *   is out.  It is also out after it has given up what it held, and after free.
 *   Its znode is gone, or the session remembers it and removes it as soon as it
 *   can (zke_discard()), for instance when a full disk has room again or a
 *   stopped writer continues.  Others wait until it is removed, but the
 *   participant holds nothing later that it does not hold when the call
 *   returns.  The program must keep calling or dispatching, or close the
 *   handle; otherwise nothing is removed.  Two kinds of failure change nothing:
 *   ZKE_MISUSE and ZKE_BADARGUMENTS, and errors of the handle before the call
 *   has begun (no memory, a file that cannot be read; see zke_sync()).  If the
 *   object already holds what the call asks for (a reentrant lock, an election
 *   that it leads), the call only asks the file.  If the file cannot be read,
 *   the object holds as before.
 *
 * Refusing.  A call that does not wait is refused (ZKE_HELD, nothing to take)
 *   only because of live processes.  Before it returns this, it asks the
 *   kernel, ends the sessions of processes that have died, and looks again.
 *
 * Waiting is zke_wait(): meanwhile, callbacks of other watches on the handle
 *   run.  Without blocking calls, a recipe works inside zke_dispatch().  If it
 *   cannot do something there (the disk is full, another process keeps the
 *   database for the busy timeout), it tries again in later dispatches, after
 *   pauses that double.  zke_next_deadline() and the descriptor tell when.
 *
 * Listeners.  A listener runs like a watcher: inside zke_dispatch(), zke_wait()
 *   or the recipe's own calls, with no lock held, one event at a time and in
 *   order, on any thread that makes such a call.  It may call the recipe, and
 *   free it.  If it frees the object, a call that runs on the object returns
 *   the result it has reached, or ZKE_CLOSING.
 *
 * Cancel ends a call with a deadline that runs on the object, on another thread
 *   or around this callback.  That call returns ZKE_CANCELLED, or the result it
 *   has reached, which may be ZKE_OK.  If no such call runs, cancel returns
 *   ZKE_IDLE and has no effect, also on later calls.  To stop a call that may
 *   be about to begin, repeat cancel until it returns ZKE_OK or the call has
 *   returned.
 *
 * pthread_cancel() is deferred inside a recipe's call, except while a blocking
 *   call sleeps.  A thread that is cancelled there gives up its place as free
 *   does.  Every further call on the object except free then returns
 *   ZKE_CLOSING, and so does a call that runs on another thread.  Free the
 *   object from a cleanup handler.
 *
 * Giving up what the object does not have, or has lost, is ZKE_LOST.  If
 *   another thread's blocking call waits for it, giving it up ends that call
 *   with ZKE_LOST.
 *
 * The session's end ends everything that its objects hold.  They report it
 *   immediately (state, listener), and every call except free returns
 *   ZKE_INVALIDSTATE.  Make new objects on a new handle.
 *
 * Death.  Everything a process holds is ephemeral: it is removed with its
 *   session, in one step, and the kernel tells the processes that wait for it.
 *   Changes that belong together are one zke_multi(), so none is half done.
 *
 * The token is a zxid: of the change that took the lock or the lead, or made
 *   the claim, the setting or the decision.  It is greater than every earlier
 *   one on that path, and survives a reboot.  Nothing stops a process that has
 *   lost what it held.  So if something must not happen twice, guard it with
 *   the recipe's op in a zke_multi().  Outside of the database, give the token
 *   to the protected thing.
 *
 * Lost replies (ZKE_CONNECTIONLOSS) are resolved: no participant is queued
 *   twice, and nothing is put, counted or decided twice.  The code is returned
 *   only if almost no time is left until the deadline, and then the participant
 *   is out.
 *
 * Kinds.  A recipe's directory begins with the line "zkembed <kind>", such as
 *   "zkembed lock".  If two recipes of different kinds use one path, or a path
 *   has other data, the call returns ZKE_OTHERKIND.  An existing node without
 *   data is taken over.  Foreign or malformed children are ignored, except
 *   locks of other libraries (lock.h).
 *
 * Directories are containers: they are deleted when they have been empty for a
 *   while (options.container_ms).  Names in them are those of Curator and kazoo
 *   if that costs nothing.  A directory gives each number below 2147483647
 *   once.  Then ZKE_LIMIT refuses newcomers, since their order would be lost.
 *   A new directory, made after the old one was empty for a while or was
 *   deleted, begins its numbers again.
 *
 * On the disk.  Persistent nodes are synced before the call returns.
 *   Ephemerals, and with them locks, elections and groups, are not (P8).
 *
 * A kept session that another handle attaches (zke_attach()) has ended for the
 *   objects of the old handle: they say LOST and hold nothing.  Their znodes
 *   still belong to the session.  So for all others, and for objects of the new
 *   handle, the session holds as before.  The new objects get ZKE_HELD ("this
 *   very session"), or ZKE_DEADLOCK if the same thread had acquired.  To keep a
 *   lock, use zke_lock_steal(): the lock always has a holder, and the token is
 *   new.  To end it, use zke_lock_break().  Delete other znodes of objects that
 *   have gone: zke_ephemerals() lists them.
 *
 * In the function of a zke_batch(), each call on an object is ZKE_MISUSE,
 *   except for its state and token: a batch may be undone, but not a call's
 *   result.  Free does nothing there: call it later.
 *
 * fork().  An object belongs to the process that made it.  In the child its
 *   calls return ZKE_FORKED.  There, free releases memory and gives up nothing,
 *   since the parent still holds it. */
#ifndef ZKEMBED_RECIPES_SUPPORT_H
#define ZKEMBED_RECIPES_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Limits that all recipes share. */
enum {
  ZKE_RETRIES = 10,  /* times that zke_retry() repeats a call */
  ZKE_GRACE_MS = 200 /* beyond a deadline, to begin and to clean up */
};

/* zke_retry - repeat a call while its reply gets lost
 *
 * Calls fn, and repeats it up to ZKE_RETRIES times while it returns
 * ZKE_CONNECTIONLOSS (an I/O error at COMMIT: the change may have been made) or
 * ZKE_OPERATIONTIMEOUT (others kept the database for the whole busy timeout:
 * nothing was changed).  It pauses for 5, 10, 15 … ms, but never beyond the
 * deadline or the one set by zke_limit().  The calls that fn makes do not wait
 * longer for other processes either, but always have ZKE_GRACE_MS, even if the
 * deadline is nearer or has passed.
 *
 * fn must find out whether an earlier try succeeded.  A zke_set() of a fixed
 * value may simply be repeated.  If a zke_create() fails with ZKE_NODEEXISTS,
 * the earlier try may have made the node.  Before adding 1 to a number again,
 * look at the number.
 *
 * Example: mark a job as done even if a reply gets lost.  ZKE_NONODE after a
 * lost reply means that the earlier try succeeded.
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
 *   deadline_ms  ZKE_FOREVER: only the ten repetitions limit it; 0: one try
 *                that waits as any call does
 *
 * Returns the last result of fn.  If an earlier try lost its reply, and the
 * last one failed for lack of time, memory or disk (also ZKE_CORRUPT,
 * ZKE_SYSTEMERROR and ZKE_CANCELLED), it returns ZKE_CONNECTIONLOSS: the change
 * may have been made. */
typedef int (*zke_retry_fn)(zke *z, void *arg);
ZKE_API int zke_retry(zke *z, zke_retry_fn fn, void *arg, int64_t deadline_ms);

/* zke_ensure_path - create the missing nodes of a path
 *
 * This takes one zke_create() if the parent exists, otherwise one more for each
 * node of the path.
 *
 *   path         existing nodes stay as they are
 *   mode         of the new nodes, which have empty data: ZKE_PERSISTENT or
 *                ZKE_CONTAINER
 *   deadline_ms  as for zke_retry(): lost replies are retried
 *
 * Returns ZKE_OK if the path exists afterwards, else as zke_create(). */
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
 * Example: how long each one has waited or held.  Any list of parties works.
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
 * Which participant waits for which, in all lines of a tree
 *
 *     zke_wait_list *list = NULL;
 *     if (zke_line_waits(z, &list) != ZKE_OK) return;
 *     for (int i = 0; i < list->count; i++)
 *       printf("%s of %s waits for %d others%s\n", list->data[i].path,
 *              list->data[i].identity, list->data[i].keeper_count,
 *              list->data[i].stuck ? ", for ever" : "");
 *     zke_free(list);
 *
 * An actor is a thread, or several that act as one, that holds and waits.  It
 * is a random number of 64 bits, which znodes show as 16 hex digits.
 * --------------------------------------------------------------------- */

/* An entry that another entry waits for. */
typedef struct zke_keeper {
  const char *path; /* of its znode */
  int64_t session;  /* which owns it */
  uint64_t actor;   /* 0: unknown, its data does not tell */
  int64_t reserved[4];
} zke_keeper;

/* An entry that waits.  Everything it points to is in the list's block. */
typedef struct zke_wait_info {
  const char *path;     /* of its znode: the line is the directory */
  int64_t session;      /* which owns it */
  uint64_t actor;       /* 0: its data does not tell */
  int64_t since_ms;     /* when it came, ms since 1970 */
  const char *identity; /* of the session; "" if it has just ended */
  int64_t pid;          /* in its own PID namespace; for display */
  int blocking; /* 1: inside a blocking call; 0: it can do other things */
  int stuck;    /* 1: for ever, unless somebody interferes: it is in a deadlock,
                   or waits for a stuck entry */
  int circle;   /* the number of the deadlock it is in, from 1 on; else 0 */
  int keeper_count;
  const zke_keeper *keepers; /* the entries directly before it, as far as the
                                search for deadlocks looks */
  int64_t reserved[4];
} zke_wait_info;

/* One block, released by zke_free(). */
typedef struct zke_wait_list {
  int count;
  const zke_wait_info *data; /* the youngest first */
} zke_wait_list;

/* zke_line_waits - which participant waits for which, in all lines
 *
 * A call that would close a circle fails.  So this finds a deadlock only if no
 * call looked for it (options.no_deadlock_check), or if no call could see it
 * (several handles of one thread, a session of a part of the tree; see lock.h).
 *
 * The list is not a snapshot: while others come and go, a wait may be missing,
 * or have a keeper that has gone.  The call reads all sessions and all their
 * entries, so use it for people and for monitoring, not for each call.
 *
 *   list_out  count 0 if no participant waits
 *
 * Returns as zke_sessions(). */
ZKE_API int zke_line_waits(zke *z, zke_wait_list **list_out);

/* zke_line_actor - this thread's actor, as znodes show it
 *
 * Never 0.  A forked child's thread is a different actor than the parent's.
 * Blocks: no. */
ZKE_API uint64_t zke_line_actor(void);

/* zke_line_act_as - from now on this thread acts as that actor
 *
 * For programs that serve one client on several threads.  A circle is found
 * even if one of the client's threads holds and another waits.
 *
 * Example: a pool's thread serves a request of a client.  The client's actor
 * came from zke_line_actor() on another thread.
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
 *   actor  from zke_line_actor(), on any thread; 0: this thread's own
 *
 * Returns the previous actor, or 0 if it was the thread's own: a second call
 * with it restores it.  Only the calling thread is changed.  Blocks: no. */
ZKE_API uint64_t zke_line_act_as(uint64_t actor);

#ifdef __cplusplus
}
#endif

#endif
