/* sim.c - random numbers, the trace, and reports; see sim.h */
#include "test/sim/sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/story.h"

sim_world sim;

static uint64_t sequence[SIM_STREAMS];

/* The next number of a state (splitmix64). */
static uint64_t mix(uint64_t *state) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

/* The streams continue from other states; those of the load do not change. */
void sim_another_future(int64_t number) {
  static const sim_stream others[] = {SIM_ORDER, SIM_DISK, SIM_PLAN};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    sequence[others[i]] ^= (uint64_t)number << 32;
}

/* Each stream starts from its own state, derived from the seed. */
void sim_begin(uint64_t seed) {
  uint64_t from = seed;
  for (int i = 0; i < SIM_STREAMS; i++) sequence[i] = mix(&from);
  sim = (sim_world){.now = 1000 * SIM_MS,
                    .hash = UINT64_C(0xcbf29ce484222325),
                    .last_fault = -1,
                    .last_error = -1,
                    .verbose = sim.verbose};
}

/* The next number of a stream; a limit of 0 means all numbers. */
uint64_t sim_random(sim_stream stream, uint64_t below) {
  uint64_t x = mix(&sequence[stream]);
  return below ? x % below : x;
}

/* Each slot has its own sequence. */
uint64_t sim_load(int slot, uint64_t below) {
  return sim_random((sim_stream)(SIM_LOAD + slot), below);
}

/* True n times out of `of`.  Takes no number if n is 0. */
bool sim_chance(sim_stream stream, uint64_t n, uint64_t of) {
  return n > 0 && sim_random(stream, of) < n;
}

/* Add a number to the hash of the trace. */
void sim_trace(uint64_t value) {
  sim.hash = (sim.hash ^ value) * UINT64_C(0x100000001b3);
  sim.hash ^= sim.hash >> 29;
}

/* The same for bytes: their sum, eight at a time, each multiplied by a factor
 * of its position, so that the products do not depend on each other. */
void sim_trace_bytes(const void *data, size_t size) {
  const unsigned char *at = data;
  uint64_t sum = 0, word, factor = 1;
  for (; size >= 8; at += 8, size -= 8) {
    memcpy(&word, at, 8);
    sum += (word ^ word >> 32) * (factor += UINT64_C(0x9e3779b97f4a7c16));
  }
  for (; size > 0; at++, size--) sum = sum * 31 + *at;
  sim_trace(sum);
}

#define NAME(name, errors) #name,
#define ERRORS(name, errors) errors,
static const char *const call_names[] = {SIM_CALL_LIST(NAME) "any"};
static const char *const call_errors[] = {SIM_CALL_LIST(ERRORS) ""};
#undef NAME
#undef ERRORS

/* Its name in replay strings. */
const char *sim_call_name(sim_call call) { return call_names[call]; }

/* Can a fault make this call report this error?  See SIM_CALL_LIST. */
bool sim_call_reports(sim_call call, int error) {
  char letter = 'I';
  switch (error) {
    case ENOSPC:
      letter = 'S';
      break;
    case EINTR:
      letter = 'R';
      break;
    case EMFILE:
      letter = 'F';
      break;
    case ENOMEM:
      letter = 'M';
      break;
    case EACCES:
      letter = 'A';
      break;
    default:
      break;
  }
  return strchr(call_errors[call], letter) != NULL;
}

/* Does the call make something durable? */
bool sim_call_syncs(sim_call call) {
  return call == CALL_dsync || call == CALL_dbsync || call == CALL_cksync;
}

/* The run ends: report the step, the time, the finder, and the sentence. */
__attribute__((noreturn)) static void report(sim_end end, const char *kind,
                                             const char *sentence) {
  char text[640], name[8];
  story_lane_name(story_lane(), name);
  sim_tell('f', "%s", sentence);
  snprintf(text, sizeof text, "step %lld t=%.3f %s: %s", (long long)sim.steps,
           (double)sim.now / 1e9, name, sentence);
  sim_report(end, kind, text);
}

/* A promise is broken; the format is the finding's kind. */
void sim_found(const char *format, ...) {
  char sentence[600];
  va_list ap;
  va_start(ap, format);
  vsnprintf(sentence, sizeof sentence, format, ap);
  va_end(ap);
  report(SIM_FINDING, format, sentence);
}

/* A signal has arrived, at any moment. */
void sim_crash(const char *sentence) { report(SIM_CRASH, sentence, sentence); }

/* The simulation itself is wrong. */
void sim_bug(const char *format, ...) {
  char sentence[600];
  va_list ap;
  va_start(ap, format);
  vsnprintf(sentence, sizeof sentence, format, ap);
  va_end(ap);
  report(SIM_BUG, format, sentence);
}

/* calloc() that ends the run if there is no memory. */
void *sim_zero(size_t size) {
  void *block = calloc(1, size);
  if (!block) sim_bug("out of memory");
  return block;
}

/* realloc() that does the same. */
void *sim_resize(void *block, size_t size) {
  block = realloc(block, size);
  if (!block) sim_bug("out of memory");
  return block;
}
