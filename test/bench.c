/* bench.c - zkembed beside hand-written SQL, and its latencies
 *
 *     make bench            both tables, and bench.json beside the program
 *     QUICK=1 make bench    a smoke run: few samples, figures mean nothing
 *     LARGE=1 make bench    a million znodes too
 *     STRICT=1 make bench   exit status 1 where a target is missed
 *     BENCH_DIR=/mnt/x      where the databases lie; beside the program
 *
 *     bench --loop NAME engine|raw COUNT
 *                           one operation over and over, for perf and strace
 *
 * The first table compares.  A sample is the mean of a small batch of
 * operations; batches of the two sides alternate (A B, B A, A B, ...), so that
 * both meet the same machine.  A ratio is that of the medians of the samples;
 * the spread beside it is that of the ratios of neighbouring batches; "mean"
 * is the ratio of the total times, checkpoints included.
 *
 * The second table is in microseconds between processes.  They are started
 * from this program with --role and die with it.  Times are CLOCK_MONOTONIC,
 * taken before the cause by one process and in the callback by the other.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../zkembed.h"

extern char **environ;

enum {
  FAMILY = 100,    /* children of each parent */
  MULTI = 10,      /* operations of a multi */
  ROUNDS = 400,    /* batches of each side */
  BUDGET_MS = 8000 /* of one comparison on a slow disk */
};

static const unsigned seed = 20231;

settings run;
char data[DATA_BYTES];

/* ---- small things ---- */

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

int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void sleep_us(int64_t us) {
  struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
  while (nanosleep(&t, &t) && errno == EINTR) {
  }
}

static bool asked(const char *variable) {
  const char *value = getenv(variable);
  return value && *value && strcmp(value, "0") != 0;
}

static void pin(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set)) die("cannot pin to CPU %d", cpu);
}

/* The first two CPUs that we may use; the same one twice on a small machine. */
static void choose_cpus(void) {
  cpu_set_t set;
  int found = 0;
  if (sched_getaffinity(0, sizeof set, &set)) die("no CPU affinity");
  for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++) {
    if (CPU_ISSET((size_t)cpu, &set)) run.cpu[found++] = cpu;
  }
  if (found == 1) run.cpu[1] = run.cpu[0];
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw) {
  (void)st, (void)type, (void)ftw;
  return remove(path);
}

static void remove_directory(void) {
  if (getpid() == run.owner) {
    nftw(run.directory, remove_entry, 32, FTW_DEPTH | FTW_PHYS);
  }
}

/* Databases and bench.json lie beside the program, on a real disk as a rule;
 * /tmp is often memory, where a sync costs nothing. */
static void make_directory(const char *program) {
  const char *slash = strrchr(program, '/');
  int length = slash ? (int)(slash - program) : 1;
  const char *home = slash ? program : ".";
  const char *wanted = getenv("BENCH_DIR");
  if (wanted && *wanted) {
    snprintf(run.directory, sizeof run.directory, "%s/bench-XXXXXX", wanted);
  } else {
    snprintf(run.directory, sizeof run.directory, "%.*s/bench-XXXXXX", length,
             home);
  }
  snprintf(run.json, sizeof run.json, "%.*s/bench.json", length, home);
  if (!mkdtemp(run.directory)) {
    die("cannot make %s: %s", run.directory, strerror(errno));
  }
  run.owner = getpid();
  atexit(remove_directory);
}

void file_in(char *path, size_t size, const char *name) {
  snprintf(path, size, "%s/%s", run.directory, name);
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

static void sort(samples *s) {
  if (s->count) qsort(s->at, (size_t)s->count, sizeof *s->at, by_value);
}

/* Of sorted samples. */
static double quantile(const samples *s, double q) {
  if (!s->count) return 0;
  return s->at[(int)(q * (s->count - 1) + 0.5)];
}

void forget(samples *s) {
  free(s->at);
  *s = (samples){0};
}

/* ---- the report: lines for people, bench.json for machines ---- */

static FILE *json;
static const char *json_gap; /* before the next figure */

static void json_string(const char *name, const char *value) {
  fprintf(json, "  \"%s\": \"", name);
  for (; *value; value++) {
    if (*value == '"' || *value == '\\') fputc('\\', json);
    if ((unsigned char)*value >= ' ') fputc(*value, json);
  }
  fputs("\",\n", json);
}

static void setting(const char *name, const char *format, ...) {
  char text[400];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  printf("  %-12s %s\n", name, text);
  json_string(name, text);
}

static void json_spread(const char *name, const samples *s) {
  fprintf(json, ", \"%s\": [%.3f, %.3f, %.3f]", name, quantile(s, 0.1),
          quantile(s, 0.5), quantile(s, 0.9));
}

static const char *verdict(double value, double target) {
  if (target <= 0 || run.quick) return "";
  if (value <= target) return "met";
  run.missed++;
  return "MISSED";
}

void report_ratio(const char *name, samples *engine, samples *raw_side,
                  samples *ratio, double target) {
  sort(engine);
  sort(raw_side);
  sort(ratio);
  double value = quantile(engine, 0.5) / quantile(raw_side, 0.5);
  double mean = engine->sum / raw_side->sum;
  char limit[16] = "";
  if (target > 0) snprintf(limit, sizeof limit, "<= %.1f", target);
  printf(
      "%-22s %8.2f %7.2f-%-8.2f %8.2f %7.2f-%-8.2f %5.2f %5.2f-%-5.2f "
      "%5.2f %6s %s\n",
      name, quantile(engine, 0.5), quantile(engine, 0.1), quantile(engine, 0.9),
      quantile(raw_side, 0.5), quantile(raw_side, 0.1), quantile(raw_side, 0.9),
      value, quantile(ratio, 0.1), quantile(ratio, 0.9), mean, limit,
      verdict(value, target));
  fprintf(json,
          "%s    {\"name\": \"%s\", \"ratio\": %.3f, \"mean_ratio\": %.3f",
          json_gap, name, value, mean);
  json_spread("engine_us", engine);
  json_spread("raw_us", raw_side);
  json_spread("ratios", ratio);
  fprintf(json, ", \"target\": %.1f}", target);
  json_gap = ",\n";
  fflush(stdout);
}

void report_time(const char *name, const char *unit, samples *s,
                 double target) {
  sort(s);
  char limit[24] = "";
  if (target > 0) snprintf(limit, sizeof limit, "<= %.0f", target);
  printf("%-46s %9.1f %9.1f-%-9.1f %9.1f  %-4s %7s %s\n", name,
         quantile(s, 0.5), quantile(s, 0.1), quantile(s, 0.9),
         quantile(s, 0.99), unit, limit, verdict(quantile(s, 0.5), target));
  fprintf(json, "%s    {\"name\": \"%s\", \"unit\": \"%s\"", json_gap, name,
          unit);
  json_spread("value", s);
  fprintf(json, ", \"p99\": %.3f, \"target\": %.0f}", quantile(s, 0.99),
          target);
  json_gap = ",\n";
  fflush(stdout);
}

static const char *file_system(void) {
  static char text[32];
  struct statfs fs;
  if (statfs(run.directory, &fs)) return "unknown";
  switch ((unsigned long)fs.f_type) {
    case 0xef53:
      return "ext4";
    case 0x01021994:
      return "tmpfs (syncs cost nothing here)";
    case 0x58465342:
      return "xfs";
    case 0x9123683e:
      return "btrfs";
    case 0x794c7630:
      return "overlayfs";
    case 0x2fc12fc1:
      return "zfs";
  }
  snprintf(text, sizeof text, "type 0x%lx", (unsigned long)fs.f_type);
  return text;
}

/* What follows "NAME...: " on the first such line of a file below /proc. */
static const char *proc_value(const char *path, const char *name) {
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

static void report_settings(void) {
  struct utsname u;
  uname(&u);
  double load[1] = {0};
  if (getloadavg(load, 1) < 1) load[0] = -1;
  printf("zkembed benchmark%s\n",
         run.quick ? " (QUICK: figures mean nothing)" : "");
  fputs("{\n", json);
  setting("zkembed", "%s", zke_version());
  setting("SQLite", "%s, %.20s", sqlite3_libversion(), sqlite3_sourceid());
  setting("compiler", "%s, optimised: %s", __VERSION__,
#ifdef __OPTIMIZE__
          "yes"
#else
          "no"
#endif
  );
  setting("kernel", "%s %s %s", u.sysname, u.release, u.machine);
  setting("CPU", "%s; this process on CPU %d, its peers on CPU %d",
          proc_value("/proc/cpuinfo", "model name"), run.cpu[0], run.cpu[1]);
  setting("load", "%.2f at the start", load[0]);
  setting("disk", "%s", file_system());
  setting("both sides", "WAL, page size %d, cache %d KiB, data %d bytes",
          RAW_PAGE_SIZE, RAW_CACHE_KIB, DATA_BYTES);
  setting("durability", "persistent: synchronous=FULL; the rest: NORMAL");
  setting("checkpoints", "raw: SQLite's own, each %d pages; engine: its own",
          RAW_CHECKPOINT_PAGES);
  setting("seed", "%u", seed);
}

/* ---- keys: the nodes that the two sides work on ----
 *
 * /gNNNN with a hundred children each, /ten with ten, /e for what comes and
 * goes, /d for durable creates. */

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

static void key_of(raw_key *k, const char *parent, const char *format,
                   unsigned number) {
  char name[32];
  snprintf(name, sizeof name, format, number);
  key_set(k, parent, name);
}

static unsigned random_below(pair *p, int limit) {
  p->state ^= p->state << 13;
  p->state ^= p->state >> 17;
  p->state ^= p->state << 5;
  return p->state % (unsigned)limit;
}

static void group_name(char *name, size_t size, unsigned group) {
  snprintf(name, size, "g%05u", group);
}

static void pick_node(pair *p, raw_key *k) {
  unsigned node = random_below(p, p->nodes);
  char parent[32] = "/";
  group_name(parent + 1, sizeof parent - 1, node / FAMILY);
  key_of(k, parent, "n%02u", node % FAMILY);
}

static void pick_group(pair *p, raw_key *k) {
  char name[32];
  group_name(name, sizeof name, random_below(p, p->nodes / FAMILY));
  key_set(k, "/", name);
}

static void pick_ten(pair *p, raw_key *k) {
  (void)p;
  key_set(k, "/", "ten");
}

static void pick_passing(pair *p, raw_key *k) {
  key_of(k, "/e", "n-%010u", p->counter++);
}

static void pick_durable(pair *p, raw_key *k) {
  key_of(k, "/d", "n-%010u", p->counter++);
}

/* ---- the operations, on either side ---- */

static void engine_get(pair *p, const raw_key *key) {
  char *bytes;
  int len;
  zke_stat stat;
  must(zke_get(p->z, key->path, NULL, NULL, &bytes, &len, &stat), "zke_get");
  if (len != DATA_BYTES) die("%s has %d bytes", key->path, len);
  zke_free(bytes);
}

static void raw_side_get(pair *p, const raw_key *key) {
  char bytes[DATA_BYTES];
  raw_stat stat;
  if (raw_get(p->r, key, bytes, &stat) != DATA_BYTES) die("%s", key->path);
}

static void engine_create(pair *p, const raw_key *key) {
  must(zke_create(p->z, key->path, data, DATA_BYTES, ZKE_OPEN_ACL,
                  ZKE_EPHEMERAL, NULL, NULL),
       "zke_create");
}

static void raw_side_create(pair *p, const raw_key *key) {
  raw_create(p->r, key, 1, true, data, DATA_BYTES);
}

static void engine_durable(pair *p, const raw_key *key) {
  must(zke_create(p->z, key->path, data, DATA_BYTES, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT, NULL, NULL),
       "zke_create");
}

static void raw_side_durable(pair *p, const raw_key *key) {
  raw_create(p->r, key, 1, false, data, DATA_BYTES);
}

static void engine_delete(pair *p, const raw_key *key) {
  must(zke_delete(p->z, key->path, -1), "zke_delete");
}

static void raw_side_delete(pair *p, const raw_key *key) {
  raw_delete(p->r, key);
}

static void engine_set(pair *p, const raw_key *key) {
  must(zke_set(p->z, key->path, data, DATA_BYTES, -1, NULL), "zke_set");
}

static void raw_side_set(pair *p, const raw_key *key) {
  raw_set(p->r, key, data, DATA_BYTES);
}

static void ignore(zke *z, int type, int state, const char *path,
                   void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

static void engine_watch(pair *p, const raw_key *key) {
  zke_stat stat;
  must(zke_exists(p->z, key->path, ignore, NULL, &stat), "zke_exists");
}

static void raw_side_watch(pair *p, const raw_key *key) {
  raw_watch(p->r, key, RAW_WATCH_KIND);
}

/* A random batch can name a node twice: the second finds no watch. */
static void engine_unwatch(pair *p, const raw_key *key) {
  int rc = zke_remove_all_watches(p->z, key->path, ZKE_WATCH_ANY);
  if (rc != ZKE_NOWATCHER) must(rc, "zke_remove_all_watches");
}

static void raw_side_unwatch(pair *p, const raw_key *key) {
  raw_unwatch(p->r, key);
}

static void engine_children(pair *p, const raw_key *key) {
  zke_strings *names;
  zke_stat stat;
  must(zke_children(p->z, key->path, NULL, NULL, &names, &stat),
       "zke_children");
  if (names->count < MULTI) die("%s has too few children", key->path);
  zke_free(names);
}

static void raw_side_children(pair *p, const raw_key *key) {
  char names[FAMILY * 8];
  raw_stat stat;
  if (raw_children(p->r, key, names, &stat) < MULTI) die("%s", key->path);
}

static void engine_multi(pair *p, const raw_key *key) {
  zke_op ops[MULTI];
  for (int i = 0; i < MULTI; i++) {
    zke_op_create(&ops[i], key[i].path, data, DATA_BYTES, ZKE_OPEN_ACL,
                  ZKE_EPHEMERAL);
  }
  must(zke_multi(p->z, ops, MULTI, NULL), "zke_multi");
}

static void raw_side_multi(pair *p, const raw_key *key) {
  raw_create(p->r, key, MULTI, true, data, DATA_BYTES);
}

static void engine_multi_undo(pair *p, const raw_key *key) {
  zke_op ops[MULTI];
  for (int i = 0; i < MULTI; i++) zke_op_delete(&ops[i], key[i].path, -1);
  must(zke_multi(p->z, ops, MULTI, NULL), "zke_multi");
}

static void raw_side_multi_undo(pair *p, const raw_key *key) {
  for (int i = 0; i < MULTI; i++) raw_delete(p->r, &key[i]);
}

/* ---- filling the databases ---- */

static void fill_engine_top(zke *z, const char *path) {
  must(zke_create(z, path, data, DATA_BYTES, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                  NULL),
       path);
}

/* A parent below / with count children: one transaction on either side. */
static void fill_family(zke *z, raw *r, const char *name, int count) {
  static raw_key key[FAMILY + 1];
  zke_op ops[FAMILY + 1];
  key_set(&key[0], "/", name);
  for (int i = 0; i < count; i++) {
    key_of(&key[i + 1], key[0].path, "n%02u", (unsigned)i);
  }
  for (int i = 0; i <= count; i++) {
    zke_op_create(&ops[i], key[i].path, data, DATA_BYTES, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
  }
  must(zke_multi(z, ops, count + 1, NULL), "zke_multi");
  raw_create(r, key, count + 1, false, data, DATA_BYTES);
}

static void fill(zke *z, raw *r, int nodes) {
  static const char *const tops[] = {"d", "e"};
  for (size_t i = 0; i < 2; i++) {
    raw_key key;
    key_set(&key, "/", tops[i]);
    fill_engine_top(z, key.path);
    raw_create(r, &key, 1, false, data, DATA_BYTES);
  }
  fill_family(z, r, "ten", 10);
  for (int group = 0; group < nodes / FAMILY; group++) {
    char name[32];
    group_name(name, sizeof name, (unsigned)group);
    fill_family(z, r, name, FAMILY);
  }
}

/* Filled without syncs, closed, and opened again with the defaults, so that
 * both sides start from a checkpointed file and a cold cache. */
static void pair_open(pair *p, int nodes) {
  char engine_file[3100], raw_file[3100], name[32];
  snprintf(name, sizeof name, "engine-%d.db", nodes);
  file_in(engine_file, sizeof engine_file, name);
  snprintf(name, sizeof name, "raw-%d.db", nodes);
  file_in(raw_file, sizeof raw_file, name);
  zke_options fast = {.size = sizeof fast, .durability = ZKE_DURABLE_NONE};
  zke *z;
  must(zke_open(engine_file, &fast, &z), "zke_open");
  raw *r = raw_open(raw_file);
  fill(z, r, nodes);
  must(zke_close(z), "zke_close");
  raw_close(r);
  *p = (pair){.nodes = nodes, .state = seed, .r = raw_open(raw_file)};
  must(zke_open(engine_file, NULL, &p->z), "zke_open");
}

static void pair_close(pair *p) {
  must(zke_close(p->z), "zke_close");
  raw_close(p->r);
}

/* ---- comparing ---- */

static const comparison comparisons[] = {
    {.name = "get",
     .target = 1.5,
     .batch = 200,
     .step = 1,
     .pick = pick_node,
     .timed = {engine_get, raw_side_get}},
    {.name = "ephemeral create",
     .target = 1.5,
     .batch = 50,
     .step = 1,
     .pick = pick_passing,
     .timed = {engine_create, raw_side_create},
     .after = {engine_delete, raw_side_delete}},
    {.name = "ephemeral delete",
     .target = 1.5,
     .batch = 50,
     .step = 1,
     .pick = pick_passing,
     .before = {engine_create, raw_side_create},
     .timed = {engine_delete, raw_side_delete}},
    {.name = "durable create",
     .target = 1.2,
     .batch = 4,
     .step = 1,
     .durable = true,
     .pick = pick_durable,
     .timed = {engine_durable, raw_side_durable}},
    {.name = "durable set",
     .batch = 4,
     .step = 1,
     .durable = true,
     .pick = pick_node,
     .timed = {engine_set, raw_side_set}},
    {.name = "watch",
     .batch = 50,
     .step = 1,
     .pick = pick_node,
     .timed = {engine_watch, raw_side_watch},
     .after = {engine_unwatch, raw_side_unwatch}},
    {.name = "children of 10",
     .batch = 50,
     .step = 1,
     .pick = pick_ten,
     .timed = {engine_children, raw_side_children}},
    {.name = "children of 100",
     .batch = 50,
     .step = 1,
     .pick = pick_group,
     .timed = {engine_children, raw_side_children}},
    {.name = "multi of 10 creates",
     .batch = 10 * MULTI,
     .step = MULTI,
     .pick = pick_passing,
     .timed = {engine_multi, raw_side_multi},
     .after = {engine_multi_undo, raw_side_multi_undo}},
};
enum { COMPARISONS = sizeof comparisons / sizeof comparisons[0] };

static void each(pair *p, const comparison *c, operation op) {
  if (!op) return;
  for (int i = 0; i < c->batch; i += c->step) op(p, &p->key[i]);
}

/* One batch of a side (0 the engine, 1 raw): microseconds an operation. */
static double sample(pair *p, const comparison *c, int side) {
  each(p, c, c->before[side]);
  int64_t start = now_ns();
  each(p, c, c->timed[side]);
  int64_t took = now_ns() - start;
  each(p, c, c->after[side]);
  return (double)took / 1000 / (c->batch / c->step);
}

void compare(pair *p, const comparison *c, const char *name) {
  int rounds = run.quick ? 10 : ROUNDS;
  int warm = run.quick ? 1 : 10;
  int64_t end = now_ns() + BUDGET_MS * INT64_C(1000000);
  samples side[2] = {{0}, {0}}, ratio = {0};
  raw_durable(p->r, c->durable);
  for (int round = -warm; round < rounds; round++) {
    double took[2];
    for (int i = 0; i < c->batch; i++) c->pick(p, &p->key[i]);
    for (int turn = 0; turn < 2; turn++) {
      int which = (round + warm + turn) % 2;
      took[which] = sample(p, c, which);
    }
    if (round < 0) continue;
    add(&side[0], took[0]);
    add(&side[1], took[1]);
    add(&ratio, took[0] / took[1]);
    if (now_ns() > end && ratio.count >= 20) break;
  }
  report_ratio(name, &side[0], &side[1], &ratio, c->target);
  forget(&side[0]);
  forget(&side[1]);
  forget(&ratio);
}

static void compare_recipes(pair *p) {
  recipes_prepare(p);
  for (int i = 0; i < recipe_comparison_count; i++) {
    compare(p, &recipe_comparisons[i], recipe_comparisons[i].name);
  }
  recipes_finish(p);
}

static void compare_all(void) {
  static pair p;
  int sizes[] = {1000, run.quick ? 10000 : 100000, 1000000};
  printf("\n%-22s %8s %16s %8s %16s %5s %11s %5s %6s\n", "", "engine",
         "p10-p90", "raw", "p10-p90", "ratio", "p10-p90", "mean", "target");
  fputs("  \"ratios\": [\n", json);
  json_gap = "";
  for (int size = 0; size < (run.large ? 3 : 2); size++) {
    char name[40];
    pair_open(&p, sizes[size]);
    snprintf(name, sizeof name, "get of %d", sizes[size]);
    compare(&p, &comparisons[0], name);
    for (int i = 1; size == 0 && i < COMPARISONS; i++) {
      compare(&p, &comparisons[i], comparisons[i].name);
    }
    if (size == 0) compare_recipes(&p);
    pair_close(&p);
  }
  recipes_compare_hand_over();
  fputs("\n  ],\n", json);
}

static const comparison *find_comparison(const char *name) {
  for (int i = 0; i < COMPARISONS; i++) {
    if (strcmp(comparisons[i].name, name) == 0) return &comparisons[i];
  }
  for (int i = 0; i < recipe_comparison_count; i++) {
    if (strcmp(recipe_comparisons[i].name, name) == 0) {
      return &recipe_comparisons[i];
    }
  }
  die("no operation named %s", name);
}

/* One operation of one side, over and over: what a profiler is pointed at.
 * Runs with COUNT 0 and COUNT n differ by n operations (and the untimed ones
 * that prepare and undo them). */
static int loop(const char *name, const char *side, int count) {
  static pair p;
  const comparison *c = find_comparison(name);
  pair_open(&p, 1000);
  recipes_prepare(&p);
  raw_durable(p.r, c->durable);
  double sum = 0;
  int done = 0;
  for (; done < count; done += c->batch / c->step) {
    for (int k = 0; k < c->batch; k++) c->pick(&p, &p.key[k]);
    sum += sample(&p, c, strcmp(side, "raw") == 0) * (c->batch / c->step);
  }
  if (done) printf("%s, %s: %.2f us\n", name, side, sum / done);
  recipes_finish(&p);
  pair_close(&p);
  return 0;
}

/* ---- other processes: bench --role NAME PARENT CPU FILE PATH ----
 *
 * Each writes 8-byte words to its standard output: 0 when it is ready and
 * about to sleep, and the time when it was woken. */

void say(int64_t word) {
  if (write(STDOUT_FILENO, &word, sizeof word) != sizeof word) exit(1);
}

void await_go(void) {
  char byte;
  if (read(STDIN_FILENO, &byte, 1) != 1) exit(1);
}

static void stamp(zke *z, int type, int state, const char *path,
                  void *context) {
  int64_t *at = context;
  *at = now_ns();
  (void)z, (void)type, (void)state, (void)path;
}

static void role_watch(const char *file, const char *path) {
  zke *z;
  must(zke_open(file, NULL, &z), "zke_open");
  for (;;) {
    int64_t at = 0;
    int rc = zke_exists(z, path, stamp, &at, NULL);
    if (rc != ZKE_NONODE) must(rc, "zke_exists");
    say(0);
    while (!at) must(zke_wait(z, ZKE_FOREVER), "zke_wait");
    say(at);
  }
}

static void role_own(const char *file, const char *path) {
  zke *z;
  must(zke_open(file, NULL, &z), "zke_open");
  must(zke_create(z, path, data, DATA_BYTES, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                  NULL),
       "zke_create");
  say(0);
  for (;;) pause();
}

/* The bare reader: woken by a byte, or by the writer's end. */
static void role_read(const char *fifo, const char *path) {
  (void)path;
  for (;;) {
    int fd = open(fifo, O_RDONLY | O_CLOEXEC);
    char byte;
    ssize_t got;
    do {
      say(0);
      got = read(fd, &byte, 1);
      say(now_ns());
    } while (got == 1);
    close(fd);
  }
}

static void role_hold(const char *fifo, const char *path) {
  (void)path;
  if (open(fifo, O_WRONLY | O_CLOEXEC) < 0) exit(1);
  say(0);
  for (;;) pause();
}

static int role(char **argv) {
  static const struct {
    const char *name;
    void (*run)(const char *file, const char *path);
  } roles[] = {{"watch", role_watch},     {"own", role_own},
               {"read", role_read},       {"hold", role_hold},
               {"contend", role_contend}, {"raw-contend", role_raw_contend}};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != (pid_t)atol(argv[3])) return 1; /* it died before that */
  pin(atoi(argv[4]));
  for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
    if (strcmp(argv[2], roles[i].name) == 0) roles[i].run(argv[5], argv[6]);
  }
  return 1;
}

peer peer_start(const char *name, int cpu, const char *file, const char *path) {
  char us[24], where[24];
  char program[] = "/proc/self/exe", flag[] = "--role";
  snprintf(us, sizeof us, "%ld", (long)getpid());
  snprintf(where, sizeof where, "%d", cpu);
  char *argv[] = {program, flag,         strdup(name), us,
                  where,   strdup(file), strdup(path), NULL};
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) {
    die("pipe: %s", strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  peer p = {.in = in[1], .out = out[0]};
  int rc = posix_spawn(&p.pid, program, &actions, NULL, argv, environ);
  if (rc) die("cannot start a process: %s", strerror(rc));
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  free(argv[2]);
  free(argv[5]);
  free(argv[6]);
  return p;
}

void peer_go(peer *p) {
  if (write(p->in, "", 1) != 1) die("a process does not listen");
}

int64_t peer_word(peer *p) {
  int64_t word;
  if (read(p->out, &word, sizeof word) != sizeof word) die("a process ended");
  return word;
}

static void peer_ready(peer *p) {
  if (peer_word(p) != 0) die("a process is out of step");
}

static void peer_reap(peer *p) {
  waitpid(p->pid, NULL, 0);
  close(p->in);
  close(p->out);
}

void peer_kill(peer *p) {
  kill(p->pid, SIGKILL);
  peer_reap(p);
}

/* ---- wake-ups ---- */

static void bare_wakeups(const char *name, int cpu, int64_t pause_us) {
  char fifo[3100];
  file_in(fifo, sizeof fifo, "fifo");
  if (mkfifo(fifo, 0600)) die("mkfifo: %s", strerror(errno));
  peer reader = peer_start("read", cpu, fifo, "");
  int fd = open(fifo, O_WRONLY | O_CLOEXEC);
  samples s = {0};
  for (int i = run.quick ? 20 : 500; i > 0; i--) {
    peer_ready(&reader);
    if (pause_us) sleep_us(pause_us);
    int64_t start = now_ns();
    if (write(fd, "", 1) != 1) die("write: %s", strerror(errno));
    add(&s, (double)(peer_word(&reader) - start) / 1000);
  }
  peer_kill(&reader);
  close(fd);
  unlink(fifo);
  report_time(name, "us", &s, 0);
  forget(&s);
}

/* From the call of zke_set() to the callback in a process asleep in
 * zke_wait(). */
static void deliveries(const char *name, const char *file, int cpu, int mode) {
  zke *z;
  must(zke_open(file, NULL, &z), "zke_open");
  must(zke_create(z, "/watched", "", 0, ZKE_OPEN_ACL, mode, NULL, NULL),
       "zke_create");
  peer waiter = peer_start("watch", cpu, file, "/watched");
  samples s = {0};
  for (int i = run.quick ? 20 : 500; i > 0; i--) {
    peer_ready(&waiter);
    sleep_us(PAUSE_US);
    int64_t start = now_ns();
    must(zke_set(z, "/watched", data, DATA_BYTES, -1, NULL), "zke_set");
    add(&s, (double)(peer_word(&waiter) - start) / 1000);
  }
  peer_kill(&waiter);
  must(zke_delete(z, "/watched", -1), "zke_delete");
  must(zke_close(z), "zke_close");
  report_time(name, "us", &s, 0);
  forget(&s);
}

/* ---- deaths ---- */

double death(peer *waiter, peer *victim) {
  peer_ready(waiter);
  sleep_us(PAUSE_US);
  int64_t start = now_ns();
  kill(victim->pid, SIGKILL);
  double took = (double)(peer_word(waiter) - start) / 1000;
  peer_reap(victim);
  return took;
}

static void bare_deaths(void) {
  char fifo[3100];
  file_in(fifo, sizeof fifo, "fifo");
  if (mkfifo(fifo, 0600)) die("mkfifo: %s", strerror(errno));
  peer reader = peer_start("read", run.cpu[1], fifo, "");
  samples s = {0};
  for (int i = run.quick ? 5 : 100; i > 0; i--) {
    peer holder = peer_start("hold", run.cpu[0], fifo, "");
    peer_ready(&holder);
    add(&s, death(&reader, &holder));
  }
  peer_kill(&reader);
  unlink(fifo);
  report_time("bare: kill -9 to the hang-up of a FIFO", "us", &s, 0);
  forget(&s);
}

static void deaths(const char *file) {
  peer waiter = peer_start("watch", run.cpu[1], file, "/owned");
  samples s = {0};
  for (int i = run.quick ? 5 : 100; i > 0; i--) {
    peer_ready(&waiter);
    peer owner = peer_start("own", run.cpu[0], file, "/owned");
    peer_ready(&owner);
    peer_word(&waiter); /* it was created */
    add(&s, death(&waiter, &owner));
  }
  peer_kill(&waiter);
  report_time("kill -9 of an owner to the waiter's callback", "us", &s, 1000);
  forget(&s);
}

/* ---- idling ---- */

static double wakeups(const peer *p) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/status", (long)p->pid);
  return atof(proc_value(path, "voluntary_ctxt_switches"));
}

/* Three processes wait for something that does not come; one of them has the
 * duty. */
static void idling(const char *file) {
  peer waiter[3];
  samples s = {0};
  double seconds = run.quick ? 1 : 10, before[3];
  for (int i = 0; i < 3; i++) {
    waiter[i] = peer_start("watch", run.cpu[1], file, "/quiet");
    peer_ready(&waiter[i]);
  }
  sleep_us(1500000); /* until somebody has taken the duty */
  for (int i = 0; i < 3; i++) before[i] = wakeups(&waiter[i]);
  sleep_us((int64_t)(seconds * 1e6));
  for (int i = 0; i < 3; i++) {
    add(&s, (wakeups(&waiter[i]) - before[i]) / seconds);
  }
  for (int i = 0; i < 3; i++) peer_kill(&waiter[i]);
  sort(&s);
  double most = s.at[2];
  report_time("wake-ups of an idle waiter (three waiting)", "1/s", &s, 0);
  forget(&s);
  add(&s, most);
  report_time("the same, of the one with the duty", "1/s", &s, 5);
  forget(&s);
}

/* ---- opening ---- */

static void openings(const char *name, const char *file, int count,
                     double target) {
  samples s = {0};
  for (int i = run.quick ? 5 : count; i > 0; i--) {
    zke *z;
    int64_t start = now_ns();
    must(zke_open(file, NULL, &z), "zke_open");
    must(zke_close(z), "zke_close");
    add(&s, (double)(now_ns() - start) / 1000);
  }
  report_time(name, "us", &s, target);
  forget(&s);
}

static void raw_openings(const char *name) {
  char file[3100];
  file_in(file, sizeof file, "raw-open.db");
  samples s = {0};
  raw_close(raw_open(file));
  for (int i = run.quick ? 5 : 100; i > 0; i--) {
    int64_t start = now_ns();
    raw_close(raw_open(file));
    add(&s, (double)(now_ns() - start) / 1000);
  }
  report_time(name, "us", &s, 0);
  forget(&s);
}

static void all_openings(const char *file) {
  zke *z;
  openings("open + close :memory:", ":memory:", 500, 1000);
  openings("open + close a file, nobody else has it", file, 100, 0);
  must(zke_open(file, NULL, &z), "zke_open");
  openings("open + close a file, another handle has it", file, 100, 0);
  must(zke_close(z), "zke_close");
  raw_openings("raw: open + close a file");
}

static void time_all(void) {
  char file[3100];
  file_in(file, sizeof file, "latency.db");
  printf("\n%-46s %9s %19s %9s\n", "", "median", "p10-p90", "p99");
  fputs("  \"times\": [\n", json);
  json_gap = "";
  bare_wakeups("bare: FIFO byte, back to back", run.cpu[1], 0);
  bare_wakeups("bare: FIFO byte to a sleeper", run.cpu[1], PAUSE_US);
  bare_wakeups("bare: FIFO byte to a sleeper, same CPU", run.cpu[0], PAUSE_US);
  deliveries("set of an ephemeral to the watcher's callback", file, run.cpu[1],
             ZKE_EPHEMERAL);
  deliveries("the same, same CPU", file, run.cpu[0], ZKE_EPHEMERAL);
  deliveries("set of a persistent to the callback (a sync)", file, run.cpu[1],
             ZKE_PERSISTENT);
  bare_deaths();
  deaths(file);
  recipes_time();
  idling(file);
  all_openings(file);
  fputs("\n  ]\n}\n", json);
}

int main(int argc, char **argv) {
  memset(data, 'x', sizeof data);
  if (argc == 7 && strcmp(argv[1], "--role") == 0) return role(argv);
  run.quick = asked("QUICK");
  run.large = asked("LARGE") && !run.quick;
  run.strict = asked("STRICT") && !run.quick;
  choose_cpus();
  pin(run.cpu[0]);
  make_directory(argv[0]);
  if (argc == 5 && strcmp(argv[1], "--loop") == 0) {
    return loop(argv[2], argv[3], atoi(argv[4]));
  }
  json = fopen(run.json, "w");
  if (!json) die("cannot write %s: %s", run.json, strerror(errno));
  report_settings();
  compare_all();
  time_all();
  fclose(json);
  if (!run.quick) printf("\n%d of the targets missed", run.missed);
  printf("\nfigures in %s\n", run.json);
  return run.strict && run.missed ? 1 : 0;
}
