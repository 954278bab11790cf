/* wait.c - see wait.h */
#include "test/sim/wait.h"

#include <errno.h>
#include <poll.h>

#include "test/sim/container.h"
#include "zkembed.h"

/* Its ready events, as poll() reports them. */
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
  if (o->reads && !n->writers && n->writings != o->writings) events |= POLLHUP;
  if (o->writes && !n->readers) events |= POLLERR;
  if (o->writes && n->length < DISK_FIFO) events |= POLLOUT;
  return events;
}

/* The description of a polled descriptor, or NULL. */
static const file_open *open_of(const sched_process *p, int fd) {
  return fd >= 0 && fd < FILE_DESCRIPTORS ? p->files->fd[fd] : NULL;
}

/* The requested events, and always errors and hang-ups; a descriptor that is
 * not open gives POLLNVAL, one below 0 nothing. */
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

/* The scheduler calls this for waiting fibers. */
bool wait_ready(sched_process *p, struct pollfd *fds, unsigned count) {
  return wait_look(p, fds, count) > 0;
}

/* When a timer next changes something, if that is before `due`; else `due`.  A
 * timer that has expired may be polled for an error, which it never gives. */
static int64_t due_of(const file_open *o, int64_t due) {
  bool coming = o->kind == FILE_TIMER && o->due > sim.now;
  return coming && o->due < due ? o->due : due;
}

/* Includes timers in polled pollers. */
int64_t wait_due(sched_process *p, struct pollfd *fds, unsigned count) {
  int64_t due = SIM_NEVER;
  for (unsigned i = 0; i < count; i++) {
    const file_open *o = open_of(p, fds[i].fd);
    if (!o) continue;
    due = due_of(o, due);
    for (int k = 0; k < o->members; k++) due = due_of(o->member[k].o, due);
  }
  return due;
}

/* A descriptor's index in a poller, or -1.  Linux identifies it by number and
 * description: a second descriptor of that is another member, and a closed one
 * stays until the description's last is closed. */
static int member_find(const file_open *poller, const file_open *o, int fd) {
  for (int i = 0; i < poller->members; i++)
    if (poller->member[i].o == o && poller->member[i].fd == fd) return i;
  return -1;
}

/* Files and directories are always ready: Linux refuses them. */
static bool can_wait(const file_open *o) {
  return o->kind != FILE_DISK || o->n->type == DISK_PIPE;
}

/* Refuses a descriptor that is already there, and one that is always ready. */
int wait_add(int poller, int fd, bool for_reading) {
  file_open *p = file_get(poller), *o = file_get(fd);
  if (!can_wait(o)) return -EPERM;
  if (member_find(p, o, fd) >= 0) return -EEXIST;
  if (p->members == FILE_MEMBERS) return -ENOSPC;
  p->member[p->members++] = (file_member){o, fd, for_reading};
  return 0;
}

/* The number must be the one that was added. */
int wait_remove(int poller, int fd) {
  file_open *p = file_get(poller);
  file_open *o = file_get(fd);
  if (!can_wait(o)) return -EPERM;
  int i = member_find(p, o, fd);
  if (i < 0) return -ENOENT;
  p->member[i] = p->member[--p->members];
  return 0;
}

/* Reading takes the expiration; then the timer is off until it is set again. */
bool wait_take_timer(file_open *o) {
  if (!o->due || sim.now < o->due) return false;
  o->due = 0;
  return true;
}

/* Faults set the wall clock.  The other two are 0 when the host boots. */
int64_t wait_clock(int which) {
  if (which == ZKE_CLOCK_REALTIME)
    return sim.now + sim.wall + sim.suspended + INT64_C(1700000000000000000);
  int64_t monotonic = sim.now - sim.booted + container_ahead();
  return which == ZKE_CLOCK_BOOTTIME ? monotonic + sim.suspended : monotonic;
}

/* A deadline is not valid after its boot, so it counts from the start of this
 * one. */
int64_t wait_of_monotonic(int64_t ns) {
  return ns + sim.booted - container_ahead();
}
