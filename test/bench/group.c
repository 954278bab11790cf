/* group.c - zkembed's election as a subject, and barriers
 *
 * A barrier: all but one process have entered and sleep; the last one enters.
 * From its call to when the last of them is inside.  Beside it: a byte in the
 * FIFO of each, and a barrier of pthreads in shared memory.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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

typedef struct party {
  int parties, number;
  zke *z;
  zke_double_barrier *barrier;
  int own;                  /* FIFO */
  int others[PARTIES_MOST]; /* FIFOs, of the last one */
  pthread_barrier_t *shared;
} party;

typedef struct kind {
  const char *name;
  void (*open)(party *p, const char *place);
  void (*enter)(party *p);
  void (*leave)(party *p); /* or NULL */
} kind;

static void zkembed_open(party *p, const char *place) {
  must(zke_open(place, NULL, &p->z), "zke_open");
  must(zke_double_barrier_new(p->z, "/barrier", p->parties, NULL, &p->barrier),
       "zke_double_barrier_new");
}

static void zkembed_enter(party *p) {
  must(zke_double_barrier_enter(p->barrier, NULL, 0, ZKE_FOREVER, NULL),
       "zke_double_barrier_enter");
}

static void zkembed_leave(party *p) {
  must(zke_double_barrier_leave(p->barrier, ZKE_FOREVER),
       "zke_double_barrier_leave");
}

static int fifo_of(const char *place, int number) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%.3100s-%d", place, number);
  if (mkfifo(path, 0600) && errno != EEXIST) die("mkfifo: %d", errno);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) die("cannot open %s", path);
  return fd;
}

static bool is_last(const party *p) { return p->number == p->parties - 1; }

static void fifo_open(party *p, const char *place) {
  p->own = fifo_of(place, p->number);
  for (int i = 0; is_last(p) && i < p->number; i++) {
    p->others[i] = fifo_of(place, i);
  }
}

static void fifo_enter(party *p) {
  char byte;
  if (!is_last(p) && read(p->own, &byte, 1) != 1) die("read: %d", errno);
  for (int i = 0; is_last(p) && i < p->number; i++) {
    if (write(p->others[i], "", 1) != 1) die("write: %d", errno);
  }
}

static void pthread_open(party *p, const char *place) {
  int fd = open(place, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof *p->shared)) die("cannot make %s", place);
  p->shared =
      mmap(NULL, sizeof *p->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (p->shared == MAP_FAILED) die("mmap: %d", errno);
  if (p->number > 0) return; /* the first one starts before the others */
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(p->shared, &attributes, (unsigned)p->parties);
}

static void pthread_enter(party *p) { pthread_barrier_wait(p->shared); }

static const kind kinds[] = {
    {"zkembed", zkembed_open, zkembed_enter, zkembed_leave},
    {"fifo", fifo_open, fifo_enter, NULL},
    {"pthread", pthread_open, pthread_enter, NULL}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* KIND FILE PARTIES NUMBER: told to enter it says 0, the time before, and the
 * time when it is inside; told to leave it says 0 when it has left. */
void role_enter(char **argv) {
  static party p;
  const kind *k = &kinds[atoi(argv[0])];
  p.parties = atoi(argv[2]);
  p.number = atoi(argv[3]);
  k->open(&p, argv[1]);
  for (say(0);;) {
    if (await_command() == 'e') {
      say(0);
      int64_t start = now_ns();
      k->enter(&p);
      say(start);
      say(now_ns());
    } else {
      if (k->leave) k->leave(&p);
      say(0);
    }
  }
}

static void each_go(worker *w, int count, char command) {
  for (int i = 0; i < count; i++) worker_go(&w[i], command);
}

/* From the last one's call to when all are inside, us. */
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

static void start_all(worker *w, int which, int parties) {
  char name[64], path[PATH_BYTES], kind_text[24], parties_text[24];
  snprintf(name, sizeof name, "barrier-%s-%d", kinds[which].name, parties);
  file_in(path, sizeof path, name);
  snprintf(kind_text, sizeof kind_text, "%d", which);
  snprintf(parties_text, sizeof parties_text, "%d", parties);
  for (int i = 0; i < parties; i++) {
    char number[24];
    snprintf(number, sizeof number, "%d", i);
    w[i] = worker_start("enter", run.cpu[i % 2], kind_text, path, parties_text,
                        number, NULL);
    worker_ready(&w[i]);
  }
}

static void compare_barriers(int parties) {
  static worker w[KINDS][PARTIES_MOST];
  samples took[KINDS] = {{0}};
  for (int k = 0; k < KINDS; k++) start_all(w[k], k, parties);
  int64_t end = now_ns() + BUDGET_S * INT64_C(1000000000);
  for (int round = 0; round < times(50, 2); round++) {
    if (round > 2 && now_ns() > end) break;
    for (int turn = 0; turn < KINDS; turn++) {
      int k = in_turn(round, turn, KINDS);
      add(&took[k], enter_all(w[k], parties));
    }
  }
  for (int k = 0; k < KINDS; k++) {
    report("barrier, last one in to all in", parties, kinds[k].name, "us",
           &took[k], NULL, NULL);
    forget(&took[k]);
    for (int i = 0; i < parties; i++) worker_kill(&w[k][i]);
  }
}

void part_barrier(void) {
  const int parties[] = {2, 16, 64, PARTIES_MOST};
  for (int i = 0; i < times(4, 1); i++) compare_barriers(parties[i]);
}
