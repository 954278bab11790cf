/* zookeeper.c - a ZooKeeper server by ZooKeeper's C client
 *
 * It uses libzookeeper_mt's synchronous calls.  BENCH_ZOOKEEPER is host:port of
 * the server; test/bench/peers.sh starts it.  The lock is the recipe of
 * ZooKeeper's documentation: an ephemeral sequential node, the children, a
 * watch of the previous one.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define THREADED /* for the synchronous calls */
#include "bench.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

enum {
  SESSION_MS = 30000,
  SHORTEST_MS = 4000, /* session that the server grants: two of its ticks */
  NODE_BYTES = 512
};

typedef struct connection {
  zhandle_t *zh;
  const char *address; /* of its server: "127.0.0.1:2181" */
  char top[64];        /* "/place" */
  char own[NODE_BYTES];
  pthread_mutex_t lock; /* for the following members; the client has threads */
  pthread_cond_t changed;
  bool connected;
  int fired;
} connection;

static const char *zookeeper_absent(void) {
  return getenv("BENCH_ZOOKEEPER") ? NULL : "no server (make bench-peers)";
}

static void zookeeper_describe(char *out, size_t size) {
  const char *version = getenv("BENCH_ZOOKEEPER_VERSION");
  snprintf(out, size, "server %s, C client %s, forceSync as shipped: yes",
           version ? version : "unknown", ZOO_VERSION);
}

static void need(int rc, const char *what) {
  if (rc != ZOK) die("zookeeper: %s: %s", what, zerror(rc));
}

/* The path of a key below our place. */
static const char *path_of(const connection *c, const raw_key *key,
                           char path[static NODE_BYTES]) {
  snprintf(path, NODE_BYTES, "%s%s", c->top, key->path);
  return path;
}

/* ---- connecting ---- */

static void session_event(zhandle_t *zh, int type, int state, const char *path,
                          void *context) {
  connection *c = context;
  (void)zh, (void)path;
  if (type != ZOO_SESSION_EVENT) return;
  pthread_mutex_lock(&c->lock);
  c->connected = state == ZOO_CONNECTED_STATE;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static connection *attach(const char *address, int session_ms) {
  connection *c = allocate(sizeof *c);
  c->address = address;
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, NULL);
  zoo_set_debug_level((ZooLogLevel)0);
  c->zh = zookeeper_init(address, session_event, session_ms, NULL, c, 0);
  if (!c->zh) die("zookeeper_init failed");
  pthread_mutex_lock(&c->lock);
  while (!c->connected) pthread_cond_wait(&c->changed, &c->lock);
  pthread_mutex_unlock(&c->lock);
  return c;
}

static void zookeeper_leave(void *self) {
  connection *c = self;
  zookeeper_close(c->zh);
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  free(c);
}

static void need_node(connection *c, const char *name) {
  char path[NODE_BYTES];
  snprintf(path, sizeof path, "%s%s", c->top, name);
  int rc = zoo_create(c->zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0);
  if (rc != ZNODEEXISTS) need(rc, path);
}

static void *zookeeper_enter(const char *place, purpose why) {
  connection *c = attach(getenv("BENCH_ZOOKEEPER"),
                         why == FOR_LOCKING ? SHORTEST_MS : SESSION_MS);
  snprintf(c->top, sizeof c->top, "/bench-%.50s", place);
  need_node(c, "");
  need_node(c, "/lock");
  return c;
}

/* ---- nodes ---- */

static void do_get(void *self, const raw_key *key, int count) {
  connection *c = self;
  char path[NODE_BYTES], bytes[DATA_BYTES];
  int len = sizeof bytes;
  struct Stat stat;
  (void)count;
  need(zoo_get(c->zh, path_of(c, key, path), 0, bytes, &len, &stat), "get");
  if (len != DATA_BYTES) die("zookeeper: %s has %d bytes", path, len);
}

static void do_set(void *self, const raw_key *key, int count) {
  connection *c = self;
  char path[NODE_BYTES];
  (void)count;
  need(zoo_set(c->zh, path_of(c, key, path), data, DATA_BYTES, -1), "set");
}

static void create(connection *c, const raw_key *key, int mode) {
  char path[NODE_BYTES];
  need(zoo_create(c->zh, path_of(c, key, path), data, DATA_BYTES,
                  &ZOO_OPEN_ACL_UNSAFE, mode, NULL, 0),
       "create");
}

static void do_create(void *self, const raw_key *key, int count) {
  (void)count;
  create(self, key, ZOO_EPHEMERAL);
}

static void do_persist(void *self, const raw_key *key, int count) {
  (void)count;
  create(self, key, 0);
}

static void do_delete(void *self, const raw_key *key, int count) {
  connection *c = self;
  char path[NODE_BYTES];
  (void)count;
  need(zoo_delete(c->zh, path_of(c, key, path), -1), "delete");
}

/* ---- several in one step ---- */

static char paths[BATCH_MAX][NODE_BYTES];
static zoo_op_t ops[BATCH_MAX];
static zoo_op_result_t results[BATCH_MAX];

static void create_all(connection *c, const raw_key *key, int count, int mode) {
  for (int i = 0; i < count; i++) {
    zoo_create_op_init(&ops[i], path_of(c, &key[i], paths[i]), data, DATA_BYTES,
                       &ZOO_OPEN_ACL_UNSAFE, mode, NULL, 0);
  }
  need(zoo_multi(c->zh, count, ops, results), "multi");
}

static void do_multi(void *self, const raw_key *key, int count) {
  create_all(self, key, count, ZOO_EPHEMERAL);
}

static void do_fill(void *self, const raw_key *key, int count) {
  create_all(self, key, count, 0);
}

static void do_multi_undo(void *self, const raw_key *key, int count) {
  connection *c = self;
  for (int i = 0; i < count; i++) {
    zoo_delete_op_init(&ops[i], path_of(c, &key[i], paths[i]), -1);
  }
  need(zoo_multi(c->zh, count, ops, results), "multi");
}

static void do_children(void *self, const raw_key *key, int count) {
  connection *c = self;
  char path[NODE_BYTES];
  struct String_vector names;
  struct Stat stat;
  (void)count;
  need(zoo_get_children2(c->zh, path_of(c, key, path), 0, &names, &stat),
       "children");
  if (names.count < 10) die("zookeeper: %s has too few children", path);
  deallocate_String_vector(&names);
}

/* ---- watches ---- */

static void node_event(zhandle_t *zh, int type, int state, const char *path,
                       void *context) {
  connection *c = context;
  (void)zh, (void)state, (void)path;
  if (type == ZOO_SESSION_EVENT || type == ZOO_NOTWATCHING_EVENT) return;
  pthread_mutex_lock(&c->lock);
  c->fired++;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
}

static void await_event(connection *c) {
  pthread_mutex_lock(&c->lock);
  while (!c->fired) pthread_cond_wait(&c->changed, &c->lock);
  c->fired = 0;
  pthread_mutex_unlock(&c->lock);
}

static void do_watch(void *self, const raw_key *key, int count) {
  connection *c = self;
  char path[NODE_BYTES];
  struct Stat stat;
  (void)count;
  int rc = zoo_wexists(c->zh, path_of(c, key, path), node_event, c, &stat);
  if (rc != ZNONODE) need(rc, "exists");
}

static void do_await(void *self, const raw_key *key, int count) {
  (void)key, (void)count;
  await_event(self);
}

static void do_unwatch(void *self, const raw_key *key, int count) {
  connection *c = self;
  char path[NODE_BYTES];
  (void)count;
  int rc =
      zoo_remove_all_watches(c->zh, path_of(c, key, path), ZWATCHTYPE_ANY, 0);
  if (rc != ZNOWATCHER) need(rc, "remove_all_watches");
}

/* ---- lock ---- */

/* The path of the entry just before our own; false: ours is the first. */
static bool find_before(connection *c, char path[static NODE_BYTES]) {
  struct String_vector names;
  const char *found = NULL;
  int64_t most = -1, limit = number_of(c->own);
  snprintf(path, NODE_BYTES, "%s/lock", c->top);
  need(zoo_get_children(c->zh, path, 0, &names), "children");
  for (int i = 0; i < names.count; i++) {
    int64_t number = number_of(names.data[i]);
    if (number >= limit || number <= most) continue;
    most = number;
    found = names.data[i];
  }
  if (found) snprintf(path, NODE_BYTES, "%s/lock/%s", c->top, found);
  deallocate_String_vector(&names);
  return most >= 0;
}

static void do_lock(void *self, const raw_key *key, int count) {
  connection *c = self;
  char path[NODE_BYTES];
  struct Stat stat;
  (void)key, (void)count;
  snprintf(path, sizeof path, "%s/lock/n-", c->top);
  need(zoo_create(c->zh, path, "", 0, &ZOO_OPEN_ACL_UNSAFE,
                  ZOO_EPHEMERAL_SEQUENTIAL, c->own, sizeof c->own),
       "create");
  while (find_before(c, path)) {
    int rc = zoo_wexists(c->zh, path, node_event, c, &stat);
    if (rc != ZNONODE) need(rc, "exists");
    if (rc == ZOK) await_event(c);
  }
}

static void do_unlock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  need(zoo_delete(c->zh, c->own, -1), "delete");
}

static void do_open(void *self, const raw_key *key, int count) {
  const connection *c = self;
  (void)key, (void)count;
  zookeeper_leave(attach(c->address, SESSION_MS));
}

const subject subject_zookeeper = {
    .name = "zookeeper",
    .promise =
        "other hosts; standalone: every change is synced, ephemerals too; "
        "a dead client's nodes go when its session times out",
    .absent = zookeeper_absent,
    .version = zookeeper_describe,
    .open = zookeeper_enter,
    .close = zookeeper_leave,
    .patience_s = 4,
    .act = {[ACT_GET] = do_get,
            [ACT_SET] = do_set,
            [ACT_CREATE] = do_create,
            [ACT_PERSIST] = do_persist,
            [ACT_DELETE] = do_delete,
            [ACT_MULTI] = do_multi,
            [ACT_MULTI_UNDO] = do_multi_undo,
            [ACT_FILL] = do_fill,
            [ACT_CHILDREN] = do_children,
            [ACT_WATCH] = do_watch,
            [ACT_AWAIT] = do_await,
            [ACT_UNWATCH] = do_unwatch,
            [ACT_LOCK] = do_lock,
            [ACT_UNLOCK] = do_unlock,
            [ACT_OPEN] = do_open}};
