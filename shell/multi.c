/* multi.c - several operations, all or nothing
 *
 *     multi create /a x , check /b 3 , set /c y , delete /d
 *
 * or a line each from a file or standard input.  The operations are written as
 * the commands of these names, with the version behind the rest, or by -v.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/support.h"
#include "tree.h"
#include "work.h"

/* ------------------------------------------------------------------------
 * The operations of a request
 * --------------------------------------------------------------------- */

typedef struct request {
  call *c;
  int count, room;
  zke_op *ops; /* own their paths and data */
} request;

/* One operation while its words are read. */
typedef struct reading {
  call *c;
  int number;           /* from 1 */
  const word *at, *end; /* the words left */
  int count;            /* arguments: path, data, version */
  const word *args[3];
  bool ephemeral, sequential, container, null;
  const word *ttl, *base64, *version; /* as given, or NULL */
} reading;

static void request_free(request *r) {
  for (int i = 0; i < r->count; i++) {
    free((void *)(uintptr_t)r->ops[i].path);
    free((void *)(uintptr_t)r->ops[i].data);
  }
  free(r->ops);
}

/* Room for one more, which is zero. */
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
 * --------------------------------------------------------------------- */

static const struct kind {
  const char *name;
  int type;
  const char *letters; /* its options; those before '|' take a value */
  bool has_data;
  const char *usage;
} kinds[] = {
    {"create", ZKE_OP_CREATE, "t6|esc0", true,
     "create [-e] [-s] [-c] [-t MS] PATH [DATA]"},
    {"set", ZKE_OP_SET, "v6|0", true, "set PATH DATA [VERSION]"},
    {"delete", ZKE_OP_DELETE, "v|", false, "delete PATH [VERSION]"},
    {"check", ZKE_OP_CHECK, "v|", false, "check PATH [VERSION]"},
    {"check-token", ZKE_OP_CHECK, "|", false, "check-token NAME TOKEN"}};

static const struct kind *kind_find(const word *w) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (word_is(w, kinds[i].name)) return &kinds[i];
  return NULL;
}

static const char *kind_name(int type) {
  size_t i = 0;
  while (kinds[i].type != type) i++;
  return kinds[i].name;
}

static int fail_words(const reading *r, const struct kind *k) {
  return fail(r->c, STATUS_USAGE, "USAGE", "operation %d should read: %s",
              r->number, k->usage);
}

/* Sets what the letter stands for; false where it wants a value in vain. */
static bool read_letter(reading *r, const struct kind *k, char letter) {
  const char *bar = strchr(k->letters, '|'), *at = strchr(k->letters, letter);
  if (!at || letter == '|') return false;
  if (at < bar && r->at == r->end) return false;
  const word *value = at < bar ? r->at++ : NULL;
  switch (letter) {
    case 'e':
      r->ephemeral = true;
      break;
    case 's':
      r->sequential = true;
      break;
    case 'c':
      r->container = true;
      break;
    case '0':
      r->null = true;
      break;
    case 't':
      r->ttl = value;
      break;
    case 'v':
      r->version = value;
      break;
    default:
      r->base64 = value;
  }
  return true;
}

static char long_letter(const char *name) {
  static const struct {
    const char *name;
    char letter;
  } names[] = {{"--ephemeral", 'e'}, {"--sequential", 's'},
               {"--container", 'c'}, {"--ttl", 't'},
               {"--null", '0'},      {"--base64", '6'},
               {"--version", 'v'}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i].name, name) == 0) return names[i].letter;
  return '\0';
}

/* -es, or --null */
static bool read_option(reading *r, const struct kind *k, const char *text) {
  if (text[1] == '-') {
    char letter = long_letter(text);
    return letter && read_letter(r, k, letter);
  }
  while (*++text)
    if (strchr("06", *text) || !read_letter(r, k, *text)) return false;
  return true;
}

/* Behind "--" nothing is an option. */
static bool read_words(reading *r, const struct kind *k) {
  bool options = true;
  while (r->at < r->end) {
    const word *w = r->at++;
    if (options && !w->literal && word_is(w, "--"))
      options = false;
    else if (options && !w->literal && w->text[0] == '-' && w->len > 1) {
      if (!read_option(r, k, w->text)) return false;
    } else if (r->count < 3)
      r->args[r->count++] = w;
    else
      return false;
  }
  return r->count > 0;
}

/* Which of the arguments the version is; what an option has said is not among
 * them. */
static bool read_version(reading *r, const struct kind *k, zke_op *op) {
  int at = k->has_data && !r->null && !r->base64 ? 2 : 1;
  int64_t version = -1;
  if (r->count > at && (op->type == ZKE_OP_CREATE || r->version)) return false;
  if (r->count > at) r->version = r->args[at];
  if (r->version &&
      (!word_number(r->version, &version) || version != (int32_t)version))
    return false;
  op->version = (int)version;
  return r->count <= at + 1;
}

static bool read_data(const reading *r, const struct kind *k, zke_op *op) {
  char *data = NULL;
  size_t len = 0;
  if (!k->has_data) return true;
  if (r->null) {
    op->len = -1;
    return !r->base64;
  }
  if (r->base64) {
    if (!base64_decode(r->base64->text, r->base64->len, &data, &len))
      return false;
  } else if (r->count > 1) {
    len = r->args[1]->len;
    if ((data = malloc(len + 1)) == NULL) return false;
    memcpy(data, r->args[1]->text, len + 1);
  }
  op->data = data;
  op->len = (int)len;
  return len <= INT32_MAX && (data || op->type == ZKE_OP_CREATE);
}

static bool read_mode(const reading *r, zke_op *op) {
  if (op->type != ZKE_OP_CREATE) return true;
  op->mode =
      create_mode(r->ephemeral, r->sequential, r->container, r->ttl != NULL);
  op->acls = ZKE_OPEN_ACL;
  return op->mode >= 0 && (!r->ttl || word_ttl(r->ttl, &op->ttl_ms));
}

/* ---- check-token: is the lock held still by the one who has that token? ----
 *
 * A holder holds as long as its znode is there, which never comes again under
 * the same name; so it is the znode that is checked together with the rest. */

static int fail_token(const reading *r, const char *path, int64_t token) {
  return fail(r->c, STATUS_NO, "NOTHELD",
              "operation %d: %s is not held with the token %" PRId64
              "; nothing was changed",
              r->number, path, token);
}

/* A name is below /locks; other kinds are named by their paths. */
static int token_place(const reading *r, char **path_out) {
  static const char base[] = "/locks/";
  const word *name = r->args[0];
  char *path;
  if (name->text[0] == '/') return path_join(r->c, name, path_out);
  if (asprintf(&path, "%s%s", base, name->text) < 0) return no_memory(r->c);
  *path_out = path;
  return 0;
}

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

static int read_token(const reading *r, const struct kind *k, zke_op *op) {
  int64_t token;
  char *path;
  if (r->count != 2 || !word_number(r->args[1], &token))
    return fail_words(r, k);
  int status = token_place(r, &path);
  if (status) return status;
  status = token_find(r, path, token, op);
  free(path);
  return status;
}

static int read_operation(request *q, const word *begin, const word *end) {
  call *c = q->c;
  reading r = {.c = c, .number = q->count + 1, .at = begin, .end = end};
  const struct kind *k = begin < end ? kind_find(r.at++) : NULL;
  if (!k)
    return fail(c, STATUS_USAGE, "USAGE",
                "operation %d is %s, not create, set, delete, check or "
                "check-token",
                r.number, begin < end ? begin->text : "empty");
  zke_op *op = request_add(q);
  char *path;
  if (!op) return c->status;
  op->type = k->type;
  if (!read_words(&r, k)) return fail_words(&r, k);
  if (strcmp(k->name, "check-token") == 0) return read_token(&r, k, op);
  int status = path_join(c, r.args[0], &path);
  if (status) return status;
  if (!r.sequential) path_trim(path);
  op->path = path;
  if (!read_version(&r, k, op) || !read_data(&r, k, op) || !read_mode(&r, op))
    return fail_words(&r, k);
  return 0;
}

/* ------------------------------------------------------------------------
 * Where they come from
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

static int read_line(request *q, const char *line, size_t len, long number) {
  words *w;
  const char *wrong = words_split(line, len, &w);
  if (wrong)
    return fail(q->c, STATUS_DATA, "DATA", "line %ld: %s", number, wrong);
  int status = w->count ? read_operation(q, w->data, w->data + w->count) : 0;
  free(w); /* operations have copies */
  return status;
}

static int read_lines(request *q, const char *name) {
  char *text;
  size_t len;
  int status = read_file(q->c, name, &text, &len);
  if (status) return status;
  const char *at = text, *end = text + len;
  for (long n = 1; !status && at < end; n++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    status = read_line(q, at, (size_t)(stop - at), n);
    at = stop + 1;
  }
  free(text);
  return status;
}

static int read_request(request *q) {
  call *c = q->c;
  const word *file = value_of(c, 'i');
  if (file && c->count) return fail_usage(c, "operations or --input, not both");
  if (c->count) return read_arguments(q);
  if (!file && c->sh->persists)
    return fail_usage(c, "operations with \",\" between them, or --input");
  return read_lines(q, file ? file->text : "-");
}

/* ------------------------------------------------------------------------
 * What came of it
 * --------------------------------------------------------------------- */

/* How an operation fared: nothing stays of any when one was refused. */
static const char *result_text(int rc, const zke_op_result *result) {
  if (rc == ZKE_OK) return "ok";
  if (result->rc == ZKE_OK) return "undone";
  if (result->rc == ZKE_RUNTIMEINCONSISTENCY) return "not tried";
  return zke_error_name(result->rc) + strlen("ZKE_");
}

static int emit_result(call *c, int rc, const zke_op *op,
                       const zke_op_result *result) {
  const char *path = result->path ? result->path : op->path;
  bool is_set = rc == ZKE_OK && op->type == ZKE_OP_SET;
  json_t *row = json_pack("{s:s,s:o,s:s}", "op", kind_name(op->type), "path",
                          json_text(path), "result", result_text(rc, result));
  if (row)
    json_object_set_new(
        row, "version",
        is_set ? json_integer(result->stat.version) : json_null());
  return emit(c, row);
}

/* The first that was refused is the one to be named. */
static int fail_refused(request *q, int rc, const zke_op_result *results) {
  int i = 0;
  char sentence[768];
  snprintf(sentence, sizeof sentence, "%s", zke_errmsg());
  while (i < q->count && results[i].rc == ZKE_OK) i++;
  if (i == q->count) return fail_rc(q->c, rc);
  return fail(q->c, status_of(rc), zke_error_name(rc) + strlen("ZKE_"),
              "operation %d of %d, %s %s: %s; nothing was changed", i + 1,
              q->count, kind_name(q->ops[i].type), q->ops[i].path, sentence);
}

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

static int multi_run(call *c) {
  request q = {.c = c};
  int status = read_request(&q);
  if (!status) status = run_request(&q);
  request_free(&q);
  return status;
}

/* People hear of the paths made, and of everything where it was refused. */
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
