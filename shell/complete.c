/* complete.c - completion of a line that is being typed
 *
 * Candidates are names of commands, their verbs and options, and znodes.  The
 * command's usage line says which of these a word can be.  The line is split as
 * by words.c: the whole words before the cursor, and the word at the cursor,
 * which may have an open quotation mark.  Typed text is never changed: only the
 * missing part is inserted, quoted as that word needs it.
 */
#include <stdlib.h>
#include <string.h>

#include "complete.h"

/* A line up to the cursor. */
typedef struct typed {
  shell *sh;
  words *before;    /* whole words */
  words *last;      /* the one at the cursor; count 0 for an empty one */
  const char *text; /* how a candidate begins: that word, or for a path the part
                       after the last slash */
  size_t length;    /* of text */
  char quote;       /* '\'' or '"' while that is open, else 0 */
  bool at_word;     /* the last word has no characters yet */
  bool parent;      /* the only candidate is a znode with children */
  completion *out;
} typed;

/* ------------------------------------------------------------------------
 * Taking the line apart
 *
 * words.c splits the words before the cursor.  The word at the cursor is split
 * as if its quotation mark were closed; that mark later decides how to write a
 * name.
 * --------------------------------------------------------------------- */

/* The start of the last word; len if there is none.  Sets the open quotation
 * mark. */
static size_t typed_start(typed *t, const char *line, size_t len) {
  size_t start = len;
  bool inside = false;
  for (size_t i = 0; i < len; i++) {
    char c = line[i];
    if (t->quote) {
      if (c == t->quote) t->quote = 0;
      if (c == '\\' && t->quote == '"') i++;
      continue;
    }
    if (c == ' ' || c == '\t') {
      inside = false;
      continue;
    }
    if (!inside) start = i;
    inside = true;
    if (c == '\\') i++;
    if (c == '\'' || c == '"') t->quote = c;
  }
  return inside ? start : len;
}

/* Splits the last word, with its quotation mark closed; false if it is no
 * word. */
static bool typed_last(typed *t, const char *line, size_t len) {
  char *text = malloc(len + 2);
  if (!text) return false;
  memcpy(text, line, len);
  text[len] = t->quote;
  const char *wrong = words_split(text, len + (t->quote != 0), &t->last);
  free(text);
  return !wrong;
}

/* Splits the line into whole words and the one at the cursor; false if nothing
 * can be completed there. */
static bool typed_begin(typed *t, const char *line, size_t len) {
  size_t start = typed_start(t, line, len);
  if (start < len && line[start] == '#') return false; /* a comment */
  if (words_split(line, start, &t->before) != NULL) return false;
  if (!typed_last(t, line + start, len - start)) return false;
  t->at_word = t->last->count == 0;
  t->text = t->at_word ? "" : t->last->data[0].text;
  t->length = strlen(t->text);
  return t->at_word || t->length == t->last->data[0].len; /* no NUL */
}

/* ------------------------------------------------------------------------
 * Candidates
 *
 * A candidate is a whole name that begins with the typed text.  offer_if() and
 * its neighbours compare, offer() adds.
 * --------------------------------------------------------------------- */

/* Adds a candidate; without memory it is left out. */
static void offer(typed *t, const char *name, size_t len) {
  completion *out = t->out;
  char **larger =
      realloc(out->names, ((size_t)out->count + 1) * sizeof *larger);
  if (!larger) return;
  out->names = larger;
  char *copy = strndup(name, len);
  if (copy) out->names[out->count++] = copy;
}

static void offer_if(typed *t, const char *name) {
  if (strncmp(name, t->text, t->length) == 0) offer(t, name, strlen(name));
}

static void offer_commands(typed *t) {
  for (const command *m = NULL; (m = command_each(t->sh, m)) != NULL;)
    offer_if(t, m->name);
}

/* Offers the choices of a usage line, such as "push | pop | ack NAME": the
 * words in small letters with "|" between them, up to the first other word. */
static void offer_choices(typed *t, const char *choices) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz-";
  const char *at = choices + strspn(choices, "[ ");
  for (;;) {
    size_t len = strspn(at, letters);
    if (len == 0 || *at == '-') return;
    if (at[len] && !strchr(" |]", at[len])) return;
    if (len >= t->length && strncmp(at, t->text, t->length) == 0)
      offer(t, at, len);
    at += len;
    at += strspn(at, " ");
    if (*at != '|') return;
    at += strspn(at, "| ");
  }
}

/* The options of the command, and those of every command. */
static void offer_options(typed *t, const command *m) {
  static const char *const all[] = {"--json", "--plain", "--human"};
  char name[64];
  for (const option *o = m->options; o && o->letter; o++) {
    if (!o->name) continue;
    snprintf(name, sizeof name, "--%s", o->name);
    offer_if(t, name);
  }
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) offer_if(t, all[i]);
}

/* Is the word before the cursor's an option that takes a value? Then offers the
 * choices that its value has, if any. */
static bool offer_value(typed *t, const command *m) {
  const word *w = &t->before->data[t->before->count - 1];
  if (w->text[0] != '-' || w->len < 2) return false;
  for (const option *o = m->options; o && o->letter; o++) {
    bool is_letter = w->text[1] == o->letter && w->len == 2;
    if (!is_letter &&
        !(o->name && w->text[1] == '-' && strcmp(w->text + 2, o->name) == 0))
      continue;
    if (!o->value) return false;
    offer_choices(t, o->value);
    return true;
  }
  return false;
}

/* ------------------------------------------------------------------------
 * Znodes
 *
 * The tree is asked only if a handle is already open.  A failure offers
 * nothing: Tab prints no errors.
 * --------------------------------------------------------------------- */

/* The node above the names that a command takes instead of paths. */
static const char *base_of(const char *name) {
  static const char *const bases[][2] = {
      {"rwlock", "/rwlocks/"},  {"sem", "/semaphores/"},
      {"elect", "/elections/"}, {"barrier", "/barriers/"},
      {"queue", "/queues/"},    {"once", "/jobs/"},
      {"txn", "/txns/"}};
  for (size_t i = 0; i < sizeof bases / sizeof *bases; i++)
    if (strcmp(name, bases[i][0]) == 0) return bases[i][1];
  return "/locks/";
}

/* The path of the node before the last slash, for free(): from the working
 * node, or from base.  NULL without memory. */
static char *parent_path(typed *t, const char *base, const char *slash) {
  call c = {.sh = t->sh};
  size_t len = slash ? (size_t)(slash - t->text) + 1 : 0;
  char *text = malloc(strlen(base) + len + sizeof "."), *path = NULL;
  if (!text) return NULL;
  size_t before = *t->text == '/' ? 0 : strlen(base);
  memcpy(text, base, before);
  memcpy(text + before, t->text, len);
  if (before + len == 0) text[len++] = '.'; /* nothing is typed yet */
  text[before + len] = '\0';
  word w = {text, before + len, false};
  if (path_join(&c, &w, &path) != 0) path = NULL;
  free(text);
  if (path && path[1] && path[strlen(path) - 1] == '/')
    path[strlen(path) - 1] = '\0';
  return path;
}

/* There is one candidate: records whether it has children, so that a slash may
 * follow. */
static void look_whole(typed *t, const char *parent, const char *name) {
  zke_stat stat;
  char *path;
  if (asprintf(&path, "%s%s%s", parent, parent[1] ? "/" : "", name) < 0) return;
  t->parent =
      zke_exists(session_looker(t->sh), path, NULL, NULL, &stat) == ZKE_OK &&
      stat.numChildren > 0;
  free(path);
}

/* Offers the children of the typed node: below base for a name, else of the
 * path.  Asks only a handle that is already open: Tab opens no file. */
static void offer_nodes(typed *t, const char *base) {
  const char *slash = strrchr(t->text, '/');
  zke_strings *names;
  zke *z = session_looker(t->sh);
  if (!z) return;
  char *parent = parent_path(t, base, slash);
  if (!parent) return;
  if (slash) t->length = strlen(t->text = slash + 1);
  if (zke_children(z, parent, NULL, NULL, &names, NULL) == ZKE_OK) {
    for (int i = 0; i < names->count; i++) offer_if(t, names->data[i]);
    zke_free(names);
  }
  if (t->out->count == 1) look_whole(t, parent, t->out->names[0]);
  free(parent);
}

/* ------------------------------------------------------------------------
 * Kinds of candidates
 *
 * The command's usage line decides which kind of candidates fits.  So a new
 * command needs no line here.
 * --------------------------------------------------------------------- */

/* The candidates for an argument, from the usage line. */
static void offer_argument(typed *t, const command *m, int first) {
  int given = 0;
  for (int i = first; i < t->before->count; i++) {
    if (word_is(&t->before->data[i], "--")) return;
    given += t->before->data[i].text[0] != '-';
  }
  const char *name = strstr(m->usage, "NAME");
  bool paths = strstr(m->usage, "PATH") || strstr(m->usage, "SRC");
  if (given == 0) offer_choices(t, m->usage);
  if (strstr(m->usage, "COMMAND") && given == 0)
    offer_commands(t);
  else if (name && given == 0)
    offer_nodes(t, base_of(t->before->data[0].text));
  else if (paths)
    offer_nodes(t, "");
}

/* The command first, then options, their values, or arguments. */
static void offer_all(typed *t) {
  int first;
  if (t->before->count == 0) {
    offer_commands(t);
    return;
  }
  const command *m =
      command_asked(t->sh, t->before->data, t->before->count, &first);
  if (!m) return;
  if (*t->text == '-')
    offer_options(t, m);
  else if (!offer_value(t, m))
    offer_argument(t, m, first);
}

/* ------------------------------------------------------------------------
 * The certain part
 *
 * The common beginning of all candidates is inserted, in whole characters,
 * quoted for the open mark.  If there is only one candidate, the end of the
 * word is certain as well.
 * --------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The length of the common beginning, in whole characters. */
static size_t common_length(const completion *out) {
  const char *first = out->names[0];
  size_t len = strlen(first);
  for (int i = 1; i < out->count; i++) {
    size_t same = 0;
    while (same < len && first[same] == out->names[i][same]) same++;
    len = same;
  }
  while (len > 0 && (first[len] & 0xc0) == 0x80) len--;
  return len;
}

/* One character as it must be typed inside the open quotation mark. */
static char *put_quoted(char *to, char c, const typed *t, bool first) {
  const char *special = t->quote == '"' ? "\"\\" : " \t'\"\\";
  if (t->quote == '\'') {
    if (c == '\'') to = stpcpy(to, "'\\'");
  } else if (strchr(special, c) || (c == '#' && first)) {
    *to++ = '\\';
  }
  *to++ = c;
  return to;
}

/* The end of a complete name: a blank or a slash. */
static char *put_end(char *to, const typed *t, bool added) {
  if (t->parent) {
    if (!added) *to++ = '/';
    return to;
  }
  if (t->quote) *to++ = t->quote;
  *to++ = ' ';
  return to;
}

/* The certain continuation, inside the open quotation mark, for free(); NULL
 * without memory. */
static char *insert_make(const typed *t) {
  const char *name = t->out->names[0];
  size_t len = common_length(t->out), from = t->length;
  if (len < from) len = from;
  char *insert = malloc((len - from) * 4 + 3), *to = insert;
  if (!insert) return NULL;
  for (size_t i = from; i < len; i++)
    to = put_quoted(to, name[i], t, t->at_word && i == 0);
  if (t->out->count == 1) to = put_end(to, t, len > from);
  *to = '\0';
  return insert;
}

/* Splits the line, gathers candidates, and finds their common beginning. */
void complete_line(shell *sh, const char *line, size_t len, completion *out) {
  typed t = {.sh = sh, .out = out};
  if (typed_begin(&t, line, len)) offer_all(&t);
  if (out->count) {
    qsort(out->names, (size_t)out->count, sizeof *out->names, compare_names);
    out->insert = insert_make(&t);
    if (!out->insert) complete_free(out);
  }
  free(t.before);
  free(t.last);
}

/* May be called twice, and if complete_line() found nothing. */
void complete_free(completion *out) {
  for (int i = 0; i < out->count; i++) free(out->names[i]);
  free(out->names);
  free(out->insert);
  *out = (completion){NULL, 0, NULL};
}
