/* report.c - the table for people, bench.json for programs, the targets
 *
 * bench.json has one figure a line, so awk can read it, too.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

#include "zkembed.h"

/* The report of some samples. */
typedef struct figure {
  char part[16], name[48], subject[24], unit[12];
  int param; /* nodes, processes, ...; 0: none */
  int count;
  double q10, q25, q50, q75, q90, q99, most, mean;
  double ratio[3]; /* to raw: quartile of rounds, of medians, quartile; or 0 */
} figure;

static FILE *json;
static const char *gap = ""; /* before the next line of a JSON list */
static const char *part = "";
static figure *figures;
static int figure_count, figure_room;

/* ---- settings ---- */

static void json_string(const char *value) {
  fputc('"', json);
  for (; *value; value++) {
    if (*value == '"' || *value == '\\') fputc('\\', json);
    if ((unsigned char)*value >= ' ') fputc(*value, json);
  }
  fputc('"', json);
}

void report_setting(const char *name, const char *format, ...) {
  char text[1000];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  printf("  %-12s %s\n", name, text);
  fputs(gap, json);
  json_string(name);
  fputs(": ", json);
  json_string(text);
  gap = ",\n  ";
}

static const char *file_system(void) {
  static const struct {
    unsigned long type;
    const char *name;
  } known[] = {{0xef53, "ext4"},
               {0x01021994, "tmpfs (syncs cost nothing here)"},
               {0x58465342, "xfs"},
               {0x9123683e, "btrfs"},
               {0x794c7630, "overlayfs"},
               {0x2fc12fc1, "zfs"}};
  static char text[32];
  struct statfs fs;
  if (statfs(run.directory, &fs)) return "unknown";
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (known[i].type == (unsigned long)fs.f_type) return known[i].name;
  }
  snprintf(text, sizeof text, "type 0x%lx", (unsigned long)fs.f_type);
  return text;
}

static void describe_machine(void) {
  struct utsname u;
  double load[1] = {0};
  uname(&u);
  if (getloadavg(load, 1) < 1) load[0] = -1;
  report_setting("kernel", "%s %s %s", u.sysname, u.release, u.machine);
  report_setting("CPU", "%s", proc_value("/proc/cpuinfo", "model name"));
  report_setting("pinned",
                 "this process to CPU %d; others to CPU %d, or in turns to "
                 "both where there are several; servers to none",
                 run.cpu[0], run.cpu[1]);
  report_setting("load", "%.2f at the start", load[0]);
  report_setting("disk", "%s", file_system());
}

void report_begin(void) {
  char path[PATH_BYTES];
  snprintf(path, sizeof path, "%s/bench.json", run.home);
  json = fopen(path, "w");
  if (!json) die("cannot write %s: %s", path, strerror(errno));
  printf("zkembed's benchmark%s\n",
         run.quick ? " (QUICK: its figures mean nothing)" : "");
  fputs("{\"settings\": {\n  ", json);
  report_setting("quick", "%s", run.quick ? "yes" : "no");
  report_setting("SQLite", "%s, %.20s", sqlite3_libversion(),
                 sqlite3_sourceid());
  report_setting("compiler", "%s, optimised: %s", __VERSION__,
#ifdef __OPTIMIZE__
                 "yes"
#else
                 "no"
#endif
  );
  describe_machine();
  report_setting("both sides", "WAL, pages of %d bytes, cache %d KiB, data %d",
                 RAW_PAGE_SIZE, RAW_CACHE_KIB, DATA_BYTES);
  report_setting("durability", "persistent: synchronous=FULL; else NORMAL");
  report_setting("checkpoints", "raw: SQLite's own, each %d pages",
                 RAW_CHECKPOINT_PAGES);
  subjects_describe();
  fputs("},\n\"figures\": [\n", json);
  gap = "";
}

/* ---- figures ---- */

void report_part(const char *name) {
  part = name;
  printf("\n%-34s %-11s %9s %19s %9s %9s  %-4s %6s %s\n", name, "", "median",
         "p25-p75", "p90", "p99", "", "/raw", "  p25-p75");
}

static void print_figure(const figure *f) {
  char name[64];
  snprintf(name, sizeof name, f->param ? "%s, %d" : "%s", f->name, f->param);
  printf("%-34s %-11s %9.2f ", name, f->subject, f->q50);
  if (f->count > 1) {
    printf("%9.2f-%-9.2f %9.2f %9.2f", f->q25, f->q75, f->q90, f->q99);
  } else {
    printf("%39s", "");
  }
  printf("  %-4s", f->unit);
  if (f->ratio[1] > 0) {
    printf(" %6.2f %5.2f-%.2f", f->ratio[1], f->ratio[0], f->ratio[2]);
  }
  putchar('\n');
  fflush(stdout);
}

static void json_figure(const figure *f) {
  fprintf(json,
          "%s{\"part\": \"%s\", \"name\": \"%s\", \"param\": %d, "
          "\"subject\": \"%s\", \"unit\": \"%s\", \"count\": %d, "
          "\"p10\": %.3f, \"p25\": %.3f, \"median\": %.3f, \"p75\": %.3f, "
          "\"p90\": %.3f, \"p99\": %.3f, \"max\": %.3f, \"mean\": %.3f",
          gap, f->part, f->name, f->param, f->subject, f->unit, f->count,
          f->q10, f->q25, f->q50, f->q75, f->q90, f->q99, f->most, f->mean);
  if (f->ratio[1] > 0) {
    fprintf(json, ", \"to_raw\": [%.3f, %.3f, %.3f]", f->ratio[0], f->ratio[1],
            f->ratio[2]);
  }
  fputs("}", json);
  fflush(json);
  gap = ",\n";
}

static figure *new_figure(void) {
  if (figure_count == figure_room) {
    figure_room = figure_room ? 2 * figure_room : 256;
    figures = realloc(figures, (size_t)figure_room * sizeof *figures);
    if (!figures) die("out of memory");
  }
  return &figures[figure_count++];
}

void report(const char *name, int param, const char *who, const char *unit,
            samples *s, samples *floor, samples *ratio) {
  if (!s->count) return;
  sort(s);
  figure *f = new_figure();
  *f = (figure){.param = param,
                .count = s->count,
                .q10 = quantile(s, 0.1),
                .q25 = quantile(s, 0.25),
                .q50 = quantile(s, 0.5),
                .q75 = quantile(s, 0.75),
                .q90 = quantile(s, 0.9),
                .q99 = quantile(s, 0.99),
                .most = quantile(s, 1),
                .mean = s->sum / s->count};
  snprintf(f->part, sizeof f->part, "%s", part);
  snprintf(f->name, sizeof f->name, "%s", name);
  snprintf(f->subject, sizeof f->subject, "%s", who);
  snprintf(f->unit, sizeof f->unit, "%s", unit);
  if (ratio && ratio->count) {
    sort(floor);
    sort(ratio);
    f->ratio[0] = quantile(ratio, 0.25);
    f->ratio[1] = f->q50 / quantile(floor, 0.5);
    f->ratio[2] = quantile(ratio, 0.75);
  }
  print_figure(f);
  json_figure(f);
}

void report_one(const char *name, int param, const char *who, const char *unit,
                double value) {
  samples s = {0};
  add(&s, value);
  report(name, param, who, unit, &s, NULL, NULL);
  forget(&s);
}

/* The last such figure; of a part, or of any for NULL. */
static const figure *find(const char *name, int param, const char *who,
                          const char *of) {
  for (int i = figure_count - 1; i >= 0; i--) {
    const figure *f = &figures[i];
    if (f->param == param && strcmp(f->name, name) == 0 &&
        strcmp(f->subject, who) == 0 && (!of || strcmp(f->part, of) == 0))
      return f;
  }
  return NULL;
}

/* ---- targets ----
 *
 * They compare medians of one run: that of what, or its ratio to that of
 * beside.  For peers the ratio is inverted: how many times slower they are. */

typedef struct target {
  const char *name;
  int param;
  const char *what, *beside; /* subjects; beside may be NULL */
  double limit;
  bool at_least;
} target;

#define ME "zkembed"
#define AT_EACH_SIZE(name, limit)                \
  {name, 1000, ME, "raw", limit, false},         \
      {name, 10000, ME, "raw", limit, false},    \
      {name, 100000, ME, "raw", limit, false}, { \
    name, 1000000, ME, "raw", limit, false       \
  }

#define AT_EACH_LINE(name, limit)                                        \
  {name, 8, ME, NULL, limit, false}, {name, 50, ME, NULL, limit, false}, \
      {name, 100, ME, NULL, limit, false}, {                             \
    name, 200, ME, NULL, limit, false                                    \
  }

#define AT_EACH_CLIENTS(name, limit)                                \
  {name, 1, "served", "zookeeper", limit, true},                    \
      {name, 8, "served", "zookeeper", limit, true},                \
      {name, 64, "served", "zookeeper", limit, true},               \
      {name ", 64 ahead", 1, "served", "zookeeper", limit, true},   \
      {name ", 64 ahead", 8, "served", "zookeeper", limit, true}, { \
    name ", 64 ahead", 64, "served", "zookeeper", limit, true       \
  }

static const target targets[] = {
    AT_EACH_SIZE("get", 1.3),
    AT_EACH_SIZE("ephemeral create", 1.3),
    AT_EACH_SIZE("ephemeral delete", 1.3),
    AT_EACH_SIZE("watch registration", 1.3),
    AT_EACH_SIZE("durable create", 1.1),
    {"lock + unlock", 1000, ME, "raw", 1.4, false},
    {"hand-over", 16, ME, "raw", 1.4, false},
    {"watch delivery", 0, ME, "raw", 1.4, false},
    {"holder's death to next", 16, ME, "raw", 1.4, false},
    {"holder's death to next", 16, ME, NULL, 1000, false},
    {"wake-ups a release", 16, ME, NULL, 1, false},
    {"get beside a writer", 0, ME, "raw", 1.3, false},
    {"get", 1000, "zookeeper", ME, 80, true},
    {"ephemeral create", 1000, "zookeeper", ME, 40, true},
    {"ephemeral delete", 1000, "zookeeper", ME, 40, true},
    {"durable create", 1000, "zookeeper", ME, 3, true},
    {"lock + unlock", 1000, "zookeeper", ME, 50, true},
    AT_EACH_CLIENTS("served get", 3),
    AT_EACH_CLIENTS("served ephemeral", 3),
    {"served create, 64 ahead", 64, "served", "zookeeper", 1, true},
    {"served set, 64 ahead", 64, "served", "zookeeper", 1, true},
    {"start to first reply", 0, "served", NULL, 20, false},
    {"lock + unlock", 1000, "etcd", ME, 50, true},
    {"lock + unlock", 1000, "redis", ME, 4, true},
    {"wake-ups of the busiest", 1, ME, NULL, 5, false},
    {"CPU of all", 1000, ME, NULL, 5, false},
    {"get, to 10 sessions", 10000, ME, NULL, 1.5, false},
    {"create, to 10 sessions", 10000, ME, NULL, 1.5, false},
    {"open, to 10 sessions", 10000, ME, NULL, 1.5, false},
    {"CPU of all, waiting", 10000, ME, NULL, 20, false},
    AT_EACH_LINE("writers, 10 ms, to one alone", 1.5),
    AT_EACH_LINE("writers, to mean turns", 1.5),
    AT_EACH_LINE("writers, longest in turns each", 1.5),
    {"writers, 10 ms, too late", 200, ME, NULL, 0, false},
    {"CPU of a line", 200, ME, NULL, 2, false},
    {"a stopped first, longest", 8, ME, NULL, 100, false},
    {"history, to without", 1000, ME, NULL, 1.25, false},
    {"library's text", 0, ME, NULL, 200, false},
    {"store with a session", 0, ME, NULL, 400, false},
    {"further session", 0, ME, NULL, 16, false},
};

/* A target's value, with both sides from one part; -1: not measured. */
static double target_value(const target *t) {
  const figure *what = find(t->name, t->param, t->what, NULL);
  if (!what) return -1;
  if (!t->beside) return what->q50;
  const figure *beside = find(t->name, t->param, t->beside, what->part);
  return beside && beside->q50 > 0 ? what->q50 / beside->q50 : -1;
}

static const char *verdict(const target *t, double value) {
  if (value < 0) return "not measured";
  return (t->at_least ? value >= t->limit : value <= t->limit) ? "met"
                                                               : "MISSED";
}

/* The value if our side were raw, that is, what plain SQL reaches; -1: not
 * measured, or not wanted. */
static double target_of_raw(const target *t) {
  target raws = *t;
  raws.beside = "raw";
  return t->at_least ? target_value(&raws) : -1;
}

/* With ONLY, unmeasured parts were not asked for. */
static void report_target(const target *t) {
  char text[120], figure_text[32] = "", raw_text[32] = "";
  const char *only = getenv("ONLY");
  double value = target_value(t), of_raw = target_of_raw(t);
  if (value < 0 && only && *only) return;
  snprintf(text, sizeof text, t->param ? "%s, %d: %s%s%s" : "%s%.0d: %s%s%s",
           t->name, t->param, t->what, t->beside ? " / " : "",
           t->beside ? t->beside : "");
  if (value >= 0) snprintf(figure_text, sizeof figure_text, "%.2f", value);
  if (of_raw >= 0) {
    snprintf(raw_text, sizeof raw_text, ", raw %.2f", of_raw);
  }
  printf("  %-52s %s %7.4g  %10s  %s%s\n", text,
         t->at_least ? ">=" : "<=", t->limit, figure_text, verdict(t, value),
         raw_text);
  fprintf(json,
          "%s{\"target\": \"%s\", \"at_least\": %s, \"limit\": %.4g, "
          "\"value\": %.3f, \"verdict\": \"%s\"}",
          gap, text, t->at_least ? "true" : "false", t->limit, value,
          verdict(t, value));
  gap = ",\n";
}

void report_end(void) {
  printf("\nTargets: medians of this run\n");
  fputs("\n],\n\"targets\": [\n", json);
  gap = "";
  for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
    report_target(&targets[i]);
  }
  fputs("\n]}\n", json);
  fclose(json);
  printf("\nfigures in %s/bench.json\n", run.home);
}
