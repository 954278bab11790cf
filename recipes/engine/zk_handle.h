/* zk_handle.h - for zookeeper.c: a handle on an ensemble, without its
 * operations
 *
 * A handle is one session: its link (zk_link.h), its watchers (zk_watch.h), a
 * mutex, and the state for dispatching and waiting.  This pair of files knows
 * threads, deadlines, callbacks and the session's end; zookeeper.c knows the
 * operations.
 *
 * THREADS
 *   The mutex is held in all functions here, except while a thread sleeps or
 *   runs a callback.  One of the threads that wait is the reader: it polls the
 *   socket without the mutex, and then takes what came, for all.  The others
 *   sleep on the condition variable.  It is broadcast after the reader has
 *   slept, and when any thread's step of the link has brought something; then
 *   the reader is woken, too.  One thread at a time dispatches; it may dispatch
 *   again in its callbacks.
 *
 *   If the name asks for a helper thread, that thread only sleeps in this way.
 *   While there is a connection it leaves the socket to the others, and only
 *   checks when a ping is due.  So a program's poll loop sees what comes, and a
 *   call gets its reply without waiting for a second thread.  The helper blocks
 *   all signals, runs no callback, and is joined before the handle is
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

/* An added identity: it is sent again on each connection. */
typedef struct zk_auth {
  struct zk_auth *next;
  char *scheme, *cert;
  int len;
} zk_auth;

/* A node to be deleted (zke_discard()).  Its request looks for the node,
 * deletes it, and looks again, until it finds nothing. */
typedef struct zk_discard {
  struct zk_discard *next;
  zk *z;
  char *path; /* whole */
  /* sequential: all numbered nodes with this prefix; busy: its request is
   * running; gone: nothing is left to delete */
  bool sequential, busy, gone;
  /* czxid: of the node that is meant, or 0; retry_ms: when to try again */
  int64_t czxid, retry_ms;
  char *found; /* the node that was found, to be deleted next; or NULL */
  int version;
  int rc; /* of the last try; 0: it has not failed */
  zk_request request;
} zk_discard;

/* A running callback: the dispatching thread has a chain of them. */
typedef struct zk_frame {
  struct zk_frame *outer;
  zk *z;
  zk_target target;
  int64_t limit; /* the thread's limit, restored after the call */
  int limited;
} zk_frame;

/* A handle.  After its base come the members fixed at open, which may be read
 * without the mutex; then those guarded by the mutex.  Only next_open is
 * guarded by the mutex of the process's list. */
struct zk {
  zke_handle base; /* must be first */
  /* fixed at open */
  int64_t pid;
  uint64_t serial; /* no other handle of this process has it */
  char *text;      /* the name as it was opened */
  zk_name name;
  char *chroot; /* the name's and the options' */
  size_t chroot_len;
  char *identity;
  int data_limit;
  /* how long a call waits for a connection; when the session began, wall
   * time */
  int64_t busy_ms, started_ms;
  bool readonly;
  zke_log_fn log;
  void *log_context;
  /* poller: zke_fd(), over socket, timer and ready; kick: an eventfd that wakes
   * only the reader */
  int poller, timer, ready, kick; /* descriptors */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  zk *next_open; /* in the process's list */
  /* guarded by the mutex */
  zk_link *link;
  zk_watches watches;
  int state; /* ZKE_STATE_CONNECTED, _CONNECTING, _EXPIRED or _AUTH_FAILED */
  bool closing;
  int inside; /* running calls; changed without the mutex, so atomically */
  /* how often the connection was lost; how many losses the default watcher was
   * told of; how many were followed by a synced read that got its answer */
  int losses, losses_told, losses_synced;
  bool loss_open; /* the loss was told, the new connection not yet */
  /* greeted: there was a connection before, so watches must be set again; the
   * others: tell the default watcher of an overflow, of the end */
  bool greeted, overflow_due, end_due;
  zke_watch_fn watcher;
  void *watcher_context;
  bool has_helper; /* set once, by the opening thread */
  pthread_t helper;
  uint64_t news; /* of the link, at the last wake-up of all */
  bool reading;  /* a thread polls the socket */
  /* when the reader wakes up by itself; a thread kicks it to wake it earlier */
  int64_t reading_until;
  pthread_t dispatcher;
  int depth; /* of dispatches in callbacks; 0: no thread dispatches */
  zk_frame *frame;
  /* turn: zke_wait() waits for it to change; armed_ms: the timer's time, -1: it
   * has expired */
  int64_t turn, armed_ms;
  bool is_ready; /* the eventfd is readable */
  int missed;    /* how often watches that stay have missed events */
  int settings;  /* running calls of zke_set_watch() */
  zk_auth *auths;
  zk_discard *discards;
  /* zke_test_fail(): replies still to be lost */
  int fail_when, fail_skip;
};

/* Flags for zke_ensemble_enter(). */
enum { ZK_ANY_STATE = 1 /* it works after the session's end, too */ };

/* zke_ensemble_of    - the handle behind a public one
 * zke_ensemble_enter - begin a call: hold off cancellation, take the mutex.
 *                      ZKE_OK: call zke_ensemble_leave() afterwards
 * zke_ensemble_leave - end it; returns rc
 * zke_ensemble_pin   - keep a handle in the process's list from being released,
 *                      without its mutex
 * zke_ensemble_unpin - undo that; takes the mutex */
zk *zke_ensemble_of(zke *z);
int zke_ensemble_enter(zk *z, unsigned flags);
int zke_ensemble_leave(zk *z, int rc);
void zke_ensemble_pin(zk *z);
void zke_ensemble_unpin(zk *z);

/* zke_ensemble_cancel_off  - hold the thread's cancellation off; may be nested
 * zke_ensemble_cancel_back - restore it
 * Calls on a handle do this themselves; these are for opening one. */
void zke_ensemble_cancel_off(void);
void zke_ensemble_cancel_back(void);

/* zke_ensemble_pending - is there something to dispatch? */
bool zke_ensemble_pending(zk *z);

/* zke_ensemble_now   - the clock, ms
 * zke_ensemble_until - until when the thread's call may wait
 * zke_ensemble_limit - zke_limit() */
int64_t zke_ensemble_now(void);
int64_t zke_ensemble_until(const zk *z);
int64_t zke_ensemble_limit(zk *z, int64_t deadline_ms);

/* zke_ensemble_call - submit a request and wait until it is over
 *
 *   until_ms  until when it waits for a connection; no limit once it is sent
 *
 * Returns the server's code with a sentence, ZKE_OPERATIONTIMEOUT (it was not
 * sent), ZKE_CONNECTIONLOSS (a change was sent), or the code for the session's
 * end. */
int zke_ensemble_call(zk *z, zk_request *r, const char *path, int64_t until_ms);

/* zke_ensemble_rest - sleep until something happens, at most until until_ms
 * zke_ensemble_step - process what has come, and do what is due */
void zke_ensemble_rest(zk *z, int64_t until_ms);
void zke_ensemble_step(zk *z);

/* zke_ensemble_dispatch - call the watchers that are due
 *
 *   zxid       deliver events of changes up to that
 *   count_out  out: number of calls
 *   more_out   out: are events left?
 *
 * Returns ZKE_OK; ZKE_INVALIDSTATE if the session is over and an earlier
 * dispatch has reported it; or ZKE_FORKED if a callback has returned in a
 * child: then do not touch the handle. */
int zke_ensemble_dispatch(zk *z, int64_t zxid, int *count_out, int *more_out);

/* zke_ensemble_wait - zke_wait_turn() */
int zke_ensemble_wait(zk *z, int64_t turn, int64_t until_ms);

/* zke_ensemble_forget - zke_forget() */
void zke_ensemble_forget(zk *z, zke_watch_fn fn, void *context);

/* zke_ensemble_due      - when the next work is due
 * zke_ensemble_deadline - zke_next_deadline(): now, if there is something to
 *                         call */
int64_t zke_ensemble_due(zk *z);
int64_t zke_ensemble_deadline(zk *z);

/* zke_ensemble_turn - change the turn, and wake all threads that wait for it */
void zke_ensemble_turn(zk *z);

/* zke_ensemble_kick - make the reader look again at what it waits for */
void zke_ensemble_kick(zk *z);

/* zke_ensemble_add_auth - add an identity, which the handle then owns: it is
 * sent now and on each connection */
void zke_ensemble_add_auth(zk *z, zk_auth *a);

/* zke_ensemble_end - the session is over for this handle; state says how */
void zke_ensemble_end(zk *z, int state);

/* zke_ensemble_ended - fail with the code for the session's state */
int zke_ensemble_ended(const zk *z);

/* zke_ensemble_discard - queue a node for deletion; ZKE_NOMEM
 * zke_ensemble_discarded - wait until all queued nodes have gone; ZKE_OK, or
 *                          the code of the failure */
int zke_ensemble_discard(zk *z, const char *path, bool sequential,
                         int64_t czxid);
int zke_ensemble_discarded(zk *z, int64_t until_ms);

/* zke_ensemble_whole - a path with the chroot, as the server knows it: for
 *                      free(); NULL without memory
 * zke_ensemble_shown - a server's path without the chroot; NULL: it lies
 *                      outside */
char *zke_ensemble_whole(const zk *z, const char *path);
const char *zke_ensemble_shown(const zk *z, const char *path);

/* zke_ensemble_help - start the helper thread, which keeps the session alive
 * and dispatches nothing, until the handle is closed; ZKE_SYSTEMERROR */
int zke_ensemble_help(zk *z);

/* zke_ensemble_close - end the calls of other threads, and the session (with
 * keep: only its connection), and release the handle.  Not in its callbacks. */
int zke_ensemble_close(zk *z, bool keep);

/* zke_ensemble_new  - a handle of zeros, with its descriptors and its mutex;
 *                     NULL: errno says why not
 * zke_ensemble_connect - make its link.  session 0: a new session
 * zke_ensemble_free - release it; no thread may be inside */
zk *zke_ensemble_new(void);
int zke_ensemble_connect(zk *z, int64_t timeout_ms, int64_t session,
                         const unsigned char *password);
void zke_ensemble_free(zk *z);

#ifdef __cplusplus
}
#endif

#endif
