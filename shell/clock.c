/* clock.c - the command's two clocks, and a database's
 *
 * Pauses and limits use the monotonic clock, which nothing can set.  The wall
 * clock is for people to read.
 *
 * A database in memory has its own wall clock, which a test can move and stop
 * (serve --control).  ctime and mtime come from it, and TTL nodes and
 * containers expire by it.  A database in a file uses the wall clock that all
 * its processes share.
 */
#include <time.h>
#include <unistd.h>

#include "shell.h"

static int64_t clock_ns(clockid_t which) {
  struct timespec now;
  clock_gettime(which, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* For pthread_cond_timedwait() on a condition variable of this clock. */
struct timespec clock_after(int64_t ms) {
  int64_t ns = clock_ns(CLOCK_MONOTONIC) + ms % 1000 * 1000000;
  return (struct timespec){.tv_sec = (time_t)(ns / 1000000000 + ms / 1000),
                           .tv_nsec = (long)(ns % 1000000000)};
}

int64_t clock_ms(void) { return clock_ns(CLOCK_MONOTONIC) / 1000000; }
int64_t clock_wall_ms(void) { return clock_ns(CLOCK_REALTIME) / 1000000; }

/* Ticks begin at the host's start, as CLOCK_BOOTTIME does. */
int64_t clock_of_ticks(uint64_t ticks) {
  int64_t start = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_BOOTTIME);
  return start / 1000000 + (int64_t)ticks * 1000 / sysconf(_SC_CLK_TCK);
}

/* The clock of databases in memory: its offset and, while it is stopped, its
 * time.  Only a server moves it, on the thread that uses the database. */
static struct {
  int64_t ahead_ns;
  int64_t stands_at_ns;
  bool stands;
} moved;

static int64_t moved_ns(void) {
  if (moved.stands) return moved.stands_at_ns;
  return clock_ns(CLOCK_REALTIME) + moved.ahead_ns;
}

void clock_move(int64_t ms) {
  moved.ahead_ns += ms * 1000000;
  moved.stands_at_ns += ms * 1000000;
}

/* It starts again from the time at which it stopped. */
void clock_stand(bool stands) {
  if (stands == moved.stands) return;
  if (stands)
    moved.stands_at_ns = moved_ns();
  else
    moved.ahead_ns = moved.stands_at_ns - clock_ns(CLOCK_REALTIME);
  moved.stands = stands;
}

/* The clock of the library's table: only the time of day is moved.  Waiting
 * uses the real clocks, or a wait would never end while the clock is
 * stopped. */
static int64_t clock_read(void *context, int which) {
  (void)context;
  if (which == ZKE_CLOCK_REALTIME) return moved_ns();
  return clock_ns(which == ZKE_CLOCK_BOOTTIME ? CLOCK_BOOTTIME
                                              : CLOCK_MONOTONIC);
}

const zke_os *clock_os(void) {
  static zke_os os = ZKE_INIT(zke_os);
  os.clock = clock_read;
  return &os;
}
