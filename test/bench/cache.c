/* cache.c - the cost of a change to caches that keep a tree in memory
 *
 *   start     read the whole tree
 *   set, create, delete, ten in one step
 *             from the beginning of the change until memory has it and the
 *             listener was told; by the number of kept nodes
 *   told      the same change, told to a watcher that does nothing
 *   member    one comes, and leaves: a group by its size
 *
 * Writer and cache are two stores of one process, so there is no wake-up.
 */
#include "bench.h"

#include <stdio.h>
#include <string.h>

#include "recipes/config.h"
#include "recipes/group.h"

enum { AT_ONCE = 500, TEN = 10, CHANGES = 4, ROUNDS = 300 };

#define MEMBER "_c_00000000-0000-0000-0000-000000000000-member-"

typedef struct cache {
  zke *writer, *reader;
  int heard;
} cache;

static cache cache_open(const char *base) {
  cache c = {NULL, NULL, 0};
  char file[PATH_BYTES];
  zke_options o = {.size = sizeof o, .durability = ZKE_DURABLE_NONE};
  file_in(file, sizeof file, base);
  must(zke_open(file, &o, &c.writer), "zke_open");
  must(zke_open(file, &o, &c.reader), "zke_open");
  return c;
}

static void cache_close(cache *c) {
  must(zke_close(c->reader), "zke_close");
  must(zke_close(c->writer), "zke_close");
}

static void plant(zke *z, const char *root, const char *name, int mode,
                  int count) {
  static zke_op ops[AT_ONCE];
  static char paths[AT_ONCE][120];
  must(zke_create(z, root, "zkembed group\n", 14, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                  NULL, NULL),
       "zke_create");
  for (int from = 0; from < count; from += AT_ONCE) {
    int n = 0;
    for (; n < AT_ONCE && from + n < count; n++) {
      if (mode == ZKE_PERSISTENT)
        snprintf(paths[n], sizeof paths[n], "%s/%s%05d", root, name, from + n);
      else
        snprintf(paths[n], sizeof paths[n], "%s/%s", root, name);
      zke_op_create(&ops[n], paths[n], data, DATA_BYTES, ZKE_OPEN_ACL, mode);
    }
    must(zke_multi(z, ops, n, NULL), "zke_multi");
  }
}

static void hear(zke_config *config, int event, const zke_config_node *before,
                 const zke_config_node *now, void *context) {
  (void)config, (void)event, (void)before, (void)now;
  ++*(int *)context;
}

static void hear_member(zke_group *group, int event, const zke_party *who,
                        void *context) {
  (void)group, (void)event, (void)who;
  ++*(int *)context;
}

static void told(zke *z, int type, int state, const char *path, void *context) {
  (void)z, (void)type, (void)state, (void)path;
  ++*(int *)context;
}

/* The time until `count` changes were heard of, us. */
static double listen(cache *c, int count) {
  int64_t start = now_ns();
  int until = c->heard + count;
  while (c->heard < until) must(zke_dispatch(c->reader, NULL), "zke_dispatch");
  return (double)(now_ns() - start) / 1000;
}

/* Make a change of the k-th kind; how many nodes it changes. */
static int change(zke *z, int kind, int round) {
  static zke_op ops[TEN];
  static char paths[TEN][40];
  int count = kind == 3 ? TEN : 1;
  for (int i = 0; i < count; i++) {
    snprintf(paths[i], sizeof paths[i], "/cache/n%05d",
             (round * 37 + i * 7) % 100);
    zke_op_set(&ops[i], paths[i], data, DATA_BYTES, -1);
  }
  if (kind == 1)
    zke_op_create(&ops[0], "/cache/new", data, DATA_BYTES, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
  if (kind == 2) zke_op_delete(&ops[0], "/cache/new", -1);
  must(zke_multi(z, ops, count, NULL), "zke_multi");
  return count;
}

static void measure_changes(cache *c, const char *const *names, int nodes,
                            const char *who) {
  samples s[CHANGES] = {{0}};
  for (int round = 0; round < times(ROUNDS, 5); round++) {
    for (int kind = 0; kind < CHANGES; kind++) {
      int count = change(c->writer, kind, round);
      add(&s[kind], listen(c, count));
    }
  }
  for (int kind = 0; kind < CHANGES; kind++) {
    report(names[kind], nodes, who, "us", &s[kind], NULL, NULL);
    forget(&s[kind]);
  }
}

static void measure_config(int nodes) {
  static const char *const names[] = {"set", "create", "delete", "set ten"};
  char base[40];
  snprintf(base, sizeof base, "cache-%d.db", nodes);
  cache c = cache_open(base);
  zke_config_options o = {
      .size = sizeof o, .listener = hear, .context = &c.heard};
  zke_config *config;
  plant(c.writer, "/cache", "n", ZKE_PERSISTENT, nodes);
  must(zke_add_watch(c.reader, "/cache", ZKE_WATCH_PERSISTENT_RECURSIVE, told,
                     &c.heard),
       "zke_add_watch");
  measure_changes(&c, names, nodes, "told");
  must(zke_forget(c.reader, told, &c.heard), "zke_forget");
  must(zke_config_new(c.reader, "/cache", &o, &config), "zke_config_new");
  int64_t start = now_ns();
  must(zke_config_start(config), "zke_config_start");
  report_one("start", nodes, "zkembed", "us",
             (double)(now_ns() - start) / 1000);
  measure_changes(&c, names, nodes, "zkembed");
  zke_config_free(config);
  cache_close(&c);
}

static void measure_group(int members) {
  char base[40], *path;
  snprintf(base, sizeof base, "group-%d.db", members);
  cache c = cache_open(base);
  zke_group_options o = {
      .size = sizeof o, .listener = hear_member, .context = &c.heard};
  zke_group *group;
  samples come = {0}, go = {0};
  plant(c.writer, "/group", MEMBER, ZKE_EPHEMERAL_SEQUENTIAL, members);
  must(zke_group_new(c.reader, "/group", &o, &group), "zke_group_new");
  must(zke_group_start(group), "zke_group_start");
  for (int round = 0; round < times(ROUNDS, 5); round++) {
    must(zke_create(c.writer, "/group/" MEMBER, data, DATA_BYTES, ZKE_OPEN_ACL,
                    ZKE_EPHEMERAL_SEQUENTIAL, &path, NULL),
         "zke_create");
    add(&come, listen(&c, 1));
    must(zke_delete(c.writer, path, -1), "zke_delete");
    add(&go, listen(&c, 1));
    zke_free(path);
  }
  report("member comes", members, "zkembed", "us", &come, NULL, NULL);
  report("member goes", members, "zkembed", "us", &go, NULL, NULL);
  forget(&come);
  forget(&go);
  zke_group_free(group);
  cache_close(&c);
}

void part_cache(void) {
  for (int n = 100; n <= times(10000, 100); n *= 10) measure_config(n);
  for (int n = 100; n <= times(10000, 100); n *= 10) measure_group(n);
}
