/* masks.h - what is not compared, or not exactly, and why
 *
 * This is the only table of it.  A row is counted when it is used;
 * cf_masks_print() prints them. */
#ifndef ZKE_CONFORMANCE_MASKS_H
#define ZKE_CONFORMANCE_MASKS_H

#include <stdbool.h>
#include <stdint.h>

/* Name, how it is compared, why it must differ. */
#define CF_MASKS(X)                                                           \
  X(ZXID, "zxids: one to one and in the same order",                          \
    "the server gives a zxid to refused writes and to sessions as well")      \
  X(TIME, "ctime, mtime: equal zxids have equal times, on each side",         \
    "the two sides make a change some microseconds apart")                    \
  X(OWNER, "ephemeralOwner: one to one with the sessions",                    \
    "each side numbers its own sessions")                                     \
  X(NAMES, "children, ephemerals: as sets",                                   \
    "the server lists them in the order of a hash table")                     \
  X(AUTH_ORDER, "digests of equal permissions in a row: as a set",            \
    "the server expands scheme auth in the order of a hash table")            \
  X(ABSENT_STAT, "a Stat that only zkembed gives: not compared",              \
    "the server has forms of create, getChildren and multi without a Stat, "  \
    "and the C client's set_acl keeps it to itself")                          \
  X(END_ORDER, "events of the end of a session: as a set",                    \
    "the server deletes ephemerals in the order of a hash table")             \
  X(CALL_ORDER, "callbacks of one event: as a set",                           \
    "the C client calls watchers in the order of a hash table")               \
  X(RAW_SESSION, "session events of a session on a raw connection: none",     \
    "they are made by the C client, not by the server")                       \
  X(SYNC_PATH, "sync of a malformed path: not compared",                      \
    "zkembed has nothing to sync and does not look at the path")              \
  X(CONNECTION, "session events of connecting: not kept",                     \
    "zkembed has no connection")                                              \
  X(OWN_END,                                                                  \
    "events of a session's own end: as if it were told of the end; over the " \
    "wire, events before the close of a connection: not compared",            \
    "the server sends them while it ends a session, and hardly ever is "      \
    "there somebody to deliver them; and it closes a connection for a bad "   \
    "frame before it has sent everything")                                    \
  X(AUTH_END, "session after failed authentication: ended by the harness",    \
    "the server keeps it until it times out, zke_close() on a file ends it")  \
  X(CLIENT_MULTI,                                                             \
    "refused by the C client, multi: its code is taken as known",             \
    "the C client frees what it never allocated there, or hangs (bugs)")      \
  X(LEFT_WATCH, "remove_all_watches after remove_watches: 0 or no watcher",   \
    "the C client takes one watcher back without telling the server, which "  \
    "then still finds its watch")                                             \
  X(SILENCED,                                                                 \
    "callbacks of one event, or of the end, through the C client where "      \
    "READ may be missing: zkembed's among ZooKeeper's; remove_watches "       \
    "there: not generated",                                                   \
    "the server spends a watch in silence and the client keeps its "          \
    "watcher, to be called with the next one; zkembed spends both")           \
  X(PENDING, "dispatched before a watch is taken back",                       \
    "zkembed promises no callback after that, the client calls what has "     \
    "arrived")                                                                \
  X(NULLS, "ACLs with NULL beside others or in a multi: not generated",       \
    "the server falls over them at one point or another")                     \
  X(MODE,                                                                     \
    "an unknown mode or a bad TTL, in a multi or on a dead session: "         \
    "both refuse",                                                            \
    "zkembed checks modes before anything else")                              \
  X(MODE_CHANGE, "dispatched before a staying watch changes its mode",        \
    "zkembed calls for waiting events by the new mode")                       \
  X(REAPER, "containers and TTL nodes: are not reaped during a run",          \
    "the server's job and zkembed's sweep have their own time")               \
  X(SIZES, "values near a mebibyte: not generated",                           \
    "the server limits the request, zkembed the value")                       \
  X(MIXED_WATCH,                                                              \
    "one-shot and staying watch of one session on one path: "                 \
    "not generated",                                                          \
    "ZooKeeper 3.8.0 loses the staying one (a known bug)")                    \
  X(CHROOT_ROOT, "sequential create of \"/\" under a chroot: not generated",  \
    "the C client makes it outside of the chroot; zkembed refuses")           \
  X(RELATIVE, "relative paths under a chroot: not generated",                 \
    "the C client glues them to the chroot's name; zkembed refuses")          \
  X(IP, "ACLs and identities of scheme ip: over the wire alone",              \
    "zkembed has no addresses")                                               \
  X(QUOTA, "quota nodes: not generated", "zkembed has no quotas")             \
  X(UTF8,                                                                     \
    "paths that are no UTF-8, or beyond U+FFFF, in sync and setWatches over " \
    "the wire: not generated",                                                \
    "Java reads U+FFFD or writes surrogates, and says that in its answer")    \
  X(BAD_WATCH, "malformed paths in setWatches: not generated",                \
    "ZooKeeper tells that such a node was deleted, zkembed passes over it")   \
  X(ALONE,                                                                    \
    "auth, and what ends the connection, over the wire: nothing is sent "     \
    "beside it",                                                              \
    "ZooKeeper deals with it at once, and later with what was sent before")   \
  X(IN_FLIGHT,                                                                \
    "setACL, and createContainer with the flags of an ephemeral node, over "  \
    "the wire: nothing is sent behind it at once",                            \
    "ZooKeeper judges requests that arrive before it is done by the ACL "     \
    "before it, and as if the container were ephemeral")                      \
  X(CONTAINER, "createContainer of a numbered mode: not generated",           \
    "ZooKeeper makes a numbered container, which no client asks for and "     \
    "zkembed does not have")                                                  \
  X(MULTI_TYPE, "creates of a multi: of the type that their mode asks for",   \
    "ZooKeeper goes by the mode there, zkembed by the type")                  \
  X(STALE,                                                                    \
    "a connection whose session another one has taken, over the wire: "       \
    "closed by zkembed",                                                      \
    "ZooKeeper forgets it where one before it closes late")                   \
  X(BLIND, "two servers: a read before all but reads of good paths",          \
    "a refusal or a ping may be answered before the events of the other "     \
    "server's changes")                                                       \
  X(BAD_PATH,                                                                 \
    "create and delete of a malformed path over the wire: both refuse; "      \
    "removeWatches and checkWatches there: no watcher or another code",       \
    "ZooKeeper's server looks at other things before, and has watches that "  \
    "never fire, since its clients send no such path")                        \
  X(BEHIND_ERROR,                                                             \
    "multiRead of a type that none has: results behind the error",            \
    "clients read nothing behind an error")                                   \
  X(BOTH_TABLES,                                                              \
    "on an ensemble, remove_watches of one kind of a staying watch: of both", \
    "the engine takes such a watch back as a whole, the server by its table") \
  X(SHOWN,                                                                    \
    "on an ensemble, /zke-sessions: not compared, nor its nodes in counts",   \
    "the engine makes a node there for each session, that others can name "   \
    "its owner")                                                              \
  X(OTHER_WATCH, "checkWatches over the wire: 0 or no watcher",               \
    "ZooKeeper 3.8.0 finds the watches of other connections (a known bug)")

#define CF_MASK_ENUM(name, how, why) CF_MASK_##name,
enum { CF_MASKS(CF_MASK_ENUM) CF_MASK_COUNT };
#undef CF_MASK_ENUM

extern int64_t cf_mask_used[CF_MASK_COUNT]; /* how often each was needed */

/* The needed rows, with their counts; or all, with their reasons. */
void cf_masks_print(bool counts);

#endif
