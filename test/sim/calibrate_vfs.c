/* calibrate_vfs.c - the calls of SQLite's VFS that a script makes; see
 * calibrate.h
 *
 * The caller of a VFS has duties: it asks for SHARED before RESERVED, does not
 * take a lock of the WAL-index that it already has, and so on.  Each function
 * keeps them, and makes no call if it cannot. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/calibrate.h"

enum { BYTES = 4096, REGION = 32768 };

/* The handle that a word stands for. */
static cal_handle *handle_of(cal_actor *me, const cal_word *w) {
  return &me->handle[w->value];
}

/* The functions of an open handle. */
static const sqlite3_io_methods *of(const cal_handle *h) {
  return h->f->pMethods;
}

/* The text of SQLite's code. */
static void say_code(cal_actor *me, int code) {
  static const struct {
    int code;
    const char *text;
  } known[] = {{SQLITE_OK, "ok"},
               {SQLITE_BUSY, "busy"},
               {SQLITE_CANTOPEN, "cannot open"},
               {SQLITE_NOTFOUND, "not found"},
               {SQLITE_IOERR_SHORT_READ, "short"},
               {SQLITE_IOERR_FSTAT, "no database"},
               {SQLITE_IOERR_DELETE_NOENT, "no file"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (known[i].code != code) continue;
    cal_say(me, "%s", known[i].text);
    return;
  }
  cal_say(me, "code %d", code);
}

/* A caller drops its locks of the WAL-index before it unmaps that, */
static int handle_unmap(cal_handle *h, int remove) {
  for (int i = 0; i < SQLITE_SHM_NLOCK; i++) {
    if (h->shared >> i & 1)
      of(h)->xShmLock(h->f, i, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_SHARED);
    if (h->exclusive >> i & 1)
      of(h)->xShmLock(h->f, i, 1, SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE);
  }
  h->mapped = false;
  h->shared = h->exclusive = 0;
  h->region[0] = h->region[1] = NULL;
  return of(h)->xShmUnmap(h->f, remove);
}

/* and unmaps it before it closes the file. */
static void handle_close(cal_handle *h) {
  if (h->mapped) handle_unmap(h, 0);
  of(h)->xClose(h->f);
  free(h->f);
  *h = (cal_handle){.f = NULL};
}

/* Does a file of this name exist, even an empty one? */
static bool is_there(cal_actor *me, const char *path) {
  int is = 0;
  me->vfs->xAccess(me->vfs, path, SQLITE_ACCESS_READWRITE, &is);
  return is != 0;
}

/* Would it create a database for an existing WAL-index, because the old
 * database was deleted while in use?  SQLite's users must not do that. */
static bool finds_old_index(cal_actor *me, const cal_word *const *w) {
  char index[256];
  snprintf(index, sizeof index, "%s-shm", me->path[0]);
  return w[1]->value == 0 && !is_there(me, me->path[0]) && is_there(me, index);
}

/* The name decides the kind of file. */
static void act_open(cal_actor *me, const cal_word *const *w) {
  static const int types[] = {SQLITE_OPEN_MAIN_DB, SQLITE_OPEN_MAIN_JOURNAL,
                              SQLITE_OPEN_WAL};
  cal_handle *h = handle_of(me, w[0]);
  int flags = (int)w[2]->value | types[w[1]->value], got = 0;
  if (finds_old_index(me, w)) return;
  h->f = calloc(1, (size_t)me->vfs->szOsFile);
  if (!h->f) abort();
  int rc = me->vfs->xOpen(me->vfs, me->path[w[1]->value], h->f, flags, &got);
  say_code(me, rc);
  h->database = w[1]->value == 0;
  h->writes = !(got & SQLITE_OPEN_READONLY);
  if (rc == SQLITE_OK) {
    cal_say(me, got & SQLITE_OPEN_READONLY ? "to read" : "to write");
    return;
  }
  free(h->f);
  h->f = NULL;
}

/* With its locks, if it has any. */
static void act_close(cal_actor *me, const cal_word *const *w) {
  handle_close(handle_of(me, w[0]));
  cal_say(me, "ok");
}

/* Bytes beyond the end must be zeros, whatever the buffer contained. */
static void act_read(cal_actor *me, const cal_word *const *w) {
  unsigned char data[BYTES];
  cal_handle *h = handle_of(me, w[0]);
  memset(data, 'x', sizeof data);
  say_code(me, of(h)->xRead(h->f, data, (int)w[2]->value, w[1]->value));
  cal_say_bytes(me, data, w[2]->value);
}

/* Also beyond the end of the file. */
static void act_write(cal_actor *me, const cal_word *const *w) {
  unsigned char data[BYTES];
  cal_handle *h = handle_of(me, w[0]);
  if (!h->writes) return;
  cal_fill(me, data, w[2]->value);
  say_code(me, of(h)->xWrite(h->f, data, (int)w[2]->value, w[1]->value));
}

/* Also to more than the file's size. */
static void act_truncate(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  if (h->writes) say_code(me, of(h)->xTruncate(h->f, w[1]->value));
}

/* SQLite uses only the result. */
static void act_sync(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  say_code(me, of(h)->xSync(h->f, SQLITE_SYNC_NORMAL));
}

/* The size that SQLite sees. */
static void act_size(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  sqlite3_int64 size = -1;
  say_code(me, of(h)->xFileSize(h->f, &size));
  cal_say(me, "%lld", size);
}

/* Take a lock as SQLite does.  SHARED comes first.  PENDING is never requested,
 * and a process that uses the WAL-index does not request RESERVED.  SQLite
 * requests EXCLUSIVE without RESERVED if it has found a hot journal or is about
 * to remove the log.  If that is refused it gives up; SQLite 3.40 keeps PENDING
 * until then. */
static void act_lock(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  int level = (int)w[1]->value;
  if (!h->database || (!h->level && level != SQLITE_LOCK_SHARED)) return;
  if (!h->writes && level != SQLITE_LOCK_SHARED) return;
  if (h->mapped && level == SQLITE_LOCK_RESERVED) return;
  int rc = of(h)->xLock(h->f, level);
  say_code(me, rc);
  if (rc == SQLITE_OK && h->level < level) h->level = level;
  if (rc == SQLITE_OK || h->level != SQLITE_LOCK_SHARED ||
      level != SQLITE_LOCK_EXCLUSIVE)
    return;
  if (h->mapped) handle_unmap(h, 0);
  of(h)->xUnlock(h->f, SQLITE_LOCK_NONE);
  h->level = SQLITE_LOCK_NONE;
}

/* Go back to SHARED or NONE.  A process that uses the WAL-index keeps
 * SHARED. */
static void act_unlock(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  int level = (int)w[1]->value;
  if (!h->level || level > h->level || (h->mapped && !level)) return;
  say_code(me, of(h)->xUnlock(h->f, level));
  h->level = level;
}

/* With SHARED, as SQLite does when it finds a journal. */
static void act_reserved(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  int reserved = -1;
  if (h->level != SQLITE_LOCK_SHARED) return;
  say_code(me, of(h)->xCheckReservedLock(h->f, &reserved));
  cal_say(me, "%d", reserved);
}

/* Does the database's name lead to another file now? */
static bool has_moved(const cal_handle *h) {
  int moved = 0;
  of(h)->xFileControl(h->f, SQLITE_FCNTL_HAS_MOVED, &moved);
  return moved != 0;
}

/* Not called for files that are no databases. */
static void act_moved(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  int moved = -1;
  if (!h->database) return;
  say_code(me, of(h)->xFileControl(h->f, SQLITE_FCNTL_HAS_MOVED, &moved));
  cal_say(me, "%d", moved);
}

/* The file must still have its name, since the WAL-index is found by the name;
 * and the handle SHARED, by which the last user of the file knows that it is
 * the last. */
static void act_map(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  int number = (int)w[1]->value;
  void volatile *at = NULL;
  if (!h->database || has_moved(h)) return;
  if (!h->level && of(h)->xLock(h->f, SQLITE_LOCK_SHARED) != SQLITE_OK) {
    cal_say(me, "locked out");
    return;
  }
  if (!h->level) h->level = SQLITE_LOCK_SHARED;
  int rc = of(h)->xShmMap(h->f, number, REGION, (int)w[2]->value, &at);
  say_code(me, rc);
  cal_say(me, at ? "there" : "not there");
  h->mapped = h->mapped || rc == SQLITE_OK;
  if (at) h->region[number] = at;
}

/* Another process must see the change. */
static void act_poke(cal_actor *me, const cal_word *const *w) {
  unsigned char byte;
  cal_handle *h = handle_of(me, w[0]);
  void volatile *at = h->region[w[1]->value];
  if (!at) return;
  cal_fill(me, &byte, 1);
  ((unsigned char volatile *)at)[7] = byte;
  cal_say(me, "ok");
}

/* The last value poked by any process, or 0. */
static void act_peek(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  void volatile *at = h->region[w[1]->value];
  if (!at) return;
  unsigned char byte = ((unsigned char volatile *)at)[7];
  cal_say_bytes(me, &byte, 1);
}

/* None that the handle already has; several only if exclusive. */
static void act_shm_lock(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  bool exclusive = w[3]->value & SQLITE_SHM_EXCLUSIVE;
  int count = exclusive ? (int)w[2]->value : 1;
  unsigned mask = ((1u << count) - 1) << w[1]->value;
  if (!h->mapped || (h->shared | h->exclusive) & mask) return;
  int rc = of(h)->xShmLock(h->f, (int)w[1]->value, count,
                           (int)w[3]->value | SQLITE_SHM_LOCK);
  say_code(me, rc);
  if (rc != SQLITE_OK) return;
  if (exclusive)
    h->exclusive |= mask;
  else
    h->shared |= mask;
}

/* Only what the handle has, in the mode in which it has it. */
static void act_shm_unlock(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  bool exclusive = w[3]->value & SQLITE_SHM_EXCLUSIVE;
  int count = exclusive ? (int)w[2]->value : 1;
  unsigned mask = ((1u << count) - 1) << w[1]->value;
  unsigned has = exclusive ? h->exclusive : h->shared;
  if (!h->mapped || (has & mask) != mask) return;
  say_code(me, of(h)->xShmLock(h->f, (int)w[1]->value, count,
                               (int)w[3]->value | SQLITE_SHM_UNLOCK));
  h->exclusive &= ~mask;
  h->shared &= ~mask;
}

/* After a barrier, which has no result. */
static void act_unmap(cal_actor *me, const cal_word *const *w) {
  cal_handle *h = handle_of(me, w[0]);
  if (!h->mapped) return;
  of(h)->xShmBarrier(h->f);
  say_code(me, handle_unmap(h, (int)w[1]->value));
}

/* With or without a sync of the directory. */
static void act_delete(cal_actor *me, const cal_word *const *w) {
  const char *path = me->path[w[0]->value];
  say_code(me, me->vfs->xDelete(me->vfs, path, (int)w[1]->value));
}

/* Does a file exist that is not empty? */
static void act_access(cal_actor *me, const cal_word *const *w) {
  const char *path = me->path[w[0]->value];
  int is = -1;
  say_code(me, me->vfs->xAccess(me->vfs, path, (int)w[1]->value, &is));
  cal_say(me, "%d", is);
}

const cal_kind cal_vfs_kinds[] = {
    {"xOpen", 10, "hqO", "-", act_open},
    {"xClose", 3, "h", "h", act_close},
    {"xRead", 5, "han", "h", act_read},
    {"xWrite", 5, "han", "h", act_write},
    {"xTruncate", 2, "ha", "h", act_truncate},
    {"xSync", 1, "h", "h", act_sync},
    {"xFileSize", 4, "h", "h", act_size},
    {"xLock", 20, "hL", "h", act_lock},
    {"xUnlock", 6, "hU", "h", act_unlock},
    {"xCheckReservedLock", 5, "h", "h", act_reserved},
    {"has moved", 1, "h", "h", act_moved},
    {"xShmMap", 8, "hix", "h", act_map},
    {"poke", 4, "hi", "h", act_poke},
    {"peek", 5, "hi", "h", act_peek},
    {"xShmLock", 20, "hyls", "h", act_shm_lock},
    {"xShmUnlock", 12, "hyls", "h", act_shm_unlock},
    {"xShmUnmap", 2, "hx", "h", act_unmap},
    {"xDelete", 1, "qx", NULL, act_delete},
    {"xAccess", 2, "qX", NULL, act_access},
    {"die", 1, "", NULL, NULL},
    {NULL, 0, NULL, NULL, NULL}};
