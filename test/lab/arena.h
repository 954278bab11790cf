/* arena.h - the memory of a world, which can be copied and restored
 *
 * Everything that the processes of a test, the engine and SQLite allocate is in
 * regions of one mapping, and so are the processes' stacks.  A picture of the
 * world is a copy of the used part of each region, of each stack, and of the
 * program's static variables.  Nothing in the world points to memory outside of
 * the picture, so restoring one restores everything.
 *
 * Memory that is allocated while no world is on comes from the last region,
 * which is in no picture. */
#ifndef ARENA_H
#define ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  ARENA_MOST = 5, /* processes */
  ARENA_SQLITE = 0,
  ARENA_TABLES,
  ARENA_WORLD,   /* the laboratory's state of the world, and setup's */
  ARENA_PROCESS, /* and those after it */
  ARENA_INSIDE = ARENA_PROCESS + ARENA_MOST, /* regions of the world */
  ARENA_OUTSIDE = ARENA_INSIDE
};

/* The region that malloc() uses now.  It is ARENA_OUTSIDE while no world is
 * on. */
extern int arena_current;

bool arena_begin(void); /* map it, empty; false: there is no memory */
void arena_clear(void); /* all but the region outside is empty again */

void *arena_get(int region, size_t size); /* zeroed; NULL: the region is full */
void arena_put(void *block);
size_t arena_size(const void *block);
size_t arena_live(int region); /* bytes allocated */
int arena_region(const void *block);

/* The memory has been misused: a finding, if a process runs.  (world.c) */
void arena_misuse(const char *how);

char *arena_stack(int process); /* its upper end */

/* The memory below each stack must not be used: is the address there? */
bool arena_is_guard(const void *address);

/* The region of an address, which may be any word: comparing worlds calls this
 * for each word of their memory. */
enum {
  ARENA_REGION = 8 << 20,
  ARENA_STACK = 256 << 10,
  ARENA_GUARD = 64 << 10
};
#define ARENA_BYTES ((uint64_t)ARENA_INSIDE * ARENA_REGION)
extern char *arena_base;

static inline bool arena_holds(uint64_t word) {
  return word - (uint64_t)(uintptr_t)arena_base < ARENA_BYTES;
}

static inline int arena_region_of(uint64_t word) {
  uint64_t at = word - (uint64_t)(uintptr_t)arena_base;
  return at < ARENA_BYTES ? (int)(at / ARENA_REGION) : ARENA_OUTSIDE;
}

static inline bool arena_is_stack(uint64_t word) {
  uint64_t at = word - (uint64_t)(uintptr_t)arena_base;
  return arena_holds(word) && at / ARENA_REGION >= ARENA_PROCESS &&
         at % ARENA_REGION >= ARENA_REGION - ARENA_STACK;
}

/* The blocks of the world, sorted by address, for following pointers. */
typedef struct arena_block {
  char *from, *to;
} arena_block;
int arena_blocks(arena_block *out, int most);

/* SQLite's region is used from now on: it is a part of later pictures of this
 * world.  Pictures of a world that does not use it are without it. */
void arena_use_sqlite(void);

/* A copy of the world.  The stack pointers tell which stacks are in use.  The
 * first picture of a world has all of it; later ones take SQLite's region from
 * there if that was not used since. */
typedef struct picture {
  size_t size, cap;
  char *bytes;
} picture;
bool picture_take(picture *p, char *const stacks[ARENA_MOST], bool first);
void picture_put(const picture *p, const picture *first);
void picture_free(picture *p);
/* The program's static variables in a picture, beginning with __data_start. */
const char *arena_statics(const picture *p);

#endif
