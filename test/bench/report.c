/* report.c - the table for people, bench.json for programs
 *
 * bench.json has one figure a line, so awk can read it, too.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
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
  const char *name, *subject, *unit;
  int param; /* nodes, processes, ...; 0: none */
  int count;
  double q10, q25, q50, q75, q90, q99, most, mean;
  double ratio[3]; /* to raw: quartile of rounds, of medians, quartile; or 0 */
} figure;

static FILE *json;
static const char *gap = ""; /* before the next line of a JSON list */
static const char *part = "";

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
          gap, part, f->name, f->param, f->subject, f->unit, f->count, f->q10,
          f->q25, f->q50, f->q75, f->q90, f->q99, f->most, f->mean);
  if (f->ratio[1] > 0) {
    fprintf(json, ", \"to_raw\": [%.3f, %.3f, %.3f]", f->ratio[0], f->ratio[1],
            f->ratio[2]);
  }
  fputs("}", json);
  fflush(json);
  gap = ",\n";
}

void report(const char *name, int param, const char *who, const char *unit,
            samples *s, samples *floor, samples *ratio) {
  if (!s->count) return;
  sort(s);
  figure f = {.name = name,
              .subject = who,
              .unit = unit,
              .param = param,
              .count = s->count,
              .q10 = quantile(s, 0.1),
              .q25 = quantile(s, 0.25),
              .q50 = quantile(s, 0.5),
              .q75 = quantile(s, 0.75),
              .q90 = quantile(s, 0.9),
              .q99 = quantile(s, 0.99),
              .most = quantile(s, 1),
              .mean = s->sum / s->count};
  if (ratio && ratio->count) {
    sort(floor);
    sort(ratio);
    f.ratio[0] = quantile(ratio, 0.25);
    f.ratio[1] = f.q50 / quantile(floor, 0.5);
    f.ratio[2] = quantile(ratio, 0.75);
  }
  print_figure(&f);
  json_figure(&f);
}

void report_one(const char *name, int param, const char *who, const char *unit,
                double value) {
  samples s = {0};
  add(&s, value);
  report(name, param, who, unit, &s, NULL, NULL);
  forget(&s);
}

void report_end(void) {
  fputs("\n]}\n", json);
  fclose(json);
  printf("\nfigures in %s/bench.json\n", run.home);
}
