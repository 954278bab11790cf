/* phase_list.h - for recipe authors: looking at transactions of a two-phase
 * commit from outside.  See phase_step.h */
#ifndef ZKEMBED_RECIPES_PHASE_LIST_H
#define ZKEMBED_RECIPES_PHASE_LIST_H

#include "phase_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_phase_status - a transaction at one moment
 *
 *   tx          its path
 *   status_out  out: one block; untouched on failure
 *
 * Returns ZKE_OK, ZKE_NOMEM, or as zke_phase_view_read(). */
int zke_phase_status(zke *z, const char *tx, zke_two_phase_status **status_out);

/* zke_phase_pending - keep the transactions that a site has not acknowledged
 *
 * Removes transactions that all sites have acknowledged.  Takes no longer than
 * any call of the handle may.
 *
 *   base   directory of the transactions
 *   site   its name; NULL: keep all transactions
 *   names  in: the children of base.  out: the transactions that are kept,
 *          sorted
 *
 * Returns ZKE_OK, ZKE_NOMEM, or as zke_recipe_do(); children that are not
 * transactions are left out. */
int zke_phase_pending(zke *z, const char *base, const char *site,
                      zke_strings *names);

#ifdef __cplusplus
}
#endif

#endif
