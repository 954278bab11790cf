/* arena.c - the memory of a world; and malloc() for the whole program
 *
 * A region begins with a struct region and grows upwards; the stack of a
 * process is at the upper end of its region and grows downwards.  Sizes are
 * rounded up to classes, and a freed block goes into the list of its class.
 *
 * Mistakes are noticed when a block is freed, or used again: each block is
 * followed by a guard word, and a freed block is filled with a byte that is no
 * address and no likely number. */
#define _GNU_SOURCE
#include "arena.h"
#include "fiber.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  SMALL_CLASSES = 64, /* of 16 bytes each */
  CLASSES = SMALL_CLASSES + 24,
  GRAIN = 16,
  FREED = 0xdd /* the content of a freed block */
};

#define BEHIND UINT64_C(0x5afe5afe5afe5afe) /* the guard word after a block */

/* The region outside is for the explorer.  That keeps many pictures, which it
 * maps itself. */
#define OUTSIDE_BYTES ((size_t)1 << 34)

typedef struct region {
  char *top; /* the first byte that was never used */
  size_t live;
  void *freed[CLASSES];
} region;

typedef struct head {
  uint16_t class_, is_free;
  uint32_t region;
  size_t size;
} head;

char *arena_base;
static bool arena_sqlite_used; /* restored with the world */
int arena_current = ARENA_OUTSIDE;

static region *region_at(int r) {
  return (region *)(void *)(arena_base + (size_t)r * ARENA_REGION);
}

static char *region_end(int r) {
  char *from = arena_base + (size_t)r * ARENA_REGION;
  if (r == ARENA_OUTSIDE) return from + OUTSIDE_BYTES;
  if (r < ARENA_PROCESS) return from + ARENA_REGION;
  return from + ARENA_REGION - ARENA_STACK - ARENA_GUARD;
}

/* The place of its first block. */
static char *region_first(region *g) {
  return (char *)g + (sizeof *g + GRAIN - 1) / GRAIN * GRAIN;
}

static void region_clear(int r) {
  region *g = region_at(r);
  memset(g, 0, sizeof *g);
  g->top = region_first(g);
}

bool arena_begin(void) {
  if (arena_base) return true;
  void *at = mmap(NULL, ARENA_BYTES + OUTSIDE_BYTES, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return false;
  arena_base = at;
  for (int r = 0; r <= ARENA_OUTSIDE; r++) region_clear(r);
  for (int r = ARENA_PROCESS; r < ARENA_INSIDE; r++)
    mprotect(region_end(r), ARENA_GUARD, PROT_NONE);
  return true;
}

bool arena_is_guard(const void *address) {
  uint64_t at = (uint64_t)(uintptr_t)address;
  return arena_region_of(at) < ARENA_OUTSIDE && !arena_is_stack(at) &&
         arena_is_stack(at + ARENA_GUARD);
}

void arena_clear(void) {
  for (int r = 0; r < ARENA_INSIDE; r++) region_clear(r);
}

static uint32_t class_of(size_t size) {
  if (size <= SMALL_CLASSES * GRAIN)
    return size ? (uint32_t)((size + GRAIN - 1) / GRAIN) : 1;
  uint32_t c = SMALL_CLASSES + 1;
  for (size_t s = SMALL_CLASSES * GRAIN * 2; s < size; s *= 2) c++;
  return c;
}

static size_t class_bytes(uint32_t c) {
  if (c <= SMALL_CLASSES) return (size_t)c * GRAIN;
  return (size_t)SMALL_CLASSES * GRAIN << (c - SMALL_CLASSES);
}

static head *head_of(const void *block) { return (head *)(uintptr_t)block - 1; }

/* A block that is new in this world.  In a world that was replaced by a
 * picture, it may have been in use. */
static head *region_grow(int r, uint32_t class_) {
  region *g = region_at(r);
  head *h = (head *)(void *)g->top;
  if (class_ >= CLASSES) return NULL;
  size_t size = sizeof *h + class_bytes(class_);
  if ((size_t)(region_end(r) - g->top) < size) return NULL;
  g->top += size;
  memset(h, 0, size);
  return h;
}

static void set_behind(const head *h, uint64_t word) {
  memcpy((char *)(uintptr_t)(h + 1) + h->size, &word, sizeof word);
}

/* Take a freed block, filled with zeros.  Was it left alone since? */
static void freed_take(head *h) {
  const unsigned char *at = (const unsigned char *)(h + 1);
  size_t i = sizeof(void *);
  while (i < h->size && at[i] == FREED) i++;
  if (i < h->size)
    arena_misuse("somebody has written to memory that was freed");
  memset(h + 1, 0, h->size > sizeof(void *) ? h->size : sizeof(void *));
}

void *arena_get(int r, size_t size) {
  if (!arena_begin() || size > OUTSIDE_BYTES / 4) return NULL;
  region *g = region_at(r);
  uint32_t class_ = class_of(size + sizeof(uint64_t));
  head *h = class_ < CLASSES ? g->freed[class_] : NULL;
  if (h) {
    g->freed[class_] = *(void **)(h + 1);
    freed_take(h);
  } else {
    h = region_grow(r, class_);
    if (!h) return NULL;
  }
  *h = (head){.class_ = (uint16_t)class_, .region = (uint32_t)r, .size = size};
  set_behind(h, BEHIND);
  g->live += size;
  return h + 1;
}

/* Report what is wrong with a block that is about to be freed. */
static void block_check(const void *block) {
  const head *h = head_of(block);
  uint64_t behind;
  if (h->region > ARENA_OUTSIDE || h->class_ >= CLASSES)
    arena_misuse("free() of what malloc() has not given");
  if (h->is_free) arena_misuse("a block is freed twice");
  memcpy(&behind, (const char *)block + h->size, sizeof behind);
  if (behind != BEHIND)
    arena_misuse("somebody has written behind the end of a block");
}

void arena_put(void *block) {
  head *h = head_of(block);
  block_check(block);
  region *g = region_at((int)h->region);
  g->live -= h->size;
  set_behind(h, 0);
  memset(block, FREED, h->size);
  *(void **)block = g->freed[h->class_];
  g->freed[h->class_] = h;
  h->is_free = 1;
}

size_t arena_size(const void *block) { return head_of(block)->size; }

size_t arena_live(int r) { return region_at(r)->live; }

int arena_region(const void *block) { return (int)head_of(block)->region; }

char *arena_stack(int process) {
  return arena_base + (size_t)(ARENA_PROCESS + process + 1) * ARENA_REGION;
}

int arena_blocks(arena_block *out, int most) {
  int n = 0;
  for (int r = ARENA_WORLD; r < ARENA_INSIDE; r++) {
    region *g = region_at(r);
    char *at = region_first(g);
    while (at < g->top && n < most) {
      head *h = (head *)(void *)at;
      at += sizeof *h + class_bytes(h->class_);
      if (h->is_free) continue;
      out[n].from = (char *)(h + 1);
      out[n++].to = (char *)(h + 1) + h->size;
    }
  }
  return n;
}

/* ---- pictures ---- */

/* The program's static variables; the linker defines these. */
extern char __data_start[], _end[];

/* A piece of the world, followed by its bytes. */
typedef struct piece {
  char *from;
  size_t size;
} piece;

enum { PIECES = ARENA_INSIDE + ARENA_MOST + 1 };

static piece piece_at(int i, char *const stacks[ARENA_MOST], bool first) {
  if (i == ARENA_SQLITE && !first && !arena_sqlite_used)
    return (piece){(char *)region_at(i), 0};
  if (i < ARENA_INSIDE)
    return (piece){(char *)region_at(i),
                   (size_t)(region_at(i)->top - (char *)region_at(i))};
  i -= ARENA_INSIDE;
  if (i == ARENA_MOST)
    return (piece){__data_start, (size_t)(_end - __data_start)};
  if (!stacks[i]) return (piece){arena_stack(i), 0};
  return (piece){stacks[i], (size_t)(arena_stack(i) - stacks[i])};
}

/* Pictures do not come from malloc(), since taking one must not change
 * anything. */
static bool picture_reserve(picture *p, size_t size) {
  if (size <= p->cap) return true;
  size_t cap = size * 5 / 4;
  void *at = p->bytes ? mremap(p->bytes, p->cap, cap, MREMAP_MAYMOVE)
                      : mmap(NULL, cap, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return false;
  p->bytes = at;
  p->cap = cap;
  return true;
}

void arena_use_sqlite(void) { arena_sqlite_used = true; }

bool picture_take(picture *p, char *const stacks[ARENA_MOST], bool first) {
  piece pieces[PIECES];
  size_t size = 0;
  for (int i = 0; i < PIECES; i++) {
    pieces[i] = piece_at(i, stacks, first);
    size += sizeof pieces[i] + (pieces[i].size + GRAIN - 1) / GRAIN * GRAIN;
  }
  if (!picture_reserve(p, size)) return false;
  p->size = size;
  char *at = p->bytes;
  for (int i = 0; i < PIECES; i++) {
    memcpy(at, &pieces[i], sizeof pieces[i]);
    memcpy(at + sizeof pieces[i], pieces[i].from, pieces[i].size);
    at += sizeof pieces[i] + (pieces[i].size + GRAIN - 1) / GRAIN * GRAIN;
  }
  return true;
}

/* Restore a piece; returns the address of the next one. */
static const char *piece_put(const char *at) {
  piece one;
  memcpy(&one, at, sizeof one);
  memcpy(one.from, at + sizeof one, one.size);
  return at + sizeof one + (one.size + GRAIN - 1) / GRAIN * GRAIN;
}

const char *arena_statics(const picture *p) {
  piece last;
  if (!p->size) return NULL;
  size_t size = ((size_t)(_end - __data_start) + GRAIN - 1) / GRAIN * GRAIN;
  const char *at = p->bytes + p->size - size;
  memcpy(&last, at - sizeof last, sizeof last);
  return last.from == __data_start ? at : NULL;
}

void picture_put(const picture *p, const picture *first) {
  bool used = arena_sqlite_used;
  for (const char *at = p->bytes; at < p->bytes + p->size;) at = piece_put(at);
  if (used && !arena_sqlite_used) piece_put(first->bytes); /* SQLite's */
}

void picture_free(picture *p) {
  if (p->bytes) munmap(p->bytes, p->cap);
  *p = (picture){0};
}

/* ---- malloc() and its relatives ---- */

void *malloc(size_t size) {
  void *block = arena_get(arena_current, size);
  if (!block) errno = ENOMEM;
  return block;
}

void *calloc(size_t count, size_t size) {
  size_t all;
  if (__builtin_mul_overflow(count, size, &all)) {
    errno = ENOMEM;
    return NULL;
  }
  return malloc(all);
}

/* A block from outside is not freed while a world is on: the world may be
 * restored to a time when it was in use. */
void free(void *block) {
  if (!block) return;
  bool outside = !arena_holds((uint64_t)(uintptr_t)block);
  if (!outside || arena_current == ARENA_OUTSIDE) arena_put(block);
}

void *realloc(void *block, size_t size) {
  if (!block) return malloc(size);
  void *other = malloc(size);
  if (!other) return NULL;
  size_t old = arena_size(block);
  memcpy(other, block, old < size ? old : size);
  free(block);
  return other;
}

/* A larger alignment needs a larger block.  free() gets the address returned
 * here, so that has its own head; the outer block stays in use, which rarely
 * wastes anything. */
static void *aligned(size_t alignment, size_t size) {
  if (alignment <= GRAIN) return malloc(size);
  if (size > SIZE_MAX - alignment - 2 * sizeof(head)) {
    errno = ENOMEM;
    return NULL;
  }
  uint32_t class_ = class_of(size + sizeof(uint64_t));
  char *outer = malloc(class_bytes(class_) + alignment + sizeof(head));
  if (!outer) return NULL;
  uintptr_t at = (uintptr_t)outer + sizeof(head);
  at = (at + alignment - 1) / alignment * alignment;
  head *h = head_of((void *)at);
  *h = (head){.class_ = (uint16_t)class_,
              .region = head_of(outer)->region,
              .size = size};
  set_behind(h, BEHIND);
  return (void *)at;
}

void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size) {
  return aligned(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
  return aligned(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
  void *block = aligned(alignment, size);
  if (!block) return ENOMEM;
  *out = block;
  return 0;
}

size_t malloc_usable_size(void *block);
size_t malloc_usable_size(void *block) { return block ? arena_size(block) : 0; }

void fiber_clean(char *sp) {
  enum { BLOCK = 512 };
  static const char zeros[BLOCK];
  for (int clean = 0; clean < 2;) {
    if (!arena_is_stack((uint64_t)(uintptr_t)(sp - BLOCK))) return;
    sp -= BLOCK;
    clean = memcmp(sp, zeros, BLOCK) == 0 ? clean + 1 : 0;
    if (clean == 0) memset(sp, 0, BLOCK);
  }
}
