/* doubt.h - for whoever writes a recipe: what a lost reply leaves open
 *
 * A change whose reply is lost (ZKE_CONNECTIONLOSS) was made, or was not, and
 * the caller is told one of three things in the end: it was made, it was not,
 * or nobody can tell any more.  A step says them by ZKE_OK, ZKE_NOT_MADE and
 * ZKE_IN_DOUBT; zke_recipe_do() tries again, and zke_recipe_settle() looks a
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
 * ZKE_IN_DOUBT - it has lost its reply, and the tree does not tell any more
 *                whether it was made.  The sentence says why
 * ZKE_NOT_MADE - it has lost its reply, and a look has found that it has
 *                changed nothing */
enum { ZKE_IN_DOUBT = 3, ZKE_NOT_MADE = 4 };

/* zke_recipe_in_doubt - say why nobody can tell, as zke_fail() is told it;
 * ZKE_IN_DOUBT */
#define zke_recipe_in_doubt(...) \
  (zke_fail(ZKE_CONNECTIONLOSS, __VA_ARGS__), ZKE_IN_DOUBT)

/* zke_recipe_is_lost - has a call lost its reply?  If it was to change
 * something, that may be made */
bool zke_recipe_is_lost(int rc);

/* zke_recipe_is_transient - may the same call succeed if it is made again? */
bool zke_recipe_is_transient(int rc);

/* zke_recipe_is_failure - did a call end without an answer?
 *
 * Memory, time or the disk failed, or the call was cancelled.  Such a code says
 * nothing of the tree.  After a lost reply it leaves open whether the change
 * was made: tell ZKE_CONNECTIONLOSS instead. */
bool zke_recipe_is_failure(int rc);

/* zke_recipe_doubt - what such a failure of the last try comes to
 *
 *   unsure  a try before has lost its reply: then the failure is
 *           ZKE_CONNECTIONLOSS, with its sentence behind that */
int zke_recipe_doubt(int rc, bool unsure);

/* zke_recipe_told - what a recipe's caller is told where the step has ended
 * with rc: ZKE_CONNECTIONLOSS for ZKE_IN_DOUBT, else rc */
int zke_recipe_told(int rc);

#ifdef __cplusplus
}
#endif

#endif
