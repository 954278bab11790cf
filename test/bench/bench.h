/* bench.h - what the parts of the benchmark share
 *
 *   bench.c    settings, parts, main
 *   base.c     clocks, CPUs, files, samples
 *   report.c   the table, bench.json
 *   process.c  other processes, and their reports
 *   measure.c  one process: operations side by side
 *   lock.c     locks between processes
 *   group.c    elections, barriers
 *   wait.c     watches across processes, idling
 *   load.c     several processes without pause
 *   queue.c    queues
 *   line.c     many writers: the longest wait
 *   cache.c    trees and groups kept in memory
 *   memory.c   bytes
 *   removal.c  many deletions, many watchers
 *   sessions.c ten thousand sessions
 *   served.c   servers of the protocol
 *   host.c     the program's own tables
 *   zoonet.c   several services in one order
 *   zke.c, floor.c, flock.c, zookeeper.c, etcd.c, redis.c
 *              the subjects
 *
 * A subject is a measured system: zkembed, the floor (raw), each peer.  It is a
 * table of actions on its own connection, so one piece of code measures all of
 * them and their samples can alternate.
 */
#ifndef ZKE_BENCH_H
#define ZKE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "raw.h"

enum {
  DATA_BYTES = 100,
  BATCH_MAX = 1000,     /* keys in one step */
  PATH_BYTES = 3200,    /* of one of our files */
  PAUSE_US = 2000,      /* until a receiver sleeps */
  LARGE_FAMILY = 100000 /* the most children of one node */
};

/* Settings from the environment, and the place. */
typedef struct settings {
  bool quick;
  int cpu[2];           /* ours, and the other processes' */
  char directory[3000]; /* our databases; removed at exit */
  char home[3000];      /* the program's; has bench.json */
} settings;
extern settings run;
extern char data[DATA_BYTES];

/* ---- base.c ---- */

_Noreturn void die(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void must(int rc, const char *what); /* a result of zkembed */
int64_t now_ns(void);
int64_t own_cpu_ns(void); /* this process's processor time */
void sleep_us(int64_t us);
void pin(int cpu);
void choose_cpus(void);
void more_descriptors(void);
void make_directory(const char *program);
void file_in(char *path, size_t size, const char *name);
void *allocate(size_t size);

/* the number of a sequential node, the ten digits at the end of its name */
int64_t number_of(const char *name);

/* quick counts or full ones */
int times(int full, int quick);

/* The subject whose turn it is in a round, of count: each begins in turn, and
 * every other round goes backwards, so none always follows the same one. */
int in_turn(int round, int turn, int count);

/* The text after "NAME...: " in the first such line of a file below /proc. */
const char *proc_value(const char *path, const char *name);

typedef struct samples {
  int count, room;
  double *at;
  double sum;
} samples;

void add(samples *s, double value);
void sort(samples *s);
double quantile(const samples *s, double q); /* of sorted ones */
void forget(samples *s);

/* ---- report.c ---- */

void report_begin(void);
void report_setting(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void report_end(void);

/* The part of the following figures. */
void report_part(const char *part);

/* Sorts the samples.  floor: raw's; their median divides that of s.  ratio: of
 * the two in the same round, for the spread.  NULL: none. */
void report(const char *name, int param, const char *who, const char *unit,
            samples *s, samples *floor, samples *ratio);
void report_one(const char *name, int param, const char *who, const char *unit,
                double value);

/* ---- subjects ---- */

/* A child process: it writes 8-byte words, and we write it bytes. */
typedef struct worker {
  pid_t pid;
  int in;  /* for a byte from us */
  int out; /* for its words */
} worker;

typedef enum action {
  ACT_NONE,
  ACT_GET,
  ACT_SET,
  ACT_CREATE,  /* ephemeral */
  ACT_PERSIST, /* create a persistent one */
  ACT_DELETE,
  ACT_MULTI,      /* create count ephemeral ones in one step */
  ACT_MULTI_UNDO, /* delete them */
  ACT_FILL,       /* create count persistent ones in one step, synced or not */
  ACT_CHILDREN,
  ACT_WATCH,   /* the next change of a node; it need not exist */
  ACT_AWAIT,   /* until such a watch has fired */
  ACT_UNWATCH, /* if it has not */
  ACT_LOCK,
  ACT_UNLOCK,
  ACT_PUT,
  ACT_TAKE,
  ACT_OPEN, /* another connection, and its end */
  ACTIONS
} action;

/* The key, or count of them for an action on several. */
typedef void (*action_fn)(void *self, const raw_key *key, int count);

/* The use of a connection. */
typedef enum purpose {
  FOR_WORK,
  FOR_FILLING, /* changes need not survive a power cut */
  FOR_LOCKING  /* count wake-ups, if possible */
} purpose;

typedef struct subject {
  const char *name;
  const char *promise;         /* beyond the others' promises */
  const char *(*absent)(void); /* the reason for its absence, or NULL */
  void (*version)(char *out, size_t size);

  /* place: which of several trees or locks, a short name.  The first connection
   * makes what it needs there. */
  void *(*open)(const char *place, purpose why);
  void (*close)(void *self);
  void (*durable)(void *self, bool durable); /* later changes; or NULL */
  action_fn act[ACTIONS];
  int64_t (*wakeups)(const void *self); /* sent so far; or NULL */

  int lock_pause_us; /* the longest pause between two tries, or until a waiter
                      * has settled; 0: waiters sleep */
  int patience_s;    /* until a dead holder's lock is free; 0: no delay */
} subject;

enum { SUBJECTS_MOST = 20 };
extern const subject *subjects[SUBJECTS_MOST]; /* available ones */
extern int subject_count;
void subjects_describe(void);
const subject *subject_named(const char *name);
bool subject_can(const subject *s, action wanted); /* ACT_NONE: always */

extern const subject subject_zke, subject_raw, subject_flock;

/* zkembed's election as a lock; only used if asked for. */
extern const subject subject_election;

/* Linked if their clients are available. */
extern const subject subject_zookeeper __attribute__((weak));
extern const subject subject_redis __attribute__((weak));
extern const subject subject_etcd;

/* ---- keys ----
 *
 * /gNNNNN with a hundred children each, /cNNNNN with NNNNN, /e for nodes that
 * come and go, /d for durable ones, /w for watched ones, which may not exist.
 */

void key_set(raw_key *k, const char *parent, const char *name);
void key_number(raw_key *k, const char *parent, const char *format,
                unsigned number);

/* ---- process.c ---- */

/* The strings after cpu go to the role, the last one is NULL. */
worker worker_start(const char *role, int cpu, ...);
worker worker_run(char **argv);
void worker_tell(worker *w, const void *bytes, size_t size);
void worker_go(worker *w, char command);
int64_t worker_word(worker *w);
void worker_words(worker *w, int64_t *words, int64_t count);
void worker_ready(worker *w);           /* its next word is 0 */
int worker_first(worker *w, int count); /* the first to report */
void worker_kill(worker *w);
void worker_end(worker *w); /* it exits by itself */

/* Since the process began: ns of processor time, and how often it went to
 * sleep. */
double worker_cpu_ns(const worker *w);
double worker_sleeps(const worker *w);

/* In a child process. */
void say(int64_t word);
char await_command(void);
void await_bytes(void *bytes, size_t size);
int role_main(int argc, char **argv);

typedef void (*role_fn)(char **argv);
void role_contend(char **argv);
void role_watch(char **argv);
void role_write(char **argv);
void role_enter(char **argv);
void role_load(char **argv);
void role_queue(char **argv);
void role_take(char **argv);
void role_await(char **argv);
void role_line(char **argv);
void role_host(char **argv);
void role_session(char **argv);
void role_crowd(char **argv);

/* A subject in a comparison. */
typedef struct runner {
  const subject *s;
  void *self;
} runner;

/* ---- lock.c ---- */

/* A process that takes and gives up a subject's lock as ordered. */
worker contender_start(const subject *s, const char *place, int cpu);

/* ---- parts ---- */

/* measure.c: make a tree as part_ops() has it, without families. */
void plant_tree(const subject *s, const char *place, int nodes);

void part_ops(void);
void part_scale(void);
void part_removal(void);
void part_open(void);
void part_lock(void);
void part_contention(void);
void part_death(void);
void part_watch(void);
void part_election(void);
void part_barrier(void);
void part_mixed(void);
void part_reader(void);
void part_queue(void);
void part_memory(void);
void part_idle(void);
void part_sessions(void);
void part_line(void);
void part_served(void);
void part_connections(void);
void part_host(void);
void part_cache(void);
void part_zoonet(void);
int measure_loop(const char *name, const char *subject, int count);

#endif
