/* zkembed.h - ZooKeeper's tree of znodes in one SQLite file
 *
 * zkembed gives a C program znodes, versions, sequence numbers, ephemeral
 * sessions, one-shot and persistent watches and multi, with ZooKeeper's exact
 * results, in one database file.  All processes of the host that open the file
 * see the same tree.  There is no server and no thread: the library works
 * inside the calls, and the kernel wakes a caller that waits.
 *
 *     #include <stdio.h>
 *     #include "zkembed.h"
 *
 *     static void changed(zke *z, int type, int state, const char *path,
 *                         void *context) {
 *       printf("event %d on %s\n", type, path);
 *       (void)z, (void)state, (void)context;
 *     }
 *
 *     int main(void) {
 *       zke *z;
 *       char *path;
 *       if (zke_open("app.db", NULL, &z) != ZKE_OK) {
 *         fprintf(stderr, "%s\n", zke_errmsg());
 *         return 1;
 *       }
 *       zke_create(z, "/jobs", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
 *                  NULL);
 *       zke_children(z, "/jobs", changed, NULL, NULL, NULL);
 *       zke_create(z, "/jobs/job-", "run", 3, ZKE_OPEN_ACL,
 *                  ZKE_PERSISTENT_SEQUENTIAL, &path, NULL);
 *       printf("created %s\n", path);
 *       zke_free(path);
 *       zke_wait(z, zke_now(z) + 1000);
 *       return zke_close(z);
 *     }
 *
 * RULES, stated once
 *
 * Comments.  The comment above a group of functions holds for all of them, such
 *   as which threads may call them.  A function's own comment has the
 *   exceptions.  Everything is since 0.1.  P1 to P12 are the promises in
 *   doc/design.md.
 * Results.  Every call that can fail returns ZKE_OK (0) or a negative code;
 *   ZooKeeper's codes have ZooKeeper's numbers.  zke_errmsg() returns a
 *   sentence about this thread's last failed call.  Success sets all outputs;
 *   failure changes none, except that a new handle is set to NULL.  Any output
 *   pointer may be NULL unless its comment says otherwise.
 * Ownership.  Inputs are copied before a call returns.  A result that is
 *   returned through a pointer is one block.  The caller owns it, and releases
 *   it with zke_free(); it stays valid after zke_close().
 * Paths.  UTF-8, absolute, NUL-terminated, at most 1 MiB; the rules are those
 *   of ZooKeeper 3.8's C client and server together.  Lengths, in bytes, and
 *   counts are int, as there.
 * Time.  Deadlines are absolute, in milliseconds of zke_now(), a monotonic
 *   clock; ZKE_FOREVER means none.  ctime and mtime are milliseconds since
 *   1970.
 * Threads.  "Any": any thread may call the function, even while other threads
 *   use the same handle.
 * Blocks.  "On the disk": the call waits for SQLite's I/O, and for other
 *   processes' transactions at most options.busy_timeout_ms.  After that it
 *   returns ZKE_OPERATIONTIMEOUT and has changed nothing.  If no process waits
 *   in zke_wait() or by polling, such a call also does the sweep when it is
 *   due: it removes dead sessions and expired nodes.  "No": the call waits at
 *   most for another thread's call on the same store, and never fails because
 *   that call takes long.
 * Callbacks.  They run only inside zke_dispatch() and zke_wait() and their
 *   variants, on the calling thread, with no lock held.  "In a callback: yes"
 *   also allows the handle that is dispatching; "no" means not on this handle.
 *   A callback must return.  If it ends its thread (pthread_exit()), the handle
 *   stays usable, but other watchers of the event are not called.
 * Cancellation.  Inside the library, callbacks included, pthread_cancel() is
 *   deferred, except in the sleeps of zke_wait() and zke_wait_turn() outside of
 *   callbacks.  Nothing is lost there, and the handle stays as it was.  All
 *   other calls return their result to the caller; a thread that makes only
 *   such calls needs pthread_testcancel() to be cancelled.
 *   PTHREAD_CANCEL_ASYNCHRONOUS may be set during calls that take a handle: the
 *   cancellation takes effect when the call ends, and its result is lost.
 *
 * Each function can also return:
 *   ZKE_BADARGUMENTS   a NULL handle, or a path that is malformed or too long
 *   ZKE_INVALIDSTATE   authentication failed, or the session has expired (its
 *                      event has been or will be dispatched)
 *   ZKE_SESSIONEXPIRED this call was the first to find the session expired
 *   ZKE_SESSIONMOVED   another handle has attached the session
 *   ZKE_CLOSING        another thread is closing the handle
 *   ZKE_MISUSE         not allowed in this callback, in the function of
 *                      zke_batch() or zke_op_sql(), or between zke_sql_begin()
 *                      and its end; nothing is done (but see zke_discard())
 *   ZKE_FORKED         the handle was opened before a fork(), by the parent
 *   ZKE_READONLY       a change, a watch or a wait on a read-only handle, or no
 *                      permission for what the call needs
 *   ZKE_REPLACED       the database, or a file next to it, was removed or
 *                      replaced while the handle was open
 *   ZKE_CONNECTIONLOSS an I/O error at COMMIT, or memory or space ran out at
 *                      its end: whether the change was made is unknown until
 *                      the next call (P2)
 *   ZKE_OPERATIONTIMEOUT, ZKE_NOMEM, ZKE_SYSTEMERROR, ZKE_CORRUPT, ZKE_FULL
 *
 * CAVEATS, each with its cure
 *
 * - After fork() the child's copy of a handle refuses every call; the child
 *   must open its own.  If another thread of the parent was inside a call at
 *   the fork, the child cannot open one: it gets ZKE_FORKED and must exec.  The
 *   same happens if the child closes descriptors that it did not open
 *   (closefrom()) and then opens files under the same numbers.  So the child
 *   should open its handle before it does that.
 * - A child forked in a callback may return from it: no other callback runs
 *   there, and the interrupted call returns ZKE_FORKED.  A child forked in an
 *   allocator, a logger or zke_check()'s function must exec or _exit().
 * - The library registers one atfork handler, which in the child sets a flag
 *   and closes descriptors.  A raw clone() runs no handlers, so such a child
 *   keeps the parent's session alive until the child is gone.
 * - A program that closes descriptors it did not open (closefrom()) breaks the
 *   library, as it breaks SQLite: the next files it opens get the same numbers,
 *   and the handles write into them.  Do it before the first zke_open(), or
 *   close all handles first.  exec closes the library's descriptors itself.
 * - Never open() and close() the database, its -wal or its -shm yourself while
 *   a handle is open: closing any descriptor drops SQLite's POSIX locks.  Back
 *   up with SQLite's backup interface, or the sqlite3 shell in another process.
 * - Two copies of SQLite in one process on the same file lose locks the same
 *   way.  Two copies of zkembed over one SQLite are fine.
 * - The file must be on a local file system, of one kernel.  Network file
 *   systems are refused if their type identifies them.  FUSE (sshfs, GlusterFS,
 *   virtiofs), vmhgfs and OrangeFS are not: two hosts damage a file there.
 * - All processes must open the file by the same name in the same directory,
 *   since the files next to it are found by its name.  Symbolic links are
 *   resolved.  A file with two hard links, or mounted by itself as a volume of
 *   a container, is refused: mount its directory.  Do not back up with `cp -l`:
 *   handles that are open keep working, but the file cannot be opened until the
 *   link is removed.
 * - The sqlite3 shell may read the database at any time.  It must not write
 *   nodes: it neither joins the line of writers nor fires watches.  Any program
 *   may write its own tables in a shared file after its connection has done
 *   "PRAGMA wal_autocheckpoint=0" (doc/format.md).
 * - The files in "<database>-zke/" are part of the database while any process
 *   has it open.  Do not remove them then.
 *
 * HOW THIS INTERFACE MAY GROW
 *
 * From 1.0 on, a program works with any library of its header's major version,
 * older or newer than the header.  This holds for the headers of the recipes
 * too, but in recipes/part and recipes/engine only for zookeeper.h and
 * compose.h: the rest there is for code of the same version.
 *
 * - Names, numbers and signatures stay.  New functions, codes, events and flags
 *   may come, so a program must expect codes and events that it does not know.
 * - A struct that begins with its size (zke_options, the options of each
 *   recipe, zke_os, zke_engine) may get new members at its end; zero means the
 *   old behaviour.  The caller sets the size with ZKE_INIT() or sizeof, and any
 *   version's size is accepted.  Members that the caller's header lacks are
 *   zero.  Members that the library lacks must be zero; otherwise it cannot do
 *   what is asked, so it returns ZKE_BADARGUMENTS and says that it is older.
 * - A struct that stands in arrays, or that one side fills for the other, keeps
 *   its size; new members use the space of `reserved`.  These structs are
 *   zke_op, zke_op_result, zke_file, zke_session_info, zke_watch_info, and any
 *   with a `reserved` member in the recipes' headers.  The library sets
 *   that member to zero, and returns ZKE_BADARGUMENTS if the caller does not.
 * - A struct that a call returns as one block may get new members at its end.
 * - All others never change: zke_stat, zke_acl, zke_acls, zke_strings,
 *   zke_allocator, and lists that are a count and data.
 */
#ifndef ZKEMBED_H
#define ZKEMBED_H

#include <stddef.h>
#include <stdint.h>

/* ZKE_INIT - the initialiser of a struct that begins with its size: sets the
 * size, and everything else to zero.  Compiles without a warning in C and C++.
 *
 *     zke_options o = ZKE_INIT(zke_options);
 *     o.lease_ms = 10000;
 *
 * In C `zke_options o = {.size = sizeof o, .lease_ms = 10000};` is the same. */
#ifdef __cplusplus
template <class type>
inline type zke_init_() {
  type o = type();
  o.size = sizeof o;
  return o;
}
#define ZKE_INIT(type) zke_init_<type>()
#else
#define ZKE_INIT(type) \
  { .size = sizeof(type) }
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ========================================================================
 * PART 1: for every program
 *
 * All that a program with its own tree needs.  PART 2 has the rest, grouped by
 * its users: layers such as recipes; servers; programs with their own SQL in
 * the file; operators; tests; programs that replace the operating system's
 * calls, or put another engine behind this interface.
 * ===================================================================== */

/* ------------------------------------------------------------------------
 * Version and linkage
 * --------------------------------------------------------------------- */

#define ZKE_VERSION "1.0.0"
#define ZKE_VERSION_NUMBER 1000000 /* major * 1000000 + minor * 1000 + patch */

/* ZKE_API marks what the shared library exports.  Define it as empty to keep
 * the functions inside the shared object that they are compiled into. */
#ifndef ZKE_API
#if defined(__GNUC__)
#define ZKE_API __attribute__((visibility("default")))
#else
#define ZKE_API
#endif
#endif

/* The version of the library at run time: the string, and the number to
 * compare with ZKE_VERSION_NUMBER.  Threads: any.  In a callback: yes. */
ZKE_API const char *zke_version(void);
ZKE_API int zke_version_number(void);

/* ------------------------------------------------------------------------
 * Results
 *
 * Threads: any.  In a callback: yes.  Blocks: no.
 * --------------------------------------------------------------------- */

/* This list makes the enum, zke_error_name() and zke_error_text().  Down to
 * -127, numbers and texts are those of ZooKeeper's C client (semantics.md 10).
 * Codes from -200 on are zkembed's own.  Codes from -300 on belong to layers
 * above the library, which never returns them itself. */
#define ZKE_RESULT_LIST(X)                                       \
  X(OK, 0, "ok")                                                 \
  X(SYSTEMERROR, -1, "system error")                             \
  X(RUNTIMEINCONSISTENCY, -2, "run time inconsistency")          \
  X(DATAINCONSISTENCY, -3, "data inconsistency")                 \
  X(CONNECTIONLOSS, -4, "connection loss")                       \
  X(MARSHALLINGERROR, -5, "marshalling error")                   \
  X(UNIMPLEMENTED, -6, "unimplemented")                          \
  X(OPERATIONTIMEOUT, -7, "operation timeout")                   \
  X(BADARGUMENTS, -8, "bad arguments")                           \
  X(INVALIDSTATE, -9, "invalid zhandle state")                   \
  X(NONODE, -101, "no node")                                     \
  X(NOAUTH, -102, "not authenticated")                           \
  X(BADVERSION, -103, "bad version")                             \
  X(NOCHILDRENFOREPHEMERALS, -108, "no children for ephemerals") \
  X(NODEEXISTS, -110, "node exists")                             \
  X(NOTEMPTY, -111, "not empty")                                 \
  X(SESSIONEXPIRED, -112, "session expired")                     \
  X(INVALIDCALLBACK, -113, "invalid callback")                   \
  X(INVALIDACL, -114, "invalid acl")                             \
  X(AUTHFAILED, -115, "authentication failed")                   \
  X(CLOSING, -116, "zookeeper is closing")                       \
  X(SESSIONMOVED, -118,                                          \
    "session moved to another server, so operation is ignored")  \
  X(NOWATCHER, -121, "no watcher")                               \
  X(NOTADB, -201, "not a zkembed database")                      \
  X(NEWERFORMAT, -202, "database of a newer format")             \
  X(CORRUPT, -203, "database is damaged")                        \
  X(FULL, -204, "disk or database is full")                      \
  X(READONLY, -205, "read-only")                                 \
  X(NETWORKFS, -206, "network file system")                      \
  X(FORKED, -207, "handle belongs to the parent process")        \
  X(NOMEM, -208, "out of memory")                                \
  X(CANTOPEN, -209, "cannot open")                               \
  X(REPLACED, -210, "database files removed or replaced")        \
  X(MISUSE, -211, "call not allowed here")                       \
  X(SQLITEVERSION, -212, "unsuitable SQLite library")            \
  X(SQL, -213, "refused by the program's own SQL")               \
  X(CANCELLED, -301, "cancelled")                                \
  X(HELD, -302, "held by another")                               \
  X(LOST, -303, "no longer held")                                \
  X(DEADLOCK, -304, "deadlock")                                  \
  X(BROKEN, -305, "a member is gone")                            \
  X(OTHERKIND, -306, "in use by something else")                 \
  X(LIMIT, -307, "over the limit")                               \
  X(IDLE, -308, "nothing to cancel")

#define ZKE_RESULT_ENUM_(name, number, text) ZKE_##name = (number),
enum zke_result { ZKE_RESULT_LIST(ZKE_RESULT_ENUM_) ZKE_RESULT_END_ = 1 };
#undef ZKE_RESULT_ENUM_

/* zke_error_name - "ZKE_NONODE" for -101; "ZKE_UNKNOWN" for an unknown code
 * zke_error_text - "no node" for -101; "unknown error" likewise
 * Never NULL, never freed. */
ZKE_API const char *zke_error_name(int rc);
ZKE_API const char *zke_error_text(int rc);

/* zke_errmsg - a sentence about this thread's last failed call
 *
 * It names the path, the file, the limit or the system's error.  It is for
 * people; programs should use the code.  It is never NULL, and stays valid
 * until this thread's next call that can fail. */
ZKE_API const char *zke_errmsg(void);

/* ------------------------------------------------------------------------
 * Types
 * --------------------------------------------------------------------- */

/* A handle: one session on one database. */
typedef struct zke zke;

/* The fields of ZooKeeper's Stat, with their names there (semantics.md 7). */
typedef struct zke_stat {
  int64_t czxid;          /* zxid of the create */
  int64_t mzxid;          /* zxid of the create or the last set */
  int64_t ctime;          /* time of the create, ms since 1970 */
  int64_t mtime;          /* time of the create or the last set, ms */
  int32_t version;        /* sets since the create; see zke_set() */
  int32_t cversion;       /* children created + deleted */
  int32_t aversion;       /* ACL changes, likewise */
  int64_t ephemeralOwner; /* session id, or 0 */
  int32_t dataLength;     /* bytes; 0 for NULL data too */
  int32_t numChildren;    /* direct children */
  int64_t pzxid;          /* zxid of the last create or delete of a child */
} zke_stat;

/* A list of strings in one block; zke_free() releases all of it. */
typedef struct zke_strings {
  int count;
  char **data;
} zke_strings;

/* ACL entries (semantics.md 8). */
enum {
  ZKE_PERM_READ = 1,   /* its data, its children's names, its events */
  ZKE_PERM_WRITE = 2,  /* zke_set() */
  ZKE_PERM_CREATE = 4, /* of children */
  ZKE_PERM_DELETE = 8, /* of children, not of the node itself */
  ZKE_PERM_ADMIN = 16, /* zke_set_acl() */
  ZKE_PERM_ALL = 31
};

typedef struct zke_acl {
  int32_t perms;      /* sum of ZKE_PERM_… */
  const char *scheme; /* "world", "auth", "digest", or see zke_vouch() */
  const char *id;     /* "anyone", ignored, or "user:base64(sha1(user:pw))" */
} zke_acl;

typedef struct zke_acls {
  int count;
  const zke_acl *data;
} zke_acls;

ZKE_API extern const zke_acls zke_open_acl;        /* world:anyone ALL */
ZKE_API extern const zke_acls zke_read_acl;        /* world:anyone READ */
ZKE_API extern const zke_acls zke_creator_all_acl; /* auth ALL */
#define ZKE_OPEN_ACL (&zke_open_acl)
#define ZKE_READ_ACL (&zke_read_acl)
#define ZKE_CREATOR_ALL_ACL (&zke_creator_all_acl)

/* How a node is created: an enumeration as in ZooKeeper, not a mask. */
enum {
  ZKE_PERSISTENT = 0,
  ZKE_EPHEMERAL = 1,             /* removed with its session */
  ZKE_PERSISTENT_SEQUENTIAL = 2, /* name + %010d from the parent's counter */
  ZKE_EPHEMERAL_SEQUENTIAL = 3,
  ZKE_CONTAINER = 4,           /* removed after it has lost its last child */
  ZKE_PERSISTENT_WITH_TTL = 5, /* removed if childless and not set for ttl ms */
  ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL = 6
};
#define ZKE_MAX_TTL INT64_C(0xffffffffff) /* ms */

/* Events, states and watch types, with ZooKeeper's numbers. */
enum {
  ZKE_EVENT_CREATED = 1,
  ZKE_EVENT_DELETED = 2,
  ZKE_EVENT_CHANGED = 3,   /* its data was set, maybe to the same bytes */
  ZKE_EVENT_CHILD = 4,     /* a child was created or deleted (not: set) */
  ZKE_EVENT_SESSION = -1,  /* the session's state has changed; "" as path */
  ZKE_EVENT_OVERFLOW = -3, /* zkembed's own: events were dropped, see P4 */
  ZKE_EVENT_ALARM = -4     /* zkembed's own: a time has come, zke_call_at() */
};
enum {
  ZKE_STATE_EXPIRED = -112,     /* the session has ended, with its ephemerals */
  ZKE_STATE_AUTH_FAILED = -113, /* zke_add_auth() with an unknown scheme */
  ZKE_STATE_MOVED = -118,       /* another handle has attached the session */
  ZKE_STATE_CONNECTING = 1,     /* it may be alive: an engine tries to
                                   reconnect.  Never on a file */
  ZKE_STATE_CONNECTED = 3,      /* it is alive */
  ZKE_STATE_READONLY = 5,       /* a handle without a session */
  ZKE_STATE_CLOSED = 0          /* a handle that is NULL, being closed or the
                                   parent's, or a call from a place that allows
                                   none */
};
enum {
  ZKE_WATCH_CHILD = 1,
  ZKE_WATCH_DATA = 2,
  ZKE_WATCH_ANY = 3,
  ZKE_WATCH_EXIST = 4 /* zke_set_watch() only: a data watch of a node that did
                         not exist */
};
enum { ZKE_WATCH_PERSISTENT = 0, ZKE_WATCH_PERSISTENT_RECURSIVE = 1 };

/* A watcher: called from zke_dispatch() or zke_wait() with the event's type,
 * the session's state, and the event's path ("" for session events).
 *
 * A one-shot watch is gone when its watcher runs.  ZKE_EVENT_SESSION, with
 * ZKE_STATE_EXPIRED, _MOVED or _AUTH_FAILED, goes to every registered pair of
 * function and context and to the handle's default watcher.  ZKE_EVENT_OVERFLOW
 * goes to the same watchers if more events were pending than
 * options.event_limit: all of them were dropped, and every one-shot watch
 * registered before is gone.  Read again, and register again.  ZKE_EVENT_ALARM
 * goes to the pair that zke_call_at() was given. */
typedef void (*zke_watch_fn)(zke *z, int type, int state, const char *path,
                             void *context);

/* ------------------------------------------------------------------------
 * Options: what belongs to a handle
 * --------------------------------------------------------------------- */

/* One function allocates, grows and releases, like realloc(); size 0 releases
 * and returns NULL.  A NULL function means the C library's.  The calls of a
 * store use it one at a time, except for zke_free(), zke_alloc(), zke_discard()
 * and zke_call_at().  So if several threads use a store or release its results,
 * the function must be thread-safe. */
typedef struct zke_allocator {
  void *(*resize)(void *context, void *block, size_t size);
  void *context;
} zke_allocator;

/* Receives messages that no call can return: a dead session was reaped, readers
 * keep a write-ahead log from being reset, SQLite does not behave as expected.
 * Must not block or call zkembed: the store is locked, and processes may be
 * waiting. */
enum { ZKE_LOG_ERROR = 1, ZKE_LOG_WARN = 2, ZKE_LOG_INFO = 3 };
typedef void (*zke_log_fn)(void *context, int level, const char *text);

struct zke_os;

enum {
  ZKE_OPEN_READONLY = 1, /* no session, no change; SQLite may make -wal, -shm */
  ZKE_OPEN_EXISTING = 2, /* ZKE_CANTOPEN if the file does not exist */
  ZKE_OPEN_LIGHT = 16,   /* zke_open_session(): a session without descriptors */

  /* See "The program's own data". */
  ZKE_OPEN_HOST = 32,        /* if the database is another program's, or empty:
                                add our tables to it */
  ZKE_OPEN_FOREIGN_KEYS = 64 /* SQL of zke_op_sql() enforces foreign keys */
};
#define ZKE_MAX_TIMEOUT INT64_C(0xffffffffff) /* ms */
enum {
  ZKE_DURABLE_BY_KIND = 0, /* P8: persistent state is synced, the rest is not */
  ZKE_DURABLE_ALL = 1,     /* every change is synced before it returns */
  ZKE_DURABLE_NONE = 2     /* nothing is; a power cut may lose the latest */
};

/* For members that accept it: no time at all, since 0 means the default. */
enum { ZKE_AT_ONCE = -1 };

/* Begin with ZKE_INIT(zke_options): zero means the default given here. */
typedef struct zke_options {
  size_t size;
  unsigned flags;          /* ZKE_OPEN_… */
  int durability;          /* ZKE_DURABLE_… */
  int data_limit;          /* bytes of a value, and of a multi's sum; 1048576.
                              At most SQLite's limit of a row (usually 10^9) */
  int cache_kib;           /* SQLite's page cache, KiB; 256.  After its first
                              lock-free read the store also caches short nodes:
                              up to a quarter of this more, at most 2 MiB */
  int event_limit;         /* pending events of a session (P4), including events
                              not yet trimmed; 10000 */
  int notice_limit;        /* descriptors of the store that tell its sessions
                              immediately that the owner of a watched node has
                              died, one per owner and session (P6); 128.  Other
                              deaths are noticed within about a second */
  int64_t busy_timeout_ms; /* longest wait of a call for others; 5000.
                              ZKE_AT_ONCE: it does not wait */
  int64_t lease_ms;        /* the session ends after this long without a call;
                              0: never.  Time that another session's call on
                              the same store waits for other processes does not
                              count */
  int64_t container_ms;    /* how long an empty container is kept; 60000.
                              ZKE_AT_ONCE: until the next sweep */
  const char *identity;    /* shown to others; the process's name */
  const char *chroot;      /* "/a/b": every path of the handle is below it */
  const char *vfs;         /* SQLite VFS name; SQLite's default.  It must not
                              rely on its files' pMethods staying the same */
  zke_watch_fn watcher;    /* default watcher for session events; none */
  void *watcher_context;
  zke_log_fn log; /* none */
  void *log_context;
  zke_allocator allocator; /* the C library's */
  const struct zke_os *os; /* system calls; the library's own; copied */
  int64_t timeout_ms;      /* for zke_open_session() and zke_attach(): makes a
                              kept session, which ends if not heard from for
                              this long; 0: none.  At most ZKE_MAX_TIMEOUT, not
                              with lease_ms */
  int64_t read_limit;      /* bytes of memory for the values and names of one
                         zke_multi_read(); no limit.  For a program that reads
                         for others: a short list can name a large node many
                         times */
} zke_options;

/* ------------------------------------------------------------------------
 * Opening and closing
 *
 * zke_open() makes a store (an SQLite connection and what belongs to it) with
 * one session.  zke_open_session() adds a session to the same store; for
 * ":memory:" this is the only way to share the tree.
 *
 * Example: open with a lease of ten seconds.  After a failure the handle is
 * NULL, which zke_close() accepts.
 *     zke_options options = ZKE_INIT(zke_options);
 *     options.lease_ms = 10000;
 *     options.identity = "indexer";
 *     rc = zke_open("app.db", &options, &z);
 *     zke_close(z);
 *
 * Threads: any.  In a callback: yes.  Blocks: on the disk.
 * --------------------------------------------------------------------- */

/* zke_open - open or create a database and begin a session
 *
 * Creates the file if it does not exist or is empty.  Next to it are SQLite's
 * "<name>-wal" and "<name>-shm", and the directory "<name>-zke" (gate, line and
 * liveness files, wake-up FIFOs).  They have the database's mode and group;
 * those of a new database come from the umask and the directory.  After a chmod
 * or chgrp of the database the others follow when their owner next opens it.  A
 * file that is not zkembed's is left as it was, and so is a log next to it.
 *   name     a path, or ":memory:" for a private tree without any file
 *   options  NULL for the defaults
 *   z_out    out, not NULL
 * Returns ZKE_OK, or
 *   ZKE_BADARGUMENTS  an option or the chroot is malformed; name is NULL
 *   ZKE_CANTOPEN      missing directory, a directory, no permission; a second
 *                     hard link, or a mount of the file alone; the absolute
 *                     path is too long for SQLite: over 504 bytes with its
 *                     usual VFS; with ZKE_OPEN_READONLY: an unusable -shm; a
 *                     name like "zk://…" without a registered engine
 *   ZKE_NOTADB        not an SQLite database, another application's, or of a
 *                     format from before the first release; with
 *                     ZKE_OPEN_HOST: a database that cannot hold the tables
 *   ZKE_NEWERFORMAT   written by a later version of zkembed
 *   ZKE_READONLY      the file or its directory cannot be written; the file's
 *                     header lets only a later SQLite write it
 *   ZKE_NETWORKFS     a network file system: WAL mode needs one kernel
 *   ZKE_REPLACED      the gate or liveness file is not the one its sessions use
 *   ZKE_FORKED        a forked child that cannot open it, see CAVEATS
 *   ZKE_SQLITEVERSION SQLite older than 3.37.2 or built without threads
 *   ZKE_CORRUPT, ZKE_FULL, ZKE_NOMEM, ZKE_SYSTEMERROR, ZKE_OPERATIONTIMEOUT */
ZKE_API int zke_open(const char *name, const zke_options *options, zke **z_out);

/* zke_open_session - another session on an open handle's store
 *
 * Only these options count: flags (ZKE_OPEN_LIGHT), lease_ms, timeout_ms,
 * event_limit, read_limit, identity, chroot, watcher and watcher_context; the
 * rest is the store's.  Close each session separately, in any order; the last
 * one closes the store.
 *
 * ZKE_OPEN_LIGHT: the session has no descriptors, so a program can have very
 *   many.  It lives by the lock of its carrier, and is woken and dispatched
 *   with it.  The carrier is z, or the carrier of z if z is light.
 *   - zke_fd() and zke_next_deadline() are the same for all of them.
 *     zke_dispatch() and zke_wait() on any of them call the watchers of all;
 *     zke_dispatch_to() on a light one calls only its own.
 *   - Only one thread at a time dispatches them.
 *   - The carrier's session may end first, even by zke_close().  The light ones
 *     live on: the carrier's lock and descriptors stay until the last of them
 *     is closed.
 *   - zke_keepalive_fd() of the carrier keeps all alive; a light one has none.
 * options.timeout_ms: a kept session, see zke_attach().
 *   z        any open handle of the store; not a read-only one
 *   options  NULL for the defaults
 *   z_out    out, not NULL
 *
 * Example: a session for each client of a server, dispatched by one call.
 *     zke *clients[100];
 *     zke_options light = ZKE_INIT(zke_options);
 *     light.flags = ZKE_OPEN_LIGHT;
 *     for (int i = 0; i < 100; i++) zke_open_session(z, &light, &clients[i]);
 *     rc = zke_dispatch(z, NULL);
 */
ZKE_API int zke_open_session(zke *z, const zke_options *options, zke **z_out);

/* zke_close - end the session and release the handle
 *
 * The session's ephemerals, watches and pending events are removed in one
 * transaction with one zxid.  Other threads' calls on the handle return
 * ZKE_CLOSING, and this call waits for them; watchers get no event.  The handle
 * is gone afterwards, whatever the result, except after ZKE_MISUSE.
 *
 * Returns ZKE_OK (even for NULL and for an expired session), or
 *   ZKE_FORKED   a child's copy; only the flag that says so is read
 *   other codes  the end could not be written.  Other processes will find the
 *                session dead and remove what it owned.  For a light or kept
 *                session the store's other handles in this process do this, in
 *                their calls and dispatches.  If the process ends or closes the
 *                last of them first, a kept session is detached instead
 * In a callback: no; and two threads must not close each other's handles from
 * callbacks.  Blocks: first until running callbacks, and calls of other threads
 * on the store, have returned; then on the disk. */
ZKE_API int zke_close(zke *z);

/* zke_session_id - the session's id; 0 for NULL and for a read-only handle
 *
 * Unique in the life of the database.  It is the ephemeralOwner in a Stat.
 * Blocks: no. */
ZKE_API int64_t zke_session_id(zke *z);

/* zke_state - ZKE_STATE_… as this handle knows it, without asking the file
 *
 * If another process ends the session, the state stays ZKE_STATE_CONNECTED
 * until a call or a dispatch of this handle finds out.  While other calls are
 * ZKE_MISUSE it is ZKE_STATE_CLOSED: in a function of zke_op_sql(), between
 * zke_sql_begin() and its end, in a batch of another store.  Blocks: no. */
ZKE_API int zke_state(zke *z);

/* zke_expire - end a session now, as ZooKeeper does on a missed timeout
 *
 * For tests and operators.  The session's ephemerals are removed in this call;
 * its owner gets ZKE_EVENT_SESSION with ZKE_STATE_EXPIRED at its next dispatch.
 * Each read and change that the owner begins after this call has returned is
 * refused.  On a file the first gets ZKE_SESSIONEXPIRED and the others
 * ZKE_INVALIDSTATE.  If the owner is in the process and store that made this
 * call, all get ZKE_INVALIDSTATE.
 *   session  id of any session of this database, also this handle's
 * Returns ZKE_OK, or ZKE_NONODE if there is no such session. */
ZKE_API int zke_expire(zke *z, int64_t session);

/* zke_free  - release what a call returned; NULL is fine
 * zke_alloc - a block of zeros for zke_free(), from the handle's allocator
 *             (which must then be thread-safe); NULL if there is no memory.
 *             For layers above the library.
 *
 * A block may be released on any thread, in any order, even after zke_close().
 * Blocks: no. */
ZKE_API void zke_free(void *block);
ZKE_API void *zke_alloc(zke *z, size_t size);

/* ------------------------------------------------------------------------
 * Nodes
 *
 * When a call returns, its changes of persistent state are on the disk.
 * Changes of ephemerals, sessions and watches alone are not synced, since these
 * die with the host anyway (P8).  Reads are linearizable.  Permissions are
 * checked as in ZooKeeper.  A watch is registered in the same transaction as
 * the read, so no change falls between them (P3).
 *
 * Parameters and results that mean the same in each function:
 *   data,len    a value; len -1 for NULL data, which is not empty data
 *   version     the version that the node must have, or -1 for any
 *   fn,context  a watcher; fn NULL registers nothing
 *   stat_out    out: the node's Stat after the change, or as it was read
 *   ZKE_NONODE      there is no such node; for a create, no parent
 *   ZKE_NOAUTH      the session lacks the permission: ZKE_PERM_READ for a read
 *   ZKE_BADVERSION  the node has another version
 *
 * Example: increment a number that other processes increment, too.  If one of
 * them writes after our read, the version differs and the write is refused:
 * reread.
 *     zke_stat stat;
 *     char *text, number[32];
 *     do {
 *       rc = zke_get(z, "/count", NULL, NULL, &text, NULL, &stat);
 *       if (rc != ZKE_OK) break;
 *       snprintf(number, sizeof number, "%d", text ? atoi(text) + 1 : 1);
 *       zke_free(text);
 *       rc = zke_set(z, "/count", number, (int)strlen(number), stat.version,
 *                    NULL);
 *     } while (rc == ZKE_BADVERSION);
 *
 * Threads: any.  In a callback: yes.  Blocks: on the disk.
 * --------------------------------------------------------------------- */

/* zke_create - make a node, in any mode without a TTL
 *
 *   path      of the new node; sequential: may end in '/', gets ten digits
 *   acls      not empty; usually ZKE_OPEN_ACL
 *   mode      ZKE_PERSISTENT to ZKE_CONTAINER
 *   path_out  out: the path created, with its sequence number
 *
 * Example: show others that this process is alive.  The node is removed when
 * the session is closed or the process dies.
 *     rc = zke_create(z, "/members/m-", NULL, -1, ZKE_OPEN_ACL,
 *                     ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL);
 *
 * Returns ZKE_OK, or in this order of checks (semantics.md 2.2)
 *   ZKE_BADARGUMENTS   mode, ttl, path; len below -1, over the data limit, or
 *                      above 0 with NULL data
 *   ZKE_INVALIDACL     no entry, or an invalid one (ZKE_MARSHALLINGERROR:
 *                      scheme world with a NULL id); over 1 MiB in the form of
 *                      format.md, after entries of scheme auth are expanded
 *   ZKE_NONODE
 *   ZKE_NOAUTH         no ZKE_PERM_CREATE on the parent
 *   ZKE_NODEEXISTS     (sequential: the name with its number is taken)
 *   ZKE_NOCHILDRENFOREPHEMERALS */
ZKE_API int zke_create(zke *z, const char *path, const void *data, int len,
                       const zke_acls *acls, int mode, char **path_out,
                       zke_stat *stat_out);

/* zke_create_ttl - make a node that expires
 *
 * Like zke_create(), but mode is ZKE_PERSISTENT_WITH_TTL or
 * ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL.  Once the node has no children and its
 * mtime is more than ttl_ms ago, the sweep of any process that waits or makes
 * calls removes it.  This removal, like a container's, is not synced: after a
 * power cut the node may be back until the next sweep.
 *   ttl_ms  1 to ZKE_MAX_TTL, else ZKE_BADARGUMENTS */
ZKE_API int zke_create_ttl(zke *z, const char *path, const void *data, int len,
                           const zke_acls *acls, int mode, int64_t ttl_ms,
                           char **path_out, zke_stat *stat_out);

/* zke_delete - remove a node without children
 *
 * Returns ZKE_OK, or in this order
 *   ZKE_BADARGUMENTS  the path; "/" and the /zookeeper nodes
 *   ZKE_NONODE        parent or node missing
 *   ZKE_NOAUTH        no ZKE_PERM_DELETE on the parent
 *   ZKE_BADVERSION
 *   ZKE_NOTEMPTY      it has children */
ZKE_API int zke_delete(zke *z, const char *path, int version);

/* zke_exists - a node's Stat, and a watch for its creation, change or deletion
 *
 * Needs no permission.
 *
 * Example: wait until a node is there, ten seconds at most, with any watcher.
 * Each zke_exists() sets the watch that ends the next sleep: nothing is missed.
 *     static int await(zke *z, const char *path, zke_watch_fn come) {
 *       int64_t end = zke_now(z) + 10000;
 *       int rc;
 *       do rc = zke_exists(z, path, come, NULL, NULL);
 *       while (rc == ZKE_NONODE && zke_wait(z, end) == ZKE_OK);
 *       return rc;
 *     }
 *
 * Returns ZKE_OK, or ZKE_NONODE, which registers the watch too. */
ZKE_API int zke_exists(zke *z, const char *path, zke_watch_fn fn, void *context,
                       zke_stat *stat_out);

/* zke_get - a node's data and Stat, and a watch for its change or deletion
 *
 *   data_out    out: the bytes, and a NUL that is not counted, for use as a
 *               string; NULL for NULL data
 *   len_out     out: bytes, or -1 for NULL data
 * Returns ZKE_OK, or ZKE_NONODE or ZKE_NOAUTH (which register nothing). */
ZKE_API int zke_get(zke *z, const char *path, zke_watch_fn fn, void *context,
                    char **data_out, int *len_out, zke_stat *stat_out);

/* zke_set - replace a node's data
 *
 * The same bytes still count as a change and fire watches.
 *
 * The version is raised by one.  It wraps: 2147483647 is followed by
 * -2147483648, and -2 by 0, since -1 means any.  Therefore any version that was
 * read can be passed back.  An aversion wraps likewise.
 *
 * Returns ZKE_OK, or in this order ZKE_BADARGUMENTS (as zke_create()),
 * ZKE_NONODE, ZKE_NOAUTH (no ZKE_PERM_WRITE), ZKE_BADVERSION. */
ZKE_API int zke_set(zke *z, const char *path, const void *data, int len,
                    int version, zke_stat *stat_out);

/* zke_children - names of a node's children, sorted by bytes, and a watch for
 * created and deleted children or the node's own deletion
 *
 * To watch the children's own changes, or nodes below them, use
 * zke_add_watch().
 *   names_out   out: all names, without the path; count 0 for a leaf.
 *               zke_op_children() reads a long list in parts
 * Returns ZKE_OK, or ZKE_NONODE or ZKE_NOAUTH (which register nothing). */
ZKE_API int zke_children(zke *z, const char *path, zke_watch_fn fn,
                         void *context, zke_strings **names_out,
                         zke_stat *stat_out);

/* zke_count - the number of all descendants of a node
 *
 *   count_out  out; 0 for a leaf; for "/" it includes /zookeeper's nodes
 * Returns ZKE_OK, ZKE_NONODE or ZKE_NOAUTH. */
ZKE_API int zke_count(zke *z, const char *path, int64_t *count_out);

/* zke_ephemerals - paths of a session's ephemeral nodes, sorted
 *
 *   session    a session id, or 0 for this handle's
 *   prefix     start of the paths: "/t/e" finds "/t/eph"; NULL, "", "/": all
 *   paths_out  out; count 0 for an unknown session or prefix.  With a chroot,
 *              only paths below it, relative to it */
ZKE_API int zke_ephemerals(zke *z, int64_t session, const char *prefix,
                           zke_strings **paths_out);

/* zke_sync - check the handle's state; replaces ZooKeeper's sync
 *
 * Reads here are linearizable, so there is nothing to wait for.  Checks whether
 * the session has ended, at most once a second.  The path may be missing or
 * invalid. */
ZKE_API int zke_sync(zke *z, const char *path);

/* ------------------------------------------------------------------------
 * Watches other than those of reading calls
 *
 * A reading call sets a watch that fires once.  Watches set here stay until
 * they are removed.  In both cases a watcher is a pair of function and context:
 * it is called once for an event, however many of its watches match.
 *
 * Example: print every change below a path for a minute.  After zke_forget()
 * has returned, the context is no longer used.
 *     static void tell(zke *z, int type, int state, const char *path,
 *                      void *context) {
 *       if (type == ZKE_EVENT_SESSION || type == ZKE_EVENT_OVERFLOW) return;
 *       printf("change %d: %s\n", ++*(int *)context, path);
 *       (void)z, (void)state;
 *     }
 *
 *     static void follow(zke *z) {
 *       int count = 0;
 *       int64_t end = zke_now(z) + 60000;
 *       zke_add_watch(z, "/config", ZKE_WATCH_PERSISTENT_RECURSIVE, tell,
 *                     &count);
 *       while (zke_wait(z, end) == ZKE_OK) continue;
 *       zke_forget(z, tell, &count);
 *     }
 *
 * Threads: any.  In a callback: yes.  Blocks: on the disk.
 * --------------------------------------------------------------------- */

/* zke_add_watch - set a watch that stays
 *
 * Needs no permission, but events of nodes that the session may not read are
 * not delivered.
 *   path        need not exist
 *   mode        ZKE_WATCH_PERSISTENT: CREATED, CHANGED, DELETED and CHILD of
 *               the node.  ZKE_WATCH_PERSISTENT_RECURSIVE: CREATED, CHANGED,
 *               DELETED of it and of all its descendants, never CHILD.  A later
 *               mode on the same path replaces the earlier, for all of the
 *               session's watchers there
 *   fn,context  the watcher; fn is not NULL
 * Returns ZKE_OK, ZKE_BADARGUMENTS (no fn), or ZKE_MARSHALLINGERROR (mode). */
ZKE_API int zke_add_watch(zke *z, const char *path, int mode, zke_watch_fn fn,
                          void *context);

/* zke_remove_watch - remove one watcher of a path, or all of them
 *
 * Removing a watcher sends it no event.
 *   type        ZKE_WATCH_CHILD, _DATA or _ANY
 *   fn,context  the pair as registered; fn NULL: all of this session
 * Returns ZKE_OK, ZKE_BADARGUMENTS (another type), or ZKE_NOWATCHER if none of
 * them is registered for the path and type. */
ZKE_API int zke_remove_watch(zke *z, const char *path, int type,
                             zke_watch_fn fn, void *context);

/* zke_forget - remove all watches of a watcher, and its zke_call_at()
 *
 * Call it before you free a context: afterwards the pair is neither called nor
 * running on another thread.  In a callback of this handle, the running call is
 * not waited for.  The caller must not hold a lock that the watcher takes.
 *   fn,context  the pair, as registered
 * Returns ZKE_OK, even if the pair was not registered.  Another code, except
 * ZKE_FORKED, ZKE_CLOSING and ZKE_MISUSE, means that the pair is forgotten but
 * its rows could not be removed: they fire without effect.
 * Blocks: also until the watcher has returned. */
ZKE_API int zke_forget(zke *z, zke_watch_fn fn, void *context);

/* ------------------------------------------------------------------------
 * Waiting
 *
 * Alone:          zke_wait(z, zke_now(z) + 500);
 * In a poll loop: poll {zke_fd, POLLIN}, at most until zke_next_deadline(),
 *                 then zke_dispatch().  The descriptor alone is enough, since
 *                 it includes a timer, unless options.os has no poller.
 *
 * Example: watch standard input and the session in one loop.
 *     struct pollfd fds[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
 *                             {.events = POLLIN}};
 *     rc = zke_fd(z, &fds[1].fd);
 *     while (rc == ZKE_OK && poll(fds, 2, -1) > 0 && !fds[0].revents)
 *       rc = zke_dispatch(z, NULL);
 *
 * Threads: any.  In a callback: yes.  Blocks: no.
 * --------------------------------------------------------------------- */

#define ZKE_FOREVER INT64_MAX

/* zke_now  - the handle's monotonic clock, ms
 * zke_wall - its wall clock, ms since 1970, as in ctime; it may be set
 *
 * Both use options.os: with a simulated clock they return its time.  0 for
 * NULL. */
ZKE_API int64_t zke_now(zke *z);
ZKE_API int64_t zke_wall(zke *z);

/* zke_fd - the descriptor that becomes readable when there is work
 *
 *   fd_out  out, not NULL.  The handle owns it; only poll it for reading */
ZKE_API int zke_fd(zke *z, int *fd_out);

/* zke_next_deadline - the latest time for the next zke_dispatch()
 *
 *   deadline_out  out, not NULL: ms of zke_now(), or ZKE_FOREVER */
ZKE_API int zke_next_deadline(zke *z, int64_t *deadline_out);

/* zke_dispatch - call the watchers of events that have arrived; never waits
 *
 * Takes the events that are in the file, at most about a thousand; later ones
 * leave the descriptor readable.  Returns immediately if another thread is
 * dispatching this session.  Also removes what zke_discard() could not.
 *   count_out  out: watchers called
 * Returns ZKE_OK, even when it delivered the session's end; ZKE_CONNECTIONLOSS
 * while the file cannot be reopened after an I/O error: the events stay.
 *
 * In a callback: yes, it takes events that arrived since.  A watcher that
 * always dispatches nests as deep as there are events; a level takes some 1.3
 * KiB of stack in addition to the watcher's own.  Blocks: no longer than a
 * read, unless there are dead sessions, expired nodes, or nodes to discard.
 * Then it makes the write that removes them, which is not synced and does not
 * wait for another process's write.  Ending a session takes some microseconds
 * for each node that it owned.  Expired nodes are removed for about 20 ms;
 * later dispatches continue. */
ZKE_API int zke_dispatch(zke *z, int *count_out);

/* zke_wait - sleep until something was dispatched, then return
 *
 * If several threads wait on a handle, one dispatches; then all others return.
 *   deadline_ms  of zke_now(); in the past: as zke_dispatch()
 * Returns ZKE_OK when at least one watcher ran, on this thread or another;
 * ZKE_OPERATIONTIMEOUT at the deadline.
 * Blocks: until the deadline.  A long call of another thread on the same store
 * does not make it fail earlier, but may delay its return. */
ZKE_API int zke_wait(zke *z, int64_t deadline_ms);

/* zke_turn      - a number that changes when a watcher has run; 0 for NULL
 * zke_wait_turn - as zke_wait(), but returns immediately if it has changed
 * zke_wake      - change it: every zke_wait() of this handle returns ZKE_OK
 *
 * If several threads use a handle, a watcher on one thread may change what
 * another thread checks before it waits.  So read the turn, check, then wait
 * for the next turn.
 *
 *     for (;;) {
 *       int64_t turn = zke_turn(z);
 *       if (done) break;
 *       zke_wait_turn(z, turn, deadline);
 *     }
 *
 *   turn  as zke_turn() returned it
 * Blocks: zke_wait_turn() until the deadline. */
ZKE_API int64_t zke_turn(zke *z);
ZKE_API int zke_wait_turn(zke *z, int64_t turn, int64_t deadline_ms);
ZKE_API int zke_wake(zke *z);

/* ------------------------------------------------------------------------
 * Several operations at once
 *
 * Fill an array of zke_op with the functions below, which set every member, and
 * pass an array of results of the same length.  An operation points to the
 * strings and data that it was given: they must live until the call returns.
 *
 * Example: move a job if it still has version 3, the version that was read.
 * The results are zeroed first, since some refusals leave them untouched.
 *     zke_op ops[2];
 *     zke_op_result results[2] = {{0}};
 *     zke_op_delete(&ops[0], "/todo/job", 3);
 *     zke_op_create(&ops[1], "/done/job", "ok", 2, ZKE_OPEN_ACL,
 *                   ZKE_PERSISTENT);
 *     rc = zke_multi(z, ops, 2, results);
 *     for (int i = 0; i < 2 && rc != ZKE_OK; i++)
 *       printf("%s: %s\n", ops[i].path, zke_error_text(results[i].rc));
 *     zke_results_clear(results, 2);
 *
 * Threads: any.  In a callback: yes.  Blocks: no, except for zke_multi() and
 * zke_multi_read(): on the disk.
 * --------------------------------------------------------------------- */

enum zke_op_type {
  ZKE_OP_CREATE = 1,
  ZKE_OP_DELETE = 2,
  ZKE_OP_SET = 3,
  ZKE_OP_CHECK = 4,
  ZKE_OP_GET = 5,
  ZKE_OP_CHILDREN = 6,
  ZKE_OP_UNTOLD = 7,
  ZKE_OP_FAIL = 8,
  ZKE_OP_SQL = 9
};

struct sqlite3;

/* A function of the program that runs its own SQL; see zke_op_sql(). */
typedef int (*zke_sql_fn)(struct sqlite3 *db, int64_t zxid, void *context);

typedef struct zke_op {
  int type; /* ZKE_OP_… */
  const char *path;
  const void *data;
  int len;
  const zke_acls *acls;
  int mode;
  int64_t ttl_ms; /* 0 in modes without a TTL */
  int version;
  int reserved_int; /* 0 */
  zke_sql_fn sql;   /* and its context */
  void *context;
  int64_t reserved[2];
} zke_op;

typedef struct zke_op_result {
  int rc;
  char *path;            /* create: the path made */
  zke_stat stat;         /* create, set, get, children */
  char *data;            /* get */
  int len;               /* get, untold */
  zke_strings *children; /* children, untold */
  int64_t reserved[4];
} zke_op_result;

/* zke_op_create and the like - fill an operation as a call of that name
 *
 * Errors are found by zke_multi(), for creates, delete, set and check, or by
 * zke_multi_read(), for get and children.  A check changes nothing; if it
 * fails, the others are refused. */
ZKE_API void zke_op_create(zke_op *op, const char *path, const void *data,
                           int len, const zke_acls *acls, int mode);
ZKE_API void zke_op_create_ttl(zke_op *op, const char *path, const void *data,
                               int len, const zke_acls *acls, int mode,
                               int64_t ttl_ms);
ZKE_API void zke_op_delete(zke_op *op, const char *path, int version);
ZKE_API void zke_op_set(zke_op *op, const char *path, const void *data, int len,
                        int version);
ZKE_API void zke_op_check(zke_op *op, const char *path, int version);
ZKE_API void zke_op_get(zke_op *op, const char *path);

/* zke_op_children - read the names of a node's children, all or some of them
 *
 * The cost depends on the names returned, not on the number of children.  The
 * Stat is that of the whole node.
 *
 * Example: list a directory of any size, a thousand names at a time.  Each page
 * is a snapshot of its own; a name created or deleted meanwhile may be missed.
 *     zke_op op;
 *     zke_op_result page = {0}, next;
 *     const char *after = NULL;
 *     for (int count = 1000; count == 1000;) {
 *       zke_op_children(&op, "/jobs", after, 1000);
 *       if (zke_multi_read(z, &op, 1, &next) != ZKE_OK) break;
 *       zke_results_clear(&page, 1);
 *       page = next;
 *       count = page.children ? page.children->count : 0;
 *       for (int i = 0; i < count; i++) puts(after = page.children->data[i]);
 *     }
 *     zke_results_clear(&page, 1);
 *
 *   after  begin after this text, compared by bytes; NULL: at the beginning
 *   most   at most this many names; 0: all that follow; below 0 the read is
 *          ZKE_BADARGUMENTS */
ZKE_API void zke_op_children(zke_op *op, const char *path, const char *after,
                             int most);

/* zke_multi - create, delete, set and check, all or nothing
 *
 * One transaction, one zxid, one timestamp; each operation sees the effects of
 * earlier ones (semantics.md 4).  A check requires that the node exists, is
 * readable, and has the version, or any for -1.
 *   ops, count  the operations; 0 is allowed
 *   results     out, count of them, or NULL; set also when an operation is
 *               refused: its own rc is the code, earlier ones have 0, later
 *               ones ZKE_RUNTIMEINCONSISTENCY.  Release with
 *               zke_results_clear()
 * Returns ZKE_OK, the code of the first operation refused (ZKE_INVALIDACL also
 *   if the ACLs of the creates up to it exceed 16 MiB), or, results untouched,
 *   ZKE_MARSHALLINGERROR  the session has expired, or the client refuses a path
 *   ZKE_BADARGUMENTS      an operation that this call does not accept, or with
 *                         reserved members that are not zero; data over the
 *                         limit, in one value or in sum.  (A name that only the
 *                         server refuses counts as a refused operation.) */
ZKE_API int zke_multi(zke *z, const zke_op *ops, int count,
                      zke_op_result *results);

/* zke_multi_read - get, children and untold of several paths in one snapshot
 *
 * Each operation has its own result; a failure does not affect the others.
 *   ops, count  the operations; 0 is allowed
 *   results     out, count of them, not NULL unless count is 0; each has its
 *               own rc.  Release with zke_results_clear()
 * Returns ZKE_OK whatever the results, ZKE_MARSHALLINGERROR as zke_multi() and
 * for an operation of another type, or ZKE_BADARGUMENTS for reserved members
 * that are not zero and for results over options.read_limit.  Results are read
 * one by one, and none after the first that exceeds it. */
ZKE_API int zke_multi_read(zke *z, const zke_op *ops, int count,
                           zke_op_result *results);

/* zke_results_clear - release what results own and set them to zero
 *
 * NULL and results of zeros are fine, so it may be called twice. */
ZKE_API void zke_results_clear(zke_op_result *results, int count);

/* ------------------------------------------------------------------------
 * Access control lists
 *
 * For programs and tests that rely on ZooKeeper's ACLs; the file's permissions
 * are the real boundary (doc/security.md).
 *
 * Example: a node that everyone may read, and only sessions with this password
 * may change.  The scheme auth stands for the identities of the session that
 * makes the node; zke_digest() makes the hash in the id of another user.
 *     const zke_acl entries[] = {{ZKE_PERM_ALL, "auth", ""},
 *                                {ZKE_PERM_READ, "world", "anyone"}};
 *     const zke_acls acls = {2, entries};
 *     rc = zke_add_auth(z, "digest", "ann:secret", 10);
 *     if (rc == ZKE_OK)
 *       rc = zke_create(z, "/ann", "", 0, &acls, ZKE_PERSISTENT, NULL, NULL);
 *
 * Threads: any.  In a callback: yes.  Blocks: no, except for zke_get_acl() and
 * zke_set_acl(): on the disk.
 * --------------------------------------------------------------------- */

/* zke_add_auth - add an identity to this session
 *
 *   scheme    "digest"
 *   cert,len  "user:password", any bytes
 * Returns ZKE_OK, or
 *   ZKE_BADARGUMENTS  scheme is NULL, len negative, a NUL in the user's name
 *   ZKE_AUTHFAILED    unknown scheme; the handle is dead from here on
 *                     (ZKE_STATE_AUTH_FAILED), as in ZooKeeper */
ZKE_API int zke_add_auth(zke *z, const char *scheme, const char *cert, int len);

/* zke_get_acl - a node's ACL
 *
 *   acls_out  out: one block.  Without ZKE_PERM_ADMIN digests read "user:x"
 *   stat_out  out: the node's Stat; its aversion is what zke_set_acl() compares
 * Returns ZKE_OK, ZKE_NONODE, or ZKE_NOAUTH (neither READ nor ADMIN). */
ZKE_API int zke_get_acl(zke *z, const char *path, zke_acls **acls_out,
                        zke_stat *stat_out);

/* zke_set_acl - replace a node's ACL; fires no watch
 *
 *   version   the aversion that the node must have, or -1 for any
 *   acls      not empty.  Scheme auth becomes the session's current identities
 *   stat_out  out: the Stat after the change
 * Returns ZKE_OK, or in this order ZKE_BADARGUMENTS, ZKE_INVALIDACL (as
 * zke_create()), ZKE_NONODE, ZKE_NOAUTH (no ADMIN), ZKE_BADVERSION. */
ZKE_API int zke_set_acl(zke *z, const char *path, int version,
                        const zke_acls *acls, zke_stat *stat_out);

/* ========================================================================
 * PART 2: for particular needs
 * ===================================================================== */

/* ------------------------------------------------------------------------
 * Several calls in one sync
 * --------------------------------------------------------------------- */

/* zke_batch - several calls, each with its own result, in one transaction
 *
 * Calls fn once, on this thread.  The calls that fn makes on this handle, and
 * on others of the same store, are the operations of the batch.  Each has its
 * own result, its own time, and its own zxid in their order, exactly as if it
 * stood alone; each sees the effects of those before it.  An operation that is
 * refused (ZKE_NONODE, ZKE_BADVERSION, …) has changed nothing, and the others
 * stand.  A zke_multi() in it is all or nothing.  Others see nothing of the
 * batch until fn has returned ZKE_OK and everything was committed together.  If
 * fn returns anything else, or if the process dies or the power fails before
 * that, nothing of the batch is left.  It costs one transaction, with one sync
 * if any change in it needs one; alone, durable changes cost about a sync each.
 *
 * Example: `zke_batch(z, put_jobs, NULL)` adds up to five missing jobs.
 *     static int put_jobs(zke *z, void *context) {
 *       for (char path[] = "/jobs/0"; path[6] < '5'; path[6]++) {
 *         int rc = zke_create(z, path, "run", 3, ZKE_OPEN_ACL, ZKE_PERSISTENT,
 *                             NULL, NULL);
 *         if (rc != ZKE_OK && rc != ZKE_NODEEXISTS) return rc;
 *       }
 *       return (void)context, ZKE_OK;
 *     }
 *
 * fn may call create, create_ttl, delete, set, set_acl, raise_sequence,
 *   discard, multi, all reads (with a watch, too), add_watch, set_watch,
 *   history_keep, and whatever does not block.  A watch is registered if the
 *   batch is committed, and reports what the batch changes after it.
 *   Identities that fn adds or removes stay so, even if the batch is undone.
 *   All other calls are ZKE_MISUSE: zke_batch, open, close, sync, wait,
 *   dispatch, sleep, expire, attach, detach, rearm, compact, check, forget,
 *   removing watches, and any call that would take the lock of another store.
 *   So is each call on a recipe's object except state and token: the batch may
 *   be undone, but not the call's result.
 * fn must be short, and must not wait for anything, least of all for a thread
 *   that uses the store.  While it runs, other threads' calls on this store
 *   wait, and so do all changes by other processes, each at most its own busy
 *   timeout; other processes' reads continue.  The leases of the store's other
 *   sessions are paused.
 * fn must return.  If it ends its thread (pthread_exit()) nothing of the batch
 *   is left, and the handle stays usable.  A child that fn forks may return
 *   from it and gets ZKE_FORKED; it cannot open a store until it execs.
 * An error that breaks the transaction (an I/O error, a full disk, usually also
 *   a lack of memory in SQLite) is the result of the call that met it, of all
 *   later ones, and of zke_batch(), whatever fn returns.  Earlier results are
 *   then void.
 *
 *   fn  called with z and context.  Any result but ZKE_OK undoes everything
 * Returns ZKE_OK, the result of fn, or the error that has broken the
 * transaction; or
 *   ZKE_BADARGUMENTS    fn is NULL
 *   ZKE_CONNECTIONLOSS  an I/O error at COMMIT: all changes were made or none
 * Threads: any.  In a callback: yes.  Blocks: on the disk, until fn is called;
 * the busy timeout does not bound fn. */
typedef int (*zke_batch_fn)(zke *z, void *context);
ZKE_API int zke_batch(zke *z, zke_batch_fn fn, void *context);

/* ------------------------------------------------------------------------
 * For layers between a program and the library, such as the recipes
 *
 * A layer's calls fail with their own sentences, have their own deadlines, and
 * must leave nothing if a reply was lost or a caller gave up.
 *
 * Threads: any.  In a callback: yes.  Blocks: no, unless a function says so.
 * --------------------------------------------------------------------- */

/* zke_zxid - the zxid of this thread's last call that read or changed the tree
 *
 * After a change: its own zxid, which no other change has (the operations of a
 * multi share one).  After a read, a refused change, and a call that registers
 * or removes a watch: the zxid of the last change in the state that the call
 * saw.  0: it saw none.  It was refused before that (an argument, the handle's
 * state, a lock not obtained in time), or its reply was lost; a zke_sync()
 * usually reads no state.
 *
 * Reads record it only after the thread has called this function once, and
 * leave 0 before, because after another process's commit this costs reading one
 * more page.  So call it once at the start of each thread that needs it.  Reads
 * and changes in a callback count as well, so a dispatch may leave another
 * value.  Calls that do not block leave it alone.
 *
 * Servers and caches use it to put replies and events into one order: events up
 * to a reply's zxid come before the reply, others after it (zke_dispatch_to()).
 */
ZKE_API int64_t zke_zxid(void);

/* zke_fail - set the sentence of zke_errmsg(), return the code
 *
 *   rc      the code that the caller is about to return
 *   format  as for printf(); zke_errmsg() may be among the arguments.  A
 *           sentence of more than 511 bytes is truncated
 * Returns rc. */
ZKE_API int zke_fail(int rc, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* zke_take_options - convert a caller's struct that begins with its size, from
 * any version, to this version's
 *
 *   given  the caller's; NULL: size set, all else zero
 *   out    out: this version's, size bytes
 *   name   of the struct, for the error sentence
 * Returns ZKE_OK, or ZKE_BADARGUMENTS: given->size is no version's size, so it
 * was not set; or a byte beyond this version's size is not zero, so the
 * caller's header is newer and asks for something unknown here. */
ZKE_API int zke_take_options(const void *given, void *out, size_t size,
                             const char *name);

/* zke_discard - make sure that an ephemeral node of this session is removed
 *
 * For a node that a program has made and must not keep, whatever happens.
 * Removes it now or as soon as possible.  An obstacle (a full disk, a stopped
 * writer, a lost reply) only delays this: the session remembers the node and
 * tries again, without a pause, at the beginning of each call that reads or
 * changes the tree (in a zke_batch(): that changes it) and in each
 * zke_dispatch() and zke_wait(), until it is gone.  Until then each change by
 * the session fails as this one did.  So the session makes no node while the
 * discarded one remains, and none is mistaken for it.
 * zke_next_deadline() and the descriptor show when the next try is due.  A
 * process that neither calls nor dispatches does not try.
 *
 * Example: the reply to a create was lost, so the node may exist or not, and
 * its number is unknown.  Give it up in either case.
 *     rc = zke_create(z, "/line/t-", NULL, -1, ZKE_OPEN_ACL,
 *                     ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL);
 *     if (rc == ZKE_CONNECTIONLOSS)
 *       zke_discard(z, "/line/t-", ZKE_EPHEMERAL_SEQUENTIAL, 0);
 *
 *   path   as it was given to zke_create().  If the node is missing or another
 *          session's, nothing is removed, and no zxid used.  A removal uses
 *          one.  Needs no permission, like a session's end
 *   mode   ZKE_EPHEMERAL: the node at path.  ZKE_EPHEMERAL_SEQUENTIAL: all
 *          nodes made with this path before their numbers, also by a create
 *          whose reply was lost.  (A node of the session that was made without
 *          a number counts, too, if its name ends in such a number.)
 *   czxid  the incarnation to remove, or 0 for any
 * Returns ZKE_OK when it is gone, or
 *   ZKE_BADARGUMENTS  another mode, or a malformed path
 *   other codes       the obstacle.  This session's next calls, or its end,
 *                     will still remove the node.  If there is no memory to
 *                     remember it and it cannot be removed now, the session
 *                     expires at its next call
 * Blocks: on the disk. */
ZKE_API int zke_discard(zke *z, const char *path, int mode, int64_t czxid);

/* zke_raise_sequence - raise the number of a node's next sequential child
 *
 * For a program that recreates a tree, for example from an export: no number of
 * the old tree is issued again.  The counter only ever rises; if it is higher
 * already, nothing is changed.  cversion and pzxid become what they would be if
 * children had been created and deleted.  Since none was, no watch fires.
 *   path      of the node, the parent-to-be
 *   next      the lowest number of its next sequential child, from 0 on
 *   stat_out  out: the node's Stat afterwards
 * Returns ZKE_OK, or in this order ZKE_BADARGUMENTS (next is negative),
 * ZKE_NONODE, ZKE_NOAUTH (no ZKE_PERM_CREATE), ZKE_NOCHILDRENFOREPHEMERALS.
 * Blocks: on the disk. */
ZKE_API int zke_raise_sequence(zke *z, const char *path, int next,
                               zke_stat *stat_out);

/* zke_op_untold - read what the session's watchers have not been told yet
 *
 * For a cache that reads again only what has changed.  Its watch of mode
 * ZKE_WATCH_PERSISTENT_RECURSIVE reports a change only after the change, so a
 * read may see changes that were not reported yet.  This operation, in the same
 * snapshot, lists them.  A node that no event names, reported or not, is
 * unchanged.
 *
 * The result's children are the paths of the session's undelivered events at
 *   the path and below it, in order, one for each event, including an event
 *   whose watchers are being called.
 * Its len counts the events since the session's beginning, on all paths, that
 *   some watcher has missed or will miss, because the session may not read the
 *   node or another watcher has ended its thread.  Only the difference from an
 *   earlier count has a meaning.
 * Its rc is ZKE_OK whether the path exists or not, or ZKE_RUNTIMEINCONSISTENCY
 *   if the answer is not known: there are more than `most`, or events were
 *   dropped (ZKE_EVENT_OVERFLOW will be delivered).
 *
 *   most  at most this many paths, 0 or more */
ZKE_API void zke_op_untold(zke_op *op, const char *path, int most);

/* zke_op_fail - an operation that is refused with this code
 *
 * For a program that passes on the operations of others, such as a server.  A
 * malformed or unknown operation makes zke_multi() refuse the whole call, but
 * ZooKeeper refuses only that operation.  Replace it with this one to get
 * ZooKeeper's results: zke_multi() checks earlier operations first, and changes
 * nothing; zke_multi_read() answers the others.
 *   rc  ZKE_BADARGUMENTS, ZKE_MARSHALLINGERROR, ZKE_UNIMPLEMENTED, or a code of
 *       ZooKeeper's from -100 to -199; for another code zke_multi() and
 *       zke_multi_read() return ZKE_BADARGUMENTS */
ZKE_API void zke_op_fail(zke_op *op, int rc);

/* zke_call_at - call a watcher at a given time
 *
 * The call is made once, with ZKE_EVENT_ALARM and the path "", in the first
 * zke_dispatch() or zke_wait() at that time or later, after the events that are
 * pending then.  So a program can try again without a thread that waits for it.
 * zke_next_deadline(), the descriptor and zke_wait() take the time into
 * account.  Until then the pair is told of the session's end, as if it had a
 * watch; after the session's end it is not called any more.
 *   when_ms     of zke_now(); in the past: in the next dispatch; ZKE_FOREVER:
 *               never, which cancels the call.  A pair has one time: a later
 *               call replaces the earlier
 *   fn,context  the pair; fn is not NULL.  Only its first call here allocates
 *               memory; zke_forget() removes the pair and releases it
 * Returns ZKE_OK, even after the session's end, or
 *   ZKE_BADARGUMENTS  fn is NULL
 *   ZKE_READONLY      a read-only handle, which dispatches nothing
 *   ZKE_NOMEM         at the pair's first call
 * In a callback: yes, in its own too.  Blocks: no, neither for the file nor for
 * another thread's call. */
ZKE_API int zke_call_at(zke *z, int64_t when_ms, zke_watch_fn fn,
                        void *context);

/* zke_sleep - sleep through options.os, and dispatch nothing
 *
 * For a pause between two tries; otherwise use zke_wait().  A lease is kept.
 *   deadline_ms  of zke_now(); in the past: does not sleep
 * Blocks: until the deadline; zke_close() waits for it. */
ZKE_API int zke_sleep(zke *z, int64_t deadline_ms);

/* zke_limit - give this thread's calls on a handle a common deadline
 *
 * From now on no call waits for other processes or threads beyond the deadline,
 * or longer than the busy timeout: instead it returns ZKE_OPERATIONTIMEOUT and
 * has changed nothing.  After the deadline, calls
 * still do what needs no waiting.  The limit does not apply to callbacks, to
 * calls described as "Blocks: no", and to zke_wait() and its like, which have
 * their own deadlines.
 *   deadline_ms  of zke_now(); ZKE_FOREVER removes the limit
 * Returns the previous deadline, to be restored afterwards; ZKE_FOREVER if
 * there was none.  Each thread has its own, on one handle at a time. */
ZKE_API int64_t zke_limit(zke *z, int64_t deadline_ms);

/* zke_busy_timeout - the store's busy_timeout_ms; 0 for ZKE_AT_ONCE and NULL */
ZKE_API int64_t zke_busy_timeout(zke *z);

/* ------------------------------------------------------------------------
 * For servers, which hold sessions for their clients
 *
 * A server has a session for each of its clients on one store, usually a light
 * one (ZKE_OPEN_LIGHT).  A client's session outlives its connection, and the
 * server, by its timeout (options.timeout_ms).  The server reports each sign of
 * life, attaches the session again when the client comes back, sets its watches
 * again, vouches for it, and dispatches up to a reply's zxid before the reply.
 *
 * Threads: any.  In a callback: yes.  Blocks: no, unless a function says so.
 * --------------------------------------------------------------------- */

/* zke_attach   - take over a kept session, with its id and password
 * zke_detach   - release the handle of a kept session, which lives on
 * zke_password - get the 16 bytes that are needed to attach it
 * zke_touch    - report that the session was heard from
 * zke_rearm    - give every detached session its full timeout again
 *
 * A kept session outlives its process.  It is for a server whose clients come
 * back to it, or to another server on the same file.  zke_open_session() with
 * options.timeout_ms begins one; it is light.  Its ephemerals stay while it
 * lives.  Watches, pending events and identities belong to the attachment and
 * end with it, as a connection's do in ZooKeeper.
 *
 * An attached session ends if the store that attached it does not hear from it
 *   for timeout_ms, through zke_touch() or a read or change with its handle.
 *   While the carrier's lock is held, only that store checks this, in
 *   zke_dispatch() and zke_wait() of the carrier.  Between two checks at most
 *   1.5 s count, even if the process was stopped for longer.
 * A detached session ends timeout_ms after zke_detach(), or after another
 *   process found the carrier dead; any process that sweeps ends it.  Time in
 *   which no process sweeps does not count, so a server that was the only
 *   process finds its clients' sessions again after it was down; zke_rearm() is
 *   for a server that was down while others went on.
 * Both end with zke_close() and zke_expire(); and with all other sessions when
 *   the host has rebooted or the file is a copy, since a power cut may have
 *   undone what they owned (P8).  A detached one also ends when files next to
 *   the database are removed (doc/format.md 1).  A handle whose authentication
 *   failed (zke_add_auth()) does not keep the session alive: its timeout runs.
 *
 *   z         zke_attach(): any handle of the store that takes the session,
 *             not a read-only one; zke_rearm(): any with a session; the others:
 *             the session's own handle
 *   session   its id, above 0
 *   password  16 bytes
 *   options   as for zke_open_session(), or NULL; timeout_ms 0: as it was
 *   z_out     out, not NULL.  The caller closes or detaches it
 *   out       out, not NULL: 16 bytes
 *
 * zke_attach() takes the session from its current handle, without asking.  The
 * old handle gets ZKE_EVENT_SESSION with ZKE_STATE_MOVED, and ZKE_SESSIONMOVED
 * from each call that begins after this one has returned, except zke_touch()
 * and zke_password(), which do not check.  Close the old handle; this does not
 * end the session.
 * zke_detach() releases the handle as zke_close() does, whatever the result,
 * except after ZKE_MISUSE and ZKE_BADARGUMENTS.  Nodes that zke_discard() has
 * not removed yet are removed in the same step.  If the file could not be
 * written, the session is detached later, and keeps the discarded nodes.
 *
 * Example: a client's session that another process can attach.
 *     unsigned char password[16];
 *     zke_options kept = ZKE_INIT(zke_options);
 *     zke *client = NULL;
 *     kept.timeout_ms = 10000;
 *     rc = zke_open_session(z, &kept, &client);
 *     int64_t id = zke_session_id(client);
 *     if (rc == ZKE_OK) rc = zke_password(client, password);
 *     if (rc == ZKE_OK) rc = zke_detach(client);
 *     if (rc == ZKE_OK) rc = zke_attach(z, id, password, NULL, &client);
 *
 * Returns ZKE_OK, or
 *   ZKE_SESSIONEXPIRED  there is no such session (any more); zke_touch() and
 *                       zke_password() do not check, and return ZKE_OK then;
 *                       zke_detach(): or it has ended the session, since an
 *                       earlier zke_discard() had run out of memory
 *   ZKE_AUTHFAILED      it has another password, or none
 *   ZKE_BADARGUMENTS    the handle's session is not a kept one (zke_touch()
 *                       accepts that); options.lease_ms; no password, or an
 *                       invalid id; z_out or out is NULL
 *   ZKE_CONNECTIONLOSS  zke_attach(): the outcome is unknown; attach it again.
 *                       If a handle of this store had the session, that handle
 *                       has moved, unless the file cannot be written at all
 * In a callback: yes, zke_detach() no.  Blocks: no, zke_attach(), zke_detach()
 * and zke_rearm() on the disk. */
ZKE_API int zke_attach(zke *z, int64_t session,
                       const unsigned char password[16],
                       const zke_options *options, zke **z_out);
ZKE_API int zke_detach(zke *z);
ZKE_API int zke_password(zke *z, unsigned char out[16]);
ZKE_API int zke_touch(zke *z);
ZKE_API int zke_rearm(zke *z);

/* zke_keepalive_fd - a descriptor that keeps the session alive
 *
 * A child that inherits it (clear FD_CLOEXEC there) keeps the session alive
 * after its parent's death, until the child is gone, too.  This is for a
 * program that works under the session's lock.  zke_close() still ends the
 * session.
 *   fd_out  out, not NULL: a duplicate, close-on-exec, for the caller to close
 * Returns ZKE_OK, or ZKE_UNIMPLEMENTED for ":memory:" or a light session. */
ZKE_API int zke_keepalive_fd(zke *z, int *fd_out);

/* zke_vouch - give this session an identity that the program has verified
 *
 * For a program that knows by other means for whom it acts, such as a server
 * that has seen a client's address, Kerberos name or certificate.  The library
 * cannot ask for proof: whoever may open the file may claim anything
 * (doc/security.md).
 *
 * After the first call, the scheme is valid in the ACLs that this process
 * writes with any handle of this store.  An entry of such a scheme matches a
 * session that has the same scheme and the same id, as text.  In a process that
 * does not vouch for the scheme, an entry matches no session: zke_get_acl()
 * shows it, and a list that contains it cannot be written.  An entry of scheme
 * auth stands for all identities of the session except for ZooKeeper's own two
 * schemes:
 *   ip      an entry's id is an IPv4 address "10.1.2.3", or has a prefix
 *           length, "10.1.0.0/16", else ZKE_INVALIDACL; a session's id is an
 *           address; another text matches nothing
 *   super   passes every check, whatever the id; not allowed in lists
 *
 *   scheme  1 to 15 bytes without ':' and newline; not "world" or "auth"
 *   id      any text; of scheme digest "user:hash".  An id that the session
 *           already has changes nothing.  NULL: the session gets no identity,
 *           and only the scheme becomes valid, for lists of others
 * Returns ZKE_OK, or ZKE_BADARGUMENTS (scheme is NULL or not such a name; an id
 * of scheme digest without its hash). */
ZKE_API int zke_vouch(zke *z, const char *scheme, const char *id);

/* zke_digest - the hash that names a user and a password in an ACL
 *
 * The base64 of the SHA-1 of "user:password", as ZooKeeper's
 * DigestAuthenticationProvider.generateDigest() makes it.  "user:hash" is the
 * id of an ACL entry of scheme digest, for a user other than this session's.
 *   cert,len  "user:password", any bytes; len below 1, or cert NULL: empty
 *   out       out; 28 characters and a NUL */
enum { ZKE_DIGEST_SIZE = 29 };
ZKE_API void zke_digest(const char *cert, int len, char out[ZKE_DIGEST_SIZE]);

/* zke_clear_auth - remove all identities from this session
 *
 * This includes the identities of zke_add_auth() and of zke_vouch(): from now
 * on the session may do only what everyone may.  For a session that is used for
 * another user, or on another connection.  Valid schemes stay valid.  Whether a
 * pending event is delivered depends on the identities at its dispatch. */
ZKE_API int zke_clear_auth(zke *z);

/* zke_usage - how much a node and all of its descendants hold
 *
 * These are the numbers that ZooKeeper's quotas limit.  Each call counts the
 * nodes, which takes about 2 milliseconds for 10,000.
 *   count_out  out: nodes, including the node itself
 *   bytes_out  out: bytes of their data
 * Returns ZKE_OK, ZKE_NONODE or ZKE_NOAUTH.  Blocks: on the disk. */
ZKE_API int zke_usage(zke *z, const char *path, int64_t *count_out,
                      int64_t *bytes_out);

/* zke_set_watch - set a watch again that was set before
 *
 * ZooKeeper's setWatches, for one watch: a client sends it when it comes back,
 * with the zxid of the last state that it has seen.  If the node has changed
 * since, the watcher gets its event in the next dispatch; otherwise the watch
 * is registered, and fires once.  Of several changes only the last state is
 * known: a node that was deleted and made again counts as changed.
 *   type        ZKE_WATCH_DATA, of zke_get(), or zke_exists() of a node there:
 *               DELETED if it is missing, CHANGED if it was set after the zxid
 *               ZKE_WATCH_EXIST, of zke_exists() of a missing node: CREATED
 *               if it is there, whatever the zxid
 *               ZKE_WATCH_CHILD, of zke_children(): DELETED if it is missing,
 *               CHILD if a child was created or deleted after the zxid
 *   zxid        as zke_zxid() gave it
 *   fn,context  the watcher; fn is not NULL
 *
 * Needs no permission, as in ZooKeeper: it was checked when the watch was first
 * set, and an event in the next dispatch tells no more than zke_exists().  The
 * zke_event_zxid() of this event is that of the state that this call saw, which
 * zke_zxid() returns afterwards.  Later events are delivered only if the
 * session may read the node then.  A watch that stays misses the changes before
 * zke_add_watch() sets it again.
 *
 * Returns ZKE_OK, or ZKE_BADARGUMENTS (fn is NULL, another type), which
 * registers nothing.  See semantics.md 5.9.  Blocks: on the disk. */
ZKE_API int zke_set_watch(zke *z, const char *path, int type, int64_t zxid,
                          zke_watch_fn fn, void *context);

/* zke_check_watch - is this watcher registered?
 *
 *   type        ZKE_WATCH_CHILD, _DATA or _ANY
 *   fn,context  the pair; fn NULL: any watcher of this session
 * Returns ZKE_OK, ZKE_NOWATCHER, or ZKE_BADARGUMENTS (another type).  A watcher
 * counts as registered until its pending event has been dispatched.  Only this
 * handle's watchers count; ZooKeeper's checkWatches also succeeds if another
 * connection watches the path (semantics.md 5.6). */
ZKE_API int zke_check_watch(zke *z, const char *path, int type, zke_watch_fn fn,
                            void *context);

/* zke_set_watcher - replace the handle's default watcher, or remove it (NULL)
 *
 * It is told of the session's end and of each ZKE_EVENT_OVERFLOW, whatever
 * watches there are.  A dispatch on another thread may still call the old one.
 */
ZKE_API int zke_set_watcher(zke *z, zke_watch_fn fn, void *context);

/* zke_pending - is there something to dispatch?
 *
 * Cheaper than a dispatch that finds nothing, for a program with its own loop.
 *   pending_out  out, not NULL: 1 if the descriptor is readable or the deadline
 *                has come, even if a dispatch finds nothing to call; else 0 */
ZKE_API int zke_pending(zke *z, int *pending_out);

/* zke_dispatch_to - as zke_dispatch(), but only events of changes up to a zxid
 * zke_event_zxid  - in a watcher: the zxid of the change it is told of
 *
 * When zke_dispatch_to() has returned, every event of a change up to that zxid
 * has been delivered, however many there are.  Later events wait, and keep the
 * descriptor readable.  These are delivered whatever the zxid: the session's
 * end, due alarms (zke_call_at()), and a ZKE_EVENT_OVERFLOW, since it replaced
 * earlier events.
 *
 * With it a server sends events and replies in ZooKeeper's order: the events of
 * what a reply shows come before it, and no event comes before the reply that
 * registered its watch:
 *
 *     rc = zke_get(z, path, send_event, client, NULL, NULL, NULL);
 *     if (zke_zxid()) zke_dispatch_to(z, zke_zxid(), NULL, NULL);
 *     send_reply(client, rc);
 *
 *   zxid       of a state that this process has seen, as zke_zxid() returns it
 *   count_out  out: watchers called
 *   more_out   out: 1 if later events may be left, or if nothing was done
 *              because another thread is dispatching this session; else 0
 *
 * zke_event_zxid() is 0 if the event is no change (the session's end, an
 * alarm), and outside of the watchers of this handle.
 * Blocks: as zke_dispatch(); zke_event_zxid() does not. */
ZKE_API int zke_dispatch_to(zke *z, int64_t zxid, int *count_out,
                            int *more_out);
ZKE_API int64_t zke_event_zxid(zke *z);

/* ------------------------------------------------------------------------
 * The program's own data
 *
 * The tree may be in the same database as the program's own tables, and one
 * transaction may change both: an order and the item that announces it, a
 * result and the end of the job, a row that only the holder of a lock may
 * write.  There are three ways, from the inside out:
 *   zke_op_sql()      the program's statements in the engine's transaction
 *   zke_sql_begin()   a transaction on the program's own connection, which
 *                     waits in the writers' line like all others
 *   any SQLite        of any program; a trigger can refuse writes with a token
 *                     that is not in office (the view zke_tokens)
 *
 * zke_open() with ZKE_OPEN_HOST makes the tables of zkembed in an existing
 * database, or in a new one; the header (application_id and user_version) stays
 * the program's.  The database's texts must be UTF-8, and no name of its
 * tables, indices and views may begin with "zkembed_" or "zke_"; otherwise the
 * database is refused before anything in it is changed (ZKE_NOTADB).  Do not
 * give a table such a name later, though SQLite permits it.  The database is
 * switched to write-ahead logging and stays so.  Once the tables exist, no flag
 * is needed.  zke_compact() is SQLite's VACUUM, of the whole file: rowids of
 * tables without an INTEGER PRIMARY KEY may change.
 *
 * A second file with ATTACH is not supported: in WAL mode SQLite commits each
 * file separately, and a kill in between leaves one changed and the other not.
 * See doc/recipes.md (fence), and jobs.c and outbox.c in doc/examples.
 *
 * Threads: any, and for a db any that may use it.
 * --------------------------------------------------------------------- */

/* zke_op_sql - the program's own SQL as an operation
 *
 * zke_multi() calls fn in its turn: fn's changes of the program's own tables
 * are committed with the other operations or not at all, by one sync, and
 * processes that these wake see the changes.  In zke_multi_read() fn reads the
 * same snapshot.
 *
 * Example: run a text, such as `zke_op_sql(&ops[0], run, "DELETE FROM t")`.
 *     static int run(struct sqlite3 *db, int64_t zxid, void *text) {
 *       return (void)zxid, sqlite3_exec(db, text, NULL, NULL, NULL);
 *     }
 *
 *   fn  is given the engine's connection, the zxid of the transaction or of the
 *       snapshot, and context.  It returns ZKE_OK (which is SQLITE_OK), or
 *       another code.  With another code zke_multi() undoes the transaction,
 *       and the code is the result of the operation and of the call; in
 *       zke_multi_read() it is the result of the operation alone.  Codes above
 *       0, such as SQLite's, ZooKeeper's from -100 to -199, and codes from -300
 *       down are passed on as they are; any other becomes ZKE_SQL.
 *       zke_errmsg() is the sentence that fn set with zke_fail(), else
 *       SQLite's.
 *
 * fn may prepare, step and finalize any statement that SQLite has, on all
 *   tables except ours: tables, indices and views named "zkembed_…" or "zke_…"
 *   can only be read, except for the programs' outbox, "zkembed_outbox"
 *   (doc/format.md).  Refused (SQLITE_AUTH) are BEGIN, COMMIT, ROLLBACK,
 *   ATTACH, DETACH, PRAGMA, ANALYZE and REINDEX of all tables, and ALTER TABLE
 *   of a TEMP table; in zke_multi_read() any write.  SAVEPOINTs are fine, and
 *   end with fn.  fn registers the SQL functions and collations that it needs
 *   each time: the connection may differ from the last one.
 * fn cannot use virtual tables that keep their own statements, as FTS and
 *   R-Tree do: these count as not finalized.  Use zke_sql_begin() for them.
 * fn must not keep the connection or a statement: a statement that is not
 *   finalized when fn returns fails the operation with ZKE_MISUSE.  It must not
 *   set hooks, handlers, or an authorizer; limits (sqlite3_limit()) end with
 *   fn.  It must not open a blob for writing, deserialize, or copy a backup
 *   into the connection: SQLite calls no authorizer for these.  Calls of the
 *   library on a handle are ZKE_MISUSE, except calls that need no lock:
 *   zke_fail(), zke_now(), zke_touch(), zke_wake(), zke_call_at() and the like,
 *   but not zke_state().  fn must not wait for anything, as in zke_batch(), or
 *   end its thread.  A child that fn forks must not return from it.
 * zke_multi() calls fn once.  But if a reply is lost and nothing was changed, a
 *   recipe calls it again; at most one of the calls changes the database.
 *
 * A transaction with SQL is synced like one that changes a persistent znode,
 * unless options.durability is ZKE_DURABLE_NONE.  In a callback: yes.  Blocks:
 * no. */
ZKE_API void zke_op_sql(zke_op *op, zke_sql_fn fn, void *context);

/* zke_sql_adopt - prepare a connection of the program's to write to the file
 *
 * Call it for every connection that this process opens to the file.
 *
 * The connection makes no more checkpoints, neither after a commit nor when it
 * is closed: SQLite runs its own while others write, and SQLite up to 3.51.2
 * can then lose a commit (P12).  Its commits are synced: its PRAGMA synchronous
 * becomes FULL, whatever SQLite was built with, unless it is EXTRA or
 * options.durability is ZKE_DURABLE_NONE.  The program may lower it afterwards;
 * a power cut can lose the latest commits then.
 *
 * Write with zke_sql_begin() and zke_sql_commit().  Any other write on the
 * connection, in autocommit or with the program's own COMMIT, does not wait in
 * the writers' line.  And if its sync fails, zkembed does not learn of it and
 * does not recover: then a power cut can take others' later commits, even if
 * acknowledged.
 *
 * The connection gets the handle's busy timeout, and an SQL function:
 * zke_claim(path, token) is 1 if the token is in office at the path, as in the
 * view zke_tokens, and fails the statement otherwise.  It refuses the readers
 * of a read/write lock, which may not write.  One call at the beginning of a
 * transaction costs less than a trigger that runs for each row.
 *   db  a connection that the program has opened, in no transaction; it stays
 *       the program's.  It must be of zkembed's SQLite library (see CAVEATS; a
 *       language with its own SQLite uses the file from another process, or
 *       through the command zke).  The program must not set automatic
 *       checkpoints afterwards; zke_sql_begin() replaces its WAL hook
 * Returns ZKE_OK, or
 *   ZKE_BADARGUMENTS  db is NULL, or to another file; z is NULL
 *   ZKE_SYSTEMERROR   db is in a transaction, and synchronous below FULL
 *   ZKE_NOMEM, or what a read returns
 * In a callback: yes.  Blocks: on the disk, and for the busy timeout if another
 * connection has locked the file; other threads' calls on z's store wait. */
ZKE_API int zke_sql_adopt(zke *z, struct sqlite3 *db);

/* zke_sql_begin - begin a transaction that writes, in the writers' line
 *
 * A plain BEGIN IMMEDIATE gets its turn among our writers only by chance, and
 * may starve.  This call waits in their line, then begins.  The program may
 * then use db as it likes.  It must end the transaction with zke_sql_commit()
 * or zke_sql_rollback(), on the same thread and soon: until then no one else
 * can write, calls of other threads on the store of z wait, and this thread's
 * cancellation is deferred.  Until then calls of the library on this thread are
 * ZKE_MISUSE, except calls that need no lock, which zke_op_sql() names.  If the
 * thread ends first, the transaction is undone and the handle stays usable.
 * The commit is synced, as zke_sql_adopt() says.  Do not finalize our two
 * statements in db.
 *   db  as zke_sql_adopt() was given it
 * Returns ZKE_OK, or, with nothing begun,
 *   ZKE_BADARGUMENTS      as zke_sql_adopt()
 *   ZKE_OPERATIONTIMEOUT  the line and SQLite's lock together took the busy
 *                         timeout.  (A busy handler that the program has set on
 *                         db may wait longer.)
 *   ZKE_SESSIONEXPIRED    the session of z has ended
 *   ZKE_MISUSE            in a batch, or begun already
 *   or what a change returns if its transaction cannot begin
 * In a callback: yes; end it there, too.  Blocks: on the disk. */
ZKE_API int zke_sql_begin(zke *z, struct sqlite3 *db);

/* zke_sql_commit, zke_sql_rollback - end the transaction of zke_sql_begin()
 *
 * Both end it whatever they return: if COMMIT fails, it is rolled back.
 *   z, db  those of zke_sql_begin()
 * Returns ZKE_OK, or
 *   ZKE_MISUSE          this thread has begun nothing with that pair
 *   ZKE_SQL             a deferred constraint; all is undone
 *   ZKE_SYSTEMERROR     SQLite, or the program, has ended it before
 *   ZKE_CONNECTIONLOSS  an I/O error, or no memory, at COMMIT; also a full
 *                       disk, if the VFS has no powersafe overwriting.  It is
 *                       unknown whether it committed; the store recovers before
 *                       the next change is acknowledged
 *   ZKE_FORKED          in a child of the thread; nothing is done
 *   ZKE_FULL, …         all is undone
 * Threads: that of zke_sql_begin().  Blocks: on the disk. */
ZKE_API int zke_sql_commit(zke *z, struct sqlite3 *db);
ZKE_API int zke_sql_rollback(zke *z, struct sqlite3 *db);

/* zke_remove_tables - take zkembed out of a database of the program's
 *
 * Drops everything that ZKE_OPEN_HOST has made, including the tree.  The
 * program's tables stay, and so does write-ahead logging.  Close the handle,
 * which behaves as if its file was removed; then "<name>-zke" may be deleted.
 *
 * Returns ZKE_OK, or, with nothing changed,
 *   ZKE_BADARGUMENTS  the file is zkembed's own
 *   ZKE_NOTEMPTY      other sessions, of any process, live or are kept; or the
 *                     program's triggers or views use the tables
 *   or what any change returns
 * Threads: any.  In a callback: no.  Blocks: on the disk. */
ZKE_API int zke_remove_tables(zke *z);

/* ------------------------------------------------------------------------
 * Inspection
 *
 * SQL can read the same data from the views zke_nodes, zke_sessions,
 * zke_watches, zke_events and zke_waiters (doc/format.md).  Paths here are
 * whole, whatever the chroot.
 *
 * Threads: any.  In a callback: yes.  Blocks: on the disk.
 * --------------------------------------------------------------------- */

typedef struct zke_session_info {
  int64_t id;
  const char *identity;
  int64_t pid;        /* in its own PID namespace; for display only */
  int64_t started_ms; /* ms since 1970 */
  int64_t lease_ms;   /* 0: none */
  int alive;          /* 1 while its liveness lock is held */
  int ephemerals;     /* nodes it owns */
  int watches;        /* rows it has registered */
  int events;         /* pending */
  int64_t carrier;    /* a light session's: by whose lock it lives; else 0 */
  int64_t timeout_ms; /* a kept session's; without a carrier it is detached */
  int64_t reserved[2];
} zke_session_info;

typedef struct zke_session_list {
  int count;
  const zke_session_info *data;
} zke_session_list;

/* A watch: its session, and the session that it waits for, if any. */
typedef struct zke_watch_info {
  int64_t session;
  const char *path;
  int type;      /* ZKE_WATCH_CHILD or ZKE_WATCH_DATA */
  int mode;      /* -1 one-shot, or ZKE_WATCH_PERSISTENT… */
  int64_t owner; /* another session, if it owns the node; else 0 */
  int64_t reserved[4];
} zke_watch_info;

typedef struct zke_watch_list {
  int count;
  const zke_watch_info *data;
} zke_watch_list;

/* zke_sessions - one session, or all of them, sorted by id
 * zke_watches  - all watches, sorted by path
 *   session   its id, or -1 for all
 *   list_out  out, not NULL: one block
 * Returns ZKE_OK, ZKE_NONODE (there is no session of that id), or
 * ZKE_BADARGUMENTS (list_out is NULL). */
ZKE_API int zke_sessions(zke *z, int64_t session, zke_session_list **list_out);
ZKE_API int zke_watches(zke *z, zke_watch_list **list_out);

/* ------------------------------------------------------------------------
 * History and upkeep
 *
 * A database can record which nodes were created, changed or deleted, by whom
 * and when; this costs one more row per change.  It is a setting of the
 * database, so it holds for all processes.  Values are not recorded.  SQL reads
 * the history from the view zke_history or its table (doc/format.md).
 *
 * Threads: any.  In a callback: yes.  Blocks: on the disk.
 * --------------------------------------------------------------------- */

/* zke_history_keep - start a history, change its limits, or end it
 *
 * Rows beyond either limit are removed, oldest first, some with each change.
 *   rows  keep about this many rows; 0: any number
 *   ms    keep rows for about this long; 0: for ever.  Both 0: no history, and
 *         all its rows are dropped in this change: the more there are, the
 *         longer other writers wait
 * Returns ZKE_OK, ZKE_BADARGUMENTS (below 0), or what a durable change does. */
ZKE_API int zke_history_keep(zke *z, int64_t rows, int64_t ms);

/* zke_overdue - is there anything for the next sweep to remove?
 *
 * That is a session with a dead process or an expired lease, or an expired
 * node.  A read-only handle shows them until another process has removed them;
 * if no other process is running, open a handle with a session.
 *   overdue_out  out, not NULL: 1 or 0 */
ZKE_API int zke_overdue(zke *z, int *overdue_out);

/* zke_check - verify the database against its numbered invariants; only reads
 *
 * SQLite's quick check, then the invariants of doc/format.md, in one snapshot.
 *   fn  called for each violation with a sentence that begins with the
 *       invariant's name; may be NULL.  It must not call zkembed
 * Returns ZKE_OK, or for violations ZKE_DATAINCONSISTENCY or ZKE_CORRUPT. */
typedef void (*zke_check_fn)(void *context, const char *sentence);
ZKE_API int zke_check(zke *z, zke_check_fn fn, void *context);

/* zke_compact - return the space of removed nodes to the file system
 *
 * By itself the file never shrinks: it keeps the pages of removed nodes for new
 * ones.  This call rewrites the file without them.  No node, Stat, zxid,
 * session or watch changes, and no watcher is called.  If the process is killed
 * meanwhile, the database is as it was, or compacted.
 *
 * Space: the call needs the size of the new file next to the database (for the
 *   -wal), and again in SQLite's directory for temporary files: the first of
 *   SQLITE_TMPDIR, TMPDIR, /var/tmp, /usr/tmp and /tmp that can be written.
 * Others: each change by another process waits, at most its own
 *   busy_timeout_ms, and then fails with ZKE_OPERATIONTIMEOUT; reads there
 *   continue.  Other calls on this store wait, reads too; its leases do not run
 *   out.
 *
 *   deadline_ms  of zke_now(): bounds the wait for others and the copying into
 *                the temporary file, but not the writing into the log after it
 * Returns ZKE_OK, or
 *   ZKE_OPERATIONTIMEOUT  the deadline came, and nothing was changed; or a
 *                         reader (a zke_check(), a backup, a foreign program)
 *                         keeps the log from being emptied, and the file
 *                         shrinks at a later checkpoint, if at all
 *   ZKE_FULL              one of the two places is full; nothing was changed
 *   ZKE_UNIMPLEMENTED     ":memory:"
 * In a callback: no.  Blocks: see above. */
ZKE_API int zke_compact(zke *z, int64_t deadline_ms);

/* ------------------------------------------------------------------------
 * For tests
 * --------------------------------------------------------------------- */

enum {
  ZKE_TEST_FAIL_BEFORE = 1,
  ZKE_TEST_FAIL_AFTER = 2,
  ZKE_TEST_FAIL_READ = 3
};

/* zke_test_fail - lose the reply of a coming change or read
 *
 * Of the session's next changes (create, delete, set, multi, set_acl, discard,
 * raise_sequence, batch), number skip+1 returns ZKE_CONNECTIONLOSS, before or
 * after it took effect, as if the connection to a server had broken.  A change
 * that would have been refused loses its reply, too.  A batch counts as one
 * change; the calls inside count neither as changes nor as reads.  If a batch
 * is lost before it takes effect, its function is called and then everything is
 * undone.  The reads that count are ZooKeeper's (exists, get, children, with a
 * watch and without, count, usage, ephemerals, get_acl, multi_read); a read
 * that loses its reply registers no watch.  doc/start.md has an example.
 *   when  ZKE_TEST_FAIL_BEFORE, _AFTER or _READ; 0 cancels a pending one
 *   skip  changes, or reads, that go through first
 * Threads: any.  In a callback: yes.  Blocks: no. */
ZKE_API int zke_test_fail(zke *z, int when, int skip);

/* ------------------------------------------------------------------------
 * The operating system, as a table
 *
 * The library makes all of its system calls through this table.  Tests can make
 * the n-th call fail, and simulators can replace the clock (doc/start.md has an
 * example).  SQLite's calls go through its VFS.  Put the table into
 * zke_options.os.  If a member is NULL, or missing in the caller's header, the
 * library uses its own function.
 *
 * Functions return a value >= 0, or the negative of an errno.  Only poll may be
 * interrupted by a signal; only poll, sleep and the disk may wait.
 *
 * A program that replaces the clock waits with zke_wait(), or polls until
 * zke_next_deadline(): the timer of zke_fd() uses the system's clock.  Threads
 * that wait for one another on one handle use it, too.
 *
 * Both functions.  Threads: any.  In a callback: yes.  Blocks: no.
 * --------------------------------------------------------------------- */

enum {
  ZKE_CLOCK_MONOTONIC = 0,
  ZKE_CLOCK_REALTIME = 1,
  ZKE_CLOCK_BOOTTIME = 2
};
enum { ZKE_LOCK_NONE = 0, ZKE_LOCK_EXCLUSIVE = 1 };
enum {
  ZKE_FILE_REGULAR = 1,
  ZKE_FILE_DIRECTORY = 2,
  ZKE_FILE_OTHER = 3,
  ZKE_FILE_FIFO = 4
};

typedef struct zke_file {
  uint64_t device, inode;
  int64_t size;
  unsigned mode; /* permission bits */
  unsigned uid, gid;
  int type;       /* ZKE_FILE_… */
  unsigned links; /* names that the file has; 0: not known */
  uint64_t mount; /* number of the mount that it is on; 0: not known */
  int64_t reserved[4];
} zke_file;

struct pollfd;

typedef struct zke_os {
  size_t size;
  void *context; /* first argument of each */
  /* flags as for open(2).  All descriptors of the table close on exec */
  int (*open)(void *, const char *path, int flags, unsigned mode);
  int (*close)(void *, int fd); /* fd is gone, whatever is returned */
  int (*dup)(void *, int fd);   /* not below 3 */
  /* May transfer a part; write raises no SIGPIPE in the program */
  int64_t (*read)(void *, int fd, void *buffer, size_t size);
  int64_t (*write)(void *, int fd, const void *buffer, size_t size);
  /* At an offset, regardless of the descriptor's position */
  int64_t (*pread)(void *, int fd, void *buffer, size_t size, int64_t at);
  int64_t (*pwrite)(void *, int fd, const void *buffer, size_t size,
                    int64_t at);
  /* Fill in all of *out; stat follows links */
  int (*stat)(void *, const char *path, zke_file *out);
  int (*fstat)(void *, int fd, zke_file *out);
  int (*fsync)(void *, int fd); /* of a directory: the names in it */
  /* Give an open file this mode exactly, whatever the umask, and this owner and
   * group as far as is allowed */
  int (*adopt)(void *, int fd, unsigned mode, unsigned uid, unsigned gid);
  /* The umask applies; -EEXIST if the path exists */
  int (*mkdir)(void *, const char *path, unsigned mode);
  int (*mkfifo)(void *, const char *path, unsigned mode);
  int (*unlink)(void *, const char *path);
  /* Calls entry for each name, including "." and ".." */
  int (*list)(void *, const char *path,
              void (*entry)(void *arg, const char *name), void *arg);
  /* 1: on a network file system; 0: not; -ENOSYS, -EPERM: this is not known.
   * On any other error zke_open() fails */
  int (*network)(void *, const char *path);
  int (*pipe)(void *, int fds[2]); /* non-blocking */
  /* An exclusive lock of one byte, of the open file description: -EAGAIN if
   * another has it; ZKE_LOCK_NONE drops it */
  int (*lock)(void *, int fd, int64_t offset, int how); /* ZKE_LOCK_… */
  /* 1: another open file description has the lock; 0: none */
  int (*probe)(void *, int fd, int64_t offset);
  /* As poll(2); after -EINTR the caller checks its deadline */
  int (*poll)(void *, struct pollfd *fds, unsigned count, int timeout_ms);
  /* A descriptor that is readable if one added to it is; without for_reading,
   * if that one has an error.  -ENOSYS: zke_fd() is the FIFO itself */
  int (*poller)(void *);
  int (*poller_add)(void *, int poller, int fd, int for_reading);
  int (*poller_remove)(void *, int poller, int fd);
  /* A descriptor, readable from when_ns on (monotonic; 0: never); -ENOSYS: the
   * caller uses zke_next_deadline() */
  int (*timer)(void *);
  int (*timer_set)(void *, int fd, int64_t when_ns);
  int64_t (*clock)(void *, int which); /* ns; ZKE_CLOCK_… */
  void (*sleep)(void *, int64_t ns);   /* or shorter */
  /* Fills the buffer; on failure less is random, and no kept session begins */
  int (*random)(void *, void *buffer, size_t size);
  /* A text that changes with each boot of the host; -ENOENT, -ENOSYS, -EACCES,
   * -EPERM: there is none.  On any other error zke_open() fails */
  int (*boot_id)(void *, char *buffer, size_t size); /* NUL-terminated */
  int64_t (*pid)(void *); /* for display, and the writer's lock */
  /* The default of options.identity */
  int (*process_name)(void *, char *buffer, size_t size);
  /* ns by which ZKE_CLOCK_BOOTTIME is ahead of the host's, in a time namespace;
   * called once per store.  On an error it is unknown, and no session judges
   * the leases of others */
  int (*boot_offset)(void *, int64_t *out);
  /* As lock, for count bytes */
  int (*lock_range)(void *, int fd, int64_t from, int64_t count, int how);
  /* Start and length of another's lock in the range; -ENOENT: none */
  int64_t (*find_lock)(void *, int fd, int64_t from, int64_t count,
                       int64_t *count_out);
  /* As mkdir, an empty file.  It must not be opened: closing it would drop
   * SQLite's locks on it */
  int (*mkfile)(void *, const char *path, unsigned mode);
  /* Give a file this group, then this mode, without opening it or following a
   * link; no mode if the group cannot be given.  -EOPNOTSUPP: a mode cannot be
   * given this way, as in glibc before 2.32; side files keep theirs then */
  int (*share)(void *, const char *path, unsigned mode, unsigned gid);
} zke_os;

/* zke_os_fill    - set each NULL member within os->size to the library's own
 *                  function
 * zke_os_default - set all members, for functions that call the library's own
 * os and out are not NULL; os->size is set, as by ZKE_INIT(zke_os). */
ZKE_API void zke_os_fill(zke_os *os);
static inline void zke_os_default(zke_os *out) {
  const zke_os own = ZKE_INIT(zke_os);
  *out = own;
  zke_os_fill(out);
}

/* ------------------------------------------------------------------------
 * Other engines behind this interface
 *
 * A handle need not be a file's: zke_open() passes a name to the engine that
 * has registered the name's prefix, and every function of this header passes a
 * call with such a handle to the engine's table.  Recipes and the command do
 * not see the difference.  recipes/engine/zookeeper.h is for an ensemble.
 *
 * To write an engine: a handle points to a struct of the engine that begins
 * with a zke_handle.  The engine makes results with zke_alloc(), sentences with
 * zke_fail(), and sets the thread's zxid with zke_set_zxid(); functions without
 * a handle are the library's for every engine.  When the library calls an
 * engine, it holds no lock, does not defer cancellation, and does not check
 * whether the process has forked: the engine must keep this header's RULES.
 *
 * The two functions.  Threads: any.  In a callback: yes.  Blocks: no.
 * --------------------------------------------------------------------- */

/* The beginning of a handle; the engine fills it in before it returns it. */
typedef struct zke_handle {
  const struct zke_engine *engine; /* as open() was given it */
  zke_allocator allocator;         /* options.allocator, likewise */
} zke_handle;

/* Each function has the public one's name (except remove for zke_delete(),
 * since delete is a C++ keyword), arguments and results; the handle is never
 * NULL.  If a member is NULL, its calls return ZKE_UNIMPLEMENTED.  Required are
 * prefix, open, close, session_id, state, now, wall, busy_timeout, limit,
 * event_zxid and turn. */
typedef struct zke_engine {
  size_t size;
  const char *prefix; /* of the names that it opens, "zk://"; "": of all that no
                         other engine opens.  Not copied */
  /* options is never NULL, has this version's size, and an allocator that is
   * not NULL */
  int (*open)(const struct zke_engine *engine, const char *name,
              const zke_options *options, zke **z_out);
  int (*open_session)(zke *z, const zke_options *options, zke **z_out);
  int (*attach)(zke *z, int64_t session, const unsigned char password[16],
                const zke_options *options, zke **z_out);
  int (*detach)(zke *z);
  int (*password)(zke *z, unsigned char out[16]);
  int (*touch)(zke *z);
  int (*rearm)(zke *z);
  int (*close)(zke *z);
  int64_t (*session_id)(zke *z);
  int (*state)(zke *z);
  int (*expire)(zke *z, int64_t session);
  int (*keepalive_fd)(zke *z, int *fd_out);
  int (*create)(zke *z, const char *path, const void *data, int len,
                const zke_acls *acls, int mode, char **path_out,
                zke_stat *stat_out);
  int (*create_ttl)(zke *z, const char *path, const void *data, int len,
                    const zke_acls *acls, int mode, int64_t ttl_ms,
                    char **path_out, zke_stat *stat_out);
  int (*remove)(zke *z, const char *path, int version);
  int (*discard)(zke *z, const char *path, int mode, int64_t czxid);
  int (*raise_sequence)(zke *z, const char *path, int next, zke_stat *stat_out);
  int (*exists)(zke *z, const char *path, zke_watch_fn fn, void *context,
                zke_stat *stat_out);
  int (*get)(zke *z, const char *path, zke_watch_fn fn, void *context,
             char **data_out, int *len_out, zke_stat *stat_out);
  int (*set)(zke *z, const char *path, const void *data, int len, int version,
             zke_stat *stat_out);
  int (*children)(zke *z, const char *path, zke_watch_fn fn, void *context,
                  zke_strings **names_out, zke_stat *stat_out);
  int (*count)(zke *z, const char *path, int64_t *count_out);
  int (*usage)(zke *z, const char *path, int64_t *count_out,
               int64_t *bytes_out);
  int (*ephemerals)(zke *z, int64_t session, const char *prefix,
                    zke_strings **paths_out);
  int (*sync)(zke *z, const char *path);
  int (*multi)(zke *z, const zke_op *ops, int count, zke_op_result *results);
  int (*multi_read)(zke *z, const zke_op *ops, int count,
                    zke_op_result *results);
  int (*batch)(zke *z, zke_batch_fn fn, void *context);
  int (*add_auth)(zke *z, const char *scheme, const char *cert, int len);
  int (*vouch)(zke *z, const char *scheme, const char *id);
  int (*clear_auth)(zke *z);
  int (*get_acl)(zke *z, const char *path, zke_acls **acls_out,
                 zke_stat *stat_out);
  int (*set_acl)(zke *z, const char *path, int version, const zke_acls *acls,
                 zke_stat *stat_out);
  int (*add_watch)(zke *z, const char *path, int mode, zke_watch_fn fn,
                   void *context);
  int (*set_watch)(zke *z, const char *path, int type, int64_t zxid,
                   zke_watch_fn fn, void *context);
  int (*check_watch)(zke *z, const char *path, int type, zke_watch_fn fn,
                     void *context);
  int (*remove_watch)(zke *z, const char *path, int type, zke_watch_fn fn,
                      void *context);
  int (*forget)(zke *z, zke_watch_fn fn, void *context);
  int (*call_at)(zke *z, int64_t when_ms, zke_watch_fn fn, void *context);
  int (*set_watcher)(zke *z, zke_watch_fn fn, void *context);
  int64_t (*now)(zke *z);
  int64_t (*wall)(zke *z);
  int (*sleep)(zke *z, int64_t deadline_ms);
  int64_t (*busy_timeout)(zke *z);
  int64_t (*limit)(zke *z, int64_t deadline_ms);
  int (*fd)(zke *z, int *fd_out);
  int (*next_deadline)(zke *z, int64_t *deadline_out);
  int (*pending)(zke *z, int *pending_out);
  int (*dispatch)(zke *z, int *count_out);
  int (*dispatch_to)(zke *z, int64_t zxid, int *count_out, int *more_out);
  int64_t (*event_zxid)(zke *z);
  int64_t (*turn)(zke *z);
  int (*wait_turn)(zke *z, int64_t turn, int64_t deadline_ms);
  int (*wake)(zke *z);
  int (*sessions)(zke *z, int64_t session, zke_session_list **list_out);
  int (*watches)(zke *z, zke_watch_list **list_out);
  int (*overdue)(zke *z, int *overdue_out);
  int (*check)(zke *z, zke_check_fn fn, void *context);
  int (*compact)(zke *z, int64_t deadline_ms);
  int (*test_fail)(zke *z, int when, int skip);
} zke_engine;

/* zke_register_engine - let zke_open() pass names to an engine
 *
 *   engine  copied, except for prefix.  If its prefix is registered already,
 *           nothing changes; if two prefixes match a name, the longer counts
 * Returns ZKE_OK, or
 *   ZKE_BADARGUMENTS  engine is NULL, has no version's size, or lacks a
 *                     required member
 *   ZKE_MISUSE        there are eight engines already */
ZKE_API int zke_register_engine(const zke_engine *engine);

/* zke_set_zxid - for an engine: set the result of zke_zxid() on this thread */
ZKE_API void zke_set_zxid(int64_t zxid);

#ifdef __cplusplus
}
#endif

#endif
