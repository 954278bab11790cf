/* model.h - the tree's semantics a second time, in memory, without SQLite
 *
 * Written from doc/semantics.md, doc/differences.md and zkembed.h.  Nothing of
 * zkembed.c is in it, so where the two answer alike, a mistake would have to
 * have been made twice.
 *
 * It is an engine behind zkembed.h: zke_open() of "model:" makes one, and each
 * function that the table at the end of model.c has answers as zkembed.c is to
 * answer.  All that a model knows lies in one block, its handles too:
 * model_save() and model_restore() copy it.  There are no globals.  Time and
 * the process's number come from zke_options.os of the first session.
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
 *     replies and events with a model of its own
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

/* The model that a handle is of; it stays until model_end(). */
model *model_of(zke *z);
void model_end(model *m);

/* model_used    - how many bytes model_save() writes
 * model_restore - back to what was saved of this very model: the handles of
 *                 then are valid again, later ones are not */
size_t model_used(const model *m);
void model_save(const model *m, void *to);
void model_restore(model *m, const void *from);

/* Remove the containers and TTL nodes whose time is over, as a sweep does. */
void model_sweep(model *m);

/* To play what an engine has done, in its numbers:
 *
 * model_zxid      - the zxid of the last change
 * model_set_zxid  - the next change has the one after this
 * model_sweep_one - remove one node, if its time is over; false: it is not */
int64_t model_zxid(const model *m);
void model_set_zxid(model *m, int64_t zxid);
bool model_sweep_one(model *m, const char *path);

#endif
