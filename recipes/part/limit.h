/* limit.h - for recipe authors: how long a call waits for others
 *
 * zkembed's calls wait for other writers up to the thread's zke_limit().  A
 * recipe's call sets that limit once, when it begins, and all calls inside keep
 * within it.  After its deadline the call has one grace of ZKE_GRACE_MS to
 * clean up, however much there is to clean up.  The grace begins when it is
 * first asked for.
 *
 *     begin                          deadline        deadline + grace
 *       |--------- work ----------------|--- clean up ---|
 *
 * Without this each step of a cleanup would wait for its own busy timeout, and
 * a call with a deadline of 100 ms could take many seconds.
 *
 * zke_recipe_grace() is for any recipe.  The rest is for the parts, and for
 * recipes that limit part of a call themselves.  All functions concern the
 * calling thread only, and touch no file. */
#ifndef ZKEMBED_RECIPES_LIMIT_H
#define ZKEMBED_RECIPES_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_recipe_grace - give this thread's next calls at most ZKE_GRACE_MS
 *
 * For giving up after a failure.  A call has one grace; it begins when it is
 * first asked for, here or by zke_recipe_discard().
 *
 * Example: clean up; there is time even if the deadline has passed.
 *
 *     int64_t limit = zke_recipe_grace(z);
 *     rc = zke_delete(z, "/half-done", -1);
 *     zke_limit(z, limit);
 *
 * Returns the previous limit, to be given back to zke_limit(). */
int64_t zke_recipe_grace(zke *z);

enum { ZKE_RECIPE_PAUSE_MS = 5 /* before the first new try */ };

/* zke_recipe_pause - sleep before a try that follows failed ones
 *
 *   failed  how many have failed; each pause is longer than the one before
 *   end_ms  of zke_now(): no pause goes beyond it
 *
 * Returns false if no more tries are due, or there is no time for one. */
bool zke_recipe_pause(zke *z, int failed, int64_t end_ms);

/* zke_recipe_later - the later of two times */
int64_t zke_recipe_later(int64_t a, int64_t b);

/* zke_recipe_limit - limit this thread's calls to a deadline
 *
 * An earlier limit stays in force.  A deadline that has passed leaves some time
 * all the same.  0 means no deadline.  Returns the previous limit, to be given
 * back to zke_limit(). */
int64_t zke_recipe_limit(zke *z, int64_t deadline_ms);

/* zke_recipe_patience - the limit of a call that was not given one: how long it
 * may wait for others in total */
int64_t zke_recipe_patience(zke *z);

/* zke_recipe_allow - allow some time for cleaning up, though the deadline may
 * have passed: once for the whole clean-up of a call
 *
 * Returns the previous limit, to be given back to zke_limit(). */
int64_t zke_recipe_allow(zke *z);

/* zke_recipe_grace_swap - begin or end the span that has one grace
 *
 * ZKE_GRACE_NEW begins a call that has not asked for its grace yet.
 * ZKE_GRACE_NONE says that the thread is in no call.  Returns the value to swap
 * back at the end. */
enum { ZKE_GRACE_NONE = -1, ZKE_GRACE_NEW = 0 };
int64_t zke_recipe_grace_swap(int64_t end);

#ifdef __cplusplus
}
#endif

#endif
