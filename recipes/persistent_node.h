/* persistent_node.h - an ephemeral znode that its owner keeps in place
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
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * It is Curator's PersistentNode, earlier named PersistentEphemeralNode.
 *
 * LAYOUT: one plain ephemeral znode at the path, with the owner's data and
 * nothing else.  Missing parents are made as persistent nodes and stay.
 *
 * A znode at the path that another session owns is left alone: the object waits
 * until it is gone, and then makes its own.  So a restarted process gets its
 * znode as soon as its former session has ended.
 *
 * IF THE PROCESS DIES the znode is removed with its session.  Every step is one
 * change; there is no state in between.
 *
 * WHO IS WOKEN: the owner, when its znode is changed or removed; a waiting
 * object, when the other session's znode is.
 *
 * COSTS, in transactions of the database: making the znode is one look and two
 * writes, the znode and its watch.  A set is a read and a write, and a small
 * write when its event is dispatched, to set the watch again.  A release is two
 * writes.
 *
 * LOSING THE SESSION: the znode has gone.  The listener hears
 * ZKE_PERSISTENT_NODE_LOST, and every call except renew and free returns
 * ZKE_INVALIDSTATE.  Open another handle and renew.
 *
 * FENCING: the token is the znode's czxid, greater each time it is made.
 *
 * LIMITS.  One object for a path and session.  Deleting never removes another
 * session's znode.  Setting first checks that the znode is the object's own,
 * and then sets it by its version.  It goes wrong only if, between the two, the
 * znode is deleted and another session makes one with the same version.
 * The gap is microseconds, unless the process is stopped in it.
 *
 * ON AN ENSEMBLE (zookeeper.h): a process's znode stays for the session's
 * timeout after its death, and goes if the process was silent for that long.
 *
 * MISTAKES, and their results:
 * - Two objects of one session on one path: after a lost reply, each of them
 *   may think that the znode is its own.  Use one.
 * - Creating children below it: an ephemeral znode has none
 *   (ZKE_NOCHILDRENFOREPHEMERALS).
 * - Deleting the znode to get rid of it: the object makes it again.  Release
 *   the object, or free it.
 * - Closing the old handle before zke_persistent_node_renew(): the old object
 *   points to a closed handle, so the behaviour is undefined.
 */
#ifndef ZKEMBED_RECIPES_PERSISTENT_NODE_H
#define ZKEMBED_RECIPES_PERSISTENT_NODE_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_persistent_node zke_persistent_node;

/* The values of zke_persistent_node_state(), which a listener hears, too.
 *
 *     OUT -> HELD, WAITING   start, acquire: the path was free, or not
 *     WAITING -> HELD        the other session's znode has gone
 *     HELD -> WAITING        another session was faster after a deletion
 *     HELD, WAITING -> OUT   release, free; an acquire that failed
 *     any -> LOST            the session has ended
 */
enum {
  ZKE_PERSISTENT_NODE_OUT = 0,     /* not started, or released */
  ZKE_PERSISTENT_NODE_WAITING = 1, /* another session's znode is there */
  ZKE_PERSISTENT_NODE_HELD = 2,    /* the object's own znode is there */
  ZKE_PERSISTENT_NODE_LOST = 3     /* the session has ended */
};

/* Called when the state changes, and with ZKE_PERSISTENT_NODE_HELD and its
 * new token each time the znode was made again.
 *
 * Example: note when somebody deletes the znode.
 *
 *     static void heard(zke_persistent_node *node, int state, int64_t token,
 *                       void *last) {
 *       (void)node;
 *       if (state == ZKE_PERSISTENT_NODE_HELD && *(int64_t *)last)
 *         printf("the znode had to be made again\n");
 *       if (state == ZKE_PERSISTENT_NODE_HELD) *(int64_t *)last = token;
 *     }
 */
typedef void (*zke_persistent_node_fn)(zke_persistent_node *node, int state,
                                       int64_t token, void *context);

typedef struct zke_persistent_node_options {
  size_t size;
  zke_persistent_node_fn listener;
  void *context;
} zke_persistent_node_options;

/* zke_persistent_node_new - an object for one znode; writes nothing
 *
 *   path      of the znode
 *   data,len  its value, as for zke_create(), else ZKE_BADARGUMENTS; copied
 *   options   NULL for the defaults; copied
 *   node_out  out; for zke_persistent_node_free() */
ZKE_API int zke_persistent_node_new(zke *z, const char *path, const void *data,
                                    int len,
                                    const zke_persistent_node_options *options,
                                    zke_persistent_node **node_out);

/* zke_persistent_node_free - delete the object's znode, release the object
 *
 * Another session's znode at the path stays. */
ZKE_API void zke_persistent_node_free(zke_persistent_node *node);

/* zke_persistent_node_start - make the znode, and again whenever it has gone
 *
 * If another session's znode is there, the object waits inside zke_dispatch()
 * until it goes; zke_persistent_node_state() tells.
 *
 * Example: a status for which the program need not wait.
 *
 *     rc = zke_persistent_node_start(node);
 *     if (zke_persistent_node_state(node) == ZKE_PERSISTENT_NODE_WAITING)
 *       printf("the former process is still there\n");
 *
 * Returns ZKE_OK, or as zke_create(); after a failure it is started all the
 * same, and the call can be repeated. */
ZKE_API int zke_persistent_node_start(zke_persistent_node *node);

/* zke_persistent_node_step - look again now */
ZKE_API int zke_persistent_node_step(zke_persistent_node *node);

/* zke_persistent_node_acquire - start if necessary, and wait until the object's
 * own znode is there
 *
 * Returns ZKE_OK, or, released,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names the owner
 *   ZKE_CANCELLED         zke_persistent_node_cancel()
 *   ZKE_LOST              another thread released it
 *   ZKE_MISUSE            another thread waits with this object; not released
 *   ZKE_INVALIDSTATE      the session has ended
 *   others                as zke_create() */
ZKE_API int zke_persistent_node_acquire(zke_persistent_node *node,
                                        int64_t deadline_ms);

/* zke_persistent_node_release - delete the object's znode, and do not make it
 * again
 *
 * It deletes nothing else, neither another session's znode nor the parent.
 * Another thread's zke_persistent_node_acquire() ends with ZKE_LOST.
 *
 * Returns ZKE_OK, or ZKE_LOST if it was not started.  After any other failure
 * the znode may still be there: the session deletes it as soon as it can. */
ZKE_API int zke_persistent_node_release(zke_persistent_node *node);

/* zke_persistent_node_set - give it another value, now and whenever it is made
 *
 *   data,len     as for zke_create(); copied
 *   deadline_ms  for repeating calls that got no reply
 *
 * Returns ZKE_OK, even if it is not there at the moment; or as zke_set(), and
 * then the next znode made has the value, and the call can be repeated. */
ZKE_API int zke_persistent_node_set(zke_persistent_node *node, const void *data,
                                    int len, int64_t deadline_ms);

/* zke_persistent_node_state  - ZKE_PERSISTENT_NODE_…, from memory
 * zke_persistent_node_token  - the znode's czxid, or 0 if it is not there; from
 *                              memory
 * zke_persistent_node_cancel - the blocking call on it returns ZKE_CANCELLED;
 *                              ZKE_IDLE if none runs */
ZKE_API int zke_persistent_node_state(zke_persistent_node *node);
ZKE_API int64_t zke_persistent_node_token(zke_persistent_node *node);
ZKE_API int zke_persistent_node_cancel(zke_persistent_node *node);

/* zke_persistent_node_renew - continue in another session
 *
 * Makes an object on the other handle with the same path, value and listener,
 * started if the old one was, and frees the old one.  Call it before you close
 * the old handle, and while no other call on the object runs.
 *
 * Example: after ZKE_INVALIDSTATE.
 *
 *     zke *again;
 *     rc = zke_open("app.db", NULL, &again);
 *     if (rc == ZKE_OK) rc = zke_persistent_node_renew(&node, again);
 *     if (rc == ZKE_OK) rc = zke_close(z);
 *
 *   node  in, out: the old object, the new one; on failure it is unchanged
 *   z     the other handle
 *
 * Returns ZKE_OK, even if the znode cannot be made yet: ask its state.  Or as
 * zke_persistent_node_new(). */
ZKE_API int zke_persistent_node_renew(zke_persistent_node **node, zke *z);

#ifdef __cplusplus
}
#endif

#endif
