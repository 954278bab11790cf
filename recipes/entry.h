/* entry.h - for whoever writes a recipe: the entries of a line, and their order
 *
 * A line is a directory whose entries are sequential ephemerals.  Which entry
 * keeps which other from holding is decided here, for those who stand in it
 * (line.h), for the search for deadlocks (deadlock.h) and for lists (party.h)
 * alike. */
#ifndef ZKEMBED_RECIPES_ENTRY_H
#define ZKEMBED_RECIPES_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "support.h"
#include "znode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of a line.  READ entries do not keep out each other; any other
 * keeps out those behind it.  FRONT entries stand before all others: a thief
 * jumps the queue.  Whom a NEXT mark names stands before even those: it was
 * handed the office by its holder. */
enum zke_line_kind {
  ZKE_LINE_LOCK,  /* lock- */
  ZKE_LINE_WRITE, /* __WRIT__ */
  ZKE_LINE_READ,  /* __READ__ */
  ZKE_LINE_LEASE, /* lease- */
  ZKE_LINE_LATCH, /* latch- */
  ZKE_LINE_FRONT, /* front- */
  ZKE_LINE_NEXT,  /* next-: no entry, but a mark that names one by its guid */
  ZKE_LINE_KINDS
};

/* zke_line_text - a znode's data "<state> <actor>\n<data>", one block, or NULL
 * without memory */
ZKE_API char *zke_line_text(zke *z, const char *state, uint64_t actor,
                            const char *data, int len, int *len_out);

/* Not exported from here on. */

/* What stands before the number, by enum zke_line_kind. */
extern const char *const zke_entry_kinds[ZKE_LINE_KINDS];

enum { ZKE_ENTRY_ACTOR = 17 }; /* " 0123456789abcdef", a space and the actor */

/* What a znode's data says: its state, and as which actor.  An actor of 0 is
 * nobody's: the data is not a line's. */
typedef struct zke_entry_words {
  bool waiting, queued, held;
  uint64_t actor;
  int head; /* bytes before the user's data */
} zke_entry_words;
zke_entry_words zke_entry_read(const char *data, int len);

/* zke_entry_list   - a directory's entries in the order of the line
 * zke_entry_survey - the entries and the limit, in one snapshot */
int zke_entry_list(zke *z, const char *directory, zke_entries **out,
                   zke_stat *stat);
int zke_entry_survey(zke *z, const char *directory, zke_entries **out,
                     zke_stat *stat, int *limit);

/* zke_entry_keeps_out     - does an entry keep out one behind it?
 * zke_entry_keepers       - how many entries keep out the one at index i
 * zke_entry_same_guid     - were these two made together, or is one of them a
 *                           mark for the other?
 * zke_entry_last_of_group - the last of the entries made together with the one
 *                           at index i
 * zke_entry_group_before  - how many stand right before the one at index i,
 *                           made together with it */
bool zke_entry_keeps_out(const zke_entry *first, const zke_entry *then);
int zke_entry_keepers(const zke_entries *e, int i);
bool zke_entry_same_guid(const zke_entry *a, const zke_entry *b);
int zke_entry_last_of_group(const zke_entries *e, int i);
int zke_entry_group_before(const zke_entries *e, int i);

#ifdef __cplusplus
}
#endif

#endif
