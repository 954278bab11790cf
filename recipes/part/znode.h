/* znode.h - for whoever writes a recipe: znodes that survive lost replies
 *
 * A COMMIT may fail in a way that leaves open whether it was made
 * (ZKE_CONNECTIONLOSS).  The functions here find out, so that a recipe never
 * makes a znode twice and never leaves one behind:
 *
 * - A created znode's name contains a guid, which only its creator can have
 *   given: look for it.
 * - A deleted znode is missing, whichever try has deleted it.
 * - If nothing can be read now, the session is told to remove the znode as soon
 *   as it can (zke_discard()); until then it changes nothing else.
 *
 * This is ZooKeeper's "recoverable errors and the GUID", which Curator calls
 * protection.  An ephemeral that is found counts only if the present session
 * owns it: one of an ended session is about to go (CURATOR-498).  Of several
 * that were made in one step that is not asked; their guid says the session.
 *
 * Begin with zke_recipe_create() and zke_recipe_discard().
 *
 * Unless it says otherwise each function may be called from any thread and in a
 * callback, blocks on the disk, and waits for other processes as long as the
 * thread's zke_limit() says. */
#ifndef ZKEMBED_RECIPES_ZNODE_H
#define ZKEMBED_RECIPES_ZNODE_H

#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name of a protected znode: _c_<guid>-<kind><number>, as Curator has it.
 *
 *     _c_00000001-0000-0007-8000-00000000002a-lock-0000000003
 *        \----------------/ session           \---/\--------/
 *                                             kind  number
 *
 * The guid says which session made it; the rest of the guid tells apart what
 * its processes have made.  The kind says what the znode is for, and the number
 * in which order such znodes were made.  zke_recipe_create() makes such names
 * and zke_recipe_entries() reads them, also with go-zookeeper's guid, which has
 * no dashes. */
#define ZKE_NAME_MARK "_c_"
enum {
  ZKE_NAME_SESSION = 21, /* up to where the guid has told the session */
  ZKE_NAME_HEAD = 39,    /* up to the guid's end */
  ZKE_NAME_KIND = 40,    /* up to where the kind begins */
  ZKE_NAME_ROOM = 48     /* for a slash, all but the kind, and a NUL */
};

/* zke_recipe_place - see to a recipe's directory
 *
 * Its data begins with the line "zkembed <kind>", so that two recipes of
 * different kinds on one path notice.  A missing node is made, with what is
 * missing above it; an existing one with empty data is taken over.  If it is
 * there and says the kind, this costs one read.
 *
 * Example: the directory of locks, to be used until the deadline.
 *
 *     rc = zke_recipe_place(z, "/locks/a", "lock", ZKE_CONTAINER, NULL,
 *                           deadline);
 *
 *   kind         one word: "lock"
 *   mode         of the nodes made: ZKE_CONTAINER or ZKE_PERSISTENT
 *   more         text for the lines after the first if the node is made, or
 *                NULL; each ends with a newline
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Returns ZKE_OK, ZKE_OTHERKIND naming the kind found, or as zke_get(),
 * zke_create(), zke_set() and zke_recipe_do(). */
int zke_recipe_place(zke *z, const char *path, const char *kind, int mode,
                     const char *more, int64_t deadline_ms);

/* zke_recipe_ensure_above - zke_ensure_path() of what is above a path.
 * ZKE_NONODE: the chroot is missing, and the sentence names it */
int zke_recipe_ensure_above(zke *z, const char *path, int mode,
                            int64_t deadline_ms);

/* zke_recipe_place_seen - as zke_recipe_place() without more; *czxid: of the
 * node that says the kind.  It is another one when the node was made anew */
int zke_recipe_place_seen(zke *z, const char *path, const char *kind, int mode,
                          int64_t deadline_ms, int64_t *czxid);

/* zke_recipe_next_version - the version that one zke_set() makes of this one */
int32_t zke_recipe_next_version(int32_t version);

/* zke_recipe_guid - a name that no other thing has: of this session and a
 * number that each process counts up from a random one.  In the form of a UUID;
 * ends with a NUL */
enum { ZKE_RECIPE_GUID = 37 };
void zke_recipe_guid(zke *z, char guid[ZKE_RECIPE_GUID]);

/* zke_recipe_create - create that survives a lost reply
 *
 * Creates a znode in a directory, with a name that contains a guid.  After a
 * lost reply it is looked for by its guid; an ephemeral one counts only if this
 * session owns it.  If it cannot be looked for either, an ephemeral one that
 * may have been made is discarded.  A missing directory is made by
 * zke_recipe_place(), as a container.
 *
 * Example: the last in the line of a lock.
 *
 *     char *path = NULL;
 *     zke_stat stat;
 *     rc = zke_recipe_create(z, "/locks/a", "lock", "lock-", "mine", 4,
 *                            ZKE_EPHEMERAL_SEQUENTIAL, deadline, &path, &stat);
 *     if (rc == ZKE_OK)
 *       rc = zke_recipe_discard(z, path, ZKE_EPHEMERAL, stat.czxid);
 *     zke_free(path);
 *
 *   directory    a whole path
 *   place        the kind that zke_recipe_place() is told if the directory is
 *                missing
 *   kind         "lock-": what stands before the number
 *   data,len     as for zke_create()
 *   mode         ZKE_EPHEMERAL_SEQUENTIAL or ZKE_PERSISTENT_SEQUENTIAL
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *   path_out     out: the znode's whole path, for zke_free()
 *   stat_out     out: its Stat
 *
 * Returns ZKE_OK; ZKE_LIMIT where the directory has given all numbers up to
 * 2^31 - 1, after which they tell no order; or as zke_create() and
 * zke_recipe_place(): then there is no znode, or none will stay.  (A persistent
 * one whose reply was lost, and that could not be looked for, may stay.) */
int zke_recipe_create(zke *z, const char *directory, const char *place,
                      const char *kind, const void *data, int len, int mode,
                      int64_t deadline_ms, char **path_out, zke_stat *stat_out);

/* zke_recipe_multi      - zke_multi()
 * zke_recipe_multi_read - zke_multi_read()
 *
 * Parameters, ownership of the results and codes are theirs, ZKE_BADARGUMENTS
 * for a NULL handle among them; but an ended session reads ZKE_INVALIDSTATE, as
 * in every other call.  Theirs is ZKE_MARSHALLINGERROR, ZooKeeper's
 * (semantics.md 12, #64), which the caller of a recipe must be able to tell
 * from a malformed path.  Threads: any.  In a callback: yes. */
int zke_recipe_multi(zke *z, const zke_op *ops, int count,
                     zke_op_result *results);
int zke_recipe_multi_read(zke *z, const zke_op *ops, int count,
                          zke_op_result *results);

/* zke_recipe_refused - which operation of a failed transaction was refused?
 *
 * A recipe that takes operations of its caller's into a step of its own has
 * them behind its own: the index says whose the refusal is, where a code that
 * both can have does not.
 *
 *   results, count  of zke_recipe_multi() or zke_multi()
 *
 * Returns its index; -1: none of them, the transaction failed as a whole.
 * Threads: any.  Blocks: no. */
int zke_recipe_refused(const zke_op_result *results, int count);

/* zke_recipe_find_twin - is the twin of a znode there?
 *
 * A znode whose path is made again and again has versions that come again, too.
 * A twin that was made in the same step has a name that never does: whoever
 * deletes the znode deletes the twin in that step, and so hits no later one.
 *
 *   path   of the znode that was read, with this czxid
 *   twin   the path of its twin
 *
 * Returns ZKE_OK; ZKE_NONODE: the znode was made by other means, or somebody
 * has deleted the twin alone; ZKE_BADVERSION: the znode has gone since it was
 * read, or another is in its place; else as zke_exists(). */
int zke_recipe_find_twin(zke *z, const char *path, int64_t czxid,
                         const char *twin);

/* zke_recipe_delete - delete somebody's znode
 *
 * It is fine if the znode is missing.  Lost replies and busy databases are
 * retried, as long as any call of the handle may wait.
 *
 * Returns ZKE_OK: it is gone; else as zke_delete(). */
int zke_recipe_delete(zke *z, const char *path);

/* zke_recipe_discard - zke_discard(), with failures retried for a while
 *
 * What a recipe does with its own ephemerals on the way out.  Whatever it
 * returns, the znode is not the recipe's any more: the recipe forgets the path,
 * and says that it is out.  If the deadline has passed this has what is left of
 * the call's ZKE_GRACE_MS; after that it does not wait, and the session removes
 * the znode later.
 *
 *   path, mode, czxid  as for zke_discard()
 *
 * Returns as zke_discard(). */
int zke_recipe_discard(zke *z, const char *path, int mode, int64_t czxid);

/* A znode to be made together with others.  All of it is borrowed for the
 * call. */
typedef struct zke_seat {
  const char *directory; /* a whole path; it has to exist */
  const char *kind;      /* "lock-" */
  const void *data;
  int len; /* bytes of it */
} zke_seat;

/* zke_recipe_create_all - several sequential ephemerals of one guid, in one
 * step; survives a lost reply
 *
 * All are made or none.
 *
 *   seats,count  in one directory or in several; those in one directory get
 *                numbers that follow each other
 *   paths_out    out, not NULL: their whole paths, in that order, one block for
 *                zke_free(); "" for one that was taken away at once; NULL on
 *                failure
 *   czxid_out    out, not NULL: of all of them
 *
 * Returns as zke_recipe_multi(): ZKE_NONODE if a directory is missing;
 * ZKE_LIMIT as zke_recipe_create().  After a failure none will stay. */
int zke_recipe_create_all(zke *z, const zke_seat *seats, int count,
                          int64_t deadline_ms, zke_strings **paths_out,
                          int64_t *czxid_out);

/* zke_recipe_delete_all - zke_recipe_delete() of several, in one step.  One
 * that is refused keeps none of the others.  Returns the first failure */
int zke_recipe_delete_all(zke *z, const zke_strings *paths);

/* zke_recipe_discard_all - zke_recipe_discard() of several (ZKE_EPHEMERAL), in
 * one step unless that fails.  Returns the first failure */
int zke_recipe_discard_all(zke *z, const zke_strings *paths);

/* A directory's entries of the given kinds, by number. */
typedef struct zke_entry {
  const char *name; /* without the directory; in the list's block */
  int kind;         /* index into the kinds asked for */
  int32_t number;   /* the parent's counter when it was made */
} zke_entry;

typedef struct zke_entries {
  int count;
  const zke_entry *data;
  int others; /* children for which zke_recipe_foreign() has a name */
  const zke_entry *other; /* their names alone are set */
} zke_entries;

/* zke_recipe_entries - those of a directory that have such names, sorted
 *
 * Anything else in the directory is ignored: what people put there by hand does
 * no harm.  Numbers are compared as numbers of 32 bits, by their difference:
 * of two, the one that comes first is less than 2^31 before the other.
 *
 * Example: who stands in a line, in order.
 *
 *     const char *const kinds[] = {"lock-"};
 *     zke_entries *e = NULL;
 *     rc = zke_recipe_entries(z, "/locks/a", kinds, 1, NULL, NULL, &e, NULL);
 *     for (int i = 0; rc == ZKE_OK && i < e->count; i++)
 *       printf("%d %s\n", (int)e->data[i].number, e->data[i].name);
 *     zke_free(e);
 *
 *   kinds,count   what may stand before the number
 *   fn,context    a watch of the children, or NULL
 *   entries_out   out: one block, for zke_free(); untouched on failure
 *   stat_out      out: the directory's Stat of the same moment
 *
 * Returns as zke_children(), or ZKE_NOMEM. */
int zke_recipe_entries(zke *z, const char *directory, const char *const *kinds,
                       int count, zke_watch_fn fn, void *context,
                       zke_entries **entries_out, zke_stat *stat_out);

/* zke_recipe_read_entries - read the znodes of a directory's entries, in one
 * snapshot
 *
 *   entries  of zke_recipe_entries() of that directory
 *   got_out  out: one result for each, in their order, ZKE_NONODE for one that
 *            has gone since; for zke_results_clear(), and the array for
 *            zke_free().  NULL after a failure
 *
 * Returns as zke_recipe_multi_read(), or ZKE_NOMEM. */
int zke_recipe_read_entries(zke *z, const char *directory,
                            const zke_entries *entries,
                            zke_op_result **got_out);

/* zke_recipe_foreign - whose entry is a child that no recipe has made?
 *
 * Other libraries have lines, too, and pass over the entries that have other
 * names than theirs: then two hold one lock.
 *
 *   name  without the directory
 *
 * Returns "kazoo", "another library", or NULL for all other names, also those
 * that Curator and go-zookeeper share with zkembed.
 * Threads: any.  Blocks: no. */
const char *zke_recipe_foreign(const char *name);

/* zke_recipe_find - the index of the entry with a name, or -1 */
int zke_recipe_find(const zke_entries *entries, const char *name);

/* zke_recipe_say_held - fail with a sentence that names the holder
 *
 * "the lock /locks/a is held by backup (pid 12) since 2026-11-20T12:00:00Z", or
 * that it was held but is no longer, or that the holder cannot be read.  Behind
 * the pid it says ", this very session," or ", another handle of this very
 * process," if that is so.
 *
 * A holder whose process has died is buried (zke_recipe_bury()).
 *
 *   rc    what is returned
 *   what  "the lock /locks/a"
 *   path  of the holder's znode
 *
 * Returns rc, or ZKE_NONODE instead of ZKE_HELD if the holder has gone. */
int zke_recipe_say_held(zke *z, int rc, const char *what, const char *path);

/* zke_recipe_say_hidden - the last two of these; found: what the read of the
 * holder has said, ZKE_NONODE if it has gone.  Returns rc */
int zke_recipe_say_hidden(int rc, const char *what, int found);

/* zke_recipe_say_used_up - fail with ZKE_LIMIT: a directory gives no more
 * numbers */
int zke_recipe_say_used_up(const char *directory);

/* zke_recipe_bury - end the session that owns a znode if its process has died
 * zke_recipe_bury_all - the same for each of several znodes
 *
 * For a call that is about to say that another process stands in the way.  The
 * kernel knows of a death at once, other processes only after a while.
 *
 * A kept session outlives its process, and another one may take it over: it
 * lives until its timeout is over.
 *
 *   path       of the znode
 *   session    that was seen to own it; 0 for a persistent znode
 *   directory  of several znodes
 *   names      or paths of them, or NULL for none
 *
 * Bury returns ZKE_OK if the session lives, ZKE_NONODE if it was ended or the
 * znode is not its any more, or what a read or zke_expire() returns.  Bury_all
 * returns ZKE_NONODE if at least one of the znodes has gone, else ZKE_OK, or
 * ZKE_NOMEM.  A znode that cannot be judged counts as a living session's. */
int zke_recipe_bury(zke *z, const char *path, int64_t session);
int zke_recipe_bury_all(zke *z, const char *directory,
                        const zke_strings *names);

/* zke_recipe_since - when a holder took office: its write of "held", else its
 * coming */
int64_t zke_recipe_since(const zke_stat *stat, const char *data);

/* ------------------------------------------------------------------------
 * For the parts
 * --------------------------------------------------------------------- */

/* zke_recipe_parse     - read the name of a protected znode
 * zke_recipe_parse_all - the entries among names, sorted, in one block; NULL
 *                        without memory */
bool zke_recipe_parse(const char *name, const char *const *kinds, int count,
                      zke_entry *out);
zke_entries *zke_recipe_parse_all(zke *z, const zke_strings *names,
                                  const char *const *kinds, int count);

/* One protected creation, for a recipe that makes it in a transaction of its
 * own.  The caller sets the first three lines, zke_creation_name() sets guid
 * and given, and the caller frees given and path. */
typedef struct zke_creation {
  const char *directory, *place, *kind; /* as for zke_recipe_create() */
  const void *data;
  int len, mode;
  char guid[ZKE_RECIPE_GUID];
  char *given; /* the path that a create is given: without the number */
  bool unsure; /* a try has lost its reply: it may have made the znode */
  char *path;  /* of the znode, when it was made or found */
  zke_stat stat;
} zke_creation;

/* zke_creation_name    - the guid, and the path that a create is given; suffix:
 *                        behind the kind
 * zke_creation_find    - look for what a lost try has made, which sets path and
 *                        stat; ZKE_NONODE: it made nothing
 * zke_creation_resolve - the creation has failed with rc, and a try may have
 *                        made the znode: see whether it is there, whatever the
 *                        deadline was.  If that cannot be seen, an ephemeral
 *                        one is discarded.  Returns ZKE_OK with the znode, else
 *                        rc */
int zke_creation_name(zke *z, zke_creation *c, const char *suffix);
int zke_creation_find(zke *z, zke_creation *c);
int zke_creation_resolve(zke *z, zke_creation *c, int rc);

#ifdef __cplusplus
}
#endif

#endif
