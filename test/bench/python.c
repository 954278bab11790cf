/* python.c - the locks of Python's world, by test/bench/python.py
 *
 * BENCH_PYTHON names the interpreter, BENCH_SCRIPT the script.  A process of
 * Python does the locking and takes the times; we only tell it to.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *from_environment(const char *name, const char *otherwise) {
  const char *value = getenv(name);
  return value && *value ? value : otherwise;
}

static const char *interpreter(void) {
  return from_environment("BENCH_PYTHON", "python3");
}

static const char *script(void) {
  return from_environment("BENCH_SCRIPT", "test/bench/python.py");
}

/* The line that "has KIND" prints, or NULL. */
static const char *has(const char *kind) {
  static char line[200];
  char command[3000];
  snprintf(command, sizeof command, "'%s' '%s' has %s 2>/dev/null",
           interpreter(), script(), kind);
  FILE *f = popen(command, "r");
  if (!f) return NULL;
  bool there = fgets(line, sizeof line, f) != NULL;
  if (pclose(f) || !there) return NULL;
  line[strcspn(line, "\n")] = '\0';
  return line;
}

worker python_locker(const char *kind, const char *where, int cpu) {
  char number[24];
  snprintf(number, sizeof number, "%d", cpu);
  char *argv[] = {strdup(interpreter()),
                  strdup(script()),
                  strdup("lock"),
                  strdup(kind),
                  strdup(where),
                  number,
                  NULL};
  worker w = worker_run(argv);
  for (int i = 0; i < 5; i++) free(argv[i]);
  worker_ready(&w);
  return w;
}

bool python_has(const char *kind) { return has(kind) != NULL; }

static worker python_start(const char *kind, const char *place, int cpu) {
  char name[100], path[PATH_BYTES];
  snprintf(name, sizeof name, "python-%.30s-%.40s", kind, place);
  file_in(path, sizeof path, name);
  return python_locker(kind, path, cpu);
}

static void *python_open(const char *kind, const char *place) {
  worker *w = allocate(sizeof *w);
  *w = python_start(kind, place, run.cpu[0]);
  return w;
}

static void python_close(void *self) {
  worker_end(self);
  free(self);
}

static int64_t python_loop(void *self, int count) {
  int64_t word = count;
  worker_go(self, 'n');
  worker_tell(self, &word, sizeof word);
  return worker_word(self);
}

#define PYTHON(id, kind, reason)                                             \
  static const char *id##_absent(void) { return has(kind) ? NULL : reason; } \
  static void id##_version(char *out, size_t size) {                         \
    const char *line = has(kind);                                            \
    snprintf(out, size, "%s", line ? line : "unknown");                      \
  }                                                                          \
  static void *id##_open(const char *place, purpose why) {                   \
    (void)why;                                                               \
    return python_open(kind, place);                                         \
  }                                                                          \
  static worker id##_start(const char *place, int cpu) {                     \
    return python_start(kind, place, cpu);                                   \
  }

#define METHODS(id)                                                  \
  .absent = id##_absent, .version = id##_version, .open = id##_open, \
  .close = python_close, .lock_loop = python_loop, .lock_start = id##_start

#define MISSING "not installed (make bench-peers)"
PYTHON(filelock, "filelock", MISSING)
PYTHON(fasteners, "fasteners", MISSING)
PYTHON(portalocker, "portalocker", MISSING)
PYTHON(coprocess, "zkembed-py", "no zke beside the program")

const subject subjects_python[] = {
    {.name = "filelock",
     .promise =
         "goes with its process; waits by polling each 50 ms, in no order",
     .lock_pause_us = 50000,
     METHODS(filelock)},
    {.name = "fasteners",
     .promise = "goes with its process; polls each 10 to 100 ms, in no order",
     .lock_pause_us = 100000,
     METHODS(fasteners)},
    {.name = "portalocker",
     .promise = "goes with its process; polls each 250 ms, in no order",
     .lock_pause_us = 250000,
     METHODS(portalocker)},
    {.name = "zkembed-py",
     .promise =
         "zkembed's, for programs in Python: requests and answers in JSON "
         "through two pipes",
     METHODS(coprocess)}};
const int subjects_python_count =
    sizeof subjects_python / sizeof subjects_python[0];
