/* control.c - what a client says about itself
 *
 * Lines of text, each answered by "ok" and the laboratory's time in ms:
 *
 *     enter NAME MOST   it enters a section for at most so many clients
 *     leave NAME        it has left the section
 *     exclude A B       A must not be entered while another is in B
 *     spare             from here on the others can do without it
 *     note TEXT         a line for the picture
 *     fail TEXT         the schedule has failed
 *     sleep MS          the answer comes after this time
 *     alarm MS          the same, for a wait that may end before
 *     ended             the client has come to its end
 *     warm              only as the very first line: see program.c
 *
 * They use their own connection, which the laboratory's faults do not affect: a
 * client can say that it has left a section even after it has lost its
 * ZooKeeper connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "labserve.h"

static void answer(const control *c, int64_t now_ms) {
  char line[48];
  int n = snprintf(line, sizeof line, "ok %lld\n", (long long)now_ms);
  (void)!send(c->fd, line, (size_t)n, MSG_NOSIGNAL);
}

static void close_one(control *c) {
  close(c->fd);
  *c = (control){.fd = 0};
}

/* The two words of a line; false if there are not two. */
static bool two_words(char *text, char **first, char **second) {
  char *save = NULL;
  *first = strtok_r(text, " ", &save);
  *second = strtok_r(NULL, " ", &save);
  return *first && *second;
}

/* A line about a section; false if it is none. */
static bool do_section(const char *what, char *rest) {
  char *first, *second;
  if (strcmp(what, "leave") == 0) {
    zke_lab_leave(rest);
  } else if (strcmp(what, "enter") == 0 && two_words(rest, &first, &second)) {
    zke_lab_enter(first, (int)strtol(second, NULL, 10));
  } else if (strcmp(what, "exclude") == 0 && two_words(rest, &first, &second)) {
    zke_lab_exclude(first, second);
  } else {
    return false;
  }
  return true;
}

/* Do what a line says.  Entering a section is a step: others may run. */
static void do_line(control *c, zke *z, char *line, bool *done_out) {
  char *rest = strchr(line, ' ');
  if (rest) *rest++ = '\0';
  if (!rest) rest = line + strlen(line);
  if (strcmp(line, "fail") == 0) {
    zke_lab_fail("%s", rest);
  } else if (strcmp(line, "note") == 0) {
    zke_lab_note("%s", rest);
  } else if (strcmp(line, "spare") == 0) {
    zke_lab_spare();
  } else if (strcmp(line, "ended") == 0) {
    *done_out = true;
  } else if (strcmp(line, "sleep") == 0) {
    zke_lab_note("sleeps %s ms", rest);
    c->wakes_ms = zke_now(z) + strtoll(rest, NULL, 10);
  } else if (strcmp(line, "alarm") == 0) {
    c->wakes_ms = zke_now(z) + strtoll(rest, NULL, 10);
  } else if (!do_section(line, rest)) {
    zke_lab_fail("a client has said \"%s\", which is no line of a client",
                 line);
  }
  if (!c->wakes_ms) answer(c, zke_now(z));
}

/* Reads up to the end of a line; true if a line is complete. */
static bool read_line(control *c) {
  while (c->len + 1 < LINE_BYTES) {
    ssize_t n = recv(c->fd, c->line + c->len, 1, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) {
      close_one(c);
      return false;
    }
    if (c->line[c->len] == '\n') break;
    c->len++;
  }
  c->line[c->len] = '\0';
  c->len = 0;
  return true;
}

/* A client that disconnects while it sleeps is no longer woken. */
bool control_take(control all[CONTROLS], zke *z, bool *done_out) {
  char line[LINE_BYTES];
  for (int i = 0; i < CONTROLS; i++) {
    if (!all[i].fd || !read_line(&all[i])) continue;
    memcpy(line, all[i].line, sizeof line);
    do_line(&all[i], z, line, done_out);
    return true;
  }
  return false;
}

void control_accept(control all[CONTROLS], int listener) {
  for (int i = 0; i < CONTROLS; i++) {
    if (all[i].fd) continue;
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd > 0) all[i].fd = fd;
    return;
  }
  zke_lab_fail("a client has more than %d connections for lines", CONTROLS);
}

void control_ring(control all[CONTROLS], int64_t now_ms) {
  for (int i = 0; i < CONTROLS; i++) {
    if (!all[i].wakes_ms || all[i].wakes_ms > now_ms) continue;
    all[i].wakes_ms = 0;
    answer(&all[i], now_ms);
  }
}

int64_t control_due(const control all[CONTROLS]) {
  int64_t due = ZKE_FOREVER;
  for (int i = 0; i < CONTROLS; i++) {
    if (all[i].wakes_ms && all[i].wakes_ms < due) due = all[i].wakes_ms;
  }
  return due;
}

void control_close(control all[CONTROLS]) {
  for (int i = 0; i < CONTROLS; i++) {
    if (all[i].fd) close_one(&all[i]);
  }
}
