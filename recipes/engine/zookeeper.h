/* zookeeper.h - the same program on a ZooKeeper ensemble
 *
 * A program that outgrows one host changes the name that it opens.  Programs
 * built on zkembed.h, above all the recipes, run on a ZooKeeper 3.8 ensemble,
 * or on a `zke serve`, as they run on a file.
 *
 *     #include "recipes/engine/zookeeper.h"
 *
 *     static int begin(zke **z_out) {
 *       int rc = zke_register_engine(&zke_zookeeper);
 *       if (rc == ZKE_OK)
 *         rc = zke_open("zk://one:2181,two:2181,three:2181/app", NULL, z_out);
 *       return rc;
 *     }
 *
 * The handle has no thread and uses no signal: it acts only when it is called.
 * If a program neither calls nor dispatches for the session's timeout, it loses
 * its session, as on a file with options.lease_ms.  A program that cannot avoid
 * such a gap should use thread=1.
 *
 * NAMES
 *   zk://host[:port][,host[:port]…][/chroot][?timeout=MS&sync=0&thread=1]
 *   host       a name, an IPv4 address, or an IPv6 address in brackets; at most
 *              64.  They are tried in a random order
 *   port       2181 by default
 *   chroot     every path is below it; it is neither made nor checked.
 *              options.chroot is added below it
 *   timeout    of the session, ms; the server may choose another one.  The
 *              default is options.lease_ms, or options.timeout_ms, else 10000
 *   sync=0     reads may be out of date: see READS
 *   thread=1   a thread of the handle keeps the session: see THREAD
 *
 * A malformed name is ZKE_BADARGUMENTS.  The hosts' names are looked up when
 * the handle is opened, and again after each round in which no server could be
 * reached.  A lookup blocks for as long as the system's resolver does.  If it
 * finds nothing any more, the handle tries the addresses that it knows.
 *
 * OPTIONS.  data_limit, event_limit, busy_timeout_ms, lease_ms, timeout_ms,
 *   identity, chroot, watcher, log and allocator have the same meaning as on a
 *   file.  ZKE_OPEN_READONLY refuses changes, but there is a session.
 *   ZKE_OPEN_EXISTING requires the chroot's node to exist.  The others concern
 *   a file, and are ignored: durability, cache_kib, notice_limit, container_ms,
 *   vfs, os and the other flags.  read_limit is ignored, too: a reply of more
 *   than 64 MiB ends the connection.  The logger hears of connections.  Results
 *   use the allocator; the connection's own memory comes from the C library.
 *
 * CONNECTIONS.  Without a connection zke_state() is ZKE_STATE_CONNECTING; the
 *   session may still be alive.  The default watcher (options.watcher) gets
 *   ZKE_EVENT_SESSION with ZKE_STATE_CONNECTING, and with ZKE_STATE_CONNECTED
 *   when a server has resumed the session; other watchers do not.  If a server
 *   does not answer for two thirds of the timeout, the handle gives up the
 *   connection.
 *   - A call waits for a connection for options.busy_timeout_ms, or up to
 *     zke_limit().  Then it returns ZKE_OPERATIONTIMEOUT; nothing was changed.
 *   - If the connection breaks after a change was sent, the call returns
 *     ZKE_CONNECTIONLOSS: the change was made, or it was not.  The same goes
 *     for a change without a reply when this handle's session ends, unless the
 *     server says that the session has expired.
 *   - If the connection breaks during a read, the read is sent again.
 *   - After a request was sent, its call waits for the reply, even beyond its
 *     deadline, until the handle gives up the connection.
 *   zke_open() returns ZKE_OPERATIONTIMEOUT if no server accepts the session.
 *
 * THREAD.  With thread=1 the handle has a thread from zke_open() to zke_close()
 *   or zke_detach().  It pings, and looks for a server if the connection is
 *   lost.  It dispatches nothing, so watchers run on the same threads as
 *   without it.  It may call the logger.  It blocks all signals.  A forked
 *   child does not have it.  Such a session lives as long as the process: a
 *   program that hangs keeps its locks.  zke_open() returns ZKE_SYSTEMERROR if
 *   the thread cannot be created.
 *
 * READS are linearizable: each follows a sync of its path, in the same packet.
 *   This costs the ensemble's leader a message, but no further round trip.
 *   With sync=0 reads are as in ZooKeeper's clients, and zke_sync() syncs; by
 *   default zke_sync() only reports the handle's state.  Even with sync=0,
 *   reads after a lost connection are synced until one is answered: each of
 *   them shows whether a change that lost its reply was made.
 *
 * WATCHES are ZooKeeper's: an event comes before the reply that shows its
 *   change.  After a lost connection they are set again.  A one-shot watch then
 *   gets what it missed.  A watch that stays does not: its watchers get
 *   ZKE_EVENT_OVERFLOW, and should read again.  All watches are still
 *   registered, unlike after an overflow that dropped events.
 *   zke_event_zxid() is 0 if the server does not send it; ZooKeeper 3.8 does
 *   not.
 *
 * SESSIONS
 *   - A session ends when the ensemble says so, by zke_close() or by
 *     zke_expire(), but not because no server can be reached.  A process that
 *     was stopped for longer than the timeout has lost its session, ephemerals
 *     and locks; it learns this when it next reaches a server.
 *     So use zke_lock_op() or the token to guard what a lock protects.
 *   - Each session publishes an ephemeral node /zke-sessions/<id> with its
 *     identity, process and timeout; zke_sessions() reads these.  If the
 *     ensemble does not allow the node, others do not see the session.
 *     The children of "/" include that name.
 *   - zke_expire() ends this handle's session, and those of other handles of
 *     this process with the same servers in their names.  For all other
 *     sessions it is ZKE_UNIMPLEMENTED: ending one needs its password, which
 *     is not published.
 *   - zke_password(), zke_detach() and zke_attach() are ZooKeeper's: an id
 *     and a password.  A wrong password is ZKE_SESSIONEXPIRED.  A handle that
 *     loses its session to another handle's zke_attach() connects again, and
 *     takes it back: close or detach the handle first.  With timeout_ms 0,
 *     zke_attach() asks for the timeout with which the session was opened,
 *     unless the name gives one.  It asks for 10000 if z has no connection or
 *     the session has published no node.  If zke_attach() fails, it ends
 *     nothing: the session lives on for its timeout.
 *   - A forked child's copy of a handle is ZKE_FORKED everywhere and sends
 *     nothing.  Its descriptors stay open until it execs or exits.
 *
 * OTHER DIFFERENCES from a file
 *   - A change is one frame of at most 1048575 bytes, path and data together,
 *     else ZKE_BADARGUMENTS.  The same limit holds for all paths of a
 *     zke_multi_read(), the path of a zke_discard(), that of a watch, and an
 *     identity of zke_add_auth().  If the servers accept more, set
 *     options.data_limit to that.
 *   - A create returns ZKE_CONNECTIONLOSS if the reply's path is not the one
 *     asked for, with a number if sequential.
 *   - zke_close() is ZKE_OK even if it could not end the session: without a
 *     connection it sends nothing, and it waits for the server's answer for at
 *     most a second.  The session then ends by its timeout; its ephemerals
 *     and locks stay until then.
 *   - The Stat of a create in zke_multi(): czxid, mzxid and pzxid are the
 *     multi's, ctime and mtime are from this host's clock.
 *   - zke_multi_read() is one request.  A server of 3.8 makes no change while
 *     it reads, so the result is one snapshot, as on a file; ZooKeeper does
 *     not promise that.  zke_op_children() fetches all names, even if the
 *     caller asked for some only.
 *   - A server of 3.8 has versions of -1.  A set that asks for -2 skips it, as
 *     on a file; a watch that stays is told twice of such a set.  A set of any
 *     version may lead to -1 there, and zke_set_acl() to an aversion of -1.
 *   - zke_discard() looks for the node and then deletes it, which needs
 *     ZKE_PERM_DELETE on the parent.  With ZKE_EPHEMERAL_SEQUENTIAL its czxid
 *     is not checked: numbers are not given twice.
 *   - zke_remove_watch() of a watch that stays removes it from both tables.
 *   - If zkembed.h has no code for a server's error, it is ZKE_SYSTEMERROR.
 *   - zke_ephemerals() of another session is ZKE_UNIMPLEMENTED; deadlocks
 *     through another session are not found (lock.h).
 *   - ZKE_UNIMPLEMENTED: zke_op_sql, zke_usage, zke_raise_sequence, zke_batch,
 *     zke_vouch, zke_clear_auth, zke_rearm, zke_keepalive_fd, zke_watches,
 *     zke_overdue, zke_check, zke_compact.  A server has no request for them.
 *     Also the functions for a file: zke_history_keep, zke_remove_tables,
 *     zke_sql_adopt and the like.
 *
 * Not offered: TLS (use a tunnel), SASL, and sessions on servers that have lost
 * their quorum (doc/ensemble.md says why).  Identities of zke_add_auth() and
 * all data are sent unencrypted. */
#ifndef ZKE_ZOOKEEPER_H
#define ZKE_ZOOKEEPER_H

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_zookeeper - the engine, for zke_register_engine() */
ZKE_API extern const zke_engine zke_zookeeper;

#ifdef __cplusplus
}
#endif

#endif
