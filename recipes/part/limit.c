/* limit.c - how long a call waits for others
 *
 * This file knows the thread's limit, zke_limit(), and a call's one grace for
 * cleaning up.  It promises the callers of recipes: after its deadline a
 * call takes at most ZKE_GRACE_MS to begin, and as long again to clean up,
 * however much there is, plus disk time.
 *
 * Invariant: a function that sets the limit, or swaps the grace, restores the
 * old value on every way out; so calls nest, and a listener's calls have their
 * own limits.  Begin with zke_recipe_limit(). */
#include "limit.h"

#include "../support.h" /* ZKE_GRACE_MS, ZKE_RETRIES */
#include "text.h"

bool zke_recipe_pause(zke *z, int failed, int64_t end_ms) {
  if (failed > ZKE_RETRIES) return false;
  int64_t next = zke_now(z) + failed * ZKE_RECIPE_PAUSE_MS;
  if (end_ms <= next) return false;
  zke_sleep(z, next);
  return true;
}

/* The time in so many ms; ZKE_FOREVER if that never comes. */
static int64_t limit_after(zke *z, int64_t ms) {
  int64_t now = zke_now(z);
  return ms < ZKE_FOREVER - now ? now + ms : ZKE_FOREVER;
}

/* Times are of zke_now(), so they compare as numbers. */
int64_t zke_recipe_later(int64_t a, int64_t b) { return a > b ? a : b; }

/* A limit only becomes earlier here: a call that is part of another one keeps
 * to that one's limit.  A deadline that has passed still leaves the grace;
 * otherwise the call could not even take back what it has made. */
int64_t zke_recipe_limit(zke *z, int64_t deadline_ms) {
  int64_t was = zke_limit(z, ZKE_FOREVER), until = was;
  if (deadline_ms > 0) {
    int64_t end = zke_recipe_later(deadline_ms, limit_after(z, ZKE_GRACE_MS));
    until = end < was ? end : was;
  }
  zke_limit(z, until);
  return was;
}

/* The default limit of a call: how long it may wait for others in total. */
int64_t zke_recipe_patience(zke *z) {
  return limit_after(z, zke_recipe_later(zke_busy_timeout(z), ZKE_GRACE_MS));
}

/* The end of the grace that this thread's call has after its deadline, for the
 * whole clean-up: ms; 0: not asked for yet; -1: it is in no call. */
static _Thread_local int64_t limit_grace_end = ZKE_GRACE_NONE;

/* Begin a call's own grace, or restore the one before. */
int64_t zke_recipe_grace_swap(int64_t end) {
  int64_t was = limit_grace_end;
  limit_grace_end = end;
  return was;
}

/* The end of the call's grace; it begins now unless it was asked for before.
 * Outside of a call, each request gets a new grace. */
static int64_t limit_grace(zke *z) {
  if (limit_grace_end > 0) return limit_grace_end;
  int64_t end = limit_after(z, ZKE_GRACE_MS);
  if (limit_grace_end == ZKE_GRACE_NEW) limit_grace_end = end;
  return end;
}

/* Three cases.  If the thread has no limit, cleaning up may take as long as any
 * call.  If the limit leaves more than a grace, nothing changes.  Otherwise the
 * grace extends it. */
int64_t zke_recipe_allow(zke *z) {
  int64_t was = zke_limit(z, ZKE_FOREVER);
  int64_t until = was;
  if (was == ZKE_FOREVER)
    until = zke_recipe_patience(z);
  else if (was < limit_after(z, ZKE_GRACE_MS))
    until = zke_recipe_later(was, limit_grace(z));
  zke_limit(z, until);
  return was;
}

/* The limit becomes the end of the grace, even if it was later before: giving
 * up must not take longer than that. */
int64_t zke_recipe_grace(zke *z) { return zke_limit(z, limit_grace(z)); }
