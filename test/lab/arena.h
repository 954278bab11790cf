/* arena.h - the memory of a world, which can be copied and put back
 *
 * Whatever the processes of a test, the engine and SQLite allocate lies in
 * regions of one mapping, and so do the processes' stacks.  A picture of the
 * world is a copy of the used part of each region, of each stack, and of the
 * program's static variables.  Nothing in the world points to what is not in
 * the picture, so putting one back puts everything back.
 *
 * Memory that is allocated while no world is on comes from the last region,
 * which belongs to no picture. */
#ifndef ARENA_H
#define ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  ARENA_MOST = 5, /* processes */
  ARENA_SQLITE = 0,
  ARENA_WORLD,   /* the laboratory's own state of the world, and setup's */
  ARENA_PROCESS, /* and those after it */
  ARENA_INSIDE = ARENA_PROCESS + ARENA_MOST, /* regions of the world */
  ARENA_OUTSIDE = ARENA_INSIDE
};

/* Where malloc() takes its memory from now.  It is ARENA_OUTSIDE while no
 * world is on. */
extern int arena_current;

bool arena_begin(void); /* map it, empty; false: there is no memory */
void arena_clear(void); /* all but the region outside is empty again */

void *arena_get(int region, size_t size); /* zeroed; NULL: the region is full */
void arena_put(void *block);
size_t arena_size(const void *block);
size_t arena_live(int region); /* bytes allocated */
int arena_region(const void *block);

char *arena_stack(int process); /* its upper end */
bool arena_is_stack(uint64_t word);
bool arena_holds(uint64_t word); /* is it an address in the world? */

/* The blocks of the world, in the order of their addresses, for whoever
 * follows pointers. */
typedef struct arena_block {
  char *from, *to;
} arena_block;
int arena_blocks(arena_block *out, int most);

/* A copy of the world.  Which stacks are in use is told by their pointers. */
typedef struct picture {
  size_t size, cap;
  char *bytes;
} picture;
bool picture_take(picture *p, char *const stacks[ARENA_MOST]);
void picture_put(const picture *p);
void picture_free(picture *p);

#endif
