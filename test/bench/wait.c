/* wait.c - watches across processes, and the cost of waiting
 *
 *   delivery  from the call that changes a node to the callback in a process
 *             that was asleep
 *   idling    processes wait in line for a lock that is never released
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>

enum { CROWD = 1000 };

/* SUBJECT PLACE NODE: reports 0 when it watches and is about to sleep, and the
 * time when it was told. */
void role_watch(char **argv) {
  const subject *s = subject_named(argv[0]);
  void *self = s->open(argv[1], FOR_WORK);
  raw_key key;
  key_set(&key, "/", argv[2]);
  for (;;) {
    s->act[ACT_WATCH](self, &key, 1);
    say(0);
    s->act[ACT_AWAIT](self, &key, 1);
    say(now_ns());
  }
}

/* ---- delivery ---- */

typedef struct delivery {
  runner r;
  worker watcher;
  samples took, ratio;
} delivery;

static bool delivers(const subject *s) {
  return s->act[ACT_WATCH] && s->act[ACT_AWAIT] && s->act[ACT_SET];
}

static void delivery_open(delivery *d, const subject *s, const raw_key *key,
                          bool durable, const char *place) {
  *d = (delivery){.r = {.s = s, .self = s->open(place, FOR_WORK)}};
  if (s->durable) s->durable(d->r.self, durable);
  s->act[durable ? ACT_PERSIST : ACT_CREATE](d->r.self, key, 1);
  d->watcher =
      worker_start("watch", run.cpu[1], s->name, place, key->name, NULL);
}

static double deliver(delivery *d, const raw_key *key) {
  worker_ready(&d->watcher);
  sleep_us(PAUSE_US);
  int64_t start = now_ns();
  d->r.s->act[ACT_SET](d->r.self, key, 1);
  return (double)(worker_word(&d->watcher) - start) / 1000;
}

static void delivery_close(delivery *d) {
  worker_kill(&d->watcher);
  d->r.s->close(d->r.self);
  forget(&d->took);
  forget(&d->ratio);
}

static void deliver_round(delivery *d, int count, const raw_key *key,
                          int round) {
  double took[SUBJECTS_MOST], floor = 0;
  for (int turn = 0; turn < count; turn++) {
    int i = in_turn(round, turn, count);
    took[i] = deliver(&d[i], key);
    if (d[i].r.s == &subject_raw) floor = took[i];
  }
  for (int i = 0; i < count; i++) {
    add(&d[i].took, took[i]);
    if (floor > 0) add(&d[i].ratio, took[i] / floor);
  }
}

static void compare_deliveries(const char *name, const char *place,
                               bool durable) {
  static delivery d[SUBJECTS_MOST];
  samples *floor = NULL;
  raw_key key;
  int count = 0;
  key_set(&key, "/", "watched");
  for (int i = 0; i < subject_count; i++) {
    if (!delivers(subjects[i])) continue;
    if (subjects[i] == &subject_raw) floor = &d[count].took;
    delivery_open(&d[count++], subjects[i], &key, durable, place);
  }
  for (int round = 0; round < times(500, 5); round++) {
    deliver_round(d, count, &key, round);
  }
  for (int i = 0; i < count; i++) {
    bool other = floor && d[i].r.s != &subject_raw;
    report(name, 0, d[i].r.s->name, "us", &d[i].took, other ? floor : NULL,
           other ? &d[i].ratio : NULL);
  }
  for (int i = 0; i < count; i++) delivery_close(&d[i]);
}

void part_watch(void) {
  compare_deliveries("watch delivery", "watched", false);
  compare_deliveries("watch delivery, durable set", "watched-durably", true);
}

/* ---- idling ---- */

typedef struct crowd {
  worker w[CROWD + 1];
  double sleeps[CROWD + 1];
  double cpu_ns;
} crowd;

/* The first one holds; the others wait in line. */
static void crowd_gather(crowd *c, const subject *s, const char *place,
                         int waiting) {
  for (int i = 0; i <= waiting; i++) {
    c->w[i] = contender_start(s, place, run.cpu[1]);
    worker_go(&c->w[i], 'a');
    worker_ready(&c->w[i]);
  }
  sleep_us(times(3000000, 300000)); /* until all have joined, and one ticks */
}

/* The differences since the last look. */
static void crowd_look(crowd *c, int waiting) {
  double cpu_ns = 0;
  for (int i = 1; i <= waiting; i++) {
    c->sleeps[i] = worker_sleeps(&c->w[i]) - c->sleeps[i];
    cpu_ns += worker_cpu_ns(&c->w[i]);
  }
  c->cpu_ns = cpu_ns - c->cpu_ns;
}

static void crowd_report(const crowd *c, const subject *s, int waiting,
                         double seconds) {
  double most = 0, all = 0;
  for (int i = 1; i <= waiting; i++) {
    if (c->sleeps[i] > most) most = c->sleeps[i];
    all += c->sleeps[i];
  }
  report_one("wake-ups of the busiest", waiting, s->name, "1/s",
             most / seconds);
  report_one("wake-ups of each", waiting, s->name, "1/s",
             all / waiting / seconds);
  report_one("CPU of all", waiting, s->name, "%", c->cpu_ns / 1e7 / seconds);
}

static void idle(const subject *s, int waiting) {
  static crowd c;
  char place[32];
  double seconds = times(waiting > 1 ? 20 : 10, 1);
  c = (crowd){.cpu_ns = 0};
  snprintf(place, sizeof place, "idle-%d", waiting);
  void *keeper = s->open(place, FOR_LOCKING);
  crowd_gather(&c, s, place, waiting);
  crowd_look(&c, waiting);
  sleep_us((int64_t)(seconds * 1e6));
  crowd_look(&c, waiting);
  crowd_report(&c, s, waiting, seconds);
  for (int i = 0; i <= waiting; i++) worker_kill(&c.w[i]);
  s->close(keeper);
}

void part_idle(void) {
  const int waiting[] = {1, 100, CROWD};
  for (int i = 0; i < subject_count; i++) {
    const subject *s = subjects[i];
    if (s->act[ACT_LOCK]) idle(s, 1);
  }
  for (int i = 1; i < times(3, 2); i++) {
    idle(&subject_zke, times(waiting[i], 10));
    idle(&subject_raw, times(waiting[i], 10));
  }
}
