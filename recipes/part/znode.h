/* znode.h - for recipe authors: znodes that survive lost replies
 *
 * A COMMIT may fail in a way that leaves open whether it was made
 * (ZKE_CONNECTIONLOSS).  The functions here find out, so a recipe never
 * makes a znode twice and never leaves a stray one:
 *
 * - A created znode's name contains a guid that only its creator can have
 *   given: look for it.
 * - A deleted znode is missing, whichever try has deleted it.
 * - If nothing can be read now, the session is told to remove the znode as soon
 *   as it can (zke_discard()); until then it changes nothing else.
 *
 * This is ZooKeeper's "recoverable errors and the GUID", which Curator calls
 * protection.  An ephemeral that is found counts only if the present session
 * owns it: one of an ended session is about to go (CURATOR-498).  If several
 * were made in one step, the owner is not checked; their guid names the
 * session.
 *
 * Begin with zke_recipe_create() and zke_recipe_discard().
 *
 * Unless it says otherwise, each function may be called from any thread and in
 * a callback, blocks on the disk, and waits for other processes up to the
 * thread's zke_limit(). */
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
 * The guid says which session made it; the rest of the guid tells the znodes of
 * that session's processes apart.  The kind says what the znode is for; the
 * number says in which order such znodes were made.  zke_recipe_create() makes
 * such names and zke_recipe_entries() reads them, also with go-zookeeper's
 * guid, which has no dashes. */
#define ZKE_NAME_MARK "_c_"
enum {
  ZKE_NAME_SESSION = 21, /* up to the end of the session in the guid */
  ZKE_NAME_HEAD = 39,    /* up to the end of the guid */
  ZKE_NAME_KIND = 40,    /* up to the beginning of the kind */
  ZKE_NAME_ROOM = 48     /* for a slash, all but the kind, and a NUL */
};

/* zke_recipe_place - make or check a recipe's directory
 *
 * Its data begins with the line "zkembed <kind>", so two recipes of different
 * kinds on one path notice.  A missing node is made, with the missing nodes
 * above it; an existing one with empty data is taken over.  If it exists and
 * says the kind, this costs one read.
 *
 * Example: get the directory of locks ready, before the deadline.
 *
 *     rc = zke_recipe_place(z, "/locks/a", "lock", ZKE_CONTAINER, NULL,
 *                           deadline);
 *
 *   kind         one word: "lock"
 *   mode         of the nodes made: ZKE_CONTAINER or ZKE_PERSISTENT
 *   more         text for the lines after the first if the node is made, or
 *                NULL; each ends with a newline
 *   deadline_ms  of zke_now(), for repeating steps without a reply
 *
 * Returns ZKE_OK, ZKE_OTHERKIND naming the kind found, or as zke_get(),
 * zke_create(), zke_set() and zke_recipe_do(). */
int zke_recipe_place(zke *z, const char *path, const char *kind, int mode,
                     const char *more, int64_t deadline_ms);

/* zke_recipe_ensure_above - zke_ensure_path() of the path's parent.
 * ZKE_NONODE: the chroot is missing, and the sentence names it */
int zke_recipe_ensure_above(zke *z, const char *path, int mode,
                            int64_t deadline_ms);

/* zke_recipe_place_seen - as zke_recipe_place() without more; *czxid: of the
 * node that says the kind.  It differs if the node was deleted and made again
 */
int zke_recipe_place_seen(zke *z, const char *path, const char *kind, int mode,
                          int64_t deadline_ms, int64_t *czxid);

/* zke_recipe_next_version - the version that one zke_set() makes from this one
 */
int32_t zke_recipe_next_version(int32_t version);

/* zke_recipe_guid - a name that is used once: made of this session and a number
 * that each process counts up from a random one.  In the form of a UUID; ends
 * with a NUL */
enum { ZKE_RECIPE_GUID = 37 };
void zke_recipe_guid(zke *z, char guid[ZKE_RECIPE_GUID]);

/* zke_recipe_create - create that survives a lost reply
 *
 * Creates a znode in a directory, with a name that contains a guid.  After a
 * lost reply it looks for that guid; an ephemeral znode counts only if this
 * session owns it.  If the look fails too, an ephemeral one that may have been
 * made is discarded.  A missing directory is made by zke_recipe_place(), as a
 * container.
 *
 * Example: join the end of a lock's line, and leave.
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
 *   place        the kind for zke_recipe_place(), if the directory is missing
 *   kind         "lock-": the text before the number
 *   data,len     as for zke_create()
 *   mode         ZKE_EPHEMERAL_SEQUENTIAL or ZKE_PERSISTENT_SEQUENTIAL
 *   deadline_ms  of zke_now(), for repeating tries without a reply
 *   path_out     out: the znode's whole path, for zke_free()
 *   stat_out     out: its Stat
 *
 * Returns ZKE_OK; ZKE_LIMIT if the directory has used all numbers up to 2^31 -
 * 1, since later ones show no order; or as zke_create() and zke_recipe_place():
 * then there is no znode, or none will stay.  (A persistent one may stay, if
 * its reply was lost and the look for it failed.) */
int zke_recipe_create(zke *z, const char *directory, const char *place,
                      const char *kind, const void *data, int len, int mode,
                      int64_t deadline_ms, char **path_out, zke_stat *stat_out);

/* zke_recipe_multi      - zke_multi()
 * zke_recipe_multi_read - zke_multi_read()
 *
 * Parameters, ownership of the results and codes are theirs, including
 * ZKE_BADARGUMENTS for a NULL handle; but an ended session is ZKE_INVALIDSTATE,
 * as in every other call.  ZKE_MARSHALLINGERROR is passed on, as in ZooKeeper
 * (semantics.md 12, #64): a recipe's caller must be able to tell it from a
 * malformed path.  Threads: any.  In a callback: yes. */
int zke_recipe_multi(zke *z, const zke_op *ops, int count,
                     zke_op_result *results);
int zke_recipe_multi_read(zke *z, const zke_op *ops, int count,
                          zke_op_result *results);

/* zke_recipe_refused - which operation of a failed transaction was refused?
 *
 * A recipe puts its caller's operations after its own.  The index tells whose
 * operation was refused, which a code that both can have does not.
 *
 *   results, count  of zke_recipe_multi() or zke_multi()
 *
 * Returns its index; -1: none, the transaction failed as a whole.
 * Threads: any.  Blocks: no. */
int zke_recipe_refused(const zke_op_result *results, int count);

/* zke_recipe_find_twin - is the twin of a znode there?
 *
 * If a znode's path is deleted and made again, its versions repeat, too.  A
 * twin made in the same step has a name that is never used again.  Delete the
 * twin in the same step as the znode: then the step cannot hit a later znode.
 *
 *   path   of the znode that was read, with this czxid
 *   twin   its twin's path
 *
 * Returns ZKE_OK; ZKE_NONODE: the znode was made by other means, or only the
 * twin was deleted; ZKE_BADVERSION: the znode has gone since it was read, or
 * another has taken its place; else as zke_exists(). */
int zke_recipe_find_twin(zke *z, const char *path, int64_t czxid,
                         const char *twin);

/* zke_recipe_delete - delete a znode, whoever made it
 *
 * A missing znode is fine.  Lost replies and busy databases are retried, as
 * long as any call of the handle may wait.
 *
 * Returns ZKE_OK: it is gone; else as zke_delete(). */
int zke_recipe_delete(zke *z, const char *path);

/* zke_recipe_discard - zke_discard(), with failures retried for a while
 *
 * For a recipe's own ephemerals when it leaves.  Whatever it returns, the
 * recipe no longer owns the znode: it forgets the path, and says that it is
 * out.  If the deadline has passed, this has the rest of the call's
 * ZKE_GRACE_MS; after that it does not wait, and the session removes the znode
 * later.
 *
 *   path, mode, czxid  as for zke_discard()
 *
 * Returns as zke_discard(). */
int zke_recipe_discard(zke *z, const char *path, int mode, int64_t czxid);

/* A znode to be made together with others.  All of it is borrowed for the call.
 */
typedef struct zke_seat {
  const char *directory; /* a whole path; it must exist */
  const char *kind;      /* "lock-" */
  const void *data;
  int len; /* bytes of it */
} zke_seat;

/* zke_recipe_create_all - several sequential ephemerals of one guid, in one
 * step; survives a lost reply
 *
 * Makes all or none.
 *
 *   seats,count  in one directory or in several; those in one directory get
 *                consecutive numbers
 *   paths_out    out, not NULL: their whole paths, in that order, one block for
 *                zke_free(); "" for a seat that was deleted right away; NULL on
 *                failure
 *   czxid_out    out, not NULL: of all of them
 *
 * Returns as zke_recipe_multi(): ZKE_NONODE if a directory is missing;
 * ZKE_LIMIT as zke_recipe_create().  After a failure none will stay. */
int zke_recipe_create_all(zke *z, const zke_seat *seats, int count,
                          int64_t deadline_ms, zke_strings **paths_out,
                          int64_t *czxid_out);

/* zke_recipe_delete_all - zke_recipe_delete() of several, in one step.  If one
 * is refused, the others are still deleted.  Returns the first failure */
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
  const zke_entry *other; /* only their names are set */
} zke_entries;

/* zke_recipe_entries - the children with such names, sorted
 *
 * Other children are ignored: nodes that people put there do no harm.  Numbers
 * have 32 bits and are compared by their difference: the first of two is less
 * than 2^31 before the other.
 *
 * Example: show who stands in a line, in order.
 *
 *     const char *const kinds[] = {"lock-"};
 *     zke_entries *e = NULL;
 *     rc = zke_recipe_entries(z, "/locks/a", kinds, 1, NULL, NULL, &e, NULL);
 *     for (int i = 0; rc == ZKE_OK && i < e->count; i++)
 *       printf("%d %s\n", (int)e->data[i].number, e->data[i].name);
 *     zke_free(e);
 *
 *   kinds,count   the texts that may stand before the number
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

/* zke_recipe_foreign - which other library has made this child?
 *
 * Other libraries have lines, too, and ignore entries with other names than
 * theirs: then two hold one lock.
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
 * that it was held but is no longer, or that the holder cannot be read.  After
 * the pid it says ", this very session," or ", another handle of this very
 * process," if that is so.
 *
 * A holder whose process has died is buried (zke_recipe_bury()).
 *
 *   rc    the code to return
 *   what  "the lock /locks/a"
 *   path  of the holder's znode
 *
 * Returns rc, or ZKE_NONODE instead of ZKE_HELD if the holder has gone. */
int zke_recipe_say_held(zke *z, int rc, const char *what, const char *path);

/* zke_recipe_say_hidden - the last two of these sentences; found: the code of
 * the read of the holder, ZKE_NONODE if it has gone.  Returns rc */
int zke_recipe_say_hidden(int rc, const char *what, int found);

/* zke_recipe_say_used_up - fail with ZKE_LIMIT: a directory has no numbers left
 */
int zke_recipe_say_used_up(const char *directory);

/* zke_recipe_bury - end the session that owns a znode if its process has died
 * zke_recipe_bury_all - the same for each of several znodes
 *
 * For a call that is about to say that another process stands in the way.  The
 * kernel knows of a death immediately, other processes only after a while.
 *
 * A kept session outlives its process, since another one may take it over: it
 * lives until its timeout is over.
 *
 *   path       of the znode
 *   session    its owner when it was read; 0 for a persistent znode
 *   directory  of several znodes
 *   names      or paths of them, or NULL for none
 *
 * Bury returns ZKE_OK if the session lives, ZKE_NONODE if it was ended or no
 * longer owns the znode, or the code of a failed read or zke_expire().
 * Bury_all returns ZKE_NONODE if at least one of the znodes has gone, else
 * ZKE_OK, or ZKE_NOMEM.  A znode whose session cannot be checked counts as a
 * living one's. */
int zke_recipe_bury(zke *z, const char *path, int64_t session);
int zke_recipe_bury_all(zke *z, const char *directory,
                        const zke_strings *names);

/* zke_recipe_since - when a holder took office: the time when it wrote "held",
 * else when it came */
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

/* A protected creation, for a recipe that makes it in its own transaction.  The
 * caller sets the first three lines; zke_creation_name() sets guid and given;
 * the caller frees given and path. */
typedef struct zke_creation {
  const char *directory, *place, *kind; /* as for zke_recipe_create() */
  const void *data;
  int len, mode;
  char guid[ZKE_RECIPE_GUID];
  char *given; /* the path to give to a create: without the number */
  bool unsure; /* a try has lost its reply: it may have made the znode */
  char *path;  /* of the znode, when it was made or found */
  zke_stat stat;
} zke_creation;

/* zke_creation_name    - set the guid, and the path to give to a create;
 *                        suffix: text after the kind
 * zke_creation_find    - look for a znode that a lost try has made; sets path
 *                        and stat; ZKE_NONODE: it made nothing
 * zke_creation_resolve - the creation has failed with rc, and a try may have
 *                        made the znode: look for it, even after the deadline.
 *                        If the look fails, an ephemeral one is discarded.
 *                        Returns ZKE_OK with the znode, else rc */
int zke_creation_name(zke *z, zke_creation *c, const char *suffix);
int zke_creation_find(zke *z, zke_creation *c);
int zke_creation_resolve(zke *z, zke_creation *c, int rc);

#ifdef __cplusplus
}
#endif

#endif
