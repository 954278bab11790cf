/* test.c - see test.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/program.h"

extern char **environ;

/* ---- registration ---- */

enum { USUAL_LIMIT_S = 120 };

static test_item *items;           /* by file and line */
static SFun after_each, after_all; /* of the program, and of a shared file */
static int processes = 1;          /* that share the tests */
static char program_path[4096];    /* argv[0]; the worker is next to it */

static bool item_before(const test_item *a, const test_item *b) {
  int files = strcmp(a->file, b->file);
  return files ? files < 0 : a->line < b->line;
}

/* No standard defines the order in which constructors run, so the items are
 * sorted here. */
void test_register(test_item *item) {
  test_item **at = &items;
  while (*at && item_before(*at, item)) at = &(*at)->next;
  item->next = *at;
  *at = item;
}

/* A second function would replace the first, which then never ran. */
static void set_once(SFun *to, SFun function) {
  if (*to && *to != function) abort();
  *to = function;
}

void test_after_each(SFun function) { set_once(&after_each, function); }
void test_after_all(SFun function) { set_once(&after_all, function); }
void test_side_by_side(int count) { processes = count; }

const char *test_program(void) { return program_path; }

/* ---- the last assertion that held ---- */

enum { MOST_MARKS = 4096 };

/* One for each run of a test, by its number in the program; in memory shared
 * with the test's process. */
static struct {
  int runs;
  struct {
    const char *file;
    int line;
  } at[MOST_MARKS];
} * marks;
static int run_number; /* of this process's test */

void test_mark(const char *file, int line) {
  if (!marks || run_number >= MOST_MARKS) return;
  __atomic_store_n(&marks->at[run_number].file, file, __ATOMIC_RELAXED);
  __atomic_store_n(&marks->at[run_number].line, line, __ATOMIC_RELAXED);
}

/* Runs in the test's process, before the test. */
static void number_run(void) { run_number = marks->runs++; }

/* And after it. */
static void end_run(void) {
  if (after_each) after_each();
  if (after_all) after_all();
}

static void open_marks(void) {
  marks = mmap(NULL, sizeof *marks, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (marks == MAP_FAILED) abort();
}

/* Check has reported a test that crashed or took too long; print the place it
 * had reached. */
static void print_marks(SRunner *runner) {
  TestResult **results = srunner_results(runner);
  for (int i = 0; i < srunner_ntests_run(runner) && i < MOST_MARKS; i++) {
    if (tr_rtype(results[i]) != CK_ERROR || !marks->at[i].file) continue;
    printf("%s:%d:E:%s: the last assertion that held\n", marks->at[i].file,
           marks->at[i].line, tr_tcname(results[i]));
  }
  free(results);
}

/* ---- assertions ---- */

/* Does "a OP b" hold, if this is the sign of a - b? */
static bool relation_holds(int sign, const char *op) {
  switch (op[0]) {
    case '=':
      return sign == 0;
    case '!':
      return sign != 0;
    case '<':
      return sign < 0 || (op[1] == '=' && sign == 0);
    default:
      return sign > 0 || (op[1] == '=' && sign == 0);
  }
}

void test_numbers(const char *file, int line, intmax_t a, const char *a_text,
                  const char *op, intmax_t b, const char *b_text) {
  if (!relation_holds((a > b) - (a < b), op))
    _ck_assert_failed(file, line, "Assertion failed",
                      "Assertion '%s %s %s' failed: %s == %jd, %s == %jd",
                      a_text, op, b_text, a_text, a, b_text, b);
  test_mark(file, line);
}

/* The same for strings; NULL may count as a value. */
static bool strings_hold(const char *a, const char *op, const char *b,
                         bool null_is_value) {
  if (a && b) return relation_holds(strcmp(a, b), op);
  return null_is_value && relation_holds((a != NULL) - (b != NULL), op);
}

void test_strings(const char *file, int line, const char *a, const char *a_text,
                  const char *op, const char *b, const char *b_text,
                  int null_is_value) {
  const char *a_quote = a ? "\"" : "", *b_quote = b ? "\"" : "";
  if (!strings_hold(a, op, b, null_is_value))
    _ck_assert_failed(file, line, "Assertion failed",
                      "Assertion '%s %s %s' failed: %s == %s%s%s, %s == %s%s%s",
                      a_text, op, b_text, a_text, a_quote, a ? a : "(null)",
                      a_quote, b_text, b_quote, b ? b : "(null)", b_quote);
  test_mark(file, line);
}

void test_code(const char *file, int line, const char *expression, int got,
               int expected) {
  if (got != expected)
    _ck_assert_failed(file, line, "Assertion failed",
                      "%s: got %s (%d: %s), not %s", expression,
                      zke_error_name(got), got, got ? zke_errmsg() : "",
                      zke_error_name(expected));
  test_mark(file, line);
}

void test_says(const char *file, int line, const char *text) {
  if (!strstr(zke_errmsg(), text))
    _ck_assert_failed(file, line, "Assertion failed",
                      "zke_errmsg() lacks '%s': %s", text, zke_errmsg());
  test_mark(file, line);
}

/* ---- running ---- */

static void add_item(Suite *suite, test_item *item, int limit_s) {
  TCase *alone = tcase_create(item->name);
  item->test = (TTest){item->name, item->function, item->file, item->line};
  tcase_set_timeout(alone, limit_s);
  tcase_add_checked_fixture(alone, number_run, end_run);
  tcase_add_loop_test(alone, &item->test, item->first, item->end);
  suite_add_tcase(suite, alone);
}

/* The tests of this process, the which-th that shares them; or the one of that
 * name.  A limit applies until its file ends. */
static void add_items(Suite *suite, const char *only, int which) {
  const char *file = "";
  int limit_s = USUAL_LIMIT_S, number = 0;
  for (test_item *item = items; item; item = item->next) {
    if (strcmp(file, item->file) != 0) limit_s = USUAL_LIMIT_S;
    file = item->file;
    if (!item->function) {
      limit_s = item->limit_s;
    } else if (only ? strcmp(only, item->name) == 0
                    : number++ % processes == which) {
      add_item(suite, item, limit_s);
    }
  }
}

/* Print the names of all tests, for scripts that run each by itself. */
static int list_items(void) {
  for (const test_item *item = items; item; item = item->next) {
    if (item->function) puts(item->name);
  }
  return 0;
}

/* Run the tests of this process; returns its exit status. */
static int run_items(const char *name, const char *only, int which) {
  Suite *suite = suite_create(name);
  open_marks();
  add_items(suite, only, which);
  SRunner *runner = srunner_create(suite);
  srunner_set_fork_status(runner, getenv("CK_NOFORK") ? CK_NOFORK : CK_FORK);
  srunner_run_all(runner, CK_NORMAL);
  print_marks(runner);
  int failed = srunner_ntests_failed(runner);
  int run = srunner_ntests_run(runner);
  srunner_free(runner);
  printf("%s: %d passed, %d failed\n", name, run - failed, failed);
  return failed || !run ? 1 : 0;
}

/* Wait for the end of one of the processes that share the tests; returns 0 if
 * all its tests have passed. */
static int await_process(const char *name) {
  int outcome = 1;
  if (wait(&outcome) > 0 && WIFSIGNALED(outcome))
    printf("%s: a process with some of its tests ended by signal %d\n", name,
           WTERMSIG(outcome));
  return outcome != 0;
}

int test_main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--list") == 0) return list_items();
  snprintf(program_path, sizeof program_path, "%s", argv[0]);
  const char *slash = strrchr(argv[0], '/');
  const char *name = slash ? slash + 1 : argv[0];
  const char *only = argc > 1 ? argv[1] : NULL;
  if (only || getenv("CK_NOFORK")) processes = 1;
  setvbuf(stdout, NULL, _IOLBF, 0); /* they share it: by whole lines */
  for (int i = 1; i < processes; i++) {
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) return run_items(name, only, i);
  }
  int status = run_items(name, only, 0);
  for (int i = 1; i < processes; i++) status |= await_process(name);
  return status;
}

/* For a program that has no main(). */
__attribute__((weak)) int main(int argc, char **argv) {
  return test_main(argc, argv);
}

#ifdef ZKE_COVERAGE
/* The linker replaces _exit() by this (make coverage), so that children that
 * call it are counted too. */
void __gcov_dump(void);
__attribute__((noreturn)) void __real__exit(int status);
__attribute__((noreturn)) void __wrap__exit(int status);

void __wrap__exit(int status) {
  __gcov_dump();
  __real__exit(status);
}
#endif

static int64_t clock_ms(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t test_now(void) { return clock_ms(CLOCK_MONOTONIC); }
int64_t test_wall(void) { return clock_ms(CLOCK_REALTIME); }

void test_pause(void) { poll(NULL, 0, 1); }

void test_pause_since(int64_t since) {
  int64_t pause = (test_now() - since) / 50;
  if (pause < 1) pause = 1;
  poll(NULL, 0, pause < 20 ? (int)pause : 20);
}

int64_t test_patience(int64_t limit) {
  const char *times = getenv("CK_TIMEOUT_MULTIPLIER");
  return times && atoi(times) > 1 ? limit * atoi(times) : limit;
}

int64_t test_clock_ns[3];

int64_t test_driven_clock(void *context, int which) {
  (void)context;
  return test_clock_ns[which];
}

void test_pass_ns(void *context, int64_t ns) {
  (void)context;
  for (int i = 0; i < 3; i++) test_clock_ns[i] += ns;
}

zke_os test_driven_os(void) {
  zke_os os;
  zke_os_default(&os);
  for (int i = 0; i < 3; i++) test_clock_ns[i] = os.clock(os.context, i);
  os.clock = test_driven_clock;
  os.sleep = test_pass_ns;
  return os;
}

unsigned test_seed(void) {
  const char *given = getenv("SEED");
  unsigned seed = given
                      ? (unsigned)strtoul(given, NULL, 0)
                      : (unsigned)test_now() * 2654435761u ^ (unsigned)getpid();
  printf("SEED=%u\n", seed);
  fflush(stdout);
  return seed;
}

long test_sample(long all, long sample) {
  const char *full = getenv("FULL");
  return full && *full ? all : sample;
}

long test_stride(long stride) {
  const char *given = getenv("SAMPLE");
  long times = given ? strtol(given, NULL, 10) : 1;
  if (times > 1) stride /= times;
  return test_sample(1, stride > 1 ? stride : 1);
}

void test_settle(const long *numbers, int count) {
  long sum = -1;
  for (int64_t end = test_now() + 500; test_now() < end; test_pause()) {
    long now = 0;
    for (int i = 0; i < count; i++)
      now += __atomic_load_n(&numbers[i], __ATOMIC_RELAXED);
    if (now != sum) end = test_now() + 500;
    sum = now;
  }
}

pid_t test_child(int (*body)(void *), void *context) {
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    alarm((unsigned)test_patience(TEST_CHILD_S));
    _exit(body(context));
  }
  return pid;
}

int test_child_end(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
  return test_status(status);
}

/* ---- the test's own directory ---- */

static char test_directory[4096];
static pid_t test_owner;

void test_remove(const char *path) { program_remove(path); }

static void remove_directory(void) {
  if (getpid() == test_owner) test_remove(test_directory);
}

/* Enough for every test, and not too much for a small machine. */
enum { MEMORY_DISK_MIB = 1024 };

static bool on_disk; /* this program tests files on a disk */

void test_on_disk(void) { on_disk = true; }
void test_in_memory(void) { on_disk = false; }

static bool memory_disk(const char *path) {
  struct statfs fs;
  return statfs(path, &fs) == 0 && fs.f_type == 0x01021994 /* tmpfs */ &&
         (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize >> 20 >=
             MEMORY_DISK_MIB &&
         access(path, W_OK) == 0;
}

/* Where the tests' directories are made. */
static const char *directory_of_all(void) {
  if (getenv("TMPDIR")) return getenv("TMPDIR");
  return !on_disk && memory_disk("/dev/shm") ? "/dev/shm" : "/tmp";
}

int test_terminal(void) {
  int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ck_assert_msg(fd >= 0 && grantpt(fd) == 0 && unlockpt(fd) == 0,
                "no terminal can be opened: is devpts mounted on /dev/pts?");
  return fd;
}

/* Paths given out; kept, so that a leak check can reach them. */
typedef struct given_path {
  struct given_path *next;
  char path[];
} given_path;

static given_path *test_paths;

const char *test_path(const char *name) {
  if (!test_directory[0]) {
    snprintf(test_directory, sizeof test_directory, "%s/zke-test-XXXXXX",
             directory_of_all());
    ck_assert_ptr_nonnull(mkdtemp(test_directory));
    test_owner = getpid();
    atexit(remove_directory);
  }
  size_t directory = strlen(test_directory);
  for (given_path *p = test_paths; p; p = p->next)
    if (strcmp(p->path + directory + 1, name) == 0) return p->path;
  size_t size = directory + strlen(name) + 2;
  given_path *p = malloc(sizeof *p + size);
  ck_assert_ptr_nonnull(p);
  snprintf(p->path, size, "%s/%s", test_directory, name);
  p->next = test_paths;
  test_paths = p;
  return p->path;
}

/* ---- a disk that is full ---- */

static const char *small_disk;

static void leave_small_disk(void) { umount2(small_disk, MNT_DETACH); }

const char *test_small_disk(const char *name, int kib) {
  char size[64];
  snprintf(size, sizeof size, "size=%dk", kib);
  small_disk = test_path(name);
  ck_assert_int_eq(mkdir(small_disk, 0777), 0);
  if (unshare(CLONE_NEWNS) != 0 ||
      mount("none", "/", "none", MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("none", small_disk, "tmpfs", 0, size) != 0) {
    printf("full disk: skipped, cannot mount (%s)\n", strerror(errno));
    return NULL;
  }
  atexit(leave_small_disk);
  return small_disk;
}

/* The block is not a static variable: the laboratory copies all of these at
 * each step. */
void test_fill_disk(const char *path) {
  enum { LARGEST = 1 << 20 };
  char *block = calloc(1, LARGEST);
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  ck_assert_ptr_nonnull(block);
  ck_assert_int_ge(fd, 0);
  for (size_t size = LARGEST; size; size /= 16) {
    while (write(fd, block, size) > 0) continue;
  }
  close(fd);
  free(block);
}

zke *test_open(const char *name) {
  zke *z = NULL;
  ck_ok(zke_open(name, NULL, &z));
  return z;
}

zke *test_session(zke *z, const char *chroot) {
  zke_options options = {.size = sizeof options, .chroot = chroot};
  zke *further = NULL;
  ck_ok(zke_open_session(z, &options, &further));
  return further;
}

/* ---- events ---- */

void test_ignore(zke *z, int type, int state, const char *path, void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

zke_stat test_stat(zke *z, const char *path) {
  zke_stat stat;
  ck_ok(zke_exists(z, path, NULL, NULL, &stat));
  return stat;
}

void test_expect_stat(zke_stat got, zke_stat expected) {
  char text[2][200];
  const zke_stat both[2] = {got, expected};
  for (int i = 0; i < 2; i++) {
    const zke_stat *s = &both[i];
    snprintf(text[i], sizeof text[i],
             "c%lld m%lld p%lld ct%lld mt%lld v%d cv%d av%d o%llx l%d n%d",
             (long long)s->czxid, (long long)s->mzxid, (long long)s->pzxid,
             (long long)s->ctime, (long long)s->mtime, s->version, s->cversion,
             s->aversion, (unsigned long long)s->ephemeralOwner, s->dataLength,
             s->numChildren);
  }
  ck_assert_str_eq(text[0], text[1]);
}

int64_t test_zxid(zke *z) {
  zke_stat stat;
  ck_ok(zke_set(z, "/", NULL, -1, -1, &stat));
  return stat.mzxid;
}

void test_record(zke *z, int type, int state, const char *path, void *context) {
  test_events *e = context;
  (void)z;
  ck_assert_int_lt(e->count, 64);
  e->at[e->count].type = type;
  e->at[e->count].state = state;
  snprintf(e->at[e->count].path, sizeof e->at[0].path, "%s", path);
  e->count++;
}

/* An event's type as test_expect() prints it. */
static const char *event_name(int type) {
  switch (type) {
    case ZKE_EVENT_CREATED:
      return "CREATED";
    case ZKE_EVENT_DELETED:
      return "DELETED";
    case ZKE_EVENT_CHANGED:
      return "CHANGED";
    case ZKE_EVENT_CHILD:
      return "CHILD";
    case ZKE_EVENT_OVERFLOW:
      return "OVERFLOW";
    case ZKE_EVENT_ALARM:
      return "ALARM";
    default:
      return "SESSION";
  }
}

static void describe(const test_events *e, char *text, size_t size) {
  size_t used = 0;
  text[0] = '\0';
  for (int i = 0; i < e->count && used < size; i++) {
    int type = e->at[i].type;
    const char *name = event_name(type);
    const char *gap = i ? "; " : "";
    if (type == ZKE_EVENT_SESSION) {
      used += (size_t)snprintf(text + used, size - used, "%s%s %d", gap, name,
                               e->at[i].state);
    } else if (type == ZKE_EVENT_OVERFLOW || type == ZKE_EVENT_ALARM) {
      used += (size_t)snprintf(text + used, size - used, "%s%s", gap, name);
    } else {
      used += (size_t)snprintf(text + used, size - used, "%s%s %s", gap, name,
                               e->at[i].path);
    }
  }
}

void test_expect_within(zke *z, test_events *events, const char *expected,
                        int ms) {
  static char got[20000];
  int wanted = expected[0] ? 1 : 0;
  for (const char *p = expected; *p; p++) wanted += *p == ';';
  int64_t end = test_now() + test_patience(ms);
  for (;;) {
    bool last = test_now() >= end; /* one more look, however late */
    int rc = zke_dispatch(z, NULL);
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_INVALIDSTATE, "dispatch: %d", rc);
    if (events->count >= wanted || last) break;
    test_pause();
  }
  describe(events, got, sizeof got);
  ck_assert_str_eq(got, expected);
  events->count = 0;
}

void test_expect(zke *z, test_events *events, const char *expected) {
  test_expect_within(z, events, expected, 0);
}

/* ---- heap and descriptors ---- */

void *test_heap_resize(void *context, void *block, size_t size) {
  test_heap *h = context;
  if (!size) {
    if (block) __atomic_fetch_sub(&h->live, 1, __ATOMIC_SEQ_CST);
    free(block);
    return NULL;
  }
  long call = __atomic_add_fetch(&h->calls, 1, __ATOMIC_SEQ_CST);
  if (h->fail_at && (call == h->fail_at || (h->fail_all && call > h->fail_at)))
    return NULL;
  void *result = realloc(block, size);
  if (result && !block) __atomic_fetch_add(&h->live, 1, __ATOMIC_SEQ_CST);
  return result;
}

int test_ephemerals(zke *z, zke *other) {
  zke_strings *paths = NULL;
  ck_ok(zke_ephemerals(other, zke_session_id(z), NULL, &paths));
  int count = paths->count;
  zke_free(paths);
  return count;
}

int test_session_count(zke *z) {
  zke_session_list *list;
  ck_ok(zke_sessions(z, -1, &list));
  int count = list->count;
  zke_free(list);
  return count;
}

int64_t test_number(const char *db, const char *sql) {
  sqlite3 *c;
  sqlite3_stmt *st;
  int64_t n = -1;
  ck_assert_int_eq(sqlite3_open(db, &c), SQLITE_OK);
  sqlite3_busy_timeout(c, test_patience(5000));
  int rc = sqlite3_prepare_v2(c, sql, -1, &st, NULL);
  if (rc == SQLITE_OK) rc = sqlite3_step(st);
  ck_assert_msg(rc == SQLITE_ROW || rc == SQLITE_DONE, "%s: %s", sql,
                sqlite3_errmsg(c));
  if (rc == SQLITE_ROW) n = sqlite3_column_int64(st, 0);
  sqlite3_finalize(st);
  sqlite3_close(c);
  return n;
}

void test_set_version(const char *db, const char *path, int32_t version) {
  char sql[300];
  const char *name = strrchr(path, '/') + 1;
  int parent = name - path > 1 ? (int)(name - path) - 1 : 1;
  snprintf(sql, sizeof sql,
           "UPDATE zkembed_node SET version=%d WHERE parent='%.*s' "
           "AND name='%s' RETURNING 1",
           (int)version, parent, path, name);
  ck_assert_int_eq(test_number(db, sql), 1);
}

pid_t test_thread(void) { return (pid_t)syscall(SYS_gettid); }

const char *test_stat_line(pid_t of, char line[TEST_STAT_LINE]) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)of);
  FILE *f = fopen(path, "re");
  if (!f) return NULL;
  bool is_told = fgets(line, TEST_STAT_LINE, f) != NULL;
  fclose(f);
  const char *end = is_told ? strrchr(line, ')') : NULL;
  return end ? end + 1 : NULL;
}

char test_state(pid_t of) {
  char line[TEST_STAT_LINE];
  const char *told = test_stat_line(of, line);
  return told && told[0] ? told[1] : '?';
}

int test_fd_count(void) {
  int count = 0;
  DIR *d = opendir("/proc/self/fd");
  ck_assert_ptr_nonnull(d);
  while (readdir(d)) count++;
  closedir(d);
  return count - 3; /* ".", ".." and the directory's own descriptor */
}

/* ---- worker processes ---- */

test_worker test_spawn(const char *role, ...) {
  static char program[8192];
  char *argv[32] = {NULL}, *emulator = getenv("ZKE_TEST_EMULATOR");
  int argc = 0;
  va_list ap;
  if (emulator && *emulator) argv[argc++] = emulator;
  argv[argc++] = program;
  argv[argc++] = (char *)(uintptr_t)role;
  va_start(ap, role);
  while (argc < 31 && (argv[argc] = va_arg(ap, char *)) != NULL) argc++;
  va_end(ap);
  const char *slash = strrchr(program_path, '/');
  snprintf(program, sizeof program, "%.*s/worker",
           slash ? (int)(slash - program_path) : 1, slash ? program_path : ".");
  int in[2], out[2];
  ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
  ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  test_worker w = {.in = in[1], .out = out[0]};
  int rc = posix_spawnp(&w.pid, argv[0], &actions, NULL, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  ck_assert_msg(rc == 0, "cannot start %s: %s", program, strerror(rc));
  close(in[0]);
  close(out[1]);
  return w;
}

const char *test_line(test_worker *w) {
  static char line[4096];
  size_t used = 0;
  int64_t end = test_now() + test_patience(60000);
  for (;;) {
    struct pollfd p = {.fd = w->out, .events = POLLIN};
    int64_t left = end - test_now();
    ck_assert_msg(left > 0 && poll(&p, 1, (int)left) > 0,
                  "no line from worker %d in time", (int)w->pid);
    ssize_t n = read(w->out, line + used, 1);
    ck_assert_msg(n == 1, "worker %d ended instead of a line", (int)w->pid);
    if (line[used] == '\n') break;
    ck_assert_uint_lt(++used, sizeof line);
  }
  line[used] = '\0';
  return line;
}

void test_say(test_worker *w, const char *line) {
  ck_assert_int_ge(dprintf(w->in, "%s\n", line), 0);
}

void test_tell(test_worker *w, const char *format, ...) {
  char line[4096];
  va_list ap;
  va_start(ap, format);
  vsnprintf(line, sizeof line, format, ap);
  va_end(ap);
  test_say(w, line);
}

const char *test_answer(test_worker *w) {
  const char *line = test_line(w);
  ck_assert_msg(strncmp(line, "ok", 2) == 0, "worker: %s", line);
  return line[2] ? line + 3 : "";
}

test_worker test_worker_on(const char *db) {
  test_worker w = test_spawn("talk", NULL);
  test_ask(&w, "open %s", db);
  return w;
}

const char *test_zke(void) {
  static char path[PATH_MAX];
  char name[PATH_MAX];
  const char *build = getenv("BUILD");
  snprintf(name, sizeof name, "%s/zke", build ? build : "build");
  ck_assert_msg(realpath(name, path) != NULL, "%s: %s", name, strerror(errno));
  return path;
}

int test_status(int outcome) {
  return WIFEXITED(outcome) ? WEXITSTATUS(outcome) : 128 + WTERMSIG(outcome);
}

int test_wait(test_worker *w) {
  int status = 0;
  close(w->in);
  while (waitpid(w->pid, &status, 0) < 0) ck_assert_int_eq(errno, EINTR);
  close(w->out);
  return test_status(status);
}

void test_kill(test_worker *w, int signal) {
  ck_assert_int_eq(kill(w->pid, signal), 0);
  if (signal == SIGKILL) test_wait(w);
}

void test_stop(pid_t pid, const char *db) {
  char gate[PATH_MAX];
  snprintf(gate, sizeof gate, "%s-zke/gate", db);
  int status, fd = open(gate, O_RDWR | O_CLOEXEC);
  ck_assert_msg(fd >= 0, "%s: %s", gate, strerror(errno));
  for (;;) {
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert_msg(WIFSTOPPED(status), "process %d ended", (int)pid);
    ck_assert_int_eq(fcntl(fd, F_OFD_GETLK, &l), 0);
    if (l.l_type == F_UNLCK) break;
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
  }
  close(fd);
}
