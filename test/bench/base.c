/* base.c - clocks, CPUs, files and samples; see bench.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "test/program.h"
#include "zkembed.h"

settings run;
char data[DATA_BYTES];

static pid_t owner; /* the process that removes the directory */

_Noreturn void die(const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  fputs("bench: ", stderr);
  vfprintf(stderr, format, ap);
  fputc('\n', stderr);
  va_end(ap);
  exit(2);
}

void must(int rc, const char *what) {
  if (rc != ZKE_OK) die("%s: %s: %s", what, zke_error_name(rc), zke_errmsg());
}

void *allocate(size_t size) {
  void *block = calloc(1, size ? size : 1);
  if (!block) die("out of memory");
  return block;
}

int times(int full, int quick) { return run.quick ? quick : full; }

int in_turn(int round, int turn, int count) {
  int at = round % 2 ? count - 1 - turn : turn;
  return (at + round / 2) % count;
}

/* ---- time ---- */

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t own_cpu_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sleep_us(int64_t us) {
  struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
  while (nanosleep(&t, &t) && errno == EINTR) {
  }
}

/* ---- the machine ---- */

void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set)) die("cannot pin to CPU %d", cpu);
}

/* The first two available CPUs; the same one twice on a small machine. */
void choose_cpus(void) {
  cpu_set_t set;
  int found = 0;
  if (sched_getaffinity(0, sizeof set, &set)) die("no CPU affinity");
  for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
    if (CPU_ISSET((size_t)cpu, &set)) run.cpu[found++] = cpu;
  }
  if (found == 1) run.cpu[1] = run.cpu[0];
}

/* A thousand processes are two thousand pipes. */
void more_descriptors(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit)) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

const char *proc_value(const char *path, const char *name) {
  static char line[400];
  FILE *f = fopen(path, "r");
  const char *value = NULL;
  while (f && !value && fgets(line, sizeof line, f)) {
    if (strncmp(line, name, strlen(name)) != 0) continue;
    line[strcspn(line, "\n")] = '\0';
    value = strchr(line, ':');
  }
  if (f) fclose(f);
  return value ? value + 1 + strspn(value + 1, " \t") : "unknown";
}

/* ---- files ---- */

static void remove_directory(void) {
  if (getpid() == owner) program_remove(run.directory);
}

/* By default databases and bench.json are next to the program, usually on a
 * real disk; /tmp is often memory, where a sync costs nothing.  A child process
 * gets the directory from the environment. */
void make_directory(const char *program) {
  const char *given = getenv("BENCH_WORK");
  if (given) {
    snprintf(run.directory, sizeof run.directory, "%s", given);
    return;
  }
  const char *slash = strrchr(program, '/');
  const char *wanted = getenv("BENCH_DIR");
  snprintf(run.home, sizeof run.home, "%.*s",
           slash ? (int)(slash - program) : 1, slash ? program : ".");
  if (!wanted || !*wanted) wanted = run.home;
  snprintf(run.directory, sizeof run.directory, "%.2900s/bench-XXXXXX", wanted);
  if (!mkdtemp(run.directory)) {
    die("cannot make %s: %s", run.directory, strerror(errno));
  }
  owner = getpid();
  atexit(remove_directory);
  setenv("BENCH_WORK", run.directory, 1);
}

void file_in(char *path, size_t size, const char *name) {
  snprintf(path, size, "%s/%s", run.directory, name);
}

int64_t number_of(const char *name) {
  return strtoll(name + strlen(name) - 10, NULL, 10);
}

/* ---- samples ---- */

void add(samples *s, double value) {
  if (s->count == s->room) {
    s->room = s->room ? 2 * s->room : 256;
    s->at = realloc(s->at, (size_t)s->room * sizeof *s->at);
    if (!s->at) die("out of memory");
  }
  s->at[s->count++] = value;
  s->sum += value;
}

static int by_value(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

void sort(samples *s) {
  if (s->count) qsort(s->at, (size_t)s->count, sizeof *s->at, by_value);
}

double quantile(const samples *s, double q) {
  if (!s->count) return 0;
  return s->at[(int)(q * (s->count - 1) + 0.5)];
}

void forget(samples *s) {
  free(s->at);
  *s = (samples){0};
}

/* ---- keys ---- */

void key_set(raw_key *k, const char *parent, const char *name) {
  bool top = strcmp(parent, "/") == 0;
  snprintf(k->path, sizeof k->path, "%s/%s", top ? "" : parent, name);
  snprintf(k->parent, sizeof k->parent, "%s", parent);
  snprintf(k->name, sizeof k->name, "%s", name);
  const char *slash = strrchr(parent, '/');
  snprintf(k->parent_name, sizeof k->parent_name, "%s", slash + 1);
  snprintf(k->grand, sizeof k->grand, "%.*s", (int)(slash - parent), parent);
  if (!k->grand[0] && !top) strcpy(k->grand, "/");
}

void key_number(raw_key *k, const char *parent, const char *format,
                unsigned number) {
  char name[48];
  snprintf(name, sizeof name, format, number);
  key_set(k, parent, name);
}
