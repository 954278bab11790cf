/* calls.h - what most tests of the engine do, in few words
 *
 * What a test opens is closed at its end (opened.h).  It is included after
 * zkembed.c by the programs that include that.
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

#include "test/opened.h"

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
