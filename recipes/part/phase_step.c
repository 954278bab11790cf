/* phase_step.c - one step of a two-phase commit, with the caller's operations
 *
 * This file knows the names of a transaction's children, how operations on them
 * become one multi, and the place of the caller's operations in it (T6).  It
 * does not know what a child's data means, or what a step is for.  It promises
 * its callers:
 *
 *   - A step is made as a whole or not at all, with the caller's operations.
 *   - If one of the caller's was refused, the result is a code that no recipe
 *     acts on, so it is not taken for a refusal of the recipe's (T7).
 *
 * Invariant: s->paths[i] is the path in s->ops[i], or NULL if that operation is
 * the caller's or on the transaction itself.
 *
 * Start reading at zke_steps_begin(), then zke_steps_do_with(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "phase_step.h"

#include <stdio.h>
#include <string.h>

#include "text.h"

enum { PHASE_OPS = INT32_MAX / 256 /* of a caller, at most */ };

/* ---- the step ---- */

char *zke_phase_path(zke *z, const char *tx, const char *prefix,
                     const char *name) {
  size_t size = strlen(tx) + strlen(prefix) + strlen(name) + 2;
  char *path = zke_alloc(z, size);
  if (path) snprintf(path, size, "%s/%s%s", tx, prefix, name);
  return path;
}

/* A lack of memory is recorded, and reported when the operations are done: so
 * no check is needed in between. */
void zke_steps_begin(zke_phase_steps *s, zke *z, const char *tx, int room) {
  *s = (zke_phase_steps){.z = z, .tx = tx};
  s->ops = zke_alloc(z, (size_t)room * sizeof *s->ops);
  s->paths = zke_alloc(z, (size_t)room * sizeof *s->paths);
  s->failed = !s->ops || !s->paths;
}

/* Release the operations and their paths. */
static void steps_end(zke_phase_steps *s) {
  for (int i = 0; s->paths && i < s->count; i++) zke_free(s->paths[i]);
  zke_free(s->paths);
  zke_free(s->ops);
}

/* The path of the next operation, s->ops[s->count]; NULL without memory. */
static const char *steps_path(zke_phase_steps *s, const char *prefix,
                              const char *name) {
  if (s->failed) return NULL;
  char *path = zke_phase_path(s->z, s->tx, prefix, name);
  s->failed = !path;
  s->paths[s->count] = path;
  return path;
}

void zke_steps_check(zke_phase_steps *s, const char *prefix, const char *name,
                     int version) {
  const char *path = steps_path(s, prefix, name);
  if (path) zke_op_check(&s->ops[s->count++], path, version);
}

void zke_steps_create(zke_phase_steps *s, const char *prefix, const char *name,
                      const char *data, int mode) {
  const char *path = steps_path(s, prefix, name);
  if (path)
    zke_op_create(&s->ops[s->count++], path, data, (int)strlen(data),
                  ZKE_OPEN_ACL, mode);
}

void zke_steps_set(zke_phase_steps *s, const char *prefix, const char *name,
                   const char *data, int version) {
  const char *path = steps_path(s, prefix, name);
  if (path)
    zke_op_set(&s->ops[s->count++], path, data, (int)strlen(data), version);
}

void zke_steps_delete(zke_phase_steps *s, const char *prefix,
                      const char *name) {
  const char *path = steps_path(s, prefix, name);
  if (path) zke_op_delete(&s->ops[s->count++], path, -1);
}

void zke_steps_get(zke_phase_steps *s, const char *prefix, const char *name) {
  const char *path = steps_path(s, prefix, name);
  if (path) zke_op_get(&s->ops[s->count++], path);
}

/* It has no path here, since it uses the transaction's. */
zke_op *zke_steps_next(zke_phase_steps *s) {
  return s->failed ? NULL : &s->ops[s->count++];
}

int zke_steps_read(zke_phase_steps *s, zke_op_result *got) {
  int rc = ZKE_NOMEM;
  if (!s->failed && got)
    rc = zke_recipe_multi_read(s->z, s->ops, s->count, got);
  steps_end(s);
  return rc;
}

int zke_steps_do(zke_phase_steps *s) {
  int rc =
      s->failed ? ZKE_NOMEM : zke_recipe_multi(s->z, s->ops, s->count, NULL);
  steps_end(s);
  return rc;
}

/* ---- the caller's operations ---- */

/* The arguments are checked before anything is touched. */
int zke_more_check(zke_phase_more *more) {
  if (more->count < 0 || more->count > PHASE_OPS || (more->count && !more->ops))
    return zke_recipe_fail(
        ZKE_BADARGUMENTS, "%d operations%s", more->count,
        more->count > 0 && !more->ops ? ", but ops is NULL" : "");
  for (int i = 0; more->results && i < more->count; i++)
    more->results[i] = (zke_op_result){0};
  return ZKE_OK;
}

/* Keep the results of the caller's operations, which follow `own` ones of the
 * recipe.  If one of the caller's was refused, the result is ZKE_SQL, which
 * nothing here acts on; *more has its code (T7). */
static int more_take(zke_phase_more *more, zke_op_result *got, int own,
                     int rc) {
  size_t size = (size_t)more->count * sizeof *got;
  more->tried = true;
  more->refused =
      rc != ZKE_OK && zke_recipe_refused(got, own + more->count) >= own;
  more->code = more->refused ? rc : ZKE_OK;
  if (rc == ZKE_OK) more->done = ZKE_TWO_PHASE_DONE;
  if (more->results && (rc == ZKE_OK || more->refused)) {
    memcpy(more->results, got + own, size);
    memset(got + own, 0, size);
  }
  return more->refused ? ZKE_SQL : rc;
}

int zke_steps_do_with(zke_phase_steps *s, zke_phase_more *more) {
  int own = s->count, rc = ZKE_NOMEM;
  zke_op_result *got = NULL;
  if (!more) return zke_steps_do(s);
  if (!s->failed)
    got = zke_alloc(s->z, (size_t)(own + more->count) * sizeof *got);
  if (got) {
    memcpy(s->ops + own, more->ops, (size_t)more->count * sizeof *s->ops);
    s->count += more->count;
    rc = zke_recipe_multi(s->z, s->ops, s->count, got);
    rc = more_take(more, got, own, rc);
    zke_results_clear(got, s->count);
  }
  zke_free(got);
  steps_end(s);
  return rc;
}
