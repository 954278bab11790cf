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
 * Two promises hold on all of them.  What other processes have written reaches
 * a terminal only through put_escaped(), so that it cannot command it.  And a
 * reader that is stuck or gone is noticed: each piece of printing stands
 * between two calls of signals_printing(), so that a signal can end a program
 * that is stuck there, and output_check() looks for errors behind it.
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
 * A row is made of these. Bytes that are no UTF-8 become {"base64": …}, so
 * that JSON can have any data, and come back as they were.
 * --------------------------------------------------------------------- */

/* Text stays text as long as a program can read it back from JSON without
 * loss. */
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

/* In ZooKeeper's order and by its names; the owner as a session. */
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

/* What value_data() has made, as bytes with a NUL behind them. */
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
 * How one value looks on a terminal. put_escaped() is the only function by
 * which bytes that others have chosen reach a terminal; a new one has to call
 * it.
 * --------------------------------------------------------------------- */

/* Does a member of that name hold a time? */
static bool is_time(const char *name) {
  size_t len = strlen(name);
  return strcmp(name, "since") == 0 ||
         (len >= 4 && strcmp(name + len - 4, "time") == 0) ||
         (len >= 3 && strcmp(name + len - 3, "_at") == 0);
}

/* Who reads what is written; that decides which bytes are written otherwise. */
enum escape {
  ESCAPE_NOTHING, /* a program */
  ESCAPE_TEXT,    /* a terminal: ends of lines and tabs stay */
  ESCAPE_LINE,    /* a terminal, on one line: they become \n and \t */
  ESCAPE_JSON,    /* a program or a terminal: JSON allows some controls */
  ESCAPE_PLAIN    /* a program that reads back \t \n \r \\ and \xHH */
};

/* How many bytes a UTF-8 character has that begins with this one.  0 if none
 * does: a byte that continues one, or one of an encoding that is too long. */
static size_t character_announced(unsigned char first) {
  if (first < 0x80) return 1;
  if (first < 0xc2 || first >= 0xf5) return 0;
  if (first < 0xe0) return 2;
  return first < 0xf0 ? 3 : 4;
}

/* Bytes of the UTF-8 character that begins here; 0 where none does. */
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

/* Writes one character, or one byte that belongs to none, into at most 8 bytes.
 * What a terminal obeys becomes \xHH: the controls below U+0020 and from U+007F
 * to U+009F.  So do bytes that are not UTF-8, since a terminal of eight bits
 * takes some of them for the latter.
 *
 *   taken  out: how many bytes of the text it was */
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

/* Writes bytes that others have chosen.  It is the only way by which they reach
 * people.  A signal ends it, since a value may be so long that printing it
 * takes minutes. */
static void put_escaped(const char *bytes, size_t len, enum escape how,
                        FILE *out) {
  enum { MOST = 8 };
  char text[4096];
  size_t made = 0, taken;
  if (how == ESCAPE_NOTHING) {
    (void)fwrite(bytes, 1, len, out); /* output_check() looks */
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

/* 80 too for what is no terminal. */
int output_columns(int fd) {
  struct winsize size;
  bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

/* Columns of the next piece of a usage or a sentence: up to the next blank
 * outside of brackets, so that "[--wait DURATION]" stays together.
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

/* A piece that is too long for a line has one of its own. */
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

/* The sentence may name anything: it is escaped before its columns are
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

/* A value as people see it: an array as its values one after the other, an
 * object as JSON. */
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

/* Prints a value for people.  On a terminal what it would obey is escaped; in a
 * pipe the bytes stay as they are. */
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

/* A row as a line of JSON that no terminal obeys. */
static void output_json(const json_t *row, FILE *out) {
  char *text = json_dumps(row, JSON_COMPACT);
  if (text) put_escaped(text, strlen(text), ESCAPE_JSON, out);
  fputc('\n', out);
  free(text);
}

/* Make strings of the integers in a row that a reader of JSON would round: most
 * keep numbers as doubles (RFC 7493, 2.2).  A rounded token releases nothing.
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
    json_int_t n = json_integer_value(value); /* 0 for all else */
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

/* STYLE_VALUE: the first value alone, as it is. */
static void output_value(json_t *row, FILE *out) {
  void *first = json_object_iter(row);
  if (!first) return;
  output_text(json_object_iter_key(first), json_object_iter_value(first), out);
  fputc('\n', out);
}

/* As the command's own function prints it, else by its style. */
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
 * Rows are kept for a while, so that their columns can be as wide as their
 * widest value. What was printed is not moved: later parts may be wider, never
 * narrower.
 * --------------------------------------------------------------------- */

/* Columns of a text on a terminal: each character counts as one, so that wide
 * ones are counted wrongly. */
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

/* Is the column one of numbers, which stand at its right edge?  null says
 * nothing; a time is shown as text. */
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

/* Prints a cell.  Blanks behind it are not printed but owed, and the next cell
 * with anything in it pays them: so no line ends in blanks. */
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

/* The columns of a table whose rows are printed in several parts. */
struct layout {
  json_t *first; /* the first row, which owns the names */
  int count;
  struct {
    const char *name;
    int width;   /* the widest cell so far */
    bool number; /* at the right edge */
  } column[COLUMNS];
};

/* The columns, as the rows of the first part have them. */
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

/* Prints the rows that were kept; with the first part, the heading.  Columns
 * become wider where later rows need it, but never narrower. */
static int output_table(call *c) {
  const json_t *table = c->table;
  size_t row = c->layout != NULL; /* the heading stands there */
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
 * One row a line, one value a field, for cut(1) and awk(1). Tabs, ends of
 * lines and backslashes within a value are escaped, so that the number of
 * fields is that of the members.
 * --------------------------------------------------------------------- */

/* Arrays, and objects that are not data, are JSON, escaped like all else. */
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
 * emit_row() and its neighbours, the only functions that commands call. They
 * decide when a row goes out, and notice a reader that has gone.
 * --------------------------------------------------------------------- */

/* The output could not be written.  A reader that has gone has seen enough,
 * which is nobody's fault: the program says nothing and ends by SIGPIPE, also
 * if that signal was ignored when it was started. */
static int fail_output(call *c) {
  errno = c->output_errno;
  if (errno != EPIPE) return fail_errno(c, STATUS_IO, "standard output");
  pthread_mutex_lock(&c->sh->m);
  c->sh->died_by = SIGPIPE;
  pthread_mutex_unlock(&c->sh->m);
  return fail_with(c, STATUS_SIGNAL + SIGPIPE, NULL,
                   "standard output was closed");
}

/* Was all written so far?  0 or the exit code; the first reason counts.  errno
 * is what the printing before has left: stdio writes while it prints. */
static int output_check(call *c, bool flush) {
  if (flush) (void)fflush(stdout); /* ferror() tells */
  if (!c->output_errno && ferror(stdout)) c->output_errno = errno ? errno : EIO;
  clearerr(stdout); /* the next call finds its own failure */
  return c->output_errno ? fail_output(c) : 0;
}

/* Appends a row to an array; takes the reference.  0 or the exit code. */
static int keep(json_t *array, call *c, json_t *row) {
  if (json_array_append_new(array, row) == 0) return 0;
  return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
}

/* About how many bytes a kept row takes: those of its data. */
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

/* A table's row.  It is kept until the command ends, or until the rows are
 * many, or large, or the first has been kept for a second, so that people do
 * not wait longer for a table that grows slowly. */
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

/* Do the call's rows go to a reader of JSON? */
static bool emits_json(const call *c) {
  return c->id || c->format == FORMAT_JSON;
}

/* Prints a row in the form that the command has, and frees it; 0 or the exit
 * code.  A row of a coprocess is kept until its answer, and those of a table
 * until their columns' widths are known.  NULL stands for a row that could not
 * be made for lack of memory. */
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

/* Prints what stdio keeps; 0 or the exit code. */
static int output_flush(call *c) {
  signals_printing();
  int status = output_check(c, true);
  signals_printing();
  return status;
}

/* A row that must be seen while the call goes on: an event of a coprocess, or a
 * line that is flushed. */
int emit_event(call *c, json_t *row) {
  if (c->id && row && json_exact(row)) return c->sh->event(c, row);
  int status = emit_row(c, row);
  return status ? status : output_flush(c);
}

/* A coprocess's answer is written by the coprocess: here only what a table has
 * kept, and what stdio has. */
int output_end(call *c) {
  signals_printing();
  int status = json_array_size(c->table) > 0 ? output_table(c) : 0;
  signals_printing();
  output_forget(c);
  if (c->id) return 0;
  int written = output_flush(c);
  return status ? status : written;
}

/* The failure as a line: an object with --json, a sentence else.  For people a
 * mistake in the words has several lines, since the usage is long. */
static void error_text(const call *c) {
  if (c->format == FORMAT_HUMAN && strcmp(c->code, "USAGE") == 0) {
    output_usage(c->sentence);
    return;
  }
  if (c->format != FORMAT_JSON) {
    fprintf(stderr, "zke: %s: ", c->code);
    output_sentence(c->sentence, stderr); /* may name anything */
    fputc('\n', stderr);
    return;
  }
  json_t *error = json_pack("{s:s,s:o*,s:i}", "error", c->code, "message",
                            value_data(c->sentence, (int)strlen(c->sentence)),
                            "status", c->status);
  output_json(error, stderr);
  json_decref(error);
}

/* Standard output is flushed first, so that the error stands behind the rows if
 * both go to one file. */
void output_error(const call *c) {
  signals_printing();
  (void)fflush(stdout); /* for the order; output_check() looks */
  if (c->code) error_text(c);
  signals_printing();
}

/* ------------------------------------------------------------------------
 * Progress
 *
 * A line on a terminal's standard error that draws over itself. Nothing is
 * ever printed of it elsewhere, nor with --quiet.
 * --------------------------------------------------------------------- */

/* Nothing is shown in the first 0.4 s, before which most commands end; then it
 * is shown ten times a second. */
void progress_show(call *c, const char *what, int64_t done, int64_t total) {
  if (c->id || c->sh->quiet || !isatty(STDERR_FILENO)) return;
  int64_t now = clock_ms();
  if (c->progress_ms == 0) c->progress_ms = now + 400; /* short: nothing */
  if (now < c->progress_ms) return;
  c->progress_ms = now + 100;
  fprintf(stderr, "\r%s: %" PRId64, what, done);
  if (total > 0) fprintf(stderr, " of %" PRId64, total);
  fprintf(stderr, "\033[K");
  (void)fflush(stderr); /* nothing to be done about it */
}

/* Wipe the progress from the terminal, if any was shown. */
void progress_end(call *c) {
  if (c->progress_ms) fprintf(stderr, "\r\033[K");
  c->progress_ms = 0;
}
