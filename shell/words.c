/* words.c - a line into words, and words into numbers, durations and bytes
 *
 * Nothing here knows of commands.  A text must be a number, a duration or
 * base64 as a whole: "5x" is refused, not read as 5.  A text with a NUL inside
 * is refused, too: the functions of the C library stop there, so the lengths
 * are compared.
 *
 * All functions here are pure: they keep no state, and any thread may call
 * them.  Start reading at words_split().
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shell.h"

/* edit.c compares the address: only after this sentence may another line help,
 * so it asks for one. */
const char words_unclosed[] = "a quotation mark is not closed";

/* ------------------------------------------------------------------------
 * A line into words
 *
 * Nothing is special within '…'; elsewhere a backslash is.  The splitter reads
 * the line once, and writes the bytes of words into the block with the list.
 * --------------------------------------------------------------------- */

/* The state of the splitting.
 *
 *     BETWEEN words -- any other character, or a quotation mark --> INSIDE
 *     INSIDE a word -- a blank, or the end of the line -----------> BETWEEN
 *     BETWEEN words -- # -----------------------------------------> the end
 *
 * Blanks and # within quotation marks, or after a backslash, are ordinary
 * characters.  Quoted text does not end a word: a'b c'd is one. */
typedef struct splitter {
  const char *at, *end; /* the part of the line that is not yet read */
  char *to;             /* the place for the next byte of a text */
  word *words;          /* room for all words of the line */
  int count;            /* finished words */
  bool inside;          /* INSIDE: words[count] is unfinished */
} splitter;

/* A word may begin with nothing in it: '' is also a word. */
static void split_begin_word(splitter *s) {
  if (s->inside) return;
  s->inside = true;
  s->words[s->count] = (word){s->to, 0, false};
}

/* Ends the current word, if there is one, and writes the NUL after it, which
 * its length does not count. */
static void split_end_word(splitter *s) {
  if (!s->inside) return;
  word *w = &s->words[s->count++];
  w->len = (size_t)(s->to - w->text);
  *s->to++ = '\0';
  s->inside = false;
}

/* The value of the digit, -1 for none. */
static int hex_digit(char c) {
  const char *digits = "0123456789abcdef";
  const char *at = c ? strchr(digits, tolower((unsigned char)c)) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* Takes \xHH; s->at is at the x.  Returns NULL, or what is wrong, as all
 * functions of this section that may refuse a line. */
static const char *split_hex(splitter *s) {
  int high = s->end - s->at > 2 ? hex_digit(s->at[1]) : -1;
  int low = high >= 0 ? hex_digit(s->at[2]) : -1;
  if (low < 0) return "\\x wants two hexadecimal digits";
  *s->to++ = (char)(high * 16 + low);
  s->at += 3;
  return NULL;
}

/* Takes the text after a backslash in "…": a name of a byte, else the character
 * itself.  The byte of '0' is the NUL that ends `bytes`.  strchr() finds a NUL
 * of the line at the end of `names`, which is not a name; hence *at. */
static const char *split_escape(splitter *s) {
  static const char names[] = "ntr0", bytes[] = "\n\t\r";
  if (s->at == s->end) return "a backslash at the end of the line";
  if (*s->at == 'x') return split_hex(s);
  const char *at = strchr(names, *s->at);
  *s->to++ = at && *at ? bytes[at - names] : *s->at;
  s->at++;
  return NULL;
}

/* Takes everything from after the opening quotation mark to after the closing
 * one. */
static const char *split_quoted(splitter *s, char mark) {
  while (s->at < s->end && *s->at != mark) {
    if (mark == '"' && *s->at == '\\') {
      s->at++;
      const char *wrong = split_escape(s);
      if (wrong) return wrong;
    } else {
      *s->to++ = *s->at++;
    }
  }
  if (s->at == s->end) return words_unclosed;
  s->at++;
  return NULL;
}

/* Of ASCII, whatever the locale says. */
static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' ||
         c == '\v';
}

/* Takes one character, or a quoted text, and moves between the states. */
static const char *split_step(splitter *s) {
  char c = *s->at++;
  if (is_blank(c)) {
    split_end_word(s);
    return NULL;
  }
  if (c == '#' && !s->inside) {
    s->at = s->end;
    return NULL;
  }
  split_begin_word(s);
  if (c == '\'' || c == '"') return split_quoted(s, c);
  if (c == '\\') {
    if (s->at == s->end) return "a backslash at the end of the line";
    c = *s->at++;
  }
  *s->to++ = c;
  return NULL;
}

/* One block has the words and, after them, their texts.
 *
 * It is large enough for any line.  A word takes at least one character and the
 * blank before the next, so there are at most half as many words as characters,
 * plus one.  A text is never longer than its source, and its NUL takes the
 * place of that blank; only after the last word there may be none, so there is
 * one byte more. */
const char *words_split(const char *line, size_t len, words **out) {
  size_t most = len / 2 + 1;
  words *w = malloc(sizeof *w + most * sizeof(word) + len + 1);
  if (!w) return "out of memory";
  w->data = (word *)(w + 1);
  splitter s = {line, line + len, (char *)(w->data + most), w->data, 0, false};
  while (s.at < s.end) {
    const char *wrong = split_step(&s);
    if (wrong) {
      free(w);
      return wrong;
    }
  }
  split_end_word(&s);
  w->count = s.count;
  *out = w;
  return NULL;
}

/* Only the list is new: the texts are argv's, and must live as long.  No word
 * is literal, so options are found among them. */
words *words_copy(int count, char *const *argv) {
  words *w = malloc(sizeof *w + (size_t)count * sizeof(word));
  if (!w) return NULL;
  w->count = count;
  w->data = (word *)(w + 1);
  for (int i = 0; i < count; i++)
    w->data[i] = (word){argv[i], strlen(argv[i]), false};
  return w;
}

/* A word with a NUL inside equals no text, since the lengths differ. */
bool word_is(const word *w, const char *text) {
  return w->len == strlen(text) && memcmp(w->text, text, w->len) == 0;
}

/* ------------------------------------------------------------------------
 * Numbers
 *
 * Functions of the C library, minus what they accept and a person does not
 * mean: blanks, signs, other bases, trailing text.
 * --------------------------------------------------------------------- */

/* strtoll() accepts blanks and a plus before the digits; here they are refused,
 * as is a number that does not fit into 64 bits. */
bool word_number(const word *w, int64_t *number_out) {
  const char *digits = w->text + (*w->text == '-');
  if (!isdigit((unsigned char)*digits) || strlen(w->text) != w->len)
    return false;
  char *end;
  errno = 0;
  int64_t number = strtoll(w->text, &end, 10);
  if (errno || *end) return false;
  *number_out = number;
  return true;
}

/* A session's id as commands print it, or as a decimal number.  In hexadecimal
 * all 64 bits are allowed: the highest makes the number negative. */
bool word_session(const word *w, int64_t *session_out) {
  if (strncmp(w->text, "0x", 2) != 0) return word_number(w, session_out);
  size_t digits = strspn(w->text + 2, "0123456789abcdefABCDEF");
  if (digits == 0 || digits + 2 != w->len) return false;
  errno = 0; /* strtoull() alone would accept a second 0x */
  uint64_t session = strtoull(w->text + 2, NULL, 16);
  if (errno) return false;
  *session_out = (int64_t)session;
  return true;
}

/* strtod() accepts hexadecimal, exponents and infinity; here they are refused:
 * no unit has one of these letters, and no infinity begins with a digit.  The
 * result is rounded to whole milliseconds. */
bool word_duration(const word *w, int64_t *ms_out) {
  static const struct {
    const char *name;
    double ms;
  } units[] = {{"", 1e3},  {"ms", 1},     {"s", 1e3},
               {"m", 6e4}, {"h", 3600e3}, {"d", 86400e3}};
  const double most = 100 * 366 * 86400e3;
  char *end;
  if (!isdigit((unsigned char)*w->text) || strlen(w->text) != w->len ||
      strpbrk(w->text, "xXpPeE"))
    return false;
  double number = strtod(w->text, &end);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    if (strcmp(end, units[i].name) != 0) continue;
    double ms = number * units[i].ms;
    if (!(ms <= most)) return false;
    *ms_out = (int64_t)(ms + 0.5);
    return true;
  }
  return false;
}

/* A date and a time in UTC.  strptime() accepts dates that no calendar has,
 * such as the 30th of February: writing the result as a date again finds
 * them. */
static bool time_of_calendar(const char *text, int64_t *ms_out) {
  struct tm tm = {0}, back;
  const char *rest = strptime(text, "%Y-%m-%d", &tm);
  int64_t ms = 0, unit = 100;
  if (!rest || !isdigit((unsigned char)*text)) return false;
  if (*rest == 'T' || *rest == ' ') rest = strptime(rest + 1, "%H:%M:%S", &tm);
  if (!rest) return false;
  if (*rest == '.' && isdigit((unsigned char)rest[1]))
    for (rest++; isdigit((unsigned char)*rest); rest++, unit /= 10)
      ms += unit * (*rest - '0');
  if (*rest == 'Z') rest++;
  struct tm given = tm;
  time_t seconds = timegm(&tm);
  if (*rest || !gmtime_r(&seconds, &back) || back.tm_mday != given.tm_mday ||
      back.tm_mon != given.tm_mon || seconds < 0)
    return false;
  *ms_out = (int64_t)seconds * 1000 + ms;
  return true;
}

/* A time after 1973, in ms since 1970 as in JSON rows, is greater than any
 * duration. */
bool word_time(const word *w, int64_t now_ms, int64_t *ms_out) {
  const int64_t least = INT64_C(100000000000);
  int64_t number;
  if (strlen(w->text) != w->len) return false;
  if (word_number(w, &number) && number >= least) {
    *ms_out = number;
  } else if (word_duration(w, &number)) {
    *ms_out = now_ms - number;
  } else {
    return time_of_calendar(w->text, ms_out);
  }
  return true;
}

/* ------------------------------------------------------------------------
 * Base64 (RFC 4648)
 *
 * Both ways are strict, so text and bytes correspond one to one.
 * --------------------------------------------------------------------- */

static const char base64_digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Three bytes at a time become four digits; the last group is padded.  NULL
 * without memory. */
char *base64_encode(const void *data, size_t len) {
  const unsigned char *from = data;
  char *text = malloc((len + 2) / 3 * 4 + 1), *to = text;
  if (!text) return NULL;
  for (size_t i = 0; i < len; i += 3) {
    size_t left = len - i;
    uint32_t bits = (uint32_t)from[i] << 16 |
                    (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                    (left > 2 ? from[i + 2] : 0);
    *to++ = base64_digits[bits >> 18];
    *to++ = base64_digits[bits >> 12 & 63];
    *to++ = left > 1 ? base64_digits[bits >> 6 & 63] : '=';
    *to++ = left > 2 ? base64_digits[bits & 63] : '=';
  }
  *to = '\0';
  return text;
}

/* The value of the digit, -1 for none. */
static int base64_value(char c) {
  const char *at = c ? strchr(base64_digits, c) : NULL;
  return at ? (int)(at - base64_digits) : -1;
}

/* Four characters become up to three bytes; 0 if they are malformed.  Only the
 * last four may have padding, and unused bits must be 0. */
static int base64_group(const char *text, bool last, char *to) {
  int digits = 4;
  if (text[3] == '=') digits = text[2] == '=' ? 2 : 3;
  uint32_t bits = 0;
  for (int i = 0; i < 4; i++) {
    int value = i < digits ? base64_value(text[i]) : 0;
    if (value < 0) return 0;
    bits = bits << 6 | (uint32_t)value;
  }
  if (digits < 4 && (!last || bits & (digits == 3 ? 0xffu : 0xffffu))) return 0;
  for (int i = 0; i < digits - 1; i++) to[i] = (char)(bits >> (16 - 8 * i));
  return digits - 1;
}

/* Padding is required; a NUL follows the bytes, which len_out does not count.
 * Only one text is accepted for given bytes: base64_encode() gives it back. */
bool base64_decode(const char *text, size_t len, char **data_out,
                   size_t *len_out) {
  char *data = len % 4 ? NULL : malloc(len / 4 * 3 + 1);
  if (!data) return false;
  size_t at = 0;
  for (size_t i = 0; i < len; i += 4) {
    int bytes = base64_group(text + i, i + 4 == len, data + at);
    if (bytes == 0) {
      free(data);
      return false;
    }
    at += (size_t)bytes;
  }
  data[at] = '\0';
  *data_out = data;
  *len_out = at;
  return true;
}
