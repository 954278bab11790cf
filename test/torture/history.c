/* history.c - see history.h
 *
 * The search for an order of one node's operations is Wing's and Gong's with
 * Lowe's memory of what was tried: take any operation that no other one has
 * returned before, if its answer fits the state, and go on; where none fits,
 * take the last one back.  It is fast because nearly every answer fits one
 * state only, and because
 *
 * - operations that returned come first, since they must be placed;
 * - one that fits and leaves the state alone is never taken back: whatever
 *   order there is, it may as well stand here (a session's end only when
 *   nothing of it can come any more);
 * - of a change without return whose value was seen the version is known;
 *   those never seen differ in nothing, so one of each sort is tried.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "history.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zkembed.h"

enum { BUDGET = 4000000, UNSEEN = 2, NUMBER_DIGITS = 10 };

/* ---- common ---- */

static const char *const kind_names[HIST_KINDS] = {
    "none", "create",  "sequence", "delete", "set",  "read", "stat",
    "same", "changed", "open",     "end",    "pair", "look",
};

static void complain(const hist *h, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void complain(const hist *h, const char *format, ...) {
  char sentence[3 * HIST_TEXT];
  va_list ap;
  va_start(ap, format);
  vsnprintf(sentence, sizeof sentence, format, ap);
  va_end(ap);
  if (h->complain) h->complain(h->context, sentence);
}

const char *hist_tell(const hist_op *o, char text[HIST_TEXT]) {
  snprintf(text, HIST_TEXT,
           "[%d: %s %s value %llx other %llx version %d wanted %d rc %d "
           "fired %d zxid %llx session %llx%s %lld..%lld]",
           o->process, kind_names[o->kind], o->path,
           (unsigned long long)o->value, (unsigned long long)o->other,
           o->version, o->wanted, o->rc, o->fired, (unsigned long long)o->zxid,
           (unsigned long long)o->session, o->ephemeral ? " ephemeral" : "",
           (long long)o->called, (long long)o->returned);
  return text;
}

/* Into one of a few static buffers. */
static const char *tell(const hist_op *o) {
  static char text[4][HIST_TEXT];
  static int turn;
  return hist_tell(o, text[turn++ % 4]);
}

static void *need(void *block) {
  if (block) return block;
  fputs("out of memory\n", stderr);
  abort();
}

static bool is_change(const hist_op *o) {
  return o->kind == HIST_CREATE || o->kind == HIST_SEQUENCE ||
         o->kind == HIST_DELETE || o->kind == HIST_SET;
}

static bool is_done(const hist_op *o) { return o->returned != 0; }

static bool has_worked(const hist_op *o) {
  return is_done(o) && o->rc == ZKE_OK;
}

/* Pointers to the operations that a function wants, in an order. */
typedef struct selection {
  const hist_op **at;
  int count;
} selection;

typedef bool wants_fn(const hist_op *o);
typedef int order_fn(const void *, const void *);

static selection hist_select(const hist *h, wants_fn *wants, order_fn *order) {
  selection s = {need(malloc(sizeof *s.at * (size_t)(h->count + 1))), 0};
  for (int i = 0; i < h->count; i++)
    if (h->op[i].kind != HIST_NONE && wants(&h->op[i]))
      s.at[s.count++] = &h->op[i];
  qsort(s.at, (size_t)s.count, sizeof *s.at, order);
  return s;
}

static int compare_int(int64_t a, int64_t b) { return (a > b) - (a < b); }

static const hist_op *op_of(const void *entry) {
  return *(const hist_op *const *)entry;
}

/* ---- zxids ---- */

static bool zxid_wants(const hist_op *o) {
  return has_worked(o) && o->zxid && (is_change(o) || o->kind == HIST_OPEN);
}

static int zxid_order(const void *a, const void *b) {
  return compare_int(op_of(a)->zxid, op_of(b)->zxid);
}

static bool same_change(const hist_op *a, const hist_op *b) {
  return a == b || (a->group && a->group == b->group);
}

int hist_check_zxids(const hist *h) {
  int bad = 0;
  selection s = hist_select(h, zxid_wants, zxid_order);
  const hist_op *first = NULL; /* to return, of those with higher zxids */
  for (int i = s.count - 1; i >= 0; i--) {
    const hist_op *o = s.at[i], *above = i + 1 < s.count ? s.at[i + 1] : NULL;
    if (above && above->zxid == o->zxid && !same_change(above, o)) {
      complain(h, "one zxid for two changes: %s %s", tell(o), tell(above));
      bad++;
    }
    if (first && first->returned < o->called && first->zxid > o->zxid) {
      complain(h, "a later change has a lower zxid: %s after %s", tell(o),
               tell(first));
      bad++;
    }
    if (!first || o->returned < first->returned) first = o;
  }
  free(s.at);
  return bad;
}

/* ---- sequence numbers ---- */

static long number_of(const hist_op *o) {
  size_t length = strlen(o->path);
  if (length < NUMBER_DIGITS) return -1;
  return atol(o->path + length - NUMBER_DIGITS);
}

static size_t parent_length(const char *path) {
  return (size_t)(strrchr(path, '/') - path);
}

static int parent_order(const hist_op *a, const hist_op *b) {
  size_t n = parent_length(a->path), m = parent_length(b->path);
  return n != m ? compare_int((int64_t)n, (int64_t)m)
                : memcmp(a->path, b->path, n);
}

static bool number_wants(const hist_op *o) {
  return o->kind == HIST_SEQUENCE && has_worked(o);
}

static int number_order(const void *a, const void *b) {
  int by_parent = parent_order(op_of(a), op_of(b));
  return by_parent ? by_parent
                   : compare_int(number_of(op_of(a)), number_of(op_of(b)));
}

int hist_check_sequences(const hist *h) {
  int bad = 0;
  selection s = hist_select(h, number_wants, number_order);
  const hist_op *first = NULL;
  for (int i = s.count - 1; i >= 0; i--) {
    const hist_op *o = s.at[i], *above = i + 1 < s.count ? s.at[i + 1] : NULL;
    if (above && parent_order(o, above) != 0) first = above = NULL;
    if (above && number_of(above) == number_of(o)) {
      complain(h, "a number given twice: %s %s", tell(o), tell(above));
      bad++;
    } else if (first && first->returned < o->called) {
      complain(h, "a later node has a lower number: %s after %s", tell(o),
               tell(first));
      bad++;
    }
    if (!first || o->returned < first->returned) first = o;
  }
  free(s.at);
  return bad;
}

/* ---- what a record shows by itself ---- */

/* May such an operation return that at all? */
static bool possible_result(const hist_op *o) {
  switch (o->rc) {
    case ZKE_OK:
    case HIST_NO_EFFECT:
      return true;
    case ZKE_NONODE:
      return o->kind != HIST_SEQUENCE && o->kind != HIST_OPEN;
    case ZKE_NODEEXISTS:
      return o->kind == HIST_CREATE;
    case ZKE_BADVERSION:
      return o->kind == HIST_DELETE || o->kind == HIST_SET;
    default:
      return false;
  }
}

/* What an operation by itself can show. */
static int check_record(const hist *h, const hist_op *o) {
  if (!possible_result(o)) {
    complain(h, "unexpected result: %s", tell(o));
  } else if (o->kind == HIST_PAIR && o->value != o->other) {
    complain(h, "a multi seen in part: %llx and %llx: %s",
             (unsigned long long)o->value, (unsigned long long)o->other,
             tell(o));
  } else if (o->kind == HIST_LOOK && o->fired < o->least) {
    complain(h, "a watch was lost: fired %d times, not %d to %d: %s", o->fired,
             o->least, o->most, tell(o));
  } else if (o->kind == HIST_LOOK && o->fired > o->most) {
    complain(h, "a watch fired for nothing: %d times, not %d to %d: %s",
             o->fired, o->least, o->most, tell(o));
  } else {
    return 0;
  }
  return 1;
}

int hist_check_records(const hist *h) {
  int bad = 0;
  for (int i = 0; i < h->count; i++)
    if (h->op[i].kind != HIST_NONE && is_done(&h->op[i]))
      bad += check_record(h, &h->op[i]);
  return bad;
}

/* ---- one node: its rules ---- */

typedef struct state {
  uint64_t value; /* 0: there is no node */
  int64_t owner;
  int32_t version;
  bool fleeting;
} state;

static const state nothing = {0, 0, 0, false};

static bool same_state(const state *a, const state *b) {
  return a->value == b->value && a->owner == b->owner &&
         a->version == b->version && a->fleeting == b->fleeting;
}

/* No node there, or one that may have gone by itself. */
static bool may_be_absent(const state *s) {
  return s->value == 0 || s->fleeting;
}

static bool fits_version(const hist_op *o, const state *s) {
  return o->wanted == -1 || o->wanted == s->version;
}

/* Refused, or nothing seen: the answer fits, and the state becomes sure. */
static bool step_refused(const hist_op *o, state *s) {
  switch (o->rc) {
    case ZKE_NONODE:
      if (!may_be_absent(s)) return false;
      *s = nothing;
      return true;
    case ZKE_NODEEXISTS:
      return s->value != 0;
    case ZKE_BADVERSION:
      return s->value != 0 && !fits_version(o, s);
    default:
      return false;
  }
}

static bool step_create(const hist_op *o, state *s) {
  if (!may_be_absent(s)) return false;
  *s = (state){o->value, o->ephemeral ? o->session : 0, 0, o->fleeting};
  return true;
}

static bool step_set(const hist_op *o, state *s) {
  if (s->value == 0 || !fits_version(o, s)) return false;
  if (o->version >= 0 && o->version != s->version + 1) return false;
  s->value = o->value;
  s->version++;
  return true;
}

static bool step_delete(const hist_op *o, state *s) {
  if (s->value == 0 || !fits_version(o, s)) return false;
  *s = nothing;
  return true;
}

static bool step_end(const hist_op *o, state *s) {
  if (s->value && s->owner == o->session) *s = nothing;
  return true;
}

/* Do an operation on a state; false where its answer does not fit. */
static bool step(const hist_op *o, state *s) {
  if (o->rc != ZKE_OK) return step_refused(o, s);
  switch (o->kind) {
    case HIST_CREATE:
    case HIST_SEQUENCE:
      return step_create(o, s);
    case HIST_SET:
      return step_set(o, s);
    case HIST_DELETE:
      return step_delete(o, s);
    case HIST_END:
      return step_end(o, s);
    case HIST_READ:
      return s->value == o->value && s->version == o->version;
    case HIST_STAT:
      return s->value != 0 && s->version == o->version;
    case HIST_SAME:
      return s->value == o->value;
    case HIST_CHANGED:
      return s->value != o->value;
    default:
      return false;
  }
}

/* ---- one node: the search ---- */

typedef struct frame {
  int op;
  bool certain; /* changed nothing: no need to try anything else */
  state before;
} frame;

/* Operations 0 to done-1 have returned, in the order of their calls, and form
 * a ring through `count` while not placed; those above may be left out. */
typedef struct search {
  hist_op *op;
  int done, count;
  int *next, *previous;
  bool *used;   /* placed */
  uint64_t *id; /* a random number for each; their sum names a set */
  frame *stack;
  int depth, deepest, stuck; /* stuck: what could not be placed then */
  state now, stuck_at;
  uint64_t placed;             /* sum of ids */
  uint64_t *tried, tried_size; /* a hash set of sums with states */
  int tried_count;
} search;

/* A number to a number, well mixed. */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static bool tried_insert(search *s, uint64_t key) {
  uint64_t i = key & (s->tried_size - 1);
  while (s->tried[i] && s->tried[i] != key) i = (i + 1) & (s->tried_size - 1);
  if (s->tried[i] == key) return false;
  s->tried[i] = key;
  s->tried_count++;
  return true;
}

/* More room for the states that were tried. */
static void tried_grow(search *s) {
  uint64_t *old = s->tried, old_size = s->tried_size;
  s->tried_size = old_size * 2;
  s->tried = need(calloc(s->tried_size, sizeof *s->tried));
  s->tried_count = 0;
  for (uint64_t i = 0; i < old_size; i++)
    if (old[i]) tried_insert(s, old[i]);
  free(old);
}

/* Note a set of placed operations with its state; false when it was there.
 * Only a hash is kept: that two of some million are alike by chance has a
 * probability of about 1 : 1,000,000. */
static bool tried_note(search *s, uint64_t placed, const state *now) {
  uint64_t key = placed ^ mix(now->value + mix((uint64_t)now->owner)) ^
                 mix((uint64_t)now->version * 2 + now->fleeting + 99);
  if ((uint64_t)s->tried_count * 2 > s->tried_size) tried_grow(s);
  return tried_insert(s, key | 1);
}

/* Until when the next operation must have been called. */
static int64_t search_limit(const search *s) {
  int64_t limit = INT64_MAX;
  for (int i = s->next[s->count]; i != s->count; i = s->next[i]) {
    if (s->op[i].called > limit) break;
    if (s->op[i].returned < limit) limit = s->op[i].returned;
  }
  return limit;
}

static bool alike(const hist_op *a, const hist_op *b) {
  return a->kind == b->kind && a->value == b->value && a->wanted == b->wanted &&
         a->version == b->version && a->ephemeral == b->ephemeral &&
         a->fleeting == b->fleeting &&
         (!a->ephemeral || a->session == b->session);
}

/* Whether an earlier one that was not used does as well. */
static bool has_twin(const search *s, int op) {
  for (int i = s->done; i < op; i++)
    if (!s->used[i] && alike(&s->op[i], &s->op[op])) return true;
  return false;
}

/* Whether creates of an ended session, from `from` to `to`, are not placed. */
static bool leaves_create(const search *s, int end, int from, int to) {
  for (int i = from; i < to; i++)
    if (!s->used[i] && s->op[i].ephemeral &&
        s->op[i].session == s->op[end].session)
      return true;
  return false;
}

static bool has_ended(const search *s, int64_t session) {
  for (int i = 0; i < s->done; i++)
    if (s->used[i] && s->op[i].kind == HIST_END && s->op[i].session == session)
      return true;
  return false;
}

/* A session creates nothing after its end. */
static bool is_allowed(const search *s, int op) {
  const hist_op *o = &s->op[op];
  if (o->kind == HIST_END) return !leaves_create(s, op, 0, s->done);
  if (op < s->done) return true;
  return !has_twin(s, op) && !(o->ephemeral && has_ended(s, o->session));
}

/* The next operation to try after `last` (-1: none yet), or -1. */
static int search_next(const search *s, int last) {
  int64_t limit = search_limit(s);
  if (last < s->done) {
    int i = s->next[last < 0 ? s->count : last];
    for (; i != s->count && s->op[i].called <= limit; i = s->next[i])
      if (is_allowed(s, i)) return i;
    last = s->done - 1;
  }
  for (int i = last + 1; i < s->count; i++)
    if (!s->used[i] && s->op[i].called <= limit && is_allowed(s, i)) return i;
  return -1;
}

static bool is_certain(const search *s, int op, const state *now) {
  if (op >= s->done || !same_state(now, &s->now)) return false;
  return s->op[op].kind != HIST_END || !leaves_create(s, op, s->done, s->count);
}

/* Put an operation next in the order, with the state after it. */
static void search_place(search *s, int op, state now) {
  s->stack[s->depth++] = (frame){op, is_certain(s, op, &now), s->now};
  s->now = now;
  s->placed += s->id[op];
  s->used[op] = true;
  if (op >= s->done) return;
  s->next[s->previous[op]] = s->next[op];
  s->previous[s->next[op]] = s->previous[op];
}

/* Take the last one back; returns what was tried there. */
static int search_back(search *s) {
  frame f = s->stack[--s->depth];
  s->now = f.before;
  s->placed -= s->id[f.op];
  s->used[f.op] = false;
  if (f.op < s->done)
    s->next[s->previous[f.op]] = s->previous[s->next[f.op]] = f.op;
  return f.certain ? s->count : f.op;
}

/* Remember the best that was reached, for the report. */
static void search_note_stuck(search *s) {
  if (s->depth < s->deepest) return;
  int64_t limit = INT64_MAX;
  s->deepest = s->depth;
  s->stuck_at = s->now;
  for (int i = s->next[s->count]; i != s->count; i = s->next[i])
    if (s->op[i].returned < limit) {
      limit = s->op[i].returned;
      s->stuck = i;
    }
}

/* 1: there is an order; 0: there is none; -1: too many were tried. */
static int search_run(search *s) {
  int last = -1;
  while (s->next[s->count] != s->count) {
    int op = search_next(s, last);
    if (op >= 0) {
      state now = s->now;
      last = op;
      if (!step(&s->op[op], &now)) continue;
      if (!tried_note(s, s->placed + s->id[op], &now)) continue;
      if (s->tried_count > BUDGET) return -1;
      search_place(s, op, now);
      last = -1;
    } else {
      search_note_stuck(s);
      if (s->depth == 0) return 0;
      last = search_back(s);
    }
  }
  return 1;
}

/* The search's arrays, and all operations as a list in order of their calls. */
static void search_prepare(search *s) {
  size_t n = (size_t)s->count + 1;
  s->next = need(malloc(n * sizeof *s->next));
  s->previous = need(malloc(n * sizeof *s->previous));
  s->used = need(calloc(n, sizeof *s->used));
  s->id = need(malloc(n * sizeof *s->id));
  s->stack = need(malloc(n * sizeof *s->stack));
  s->tried_size = 1024;
  s->tried = need(calloc(s->tried_size, sizeof *s->tried));
  for (int i = 0; i < s->count; i++) s->id[i] = mix((uint64_t)i + 1);
  int before = s->count;
  for (int i = 0; i < s->done; i++) {
    s->next[before] = i;
    s->previous[i] = before;
    before = i;
  }
  s->next[before] = s->count;
  s->previous[s->count] = before;
}

static void search_free(search *s) {
  free(s->next);
  free(s->previous);
  free(s->used);
  free(s->id);
  free(s->stack);
  free(s->tried);
}

/* Is there an order in which the operations of one node make sense? */
static int search_node(const hist *h, hist_op *op, int done, int count) {
  search s = {.op = op, .done = done, .count = count};
  search_prepare(&s);
  int found = search_run(&s);
  if (found != 1)
    complain(h, "%s: %s: not with value %llx version %d: %s", op->path,
             found ? "no order found" : "no order is possible",
             (unsigned long long)s.stuck_at.value, s.stuck_at.version,
             tell(&op[s.stuck]));
  search_free(&s);
  return found != 1;
}

/* ---- all nodes ---- */

/* Where a value was seen: this tells what became of operations that never
 * returned. */
typedef struct sighting {
  uint64_t value;
  const hist_op *op;
} sighting;

typedef struct sightings {
  sighting *at;
  int count;
} sightings;

static int sighting_order(const void *a, const void *b) {
  uint64_t x = ((const sighting *)a)->value, y = ((const sighting *)b)->value;
  return (x > y) - (x < y);
}

static sightings sightings_make(const hist *h) {
  sightings s = {need(malloc(sizeof *s.at * (size_t)(h->count + 1))), 0};
  for (int i = 0; i < h->count; i++)
    if (h->op[i].kind == HIST_READ && has_worked(&h->op[i]))
      s.at[s.count++] = (sighting){h->op[i].value, &h->op[i]};
  qsort(s.at, (size_t)s.count, sizeof *s.at, sighting_order);
  return s;
}

static const hist_op *sightings_find(const sightings *s, uint64_t value) {
  sighting key = {value, NULL};
  if (s->count == 0) return NULL;
  const sighting *found =
      bsearch(&key, s->at, (size_t)s->count, sizeof key, sighting_order);
  return found ? found->op : NULL;
}

/* Does the operation say anything of a node's value? */
static bool concerns_node(const hist_op *o) {
  switch (o->kind) {
    case HIST_CREATE:
    case HIST_SEQUENCE:
    case HIST_DELETE:
    case HIST_SET:
    case HIST_READ:
    case HIST_STAT:
    case HIST_SAME:
    case HIST_CHANGED:
      return !is_done(o) || o->rc != HIST_NO_EFFECT;
    default:
      return false;
  }
}

/* By node, those that returned first, by time. */
static int node_order(const void *a, const void *b) {
  const hist_op *x = a, *y = b;
  int by_path = strcmp(x->path, y->path);
  if (by_path) return by_path;
  if (is_done(x) != is_done(y)) return is_done(x) ? -1 : 1;
  return compare_int(x->called, y->called);
}

/* Take what a change without return must have done from what was seen. */
static bool settle(hist_op *o, const sightings *seen) {
  if (is_done(o)) return true;
  if (!is_change(o)) return false;
  const hist_op *sight =
      o->kind == HIST_DELETE ? NULL : sightings_find(seen, o->value);
  o->rc = ZKE_OK;
  o->version = -1;
  if (!sight) {
    o->value = UNSEEN;
    return o->kind != HIST_SEQUENCE;
  }
  if (o->kind == HIST_SEQUENCE) memcpy(o->path, sight->path, HIST_PATH);
  if (o->kind == HIST_SET) o->version = sight->version;
  return true;
}

/* The ends of sessions that had, or may have had, a node. */
static int add_ends(const hist *h, hist_op *op, int count, int room) {
  int total = count;
  for (int i = 0; i < h->count; i++) {
    const hist_op *end = &h->op[i];
    if (end->kind != HIST_END || !has_worked(end)) continue;
    bool owned = false;
    for (int j = 0; j < count && !owned; j++)
      owned = op[j].ephemeral && op[j].session == end->session;
    if (!owned || total == room) continue;
    op[total] = *end;
    memcpy(op[total++].path, op->path, HIST_PATH);
  }
  return total;
}

static bool has_ephemerals(const hist_op *op, int count) {
  for (int i = 0; i < count; i++)
    if (op[i].ephemeral) return true;
  return false;
}

/* The operations of one node, with the ends of sessions that owned it. */
static int check_node(const hist *h, const hist_op *from, int count) {
  int room = count + h->count, total = count, done = 0;
  hist_op *op = need(malloc(sizeof *op * (size_t)room));
  memcpy(op, from, sizeof *op * (size_t)count);
  if (has_ephemerals(op, count)) total = add_ends(h, op, count, room);
  qsort(op, (size_t)total, sizeof *op, node_order);
  while (done < total && is_done(&op[done])) done++;
  int bad = search_node(h, op, done, total);
  free(op);
  return bad;
}

int hist_check_nodes(const hist *h) {
  int bad = 0, count = 0;
  sightings seen = sightings_make(h);
  hist_op *op = need(malloc(sizeof *op * (size_t)(h->count + 1)));
  for (int i = 0; i < h->count; i++) {
    op[count] = h->op[i];
    if (concerns_node(&op[count]) && settle(&op[count], &seen)) count++;
  }
  qsort(op, (size_t)count, sizeof *op, node_order);
  for (int i = 0, n; i < count; i += n) {
    for (n = 1; i + n < count && !strcmp(op[i].path, op[i + n].path);) n++;
    bad += check_node(h, op + i, n);
  }
  free(op);
  free(seen.at);
  return bad;
}

/* ---- events ---- */

/* What the events and the operations say about one node. */
typedef struct account {
  const char *path;
  int created, changed, deleted;          /* events */
  int creates, sets, deletes;             /* that worked */
  int open_creates, open_sets, open_ends; /* without return */
  int since;                              /* changes since it was created */
  bool present, disorder;                 /* by the events */
  bool comes_and_goes;                    /* ephemeral or fleeting */
  const hist_op *last;                    /* seen when all was over */
} account;

typedef struct ledger {
  account *at;
  int count;
  unsigned size;
} ledger;

static account *ledger_find(ledger *l, const char *path) {
  uint64_t hash = 5;
  for (const char *c = path; *c; c++) hash = hash * 131 + (unsigned char)*c;
  unsigned i = (unsigned)mix(hash) & (l->size - 1);
  while (l->at[i].path && strcmp(l->at[i].path, path)) i = (i + 1) % l->size;
  l->at[i].path = path;
  return &l->at[i];
}

static ledger ledger_make(const hist *h) {
  ledger l = {NULL, 0, 64};
  while (l.size < 2 * (unsigned)(h->count + h->events)) l.size *= 2;
  l.at = need(calloc(l.size, sizeof *l.at));
  return l;
}

/* Count an event of the node, and whether it can follow those before. */
static void account_event(account *a, int type) {
  switch (type) {
    case ZKE_EVENT_CREATED:
      a->disorder |= a->present;
      a->present = true;
      a->since = 0;
      a->created++;
      break;
    case ZKE_EVENT_CHANGED:
      a->disorder |= !a->present;
      a->since++;
      a->changed++;
      break;
    case ZKE_EVENT_DELETED:
      a->disorder |= !a->present;
      a->present = false;
      a->deleted++;
      break;
    default:
      a->disorder = true;
  }
}

/* Count an operation on the node. */
static void account_op(account *a, const hist_op *o) {
  bool worked = has_worked(o), open = !is_done(o);
  switch (o->kind) {
    case HIST_CREATE:
    case HIST_SEQUENCE:
      a->creates += worked;
      a->open_creates += open;
      a->comes_and_goes |= o->ephemeral || o->fleeting;
      break;
    case HIST_SET:
      a->sets += worked;
      a->open_sets += open;
      break;
    case HIST_DELETE:
      a->deletes += worked;
      a->open_ends += open;
      break;
    case HIST_READ:
      if (o->final && worked) a->last = o;
      break;
    default:
      break;
  }
}

/* Events of this many changes: at least those that were acknowledged, at most
 * those and the ones without return. */
static bool within(int events, int worked, int open) {
  return events >= worked && events <= worked + open;
}

/* Do the node's events lead to what is there, one for each change? */
static int account_check(const hist *h, const account *a) {
  const char *what = NULL;
  bool there = a->last != NULL;
  if (a->disorder)
    what = "come in an order that cannot be";
  else if (a->present != there || (there && a->since != a->last->version))
    what = "do not lead to what is there";
  else if (!within(a->created, a->creates, a->open_creates))
    what = "tell of more or fewer creates";
  else if (!within(a->changed, a->sets, a->open_sets))
    what = "tell of more or fewer sets";
  else if (!within(a->deleted, a->deletes,
                   a->comes_and_goes ? INT_MAX / 2 : a->open_ends))
    what = "tell of more or fewer deletes";
  if (!what) return 0;
  complain(h,
           "%s: events %s: %d created (%d known, %d open), %d changed (%d, "
           "%d), %d deleted (%d, %d), %d since; %s %d",
           a->path, what, a->created, a->creates, a->open_creates, a->changed,
           a->sets, a->open_sets, a->deleted, a->deletes, a->open_ends,
           a->since, there ? "version" : "absent",
           there ? a->last->version : 0);
  return 1;
}

/* Nodes made before the watch have no event: the given ones begin present. */
static bool is_given(const hist_op *o) {
  return o->kind == HIST_CREATE && o->value == HIST_GIVEN;
}

/* Where an access control list is recorded like a node; it has no events. */
static bool is_node(const char *path) { return path[0] && !strchr(path, '#'); }

/* Of a sequential create without return the name is not known. */
static bool is_nameless(const hist_op *o) {
  return o->kind == HIST_SEQUENCE && !is_done(o);
}

/* An account for each node, with its events and operations. */
static void ledger_fill(ledger *l, const hist *h, const sightings *seen) {
  for (int i = 0; i < h->count; i++)
    if (is_given(&h->op[i]) && is_node(h->op[i].path))
      ledger_find(l, h->op[i].path)->present = true;
  for (int i = 0; i < h->events; i++)
    if (h->event[i].watch == HIST_RECURSIVE)
      account_event(ledger_find(l, h->event[i].path), h->event[i].type);
  for (int i = 0; i < h->count; i++) {
    const hist_op *o = &h->op[i], *sight = NULL;
    if (!is_node(o->path) || is_given(o)) continue;
    if (is_nameless(o)) {
      sight = sightings_find(seen, o->value);
      if (!sight) continue;
    }
    account_op(ledger_find(l, sight ? sight->path : o->path), o);
  }
}

/* A node that only events tell of was made by a sequential create without
 * return, and went with its session: of such there is one at most for each. */
static int ledger_check(const hist *h, ledger *l) {
  int bad = 0, unknown = 0, open = 0;
  for (int i = 0; i < h->count; i++)
    open += h->op[i].kind != HIST_NONE && is_nameless(&h->op[i]);
  for (unsigned i = 0; i < l->size; i++) {
    account *a = &l->at[i];
    if (!a->path) continue;
    if (a->created == 1 && a->deleted == 1 && !a->disorder && !a->creates &&
        !a->open_creates && !a->last) {
      unknown++;
      continue;
    }
    bad += account_check(h, a);
  }
  if (unknown > open) {
    complain(h, "events tell of %d nodes that nobody made, at most %d can be",
             unknown, open);
    bad++;
  }
  return bad;
}

/* The persistent watch on one node: its events are those of the recursive
 * one about it, and a CHILD for each child that came or went. */
static bool watched_child(const hist *h, const char *path) {
  size_t n = strlen(h->watched);
  return strncmp(path, h->watched, n) == 0 && path[n] == '/' &&
         !strchr(path + n + 1, '/');
}

/* Did the persistent watch hear each child and each change of its own node
 * once? */
static int check_persistent(const hist *h) {
  int children = 0, told = 0, own = 0, told_own = 0;
  if (!h->watched) return 0;
  for (int i = 0; i < h->events; i++) {
    const hist_event *e = &h->event[i];
    if (e->watch == HIST_PERSISTENT) {
      told += e->type == ZKE_EVENT_CHILD;
      told_own += e->type != ZKE_EVENT_CHILD;
    } else {
      children += e->type != ZKE_EVENT_CHANGED && watched_child(h, e->path);
      own += strcmp(e->path, h->watched) == 0;
    }
  }
  if (children == told && own == told_own) return 0;
  complain(h, "%s: the persistent watch got %d and %d events, not %d and %d",
           h->watched, told, told_own, children, own);
  return 1;
}

/* Creates that worked, by path and zxid. */
static bool create_wants(const hist_op *o) {
  return (o->kind == HIST_CREATE || o->kind == HIST_SEQUENCE) &&
         has_worked(o) && o->zxid && is_node(o->path) && !is_given(o);
}

static int create_order(const void *a, const void *b) {
  int by_path = strcmp(op_of(a)->path, op_of(b)->path);
  return by_path ? by_path : zxid_order(a, b);
}

/* The first create of that path, in a selection ordered by path. */
static int find_create(const selection *s, const char *path) {
  int low = 0, high = s->count;
  while (low < high) {
    int middle = (low + high) / 2;
    if (strcmp(s->at[middle]->path, path) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Where all creates of a node are known, its n-th CREATED is of the n-th. */
static int check_order(const hist *h, ledger *l) {
  int bad = 0;
  const hist_op *before = NULL;
  selection s = hist_select(h, create_wants, create_order);
  int *turn = need(calloc((size_t)s.count + 1, sizeof *turn));
  for (int i = 0; i < h->events; i++) {
    const hist_event *e = &h->event[i];
    if (e->watch != HIST_RECURSIVE || e->type != ZKE_EVENT_CREATED) continue;
    const account *a = ledger_find(l, e->path);
    int at = find_create(&s, e->path);
    if (a->created != a->creates || at + turn[at] >= s.count) continue;
    const hist_op *o = s.at[at + turn[at]];
    turn[at]++;
    if (strcmp(o->path, e->path) != 0) continue;
    if (before && before->zxid > o->zxid) {
      complain(h, "events out of order: %s after %s", tell(o), tell(before));
      bad++;
    }
    before = o;
  }
  free(turn);
  free(s.at);
  return bad;
}

int hist_check_events(const hist *h) {
  ledger l = ledger_make(h);
  sightings seen = sightings_make(h);
  ledger_fill(&l, h, &seen);
  int bad = ledger_check(h, &l) + check_persistent(h) + check_order(h, &l);
  free(seen.at);
  free(l.at);
  return bad;
}

int hist_check(const hist *h) {
  return hist_check_records(h) + hist_check_nodes(h) + hist_check_zxids(h) +
         hist_check_sequences(h) + (h->event ? hist_check_events(h) : 0);
}
