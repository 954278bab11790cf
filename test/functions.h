/* functions.h - each function of zkembed.h that takes a handle and returns a
 * result, to be called with arguments that nothing is wrong with
 *
 *     for (const test_function *f = test_functions; f->name; f++)
 *       ck_rc(f->call(NULL), ZKE_BADARGUMENTS);
 *
 * The build makes function_list.h from the header (functions.awk).  Of
 * zke_state() the result is a number. */
#ifndef TEST_FUNCTIONS_H
#define TEST_FUNCTIONS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "zkembed.h"

typedef struct test_function {
  const char *name;
  int (*call)(zke *z);
} test_function;

/* What the calls in the list name. */
static _Alignas(16) char some_bytes[256];
static void *const some_block = some_bytes;
static void some_function(void) {}

#define FUNCTION(name, path, parameters, arguments, samples) \
  static int call_##name(zke *z) { return name samples; }
#include "function_list.h"
#undef FUNCTION

#define FUNCTION(name, path, parameters, arguments, samples) \
  {#name, call_##name},
static const test_function test_functions[] = {
#include "function_list.h"
    {NULL, NULL}};
#undef FUNCTION

/* Is the function one of these, " zke_a zke_b "? */
static inline bool test_is_among(const test_function *f, const char *names) {
  char word[64];
  snprintf(word, sizeof word, " %s ", f->name);
  return strstr(names, word) != NULL;
}

#endif
