/* search.c - chooses the next step, and shortens a finding
 *
 * There are two ways to try schedules.  One runs each from beginning to end and
 * chooses at random: search_once() with choose_random() or choose_pct().  The
 * other walks the tree of all schedules, and goes back with pictures of the
 * world: struct walk, which leaves a branch if it meets a state for the second
 * time (STATES), or if there would be too many preemptions (DEPTH).
 *
 * By default they take turns of some milliseconds each, since neither finds
 * everything: random choice misses what needs many exact steps, and the walk
 * spends its time in one corner of a large tree. */
#define _GNU_SOURCE
#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fiber.h"
#include "keep.h"

enum {
  DEPTH_MOST = 1024, /* of a walk: each level has a picture */
  POINTS_MOST = 8,
  TURN_SCHEDULES = 64,
  TURN_STEPS = 64,
  CHECK_EVERY = 1024,
  LENGTH_GUESS = 40
};

typedef int (*search_chooser)(zke_lab *lab, void *arg, const char *steps,
                              int count);

static uint64_t draw(zke_lab *lab, uint64_t below) {
  lab->random ^= lab->random << 13;
  lab->random ^= lab->random >> 7;
  lab->random ^= lab->random << 17;
  return lab->random % below;
}

/* The numbers below count, in random order. */
static void draw_order(zke_lab *lab, int *out, int count) {
  for (int i = 0; i < count; i++) out[i] = i;
  for (int i = count - 1; i > 0; i--) {
    int j = (int)draw(lab, (uint64_t)i + 1), was = out[i];
    out[i] = out[j];
    out[j] = was;
  }
}

static int64_t ms_of(struct timeval t) {
  return t.tv_sec * INT64_C(1000) + t.tv_usec / 1000;
}

/* Processor time of this process and of its forked children, in ms; not the
 * laboratory's clock.  With parties outside, real time, since they spend theirs
 * elsewhere. */
static int64_t now_ms(const zke_lab *lab) {
  struct timespec t;
  struct rusage children;
  if (lab->has_outside) {
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
  }
  syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &t);
  getrusage(RUSAGE_CHILDREN, &children);
  return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000 +
         ms_of(children.ru_utime) + ms_of(children.ru_stime);
}

/* A step that is no fault: a process continues, or a death is noticed. */
static bool is_plain(char step) {
  int process, kind = world_kind(step, &process);
  return kind == STEP_RUN || kind == STEP_BURY;
}

/* ---- random schedules ---- */

typedef struct chance {
  int length;                     /* approximate length of a schedule */
  int budget;                     /* allowed faults */
  int planned;                    /* about as many in this schedule */
  int priority[2 * ZKE_LAB_MOST]; /* of processes, and of their clean-ups */
  int points[POINTS_MOST], point_count;
  int faults[POINTS_MOST], fault_count; /* the steps at which they come */
  int stayed, stayer;                   /* steps of the same one, and which */
  int64_t until;                        /* end of the search */
} chance;

/* A fault among the steps, or -1. */
static int pick_fault(zke_lab *lab, const char *steps, int count) {
  int faults[STEPS_MOST], n = 0;
  for (int i = 0; i < count; i++) {
    if (!is_plain(steps[i])) faults[n++] = i;
  }
  return n ? faults[draw(lab, (uint64_t)n)] : -1;
}

static int choose_random(zke_lab *lab, void *arg, const char *steps,
                         int count) {
  const chance *c = arg;
  int plain[STEPS_MOST], n = 0;
  for (int i = 0; i < count; i++) {
    if (is_plain(steps[i])) plain[n++] = i;
  }
  bool fault = n == 0 || (n < count && draw(lab, (uint64_t)c->length) <
                                           (uint64_t)c->planned);
  return fault ? pick_fault(lab, steps, count) : plain[draw(lab, (uint64_t)n)];
}

static int *priority_of(chance *c, char step) {
  int process, kind = world_kind(step, &process);
  return &c->priority[kind == STEP_RUN ? process : ZKE_LAB_MOST + process];
}

/* Choose the order of the processes, the steps at which the running one goes to
 * its end, and the steps of the faults. */
static void pct_begin(zke_lab *lab, chance *c, int points) {
  enum { ALL = 2 * ZKE_LAB_MOST };
  draw_order(lab, c->priority, ALL);
  for (int i = 0; i < ALL; i++) c->priority[i]++;
  c->point_count = points;
  for (int i = 0; i < points; i++)
    c->points[i] = (int)draw(lab, (uint64_t)c->length);
  c->fault_count = c->planned < POINTS_MOST ? c->planned : POINTS_MOST;
  for (int i = 0; i < c->fault_count; i++)
    c->faults[i] = (int)draw(lab, (uint64_t)c->length);
  c->stayed = 0;
  c->stayer = -1;
}

/* A process that runs for very long may be waiting for the others in a loop:
 * move it to the end of the order. */
static void pct_be_fair(chance *c) {
  int last = world_last();
  c->stayed = last == c->stayer ? c->stayed + 1 : 0;
  c->stayer = last;
  if (last < 0 || c->stayed < 3 * c->length) return;
  c->stayed = 0;
  for (int i = 0; i < 2 * ZKE_LAB_MOST; i++) c->priority[i]++;
  c->priority[last] = 0;
}

static int choose_pct(zke_lab *lab, void *arg, const char *steps, int count) {
  chance *c = arg;
  int step = world_step_count(), best = -1;
  for (int i = 0; i < c->fault_count; i++) {
    if (c->faults[i] > step) continue;
    int fault = pick_fault(lab, steps, count);
    if (fault < 0) break;
    c->faults[i] = c->faults[--c->fault_count];
    return fault;
  }
  for (int i = 0; i < c->point_count; i++) {
    if (c->points[i] == step && world_last() >= 0)
      c->priority[world_last()] = -1 - i;
  }
  pct_be_fair(c);
  for (int i = 0; i < count; i++) {
    if (!is_plain(steps[i])) continue;
    if (best < 0 || *priority_of(c, steps[i]) > *priority_of(c, steps[best]))
      best = i;
  }
  return best >= 0 ? best : pick_fault(lab, steps, count);
}

/* A schedule has ended; true: it has failed. */
static bool search_leaf(zke_lab *lab) {
  bool check = lab->schedules++ % CHECK_EVERY == 0;
  if (lab->merges) statics_check(lab);
  if (!world_has_failed()) world_end(lab, check);
  return world_has_failed();
}

/* The chooser, and its data. */
typedef struct search_choice {
  search_chooser choose;
  void *arg;
} search_choice;

static bool search_steps(zke_lab *lab, void *arg) {
  const search_choice *c = arg;
  char steps[STEPS_MOST];
  int count;
  while ((count = world_steps(lab, steps)) > 0)
    world_step(lab, steps[c->choose(lab, c->arg, steps, count)]);
  return search_leaf(lab);
}

/* One schedule from beginning to end; true: it has failed. */
static bool search_once(zke_lab *lab, search_chooser choose, void *arg) {
  search_choice c = {choose, arg};
  int64_t before = lab->schedules;
  bool failed = world_try(lab, search_steps, &c);
  lab->schedules = before + 1; /* even if it did not reach its leaf */
  return failed;
}

/* Some random schedules.  Their mean length is learned meanwhile. */
/* A party outside may not be deterministic.  What it does not repeat is no
 * finding.  lab->taken has the steps of both tries. */
static bool happens_again(zke_lab *lab) {
  char steps[LAB_SCHEDULE];
  int count = lab->length;
  if (!lab->has_outside) return true;
  memcpy(steps, lab->taken, (size_t)count);
  if (search_replay(lab, steps, count)) return true;
  lab->doubts++;
  return false;
}

static bool chance_turn(zke_lab *lab, chance *c) {
  int strategies = lab->options.strategies;
  for (int i = 0; i < TURN_SCHEDULES; i++) {
    bool pct = (strategies & ZKE_LAB_PCT) &&
               (!(strategies & ZKE_LAB_RANDOM) || i % 3 != 0);
    c->planned = (int)draw(lab, (uint64_t)c->budget + 1);
    if (pct) pct_begin(lab, c, i % 2 ? 3 : 5);
    if (search_once(lab, pct ? choose_pct : choose_random, c) &&
        happens_again(lab))
      return true;
    c->length += (lab->length - c->length) / 8;
    if (c->length < 4) c->length = 4;
    if (lab->options.schedules && lab->schedules >= lab->options.schedules)
      break;
    if (lab->has_outside && now_ms(lab) >= c->until) break;
  }
  return false;
}

/* ---- the tree of schedules ---- */

typedef struct level {
  picture world; /* if more than one step was possible */
  char steps[STEPS_MOST];
  int count, next;
  int others;      /* steps after these, which are tried only if necessary */
  int preemptions; /* up to here */
} level;

typedef struct walk {
  level levels[DEPTH_MOST];
  int depth;
  bool by_state; /* or by preemptions */
  bool cut;      /* somewhere it was too deep, or not comparable */
  bool over;
  bool by_zxid;   /* results of zke_zxid() count */
  bool here;      /* the world is the last level's */
  uint64_t *seen; /* hashes of states; 0: free */
  size_t seen_cap, seen_count;
} walk;

/* Outside of all that is restored. */
static void *map(size_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

static void seen_put(uint64_t *table, size_t cap, uint64_t state) {
  size_t i = state & (cap - 1);
  while (table[i]) i = (i + 1) & (cap - 1);
  table[i] = state;
}

static bool seen_grow(walk *w) {
  if (w->seen_count * 2 < w->seen_cap) return true;
  size_t cap = w->seen_cap ? w->seen_cap * 4 : 1 << 14;
  uint64_t *table = map(cap * sizeof *table);
  if (!table) return false;
  for (size_t i = 0; i < w->seen_cap; i++) {
    if (w->seen[i]) seen_put(table, cap, w->seen[i]);
  }
  if (w->seen) munmap(w->seen, w->seen_cap * sizeof *w->seen);
  w->seen = table;
  w->seen_cap = cap;
  return true;
}

static bool seen_has(const walk *w, uint64_t state) {
  for (size_t i = state & (w->seen_cap - 1); w->seen[i];
       i = (i + 1) & (w->seen_cap - 1)) {
    if (w->seen[i] == state) return true;
  }
  return false;
}

/* A state with the numbers of remaining faults of each kind. */
static uint64_t seen_number(uint64_t state, const int left[WORLD_FAULTS]) {
  for (int i = 0; i < WORLD_FAULTS; i++)
    state = (state ^ (uint64_t)left[i]) * UINT64_C(0x9e3779b97f4a7c15);
  state ^= state >> 32;
  return state ? state : 1;
}

/* The next combination of fault numbers between two bounds; false: that was the
 * last. */
static bool faults_next(int at[WORLD_FAULTS], const int least[WORLD_FAULTS],
                        const int most[WORLD_FAULTS]) {
  for (int i = 0; i < WORLD_FAULTS; i++) {
    if (at[i]++ < most[i]) return true;
    at[i] = least[i];
  }
  return false;
}

/* Is it new?  If a state was met with at least as many remaining faults,
 * everything that can follow was already tried. */
static bool seen_add(const zke_lab *lab, walk *w, uint64_t state) {
  const zke_lab_options *o = &lab->options;
  const int most[WORLD_FAULTS] = {o->crashes, o->expiries, o->losses,
                                  o->pauses};
  int left[WORLD_FAULTS], at[WORLD_FAULTS];
  world_faults_left(left);
  if (!seen_grow(w)) {
    w->cut = true;
    return true;
  }
  memcpy(at, left, sizeof at);
  do {
    if (seen_has(w, seen_number(state, at))) return false;
  } while (faults_next(at, left, most));
  seen_put(w->seen, w->seen_cap, seen_number(state, left));
  w->seen_count++;
  return true;
}

static void walk_free(walk *w) {
  if (!w) return;
  for (int i = 0; i < DEPTH_MOST; i++) picture_free(&w->levels[i].world);
  if (w->seen) munmap(w->seen, w->seen_cap * sizeof *w->seen);
  munmap(w, sizeof *w);
}

static bool has_step(const char *steps, int count, char step) {
  return memchr(steps, step, (size_t)count) != NULL;
}

/* The preemptions up to the step.  It is one to choose another process while
 * the last one could continue. */
static int walk_preemptions(const level *l, char step, int last) {
  bool could =
      last >= 0 && has_step(l->steps, l->count, (char)(STEP_RUN + last));
  int process, kind = world_kind(step, &process);
  return l->preemptions + (could && kind == STEP_RUN && process != last);
}

/* Begin a level: these steps are possible in the current world.  The first
 * `enough` of them are tried, and the others only if necessary; 0: all. */
static bool walk_enter(zke_lab *lab, walk *w, const char *steps, int count,
                       int enough, int preemptions) {
  level *l = &w->levels[w->depth++];
  int order[STEPS_MOST];
  draw_order(lab, order, count);
  for (int i = 0; i < count; i++) l->steps[i] = steps[enough ? i : order[i]];
  l->count = enough ? enough : count;
  l->others = count - l->count;
  l->next = 0;
  l->preemptions = preemptions;
  w->here = true;
  bool is_only = l->count + l->others == 1 && w->depth > 1;
  return is_only || world_snapshot(&l->world);
}

/* The steps that are now possible, and how many of them are enough. */
static int walk_steps(zke_lab *lab, const walk *w, char *steps, int *enough) {
  int count = world_steps(lab, steps);
  if (lab->options.alike) count = world_leave_alike(lab, steps, count);
  *enough = w->by_state ? world_reduce(lab, steps, count) : 0;
  return count;
}

static walk *walk_begin(zke_lab *lab, bool by_state) {
  char steps[STEPS_MOST];
  int enough;
  walk *w = map(sizeof *w);
  if (!w) return NULL;
  w->by_state = by_state;
  world_again(lab);
  fiber_clears = by_state; /* the same in all pictures of this walk */
  w->by_zxid = lab->asks_zxid;
  int count = walk_steps(lab, w, steps, &enough);
  w->over = count == 0 || !walk_enter(lab, w, steps, count, enough, 0);
  return w;
}

/* The world after a step: a leaf, a known state, or a new level. */
static bool walk_arrive(zke_lab *lab, walk *w, int preemptions) {
  char steps[STEPS_MOST];
  int enough, count = walk_steps(lab, w, steps, &enough);
  if (count == 0) return search_leaf(lab);
  if (w->by_state && !enough) {
    uint64_t state = state_hash(lab);
    if (!state) w->cut = true;
    if (state && !seen_add(lab, w, state)) return false;
    lab->states_met++;
  }
  if (w->depth == DEPTH_MOST ||
      !walk_enter(lab, w, steps, count, enough, preemptions))
    w->cut = true;
  return false;
}

/* One step further; true: it has failed. */
static bool walk_step(zke_lab *lab, walk *w) {
  level *l = &w->levels[w->depth - 1];
  if (l->next == l->count) {
    w->depth--;
    w->here = false;
    w->over = w->depth == 0;
    return false;
  }
  if (!w->here) world_put(&l->world);
  char step = l->steps[l->next++];
  int preemptions = walk_preemptions(l, step, world_last());
  w->here = false;
  if (!w->by_state && preemptions > lab->options.preemptions) {
    w->here = true; /* nothing has happened */
    return false;
  }
  lab->length = w->depth - 1;
  world_step(lab, step);
  if (l->next == 1 && l->others > 0 && world_was_seen()) {
    l->count += l->others;
    l->others = 0;
  }
  return walk_arrive(lab, w, preemptions);
}

/* The letters of the path to the last level. */
static void walk_spell(zke_lab *lab, const walk *w) {
  for (int i = 0; i + 1 < w->depth; i++)
    lab->taken[i] = w->levels[i].steps[w->levels[i].next - 1];
}

/* Some steps.  The world and the letters are used by others between two turns,
 * so a turn begins and ends with a picture. */
static bool walk_turn(zke_lab *lab, walk *w) {
  w->here = false;
  walk_spell(lab, w);
  for (int i = 0; i < TURN_STEPS && !w->over; i++) {
    if (walk_step(lab, w)) return true;
  }
  if (!w->over && w->here && !world_snapshot(&w->levels[w->depth - 1].world))
    w->over = w->cut = true;
  return false;
}

/* ---- taking turns ---- */

typedef struct searchers {
  chance chance;
  walk *states, *depth;
} searchers;

/* Once code asks for a zxid, states that were taken for equal count as
 * different: begin again. */
static bool states_turn(zke_lab *lab, walk **w) {
  if (walk_turn(lab, *w)) return true;
  if (!(*w)->by_state || (*w)->by_zxid == lab->asks_zxid) return false;
  walk *other = walk_begin(lab, true);
  if (other) {
    walk_free(*w);
    *w = other;
  } else {
    (*w)->over = (*w)->cut = true;
  }
  return false;
}

static bool search_turn(zke_lab *lab, searchers *s, bool *exhausted) {
  int strategies = lab->options.strategies;
  if ((strategies & (ZKE_LAB_RANDOM | ZKE_LAB_PCT)) &&
      chance_turn(lab, &s->chance))
    return true;
  walk **walks[] = {&s->states, &s->depth};
  for (int i = 0; i < 2; i++) {
    walk **w = walks[i];
    if (!*w || (*w)->over) continue;
    if (states_turn(lab, w)) return true;
    if ((*w)->over && !(*w)->cut && !lab->unnamed[0]) *exhausted = true;
  }
  return false;
}

/* Is anything left to search? */
static bool search_goes_on(const zke_lab *lab, const searchers *s,
                           int64_t until) {
  bool chances = lab->options.strategies & (ZKE_LAB_RANDOM | ZKE_LAB_PCT);
  bool walks = (s->states && !s->states->over) || (s->depth && !s->depth->over);
  if (lab->options.schedules && lab->schedules >= lab->options.schedules)
    return false;
  return (chances || walks) && now_ms(lab) < until;
}

bool search_run(zke_lab *lab, bool *exhausted_out) {
  int strategies = lab->options.strategies;
  int64_t until = now_ms(lab) + lab->options.time_ms;
  searchers *s = map(sizeof *s);
  bool found = false;
  bool goes_back = keep_has_pictures && !lab->has_outside;
  *exhausted_out = false;
  if (!s) return false;
  s->chance.length = LENGTH_GUESS;
  s->chance.budget = world_budget(lab);
  s->chance.until = until;
  if ((strategies & ZKE_LAB_STATES) && lab->merges && goes_back)
    s->states = walk_begin(lab, true);
  if ((strategies & ZKE_LAB_DEPTH) && goes_back)
    s->depth = walk_begin(lab, false);
  while (!found && !*exhausted_out && search_goes_on(lab, s, until))
    found = search_turn(lab, s, exhausted_out);
  walk_free(s->states);
  walk_free(s->depth);
  munmap(s, sizeof *s);
  return found;
}

/* ---- replaying ---- */

/* The step after the last letter: the same process continues; else the first
 * that can; then clean-ups, then time. */
static char step_by_itself(const char *steps, int count) {
  static const char order[] = {STEP_RUN, STEP_BURY, STEP_TIME};
  char same = (char)(STEP_RUN + world_last());
  if (world_last() >= 0 && has_step(steps, count, same)) return same;
  for (size_t k = 0; k < sizeof order; k++) {
    for (int i = 0; i < count; i++) {
      int process;
      if (world_kind(steps[i], &process) == order[k]) return steps[i];
    }
  }
  return 0;
}

/* The letters to be replayed. */
typedef struct replay_steps {
  const char *steps;
  int count;
} replay_steps;

/* zke_check() takes longer than the steps.  A schedule that is shortened is
 * checked only if this was what failed. */
static bool replay(zke_lab *lab, void *arg) {
  const replay_steps *r = arg;
  char possible[STEPS_MOST];
  int n;
  for (int i = 0; i < r->count && (n = world_steps(lab, possible)) > 0; i++) {
    if (!has_step(possible, n, r->steps[i])) continue;
    lab->kept[lab->kept_count++] = r->steps[i];
    world_step(lab, r->steps[i]);
  }
  while ((n = world_steps(lab, possible)) > 0) {
    char step = step_by_itself(possible, n);
    if (!step) break;
    world_step(lab, step);
  }
  if (!world_has_failed()) world_end(lab, !lab->known || lab->by_check);
  return world_has_failed();
}

bool search_replay(zke_lab *lab, const char *steps, int count) {
  replay_steps r = {steps, count};
  lab->kept_count = 0;
  return world_try(lab, replay, &r);
}

/* ---- shortening ---- */

typedef struct shrinking {
  char steps[LAB_SCHEDULE], trial[LAB_SCHEDULE];
  int count;
} shrinking;

/* Does the trial fail, too?  Then it becomes the schedule.  With a party
 * outside it must fail twice. */
static bool shrink_try(zke_lab *lab, shrinking *s, int count) {
  if (!search_replay(lab, s->trial, count)) return false;
  if (lab->has_outside && !search_replay(lab, s->trial, count)) return false;
  memcpy(s->steps, s->trial, (size_t)count);
  s->count = count;
  return true;
}

/* Leave out blocks, large ones first. */
static void shrink_blocks(zke_lab *lab, shrinking *s) {
  for (int block = s->count; block >= 1; block /= 2) {
    for (int i = 0; i + block <= s->count;) {
      memcpy(s->trial, s->steps, (size_t)i);
      memcpy(s->trial + i, s->steps + i + block,
             (size_t)(s->count - i - block));
      if (!shrink_try(lab, s, s->count - block)) i += block;
    }
  }
}

static int run_end(const shrinking *s, int from) {
  int to = from;
  while (to < s->count && s->steps[to] == s->steps[from]) to++;
  return to;
}

/* x..y..x: move the second run of x up to the first, to have fewer changes from
 * one to another. */
static void shrink_changes(zke_lab *lab, shrinking *s) {
  for (int i = 0; i < s->count;) {
    int middle = run_end(s, i), last = run_end(s, middle);
    int end = last < s->count ? run_end(s, last) : last;
    bool returns = last < s->count && s->steps[last] == s->steps[i];
    if (returns) {
      memcpy(s->trial, s->steps, (size_t)s->count);
      memcpy(s->trial + middle, s->steps + last, (size_t)(end - last));
      memcpy(s->trial + middle + (end - last), s->steps + middle,
             (size_t)(last - middle));
      if (shrink_try(lab, s, s->count)) continue;
    }
    i = middle;
  }
}

void search_shrink(zke_lab *lab) {
  shrinking *s = map(sizeof *s);
  if (!s) return;
  s->count = lab->length;
  memcpy(s->steps, lab->taken, (size_t)s->count);
  for (int before = s->count + 1; s->count < before;) {
    before = s->count;
    shrink_blocks(lab, s);
    shrink_changes(lab, s);
  }
  memcpy(lab->taken, s->steps, (size_t)s->count);
  lab->length = s->count;
  munmap(s, sizeof *s);
}

/* ---- where it became inevitable ---- */

/* Given steps, followed by random ones. */
typedef struct ending {
  replay_steps given;
  chance chance;
} ending;

static int choose_ending(zke_lab *lab, void *arg, const char *steps,
                         int count) {
  ending *e = arg;
  int at = world_step_count();
  if (at >= e->given.count) return choose_random(lab, &e->chance, steps, count);
  const char *given = memchr(steps, e->given.steps[at], (size_t)count);
  return given ? (int)(given - steps) : 0;
}

/* Is there an ending of these steps that does not fail? */
static bool ends_well(zke_lab *lab, const char *steps, int count) {
  ending e = {.given = {steps, count}, .chance = {.length = 1}};
  for (int i = 0; i < SEARCH_ENDINGS; i++) {
    if (!search_once(lab, choose_ending, &e)) return true;
  }
  return false;
}

/* If no ending of some steps can avoid the failure, none of more steps can. */
int search_point_of_no_return(zke_lab *lab, const char *steps, int count) {
  int least = 0, most = count;
  while (least < most) {
    int middle = (least + most) / 2;
    if (ends_well(lab, steps, middle))
      least = middle + 1;
    else
      most = middle;
  }
  return most;
}

/* ---- schedules as text ---- */

unsigned search_check(const zke_lab *lab) {
  return (unsigned)((lab->trace ^ lab->trace >> 32) * 2654435761u >> 16 &
                    0xffff);
}

void search_print(const zke_lab *lab, const char *steps, int count, char *out,
                  size_t size) {
  size_t n = 0;
  for (int i = 0, j; i < count && n + 16 < size; i = j) {
    for (j = i; j < count && steps[j] == steps[i]; j++) continue;
    out[n++] = steps[i];
    if (j - i > 1) n += (size_t)snprintf(out + n, size - n, "%d", j - i);
  }
  snprintf(out + n, size - n, ".%04x", search_check(lab));
}

int search_parse(const char *text, char *steps, unsigned *check_out) {
  int n = 0, process;
  for (; *text && *text != '.';) {
    char step = *text++;
    long count = 1;
    if (!world_kind(step, &process)) return -1;
    if (*text >= '0' && *text <= '9') {
      char *end;
      count = strtol(text, &end, 10);
      text = end;
    }
    if (count < 1 || count > LAB_SCHEDULE - n) return -1;
    memset(steps + n, step, (size_t)count);
    n += (int)count;
  }
  *check_out = UINT32_MAX;
  if (*text == '.') {
    char *end;
    *check_out = (unsigned)strtoul(text + 1, &end, 16);
    if (end != text + 5 || *end) return -1;
  }
  return n;
}
