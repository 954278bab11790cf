/* calls.c - the calls of zkembed.h as the load makes them, with a report of
 * each
 *
 * The linker knows the engine's own functions as sim_real_zke_... (engine.c).
 * The build makes function_list.h from zkembed.h (test/functions.awk), so every
 * function that takes a handle is here, with all its arguments; an argument's
 * type decides how it is reported.  Nothing here makes a step, or changes what
 * the engine does. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "test/lab/drawing.h"
#include "test/sim/sim.h"
#include "zkembed.h"

/* A line that grows. */
typedef struct call {
  char text[DRAWING_TEXT];
  size_t length;
  const char *name; /* without "zke_" */
  const void *data; /* reported with the next argument, its length */
  const zke_op *ops;
} call;

/* Add to the line. */
__attribute__((format(printf, 2, 3))) static void put(call *c,
                                                      const char *format, ...) {
  size_t room = sizeof c->text - c->length;
  va_list ap;
  va_start(ap, format);
  int n = vsnprintf(c->text + c->length, room, format, ap);
  va_end(ap);
  if (n > 0) c->length += (size_t)n < room ? (size_t)n : room - 1;
}

/* Add data: its beginning, as far as it is readable. */
static void put_data(call *c, const char *data, int length) {
  enum { SHOWN = 24 };
  char shown[SHOWN + 1] = "";
  int n = 0;
  for (; n < length && n < SHOWN; n++)
    shown[n] = data[n] >= ' ' && data[n] < 127 ? data[n] : '?';
  put(c, " \"%s\"%s", shown, length > SHOWN ? "..." : "");
}

/* ---- arguments, by their types ---- */

/* A path, or another string. */
static void in_text(call *c, const char *name, const char *value) {
  (void)name;
  put(c, " %s", value ? value : "NULL");
}

/* Data: reported when its length is known. */
static void in_data(call *c, const char *name, const void *value) {
  (void)name;
  c->data = value;
}

/* Operations: reported when their number is known. */
static void in_ops(call *c, const char *name, const zke_op *value) {
  (void)name;
  c->ops = value;
}

/* The mode of a create. */
static const char *mode_name(int mode) {
  static const char *const names[] = {
      "persistent",           "ephemeral", "sequential",
      "ephemeral sequential", "container", "with a TTL",
      "sequential with a TTL"};
  enum { NAMES = (int)(sizeof names / sizeof *names) };
  return mode >= 0 && mode < NAMES ? names[mode] : "?";
}

/* A number, or the previous argument's length. */
static void in_int(call *c, const char *name, int value) {
  if (c->ops) {
    for (int i = 0; i < value; i++) put(c, " %s", c->ops[i].path);
    c->ops = NULL;
  } else if (strcmp(name, "len") == 0) {
    if (c->data) put_data(c, c->data, value);
  } else if (strcmp(name, "mode") == 0 && strncmp(c->name, "create", 6) == 0) {
    put(c, " %s", mode_name(value));
  } else if (value != -1) {
    put(c, " %s=%d", name, value);
  }
}

/* A number, or a time relative to now. */
static void in_long(call *c, const char *name, int64_t value) {
  bool time = strcmp(name, "deadline_ms") == 0 || strcmp(name, "when_ms") == 0;
  if (time)
    put(c, " for %lld ms", (long long)(value - sim.now / SIM_MS));
  else
    put(c, " %s=%llx", name, (long long)value);
}

/* A watcher, if there is one. */
static void in_watch(call *c, const char *name, zke_watch_fn value) {
  (void)name;
  if (value) put(c, ", watched");
}

/* An argument that is not worth reporting. */
static void in_other(call *c, const char *name, ...) { (void)c, (void)name; }

/* ---- results ---- */

/* A path that was created, or data. */
static void out_text(call *c, const char *name, char **value) {
  (void)name;
  if (value && *value) put_data(c, *value, (int)strlen(*value));
}

/* The version is enough of a Stat. */
static void out_stat(call *c, const char *name, zke_stat *value) {
  (void)name;
  if (value) put(c, ", version %d", value->version);
}

/* A count. */
static void out_long(call *c, const char *name, int64_t *value) {
  if (value) put(c, ", %s %lld", name, (long long)*value);
}

/* A number, but not the length of data. */
static void out_int(call *c, const char *name, int *value) {
  if (value && strcmp(name, "len_out") != 0) put(c, ", %d", *value);
}

/* The length of a list. */
static void out_strings(call *c, const char *name, zke_strings **value) {
  (void)name;
  if (value && *value) put(c, ", %d of them", (*value)->count);
}

/* The session of a handle. */
static void out_handle(call *c, const char *name, zke **value) {
  (void)name;
  if (value && *value)
    put(c, ", session %llx", (long long)zke_session_id(*value));
}

/* ---- functions ---- */

#define IN(a) \
  _Generic((a),                      \
      const char *: in_text,         \
      const void *: in_data,         \
      const zke_op *: in_ops,        \
      int: in_int,                   \
      int64_t: in_long,              \
      zke_watch_fn: in_watch,        \
      default: in_other)(&c, #a, a);
#define OUT(a) \
  _Generic((a),                      \
      char **: out_text,             \
      zke_stat *: out_stat,          \
      int64_t *: out_long,           \
      int *: out_int,                \
      zke_strings **: out_strings,   \
      zke **: out_handle,            \
      default: in_other)(&c, #a, a);

/* X(a) for each argument. */
#define EACH_1(X, a) X(a)
#define EACH_2(X, a, ...) X(a) EACH_1(X, __VA_ARGS__)
#define EACH_3(X, a, ...) X(a) EACH_2(X, __VA_ARGS__)
#define EACH_4(X, a, ...) X(a) EACH_3(X, __VA_ARGS__)
#define EACH_5(X, a, ...) X(a) EACH_4(X, __VA_ARGS__)
#define EACH_6(X, a, ...) X(a) EACH_5(X, __VA_ARGS__)
#define EACH_7(X, a, ...) X(a) EACH_6(X, __VA_ARGS__)
#define EACH_8(X, a, ...) X(a) EACH_7(X, __VA_ARGS__)
#define EACH_9(X, a, ...) X(a) EACH_8(X, __VA_ARGS__)
#define EACH_OF(a, b, c, d, e, f, g, h, i, each, ...) each
#define EACH(X, ...)                                                           \
  EACH_OF(__VA_ARGS__, EACH_9, EACH_8, EACH_7, EACH_6, EACH_5, EACH_4, EACH_3, \
          EACH_2, EACH_1, 0)                                                   \
  (X, __VA_ARGS__)
#define ALL_IN(...) EACH(IN, __VA_ARGS__)
#define ALL_OUT(...) EACH(OUT, __VA_ARGS__)

/* A call begins. */
static call call_of(const char *name) {
  call c = {.length = 0, .name = name + strlen("zke_")};
  put(&c, "%s", c.name);
  return c;
}

/* Its result, before its other outputs. */
static call result_of(const char *name, int rc) {
  call c = call_of(name);
  if (rc == ZKE_OK)
    put(&c, ": ok");
  else
    put(&c, ": %s, %s", zke_error_name(rc), zke_errmsg());
  return c;
}

#define TOLD(name, parameters, arguments)                \
  int sim_real_##name parameters;                        \
  int name parameters {                                  \
    if (!sim.verbose) return sim_real_##name arguments;  \
    call c = call_of(#name);                             \
    ALL_IN arguments sim_tell('(', "%s", c.text);        \
    int rc = sim_real_##name arguments;                  \
    c = result_of(#name, rc);                            \
    if (rc == ZKE_OK) {                                  \
      ALL_OUT arguments if (zke_zxid())                  \
          put(&c, ", zxid %llx", (long long)zke_zxid()); \
    }                                                    \
    sim_tell(')', "%s", c.text);                         \
    return rc;                                           \
  }
#define FUNCTION(name, path, parameters, arguments, samples) \
  TOLD(name, parameters, arguments)
#include "function_list.h"

TOLD(zke_open, (const char *name, const zke_options *options, zke **z_out),
     (name, options, z_out))
