/* zkembed-lab.h - recipe code explored: every order, death and lost reply
 *
 * The laboratory runs two to five processes of a test in one thread, on the
 * real engine with its tables in memory, and chooses itself who makes the next
 * call, who dies, whose session expires, whose reply is lost and when time
 * passes.  It runs thousands of such schedules a second.  The first one that
 * breaks something is shrunk to a few letters, which replay it for ever:
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
 * `make install` puts this header and libzkembed-lab.a beside the library:
 * compile with `pkg-config --cflags --libs zkembed-lab`.
 *
 * The code under test is the code that runs in production: it includes nothing
 * of this, and is compiled as ever.  doc/laboratory.md shows the way from a
 * lock of one's own to the first bug, and lists what the laboratory can find
 * and what it cannot.
 *
 * WHAT IS CHOSEN.  A process runs until its next call of zkembed.h, and stops
 * before it: there the laboratory chooses.  A call itself is not divided, as
 * no other process can see it half made.  A process that waits in zke_wait()
 * or in a recipe's call goes on when it is woken.  Time stands while a process
 * can go on, and then jumps to the next deadline.
 *
 * WHAT IS FOUND, besides what the test itself asserts:
 *   - processes wait, and nothing can wake them any more, or nothing but the
 *     deadlines of their waits;
 *   - a schedule takes more than `steps` steps;
 *   - abort(), a failed assert(), a fault of memory, a division by zero, a
 *     recursion that uses up the stack (of 256 KiB);
 *   - a process goes on for a second of processor time without a call;
 *   - a block is freed twice, written to after it was freed, or written over
 *     its end, which is seen when it is freed or used again;
 *   - a process returns and leaves memory, ephemeral znodes or watchers behind:
 *     a watcher that is called later finds its context gone;
 *   - sections overlap that zke_lab_enter() and zke_lab_exclude() keep apart;
 *   - a process is woken more often for nothing than `wakes` allows;
 *   - zke_check() finds fault with the tree at the end.
 *
 * RULES.  One laboratory runs at a time in a program, on the thread that calls
 * it.  Static variables of the program, and what it has allocated, are put back
 * before each schedule and after the run: a check keeps its results by
 * zke_lab_note() and zke_lab_fail(), not in variables.  Files, sockets and
 * real threads of the code under test are not put back.  Times come from
 * zke_now(), clock_gettime() or nanosleep(); other clocks go on as ever.  A
 * program has to do the same again in the same schedule: one that comes to
 * other calls, since it uses another clock or random numbers, is refused.
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

/* What chooses.  Each finds bugs that the others miss, so the default lets all
 * but the last take turns.
 *   RANDOM    any that can go on, each step anew
 *   PCT       by priorities that change at few places
 *             (Burckhardt and others, A Randomized Scheduler with
 *             Probabilistic Guarantees of Finding Bugs, 2010)
 *   STATES    every order, but from equal states only once; needs
 *             zke_lab_state().  Where this comes to its end, nothing is left
 *             to be found within the budgets.
 *   DEPTH     every order with at most `preemptions` changes from a process
 *             that could have gone on */
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
  int pauses;        /* jumps of time while somebody could go on; 1 */
  int preemptions;   /* of ZKE_LAB_DEPTH; 2 */
  int steps;         /* a schedule that takes more makes no progress; 2000 */
  int wakes;         /* wake-ups for nothing allowed to a process; 0: any */
  int strategies;    /* ZKE_LAB_… added up; all but DEPTH */
  int timeouts;      /* 1: a wait may run into its deadline where nobody else
                      could go on; 0: that is a finding */
  int leftovers;     /* 1: a process may leave memory, ephemeral znodes and
                      watchers */
  int waits;         /* 1: after a death or an expiry the others may wait for
                      ever (for a barrier that is not complete, say), unless
                      that process had called zke_lab_spare() */
  int64_t time_ms;   /* of processor time to search; 2000 */
  int64_t schedules; /* at most so many; 0: any */
  uint64_t seed;     /* of the choices; 0 is a seed as good as any */
  int reduction;     /* of STATES; -1: try also what is known to end as well as
                      something that was tried */
  int alike;         /* 1: processes of one function and argument can stand for
                      each other; see below */
} zke_lab_options;

/* With `alike`, of the processes that have the same function and argument the
 * first is the first to make an ephemeral or sequential znode, the second the
 * second, and so on: STATES and DEPTH leave out the other orders, five of six
 * for three processes.  Say it only where nothing tells these processes apart:
 * neither the test nor the code compares their names, the numbers of their
 * sessions, or what they have drawn at random, but for being equal. */

/* What a run has found.  Texts belong to the laboratory, until the next run. */
typedef struct zke_lab_result {
  size_t size;
  int found;       /* 1: something is broken, as described below */
  int stale;       /* 1: a replay took another way than when it was found */
  int exhausted;   /* 1: within the budgets there is nothing else to try */
  const char *why; /* a sentence */
  const char *schedule; /* letters, as zke_lab_replay() takes them */
  int64_t schedules;    /* run, until it was found or the time was over */
  int64_t states;       /* different ones that were met by STATES */
  int64_t calls;        /* of zkembed.h */
  int64_t
      doubts; /* schedules of parties outside that have failed, and not again
                     when they were replayed: these are not findings */
  int64_t entries;     /* into sections, in all schedules */
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
 * The name, of at most 15 bytes, is copied; it stands in findings.  A process
 * ends when fn returns; fn does not close z.  In fn, zke_open() and
 * zke_open_session() give further sessions of the same process on the same
 * database, whatever name is opened.
 * Errors: ZKE_BADARGUMENTS, a name is empty, too long, taken or unknown, or
 * there are ZKE_LAB_MOST already. */
int zke_lab_process(zke_lab *lab, const char *name, zke_lab_fn fn, void *arg);
int zke_lab_thread(zke_lab *lab, const char *process, const char *name,
                   zke_lab_fn fn, void *arg);

/* What a party outside does next. */
enum { ZKE_LAB_ENDED, ZKE_LAB_REQUEST, ZKE_LAB_IDLE };
/* Why its connection is gone: a reply was lost, before the change was made or
 * after; its session has expired; or it is to be dead, as its process is. */
enum { ZKE_LAB_LOST = 1, ZKE_LAB_EXPIRED, ZKE_LAB_DEAD };

/* A party outside: a client whose code runs elsewhere, in another program or
 * language, and makes requests of a server that the test is.  A request is
 * parked until it is its turn.  Set it up with ZKE_INIT(zke_lab_party). */
typedef struct zke_lab_party {
  size_t size;
  /* A schedule begins: start the party, or let it begin anew. */
  void (*begin)(void *context);
  /* Wait until it has a request, and keep that: ZKE_LAB_REQUEST; or until it
   * is sure that it waits for an event, ZKE_LAB_IDLE, or has returned,
   * ZKE_LAB_ENDED.  Nothing else goes on meanwhile. */
  int (*next)(void *context);
  /* Make the calls of that request with the party's session, and keep what is
   * to be replied.  Each call of zkembed.h is a step.  Events come in a call,
   * to the watchers that it gives.  Returns a result of zkembed.h; after
   * ZKE_CONNECTIONLOSS, or where the session has expired, drop() follows in
   * place of reply(). */
  int (*apply)(void *context, zke *z);
  /* Let the reply go, behind the events that came before it.  This is a step
   * of its own: the reply is held while others go on. */
  void (*reply)(void *context, int rc);
  /* The connection is gone.  After ZKE_LAB_LOST the party may go on and connect
   * again; after the others nothing is called for it but end(). */
  void (*drop)(void *context, int why);
  /* The schedule is over, however far the party has come; also where it was
   * not begun: stop it, and close what begin() has opened. */
  void (*end)(void *context);
  /* In place of next(), apply(), reply() and drop(), which may be NULL then:
   * all that is done for the party, until it has ended.  The party's sessions
   * are those that this function opens on z, zke_open_session() and
   * zke_attach(): they expire, and z does not. */
  void (*run)(void *context, zke *z);
} zke_lab_party;

/* zke_lab_outside - add a party outside, as a process with a session
 * The functions are copied.  They run one at a time, and what they are to
 * remember lies in *context, which is put back before each schedule as all
 * memory is.  The letters of schedules are those of any process; a party is to
 * do the same again when it gets the same replies.  STATES and DEPTH stay out,
 * as they would have to put the parties back: zke_lab_run() returns
 * ZKE_UNIMPLEMENTED where nothing else is to search.
 * Errors: as zke_lab_process(), and a function is NULL. */
int zke_lab_outside(zke_lab *lab, const char *name, const zke_lab_party *party,
                    void *context);

/* zke_lab_setup   - before the first schedule, with a session that stays
 * zke_lab_always  - after each step
 * zke_lab_finally - at the end of a schedule, when each process has returned or
 *                   is dead and buried
 * One each; NULL takes it back.  All three run by themselves: nothing happens
 * meanwhile.  With lab NULL they do nothing. */
void zke_lab_setup(zke_lab *lab, zke_lab_fn fn, void *arg);
void zke_lab_always(zke_lab *lab, zke_lab_fn fn, void *arg);
void zke_lab_finally(zke_lab *lab, zke_lab_fn fn, void *arg);

/* zke_lab_state - memory that counts when states are compared
 * Name each static variable, and each block shared by processes, that the test
 * or its checks read; what processes have on their stacks, and what can be
 * reached from there, counts by itself.  Without any call states are never
 * taken for equal, as that could hide a bug; (NULL, 0) says there is nothing
 * to name.  Errors: ZKE_BADARGUMENTS, more than 32. */
int zke_lab_state(zke_lab *lab, void *at, size_t size);

/* zke_lab_sometimes - some schedule has to enter the section of that name, or
 * to call zke_lab_reach() with it
 * Without it a test whose processes never come to what it is about finds
 * nothing.  If none does so in the whole search, that is the finding, and its
 * schedule is one in which each process goes on to its end.
 * Errors: ZKE_BADARGUMENTS, the name has more than 31 bytes, or there are more
 * than 32. */
int zke_lab_sometimes(zke_lab *lab, const char *name);

/* ---- running it ---- */

/* zke_lab_run    - search; ZKE_OK also where something was found
 * zke_lab_replay - run one schedule, once
 * Errors: ZKE_BADARGUMENTS, there is no process, or the schedule is malformed;
 * ZKE_UNIMPLEMENTED, only STATES or DEPTH are to search, which the library that
 * forks (libzkembed-lab-forked.a) does not have, and which parties outside keep
 * out; ZKE_RUNTIMEINCONSISTENCY, the program does not do the same again in the
 * same schedule; ZKE_NOMEM; what the engine says when the database cannot be
 * made, or when setup fails. */
int zke_lab_run(zke_lab *lab, zke_lab_result *out);
int zke_lab_replay(zke_lab *lab, const char *schedule, zke_lab_result *out);

/* zke_lab_picture - replay a schedule and draw it into a file
 * Each process is a lane, time goes downwards, each step is a line: text for a
 * terminal, or SVG if the file's name ends in .svg; "-" is standard output.  If
 * the schedule fails, a mark tells after which step it failed however it went
 * on, as far as 64 tries by chance tell (not with a party outside).
 * Errors: as zke_lab_replay(); ZKE_SYSTEMERROR, the file cannot be written. */
int zke_lab_picture(zke_lab *lab, const char *schedule, const char *file);

/* zke_lab_main - run as a program; returns its exit status
 * Prints one test in the Test Anything Protocol, and the finding with its
 * picture where there is one: 0, nothing was found; 1, something was; 2, wrong
 * words, a schedule that is stale, or another error.  Words: --replay SCHEDULE,
 * --seconds N, --seed N, --picture FILE, --strategy NAME (random, pct, states,
 * depth), --help. */
int zke_lab_main(zke_lab *lab, int argc, char **argv);

/* ---- inside processes and checks ---- */

/* zke_lab_enter   - this process is in a section, with at most so many others
 * zke_lab_leave   - it is so no longer
 * zke_lab_exclude - whoever enters the one may not find anybody in the other
 * A process that is dead, or whose session has expired, is in no section. */
void zke_lab_enter(const char *section, int limit);
void zke_lab_leave(const char *section);
void zke_lab_exclude(const char *section, const char *other);

/* zke_lab_spare - from here on nobody may miss this process: `waits` excuses
 * nothing for its death or the end of its session, as somebody else does what
 * is left.  A consumer of a queue is spare from its beginning, a producer once
 * it has put its items. */
void zke_lab_spare(void);

/* zke_lab_reach - what zke_lab_sometimes() asks for is reached */
void zke_lab_reach(const char *name);

/* zke_lab_yield - others may go on here: before memory is touched that threads
 * or processes of the test share.  Calls of zkembed.h do that by themselves. */
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
