/* past.c - past holders, calculated from a history
 *
 * The history has the creations and deletions of nodes, in the order of their
 * zxids.  From these follows the life of each ephemeral node: from its creation
 * to its deletion.  If a node's first change is not a creation, it existed
 * before the history began; so did a node that exists now and has no change.
 *
 * A time becomes the zxid of the last change up to it, and then only zxids are
 * compared: clocks may be set back, zxids rise.
 *
 * The entries before an entry of a line keep it out, but readers do not keep
 * out readers.  It holds from the end of the last entry that kept it out, or
 * from its own start, until an entry goes before it (a thief), or its own end.
 * So no replay is needed: begin with past_holders().
 */
#include "past.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/part/text.h"

/* ------------------------------------------------------------------------
 * Lives
 *
 * A path may have several lives in sequence, which never overlap.  Only
 * ephemeral nodes have them: a node without an owner holds nothing.
 * --------------------------------------------------------------------- */

/* A change and its place in the list, for sorting by paths. */
typedef struct past_step {
  const past_change *change;
  int index;
} past_step;

static int step_compare(const void *a_, const void *b_) {
  const past_step *a = a_, *b = b_;
  int order = strcmp(a->change->path, b->change->path);
  return order ? order : (a->index > b->index) - (a->index < b->index);
}

/* Is it the node itself, or a child of it? */
static bool is_near(const char *path, const char *top) {
  size_t len = strlen(top);
  if (strcmp(path, top) == 0) return true;
  if (len > 1 && (strncmp(path, top, len) != 0 || path[len] != '/'))
    return false;
  return strchr(path + (len > 1 ? len : 0) + 1, '/') == NULL;
}

/* Writes the lives of one path in sequence, from its changes in order; returns
 * how many.  Each change gives the owner, if it is known. */
static int lives_of(const past_step *steps, int count, past_life *to) {
  int n = 0;
  bool alive = false;
  for (int i = 0; i < count; i++) {
    const past_change *c = steps[i].change;
    if (!alive) to[n] = (past_life){.path = c->path, .to = INT64_MAX};
    if (!alive && c->type == ZKE_EVENT_CREATED) {
      to[n].from = c->zxid;
      to[n].from_ms = c->time_ms;
    }
    alive = true;
    if (c->owner) to[n].owner = c->owner;
    if (c->type != ZKE_EVENT_DELETED) continue;
    to[n].to = c->zxid;
    to[n].to_ms = c->time_ms;
    alive = false;
    n += to[n].owner != 0;
  }
  return n + (alive && to[n].owner != 0);
}

/* All lives in the sorted changes. */
static int lives_of_all(const past_step *steps, int count, past_life *to) {
  int n = 0;
  for (int i = 0, end; i < count; i = end) {
    for (end = i + 1; end < count; end++)
      if (strcmp(steps[end].change->path, steps[i].change->path) != 0) break;
    n += lives_of(steps + i, end - i, to + n);
  }
  return n;
}

static int life_compare(const void *a, const void *b) {
  return strcmp(((const past_life *)a)->path, ((const past_life *)b)->path);
}

/* Does the history have a change of this path? */
static bool is_told(const past_step *steps, int count, const char *path) {
  int low = 0, high = count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    int order = strcmp(steps[middle].change->path, path);
    if (order == 0) return true;
    if (order < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return false;
}

/* Collects the lives in the changes.  A node that exists now and appears in no
 * change gets one life, from before the history until now. */
int past_lives(const past_changes *changes, const char *path,
               const past_node *now, int count, past_life **lives_out) {
  size_t room = (size_t)changes->count + (size_t)count + 1;
  past_step *steps = calloc(room, sizeof *steps);
  past_life *lives = calloc(room, sizeof *lives);
  int n = 0, told = 0;
  *lives_out = lives;
  if (!steps || !lives) {
    free(steps);
    return -1;
  }
  for (int i = 0; i < changes->count; i++)
    if (is_near(changes->data[i].path, path))
      steps[told++] = (past_step){&changes->data[i], i};
  qsort(steps, (size_t)told, sizeof *steps, step_compare);
  n = lives_of_all(steps, told, lives);
  for (int i = 0; i < count; i++)
    if (!is_told(steps, told, now[i].path))
      lives[n++] = (past_life){
          .path = now[i].path, .owner = now[i].owner, .to = INT64_MAX};
  qsort(lives, (size_t)n, sizeof *lives, life_compare);
  free(steps);
  return n;
}

/* ------------------------------------------------------------------------
 * The line
 *
 * The rules of part/entry.h, as far as names show them: kind and number.  A
 * history does not have the limits of semaphores or marks of handing over: so
 * for a semaphore all in the line are reported, and marks are not entries.
 * --------------------------------------------------------------------- */

/* The number at the end of an entry's name; -1 if there is none, or if it is
 * negative, which no lasting entry has. */
static int32_t number_of(const char *path) {
  size_t len = strlen(path);
  int32_t number;
  if (len <= ZKE_RECIPE_DIGITS ||
      !zke_recipe_number(path + len - ZKE_RECIPE_DIGITS, &number))
    return -1;
  return number < 0 ? -1 : number;
}

/* Does the part of the name before the number end in this kind? */
static bool is_kind(const past_life *l, const char *kind) {
  size_t len = strlen(l->path), behind = strlen(kind) + ZKE_RECIPE_DIGITS;
  return len >= behind &&
         strncmp(l->path + len - behind, kind, strlen(kind)) == 0;
}

/* An entry of a line, not a mark for one and no other child. */
static bool is_entry(const past_life *l) {
  return number_of(l->path) >= 0 && !is_kind(l, "-next-");
}

/* Thieves go before all others. */
static bool is_before(const past_life *a, const past_life *b) {
  bool front = is_kind(a, "-front-"), other = is_kind(b, "-front-");
  return front != other ? front : number_of(a->path) < number_of(b->path);
}

/* Does one keep out the other while it lives?  This is unknown for semaphores:
 * none does. */
static bool keeps_out(const past_life *a, const past_life *b) {
  if (!is_entry(a) || !is_before(a, b) || is_kind(b, "-lease-")) return false;
  return !(is_kind(a, "-__READ__") && is_kind(b, "-__READ__"));
}

static bool lives_at(const past_life *l, int64_t zxid) {
  return l->from <= zxid && zxid < l->to;
}

/* When an entry that nothing keeps out at a zxid began to hold, and when it
 * ended. */
static void hold_of(const past_life *lives, int count, int64_t zxid,
                    past_holder *h) {
  const past_life *l = h->life;
  int64_t from = l->from, to = l->to;
  h->since_ms = l->from_ms;
  h->until_ms = l->to_ms;
  for (int i = 0; i < count; i++) {
    const past_life *other = &lives[i];
    if (!keeps_out(other, l)) continue;
    if (other->to <= zxid && other->to > from) {
      from = other->to;
      h->since_ms = other->to_ms;
    } else if (other->from > zxid && other->from < to) {
      to = other->from;
      h->until_ms = other->from_ms;
    }
  }
}

/* Fills in the holder from a life at a zxid; false if it was not one. */
static bool holder_of(const past_life *lives, int count, const past_life *l,
                      int64_t zxid, past_holder *h) {
  *h = (past_holder){.life = l, .place = 1};
  if (!lives_at(l, zxid) || !is_entry(l)) return false;
  for (int i = 0; i < count; i++) {
    if (!lives_at(&lives[i], zxid)) continue;
    if (keeps_out(&lives[i], l)) return false;
    h->place += is_entry(&lives[i]) && is_before(&lives[i], l);
  }
  hold_of(lives, count, zxid, h);
  return true;
}

static int holder_compare(const void *a, const void *b) {
  return ((const past_holder *)a)->place - ((const past_holder *)b)->place;
}

/* The zxid of the last change up to a time. */
static int64_t zxid_at(const past_changes *changes, int64_t at) {
  int64_t zxid = 0;
  for (int i = 0; i < changes->count; i++)
    if (changes->data[i].time_ms <= at) zxid = changes->data[i].zxid;
  return zxid;
}

/* Converts the time to a zxid, since lives are compared by zxids: several
 * changes may have the same time. */
int past_holders(const past_changes *changes, const char *path,
                 const past_life *lives, int count, int64_t at,
                 past_holder **holders_out) {
  past_holder *holders = calloc((size_t)count + 1, sizeof *holders);
  int64_t zxid = zxid_at(changes, at);
  int n = 0;
  *holders_out = holders;
  if (!holders) return -1;
  for (int i = 0; i < count; i++) {
    if (strcmp(lives[i].path, path) != 0 || !lives_at(&lives[i], zxid))
      continue;
    holders[0] = (past_holder){.life = &lives[i],
                               .place = 1,
                               .since_ms = lives[i].from_ms,
                               .until_ms = lives[i].to_ms};
    return 1;
  }
  for (int i = 0; i < count; i++)
    n += holder_of(lives, count, &lives[i], zxid, &holders[n]);
  qsort(holders, (size_t)n, sizeof *holders, holder_compare);
  return n;
}
