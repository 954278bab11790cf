/* limit.h - for whoever writes a recipe: how long a call waits for others
 *
 * zkembed's calls wait for other writers as long as zke_limit() of the thread
 * says.  A recipe's call sets that limit once, when it begins, and all that it
 * calls keeps within it.  Beyond its deadline the call has one grace of
 * ZKE_GRACE_MS to clean up, however much there is to clean up: it begins when
 * it is first asked for.
 *
 *     begin                          deadline        deadline + grace
 *       |--------- work ----------------|--- clean up ---|
 *
 * Without this each step of a cleanup would wait for its own busy timeout, and
 * a call with a deadline of 100 ms could take many seconds.
 *
 * zke_recipe_grace() is for any recipe.  The rest is for the parts, and for the
 * recipes that limit a piece of a call themselves.  All of it is about the
 * calling thread, and touches no file. */
#ifndef ZKEMBED_RECIPES_LIMIT_H
#define ZKEMBED_RECIPES_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_recipe_grace - limit what this thread does next to ZKE_GRACE_MS
 *
 * For giving up after a failure.  A call has one grace, which begins when it is
 * first asked for, here or by zke_recipe_discard().
 *
 * Example: clean up, for which there is time even if the deadline has passed.
 *
 *     int64_t limit = zke_recipe_grace(z);
 *     rc = zke_delete(z, "/half-done", -1);
 *     zke_limit(z, limit);
 *
 * Returns the limit before, to be given back to zke_limit(). */
int64_t zke_recipe_grace(zke *z);

enum { ZKE_RECIPE_PAUSE_MS = 5 /* before the first new try */ };

/* zke_recipe_pause - sleep before a try that follows failed ones
 *
 *   failed  so many; each pause is longer than the one before
 *   end_ms  of zke_now(): no pause goes beyond it
 *
 * Returns false if there is to be no more try, or no time for it. */
bool zke_recipe_pause(zke *z, int failed, int64_t end_ms);

/* zke_recipe_later - the later of two times */
int64_t zke_recipe_later(int64_t a, int64_t b);

/* zke_recipe_limit - limit this thread's calls to a deadline
 *
 * As far as they have no earlier limit already; a deadline that has passed
 * leaves some time all the same.  0 is none.  Returns the limit before, to be
 * given back to zke_limit(). */
int64_t zke_recipe_limit(zke *z, int64_t deadline_ms);

/* zke_recipe_patience - the limit of a call that was not given one: what it may
 * wait for others as a whole */
int64_t zke_recipe_patience(zke *z);

/* zke_recipe_allow - have some time for cleaning up, though the deadline may
 * have passed: once for all that a call cleans up
 *
 * Returns the limit before, to be given back to zke_limit(). */
int64_t zke_recipe_allow(zke *z);

/* zke_recipe_grace_swap - begin or end the span that has one grace
 *
 * ZKE_GRACE_NEW begins a call whose grace nobody has asked for, ZKE_GRACE_NONE
 * says that the thread is in no call.  Returns what to swap back at the end. */
enum { ZKE_GRACE_NONE = -1, ZKE_GRACE_NEW = 0 };
int64_t zke_recipe_grace_swap(int64_t end);

#ifdef __cplusplus
}
#endif

#endif
