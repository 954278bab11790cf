/* queue_list.h - for recipe authors: the whole contents of a queue
 *
 * A take reads only the first names; each function here reads all names of the
 * directories that it needs.  See queue_tree.h. */
#ifndef ZKEMBED_RECIPES_QUEUE_LIST_H
#define ZKEMBED_RECIPES_QUEUE_LIST_H

#include "queue_tree.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_q_count - count the items, the letters and the waiting participants.
 * Items and claims are as of one moment, the rest is read after them.
 * counts_out is set only on success */
int zke_q_count(zke_queue *q, zke_queue_counts *counts_out);

/* zke_q_list - list all items, or all dead letters
 *
 *   letters   the dead letters, in the order of their deaths; else the items,
 *             in queue order
 *   list_out  one block */
int zke_q_list(zke_queue *q, bool letters, zke_queue_entries **list_out);

/* zke_q_letter     - the paths of a letter and of its child "death", or NULL if
 *                    it has none; one block each.  The letter itself may be
 *                    missing
 * zke_q_letter_key - the key of the item that a letter was, one block; NULL:
 *                    none
 *
 *   death  as zke_q_letter() gives it, or NULL */
int zke_q_letter(zke_queue *q, const char *name, char **letter, char **death);
int zke_q_letter_key(zke_queue *q, const char *death, char **key_out);

/* zke_q_drop_letter - delete a letter with its child.  ZKE_NONODE: it does not
 * exist */
int zke_q_drop_letter(zke_queue *q, const char *name);

/* zke_q_destroy - remove a queue and all its contents
 *
 *   only_empty  only if it has neither items nor letters */
int zke_q_destroy(zke_queue *q, bool only_empty);

#ifdef __cplusplus
}
#endif

#endif
