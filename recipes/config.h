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
 * This is the cache recipe: what Curator calls NodeCache is levels -1,
 * PathChildrenCache levels 1, CuratorCache and TreeCache (kazoo's too) levels
 * 0.  A cache of the members of a group is group.h.
 *
 * LAYOUT: any tree of plain nodes can be watched.  Nothing is marked, and only
 * zke_config_set() makes anything.
 *
 * WHAT IS SEEN is one moment of the file, never a mixture of two: what a multi
 * changes is seen changed together.  Several changes in a row may be seen as
 * one.  Nodes are compared by mzxid, so a node that was deleted and made again
 * is a change (its czxid tells).  The root may be missing, come, go and come
 * again.
 *
 * COST.  A change costs the reading of what has changed, however many nodes are
 * watched.  Changes that have come together are read together.
 * Everything is read at the start, 5 to 25 us a node, and again if it is not
 * known what has changed: events were dropped (event_limit), a look failed, a
 * thousand changes have come together, or one of a node that may not be read.
 * All of it is in memory.  All levels together cost one watch.
 *
 * A FILTER (options.select) says of each name whether the node is kept, and
 * whether what is below it is looked at:
 *
 *     static int db_only(const char *name, void *context) {
 *       if (!*name) return ZKE_CONFIG_DESCEND;      (the root: only through it)
 *       bool db = !strcmp(name, "db") || !strncmp(name, "db/", 3);
 *       return db ? ZKE_CONFIG_INCLUDE | ZKE_CONFIG_DESCEND : 0;
 *     }
 *
 * What it leaves out is not read; its events are taken from the file.
 *
 * IF THE PROCESS DIES nothing is left: the watch is the session's.  A set is
 * one step, or several if parents are missing: these stay.
 *
 * WHO IS WOKEN: all that watch, by every change: that is its purpose.
 *
 * LOSING THE SESSION: the listener hears ZKE_CONFIG_LOST, every call except
 * free returns ZKE_INVALIDSTATE: what is in memory is not current any more.
 *
 * FENCING: a node's mzxid, greater with every change.  What only the holder of
 * something may set is set by zke_config_set_guarded().
 *
 * LIMITS.  A watch of mode ZKE_WATCH_PERSISTENT on the same path by the same
 * session replaces this one (zke_add_watch()): do not register one.  Nodes that
 * the session may not read are not seen, nor what is below them.  A change of
 * an ACL is no event: what it hides or shows is hidden or shown at the node's
 * next change at the latest.
 *
 * ON AN ENSEMBLE (zookeeper.h): after a lost connection it reads all again, and
 * tells what it then finds changed as one change.  Nothing else differs.
 *
 * MISTAKES, and what they come to:
 * - Never dispatching: the memory stays as it was at the start.  The blocking
 *   calls of any recipe on the handle dispatch, too.
 * - Reading two settings by two calls of zke_config_get(): a change may come
 *   between them.  zke_config_list() gives both as of one moment.
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

/* What the listener hears. */
enum {
  ZKE_CONFIG_ADDED = 1,   /* before is NULL */
  ZKE_CONFIG_CHANGED = 2, /* mzxid differs; czxid as well: made again */
  ZKE_CONFIG_REMOVED = 3, /* now is NULL */
  ZKE_CONFIG_READY = 4,   /* all that was there at the start has been told;
                             both are NULL */
  ZKE_CONFIG_LOST = 5     /* the session has ended; both are NULL */
};

/* before and now are the recipe's, and live until the listener returns.  It may
 * call the object or free it. */
typedef void (*zke_config_fn)(zke_config *config, int event,
                              const zke_config_node *before,
                              const zke_config_node *now, void *context);

/* What becomes of a node: a sum of these.  0: neither it nor what is below it
 * is kept, read or told of. */
enum {
  ZKE_CONFIG_INCLUDE = 1, /* it is kept and told of */
  ZKE_CONFIG_DESCEND = 2 /* its children are looked at, each asked for itself */
};

/* A filter, asked for each name below the root, and for the root itself by "".
 * It must give one name the same answer each time, and must not call zkembed:
 * the object's mutex is held, and others may be waiting. */
typedef int (*zke_config_select_fn)(const char *name, void *context);

typedef struct zke_config_options {
  size_t size;
  int levels; /* below the root that are watched; 0: all, -1: none, that is
                 the node alone */
  zke_config_fn listener;
  void *context;               /* the listener's and the filter's */
  zke_config_select_fn select; /* NULL: everything; its bounds add to levels */
} zke_config_options;

/* zke_config_new - an object for one tree; does not touch it
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

/* zke_config_free - take back the watch, release the object
 *
 * Copies that the object gave stay valid. */
ZKE_API void zke_config_free(zke_config *config);

/* zke_config_start - read all and keep it current from now on
 *
 * The listener hears of every node first, then ZKE_CONFIG_READY; later of each
 * change, on the thread that calls zke_dispatch() or zke_wait().
 *
 * Returns ZKE_OK, also if the root is missing, or why the file could not be
 * read: then the call can be repeated. */
ZKE_API int zke_config_start(zke_config *config);

/* zke_config_step - look again now */
ZKE_API int zke_config_step(zke_config *config);

/* zke_config_get - a node out of memory
 *
 * It costs no transaction, and is as of the last event that was dispatched.
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
 * I/O except that of another thread which is just bringing the memory up to
 * date. */
ZKE_API int zke_config_get(zke_config *config, const char *name,
                           char **data_out, int *len_out, zke_stat *stat_out);

/* zke_config_list - a node and all below it out of memory, of one moment
 *
 * Example: all settings, as they belong together.
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

/* zke_config_revision - how often it has changed: 0 before the start, 1 after
 * it, more with every change seen.  Of this object only.  Blocks: no. */
ZKE_API int64_t zke_config_revision(zke_config *config);

/* zke_config_wait - wait until something has changed
 *
 * Example: a loop that does something after each change of anything.
 *
 *     int64_t revision = 0;
 *     while (zke_config_wait(config, NULL, revision, deadline, &revision) ==
 *            ZKE_OK)
 *       printf("revision %lld\n", (long long)revision);
 *
 *   name, since  NULL: until the revision is greater than this one; 0: until
 *                started, which this call does if it has not been done.
 *                A node, "" for the path itself: until its mzxid is not this
 *                one; 0: until it is there.  Borrowed until the call returns
 *   now_out      out: the revision, or the mzxid, 0 if the node has gone
 *
 * Returns ZKE_OK, or ZKE_OPERATIONTIMEOUT, when the sentence says what did not
 * change, ZKE_CANCELLED, ZKE_MISUSE, ZKE_INVALIDSTATE, or what
 * zke_config_start() returns. */
ZKE_API int zke_config_wait(zke_config *config, const char *name, int64_t since,
                            int64_t deadline_ms, int64_t *now_out);

/* zke_config_cancel - another thread's call with a deadline returns
 * ZKE_CANCELLED, or what it has come to; ZKE_IDLE if none runs */
ZKE_API int zke_config_cancel(zke_config *config);

/* zke_config_set - change a node in the file
 *
 * Memory follows when the event is dispatched.  Survives lost replies.  Costs
 * one write, with a version one small read before it, and one more write if the
 * node must be made.
 *
 * Example: change what was read, and nothing else.
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
 *   deadline_ms  for repeating what got no reply
 *   stat_out     out: the Stat after the change
 *
 * Returns ZKE_OK, or as zke_set() and zke_create().  With a version, after a
 * lost reply, ZKE_OK may also mean that another process has written the same
 * data over that version: if it matters who did, write data that differ.
 * ZKE_BADVERSION says that the change was not made.  ZKE_CONNECTIONLOSS says
 * that the reply was lost, and one of these:
 * - others have since changed or deleted the node, or made it again, so it does
 *   not tell whether the change was made.  If others have made it again, it is
 *   not set
 * - no time was left to try again.  With a version, a last look found the node
 *   as it was before, or could not read it; without one there is no such look
 */
ZKE_API int zke_config_set(zke_config *config, const char *name,
                           const void *data, int len, int version,
                           int64_t deadline_ms, zke_stat *stat_out);

/* zke_config_set_guarded - zke_config_set() in one step with guards
 *
 * For a setting that only the holder of something may change: a lock's or a
 * leader's, say.  What a former holder sets late is refused.
 *
 * Example: a guard of any kind is an operation that checks.
 *
 *     zke_op guard;
 *     zke_op_check(&guard, "/app/owner", 3);
 *     rc = zke_config_set_guarded(config, "mode", "on", 2, -1, &guard, 1,
 *                                 deadline, NULL);
 *     if (rc == ZKE_LOST) printf("%s\n", zke_errmsg());
 *
 * A guard that writes would write again if a reply was lost and the change
 * repeated.  So only checks are guards, and zke_op_sql() is none: for a row and
 * a setting in one step use zke_multi().
 *
 *   guards, count  zke_op_check() or what a recipe's op function fills in for a
 *                  holder; 0: none
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
