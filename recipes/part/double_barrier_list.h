/* double_barrier_list.h - for whoever writes a recipe: lists of a double
 * barrier's parties
 *
 * Also the sentences of a call whose time was not enough.  Nothing is decided
 * by them.  A list is one block, for zke_free(); it is set only on
 * success.  See double_barrier_tree.h. */
#ifndef ZKEMBED_RECIPES_DOUBLE_BARRIER_LIST_H
#define ZKEMBED_RECIPES_DOUBLE_BARRIER_LIST_H

#include <stdint.h>

#include "double_barrier_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_parties_copy    - a list of these parties, with copies of their strings
 * zke_parties_all     - the members of the round that runs, and then those that
 *                       wait
 * zke_parties_waiting - those that wait
 * zke_parties_inside  - those of a round that have not left, of kind "inside"
 *                       or "dead"; none if the round has gone
 *
 * Return ZKE_OK, ZKE_NOMEM, or what a read says; a directory that is missing is
 * ZKE_NONODE to zke_parties_waiting(), and empty to zke_parties_all(). */
int zke_parties_copy(zke *z, const zke_party *p, int count,
                     zke_party_list **list_out);
int zke_parties_all(zke *z, const char *path, zke_party_list **list_out);
int zke_parties_waiting(const zke_gate *gate, zke_party_list **list_out);
int zke_parties_inside(const zke_gate *gate, int64_t round,
                       zke_party_list **list_out);

/* zke_parties_say_waiting - say that a round has not begun, and name those that
 *                           wait
 * zke_parties_say_inside  - say that it has not ended, and name those inside
 *
 *   rc  what is returned
 *
 * If the file cannot be read, the sentence stays as it was. */
int zke_parties_say_waiting(const zke_gate *gate, int rc);
int zke_parties_say_inside(const zke_gate *gate, int rc, int64_t round);

#ifdef __cplusplus
}
#endif

#endif
