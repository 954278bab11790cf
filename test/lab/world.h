/* world.h - a world: processes that run step by step */
#ifndef WORLD_H
#define WORLD_H

#include "lab.h"

/* ---- for calls.c: a process reports its calls ---- */
void lab_call(const char *name, zke *z, const char *path); /* before it */
int lab_done(int rc);                                      /* after it */
/* Around the function of a batch: its calls belong to the batch's step. */
void lab_batch(bool begins);
int lab_opened(int rc, zke **z);
void lab_zxid(void); /* zke_zxid() is called */
/* Whether the next call makes an ephemeral or a sequential znode. */
void lab_makes(bool makes);
/* A call that may wait.  It keeps the state of the wait around it, since a
 * callback may wait as well. */
typedef struct lab_wait {
  char *mark;    /* the end of its caller's part of the stack; NULL: no wait */
  int64_t turn;  /* of the handle, at its begin */
  int64_t until; /* ns */
} lab_wait;
lab_wait lab_wait_begin(char *mark, int64_t turn, int64_t deadline_ms);
void lab_wait_end(lab_wait was);
zke *lab_store(void); /* inside a process: a lasting session; else NULL */

/* ---- for threads.c ---- */
int lab_self(void); /* the process that runs, from 1 on; 0: none */
bool lab_wait_on(const void *what, int64_t due, const char *name); /* late? */
void lab_wake_on(const void *what);

/* ---- for keep.h ---- */
/* The finding if the running process has ended the program. */
void world_death_words(const zke_lab *lab, const char *how, char *out,
                       size_t size);

/* ---- for the search ---- */

/* A step is a letter.  With a process's number added:
 *   a  it runs                   A  it dies
 *   F  its death is noticed      p  its session expires
 *   u  it runs, and the reply of its next change is lost before the change
 *   K  ... after the change      ~  time passes until the next deadline */
enum {
  STEP_RUN = 'a',
  STEP_DIE = 'A',
  STEP_BURY = 'F',
  STEP_EXPIRE = 'p',
  STEP_LOSE_BEFORE = 'u',
  STEP_LOSE_AFTER = 'K',
  STEP_TIME = '~',
  STEPS_MOST = 1 + 6 * ZKE_LAB_MOST
};

int world_open(zke_lab *lab); /* make it, and take lab->first */
void world_close(zke_lab *lab);
/* Run a schedule: fn begins in the world as it was made, and only its changes
 * in *lab are sure to last.  Returns what fn returns; also true if fn has ended
 * the program. */
bool world_try(zke_lab *lab, bool (*fn)(zke_lab *lab, void *arg), void *arg);
/* With pictures only (keep.h): */
void world_again(zke_lab *lab); /* as it was in lab->first */
void world_put(const picture *p);

/* The steps that are possible now; 0: the schedule is over, or has failed. */
int world_steps(zke_lab *lab, char out[STEPS_MOST]);
void world_step(zke_lab *lab, char step);
/* Move the steps that must be tried to the front; returns how many they are.
 * 0: all.  If world_was_seen() is true after the first of them, all must be
 * tried. */
int world_reduce(const zke_lab *lab, char *steps, int count);
bool world_was_seen(void);
/* Leave out a step if the same step of an alike process is tried instead. */
int world_leave_alike(const zke_lab *lab, char *steps, int count);
/* The last looks, when there is no step.  zke_check() takes as long as many
 * schedules, so the search requests it only sometimes. */
void world_end(zke_lab *lab, bool check);
bool world_has_failed(void);
int world_step_count(void);
int world_last(void); /* the process that ran last; -1: none */
int world_kind(char step, int *process); /* one of STEP_…; 0: no such letter */
enum { WORLD_FAULTS = 4 };
void world_faults_left(int out[WORLD_FAULTS]); /* of each kind */
int world_budget(
    const zke_lab *lab); /* faults that are allowed in a schedule */
bool world_snapshot(picture *p);

/* ---- for state.c ---- */
typedef struct world_lane {
  bool lives;         /* its stack counts */
  char *from, *to;    /* the stack */
  const char *thread; /* its thread-local variables */
  size_t thread_size;
  zke *z;
} world_lane;
int world_lanes(world_lane out[ZKE_LAB_MOST]);
/* The rest of a world's state, without the faults that are left. */
enum { WORLD_WORDS = 256 };
size_t world_words(uint64_t out[WORLD_WORDS]);

/* ---- of statics.c: which unnamed static variable has changed in this
 * schedule?  It goes to lab->unnamed.  ---- */
void statics_check(zke_lab *lab);

/* ---- of outside.c: a party's process has died; a schedule is over ---- */
void outside_died(const zke_lab *lab, int process);
void outside_end(const zke_lab *lab);

/* Before the first world. */
bool state_begin(void);

/* Inside a process: has it left unreachable blocks?  (state.c) */
size_t state_leaked(zke_lab *lab, int process, size_t *bytes_out);
uint64_t state_hash(zke_lab *lab);

#endif
