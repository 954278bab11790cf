/* calibrate.c - scripts from seeds, and their differences; see calibrate.h
 *
 *   calibrate [-v] [-1] DIRECTORY [SEED [RUNS]]
 *
 * Plays the scripts of the seeds from SEED on, with the real side in DIRECTORY,
 * until SECONDS of the environment have passed.  -v prints each script, with
 * the texts of both sides; -1 stops at the first difference. */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "test/sim/calibrate.h"
#include "test/sim/sim.h"
#include "test/sim/vfs.h"

enum { WORDS = 12, SHRINK_S = 30, TRIES = 200, TRIES_OF_KIND = 20 };

/* An argument's possible values, by its letter. */
static const struct {
  char letter;
  cal_word word[WORDS];
} letters[] = {
    /* f, g: a descriptor; h: a handle */
    {'f', {{"#0", 0}, {"#1", 1}, {"#2", 2}, {"#3", 3}}},
    {'g', {{"#0", 0}, {"#1", 1}, {"#2", 2}, {"#3", 3}}},
    {'h', {{"#0", 0}, {"#1", 1}, {"#2", 2}}},
    /* paths; the directory of some is missing, or is no directory */
    {'p',
     {{"a", 0},
      {"a", 0},
      {"a", 0},
      {"b", 0},
      {"b", 0},
      {"d", 0},
      {"d/a", 0},
      {"a/x", 0},
      {"n/a", 0}}},
    {'q', {{"database", 0}, {"journal", 1}, {"log", 2}}},
    {'o',
     {{"r", O_RDONLY},
      {"w", O_WRONLY},
      {"rw", O_RDWR},
      {"rw", O_RDWR},
      {"rw", O_RDWR | O_NOFOLLOW},
      {"rw,create", O_RDWR | O_CREAT},
      {"rw,create,excl", O_RDWR | O_CREAT | O_EXCL},
      {"r,directory", O_RDONLY | O_DIRECTORY}}},
    {'O',
     {{"rw,create", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE},
      {"rw,create", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE},
      {"rw", SQLITE_OPEN_READWRITE},
      {"r", SQLITE_OPEN_READONLY}}},
    /* offsets and sizes */
    {'a',
     {{"@0", 0},
      {"@1", 1},
      {"@100", 100},
      {"@4096", 4096},
      {"@5000", 5000},
      {"@40000", 40000}}},
    {'n', {{"1", 1}, {"3", 3}, {"8", 8}, {"200", 200}, {"4096", 4096}}},
    {'m', {{"0700", 0700}, {"0755", 0755}, {"0770", 0770}}},
    /* ranges of locks */
    {'b', {{"0", 0}, {"1", 1}, {"2", 2}, {"4", 4}, {"5", 5}}},
    {'l', {{"+1", 1}, {"+2", 2}, {"+3", 3}}},
    {'w', {{"take", ZKE_LOCK_EXCLUSIVE}, {"drop", ZKE_LOCK_NONE}}},
    {'e', {{"in", POLLIN}, {"none", 0}}},
    {'r', {{"in", 1}, {"none", 0}}},
    {'t',
     {{"off", 0},
      {"past", 1},
      {"soon", 1000000},
      {"late", INT64_C(36000000000000)}}},
    {'L',
     {{"shared", SQLITE_LOCK_SHARED},
      {"reserved", SQLITE_LOCK_RESERVED},
      {"exclusive", SQLITE_LOCK_EXCLUSIVE}}},
    {'U', {{"shared", SQLITE_LOCK_SHARED}, {"none", SQLITE_LOCK_NONE}}},
    {'i', {{"region 0", 0}, {"region 1", 1}}},
    {'x', {{"no", 0}, {"yes", 1}}},
    {'X',
     {{"exists", SQLITE_ACCESS_EXISTS},
      {"readwrite", SQLITE_ACCESS_READWRITE}}},
    {'y', {{"0", 0}, {"1", 1}, {"2", 2}}},
    {'s', {{"shared", SQLITE_SHM_SHARED}, {"exclusive", SQLITE_SHM_EXCLUSIVE}}},
};

/* ---- scripts ---- */

/* One of the values of a letter. */
static const cal_word *word_make(char letter) {
  size_t i = 0;
  int count = 0;
  while (i < sizeof letters / sizeof *letters && letters[i].letter != letter)
    i++;
  if (i == sizeof letters / sizeof *letters) abort();
  while (count < WORDS && letters[i].word[count].text) count++;
  return &letters[i].word[sim_random(SIM_LOAD, (uint64_t)count)];
}

/* A kind of call, chosen by weight. */
static const cal_kind *kind_make(const cal_kind *kinds) {
  int sum = 0;
  for (const cal_kind *k = kinds; k->name; k++) sum += k->weight;
  int at = (int)sim_random(SIM_LOAD, (uint64_t)sum);
  while (at >= kinds->weight) at -= (kinds++)->weight;
  return kinds;
}

/* A script of an even seed has calls of zke_os, of an odd one those of the VFS.
 * A kind is given up only if it seems that no process has what it needs. */
void cal_make(const cal_script *s, cal_call *c, bool (*can)(const cal_call *)) {
  for (int i = 0; i < TRIES; i++) {
    if (i % TRIES_OF_KIND == 0)
      c->kind = kind_make(s->seed % 2 ? cal_vfs_kinds : cal_os_kinds);
    c->process = (int)sim_random(SIM_LOAD, CAL_PROCESSES);
    for (int k = 0; c->kind->args[k]; k++)
      c->arg[k] = word_make(c->kind->args[k]);
    if (can(c)) return;
  }
}

/* ---- differences ---- */

/* Seconds since an arbitrary time. */
static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct {
  const char *directory;
  cal_script *script; /* shared with the children, like the answers */
  cal_answer *simulated, *real;
  int scripts, calls, made, differences;
  bool verbose;
} run;

/* Do the sides differ in a call?  A call that waits has no text, but may begin
 * one when the script's processes are ended. */
static bool differs_in(int call) {
  const cal_answer *a = &run.simulated[call], *b = &run.real[call];
  if (a->after != b->after) return true;
  return a->after >= 0 && strcmp(a->text, b->text) != 0;
}

/* How many calls a script must have to show the outcome of one: its text may
 * have come after a later call, on either side. */
static int calls_until(const cal_script *s, int call) {
  int a = run.simulated[call].after, b = run.real[call].after;
  if (a < 0 || b < 0) return s->count;
  return 1 + (a > b ? a : b);
}

/* Play the script on both sides.  Returns how many calls show a difference, or
 * 0.  If it `begins`, its calls are still to be chosen. */
static int difference(cal_script *s, bool begins) {
  static int number;
  char root[256];
  snprintf(root, sizeof root, "%s/calibrate-%d-%d", run.directory,
           (int)getpid(), ++number);
  cal_play_simulated(s, begins, run.simulated);
  cal_play_real(s, root, run.simulated, run.real);
  for (int i = 0; i < s->count; i++)
    if (differs_in(i)) return calls_until(s, i);
  return 0;
}

/* Print a call. */
static void call_print(const cal_call *c, char *out, size_t size) {
  int n = snprintf(out, size, "%c %s", 'A' + c->process, c->kind->name);
  for (int k = 0; c->kind->args[k]; k++)
    n += snprintf(out + n, size - (size_t)n, " %s", c->arg[k]->text);
}

/* Print a side's text of a call. */
static void answer_print(const cal_answer *a, int call, char *out,
                         size_t size) {
  if (a->after < 0)
    snprintf(out, size, "(waits)");
  else if (a->after > call)
    snprintf(out, size, "%s (after %d)", a->text, a->after);
  else
    snprintf(out, size, "%s", a->text);
}

/* Both sides' texts of each call, with a mark where they differ. */
static void script_print(const cal_script *s) {
  printf("seed %llu, %d calls, %s: simulated | real\n",
         (unsigned long long)s->seed, s->count, run.directory);
  for (int i = 0; i < s->count; i++) {
    char call[120], simulated[CAL_TEXT + 20], real[CAL_TEXT + 20];
    call_print(&s->call[i], call, sizeof call);
    answer_print(&run.simulated[i], i, simulated, sizeof simulated);
    answer_print(&run.real[i], i, real, sizeof real);
    printf("%c%3d %-34s %-24s | %s\n", differs_in(i) ? '!' : ' ', i, call,
           simulated, real);
  }
}

/* Leave out calls, many at a time first, as long as the sides still differ. */
static void script_shrink(cal_script *s, int count) {
  double end = now_s() + SHRINK_S;
  s->count = count;
  for (int size = s->count / 2; size > 0; size /= 2) {
    for (int from = s->count - size; from >= 0 && now_s() < end;) {
      cal_script less = *s;
      memmove(less.call + from, less.call + from + size,
              (size_t)(s->count - from - size) * sizeof *less.call);
      less.count -= size;
      count = difference(&less, false);
      if (count) {
        *s = less;
        s->count = count;
      }
      from -= size;
      if (from > s->count - size) from = s->count - size;
    }
  }
  difference(s, false);
}

/* A call that was not made, because its descriptor is not open, says
 * nothing. */
static void count_calls(const cal_script *s) {
  run.scripts++;
  run.calls += s->count;
  for (int i = 0; i < s->count; i++) run.made += run.real[i].text[0] != '\0';
}

/* Play the script of a seed, and report a difference. */
static void compare(uint64_t seed) {
  cal_script *s = run.script;
  memset(s, 0, sizeof *s);
  s->seed = seed;
  s->count = CAL_CALLS;
  int count = difference(s, true);
  count_calls(s);
  if (count) {
    run.differences++;
    script_shrink(s, count);
  }
  if (count || run.verbose) script_print(s);
  fflush(stdout);
}

/* ---- the program ---- */

/* Memory shared with children. */
static void *shared(size_t size) {
  void *at = mmap(NULL, size, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) abort();
  return at;
}

/* See the head. */
int main(int argc, char **argv) {
  const char *longest = getenv("SECONDS");
  double end = longest && *longest ? now_s() + atof(longest) : 1e18;
  bool first = false;
  for (; argc > 1 && argv[1][0] == '-'; argc--, argv++) {
    run.verbose |= strcmp(argv[1], "-v") == 0;
    first |= strcmp(argv[1], "-1") == 0;
  }
  if (argc < 2) {
    fprintf(stderr, "calibrate [-v] [-1] DIRECTORY [SEED [RUNS]]\n");
    return 2;
  }
  run.directory = argv[1];
  run.script = shared(sizeof *run.script);
  run.simulated = shared(CAL_CALLS * sizeof *run.simulated);
  run.real = shared(CAL_CALLS * sizeof *run.real);
  sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
  sqlite3_initialize();
  vfs_register();
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  int64_t runs = argc > 3 ? strtoll(argv[3], NULL, 10) : 1;
  for (; runs > 0 && now_s() < end; runs--) {
    if (first && run.differences) break;
    compare(seed++);
  }
  printf("%d scripts, %d calls, of which %d could be made: %d differences\n",
         run.scripts, run.calls, run.made, run.differences);
  return run.differences != 0;
}
