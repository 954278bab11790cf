/* party.c - a client as a party of the laboratory
 *
 * The laboratory runs party_run() as a separate process.  It waits for the
 * client's next request, and answers it with the protocol server's own code
 * (request_take()), on a `server` that has only this connection.  Each of its
 * calls of the library is a step, before which the search chooses the next
 * process:
 *
 *     a request comes              it stops before its first call
 *     the call is made             a fault may lose its reply
 *     zke_dispatch_to()            the events that come before the answer;
 *                                  both are held until this step is taken
 *     the answer is sent
 *
 * In real time a client runs from an answer until it has sent the next request,
 * or until its program is quiet (quiet.c): then it waits for an event, or
 * sleeps, and so does this process, in zke_wait().  No other runs meanwhile, so
 * a schedule does not depend on anyone's speed.
 *
 * Sessions do not time out: the laboratory ends them. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "labserve.h"

enum {
  HOUR_MS = 3600 * 1000,
  PATIENCE_MS = 30 * 1000,
  LOOK_NS = 100 * 1000 /* between two checks whether it is quiet */
};

party parties[PARTIES_MOST];
int party_count;

/* ------------------------------------------------------------------------
 * Ports
 * --------------------------------------------------------------------- */

/* Listens on a free port of this host, and writes the address; -1. */
static int listen_somewhere(char address[PORT_BYTES]) {
  struct sockaddr_in in = {.sin_family = AF_INET,
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof in;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (bind(fd, (struct sockaddr *)&in, len) != 0 || listen(fd, 64) != 0 ||
      getsockname(fd, (struct sockaddr *)&in, &len) != 0) {
    close(fd);
    return -1;
  }
  snprintf(address, PORT_BYTES, "127.0.0.1:%d", ntohs(in.sin_port));
  return fd;
}

bool party_listen(party *p, char hosts[PORT_BYTES], char lines[PORT_BYTES]) {
  p->hosts = listen_somewhere(hosts);
  p->control = listen_somewhere(lines);
  return p->hosts >= 0 && p->control >= 0;
}

/* ------------------------------------------------------------------------
 * Input
 * --------------------------------------------------------------------- */

static bool is_ready(int fd) {
  struct pollfd one = {fd, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

/* Does nothing: the callbacks of the connection's file are not needed here. */
static void nothing(server *s, source *from, unsigned events) {
  (void)s, (void)from, (void)events;
}

/* Has it connected again without closing its first connection?  The end of a
 * closed one can be read before the new one can be accepted. */
static bool is_second(const party *p) {
  if (!p->conn || p->eof || !is_ready(p->hosts)) return false;
  if (!is_ready(p->conn->source.fd))
    zke_lab_fail(
        "%s has two connections at a time; give each client a name of its own",
        p->name);
  return true;
}

/* Takes what the client has sent, and new connections; false: there was
 * nothing. */
static bool take_input(party *p) {
  bool some = false;
  if (is_ready(p->control)) {
    control_accept(p->controls, p->control);
    some = true;
  }
  if (p->conn && !p->eof && is_ready(p->conn->source.fd)) {
    conn_read(p->conn);
    p->eof = p->conn->all_read;
    some = true;
  }
  if (!p->conn && is_ready(p->hosts)) {
    p->conn = conn_accept(&p->server, p->hosts, false, nothing);
    p->eof = false;
    some = true;
  }
  return some || is_second(p);
}

static bool has_request(const party *p) {
  size_t len;
  return p->conn && conn_frame(p->conn, 0, &len);
}

/* Is there any input? */
static bool has_input(const party *p) {
  if (is_ready(p->hosts) || is_ready(p->control)) return true;
  if (p->conn && !p->eof && is_ready(p->conn->source.fd)) return true;
  for (int i = 0; i < CONTROLS; i++)
    if (p->controls[i].fd && is_ready(p->controls[i].fd)) return true;
  return false;
}

/* This client's answer has let its program continue.  So the program's other
 * clients that wait may now have requests: they stop waiting. */
static void wake_others(const party *p) {
  for (int i = 0; i < party_count; i++) {
    party *other = &parties[i];
    if (other == p || other->program != p->program || !other->waits) continue;
    if (other->rung || !has_input(other)) continue;
    other->rung = true;
    zke_wake(other->waits);
  }
}

/* ------------------------------------------------------------------------
 * Is the program quiet?
 * --------------------------------------------------------------------- */

static void pause_a_little(const party *p) {
  struct timespec t = {0, LOOK_NS};
  struct pollfd fds[3 + CONTROLS] = {{p->hosts, POLLIN, 0},
                                     {p->control, POLLIN, 0}};
  nfds_t n = 2;
  if (p->conn) fds[0].fd = p->eof ? -1 : p->conn->source.fd;
  for (int i = 0; i < CONTROLS; i++)
    if (p->controls[i].fd)
      fds[n++] = (struct pollfd){p->controls[i].fd, POLLIN, 0};
  ppoll(fds, n, &t, NULL);
}

/* The real time, ms: the laboratory's clock stands still. */
static int64_t real_ms(void) {
  struct timespec t;
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

/* A program that computes endlessly, or polls something without asking its
 * server, is never quiet.  No schedule can be tried with it, so this ends the
 * whole run. */
static void check_patience(const party *p, int64_t since_ms) {
  if (real_ms() - since_ms < PATIENCE_MS) return;
  (void)fprintf(stderr,
                "zke-lab-serve: %s: has done something for %d seconds without "
                "a request; a program has to wait for something\n",
                p->name, PATIENCE_MS / 1000);
  for (int i = 0; i < party_count; i++) {
    if (!parties[i].starts) continue;
    program_end(parties[i].program);
    program_leave(parties[i].program);
  }
  _exit(2);
}

/* Waits until the program has finished reacting to what it was told. */
static void settle(const party *p) {
  struct timespec t = {0, LOOK_NS};
  int64_t since_ms = real_ms();
  while (!quiet_tasks(p->program->pid)) {
    check_patience(p, since_ms);
    ppoll(NULL, 0, &t, NULL);
  }
}

/* ------------------------------------------------------------------------
 * Answers
 * --------------------------------------------------------------------- */

/* Sends a frame, however long the client takes to read it. */
static void send_frame(party *p, const char *frame, size_t len) {
  conn *c = p->conn;
  zke_jute_writer one = {.data = (char *)(uintptr_t)frame, .len = len};
  zke_jute_append(&c->out, &one);
  conn_flush(c);
  while (!c->dropped && c->out.len > 0) {
    struct pollfd room = {c->source.fd, POLLOUT, 0};
    poll(&room, 1, -1);
    conn_flush(c);
  }
}

/* Sends the pending frames.  After an event the program may act on another
 * thread while it handles the answer that follows; so it gets the answer when
 * it has finished with the event. */
static void release(party *p) {
  if (!p->conn || p->conn->out.len == 0) return;
  zke_jute_writer all = p->conn->out;
  bool ended = p->conn->ended;
  p->conn->out = (zke_jute_writer){0};
  p->conn->ended = false;
  for (size_t at = 0, len; at + 4 <= all.len && !p->conn->dropped; at += len) {
    len = 4 + (size_t)zke_jute_length(all.data + at);
    bool is_event =
        len >= 8 && zke_jute_length(all.data + at + 4) == ZKE_JUTE_XID_EVENT;
    send_frame(p, all.data + at, len);
    if (is_event && !p->conn->dropped) settle(p);
  }
  zke_jute_writer_free(&all);
  if (ended) conn_drop(p->conn);
}

/* A ping is no step: it is answered immediately. */
static void answer_ping(party *p, size_t len) {
  conn *c = p->conn;
  zke_jute_reply_header head = {ZKE_JUTE_XID_PING, p->server.zxid, 0};
  size_t at = zke_jute_begin(&c->out);
  zke_jute_write(&c->out, &zke_jute_of_reply_header, &head);
  zke_jute_end(&c->out, at);
  conn_taken(c, len);
}

/* The session of this client, or NULL. */
static client *session_of(const party *p) { return p->server.sessions; }

/* Ends sessions that are over, and a closed connection.  The client finishes
 * with what it was sent before it sees the connection's end. */
static void bury(party *p) {
  conn *c = p->conn;
  client *session = session_of(p);
  bool over = session && session->over;
  if (c && p->eof && !has_request(p)) conn_drop(c);
  if (c && (over || c->dropped)) {
    settle(p);
    p->conn = NULL;
    if (c->session) client_detach(c->session);
    conn_free(c);
  }
  p->server.busy = NULL;
  if (over) client_close(&p->server, session);
}

/* Answers the next request.  Each of its calls of the library is a step. */
static void serve_request(party *p) {
  size_t len;
  const char *frame = conn_frame(p->conn, 0, &len);
  bool is_ping = p->conn->greeted && len >= 4 &&
                 zke_jute_length(frame) == ZKE_JUTE_XID_PING;
  if (is_ping) {
    answer_ping(p, len);
  } else {
    request_take(&p->server, p->conn);
    requests_answer(&p->server, ZKE_OK);
  }
  release(p);
}

/* ------------------------------------------------------------------------
 * The life of a client
 * --------------------------------------------------------------------- */

/* Has its program ended?  If it does not say otherwise, 0 means that it ended
 * well. */
static bool has_ended(party *p) {
  int status;
  if (p->done) return true;
  if (!program_ended(p->program, &status)) return false;
  if (status < 0)
    zke_lab_fail("%s was ended by signal %d", p->name, -status);
  else if (status > 0)
    zke_lab_fail("%s has ended with status %d", p->name, status);
  else if (p->program->keeper_pid)
    zke_lab_fail("%s has ended before its time", p->name);
  return true;
}

/* Waits, in real time, until the client has sent a request, or has ended, or
 * its program is quiet. */
static void listen_to(party *p) {
  int64_t since_ms = real_ms();
  for (;;) {
    while (take_input(p) || control_take(p->controls, p->server.z, &p->done))
      check_patience(p, since_ms);
    bury(p);
    wake_others(p);
    if (has_request(p) || p->done) return;
    bool quiet = quiet_tasks(p->program->pid);
    if (has_input(p)) continue;
    if (quiet || has_ended(p)) return;
    check_patience(p, since_ms);
    pause_a_little(p);
  }
}

static void ring(zke *z, int type, int state, const char *path, void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
}

/* Waits, in the laboratory's time, for an event or for the end of a sleep.
 * Others may run before the call begins: a wake-up by one of them then
 * counts. */
static void wait_for_more(party *p) {
  client *session = session_of(p);
  zke *z = session ? session->z : p->server.z;
  int64_t due = control_due(p->controls);
  zke_call_at(z, due, ring, p);
  p->waits = z;
  zke_wait_turn(z, zke_turn(z), ZKE_FOREVER);
  p->waits = NULL;
  p->rung = false;
  zke_call_at(z, ZKE_FOREVER, ring, p);
  release(p);
  control_ring(p->controls, zke_now(p->server.z));
}

/* The program's end closes what it has not closed itself. */
static void leave(party *p) {
  if (p->conn) conn_drop(p->conn);
  bury(p);
  client *session = session_of(p);
  if (session) client_close(&p->server, session);
}

static void party_run(void *context, zke *z) {
  party *p = context;
  p->server.z = z;
  for (;;) {
    listen_to(p);
    if (has_request(p))
      serve_request(p);
    else if (has_ended(p))
      break;
    else
      wait_for_more(p);
    bury(p);
  }
  leave(p);
}

/* All programs are started before any is waited for, so that they start in
 * parallel. */
static void begin_all(void) {
  for (int i = 0; i < party_count; i++) {
    party *p = &parties[i];
    p->begun = true;
    p->server = (server){.epoll = epoll_create1(EPOLL_CLOEXEC),
                         .timeout_min_ms = HOUR_MS,
                         .timeout_max_ms = HOUR_MS,
                         .tick_ms = HOUR_MS / 2};
    if (p->starts && !program_begin(p->program))
      zke_lab_fail("the program of %s cannot be started", p->name);
  }
  (void)zke_zxid(); /* the library returns zxids only to code that has asked */
}

static void party_begin(void *context) {
  party *p = context;
  if (!p->begun) begin_all();
}

/* Connections that were never accepted belong to the previous schedule. */
static void empty(int listener) {
  int fd;
  while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) close(fd);
}

void party_forget(const party *p) {
  empty(p->hosts);
  empty(p->control);
}

static void party_end(void *context) {
  party *p = context;
  if (!p->begun) return;
  if (p->starts) program_end(p->program);
  if (p->conn) close(p->conn->source.fd);
  control_close(p->controls);
  close(p->server.epoll);
  party_forget(p);
}

int party_add(zke_lab *lab, party *p) {
  zke_lab_party functions = ZKE_INIT(zke_lab_party);
  functions.begin = party_begin;
  functions.run = party_run;
  functions.end = party_end;
  return zke_lab_outside(lab, p->name, &functions, p);
}
