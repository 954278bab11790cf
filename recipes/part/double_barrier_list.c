/* double_barrier_list.c - lists of a double barrier's parties, and sentences
 *
 * This file makes the lists and the sentences that tell people of a round: the
 * members inside, the dead, and the missing.  Nothing here changes the tree.
 *
 * A list of members, or of waiting parties, is of one snapshot.  A list of both
 * (zke_parties_all()) reads the waiting parties after the members: a party that
 * moves from one to the other in between is in both, or in neither.
 *
 * Start reading at zke_parties_all(). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "double_barrier_list.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text.h"

/* ---- lists ---- */

/* The bytes of the strings are counted first. */
int zke_parties_copy(zke *z, const zke_party *p, int count,
                     zke_party_list **list_out) {
  size_t text = 0;
  for (int i = 0; i < count; i++)
    text += strlen(p[i].name) + strlen(p[i].identity) + (size_t)p[i].len + 3;
  zke_party_list *list =
      zke_alloc(z, sizeof *list + (size_t)count * sizeof *p + text);
  if (!list) return ZKE_NOMEM;
  zke_party *out = (zke_party *)(void *)(list + 1);
  char *at = (char *)(out + count);
  for (int i = 0; i < count; i++) {
    out[i] = p[i];
    out[i].name = at;
    at = stpcpy(at, p[i].name) + 1;
    out[i].identity = at;
    at = stpcpy(at, p[i].identity) + 1;
    out[i].data = at;
    if (p[i].len) memcpy(at, p[i].data, (size_t)p[i].len);
    at += p[i].len + 1;
  }
  list->count = count;
  list->data = out;
  *list_out = list;
  return ZKE_OK;
}

/* Set a member's kind by its state; returns the state. */
static enum zke_member_state member_describe(const zke_picture *p,
                                             zke_party *m) {
  static const char *const kinds[] = {[ZKE_MEMBER_GONE] = "gone",
                                      [ZKE_MEMBER_INSIDE] = "inside",
                                      [ZKE_MEMBER_LEAVING] = "leaving",
                                      [ZKE_MEMBER_DEAD] = "dead"};
  enum zke_member_state state = zke_picture_state(p, m);
  m->kind = kinds[state];
  return state;
}

/* A member that has left is not missing. */
int zke_parties_inside(const zke_gate *gate, int64_t round,
                       zke_party_list **list_out) {
  zke_picture p;
  int count = 0;
  int rc = zke_picture_take(&p, gate);
  for (int i = 0; p.round == round && i < p.count; i++) {
    zke_party m = p.members[i];
    enum zke_member_state state = member_describe(&p, &m);
    if (state == ZKE_MEMBER_INSIDE || state == ZKE_MEMBER_DEAD)
      p.members[count++] = m;
  }
  if (rc == ZKE_OK) rc = zke_parties_copy(gate->z, p.members, count, list_out);
  zke_picture_clear(&p);
  return rc;
}

/* In the order in which they arrived. */
int zke_parties_waiting(const zke_gate *gate, zke_party_list **list_out) {
  zke_arrivals a;
  int rc = zke_arrivals_read(&a, gate, 0);
  if (rc == ZKE_OK)
    rc = zke_parties_copy(gate->z, a.waiting, a.count, list_out);
  zke_arrivals_clear(&a);
  return rc;
}

/* The members and the waiting parties, as one list. */
static int parties_join(zke *z, const zke_picture *p, const zke_arrivals *a,
                        zke_party_list **list_out) {
  size_t most = (size_t)p->count + (size_t)a->count + 1;
  zke_party *all = zke_alloc(z, most * sizeof *all);
  int count = 0;
  if (!all) return ZKE_NOMEM;
  for (int i = 0; i < p->count; i++) {
    all[count] = p->members[i];
    enum zke_member_state state = member_describe(p, &all[count]);
    all[count].held = state == ZKE_MEMBER_INSIDE;
    count += state != ZKE_MEMBER_GONE;
  }
  for (int i = 0; i < a->count; i++) all[count++] = a->waiting[i];
  int rc = zke_parties_copy(z, all, count, list_out);
  zke_free(all);
  return rc;
}

/* A missing barrier gives an empty list, not an error. */
int zke_parties_all(zke *z, const char *path, zke_party_list **list_out) {
  zke_picture p;
  zke_arrivals a = {0};
  zke_gate gate = {.z = z, .path = path};
  gate.ready = zke_recipe_path(z, path, "ready");
  if (!gate.ready) return ZKE_NOMEM;
  int rc = zke_picture_take(&p, &gate);
  if (rc == ZKE_OK) rc = zke_arrivals_read(&a, &gate, 0);
  if (rc == ZKE_OK || rc == ZKE_NONODE) rc = parties_join(z, &p, &a, list_out);
  zke_arrivals_clear(&a);
  zke_picture_clear(&p);
  zke_free(gate.ready);
  return rc;
}

/* ---- sentences ---- */

enum { PARTIES_SAID = 384 /* bytes of the names in a sentence */ };

/* "a (pid 12), b (pid 13)", as far as there is room. */
static void parties_name(const zke_party_list *list, char text[PARTIES_SAID]) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < list->count && used < PARTIES_SAID; i++) {
    int n =
        snprintf(text + used, PARTIES_SAID - used, "%s%s (pid %" PRId64 ")%s",
                 i ? ", " : "", list->data[i].identity, list->data[i].pid,
                 strcmp(list->data[i].kind, "dead") == 0 ? " died" : "");
    used += n > 0 ? (size_t)n : 0;
  }
}

/* If N wait already, a running round keeps them out. */
int zke_parties_say_waiting(const zke_gate *gate, int rc) {
  char who[PARTIES_SAID];
  zke_sentence kept;
  zke_party_list *list = NULL;
  zke_recipe_keep(&kept);
  if (zke_parties_waiting(gate, &list) != ZKE_OK)
    return zke_recipe_restore(&kept, rc);
  parties_name(list, who);
  zke_fail(rc, "%d of %d parties are at %s%s: %s", list->count, gate->parties,
           gate->path,
           list->count >= gate->parties ? ", where a round still runs" : "",
           who);
  zke_free(list);
  return rc;
}

/* The dead are named, too, since they have not left. */
int zke_parties_say_inside(const zke_gate *gate, int rc, int64_t round) {
  char who[PARTIES_SAID];
  zke_sentence kept;
  zke_party_list *list = NULL;
  zke_recipe_keep(&kept);
  if (zke_parties_inside(gate, round, &list) != ZKE_OK)
    return zke_recipe_restore(&kept, rc);
  parties_name(list, who);
  zke_fail(rc, "%d of the %d parties inside of %s have not left: %s",
           list->count, gate->parties, gate->path, who);
  zke_free(list);
  return rc;
}
