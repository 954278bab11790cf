/* memory.c - bytes: of a store, a session, a znode, the library
 *
 * SQLite reports its allocations; zkembed's go through a counting allocator.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <malloc.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "zkembed.h"

enum { SESSIONS = 100, NODES = 10000 };

/* What the allocator has given out. */
static int64_t allocated;

static void *count_resize(void *context, void *block, size_t size) {
  (void)context;
  if (block) allocated -= (int64_t)malloc_usable_size(block);
  if (size == 0) {
    free(block);
    return NULL;
  }
  block = realloc(block, size);
  if (block) allocated += (int64_t)malloc_usable_size(block);
  return block;
}

static double used(void) { return (double)(sqlite3_memory_used() + allocated); }

static zke *open_counted(const char *name) {
  zke_options o = {.size = sizeof o, .allocator = {.resize = count_resize}};
  zke *z;
  must(zke_open(name, &o, &z), "zke_open");
  return z;
}

/* Read each node once, to fill the page cache. */
static void read_all(zke *z, int nodes) {
  for (int i = 0; i < nodes; i++) {
    raw_key key;
    char parent[32], *bytes;
    int len;
    snprintf(parent, sizeof parent, "/g%05d", i / 100);
    key_number(&key, parent, "n%02u", (unsigned)i % 100);
    must(zke_get(z, key.path, NULL, NULL, &bytes, &len, NULL), "zke_get");
    zke_free(bytes);
  }
}

static void store_and_sessions(void) {
  char path[PATH_BYTES];
  zke *more[SESSIONS];
  plant_tree(&subject_zke, "memory", times(NODES, 1000));
  file_in(path, sizeof path, "zke-memory.db");
  double before = used();
  zke *z = open_counted(path);
  read_all(z, times(NODES, 1000));
  double store = used();
  for (int i = 0; i < SESSIONS; i++) {
    must(zke_open_session(z, NULL, &more[i]), "zke_open_session");
  }
  double all = used();
  for (int i = 0; i < SESSIONS; i++) must(zke_close(more[i]), "zke_close");
  must(zke_close(z), "zke_close");
  report_one("store with a session", 0, subject_zke.name, "KiB",
             (store - before) / 1024);
  report_one("further session", 0, subject_zke.name, "KiB",
             (all - store) / 1024 / SESSIONS);
}

static void nodes_in_memory(void) {
  int nodes = times(NODES, 1000);
  zke *z = open_counted(":memory:");
  double before = used();
  for (int i = 0; i < nodes; i++) {
    raw_key key;
    key_number(&key, "/", "n-%010u", (unsigned)i);
    must(zke_create(z, key.path, data, DATA_BYTES, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                    NULL, NULL),
         "zke_create");
  }
  report_one("znode of :memory:", nodes, subject_zke.name, "B",
             (used() - before) / nodes);
  must(zke_close(z), "zke_close");
}

/* By size(1); BENCH_LIBRARY names the file. */
static void library(void) {
  const char *file = getenv("BENCH_LIBRARY");
  char command[PATH_BYTES], line[200] = "";
  if (!file) return;
  snprintf(command, sizeof command, "size '%s' 2>/dev/null | tail -n 1", file);
  FILE *f = popen(command, "r");
  double text = f && fgets(line, sizeof line, f) ? atof(line) : 0;
  if (f) pclose(f);
  if (text > 0)
    report_one("library's text", 0, subject_zke.name, "kB", text / 1000);
}

void part_memory(void) {
  library();
  store_and_sessions();
  nodes_in_memory();
}
