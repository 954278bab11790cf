/* lines.c - fuzz target: lines of the zke command
 *
 * Each line of the input is split into words.  If its command neither waits nor
 * uses files or processes, a shell runs it over a tree in memory.  Whatever the
 * line is: no crash, no leak, no endless loop, and a documented exit code.  A
 * line's words, quoted in any of the possible ways, are split into the same
 * words.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "shell/shell.h"
#include "fuzz.h"

#include <ctype.h>

int fuzz_lines(const uint8_t *data, size_t size);

/* ---- quoting ---- */

/* Quote in '…' if possible, otherwise in "…" or with backslashes, by `how`. */
static void lines_quote_word(const word *w, unsigned how, FILE *out) {
  bool plain = !memchr(w->text, '\'', w->len);
  if (how % 3 == 0 && plain) {
    putc('\'', out);
    fwrite(w->text, 1, w->len, out);
    putc('\'', out);
    return;
  }
  bool quoted = how % 3 < 2 || w->len == 0;
  if (quoted) putc('"', out);
  for (size_t i = 0; i < w->len; i++) {
    unsigned char byte = (unsigned char)w->text[i];
    if (quoted && how % 2)
      fprintf(out, "\\x%02X", byte);
    else if (quoted ? byte == '"' || byte == '\\' : true)
      fprintf(out, "\\%c", byte);
    else
      putc(byte, out);
  }
  if (quoted) putc('"', out);
}

static char *lines_quote(const words *w, unsigned how, size_t *len_out) {
  char *text = NULL;
  FILE *out = open_memstream(&text, len_out);
  FUZZ_EXPECT(out);
  for (int i = 0; i < w->count; i++) {
    if (i) putc(how & 8 ? '\t' : ' ', out);
    lines_quote_word(&w->data[i], how + (unsigned)i, out);
  }
  FUZZ_EXPECT(fclose(out) == 0);
  return text;
}

static bool lines_same(const words *a, const words *b) {
  if (a->count != b->count) return false;
  for (int i = 0; i < a->count; i++)
    if (a->data[i].len != b->data[i].len ||
        memcmp(a->data[i].text, b->data[i].text, a->data[i].len) != 0)
      return false;
  return true;
}

static void lines_check_quoting(const words *w, unsigned how) {
  size_t len = 0;
  words *again = NULL;
  char *text = lines_quote(w, how, &len);
  const char *wrong = words_split(text, len, &again);
  FUZZ_EXPECT(!wrong);
  FUZZ_EXPECT(lines_same(w, again));
  free(again);
  free(text);
}

/* Everything that a word may be read as. */
static void lines_check_word(const word *w) {
  int64_t n = 0;
  char *bytes = NULL;
  size_t len = 0;
  FUZZ_EXPECT(w->text[w->len] == '\0');
  if (word_duration(w, &n)) FUZZ_EXPECT(n >= 0);
  if (word_number(w, &n)) FUZZ_EXPECT(word_session(w, &n));
  if (!base64_decode(w->text, w->len, &bytes, &len)) return;
  char *text = base64_encode(bytes, len);
  FUZZ_EXPECT(text && strlen(text) == w->len);
  FUZZ_EXPECT(memcmp(text, w->text, w->len) == 0);
  free(text);
  free(bytes);
}

/* ---- running ---- */

/* The line neither waits nor reaches beyond the tree. */
static bool lines_harmless(const words *w) {
  static const char *const names[] = {
      "help",      "cd",         "pwd",       "mode",     "session",  "version",
      "check",     "sql",        "ls",        "tree",     "get",      "set",
      "create",    "delete",     "stat",      "find",     "exists",   "cp",
      "deleteall", "multi",      "count",     "getacl",   "rmr",      "setacl",
      "sync",      "ephemerals", "addauth",   "sessions", "locks",    "queue",
      "held",      "dump",       "deadlocks", "exit",     "nonsense", "fence",
      "log",       "history",    "metrics"};
  bool known = false;
  if (w->count == 0) return true;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    known = known || word_is(&w->data[0], names[i]);
  /* Queues can be waited for, and multi without words reads its input; --input,
   * -i, and similar words read a file; --hold waits; a program may follow
   * --. */
  bool bare = w->count < 2;
  if (word_is(&w->data[0], "multi") && bare) return false;
  if (word_is(&w->data[0], "queue") && !bare && !word_is(&w->data[1], "list") &&
      !word_is(&w->data[1], "size"))
    return false;
  for (int i = 1; i < w->count; i++) {
    const char *text = w->data[i].text;
    if (*text == '-' && (strpbrk(text, "iho") || strcmp(text, "--") == 0))
      return false;
  }
  return known;
}

static void lines_check_status(int status) {
  static const int known[] = {
      STATUS_OK,       STATUS_NO,       STATUS_USAGE,  STATUS_DATA,
      STATUS_CANTOPEN, STATUS_INTERNAL, STATUS_SYSTEM, STATUS_CANTCREATE,
      STATUS_IO,       STATUS_CONFLICT, STATUS_LOST,   STATUS_DENIED};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (status == known[i]) return;
  FUZZ_EXPECT(!"a documented exit code");
}

static void lines_run(shell *sh, const char *line, size_t len, unsigned how) {
  words *w = NULL;
  bool run = true;
  if (!memchr(line, '\0', len) && !words_split(line, len, &w)) {
    lines_check_quoting(w, how);
    for (int i = 0; i < w->count; i++) lines_check_word(&w->data[i]);
    run = lines_harmless(w);
    /* Then the code may be anything. */
    if (w->count && (word_is(&w->data[0], "exit"))) {
      run_line(sh, line, len);
      run = false;
    }
    free(w);
  }
  if (run) lines_check_status(run_line(sh, line, len));
}

int fuzz_lines(const uint8_t *data, size_t size) {
  fuzz_world world;
  zke_os os = fuzz_world_begin(&world);
  fuzz_input in = {data, size};
  unsigned how = fuzz_byte(&in);
  shell sh = {.tables = commands_all,
              .file = ":memory:",
              .m = PTHREAD_MUTEX_INITIALIZER,
              .format = (int)(how >> 6) % 3,
              .quiet = true,
              .persists = true,
              .options = {.size = sizeof(zke_options), .os = &os}};
  FILE *out = stdout, *err = stderr;
  stdout = stderr = fuzz_nowhere();
  while (in.left && !sh.leaving) {
    const uint8_t *end = memchr(in.at, '\n', in.left);
    size_t len = end ? (size_t)(end - in.at) : in.left;
    char *line = fuzz_text(&in, len);
    fuzz_byte(&in);
    lines_run(&sh, line, len, how);
    free(line);
  }
  lines_check_status(session_close(&sh));
  stdout = out;
  stderr = err;
  fuzz_world_end(&world);
  return 0;
}

FUZZ_TARGET(fuzz_lines)
