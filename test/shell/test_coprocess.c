/* test_coprocess.c - `zke FILE --coprocess`: what a transcript cannot show
 *
 * The other tests are in test/shell/coprocess.txt.  Here are full outputs, the
 * parent's end, and the terminal.  Each test starts the command with a pipe at
 * each end and speaks to it line by line.  It also opens the database itself,
 * to look from outside.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* memory figures mean nothing then */
#else
enum { SANITIZED = 0 };
#endif
enum { WITHIN = 40000 /* ms: what takes longer never comes */ };

/* ---- a coprocess ---- */

typedef struct copro {
  pid_t pid;
  int in, out; /* we write to in, read from out; -1: closed */
  char *data;  /* read, but not yet taken */
  size_t len, room;
} copro;

/* In a child: make these the standard input and output. */
static void become_zke(int in, int out) {
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  execl(test_zke(), "zke", test_path("a.db"), "--coprocess", (char *)NULL);
  _exit(127);
}

/* Start `zke a.db --coprocess` in the test's directory, with pipes to and from
 * it. */
static copro copro_start(void) {
  int in[2], out[2];
  copro p = {0};
  test_path("a.db"); /* the directory is this process's, not the child's */
  ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
  ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
  p.pid = fork();
  ck_assert_int_ge(p.pid, 0);
  if (p.pid == 0) become_zke(in[0], out[1]);
  close(in[0]);
  close(out[1]);
  p.in = in[1];
  p.out = out[0];
  return p;
}

/* Write all bytes, in as many pieces as necessary. */
static void say_bytes(copro *p, const char *data, size_t len) {
  while (len > 0) {
    ssize_t n = write(p->in, data, len);
    ck_assert_int_gt(n, 0);
    data += n;
    len -= (size_t)n;
  }
}

/* Send a request: a line in which ' stands for ", to be readable in C. */
static void say(copro *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(copro *p, const char *format, ...) {
  char line[8192];
  va_list arguments;
  va_start(arguments, format);
  int len = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  ck_assert_int_lt(len, (int)sizeof line - 1);
  for (char *at = line; *at; at++)
    if (*at == '\'') *at = '"';
  line[len] = '\n';
  say_bytes(p, line, (size_t)len + 1);
}

/* Read what has arrived; false at the end of output. */
static bool hear_more(copro *p) {
  struct pollfd fd = {p->out, POLLIN, 0};
  ck_assert_msg(poll(&fd, 1, WITHIN) == 1, "no answer; read so far: %.*s",
                (int)(p->len < 500 ? p->len : 500), p->data ? p->data : "");
  if (p->room < p->len + 65536) {
    p->room = (p->len + 65536) * 2;
    p->data = realloc(p->data, p->room);
    ck_assert_ptr_nonnull(p->data);
  }
  ssize_t n = read(p->out, p->data + p->len, 65536);
  ck_assert_int_ge(n, 0);
  p->len += (size_t)n;
  return n > 0;
}

/* The next line, which the caller frees; NULL at the end of output. */
static char *hear(copro *p) {
  char *end;
  size_t looked = 0;
  while (!(end = p->len > looked
                     ? memchr(p->data + looked, '\n', p->len - looked)
                     : NULL)) {
    looked = p->len;
    if (hear_more(p)) continue;
    ck_assert_msg(p->len == 0, "the last line has no end: %.*s", (int)p->len,
                  p->data);
    return NULL;
  }
  size_t len = (size_t)(end - p->data);
  char *line = strndup(p->data, len);
  ck_assert_ptr_nonnull(line);
  p->len -= len + 1;
  memmove(p->data, end + 1, p->len);
  return line;
}

/* Does a line match a pattern?  ' stands for ", * for any text. */
static bool fits(const char *line, const char *pattern) {
  for (; *pattern; line++, pattern++) {
    if (*pattern == '*') {
      while (!fits(line, pattern + 1))
        if (!*line++) return false;
      return true;
    }
    if (*line != (*pattern == '\'' ? '"' : *pattern)) return false;
  }
  return !*line;
}

/* The next line must match. */
static void expect(copro *p, const char *pattern) {
  char *line = hear(p);
  ck_assert_msg(line != NULL, "the output has ended; expected %s", pattern);
  ck_assert_msg(fits(line, pattern), "got  %.600s\nwant %s", line, pattern);
  free(line);
}

static void expect_end(copro *p) {
  char *line = hear(p);
  ck_assert_msg(line == NULL, "not the end, but %s", line);
}

static void copro_close(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Exit status, or 128 + signal. */
static int copro_status(copro *p) {
  int status = 0;
  pid_t ended = 0;
  ck_until(ended || (ended = waitpid(p->pid, &status, WNOHANG)), WITHIN);
  ck_assert_int_eq(ended, p->pid);
  copro_close(&p->in);
  copro_close(&p->out);
  free(p->data);
  p->data = NULL;
  return test_status(status);
}

/* The ordinary end: the coprocess prints nothing more and exits with 0. */
static void copro_end(copro *p) {
  copro_close(&p->in);
  expect_end(p);
  ck_assert_int_eq(copro_status(p), 0);
}

/* How many znodes are in a lock's line. */
static int count_children(zke *z, const char *path) {
  zke_strings *names = NULL;
  if (zke_children(z, path, NULL, NULL, &names, NULL) != ZKE_OK) return 0;
  int count = names->count;
  zke_free(names);
  return count;
}

/* One coprocess held a lock and has ended; the other gets the lock, and nothing
 * else is left. */
static void check_handed_over(copro *heir) {
  expect(heir, "{'id':'heir','status':0,*");
  copro_end(heir);
}

/* Start another coprocess, which waits for the lock x. */
static copro heir_of(zke *z) {
  copro heir = copro_start();
  say(&heir, "{'id':'heir','run':['lock','x']}");
  ck_until(count_children(z, "/locks/x") == 2, WITHIN);
  return heir;
}

/* ---- readers that do not read ---- */

/* A number of /proc/PID/status: "Threads:", "VmRSS:" (KiB). */
static long status_number(const copro *p, const char *name) {
  char file[64], line[256];
  long number = -1;
  snprintf(file, sizeof file, "/proc/%d/status", (int)p->pid);
  FILE *in = fopen(file, "r");
  ck_assert_ptr_nonnull(in);
  while (number < 0 && fgets(line, sizeof line, in))
    if (strncmp(line, name, strlen(name)) == 0)
      number = atol(line + strlen(name));
  (void)fclose(in);
  ck_assert_int_ge(number, 0);
  return number;
}

/* Start a child that sends `count` requests for /t, in long lines; each has its
 * number as its id. */
static pid_t ask_ahead(copro *p, int count) {
  pid_t writer = fork();
  ck_assert_int_ge(writer, 0);
  if (writer != 0) return writer;
  for (int i = 0; i < count; i++)
    say(p, "{'id':%d,'run':['get','/t'],'actor':%6000d}", i, i);
  _exit(0);
}

/* Expect the answers to requests 0 to count - 1, in any order: each comes once
 * and matches. */
static void answers_to(copro *p, int count, const char *pattern) {
  char *answered = calloc((size_t)count, 1);
  ck_assert_ptr_nonnull(answered);
  for (int i = 0; i < count; i++) {
    char *line = hear(p);
    int id = -1;
    ck_assert_ptr_nonnull(line);
    ck_assert_msg(fits(line, pattern), "got  %.600s\nwant %s", line, pattern);
    ck_assert_int_eq(sscanf(line, "{\"id\":%d", &id), 1);
    ck_assert(id >= 0 && id < count && !answered[id]);
    answered[id] = 1;
    free(line);
  }
  free(answered);
}

/* A client that sends without reading costs bounded memory, however long it
 * goes on; when it reads, it gets all answers. */
TEST(a_client_that_never_reads_costs_bounded_memory) {
  enum { COUNT = 1700, MOST_KIB = 100 << 10 };
  size_t size = SANITIZED ? 1000 : (size_t)test_sample(100000, 65000);
  if (!SANITIZED) ck_assert_uint_gt(COUNT * size, MOST_KIB << 10);
  copro p = copro_start();
  char *line = malloc(size + 100);
  int len = sprintf(line, "{\"id\":0,\"run\":[\"create\",\"/t\",\"");
  memset(line + len, 'z', size);
  strcpy(line + len + size, "\"]}\n");
  say_bytes(&p, line, strlen(line));
  free(line);
  expect(&p, "{'id':0,'status':0,*");
  pid_t writer = ask_ahead(&p, COUNT);
  /* All stands still when requests are left in the pipe and nothing moves.  If
   * all had been read, the writer would have ended. */
  long before[2] = {-1, -1};
  for (int same = 0; same < 500; test_pause()) {
    int unread = 0;
    ck_assert_int_eq(waitpid(writer, NULL, WNOHANG), 0);
    ck_assert_int_eq(ioctl(p.in, FIONREAD, &unread), 0);
    long now[2] = {status_number(&p, "Threads:"), unread};
    if (!SANITIZED) ck_assert_int_le(status_number(&p, "VmRSS:"), MOST_KIB);
    bool stands = unread > 0 && memcmp(now, before, sizeof now) == 0;
    same = stands ? same + 1 : 0;
    memcpy(before, now, sizeof now);
  }
  answers_to(&p, COUNT, "{'id':*,'status':0,'rows':[{*'data':'zzz*");
  ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
  copro_end(&p);
}

/* A slow reader gets every line, and each line whole. */
TEST(a_slow_reader_gets_every_line_whole) {
  enum { COUNT = 60, SIZE = 50000 };
  copro p = copro_start();
  char *line = malloc(SIZE + 100), *text = malloc(SIZE + 1);
  memset(text, 'z', SIZE);
  text[SIZE] = '\0';
  say_bytes(&p, line,
            (size_t)sprintf(
                line, "{\"id\":1,\"run\":[\"create\",\"/t\",\"%s\"]}\n", text));
  expect(&p, "{'id':1,'status':0,*");
  for (int i = 0; i < COUNT; i++) say(&p, "{'id':%d,'run':['get','/t']}", i);
  /* The pipe is full before the first line is read. */
  struct pollfd fd = {p.out, POLLIN, 0};
  ck_assert_int_eq(poll(&fd, 1, WITHIN), 1);
  for (int i = 0; i < COUNT; i++) {
    char *answer = hear(&p);
    ck_assert(fits(answer, "{'id':*,'status':0,'rows':[{*'data':'z*"));
    const char *z = strchr(answer, 'z');
    ck_assert_uint_eq(strspn(z, "z"), SIZE);
    free(answer);
    test_pause();
  }
  free(line);
  free(text);
  copro_end(&p);
}

/* ---- the end ---- */

/* Start a coprocess that holds the lock x. */
static copro holder(void) {
  copro p = copro_start();
  say(&p, "{'id':1,'run':['lock','x']}");
  expect(&p, "{'id':1,'status':0,*");
  return p;
}

/* Ask for more than the pipe holds, and read none of it. */
static void fill_output(copro *p) {
  char line[4096];
  memset(line, 'x', 3000);
  memcpy(line, "{\"id\":\"", 7);
  strcpy(line + 3000, "\",\"run\":[\"pwd\"]}\n");
  for (int i = 0; i < 100; i++) {
    memcpy(line + 7, (char[]){(char)('a' + i / 26), (char)('a' + i % 26)}, 2);
    say_bytes(p, line, strlen(line));
  }
}

/* A signal ends a coprocess whose output is full and not read. */
TEST(a_signal_ends_one_whose_output_is_full) {
  copro p = holder();
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z);
  fill_output(&p);
  kill(p.pid, SIGTERM);
  check_handed_over(&heir);
  ck_assert_int_eq(copro_status(&p), 128 + SIGTERM);
  ck_ok(zke_close(z));
}

/* ---- the parent ---- */

/* A process between this one and the coprocess, as its parent.  The pipes are
 * ours, and stay open after the parent's end. */
typedef struct family {
  pid_t parent;
  int tell, told; /* to the parent, and back */
} family;

/* A thread that starts the coprocess, and ends before it does. */
static void *start_in_thread(void *arg) {
  copro *p = arg;
  p->pid = fork();
  if (p->pid == 0) become_zke(p->in, p->out);
  return NULL;
}

/* Be the parent, whose starting thread ends first; exit when told. */
static _Noreturn void be_parent(copro *p, int tell, int told) {
  pthread_t thread;
  char byte;
  if (pthread_create(&thread, NULL, start_in_thread, p) != 0) _exit(1);
  pthread_join(thread, NULL);
  if (write(told, &p->pid, sizeof p->pid) < 0) _exit(1);
  _exit(read(tell, &byte, 1) < 0);
}

/* Start a coprocess whose parent is another process, which can be told to end;
 * p speaks to the coprocess nevertheless. */
static family family_start(copro *p) {
  int in[2], out[2], tell[2], told[2];
  family f;
  test_path("a.db");
  ck_assert_int_eq(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
  ck_assert_int_eq(pipe2(tell, O_CLOEXEC) + pipe2(told, O_CLOEXEC), 0);
  *p = (copro){.in = in[0], .out = out[1]};
  f.parent = fork();
  if (f.parent == 0) {
    close(in[1]); /* our ends are then the last ones */
    close(tell[1]);
    be_parent(p, tell[0], told[1]);
  }
  close(in[0]);
  close(out[1]);
  close(tell[0]);
  close(told[1]);
  f.tell = tell[1];
  f.told = told[0];
  *p = (copro){.in = in[1], .out = out[0]};
  ck_assert_int_eq(read(f.told, &p->pid, sizeof p->pid), sizeof p->pid);
  return f;
}

/* The end of the thread that started the coprocess does not matter. */
TEST(the_end_of_the_thread_that_started_it_is_nothing) {
  copro p;
  family f = family_start(&p);
  for (int i = 0; i < 20; i++) {
    say(&p, "{'id':%d,'run':['lock','x%d']}", i, i);
    expect(&p, "{'id':*,'status':0,*");
  }
  copro_close(&p.in);
  close(f.tell); /* it has the output's other end, too */
  ck_assert_int_eq(waitpid(f.parent, NULL, 0), f.parent);
  expect_end(&p);
  copro_close(&p.out);
  free(p.data);
}

/* The parent is killed while we hold both pipes: the session ends, running
 * requests are answered, and the coprocess exits. */
TEST(the_parents_death_is_an_end) {
  copro p;
  ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  family f = family_start(&p);
  say(&p, "{'id':1,'run':['lock','x']}");
  expect(&p, "{'id':1,'status':0,*");
  say(&p, "{'id':'w','run':['watch','/a']}");
  expect(&p, "{'id':'w','event':{'event':'watching',*");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z);
  kill(f.parent, SIGKILL);
  expect(&p, "{'id':'w','status':75,*");
  check_handed_over(&heir);
  expect_end(&p);
  ck_assert_int_eq(copro_status(&p), 0);
  ck_ok(zke_close(z));
}

/* The same with a full output pipe. */
TEST(the_parents_death_is_an_end_with_a_full_output) {
  copro p;
  ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  family f = family_start(&p);
  say(&p, "{'id':1,'run':['lock','x']}");
  expect(&p, "{'id':1,'status':0,*");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z);
  fill_output(&p);
  kill(f.parent, SIGKILL);
  check_handed_over(&heir);
  ck_assert_int_eq(copro_status(&p), 0);
  ck_ok(zke_close(z));
}

/* In a child: be a terminal's session and become the coprocess.  Its parent
 * must handle Ctrl-C itself. */
static _Noreturn void be_terminal_session(int in, int out, int master) {
  close(master);
  setsid();
  int slave = open(getenv("TEST_TERMINAL"), O_RDWR); /* controls from here */
  if (slave < 0) _exit(126);
  become_zke(in, out);
  _exit(127);
}

/* The terminal's ^C and ^\ are for its parent and do not end it; a SIGINT sent
 * by a process does. */
TEST(keys_of_the_terminal_do_not_end_it) {
  int in[2], out[2], master = test_terminal();
  setenv("TEST_TERMINAL", ptsname(master), 1);
  ck_assert_int_eq(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
  test_path("a.db");
  copro p = {.in = in[1], .out = out[0]};
  p.pid = fork();
  if (p.pid == 0) be_terminal_session(in[0], out[1], master);
  close(in[0]);
  close(out[1]);
  say(&p, "{'id':1,'run':['lock','x']}");
  expect(&p, "{'id':1,'status':0,*");
  ck_assert_int_eq(write(master, "\003\034", 2), 2);
  say(&p, "{'id':2,'run':['release','x']}");
  expect(&p, "{'id':2,'status':0,*");
  /* The kernel keeps only one SIGINT pending, and it may still be the
   * keyboard's: send it again until the end. */
  struct pollfd end = {p.out, POLLIN, 0};
  do kill(p.pid, SIGINT);
  while (poll(&end, 1, 100) == 0);
  expect_end(&p);
  ck_assert_int_eq(copro_status(&p), 128 + SIGINT);
  close(master);
}
