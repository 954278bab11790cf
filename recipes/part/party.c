/* party.c - who is in a line, and who is first
 *
 * This file describes a line to people: identities, times, the user's data.  It
 * changes nothing, and no decision depends on it.
 *
 * A list is made in three reads, each of a later moment:
 *   1. the names of the line, and its limit          zke_entry_survey()
 *   2. the znodes of these names, in one snapshot    party_call_roll()
 *   3. the sessions that own them, one by one        party_call_roll()
 * An entry that goes between 1 and 2 is left out; a session that ends between 2
 * and 3 has no identity any more.  The list is then laid out in one block
 * (party_list()): the list, the parties, their strings.
 *
 * Begin with zke_line_parties(). */
#include "party.h"

#include <stdio.h>
#include <string.h>

#include "entry.h"
#include "text.h"
#include "znode.h"

/* The first in the line holds.  Of several znodes made together the last one
 * has the data.  The line may be empty now, or the own znode be its first,
 * since the former holder may have gone. */
int zke_line_say_held(zke *z, int rc, const char *kind, const char *directory,
                      const char *own) {
  char what[256];
  zke_entries *e = NULL;
  snprintf(what, sizeof what, "the %s %s", kind, directory);
  int found = zke_entry_list(z, directory, &e, NULL);
  const char *first = NULL;
  if (found == ZKE_OK && e->count > 0)
    first = e->data[zke_entry_last_of_group(e, 0)].name;
  bool mine = first && own && strcmp(first, zke_recipe_name(own)) == 0;
  if (found == ZKE_OK && (!first || mine)) found = ZKE_NONODE;
  if (found == ZKE_NONODE && rc == ZKE_HELD) rc = found;
  if (found != ZKE_OK) {
    zke_free(e);
    return zke_recipe_say_hidden(rc, what, found);
  }
  char *path = zke_recipe_path(z, directory, first);
  rc = path ? zke_recipe_say_held(z, rc, what, path) : ZKE_NOMEM;
  zke_free(path);
  zke_free(e);
  return rc;
}

/* How many bytes the strings of one party take, except its name; each ends with
 * a NUL. */
static size_t party_size(const zke_session_list *who,
                         const zke_op_result *got) {
  size_t size = strlen(who ? who->data[0].identity : "") + 1;
  return size + (got->rc == ZKE_OK && got->len > 0 ? (size_t)got->len : 0) + 1;
}

/* Fill in one party, with its strings at text.  Returns their end.
 *
 *   held  does its place let it in? */
static char *party_fill(zke_party *p, const zke_entry *entry,
                        const zke_op_result *got, const zke_session_list *who,
                        bool held, char *text) {
  zke_entry_words w = zke_entry_read(got->data, got->len);
  const char *identity = who ? who->data[0].identity : "";
  int len = got->len - w.head;
  size_t size = strlen(identity) + 1;
  *p = (zke_party){.kind = zke_entry_kinds[entry->kind],
                   .held = held,
                   .office = got->data && strncmp(got->data, "held ", 5) == 0,
                   .session = got->stat.ephemeralOwner,
                   .czxid = got->stat.czxid,
                   .mzxid = got->stat.mzxid,
                   .queued_ms = got->stat.ctime,
                   .pid = who ? who->data[0].pid : 0,
                   .len = len > 0 ? len : -1};
  if (p->office && zke_entry_stays(entry->kind)) p->held = 1;
  p->since_ms =
      p->held ? zke_recipe_since(&got->stat, got->data) : got->stat.ctime;
  p->identity = memcpy(text, identity, size);
  text += size;
  if (got->data && len > 0) {
    p->data = memcpy(text, got->data + w.head, (size_t)len);
    text += len;
  }
  *text++ = '\0';
  return text;
}

/* The data read for a list.  The arrays have `count` elements, in the order of
 * the line. */
typedef struct party_roll {
  zke_entries *entries;
  zke_op_result *got;     /* their znodes */
  zke_session_list **who; /* each owner's session, or NULL: it has ended */
  int count;
} party_roll;

/* Release everything.  Any of the arrays may be missing, if memory was short.
 */
static void party_free_roll(party_roll *roll) {
  for (int i = 0; roll->who && i < roll->count; i++) zke_free(roll->who[i]);
  if (roll->got) zke_results_clear(roll->got, roll->count);
  zke_free(roll->got);
  zke_free(roll->who);
  zke_free(roll->entries);
}

/* Read all the entries' znodes in one snapshot, and then their owners. */
static int party_call_roll(zke *z, const char *directory, party_roll *roll) {
  int n = roll->entries->count;
  roll->count = n;
  roll->who = zke_alloc(z, (size_t)n * sizeof(zke_session_list *));
  if (!roll->who) return ZKE_NOMEM;
  int rc = zke_recipe_read_entries(z, directory, roll->entries, &roll->got);
  for (int i = 0; i < n && rc == ZKE_OK; i++) {
    if (roll->got[i].rc != ZKE_OK) continue;
    rc = zke_sessions(z, roll->got[i].stat.ephemeralOwner, &roll->who[i]);
    if (rc == ZKE_NONODE) rc = ZKE_OK; /* it is about to go */
  }
  return rc;
}

/* Lay out the list in one block, and count its size first.  An entry that went
 * between the two reads is left out.  Of a group only the last is listed, with
 * the number of its permits. */
static zke_party_list *party_list(zke *z, const party_roll *roll, int limit) {
  size_t size = sizeof(zke_party_list);
  for (int i = 0; i < roll->count; i++) {
    size += sizeof(zke_party) + strlen(roll->entries->data[i].name) + 1 +
            party_size(roll->who[i], &roll->got[i]);
  }
  zke_party_list *list = zke_alloc(z, size);
  if (!list) return NULL;
  zke_party *party = (zke_party *)(void *)(list + 1);
  char *text = (char *)(party + roll->count);
  for (int i = 0; i < roll->count; i++) {
    const zke_entry *entry = &roll->entries->data[i];
    size_t len = strlen(entry->name) + 1;
    if (roll->got[i].rc != ZKE_OK) continue;
    if (zke_entry_last_of_group(roll->entries, i) != i) continue;
    zke_party *p = &party[list->count++];
    char *name = memcpy(text, entry->name, len);
    text = party_fill(p, entry, &roll->got[i], roll->who[i],
                      zke_entry_keepers(roll->entries, i) < limit, text + len);
    p->name = name;
    p->permits = zke_entry_group_before(roll->entries, i) + 1;
  }
  list->data = party;
  return list;
}

/* A missing directory gives an empty list, not an error. */
int zke_line_parties(zke *z, const char *path, int limit,
                     zke_party_list **list_out) {
  party_roll roll = {0};
  zke_stat stat;
  int stated = 1;
  if (!list_out) return zke_recipe_fail(ZKE_BADARGUMENTS, "list_out is NULL");
  int rc = zke_entry_survey(z, path, &roll.entries, &stat, &stated);
  if (limit == 0) limit = stated;
  if (rc == ZKE_OK) rc = party_call_roll(z, path, &roll);
  zke_party_list *list = NULL;
  if (rc == ZKE_OK)
    list = party_list(z, &roll, limit);
  else if (rc == ZKE_NONODE)
    list = zke_alloc(z, sizeof *list);
  if (rc == ZKE_NONODE) rc = ZKE_OK;
  party_free_roll(&roll);
  if (rc == ZKE_OK && !list) rc = ZKE_NOMEM;
  if (rc == ZKE_OK) *list_out = list;
  return rc;
}
