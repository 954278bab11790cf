/* args.c - a call's words as its command needs them: options and their values,
 * arguments, paths, and the words after "--"
 *
 * args_sort() sorts the words once, before the command runs; the command then
 * asks by option_given(), option_word(), option_…() and arg_…().  The words of
 * a call lie in one block, in three parts of as many words each as were given:
 *
 *     [ the words ][ spare words ][ arguments ]
 *
 * A spare word is the value of an option written as --name=value; the arguments
 * are all words but options and values.  No text is copied.
 *
 * Everything that can be refused is refused here, before a file is created or
 * anything is held: unknown options, too many arguments, values out of bounds.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shell.h"

/* ------------------------------------------------------------------------
 * Sorting the words into options, arguments and a child's
 *
 * One pass over the words fills three places: c->values has an entry for each
 * option of the command's table, c->args the arguments, and c->child the words
 * after "--".  A literal word never becomes an option.
 * --------------------------------------------------------------------- */

static const option no_options[] = {{'\0', NULL, NULL}};

static const option *options_of(const call *c) {
  return c->command->options ? c->command->options : no_options;
}

/* The letter's index in the command's table; -1 if it is not there. */
static int option_index(const call *c, char letter) {
  const option *o = options_of(c);
  for (int i = 0; o[i].letter; i++)
    if (o[i].letter == letter) return i;
  return -1;
}

bool option_given(const call *c, char letter) {
  return option_word(c, letter) != NULL;
}

/* An option's value as given; NULL if the option is absent. */
const word *option_word(const call *c, char letter) {
  int i = option_index(c, letter);
  return i < 0 ? NULL : c->values[i];
}

/* Takes --json, --plain or --human, which every command has; false for any
 * other word. */
static bool sort_format(call *c, const char *name) {
  static const char *const names[] = {[FORMAT_HUMAN] = "--human",
                                      [FORMAT_JSON] = "--json",
                                      [FORMAT_PLAIN] = "--plain"};
  for (int i = 0; i < 3; i++)
    if (strcmp(name, names[i]) == 0) {
      c->format = i;
      return true;
    }
  return false;
}

/* Is the next word an option's value?  "--" is not: it ends the options. */
static bool value_follows(const words *w, int i) {
  return i + 1 < w->count &&
         (w->data[i + 1].literal || !word_is(&w->data[i + 1], "--"));
}

/* What an option wants, for a sentence. */
static const char *value_words(const option *o) {
  return strcmp(o->value, "DURATION") == 0 ? "a duration" : o->value;
}

/* An option --name, --name=value or --name value; 0 or STATUS_USAGE.
 *
 *   i  the word's index; in the last form it becomes that of the value */
static int sort_long(call *c, const words *w, int *i) {
  const word *given = &w->data[*i];
  const char *equals = strchr(given->text, '=');
  size_t len = equals ? (size_t)(equals - given->text) : given->len;
  const option *o = options_of(c);
  while (o->letter && (!o->name || strlen(o->name) != len - 2 ||
                       memcmp(o->name, given->text + 2, len - 2) != 0))
    o++;
  if (!o->letter)
    return fail_usage(c, "%s has no option %.*s", c->command->name, (int)len,
                      given->text);
  const word **value = &c->values[o - options_of(c)];
  if (!o->value) {
    if (equals) return fail_usage(c, "--%s takes no value", o->name);
    *value = given;
  } else if (equals) {
    /* the value is the end of the text, and needs a new word */
    word *spare = &w->data[w->count + *i];
    *spare = (word){equals + 1, given->len - len - 1, true};
    *value = spare;
  } else if (value_follows(w, *i)) {
    *value = &w->data[++*i];
  } else {
    return fail_usage(c, "--%s wants %s", o->name, value_words(o));
  }
  return 0;
}

/* Options by their letters: -abc, -w5 or -w 5; as sort_long(). */
static int sort_short(call *c, const words *w, int *i) {
  const word *given = &w->data[*i];
  for (const char *at = given->text + 1; *at; at++) {
    int index = option_index(c, *at);
    if (index < 0 && *at == 'n' && option_index(c, 'N') >= 0)
      return fail_usage(
          c, "-n is a number in other commands; --nonblock does not wait");
    if (index < 0)
      return fail_usage(c,
                        "%s has no option -%c; an argument that begins with "
                        "\"-\" goes after \"--\"",
                        c->command->name, *at);
    const option *o = &options_of(c)[index];
    if (!o->value) {
      c->values[index] = given;
      continue;
    }
    if (at[1]) {
      word *spare = &w->data[w->count + *i];
      *spare =
          (word){at + 1, given->len - (size_t)(at + 1 - given->text), true};
      c->values[index] = spare;
    } else if (value_follows(w, *i)) {
      c->values[index] = &w->data[++*i];
    } else {
      return fail_usage(c, "-%c wants %s", *at, value_words(o));
    }
    return 0;
  }
  return 0;
}

/* May a command follow "--"?  If not, as in a coprocess, "--" only ends the
 * options. */
static bool takes_child(const call *c) {
  unsigned flags = c->command->flags;
  if (!(flags & TAKES_CHILD) || c->id) return false;
  return !(flags & CHILD_IF_EPHEMERAL) || option_given(c, 'e');
}

/* Takes the words after "--": a command, or arguments. */
static void sort_rest(call *c, const words *w, int i, word *args) {
  if (takes_child(c)) {
    c->child = &w->data[i];
    c->child_count = w->count - i;
    return;
  }
  for (; i < w->count; i++) args[c->count++] = w->data[i];
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Is the word an option?  "-5" is a number, and "-" standard input. */
static bool is_option(const word *w) {
  return !w->literal && w->text[0] == '-' && w->len > 1 &&
         !is_digit(w->text[1]);
}

/* Is the word an option of the command whose value is the next word? */
static bool takes_next(const command *m, const word *w) {
  const char *letter = w->text[1] == '-' ? NULL : w->text + 1;
  for (; !letter || *letter; letter++) {
    for (const option *o = m->options; o->letter; o++) {
      bool is_it = letter ? o->letter == *letter
                          : o->name && strcmp(o->name, w->text + 2) == 0;
      if (is_it && o->value) return !letter || !letter[1];
    }
    if (!letter) break;
  }
  return false;
}

bool args_follow(const command *m, const command *n, const word *data,
                 int count) {
  for (int i = 0; i < count; i++) {
    const word *w = &data[i];
    if (!w->literal && word_is(w, "--")) return false;
    if (!is_option(w) || word_is(w, "--help")) return true;
    if (takes_next(m, w) || takes_next(n, w)) i++;
  }
  return false;
}

/* Reads the words once.  Options may stand between arguments, unless the
 * command wants them first; "--" ends them. */
static int sort_words(call *c, const words *w, word *args) {
  for (int i = 1; i < w->count; i++) {
    const word *given = &w->data[i];
    int status = 0;
    if (c->command->flags & OPTIONS_FIRST && c->count > 0) {
      args[c->count++] = *given;
      continue;
    }
    if (!given->literal && word_is(given, "--")) {
      sort_rest(c, w, i + 1, args);
      break;
    }
    if (!is_option(given))
      args[c->count++] = *given;
    else if (strlen(given->text) != given->len)
      status = fail_usage(c, "there is a NUL in an option");
    else if (!(c->command->flags & NO_FORMAT) && sort_format(c, given->text))
      continue;
    else if (given->text[1] == '-')
      status = sort_long(c, w, &i);
    else
      status = sort_short(c, w, &i);
    if (status) return status;
  }
  return 0;
}

/* An explanation of a superfluous argument: for a command that can run another
 * one, it may have been meant as that. */
static const char *why_no_child(const call *c) {
  if (!(c->command->flags & TAKES_CHILD) || c->child) return "";
  if (c->id) return ": a coprocess runs no commands";
  if (takes_child(c)) return ": a command to run goes after \"--\"";
  return ": a command to run can only follow with -e";
}

/* The names of the missing arguments from the command's usage: "SRC DST".
 * Empty if the usage has alternatives instead. */
static void missing_names(const call *c, char *names, size_t size) {
  int depth = 0, index = 0;
  size_t used = 0, len;
  names[0] = '\0';
  for (const char *at = c->command->usage; *at && index < c->command->least;
       at += len) {
    len = strcspn(at, "[] ");
    if (len == 0) {
      depth += (*at == '[') - (*at == ']');
      len = 1;
    } else if (depth == 0 && *at == '|') {
      return;
    } else if (depth == 0 && *at != '-' && index++ >= c->count) {
      used += (size_t)snprintf(names + used, size - used, "%s%.*s",
                               used ? " " : "", (int)len, at);
      if (used >= size) return;
    }
  }
}

/* Reports the missing arguments. */
static int fail_missing(call *c) {
  const command *m = c->command;
  char names[64];
  const char *which = m->least > 1 ? "" : "an ";
  bool several = m->least - c->count > 1;
  if (c->count) which = several ? "more " : "another ";
  missing_names(c, names, sizeof names);
  return fail_usage(c, "%s wants %sargument%s%s%s", m->name, which,
                    several ? "s" : "", *names ? ": " : "", names);
}

/* Was the option of that name given?  Not each command has it. */
static bool is_given(const call *c, const char *name) {
  for (int i = 0; options_of(c)[i].letter; i++) {
    const option *o = &options_of(c)[i];
    if (o->name && strcmp(o->name, name) == 0) return c->values[i] != NULL;
  }
  return false;
}

/* Is the number of arguments right, and is there a command to run if one is
 * needed?  0 or STATUS_USAGE. */
static int check_counts(call *c) {
  const command *m = c->command;
  if (c->count < m->least) return fail_missing(c);
  if (m->most >= 0 && c->count > m->most)
    return fail_usage(c, "\"%s\" is one argument too many%s",
                      c->args[m->most].text, why_no_child(c));
  if ((m->flags & NEEDS_CHILD) == NEEDS_CHILD && c->child_count == 0)
    return fail_usage(c, "%s wants a command to run after \"--\"", m->name);
  if (c->child && c->child_count == 0)
    return fail_usage(c, "there is no command after \"--\"");
  if (is_given(c, "wait") && is_given(c, "nonblock"))
    return fail_usage(c, "--wait or --nonblock, not both");
  return 0;
}

/* Makes the block of the file's head and the options' values, and sorts. */
static int sort_all(call *c, const words *given) {
  size_t n = (size_t)given->count, options = 0;
  while (options_of(c)[options].letter) options++;
  c->block = malloc(sizeof *c->block + 3 * n * sizeof(word));
  c->values = calloc(options + 1, sizeof(const word *));
  if (!c->block || !c->values)
    return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  words *w = c->block;
  w->count = given->count;
  w->data = (word *)(w + 1);
  memcpy(w->data, given->data, n * sizeof(word));
  word *args = w->data + 2 * n;
  c->args = args;
  return sort_words(c, w, args);
}

/* ------------------------------------------------------------------------
 * Values of options
 *
 * Each function reads one option as one type; its errors use the name by which
 * a person knows the option.  An option that is not given has the caller's
 * default, or waits for ever.
 * --------------------------------------------------------------------- */

/* The option as a person writes it, for a sentence; text is its buffer. */
static const char *option_text(const call *c, char letter, char text[32]) {
  const option *o = &options_of(c)[option_index(c, letter)];
  if (o->name)
    snprintf(text, 32, "--%s", o->name);
  else
    snprintf(text, 32, "-%c", o->letter);
  return text;
}

/* An error names the limits. */
int option_number(call *c, char letter, int64_t least, int64_t most,
                  int64_t otherwise, int64_t *out) {
  char name[32];
  const word *w = option_word(c, letter);
  if (!w) {
    *out = otherwise;
  } else if (!word_number(w, out) || *out < least || *out > most) {
    return fail_usage(
        c, "%s wants a number from %" PRId64 " to %" PRId64 ", not \"%s\"",
        option_text(c, letter, name), least, most, w->text);
  }
  return 0;
}

/* An error names the units. */
int option_duration(call *c, char letter, int64_t otherwise, int64_t *ms_out) {
  char name[32];
  const word *w = option_word(c, letter);
  if (!w)
    *ms_out = otherwise;
  else if (!word_duration(w, ms_out))
    return fail_usage(c,
                      "%s wants seconds, or a number with ms, s, m, h or d, "
                      "not \"%s\"",
                      option_text(c, letter, name), w->text);
  return 0;
}

/* Counts from now, so a command calls it once, before it waits. */
int option_deadline(call *c, char letter, int64_t *deadline_out) {
  int64_t ms;
  int status = option_duration(c, letter, -1, &ms);
  if (!status) *deadline_out = ms < 0 ? ZKE_FOREVER : zke_now(c->z) + ms;
  return status;
}

/* An error shows each valid form. */
int option_time(call *c, char letter, int64_t otherwise, int64_t *ms_out) {
  char name[32];
  const word *w = option_word(c, letter);
  if (!w)
    *ms_out = otherwise;
  else if (!word_time(w, clock_wall_ms(), ms_out))
    return fail_usage(c,
                      "%s wants a time such as 2026-11-20T12:00:00Z, or how "
                      "long ago it was, such as 90s, 5m or 2h, not \"%s\"",
                      option_text(c, letter, name), w->text);
  return 0;
}

/* ------------------------------------------------------------------------
 * All of it
 *
 * The order is: sort, count, check values.  So a superfluous word is reported
 * before a malformed duration.
 * --------------------------------------------------------------------- */

/* Checks all durations and exit codes, which are the same for every command. */
static int check_values(call *c) {
  int64_t number;
  int status = 0;
  for (const option *o = options_of(c); o->letter && !status; o++)
    if (o->value && strcmp(o->value, "DURATION") == 0)
      status = option_duration(c, o->letter, 0, &number);
    else if (o->value && strcmp(o->value, "CODE") == 0)
      status = option_number(c, o->letter, 0, 255, 0, &number);
  return status;
}

int args_sort(call *c, const words *given) {
  int status = sort_all(c, given);
  if (!status) status = check_counts(c);
  return status ? status : check_values(c);
}

/* The texts belong to the caller. */
void args_free(call *c) {
  free(c->values);
  free(c->block);
}

/* ------------------------------------------------------------------------
 * Arguments
 *
 * A command gets absolute paths: a relative one is put after the working node,
 * or after a recipe's directory.  Only relative ones are normalized.  An
 * absolute one reaches the engine unchanged.
 * --------------------------------------------------------------------- */

/* Appends one name of a relative path to a path that has room for it.  "."
 * changes nothing, ".." removes the last name, and an empty name is skipped. */
static void path_add(char *path, const char *name, size_t len) {
  if (len == 0 || (len == 1 && *name == '.')) return;
  char *end = path + strlen(path);
  if (len == 2 && memcmp(name, "..", 2) == 0) {
    char *slash = strrchr(path, '/');
    slash[slash == path] = '\0';
    return;
  }
  if (end[-1] != '/') *end++ = '/';
  memcpy(end, name, len);
  end[len] = '\0';
}

/* Copied under the mutex, since another call of a coprocess may change it. */
char *shell_cwd(shell *sh) {
  pthread_mutex_lock(&sh->m);
  char *cwd = strdup(sh->cwd ? sh->cwd : "/");
  pthread_mutex_unlock(&sh->m);
  return cwd;
}

/* An absolute path stays unchanged, for the engine to judge as ZooKeeper does.
 * A relative one is built name by name; the block has room for both parts. */
int path_join(call *c, const word *text, char **path_out) {
  if (strlen(text->text) != text->len)
    return fail_with(c, STATUS_DATA, "BADARGUMENTS",
                     "there is a NUL in the path \"%s\"", text->text);
  if (text->len == 0) /* an unset variable does not mean the root */
    return fail_with(c, STATUS_DATA, "BADARGUMENTS", "\"\" is not a path");
  char *cwd = shell_cwd(c->sh);
  size_t len = cwd ? strlen(cwd) : 0;
  char *path = malloc(len + text->len + 2);
  if (!cwd || !path) {
    free(cwd);
    free(path);
    return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  }
  if (text->text[0] == '/') {
    memcpy(path, text->text, text->len + 1); /* as ZooKeeper sees it */
  } else {
    memcpy(path, cwd, len + 1);
    for (const char *at = text->text;; at++) {
      len = strcspn(at, "/");
      path_add(path, at, len);
      at += len;
      if (!*at) break;
    }
    /* create -s takes a parent with a slash at its end. */
    if (text->text[text->len - 1] == '/' && path[1])
      memcpy(path + strlen(path), "/", sizeof "/");
  }
  free(cwd);
  *path_out = path;
  return 0;
}

/* path_join(), without a slash at the end. */
int arg_path(call *c, int i, char **path_out) {
  static const word here = {".", 1, false};
  int status = path_join(c, i < c->count ? &c->args[i] : &here, path_out);
  if (!status) path_trim(*path_out);
  return status;
}

/* Removes one trailing slash, which people type and ZooKeeper refuses.  Two
 * slashes are no slip: both stay, so that the engine refuses the path and its
 * sentence shows them.  But "//" is the root with a trailing slash. */
void path_trim(char *path) {
  size_t len = strlen(path);
  if (len < 2 || path[len - 1] != '/') return;
  if (len == 2 || path[len - 2] != '/') path[len - 1] = '\0';
}

/* A name without a leading slash is put after the recipe's directory unchanged:
 * the engine refuses ".." in it, as in any absolute path. */
int place_path(call *c, const word *name, const char *base, char **path_out) {
  if (name->text[0] == '/') return path_join(c, name, path_out);
  if (name->len == 0 || strlen(name->text) != name->len)
    return fail_with(c, STATUS_DATA, "BADARGUMENTS", "\"%s\" is not a name",
                     name->text);
  char *path = malloc(strlen(base) + name->len + 3);
  if (!path) return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  sprintf(path, "/%s/%s", base, name->text);
  *path_out = path;
  return 0;
}

int arg_place(call *c, int i, const char *base, char **path_out) {
  return place_path(c, &c->args[i], base, path_out);
}
