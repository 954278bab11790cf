/* run.c - from words to a call of a command: find it, run it, report
 *
 * run_words() is the only way in, for a command line, for a line of a script or
 * a person, and for a request of a coprocess.  Start there.  commands.c lists
 * the commands, for shell.tables.
 */
#include <stdlib.h>
#include <string.h>

#include "shell.h"

/* ------------------------------------------------------------------------
 * The tables of commands
 *
 * A command is found by its exact name.  Only the error about an unknown name
 * guesses.
 * --------------------------------------------------------------------- */

/* The next command after this one, hidden ones included. */
static const command *command_next(const shell *sh, const command *before) {
  bool found = !before;
  for (const command_table *table = sh->tables; table->commands; table++)
    for (const command *m = table->commands; m->name; m++) {
      if (found) return m;
      found = m == before;
    }
  return NULL;
}

/* The visible commands in the order of the tables; NULL begins. */
const command *command_each(const shell *sh, const command *before) {
  do before = command_next(sh, before);
  while (before && before->flags & HIDDEN);
  return before;
}

/* A table's first command is a visible one. */
const char *command_heading(const shell *sh, const command *m) {
  for (const command_table *table = sh->tables; table->commands; table++)
    if (table->commands == m) return table->heading;
  return NULL;
}

/* Hidden commands are found too: they are old names. */
const command *command_find(const shell *sh, const word *name) {
  const command *m = NULL;
  while ((m = command_next(sh, m)) != NULL && !word_is(name, m->name)) continue;
  return m;
}

/* With VERBS the next word must be a verb.  With CAN_HAVE_VERB it may also be
 * an argument that is spelled like one: `lock take -- job` holds the lock
 * "take", and `lock take backup` has the verb. */
const command *command_asked(const shell *sh, const word *data, int count,
                             int *used_out) {
  const command *m = count ? command_find(sh, &data[0]) : NULL;
  char name[64];
  *used_out = m && m->flags & VERBS ? 2 : 1;
  if (!m || !(m->flags & (VERBS | CAN_HAVE_VERB))) return m;
  const command *otherwise = m->flags & VERBS ? NULL : m;
  if (count < 2) return m;
  snprintf(name, sizeof name, "%s %s", m->name, data[1].text);
  const command *verb = command_find(sh, &(word){name, strlen(name), false});
  if (!verb || (otherwise && !args_follow(m, verb, data + 2, count - 2)))
    return otherwise;
  *used_out = 2;
  return verb;
}

/* How many letters must be inserted, removed, changed or exchanged with their
 * neighbours (Damerau's distance). */
static int distance(const char *a, const char *b) {
  enum { MOST = 32 };
  int row[3][MOST + 1];
  size_t n = strlen(a), m = strlen(b);
  if (n > MOST || m > MOST) return MOST;
  for (size_t j = 0; j <= m; j++) row[0][j] = (int)j;
  for (size_t i = 1; i <= n; i++) {
    int *now = row[i % 3], *last = row[(i + 2) % 3], *older = row[(i + 1) % 3];
    now[0] = (int)i;
    for (size_t j = 1; j <= m; j++) {
      int best = last[j - 1] + (a[i - 1] != b[j - 1]);
      if (last[j] + 1 < best) best = last[j] + 1;
      if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
          older[j - 2] + 1 < best)
        best = older[j - 2] + 1;
      now[j] = best;
    }
  }
  return row[n % 3][m];
}

/* Appends the nearest names that may have been meant. */
static void name_nearest(const shell *sh, const char *name, char *text,
                         size_t size) {
  int best = strlen(name) < 4 ? 1 : 2;
  const char *before = "; did you mean ";
  for (const command *m = NULL; (m = command_each(sh, m)) != NULL;) {
    int d = distance(name, m->name);
    if (d < best) best = d;
  }
  for (const command *m = NULL; (m = command_each(sh, m)) != NULL;) {
    bool begins = strlen(name) > 1 && strncmp(m->name, name, strlen(name)) == 0;
    if (distance(name, m->name) > best && !begins) continue;
    size_t len = strlen(text);
    snprintf(text + len, size - len, "%s%s", before, m->name);
    before = ", ";
  }
}

/* Names that users of sh, zkCli or SQLite's shell type.  SQLite's have a dot in
 * front. */
static const struct {
  const char *habit, *commands;
} habits[] = {{"rm", "delete, deleteall"},
              {"rmdir", "delete"},
              {"rmr", "deleteall"},
              {"remove", "delete, deleteall"},
              {"who", "sessions, locks"},
              {"ps", "sessions, top"},
              {"whoami", "session"},
              {"kill", "expire"},
              {"cat", "get"},
              {"read", "get"},
              {"select", "sql"},
              {"put", "set, create"},
              {"write", "set, create"},
              {"echo", "set, create"},
              {"update", "set"},
              {"insert", "create"},
              {"touch", "create"},
              {"mkdir", "create"},
              {"list", "ls"},
              {"dir", "ls"},
              {"ls2", "ls"},
              {"tables", "ls, tree"},
              {"schema", "tree"},
              {"mv", "cp, delete"},
              {"rename", "cp, delete"},
              {"copy", "cp"},
              {"save", "backup"},
              {"du", "count"},
              {"grep", "find"},
              {"chmod", "setacl"},
              {"chown", "setacl"},
              {"lsof", "locks"},
              {"flock", "lock"},
              {"unlock", "release"},
              {"semaphore", "sem"},
              {"election", "elect"},
              {"addWatch", "watch"},
              {"getEphemerals", "ephemerals"},
              {"close", "exit"},
              {"bye", "exit"},
              {"logout", "exit"},
              {"man", "help"},
              {"?", "help"},
              {"fsck", "check, doctor"},
              {"vacuum", "compact"},
              {"start", "serve"}};

/* The commands for such a name, or NULL. */
static const char *name_habit(const char *name) {
  if (*name == '.') name++;
  for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
    if (strcmp(habits[i].habit, name) == 0) return habits[i].commands;
  return NULL;
}

/* Suggests the commands with that name elsewhere, or those with a similar
 * spelling. */
int fail_unknown(call *c, const word *name) {
  char nearest[256] = "";
  const char *habit = name_habit(name->text);
  if (habit)
    snprintf(nearest, sizeof nearest, "; did you mean %s", habit);
  else
    name_nearest(c->sh, name->text, nearest, sizeof nearest);
  return fail_with(c, STATUS_USAGE, "USAGE", "unknown command \"%s\"%s%s",
                   name->text, nearest, *nearest ? "?" : "; help lists them");
}

/* ------------------------------------------------------------------------
 * Running
 *
 * run_words() is the whole life of a call: find the command, sort its words,
 * open the store, run it, print the rest.  If a step fails it records why in
 * the call, and the next ones are left out; whatever was begun is ended in any
 * case.
 * --------------------------------------------------------------------- */

/* One command from its words to its last row: the status is the command's, or
 * that of the output if the command succeeded. */
static int call_run(call *c, const words *w) {
  c->style = c->command->style;
  int status = args_sort(c, w);
  if (!status && c->command->flags & NOT_IN_COPROCESS && c->id)
    status = fail_with(c, STATUS_USAGE, "USAGE", "%s cannot run in a coprocess",
                       c->command->name);
  if (!status) status = session_open(c, c->command->flags);
  if (!status) status = c->command->run(c);
  progress_end(c);
  int written = output_end(c);
  return status ? status : written;
}

/* Why the words name no row: the command is unknown, or its verb is. */
static int fail_unasked(call *c, const words *w) {
  c->command = command_find(c->sh, &w->data[0]);
  if (!c->command) return fail_unknown(c, &w->data[0]);
  if (w->count < 2) return fail_usage(c, "%s wants a verb", c->command->name);
  return fail_usage(c, "there is no command \"%s %s\"", c->command->name,
                    w->data[1].text);
}

/* "get --help", "queue push --help": the words of `help get`. */
static bool asks_for_help(const shell *sh, const words *given, word help[3]) {
  int last = given->count - 1, used;
  if (last <= 0 || !command_find(sh, &given->data[0])) return false;
  command_asked(sh, given->data, given->count, &used);
  if (last > used) return false;
  if (given->data[last].literal || !word_is(&given->data[last], "--help"))
    return false;
  help[0] = (word){"help", strlen("help"), false};
  memcpy(help + 1, given->data, (size_t)last * sizeof *help);
  return true;
}

/* Signals reach the call from signals_enter() on, before anything is opened. */
int run_words(call *c, const words *given) {
  if (given->count == 0) return STATUS_OK;
  word help[3];
  words asked = *given;
  if (asks_for_help(c->sh, given, help)) asked.data = help;
  int used, status = 0;
  c->format = c->sh->format;
  c->command = command_asked(c->sh, asked.data, asked.count, &used);
  if (!c->command || c->command->flags & VERBS)
    status = fail_unasked(c, &asked);
  asked.data += used - 1;
  asked.count -= used - 1;
  if (!status) {
    signals_enter(c);
    status = call_run(c, &asked);
    signals_leave(c);
  }
  if (c->status && !c->id) output_error(c);
  return status;
}

/* Releases the call's memory.  Kept rows are dropped. */
void run_call_free(call *c) {
  args_free(c);
  output_forget(c);
}

/* Splits the line and runs it; reports a line that cannot be split. */
int run_line(shell *sh, const char *line, size_t len) {
  call c = {.sh = sh, .format = sh->format};
  words *w;
  int status;
  const char *wrong = memchr(line, '\0', len) ? "there is a NUL in the line"
                                              : words_split(line, len, &w);
  if (wrong) {
    status = fail_with(&c, STATUS_USAGE, "USAGE", "%s", wrong);
    output_error(&c);
    return status;
  }
  status = run_words(&c, w);
  run_call_free(&c);
  free(w);
  return status;
}
