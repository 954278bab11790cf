/* lock.c - locks between processes
 *
 *   hand-over    some processes wait in line, asleep.  The holder releases; the
 *                next reports when it has the lock: from the call of release in
 *                one process to the return of acquire in another, on the other
 *                CPU.  The one that released joins the line again
 *   contention   every process acquires, holds for 20 us and releases, without
 *                pause: how often all of them, and the one with the fewest, and
 *                the longest wait
 *   death        like hand-over, but the holder is killed
 *
 * Subjects that sleep until they are woken alternate in one loop.  A subject
 * that polls is measured separately, since it would always take CPU time from
 * the others; so is one that settles late (etcd), which would delay them.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
  PROCESSES_MOST = 500, /* in a line */
  CONTENDERS_MOST = 64,
  PASSES = 3, /* of each contention */
  HOLD_NS = 20000,
  PATIENCE_S = 10, /* the longest wait for a death's notice */
  BUDGET_S = 60    /* of one loop */
};

/* ---- a contender ---- */

static int64_t sent(const subject *s, const void *self) {
  return s->wakeups ? s->wakeups(self) : 0;
}

/* Acquire and release without pause until a time, then report how often, and
 * the longest wait. */
static void contend_until(const subject *s, void *self, int64_t end) {
  int64_t count = 0, longest = 0;
  for (int64_t asked; (asked = now_ns()) < end; count++) {
    s->act[ACT_LOCK](self, NULL, 0);
    int64_t got = now_ns();
    if (got - asked > longest) longest = got - asked;
    while (now_ns() < got + HOLD_NS) continue;
    s->act[ACT_UNLOCK](self, NULL, 0);
  }
  say(count);
  say(longest);
}

/* Acquire or release; report when it acquired or began to release, and how many
 * wake-ups it sent. */
static void contend_once(const subject *s, void *self, action a) {
  int64_t wakeups = sent(s, self), start = now_ns();
  if (a == ACT_LOCK) say(0);
  s->act[a](self, NULL, 0);
  say(a == ACT_LOCK ? now_ns() : start);
  say(sent(s, self) - wakeups);
}

/* SUBJECT PLACE */
void role_contend(char **argv) {
  const subject *s = subject_named(argv[0]);
  void *self = s->open(argv[1], FOR_LOCKING);
  int64_t end;
  for (say(0);;) {
    switch (await_command()) {
      case 'a':
        contend_once(s, self, ACT_LOCK);
        break;
      case 'r':
        contend_once(s, self, ACT_UNLOCK);
        break;
      case 'l':
        await_bytes(&end, sizeof end);
        contend_until(s, self, end);
        break;
    }
  }
}

worker contender_start(const subject *s, const char *place, int cpu) {
  worker w = worker_start("contend", cpu, s->name, place, NULL);
  worker_ready(&w);
  return w;
}

/* ---- a line: one holds, the others wait ---- */

typedef struct line {
  const subject *s;
  void *keeper; /* our own connection, which made the lock */
  char place[32];
  int count, holder;
  worker w[PROCESSES_MOST + 1];
  samples took, ratio;
  int64_t releasing; /* wake-ups sent */
  int64_t passes;    /* hand-overs, with those for warming up */
} line;

/* Neighbours are on different CPUs. */
static int cpu_of(int i) { return run.cpu[i % 2]; }

static void line_join(line *l, int i) {
  worker_go(&l->w[i], 'a');
  worker_ready(&l->w[i]);
  sleep_us(PAUSE_US);
}

static void line_place(line *l, const subject *s) {
  static int places;
  l->s = s;
  snprintf(l->place, sizeof l->place, "lock-%d", ++places);
  l->keeper = s->open(l->place, FOR_LOCKING);
}

static void line_start(line *l, int count) {
  l->count = count;
  for (int i = 0; i < count; i++) {
    l->w[i] = contender_start(l->s, l->place, cpu_of(i));
  }
}

static void line_open(line *l, const subject *s, int waiting) {
  *l = (line){.s = s};
  line_place(l, s);
  line_start(l, waiting + 1);
  for (int i = 0; i <= waiting; i++) {
    line_join(l, i);
    if (i > 0) continue;
    worker_word(&l->w[0]);
    worker_word(&l->w[0]);
  }
}

static void line_close(line *l) {
  for (int i = 0; i < l->count; i++) worker_kill(&l->w[i]);
  l->s->close(l->keeper);
  forget(&l->took);
  forget(&l->ratio);
}

/* All are asleep, or somewhere between two tries. */
static void line_settle(const line *l) {
  sleep_us(PAUSE_US);
  if (l->s->lock_pause_us) sleep_us(random() % l->s->lock_pause_us);
}

/* us; negative if both were on one CPU. */
static double line_pass(line *l) {
  worker *holder = &l->w[l->holder];
  line_settle(l);
  worker_go(holder, 'r');
  int64_t start = worker_word(holder), releasing = worker_word(holder);
  int next = worker_first(l->w, l->count);
  double took = (double)(worker_word(&l->w[next]) - start) / 1000;
  worker_word(&l->w[next]);
  bool counts = cpu_of(next) != cpu_of(l->holder);
  line_join(l, l->holder);
  l->holder = next;
  if (!counts && run.cpu[0] != run.cpu[1]) return -1;
  l->releasing += releasing;
  l->passes++;
  return took;
}

/* The first to report is the next holder; a new process replaces the dead
 * one. */
static double line_kill(line *l) {
  int dead = l->holder;
  worker victim = l->w[dead];
  line_settle(l);
  int64_t start = now_ns();
  kill(victim.pid, SIGKILL);
  l->w[dead].out = -1; /* poll() ignores it */
  int next = worker_first(l->w, l->count);
  double took = (double)(worker_word(&l->w[next]) - start) / 1000;
  worker_word(&l->w[next]);
  worker_end(&victim);
  l->w[dead] = contender_start(l->s, l->place, cpu_of(dead));
  line_join(l, dead);
  l->holder = next;
  return took;
}

/* ---- several lines in turns ---- */

typedef double (*line_step)(line *l);

/* Rounds of one step of each line; ratios to raw's step of the same round. */
static void lines_play(line *l, int count, int rounds, int warm,
                       line_step step) {
  int64_t end = now_ns() + BUDGET_S * INT64_C(1000000000);
  for (int round = -warm; round < rounds; round++) {
    double took[SUBJECTS_MOST], floor = -1;
    if (round > 2 && now_ns() > end) break;
    for (int k = 0; k < count; k++) {
      int i = in_turn(round + warm, k, count);
      took[i] = step(&l[i]);
      if (l[i].s == &subject_raw) floor = took[i];
    }
    for (int i = 0; round >= 0 && i < count; i++) {
      if (took[i] < 0) continue;
      add(&l[i].took, took[i]);
      if (floor > 0) add(&l[i].ratio, took[i] / floor);
    }
  }
}

static void lines_report(line *l, int count, const char *name, int param) {
  samples *floor = NULL;
  for (int i = 0; i < count; i++) {
    if (l[i].s == &subject_raw) floor = &l[i].took;
  }
  for (int i = 0; i < count; i++) {
    bool other = floor && floor != &l[i].took;
    const char *who = l[i].s == &subject_election ? "zkembed" : l[i].s->name;
    report(name, param, who, "us", &l[i].took, other ? floor : NULL,
           other ? &l[i].ratio : NULL);
  }
}

static bool polls(const subject *s) { return s->lock_pause_us > 0; }

/* A comparison of lines. */
typedef struct lines_plan {
  const char *name;
  int waiting, rounds;
  int param; /* in the report */
  line_step step;
  bool wakeups; /* report them */
} lines_plan;

static void report_wakeups(const line *l, int waiting) {
  if (!l->s->wakeups || !l->passes) return;
  report_one("wake-ups a release", waiting, l->s->name, "each",
             (double)l->releasing / (double)l->passes);
}

/* Run the open lines, report them, and close them. */
static void lines_run(line *l, int count, const lines_plan *plan, int warm) {
  lines_play(l, count, plan->rounds, times(warm, 0), plan->step);
  lines_report(l, count, plan->name, plan->param);
  for (int i = 0; i < count; i++) {
    if (plan->wakeups) report_wakeups(&l[i], plan->waiting);
    line_close(&l[i]);
  }
}

/* Sleepers together; then each poller. */
static void lines_compare(const lines_plan *plan, const subject *const *list,
                          int count) {
  static line l[SUBJECTS_MOST];
  int sleepers = 0;
  for (int i = 0; i < count; i++) {
    if (!polls(list[i])) line_open(&l[sleepers++], list[i], plan->waiting);
  }
  if (sleepers) lines_run(l, sleepers, plan, plan->waiting + 1);
  for (int i = 0; i < count; i++) {
    if (!polls(list[i])) continue;
    line_open(&l[0], list[i], plan->waiting);
    lines_run(l, 1, plan, 2);
  }
}

/* The subjects of that kind; returns how many. */
static int choose(const subject **list, bool (*wanted)(const subject *s)) {
  int count = 0;
  for (int i = 0; i < subject_count; i++) {
    if (wanted(subjects[i])) list[count++] = subjects[i];
  }
  return count;
}

/* ---- hand-over ---- */

static bool has_lock(const subject *s) {
  return s->act[ACT_LOCK] && s->act[ACT_UNLOCK];
}

void part_lock(void) {
  const int waiting[] = {1, 16, 63};
  const subject *list[SUBJECTS_MOST];
  for (int i = 0; i < times(3, 2); i++) {
    int count = times(waiting[i], i ? 4 : 1);
    lines_plan plan = {.name = "hand-over",
                       .waiting = count,
                       .param = count,
                       .rounds = times(400, 3),
                       .step = line_pass,
                       .wakeups = true};
    lines_compare(&plan, list, choose(list, has_lock));
  }
}

/* ---- death ---- */

static bool outlives(const subject *s) {
  return has_lock(s) && s->patience_s == 0;
}

static bool outlives_late(const subject *s) {
  return has_lock(s) && s->patience_s > 0 && s->patience_s <= PATIENCE_S;
}

static void report_impatience(void) {
  for (int i = 0; i < subject_count; i++) {
    const subject *s = subjects[i];
    if (has_lock(s) && s->patience_s > PATIENCE_S)
      printf("  %s: a dead holder keeps it for up to %d s\n", s->name,
             s->patience_s);
  }
}

static void compare_deaths(int waiting, int rounds,
                           bool (*wanted)(const subject *s)) {
  const subject *list[SUBJECTS_MOST];
  lines_plan plan = {.name = "holder's death to next",
                     .waiting = waiting,
                     .param = waiting,
                     .rounds = rounds,
                     .step = line_kill};
  lines_compare(&plan, list, choose(list, wanted));
}

void part_death(void) {
  compare_deaths(1, times(100, 3), outlives);
  compare_deaths(times(16, 4), times(100, 3), outlives);
  compare_deaths(1, times(3, 1), outlives_late);
  report_impatience();
}

/* ---- elections: a leader is killed ---- */

void part_election(void) {
  const int candidates[] = {2, 16, 100, 500};
  const subject *list[] = {&subject_election, &subject_raw};
  for (int i = 0; i < times(4, 2); i++) {
    int count = times(candidates[i], 2 + i);
    lines_plan plan = {.name = "election fail-over, candidates",
                       .waiting = count - 1,
                       .param = count,
                       .rounds = times(candidates[i] > 100 ? 50 : 100, 2),
                       .step = line_kill};
    lines_compare(&plan, list, 2);
  }
}

/* ---- contention ---- */

/* The results of several passes of one subject. */
typedef struct tally {
  samples rate, least, longest;
} tally;

static void tally_report(tally *t, const subject *s, int processes) {
  const struct {
    const char *name, *unit;
    samples *of;
  } lines[] = {{"contended, acquisitions", "1/s", &t->rate},
               {"contended, least share", "of 1", &t->least},
               {"contended, longest wait", "ms", &t->longest}};
  for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
    report(lines[i].name, processes, s->name, lines[i].unit, lines[i].of, NULL,
           NULL);
    forget(lines[i].of);
  }
}

static void contend(const subject *s, int processes, tally *t) {
  static line l;
  int64_t turns = 0, least = INT64_MAX, longest = 0;
  int64_t ns = times(1000, 50) * INT64_C(1000000);
  l = (line){.s = s};
  line_place(&l, s);
  line_start(&l, processes);
  int64_t end = now_ns() + ns;
  for (int i = 0; i < processes; i++) {
    worker_go(&l.w[i], 'l');
    worker_tell(&l.w[i], &end, sizeof end);
  }
  for (int i = 0; i < processes; i++) {
    int64_t count = worker_word(&l.w[i]), waited = worker_word(&l.w[i]);
    turns += count;
    if (count < least) least = count;
    if (waited > longest) longest = waited;
  }
  add(&t->rate, (double)turns * 1e9 / (double)ns);
  add(&t->least, (double)least * processes / ((double)turns + 1e-9));
  add(&t->longest, (double)longest / 1e6);
  line_close(&l);
}

void part_contention(void) {
  for (int processes = 2; processes <= times(CONTENDERS_MOST, 4);
       processes *= 2) {
    tally t[SUBJECTS_MOST] = {{.rate = {0}}};
    for (int pass = 0; pass < times(PASSES, 1); pass++) {
      for (int k = 0; k < subject_count; k++) {
        int i = in_turn(pass, k, subject_count);
        if (has_lock(subjects[i])) contend(subjects[i], processes, &t[i]);
      }
    }
    for (int i = 0; i < subject_count; i++) {
      tally_report(&t[i], subjects[i], processes);
    }
  }
}
