/* sim.c - random numbers, the trace and what is told; see sim.h */
#include "test/sim/sim.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/sched.h"

sim_world sim;

static uint64_t sequence[SIM_STREAMS];

/* A state's next number (splitmix64). */
static uint64_t mix(uint64_t *state) {
  uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

void sim_begin(uint64_t seed) {
  uint64_t from = seed;
  for (int i = 0; i < SIM_STREAMS; i++) sequence[i] = mix(&from);
  sim = (sim_world){.now = 1000 * SIM_MS,
                    .hash = UINT64_C(0xcbf29ce484222325),
                    .last_fault = -1,
                    .last_error = -1,
                    .verbose = sim.verbose};
}

uint64_t sim_random(sim_stream stream, uint64_t below) {
  uint64_t x = mix(&sequence[stream]);
  return below ? x % below : x;
}

bool sim_chance(sim_stream stream, uint64_t n, uint64_t of) {
  return n > 0 && sim_random(stream, of) < n;
}

void sim_trace(uint64_t value) {
  sim.hash = (sim.hash ^ value) * UINT64_C(0x100000001b3);
  sim.hash ^= sim.hash >> 29;
}

void sim_trace_bytes(const void *data, size_t size) {
  const unsigned char *at = data;
  for (; size >= 8; at += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    sim_trace(word);
  }
  for (; size > 0; at++, size--) sim_trace(*at);
}

#define NAME(name, errors) #name,
#define ERRORS(name, errors) errors,
static const char *const call_names[] = {SIM_CALL_LIST(NAME) "any"};
static const char *const call_errors[] = {SIM_CALL_LIST(ERRORS) ""};
#undef NAME
#undef ERRORS

const char *sim_call_name(sim_call call) { return call_names[call]; }

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

bool sim_call_syncs(sim_call call) {
  return call == CALL_dsync || call == CALL_dbsync || call == CALL_cksync;
}

/* Who does it: a letter for the process, a digit for a thread but the first. */
static void put_actor(char out[4]) {
  int slot = sched_slot(), thread = sched_thread();
  out[0] = slot < 0 ? '-' : (char)('A' + slot);
  out[1] = thread > 0 ? (char)('0' + thread) : ' ';
  out[2] = '\0';
}

/* A story has a lane for each process: its lines begin farther to the right. */
enum { LANE = 14 };

void sim_say(const char *format, ...) {
  char actor[4];
  va_list ap;
  if (!sim.verbose) return;
  put_actor(actor);
  int indent = sim.verbose == 1 ? (1 + sched_slot()) * LANE : 0;
  fprintf(stderr, "%8lld %13.9f %*s%s", (long long)sim.steps,
          (double)sim.now / 1e9, indent, "", actor);
  va_start(ap, format);
  vfprintf(stderr, format, ap);
  va_end(ap);
  fputc('\n', stderr);
}

void sim_found(const char *format, ...) {
  char text[600], actor[4];
  va_list ap;
  put_actor(actor);
  int n = snprintf(text, sizeof text, "step %lld t=%.3f %s",
                   (long long)sim.steps, (double)sim.now / 1e9, actor);
  va_start(ap, format);
  vsnprintf(text + n, sizeof text - (size_t)n, format, ap);
  va_end(ap);
  sim_report(text);
}

void sim_bug(const char *format, ...) {
  char text[600] = "the simulation: ";
  size_t n = strlen(text);
  va_list ap;
  va_start(ap, format);
  vsnprintf(text + n, sizeof text - n, format, ap);
  va_end(ap);
  sim_report(text);
}

void *sim_zero(size_t size) {
  void *block = calloc(1, size);
  if (!block) sim_bug("out of memory");
  return block;
}

void *sim_resize(void *block, size_t size) {
  block = realloc(block, size);
  if (!block) sim_bug("out of memory");
  return block;
}
