/* sim.h - the simulated host: every process, every crash, every order of steps,
 * from a seed
 *
 * zkembed.c makes all of its system calls through zke_os, and all I/O on the
 * database through an SQLite VFS.  Here both lead to a kernel and a disk that
 * are data structures of one program.  Processes, and their threads, are fibers
 * of it.  Each call is a step: time goes on by about a microsecond, a fault may
 * strike, and another fiber may run.  All that happens follows from a seed.
 *
 *   engine.c    zkembed.c, unchanged.  Its variables lie in two sections, that
 *               of the process and that of the thread, which sched.c exchanges.
 *               The recipes are compiled in the same way (instead.h)
 *   sched.c     processes, fibers, steps, who runs next, how a process dies
 *   threads.c   mutexes, conditions and cancellation of the fibers, and fork()
 *   plan.c      what a seed means: knobs of the run, and the list of faults
 *   disk.c      files and names: what is there, what is durable, what a power
 *               cut leaves
 *   file.c      descriptors, open file descriptions, their locks, FIFOs
 *   wait.c      poll, epoll, timers, clocks
 *   os.c        the table zke_os over file.c and wait.c
 *   vfs.c       SQLite's VFS over disk.c
 *   memory.c    memory of the engine and of SQLite
 *   container.c where a process lives: boot ids, clocks and pids
 *   load.c      the lives of the processes; forked.c those of forked children
 *   ops.c       the calls that they make, at random; kept.c those of kept
 *               sessions, line.c locks in line, watchers.c watches that stay,
 *               tree.c what only the model can judge, and the others,
 *               foreign.c plain SQLite, cancel.c threads that are cancelled,
 *               outbox.c rows that the extension moves
 *   rounds.c    uses of recipes (test/recipes/uses.h) by these processes
 *   watches.c   the watches, and what is checked of each
 *   history.c   the engine's own history, compared at the end
 *   notes.c     each call on the tree is noted here
 *   judge.c     all that was noted, played through a model of the tree
 *   known.c     what is known of the tree by the calls that came back, and the
 *               checks of every answer against it
 *   host.c      a run: how it begins and ends, faults of the whole host
 *   admin.c     backups, and files that are removed
 *   calls.c     the calls of zkembed.h, which tell of themselves
 *   story.c     what is told of a run: lines, which are printed or drawn
 *   shrink.c    the smallest plan that finds the same
 *   future.c    from which step on it had to come so
 *   main.c      runs of many seeds, each in a forked child
 *   calibrate*.c the kernel against the real one, a program of its own
 *               (calibrate.h)
 *
 * Calls go downwards in this list of layers:
 *
 *     main, shrink, host,    a run: load_begin(), and sched_run() until its end
 *       admin
 *     load, ops, ..., known  functions of zkembed.h, and sched.h
 *     engine (zkembed.c)     zke_os, SQLite
 *     os, vfs, threads,      the calls of a process: each begins with a step
 *       memory
 *     file, wait             the kernel
 *     disk                   files
 *     sched                  fibers
 *     plan, sim              random numbers, faults, the trace
 *
 * Two calls go upwards, by pointers that are set when a run begins: sched.c
 * tells the load that a process has died (load_died), and lets the kernel take
 * apart what the process had (file_reap_one).
 *
 * Faults are a list apart from the random numbers of the load (plan.h).  A
 * finding is the seed, the knobs and that list: a short string for REPLAY=.
 * Each subject has a sequence of random numbers of its own, so that a change of
 * one leaves the others alone.
 */
#ifndef ZKE_SIM_H
#define ZKE_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_SLOTS = 8, SIM_THREADS = 4 };
#define SIM_MS INT64_C(1000000) /* nanoseconds */
#define SIM_NEVER INT64_MAX

/* Sequences of random numbers.  Each slot has one for its load. */
typedef enum sim_stream {
  SIM_PLAN,   /* knobs and faults */
  SIM_ORDER,  /* who runs next, and how long steps take */
  SIM_DISK,   /* what a cut or a failed sync leaves, how long a sync takes */
  SIM_KERNEL, /* inodes, random bytes, which of several locks is reported */
  SIM_WORLD,  /* when processes begin */
  SIM_LOAD,   /* and SIM_SLOTS - 1 more */
  SIM_USES = SIM_LOAD + SIM_SLOTS, /* of recipes: which, and in which runs */
  SIM_STREAMS
} sim_stream;

/* The calls of a process.  Each has a name, which replay strings use, and the
 * errors that a fault may make it report: I EIO, S ENOSPC, R EINTR, F EMFILE, M
 * ENOMEM, A EACCES. */
#define SIM_CALL_LIST(X)                                \
  X(open, "IFMS")                                       \
  X(close, "")                                          \
  X(dup, "F")                                           \
  X(read, "I")                                          \
  X(write, "I")                                         \
  X(pread, "I")                                         \
  X(pwrite, "IS")                                       \
  X(stat, "IMA")                                        \
  X(fstat, "")                                          \
  X(fsync, "IS")                                        \
  X(synced, "")                                         \
  X(adopt, "")                                          \
  X(mkdir, "ISM")                                       \
  X(mkfifo, "ISM")                                      \
  X(mkfile, "ISM")                                      \
  X(unlink, "I")                                        \
  X(list, "IFM")                                        \
  X(entry, "")                                          \
  X(pipe, "FM")                                         \
  X(lock, "M")                                          \
  X(unlock, "")                                         \
  X(findlock, "IM")                                     \
  X(probe, "IM")                                        \
  X(poll, "RM")                                         \
  X(poller, "FM")                                       \
  X(padd, "M")                                          \
  X(premove, "")                                        \
  X(timer, "FM")                                        \
  X(timerset, "")                                       \
  X(sleep, "")                                          \
  X(random, "I")                                        \
  X(share, "I")                                         \
  X(mutex, "")                                          \
  X(pause, "")                                          \
  X(alloc, "M")                                         \
  X(sqlalloc, "M")                                      \
  X(dopen, "IFM")                                       \
  X(dclose, "")                                         \
  X(dread, "I")                                         \
  X(lread, "I") /* without a lock of the WAL-index */   \
  X(dwrite, "IS")                                       \
  X(dtruncate, "I")                                     \
  X(dsync, "IS")                                        \
  X(dbsync, "IS") /* of the database, not of its log */ \
  X(cksync, "IS") /* of the log, by a checkpoint */     \
  X(dsynced, "")                                        \
  X(dsize, "I")                                         \
  X(dlock, "I")                                         \
  X(dunlock, "")                                        \
  X(dreserved, "")                                      \
  X(ddelete, "I")                                       \
  X(daccess, "")                                        \
  X(dsleep, "")                                         \
  X(shmmap, "ISM")                                      \
  X(shmlock, "I")                                       \
  X(shmunlock, "")                                      \
  X(barrier, "")                                        \
  X(shmunmap, "")                                       \
  X(commit, "I") /* a program's own, when it begins */

#define SIM_CALL_ENUM(name, errors) CALL_##name,
typedef enum sim_call { SIM_CALL_LIST(SIM_CALL_ENUM) CALL_any } sim_call;
#undef SIM_CALL_ENUM

/* The run.  Times are nanoseconds since it began, and never stand still. */
typedef struct sim_world {
  int64_t now;
  int64_t booted;    /* when the host booted */
  int64_t suspended; /* how long it was suspended, in total */
  int64_t wall;      /* by how much the wall clock was set */
  int64_t steps;
  int64_t full_until;              /* the disk is full, */
  int64_t quota_until, quota_left; /* or has room for that many bytes, */
  int64_t bad_until;               /* or fails to write */
  int64_t last_fault; /* the last fault of any kind, -1: none was */
  int64_t last_error; /* last time that one made a call fail, or may have */
  bool failed;        /* a call has failed, not for lack of room */
  int64_t ending;     /* when faults ended; 0: they may still come */
  uint64_t hash;      /* of all that happened */
  int boots, kills, stops, errors, cuts, switches;
  int faults;  /* that have struck, of the plan */
  int verbose; /* 1: keep a story, 2: print it, 3: with each step */
} sim_world;

extern sim_world sim;

/* A fault strikes, and can be felt until that time. */
static inline void sim_fault(int64_t until) {
  if (sim.last_fault < until) sim.last_fault = until;
}

/* sim_no_room - calls fail for lack of room, until that time
 * sim_error   - or by another fault */
static inline void sim_no_room(int64_t until) {
  if (sim.last_error < until) sim.last_error = until;
}
static inline void sim_error(int64_t until) {
  sim_no_room(until);
  sim.failed = true;
}

/* Start the sequences of a seed. */
void sim_begin(uint64_t seed);
/* From now on order, disk and SIM_PLAN give other numbers. */
void sim_another_future(int64_t number);
/* The next number of a sequence, below a limit. */
uint64_t sim_random(sim_stream stream, uint64_t below);
bool sim_chance(sim_stream stream, uint64_t n, uint64_t of);
/* The next number of a slot's load. */
uint64_t sim_load(int slot, uint64_t below);

/* Add to the trace's hash.  Never add what differs with the compiler or from
 * start to start, such as addresses. */
void sim_trace(uint64_t value);
void sim_trace_bytes(const void *data, size_t size);

const char *sim_call_name(sim_call call);
bool sim_call_reports(sim_call call, int error);
/* Is it a sync of one of SQLite's files? */
bool sim_call_syncs(sim_call call);

/* sim_say   - a note in the running fiber's lane, if a story is told (story.h)
 * sim_tell  - a line of another kind (drawing.h)
 * sim_found - the run has found something, and ends here
 * sim_crash - the same for a signal, or a run without end
 * sim_bug   - the simulation itself is wrong: not a finding about the engine */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void sim_tell(char kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void sim_found(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));
void sim_crash(const char *sentence) __attribute__((noreturn));
void sim_bug(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));

/* Zeroed memory that the simulation needs; never NULL. */
void *sim_zero(size_t size);
void *sim_resize(void *block, size_t size);

/* How a run ends other than by itself. */
typedef enum sim_end { SIM_FINDING = 1, SIM_CRASH, SIM_BUG } sim_end;
/* Defined by main.c: the run has ended; it does not return.  Findings of the
 * same kind are counted as one. */
void sim_report(sim_end end, const char *kind, const char *text)
    __attribute__((noreturn));

#endif
