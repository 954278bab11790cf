/* work.h - what commands that wait, hold and look have in common */
#ifndef ZKE_SHELL_WORK_H
#define ZKE_SHELL_WORK_H

#include "shell.h"

/* How long a command waits, and what it returns when that was in vain. */
typedef struct patience {
  int64_t deadline; /* of zke_now(); 0: does not wait */
  int conflict;     /* the exit code: 75, or -E's */
} patience;

#define OPTION_VERBOSE \
  { 'v', "verbose", NULL }
#define OPTIONS_CONFLICT {'E', "conflict-exit-code", "CODE"}, OPTION_VERBOSE
#define OPTIONS_PATIENCE \
  {'w', "wait", "DURATION"}, {'N', "nonblock", NULL}, OPTIONS_CONFLICT

/* patience_of - from --wait, --nonblock and -E, as far as the command has them;
 *               without any it waits for ever.  The time begins to run here
 * fail_wait   - the exit code for what a blocking call of a recipe returned but
 *               ZKE_OK; -E's code stands for STATUS_CONFLICT */
int patience_of(call *c, patience *p);
int fail_wait(call *c, const patience *p, int rc);

/* cancel_wake - for cancel_by(): end a wait of a handle's */
int cancel_wake(void *z);

/* wait_session - until stop() is true of arg, asked after each dispatch: a
 * zkembed code, ZKE_CANCELLED and ZKE_OPERATIONTIMEOUT among them */
int wait_session(call *c, bool (*stop)(void *), void *arg, int64_t deadline);

/* wait_for_cancel - the same, but 0 or the exit code: cancelled is the only
 * failure that is left when stop() is true */
int wait_for_cancel(call *c, bool (*stop)(void *), void *arg, int64_t deadline);

/* held_until_signal - for one command that holds something: until a signal,
 * which is the way to end it and no error to be told, or until stop() says so;
 * 0 then */
int held_until_signal(call *c, bool (*stop)(void *), void *arg);

/* verbose_wanted - is there somebody who asked to be told (--verbose)?
 * verbose_say    - tell them, on standard error */
bool verbose_wanted(const call *c);
void verbose_say(const call *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A loss of what was held, as it was noticed. */
typedef struct loss {
  const char *kind, *path; /* "lock", "/locks/a"; the caller's */
  int64_t ms;              /* when, of zke_wall() */
  char why[512];           /* the thread's sentence then */
} loss;

/* loss_note - what is known at once, without looking into the tree
 * loss_text - "the lock /locks/a was lost (why)", for a failure with
 *             STATUS_LOST.  In the brackets is the sentence that was noted, or
 *             the name of the thief where a lock was stolen and the thief holds
 *             it still.  This reads the tree and may take a second, so it is
 *             not for a moment in which a command is to be ended */
void loss_note(loss *l, call *c, const char *kind, const char *path);
void loss_text(call *c, const loss *l, char *text, size_t size);

/* child_label - the words of the child as others see them: as much as is good
 *               to look at, for free(); NULL without memory */
char *child_label(const call *c);

/* value_time       - a time; null for 0: there is none
 * value_for_people - people see no members that are null or empty; takes and
 *                    gives back the reference */
json_t *value_time(int64_t ms);
json_t *value_for_people(const call *c, json_t *row);

/* A recipe's path, whole and in two.  All three are in one block. */
typedef struct place {
  char *base;       /* "/jobs" of "/jobs/backup"; free() it for all three */
  const char *name; /* "backup" */
  const char *path; /* "/jobs/backup" */
} place;

/* place_of - of argument i, as arg_place() reads it: 0 or the exit code, and
 * then there is nothing to be freed */
int place_of(call *c, int i, const char *base, place *p);

/* An object that a session holds and that a call may be inside of when it is
 * given up: whoever gives up the last reference destroys it. */
typedef struct shared {
  atomic_int refs; /* the session's list has one, each call inside another */
  void (*destroy)(void *object); /* of the whole object */
} shared;

/* shared_init - one reference: the caller's
 * shared_drop - give up a reference
 * shared_held - what the session holds at a path, of that class, with a
 *               reference more; NULL: nothing
 * The object begins with its struct shared. */
void shared_init(shared *s, void (*destroy)(void *object));
void shared_drop(void *object);
void *shared_held(call *c, const held_class *class_, const char *path);

/* no_memory - fail for want of it.  It stands here, so that a compiler or an
 *             analyser sees in each file that what it returns is not 0 */
static inline int no_memory(call *c) {
  fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  return STATUS_SYSTEM;
}

#endif
