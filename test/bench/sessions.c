/* sessions.c - the cost of many sessions to each other
 *
 * Ten sessions, a thousand, ten thousand, in processes of up to a thousand
 * each, which all wait in their own loops: the time of a read, a change and the
 * opening of another session, and the sessions' cost while nothing happens.  A
 * session has five descriptors, so RLIMIT_NOFILE must allow a process 5,100;
 * the benchmark raises its soft limit.  Then light sessions, which have none,
 * in one process.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "zkembed.h"

enum { EACH = 1000, PROCESSES = 11, CALLS = 50, AT_ONCE = 64 };

static void ignore(zke *z, int type, int state, const char *path,
                   void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

/* ---- in a process of the crowd ---- */

/* Serve all sessions until a command comes. */
static void serve(int set, zke **z) {
  for (;;) {
    struct epoll_event ready[AT_ONCE];
    int n = epoll_wait(set, ready, AT_ONCE, -1);
    if (n < 0 && errno != EINTR) die("epoll_wait: %d", errno);
    for (int i = 0; i < n; i++) {
      int which = ready[i].data.fd;
      if (which < 0) return;
      must(zke_dispatch(z[which], NULL), "zke_dispatch");
    }
  }
}

static void add_to(int set, int fd, int which) {
  struct epoll_event e = {.events = EPOLLIN, .data = {.fd = which}};
  if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &e)) die("epoll_ctl: %d", errno);
}

/* FILE COUNT: sessions that watch a node, and wait. */
void role_crowd(char **argv) {
  int count = atoi(argv[1]), set = epoll_create1(EPOLL_CLOEXEC), fd;
  zke **z = allocate((size_t)count * sizeof *z);
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 60000};
  more_descriptors();
  for (int i = 0; i < count; i++) {
    if (i == 0)
      must(zke_open(argv[0], &o, &z[i]), "zke_open");
    else
      must(zke_open_session(z[0], &o, &z[i]), "zke_open_session");
    must(zke_exists(z[i], "/watched", ignore, NULL, NULL), "zke_exists");
    must(zke_fd(z[i], &fd), "zke_fd");
    add_to(set, fd, i);
  }
  say(0);
  add_to(set, STDIN_FILENO, -1);
  serve(set, z);
}

/* ---- in the parent ---- */

typedef struct crowd {
  worker w[PROCESSES];
  int processes, sessions;
} crowd;

/* Start processes until there are so many sessions, without ours. */
static void grow(crowd *c, const char *file, int sessions) {
  while (c->sessions < sessions) {
    int more = sessions - c->sessions < EACH ? sessions - c->sessions : EACH;
    char count[16];
    snprintf(count, sizeof count, "%d", more);
    c->w[c->processes] = worker_start("crowd", run.cpu[1], file, count, NULL);
    worker_ready(&c->w[c->processes++]);
    c->sessions += more;
  }
}

static double crowd_cpu_ns(const crowd *c) {
  double sum = 0;
  for (int i = 0; i < c->processes; i++) sum += worker_cpu_ns(&c->w[i]);
  return sum;
}

static void measure_waiting(const crowd *c) {
  sleep_us(times(3000000, 300000)); /* until opening has settled */
  int64_t start = now_ns();
  double before = crowd_cpu_ns(c);
  sleep_us(times(10000000, 1000000));
  double took = crowd_cpu_ns(c) - before;
  report_one("CPU of all, waiting", c->sessions, "zkembed", "%",
             100 * took / (double)(now_ns() - start));
}

typedef void (*call_fn)(zke *z, const char *file);

static void call_get(zke *z, const char *file) {
  char *value;
  int len;
  (void)file;
  must(zke_get(z, "/watched", NULL, NULL, &value, &len, NULL), "zke_get");
  zke_free(value);
}

static void call_create(zke *z, const char *file) {
  (void)file;
  must(zke_create(z, "/e/n-", data, DATA_BYTES, ZKE_OPEN_ACL,
                  ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL),
       "zke_create");
}

static void call_open(zke *z, const char *file) {
  zke *other;
  (void)z;
  must(zke_open(file, NULL, &other), "zke_open");
  must(zke_close(other), "zke_close");
}

static const struct {
  const char *name;
  call_fn call;
} calls[] = {{"get among sessions", call_get},
             {"create among sessions", call_create},
             {"open among sessions", call_open}};
enum { KINDS = sizeof calls / sizeof calls[0] };

static void measure_calls(zke *z, const char *file, int sessions) {
  for (int kind = 0; kind < KINDS; kind++) {
    samples s = {0};
    int64_t warm = now_ns() + INT64_C(200000000); /* after the long sleep */
    while (now_ns() < warm) calls[kind].call(z, file);
    for (int i = times(CALLS * 10, CALLS); i > 0; i--) {
      int64_t start = now_ns();
      calls[kind].call(z, file);
      add(&s, (double)(now_ns() - start) / 1000);
    }
    report(calls[kind].name, sessions, "zkembed", "us", &s, NULL, NULL);
    forget(&s);
  }
}

/* ---- light sessions ---- */

/* Open and close many light sessions on one handle. */
static void measure_light(const char *file, int count) {
  zke *z, **light = allocate((size_t)count * sizeof(zke *));
  samples opens = {0}, closes = {0};
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_LIGHT};
  must(zke_open(file, NULL, &z), "zke_open");
  struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < count; i++) {
    int64_t start = now_ns();
    must(zke_open_session(z, &o, &light[i]), "zke_open_session");
    add(&opens, (double)(now_ns() - start) / 1000);
  }
  report("open a light session", count, "zkembed", "us", &opens, NULL, NULL);
  forget(&opens);
  report_one("memory of a light session", count, "zkembed", "bytes",
             (double)(mallinfo2().uordblks - before.uordblks) / count);
  for (int i = 0; i < count; i++) {
    int64_t start = now_ns();
    must(zke_close(light[i]), "zke_close");
    add(&closes, (double)(now_ns() - start) / 1000);
  }
  report("close a light session", count, "zkembed", "us", &closes, NULL, NULL);
  forget(&closes);
  must(zke_close(z), "zke_close");
  free(light);
}

void part_sessions(void) {
  const int sizes[] = {10, times(1000, 20), times(10000, 30)};
  crowd c = {.sessions = 0};
  char file[PATH_BYTES];
  zke *z;
  file_in(file, sizeof file, "sessions.db");
  must(zke_open(file, NULL, &z), "zke_open");
  must(zke_create(z, "/watched", data, DATA_BYTES, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                  NULL, NULL),
       "zke_create");
  must(zke_create(z, "/e", data, 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL),
       "zke_create");
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    grow(&c, file, sizes[i]);
    measure_waiting(&c);
    measure_calls(z, file, sizes[i]);
  }
  for (int i = 0; i < c.processes; i++) worker_kill(&c.w[i]);
  must(zke_close(z), "zke_close");
  file_in(file, sizeof file, "light.db");
  measure_light(file, 10);
  measure_light(file, 10000);
}
