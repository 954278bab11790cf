/* database.h - what database.c has for those who read the file
 *
 * A container's or a TTL node's kind is told by no function of zkembed.h but by
 * the file alone, and only a read transaction gives one picture of a tree of
 * any size.  So whole trees are read from the file, by a connection that cannot
 * write; the permissions in ACLs, which are for those who use the tree, do not
 * hinder whoever may read the file.
 */
#ifndef ZKE_SHELL_DATABASE_H
#define ZKE_SHELL_DATABASE_H

#include "past.h"
#include "shell.h"

/* Before SQLite is used at all: it need not count its memory. */
void database_uncounted(void);

/* One picture of the database, until it is closed. */
typedef struct snapshot snapshot;

/* A node, for the time of the callback that gets it. */
typedef struct snapshot_node {
  const char *path; /* whole, whatever the chroot */
  const char *data;
  int len;          /* -1: NULL data */
  const char *acl;  /* as doc/format.md tells; NULL: open */
  const char *kind; /* "persistent", "container", "ttl" or "ephemeral" */
  int64_t ttl_ms;
  int64_t sequence; /* the next sequential child's number */
  zke_stat stat;
} snapshot_node;

/* A watch, or a waiter, for the time of its callback. */
typedef struct snapshot_watch {
  int64_t session;
  const char *path; /* whole, whatever the chroot */
  const char *type; /* "data" or "child" */
  const char *mode; /* "one-shot", "persistent" or "recursive" */
  int64_t owner;    /* of a waiter: who owns the node at path; else 0 */
} snapshot_watch;

/* What the file takes.  Of the log a beginning may be in use, or all of it. */
typedef struct snapshot_sizes {
  int64_t pages, page_bytes, free_pages, log_bytes;
} snapshot_sizes;

/* snapshot_open  - of c's database; fails for :memory:, which has no file
 * snapshot_read  - call fn for a node and all below it, parents first; what
 *                  is reserved is left out
 * snapshot_sessions, snapshot_watches - call fn for what zke_sessions() and
 *                  zke_watches() list, or for the rows of the view zke_waiters.
 *                  The file does not tell which sessions are alive: 0
 * snapshot_changes - call fn for each change of a node and of those below it,
 *                  later than a zxid, that the history has; there has to be one
 * snapshot_number - the number that a statement reads; -1 where it reads no
 *                  row, or fails
 * snapshot_file  - sizes of the file and of its log
 * snapshot_close - NULL is fine
 *   path  as the handle sees it, below the chroot
 *   fn    returns an exit code; another than 0 ends it
 * Return 0 or the exit code.  Between open and close SQLite cannot shorten its
 * log, which grows with what others write: close it as soon as all is read. */
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

/* path_whole - the path in the database of one that the handle sees, for
 *              free(); NULL without memory
 * path_below - the other way round, within the text that is given */
char *path_whole(const call *c, const char *path);
const char *path_below(const call *c, const char *whole);

/* The reserved nodes, as the handle sees paths. */
bool path_is_reserved(const call *c, const char *path);

/* A file that is written beside its place and then takes it, so that nobody
 * sees half of it; a device or a pipe is written to as it is.
 *
 *     target t;
 *     int status = target_open(c, name, false, &t);
 *     if (!status) status = write_all(t.fd);
 *     if (!status) status = target_done(c, &t);
 *     target_close(&t);
 */
typedef struct target {
  char *name;           /* symbolic links resolved */
  char *temp;           /* NULL: name is written to, or has its file already */
  int fd;               /* what is to be written to */
  bool replace;         /* another may be there */
  const char *snapshot; /* what a restore copies, with its permissions if there
                         * is no database; NULL: the database is copied */
} target;

/* target_open  - begins the file; refuses c's database and what belongs to it,
 *                and a regular file that is there already unless replace is set
 * target_done  - synced, with the database's permissions, and in its place;
 *                nothing for a device or a pipe
 * target_close - removes what is not in its place; also after target_open() has
 *                failed */
int target_open(call *c, const char *name, bool replace, target *t);
int target_done(call *c, target *t);
void target_close(target *t);

#endif
