/* measure.c - operations of one process, side by side
 *
 * Each subject has the same tree and its own connection in this process.  A
 * sample is the mean of a batch of operations.  In each round every subject
 * gives one sample, on the same keys, and another subject begins, so that
 * conditions are equal for all.  /raw is the ratio of the medians, with the
 * quartiles of the rounds' ratios.  Slow operations have shorter batches.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "zkembed.h"

enum {
  FAMILY = 100,      /* children of each group */
  ROUNDS = 400,      /* samples of each subject */
  ROUNDS_LEAST = 20, /* even beyond the budget */
  WARM = 10,         /* rounds before that */
  BUDGET_MS = 15000, /* of one measure */
  SAMPLE_MS = 20,    /* at most, unless one operation is longer */
  SIZES = 5          /* of families: 10 to LARGE_FAMILY */
};

static const unsigned seed = 20231;

/* The same tree at each subject, and the next operation. */
typedef struct forest {
  int nodes;
  int count;
  runner at[SUBJECTS_MOST];
  char place[32];
  unsigned state;   /* of the random numbers */
  unsigned counter; /* names used below /e and /d */
  raw_key key[BATCH_MAX];
} forest;

typedef struct measure measure;
struct measure {
  const char *name;
  int param; /* in the report; 0: the number of nodes */
  int batch; /* operations in a sample, at most */
  int step;  /* keys of an operation; 0: 1 */
  bool durable;
  bool at_scale; /* repeat for trees of other sizes */
  void (*pick)(forest *f, const measure *m, raw_key *key);
  action before, timed[2], after; /* before and after are not timed */
};

/* ---- keys ---- */

static unsigned random_below(forest *f, int limit) {
  f->state ^= f->state << 13;
  f->state ^= f->state >> 17;
  f->state ^= f->state << 5;
  return f->state % (unsigned)limit;
}

static void pick_node(forest *f, const measure *m, raw_key *k) {
  unsigned node = random_below(f, f->nodes);
  char parent[32];
  (void)m;
  snprintf(parent, sizeof parent, "/g%05u", node / FAMILY);
  key_number(k, parent, "n%02u", node % FAMILY);
}

static void pick_family(forest *f, const measure *m, raw_key *k) {
  (void)f;
  key_number(k, "/", "c%06u", (unsigned)m->param);
}

static void pick_passing(forest *f, const measure *m, raw_key *k) {
  (void)m;
  key_number(k, "/e", "n-%010u", f->counter++);
}

static void pick_durable(forest *f, const measure *m, raw_key *k) {
  (void)m;
  key_number(k, "/d", "n-%010u", f->counter++);
}

static void pick_none(forest *f, const measure *m, raw_key *k) {
  (void)f, (void)m, (void)k;
}

/* ---- the measures ---- */

#define CHILDREN(size, most)                                               \
  {                                                                        \
    .name = "children", .param = size, .batch = most, .pick = pick_family, \
    .timed = {                                                             \
      ACT_CHILDREN                                                         \
    }                                                                      \
  }
#define MULTI(size, most)                                               \
  {                                                                     \
    .name = "multi of ephemeral creates", .param = size, .batch = most, \
    .step = size, .pick = pick_passing, .timed = {ACT_MULTI},           \
    .after = ACT_MULTI_UNDO                                             \
  }

static const measure measures[] = {
    {.name = "get",
     .batch = 200,
     .at_scale = true,
     .pick = pick_node,
     .timed = {ACT_GET}},
    {.name = "ephemeral set",
     .batch = 50,
     .at_scale = true,
     .pick = pick_passing,
     .before = ACT_CREATE,
     .timed = {ACT_SET},
     .after = ACT_DELETE},
    {.name = "ephemeral create",
     .batch = 50,
     .at_scale = true,
     .pick = pick_passing,
     .timed = {ACT_CREATE},
     .after = ACT_DELETE},
    {.name = "ephemeral delete",
     .batch = 50,
     .at_scale = true,
     .pick = pick_passing,
     .before = ACT_CREATE,
     .timed = {ACT_DELETE}},
    {.name = "durable create",
     .batch = 4,
     .durable = true,
     .at_scale = true,
     .pick = pick_durable,
     .timed = {ACT_PERSIST}},
    {.name = "durable set",
     .batch = 4,
     .durable = true,
     .pick = pick_node,
     .timed = {ACT_SET}},
    {.name = "durable delete",
     .batch = 4,
     .durable = true,
     .pick = pick_durable,
     .before = ACT_PERSIST,
     .timed = {ACT_DELETE}},
    {.name = "watch registration",
     .batch = 50,
     .at_scale = true,
     .pick = pick_node,
     .timed = {ACT_WATCH},
     .after = ACT_UNWATCH},
    CHILDREN(10, 50),
    CHILDREN(100, 50),
    CHILDREN(1000, 20),
    CHILDREN(10000, 5),
    CHILDREN(100000, 1),
    MULTI(1, 50),
    MULTI(10, 10),
    MULTI(100, 2),
    MULTI(1000, 1),
    {.name = "lock + unlock",
     .batch = 50,
     .pick = pick_none,
     .timed = {ACT_LOCK, ACT_UNLOCK}},
    {.name = "queue put",
     .batch = 4,
     .durable = true,
     .pick = pick_none,
     .timed = {ACT_PUT},
     .after = ACT_TAKE},
    {.name = "queue take",
     .batch = 4,
     .durable = true,
     .pick = pick_none,
     .before = ACT_PUT,
     .timed = {ACT_TAKE}},
    {.name = "open + close beside another",
     .batch = 4,
     .pick = pick_none,
     .timed = {ACT_OPEN}},
};
enum { MEASURES = sizeof measures / sizeof measures[0] };

/* ---- trees ---- */

static void fill(const runner *r, const raw_key *key, int count) {
  r->s->act[ACT_FILL](r->self, key, count);
}

/* A parent, and its children in steps of at most BATCH_MAX. */
static void fill_family(const runner *r, const char *name, const char *format,
                        int count) {
  static raw_key key[BATCH_MAX];
  char parent[32];
  int used = 1;
  snprintf(parent, sizeof parent, "/%s", name);
  key_set(&key[0], "/", name);
  for (int i = 0; i < count; i++) {
    key_number(&key[used++], parent, format, (unsigned)i);
    if (used < BATCH_MAX) continue;
    fill(r, key, used);
    used = 0;
  }
  if (used) fill(r, key, used);
}

static void fill_families(const runner *r) {
  int most = times(LARGE_FAMILY, 1000);
  for (int size = 10; size <= most; size *= 10) {
    char name[32];
    snprintf(name, sizeof name, "c%06d", size);
    fill_family(r, name, "n-%010u", size);
  }
}

static void fill_tree(const runner *r, int nodes, bool families) {
  fill_family(r, "d", "%u", 0);
  fill_family(r, "e", "%u", 0);
  for (int group = 0; group < nodes / FAMILY; group++) {
    char name[32];
    snprintf(name, sizeof name, "g%05d", group);
    fill_family(r, name, "n%02u", FAMILY);
  }
  if (families) fill_families(r);
}

/* Filled without syncs if possible, closed, and opened again: all start from a
 * checkpointed file and a cold cache. */
static void plant(forest *f, const subject *s, bool families) {
  runner *r = &f->at[f->count++];
  *r = (runner){.s = s, .self = s->open(f->place, FOR_FILLING)};
  fill_tree(r, f->nodes, families);
  s->close(r->self);
  r->self = s->open(f->place, FOR_WORK);
}

void plant_tree(const subject *s, const char *place, int nodes) {
  runner r = {.s = s, .self = s->open(place, FOR_FILLING)};
  fill_tree(&r, nodes, false);
  s->close(r.self);
}

/* peers: all that can hold a tree; otherwise only zkembed and raw. */
static void forest_open(forest *f, int nodes, bool peers, bool families) {
  static int trees;
  *f = (forest){.nodes = nodes, .state = seed};
  snprintf(f->place, sizeof f->place, "tree-%d", ++trees);
  for (int i = 0; i < subject_count; i++) {
    const subject *s = subjects[i];
    bool ours = s == &subject_zke || s == &subject_raw;
    if (s->act[ACT_FILL] && (peers || ours)) plant(f, s, families);
  }
}

static void forest_close(forest *f) {
  for (int i = 0; i < f->count; i++) f->at[i].s->close(f->at[i].self);
}

/* ---- samples ---- */

/* The subjects of a measure, and their results. */
typedef struct contest {
  forest *f;
  const measure *m;
  int count, raw; /* raw: its index, or -1 */
  runner at[SUBJECTS_MOST];
  bool borrowed[SUBJECTS_MOST]; /* from the forest */
  int batch[SUBJECTS_MOST];
  samples took[SUBJECTS_MOST], ratio[SUBJECTS_MOST];
} contest;

static bool takes_part(const subject *s, const measure *m) {
  return subject_can(s, m->before) && subject_can(s, m->timed[0]) &&
         subject_can(s, m->timed[1]) && subject_can(s, m->after);
}

static void join(contest *c, const subject *s, void *self, bool borrowed) {
  if (s == &subject_raw) c->raw = c->count;
  c->borrowed[c->count] = borrowed;
  c->at[c->count++] = (runner){.s = s, .self = self};
}

/* The subjects with a tree, and those with only locks. */
static void gather(contest *c) {
  for (int i = 0; i < c->f->count; i++) {
    const runner *r = &c->f->at[i];
    if (takes_part(r->s, c->m)) join(c, r->s, r->self, true);
  }
  for (int i = 0; i < subject_count; i++) {
    const subject *s = subjects[i];
    if (s->act[ACT_FILL] || !takes_part(s, c->m)) continue;
    join(c, s, s->open("alone", FOR_WORK), false);
  }
}

static void disband(contest *c) {
  for (int i = 0; i < c->count; i++) {
    if (!c->borrowed[i]) c->at[i].s->close(c->at[i].self);
    forget(&c->took[i]);
    forget(&c->ratio[i]);
  }
}

static void each(const contest *c, const runner *r, action a, int count) {
  int step = c->m->step ? c->m->step : 1;
  if (a == ACT_NONE) return;
  for (int i = 0; i < count; i++) {
    r->s->act[a](r->self, &c->f->key[i * step], step);
  }
}

static void timed_each(const contest *c, const runner *r, int count) {
  int step = c->m->step ? c->m->step : 1;
  action first = c->m->timed[0], second = c->m->timed[1];
  for (int i = 0; i < count; i++) {
    r->s->act[first](r->self, &c->f->key[i * step], step);
    if (second) r->s->act[second](r->self, &c->f->key[i * step], step);
  }
}

/* ns of count operations. */
static int64_t sample(const contest *c, const runner *r, int count) {
  each(c, r, c->m->before, count);
  int64_t start = now_ns();
  timed_each(c, r, count);
  int64_t took = now_ns() - start;
  each(c, r, c->m->after, count);
  return took;
}

static void pick_keys(const contest *c, int count) {
  int keys = count * (c->m->step ? c->m->step : 1);
  for (int i = 0; i < keys; i++) c->m->pick(c->f, c->m, &c->f->key[i]);
}

/* The number of operations in a sample of each: fewer if they are slow. */
static void calibrate(contest *c) {
  for (int i = 0; i < c->count; i++) {
    runner *r = &c->at[i];
    pick_keys(c, 1);
    sample(c, r, 1);
    pick_keys(c, 1);
    int64_t fit = SAMPLE_MS * INT64_C(1000000) / (sample(c, r, 1) + 1);
    int most = run.quick && c->m->batch > 2 ? 2 : c->m->batch;
    if (fit > most) fit = most;
    c->batch[i] = fit < 1 ? 1 : (int)fit;
  }
}

static void play_round(contest *c, int round, bool counts) {
  double took[SUBJECTS_MOST];
  pick_keys(c, c->m->batch);
  for (int turn = 0; turn < c->count; turn++) {
    int i = in_turn(round, turn, c->count);
    took[i] = (double)sample(c, &c->at[i], c->batch[i]) / 1000 / c->batch[i];
  }
  for (int i = 0; counts && i < c->count; i++) {
    add(&c->took[i], took[i]);
    if (c->raw >= 0) add(&c->ratio[i], took[i] / took[c->raw]);
  }
}

static void play(contest *c) {
  int rounds = times(ROUNDS, 3), warm = times(WARM, 0);
  int64_t end = now_ns() + BUDGET_MS * INT64_C(1000000);
  calibrate(c);
  for (int round = 0; round < warm; round++) play_round(c, round, false);
  for (int round = 0; round < rounds; round++) {
    if (round >= ROUNDS_LEAST && now_ns() > end) break;
    play_round(c, round, true);
  }
}

static void measure_all(forest *f, const measure *m, const char *name,
                        int param) {
  static contest c;
  c = (contest){.f = f, .m = m, .raw = -1};
  gather(&c);
  for (int i = 0; i < c.count; i++) {
    if (c.at[i].s->durable) c.at[i].s->durable(c.at[i].self, m->durable);
  }
  play(&c);
  for (int i = 0; i < c.count; i++) {
    bool other = i != c.raw && c.raw >= 0;
    report(name, param, c.at[i].s->name, "us", &c.took[i],
           other ? &c.took[c.raw] : NULL, other ? &c.ratio[i] : NULL);
  }
  disband(&c);
}

/* ---- the parts ---- */

static bool too_large(const measure *m) {
  return m->timed[0] == ACT_CHILDREN && m->param > times(LARGE_FAMILY, 1000);
}

void part_ops(void) {
  static forest f;
  forest_open(&f, 1000, true, true);
  for (int i = 0; i < MEASURES; i++) {
    const measure *m = &measures[i];
    if (too_large(m)) continue;
    measure_all(&f, m, m->name, m->param ? m->param : f.nodes);
  }
  forest_close(&f);
}

/* The basic operations; suffix tells what grows. */
static void measure_basic(forest *f, const char *suffix, int param) {
  for (int i = 0; i < MEASURES; i++) {
    char name[64];
    if (!measures[i].at_scale) continue;
    snprintf(name, sizeof name, "%s%s", measures[i].name, suffix);
    measure_all(f, &measures[i], name, param);
  }
}

static void report_file_sizes(const forest *f) {
  const char *const stem[] = {"zke", "raw"};
  for (int i = 0; i < 2; i++) {
    char name[64], path[PATH_BYTES];
    struct stat st;
    snprintf(name, sizeof name, "%s-%s.db", stem[i], f->place);
    file_in(path, sizeof path, name);
    if (stat(path, &st)) die("no %s", path);
    report_one("file, bytes a znode", f->nodes, f->at[i].s->name, "B",
               (double)st.st_size / f->nodes);
  }
}

static void scale_nodes(void) {
  static forest f;
  int most = times(1000000, 10000);
  for (int nodes = 1000; nodes <= most; nodes *= 10) {
    forest_open(&f, nodes, false, false);
    report_file_sizes(&f);
    measure_basic(&f, "", nodes);
    forest_close(&f);
  }
}

/* A process with a session that does nothing. */
void role_session(char **argv) {
  const subject *s = subject_named(argv[0]);
  s->open(argv[1], FOR_WORK);
  say(0);
  await_command();
}

/* One of the sessions is ours. */
static void scale_sessions(void) {
  static forest f;
  int most = times(1000, 10), there = 1;
  worker *w = allocate((size_t)most * 2 * sizeof *w);
  int workers = 0;
  forest_open(&f, 1000, false, false);
  for (int sessions = 1; sessions <= most; sessions *= 10) {
    for (; there < sessions; there++) {
      for (int i = 0; i < f.count; i++) {
        w[workers] =
            worker_start("session", run.cpu[1], f.at[i].s->name, f.place, NULL);
        worker_ready(&w[workers++]);
      }
    }
    measure_basic(&f, ", sessions", sessions);
  }
  for (int i = 0; i < workers; i++) worker_kill(&w[i]);
  forest_close(&f);
  free(w);
}

/* All watches are ours, on nodes that do not change. */
static void scale_watches(void) {
  static forest f;
  int most = times(100000, 100), there = 0;
  forest_open(&f, times(100000, 1000), false, false);
  for (int watches = 1; watches <= most; watches *= 10) {
    for (; there < watches; there++) {
      raw_key key;
      char parent[32];
      snprintf(parent, sizeof parent, "/g%05d", there / FAMILY);
      key_number(&key, parent, "n%02u", (unsigned)there % FAMILY);
      for (int i = 0; i < f.count; i++) {
        f.at[i].s->act[ACT_WATCH](f.at[i].self, &key, 1);
      }
    }
    measure_basic(&f, ", watches", watches);
  }
  forest_close(&f);
}

void part_scale(void) {
  scale_nodes();
  scale_sessions();
  scale_watches();
}

/* ---- opening a file that nobody has open ---- */

static void open_alone(const subject *s, samples *took) {
  for (int i = times(100, 3); i > 0; i--) {
    int64_t start = now_ns();
    s->close(s->open("opened", FOR_WORK));
    add(took, (double)(now_ns() - start) / 1000);
  }
}

static void open_memory(samples *took) {
  for (int i = times(500, 3); i > 0; i--) {
    zke *z;
    int64_t start = now_ns();
    must(zke_open(":memory:", NULL, &z), "zke_open");
    must(zke_close(z), "zke_close");
    add(took, (double)(now_ns() - start) / 1000);
  }
}

void part_open(void) {
  const subject *const ours[] = {&subject_zke, &subject_raw};
  samples took = {0};
  for (int i = 0; i < 2; i++) {
    open_alone(ours[i], &took);
    report("open + close, nobody else there", 0, ours[i]->name, "us", &took,
           NULL, NULL);
    forget(&took);
  }
  open_memory(&took);
  report("open + close of :memory:", 0, subject_zke.name, "us", &took, NULL,
         NULL);
  forget(&took);
}

/* ---- for profilers ----
 *
 * Repeat one operation of one subject.  Runs with COUNT 0 and COUNT n differ by
 * n operations and the untimed ones that prepare and undo them. */

static const measure *measure_named(const char *name) {
  for (int i = 0; i < MEASURES; i++) {
    if (strcmp(measures[i].name, name) == 0) return &measures[i];
  }
  die("no operation named %s", name);
}

int measure_loop(const char *name, const char *who, int count) {
  static forest f;
  static contest c;
  const subject *s = subject_named(who);
  int64_t ns = 0;
  int done = 0;
  f = (forest){.nodes = 1000, .state = seed, .place = "loop"};
  c = (contest){.f = &f, .m = measure_named(name), .raw = -1};
  if (!takes_part(s, c.m)) die("%s has no %s", who, name);
  if (s->act[ACT_FILL]) {
    plant(&f, s, c.m->timed[0] == ACT_CHILDREN);
  } else {
    f.at[f.count++] = (runner){.s = s, .self = s->open(f.place, FOR_WORK)};
  }
  if (s->durable) s->durable(f.at[0].self, c.m->durable);
  for (; done < count; done += c.m->batch) {
    pick_keys(&c, c.m->batch);
    ns += sample(&c, &f.at[0], c.m->batch);
  }
  if (done) printf("%s, %s: %.2f us\n", name, who, (double)ns / 1e3 / done);
  forest_close(&f);
  return 0;
}
