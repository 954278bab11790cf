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
 * Both give handles of an engine of their own (zkembed.h, "Other engines"),
 * which hands each call on to a PART: an existing handle.  The functions of
 * zkembed.h and the recipes take them as any other.  doc/composition.md says
 * how the order comes about and why it is right.
 *
 * Why the handles are replaced.  With a handle outside of the order, a program
 *   could read what is older than what it has heard elsewhere.  So the variable
 *   that held a part holds what keeps the order from then on: the program below
 *   that line stays as it was, and nothing else refers to the part any more.
 *   The part belongs to the new handle and is closed with it.
 *
 * ORDER.  What one program does through the handles, and hears through their
 *   watchers, fits one order of everything that happens on all services.  Its
 *   own steps stand in that order as it has made them.  Before the first read
 *   on a part after a call on another part, or an event of another one,
 *   zke_sync() is called there; a change needs none.  A file is never late, and
 *   is not asked.  With several threads: what one has done before another
 *   begins counts for the other, too.
 *
 * SESSION.  The parts' sessions are one: when the first one ends, the others
 *   are ended (zke_expire()).  Each pair of function and context that watches
 *   anything is told once, and calls are ZKE_INVALIDSTATE from then on.  What
 *   the others owned goes when that could be written, at the latest in
 *   zke_close().  An ensemble that cannot be reached is not waited for: a later
 *   call or dispatch ends its session, or its timeout does.  An engine that
 *   cannot end its session keeps it until zke_close().  So when a session has
 *   ended, a program that holds a lock on one part must not rely on a lock on
 *   another.  zke_sleep() keeps all parts' leases that are a second or longer.
 *
 * MOUNT.  A path at or below a prefix is the part's, without the prefix; all
 *   other paths are the first handle's, the base.
 *   - Paths in results and events are the caller's.  Sentences of zke_errmsg()
 *     say "below /global:" and the part's path.
 *   - The mount point must exist in the base, as in Unix.  So the children of
 *     its parent show it.  It, and what lies below it in the base, is hidden.
 *     As it is the part's "/", it cannot be deleted; and its parent is not
 *     empty.  If another program deletes it in the base, it is no longer among
 *     the children, and nothing else changes.
 *   - zke_session_id() is the base's.  A Stat's ephemeralOwner is that number
 *     if the own session of any part owns the node: so recipes know what is
 *     theirs.  Another session's number on another part than the base is shown
 *     with a mark of the part in it: the same number of two services is two.
 *     zke_sessions(), zke_expire() and zke_ephemerals() take what is shown.  A
 *     list of all sessions has the own one once, as the base has it.
 *   - zxids (zke_zxid(), a Stat's) are the part's.  Those of one part compare,
 *     those of two do not.
 *   - zke_op_sql() is for the part that the other operations of the call are
 *     on, since the two are one transaction; alone, for the base.
 *   - Refused with ZKE_UNIMPLEMENTED, since it would not be true: a multi or a
 *     multi_read with paths in two parts; zke_count(), zke_usage(), an
 *     operation of zke_op_untold() and a recursive watch above a mount point;
 *     and, with a mount, zke_batch(), zke_dispatch_to(), zke_keepalive_fd(),
 *     zke_watches() and a chroot for zke_open_session().
 *   - A file that was opened with ZKE_OPEN_READONLY may be mounted.  It has no
 *     events, and waits for those of the other parts go on as without it.
 *
 * Kept sessions (zke_attach() and its like) are ZKE_UNIMPLEMENTED.
 *
 * The parts' options.watcher is replaced: zke_set_watcher() of the new handle
 *   sets its default watcher.  All parts must have one clock: the system's, as
 *   by default, or one options.os.
 *
 * Memory.  What is noted of a pair of function and context stays until
 *   zke_forget() or zke_close(), about 64 bytes; of a default watcher until
 *   zke_close().
 *
 * zke_close() waits until calls of other threads have returned, and closes the
 *   parts in the order in which they came.
 *
 * fork(), threads, cancellation and callbacks are as zkembed.h says.  Of both
 * functions: Threads: any.  In a callback: not of one of the handles. */
#ifndef ZKEMBED_RECIPES_COMPOSE_H
#define ZKEMBED_RECIPES_COMPOSE_H

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { ZKE_MOUNTS = 16 }; /* parts of one handle, the base among them */

/* zke_order - from now on these handles keep one order, and are one session
 *
 * Each is replaced by one that shows the same tree.  zke_open_session() of one
 * of them gives a session of that part alone, which is in no order with others.
 *
 *   handles  in and out: n different handles that nothing else uses: neither
 *            another thread, nor a recipe's object, nor a watch.  They may also
 *            come from zke_order() or zke_mount(): their orders become one.
 *            Then the other handles of these orders must not be used meanwhile
 *   n        1 or more
 *
 * Returns ZKE_OK, or, with all as it was,
 *   ZKE_BADARGUMENTS  NULL, or the same handle twice
 *   ZKE_INVALIDSTATE  a session among them has ended
 *   ZKE_MISUSE        called in a callback of one that is composed already
 *   ZKE_SYSTEMERROR   the process has no descriptors left
 *   ZKE_NOMEM, or what zke_set_watcher() of a handle says; then the default
 *                     watchers of the handles before it are gone
 *
 * Blocks: no. */
ZKE_API int zke_order(zke **handles, int n);

/* zke_mount - show another service's tree below a prefix
 *
 * *z is replaced by a handle that shows both, and keeps their order.  If it
 * came from zke_mount() or zke_order() already, the part is added to it.  Of
 * two mounts, one inside the other, the upper one comes first.  The descriptor
 * of zke_fd() changes once there are two parts.
 *
 *   z       in and out: as for zke_order()
 *   prefix  of a node that exists in z, not "/"; copied
 *   other   a handle that zke_open() or zke_open_session() has given; it
 *           belongs to *z afterwards
 *
 * Example: the jobs of all hosts, from an ensemble, in a host's own tree.
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
 * Returns ZKE_OK, or, with all as it was,
 *   ZKE_NONODE        nothing is at prefix
 *   ZKE_NODEEXISTS    something is mounted there already
 *   ZKE_BADARGUMENTS  NULL, a malformed prefix, or "/"; other is z, or
 *                     zke_order() or zke_mount() gave it; a mount lies below
 *                     prefix; there are ZKE_MOUNTS parts
 *   ZKE_MISUSE        z has watchers already
 *   ZKE_READONLY      z is read-only and other is not: the session would have
 *                     no number by which own nodes are known
 *   ZKE_INVALIDSTATE, ZKE_SYSTEMERROR, ZKE_NOMEM as zke_order(), or what
 *                     zke_exists() says
 *
 * Blocks: as zke_exists(). */
ZKE_API int zke_mount(zke **z, const char *prefix, zke *other);

#ifdef __cplusplus
}
#endif

#endif
