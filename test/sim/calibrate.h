/* calibrate.h - the simulated kernel against the real one, call by call
 *
 * A script is a list of calls by several processes, from a seed: calls of the
 * table zke_os, or of SQLite's VFS.  The simulated kernel plays it with fibers,
 * the real one with forked workers that make a call when told to.  Each call
 * gives a short text: its result, and what matters of its outputs.  Both
 * kernels must give the same texts.  A difference is shrunk by leaving out
 * calls, and printed side by side.
 *
 *   calibrate_os.c     the calls of zke_os
 *   calibrate_vfs.c    those of sqlite3_vfs and sqlite3_io_methods
 *   calibrate_sides.c  plays a script on either kernel
 *   calibrate.c        scripts from seeds, differences, the program
 *
 * A call that waits gives its text later, and both kernels must give it after
 * the same call of another process.  The simulation plays first, which tells
 * when the real kernel's text is due.
 *
 * Scripts make only calls that the engine or SQLite may make: each call says
 * which kinds of descriptors it takes, and calibrate_vfs.c follows SQLite's
 * os.h, which says what callers must do.  Some numbers differ, so only
 * relations are compared: inodes (are two files the same one?), clocks (never
 * back, and by at least the time slept), pids, random bytes.
 *
 * Remaining differences, and why they do not matter:
 *
 *   - Which of several locks find_lock reports.  The kernel reports the oldest
 *     owner's, the simulation any; zkembed.h promises no order.
 *   - A directory's size and number of links: file systems differ.
 *   - A FIFO of the simulation has room for 4,096 bytes, so that it is full
 *     sometimes; the real one is set to the same (F_SETPIPE_SZ).
 *   - POLLOUT is not compared: the engine never asks for it.
 *   - SQLite 3.40, not the newest, keeps PENDING if EXCLUSIVE is refused after
 *     it was requested without RESERVED.  The pager then drops its lock, so
 *     others see PENDING only for a moment.
 *   - Calls on descriptors of a wrong kind, such as read() of a directory: a
 *     mistake of the caller, which the simulation reports as a finding.
 *
 * Not compared: what a sync makes durable, and what a failed one does (disk.h
 * says what is assumed); copy-up in an overlay, since its lower layer is empty;
 * descriptions that parent and child share after fork(); symbolic links; what
 * users other than the owner may do.
 */
#ifndef ZKE_SIM_CALIBRATE_H
#define ZKE_SIM_CALIBRATE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "zkembed.h"

enum {
  CAL_PROCESSES = 3,
  CAL_FDS = 4,
  CAL_HANDLES = 3,
  CAL_ARGS = 4,
  CAL_CALLS = 80,
  CAL_TEXT = 160
};

/* An argument's value, and how it is printed. */
typedef struct cal_word {
  const char *text;
  int64_t value;
} cal_word;

/* SQLite's handle of a file, and what its caller must remember. */
typedef struct cal_handle {
  sqlite3_file *f; /* NULL: not open */
  bool database, writes;
  int level; /* SQLITE_LOCK_... */
  bool mapped;
  unsigned shared, exclusive; /* locks of the WAL-index */
  void volatile *region[2];
} cal_handle;

/* A process of a script. */
typedef struct cal_actor {
  int process;
  bool real;
  const char *root; /* the directory of its files */
  const zke_os *os;
  sqlite3_vfs *vfs;
  const char *path[3]; /* of the database, the journal and the log */
  int fd[CAL_FDS];     /* -1: not open */
  char kind[CAL_FDS];  /* f file, d directory, p FIFO, e poller, t timer */
  cal_handle handle[CAL_HANDLES];
  int64_t clock; /* the last time that it read */
  int written;   /* number of writes; each writes other bytes */
  char *text;    /* of the current call */
} cal_actor;

/* A kind of call.  `args` has a letter for each argument (calibrate.c), `on`
 * the kinds of descriptors that the first argument may be; "-": it must not be
 * open; NULL: any.  Without a function it is the process's death. */
typedef struct cal_kind {
  const char *name;
  int weight; /* for the random choice */
  const char *args, *on;
  void (*act)(cal_actor *me, const cal_word *const *w);
} cal_kind;

/* Each list ends with an entry without a name. */
extern const cal_kind cal_os_kinds[], cal_vfs_kinds[];

typedef struct cal_call {
  int process;
  const cal_kind *kind;
  const cal_word *arg[CAL_ARGS];
} cal_call;

typedef struct cal_script {
  uint64_t seed;
  int count;
  cal_call call[CAL_CALLS];
} cal_script;

typedef struct cal_answer {
  char text[CAL_TEXT];
  int after; /* the call after which the text came; -1: it has not come */
} cal_answer;

/* Begin a process; make a call. */
void cal_begin(cal_actor *me, int process, bool real, const char *root);
void cal_act(cal_actor *me, const cal_call *c, char *text);

/* Append to the call's text; append the text of a result, or of an errno. */
void cal_say(cal_actor *me, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void cal_say_result(cal_actor *me, int64_t result);
/* Bytes, as "4a 96.": four of a, 96 zeros. */
void cal_say_bytes(cal_actor *me, const unsigned char *data, int64_t size);
/* Bytes that no other call writes. */
void cal_fill(cal_actor *me, unsigned char *data, int64_t size);

/* A random call, preferably one that can be made now; calibrate.c. */
void cal_make(const cal_script *s, cal_call *c, bool (*can)(const cal_call *));

/* Play a script.  If it `begins`, the simulation also chooses each call when
 * its turn comes, so that most calls get an open descriptor.  Its texts tell
 * the real side when each text has to come.  Script and answers are shared with
 * children. */
void cal_play_simulated(cal_script *s, bool begins, cal_answer *out);
void cal_play_real(cal_script *s, const char *root, const cal_answer *simulated,
                   cal_answer *out);

#endif
