/* admin.h - what an administrator does to the files of a database
 *
 * A backup is the content of the database and its log at one moment.  Later it
 * is written into the file, or renamed over it, while no process uses it
 * (doc/format.md 8).  From then on the tree is the one of that moment, and no
 * zxid or session id is used again (P8).
 *
 * Side files of the database are removed.  If only FIFOs are missing, events
 * just come later (P7).  If other side files are, the handles end at their next
 * tick, and no process can open the file until a copy has replaced it; nothing
 * is lost (P8).  This is not promised between processes with different boot ids
 * (doc/format.md 1).
 */
#ifndef ZKE_SIM_ADMIN_H
#define ZKE_SIM_ADMIN_H

#include <stdbool.h>

/* "A@8211:ACT" of a plan.  A quiet act is done once all processes have been
 * ended. */
#define ADMIN_ACT_LIST(X)                                                  \
  X(BACKUP, false)     /* a backup is made */                              \
  X(RESTORE, true)     /* it is written into the file, */                  \
  X(MOVE, true)        /* or moved over it */                              \
  X(COPY, true)        /* the file is replaced by a copy of itself */      \
  X(SIDE, true)        /* the side directory is removed, */                \
  X(SIDE_OPEN, false)  /* while processes run, */                          \
  X(FILE_OPEN, false)  /* or the gate, the line or the liveness file is */ \
  X(FIFOS_OPEN, false) /* or all FIFOs are */

#define ADMIN_ENUM(name, quiet) ADMIN_##name,
enum { ADMIN_ACT_LIST(ADMIN_ENUM) ADMIN_ACTS };
#undef ADMIN_ENUM

/* admin_begin  - make the file, if the plan sets its page size (plan.h)
 * admin_strike - perform the act; a quiet one ends all processes by `end_all`
 *                and is done later
 * admin_tick   - do what has waited; true: processes must not begin yet
 * admin_cut    - the host boots again
 * admin_end    - faults are over: repair what is missing */
void admin_begin(void);
void admin_strike(int act, void (*end_all)(void));
bool admin_tick(void);
void admin_cut(void);
void admin_end(void (*end_all)(void));

#endif
