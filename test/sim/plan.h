/* plan.h - what a seed means: the knobs of a run, and the list of its faults
 *
 * A replay string has three parts, "SEED/KNOBS/FAULTS":
 *
 *     17/p3,t2,c400,w100/k1@532,e0@dsync3:EIO,s2@900:3600000,C@8211:4
 *
 * Knobs are a letter and a number (PLAN_KNOB_LIST).  A fault is a letter, the
 * process that it strikes, and where: "@532" is the 532nd call of the slot's
 * processes, counted through all of them, "@dsync3" their third call of that
 * name.
 *
 *   k1@532         kill it there; k1@dwrite7:500 inside, half of it written
 *   e0@532:EIO     the first call from there on that may report EIO does
 *   s2@900:1500    stop it there for 1,500 ms
 *   x1@532         it execs: like a kill, but the next process has its pid
 *   d1@532:800     a child has copies of its descriptors for 800 ms
 *   f1@532:800     it forks, and dies 800 ms later (forked.h)
 *   f1@532:801     the same in its next callback, or in a batch
 *   c1@532         that thread is cancelled; :2 the second one after it
 *   l2@dsync4:800  this sync, or the next one after it, takes 800 ms
 *
 * A fault with a + instead of the @ strikes that many calls, or steps, after
 * the previous fault of the list: "e2@dsync3:EIO,C+200:4" is a power cut soon
 * after a failed sync.
 *
 * Capital letters are faults of the host, at a step of the run:
 *
 *   A@8211:1       an administrator's act 1 (admin.h)
 *   C@8211:4       power cut of style 4 (disk.h)
 *   M@8211         all processes are killed at the same time
 *   F@8211:3000    the disk is full for 3 s
 *   Q@8211:3000    a quota is almost used up for 3 s: some bytes more, at most
 *                  128 KiB, then EDQUOT
 *   B@8211:3000    the disk is bad for 3 s: each write and sync reports EIO
 *   W@8211:-90000  the wall clock is set back by 90 s
 *   Z@8211:60000   the host is suspended for a minute
 *   Y@8211:17      from here on all random choices are different, in the 17th
 *                  way; the remaining faults strike elsewhere (future.h)
 */
#ifndef ZKE_SIM_PLAN_H
#define ZKE_SIM_PLAN_H

#include "test/sim/sim.h"

/* letter, name, least, most */
#define PLAN_KNOB_LIST(X)                                                   \
  X('p', processes, 1, 6)                                                   \
  X('t', threads, 1, SIM_THREADS - 1) /* of each */                         \
  X('c', steps, 100, 10000000)        /* until faults end */                \
  X('w', switches, 0, 100)            /* of 100 steps; 0: by priority */    \
  X('x', changes, 1, 1000)            /* of priorities */                   \
  X('b', busy, 0, 1)                  /* writers without a pause */         \
  X('l', leases, 0, 1)                /* and sessions that are ended */     \
  X('k', kept, 0, 1)                  /* kept sessions */                   \
  X('r', readlocks, 0, 1)                                                   \
  X('g', plainlog, 0, 1)                                                    \
  X('h', history, 0, 1)   /* and its check at the end */                    \
  X('d', devices, 0, 1)   /* a boot gives the disk another number */        \
  X('v', container, 0, 9) /* half of them live in one: container.c */       \
  X('i', cache, 0, 4096)  /* KiB; 0: the engine's own */                    \
  X('o', omits, 0, (INT64_C(1) << 40) - 1) /* kinds of calls, a bit each */ \
  X('y', order, 0, 1000000)                /* 0: the seed's; another */     \
  X('f', foreign, 0, 2) /* the last process is another program */           \
  X('m', medium, 0, 7)  /* 1: no sync of directories, 2: padded commits, */ \
                        /* 4: a failed sync is told to one description */   \
  X('a', hosted, 0, 1)  /* the file is another program's, too */            \
  X('n', notices, 0, 9) /* notice_limit; 0: the engine's own */             \
  X('u', uses, 0, 99)   /* of recipes: 1 any, 2 the first of uses.h, ... */ \
  X('z', pages, 0, 8)   /* of 256 << z bytes; 0: as SQLite makes them */

#define PLAN_MEMBER(letter, name, least, most) int64_t name;
typedef struct plan_knobs {
  PLAN_KNOB_LIST(PLAN_MEMBER)
} plan_knobs;
#undef PLAN_MEMBER

/* A knob: its letter, its limits, and its place in plan_knobs. */
typedef struct plan_knob {
  char letter;
  int64_t least, most;
  size_t member;
} plan_knob;
enum {
#define PLAN_ONE(letter, name, least, most) +1
  PLAN_KNOBS = PLAN_KNOB_LIST(PLAN_ONE)
#undef PLAN_ONE
};
extern const plan_knob plan_knob_of[PLAN_KNOBS];

/* letter, what it is, and the unit of its argument; capitals are the host's */
#define PLAN_FAULT_LIST(X)                        \
  X('k', "a kill", "of 1000 parts done")          \
  X('s', "a stop", "ms")                          \
  X('e', "an error", "")                          \
  X('l', "a slow sync", "ms")                     \
  X('x', "an exec", "")                           \
  X('d', "a child has the descriptors", "ms")     \
  X('f', "a fork", "ms until the parent dies")    \
  X('c', "a cancellation", "")                    \
  X('A', "an act on the files", "")               \
  X('C', "a power cut", "")                       \
  X('M', "a kill of all processes", "")           \
  X('F', "the disk is full", "ms")                \
  X('B', "each write and sync reports EIO", "ms") \
  X('W', "the wall clock is set", "ms")           \
  X('Z', "the host is suspended", "ms")           \
  X('Y', "another future", "")                    \
  X('Q', "a quota is almost used up", "ms")

typedef struct plan_fault {
  char kind;
  int slot;      /* -1: the host's */
  sim_call call; /* CALL_any: of all */
  int64_t at;
  int64_t arg;
  bool follows; /* `at` counts from the previous fault */
  bool done;
} plan_fault;

enum { PLAN_FAULTS = 256, PLAN_TEXT = 8192 };

typedef struct plan {
  uint64_t seed;
  plan_knobs k;
  plan_fault fault[PLAN_FAULTS];
  int faults;
} plan;

extern plan the_plan;

/* How many calls of a name, or of any, a slot's processes have made; for slot
 * -1 the number of steps.  Set by the scheduler. */
extern int64_t (*plan_count)(int slot, sim_call call);
/* May the running thread, or the n-th after it, be cancelled now?  Also set by
 * the scheduler. */
extern bool (*plan_may_cancel)(int64_t n);

/* A knob of a plan. */
int64_t *plan_knob_at(plan_knobs *k, int knob);

/* Make the plan of a seed. */
void plan_make(plan *p, uint64_t seed, int processes);
/* plan_print - as a replay string
 * plan_parse - from a string; NULL, or the error at *at, a place in the text
 * plan_print_fault - one fault as in the string
 * plan_fault_words - the same, with its meaning */
void plan_print(const plan *p, char out[PLAN_TEXT]);
const char *plan_parse(plan *p, const char *text, const char **at);
void plan_print_fault(const plan_fault *f, char out[64]);
void plan_fault_words(const plan_fault *f, char out[128]);

/* The next fault of the plan that strikes this call of a slot, or NULL.  The
 * call is the slot's number-th, and the count-th of its name.  The fault is
 * then done. */
plan_fault *plan_strikes(int slot, sim_call call, int64_t number,
                         int64_t count);
/* The next fault of the host whose step has come, or NULL. */
plan_fault *plan_strikes_host(int64_t step);
/* The step of the next one, or of the end of faults. */
int64_t plan_next_host(void);
/* Move the remaining faults to other places, chosen by SIM_PLAN. */
void plan_move_later(void);

#endif
