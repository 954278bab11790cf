/* calls.c - the calls of zkembed.h, as code in the laboratory makes them
 *
 * Each tells the laboratory of itself, which may run others before it goes on,
 * and then makes the engine's own call.  A call that only touches the handle
 * itself has no place here: see renamed.h. */
#include "fiber.h"
#include "world.h"
#include "zkembed.h"

/* One function: its name, the path that it is shown with, parameters, and the
 * same as arguments. */
#define CALL(name, path, parameters, arguments) \
  CALL_AFTER((void)0, name, path, parameters, arguments)
#define CALL_AFTER(first, name, path, parameters, arguments) \
  int lab_real_##name parameters;                            \
  int name parameters {                                      \
    first;                                                   \
    lab_call(#name, z, path);                                \
    return lab_done(lab_real_##name arguments);              \
  }

/* One that may wait.  While it does, its caller's part of the stack, what it
 * waits for and until when are all that matters; what the engine has on the
 * stack follows from these. */
#define WAITING(name, turn, deadline, parameters, arguments) \
  int lab_real_##name parameters;                            \
  int name parameters;                                       \
  int marked_##name parameters;                              \
  FIBER_MARKED(name, marked_##name);                         \
  int marked_##name parameters {                             \
    char *mark = fiber_mark;                                 \
    lab_call(#name, z, "");                                  \
    lab_wait was = lab_wait_begin(mark, turn, deadline);     \
    int rc = lab_real_##name arguments;                      \
    lab_wait_end(was);                                       \
    return lab_done(rc);                                     \
  }

static const char *first_path(const zke_op *ops, int count) {
  return ops && count > 0 && ops->path ? ops->path : "";
}

CALL(zke_close, "", (zke * z), (z))
CALL(zke_detach, "", (zke * z), (z))
CALL(zke_rearm, "", (zke * z), (z))
CALL(zke_expire, "", (zke * z, int64_t session), (z, session))
/* One that others may queue behind, or look for: whose is the first? */
static bool is_told_apart(int mode) {
  return mode != ZKE_PERSISTENT && mode != ZKE_CONTAINER &&
         mode != ZKE_PERSISTENT_WITH_TTL;
}

CALL_AFTER(lab_makes(is_told_apart(mode)), zke_create, path,
           (zke * z, const char *path, const void *data, int len,
            const zke_acls *acls, int mode, char **path_out,
            zke_stat *stat_out),
           (z, path, data, len, acls, mode, path_out, stat_out))
CALL_AFTER(lab_makes(is_told_apart(mode)), zke_create_ttl, path,
           (zke * z, const char *path, const void *data, int len,
            const zke_acls *acls, int mode, int64_t ttl_ms, char **path_out,
            zke_stat *stat_out),
           (z, path, data, len, acls, mode, ttl_ms, path_out, stat_out))
CALL(zke_delete, path, (zke * z, const char *path, int version),
     (z, path, version))
CALL(zke_discard, path, (zke * z, const char *path, int mode, int64_t czxid),
     (z, path, mode, czxid))
CALL(zke_raise_sequence, path,
     (zke * z, const char *path, int next, zke_stat *stat_out),
     (z, path, next, stat_out))
CALL(zke_exists, path,
     (zke * z, const char *path, zke_watch_fn fn, void *context,
      zke_stat *stat_out),
     (z, path, fn, context, stat_out))
CALL(zke_get, path,
     (zke * z, const char *path, zke_watch_fn fn, void *context,
      char **data_out, int *len_out, zke_stat *stat_out),
     (z, path, fn, context, data_out, len_out, stat_out))
CALL(zke_set, path,
     (zke * z, const char *path, const void *data, int len, int version,
      zke_stat *stat_out),
     (z, path, data, len, version, stat_out))
CALL(zke_children, path,
     (zke * z, const char *path, zke_watch_fn fn, void *context,
      zke_strings **names_out, zke_stat *stat_out),
     (z, path, fn, context, names_out, stat_out))
CALL(zke_count, path, (zke * z, const char *path, int64_t *count_out),
     (z, path, count_out))
CALL(zke_usage, path,
     (zke * z, const char *path, int64_t *count_out, int64_t *bytes_out),
     (z, path, count_out, bytes_out))
CALL(zke_ephemerals, prefix,
     (zke * z, int64_t session, const char *prefix, zke_strings **paths_out),
     (z, session, prefix, paths_out))
CALL(zke_multi, first_path(ops, count),
     (zke * z, const zke_op *ops, int count, zke_op_result *results),
     (z, ops, count, results))
CALL(zke_multi_read, first_path(ops, count),
     (zke * z, const zke_op *ops, int count, zke_op_result *results),
     (z, ops, count, results))
CALL(zke_get_acl, path,
     (zke * z, const char *path, zke_acls **acls_out, zke_stat *stat_out),
     (z, path, acls_out, stat_out))
CALL(zke_set_acl, path,
     (zke * z, const char *path, int version, const zke_acls *acls,
      zke_stat *stat_out),
     (z, path, version, acls, stat_out))
CALL(zke_add_watch, path,
     (zke * z, const char *path, int mode, zke_watch_fn fn, void *context),
     (z, path, mode, fn, context))
CALL(zke_set_watch, path,
     (zke * z, const char *path, int type, int64_t zxid, zke_watch_fn fn,
      void *context),
     (z, path, type, zxid, fn, context))
CALL(zke_remove_watch, path,
     (zke * z, const char *path, int type, zke_watch_fn fn, void *context),
     (z, path, type, fn, context))
CALL(zke_remove_all_watches, path, (zke * z, const char *path, int type),
     (z, path, type))
CALL(zke_forget, "", (zke * z, zke_watch_fn fn, void *context),
     (z, fn, context))
CALL(zke_sync, path, (zke * z, const char *path), (z, path))
CALL(zke_dispatch, "", (zke * z, int *count_out), (z, count_out))
CALL(zke_dispatch_to, "",
     (zke * z, int64_t zxid, int *count_out, int *more_out),
     (z, zxid, count_out, more_out))
CALL(zke_wake, "", (zke * z), (z))
CALL(zke_sessions, "", (zke * z, zke_session_list **list_out), (z, list_out))
CALL(zke_session, "", (zke * z, int64_t session, zke_session_list **list_out),
     (z, session, list_out))
CALL(zke_watches, "", (zke * z, zke_watch_list **list_out), (z, list_out))
CALL(zke_waiters, "", (zke * z, zke_watch_list **list_out), (z, list_out))
CALL(zke_overdue, "", (zke * z, int *overdue_out), (z, overdue_out))
CALL(zke_history_keep, "", (zke * z, int64_t rows, int64_t ms), (z, rows, ms))
CALL(zke_history, path,
     (zke * z, const char *path, int64_t after, int most,
      zke_change_list **list_out),
     (z, path, after, most, list_out))
CALL(zke_watch_since, path,
     (zke * z, const char *path, int mode, int64_t zxid, zke_watch_fn fn,
      void *context),
     (z, path, mode, zxid, fn, context))

WAITING(zke_sleep, 0, deadline_ms, (zke * z, int64_t deadline_ms),
        (z, deadline_ms))
WAITING(zke_wait, zke_turn(z), deadline_ms, (zke * z, int64_t deadline_ms),
        (z, deadline_ms))
WAITING(zke_wait_turn, turn, deadline_ms,
        (zke * z, int64_t turn, int64_t deadline_ms), (z, turn, deadline_ms))

/* Only this thread's last call decides it, so nobody stops here. */
int64_t lab_real_zke_zxid(void);

int64_t zke_zxid(void) {
  lab_zxid();
  return lab_real_zke_zxid();
}

/* A batch holds the gate while its function runs, and what that does shows at
 * its end only: so it is one step, however many calls the function makes. */
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

int lab_real_zke_batch(zke *z, zke_batch_fn fn, void *context);

int zke_batch(zke *z, zke_batch_fn fn, void *context) {
  batch b = {fn, context};
  lab_call("zke_batch", z, "");
  return lab_done(lab_real_zke_batch(z, fn ? run_batch : NULL, &b));
}

/* A handle that a process opens is a session on the one database. */
int lab_real_zke_open(const char *name, const zke_options *options,
                      zke **z_out);
int lab_real_zke_open_session(zke *z, const zke_options *options, zke **z_out);

int zke_open_session(zke *z, const zke_options *options, zke **z_out) {
  lab_call("zke_open_session", z, "");
  return lab_opened(lab_real_zke_open_session(z, options, z_out), z_out);
}

int lab_real_zke_attach(zke *z, int64_t session,
                        const unsigned char password[16],
                        const zke_options *options, zke **z_out);

int zke_attach(zke *z, int64_t session, const unsigned char password[16],
               const zke_options *options, zke **z_out) {
  lab_call("zke_attach", z, "");
  return lab_opened(lab_real_zke_attach(z, session, password, options, z_out),
                    z_out);
}

int zke_open(const char *name, const zke_options *options, zke **z_out) {
  zke *shared = lab_store();
  if (!shared) return lab_real_zke_open(name, options, z_out);
  lab_call("zke_open", shared, name);
  zke_options without;
  int rc = zke_take_options(options, &without, sizeof without, "zke_options");
  if (rc != ZKE_OK) return lab_done(rc);
  without.os = NULL; /* these belong to the store, which is open */
  without.allocator = (zke_allocator){NULL, NULL};
  return lab_opened(lab_real_zke_open_session(shared, &without, z_out), z_out);
}
