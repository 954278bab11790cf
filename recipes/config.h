/* config.h - a node, or all below it, kept current in memory
 *
 *     static void changed(zke_config *config, int event,
 *                         const zke_config_node *before,
 *                         const zke_config_node *now, void *context) {
 *       if (event == ZKE_CONFIG_CHANGED)
 *         printf("%s was %s, is %s\n", now->name, before->data, now->data);
 *     }
 *
 *     zke_config_options o = ZKE_INIT(zke_config_options);
 *     zke_config *config;
 *     char *host;
 *     o.listener = changed;
 *     zke_config_new(z, "/app/config", &o, &config);
 *     zke_config_start(config);
 *     zke_config_get(config, "db/host", &host, NULL, NULL);  // from memory
 *     zke_wait(z, deadline);  // and the listener is called
 *     zke_config_free(config);
 *
 * support.h has the rules of all recipes (threads, time, failure, errors).
 * This is the cache recipe.  Curator's NodeCache is levels -1, its
 * PathChildrenCache levels 1, and CuratorCache and TreeCache (kazoo's too) are
 * levels 0.  A cache of the members of a group is group.h.
 *
 * LAYOUT: any tree of plain nodes can be watched.  Nothing is marked, and only
 * zke_config_set() makes anything.
 *
 * WHAT IS SEEN is a snapshot of the file: the changes of a multi are seen
 * together.  Several changes in a row may be seen as one.  Nodes are compared
 * by mzxid, so a node that was deleted and made again counts as changed (its
 * czxid tells).  The root may be missing, come, go and come again.
 *
 * COST.  A change costs reading the changed nodes, however many nodes are
 * watched.  Changes that arrive together are read together.
 * Everything is read at the start, 5 to 25 us a node, and again if the changes
 * are not known exactly: events were dropped (event_limit), a look failed, a
 * thousand changes arrived together, or a node changed that may not be read.
 * Everything is kept in memory.  All levels together cost one watch.
 *
 * A FILTER (options.select) says for each name whether to keep the node, and
 * whether to look below it:
 *
 *     static int db_only(const char *name, void *context) {
 *       if (!*name) return ZKE_CONFIG_DESCEND;      (the root: only through it)
 *       bool db = !strcmp(name, "db") || !strncmp(name, "db/", 3);
 *       return db ? ZKE_CONFIG_INCLUDE | ZKE_CONFIG_DESCEND : 0;
 *     }
 *
 * Nodes that it leaves out are not read; their events are still taken from the
 * file.
 *
 * IF THE PROCESS DIES nothing is left: the watch belongs to the session.  A set
 * is one step, or several if parents are missing: parents stay.
 *
 * WHO IS WOKEN: all that watch, by every change: that is the purpose.
 *
 * LOSING THE SESSION: the listener hears ZKE_CONFIG_LOST, and every call except
 * free returns ZKE_INVALIDSTATE: the memory is not current any more.
 *
 * FENCING: a node's mzxid, greater with every change.  If only the holder of
 * something may change a setting, use zke_config_set_guarded().
 *
 * LIMITS.  A watch of mode ZKE_WATCH_PERSISTENT on the same path by the same
 * session replaces this one (zke_add_watch()): do not register one.  Nodes that
 * the session may not read are not seen, and nothing below them is.  A change
 * of an ACL is no event: the node is shown at its next change at the latest,
 * and hidden at the next change that the session may see.
 *
 * ON AN ENSEMBLE (zookeeper.h): after a lost connection it reads everything
 * again, and tells all changes that it finds as one change.  Everything is read
 * by one request: so more than a few thousand nodes are ZKE_BADARGUMENTS,
 * unless options.data_limit says that the servers accept more.  Nothing else
 * differs.
 *
 * MISTAKES, and their results:
 * - Never dispatching: the memory stays as it was at the start.  The blocking
 *   calls of any recipe on the handle dispatch, too.
 * - Reading two settings by two calls of zke_config_get(): a change may come
 *   between them.  zke_config_list() gives both from one moment.
 * - Keeping `before` or `now` after the listener has returned: they are gone.
 * - Starting at a root with a million nodes: all of them are in memory.  Set
 *   levels, or a filter.
 */
#ifndef ZKEMBED_RECIPES_CONFIG_H
#define ZKEMBED_RECIPES_CONFIG_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_config zke_config;

/* A node of the tree. */
typedef struct zke_config_node {
  const char *name; /* below the root: "db/host"; "": the root itself */
  const char *data; /* followed by a NUL that is not counted, or NULL */
  int len;          /* bytes; -1: NULL data */
  zke_stat stat;
  int64_t reserved[4];
} zke_config_node;

/* One block, released by zke_free(); sorted by name. */
typedef struct zke_config_tree {
  int count;
  const zke_config_node *data;
} zke_config_tree;

/* The listener's events. */
enum {
  ZKE_CONFIG_ADDED = 1,   /* before is NULL */
  ZKE_CONFIG_CHANGED = 2, /* mzxid differs; czxid as well: made again */
  ZKE_CONFIG_REMOVED = 3, /* now is NULL */
  ZKE_CONFIG_READY = 4,   /* all nodes that were there at the start have been
                             told; both are NULL */
  ZKE_CONFIG_LOST = 5     /* the session has ended; both are NULL */
};

/* before and now belong to the recipe, and live until the listener returns.  It
 * may call the object or free it. */
typedef void (*zke_config_fn)(zke_config *config, int event,
                              const zke_config_node *before,
                              const zke_config_node *now, void *context);

/* A filter's answer for a node: a sum of these.  0: neither the node nor
 * anything below it is kept, read or told. */
enum {
  ZKE_CONFIG_INCLUDE = 1, /* keep it, and tell the listener */
  ZKE_CONFIG_DESCEND = 2  /* look at its children, and ask for each */
};

/* A filter, called for each name below the root, and with "" for the root
 * itself.  It must always give the same answer for a name, and must not call
 * zkembed: the object's mutex is held, and others may be waiting. */
typedef int (*zke_config_select_fn)(const char *name, void *context);

typedef struct zke_config_options {
  size_t size;
  int levels; /* watched levels below the root; 0: all, -1: none, only the
                 node itself */
  zke_config_fn listener;
  void *context;               /* the listener's and the filter's */
  zke_config_select_fn select; /* NULL: everything; levels still holds */
} zke_config_options;

/* zke_config_new - an object for one tree; does not touch the tree
 *
 * Example: one node and its children, no deeper.
 *
 *     zke_config_options o = ZKE_INIT(zke_config_options);
 *     o.levels = 1;
 *     rc = zke_config_new(z, "/app/flags", &o, &config);
 *     if (rc == ZKE_OK) rc = zke_config_start(config);
 *
 *   path        of the root, which need not exist; not "/"
 *   options     NULL for the defaults; copied
 *   config_out  out; for zke_config_free()
 *
 * Returns ZKE_OK, or ZKE_BADARGUMENTS also for levels below -1. */
ZKE_API int zke_config_new(zke *z, const char *path,
                           const zke_config_options *options,
                           zke_config **config_out);

/* zke_config_free - remove the watch, and release the object
 *
 * Copies that the object gave stay valid. */
ZKE_API void zke_config_free(zke_config *config);

/* zke_config_start - read everything and keep it current from now on
 *
 * The listener hears of every node first, then ZKE_CONFIG_READY, and then of
 * each change, on the thread that calls zke_dispatch() or zke_wait().
 *
 * Returns ZKE_OK, even if the root is missing, or the reason why the file could
 * not be read: then the call can be repeated. */
ZKE_API int zke_config_start(zke_config *config);

/* zke_config_step - look again now */
ZKE_API int zke_config_step(zke_config *config);

/* zke_config_get - a node from memory
 *
 * It costs no transaction, and shows the node as of the last event dispatched.
 *
 * Example: a setting, or its default.
 *
 *     char *host = NULL;
 *     rc = zke_config_get(config, "db/host", &host, NULL, NULL);
 *     if (rc == ZKE_NONODE) rc = ZKE_OK;
 *     if (rc == ZKE_OK) printf("%s\n", host ? host : "localhost");
 *     zke_free(host);
 *
 *   name      below the root, or ""
 *   data_out  out: one block for zke_free(), with a NUL after the data; NULL
 *             for NULL data; len_out: -1 then
 *
 * Returns ZKE_OK, ZKE_NONODE, or ZKE_MISUSE before the start.  Blocks: on no
 * I/O, except while another thread updates the memory. */
ZKE_API int zke_config_get(zke_config *config, const char *name,
                           char **data_out, int *len_out, zke_stat *stat_out);

/* zke_config_list - a node and everything below it from memory, as of one
 * moment
 *
 * Example: all settings, as of one moment.
 *
 *     zke_config_tree *all;
 *     rc = zke_config_list(config, "", &all);
 *     for (int i = 0; rc == ZKE_OK && i < all->count; i++)
 *       printf("%s = %s\n", all->data[i].name, all->data[i].data);
 *     if (rc == ZKE_OK) zke_free(all);
 *
 *   name      below the root; "" for everything
 *   tree_out  count 0 if nothing is there
 *
 * Returns and blocks as zke_config_get(), but never ZKE_NONODE. */
ZKE_API int zke_config_list(zke_config *config, const char *name,
                            zke_config_tree **tree_out);

/* zke_config_revision - the number of changes seen: 0 before the start, 1 after
 * it, greater after every change seen.  Of this object only.  Blocks: no. */
ZKE_API int64_t zke_config_revision(zke_config *config);

/* zke_config_wait - wait until something has changed
 *
 * The call starts the object if necessary.
 *
 * Example: a loop that does something after each change of any node.
 *
 *     int64_t revision = 0;
 *     while (zke_config_wait(config, NULL, revision, deadline, &revision) ==
 *            ZKE_OK)
 *       printf("revision %lld\n", (long long)revision);
 *
 *   name, since  name NULL: wait until the revision is greater than since; 0:
 *                until started.  A node, "" for the path itself: until its
 *                mzxid differs from since; 0: until it exists.  name is
 *                borrowed until the call returns
 *   now_out      out: the revision, or the mzxid, 0 if the node has gone
 *
 * Returns ZKE_OK; ZKE_OPERATIONTIMEOUT, with a sentence that says what did not
 * change; ZKE_CANCELLED, ZKE_MISUSE, ZKE_INVALIDSTATE; or as
 * zke_config_start(). */
ZKE_API int zke_config_wait(zke_config *config, const char *name, int64_t since,
                            int64_t deadline_ms, int64_t *now_out);

/* zke_config_cancel - another thread's call with a deadline returns
 * ZKE_CANCELLED, or the result it has reached; ZKE_IDLE if none runs */
ZKE_API int zke_config_cancel(zke_config *config);

/* zke_config_set - change a node in the file
 *
 * Memory follows when the event is dispatched.  The call resolves lost replies.
 * It costs one write; with a version one small read before it, and one more
 * write if the node must be made.
 *
 * Example: change a setting only if it is still as it was read.
 *
 *     zke_stat stat;
 *     rc = zke_config_get(config, "db/host", NULL, NULL, &stat);
 *     if (rc == ZKE_OK)
 *       rc = zke_config_set(config, "db/host", "b", 1, stat.version, deadline,
 *                           NULL);
 *     if (rc == ZKE_BADVERSION) printf("somebody was faster\n");
 *
 *   name         below the root, or ""
 *   data,len     as for zke_create()
 *   version      as for zke_set(); -1 also makes the node and its parents if
 *                they are missing
 *   deadline_ms  for repeating calls that got no reply
 *   stat_out     out: the Stat after the change
 *
 * Returns ZKE_OK, or as zke_set() and zke_create().  With a version, after a
 * lost reply, ZKE_OK may also mean that another process has written the same
 * data over that version: if it matters which process did, write data that
 * differ.  ZKE_BADVERSION means that the change was not made.
 * ZKE_CONNECTIONLOSS means that the reply was lost, and one of these:
 * - others have since changed or deleted the node, or made it again, so it does
 *   not show whether the change was made.  If others have made it again, the
 *   call does not set it
 * - no time was left to try again.  With a version, a last look found the node
 *   as it was before, or could not read it; without one there is no such look
 */
ZKE_API int zke_config_set(zke_config *config, const char *name,
                           const void *data, int len, int version,
                           int64_t deadline_ms, zke_stat *stat_out);

/* zke_config_set_guarded - zke_config_set() in one step with guards
 *
 * For a setting that only the holder of something may change, such as a lock or
 * the lead.  If a former holder sets it late, the call fails.
 *
 * Example: any operation that only checks can be a guard.
 *
 *     zke_op guard;
 *     zke_op_check(&guard, "/app/owner", 3);
 *     rc = zke_config_set_guarded(config, "mode", "on", 2, -1, &guard, 1,
 *                                 deadline, NULL);
 *     if (rc == ZKE_LOST) printf("%s\n", zke_errmsg());
 *
 * A guard that writes would write again if a reply was lost and the change was
 * repeated.  So only checks can be guards, and not zke_op_sql(): for a row and
 * a setting in one step use zke_multi().
 *
 *   guards, count  zke_op_check(), or the operations that a recipe's op
 *                  function fills in for a holder; 0: none
 *
 * Returns as zke_config_set(), but ZKE_MARSHALLINGERROR for a malformed name;
 * or
 *   ZKE_LOST            a guard does not hold, nothing was set; the sentence
 *                       names it
 *   ZKE_CONNECTIONLOSS  as zke_config_set(); or a reply was lost, and then a
 *                       guard did not hold any more: whether it was set is not
 *                       known
 *   ZKE_BADARGUMENTS    a guard that changes something */
ZKE_API int zke_config_set_guarded(zke_config *config, const char *name,
                                   const void *data, int len, int version,
                                   const zke_op *guards, int count,
                                   int64_t deadline_ms, zke_stat *stat_out);

#ifdef __cplusplus
}
#endif

#endif
