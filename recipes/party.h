/* party.h - for whoever writes a recipe: who is in a line, and who is first
 *
 * The answers are read in one snapshot: the znodes of the line and the sessions
 * that own them. */
#ifndef ZKEMBED_RECIPES_PARTY_H
#define ZKEMBED_RECIPES_PARTY_H

#include <stdint.h>

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_line_parties - who is in a directory's line, holders first
 *
 *   limit     how many may hold: 1; 0: what the directory's data states
 *   list_out  out: one block; count 0 where the directory is missing */
ZKE_API int zke_line_parties(zke *z, const char *path, int limit,
                             zke_party_list **list_out);

/* zke_line_say_held - zke_recipe_say_held() of who is first in a line */
ZKE_API int zke_line_say_held(zke *z, int rc, const char *kind,
                              const char *directory);

#ifdef __cplusplus
}
#endif

#endif
