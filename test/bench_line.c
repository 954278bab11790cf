/* bench_line.c - many processes that write durably without pause
 *
 * What counts is the longest wait of any change, beside what it would be if
 * the writers came strictly one after the other: as many times the change of a
 * single writer as there are writers.  A sync takes as long as it does here, or
 * 10 ms, by a VFS that sleeps instead.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "../zkembed.h"
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITERS_MOST = 200, SLOW_US = 10000 };

/* ---- a VFS whose syncs of the log sleep ---- */

static struct {
  sqlite3_vfs vfs, *under;
  sqlite3_io_methods methods;
  int64_t us;
} slow;

static int slow_sync(sqlite3_file *f, int flags) {
  (void)f, (void)flags;
  sleep_us(slow.us);
  return SQLITE_OK;
}

static int slow_open(sqlite3_vfs *v, const char *name, sqlite3_file *f,
                     int flags, int *out_flags) {
  (void)v;
  int rc = slow.under->xOpen(slow.under, name, f, flags, out_flags);
  if (rc != SQLITE_OK || !(flags & SQLITE_OPEN_WAL)) return rc;
  slow.methods = *f->pMethods;
  slow.methods.xSync = slow_sync;
  f->pMethods = &slow.methods;
  return rc;
}

static const char *slow_vfs(int64_t us) {
  slow.us = us;
  slow.under = sqlite3_vfs_find(NULL);
  slow.vfs = *slow.under;
  slow.vfs.zName = "slow";
  slow.vfs.xOpen = slow_open;
  sqlite3_vfs_register(&slow.vfs, 0);
  return "slow";
}

/* ---- a writer ---- */

typedef struct tally {
  int64_t longest, sum, late; /* ns, ns, changes that timed out */
} tally;

static zke *writer_open(const char *place, int64_t sync_us, char path[64]) {
  char file[PATH_BYTES], name[64];
  zke_options o = {.size = sizeof o};
  zke *z;
  snprintf(name, sizeof name, "zke-%.50s.db", place);
  file_in(file, sizeof file, name);
  if (sync_us) o.vfs = slow_vfs(sync_us);
  must(zke_open(file, &o, &z), "zke_open");
  snprintf(path, 64, "/w%d", (int)getpid());
  must(zke_create(z, path, data, DATA_BYTES, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                  NULL),
       "zke_create");
  return z;
}

/* PLACE SYNC_US COUNT: its longest change, all together, those too late. */
void role_line(char **argv) {
  char path[64];
  zke *z = writer_open(argv[0], atoll(argv[1]), path);
  tally t = {0};
  say(0);
  await_command();
  for (int i = atoi(argv[2]); i > 0; i--) {
    int64_t start = now_ns();
    int rc = zke_set(z, path, data, DATA_BYTES, -1, NULL);
    int64_t took = now_ns() - start;
    if (rc != ZKE_OPERATIONTIMEOUT) must(rc, "zke_set");
    t.late += rc != ZKE_OK;
    t.sum += took;
    if (took > t.longest) t.longest = took;
  }
  say(t.longest);
  say(t.sum);
  say(t.late);
  await_command();
  zke_close(z);
}

static void start_writers(worker *w, int writers, const char *place,
                          int64_t sync_us, int each) {
  char us[24], count[24];
  snprintf(us, sizeof us, "%lld", (long long)sync_us);
  snprintf(count, sizeof count, "%d", each);
  for (int i = 0; i < writers; i++) {
    w[i] = worker_start("line", run.cpu[i % 2], place, us, count, NULL);
    worker_ready(&w[i]);
  }
}

static void end_writers(worker *w, int writers) {
  for (int i = 0; i < writers; i++) worker_go(&w[i], 'e');
  for (int i = 0; i < writers; i++) worker_end(&w[i]);
}

static tally write_together(int writers, const char *place, int64_t sync_us,
                            int each) {
  worker w[WRITERS_MOST];
  tally all = {0};
  start_writers(w, writers, place, sync_us, each);
  for (int i = 0; i < writers; i++) worker_go(&w[i], 'g');
  for (int i = 0; i < writers; i++) {
    int64_t longest = worker_word(&w[i]);
    if (longest > all.longest) all.longest = longest;
    all.sum += worker_word(&w[i]);
    all.late += worker_word(&w[i]);
  }
  end_writers(w, writers);
  return all;
}

/* ---- the longest wait ---- */

static const int line_writers[] = {8, 50, 100, 200};
enum { LINES = sizeof line_writers / sizeof *line_writers };

static void compare_line(const char *kind, const char *place, int64_t sync_us,
                         int each) {
  char name[80];
  int alone = each * 10;
  double one =
      (double)write_together(1, place, sync_us, alone).sum / 1e6 / alone;
  for (int i = 0; i < times(LINES, 1); i++) {
    int writers = line_writers[i];
    tally t = write_together(writers, place, sync_us, each);
    double longest = (double)t.longest / 1e6, bound = one * writers;
    snprintf(name, sizeof name, "%s, longest", kind);
    report_one(name, writers, "zkembed", "ms", longest);
    snprintf(name, sizeof name, "%s, one after the other", kind);
    report_one(name, writers, "zkembed", "ms", bound);
    snprintf(name, sizeof name, "%s, longest of that", kind);
    report_one(name, writers, "zkembed", "", longest / bound);
    snprintf(name, sizeof name, "%s, too late", kind);
    report_one(name, writers, "zkembed", "", (double)t.late);
  }
}

/* ---- what waiting costs ---- */

/* Lock the gate as a writer does. */
static int hold_gate(const char *place) {
  char name[80], path[PATH_BYTES];
  struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  snprintf(name, sizeof name, "zke-%s.db-zke/gate", place);
  file_in(path, sizeof path, name);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0 || fcntl(fd, F_OFD_SETLK, &l) < 0)
    die("cannot lock %s: %s", path, strerror(errno));
  return fd;
}

static double cpu_of_all(worker *w, int writers) {
  double sum = 0;
  for (int i = 0; i < writers; i++) sum += worker_cpu_ns(&w[i]);
  return sum;
}

static void cost_of_waiting(int writers) {
  worker w[WRITERS_MOST];
  int64_t second = times(1000000, 200000);
  start_writers(w, writers, "line-wait", 0, 1);
  int fd = hold_gate("line-wait");
  for (int i = 0; i < writers; i++) worker_go(&w[i], 'g');
  sleep_us(second);
  double before = cpu_of_all(w, writers);
  int64_t start = now_ns();
  sleep_us(2 * second);
  double used = cpu_of_all(w, writers) - before;
  double took = (double)(now_ns() - start);
  close(fd);
  for (int i = 0; i < writers; i++) {
    for (int word = 0; word < 3; word++) worker_word(&w[i]);
  }
  end_writers(w, writers);
  report_one("CPU of a line", writers, "zkembed", "% core", 100 * used / took);
}

void part_line(void) {
  int each = times(10, 2);
  compare_line("writers", "line", 0, each);
  compare_line("writers, sync of 10 ms", "line-slow", SLOW_US, each);
  cost_of_waiting(times(WRITERS_MOST, 8));
}
