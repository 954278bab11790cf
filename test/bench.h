/* bench.h - what the two halves of the benchmark share
 *
 * bench.c measures the engine, bench_recipes.c the recipes; both compare with
 * bench_raw.c.  How a sample is taken stands at the head of bench.c.
 */
#ifndef ZKE_BENCH_H
#define ZKE_BENCH_H

#include <sys/types.h>

#include "../recipes/lock.h"
#include "../recipes/queue.h"
#include "bench_raw.h"

enum {
  BATCH_MAX = 400,
  DATA_BYTES = 100,
  RAW_WATCH_KIND = 2,
  RAW_WATCH_END = 1, /* of a node that is written, but has no children */
  PAUSE_US = 2000    /* a receiver is asleep when it is woken */
};

/* What the environment asks for, and where we run. */
typedef struct settings {
  bool quick, large, strict;
  int cpu[2];           /* ours, and the other processes' */
  char directory[3000]; /* our databases, removed at exit */
  char json[3000];
  pid_t owner; /* who removes the directory */
  int missed;  /* targets */
} settings;
extern settings run;
extern char data[DATA_BYTES];

_Noreturn void die(const char *format, ...);
void must(int rc, const char *what);
int64_t now_ns(void);
void sleep_us(int64_t us);
void file_in(char *path, size_t size, const char *name);

/* ---- samples, and what is said of them ---- */

typedef struct samples {
  int count, room;
  double *at;
  double sum;
} samples;

void add(samples *s, double value);
void forget(samples *s);

/* Engine, raw and the ratios of neighbours; a target of 0 is none. */
void report_ratio(const char *name, samples *engine, samples *raw_side,
                  samples *ratio, double target);
void report_time(const char *name, const char *unit, samples *s, double target);

/* ---- comparing in one process ---- */

/* The two databases of one size, equal in content. */
typedef struct pair {
  int nodes;
  unsigned state;   /* of the random numbers */
  unsigned counter; /* names used up below /e and /d */
  zke *z;
  raw *r;
  zke_lock *lock;
  zke_queue *queue;
  raw_key key[BATCH_MAX];
} pair;

void key_set(raw_key *k, const char *parent, const char *name);

/* On either side; key points to one key or to those of a multi. */
typedef void (*operation)(pair *p, const raw_key *key);

typedef struct comparison {
  const char *name;
  double target; /* of the ratio; 0: none */
  int batch;     /* keys in a batch */
  int step;      /* keys that one operation takes */
  bool durable;
  void (*pick)(pair *p, raw_key *key);
  operation before[2]; /* on each key, not timed; engine, raw; or NULL */
  operation timed[2];
  operation after[2]; /* as before */
} comparison;

void compare(pair *p, const comparison *c, const char *name);

/* ---- other processes ---- */

typedef struct peer {
  pid_t pid;
  int in;  /* it waits here for a byte from us */
  int out; /* we read its words here */
} peer;

peer peer_start(const char *name, int cpu, const char *file, const char *path);
void peer_go(peer *p);
int64_t peer_word(peer *p);
void peer_kill(peer *p);

/* Kill the victim when the waiter, whose next word is 0, sleeps; returns the
 * time until the waiter says when it was woken, in us. */
double death(peer *waiter, peer *victim);

/* In such a process: say a word, wait for a byte. */
void say(int64_t word);
void await_go(void);

/* ---- bench_recipes.c ---- */

extern const comparison recipe_comparisons[];
extern const int recipe_comparison_count;
void recipes_prepare(pair *p);
void recipes_finish(pair *p);
void recipes_compare_hand_over(void);
void recipes_time(void);
void role_contend(const char *file, const char *path);
void role_raw_contend(const char *file, const char *path);

#endif
