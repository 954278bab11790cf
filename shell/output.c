/* output.c - rows into text: for people, as JSON, or separated by tabs
 *
 * A command emits rows, which are JSON objects; this file alone decides how
 * they look.  Start at emit_row(), which sends a row one of these ways:
 *
 *     a coprocess's request    into the answer's list (coprocess.c prints it)
 *     --json                   output_json():  one line
 *     --plain                  output_plain(): values between tabs
 *     people, a table          emit_cells():   kept for the columns' widths
 *     people, anything else    output_human(): the command's function, or its
 *                              STYLE_…
 *
 * Two promises hold for all of them.  Text from other processes reaches a
 * terminal only through put_escaped(), so that it cannot control it.  And a
 * stuck or closed reader is noticed: each piece of printing is between two
 * calls of signals_printing(), so that a signal can end a program that is stuck
 * there, and output_check() then looks for errors.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../recipes/support.h"
#include "../recipes/part/text.h"
#include "shell.h"

/* ------------------------------------------------------------------------
 * Values into JSON, and back
 *
 * Rows are made of these.  Bytes that are not UTF-8 become {"base64": …}, so
 * that JSON can hold any data, and can be converted back. */

/* Text stays text as long as a program can read it back from JSON unchanged. */
json_t *value_data(const void *data, int len) {
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

json_t *value_text(const char *text) {
  return value_data(text, (int)strlen(text));
}

json_t *value_session(int64_t session) {
  return json_sprintf("0x%" PRIx64, (uint64_t)session);
}

/* In ZooKeeper's order, with its names; the owner as a session. */
void value_stat(json_t *row, const zke_stat *stat) {
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
                      value_session(stat->ephemeralOwner));
}

/* Converts a value of value_data() to bytes with a NUL after them. */
bool value_to_data(const json_t *j, char **data_out, int *len_out) {
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
 *
 * How one value looks on a terminal.  put_escaped() is the only function that
 * writes other processes' bytes to a terminal; a new function must call it.
 * --------------------------------------------------------------------- */

/* Does a member with that name hold a time? */
static bool is_time(const char *name) {
  size_t len = strlen(name);
  return strcmp(name, "since") == 0 ||
         (len >= 4 && strcmp(name + len - 4, "time") == 0) ||
         (len >= 3 && strcmp(name + len - 3, "_at") == 0);
}

/* Who reads the output; this decides which bytes are escaped. */
enum escape {
  ESCAPE_NOTHING, /* a program */
  ESCAPE_TEXT,    /* a terminal: ends of lines and tabs stay */
  ESCAPE_LINE,    /* a terminal, on one line: they become \n and \t */
  ESCAPE_JSON,    /* a program or a terminal: JSON allows some controls */
  ESCAPE_PLAIN    /* a program that reads back \t \n \r \\ and \xHH */
};

/* How many bytes a UTF-8 character has if this is its first.  0 if it cannot be
 * the first: a continuation byte, or part of an overlong encoding. */
static size_t character_announced(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2 || first >= 0xf5) return 0;
  if (first < 0xe0) return 2;
  return first < 0xf0 ? 3 : 4;
}

/* Bytes of the UTF-8 character that begins here; 0 if none does. */
static size_t character_len(const unsigned char *at, size_t left) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  size_t len = character_announced(at[0]);
  if (len < 2) return len;
  if (len > left) return 0;
  uint32_t code = at[0] & (0x7fu >> len);
  for (size_t i = 1; i < len; i++) {
    if ((at[i] & 0xc0) != 0x80) return 0;
    code = code << 6 | (at[i] & 0x3fu);
  }
  bool surrogate = code >= 0xd800 && code < 0xe000;
  return code < least[len] || code > 0x10ffff || surrogate ? 0 : len;
}

/* "\n" and the like for a byte that has a letter, else NULL. */
static const char *letter_for(unsigned char byte, enum escape how) {
  if (byte == '\n') return how == ESCAPE_TEXT ? "\n" : "\\n";
  if (byte == '\t') return how == ESCAPE_TEXT ? "\t" : "\\t";
  if (how != ESCAPE_PLAIN) return NULL;
  if (byte == '\r') return "\\r";
  return byte == '\\' ? "\\\\" : NULL;
}

/* Writes one character, or one invalid byte, in at most 8 bytes.  Control
 * characters become \xHH: those below U+0020 and from U+007F to U+009F.  So do
 * bytes that are not UTF-8, since an eight-bit terminal takes some of them for
 * control characters.
 *
 *   taken  out: how many bytes of the text were used */
static size_t escape_one(const unsigned char *at, size_t left, enum escape how,
                         char *to, size_t *taken) {
  size_t len = character_len(at, left);
  const char *letter = letter_for(*at, how);
  bool obeyed = len == 0 || is_control((char)*at) ||
                (len == 2 && *at == 0xc2 && at[1] < 0xa0);
  *taken = len ? len : 1;
  if (letter) {
    memcpy(to, letter, strlen(letter));
    return strlen(letter);
  }
  if (!obeyed) {
    memcpy(to, at, len);
    return len;
  }
  if (how == ESCAPE_JSON && len)
    return (size_t)sprintf(to, "\\u%04x", at[len - 1]);
  for (size_t i = 0; i < *taken; i++) {
    static const char digits[] = "0123456789abcdef";
    memcpy(to + 4 * i, "\\x", 2);
    to[4 * i + 2] = digits[at[i] >> 4];
    to[4 * i + 3] = digits[at[i] & 15];
  }
  return 4 * *taken;
}

/* Writes bytes from other processes.  No other function may write them for
 * people.  A signal ends it, since printing a long value may take minutes. */
static void put_escaped(const char *bytes, size_t len, enum escape how,
                        FILE *out) {
  enum { MOST = 8 };
  char text[4096];
  size_t made = 0, taken;
  if (how == ESCAPE_NOTHING) {
    (void)fwrite(bytes, 1, len, out); /* output_check() finds errors */
    return;
  }
  for (size_t i = 0; i < len; i += taken) {
    made += escape_one((const unsigned char *)bytes + i, len - i, how,
                       text + made, &taken);
    if (made + MOST <= sizeof text) continue;
    (void)fwrite(text, 1, made, out);
    made = 0;
    if (how != ESCAPE_JSON && signals_stopped()) return;
  }
  (void)fwrite(text, 1, made, out);
}

void output_sentence(const char *text, FILE *out) {
  put_escaped(text, strlen(text), ESCAPE_LINE, out);
}

/* 80 also for output that is not a terminal. */
int output_columns(int fd) {
  struct winsize size;
  bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

/* Columns of the next piece of a usage or a sentence: up to the next blank
 * outside brackets, so that "[--wait DURATION]" stays together.
 *
 *   len_out  its length in bytes: an ellipsis has three */
static int piece_width(const char *text, size_t *len_out) {
  int width = 0, depth = 0;
  const char *at = text;
  for (; *at && (*at != ' ' || depth > 0); at++) {
    depth += (*at == '[') - (*at == ']');
    width += ((unsigned char)*at & 0xc0) != 0x80;
  }
  *len_out = (size_t)(at - text);
  return width;
}

/* A piece that is too long for a line gets a separate line. */
void output_wrapped(FILE *out, const char *text, int columns, int column,
                    int indent) {
  const char *before = "";
  while (*text) {
    size_t len;
    int width = piece_width(text, &len);
    if (*before && column + 1 + width > columns) {
      fprintf(out, "\n%*s", indent, "");
      column = indent;
      before = "";
    }
    fprintf(out, "%s%.*s", before, (int)len, text);
    column += (int)strlen(before) + width;
    before = " ";
    text += len + (text[len] == ' ');
  }
  fputc('\n', out);
}

/* The sentence may contain any text, so it is escaped before its columns are
 * counted. */
void output_usage(const char *sentence) {
  static const char mark[] = "; usage: ";
  char *text = NULL;
  size_t len;
  int columns = output_columns(STDERR_FILENO);
  FILE *out = open_memstream(&text, &len);
  if (out) output_sentence(sentence, out);
  if (!out || fclose(out) != 0) return;
  char *usage = strstr(text, mark);
  if (usage) *usage = '\0';
  output_wrapped(stderr, text, columns, fprintf(stderr, "zke: USAGE: "), 8);
  if (usage)
    output_wrapped(stderr, usage + strlen(mark), columns,
                   fprintf(stderr, "usage: "), 8);
  free(text);
}

/* A value as JSON. */
static void put_as_json(const json_t *value, enum escape how, FILE *out) {
  char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
  if (text) put_escaped(text, strlen(text), how, out);
  free(text);
}

/* A value for people: an array as its values one after the other, an object as
 * JSON. */
static void put_value(const char *name, const json_t *value, enum escape how,
                      FILE *out) {
  char when[ZKE_RECIPE_WHEN], *data;
  int len;
  size_t i;
  json_t *member;
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
  } else if (value && value_to_data(value, &data, &len)) {
    put_escaped(data, (size_t)len, how, out);
    free(data);
  } else if (json_is_object(value)) {
    put_as_json(value, how, out);
  } else {
    json_array_foreach(value, i, member) {
      if (i) fputs(", ", out);
      put_value(NULL, member, how, out);
    }
  }
}

/* Prints a value for people.  On a terminal control characters are escaped; in
 * a pipe the bytes stay unchanged. */
void output_text(const char *name, const json_t *value, FILE *out) {
  int fd = fileno(out); /* -1: in memory */
  bool terminal = fd >= 0 && isatty(fd);
  put_value(name, value, terminal ? ESCAPE_TEXT : ESCAPE_NOTHING, out);
}

void output_visible(const char *name, const json_t *value, FILE *out) {
  put_value(name, value, ESCAPE_LINE, out);
}

/* The same as a text for free(); NULL without memory. */
static char *visible_text(const char *name, const json_t *value) {
  char *text = NULL;
  size_t len = 0;
  FILE *out = open_memstream(&text, &len);
  if (!out) return NULL;
  output_visible(name, value, out);
  if (fclose(out) == 0) return text;
  free(text);
  return NULL;
}

/* A row as a line of JSON without control characters. */
static void output_json(const json_t *row, FILE *out) {
  char *text = json_dumps(row, JSON_COMPACT);
  if (text) put_escaped(text, strlen(text), ESCAPE_JSON, out);
  fputc('\n', out);
  free(text);
}

/* Makes strings of the integers in a row that a JSON reader would round: most
 * store numbers as doubles (RFC 7493, 2.2).  A rounded token releases nothing.
 * False without memory; then some may be left. */
static bool json_exact(json_t *row) {
  enum { DOUBLE_BITS = 53 };
  const json_int_t most = ((json_int_t)1 << DOUBLE_BITS) - 1;
  const char *name;
  json_t *value;
  size_t i;
  bool done = true;
  json_array_foreach(row, i, value) done = json_exact(value) && done;
  json_object_foreach(row, name, value) {
    json_int_t n = json_integer_value(value); /* 0 for other values */
    if (n < -most || n > most) {
      json_t *text = json_sprintf("%" JSON_INTEGER_FORMAT, n);
      done = json_object_set_new(row, name, text) == 0 && done;
    } else {
      done = json_exact(value) && done;
    }
  }
  return done;
}

/* STYLE_LINE: the values with two blanks between them. */
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

/* STYLE_RECORD: a line for each member. */
static void output_record(json_t *row, FILE *out) {
  const char *name;
  json_t *value;
  json_object_foreach(row, name, value) {
    fprintf(out, "%s = ", name);
    output_visible(name, value, out);
    fputc('\n', out);
  }
}

/* STYLE_VALUE: only the first value, unchanged. */
static void output_value(json_t *row, FILE *out) {
  void *first = json_object_iter(row);
  if (!first) return;
  output_text(json_object_iter_key(first), json_object_iter_value(first), out);
  fputc('\n', out);
}

/* Prints it by the command's own function, else by its style. */
static void output_human(call *c, json_t *row) {
  const command *m = c->command;
  if (m->human) {
    m->human(c, row, stdout);
  } else if (c->style == STYLE_RECORD) {
    if (c->told) putchar('\n');
    output_record(row, stdout);
  } else if (c->style == STYLE_VALUE) {
    output_value(row, stdout);
  } else {
    output_line(row, stdout);
  }
}

/* ------------------------------------------------------------------------
 * Tables
 *
 * Rows are kept for a while, so that columns can be as wide as their widest
 * value.  Printed rows do not change: later parts may be wider, never narrower.
 * --------------------------------------------------------------------- */

/* Columns of a text on a terminal.  Each character counts as one, which is
 * wrong for wide ones. */
static int width_of(const char *text) {
  int width = 0;
  for (; *text; text++) width += (*text & 0xc0) != 0x80;
  return width;
}

/* The text of a cell, for free(); NULL without memory.  Row 0 is the heading:
 * the member's name in capitals. */
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

/* Is it a column of numbers, aligned to the right?  null does not decide; a
 * time is shown as text. */
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

/* The widest cell of the rows that are kept, the heading included. */
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

/* Prints a cell.  The blanks after it are owed; the next non-empty cell prints
 * them, so that no line ends in blanks. */
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

enum { COLUMNS = 64 };

/* The columns of a table that is printed in several parts. */
struct layout {
  json_t *first; /* the first row, which owns the names */
  int count;
  struct {
    const char *name;
    int width;   /* the widest cell so far */
    bool number; /* at the right edge */
  } column[COLUMNS];
};

/* The columns of the first part's rows. */
static struct layout *layout_new(const json_t *table) {
  struct layout *l = calloc(1, sizeof *l);
  if (!l) return NULL;
  l->first = json_incref(json_array_get(table, 0));
  for (void *at = json_object_iter(l->first); at && l->count < COLUMNS;
       at = json_object_iter_next(l->first, at)) {
    const char *name = json_object_iter_key(at);
    l->column[l->count].name = name;
    l->column[l->count++].number = is_number_column(table, name);
  }
  return l;
}

/* Frees the rows that are kept, and the layout. */
void output_forget(call *c) {
  if (c->layout) json_decref(c->layout->first);
  free(c->layout);
  c->layout = NULL;
  json_decref(c->table);
  c->table = NULL;
}

/* Prints the kept rows; with the first part, the heading.  Columns become wider
 * if later rows need it, but never narrower. */
static int output_table(call *c) {
  const json_t *table = c->table;
  size_t row = c->layout != NULL; /* the heading was printed */
  if (!c->layout) c->layout = layout_new(table);
  struct layout *l = c->layout;
  if (!l) return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  for (int i = 0; i < l->count; i++) {
    int width = column_width(table, l->column[i].name);
    if (width > l->column[i].width) l->column[i].width = width;
  }
  for (; row <= json_array_size(table); row++) {
    int owed = 0;
    for (int i = 0; i < l->count; i++)
      output_cell(table, row, l->column[i].name, l->column[i].width,
                  l->column[i].number, &owed);
    putchar('\n');
  }
  json_array_clear(c->table);
  c->table_bytes = 0;
  return 0;
}

/* ------------------------------------------------------------------------
 * Separated by tabs
 *
 * One row a line, one value a field, for cut(1) and awk(1).  Tabs, newlines and
 * backslashes within a value are escaped, so that there are as many fields as
 * members.
 * --------------------------------------------------------------------- */

/* Arrays, and objects that are not data, are JSON, escaped like other
 * values. */
static void plain_value(const json_t *value) {
  char *data;
  int len;
  if (json_is_null(value)) {
    fputs("\\N", stdout);
  } else if (value_to_data(value, &data, &len)) {
    put_escaped(data, (size_t)len, ESCAPE_PLAIN, stdout);
    free(data);
  } else {
    put_as_json(value, ESCAPE_PLAIN, stdout);
  }
}

/* A row as values with tabs between them. */
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
 *
 * emit_row() and its neighbours, the only functions that commands call.  They
 * decide when a row is printed, and notice a reader that has gone.
 * --------------------------------------------------------------------- */

/* The output could not be written.  A reader that has gone has seen enough,
 * which is not an error: the program says nothing and ends by SIGPIPE, even if
 * that signal was ignored when it was started. */
static int fail_output(call *c) {
  errno = c->output_errno;
  if (errno != EPIPE) return fail_errno(c, STATUS_IO, "standard output");
  pthread_mutex_lock(&c->sh->m);
  c->sh->died_by = SIGPIPE;
  pthread_mutex_unlock(&c->sh->m);
  return fail_with(c, STATUS_SIGNAL + SIGPIPE, NULL,
                   "standard output was closed");
}

/* Was everything written so far?  0 or the exit code; the first reason counts.
 * errno comes from the printing before, since stdio writes while it prints. */
static int output_check(call *c, bool flush) {
  if (flush) (void)fflush(stdout); /* ferror() finds errors */
  if (!c->output_errno && ferror(stdout)) c->output_errno = errno ? errno : EIO;
  clearerr(stdout); /* the next call finds its own failure */
  return c->output_errno ? fail_output(c) : 0;
}

/* Appends a row to an array; takes the reference.  0 or the exit code. */
static int keep(json_t *array, call *c, json_t *row) {
  if (json_array_append_new(array, row) == 0) return 0;
  return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
}

/* About how many bytes a kept row takes: the size of its data. */
static size_t row_bytes(json_t *row) {
  const char *name;
  json_t *value;
  size_t bytes = 0;
  json_object_foreach(row, name, value) {
    const json_t *encoded = json_object_get(value, "base64");
    bytes += json_string_length(encoded ? encoded : value);
  }
  return bytes;
}

/* Keeps a table's row until the command ends, or until there are many rows, or
 * large ones, or the first has been kept for a second: so people do not wait
 * longer for a table that grows slowly. */
static int emit_cells(call *c, json_t *row) {
  enum { ROWS = 500, BYTES = 1 << 20, MS = 1000 };
  if (!c->table) c->table = json_array();
  if (json_array_size(c->table) == 0) c->table_ms = clock_ms() + MS;
  c->table_bytes += row_bytes(row);
  int status = keep(c->table, c, row);
  if (status) return status;
  bool late = clock_ms() >= c->table_ms;
  if (json_array_size(c->table) < ROWS && c->table_bytes < BYTES && !late)
    return 0;
  signals_printing();
  errno = 0;
  status = output_table(c);
  if (!status) status = output_check(c, late);
  signals_printing();
  return status;
}

/* Does a JSON reader get the call's rows? */
static bool emits_json(const call *c) {
  return c->id || c->format == FORMAT_JSON;
}

/* Prints a row in the command's form, and frees it; 0 or the exit code.  A
 * coprocess's row is kept until its answer, and a table's rows until their
 * columns' widths are known.  NULL means that memory ran out while the row was
 * made. */
int emit_row(call *c, json_t *row) {
  if (!row || (emits_json(c) && !json_exact(row))) {
    json_decref(row);
    return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  }
  if (c->id) return keep(c->rows, c, row);
  if (c->format == FORMAT_HUMAN && c->style == STYLE_TABLE &&
      !c->command->human)
    return emit_cells(c, row);
  signals_printing();
  errno = 0;
  if (c->format == FORMAT_JSON) {
    output_json(row, stdout);
  } else if (c->format == FORMAT_PLAIN) {
    output_plain(row);
  } else {
    output_human(c, row);
  }
  c->told = true;
  json_decref(row);
  int status = output_check(c, false);
  signals_printing();
  return status;
}

/* Prints stdio's buffer; 0 or the exit code. */
static int output_flush(call *c) {
  signals_printing();
  int status = output_check(c, true);
  signals_printing();
  return status;
}

/* A row that must be seen while the call runs: an event of a coprocess, or a
 * flushed line. */
int emit_event(call *c, json_t *row) {
  if (c->id && row && json_exact(row)) return c->sh->event(c, row);
  int status = emit_row(c, row);
  return status ? status : output_flush(c);
}

/* The coprocess writes its own answers: this prints only a table's kept rows
 * and stdio's buffer. */
int output_end(call *c) {
  signals_printing();
  int status = json_array_size(c->table) > 0 ? output_table(c) : 0;
  signals_printing();
  output_forget(c);
  if (c->id) return 0;
  int written = output_flush(c);
  return status ? status : written;
}

/* The failure as a line: an object with --json, else a sentence.  For people a
 * usage mistake has several lines, since the usage is long. */
static void error_text(const call *c) {
  if (c->format == FORMAT_HUMAN && strcmp(c->code, "USAGE") == 0) {
    output_usage(c->sentence);
    return;
  }
  if (c->format != FORMAT_JSON) {
    fprintf(stderr, "zke: %s: ", c->code);
    output_sentence(c->sentence, stderr); /* may contain any text */
    fputc('\n', stderr);
    return;
  }
  json_t *error = json_pack("{s:s,s:o*,s:i}", "error", c->code, "message",
                            value_data(c->sentence, (int)strlen(c->sentence)),
                            "status", c->status);
  output_json(error, stderr);
  json_decref(error);
}

/* Flushes standard output first, so that the error comes after the rows if both
 * go to one file. */
void output_error(const call *c) {
  signals_printing();
  (void)fflush(stdout); /* for the order; output_check() finds errors */
  if (c->code) error_text(c);
  signals_printing();
}

/* ------------------------------------------------------------------------
 * Progress
 *
 * A line on a terminal's standard error that overwrites itself.  It is never
 * printed elsewhere, nor with --quiet.
 * --------------------------------------------------------------------- */

/* Shows nothing in the first 0.4 s, in which most commands end; then ten times
 * a second. */
void progress_show(call *c, const char *what, int64_t done, int64_t total) {
  if (c->id || c->sh->quiet || !isatty(STDERR_FILENO)) return;
  int64_t now = clock_ms();
  if (c->progress_ms == 0) c->progress_ms = now + 400; /* not at first */
  if (now < c->progress_ms) return;
  c->progress_ms = now + 100;
  fprintf(stderr, "\r%s: %" PRId64, what, done);
  if (total > 0) fprintf(stderr, " of %" PRId64, total);
  fprintf(stderr, "\033[K");
  (void)fflush(stderr); /* an error cannot be handled */
}

/* Wipes the progress from the terminal, if any was shown. */
void progress_end(call *c) {
  if (c->progress_ms) fprintf(stderr, "\r\033[K");
  c->progress_ms = 0;
}
