/* recipe_history.c - see recipe_history.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "recipe_history.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- records ---- */

int64_t history_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void history_write(int fd, history_record r) {
  r.when = history_now();
  if (write(fd, &r, sizeof r) != sizeof r) abort();
}

static void *grow(void *block, int count, size_t size) {
  void *grown = realloc(block, (size_t)count * size);
  if (!grown) abort();
  return grown;
}

void history_add(history *h, history_record r) {
  if (h->count == h->cap) {
    h->cap = h->cap ? h->cap * 2 : 64;
    h->at = grow(h->at, h->cap, sizeof *h->at);
  }
  h->at[h->count++] = r;
}

void history_free(history *h) {
  free(h->at);
  *h = (history){0};
}

static int by_time(const void *a, const void *b) {
  const history_record *x = a, *y = b;
  return (x->when > y->when) - (x->when < y->when);
}

bool history_read(const char *path, history *out) {
  history_record r;
  FILE *f = fopen(path, "rb");
  *out = (history){0};
  if (!f) return false;
  while (fread(&r, sizeof r, 1, f) == 1) history_add(out, r);
  fclose(f);
  qsort(out->at, (size_t)out->count, sizeof *out->at, by_time);
  return true;
}

/* ---- complaints ---- */

/* The first problem of a case stays. */
__attribute__((format(printf, 2, 3))) static bool wrong(history_case *c,
                                                        const char *format,
                                                        ...) {
  va_list ap;
  va_start(ap, format);
  if (!c->problem[0]) vsnprintf(c->problem, sizeof c->problem, format, ap);
  va_end(ap);
  return false;
}

static bool is_about(const history_case *c, const history_record *r) {
  return r->recipe == c->recipe && r->resource == c->resource;
}

static int highest_who(const history *h) {
  int highest = 0;
  for (int i = 0; i < h->count; i++) {
    if (h->at[i].who > highest) highest = h->at[i].who;
  }
  return highest;
}

/* ---- holders ---- */

/* From taking to leaving or dying; a process takes one at a time. */
typedef struct interval {
  int64_t start, end, number;
  int32_t who, weight;
} interval;

typedef struct intervals {
  interval *at;
  int count;
} intervals;

/* All intervals of a resource, by their start.  What a process did after its
 * DYING record does not count: it may have died during it. */
static intervals find_intervals(const history_case *c) {
  const history *h = c->h;
  int people = highest_who(h) + 1;
  intervals v = {grow(NULL, h->count + 1, sizeof(interval)), 0};
  int *open = grow(NULL, people, sizeof *open); /* index + 1; -1: dying */
  memset(open, 0, (size_t)people * sizeof *open);
  for (int i = 0; i < h->count; i++) {
    const history_record *r = &h->at[i];
    if (open[r->who] < 0) continue;
    if (r->event == HISTORY_TAKEN && is_about(c, r)) {
      v.at[v.count++] = (interval){r->when, INT64_MAX, r->number, r->who,
                                   r->weight ? r->weight : 1};
      open[r->who] = v.count;
    }
    bool ends = r->event == HISTORY_DYING ||
                (r->event == HISTORY_LEAVING && is_about(c, r));
    if (ends && open[r->who]) {
      v.at[open[r->who] - 1].end = r->when;
      open[r->who] = 0;
    }
    if (r->event == HISTORY_DYING) open[r->who] = -1;
  }
  free(open);
  return v;
}

static int by_end(const void *a, const void *b) {
  const interval *x = a, *y = b;
  return (x->end > y->end) - (x->end < y->end);
}

/* The highest fencing values of the holders that have left. */
typedef struct fence {
  int64_t any, alone; /* of all; of those that held alone */
} fence;

static bool is_alone(const interval *i, int64_t capacity) {
  return i->weight >= capacity;
}

/* Holders that share may get their values in another order than their records.
 * So compare only if one of the two was alone. */
static bool check_fence(history_case *c, const fence *f, const interval *now,
                        int64_t capacity) {
  int64_t highest = is_alone(now, capacity) ? f->any : f->alone;
  if (now->number > highest) return true;
  return wrong(c, "process %d got the fencing value %lld after %lld", now->who,
               (long long)now->number, (long long)highest);
}

static void raise_fence(fence *f, const interval *left, int64_t capacity) {
  if (left->number > f->any) f->any = left->number;
  if (is_alone(left, capacity) && left->number > f->alone)
    f->alone = left->number;
}

/* Merge the takings, in their order, with the ends. */
static bool check_intervals(history_case *c, const intervals *v,
                            const interval *ends, int64_t capacity) {
  int64_t taken = 0;
  fence f = {INT64_MIN, INT64_MIN};
  int e = 0;
  for (int i = 0; i < v->count; i++) {
    const interval *now = &v->at[i];
    for (; e < v->count && ends[e].end <= now->start; e++) {
      taken -= ends[e].weight;
      raise_fence(&f, &ends[e], capacity);
    }
    taken += now->weight;
    if (taken > capacity) {
      return wrong(c, "process %d took %d while %lld of %lld were taken",
                   now->who, now->weight, (long long)(taken - now->weight),
                   (long long)capacity);
    }
    if (!check_fence(c, &f, now, capacity)) return false;
  }
  return true;
}

bool history_exclusive(history_case *c, int64_t capacity) {
  intervals v = find_intervals(c);
  interval *ends = grow(NULL, v.count + 1, sizeof *ends);
  if (v.count) memcpy(ends, v.at, (size_t)v.count * sizeof *ends);
  qsort(ends, (size_t)v.count, sizeof *ends, by_end);
  bool good = check_intervals(c, &v, ends, capacity);
  free(ends);
  free(v.at);
  return good;
}

/* ---- progress ---- */

enum { IDLE, WAITING, HOLDING, DEAD };

typedef struct watchman {
  int waiting, holding, stopped; /* processes */
  int64_t since;    /* since when it is free, wanted and all are awake */
  int64_t gathered; /* such time before the last stop */
  bool running;
} watchman;

/* A process has changed its state. */
static void count_state(watchman *w, int *state, int now) {
  w->waiting += (now == WAITING) - (*state == WAITING);
  w->holding += (now == HOLDING) - (*state == HOLDING);
  *state = now;
}

/* The state of the process after a record. */
static int state_after(const history_record *r, int state) {
  switch (r->event) {
    case HISTORY_WANTED:
      return WAITING;
    case HISTORY_TAKEN:
      return HOLDING;
    case HISTORY_LEAVING:
    case HISTORY_GAVE_UP:
      return IDLE;
    default:
      return state;
  }
}

/* The clock of how long nobody has taken the resource. */
static bool let_run(history_case *c, watchman *w, int64_t now, int64_t limit) {
  if (w->running) w->gathered += now - w->since;
  if (w->running && w->gathered > limit) {
    return wrong(c, "free for %lld ms while %d waited",
                 (long long)(w->gathered / 1000000), w->waiting);
  }
  if (w->holding > 0 || w->waiting == 0) w->gathered = 0;
  w->running = w->holding == 0 && w->waiting > 0 && w->stopped == 0;
  w->since = now;
  return true;
}

bool history_progress(history_case *c, int64_t limit) {
  const history *h = c->h;
  int people = highest_who(h) + 1;
  int *state = grow(NULL, people, sizeof *state);
  bool *still = grow(NULL, people, sizeof *still), good = true;
  watchman w = {0};
  memset(state, 0, (size_t)people * sizeof *state);
  memset(still, 0, (size_t)people * sizeof *still);
  for (int i = 0; i < h->count && good; i++) {
    const history_record *r = &h->at[i];
    bool dies = r->event == HISTORY_DYING, stops = r->event == HISTORY_STOPPED;
    good = let_run(c, &w, r->when, limit);
    if (is_about(c, r) && state[r->who] != DEAD)
      count_state(&w, &state[r->who], state_after(r, state[r->who]));
    if (dies) count_state(&w, &state[r->who], DEAD);
    if (stops || dies || r->event == HISTORY_CONTINUED) {
      w.stopped += stops - still[r->who];
      still[r->who] = stops;
    }
    if (good) good = let_run(c, &w, r->when, limit);
  }
  free(state);
  free(still);
  return good;
}

/* ---- queues ---- */

typedef struct item {
  int64_t number;
  int putting, put, got, acking, acked, left;
} item;

static int by_number(const void *a, const void *b) {
  const item *x = a, *y = b;
  return (x->number > y->number) - (x->number < y->number);
}

/* Find what became of each item; returns their number. */
static int find_items(const history_case *c, item *items) {
  int count = 0, kept = 0;
  for (int i = 0; i < c->h->count; i++) {
    const history_record *r = &c->h->at[i];
    if (!is_about(c, r) || r->event < HISTORY_PUTTING ||
        r->event > HISTORY_LEFT)
      continue;
    items[count++] = (item){.number = r->number,
                            .putting = r->event == HISTORY_PUTTING,
                            .put = r->event == HISTORY_PUT,
                            .got = r->event == HISTORY_GOT,
                            .acking = r->event == HISTORY_ACKING,
                            .acked = r->event == HISTORY_ACKED,
                            .left = r->event == HISTORY_LEFT};
  }
  qsort(items, (size_t)count, sizeof *items, by_number);
  for (int i = 0; i < count; i++) {
    item *last = &items[kept > 0 ? kept - 1 : 0];
    if (kept == 0 || last->number != items[i].number) {
      items[kept++] = items[i];
      continue;
    }
    last->putting += items[i].putting;
    last->put += items[i].put;
    last->got += items[i].got;
    last->acking += items[i].acking;
    last->acked += items[i].acked;
    last->left += items[i].left;
  }
  return kept;
}

/* How many have died: each may have got one item without a record. */
static int deaths(const history *h) {
  int count = 0;
  for (int i = 0; i < h->count; i++) count += h->at[i].event == HISTORY_DYING;
  return count;
}

/* Without acks an item is done when it was got; with acks, when the ack was at
 * least begun: it may have succeeded although the process died. */
static bool check_item(history_case *c, const item *i, bool acks, int *lost) {
  int ends = acks ? i->acked : i->got;
  if (!i->putting)
    return wrong(c, "item %lld was never put", (long long)i->number);
  if (ends > 1)
    return wrong(c, "item %lld was %s %d times", (long long)i->number,
                 acks ? "acknowledged" : "got", ends);
  if (ends && i->left)
    return wrong(c, "item %lld is done with and still there",
                 (long long)i->number);
  if (i->left > 1)
    return wrong(c, "item %lld is there %d times", (long long)i->number,
                 i->left);
  bool gone = i->put && !ends && !i->left;
  if (gone && acks && !i->acking)
    return wrong(c, "item %lld was lost", (long long)i->number);
  *lost += gone;
  return true;
}

bool history_queue(history_case *c, bool acks) {
  item *items = grow(NULL, c->h->count + 1, sizeof *items);
  int count = find_items(c, items), lost = 0;
  bool good = true;
  for (int i = 0; i < count && good; i++)
    good = check_item(c, &items[i], acks, &lost);
  free(items);
  if (good && lost > deaths(c->h))
    good = wrong(c, "%d items were lost by %d deaths", lost, deaths(c->h));
  return good;
}

/* ---- barriers ---- */

/* The parties that had come, and neither passed nor died, before record
 * `at`. */
static int come_before(const history_case *c, int at, bool *inside,
                       int people) {
  int count = 0;
  memset(inside, 0, (size_t)people * sizeof *inside);
  for (int i = 0; i < at; i++) {
    const history_record *r = &c->h->at[i];
    if (!is_about(c, r)) continue;
    if (r->event == HISTORY_ENTERING) inside[r->who] = true;
    if (r->event == HISTORY_PASSED || r->event == HISTORY_GAVE_UP)
      inside[r->who] = false;
  }
  for (int i = 0; i < people; i++) count += inside[i];
  return count;
}

bool history_barrier(history_case *c, int parties) {
  int people = highest_who(c->h) + 1;
  bool *inside = grow(NULL, people, sizeof *inside), good = true;
  int64_t generation = INT64_MIN;
  for (int i = 0; i < c->h->count && good; i++) {
    const history_record *r = &c->h->at[i];
    if (r->event != HISTORY_PASSED || !is_about(c, r)) continue;
    if (r->number <= generation) continue; /* not the first */
    generation = r->number;
    int come = come_before(c, i, inside, people);
    if (come < parties)
      good = wrong(c, "process %d passed when %d of %d had come", r->who, come,
                   parties);
  }
  free(inside);
  return good;
}

/* ---- two-phase commit ---- */

static int votes_before(const history_case *c, int at, int64_t number) {
  int count = 0;
  for (int i = 0; i < at; i++) {
    const history_record *r = &c->h->at[i];
    count += is_about(c, r) && r->event == HISTORY_VOTING &&
             r->number == number && r->weight == 1;
  }
  return count;
}

/* The earlier decision on a transaction; -1: none. */
static int outcome_before(const history_case *c, int at, int64_t number) {
  for (int i = 0; i < at; i++) {
    const history_record *r = &c->h->at[i];
    if (is_about(c, r) && r->event == HISTORY_DECIDED && r->number == number)
      return r->weight;
  }
  return -1;
}

bool history_decisions(history_case *c, int sites) {
  for (int i = 0; i < c->h->count; i++) {
    const history_record *r = &c->h->at[i];
    if (!is_about(c, r) || r->event != HISTORY_DECIDED) continue;
    int before = outcome_before(c, i, r->number);
    if (before >= 0 && before != r->weight)
      return wrong(c, "transaction %lld was decided both ways",
                   (long long)r->number);
    int votes = r->weight ? votes_before(c, i, r->number) : sites;
    if (votes < sites)
      return wrong(c, "transaction %lld committed by %d votes of %d",
                   (long long)r->number, votes, sites);
  }
  return true;
}

/* ---- all ---- */

bool history_no_failure(history_case *c) {
  for (int i = 0; i < c->h->count; i++) {
    const history_record *r = &c->h->at[i];
    if (r->event == HISTORY_FAILED && r->recipe == c->recipe)
      return wrong(c, "a call of process %d returned %lld", r->who,
                   (long long)r->number);
  }
  return true;
}
