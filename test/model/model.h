/* model.h - the tree's semantics a second time, in memory, without SQLite
 *
 * Written from doc/semantics.md, doc/differences.md and zkembed.h.  Nothing of
 * zkembed.c is in it, so where the two answer alike, a mistake would have to
 * have been made twice.
 *
 * All that a model knows lies in one block: model_save() and model_restore()
 * copy it.  There are no globals.  Time and the process's number come from
 * zke_options.os, which the first session gives.  A session is a `zke *` that
 * only these functions take; each is the function of zkembed.h with the same
 * name, and takes and returns the same.  What they return in a block is
 * released by model_free().
 *
 * Covered: every function of zkembed.h whose answer depends on the tree, the
 * sessions, the watches or the identities; they are declared below.
 *
 * Not covered, and why:
 *   zke_open of a file, zke_compact, zke_check, zke_keepalive_fd: about files
 *   zke_fd, zke_wait, zke_wait_turn, zke_turn, zke_wake, zke_pending,
 *     zke_next_deadline, zke_sleep, zke_limit, zke_busy_timeout: about waiting;
 *     model_dispatch() is what a wait does once it is awake
 *   zke_zxid, zke_event_zxid, zke_dispatch_to: test_zxid has the order of
 *     replies and events with a model of its own
 *   zke_vouch, zke_clear_auth: test_acl
 *   zke_errmsg, zke_fail, zke_error_name, zke_error_text: sentences
 *   zke_version, zke_take_options, zke_os_fill, zke_alloc: not about the tree
 *   zke_op_create and the others that fill a zke_op: the engine's own are used
 *   options.event_limit, lease_ms: when rows are trimmed and stamps are taken
 *     is the engine's own affair; test_watch and test_session have them
 *   options.read_limit: test_multi
 */
#ifndef ZKE_MODEL_H
#define ZKE_MODEL_H

#include "zkembed.h"

typedef struct model model;

/* A block of so many bytes; NULL without memory.  A model that needs more ends
 * the program.  Pages that are not used are not touched. */
model *model_new(size_t bytes);
void model_end(model *m);

/* model_used    - how many bytes model_save() writes
 * model_restore - back to what was saved of this very model: the handles of
 *                 then are valid again, later ones are not */
size_t model_used(const model *m);
void model_save(const model *m, void *to);
void model_restore(model *m, const void *from);

/* Remove the containers and TTL nodes whose time is over, as a sweep does. */
void model_sweep(model *m);

/* The first session of a model, and with it the tree. */
int model_open(model *m, const zke_options *options, zke **z_out);
int model_open_session(zke *z, const zke_options *options, zke **z_out);
int model_close(zke *z);
int64_t model_session_id(zke *z);
int model_state(zke *z);
int model_expire(zke *z, int64_t session);

int model_create(zke *z, const char *path, const void *data, int len,
                 const zke_acls *acls, int mode, char **path_out,
                 zke_stat *stat_out);
int model_create_ttl(zke *z, const char *path, const void *data, int len,
                     const zke_acls *acls, int mode, int64_t ttl_ms,
                     char **path_out, zke_stat *stat_out);
int model_delete(zke *z, const char *path, int version);
int model_discard(zke *z, const char *path, int mode, int64_t czxid);
int model_raise_sequence(zke *z, const char *path, int next,
                         zke_stat *stat_out);
int model_exists(zke *z, const char *path, zke_watch_fn fn, void *context,
                 zke_stat *stat_out);
int model_get(zke *z, const char *path, zke_watch_fn fn, void *context,
              char **data_out, int *len_out, zke_stat *stat_out);
int model_set(zke *z, const char *path, const void *data, int len, int version,
              zke_stat *stat_out);
int model_children(zke *z, const char *path, zke_watch_fn fn, void *context,
                   zke_strings **names_out, zke_stat *stat_out);
int model_count(zke *z, const char *path, int64_t *count_out);
int model_ephemerals(zke *z, int64_t session, const char *prefix,
                     zke_strings **paths_out);
int model_sync(zke *z, const char *path);
int model_multi(zke *z, const zke_op *ops, int count, zke_op_result *results);
int model_multi_read(zke *z, const zke_op *ops, int count,
                     zke_op_result *results);
void model_results_clear(zke_op_result *results, int count);
int model_add_auth(zke *z, const char *scheme, const char *cert, int len);
int model_get_acl(zke *z, const char *path, zke_acls **acls_out,
                  zke_stat *stat_out);
int model_set_acl(zke *z, const char *path, int version, const zke_acls *acls,
                  zke_stat *stat_out);
int model_add_watch(zke *z, const char *path, int mode, zke_watch_fn fn,
                    void *context);
int model_set_watch(zke *z, const char *path, int type, int64_t zxid,
                    zke_watch_fn fn, void *context);
int model_check_watch(zke *z, const char *path, int type, zke_watch_fn fn,
                      void *context);
int model_remove_watch(zke *z, const char *path, int type, zke_watch_fn fn,
                       void *context);
int model_remove_all_watches(zke *z, const char *path, int type);
int model_forget(zke *z, zke_watch_fn fn, void *context);
int model_call_at(zke *z, int64_t when_ms, zke_watch_fn fn, void *context);
int model_set_watcher(zke *z, zke_watch_fn fn, void *context);
int model_dispatch(zke *z, int *count_out);
int64_t model_now(zke *z);
int64_t model_wall(zke *z);
int model_sessions(zke *z, zke_session_list **list_out);
int model_session(zke *z, int64_t session, zke_session_list **list_out);
int model_watches(zke *z, zke_watch_list **list_out);
int model_waiters(zke *z, zke_watch_list **list_out);
int model_overdue(zke *z, int *overdue_out);
int model_test_fail(zke *z, int when, int skip);
void model_free(void *block);

#endif
