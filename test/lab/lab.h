/* lab.h - the laboratory's parts, as they know each other
 *
 * Programs use zkembed-lab.h, which is installed; all other headers here are
 * the laboratory's own.
 *
 *   arena    memory that is copied and put back
 *   fiber    stacks; or, in baton.c, threads
 *   keep     what a schedule changes is undone: with the arena, or by fork()
 *   tables   what the engine's statements run on, in place of SQLite
 *   engine   zkembed.c, and what is read of its inside
 *   calls    zkembed.h's functions, which stop before each call
 *   world    processes, faults, clock, mutexes: one step after another
 *   state    when are two worlds equal; what has leaked
 *   search   which step comes next; what was found is made short
 *   outside  processes whose code runs elsewhere
 *   drawing  what happened, drawn
 *   picture  the same of a schedule of the laboratory
 *   lab      zkembed-lab.h's functions
 *
 * struct zke_lab is what lasts: it lies outside of the world, and nothing puts
 * it back.  struct world (world.c) is what a schedule changes. */
#ifndef LAB_H
#define LAB_H

#include <stdbool.h>

#include "arena.h"
#include "drawing.h"
#include "zkembed-lab.h"

enum {
  LAB_NAME = 16,
  LAB_WHY = 512,
  LAB_PATH = 64,
  LAB_STATES = 32,
  LAB_SCHEDULE = 4096, /* steps, and letters */
  LAB_LINE = DRAWING_TEXT,
  LAB_LINES = 8192,
  LAB_SECTIONS = 16,
  LAB_CLEAN = 1 << 14
};

/* A process or thread, as the test has described it. */
typedef struct lab_process {
  char name[LAB_NAME];
  zke_lab_fn fn;
  void *arg;
  int leader; /* the process it is a thread of; itself */
} lab_process;

/* A function that looks at the world while nothing happens. */
typedef struct lab_look {
  zke_lab_fn fn;
  void *arg;
} lab_look;

typedef struct lab_memory {
  const char *at;
  size_t size;
} lab_memory;

/* What some schedule has to reach. */
typedef struct lab_wanted {
  char name[32];
  bool reached;
} lab_wanted;

/* A process that is a party outside. */
typedef struct lab_outside {
  zke_lab_party party;
  void *context;
  bool is_used;
} lab_outside;

struct zke_lab {
  zke_lab_options options;
  lab_process processes[ZKE_LAB_MOST];
  int count;
  lab_outside outside[ZKE_LAB_MOST];
  bool has_outside;
  lab_look setup, always, finally;
  lab_memory states[LAB_STATES];
  int state_count;
  bool merges; /* zke_lab_state() was called */
  lab_wanted wanted[LAB_STATES];
  int wanted_count;
  /* the run */
  bool on_sqlite; /* or on plain tables */
  bool shrinks;
  void *main_sp;
  int doing; /* the process that runs, and its call; -1: none */
  const char *doing_call;
  char doing_path[LAB_PATH];
  uint64_t random;
  uint64_t turns; /* how often a process has gone on */
  char why[LAB_WHY];
  char taken[LAB_SCHEDULE]; /* the letters of this schedule */
  int length;
  uint64_t trace;          /* what was called, and with which results */
  char kept[LAB_SCHEDULE]; /* what of a replay's letters was possible */
  int kept_count;
  int64_t schedules, calls, states_met, doubts, entries;
  char unnamed[LAB_PATH]; /* a static variable that changes and is not named */
  bool asks_zxid; /* somebody has called zke_zxid(), so its result counts */
  bool is_found, exhausted, stale;
  /* of a part that ran in a process of its own (keep_fork.c) */
  bool ended, tried;
  int rc;
  char said[LAB_WHY];
  picture before, first; /* of the whole program; of the world at its start */
  bool clean[LAB_CLEAN]; /* by bytes in use at a return: nothing was left */
  /* the last result */
  char found[2 * LAB_SCHEDULE], found_why[LAB_WHY];
  int no_return; /* steps of a picture's schedule, after which all fails */
  /* lines, where they are wanted */
  drawing_line *lines;
  int line_count;
};

/* How many bytes at the beginning of a text are a GUID?  0: it begins with
 * none.  A party outside may draw one at random, so which one it is does not
 * count. */
size_t outside_guid(const char *text);

/* The one that runs, or NULL. */
extern zke_lab *lab_running;

#endif
