/* lab.h - the laboratory's parts, for each other
 *
 * Programs use zkembed-lab.h, which is installed; all other headers here are
 * private.
 *
 *   arena    memory that is copied and restored
 *   fiber    stacks; or, in baton.c, threads
 *   keep     undoes a schedule's changes: with the arena, or by fork()
 *   tables   run the engine's statements, instead of SQLite
 *   engine   zkembed.c, and readers of its internals
 *   calls    zkembed.h's functions, which stop before each call
 *   world    processes, faults, clock, mutexes: one step after another
 *   state    when two worlds are equal; what has leaked
 *   search   chooses the next step; shortens findings
 *   outside  processes whose code runs elsewhere
 *   drawing  draws what happened
 *   picture  does so for a schedule of the laboratory
 *   lab      zkembed-lab.h's functions
 *
 * struct zke_lab is what lasts: it is outside of the world, and is never
 * restored.  struct world (world.c) is what a schedule changes. */
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

/* A process or thread, as described by the test. */
typedef struct lab_process {
  char name[LAB_NAME];
  zke_lab_fn fn;
  void *arg;
  int leader; /* the process it is a thread of; itself */
} lab_process;

/* A function that looks at the world while nothing else runs. */
typedef struct lab_look {
  zke_lab_fn fn;
  void *arg;
} lab_look;

typedef struct lab_memory {
  const char *at;
  size_t size;
} lab_memory;

/* A place that some schedule must reach. */
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
  bool known;     /* what is run now is a finding, or a part of one */
  bool by_check;  /* and zke_check() has found it */
  void *main_sp;
  int doing; /* the running process, and its call; -1: none */
  const char *doing_call;
  char doing_path[LAB_PATH];
  uint64_t random;
  uint64_t turns; /* how often a process has been continued */
  char why[LAB_WHY];
  char taken[LAB_SCHEDULE]; /* the letters of this schedule */
  int length;
  uint64_t trace;          /* the calls and their results */
  char kept[LAB_SCHEDULE]; /* the possible ones of a replay's letters */
  int kept_count;
  int64_t schedules, calls, states_met, doubts, entries;
  char unnamed[LAB_PATH]; /* a changed static variable that is not named */
  bool asks_zxid;         /* code has called zke_zxid(), so its result counts */
  bool is_found, exhausted, stale;
  /* results from a separate process (keep_fork.c) */
  bool ended, tried;
  int rc;
  char said[LAB_WHY];
  picture before, first; /* of the whole program; of the world at its start */
  bool clean[LAB_CLEAN]; /* indexed by bytes in use at a return: no leak */
  /* the last result */
  char found[2 * LAB_SCHEDULE], found_why[LAB_WHY];
  int no_return; /* steps of a picture's schedule, after which all fails */
  /* lines, if wanted */
  drawing_line *lines;
  int line_count;
};

/* The length of the GUID at the beginning of a text; 0: there is none.  A party
 * outside may draw GUIDs at random, so their values do not count. */
size_t outside_guid(const char *text);

/* The running one, or NULL. */
extern zke_lab *lab_running;

#endif
