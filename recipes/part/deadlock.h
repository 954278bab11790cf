/* deadlock.h - for recipe authors: do waits in lines close a circle?
 *
 * A recipe calls zke_line_detect() when it begins to wait, and stores the actor
 * that zke_line_actor() gave it.  Programs use zke_line_actor() and
 * zke_line_waits(), too: support.h.  lock.h says which circles are found.
 *
 * WORDS
 *   actor   what holds and waits: a thread, or several that act as one.  A
 *           random number of 64 bits, which znodes show as 16 hex digits
 *   wait    an entry of a line that is kept out by others
 *   keeper  an entry that keeps out another one
 *   stuck   waiting for ever, without help from outside
 *   circle  waits that are stuck because of each other: a deadlock
 *
 * Only the entries of the lines are used.  No process asks another one, so a
 * circle is found even if its other members are stopped.
 *
 * On an ensemble (zookeeper.h) a session can list only its own entries, so a
 * circle through another session is not found: a call that waits in one ends at
 * its deadline.
 */
#ifndef ZKEMBED_RECIPES_DEADLOCK_H
#define ZKEMBED_RECIPES_DEADLOCK_H

#include <stdint.h>

#include "../support.h"

#ifdef __cplusplus
extern "C" {
#endif

/* zke_line_detect - has this actor's wait closed a circle?
 *
 * For authors of recipes.  Call it after the wait is written ("waiting" in the
 * entry's data) and before the thread sleeps.  Costs one read if the session's
 * only entries in lines are its own new ones; else it reads the lines and the
 * sessions that the wait leads to.
 *
 *   own  how many znodes the actor has made for this wait
 *
 * Returns ZKE_OK; ZKE_DEADLOCK, with a sentence that describes the circle; or
 * the code of a failed read.  Threads: any.  In a callback: yes.  Blocks: on
 * the disk. */
int zke_line_detect(zke *z, uint64_t actor, int own);

#ifdef __cplusplus
}
#endif

#endif
