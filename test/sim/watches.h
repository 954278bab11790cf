/* watches.h - the load's watches, and what is checked of each (P3)
 *
 * A one-shot watch fires at most once, for its path, and for a change after its
 * registration.  When all is at rest, a watch that has not fired sees what it
 * saw before.
 */
#ifndef ZKE_SIM_WATCHES_H
#define ZKE_SIM_WATCHES_H

#include "test/sim/known.h"

typedef struct watch watch;

/* watches_new   - one that is about to be registered, with watches_event() and
 *                 itself as context
 * watches_keep  - it is registered, by a read with this result; or the read
 *                 failed, and nothing is known of it
 * watches_again - it is registered by zke_set_watch(), for a read with this
 *                 result in the state of a zxid */
watch *watches_new(int slot, const char *path, bool of_children);
void watches_keep(watch *w, int rc, const zke_stat *stat);
int watches_again(watch *w, zke *z, int rc, const zke_stat *stat, int64_t zxid);
void watches_event(zke *z, int type, int state, const char *path,
                   void *context);

/* A thread begins or ends a wait: events of changes that are acknowledged in
 * the meantime come in time (P7). */
void watches_wait(int slot, int thread, bool begins);

/* The session of a slot has ended, or was closed, and with it its watches. */
void watches_forget(int slot);
/* All is at rest: check each watch of the slot's session. */
void watches_check(int slot, zke *z);

#endif
