/* group.c - zkembed's election as a subject, and barriers
 *
 * A barrier: all but one process have entered and sleep; the last one enters.
 * From its call to when the last of them is inside.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>

#include "recipes/double_barrier.h"
#include "recipes/election.h"

/* ---- election ---- */

typedef struct candidate {
  zke *z;
  zke_election *e;
} candidate;

static void *election_open(const char *place, purpose why) {
  candidate *c = allocate(sizeof *c);
  char name[64], path[PATH_BYTES];
  (void)why;
  snprintf(name, sizeof name, "zke-%.50s.db", place);
  file_in(path, sizeof path, name);
  must(zke_open(path, NULL, &c->z), "zke_open");
  must(zke_election_new(c->z, "/election", NULL, &c->e), "zke_election_new");
  return c;
}

static void election_close(void *self) {
  candidate *c = self;
  zke_election_free(c->e);
  must(zke_close(c->z), "zke_close");
  free(c);
}

static void lead(void *self, const raw_key *key, int count) {
  candidate *c = self;
  (void)key, (void)count;
  must(zke_election_lead(c->e, ZKE_FOREVER), "zke_election_lead");
}

static void resign(void *self, const raw_key *key, int count) {
  candidate *c = self;
  (void)key, (void)count;
  must(zke_election_resign(c->e), "zke_election_resign");
}

const subject subject_election = {
    .name = "election",
    .open = election_open,
    .close = election_close,
    .act = {[ACT_LOCK] = lead, [ACT_UNLOCK] = resign}};

/* ---- barriers ---- */

enum { PARTIES_MOST = 256, BUDGET_S = 30 };

/* FILE PARTIES: on the order to enter it reports 0, the time before, and the
 * time inside; on the order to leave it reports 0 when it has left. */
void role_enter(char **argv) {
  zke *z;
  zke_double_barrier *barrier;
  must(zke_open(argv[0], NULL, &z), "zke_open");
  must(zke_double_barrier_new(z, "/barrier", atoi(argv[1]), NULL, &barrier),
       "zke_double_barrier_new");
  for (say(0);;) {
    if (await_command() == 'e') {
      say(0);
      int64_t start = now_ns();
      must(zke_double_barrier_enter(barrier, NULL, 0, ZKE_FOREVER, NULL),
           "zke_double_barrier_enter");
      say(start);
      say(now_ns());
    } else {
      must(zke_double_barrier_leave(barrier, ZKE_FOREVER),
           "zke_double_barrier_leave");
      say(0);
    }
  }
}

static void each_go(worker *w, int count, char command) {
  for (int i = 0; i < count; i++) worker_go(&w[i], command);
}

/* From the last one's call until all are inside, us. */
static double enter_all(worker *w, int parties) {
  int64_t start = 0, inside = 0;
  for (int i = 0; i < parties; i++) {
    if (i == parties - 1) sleep_us(PAUSE_US + 1000 * parties);
    worker_go(&w[i], 'e');
    worker_ready(&w[i]);
  }
  for (int i = 0; i < parties; i++) {
    start = worker_word(&w[i]);
    int64_t at = worker_word(&w[i]);
    if (at > inside) inside = at;
  }
  each_go(w, parties, 'v');
  for (int i = 0; i < parties; i++) worker_ready(&w[i]);
  return (double)(inside - start) / 1000;
}

static void measure_barrier(int parties) {
  static worker w[PARTIES_MOST];
  samples took = {0};
  char name[64], path[PATH_BYTES], count[24];
  snprintf(name, sizeof name, "barrier-%d", parties);
  file_in(path, sizeof path, name);
  snprintf(count, sizeof count, "%d", parties);
  for (int i = 0; i < parties; i++) {
    w[i] = worker_start("enter", run.cpu[i % 2], path, count, NULL);
    worker_ready(&w[i]);
  }
  int64_t end = now_ns() + BUDGET_S * INT64_C(1000000000);
  for (int round = 0; round < times(50, 2); round++) {
    if (round > 2 && now_ns() > end) break;
    add(&took, enter_all(w, parties));
  }
  report("barrier, last one in to all in", parties, "zkembed", "us", &took,
         NULL, NULL);
  forget(&took);
  for (int i = 0; i < parties; i++) worker_kill(&w[i]);
}

void part_barrier(void) {
  const int parties[] = {2, 16, 64, PARTIES_MOST};
  for (int i = 0; i < times(4, 1); i++) measure_barrier(parties[i]);
}
