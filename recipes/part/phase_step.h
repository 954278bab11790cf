/* phase_step.h - for recipe authors: one step of a two-phase commit
 *
 * two_phase.c is the two-phase commit that programs use.  It stands on four
 * files; each calls only those before it in this list:
 *
 *   phase_step.c  one step: operations on the children of a transaction, then
 *                 the caller's, in one multi (T6 and T7)
 *   phase_tree.c  reading all znodes of a transaction as of one moment, and
 *                 removing it (T2 and T4)
 *   phase_look.c  what a participant watches, and how it decides (T1, T2, T5
 *                 and T8)
 *   phase_list.c  looking from outside: one transaction, and all pending ones
 *
 * The head of two_phase.c has the invariants T1 to T8, two_phase.h the layout
 * of the znodes.
 *
 * Example: raise the version of the id, if the coordinator exists.
 *
 *     zke_phase_steps s;
 *     zke_steps_begin(&s, z, tx, 2);
 *     zke_steps_check(&s, "coordinator", "", -1);
 *     zke_steps_set(&s, "id-", id, "", -1);
 *     rc = zke_steps_do(&s);
 */
#ifndef ZKEMBED_RECIPES_PHASE_STEP_H
#define ZKEMBED_RECIPES_PHASE_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "../two_phase.h"
#include "znode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_phase_path - "tx/<prefix><name>", in one block; NULL without memory */
char *zke_phase_path(zke *z, const char *tx, const char *prefix,
                     const char *name);

/* ---- the step ---- */

/* Operations collected for one step. */
typedef struct zke_phase_steps {
  zke *z;
  const char *tx; /* path of the transaction */
  zke_op *ops;
  char **paths; /* of the operations, freed with them; or NULL */
  int count;
  bool failed; /* memory was short */
} zke_phase_steps;

/* zke_steps_begin - begin a step on a transaction
 *
 *   tx    its path; borrowed until the step is done
 *   room  the number of operations, with the caller's
 *
 * Call one of the functions that do or read the step afterwards: it releases
 * the operations.  If memory is short, it returns ZKE_NOMEM, and the calls in
 * between do nothing. */
void zke_steps_begin(zke_phase_steps *s, zke *z, const char *tx, int room);

/* zke_steps_check  - make the step only if that child has this version;
 *                    -1: if it exists
 * zke_steps_create - create a child, open to all; data is a string
 * zke_steps_set    - write a child; the version as for zke_set()
 * zke_steps_delete - delete a child, whatever its version
 * zke_steps_get    - read a child, for zke_steps_read()
 *
 * Prefix and name together name a child; the data is borrowed until the step is
 * done. */
void zke_steps_check(zke_phase_steps *s, const char *prefix, const char *name,
                     int version);
void zke_steps_create(zke_phase_steps *s, const char *prefix, const char *name,
                      const char *data, int mode);
void zke_steps_set(zke_phase_steps *s, const char *prefix, const char *name,
                   const char *data, int version);
void zke_steps_delete(zke_phase_steps *s, const char *prefix, const char *name);
void zke_steps_get(zke_phase_steps *s, const char *prefix, const char *name);

/* zke_steps_next - the next operation, to be filled in by the caller: on the
 * transaction's own znode.  NULL without memory */
zke_op *zke_steps_next(zke_phase_steps *s);

/* zke_steps_do   - make the step; returns as zke_recipe_multi()
 * zke_steps_read - make the reads that were added, in one snapshot;
 *                  returns as zke_recipe_multi_read()
 *
 *   got  out: a result for each operation; untouched on failure.  NULL: the
 *        caller had no memory for them, which is ZKE_NOMEM */
int zke_steps_do(zke_phase_steps *s);
int zke_steps_read(zke_phase_steps *s, zke_op_result *got);

/* ---- the caller's operations ---- */

/* The caller's operations for the step that makes a site's vote or
 * acknowledgement (T6).  The first step that makes it does them; it writes the
 * id of the call into the mark. */
typedef struct zke_phase_more {
  const zke_op *ops;
  int count;
  /* Of these, or NULL.  Set if the step was made, or one of these was refused.
   */
  zke_op_result *results;
  char id[ZKE_RECIPE_GUID]; /* of the call, as in the mark */
  bool tried;               /* false: a mark is from an earlier call */
  int done;                 /* out: ZKE_TWO_PHASE_NOT_DONE… */
  bool refused;             /* one of these was refused, with the code below */
  int code;
} zke_phase_more;

/* zke_more_check - may a caller give these operations?  Sets the results to
 * zero.  Returns ZKE_OK or ZKE_BADARGUMENTS */
int zke_more_check(zke_phase_more *more);

/* zke_more_count - how many the caller adds; more may be NULL */
static inline int zke_more_count(const zke_phase_more *more) {
  return more ? more->count : 0;
}

/* zke_steps_do_with - zke_steps_do(), with the caller's operations after the
 * collected ones
 *
 *   more  or NULL.  Out: done, refused, code, results
 *
 * Returns as zke_steps_do(), or ZKE_SQL if one of the caller's was refused. */
int zke_steps_do_with(zke_phase_steps *s, zke_phase_more *more);

#ifdef __cplusplus
}
#endif

#endif
