/* functions.h - each function of zkembed.h that takes a handle and returns a
 * result, to be called with valid arguments
 *
 *     for (const test_function *f = test_functions; f->name; f++)
 *       ck_rc(f->call(NULL), ZKE_BADARGUMENTS);
 *
 * The build makes function_list.h from the header (functions.awk).  A file that
 * first defines TEST_FUNCTION_LIST as "recipe_list.h" gets the functions of the
 * recipes' headers.  The result of zke_state() and similar functions is a
 * number. */
#ifndef TEST_FUNCTIONS_H
#define TEST_FUNCTIONS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "zkembed.h"

typedef struct test_function {
  const char *name;
  const char *text;     /* the parameter that says what it is about: "path" */
  int (*call)(void *z); /* a handle, or an object */
} test_function;

/* Names used by the calls in the list. */
static const char *some_path = "/n";
static _Alignas(16) char some_bytes[256];
static void *const some_block = some_bytes;

static inline void some_watch(zke *z, int type, int state, const char *path,
                              void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

static inline int some_batch(zke *z, void *context) {
  (void)z, (void)context;
  return ZKE_OK;
}

static inline int some_retry(zke *z, void *context) {
  return some_batch(z, context);
}

static inline void some_check(void *context, const char *sentence) {
  (void)context, (void)sentence;
}

static inline int some_lock_do(zke *z, int64_t token, void *context) {
  (void)token;
  return some_batch(z, context);
}

#ifndef TEST_FUNCTION_LIST
#define TEST_FUNCTION_LIST "function_list.h"
#endif

#define FUNCTION(name, path, parameters, arguments, samples) \
  static int call_##name(void *z) { return name samples; }
#include TEST_FUNCTION_LIST
#undef FUNCTION

#define FUNCTION(name, path, parameters, arguments, samples) \
  {#name, #path, call_##name},
static const test_function test_functions[] = {
#include TEST_FUNCTION_LIST
    {NULL, NULL, NULL}};
#undef FUNCTION

/* Is the function listed in `names`, such as " zke_a zke_b "? */
static inline bool test_is_among(const test_function *f, const char *names) {
  char word[64];
  snprintf(word, sizeof word, " %s ", f->name);
  return strstr(names, word) != NULL;
}

#endif
