/* memory.c - see memory.h */
#include "test/sim/memory.h"

#include <sqlite3.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/sim/sched.h"

/* Before each block: the counter that counts it, its size, or the next free
 * block. */
typedef struct head {
  union {
    int64_t *count;
    int64_t size;
    struct head *next;
  } of;
  int kind; /* it has 1 << kind bytes, with the head; 0: it is free */
  max_align_t align;
} head;

/* ---- blocks, by powers of two ----
 *
 * Their addresses depend only on the earlier requests: some recipes name znodes
 * by the address of an object, and the C library would give other addresses in
 * each run.  It would also take a tenth of the whole time. */

enum { KINDS = 34 };
#define ARENA_SIZE (INT64_C(1) << KINDS)
#define ARENA_AT ((void *)(UINT64_C(1) << 44))

static char *arena_next; /* never used from here on */
static head *arena_free[KINDS];

/* Reserve the addresses; memory is added on use. */
static void arena_begin(void) {
  arena_next = mmap(ARENA_AT, ARENA_SIZE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (arena_next != ARENA_AT) abort();
}

/* A block with this many bytes after its head, not zeroed. */
static head *arena_get(size_t size) {
  int kind = 64 - __builtin_clzll(size + sizeof(head) - 1);
  head *h = arena_free[kind];
  if (h) {
    arena_free[kind] = h->of.next;
  } else {
    h = (head *)(void *)arena_next;
    arena_next += (size_t)1 << kind;
  }
  h->kind = kind;
  return h;
}

/* Free it; it is the next one of its size to be used. */
static void arena_put(head *h) {
  if (!h->kind) sim_found("P9: a block of memory is freed twice");
  h->of.next = arena_free[h->kind];
  arena_free[h->kind] = h;
  h->kind = 0;
}

/* Resize the block, in place or elsewhere. */
static head *arena_resize(head *h, size_t size) {
  if (h && !h->kind) sim_found("P9: a block of memory is used that is free");
  if (h && ((size_t)1 << h->kind) >= size + sizeof *h) return h;
  head *fresh = arena_get(size);
  if (!h) return fresh;
  memcpy(fresh + 1, h + 1, ((size_t)1 << h->kind) - sizeof *h);
  fresh->of = h->of;
  arena_put(h);
  return fresh;
}

/* ---- the engine's, and the recipes' ---- */

/* How many blocks a slot's process has.  A forked child's copies of its
 * parent's blocks do not count as its own. */
static int64_t *blocks[SIM_SLOTS];

static void *engine_resize(void *context, void *block, size_t size) {
  head *h = block ? (head *)block - 1 : NULL;
  int slot = sched_slot();
  (void)context;
  if (size == 0) {
    if (h && h->of.count) --*h->of.count;
    if (h) arena_put(h);
    return NULL;
  }
  if (sched_fails(CALL_alloc)) return NULL;
  head *fresh = arena_resize(h, size);
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

/* SQLite may have rounded the sizes before. */
static int sql_roundup(int size) { return (size + 7) & ~7; }

/* A block, unless a fault makes this fail. */
static void *sql_malloc(int size) {
  if (sched_fails(CALL_sqlalloc)) return NULL;
  head *h = arena_get((size_t)size);
  h->of.size = sql_roundup(size);
  return h + 1;
}

/* NULL is allowed. */
static void sql_free(void *block) {
  if (block) arena_put((head *)block - 1);
}

static int sql_size(void *block) {
  return block ? (int)((head *)block - 1)->of.size : 0;
}

/* Another block with the same content. */
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
  sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0); /* not used */
  arena_begin();
}
