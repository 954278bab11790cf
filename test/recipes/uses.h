/* uses.h - every recipe, used by two or three processes at once
 *
 * One table for two drivers.  The laboratory (test/lab/test_lab_recipes.c)
 * tries every order of the calls of a use.  The simulated host
 * (test/sim/rounds.c) runs it in processes, with a simulated kernel and disk.
 * Both provide the functions zke_lab_...() of zkembed-lab.h, by which a use
 * says what must hold.
 *
 * The processes of a use are on one machine.  Each calls its function once, on
 * its own session, whose tree is empty except for what `setup` made.  They
 * share static variables, which the driver resets before each run
 * (uses_shared()).  A use frees what it made, and does not close its session.
 */
#ifndef ZKE_TEST_USES_H
#define ZKE_TEST_USES_H

#include <stdbool.h>
#include <stddef.h>

#include "test/lab/zkembed-lab.h"

enum { USE_PARTIES = 3 };

typedef struct use_party {
  zke_lab_fn fn; /* NULL: there is none */
  const char *arg;
} use_party;

typedef struct use {
  const char *name;
  use_party parties[USE_PARTIES];
  bool waits;    /* the others miss a process that dies or loses its session,
                    until it calls zke_lab_spare() */
  bool one_ends; /* and at most one process does so, by a death */
  bool timeouts; /* it waits for a deadline */
  bool thread;   /* the second is a thread of the first */
  bool wall;     /* it goes by the wall clock */
  int wakes;     /* needless ones that are allowed */
  const char *reaches; /* must be reached by some schedule */
  zke_lab_fn setup, finally;
} use;

extern const use uses[];
extern const int uses_count;

/* What the processes share; zeroed before they begin. */
void *uses_shared(size_t *size_out);

/* Provided by the driver: may a call on this session fail like this?  Then
 * whatever depends on the call does not happen. */
bool use_may_fail(zke *z, int rc);

#endif
