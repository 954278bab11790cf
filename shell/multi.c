/* multi.c - several operations, all or nothing
 *
 *     multi create /a x , check /b 3 , set /c y , delete /d
 *
 * or a line each from a file or standard input.  The operations are written
 * like the commands of these names, with the version as the last argument, or
 * by -v.
 *
 * A table has a row for each kind of operation.  args.c sorts each operation's
 * words like those of a command, into a separate call (struct reading), which
 * becomes a zke_op.  Then one zke_multi() does them all.  There is no row for
 * zke_op_sql(): it needs a function of the program, and a script has none.  A
 * fence (fence.c) covers the SQL of scripts.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/part/party.h"
#include "../recipes/support.h"
#include "../recipes/part/znode.h"
#include "tree.h"
#include "work.h"

/* ------------------------------------------------------------------------
 * The operations of a request
 *
 * All operations are read before the first is done, so a mistake in the last
 * line changes nothing.
 * --------------------------------------------------------------------- */

/* All operations of one call of multi, in their order. */
typedef struct request {
  call *c;
  int count, room;
  zke_op *ops; /* own their paths and data */
} request;

/* One operation whose words are being read. */
typedef struct reading {
  call *c;
  int number; /* from 1 */
  call of;    /* its words, sorted; its failures are not printed */
} reading;

/* The operations own their paths and their data. */
static void request_free(request *r) {
  for (int i = 0; i < r->count; i++) {
    free((void *)(uintptr_t)r->ops[i].path);
    free((void *)(uintptr_t)r->ops[i].data);
  }
  free(r->ops);
}

/* One more operation, zeroed; NULL after fail_with().  It may move the others,
 * so a pointer to an operation is valid only until the next call. */
static zke_op *request_add(request *r) {
  if (r->count == r->room) {
    int room = r->room * 2 + 16;
    zke_op *more = realloc(r->ops, (size_t)room * sizeof *more);
    if (!more) {
      no_memory(r->c);
      return NULL;
    }
    r->ops = more;
    r->room = room;
  }
  memset(&r->ops[r->count], 0, sizeof *r->ops);
  return &r->ops[r->count++];
}

/* ------------------------------------------------------------------------
 * Words into an operation
 *
 * An operation is written like the command of its name, but has fewer options:
 * it has none for what a multi cannot do in one step, such as creating missing
 * parents.
 * --------------------------------------------------------------------- */

#define OPTIONS_TAKEN \
  {'0', "null", NULL}, { '6', "base64", "TEXT" }
static const option create_table[] = {{'e', "ephemeral", NULL},
                                      {'s', "sequential", NULL},
                                      {'c', "container", NULL},
                                      {'t', "ttl", "MS"},
                                      OPTIONS_TAKEN,
                                      {'\0', NULL, NULL}};
static const option set_table[] = {
    {'v', "version", "VERSION"}, OPTIONS_TAKEN, {'\0', NULL, NULL}};
static const option version_table[] = {{'v', "version", "VERSION"},
                                       {'\0', NULL, NULL}};

#define OPERATION(name_, usage_, options_, least_, most_)      \
  {                                                            \
    .name = (name_), .usage = (usage_), .options = (options_), \
    .least = (least_), .most = (most_), .flags = NO_FORMAT     \
  }

static const struct kind {
  command command; /* the members that args_sort() uses */
  int type;
  bool has_data;
} kinds[] = {{OPERATION("create", "create [-e] [-s] [-c] [-t MS] PATH [DATA]",
                        create_table, 1, 3),
              ZKE_OP_CREATE, true},
             {OPERATION("set", "set PATH DATA [VERSION]", set_table, 1, 3),
              ZKE_OP_SET, true},
             {OPERATION("delete", "delete PATH [VERSION]", version_table, 1, 3),
              ZKE_OP_DELETE, false},
             {OPERATION("check", "check PATH [VERSION]", version_table, 1, 3),
              ZKE_OP_CHECK, false},
             {OPERATION("check-token", "check-token NAME TOKEN", NULL, 2, 2),
              ZKE_OP_CHECK, false}};

/* The kind of operation that a word names; NULL for none. */
static const struct kind *kind_find(const word *w) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (word_is(w, kinds[i].command.name)) return &kinds[i];
  return NULL;
}

/* The name of a type, which must be in the table. */
static const char *kind_name(int type) {
  size_t i = 0;
  while (kinds[i].type != type) i++;
  return kinds[i].command.name;
}

/* Refuses an operation whose words do not fit, and shows the right form. */
static int fail_words(const reading *r, const struct kind *k) {
  return fail_with(r->c, STATUS_USAGE, "USAGE", "operation %d should read: %s",
                   r->number, k->command.usage);
}

/* Reads the version, from -v or from the argument after the others.  If an
 * option gave the data, there is one argument less before it. */
static bool read_version(const reading *r, const struct kind *k, zke_op *op) {
  int at =
      k->has_data && !option_given(&r->of, '0') && !option_given(&r->of, '6')
          ? 2
          : 1;
  int64_t version = -1;
  const word *given = option_word(&r->of, 'v');
  if (r->of.count > at && (op->type == ZKE_OP_CREATE || given)) return false;
  if (r->of.count > at) given = &r->of.args[at];
  if (given && (!word_number(given, &version) || version != (int32_t)version))
    return false;
  op->version = (int)version;
  return r->of.count <= at + 1;
}

/* Reads the data, from an option or an argument, into a copy for op. */
static bool read_data(const reading *r, const struct kind *k, zke_op *op) {
  char *data = NULL;
  size_t len = 0;
  const word *base64 = option_word(&r->of, '6');
  if (!k->has_data) return true;
  if (option_given(&r->of, '0')) {
    op->len = -1;
    return !base64;
  }
  if (base64) {
    if (!base64_decode(base64->text, base64->len, &data, &len)) return false;
  } else if (r->of.count > 1) {
    len = r->of.args[1].len;
    if ((data = malloc(len + 1)) == NULL) return false;
    memcpy(data, r->of.args[1].text, len + 1);
  }
  op->data = data;
  op->len = (int)len;
  return len <= INT32_MAX && (data || op->type == ZKE_OP_CREATE);
}

/* Reads the kind of node that create makes.  The ACL is the open one: a multi
 * has no option for another. */
static bool read_mode(const reading *r, zke_op *op) {
  const call *of = &r->of;
  if (op->type != ZKE_OP_CREATE) return true;
  op->mode = tree_mode(option_given(of, 'e'), option_given(of, 's'),
                       option_given(of, 'c'), option_given(of, 't'));
  op->acls = ZKE_OPEN_ACL;
  return op->mode >= 0 && (!option_given(of, 't') ||
                           word_ttl(option_word(of, 't'), &op->ttl_ms));
}

/* ---- check-token: is the lock still held with that token? ----
 *
 * A holder holds as long as its znode exists, and its name is never reused.  So
 * this finds the holder before the multi, and the multi checks its znode: if
 * the holder loses it in between, the check fails, and nothing is changed. */

/* Reports that the token is not the holder's. */
static int fail_token(const reading *r, const char *path, int64_t token) {
  return fail_with(r->c, STATUS_NO, "NOTHELD",
                   "operation %d: %s is not held with the token %" PRId64
                   "; nothing was changed",
                   r->number, path, token);
}

/* A name is below /locks; other kinds are named by their paths. */
static int token_place(const reading *r, char **path_out) {
  static const char base[] = "/locks/";
  const word *name = &r->of.args[0];
  char *path;
  if (name->text[0] == '/') return path_join(r->c, name, path_out);
  if (asprintf(&path, "%s%s", base, name->text) < 0) return no_memory(r->c);
  *path_out = path;
  return 0;
}

/* Finds the holder with that token and makes op check its znode.  The check
 * accepts any version, as only the znode's existence counts. */
static int token_find(const reading *r, const char *path, int64_t token,
                      zke_op *op) {
  zke_party_list *list;
  char *znode = NULL;
  int rc = zke_line_parties(r->c->z, path, 0, &list);
  if (rc == ZKE_NONODE) return fail_token(r, path, token);
  if (rc != ZKE_OK) return fail_rc(r->c, rc);
  int i = 0;
  while (i < list->count &&
         (!list->data[i].held || list->data[i].mzxid != token))
    i++;
  bool found = i < list->count;
  if (found && asprintf(&znode, "%s/%s", path, list->data[i].name) < 0)
    znode = NULL;
  zke_free(list);
  if (!found) return fail_token(r, path, token);
  op->path = znode;
  op->version = -1;
  return znode ? 0 : no_memory(r->c);
}

/* check-token: the place by its name, then its holder. */
static int read_token(const reading *r, const struct kind *k, zke_op *op) {
  int64_t token;
  char *path;
  if (!word_number(&r->of.args[1], &token)) return fail_words(r, k);
  int status = token_place(r, &path);
  if (status) return status;
  status = token_find(r, path, token, op);
  free(path);
  return status;
}

/* Makes the operation from the sorted words; all kinds but check-token. */
static int read_node(reading *r, const struct kind *k, zke_op *op) {
  char *path;
  int status = path_join(r->c, &r->of.args[0], &path);
  if (status) return status;
  if (!option_given(&r->of, 's')) path_trim(path);
  op->path = path;
  if (!read_version(r, k, op) || !read_data(r, k, op) || !read_mode(r, op))
    return fail_words(r, k);
  return 0;
}

/* Adds the operation of the words from begin to end; 0 or the exit code. */
static int read_operation(request *q, const word *begin, const word *end) {
  call *c = q->c;
  const struct kind *k = begin < end ? kind_find(begin) : NULL;
  words given = {(int)(end - begin), (word *)(uintptr_t)begin};
  reading r = {
      .c = c, .number = q->count + 1, .of = {.sh = c->sh, .id = c->id}};
  if (!k)
    return fail_with(c, STATUS_USAGE, "USAGE",
                     "operation %d is %s, not create, set, delete, check or "
                     "check-token",
                     r.number,
                     begin < end && *begin->text ? begin->text : "empty");
  zke_op *op = request_add(q);
  if (!op) return c->status;
  op->type = k->type;
  r.of.command = &k->command;
  int status;
  if (args_sort(&r.of, &given) != 0)
    status = fail_words(&r, k);
  else if (k->command.options)
    status = read_node(&r, k, op);
  else
    status = read_token(&r, k, op);
  args_free(&r.of);
  return status;
}

/* ------------------------------------------------------------------------
 * Sources of operations
 *
 * Words of a file are split like a script's lines, so an operation can be moved
 * between the two.
 * --------------------------------------------------------------------- */

/* Arguments, with "," between operations. */
static int read_arguments(request *q) {
  const word *begin = q->c->args, *end = begin + q->c->count;
  for (;;) {
    const word *at = begin;
    while (at < end && (at->literal || !word_is(at, ","))) at++;
    int status = read_operation(q, begin, at);
    if (status || at == end) return status;
    begin = at + 1;
  }
}

/* One operation in a line of a file; an empty line is none. */
static int read_line(request *q, const char *line, size_t len, long number) {
  words *w;
  const char *wrong = words_split(line, len, &w);
  if (wrong)
    return fail_with(q->c, STATUS_DATA, "DATA", "line %ld: %s", number, wrong);
  int status = w->count ? read_operation(q, w->data, w->data + w->count) : 0;
  free(w); /* operations have copies */
  return status;
}

/* A file or standard input, one operation a line.  No operation at all is a
 * failure: a user who expects a change must be told. */
static int read_lines(request *q, const char *name) {
  char *text;
  size_t len;
  int status = input_file(q->c, name, &text, &len);
  if (status) return status;
  const char *at = text, *end = text + len;
  for (long n = 1; !status && at < end; n++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    status = read_line(q, at, (size_t)(stop - at), n);
    at = stop + 1;
  }
  free(text);
  if (status || q->count) return status;
  return fail_with(q->c, STATUS_DATA, "DATA", "there is no operation in %s",
                   strcmp(name, "-") == 0 ? "standard input" : name);
}

/* From the arguments, from --input, or from standard input. */
static int read_request(request *q) {
  call *c = q->c;
  const word *file = option_word(c, 'i');
  if (file && c->count) return fail_usage(c, "operations or --input, not both");
  if (c->count) return read_arguments(q);
  if (!file && c->sh->persists)
    return fail_usage(c, "operations with \",\" between them, or --input");
  return read_lines(q, file ? file->text : "-");
}

/* ------------------------------------------------------------------------
 * The result
 *
 * The sentence names the refused operation; the rows show all of them.  Both
 * say that nothing was changed, since that is the purpose of a multi.
 * --------------------------------------------------------------------- */

/* An operation's result, in a word.  If one is refused, none of the others is
 * done. */
static const char *result_text(int rc, const zke_op_result *result) {
  if (rc == ZKE_OK) return "ok";
  if (result->rc == ZKE_OK) return "undone";
  if (result->rc == ZKE_RUNTIMEINCONSISTENCY) return "not tried";
  return zke_error_name(result->rc) + strlen("ZKE_");
}

/* A row for an operation and its result. */
static int emit_result(call *c, int rc, const zke_op *op,
                       const zke_op_result *result) {
  const char *path = result->path ? result->path : op->path;
  bool is_set = rc == ZKE_OK && op->type == ZKE_OP_SET;
  json_t *row = json_pack("{s:s,s:o,s:s}", "op", kind_name(op->type), "path",
                          value_text(path), "result", result_text(rc, result));
  if (row)
    json_object_set_new(
        row, "version",
        is_set ? json_integer(result->stat.version) : json_null());
  return emit_row(c, row);
}

/* Names the first refused operation and its reason. */
static int fail_refused(request *q, int rc, const zke_op_result *results) {
  int i = 0;
  char sentence[768];
  snprintf(sentence, sizeof sentence, "%s", zke_errmsg());
  while (i < q->count && results[i].rc == ZKE_OK) i++;
  if (i == q->count) return fail_rc(q->c, rc);
  return fail_with(q->c, status_of(rc), zke_error_name(rc) + strlen("ZKE_"),
                   "operation %d of %d, %s %s: %s; nothing was changed", i + 1,
                   q->count, kind_name(q->ops[i].type), q->ops[i].path,
                   sentence);
}

/* Runs the multi.  Prints a row for each operation if they were done or one was
 * refused. */
static int run_request(request *q) {
  call *c = q->c;
  int status = 0;
  size_t count = (size_t)q->count;
  zke_op_result *results = calloc(count + 1, sizeof *results);
  if (!results) return no_memory(c);
  int rc = zke_recipe_multi(c->z, q->ops, q->count, results);
  if (rc != ZKE_OK) fail_refused(q, rc, results);
  bool told = rc == ZKE_OK;
  for (int i = 0; i < q->count; i++) told |= results[i].rc != ZKE_OK;
  for (int i = 0; told && !status && i < q->count; i++)
    status = emit_result(c, rc, &q->ops[i], &results[i]);
  zke_results_clear(results, q->count);
  free(results);
  return rc == ZKE_OK ? status : c->status;
}

/* multi: all or nothing. */
static int multi_run(call *c) {
  request q = {.c = c};
  int status = read_request(&q);
  if (!status) status = run_request(&q);
  request_free(&q);
  return status;
}

/* People see the new paths, and every operation if one was refused. */
static void multi_human(call *c, json_t *row, FILE *out) {
  const char *op, *result;
  (void)c;
  json_unpack(row, "{s:s,s:s}", "op", &op, "result", &result);
  bool done = strcmp(result, "ok") == 0;
  if (done && strcmp(op, "create") != 0) return;
  if (!done) fprintf(out, "%-6s  ", op);
  output_text(NULL, json_object_get(row, "path"), out);
  if (!done) fprintf(out, "  %s", result);
  fputc('\n', out);
}

static const option multi_options[] = {{'i', "input", "FILE"},
                                       {'\0', NULL, NULL}};

const command multi_commands[] = {
    {"multi", "[--input FILE | OPERATION , OPERATION…]",
     "create, set, delete and check nodes and tokens, all or nothing",
     multi_options, 0, -1, CREATES_FILE | OPTIONS_FIRST, STYLE_LINE, multi_run,
     multi_human},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
