/* crew.h - helpers for the tests of the recipes
 *
 * They check what is left in the tree, make calls on other threads, and run a
 * crew of processes. sessions.h has the sessions of one store; recipes.h has
 * the deaths, lost replies and faults that every recipe must survive.
 */
#ifndef ZKE_TEST_CREW_H
#define ZKE_TEST_CREW_H

#include <pthread.h>
#include <stdbool.h>

#include "test/test.h"

/* ---- looking ---- */

/* A deadline that only a call that hangs reaches. */
int64_t soon(zke *session);
/* Dispatch until no more events come or the session has ended; returns how many
 * watchers were called. */
int dispatch_on(zke *session);
/* How many children a node has; 0 if there is no node. */
int entries(zke *session, const char *path);
/* Wait on a watch until the node has no children: the deaths of their owners
 * have been noticed. */
void until_empty(zke *session, const char *path);
/* The number of watches of the session, and of all sessions. */
int watches(zke *session);
int all_watches(zke *session);
/* Close the last session of a test.  No watch may be left, and zke_check() must
 * find nothing. */
void close_last(zke *session);

/* ---- a call on another thread ---- */

typedef struct call {
  pthread_t thread;
  int (*run)(struct call *c); /* the call, on that thread */
  void *object;               /* what it is made on */
  int how;                    /* what else it needs: a mode, a number */
  int64_t deadline;
  int rc;
  bool done;
  char sentence[512]; /* of rc */
} call;

/* Begin it. */
void call_begin(call *c, int (*run)(call *c), void *object, int how,
                int64_t deadline);
bool call_is_done(const call *c);
/* Wait for its end, ten seconds at most. */
void call_end(call *c);

/* ---- a crew of processes on one database ---- */

enum { CREW = 50 }; /* at most */

/* What the processes of a crew and their parent share. */
extern struct shared {
  int go;          /* counts up; the crew begins when it is 1 */
  int stage[CREW]; /* how far each is, as its test has it */
  int rc[CREW];
  long bytes[CREW]; /* read from FIFOs: the events' wake-ups */
  int64_t tokens[CREW];
  char sentence[512]; /* why one gave up */
} * shared;
extern int self; /* this process's number */

int load(const int *value);
void store(int *value, int to);
/* Wait until it is as great. */
void wait_for(const int *value, int least);
/* The same, but also read this process's wake-ups: a call may return before the
 * byte comes that should have woken it. */
void listen_for(zke *own, const int *value, int least);

/* Call this before a database is open: the crew must not inherit it. */
void share(void);
/* Start number `number` of the crew: when shared->go is 1 it opens the
 * database test_path("db"), and runs. */
pid_t spawn(int number, void (*run)(zke *own));
/* End this process of the crew, and tell why. */
void give_up(const char *what, int rc);
/* Kill it, -9, and wait for its end. */
void kill_child(pid_t pid);

#endif
