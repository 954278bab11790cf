/* labserve.h - what the files of zke-lab-serve share
 *
 * The program is installed, and zkelab.py, with which clients in Python use it.
 *
 *     main.c     the command's words; a run of the laboratory
 *     party.c    a client as a party of the laboratory: its connection, its
 *                requests, its waits
 *     control.c  what a client says about itself: sections, failures, sleeps
 *     program.c  clients' programs: started for each schedule, and killed
 *     quiet.c    does a program only wait to be told something?
 *
 * Each file calls those after it in this list.  The requests themselves are
 * answered by the protocol server's own files (shell/serve/serve.h).
 *
 * A client has two ports of its own, so its name never depends on which
 * connection comes first: one is its ZooKeeper, the other takes lines of text
 * (control.c).  Its environment has them:
 *
 *     ZKE_LAB_NAME     anna
 *     ZKE_LAB_HOSTS    127.0.0.1:40001
 *     ZKE_LAB_CONTROL  127.0.0.1:40002
 *
 * Listeners, and the programs that fork, exist before the laboratory's world is
 * made, and stay.  Everything else belongs to a schedule: the laboratory
 * restores the memory, and party_end() closes what is open. */
#ifndef LABSERVE_H
#define LABSERVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../../shell/serve/serve.h"
#include "../lab/zkembed-lab.h"

/* ------------------------------------------------------------------------
 * Is a program quiet? (quiet.c)
 * --------------------------------------------------------------------- */

/* quiet_begin - before anything is started: this process, and what it starts,
 *               stay on one processor; false: that is not possible
 * quiet_tasks - do all threads of the process and of its children sleep, and is
 *               no message under way that would wake one?  Then only their own
 *               timers wake them before they are told something */
bool quiet_begin(void);
bool quiet_tasks(pid_t root);

/* ------------------------------------------------------------------------
 * Programs (program.c)
 * --------------------------------------------------------------------- */

enum { NAME_BYTES = 16, PORT_BYTES = 32 };

/* A process that plays one client, or all of them. */
typedef struct program {
  char *const *command;
  bool shows;      /* its output is shown */
  char names[256]; /* of its clients, with spaces between them */
  char hosts[256]; /* their addresses, in that order */
  char controls[256];
  int keeper;       /* to the process that forks one for each schedule; -1 */
  pid_t keeper_pid; /* 0: none */
  /* of this schedule */
  pid_t pid; /* 0: it was not started */
  int pidfd; /* readable when it has ended */
} program;

/* program_try   - before the first schedule: start it, and find out whether it
 *                 will fork for each one (it says "warm"); else it is ended.
 *                 hosts, lines: where it connects.  NULL, or what is wrong
 * program_begin - start a process for this schedule; false: that failed
 * program_ended - has it ended?  If so, its status: an exit status, or minus a
 *                 signal; 0 if unknown
 * program_end   - kill it, with its children, and wait until it is gone
 * program_leave - end the one that forks */
const char *program_try(program *g, int hosts, int lines);
bool program_begin(program *g);
bool program_ended(const program *g, int *status_out);
void program_end(program *g);
void program_leave(program *g);

/* ------------------------------------------------------------------------
 * What a client says of itself (control.c)
 * --------------------------------------------------------------------- */

enum { CONTROLS = 32, LINE_BYTES = 512 };

/* A connection for lines.  One thread of the client uses it, and waits for an
 * answer to each line. */
typedef struct control {
  int fd; /* 0: none */
  char line[LINE_BYTES];
  size_t len;
  int64_t wakes_ms; /* it sleeps until then; 0: it does not */
} control;

/* control_take  - do what a line says; true if there was one.  done_out: set
 *                 to true if the client has ended
 * control_rings - answer the sleeps that are over
 * control_due   - when the next one is over; ZKE_FOREVER: never
 * control_close - close all */
bool control_take(control all[CONTROLS], zke *z, bool *done_out);
void control_accept(control all[CONTROLS], int listener);
void control_ring(control all[CONTROLS], int64_t now_ms);
int64_t control_due(const control all[CONTROLS]);
void control_close(control all[CONTROLS]);

/* ------------------------------------------------------------------------
 * A client (party.c)
 * --------------------------------------------------------------------- */

typedef struct party {
  char name[NAME_BYTES];
  int hosts, control; /* listeners */
  program *program;
  bool starts; /* it starts the program and ends it; else another client does */
  /* of this schedule */
  bool begun;
  server server; /* for this client alone */
  conn *conn;    /* NULL: it is not connected */
  bool eof;      /* it will send nothing more */
  control controls[CONTROLS];
  bool done;  /* the client has ended */
  zke *waits; /* the handle that it waits on; NULL: it does not */
  bool rung;  /* woken, since another client has done something */
} party;

/* All of them; `parties` is how many. */
enum { PARTIES_MOST = ZKE_LAB_MOST };
extern party parties[PARTIES_MOST];
extern int party_count;

/* party_listen - open a client's ports, and write their addresses
 * party_forget - drop connections that were never accepted
 * party_add    - add it to the laboratory */
bool party_listen(party *p, char hosts[PORT_BYTES], char lines[PORT_BYTES]);
void party_forget(const party *p);
int party_add(zke_lab *lab, party *p);

#endif
