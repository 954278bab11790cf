/* clock.c - the command's two clocks
 *
 * Pauses and limits go by the monotonic one, which nobody sets.  The wall clock
 * is for what people read.
 */
#include <time.h>

#include "shell.h"

static int64_t clock_ms(clockid_t which) {
  struct timespec now;
  clock_gettime(which, &now);
  return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

int64_t monotonic_ms(void) { return clock_ms(CLOCK_MONOTONIC); }
int64_t wall_now(void) { return clock_ms(CLOCK_REALTIME); }
