/* deadlock.h - for whoever writes a recipe: do waits in lines close a circle?
 *
 * A recipe calls zke_line_detect() when it begins to wait, and keeps who it is
 * as zke_line_actor() says.  That and zke_line_waits() are for programs, too:
 * support.h.  Which circles are found stands in lock.h.
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
 * its deadline.
 */
#ifndef ZKEMBED_RECIPES_DEADLOCK_H
#define ZKEMBED_RECIPES_DEADLOCK_H

#include <stdint.h>

#include "../support.h"

#ifdef __cplusplus
extern "C" {
#endif

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
int zke_line_detect(zke *z, uint64_t actor, int own);

#ifdef __cplusplus
}
#endif

#endif
