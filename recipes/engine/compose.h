/* compose.h - several services as one: files and ensembles in a common order,
 * and in one tree
 *
 *     zke *handles[2] = {NULL, NULL};
 *     rc = zke_open("local.db", NULL, &handles[0]);
 *     if (rc == ZKE_OK) rc = zke_open("other.db", NULL, &handles[1]);
 *     if (rc == ZKE_OK) rc = zke_order(handles, 2);
 *
 * or, with the second one shown below "/global" of the first:
 *
 *     zke *other = NULL;
 *     rc = zke_open("other.db", NULL, &other);
 *     if (rc == ZKE_OK) rc = zke_mount(&z, "/global", other);
 *     if (rc == ZKE_OK) rc = zke_delete(z, "/global/jobs", -1);
 *
 * Both replace the given handles by handles of another engine (zkembed.h,
 * "Other engines"), which passes each call on to a PART: an existing handle.
 * The functions of zkembed.h and the recipes take them as any other.
 * doc/composition.md says how the order is kept and why that is right.
 *
 * Why the handles are replaced.  With a handle outside of the order, a program
 *   could read older state than it has heard of elsewhere.  So the variable
 *   that held a part now holds a handle that keeps the order: the rest of the
 *   program stays as it was, and nothing else refers to the part.  The part
 *   belongs to the new handle and is closed with it.
 *
 * ORDER.  Everything that one program does through the handles, and hears
 *   through their watchers, fits one order of all that happens on all services.
 *   Its own steps are in that order as it made them.  Before the first read on
 *   a part after a call on another part, or after an event of another one,
 *   zke_sync() is called there; a change needs none.  A file is always up to
 *   date, and needs none.  With several threads: if one finishes a step before
 *   another begins, the order holds for both.
 *
 * SESSION.  The parts' sessions are one: when the first one ends, the others
 *   are ended (zke_expire()).  Each pair of function and context that watches
 *   anything is told once, and calls are ZKE_INVALIDSTATE from then on.  The
 *   ephemerals of the others go when this can be written, at the latest in
 *   zke_close().  An ensemble that cannot be reached is not waited for: a later
 *   call or dispatch ends its session, or its timeout does.  An engine that
 *   cannot end its session keeps it until zke_close().  So when a session has
 *   ended, a program that holds a lock on one part must not rely on a lock on
 *   another.  zke_sleep() keeps all parts' leases that are a second or longer.
 *
 * MOUNT.  A path at or below a prefix belongs to the part, without the prefix;
 *   all other paths belong to the first handle, the base.
 *   - Paths in results and events are the caller's.  Sentences of zke_errmsg()
 *     say "below /global:" and the part's path.
 *   - The mount point must exist in the base, as in Unix.  So its parent lists
 *     it.  The node and everything below it in the base are hidden.  It is the
 *     part's "/", so it cannot be deleted, and its parent is not empty.  If
 *     another program deletes it in the base, it is no longer among the
 *     children, and nothing else changes.
 *   - zke_session_id() is the base's.  A Stat's ephemeralOwner is that number
 *     if the own session of any part owns the node, so recipes recognise their
 *     own nodes.  Another session's number on a part other than the base is
 *     shown with a mark of the part in it: equal numbers of two services
 *     differ.  zke_sessions(), zke_expire() and zke_ephemerals() take the shown
 *     number.  A list of all sessions has the own one once, as in the base.
 *   - zxids (zke_zxid(), a Stat's) are the part's.  Two zxids of one part can
 *     be compared, those of different parts cannot.
 *   - zke_op_sql() goes to the part of the other operations in the call, since
 *     they are one transaction; alone, it goes to the base.
 *   - Refused with ZKE_UNIMPLEMENTED, since several parts cannot do it as one:
 *     a multi or a multi_read with paths in two parts; zke_count(),
 *     zke_usage(), an operation of zke_op_untold() and a recursive watch above
 *     a mount point; and, with a mount, zke_batch(), zke_dispatch_to(),
 *     zke_keepalive_fd(), zke_watches() and a chroot for zke_open_session().
 *   - A file that was opened with ZKE_OPEN_READONLY may be mounted.  It has no
 *     events; waits for events of the other parts work as without it.
 *
 * Kept sessions (zke_attach() and its like) are ZKE_UNIMPLEMENTED.
 *
 * The parts' options.watcher is replaced: zke_set_watcher() of the new handle
 *   sets its default watcher.  All parts must use one clock: the system's,
 *   which is the default, or one options.os.
 *
 * Memory.  The record of a pair of function and context, about 64 bytes, stays
 *   until zke_forget() or zke_close(); that of a default watcher until
 *   zke_close().
 *
 * zke_close() waits until calls of other threads have returned, and closes the
 *   parts in the order in which they were added.
 *
 * fork(), threads, cancellation and callbacks are as in zkembed.h.  For both
 * functions: Threads: any.  In a callback: not of one of the handles. */
#ifndef ZKEMBED_RECIPES_COMPOSE_H
#define ZKEMBED_RECIPES_COMPOSE_H

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ZKE_MOUNTS = 16 }; /* parts of one handle, including the base */

/* zke_order - make these handles keep one order, and be one session
 *
 * Each is replaced by one that shows the same tree.  zke_open_session() of one
 * of them gives a session of that part alone, outside the order.
 *
 *   handles  in and out: n different handles that nothing else uses: neither
 *            another thread, nor a recipe's object, nor a watch.  They may also
 *            come from zke_order() or zke_mount(): their orders become one.
 *            Then do not use the other handles of these orders during the call
 *   n        1 or more
 *
 * Returns ZKE_OK, or, with all handles unchanged,
 *   ZKE_BADARGUMENTS  NULL, or the same handle twice
 *   ZKE_INVALIDSTATE  a session among them has ended
 *   ZKE_MISUSE        called in a callback of a composed handle among them
 *   ZKE_SYSTEMERROR   the process has no descriptors left
 *   ZKE_NOMEM, or the code of a handle's zke_set_watcher(); then the handles
 *                     before it have lost their default watchers
 *
 * Blocks: no. */
ZKE_API int zke_order(zke **handles, int n);

/* zke_mount - show another service's tree below a prefix
 *
 * *z is replaced by a handle that shows both, and keeps their order.  If it
 * came from zke_mount() or zke_order() already, the part is added to it.  To
 * put one mount inside another, make the upper one first.  The descriptor of
 * zke_fd() changes once there are two parts.
 *
 *   z       in and out: as for zke_order()
 *   prefix  of a node that exists in z, not "/"; copied
 *   other   a handle from zke_open() or zke_open_session(); it belongs to *z
 *           afterwards
 *
 * Example: the jobs of all hosts, from an ensemble, in a host's local tree.
 *
 *     static int open_both(const char *ensemble, zke **z_out) {
 *       zke *z = NULL, *other = NULL;
 *       int rc = zke_open("local.db", NULL, &z);
 *       if (rc == ZKE_OK) rc = zke_open(ensemble, NULL, &other);
 *       if (rc == ZKE_OK)
 *         rc = zke_create(z, "/global", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
 *                         NULL, NULL);
 *       if (rc == ZKE_OK || rc == ZKE_NODEEXISTS)
 *         rc = zke_mount(&z, "/global", other);
 *       if (rc != ZKE_OK) {
 *         zke_close(other);
 *         zke_close(z);
 *         z = NULL;
 *       }
 *       *z_out = z;
 *       return rc;
 *     }
 *
 * Returns ZKE_OK, or, with all handles unchanged,
 *   ZKE_NONODE        nothing is at prefix
 *   ZKE_NODEEXISTS    something is mounted there already
 *   ZKE_BADARGUMENTS  NULL, a malformed prefix, or "/"; other is z, or comes
 *                     from zke_order() or zke_mount(); a mount lies below
 *                     prefix; there are ZKE_MOUNTS parts
 *   ZKE_MISUSE        z has watchers already
 *   ZKE_READONLY      z is read-only and other is not: the session would have
 *                     no number by which to recognise its own nodes
 *   ZKE_INVALIDSTATE, ZKE_SYSTEMERROR, ZKE_NOMEM as zke_order(), or the codes
 *                     of zke_exists()
 *
 * Blocks: as zke_exists(). */
ZKE_API int zke_mount(zke **z, const char *prefix, zke *other);

#ifdef __cplusplus
}
#endif

#endif
