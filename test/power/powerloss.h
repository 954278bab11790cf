/* powerloss.h - the power cut while zkembed works, over and over
 *
 * powerloss_run() has one process with several sessions on several connections
 * do a random mixture of operations on a disk that forgets (powervfs.h).
 * Before every n-th write, sync and change of a name it lets the power fail: a
 * forked child, which has all that this process knows, makes what could be on
 * the disk, opens it under a new boot id and looks what became of the history.
 * Some of those children let it fail once more, during the recovery or soon
 * after.
 */
#ifndef ZKE_POWERLOSS_H
#define ZKE_POWERLOSS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct powerloss_plan {
  const char *name; /* for reports */
  uint64_t seed;
  int operations;  /* of the mixture */
  int every;       /* a cut before each n-th event; 0: no cut */
  int images;      /* looked at for each cut, of different styles */
  int durability;  /* ZKE_DURABLE_… */
  int cache_kib;   /* small: transactions spill into the log; 0: default */
  long only_cut;   /* to replay: this event and no other, or 0 */
  const char *lie; /* syncs of this file have no effect after its creation;
                      ".": those of the directory never have */
  bool same_boot;  /* the boot id survives the cut, and the liveness file with
                      an old zxid, which is not true */
  bool quiet;      /* violations are what is wanted: only count them */
} powerloss_plan;

/* What went wrong, most of it seen after a cut. */
typedef enum powerloss_kind {
  POWERLOSS_LOST,     /* an acknowledged persistent change is missing */
  POWERLOSS_DISORDER, /* what is there was never the state */
  POWERLOSS_REISSUE,  /* a zxid, session id or number is given out again */
  POWERLOSS_UNSOUND,  /* does not open, zke_check(), remains of sessions */
  POWERLOSS_EARLY,    /* acknowledged or seen before it was synced */
  POWERLOSS_DIED,     /* the child that looked crashed or hung */
  POWERLOSS_MODEL,    /* an operation did what this test did not expect */
  POWERLOSS_KINDS
} powerloss_kind;

/* Sums over all runs of this process and its children. */
typedef struct powerloss_tally {
  long operations;                  /* of the mixture */
  long durable;                     /* of them acknowledged as durable */
  long events;                      /* at which the power could have failed */
  long cuts;                        /* points at which it did */
  long images;                      /* disks looked at */
  long second;                      /* of them after a second cut */
  long kept, lost, torn, reordered; /* changes not synced, in images */
  long looks;                       /* of the reader that watches commits */
  long swept;                       /* containers and TTL nodes that went */
  long violations[POWERLOSS_KINDS];
} powerloss_tally;

/* Run, and return the sums so far.  Violations are printed, each with what
 * replays it.  `directory` must exist; what is made there is removed. */
const powerloss_tally *powerloss_run(const char *directory,
                                     const powerloss_plan *plan);

/* All violations of all kinds. */
long powerloss_violations(const powerloss_tally *tally);

void powerloss_print(const powerloss_tally *tally);

#endif
