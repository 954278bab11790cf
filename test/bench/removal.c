/* removal.c - many deletions, many watchers
 *
 * How long others wait while a session with many ephemerals ends; how long a
 * dispatch takes that finds many nodes due; watchers of one node, and pairs
 * that hear of a session's end.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "zkembed.h"

enum { AT_ONCE = 1000, PATIENCE_MS = 60000 };

static zke *open_for(const char *name) {
  char path[PATH_BYTES];
  zke_options o = {.size = sizeof o, .busy_timeout_ms = PATIENCE_MS};
  zke *z;
  file_in(path, sizeof path, name);
  must(zke_open(path, &o, &z), "zke_open");
  return z;
}

static void make(zke *z, const char *path) {
  must(zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL),
       "zke_create");
}

/* count nodes /PARENT/nNNNNNN. */
static void make_many(zke *z, const char *parent, int count, int mode) {
  static zke_op op[AT_ONCE];
  static char path[AT_ONCE][48];
  for (int i = 0; i < count;) {
    int n = 0;
    for (; i < count && n < AT_ONCE; i++, n++) {
      snprintf(path[n], sizeof path[n], "%s/n%06d", parent, i);
      if (mode == ZKE_EPHEMERAL)
        zke_op_create(&op[n], path[n], "", 0, ZKE_OPEN_ACL, mode);
      else
        zke_op_create_ttl(&op[n], path[n], "", 0, ZKE_OPEN_ACL, mode, 1);
    }
    must(zke_multi(z, op, n, NULL), "zke_multi");
  }
}

static double ms_since(int64_t since) {
  return (double)(now_ns() - since) / 1e6;
}

static void ignore(zke *z, int type, int state, const char *path, void *c) {
  (void)z, (void)type, (void)state, (void)path, (void)c;
}

/* A session that watches something sweeps in its dispatches. */
static void watch_something(zke *z) {
  must(zke_add_watch(z, "/w", ZKE_WATCH_PERSISTENT, ignore, NULL),
       "zke_add_watch");
  must(zke_dispatch(z, NULL), "zke_dispatch");
}

/* The transaction that deletes all of them. */
static void end_of_a_session(void) {
  int most = times(100000, 1000);
  for (int nodes = 1000; nodes <= most; nodes *= 10) {
    zke *owner, *z = open_for("zke-removal.db");
    must(zke_open_session(z, NULL, &owner), "zke_open_session");
    if (nodes == 1000) make(z, "/e");
    make_many(owner, "/e", nodes, ZKE_EPHEMERAL);
    int64_t since = now_ns();
    must(zke_expire(z, zke_session_id(owner)), "zke_expire");
    report_one("end of a session, each ephemeral", nodes, subject_zke.name,
               "us", ms_since(since) * 1000 / nodes);
    must(zke_close(owner), "zke_close");
    must(zke_close(z), "zke_close");
  }
}

static int children(zke *z, const char *path) {
  zke_stat stat;
  must(zke_exists(z, path, NULL, NULL, &stat), "zke_exists");
  return stat.numChildren;
}

/* Dispatch until all are deleted: the longest, and nodes a second. */
static void due_nodes(void) {
  int nodes = times(10000, 100);
  double longest = 0;
  zke *z = open_for("zke-due.db");
  make(z, "/t");
  make_many(z, "/t", nodes, ZKE_PERSISTENT_WITH_TTL);
  watch_something(z);
  int64_t start = now_ns();
  while (children(z, "/t")) {
    int64_t since = now_ns();
    must(zke_dispatch(z, NULL), "zke_dispatch");
    double took = ms_since(since);
    if (took > longest) longest = took;
    sleep_us(1000);
  }
  report_one("longest dispatch while nodes are due", nodes, subject_zke.name,
             "ms", longest);
  report_one("nodes due that are removed", nodes, subject_zke.name, "1/s",
             nodes / (ms_since(start) / 1000));
  must(zke_close(z), "zke_close");
}

/* The time to register each of many watchers of one node; then, on nodes of
 * their own, to tell all of them of the session's end. */
static void many_watchers(void) {
  int one = times(30000, 1000), pairs = times(80000, 1000);
  char *contexts = allocate((size_t)pairs);
  char path[32];
  zke *heir, *z = open_for("zke-watchers.db");
  must(zke_open_session(z, NULL, &heir), "zke_open_session");
  int64_t since = now_ns();
  for (int i = 0; i < one; i++)
    must(zke_exists(z, "/", ignore, &contexts[i], NULL), "zke_exists");
  report_one("register a watcher of the same node", one, subject_zke.name, "us",
             ms_since(since) * 1000 / one);
  must(zke_remove_watch(z, "/", ZKE_WATCH_ANY, NULL, NULL), "remove");
  for (int i = 0; i < pairs; i++) {
    snprintf(path, sizeof path, "/n%06d", i);
    if (zke_exists(z, path, ignore, &contexts[i], NULL) != ZKE_NONODE)
      die("%s exists", path);
  }
  must(zke_expire(heir, zke_session_id(z)), "zke_expire");
  since = now_ns();
  must(zke_dispatch(z, NULL), "zke_dispatch");
  report_one("dispatch of a session's end, each pair", pairs, subject_zke.name,
             "us", ms_since(since) * 1000 / pairs);
  must(zke_close(z), "zke_close");
  must(zke_close(heir), "zke_close");
  free(contexts);
}

void part_removal(void) {
  end_of_a_session();
  due_nodes();
  many_watchers();
}
