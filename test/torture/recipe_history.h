/* recipe_history.h - what recipes did under torture, and whether they may
 *
 * Every process appends records to one file, each with one write(), so that
 * a death loses at most the last.  A record is made inside of what it tells:
 * TAKEN after the call that acquired, LEAVING before the call that releases,
 * DYING before the signal.  What two intervals of records share, two holders
 * shared.
 *
 * The checks are functions of the history alone; test_recipes.c shows each of
 * them histories with planted mistakes.
 */
#ifndef ZKE_TEST_RECIPE_HISTORY_H
#define ZKE_TEST_RECIPE_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

typedef enum history_event {
  /* locks, semaphores, elections */
  HISTORY_WANTED,  /* before asking */
  HISTORY_TAKEN,   /* number: the fencing value; weight: the share taken */
  HISTORY_LEAVING, /* before giving up */
  HISTORY_GAVE_UP, /* asked in vain: a timeout */
  /* queues; number: the item */
  HISTORY_PUTTING, /* before, and … */
  HISTORY_PUT,     /* … after it was put */
  HISTORY_GOT,     /* taken, or claimed */
  HISTORY_ACKING,  /* before, and … */
  HISTORY_ACKED,   /* … after it was acknowledged */
  HISTORY_LEFT,    /* still there at the end */
  /* barriers; number: the generation */
  HISTORY_ENTERING,
  HISTORY_PASSED,
  /* two-phase commit; number: the transaction, weight: 1 commit, 0 abort */
  HISTORY_VOTING, /* before the vote */
  HISTORY_DECIDED,
  /* all */
  HISTORY_FAILED,    /* number: a result code that must not be */
  HISTORY_STOPPED,   /* before SIGSTOP */
  HISTORY_CONTINUED, /* after SIGCONT */
  HISTORY_DYING      /* before SIGKILL */
} history_event;

typedef struct history_record {
  int64_t when;   /* monotonic, ns */
  int64_t number; /* see above */
  int32_t who;    /* each process has its own, never used again */
  int16_t recipe, resource;
  int32_t weight;
  int32_t event;
} history_record;

typedef struct history {
  history_record *at;
  int count, cap;
} history;

int64_t history_now(void);

/* Append one record to a file opened with O_APPEND. */
void history_write(int fd, history_record r);

/* Read a file of records, by time.  False without it. */
bool history_read(const char *path, history *out);
void history_add(history *h, history_record r); /* at the end */
void history_free(history *h);

/* What a check is about, and what it found. */
typedef struct history_case {
  const history *h;
  int recipe, resource;
  char problem[300]; /* "": none */
} history_case;

/* Each returns true where the history is as it must be. */

/* At no time more than capacity is taken; who takes after another has left,
 * and one of them alone, has a higher fencing value. */
bool history_exclusive(history_case *c, int64_t capacity);

/* While somebody waits who is neither dead nor stopped, what was given up is
 * taken within a time (ns), that not counted in which any process stood
 * still. */
bool history_progress(history_case *c, int64_t limit);

/* No item was got twice (acks: acknowledged twice), and none was lost: what was
 * put is left or was got, where nobody died between getting and saying so. */
bool history_queue(history_case *c, bool acks);

/* When the first of a generation passed, `parties` had come and not gone. */
bool history_barrier(history_case *c, int parties);

/* A transaction has one outcome, and commits only after `sites` have voted to
 * commit. */
bool history_decisions(history_case *c, int sites);

/* No call failed as it must not. */
bool history_no_failure(history_case *c);

#endif
