/* entry.h - for recipe authors: the entries of a line, and their order
 *
 * A line is a directory of sequential ephemerals, its entries.  This file has
 * the rule by which one entry keeps another from holding.  Objects in the line
 * (line.h), the search for deadlocks (deadlock.h) and the lists of parties
 * (party.h) all use it.
 *
 * THE ORDER, first to last:
 *   1. the entry that a NEXT mark names by its guid (an office handed over)
 *   2. FRONT entries (thieves), by number
 *   3. all others, by number
 *
 * THE RULE: an entry keeps out every entry behind it, except that a READ entry
 * does not keep out a READ entry.  An entry holds while fewer than `limit`
 * entries keep it out; the limit is 1 except for semaphores. */
#ifndef ZKEMBED_RECIPES_ENTRY_H
#define ZKEMBED_RECIPES_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

#include "../support.h"
#include "znode.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of entries, and the text before the number in their names. */
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

/* zke_line_text - a znode's data "<state> <actor>\n<data>"
 *
 *   state     "held", "waiting" or "queued"
 *   actor     of zke_line_actor()
 *   data,len  the user's; NULL and 0 for none
 *   len_out   out: bytes in all
 *
 * Returns one block, for zke_free(), or NULL without memory. */
char *zke_line_text(zke *z, const char *state, uint64_t actor, const char *data,
                    int len, int *len_out);

/* ------------------------------------------------------------------------
 * For the parts
 * --------------------------------------------------------------------- */

/* The text before the number, by enum zke_line_kind. */
extern const char *const zke_entry_kinds[ZKE_LINE_KINDS];

enum { ZKE_ENTRY_ACTOR = 17 }; /* " 0123456789abcdef", a space and the actor */

/* The state and the actor in a znode's data.  All is zero for data of another
 * form; then all of it is the user's data. */
typedef struct zke_entry_words {
  bool waiting, queued, held; /* at most one of them */
  uint64_t actor;             /* 0: unknown */
  int head;                   /* bytes before the user's data */
} zke_entry_words;

/* zke_entry_read - read them from len bytes of data; NULL is allowed */
zke_entry_words zke_entry_read(const char *data, int len);

/* zke_entry_list   - a directory's entries in the order of the line
 * zke_entry_survey - the entries and the limit that the directory's data states
 *                    ("limit N", else 1), in one snapshot
 *
 *   out   out: one block, for zke_free(); NEXT marks are left out
 *   stat  out: the directory's Stat
 *
 * Return as zke_children(). */
int zke_entry_list(zke *z, const char *directory, zke_entries **out,
                   zke_stat *stat);
int zke_entry_survey(zke *z, const char *directory, zke_entries **out,
                     zke_stat *stat, int *limit);

/* zke_entry_holder - the znode that holds, in a directory with a limit of 1
 *
 *   token  its mzxid, or 0 for any holder
 *   out    out: its path, one block, for zke_free(); NULL on failure
 *
 * Returns ZKE_OK; ZKE_NONODE, without setting a sentence, if none holds or none
 * with that token; else as zke_children(). */
int zke_entry_holder(zke *z, const char *directory, int64_t token, char **out);

/* zke_entry_refuse - fail if another library stands in the line
 *
 * Neither side sees the other's entries, so both would hold.  Costs nothing
 * unless a child has such a name.
 *
 *   kind  of the own entry, ZKE_LINE_…
 *   what  "lock": for the sentence, which says how to share the line
 *
 * Returns ZKE_OK, ZKE_OTHERKIND, or as zke_exists(). */
int zke_entry_refuse(zke *z, const zke_entries *e, int kind, const char *what,
                     const char *directory);

/* zke_entry_keeps_out     - does an entry keep out one behind it?
 * zke_entry_keepers       - how many entries keep out the one at index i
 * zke_entry_stays         - does an entry of that kind hold for as long as its
 *                           data says so, whatever its place is now?
 * zke_entry_same_guid     - were these two made together, or is one of them a
 *                           mark for the other?
 * zke_entry_last_of_group - the last of the entries made together with the one
 *                           at index i
 * zke_entry_group_before  - how many entries made together with the one at
 *                           index i stand right before it */
bool zke_entry_keeps_out(const zke_entry *first, const zke_entry *then);
int zke_entry_keepers(const zke_entries *e, int i);
bool zke_entry_stays(int kind);
bool zke_entry_same_guid(const zke_entry *a, const zke_entry *b);
int zke_entry_last_of_group(const zke_entries *e, int i);
int zke_entry_group_before(const zke_entries *e, int i);

#ifdef __cplusplus
}
#endif

#endif
