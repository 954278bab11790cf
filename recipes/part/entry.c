/* entry.c - the entries of a line, and their order
 *
 * This file knows which names are entries, how to read their data, and the rule
 * by which one keeps out another (entry.h); no other file decides that.  It
 * knows nothing of objects: it is given a directory, or entries that were read.
 *
 * Invariant: the entries of one directory are sorted in the same way by every
 * process that has read the same names.  Everything relies on that: two
 * processes that read the same line agree on its holder without asking each
 * other.
 *
 * Begin with entry_sort(). */
#include "entry.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

/* By enum zke_line_kind.  None is a prefix of another, so a name has one kind.
 */
const char *const zke_entry_kinds[ZKE_LINE_KINDS] = {
    "lock-", "__WRIT__", "__READ__", "lease-", "latch-", "front-", "next-"};

/* Only readers do not keep out each other. */
bool zke_entry_keeps_out(const zke_entry *first, const zke_entry *then) {
  return !(first->kind == ZKE_LINE_READ && then->kind == ZKE_LINE_READ);
}

/* Counts entries in front; the entries are sorted. */
int zke_entry_keepers(const zke_entries *e, int i) {
  int count = 0;
  for (int j = 0; j < i; j++)
    count += zke_entry_keeps_out(&e->data[j], &e->data[i]);
  return count;
}

/* A lease stays: if the limit was lowered after it was taken, its place would
 * no longer let it in. */
bool zke_entry_stays(int kind) { return kind == ZKE_LINE_LEASE; }

/* Move the entry at index i to index `to`, further ahead. */
static void entry_advance(zke_entry *entry, int to, int i) {
  zke_entry moved = entry[i];
  memmove(&entry[to + 1], &entry[to], (size_t)(i - to) * sizeof *entry);
  entry[to] = moved;
}

/* The guid comes first in a name; an entry and its mark have the same guid. */
bool zke_entry_same_guid(const zke_entry *a, const zke_entry *b) {
  return strncmp(a->name, b->name, ZKE_NAME_HEAD) == 0;
}

/* Bring entries that are sorted by number into the order of a line (entry.h),
 * in place and in three passes:
 *   1. FRONT entries go ahead, and keep their order;
 *   2. marks go to the end of the list and out of its count, since they are no
 *      entries;
 *   3. the entries that marks name go to the very front.
 * A mark whose entry has gone matches no entry.  At most one mark names an
 * entry that exists: only the leader makes a mark, in the step that deletes its
 * own entry, and then the named entry leads. */
static void entry_sort(zke_entries *e) {
  zke_entry *entry = (zke_entry *)(void *)(e + 1);
  int front = 0, marks = 0;
  for (int i = 0; i < e->count; i++) {
    if (entry[i].kind == ZKE_LINE_FRONT) entry_advance(entry, front++, i);
  }
  for (int i = 0; i < e->count - marks;) {
    zke_entry mark = entry[i];
    if (mark.kind != ZKE_LINE_NEXT) {
      i++;
      continue;
    }
    memmove(&entry[i], &entry[i + 1],
            (size_t)(e->count - i - 1) * sizeof *entry);
    entry[e->count - 1] = mark;
    marks++;
  }
  e->count -= marks;
  for (int m = e->count; m < e->count + marks; m++) {
    for (int i = 0; i < e->count; i++) {
      if (zke_entry_same_guid(&entry[i], &entry[m])) entry_advance(entry, 0, i);
    }
  }
}

/* Reads the directory once.  A line changes at any moment, but the reader's own
 * entry stays, and only a thief's or an heir's comes before it. */
int zke_entry_list(zke *z, const char *directory, zke_entries **out,
                   zke_stat *stat) {
  int rc = zke_recipe_entries(z, directory, zke_entry_kinds, ZKE_LINE_KINDS,
                              NULL, NULL, out, stat);
  if (rc == ZKE_OK) entry_sort(*out);
  return rc;
}

/* Persistent nodes, which other programs have put there, and entries of dead
 * processes keep no entry out.  The sentence suggests Curator's form of names,
 * since all see such an entry. */
int zke_entry_refuse(zke *z, const zke_entries *e, int kind, const char *what,
                     const char *directory) {
  int rc = ZKE_OK;
  for (int i = 0; i < e->others && rc == ZKE_OK; i++) {
    zke_stat stat = {0};
    const char *name = e->other[i].name;
    char *path = zke_recipe_path(z, directory, name);
    if (!path) return ZKE_NOMEM;
    rc = zke_exists(z, path, NULL, NULL, &stat);
    if (rc == ZKE_OK && stat.ephemeralOwner)
      rc = zke_recipe_bury(z, path, stat.ephemeralOwner);
    zke_free(path);
    bool gone = rc == ZKE_NONODE;
    if (gone) rc = ZKE_OK;
    if (gone || rc != ZKE_OK || stat.ephemeralOwner == 0) continue;
    return zke_recipe_fail(
        ZKE_OTHERKIND,
        "%s stands in the %s %s (%s), and neither would see the other: give "
        "its entries names such as _c_<uuid>-%s<number> (zke help serve), or "
        "use another path",
        zke_recipe_foreign(name), what, directory, name, zke_entry_kinds[kind]);
  }
  return rc;
}

/* The limit in a directory's data; 1 if there is none, or it makes no sense. */
static int entry_limit_in(const char *data) {
  const char *line = data ? strstr(data, "\nlimit ") : NULL;
  long limit = line ? strtol(line + 7, NULL, 10) : 1;
  if (limit < 1) return 1;
  return limit > INT_MAX ? INT_MAX : (int)limit;
}

/* In one snapshot: entries of one moment under the limit of another might hold
 * when they must not. */
int zke_entry_survey(zke *z, const char *directory, zke_entries **out,
                     zke_stat *stat, int *limit) {
  zke_op ops[2];
  zke_op_result got[2] = {{0}};
  zke_op_children(&ops[0], directory, NULL, 0);
  zke_op_get(&ops[1], directory);
  int rc = zke_recipe_multi_read(z, ops, 2, got);
  for (int i = 0; i < 2 && rc == ZKE_OK; i++) rc = got[i].rc;
  if (rc == ZKE_OK) {
    *out = zke_recipe_parse_all(z, got[0].children, zke_entry_kinds,
                                ZKE_LINE_KINDS);
    *stat = got[0].stat;
    *limit = entry_limit_in(got[1].data);
    rc = *out ? ZKE_OK : ZKE_NOMEM;
  }
  if (rc == ZKE_OK) entry_sort(*out);
  zke_results_clear(got, 2);
  return rc;
}

/* The path of the first entry, in one block; ZKE_NONODE without entries. */
static int entry_first(zke *z, const char *directory, char **out) {
  zke_entries *e = NULL;
  zke_stat stat;
  int limit;
  int rc = zke_entry_survey(z, directory, &e, &stat, &limit);
  if (rc == ZKE_OK && e->count == 0) rc = ZKE_NONODE;
  if (rc == ZKE_OK) {
    *out = zke_recipe_path(z, directory, e->data[0].name);
    if (!*out) rc = ZKE_NOMEM;
  }
  zke_free(e);
  return rc;
}

/* With a limit of 1 the first entry holds, so one read of the names is enough.
 * A list of parties would not do: it leaves out a znode that goes during the
 * reads, or that may not be read, and then its first is a waiting one.  A Stat
 * may be read whatever the ACL says. */
int zke_entry_holder(zke *z, const char *directory, int64_t token, char **out) {
  zke_stat stat;
  *out = NULL;
  int rc = entry_first(z, directory, out);
  if (rc == ZKE_OK && token != 0) {
    rc = zke_exists(z, *out, NULL, NULL, &stat);
    if (rc == ZKE_OK && stat.mzxid != token) rc = ZKE_NONODE;
  }
  if (rc == ZKE_OK) return ZKE_OK;
  zke_free(*out);
  *out = NULL;
  return rc;
}

/* Entries made together have the same guid, and are neighbours: their numbers
 * were given in one transaction. */
int zke_entry_last_of_group(const zke_entries *e, int i) {
  while (i + 1 < e->count && zke_entry_same_guid(&e->data[i], &e->data[i + 1]))
    i++;
  return i;
}

/* How many stand right before the one at index i, made together with it. */
int zke_entry_group_before(const zke_entries *e, int i) {
  int j = i;
  while (j > 0 && zke_entry_same_guid(&e->data[j - 1], &e->data[i])) j--;
  return i - j;
}

enum { ENTRY_HEAD = 32 }; /* "waiting 0123456789abcdef\n" */

/* The actor always has sixteen digits, so ENTRY_HEAD has room for the longest
 * state. */
char *zke_line_text(zke *z, const char *state, uint64_t actor, const char *data,
                    int len, int *len_out) {
  size_t size = len > 0 ? (size_t)len : 0;
  char *text = zke_alloc(z, ENTRY_HEAD + size);
  if (!text) return NULL;
  int head = snprintf(text, ENTRY_HEAD, "%s %016" PRIx64 "\n", state, actor);
  if (size) memcpy(text + head, data, size);
  *len_out = head + (int)size;
  return text;
}

/* Data of another form, written by other programs, has no actor: it is 0, which
 * is never in a deadlock. */
zke_entry_words zke_entry_read(const char *data, int len) {
  zke_entry_words w = {0};
  if (!data || len <= 0) return w;
  const char *space = memchr(data, ' ', (size_t)len);
  const char *end = memchr(data, '\n', (size_t)len);
  char *digits_end;
  if (!space || !end || end - space != ZKE_ENTRY_ACTOR) return w;
  w.actor = strtoull(space + 1, &digits_end, 16);
  if (digits_end != end) return (zke_entry_words){0};
  w.waiting = strncmp(data, "waiting ", 8) == 0;
  w.queued = strncmp(data, "queued ", 7) == 0;
  w.held = strncmp(data, "held ", 5) == 0;
  w.head = (int)(end - data) + 1;
  return w;
}
