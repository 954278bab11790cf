/* recipes.h - what the tests of the recipes share
 *
 * Each recipe must survive three things at any place: its process dies, a reply
 * is lost, a step fails.  A test describes one typical use and passes it to the
 * three functions below.  They repeat it once for each place where it can go
 * wrong:
 *
 *     static void prepare(zke *z) { ... }
 *     static int use(zke *z) {
 *       zke_lock *l;
 *       int rc = zke_lock_new(z, "/lock", NULL, &l);
 *       if (rc == ZKE_OK) rc = zke_lock_acquire(l, zke_now(z) + 1000, NULL);
 *       if (rc == ZKE_OK) rc = zke_lock_release(l);
 *       zke_lock_free(l);
 *       return rc;
 *     }
 *     static void check(zke *z, int rc) { ...another gets the lock... }
 *     static const recipe_use uses[] = {{"lock", prepare, use, check}};
 *
 *     RECIPE_TESTS(uses, 20, 0);
 *
 * The rules of a use:
 *
 * - It works on the session it is given and may open more sessions on the same
 *   store.  It frees everything that it made, whatever failed: when it returns,
 *   its session has as many ephemerals as before.
 * - It does not depend on other processes.  It blocks with deadlines of about a
 *   second, or of recipe_patience_ms.  It asserts nothing: in a child process
 *   there may be no Check.
 * - It does the same each time, except for the order of threads.
 *
 * When a check runs, the session of the use has ended, by its death or by
 * zke_close().  The check gets another session, which was open all the time.
 * It asserts what must be true now, and waits for what takes a moment.
 *
 * Every round begins with an empty tree and ends with zke_check().  Each death
 * has its own database, in memory if the system has such a file system.  The
 * rounds of the other loops share one database, and usually the other session
 * too.  If a round takes more than RECIPE_ROUND_S seconds, it prints its place
 * and ends the test.
 *
 *   RECIPE_SAY=1   print each round before it begins: the last one failed
 *   RECIPE_ONLY=n  only the n-th place of each loop
 *   RECIPE_ROUND=n seconds for a round, instead of RECIPE_ROUND_S
 *   FAULT_MOST=n   most places of a loop of recipe_faults(); more are thinned
 *                  out evenly; 0: all
 *   FULL=1         try all places of deaths and faults; without it, every sixth
 */
#ifndef ZKE_TEST_RECIPES_H
#define ZKE_TEST_RECIPES_H

#include <stdlib.h>

#include "recipes/part/znode.h"
#include "test/test.h"

enum { RECIPE_ROUND_S = 20 };

/* The name of an entry in a line begins with "_c_" and a guid: this many bytes
 * come before "-lock-0000000000". */
enum { ENTRY_HEAD = sizeof "_c_" - 1 + ZKE_RECIPE_GUID - 1 };

typedef struct recipe_use {
  const char *name;
  /* the other session; before each round; may be NULL */
  void (*prepare)(zke *z);
  /* what is done; 0: all went well, else a ZKE_ code */
  int (*use)(zke *z);
  /* the other session, afterwards; rc: use's code, 1: it was killed */
  void (*check)(zke *z, int rc);
} recipe_use;

/* Runs a use in its own process, which kills itself with SIGKILL at the first,
 * second, third ... system call of the library, until use() and its zke_close()
 * succeed.  All calls of the table zke_os count except those that only get the
 * time, random numbers or names.  SQLite's own calls do not count.  But each
 * transaction that changes something lies between two counted calls (the queue
 * of writers is a lock).  So a death comes between any two changes; changes are
 * atomic, so there are no other cases.
 *
 * Returns the last place at which it died.  Every sixth place is tried
 * (test_stride()). */
int recipe_deaths(const recipe_use *u);

/* Repeats a use.  Its first, second, third ... change loses its reply, before
 * and after it takes effect (zke_test_fail), until there is no further change.
 * The use must succeed all the same, and leave no ephemerals and no watches. */
void recipe_lost_replies(const recipe_use *u);

/* Repeats a use.  Its first, second, third ... allocation or system call fails,
 * alone or with all later ones.  The use must end, either well or with a code
 * and a sentence.  No block and no descriptor may be left when its session is
 * closed; and if only one step failed, no ephemeral may be left even before
 * that.
 *
 * Then another session ends the use's session (zke_expire) at its first,
 * second, third ... reading of the clock; each call reads it.  The use must end
 * with a code that says so: ZKE_INVALIDSTATE, ZKE_SESSIONEXPIRED (of the
 * engine), ZKE_LOST, or ZKE_OPERATIONTIMEOUT, because the clock also leaps. */
void recipe_faults(const recipe_use *u);

/* How long a use may wait for others: five seconds, but 0.1 s if a fault can
 * make it wait in vain. */
extern int recipe_patience_ms;

/* The tests of an array of uses.  They prove for each use:
 *
 * - A process that is killed at any change does not block others (P6).  There
 *   are more than `deaths` such places.
 * - The use recovers from a reply lost before or after its change (P2).
 * - A failed step or an ended session at any place gives a code and a sentence,
 *   and leaves no memory, descriptors or znodes (P11).
 *
 *   most   places of a loop of faults, unless FAULT_MOST is set; 0: 200 */
#define RECIPE_TESTS(uses, deaths, most)                           \
  enum { recipe_uses_ = sizeof(uses) / sizeof *(uses) };           \
  TEST_LOOP(a_death_anywhere_lets_others_go_on, 0, recipe_uses_) { \
    ck_assert_int_gt(recipe_deaths(&(uses)[_i]), deaths);          \
  }                                                                \
  TEST_LOOP(a_lost_reply_is_made_good, 0, recipe_uses_) {          \
    recipe_lost_replies(&(uses)[_i]);                              \
  }                                                                \
  TEST_LOOP(a_fault_leaves_nothing_behind, 0, recipe_uses_) {      \
    if (most) setenv("FAULT_MOST", #most, 0);                      \
    recipe_faults(&(uses)[_i]);                                    \
  }                                                                \
  struct recipe_use

#endif
