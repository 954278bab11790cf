/* load.c - several processes without pause
 *
 *   mixed    each process reads random nodes and, one time in ten, sets one of
 *            its own
 *   reader   one reads while another process sets a node without pause.  Both
 *            readers, zkembed's and the raw one, read the same file with the
 *            same writer, in turns
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NODES = 1000, PROCESSES_MOST = 16, READS = 9, PASSES = 2 };

/* A random node of a tree of NODES. */
static void random_node(raw_key *key, unsigned *state) {
  char parent[32];
  unsigned node = (unsigned)rand_r(state) % NODES;
  snprintf(parent, sizeof parent, "/g%05u", node / 100);
  key_number(key, parent, "n%02u", node % 100);
}

/* A node that only this process uses. */
static void own_node(runner *r, bool durable, raw_key *key) {
  if (r->s->durable) r->s->durable(r->self, durable);
  key_number(key, durable ? "/d" : "/e", "own-%u", (unsigned)getpid());
  r->s->act[durable ? ACT_PERSIST : ACT_CREATE](r->self, key, 1);
}

/* ---- mixed ---- */

/* One operation after another until a time; also reports the longest. */
static int64_t mix(runner *r, const raw_key *own, int64_t end,
                   int64_t *longest_out) {
  unsigned state = (unsigned)getpid();
  int64_t count = 0;
  *longest_out = 0;
  for (int64_t before = now_ns(); before < end; count++) {
    raw_key key;
    bool write = count % (READS + 1) == READS;
    if (!write) random_node(&key, &state);
    r->s->act[write ? ACT_SET : ACT_GET](r->self, write ? own : &key, 1);
    int64_t after = now_ns();
    if (after - before > *longest_out) *longest_out = after - before;
    before = after;
  }
  return count;
}

/* SUBJECT PLACE DURABLE: gets a time, reports how many and the longest, ns. */
void role_load(char **argv) {
  runner r = {.s = subject_named(argv[0])};
  raw_key own;
  int64_t end, longest;
  r.self = r.s->open(argv[1], FOR_WORK);
  own_node(&r, strcmp(argv[2], "1") == 0, &own);
  say(0);
  await_bytes(&end, sizeof end);
  say(mix(&r, &own, end, &longest));
  say(longest);
  await_command();
}

static void mixed(const subject *s, const char *place, int processes,
                  bool durable, samples *rate, samples *longest) {
  worker w[PROCESSES_MOST];
  double count = 0, most = 0;
  int64_t ns = times(1000, 50) * INT64_C(1000000);
  for (int i = 0; i < processes; i++) {
    w[i] = worker_start("load", run.cpu[i % 2], s->name, place,
                        durable ? "1" : "0", NULL);
    worker_ready(&w[i]);
  }
  int64_t end = now_ns() + ns;
  for (int i = 0; i < processes; i++) worker_tell(&w[i], &end, sizeof end);
  for (int i = 0; i < processes; i++) {
    count += (double)worker_word(&w[i]);
    double took = (double)worker_word(&w[i]) / 1e6;
    if (took > most) most = took;
  }
  for (int i = 0; i < processes; i++) worker_end(&w[i]);
  add(rate, count * 1e9 / (double)ns);
  add(longest, most);
}

static bool mixes(const subject *s) {
  return s->act[ACT_FILL] && s->act[ACT_GET] && s->act[ACT_SET];
}

static void compare_mixed(bool durable, int processes) {
  samples rate[SUBJECTS_MOST] = {{0}}, longest[SUBJECTS_MOST] = {{0}};
  char name[64], worst[80];
  const char *kind = durable ? "durable" : "ephemeral";
  for (int pass = 0; pass < times(PASSES, 1); pass++) {
    for (int turn = 0; turn < subject_count; turn++) {
      int i = in_turn(pass, turn, subject_count);
      if (mixes(subjects[i]))
        mixed(subjects[i], "mixed", processes, durable, &rate[i], &longest[i]);
    }
  }
  snprintf(name, sizeof name, "90 %% get, 10 %% %s set", kind);
  snprintf(worst, sizeof worst, "%s, longest", name);
  for (int i = 0; i < subject_count; i++) {
    report(name, processes, subjects[i]->name, "1/s", &rate[i], NULL, NULL);
    report(worst, processes, subjects[i]->name, "ms", &longest[i], NULL, NULL);
    forget(&rate[i]);
    forget(&longest[i]);
  }
}

void part_mixed(void) {
  for (int i = 0; i < subject_count; i++) {
    if (mixes(subjects[i])) plant_tree(subjects[i], "mixed", NODES);
  }
  for (int durable = 0; durable < 2; durable++) {
    for (int processes = 1; processes <= times(PROCESSES_MOST, 2);
         processes *= 2) {
      compare_mixed(durable, processes);
    }
  }
}

/* ---- a reader with a writer ---- */

/* PLACE DURABLE: zkembed, until it is killed. */
void role_write(char **argv) {
  runner r = {.s = &subject_zke};
  raw_key own;
  r.self = r.s->open(argv[0], FOR_WORK);
  own_node(&r, strcmp(argv[1], "1") == 0, &own);
  say(0);
  for (;;) r.s->act[ACT_SET](r.self, &own, 1);
}

static double read_once(raw *r, void *self, const raw_key *key) {
  char bytes[DATA_BYTES];
  raw_stat stat;
  int64_t start = now_ns();
  if (r) {
    raw_get(r, key, bytes, &stat);
  } else {
    subject_zke.act[ACT_GET](self, key, 1);
  }
  return (double)(now_ns() - start) / 1000;
}

static void read_in_turns(const char *name, raw *r, void *self) {
  samples took[2] = {{0}}, ratio = {0};
  unsigned state = 1;
  for (int i = 0; i < times(20000, 20); i++) {
    double us[2];
    raw_key key;
    random_node(&key, &state);
    for (int turn = 0; turn < 2; turn++) {
      int which = (i + turn) % 2;
      us[which] = read_once(which ? r : NULL, self, &key);
    }
    add(&took[0], us[0]);
    add(&took[1], us[1]);
    add(&ratio, us[0] / us[1]);
  }
  report(name, 0, subject_zke.name, "us", &took[0], &took[1], &ratio);
  report(name, 0, subject_raw.name, "us", &took[1], NULL, NULL);
  forget(&took[0]);
  forget(&took[1]);
  forget(&ratio);
}

void part_reader(void) {
  char path[PATH_BYTES];
  plant_tree(&subject_zke, "read", NODES);
  file_in(path, sizeof path, "zke-read.db");
  void *self = subject_zke.open("read", FOR_WORK);
  raw *r = raw_open_reader(path);
  for (int durable = 0; durable < 2; durable++) {
    worker writer =
        worker_start("write", run.cpu[1], "read", durable ? "1" : "0", NULL);
    worker_ready(&writer);
    read_in_turns(
        durable ? "get beside a durable writer" : "get beside a writer", r,
        self);
    worker_kill(&writer);
  }
  raw_close(r);
  subject_zke.close(self);
}
