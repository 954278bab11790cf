/* test_scale.c - many sessions, many watches, many children, many readers
 *
 * P4, P6, P10 and P12 with large numbers: nothing is lost, reported twice or
 * counted wrongly, no cost grows quadratically, and the log stays short.  SCALE
 * is a percentage of the full numbers: 25 by default, and 5 in sanitized
 * programs, which are slower and larger; half of that without SAMPLE=2 or FULL
 * (test_stride()).
 */
#define _GNU_SOURCE
#include "test/engine/calls.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if TEST_ADDRESS_SANITIZER || TEST_THREAD_SANITIZER
enum { USUAL_SCALE = 5 };
#else
enum { USUAL_SCALE = 25 };
#endif

/* That percentage of `wanted`, but at least `least`. */
static int scaled(int wanted, int least) {
  const char *text = getenv("SCALE");
  int64_t percent = text && *text ? atoi(text) : USUAL_SCALE / test_stride(2);
  int64_t n = wanted * percent / 100;
  return n < least ? least : (int)n;
}

/* A handle that syncs nothing, for large numbers of changes. */
static zke *open_unsynced(const char *db) {
  return open_as(db, .durability = ZKE_DURABLE_NONE, .busy_timeout_ms = 60000,
                 .cache_kib = 16384);
}

static const char *numbered(const char *format, int n)
    __attribute__((format(printf, 1, 0)));
static const char *numbered(const char *format, int n) {
  static char path[64];
  snprintf(path, sizeof path, format, n);
  return path;
}

/* ---- a thousand sessions ---- */

enum { EACH = 5 }; /* sessions of one process */

/* Living sessions, as z sees them; -1 if it cannot read them. */
static int living(zke *z) {
  zke_session_list *list = NULL;
  int alive = 0;
  if (zke_sessions(z, -1, &list) != ZKE_OK) return -1;
  for (int i = 0; i < list->count; i++) alive += list->data[i].alive;
  if (alive != list->count) alive = -1;
  zke_free(list);
  return alive;
}

/* What the members and the test share. */
typedef struct crowd {
  int count;
  pid_t *pid;
  int reports; /* each member sends one int for each step here */
  int go[2];   /* one byte for each member lets it continue */
} crowd;

/* A few members start at a time: another test shows the cost of many
 * writers. */
enum { AT_ONCE = 4 };

static void member_report(int fd, int what) {
  if (write(fd, &what, sizeof what) != sizeof what) _exit(1);
}

typedef void (*member_fn)(const char *db, int report, int go);

/* A process of the crowd: it opens five sessions with an ephemeral each, counts
 * all of them when all are there, and then waits for its end. */
static void member(const char *db, int report, int go) {
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 60000};
  zke *z[EACH];
  char byte;
  int rc = zke_open(db, &o, &z[0]);
  for (int i = 0; i < EACH && rc == ZKE_OK; i++) {
    if (i > 0) rc = zke_open_session(z[0], &o, &z[i]);
    if (rc == ZKE_OK) rc = create(z[i], "/all/s-", ZKE_EPHEMERAL_SEQUENTIAL);
  }
  member_report(report, rc);
  if (rc != ZKE_OK || read(go, &byte, 1) != 1) _exit(0);
  zke_stat stat = {0};
  rc = zke_exists(z[EACH - 1], "/all", NULL, NULL, &stat);
  member_report(report, rc == ZKE_OK ? living(z[1]) : rc);
  member_report(report, rc == ZKE_OK ? stat.numChildren : rc);
  for (;;) pause();
}

/* Read that many reports, and assert that each has this value. */
static void crowd_expect(const crowd *c, int reports, int expected) {
  for (int i = 0; i < reports; i++) {
    struct pollfd p = {.fd = c->reports, .events = POLLIN};
    int got;
    ck_assert_msg(poll(&p, 1, 60000) == 1, "%d reports, then none", i);
    ck_assert_int_eq(read(c->reports, &got, sizeof got), sizeof got);
    ck_assert_int_eq(got, expected);
  }
}

/* Start them all; when this returns, each has reported ZKE_OK. */
static crowd crowd_start(const char *db, int count, member_fn run) {
  crowd c = {.count = count, .pid = calloc((size_t)count, sizeof *c.pid)};
  int report[2];
  ck_assert_ptr_nonnull(c.pid);
  ck_assert_int_eq(pipe(report) | pipe(c.go), 0);
  c.reports = report[0];
  for (int i = 0; i < count; i++) {
    if (i >= AT_ONCE) crowd_expect(&c, 1, ZKE_OK);
    c.pid[i] = fork();
    ck_assert_int_ge(c.pid[i], 0);
    if (c.pid[i] > 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run(db, report[1], c.go[0]);
  }
  crowd_expect(&c, AT_ONCE, ZKE_OK);
  close(report[1]);
  return c;
}

static void crowd_go(const crowd *c) {
  for (int i = 0; i < c->count; i++)
    ck_assert_int_eq(write(c->go[1], "", 1), 1);
}

static void crowd_kill(const crowd *c, int from, int to) {
  for (int i = from; i < to; i++) kill(c->pid[i], SIGKILL);
  for (int i = from; i < to; i++) waitpid(c->pid[i], NULL, 0);
}

/* Wait until `sessions` sessions and ephemerals are left; returns the time. */
static int left_after(zke *z, int sessions, int limit_ms) {
  int64_t since = test_now();
  while ((child_count(z, "/all") > sessions || living(z) != sessions + 1) &&
         test_now() < since + test_patience(limit_ms))
    zke_wait(z, zke_now(z) + 10);
  ck_assert_int_eq(child_count(z, "/all"), sessions);
  ck_assert_int_eq(living(z), sessions + 1);
  return (int)(test_now() - since);
}

/* P5, P6: two hundred processes with five sessions each all see each other.
 * One is killed, and only its five sessions end; then all are killed
 * together. */
TEST(thousand_sessions_of_many_processes) {
  const char *db = test_path("a.db");
  zke *z = open_unsynced(db);
  make(z, "/all");
  ck_ok(zke_close(z));
  int processes = scaled(200, 20), all = processes * EACH;
  int64_t since = test_now();
  crowd c = crowd_start(db, processes, member);
  z = open_unsynced(db);
  int64_t there = test_now();
  crowd_go(&c);
  /* The members count while none comes or goes: each reports two known numbers,
   * in any order. */
  int seen_sessions = 0, seen_nodes = 0;
  for (int i = 0; i < 2 * processes; i++) {
    int got;
    ck_assert_int_eq(read(c.reports, &got, sizeof got), sizeof got);
    seen_sessions += got == all + 1;
    seen_nodes += got == all;
  }
  ck_assert_int_eq(seen_sessions, processes);
  ck_assert_int_eq(seen_nodes, processes);
  int64_t looked = test_now();
  crowd_kill(&c, 0, 1);
  int one = left_after(z, all - EACH, 5000);
  crowd_kill(&c, 1, processes);
  int rest = left_after(z, 0, 20000);
  printf(
      "sessions: %d of %d processes there in %d ms, seen in %d ms; one "
      "process gone in %d ms, all in %d ms\n",
      all, processes, (int)(there - since), (int)(looked - there), one, rest);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  free(c.pid);
}

/* A process of the crowd that writes five times when all are there. */
static void writing_member(const char *db, int report, int go) {
  zke *z = NULL;
  char byte;
  int rc = zke_open(db, NULL, &z);
  member_report(report, rc);
  if (rc != ZKE_OK || read(go, &byte, 1) != 1) _exit(0);
  for (int i = 0; i < EACH && rc == ZKE_OK; i++)
    rc = create(z, "/all/s-", ZKE_EPHEMERAL_SEQUENTIAL);
  member_report(report, rc);
  for (;;) pause();
}

/* P10: two hundred processes begin to write at the same moment; each has
 * written five times well within the five seconds that a call waits. */
TEST(crowd_of_writers_gets_through) {
  const char *db = test_path("a.db");
  int processes = scaled(200, 20);
  zke *z = open_unsynced(db);
  make(z, "/all");
  crowd c = crowd_start(db, processes, writing_member);
  int64_t since = test_now();
  crowd_go(&c);
  crowd_expect(&c, processes, ZKE_OK);
  printf("writers: %d times %d creates in %d ms\n", processes, EACH,
         (int)(test_now() - since));
  ck_assert_int_eq(child_count(z, "/all"), processes * EACH);
  crowd_kill(&c, 0, processes);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  free(c.pid);
}

/* As many sessions as there are descriptors for, at most count. */
static int allowed_sessions(int count) {
  struct rlimit limit;
  ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = limit.rlim_max;
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_cur == RLIM_INFINITY) return count;
  int most = (int)(limit.rlim_cur / 6);
  if (most < count) printf("sessions: descriptors for %d only\n", most);
  return most < count ? most : count;
}

/* P3, P4: a thousand sessions of one process: each is told of a change once,
 * each owns its own node, and they end one by one. */
TEST(thousand_sessions_of_one_process) {
  enum { MOST = 1000 };
  static zke *z[MOST];
  static int calls[MOST];
  int n = allowed_sessions(scaled(MOST, 100));
  z[0] = open_unsynced(test_path("a.db"));
  make(z[0], "/all");
  for (int i = 0; i < n; i++) {
    if (i > 0) z[i] = test_session(z[0], NULL);
    make_as(z[i], numbered("/all/s-%d", i), ZKE_EPHEMERAL);
  }
  for (int i = 0; i < n; i++)
    ck_ok(zke_children(z[i], "/all", count_call, &calls[i], NULL, NULL));
  ck_assert_int_eq(living(z[n / 2]), n);
  make(z[n / 2], "/all/new");
  ck_ok(zke_delete(z[n / 2], "/all/new", -1));
  for (int i = 0; i < n; i++) {
    ck_ok(zke_dispatch(z[i], NULL));
    ck_assert_int_eq(calls[i], 1);
  }
  for (int i = n - 1; i > 0; i -= 2) ck_ok(zke_close(z[i]));
  ck_assert_int_eq(child_count(z[0], "/all"), n - n / 2);
  ck_assert_int_eq(living(z[0]), n - n / 2);
  for (int i = n - 2; i > 0; i -= 2) ck_ok(zke_close(z[i]));
  ck_assert_int_eq(child_count(z[0], "/all"), 1);
  ck_ok(zke_check(z[0], NULL, NULL));
  ck_ok(zke_close(z[0]));
}

/* The largest number of the kernel's locks on one side file of a database.  The
 * kernel searches all locks of a file at each call. */
static int longest_list(const char *side) {
  int longest = 0;
  DIR *d = opendir(side);
  ck_assert_ptr_nonnull(d);
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    char path[PATH_MAX], wanted[64], line[256];
    struct stat st;
    int count = 0;
    snprintf(path, sizeof path, "%s/%s", side, e->d_name);
    ck_assert_int_eq(stat(path, &st), 0);
    snprintf(wanted, sizeof wanted, ":%llu ", (unsigned long long)st.st_ino);
    FILE *locks = fopen("/proc/locks", "r");
    ck_assert_ptr_nonnull(locks);
    while (fgets(line, sizeof line, locks))
      count += strstr(line, "OFDLCK") && strstr(line, wanted);
    fclose(locks);
    if (count > longest) longest = count;
  }
  closedir(d);
  return longest;
}

/* P5: the lives of many sessions are locks on many files, so that a session
 * that begins, ends or is probed has to pass few others. */
TEST(lives_lie_in_many_files) {
  enum { MOST = 1000 };
  static zke *z[MOST];
  int n = allowed_sessions(scaled(MOST, 200));
  z[0] = open_unsynced(test_path("a.db"));
  for (int i = 1; i < n; i++) z[i] = test_session(z[0], NULL);
  int longest = longest_list(test_path("a.db-zke"));
  printf("lives: %d, at most %d in a file\n", n, longest);
  ck_assert_int_gt(longest, 0);
  ck_assert_int_lt(longest, 20 + n / 20);
  ck_assert_int_eq(living(z[0]), n);
}

/* SQLite calls this at each instruction of its virtual machine, so the cost of
 * a call can be counted instead of timed. */
static int64_t instructions;

static int count_instruction(void *arg) {
  (void)arg;
  instructions++;
  return 0;
}

static int count_connection(sqlite3 *db, char **error, const void *api) {
  (void)error, (void)api;
  sqlite3_progress_handler(db, 1, count_instruction, NULL);
  return SQLITE_OK;
}

static void count_instructions(void) {
  int rc = sqlite3_auto_extension((void (*)(void))count_connection);
  ck_assert_int_eq(rc, SQLITE_OK);
}

/* The instructions to open a session with a lease. */
static int64_t open_leased(zke *z, zke **out) {
  zke_options o = {.size = sizeof o, .lease_ms = 60000};
  int64_t before = instructions;
  ck_ok(zke_open_session(z, &o, out));
  return instructions - before;
}

/* Opening a session with a lease costs the same among two thousand others as
 * among ten, and it takes the slot of one that has ended. */
TEST(leased_sessions_open_alike) {
  enum { MOST = 2000 };
  static zke *z[MOST];
  int n = allowed_sessions(scaled(MOST, 200));
  count_instructions();
  zke *store = open_unsynced(":memory:");
  int64_t first = 0, last = 0;
  for (int i = 0; i < n; i++) {
    int64_t took = open_leased(store, &z[i]);
    if (i >= 10 && i < 60) first += took;
    if (i >= n - 50) last += took;
  }
  printf("leased: instructions %.0f among ten, %.0f among %d\n",
         (double)first / 50, (double)last / 50, n);
  ck_assert_int_gt(first, 50);
  ck_assert_int_lt(last, first * 3 / 2);
}

/* ---- a hundred thousand watches ---- */

/* Register the watches from number `from` to below `to`, each with its own
 * context, on missing nodes; returns the average number of instructions. */
static double watch_range(zke *z, int *calls, int from, int to) {
  int64_t before = instructions;
  for (int i = from; i < to; i++)
    ck_rc(zke_exists(z, numbered("/w/%06d", i), count_call, &calls[i], NULL),
          ZKE_NONODE);
  return (double)(instructions - before) / (to - from);
}

/* Create the node of one watch, which calls its watcher once and no other;
 * returns the instructions of the change. */
static int64_t fire_one(zke *z, int *calls, int at) {
  int count = 0;
  int64_t before = instructions;
  make(z, numbered("/w/%06d", at));
  int64_t took = instructions - before;
  ck_ok(zke_dispatch(z, &count));
  ck_assert_int_eq(count, 1);
  ck_assert_int_eq(calls[at], 1);
  ck_ok(zke_delete(z, numbered("/w/%06d", at), -1));
  ck_ok(zke_dispatch(z, &count));
  ck_assert_int_eq(count, 0);
  return took;
}

static int watch_count(zke *z) {
  zke_watch_list *list = NULL;
  ck_ok(zke_watches(z, &list));
  int count = list->count;
  zke_free(list);
  return count;
}

/* P3: with a hundred thousand watches a change fires its own and no other, at
 * the same cost as with few; and registering the last one costs as much as the
 * first, in SQLite's instructions. */
TEST_LOOP(hundred_thousand_watches, 0, 2) {
  int n = scaled(_i ? 20000 : 100000, 2000), tenth = n / 10, sum = 0;
  int *calls = calloc((size_t)n, sizeof *calls);
  count_instructions();
  zke *z = open_unsynced(_i ? test_path("a.db") : ":memory:");
  zke *other = test_session(z, NULL);
  make(z, "/w");
  watch_range(z, calls, 0, 10);
  int64_t fire_early = fire_one(z, calls, 0);
  double first = watch_range(z, calls, 10, tenth);
  watch_range(z, calls, tenth, n - tenth);
  double last = watch_range(z, calls, n - tenth, n);
  ck_assert_double_gt(first, 10); /* the counter works */
  ck_assert_double_lt(last, first * 1.5);
  ck_assert_int_eq(watch_count(other), n - 1);
  int64_t fire_late = fire_one(z, calls, n / 2);
  ck_assert_int_lt(fire_late, fire_early * 3 / 2);
  fire_one(z, calls, 1);
  fire_one(z, calls, n - 1);
  for (int i = 0; i < n; i++) sum += calls[i];
  ck_assert_int_eq(sum, 4);
  ck_assert_int_eq(watch_count(other), n - 4);
  int64_t before = instructions;
  ck_ok(zke_close(z));
  double end = (double)(instructions - before) / n;
  ck_assert_double_lt(end, 200);
  ck_assert_int_eq(watch_count(other), 0);
  printf(
      "%d watches: instructions to register %.0f at first, %.0f at last; to "
      "fire one %d and %d; to end %.0f each\n",
      n, first, last, (int)fire_early, (int)fire_late, end);
  ck_ok(zke_check(other, NULL, NULL));
  ck_ok(zke_close(other));
  free(calls);
}

/* ---- many watchers of one node ---- */

/* A watcher's context: how often and when it was last called. */
typedef struct listener {
  int calls, at;
} listener;

static int calls_made;
static listener *to_forget; /* forgotten by the first that is called; or NULL */

/* A watcher that counts its calls, and may make the session forget another. */
static void hear(zke *z, int type, int state, const char *path, void *context) {
  listener *l = context;
  (void)type, (void)state, (void)path;
  l->calls++;
  l->at = calls_made++;
  if (!to_forget) return;
  ck_ok(zke_forget(z, hear, to_forget));
  to_forget = NULL;
}

static void listen_all(zke *z, const char *path, listener *l, int n) {
  for (int i = 0; i < n; i++) {
    int rc = zke_exists(z, path, hear, &l[i], NULL);
    if (rc != ZKE_NONODE) ck_ok(rc);
  }
}

/* Since the last check, each remaining listener has been called once, in the
 * order of registration, and no other. */
static void expect_calls(zke *z, listener *l, int n, int step, int expected) {
  int count = 0;
  calls_made = 0;
  ck_ok(zke_dispatch(z, &count));
  ck_assert_int_eq(count, expected);
  for (int i = 0, last = -1; i < n; i++) {
    if (!l[i].calls) continue;
    ck_assert_int_eq(l[i].calls, 1);
    ck_assert_int_eq(i % step, 0);
    ck_assert_int_gt(l[i].at, last);
    last = l[i].at;
    l[i].calls = 0;
  }
}

/* P3, P9: a hundred thousand watchers of one node, each with its own context:
 * registering, removing, forgetting and calling them takes no longer for each
 * than with few.  (It used to take hours, which exceeds the time limit.) */
TEST(hundred_thousand_watchers_of_one_node) {
  int n = scaled(100000, 2000);
  listener *l = calloc((size_t)n, sizeof *l);
  zke *z = open_unsynced(":memory:"), *other = test_session(z, NULL);
  listen_all(z, "/n", l, n);
  listen_all(z, "/n", l, n); /* they exist already */
  ck_assert_int_eq(watch_count(other), 1);
  make(other, "/n");
  to_forget = &l[n - 1];
  expect_calls(z, l, n, 1, n - 1);
  listen_all(z, "/n", l, n);
  for (int i = 1; i < n; i += 2)
    ck_ok(zke_remove_watch(z, "/n", ZKE_WATCH_DATA, hear, &l[i]));
  for (int i = 2; i < n; i += 4) ck_ok(zke_forget(z, hear, &l[i]));
  ck_ok(change(other, "/n"));
  expect_calls(z, l, n, 4, (n + 3) / 4);
  ck_assert_int_eq(watch_count(other), 0);
  listen_all(z, "/n", l, n);
  ck_ok(zke_remove_watch(z, "/n", ZKE_WATCH_ANY, NULL, NULL));
  ck_assert_int_eq(watch_count(other), 0);
  for (int i = 0; i < n; i++)
    ck_ok(zke_add_watch(z, "/n", ZKE_WATCH_PERSISTENT, hear, &l[i]));
  ck_ok(zke_set(other, "/n", "y", 1, -1, NULL));
  expect_calls(z, l, n, 1, n);
  ck_ok(zke_expire(other, zke_session_id(z)));
  expect_calls(z, l, n, 1, n);
  ck_ok(zke_close(z));
  ck_ok(zke_close(other));
  free(l);
}

/* P3: the same if each watches its own node, and if one watches all of them;
 * the session's end calls each once. */
TEST(hundred_thousand_pairs_hear_the_end) {
  int n = scaled(100000, 2000), count = 0;
  listener *l = calloc((size_t)n, sizeof *l), one = {0};
  zke *z = open_unsynced(":memory:"), *other = test_session(z, NULL);
  for (int i = 0; i < n; i++) {
    const char *path = numbered("/n%06d", i);
    ck_rc(zke_exists(z, path, hear, &l[i], NULL), ZKE_NONODE);
    ck_rc(zke_exists(z, path, hear, &one, NULL), ZKE_NONODE);
  }
  ck_assert_int_eq(watch_count(other), n);
  for (int i = 0; i < n; i += 2) ck_ok(zke_forget(z, hear, &l[i]));
  ck_assert_int_eq(watch_count(other), n);
  ck_ok(zke_expire(other, zke_session_id(z)));
  ck_ok(zke_dispatch(z, &count));
  ck_assert_int_eq(count, n / 2 + 1);
  ck_assert_int_eq(one.calls, 1);
  for (int i = 0; i < n; i++) ck_assert_int_eq(l[i].calls, i % 2);
  ck_ok(zke_close(z));
  ck_ok(zke_close(other));
  free(l);
}

/* ---- a million children ---- */

enum { BATCH = 1000 };

/* A thousand names in reverse; the batches come in another order, by multiples
 * of a prime modulo their number. */
static void create_batch(zke *z, int batch, int batches) {
  static zke_op op[BATCH];
  static char path[BATCH][32];
  int last = (int)(batch * INT64_C(7919) % batches) * BATCH + BATCH - 1;
  for (int i = 0; i < BATCH; i++) {
    snprintf(path[i], sizeof path[i], "/m/%07d", last - i);
    zke_op_create(&op[i], path[i], path[i] + 3, 7, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
  }
  ck_ok(zke_multi(z, op, BATCH, NULL));
}

/* All names from 0 to n-1 except the missing one, in order. */
static void expect_names(zke *z, int n, int missing) {
  zke_strings *names = NULL;
  ck_ok(zke_children(z, "/m", NULL, NULL, &names, NULL));
  ck_assert_int_eq(names->count, n - (missing >= 0));
  for (int i = 0, at = 0; at < names->count; i++) {
    if (i != missing)
      ck_assert_msg(strcmp(names->data[at++], numbered("%07d", i)) == 0,
                    "name %d is %s", i, names->data[at - 1]);
  }
  zke_free(names);
}

static void expect_value(zke *z, int i) {
  char *data = NULL;
  int len;
  ck_ok(zke_get(z, numbered("/m/%07d", i), NULL, NULL, &data, &len, NULL));
  ck_assert_int_eq(len, 7);
  ck_assert_int_eq(atoi(data), i);
  zke_free(data);
}

/* The sequence number of the next create. */
static int next_number(zke *z) {
  char *path = NULL;
  ck_ok(zke_create(z, "/m/z-", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   &path, NULL));
  int number = atoi(path + strlen("/m/z-"));
  ck_ok(zke_delete(z, path, -1));
  zke_free(path);
  return number;
}

/* P1: a node with a million children: all are listed, in order, and counted;
 * the next number is the count of creates; a child can be read, deleted, and
 * made again; a watch is called once; the check finds nothing. */
TEST(million_children) {
  int batches = scaled(1000000, 10000) / BATCH, n = batches * BATCH, calls = 0;
  int64_t count, since = test_now();
  zke *z = open_unsynced(_i ? test_path("a.db") : ":memory:");
  make(z, "/m");
  for (int i = 0; i < batches; i++) create_batch(z, i, batches);
  int64_t made = test_now();
  expect_names(z, n, -1);
  int64_t listed = test_now();
  ck_assert_int_eq(child_count(z, "/m"), n);
  ck_ok(zke_count(z, "/m", &count));
  ck_assert_int_eq(count, n);
  for (int i = 0; i < 1000; i++) expect_value(z, i * (n / 1000));
  ck_assert_int_eq(next_number(z), n);
  ck_ok(zke_children(z, "/m", count_call, &calls, NULL, NULL));
  ck_ok(zke_delete(z, numbered("/m/%07d", n / 2), -1));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(calls, 1);
  expect_names(z, n, n / 2);
  ck_assert_int_eq(child_count(z, "/m"), n - 1);
  ck_rc(zke_delete(z, "/m", -1), ZKE_NOTEMPTY);
  make(z, numbered("/m/%07d", n / 2));
  ck_assert_int_eq(next_number(z), n + 2);
  int64_t worked = test_now();
  ck_ok(zke_check(z, NULL, NULL));
  printf("%d children: made in %d ms, listed in %d ms, checked in %d ms\n", n,
         (int)(made - since), (int)(listed - made), (int)(test_now() - worked));
}

/* ---- the log under constant readers ---- */

/* Without readers the log stays below 16 MiB.  With them, a checkpoint has to
 * wait until the scheduler has let each of them finish its call: twice that. */
enum { READERS = 3, WIDE = 500, VALUE = 65536, WRITES = 4000 };
enum { WAL_LIMIT = 32 << 20 };

/* Shared with the readers. */
typedef struct reading {
  atomic_int inside; /* how many are in a call at the moment */
  atomic_long calls; /* up to now */
  atomic_long rounds[READERS];
  atomic_int failed; /* a result that was not ZKE_OK */
  atomic_bool stop;
} reading;

/* A process that reads without pause, in long and short snapshots. */
static void reader(const char *db, reading *r, int number) {
  zke *z = NULL;
  int rc = zke_open(db, NULL, &z);
  while (rc == ZKE_OK && !r->stop) {
    int64_t count;
    atomic_fetch_add(&r->inside, 1);
    rc = zke_children(z, "/wide", NULL, NULL, NULL, NULL);
    if (rc == ZKE_OK) rc = zke_count(z, "/", &count);
    if (rc == ZKE_OK) rc = zke_get(z, "/n", NULL, NULL, NULL, NULL, NULL);
    atomic_fetch_sub(&r->inside, 1);
    atomic_fetch_add(&r->calls, 3);
    atomic_fetch_add(&r->rounds[number], 1);
  }
  if (rc != ZKE_OK) r->failed = rc;
  _exit(zke_close(z) != ZKE_OK);
}

/* Has a reader no processor?  Then its call keeps the log for that long. */
static bool some_stand(const reading *r) {
  static long rounds[READERS];
  static int64_t since[READERS];
  bool stand = false;
  int64_t now = test_now();
  for (int i = 0; i < READERS; i++) {
    long at = r->rounds[i];
    if (at != rounds[i]) since[i] = now;
    rounds[i] = at;
    stand = stand || now - since[i] > 100;
  }
  return stand;
}

static void make_wide(zke *z) {
  make(z, "/n");
  make(z, "/wide");
  for (int i = 0; i < WIDE; i++) make(z, numbered("/wide/%05d", i));
}

/* P12, design.md 8: processes read in such a way that there is always a reader,
 * and a writer writes many times what the log may hold.  The log is still
 * restarted, no call fails, and the last close leaves none.  Growth while a
 * reader has no processor does not count. */
TEST(wal_stays_short_under_readers) {
  static char data[VALUE];
  const char *db = test_path("a.db"), *wal = test_path("a.db-wal");
  int busy = 0;
  int64_t largest = 0;
  bool kept = false;
  pid_t pid[READERS];
  zke *z = open_unsynced(db);
  make_wide(z);
  ck_ok(zke_close(z));
  reading *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(r != MAP_FAILED);
  for (int i = 0; i < READERS; i++) {
    pid[i] = fork();
    if (pid[i] == 0) reader(db, r, i);
  }
  ck_until(r->calls > READERS * 3, 20000);
  z = open_unsynced(db);
  long calls = r->calls;
  for (int i = 0; i < WRITES; i++) {
    struct stat s;
    ck_ok(zke_set(z, "/n", data, VALUE, -1, NULL));
    ck_assert_int_eq(stat(wal, &s), 0);
    kept = some_stand(r) || (kept && s.st_size >= WAL_LIMIT);
    if (!kept && s.st_size > largest) largest = s.st_size;
    busy += r->inside > 0;
  }
  calls = r->calls - calls;
  r->stop = true;
  printf(
      "log: at most %.1f MiB with %d MiB written beside %ld reads; a reader "
      "inside at %d of %d writes\n",
      (double)largest / (1 << 20), WRITES / 16, calls, busy, WRITES);
  for (int i = 0; i < READERS; i++) {
    ck_assert_int_eq(test_child_end(pid[i]), 0);
  }
  ck_assert_int_eq(r->failed, ZKE_OK);
  ck_assert_int_ge(busy, WRITES / 10 * 9);
  ck_assert_int_lt(largest, WAL_LIMIT);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  struct stat left;
  ck_assert(stat(wal, &left) != 0 || left.st_size == 0);
  munmap(r, sizeof *r);
}
