/* output.c - rows into text: for people, as JSON, or separated by tabs */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../recipes/support.h"
#include "shell.h"

/* ------------------------------------------------------------------------
 * Values into JSON, and back
 * --------------------------------------------------------------------- */

json_t *json_data(const void *data, int len) {
  if (len < 0) return json_null();
  const char *bytes = data ? data : "";
  size_t n = (size_t)len;
  json_t *text = memchr(bytes, '\0', n) ? NULL : json_stringn(bytes, n);
  if (text) return text;
  char *encoded = base64_encode(bytes, n);
  json_t *j = encoded ? json_pack("{s:s}", "base64", encoded) : NULL;
  free(encoded);
  return j;
}

json_t *json_text(const char *text) {
  return json_data(text, (int)strlen(text));
}

json_t *json_session(int64_t session) {
  return json_sprintf("0x%" PRIx64, (uint64_t)session);
}

void json_stat(json_t *row, const zke_stat *stat) {
  const struct {
    const char *name;
    int64_t value;
  } members[] = {{"czxid", stat->czxid},
                 {"mzxid", stat->mzxid},
                 {"pzxid", stat->pzxid},
                 {"ctime", stat->ctime},
                 {"mtime", stat->mtime},
                 {"version", stat->version},
                 {"cversion", stat->cversion},
                 {"aversion", stat->aversion},
                 {"ephemeralOwner", 0},
                 {"dataLength", stat->dataLength},
                 {"numChildren", stat->numChildren}};
  for (size_t i = 0; i < sizeof members / sizeof *members; i++)
    json_object_set_new(row, members[i].name, json_integer(members[i].value));
  json_object_set_new(row, "ephemeralOwner",
                      json_session(stat->ephemeralOwner));
}

bool data_of_json(const json_t *j, char **data_out, int *len_out) {
  char *data = NULL;
  size_t len = 0;
  const json_t *encoded = json_object_get(j, "base64");
  if (json_is_null(j)) {
    *data_out = NULL;
    *len_out = -1;
    return true;
  }
  if (json_is_string(j)) {
    len = json_string_length(j);
    if (len > INT32_MAX || (data = malloc(len + 1)) == NULL) return false;
    memcpy(data, json_string_value(j), len + 1);
  } else if (json_object_size(j) != 1 || !json_is_string(encoded) ||
             !base64_decode(json_string_value(encoded),
                            json_string_length(encoded), &data, &len)) {
    return false;
  }
  *data_out = data;
  *len_out = (int)len;
  return true;
}

/* ------------------------------------------------------------------------
 * For people
 * --------------------------------------------------------------------- */

static bool is_time(const char *name) {
  size_t len = strlen(name);
  return strcmp(name, "since") == 0 ||
         (len >= 4 && strcmp(name + len - 4, "time") == 0) ||
         (len >= 3 && strcmp(name + len - 3, "_at") == 0);
}

/* Arrays one value after the other, objects as JSON. */
static void output_many(const json_t *value, FILE *out) {
  size_t i;
  json_t *member;
  if (json_is_object(value)) {
    json_dumpf(value, out, JSON_COMPACT | JSON_ENCODE_ANY);
    return;
  }
  json_array_foreach(value, i, member) {
    if (i) fputs(", ", out);
    output_text(NULL, member, out);
  }
}

void output_text(const char *name, const json_t *value, FILE *out) {
  char when[ZKE_RECIPE_WHEN], *data;
  int len;
  if (json_is_integer(value) && name && is_time(name)) {
    zke_recipe_when(json_integer_value(value), when);
    fputs(when, out);
  } else if (json_is_integer(value)) {
    fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
  } else if (json_is_real(value)) {
    fprintf(out, "%g", json_real_value(value));
  } else if (json_is_boolean(value)) {
    fputs(json_is_true(value) ? "yes" : "no", out);
  } else if (json_is_null(value)) {
    fputs("null", out);
  } else if (value && data_of_json(value, &data, &len)) {
    (void)fwrite(data, 1, (size_t)len, out); /* output_check() looks */
    free(data);
  } else {
    output_many(value, out);
  }
}

/* The same without what would move the cursor or end the line; for free(). */
static char *visible_text(const char *name, const json_t *value) {
  char *raw = NULL, *text = NULL;
  size_t raw_len = 0, len = 0;
  FILE *out = open_memstream(&raw, &raw_len);
  if (!out) return NULL;
  output_text(name, value, out);
  if (fclose(out) != 0 || (out = open_memstream(&text, &len)) == NULL) {
    free(raw);
    return NULL;
  }
  bool utf8 = true;
  json_t *check = json_stringn(raw, raw_len);
  if (!check) utf8 = false;
  json_decref(check);
  for (size_t i = 0; i < raw_len; i++) {
    unsigned char byte = (unsigned char)raw[i];
    if (byte == '\n')
      fputs("\\n", out);
    else if (byte == '\t')
      fputs("\\t", out);
    else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !utf8))
      fprintf(out, "\\x%02x", byte);
    else
      fputc(byte, out);
  }
  free(raw);
  if (fclose(out) == 0) return text;
  free(text);
  return NULL;
}

void output_visible(const char *name, const json_t *value, FILE *out) {
  char *text = visible_text(name, value);
  if (text) fputs(text, out);
  free(text);
}

static void output_line(json_t *row, FILE *out) {
  const char *name;
  json_t *value;
  bool first = true;
  json_object_foreach(row, name, value) {
    if (!first) fputs("  ", out);
    output_visible(name, value, out);
    first = false;
  }
  fputc('\n', out);
}

static void output_record(json_t *row, FILE *out) {
  const char *name;
  json_t *value;
  json_object_foreach(row, name, value) {
    fprintf(out, "%s = ", name);
    output_visible(name, value, out);
    fputc('\n', out);
  }
}

static void output_value(json_t *row, FILE *out) {
  void *first = json_object_iter(row);
  if (!first) return;
  output_text(json_object_iter_key(first), json_object_iter_value(first), out);
  fputc('\n', out);
}

static void output_human(call *c, json_t *row) {
  const command *m = c->command;
  if (m->human) {
    m->human(c, row, stdout);
  } else if (m->style == STYLE_RECORD) {
    if (c->told) putchar('\n');
    output_record(row, stdout);
  } else if (m->style == STYLE_VALUE) {
    output_value(row, stdout);
  } else {
    output_line(row, stdout);
  }
}

/* ------------------------------------------------------------------------
 * Tables: kept until the end, for their columns' widths
 * --------------------------------------------------------------------- */

/* Characters, as far as that is what columns of a terminal are. */
static int width_of(const char *text) {
  int width = 0;
  for (; *text; text++) width += (*text & 0xc0) != 0x80;
  return width;
}

/* What stands in a column: of the heading for row 0. */
static char *cell_text(const json_t *table, size_t row, const char *name) {
  if (row == 0) {
    char *text = strdup(name);
    for (char *at = text; at && *at; at++)
      if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
    return text;
  }
  const json_t *value = json_object_get(json_array_get(table, row - 1), name);
  return value && !json_is_null(value) ? visible_text(name, value) : strdup("");
}

/* null says nothing about a column. */
static bool is_number_column(const json_t *table, const char *name) {
  size_t row;
  json_t *cells;
  bool number = false;
  json_array_foreach(table, row, cells) {
    const json_t *value = json_object_get(cells, name);
    if (json_is_null(value)) continue;
    if (!json_is_integer(value) && !json_is_real(value)) return false;
    number = true;
  }
  return number && !is_time(name);
}

static int column_width(const json_t *table, const char *name) {
  int widest = 0;
  for (size_t i = 0; i <= json_array_size(table); i++) {
    char *text = cell_text(table, i, name);
    int width = text ? width_of(text) : 0;
    if (width > widest) widest = width;
    free(text);
  }
  return widest;
}

/* owed: blanks that the next cell with anything in it needs before it, so that
 * no line ends in blanks. */
static void output_cell(const json_t *table, size_t row, const char *name,
                        int width, bool right, int *owed) {
  char *text = cell_text(table, row, name);
  int pad = width - (text ? width_of(text) : 0);
  if (text && *text) {
    printf("%*s%s", *owed + (right ? pad : 0), "", text);
    *owed = right ? 0 : pad;
  } else {
    *owed += pad;
  }
  *owed += 2;
  free(text);
}

static void output_table(const json_t *table) {
  enum { COLUMNS = 64 };
  int widths[COLUMNS], count = 0;
  bool numbers[COLUMNS];
  const char *names[COLUMNS];
  json_t *first = json_array_get(table, 0);
  for (void *at = json_object_iter(first); at && count < COLUMNS;
       at = json_object_iter_next(first, at)) {
    names[count] = json_object_iter_key(at);
    widths[count] = column_width(table, names[count]);
    numbers[count] = is_number_column(table, names[count]);
    count++;
  }
  for (size_t row = 0; row <= json_array_size(table); row++) {
    int owed = 0;
    for (int i = 0; i < count; i++)
      output_cell(table, row, names[i], widths[i], numbers[i], &owed);
    putchar('\n');
  }
}

/* ------------------------------------------------------------------------
 * Separated by tabs
 * --------------------------------------------------------------------- */

static void plain_bytes(const char *bytes, size_t len) {
  for (size_t i = 0; i < len; i++) {
    unsigned char byte = (unsigned char)bytes[i];
    const char *at = byte ? strchr("\tt\nn\rr\\\\", byte) : NULL;
    if (byte == '\\')
      fputs("\\\\", stdout);
    else if (at && (byte == '\t' || byte == '\n' || byte == '\r'))
      printf("\\%c", at[1]);
    else if (byte < 0x20 || byte == 0x7f)
      printf("\\x%02x", byte);
    else
      putchar(byte);
  }
}

static void plain_value(const json_t *value) {
  char *data;
  int len;
  if (json_is_null(value)) {
    fputs("\\N", stdout);
  } else if (json_is_string(value) || json_is_object(value)) {
    if (data_of_json(value, &data, &len)) {
      plain_bytes(data, (size_t)len);
      free(data);
    } else {
      json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    }
  } else {
    json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
  }
}

static void output_plain(json_t *row) {
  const char *name;
  json_t *value;
  bool first = true;
  json_object_foreach(row, name, value) {
    if (!first) putchar('\t');
    plain_value(value);
    first = false;
  }
  putchar('\n');
}

/* ------------------------------------------------------------------------
 * Rows
 * --------------------------------------------------------------------- */

static int fail_output(call *c) {
  errno = c->output_errno;
  return fail_errno(c, STATUS_IO, "standard output");
}

static int output_check(call *c, bool flush) {
  errno = 0;
  if (flush) (void)fflush(stdout); /* ferror() tells */
  if (!c->output_errno && ferror(stdout)) c->output_errno = errno ? errno : EIO;
  return c->output_errno ? fail_output(c) : 0;
}

/* Takes the reference. */
static int keep(json_t *array, call *c, json_t *row) {
  if (json_array_append_new(array, row) == 0) return 0;
  return fail(c, STATUS_SYSTEM, "NOMEM", "out of memory");
}

int emit(call *c, json_t *row) {
  if (!row) return fail(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  if (c->id) return keep(c->rows, c, row);
  if (c->format == FORMAT_HUMAN && c->command->style == STYLE_TABLE &&
      !c->command->human) {
    if (!c->table) c->table = json_array();
    return keep(c->table, c, row);
  }
  errno = 0;
  if (c->format == FORMAT_JSON) {
    json_dumpf(row, stdout, JSON_COMPACT);
    putchar('\n');
  } else if (c->format == FORMAT_PLAIN) {
    output_plain(row);
  } else {
    output_human(c, row);
  }
  c->told = true;
  json_decref(row);
  return output_check(c, false);
}

int emit_event(call *c, json_t *row) {
  if (c->id && row) return coprocess_event(c, row);
  int status = emit(c, row);
  return status ? status : output_check(c, true);
}

int output_end(call *c) {
  if (json_array_size(c->table) > 0) output_table(c->table);
  json_decref(c->table);
  c->table = NULL;
  return c->id ? 0 : output_check(c, true);
}

void output_error(const call *c) {
  (void)fflush(stdout); /* for the order; output_check() looks */
  if (!c->code) return;
  if (c->format != FORMAT_JSON) {
    json_t *sentence = json_text(c->sentence); /* may name anything */
    fprintf(stderr, "zke: %s: ", c->code);
    output_visible(NULL, sentence, stderr);
    fputc('\n', stderr);
    json_decref(sentence);
    return;
  }
  json_t *error = json_pack("{s:s,s:o*,s:i}", "error", c->code, "message",
                            json_data(c->sentence, (int)strlen(c->sentence)),
                            "status", c->status);
  json_dumpf(error, stderr, JSON_COMPACT);
  fputc('\n', stderr);
  json_decref(error);
}

/* ------------------------------------------------------------------------
 * Progress
 * --------------------------------------------------------------------- */

static int64_t progress_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

void progress(call *c, const char *what, int64_t done, int64_t total) {
  if (c->id || c->sh->quiet || !isatty(STDERR_FILENO)) return;
  int64_t now = progress_now();
  if (c->progress_ms == 0) c->progress_ms = now + 400; /* short: nothing */
  if (now < c->progress_ms) return;
  c->progress_ms = now + 100;
  fprintf(stderr, "\r%s: %" PRId64, what, done);
  if (total > 0) fprintf(stderr, " of %" PRId64, total);
  fprintf(stderr, "\033[K");
  (void)fflush(stderr); /* nothing to be done about it */
}

void progress_end(call *c) {
  if (c->progress_ms) fprintf(stderr, "\r\033[K");
  c->progress_ms = 0;
}
