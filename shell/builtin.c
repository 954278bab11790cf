/* builtin.c - commands about the shell itself
 *
 * help, cd, pwd, mode, session and exit: they read and set the shell's state,
 * and none of them changes the tree.  help is made from the tables of all
 * commands.
 */
#include <stdlib.h>
#include <string.h>

#include "shell.h"

/* ------------------------------------------------------------------------
 * help
 *
 * Everything shown comes from the tables of commands (shell.h) and from help.c,
 * which describes the options.  A command without a row does not exist.
 * --------------------------------------------------------------------- */

/* A row for a command, with its options in it. */
static int help_command(call *c, const command *m) {
  json_t *row = json_pack("{s:s,s:s,s:s}", "command", m->name, "usage",
                          m->usage, "summary", m->summary);
  json_t *list = json_array();
  for (const option *o = m->options; o && o->letter; o++)
    json_array_append_new(
        list,
        json_pack("{s:s*,s:s#,s:s*,s:s*}", "name", o->name, "letter",
                  &o->letter, 1, "value", o->value, "text", option_help(m, o)));
  if (row) json_object_set_new(row, "options", list);
  if (row && command_note(m))
    json_object_set_new(row, "note", json_string(command_note(m)));
  return emit_row(c, row);
}

/* A command with its verbs, if it has some: their rows follow it in the
 * table. */
static int help_one(call *c, const char *name) {
  const word w = {name, strlen(name), false};
  const command *m = command_find(c->sh, &w);
  if (!m) return fail_unknown(c, &w);
  int status = help_command(c, m);
  if (!(m->flags & (VERBS | CAN_HAVE_VERB))) return status;
  for (m++; !status && m->name && strchr(m->name, ' '); m++)
    status = help_command(c, m);
  return status;
}

/* help: all commands, or what the words name, which may be a command and its
 * verb. */
static int help_run(call *c) {
  char name[64];
  snprintf(name, sizeof name, "%s%s%s", c->count ? c->args[0].text : "",
           c->count > 1 ? " " : "", c->count > 1 ? c->args[1].text : "");
  if (c->count) return help_one(c, name);
  const char *group = NULL;
  for (const command *m = NULL; (m = command_each(c->sh, m)) != NULL;) {
    const char *heading = command_heading(c->sh, m);
    if (heading) group = heading;
    int status =
        emit_row(c, json_pack("{s:s,s:s,s:s,s:s*}", "command", m->name, "usage",
                              m->usage, "summary", m->summary, "group", group));
    if (status) return status;
  }
  return 0;
}

/* Is the letter for users?  Options without a letter have one in the table,
 * too: a capital or a digit, and some of those are real options. */
static bool letter_is_told(const char *letter, const char *name) {
  return (*letter >= 'a' && *letter <= 'z') ||
         (strchr("ACDELOR", *letter) && strcmp(name, "on-lost") != 0);
}

/* "      -w, --wait DURATION    wait no longer than that" */
static void help_option(const json_t *o, FILE *out) {
  const char *letter, *name = "", *value = "", *text = "";
  char left[64];
  json_unpack((json_t *)(uintptr_t)o, "{s:s,s?s,s?s,s?s}", "letter", &letter,
              "name", &name, "value", &value, "text", &text);
  bool told = letter_is_told(letter, name);
  if (told && *name)
    snprintf(left, sizeof left, "-%s, --%s", letter, name);
  else if (told)
    snprintf(left, sizeof left, "-%s", letter);
  else
    snprintf(left, sizeof left, "--%s", name);
  size_t len = strlen(left);
  if (*value) snprintf(left + len, sizeof left - len, " %s", value);
  output_wrapped(out, text, 80, fprintf(out, "      %-30s  ", left), 38);
}

/* One line a command in the list; for a single command its usage and its
 * options.  A command with verbs shows only their usage: the options of all of
 * them would fill several screens, and each verb has its own help. */
static void help_human(call *c, json_t *row, FILE *out) {
  const char *name, *usage, *summary;
  size_t i;
  json_t *o;
  json_unpack(row, "{s:s,s:s,s:s}", "command", &name, "usage", &usage,
              "summary", &summary);
  const word w = {name, strlen(name), false};
  const command *m = command_find(c->sh, &w);
  if (!c->count) {
    const char *heading = command_heading(c->sh, m);
    if (heading) fprintf(out, "%s%s:\n", c->told ? "\n" : "", heading);
    output_wrapped(out, summary, 80, fprintf(out, "  %-12s ", name), 15);
    return;
  }
  int column = fprintf(out, "%s%s", name, *usage ? " " : "");
  output_wrapped(out, usage, 80, column, 8);
  output_wrapped(out, summary, 80, fprintf(out, "    "), 4);
  if (m->flags & VERBS)
    fprintf(out, "    help %s VERB explains one of these:\n", name);
  if (strchr(name, ' ') && c->count == 1 && !word_is(&c->args[0], name)) return;
  json_array_foreach(json_object_get(row, "options"), i, o) {
    help_option(o, out);
  }
  const char *note = json_string_value(json_object_get(row, "note"));
  if (note) fprintf(out, "\n%s", note);
}

/* ------------------------------------------------------------------------
 * The working node, the format, the end
 *
 * These set a member of the shell, for later commands in the same script,
 * prompt or coprocess.  A single command line has no later ones.
 * --------------------------------------------------------------------- */

/* The node must exist, as a directory must. */
static int cd_run(call *c) {
  static const word root = {"/", 1, false};
  char *path;
  int status = c->count ? arg_path(c, 0, &path) : path_join(c, &root, &path);
  if (status) return status;
  int rc = zke_exists(c->z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK) {
    free(path);
    return fail_rc(c, rc);
  }
  pthread_mutex_lock(&c->sh->m);
  char *before = c->sh->cwd;
  c->sh->cwd = path;
  pthread_mutex_unlock(&c->sh->m);
  free(before);
  return 0;
}

/* pwd: the start of relative paths. */
static int pwd_run(call *c) {
  char *cwd = shell_cwd(c->sh);
  int status = emit_row(c, cwd ? json_pack("{s:s}", "path", cwd) : NULL);
  free(cwd);
  return status;
}

/* mode: prints or sets the format of all later output. */
static int mode_run(call *c) {
  static const char *const names[] = {"human", "json", "plain"};
  if (c->count == 0)
    return emit_row(c, json_pack("{s:s}", "mode", names[c->sh->format]));
  for (int i = 0; i < 3; i++)
    if (word_is(&c->args[0], names[i])) {
      c->sh->format = i;
      return 0;
    }
  return fail_usage(c, "MODE is human, json or plain, not \"%s\"",
                    c->args[0].text);
}

static int version_run(call *c) {
  return emit_row(c, json_pack("{s:s}", "version", zke_version()));
}

/* session: its id, and whether it is alive, of which a dispatch hears. */
static int session_run(call *c) {
  zke_dispatch(c->z, NULL);
  json_t *row = json_pack(
      "{s:o*,s:b,s:s}", "session", value_session(zke_session_id(c->z)), "alive",
      zke_state(c->z) == ZKE_STATE_CONNECTED, "file", c->sh->file);
  return emit_row(c, row);
}

/* exit: stops the reader of lines after this one; the argument is the exit
 * status. */
static int exit_run(call *c) {
  int64_t code = 0;
  if (c->count && (!word_number(&c->args[0], &code) || code < 0 || code > 255))
    return fail_usage(c, "CODE is a number from 0 to 255");
  c->sh->leaving = true;
  c->sh->leave_status = (int)code;
  return (int)code;
}

const command builtin_commands[] = {
    {"help", "[COMMAND [VERB]]", "list the commands, or explain one", NULL, 0,
     2, NEEDS_NOTHING, STYLE_LINE, help_run, help_human},
    {"cd", "[PATH]", "go to a node: other paths start there", NULL, 0, 1,
     NEEDS_FILE, STYLE_LINE, cd_run, NULL},
    {"pwd", "", "print the node that paths start from", NULL, 0, 0,
     NEEDS_NOTHING, STYLE_VALUE, pwd_run, NULL},
    {"mode", "[human | json | plain]", "set or print the output's format", NULL,
     0, 1, NEEDS_NOTHING | NOT_IN_COPROCESS, STYLE_VALUE, mode_run, NULL},
    {"session", "", "print this session's id", NULL, 0, 0, NEEDS_SESSION,
     STYLE_RECORD, session_run, NULL},
    {"version", "", "print the version", NULL, 0, 0, NEEDS_NOTHING, STYLE_VALUE,
     version_run, NULL},
    {"exit", "[CODE]", "end the session and leave", NULL, 0, 1,
     NEEDS_NOTHING | NOT_IN_COPROCESS, STYLE_LINE, exit_run, NULL},
    {"quit", "[CODE]", "end the session and leave", NULL, 0, 1,
     NEEDS_NOTHING | NOT_IN_COPROCESS | HIDDEN, STYLE_LINE, exit_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
