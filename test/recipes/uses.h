/* uses.h - every recipe, used by two or three processes at once
 *
 * One table for two drivers.  The laboratory (test/lab/test_lab_recipes.c)
 * tries every order of the calls of a use; the simulated host
 * (test/sim/rounds.c) runs it in processes with a kernel and a disk below them.
 * Both have the functions zke_lab_...() of zkembed-lab.h, by which a use says
 * what must hold.
 *
 * The processes of a use are on one machine, and each calls its function once,
 * on a session of its own whose tree is empty but for what `setup` has made.
 * They know of each other by static variables, which the driver puts back
 * before each run (uses_shared()).  A use frees what it made, and does not
 * close its session.
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
  bool one_ends; /* and one process at most does so, by a death */
  bool timeouts; /* a deadline is what it waits for */
  bool thread;   /* the second is a thread of the first */
  bool wall;     /* it goes by the wall clock */
  int wakes;     /* for nothing, that are allowed */
  const char *reaches; /* what some schedule has to reach */
  zke_lab_fn setup, finally;
} use;

extern const use uses[];
extern const int uses_count;

/* What the processes know of each other; zeros when they begin. */
void *uses_shared(size_t *size_out);

/* Of the driver: may a call on this session fail so?  What depends on it does
 * not come then. */
bool use_may_fail(zke *z, int rc);

#endif
