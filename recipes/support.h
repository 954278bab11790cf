/* support.h - what the recipes have in common
 *
 * A recipe is its two files and these two.  A program needs from here only
 * zke_retry(), zke_ensure_path() and the lists of parties; the rest is for
 * whoever writes a recipe, and recipes/lock.c is the example to follow.
 *
 *     int rc = zke_ensure_path(z, "/app/locks", ZKE_CONTAINER, deadline);
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

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------
 * For programs
 * --------------------------------------------------------------------- */

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

/* ------------------------------------------------------------------------
 * For recipes: failing
 * --------------------------------------------------------------------- */

/* zke_recipe_fail - zke_fail(), with rc as its value where the call stands: a
 * macro, so that compilers and analyzers, which do not look into variadic
 * functions, know that it is an error.  rc is looked at twice. */
#define zke_recipe_fail(rc, ...) (zke_fail(rc, __VA_ARGS__), (rc))

/* zke_recipe_keep    - keep this thread's sentence over what cleaning up may
 *                      say
 * zke_recipe_restore - say it again where rc is a failure; returns rc */
typedef struct zke_sentence {
  char text[512];
} zke_sentence;
ZKE_API void zke_recipe_keep(zke_sentence *kept);
static inline int zke_recipe_restore(const zke_sentence *kept, int rc) {
  if (rc < 0) zke_fail(rc, "%s", kept->text);
  return rc;
}

/* ------------------------------------------------------------------------
 * For recipes: texts.  Blocks for zke_free(), or NULL without memory
 * --------------------------------------------------------------------- */

/* zke_recipe_copy - len bytes and a NUL behind them
 * zke_recipe_path - "directory/name"
 * zke_recipe_when - a time, ms since 1970, as "2026-11-20T12:00:00Z"; one
 *                   that no calendar has as "<ms> ms" */
enum { ZKE_RECIPE_WHEN = 32 };
ZKE_API char *zke_recipe_copy(zke *z, const char *text, size_t len);
ZKE_API char *zke_recipe_path(zke *z, const char *directory, const char *name);
ZKE_API void zke_recipe_when(int64_t ms, char text[ZKE_RECIPE_WHEN]);

/* zke_recipe_sign - data that tells whose it is, also when its session has
 * gone: "<before><pid> <identity>\n<data>", in one line until the data
 *
 *   before    "" or a word with a space behind it
 *   text_out  out: one block; len_out: its length
 *
 * Returns ZKE_OK, ZKE_NOMEM, or what zke_session() says. */
ZKE_API int zke_recipe_sign(zke *z, const char *before, const void *data,
                            int len, char **text_out, int *len_out);

/* ------------------------------------------------------------------------
 * For recipes: znodes
 * --------------------------------------------------------------------- */

/* zke_recipe_place - see to a recipe's directory
 *
 * Its data begins with the line "zkembed <kind>", so that two recipes of
 * different kinds on one path find out.  An existing node with empty data is
 * taken over.
 *
 *   more  text for the lines after the first where the node is made, or NULL
 *
 * Returns ZKE_OK, or ZKE_OTHERKIND naming the kind found. */
ZKE_API int zke_recipe_place(zke *z, const char *path, const char *kind,
                             int mode, const char *more, int64_t deadline_ms);

/* zke_recipe_guid - a name that no other thing has, in the form of Curator's:
 * of this session and a counter */
enum { ZKE_RECIPE_GUID = 37 };
ZKE_API void zke_recipe_guid(zke *z, char guid[ZKE_RECIPE_GUID]);

/* zke_recipe_create - create that survives a lost reply
 *
 * Creates directory/_c_<guid>-<kind>, as Curator names its protected nodes.
 * The guid is made of the session and a counter; after a lost reply the node
 * is looked for by it, and counts only if the session owns it (sequential
 * ephemeral modes) or if it bears the guid (persistent ones).  Where it cannot
 * be looked for either, an ephemeral one that may have been made is discarded.
 * Makes the
 * directory by zke_recipe_place() when it is missing.
 *
 *   place     what zke_recipe_place() is told where the directory is missing
 *   kind      "lock-": what stands before the number
 *   path_out  out: the znode's whole path; stat_out: its Stat */
ZKE_API int zke_recipe_create(zke *z, const char *directory, const char *place,
                              const char *kind, const void *data, int len,
                              int mode, int64_t deadline_ms, char **path_out,
                              zke_stat *stat_out);

/* zke_recipe_multi      - zke_multi()
 * zke_recipe_multi_read - zke_multi_read()
 *
 * Parameters, ownership of the results and codes are theirs, ZKE_BADARGUMENTS
 * for a NULL handle among them; but an ended session reads ZKE_INVALIDSTATE, as
 * in every other call.  Theirs is ZKE_MARSHALLINGERROR, ZooKeeper's
 * (semantics.md 12, #64), which the caller of a recipe must be able to tell
 * from a malformed path.  Threads: any.  In a callback: yes. */
ZKE_API int zke_recipe_multi(zke *z, const zke_op *ops, int count,
                             zke_op_result *results);
ZKE_API int zke_recipe_multi_read(zke *z, const zke_op *ops, int count,
                                  zke_op_result *results);

/* zke_recipe_delete - delete somebody's znode: NONODE is fine, lost replies and
 * busy databases are retried */
ZKE_API int zke_recipe_delete(zke *z, const char *path);

/* zke_recipe_grace - limit what this thread does next to ZKE_GRACE_MS
 *
 * For giving up after a failure.  A call has one grace, which begins when it is
 * first asked for, here or by zke_recipe_discard().  Returns the limit before,
 * to be given back to zke_limit(). */
ZKE_API int64_t zke_recipe_grace(zke *z);

/* zke_recipe_discard - zke_discard(), what fails being retried for a while
 *
 * What a recipe does with its own ephemerals on the way out.  Whatever it
 * returns, the znode is not the recipe's any more: it forgets the path, and
 * says that it is out.  Where the deadline has passed it has what is left of
 * the call's ZKE_GRACE_MS; after that it does not wait, and the session removes
 * the znode later. */
ZKE_API int zke_recipe_discard(zke *z, const char *path, int mode,
                               int64_t czxid);

/* zke_recipe_read - a word and the number behind it, in a znode's data
 *
 * Nothing is passed over: neither spaces nor the end of a line.
 *
 *   at    in and out: where, in a text that ends with a NUL; then behind the
 *         number
 *   base  10, or 16 for what PRIx64 wrote
 *
 * Returns false where anything else stands there, or the number has more than
 * 64 bits; then nothing is changed. */
ZKE_API bool zke_recipe_read(char **at, const char *word, int base,
                             int64_t *number_out);

/* A znode to be made together with others. */
typedef struct zke_seat {
  const char *directory, *kind;
  const void *data;
  int len;
} zke_seat;

/* zke_recipe_create_all - several sequential ephemerals of one guid, in one
 * step; survives a lost reply
 *
 *   seats      in one directory or in several; in one their numbers follow
 *              each other
 *   paths_out  out, not NULL: their whole paths, in that order; "" for one
 *              that was taken away at once; NULL on failure
 *   czxid_out  out, not NULL: of all of them
 *
 * Returns as zke_multi(): ZKE_NONODE where a directory is missing. */
ZKE_API int zke_recipe_create_all(zke *z, const zke_seat *seats, int count,
                                  int64_t deadline_ms, zke_strings **paths_out,
                                  int64_t *czxid_out);

/* zke_recipe_delete_all - zke_recipe_delete() of several, in one step unless
 * some have gone before */
ZKE_API int zke_recipe_delete_all(zke *z, const zke_strings *paths);

/* zke_recipe_discard_all - zke_recipe_discard() of several (ZKE_EPHEMERAL), in
 * one step unless some have gone before or that fails */
ZKE_API int zke_recipe_discard_all(zke *z, const zke_strings *paths);

/* A directory's entries of the given kinds, by number. */
typedef struct zke_entry {
  const char *name;
  int kind; /* index into the kinds asked for */
  int32_t number;
} zke_entry;

typedef struct zke_entries {
  int count;
  const zke_entry *data;
} zke_entries;

/* zke_recipe_entries - names of the form _c_<guid>-<kind><number>, sorted
 *
 * Anything else in the directory is ignored.  Numbers are compared as
 * numbers, with the wrap-around of ZooKeeper's 32 bits.
 *
 *   kinds,count   what may stand before the number
 *   entries_out   out: one block
 *   stat_out      out: the directory's Stat of the same moment
 *
 * Returns as zke_children(). */
ZKE_API int zke_recipe_entries(zke *z, const char *directory,
                               const char *const *kinds, int count,
                               zke_watch_fn fn, void *context,
                               zke_entries **entries_out, zke_stat *stat_out);

/* zke_recipe_find - the index of the entry with a name, or -1 */
ZKE_API int zke_recipe_find(const zke_entries *entries, const char *name);

/* zke_recipe_say_held - fail with a sentence that names the holder
 *
 *   what  "the lock /locks/a"; path: the holder's znode
 *
 * Returns rc: "the lock /locks/a is held by backup (pid 12) since
 * 2026-11-20T12:00:00Z". */
ZKE_API int zke_recipe_say_held(zke *z, int rc, const char *what,
                                const char *path);

/* ------------------------------------------------------------------------
 * For recipes: the object
 *
 * A recipe's struct begins with a zke_recipe.  Its public functions are
 *
 *     int rc = zke_recipe_enter(&l->r);
 *     if (rc != ZKE_OK) return rc;
 *     ...what it does, the mutex held...
 *     return zke_recipe_leave(&l->r, rc);
 *
 * zke_recipe_enter_by(&l->r, deadline_ms) where it has a deadline, which every
 * function with zke_recipe_await() has.  Its calls of zkembed and of the
 * functions above then wait for others no longer than that.
 *
 * What it watches it watches with zke_recipe_watcher and &l->r.  When any
 * of that fires, the class's step() is called with the mutex held; it looks
 * again and does what is due, without waiting, and may find nothing changed.
 * Where it fails, or `changed` is set when the mutex is dropped, it is called
 * again after a pause, by zke_call_at(): first after 5 ms, then after twice as
 * long each time, at most the busy timeout.  In a dispatch it waits for others
 * no longer than any call does, than a call that sleeps on the object or on the
 * thread may, nor, when it is repeated, than it has paused; and after a step
 * has waited in vain others of the handle do not wait for as long.
 * What the user is to hear is queued with zke_recipe_tell() and delivered
 * after the mutex was dropped.
 * --------------------------------------------------------------------- */

typedef struct zke_recipe zke_recipe;

/* The mutex is held in each but deliver(); members that a recipe does not need
 * are NULL. */
typedef struct zke_recipe_class {
  const char *name; /* "lock" */
  /* something fired: which path; before step() */
  void (*event)(zke_recipe *r, int type, const char *path);
  /* look again, go on.  After a failure it is repeated, by who awaits or in a
   * later dispatch: all that it was to do must be seen in the object still */
  int (*step)(zke_recipe *r);
  /* the session has ended: hold nothing any more; may tell */
  void (*ended)(zke_recipe *r);
  /* call the user's listener with what was told; no lock held */
  void (*deliver)(zke_recipe *r, int event, int64_t number, const char *text,
                  int len);
  /* give up what is held by zke_recipe_discard(): the object is going */
  void (*quit)(zke_recipe *r);
  /* release the members' memory */
  void (*destroy)(zke_recipe *r);
} zke_recipe_class;

struct zke_note;

struct zke_recipe {
  const zke_recipe_class *class_;
  zke *z;
  char *path; /* the recipe's directory */
  pthread_mutex_t m;
  pthread_cond_t told;
  int refs;         /* atomic: calls inside, and 1 until free */
  int running;      /* atomic: calls inside that can be cancelled */
  int cancels;      /* atomic: how often that was asked */
  bool ended;       /* the session has */
  bool going;       /* free was called */
  bool left;        /* a thread was cancelled inside: only free is allowed */
  bool changed;     /* look again: something fired, or the last step failed */
  bool telling;     /* the teller is delivering notes */
  pthread_t teller; /* a thread */
  struct zke_note *notes, **notes_end;
  struct recipe_sleeper *sleepers; /* calls that sleep now */
  int64_t pause; /* ms before the last step again; 0: the last one was fine */
  bool reminded; /* zke_call_at() is set */
};

/* zke_recipe_new - allocate an object of size bytes, zeroed
 *
 * Checks the path by ZooKeeper's rules ("/" is refused) and copies it.
 *
 *   out  out, not NULL; NULL on failure */
ZKE_API int zke_recipe_new(zke *z, const char *path,
                           const zke_recipe_class *class_, size_t size,
                           zke_recipe **out);

/* zke_recipe_free - quit, take back the watches, release; NULL is fine
 *
 * Afterwards no listener runs on another thread, and none will.  In a
 * listener of the object itself the memory stays until it has returned. */
ZKE_API void zke_recipe_free(zke_recipe *r);

/* zke_recipe_state - may the handle be used?
 *
 * Returns as zke_sync(), ZKE_BADARGUMENTS for a NULL handle and ZKE_FORKED for
 * a child's copy among it; but the end of the session is ZKE_INVALIDSTATE also
 * for the call that finds it.  Threads: any.  In a callback: yes. */
ZKE_API int zke_recipe_state(zke *z);

/* zke_recipe_enter    - take the mutex; refuses NULL, a forked child's copy, an
 *                       expired session (ZKE_INVALIDSTATE), one that was freed
 *                       (ZKE_CLOSING)
 * zke_recipe_enter_by - the same for a call with a deadline, which can be
 *                       cancelled
 * zke_recipe_leave    - drop it, deliver what was told; returns rc, the end of
 *                       the session as ZKE_INVALIDSTATE always */
ZKE_API int zke_recipe_enter(zke_recipe *r);
ZKE_API int zke_recipe_enter_by(zke_recipe *r, int64_t deadline_ms);
ZKE_API int zke_recipe_leave(zke_recipe *r, int rc);

/* zke_recipe_hold - keep the object's memory, for a call that makes several
 *                   calls of it: a listener may free it between two of them.
 *                   Then each further call on it but drop returns ZKE_CLOSING
 * zke_recipe_drop - no more
 *
 * The mutex is not held.  They do not hold off the thread's cancellation: drop
 * in a cleanup handler where a call between them may sleep. */
ZKE_API void zke_recipe_hold(zke_recipe *r);
ZKE_API void zke_recipe_drop(zke_recipe *r);

ZKE_API void zke_recipe_watcher(zke *z, int type, int state, const char *path,
                                void *context);

/* zke_recipe_tell - queue a note for the listener; the mutex is held.  Lost
 * without memory: false. */
ZKE_API bool zke_recipe_tell(zke_recipe *r, int event, int64_t number,
                             const char *text, int len);

/* zke_recipe_await - wait until done() or the deadline
 *
 * In a call that began with zke_recipe_enter_by().  Entered and left with the
 * mutex held, waits without it.  Steps whenever something has changed.
 *
 *   done  called with the mutex held: ZKE_OK: done; 1: not yet; else the
 *         code to fail with
 *
 * Returns done()'s code, ZKE_OPERATIONTIMEOUT, ZKE_CANCELLED, or what step()
 * or the handle said.  The sentence of a timeout is the caller's to set. */
ZKE_API int zke_recipe_await(zke_recipe *r, int (*done)(zke_recipe *r),
                             int64_t deadline_ms);

/* zke_recipe_step - what a recipe's step is: enter, look again where the object
 * is started or waits, leave.  Returns what the class's step() says */
ZKE_API int zke_recipe_step(zke_recipe *r);

/* zke_recipe_cancel - see cancel above: ZKE_OK, or ZKE_IDLE where no call with
 * a deadline is running; takes no lock but the handle's */
ZKE_API int zke_recipe_cancel(zke_recipe *r);

/* ------------------------------------------------------------------------
 * For recipes: a place in a line
 *
 * Locks, read/write locks, semaphores and elections are lines: entries in a
 * directory, each with a sequential ephemeral znode, of which the first ones
 * hold.  Which entry keeps which other from holding is decided by the rule
 * below, for the recipes and for the detection of deadlocks alike.
 *
 * A znode's data is one line "<state> <actor>" and then the user's data:
 * state is held, waiting (inside a blocking call) or queued; the actor is the
 * thread, as 16 hex digits, which counts for deadlocks only.
 *
 * A znode that did not hold at once is marked when it does: its state becomes
 * "held".  The zxid of that write is the fencing value and its time is the
 * beginning of the office.  A participant that was first when its znode was
 * made needs no mark: nobody came between, and the czxid is the value.
 *
 * The place in the line alone decides who holds; the mark only tells the
 * value.  Either of two processes writes it:
 *
 * - The holder that leaves, in the transaction that deletes its znode (a
 *   grant).  It does so for the next in line of a lock or read/write lock,
 *   where it saw that one when it took office itself.
 * - Otherwise the next in line, when it finds that nobody keeps it out.
 *
 * A grant is one step, so there is no moment with two holders or with a mark
 * and no office.  It fails, and changes nothing, where either znode has gone,
 * the next one's data has changed since it was seen, or its ACL forbids the
 * write; then the holder only deletes its own znode.  Whoever is granted the
 * office and then dies, gives up or loses its place leaves as any holder does,
 * and the next in line marks itself, with a greater zxid.
 * --------------------------------------------------------------------- */

/* The kinds of a line.  READ entries do not keep out each other; any other
 * keeps out those behind it.  FRONT entries stand before all others: a thief
 * jumps the queue.  Whom a NEXT mark names stands before even those: it was
 * handed the office by its holder. */
enum zke_line_kind {
  ZKE_LINE_LOCK,  /* lock- */
  ZKE_LINE_WRITE, /* __WRIT__ */
  ZKE_LINE_READ,  /* __READ__ */
  ZKE_LINE_LEASE, /* lease- */
  ZKE_LINE_LATCH, /* latch- */
  ZKE_LINE_FRONT, /* front- */
  ZKE_LINE_NEXT,  /* next-: no entry, but a mark that names one by its guid */
  ZKE_LINE_KINDS
};

enum { ZKE_LINE_OUT, ZKE_LINE_WAITING, ZKE_LINE_HELD, ZKE_LINE_LOST };

typedef struct zke_line {
  zke_recipe r;
  const char *place; /* the directory's kind: "lock" */
  int kind;          /* ZKE_LINE_LOCK … of one's own entry */
  int limit;         /* an entry holds while fewer than this keep it out; a
                        lease's is read from the directory, "limit N" */
  int weight;        /* znodes that a lease makes, at least 1; it holds when
                        the last of them may */
  bool no_check;     /* do not look for deadlocks */
  bool watch_own;    /* also where it held at once: somebody wants to know */
  const char *data;  /* the user's, or NULL */
  int len;
  /* the rest is the line's own */
  bool placed;   /* the directory was seen to */
  int64_t seen;  /* its czxid then, 0: not known yet */
  int state;     /* ZKE_LINE_… */
  bool blocking; /* inside a blocking call */
  bool own_watched, place_watched;
  char *znode;          /* whole path of one's own (the last), or NULL */
  char *gone;           /* the one before, which an op may name still */
  zke_strings *own;     /* leases: all of one's own, or NULL */
  int64_t czxid;        /* of it */
  int64_t token;        /* fencing value, 0 when not held */
  uint64_t actor;       /* the thread that joined */
  const char *also;     /* another ephemeral that goes with the office */
  zke_strings *watched; /* paths of the entries that are watched, or NULL */
  char *heir;           /* path of whoever is granted the office, or NULL */
  char *grant;          /* the heir's data when it holds */
  int grant_len;
  int heir_version; /* of the heir's data as it was seen */
} zke_line;

/* A semaphore's lease: `weight` znodes made in one step stand in line one
 * behind the other; the last of them speaks for all, the others are empty.
 * ZKE_NONODE from joining: the directory is missing.  ZKE_LIMIT from joining
 * or waiting: the limit is below the weight; without a blocking call one is
 * out, ZKE_LINE_OUT is told.
 *
 * zke_line_init    - after zke_recipe_new(): the members up to len are set,
 *                    data is copied
 * zke_line_join    - make the znode, take office if that is allowed
 * zke_line_step    - look again; what a class's step() calls first
 * zke_line_acquire - join (where that was not done before), wait until held;
 *                    or be out again, with ZKE_OPERATIONTIMEOUT, _CANCELLED,
 *                    _DEADLOCK, or _LOST where one's znode was deleted
 * zke_line_try     - join and be held, or be out again with ZKE_HELD
 * zke_line_quit    - leave: discard the znode, and in the same step `also`,
 *                    where that is set.  One is out whatever it returns
 * zke_line_check   - ask the file: ZKE_OK: held; else ZKE_LOST
 * zke_line_jump    - to the front, in the place of another: in one step the
 *                    victim's znode is deleted and one's own old one, if
 *                    there is one, and a FRONT entry is made.  ZKE_NONODE
 *                    where the victim has gone
 * zke_line_convert - where held: in one step an entry of another kind with the
 *                    same number, in place of one's own.  The token is new
 * zke_line_yield   - where held: in one step leave, let the entry of that name
 *                    be first, and delete another znode, where there is one
 *                    (its path, or NULL).  ZKE_NONODE where the heir has gone
 * zke_line_release - quit, and tell by ZKE_LOST where one was not in the line
 *                    any more.  With any other failure one is out as well
 * zke_line_check_op - an operation for the user's multi that fails unless the
 *                    place is held; ZKE_LOST where it is not
 * zke_line_event   - what a class's event() calls
 * zke_line_ended   - what a class's ended() calls
 * zke_line_free    - what a class's destroy() calls
 * The mutex is held in all of these.
 *
 * Each change of state is told as an event: zke_recipe_tell(state, token). */
ZKE_API int zke_line_init(zke_line *l);
ZKE_API int zke_line_join(zke_line *l, bool blocking, int64_t deadline_ms);
ZKE_API int zke_line_step(zke_line *l);
ZKE_API int zke_line_acquire(zke_line *l, int64_t deadline_ms);
ZKE_API int zke_line_try(zke_line *l);
ZKE_API int zke_line_quit(zke_line *l);
ZKE_API int zke_line_check(zke_line *l);
ZKE_API int zke_line_jump(zke_line *l, const char *victim);
ZKE_API int zke_line_convert(zke_line *l, int kind);
ZKE_API int zke_line_yield(zke_line *l, const char *heir, const char *word);
ZKE_API int zke_line_release(zke_line *l);
ZKE_API int zke_line_check_op(zke_line *l, zke_op *op);
ZKE_API void zke_line_event(zke_line *l, const char *path);
ZKE_API void zke_line_ended(zke_line *l);
ZKE_API void zke_line_free(zke_line *l);

/* zke_line_on_… - the members of the class of a recipe that is a line and adds
 * nothing there; the mutex is held, as in every class's */
ZKE_API int zke_line_on_step(zke_recipe *r);
ZKE_API void zke_line_on_event(zke_recipe *r, int type, const char *path);
ZKE_API void zke_line_on_ended(zke_recipe *r);
ZKE_API void zke_line_on_quit(zke_recipe *r);
ZKE_API void zke_line_on_destroy(zke_recipe *r);

/* What the public functions of such a recipe are; the mutex is not held, and
 * NULL is refused:
 *
 * zke_line_enter     - zke_recipe_enter(), and see to the place
 * zke_line_enter_by  - zke_recipe_enter_by(), and see to the place
 * zke_line_ask_state - ZKE_LINE_…; ZKE_LINE_LOST when the session has ended
 * zke_line_ask_token - the fencing value, 0 when not held
 * zke_line_ask       - zke_line_check()
 * zke_line_ask_op    - zke_line_check_op(); ZKE_BADARGUMENTS for a NULL op */
ZKE_API int zke_line_enter(zke_line *l);
ZKE_API int zke_line_enter_by(zke_line *l, int64_t deadline_ms);
ZKE_API int zke_line_ask_state(zke_line *l);
ZKE_API int64_t zke_line_ask_token(zke_line *l);
ZKE_API int zke_line_ask(zke_line *l);
ZKE_API int zke_line_ask_op(zke_line *l, zke_op *op);

/* For what stands in several lines at once, with limits of 1:
 *
 * zke_line_actor    - this thread, as a znode's data names it
 * zke_line_act_as   - from here on this thread acts as that actor, until it
 *                     is told 0: as itself again.  Where one client's calls
 *                     run on several threads, what any of them holds and
 *                     what another waits for are that client's.  Returns
 *                     what to give back: the actor before, or 0.  A forked
 *                     child's thread is itself
 * zke_line_text     - a znode's data "<state> <actor>\n<data>", one block, or
 *                     NULL without memory
 * zke_line_turn     - may the entry hold?  ZKE_OK: it may, and will until it
 *                     is deleted; 1: no, and zke_recipe_watcher will tell when
 *                     to look again; ZKE_NONODE: it has gone
 *   watched  in and out: the path that is watched, one block; begins as NULL
 *   pzxid    out, where it may: the directory's, at that moment
 * zke_line_detect   - look for a deadlock that this actor's waiting has
 *                     closed: ZKE_OK or ZKE_DEADLOCK with its sentence
 *   own      how many znodes it made for this wait
 * zke_line_say_held - zke_recipe_say_held() of who is first in a line */
ZKE_API uint64_t zke_line_actor(void);
ZKE_API uint64_t zke_line_act_as(uint64_t actor);
ZKE_API char *zke_line_text(zke *z, const char *state, uint64_t actor,
                            const char *data, int len, int *len_out);
ZKE_API int zke_line_turn(zke_recipe *r, const char *directory,
                          const char *znode, char **watched, int64_t *pzxid);
ZKE_API int zke_line_detect(zke *z, uint64_t actor, int own);
ZKE_API int zke_line_say_held(zke *z, int rc, const char *kind,
                              const char *directory);

/* Who keeps another one waiting. */
typedef struct zke_keeper {
  const char *path; /* of its znode */
  int64_t session;  /* which owns it */
  uint64_t actor;   /* 0: not known */
  int64_t reserved[4];
} zke_keeper;

/* Who is kept waiting. */
typedef struct zke_wait_info {
  const char *path; /* of its znode: the line is the directory */
  int64_t session;
  uint64_t actor;
  int64_t since_ms; /* when it came, ms since 1970 */
  const char *identity;
  int64_t pid;  /* in its own PID namespace; for display */
  int blocking; /* 1: inside a blocking call; 0: it can do other things */
  int stuck;    /* 1: for ever, if nobody interferes: it is in a deadlock, or
                   behind one */
  int circle;   /* the number of the deadlock it is in, from 1 on; else 0 */
  int keeper_count;
  const zke_keeper *keepers; /* whoever stands right before it, as far as the
                                detection of deadlocks looks */
  int64_t reserved[4];
} zke_wait_info;

/* One block, released by zke_free(). */
typedef struct zke_wait_list {
  int count;
  const zke_wait_info *data; /* the youngest first */
} zke_wait_list;

/* zke_line_waits - who waits for whom, in all lines: what zke_line_detect()
 * goes by, seen from outside
 *
 * A call that would close a circle fails, so that a deadlock is found here
 * only where that was not looked for (options.no_deadlock_check) or could not
 * be seen (several handles of one thread, a session of a part of the tree; see
 * lock.h).
 * What is read is no single moment: where people come and go, somebody may be
 * missing, or kept waiting by who has gone.
 *
 *   list_out  out, not NULL: one block; count 0 where nobody waits
 *
 * Returns as zke_sessions().  Threads: any. */
ZKE_API int zke_line_waits(zke *z, zke_wait_list **list_out);

/* zke_line_parties - who is in a directory's line, holders first
 *
 *   limit     how many may hold: 1; 0: what the directory's data states
 *   list_out  out: one block; count 0 where the directory is missing */
ZKE_API int zke_line_parties(zke *z, const char *path, int limit,
                             zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
