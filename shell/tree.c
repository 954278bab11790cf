/* tree.c - commands on nodes
 *
 * ls, tree, get, set, create, delete, stat, exists, count, ephemerals and sync:
 * each calls the zkembed function of its name and prints its result.  subtree.c
 * has the commands on whole subtrees.
 */
#include "tree.h"

#include <stdlib.h>
#include <string.h>

#include "../recipes/support.h"
#include "walk.h"
#include "work.h"

/* Prints nothing: no error means success. */
static void silent_human(call *c, json_t *row, FILE *out) {
  (void)c;
  (void)row;
  (void)out;
}

/* A row with one path, or name, as text; NULL without memory. */
static json_t *path_row(const char *name, const char *path) {
  return json_pack("{s:o}", name, value_text(path));
}

/* ------------------------------------------------------------------------
 * ls
 *
 * Rows are printed as they are read, so a directory of any size needs no memory
 * for them, and head(1) can end it.
 * --------------------------------------------------------------------- */

static const option ls_options[] = {
    {'s', "stat", NULL}, {'R', "recursive", NULL}, {'\0', NULL, NULL}};

/* A row for a node, with its Stat if requested. */
static int ls_row(call *c, const char *member, const char *name,
                  const zke_stat *stat) {
  json_t *row = path_row(member, name);
  if (row && option_given(c, 's')) value_stat(row, stat);
  return emit_row(c, row);
}

/* A child's row.  Its Stat is read separately, so the child may have gone
 * meanwhile: then it is left out. */
static int ls_child(call *c, const char *parent, const char *name) {
  static const zke_stat none;
  zke_stat stat;
  char *path;
  if (!option_given(c, 's')) return ls_row(c, "name", name, &none);
  if (asprintf(&path, "%s%s%s", parent, parent[1] ? "/" : "", name) < 0)
    return no_memory(c);
  int rc = zke_exists(c->z, path, NULL, NULL, &stat);
  free(path);
  if (rc == ZKE_NONODE) return 0;
  return rc == ZKE_OK ? ls_row(c, "name", name, &stat) : fail_rc(c, rc);
}

/* The children of one node. */
static int ls_children(call *c, const char *path) {
  zke_strings *names;
  int status = 0;
  int rc = zke_children(c->z, path, NULL, NULL, &names, NULL);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  for (int i = 0; !status && i < names->count; i++)
    status =
        cancel_came(c) ? fail_cancelled(c) : ls_child(c, path, names->data[i]);
  zke_free(names);
  return status;
}

/* All nodes below a node, by whole paths. */
static int ls_all(call *c, const char *path) {
  walk w;
  int status = 0;
  walk_begin(&w, c, path, -1, false);
  while (!status && walk_next(&w))
    if (w.depth > 0) status = ls_row(c, "path", w.path, &w.stat);
  return walk_end(&w, status);
}

/* ls: names of children, or with -R paths of all nodes below. */
static int ls_run(call *c) {
  char *path;
  int status = arg_path(c, 0, &path);
  if (status) return status;
  status = option_given(c, 'R') ? ls_all(c, path) : ls_children(c, path);
  free(path);
  return status;
}

/* The name comes last, so that rows can be printed as they come. */
static void ls_human(call *c, json_t *row, FILE *out) {
  const char *name = option_given(c, 'R') ? "path" : "name";
  if (option_given(c, 's')) {
    if (!c->told)
      fprintf(out, "%7s  %8s  %7s  %-20s  %-18s  %s\n", "VERSION", "CHILDREN",
              "BYTES", "CHANGED", "OWNER",
              option_given(c, 'R') ? "PATH" : "NAME");
    const char *owner =
        json_string_value(json_object_get(row, "ephemeralOwner"));
    json_int_t version = json_integer_value(json_object_get(row, "version")),
               children =
                   json_integer_value(json_object_get(row, "numChildren")),
               bytes = json_integer_value(json_object_get(row, "dataLength"));
    fprintf(out, "%7lld  %8lld  %7lld  ", version, children, bytes);
    output_text("mtime", json_object_get(row, "mtime"), out);
    fprintf(out, "  %-18s  ", strcmp(owner, "0x0") == 0 ? "-" : owner);
  }
  output_text(NULL, json_object_get(row, name), out);
  fputc('\n', out);
}

/* ------------------------------------------------------------------------
 * tree
 *
 * Only people get the drawing.  For programs a row has the path and the depth,
 * which say the same.
 * --------------------------------------------------------------------- */

static const option tree_options[] = {
    {'L', "depth", "DEPTH"}, {'s', "stat", NULL}, {'\0', NULL, NULL}};

/* The text before a name in the drawing; for free(), NULL without memory.  Each
 * level above draws a line down, unless its node was the last there. */
static char *tree_branch(const walk *w) {
  static const char past[] = "    ", beside[] = "│   ", last[] = "└── ",
                    fork[] = "├── ";
  char *text = malloc((size_t)w->depth * sizeof fork + 1), *at = text;
  if (!text) return NULL;
  *at = '\0';
  for (int i = 1; i < w->depth; i++)
    at = stpcpy(at, walk_last(w, i) ? past : beside);
  if (w->depth > 0) stpcpy(at, walk_last(w, w->depth) ? last : fork);
  return text;
}

/* A node for people: the branches before it, and its name; for the top, its
 * path. */
static json_t *tree_row_drawn(const walk *w) {
  char *branch = tree_branch(w);
  const char *name = w->depth ? walk_name(w) : w->path;
  json_t *row = NULL;
  if (branch)
    row = json_pack("{s:s,s:o}", "branch", branch, "name", value_text(name));
  free(branch);
  return row;
}

/* A node's row; NULL without memory. */
static json_t *tree_row(call *c, const walk *w) {
  json_t *row;
  if (c->format == FORMAT_HUMAN && !c->id)
    row = tree_row_drawn(w);
  else
    row =
        json_pack("{s:o,s:i}", "path", value_text(w->path), "depth", w->depth);
  if (!row || !option_given(c, 's')) return row;
  json_object_set_new(row, "dataLength", json_integer(w->stat.dataLength));
  json_object_set_new(row, "ephemeralOwner",
                      value_session(w->stat.ephemeralOwner));
  return row;
}

/* tree: a row for each node, with the branches before it. */
static int tree_run(call *c) {
  walk w;
  char *path;
  int64_t limit;
  int status = option_number(c, 'L', 0, INT32_MAX, -1, &limit);
  if (!status) status = arg_path(c, 0, &path);
  if (status) return status;
  walk_begin(&w, c, path, (int)limit, false);
  free(path);
  while (!status && walk_next(&w)) status = emit_row(c, tree_row(c, &w));
  return walk_end(&w, status);
}

/* The branches, the name, and unusual properties. */
static void tree_human(call *c, json_t *row, FILE *out) {
  (void)c;
  output_text(NULL, json_object_get(row, "branch"), out);
  output_text(NULL, json_object_get(row, "name"), out);
  json_int_t bytes = json_integer_value(json_object_get(row, "dataLength"));
  const char *owner = json_string_value(json_object_get(row, "ephemeralOwner"));
  if (bytes) fprintf(out, "  %lld byte%s", bytes, bytes == 1 ? "" : "s");
  if (owner && strcmp(owner, "0x0") != 0) fprintf(out, "  ephemeral %s", owner);
  fputc('\n', out);
}

/* ------------------------------------------------------------------------
 * get
 *
 * Data may be any bytes.  People see them escaped (output_text()), JSON has
 * base64 if they are not UTF-8, and --raw writes them unchanged.
 * --------------------------------------------------------------------- */

static const option get_options[] = {
    {'s', "stat", NULL}, {'r', "raw", NULL}, {'\0', NULL, NULL}};

/* get: --raw prints only the bytes. */
static int get_run(call *c) {
  char *path, *data;
  int len;
  zke_stat stat;
  if (option_given(c, 'r') && (option_given(c, 's') || c->id))
    return fail_usage(c, "--raw prints the bytes and nothing else, so no Stat");
  int status = arg_path(c, 0, &path);
  if (status) return status;
  int rc = zke_get(c->z, path, NULL, NULL, &data, &len, &stat);
  free(path);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  if (option_given(c, 'r')) c->format = FORMAT_HUMAN; /* no other has bytes */
  json_t *row = json_pack("{s:o}", "data", value_data(data, len));
  zke_free(data);
  if (row && option_given(c, 's')) value_stat(row, &stat);
  return emit_row(c, row);
}

/* Data for people, or raw. */
static void get_data(const json_t *value, bool raw, FILE *out) {
  char *data;
  int len;
  if (!raw) {
    output_text(NULL, value, out);
  } else if (value_to_data(value, &data, &len)) {
    if (len > 0) (void)fwrite(data, 1, (size_t)len, out); /* output_check() */
    free(data);
  }
}

/* The data, and below it the Stat if requested. */
static void get_human(call *c, json_t *row, FILE *out) {
  const char *name;
  json_t *value;
  get_data(json_object_get(row, "data"), option_given(c, 'r'), out);
  if (option_given(c, 'r')) return;
  fputc('\n', out);
  json_object_foreach(row, name, value) {
    if (strcmp(name, "data") == 0) continue;
    fprintf(out, "%s = ", name);
    output_text(name, value, out);
    fputc('\n', out);
  }
}

/* ------------------------------------------------------------------------
 * stat, exists, count
 *
 * Each is one call of the library.
 * --------------------------------------------------------------------- */

/* A row with the Stat of a node. */
static int stat_one(call *c, const char *path) {
  zke_stat stat;
  int rc = zke_exists(c->z, path, NULL, NULL, &stat);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  json_t *row = path_row("path", path);
  if (row) value_stat(row, &stat);
  return emit_row(c, row);
}

/* Calls one() for each argument, or for the working node. */
static int for_each_path(call *c, int (*one)(call *c, const char *path)) {
  int status = 0;
  for (int i = 0; !status && (i < c->count || i == 0); i++) {
    char *path;
    status = arg_path(c, i, &path);
    if (status) break;
    status = one(c, path);
    free(path);
  }
  return status;
}

/* stat: a row for each path, until one fails. */
static int stat_run(call *c) { return for_each_path(c, stat_one); }

/* exists.  For people a single command answers only by its exit code; at a
 * prompt, where that is invisible, by a sentence.  A script that ends because
 * of the answer 1 says why. */
static int exists_run(call *c) {
  char *path;
  int status = arg_path(c, 0, &path);
  if (status) return status;
  int rc = zke_exists(c->z, path, NULL, NULL, NULL);
  if (rc != ZKE_OK && rc != ZKE_NONODE)
    status = fail_rc(c, rc);
  else
    status = emit_row(c, json_pack("{s:o,s:b}", "path", value_text(path),
                                   "exists", rc == ZKE_OK));
  if (!status && rc == ZKE_NONODE)
    status =
        fail_with(c, STATUS_NO,
                  c->sh->persists && !c->sh->person && !c->id ? "NONODE" : NULL,
                  "no node at %s", path);
  free(path);
  return status;
}

/* Scripts use the exit status; only a person needs words. */
static void exists_human(call *c, json_t *row, FILE *out) {
  if (!c->sh->person) return;
  output_text(NULL, json_object_get(row, "exists"), out);
  fputc('\n', out);
}

/* count: of all nodes below, without reading them. */
static int count_run(call *c) {
  char *path;
  int64_t count;
  int status = arg_path(c, 0, &path);
  if (status) return status;
  int rc = zke_count(c->z, path, &count);
  free(path);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  return emit_row(c, json_pack("{s:I}", "count", (json_int_t)count));
}

/* ------------------------------------------------------------------------
 * create
 *
 * The options are checked before anything is read or created: standard input
 * can be read only once, and a node made by mistake is not removed.
 * --------------------------------------------------------------------- */

static const option create_options[] = {{'e', "ephemeral", NULL},
                                        {'s', "sequential", NULL},
                                        {'c', "container", NULL},
                                        {'t', "ttl", "MS"},
                                        {'p', "parents", NULL},
                                        {'a', "acl", "ACL"},
                                        {'H', "hold", NULL},
                                        OPTIONS_DATA,
                                        OPTIONS_GUARD,
                                        {'\0', NULL, NULL}};

/* A bare number is milliseconds, as in ZooKeeper; with a unit it is a duration
 * like everywhere else. */
bool word_ttl(const word *w, int64_t *ms_out) {
  if (word_number(w, ms_out)) return *ms_out > 0 && *ms_out <= ZKE_MAX_TTL;
  return strpbrk(w->text, "msdh") && word_duration(w, ms_out) && *ms_out > 0 &&
         *ms_out <= ZKE_MAX_TTL;
}

/* The zkembed mode for a combination of options. */
int tree_mode(bool ephemeral, bool sequential, bool container, bool ttl) {
  if (ephemeral + container + ttl > 1 || (container && sequential)) return -1;
  if (container) return ZKE_CONTAINER;
  if (ttl && sequential) return ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL;
  if (ttl) return ZKE_PERSISTENT_WITH_TTL;
  if (ephemeral && sequential) return ZKE_EPHEMERAL_SEQUENTIAL;
  if (ephemeral) return ZKE_EPHEMERAL;
  return sequential ? ZKE_PERSISTENT_SEQUENTIAL : ZKE_PERSISTENT;
}

/* A node to create. */
typedef struct creation {
  char *path;
  char *data; /* NULL: null data, len -1 */
  int len;
  int mode;       /* ZKE_PERSISTENT … */
  int64_t ttl_ms; /* of a TTL mode */
  zke_acls *acls; /* NULL: open to all */
} creation;

/* Reads the mode and the TTL, and checks that the options fit together.  Called
 * before the data is read, perhaps from standard input. */
static int create_options_read(call *c, creation *n) {
  n->mode = tree_mode(option_given(c, 'e'), option_given(c, 's'),
                      option_given(c, 'c'), option_given(c, 't'));
  if (n->mode < 0)
    return fail_usage(c,
                      "-e, -c and -t are three kinds of nodes, and a container "
                      "has no number");
  if (option_given(c, 't') && !word_ttl(option_word(c, 't'), &n->ttl_ms))
    return fail_usage(c,
                      "-t wants milliseconds, or a number with s, m, h or d,"
                      " not \"%s\"",
                      option_word(c, 't')->text);
  if (!option_given(c, 'e') && option_given(c, 'H'))
    return fail_usage(c, "--hold is for ephemeral nodes");
  if (option_given(c, 'H') && c->child)
    return fail_usage(c, "--hold or a command, not both");
  if (option_given(c, 'e') && !c->sh->persists && !option_given(c, 'H') &&
      !c->child)
    return fail_usage(
        c,
        "an ephemeral node would end with this command's session: "
        "--hold keeps it until a signal comes, "
        "\"-- CMD\" while a command runs");
  return guard_options(c);
}

/* Creates missing parents.  They are persistent and open to all, whatever the
 * node itself is. */
static int create_parents(call *c, const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash || slash == path) return 0;
  char *parent = strndup(path, (size_t)(slash - path));
  if (!parent) return no_memory(c);
  int rc = zke_ensure_path(c->z, parent, ZKE_PERSISTENT, ZKE_FOREVER);
  free(parent);
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* Creates it; *made_out: its path, with its number, for zke_free(). */
static int create_node(call *c, const creation *n, char **made_out) {
  const zke_acls *acls = n->acls ? n->acls : ZKE_OPEN_ACL;
  int rc = n->ttl_ms ? zke_create_ttl(c->z, n->path, n->data, n->len, acls,
                                      n->mode, n->ttl_ms, made_out, NULL)
                     : zke_create(c->z, n->path, n->data, n->len, acls, n->mode,
                                  made_out, NULL);
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* An ephemeral node while this command stays with it. */
typedef struct vigil {
  zke *z;
  const char *path;
} vigil;

/* Is it still this session's? */
static int vigil_check(void *object) {
  const vigil *v = object;
  zke_stat stat;
  int rc = zke_exists(v->z, v->path, NULL, NULL, &stat);
  if (rc == ZKE_NONODE ||
      (rc == ZKE_OK && stat.ephemeralOwner != zke_session_id(v->z)))
    return zke_fail(ZKE_LOST, "%s was deleted", v->path);
  return rc;
}

/* For wait_for_cancel(): the wait ends when the node is lost, or its state
 * cannot be read. */
static bool vigil_over(void *object) { return vigil_check(object) != ZKE_OK; }

/* A watcher that does nothing: the event ends the sleep, and vigil_check()
 * checks. */
static void vigil_stir(zke *z, int type, int state, const char *path,
                       void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

/* --hold: stays until a signal, the normal end and not a failure.  If another
 * process deletes the node, this ends with the reason. */
static int create_hold(call *c, vigil *v) {
  int status = emit_event(c, path_row("path", v->path));
  if (!status) status = wait_for_cancel(c, vigil_over, v, ZKE_FOREVER);
  if (!status) return fail_rc(c, vigil_check(v));
  if (atomic_load(&c->signal)) c->code = NULL; /* as intended */
  return status;
}

/* Runs the child while the node exists. */
static int create_guarded(call *c, vigil *v) {
  const guard g = {
      .kind = "node", .path = v->path, .check = vigil_check, .object = v};
  return guard_run(c, &g);
}

/* Stays with the node, in one of the two ways.  The watch wakes it if another
 * process deletes the node. */
static int create_stay(call *c, vigil *v, bool runs_child) {
  int rc = zke_add_watch(c->z, v->path, ZKE_WATCH_PERSISTENT, vigil_stir, v);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  int status = runs_child ? create_guarded(c, v) : create_hold(c, v);
  zke_forget(c->z, vigil_stir, v);
  return status;
}

/* Creates it, reports it, and stays with it if requested. */
static int create_and_stay(call *c, const creation *n) {
  char *made;
  int status = option_given(c, 'p') ? create_parents(c, n->path) : 0;
  if (!status) status = create_node(c, n, &made);
  if (status) return status;
  vigil v = {c->z, made};
  if (c->child || option_given(c, 'H'))
    status = create_stay(c, &v, c->child != NULL);
  else
    status = emit_row(c, path_row("path", made));
  zke_free(made);
  return status;
}

/* create: an ephemeral node stays while a command runs, until a signal, or as
 * long as the session. */
static int create_run(call *c) {
  creation n = {NULL, NULL, 0, 0, 0, NULL};
  int status = create_options_read(c, &n);
  if (!status) status = arg_data(c, 1, &n.data, &n.len, NULL);
  if (!status) status = path_join(c, &c->args[0], &n.path);
  if (!status && !option_given(c, 's'))
    path_trim(n.path); /* "/a/" is numbered */
  if (!status && option_given(c, 'a'))
    status = acls_parse(c, option_word(c, 'a'), 1, &n.acls);
  if (!status) status = create_and_stay(c, &n);
  free(n.path);
  free(n.data);
  free(n.acls);
  return status;
}

/* ------------------------------------------------------------------------
 * set, delete
 *
 * With -v they succeed only if the node has that version, which the engine
 * checks in the same step as the change.
 * --------------------------------------------------------------------- */

static const option set_options[] = {{'v', "version", "VERSION"},
                                     {'s', "stat", NULL},
                                     OPTIONS_DATA,
                                     {'\0', NULL, NULL}};

/* Replaces the data; the row has the new version. */
static int set_node(call *c, const char *path, int version) {
  char *data;
  int len;
  bool given;
  zke_stat stat;
  int status = arg_data(c, 1, &data, &len, &given);
  if (status) return status;
  if (!given)
    return fail_usage(c, "set wants DATA, --null, --base64 or --input");
  int rc = zke_set(c->z, path, data, len, version, &stat);
  free(data);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  json_t *row = path_row("path", path);
  if (row && option_given(c, 's'))
    value_stat(row, &stat);
  else if (row)
    json_object_set_new(row, "version", json_integer(stat.version));
  return emit_row(c, row);
}

/* set: with -v only if the node has that version. */
static int set_run(call *c) {
  int64_t version;
  char *path;
  int status = option_number(c, 'v', INT32_MIN, INT32_MAX, -1, &version);
  if (!status) status = arg_path(c, 0, &path);
  if (status) return status;
  status = set_node(c, path, (int)version);
  free(path);
  return status;
}

/* Silent, unless the Stat is requested. */
static void set_human(call *c, json_t *row, FILE *out) {
  const char *name;
  json_t *value;
  if (!option_given(c, 's')) return;
  json_object_foreach(row, name, value) {
    fprintf(out, "%s = ", name);
    output_text(name, value, out);
    fputc('\n', out);
  }
}

static const option delete_options[] = {{'v', "version", "VERSION"},
                                        {'\0', NULL, NULL}};

/* Deletes one node, with -v only if it has that version. */
static int delete_one(call *c, const char *path) {
  int64_t version;
  int status = option_number(c, 'v', INT32_MIN, INT32_MAX, -1, &version);
  if (status) return status;
  int rc = zke_delete(c->z, path, (int)version);
  return rc == ZKE_OK ? emit_row(c, path_row("path", path)) : fail_rc(c, rc);
}

/* A version belongs to one node, so it cannot fit several. */
static int delete_run(call *c) {
  if (option_given(c, 'v') && c->count > 1)
    return fail_usage(c, "-v is for one node, and there are several");
  return for_each_path(c, delete_one);
}

/* ------------------------------------------------------------------------
 * ephemerals, sync
 *
 * The engine of a file knows each session's nodes; an ensemble tells them only
 * to their owner, so there the tree is searched.
 * --------------------------------------------------------------------- */

static const option ephemerals_options[] = {{'m', "mine", NULL},
                                            {'\0', NULL, NULL}};

/* A row for each ephemeral node of an ensemble, or of one session (0: all).  A
 * server does not say what another session owns, so this searches the tree. */
static int ephemerals_search(call *c, int64_t session) {
  walk w;
  int status = 0;
  walk_begin(&w, c, "/", -1, false);
  while (!status && walk_next(&w)) {
    int64_t owner = w.stat.ephemeralOwner;
    if (!owner || (session && owner != session)) continue;
    status = emit_row(c, json_pack("{s:o,s:o}", "path", value_text(w.path),
                                   "session", value_session(owner)));
  }
  return walk_end(&w, status);
}

/* A row for each ephemeral node of a session. */
static int ephemerals_of(call *c, int64_t session) {
  zke_strings *paths;
  int status = 0;
  if (store_of(c->sh) == STORE_ENSEMBLE) return ephemerals_search(c, session);
  int rc = zke_ephemerals(c->z, session, NULL, &paths);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  for (int i = 0; !status && i < paths->count; i++)
    status =
        emit_row(c, json_pack("{s:o,s:o}", "path", value_text(paths->data[i]),
                              "session", value_session(session)));
  zke_free(paths);
  return status;
}

/* The same for a named session, which must exist. */
static int ephemerals_of_one(call *c, const word *name) {
  int64_t session;
  zke_session_list *found;
  if (!word_session(name, &session) || session == -1) /* -1: all of them */
    return fail_usage(c, "\"%s\" is not a session's id", name->text);
  int rc = zke_sessions(c->z, session, &found);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  zke_free(found);
  return ephemerals_of(c, session);
}

/* The same for all sessions. */
static int ephemerals_of_all(call *c) {
  zke_session_list *all;
  int status = 0;
  if (store_of(c->sh) == STORE_ENSEMBLE) return ephemerals_search(c, 0);
  int rc = zke_sessions(c->z, -1, &all);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  for (int i = 0; !status && i < all->count; i++)
    if (all->data[i].ephemerals) status = ephemerals_of(c, all->data[i].id);
  zke_free(all);
  return status;
}

/* ephemerals: of all sessions, of one, or with -m of this one. */
static int ephemerals_run(call *c) {
  if (c->count && option_given(c, 'm'))
    return fail_usage(c, "-m or a session's id, not both");
  if (c->count) return ephemerals_of_one(c, &c->args[0]);
  int64_t mine = zke_session_id(c->z);
  if (!option_given(c, 'm')) return ephemerals_of_all(c);
  return mine ? ephemerals_of(c, mine) : 0;
}

static int sync_one(call *c, const char *path) {
  int rc = zke_sync(c->z, path);
  return rc == ZKE_OK ? emit_row(c, path_row("path", path)) : fail_rc(c, rc);
}

static int sync_run(call *c) { return for_each_path(c, sync_one); }

/* The rows of these commands, for run.c, args.c and help. */
const command tree_commands[] = {
    {"ls", "[-s] [-R] [PATH]",
     "list a node's children; -s: with their Stat; -R: all nodes below",
     ls_options, 0, 1, NEEDS_FILE, STYLE_LINE, ls_run, ls_human},
    {"tree", "[-L DEPTH] [-s] [PATH]",
     "draw the tree below a node; -s: with sizes and owners", tree_options, 0,
     1, NEEDS_FILE, STYLE_LINE, tree_run, tree_human},
    {"get", "[-s | --raw] [PATH]",
     "print a node's data; -s: and its Stat; --raw: without an end of line",
     get_options, 0, 1, NEEDS_FILE, STYLE_VALUE, get_run, get_human},
    {"set", "[-s] [-v VERSION] PATH DATA|--null|--base64 TEXT|--input FILE",
     "replace a node's data; -v: only if it has that version", set_options, 1,
     2, NEEDS_SESSION, STYLE_RECORD, set_run, set_human},
    {"create",
     "[-e] [-s] [-c] [-t MS] [-p] [--acl ACL] PATH [DATA] [--hold | -- CMD "
     "ARGS…]",
     "create a node: -e ephemeral, -s numbered, -c container, -t expiring, -p "
     "parents too",
     create_options, 1, 2, CREATES_FILE | TAKES_CHILD | CHILD_IF_EPHEMERAL,
     STYLE_VALUE, create_run, NULL},
    {"delete", "[-v VERSION] PATH…",
     "delete nodes without children; -v: only if it has that version",
     delete_options, 1, -1, NEEDS_SESSION, STYLE_LINE, delete_run,
     silent_human},
    {"deleteall", "PATH…", "delete nodes and all below them", NULL, 1, -1,
     NEEDS_SESSION, STYLE_LINE, deleteall_run, silent_human},
    {"stat", "[PATH…]", "print nodes' Stat", NULL, 0, -1, NEEDS_FILE,
     STYLE_RECORD, stat_run, NULL},
    {"exists", "[PATH]", "say by the exit status whether a node exists: 0 or 1",
     NULL, 0, 1, NEEDS_FILE, STYLE_LINE, exists_run, exists_human},
    {"find",
     "[PATH] [--name GLOB] [--data TEXT] [--ephemeral] [--owner SESSION] "
     "[--depth N]",
     "list the nodes at and below a path that match", find_options, 0, 1,
     NEEDS_FILE, STYLE_LINE, find_run, NULL},
    {"cp", "[-R] SRC DST",
     "copy a node with its ACL; -R: and all below but ephemerals; DST/: below "
     "DST",
     cp_options, 2, 2, NEEDS_SESSION, STYLE_LINE, cp_run, cp_human},
    {"count", "[PATH]", "count all nodes below a node", NULL, 0, 1, NEEDS_FILE,
     STYLE_VALUE, count_run, NULL},
    {"ephemerals", "[-m | SESSION]",
     "list ephemeral nodes: all, this session's (-m), or a session's",
     ephemerals_options, 0, 1, NEEDS_FILE, STYLE_TABLE, ephemerals_run, NULL},
    {"sync", "[PATH]", "as in ZooKeeper; reads are up to date without it", NULL,
     0, 1, NEEDS_FILE, STYLE_LINE, sync_run, silent_human},
    {"rmr", "PATH…", "delete nodes and all below them", NULL, 1, -1,
     NEEDS_SESSION | HIDDEN, STYLE_LINE, deleteall_run, silent_human},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
