/* memory.c - see memory.h */
#include "test/sim/memory.h"

#include <sqlite3.h>
#include <stddef.h>
#include <stdlib.h>

#include "test/sim/sched.h"

/* Before each block: in whose number of blocks it counts, or how long it is. */
typedef struct head {
  union {
    int64_t *count;
    int64_t size;
  } of;
  max_align_t align;
} head;

/* How many blocks the process of a slot has.  A forked child has copies of its
 * parent's, which do not count as its own. */
static int64_t *blocks[SIM_SLOTS];

static void *engine_resize(void *context, void *block, size_t size) {
  head *h = block ? (head *)block - 1 : NULL;
  int slot = sched_slot();
  (void)context;
  if (size == 0) {
    if (h && h->of.count) --*h->of.count;
    free(h);
    return NULL;
  }
  if (sched_fails(CALL_alloc)) return NULL;
  head *fresh = sim_resize(h, size + sizeof *h);
  if (!h) {
    if (slot >= 0 && !blocks[slot]) blocks[slot] = sim_zero(sizeof(int64_t));
    fresh->of.count = slot < 0 ? NULL : blocks[slot];
    if (slot >= 0) ++*blocks[slot];
  }
  return fresh + 1;
}

const zke_allocator memory_allocator = {.resize = engine_resize};

int64_t memory_blocks(int slot) { return blocks[slot] ? *blocks[slot] : 0; }
void memory_forget(int slot) { blocks[slot] = NULL; }

/* ---- SQLite's ---- */

static void *sql_resize(void *block, int size) {
  head *h = block ? (head *)block - 1 : NULL;
  if (sched_fails(CALL_sqlalloc)) return NULL;
  h = sim_resize(h, (size_t)size + sizeof *h);
  h->of.size = size;
  return h + 1;
}

static void *sql_malloc(int size) { return sql_resize(NULL, size); }

static void sql_free(void *block) {
  if (block) free((head *)block - 1);
}

static int sql_size(void *block) {
  return block ? (int)((head *)block - 1)->of.size : 0;
}

static int sql_roundup(int size) { return (size + 7) & ~7; }

static int sql_begin(void *context) {
  (void)context;
  return SQLITE_OK;
}

static void sql_end(void *context) { (void)context; }

void memory_begin(void) {
  static sqlite3_mem_methods methods = {.xMalloc = sql_malloc,
                                        .xFree = sql_free,
                                        .xRealloc = sql_resize,
                                        .xSize = sql_size,
                                        .xRoundup = sql_roundup,
                                        .xInit = sql_begin,
                                        .xShutdown = sql_end};
  sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
}
