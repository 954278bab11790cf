/* test_semantics.c - what each operation answers, told as text
 *
 *   test_semantics [NAME]      all blocks, or the one of this name
 *   ANSWERS=1                  prints what is answered, and compares nothing
 *   SUBJECT=model              on this one only
 *   ZKE_TEST_SERVER=HOST:PORT  on this server, in place of all others
 *
 * A block of the texts in this directory is a test.  It runs on each subject,
 * one after the other, and all must answer the same:
 *
 *   memory   a tree in memory
 *   file     a file that each session opens for itself
 *   model    the model of test/model
 *   batch    one store on a file, with as many calls as can be in each
 *            zke_batch()
 *   alone    in a file that says so: in memory, "w" and "main" are one session
 *   server   by ensemble.sh: `zke serve`, through the engine for ensembles
 *            (test/ensemble/engine.c); by `make test-ensemble` also ZooKeeper.
 *            Zxids and times are not compared, and blocks in which time passes
 *            do not run
 *
 * At a block's end zke_check() finds nothing, and all memory has been given
 * back.
 *
 *     == a_name -model                  not on this subject; why, says the head
 *     # what it shows
 *     create /a "x" -> /a {czxid=1 length=1}
 *     bob: get /a -> "x"                another session, which is opened here
 *     open eve chroot=/a                or by itself
 *     set /a "y" 7 -> BADVERSION        a version is a bare number
 *     +60s                              so much time passes
 *     multi create /b; delete /nope
 *       -> ok; NONODE                   a line goes on behind two blanks
 *     5x set /a "z"                     five times
 *     create /a {ephemeral mode=7} -> NODEEXISTS
 *                                       once for each word in the braces
 *
 * A call without an arrow must succeed, and its outputs are not looked at.
 * After an arrow stands all that it answers, but a Stat may be left out.  After
 * a refusal, says "TEXT" is a part of zke_errmsg().  The verbs and their words
 * are in verbs.c.
 *
 * A Stat tells what is not as at the creation of an empty node: a member that
 * is left out is 0, mzxid and pzxid are as czxid, mtime as ctime.  Zxids and
 * times count from the opening of the block's first session, "main", so the
 * first change has 1; "old" is before that.  No time passes unless a block says
 * so.
 *
 * Words: "text in quotes" is data, with \xNN for a byte; "x"*1000 repeats,
 * "x"/5 is told to be 5 bytes long; NULL is no data, no path, or no list.
 * A file's "let NAME = VALUE" gives $NAME a meaning.
 * acl= takes open, read, creator, none (an empty list) or SCHEME:ID:PERMS,...
 */
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/model/model.h"
#include "test/semantics/semantics.h"

static const char *const subject_names[SUBJECTS] = {
    [MEMORY] = "memory", [A_FILE] = "file", [MODEL] = "model",
    [BATCH] = "batch",   [ALONE] = "alone", [SERVER] = "server"};

place here;

void line_fails(const char *format, ...) {
  char text[ANSWER];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  _ck_assert_failed(here.file, here.line, "Assertion failed", "on %s: %s",
                    subject_names[here.on], text);
}

/* ---- the texts ---- */

typedef struct line {
  char *text;
  int number;
} line;

typedef struct block {
  const char *file;
  char *name;
  int number;
  bool runs_on[SUBJECTS];
  line *lines;
  int count;
  test_item item;
} block;

static block *blocks;
static int block_count;

/* Memory that is never freed. */
static void *lasting(void *old, size_t size) {
  void *grown = realloc(old, size);
  if (!grown) abort();
  return grown;
}

static void bad_text(const char *file, int number, const char *why) {
  fprintf(stderr, "%s:%d: %s\n", file, number, why);
  exit(2);
}

static subject subject_of(const char *name) {
  int i = 0;
  while (i < SUBJECTS && strcmp(subject_names[i], name) != 0) i++;
  return (subject)i;
}

/* "also alone": the file's blocks run on this subject, too */
static bool also_alone;

/* A block's subjects; only the server, if the environment names one. */
static void usual_subjects(bool runs_on[SUBJECTS]) {
  const char *server = getenv("ZKE_TEST_SERVER");
  bool there = server && *server;
  runs_on[SERVER] = there;
  runs_on[MEMORY] = runs_on[A_FILE] = runs_on[MODEL] = !there;
  runs_on[BATCH] = !there;
  runs_on[ALONE] = also_alone && !there;
}

static void drop_others(bool runs_on[SUBJECTS]) {
  const char *only = getenv("SUBJECT");
  for (int i = 0; only && i < SUBJECTS; i++)
    runs_on[i] = runs_on[i] && i == (int)subject_of(only);
}

/* Is the server ZooKeeper's own, and not `zke serve`? */
static bool is_zookeeper(void) {
  const char *kind = getenv("ZKE_TEST_KIND");
  return kind && !strcmp(kind, "zookeeper");
}

/* "== NAME -SUBJECT..." */
static void begin_block(const char *file, int number, char *text) {
  blocks = lasting(blocks, (size_t)++block_count * sizeof *blocks);
  block *b = &blocks[block_count - 1];
  *b = (block){.file = file, .name = strtok(text, " "), .number = number};
  usual_subjects(b->runs_on);
  for (char *w; (w = strtok(NULL, " "));) {
    if (!strcmp(w, "-zookeeper")) {
      b->runs_on[SERVER] = b->runs_on[SERVER] && !is_zookeeper();
      continue;
    }
    subject which = subject_of(w + 1);
    if (which == SUBJECTS || *w != '-') bad_text(file, number, "no subject");
    b->runs_on[which] = false;
    if (which == MEMORY) b->runs_on[BATCH] = b->runs_on[ALONE] = false;
  }
  drop_others(b->runs_on);
}

/* "let NAME = VALUE", valid up to the end of the file: $NAME in a line. */
static struct let { char name[16], value[200]; } lets[8];
static size_t let_count;

static void add_let(const char *file, int number, const char *text) {
  struct let *l = &lets[let_count++];
  if (let_count > sizeof lets / sizeof *lets ||
      sscanf(text, "let %15[A-Z] = %199s", l->name, l->value) != 2)
    bad_text(file, number, "no definition");
}

static const struct let *let_of(const char *name) {
  size_t length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  for (size_t i = 0; i < let_count; i++)
    if (strlen(lets[i].name) == length && !strncmp(lets[i].name, name, length))
      return &lets[i];
  return NULL;
}

/* Replace each $NAME in a text, which has enough room. */
static void use_lets(char *text, size_t room) {
  for (char *at = text; (at = strchr(at, '$')); at++) {
    const struct let *l = let_of(at + 1);
    if (!l) continue;
    size_t name = strlen(l->name) + 1, value = strlen(l->value);
    if (strlen(text) + value >= room) abort();
    memmove(at + value, at + name, strlen(at + name) + 1);
    memcpy(at, l->value, value);
  }
}

static void add_line(const char *file, int number, char *text) {
  block *b = &blocks[block_count - 1];
  if (!block_count) bad_text(file, number, "no block has begun");
  if (*text == ' ') { /* the line continues */
    if (!b->count) bad_text(file, number, "no line goes on here");
    line *l = &b->lines[b->count - 1];
    text += strspn(text, " ");
    l->text = lasting(l->text, strlen(l->text) + strlen(text) + 2);
    strcat(strcat(l->text, " "), text);
    return;
  }
  if (*text == '+') b->runs_on[SERVER] = false; /* a server's time is its own */
  b->lines = lasting(b->lines, (size_t)++b->count * sizeof *b->lines);
  b->lines[b->count - 1] = (line){strdup(text), number};
}

static void read_file(const char *name) {
  FILE *f = fopen(name, "r");
  char text[1000];
  if (!f) bad_text(name, 0, "cannot be read");
  also_alone = false;
  let_count = 0;
  for (int number = 1; fgets(text, sizeof text, f); number++) {
    size_t length = strcspn(text, "\n");
    while (length && text[length - 1] == ' ') length--;
    text[length] = '\0';
    use_lets(text, sizeof text);
    if (!strncmp(text, "== ", 3))
      begin_block(name, number, strdup(text + 3));
    else if (!strcmp(text, "also alone"))
      also_alone = true;
    else if (!strncmp(text, "let ", 4))
      add_let(name, number, text);
    else if (*text && *text != '#')
      add_line(name, number, text);
  }
  fclose(f);
}

/* ---- a line ---- */

/* The parts of a line. */
typedef struct parts_of_line {
  long times;
  const char *call;      /* including the name of its session */
  char *expected, *says; /* NULL: not given */
} parts_of_line;

/* Cut the text at the first `mark` outside of quotes; returns the rest, or
 * NULL. */
static char *cut(char *text, const char *mark) {
  bool quoted = false;
  for (char *at = text; *at; at++) {
    if (*at == '\\' && at[1]) {
      at++;
    } else if (*at == '"') {
      quoted = !quoted;
    } else if (!quoted && !strncmp(at, mark, strlen(mark))) {
      *at = '\0';
      return at + strlen(mark);
    }
  }
  return NULL;
}

/* "open NAME OPTION=VALUE..."; "main" is always the first. */
static void run_opening(stage *s, const char *text) {
  call c;
  call_read(&c, text);
  if (!s->count && strcmp(c.path, "main") != 0) run_opening(s, "open main");
  ck_ok(stage_open(s, &c));
  call_free(&c);
}

/* A session is opened when it is first named. */
static session *session_named(stage *s, const char *name) {
  char opening[64];
  snprintf(opening, sizeof opening, "open %s", name);
  if (!stage_session(s, name)) run_opening(s, opening);
  session *by = stage_session(s, name);
  must(by->z != NULL, "%s is closed", name);
  return by;
}

static parts_of_line dissect(char *text) {
  parts_of_line p = {.times = 1, .call = text};
  char *end;
  p.expected = cut(text, " -> ");
  if (p.expected && (p.says = cut(p.expected, " says \"")))
    p.says[strcspn(p.says, "\"")] = '\0';
  long times = strtol(text, &end, 10);
  if (end != text && !strncmp(end, "x ", 2)) p.times = times, p.call = end + 2;
  return p;
}

static bool begins(const char *text, const char *with) {
  return !strncmp(text, with, strlen(with));
}

/* Skip a word that differs on a server: a zxid or a time, since that has other
 * clients and its own clock, or the node that only a whole tree has. */
static const char *skip_own(const char *at) {
  static const char *const own[] = {
      "czxid=", "mzxid=", "pzxid=", "ctime=", "mtime=", "zookeeper "};
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    if (!begins(at, own[i])) continue;
    at += strcspn(at, " }");
    return skip_own(at + (*at == ' '));
  }
  if (begins(at, " zookeeper")) return at + strlen(" zookeeper");
  return at;
}

/* Is the answer as expected?  A Stat is ignored unless it is expected. */
static bool matches(const char *got, const char *expected) {
  bool there = here.on == SERVER;
  if (there && !strcmp(expected, "zookeeper")) expected = "none";
  for (;;) {
    if (there) got = skip_own(got), expected = skip_own(expected);
    if (begins(got, " {") && !begins(expected, " {"))
      got = strchr(got, '}') + 1;
    else if (*got && *got == *expected)
      got++, expected++;
    else
      return !*got && !*expected;
  }
}

static void judge(const parts_of_line *p, const char *text, const answer *got) {
  if (getenv("ANSWERS"))
    printf("%s -> %s\n", text, got->text);
  else if (here.on == SERVER && begins(text, "zxid"))
    return; /* its other clients make changes, too */
  else if (!p->expected)
    must(!got->refused, "%s\n  expected: success\n  got:      %s", text,
         got->text);
  else
    must(matches(got->text, p->expected), "%s\n  expected: %s\n  got:      %s",
         text, p->expected, got->text);
}

/* "SESSION: CALL"; the default session is main. */
static void run_call(stage *s, const parts_of_line *p, const char *text) {
  static answer got;
  char name[32] = "main";
  int length = 0;
  memset(&got, 0, sizeof got);
  if (sscanf(text, "%31[a-z0-9]: %n", name, &length) != 1 || !length)
    strcpy(name, "main");
  session *by = session_named(s, name);
  must(verb_run(s, by, text + length, &got), "no such call: %s", text);
  const char *sentence = zke_errmsg();
  judge(p, text, &got);
  if (p->says && s->on != MODEL && s->on != SERVER)
    must(strstr(sentence, p->says), "%s\n  does not say \"%s\": %s", text,
         p->says, sentence);
}

/* Run it for each of the words in the first braces, combined with each in the
 * next braces, and so on. */
static void run_each(stage *s, const parts_of_line *p, const char *text) {
  const char *open = strchr(text, '{'), *end = strchr(text, '}');
  if (!open) {
    run_call(s, p, text);
    return;
  }
  must(end > open, "a brace is not closed: %s", text);
  for (const char *at = open + 1; at < end; at += strspn(at, " ")) {
    char one[1000];
    int length = (int)strcspn(at, " }");
    snprintf(one, sizeof one, "%.*s%.*s%s", (int)(open - text), text, length,
             at, end + 1);
    run_each(s, p, one);
    at += length;
  }
}

static void run_line(stage *s, const char *text) {
  char *copy = strdup(text);
  ck_assert_ptr_nonnull(copy);
  parts_of_line p = dissect(copy);
  while (p.times-- > 0) run_each(s, &p, p.call);
  free(copy);
}

/* "+60s", "+5ms" */
static void run_pause(stage *s, const char *text) {
  char *unit;
  long amount = strtol(text, &unit, 10);
  stage_pass(s, strcmp(unit, "s") ? amount : 1000 * amount);
}

/* ---- a block ---- */

/* The lines of a running block. */
typedef struct run {
  stage *s;
  const block *b;
  int at, end;
} run;

static void run_lines(run *r) {
  for (; r->at < r->end; r->at++) {
    const char *text = r->b->lines[r->at].text;
    here.line = r->b->lines[r->at].number;
    test_mark(here.file, here.line);
    if (*text == '+')
      run_pause(r->s, text);
    else if (begins(text, "open "))
      run_opening(r->s, text);
    else
      run_line(r->s, text);
  }
}

static int run_inside(zke *z, void *context) {
  (void)z;
  run_lines(context);
  return ZKE_OK;
}

/* Can the line be in a batch?  No time passes there, no events are dispatched,
 * no watches removed, and no session begins or ends. */
static bool fits_a_batch(stage *s, const char *text) {
  static const char *const others[] = {
      "open ",   "close ",     "expire ", "events", "dispatch",
      "unwatch", "checkwatch", "forget",  "sync",   "read untold"};
  char name[32] = "main";
  int length = 0;
  if (strchr("+{123456789", *text)) return false;
  if (sscanf(text, "%31[a-z0-9]: %n", name, &length) != 1 || !length)
    strcpy(name, "main");
  if (!stage_session(s, name)) return false;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (begins(text + length, others[i])) return false;
  return true;
}

/* In batches with as many lines as possible. */
static void run_in_batches(stage *s, const block *b) {
  run r = {.s = s, .b = b};
  while (r.at < b->count) {
    r.end = r.at;
    while (r.end < b->count && fits_a_batch(s, b->lines[r.end].text)) r.end++;
    session *one = stage_living(s);
    if (r.end > r.at && one) ck_ok(zke_batch(one->z, run_inside, &r));
    if (r.end < b->count) r.end++;
    run_lines(&r);
  }
}

static void run_on(const block *b, subject on) {
  static stage s;
  run r = {.s = &s, .b = b, .end = b->count};
  s = (stage){.on = on};
  here = (place){b->file, b->number, on};
  if (on == BATCH)
    run_in_batches(&s, b);
  else
    run_lines(&r);
  stage_end(&s);
}

/* On all subjects in one process: a process costs more than most blocks. */
static void run_block(int which) {
  const block *b = &blocks[which];
  for (int on = 0; on < SUBJECTS; on++)
    if (b->runs_on[on]) run_on(b, (subject)on);
}

/* ---- all of them ---- */

static bool runs_anywhere(const block *b) {
  return memchr(b->runs_on, true, sizeof b->runs_on) != NULL;
}

static void register_block(int which) {
  block *b = &blocks[which];
  for (int i = 0; i < which; i++)
    if (!strcmp(blocks[i].name, b->name))
      bad_text(b->file, b->number, "another block has this name");
  if (!b->count) bad_text(b->file, b->number, "the block is empty");
  b->item = (test_item){.name = b->name,
                        .file = b->file,
                        .line = b->number,
                        .function = run_block,
                        .first = which,
                        .end = which + 1};
  if (runs_anywhere(b)) test_register(&b->item);
}

int main(int argc, char **argv) {
  static glob_t files; /* the blocks use its names */
  if (zke_register_engine(&model_engine) != ZKE_OK ||
      glob("test/semantics/*.txt", 0, NULL, &files) != 0)
    bad_text("test/semantics", 0, "no texts, or no model");
  for (size_t i = 0; i < files.gl_pathc; i++) read_file(files.gl_pathv[i]);
  for (int i = 0; i < block_count; i++) register_block(i);
  return test_main(argc, argv);
}
