/* znode.h - for whoever writes a recipe: znodes that survive lost replies
 *
 * A COMMIT may fail in a way that leaves open whether it was made.  What is
 * here finds out: a created znode has a name that only its creator can have
 * given (a guid), a deleted one is gone either way, and what cannot be deleted
 * now is left to the session, which removes it later (zke_discard()).
 *
 * Begin with zke_recipe_create() and zke_recipe_discard(). */
#ifndef ZKEMBED_RECIPES_ZNODE_H
#define ZKEMBED_RECIPES_ZNODE_H

#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name of a protected znode: _c_<guid>-<kind><number>, as Curator has it.
 * The guid says who made it and when, the kind what it is for, and the number
 * in which order such znodes were made; zke_recipe_create() makes such names
 * and zke_recipe_entries() reads them. */
#define ZKE_NAME_MARK "_c_"
enum {
  ZKE_NAME_SESSION = 21, /* up to where the guid has told the session */
  ZKE_NAME_HEAD = 39,    /* up to the guid's end */
  ZKE_NAME_KIND = 40,    /* up to where the kind begins */
  ZKE_NAME_NUMBER =
      10,            /* digits, %010d; a negative one has a '-' before them */
  ZKE_NAME_ROOM = 48 /* for a slash, all but the kind, and a NUL */
};

/* zke_recipe_place - see to a recipe's directory
 *
 * Its data begins with the line "zkembed <kind>", so that two recipes of
 * different kinds on one path find out.  An existing node with empty data is
 * taken over.
 *
 *   more  text for the lines after the first where the node is made, or NULL
 *
 * Returns ZKE_OK, or ZKE_OTHERKIND naming the kind found. */
ZKE_API int zke_recipe_place(zke *z, const char *path, const char *kind,
                             int mode, const char *more, int64_t deadline_ms);

/* zke_recipe_guid - a name that no other thing has: of this session and a
 * counter */
enum { ZKE_RECIPE_GUID = 37 };
ZKE_API void zke_recipe_guid(zke *z, char guid[ZKE_RECIPE_GUID]);

/* zke_recipe_create - create that survives a lost reply
 *
 * Creates a znode in a directory, with a name that bears a guid; after a lost
 * reply the node is looked for by it, and counts only if the session owns it
 * (sequential ephemeral modes) or if it bears the guid (persistent ones).
 * Where it cannot be looked for either, an ephemeral one that may have been
 * made is discarded. Makes the directory by zke_recipe_place() when it is
 * missing.
 *
 *   place     what zke_recipe_place() is told where the directory is missing
 *   kind      "lock-": what stands before the number
 *   path_out  out: the znode's whole path; stat_out: its Stat */
ZKE_API int zke_recipe_create(zke *z, const char *directory, const char *place,
                              const char *kind, const void *data, int len,
                              int mode, int64_t deadline_ms, char **path_out,
                              zke_stat *stat_out);

/* zke_recipe_multi      - zke_multi()
 * zke_recipe_multi_read - zke_multi_read()
 *
 * Parameters, ownership of the results and codes are theirs, ZKE_BADARGUMENTS
 * for a NULL handle among them; but an ended session reads ZKE_INVALIDSTATE, as
 * in every other call.  Theirs is ZKE_MARSHALLINGERROR, ZooKeeper's
 * (semantics.md 12, #64), which the caller of a recipe must be able to tell
 * from a malformed path.  Threads: any.  In a callback: yes. */
ZKE_API int zke_recipe_multi(zke *z, const zke_op *ops, int count,
                             zke_op_result *results);
ZKE_API int zke_recipe_multi_read(zke *z, const zke_op *ops, int count,
                                  zke_op_result *results);

/* zke_recipe_delete - delete somebody's znode: NONODE is fine, lost replies and
 * busy databases are retried */
ZKE_API int zke_recipe_delete(zke *z, const char *path);

/* zke_recipe_discard - zke_discard(), what fails being retried for a while
 *
 * What a recipe does with its own ephemerals on the way out.  Whatever it
 * returns, the znode is not the recipe's any more: it forgets the path, and
 * says that it is out.  Where the deadline has passed it has what is left of
 * the call's ZKE_GRACE_MS; after that it does not wait, and the session removes
 * the znode later. */
ZKE_API int zke_recipe_discard(zke *z, const char *path, int mode,
                               int64_t czxid);

/* A znode to be made together with others. */
typedef struct zke_seat {
  const char *directory, *kind;
  const void *data;
  int len;
} zke_seat;

/* zke_recipe_create_all - several sequential ephemerals of one guid, in one
 * step; survives a lost reply
 *
 *   seats      in one directory or in several; in one their numbers follow
 *              each other
 *   paths_out  out, not NULL: their whole paths, in that order; "" for one
 *              that was taken away at once; NULL on failure
 *   czxid_out  out, not NULL: of all of them
 *
 * Returns as zke_multi(): ZKE_NONODE where a directory is missing. */
ZKE_API int zke_recipe_create_all(zke *z, const zke_seat *seats, int count,
                                  int64_t deadline_ms, zke_strings **paths_out,
                                  int64_t *czxid_out);

/* zke_recipe_delete_all - zke_recipe_delete() of several, in one step unless
 * some have gone before */
ZKE_API int zke_recipe_delete_all(zke *z, const zke_strings *paths);

/* zke_recipe_discard_all - zke_recipe_discard() of several (ZKE_EPHEMERAL), in
 * one step unless some have gone before or that fails */
ZKE_API int zke_recipe_discard_all(zke *z, const zke_strings *paths);

/* A directory's entries of the given kinds, by number. */
typedef struct zke_entry {
  const char *name;
  int kind; /* index into the kinds asked for */
  int32_t number;
} zke_entry;

typedef struct zke_entries {
  int count;
  const zke_entry *data;
} zke_entries;

/* zke_recipe_entries - those of a directory that have such names, sorted
 *
 * Anything else in the directory is ignored.  Numbers are compared as
 * numbers, with the wrap-around of ZooKeeper's 32 bits.
 *
 *   kinds,count   what may stand before the number
 *   entries_out   out: one block
 *   stat_out      out: the directory's Stat of the same moment
 *
 * Returns as zke_children(). */
ZKE_API int zke_recipe_entries(zke *z, const char *directory,
                               const char *const *kinds, int count,
                               zke_watch_fn fn, void *context,
                               zke_entries **entries_out, zke_stat *stat_out);

/* zke_recipe_find - the index of the entry with a name, or -1 */
ZKE_API int zke_recipe_find(const zke_entries *entries, const char *name);

/* zke_recipe_say_held - fail with a sentence that names the holder
 *
 *   what  "the lock /locks/a"; path: the holder's znode
 *
 * Returns rc: "the lock /locks/a is held by backup (pid 12) since
 * 2026-11-20T12:00:00Z". */
ZKE_API int zke_recipe_say_held(zke *z, int rc, const char *what,
                                const char *path);

/* zke_recipe_since - when a holder took office: its write of "held", else its
 * coming */
int64_t zke_recipe_since(const zke_stat *stat, const char *data);

/* Not exported: for the files that recipes are made of.
 *
 * zke_recipe_parse     - read the name of a protected znode
 * zke_recipe_parse_all - the entries among names, sorted, in one block; NULL
 *                        without memory */
bool zke_recipe_parse(const char *name, const char *const *kinds, int count,
                      zke_entry *out);
zke_entries *zke_recipe_parse_all(zke *z, const zke_strings *names,
                                  const char *const *kinds, int count);

/* One protected creation, for whoever makes it in a transaction of its own: */
typedef struct zke_creation {
  const char *directory, *place, *kind;
  const void *data;
  int len, mode;
  char guid[ZKE_RECIPE_GUID];
  char *given; /* the path that a create is given */
  bool unsure; /* the last try may have made it */
  char *path;
  zke_stat stat;
} zke_creation;

/* zke_creation_name    - the guid, and the path that a create is given; suffix:
 *                        behind the kind
 * zke_creation_find    - look for what a lost try has made; ZKE_NONODE: it made
 *                        nothing
 * zke_creation_resolve - the creation has failed with rc, and its last try may
 *                        have made the znode: see whether it is there, whatever
 *                        the deadline was.  Where that cannot be seen it is to
 *                        go.  Returns ZKE_OK with the znode, else rc */
int zke_creation_name(zke *z, zke_creation *c, const char *suffix);
int zke_creation_find(zke *z, zke_creation *c);
int zke_creation_resolve(zke *z, zke_creation *c, int rc);

#ifdef __cplusplus
}
#endif

#endif
