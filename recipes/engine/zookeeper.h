/* zookeeper.h - the same program on a ZooKeeper ensemble
 *
 * A program that outgrows one host changes the name that it opens.  What is
 * built on zkembed.h, above all the recipes, runs on a ZooKeeper 3.8 ensemble,
 * or on a `zke serve`, as it runs on a file.
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
 * There is no thread and no signal: the handle acts when it is called.  A
 * program that neither calls nor dispatches for as long as the session's
 * timeout loses its session, as a file's does with options.lease_ms.  If it
 * cannot avoid that, it uses thread=1.
 *
 * NAMES
 *   zk://host[:port][,host[:port]…][/chroot][?timeout=MS&sync=0&thread=1]
 *   host       a name, an IPv4 address, or an IPv6 address in brackets; at most
 *              64.  They are tried in a random order
 *   port       2181 by default
 *   chroot     every path is below it; it is neither made nor looked for.
 *              options.chroot comes below it
 *   timeout    of the session, ms; the server may give another one.  Without it
 *              options.lease_ms counts, or options.timeout_ms, else 10000
 *   sync=0     reads may be of the past: see READS
 *   thread=1   a thread of the handle keeps the session: see THREAD
 *
 * A malformed name is ZKE_BADARGUMENTS.  A host's name is looked up when the
 * handle is opened, and again after each round of servers that could not be
 * reached.  That may take as long as the system's resolver does.  If it no
 * longer finds anything, the known addresses are tried.
 *
 * OPTIONS.  data_limit, event_limit, busy_timeout_ms, lease_ms, timeout_ms,
 *   identity, chroot, watcher, log and allocator mean what they mean on a file.
 *   ZKE_OPEN_READONLY refuses changes, but there is a session.
 *   ZKE_OPEN_EXISTING wants the chroot's node to exist.  The others are about a
 *   file, and are ignored: durability, cache_kib, notice_limit, container_ms,
 *   vfs, os and the other flags.  So is read_limit: a reply of more than 64 MiB
 *   ends the connection.  The logger is told of connections.  Memory of the
 *   connection itself is the C library's; results are the allocator's.
 *
 * CONNECTIONS.  While there is none, zke_state() is ZKE_STATE_CONNECTING, and
 *   the session may live.  The default watcher (options.watcher) is told by
 *   ZKE_EVENT_SESSION with ZKE_STATE_CONNECTING, and ZKE_STATE_CONNECTED when a
 *   server has taken the session up again; other watchers are not.  If a server
 *   was asked and says nothing for two thirds of the timeout, it is given up.
 *   - A call waits for a connection for options.busy_timeout_ms, or up to
 *     zke_limit(), then it is ZKE_OPERATIONTIMEOUT: nothing was changed.
 *   - A change whose connection breaks after it was sent is
 *     ZKE_CONNECTIONLOSS: it was made, or was not.  So is one without a reply
 *     when this handle's session ends, unless the server says that it expired.
 *   - A read whose connection breaks is sent again.
 *   - What was sent is waited for until its reply comes or the connection is
 *     given up, beyond the deadline too.
 *   ZKE_OPERATIONTIMEOUT of zke_open(): no server has taken the session.
 *
 * THREAD.  With thread=1 the handle has a thread from zke_open() to zke_close()
 *   or zke_detach().  It pings, and looks for a server if the connection is
 *   lost.  It dispatches nothing, so watchers run on the same threads as ever.
 *   It may call the logger.  It blocks all signals.  A forked child does not
 *   have it.  Such a session lives while the process does: a program that hangs
 *   keeps its locks.  ZKE_SYSTEMERROR of zke_open(): no thread could be made.
 *
 * READS are linearizable: each is preceded by a sync of its path, in the same
 *   packet.  It costs the ensemble's leader a message, and no round trip.  With
 *   sync=0 reads are as ZooKeeper's clients have them, and zke_sync() syncs;
 *   else zke_sync() only reports the handle's state.  But after a lost
 *   connection reads are synced until one has its answer: so each of them tells
 *   whether a change that lost its reply was made.
 *
 * WATCHES are ZooKeeper's: an event comes before the reply that shows its
 *   change.  After a lost connection they are set again.  A one-shot watch then
 *   hears of what it missed.  A watch that stays does not.  So each of its
 *   watchers gets ZKE_EVENT_OVERFLOW, and should read again.  All registered
 *   watches stay, unlike after an overflow that dropped events.
 *   zke_event_zxid() is 0 if the server does not tell it, as ZooKeeper 3.8.
 *
 * SESSIONS
 *   - A session ends when the ensemble says so, by zke_close() and by
 *     zke_expire(); not because no server could be reached for long.  A process
 *     that was stopped for longer than the timeout has lost its session, its
 *     ephemerals and its locks, and learns it when it next reaches a server.
 *     So guard what a lock protects by zke_lock_op() or its token.
 *   - Each session shows itself by an ephemeral node /zke-sessions/<id>, which
 *     has its identity, process and timeout; zke_sessions() reads these.  If
 *     the ensemble does not allow the node, others do not see the session.
 *     Children of "/" have this name, too.
 *   - zke_expire() ends this handle's session and those of other handles of
 *     this process whose names have the same servers.  For all other sessions
 *     it is ZKE_UNIMPLEMENTED: to end a session takes its password, which is
 *     not published.
 *   - zke_password(), zke_detach() and zke_attach() are ZooKeeper's own: an id
 *     and a password.  A wrong password is ZKE_SESSIONEXPIRED.  A handle that
 *     loses its session to zke_attach() of another one connects again, and
 *     takes it back: close or detach the handle first.  With timeout_ms 0,
 *     zke_attach() asks for the timeout that the session was opened with,
 *     unless the name gives one; without a connection of z, or if the session
 *     does not show itself, for 10000.  If zke_attach() fails it ends nothing:
 *     the session lives on for its timeout.
 *   - A forked child's copy of a handle is ZKE_FORKED everywhere and sends
 *     nothing.  Its descriptors stay open until it execs or exits.
 *
 * OTHER DIFFERENCES to a file
 *   - A change is one frame of at most 1048575 bytes, path and data together,
 *     else ZKE_BADARGUMENTS; so are the path of a zke_discard(), that of a
 *     watch and an identity of zke_add_auth().  If the servers take more, set
 *     options.data_limit to that.
 *   - If a create is answered with another path than the one that was asked
 *     for, with its number, it is ZKE_CONNECTIONLOSS.
 *   - zke_close() is ZKE_OK also if it could not end the session: without a
 *     connection it sends nothing, and it waits for the server's answer for a
 *     second at most.  The session then ends by its timeout, and its ephemerals
 *     and locks stay until that.
 *   - The Stat of a create in zke_multi(): czxid, mzxid and pzxid are the
 *     multi's, ctime and mtime this host's clock.
 *   - zke_multi_read() is one request.  A server of 3.8 makes no change while
 *     it reads, so what it gives is one snapshot, as on a file; ZooKeeper does
 *     not promise that.  zke_op_children() fetches all names, and gives some
 *     if only some were asked for.
 *   - A server of 3.8 has versions of -1.  A set that asks for -2 leaves it
 *     out, as on a file; a watch that stays is told of it twice.  A set of any
 *     version may lead to -1 there, and zke_set_acl() to an aversion of -1.
 *   - zke_discard() looks for the node and then deletes it, which needs
 *     ZKE_PERM_DELETE on the parent.  With ZKE_EPHEMERAL_SEQUENTIAL its czxid
 *     is not looked at: numbers are not given twice.
 *   - zke_remove_watch() of a watch that stays removes it from both tables.
 *   - If zkembed.h has no code for a server's error, it is ZKE_SYSTEMERROR.
 *   - zke_ephemerals() of another session is ZKE_UNIMPLEMENTED; deadlocks
 *     through another session are not found (lock.h).
 *   - ZKE_UNIMPLEMENTED: zke_op_sql, zke_usage, zke_raise_sequence, zke_batch,
 *     zke_vouch, zke_clear_auth, zke_rearm, zke_keepalive_fd, zke_watches,
 *     zke_overdue, zke_check, zke_compact.  A server has no request for them.
 *     And what is about a file: zke_history_keep, zke_remove_tables,
 *     zke_sql_adopt and its like.
 *
 * Not offered: TLS (use a tunnel), SASL, and sessions on servers that have lost
 * their quorum (doc/ensemble.md says why).  Identities of zke_add_auth() and
 * all data are sent as they are. */
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
