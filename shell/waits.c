/* waits.c - waits, deadlocks: who waits for whom, as rows or for Graphviz
 *
 * The recipes write into their znodes that they wait; the order of a line shows
 * for whom.  zke_line_waits() reads all lines and finds the circles; this file
 * does not define deadlocks.  The data is not of one moment, so each part of a
 * row may be missing: a keeper that has gone, a session that has ended.  Then
 * the row has null, and people read "somebody".
 *
 *     waits            a row for each pair: who waits, and who keeps it waiting
 *     waits --dot      the same as text of a picture: a box for each actor, an
 *                      arrow for each pair, red for a circle's
 *     deadlocks        only the pairs of the circles, one circle after another
 *
 * The list has the youngest wait first, and people read the earliest first: so
 * the loops over it run backwards.  Start reading at graph_take().
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/part/entry.h"
#include "../recipes/part/znode.h"
#include "../recipes/support.h"
#include "look.h"
#include "process.h"
#include "take.h"
#include "work.h"

/* ------------------------------------------------------------------------
 * The data
 *
 * The waits, the sessions, and the processes that keep them alive, read in this
 * order.  A row uses all three.
 * --------------------------------------------------------------------- */

/* The data for all output. */
typedef struct graph {
  zke_wait_list *waits;       /* who waits, and for whom */
  zke_session_list *sessions; /* their names and pids; read after the waits */
  holders holders;            /* the processes that keep the sessions alive */
} graph;

/* Releases the three lists; each may be empty. */
static void graph_free(graph *g) {
  zke_free(g->waits);
  zke_free(g->sessions);
  holders_free(&g->holders);
}

/* Reads who waits and for whom; 0 or the exit code.  Call graph_free() in any
 * case. */
static int graph_take(call *c, graph *g) {
  *g = (graph){.holders = holders_begin(c->sh->file)};
  int rc = zke_line_waits(c->z, &g->waits);
  if (rc == ZKE_OK) rc = zke_sessions(c->z, -1, &g->sessions);
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* An entry's line: its znode's directory, with a reference for the caller. */
static json_t *line_text(const char *path) {
  return value_data(path, (int)(strrchr(path, '/') - path));
}

/* Does this keeper itself wait?  Then its box is drawn with its own wait, which
 * knows whether it is in a circle. */
static bool is_waiter(const graph *g, const zke_keeper *k) {
  for (int i = 0; i < g->waits->count; i++) {
    const zke_wait_info *w = &g->waits->data[i];
    if (w->session == k->session && w->actor == k->actor) return true;
  }
  return false;
}

/* What the hold of a session's keeper is bound to, as its entry says at this
 * moment; null if lock take has not made it. */
static json_t *bound_of(call *c, graph *g, const zke_keeper *k,
                        const zke_session_info *by) {
  char *data;
  int len;
  zke_stat stat;
  if (!k || zke_get(c->z, k->path, NULL, NULL, &data, &len, &stat) != ZKE_OK)
    return json_null();
  int head = zke_entry_read(data, len).head;
  int64_t since_ms = is_waiter(g, k) ? 0 : zke_recipe_since(&stat, data);
  json_t *bound = take_value(data + head, len - head, since_ms,
                             holders_sight(&g->holders, by));
  zke_free(data);
  return bound;
}

/* A row of a wait and one of its keepers.  If k is NULL, or its session has
 * ended since, the members that begin with "by_" are null.  "by_kept_by" names
 * the processes that keep a keeper's session alive without the process that
 * began it: a person has to look for those. */
static json_t *wait_row(call *c, graph *g, const zke_wait_info *w,
                        const zke_keeper *k) {
  const zke_session_info *by = k ? look_session(g->sessions, k->session) : NULL;
  json_t *row = json_pack(
      "{s:o*,s:o*,s:o*,s:I,s:I}", "path", line_text(w->path), "session",
      value_session(w->session), "identity", value_text(w->identity), "pid",
      (json_int_t)w->pid, "since", (json_int_t)w->since_ms);
  if (!row) return NULL;
  json_object_set_new(row, "by_session",
                      k ? value_session(k->session) : json_null());
  json_object_set_new(row, "by_identity",
                      by ? value_text(by->identity) : json_null());
  json_object_set_new(row, "by_pid", by ? json_integer(by->pid) : json_null());
  json_object_set_new(row, "blocking", json_boolean(w->blocking));
  json_object_set_new(row, "stuck", json_boolean(w->stuck));
  json_object_set_new(row, "deadlock",
                      w->circle ? json_integer(w->circle) : json_null());
  json_t *kept = by ? holders_instead(&g->holders, holders_life(by), by->pid)
                    : json_null();
  json_object_set_new(row, "by_kept_by", kept);
  json_object_set_new(row, "by_bound", bound_of(c, g, k, by));
  return row;
}

/* ------------------------------------------------------------------------
 * Rows
 *
 * waits has a row for each pair; deadlocks only pairs with both sides in one
 * circle.
 * --------------------------------------------------------------------- */

/* Emits a row for each party that this one waits for.  If there is none it
 * emits one row, since a wait is reported even if its keepers have just
 * gone. */
static int waits_of(call *c, graph *g, const zke_wait_info *w) {
  int status = w->keeper_count ? 0 : emit_row(c, wait_row(c, g, w, NULL));
  for (int i = 0; i < w->keeper_count && !status; i++)
    status = emit_row(c, wait_row(c, g, w, &w->keepers[i]));
  return status;
}

/* Is a keeper of a wait in a circle also part of that circle?  If so, the same
 * actor waits there. */
static bool is_in_circle(const graph *g, const zke_keeper *k, int circle) {
  for (int i = 0; i < g->waits->count; i++) {
    const zke_wait_info *w = &g->waits->data[i];
    if (w->circle == circle && w->actor == k->actor) return true;
  }
  return false;
}

/* Prints "zke (pid 7, kept by …)" from these members of the row, or "somebody"
 * if that is unknown. */
static void name_of(FILE *out, json_t *row, const char *identity,
                    const char *pid, const char *kept) {
  const json_t *number = json_object_get(row, pid);
  if (!json_is_integer(number)) {
    fputs("somebody", out);
    return;
  }
  output_visible(NULL, json_object_get(row, identity), out);
  fprintf(out, " (pid %" JSON_INTEGER_FORMAT, json_integer_value(number));
  look_kept_human(row, kept, out);
  fputc(')', out);
}

/* The row for people, of waits and of deadlocks:
 * "a (pid 1) waits for b (pid 2): /locks/x since 2026-…, deadlock 1" */
static void wait_human(call *c, json_t *row, FILE *out) {
  const json_t *circle = json_object_get(row, "deadlock");
  (void)c;
  name_of(out, row, "identity", "pid", "kept_by");
  fputs(" waits for ", out);
  name_of(out, row, "by_identity", "by_pid", "by_kept_by");
  take_human(json_object_get(row, "by_bound"), ", ", out);
  fputs(": ", out);
  output_visible(NULL, json_object_get(row, "path"), out);
  fputs(" since ", out);
  output_text("since", json_object_get(row, "since"), out);
  if (json_is_integer(circle))
    fprintf(out, ", deadlock %" JSON_INTEGER_FORMAT,
            json_integer_value(circle));
  else if (json_is_true(json_object_get(row, "stuck")))
    fputs(", behind a deadlock", out);
  fputc('\n', out);
}

/* Emits the waits of one circle, the earliest first.  A member may also wait
 * for others, who are not to blame: those pairs are left out. */
static int deadlock_rows(call *c, graph *g, int circle) {
  int status = 0;
  for (int i = g->waits->count - 1; i >= 0; i--) {
    const zke_wait_info *w = &g->waits->data[i];
    if (w->circle != circle) continue;
    for (int k = 0; k < w->keeper_count && !status; k++)
      if (is_in_circle(g, &w->keepers[k], circle))
        status = emit_row(c, wait_row(c, g, w, &w->keepers[k]));
  }
  return status;
}

/* deadlocks: a row for each pair in a circle.  The exit code is STATUS_NO if
 * there is a deadlock, so that a monitor need not read the rows.  Circles are
 * numbered from 1, so the greatest number is their count. */
static int deadlocks_run(call *c) {
  graph g;
  int status = graph_take(c, &g), count = 0;
  for (int i = 0; !status && i < g.waits->count; i++)
    if (g.waits->data[i].circle > count) count = g.waits->data[i].circle;
  for (int i = 1; i <= count && !status; i++) status = deadlock_rows(c, &g, i);
  graph_free(&g);
  if (status || count == 0) return status;
  return fail_with(c, STATUS_NO, NULL, "deadlocks: %d", count);
}

/* ------------------------------------------------------------------------
 * Graphviz's text
 *
 * A picture of the same rows.  Names from other processes are escaped for
 * Graphviz's strings; nothing else protects them.
 * --------------------------------------------------------------------- */

/* Prints text inside a "…" of Graphviz's language.  Any process may have chosen
 * it: it must neither end the string nor reach the terminal as a control
 * character. */
static void dot_text(FILE *out, const char *text) {
  for (; *text; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', out);
    fputc(is_control(*text) ? '?' : *text, out);
  }
}

/* The name of a box.  It stands for an actor of a session, since actors wait,
 * not sessions: two actors of a session may wait for each other. */
static void dot_node_name(FILE *out, int64_t session, uint64_t actor) {
  fprintf(out, "\"%" PRIx64 ".%" PRIx64 "\"", (uint64_t)session, actor);
}

/* A box for an actor that waits or keeps others waiting.  It may be printed
 * more than once: Graphviz makes one box of all with the same name. */
static void dot_node(FILE *out, const graph *g, int64_t session, uint64_t actor,
                     bool circle) {
  const zke_session_info *who = look_session(g->sessions, session);
  fputs("  ", out);
  dot_node_name(out, session, actor);
  fputs(" [label=\"", out);
  dot_text(out, who ? who->identity : "?");
  fprintf(out, "\\npid %" PRId64 "\\n0x%" PRIx64 "\"", who ? who->pid : 0,
          (uint64_t)session);
  fputs(circle ? ", color=red, fontcolor=red];\n" : "];\n", out);
}

/* An arrow from a waiting actor to one that keeps it waiting, with the line's
 * path.  It is dashed if the waiting actor is not inside a blocking call, and
 * so can do other things. */
static void dot_edge(FILE *out, const graph *g, const zke_wait_info *w,
                     const zke_keeper *k) {
  bool circle = w->circle && is_in_circle(g, k, w->circle);
  fputs("  ", out);
  dot_node_name(out, w->session, w->actor);
  fputs(" -> ", out);
  dot_node_name(out, k->session, k->actor);
  fputs(" [label=\"", out);
  char *line = strndup(w->path, (size_t)(strrchr(w->path, '/') - w->path));
  dot_text(out, line ? line : "");
  free(line);
  fprintf(out, "\"%s%s];\n", circle ? ", color=red, fontcolor=red" : "",
          w->blocking ? "" : ", style=dashed");
}

/* The whole picture's text, for free(); NULL without memory.  fclose() reports
 * a failed write to the stream in memory. */
static char *dot_of(const graph *g) {
  char *text = NULL;
  size_t len;
  FILE *out = open_memstream(&text, &len);
  if (!out) return NULL;
  fputs(
      "digraph waits {\n  rankdir=LR;\n  node [shape=box, style=rounded, "
      "fontname=sans];\n  edge [fontname=sans, fontsize=10];\n",
      out);
  for (int i = 0; i < g->waits->count; i++) {
    const zke_wait_info *w = &g->waits->data[i];
    dot_node(out, g, w->session, w->actor, w->circle != 0);
    for (int k = 0; k < w->keeper_count; k++) {
      /* a keeper that waits too is drawn by its own wait, in its color */
      if (!is_waiter(g, &w->keepers[k]))
        dot_node(out, g, w->keepers[k].session, w->keepers[k].actor, false);
      dot_edge(out, g, w, &w->keepers[k]);
    }
  }
  fputs("}\n", out);
  if (fclose(out) == 0) return text;
  free(text);
  return NULL;
}

/* ------------------------------------------------------------------------
 * waits
 *
 * The command: a row for each pair, or the picture as one text.
 * --------------------------------------------------------------------- */

/* waits --dot: the picture as one row with one member, so that --json prints it
 * as a string. */
static int waits_picture(call *c, const graph *g) {
  char *dot = dot_of(g);
  if (!dot) return no_memory(c);
  int status = emit_row(c, json_pack("{s:o*}", "dot", value_text(dot)));
  free(dot);
  return status;
}

/* A row for each pair, the earliest first. */
static int waits_rows(call *c, graph *g) {
  int status = 0;
  for (int i = g->waits->count - 1; i >= 0 && !status; i--)
    status = waits_of(c, g, &g->waits->data[i]);
  return status;
}

/* waits: rows, or the text of a picture. */
static int waits_run(call *c) {
  graph g;
  int status = graph_take(c, &g);
  if (!status)
    status = option_given(c, 'd') ? waits_picture(c, &g) : waits_rows(c, &g);
  graph_free(&g);
  return status;
}

/* The picture's text unchanged, else a sentence for each row. */
static void waits_human(call *c, json_t *row, FILE *out) {
  const char *text = json_string_value(json_object_get(row, "dot"));
  if (text)
    fputs(text, out);
  else
    wait_human(c, row, out);
}

static const option waits_options[] = {{'d', "dot", NULL}, {'\0', NULL, NULL}};

const command waits_commands[] = {
    {"waits", "[--dot]", "list who waits for whom, as rows or for Graphviz",
     waits_options, 0, 0, NEEDS_FILE | FILE_ONLY, STYLE_LINE, waits_run,
     waits_human},
    {"deadlocks", "",
     "list deadlocks: circles of waits; exit status 1 if there is one", NULL, 0,
     0, NEEDS_FILE | FILE_ONLY, STYLE_LINE, deadlocks_run, wait_human},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
