/* doubt.h - for recipe authors: what a lost reply leaves open
 *
 * If a change loses its reply (ZKE_CONNECTIONLOSS), it was made or was not.  In
 * the end the caller is told one of three things: it was made, it was not made,
 * or it can no longer be known.  A step says these by ZKE_OK, ZKE_NOT_MADE and
 * ZKE_IN_DOUBT.  zke_recipe_do() tries again, and zke_recipe_settle() looks one
 * last time (object.h).
 *
 * All functions may be called on any thread, and none touches a file. */
#ifndef ZKEMBED_RECIPES_DOUBT_H
#define ZKEMBED_RECIPES_DOUBT_H

#include <stdbool.h>

#include "text.h"
#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a step inside a recipe returns besides the codes of object.h.
 *
 * ZKE_IN_DOUBT - it has lost its reply, and the tree no longer tells whether it
 *                was made.  The sentence says why
 * ZKE_NOT_MADE - it has lost its reply, and a look has found that nothing was
 *                changed */
enum { ZKE_IN_DOUBT = 3, ZKE_NOT_MADE = 4 };

/* zke_recipe_in_doubt - say why it cannot be known; takes the arguments of
 * zke_fail() after its code; ZKE_IN_DOUBT */
#define zke_recipe_in_doubt(...) \
  (zke_fail(ZKE_CONNECTIONLOSS, __VA_ARGS__), ZKE_IN_DOUBT)

/* zke_recipe_is_lost - has a call lost its reply?  If it was a change, it may
 * have been made */
bool zke_recipe_is_lost(int rc);

/* zke_recipe_is_transient - may the same call succeed if it is made again? */
bool zke_recipe_is_transient(int rc);

/* zke_recipe_is_failure - did a call end without an answer?
 *
 * Memory, time or the disk failed, or the call was cancelled.  Such a code says
 * nothing about the tree.  After a lost reply it leaves open whether the change
 * was made: report ZKE_CONNECTIONLOSS instead. */
bool zke_recipe_is_failure(int rc);

/* zke_recipe_doubt - the code to report when the last try failed like that
 *
 *   unsure  an earlier try has lost its reply: then the code is
 *           ZKE_CONNECTIONLOSS, and its sentence ends with this failure's */
int zke_recipe_doubt(int rc, bool unsure);

/* zke_recipe_told - the code for a recipe's caller if the step ended with rc:
 * ZKE_CONNECTIONLOSS for ZKE_IN_DOUBT, else rc */
int zke_recipe_told(int rc);

#ifdef __cplusplus
}
#endif

#endif
