/* test_tell.c - what zke serve writes to standard error about what it refuses
 *
 * Each kind of refusal has one whole line.  Numbers in it, with ports and
 * addresses, are compared as #.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* unshare() */
#endif
#include <fcntl.h>
#include <limits.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "test/server/wire.h"

/* ------------------------------------------------------------------------
 * A server with its lines kept
 * --------------------------------------------------------------------- */

/* Start one; its lines go to the test's file "log". */
static serving serve_logged(const char *file, const char *options) {
  char all[900];
  snprintf(all, sizeof all, "%s 2>'%s'", options, test_path("log"));
  return serve_within("1s", file, all);
}

/* All its lines, with # for each number; valid until the next call. */
static const char *said(void) {
  static char text[8000];
  mask_numbers(text, file_text(test_path("log")));
  return text;
}

/* It has written this and nothing else, and ends well. */
static void ck_said(serving s, const char *lines) {
  ck_until(strlen(said()) >= strlen(lines), SOON);
  stop(s);
  ck_assert_str_eq(said(), lines);
}

/* ------------------------------------------------------------------------
 * How clients get refused
 * --------------------------------------------------------------------- */

/* Send bytes on a new connection, which the server then closes. */
static void send_first(serving s, const void *bytes, size_t len) {
  wire *w = dial(s.port);
  send_bytes(w, bytes, len);
  ck_closed(w);
}

static void one_connection_more(serving s) {
  begin(s);
  ck_closed(dial(s.port));
}

/* The server has no free descriptor until it has reported that. */
static void no_descriptor(serving s) {
  struct rlimit before, few;
  wire *w = begin(s);
  ck_assert_int_eq(prlimit(s.pid, RLIMIT_NOFILE, NULL, &before), 0);
  few = (struct rlimit){3, before.rlim_max};
  ck_assert_int_eq(prlimit(s.pid, RLIMIT_NOFILE, &few, NULL), 0);
  wire *waiting = dial(s.port);
  ck_until(*said(), SOON);
  ck_assert_int_eq(prlimit(s.pid, RLIMIT_NOFILE, &before, NULL), 0);
  hang_up(waiting), hang_up(w);
}

static void immense_frame(serving s) {
  wire *w = begin(s);
  send_bytes(w, "\x7f\xff\xff\xff", 4);
  ck_closed(w);
}

static void negative_frame(serving s) {
  wire *w = begin(s);
  send_bytes(w, "\xff\xff\xff\xff", 4);
  ck_closed(w);
}

static void unknown_word(serving s) { send_first(s, "srst", 4); }

/* Bytes that would move a terminal's cursor. */
static void strange_bytes(serving s) { send_first(s, "\x1b[2J", 4); }

static void short_frame(serving s) { send_first(s, "\0\0\0\4abcd", 8); }

static void later_zxid(serving s) {
  wire *w = dial(s.port);
  send_connect(w, 0, NULL, 10000, 0x77777777777);
  ck_closed(w);
}

static void wrong_password(serving s) {
  wire *w = begin(s), *again;
  w->password[0] ^= 1;
  ck_assert_int_eq(attach(s, &again, w), 0);
  hang_up(again), hang_up(w);
}

static void unknown_scheme(serving s) {
  wire *w = begin(s);
  ck_assert_int_eq(add_auth(w, "kerberos", "x"), ZKE_AUTHFAILED);
  hang_up(w);
}

static void empty_token(serving s) {
  wire *w = begin(s);
  ASK(w, ZKE_JUTE_SASL, sasl_token, {-1, NULL});
  ck_closed(w);
}

static void no_token(serving s) {
  wire *w = begin(s);
  ask_delete(w, "/a");
  ck_closed(w);
}

static void unknown_operation(serving s) {
  wire *w = begin(s);
  request(w, 999);
  ask(w);
  ck_closed(w);
}

/* Leave events unread until the server keeps no more. */
static void events_unread(serving s) {
  enum { BYTES = 1000000, MANY = 200 };
  static char path[BYTES];
  wire *w = begin_unix_with(600000), *other = begin(s);
  ck_call(w, ZKE_JUTE_ADD_WATCH, add_watch_request, "/",
          ZKE_WATCH_PERSISTENT_RECURSIVE);
  memset(path, 'x', sizeof path - 1);
  path[0] = '/';
  for (int i = 0; i < MANY && !*said(); i++) {
    path[1 + i] = 'y';
    ck_assert_int_eq(create(other, path, "", 0), 0);
  }
  ck_until(*said(), SOON);
  hang_up(other), hang_up(w);
}

/* Clients ask for a list and leave it unread, until others are refused; when
 * they leave it is answered again. */
static void lists_unread(serving s) {
  enum { BYTES = 500000, NODES = 10, MANY = 40 };
  static char path[BYTES];
  wire *w[MANY], *owner = begin(s);
  int count = 0;
  memset(path, 'x', sizeof path - 1);
  path[0] = '/';
  for (int i = 0; i < NODES; i++) {
    path[1 + i] = 'y';
    ck_assert_int_eq(create(owner, path, "", ZKE_EPHEMERAL), 0);
  }
  while (count < MANY && !*said()) {
    w[count] = dial_unix();
    send_bytes(w[count++], "dump", 4);
    ck_assert_int_eq(ping(owner), 0);
  }
  ck_assert_int_gt(count, 10);
  while (count) hang_up(w[--count]);
  ck_until(strcmp(says(s, "ruok"), "imok") == 0, SOON);
  hang_up(owner);
}

static const struct {
  const char *options;
  void (*provoke)(serving s);
  const char *line;
} refusals[] = {
    {"--connections 1", one_connection_more,
     "too many connections: #.#.#.#:#: refused, since its address has # "
     "(--connections)"},
    {"", no_descriptor,
     "no descriptor left: a client waits until another goes: # of # are in "
     "use, and # are kept for files (ulimit -Hn)"},
    {"", immense_frame,
     "bad frame: #.#.#.#:#: ended, since one has # bytes, and # are the most"},
    {"", negative_frame,
     "bad frame: #.#.#.#:#: ended, since one has -# bytes, and # are the most"},
    {"", unknown_word,
     "bad frame: #.#.#.#:#: ended, since its first bytes, \"srst\", begin "
     "neither a word nor a frame"},
    {"", strange_bytes,
     "bad frame: #.#.#.#:#: ended, since its first bytes, \"\\x#b[#J\", begin "
     "neither a word nor a frame"},
    {"", short_frame,
     "bad frame: #.#.#.#:#: ended, since its first is no connect request"},
    {"", later_zxid,
     "wrong server: #.#.#.#:#: ended, since it has seen zxid # and this "
     "database is at #"},
    {"", wrong_password,
     "wrong password: #.#.#.#:#: refused, since it is not that of session #"},
    {"", unknown_scheme,
     "auth failed: #.#.#.#:#: ended: the scheme kerberos is neither digest nor "
     "ip"},
    {"", empty_token,
     "SASL failed: #.#.#.#:#: ended, since the server has no users (--users)"},
    {"--users '%s'", empty_token,
     "SASL failed: #.#.#.#:#: ended, since its token proves no user of the "
     "file of --users"},
    {"--users '%s' --require-sasl", no_token,
     "SASL missing: #.#.#.#:#: ended, since it has not proven who it is "
     "(--require-sasl)"},
    {"", unknown_operation,
     "unknown operation: #.#.#.#:#: ended, since the server has none of number "
     "#"},
    {"--timeout-max 10m --unix '%s'", events_unread,
     "client does not read: a client at the Unix socket: ended, since # bytes "
     "of events wait for it and further ones would be lost"},
    {"--unix '%s'", lists_unread,
     "client does not read: a client at the Unix socket: refused a list, since "
     "other clients have left # bytes unread"}};

/* The operator reads one line for each refused client, with its address, what
 * was refused, and the option that changes it. */
TEST(each_refusal_has_a_line_of_its_own) {
  for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
    char options[600], line[400];
    bool is_unix = strstr(refusals[i].options, "--unix");
    const char *path =
        is_unix ? test_path("socket") : users_file("ann:secret\n");
    const char *at = strstr(refusals[i].options, "%s");
    size_t before = at ? (size_t)(at - refusals[i].options) : 0;
    snprintf(options, sizeof options, "%.*s%s%s", (int)before,
             refusals[i].options, at ? path : "",
             at ? at + 2 : refusals[i].options);
    serving s = serve_logged(":memory:", options);
    refusals[i].provoke(s);
    snprintf(line, sizeof line, "zke: serve: %s\n", refusals[i].line);
    ck_said(s, line);
  }
}

/* Two clients end after ten seconds: one says nothing, and one has closed its
 * session and leaves an answer unread.  The system buffers about 200 KiB for a
 * Unix socket. */
TEST(clients_that_do_nothing_have_lines) {
  enum { BYTES = 500000 };
  static const char silent[] =
      "zke: serve: silent client: #.#.#.#:#: ended, since it has begun no "
      "session within # seconds\n";
  static const char unread[] =
      "zke: serve: client does not read: a client at the Unix socket: ended, "
      "since it has left the last # bytes unread for # seconds\n";
  static char data[BYTES + 1];
  char options[600];
  snprintf(options, sizeof options, "--unix '%s'", test_path("socket"));
  serving s = serve_logged(":memory:", options);
  wire *other = begin_with(s, 40000);
  dial(s.port); /* and say nothing */
  wire *w = begin_unix();
  memset(data, 'x', BYTES);
  ck_assert_int_eq(create(other, "/a", data, 0), 0);
  ask_read(w, ZKE_JUTE_GET_DATA, "/a", 0);
  request(w, ZKE_JUTE_CLOSE);
  ask(w);
  ck_until(strlen(said()) >= strlen(silent) + strlen(unread), SOON);
  ck_assert_msg(strstr(said(), silent) && strstr(said(), unread), "%s", said());
  ck_assert_uint_eq(strlen(said()), strlen(silent) + strlen(unread));
  ck_assert_int_eq(ping(other), 0);
}

/* ------------------------------------------------------------------------
 * What is wrong with the database
 * --------------------------------------------------------------------- */

/* A change that cannot be written is reported with the library's sentence. */
TEST(a_full_disk_has_a_line) {
  enum { BYTES = 3000, MOST = 1000000, TRIES = 1000 };
  static char data[BYTES + 1];
  struct rlimit full = {MOST, RLIM_INFINITY}, usual;
  ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
  full.rlim_max = usual.rlim_max;
  signal(SIGXFSZ, SIG_IGN);
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &full), 0);
  serving s = serve_logged(test_path("app.db"), "");
  ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
  wire *w = begin(s);
  memset(data, 'x', BYTES);
  for (int i = 0; i < TRIES && !*said(); i++) {
    ask_create(w, "/n-", data, ZKE_PERSISTENT_SEQUENTIAL);
    if (!next_frame(w)) break;
  }
  ck_until(*said(), SOON);
  static const char begins[] =
      "zke: serve: system error: #.#.#.#:#: its request failed: ";
  ck_assert_msg(strncmp(said(), begins, strlen(begins)) == 0, "%s", said());
  ck_assert_msg(strlen(said()) > strlen(begins) + 5, "%s", said());
}

/* Another process does not let go of the file. */
TEST(a_busy_database_has_a_line) {
  const char *file = test_path("app.db");
  serving s = serve_logged(file, "");
  wire *w = begin(s);
  sqlite3 *db = hold(file);
  ck_assert_int_eq(create(w, "/a", "", 0), ZKE_OPERATIONTIMEOUT);
  release(db);
  hang_up(w);
  ck_said(s,
          "zke: serve: database busy: #.#.#.#:#: its request was refused: "
          "another process has held the database for # ms (zke --timeout)\n");
}

/* ------------------------------------------------------------------------
 * How often
 * --------------------------------------------------------------------- */

/* A client that is refused again and again makes one line in ten seconds, and
 * the next one tells how many were left out.  Another kind is reported
 * meanwhile. */
TEST(a_kind_is_told_once_in_ten_seconds) {
  static const char word[] =
      "zke: serve: bad frame: #.#.#.#:#: ended, since its first bytes, "
      "\"srst\", begin neither a word nor a frame";
  char lines[1000];
  serving s = serve_logged(":memory:", "--control");
  for (int i = 0; i < 20; i++) unknown_word(s);
  unknown_operation(s);
  order(s, "advance by=10s");
  for (int i = 0; i < 20; i++) unknown_word(s);
  snprintf(lines, sizeof lines,
           "%s\nzke: serve: unknown operation: #.#.#.#:#: ended, since the "
           "server has none of number #\n%s; # more were left out\n",
           word, word);
  ck_said(s, lines);
}

/* Fill a pipe; how many bytes it took. */
static size_t fill(int fd) {
  static const char bytes[PIPE_BUF];
  size_t len = 0;
  ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
  while (write(fd, bytes, sizeof bytes) > 0) len += sizeof bytes;
  return len;
}

/* Standard error is a full pipe that is not read for a while.  The server goes
 * on, and later reports how many lines it has left out. */
TEST(a_full_pipe_does_not_stop_the_server) {
  static char text[1 << 20];
  const char *pipe = test_path("pipe");
  ck_assert_int_eq(mkfifo(pipe, 0600), 0);
  int fd = open(pipe, O_RDWR);
  size_t len = fill(fd);
  serving s = serve_with(":memory:", "2>'%s'", pipe);
  wire *w = begin(s);
  unknown_word(s);
  wrong_password(s);
  ck_assert_int_eq(ping(w), 0);
  ck_assert_uint_lt(len, sizeof text);
  ck_assert_int_eq(read(fd, text, len), (ssize_t)len);
  memset(text, 0, len);
  size_t got = 0;
  ck_until(read(fd, text + got, 1) == 1 && text[got++] == '\n', SOON);
  ck_assert_str_eq(text, "zke: serve: 2 lines were left out\n");
  hang_up(w);
  close(fd);
}

/* A line is at most as long as a pipe takes in one write: a quota's path may be
 * longer. */
TEST(a_line_has_an_end) {
  enum { BYTES = 6000 };
  static char name[BYTES + 1], path[BYTES + 100];
  wire *w = begin(serve_logged(":memory:", "--enforce-quota"));
  memset(name, 'x', BYTES);
  snprintf(path, sizeof path, "/%s", name);
  ck_assert_int_eq(create(w, path, "", 0), 0);
  snprintf(path, sizeof path, "/zookeeper/quota/%s", name);
  ck_assert_int_eq(create(w, path, "", 0), 0);
  snprintf(path, sizeof path, "/zookeeper/quota/%s/zookeeper_limits", name);
  ck_assert_int_eq(create(w, path, "count=1,bytes=-1=;countHardLimit=1", 0), 0);
  snprintf(path, sizeof path, "/%s/a", name);
  ck_assert_int_eq(create(w, path, "", 0), ZKE_JUTE_QUOTAEXCEEDED);
  ck_until(strlen(said()) == PIPE_BUF, SOON);
  ck_assert_str_eq(said() + PIPE_BUF - 5, "x...\n");
}

/* ------------------------------------------------------------------------
 * The beginning
 * --------------------------------------------------------------------- */

/* If the server is opened to other hosts, a line tells what that means. */
TEST(a_host_that_others_reach_is_warned_of) {
  serving s = serve_logged(":memory:", "--host 0.0.0.0");
  wire *w = begin(s);
  hang_up(w);
  ck_said(s,
          "zke: serve: #.#.#.# is not only for this host: whoever reaches it "
          "can read and change the database as far as ACLs let them, and "
          "nothing is encrypted\n");
  s = serve_logged(":memory:", "--host 127.0.0.2");
  ck_said(s, "");
}

/* Write a text into a system file; false: not permitted. */
static bool write_system(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  bool written = f && fputs(text, f) >= 0;
  return f && fclose(f) == 0 && written;
}

/* From now on this process is on a host with IPv4 only, where the name
 * localhost has two addresses; false: not permitted. */
static bool leave_ipv6(void) {
  struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
  const char *names = test_path("hosts");
  if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
      !write_system("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1") ||
      !write_system(names, "127.0.0.1 localhost\n::1 localhost\n") ||
      mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount(names, "/etc/hosts", NULL, MS_BIND, NULL) != 0)
    return false;
  int fd = socket(AF_INET, SOCK_DGRAM, 0);
  bool is_up = ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
  close(fd);
  return is_up;
}

/* On most hosts the name localhost has an IPv6 address, even if the system has
 * no IPv6: the server starts with the other addresses. */
TEST(localhost_is_served_without_ipv6) {
  if (!leave_ipv6()) return;
  const char *got = refusal("--host ::1");
  ck_assert_msg(strstr(got, "::1 port 0: Cannot assign requested address\n"),
                "%s", got);
  wire *w = begin(serve(":memory:", "--host localhost"));
  ck_assert_int_eq(ping(w), 0);
}
