/* text.h - for whoever writes a recipe: sentences of errors, and strings
 *
 * A failing call leaves its sentence in the thread (zke_fail()).  Cleaning up
 * after it may fail as well, so a recipe keeps the first sentence over that:
 *
 *     zke_sentence kept;
 *     zke_recipe_keep(&kept);
 *     zke_recipe_discard(z, path, ZKE_EPHEMERAL, 0);  // may fail
 *     return zke_recipe_restore(&kept, rc);
 *
 * Strings are blocks for zke_free(), or NULL without memory; then zke_alloc()
 * has set the sentence.  All functions may be called on any thread and in a
 * callback, and none waits, but for zke_recipe_sign(), which reads the file. */
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

/* zke_recipe_fail - zke_fail(), with rc as its value where the call stands: a
 * macro, so that compilers and analyzers, which do not look into variadic
 * functions, know that it is an error.  rc is looked at twice. */
#define zke_recipe_fail(rc, ...) (zke_fail(rc, __VA_ARGS__), (rc))

/* zke_recipe_keep    - keep this thread's sentence over what cleaning up may
 *                      say; of more than 511 bytes the beginning
 * zke_recipe_restore - set it again where rc is a failure (negative); returns
 *                      rc */
typedef struct zke_sentence {
  char text[512];
} zke_sentence;
void zke_recipe_keep(zke_sentence *kept);
static inline int zke_recipe_restore(const zke_sentence *kept, int rc) {
  if (rc < 0) zke_fail(rc, "%s", kept->text);
  return rc;
}

/* zke_recipe_copy - len bytes and a NUL behind them, in one block
 * zke_recipe_path - "directory/name", in one block; the directory is a path
 *                   that was checked, "" for "/"
 * zke_recipe_when - a time, ms since 1970, as "2026-11-20T12:00:00Z"; one
 *                   whose year no int holds as "<ms> ms" */
enum { ZKE_RECIPE_WHEN = 32 };
char *zke_recipe_copy(zke *z, const char *text, size_t len);
char *zke_recipe_path(zke *z, const char *directory, const char *name);
void zke_recipe_when(int64_t ms, char text[ZKE_RECIPE_WHEN]);

/* zke_recipe_escape - "directory/<kind><text>", in one block: any text as a
 * name that a path may have
 *
 *   is_plain  does the byte stand for itself?  All others become %XX.  Not '%'
 *             and not '/', so that two texts never have one name.
 *
 * Returns NULL without memory. */
char *zke_recipe_escape(zke *z, const char *directory, const char *kind,
                        const char *text, bool (*is_plain)(unsigned char));

/* zke_recipe_sign - data that tells whose it is, also when its session has
 * gone: "<before><pid> <identity>\n<data>", in one line until the data
 *
 *   before    "" or a word with a space behind it
 *   data,len  the user's, which follow; len 0 or more
 *   text_out  out: one block; len_out: its length
 *
 * Returns ZKE_OK, ZKE_NOMEM, or what zke_sessions() says. */
int zke_recipe_sign(zke *z, const char *before, const void *data, int len,
                    char **text_out, int *len_out);

/* zke_recipe_read - a word and the number behind it, in a znode's data
 *
 * Nothing is passed over: neither spaces nor the end of a line.
 *
 *   at    in and out: where, in a text that ends with a NUL; then behind the
 *         number
 *   base  10, or 16 for what PRIx64 wrote
 *
 * Returns false where anything else stands there, or the number has more than
 * 64 bits; then nothing is changed. */
bool zke_recipe_read(char **at, const char *word, int base,
                     int64_t *number_out);

/* zke_recipe_number - the number that a sequential create has put behind a name
 *
 * It has ZKE_RECIPE_DIGITS digits, as by ZKE_RECIPE_NUMBER: of a negative one
 * the '-' is among the ten, or before them.
 *
 *   text        all that stands behind the name
 *   number_out  out: the number; untouched where the text is none
 *
 * Returns whether the text is such a number. */
enum { ZKE_RECIPE_DIGITS = 10 };
#define ZKE_RECIPE_NUMBER "%010" PRId32 /* how printf() writes an int32_t so */
bool zke_recipe_number(const char *text, int32_t *number_out);

/* zke_recipe_name - the part of a path behind its last slash: not a copy, it
 * lives as long as the path does */
const char *zke_recipe_name(const char *path);

#ifdef __cplusplus
}
#endif

#endif
