/* lab.c - the functions of zkembed-lab.h */
#define _GNU_SOURCE
#include "lab.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "keep.h"
#include "picture.h"
#include "search.h"

enum { STEPS_DEFAULT = 2000, TIME_DEFAULT_MS = 2000, REPEATS = 8 };

/* ---- options ---- */

/* A budget: 0 stands for one, -1 for none. */
static bool take_budget(int *at, int most) {
  if (*at < -1 || *at > most) return false;
  if (*at == 0)
    *at = 1;
  else if (*at < 0)
    *at = 0;
  return true;
}

static int take_options(const zke_lab_options *given, zke_lab_options *o) {
  int all = ZKE_LAB_RANDOM | ZKE_LAB_PCT | ZKE_LAB_STATES | ZKE_LAB_DEPTH;
  int rc = zke_take_options(given, o, sizeof *o, "zke_lab_options");
  if (rc != ZKE_OK) return rc;
  if (!take_budget(&o->crashes, ZKE_LAB_MOST) ||
      !take_budget(&o->expiries, ZKE_LAB_MOST) || !take_budget(&o->losses, 8) ||
      !take_budget(&o->pauses, 8))
    return zke_fail(ZKE_BADARGUMENTS,
                    "crashes and expiries are -1 to %d, losses and pauses -1 "
                    "to 8",
                    ZKE_LAB_MOST);
  if (o->preemptions == 0) o->preemptions = 2;
  if (o->steps == 0) o->steps = STEPS_DEFAULT;
  if (o->time_ms == 0) o->time_ms = TIME_DEFAULT_MS;
  if (o->strategies == 0) o->strategies = all & ~ZKE_LAB_DEPTH;
  if (o->steps < 0 || o->steps >= LAB_SCHEDULE)
    return zke_fail(ZKE_BADARGUMENTS, "steps is %d, not 1 to %d", o->steps,
                    LAB_SCHEDULE - 1);
  if (o->strategies & ~all)
    return zke_fail(ZKE_BADARGUMENTS,
                    "strategies is %d, which has unknown ones", o->strategies);
  if (o->time_ms < 0 || o->schedules < 0 || o->wakes < 0 || o->preemptions < 0)
    return zke_fail(ZKE_BADARGUMENTS,
                    "time_ms, schedules, wakes and "
                    "preemptions are not below 0");
  return ZKE_OK;
}

/* ---- building a test ---- */

int zke_lab_new(const zke_lab_options *options, zke_lab **out) {
  zke_lab_options o;
  if (!out) return zke_fail(ZKE_BADARGUMENTS, "out is NULL");
  *out = NULL;
  int rc = take_options(options, &o);
  if (rc != ZKE_OK) return rc;
  /* The C library keeps the time zone in its own memory from the first use on;
   * a process must not be that first. */
  tzset();
  zke_lab *lab = state_begin() ? keep_alloc(sizeof *lab) : NULL;
  if (!lab) return zke_fail(ZKE_NOMEM, "out of memory");
  lab->options = o;
  *out = lab;
  return ZKE_OK;
}

void zke_lab_free(zke_lab *lab) {
  if (!lab) return;
  picture_free(&lab->before);
  picture_free(&lab->first);
  keep_free(lab->lines, LAB_LINES * sizeof *lab->lines);
  keep_free(lab, sizeof *lab);
}

static int process_named(const zke_lab *lab, const char *name) {
  for (int i = 0; i < lab->count; i++) {
    if (strcmp(lab->processes[i].name, name) == 0) return i;
  }
  return -1;
}

static int process_add(zke_lab *lab, const char *name, zke_lab_fn fn, void *arg,
                       int leader) {
  if (!lab || !fn) return zke_fail(ZKE_BADARGUMENTS, "lab or fn is NULL");
  if (!name || !name[0] || strlen(name) >= LAB_NAME ||
      process_named(lab, name) >= 0)
    return zke_fail(ZKE_BADARGUMENTS,
                    "\"%s\" is no name: it has 1 to %d bytes, and nobody else "
                    "has it",
                    name ? name : "(NULL)", LAB_NAME - 1);
  if (lab->count == ZKE_LAB_MOST)
    return zke_fail(ZKE_BADARGUMENTS, "there are %d processes already",
                    ZKE_LAB_MOST);
  lab_process *p = &lab->processes[lab->count];
  strcpy(p->name, name);
  p->fn = fn;
  p->arg = arg;
  p->leader = leader < 0 ? lab->count : leader;
  lab->count++;
  return ZKE_OK;
}

int zke_lab_process(zke_lab *lab, const char *name, zke_lab_fn fn, void *arg) {
  return process_add(lab, name, fn, arg, -1);
}

int zke_lab_thread(zke_lab *lab, const char *process, const char *name,
                   zke_lab_fn fn, void *arg) {
  int leader = lab && process ? process_named(lab, process) : -1;
  if (leader < 0 || lab->processes[leader].leader != leader)
    return zke_fail(ZKE_BADARGUMENTS, "there is no process \"%s\"",
                    process ? process : "(NULL)");
  return process_add(lab, name, fn, arg, leader);
}

void zke_lab_setup(zke_lab *lab, zke_lab_fn fn, void *arg) {
  if (lab) lab->setup = (lab_look){fn, arg};
}

void zke_lab_always(zke_lab *lab, zke_lab_fn fn, void *arg) {
  if (lab) lab->always = (lab_look){fn, arg};
}

void zke_lab_finally(zke_lab *lab, zke_lab_fn fn, void *arg) {
  if (lab) lab->finally = (lab_look){fn, arg};
}

int zke_lab_state(zke_lab *lab, void *at, size_t size) {
  if (!lab) return zke_fail(ZKE_BADARGUMENTS, "lab is NULL");
  if (lab->state_count == LAB_STATES)
    return zke_fail(ZKE_BADARGUMENTS, "there are %d pieces of memory already",
                    LAB_STATES);
  if (at) lab->states[lab->state_count++] = (lab_memory){at, size};
  lab->merges = true;
  return ZKE_OK;
}

int zke_lab_sometimes(zke_lab *lab, const char *name) {
  if (!lab || !name || !name[0] || strlen(name) >= sizeof lab->wanted->name)
    return zke_fail(ZKE_BADARGUMENTS,
                    "lab is NULL, or the name has not 1 to %zu bytes",
                    sizeof lab->wanted->name - 1);
  if (lab->wanted_count == LAB_STATES)
    return zke_fail(ZKE_BADARGUMENTS, "there are %d such names already",
                    LAB_STATES);
  strcpy(lab->wanted[lab->wanted_count++].name, name);
  return ZKE_OK;
}

/* ---- running it ---- */

static int run_begin(zke_lab *lab) {
  if (!lab || lab->count == 0)
    return zke_fail(ZKE_BADARGUMENTS, "there is no process to run");
  lab->schedules = lab->calls = lab->states_met = lab->doubts = 0;
  lab->entries = 0;
  lab->unnamed[0] = '\0';
  for (int i = 0; i < lab->wanted_count; i++) lab->wanted[i].reached = false;
  lab->asks_zxid = lab->known = lab->by_check = false;
  lab->is_found = lab->exhausted = lab->stale = false;
  lab->found[0] = lab->found_why[0] = '\0';
  memset(lab->clean, 0, sizeof lab->clean);
  lab->random = lab->options.seed + UINT64_C(0x9e3779b97f4a7c15);
  if (!lab->random) lab->random = 1;
  return ZKE_OK;
}

static void run_tell(const zke_lab *lab, zke_lab_result *out) {
  bool found = lab->is_found;
  if (!out) return;
  *out = (zke_lab_result){.size = sizeof *out,
                          .found = found,
                          .stale = lab->stale,
                          .exhausted = lab->exhausted && !found,
                          .why = found ? lab->found_why : NULL,
                          .schedule = found ? lab->found : NULL,
                          .schedules = lab->schedules,
                          .states = lab->states_met,
                          .calls = lab->calls,
                          .doubts = lab->doubts,
                          .entries = lab->entries,
                          .unnamed = lab->unnamed[0] ? lab->unnamed : NULL};
}

/* A party outside that does not repeat itself got different answers, draws
 * random numbers, or reads a clock. */
static void doubt_finding(zke_lab *lab) {
  size_t at = strlen(lab->why);
  snprintf(lab->why + at, sizeof lab->why - at,
           " (seen, and not again when its schedule was replayed)");
}

/* Shorten the finding, and replay the rest for its words and possible steps. */
static void keep_finding(zke_lab *lab) {
  int64_t schedules = lab->schedules, calls = lab->calls;
  lab->known = true;
  search_shrink(lab);
  char steps[LAB_SCHEDULE];
  int count = lab->length;
  memcpy(steps, lab->taken, (size_t)count);
  if (!search_replay(lab, steps, count)) doubt_finding(lab);
  search_print(lab, lab->kept, lab->kept_count, lab->found, sizeof lab->found);
  memcpy(lab->found_why, lab->why, sizeof lab->why);
  lab->schedules = schedules;
  lab->calls = calls;
}

/* No schedule has reached a wanted place: then the finding is the schedule in
 * which each process runs to its end.  True: it is so. */
static bool find_unreached(zke_lab *lab) {
  int64_t calls = lab->calls;
  for (int i = 0; i < lab->wanted_count; i++) {
    if (lab->wanted[i].reached) continue;
    search_replay(lab, "", 0);
    search_print(lab, "", 0, lab->found, sizeof lab->found);
    snprintf(lab->found_why, sizeof lab->found_why,
             "none of %lld schedules has reached \"%s\"",
             (long long)lab->schedules, lab->wanted[i].name);
    lab->calls = calls;
    return true;
  }
  return false;
}

/* ---- programs that are not deterministic ---- */

/* Do two replays differ?  *at is their first different line. */
static bool lines_differ(const drawing_line *a, const drawing_line *b,
                         int count, int *at) {
  for (*at = 0; *at < count; ++*at) {
    if (a[*at].lane != b[*at].lane || strcmp(a[*at].text, b[*at].text) != 0)
      return true;
  }
  return false;
}

/* Run a schedule twice: does the program do the same again?  If not, the
 * laboratory cannot replay anything of it. */
static int check_repeats(zke_lab *lab, const char *steps, int count) {
  drawing_line *lines[2] = {NULL, NULL};
  int counts[2], at, rc = ZKE_OK;
  int64_t calls = lab->calls;
  for (int i = 0; i < 2 && rc == ZKE_OK; i++) {
    lab->lines = lines[i] = keep_alloc(LAB_LINES * sizeof *lab->lines);
    lab->line_count = 0;
    if (lines[i])
      search_replay(lab, steps, count);
    else
      rc = zke_fail(ZKE_NOMEM, "out of memory");
    counts[i] = lab->line_count;
  }
  lab->lines = NULL;
  lab->calls = calls;
  /* (after the last line there are zeros) */
  int most = rc != ZKE_OK || counts[0] > counts[1] ? counts[0] : counts[1];
  if (rc == ZKE_OK && lines_differ(lines[0], lines[1], most, &at))
    rc = zke_fail(ZKE_RUNTIMEINCONSISTENCY,
                  "the program does not repeat itself: in the same schedule "
                  "it came to \"%s\" and then to \"%s\"; does it use a clock "
                  "or random numbers that are not the laboratory's?",
                  lines[0][at].text, lines[1][at].text);
  for (int i = 0; i < 2; i++)
    keep_free(lines[i], LAB_LINES * sizeof *lab->lines);
  return rc;
}

/* Returns rc, and keeps its sentence, which would be restored with the other
 * variables. */
static int close_with(zke_lab *lab, int rc) {
  char said[LAB_WHY];
  snprintf(said, sizeof said, "%s", zke_errmsg());
  world_close(lab);
  return rc == ZKE_OK ? ZKE_OK : zke_fail(rc, "%s", said);
}

/* The search ran on plain tables.  Its finding must happen on SQLite in the
 * same way, call by call; otherwise the tables are wrong, and it is not
 * reported as a fault of the program. */
static int confirm_finding(zke_lab *lab) {
  char steps[LAB_SCHEDULE];
  uint64_t trace = lab->trace;
  unsigned check;
  int count = search_parse(lab->found, steps, &check);
  lab->on_sqlite = true;
  int rc = world_open(lab);
  if (rc != ZKE_OK) return rc;
  bool found = search_replay(lab, steps, count);
  bool same =
      found && lab->trace == trace && strcmp(lab->why, lab->found_why) == 0;
  world_close(lab);
  if (same) return ZKE_OK;
  char why[LAB_WHY];
  snprintf(why, sizeof why, "%s", found ? lab->why : "nothing");
  lab->on_sqlite = false;
  rc = world_open(lab);
  if (rc != ZKE_OK) return rc;
  for (int i = 0; i < REPEATS && rc == ZKE_OK; i++)
    rc = check_repeats(lab, steps, count);
  rc = close_with(lab, rc);
  if (rc != ZKE_OK) return rc;
  return zke_fail(ZKE_SYSTEMERROR,
                  "a fault of the laboratory: schedule %s ends with \"%s\" on "
                  "its tables, and with \"%s\" on SQLite",
                  lab->found, lab->found_why, why);
}

/* Is there a strategy that the options select and that can search here? */
static bool can_search(const zke_lab *lab) {
  int strategies = lab->options.strategies;
  bool goes_back = keep_has_pictures && !lab->has_outside;
  return goes_back || (strategies & (ZKE_LAB_RANDOM | ZKE_LAB_PCT));
}

/* The tables are for worlds that are restored; parties outside are so slow that
 * they would not benefit. */
static int run_search(zke_lab *lab) {
  lab->on_sqlite = !keep_has_pictures || lab->has_outside;
  int rc = world_open(lab);
  if (rc != ZKE_OK) return rc;
  if (!lab->has_outside) rc = check_repeats(lab, "", 0);
  if (rc != ZKE_OK) return close_with(lab, rc);
  bool fails = search_run(lab, &lab->exhausted);
  if (fails) keep_finding(lab);
  lab->is_found = fails || find_unreached(lab);
  world_close(lab);
  return fails && !lab->on_sqlite ? confirm_finding(lab) : ZKE_OK;
}

int zke_lab_run(zke_lab *lab, zke_lab_result *out) {
  int rc = run_begin(lab);
  if (rc == ZKE_OK && !can_search(lab))
    rc = zke_fail(ZKE_UNIMPLEMENTED,
                  "the strategies states and depth need the laboratory's "
                  "arena, and no party outside");
  if (rc != ZKE_OK) return rc;
  rc = keep_run(lab, run_search);
  run_tell(lab, out);
  return rc;
}

/* Replay lab->taken. */
static int run_replay(zke_lab *lab) {
  char steps[LAB_SCHEDULE];
  int count = lab->length;
  memcpy(steps, lab->taken, (size_t)count);
  lab->on_sqlite = true;
  int rc = world_open(lab);
  if (rc != ZKE_OK) return rc;
  lab->line_count = 0;
  lab->is_found = search_replay(lab, steps, count);
  lab->stale = lab->kept_count != count;
  search_print(lab, lab->kept, lab->kept_count, lab->found, sizeof lab->found);
  memcpy(lab->found_why, lab->why, sizeof lab->why);
  lab->schedules = 1;
  world_close(lab);
  return ZKE_OK;
}

int zke_lab_replay(zke_lab *lab, const char *schedule, zke_lab_result *out) {
  char steps[LAB_SCHEDULE];
  unsigned check;
  int count = schedule ? search_parse(schedule, steps, &check) : -1;
  if (count < 0)
    return zke_fail(ZKE_BADARGUMENTS, "\"%s\" is no schedule",
                    schedule ? schedule : "(NULL)");
  int rc = run_begin(lab);
  if (rc != ZKE_OK) return rc;
  memcpy(lab->taken, steps, (size_t)count);
  lab->length = count;
  rc = keep_run(lab, run_replay);
  if (check != UINT32_MAX && check != search_check(lab)) lab->stale = true;
  run_tell(lab, out);
  return rc;
}

/* Try endings of lab->taken, all the steps of a failing schedule. */
static int run_endings(zke_lab *lab) {
  char steps[LAB_SCHEDULE];
  int count = lab->length;
  memcpy(steps, lab->taken, (size_t)count);
  lab->on_sqlite = !keep_has_pictures;
  int rc = world_open(lab);
  if (rc != ZKE_OK) return rc;
  lab->no_return = search_point_of_no_return(lab, steps, count);
  world_close(lab);
  return ZKE_OK;
}

/* Mark where the finding became inevitable: before the first line of a later
 * step.  The last line says what is wrong in the end. */
static void mark_no_return(zke_lab *lab) {
  int at = 0;
  if (lab->line_count == 0 || lab->line_count == LAB_LINES) return;
  while (at < lab->line_count - 1 && lab->lines[at].step <= lab->no_return)
    at++;
  memmove(&lab->lines[at + 1], &lab->lines[at],
          (size_t)(lab->line_count++ - at) * sizeof *lab->lines);
  lab->lines[at].kind = '-';
  lab->lines[at].lane = -1;
  snprintf(lab->lines[at].text, sizeof lab->lines[at].text,
           "from here on it fails, however it goes on (%d tries)",
           SEARCH_ENDINGS);
}

/* Not with parties outside, since it takes so many schedules. */
static int find_no_return(zke_lab *lab) {
  drawing_line *lines = lab->lines;
  if (!lab->is_found || lab->stale || lab->has_outside) return ZKE_OK;
  lab->lines = NULL;
  int rc = keep_run(lab, run_endings);
  lab->lines = lines;
  if (rc == ZKE_OK) mark_no_return(lab);
  return rc;
}

static int picture_write(const zke_lab *lab, const char *file) {
  size_t length = strlen(file);
  bool svg = length > 4 && strcmp(file + length - 4, ".svg") == 0;
  FILE *out = strcmp(file, "-") == 0 ? stdout : fopen(file, "w");
  if (!out) return zke_fail(ZKE_SYSTEMERROR, "%s: %s", file, strerror(errno));
  if (svg)
    picture_svg(lab, out);
  else
    picture_text(lab, out);
  int failed = fflush(out) != 0 || ferror(out);
  if (out != stdout && fclose(out) != 0) failed = 1;
  if (failed) return zke_fail(ZKE_SYSTEMERROR, "%s: %s", file, strerror(errno));
  return ZKE_OK;
}

int zke_lab_picture(zke_lab *lab, const char *schedule, const char *file) {
  if (!lab || !file) return zke_fail(ZKE_BADARGUMENTS, "lab or file is NULL");
  if (!lab->lines) lab->lines = keep_alloc(LAB_LINES * sizeof *lab->lines);
  if (!lab->lines) return zke_fail(ZKE_NOMEM, "out of memory");
  int rc = zke_lab_replay(lab, schedule, NULL);
  if (rc == ZKE_OK) rc = find_no_return(lab);
  if (rc == ZKE_OK) rc = picture_write(lab, file);
  keep_free(lab->lines, LAB_LINES * sizeof *lab->lines);
  lab->lines = NULL;
  return rc;
}
