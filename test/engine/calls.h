/* calls.h - what most tests of the engine do, in few words
 *
 * A test need not close what it opens.  At its end each handle and each
 * connection of SQLite that is still open is closed, in reverse order, and that
 * must succeed.  Before a connected handle of zke_open() is closed, zke_check()
 * must find nothing, unless the test has set `damaged`.  A handle that the test
 * closes itself is not checked, so only a test about the close does that.
 *
 * It is included after zkembed.c by the programs that include that.
 */
#ifndef ZKE_TEST_CALLS_H
#define ZKE_TEST_CALLS_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "test/test.h"

/* ---- what is open ---- */

typedef struct open_item {
  zke *z;
  sqlite3 *db;  /* or a connection */
  bool checked; /* zke_check() must find nothing in its store */
  struct open_item *before;
} open_item;

static open_item *open_last;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

static inline void open_add(zke *z, sqlite3 *db, bool checked) {
  open_item *o = malloc(sizeof *o);
  ck_assert_ptr_nonnull(o);
  pthread_mutex_lock(&open_lock);
  *o = (open_item){z, db, checked, open_last};
  open_last = o;
  pthread_mutex_unlock(&open_lock);
}

static inline void open_drop(const zke *z, const sqlite3 *db) {
  pthread_mutex_lock(&open_lock);
  open_item **at = &open_last;
  while (*at && ((*at)->z != z || (*at)->db != db)) at = &(*at)->before;
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

/* The macros below replace the functions of the same names. */
#define zke_open(name, options, out) opened_open(name, options, out)
#define zke_open_session(z, options, out) opened_session(z, options, out)
#define zke_attach(z, id, password, options, out) \
  opened_attach(z, id, password, options, out)
#define zke_close(z) opened_close(z)
#define zke_detach(z) opened_detach(z)
#define sqlite3_open(name, out) opened_db(sqlite3_open(name, out), out)
#define sqlite3_open_v2(name, out, flags, vfs) \
  opened_db(sqlite3_open_v2(name, out, flags, vfs), out)
#define sqlite3_close(db) opened_close_db(db)
#define test_open(name) opened_test(test_open(name), true)
#define test_session(z, chroot) opened_test(test_session(z, chroot), false)

static bool damaged; /* by the test, so zke_check() finds something */

/* A session may have ended without the handle's knowledge. */
static inline void opened_check(zke *z) {
  if (damaged || zke_state(z) != ZKE_STATE_CONNECTED) return;
  int rc = zke_check(z, NULL, NULL);
  if (rc != ZKE_SESSIONEXPIRED && rc != ZKE_SESSIONMOVED) ck_ok(rc);
}

/* Runs after each test. */
static inline void opened_close_all(void) {
  while (open_last) {
    open_item o = *open_last;
    if (o.db) {
      ck_assert_int_eq(sqlite3_close(o.db), SQLITE_OK);
    } else {
      if (o.checked) opened_check(o.z);
      ck_ok(zke_close(o.z));
    }
  }
}
AFTER_EACH(opened_close_all);

/* ---- opening ---- */

static inline zke *memory(void) { return test_open(":memory:"); }

static inline zke *open_options(const char *name, const zke_options *o) {
  zke *z = NULL;
  ck_ok(zke_open(name, o, &z));
  return z;
}

static inline zke *session_options(zke *of, const zke_options *o) {
  zke *z = NULL;
  ck_ok(zke_open_session(of, o, &z));
  return z;
}

/* Open with these options: open_as(path, .flags = ZKE_OPEN_READONLY); or open a
 * further session on a handle's store. */
#define open_as(name, ...) \
  open_options(name, &(zke_options){.size = sizeof(zke_options), __VA_ARGS__})
#define session_as(z, ...) \
  session_options(z, &(zke_options){.size = sizeof(zke_options), __VA_ARGS__})

/* ---- threads, processes, watchers ---- */

static inline pthread_t begin_thread(void *(*run)(void *), void *context) {
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, run, context), 0);
  return thread;
}

static inline void kill_child(pid_t pid) {
  ck_assert_int_eq(kill(pid, SIGKILL), 0);
  ck_assert_int_eq(test_child_end(pid), 128 + SIGKILL);
}

/* A watcher that counts its calls in an int. */
static inline void count_call(zke *z, int type, int state, const char *path,
                              void *context) {
  (void)z, (void)type, (void)state, (void)path;
  ++*(int *)context;
}

/* ---- nodes without data ---- */

static inline int create(zke *z, const char *path, int mode) {
  return zke_create(z, path, "", 0, ZKE_OPEN_ACL, mode, NULL, NULL);
}

static inline void make_as(zke *z, const char *path, int mode) {
  ck_ok(create(z, path, mode));
}

static inline void make(zke *z, const char *path) {
  make_as(z, path, ZKE_PERSISTENT);
}

static inline int see(zke *z, const char *path) {
  return zke_exists(z, path, NULL, NULL, NULL);
}

static inline int change(zke *z, const char *path) {
  return zke_set(z, path, "x", 1, -1, NULL);
}

static inline int child_count(zke *z, const char *path) {
  return test_stat(z, path).numChildren;
}

/* ---- nodes with a text ---- */

static inline void make_with(zke *z, const char *path, const char *data) {
  ck_ok(zke_create(z, path, data, (int)strlen(data), ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
}

static inline void expect_data(zke *z, const char *path, const char *expected) {
  char *data = NULL;
  ck_ok(zke_get(z, path, NULL, NULL, &data, NULL, NULL));
  ck_assert_str_eq(data, expected);
  zke_free(data);
}

/* ---- a host's loop ---- */

static inline int64_t deadline_of(zke *z) {
  int64_t at = 0;
  ck_ok(zke_next_deadline(z, &at));
  return at;
}

/* Is the handle's descriptor readable within this many ms? */
static inline bool readable(zke *z, int ms) {
  struct pollfd p = {-1, POLLIN, 0};
  ck_ok(zke_fd(z, &p.fd));
  int n = poll(&p, 1, ms);
  ck_assert_int_eq(p.revents & ~POLLIN, 0);
  return n == 1;
}

/* ---- SQL, by connections of the test's own ---- */

/* Open a database as any other program does. */
static inline sqlite3 *plain_open(const char *path) {
  sqlite3 *db = NULL;
  ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
  sqlite3_busy_timeout(db, (int)test_patience(5000));
  return db;
}

static inline int plain_run(sqlite3 *db, const char *sql) {
  return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static inline void must(sqlite3 *db, const char *sql) {
  int rc = plain_run(db, sql);
  ck_assert_msg(rc == SQLITE_OK, "%s: %s", sql, sqlite3_errmsg(db));
}

/* Run SQL on the file, by a connection that is then closed. */
static inline void sql_on(const char *path, const char *text) {
  sqlite3 *db = plain_open(path);
  must(db, text);
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

/* Copy by SQLite's backup interface, as the sqlite3 shell's .backup and
 * .restore do. */
static inline void back_up(const char *from, const char *to) {
  sqlite3 *in, *out;
  in = plain_open(from);
  out = plain_open(to);
  sqlite3_wal_autocheckpoint(out, 0);
  sqlite3_backup *b = sqlite3_backup_init(out, "main", in, "main");
  ck_assert_msg(b != NULL, "%s", sqlite3_errmsg(out));
  ck_assert_int_eq(sqlite3_backup_step(b, -1), SQLITE_DONE);
  ck_assert_int_eq(sqlite3_backup_finish(b), SQLITE_OK);
  sqlite3_close(out);
  sqlite3_close(in);
}

#endif
