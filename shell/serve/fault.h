/* fault.h - the faults of the protocol server, for control.c */
#ifndef ZKE_SERVE_FAULT_H
#define ZKE_SERVE_FAULT_H

#include "serve.h"

/* What a fault does.  Faults from ACT_PAUSE on last until they are released, or
 * for their time; the others wait for a request that they apply to, and
 * ACT_HOLD_EVENT for an event. */
enum fault_act {
  ACT_DROP_BEFORE,
  ACT_DROP_AFTER,
  ACT_HOLD_REQUEST,
  ACT_HOLD_REPLY,
  ACT_HOLD_EVENT,
  ACT_FAIL,
  ACT_PAUSE,
  ACT_OUTAGE
};

enum { FAULT_ALWAYS = -1, FAULTS_MOST = 1000 };

typedef struct fault {
  struct fault *next;
  int id; /* from 1 on */
  enum fault_act act;
  /* the requests that it applies to; for events, the session and the path */
  int64_t session;  /* 0: any */
  uint64_t types;   /* fault_types() */
  char *path;       /* a pattern as of fnmatch(); NULL: any */
  int64_t skip;     /* so many of them are spared first */
  int64_t left;     /* how often it still fires, or FAULT_ALWAYS */
  int64_t for_ms;   /* how long it holds; 0: until released */
  int error;        /* of ACT_FAIL */
  int64_t until_ms; /* server's clock: when a lasting one ends; 0: never */
  /* what has happened with it */
  int64_t seen;  /* requests or events that it applies to */
  int64_t fired; /* how often it has taken effect */
  char *line;    /* the order that asked for it */
} fault;

struct faults {
  fault *first; /* in the order of their requests */
  int count;
  int next_id;
  bool stands;         /* the clock is stopped */
  int64_t advanced_ms; /* of the clock, by tests */
};

/* fault_add     - a new fault, which takes the texts of `wanted`; NULL without
 *                 memory
 * fault_find    - the one with that number; NULL: there is none
 * fault_free    - its texts, and itself
 * fault_clear   - remove those with that number, 0: all; ends their holds
 * fault_release - end holds; a lasting fault ends.  By the fault's number and
 *                 the session, 0: any.  Returns how many connections were
 *                 released, plus the faults that ended
 * fault_holds   - how many connections it holds
 * fault_types   - the requests of that name ("create", "change"); 0: none
 * faults_drop   - close the connections of a session, 0: of all; how many
 * faults_advance - move the server's clock forward
 * faults_stand  - stop the clock, or start it */
fault *fault_add(server *s, const fault *wanted);
fault *fault_find(const server *s, int id);
int fault_clear(server *s, int id);
int fault_release(server *s, int id, int64_t session);
int fault_holds(const server *s, const fault *f);
uint64_t fault_types(const char *name);
int faults_drop(server *s, int64_t session);
void faults_advance(server *s, int64_t ms);
void faults_stand(server *s, bool stands);

#endif
