/* database.c - the database as a file: init, backup, restore, check, sql, ...
 *
 * The one file of the command that knows SQLite.  In its order:
 *
 *     reader_     a connection that cannot write
 *     snapshot_   one read transaction: it reads everything at one moment
 *                 (export and dump, in transfer.c; history.c; backup)
 *     target_     a file that appears under its name when it is whole
 *     init, backup, restore, check, compact, sql, doctor: the commands
 *
 * A file may be read by SQLite beside zkembed because both use the same library
 * in this process.  POSIX drops a process's locks on a file when the process
 * closes any descriptor of it, and only one SQLite library knows all of them.
 * Commands that write to the database (init, compact) do it through zkembed.
 *
 * These commands read the file directly, so access control lists do not apply.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "../recipes/part/znode.h"
#include "changes.h"
#include "database.h"
#include "process.h"
#include "work.h"

/* SQLite counts its memory under a mutex at each allocation.  Nothing in this
 * process uses the count, and a server allocates often. */
void database_uncounted(void) { sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); }

/* ------------------------------------------------------------------------
 * Connections
 *
 * A reader does not block writers.  Its transaction only keeps the log from
 * being reset while it lasts.
 * --------------------------------------------------------------------- */

/* Is the database in memory?  Then there is no file, and only the engine has
 * SQLite's connection to it. */
static bool is_memory(const call *c) { return store_of(c->sh) == STORE_MEMORY; }

/* The exit codes for a few of SQLite's codes; all others are STATUS_IO,
 * "IO". */
static const struct {
  int rc, status;
  const char *code;
} codes[] = {{SQLITE_FULL, STATUS_IO, "FULL"},
             {SQLITE_BUSY, STATUS_CONFLICT, "BUSY"},
             {SQLITE_NOMEM, STATUS_SYSTEM, "NOMEM"},
             {SQLITE_AUTH, STATUS_DENIED, "READONLY"},
             {SQLITE_READONLY, STATUS_DENIED, "READONLY"},
             {SQLITE_CORRUPT, STATUS_IO, "CORRUPT"},
             {SQLITE_ERROR, STATUS_DATA, "SQL"},
             {SQLITE_TOOBIG, STATUS_DATA, "SQL"}};

/* Fails with SQLite's latest error; an interrupt by a cancel is reported as the
 * cancel.  Only the first failure of a call is reported, so this may also be
 * called for its consequences. */
static int fail_sqlite(call *c, sqlite3 *db, const char *what) {
  int rc = sqlite3_errcode(db);
  const char *text = db ? sqlite3_errmsg(db) : "out of memory";
  if (rc == SQLITE_INTERRUPT && cancel_came(c)) return fail_cancelled(c);
  int status = STATUS_IO;
  const char *code = "IO";
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (rc == codes[i].rc) {
      status = codes[i].status;
      code = codes[i].code;
    }
  fail_with(c, status, code, "%s%s%s", what, *what ? ": " : "", text);
  return status;
}

/* SQLite asks this every 10000 instructions of a statement.
 * sqlite3_interrupt() would not do: it has no effect if it comes before the
 * statement begins. */
static int reader_cancelled(void *c) { return cancel_came(c); }

/* Have a cancel of the call end what the connection is doing. */
static void reader_cancel_by(sqlite3 *db, call *c) {
  sqlite3_progress_handler(db, 10000, reader_cancelled, c);
}

/* Opens a connection that cannot write.  Close *out even if this fails; it has
 * the error's sentence.  This reads the schema, so that a fault of the file is
 * not reported as an error of the first statement. */
static int reader_try(const char *file, sqlite3 **out) {
  int rc = sqlite3_open_v2(file, out,
                           SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
  if (rc != SQLITE_OK) return rc;
  sqlite3_busy_timeout(*out, 5000);
  return sqlite3_exec(*out, "PRAGMA query_only=1;SELECT zxid FROM zkembed_meta",
                      0, 0, 0);
}

/* A connection for reading, which a signal interrupts; close it by
 * sqlite3_close().  Returns 0 or the exit code. */
static int reader_open(call *c, sqlite3 **out) {
  sqlite3 *db = NULL;
  if (is_memory(c))
    return fail_with(c, STATUS_DENIED, "MEMORY",
                     "%s reads the database's file, and :memory: has none",
                     c->command->name);
  if (reader_try(c->sh->file, &db) != SQLITE_OK) {
    int status = fail_sqlite(c, db, c->sh->file);
    sqlite3_close(db);
    return status;
  }
  reader_cancel_by(db, c);
  *out = db;
  return 0;
}

/* The number that a statement reads; -1 if it reads none. */
static int64_t reader_number(sqlite3 *db, const char *sql) {
  sqlite3_stmt *stmt = NULL;
  int64_t number = -1;
  if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK &&
      sqlite3_step(stmt) == SQLITE_ROW)
    number = sqlite3_column_int64(stmt, 0);
  sqlite3_finalize(stmt);
  return number;
}

/* ------------------------------------------------------------------------
 * Snapshots
 *
 * A read transaction sees one moment of the database while others continue to
 * write.  SQLite must then keep all new changes in the log, so close a snapshot
 * as soon as everything is read.
 * --------------------------------------------------------------------- */

struct snapshot {
  call *c;
  sqlite3 *db;
};

/* BEGIN alone does not fix the moment; the first read does. */
int snapshot_open(call *c, snapshot **out) {
  snapshot *s = calloc(1, sizeof *s);
  if (!s) return no_memory(c);
  s->c = c;
  int status = reader_open(c, &s->db);
  if (!status && sqlite3_exec(s->db, "BEGIN;SELECT zxid FROM zkembed_meta", 0,
                              0, 0) != SQLITE_OK)
    status = fail_sqlite(c, s->db, c->sh->file);
  if (status) {
    snapshot_close(s);
    return status;
  }
  *out = s;
  return 0;
}

/* Runs a statement without arguments inside the snapshot. */
int64_t snapshot_number(snapshot *s, const char *sql) {
  return reader_number(s->db, sql);
}

/* A file that cannot be examined counts as empty: the size only informs. */
static int64_t file_bytes(const char *name) {
  struct stat st;
  return stat(name, &st) == 0 ? (int64_t)st.st_size : 0;
}

/* The log stands beside the file that a link leads to, as in SQLite. */
snapshot_sizes snapshot_file(snapshot *s) {
  char log[PATH_MAX + 16];
  char *real = realpath(s->c->sh->file, NULL);
  snprintf(log, sizeof log, "%s-wal", real ? real : "");
  free(real);
  return (snapshot_sizes){
      .pages = reader_number(s->db, "PRAGMA page_count"),
      .page_bytes = reader_number(s->db, "PRAGMA page_size"),
      .free_pages = reader_number(s->db, "PRAGMA freelist_count"),
      .log_bytes = file_bytes(log)};
}

/* NULL is fine. */
void snapshot_close(snapshot *s) {
  if (s) sqlite3_close(s->db);
  free(s);
}

/* The prefix of every path in the tables; "" without a chroot. */
static const char *chroot_of(const call *c) {
  const char *chroot = c->sh->options.chroot;
  return chroot && strcmp(chroot, "/") != 0 ? chroot : "";
}

/* The path from the file's root, for free(); NULL without memory.  "/" is the
 * chroot's own node, so no path ends in a slash. */
char *path_whole(const call *c, const char *path) {
  const char *chroot = chroot_of(c);
  size_t room = strlen(chroot) + strlen(path) + 1;
  char *whole = malloc(room);
  if (whole)
    snprintf(whole, room, "%s%s", chroot, *chroot && !path[1] ? "" : path);
  return whole;
}

const char *path_below(const call *c, const char *whole) {
  const char *path = whole + strlen(chroot_of(c));
  return *path ? path : "/";
}

/* Compares whole components: /ab is not below /a. */
static bool is_below(const char *path, const char *top) {
  size_t len = strlen(top);
  return strncmp(path, top, len) == 0 && (!path[len] || path[len] == '/');
}

/* Does the path belong to ZooKeeper or to the engine?  Below a chroot
 * /zookeeper is an ordinary path.  On an ensemble the engine keeps its sessions
 * in a subtree. */
bool path_is_reserved(const call *c, const char *path) {
  if (store_of(c->sh) == STORE_ENSEMBLE && is_below(path, "/zke-sessions"))
    return true;
  return !*chroot_of(c) && is_below(path, "/zookeeper");
}

/* Reads the tables (doc/format.md): the view zke_nodes has no index that finds
 * the nodes below a node.  Rows come in the order of the key (parent, name).  A
 * node comes before its children, because its parent's path is a prefix of its
 * own.  snapshot_row() takes the columns in this order. */
#define SNAPSHOT_COLUMNS                                                     \
  "SELECT CASE parent WHEN '' THEN '/' WHEN '/' THEN '/'||name ELSE parent " \
  "||'/'||name END,CASE WHEN blob IS NOT NULL THEN(SELECT b.data FROM "      \
  "zkembed_blob "                                                            \
  "b WHERE b.id=zkembed_node.blob)ELSE data END,len,acl,CASE kind WHEN 1 "   \
  "THEN "                                                                    \
  "'container' WHEN 2 THEN 'ttl' ELSE CASE owner WHEN 0 THEN 'persistent' "  \
  "ELSE 'ephemeral' END END,ttl,creates,czxid,mzxid,pzxid,ctime,mtime,"      \
  "version,2*creates-nchild,aversion,owner,max(len,0),nchild FROM "          \
  "zkembed_node "

static const char snapshot_range[] =
    SNAPSHOT_COLUMNS "WHERE parent>=?1 AND parent<?2 ORDER BY parent,name";
static const char snapshot_one[] =
    SNAPSHOT_COLUMNS "WHERE parent=?1 AND name=?2";

/* The node of the row.  Its texts belong to the statement and are valid until
 * the next step.  In a damaged database the length may exceed the data; then it
 * is cut. */
static snapshot_node snapshot_row(sqlite3_stmt *stmt) {
  snapshot_node n = {.path = (const char *)sqlite3_column_text(stmt, 0),
                     .data = sqlite3_column_blob(stmt, 1),
                     .len = sqlite3_column_int(stmt, 2),
                     .acl = (const char *)sqlite3_column_text(stmt, 3),
                     .kind = (const char *)sqlite3_column_text(stmt, 4),
                     .ttl_ms = sqlite3_column_int64(stmt, 5),
                     .sequence = sqlite3_column_int64(stmt, 6)};
  int64_t *const wide[] = {&n.stat.czxid, &n.stat.mzxid, &n.stat.pzxid,
                           &n.stat.ctime, &n.stat.mtime};
  for (int i = 0; i < 5; i++) *wide[i] = sqlite3_column_int64(stmt, 7 + i);
  n.stat.version = sqlite3_column_int(stmt, 12);
  n.stat.cversion = (int32_t)sqlite3_column_int64(stmt, 13);
  n.stat.aversion = sqlite3_column_int(stmt, 14);
  n.stat.ephemeralOwner = sqlite3_column_int64(stmt, 15);
  n.stat.dataLength = sqlite3_column_int(stmt, 16);
  n.stat.numChildren = sqlite3_column_int(stmt, 17);
  if (n.len > sqlite3_column_bytes(stmt, 1))
    n.len = sqlite3_column_bytes(stmt, 1);
  return n;
}

/* A statement, with two texts if one is not NULL. */
static int snapshot_prepare(snapshot *s, const char *sql, const char *one,
                            const char *two, sqlite3_stmt **stmt) {
  int rc = sqlite3_prepare_v2(s->db, sql, -1, stmt, NULL);
  if (rc == SQLITE_OK && one)
    rc = sqlite3_bind_text(*stmt, 1, one, -1, SQLITE_TRANSIENT);
  if (rc == SQLITE_OK && one)
    rc = sqlite3_bind_text(*stmt, 2, two, -1, SQLITE_TRANSIENT);
  return rc == SQLITE_OK ? 0 : fail_sqlite(s->c, s->db, s->c->sh->file);
}

/* Is there another row?  If the step fails, *status is no longer 0. */
static bool snapshot_next(snapshot *s, sqlite3_stmt *stmt, int *status) {
  int rc = sqlite3_step(stmt);
  if (rc == SQLITE_ROW && cancel_came(s->c))
    *status = fail_cancelled(s->c);
  else if (rc != SQLITE_ROW && rc != SQLITE_DONE)
    *status = fail_sqlite(s->c, s->db, s->c->sh->file);
  return rc == SQLITE_ROW && !*status;
}

/* Calls fn for the nodes of one statement with two texts; adds their number to
 * *count.  This leaves out /zookeeper for all readers: it is not a program's
 * data. */
static int snapshot_each(snapshot *s, const char *sql, const char *one,
                         const char *two,
                         int (*fn)(void *, const snapshot_node *), void *arg,
                         int64_t *count) {
  sqlite3_stmt *stmt = NULL;
  int status = snapshot_prepare(s, sql, one, two, &stmt);
  while (!status && snapshot_next(s, stmt, &status)) {
    snapshot_node node = snapshot_row(stmt);
    ++*count;
    if (!node.path || !node.kind)
      status = no_memory(s->c);
    else if (!is_below(node.path, "/zookeeper"))
      status = fn(arg, &node);
  }
  sqlite3_finalize(stmt);
  return status;
}

/* The node itself: by its parent and name. */
static int snapshot_top(snapshot *s, const char *whole,
                        int (*fn)(void *, const snapshot_node *), void *arg) {
  const char *slash = strrchr(whole, '/');
  size_t len = (size_t)(slash - whole);
  int64_t count = 0;
  char *parent = strndup(whole, len ? len : 1);
  if (!parent) return no_memory(s->c);
  if (!whole[1]) *parent = '\0'; /* the root's */
  int status =
      snapshot_each(s, snapshot_one, parent, slash + 1, fn, arg, &count);
  free(parent);
  if (!status && count == 0)
    status = fail_with(s->c, STATUS_NO, "NONODE", "no node %s", whole);
  return status;
}

/* All nodes below one, in two ranges of parents' paths.  The first is parent =
 * whole, the children (up to "whole\1", since no name has that character).  The
 * second is all that begin with "whole/", up to "whole0", since '0' follows
 * '/'.  One range for both would include "whole-other".  The root's are all
 * from "/" on. */
static int snapshot_below(snapshot *s, const char *whole,
                          int (*fn)(void *, const snapshot_node *), void *arg) {
  int64_t count = 0;
  if (!whole[1])
    return snapshot_each(s, snapshot_range, "/", "0", fn, arg, &count);
  size_t room = strlen(whole) + 2;
  char *from = malloc(room), *to = malloc(room);
  int status = from && to ? 0 : no_memory(s->c);
  if (!status) {
    snprintf(to, room, "%s\1", whole);
    status = snapshot_each(s, snapshot_range, whole, to, fn, arg, &count);
  }
  if (!status) {
    snprintf(from, room, "%s/", whole);
    snprintf(to, room, "%s0", whole);
    status = snapshot_each(s, snapshot_range, from, to, fn, arg, &count);
  }
  free(from);
  free(to);
  return status;
}

/* Prefixes the path with the chroot, which the tables do not know. */
int snapshot_read(snapshot *s, const char *path,
                  int (*fn)(void *arg, const snapshot_node *node), void *arg) {
  char *whole = path_whole(s->c, path);
  if (!whole) return no_memory(s->c);
  int status = snapshot_top(s, whole, fn, arg);
  if (!status) status = snapshot_below(s, whole, fn, arg);
  free(whole);
  return status;
}

/* Reads the view that doc/format.md documents; the start time is only in the
 * table. */
int snapshot_sessions(snapshot *s,
                      int (*fn)(void *arg, const zke_session_info *session),
                      void *arg) {
  sqlite3_stmt *stmt = NULL;
  int status = snapshot_prepare(
      s,
      "SELECT id,v.identity,v.pid,s.started,v.lease_ms,v.ephemerals,v.watches,"
      "v.events,v.carrier,v.timeout_ms FROM zke_sessions v JOIN "
      "zkembed_session s "
      "USING(id)ORDER BY id",
      NULL, NULL, &stmt);
  while (!status && snapshot_next(s, stmt, &status)) {
    zke_session_info info = {
        .id = sqlite3_column_int64(stmt, 0),
        .identity = (const char *)sqlite3_column_text(stmt, 1),
        .pid = sqlite3_column_int64(stmt, 2),
        .started_ms = sqlite3_column_int64(stmt, 3),
        .lease_ms = sqlite3_column_int64(stmt, 4),
        .ephemerals = sqlite3_column_int(stmt, 5),
        .watches = sqlite3_column_int(stmt, 6),
        .events = sqlite3_column_int(stmt, 7),
        .carrier = sqlite3_column_int64(stmt, 8),
        .timeout_ms = sqlite3_column_int64(stmt, 9)};
    status = info.identity ? fn(arg, &info) : no_memory(s->c);
  }
  sqlite3_finalize(stmt);
  return status;
}

/* Reads the table, since the view has the time as text. */
int snapshot_changes(snapshot *s, const char *path, int64_t zxid,
                     int (*fn)(void *arg, const past_change *change),
                     void *arg) {
  static const char sql[] =
      "SELECT zxid,time,type,session,owner,pid,path,identity" CHANGES_SINCE;
  sqlite3_stmt *stmt = NULL;
  char *whole = path_whole(s->c, path);
  if (!whole) return no_memory(s->c);
  int status = snapshot_prepare(s, sql, "", whole[1] ? whole : "", &stmt);
  if (!status) sqlite3_bind_int64(stmt, 1, zxid);
  while (!status && snapshot_next(s, stmt, &status)) {
    past_change change = {
        .zxid = sqlite3_column_int64(stmt, 0),
        .time_ms = sqlite3_column_int64(stmt, 1),
        .type = sqlite3_column_int(stmt, 2),
        .session = sqlite3_column_int64(stmt, 3),
        .owner = sqlite3_column_int64(stmt, 4),
        .pid = sqlite3_column_int64(stmt, 5),
        .path = (const char *)sqlite3_column_text(stmt, 6),
        .identity = (const char *)sqlite3_column_text(stmt, 7)};
    if (!change.path || !change.identity) {
      status = no_memory(s->c);
    } else {
      change.path = path_below(s->c, change.path);
      status = fn(arg, &change);
    }
  }
  sqlite3_finalize(stmt);
  free(whole);
  return status;
}

/* In the order of zke_watches(). */
#define SNAPSHOT_WATCHES(owner, join)                                       \
  "SELECT w.session,w.path,w.type,w.mode," owner " FROM zke_watches w" join \
  " ORDER BY w.path,w.session,w.mode,w.type DESC"

static const char snapshot_all_watches[] = SNAPSHOT_WATCHES("0", "");
static const char snapshot_all_waiters[] = SNAPSHOT_WATCHES(
    "x.owner",
    " JOIN(SELECT DISTINCT waiter,path,owner FROM zke_waiters)x "
    "ON x.waiter=w.session AND x.path=w.path");

/* Watches; or waiters, which are watches on other sessions' nodes. */
int snapshot_watches(snapshot *s, bool waiters,
                     int (*fn)(void *arg, const snapshot_watch *watch),
                     void *arg) {
  sqlite3_stmt *stmt = NULL;
  int status =
      snapshot_prepare(s, waiters ? snapshot_all_waiters : snapshot_all_watches,
                       NULL, NULL, &stmt);
  while (!status && snapshot_next(s, stmt, &status)) {
    snapshot_watch w = {.session = sqlite3_column_int64(stmt, 0),
                        .path = (const char *)sqlite3_column_text(stmt, 1),
                        .type = (const char *)sqlite3_column_text(stmt, 2),
                        .mode = (const char *)sqlite3_column_text(stmt, 3),
                        .owner = sqlite3_column_int64(stmt, 4)};
    status = w.path && w.type && w.mode ? fn(arg, &w) : no_memory(s->c);
  }
  sqlite3_finalize(stmt);
  return status;
}

/* ------------------------------------------------------------------------
 * Files that take their place when they are whole
 *
 * At any moment, and after a crash, a reader of such a file finds either the
 * old file or the whole new one.  target_done() makes it visible; without it,
 * target_close() removes everything.
 * --------------------------------------------------------------------- */

/* Compares device and inode, since two names may lead to one file. */
static bool same_file(const char *name, const struct stat *other) {
  struct stat st;
  return stat(name, &st) == 0 && st.st_dev == other->st_dev &&
         st.st_ino == other->st_ino;
}

/* Is it the database, its log or its index, under any name?  Writing an export
 * or a backup there would destroy the database. */
static bool is_database(call *c, const struct stat *st) {
  static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
  char *real = is_memory(c) ? NULL : realpath(c->sh->file, NULL);
  bool same = false;
  for (int i = 0; real && i < 4; i++) {
    char name[PATH_MAX + 16];
    snprintf(name, sizeof name, "%s%s", real, ends[i]);
    same = same || same_file(name, st);
  }
  free(real);
  return same;
}

/* Reports errno for a file that could not be created.  An earlier failure keeps
 * its sentence, but the status is this one. */
static int fail_create(call *c, const char *name) {
  fail_errno(c, STATUS_CANTCREATE, name);
  return STATUS_CANTCREATE;
}

/* As fail_create(), with another code and reason. */
static int refuse(call *c, const char *code, const char *name,
                  const char *why) {
  fail_with(c, STATUS_CANTCREATE, code, "%s %s", name, why);
  return STATUS_CANTCREATE;
}

/* Creates a new file that only this user may read yet.  It is in the same
 * directory, since rename() works only within one file system. */
static int target_temp(call *c, target *t) {
  size_t room = strlen(t->name) + 16;
  t->temp = malloc(room);
  if (!t->temp) return no_memory(c);
  snprintf(t->temp, room, "%s.part-XXXXXX", t->name);
  t->fd = mkostemp(t->temp, O_CLOEXEC);
  if (t->fd >= 0) return 0;
  free(t->temp);
  t->temp = NULL;
  return fail_create(c, t->name);
}

/* A regular file is written under a temporary name and moved at the end by
 * target_done(); anything else, such as a pipe, is written directly. */
int target_open(call *c, const char *name, bool replace, target *t) {
  struct stat st;
  *t = (target){.fd = -1, .replace = replace};
  bool there = stat(name, &st) == 0;
  if (!there && errno != ENOENT) return fail_create(c, name);
  if (there && is_database(c, &st))
    return refuse(c, "SAMEFILE", name, "is the database itself");
  if (there && S_ISREG(st.st_mode) && !replace)
    return refuse(c, "EXISTS", name, "exists");
  t->name = there ? realpath(name, NULL) : strdup(name);
  if (!t->name) return fail_create(c, name);
  if (!there || S_ISREG(st.st_mode)) return target_temp(c, t);
  t->fd = open(t->name, O_WRONLY | O_CLOEXEC);
  return t->fd >= 0 ? 0 : fail_create(c, name);
}

/* Gives the copy the permissions of the database: users who may read the data
 * there may read it here.  Until now only this user could open the copy, so its
 * permissions are never too wide. */
static int target_permissions(call *c, target *t) {
  struct stat st;
  mode_t mode = 0600;
  if ((!is_memory(c) && stat(c->sh->file, &st) == 0) ||
      (t->snapshot && stat(t->snapshot, &st) == 0))
    mode = st.st_mode & 0666;
  return fchmod(t->fd, mode);
}

/* Syncs the directory, so that the new name is durable, too; -1 with errno. */
static int target_sync_directory(const target *t) {
  char *slash, *directory = strdup(t->name);
  if (!directory) return -1;
  slash = strrchr(directory, '/');
  if (slash) slash[slash == directory] = '\0';
  int fd = open(slash ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int rc = fd >= 0 ? fsync(fd) : -1;
  if (fd >= 0) close(fd);
  free(directory);
  return rc;
}

/* Gives the file its name.  If no file may be replaced, the kernel refuses to
 * replace one that has appeared meanwhile.  Some file systems cannot do this;
 * there only target_open() has checked.  link() and unlink() would not do:
 * after a crash between them the database has two links, and cannot be
 * opened. */
static int target_move(const target *t) {
  unsigned flags = t->replace ? 0 : RENAME_NOREPLACE;
  int rc = renameat2(AT_FDCWD, t->temp, AT_FDCWD, t->name, flags);
  if (rc == 0 || (errno != EINVAL && errno != ENOSYS)) return rc;
  return rename(t->temp, t->name);
}

/* Permissions, data sync, move, directory sync: this order leaves the old file
 * or the new one after a crash. */
int target_done(call *c, target *t) {
  if (!t->temp) return 0;
  if (target_permissions(c, t) != 0 || fsync(t->fd) != 0)
    return fail_errno(c, STATUS_IO, t->name);
  if (target_move(t) != 0) return fail_create(c, t->name);
  free(t->temp);
  t->temp = NULL;
  if (target_sync_directory(t) != 0) return fail_errno(c, STATUS_IO, t->name);
  return 0;
}

/* Removes what was not finished. */
void target_close(target *t) {
  if (t->temp) unlink(t->temp);
  if (t->fd >= 0) close(t->fd);
  free(t->temp);
  free(t->name);
}

/* ------------------------------------------------------------------------
 * init
 *
 * This command, not the engine, creates the file, so that it has its
 * permissions before anybody else can open it.
 * --------------------------------------------------------------------- */

/* The mode as for chmod: octal, at least reading and writing for the owner.
 * Only those two permissions mean anything for a database. */
static int init_mode(call *c, mode_t *mode) {
  const word *w = option_word(c, 'm');
  char *end;
  if (!w) return 0;
  unsigned long value = strtoul(w->text, &end, 8);
  if (*w->text < '0' || *w->text > '7' || *end || value & ~0666ul ||
      (value & 0600) != 0600)
    return fail_usage(
        c, "--mode wants permissions in octal, such as 660, not \"%s\"",
        w->text);
  *mode = (mode_t)value;
  return 0;
}

/* The group by name or number; a name of digits is first looked up as a
 * name. */
static int init_group(call *c, gid_t *group) {
  const word *w = option_word(c, 'g');
  int64_t number;
  if (!w) return 0;
  const struct group *g = getgrnam(w->text);
  if (g)
    *group = g->gr_gid;
  else if (word_number(w, &number) && number >= 0 && number < UINT32_MAX)
    *group = (gid_t)number;
  else
    return fail_usage(c, "there is no group \"%s\"", w->text);
  return 0;
}

/* Creates an empty file, and fails if it exists.  Only its owner has
 * permissions until it has its group. */
static int init_file(call *c, mode_t mode, gid_t group) {
  const char *name = c->sh->file;
  bool given = option_given(c, 'm') || option_given(c, 'g');
  int fd =
      open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, given ? 0600 : 0664);
  if (fd < 0 && errno == EEXIST) return refuse(c, "EXISTS", name, "exists");
  if (fd < 0) return fail_create(c, name);
  int status = 0;
  if ((option_given(c, 'g') && fchown(fd, (uid_t)-1, group) != 0) ||
      (given && fchmod(fd, mode) != 0)) {
    status = fail_create(c, name);
    unlink(name);
  }
  close(fd); /* nobody in this process has it open */
  return status;
}

/* Reports the file, its mode and its group; and for a program's database what
 * happened to the tables. */
static int init_emit(call *c, const char *tables) {
  char mode[16];
  struct stat st;
  if (stat(c->sh->file, &st) != 0) return fail_create(c, c->sh->file);
  snprintf(mode, sizeof mode, "%03o", (unsigned)st.st_mode & 0777);
  json_t *row = json_pack("{s:o*,s:s,s:I}", "file", value_text(c->sh->file),
                          "mode", mode, "group", (json_int_t)st.st_gid);
  if (row && tables) json_object_set_new(row, "tables", json_string(tables));
  return emit_row(c, row);
}

/* A handle for init on an existing file.  It has no chroot: whether the tables
 * exist does not depend on one. */
static int init_open(call *c, unsigned flags, zke **out) {
  zke_options o = c->sh->options;
  o.flags = ZKE_OPEN_EXISTING | flags;
  o.chroot = NULL;
  return zke_open(c->sh->file, &o, out);
}

/* Opens the file, which creates the tables, and reports this. */
static int init_tables(call *c, unsigned flags, const char *tables) {
  zke *z = NULL;
  int rc = init_open(c, flags, &z);
  if (rc == ZKE_OK) rc = zke_close(z);
  return rc == ZKE_OK ? init_emit(c, tables) : fail_rc(c, rc);
}

/* init --host: adds the tables to the program's.  If there is no file, this
 * creates it as init does, as a program's database from the start. */
static int init_host(call *c, mode_t mode, gid_t group) {
  zke *z = NULL;
  if (access(c->sh->file, F_OK) != 0) {
    int status = init_file(c, mode, group);
    return status ? status : init_tables(c, ZKE_OPEN_HOST, "made");
  }
  if (option_given(c, 'm') || option_given(c, 'g'))
    return fail_usage(c, "%s exists: chmod and chgrp change its permissions",
                      c->sh->file);
  bool there = init_open(c, ZKE_OPEN_READONLY, &z) == ZKE_OK;
  zke_close(z);
  return init_tables(c, ZKE_OPEN_HOST, there ? "were there already" : "made");
}

/* init --remove: removes all of zkembed from the program's database. */
static int init_remove(call *c) {
  zke *z = NULL;
  if (option_given(c, 'm') || option_given(c, 'g') || option_given(c, 'h'))
    return fail_usage(c, "--remove goes with no other option");
  int rc = init_open(c, 0, &z);
  if (rc == ZKE_OK) rc = zke_remove_tables(z);
  int status = 0;
  if (rc == ZKE_NOTEMPTY && strstr(zke_errmsg(), "trigger"))
    status =
        fail_with(c, status_of(rc), "NOTEMPTY",
                  "%s (\"fence\" lists fences, \"fence TABLE --off\" removes "
                  "one)",
                  zke_errmsg());
  else if (rc != ZKE_OK)
    status = fail_rc(c, rc);
  zke_close(z);
  return status ? status : init_emit(c, "removed");
}

/* init: creates the file with mode and group first, then the database in it, so
 * that the side files get them from the file. */
static int init_run(call *c) {
  mode_t mode = 0660;
  gid_t group = (gid_t)-1;
  if (is_memory(c))
    return fail_usage(c, "init makes a file, and :memory: has none");
  int status = init_mode(c, &mode);
  if (!status) status = init_group(c, &group);
  if (status) return status;
  if (option_given(c, 'r')) return init_remove(c);
  if (option_given(c, 'h')) return init_host(c, mode, group);
  status = init_file(c, mode, group);
  return status ? status : init_tables(c, 0, NULL);
}

/* ------------------------------------------------------------------------
 * backup
 *
 * SQLite's backup interface copies the pages, so they are of one moment and the
 * copy needs no log.  The copy is checked before it gets its name: a damaged
 * database is noticed when the copy is made, not when it is needed.
 * --------------------------------------------------------------------- */

/* Refuses to replace a copy that a process has open: a reader or writer has a
 * lock that excludes this one.  Opening the copy also recovers a log that a
 * crash left beside it, which backup_check_log() would refuse. */
static int backup_check_idle(call *c, const target *t) {
  sqlite3 *db = NULL;
  if (access(t->name, F_OK) != 0) return 0;
  int rc = sqlite3_open_v2(t->name, &db, SQLITE_OPEN_READWRITE, NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_exec(
        db, "PRAGMA locking_mode=EXCLUSIVE;BEGIN EXCLUSIVE;ROLLBACK", 0, 0, 0);
  sqlite3_close(db);
  if (rc != SQLITE_BUSY) return 0; /* others: no database at all, say */
  return fail_with(c, STATUS_CONFLICT, "BUSY", "%s is a database in use",
                   t->name);
}

/* Refuses if a log or a journal stands beside the copy's name: SQLite would
 * replay it into the copy at the next open. */
static int backup_check_log(call *c, const target *t) {
  static const char *const suffix[] = {"-wal", "-journal"};
  char name[PATH_MAX + 16];
  struct stat st;
  for (int i = 0; i < 2; i++) {
    snprintf(name, sizeof name, "%s%s", t->name, suffix[i]);
    if (stat(name, &st) != 0 || st.st_size == 0) continue;
    return refuse(c, "EXISTS", name,
                  "exists and would be replayed into the copy; see whose it "
                  "is, then remove it");
  }
  return 0;
}

/* Copies 512 pages at a time, to show progress and to notice a cancel.  The
 * snapshot's transaction keeps all pages at one moment. */
static int backup_steps(call *c, sqlite3 *from, sqlite3 *to, const target *t) {
  sqlite3_backup *b = sqlite3_backup_init(to, "main", from, "main");
  int rc = SQLITE_ERROR;
  if (!b) return fail_sqlite(c, to, t->name);
  while (!cancel_came(c) && (rc = sqlite3_backup_step(b, 512)) == SQLITE_OK) {
    int total = sqlite3_backup_pagecount(b);
    progress_show(c, "backup, pages", total - sqlite3_backup_remaining(b),
                  total);
  }
  sqlite3_backup_finish(b);
  if (rc == SQLITE_DONE) return 0;
  if (cancel_came(c)) return fail_cancelled(c);
  return fail_sqlite(c, to, t->name);
}

/* Has SQLite check the copy before it gets its name. */
static int backup_verify(call *c, sqlite3 *to, const target *t) {
  sqlite3_stmt *stmt = NULL;
  const char *said = NULL;
  int status = 0;
  if (sqlite3_prepare_v2(to, "PRAGMA integrity_check(1)", -1, &stmt, NULL) ==
          SQLITE_OK &&
      sqlite3_step(stmt) == SQLITE_ROW)
    said = (const char *)sqlite3_column_text(stmt, 0);
  if (!said)
    status = fail_sqlite(c, to, t->name);
  else if (strcmp(said, "ok") != 0)
    status = fail_with(c, STATUS_IO, "CORRUPT", "%s is damaged: %s",
                       t->snapshot ? t->snapshot : c->sh->file, said);
  sqlite3_finalize(stmt);
  return status;
}

/* The differences between a copy and its database.  No file has the inode -1,
 * so the first process that opens the copy begins a new epoch.  A database that
 * is not in WAL mode can be read in a directory that is not writable; a handle
 * with a session sets WAL mode again. */
static const char backup_mark[] =
    "UPDATE zkembed_meta SET db_inode=-1;PRAGMA journal_mode=DELETE";

/* Copies the database into the new file.  It needs no journal and no syncs: an
 * incomplete copy is removed, and target_done() syncs it. */
static int backup_copy(call *c, sqlite3 *from, const target *t) {
  sqlite3 *to = NULL;
  int status = 0;
  if (sqlite3_open_v2(t->temp, &to, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                      NULL) != SQLITE_OK ||
      sqlite3_exec(to,
                   "PRAGMA locking_mode=EXCLUSIVE;PRAGMA journal_mode=OFF;"
                   "PRAGMA synchronous=OFF",
                   0, 0, 0) != SQLITE_OK)
    status = fail_sqlite(c, to, t->name);
  if (!status) status = backup_steps(c, from, to, t);
  if (!status && sqlite3_exec(to, backup_mark, 0, 0, 0) != SQLITE_OK)
    status = fail_sqlite(c, to, t->name);
  reader_cancel_by(to, c);
  if (!status) status = backup_verify(c, to, t);
  sqlite3_close(to);
  return status;
}

/* Reports the name of the file and the size of the copy. */
static int backup_emit(call *c, const char *name, const target *t) {
  struct stat st;
  int64_t bytes = fstat(t->fd, &st) == 0 ? st.st_size : 0;
  json_t *row = json_pack("{s:o*,s:I}", "file", value_text(name), "bytes",
                          (json_int_t)bytes);
  return emit_row(c, row);
}

/* backup: copies one moment of the database to a file that no process uses. */
static int backup_run(call *c) {
  snapshot *s = NULL;
  target t = {.fd = -1};
  int status = snapshot_open(c, &s);
  if (!status)
    status = target_open(c, c->args[0].text, option_given(c, 'f'), &t);
  if (!status && !t.temp) status = refuse(c, "NOTAFILE", t.name, "is no file");
  if (!status) status = backup_check_idle(c, &t);
  if (!status) status = backup_check_log(c, &t);
  if (!status) status = backup_copy(c, s->db, &t);
  if (!status) status = target_done(c, &t);
  if (!status) status = backup_emit(c, c->args[0].text, &t);
  target_close(&t);
  snapshot_close(s);
  return status;
}

/* ------------------------------------------------------------------------
 * check
 *
 * The engine does the checks (zke_check()).  This opens the file without a
 * session, so that nothing is written to a database that may be damaged.
 * --------------------------------------------------------------------- */

/* A read-only handle without a session, since the file may be damaged.  A tree
 * in memory belongs to the shell: *out is NULL if there is none yet. */
static int inspect_open(call *c, zke **out) {
  shell *sh = c->sh;
  zke_options o = {.size = sizeof o,
                   .flags = ZKE_OPEN_READONLY | ZKE_OPEN_EXISTING,
                   .busy_timeout_ms = sh->options.busy_timeout_ms};
  if (!is_memory(c)) return zke_open(sh->file, &o, out);
  pthread_mutex_lock(&sh->m);
  *out = sh->z;
  pthread_mutex_unlock(&sh->m);
  return ZKE_OK;
}

/* Close what inspect_open() has opened; the handle of a tree in memory is the
 * shell's. */
static void inspect_close(call *c, zke *z) {
  if (!is_memory(c)) zke_close(z);
}

/* zke_check() calls this with the store locked, so it only collects. */
static void check_note(void *sentences, const char *sentence) {
  json_array_append_new(sentences, value_text(sentence));
}

/* Adds a sentence for each fault; returns a zkembed code. */
static int check_sentences(zke *z, json_t *found) {
  int rc = z ? zke_check(z, check_note, found) : ZKE_OK;
  if (rc != ZKE_OK && json_array_size(found) == 0)
    check_note(found, zke_errmsg());
  return rc;
}

/* Collects a sentence for each violation in found; *rc is ZKE_OK if there is
 * none.  A file too damaged to open is a violation, too. */
static int check_file(call *c, json_t *found, int *rc) {
  zke *z = NULL;
  int status = 0;
  *rc = inspect_open(c, &z);
  if (*rc == ZKE_OK)
    *rc = check_sentences(z, found);
  else if (*rc == ZKE_CORRUPT)
    check_note(found, zke_errmsg());
  else
    status = fail_rc(c, *rc);
  inspect_close(c, z);
  return status;
}

/* check: prints a row for each violation; returns 1 if there are any. */
static int check_run(call *c) {
  json_t *found = json_array(), *sentence;
  size_t i;
  int rc = ZKE_OK;
  int status = found ? check_file(c, found, &rc) : no_memory(c);
  json_array_foreach(found, i, sentence) {
    if (!status)
      status = emit_row(c, json_pack("{s:O}", "violation", sentence));
  }
  json_decref(found);
  if (status) return status;
  if (rc != ZKE_OK) return STATUS_NO;
  if (c->sh->person && c->format == FORMAT_HUMAN)
    fputs("zke: nothing is wrong\n", stderr);
  return STATUS_OK;
}

/* ------------------------------------------------------------------------
 * restore
 *
 * The snapshot is copied to a file beside the database, and the copy is
 * checked.  Then one SQLite transaction writes its pages into the database, so
 * a crash leaves the old tree or the new one, and the file keeps its inode,
 * owner and mode.  A process that opens the file meanwhile waits, and then
 * finds the new tree.
 *
 * If there is no database, the copy gets its name.  First the side files of a
 * lost database are removed, since SQLite would replay its log into the copy.
 *
 * The mark in the copy ends all sessions at the first open.  The side directory
 * stays: it records the latest zxid, so that none is used twice.
 * --------------------------------------------------------------------- */

typedef struct restoring {
  sqlite3 *from, *old; /* old: the database, locked; NULL: there is none */
  target t;            /* the copy; its name is the database's */
} restoring;

/* Refuses if another process has a lock on the file: SQLite's or the
 * engine's. */
static int restore_check_locks(call *c, int fd) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  char who[32] = "a process";
  if (fd < 0) return 0;
  int rc = fcntl(fd, F_GETLK, &lock);
  close(fd);
  if (rc != 0 || lock.l_type == F_UNLCK) return 0;
  if (lock.l_pid > 0) snprintf(who, sizeof who, "process %d", (int)lock.l_pid);
  return fail_with(c, STATUS_CONFLICT, "BUSY",
                   "%s is in use by %s; end all that use it, then restore",
                   c->sh->file, who);
}

/* Refuses if a process has the database open.  The side files reveal processes
 * that still have a removed file open. */
static int restore_check_idle(call *c, const char *name) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  char side[PATH_MAX + 16];
  struct dirent *e;
  struct stat st;
  int status = restore_check_locks(c, open(name, flags));
  snprintf(side, sizeof side, "%s-zke", name);
  DIR *d = status ? NULL : opendir(side);
  if (!d) return status;
  while (!status && (e = readdir(d)) != NULL)
    if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(st.st_mode))
      status = restore_check_locks(c, openat(dirfd(d), e->d_name, flags));
  closedir(d);
  return status;
}

/* Refuses to overwrite a file that is not of the snapshot's kind. */
static int restore_check_kind(call *c, const restoring *r) {
  static const char ours[] =
      "SELECT count(*)=0 OR max(name='zkembed_meta') FROM sqlite_schema";
  static const char empty[] = "SELECT count(*)=0 FROM sqlite_schema";
  static const char program[] = "PRAGMA application_id";
  if (reader_number(r->old, empty) == 1) return 0;
  if (reader_number(r->old, ours) == 1 &&
      reader_number(r->old, program) == reader_number(r->from, program))
    return 0;
  return refuse(c, "OTHERKIND", c->sh->file,
                "is another program's database, or the snapshot is of one");
}

/* Locks the database, so that no process can open it until r->old is closed.
 * r->old stays NULL if there is no database. */
static int restore_lock(call *c, restoring *r) {
  if (access(r->t.name, F_OK) != 0) return 0;
  if (access(r->t.name, W_OK) != 0)
    return fail_with(c, STATUS_DENIED, "READONLY", "%s cannot be written",
                     c->sh->file);
  int rc = sqlite3_open_v2(r->t.name, &r->old, SQLITE_OPEN_READWRITE, NULL);
  if (rc == SQLITE_OK)
    rc = sqlite3_exec(r->old,
                      "PRAGMA locking_mode=EXCLUSIVE;PRAGMA synchronous=FULL;"
                      "BEGIN EXCLUSIVE;ROLLBACK",
                      0, 0, 0);
  if (rc == SQLITE_OK) return restore_check_kind(c, r);
  if (rc == SQLITE_BUSY)
    return fail_with(c, STATUS_CONFLICT, "BUSY", "%s is in use", c->sh->file);
  if (rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT)
    return refuse(c, "CORRUPT", c->sh->file,
                  "is no database, or too damaged to be written over; move it "
                  "away, then restore");
  return fail_sqlite(c, r->old, c->sh->file);
}

/* Opens the snapshot, which other processes may use. */
static int restore_open(call *c, restoring *r) {
  const char *name = c->args[0].text;
  struct stat st;
  if (stat(name, &st) != 0 || access(name, R_OK) != 0)
    return fail_errno(c, STATUS_CANTOPEN, name);
  if (is_database(c, &st))
    return refuse(c, "SAMEFILE", name, "is the database itself");
  if (!S_ISREG(st.st_mode))
    return fail_with(c, STATUS_CANTOPEN, "NOTADB", "%s is no file", name);
  int rc = reader_try(name, &r->from);
  if (rc == SQLITE_READONLY || rc == SQLITE_CANTOPEN)
    return fail_with(
        c, STATUS_CANTOPEN, "CANTOPEN",
        "%s: reading needs its -shm file, which cannot be made there; "
        "copy it, with its -wal if there is one, elsewhere",
        name);
  if (rc == SQLITE_ERROR || rc == SQLITE_NOTADB)
    return fail_with(c, STATUS_CANTOPEN, "NOTADB",
                     "%s is not a zkembed database", name);
  return rc == SQLITE_OK ? 0 : fail_sqlite(c, r->from, name);
}

/* Verifies all invariants of a file: 0, or the first violation. */
static int restore_verify(call *c, const char *file, unsigned flags,
                          const char *name) {
  json_t *found = json_array();
  zke *z = NULL;
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_EXISTING | flags};
  if (!found) return no_memory(c);
  int rc = zke_open(file, &o, &z);
  if (rc == ZKE_OK)
    rc = check_sentences(z, found);
  else
    check_note(found, zke_errmsg());
  zke_close(z);
  int status = 0;
  if (rc != ZKE_OK)
    status =
        fail_with(c, status_of(rc), zke_error_name(rc) + strlen("ZKE_"),
                  "%s: %s", name, json_string_value(json_array_get(found, 0)));
  json_decref(found);
  return status;
}

/* Makes the checked copy beside the database. */
static int restore_copy(call *c, restoring *r) {
  int status = target_temp(c, &r->t);
  if (!status) status = backup_copy(c, r->from, &r->t);
  if (!status)
    status = restore_verify(c, r->t.temp, ZKE_OPEN_READONLY, c->args[0].text);
  return status;
}

/* Writes the copy into the locked database in one transaction.  First this
 * empties the old log: in WAL mode SQLite refuses pages of another size. */
static int restore_write(call *c, restoring *r) {
  sqlite3 *copy = NULL;
  int status = 0;
  if (sqlite3_exec(r->old, "PRAGMA journal_mode=DELETE", 0, 0, 0) != SQLITE_OK)
    status = fail_sqlite(c, r->old, c->sh->file);
  if (!status && reader_try(r->t.temp, &copy) != SQLITE_OK)
    status = fail_sqlite(c, copy, r->t.temp);
  if (!status) status = backup_steps(c, copy, r->old, &r->t);
  sqlite3_close(copy);
  sqlite3_close(r->old);
  r->old = NULL;
  return status;
}

/* Gives the copy the database's name, after removing its old side files. */
static int restore_name(call *c, restoring *r) {
  static const char *const ends[] = {"-wal", "-shm", "-journal"};
  char name[PATH_MAX + 16];
  for (int i = 0; i < 3; i++) {
    snprintf(name, sizeof name, "%s%s", r->t.name, ends[i]);
    if (unlink(name) != 0 && errno != ENOENT) return fail_create(c, name);
  }
  if (target_sync_directory(&r->t) != 0)
    return fail_errno(c, STATUS_IO, r->t.name);
  return target_done(c, &r->t);
}

/* All steps of restore, from the first check to the new epoch. */
static int restore_work(call *c, restoring *r) {
  int status = restore_open(c, r);
  if (!status) status = restore_check_idle(c, r->t.name);
  if (!status) status = restore_lock(c, r);
  if (!status) status = restore_copy(c, r);
  if (!status) status = r->old ? restore_write(c, r) : restore_name(c, r);
  if (!status) status = restore_verify(c, c->sh->file, 0, c->sh->file);
  if (!status) status = backup_emit(c, c->sh->file, &r->t);
  return status;
}

/* restore: replaces the database, which no process may use, by a snapshot. */
static int restore_run(call *c) {
  restoring r = {.t = {.fd = -1, .snapshot = c->args[0].text}};
  struct stat link;
  if (is_memory(c))
    return fail_usage(c, "restore writes a file, and :memory: has none");
  if (c->sh->z || c->sh->looker)
    return fail_with(c, STATUS_CONFLICT, "BUSY",
                     "%s is open in this shell; run \"zke %s restore\" alone",
                     c->sh->file, c->sh->file);
  r.t.name = realpath(c->sh->file, NULL);
  if (!r.t.name && errno == ENOENT) {
    if (lstat(c->sh->file, &link) == 0)
      return refuse(c, "NOENT", c->sh->file,
                    "leads to a file that is missing; restore to that file's "
                    "own name");
    r.t.name = strdup(c->sh->file);
  }
  int status = r.t.name ? restore_work(c, &r) : fail_create(c, c->sh->file);
  sqlite3_close(r.from);
  sqlite3_close(r.old);
  target_close(&r.t);
  return status;
}

/* ------------------------------------------------------------------------
 * compact
 *
 * The engine does the work; this command sets how long it may wait for others,
 * and reports how much shorter the file became.
 * --------------------------------------------------------------------- */

enum { COMPACT_MS = 60000 }; /* unless --wait says otherwise */

/* compact: has its own handle, so that other calls of a coprocess continue
 * meanwhile. */
static int compact_run(call *c) {
  const char *file = c->sh->file;
  zke_options o = {.size = sizeof o,
                   .flags = ZKE_OPEN_EXISTING,
                   .busy_timeout_ms = c->sh->options.busy_timeout_ms};
  int64_t ms, before = file_bytes(file);
  zke *z = NULL;
  if (is_memory(c))
    return fail_with(
        c, STATUS_DENIED, "MEMORY",
        "compact makes the database's file shorter, and :memory: has "
        "none");
  int status = option_duration(c, 'w', COMPACT_MS, &ms);
  if (status) return status;
  int rc = zke_open(file, &o, &z);
  if (rc == ZKE_OK) rc = zke_compact(z, zke_now(z) + ms);
  if (rc != ZKE_OK) status = fail_rc(c, rc);
  zke_close(z);
  if (status) return status;
  return emit_row(c, json_pack("{s:I,s:I}", "before", (json_int_t)before,
                               "bytes", (json_int_t)file_bytes(file)));
}

/* ------------------------------------------------------------------------
 * sql
 *
 * Three things keep a query from changing anything: the connection is
 * read-only, the authorizer allows only reading, and the statement is asked
 * whether it writes.
 * --------------------------------------------------------------------- */

/* Does this pragma only report something?  The first nine take an argument that
 * names an object; for the others an argument would be a new value. */
static bool sql_pragma_tells(const char *name, const char *value) {
  static const char *const names[] = {
      "table_info",     "table_xinfo",      "index_list",    "index_info",
      "index_xinfo",    "foreign_key_list", "quick_check",   "integrity_check",
      "table_list",     "page_count",       "page_size",     "freelist_count",
      "user_version",   "application_id",   "journal_mode",  "encoding",
      "schema_version", "data_version",     "database_list", "compile_options",
      "function_list",  "collation_list",   "auto_vacuum",   "cache_size"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (sqlite3_stricmp(name, names[i]) == 0) return i < 9 || !value;
  return false;
}

/* Limits what a statement may do.  The connection cannot write to the database,
 * but it could create other files (ATTACH, VACUUM INTO), load code, or turn off
 * its protection by a pragma. */
static int sql_authorize(void *unused, int action, const char *one,
                         const char *two, const char *database,
                         const char *trigger) {
  (void)unused, (void)database, (void)trigger;
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE:
      return SQLITE_OK;
    case SQLITE_FUNCTION:
      return sqlite3_stricmp(two, "load_extension") == 0 ? SQLITE_DENY
                                                         : SQLITE_OK;
    case SQLITE_PRAGMA:
      return sql_pragma_tells(one, two) ? SQLITE_OK : SQLITE_DENY;
    default:
      return SQLITE_DENY;
  }
}

/* A column of the row as JSON; NULL without memory.  JSON has no infinities, so
 * such a number becomes text. */
static json_t *sql_value(sqlite3_stmt *stmt, int i) {
  switch (sqlite3_column_type(stmt, i)) {
    case SQLITE_INTEGER:
      return json_integer(sqlite3_column_int64(stmt, i));
    case SQLITE_FLOAT: {
      /* JSON knows no infinity. */
      json_t *real = json_real(sqlite3_column_double(stmt, i));
      return real ? real
                  : value_text((const char *)sqlite3_column_text(stmt, i));
    }
    case SQLITE_NULL:
      return json_null();
    default: {
      const void *data = sqlite3_column_blob(stmt, i);
      return value_data(data, sqlite3_column_bytes(stmt, i));
    }
  }
}

/* Sets a member.  If the row has this name already, the new one gets a number,
 * as in SQLite's subqueries. */
static int sql_set(json_t *row, const char *name, json_t *value) {
  char text[300];
  int n = 1;
  snprintf(text, sizeof text, "%.256s", name ? name : "");
  while (json_object_get(row, text))
    snprintf(text, sizeof text, "%.256s:%d", name, n++);
  return json_object_set_new(row, text, value);
}

/* The row as an object; names that come twice are told apart by sql_set(). */
static json_t *sql_row(sqlite3_stmt *stmt) {
  json_t *row = json_object();
  for (int i = 0; row && i < sqlite3_column_count(stmt); i++)
    if (sql_set(row, sqlite3_column_name(stmt, i), sql_value(stmt, i)) != 0) {
      json_decref(row);
      return NULL;
    }
  return row;
}

/* The failure for a statement that would do more than read. */
static int fail_only_reads(call *c) {
  return fail_with(c, STATUS_DENIED, "READONLY",
                   "sql runs only statements that read");
}

/* Prepares the statement.  Refuses one that would write, and a second
 * statement.  If there is a second, the first does not run either, since the
 * user meant both. */
static int sql_prepare(call *c, sqlite3 *db, sqlite3_stmt **out) {
  const word *query = &c->args[0];
  const char *rest = NULL;
  sqlite3_stmt *more = NULL;
  if (strlen(query->text) != query->len)
    return fail_with(c, STATUS_DATA, "SQL", "there is a NUL in the query");
  if (sqlite3_prepare_v2(db, query->text, (int)query->len + 1, out, &rest) !=
      SQLITE_OK)
    return sqlite3_errcode(db) == SQLITE_AUTH ? fail_only_reads(c)
                                              : fail_sqlite(c, db, "");
  if (!*out) return fail_with(c, STATUS_DATA, "SQL", "no statement was given");
  while (*rest == ';' || *rest == ' ' || *rest == '\n' || *rest == '\t') rest++;
  int rc = sqlite3_prepare_v2(db, rest, -1, &more, NULL);
  bool another = rc != SQLITE_OK || more;
  sqlite3_finalize(more);
  if (another)
    return fail_with(c, STATUS_DATA, "SQL",
                     "sql runs one statement, and there is another one: %s",
                     rest);
  if (!sqlite3_stmt_readonly(*out)) return fail_only_reads(c);
  return 0;
}

/* sql: prints each row as it comes, so that head(1) can read an endless
 * query. */
static int sql_run(call *c) {
  sqlite3 *db = NULL;
  sqlite3_stmt *stmt = NULL;
  int status = reader_open(c, &db);
  if (status) return status;
  sqlite3_set_authorizer(db, sql_authorize, NULL);
  status = sql_prepare(c, db, &stmt);
  int rc = SQLITE_DONE;
  while (!status && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
    status = cancel_came(c) ? fail_cancelled(c) : emit_row(c, sql_row(stmt));
  if (!status && rc != SQLITE_DONE) status = fail_sqlite(c, db, "");
  sqlite3_finalize(stmt);
  sqlite3_close(db);
  return status;
}

/* ------------------------------------------------------------------------
 * doctor
 *
 * Each function examines one thing and reports its result by find(), even if
 * all is well.  A function that cannot examine its subject says so, and the
 * others still run.  Nothing is changed.
 * --------------------------------------------------------------------- */

/* How bad a finding is.  Only a problem makes the exit status 1; a note is not
 * a fault of the database. */
enum { FINE, NOTE, WARNING, PROBLEM };

/* One call of doctor. */
typedef struct doctor {
  call *c;
  char *real;   /* the database's path, links resolved; NULL: in memory */
  sqlite3 *db;  /* while doctor_look_inside() runs */
  zke *z;       /* read-only; NULL: it cannot be opened */
  int64_t zxid; /* before the sessions were looked at */
  bool sick;    /* a problem was found: the exit status is 1 */
  int status;   /* the first row that could not be printed */
} doctor;

/* Emits one finding.  Nothing stops the doctor: a row that cannot be printed is
 * remembered until the end. */
__attribute__((format(printf, 4, 5))) static void find(
    doctor *d, const char *check, int state, const char *format, ...) {
  static const char *const names[] = {"ok", "note", "warning", "problem"};
  char detail[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  d->sick = d->sick || state == PROBLEM;
  int status =
      emit_row(d->c, json_pack("{s:s,s:s,s:o*}", "check", check, "state",
                               names[state], "detail", value_text(detail)));
  if (!d->status) d->status = status;
}

/* Checks the versions of the library and of SQLite: whether zke was built for
 * them, and whether SQLite has the WAL-reset bug, which the versions named here
 * fix. */
static void doctor_versions(doctor *d) {
  int n = sqlite3_libversion_number();
  if (zke_version_number() == ZKE_VERSION_NUMBER)
    find(d, "version", FINE, "zkembed %s", zke_version());
  else
    find(d, "version", WARNING, "made for zkembed %s, runs with %s",
         ZKE_VERSION, zke_version());
  if (n / 1000 != SQLITE_VERSION_NUMBER / 1000)
    find(d, "sqlite", NOTE, "made for SQLite %s, runs with %s", SQLITE_VERSION,
         sqlite3_libversion());
  else
    find(d, "sqlite", FINE, "SQLite %s", sqlite3_libversion());
  bool mended = n >= 3051003 || (n >= 3050007 && n < 3051000) ||
                (n >= 3044006 && n < 3045000);
  if (mended)
    find(d, "wal_reset", FINE, "this SQLite has no WAL-reset bug");
  else
    find(d, "wal_reset", NOTE,
         "this SQLite has the WAL-reset bug, unless its package has been "
         "mended; zkembed avoids it, and other programs that write here must "
         "begin by PRAGMA wal_autocheckpoint=0");
}

/* The database file: links, permissions, owner.  Of several faults this reports
 * the worst.  A second hard link is the worst: SQLite names the log after the
 * path, so two names have two logs, and changes through one are not seen
 * through the other. */
static void doctor_file(doctor *d) {
  struct stat st;
  if (stat(d->real, &st) != 0) {
    find(d, "file", PROBLEM, "%s: %s", d->real, strerror(errno));
    return;
  }
  int state = FINE;
  const char *what = "";
  if (st.st_nlink > 1) {
    state = PROBLEM;
    what = ", has a second hard link: through it the log is not found";
  } else if (st.st_mode & 0002) {
    state = WARNING;
    what = ", anybody may write";
  } else if (access(d->real, W_OK) != 0) {
    state = NOTE;
    what = ", read-only for this user";
  }
  find(d, "file", state, "%s: %lld bytes, mode %04o, owner %u:%u%s", d->real,
       (long long)st.st_size, (unsigned)st.st_mode & 07777, st.st_uid,
       st.st_gid, what);
}

/* The files beside the database must have its mode and group, since each user
 * of the database uses them.  If a user may read the database, that user may
 * also enter the directory. */
static void doctor_side_files(doctor *d) {
  static const char *const ends[] = {"-zke",      "-zke/gate", "-zke/line",
                                     "-zke/live", "-wal",      "-shm"};
  char name[PATH_MAX + 16];
  struct stat db, st;
  int wrong = 0;
  if (stat(d->real, &db) != 0) return;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    snprintf(name, sizeof name, "%s%s", d->real, ends[i]);
    if (stat(name, &st) != 0) continue;
    unsigned mode = db.st_mode & 0777;
    if (S_ISDIR(st.st_mode)) mode |= (mode & 0444) >> 2;
    bool grouped = !(mode & 0070) || st.st_gid == db.st_gid;
    if ((st.st_mode & 0777) == mode && grouped) continue;
    wrong++;
    find(d, "side_files", WARNING,
         "%s has mode %04o and group %u, and should have %04o and %u, as the "
         "database: its owner, user %u, mends that by any command that writes",
         name, (unsigned)st.st_mode & 0777, st.st_gid, mode, db.st_gid,
         st.st_uid);
  }
  if (!wrong) find(d, "side_files", FINE, "mode and group are the database's");
}

/* Is the file system local, and is there space?  The engine's own test
 * recognises network file systems. */
static void doctor_file_system(doctor *d) {
  enum { SCARCE = 64 << 20, NONE = 4 << 20 };
  zke_os os;
  struct statvfs vfs;
  zke_os_default(&os);
  int network = os.network(os.context, d->real);
  find(d, "file_system", network > 0 ? PROBLEM : FINE, "%s",
       network > 0 ? "on the network: write-ahead logging needs one kernel"
                   : "local");
  if (statvfs(d->real, &vfs) != 0) return;
  uint64_t left = (uint64_t)vfs.f_bavail * vfs.f_frsize;
  int state = FINE;
  if (left < SCARCE) state = WARNING;
  if (left < NONE) state = PROBLEM;
  find(d, "space", state, "%" PRIu64 " MiB left", left >> 20);
}

/* The write-ahead log's length.  Checkpoints reuse the log from its start,
 * unless a reader still needs its contents. */
static void doctor_log(doctor *d) {
  enum { LONG = 64 << 20 };
  char name[PATH_MAX + 16];
  struct stat st;
  snprintf(name, sizeof name, "%s-wal", d->real);
  long long size = stat(name, &st) == 0 ? (long long)st.st_size : 0;
  if (size > LONG)
    find(d, "wal", WARNING,
         "%lld bytes: a long reader keeps it from being emptied", size);
  else
    find(d, "wal", FINE, "%lld bytes", size);
}

/* What SQLite says about the file: journal mode, format, pages, how many of
 * them are unused. */
static void doctor_pages(doctor *d) {
  sqlite3_stmt *stmt = NULL;
  char mode[16] = "";
  if (sqlite3_prepare_v2(d->db, "PRAGMA journal_mode", -1, &stmt, NULL) ==
          SQLITE_OK &&
      sqlite3_step(stmt) == SQLITE_ROW)
    snprintf(mode, sizeof mode, "%s",
             (const char *)sqlite3_column_text(stmt, 0));
  sqlite3_finalize(stmt);
  bool wal = strcmp(mode, "wal") == 0;
  find(d, "journal", wal ? FINE : NOTE, "journal mode %s%s", mode,
       wal ? "" : "; the next session sets wal");
  find(d, "format", FINE, "format %" PRId64,
       reader_number(d->db, "SELECT format FROM zkembed_meta"));
  int64_t pages = reader_number(d->db, "PRAGMA page_count");
  int64_t unused = reader_number(d->db, "PRAGMA freelist_count");
  bool slack = unused > 10000 && unused > pages / 2;
  find(d, "pages", slack ? NOTE : FINE,
       "%" PRId64 " of %" PRId64 " bytes, %" PRId64 " unused%s", pages,
       reader_number(d->db, "PRAGMA page_size"), unused,
       slack ? "; compact gives them back" : "");
}

/* Nodes from the future, and zxids above the database's.  Up to a minute is
 * allowed for clocks that are adjusted. */
static void doctor_clock(doctor *d) {
  int64_t latest = reader_number(
      d->db, "SELECT max(max(ctime),max(mtime)) FROM zkembed_node");
  int64_t ahead = latest / 1000 - clock_wall_ms() / 1000;
  if (ahead > 60)
    find(d, "clock", WARNING,
         "a node was changed %" PRId64
         " s in the future: the clock was set back",
         ahead);
  else
    find(d, "clock", FINE, "no node is from the future");
  int64_t zxid = d->zxid =
      reader_number(d->db, "SELECT zxid FROM zkembed_meta");
  int64_t above = reader_number(
      d->db, "SELECT max(max(mzxid),max(pzxid)) FROM zkembed_node");
  find(d, "zxid", above > zxid ? PROBLEM : FINE, "0x%" PRIx64 "%s",
       (uint64_t)zxid, above > zxid ? ", a node has a higher one" : "");
}

/* Handles a living session if its own process is not seen to have its
 * descriptor.  Reports it and returns true if other processes have it or that
 * process is gone.  Otherwise nothing is known: it may be another user's
 * process, or in another PID namespace. */
static bool doctor_orphan(doctor *d, const zke_session_info *s,
                          const json_t *kept) {
  char *text = NULL;
  size_t len;
  FILE *out = open_memstream(&text, &len);
  bool gone = kill((pid_t)s->pid, 0) != 0 && errno == ESRCH;
  if (!out) return false;
  holders_human(kept, out);
  bool said = fclose(out) == 0 && (gone || json_array_size(kept));
  if (said)
    find(d, "session", WARNING,
         "0x%" PRIx64 " (%s, pid %" PRId64
         ") is kept alive, with %d ephemeral nodes, by %s%s",
         (uint64_t)s->id, s->identity, s->pid, s->ephemerals, text,
         gone ? "; the process that began it has ended, or is in another "
                "container"
              : "");
  free(text);
  return said;
}

/* Reports what is wrong with a session; false if nothing is. */
static bool doctor_session(doctor *d, holders *h, const zke_session_info *s) {
  process p;
  int64_t life = holders_life(s);
  if (!s->alive && s->timeout_ms && !s->carrier) return false; /* detached */
  if (!s->alive) {
    find(d, "session", WARNING,
         "0x%" PRIx64 " (%s, pid %" PRId64
         ") is dead and not yet removed: nobody waits or makes changes",
         (uint64_t)s->id, s->identity, s->pid);
    return true;
  }
  if (!holders_have(h, life, s->pid)) {
    json_t *kept = holders_instead(h, life, s->pid);
    bool said = doctor_orphan(d, s, kept);
    json_decref(kept);
    return said;
  }
  if (!process_read((pid_t)s->pid, &p) || (p.state != 'T' && p.state != 't'))
    return false;
  find(d, "session", WARNING,
       "0x%" PRIx64 " (%s, pid %" PRId64
       ") is stopped, and keeps %d ephemeral nodes; kill -CONT %" PRId64,
       (uint64_t)s->id, s->identity, s->pid, s->ephemerals, s->pid);
  return true;
}

/* A session's znodes that stand in a line but are not zkembed's entries.
 * Another library may have its own lines; but two libraries in one line do not
 * exclude each other. */
static void doctor_foreign(doctor *d, const zke_session_info *s) {
  zke_strings *paths = NULL;
  if (!s->ephemerals) return;
  if (zke_ephemerals(d->z, s->id, NULL, &paths) != ZKE_OK) return;
  for (int i = 0; i < paths->count; i++) {
    char *path = paths->data[i], *slash = strrchr(path, '/'), *data = NULL;
    const char *whose = zke_recipe_foreign(slash + 1);
    if (!whose || slash == path) continue;
    *slash = '\0';
    bool both = zke_get(d->z, path, NULL, NULL, &data, NULL, NULL) == ZKE_OK &&
                data && strncmp(data, "zkembed ", 8) == 0;
    zke_free(data);
    find(d, "foreign", both ? WARNING : NOTE,
         "%s: %s is of %s, whose locks and zkembed's do not see each other%s",
         path, slash + 1, whose,
         both ? "; both use this path: zke help serve tells how to share it"
              : "");
  }
  zke_free(paths);
}

/* Searches from the start each time, since the list is short. */
static bool session_exists(const zke_session_list *list, int64_t id) {
  for (int i = 0; i < list->count; i++)
    if (list->data[i].id == id || list->data[i].carrier == id) return true;
  return false;
}

/* Counts FIFOs of sessions that are not in the list.  Their names are session
 * ids, which are zxids.  An id above the zxid that was read before the list
 * belongs to a session that began since, so it is not a leftover. */
static void doctor_leftovers(doctor *d, const zke_session_list *list) {
  char name[PATH_MAX + 16];
  snprintf(name, sizeof name, "%s-zke", d->real);
  DIR *entries = opendir(name);
  struct dirent *e;
  int count = 0;
  while (entries && (e = readdir(entries)) != NULL) {
    char *end;
    int64_t id = (int64_t)strtoull(e->d_name, &end, 16);
    if (strlen(e->d_name) == 16 && !*end && id <= d->zxid)
      count += !session_exists(list, id);
  }
  if (entries) closedir(entries);
  if (count)
    find(d, "leftovers", NOTE,
         "%d wake-up files of sessions that are gone, in %s", count, name);
  else
    find(d, "leftovers", FINE, "none");
}

/* Sessions that are dead, stopped, or kept alive by others, and files that
 * ended sessions left. */
static void doctor_sessions(doctor *d) {
  zke_session_list *list = NULL;
  int rc = zke_sessions(d->z, -1, &list), said = 0;
  if (rc != ZKE_OK) {
    find(d, "sessions", PROBLEM, "%s", zke_errmsg());
    return;
  }
  holders h = holders_begin(d->c->sh->file);
  for (int i = 0; i < list->count; i++) {
    said += doctor_session(d, &h, &list->data[i]);
    doctor_foreign(d, &list->data[i]);
  }
  holders_free(&h);
  find(d, "sessions", FINE, "%d, of which %d alive and running", list->count,
       list->count - said);
  if (d->real) doctor_leftovers(d, list);
  zke_free(list);
}

/* The violations that zke_check() finds, a row each. */
static void doctor_integrity(doctor *d) {
  json_t *found = json_array(), *sentence;
  size_t i;
  if (check_sentences(d->z, found) == ZKE_OK)
    find(d, "integrity", FINE, "all invariants hold");
  json_array_foreach(found, i, sentence) {
    const char *text = json_string_value(sentence);
    find(d, "integrity", PROBLEM, "%s", text ? text : "?");
  }
  json_decref(found);
}

/* The checks that need SQLite. */
static void doctor_look_inside(doctor *d) {
  if (reader_try(d->real, &d->db) != SQLITE_OK) {
    find(d, "readable", PROBLEM, "%s: %s", d->real, sqlite3_errmsg(d->db));
  } else {
    doctor_pages(d);
    doctor_clock(d);
  }
  sqlite3_close(d->db);
}

/* The checks that only a file needs. */
static int doctor_look_at_file(doctor *d) {
  d->real = realpath(d->c->sh->file, NULL);
  if (!d->real) return fail_errno(d->c, STATUS_CANTOPEN, d->c->sh->file);
  doctor_file(d);
  doctor_side_files(d);
  doctor_file_system(d);
  doctor_log(d);
  return 0;
}

/* doctor: examines the file, the versions, the tables, the sessions and the
 * invariants, in this order, as far as each can be reached.  The tables are
 * left out if the file is not a database, or has a newer format. */
static int doctor_run(call *c) {
  doctor d = {.c = c};
  int status = is_memory(c) ? 0 : doctor_look_at_file(&d);
  if (status) return status;
  doctor_versions(&d);
  int rc = inspect_open(c, &d.z);
  if (d.real && rc != ZKE_NOTADB && rc != ZKE_NEWERFORMAT)
    doctor_look_inside(&d);
  if (rc != ZKE_OK) find(&d, "open", PROBLEM, "%s", zke_errmsg());
  if (d.z) doctor_sessions(&d);
  if (d.z) doctor_integrity(&d);
  inspect_close(c, d.z);
  free(d.real);
  if (cancel_came(c)) return fail_cancelled(c);
  if (d.status) return d.status;
  return d.sick ? STATUS_NO : STATUS_OK;
}

/* The options and rows of these commands, for run.c, args.c and help. */
static const option backup_options[] = {{'f', "force", NULL}, {0}};
static const option compact_options[] = {{'w', "wait", "DURATION"}, {0}};
static const option init_options[] = {{'m', "mode", "MODE"},
                                      {'g', "group", "GROUP"},
                                      {'h', "host", NULL},
                                      {'r', "remove", NULL},
                                      {0}};

const command database_commands[] = {
    {"backup", "[--force] FILE",
     "copy the database while it is in use; \"restore\" puts the copy back",
     backup_options, 1, 1, NEEDS_FILE | FILE_ONLY, STYLE_RECORD, backup_run,
     NULL},
    {"restore", "SNAPSHOT",
     "replace the database, which no process may use, by a copy", NULL, 1, 1,
     NEEDS_NOTHING | FILE_ONLY | NOT_IN_COPROCESS, STYLE_RECORD, restore_run,
     NULL},
    {"init", "[--host] [--mode MODE] [--group GROUP] | --remove",
     "create the database, or its tables in a program's; or remove these",
     init_options, 0, 0, NEEDS_NOTHING | FILE_ONLY, STYLE_RECORD, init_run,
     NULL},
    {"check", "", "verify the database; print what is wrong with it", NULL, 0,
     0, NEEDS_NOTHING | FILE_ONLY, STYLE_VALUE, check_run, NULL},
    {"compact", "[--wait DURATION]", "shrink the file after much was removed",
     compact_options, 0, 0, NEEDS_NOTHING | FILE_ONLY, STYLE_RECORD,
     compact_run, NULL},
    {"doctor", "", "look for problems of the file, the system and the sessions",
     NULL, 0, 0, NEEDS_NOTHING | FILE_ONLY, STYLE_TABLE, doctor_run, NULL},
    {"sql", "QUERY",
     "run an SQL query on zke_nodes, zke_sessions and other views", NULL, 1, 1,
     NEEDS_FILE | FILE_ONLY, STYLE_TABLE, sql_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
