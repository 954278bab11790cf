/* engine.c - run tests written for files on a ZooKeeper server
 *
 * If ZKE_TEST_SERVER is HOST:PORT, a test program linked with this opens trees
 * on that server instead of files.  Otherwise nothing changes.
 *
 *   ":memory:"  a new node of the server, which becomes the root
 *   a file      the same; the file is made and names the node, so whoever opens
 *               the same file has the same tree, and whoever removes it gets a
 *               new one
 *
 * Sessions end six seconds after the death of their process.
 *
 * The engine is that of recipes/engine/zookeeper.c, except for what tests of
 * files take for granted:
 *
 *   - an event is there as soon as its change is: zke_dispatch() reads first,
 *     so all events of earlier changes have come
 *   - zke_sessions() lists only sessions of this test's living processes, since
 *     other tests use the server, too
 *   - zke_watches() lists only the handle's own watches, as the client knows
 *     them; zke_check() finds nothing
 *   - a busy timeout is at least one second: opening a server takes longer than
 *     opening a file
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "recipes/engine/zk_handle.h"
#include "recipes/engine/zookeeper.h"

enum { NAME = 4096, SESSION_MS = 6000, BUSY_MS = 1000 };

static const char *server;

/* ---- the names of trees ---- */

/* A new tree's name, such as "/t-1234-1-5678". */
static void new_root(char root[NAME]) {
  static int count;
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  snprintf(root, NAME, "/t-%d-%d-%" PRIx64, (int)getpid(),
           __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED),
           (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec);
}

/* Create a tree's node, and forget the session that did it. */
static int make_root(const char *root) {
  char name[NAME];
  zke *z;
  snprintf(name, sizeof name, "zk://%s", server);
  int rc = zke_open(name, NULL, &z);
  if (rc != ZKE_OK) return rc;
  rc = zke_create(z, root, NULL, 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  int closed = zke_close(z);
  return rc == ZKE_OK ? closed : rc;
}

/* The tree that a file names; false: there is no such file. */
static bool read_root(const char *file, char root[NAME]) {
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, root, NAME - 1);
  close(fd);
  root[n > 0 ? n : 0] = '\0';
  return n > 0;
}

/* Write a file that names a new tree.  If another process was faster its file
 * stays: a file gets its name only when it is complete. */
static int write_root(const char *file, char root[NAME]) {
  char early[NAME + 40];
  new_root(root);
  snprintf(early, sizeof early, "%s-%s", file, root + 1);
  int fd = open(early, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return zke_fail(ZKE_SYSTEMERROR, "%s: %s", file, strerror(errno));
  ssize_t written = write(fd, root, strlen(root));
  close(fd);
  int rc = written < 0 ? ZKE_SYSTEMERROR : make_root(root);
  if (rc == ZKE_OK && link(early, file) != 0 && errno != EEXIST)
    rc = zke_fail(ZKE_SYSTEMERROR, "%s: %s", file, strerror(errno));
  unlink(early);
  if (rc == ZKE_OK) read_root(file, root);
  return rc;
}

static int root_of(const char *name, char root[NAME]) {
  if (strcmp(name, ":memory:") != 0)
    return read_root(name, root) ? ZKE_OK : write_root(name, root);
  new_root(root);
  return make_root(root);
}

static int open_there(const zke_engine *engine, const char *name,
                      const zke_options *options, zke **z_out) {
  char root[NAME], whole[NAME + 200];
  int rc = root_of(name, root);
  if (rc != ZKE_OK) return rc;
  snprintf(whole, sizeof whole, "zk://%s%s?timeout=%d", server, root,
           SESSION_MS);
  zke_options patient = *options;
  if (patient.busy_timeout_ms && patient.busy_timeout_ms < BUSY_MS)
    patient.busy_timeout_ms = BUSY_MS;
  return zke_zookeeper.open(engine, whole, &patient, z_out);
}

/* ---- what tests of files take for granted ---- */

/* A read's answer comes after the events of all earlier changes. */
static void let_events_come(zke *z) {
  if (zke_state(z) == ZKE_STATE_CONNECTED) zke_exists(z, "/", NULL, NULL, NULL);
}

static int dispatch_all(zke *z, int *count_out) {
  let_events_come(z);
  return zke_zookeeper.dispatch(z, count_out);
}

static int dispatch_some(zke *z, int64_t zxid, int *count_out, int *more_out) {
  let_events_come(z);
  return zke_zookeeper.dispatch_to(z, zxid, count_out, more_out);
}

/* Check makes each test the leader of a process group. */
static int own_sessions(zke *z, int64_t session, zke_session_list **list_out) {
  int rc = zke_zookeeper.sessions(z, session, list_out);
  if (rc != ZKE_OK || session != -1) return rc;
  zke_session_list *list = *list_out;
  zke_session_info *data = (zke_session_info *)(uintptr_t)list->data;
  int count = 0;
  for (int i = 0; i < list->count; i++) {
    if (getpgid((pid_t)data[i].pid) == getpgrp()) data[count++] = data[i];
  }
  list->count = count;
  return ZKE_OK;
}

static int check_nothing(zke *z, zke_check_fn fn, void *context) {
  (void)z, (void)fn, (void)context;
  return ZKE_OK;
}

/* A list that grows towards the texts before it, in one block. */
typedef struct listing {
  int64_t session;
  zke_watch_list *list; /* NULL: only count */
  zke_watch_info *at;
  char *text;
  size_t count, bytes;
} listing;

static void add_watch(void *arg, const char *path, enum zk_watch_kind kind) {
  listing *l = arg;
  size_t size = strlen(path) + 1;
  l->count++;
  l->bytes += size;
  if (!l->list) return;
  *l->at = (zke_watch_info){.session = l->session, .path = l->text, .mode = -1};
  l->at->type = kind == ZK_WATCH_CHILD ? ZKE_WATCH_CHILD : ZKE_WATCH_DATA;
  if (kind == ZK_WATCH_PERSISTENT) l->at->mode = ZKE_WATCH_PERSISTENT;
  if (kind == ZK_WATCH_RECURSIVE) l->at->mode = ZKE_WATCH_PERSISTENT_RECURSIVE;
  memcpy(l->text, path, size);
  l->text += size;
  l->at++;
}

static int own_watches(zke *z, zke_watch_list **list_out) {
  zk *own = zke_ensemble_of(z);
  listing l = {.session = zke_session_id(z)};
  int rc = zke_ensemble_enter(own, ZK_ANY_STATE);
  if (rc != ZKE_OK) return rc;
  zke_watcher_each(&own->watches, add_watch, &l);
  size_t entries = l.count * sizeof(zke_watch_info);
  l.list = zke_alloc(z, sizeof *l.list + entries + l.bytes);
  if (!l.list) return zke_ensemble_leave(own, ZKE_NOMEM);
  zke_watch_info *data = (zke_watch_info *)(l.list + 1);
  *l.list = (zke_watch_list){(int)l.count, data};
  l.at = data;
  l.text = (char *)(data + l.count);
  zke_watcher_each(&own->watches, add_watch, &l);
  *list_out = l.list;
  return zke_ensemble_leave(own, ZKE_OK);
}

/* Before main(). */
__attribute__((constructor)) static void take_over(void) {
  static zke_engine engine;
  server = getenv("ZKE_TEST_SERVER");
  if (!server || !server[0]) return;
  engine = zke_zookeeper;
  engine.prefix = "";
  engine.open = open_there;
  engine.dispatch = dispatch_all;
  engine.dispatch_to = dispatch_some;
  engine.sessions = own_sessions;
  engine.check = check_nothing;
  engine.watches = own_watches;
  if (zke_register_engine(&zke_zookeeper) != ZKE_OK ||
      zke_register_engine(&engine) != ZKE_OK) {
    fprintf(stderr, "%s\n", zke_errmsg());
    abort();
  }
}
