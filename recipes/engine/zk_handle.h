/* zk_handle.h - for zookeeper.c: a handle on an ensemble, but its operations
 *
 * A handle is one session: its link (zk_link.h), its watchers (zk_watch.h), a
 * mutex, and what dispatching and waiting need.  This pair of files knows
 * threads, deadlines, callbacks and the session's end; zookeeper.c knows what
 * the operations are.
 *
 * THREADS
 *   The mutex is held in all functions here but while a thread sleeps or runs a
 *   callback.  Of the threads that wait for something one is the reader: it
 *   polls the socket without the mutex and then takes what came, for all.  The
 *   others sleep on the condition variable.  It is broadcast when the reader
 *   has slept, and when a step of the link has brought something, whoever took
 *   that step; then the reader is woken, too.  One thread at a time dispatches;
 *   it may do so again in its callbacks.
 *
 *   A helper thread, where the name asks for one, is a thread that does nothing
 *   but sleep in this way.  While there is a connection it leaves the socket to
 *   others, and looks when a ping is due; so a program's poll loop sees what
 *   comes, and a call gets its reply without a second thread between.  It
 *   blocks all signals, runs no callback, and is joined before the handle is
 *   released.
 */
#ifndef ZKE_ZK_HANDLE_H
#define ZKE_ZK_HANDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "zk_link.h"
#include "zk_watch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct zk zk;

/* An identity that was added: it is sent again on each connection. */
typedef struct zk_auth {
  struct zk_auth *next;
  char *scheme, *cert;
  int len;
} zk_auth;

/* A node that is to go (zke_discard()).  Its request looks for the node, then
 * deletes it, and looks again, until nothing is found. */
typedef struct zk_discard {
  struct zk_discard *next;
  zk *z;
  char *path; /* whole */
  /* sequential: all numbered nodes with this prefix; busy: its request is under
   * way; gone: nothing is left to be removed */
  bool sequential, busy, gone;
  /* czxid: the incarnation that is meant, or 0; retry_ms: when to try again */
  int64_t czxid, retry_ms;
  char *found; /* the node that was found and is deleted next; or NULL */
  int version;
  int rc; /* of the last try; 0: none has failed */
  zk_request request;
} zk_discard;

/* A callback that is running: the dispatching thread has a chain of them. */
typedef struct zk_frame {
  struct zk_frame *outer;
  zk *z;
  zk_target target;
  int64_t limit; /* of the thread, which holds again when the call is over */
  int limited;
} zk_frame;

/* A handle. Behind its base it has what is fixed at open, and may be read
 * without the mutex, and then what the mutex guards; only next_open is guarded
 * by the mutex of the process's list. */
struct zk {
  zke_handle base; /* must be first */
  /* fixed at open */
  int64_t pid;
  uint64_t serial; /* no other handle of this process has it */
  char *text;      /* as it was opened */
  zk_name name;
  char *chroot; /* that of the name and that of the options */
  size_t chroot_len;
  char *identity;
  int data_limit;
  /* how long a call waits for a connection; when the session began, wall time
   */
  int64_t busy_ms, started_ms;
  bool readonly;
  zke_log_fn log;
  void *log_context;
  /* poller: zke_fd(), over socket, timer and ready; kick: an eventfd that wakes
   * the reader alone */
  int poller, timer, ready, kick; /* descriptors */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  zk *next_open; /* in the process's list */
  /* guarded by the mutex */
  zk_link *link;
  zk_watches watches;
  int state; /* ZKE_STATE_CONNECTED, _CONNECTING, _EXPIRED or _AUTH_FAILED */
  bool closing;
  int inside; /* calls under way; changed without the mutex, so atomically */
  /* times that the connection was lost; of these, that the default watcher was
   * told, and that a read has its answer which was synced afterwards */
  int losses, losses_told, losses_synced;
  bool loss_open; /* told that the connection is lost, and not yet: back */
  /* greeted: there was a connection before, so watches are to be set again; the
   * others: the default watcher is to be told of an overflow, of the end */
  bool greeted, overflow_due, end_due;
  zke_watch_fn watcher;
  void *watcher_context;
  bool has_helper; /* set once, by the opening thread */
  pthread_t helper;
  uint64_t news; /* of the link, that all have been woken for */
  bool reading;  /* a thread polls the socket */
  /* when the reader looks up by itself; a thread that needs it earlier kicks it
   */
  int64_t reading_until;
  pthread_t dispatcher;
  int depth; /* of dispatches in callbacks; 0: nobody dispatches */
  zk_frame *frame;
  /* turn: what zke_wait() waits to change; armed_ms: what the timer is set to,
   * -1: it has run out */
  int64_t turn, armed_ms;
  bool is_ready; /* the eventfd is readable */
  int missed;    /* times that watches that stay have missed events */
  int settings;  /* calls of zke_set_watch() under way */
  zk_auth *auths;
  zk_discard *discards;
  /* zke_test_fail(): what is still to be lost */
  int fail_when, fail_skip;
};

/* What zke_ensemble_enter() is told of a call. */
enum { ZK_ANY_STATE = 1 /* it works after the session's end, too */ };

/* zke_ensemble_of    - the handle behind a public one
 * zke_ensemble_enter - begin a call: cancellation is held off, the mutex taken.
 *                      ZKE_OK: zke_ensemble_leave() has to follow
 * zke_ensemble_leave - end it; returns rc
 * zke_ensemble_pin   - keep a handle that is in the process's list from being
 *                      released, without its mutex
 * zke_ensemble_unpin - no longer; takes the mutex */
zk *zke_ensemble_of(zke *z);
int zke_ensemble_enter(zk *z, unsigned flags);
int zke_ensemble_leave(zk *z, int rc);
void zke_ensemble_pin(zk *z);
void zke_ensemble_unpin(zk *z);

/* zke_ensemble_cancel_off  - hold the thread's cancellation off; may be nested
 * zke_ensemble_cancel_back - let it be as it was
 * Calls on a handle do it themselves; this is for what opens one. */
void zke_ensemble_cancel_off(void);
void zke_ensemble_cancel_back(void);

/* zke_ensemble_pending - is there something to dispatch? */
bool zke_ensemble_pending(zk *z);

/* zke_ensemble_now   - the clock, ms
 * zke_ensemble_until - how long the thread's call may wait
 * zke_ensemble_limit - zke_limit() */
int64_t zke_ensemble_now(void);
int64_t zke_ensemble_until(const zk *z);
int64_t zke_ensemble_limit(zk *z, int64_t deadline_ms);

/* zke_ensemble_call - submit a request and wait until it is over
 *
 *   until_ms  as long as it is not sent it waits for a connection
 *
 * Returns the server's code with a sentence, ZKE_OPERATIONTIMEOUT (it was not
 * sent), ZKE_CONNECTIONLOSS (a change that was), or what the session's end
 * asks for. */
int zke_ensemble_call(zk *z, zk_request *r, const char *path, int64_t until_ms);

/* zke_ensemble_rest - sleep until something happens, at most until then
 * zke_ensemble_step - take what has come, and do what is due */
void zke_ensemble_rest(zk *z, int64_t until_ms);
void zke_ensemble_step(zk *z);

/* zke_ensemble_dispatch - call the watchers that are due
 *
 *   zxid       events of changes up to that
 *   count_out  out: calls
 *   more_out   out: events are left
 *
 * Returns ZKE_OK; ZKE_INVALIDSTATE where the session is over and an earlier
 * dispatch has told so; or ZKE_FORKED where a callback has come back in a
 * child: then nothing of the handle may be touched. */
int zke_ensemble_dispatch(zk *z, int64_t zxid, int *count_out, int *more_out);

/* zke_ensemble_wait - zke_wait_turn() */
int zke_ensemble_wait(zk *z, int64_t turn, int64_t until_ms);

/* zke_ensemble_forget - zke_forget() */
void zke_ensemble_forget(zk *z, zke_watch_fn fn, void *context);

/* zke_ensemble_due      - when the next thing is to be done
 * zke_ensemble_deadline - zke_next_deadline(): now, where there is something to
 *                         call */
int64_t zke_ensemble_due(zk *z);
int64_t zke_ensemble_deadline(zk *z);

/* zke_ensemble_turn - change the turn, and wake whoever waits for it */
void zke_ensemble_turn(zk *z);

/* zke_ensemble_kick - let the reader look again at what it waits for */
void zke_ensemble_kick(zk *z);

/* zke_ensemble_add_auth - an identity, which the handle then owns: it is sent
 * now and on each connection */
void zke_ensemble_add_auth(zk *z, zk_auth *a);

/* zke_ensemble_end - the session is over for this handle, in this state */
void zke_ensemble_end(zk *z, int state);

/* zke_ensemble_ended - the failure that the session's state asks for */
int zke_ensemble_ended(const zk *z);

/* zke_ensemble_discard - note a node that is to go; ZKE_NOMEM
 * zke_ensemble_discarded - wait until all that were noted have gone; ZKE_OK, or
 *                          what stands in the way */
int zke_ensemble_discard(zk *z, const char *path, bool sequential,
                         int64_t czxid);
int zke_ensemble_discarded(zk *z, int64_t until_ms);

/* zke_ensemble_whole - a path below the chroot, as the server knows it: for
 *                      free(); NULL without memory
 * zke_ensemble_shown - a server's path without the chroot; NULL: it lies
 *                      outside */
char *zke_ensemble_whole(const zk *z, const char *path);
const char *zke_ensemble_shown(const zk *z, const char *path);

/* zke_ensemble_help - begin the helper thread, which keeps the session alive
 * and dispatches nothing, until the handle is closed; ZKE_SYSTEMERROR */
int zke_ensemble_help(zk *z);

/* zke_ensemble_close - end the calls of other threads, and the session (unless
 * keep: only its connection), and release the handle.  Not in its callbacks. */
int zke_ensemble_close(zk *z, bool keep);

/* zke_ensemble_new  - a handle of zeros, with its descriptors and its mutex;
 *                     NULL: errno says why not
 * zke_ensemble_connect - its link.  session 0: a new session
 * zke_ensemble_free - release it; nobody may be inside */
zk *zke_ensemble_new(void);
int zke_ensemble_connect(zk *z, int64_t timeout_ms, int64_t session,
                         const unsigned char *password);
void zke_ensemble_free(zk *z);

#ifdef __cplusplus
}
#endif

#endif
