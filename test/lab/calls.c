/* calls.c - the calls of zkembed.h, as code in the laboratory makes them
 *
 * Each call reports itself to the laboratory, which may run others first, and
 * then makes the engine's own call, here named lab_real_zke_... (engine.c).
 * The build makes function_list.h from zkembed.h (test/functions.awk);
 * `exceptions` lists the functions that differ.  Functions that are not in that
 * list read nothing that others change. */
#include "fiber.h"
#include "world.h"
#include "zkembed.h"

#define FUNCTION(name, path, parameters, arguments, samples) \
  int lab_real_##name parameters;                            \
  int name parameters {                                      \
    lab_call(#name, z, path);                                \
    return lab_done(lab_real_##name arguments);              \
  }
#define BY_HAND(name, path, parameters, arguments, samples) \
  int lab_real_##name parameters;
#define QUIET(name, path, parameters, arguments, samples)
#include "function_list.h"

/* ---- changes ---- */

/* Does the mode make a znode that others may queue after, or search for?  Then
 * it matters whose is first. */
static bool is_told_apart(int mode) {
  return mode != ZKE_PERSISTENT && mode != ZKE_CONTAINER &&
         mode != ZKE_PERSISTENT_WITH_TTL;
}

int zke_create(zke *z, const char *path, const void *data, int len,
               const zke_acls *acls, int mode, char **path_out,
               zke_stat *stat_out) {
  lab_makes(is_told_apart(mode));
  lab_call("zke_create", z, path);
  return lab_done(
      lab_real_zke_create(z, path, data, len, acls, mode, path_out, stat_out));
}

int zke_create_ttl(zke *z, const char *path, const void *data, int len,
                   const zke_acls *acls, int mode, int64_t ttl_ms,
                   char **path_out, zke_stat *stat_out) {
  lab_makes(is_told_apart(mode));
  lab_call("zke_create_ttl", z, path);
  return lab_done(lab_real_zke_create_ttl(z, path, data, len, acls, mode,
                                          ttl_ms, path_out, stat_out));
}

/* For several operations, the path of the first is shown. */
static const char *first_path(const zke_op *ops, int count) {
  return ops && count > 0 && ops->path ? ops->path : "";
}

int zke_multi(zke *z, const zke_op *ops, int count, zke_op_result *results) {
  lab_call("zke_multi", z, first_path(ops, count));
  return lab_done(lab_real_zke_multi(z, ops, count, results));
}

int zke_multi_read(zke *z, const zke_op *ops, int count,
                   zke_op_result *results) {
  lab_call("zke_multi_read", z, first_path(ops, count));
  return lab_done(lab_real_zke_multi_read(z, ops, count, results));
}

/* A batch holds the gate while its function runs, and its changes become
 * visible only at the end: so it is one step, whatever the number of calls in
 * the function. */
typedef struct batch {
  zke_batch_fn fn;
  void *context;
} batch;

static int run_batch(zke *z, void *arg) {
  const batch *b = arg;
  lab_batch(true);
  int rc = b->fn(z, b->context);
  lab_batch(false);
  return rc;
}

int zke_batch(zke *z, zke_batch_fn fn, void *context) {
  batch b = {fn, context};
  lab_call("zke_batch", z, "");
  return lab_done(lab_real_zke_batch(z, fn ? run_batch : NULL, &b));
}

/* ---- waiting ---- */

/* A call that may wait.  While it does, the state consists of its caller's part
 * of the stack, the awaited condition and the deadline; what the engine has on
 * the stack follows from these. */
#define WAITING(name, turn, parameters, arguments)          \
  int name parameters;                                      \
  int marked_##name parameters;                             \
  FIBER_MARKED(name, marked_##name);                        \
  int marked_##name parameters {                            \
    char *mark = fiber_mark;                                \
    lab_call(#name, z, "");                                 \
    lab_wait was = lab_wait_begin(mark, turn, deadline_ms); \
    int rc = lab_real_##name arguments;                     \
    lab_wait_end(was);                                      \
    return lab_done(rc);                                    \
  }

WAITING(zke_sleep, 0, (zke * z, int64_t deadline_ms), (z, deadline_ms))
WAITING(zke_wait, zke_turn(z), (zke * z, int64_t deadline_ms), (z, deadline_ms))
WAITING(zke_wait_turn, turn, (zke * z, int64_t turn, int64_t deadline_ms),
        (z, turn, deadline_ms))

/* ---- sessions ---- */

int zke_open_session(zke *z, const zke_options *options, zke **z_out) {
  lab_call("zke_open_session", z, "");
  return lab_opened(lab_real_zke_open_session(z, options, z_out), z_out);
}

int zke_attach(zke *z, int64_t session, const unsigned char password[16],
               const zke_options *options, zke **z_out) {
  lab_call("zke_attach", z, "");
  return lab_opened(lab_real_zke_attach(z, session, password, options, z_out),
                    z_out);
}

/* ---- without a handle ---- */

/* It depends only on this thread's last call, so it needs no stop. */
int64_t lab_real_zke_zxid(void);

int64_t zke_zxid(void) {
  lab_zxid();
  return lab_real_zke_zxid();
}

/* A handle that a process opens is another session on the one database. */
int lab_real_zke_open(const char *name, const zke_options *options,
                      zke **z_out);

int zke_open(const char *name, const zke_options *options, zke **z_out) {
  zke *shared = lab_store();
  if (!shared) return lab_real_zke_open(name, options, z_out);
  lab_call("zke_open", shared, name);
  zke_options without;
  int rc = zke_take_options(options, &without, sizeof without, "zke_options");
  if (rc != ZKE_OK) return lab_done(rc);
  without.os = NULL; /* these belong to the open store */
  without.allocator = (zke_allocator){NULL, NULL};
  return lab_opened(lab_real_zke_open_session(shared, &without, z_out), z_out);
}
