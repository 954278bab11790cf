/* line.c - many processes that write without pause
 *
 * This measures the longest wait of any change.  If writers are served strictly
 * in turn, each waits as many turns as there are writers.  The wait is compared
 * with that many changes of a single writer.  Independently of time, each wait
 * is also counted in turns: the zxids tell how many others were served between
 * the beginning of a change and its commit.
 *
 * A sync takes its real time, or 10 ms, by a VFS that sleeps instead; or the
 * changes are of ephemeral nodes, which are not synced.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "zkembed.h"
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WRITERS_MOST = 200, SLOW_US = 10000 };

/* ---- a VFS with syncs of the log that sleep ---- */

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

/* A change: begin and end of its call, ns, and its zxid; 0: timed out. */
typedef struct change {
  int64_t begun, ended, zxid;
} change;

enum { WORDS = sizeof(change) / sizeof(int64_t) };

static zke *writer_open(const char *place, int64_t sync_us, bool synced,
                        char path[64]) {
  char file[PATH_BYTES], name[64];
  zke_options o = {.size = sizeof o};
  zke *z;
  snprintf(name, sizeof name, "zke-%.50s.db", place);
  file_in(file, sizeof file, name);
  if (sync_us) o.vfs = slow_vfs(sync_us);
  must(zke_open(file, &o, &z), "zke_open");
  snprintf(path, 64, "/w%d", (int)getpid());
  must(zke_create(z, path, data, DATA_BYTES, ZKE_OPEN_ACL,
                  synced ? ZKE_PERSISTENT : ZKE_EPHEMERAL, NULL, NULL),
       "zke_create");
  return z;
}

static change change_once(zke *z, const char *path) {
  zke_stat stat = {.mzxid = 0};
  change c = {.begun = now_ns()};
  int rc = zke_set(z, path, data, DATA_BYTES, -1, &stat);
  c.ended = now_ns();
  if (rc != ZKE_OPERATIONTIMEOUT) must(rc, "zke_set");
  c.zxid = stat.mzxid;
  return c;
}

/* PLACE SYNC_US SYNCED COUNT: its changes. */
void role_line(char **argv) {
  char path[64];
  int count = atoi(argv[3]);
  change *done = allocate((size_t)count * sizeof *done);
  zke *z = writer_open(argv[0], atoll(argv[1]), atoi(argv[2]), path);
  say(0);
  await_command();
  for (int i = 0; i < count; i++) done[i] = change_once(z, path);
  for (int i = 0; i < count; i++) {
    say(done[i].begun);
    say(done[i].ended);
    say(done[i].zxid);
  }
  await_command();
  zke_close(z);
  free(done);
}

/* ---- many of them ---- */

typedef struct load {
  const char *kind, *place;
  int64_t sync_us;
  bool synced;
  int each; /* changes of a writer */
} load;

static void start_writers(worker *w, int writers, const load *l, int each) {
  char us[24], count[24];
  snprintf(us, sizeof us, "%lld", (long long)l->sync_us);
  snprintf(count, sizeof count, "%d", each);
  for (int i = 0; i < writers; i++) {
    w[i] = worker_start("line", run.cpu[i % 2], l->place, us,
                        l->synced ? "1" : "0", count, NULL);
    worker_ready(&w[i]);
  }
}

static void end_writers(worker *w, int writers) {
  for (int i = 0; i < writers; i++) worker_go(&w[i], 'e');
  for (int i = 0; i < writers; i++) worker_end(&w[i]);
}

static change *write_together(int writers, const load *l, int each) {
  worker w[WRITERS_MOST];
  change *all = allocate((size_t)writers * (size_t)each * sizeof *all);
  start_writers(w, writers, l, each);
  for (int i = 0; i < writers; i++) worker_go(&w[i], 'g');
  for (int i = 0; i < writers; i++)
    worker_words(&w[i], (int64_t *)(all + i * each), (int64_t)each * WORDS);
  end_writers(w, writers);
  return all;
}

/* ---- how long they waited ---- */

/* Of a run; ms, except turns. */
typedef struct waits {
  double longest; /* from the beginning of a change to its end */
  double turn;    /* mean time from one commit to the next */
  int turns;      /* others' changes during one wait, at most */
  int late;       /* changes that timed out */
} waits;

static int by_zxid(const void *a, const void *b) {
  const change *x = a, *y = b;
  return (x->zxid > y->zxid) - (x->zxid < y->zxid);
}

static int by_time(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* How many of count sorted times are not after a time. */
static int ended_by(const int64_t *ends, int count, int64_t time) {
  int from = 0, to = count;
  while (from < to) {
    int middle = from + (to - from) / 2;
    if (ends[middle] <= time)
      from = middle + 1;
    else
      to = middle;
  }
  return from;
}

/* Calculate the turns from the ends of changes: ends[0] is the beginning of
 * all. */
static void count_turns(const change *all, int count, waits *out) {
  int64_t *ends = allocate(((size_t)count + 1) * sizeof *ends);
  ends[0] = all[0].begun;
  for (int i = 0; i < count; i++) {
    ends[i + 1] = all[i].ended;
    if (all[i].begun < ends[0]) ends[0] = all[i].begun;
  }
  qsort(ends + 1, (size_t)count, sizeof *ends, by_time);
  for (int i = 0; i < count; i++) {
    int turns = i - ended_by(ends + 1, count, all[i].begun);
    if (turns > out->turns) out->turns = turns;
  }
  out->turn = (double)(ends[count] - ends[0]) / 1e6 / count;
  free(ends);
}

static waits tell_waits(int writers, const load *l, int each) {
  waits out = {0};
  int count = writers * each;
  change *all = write_together(writers, l, each);
  for (int i = 0; i < count; i++) {
    double took = (double)(all[i].ended - all[i].begun) / 1e6;
    if (took > out.longest) out.longest = took;
  }
  qsort(all, (size_t)count, sizeof *all, by_zxid);
  while (out.late < count && !all[out.late].zxid) out.late++;
  if (out.late < count) count_turns(all + out.late, count - out.late, &out);
  free(all);
  return out;
}

static void tell(const load *l, int writers, const char *what, const char *unit,
                 double value) {
  char name[80];
  snprintf(name, sizeof name, "%s, %s", l->kind, what);
  report_one(name, writers, "zkembed", unit, value);
}

static void tell_all(const load *l, int writers, const waits *w, double one) {
  tell(l, writers, "longest wait", "ms", w->longest);
  tell(l, writers, "mean turn", "us", w->turn * 1e3);
  tell(l, writers, "longest in turns each", "", (double)w->turns / writers);
  tell(l, writers, "to one alone", "", w->longest / (one * writers));
  tell(l, writers, "too late", "", w->late);
}

static void compare_line(const load *l) {
  static const int line_writers[] = {8, 50, 100, 200};
  enum { LINES = sizeof line_writers / sizeof *line_writers };
  double one = tell_waits(1, l, l->each * 10).turn;
  tell(l, 1, "mean turn", "us", one * 1e3);
  for (int i = 0; i < times(LINES, 1); i++) {
    waits w = tell_waits(line_writers[i], l, l->each);
    tell_all(l, line_writers[i], &w, one);
  }
}

/* ---- the cost of waiting ---- */

/* Lock the gate like a writer. */
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
  load l = {.place = "line-wait", .synced = true};
  int64_t words[WORDS], second = times(1000000, 200000);
  start_writers(w, writers, &l, 1);
  int fd = hold_gate(l.place);
  for (int i = 0; i < writers; i++) worker_go(&w[i], 'g');
  sleep_us(second);
  double before = cpu_of_all(w, writers);
  int64_t start = now_ns();
  sleep_us(2 * second);
  double used = cpu_of_all(w, writers) - before;
  double took = (double)(now_ns() - start);
  close(fd);
  for (int i = 0; i < writers; i++) worker_words(&w[i], words, WORDS);
  end_writers(w, writers);
  report_one("CPU of a line", writers, "zkembed", "% core", 100 * used / took);
}

/* ---- a stopped first writer ---- */

static bool has_places(const char *place, int count) {
  char name[80], path[PATH_BYTES];
  struct flock l = {.l_whence = SEEK_SET};
  snprintf(name, sizeof name, "zke-%s.db-zke/line", place);
  file_in(path, sizeof path, name);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  for (; count; count--) {
    l.l_type = F_WRLCK;
    l.l_pid = 0;
    l.l_start += 1;
    l.l_len = (INT64_C(1) << 61) - l.l_start;
    if (fcntl(fd, F_OFD_GETLK, &l) < 0) die("cannot look at %s", path);
    if (l.l_type == F_UNLCK) break;
  }
  close(fd);
  return count == 0;
}

/* The time from the end of a transaction, when a stopped writer is the next, to
 * the end of the next change, ms. */
static double delay_by_stopped(int writers, const load *l) {
  worker w[WRITERS_MOST];
  change next = {.ended = INT64_MAX}, c;
  start_writers(w, writers, l, 1);
  int fd = hold_gate(l->place);
  for (int i = 0; i < writers; i++) {
    worker_go(&w[i], 'g');
    while (!has_places(l->place, i + 1)) sleep_us(1000);
  }
  kill(w[0].pid, SIGSTOP);
  if (waitpid(w[0].pid, NULL, WUNTRACED) != w[0].pid)
    die("cannot stop a writer");
  int64_t start = now_ns();
  close(fd);
  for (int i = 1; i <= writers; i++) {
    if (i == writers) kill(w[0].pid, SIGCONT);
    worker_words(&w[i % writers], (int64_t *)&c, WORDS);
    if (c.ended < next.ended) next = c;
  }
  end_writers(w, writers);
  return (double)(next.ended - start) / 1e6;
}

static void cost_of_stopped(int writers) {
  samples delay = {0};
  load l = {.place = "line-stop", .synced = true};
  for (int i = 0; i < times(20, 2); i++)
    add(&delay, delay_by_stopped(writers, &l));
  report("a stopped first", writers, "zkembed", "ms", &delay, NULL, NULL);
  sort(&delay);
  report_one("a stopped first, longest", writers, "zkembed", "ms",
             quantile(&delay, 1));
  forget(&delay);
}

void part_line(void) {
  int each = times(10, 2);
  load loads[] = {{"writers", "line", 0, true, each},
                  {"writers, 10 ms", "line-slow", SLOW_US, true, each},
                  {"writers, unsynced", "line-free", 0, false, each * 50}};
  for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
    compare_line(&loads[i]);
  cost_of_waiting(times(WRITERS_MOST, 8));
  cost_of_stopped(2);
  cost_of_stopped(times(8, 3));
}
