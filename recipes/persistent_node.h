/* persistent_node.h - an ephemeral znode that its owner keeps there
 *
 *     zke_persistent_node *node;
 *     zke *z2;
 *     zke_persistent_node_new(z, "/status/host1", "up", 2, NULL, &node);
 *     zke_persistent_node_acquire(node, deadline);  // it is there
 *     // Somebody deletes it: the next zke_dispatch() makes it again.
 *     zke_persistent_node_set(node, "busy", 4, ZKE_FOREVER);
 *     // The session has expired.
 *     zke_open("app.db", NULL, &z2);
 *     zke_persistent_node_renew(&node, z2);  // it is there again
 *     zke_close(z);
 *     zke_persistent_node_free(node);  // it has gone
 *
 * LAYOUT: one plain ephemeral znode at the path, with the owner's data and
 * nothing else.  Missing parents are made as persistent nodes and stay.
 *
 * A znode at the path that another session owns is left alone: the object
 * waits until it goes, and takes its place.  So a restarted process gets its
 * znode as soon as its former session has ended.
 *
 * IF THE PROCESS DIES the znode goes with its session.  Every step is one
 * change; there is nothing between.
 *
 * WHO IS WOKEN: the owner, when something happens to its znode; an object that
 * waits, when that of the other changes or goes.
 *
 * LOSING THE SESSION: the znode has gone.  The listener hears
 * ZKE_PERSISTENT_NODE_LOST, every call but renew and free returns
 * ZKE_INVALIDSTATE.  Open another handle and renew.
 *
 * FENCING: the token is the znode's czxid, greater each time it is made.
 *
 * LIMITS.  One object for a path and session.  Deleting and setting look first
 * whether the znode is one's own and then name its version: only a znode that
 * another session puts in the place of a deleted one within these microseconds,
 * at the very same version, is not told apart.
 */
#ifndef ZKEMBED_RECIPES_PERSISTENT_NODE_H
#define ZKEMBED_RECIPES_PERSISTENT_NODE_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_persistent_node zke_persistent_node;

enum {
  ZKE_PERSISTENT_NODE_OUT = 0,     /* not started, or released */
  ZKE_PERSISTENT_NODE_WAITING = 1, /* another session's stands there */
  ZKE_PERSISTENT_NODE_HELD = 2,    /* one's own does */
  ZKE_PERSISTENT_NODE_LOST = 3     /* the session has ended */
};

/* Called when the state changes, and with ZKE_PERSISTENT_NODE_HELD and its
 * new token each time the znode was made again. */
typedef void (*zke_persistent_node_fn)(zke_persistent_node *node, int state,
                                       int64_t token, void *context);

typedef struct zke_persistent_node_options {
  size_t size;
  zke_persistent_node_fn listener;
  void *context;
} zke_persistent_node_options;

/* zke_persistent_node_new - an object for one znode; does not touch the tree
 *
 *   path      of the znode
 *   data,len  its value, as for zke_create(); copied
 *   options   NULL for the defaults; copied
 *   node_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, or what the handle's state asks for.
 * Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_persistent_node_new(zke *z, const char *path, const void *data,
                                    int len,
                                    const zke_persistent_node_options *options,
                                    zke_persistent_node **node_out);

/* zke_persistent_node_free - delete one's own znode, release the object; NULL
 * is fine.  Threads: any, while no other call on it runs.  In a callback: yes.
 */
ZKE_API void zke_persistent_node_free(zke_persistent_node *node);

/* zke_persistent_node_start - make the znode, and again whenever it has gone
 *
 * Where another session's stands there it waits for that to go, inside
 * zke_dispatch(); zke_persistent_node_state() tells.
 *
 * Returns ZKE_OK, or as zke_create(); after a failure it is started all the
 * same, and this can be repeated.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_persistent_node_start(zke_persistent_node *node);

/* zke_persistent_node_step - look again now, as dispatches do by themselves */
ZKE_API int zke_persistent_node_step(zke_persistent_node *node);

/* zke_persistent_node_acquire - start, where that was not done, and wait until
 * one's own znode is there
 *
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *
 * Returns ZKE_OK, or, released,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence says whose it is
 *   ZKE_CANCELLED         zke_persistent_node_cancel()
 *   ZKE_LOST              another thread released it
 *   ZKE_MISUSE            another thread waits with this object; not released
 *   ZKE_INVALIDSTATE      the session has ended
 *   others                as zke_create()
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_persistent_node_acquire(zke_persistent_node *node,
                                        int64_t deadline_ms);

/* zke_persistent_node_release - delete one's own znode and let it be
 *
 * Deletes nothing else, neither another session's nor the parent.  Another
 * thread's zke_persistent_node_acquire() ends with ZKE_LOST.
 *
 * Returns ZKE_OK, or ZKE_LOST where it was not started.  After any other
 * failure the znode may be there still: the session deletes it as soon as it
 * can.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_persistent_node_release(zke_persistent_node *node);

/* zke_persistent_node_set - give it another value, now and whenever it is made
 *
 *   data,len     as for zke_create(); copied
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Returns ZKE_OK, also where it is not there at the moment; or as zke_set(),
 * and then the next znode made has the value, and this can be repeated.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_persistent_node_set(zke_persistent_node *node, const void *data,
                                    int len, int64_t deadline_ms);

/* zke_persistent_node_state  - ZKE_PERSISTENT_NODE_…, as known without asking
 *                              the file
 * zke_persistent_node_token  - the znode's czxid, or 0 when it is not there
 * zke_persistent_node_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                              ZKE_IDLE where none runs
 * Threads: any.  In a callback: yes.  Block: no. */
ZKE_API int zke_persistent_node_state(zke_persistent_node *node);
ZKE_API int64_t zke_persistent_node_token(zke_persistent_node *node);
ZKE_API int zke_persistent_node_cancel(zke_persistent_node *node);

/* zke_persistent_node_renew - go on in another session
 *
 * Makes an object on the other handle with the same path, value and listener,
 * started if the old one was, and frees the old one: before the old handle is
 * closed.
 *
 *   node  in, out: the old object, the new one; on failure it is unchanged
 *   z     the other handle
 *
 * Returns ZKE_OK, also where the znode cannot be made yet: ask its state.
 * Threads: any, while no other call on it runs.  In a callback: yes.
 * Blocks: on the disk. */
ZKE_API int zke_persistent_node_renew(zke_persistent_node **node, zke *z);

#ifdef __cplusplus
}
#endif

#endif
