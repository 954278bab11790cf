/* text.c - sentences of errors, and strings
 *
 * This file knows the forms in which recipes write texts for people: paths,
 * times, and the line that names the owner of a znode.  A function that returns
 * a string returns one block, or NULL; then the engine has set the sentence for
 * short memory.  Nothing here touches the tree, except zke_recipe_sign(), which
 * reads the session.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* gmtime_r */
#endif

#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The block is zeroed, which ends the copy. */
char *zke_recipe_copy(zke *z, const char *text, size_t len) {
  char *copy = zke_alloc(z, len + 1);
  if (copy && len) memcpy(copy, text, len);
  return copy;
}

/* The part of a path after its last slash. */
const char *zke_recipe_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* strtoull() would skip spaces and a sign, which no recipe writes: so the first
 * character is checked before.  A minus is accepted for base 10 only, since
 * PRIx64 writes none. */
bool zke_recipe_read(char **at, const char *word, int base,
                     int64_t *number_out) {
  size_t len = strlen(word);
  if (strncmp(*at, word, len) != 0) return false;
  char *start = *at + len, *end = start;
  if (!isxdigit((unsigned char)start[base == 10 && *start == '-']))
    return false;
  errno = 0;
  int64_t number = base == 16 ? (int64_t)strtoull(start, &end, 16)
                              : (int64_t)strtoll(start, &end, 10);
  bool twice = base == 16 && end > start + 1 && tolower(start[1]) == 'x';
  if (errno != 0 || end == start || twice) return false;
  *at = end;
  *number_out = number;
  return true;
}

/* Strict, since anybody may put a node of any name next to those of the
 * recipes: no other length, and only numbers that the tree's 32-bit counters
 * can have. */
bool zke_recipe_number(const char *text, int32_t *number_out) {
  size_t size = strnlen(text, ZKE_RECIPE_DIGITS + 2), sign = *text == '-';
  if (size != ZKE_RECIPE_DIGITS && size != ZKE_RECIPE_DIGITS + sign)
    return false;
  if (strspn(text + sign, "0123456789") != size - sign) return false;
  long long number = strtoll(text, NULL, 10);
  if (number < INT32_MIN || number > INT32_MAX) return false;
  *number_out = (int32_t)number;
  return true;
}

/* The directory is a whole path, and not "/": the callers have checked this. */
char *zke_recipe_path(zke *z, const char *directory, const char *name) {
  size_t size = strlen(directory) + strlen(name) + 2;
  char *path = zke_alloc(z, size);
  if (path) snprintf(path, size, "%s/%s", directory, name);
  return path;
}

/* Each byte of the text may become three. */
char *zke_recipe_escape(zke *z, const char *directory, const char *kind,
                        const char *text, bool (*is_plain)(unsigned char)) {
  size_t size = strlen(directory) + strlen(kind) + 3 * strlen(text) + 2;
  char *path = zke_alloc(z, size), *at = path;
  if (!path) return NULL;
  at += snprintf(path, size, "%s/%s", directory, kind);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (is_plain(c))
      *at++ = *text;
    else
      at += snprintf(at, 4, "%%%02X", c);
  }
  *at = '\0';
  return path;
}

/* A copy: the thread's text changes with its next failing call. */
void zke_recipe_keep(zke_sentence *kept) {
  snprintf(kept->text, sizeof kept->text, "%s", zke_errmsg());
}

/* gmtime_r() fails for years that do not fit in an int: then the number itself
 * is shown. */
void zke_recipe_when(int64_t ms, char text[ZKE_RECIPE_WHEN]) {
  struct tm utc;
  time_t seconds = (time_t)(ms / 1000);
  if (!gmtime_r(&seconds, &utc) ||
      !strftime(text, ZKE_RECIPE_WHEN, "%Y-%m-%dT%H:%M:%SZ", &utc))
    snprintf(text, ZKE_RECIPE_WHEN, "%" PRId64 " ms", ms);
}

/* A newline in the identity would end the line early, and readers would take
 * the rest for the user's data: it becomes a space. */
int zke_recipe_sign(zke *z, const char *before, const void *data, int len,
                    char **text_out, int *len_out) {
  zke_session_list *who = NULL;
  int rc = zke_sessions(z, zke_session_id(z), &who);
  if (rc != ZKE_OK) return rc;
  size_t room = strlen(before) + strlen(who->data[0].identity) + 32;
  char *text = zke_alloc(z, room + (size_t)len);
  if (text) {
    int head = snprintf(text, room, "%s%" PRId64 " %s", before,
                        who->data[0].pid, who->data[0].identity);
    for (char *p = text; *p; p++) {
      if (*p == '\n') *p = ' ';
    }
    text[head++] = '\n';
    if (len) memcpy(text + head, data, (size_t)len);
    *text_out = text;
    *len_out = head + len;
  }
  zke_free(who);
  return text ? ZKE_OK : ZKE_NOMEM; /* zke_alloc() has set the sentence */
}
