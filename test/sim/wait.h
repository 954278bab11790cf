/* wait.h - what descriptors are ready, and clocks */
#ifndef ZKE_SIM_WAIT_H
#define ZKE_SIM_WAIT_H

#include "test/sim/file.h"

struct pollfd;

/* wait_look - fill in revents; returns how many are ready
 * wait_ready - is any?
 * wait_due  - when the next of their timers expires, or SIM_NEVER */
int wait_look(const sched_process *p, struct pollfd *fds, unsigned count);
bool wait_ready(sched_process *p, struct pollfd *fds, unsigned count);
int64_t wait_due(sched_process *p, struct pollfd *fds, unsigned count);

/* 0, or a negative errno. */
int wait_add(int poller, int fd, bool for_reading);
int wait_remove(int poller, int fd);
/* Take a timer's expiration, once; false: there is none. */
bool wait_take_timer(file_open *o);

/* By ZKE_CLOCK_…; wait_of_monotonic - that clock's time as sim.now */
int64_t wait_clock(int which);
int64_t wait_of_monotonic(int64_t ns);

#endif
