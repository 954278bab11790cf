/* deadlock.h - who waits for whom in lines, and whether for ever
 *
 *     zke_wait_list *list = NULL;
 *     if (zke_line_waits(z, &list) != ZKE_OK) return;
 *     for (int i = 0; i < list->count; i++)
 *       printf("%s of %s waits for %d others%s\n", list->data[i].path,
 *              list->data[i].identity, list->data[i].keeper_count,
 *              list->data[i].stuck ? ", for ever" : "");
 *     zke_free(list);
 *
 * For programs: zke_line_waits() lists the waits of a whole tree, and
 * zke_line_act_as() makes what several threads do one client's.  For authors of
 * recipes: zke_line_actor() and zke_line_detect(), which a recipe calls when it
 * begins to wait.  Which circles are found stands in lock.h.
 *
 * WORDS
 *   actor   what holds and waits: a thread, or several that act as one.  A
 *           random number of 64 bits, which znodes show as 16 hex digits
 *   wait    an entry of a line that is kept out by others
 *   keeper  an entry that keeps out another one
 *   stuck   waiting for ever, if nobody interferes
 *   circle  waits that are stuck because of each other: a deadlock
 *
 * The entries of the lines are all there is to go by.  No process asks another
 * one, so a circle is found also if its other members are stopped.
 *
 * On an ensemble (zookeeper.h) a session is told of its own entries only.  So
 * no circle through another session is found: a call that waits in one ends at
 * its deadline.  zke_line_waits() lists the waits of this session.
 */
#ifndef ZKEMBED_RECIPES_DEADLOCK_H
#define ZKEMBED_RECIPES_DEADLOCK_H

#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_line_actor - this thread, as a znode's data names it
 *
 * Never 0.  A forked child's thread is another one than the parent's.
 * Threads: any.  In a callback: yes.  Blocks: no. */
ZKE_API uint64_t zke_line_actor(void);

/* zke_line_act_as - from here on this thread acts as that actor
 *
 * For programs in which one client's calls run on several threads: what any of
 * them holds and what another waits for are that client's, so a circle through
 * it is found.
 *
 * Example: a pool's thread serves a request of a client, whose actor was drawn
 * by zke_line_actor() on another thread.
 *
 *     #include "recipes/lock.h"
 *
 *     static int serve(zke_lock *lock, uint64_t client, int64_t deadline) {
 *       uint64_t before = zke_line_act_as(client);
 *       int rc = zke_lock_acquire(lock, deadline);
 *       zke_line_act_as(before);
 *       return rc;
 *     }
 *
 *   actor  of zke_line_actor(), on whichever thread; 0: this thread is itself
 *          again
 *
 * Returns what to give back: the actor before, or 0 if it was itself.
 * Threads: any; each has its own.  In a callback: yes.  Blocks: no. */
ZKE_API uint64_t zke_line_act_as(uint64_t actor);

/* zke_line_detect - has this actor's waiting closed a circle?
 *
 * For authors of recipes.  To be called after the wait is written ("waiting" in
 * the entry's data) and before the thread sleeps.  Costs one read if the
 * session has no entries in lines but its own new ones; else it reads the lines
 * and the sessions that the wait leads to.
 *
 *   own  how many znodes the actor has made for this wait
 *
 * Returns ZKE_OK; ZKE_DEADLOCK, whose sentence describes the circle; or what a
 * read has said.  Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_line_detect(zke *z, uint64_t actor, int own);

/* An entry that keeps another one waiting. */
typedef struct zke_keeper {
  const char *path; /* of its znode */
  int64_t session;  /* which owns it */
  uint64_t actor;   /* 0: its data does not tell */
  int64_t reserved[4];
} zke_keeper;

/* An entry that is kept waiting.  All that it points to is in the list's
 * block. */
typedef struct zke_wait_info {
  const char *path;     /* of its znode: the line is the directory */
  int64_t session;      /* which owns it */
  uint64_t actor;       /* 0: its data does not tell */
  int64_t since_ms;     /* when it came, ms since 1970 */
  const char *identity; /* of the session; "" if it has just ended */
  int64_t pid;          /* in its own PID namespace; for display */
  int blocking; /* 1: inside a blocking call; 0: it can do other things */
  int stuck;    /* 1: for ever, if nobody interferes: it is in a deadlock, or
                   behind one */
  int circle;   /* the number of the deadlock it is in, from 1 on; else 0 */
  int keeper_count;
  const zke_keeper *keepers; /* those that stand right before it, as far as the
                                search for deadlocks looks */
  int64_t reserved[4];
} zke_wait_info;

/* One block, released by zke_free(). */
typedef struct zke_wait_list {
  int count;
  const zke_wait_info *data; /* the youngest first */
} zke_wait_list;

/* zke_line_waits - who waits for whom, in all lines: what zke_line_detect()
 * goes by, seen from outside
 *
 * A call that would close a circle fails; so a deadlock is found here only if
 * nobody looked for it (options.no_deadlock_check) or if it could not be seen
 * (several handles of one thread, a session of a part of the tree; see lock.h).
 *
 * What is read is not of one moment: while others come and go, a wait may be
 * missing, or have a keeper that has gone.  It reads all sessions and all their
 * entries, so it is for people and for monitoring, not for each call.
 *
 *   list_out  out, not NULL: one block; count 0 if nobody waits
 *
 * Returns as zke_sessions(), or ZKE_BADARGUMENTS for a NULL list_out.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_line_waits(zke *z, zke_wait_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
