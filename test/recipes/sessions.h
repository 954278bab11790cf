/* sessions.h - sessions that try interleavings step by step
 *
 * Five sessions of one store in memory: each does its next step when the test
 * says so.  Two stores on one file: the second does something in the middle of
 * a call of the first.
 */
#ifndef ZKE_TEST_SESSIONS_H
#define ZKE_TEST_SESSIONS_H

#include "crew.h"

/* At the end of a test this function closes what the test has opened, and
 * checks that nothing is left.  open_sessions() and the like set it, the
 * function itself clears it. */
extern void (*closes)(void);
void close_at_end(void);
AFTER_EACH(close_at_end);

/* ---- one store in memory ---- */

enum { SESSIONS = 5 };
extern zke *z[SESSIONS];
extern const char *const identities[SESSIONS]; /* ann, bob, ... */

void open_sessions(void);
void close_sessions(void);
/* Dispatch all of them until no more events come. */
void dispatch_all(void);
/* Close all sessions; the living ones must have no nodes below `path` and no
 * watches. */
void close_clean(const char *path);
/* Replace an ended session by a new one with its name. */
void renew_session(int i);

/* A further session that keeps at most four events (P4); flood() sends it more,
 * which removes its one-shot watches. */
zke *open_to_flood(void);
void flood(zke *session);

/* ---- in the middle of a call ----
 *
 * Before the n-th lock that the caller's store takes, which is before its n-th
 * change, the other store acts. */

extern zke *caller, *intruder;
extern void (*caller_pauses)(void *context, int64_t ns); /* in its pauses, or
                                                            NULL */

void open_two(void);
/* The busy timeout of the caller's calls; 0: the default. */
void open_two_patient(int busy_timeout_ms);
void close_two(void);
/* Let `action` happen at the n-th place of the caller's next call. */
void act_at(int n, void (*action)(void));
/* The places are instead the readings of the clock by the caller's store while
 * it holds no more locks than now; reads have them too. */
void act_between(int n, void (*action)(void));
/* The same, but if the caller's store sleeps earlier, `action` happens just
 * before that sleep, and `slept` is true. */
void act_by_sleep(int n, void (*action)(void));
extern bool slept;
/* After that call: did the action happen? false: the call has no such place. */
bool acted(void);

#endif
