/* partition_plan.h - for whoever writes a recipe: which member of a partition
 * is to have which item
 *
 * A plan is the members of one moment, with the names by which they are known.
 * The same reading gives the same division in every process, since that is
 * computed from the plan and the items alone:
 *
 *     zke_pt_plan plan;
 *     rc = zke_pt_plan_read(r, directory, true, &plan);
 *     int self = zke_pt_plan_find(&plan, znode);
 *     for each item, in the order of its bytes
 *       mine = zke_pt_plan_choose(&plan, item, items) == self;
 *     zke_pt_plan_free(&plan); */
#ifndef ZKEMBED_RECIPES_PARTITION_PLAN_H
#define ZKEMBED_RECIPES_PARTITION_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "object.h"
#include "znode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One member, in a plan; the texts are the plan's. */
typedef struct zke_pt_member {
  const char *znode; /* its name */
  const char *data;  /* "<hash of items> <name>" */
  int load;          /* so many items were given to it */
} zke_pt_member;

/* The members of one moment, and what the plan has given to each so far. */
typedef struct zke_pt_plan {
  zke_entries *entries;   /* of the directory */
  zke_op_result *got;     /* their data, in the same order */
  zke_pt_member *members; /* those of them that were there still, in the order
                             of their numbers */
  int count;              /* of members */
} zke_pt_plan;

/* ---- a member's znode ---- */

/* zke_pt_hash - go on with a hash of the items' names, by one more; the first
 * one goes on with ZKE_PT_HASH */
#define ZKE_PT_HASH UINT64_C(14695981039346656037)
uint64_t zke_pt_hash(uint64_t hash, const char *text);

/* zke_pt_member_data   - what a member's znode says: the hash of its items, by
 *                        which members find out whether they divide the same,
 *                        and its name, or "".  One block, or NULL without
 *                        memory
 * zke_pt_member_agrees - does a member divide the items that such data tells?
 * zke_pt_member_name   - the member's name; that of its znode if it has none.
 *                        Not a copy
 * zke_pt_member_create - make a member's znode, with its directory where that
 *                        is missing, as zke_recipe_create() does.  znode_out:
 *                        its path, one block */
char *zke_pt_member_data(zke *z, uint64_t hash, const char *name);
bool zke_pt_member_agrees(const zke_pt_member *m, const char *data);
const char *zke_pt_member_name(const zke_pt_member *m);
int zke_pt_member_create(zke *z, const char *directory, const char *data,
                         char **znode_out);

/* ---- the plan ---- */

/* zke_pt_plan_read - read the members and their data
 * zke_pt_plan_free - release it, after a success
 *
 *   directory  of the members
 *   watch      the directory as well, for the object r
 *   plan       out
 *
 * Returns as zke_children(): ZKE_NONODE where the directory is missing; or as
 * zke_recipe_multi_read(), or ZKE_NOMEM. */
int zke_pt_plan_read(zke_recipe *r, const char *directory, bool watch,
                     zke_pt_plan *plan);
void zke_pt_plan_free(zke_pt_plan *plan);

/* zke_pt_plan_find   - the index of a member by its znode's path, or -1
 * zke_pt_plan_choose - the index of the member that is to have the next item
 *
 *   items  how many there are in all.  The plan has at least one member, and is
 *          asked once for each item, by all in the same order */
int zke_pt_plan_find(const zke_pt_plan *plan, const char *znode);
int zke_pt_plan_choose(zke_pt_plan *plan, const char *item, int items);

#ifdef __cplusplus
}
#endif

#endif
