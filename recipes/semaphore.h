/* semaphore.h - so many permits and no more, first come first served
 *
 *     zke_semaphore_options o = ZKE_INIT(zke_semaphore_options);
 *     zke_semaphore *sem;
 *     o.limit = 3;
 *     int rc = zke_semaphore_new(z, "/limits/encoder", &o, &sem);
 *     if (rc == ZKE_OK) rc = zke_semaphore_acquire(sem, 1, zke_now(z) + 5000);
 *     if (rc == ZKE_OK) {
 *       // At most three are here.
 *       rc = zke_semaphore_release(sem);
 *     }
 *     if (rc != ZKE_OK)
 *       fprintf(stderr, "%s\n", zke_errmsg());  // who holds one, since when
 *     zke_semaphore_free(sem);
 *
 * LAYOUT:
 *
 *     /limits/encoder                   container, data "zkembed semaphore\n
 *                                       limit 3\n"
 *       _c_<guid>-lease-0000000000      one permit, held
 *       _c_<guid>-lease-0000000001      two permits of one acquisition: the
 *       _c_<guid>-lease-0000000002      same guid, made in one step; held
 *       _c_<guid>-lease-0000000003      waits for one of the three to go
 *
 * A znode is a permit.  An acquisition holds when fewer than the limit stand
 * before its last one: all of its permits or none, and no small one overtakes
 * a large one.
 *
 * THE LIMIT is in the directory, for all alike.  Who states another one is
 * refused; who states none takes what is there.  zke_semaphore_resize()
 * changes it: those that wait go on under the new one, those that hold keep
 * what they have, and one whose turn had come under the old limit, though it
 * has not looked yet, may still come in.  A container goes when it has been
 * empty for a while, and a changed limit with it; one that is to stay is made
 * by zke_semaphore_resize() before anybody uses it.
 *
 * IF THE PROCESS DIES, holding or waiting, all its permits go with its
 * session, in one step, and who waits for them is told by the kernel.  Before
 * they were made nothing is left behind; after the release nothing is.  Dying
 * inside zke_semaphore_resize() leaves the old limit or the new one.
 *
 * WHO IS WOKEN: a release wakes those whom it can bring nearer than the limit
 * to their turn, at most as many as the limit; those further behind sleep on,
 * and one that is stopped keeps none of the others waiting.  A change of the
 * limit wakes all that wait.
 *
 * A PERMIT COMES BACK ONCE: a release deletes the very znodes of this
 * acquisition and no others, however often it is called or repeated.
 *
 * LOSING THE SESSION, or one of one's znodes, loses all permits of the
 * object: the listener hears ZKE_SEMAPHORE_LOST, zke_semaphore_check() and
 * whatever has zke_semaphore_op() in its multi fail.
 *
 * FENCING: zke_semaphore_token() is the zxid of taking office, greater than
 * that of everybody who took office before.
 *
 * DEADLOCKS are found as for lock.h: who waits is stuck when so many permits
 * are held by threads that are stuck that the rest does not suffice.
 */
#ifndef ZKEMBED_RECIPES_SEMAPHORE_H
#define ZKEMBED_RECIPES_SEMAPHORE_H

#include "support.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zke_semaphore zke_semaphore;

enum {
  ZKE_SEMAPHORE_OUT = ZKE_LINE_OUT,
  ZKE_SEMAPHORE_WAITING = ZKE_LINE_WAITING,
  ZKE_SEMAPHORE_HELD = ZKE_LINE_HELD,
  ZKE_SEMAPHORE_LOST = ZKE_LINE_LOST
};

/* Called when the state changes to ZKE_SEMAPHORE_HELD (with the token),
 * ZKE_SEMAPHORE_OUT (released, or the wait was given up) or
 * ZKE_SEMAPHORE_LOST. */
typedef void (*zke_semaphore_fn)(zke_semaphore *sem, int state, int64_t token,
                                 void *context);

typedef struct zke_semaphore_options {
  size_t size;
  int limit;             /* permits in all; 0: what the semaphore there has */
  const void *data;      /* shown to others by zke_semaphore_parties() */
  int len;               /* bytes of it */
  int no_deadlock_check; /* 1: do not look for circles */
  zke_semaphore_fn listener;
  void *context;
} zke_semaphore_options;

/* zke_semaphore_new - an object for one acquisition at a time; does not touch
 *                     the tree
 *
 *   path     of the semaphore; made as a container when first needed, where
 *            a limit is stated
 *   options  NULL for the defaults; copied
 *   sem_out  out, not NULL; NULL on failure
 *
 * Returns ZKE_OK, ZKE_BADARGUMENTS (a limit below 0 too), or what the handle's
 * state asks for.  Threads: any.  In a callback: yes.  Since 0.1. */
ZKE_API int zke_semaphore_new(zke *z, const char *path,
                              const zke_semaphore_options *options,
                              zke_semaphore **sem_out);

/* zke_semaphore_free - release what it holds and the object; NULL is fine
 * Threads: any, while no other call on it runs.  In a callback: yes. */
ZKE_API void zke_semaphore_free(zke_semaphore *sem);

/* zke_semaphore_acquire - wait until so many permits are held
 *
 * After zke_semaphore_start() it waits in the place already taken, for the
 * permits asked for then.
 *
 *   permits      1 or more, all or none of them
 *   deadline_ms  of zke_now(); ZKE_FOREVER
 *
 * Returns ZKE_OK, or, holding none and waiting no more,
 *   ZKE_OPERATIONTIMEOUT  at the deadline; the sentence names a holder
 *   ZKE_CANCELLED         zke_semaphore_cancel()
 *   ZKE_DEADLOCK          this wait closed a circle
 *   ZKE_LIMIT             more permits than the limit, also where it was
 *                         lowered while waiting; or, at the object's first
 *                         use, options.limit is not the one there
 *   ZKE_NONODE            no limit stated and no semaphore there
 *   ZKE_LOST              one's znode was deleted by somebody
 *   ZKE_OTHERKIND         the path is not a semaphore's
 *   ZKE_MISUSE            the object holds permits, or waits in another call
 *   ZKE_BADARGUMENTS      permits below 1
 *   ZKE_INVALIDSTATE      the session has ended
 *
 * Threads: any.  In a callback: yes.  Blocks: until the deadline. */
ZKE_API int zke_semaphore_acquire(zke_semaphore *sem, int permits,
                                  int64_t deadline_ms);

/* zke_semaphore_try - hold them now or not at all: ZKE_HELD, naming a holder */
ZKE_API int zke_semaphore_try(zke_semaphore *sem, int permits);

/* zke_semaphore_start - join the queue and go on; the listener is told, or
 * zke_semaphore_state() tells, once zke_dispatch() has seen one's turn.  Where
 * the limit is lowered below what was asked for the wait ends by itself:
 * ZKE_SEMAPHORE_OUT. */
ZKE_API int zke_semaphore_start(zke_semaphore *sem, int permits);

/* zke_semaphore_step - look again now, as dispatches do by themselves */
ZKE_API int zke_semaphore_step(zke_semaphore *sem);

/* zke_semaphore_release - give back all permits of the object; or the wait
 *
 * Where nothing is held, or it was lost: ZKE_LOST, and nothing is given back.
 * After any other failure none is held any more either: the session gives them
 * back as soon as it can. */
ZKE_API int zke_semaphore_release(zke_semaphore *sem);

/* zke_semaphore_cancel - the blocking call on it returns ZKE_CANCELLED;
 * ZKE_IDLE where none runs.  Threads: any.  Blocks: no. */
ZKE_API int zke_semaphore_cancel(zke_semaphore *sem);

/* zke_semaphore_state   - ZKE_SEMAPHORE_…, without asking the file
 * zke_semaphore_token   - the fencing value, or 0 when not held
 * zke_semaphore_permits - how many are held, or 0
 * zke_semaphore_check   - ask the file: ZKE_OK when all are held, else
 *                         ZKE_LOST
 * zke_semaphore_op      - an operation for one's own zke_multi(), which fails
 *                         with ZKE_NONODE unless they are held (it looks at
 *                         the last one); valid until the next call that
 *                         changes the object.  ZKE_LOST where not held
 * Threads: any.  In a callback: yes. */
ZKE_API int zke_semaphore_state(zke_semaphore *sem);
ZKE_API int64_t zke_semaphore_token(zke_semaphore *sem);
ZKE_API int zke_semaphore_permits(zke_semaphore *sem);
ZKE_API int zke_semaphore_check(zke_semaphore *sem);
ZKE_API int zke_semaphore_op(zke_semaphore *sem, zke_op *op);

/* zke_semaphore_resize - change the limit; make the semaphore, to stay, where
 *                        there is none
 *
 *   limit        1 or more, else ZKE_BADARGUMENTS
 *   deadline_ms  of zke_now(), for repeating what got no reply
 *
 * Under a lowered limit nobody whose turn had not come before comes in until
 * enough have released.
 * Returns ZKE_OK, or ZKE_OTHERKIND. */
ZKE_API int zke_semaphore_resize(zke *z, const char *path, int limit,
                                 int64_t deadline_ms);

/* zke_semaphore_limit - the limit that a semaphore has now
 *
 *   limit_out  out, not NULL
 *
 * Returns ZKE_OK, ZKE_NONODE where there is none, or ZKE_OTHERKIND. */
ZKE_API int zke_semaphore_limit(zke *z, const char *path, int *limit_out);

/* zke_semaphore_parties - those that hold permits and those that wait, in
 * order, one each with its number of permits
 *
 *   list_out  out, not NULL: one block; count 0 for one that nobody uses */
ZKE_API int zke_semaphore_parties(zke *z, const char *path,
                                  zke_party_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
