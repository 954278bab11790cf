/* opened.h - a test need not close what it opens
 *
 * At its end each handle and each connection of SQLite that is still open is
 * closed, in reverse order, and that must succeed.  Before a connected handle
 * of zke_open() is closed, zke_check() must find nothing, unless the test has
 * set `damaged`.  A handle that the test closes itself is not checked, so only
 * a test about the close does that, or one whose handle uses its variables.
 */
#ifndef ZKE_TEST_OPENED_H
#define ZKE_TEST_OPENED_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>

#include "recipes/engine/compose.h"
#include "test/test.h"

/* ---- what is open ---- */

typedef struct open_item {
  zke *z;
  sqlite3 *db;             /* or a connection */
  bool checked;            /* zke_check() must find nothing in its store */
  void (*end)(void *what); /* or something else, and what ends it */
  void *what;
  struct open_item *before;
} open_item;

static open_item *open_last;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void open_push(open_item item) {
  open_item *o = malloc(sizeof *o);
  ck_assert_ptr_nonnull(o);
  pthread_mutex_lock(&open_lock);
  item.before = open_last;
  *o = item;
  open_last = o;
  pthread_mutex_unlock(&open_lock);
}

static inline void open_add(zke *z, sqlite3 *db, bool checked) {
  open_push((open_item){.z = z, .db = db, .checked = checked});
}

/* Call this function at the end of the test, too.  `what` must outlive the
 * test's function. */
static inline void at_end(void (*end)(void *what), void *what) {
  open_push((open_item){.end = end, .what = what});
}

static inline void open_drop(const zke *z, const sqlite3 *db) {
  pthread_mutex_lock(&open_lock);
  open_item **at = &open_last;
  while (*at && ((*at)->end || (*at)->z != z || (*at)->db != db))
    at = &(*at)->before;
  open_item *found = *at;
  if (found) *at = found->before;
  pthread_mutex_unlock(&open_lock);
  free(found);
}

static inline int opened_handle(int rc, zke **out, bool checked) {
  if (rc == ZKE_OK) open_add(*out, NULL, checked);
  return rc;
}

static inline int opened_open(const char *name, const zke_options *o,
                              zke **out) {
  return opened_handle(zke_open(name, o, out), out, true);
}

static inline int opened_session(zke *z, const zke_options *o, zke **out) {
  return opened_handle(zke_open_session(z, o, out), out, false);
}

static inline int opened_attach(zke *z, int64_t id, const unsigned char *word,
                                const zke_options *o, zke **out) {
  return opened_handle(zke_attach(z, id, word, o, out), out, false);
}

/* After a close or detach the handle is gone, unless the call returned one of
 * these codes. */
static inline int opened_ended(int rc, const zke *z) {
  if (rc != ZKE_MISUSE && rc != ZKE_FORKED && rc != ZKE_BADARGUMENTS)
    open_drop(z, NULL);
  return rc;
}

static inline int opened_close(zke *z) { return opened_ended(zke_close(z), z); }

static inline int opened_detach(zke *z) {
  return opened_ended(zke_detach(z), z);
}

/* A connection that could not be opened must be closed, too. */
static inline int opened_db(int rc, sqlite3 **out) {
  open_add(NULL, *out, false);
  return rc;
}

static inline int opened_close_db(sqlite3 *db) {
  int rc = sqlite3_close(db);
  if (rc == SQLITE_OK) open_drop(NULL, db);
  return rc;
}

static inline zke *opened_test(zke *z, bool checked) {
  open_add(z, NULL, checked);
  return z;
}

/* Calls that replace the handles by others. */
static inline int opened_order(zke **handles, int n) {
  zke *were[4];
  for (int i = 0; handles && i < n; i++) were[i] = handles[i];
  int rc = zke_order(handles, n);
  for (int i = 0; rc == ZKE_OK && i < n; i++) {
    open_drop(were[i], NULL);
    open_add(handles[i], NULL, false);
  }
  return rc;
}

/* The other one belongs to it. */
static inline int opened_mount(zke **z, const char *path, zke *other) {
  zke *was = z ? *z : NULL;
  int rc = zke_mount(z, path, other);
  if (rc != ZKE_OK) return rc;
  open_drop(was, NULL);
  open_drop(other, NULL);
  open_add(*z, NULL, false);
  return rc;
}

/* The macros below replace the functions of the same names. */
#define zke_open(name, options, out) opened_open(name, options, out)
#define zke_open_session(z, options, out) opened_session(z, options, out)
#define zke_attach(z, id, password, options, out) \
  opened_attach(z, id, password, options, out)
#define zke_close(z) opened_close(z)
#define zke_detach(z) opened_detach(z)
#define zke_order(handles, n) opened_order(handles, n)
#define zke_mount(z, path, other) opened_mount(z, path, other)
#define sqlite3_open(name, out) opened_db(sqlite3_open(name, out), out)
#define sqlite3_open_v2(name, out, flags, vfs) \
  opened_db(sqlite3_open_v2(name, out, flags, vfs), out)
#define sqlite3_close(db) opened_close_db(db)
#define test_open(name) opened_test(test_open(name), true)
#define test_session(z, chroot) opened_test(test_session(z, chroot), false)

static bool damaged; /* by the test, so zke_check() finds something */

/* A session may have ended without the handle's knowledge.  Only a file can be
 * checked. */
static inline void opened_check(zke *z) {
  if (damaged || zke_state(z) != ZKE_STATE_CONNECTED) return;
  int rc = zke_check(z, NULL, NULL);
  if (rc != ZKE_SESSIONEXPIRED && rc != ZKE_SESSIONMOVED &&
      rc != ZKE_UNIMPLEMENTED)
    ck_ok(rc);
}

/* Runs after each test. */
static inline void opened_close_all(void) {
  while (open_last) {
    open_item o = *open_last, *last = open_last;
    if (o.end) {
      open_last = o.before;
      free(last);
      o.end(o.what);
    } else if (o.db) {
      ck_assert_int_eq(sqlite3_close(o.db), SQLITE_OK);
    } else {
      if (o.checked) opened_check(o.z);
      ck_ok(zke_close(o.z));
    }
  }
}
AFTER_EACH(opened_close_all);

#endif
