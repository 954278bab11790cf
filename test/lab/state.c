/* state.c - when two worlds are equal, and which blocks are unreachable
 *
 * Two worlds are equal if everything that can still happen in one can happen in
 * the other.  That depends on: the tables; each living process's stack,
 * thread-local variables and handle; every block reachable from there; the
 * memory that the test has named; and what the world knows of its processes
 * (world_words()).
 *
 * Any word may be a pointer.  A pointer into a block is replaced by the block's
 * number in the order of being reached, so that the places of blocks do not
 * matter.  A zxid, or the turn of a handle, is recognised by its upper bits and
 * replaced by its rank among all of its kind.  Any other difference makes
 * worlds different, which costs time but hides nothing. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "world.h"

enum { BLOCKS = 8192, WORDS = 1 << 17, COUNTERS = 8192, SUMS = 4 };

/* Not a static variable, since the pictures would contain it. */
typedef struct survey {
  arena_block blocks[BLOCKS];
  int numbers[BLOCKS]; /* 0: not reached */
  int queue[BLOCKS];
  int block_count, queued, done;
  uint64_t words[WORDS + SUMS];
  size_t word_count;
  int counters[COUNTERS]; /* their places among the words */
  int counter_count;
  uint64_t ranks[COUNTERS]; /* the counters found, in order */
  int rank_count;
  bool marks;    /* only asked for the reachable blocks */
  bool overflow; /* too much to compare: such a world equals none */
} survey;

static survey *survey_at;

bool state_begin(void) {
  if (!survey_at) survey_at = arena_get(ARENA_OUTSIDE, sizeof *survey_at);
  return survey_at != NULL;
}

static survey *survey_begin(void) {
  survey *s = survey_at;
  s->block_count = arena_blocks(s->blocks, BLOCKS);
  s->overflow = s->block_count == BLOCKS;
  memset(s->numbers, 0, sizeof s->numbers[0] * (size_t)s->block_count);
  s->queued = s->done = s->rank_count = s->counter_count = 0;
  s->word_count = 0;
  s->marks = false;
  return s;
}

/* The rank of a counter among all found, or the one that it would have. */
static int rank_of(const survey *s, uint64_t counter) {
  int low = 0, high = s->rank_count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (s->ranks[middle] < counter)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static void rank_add(survey *s, uint64_t counter) {
  int at = rank_of(s, counter);
  if (at < s->rank_count && s->ranks[at] == counter) return;
  memmove(&s->ranks[at + 1], &s->ranks[at],
          sizeof s->ranks[0] * (size_t)(s->rank_count - at));
  s->ranks[at] = counter;
  s->rank_count++;
}

static void add_word(survey *s, uint64_t word) {
  if (s->marks) return;
  if (s->word_count == WORDS) {
    s->overflow = true;
    return;
  }
  s->words[s->word_count++] = word;
  if (!ENGINE_IS_COUNTER(word)) return;
  if (s->counter_count == COUNTERS) {
    s->overflow = true;
    return;
  }
  s->counters[s->counter_count++] = (int)s->word_count - 1;
  rank_add(s, word);
}

/* The block that contains an address, or -1. */
static int block_of(const survey *s, uint64_t word) {
  int low = 0, high = s->block_count;
  const char *at = (const char *)(uintptr_t)word;
  while (low < high) {
    int middle = (low + high) / 2;
    if (s->blocks[middle].to <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low < s->block_count && s->blocks[low].from <= at ? low : -1;
}

/* A word that may be a pointer into the arena.  All pointers to freed blocks
 * are equal: no code may follow them.  Pointers to rows or SQLite's memory are
 * the engine's, and no call keeps them.  The blocks of the laboratory's region
 * are the store, the handles and struct world: they do not move, and their
 * relevant parts are asked for by name. */
static void add_pointer(survey *s, uint64_t word) {
  int region = arena_region_of(word);
  bool is_stack = arena_is_stack(word);
  int block = is_stack || region < ARENA_WORLD ? -1 : block_of(s, word);
  if (block < 0 || (region == ARENA_WORLD && !s->marks)) {
    add_word(s, block < 0 && !is_stack ? 1 : word);
    return;
  }
  if (!s->numbers[block]) {
    s->queue[s->queued++] = block;
    s->numbers[block] = s->queued;
  }
  add_word(s, UINT64_C(0xb10c) << 48 | (uint64_t)s->numbers[block] << 32 |
                  (word - (uint64_t)(uintptr_t)s->blocks[block].from));
}

static void add_reference(survey *s, uint64_t word) {
  if (arena_holds(word))
    add_pointer(s, word);
  else
    add_word(s, word);
}

/* All words of some memory; the last one may be incomplete.  Most of them are
 * no pointers and no counters, and comparing worlds takes most of its time
 * here: so those are not passed on. */
static void add_memory(survey *s, const char *from, const char *to) {
  uint64_t word, *out = s->words + s->word_count;
  bool plain = !s->marks && to - from < (ptrdiff_t)(WORDS - s->word_count);
  for (; to - from >= (ptrdiff_t)sizeof word; from += sizeof word) {
    memcpy(&word, from, sizeof word);
    if (plain && !arena_holds(word) && !ENGINE_IS_COUNTER(word)) {
      *out++ = word;
      continue;
    }
    s->word_count = (size_t)(out - s->words);
    add_reference(s, word);
    out = s->words + s->word_count;
  }
  s->word_count = (size_t)(out - s->words);
  word = 0;
  if (from < to) memcpy(&word, from, (size_t)(to - from));
  if (from < to) add_reference(s, word);
}

static void follow(survey *s) {
  while (s->done < s->queued) {
    const arena_block *block = &s->blocks[s->queue[s->done++]];
    add_word(s, (uint64_t)(block->to - block->from));
    add_memory(s, block->from, block->to);
  }
}

static void sink_word(void *arg, uint64_t word) { add_reference(arg, word); }

extern char __start_lab_thread[];

/* A lane's thread-local variables, except those that no code reads. */
static void add_thread(survey *s, const world_lane *lane) {
  enum { COPY = 4096 };
  _Alignas(uint64_t) char copy[COPY];
  if (lane->thread_size > COPY) {
    add_memory(s, lane->thread, lane->thread + lane->thread_size);
    return;
  }
  memcpy(copy, lane->thread, lane->thread_size);
  for (int i = 0; i < ENGINE_UNREAD; i++) {
    size_t size;
    const char *at = engine_unread(i, &size);
    if (i == ENGINE_ZXID && lab_running->asks_zxid) continue;
    memset(copy + (at - __start_lab_thread), 0, size);
  }
  add_memory(s, copy, copy + lane->thread_size);
}

static void add_lane(survey *s, const world_lane *lane) {
  const engine_sink sink = {sink_word, s};
  if (!lane->lives) return;
  engine_handle_words(lane->z, &sink);
  add_thread(s, lane);
  add_memory(s, lane->from, lane->to);
}

/* A counter's rank among those of its kind. */
static uint64_t rank_word(const survey *s, uint64_t counter) {
  uint64_t first = counter >> 32 << 32;
  return first + (uint64_t)(rank_of(s, counter) - rank_of(s, first));
}

static uint64_t mix(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
  return sum ^ sum >> 29;
}

/* Four sums side by side, so that the processor need not wait for one addition
 * before the next. */
static uint64_t survey_hash(survey *s) {
  uint64_t a = 1, b = 2, c = 3, d = 4;
  const uint64_t *w = s->words;
  for (int i = 0; i < s->counter_count; i++) {
    uint64_t *word = &s->words[s->counters[i]];
    *word = rank_word(s, *word);
  }
  while (s->word_count % SUMS) s->words[s->word_count++] = 0;
  for (; w < s->words + s->word_count; w += SUMS) {
    a = mix(a, w[0]);
    b = mix(b, w[1]);
    c = mix(c, w[2]);
    d = mix(d, w[3]);
  }
  a = mix(mix(mix(a, b), c), d);
  return a ? a : 1;
}

/* The hash of the world's state, without the faults that are left; 0: it cannot
 * be compared. */
uint64_t state_hash(zke_lab *lab) {
  world_lane lanes[ZKE_LAB_MOST];
  zke *handles[ZKE_LAB_MOST];
  survey *s = survey_begin();
  if (s->overflow) return 0;
  const engine_sink sink = {sink_word, s};
  int n = world_lanes(lanes);
  for (int i = 0; i < n; i++) handles[i] = lanes[i].z;
  arena_current = ARENA_WORLD;
  engine_database_words(handles, n, &sink);
  arena_current = ARENA_OUTSIDE;
  uint64_t others[WORLD_WORDS];
  size_t count = world_words(others);
  for (size_t i = 0; i < count; i++) add_reference(s, others[i]);
  for (int i = 0; i < n; i++) add_lane(s, &lanes[i]);
  for (int i = 0; i < lab->state_count; i++)
    add_memory(s, lab->states[i].at, lab->states[i].at + lab->states[i].size);
  follow(s);
  return !s->overflow ? survey_hash(s) : 0;
}

/* ---- unreachable blocks ---- */

extern char __data_start[], _end[];

/* A walk over all blocks takes long, and most processes return with the same
 * number of bytes as one that was clean: that is then taken to be so, too. */
static bool *clean_at(zke_lab *lab, size_t bytes) {
  return &lab->clean[bytes / 16 % LAB_CLEAN];
}

/* A block may be kept by anything except its own process's stack and region: by
 * the handles and the store (the laboratory's region), the other stacks, and
 * the static variables. */
size_t state_leaked(zke_lab *lab, int process, size_t *bytes_out) {
  world_lane lanes[ZKE_LAB_MOST];
  size_t count = 0;
  *bytes_out = 0;
  int current = arena_current;
  size_t live = arena_live(current);
  if (live == 0 || *clean_at(lab, live)) return 0;
  survey *s = survey_begin();
  if (s->overflow) return 0;
  s->marks = true;
  int n = world_lanes(lanes);
  for (int i = 0; i < n; i++) {
    if (i != process && lanes[i].lives)
      add_memory(s, lanes[i].from, lanes[i].to);
    if (i != process && lanes[i].lives)
      add_memory(s, lanes[i].thread, lanes[i].thread + lanes[i].thread_size);
  }
  add_memory(s, __data_start, _end);
  for (int i = 0; i < s->block_count; i++) {
    if (arena_region(s->blocks[i].from) != ARENA_WORLD) continue;
    add_memory(s, s->blocks[i].from, s->blocks[i].to);
  }
  follow(s);
  for (int i = 0; i < s->block_count; i++) {
    if (s->numbers[i] || arena_region(s->blocks[i].from) != current) continue;
    count++;
    *bytes_out += (size_t)(s->blocks[i].to - s->blocks[i].from);
  }
  if (count == 0) *clean_at(lab, live) = true;
  return s->overflow ? 0 : count;
}
