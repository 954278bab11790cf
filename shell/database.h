/* database.h - the functions of database.c for commands that read the file
 *
 * No function of zkembed.h says which nodes are containers or TTL nodes, only
 * the file does, and only a read transaction gives one picture of a tree of any
 * size.  So whole trees are read from the file, by a connection that cannot
 * write.  The permissions in ACLs are for users of the tree; they do not stop a
 * user who may read the file.
 */
#ifndef ZKE_SHELL_DATABASE_H
#define ZKE_SHELL_DATABASE_H

#include "past.h"
#include "shell.h"

/* Stops SQLite from counting its memory; call it before any use of SQLite. */
void database_uncounted(void);

/* A consistent picture of the database, until it is closed. */
typedef struct snapshot snapshot;

/* A node, valid during its callback. */
typedef struct snapshot_node {
  const char *path; /* whole, with the chroot */
  const char *data;
  int len;          /* -1: NULL data */
  const char *acl;  /* as in doc/format.md; NULL: open */
  const char *kind; /* "persistent", "container", "ttl" or "ephemeral" */
  int64_t ttl_ms;
  int64_t sequence; /* the next sequential child's number */
  zke_stat stat;
} snapshot_node;

/* A watch or a waiter, valid during its callback. */
typedef struct snapshot_watch {
  int64_t session;
  const char *path; /* whole, with the chroot */
  const char *type; /* "data" or "child" */
  const char *mode; /* "one-shot", "persistent" or "recursive" */
  int64_t owner;    /* for a waiter: the owner of the node at path; else 0 */
} snapshot_watch;

/* The sizes of the files.  The log may be used in part or completely. */
typedef struct snapshot_sizes {
  int64_t pages, page_bytes, free_pages, log_bytes;
} snapshot_sizes;

/* snapshot_open  - of c's database; fails for :memory:, which has no file
 * snapshot_read  - call fn for a node and all below it, parents first; leaves
 *                  out reserved nodes
 * snapshot_sessions, snapshot_watches - call fn for the items of zke_sessions()
 *                  and zke_watches(), or for the rows of the view zke_waiters.
 *                  The file does not say which sessions are alive: 0
 * snapshot_changes - call fn for each change in the history, later than a zxid,
 *                  of a node and of those below it; there must be a history
 * snapshot_number - the number that a statement reads; -1 if it reads no row,
 *                  or fails
 * snapshot_file  - sizes of the file and of its log
 * snapshot_close - NULL is fine
 *   path  as the handle sees it, below the chroot
 *   fn    returns an exit code; a code other than 0 ends the calls
 * Return 0 or the exit code.  Between open and close SQLite cannot shorten its
 * log, which grows as others write: close the snapshot as soon as everything is
 * read. */
int snapshot_open(call *c, snapshot **out);
int snapshot_read(snapshot *s, const char *path,
                  int (*fn)(void *arg, const snapshot_node *node), void *arg);
int snapshot_sessions(snapshot *s,
                      int (*fn)(void *arg, const zke_session_info *session),
                      void *arg);
int snapshot_watches(snapshot *s, bool waiters,
                     int (*fn)(void *arg, const snapshot_watch *watch),
                     void *arg);
int snapshot_changes(snapshot *s, const char *path, int64_t zxid,
                     int (*fn)(void *arg, const past_change *change),
                     void *arg);
int64_t snapshot_number(snapshot *s, const char *sql);
snapshot_sizes snapshot_file(snapshot *s);
void snapshot_close(snapshot *s);

/* path_whole - a handle's path as a path in the database, for free(); NULL
 *              without memory
 * path_below - the opposite, within the given text */
char *path_whole(const call *c, const char *path);
const char *path_below(const call *c, const char *whole);

/* The reserved nodes, as the handle sees paths. */
bool path_is_reserved(const call *c, const char *path);

/* A file that is written under another name and then renamed, so that nobody
 * sees half of it; a device or a pipe is written directly.
 *
 *     target t;
 *     int status = target_open(c, name, false, &t);
 *     if (!status) status = write_all(t.fd);
 *     if (!status) status = target_done(c, &t);
 *     target_close(&t);
 */
typedef struct target {
  char *name;           /* symbolic links resolved */
  char *temp;           /* NULL: name is written directly, or is complete */
  int fd;               /* the descriptor to write */
  bool replace;         /* an existing file may be replaced */
  const char *snapshot; /* the source of a restore, which gives its permissions
                           if there is no database; NULL: the database is
                           copied */
} target;

/* target_open  - begins the file; refuses c's database and its side files, and
 *                an existing regular file unless replace is set
 * target_done  - syncs it, gives it the database's permissions and its name;
 *                does nothing for a device or a pipe
 * target_close - removes an unfinished file; also after target_open() has
 *                failed */
int target_open(call *c, const char *name, bool replace, target *t);
int target_done(call *c, target *t);
void target_close(target *t);

#endif
