/* model.h - a second implementation of the tree's semantics, in memory
 *
 * It is written from doc/semantics.md, doc/differences.md and zkembed.h.  It
 * contains nothing of zkembed.c, so if the two agree on a wrong answer, the
 * mistake was made twice.
 *
 * It is an engine behind zkembed.h: zke_open() of "model:" makes one, and each
 * function in the table at the end of model.c must answer as zkembed.c does.
 * All state of a model is in one block, its handles included; model_save() and
 * model_restore() copy it.  There are no globals.  The time and the process's
 * number come from zke_options.os of the first session.
 *
 * Covered: every function of zkembed.h whose answer depends on the tree, the
 * sessions, the watches or the identities.
 *
 * Not covered, and why:
 *   zke_open of a file, zke_compact, zke_check, zke_keepalive_fd: about files
 *   zke_fd, zke_wait, zke_wait_turn, zke_turn, zke_wake, zke_pending,
 *     zke_next_deadline, zke_sleep, zke_limit, zke_busy_timeout: about waiting;
 *     zke_dispatch() is what a wait does once it is awake
 *   zke_zxid, zke_event_zxid, zke_dispatch_to: test_zxid has the order of
 *     replies and events with its own model
 *   zke_vouch, zke_clear_auth: test_acl, test/semantics/acl.txt
 *   zke_errmsg, zke_fail, zke_error_name, zke_error_text: sentences
 *   zke_version, zke_take_options, zke_os_fill, zke_alloc: not about the tree
 *   zke_op_create and the others that fill a zke_op: the engine's own are used
 *   options.event_limit, lease_ms: when rows are trimmed and stamps are taken
 *     is the engine's own affair; test_watch and test_session have them
 *   options.read_limit: test_multi
 */
#ifndef ZKE_MODEL_H
#define ZKE_MODEL_H

#include <stdbool.h>

#include "zkembed.h"

typedef struct model model;

extern const zke_engine model_engine;

/* The handle's model; it stays until model_end(). */
model *model_of(zke *z);
void model_end(model *m);

/* model_used    - how many bytes model_save() writes
 * model_restore - back to a saved state of this same model: the handles of
 *                 that time are valid again, later ones are not */
size_t model_used(const model *m);
void model_save(const model *m, void *to);
void model_restore(model *m, const void *from);

/* Remove the containers and TTL nodes that are due, as a sweep does. */
void model_sweep(model *m);

/* To replay what an engine has done, with its numbers:
 *
 * model_zxid      - the zxid of the last change
 * model_set_zxid  - the next change gets the next zxid
 * model_sweep_one - remove one node if it is due; false: it is not */
int64_t model_zxid(const model *m);
void model_set_zxid(model *m, int64_t zxid);
bool model_sweep_one(model *m, const char *path);

#endif
