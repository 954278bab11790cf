/* wait.c - see wait.h */
#include "test/sim/wait.h"

#include <errno.h>
#include <poll.h>

#include "zkembed.h"

/* What of it is ready, as poll() says it. */
static int open_events(const file_open *o) {
  const disk_node *n = o->n;
  int events = 0;
  if (o->kind == FILE_TIMER) return o->due && sim.now >= o->due ? POLLIN : 0;
  if (o->kind == FILE_POLLER) {
    for (int i = 0; i < o->members; i++) {
      int wanted = POLLERR | POLLHUP;
      if (o->member[i].for_reading) wanted |= POLLIN;
      if (open_events(o->member[i].o) & wanted) events = POLLIN;
    }
    return events;
  }
  if (n->type != DISK_PIPE) return POLLIN | POLLOUT;
  if (o->reads && n->length) events |= POLLIN;
  if (o->reads && !n->writers) events |= POLLHUP;
  if (o->writes && !n->readers) events |= POLLERR;
  if (o->writes && n->length < DISK_FIFO) events |= POLLOUT;
  return events;
}

static const file_open *open_of(const sched_process *p, int fd) {
  return fd >= 0 && fd < FILE_DESCRIPTORS ? p->files->fd[fd] : NULL;
}

int wait_look(const sched_process *p, struct pollfd *fds, unsigned count) {
  int ready = 0;
  for (unsigned i = 0; i < count; i++) {
    const file_open *o = open_of(p, fds[i].fd);
    fds[i].revents = 0;
    if (fds[i].fd < 0) continue;
    int wanted = fds[i].events | POLLERR | POLLHUP;
    fds[i].revents = (short)(o ? open_events(o) & wanted : POLLNVAL);
    ready += fds[i].revents != 0;
  }
  return ready;
}

bool wait_ready(sched_process *p, struct pollfd *fds, unsigned count) {
  return wait_look(p, fds, count) > 0;
}

int64_t wait_due(sched_process *p, struct pollfd *fds, unsigned count) {
  int64_t due = SIM_NEVER;
  for (unsigned i = 0; i < count; i++) {
    const file_open *o = open_of(p, fds[i].fd);
    for (int k = 0; o && k < o->members; k++) {
      const file_open *t = o->member[k].o;
      if (t->kind == FILE_TIMER && t->due && t->due < due) due = t->due;
    }
    if (o && o->kind == FILE_TIMER && o->due && o->due < due) due = o->due;
  }
  return due;
}

static int member_find(const file_open *poller, const file_open *o) {
  for (int i = 0; i < poller->members; i++)
    if (poller->member[i].o == o) return i;
  return -1;
}

int wait_add(int poller, int fd, bool for_reading) {
  file_open *p = file_get(poller), *o = file_get(fd);
  if (member_find(p, o) >= 0) return -EEXIST;
  if (p->members == FILE_MEMBERS) return -ENOSPC;
  p->member[p->members++] = (file_member){o, for_reading};
  return 0;
}

int wait_remove(int poller, int fd) {
  file_open *p = file_get(poller);
  int i = member_find(p, file_get(fd));
  if (i < 0) return -ENOENT;
  p->member[i] = p->member[--p->members];
  return 0;
}

bool wait_take_timer(file_open *o) {
  if (!o->due || sim.now < o->due) return false;
  o->due = 0;
  return true;
}

int64_t wait_clock(int which) {
  if (which == ZKE_CLOCK_REALTIME)
    return sim.now + sim.wall + sim.suspended + INT64_C(1700000000000000000);
  int64_t monotonic = sim.now - sim.booted;
  return which == ZKE_CLOCK_BOOTTIME ? monotonic + sim.suspended : monotonic;
}

int64_t wait_of_monotonic(int64_t ns) { return ns + sim.booted; }
