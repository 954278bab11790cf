/* history.c - the commands about past changes of nodes
 *
 *     history   shows, starts or ends the history, and sets its limits
 *     log       the changes of a node and the nodes below it
 *     held      who held a lock at a time in the past (by past.c); without a
 *               name, what this session holds
 *
 * The engine keeps the history (zkembed.h, "History"); this reads it from the
 * file (doc/format.md).  These commands report that the time before the history
 * is unknown; they never guess.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/part/text.h"
#include "database.h"
#include "past.h"
#include "work.h"

/* ------------------------------------------------------------------------
 * history
 *
 * The history's own state: whether it is kept, its limits, its extent.
 * --------------------------------------------------------------------- */

/* The file's data about its history. */
typedef struct extent {
  bool kept;
  int64_t keep, for_ms;  /* the limits; 0: none */
  int64_t rows;          /* changes in it */
  int64_t zxid, time_ms; /* the start of the complete part */
} extent;

/* Reads it in a snapshot: other processes' changes may move the start.  Without
 * a history all of it is zero. */
static extent extent_of(snapshot *s) {
  extent e = {
      .keep = snapshot_number(s, "SELECT history_rows FROM zkembed_meta"),
      .for_ms = snapshot_number(s, "SELECT history_ms FROM zkembed_meta")};
  if (e.keep <= 0 && e.for_ms <= 0) return (extent){.kept = false};
  e.kept = true;
  e.rows =
      snapshot_number(s, "SELECT count(*) FROM zkembed_history WHERE type<>0");
  e.zxid = snapshot_number(
      s, "SELECT zxid FROM zkembed_history ORDER BY seq LIMIT 1");
  e.time_ms = snapshot_number(
      s, "SELECT time FROM zkembed_history ORDER BY seq LIMIT 1");
  return e;
}

/* A limit; null for none. */
static json_t *limit_of(int64_t limit) {
  return limit > 0 ? json_integer(limit) : json_null();
}

/* history: shows whether there is one, its limits, its size and its start.
 */
static int history_tell(call *c) {
  snapshot *s = NULL;
  int status = snapshot_open(c, &s);
  if (status) return status;
  extent e = extent_of(s);
  snapshot_close(s);
  if (!e.kept) return emit_row(c, json_pack("{s:s}", "history", "off"));
  return emit_row(
      c, value_for_people(
             c, json_pack("{s:s,s:o,s:o,s:I,s:I,s:I}", "history", "on", "keep",
                          limit_of(e.keep), "for_ms", limit_of(e.for_ms),
                          "changes", (json_int_t)e.rows, "zxid",
                          (json_int_t)e.zxid, "since", (json_int_t)e.time_ms)));
}

/* history on: without limits in the call, it gets a default that any disk can
 * hold. */
static int history_on(call *c) {
  enum { ROWS = 100000 };
  int64_t rows, ms;
  int status = option_number(c, 'k', 1, INT64_MAX, 0, &rows);
  if (!status) status = option_duration(c, 'f', 0, &ms);
  if (!status && option_given(c, 'f') && ms == 0)
    status = fail_usage(c,
                        "--for wants more than nothing; \"history off\" "
                        "ends the history");
  if (!status) status = session_open(c, CREATES_FILE | FILE_ONLY);
  if (status) return status;
  if (rows == 0 && ms == 0) rows = ROWS;
  int rc = zke_history_keep(c->z, rows, ms);
  return rc == ZKE_OK ? history_tell(c) : fail_rc(c, rc);
}

/* Ends the history, and shows that nothing is kept.  Refuses a limit, since its
 * user meant "on". */
static int history_off(call *c) {
  if (option_given(c, 'k') || option_given(c, 'f'))
    return fail_usage(c, "limits are for \"history on\"");
  int status = session_open(c, NEEDS_SESSION | FILE_ONLY);
  if (status) return status;
  int rc = zke_history_keep(c->z, 0, 0);
  return rc == ZKE_OK ? history_tell(c) : fail_rc(c, rc);
}

/* Refuses a tree in memory before opening anything; 0 for any other. */
static int refuse_memory(call *c) {
  if (store_of(c->sh) != STORE_MEMORY) return 0;
  return fail_with(c, STATUS_DENIED, "MEMORY",
                   "%s is about a file's history, and :memory: is none",
                   c->command->name);
}

/* The command: starts or ends the history; without an argument shows its state,
 * for which it only reads the file. */
static int history_run(call *c) {
  int status = refuse_memory(c);
  if (status) return status;
  if (c->count && word_is(&c->args[0], "on")) return history_on(c);
  if (c->count && word_is(&c->args[0], "off")) return history_off(c);
  if (c->count)
    return fail_usage(c, "history is on or off, not \"%s\"", c->args[0].text);
  if (option_given(c, 'k') || option_given(c, 'f'))
    return fail_usage(c, "limits are for \"history on\"");
  status = session_open(c, NEEDS_FILE | FILE_ONLY);
  return status ? status : history_tell(c);
}

/* ------------------------------------------------------------------------
 * Changes
 * --------------------------------------------------------------------- */

/* The list that a call reads. */
typedef struct changes_to {
  call *c;
  past_changes *list;
} changes_to;

/* Appends a copy of a change to a list, which about doubles when it must
 * grow. */
static int changes_add(void *arg, const past_change *change) {
  const changes_to *reading = arg;
  past_changes *list = reading->list;
  size_t count = (size_t)list->count;
  if ((count & (count - 1)) == 0) {
    past_change *more = realloc(list->data, (2 * count + 1) * sizeof *more);
    if (!more) return no_memory(reading->c);
    list->data = more;
  }
  past_change *to = &list->data[count];
  *to = *change;
  to->path = strdup(change->path);
  to->identity = strdup(change->identity);
  list->count++;
  return to->path && to->identity ? 0 : no_memory(reading->c);
}

static void changes_free(past_changes *list) {
  for (int i = 0; i < list->count; i++) {
    free((char *)(uintptr_t)list->data[i].path);
    free((char *)(uintptr_t)list->data[i].identity);
  }
  free(list->data);
}

/* The history does not reach back to the time. */
static int fail_before(call *c, const extent *e) {
  char text[ZKE_RECIPE_WHEN];
  zke_recipe_when(e->time_ms, text);
  return fail_with(
      c, STATUS_NO, "NOHISTORY",
      "the history begins at %s: who held anything before is not known", text);
}

/* Reads the history of a node and the nodes below it, later than a zxid, and
 * its extent, in one snapshot.  Fails if there is no history, or none that
 * reaches back to a time (0: any).  Free the list by changes_free(), even after
 * a failure. */
static int changes_read(call *c, const char *path, int64_t zxid, int64_t ms,
                        extent *e, past_changes *list) {
  snapshot *s = NULL;
  changes_to reading = {c, list};
  int status = snapshot_open(c, &s);
  if (status) return status;
  *e = extent_of(s);
  if (!e->kept)
    status = fail_with(c, STATUS_NO, "NOHISTORY",
                       "no history is kept of %s; \"history on\" begins one",
                       c->sh->file);
  else if (ms && ms < e->time_ms)
    status = fail_before(c, e);
  else
    status = snapshot_changes(s, path, zxid, changes_add, &reading);
  snapshot_close(s);
  return status;
}

/* ------------------------------------------------------------------------
 * log
 *
 * Rows come in the order of the changes.  If the history begins later than
 * requested, standard error says so, and the available rows follow.
 * --------------------------------------------------------------------- */

/* A row for a change.  An unknown session is null: it was the sweep, which
 * removes containers and TTL nodes. */
static json_t *change_row(const past_change *h) {
  static const char *const types[] = {"?", "created", "deleted", "changed"};
  int type = h->type >= 1 && h->type <= 3 ? h->type : 0;
  return json_pack(
      "{s:I,s:I,s:s,s:o*,s:o*,s:o*,s:o*}", "zxid", (json_int_t)h->zxid, "time",
      (json_int_t)h->time_ms, "type", types[type], "path", value_text(h->path),
      "session", h->session ? value_session(h->session) : json_null(),
      "identity", *h->identity ? value_text(h->identity) : json_null(), "pid",
      h->pid ? json_integer(h->pid) : json_null());
}

/* --since: a zxid, which is a number from 0 on without a unit, or a time. */
static int since_of(call *c, int64_t *zxid, int64_t *ms) {
  const word *w = option_word(c, 's');
  *zxid = *ms = 0;
  if (!w || (word_session(w, zxid) && *zxid >= 0)) return 0;
  if (word_time(w, clock_wall_ms(), ms)) return 0;
  return fail_usage(c,
                    "--since wants a zxid, a time such as "
                    "2026-11-20T12:00:00Z, or how long ago it was, such as "
                    "90s, 5m or 2h, not \"%s\"",
                    w->text);
}

/* Reports that a part of the request is missing. */
static void tell_begin(call *c, const extent *e, int64_t zxid, int64_t ms) {
  bool gap = (zxid && zxid < e->zxid) || (ms && ms < e->time_ms);
  if (!gap || c->sh->quiet || c->id) return;
  char text[ZKE_RECIPE_WHEN];
  zke_recipe_when(e->time_ms, text);
  fprintf(stderr,
          "zke: the history begins at %s, zxid %" PRId64
          ": what was before is not known\n",
          text, e->zxid);
}

/* Emits the changes from a time on; of these the last `limit`. */
static int log_rows(call *c, const past_changes *list, int64_t ms,
                    int64_t limit) {
  int status = 0, first = list->count;
  for (int64_t left = limit; first > 0 && left > 0; first--)
    left -= list->data[first - 1].time_ms >= ms;
  for (int i = first; i < list->count && !status; i++) {
    if (list->data[i].time_ms < ms) continue;
    status = cancel_came(c) ? fail_cancelled(c)
                            : emit_row(c, change_row(&list->data[i]));
  }
  return status;
}

/* A malformed path fails: the engine has the rules. */
static int path_check(call *c, const char *path) {
  int rc = zke_exists(c->z, path, NULL, NULL, NULL);
  return rc == ZKE_OK || rc == ZKE_NONODE ? 0 : fail_rc(c, rc);
}

/* The command: prints the changes at a path and below.  If a part of the
 * request is no longer known, tell_begin() reports that first. */
static int log_run(call *c) {
  char *path = NULL;
  extent e;
  int64_t zxid, ms, limit;
  past_changes list = {.count = 0};
  int status = since_of(c, &zxid, &ms);
  if (!status) status = option_number(c, 'n', 1, INT64_MAX, INT64_MAX, &limit);
  if (!status) status = refuse_memory(c);
  if (!status) status = arg_path(c, 0, &path);
  if (!status) status = path_check(c, path);
  if (!status) status = changes_read(c, path, zxid, 0, &e, &list);
  if (!status) tell_begin(c, &e, zxid, ms);
  if (!status) status = log_rows(c, &list, ms, limit);
  changes_free(&list);
  free(path);
  return status;
}

/* ------------------------------------------------------------------------
 * held
 *
 * Two questions under one name: what this session holds now (by session.c), and
 * who held a place at a time (by past.c).  The second refuses instead of
 * answering in part.
 * --------------------------------------------------------------------- */

/* The data from which held finds its answer. */
typedef struct past {
  char *path;
  int64_t at;
  past_changes changes;
  zke_session_list *sessions; /* existing now */
  past_node *now;             /* ephemeral nodes existing now */
  int now_count;
  past_life *lives;
  int life_count;
} past;

/* Frees all of it, even if it is incomplete. */
static void past_free(past *p) {
  for (int i = 0; i < p->now_count; i++)
    free((char *)(uintptr_t)p->now[i].path);
  free(p->now);
  free(p->lives);
  changes_free(&p->changes);
  zke_free(p->sessions);
  free(p->path);
}

/* Records an existing node, if it is ephemeral. */
static int past_note(call *c, past *p, const char *directory,
                     const char *name) {
  size_t room = strlen(directory) + (name ? strlen(name) : 0) + 2;
  char *path = malloc(room);
  zke_stat stat;
  if (!path) return no_memory(c);
  snprintf(path, room, "%s%s%s", directory, name && directory[1] ? "/" : "",
           name ? name : "");
  int rc = zke_exists(c->z, path, NULL, NULL, &stat);
  if (rc == ZKE_OK && stat.ephemeralOwner) {
    p->now[p->now_count++] = (past_node){path, stat.ephemeralOwner};
    return 0;
  }
  free(path);
  return rc == ZKE_OK || rc == ZKE_NONODE ? 0 : fail_rc(c, rc);
}

/* The present nodes.  They are read before the history: so a node that is
 * created in between is in the history, and so is one that is deleted. */
static int past_present(call *c, past *p) {
  zke_strings *names = NULL;
  int status = 0;
  int rc = zke_children(c->z, p->path, NULL, NULL, &names, NULL);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return fail_rc(c, rc);
  int count = rc == ZKE_OK ? names->count : 0;
  p->now = calloc((size_t)count + 1, sizeof *p->now);
  if (!p->now) status = no_memory(c);
  if (!status) status = past_note(c, p, p->path, NULL);
  for (int i = 0; i < count && !status; i++)
    status = past_note(c, p, p->path, names->data[i]);
  zke_free(names);
  return status;
}

/* Reads the present nodes, the changes and the sessions, and calculates the
 * nodes' lives.  Call past_present() first. */
static int past_read(call *c, past *p) {
  extent e;
  int status = past_present(c, p);
  if (!status) status = changes_read(c, p->path, 0, p->at, &e, &p->changes);
  if (status) return status;
  int rc = zke_sessions(c->z, -1, &p->sessions);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  p->life_count =
      past_lives(&p->changes, p->path, p->now, p->now_count, &p->lives);
  return p->life_count < 0 ? no_memory(c) : 0;
}

/* Puts the name and the pid of a session into a row, from its own change or the
 * present list; null if neither has them. */
static void past_name(const past *p, int64_t session, json_t *row) {
  const char *identity = NULL;
  int64_t pid = 0;
  for (int i = 0; i < p->changes.count && !identity; i++) {
    if (p->changes.data[i].session != session) continue;
    identity = p->changes.data[i].identity;
    pid = p->changes.data[i].pid;
  }
  for (int i = 0; i < p->sessions->count && !identity; i++) {
    if (p->sessions->data[i].id != session) continue;
    identity = p->sessions->data[i].identity;
    pid = p->sessions->data[i].pid;
  }
  json_object_set_new(
      row, "identity",
      identity && *identity ? value_text(identity) : json_null());
  json_object_set_new(row, "pid", pid ? json_integer(pid) : json_null());
}

/* Emits one holder. */
static int past_emit(call *c, const past *p, const past_holder *h) {
  json_t *row =
      json_pack("{s:o*,s:i,s:o*}", "path", value_text(h->life->path), "place",
                h->place, "session", value_session(h->life->owner));
  if (!row) return no_memory(c);
  past_name(p, h->life->owner, row);
  json_object_set_new(row, "since", value_time(h->since_ms));
  json_object_set_new(row, "until_time", value_time(h->until_ms));
  return emit_row(c, row);
}

/* Emits all holders, or reports that there was none. */
static int past_tell(call *c, const past *p) {
  past_holder *holders = NULL;
  int status = 0;
  int count = past_holders(&p->changes, p->path, p->lives, p->life_count, p->at,
                           &holders);
  if (count < 0) status = no_memory(c);
  for (int i = 0; i < count && !status; i++)
    status = past_emit(c, p, &holders[i]);
  free(holders);
  if (status || count > 0) return status;
  return fail_with(
      c, STATUS_NO, "NONODE",
      option_given(c, 'a') ? "nobody held %s then" : "nobody holds %s",
      p->path);
}

/* "held --at": who held a place at a time in the past.  If the history does not
 * reach back to it, this refuses instead of answering in part. */
static int held_then(call *c) {
  past p = {.path = NULL};
  int64_t now = clock_wall_ms();
  int status = option_time(c, 'a', now, &p.at);
  if (!status && p.at > now)
    status = fail_usage(c, "--at is a time in the future");
  if (!status) status = refuse_memory(c);
  if (!status) status = session_open(c, NEEDS_FILE | FILE_ONLY);
  if (!status) status = arg_place(c, 0, "locks", &p.path);
  if (!status) status = past_read(c, &p);
  if (!status) status = past_tell(c, &p);
  past_free(&p);
  return status;
}

/* For held_each(), under the shell's mutex: only collects the rows, since a
 * slow reader may delay printing. */
static void held_row(void *arg, const held_class *class_, const char *path,
                     void *object) {
  int64_t token = class_->token(object);
  json_array_append_new(
      arg, json_pack("{s:s,s:o*,s:I,s:b}", "kind", class_->kind, "path",
                     value_text(path), "token", (json_int_t)token, "held",
                     token != 0));
}

/* held without a name: a row for each thing that the session holds.  Dispatches
 * first, to hear of losses: in a script nothing else does, unless it waits. */
static int held_now(call *c) {
  size_t i;
  json_t *row, *rows = json_array();
  int status = rows ? 0 : no_memory(c);
  pthread_mutex_lock(&c->sh->m);
  zke *z = c->sh->z;
  pthread_mutex_unlock(&c->sh->m);
  if (z) zke_dispatch(z, NULL);
  if (rows) held_each(c->sh, held_row, rows);
  json_array_foreach(rows, i, row) {
    if (!status) status = emit_row(c, json_incref(row));
  }
  json_decref(rows);
  return status;
}

/* held: what this session holds; or with a name, who held it. */
static int held_run(call *c) {
  if (c->count) return held_then(c);
  if (option_given(c, 'a'))
    return fail_usage(c, "--at wants the NAME of a lock");
  return held_now(c);
}

/* The options and rows of these commands, for run.c, args.c and help. */
static const option history_options[] = {
    {'k', "keep", "N"}, {'f', "for", "DURATION"}, {'\0', NULL, NULL}};
static const option log_options[] = {
    {'s', "since", "ZXID|TIME"}, {'n', "limit", "N"}, {'\0', NULL, NULL}};
static const option held_options[] = {{'a', "at", "TIME"}, {'\0', NULL, NULL}};

const command history_commands[] = {
    {"history", "[on [--keep N] [--for DURATION] | off]",
     "keep a history of all changes, end it, or tell about it", history_options,
     0, 1, NEEDS_NOTHING | FILE_ONLY, STYLE_RECORD, history_run, NULL},
    {"log", "[PATH] [--since ZXID|TIME] [--limit N]",
     "print the history of a node and the nodes below it", log_options, 0, 1,
     NEEDS_FILE | FILE_ONLY, STYLE_TABLE, log_run, NULL},
    {"held", "[NAME [--at TIME]]",
     "list what this session holds, or who held a lock at a time in the past",
     held_options, 0, 1, NEEDS_NOTHING, STYLE_TABLE, held_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
