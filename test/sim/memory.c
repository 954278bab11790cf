/* memory.c - see memory.h */
#include "test/sim/memory.h"

#include <sqlite3.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/sched.h"

/* Before each block: in whose number of blocks it counts, how long it is, or
 * the next one that is free. */
typedef struct head {
  union {
    int64_t *count;
    int64_t size;
    struct head *next;
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

/* Blocks that are free, by their room, a power of two.  SQLite allocates so
 * often that the C library would take a tenth of all time. */
static head *spare[32];

/* The list for blocks of a size. */
static head **spare_for(int64_t size) {
  return &spare[size > 64 ? 64 - __builtin_clzll((uint64_t)size - 1) : 6];
}

/* SQLite asks for sizes that its own methods have rounded, or not. */
static int sql_roundup(int size) { return (size + 7) & ~7; }

/* A block, unless a fault strikes. */
static void *sql_malloc(int size) {
  head **list = spare_for(size), *h = *list;
  if (sched_fails(CALL_sqlalloc)) return NULL;
  if (h)
    *list = h->of.next;
  else
    h = sim_resize(NULL, ((size_t)1 << (list - spare)) + sizeof *h);
  h->of.size = sql_roundup(size);
  return h + 1;
}

/* It is kept for the next one of its room. */
static void sql_free(void *block) {
  head *h = (head *)block - 1;
  if (!block) return;
  head **list = spare_for(h->of.size);
  h->of.next = *list;
  *list = h;
}

static int sql_size(void *block) {
  return block ? (int)((head *)block - 1)->of.size : 0;
}

/* Another block with the same bytes. */
static void *sql_resize(void *block, int size) {
  void *fresh = sql_malloc(size);
  int old = sql_size(block);
  if (!fresh) return NULL;
  memcpy(fresh, block, (size_t)(old < size ? old : size));
  sql_free(block);
  return fresh;
}

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
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* nobody asks */
}
