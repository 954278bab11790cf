/* fuzz.h - what the fuzz targets share
 *
 * Each file NAME.c beside it is a libFuzzer target (`make fuzz`); test_corpus.c
 * includes them and replays corpus/ with any compiler.  An input is read from
 * its front as bytes, numbers and texts; one that ends early reads as zeros.
 * The library under test runs on a clock of its own, so that no input waits,
 * and with an allocator and descriptors that are counted.
 */
#ifndef ZKE_FUZZ_H
#define ZKE_FUZZ_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "zkembed.h"

/* The target of a file, int fuzz_NAME(data, size).  In libFuzzer's program for
 * it, that is what the library calls. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
#ifdef FUZZ_TOGETHER
#define FUZZ_TARGET(name)
#else
#define FUZZ_TARGET(name)                                        \
  int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { \
    return name(data, size);                                     \
  }
#endif

/* What must hold whatever the input; libFuzzer keeps the input that aborts. */
#define FUZZ_EXPECT(condition)                                             \
  do {                                                                     \
    if (!(condition)) {                                                    \
      fprintf(stderr, "%s:%d: not so: %s (last sentence: %s)\n", __FILE__, \
              __LINE__, #condition, zke_errmsg());                         \
      abort();                                                             \
    }                                                                      \
  } while (0)

/* A result is one of the documented ones; returns it. */
static inline int fuzz_rc(int rc) {
  FUZZ_EXPECT(rc <= 0 && strcmp(zke_error_name(rc), "ZKE_UNKNOWN") != 0);
  return rc;
}

/* ---- the input ---- */

typedef struct fuzz_input {
  const uint8_t *at;
  size_t left;
} fuzz_input;

static inline unsigned fuzz_byte(fuzz_input *in) {
  if (!in->left) return 0;
  in->left--;
  return *in->at++;
}

static inline int64_t fuzz_number(fuzz_input *in, int bytes) {
  uint64_t n = 0;
  for (int i = 0; i < bytes; i++) n = n << 8 | fuzz_byte(in);
  return (int64_t)n;
}

/* An integer: small, at an edge, or any. */
static inline int64_t fuzz_int(fuzz_input *in) {
  static const int64_t edges[] = {INT64_MIN,
                                  INT64_MIN + 1,
                                  INT64_MAX,
                                  INT64_MAX - 1,
                                  INT32_MIN,
                                  INT32_MAX,
                                  UINT32_MAX,
                                  INT64_C(1) << 32,
                                  (INT64_C(1) << 32) + 1,
                                  INT64_C(1) << 40,
                                  1048576,
                                  1048577,
                                  -1,
                                  0,
                                  ZKE_MAX_TTL,
                                  INT64_C(1) << 62};
  unsigned how = fuzz_byte(in);
  if (how < 96) return (int64_t)how - 8;
  if (how < 192) return edges[how % (sizeof edges / sizeof *edges)];
  return fuzz_number(in, how < 224 ? 4 : 8);
}

/* A text of the input's bytes, NUL-terminated, in a block of just its size so
 * that a sanitizer sees the first byte read behind it; free() it. */
static inline char *fuzz_text(fuzz_input *in, size_t len) {
  if (len > in->left) len = in->left;
  char *text = malloc(len + 1);
  FUZZ_EXPECT(text);
  if (len) memcpy(text, in->at, len);
  text[len] = '\0';
  in->at += len;
  in->left -= len;
  return text;
}

/* ---- what several targets need ---- */

/* A stream that discards all output. */
static inline FILE *fuzz_nowhere(void) {
  static FILE *nowhere;
  if (!nowhere) nowhere = fopen("/dev/null", "w");
  FUZZ_EXPECT(nowhere);
  return nowhere;
}

/* Make a directory, in memory if possible: each input writes files. */
static inline void fuzz_directory(char *out, size_t size) {
  const char *base = getenv("TMPDIR");
  if (!base) base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  snprintf(out, size, "%s/zke-fuzz-XXXXXX", base);
  FUZZ_EXPECT(mkdtemp(out));
}

/* The length of a frame as ZooKeeper's protocol sends it. */
static inline void fuzz_length(unsigned char head[4], uint32_t len) {
  for (int i = 0; i < 4; i++) head[i] = (unsigned char)(len >> (24 - 8 * i));
}

/* ---- the world around the library ---- */

typedef struct fuzz_world {
  zke_os real;
  int64_t now; /* ns */
  uint64_t random;
  int fds;
  long blocks;
} fuzz_world;

static inline void *fuzz_resize(void *context, void *block, size_t size) {
  fuzz_world *w = context;
  if (!size) {
    w->blocks -= block != NULL;
    free(block);
    return NULL;
  }
  void *grown = realloc(block, size);
  w->blocks += grown && !block;
  return grown;
}

static inline int fuzz_opened(fuzz_world *w, int fd) {
  w->fds += fd >= 0;
  return fd;
}

static inline int fuzz_open(void *c, const char *path, int flags,
                            unsigned mode) {
  fuzz_world *w = c;
  return fuzz_opened(w, w->real.open(w->real.context, path, flags, mode));
}

static inline int fuzz_close(void *c, int fd) {
  fuzz_world *w = c;
  w->fds--;
  return w->real.close(w->real.context, fd);
}

static inline int fuzz_dup(void *c, int fd) {
  fuzz_world *w = c;
  return fuzz_opened(w, w->real.dup(w->real.context, fd));
}

static inline int fuzz_pipe(void *c, int fds[2]) {
  fuzz_world *w = c;
  int rc = w->real.pipe(w->real.context, fds);
  if (rc >= 0) w->fds += 2;
  return rc;
}

static inline int fuzz_poller(void *c) {
  fuzz_world *w = c;
  return fuzz_opened(w, w->real.poller(w->real.context));
}

static inline int fuzz_timer(void *c) {
  fuzz_world *w = c;
  return fuzz_opened(w, w->real.timer(w->real.context));
}

/* All sleeps are over at once, and time goes on a little at each look. */
static inline int64_t fuzz_clock(void *c, int which) {
  fuzz_world *w = c;
  w->now += 1000;
  return which == ZKE_CLOCK_REALTIME ? w->now + INT64_C(1600000000) * 1000000000
                                     : w->now;
}

static inline void fuzz_sleep(void *c, int64_t ns) {
  ((fuzz_world *)c)->now += ns;
}

static inline int fuzz_poll(void *c, struct pollfd *fds, unsigned count,
                            int timeout_ms) {
  fuzz_world *w = c;
  int rc = w->real.poll(w->real.context, fds, count, 0);
  if (rc == 0 && timeout_ms > 0) w->now += timeout_ms * INT64_C(1000000);
  return rc;
}

/* Real timers know nothing of our clock; poll() alone tells the time. */
static inline int fuzz_timer_set(void *c, int fd, int64_t when_ns) {
  (void)c, (void)fd, (void)when_ns;
  return 0;
}

static inline int fuzz_fsync(void *c, int fd) {
  (void)c, (void)fd;
  return 0;
}

static inline int fuzz_random(void *c, void *buffer, size_t size) {
  fuzz_world *w = c;
  for (size_t i = 0; i < size; i++) {
    w->random = w->random * UINT64_C(6364136223846793005) + 1442695040888963407;
    ((unsigned char *)buffer)[i] = (unsigned char)(w->random >> 56);
  }
  return 0;
}

static inline int fuzz_boot_id(void *c, char *buffer, size_t size) {
  (void)c;
  snprintf(buffer, size, "fuzz");
  return 0;
}

/* The table for options.os; the members that are not ours need no context. */
static inline zke_os fuzz_world_begin(fuzz_world *w) {
  zke_os os;
  memset(w, 0, sizeof *w);
  w->now = INT64_C(1000000000000);
  zke_os_default(&w->real);
  os = w->real;
  os.context = w;
  os.open = fuzz_open;
  os.close = fuzz_close;
  os.dup = fuzz_dup;
  os.pipe = fuzz_pipe;
  os.poller = fuzz_poller;
  os.timer = fuzz_timer;
  os.timer_set = fuzz_timer_set;
  os.clock = fuzz_clock;
  os.sleep = fuzz_sleep;
  os.poll = fuzz_poll;
  os.fsync = fuzz_fsync;
  os.random = fuzz_random;
  os.boot_id = fuzz_boot_id;
  return os;
}

/* Everything was closed and freed. */
static inline void fuzz_world_end(const fuzz_world *w) {
  FUZZ_EXPECT(w->blocks == 0);
  FUZZ_EXPECT(w->fds == 0);
}

#endif
