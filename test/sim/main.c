/* main.c - many runs, each in a child of its own
 *
 *   sim [-v]... [-1] [-s] [SEED [RUNS]]   seeds from SEED on
 *   sim [-v]... [-s] STRING           one run, as its replay string says
 *
 * -v tells each result, -v -v each step; -1 stops at the first finding; -s also
 * shrinks each.  By the environment: SECONDS of processor time, after which no
 * run begins; PROCESSES of each run.  The last line has figures, and the hash
 * of all traces. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/sim/host.h"
#include "test/sim/load.h"
#include "test/sim/memory.h"
#include "test/sim/plan.h"
#include "test/sim/shrink.h"
#include "test/sim/vfs.h"

/* A run's processor time; runs for shrinking one. */
enum { LONGEST_S = 60, SHRINK_RUNS = 600 };

/* What a child tells its parent. */
typedef struct outcome {
  char text[640]; /* of a finding */
  sim_world world;
  load_figures load;
} outcome;

static outcome *told;

static void tell(void) {
  told->world = sim;
  told->load = load_count;
}

void sim_report(const char *text) {
  snprintf(told->text, sizeof told->text, "%s", text);
  tell();
  if (sim.verbose) fprintf(stderr, "FOUND %s\n", text);
  _exit(1);
}

/* Ends by exit() for the figures of a coverage build. */
static void child(void) {
  struct rlimit r = {LONGEST_S, LONGEST_S};
  setrlimit(RLIMIT_CPU, &r);
  host_run();
  tell();
  exit(0);
}

/* Run the plan; false: it has found something. */
static bool run(void) {
  int status = 0;
  memset(told, 0, sizeof *told);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) child();
  if (pid < 0 || waitpid(pid, &status, 0) != pid) abort();
  if (status && !told->text[0])
    snprintf(told->text, sizeof told->text, "the run ended by signal %d",
             WTERMSIG(status));
  return status == 0;
}

/* ---- a finding ---- */

static bool shrinks;
static char sought[16]; /* what a smaller plan must find, too: "P8:" */

/* The kind of finding: the promise, or how the run ended. */
static void kind_of(const char *text, char out[16]) {
  const char *at = text;
  while (*at && !(*at == 'P' && at[1] >= '0' && at[1] <= '9')) at++;
  size_t len = strcspn(at, ":");
  if (!*at) at = text, len = 15;
  snprintf(out, 16, "%.*s", (int)(len < 15 ? len : 15), at);
}

static bool finds_the_same(void) {
  char kind[16];
  sim_begin(the_plan.seed);
  if (run()) return false;
  kind_of(told->text, kind);
  return strcmp(kind, sought) == 0;
}

static void print_finding(void) {
  char text[PLAN_TEXT];
  plan_print(&the_plan, text);
  printf("seed %llu: %s\n  make sim REPLAY=%s\n",
         (unsigned long long)the_plan.seed, told->text, text);
}

/* Tell of it, and of the smallest that finds the same. */
static void tell_finding(void) {
  outcome first = *told;
  print_finding();
  if (!shrinks) return;
  kind_of(told->text, sought);
  int verbose = sim.verbose;
  sim.verbose = 0;
  int runs = shrink(finds_the_same, SHRINK_RUNS);
  sim.verbose = verbose;
  finds_the_same();
  printf("after %d runs, ", runs);
  print_finding();
  *told = first;
}

/* ---- figures ---- */

typedef struct figures {
  int runs, findings, planned; /* faults */
  sim_world world;             /* sums */
  load_figures load;
} figures;

static void figures_add(figures *f, bool found) {
  const int64_t *from = (const int64_t *)(const void *)&told->load;
  int64_t *to = (int64_t *)(void *)&f->load;
  f->runs++;
  f->findings += found;
  f->world.steps += told->world.steps;
  f->world.now += told->world.now;
  f->world.kills += told->world.kills;
  f->world.stops += told->world.stops;
  f->world.cuts += told->world.cuts;
  f->world.errors += told->world.errors;
  f->world.faults += told->world.faults;
  f->planned += the_plan.faults;
  f->world.switches += told->world.switches;
  f->world.hash = f->world.hash * 31 + told->world.hash;
  for (size_t i = 0; i < sizeof f->load / sizeof *to; i++) to[i] += from[i];
}

static double processor_s(void) {
  struct rusage own, children;
  getrusage(RUSAGE_SELF, &own);
  getrusage(RUSAGE_CHILDREN, &children);
  return (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec +
                  children.ru_utime.tv_sec + children.ru_stime.tv_sec) +
         (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec +
                  children.ru_utime.tv_usec + children.ru_stime.tv_usec) /
             1e6;
}

static void figures_print(const figures *f) {
  double s = processor_s();
  printf("%d runs, %d findings, %.1f s, %.1f runs/s, %.0f steps/s\n", f->runs,
         f->findings, s, f->runs / s, (double)f->world.steps / s);
  printf(
      "simulated %.0f s: steps %lld, switches %d, kills %d, stops %d, cuts %d, "
      "errors %d; faults %d of %d\n",
      (double)f->world.now / 1e9, (long long)f->world.steps, f->world.switches,
      f->world.kills, f->world.stops, f->world.cuts, f->world.errors,
      f->world.faults, f->planned);
  printf("calls %lld: ok %lld, loss %lld, late %lld, other %lld; ",
         (long long)f->load.calls, (long long)f->load.ok,
         (long long)f->load.loss, (long long)f->load.late,
         (long long)f->load.other);
  printf("events %lld, opens %lld, watches %lld, attached %lld, turns %lld\n",
         (long long)f->load.events, (long long)f->load.opens,
         (long long)f->load.watches, (long long)f->load.attached,
         (long long)f->load.turns);
  printf("hash %016llx\n", (unsigned long long)f->world.hash);
}

/* ---- the command ---- */

static int64_t from_environment(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static int replay(const char *text) {
  if (!plan_parse(&the_plan, text)) {
    fprintf(stderr, "sim: no replay string: %s\n", text);
    return 2;
  }
  sim_begin(the_plan.seed);
  figures f = {.runs = 0};
  bool fine = run();
  if (!fine) tell_finding();
  figures_add(&f, !fine);
  figures_print(&f);
  return !fine;
}

static int many(uint64_t seed, int64_t runs, bool first_only) {
  double longest = (double)from_environment("SECONDS", INT32_MAX);
  int processes = (int)from_environment("PROCESSES", 0);
  figures f = {.runs = 0};
  for (; runs > 0 && processor_s() < longest; runs--, seed++) {
    sim_begin(seed);
    plan_make(&the_plan, seed, processes);
    bool fine = run();
    if (!fine) tell_finding();
    fflush(stdout);
    figures_add(&f, !fine);
    if (!fine && first_only) break;
  }
  figures_print(&f);
  return f.findings != 0;
}

int main(int argc, char **argv) {
  int at = 1;
  bool first_only = false;
  for (; at < argc && argv[at][0] == '-'; at++) {
    if (strcmp(argv[at], "-v") == 0) sim.verbose++;
    if (strcmp(argv[at], "-1") == 0) first_only = true;
    if (strcmp(argv[at], "-s") == 0) shrinks = true;
  }
  told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (told == MAP_FAILED) return 2;
  sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
  memory_begin();
  sqlite3_initialize();
  vfs_register();
  const char *what = at < argc ? argv[at] : "1";
  if (strchr(what, '/')) return replay(what);
  return many(strtoull(what, NULL, 10),
              at + 1 < argc ? strtoll(argv[at + 1], NULL, 10) : 1, first_only);
}
