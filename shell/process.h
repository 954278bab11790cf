/* process.h - other processes, as far as /proc shows them
 *
 * Every answer describes a past moment, and leaves out processes that this one
 * may not see: a missing process proves nothing.
 */
#ifndef ZKE_SHELL_PROCESS_H
#define ZKE_SHELL_PROCESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "zkembed.h"

/* A process and its start time: the pair is never reused. */
typedef struct process {
  pid_t pid, parent, group;
  uint64_t start; /* in clock ticks since the system's start */
  int threads;
  char name[16]; /* its own, at most 15 bytes */
  char state;    /* 'S' sleeps, 'T' is stopped, … as in proc(5) */
  bool live;     /* it has not ended */
  bool member;   /* guard.c's: descends from the command */
} process;

/* A list of processes. */
typedef struct processes {
  process *data; /* by pid, for free() */
  size_t count;
} processes;

/* process_read   - what /proc shows of a process; false if it is not visible
 * process_open   - a pidfd, for close(); -1 with errno
 * process_signal - send a signal to that process, and not to another one that
 *                  now has its number
 * processes_all  - all visible processes; data is for free()
 * processes_add  - append one; false without memory
 * processes_find - by its number; NULL: not there */
bool process_read(pid_t pid, process *p);
int process_open(pid_t pid);
void process_signal(const process *p, int signal);
processes processes_all(void);
bool processes_add(processes *all, const process *p);
process *processes_find(const processes *all, pid_t pid);

/* A process with the descriptor that keeps a session alive. */
typedef struct holder {
  int64_t session; /* 0: only says that the process was examined */
  pid_t pid;
  char command[100]; /* its words, cut to fit */
} holder;

/* Where the process is that began a session. */
enum sight {
  ELSEWHERE, /* on another host, for all that is known */
  ON_HOST,   /* on this one, but not visible to this process */
  VISIBLE
};

/* Results so far.  To examine a process costs some reads of /proc, so each is
 * examined once, when it is first asked about. */
typedef struct holders {
  char *directory; /* of the database's files; NULL: none */
  holder *data;
  size_t count;
  bool all; /* every process was examined */
} holders;

/* holders_begin   - for a database's sessions; examines nothing yet
 * holders_free    - free the results
 * holders_life    - the session whose descriptor keeps this one alive
 * holders_have    - does a process have the descriptor of a session?
 * holders_sight   - where is the process that began it?  NULL: elsewhere
 * holders_instead - the processes with a session's descriptor, as an array of
 *                   objects with pid and command, if the process that began the
 *                   session no longer has it; null: it has, or none is visible
 * holders_of_pipe - the other processes with a descriptor of that pipe, as such
 *                   an array
 * holders_human   - "sleep 60 (pid 12), cat (pid 13)" for people, or a word for
 *                   invisible ones
 *
 *   file  of the database
 *   pid   of the process that began it, in its own PID namespace
 *
 * This finds only what this process may see: not the descriptors of another
 * user's processes, nor PID namespaces that are not below ours.  Without memory
 * some are missing. */
holders holders_begin(const char *file);
void holders_free(holders *h);
bool holders_have(holders *h, int64_t session, int64_t pid);
enum sight holders_sight(holders *h, const zke_session_info *s);
int64_t holders_life(const zke_session_info *s);
json_t *holders_instead(holders *h, int64_t session, int64_t pid);
json_t *holders_of_pipe(int fd);
void holders_human(const json_t *list, FILE *out);

#endif
