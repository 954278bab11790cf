/* recipe_history.h - what recipes did under torture, and checks of it
 *
 * Every process appends records to one file, each with one write(), so a death
 * loses at most the last one.  Records lie inside of what they report: TAKEN
 * comes after the call that acquired, LEAVING before the call that releases,
 * DYING before the signal.  So if two recorded intervals overlap, two holders
 * did.
 *
 * The checks depend on the history alone; test_recipes.c gives each of them
 * histories with planted mistakes.
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
  HISTORY_GAVE_UP, /* asked, not granted */
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
  HISTORY_FAILED,    /* number: a result code that is not allowed */
  HISTORY_STOPPED,   /* before SIGSTOP */
  HISTORY_CONTINUED, /* after SIGCONT */
  HISTORY_DYING      /* before SIGKILL */
} history_event;

typedef struct history_record {
  int64_t when;   /* monotonic, ns */
  int64_t number; /* see above */
  int32_t who;    /* number of the process; never reused */
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

/* Read a file of records, sorted by time.  False if there is none. */
bool history_read(const char *path, history *out);
void history_add(history *h, history_record r); /* at the end */
void history_free(history *h);

/* What a check is about, and its finding. */
typedef struct history_case {
  const history *h;
  int recipe, resource;
  char problem[300]; /* "": none */
} history_case;

/* Each returns true if the history is right. */

/* Never more than `capacity` is taken.  If a holder takes after another has
 * left, and one of the two held alone, the later has a higher fencing value. */
bool history_exclusive(history_case *c, int64_t capacity);

/* While a process waits that is neither dead nor stopped, what was given up is
 * taken within this time (ns).  Time in which any process was stopped does not
 * count. */
bool history_progress(history_case *c, int64_t limit);

/* No item was got twice (acks: acknowledged twice), and none was lost: each
 * item that was put is left or was got, unless a process died after getting it
 * and before its record. */
bool history_queue(history_case *c, bool acks);

/* When the first party of a generation passed, `parties` had come and not
 * left. */
bool history_barrier(history_case *c, int parties);

/* A transaction has one outcome, and commits only after `sites` votes to
 * commit. */
bool history_decisions(history_case *c, int sites);

/* No call failed with a code that is not allowed. */
bool history_no_failure(history_case *c);

#endif
