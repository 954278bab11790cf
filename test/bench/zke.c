/* zke.c - zkembed as a subject; see bench.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "recipes/lock.h"
#include "recipes/queue.h"

#define NAME "zkembed"

typedef struct connection {
  zke *z;
  zke_lock *lock;
  zke_queue *queue;
  int fired; /* watches */
  zke_os os;
  int64_t wakeups; /* bytes written to FIFOs: the engine writes nothing else
                    * this way */
  char file[PATH_BYTES];
} connection;

static const char *zke_absent(void) { return NULL; }

static void zke_describe(char *out, size_t size) {
  snprintf(out, size, "%s", zke_version());
}

static int64_t counting_write(void *context, int fd, const void *bytes,
                              size_t size) {
  connection *c = context;
  int64_t n = c->os.write(c->os.context, fd, bytes, size);
  if (n > 0) c->wakeups += n;
  return n;
}

/* The table's other functions ignore their context. */
static zke_os counting_os(connection *c) {
  zke_os_default(&c->os);
  zke_os os = c->os;
  os.context = c;
  os.write = counting_write;
  return os;
}

static void *zke_begin(const char *place, purpose why) {
  connection *c = allocate(sizeof *c);
  char name[64];
  snprintf(name, sizeof name, "zke-%.50s.db", place);
  file_in(c->file, sizeof c->file, name);
  zke_options o = {.size = sizeof o};
  zke_os os = counting_os(c);
  if (why == FOR_FILLING) o.durability = ZKE_DURABLE_NONE;
  if (why == FOR_LOCKING) o.os = &os;
  must(zke_open(c->file, &o, &c->z), "zke_open");
  must(zke_lock_new(c->z, "/lock", NULL, &c->lock), "zke_lock_new");
  must(zke_queue_new(c->z, "/queue", NULL, &c->queue), "zke_queue_new");
  return c;
}

static void zke_end(void *self) {
  connection *c = self;
  zke_lock_free(c->lock);
  zke_queue_free(c->queue);
  must(zke_close(c->z), "zke_close");
  free(c);
}

static int64_t zke_wakeups(const void *self) {
  const connection *c = self;
  return c->wakeups;
}

/* ---- nodes ---- */

static void do_get(void *self, const raw_key *key, int count) {
  connection *c = self;
  char *bytes;
  int len;
  zke_stat stat;
  (void)count;
  must(zke_get(c->z, key->path, NULL, NULL, &bytes, &len, &stat), "zke_get");
  if (len != DATA_BYTES) die("%s has %d bytes", key->path, len);
  zke_free(bytes);
}

static void do_set(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  must(zke_set(c->z, key->path, data, DATA_BYTES, -1, NULL), "zke_set");
}

static void create(connection *c, const raw_key *key, int mode) {
  must(zke_create(c->z, key->path, data, DATA_BYTES, ZKE_OPEN_ACL, mode, NULL,
                  NULL),
       "zke_create");
}

static void do_create(void *self, const raw_key *key, int count) {
  (void)count;
  create(self, key, ZKE_EPHEMERAL);
}

static void do_persist(void *self, const raw_key *key, int count) {
  (void)count;
  create(self, key, ZKE_PERSISTENT);
}

static void do_delete(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  must(zke_delete(c->z, key->path, -1), "zke_delete");
}

static zke_op ops[BATCH_MAX];

static void create_all(connection *c, const raw_key *key, int count, int mode) {
  for (int i = 0; i < count; i++) {
    zke_op_create(&ops[i], key[i].path, data, DATA_BYTES, ZKE_OPEN_ACL, mode);
  }
  must(zke_multi(c->z, ops, count, NULL), "zke_multi");
}

static void do_multi(void *self, const raw_key *key, int count) {
  create_all(self, key, count, ZKE_EPHEMERAL);
}

static void do_fill(void *self, const raw_key *key, int count) {
  create_all(self, key, count, ZKE_PERSISTENT);
}

static void do_multi_undo(void *self, const raw_key *key, int count) {
  connection *c = self;
  for (int i = 0; i < count; i++) zke_op_delete(&ops[i], key[i].path, -1);
  must(zke_multi(c->z, ops, count, NULL), "zke_multi");
}

static void do_children(void *self, const raw_key *key, int count) {
  connection *c = self;
  zke_strings *names;
  zke_stat stat;
  (void)count;
  must(zke_children(c->z, key->path, NULL, NULL, &names, &stat),
       "zke_children");
  if (names->count < 10) die("%s has too few children", key->path);
  zke_free(names);
}

/* ---- watches ---- */

static void note(zke *z, int type, int state, const char *path, void *context) {
  int *fired = context;
  (void)z, (void)type, (void)state, (void)path;
  (*fired)++;
}

static void do_watch(void *self, const raw_key *key, int count) {
  connection *c = self;
  zke_stat stat;
  (void)count;
  int rc = zke_exists(c->z, key->path, note, &c->fired, &stat);
  if (rc != ZKE_NONODE) must(rc, "zke_exists");
}

/* Wait until a watch fires, unless one has since the last such wait. */
static void do_await(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  while (!c->fired) must(zke_wait(c->z, ZKE_FOREVER), "zke_wait");
  c->fired = 0;
}

/* A random batch can name a node twice: the second finds no watch. */
static void do_unwatch(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  int rc = zke_remove_watch(c->z, key->path, ZKE_WATCH_ANY, NULL, NULL);
  if (rc != ZKE_NOWATCHER) must(rc, "zke_remove_watch");
}

/* ---- recipes ---- */

static void do_lock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  must(zke_lock_acquire(c->lock, ZKE_FOREVER), "zke_lock_acquire");
}

static void do_unlock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  must(zke_lock_release(c->lock), "zke_lock_release");
}

static void do_put(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  must(zke_queue_put(c->queue, data, DATA_BYTES, NULL, ZKE_FOREVER),
       "zke_queue_put");
}

static void do_take(void *self, const raw_key *key, int count) {
  connection *c = self;
  zke_queue_item *item;
  (void)key, (void)count;
  must(zke_queue_take(c->queue, ZKE_FOREVER, &item), "zke_queue_take");
  if (item->len != DATA_BYTES) die("%s has %d bytes", item->name, item->len);
  zke_free(item);
}

static void do_open(void *self, const raw_key *key, int count) {
  connection *c = self;
  zke *z;
  (void)key, (void)count;
  must(zke_open(c->file, NULL, &z), "zke_open");
  must(zke_close(z), "zke_close");
}

const subject subject_zke = {
    .name = NAME,
    .promise =
        "acknowledged persistent changes survive a power cut; ephemerals "
        "go at once with their process; one host only",
    .absent = zke_absent,
    .version = zke_describe,
    .open = zke_begin,
    .close = zke_end,
    .wakeups = zke_wakeups,
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
            [ACT_PUT] = do_put,
            [ACT_TAKE] = do_take,
            [ACT_OPEN] = do_open}};
