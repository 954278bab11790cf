/* test_crash.c - kill -9 at every point of every operation
 *
 * P2, P6, P7, P8: a worker kills itself at the n-th call by which others could
 * tell the difference (test/worker.c), for n = 1, 2, 3 … until the operation
 * gets through.  After each death the next to open the file finds a sound
 * database, all that was acknowledged, of the rest all or nothing, and soon no
 * ephemeral of the dead.  What is shown of a commit that was killed inside its
 * sync survives a power cut.
 */
#define _GNU_SOURCE
#include "test/power/powervfs.h"
#include "test/test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_POINTS = 2000, MAX_ANSWERS = 32 };

/* The next point at which a process is killed, the first being 1. */
static int next_point(int n) { return n ? n + (int)test_stride(6) : 1; }

/* ---- workers that may die ---- */

static const char *ask(test_worker *w, const char *line) {
  test_say(w, line);
  const char *got = test_line(w);
  ck_assert_msg(strncmp(got, "ok", 2) == 0, "%s: %s", line, got);
  return got[2] ? got + 3 : "";
}

/* What a worker said until its end. */
typedef struct story {
  bool died;
  int answers;
  char *answer[MAX_ANSWERS];
  char text[8192];
} story;

/* Read all a worker has to say and see how it ends. */
static void listen(test_worker *w, story *s) {
  size_t used = 0;
  ssize_t n;
  *s = (story){.died = false};
  while ((n = read(w->out, s->text + used, sizeof s->text - 1 - used)) > 0) {
    used += (size_t)n;
  }
  for (char *line = strtok(s->text, "\n"); line; line = strtok(NULL, "\n")) {
    ck_assert_int_lt(s->answers, MAX_ANSWERS);
    s->answer[s->answers++] = line;
  }
  int status = test_wait(w);
  ck_assert_msg(status == 0 || status == 128 + SIGKILL, "worker: %d", status);
  s->died = status != 0;
}

static bool is_ok(const char *answer) { return strncmp(answer, "ok", 2) == 0; }

/* ---- looking afterwards ---- */

static void complain(void *context, const char *sentence) {
  (void)context;
  printf("check: %s\n", sentence);
}

static void expect_sound(zke *z) { ck_ok(zke_check(z, complain, NULL)); }

static bool has(zke *z, const char *path) {
  return zke_exists(z, path, NULL, NULL, NULL) == ZKE_OK;
}

static int children(zke *z, const char *path) {
  zke_stat stat;
  ck_ok(zke_exists(z, path, NULL, NULL, &stat));
  return stat.numChildren;
}

/* Is this the node's data? */
static bool holds(zke *z, const char *path, const char *expected) {
  char *data;
  ck_ok(zke_get(z, path, NULL, NULL, &data, NULL, NULL));
  bool same = data && strcmp(data, expected) == 0;
  zke_free(data);
  return same;
}

/* Make the node, or give it this data again. */
static void put(zke *z, const char *path, const char *data) {
  int n = (int)strlen(data);
  int rc =
      zke_create(z, path, data, n, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL);
  if (rc == ZKE_NODEEXISTS) rc = zke_set(z, path, data, n, -1, NULL);
  ck_ok(rc);
}

static void take(zke *z, const char *path) {
  int rc = zke_delete(z, path, -1);
  if (rc != ZKE_NONODE) ck_ok(rc);
}

/* A dead owner's node goes as soon as somebody waits for it. */
static void expect_reaped(zke *z, const char *path) {
  test_events events = {0};
  if (zke_exists(z, path, test_record, &events, NULL) == ZKE_NONODE) return;
  int64_t end = test_now() + test_patience(10000);
  while (has(z, path) && test_now() < end) zke_wait(z, zke_now(z) + 10);
  ck_assert_msg(!has(z, path), "%s of a dead process stays", path);
}

/* All sessions but our own end within the time of a sweep or two, and with
 * them their watches and events. */
static void expect_alone(zke *z) {
  zke_watch_list *watches;
  int64_t end = test_now() + test_patience(10000);
  while (test_session_count(z) > 1 && test_now() < end)
    zke_wait(z, zke_now(z) + 10);
  ck_assert_int_eq(test_session_count(z), 1);
  ck_ok(zke_watches(z, &watches));
  ck_assert_int_eq(watches->count, 0);
  zke_free(watches);
  expect_sound(z);
}

/* ---- one operation, killed at each point ---- */

/* The commands before the fatal one are acknowledged and must have lasted. */
typedef struct scenario {
  const char *name;
  const char *before[5]; /* commands obeyed after "open" */
  const char *fatal;
  void (*verify)(zke *z, const char *answer); /* answer: NULL if it died */
  bool watches; /* see at the end that none is left */
} scenario;

static void verify_create(zke *z, const char *answer) {
  if (answer) ck_assert_msg(is_ok(answer) && has(z, "/c"), "%s", answer);
  if (has(z, "/c")) ck_assert(holds(z, "/c", "new"));
}

/* Sequence numbers already given out, also in answers that were not heard. */
static int sequence_seen = -1;

/* Each number was given once, and an answered create is there; the next number
 * is greater than all that were seen (P8). */
static void verify_sequential(zke *z, const char *answer) {
  zke_strings *names;
  ck_ok(zke_children(z, "/q", NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    int number = atoi(names->data[i] + 1);
    if (number > sequence_seen) sequence_seen = number;
  }
  if (answer) {
    ck_assert(is_ok(answer));
    ck_assert(has(z, answer + 3));
    ck_assert_int_eq(atoi(answer + strlen("ok /q/s")), sequence_seen);
  }
  zke_free(names);
  char *path;
  ck_ok(zke_create(z, "/q/s", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   &path, NULL));
  ck_assert_int_eq(atoi(path + strlen("/q/s")), sequence_seen + 1);
  ck_ok(zke_delete(z, path, -1));
  sequence_seen++;
  zke_free(path);
}

static void verify_ephemeral(zke *z, const char *answer) {
  if (answer) ck_assert(is_ok(answer));
  expect_reaped(z, "/c");
}

/* What the dead session may have made goes. */
static void verify_ephemeral_sequential(zke *z, const char *answer) {
  zke_strings *names;
  char path[64];
  if (answer) ck_assert(is_ok(answer));
  ck_ok(zke_children(z, "/eq", NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    snprintf(path, sizeof path, "/eq/%s", names->data[i]);
    expect_reaped(z, path);
  }
  zke_free(names);
}

static void verify_set(zke *z, const char *answer) {
  ck_assert(holds(z, "/s", "new") || (!answer && holds(z, "/s", "old")));
}

static void verify_delete(zke *z, const char *answer) {
  ck_assert(!has(z, "/d") || (!answer && holds(z, "/d", "old")));
}

/* The three parts of "multi /s /c /d" happened all or none. */
static void verify_multi(zke *z, const char *answer) {
  bool set = holds(z, "/s", "multi"), made = has(z, "/c"), gone = !has(z, "/d");
  ck_assert(set == made && made == gone);
  if (answer) ck_assert(set);
}

static int count_rows(sqlite3 *db, int64_t zxid, void *context) {
  sqlite3_stmt *st;
  int *count = context;
  (void)zxid;
  *count = 0;
  if (sqlite3_prepare_v2(db, "SELECT count(*)FROM mine", -1, &st, NULL))
    return ZKE_OK; /* there is no such table yet */
  if (sqlite3_step(st) == SQLITE_ROW) *count = sqlite3_column_int(st, 0);
  sqlite3_finalize(st);
  return ZKE_OK;
}

/* The program's rows, the node and the history's row of it: all or none. */
static void verify_row(zke *z, const char *answer) {
  static int rows_before;
  int rows;
  zke_op op;
  zke_op_result result;
  zke_change_list *list;
  zke_op_sql(&op, count_rows, &rows);
  ck_ok(zke_multi_read(z, &op, 1, &result));
  ck_ok(zke_history(z, "/c", 0, 0, &list));
  bool noted =
      list->count > 0 && list->data[list->count - 1].type == ZKE_EVENT_CREATED;
  ck_assert_int_eq(rows > rows_before, has(z, "/c"));
  ck_assert_int_eq(noted, has(z, "/c"));
  if (answer) ck_assert(has(z, "/c"));
  rows_before = rows;
  zke_free(list);
}

static void verify_watch(zke *z, const char *answer) {
  (void)z;
  if (answer) ck_assert(is_ok(answer));
}

/* A close that was acknowledged has taken the nodes with it at once. */
static void verify_close(zke *z, const char *answer) {
  if (answer) ck_assert(is_ok(answer) && !has(z, "/c") && !has(z, "/e"));
  expect_reaped(z, "/c");
  ck_assert_msg(!has(z, "/e"), "one ephemeral is gone, the other not");
  ck_assert(holds(z, "/s", "acknowledged"));
}

static void verify_expire(zke *z, const char *answer) {
  if (answer) ck_assert(is_ok(answer) && !has(z, "/c"));
  expect_reaped(z, "/c");
}

static const scenario scenarios[] = {
    {"create persistent", {0}, "create /c new 0", verify_create, false},
    {"create container", {0}, "create /c new 4", verify_create, false},
    {"create with ttl", {0}, "create /c new 5", verify_create, false},
    {"create sequential", {0}, "create /q/s new 2", verify_sequential, false},
    {"create sequential with ttl",
     {0},
     "create /q/s new 6",
     verify_sequential,
     false},
    {"create ephemeral", {0}, "create /c new 1", verify_ephemeral, false},
    {"create ephemeral sequential",
     {0},
     "create /eq/s new 3",
     verify_ephemeral_sequential,
     false},
    {"set", {0}, "set /s new", verify_set, false},
    {"set with a watch", {"watch /s"}, "set /s new", verify_set, true},
    {"delete", {0}, "delete /d", verify_delete, false},
    {"multi", {0}, "multi /s /c /d", verify_multi, false},
    {"multi with watches",
     {"watch /s", "watch /c", "watchchildren /"},
     "multi /s /c /d",
     verify_multi,
     true},
    {"batch", {0}, "batch /s /c /d", verify_multi, false},
    {"batch with watches",
     {"watch /s", "watch /c", "watchchildren /"},
     "batch /s /c /d",
     verify_multi,
     true},
    {"row and znode", {0}, "row /c", verify_row, false},
    {"data watch", {0}, "watch /s", verify_watch, true},
    {"child watch", {0}, "watchchildren /", verify_watch, true},
    {"recursive watch", {0}, "watchtree /", verify_watch, true},
    {"expire oneself", {"create /c x 1"}, "expire", verify_expire, false},
    {"close",
     {"create /c x 1", "create /e x 1", "watch /s", "set /s acknowledged"},
     "close",
     verify_close,
     false},
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

/* The state each round starts from. */
static void prepare(zke *z) {
  put(z, "/s", "old");
  put(z, "/d", "old");
  put(z, "/q", "");
  put(z, "/eq", "");
  take(z, "/c");
}

/* Give a worker that is alone on the database its commands; it dies at point
 * n of the fatal one, or gets through. */
static void run(const char *db, const scenario *s, int n, story *out) {
  test_worker w = test_spawn("talk", NULL);
  test_tell(&w, "open %s", db);
  const char *line = test_line(&w);
  ck_assert_msg(is_ok(line), "%s, open before point %d: %s", s->name, n, line);
  for (int i = 0; i < 5 && s->before[i]; i++) ask(&w, s->before[i]);
  test_tell(&w, "arm %d KILL", n);
  ck_assert_str_eq(test_line(&w), "ok");
  test_tell(&w, "%s\nexit 0", s->fatal);
  listen(&w, out);
}

/* P2, P6, P8: one scenario, killed at each of its points. */
TEST_LOOP(killed_at_each_point, 0, SCENARIOS) {
  const scenario *s = &scenarios[_i];
  const char *db = test_path("a.db");
  bool died = true;
  int n = 0;
  zke *z = test_open(db);
  while (died && n < MAX_POINTS) {
    story told;
    prepare(z);
    ck_ok(zke_close(z));
    n = next_point(n);
    run(db, s, n, &told);
    died = told.died;
    ck_assert_int_eq(told.answers, died ? 0 : 1);
    z = test_open(db);
    expect_sound(z);
    s->verify(z, died ? NULL : told.answer[0]);
  }
  if (s->watches) expect_alone(z);
  ck_ok(zke_close(z));
  printf("%s: %d points\n", s->name, n - 1);
  ck_assert_msg(!died && n > 1, "%s: %d points", s->name, n);
}

/* ---- opening ---- */

/* Open in a worker that dies at point n, or gets through.  db: and options. */
static bool dies_opening(const char *db, int n) {
  story told;
  test_worker w = test_spawn("talk", NULL);
  test_tell(&w, "arm %d KILL\nopen %s\nexit 0", n, db);
  listen(&w, &told);
  ck_assert_int_eq(told.answers, told.died ? 1 : 2);
  if (!told.died) ck_assert_msg(is_ok(told.answer[1]), "%s", told.answer[1]);
  return told.died;
}

static int count_orders(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  return sqlite3_exec(db, "SELECT * FROM orders", NULL, NULL, NULL);
}

/* Make a program's database, with a table of its own, and open it as one. */
static void make_orders(const char *path) {
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
  ck_assert_int_eq(sqlite3_exec(db,
                                "PRAGMA user_version=7;CREATE TABLE orders(a);"
                                "INSERT INTO orders VALUES(1)",
                                NULL, NULL, NULL),
                   SQLITE_OK);
  sqlite3_close(db);
}

static zke *open_orders(const char *path) {
  zke_options options = {.size = sizeof options, .flags = ZKE_OPEN_HOST};
  zke_op op;
  zke_op_result result;
  zke *z;
  ck_ok(zke_open(path, &options, &z));
  zke_op_sql(&op, count_orders, NULL);
  ck_ok(zke_multi_read(z, &op, 1, &result));
  ck_ok(result.rc);
  return z;
}

/* P2, design.md 8: a creation that was cut off is finished by the next to
 * open, whatever there was of the file; also one in a program's database, whose
 * own tables are untouched. */
TEST_LOOP(killed_while_creating_the_file, 0, 2) {
  char name[32], words[400];
  int n = 0;
  for (bool died = true; died && n < MAX_POINTS;) {
    n = next_point(n);
    snprintf(name, sizeof name, "new-%d.db", n);
    snprintf(words, sizeof words, "%s%s", test_path(name), _i ? " host" : "");
    if (_i) make_orders(test_path(name));
    died = dies_opening(words, n);
    zke *z = _i ? open_orders(test_path(name)) : test_open(test_path(name));
    expect_sound(z);
    ck_assert_int_eq(children(z, "/"), 1);
    ck_assert_int_eq(children(z, "/zookeeper"), 2);
    put(z, "/s", "new");
    ck_ok(zke_close(z));
    z = test_open(test_path(name));
    ck_assert(holds(z, "/s", "new"));
    ck_ok(zke_close(z));
  }
  printf("create the %s: %d points\n", _i ? "tables" : "file", n - 1);
  ck_assert_int_gt(n, 10);
  ck_assert_int_lt(n, MAX_POINTS);
}

/* P2: an opener dies on a database that was closed (0), or (1) on one whose
 * last user was killed too, so that it dies while recovering the log. */
TEST_LOOP(killed_while_opening, 0, 2) {
  const char *db = test_path("a.db");
  zke *z;
  int n = 0;
  for (bool died = true; died && n < MAX_POINTS;) {
    z = test_open(db);
    expect_sound(z);
    put(z, "/s", "old");
    ck_ok(zke_close(z));
    if (_i == 1) {
      story told;
      test_worker w = test_spawn("hold", db, "/e", NULL);
      test_tell(&w, "set /s new\narm 1 KILL\nclose");
      listen(&w, &told);
      ck_assert(told.died && is_ok(told.answer[1]));
    }
    n = next_point(n);
    died = dies_opening(db, n);
    z = test_open(db);
    ck_assert(holds(z, "/s", _i ? "new" : "old"));
    expect_reaped(z, "/e");
    ck_ok(zke_close(z));
  }
  z = test_open(db);
  expect_alone(z);
  ck_ok(zke_close(z));
  printf("open%s: %d points\n", _i ? " and recover" : "", n - 1);
  ck_assert_int_gt(n, 1);
  ck_assert_int_lt(n, MAX_POINTS);
}

/* ---- reaping ---- */

/* A few, and more than the engine removes at a time or keeps in its cache. */
static const int owned[] = {3, 4000};

/* A process with so many ephemerals, which is to die. */
static test_worker owner_of(const char *db, int count) {
  test_worker w = test_spawn("talk", NULL);
  test_tell(&w, "open %s", db);
  ck_assert(is_ok(test_line(&w)));
  test_tell(&w, "own /v %d", count);
  ck_assert(is_ok(test_line(&w)));
  return w;
}

/* P6: the one who reaps is killed at each point; the nodes of the first dead
 * go all together, and then those of the second one too.  It has a child watch
 * from before the death, by which the wait ends even where a tick within the
 * command before it has reaped. */
TEST_LOOP(killed_while_reaping, 0, 2) {
  const char *db = test_path("a.db");
  int n = 0, count = owned[_i];
  for (bool died = true; died && n < MAX_POINTS;) {
    story told;
    zke *z = test_open(db);
    put(z, "/v", "");
    ck_ok(zke_close(z));
    test_worker w = test_spawn("talk", NULL);
    test_tell(&w, "open %s", db);
    ck_assert(is_ok(test_line(&w)));
    ask(&w, "create /mine x 1");
    test_worker owner = owner_of(db, count);
    ask(&w, "watchchildren /v");
    test_kill(&owner, SIGKILL);
    n = next_point(n);
    test_tell(&w, "arm %d KILL\nwatch /v/1\nwait 10000\nexit 0", n);
    listen(&w, &told);
    died = told.died;
    z = test_open(db);
    expect_sound(z);
    int left = children(z, "/v");
    ck_assert_msg(left == 0 || (left == count && died), "%d of %d left", left,
                  count);
    expect_reaped(z, "/v/1");
    ck_assert_int_eq(children(z, "/v"), 0);
    expect_reaped(z, "/mine");
    ck_ok(zke_close(z));
  }
  printf("reap %d nodes: %d points\n", count, n - 1);
  ck_assert_int_gt(n, 3);
  ck_assert_int_lt(n, MAX_POINTS);
}

enum { OVERDUE = 300 };

/* A file with nodes whose time is over in a millisecond, of which the first has
 * a child, and which nobody has swept. */
static void make_overdue(const char *db) {
  char path[OVERDUE][32], side[256];
  zke_op op[OVERDUE];
  zke *z = test_open(db);
  put(z, "/t", "");
  for (int i = 0; i < OVERDUE; i++) {
    snprintf(path[i], sizeof path[i], "/t/%d", i);
    zke_op_create_ttl(&op[i], path[i], "", 0, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT_WITH_TTL, 1);
  }
  ck_ok(zke_multi(z, op, OVERDUE, NULL));
  put(z, "/t/0/c", "");
  ck_ok(zke_close(z));
  snprintf(side, sizeof side, "%s-zke", db); /* with the note of a sweep */
  test_remove(side);
}

enum { EVERY = 10 }; /* kill in which the rest is waited for */

/* P2, P8: a process that opens the file, and so removes the nodes whose time is
 * over, is killed at each point.  What it has not removed the next one does; a
 * node with a child stays. */
TEST(killed_while_sweeping) {
  char name[32];
  int n = 0, some = 0;
  for (bool died = true; died && n < MAX_POINTS;) {
    n = next_point(n);
    snprintf(name, sizeof name, "t-%d.db", n);
    const char *db = test_path(name);
    make_overdue(db);
    died = dies_opening(db, n);
    zke *z = test_open(db);
    expect_sound(z);
    int left = children(z, "/t");
    some += left < OVERDUE && left > 1;
    if (!died || n % EVERY == 0) /* a slow one leaves the rest for its tick */
      ck_until((zke_wait(z, zke_now(z) + 5), children(z, "/t") == 1), 10000);
    ck_assert(has(z, "/t/0/c"));
    ck_ok(zke_close(z));
  }
  printf("sweep: %d points, after %d of them some nodes were left\n", n - 1,
         some);
  ck_assert_int_ge(some, 1);
  ck_assert_int_lt(n, MAX_POINTS);
}

/* ---- between COMMIT and wake-up ---- */

/* P7: a writer is killed at each point of a change that somebody waits for.
 * If the change was made the waiter hears of it, once, at the latest by its
 * tick; if not, not. */
TEST(killed_before_the_wakeup) {
  const char *db = test_path("a.db");
  zke *z = test_open(db);
  int n = 0, made = 0;
  for (bool died = true; died && n < MAX_POINTS;) {
    story told;
    test_events events = {0};
    put(z, "/s", "old");
    ck_ok(zke_exists(z, "/s", test_record, &events, NULL));
    test_worker w = test_spawn("talk", NULL);
    test_tell(&w, "open %s", db);
    ck_assert(is_ok(test_line(&w)));
    test_tell(&w, "arm %d KILL\nset /s new\nexit 0", ++n);
    listen(&w, &told);
    died = told.died;
    if (holds(z, "/s", "new")) {
      made += died;
      test_expect_within(z, &events, "CHANGED /s", 10000);
    } else {
      ck_assert(died);
      test_expect(z, &events, "");
      ck_ok(zke_remove_all_watches(z, "/s", ZKE_WATCH_ANY));
    }
    expect_sound(z);
  }
  printf("set with a waiter: %d points, %d of them after the commit\n", n - 1,
         made);
  ck_assert_int_ge(made, 1);
  ck_assert_int_lt(n, MAX_POINTS);
  ck_ok(zke_close(z));
}

/* ---- drawn by lot ---- */

enum { TOGETHER = 3, GROUPS = 20, ADDS = 20 };

/* A worker that owns an ephemeral, adds to /n and may die at it. */
static test_worker start_adder(const char *db) {
  char text[1024] = "";
  test_worker w = test_spawn("talk", NULL);
  for (int i = 0; i < ADDS; i++) strcat(text, "add /n 1\n");
  test_tell(&w, "open %s\ncreate /group/m- x 3\narm %d KILL\n%sexit 0", db,
            1 + rand() % 600, text);
  return w;
}

/* Its acknowledged additions; *deaths counts it if it died. */
static int acknowledged(test_worker *w, int *deaths) {
  story told;
  int oks = 0;
  listen(w, &told);
  for (int i = 0; i < told.answers; i++) oks += is_ok(told.answer[i]);
  ck_assert_msg(oks == told.answers && oks >= 3, "%s",
                told.answer[told.answers - 1]);
  *deaths += told.died;
  return oks - 3; /* open, create, arm */
}

/* P1, P2, P6: processes that die while others work on the same nodes: no
 * acknowledged addition is lost, none is made twice, and of the dead only
 * their last one is in doubt. */
TEST(killed_among_others) {
  const char *db = test_path("a.db");
  int sum = 0, deaths = 0;
  char *data;
  zke *z = test_open(db);
  put(z, "/n", "0");
  put(z, "/group", "");
  srand(test_seed());
  for (int i = 0; i < GROUPS; i++) {
    test_worker w[TOGETHER];
    for (int k = 0; k < TOGETHER; k++) w[k] = start_adder(db);
    for (int k = 0; k < TOGETHER; k++) sum += acknowledged(&w[k], &deaths);
    expect_sound(z);
  }
  ck_ok(zke_get(z, "/n", NULL, NULL, &data, NULL, NULL));
  printf("among others: %d deaths, %d acknowledged, %s made\n", deaths, sum,
         data);
  ck_assert_int_ge(atoi(data), sum);
  ck_assert_int_le(atoi(data), sum + deaths);
  zke_free(data);
  expect_alone(z);
  ck_assert_int_eq(children(z, "/group"), 0);
  ck_ok(zke_close(z));
}

enum { SAMPLES = 16, LARGE = 65536 };

/* P2, P8, P12: killed at points, drawn by lot, from the moment a checkpoint
 * writes into the database file on. */
TEST(killed_while_checkpointing) {
  const char *db = test_path("a.db");
  srand(test_seed());
  for (int i = 0; i < SAMPLES; i++) {
    story told;
    int len = 0, n = 1 + rand() % 100;
    zke *z = test_open(db);
    put(z, "/s", "old");
    ck_ok(zke_close(z));
    test_worker w = test_spawn("talk", NULL);
    test_tell(&w, "open %s", db);
    ck_assert(is_ok(test_line(&w)));
    test_tell(&w, "create /kept-%d acknowledged", i);
    ck_assert(is_ok(test_line(&w)));
    test_tell(&w, "arm %d KILL checkpoint\nfill /s 300 %d\nexit 0", n, LARGE);
    listen(&w, &told);
    ck_assert_msg(told.died, "no checkpoint within 19 MB of writes");
    z = test_open(db);
    expect_sound(z);
    ck_assert_int_eq(children(z, "/"), 2 + i + 1);
    ck_ok(zke_get(z, "/s", NULL, NULL, NULL, &len, NULL));
    ck_assert_int_eq(len, LARGE);
    ck_ok(zke_close(z));
  }
}

enum { SHED = 100 };

/* A closed database with so many large nodes removed. */
static void make_sparse(const char *db) {
  static char data[4000], path[SHED][32];
  zke_op op[SHED];
  zke *z = test_open(db);
  put(z, "/s", "acknowledged");
  for (int i = 0; i < SHED; i++) {
    snprintf(path[i], sizeof path[i], "/large-%d", i);
    zke_op_create(&op[i], path[i], data, sizeof data, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
  }
  ck_ok(zke_multi(z, op, SHED, NULL));
  ck_ok(zke_close(z));
  z = test_open(db);
  for (int i = 0; i < SHED; i++) zke_op_delete(&op[i], path[i], -1);
  ck_ok(zke_multi(z, op, SHED, NULL));
  ck_ok(zke_close(z));
}

/* P2, P8, P12: killed at each point of a compaction.  What was in the database
 * is in it, and the next one gets it done. */
TEST(killed_while_compacting) {
  const char *db = test_path("a.db");
  struct stat before, after;
  int n = 0, short_ones = 0;
  make_sparse(db);
  for (bool died = true; died && n < MAX_POINTS;) {
    story told;
    if (n && stat(db, &after) == 0 && after.st_size < before.st_size / 2) {
      short_ones++;
      make_sparse(db);
    }
    ck_assert_int_eq(stat(db, &before), 0);
    test_worker w = test_spawn("hold", db, "/e", NULL);
    test_tell(&w, "arm %d KILL\ncompact\nexit 0", ++n);
    listen(&w, &told);
    died = told.died;
    zke *z = test_open(db);
    expect_sound(z);
    ck_assert(holds(z, "/s", "acknowledged"));
    expect_reaped(z, "/e");
    ck_assert_int_eq(children(z, "/"), 2);
    ck_ok(zke_close(z));
  }
  printf("compact: %d points, after %d it was done\n", n - 1, short_ones);
  ck_assert_int_gt(n, 10);
  ck_assert_int_lt(n, MAX_POINTS);
  ck_assert_int_ge(short_ones, 1);
}

/* ---- a process that dies inside a sync ---- */

/* Who is there when the database is opened again. */
enum {
  DEATH_KEPT = 1,     /* a child that keeps the dead process's session alive */
  DEATH_SEEN = 2,     /* a foreign reader, which recovered the log */
  DEATH_READONLY = 4, /* the next handle is a read-only one */
  DEATHS = 8
};

static bool dying; /* in the process that is to be killed */

static void die_in_sync(power_event event) {
  if (dying && event == POWER_SYNC) raise(SIGKILL);
}

/* Keep the session alive in a child until the pipe's writers are gone. */
static void keep_alive(zke *z, const int *until) {
  int fd;
  char end;
  if (zke_keepalive_fd(z, &fd) != ZKE_OK) _exit(1);
  if (fork() != 0) return;
  close(until[1]);
  if (read(until[0], &end, 1) != 0) _exit(1);
  _exit(0);
}

/* In a process of its own: /said is acknowledged, then the process is killed
 * after /unsaid has been written and before it is synced. */
static void die_deciding(const char *file, int death, const int *until) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  zke *z;
  power_begin(test_path("power"), die_in_sync);
  if (zke_open(file, &o, &z) != ZKE_OK ||
      zke_create(z, "/said", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL) != ZKE_OK)
    _exit(1);
  if (death & DEATH_KEPT) keep_alive(z, until);
  dying = true;
  zke_create(z, "/unsaid", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL);
  _exit(2);
}

/* A program that knows SQLite only, and reads. */
static sqlite3 *foreign_reader(const char *file) {
  sqlite3 *db = NULL;
  ck_assert_int_eq(
      sqlite3_open_v2(file, &db, SQLITE_OPEN_READWRITE, "unix-power"),
      SQLITE_OK);
  ck_assert_int_eq(
      sqlite3_exec(db, "SELECT * FROM zkembed_node", NULL, NULL, NULL),
      SQLITE_OK);
  return db;
}

/* What a cut that takes all that is not synced leaves of a database. */
static const char *disk_after_cut(void) {
  uint64_t random = 1;
  power_loss loss = {0};
  const char *directory = test_path("cut");
  ck_assert_int_eq(mkdir(directory, 0700), 0);
  power_image(directory, POWER_NONE, &random, &loss);
  return test_path("cut/a.db");
}

/* P8: a process is killed inside the sync of its commit.  What a process that
 * opens the database after it is shown stays through a power cut, whoever has
 * read it or keeps the dead process's session meanwhile. */
TEST_LOOP(killed_in_the_sync, 0, DEATHS) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  sqlite3 *reader = NULL;
  zke *z;
  int status, until[2];
  ck_assert_int_eq(mkdir(test_path("power"), 0700), 0);
  const char *file = test_path("power/a.db");
  ck_assert_int_eq(pipe(until), 0);
  pid_t pid = fork();
  if (pid == 0) die_deciding(file, _i, until);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  power_begin(test_path("power"), NULL);
  power_doubt("a.db-wal");
  if (_i & DEATH_SEEN) reader = foreign_reader(file);
  if (_i & DEATH_READONLY) o.flags = ZKE_OPEN_READONLY;
  ck_ok(zke_open(file, &o, &z));
  ck_ok(zke_exists(z, "/said", NULL, NULL, NULL));
  ck_ok(zke_exists(z, "/unsaid", NULL, NULL, NULL));
  zke *after = test_open(disk_after_cut());
  ck_ok(zke_exists(after, "/said", NULL, NULL, NULL));
  ck_ok(zke_exists(after, "/unsaid", NULL, NULL, NULL));
  ck_ok(zke_close(after));
  ck_ok(zke_close(z));
  sqlite3_close(reader);
  close(until[0]);
  close(until[1]);
}

/* In a process of its own: the program commits a row by its own connection.
 * The process is killed in the sync, or the sync fails and it ends. */
static void die_committing(const char *file, bool failing) {
  zke_options o = {
      .size = sizeof o, .flags = ZKE_OPEN_HOST, .vfs = "unix-power"};
  const char *const made = "CREATE TABLE orders(id)";
  const char *const added = "INSERT INTO orders VALUES(1)";
  sqlite3 *db = NULL;
  zke *z;
  power_begin(test_path("power"), die_in_sync);
  if (zke_open(file, &o, &z) != ZKE_OK ||
      sqlite3_open_v2(file, &db, SQLITE_OPEN_READWRITE, "unix-power") ||
      zke_sql_adopt(z, db) != ZKE_OK || zke_sql_begin(z, db) != ZKE_OK ||
      sqlite3_exec(db, made, NULL, NULL, NULL) ||
      zke_sql_commit(z, db) != ZKE_OK || zke_sql_begin(z, db) != ZKE_OK ||
      sqlite3_exec(db, added, NULL, NULL, NULL))
    _exit(1);
  if (failing) power_fail("a.db-wal", 1);
  dying = !failing;
  _exit(zke_sql_commit(z, db) == ZKE_CONNECTIONLOSS ? 2 : 3);
}

/* P2, P8: a commit of the program's raises no zxid.  What of it a process is
 * shown that opens the database next stays through a power cut all the same:
 * after a death in its sync (0), and after a sync that failed (1). */
TEST_LOOP(process_ends_in_a_guests_sync, 0, 2) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  zke *z;
  int status;
  ck_assert_int_eq(mkdir(test_path("power"), 0700), 0);
  const char *file = test_path("power/a.db");
  pid_t pid = fork();
  if (pid == 0) die_committing(file, _i);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(test_status(status), _i ? 2 : 128 + SIGKILL);
  power_begin(test_path("power"), NULL);
  power_doubt("a.db-wal");
  ck_ok(zke_open(file, &o, &z));
  ck_assert_int_eq(test_number(file, "SELECT count(*)FROM orders"), 1);
  const char *cut = disk_after_cut();
  ck_assert_int_eq(test_number(cut, "SELECT count(*)FROM orders"), 1);
  ck_ok(zke_close(z));
}

/* ---- syncs of the log that fail ---- */

/* Of what is durable after a cut now, the node has to be there. */
static void node_survives(const char *path) {
  zke *z = test_open(disk_after_cut());
  ck_ok(zke_exists(z, path, NULL, NULL, NULL));
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}

/* A database on the disk that forgets, all of which is durable, with an
 * ephemeral node. */
static zke *open_on_power(power_hook hook) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  ck_assert_int_eq(mkdir(test_path("power"), 0700), 0);
  zke *z = test_open(test_path("power/a.db"));
  ck_ok(zke_close(z));
  power_begin(test_path("power"), hook);
  ck_ok(zke_open(test_path("power/a.db"), &o, &z));
  ck_ok(zke_create(z, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  return z;
}

/* P8, P2: ephemeral changes are not synced by themselves, and a checkpoint
 * that is to sync them fails in that.  The system takes them for written all
 * the same, and the next sync succeeds.  A durable change that is acknowledged
 * then survives: the log is settled before, at once or, where that fails as
 * well (more failures), by the change itself. */
TEST_LOOP(a_failed_sync_in_a_checkpoint_loses_nothing, 1, 4) {
  static char data[65536];
  zke *z = open_on_power(NULL);
  power_fail("a.db-wal", _i);
  for (int i = 0; i < 200 && power_failed() == 0; i++)
    ck_ok(zke_set(z, "/e", data, sizeof data, -1, NULL));
  ck_assert_int_gt(power_failed(), 0);
  if (zke_create(z, "/said", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL) != ZKE_OK)
    ck_ok(zke_create(z, "/said", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_assert_int_eq(power_failed(), _i);
  node_survives("/said");
  ck_ok(zke_close(z));
}

/* The same where it is the last close that fails, and the change is one of
 * whoever opens the file next. */
TEST(a_failed_sync_at_the_last_close_loses_nothing) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  zke *z = open_on_power(NULL);
  power_fail("a.db-wal", 1);
  ck_ok(zke_close(z));
  ck_assert_int_eq(power_failed(), 1);
  ck_ok(zke_open(test_path("power/a.db"), &o, &z));
  ck_ok(zke_create(z, "/said", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  node_survives("/said");
  ck_ok(zke_close(z));
}

static const char *image_path;

/* Look at what a cut would leave before some events after a failed sync. */
static void expect_whole(power_event event) {
  static const power_style styles[] = {POWER_NONE, POWER_ALL, POWER_PREFIX,
                                       POWER_SUBSET};
  static uint64_t random = 1;
  static int events, images;
  power_loss loss = {0};
  char name[4200];
  if (!power_failed() || (event == POWER_WRITE && events++ % 8)) return;
  for (int i = 0; i < 4; i++) {
    snprintf(name, sizeof name, "%s-%d", image_path, images++);
    ck_assert_int_eq(mkdir(name, 0700), 0);
    power_image(name, styles[i], &random, &loss);
    strcat(name, "/a.db");
    zke *z = test_open(name);
    ck_ok(zke_exists(z, "/said", NULL, NULL, NULL));
    ck_ok(zke_check(z, NULL, NULL));
    ck_ok(zke_close(z));
  }
}

/* P2: the power fails while a log is settled whose sync has failed.  Before
 * each event on the disk the database is whole, however much of what was
 * written since is there. */
TEST(a_cut_while_the_log_is_settled) {
  char path[32];
  zke *z = open_on_power(expect_whole);
  image_path = test_path("image");
  for (int i = 0; i < 40; i++) {
    snprintf(path, sizeof path, "/child-%d", i);
    ck_ok(zke_create(z, path, path, -1, ZKE_OPEN_ACL, 0, NULL, NULL));
  }
  ck_ok(zke_create(z, "/said", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  for (int i = 0; i < 40; i++) {
    snprintf(path, sizeof path, "/e-%d", i);
    ck_ok(
        zke_create(z, path, path, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  }
  power_fail("a.db-wal", 1);
  ck_rc(zke_create(z, "/b", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL),
        ZKE_CONNECTIONLOSS);
  ck_ok(zke_create(z, "/c", "", 0, ZKE_OPEN_ACL, 0, NULL, NULL));
  ck_ok(zke_close(z));
}

/* P8: a process is killed inside the sync of its commit.  The one that opens
 * the database next cannot sync the log, and is refused.  The one after it is
 * shown the commit, which stays. */
TEST(opening_after_one_that_could_not_sync) {
  zke_options o = {.size = sizeof o, .vfs = "unix-power"};
  zke *z = NULL;
  int status;
  ck_assert_int_eq(mkdir(test_path("power"), 0700), 0);
  const char *file = test_path("power/a.db");
  pid_t pid = fork();
  if (pid == 0) die_deciding(file, 0, NULL);
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  power_begin(test_path("power"), NULL);
  power_doubt("a.db-wal");
  power_fail("a.db-wal", 1);
  ck_rc(zke_open(file, &o, &z), ZKE_SYSTEMERROR);
  ck_says("syncing the log");
  ck_ok(zke_open(file, &o, &z));
  ck_ok(zke_exists(z, "/unsaid", NULL, NULL, NULL));
  node_survives("/unsaid");
  ck_ok(zke_close(z));
}

/* P8: a process leaves a whole commit in the log that it could not sync, and
 * another dies while it writes the header of the WAL-index, so that a store
 * that is open has to recover.  It syncs the log before it shows what it
 * finds.  Where that fails (1), it does not trust the log, but moves it into
 * the database; it used to believe the next sync. */
TEST_LOOP(recovery_by_an_open_store, 0, 2) {
  struct stat log;
  const char *db = test_path("a.db");
  test_worker w = test_spawn("talk", NULL), other = test_spawn("talk", NULL);
  char line[4096];
  snprintf(line, sizeof line, "open %s", db);
  ask(&w, line);
  ask(&other, line);
  ask(&other, "failsync 0 1");
  test_say(&other, "create /unsaid x 0");
  ck_assert_int_eq(atoi(test_line(&other)), ZKE_CONNECTIONLOSS);
  test_kill(&other, SIGKILL);
  ask(&w, "syncs");
  int fd = open(test_path("a.db-shm"), O_RDWR | O_CLOEXEC);
  ck_assert_int_eq(pwrite(fd, "torn", 4, 40), 4); /* a checksum */
  ck_assert_int_eq(close(fd), 0);
  if (_i) {
    ask(&w, "failsync 0 1");
    test_say(&w, "exists /unsaid");
    ck_assert_int_ne(atoi(test_line(&w)), ZKE_OK);
  }
  ask(&w, "exists /unsaid");
  ck_assert_int_ge(atoi(ask(&w, "syncs")), 1);
  ck_assert_int_eq(stat(test_path("a.db-wal"), &log), 0);
  ck_assert(_i ? log.st_size == 0 : log.st_size > 0);
  ask(&w, "close");
  ck_assert_int_eq(test_wait(&w), 0);
}
