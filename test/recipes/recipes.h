/* recipes.h - what the tests of the recipes share
 *
 * Each recipe has to survive three things, whatever it does: its process dies
 * anywhere, a reply gets lost, a step fails.  A test describes one typical use
 * and hands it to the three functions below, which repeat it once for every
 * place where it can go wrong:
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
 * - It works on the session it is given and may open further ones on the same
 *   store.  It frees all that it made, whatever failed: when it returns, its
 *   session owns as many ephemerals as before.
 * - It needs nobody else to go on.  It blocks with deadlines of a second or
 *   so, or of recipe_patience_ms, and asserts nothing: where it runs there may
 *   be no Check.
 * - It is the same each time, give or take the order of threads.
 *
 * and of a check: the session of the use has ended, by its death or by
 * zke_close(); the session it is given is another, which was open all along.
 * It asserts what must be true now; what takes a moment it waits for.
 *
 * Every round begins with an empty tree and ends with zke_check().  A death has
 * a database of its own; the rounds of the other loops share one, and as a rule
 * the other session too.  It lies in memory if the system has such a file
 * system.  A round that takes more than RECIPE_ROUND_S seconds says where it
 * stands and ends the test.
 *
 *   RECIPE_SAY=1   print each round before it begins: the last one failed
 *   RECIPE_ONLY=n  only the n-th place of each loop
 *   RECIPE_ROUND=n seconds for a round, instead of RECIPE_ROUND_S
 *   FAULT_MOST=n   most places of a loop of recipe_faults(); more are thinned
 *                  out evenly; 0: all
 *   FULL=1         of the places of deaths and faults all are tried; without it
 *                  each sixth of them
 */
#ifndef ZKE_TEST_RECIPES_H
#define ZKE_TEST_RECIPES_H

#include <stdlib.h>

#include "recipes/part/znode.h"
#include "test/test.h"

enum { RECIPE_ROUND_S = 20 };

/* The name of an entry in a line begins with "_c_" and a guid: so many bytes
 * before "-lock-0000000000". */
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

/* Does a use in a process of its own, which kills itself with SIGKILL at the
 * first, second, third ... system call of the library, until use() and the
 * zke_close() after it got through.  All calls of the table zke_os count but
 * those that only ask for time, chance and names.  SQLite's own calls are not
 * among them, but each transaction that changes something lies between two
 * that are (the queue of writers is a lock): so a death comes between any two
 * changes and, since they are atomic, that is all there is to see.
 *
 * Returns the last place at which it died.  Each sixth is tried
 * (test_stride()). */
int recipe_deaths(const recipe_use *u);

/* Does a use again and again, and its first, second, third ... change loses
 * its reply, once before and once after it took effect (zke_test_fail), until
 * there is no further change.  It must succeed all the same, and leave neither
 * ephemerals nor watches. */
void recipe_lost_replies(const recipe_use *u);

/* Does a use again and again, and its first, second, third ... allocation or
 * system call fails, alone or with all that follow.  It must end, either well
 * or with a code and a sentence; no block and no descriptor is left when its
 * session is closed; and where only one step failed no ephemeral is left even
 * before that.
 *
 * Also another session ends the use's (zke_expire) when it looks at the clock
 * for the first, second, third ... time, which each call does.  The use must
 * end, and say so by a code for it: ZKE_INVALIDSTATE, ZKE_SESSIONEXPIRED (of
 * the engine), ZKE_LOST, or ZKE_OPERATIONTIMEOUT, as the clock then leaps. */
void recipe_faults(const recipe_use *u);

/* How long a use may wait for others: five seconds, but a tenth of one where a
 * fault can make it wait in vain. */
extern int recipe_patience_ms;

/* The tests of an array of uses, which prove for each of them:
 *
 * - A process that is killed at any change keeps nobody out: others go on (P6).
 *   There are more than `deaths` such places.
 * - A reply that is lost, before its change or after it, is made good (P2).
 * - A step that fails, or a session that ends, at any place gives a code and a
 *   sentence, and leaves neither memory nor descriptors nor znodes (P11).
 *
 *   most   places of a loop of faults, where FAULT_MOST does not say; 0: 200 */
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
