/* wait.c - waiting for a change in SQL */
#include "extension.h"

/* zke_wait() has its own wait, so nothing needs a cancel: an alarm ends it. */

/* The watcher of one call. */
static void has_changed(zke *z, int type, int state, const char *path,
                        void *context) {
  (void)z, (void)type, (void)state, (void)path;
  *(bool *)context = true;
}

/* The state of a call. */
typedef struct waiting {
  ext_patience p;
  const char *path;
  int64_t deadline;
  bool changed; /* the watcher was called */
} waiting;

/* Reads the znode, and sets a watch for its next change.  While another program
 * keeps SQLite's write lock, it tries that again.  Its version; -1: there is
 * none. */
static int look(waiting *w, int64_t *out) {
  zke *z = w->p.c->k->z;
  zke_stat stat;
  int rc;
  w->changed = false;
  do {
    rc = zke_exists(z, w->path, has_changed, &w->changed, &stat);
  } while (rc == ZKE_OPERATIONTIMEOUT && zke_now(z) < w->deadline &&
           zke_dispatch(z, NULL) == ZKE_OK && !w->p.ended);
  *out = rc == ZKE_OK ? stat.version : -1;
  return rc == ZKE_NONODE ? ZKE_OK : rc;
}

/* Sleeps until the watcher was called, the deadline, or an interruption. */
static int sleep_on(const waiting *w) {
  int rc = ZKE_OK;
  while (rc == ZKE_OK && !w->changed && !w->p.ended)
    rc = zke_wait(w->p.c->k->z, w->deadline);
  return rc;
}

/* zke_wait(path, version [, ms]): the version, once it differs; -1: there is no
 * znode.  NULL at the deadline. */
static int run_wait(ext_call *c) {
  waiting w = {.p.c = c, .deadline = ext_until(c, 2)};
  zke *z = c->k->z;
  int64_t version = 0, known = ext_int(c, 1, -1);
  int rc = ext_znode(c, &w.path);
  if (rc != ZKE_OK) return rc;
  int64_t before = zke_limit(z, w.deadline);
  rc = ext_patience_begin(&w.p);
  if (rc == ZKE_OK) rc = look(&w, &version);
  while (rc == ZKE_OK && version == known && !w.p.ended) {
    rc = sleep_on(&w);
    if (rc == ZKE_OK && !w.p.ended) rc = look(&w, &version);
  }
  zke_limit(z, before);
  int ended = ext_patience_end(&w.p);
  zke_forget(z, has_changed, &w.changed);
  if (ended != ZKE_OK) return ext_say_waited(c, ended);
  if (rc == ZKE_OK) sqlite3_result_int64(c->sql, version);
  return ext_say_waited(c, rc);
}

static void echo(zke *z, int type, int state, const char *path, void *context) {
  (void)z, (void)state, (void)path;
  if (type == ZKE_EVENT_ALARM) ((ext_connection *)context)->echoed = true;
}

int ext_dispatch(ext_connection *k) {
  int count = 0;
  k->echoed = false;
  int rc = zke_dispatch(k->z, &count);
  if (rc != ZKE_OK || count <= k->echoed) return rc;
  return zke_call_at(k->z, 0, echo, k);
}

/* zke_watch(path): the version, -1 without a znode; its next change makes
 * zke_fd() readable. */
static int run_watch(ext_call *c) {
  const char *path;
  zke_stat stat;
  int rc = ext_znode(c, &path);
  if (rc == ZKE_OK) rc = ext_dispatch(c->k); /* an earlier change */
  if (rc == ZKE_OK) rc = zke_exists(c->k->z, path, ext_wake, NULL, &stat);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return rc;
  sqlite3_result_int64(c->sql, rc == ZKE_OK ? stat.version : -1);
  return ZKE_OK;
}

/* zke_fd(): readable when zke_dispatch() has something to do. */
static int run_fd(ext_call *c) {
  int fd, rc = zke_fd(c->k->z, &fd);
  if (rc == ZKE_OK) sqlite3_result_int(c->sql, fd);
  return rc;
}

/* zke_dispatch(ms): waits for something to do, and does it, for a program that
 * cannot poll a descriptor.  It waits at most DISPATCH_MS at a time, after
 * which the program checks whether it should stop.  1; NULL at the deadline. */
enum { DISPATCH_MS = 100 };

static int dispatch_until(ext_call *c, int64_t ms) {
  int64_t slice = ms < 0 || ms > DISPATCH_MS ? DISPATCH_MS : ms;
  int rc = zke_wait(c->k->z, zke_now(c->k->z) + slice);
  return rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : ext_done(c, rc);
}

/* zke_dispatch(): how many watchers were called. */
static int run_dispatch(ext_call *c) {
  if (c->count > 0) return dispatch_until(c, ext_int(c, 0, DISPATCH_MS));
  int count = 0, rc = zke_dispatch(c->k->z, &count);
  if (rc == ZKE_OK) sqlite3_result_int(c->sql, count);
  return rc;
}

const ext_function ext_waiting[] = {
    {"zke_wait", 2, "tin", EXT_WAITS, run_wait},
    {"zke_watch", 1, "t", EXT_CHANGES, run_watch},
    {"zke_fd", 0, "", EXT_READS, run_fd},
    {"zke_dispatch", 0, "n", EXT_CHANGES, run_dispatch},
    {0}};
