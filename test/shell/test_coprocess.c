/* test_coprocess.c - `zke FILE --coprocess`: doc/coprocess.md is its promise
 *
 * Each test starts the command with a pipe at either end and speaks to it line
 * by line.  The database is also opened here, to look from outside.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* what memory costs then says nothing */
#else
enum { SANITIZED = 0 };
#endif
enum { WITHIN = 40000 /* ms: what does not come by then does not come */ };

/* ---- a coprocess ---- */

typedef struct copro {
  pid_t pid;
  int in, out; /* we write to in, read from out; -1: closed */
  char *data;  /* what was read and not taken yet */
  size_t len, room;
} copro;

/* In a child: standard input and output are these. */
static void become_zke(int in, int out, const char *name) {
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  execl(test_zke(), "zke", test_path(name), "--coprocess", (char *)NULL);
  _exit(127);
}

/* Start `zke FILE --coprocess` in the test's directory, with pipes to and from
 * it. */
static copro copro_start(const char *name) {
  int in[2], out[2];
  copro p = {0};
  test_path(name); /* the directory is this process's, not the child's */
  ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
  ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
  p.pid = fork();
  ck_assert_int_ge(p.pid, 0);
  if (p.pid == 0) become_zke(in[0], out[1], name);
  close(in[0]);
  close(out[1]);
  p.in = in[1];
  p.out = out[0];
  return p;
}

/* Write all of it, in as many pieces as it takes. */
static void say_bytes(copro *p, const char *data, size_t len) {
  while (len > 0) {
    ssize_t n = write(p->in, data, len);
    ck_assert_int_gt(n, 0);
    data += n;
    len -= (size_t)n;
  }
}

/* Send a request: a line with ' for ", which is easier to read in C. */
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

/* Reads what has come; false at the end of output. */
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

/* The next line, for free(); NULL at the end of output. */
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

/* The ordinary end: nothing more is said, and the status is 0. */
static void copro_end(copro *p) {
  copro_close(&p->in);
  expect_end(p);
  ck_assert_int_eq(copro_status(p), 0);
}

/* Waits until as many znodes stand in a lock's line. */
static int count_children(zke *z, const char *path) {
  zke_strings *names = NULL;
  if (zke_children(z, path, NULL, NULL, &names, NULL) != ZKE_OK) return 0;
  int count = names->count;
  zke_free(names);
  return count;
}

/* Two coprocesses: one holds a lock and ends, in this way; the other gets it,
 * and nothing else was left. */
static void check_handed_over(copro *heir) {
  expect(heir, "{'id':'heir','status':0,*");
  copro_end(heir);
}

/* Another coprocess, which waits for the lock x. */
static copro heir_of(zke *z, const char *name) {
  copro heir = copro_start(name);
  say(&heir, "{'id':'heir','run':['lock','x']}");
  ck_until(count_children(z, "/locks/x") == 2, WITHIN);
  return heir;
}

/* ---- requests and answers ---- */

/* The answer to a request bears its id, whatever scalar that is. */
TEST(an_answer_bears_its_requests_id) {
  static const char *const ids[] = {"1",      "-7",    "1.5",
                                    "'text'", "''",    "'\\u00e9'",
                                    "true",   "false", "9223372036854775807"};
  copro p = copro_start("a.db");
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    char want[256];
    say(&p, "{'id':%s,'run':['pwd']}", ids[i]);
    snprintf(want, sizeof want, "{'id':%s,'status':0,'rows':[{'path':'/'}]}",
             strcmp(ids[i], "'\\u00e9'") ? ids[i] : "'\xc3\xa9'");
    expect(&p, want);
  }
  copro_end(&p);
}

/* Members may stand in any order, with blanks between them, and a carriage
 * return before the newline. */
TEST(members_stand_in_any_order_with_blanks) {
  copro p = copro_start("a.db");
  say(&p, "  { 'run' : [ 'pwd' ] ,\t'actor':'x', 'id' : 1 }  \r");
  expect(&p, "{'id':1,'status':0,'rows':[{'path':'/'}]}");
  copro_end(&p);
}

/* Words may be strings, numbers and bytes. */
TEST(words_are_strings_numbers_or_bytes) {
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':['create','/n',12]}");
  expect(&p, "{'id':1,'status':0,'rows':[*]}");
  say(&p, "{'id':2,'run':['get','/n']}");
  expect(&p, "{'id':2,'status':0,'rows':[{*'data':'12'*}]}");
  say(&p, "{'id':3,'run':['set','/n',0.1]}");
  expect(&p, "{'id':3,'status':0,*");
  say(&p, "{'id':4,'run':['get','/n']}");
  expect(&p, "{'id':4,'status':0,'rows':[{*'data':'0.1'*}]}");
  say(&p, "{'id':5,'run':['set','/n','--',-3]}");
  expect(&p, "{'id':5,'status':0,*");
  say(&p, "{'id':6,'run':['get','/n']}");
  expect(&p, "{'id':6,'status':0,'rows':[{*'data':'-3'*}]}");
  copro_end(&p);
}

/* Bytes go in and come out as {"base64": …}, NULs and what is not UTF-8
 * included; text comes out as text whichever way it went in. */
TEST(bytes_go_in_and_come_out_as_base64) {
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':['create','/b',{'base64':'AP8K'}]}");
  expect(&p, "{'id':1,'status':0,*");
  say(&p, "{'id':2,'run':['get','/b']}");
  expect(&p, "{'id':2,'status':0,'rows':[{*'data':{'base64':'AP8K'}*}]}");
  say(&p, "{'id':3,'run':['set','/b','a\\u0000b']}");
  expect(&p, "{'id':3,'status':0,*");
  say(&p, "{'id':4,'run':['get','/b']}");
  expect(&p, "{'id':4,'status':0,'rows':[{*'data':{'base64':'YQBi'}*}]}");
  say(&p, "{'id':5,'run':['set','/b',{'base64':'w6k='}]}");
  expect(&p, "{'id':5,'status':0,*");
  say(&p, "{'id':6,'run':['get','/b']}");
  expect(&p, "{'id':6,'status':0,'rows':[{*'data':'\xc3\xa9'*}]}");
  say(&p, "{'id':7,'run':['get','/b\\u0000c']}");
  expect(&p, "{'id':7,'status':65,'rows':[],'error':'BADARGUMENTS',*");
  copro_end(&p);
}

/* A failure has the code and the sentence that the command line prints. */
TEST(a_failure_has_its_code_and_sentence) {
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':['create','/a','x']}");
  expect(&p, "{'id':1,'status':0,*");
  say(&p, "{'id':2,'run':['get','/nope']}");
  expect(&p,
         "{'id':2,'status':1,'rows':[],'error':'NONODE','message':'*/nope*'}");
  say(&p, "{'id':3,'run':['gett','/a']}");
  expect(&p, "{'id':3,'status':64,'rows':[],'error':'USAGE','message':*get*");
  say(&p, "{'id':4,'run':['set']}");
  expect(&p, "{'id':4,'status':64,'rows':[],'error':'USAGE',*usage: set*");
  say(&p, "{'id':5,'run':['create','/a','x']}");
  expect(&p, "{'id':5,'status':1,'rows':[],'error':'NODEEXISTS',*");
  copro_end(&p);
}

/* A message is a string, whatever bytes the culprit's name has. */
TEST(a_message_is_text_whatever_it_quotes) {
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':[{'base64':'/27+'}]}");
  expect(&p, "{'id':1,'status':64,*'message':'unknown command \\'?n?\\'*'}");
  copro_end(&p);
}

/* What cannot be had in a coprocess says so. */
TEST(what_a_coprocess_lacks_is_refused) {
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':['exit']}");
  expect(&p, "{'id':1,'status':64,*'error':'USAGE',*");
  say(&p, "{'id':2,'run':['lock','x','--','true']}");
  expect(&p, "{'id':2,'status':64,*'error':'USAGE',*");
  say(&p, "{'id':3,'run':['create','/a','-i','-']}");
  expect(&p, "{'id':3,'status':64,*'error':'USAGE',*");
  copro_end(&p);
}

/* Lines that are no requests; what the answer has for an id, and says. */
static const struct {
  const char *line, *id, *says;
} malformed[] = {
    {"", "null", "not JSON"},
    {"hello", "null", "not JSON"},
    {"{'id':1", "null", "not JSON"},
    {"{'id':1,'run':['pwd']} x", "null", "not JSON"},
    {"{'id':1,'id':2,'run':['pwd']}", "null", "not JSON"},
    {"{'id':1,'run':['\xff']}", "null", "not JSON"},
    {"{'id':123456789012345678901234567890,'run':['pwd']}", "null", "not JSON"},
    {"[]", "null", "object"},
    {"17", "null", "not JSON"},
    {"{}", "null", "id"},
    {"{'run':['pwd']}", "null", "id"},
    {"{'id':null,'run':['pwd']}", "null", "id"},
    {"{'id':[1],'run':['pwd']}", "null", "id"},
    {"{'id':8}", "8", "run"},
    {"{'id':8,'run':'pwd'}", "8", "run"},
    {"{'id':8,'run':[]}", "8", "run"},
    {"{'id':8,'run':[true]}", "8", "word"},
    {"{'id':8,'run':[['pwd']]}", "8", "word"},
    {"{'id':8,'run':['get',{'base64':'!'}]}", "8", "word"},
    {"{'id':8,'run':['get',{'base64':'','x':1}]}", "8", "word"},
    {"{'id':8,'run':['pwd'],'actor':null}", "8", "actor"},
    {"{'id':8,'run':['pwd'],'timeout':3}", "8", "nothing else"},
    {"{'id':8,'run':['pwd'],'cancel':3}", "8", "stands alone"},
    {"{'cancel':null}", "null", "id"},
};
enum { MALFORMED = sizeof malformed / sizeof *malformed };

/* A line that is no request gets an error that says why, with its id where it
 * has one; the next request works. */
TEST_LOOP(a_malformed_line_is_told_and_the_next_one_taken, 0, MALFORMED) {
  char want[256];
  copro p = copro_start("a.db");
  say(&p, "%s", malformed[_i].line);
  snprintf(want, sizeof want,
           "{'id':%s,'status':65,'rows':[],'error':'REQUEST',"
           "'message':'line 1: *%s*'}",
           malformed[_i].id, malformed[_i].says);
  expect(&p, want);
  say(&p, "{'id':8,'run':['pwd']}");
  expect(&p, "{'id':8,'status':0,'rows':[{'path':'/'}]}");
  copro_end(&p);
}

/* So is a NUL, wherever it stands. */
TEST(a_nul_is_malformed) {
  static const char line[] = "{\"id\":1,\"run\":[\"p\0wd\"]}\n\0\n";
  copro p = copro_start("a.db");
  say_bytes(&p, line, sizeof line - 1);
  expect(&p, "{'id':null,'status':65,*'line 1: not JSON*");
  expect(&p, "{'id':null,'status':65,*'line 2: not JSON*");
  copro_end(&p);
}

/* A line of more than 64 MiB is refused once, as soon as that is known, and
 * passed over to its end. */
TEST(a_line_that_is_too_long_is_refused_once) {
  enum { BLOCK = 1 << 20 };
  static char block[BLOCK];
  copro p = copro_start("a.db");
  memset(block, 'x', sizeof block);
  for (int i = 0; i < 130; i++) say_bytes(&p, block, sizeof block);
  expect(&p, "{'id':null,'status':65,*'line 1: longer than 67108864 bytes'}");
  say(&p, "{'id':1,'run':['pwd']}");
  say(&p, "{'id':2,'run':['pwd']}");
  expect(&p, "{'id':2,'status':0,'rows':[{'path':'/'}]}");
  copro_end(&p);
}

/* The last line counts without its newline, too. */
TEST(the_last_line_counts_without_its_newline) {
  static const char line[] = "{\"id\":1,\"run\":[\"pwd\"]}";
  copro p = copro_start("a.db");
  say_bytes(&p, line, sizeof line - 1);
  copro_close(&p.in);
  expect(&p, "{'id':1,'status':0,'rows':[{'path':'/'}]}");
  copro_end(&p);
}

/* Lines that come byte by byte, and many in one piece, are the same lines. */
TEST(lines_may_come_in_pieces) {
  static const char lines[] =
      "{\"id\":1,\"run\":[\"pwd\"]}\n{\"id\":2,\"run\":[\"pwd\"]}\n";
  copro p = copro_start("a.db");
  for (size_t i = 0; i < sizeof lines - 1; i++) say_bytes(&p, lines + i, 1);
  expect(&p, "{'id':*,'status':0,'rows':[{'path':'/'}]}");
  expect(&p, "{'id':*,'status':0,'rows':[{'path':'/'}]}");
  copro_end(&p);
}

/* ---- several at once ---- */

/* 5000 requests without waiting: each is answered once. */
TEST(each_of_many_at_once_is_answered_once) {
  enum { COUNT = 5000 };
  static int answers[COUNT];
  copro p = copro_start("a.db");
  say(&p, "{'id':'first','run':['create','/a','x']}");
  expect(&p, "{'id':'first','status':0,*");
  pid_t writer = fork();
  if (writer == 0) {
    for (int i = 0; i < COUNT; i++) say(&p, "{'id':%d,'run':['get','/a']}", i);
    _exit(0);
  }
  for (int i = 0; i < COUNT; i++) {
    char *line = hear(&p);
    int id = -1;
    ck_assert_ptr_nonnull(line);
    ck_assert_msg(fits(line, "{'id':*,'status':0,'rows':[{*'data':'x'*}]}"),
                  "%s", line);
    ck_assert_int_eq(sscanf(line, "{\"id\":%d", &id), 1);
    ck_assert_int_eq(answers[id]++, 0);
    free(line);
  }
  ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
  copro_end(&p);
}

/* All kinds of commands at once, the first of which have to open the database:
 * what one does is whole for another.  (For the thread sanitizer above all.) */
TEST(all_kinds_of_commands_run_at_once) {
  static const char *const commands[] = {"'create','/s-','x','-s'",
                                         "'ls','/'",
                                         "'cd','/'",
                                         "'pwd'",
                                         "'lock','m'",
                                         "'release','m'",
                                         "'held'",
                                         "'locks'",
                                         "'sem','-n','3','m','--wait','0'",
                                         "'release','m','semaphore'",
                                         "'queue','push','m','x'",
                                         "'queue','pop','m','--wait','0.01'",
                                         "'sessions'",
                                         "'waits'",
                                         "'get','/locks'",
                                         "'getacl','/'",
                                         "'set','/locks','x'",
                                         "'tree','/'",
                                         "'nonsense'",
                                         "'help'"};
  enum { KINDS = sizeof commands / sizeof *commands, ROUNDS = 15 };
  static int answers[KINDS * ROUNDS];
  copro p = copro_start("a.db");
  for (int i = 0; i < KINDS * ROUNDS; i++) {
    say(&p, "{'id':%d,'run':[%s],'actor':%d}", i, commands[i % KINDS], i);
    if (i % 50 == 49) say(&p, "{'cancel':%d}", i - 5);
  }
  /* Locks that nobody releases any more keep others waiting. */
  for (int i = 0; i < KINDS * ROUNDS;) {
    struct pollfd fd = {p.out, POLLIN, 0};
    int id = -1;
    if (p.len == 0 && poll(&fd, 1, 300) == 0) break;
    char *line = hear(&p);
    ck_assert_ptr_nonnull(line);
    ck_assert_int_eq(sscanf(line, "{\"id\":%d", &id), 1);
    ck_assert_int_eq(answers[id]++, 0);
    free(line);
    i++;
  }
  copro_close(&p.in);
  for (char *line; (line = hear(&p)) != NULL;) {
    int id = -1;
    ck_assert_int_eq(sscanf(line, "{\"id\":%d", &id), 1);
    ck_assert_int_eq(answers[id]++, 0);
    free(line);
  }
  for (int i = 0; i < KINDS * ROUNDS; i++) ck_assert_int_eq(answers[i], 1);
  ck_assert_int_eq(copro_status(&p), 0);
}

/* Of 200 requests that block none keeps another from running, and the end of
 * input ends all of them. */
TEST(blocked_requests_hold_up_no_others) {
  enum { COUNT = 200, LOCKS = 20 };
  copro p = copro_start("a.db");
  say(&p, "{'id':'mine','run':['lock','x']}");
  expect(&p, "{'id':'mine','status':0,*");
  for (int i = 0; i < LOCKS; i++) say(&p, "{'id':%d,'run':['lock','x']}", i);
  for (int i = LOCKS; i < COUNT; i++)
    say(&p, "{'id':%d,'run':['queue','pop','q']}", i);
  zke *z = test_open(test_path("a.db"));
  ck_until(count_children(z, "/locks/x") == LOCKS + 1, WITHIN);
  for (int i = 0; i < 10; i++) {
    say(&p, "{'id':'quick','run':['create','/n%d','x']}", i);
    expect(&p, "{'id':'quick','status':0,*");
  }
  copro_close(&p.in);
  for (int i = 0; i < COUNT; i++)
    expect(&p, "{'id':*,'status':75,'rows':[],'error':'CANCELLED',*");
  copro_end(&p);
  ck_assert_int_eq(count_children(z, "/locks/x"), 0);
  ck_ok(zke_close(z));
}

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

/* A child sends as many requests; each has its number as the id and, where the
 * format wants it, in the words. */
static pid_t send_ahead(copro *p, int count, const char *format) {
  pid_t writer = fork();
  ck_assert_int_ge(writer, 0);
  if (writer != 0) return writer;
  for (int i = 0; i < count; i++) {
    char line[8192];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(line, sizeof line, format, i, i);
#pragma GCC diagnostic pop
    say(p, "%s", line);
  }
  _exit(0);
}

/* The answers to requests 0 to count - 1, in whatever order: each comes once
 * and matches.  Gives the most threads that were seen meanwhile. */
static long answers_to(copro *p, int count, const char *pattern) {
  char *answered = calloc((size_t)count, 1);
  long threads = 0;
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
    long now = i % 20 ? 0 : status_number(p, "Threads:");
    if (now > threads) threads = now;
  }
  free(answered);
  return threads;
}

/* 3000 writes that are sent ahead are all done, by a few threads; a lock that
 * is waited for meanwhile is in nobody's way. */
TEST(writes_sent_ahead_need_few_threads) {
  enum { COUNT = 3000, FEW = 60 };
  copro p = copro_start("a.db");
  say(&p, "{'id':'mine','run':['lock','x']}");
  expect(&p, "{'id':'mine','status':0,*");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z, "a.db");
  say(&p, "{'id':'other','run':['lock','x']}");
  ck_until(count_children(z, "/locks/x") == 3, WITHIN);
  pid_t writer =
      send_ahead(&p, COUNT, "{\"id\":%d,\"run\":[\"create\",\"/n%d\",\"x\"]}");
  long threads = answers_to(&p, COUNT, "{'id':*,'status':0,*");
  ck_assert_int_le(threads, FEW);
  ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
  ck_assert_int_eq(count_children(z, "/"), COUNT + 2); /* locks, zookeeper */
  say(&p, "{'id':2,'run':['release','x']}");
  expect(&p, "{'id':2,'status':0,*");
  check_handed_over(&heir);
  expect(&p, "{'id':'other','status':0,*");
  copro_end(&p);
  ck_ok(zke_close(z));
}

/* So are requests that might wait, but need not; that these are more than the
 * line has room for is nothing to the client. */
TEST(more_than_fills_the_line_may_be_sent_ahead) {
  enum { COUNT = 4000 };
  copro p = copro_start("a.db");
  pid_t writer = send_ahead(
      &p, COUNT, "{\"id\":%d,\"run\":[\"queue\",\"push\",\"q\",\"%01500d\"]}");
  answers_to(&p, COUNT, "{'id':*,'status':0,*");
  ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
  copro_end(&p);
}

/* A thousand may wait; what waits beyond them stands in line, and neither keeps
 * from its turn what does not wait.  A cancel takes a request out of the line;
 * room lets the next one begin. */
TEST(a_thousand_wait_and_the_rest_stand_in_line) {
  enum { MOST = 1000, MORE = 200 };
  copro p = copro_start("a.db");
  for (int i = 0; i < MOST + MORE; i++)
    say(&p, "{'id':%d,'run':['queue','pop','q']}", i);
  say(&p, "{'id':'quick','run':['create','/quick','x']}");
  expect(&p, "{'id':'quick','status':0,*");
  ck_until(status_number(&p, "Threads:") >= MOST, WITHIN);
  say(&p, "{'id':'quick','run':['pwd']}");
  expect(&p, "{'id':'quick','status':0,*");
  ck_assert_int_le(status_number(&p, "Threads:"), MOST + 40);
  say(&p, "{'cancel':%d}", MOST + MORE - 1);
  expect(&p, "{'id':1199,'status':75,'rows':[],'error':'CANCELLED',*before*");
  for (int i = 0; i < MOST; i++) say(&p, "{'cancel':%d}", i);
  for (int i = 0; i < MOST; i++)
    expect(&p, "{'id':*,'status':75,'rows':[],'error':'CANCELLED',*");
  say(&p, "{'id':'push','run':['queue','push','q','x']}");
  for (int i = 0; i < 2; i++) expect(&p, "{'id':*,'status':0,*");
  copro_close(&p.in);
  for (int i = MOST + 2; i < MOST + MORE; i++)
    expect(&p, "{'id':*,'status':75,'rows':[],'error':'CANCELLED',*");
  copro_end(&p);
}

/* Where a thousand wait and the line behind them is full and stands still, the
 * further ones are told so (few enough for the pipe, so that we need not read);
 * what does not wait has its turn nevertheless. */
TEST(a_full_line_refuses_what_would_wait) {
  enum { COUNT = 2400 };
  copro p = copro_start("a.db");
  pid_t writer = send_ahead(
      &p, COUNT,
      "{\"id\":%d,\"run\":[\"queue\",\"pop\",\"q\"],\"actor\":%7500d}");
  ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
  say(&p, "{'id':'quick','run':['pwd']}");
  int refused = 0;
  char *line = hear(&p);
  for (; fits(line, "{'id':*,'status':75,*'error':'LIMIT',*"); refused++) {
    free(line);
    line = hear(&p);
    ck_assert_ptr_nonnull(line);
  }
  ck_assert_msg(fits(line, "{'id':'quick','status':0,*"), "%.600s", line);
  free(line);
  ck_assert_int_gt(refused, 0);
  copro_close(&p.in);
  for (int i = refused; i < COUNT; i++) expect(&p, "{'id':*,'status':75,*");
  copro_end(&p);
}

/* How long a request may wait counts from its turn: those behind a full house
 * are not timed out before it. */
TEST(time_in_the_line_does_not_count) {
  enum { MOST = 1000, IN_LINE_MS = 600 };
  copro p = copro_start("a.db");
  say(&p, "{'id':'held','run':['lock','x']}");
  expect(&p, "{'id':'held','status':0,*");
  for (int i = 0; i < MOST; i++)
    say(&p, "{'id':%d,'run':['queue','pop','q']}", i);
  ck_until(status_number(&p, "Threads:") >= MOST, WITHIN);
  int64_t began = test_now();
  say(&p, "{'id':'late','run':['lock','x','--wait',0.5]}");
  for (int i = 0; i < 50; i++) { /* any number of turns of the others */
    say(&p, "{'id':%d,'run':['create','/n%d','x']}", MOST + i, i);
    expect(&p, "{'id':1*,'status':0,*");
  }
  ck_until(test_now() >= began + IN_LINE_MS, WITHIN);
  say(&p, "{'id':'free','run':['release','x']}");
  expect(&p, "{'id':'free','status':0,*");
  say(&p, "{'cancel':0}");
  expect(&p, "{'id':0,'status':75,*'error':'CANCELLED',*");
  expect(&p, "{'id':'late','status':0,*");
  copro_close(&p.in);
  for (int i = 1; i < MOST; i++) expect(&p, "{'id':*,'status':75,*");
  copro_end(&p);
}

/* The end of input does what was sent, but waits for nobody. */
TEST(the_end_of_input_does_what_was_sent) {
  enum { COUNT = 500 };
  copro p = copro_start("a.db");
  say(&p, "{'id':'held','run':['lock','x']}");
  expect(&p, "{'id':'held','status':0,*");
  for (int i = 0; i < COUNT; i++) say(&p, "{'id':%d,'run':['lock','x']}", i);
  for (int i = 0; i < COUNT; i++)
    say(&p, "{'id':%d,'run':['create','/n%d','x']}", COUNT + i, i);
  copro_close(&p.in);
  int done = 0;
  for (int i = 0; i < 2 * COUNT; i++) {
    char *line = hear(&p);
    ck_assert_ptr_nonnull(line);
    if (fits(line, "{'id':*,'status':0,*"))
      done++;
    else
      ck_assert_msg(fits(line, "{'id':*,'status':75,*'error':'CANCELLED',*"),
                    "%.600s", line);
    free(line);
  }
  ck_assert_int_eq(done, COUNT);
  copro_end(&p);
  zke *z = test_open(test_path("a.db"));
  ck_assert_int_eq(count_children(z, "/"), COUNT + 2);
  ck_ok(zke_close(z));
}

/* The end of input is no reason to read half: what waits for nobody is done as
 * ever. */
TEST(the_end_of_input_cuts_no_read_short) {
  static const char *const reads[] = {"ls", "tree", "find", "dump", "metrics"};
  enum { COUNT = sizeof reads / sizeof *reads };
  ck_ok(zke_close(test_open(test_path("a.db"))));
  copro p = copro_start("a.db");
  for (int i = 0; i < COUNT; i++)
    say(&p, "{'id':%d,'run':['%s']}", i, reads[i]);
  copro_close(&p.in);
  for (int i = 0; i < COUNT; i++) expect(&p, "{'id':*,'status':0,'rows':[*");
  copro_end(&p);
}

/* A client that sends without reading costs bounded memory, for as long as it
 * likes; once it reads, it gets all. */
TEST(a_client_that_never_reads_costs_bounded_memory) {
  enum { COUNT = 1700, MOST_KIB = 100 << 10 };
  size_t size = SANITIZED ? 1000 : (size_t)test_sample(100000, 65000);
  if (!SANITIZED) ck_assert_uint_gt(COUNT * size, MOST_KIB << 10);
  copro p = copro_start("a.db");
  char *line = malloc(size + 100);
  int len = sprintf(line, "{\"id\":0,\"run\":[\"create\",\"/t\",\"");
  memset(line + len, 'z', size);
  strcpy(line + len + size, "\"]}\n");
  say_bytes(&p, line, strlen(line));
  free(line);
  expect(&p, "{'id':0,'status':0,*");
  pid_t writer = send_ahead(
      &p, COUNT, "{\"id\":%d,\"run\":[\"get\",\"/t\"],\"actor\":%6000d}");
  /* All stands when requests are left in the pipe and nothing moves.  Were all
   * read, the writer would have ended. */
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

/* An id is taken while its request runs, and free again with the answer. */
TEST(an_id_is_taken_while_its_request_runs) {
  copro p = copro_start("a.db");
  say(&p, "{'id':0,'run':['create','/a']}");
  expect(&p, "{'id':0,'status':0,*");
  say(&p, "{'id':1,'run':['watch','/a']}");
  expect(&p, "{'id':1,'event':{'event':'watching',*");
  say(&p, "{'id':1,'run':['pwd']}");
  expect(&p, "{'id':null,'status':65,'rows':[],'error':'REQUEST',*running*");
  say(&p, "{'cancel':1}");
  expect(&p, "{'id':1,'status':75,*'error':'CANCELLED',*");
  say(&p, "{'id':1,'run':['pwd']}");
  expect(&p, "{'id':1,'status':0,'rows':[{'path':'/'}]}");
  copro_end(&p);
}

/* A cancelled wait answers with CANCELLED and leaves the line; what was not
 * cancelled goes on. */
TEST(a_cancelled_wait_leaves_the_line) {
  copro p = copro_start("a.db");
  zke *z;
  say(&p, "{'id':1,'run':['lock','x']}");
  expect(&p, "{'id':1,'status':0,*");
  say(&p, "{'id':2,'run':['lock','x']}");
  z = test_open(test_path("a.db"));
  ck_until(count_children(z, "/locks/x") == 2, WITHIN);
  say(&p, "{'id':'three','run':['lock','x']}");
  ck_until(count_children(z, "/locks/x") == 3, WITHIN);
  say(&p, "{'cancel':2}");
  expect(&p, "{'id':2,'status':75,'rows':[],'error':'CANCELLED',*");
  ck_assert_int_eq(count_children(z, "/locks/x"), 2);
  say(&p, "{'id':4,'run':['release','x']}");
  for (int i = 0; i < 2; i++) expect(&p, "{'id':*,'status':0,*");
  copro_end(&p);
  ck_ok(zke_close(z));
}

/* A cancel right behind its request does not miss it; of what does not run any
 * more, or never did, there is nothing to cancel and nothing to say. */
TEST(a_cancel_right_behind_its_request_does_not_miss) {
  copro p = copro_start("a.db");
  say(&p, "{'id':0,'run':['lock','x']}");
  expect(&p, "{'id':0,'status':0,*");
  for (int i = 1; i <= 100; i++) {
    say(&p, "{'id':%d,'run':['lock','x']}\n{'cancel':%d}", i, i);
    expect(&p, "{'id':*,'status':75,'rows':[],'error':'CANCELLED',*");
  }
  say(&p, "{'cancel':0}");
  say(&p, "{'cancel':'stranger'}");
  say(&p, "{'id':'last','run':['pwd']}");
  expect(&p, "{'id':'last','status':0,*");
  copro_end(&p);
}

/* ---- much data ---- */

/* A megabyte, as text and as bytes, there and back. */
TEST(a_megabyte_goes_there_and_back) {
  enum { SIZE = 1 << 20, ROUND = 1398101 /* base64 of it, rounded down */ };
  copro p = copro_start("a.db");
  char *text = malloc(SIZE + 1), *line = malloc(2 * SIZE);
  memset(text, 'a', SIZE);
  text[SIZE] = '\0';
  int len =
      sprintf(line, "{\"id\":1,\"run\":[\"create\",\"/t\",\"%s\"]}\n", text);
  say_bytes(&p, line, (size_t)len);
  expect(&p, "{'id':1,'status':0,*");
  say(&p, "{'id':2,'run':['get','/t']}");
  char *answer = hear(&p);
  ck_assert_ptr_nonnull(strstr(answer, text));
  free(answer);
  char *bytes = malloc(ROUND + 8);
  memset(bytes, '/', ROUND / 4 * 4); /* ff ff ff */
  bytes[ROUND / 4 * 4] = '\0';
  len = sprintf(
      line, "{\"id\":3,\"run\":[\"set\",\"/t\",{\"base64\":\"%s\"}]}\n", bytes);
  say_bytes(&p, line, (size_t)len);
  expect(&p, "{'id':3,'status':0,*");
  say(&p, "{'id':4,'run':['get','/t']}");
  answer = hear(&p);
  ck_assert_ptr_nonnull(strstr(answer, bytes));
  free(answer);
  free(text);
  free(bytes);
  free(line);
  copro_end(&p);
}

/* A reader that takes its time gets every line, and each whole. */
TEST(a_slow_reader_gets_every_line_whole) {
  enum { COUNT = 60, SIZE = 50000 };
  copro p = copro_start("a.db");
  char *line = malloc(SIZE + 100), *text = malloc(SIZE + 1);
  memset(text, 'z', SIZE);
  text[SIZE] = '\0';
  say_bytes(&p, line,
            (size_t)sprintf(
                line, "{\"id\":1,\"run\":[\"create\",\"/t\",\"%s\"]}\n", text));
  expect(&p, "{'id':1,'status':0,*");
  for (int i = 0; i < COUNT; i++) say(&p, "{'id':%d,'run':['get','/t']}", i);
  /* The pipe is full before the first is read. */
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

/* ---- events ---- */

/* Events of a request come before its answer, and those of others between. */
TEST(events_come_before_their_answer) {
  copro p = copro_start("a.db");
  zke *z = test_open(test_path("a.db"));
  say(&p, "{'id':'w','run':['watch','/a','--follow']}");
  expect(&p, "{'id':'w','event':{'event':'watching',*");
  ck_ok(zke_create(z, "/a", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  expect(&p, "{'id':'w','event':{'event':'created','path':'/a',*}}");
  say(&p, "{'id':2,'run':['pwd']}");
  expect(&p, "{'id':2,'status':0,*");
  ck_ok(zke_set(z, "/a", "y", 1, -1, NULL));
  expect(&p, "{'id':'w','event':{'event':'changed','path':'/a',*}}");
  say(&p, "{'cancel':'w'}");
  expect(&p, "{'id':'w','status':*,'rows':[]*}");
  ck_ok(zke_close(z));
  copro_end(&p);
}

/* The session that owns the first node in a directory. */
static int64_t session_of(zke *z, const char *directory) {
  zke_strings *names = NULL;
  zke_stat stat = {0};
  char path[512];
  ck_ok(zke_children(z, directory, NULL, NULL, &names, NULL));
  ck_assert_int_ge(names->count, 1);
  snprintf(path, sizeof path, "%s/%s", directory, names->data[0]);
  ck_ok(zke_exists(z, path, NULL, NULL, &stat));
  zke_free(names);
  return stat.ephemeralOwner;
}

/* A lock that is lost is told at once, though no request runs, under the id of
 * the request that got it. */
TEST(a_lost_lock_is_told_at_once) {
  copro p = copro_start("a.db");
  say(&p, "{'id':'mine','run':['lock','x']}");
  expect(&p, "{'id':'mine','status':0,*");
  zke *z = test_open(test_path("a.db"));
  ck_ok(zke_expire(z, session_of(z, "/locks/x")));
  expect(
      &p,
      "{'id':'mine','event':{'event':'lost','kind':'lock','path':'/locks/x'}}");
  say(&p, "{'id':2,'run':['get','/']}");
  expect(&p, "{'id':2,'status':76,*");
  ck_ok(zke_close(z));
  copro_close(&p.in);
  expect_end(&p);
  copro_status(&p);
}

/* So is one whose znode somebody took away, and the session lives on. */
TEST(a_lock_without_its_znode_is_told_as_lost) {
  copro p = copro_start("a.db");
  zke_strings *names = NULL;
  char path[512];
  say(&p, "{'id':'other','run':['lock','y']}");
  expect(&p, "{'id':'other','status':0,*");
  say(&p, "{'id':'mine','run':['lock','x']}");
  expect(&p, "{'id':'mine','status':0,*");
  zke *z = test_open(test_path("a.db"));
  ck_ok(zke_children(z, "/locks/x", NULL, NULL, &names, NULL));
  snprintf(path, sizeof path, "/locks/x/%s", names->data[0]);
  ck_ok(zke_delete(z, path, -1));
  expect(
      &p,
      "{'id':'mine','event':{'event':'lost','kind':'lock','path':'/locks/x'}}");
  say(&p, "{'id':2,'run':['release','x']}");
  expect(&p, "{'id':2,'status':*,'rows':*,'error':*}");
  say(&p, "{'id':3,'run':['release','y']}");
  expect(&p, "{'id':3,'status':0,*");
  zke_free(names);
  ck_ok(zke_close(z));
  copro_end(&p);
}

/* Take the place at the barrier away; false: there is none. */
static bool delete_party(zke *z) {
  zke_strings *names = NULL;
  char path[512];
  bool deleted = false;
  int rc = zke_children(z, "/barriers/b", NULL, NULL, &names, NULL);
  if (rc != ZKE_OK) ck_rc(rc, ZKE_NONODE);
  for (int i = 0; rc == ZKE_OK && i < names->count; i++) {
    if (!strstr(names->data[i], "-party-")) continue;
    snprintf(path, sizeof path, "/barriers/b/%s", names->data[i]);
    deleted = zke_delete(z, path, -1) == ZKE_OK;
  }
  zke_free(names);
  return deleted;
}

/* One try to leave a barrier while another request keeps the store, which waits
 * for a writer.  Has the place stayed, and was taken away?  It goes by itself
 * if the leave comes first. */
static bool leave_in_vain(copro *p, zke *z) {
  sqlite3 *writer;
  ck_assert_int_eq(sqlite3_open(test_path("a.db"), &writer), SQLITE_OK);
  sqlite3_busy_timeout(writer, 10000);
  say(p, "{'id':'mine','run':['barrier','enter','b','-n','1']}");
  expect(p, "{'id':'mine','status':0,*");
  ck_assert_int_eq(sqlite3_exec(writer, "BEGIN IMMEDIATE", 0, 0, 0), SQLITE_OK);
  say(p, "{'id':'s','run':['set','/','x']}");
  say(p, "{'id':'w','run':['barrier','leave','b','--nonblock']}");
  struct timespec pause = {0, 400000000}; /* longer than ZKE_GRACE_MS */
  nanosleep(&pause, NULL);
  ck_assert_int_eq(sqlite3_exec(writer, "ROLLBACK", 0, 0, 0), SQLITE_OK);
  sqlite3_close(writer);
  for (int i = 0; i < 2; i++) free(hear(p)); /* in any order */
  return delete_party(z);
}

/* A leave that could not begin leaves the place where it was: its loss is told
 * then, as any. */
TEST(a_place_that_no_leave_gave_up_is_told_when_lost) {
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':['create','/begun']}");
  expect(&p, "{'id':1,'status':0,*");
  zke *z = test_open(test_path("a.db"));
  int tries = 0;
  while (!leave_in_vain(&p, z)) ck_assert_int_lt(++tries, 20);
  expect(
      &p,
      "{'id':'mine','event':{'event':'lost','kind':'party','path':'/barriers/"
      "b'}}");
  ck_ok(zke_close(z));
  copro_end(&p);
}

/* ---- who waits for whom ---- */

/* Two actors of one coprocess that wait for each other: the one that closed
 * the circle is told, and when it gives way the other goes on. */
TEST(the_actor_that_closes_a_circle_is_told) {
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':['lock','a'],'actor':'A'}");
  expect(&p, "{'id':1,'status':0,*");
  say(&p, "{'id':2,'run':['lock','b'],'actor':7}");
  expect(&p, "{'id':2,'status':0,*");
  say(&p, "{'id':3,'run':['lock','b'],'actor':'A'}");
  zke *z = test_open(test_path("a.db"));
  ck_until(count_children(z, "/locks/b") == 2, WITHIN);
  say(&p, "{'id':4,'run':['lock','a'],'actor':7}");
  expect(&p, "{'id':4,'status':75,'rows':[],'error':'DEADLOCK',*");
  say(&p, "{'id':5,'run':['release','b'],'actor':7}");
  for (int i = 0; i < 2; i++) expect(&p, "{'id':*,'status':0,*");
  copro_end(&p);
  ck_ok(zke_close(z));
}

/* The same requests without an actor are each by themselves: whoever holds b
 * may well give it back.  Nothing is said, and so it comes. */
TEST(requests_without_an_actor_make_no_circle) {
  copro p = copro_start("a.db");
  for (int i = 0; i < 2; i++) {
    say(&p, "{'id':%d,'run':['lock','%c']}", i, 'a' + i);
    expect(&p, "{'id':*,'status':0,*");
  }
  zke *z = test_open(test_path("a.db"));
  say(&p, "{'id':3,'run':['lock','b']}");
  ck_until(count_children(z, "/locks/b") == 2, WITHIN);
  say(&p, "{'id':4,'run':['lock','a']}");
  ck_until(count_children(z, "/locks/a") == 2, WITHIN);
  say(&p, "{'id':5,'run':['pwd']}");
  expect(&p, "{'id':5,'status':0,*");
  say(&p, "{'id':6,'run':['release','b']}");
  for (int i = 0; i < 2; i++) expect(&p, "{'id':*,'status':0,*");
  say(&p, "{'id':7,'run':['release','a']}");
  for (int i = 0; i < 2; i++) expect(&p, "{'id':*,'status':0,*");
  copro_end(&p);
  ck_ok(zke_close(z));
}

/* Nor do three actors in a row make a circle; and workers that served one
 * actor before do not count as it. */
TEST(actors_in_a_row_make_no_circle) {
  copro p = copro_start("a.db");
  for (int round = 0; round < 10; round++) {
    for (int i = 0; i < 3; i++) {
      say(&p, "{'id':%d,'run':['lock','%c'],'actor':%d}", i, 'a' + i, i);
      expect(&p, "{'id':*,'status':0,*");
    }
    say(&p, "{'id':10,'run':['lock','b'],'actor':0}");
    say(&p, "{'id':12,'run':['lock','c'],'actor':1}");
    for (int i = 2; i >= 0; i--)
      say(&p, "{'id':%d,'run':['release','%c'],'actor':%d}", 20 + i, 'a' + i,
          i);
    for (int i = 0; i < 7; i++) {
      char *line = hear(&p);
      ck_assert_msg(fits(line, "{'id':*,'status':0,*"), "%s", line);
      if (fits(line, "{'id':10,*")) say(&p, "{'id':30,'run':['release','b']}");
      if (fits(line, "{'id':12,*")) say(&p, "{'id':32,'run':['release','c']}");
      free(line);
    }
  }
  copro_end(&p);
}

/* ---- the end ---- */

/* A coprocess that holds the lock x. */
static copro holder(const char *name) {
  copro p = copro_start(name);
  say(&p, "{'id':1,'run':['lock','x']}");
  expect(&p, "{'id':1,'status':0,*");
  return p;
}

/* When its input ends the coprocess gives up what it holds, and exits 0. */
TEST(the_end_of_input_gives_up_what_is_held) {
  copro p = holder("a.db");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z, "a.db");
  copro_close(&p.in);
  check_handed_over(&heir);
  expect_end(&p);
  ck_assert_int_eq(copro_status(&p), 0);
  ck_ok(zke_close(z));
}

/* Killed by -9 it holds nothing: the next process gets the lock. */
TEST(a_killed_coprocess_holds_nothing) {
  copro p = holder("a.db");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z, "a.db");
  kill(p.pid, SIGKILL);
  check_handed_over(&heir);
  ck_assert_int_eq(copro_status(&p), 128 + SIGKILL);
  ck_ok(zke_close(z));
}

static const int signals[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1};
/* A signal ends the running requests with their status, then gives up the lock,
 * then ends the process by 128 + signal. */
TEST_LOOP(a_signal_ends_the_requests_before_the_process, 0,
          sizeof signals / sizeof *signals) {
  copro p = holder("a.db");
  char want[128];
  say(&p, "{'id':'w','run':['watch','/a']}");
  expect(&p, "{'id':'w','event':{'event':'watching',*");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z, "a.db");
  kill(p.pid, signals[_i]);
  snprintf(want, sizeof want,
           "{'id':'w','status':%d,'rows':[],'error':'INTERRUPTED',*",
           128 + signals[_i]);
  expect(&p, want);
  check_handed_over(&heir);
  expect_end(&p);
  ck_assert_int_eq(copro_status(&p), 128 + signals[_i]);
  ck_ok(zke_close(z));
}

/* Whatever it does, at that moment or between. */
TEST(a_signal_may_come_at_any_time) {
  for (int i = 0; i < 20; i++) {
    copro p = copro_start("a.db");
    say(&p, "{'id':1,'run':['pwd']}");
    expect(&p, "{'id':1,'status':0,*");
    for (int j = 0; j < i; j++) say(&p, "{'id':'%d','run':['lock','x']}", j);
    kill(p.pid, SIGTERM);
    while (hear_more(&p)) continue;
    ck_assert_int_eq(copro_status(&p), 128 + SIGTERM);
  }
}

/* A full pipe that nobody reads does not keep it from ending. */
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

/* The same while nobody reads its full output. */
TEST(a_signal_ends_one_whose_output_is_full) {
  copro p = holder("a.db");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z, "a.db");
  fill_output(&p);
  kill(p.pid, SIGTERM);
  check_handed_over(&heir);
  ck_assert_int_eq(copro_status(&p), 128 + SIGTERM);
  ck_ok(zke_close(z));
}

/* Nobody reads any more: that is an end, also when there is nothing to say. */
TEST(a_closed_output_is_an_end) {
  copro p = holder("a.db");
  copro_close(&p.out);
  ck_assert_int_eq(copro_status(&p), 74);
}

/* An output that is closed while it is written to ends it with 74. */
TEST(an_output_closed_while_it_is_written_is_an_end) {
  copro p = holder("a.db");
  fill_output(&p);
  copro_close(&p.out);
  ck_assert_int_eq(copro_status(&p), 74);
}

/* So does one that cannot be written, an end of input before
 * notwithstanding. */
TEST_LOOP(an_output_that_cannot_be_written_is_an_end, 0, 2) {
  int full = open("/dev/full", O_WRONLY | O_CLOEXEC), in[2];
  ck_assert_int_ge(full, 0);
  ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
  copro p = {.in = in[1], .out = -1};
  test_path("a.db");
  p.pid = fork();
  if (p.pid == 0) become_zke(in[0], full, "a.db");
  close(in[0]);
  close(full);
  say(&p, "{'id':1,'run':['pwd']}");
  if (_i) copro_close(&p.in); /* an end of input does not excuse it */
  ck_assert_int_eq(copro_status(&p), 74);
}

/* A database that cannot be had is the answer to each request. */
TEST(each_request_is_told_that_there_is_no_database) {
  copro p = copro_start("missing/a.db");
  say(&p, "{'id':1,'run':['create','/a','x']}");
  expect(&p, "{'id':1,'status':66,'rows':[],'error':'CANTOPEN',*");
  say(&p, "{'id':2,'run':['pwd']}");
  expect(&p, "{'id':2,'status':0,*");
  copro_end(&p);
}

/* ---- the parent ---- */

/* A parent in between starts the coprocess; its pipes are ours, so that they
 * stay open whatever becomes of it. */
typedef struct family {
  pid_t parent;
  int tell, told; /* we to the parent, and back */
} family;

/* A thread that starts the coprocess, and ends before it. */
static void *start_in_thread(void *arg) {
  copro *p = arg;
  p->pid = fork();
  if (p->pid == 0) become_zke(p->in, p->out, "a.db");
  return NULL;
}

/* Ends with the parent's process only: its thread ends at once. */
static _Noreturn void be_parent(copro *p, int tell, int told) {
  pthread_t thread;
  char byte;
  if (pthread_create(&thread, NULL, start_in_thread, p) != 0) _exit(1);
  pthread_join(thread, NULL);
  if (write(told, &p->pid, sizeof p->pid) < 0) _exit(1);
  _exit(read(tell, &byte, 1) < 0);
}

/* A coprocess whose parent is another process than this one, which can be told
 * to end; p talks to the coprocess all the same. */
static family family_start(copro *p) {
  int in[2], out[2], tell[2], told[2];
  family f;
  test_path("a.db");
  ck_assert_int_eq(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
  ck_assert_int_eq(pipe2(tell, O_CLOEXEC) + pipe2(told, O_CLOEXEC), 0);
  *p = (copro){.in = in[0], .out = out[1]};
  f.parent = fork();
  if (f.parent == 0) {
    close(in[1]); /* so that ours are the last ones */
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

/* The thread that started it ends: that is nothing to it. */
TEST(the_end_of_the_thread_that_started_it_is_nothing) {
  copro p;
  family f = family_start(&p);
  for (int i = 0; i < 20; i++) {
    say(&p, "{'id':%d,'run':['lock','x%d']}", i, i);
    expect(&p, "{'id':*,'status':0,*");
  }
  copro_close(&p.in);
  close(f.tell); /* it has the output's other end as well */
  ck_assert_int_eq(waitpid(f.parent, NULL, 0), f.parent);
  expect_end(&p);
  copro_close(&p.out);
  free(p.data);
}

/* The parent is killed while we hold both pipes: the session ends, what runs
 * is answered, and the coprocess is gone. */
TEST(the_parents_death_is_an_end) {
  copro p;
  ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  family f = family_start(&p);
  say(&p, "{'id':1,'run':['lock','x']}");
  expect(&p, "{'id':1,'status':0,*");
  say(&p, "{'id':'w','run':['watch','/a']}");
  expect(&p, "{'id':'w','event':{'event':'watching',*");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z, "a.db");
  kill(f.parent, SIGKILL);
  expect(&p, "{'id':'w','status':75,*");
  check_handed_over(&heir);
  expect_end(&p);
  ck_assert_int_eq(copro_status(&p), 0);
  ck_ok(zke_close(z));
}

/* The same with a full pipe. */
TEST(the_parents_death_is_an_end_with_a_full_output) {
  copro p;
  ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  family f = family_start(&p);
  say(&p, "{'id':1,'run':['lock','x']}");
  expect(&p, "{'id':1,'status':0,*");
  zke *z = test_open(test_path("a.db"));
  copro heir = heir_of(z, "a.db");
  fill_output(&p);
  kill(f.parent, SIGKILL);
  check_handed_over(&heir);
  ck_assert_int_eq(copro_status(&p), 0);
  ck_ok(zke_close(z));
}

/* Ctrl-C at the parent's terminal is for the parent to answer. */
static _Noreturn void be_terminal_session(int in, int out, int master) {
  close(master);
  setsid();
  int slave = open(getenv("TEST_TERMINAL"), O_RDWR); /* controls from here */
  if (slave < 0) _exit(126);
  become_zke(in, out, "a.db");
  _exit(127);
}

/* The terminal's ^C and ^\ are for its parent, and do not end it; a SIGINT that
 * somebody sends does. */
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
  /* but somebody who means it can; the kernel keeps one SIGINT pending, and
   * the keyboard's may still be it */
  struct pollfd end = {p.out, POLLIN, 0};
  do kill(p.pid, SIGINT);
  while (poll(&end, 1, 100) == 0);
  expect_end(&p);
  ck_assert_int_eq(copro_status(&p), 128 + SIGINT);
  close(master);
}

/* ---- what is held ---- */

static long long number_in(const char *line, const char *member) {
  const char *at = strstr(line, member);
  ck_assert_ptr_nonnull(at);
  return atoll(at + strlen(member));
}

/* Claim the item of q by a request, and return the claim's token.  The answer
 * is one of so many lines: the loss of the claim before may come first. */
static long long claim_q(copro *p, int id, int lines) {
  long long token = 0;
  say(p,
      "{'id':%d,'run':['queue','claim','q','--visibility','1ms','--wait','9']}",
      id);
  for (int i = 0; i < lines; i++) {
    char *line = hear(p);
    ck_assert_ptr_nonnull(line);
    if (strstr(line, "\"token\":")) token = number_in(line, "\"token\":");
    free(line);
  }
  ck_assert_int_gt(token, 0);
  return token;
}

/* A worker that is late does not end the claim of another worker of the same
 * session, which has got the item after it, if it says which claim it means. */
TEST(a_late_worker_ends_no_later_claim) {
  static const char item[] = "entry-100-0000000001";
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':['queue','push','q','x']}");
  expect(&p, "{'id':1,'status':0,*");
  long long first = claim_q(&p, 2, 1), second = claim_q(&p, 3, 2);
  ck_assert_int_gt(second, first);
  say(&p, "{'id':4,'run':['queue','ack','q','%s','--token',%lld]}", item,
      first);
  expect(&p, "{'id':4,'status':76,*");
  say(&p, "{'id':5,'run':['queue','release','q','%s','--token',%lld]}", item,
      first);
  expect(&p, "{'id':5,'status':1,'rows':[],'error':'NOTHELD',*");
  say(&p,
      "{'id':6,'run':['queue','prolong','q','--visibility','1h','--token',"
      "%lld]}",
      second);
  expect(&p, "{'id':6,'status':0,*");
  say(&p, "{'id':7,'run':['queue','ack','q','--token',%lld]}", second);
  expect(&p, "{'id':7,'status':0,*");
  copro_end(&p);
}

/* Lock x by a request, and return its token. */
static long long lock_x(copro *p, int id) {
  say(p, "{'id':%d,'run':['lock','x']}", id);
  char *line = hear(p);
  ck_assert_ptr_nonnull(line);
  long long token = number_in(line, "\"token\":");
  free(line);
  return token;
}

/* A lock that was lost is not given up by releasing the one that another
 * request of the same session got after it. */
TEST(releasing_a_lost_lock_spares_the_next_one) {
  copro p = copro_start("a.db");
  long long first = lock_x(&p, 1);
  say(&p, "{'id':2,'run':['break','x']}");
  for (int i = 0; i < 2; i++) free(hear(&p)); /* the answer, and the loss */
  long long second = lock_x(&p, 3);
  say(&p, "{'id':4,'run':['release','x','--token',%lld]}", first);
  expect(&p, "{'id':4,'status':76,*");
  say(&p, "{'id':5,'run':['release','x','--token',%lld]}", first);
  expect(&p, "{'id':5,'status':1,'rows':[],'error':'NOTHELD',*");
  say(&p, "{'id':6,'run':['locks','x']}");
  char *line = hear(&p);
  ck_assert_int_eq(number_in(line, "\"token\":"), second);
  free(line);
  say(&p, "{'id':7,'run':['release','x','lock','--token',%lld]}", second);
  expect(&p, "{'id':7,'status':0,*");
  copro_end(&p);
}

/* Like lock's, steal's row is in the answer. */
TEST(a_steal_answers_as_a_lock_does) {
  copro p = copro_start("a.db");
  say(&p, "{'id':1,'run':['create','/a']}");
  expect(&p, "{'id':1,'status':0,*");
  say(&p, "{'id':2,'run':['steal','x']}");
  expect(&p, "{'id':2,'status':0,'rows':[{'path':'/locks/x','kind':'lock',*");
  copro_end(&p);
}

/* A file that nobody writes to is waited for: a cancel ends that, and so does
 * the end of input. */
TEST_LOOP(a_cancel_ends_the_reading_of_a_silent_file, 0, 3) {
  static const char *const readers[] = {"'create','/a'", "'import','/a'",
                                        "'queue','push','q','--lines'"};
  const char *option = _i == 1 ? "" : "'--input',";
  char fifo[512];
  copro p = copro_start("a.db");
  snprintf(fifo, sizeof fifo, "%s", test_path("fifo"));
  ck_assert_int_eq(mkfifo(fifo, 0600), 0);
  for (int id = 1; id <= 2; id++)
    say(&p, "{'id':%d,'run':[%s,%s'%s']}", id, readers[_i], option, fifo);
  say(&p, "{'cancel':1}");
  expect(&p, "{'id':1,'status':75,*'error':'CANCELLED',*");
  copro_close(&p.in);
  expect(&p, "{'id':2,'status':75,*'error':'CANCELLED',*");
  expect_end(&p);
  ck_assert_int_eq(copro_status(&p), 0);
}
