/* sched.h - processes and threads as fibers, and the step of each call
 *
 * One fiber runs at a time, until a step of its calls lets another one run, or
 * until it waits.  A process dies at a step; what it had is then removed piece
 * by piece, between the steps of the others, as a kernel does.
 */
#ifndef ZKE_SIM_SCHED_H
#define ZKE_SIM_SCHED_H

#include "test/sim/sim.h"

struct pollfd;
struct file_table; /* file.c: the kernel's data of a process */

/* fork: the last two slots are for children, and the last thread of a process
 * is the one that forks. */
enum {
  SIM_COPY = SIM_SLOTS - 2,
  SIM_CHILD = SIM_SLOTS - 1,
  SIM_FORKER = SIM_THREADS - 1
};

/* Which calls a forked child may make at its stage (forked.c). */
typedef enum sched_watched {
  SCHED_FREE,   /* any: it is a process like others */
  SCHED_OPENS,  /* none that changes anything */
  SCHED_REFUSED /* none that another could notice */
} sched_watched;

typedef struct sched_process {
  int slot, pid;
  bool dying;      /* its fibers no longer run */
  bool gone;       /* the kernel has removed all it had */
  int64_t stopped; /* since when it is stopped; 0: it is not */
  int64_t stop_until, stopped_ns;
  struct file_table *files;
  int error;       /* of its last call of the VFS */
  bool execs;      /* it died by exec: the next in its slot has its pid */
  bool is_shadow;  /* has no memory: it dies when it continues */
  bool was_inside; /* another thread was in a call at the time of fork() */
  bool in_batch;   /* it was forked by the function of a batch */
  bool forks_in_callback;   /* its next callback, or a batch, forks */
  void *handle;             /* of zkembed.c's, of the parent at the fork */
  int64_t fork_ms;          /* for how long the parent will outlive the fork */
  sched_watched watched;    /* of a forked one */
  void (*at_fork[3])(void); /* pthread_atfork(): prepare, parent, child */
  int64_t adrift;           /* when files were removed under it; 0: never */
  int64_t felt;             /* end of the last call that began before that, */
  int64_t felt_stopped_ns;  /* and stopped_ns then */
  bool unsure;              /* it was opening them: old or new ones */
  bool only_reads;          /* by a read-only handle (vfs.c) */
} sched_process;

/* The cancellation of a thread (threads.c). */
typedef struct sched_cancel {
  bool pending;                     /* it was asked for */
  bool off, at_once;                /* its state, and its type */
  struct threads_cleanup *cleanups; /* the innermost handler */
  void *back;                       /* a jmp_buf; NULL: it is never left */
} sched_cancel;

/* Functions of the layers above, set before the first process begins. */
typedef struct sched_hooks {
  void (*died)(int slot);             /* by a kill */
  void (*returned)(sched_process *p); /* its first thread has returned */
  bool (*reap)(sched_process *p);     /* remove a piece; false: none is left */
  int (*pid)(int slot);               /* of a new process */
  /* make a process's file table, a copy of the parent's if `from` is given */
  struct file_table *(*begin)(const struct file_table *from);
  void (*forks)(int slot); /* the life of the thread that forks */
  void (*forked)(sched_process *parent, sched_process *child);
  void (*judge)(sched_process *child, sim_call call); /* a forked one's call */
  void (*cancelled)(void); /* the running thread was cancelled */
  bool (*ready)(sched_process *p, struct pollfd *fds, unsigned count);
  int64_t (*due)(sched_process *p, struct pollfd *fds, unsigned count);
  void (*strike)(void);  /* a fault of the host is due */
  void (*tick)(void);    /* before each choice: new processes */
  int64_t (*next)(void); /* when tick() has something to do */
  bool (*over)(void);    /* nothing is left to do */
} sched_hooks;

void sched_begin(const sched_hooks *hooks);

/* sched_spawn - a process begins in a free slot
 * sched_start_thread - another thread of the running process
 * sched_join - wait until the running process has no other thread */
void sched_spawn(int slot, void (*fn)(int slot));
void sched_start_thread(void (*fn)(int slot), int number);
void sched_join(void);

/* sched_fork - the running thread, and the memory of its process, continue as
 *              a child in the slot SIM_CHILD; false: there is no room for it.
 *              The parent stands still from now on, with its descriptors and
 *              its locks, and dies after fork_ms */
bool sched_fork(void);

/* sched_cancel_of - the running thread's; NULL if none runs
 * sched_test_cancel - end the thread if it was cancelled, and may be
 * sched_renew_thread - another thread begins in the running fiber */
sched_cancel *sched_cancel_of(void);
void sched_test_cancel(void);
void sched_renew_thread(void);

/* sched_run - run all until nothing is left to run, or the power goes:
 *             sched_cut() makes it return SCHED_CUT */
typedef enum sched_end {
  SCHED_OVER,
  SCHED_CUT,
  SCHED_STUCK, /* all wait forever */
  SCHED_LIMIT  /* too many steps */
} sched_end;
sched_end sched_run(int64_t limit);
void sched_cut(void);
/* A fault of the host has struck, or faults have ended. */
void sched_note_faults(void);
/* After a cut: no process is left. */
void sched_forget_all(void);

/* The running fiber's; NULL and -1 if none runs. */
sched_process *sched_self(void);
int sched_slot(void);
int sched_thread(void);
bool sched_has_threads(void);
/* Any slot's: */
sched_process *sched_process_of(int slot);
bool sched_lives(int slot);
bool sched_is_free(int slot);
int64_t sched_stopped_ns(int slot);

/* sched_step - a call begins; the errno that it must report, or 0
 * sched_torn - the process will die inside this call: what part of its work is
 *              done before, in 1/1000; -1: it survives.  Then sched_die() */
int sched_step(sim_call call);
int sched_torn(void);
/* The same for a call that takes no time, and lets no other fiber run: an
 * allocation. */
int sched_fails(sim_call call);
void sched_die(void) __attribute__((noreturn));
/* The running process ends as if its first thread had returned. */
void sched_return(void) __attribute__((noreturn));

/* sched_kill - all threads of a process end here; what it had is reaped
 * sched_go_on - end its stop */
void sched_kill(int slot);
void sched_go_on_all(void);

/* sched_wait_until - sleep until then, or until one of the fds is ready
 * sched_wait_on - sleep until sched_wake(address) by this process; false: it is
 *                 `until`, or the thread was cancelled and `leaves` is set */
void sched_wait_until(int64_t until, struct pollfd *fds, unsigned count);
bool sched_wait_on(const void *address, int64_t until, bool leaves);
void sched_wake(const void *address);

/* Sleep between calls, like a program that has nothing to do. */
void sched_pause(int64_t ns);

#endif
