/* partition_plan.h - for recipe authors: which member of a partition gets which
 * item
 *
 * A plan is the list of members at one moment, with their names.  Every process
 * that reads the same members computes the same division, since only the plan
 * and the items count:
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

/* A member in a plan; the texts are the plan's. */
typedef struct zke_pt_member {
  const char *znode; /* its name */
  const char *data;  /* "<hash of items> <name>" */
  int load;          /* how many items it was given */
} zke_pt_member;

/* The members at one moment, and what the plan has given to each so far. */
typedef struct zke_pt_plan {
  zke_entries *entries;   /* of the directory */
  zke_op_result *got;     /* their data, in the same order */
  zke_pt_member *members; /* the entries that still had data, in the order of
                             their numbers */
  int count;              /* of members */
} zke_pt_plan;

/* ---- a member's znode ---- */

/* zke_pt_hash - add one name to a hash of the items' names; begin with
 * ZKE_PT_HASH */
#define ZKE_PT_HASH UINT64_C(14695981039346656037)
uint64_t zke_pt_hash(uint64_t hash, const char *text);

/* zke_pt_member_data   - the data of a member's znode: the hash of its items,
 *                        which shows whether members divide the same items, and
 *                        its name, or "".  One block, or NULL without memory
 * zke_pt_member_agrees - does a member divide the items that this data names?
 * zke_pt_member_name   - the member's name, or its znode's if it has none.  Not
 *                        a copy
 * zke_pt_member_create - make a member's znode, and its directory if that is
 *                        missing, as zke_recipe_create() does.  znode_out: its
 *                        path, one block */
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
 *   watch      watch the directory, too, for the object r
 *   plan       out
 *
 * Returns as zke_children(): ZKE_NONODE if the directory is missing; or as
 * zke_recipe_multi_read(), or ZKE_NOMEM. */
int zke_pt_plan_read(zke_recipe *r, const char *directory, bool watch,
                     zke_pt_plan *plan);
void zke_pt_plan_free(zke_pt_plan *plan);

/* zke_pt_plan_find   - the index of a member by its znode's path, or -1
 * zke_pt_plan_choose - the index of the member that gets the next item
 *
 *   items  how many there are in all.  The plan must have a member.  Call it
 *          once for each item, in the same order in every process */
int zke_pt_plan_find(const zke_pt_plan *plan, const char *znode);
int zke_pt_plan_choose(zke_pt_plan *plan, const char *item, int items);

#ifdef __cplusplus
}
#endif

#endif
