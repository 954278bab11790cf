/* peer.c - a server and a connection to it: see peer.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"
#include "test/program.h"

/* ---- the server ---- */

enum { OPTIONS = 16 };

/* In the child: become the server. */
static _Noreturn void become_server(const char *program, const char *file,
                                    const char *const options[], int out) {
  const char *args[OPTIONS + 7] = {program,  file, "serve",
                                   "--port", "0",  "--print-port"};
  for (int i = 0; i < OPTIONS && options[i]; i++) args[6 + i] = options[i];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(out, 1);
  execv(program, (char *const *)(uintptr_t)args);
  _exit(127);
}

pid_t peer_serve(const char *program, const char *file,
                 const char *const options[], int *port) {
  int out[2];
  if (pipe2(out, O_CLOEXEC) != 0) return 0;
  pid_t pid = fork();
  if (pid == 0) become_server(program, file, options, out[1]);
  close(out[1]);
  FILE *told = pid > 0 ? fdopen(out[0], "r") : NULL;
  bool begun = told && fscanf(told, "%d", port) == 1;
  if (told)
    fclose(told);
  else
    close(out[0]);
  if (begun || pid <= 0) return begun ? pid : 0;
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  return 0;
}

/* ---- a connection ---- */

bool peer_dial(peer *p, int port) {
  struct sockaddr_in to = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int on = 1;
  *p = (peer){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (p->fd < 0) return false;
  setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(p->fd, (const struct sockaddr *)&to, sizeof to) == 0) return true;
  peer_hang_up(p);
  return false;
}

void peer_hang_up(peer *p) {
  if (p->fd >= 0) close(p->fd);
  zke_jute_writer_free(&p->out);
  free(p->in);
  *p = (peer){.fd = -1};
}

void peer_begin(peer *p) { p->begun = zke_jute_begin(&p->out); }

void peer_end(peer *p) { zke_jute_end(&p->out, p->begun); }

bool peer_send(peer *p) {
  size_t at = 0;
  while (!p->out.failed && at < p->out.len) {
    ssize_t n = send(p->fd, p->out.data + at, p->out.len - at, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) at += (size_t)n;
  }
  bool sent = !p->out.failed && at == p->out.len;
  zke_jute_writer_free(&p->out);
  return sent;
}

/* Make room for `more` bytes after the received ones; false without memory. */
static bool make_room(peer *p, size_t more) {
  if (p->at) memmove(p->in, p->in + p->at, p->len - p->at);
  p->len -= p->at;
  p->at = 0;
  if (p->size - p->len >= more) return true;
  char *grown = realloc(p->in, p->len + more);
  if (!grown) return false;
  p->in = grown;
  p->size = p->len + more;
  return true;
}

/* Read once; wait for it until then. */
static int read_more(peer *p, int64_t until_ms) {
  enum { READ_ONCE = 65536 };
  int64_t left = until_ms - program_ms();
  struct pollfd ready = {.fd = p->fd, .events = POLLIN};
  int n = poll(&ready, 1, left > 0 ? (int)left : 0);
  if (n == 0) return PEER_SILENT;
  if (n < 0) return errno == EINTR ? PEER_FRAME : PEER_CLOSED;
  if (!make_room(p, READ_ONCE)) return PEER_CLOSED;
  ssize_t got = recv(p->fd, p->in + p->len, READ_ONCE, 0);
  if (got < 0 && errno == EINTR) return PEER_FRAME;
  if (got <= 0) return PEER_CLOSED;
  p->len += (size_t)got;
  return PEER_FRAME;
}

int peer_next(peer *p, int timeout_ms, zke_jute_reader *frame) {
  int64_t until = program_ms() + timeout_ms;
  for (;;) {
    size_t have = p->len - p->at;
    int32_t len = have < 4 ? 0 : zke_jute_length(p->in + p->at);
    if (have >= 4 && len >= 0 && have - 4 >= (size_t)len) {
      char *at = p->in + p->at + 4;
      *frame = (zke_jute_reader){.at = at, .end = at + len};
      p->at += 4 + (size_t)len;
      return PEER_FRAME;
    }
    int outcome = read_more(p, until);
    if (outcome != PEER_FRAME) return outcome;
  }
}
