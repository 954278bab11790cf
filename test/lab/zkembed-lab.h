/* zkembed-lab.h - recipe code explored: every order, death and lost reply
 *
 * The laboratory runs two to five processes of a test in one thread, on the
 * real engine with its tables in memory.  It chooses which process makes the
 * next call, dies, loses its session or loses a reply, and when time passes.
 * It runs thousands of such schedules a second.  The first one that breaks
 * something is shrunk to a few letters, which can always be replayed:
 *
 *     #include "zkembed-lab.h"
 *     #include "lock.h"
 *
 *     static void worker(zke *z, void *arg) {
 *       zke_lock *lock = NULL;
 *       (void)arg;
 *       if (zke_lock_new(z, "/lock", NULL, &lock) != ZKE_OK) return;
 *       if (zke_lock_acquire(lock, ZKE_FOREVER) == ZKE_OK) {
 *         zke_lab_enter("held", 1);
 *         zke_lab_leave("held");
 *         zke_lock_release(lock);
 *       }
 *       zke_lock_free(lock);
 *     }
 *
 *     int main(int argc, char **argv) {
 *       zke_lab *lab = NULL;
 *       if (zke_lab_new(NULL, &lab) != ZKE_OK) return 2;
 *       zke_lab_process(lab, "a", worker, NULL);
 *       zke_lab_process(lab, "b", worker, NULL);
 *       zke_lab_state(lab, NULL, 0);
 *       int status = zke_lab_main(lab, argc, argv);
 *       zke_lab_free(lab);
 *       return status;
 *     }
 *
 * `make install` installs this header and libzkembed-lab.a with the library:
 * compile with `pkg-config --cflags --libs zkembed-lab`.
 *
 * The code under test is the code that runs in production: it does not include
 * this header, and is compiled as usual.  doc/laboratory.md leads from a lock
 * that you wrote to the first bug, and lists what the laboratory can find and
 * what it cannot.
 *
 * WHAT IS CHOSEN.  A process runs until its next call of zkembed.h, and stops
 * before it: there the laboratory chooses.  A call itself is not divided, since
 * no other process can see it half done.  A process that waits in zke_wait() or
 * in a recipe's call continues when it is woken.  Time stands still while a
 * process can run, and then jumps to the next deadline.
 *
 * WHAT IS FOUND, besides what the test itself asserts:
 *   - processes wait, and nothing can wake them, or only the deadlines of their
 *     waits;
 *   - a schedule takes more than `steps` steps;
 *   - abort(), a failed assert(), a segmentation fault, a division by zero, a
 *     recursion that uses up the stack (of 256 KiB);
 *   - a process runs for a second of processor time without a call;
 *   - a block is freed twice, written to after it was freed, or written beyond
 *     its end, which is noticed when it is freed or used again;
 *   - a process returns and leaves memory, ephemeral znodes or watchers behind:
 *     a watcher that is called later finds its context gone;
 *   - sections overlap that zke_lab_enter() and zke_lab_exclude() keep apart;
 *   - a process is woken in vain more often than `wakes` allows;
 *   - zke_check() reports a fault of the tree at the end.
 *
 * RULES.  One laboratory runs at a time in a program, on the thread that calls
 * it.  The program's static variables and allocated memory are restored before
 * each schedule and after the run: a check reports its results with
 * zke_lab_note() and zke_lab_fail(), not in variables.  Files, sockets and real
 * threads of the code under test are not restored.  Times must come from
 * zke_now(), clock_gettime() or nanosleep(); other clocks are not controlled.
 * A program must do the same again in the same schedule: one that makes other
 * calls, since it uses another clock or random numbers, is refused.
 *
 * Functions of the first group return ZKE_OK or a code of zkembed.h, with a
 * sentence in zke_errmsg().  Those of the second are called inside a process
 * or a check; outside of a run they do nothing, so code may keep them.
 */
#ifndef ZKEMBED_LAB_H
#define ZKEMBED_LAB_H

#include <stddef.h>
#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Processes and threads of a test together. */
#define ZKE_LAB_MOST 5

/* How steps are chosen.  Each strategy finds bugs that the others miss, so by
 * default all but the last take turns.
 *   RANDOM    any process that can run, at each step
 *   PCT       by priorities that change at a few steps
 *             (Burckhardt and others, A Randomized Scheduler with
 *             Probabilistic Guarantees of Finding Bugs, 2010)
 *   STATES    every order, but from equal states only once; needs
 *             zke_lab_state().  If this comes to its end, nothing is left to
 *             be found within the budgets.
 *   DEPTH     every order with at most `preemptions` changes from a process
 *             that could have continued */
enum {
  ZKE_LAB_RANDOM = 1,
  ZKE_LAB_PCT = 2,
  ZKE_LAB_STATES = 4,
  ZKE_LAB_DEPTH = 8
};

/* What a run may do.  0 is the default, -1 means none.  Set it up with
 * ZKE_INIT(zke_lab_options). */
typedef struct zke_lab_options {
  size_t size;
  int crashes;       /* processes that die, in one schedule; 1 */
  int expiries;      /* sessions that expire while their process lives; 1 */
  int losses;        /* replies lost, before the change was made or after; 1 */
  int pauses;        /* jumps of time while a process could run; 1 */
  int preemptions;   /* of ZKE_LAB_DEPTH; 2 */
  int steps;         /* a schedule that takes more makes no progress; 2000 */
  int wakes;         /* allowed wake-ups in vain of a process; 0: any */
  int strategies;    /* ZKE_LAB_… added up; all but DEPTH */
  int timeouts;      /* 1: a wait may reach its deadline when no other process
                      can run; 0: that is a finding */
  int leftovers;     /* 1: a process may leave memory, ephemeral znodes and
                      watchers */
  int waits;         /* 1: after a death or an expiry the others may wait
                      forever (say, at an incomplete barrier), unless that
                      process had called zke_lab_spare() */
  int64_t time_ms;   /* of processor time to search; 2000 */
  int64_t schedules; /* at most this many; 0: any */
  uint64_t seed;     /* of the choices; 0 is a seed as good as any */
  int reduction;     /* of STATES; -1: also try what is known to end the same
                      way as something that was tried */
  int alike;         /* 1: processes with the same function and argument are
                      interchangeable; see below */
} zke_lab_options;

/* With `alike`, among the processes with the same function and argument the
 * first is the first to make an ephemeral or sequential znode, the second the
 * second, and so on: STATES and DEPTH leave out the other orders, five of six
 * for three processes.  Set it only if these processes are indistinguishable:
 * test and code may compare their names, session ids and random numbers only
 * for equality. */

/* What a run has found.  Texts belong to the laboratory, until the next run. */
typedef struct zke_lab_result {
  size_t size;
  int found;            /* 1: something is broken, as described below */
  int stale;            /* 1: a replay differed from the original run */
  int exhausted;        /* 1: within the budgets nothing is left to try */
  const char *why;      /* a sentence */
  const char *schedule; /* letters, as zke_lab_replay() takes them */
  int64_t schedules;    /* how many were run */
  int64_t states;       /* different ones met by STATES */
  int64_t calls;        /* of zkembed.h */
  int64_t doubts;  /* schedules of parties outside that failed, but did not fail
                     again when replayed: these are not findings */
  int64_t entries; /* into sections, in all schedules */
  const char *unnamed; /* a static variable that changes and is not named to
                          zke_lab_state(), so that nothing is exhausted; NULL:
                          none was seen at the end of a schedule */
} zke_lab_result;

typedef struct zke_lab zke_lab;
typedef void (*zke_lab_fn)(zke *z, void *arg);

/* ---- building a test ---- */

/* zke_lab_new - a laboratory; options may be NULL, and are copied
 * Errors: ZKE_BADARGUMENTS, out is NULL or an option is out of range;
 * ZKE_NOMEM. */
int zke_lab_new(const zke_lab_options *options, zke_lab **out);

/* zke_lab_free - NULL is allowed; not inside a run */
void zke_lab_free(zke_lab *lab);

/* zke_lab_process - add a process that runs fn, with a session of its own
 * zke_lab_thread  - add a thread to the process of that name: it shares its
 *                   session, and dies with it
 * The name, of at most 15 bytes, is copied, and appears in findings.  A process
 * ends when fn returns; fn must not close z.  In fn, zke_open() and
 * zke_open_session() give further sessions of the same process on the same
 * database, whatever name is opened.
 * Errors: ZKE_BADARGUMENTS, a name is empty, too long, taken or unknown, or
 * there are already ZKE_LAB_MOST. */
int zke_lab_process(zke_lab *lab, const char *name, zke_lab_fn fn, void *arg);
int zke_lab_thread(zke_lab *lab, const char *process, const char *name,
                   zke_lab_fn fn, void *arg);

/* What a party outside does next. */
enum { ZKE_LAB_ENDED, ZKE_LAB_REQUEST, ZKE_LAB_IDLE };
/* Why its connection is closed: a reply was lost, before or after the change;
 * its session has expired; or its process is dead. */
enum { ZKE_LAB_LOST = 1, ZKE_LAB_EXPIRED, ZKE_LAB_DEAD };

/* A party outside: a client whose code runs elsewhere, in another program or
 * language, and for which the test is the server.  A request is held until it
 * is its turn.  Set it up with ZKE_INIT(zke_lab_party). */
typedef struct zke_lab_party {
  size_t size;
  /* A schedule begins: start or restart the party. */
  void (*begin)(void *context);
  /* Wait until it has a request, and keep that: ZKE_LAB_REQUEST; or until it
   * surely waits for an event, ZKE_LAB_IDLE, or has returned, ZKE_LAB_ENDED.
   * Nothing else runs meanwhile. */
  int (*next)(void *context);
  /* Make the calls of that request with the party's session, and keep the
   * reply.  Each call of zkembed.h is a step.  Events come in a call, to the
   * watchers that it gives.  Returns a result of zkembed.h; after
   * ZKE_CONNECTIONLOSS, or if the session has expired, drop() follows instead
   * of reply(). */
  int (*apply)(void *context, zke *z);
  /* Send the reply, after the events that came before it.  This is a separate
   * step: others may run while the reply is held. */
  void (*reply)(void *context, int rc);
  /* The connection is closed.  After ZKE_LAB_LOST the party may continue and
   * connect again; otherwise only end() is called for it. */
  void (*drop)(void *context, int why);
  /* The schedule is over, even if the party is not, or was not begun: stop it,
   * and close what begin() has opened. */
  void (*end)(void *context);
  /* Replaces next(), apply(), reply() and drop(), which may then be NULL: does
   * everything for the party, until it has ended.  The party's sessions
   * are those that this function opens on z, zke_open_session() and
   * zke_attach(): they expire, and z does not. */
  void (*run)(void *context, zke *z);
} zke_lab_party;

/* zke_lab_outside - add a party outside, as a process with a session
 * The functions are copied.  They run one at a time, and must keep their data
 * in *context, which is restored before each schedule like all memory.  The
 * letters of schedules are those of any process; a party must do the same again
 * when it gets the same replies.  STATES and DEPTH do not run, since they would
 * have to restore the parties: zke_lab_run() returns ZKE_UNIMPLEMENTED if no
 * other strategy was chosen.
 * Errors: as zke_lab_process(), and a function is NULL. */
int zke_lab_outside(zke_lab *lab, const char *name, const zke_lab_party *party,
                    void *context);

/* zke_lab_setup   - before the first schedule, with a session that stays
 * zke_lab_always  - after each step
 * zke_lab_finally - at the end of a schedule, when each process has returned,
 *                   or is dead and its session has ended
 * One each; NULL removes it.  Nothing else runs while one of them does.  With
 * lab NULL they do nothing. */
void zke_lab_setup(zke_lab *lab, zke_lab_fn fn, void *arg);
void zke_lab_always(zke_lab *lab, zke_lab_fn fn, void *arg);
void zke_lab_finally(zke_lab *lab, zke_lab_fn fn, void *arg);

/* zke_lab_state - memory that counts when states are compared
 * Name each static variable, and each block shared by processes, that the test
 * or its checks read; what processes have on their stacks, and what can be
 * reached from there, counts by itself.  Without any call no two states are
 * taken for equal, since that could hide a bug; (NULL, 0) says that there is
 * nothing to name.  Errors: ZKE_BADARGUMENTS, more than 32. */
int zke_lab_state(zke_lab *lab, void *at, size_t size);

/* zke_lab_sometimes - some schedule must enter the section of that name, or
 * call zke_lab_reach() with it
 * A test whose processes never reach its subject would find nothing.  If no
 * schedule in the whole search does so, that is the finding, with a schedule in
 * which each process runs to its end.
 * Errors: ZKE_BADARGUMENTS, the name has more than 31 bytes, or there are more
 * than 32. */
int zke_lab_sometimes(zke_lab *lab, const char *name);

/* ---- running it ---- */

/* zke_lab_run    - search; also ZKE_OK if something was found
 * zke_lab_replay - run one schedule, once
 * Errors: ZKE_BADARGUMENTS, there is no process, or the schedule is malformed;
 * ZKE_UNIMPLEMENTED, only STATES or DEPTH were chosen, which the library that
 * forks (libzkembed-lab-forked.a) does not have, and which exclude parties
 * outside; ZKE_RUNTIMEINCONSISTENCY, the program does not do the same again in
 * the same schedule; ZKE_NOMEM; the engine's error if the database cannot be
 * made, or if setup fails. */
int zke_lab_run(zke_lab *lab, zke_lab_result *out);
int zke_lab_replay(zke_lab *lab, const char *schedule, zke_lab_result *out);

/* zke_lab_picture - replay a schedule and draw it into a file
 * Each process is a lane, time goes downwards, each step is a line: text for a
 * terminal, or SVG if the file's name ends in .svg; "-" is standard output.  If
 * the schedule fails, a mark shows after which step every continuation failed,
 * judged by 64 random tries (not with a party outside).
 * Errors: as zke_lab_replay(); ZKE_SYSTEMERROR, the file cannot be written. */
int zke_lab_picture(zke_lab *lab, const char *schedule, const char *file);

/* zke_lab_main - run as a program; returns its exit status
 * Prints one test in the Test Anything Protocol, and the finding with its
 * picture if there is one: 0, nothing was found; 1, something was; 2, wrong
 * words, a stale schedule, or another error.  Words: --replay SCHEDULE,
 * --seconds N, --seed N, --picture FILE, --strategy NAME (random, pct, states,
 * depth), --help. */
int zke_lab_main(zke_lab *lab, int argc, char **argv);

/* ---- inside processes and checks ---- */

/* zke_lab_enter   - this process enters a section for at most `limit` processes
 * zke_lab_leave   - it leaves the section
 * zke_lab_exclude - no process may enter the one while another is in the other
 * A process that is dead, or whose session has expired, is in no section. */
void zke_lab_enter(const char *section, int limit);
void zke_lab_leave(const char *section);
void zke_lab_exclude(const char *section, const char *other);

/* zke_lab_spare - from here on the others can do without this process:
 * `waits` excuses nothing for its death or the end of its session, since others
 * do the rest.  A consumer of a queue is spare from the beginning, a producer
 * once it has put its items. */
void zke_lab_spare(void);

/* zke_lab_reach - the place given to zke_lab_sometimes() is reached */
void zke_lab_reach(const char *name);

/* zke_lab_yield - others may run here: for use before accesses to memory that
 * threads or processes of the test share.  Calls of zkembed.h do so, too. */
void zke_lab_yield(void);

/* zke_lab_note - a line for the picture */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void zke_lab_note(const char *format, ...);

/* zke_lab_fail - the test has failed: ends the schedule, and does not return
 * inside of one */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
void zke_lab_fail(const char *format, ...);

#define zke_lab_assert(x) \
  ((x) ? (void)0 : zke_lab_fail("%s:%d: %s", __FILE__, __LINE__, #x))

#ifdef __cplusplus
}
#endif

#endif
