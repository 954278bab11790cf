/* main.c - zke_lab_main(): a test of the laboratory as a program */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab.h"

typedef struct words {
  const char *replay, *picture;
  bool help;
} words;

static const char usage[] =
    "usage: %s [OPTION]...\n"
    "  --seconds N          search for so much processor time\n"
    "  --seed N             of the choices\n"
    "  --strategy NAME      random, pct, states or depth; again for another\n"
    "  --replay SCHEDULE    run one schedule, and draw it\n"
    "  --picture FILE       draw what was found; SVG where FILE ends in .svg\n"
    "  --help               this\n";

static bool take_strategy(zke_lab *lab, const char *name, bool *first) {
  static const struct {
    const char *name;
    int strategy;
  } all[] = {{"random", ZKE_LAB_RANDOM},
             {"pct", ZKE_LAB_PCT},
             {"states", ZKE_LAB_STATES},
             {"depth", ZKE_LAB_DEPTH}};
  if (*first) lab->options.strategies = 0;
  *first = false;
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
    if (strcmp(all[i].name, name) != 0) continue;
    lab->options.strategies |= all[i].strategy;
    return true;
  }
  return false;
}

static bool take_number(const char *text, double most, double *out) {
  char *end;
  *out = strtod(text, &end);
  return *text && !*end && *out >= 0 && *out <= most;
}

/* One word with its value; false: it is wrong. */
static bool take_word(zke_lab *lab, words *w, const char *word,
                      const char *value, bool *first) {
  double number;
  if (strcmp(word, "--replay") == 0) {
    w->replay = value;
  } else if (strcmp(word, "--picture") == 0) {
    w->picture = value;
  } else if (strcmp(word, "--strategy") == 0) {
    return take_strategy(lab, value, first);
  } else if (strcmp(word, "--seconds") == 0) {
    if (!take_number(value, 1e6, &number)) return false;
    lab->options.time_ms = (int64_t)(number * 1000);
  } else if (strcmp(word, "--seed") == 0) {
    if (!take_number(value, 1e15, &number)) return false;
    lab->options.seed = (uint64_t)number;
  } else {
    return false;
  }
  return true;
}

static bool take_words(zke_lab *lab, int argc, char **argv, words *w) {
  bool first = true;
  for (int i = 1; i < argc; i += 2) {
    if (strcmp(argv[i], "--help") == 0) {
      w->help = true;
      return true;
    }
    if (i + 1 < argc && take_word(lab, w, argv[i], argv[i + 1], &first))
      continue;
    fprintf(stderr, "%s: %s: unknown, or without a value that it can have\n",
            argv[0], argv[i]);
    return false;
  }
  return true;
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* Why a search that has found nothing has ended. */
static void tell_end(const zke_lab *lab, const zke_lab_result *r) {
  const zke_lab_options *o = &lab->options;
  if (r->entries == 0) printf("# nobody has entered a section\n");
  if (r->unnamed)
    printf(
        "# the static variable %s changes: name it by zke_lab_state(), or "
        "states\n# may be taken for equal that differ in it\n",
        r->unnamed);
  if (r->exhausted) return;
  if (o->schedules && r->schedules >= o->schedules)
    printf("# stopped after %lld schedule%s\n", (long long)r->schedules,
           plural(r->schedules));
  else
    printf("# stopped after %g s; --seconds N goes on\n",
           (double)o->time_ms / 1000);
}

/* Comments of the Test Anything Protocol. */
static void tell_result(const zke_lab *lab, const zke_lab_result *r,
                        bool is_replay) {
  printf("# %lld schedule%s, %lld call%s, %lld state%s%s\n",
         (long long)r->schedules, plural(r->schedules), (long long)r->calls,
         plural(r->calls), (long long)r->states, plural(r->states),
         r->exhausted ? ": all there are" : "");
  if (!r->found && !is_replay) tell_end(lab, r);
  if (r->doubts)
    printf("# %lld schedule%s failed, and not again when replayed\n",
           (long long)r->doubts, plural(r->doubts));
  if (r->stale)
    printf(
        "# the schedule is stale: the program does not do what it did when "
        "this was found\n");
  if (!r->found) return;
  printf("# %s\n# --replay %s\n", r->why, r->schedule);
}

static int draw(zke_lab *lab, const char *schedule, const char *file) {
  char copy[2 * LAB_SCHEDULE];
  snprintf(copy, sizeof copy, "%s", schedule);
  return zke_lab_picture(lab, copy, file);
}

int zke_lab_main(zke_lab *lab, int argc, char **argv) {
  words w = {NULL, NULL, false};
  zke_lab_result r;
  if (!lab || !take_words(lab, argc, argv, &w)) return 2;
  if (w.help) return printf(usage, argv[0]) < 0 ? 2 : 0;
  int rc = w.replay ? zke_lab_replay(lab, w.replay, &r) : zke_lab_run(lab, &r);
  if (rc == ZKE_OK) {
    const char *name = strrchr(argv[0], '/');
    printf("1..1\n%sok 1 - %s\n", r.found || r.stale ? "not " : "",
           name ? name + 1 : argv[0]);
    tell_result(lab, &r, w.replay != NULL);
  }
  bool drawn = r.found || w.replay;
  if (rc == ZKE_OK && drawn) rc = draw(lab, lab->found, "-");
  if (rc == ZKE_OK && drawn && w.picture) rc = draw(lab, lab->found, w.picture);
  if (rc != ZKE_OK) {
    fprintf(stderr, "%s: %s\n", argv[0], zke_errmsg());
    return 2;
  }
  if (r.stale) return 2;
  return r.found ? 1 : 0;
}
