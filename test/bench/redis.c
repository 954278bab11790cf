/* redis.c - a Redis server by hiredis
 *
 * BENCH_REDIS=port names the server; test/bench/peers.sh starts one with the
 * default settings: occasional snapshots, no append-only file, so no answer
 * waits for the disk.  The lock is SET NX PX and DEL.  Redis cannot wait for
 * such a lock: it is tried again every millisecond.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LEASE_MS = 60000, RETRY_US = 1000 };

typedef struct connection {
  redisContext *to;
  char place[64];
} connection;

static const char *redis_absent(void) {
  return getenv("BENCH_REDIS") ? NULL : "no server (make bench-peers)";
}

static void redis_describe(char *out, size_t size) {
  const char *version = getenv("BENCH_REDIS_VERSION");
  snprintf(out, size,
           "server %s, hiredis %d.%d.%d; snapshots as shipped, nothing synced; "
           "locks: tried each %d us",
           version ? version : "unknown", HIREDIS_MAJOR, HIREDIS_MINOR,
           HIREDIS_PATCH, RETRY_US);
}

static redisContext *dial(void) {
  redisContext *to = redisConnect("127.0.0.1", atoi(getenv("BENCH_REDIS")));
  if (!to || to->err) die("redis: %s", to ? to->errstr : "no memory");
  return to;
}

static void *redis_enter(const char *place, purpose why) {
  connection *c = allocate(sizeof *c);
  (void)why;
  c->to = dial();
  snprintf(c->place, sizeof c->place, "%.60s", place);
  return c;
}

static void redis_leave(void *self) {
  connection *c = self;
  redisFree(c->to);
  free(c);
}

/* Free the reply; returns its type. */
static int reply_type(connection *c, redisReply *reply) {
  if (!reply) die("redis: %s", c->to->errstr);
  int type = reply->type;
  if (type == REDIS_REPLY_ERROR) die("redis: %s", reply->str);
  freeReplyObject(reply);
  return type;
}

static void do_get(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  if (reply_type(c, redisCommand(c->to, "GET %s%s", c->place, key->path)) !=
      REDIS_REPLY_STRING)
    die("redis: no %s", key->path);
}

static void do_set(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  reply_type(c, redisCommand(c->to, "SET %s%s %b", c->place, key->path, data,
                             (size_t)DATA_BYTES));
}

/* A key that expires some time after its maker's death. */
static void do_create(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  reply_type(c, redisCommand(c->to, "SET %s%s %b NX PX %d", c->place, key->path,
                             data, (size_t)DATA_BYTES, LEASE_MS));
}

static void do_delete(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)count;
  reply_type(c, redisCommand(c->to, "DEL %s%s", c->place, key->path));
}

static void do_fill(void *self, const raw_key *key, int count) {
  for (int i = 0; i < count; i++) do_set(self, &key[i], 1);
}

static bool try_lock(connection *c) {
  return reply_type(c, redisCommand(c->to, "SET %s/lock token NX PX %d",
                                    c->place, LEASE_MS)) == REDIS_REPLY_STATUS;
}

static void do_lock(void *self, const raw_key *key, int count) {
  (void)key, (void)count;
  while (!try_lock(self)) sleep_us(RETRY_US);
}

static void do_unlock(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  reply_type(c, redisCommand(c->to, "DEL %s/lock", c->place));
}

static void do_put(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  reply_type(c, redisCommand(c->to, "RPUSH %s/queue %b", c->place, data,
                             (size_t)DATA_BYTES));
}

static void do_take(void *self, const raw_key *key, int count) {
  connection *c = self;
  (void)key, (void)count;
  reply_type(c, redisCommand(c->to, "BLPOP %s/queue 0", c->place));
}

static void do_open(void *self, const raw_key *key, int count) {
  (void)self, (void)key, (void)count;
  redisFree(dial());
}

const subject subject_redis = {
    .name = "redis",
    .promise =
        "other hosts; an acknowledged change may be lost with power; a "
        "lock goes when its time is over, held or not; no order among "
        "those who wait",
    .absent = redis_absent,
    .version = redis_describe,
    .open = redis_enter,
    .close = redis_leave,
    .lock_pause_us = RETRY_US,
    .patience_s = LEASE_MS / 1000,
    .act = {[ACT_GET] = do_get,
            [ACT_SET] = do_set,
            [ACT_CREATE] = do_create,
            [ACT_PERSIST] = do_set,
            [ACT_DELETE] = do_delete,
            [ACT_FILL] = do_fill,
            [ACT_LOCK] = do_lock,
            [ACT_UNLOCK] = do_unlock,
            [ACT_PUT] = do_put,
            [ACT_TAKE] = do_take,
            [ACT_OPEN] = do_open}};
