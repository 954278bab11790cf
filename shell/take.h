/* take.h - what a hold by "lock take" is bound to (take.c) */
#ifndef ZKE_SHELL_TAKE_H
#define ZKE_SHELL_TAKE_H

#include "process.h"
#include "shell.h"

/* take_fork - before the program has a thread or an open file: fork a process
 *             that will hold the lock.  Returns -1 in that process.  In the one
 *             that was started it returns the exit code: STATUS_OK as soon as
 *             the lock is held, else that of the new process
 * take_begin - read the options of the call and watch what they name.  A
 *             cancel of the call then says that the hold must end
 *   label_out the data of the hold's entry, for free()
 * take_over - 0, or the exit code: the process to which the hold is bound has
 *             ended, or the command that was started has
 * take_settle - the lock is held and printed: let that command end, and keep
 *             nothing of its terminal and its pipes
 * take_end  - watch no more.  After it the call may go
 *
 * take_begin(), take_over() and take_settle() return 0 or the exit code. */
int take_fork(shell *sh);
int take_begin(call *c, char **label_out);
int take_over(call *c);
int take_settle(call *c);
void take_end(void);

/* take_is    - do the data of a lock's entry say that "lock take" made it?
 * take_value - what it is bound to, as an object; null if it is none
 *   since_ms  since when it is held; 0: it waits
 *   sight     of the process that holds it
 * take_human - the same in words; nothing for null
 *   before    what stands before it */
bool take_is(const char *data, int len);
json_t *take_value(const char *data, int len, int64_t since_ms,
                   enum sight sight);
void take_human(const json_t *bound, const char *before, FILE *out);

#endif
