/* story.c - see story.h */
#include "test/sim/story.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/lab/drawing.h"
#include "test/sim/sched.h"

/* How many lines are kept and told, and the shares of some sorts. */
enum { KEPT = 1 << 14, TOLD = 56, TOLD_FAULTS = 24, TOLD_LAST = 46 };
enum { LANES = SIM_SLOTS * SIM_THREADS, NAME = 32 };

typedef struct kept_lines {
  int64_t count; /* the newest are at count - 1, ..., modulo KEPT */
  drawing_line line[KEPT];
  char call[LANES][NAME]; /* each lane's current call */
} kept_lines;

static kept_lines *kept;
static int64_t mark_step = SIM_NEVER;
static const char *mark_text;

/* ---- lines ---- */

/* The lines are in memory shared with children. */
void story_open(void) {
  if (!sim.verbose) return;
  kept = mmap(NULL, sizeof *kept, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (kept == MAP_FAILED) sim_bug("out of memory");
}

/* Forget the previous run. */
void story_begin(void) {
  if (!kept) return;
  kept->count = 0;
  memset(kept->call, 0, sizeof kept->call);
}

/* One lane for each possible thread of a process. */
int story_lane(void) {
  return sched_slot() < 0 ? -1 : sched_slot() * SIM_THREADS + sched_thread();
}

/* "A" is the first thread of the first process, "A2" its second. */
void story_lane_name(int lane, char out[8]) {
  int thread = lane < 0 ? 0 : lane % SIM_THREADS;
  out[0] = lane < 0 ? '-' : (char)('A' + lane / SIM_THREADS);
  out[1] = thread ? (char)('1' + thread) : '\0';
  out[2] = '\0';
}

/* A lane's current call, as far as it was told. */
const char *story_call(int lane) {
  return kept && lane >= 0 ? kept->call[lane] : "";
}

/* Note a lane's current call of zkembed.h. */
static void note_call(const drawing_line *line) {
  if (line->lane < 0 || !strchr("()Ae", line->kind)) return;
  char *call = kept->call[line->lane];
  size_t length = strcspn(line->text, " ");
  if (length >= NAME) length = NAME - 1;
  call[0] = '\0';
  if (line->kind == '(') strncat(call, line->text, length);
}

/* Print a line when it happens: each lane begins farther to the right. */
static void print_now(const drawing_line *line) {
  enum { INDENT = 10 };
  char name[8];
  story_lane_name(line->lane, name);
  int indent = sim.verbose == 2 ? (1 + line->lane / SIM_THREADS) * INDENT : 0;
  fprintf(stderr, "%8d %13.9f %*s%-2s %s%s\n", line->step,
          (double)line->now / 1e9, indent, "", name,
          strchr("()cnbeA", line->kind) ? "" : "* ", line->text);
}

/* Add a line to the story. */
static void add(char kind, int lane, const char *format, va_list ap) {
  if (!sim.verbose || !kept) return;
  drawing_line *line = &kept->line[kept->count++ % KEPT];
  *line = (drawing_line){
      .lane = lane, .kind = kind, .step = (int)sim.steps, .now = sim.now};
  vsnprintf(line->text, sizeof line->text, format, ap);
  note_call(line);
  if (sim.verbose > 1) print_now(line);
}

/* A note in the running fiber's lane. */
void sim_say(const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  add('n', story_lane(), format, ap);
  va_end(ap);
}

/* A line of any kind in the running fiber's lane. */
void sim_tell(char kind, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  add(kind, story_lane(), format, ap);
  va_end(ap);
}

/* A line of any kind in another lane. */
void story_tell(char kind, int slot, int thread, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  add(kind, slot * SIM_THREADS + thread, format, ap);
  va_end(ap);
}

/* Set the text for story_step() to tell once. */
void story_mark(int64_t step, const char *text) {
  mark_step = step;
  mark_text = text;
}

/* Called by sched.c at each step while a story is told. */
void story_step(sim_call call) {
  const char *in = story_call(story_lane());
  if (sim.steps >= mark_step) {
    mark_step = SIM_NEVER;
    sim_tell('!', "%s (in %s%s%s)", mark_text, in, *in ? ", " : "",
             sim_call_name(call));
  }
  if (sim.verbose > 2) sim_say("%s", sim_call_name(call));
}

/* ---- which lines are told ---- */

typedef struct choice {
  drawing_line *line; /* all, oldest first */
  int count;
  int *partner;     /* for a call's begin its end, and the reverse; for another
                     * line the begin of the call that it is in; or -1 */
  bool *chosen;     /* to be told */
  int told;         /* how many */
  const char *path; /* the path in the finding; "": none */
} choice;

/* Is it a line of the plot, not of a call? */
static bool is_event(const drawing_line *line) {
  return !strchr("()cn", line->kind);
}

/* Can a reader do without the line?  That is so for waits, and for the removal
 * of a dead process. */
static bool is_dull(const drawing_line *line) {
  return strncmp(line->text, "wait", 4) == 0 ||
         strncmp(line->text, "dispatch", 8) == 0 ||
         strcmp(line->text, "is taken apart") == 0;
}

/* Is it a line that may interest a reader? */
static bool is_any(const choice *c, int i) { return !is_dull(&c->line[i]); }

/* Is it about the finding's node? */
static bool is_near(const choice *c, int i) {
  return *c->path && strstr(c->line[i].text, c->path);
}

/* Did a fault strike, or make a call fail? */
static bool is_plot(const choice *c, int i) {
  static const char *const failures[] = {
      "ZKE_CONNECTIONLOSS", "ZKE_SYSTEMERROR", "ZKE_FULL",   "ZKE_NOMEM",
      "ZKE_CANTOPEN",       "ZKE_NOTADB",      "ZKE_SESSION"};
  const drawing_line *line = &c->line[i];
  for (size_t k = 0; k < sizeof failures / sizeof *failures; k++)
    if (line->kind == ')' && strstr(line->text, failures[k])) return true;
  return is_event(line);
}

/* Is it a single call between two that are told?  To say that one call is left
 * out would be no shorter. */
static bool is_alone(const choice *c, int i) {
  int before = i - 1, after = i + 1;
  if (c->line[i].kind != '(') return false;
  while (before > 0 && c->line[before].kind != '(') before--;
  while (after < c->count - 1 && c->line[after].kind != '(') after++;
  return before >= 0 && c->chosen[before] && c->chosen[after];
}

/* Tell a line, with the call that it belongs to. */
static void take(choice *c, int i) {
  for (; i >= 0 && !c->chosen[i]; i = c->partner[i]) {
    c->chosen[i] = true;
    c->told += c->line[i].kind != ')';
  }
}

/* Tell the newest lines of a sort, up to a number of lines. */
static void choose(choice *c, bool (*is_of)(const choice *c, int i), int most) {
  for (int i = c->count - 1; i >= 0 && c->told < most; i--)
    if (is_of(c, i)) take(c, i);
}

/* Find the two lines of each call, and the call around each other line. */
static void pair_calls(choice *c) {
  enum { DEPTH = 8 };
  int open[LANES][DEPTH], depth[LANES] = {0};
  for (int i = 0; i < c->count; i++) {
    const drawing_line *line = &c->line[i];
    c->partner[i] = -1;
    if (line->lane < 0) continue;
    int *d = &depth[line->lane];
    if (line->kind == 'b') *d = 0;
    if (*d > 0 && line->kind != '(') c->partner[i] = open[line->lane][*d - 1];
    if (line->kind == '(' && *d < DEPTH) open[line->lane][(*d)++] = i;
    if (line->kind == ')' && *d > 0) {
      int begin = open[line->lane][--*d];
      c->partner[i] = begin;
      c->partner[begin] = i;
    }
  }
}

/* The path in the last line, that of the finding. */
static void path_of_finding(const choice *c, char out[NAME]) {
  const char *text = c->count ? c->line[c->count - 1].text : "";
  const char *at = strstr(text, " /");
  out[0] = '\0';
  if (at) snprintf(out, NAME, "%.*s", (int)strcspn(at + 1, " :;,"), at + 1);
}

/* How many calls of each lane are there between two lines that are told? */
static bool summary(const choice *c, int from, int to, char *out, size_t size) {
  int calls[LANES] = {0};
  size_t n = 0;
  for (int i = from; i < to; i++) {
    if (c->line[i].kind == '(' && !c->chosen[i]) calls[c->line[i].lane]++;
  }
  for (int i = 0; i < LANES; i++) {
    char name[8];
    if (!calls[i] || n + 40 > size) continue;
    story_lane_name(i, name);
    n += (size_t)snprintf(out + n, size - n,
                          n ? ", %d of %s" : "... calls: %d of %s", calls[i],
                          name);
  }
  return n > 0;
}

/* Make one line of a call if nothing came in between. */
static void join_calls(drawing_line *line, int *count) {
  int n = 0;
  for (int i = 0; i < *count; i++) {
    drawing_line *before = n ? &line[n - 1] : NULL;
    const char *result = strchr(line[i].text, ':');
    if (before && line[i].kind == ')' && before->kind == '(' &&
        before->lane == line[i].lane && result) {
      size_t at = strlen(before->text);
      snprintf(before->text + at, sizeof before->text - at, "%s", result);
      before->kind = 'c';
    } else {
      line[n++] = line[i];
    }
  }
  *count = n;
}

/* The lines to tell, and summaries of the others between them. */
static int gather(const choice *c, drawing_line *out) {
  int n = 0, last = -1;
  for (int i = 0; i < c->count; i++) {
    if (!c->chosen[i]) continue;
    drawing_line between = {.lane = -1, .kind = '.'};
    between.step = c->line[i].step;
    between.now = c->line[i].now;
    if (summary(c, last + 1, i, between.text, sizeof between.text))
      out[n++] = between;
    out[n++] = c->line[i];
    last = i;
  }
  join_calls(out, &n);
  return n;
}

/* The lines to tell, and their number. */
static drawing_line *tell(int *count) {
  char path[NAME];
  choice c = {.count = kept->count < KEPT ? (int)kept->count : KEPT};
  size_t all = (size_t)c.count;
  c.line = sim_zero((all + 1) * sizeof *c.line);
  c.partner = sim_zero((all + 1) * sizeof *c.partner);
  c.chosen = sim_zero(all + 1);
  for (int i = 0; i < c.count; i++)
    c.line[i] = kept->line[(kept->count - c.count + i) % KEPT];
  pair_calls(&c);
  path_of_finding(&c, path);
  c.path = path;
  choose(&c, is_plot, TOLD_FAULTS);
  choose(&c, is_any, TOLD_LAST);
  choose(&c, is_near, TOLD);
  choose(&c, is_alone, INT_MAX);
  drawing_line *out = sim_zero((4 * all + 1) * sizeof *out);
  *count = gather(&c, out);
  free(c.line);
  free(c.partner);
  free(c.chosen);
  return out;
}

/* ---- as text and as a picture ---- */

/* Draw it: the lanes with lines are numbered from 0 on. */
static void draw(FILE *out, void (*how)(const drawing *, FILE *)) {
  static char names[LANES][24];
  char name[8];
  int number[LANES], count = 0;
  if (!kept) return;
  drawing_line *line = tell(&count);
  drawing d = {
      .lines = line, .count = count, .width = 120, .lane = 320, .timed = true};
  for (int i = 0; i < LANES; i++) {
    bool speaks = false;
    for (int k = 0; k < count; k++) speaks |= line[k].lane == i;
    if (!speaks) continue;
    number[i] = d.lanes;
    story_lane_name(i, name);
    snprintf(names[i], sizeof names[i], "process %s", name);
    d.name[d.lanes++] = names[i];
  }
  for (int k = 0; k < count; k++)
    if (line[k].lane >= 0) line[k].lane = number[line[k].lane];
  how(&d, out);
  free(line);
}

/* As text, 120 characters wide unless a line needs more. */
void story_print(FILE *out) { draw(out, drawing_text); }
/* As a picture. */
void story_draw(FILE *out) { draw(out, drawing_svg); }
