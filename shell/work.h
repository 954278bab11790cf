/* work.h - shared by commands that wait, hold and look */
#ifndef ZKE_SHELL_WORK_H
#define ZKE_SHELL_WORK_H

#include "shell.h"

/* How long a command waits, and its exit code after a wait in vain. */
typedef struct patience {
  int64_t deadline; /* of zke_now(); 0: does not wait */
  int conflict;     /* the exit code: 75, or -E's */
} patience;

#define OPTION_VERBOSE \
  { 'v', "verbose", NULL }
#define OPTIONS_CONFLICT {'E', "conflict-exit-code", "CODE"}, OPTION_VERBOSE
#define OPTIONS_PATIENCE \
  {'w', "wait", "DURATION"}, {'N', "nonblock", NULL}, OPTIONS_CONFLICT

/* patience_of - from --wait, --nonblock and -E, if the command has them;
 *               without any it waits for ever.  The time starts here
 * fail_wait   - the exit code for the failure of a recipe's blocking call; -E's
 *               code replaces STATUS_CONFLICT */
int patience_of(call *c, patience *p);
int fail_wait(call *c, const patience *p, int rc);

/* cancel_wake - for cancel_by(): ends a handle's wait */
int cancel_wake(void *z);

/* wait_session - until stop(arg) is true; it is called after each dispatch.  A
 * zkembed code, such as ZKE_CANCELLED and ZKE_OPERATIONTIMEOUT */
int wait_session(call *c, bool (*stop)(void *), void *arg, int64_t deadline);

/* wait_for_cancel - the same, but 0 or the exit code: if stop() was true, only
 * a cancel is a failure */
int wait_for_cancel(call *c, bool (*stop)(void *), void *arg, int64_t deadline);

/* held_until_signal - for one command that holds something: until a signal, the
 * normal end and not an error, or until stop() returns true; then 0 */
int held_until_signal(call *c, bool (*stop)(void *), void *arg);

/* verbose_wanted - should --verbose print?  Only for people
 * verbose_say    - print on standard error for that */
bool verbose_wanted(const call *c);
void verbose_say(const call *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A loss, as it was noticed. */
typedef struct loss {
  const char *kind, *path; /* "lock", "/locks/a"; the caller's */
  int64_t ms;              /* when, of zke_wall() */
  char why[512];           /* the thread's sentence then */
} loss;

/* loss_note - records what is known immediately, without reading the tree
 * loss_text - "the lock /locks/a was lost (why)", for a failure with
 *             STATUS_LOST.  In brackets is the recorded sentence, or the name
 *             of the thief if a lock was stolen and the thief still holds it.
 *             This reads the tree and may take a second, so do not call it
 *             while a command has to be ended */
void loss_note(loss *l, call *c, const char *kind, const char *path);
void loss_text(call *c, const loss *l, char *text, size_t size);

/* child_label - the child's words for others to see, cut to a readable length,
 *               for free(); NULL without memory */
char *child_label(const call *c);

/* value_time       - a time; null for 0: there is none
 * value_for_people - removes members that are null or empty; takes and returns
 *                    the reference */
json_t *value_time(int64_t ms);
json_t *value_for_people(const call *c, json_t *row);

/* A recipe's path, whole and in two.  All three are in one block. */
typedef struct place {
  char *base;       /* "/jobs" of "/jobs/backup"; free() it for all three */
  const char *name; /* "backup" */
  const char *path; /* "/jobs/backup" */
} place;

/* place_of - for argument i, as arg_place() reads it: 0, or the exit code, and
 * then there is nothing to free */
int place_of(call *c, int i, const char *base, place *p);

/* An object that a session holds and that a call may use when it is released:
 * the last dropped reference destroys it. */
typedef struct shared {
  atomic_int refs; /* the session list's, and one for each call inside */
  void (*destroy)(void *object); /* of the whole object */
} shared;

/* shared_init - one reference: the caller's
 * shared_drop - drops a reference
 * shared_held - the session's object at a path, of that class, with another
 *               reference; NULL: none
 * The object begins with its struct shared. */
void shared_init(shared *s, void (*destroy)(void *object));
void shared_drop(void *object);
void *shared_held(call *c, const held_class *class_, const char *path);

/* no_memory - fail for lack of memory.  It is defined here, so that a compiler
 *             or an analyser sees in each file that its result is not 0 */
static inline int no_memory(call *c) {
  fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  return STATUS_SYSTEM;
}

#endif
