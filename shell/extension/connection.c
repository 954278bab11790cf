/* connection.c - the connections with the extension, and their handles */
#include "extension.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

SQLITE_EXTENSION_INIT1

/* The oldest SQLite that the engine accepts (zkembed.c, ZKE_SQLITE_OLDEST).  An
 * older one does not have all functions that are called here: a call would
 * crash. */
enum { OLDEST = 3037002 };

/* ---- a connection's handle ---- */

/* The name of the VFS that opened the connection's file. */
static const char *vfs_of(sqlite3 *db) {
  sqlite3_vfs *vfs = NULL;
  int rc = sqlite3_file_control(db, "main", SQLITE_FCNTL_VFS_POINTER, &vfs);
  return rc == SQLITE_OK && vfs ? vfs->zName : NULL;
}

/* Opens a handle on the connection's file.  Without a file it has a separate
 * tree, which no other connection can see.  Newer SQLite versions give no name
 * for a database in memory that connections may share. */
static int open_handle(ext_connection *k) {
  zke_options o = ZKE_INIT(zke_options);
  const char *file = ext_file(k);
  int moved = 0;
  o.flags = ZKE_OPEN_HOST;
  o.vfs = vfs_of(k->db);
  if (o.vfs && strcmp(o.vfs, "memdb") == 0)
    return zke_fail(ZKE_BADARGUMENTS,
                    "a database that connections share in memory cannot have "
                    "zkembed: use a file");
  if (!file) return zke_open(":memory:", NULL, &k->z);
  sqlite3_file_control(k->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (moved)
    return zke_fail(ZKE_REPLACED,
                    "%s was removed or replaced while the connection had it "
                    "open",
                    file);
  if (sqlite3_txn_state(k->db, "main") == SQLITE_TXN_WRITE)
    return zke_fail(ZKE_MISUSE,
                    "the connection's first call in a transaction that writes "
                    "would wait for itself: call one before BEGIN");
  if (sqlite3_db_readonly(k->db, "main") == 1) o.flags |= ZKE_OPEN_READONLY;
  return zke_open(file, &o, &k->z);
}

/* The connection writes to the file beside the engine, so it must follow
 * zke_sql_adopt().  In a transaction that may have to wait: then the next call
 * does it. */
static int adopt(ext_connection *k) {
  bool needless = !ext_file(k) || sqlite3_db_readonly(k->db, "main") == 1;
  if (k->adopted || needless) return ZKE_OK;
  if (sqlite3_txn_state(k->db, NULL) != SQLITE_TXN_NONE) return ZKE_OK;
  int rc = ext_outbox_hook(k);
  if (rc == ZKE_OK) rc = zke_sql_adopt(k->z, k->db);
  k->adopted = rc == ZKE_OK;
  return rc;
}

void ext_leave(ext_connection *k) {
  if (k->guest && zke_sql_rollback(k->z, k->db) != ZKE_MISUSE) ext_left(k);
}

int ext_open(ext_connection *k) {
  bool ended = sqlite3_get_autocommit(k->db);
  if (ended) ext_leave(k);
  int rc = k->z ? ZKE_OK : open_handle(k);
  if (rc == ZKE_OK) rc = ext_alone(k);
  if (rc == ZKE_OK) rc = adopt(k);
  if (rc != ZKE_OK || !k->adopted || (k->guest && !ended)) return rc;
  rc = ext_outbox_hook(k);
  if (rc == ZKE_OK) ext_outbox_look(k);
  return rc;
}

/* On a thread that is between zke_begin() and its end, for whichever
 * connection, the engine refuses all calls, also one that does nothing. */
int ext_close(ext_connection *k) {
  if (k->z && zke_sleep(k->z, 0) == ZKE_MISUSE) return ZKE_MISUSE;
  ext_owned_free(k);
  if (k->z) zke_close(k->z);
  k->z = NULL;
  k->looked_ms = 0;
  return ZKE_OK;
}

/* ---- its beginning and its end ---- */

ext_connection *ext_begin(sqlite3 *db) {
  ext_connection *k = calloc(1, sizeof *k);
  if (k) *k = (ext_connection){.db = db, .users = 1};
  return k;
}

/* Connections that this thread has closed, but whose sessions could not end: it
 * is between zke_begin() and its end, on another connection.  Another thread
 * would wait for that end. */
static _Thread_local ext_connection *closed;

void ext_release(ext_connection *k) {
  if (--k->users) return;
  if (ext_close(k) == ZKE_OK) {
    free(k);
    return;
  }
  k->next = closed;
  closed = k;
}

void ext_left(ext_connection *k) {
  k->guest = false;
  while ((k = closed)) {
    closed = k->next;
    ext_close(k);
    free(k);
  }
}

/* sqlite3_open() fails if an automatic extension leaves an error. */
bool ext_is_loaded(sqlite3 *db) {
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, "SELECT zke_untell('')", -1, &st, NULL);
  sqlite3_finalize(st);
  sqlite3_exec(db, "SELECT 1", NULL, NULL, NULL);
  return rc == SQLITE_OK;
}

const char *ext_refuses(const sqlite3_api_routines *api) {
#ifdef SQLITE_CORE
  (void)api;
#else
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  if (api->libversion_number() < OLDEST)
    return "zkembed needs SQLite 3.37.2 or later; this library is older";
  pthread_mutex_lock(&lock);
  bool another = sqlite3_api && sqlite3_api != api;
  if (!another) sqlite3_api = api;
  pthread_mutex_unlock(&lock);
  if (another)
    return "zkembed was loaded by another SQLite library of this process; "
           "each would drop the other's locks";
#endif
  return NULL;
}
