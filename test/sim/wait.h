/* wait.h - what descriptors are ready, and clocks */
#ifndef ZKE_SIM_WAIT_H
#define ZKE_SIM_WAIT_H

#include "test/sim/file.h"

struct pollfd;

/* wait_look - fill in revents; how many there are
 * wait_ready - is any?
 * wait_due  - when the next of their timers is, or SIM_NEVER */
int wait_look(const sched_process *p, struct pollfd *fds, unsigned count);
bool wait_ready(sched_process *p, struct pollfd *fds, unsigned count);
int64_t wait_due(sched_process *p, struct pollfd *fds, unsigned count);

/* 0, or the negative of an errno. */
int wait_add(int poller, int fd, bool for_reading);
int wait_remove(int poller, int fd);
/* The timer was set, and its time has come: once. */
bool wait_take_timer(file_open *o);

/* By ZKE_CLOCK_…; wait_of_monotonic - a time of that clock as sim.now */
int64_t wait_clock(int which);
int64_t wait_of_monotonic(int64_t ns);

#endif
