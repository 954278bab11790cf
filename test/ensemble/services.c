/* services.c - see services.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "services.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/program.h"
#include "zkembed.h"

enum { START_MS = 60000 };

enum { PORTS = SERVICES_SERVERS + 4 };

/* Get free ports, all different, each kept by a descriptor. */
static bool hold_ports(int *ports, int *fds) {
  bool good = true;
  for (int i = 0; i < PORTS; i++) {
    fds[i] = proxy_hold_port(&ports[i]);
    good = good && fds[i] >= 0;
  }
  return good;
}

static void release_ports(const int *fds) {
  for (int i = 0; i < PORTS; i++)
    if (fds[i] >= 0) close(fds[i]);
}

/* In the child: its output goes into a log, and the shell becomes the server.
 * number: of the two peers of far; NULL: it has no peers. */
static _Noreturn void become_server(const char *kind, const char *directory,
                                    int port, const char *number,
                                    const char *leader, const char *observer) {
  char log[500], text[20];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  snprintf(log, sizeof log, "%s/log", directory);
  snprintf(text, sizeof text, "%d", port);
  int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  execl("/bin/sh", "sh", "test/ensemble/server.sh", kind, directory, text,
        number, leader, observer, (char *)NULL);
  _exit(127);
}

/* Start one server, in its own directory; with the peers, if it has some.
 */
static void start(services *s, service_server which, const char *kind,
                  const char *number, const char *leader,
                  const char *observer) {
  char directory[450];
  snprintf(directory, sizeof directory, "%s/%d", s->directory, (int)which);
  mkdir(directory, 0700);
  s->pid[which] = fork();
  if (s->pid[which] == 0)
    become_server(kind, directory, s->port[which], number, leader, observer);
}

/* Has a server ended by itself? */
static bool has_ended(services *s, service_server which) {
  if (waitpid(s->pid[which], NULL, WNOHANG) == 0) return false;
  s->pid[which] = 0;
  return true;
}

/* Wait until a server gives a session. */
static bool answers(services *s, service_server which) {
  char name[64];
  zke *z = NULL;
  int64_t end = program_ms() + START_MS;
  services_name(s, which, "", name, sizeof name);
  while (zke_open(name, NULL, &z) != ZKE_OK) {
    if (has_ended(s, which) || program_ms() > end) {
      fprintf(stderr, "services: %s does not answer: %s\n", name, zke_errmsg());
      return false;
    }
    poll(NULL, 0, 50);
  }
  return zke_close(z) == ZKE_OK;
}

/* The observer is told that the leader is at the proxy's port.  peer: four
 * ports. */
static bool start_at(services *s, const char *near, const int *peer) {
  char leader[40], observer[40], delayed[40];
  if (!proxy_start(&s->way, peer[0])) return false;
  proxy_plain(&s->way);
  snprintf(leader, sizeof leader, "127.0.0.1:%d:%d", peer[0], peer[1]);
  snprintf(delayed, sizeof delayed, "127.0.0.1:%d:%d", s->way.port, peer[1]);
  snprintf(observer, sizeof observer, "127.0.0.1:%d:%d:observer", peer[2],
           peer[3]);
  start(s, SERVICES_NEAR, near, NULL, NULL, NULL);
  start(s, SERVICES_LEADER, "zookeeper", "1", leader, observer);
  start(s, SERVICES_OBSERVER, "zookeeper", "2", delayed, observer);
  return answers(s, SERVICES_NEAR) && answers(s, SERVICES_LEADER) &&
         answers(s, SERVICES_OBSERVER);
}

/* Start all; the ports are kept until their servers have started. */
static bool start_all(services *s, const char *near) {
  int ports[PORTS] = {0}, fds[PORTS];
  bool good = hold_ports(ports, fds);
  memcpy(s->port, ports, sizeof s->port);
  good = good && start_at(s, near, ports + SERVICES_SERVERS);
  release_ports(fds);
  return good;
}

bool services_start(services *s, const char *near, const char *base) {
  *s = (services){.way.orders = -1};
  snprintf(s->directory, sizeof s->directory, "%s/services-XXXXXX", base);
  if (!mkdtemp(s->directory)) {
    fprintf(stderr, "services: %s: %s\n", s->directory, strerror(errno));
    return false;
  }
  if (start_all(s, near)) return true;
  services_stop(s);
  return false;
}

void services_stop(services *s) {
  for (int i = 0; i < SERVICES_SERVERS; i++) {
    if (s->pid[i] <= 0) continue;
    program_kill(s->pid[i]);
  }
  proxy_end(&s->way);
  program_remove(s->directory);
}

void services_delay(services *s, int ms) { proxy_delay(&s->way, ms, ms); }

void services_name(const services *s, service_server which, const char *query,
                   char *out, size_t size) {
  snprintf(out, size, "zk://127.0.0.1:%d%s", s->port[which], query);
}
