/* tree.h - shared by the commands that change the tree
 *
 * The text forms of a node's kind and time to live (create, also in a multi),
 * and of an ACL (acl.c; import reads the same).  And the functions of
 * subtree.c, which have their rows in the table of tree.c.
 */
#ifndef ZKE_TREE_H
#define ZKE_TREE_H

#include "shell.h"

/* word_ttl - a node's time to live: a number is ms, as in ZooKeeper's shell,
 *            or a duration with its unit */
bool word_ttl(const word *w, int64_t *ms_out);

/* tree_mode - the mode for zke_create(), from -e, -s, -c and -t; -1 if they do
 *             not go together */
int tree_mode(bool ephemeral, bool sequential, bool container, bool ttl);

/* acls_parse - SCHEME:ID:PERMS, several in a word with commas between
 *
 *   acls_out  one block, for free(); untouched on failure
 *
 * Returns 0 or the exit code (acl.c). */
int acls_parse(call *c, const word *texts, int count, zke_acls **acls_out);

/* perms_parse - "crwda", each letter at most once; or a number, for bits
 *               without letters; false if it is neither
 * perms_json  - back
 * acl_is_masked - is it a digest "USER:x"?  That is shown to callers that may
 *               not see the hash, and matches no user
 * acls_are_masked - is one of a list?  A copy of it would open the node to
 *               nobody */
bool perms_parse(const char *text, int32_t *perms_out);
json_t *perms_json(int32_t value);
bool acl_is_masked(const zke_acl *entry);
bool acls_are_masked(const zke_acls *acls);

/* acl_is_foreign - does another program know the meaning of its scheme?
 * acl_accept     - make its scheme valid in ACLs that this handle's store
 *                  writes; ZKE_OK or a code of zke_vouch() */
bool acl_is_foreign(const zke_acl *entry);
int acl_accept(zke *z, const zke_acl *entry);

/* Commands of whole subtrees (subtree.c). */
int find_run(call *c);
int deleteall_run(call *c);
int cp_run(call *c);
void cp_human(call *c, json_t *row, FILE *out);
extern const option find_options[], cp_options[];

#endif
