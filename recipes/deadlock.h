/* deadlock.h - who waits for whom in lines, and whether for ever
 *
 * For programs: zke_line_waits() lists the waits of a whole tree, and
 * zke_line_act_as() makes what several threads do one client's.  For those who
 * write recipes: zke_line_actor() and zke_line_detect(), which a recipe asks
 * when it begins to wait.
 *
 *     zke_wait_list *list = NULL;
 *     if (zke_line_waits(z, &list) != ZKE_OK) return;
 *     for (int i = 0; i < list->count; i++)
 *       printf("%s of %s waits for %d others%s\n", list->data[i].path,
 *              list->data[i].identity, list->data[i].keeper_count,
 *              list->data[i].stuck ? ", for ever" : "");
 *     zke_free(list); */
#ifndef ZKEMBED_RECIPES_DEADLOCK_H
#define ZKEMBED_RECIPES_DEADLOCK_H

#include <stdint.h>

#include "zkembed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_line_actor  - this thread, as a znode's data names it
 * zke_line_act_as - from here on this thread acts as that actor, until it
 *                   is told 0: as itself again.  Where one client's calls
 *                   run on several threads, what any of them holds and
 *                   what another waits for are that client's.  Returns
 *                   what to give back: the actor before, or 0.  A forked
 *                   child's thread is itself
 * zke_line_detect - look for a deadlock that this actor's waiting has
 *                   closed: ZKE_OK or ZKE_DEADLOCK with its sentence
 *   own    how many znodes it made for this wait */
ZKE_API uint64_t zke_line_actor(void);
ZKE_API uint64_t zke_line_act_as(uint64_t actor);
ZKE_API int zke_line_detect(zke *z, uint64_t actor, int own);

/* Who keeps another one waiting. */
typedef struct zke_keeper {
  const char *path; /* of its znode */
  int64_t session;  /* which owns it */
  uint64_t actor;   /* 0: not known */
  int64_t reserved[4];
} zke_keeper;

/* Who is kept waiting. */
typedef struct zke_wait_info {
  const char *path; /* of its znode: the line is the directory */
  int64_t session;
  uint64_t actor;
  int64_t since_ms; /* when it came, ms since 1970 */
  const char *identity;
  int64_t pid;  /* in its own PID namespace; for display */
  int blocking; /* 1: inside a blocking call; 0: it can do other things */
  int stuck;    /* 1: for ever, if nobody interferes: it is in a deadlock, or
                   behind one */
  int circle;   /* the number of the deadlock it is in, from 1 on; else 0 */
  int keeper_count;
  const zke_keeper *keepers; /* whoever stands right before it, as far as the
                                detection of deadlocks looks */
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
 * A call that would close a circle fails, so that a deadlock is found here
 * only where that was not looked for (options.no_deadlock_check) or could not
 * be seen (several handles of one thread, a session of a part of the tree; see
 * lock.h).
 * What is read is no single moment: where people come and go, somebody may be
 * missing, or kept waiting by who has gone.
 *
 *   list_out  out, not NULL: one block; count 0 where nobody waits
 *
 * Returns as zke_sessions(), or ZKE_BADARGUMENTS where list_out is NULL.
 * Threads: any.  In a callback: yes.  Blocks: on the disk. */
ZKE_API int zke_line_waits(zke *z, zke_wait_list **list_out);

#ifdef __cplusplus
}
#endif

#endif
