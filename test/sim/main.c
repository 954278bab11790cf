/* main.c - many runs, each in its own child; see `sim -h`
 *
 * A run that ends by a signal, or stops making steps, is reported like a
 * finding.  The last line has figures, and the hash of all traces. */
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/sim/disk.h"
#include "test/sim/future.h"
#include "test/sim/host.h"
#include "test/sim/load.h"
#include "test/sim/memory.h"
#include "test/sim/plan.h"
#include "test/sim/rounds.h"
#include "test/sim/shrink.h"
#include "test/sim/story.h"
#include "test/sim/vfs.h"

static const char usage[] =
    "usage: sim [OPTION]... [SEED [RUNS]]   runs of seeds from SEED (1) on\n"
    "       sim [OPTION]... STRING          the run that a replay string says\n"
    "  -s       shrink what is found\n"
    "  -t       tell its story, and from which step on it had to come so\n"
    "  -p FILE  draw the story (SVG)\n"
    "  -v       print each call as it happens; -v -v: each step\n"
    "  -1       stop at the first finding\n"
    "In the environment: SECONDS of processor time, after which no run "
    "begins;\n"
    "PROCESSES of each run; RECIPES=1: each uses recipes, RECIPES=NAME: this\n"
    "use of test/recipes/uses.c.  Ends with 1 after a finding, with 2 if it "
    "is\n"
    "called wrongly, with 3 if the simulation itself is wrong.\n";

/* A run must make a step in this many seconds of processor time. */
enum { HANG_S = 2 };

/* Limits for shrinking a finding and trying its futures: runs, and seconds of
 * processor time. */
enum { MOST_RUNS = 1500, MOST_S = 60 };

/* What a child tells its parent. */
typedef struct outcome {
  sim_end end;    /* 0: without a finding */
  char kind[160]; /* of a finding, */
  char text[640]; /* and its text */
  sim_world world;
  load_figures load;
  disk_figures disk;
} outcome;

static outcome *told;
static bool is_child;

/* ---- a run ---- */

/* Send the parent the figures of the run. */
static void tell_world(void) {
  told->world = sim;
  told->load = load_count;
  told->disk = disk_count;
}

/* Send the parent how the run ended. */
static void tell_end(sim_end end, const char *kind, const char *text) {
  told->end = end;
  snprintf(told->kind, sizeof told->kind, "%s", kind);
  snprintf(told->text, sizeof told->text, "%s", text);
}

/* The run has ended with a finding: tell the parent, and exit. */
void sim_report(sim_end end, const char *kind, const char *text) {
  if (!is_child) {
    fprintf(stderr, "sim: %s\n", text);
    exit(3);
  }
  tell_end(end, kind, text);
  tell_world();
  _exit(1);
}

/* Signals that end a run, and how they are reported. */
static const struct {
  int number;
  const char *words;
} signals[] = {{SIGSEGV, "crash: SIGSEGV"},
               {SIGBUS, "crash: SIGBUS"},
               {SIGFPE, "crash: SIGFPE"},
               {SIGILL, "crash: SIGILL"},
               {SIGABRT, "crash: SIGABRT"},
               {SIGPROF, "hang: no step for seconds of processor time"}};
enum { SIGNALS = (int)(sizeof signals / sizeof *signals) };

/* SIGPROF comes periodically: it is a finding if there was no step since the
 * last one.  Another signal while this one is reported ends the process. */
static void on_signal(int number) {
  static int64_t steps = -1;
  if (number == SIGPROF && sim.steps != steps) {
    steps = sim.steps;
    return;
  }
  for (int i = 0; i < SIGNALS; i++) signal(signals[i].number, SIG_DFL);
  for (int i = 0; i < SIGNALS; i++)
    if (signals[i].number == number) sim_crash(signals[i].words);
}

/* Report this process's own crash, on another stack, as its own may be the
 * cause. */
static void catch_signals(void) {
  static char stack[1 << 16];
  const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
  const struct itimerval every = {{HANG_S, 0}, {HANG_S, 0}};
  struct sigaction action = {.sa_handler = on_signal,
                             .sa_flags = SA_ONSTACK | SA_RESTART};
  sigaltstack(&other, NULL);
  for (int i = 0; i < SIGNALS; i++) sigaction(signals[i].number, &action, NULL);
  setitimer(ITIMER_PROF, &every, NULL);
}

/* The child: run the_plan.  Ends with exit(), which writes the figures of a
 * coverage build. */
static void child(void) {
  const struct itimerval never = {{0, 0}, {0, 0}};
  is_child = true;
  catch_signals();
  host_run();
  setitimer(ITIMER_PROF, &never, NULL);
  tell_world();
  exit(0);
}

/* Run the_plan in a child; false: it had a finding (told). */
static bool run(void) {
  int status = 0;
  char text[64];
  sim_begin(the_plan.seed);
  memset(told, 0, sizeof *told);
  story_begin();
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) child();
  if (pid < 0 || waitpid(pid, &status, 0) != pid) abort();
  if (status && !told->end) {
    snprintf(text, sizeof text, "crash: signal %d", WTERMSIG(status));
    tell_end(SIM_CRASH, text, text);
  }
  return !told->end;
}

/* ---- a finding ---- */

/* Processor time so far, including all runs. */
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

static bool shrinks, tells;
static const char *picture; /* a file, or NULL */
static char sought[160];    /* the kind that another plan must find, */
static double sought_until; /* until this processor time */

/* For future.c: does the_plan find anything?  No, once the time is over. */
static bool finds_any(void) { return processor_s() < sought_until && !run(); }

/* For shrink.c: after how many calls does it find a finding of the kind sought;
 * 0: it does not. */
static int64_t finds_the_same(void) {
  bool same = finds_any() && strcmp(told->kind, sought) == 0;
  return same ? 1 + told->load.calls : 0;
}

/* The finding, its string, and its size. */
static void print_finding(void) {
  char text[PLAN_TEXT];
  plan_print(&the_plan, text);
  printf("seed %llu: %s%s\n  make sim REPLAY='%s'\n",
         (unsigned long long)the_plan.seed,
         told->end == SIM_BUG ? "the simulation itself: " : "", told->text,
         text);
  printf("  faults %d, processes %lld, threads %lld, calls %lld, steps %lld\n",
         the_plan.faults, (long long)the_plan.k.processes,
         (long long)the_plan.k.threads, (long long)told->load.calls,
         (long long)told->world.steps);
}

/* Make the_plan smaller. */
static void shrink_finding(void) {
  int verbose = sim.verbose;
  sought_until = processor_s() + MOST_S;
  sim.verbose = 0;
  int runs = shrink(finds_the_same, MOST_RUNS);
  sim.verbose = verbose;
  run();
  printf("after %d runs, ", runs);
  print_finding();
}

/* Print and draw the story of the last run, if requested. */
static void show_story(void) {
  FILE *out = picture ? fopen(picture, "w") : NULL;
  if (tells) story_print(stdout);
  if (out) story_draw(out);
  if (picture && (!out || fclose(out) != 0)) perror(picture);
}

/* Tell the story of the_plan, with the step from which on the finding was
 * inevitable. */
static void tell_story(void) {
  char text[96];
  int verbose = sim.verbose;
  int64_t last = told->world.steps;
  sim.verbose = 0;
  sought_until = processor_s() + MOST_S;
  future f = future_find(finds_any, last, MOST_RUNS);
  sim.verbose = verbose;
  snprintf(text, sizeof text, "FROM HERE ON it fails in %d of %d futures",
           f.failed, f.tried);
  if (f.step > 0) story_mark(f.step, text);
  run();
  printf("\n");
  show_story();
}

/* The run has a finding: report it, and the smallest plan that finds the
 * same. */
static void tell_finding(void) {
  outcome first = *told;
  snprintf(sought, sizeof sought, "%s", told->kind);
  print_finding();
  fflush(stdout);
  if (shrinks) shrink_finding();
  if (tells || picture) tell_story();
  *told = first;
}

/* ---- figures ---- */

typedef struct figures {
  int runs, findings, bugs, planned; /* of the simulation; faults */
  sim_world world;                   /* sums */
  load_figures load;
  disk_figures disk;
} figures;

/* Add numbers to sums. */
static void add_all(void *to, const void *from, size_t size) {
  int64_t *sums = to;
  const int64_t *numbers = from;
  for (size_t i = 0; i < size / sizeof *sums; i++) sums[i] += numbers[i];
}

/* Add the run that has just ended. */
static void figures_add(figures *f) {
  f->runs++;
  f->findings += told->end == SIM_FINDING || told->end == SIM_CRASH;
  f->bugs += told->end == SIM_BUG;
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
  add_all(&f->load, &told->load, sizeof f->load);
  add_all(&f->disk, &told->disk, sizeof f->disk);
}

/* Print the last lines: what ran, which faults struck, and the results. */
static void figures_print(const figures *f) {
  double s = processor_s();
  printf("%d runs, %d findings, %.1f s, %.1f runs/s, %.0f steps/s\n", f->runs,
         f->findings, s, f->runs / s, (double)f->world.steps / s);
  if (f->bugs) printf("the simulation itself was wrong %d times\n", f->bugs);
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
  printf(
      "events %lld, opens %lld, watches %lld, attached %lld, turns %lld, "
      "judged "
      "%lld, rounds %lld, parties %lld\n",
      (long long)f->load.events, (long long)f->load.opens,
      (long long)f->load.watches, (long long)f->load.attached,
      (long long)f->load.turns, (long long)f->load.judged,
      (long long)f->load.rounds, (long long)f->load.parties);
  printf("cuts:");
#define PRINT(name, text) \
  printf(" %s %lld,", #text, (long long)f->disk.cuts[CUT_##name]);
  DISK_CUT_LIST(PRINT)
#undef PRINT
  printf(" torn writes %lld, names taken back %lld\n", (long long)f->disk.torn,
         (long long)f->disk.names);
  printf("hash %016llx\n", (unsigned long long)f->world.hash);
}

/* ---- the command ---- */

/* Read a number that is at least `least`; false: it is none, and a message was
 * printed. */
static bool take(const char *name, const char *text, int64_t least,
                 int64_t most, int64_t *out) {
  char *end;
  if (!text || !*text) return true;
  int64_t value = strtoll(text, &end, 10);
  if (*end || value < least || value > most) {
    fprintf(stderr, "sim: %s=%s: this must be a number from %lld to %lld\n",
            name, text, (long long)least, (long long)most);
    return false;
  }
  *out = value;
  return true;
}

/* The exit code after some runs. */
static int code_of(const figures *f) {
  if (f->bugs) return 3;
  return f->findings ? 1 : 0;
}

/* Parse a string into the_plan, or print what is wrong with it. */
static bool take_string(const char *text) {
  const char *at;
  const char *wrong = plan_parse(&the_plan, text, &at);
  if (!wrong) return true;
  fprintf(stderr, "sim: the replay string is wrong at character %d: %s\n",
          (int)(at - text) + 1, wrong);
  fprintf(stderr, "  %s\n  %*s^\n", text, (int)(at - text), "");
  return false;
}

/* Make the plan of a seed through its string, so that each run can be
 * replayed. */
static bool take_seed(int64_t seed, int64_t processes) {
  static plan made;
  char text[PLAN_TEXT];
  sim_begin((uint64_t)seed);
  plan_make(&made, (uint64_t)seed, (int)processes);
  plan_print(&made, text);
  return take_string(text);
}

/* Run the plan of a string. */
static int replay(const char *text) {
  figures f = {.runs = 0};
  if (!take_string(text)) return 2;
  if (run())
    show_story();
  else
    tell_finding();
  figures_add(&f);
  figures_print(&f);
  return code_of(&f);
}

/* Run many seeds, until the time is over, or, if requested, until a finding. */
static int many(int64_t seed, int64_t runs, bool first_only) {
  int64_t longest = INT32_MAX, processes = 0;
  int64_t uses = rounds_knob(getenv("RECIPES"));
  figures f = {.runs = 0};
  if (!take("SECONDS", getenv("SECONDS"), 1, INT32_MAX, &longest) ||
      !take("PROCESSES", getenv("PROCESSES"), 1, plan_knob_of[0].most,
            &processes))
    return 2;
  if (uses < 0) {
    fprintf(stderr, "sim: RECIPES=%s: no use has this name\n",
            getenv("RECIPES"));
    return 2;
  }
  for (; runs > 0 && processor_s() < (double)longest; runs--, seed++) {
    if (!take_seed(seed, processes)) return 3;
    if (uses) the_plan.k.uses = uses;
    bool fine = run();
    if (!fine) tell_finding();
    fflush(stdout);
    figures_add(&f);
    if (!fine && first_only) break;
  }
  figures_print(&f);
  return code_of(&f);
}

/* Set up what is the same for all runs. */
static void begin(void) {
  told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (told == MAP_FAILED) abort();
  story_open();
  sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
  memory_begin();
  sqlite3_initialize();
  vfs_register();
}

/* Read the options, and run a string or seeds. */
int main(int argc, char **argv) {
  int64_t seed = 1, runs = 1;
  int option, printed = 0;
  bool first_only = false;
  while ((option = getopt(argc, argv, "1hp:stv")) != -1) {
    if (option == '1') first_only = true;
    if (option == 'p') picture = optarg;
    if (option == 's') shrinks = true;
    if (option == 't') tells = true;
    if (option == 'v') printed++;
    if (option == 'h' || option == '?') {
      fputs(usage, option == 'h' ? stdout : stderr);
      return option == 'h' ? 0 : 2;
    }
  }
  if (tells || picture || printed) sim.verbose = 1 + printed;
  begin();
  const char *what = optind < argc ? argv[optind] : "1";
  if (strchr(what, '/')) return replay(what);
  if (!take("SEED", what, 0, INT64_MAX, &seed) ||
      (optind + 1 < argc &&
       !take("RUNS", argv[optind + 1], 1, INT64_MAX, &runs)))
    return 2;
  return many(seed, runs, first_only);
}
