/* text.h - for recipe authors: error sentences, and strings
 *
 * A failing call leaves its sentence in the thread (zke_fail()).  The clean-up
 * after it may fail as well, so a recipe saves the first sentence:
 *
 *     zke_sentence kept;
 *     zke_recipe_keep(&kept);
 *     zke_recipe_discard(z, path, ZKE_EPHEMERAL, 0);  // may fail
 *     return zke_recipe_restore(&kept, rc);
 *
 * Strings are blocks for zke_free(), or NULL without memory; then zke_alloc()
 * has set the sentence.  All functions may be called on any thread and in a
 * callback, and none waits, except zke_recipe_sign(), which reads the file. */
#ifndef ZKEMBED_RECIPES_TEXT_H
#define ZKEMBED_RECIPES_TEXT_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_recipe_fail - zke_fail(), with the value rc.  It is a macro, because
 * compilers and analyzers do not look into variadic functions, and must know
 * that the value is an error.  Evaluates rc twice. */
#define zke_recipe_fail(rc, ...) (zke_fail(rc, __VA_ARGS__), (rc))

/* zke_recipe_keep    - save this thread's sentence before a clean-up; at most
 *                      its first 511 bytes
 * zke_recipe_restore - set it again if rc is a failure (negative); returns
 *                      rc */
typedef struct zke_sentence {
  char text[512];
} zke_sentence;
void zke_recipe_keep(zke_sentence *kept);
static inline int zke_recipe_restore(const zke_sentence *kept, int rc) {
  if (rc < 0) zke_fail(rc, "%s", kept->text);
  return rc;
}

/* zke_recipe_copy - len bytes and a NUL, in one block
 * zke_recipe_path - "directory/name", in one block; the directory is a checked
 *                   path, "" for "/"
 * zke_recipe_when - a time, ms since 1970, as "2026-11-20T12:00:00Z", or as
 *                   "<ms> ms" if the year does not fit in an int */
enum { ZKE_RECIPE_WHEN = 32 };
char *zke_recipe_copy(zke *z, const char *text, size_t len);
char *zke_recipe_path(zke *z, const char *directory, const char *name);
void zke_recipe_when(int64_t ms, char text[ZKE_RECIPE_WHEN]);

/* zke_recipe_escape - "directory/<kind><text>", in one block: turns any text
 * into a valid name
 *
 *   is_plain  is the byte kept as it is?  All others become %XX.  Must be false
 *             for '%' and '/', so two texts never get the same name.
 *
 * Returns NULL without memory. */
char *zke_recipe_escape(zke *z, const char *directory, const char *kind,
                        const char *text, bool (*is_plain)(unsigned char));

/* zke_recipe_sign - data that names its writer even after the session has gone:
 * "<before><pid> <identity>\n<data>", in one line up to the data
 *
 *   before    "" or a word and a space
 *   data,len  the user's, which follow; len 0 or more
 *   text_out  out: one block; len_out: its length
 *
 * Returns ZKE_OK, ZKE_NOMEM, or the code of zke_sessions(). */
int zke_recipe_sign(zke *z, const char *before, const void *data, int len,
                    char **text_out, int *len_out);

/* zke_recipe_read - read a word and the number after it, in a znode's data
 *
 * Skips nothing: neither spaces nor the end of a line.
 *
 *   at    in and out: where to read, in a text that ends with a NUL; moved past
 *         the number
 *   base  10, or 16 for PRIx64 output
 *
 * Returns false if anything else stands there, or the number has more than 64
 * bits; then nothing is changed. */
bool zke_recipe_read(char **at, const char *word, int base,
                     int64_t *number_out);

/* zke_recipe_number - the number that a sequential create has added to a name
 *
 * It has ZKE_RECIPE_DIGITS digits, as by ZKE_RECIPE_NUMBER.  The '-' of a
 * negative one is among the ten, or before them.
 *
 *   text        the whole text after the name
 *   number_out  out: the number; untouched if the text is none
 *
 * Returns whether the text is such a number. */
enum { ZKE_RECIPE_DIGITS = 10 };
#define ZKE_RECIPE_NUMBER "%010" PRId32 /* how printf() writes an int32_t so */
bool zke_recipe_number(const char *text, int32_t *number_out);

/* zke_recipe_name - the part of a path after its last slash: not a copy, it
 * lives as long as the path does */
const char *zke_recipe_name(const char *path);

#ifdef __cplusplus
}
#endif

#endif
