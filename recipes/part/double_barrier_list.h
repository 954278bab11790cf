/* double_barrier_list.h - for recipe authors: lists of a double
 * barrier's parties
 *
 * This file also makes the sentences of a call that has run out of time.  No
 * decision depends on them.  A list is one block, for zke_free(); it is set
 * only on success.  See double_barrier_tree.h. */
#ifndef ZKEMBED_RECIPES_DOUBLE_BARRIER_LIST_H
#define ZKEMBED_RECIPES_DOUBLE_BARRIER_LIST_H

#include <stdint.h>

#include "double_barrier_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_parties_copy    - a list of these parties, with copies of their strings
 * zke_parties_all     - the members of the current round, then the waiting
 *                       parties
 * zke_parties_waiting - the waiting parties
 * zke_parties_inside  - the members of a round that have not left, of kind
 *                       "inside" or "dead"; none if the round has gone
 *
 * Return ZKE_OK, ZKE_NOMEM, or the code of a failed read.  A missing directory
 * is ZKE_NONODE to zke_parties_waiting(), and empty to zke_parties_all(). */
int zke_parties_copy(zke *z, const zke_party *p, int count,
                     zke_party_list **list_out);
int zke_parties_all(zke *z, const char *path, zke_party_list **list_out);
int zke_parties_waiting(const zke_gate *gate, zke_party_list **list_out);
int zke_parties_inside(const zke_gate *gate, int64_t round,
                       zke_party_list **list_out);

/* zke_parties_say_waiting - say that a round has not begun, and name the
 *                           waiting parties
 * zke_parties_say_inside  - say that it has not ended, and name the members
 *                           inside
 *
 *   rc  the code to return
 *
 * If the file cannot be read, the sentence stays as it was. */
int zke_parties_say_waiting(const zke_gate *gate, int rc);
int zke_parties_say_inside(const zke_gate *gate, int rc, int64_t round);

#ifdef __cplusplus
}
#endif

#endif
