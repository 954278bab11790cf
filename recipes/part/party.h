/* party.h - for recipe authors: who is in a line, and who is first
 *
 * For lists that people read and for error sentences.  The znodes of the line
 * are read in one snapshot, and their owners' sessions after it. */
#ifndef ZKEMBED_RECIPES_PARTY_H
#define ZKEMBED_RECIPES_PARTY_H

#include <stdint.h>

#include "../support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_line_parties - who is in a directory's line, holders first
 *
 * Costs three reads or more: the names and the limit, the znodes, and each
 * owner's session.
 *
 * Example: how many hold and how many wait.
 *
 *     zke_party_list *list = NULL;
 *     int held = 0;
 *     rc = zke_line_parties(z, "/locks/a", 1, &list);
 *     for (int i = 0; rc == ZKE_OK && i < list->count; i++)
 *       held += list->data[i].held;
 *     if (rc == ZKE_OK) printf("%d of %d hold\n", held, list->count);
 *     zke_free(list);
 *
 *   path      of the directory.  Its kind is not checked
 *   limit     how many may hold: 1; 0: as the directory's data says
 *   list_out  out, not NULL: one block, for zke_free(); count 0 if the
 *             directory is missing.  Entries made together are one party, with
 *             the number of its permits
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS, ZKE_MARSHALLINGERROR for a malformed path,
 * ZKE_NOMEM, or the code for the handle's state. */
int zke_line_parties(zke *z, const char *path, int limit,
                     zke_party_list **list_out);

/* zke_line_say_held - zke_recipe_say_held() for the first in a line
 *
 *   kind       "lock"
 *   directory  of the line
 *   own        path of the caller's znode, which holds nothing, or NULL: if it
 *              is the first, the holder has gone
 *
 * Returns as zke_recipe_say_held(), or ZKE_NOMEM. */
int zke_line_say_held(zke *z, int rc, const char *kind, const char *directory,
                      const char *own);

#ifdef __cplusplus
}
#endif

#endif
