/* doubt.c - what a lost reply leaves open
 *
 * Only this file of the recipes knows which code means that a reply was lost.
 * It promises that a doubt is never reported as "not made", and "not made"
 * never as a doubt: only a look at the tree settles it. */
#include "doubt.h"

bool zke_recipe_is_lost(int rc) { return rc == ZKE_CONNECTIONLOSS; }

/* A lost reply, and a wait for other processes that took too long: both may be
 * over at the next try. */
bool zke_recipe_is_transient(int rc) {
  return rc == ZKE_CONNECTIONLOSS || rc == ZKE_OPERATIONTIMEOUT;
}

bool zke_recipe_is_failure(int rc) {
  return zke_recipe_is_transient(rc) || rc == ZKE_NOMEM ||
         rc == ZKE_SYSTEMERROR || rc == ZKE_CORRUPT || rc == ZKE_FULL ||
         rc == ZKE_CANCELLED;
}

/* The last of several tries has failed without an answer, and has changed
 * nothing; but an earlier one has lost its reply, and may have. */
int zke_recipe_doubt(int rc, bool unsure) {
  zke_sentence kept;
  if (!unsure || rc == ZKE_CONNECTIONLOSS || !zke_recipe_is_failure(rc))
    return rc;
  zke_recipe_keep(&kept);
  return zke_recipe_fail(ZKE_CONNECTIONLOSS, "a reply was lost, and then: %s",
                         kept.text);
}

int zke_recipe_told(int rc) {
  return rc == ZKE_IN_DOUBT ? ZKE_CONNECTIONLOSS : rc;
}
