/* wire.c - a server and a raw client of it, for tests: see wire.h */
#include <arpa/inet.h>
#include <ctype.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

/* ------------------------------------------------------------------------
 * The server
 * --------------------------------------------------------------------- */

/* The servers that have not ended. */
enum { SERVERS_MOST = 16 };
static pid_t servers[SERVERS_MOST];

/* Start "zke FILE serve --port 0 --print-port OPTIONS…", and wait for the
 * port. */
serving serve_within(const char *timeout, const char *file,
                     const char *options) {
  char command[1000];
  int out[2];
  snprintf(command, sizeof command,
           "exec '%s' --timeout %s '%s' serve --port 0 --print-port %s",
           test_zke(), timeout, file, options);
  ck_assert_int_eq(pipe(out), 0);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], 1);
    close(out[0]);
    close(out[1]);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
  }
  ck_assert_int_gt(pid, 0);
  close(out[1]);
  FILE *told = fdopen(out[0], "r");
  serving s = {pid, 0};
  ck_assert_msg(fscanf(told, "%d", &s.port) == 1, "the server has not begun");
  fclose(told);
  int at = 0;
  while (servers[at]) ck_assert_int_lt(++at, SERVERS_MOST);
  servers[at] = pid;
  return s;
}

serving serve(const char *file, const char *options) {
  return serve_within("5s", file, options);
}

serving serve_with(const char *file, const char *format, ...) {
  char options[600];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(options, sizeof options, format, arguments);
  va_end(arguments);
  return serve(file, options);
}

/* Wait for its end, for a limited time; the exit code. */
int ended(serving s) {
  int outcome = 0;
  ck_until(waitpid(s.pid, &outcome, WNOHANG) == s.pid, SOON);
  for (int i = 0; i < SERVERS_MOST; i++)
    if (servers[i] == s.pid) servers[i] = 0;
  return test_status(outcome);
}

void stop(serving s) {
  kill(s.pid, SIGTERM);
  ck_assert_int_eq(ended(s), 0);
}

long memory_of(serving s) {
  if (TEST_ADDRESS_SANITIZER) return 0;
  char name[64], line[200];
  long kib = -1;
  snprintf(name, sizeof name, "/proc/%d/status", (int)s.pid);
  FILE *f = fopen(name, "r");
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
  if (f) fclose(f);
  return kib;
}

const char *users_file(const char *text) {
  const char *path = test_path("users");
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
  ck_assert_int_eq(chmod(path, 0600), 0);
  return path;
}

const char *file_text(const char *path) {
  static char text[8000];
  FILE *f = fopen(path, "r");
  size_t len = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[len] = '\0';
  return text;
}

sqlite3 *hold(const char *file) {
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(file, &db), SQLITE_OK);
  ck_assert_int_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL),
                   SQLITE_OK);
  return db;
}

void release(sqlite3 *db) {
  ck_assert_int_eq(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
}

/* ------------------------------------------------------------------------
 * A client
 * --------------------------------------------------------------------- */

static wire *latest; /* of all connections of the test */

static wire *new_connection(int domain, const void *address, socklen_t len) {
  wire *w = calloc(1, sizeof *w);
  ck_assert_ptr_nonnull(w);
  w->before = latest;
  latest = w;
  w->fd = socket(domain, SOCK_STREAM, 0);
  ck_assert_int_eq(connect(w->fd, address, len), 0);
  return w;
}

wire *dial(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET,
                          .sin_port = htons((uint16_t)port),
                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  return new_connection(AF_INET, &a, sizeof a);
}

void hang_up(wire *w) {
  if (w->fd >= 0) close(w->fd);
  zke_jute_reader_free(&w->r);
  zke_jute_writer_free(&w->out);
  free(w->in);
  w->fd = -1;
  w->in = NULL;
}

/* Runs after each test, when its handles are closed (opened.h). */
static void end_all(void) {
  while (latest) {
    wire *w = latest;
    latest = w->before;
    hang_up(w);
    free(w);
  }
  for (int i = 0; i < SERVERS_MOST; i++)
    if (servers[i]) stop((serving){.pid = servers[i]});
}
AFTER_ALL(end_all);

void send_bytes(wire *w, const void *bytes, size_t len) {
  const char *at = bytes;
  while (len > 0) {
    ssize_t n = send(w->fd, at, len, MSG_NOSIGNAL);
    ck_assert_msg(n > 0, "the server has hung up");
    at += n;
    len -= (size_t)n;
  }
}

/* Send the written requests. */
void send_out(wire *w) {
  ck_assert(!w->out.failed);
  send_bytes(w, w->out.data, w->out.len);
  zke_jute_writer_free(&w->out);
}

/* Receive up to len bytes, at least one; 0 or less at the end. */
static ssize_t receive_some(wire *w, char *to, size_t len) {
  struct pollfd p = {.fd = w->fd, .events = POLLIN};
  ck_assert_msg(poll(&p, 1, (int)test_patience(SOON)) == 1, "nothing has come");
  return recv(w->fd, to, len, 0);
}

/* Fill len bytes; false at the connection's end. */
bool receive(wire *w, char *to, size_t len) {
  while (len > 0) {
    ssize_t n = receive_some(w, to, len);
    if (n <= 0) return false;
    to += n;
    len -= (size_t)n;
  }
  return true;
}

/* Read to the end, which must come. */
const char *receive_rest(wire *w) {
  static char text[1000000];
  size_t len = 0;
  ssize_t n = 1;
  while (n > 0 && len < sizeof text - 1) {
    n = receive_some(w, text + len, sizeof text - 1 - len);
    if (n > 0) len += (size_t)n;
  }
  ck_assert_int_lt(len, sizeof text - 1);
  text[len] = '\0';
  return text;
}

/* Take the next frame; false at the connection's end. */
bool next_frame(wire *w) {
  char length[4];
  zke_jute_reader_free(&w->r);
  free(w->in);
  w->in = NULL;
  if (!receive(w, length, 4)) return false;
  int len = zke_jute_length(length);
  ck_assert_int_ge(len, 0);
  w->in = malloc((size_t)len + 1);
  ck_assert(receive(w, w->in, (size_t)len));
  w->r = (zke_jute_reader){.at = w->in, .end = w->in + len};
  return true;
}

/* The server closes; what it still sends is skipped. */
void ck_closed(wire *w) {
  while (next_frame(w)) continue;
}

/* ---- sessions ---- */

void send_connect(wire *w, int64_t id, const char *password, int timeout_ms,
                  int64_t seen) {
  static const char none[16];
  size_t at = zke_jute_begin(&w->out);
  PUT(w, connect_request, 0, seen, timeout_ms, id,
      {16, password ? password : none});
  PUT(w, read_only, 0);
  zke_jute_end(&w->out, at);
  send_out(w);
}

/* The answer to send_connect(): the id, 0 if there is no such session. */
int64_t take_connected(wire *w) {
  zke_jute_connect_response a;
  ck_assert_msg(next_frame(w), "the server has hung up");
  GET(w, connect_response, &a);
  ck_assert_int_eq(a.passwd.len, 16);
  ck_assert_int_eq((int)(w->r.end - w->r.at), 1); /* read-only: it is not */
  w->id = a.session_id;
  w->timeout_ms = a.time_out;
  memcpy(w->password, a.passwd.data, 16);
  return w->id;
}

static wire *begun(wire *w, int timeout_ms) {
  send_connect(w, 0, NULL, timeout_ms, 0);
  ck_assert_int_ne(take_connected(w), 0);
  return w;
}

/* A connection with a new session. */
wire *begin_with(serving s, int timeout_ms) {
  return begun(dial(s.port), timeout_ms);
}

wire *begin(serving s) { return begin_with(s, 30000); }

/* Another connection for the same session: its id, 0 if it is over. */
int64_t attach(serving s, wire **w, const wire *before) {
  *w = dial(s.port);
  send_connect(*w, before->id, before->password, 30000, 0);
  return take_connected(*w);
}

wire *dial_unix(void) {
  struct sockaddr_un a = {.sun_family = AF_UNIX};
  snprintf(a.sun_path, sizeof a.sun_path, "%s", test_path("socket"));
  return new_connection(AF_UNIX, &a, sizeof a);
}

wire *begin_unix_with(int timeout_ms) { return begun(dial_unix(), timeout_ms); }

wire *begin_unix(void) { return begin_unix_with(10000); }

serving serve_unix(wire **w) {
  serving s = serve_with(":memory:", "--unix '%s'", test_path("socket"));
  *w = begin_unix();
  return s;
}

/* The error of a server that does not start. */
const char *refusal(const char *format, ...) {
  static char said[2000];
  char command[1200], options[800];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(options, sizeof options, format, arguments);
  va_end(arguments);
  snprintf(command, sizeof command,
           "timeout 20 '%s' :memory: serve --port 0 %s 2>&1 </dev/null",
           test_zke(), options);
  FILE *f = popen(command, "r");
  size_t len = fread(said, 1, sizeof said - 1, f);
  said[len] = '\0';
  ck_assert_int_ne(pclose(f), 0);
  return said;
}

void mask_numbers(char *to, const char *text) {
  for (const char *at = text; *at; at++) {
    bool is_hex = strncmp(at, "0x", 2) == 0;
    bool is_number = isdigit((unsigned char)*at);
    *to++ = is_number ? '#' : *at;
    if (is_hex) at++;
    while (is_number && (isdigit((unsigned char)at[1]) ||
                         (is_hex && isxdigit((unsigned char)at[1]))))
      at++;
  }
  *to = '\0';
}

const char *post_text(const char *line) {
  static char text[2000];
  snprintf(text, sizeof text,
           "POST /control HTTP/1.1\r\nHost: localhost\r\n"
           "Content-Length: %zu\r\n\r\n%s",
           strlen(line), line);
  return text;
}

const char *order(serving s, const char *format, ...) {
  char line[1000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  const char *told = says(s, post_text(line));
  ck_assert_msg(strncmp(told, "HTTP/1.1 200 OK\r\n", 17) == 0, "%s: %s", line,
                told);
  return strstr(told, "\r\n\r\n") + 4;
}

/* A connection for one text. */
const char *says(serving s, const char *asked) {
  wire *w = dial(s.port);
  send_bytes(w, asked, strlen(asked));
  const char *text = receive_rest(w);
  hang_up(w);
  return text;
}

/* ---- requests ---- */

void request(wire *w, int type) {
  w->begun = zke_jute_begin(&w->out);
  PUT(w, request_header, ++w->xid, type);
}

void add(wire *w) { zke_jute_end(&w->out, w->begun); }

void ask(wire *w) {
  add(w);
  send_out(w);
}

/* The next answer must have this xid; its error. */
int answer_to(wire *w, int xid) {
  ck_assert_msg(next_frame(w), "the server has hung up");
  GET(w, reply_header, &w->head);
  ck_assert_int_eq(w->head.xid, xid);
  if (w->head.err) ck_assert_ptr_eq(w->r.at, w->r.end);
  return w->head.err;
}

int answer(wire *w) { return answer_to(w, w->xid); }

int call(wire *w, int type) {
  request(w, type);
  ask(w);
  return answer(w);
}

int end_multi(wire *w) {
  PUT(w, multi_header, -1, 1, -1);
  ask(w);
  return answer(w);
}

/* The next result's header. */
void ck_result(wire *w, int type, int err) {
  zke_jute_multi_header head;
  zke_jute_error_response error;
  GET(w, multi_header, &head);
  ck_assert_int_eq(head.type, type);
  ck_assert_int_eq(head.done, 0);
  ck_assert_int_eq(head.err, err);
  if (type != ZKE_JUTE_ERROR) return;
  GET(w, error_response, &error);
  ck_assert_int_eq(error.err, err);
}

void ck_results_end(wire *w) {
  zke_jute_multi_header head;
  GET(w, multi_header, &head);
  ck_assert_int_eq(head.done, 1);
  ck_assert_ptr_eq(w->r.at, w->r.end);
}

/* The next frame is this event. */
void ck_event(wire *w, int type, const char *path) {
  zke_jute_watcher_event e;
  ck_assert_int_eq(answer_to(w, ZKE_JUTE_XID_EVENT), 0);
  ck_assert_int_eq(w->head.zxid, -1);
  GET(w, watcher_event, &e);
  ck_assert_int_eq(e.type, type);
  ck_assert_int_eq(e.state, ZKE_STATE_CONNECTED);
  ck_assert_str_eq(e.path, path);
}

void ask_create(wire *w, const char *path, const char *data, int flags) {
  ASK(w, ZKE_JUTE_CREATE, create_request, path, {(int)strlen(data), data},
      zke_open_acl, flags);
}

int create(wire *w, const char *path, const char *data, int flags) {
  ask_create(w, path, data, flags);
  return answer(w);
}

void ask_read(wire *w, int type, const char *path, int watch) {
  ASK(w, type, read_request, path, watch);
}

int look(wire *w, int type, const char *path, int watch) {
  ask_read(w, type, path, watch);
  return answer(w);
}

void ask_set(wire *w, const char *path, const char *data, int version) {
  ASK(w, ZKE_JUTE_SET_DATA, set_data_request, path, {(int)strlen(data), data},
      version);
}

int set(wire *w, const char *path, const char *data, int version) {
  ask_set(w, path, data, version);
  return answer(w);
}

void ask_delete(wire *w, const char *path) {
  ASK(w, ZKE_JUTE_DELETE, delete_request, path, -1);
}

int erase(wire *w, const char *path) {
  ask_delete(w, path);
  return answer(w);
}

int ping(wire *w) {
  size_t at = zke_jute_begin(&w->out);
  PUT(w, request_header, ZKE_JUTE_XID_PING, ZKE_JUTE_PING);
  zke_jute_end(&w->out, at);
  send_out(w);
  return answer_to(w, ZKE_JUTE_XID_PING);
}

/* The data at a path, as a text. */
const char *data_at(wire *w, const char *path) {
  static char text[1000];
  zke_jute_get_data_response got;
  ck_assert_int_eq(look(w, ZKE_JUTE_GET_DATA, path, 0), 0);
  GET(w, get_data_response, &got);
  snprintf(text, sizeof text, "%.*s", got.data.len, got.data.data);
  return text;
}

bool is_there(wire *w, const char *path) {
  return look(w, ZKE_JUTE_EXISTS, path, 0) == 0;
}

int add_auth(wire *w, const char *scheme, const char *cert) {
  size_t at = zke_jute_begin(&w->out);
  PUT(w, request_header, ZKE_JUTE_XID_AUTH, ZKE_JUTE_AUTH);
  PUT(w, auth_packet, 0, scheme, {(int)strlen(cert), cert});
  zke_jute_end(&w->out, at);
  send_out(w);
  return answer_to(w, ZKE_JUTE_XID_AUTH);
}
