/* test.h - what all test programs share
 *
 * Each test_NAME.c is a program.  It runs the tests that TEST() and TEST_LOOP()
 * define in it, each in its own process with a time limit, and prints "NAME: N
 * passed, N failed".
 */
#ifndef ZKE_TEST_H
#define ZKE_TEST_H

#include <check.h>
#include <stdint.h>
#include <sys/types.h>

#include "zkembed.h"

/* A test.  Like the macros below it registers itself before main() begins, so
 * there is no list of tests.  Each is also a test case of Check with the test's
 * name.
 *
 *   TEST(nodes_are_sorted) { ... }
 *
 * TEST_LOOP() runs its body for _i = from, from + 1 ... to - 1. */
#define TEST(test) TEST_LOOP(test, 0, 1)
#define TEST_LOOP(test, from, to)                                             \
  static void test(int _i);                                                   \
  __attribute__((constructor)) static void test##_itself(void) {              \
    static test_item item_ = {                                                \
        .name = #test, .function = test, .file = __FILE__, .line = __LINE__}; \
    item_.first = (from);                                                     \
    item_.end = (to);                                                         \
    test_register(&item_);                                                    \
  }                                                                           \
  static void test(int _i __attribute__((unused)))

/* Is it built with a sanitizer?  Some keep freed memory, and all are slow. */
#if defined(__has_feature)
#define TEST_FEATURE(name) __has_feature(name)
#else
#define TEST_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || TEST_FEATURE(address_sanitizer)
#define TEST_ADDRESS_SANITIZER 1
#else
#define TEST_ADDRESS_SANITIZER 0
#endif
#if defined(__SANITIZE_THREAD__) || TEST_FEATURE(thread_sanitizer)
#define TEST_THREAD_SANITIZER 1
#else
#define TEST_THREAD_SANITIZER 0
#endif

/* The time limit, in seconds, of the tests below it in its file; 0: none. */
#define LIMIT(seconds)                                                  \
  __attribute__((constructor)) static void TEST_AT_LINE(limit_)(void) { \
    static test_item item_ = {.file = __FILE__, .line = __LINE__};      \
    item_.limit_s = (seconds);                                          \
    test_register(&item_);                                              \
  }                                                                     \
  struct test_item

/* A call to make at the end of each test of the program, in its process. */
#define AFTER_EACH(call)                                                  \
  __attribute__((constructor)) static void test_after_each_itself(void) { \
    test_after_each(call);                                                \
  }                                                                       \
  struct test_item

/* The same for a file that programs share: its call comes after the program's
 * own. */
#define AFTER_ALL(call)                                                  \
  __attribute__((constructor)) static void test_after_all_itself(void) { \
    test_after_all(call);                                                \
  }                                                                      \
  struct test_item

/* The program tests files on a disk: see test_on_disk(). */
#define ON_DISK                                                        \
  __attribute__((constructor)) static void test_on_disk_itself(void) { \
    test_on_disk();                                                    \
  }                                                                    \
  struct test_item

/* The program's tests mostly wait, so this many run at a time.  See
 * test_side_by_side(). */
#define SIDE_BY_SIDE(processes)                                             \
  __attribute__((constructor)) static void test_side_by_side_itself(void) { \
    test_side_by_side(processes);                                           \
  }                                                                         \
  struct test_item

#define TEST_AT_LINE(name) TEST_PASTE(name, __LINE__)
#define TEST_PASTE(a, b) TEST_PASTE_EXPANDED(a, b)
#define TEST_PASTE_EXPANDED(a, b) a##b

/* A test; or, without a function, a limit. */
typedef struct test_item {
  const char *name, *file;
  int line;
  TFun function;
  int first, end; /* of the loop */
  int limit_s;
  TTest test; /* for Check, which keeps a pointer to it */
  struct test_item *next;
} test_item;
void test_register(test_item *item);
void test_after_each(SFun function);
void test_after_all(SFun function);
/* So many processes share the program's tests: each takes every n-th one, and
 * prints its own sum.  One test alone runs as in any program. */
void test_side_by_side(int processes);

/* Check's macro would make a test that nothing runs. */
#undef START_TEST
#undef END_TEST

/* Each assertion that holds notes its place, in case the test crashes after it.
 * Check writes this into a pipe, by one system call each, and some tests make a
 * million assertions.  Here it is a note in memory, which test_main() reads
 * after a crash. */
#define _mark_point(file, line) test_mark(file, line)
void test_mark(const char *file, int line);

/* Run the tests in the order of the source, or the one that argv[1] names;
 * --list only prints their names.  Returns the program's exit status.  A
 * program whose main() would do nothing else needs no main(): test.c has
 * one. */
int test_main(int argc, char **argv);
const char *test_program(void); /* as it was started */

/* Assertions on numbers and strings are calls.  Check's own are expanded at
 * each place, which takes a third of the tests' compile time. */
#undef _ck_assert_int
#define _ck_assert_int(X, OP, Y)                                   \
  do {                                                             \
    intmax_t ck_first_ = (X);                                      \
    test_numbers(__FILE__, __LINE__, ck_first_, #X, #OP, (Y), #Y); \
  } while (0)
#undef _ck_assert_str
#define _ck_assert_str(X, OP, Y, NULLEQ, NULLNE)                  \
  do {                                                            \
    const char *ck_first_ = (X);                                  \
    test_strings(__FILE__, __LINE__, ck_first_, #X, #OP, (Y), #Y, \
                 (NULLEQ) || (NULLNE));                           \
  } while (0)
void test_numbers(const char *file, int line, intmax_t a, const char *a_text,
                  const char *op, intmax_t b, const char *b_text);
/* With `null_is_value` NULL equals NULL; otherwise no relation holds for it. */
void test_strings(const char *file, int line, const char *a, const char *a_text,
                  const char *op, const char *b, const char *b_text,
                  int null_is_value);

/* Assert a result code; prints the actual one and zke_errmsg(). */
#define ck_rc(expression, expected)                                     \
  do {                                                                  \
    int ck_rc_got_ = (expression);                                      \
    test_code(__FILE__, __LINE__, #expression, ck_rc_got_, (expected)); \
  } while (0)
#define ck_ok(expression) ck_rc(expression, ZKE_OK)
void test_code(const char *file, int line, const char *expression, int got,
               int expected);

/* Assert that the last failed call's sentence contains a text. */
#define ck_says(text) test_says(__FILE__, __LINE__, (text))
void test_says(const char *file, int line, const char *text);

/* Wait for a condition: check it every millisecond at first, then less often
 * (test_pause_since()), and once more at the end.  The condition is not
 * evaluated again after it held, since other processes may change it.  The
 * limit is for hangs, and CK_TIMEOUT_MULTIPLIER scales it as it scales the
 * limits of tests. */
#define ck_until(condition, ms)                                         \
  do {                                                                  \
    int64_t ck_until_since_ = test_now();                               \
    int64_t ck_until_end_ = ck_until_since_ + test_patience(ms);        \
    for (;;) {                                                          \
      int ck_until_last_ = test_now() >= ck_until_end_;                 \
      if (condition) break;                                             \
      ck_assert_msg(!ck_until_last_, "not within %d ms: %s", (int)(ms), \
                    #condition);                                        \
      test_pause_since(ck_until_since_);                                \
    }                                                                   \
  } while (0)
int64_t test_now(void);  /* monotonic, ms */
int64_t test_wall(void); /* ms since 1970 */
void test_pause(void);   /* one millisecond */
/* Pause for a fiftieth of the time since then, 1 to 20 ms, since a check may be
 * expensive. */
void test_pause_since(int64_t since);
/* A limit, in any unit, times CK_TIMEOUT_MULTIPLIER if that is set. */
int64_t test_patience(int64_t limit);
/* A clock that stands still until a test moves it: by test_pass_ns(), which all
 * clocks of ZKE_CLOCK_ follow, or by a change of test_clock_ns.
 * test_driven_os() is the library's table with this clock, which starts at the
 * current time. */
extern int64_t test_clock_ns[3];
int64_t test_driven_clock(void *context, int which);
void test_pass_ns(void *context, int64_t ns);
zke_os test_driven_os(void);
/* The seed of a random test: SEED from the environment, or a new one.  It is
 * printed as SEED=n, so that a run can be repeated. */
unsigned test_seed(void);
/* How many cases a test tries: all of them if FULL is set, else a sample, so
 * that `make test` is quick. */
long test_sample(long all, long sample);
/* Of many similar places a test tries every n-th, and this is n.  SAMPLE=k
 * tries k times as many, FULL all of them. */
long test_stride(long stride);
/* Wait until no number has changed for half a second: nothing is in
 * progress. */
void test_settle(const long *numbers, int count);
/* Run `body` in a child, and return its exit status, or 128 + signal.  The
 * child exits with the body's result, or dies by SIGALRM after TEST_CHILD_S
 * seconds (times test_patience()).  It makes no assertions. */
enum { TEST_CHILD_S = 120 };
pid_t test_child(int (*body)(void *), void *context);
int test_child_end(pid_t pid);

/* A path in this test's own directory, which is made at first use and removed
 * with its contents when the test's process exits.  The text stays valid until
 * then.  The directory is in TMPDIR.  Without TMPDIR it is in /dev/shm, where a
 * sync costs nothing, if that has room, or else in /tmp. */
const char *test_path(const char *name);
/* Remove a file, or a directory with its contents; it may be missing. */
void test_remove(const char *path);
/* Call it before the first path: without TMPDIR the directory is then in /tmp,
 * for a test of files on a disk.  test_in_memory() takes that back. */
void test_on_disk(void);
void test_in_memory(void);

/* Mount a file system of this many KiB on a new directory, which only this
 * process and its children see, and return its path.  Returns NULL, with a
 * sentence on standard output, if this process may not mount. */
const char *test_small_disk(const char *name, int kib);
/* Use up all free space on the disk of path, by a file of that name. */
void test_fill_disk(const char *path);

/* Open, and assert that it worked. */
zke *test_open(const char *name);              /* default options */
zke *test_session(zke *z, const char *chroot); /* a further session */

/* The Stat of an existing node. */
zke_stat test_stat(zke *z, const char *path);
/* Assert that two Stats are the same; compares them as text, since the struct
 * has padding. */
void test_expect_stat(zke_stat got, zke_stat expected);
/* The zxid of a change made now: setting "/" uses exactly one. */
int64_t test_zxid(zke *z);

/* An event recorder to register as a watcher: context is a test_events. */
typedef struct test_events {
  int count;
  struct {
    int type, state;
    char path[256];
  } at[64];
} test_events;
void test_record(zke *z, int type, int state, const char *path, void *context);
/* A watcher that does nothing. */
void test_ignore(zke *z, int type, int state, const char *path, void *context);

/* Dispatch all that has arrived, then assert the events recorded since the last
 * call, written like "CREATED /a; CHILD /; SESSION -112" ("" for none), in
 * order; then forgets them. */
void test_expect(zke *z, test_events *events, const char *expected);
/* The same for events that are still to come: dispatches until this many have
 * arrived, for at most test_patience(ms). */
void test_expect_within(zke *z, test_events *events, const char *expected,
                        int ms);

/* An allocator that counts its live blocks; use it as options.allocator with a
 * test_heap as context.  fail_at: this allocation (1 = the next) fails, 0 =
 * none; fail_all: so do all later ones. */
typedef struct test_heap {
  long live, calls, fail_at;
  int fail_all;
} test_heap;
void *test_heap_resize(void *context, void *block, size_t size);

/* Sessions in the file, including dead ones that have not been reaped. */
int test_session_count(zke *z);
/* How many ephemerals z's session has, as the session `other` sees it. */
int test_ephemerals(zke *z, zke *other);

/* A number that SQL finds in a database: the first column of the first row, or
 * -1 without a row.  It uses a plain connection, so no sweep runs and no
 * session is reaped. */
int64_t test_number(const char *db, const char *sql);
/* Give a node this version, which would otherwise take billions of sets. */
void test_set_version(const char *db, const char *path, int32_t version);

/* This thread's number; and the state of a thread or a process, from
 * /proc/PID/stat: 'S' sleeps, 'T' was stopped; '?': there is none. */
pid_t test_thread(void);
char test_state(pid_t of);

/* The text of that file after the name in parentheses, which may contain
 * anything: " S 1 …", in the array; NULL if there is no such file. */
enum { TEST_STAT_LINE = 512 };
const char *test_stat_line(pid_t of, char line[TEST_STAT_LINE]);

/* Open descriptors of this process. */
int test_fd_count(void);

/* The descriptor of a new terminal: the side of the program that emulates it.
 * The test fails if there is none. */
int test_terminal(void);

/* The path of this build's zke command, in a static buffer. */
const char *test_zke(void);
/* A result of waitpid() as the shell gives it: exit status, or 128 + signal. */
int test_status(int outcome);

/* A worker process: build/…/worker ROLE ARGS…, started by posix_spawn with
 * its standard input and output connected to us. */
typedef struct test_worker {
  pid_t pid;
  int in, out; /* we write to its stdin, read its stdout */
} test_worker;
test_worker test_spawn(const char *role, ...); /* const char *, ended by NULL */
/* Read one line of its output (without newline) into a static buffer; asserts
 * that it arrives within a minute (times test_patience()). */
const char *test_line(test_worker *w);
/* Send a line by a format.  test_answer() reads the answer, which must begin
 * with "ok", and returns the rest.  test_ask() does both. */
void test_tell(test_worker *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
const char *test_answer(test_worker *w);
#define test_ask(w, ...) (test_tell(w, __VA_ARGS__), test_answer(w))
/* A worker that takes commands, and has opened the database. */
test_worker test_worker_on(const char *db);
void test_say(test_worker *w, const char *line); /* and a newline */
int test_wait(test_worker *w);              /* as test_status(); closes pipes */
void test_kill(test_worker *w, int signal); /* -9 also waits for its end */

/* Stop this process's child `pid`, which uses the database `db`, at a moment
 * when it does not hold the gate.  Returns after it has stopped.  A process
 * that is stopped with the gate blocks all other changes (P10), and a test
 * about something else would fail once in a thousand runs. */
void test_stop(pid_t pid, const char *db);

#endif
