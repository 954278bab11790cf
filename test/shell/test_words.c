/* test_words.c - how the zke command reads a line, a number, a duration and
 * base64; includes words.c to reach its statics */
#include "shell/words.c"
#include "test/test.h"

/* "[a][b c][]" for the words of a line, or the error's sentence. */
static const char *split(const char *line) {
  static char text[512];
  words *w;
  const char *wrong = words_split(line, strlen(line), &w);
  if (wrong) return wrong;
  char *to = text;
  *to = '\0';
  for (int i = 0; i < w->count; i++) {
    ck_assert_int_eq(w->data[i].text[w->data[i].len], '\0');
    to += sprintf(to, "[%s]", w->data[i].text);
  }
  free(w);
  return text;
}

/* Any number of blanks, tabs and line ends separates two words. */
TEST(blanks_separate) {
  ck_assert_str_eq(split(""), "");
  ck_assert_str_eq(split("  \t\r\n"), "");
  ck_assert_str_eq(split("a"), "[a]");
  ck_assert_str_eq(split(" create  /a\tx\n"), "[create][/a][x]");
}

/* Either quotation mark protects blanks and the other mark; an empty pair is an
 * empty word. */
TEST(quotes_keep_together) {
  ck_assert_str_eq(split("'a b'"), "[a b]");
  ck_assert_str_eq(split("\"a b\" c"), "[a b][c]");
  ck_assert_str_eq(split("a'b c'd"), "[ab cd]");
  ck_assert_str_eq(split("'' \"\""), "[][]");
  ck_assert_str_eq(split("'a\\n'"), "[a\\n]");
  ck_assert_str_eq(split("'\"' \"'\""), "[\"][']");
}

/* Outside quotes a backslash protects the next byte, inside double quotes it
 * has C's meanings; # begins a comment only where a word could begin. */
TEST(backslashes_escape) {
  ck_assert_str_eq(split("a\\ b"), "[a b]");
  ck_assert_str_eq(split("\\n"), "[n]");
  ck_assert_str_eq(split("\"a\\nb\\tc\\rd\\\"e\\\\f\""), "[a\nb\tc\rd\"e\\f]");
  ck_assert_str_eq(split("\"\\x41\\xfF\""), "[A\xff]");
  ck_assert_str_eq(split("\\# '#' a#b # c"), "[#][#][a#b]");
}

/* A word may contain 0 bytes, and is no shorter for that. */
TEST(a_nul_is_a_byte_of_the_word) {
  words *w;
  const char *line = "set /a \"x\\0y\\x00\"";
  ck_assert_ptr_null(words_split(line, strlen(line), &w));
  ck_assert_int_eq(w->count, 3);
  ck_assert_uint_eq(w->data[2].len, 4);
  ck_assert_mem_eq(w->data[2].text, "x\0y\0", 5);
  ck_assert(!word_is(&w->data[2], "x"));
  free(w);
}

/* An open quotation mark, a last backslash and half a \x are refused with a
 * sentence. */
TEST(what_is_not_closed_is_told) {
  ck_assert_str_eq(split("a 'b"), "a quotation mark is not closed");
  ck_assert_str_eq(split("\"b"), "a quotation mark is not closed");
  ck_assert_str_eq(split("a\\"), "a backslash at the end of the line");
  ck_assert_str_eq(split("\"a\\"), "a backslash at the end of the line");
  ck_assert_str_eq(split("\"\\x4\""), "\\x wants two hexadecimal digits");
  ck_assert_str_eq(split("\"\\x"), "\\x wants two hexadecimal digits");
}

/* As many words as a line can have: each of one character. */
TEST(the_block_is_large_enough) {
  char line[2001];
  for (int i = 0; i < 2000; i++) line[i] = i % 2 ? ' ' : 'x';
  for (size_t len = 0; len <= 2000; len += 37) {
    words *w;
    ck_assert_ptr_null(words_split(line, len, &w));
    ck_assert_int_eq(w->count, (int)((len + 1) / 2));
    free(w);
  }
}

static word as_word(const char *text) {
  return (word){text, strlen(text), false};
}

/* The whole range of int64_t is read; text that only resembles a number is
 * not. */
TEST(numbers_are_read_in_their_whole_range) {
  int64_t n = 7;
  word good = as_word("-9223372036854775808");
  ck_assert(word_number(&good, &n));
  ck_assert_int_eq(n, INT64_MIN);
  static const char *const bad[] = {"",   "-",  " 1",   "1 ",
                                    "+1", "1x", "0x10", "9223372036854775808"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    word w = as_word(bad[i]);
    ck_assert_msg(!word_number(&w, &n), "taken for a number: %s", bad[i]);
  }
  ck_assert_int_eq(n, INT64_MIN);
  word nul = {"1\0002", 3, false};
  ck_assert(!word_number(&nul, &n));
}

/* A session's id is read in hexadecimal, as the command prints it, or in
 * decimal. */
TEST(session_ids_are_read_in_hexadecimal_or_decimal) {
  int64_t n;
  word w = as_word("0x1A2b3C4d5e6f"), high = as_word("0xffffffffffffffff"),
       decimal = as_word("12");
  ck_assert(word_session(&w, &n));
  ck_assert_int_eq(n, 0x1a2b3c4d5e6f);
  ck_assert(word_session(&high, &n));
  ck_assert_int_eq(n, -1);
  ck_assert(word_session(&decimal, &n));
  ck_assert_int_eq(n, 12);
  static const char *const bad[] = {"0x",   "0xg", "0x 1",
                                    "0x-1", "x1",  "0x10000000000000000"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    w = as_word(bad[i]);
    ck_assert_msg(!word_session(&w, &n), "taken for a session: %s", bad[i]);
  }
}

/* Durations with a unit, or in seconds, are read to the millisecond; anything
 * else is refused. */
TEST(durations_are_read_to_the_millisecond) {
  static const struct {
    const char *text;
    int64_t ms;
  } good[] = {
      {"0", 0},        {"5", 5000},      {"0.25", 250},
      {"1.5s", 1500},  {"20ms", 20},     {"2m", 120000},
      {"1h", 3600000}, {"1d", 86400000}, {"36500d", INT64_C(3153600000000)}};
  static const char *const bad[] = {
      "",    "s",   "-1",   "1 s", "1y",   "inf",
      "nan", "1e3", "0x10", "1ss", "1ms ", "99999999999999999999"};
  int64_t ms;
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    word w = as_word(good[i].text);
    ck_assert_msg(word_duration(&w, &ms), "refused: %s", good[i].text);
    ck_assert_int_eq(ms, good[i].ms);
  }
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    word w = as_word(bad[i]);
    ck_assert_msg(!word_duration(&w, &ms), "taken: %s", bad[i]);
  }
}

/* RFC 4648, section 10, and each length of every byte. */
TEST(base64_both_ways) {
  static const char *const known[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                      "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
  unsigned char bytes[256];
  for (size_t i = 0; i < 7; i++) {
    char *text = base64_encode("foobar", i);
    ck_assert_str_eq(text, known[i]);
    free(text);
  }
  for (int i = 0; i < 256; i++) bytes[i] = (unsigned char)(i * 37);
  for (size_t len = 0; len <= 256; len++) {
    char *text = base64_encode(bytes, len), *back;
    size_t back_len;
    ck_assert(base64_decode(text, strlen(text), &back, &back_len));
    ck_assert_uint_eq(back_len, len);
    ck_assert_mem_eq(back, bytes, len);
    free(text);
    free(back);
  }
}

/* Base64 with a wrong length, padding, letter or blank is refused. */
TEST(base64_that_is_none) {
  static const char *const bad[] = {
      "Zg",   "Zg=",      "Zg=a", "Z===",   "====", "Zh==",
      "Zm9=", "Zg==Zg==", "Zm 9", "Zm9v\n", "-_-_"};
  char *data;
  size_t len;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    ck_assert_msg(!base64_decode(bad[i], strlen(bad[i]), &data, &len),
                  "taken for base64: %s", bad[i]);
}

/* word_time() of a text at 1,000,000 s since 1970; -1: refused. */
static int64_t time_of(const char *text) {
  word w = {text, strlen(text), false};
  int64_t ms;
  return word_time(&w, INT64_C(1000000000), &ms) ? ms : -1;
}

/* A day, a UTC time with or without a fraction, ms since 1970, or how long
 * ago. */
TEST(times_are_read_in_each_of_their_forms) {
  const int64_t noon = INT64_C(1795176000000);
  ck_assert_int_eq(time_of("2026-11-20T12:00:00Z"), noon);
  ck_assert_int_eq(time_of("2026-11-20T12:00:00"), noon);
  ck_assert_int_eq(time_of("2026-11-20 12:00:00"), noon);
  ck_assert_int_eq(time_of("2026-11-20T12:00:00.5Z"), noon + 500);
  ck_assert_int_eq(time_of("2026-11-20T12:00:00.123456Z"), noon + 123);
  ck_assert_int_eq(time_of("2026-11-20"), noon - 12 * 3600 * 1000);
  ck_assert_int_eq(time_of("2024-02-29"), INT64_C(1709164800000));
  ck_assert_int_eq(time_of("1795176000000"), noon);
  ck_assert_int_eq(time_of("90s"), 1000000000 - 90000);
  ck_assert_int_eq(time_of("90"), 1000000000 - 90000);
  ck_assert_int_eq(time_of("0"), 1000000000);
}

/* Dates of no calendar, and numbers out of range, are refused. */
TEST(what_is_no_time_is_refused) {
  static const char *const wrong[] = {"",
                                      "now",
                                      "2026-02-30",
                                      "2026-13-01",
                                      "2026-11-20T25:00:00Z",
                                      "2026-11-20T12:00",
                                      "2026-11-20T12:00:00+01:00",
                                      "2026-11-20T12:00:00Z ",
                                      " 2026-11-20",
                                      "2026-11-20T",
                                      "2026-11-20T12:00:00.Z",
                                      "1969-01-01",
                                      "-5m",
                                      "5y"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_msg(time_of(wrong[i]) == -1, "\"%s\" was taken", wrong[i]);
  word nul = {"5m\0x", 4, false};
  int64_t ms;
  ck_assert(!word_time(&nul, 0, &ms));
}
