/* fence.h - the database rejects rows of a process that has lost its lock
 *
 *     zke_fence_options o = ZKE_INIT(zke_fence_options);
 *     o.column = "token";
 *     int rc = zke_fence_set(z, "payments", "/locks/pay", &o);
 *     if (rc != ZKE_OK) fprintf(stderr, "%s\n", zke_errmsg());
 *
 * After this, a row of the table can only be inserted or updated if its column
 * gets the token of the lock's present holder:
 *
 *     INSERT INTO payments(sum,token) VALUES(100,:token)
 *     UPDATE payments SET sum=sum+1,token=:token WHERE id=7
 *
 * :token is the value of zke_lock_token(), or $ZKE_LOCK_TOKEN in a command that
 * `zke FILE lock` runs.  Any other value fails the statement with "fenced: that
 * token does not hold /locks/pay" (SQLITE_CONSTRAINT_TRIGGER).  The database
 * enforces this for each program that writes to the file with SQLite, in any
 * language, and for SQLite's own shell.  Each such connection begins with
 * "PRAGMA wal_autocheckpoint=0" (doc/format.md).
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 *
 * LAYOUT: two triggers of the table, for INSERT and for UPDATE, named
 * fence_zke_<zxid>_insert and _update.  They ask the view zke_tokens
 * (doc/format.md).  Nothing else is kept.  ALTER TABLE may rename the table or
 * the column; DROP TABLE takes the triggers with it.
 *
 * WHICH PATHS FIT: the participants must be direct, ephemeral children of the
 * path, as in lock, multilock (each of its paths), semaphore, election (its
 * candidates), and rwlock, where only the writers may write.  At any other path
 * no token is in office, and every row is refused.  The path is the database's,
 * whatever the handle's chroot, as in the view.
 *
 * WHAT IT DOES NOT COVER:
 * - A DELETE has no token.  Update the row's column first, in the same
 *   transaction; or make the deletion in a zke_multi() with zke_lock_op() and
 *   zke_op_sql(); or begin the transaction with zke_claim() (zke_sql_adopt()).
 * - An UPDATE that does not set the column keeps the row's token: it passes
 *   while the last writer of that row is in office, whoever makes the update.
 *   So let each statement set it.
 * - Changes that fire no trigger, or one without the writer's token: writing
 *   directly into a blob, a connection with its triggers turned off, and rows
 *   that a foreign key changes or deletes after a change of another table.
 * - Any process that may write to the file can drop a trigger, and can read
 *   others' tokens.  A fence protects from late processes, not from enemies.
 *
 * IF THE PROCESS DIES in one of these calls, either all of it is done or
 * nothing.  After a holder's death its token is out of office as soon as its
 * session is removed.  The next in line removes the session before it holds.
 *
 * WHO IS WOKEN: no one.
 *
 * COSTS: zke_fence_set() and zke_fence_remove() are one synced write each.  It
 * changes the schema, so every connection prepares its statements again.  Each
 * written row costs one more search among the path's children.  SQLite reads
 * them until it finds the holder's: half of them on average, and all of them
 * for a token that it refuses (doc/performance.md has the figures).  If the
 * line is long and a transaction writes many rows, zke_claim() (see
 * zke_sql_adopt()) searches once at its beginning; but it guards only that
 * transaction.
 *
 * MISTAKES, and their results:
 * - A second lock for one table: ZKE_NODEEXISTS, unless options.replace.
 * - zke_remove_tables() while there is a fence: ZKE_NOTEMPTY.  Remove it first.
 * - INSERT OR REPLACE and UPDATE OR REPLACE delete the conflicting row without
 *   any trigger.  The new row is checked.
 */
#ifndef ZKEMBED_RECIPES_FENCE_H
#define ZKEMBED_RECIPES_FENCE_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_fence_options {
  size_t size;
  const char *column; /* of the table; NULL: "fence" */
  int replace;        /* 1: replace the table's other fence */
  int reserved;       /* 0 */
} zke_fence_options;

/* zke_fence_set - make the database reject rows without the present token
 *
 *   table    one of the program's tables, by its name, without quotes or
 *            schema; existing rows stay
 *   path     of the lock, which need not exist yet: the whole path, whatever
 *            the handle's chroot
 *   options  NULL for the defaults
 *
 * Returns ZKE_OK, even if that fence was already there; or, with nothing
 * changed,
 *   ZKE_NODEEXISTS     the table has another fence; the sentence says which
 *   ZKE_BADARGUMENTS   a malformed path, "/"; no table of that name; a view, a
 *                      virtual table, one of zkembed's or of SQLite's; no such
 *                      column
 *   ZKE_SQL            SQLite refuses the triggers; the sentence says why
 *   ZKE_UNIMPLEMENTED  the tree is in no file, or the program cannot reach the
 *                      SQLite that zkembed uses (a shared library with one
 *                      compiled in)
 *   ZKE_NOMEM, or what a durable change returns
 *
 * ZKE_CONNECTIONLOSS: the reply was lost, and then others changed the table's
 * fence, or the next try failed.  The fence may have been set.  Others' fence
 * stays; zke_fence_list() tells which one the table has.  But if they removed a
 * first fence, it is set again. */
ZKE_API int zke_fence_set(zke *z, const char *table, const char *path,
                          const zke_fence_options *options);

/* zke_fence_remove - allow writes without a token again
 *
 * Returns ZKE_OK; ZKE_NONODE if the table has no fence, or does not exist; or
 * as zke_fence_set(). */
ZKE_API int zke_fence_remove(zke *z, const char *table);

/* A fence.  Its strings are in the list's block. */
typedef struct zke_fence_info {
  const char *table;
  const char *path;
  const char *column;
  int64_t reserved[4];
} zke_fence_info;

typedef struct zke_fence_infos {
  int count;
  const zke_fence_info *data;
} zke_fence_infos;

/* zke_fence_list - all fences of the database, in the order of the tables
 *
 * Example: which path fences which table.
 *
 *     zke_fence_infos *list = NULL;
 *     rc = zke_fence_list(z, &list);
 *     for (int i = 0; rc == ZKE_OK && i < list->count; i++)
 *       printf("%s by %s\n", list->data[i].table, list->data[i].path);
 *     zke_free(list);
 *
 * Returns ZKE_OK, ZKE_UNIMPLEMENTED, or what a read returns. */
ZKE_API int zke_fence_list(zke *z, zke_fence_infos **list_out);

#ifdef __cplusplus
}
#endif

#endif
