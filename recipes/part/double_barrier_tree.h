/* double_barrier_tree.h - for recipe authors: the znodes of a double
 * barrier, and the steps that change them
 *
 * double_barrier.c is the double barrier that programs use: it decides which
 * step to take when, and what to watch.  It stands on two files:
 *
 *   double_barrier_tree.c  what the znodes say, and each transaction
 *   double_barrier_list.c  lists of parties, for people
 *
 * The head of double_barrier.c has the algorithm, and the table of what two
 * znodes tell of a member.  The layout of the znodes is in double_barrier.h.
 *
 * No function waits for other parties. */
#ifndef ZKEMBED_RECIPES_DOUBLE_BARRIER_TREE_H
#define ZKEMBED_RECIPES_DOUBLE_BARRIER_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "../support.h"
#include "znode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A double barrier.  The functions here borrow all of it. */
typedef struct zke_gate {
  zke *z;
  const char *path; /* of the directory */
  char *ready;      /* path of `ready` in it */
  int parties;      /* N */
} zke_gate;

/* ---- reading ----
 *
 * The gate must stay until zke_arrivals_clear() and zke_picture_clear(). */

/* The parties that wait for a round. */
typedef struct zke_arrivals {
  const zke_gate *gate;
  zke_party *waiting; /* in order; of kind "waiting" */
  int count;          /* of waiting */
  /* What they were read from; their strings point into it. */
  zke_entries *entries; /* all parties' names, including members */
  zke_op_result *read;  /* their znodes */
} zke_arrivals;

/* zke_arrivals_read  - read the waiting parties; skip those of dead processes
 * zke_arrivals_clear - release it; call it whatever the read has returned
 *
 *   least  with fewer parties of any sort no znode is read: so arriving early
 *          costs one read */
int zke_arrivals_read(zke_arrivals *a, const zke_gate *gate, int least);
void zke_arrivals_clear(zke_arrivals *a);

/* What a picture shows of a member (the table in double_barrier.c). */
enum zke_member_state {
  ZKE_MEMBER_GONE,
  ZKE_MEMBER_INSIDE,
  ZKE_MEMBER_LEAVING,
  ZKE_MEMBER_DEAD
};

/* A picture: `ready`, its children and those of the directory in one
 * snapshot. */
typedef struct zke_picture {
  const zke_gate *gate;
  int64_t round;      /* czxid of `ready`; 0: there is none */
  bool broken;        /* `ready` says so */
  zke_party *members; /* as they were when it began, of kind "inside" */
  int count;          /* of members */
  /* What this was read from. */
  zke_op_result read[3];
  const zke_strings *inside; /* children of ready: members that have not left */
  const zke_strings *there;  /* children of the directory; not all are
                                parties */
  char *text;                /* a copy of ready's data, cut into strings */
} zke_picture;

/* zke_picture_take  - read it all
 * zke_picture_clear - release it with its members' strings; call it whatever
 *                     zke_picture_take() has returned
 *
 * ZKE_OTHERKIND: `ready` is not a round.  A missing directory is empty. */
int zke_picture_take(zke_picture *p, const zke_gate *gate);
void zke_picture_clear(zke_picture *p);

/* zke_picture_has   - is there a znode of that name in the directory?
 * zke_picture_state - what has become of a member
 * zke_picture_first - the first member in that state, or NULL */
bool zke_picture_has(const zke_picture *p, const char *name);
enum zke_member_state zke_picture_state(const zke_picture *p,
                                        const zke_party *m);
const zke_party *zke_picture_first(const zke_picture *p,
                                   enum zke_member_state state);

/* zke_round_told - does a member's own znode say that its round, which has
 * gone, was broken?
 *
 *   dead_out  out: who died, one block; NULL: the znode does not say so
 *
 * ZKE_LOOK_AGAIN: the znode has gone. */
int zke_round_told(zke *z, const char *znode, char **dead_out);

/* ---- steps for any party ----
 *
 * Each is one transaction, tried once.  If what it relies on has changed, it
 * fails with ZKE_LOOK_AGAIN and changes nothing. */

/* zke_round_begin - begin a round with the first N waiting parties
 *
 * Any party may do this, even one beyond the first N.
 *
 *   a  has N parties or more
 *
 * ZKE_NODEEXISTS: another round runs.  ZKE_LIMIT: the data of the parties is
 * too much for one znode. */
int zke_round_begin(const zke_arrivals *a);

/* zke_round_break - write into `ready` that this member died inside, which
 * wakes all parties that watch it */
int zke_round_break(const zke_picture *p, const zke_party *dead);

/* zke_round_remove - delete a round when no member is left inside
 *
 * If a member died inside, the members that wait to leave are told
 * (zke_round_told()). */
int zke_round_remove(const zke_picture *p);

/* ---- a party's own steps ----
 *
 * Each is repeated until it is decided, even if replies are lost. */

/* zke_round_join - begin to wait: make the party's znode, ephemeral and
 * sequential, and the directory if it is missing
 *
 *   data,len   the party's own; len 0 or more
 *   znode_out  out: the znode's path, one block
 *
 * ZKE_OTHERKIND: the path belongs to another recipe, or another N.  Else
 * returns as zke_recipe_create(). */
int zke_round_join(const zke_gate *gate, const void *data, int len,
                   int64_t deadline_ms, char **znode_out);

/* zke_round_withdraw - delete the party's znode unless a round includes it.
 * ZKE_OK also if the znode has gone.  ZKE_BADVERSION: a round has begun with it
 */
int zke_round_withdraw(zke *z, const char *znode);

/* zke_round_depart - make the member of that name leave
 *
 * The last one deletes `ready`, too.  ZKE_OK also if it has left already or its
 * round has gone: the name contains a guid, so it is never used again.  Else as
 * zke_recipe_do(). */
int zke_round_depart(const zke_gate *gate, const char *name);

#ifdef __cplusplus
}
#endif

#endif
