/* run.h - what the two sides of a run share */
#ifndef ZKE_MODEL_RUN_H
#define ZKE_MODEL_RUN_H

#include "test/conformance/conformance.h"

/* Steps besides the conformance generator's: what a ZooKeeper server does not
 * have, or does in its own time. */
#define RUN_EXTRA_LIST(X) \
  X(NONE, 0)              \
  X(ADVANCE, 300)         \
  X(RAISE, 100)           \
  X(DISCARD, 150)         \
  X(FORGET, 60)           \
  X(CALL_AT, 60)          \
  X(AFTER, 150)           \
  X(UNTOLD, 200)          \
  X(LOSE, 60)             \
  X(SESSIONS, 60)         \
  X(SESSION, 30)          \
  X(WATCHES, 150)         \
  X(OVERDUE, 60)          \
  X(WATCHER, 30)          \
  X(SET_WATCH, 200)       \
  X(CHECK_WATCH, 60)      \
  X(EPHEMERALS_OF, 60)    \
  X(STATE, 60)            \
  X(DEAD_END, 60)         \
  X(BATCH, 250)           \
  X(USAGE, 60)

#define RUN_EXTRA_ENUM(name, weight) RUN_##name,
typedef enum run_extra { RUN_EXTRA_LIST(RUN_EXTRA_ENUM) RUN_EXTRAS } run_extra;
#undef RUN_EXTRA_ENUM

/* One step: op.kind for RUN_NONE, else the extra; arguments are in op if they
 * fit, and in number. */
typedef struct run_step {
  cf_op op;
  run_extra extra;
  int64_t number;
  bool twice; /* the model does it, is reset, and does it again */
} run_step;

/* The clock of both: wall time, and its lead over the monotonic time. */
typedef struct run_clock {
  int64_t ms, ahead;
} run_clock;

/* One side. */
typedef struct run_side {
  const char *file; /* for zke_open(); NULL: in memory */
  zke *given;       /* a session of the tree to run on; NULL: open a new one */
  cf_store *store;
  zke *anchor;         /* the harness's own session */
  struct model *model; /* NULL: the engine */
} run_side;

extern run_side run_engine, run_model;

void run_begin(run_side *side, run_clock *clock, int64_t container_ms);
void run_end(run_side *side);
/* Let time pass, and remove what is due. */
void run_advance(run_side *side, const run_clock *clock);
void run_call(const run_side *side, cf_zke *z, const run_step *s, cf_reply *r);
int run_batch(cf_zke *z, zke_batch_fn fn, void *context);

/* Make random steps on both sides. true: no difference.  A difference is
 * printed, and shrunk unless the engine's tree is given. run_steps_done and
 * run_events_compared count over all seeds. */
bool run_seed(uint64_t seed, int length);
extern int64_t run_steps_done, run_events_compared;

#endif
