/* partition_plan.c - which member of a partition gets which item
 *
 * This file knows the data of a member's znode, and the rule of the division:
 * each item goes to the member with room that has the highest hash.  It does
 * not know which member has an item now.
 *
 * Invariant: the division depends only on the names of the items and members,
 * taken in the same order.  It does not depend on the process, on time, or on
 * an earlier division.
 *
 * The hash is rendezvous hashing: it keeps an item with its member when others
 * come and go.  The bound, ceil(items / members) for each, keeps the loads
 * equal.  At a change, only the bound moves further items.
 *
 * Start reading at zke_pt_plan_choose(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "partition_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

#define PLAN_PLACE "partition-members" /* the kind in the directory's data */
#define PLAN_KIND "member-"            /* in a znode's name */
enum { PLAN_DIGITS = 16 /* of the hash in a znode's data */ };

/* ---- a member's znode ---- */

/* FNV-1a, with the NUL at the end of the text, so that "ab" and "c" do not hash
 * like "a" and "bc". */
uint64_t zke_pt_hash(uint64_t hash, const char *text) {
  do {
    hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
  } while (*text++);
  return hash;
}

/* The space marks the beginning of the name, even of an empty one. */
char *zke_pt_member_data(zke *z, uint64_t hash, const char *name) {
  size_t size = PLAN_DIGITS + strlen(name) + 2;
  char *data = zke_alloc(z, size);
  if (data) snprintf(data, size, "%016" PRIx64 " %s", hash, name);
  return data;
}

/* Compares the hash and the space after it, so nothing longer is taken for a
 * hash. */
bool zke_pt_member_agrees(const zke_pt_member *m, const char *data) {
  return strncmp(m->data, data, PLAN_DIGITS + 1) == 0;
}

/* The data may be anything, since anybody may have made the znode. */
const char *zke_pt_member_name(const zke_pt_member *m) {
  const char *space = strchr(m->data, ' ');
  return space && space[1] ? space + 1 : m->znode;
}

/* An ephemeral one, so it goes with its session. */
int zke_pt_member_create(zke *z, const char *directory, const char *data,
                         char **znode_out) {
  return zke_recipe_create(z, directory, PLAN_PLACE, PLAN_KIND, data,
                           (int)strlen(data), ZKE_EPHEMERAL_SEQUENTIAL,
                           ZKE_FOREVER, znode_out, NULL);
}

/* ---- reading the members ---- */

/* The plan may be incomplete after a failure. */
void zke_pt_plan_free(zke_pt_plan *p) {
  if (p->got) zke_results_clear(p->got, p->entries->count);
  zke_free(p->got);
  zke_free(p->members);
  zke_free(p->entries);
}

/* Keep the members that still exist.  They stay in the order of their numbers,
 * which is the same for every reader. */
static int plan_keep_members(zke *z, zke_pt_plan *p) {
  p->members =
      zke_alloc(z, (size_t)(p->entries->count + 1) * sizeof *p->members);
  if (!p->members) return ZKE_NOMEM;
  for (int i = 0; i < p->entries->count; i++) {
    if (p->got[i].rc != ZKE_OK || !p->got[i].data) continue;
    p->members[p->count++] =
        (zke_pt_member){p->entries->data[i].name, p->got[i].data, 0};
  }
  return ZKE_OK;
}

/* Two readings: the names, which may be watched, and then the data. */
int zke_pt_plan_read(zke_recipe *r, const char *directory, bool watch,
                     zke_pt_plan *p) {
  static const char *const kind = PLAN_KIND;
  *p = (zke_pt_plan){0};
  int rc = zke_recipe_entries(r->z, directory, &kind, 1,
                              watch ? zke_recipe_watcher : NULL, r, &p->entries,
                              NULL);
  if (rc == ZKE_OK)
    rc = zke_recipe_read_entries(r->z, directory, p->entries, &p->got);
  if (rc == ZKE_OK) rc = plan_keep_members(r->z, p);
  if (rc != ZKE_OK) zke_pt_plan_free(p);
  return rc;
}

/* Names are enough, since all members are in one directory. */
int zke_pt_plan_find(const zke_pt_plan *p, const char *znode) {
  for (int i = 0; i < p->count; i++) {
    if (strcmp(p->members[i].znode, zke_recipe_name(znode)) == 0) return i;
  }
  return -1;
}

/* ---- dividing ---- */

/* Mix a hash, so that each bit of the text affects the highest bits, which
 * decide most comparisons. */
static uint64_t plan_mix(uint64_t x) {
  x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
  x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
  return x ^ x >> 33;
}

/* Is member a preferred to b for an item?  The item's name is part of the hash,
 * so each item has its own order of members.  If two members have one name, the
 * znode decides. */
static bool plan_prefers(const char *item, const zke_pt_member *a,
                         const zke_pt_member *b) {
  uint64_t seed = zke_pt_hash(ZKE_PT_HASH, item);
  uint64_t x = plan_mix(zke_pt_hash(seed, zke_pt_member_name(a)));
  uint64_t y = plan_mix(zke_pt_hash(seed, zke_pt_member_name(b)));
  return x != y ? x > y : strcmp(a->znode, b->znode) < 0;
}

/* The preferred member that has less than its share. */
int zke_pt_plan_choose(zke_pt_plan *p, const char *item, int items) {
  int most = (items + p->count - 1) / p->count, best = -1;
  for (int i = 0; i < p->count; i++) {
    if (p->members[i].load >= most) continue;
    if (best < 0 || plan_prefers(item, &p->members[i], &p->members[best]))
      best = i;
  }
  if (best >= 0) p->members[best].load++;
  return best;
}
