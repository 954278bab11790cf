/* ensemble.c - zkembed on a second ZooKeeper server instead of a file
 *
 * The same program opens zk://… by the engine recipes/engine/zookeeper.c.  Its
 * server is a second one of the same kind: both sides begin with equal trees,
 * and then continue independently.  It is cleared for each run like the first
 * one (tree.c).  The counters of "/" and of "/zookeeper" cannot be cleared;
 * they are made equal here.
 */
#include "conformance.h"

#include <stdio.h>
#include <string.h>

#include "recipes/engine/zookeeper.h"

const char *cf_ensemble;
static int server_port;

void cf_ensemble_use(int port) {
  server_port = port;
  cf_ensemble = "";
  cf_must(zke_register_engine(&zke_zookeeper), "zke_register_engine");
}

cf_raw *cf_ensemble_control(void) { return cf_raw_open_at(server_port, ""); }

/* Every second seed omits the sync before each read.  An idle session must not
 * expire: the engine has no thread that pings. */
void cf_ensemble_choose(uint64_t seed) {
  static char name[80];
  snprintf(name, sizeof name, "zk://127.0.0.1:%d?timeout=3600000%s",
           server_port, seed % 2 ? "&sync=0" : "");
  cf_ensemble = name;
}

bool cf_ensemble_hides(const char *path) {
  return cf_ensemble && strcmp(path, CF_SESSIONS) == 0;
}

/* ---- as the super user ---- */

static zke_stat must_do(cf_raw *r, const cf_op *op) {
  cf_reply reply;
  cf_raw_call(r, op, &reply);
  if (reply.rc != ZKE_OK)
    cf_die("control: %s gives %d", cf_describe(op), reply.rc);
  return reply.stat;
}

static zke_stat look(cf_raw *r, const char *path) {
  return must_do(r, &(cf_op){.kind = CF_EXISTS, .path = path});
}

static void make(cf_raw *r, const char *path) {
  must_do(
      r,
      &(cf_op){
          .kind = CF_CREATE, .path = path, .data = "", .acls = zke_open_acl});
}

int64_t cf_ensemble_hidden(cf_raw *other) {
  return look(other, CF_SESSIONS).numChildren;
}

/* ---- equal counters ---- */

/* Make and delete a child. */
static void step_children(cf_raw *r, const char *path) {
  const char *child = cf_whole(path[1] ? path : "", "/catch-up");
  make(r, child);
  must_do(r, &(cf_op){.kind = CF_DELETE, .path = child, .version = -1});
}

static void step_data(cf_raw *r, const char *path) {
  must_do(r, &(cf_op){.kind = CF_SET, .path = path, .data = "", .version = -1});
}

static void step_acl(cf_raw *r, const char *path) {
  must_do(r, &(cf_op){.kind = CF_SET_ACL,
                      .path = path,
                      .acls = zke_open_acl,
                      .version = -1});
}

static int64_t creates(const zke_stat *s) {
  return ((int64_t)s->cversion + s->numChildren) / 2;
}

/* Two servers may have different counts for a node.  Make changes on the first
 * one until its counts have reached the second's. */
static void follow(cf_raw *r, cf_raw *ahead, const char *path) {
  zke_stat here = look(r, path), there = look(ahead, path);
  for (int64_t i = creates(&here); i < creates(&there); i++)
    step_children(r, path);
  for (int64_t i = here.version; i < there.version; i++) step_data(r, path);
  for (int64_t i = here.aversion; i < there.aversion; i++) step_acl(r, path);
  cf_reset();
}

/* At the end each server makes the same changes in the same order, so the zxids
 * of the nodes have one order, too. */
void cf_ensemble_level(cf_raw *server, cf_raw *other) {
  static const char *const paths[] = {"/", "/zookeeper", "/zookeeper/quota"};
  cf_raw *const both[] = {server, other};
  for (int i = 0; i < 3; i++) {
    follow(server, other, paths[i]);
    follow(other, server, paths[i]);
  }
  for (int k = 0; k < 2; k++) {
    for (int i = 0; i < 3; i++) {
      step_data(both[k], paths[i]);
      step_children(both[k], paths[i]);
    }
    make(both[k], CF_SESSIONS);
  }
  cf_reset();
}
