/* compose_part.h - for compose.c: the parts of a composed handle, and their
 * common order
 *
 * compose.c is the engine that programs use.  It stands on four pairs of files;
 * each calls only those before it in this list:
 *
 *   compose_part     which part a path lies in; a part's paths and session ids;
 *                    the order of parts, and the common end of their sessions
 *   compose_call     the watchers, and the beginning and end of a call
 *   compose_handle   dispatching and sleeping; making and closing a handle
 *   compose_session  calls on the handle as a whole: identities, sessions, time
 *
 * A PART is a handle of another engine that a composed handle owns.  This pair
 * of files knows parts and orders.  It knows no watchers, and does not know
 * whether a thread is inside a call.
 *
 * LOCKS
 *   Take a handle's mutex before its order's, never the other way round.  The
 *   functions here take only the order's, for a few lines, and call nothing
 *   while they hold it.  They read only the parts of a handle, which do not
 *   change while another thread uses it.
 *
 * INVARIANTS, which the files above rely on
 *   1. A part of a handle is in one order.  Only zke_order() and zke_mount()
 *      change a handle's parts or their order, while nothing else uses the
 *      handles.
 *   2. A part is not closed while it is pinned, that is, while a thread of any
 *      handle ends its session: zke_compose_order_remove() waits.
 */
#ifndef ZKEMBED_RECIPES_COMPOSE_PART_H
#define ZKEMBED_RECIPES_COMPOSE_PART_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "compose.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COMPOSE_BUCKETS = 64 };

typedef struct compose compose;
typedef struct compose_part compose_part;
typedef struct compose_order compose_order; /* compose_part.c */
typedef struct compose_pair compose_pair;   /* compose_call.c */

struct compose_part {
  compose *h;
  zke *z;
  char *prefix; /* "" for the base */
  size_t prefix_len;
  int64_t own;  /* the id of its session; 0: read-only */
  int64_t mark; /* is mixed into the ids of others' sessions, as shown */
  bool is_file; /* its reads are always up to date */
  compose_order *order; /* invariant 1; guards what follows */
  compose_part *next;
  int64_t others;   /* when another part was last used */
  int64_t fresh;    /* it shows everything known at this time */
  int pins;         /* threads that end its session */
  bool over, tried; /* its session has ended; this round has tried to end it */
  /* its default watcher is ours; used without a lock, but only while the handle
   * is being made */
  bool listens;
};

struct compose {
  zke_handle handle; /* must be first */
  pid_t pid;         /* the process that made it */
  uint64_t serial;   /* this handle's number in the process */
  int count;         /* of parts, the base first */
  compose_part *parts[ZKE_MOUNTS];
  zke_os os;
  int wakes[2]; /* a pipe that ends the leader's sleep */
  /* Both are atomic.  (On i386 a member of this type may lie across two lines
   * of the processor's cache.) */
  _Alignas(8) int64_t turn;
  _Alignas(8) int64_t calls; /* of watchers, so far */
  pthread_mutex_t m;         /* guards all that follows */
  pthread_cond_t moved; /* signals a turn, a leader, the last call, closing */
  int poller;           /* of zke_fd(), -1: not made yet */
  compose_pair *pairs[COMPOSE_BUCKETS];
  compose_pair *fallback; /* the default watcher's */
  bool closing;
  int inside;       /* calls that are counted in */
  int leads;        /* how often the leader is inside its dispatch */
  pthread_t leader; /* while leads is not 0 */
};

/* zke_compose_of - the public handle as this engine's; the caller knows that it
 * is one */
compose *zke_compose_of(zke *z);

/* ---- the order ---- */

/* zke_compose_order_new    - an order without parts, in a block of z's
 *                            allocator; NULL without memory
 * zke_compose_order_free   - release an order that no part uses any more; NULL
 *                            is fine
 * zke_compose_order_add    - put a part into it
 * zke_compose_order_merge  - move all parts of `from` to `to`, whichever
 *                            handles they belong to; release `from`
 * zke_compose_order_begin  - treat all its parts as possibly out of date: steps
 *                            made before they had this order are not known
 * zke_compose_order_remove - take a part out; waits while it is pinned.  The
 *                            last part releases the order
 *
 * While the first five run, no other thread may use a handle of the
 * order. */
compose_order *zke_compose_order_new(zke *z);
void zke_compose_order_free(compose_order *o);
void zke_compose_order_add(compose_order *o, compose_part *p);
void zke_compose_order_merge(compose_order *from, compose_order *to);
void zke_compose_order_begin(compose_order *o);
void zke_compose_order_remove(compose_part *p);

/* The order's time is a number that each use of a part raises.  A part is
 * out of date if another was used since it was last brought up to date,
 * by a sync or by a change.
 *
 * zke_compose_order_use   - a part was used, so all others are out of date.
 *                           Call it after each call of the part, and before an
 *                           event of the part is delivered
 * zke_compose_order_read  - before a read: bring the part up to date, if
 *                           necessary.  Returns the code of zke_sync()
 * zke_compose_order_time  - the order's present time, to be read before a sync
 *                           or a change
 * zke_compose_order_fresh - the sync or change that began at that time has
 *                           succeeded: the part shows everything known then */
void zke_compose_order_use(compose_part *p);
int zke_compose_order_read(compose_part *p);
int64_t zke_compose_order_time(const compose_part *p);
void zke_compose_order_fresh(compose_part *p, int64_t began);

/* zke_compose_order_end      - a part's session has ended: end the sessions of
 *                              all other parts in its order.  Each part's
 *                              engine tells its own watchers
 * zke_compose_order_has_ended - has one of the sessions ended?  If so, try
 *                              again to end those that are not ended yet
 *
 * Both keep the thread's sentence. */
void zke_compose_order_end(compose_part *p);
bool zke_compose_order_has_ended(compose_order *o);

/* ---- parts ---- */

/* zke_compose_part_new - a part without a handle yet, around z, which still
 * belongs to the caller; copies prefix.  A block for zke_free(); NULL without
 * memory */
compose_part *zke_compose_part_new(zke *z, const char *prefix);

/* zke_compose_part_is_base - is it the one without a prefix?  Its paths and ids
 *                            are the caller's
 * zke_compose_part_find    - the part that a path lies in; the base for NULL
 * zke_compose_part_inner   - the part's own path, inside the caller's text
 * zke_compose_part_hides   - is the node of the part at this path of the
 *                            caller's tree hidden by a mount?
 * zke_compose_part_spans   - is something mounted below the path?
 *
 *   sequential  a number will follow the path */
bool zke_compose_part_is_base(const compose_part *p);
compose_part *zke_compose_part_find(const compose *h, const char *path,
                                    bool sequential);
const char *zke_compose_part_inner(const compose_part *p, const char *path,
                                   bool sequential);
bool zke_compose_part_hides(const compose_part *p, const char *outer);
bool zke_compose_part_spans(const compose *h, const char *path);

/* zke_compose_part_excuse - convert a part's code in a call about events on all
 * parts.  A mounted file that is read-only has no events, so its ZKE_READONLY
 * is no failure.  The base's is */
int zke_compose_part_excuse(const compose_part *p, int rc);

/* zke_compose_part_outer_len  - the length of a part's path in the caller's
 *                               tree
 * zke_compose_part_outer      - that path, into so many bytes and a NUL
 * zke_compose_part_outer_copy - the same as a block for zke_free(); NULL
 *                               without memory */
size_t zke_compose_part_outer_len(const compose_part *p, const char *inner);
void zke_compose_part_outer(const compose_part *p, const char *inner,
                            char *out);
char *zke_compose_part_outer_copy(const compose_part *p, const char *inner);

/* zke_compose_id             - the session id that the caller sees
 * zke_compose_part_show_id   - a session of the part, as shown to the caller
 * zke_compose_part_take_id   - the part's session for a shown id
 * zke_compose_part_show_stat - show the owner in a Stat; NULL is fine */
int64_t zke_compose_id(const compose *h);
int64_t zke_compose_part_show_id(const compose_part *p, int64_t session);
int64_t zke_compose_part_take_id(const compose_part *p, int64_t shown);
void zke_compose_part_show_stat(const compose_part *p, zke_stat *stat);

/* zke_compose_is_end - is it a final state of a session?
 * zke_compose_states - the state of all parts together */
bool zke_compose_is_end(int state);
int zke_compose_states(const compose *h);

#ifdef __cplusplus
}
#endif

#endif
