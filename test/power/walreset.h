/* walreset.h - the tests of SQLite's WAL-reset bug, part of test_power.c */
#ifndef ZKE_WALRESET_H
#define ZKE_WALRESET_H

#include <check.h>

/* The role of the processes that walreset.c starts from its own program:
 * PROGRAM --writer DATABASE NUMBER COMMITS SEED.  Returns the exit status. */
int walreset_writer(int argc, char **argv);

#endif
