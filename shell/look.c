/* look.c - locks, sessions, expire, break, steal, revoke: who holds what, and
 * how an operator can act on it
 *
 * Everything that is held or waited for is an ephemeral znode of a session.  So
 * these commands ask each session for its ephemeral znodes, and never walk the
 * tree, however large it is.  look_take() does this for locks and waits:
 *
 *     sessions --> their ephemeral znodes --> places: the directories of those
 *     whose names are a recipe's --> each place's parties: a look_line
 *
 * Claims of queues are not a line; they lie in a queue's "taken" and are listed
 * separately (locks --all).  The rows are not of one moment: a party may come
 * or go while they are read.
 */
#include "look.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/lock.h"
#include "../recipes/part/party.h"
#include "../recipes/rwlock.h"
#include "../recipes/part/text.h"
#include "../recipes/part/znode.h"
#include "process.h"
#include "take.h"
#include "walk.h"
#include "work.h"

/* ------------------------------------------------------------------------
 * What there is
 *
 * The cost depends on what is held and waited for.  Only on an ensemble the
 * whole tree is read, since it lists a session's nodes only to that session.
 * --------------------------------------------------------------------- */

/* Texts in a growing array, which owns them. */
typedef struct look_names {
  char **data;
  int count, room;
} look_names;

/* A line of sessions: for a lock, a semaphore, an election … */
typedef struct look_line {
  char *path;
  char kind[32]; /* "lock", as the directory's data says */
  zke_party_list *parties;
} look_line;

/* All that look_take() has read; look_free() releases every part of it. */
typedef struct look {
  zke_session_list *sessions; /* read first */
  look_names places;          /* the lines' directories, sorted */
  look_names claims;          /* ephemerals that may be claims of queue items */
  look_names queues;  /* directories that may be queues in use, sorted */
  look_names foreign; /* ephemerals of other libraries' lines, sorted */
  look_line *lines;   /* by path */
  int count;
  holders holders; /* who keeps the sessions alive */
} look;

/* Adds the first len bytes of a text, unless it was the last one added: a
 * session's znodes often lie in one place.  names_sort() drops the other
 * duplicates. */
static int names_add(call *c, look_names *n, const char *text, size_t len) {
  const char *last = n->count ? n->data[n->count - 1] : NULL;
  if (last && strlen(last) == len && memcmp(last, text, len) == 0) return 0;
  if (n->count == n->room) {
    int room = n->room ? 2 * n->room : 32;
    char **data = realloc(n->data, (size_t)room * sizeof *data);
    if (!data) return no_memory(c);
    n->data = data;
    n->room = room;
  }
  if ((n->data[n->count] = strndup(text, len)) == NULL) return no_memory(c);
  n->count++;
  return 0;
}

/* For qsort(): by bytes, which groups the names of one directory. */
static int names_compare(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* For qsort(): entries of other libraries by directory, and there by the number
 * at the end of the name: the order of their line. */
static int foreign_compare(const void *a, const void *b) {
  const char *x = *(char *const *)a, *y = *(char *const *)b;
  size_t in_x = (size_t)(strrchr(x, '/') - x);
  size_t in_y = (size_t)(strrchr(y, '/') - y);
  int by = memcmp(x, y, in_x < in_y ? in_x : in_y);
  if (by == 0) by = (in_x > in_y) - (in_x < in_y);
  if (by == 0)
    by = strcmp(x + strlen(x) - ZKE_RECIPE_DIGITS,
                y + strlen(y) - ZKE_RECIPE_DIGITS);
  return by ? by : strcmp(x, y);
}

/* Sorts the names and drops duplicates. */
static void names_sort(look_names *n,
                       int (*compare)(const void *, const void *)) {
  int kept = 0;
  if (n->count) qsort(n->data, (size_t)n->count, sizeof *n->data, compare);
  for (int i = 0; i < n->count; i++) {
    if (kept && strcmp(n->data[kept - 1], n->data[i]) == 0)
      free(n->data[i]);
    else
      n->data[kept++] = n->data[i];
  }
  n->count = kept;
}

/* Frees a list of names; a zeroed one is fine. */
static void names_free(look_names *n) {
  for (int i = 0; i < n->count; i++) free(n->data[i]);
  free(n->data);
}

/* Bytes of the path before the last name's slash. */
static size_t parent_len(const char *path, size_t len) {
  while (len > 0 && path[len - 1] != '/') len--;
  return len > 0 ? len - 1 : 0;
}

/* Is the last name of a path's first len bytes this one? */
static bool ends_with(const char *path, size_t len, const char *name) {
  size_t begin = parent_len(path, len) + 1, size = strlen(name);
  return len - begin == size && memcmp(path + begin, name, size) == 0;
}

/* Was this name made by zke_recipe_create(), or by its rule? */
static bool is_recipe_name(const char *name) {
  return strncmp(name, ZKE_NAME_MARK, strlen(ZKE_NAME_MARK)) == 0 &&
         strnlen(name, ZKE_NAME_KIND) == ZKE_NAME_KIND;
}

/* Records the place of one ephemeral znode, or the znode of another library.
 * An entry of a line is called /…/_c_<guid>-<kind><number> (znode.h), and its
 * directory is a place.  An entry in a queue's "line" belongs to a process that
 * uses the queue, and a znode in its "taken" is a claim: both show that the
 * queue above is in use. */
static int look_path(call *c, look *l, const char *path) {
  const char *name = strrchr(path, '/') + 1;
  size_t parent = parent_len(path, strlen(path));
  size_t above = parent_len(path, parent);
  int status = 0;
  if (parent && is_recipe_name(name))
    status = names_add(c, &l->places, path, parent);
  if (parent && !status && zke_recipe_foreign(name))
    status = names_add(c, &l->foreign, path, strlen(path));
  if (!status && ends_with(path, parent, "line"))
    status = names_add(c, &l->queues, path, above);
  if (!status && ends_with(path, parent, "taken")) {
    status = names_add(c, &l->queues, path, above);
    if (!status) status = names_add(c, &l->claims, path, strlen(path));
  }
  return status;
}

/* Records the places of one session's ephemeral znodes; 0 or the exit code.
 * This includes znodes made since the list of sessions was read. */
static int look_ephemerals(call *c, look *l, int64_t session) {
  zke_strings *paths;
  int rc = zke_ephemerals(c->z, session, NULL, &paths), status = 0;
  if (rc != ZKE_OK) return fail_rc(c, rc);
  for (int i = 0; i < paths->count && !status; i++)
    status = look_path(c, l, paths->data[i]);
  zke_free(paths);
  return status;
}

/* The same for all sessions of an ensemble, which does not say what a session
 * owns: this searches the whole tree, and leaves out what it may not read. */
static int look_everywhere(call *c, look *l) {
  walk w;
  int status = 0;
  walk_begin(&w, c, "/", -1, false);
  while (!status && walk_next(&w))
    if (w.stat.ephemeralOwner) status = look_path(c, l, w.path);
  w.denied = 0;
  return walk_end(&w, status);
}

/* A recipe's directory has its kind in its data: "zkembed lock\n…".  Copies
 * that word, or nothing, into kind. */
static void kind_in(const char *data, char kind[32]) {
  size_t len =
      data && strncmp(data, "zkembed ", 8) == 0 ? strcspn(data + 8, "\n") : 0;
  if (len > 31) len = 31;
  if (len) memcpy(kind, data + 8, len);
  kind[len] = '\0';
}

/* The kind of a directory without that word, since another ZooKeeper client
 * made it: from the names of its entries. */
static const char *kind_of_entry(const char *entry) {
  if (strcmp(entry, "lease-") == 0) return "semaphore";
  if (strcmp(entry, "latch-") == 0) return "election";
  return strncmp(entry, "__", 2) == 0 ? "rwlock" : "lock";
}

/* Reads the line at a path: its kind, and its parties.  If there are no
 * parties, the place is not a line, or is empty, gone, or unreadable.  None of
 * these is a failure, since each may happen between two looks.  Free the line
 * by line_free() in any case. */
static int line_take(call *c, const char *path, look_line *line) {
  char *data = NULL;
  *line = (look_line){.path = strdup(path)};
  if (!line->path) return no_memory(c);
  int rc = zke_get(c->z, path, NULL, NULL, &data, NULL, NULL);
  if (rc == ZKE_OK) rc = zke_line_parties(c->z, path, 0, &line->parties);
  if (rc == ZKE_OK && line->parties->count == 0) {
    zke_free(line->parties);
    line->parties = NULL;
  }
  kind_in(data, line->kind);
  if (!*line->kind && line->parties)
    snprintf(line->kind, sizeof line->kind, "%s",
             kind_of_entry(line->parties->data[0].kind));
  zke_free(data);
  if (rc == ZKE_NONODE || rc == ZKE_NOAUTH) return 0;
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* Frees a line; a zeroed one is fine. */
static void line_free(look_line *line) {
  free(line->path);
  zke_free(line->parties);
}

/* Reads one line's parties; leaves out a place that is not a line. */
static int look_place(call *c, look *l, const char *path) {
  look_line line;
  int status = line_take(c, path, &line);
  if (!status && line.parties)
    l->lines[l->count++] = line;
  else
    line_free(&line);
  return status;
}

/* Reads all, as the file's head says; call look_free() even if this fails. */
static int look_take(call *c, look *l) {
  *l = (look){.holders = holders_begin(c->sh->file)};
  bool ensemble = store_of(c->sh) == STORE_ENSEMBLE;
  int status = 0, rc = zke_sessions(c->z, -1, &l->sessions);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  if (ensemble) status = look_everywhere(c, l);
  for (int i = 0; i < l->sessions->count && !ensemble && !status; i++) {
    if (l->sessions->data[i].ephemerals)
      status = look_ephemerals(c, l, l->sessions->data[i].id);
  }
  names_sort(&l->places, names_compare);
  names_sort(&l->queues, names_compare);
  names_sort(&l->claims, names_compare);
  names_sort(&l->foreign, foreign_compare);
  if (status || l->places.count == 0) return status;
  l->lines = calloc((size_t)l->places.count, sizeof *l->lines);
  if (!l->lines) return no_memory(c);
  for (int i = 0; i < l->places.count && !status; i++) {
    if (cancel_came(c)) return fail_cancelled(c);
    status = look_place(c, l, l->places.data[i]);
  }
  return status;
}

/* Frees the look's results, even if look_take() failed. */
static void look_free(look *l) {
  for (int i = 0; i < l->count; i++) line_free(&l->lines[i]);
  free(l->lines);
  names_free(&l->places);
  names_free(&l->claims);
  names_free(&l->queues);
  names_free(&l->foreign);
  zke_free(l->sessions);
  holders_free(&l->holders);
}

/* Writes "; kept by sleep 60 (pid 12)" if other processes than the session's
 * own keep it alive. */
void look_kept_human(json_t *row, const char *member, FILE *out) {
  const json_t *list = json_object_get(row, member);
  if (json_array_size(list) == 0) return;
  fputs("; kept by ", out);
  holders_human(list, out);
}

/* Finds a session by its id; NULL if it has ended. */
const zke_session_info *look_session(const zke_session_list *list,
                                     int64_t session) {
  for (int i = 0; i < list->count; i++)
    if (list->data[i].id == session) return &list->data[i];
  return NULL;
}

/* Is the party a reader?  Curator's names for entries tell, and the recipe uses
 * the same. */
static bool is_reader(const zke_party *p) {
  return strcmp(p->kind, "__READ__") == 0;
}

/* "read" or "write" if the line distinguishes them, else NULL. */
static const char *party_mode(const look_line *line, const zke_party *p) {
  if (strcmp(line->kind, "rwlock") != 0) return NULL;
  return is_reader(p) ? "read" : "write";
}

/* What a party does in a line of that kind and mode, in one word. */
static const char *word_for(const char *kind, const char *mode, bool has_it) {
  if (strcmp(kind, "queue") == 0) return "claims";
  if (strcmp(kind, "election") == 0) return has_it ? "leads" : "next";
  if (!mode) return has_it ? "holds" : "waits";
  if (strcmp(mode, "read") == 0) return has_it ? "reads" : "to read";
  return has_it ? "writes" : "to write";
}

/* ------------------------------------------------------------------------
 * locks
 *
 * Rows of all kinds have the same members; members that do not apply are null.
 * So a script that reads --plain finds each column at its place.
 * --------------------------------------------------------------------- */

/* Where to look for a name without a slash. */
static const char *const bases[] = {"locks", "rwlocks", "semaphores",
                                    "elections", "queues"};
enum { BASES = sizeof bases / sizeof *bases };

/* Was this line asked for?  A path includes all lines below it; a name is
 * compared below each of the bases; without an argument all lines match. */
static bool is_meant(const call *c, const char *path) {
  char base[32];
  if (c->count == 0) return true;
  const char *given = c->args[0].text;
  size_t len = strlen(given);
  if (*given == '/') {
    while (len > 0 && given[len - 1] == '/') len--;
    return strncmp(path, given, len) == 0 &&
           (path[len] == '\0' || path[len] == '/');
  }
  for (int i = 0; i < BASES; i++) {
    int n = snprintf(base, sizeof base, "/%s/", bases[i]);
    if (strncmp(path, base, (size_t)n) == 0 && strcmp(path + n, given) == 0)
      return true;
  }
  return false;
}

/* One party of a line.  The members are the same for all kinds, since --plain
 * prints them as columns. */
static json_t *party_row(const look_line *line, int i) {
  const zke_party *p = &line->parties->data[i];
  const char *mode = party_mode(line, p);
  json_t *row = json_pack("{s:o*,s:s,s:s,s:i,s:I,s:o,s:o*,s:o*,s:I}", "path",
                          value_text(line->path), "kind", line->kind, "state",
                          p->held ? "held" : "waiting", "position", i + 1,
                          "since", (json_int_t)p->since_ms, "token",
                          p->held ? json_integer(p->mzxid) : json_null(),
                          "session", value_session(p->session), "identity",
                          value_text(p->identity), "pid", (json_int_t)p->pid);
  if (!row) return NULL;
  json_object_set_new(row, "mode", mode ? json_string(mode) : json_null());
  json_object_set_new(row, "permits", json_integer(p->permits));
  json_object_set_new(row, "data", value_data(p->data, p->len));
  json_object_set_new(row, "znode", value_text(p->name));
  return row;
}

/* A row for party i of the line. */
static int locks_party(call *c, look *l, const look_line *line, int i) {
  const zke_party *p = &line->parties->data[i];
  const zke_session_info *who = look_session(l->sessions, p->session);
  int64_t life = who ? holders_life(who) : p->session;
  json_t *row = party_row(line, i);
  if (!row) return emit_row(c, row);
  json_object_set_new(row, "kept_by",
                      holders_instead(&l->holders, life, p->pid));
  json_object_set_new(row, "bound",
                      take_value(p->data, p->len, p->held ? p->since_ms : 0,
                                 holders_sight(&l->holders, who)));
  return emit_row(c, row);
}

/* Rows for all lines that were asked for; sets *found if there are any. */
static int locks_lines(call *c, look *l, bool *found) {
  int status = 0;
  for (int i = 0; i < l->count && !status; i++) {
    const look_line *line = &l->lines[i];
    if (!is_meant(c, line->path)) continue;
    *found = true;
    for (int k = 0; k < line->parties->count && !status; k++)
      status = locks_party(c, l, line, k);
  }
  return status;
}

/* A znode outside zkembed's lines, with the members of a party: a claim of a
 * queue's item, which is held and has a token, or another library's entry. */
static json_t *single_row(look *l, const char *above, const char *name,
                          const char *kind, int position,
                          const zke_stat *stat) {
  const zke_session_info *who = look_session(l->sessions, stat->ephemeralOwner);
  bool claims = strcmp(kind, "queue") == 0;
  return json_pack(
      "{s:o*,s:s,s:s,s:i,s:I,s:o,s:o*,s:o*,s:I,s:n,s:i,s:n,s:o*,"
      "s:o*,s:n}",
      "path", value_text(above), "kind", kind, "state",
      claims ? "held" : "foreign", "position", position, "since",
      (json_int_t)stat->ctime, "token",
      claims ? json_integer(stat->czxid) : json_null(), "session",
      value_session(stat->ephemeralOwner), "identity",
      value_text(who ? who->identity : ""), "pid",
      (json_int_t)(who ? who->pid : 0), "mode", "permits", 1, "data", "znode",
      value_text(name), "kept_by",
      who ? holders_instead(&l->holders, holders_life(who), who->pid)
          : json_null(),
      "bound");
}

/* The claims of one queue, in the order of the items, since l->claims is sorted
 * by path. */
static int locks_queue(call *c, look *l, const char *queue, bool *found) {
  char kind[32], *data;
  size_t len = strlen(queue);
  int rc = zke_get(c->z, queue, NULL, NULL, &data, NULL, NULL), position = 0;
  if (rc == ZKE_NONODE || rc == ZKE_NOAUTH) return 0;
  if (rc != ZKE_OK) return fail_rc(c, rc);
  kind_in(data, kind);
  zke_free(data);
  if (strcmp(kind, "queue") != 0) return 0;
  for (int i = 0; i < l->claims.count; i++) {
    const char *path = l->claims.data[i];
    zke_stat stat;
    if (strncmp(path, queue, len) != 0) continue;
    if (strncmp(path + len, "/taken/", 7) != 0) continue;
    if (zke_exists(c->z, path, NULL, NULL, &stat) != ZKE_OK) continue;
    *found = true;
    int status = emit_row(
        c, single_row(l, queue, path + len + 7, "queue", ++position, &stat));
    if (status) return status;
  }
  return 0;
}

/* The entries of other libraries in their lines.  zkembed ignores such znodes,
 * and those libraries ignore zkembed's (zke_recipe_foreign()).  This cuts each
 * path of the list into its directory and its name. */
static int locks_foreign(call *c, look *l, bool *found) {
  const char *before = "";
  int status = 0, position = 0;
  for (int i = 0; i < l->foreign.count && !status; i++) {
    char *path = l->foreign.data[i], *slash = strrchr(path, '/');
    zke_stat stat;
    int rc = zke_exists(c->z, path, NULL, NULL, &stat);
    *slash = '\0';
    if (rc != ZKE_OK || !is_meant(c, path)) continue;
    position = strcmp(path, before) == 0 ? position + 1 : 1;
    before = path;
    *found = true;
    status =
        emit_row(c, single_row(l, path, slash + 1,
                               zke_recipe_foreign(slash + 1), position, &stat));
  }
  return status;
}

/* locks [NAME].  Exit status 1 if a name was given and no line matches it. */
static int locks_run(call *c) {
  look l;
  bool found = false;
  int status = look_take(c, &l);
  if (!status) status = locks_lines(c, &l, &found);
  if (!status) status = locks_foreign(c, &l, &found);
  for (int i = 0; option_given(c, 'a') && i < l.queues.count && !status; i++)
    if (is_meant(c, l.queues.data[i]))
      status = locks_queue(c, &l, l.queues.data[i], &found);
  look_free(&l);
  if (status || found || c->count == 0) return status;
  return fail_with(c, STATUS_NO, NULL, "nobody holds %s", c->args[0].text);
}

/* A line of the table: "  held  0x100000001  2026-…  nightly (pid 12) …". */
static void locks_human(call *c, json_t *row, FILE *out) {
  const json_t *data = json_object_get(row, "data");
  json_int_t permits = json_integer_value(json_object_get(row, "permits"));
  json_int_t token = json_integer_value(json_object_get(row, "token"));
  if (json_integer_value(json_object_get(row, "position")) == 1) {
    fputs(c->told ? "\n" : "", out);
    output_visible(NULL, json_object_get(row, "path"), out);
    fputs("  ", out);
    output_visible(NULL, json_object_get(row, "kind"), out);
    fputc('\n', out);
  }
  const char *state = json_string_value(json_object_get(row, "state"));
  if (strcmp(state, "foreign") != 0)
    state = word_for(json_string_value(json_object_get(row, "kind")),
                     json_string_value(json_object_get(row, "mode")),
                     strcmp(state, "held") == 0);
  fprintf(out, "  %-8s  %-11s  ", state,
          json_string_value(json_object_get(row, "session")));
  output_text("since", json_object_get(row, "since"), out);
  fputs("  ", out);
  output_visible(NULL, json_object_get(row, "identity"), out);
  fprintf(out, " (pid %" JSON_INTEGER_FORMAT,
          json_integer_value(json_object_get(row, "pid")));
  look_kept_human(row, "kept_by", out);
  fputc(')', out);
  if (token) fprintf(out, "  token %" JSON_INTEGER_FORMAT, token);
  if (permits > 1) fprintf(out, "  %" JSON_INTEGER_FORMAT " permits", permits);
  const json_t *bound = json_object_get(row, "bound");
  take_human(bound, "  ", out);
  if (!json_is_object(bound) && !json_is_null(data)) {
    fputs("  ", out);
    output_visible(NULL, data, out);
  }
  fputc('\n', out);
}

/* ------------------------------------------------------------------------
 * sessions, expire
 *
 * A session's row has two sources: the file, and /proc, which shows the
 * processes that keep its descriptor (process.c).  For another user's processes
 * the second may be missing.
 * --------------------------------------------------------------------- */

/* The file's data about a session.  `expire` prints the same row, so it does
 * not name the processes that keep the session. */
static json_t *session_row(const call *c, const zke_session_info *s) {
  return json_pack("{s:o*,s:o*,s:I,s:I,s:b,s:I,s:i,s:i,s:i,s:b}", "session",
                   value_session(s->id), "identity", value_text(s->identity),
                   "pid", (json_int_t)s->pid, "since",
                   (json_int_t)s->started_ms, "alive", s->alive, "lease_ms",
                   (json_int_t)s->lease_ms, "ephemerals", s->ephemerals,
                   "watches", s->watches, "events", s->events, "own",
                   s->id == zke_session_id(c->z));
}

/* A session's row, with the other processes that keep it alive, and its kind of
 * life. */
static int sessions_one(call *c, holders *h, const zke_session_info *s) {
  json_t *row = session_row(c, s);
  if (!row) return emit_row(c, row);
  json_object_set_new(
      row, "kept_by",
      s->alive ? holders_instead(h, holders_life(s), s->pid) : json_null());
  json_object_set_new(row, "timeout_ms", json_integer(s->timeout_ms));
  json_object_set_new(row, "carrier",
                      s->carrier ? value_session(s->carrier) : json_null());
  return emit_row(c, row);
}

/* sessions: a row for each. */
static int sessions_run(call *c) {
  zke_session_list *list;
  int rc = zke_sessions(c->z, -1, &list), status = 0;
  if (rc != ZKE_OK) return fail_rc(c, rc);
  holders h = holders_begin(c->sh->file);
  for (int i = 0; i < list->count && !status; i++)
    status = sessions_one(c, &h, &list->data[i]);
  holders_free(&h);
  zke_free(list);
  return status;
}

/* A line for a session, below a heading before the first. */
static void sessions_human(call *c, json_t *row, FILE *out) {
  const char *session;
  json_int_t pid, since, lease, timeout;
  int alive, own, ephemerals, watches, events;
  bool light = !json_is_null(json_object_get(row, "carrier"));
  json_unpack(row, "{s:s,s:I,s:I,s:I,s:I,s:b,s:b,s:i,s:i,s:i}", "session",
              &session, "pid", &pid, "since", &since, "lease_ms", &lease,
              "timeout_ms", &timeout, "alive", &alive, "own", &own,
              "ephemerals", &ephemerals, "watches", &watches, "events",
              &events);
  if (!c->told)
    fprintf(out, "%8s  %-12s  %-20s %5s %5s %5s  IDENTITY\n", "PID", "SESSION",
            "SINCE", "NODES", "WATCH", "EVENT");
  char when[ZKE_RECIPE_WHEN];
  zke_recipe_when(since, when);
  fprintf(out, "%8" JSON_INTEGER_FORMAT "  %-12s  %-20s %5d %5d %5d  ", pid,
          session, when, ephemerals, watches, events);
  output_visible(NULL, json_object_get(row, "identity"), out);
  if (lease) fprintf(out, " (lease %" JSON_INTEGER_FORMAT " ms)", lease);
  if (timeout) fprintf(out, " (kept %" JSON_INTEGER_FORMAT " ms)", timeout);
  look_kept_human(row, "kept_by", out);
  if (own)
    fputs(" (this one)", out);
  else if (timeout && !light)
    fputs(" (detached)", out);
  else if (!alive)
    fputs(" (dead)", out);
  fputc('\n', out);
}

/* Ends a session; prints its row as it was before.  This reads it first, since
 * afterwards nothing is left of it. */
static int expire_one(call *c, const word *given) {
  int64_t session;
  zke_session_list *list = NULL;
  if (!word_session(given, &session) || session == -1) /* -1: all of them */
    return fail_usage(c, "\"%s\" is not a session's id", given->text);
  int rc = zke_sessions(c->z, session, &list);
  json_t *row = rc == ZKE_OK ? session_row(c, &list->data[0]) : NULL;
  if (rc == ZKE_OK) rc = zke_expire(c->z, session);
  zke_free(list);
  if (rc == ZKE_OK) return emit_row(c, row);
  json_decref(row);
  return fail_rc(c, rc);
}

/* expire: one session after the other, until one fails. */
static int expire_run(call *c) {
  int status = 0;
  for (int i = 0; i < c->count && !status; i++)
    status = expire_one(c, &c->args[i]);
  return status;
}

/* "expired 0x12: zke (pid 7)" */
static void expire_human(call *c, json_t *row, FILE *out) {
  (void)c;
  fprintf(out,
          "expired %s: ", json_string_value(json_object_get(row, "session")));
  output_visible(NULL, json_object_get(row, "identity"), out);
  fprintf(out, " (pid %" JSON_INTEGER_FORMAT ")\n",
          json_integer_value(json_object_get(row, "pid")));
}

/* ------------------------------------------------------------------------
 * The target of break, steal and revoke
 *
 * A name without a slash may mean a lock, an election or another recipe's line.
 * It means the one that is in use; if there are two, the command refuses to
 * guess.
 * --------------------------------------------------------------------- */

/* Refuses a name that matches two lines. */
static int target_two(call *c, const look_line *a, const char *b) {
  return fail_usage(c, "\"%s\" may mean %s or %s", c->args[0].text, a->path, b);
}

/* The line that argument 0 names: a path, or a name below the one base with a
 * line in use. */
static int target_of(call *c, look_line *found) {
  *found = (look_line){0};
  int ways = c->args[0].text[0] == '/' ? 1 : BASES - 1, status = 0;
  for (int i = 0; i < ways && !status; i++) {
    char *path;
    look_line line;
    status = arg_place(c, 0, bases[i], &path);
    if (status) return status;
    status = line_take(c, path, &line);
    if (!status && line.parties && found->path)
      status = target_two(c, found, path);
    free(path);
    if (!status && line.parties)
      *found = line;
    else
      line_free(&line);
  }
  if (status || found->path) return status;
  return fail_with(c, STATUS_NO, "NONODE", "nobody holds %s or waits for it",
                   c->args[0].text);
}

/* Refuses a line of another kind, and names the command that fits. */
static int fail_kind(call *c, const look_line *line, const char *instead) {
  return fail_with(c, STATUS_DATA, "OTHERKIND", "%s is of the kind %s: %s",
                   line->path, line->kind, instead);
}

/* ------------------------------------------------------------------------
 * break
 *
 * The holder is not asked.  It learns of its loss when its node is gone, and
 * its token is worthless from then on.
 * --------------------------------------------------------------------- */

/* Were two znodes made together, as a semaphore's permits are?  Then their
 * names have the same guid. */
static bool is_together(const char *name, const char *with) {
  return strncmp(name, with, ZKE_NAME_HEAD) == 0;
}

/* Deletes the holder's entry, or entries, and so tells it of the loss.  Names
 * are never reused, so this cannot hit another holder. */
static int break_entries(call *c, const char *path, const char *name) {
  zke_strings *all, some = {0};
  int rc = zke_children(c->z, path, NULL, NULL, &all, NULL);
  if (rc != ZKE_OK) return rc;
  some.data = zke_alloc(c->z, ((size_t)all->count + 1) * sizeof *some.data);
  if (!some.data) rc = ZKE_NOMEM;
  for (int i = 0; i < all->count && rc == ZKE_OK; i++) {
    if (!is_together(all->data[i], name)) continue;
    char *whole = zke_recipe_path(c->z, path, all->data[i]);
    if (whole)
      some.data[some.count++] = whole;
    else
      rc = ZKE_NOMEM;
  }
  if (rc == ZKE_OK) rc = zke_recipe_delete_all(c->z, &some);
  for (int i = 0; i < some.count; i++) zke_free(some.data[i]);
  zke_free(some.data);
  zke_free(all);
  return rc;
}

/* Takes what party i has; leaves a lock alone that has another holder by
 * now. */
static int break_one(call *c, const look_line *line, int i) {
  const zke_party *p = &line->parties->data[i];
  int rc;
  if (strcmp(line->kind, "lock") == 0)
    rc = zke_lock_break(c->z, line->path, p->mzxid);
  else
    rc = break_entries(c, line->path, p->name);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  json_t *row = party_row(line, i);
  if (row) json_object_set_new(row, "state", json_string("broken"));
  return emit_row(c, row);
}

/* Does the party hold the line, by this token? 0 stands for any. */
static bool is_target(const zke_party *p, int64_t token) {
  return p->held && (token == 0 || p->mzxid == token);
}

/* Takes it from holders: the one with the token, the only one, or with --all
 * every one. */
static int break_line(call *c, const look_line *line, int64_t token) {
  int count = 0, status = 0;
  for (int i = 0; i < line->parties->count; i++)
    count += is_target(&line->parties->data[i], token);
  if (count == 0 && token)
    return fail_with(c, STATUS_NO, "NONODE",
                     "%s is not held with the token %" PRId64, line->path,
                     token);
  if (count == 0)
    return fail_with(c, STATUS_NO, "NONODE", "nobody holds %s", line->path);
  if (count > 1 && !option_given(c, 'a'))
    return fail_usage(c,
                      "%d hold %s: name one of them by --token, or say --all",
                      count, line->path);
  for (int i = 0; i < line->parties->count && !status; i++)
    if (is_target(&line->parties->data[i], token))
      status = break_one(c, line, i);
  return status;
}

/* break: any kind of line. */
static int break_run(call *c) {
  int64_t token;
  look_line line;
  int status = option_number(c, 't', 1, INT64_MAX, 0, &token);
  if (status) return status;
  status = target_of(c, &line);
  if (!status) status = break_line(c, &line, token);
  line_free(&line);
  return status;
}

/* "broke /locks/a: backup (pid 12)" */
static void party_human(const char *done, json_t *row, FILE *out) {
  fprintf(out, "%s ", done);
  output_visible(NULL, json_object_get(row, "path"), out);
  fputs(": ", out);
  output_visible(NULL, json_object_get(row, "identity"), out);
  fprintf(out, " (pid %" JSON_INTEGER_FORMAT ")",
          json_integer_value(json_object_get(row, "pid")));
}

/* "broke …, token 5": the token that is now worthless. */
static void break_human(call *c, json_t *row, FILE *out) {
  (void)c;
  party_human("broke", row, out);
  fprintf(out, ", token %" JSON_INTEGER_FORMAT "\n",
          json_integer_value(json_object_get(row, "token")));
}

/* ------------------------------------------------------------------------
 * steal
 *
 * A stolen lock always has a holder: zke_lock_steal() puts this session's entry
 * before all others, in one transaction.
 * --------------------------------------------------------------------- */

/* For stolen_class: in a script or coprocess the session keeps the lock until
 * it releases it. */
static int stolen_release(void *lock) { return zke_lock_release(lock); }
static void stolen_destroy(void *lock) { zke_lock_free(lock); }
static int64_t stolen_token(void *lock) { return zke_lock_token(lock); }
static int stolen_check(void *lock) { return zke_lock_check(lock); }

static const held_class stolen_class = {"lock", stolen_release, stolen_destroy,
                                        stolen_token};

/* A listener that does nothing.  With a listener the lock watches its own
 * znode, so that its state shows immediately if another process steals it. */
static void stolen_heard(zke_lock *lock, int state, int64_t token,
                         void *context) {
  (void)lock, (void)state, (void)token, (void)context;
}

/* Prints the former holder; null if there was none, or it was this session. */
static int steal_tell(call *c, const char *path, zke_lock *lock,
                      const look_line *before) {
  const zke_party *p = before->parties ? &before->parties->data[0] : NULL;
  if (p && !p->held) p = NULL;
  json_t *row =
      json_pack("{s:o*,s:s,s:I,s:o*}", "path", value_text(path), "kind", "lock",
                "token", (json_int_t)zke_lock_token(lock), "session",
                value_session(zke_session_id(c->z)));
  if (!row) return no_memory(c);
  json_object_set_new(row, "stolen_from",
                      p ? value_session(p->session) : json_null());
  json_object_set_new(row, "stolen_from_identity",
                      p ? value_text(p->identity) : json_null());
  json_object_set_new(row, "stolen_from_pid",
                      p ? json_integer(p->pid) : json_null());
  return c->sh->persists ? emit_row(c, row) : emit_event(c, row);
}

/* Prints the new holder, and from whom it stole the lock. */
static void steal_human(call *c, json_t *row, FILE *out) {
  const json_t *from = json_object_get(row, "stolen_from_identity");
  (void)c;
  fputs("lock ", out);
  output_visible(NULL, json_object_get(row, "path"), out);
  fprintf(out, ", token %" JSON_INTEGER_FORMAT,
          json_integer_value(json_object_get(row, "token")));
  if (!json_is_null(from)) {
    fputs(", stolen from ", out);
    output_visible(NULL, from, out);
    fprintf(out, " (pid %" JSON_INTEGER_FORMAT ")",
            json_integer_value(json_object_get(row, "stolen_from_pid")));
  }
  fputc('\n', out);
}

/* The failure of a lock that was stolen from us again. */
static int fail_stolen(call *c, const char *path) {
  loss l;
  char text[512];
  loss_note(&l, c, "lock", path);
  loss_text(c, &l, text, sizeof text);
  return fail_with(c, STATUS_LOST, "LOST", "%s", text);
}

/* Was the lock taken away?  For held_until_signal(). */
static bool steal_lost(void *lock) {
  return zke_lock_state(lock) != ZKE_LOCK_HELD;
}

/* Holds the stolen lock until a signal comes or another process steals it.  The
 * check leaves the sentence that fail_stolen() passes on. */
static int steal_hold(call *c, const char *path, zke_lock *lock) {
  int status = held_until_signal(c, steal_lost, lock);
  if (status) return status;
  zke_lock_check(lock);
  return fail_stolen(c, path);
}

/* Runs the child while the lock is held, then releases it.  If the lock was
 * lost at any time until the release, the exit status says so: the child may
 * have written without the lock. */
static int steal_for_child(call *c, const char *path, zke_lock *lock) {
  guard g = {.kind = "lock",
             .path = path,
             .token = zke_lock_token(lock),
             .check = stolen_check,
             .object = lock};
  int status = guard_run(c, &g);
  if (c->status == STATUS_LOST) return status;
  int rc = zke_lock_release(lock);
  if (rc == ZKE_LOST || rc == ZKE_INVALIDSTATE) return fail_stolen(c, path);
  return rc != ZKE_OK && status == STATUS_OK ? fail_rc(c, rc) : status;
}

/* The lock is held; if the session outlives the command, the session gets
 * it. */
static int steal_go_on(call *c, const char *path, zke_lock *lock,
                       const look_line *before) {
  int status = c->child ? steal_for_child(c, path, lock)
                        : steal_tell(c, path, lock, before);
  if (!status && c->sh->persists && !c->child) {
    status = held_add(c, &stolen_class, path, lock);
    if (!status) return 0;
  } else if (!status && !c->child) {
    status = steal_hold(c, path, lock);
  }
  zke_lock_free(lock);
  return status;
}

/* Takes the lock for this session; then runs the command or holds the lock. */
static int steal_lock(call *c, const char *path, const look_line *before) {
  zke_lock *lock = NULL;
  char *label = child_label(c);
  if (!label) return no_memory(c);
  zke_lock_options o = {.size = sizeof o,
                        .data = label,
                        .len = (int)strlen(label),
                        .listener = stolen_heard};
  int rc = zke_lock_new(c->z, path, &o, &lock);
  if (rc == ZKE_OK) rc = zke_lock_steal(lock);
  free(label);
  if (rc == ZKE_OK) return steal_go_on(c, path, lock, before);
  int status = fail_rc(c, rc);
  zke_lock_free(lock);
  return status;
}

/* steal: reads the line first, to report from whom it steals, and because other
 * kinds cannot be stolen. */
static int steal_run(call *c) {
  char *path;
  look_line before;
  int status = guard_options(c);
  if (!status) status = arg_place(c, 0, "locks", &path);
  if (status) return status;
  status = line_take(c, path, &before);
  if (!status && *before.kind && strcmp(before.kind, "lock") != 0)
    status = fail_kind(c, &before, "steal is for locks; break takes it away");
  if (!status) status = steal_lock(c, path, &before);
  line_free(&before);
  free(path);
  return status;
}

/* ------------------------------------------------------------------------
 * revoke
 *
 * A holder that listens gives up the lock itself, between two steps of its
 * work.  Only --insist takes the lock away when the time is over.
 * --------------------------------------------------------------------- */

CANCELLER(revoke_cancel, zke_rwlock, zke_rwlock_cancel)

/* Asks, and waits until the lock is free; 0 or the exit code.  A signal ends
 * the wait by zke_rwlock_cancel(). */
static int revoke_wait(call *c, const char *path, int64_t deadline) {
  zke_rwlock *rw;
  int rc = zke_rwlock_new(c->z, path, NULL, &rw);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  cancel_by(c, revoke_cancel, rw);
  rc = zke_rwlock_revoke(rw, deadline, option_given(c, 'i'));
  cancel_by(c, NULL, NULL);
  int status = 0;
  if (rc == ZKE_CANCELLED) status = fail_cancelled(c);
  if (rc != ZKE_OK && !status) status = fail_rc(c, rc);
  zke_rwlock_free(rw);
  return status;
}

/* Prints each former holder. */
static int revoke_tell(call *c, const look_line *line) {
  int status = 0;
  int count = line->parties ? line->parties->count : 0;
  for (int i = 0; i < count && !status; i++) {
    json_t *row;
    if (!line->parties->data[i].held) continue;
    row = party_row(line, i);
    if (row) json_object_set_new(row, "state", json_string("revoked"));
    status = emit_row(c, row);
  }
  return status;
}

/* revoke: asks, waits, and with --insist takes it away when the time is
 * over. */
static int revoke_run(call *c) {
  int64_t deadline;
  look_line line;
  int status = option_deadline(c, 'w', &deadline);
  if (status) return status;
  if (option_given(c, 'i') && !option_given(c, 'w'))
    return fail_usage(c, "--insist wants --wait, which says after how long");
  status = target_of(c, &line);
  if (!status && strcmp(line.kind, "rwlock") != 0)
    status = fail_kind(
        c, &line,
        "only read/write locks can be asked for; break takes it away");
  if (!status) status = revoke_wait(c, line.path, deadline);
  if (!status) status = revoke_tell(c, &line);
  line_free(&line);
  return status;
}

/* "revoked /rwlocks/a: backup (pid 12)" */
static void revoke_human(call *c, json_t *row, FILE *out) {
  (void)c;
  party_human("revoked", row, out);
  fputc('\n', out);
}

/* The options and rows of these commands, for run.c, args.c and help. */
static const option locks_options[] = {{'a', "all", NULL}, {'\0', NULL, NULL}};
static const option break_options[] = {
    {'t', "token", "TOKEN"}, {'a', "all", NULL}, {'\0', NULL, NULL}};
static const option steal_options[] = {OPTIONS_GUARD, {'\0', NULL, NULL}};
static const option revoke_options[] = {
    {'w', "wait", "DURATION"}, {'i', "insist", NULL}, {'\0', NULL, NULL}};

const command look_commands[] = {
    {"locks", "[-a] [NAME | PATH]",
     "list who holds what and who waits; -a: claims of queues, too",
     locks_options, 0, 1, NEEDS_FILE, STYLE_LINE, locks_run, locks_human},
    {"sessions", "", "list the sessions", NULL, 0, 0, NEEDS_FILE, STYLE_LINE,
     sessions_run, sessions_human},
    {"expire", "SESSION…", "end sessions, and release what they hold", NULL, 1,
     -1, NEEDS_SESSION, STYLE_LINE, expire_run, expire_human},
    {"break", "[--token TOKEN | --all] NAME",
     "take a lock or the like from its holder; the next in line gets it",
     break_options, 1, 1, NEEDS_SESSION, STYLE_LINE, break_run, break_human},
    {"steal",
     "NAME [--on-lost kill|warn] [--grace DURATION] [--close | --wait-all] "
     "[--outlive] "
     "[-- CMD ARGS…]",
     "take a lock from its holder and hold it, ahead of all that wait",
     steal_options, 1, 1, NEEDS_SESSION | TAKES_CHILD, STYLE_LINE, steal_run,
     steal_human},
    {"revoke", "[--wait DURATION [--insist]] NAME",
     "ask the holders of a read/write lock to release it", revoke_options, 1, 1,
     NEEDS_SESSION, STYLE_LINE, revoke_run, revoke_human},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
