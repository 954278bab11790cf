/* process.h - other processes, as far as /proc tells of them
 *
 * Every answer is of a moment that is over, and what this process may not see
 * is missing: that something is not found proves nothing.
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

/* A process, and when it started: the two together are not used again. */
typedef struct process {
  pid_t pid, parent, group;
  uint64_t start; /* in clock ticks since the system's start */
  char name[16];  /* its own, at most 15 bytes */
  char state;     /* 'S' sleeps, 'T' is stopped, … as in proc(5) */
  bool live;      /* it has not ended */
  bool member;    /* guard.c's: descends from the command */
} process;

/* A list of them. */
typedef struct processes {
  process *data; /* by pid, for free() */
  size_t count;
} processes;

/* process_read   - what there is to know of one; false where it is not seen
 * process_open   - a pidfd, for close(); -1 with errno
 * process_signal - send a signal to that process, and not to another one that
 *                  has its number by now
 * processes_all  - all that can be seen; data is for free()
 * processes_add  - append one; false without memory
 * processes_find - by its number; NULL: not there */
bool process_read(pid_t pid, process *p);
int process_open(pid_t pid);
void process_signal(const process *p, int signal);
processes processes_all(void);
bool processes_add(processes *all, const process *p);
process *processes_find(const processes *all, pid_t pid);

/* A process that has the descriptor that keeps a session alive. */
typedef struct holder {
  int64_t session; /* 0: no more than that the process was looked at */
  pid_t pid;
  char command[100]; /* its words, as far as they fit */
} holder;

/* What was found so far.  Looking at a process costs some reads of /proc, so
 * each is looked at once, when it is first asked about. */
typedef struct holders {
  char *directory; /* of the database's files; NULL: none */
  holder *data;
  size_t count;
  bool all; /* every process was looked at */
} holders;

/* holders_begin   - of a database's sessions; nothing is looked at yet
 * holders_free    - what was found
 * holders_life    - the session whose descriptor keeps this one alive
 * holders_have    - has one process the descriptor of a session?
 * holders_list    - the processes that have a session's descriptor, as an array
 *                   of objects with pid and command; null: none is seen
 * holders_instead - the same where the process that began the session has it
 *                   no more; null where it has
 * holders_human   - "sleep 60 (pid 12), cat (pid 13)" for people, or a word
 *                   for what cannot be seen
 *
 *   file  of the database
 *   but   a process that is not to be listed
 *   pid   of the process that began it, as it sees itself
 *
 * Only what this process may see is found: not the descriptors of another
 * user's processes, nor other PID namespaces that are not below ours.  Without
 * memory some are missing. */
holders holders_begin(const char *file);
void holders_free(holders *h);
bool holders_have(holders *h, int64_t session, int64_t pid);
int64_t holders_life(const zke_session_info *s);
json_t *holders_list(holders *h, int64_t session, pid_t but);
json_t *holders_instead(holders *h, int64_t session, int64_t pid);
void holders_human(const json_t *list, FILE *out);

#endif
