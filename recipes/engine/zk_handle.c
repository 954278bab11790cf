/* zk_handle.c - a handle on an ensemble, without its operations
 *
 * The sections are in the order of the file; each uses those above it.
 * Functions for other files are named zke_ensemble_…; handle_… concerns the
 * handle as a whole; the other prefixes are listed here.
 *
 *     time and paths
 *     the descriptor
 *     the session's connection and end   send_, again_
 *     discards                           discard_, discards_
 *     entering and leaving
 *     sleeping                           reader_, sleeper_, cancel_
 *     requests                           call_
 *     dispatching                        callback_, dispatch_
 *     waiting                            wait_
 *     the helper thread                  helper_
 *     opening and closing
 *
 * Invariants:
 *   1. The socket is used with the mutex held; it is polled without.
 *   2. A submitted request is on its caller's stack: the caller does not return
 *      before it is over.
 *   3. The eventfd `ready` is readable while there is something to call, and
 *      the timer is set to the earliest time that anything is due: both are
 *      updated whenever the mutex is released (handle_arm()). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "zk_handle.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../part/text.h"

enum {
  HANDLE_SLEEP_MOST = 3600 * 1000, /* ms: the longest sleep */
  HANDLE_RETRY = 1000,             /* ms between two tries of a discard */
  HANDLE_CLOSE = 1000,             /* ms for the reply to closeSession */
  HANDLE_LEAVING = 50,             /* ms between two looks at other threads */
  HANDLE_WATCHES_FRAME = 128 << 10 /* bytes of one setWatches2 */
};

/* ---- time and paths ----
 *
 * The clock, how long a thread may wait, and paths below the chroot.  Nothing
 * here takes the mutex. */

int64_t zke_ensemble_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A time of zke_ensemble_now() as the kernel takes it. In a time_t of 32 bits
 * its greatest value stands for all later ones. */
static struct timespec time_of(int64_t ms) {
  int64_t most = sizeof(time_t) < sizeof ms ? INT32_MAX : INT64_MAX;
  int64_t seconds = ms / 1000;
  if (seconds > most) seconds = most;
  return (struct timespec){.tv_sec = (time_t)seconds,
                           .tv_nsec = (long)(ms % 1000 * 1000000)};
}

/* The limit of a thread, zke_limit().  A handle that is opened later may get
 * the address of a closed one: so its serial number must be the same, too. */
static _Thread_local struct {
  const zk *z;
  uint64_t serial;
  int64_t until;
} handle_limit;

/* Does this thread have a limit for the handle? */
static bool handle_is_limited(const zk *z) {
  return handle_limit.z == z && handle_limit.serial == z->serial;
}

/* Set the thread's limit and return the one before.  zkembed.h allows a thread
 * one handle with a limit at a time, so a variable of the thread is enough. */
int64_t zke_ensemble_limit(zk *z, int64_t deadline_ms) {
  int64_t was = z && handle_is_limited(z) ? handle_limit.until : ZKE_FOREVER;
  handle_limit.z = deadline_ms == ZKE_FOREVER ? NULL : z;
  handle_limit.serial = z ? z->serial : 0;
  handle_limit.until = deadline_ms;
  return was;
}

/* The busy timeout from now on, or the thread's limit if that is earlier.
 * Computed once at the beginning of a call, however many requests the call
 * needs. */
int64_t zke_ensemble_until(const zk *z) {
  int64_t until = zke_ensemble_now() + z->busy_ms;
  if (handle_is_limited(z) && handle_limit.until < until)
    return handle_limit.until;
  return until;
}

/* "/" is the chroot's own node, so no path ends in '/'. */
char *zke_ensemble_whole(const zk *z, const char *path) {
  size_t len = z->chroot_len && !path[1] ? 0 : strlen(path);
  char *whole = malloc(z->chroot_len + len + 1);
  if (!whole) return NULL;
  memcpy(whole, z->chroot, z->chroot_len);
  memcpy(whole + z->chroot_len, path, len);
  whole[z->chroot_len + len] = '\0';
  return whole;
}

/* The chroot "/a" is above "/a/b", but not above "/ab". */
const char *zke_ensemble_shown(const zk *z, const char *path) {
  const char *shown = path + z->chroot_len;
  if (strncmp(path, z->chroot, z->chroot_len) != 0) return NULL;
  if (!z->chroot_len) return path;
  if (!*shown) return "/";
  return *shown == '/' ? shown : NULL;
}

/* Tell the program's logger, with the session.  It runs under the mutex, as
 * zkembed.h says of loggers, so it must not call back. */
static void handle_log(const zk *z, int level, const char *what,
                       const char *more) {
  char text[256];
  if (!z->log) return;
  snprintf(text, sizeof text, "session %016llx: %s%s",
           (unsigned long long)zke_link_session(z->link), what, more);
  z->log(z->log_context, level, text);
}

/* ---- the descriptor ----
 *
 * A program's own loop polls one descriptor and asks for one time (zke_fd(),
 * zke_next_deadline()).  Both tell when zke_dispatch() has work:
 * handle_has_work() says which, handle_arm() keeps both up to date. */

/* Make an eventfd readable; it may be already. */
static void signal_fd(int fd) {
  uint64_t one = 1;
  while (write(fd, &one, sizeof one) < 0 && errno == EINTR) continue;
}

/* Make an eventfd or a timer unreadable. */
static void drain_fd(int fd) {
  uint64_t count;
  while (read(fd, &count, sizeof count) < 0 && errno == EINTR) continue;
}

/* Is there something that a dispatch would call now? */
static bool handle_has_work(const zk *z) {
  return z->watches.pending > 0 || z->watches.round_type || z->overflow_due ||
         z->end_due || z->losses != z->losses_told ||
         (z->loss_open && zke_link_is_up(z->link));
}

/* When the next discard is tried; ZKE_FOREVER: none waits for its time. */
static int64_t discards_due(const zk *z) {
  int64_t due = ZKE_FOREVER;
  for (const zk_discard *d = z->discards; d; d = d->next) {
    if (!d->busy && d->retry_ms < due) due = d->retry_ms;
  }
  return due;
}

/* When the connection or a discard needs work next.  Does not include times of
 * zke_call_at(): see handle_rest(). */
static int64_t handle_due(const zk *z) {
  int64_t due = zke_link_due(z->link);
  int64_t retry = zke_link_is_up(z->link) ? discards_due(z) : ZKE_FOREVER;
  return retry < due ? retry : due;
}

/* When any work is due next, including watchers' times: when a program's loop
 * must wake up. */
int64_t zke_ensemble_due(zk *z) {
  int64_t due = handle_due(z);
  int64_t alarm = zke_watcher_next_due(&z->watches);
  return alarm < due ? alarm : due;
}

/* Work that can be called now does not wait for any time. */
int64_t zke_ensemble_deadline(zk *z) {
  return handle_has_work(z) ? zke_ensemble_now() : zke_ensemble_due(z);
}

/* Wake the reader, which polls without the mutex.  Call this after a change of
 * what it polls for, to make it look again. */
void zke_ensemble_kick(zk *z) {
  if (z->reading) signal_fd(z->kick);
}

/* Keep invariant 3.  Wake the reader if it would sleep beyond the new earliest
 * time.  Wake it also if there is new work to call: the reader polls the socket
 * and not `ready`, so otherwise no thread would be told until the next ping. */
static void handle_arm(zk *z) {
  bool work = handle_has_work(z);
  int64_t due = zke_ensemble_due(z);
  if (work && !z->is_ready) zke_ensemble_kick(z);
  if (work && !z->is_ready) signal_fd(z->ready);
  if (!work && z->is_ready) drain_fd(z->ready);
  z->is_ready = work;
  if (z->reading && due < z->reading_until) zke_ensemble_kick(z);
  if (z->armed_ms >= 0 && z->armed_ms <= due) return; /* it looks again then */
  struct itimerspec t = {{0, 0}, {0, 0}};
  if (due <= 0)
    t.it_value.tv_nsec = 1; /* zeros would disarm it */
  else if (due != ZKE_FOREVER)
    t.it_value = time_of(due);
  timerfd_settime(z->timer, TFD_TIMER_ABSTIME, &t, NULL);
  z->armed_ms = due;
}

/* Updates the descriptor, and polls it. */
bool zke_ensemble_pending(zk *z) {
  struct pollfd p = {.fd = z->poller, .events = POLLIN};
  handle_arm(z);
  return poll(&p, 1, 0) > 0;
}

/* ---- the session's connection and end ----
 *
 * The callbacks of the link: connected, lost, an event, the end.  zookeeper.h
 * says under CONNECTIONS how the state changes; expired and failed
 * authentication are final.  These functions run inside the link's, with the
 * mutex held. */

/* Fail a call on a session that is over.  The program has been told of the end,
 * or will be. */
int zke_ensemble_ended(const zk *z) {
  return zke_fail(ZKE_INVALIDSTATE, z->state == ZKE_STATE_AUTH_FAILED
                                        ? "authentication failed"
                                        : "the session has expired");
}

/* Is the session over?  This is final. */
static bool handle_is_over(const zk *z) {
  return z->state == ZKE_STATE_EXPIRED || z->state == ZKE_STATE_AUTH_FAILED;
}

/* Its request must be over. */
static void discard_free(zk_discard *d) {
  zke_link_request_clear(&d->request);
  free(d->found);
  free(d->path);
  free(d);
}

/* The session's end removes the nodes that were to be discarded. */
static void discards_free(zk *z) {
  while (z->discards) {
    zk_discard *d = z->discards;
    z->discards = d->next;
    discard_free(d);
  }
}

/* The link goes first: it ends all requests, including those of discards, which
 * can be released then.  Threads that wait for a request are woken.  Later
 * calls find the state. */
void zke_ensemble_end(zk *z, int state) {
  if (handle_is_over(z)) return;
  zke_link_end(z->link, ZKE_SESSIONEXPIRED);
  zke_ensemble_kick(z);
  pthread_cond_broadcast(&z->changed);
  z->state = state;
  z->end_due = true;
  z->losses_told = z->losses; /* the end includes the losses */
  z->loss_open = false;
  discards_free(z);
  zke_watcher_tell_all(&z->watches, ZKE_EVENT_SESSION);
  handle_log(z, ZKE_LOG_WARN, "the session has ended", "");
}

/* The link has heard of the session's end. */
static void handle_ended(void *owner, int state) {
  zke_ensemble_end(owner, state);
}

/* The link's connection is gone, and the session lives on.  A dispatch tells
 * the default watcher.  Sleepers are woken, since the loss may happen outside
 * of any step, when a request is submitted: the helper thread sleeps until the
 * next ping, and must look for a server now. */
static void handle_lost(void *owner, const char *why) {
  zk *z = owner;
  if (handle_is_over(z)) return;
  z->state = ZKE_STATE_CONNECTING;
  z->losses++;
  pthread_cond_broadcast(&z->changed);
  handle_log(z, ZKE_LOG_WARN, "disconnected: ", why);
}

/* An event of a server, with its path.  Paths outside the chroot come from
 * watches that a session had before it was attached here.  If the server does
 * not send the zxid, it is at least the one after those up to which all events
 * have come.  That does not hold during zke_set_watch(): the change is older
 * than the call, and the call's reply may have the zxid that was seen last. */
static void handle_event(void *owner, int type, const char *path,
                         int64_t zxid) {
  zk *z = owner;
  const char *shown = zke_ensemble_shown(z, path);
  int64_t next = zke_link_complete(z->link) + (z->settings ? 0 : 1);
  int64_t least = zxid ? zxid : next;
  if (!shown) return;
  if (!zke_watcher_event(&z->watches, type, shown, zxid, least))
    z->overflow_due = true;
}

/* Send an identity, if there is a connection.  There is no wait for the answer:
 * a refusal ends the session. */
static void send_auth(zk *z, const zk_auth *a) {
  zke_jute_auth_packet packet = {0, a->scheme, {a->len, a->cert}};
  zke_link_put(z->link, ZKE_JUTE_XID_AUTH, ZKE_JUTE_AUTH,
               &zke_jute_of_auth_packet, &packet);
}

static void auth_free(zk_auth *a) {
  free(a->scheme);
  free(a->cert);
  free(a);
}

/* Are two identities the same? */
static bool auth_is(const zk_auth *a, const zk_auth *other) {
  return a->len == other->len && !strcmp(a->scheme, other->scheme) &&
         !memcmp(a->cert, other->cert, (size_t)a->len);
}

/* At the end of the list: ZooKeeper's servers get the identities in the order
 * in which they were added.  A known one is only sent: otherwise a program that
 * adds it again after a time-out would have it sent more and more often. */
void zke_ensemble_add_auth(zk *z, zk_auth *a) {
  zk_auth **at = &z->auths;
  while (*at && !auth_is(*at, a)) at = &(*at)->next;
  if (*at)
    auth_free(a);
  else
    *at = a;
  send_auth(z, *at);
}

/* A setWatches2 being built. */
typedef struct again {
  zk *z;
  char **paths[ZK_WATCH_KINDS];
  int count[ZK_WATCH_KINDS];
  size_t room, bytes; /* of each list; of the frame */
  bool failed;
} again;

/* Send the collected paths, and start an empty frame. */
static void again_send(again *a) {
  zke_jute_set_watches2 all = {
      .relative_zxid = zke_link_complete(a->z->link),
      .data = {a->count[ZK_WATCH_DATA], a->paths[ZK_WATCH_DATA]},
      .exist = {a->count[ZK_WATCH_EXIST], a->paths[ZK_WATCH_EXIST]},
      .child = {a->count[ZK_WATCH_CHILD], a->paths[ZK_WATCH_CHILD]},
      .persistent = {a->count[ZK_WATCH_PERSISTENT],
                     a->paths[ZK_WATCH_PERSISTENT]},
      .recursive = {a->count[ZK_WATCH_RECURSIVE],
                    a->paths[ZK_WATCH_RECURSIVE]}};
  zke_link_put(a->z->link, ZK_LINK_XID_WATCHES, ZKE_JUTE_SET_WATCHES2,
               &zke_jute_of_set_watches2, &all);
  for (int kind = 0; kind < ZK_WATCH_KINDS; kind++) {
    while (a->count[kind]) free(a->paths[kind][--a->count[kind]]);
  }
  a->bytes = 0;
}

/* Add a path.  If the frame would become too long, send the collected paths
 * first: a single path is never too long for a server. */
static void again_add(void *arg, const char *path, enum zk_watch_kind kind) {
  again *a = arg;
  char *whole = zke_ensemble_whole(a->z, path);
  size_t size = whole ? strlen(whole) + 4 : 0;
  if (!whole) {
    a->failed = true;
    return;
  }
  if (a->bytes && a->bytes + size > HANDLE_WATCHES_FRAME) again_send(a);
  a->paths[kind][a->count[kind]++] = whole;
  a->bytes += size;
}

/* Set all watches again, in several frames, with the zxid up to which all
 * events have come: the server then sends the events that one-shot watches have
 * missed since.  That zxid does not move until all frames are answered, so
 * after a loss between two of them the next try begins from there.  Watches
 * that stay may have missed events without that; their watchers are told so.
 * Without memory the connection is given up, so no watch is lost unnoticed. */
static void set_watches_again(zk *z) {
  again a = {.z = z, .room = z->watches.count};
  for (int kind = 0; kind < ZK_WATCH_KINDS; kind++) {
    a.paths[kind] = calloc(a.room, sizeof(char *));
    if (!a.paths[kind]) a.failed = true;
  }
  if (!a.failed) zke_watcher_each(&z->watches, again_add, &a);
  again_send(&a);
  for (int kind = 0; kind < ZK_WATCH_KINDS; kind++) free(a.paths[kind]);
  if (a.failed) zke_link_drop(z->link, "out of memory for the watches");
  if (zke_watcher_tell_kept(&z->watches)) z->missed++;
}

/* Identities first: the watches may need them.  No request comes before either,
 * so no read can show a change before its event has come. */
static void handle_connected(void *owner) {
  zk *z = owner;
  z->state = ZKE_STATE_CONNECTED;
  for (const zk_auth *a = z->auths; a; a = a->next) send_auth(z, a);
  if (z->greeted && z->watches.count) set_watches_again(z);
  z->greeted = true;
  handle_log(z, ZKE_LOG_INFO, "connected", "");
}

/* ---- discards ----
 *
 * A node to be discarded is looked for, deleted, and looked for again, until
 * there is none.  Each step is a request of the list, so it makes progress
 * whenever any thread reads; no thread has to wait for it.  A lost connection
 * ends a step, and the next connection repeats it. */

/* The path and version of the node to delete, from a look's reply; NULL: there
 * is none.  A server cannot delete by owner.  The version makes sure that a
 * node that was changed since the look stays. */
static const char *discard_find_one(zk_discard *d, int *version) {
  zke_jute_stat_response found;
  *version = -1;
  if (d->request.rc != ZKE_OK) return NULL;
  if (!zke_jute_read(&d->request.reply, &zke_jute_of_stat_response, &found))
    return NULL;
  if (found.stat.ephemeralOwner != zke_link_session(d->z->link)) return NULL;
  if (d->czxid && found.stat.czxid != d->czxid) return NULL;
  *version = found.stat.version;
  return d->path;
}

/* Could a sequential create with this prefix have made the path? */
static bool is_numbered(const char *path, const char *prefix) {
  size_t len = strlen(prefix);
  int32_t number;
  return strncmp(path, prefix, len) == 0 &&
         zke_recipe_number(path + len, &number);
}

/* One of the session's ephemeral nodes that a create with this prefix may have
 * made; NULL: none is left. */
static const char *discard_find_numbered(zk_discard *d) {
  zke_jute_children_response all;
  if (d->request.rc != ZKE_OK) return NULL;
  if (!zke_jute_read(&d->request.reply, &zke_jute_of_children_response, &all))
    return NULL;
  for (int i = 0; i < all.children.count; i++) {
    const char *path = all.children.data[i];
    if (path && is_numbered(path, d->path)) return path;
  }
  return NULL;
}

/* A look was answered: nothing is left, or there is a node to delete. */
static void discard_looked(zk_discard *d) {
  int rc = d->request.rc;
  if (rc != ZKE_OK && rc != ZKE_NONODE) {
    d->rc = rc;
    return;
  }
  const char *path = d->sequential ? discard_find_numbered(d)
                                   : discard_find_one(d, &d->version);
  if (d->request.reply.failed) {
    d->rc = ZKE_MARSHALLINGERROR;
    return;
  }
  d->gone = path == NULL;
  if (path) d->found = strdup(path);
  if (path && !d->found) d->rc = ZKE_NOMEM;
}

/* The node of that path has gone.  There may be more numbered ones, and one
 * with another version must be looked at again: both immediately. */
static void discard_deleted(zk_discard *d) {
  int rc = d->request.rc;
  free(d->found);
  d->found = NULL;
  d->retry_ms = 0;
  d->gone = !d->sequential && (rc == ZKE_OK || rc == ZKE_NONODE);
  if (rc != ZKE_OK && rc != ZKE_NONODE && rc != ZKE_BADVERSION) d->rc = rc;
}

/* A step is over; discards_step() begins the next one.  There is a pause after
 * a failure that a new connection does not repair. */
static void discard_done(zk_request *r) {
  zk_discard *d = r->context;
  d->busy = false;
  d->rc = ZKE_OK;
  if (d->found)
    discard_deleted(d);
  else
    discard_looked(d);
  if (d->rc != ZKE_OK && d->rc != ZKE_CONNECTIONLOSS)
    d->retry_ms = zke_ensemble_now() + HANDLE_RETRY;
}

/* Submit the next step.  A sync precedes a look: another server may have made a
 * create whose reply was lost. */
static void discard_begin(zk_discard *d) {
  zk_request *r = &d->request;
  zke_jute_path_request path = {d->path};
  zke_jute_read_request look = {d->path, 0};
  zke_jute_delete_request del = {d->found, d->version};
  zke_link_request_clear(r);
  *r = (zk_request){.done = discard_done, .context = d, .reads = !d->found};
  r->type = d->sequential ? ZKE_JUTE_GET_EPHEMERALS : ZKE_JUTE_EXISTS;
  if (d->found) {
    r->type = ZKE_JUTE_DELETE;
    zke_jute_write(&r->body, &zke_jute_of_delete_request, &del);
  } else {
    zke_jute_write(&r->sync, &zke_jute_of_path_request, &path);
    if (d->sequential)
      zke_jute_write(&r->body, &zke_jute_of_path_request, &path);
    else
      zke_jute_write(&r->body, &zke_jute_of_read_request, &look);
  }
  d->busy = !r->body.failed && !r->sync.failed;
  d->retry_ms = zke_ensemble_now() + HANDLE_RETRY;
  if (d->busy) zke_link_submit(d->z->link, r, zke_ensemble_now());
}

/* Begin the steps that are due, and release finished discards. */
static void discards_step(zk *z) {
  int64_t now = zke_ensemble_now();
  zk_discard **at = &z->discards;
  while (*at) {
    zk_discard *d = *at;
    if (d->gone) {
      *at = d->next;
      discard_free(d);
      continue;
    }
    bool due = d->found || d->retry_ms <= now || d->rc == ZKE_CONNECTIONLOSS;
    if (!d->busy && due && zke_link_is_up(z->link)) discard_begin(d);
    at = &d->next;
  }
}

/* The next step begins it, and each later one continues until the node has
 * gone. */
int zke_ensemble_discard(zk *z, const char *path, bool sequential,
                         int64_t czxid) {
  zk_discard *d = calloc(1, sizeof *d);
  char *whole = zke_ensemble_whole(z, path);
  if (!d || !whole) {
    free(d);
    free(whole);
    return zke_fail(ZKE_NOMEM, "%s: out of memory", path);
  }
  d->z = z;
  d->path = whole;
  d->sequential = sequential;
  d->czxid = czxid;
  d->next = z->discards;
  z->discards = d;
  return ZKE_OK;
}

/* Every sleep ends with this; a call begins with it if anything is due.  If
 * anything has come or has changed, all others are woken: sleepers, since the
 * events they wait for may have come; and the reader, since poll() tells it
 * neither of bytes that were taken here, nor of another socket than the one it
 * polls.  Otherwise no thread is woken: a woken thread makes a step itself, so
 * two of them would wake each other without end. */
void zke_ensemble_step(zk *z) {
  int64_t now = zke_ensemble_now();
  if (z->armed_ms <= now) {
    drain_fd(z->timer);
    z->armed_ms = -1; /* it must be set again */
  }
  short events = 0, wanted = 0;
  zke_link_poll(z->link, &events);
  zke_link_step(z->link, now);
  discards_step(z);
  zke_link_poll(z->link, &wanted);
  if (z->news == zke_link_news(z->link) && wanted == events) return;
  z->news = zke_link_news(z->link);
  zke_ensemble_kick(z);
  pthread_cond_broadcast(&z->changed);
}

/* ---- entering and leaving ----
 *
 * The one way into a call and out of it.  Inside, the mutex is held, the
 * thread's cancellation is held off, and the call is counted, so the handle is
 * not released. */

/* Cancellation of the thread, held off in calls: how many of them are nested,
 * and the earlier settings. */
static _Thread_local struct { int depth, state, type; } handle_cancel;

/* May be nested, also through the callbacks of other handles: the outermost
 * call keeps the earlier settings. */
void zke_ensemble_cancel_off(void) {
  if (handle_cancel.depth++ > 0) return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &handle_cancel.state);
  pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &handle_cancel.type);
}

/* In the opposite order of zke_ensemble_cancel_off(): only the last step may
 * cancel the thread. */
void zke_ensemble_cancel_back(void) {
  if (--handle_cancel.depth > 0) return;
  pthread_setcanceltype(handle_cancel.type, NULL);
  pthread_setcancelstate(handle_cancel.state, NULL);
}

zk *zke_ensemble_of(zke *z) { return (zk *)(void *)z; }

/* Was the handle opened by another process, which this one was forked from? */
static bool handle_is_copy(const zk *z) { return getpid() != z->pid; }

/* A child touches nothing of the handle: its state is as it was at the fork,
 * and its descriptors are the parent's. */
static int forked(void) {
  return zke_fail(ZKE_FORKED, "the handle belongs to the parent process");
}

/* For calls that end because another thread closes their handle. */
static int handle_closing(void) {
  return zke_fail(ZKE_CLOSING, "another thread is closing the handle");
}

/* The end of a call, with the mutex held.  After the unlock do not touch the
 * handle: a thread that closes it may have released it. */
static void handle_leave(zk *z) {
  __atomic_fetch_sub(&z->inside, 1, __ATOMIC_SEQ_CST);
  if (z->closing)
    pthread_cond_broadcast(&z->changed);
  else
    handle_arm(z);
  pthread_mutex_unlock(&z->mutex);
  zke_ensemble_cancel_back();
}

/* A forked child is refused before it touches the mutex, which another thread
 * of the parent may have held.  The call is counted before the mutex is taken,
 * so a thread that closes the handle also waits for threads that wait for the
 * mutex.  While there is no connection, each call looks for one, even before
 * anything is due: a program may do nothing but enter. */
int zke_ensemble_enter(zk *z, unsigned flags) {
  int rc = ZKE_OK;
  if (handle_is_copy(z)) return forked();
  zke_ensemble_cancel_off();
  __atomic_fetch_add(&z->inside, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_lock(&z->mutex);
  if (z->closing) {
    rc = handle_closing();
  } else {
    bool opening = !handle_is_over(z) && !zke_link_is_up(z->link);
    if (opening || zke_ensemble_now() >= zke_ensemble_due(z))
      zke_ensemble_step(z);
    if (!(flags & ZK_ANY_STATE) && handle_is_over(z))
      rc = zke_ensemble_ended(z);
  }
  if (rc != ZKE_OK) handle_leave(z);
  return rc;
}

int zke_ensemble_leave(zk *z, int rc) {
  handle_leave(z);
  return rc;
}

/* A pin counts as a running call. */
void zke_ensemble_pin(zk *z) {
  __atomic_fetch_add(&z->inside, 1, __ATOMIC_SEQ_CST);
}

/* A forked child releases nothing, and does not touch the mutex. */
void zke_ensemble_unpin(zk *z) {
  if (handle_is_copy(z)) return;
  zke_ensemble_cancel_off();
  pthread_mutex_lock(&z->mutex);
  handle_leave(z);
}

/* ---- sleeping ----
 *
 * Every thread that waits sleeps in handle_rest().  One of these threads is the
 * reader, which takes what comes, for all; when it leaves, another becomes the
 * reader.  Begin at handle_rest(). */

/* The thread was cancelled in its sleep as the reader: another thread becomes
 * the reader, and this one leaves the call. */
static void reader_cancelled(void *arg) {
  zk *z = arg;
  if (handle_is_copy(z)) return;
  pthread_mutex_lock(&z->mutex);
  z->reading = false;
  pthread_cond_broadcast(&z->changed);
  handle_leave(z);
}

/* pthread_cond_timedwait() has taken the mutex again. */
static void sleeper_cancelled(void *arg) { handle_leave(arg); }

/* Allow cancellation from here on, if the call may be cancelled: not in a
 * callback, whose caller is inside the library. */
static void cancel_allow(bool may) {
  if (may && handle_cancel.depth == 1)
    pthread_setcancelstate(handle_cancel.state, NULL);
}

static void cancel_forbid(bool may) {
  if (may && handle_cancel.depth == 1)
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
}

/* For poll(). */
static int ms_until(int64_t until_ms) {
  int64_t ms = until_ms - zke_ensemble_now();
  if (ms < 0) return 0;
  return ms > HANDLE_SLEEP_MOST ? HANDLE_SLEEP_MOST : (int)ms;
}

/* Sleep in poll() as the reader, without the mutex: if another thread changes
 * the link, it wakes the reader.  A closed socket's number is not used again
 * until then, as poll() holds its file. */
static void reader_poll(zk *z, int64_t until_ms, bool may) {
  struct pollfd fds[2] = {{.fd = -1}, {.fd = z->kick, .events = POLLIN}};
  fds[0].fd = zke_link_poll(z->link, &fds[0].events);
  pthread_mutex_unlock(&z->mutex);
  pthread_cleanup_push(reader_cancelled, z);
  cancel_allow(may);
  poll(fds, 2, ms_until(until_ms));
  cancel_forbid(may);
  pthread_cleanup_pop(0);
  pthread_mutex_lock(&z->mutex);
  if (fds[1].revents) drain_fd(z->kick);
}

/* Sleep while another thread reads. An hour at most: callers look again. */
static void sleeper_wait(zk *z, int64_t until_ms, bool may) {
  int64_t most = zke_ensemble_now() + HANDLE_SLEEP_MOST;
  const struct timespec t = time_of(until_ms < most ? until_ms : most);
  pthread_cleanup_push(sleeper_cancelled, z);
  cancel_allow(may);
  pthread_cond_timedwait(&z->changed, &z->mutex, &t);
  cancel_forbid(may);
  pthread_cleanup_pop(0);
}

/* Sleep until something happens, at most until until_ms: as the reader, or
 * while another thread is the reader.  may: as a cancellation point.
 *
 * Times of zke_call_at() do not end this sleep.  A caller that may run them
 * passes the earliest as until_ms (wait_until()).  For any other caller such a
 * time, once it is due, would make the loop spin. */
static void handle_rest(zk *z, int64_t until_ms, bool may) {
  if (until_ms < 0) until_ms = 0;
  if (z->reading) {
    sleeper_wait(z, until_ms, may);
    return;
  }
  int64_t due = handle_due(z);
  if (due > until_ms) due = until_ms;
  handle_arm(z);
  z->reading = true;
  z->reading_until = due;
  reader_poll(z, due, may);
  z->reading = false;
  pthread_cond_broadcast(&z->changed); /* a sleeper may have to read now */
  zke_ensemble_step(z);
}

/* A sleep that is not a cancellation point. */
void zke_ensemble_rest(zk *z, int64_t until_ms) {
  handle_rest(z, until_ms, false);
}

/* ---- requests ----
 *
 * A call submits its request and sleeps until that is over.  The reader takes
 * the replies, whichever thread it is. */

/* The sentence of a request's end, and the code that the call returns.  If the
 * handle's own end is the cause, they say so. */
static int call_failed(const zk *z, const zk_request *r, const char *path) {
  switch (r->rc) {
    case ZKE_OK:
      return ZKE_OK;
    case ZKE_CONNECTIONLOSS:
      return zke_fail(r->rc, "%s: the connection was lost after the request",
                      path);
    case ZKE_OPERATIONTIMEOUT:
      return zke_fail(r->rc, "%s: no server could be reached in time", path);
    case ZKE_CLOSING:
      return handle_closing();
    case ZKE_INVALIDSTATE: /* it was submitted after the link's end */
    case ZKE_AUTHFAILED:
      if (z->closing) return handle_closing();
      if (handle_is_over(z)) return zke_ensemble_ended(z);
      break;
    default:
      break;
  }
  return zke_fail(r->rc, "%s: %s", path, zke_error_text(r->rc));
}

/* At the deadline, a request that was not sent is taken back: nothing was
 * changed.  A request that was sent is waited for: its reply comes, or the
 * connection is given up, two thirds of the session's timeout after the server
 * fell silent.  So the request, which is on this stack, is over when this
 * returns. */
int zke_ensemble_call(zk *z, zk_request *r, const char *path,
                      int64_t until_ms) {
  zke_set_zxid(0);
  if (r->body.failed || r->sync.failed)
    return zke_fail(ZKE_NOMEM, "%s: out of memory", path);
  zke_link_submit(z->link, r, zke_ensemble_now());
  zke_ensemble_kick(z);
  while (!r->over) {
    int64_t now = zke_ensemble_now();
    if (now >= until_ms && zke_link_take_back(z->link, r, ZKE_OPERATIONTIMEOUT))
      break;
    zke_ensemble_rest(z, r->is_sent ? ZKE_FOREVER : until_ms);
  }
  zke_set_zxid(r->zxid);
  return call_failed(z, r, path);
}

/* A node's path as the program knows it. */
static const char *discard_name(const zk_discard *d) {
  const char *shown = zke_ensemble_shown(d->z, d->path);
  return shown ? shown : d->path;
}

/* Try all now, then wait.  A failure other than a lost connection is returned,
 * since it would last.  After a lost connection the next one tries again, and
 * the caller's own change was not sent: so the loss is not reported to the
 * caller.  The reader is woken only once, since the requests may have changed
 * what it polls for: each time it looks it wakes the sleepers, so a kick in the
 * loop would keep both awake. */
int zke_ensemble_discarded(zk *z, int64_t until_ms) {
  for (zk_discard *d = z->discards; d; d = d->next) {
    d->rc = ZKE_OK;
    if (!d->busy) d->retry_ms = 0;
  }
  if (z->discards) zke_ensemble_step(z);
  if (z->discards) zke_ensemble_kick(z);
  while (z->discards) {
    for (const zk_discard *d = z->discards; d; d = d->next) {
      if (!d->busy && d->rc != ZKE_OK && d->rc != ZKE_CONNECTIONLOSS)
        return zke_fail(d->rc, "%s is still to be removed: %s", discard_name(d),
                        zke_error_text(d->rc));
    }
    if (z->closing) return handle_closing();
    if (zke_ensemble_now() >= until_ms)
      return zke_fail(ZKE_OPERATIONTIMEOUT, "%s is still to be removed",
                      discard_name(z->discards));
    zke_ensemble_rest(z, until_ms);
  }
  return handle_is_over(z) ? zke_ensemble_ended(z) : ZKE_OK;
}

/* ---- dispatching ----
 *
 * Watchers are called only here, without the mutex, by one thread at a time.
 * That thread may dispatch again in a callback: `depth` counts, and `frame`
 * chains its callbacks.  Begin at dispatch_all(). */

/* A callback has returned, or its thread ends in it: the frame goes.  A child
 * that was forked in it touches nothing. */
static void callback_over(zk_frame *f) {
  zk *z = f->z;
  pthread_mutex_lock(&z->mutex);
  z->frame = f->outer;
  zke_watcher_done(&z->watches, &f->target);
  pthread_cond_broadcast(&z->changed);
}

/* The thread has ended in a callback: it leaves all calls that it was in, one
 * by one, as these handlers run.  Waiting threads look for the calls that it
 * has not made. */
static void callback_ended_thread(void *arg) {
  zk_frame *f = arg;
  zk *z = f->z;
  if (handle_is_copy(z)) return;
  callback_over(f);
  z->depth--;
  zke_ensemble_turn(z);
  handle_leave(z);
}

/* Call one watcher without the mutex; false: this is a forked child now.  The
 * thread's limit does not apply in a callback, and is restored afterwards. */
static bool handle_run(zk *z, const zk_target *t, int state) {
  zk_frame f = {.outer = z->frame, .z = z, .target = *t};
  z->frame = &f;
  f.limited = handle_is_limited(z);
  f.limit = handle_limit.until;
  if (f.limited) handle_limit.z = NULL;
  handle_arm(z);
  pthread_mutex_unlock(&z->mutex);
  pthread_cleanup_push(callback_ended_thread, &f);
  t->fn((zke *)(void *)z, t->type, state, t->path, t->context);
  pthread_cleanup_pop(0);
  if (handle_is_copy(z)) return false;
  if (f.limited) {
    handle_limit.z = z;
    handle_limit.serial = z->serial;
    handle_limit.until = f.limit;
  }
  callback_over(&f);
  return true;
}

/* The calls of one dispatch. */
typedef struct dispatching {
  zk *z;
  int count;
  bool copied; /* in a forked child */
} dispatching;

/* Call a watcher.  While only the connection is gone, it is told that the
 * session lives: nothing has been lost yet, and recipes take any other state
 * for the end. */
static bool dispatch_call(dispatching *d, const zk_target *t) {
  int state = d->z->state;
  if (state == ZKE_STATE_CONNECTING && t->type != ZKE_EVENT_SESSION)
    state = ZKE_STATE_CONNECTED; /* the session lives */
  d->count++;
  d->copied = !handle_run(d->z, t, state);
  return !d->copied;
}

/* The default watcher, if there is one. */
static bool dispatch_default(dispatching *d, int type, int state) {
  zk_target t = {.fn = d->z->watcher,
                 .context = d->z->watcher_context,
                 .type = type,
                 .path = ""};
  if (!t.fn) return true;
  d->count++;
  d->copied = !handle_run(d->z, &t, state);
  return !d->copied;
}

/* Tell every pair that events were dropped, or that the session has ended. */
static bool dispatch_told(dispatching *d, int type) {
  zk *z = d->z;
  zk_target t;
  while (z->watches.round_type == type &&
         zke_watcher_next_told(&z->watches, &t)) {
    if (!dispatch_call(d, &t)) return false;
  }
  if (type == ZKE_EVENT_OVERFLOW && z->overflow_due) {
    z->overflow_due = false;
    return dispatch_default(d, type, ZKE_STATE_CONNECTED);
  }
  if (type == ZKE_EVENT_SESSION && z->end_due) {
    z->end_due = false;
    return dispatch_default(d, type, z->state);
  }
  return true;
}

/* The default watcher is told of the beginning and the end of each time without
 * a connection. */
static bool dispatch_losses(dispatching *d) {
  zk *z = d->z;
  while (z->losses_told != z->losses) {
    if (z->loss_open) { /* the connection was back before the next loss */
      z->loss_open = false;
      if (!dispatch_default(d, ZKE_EVENT_SESSION, ZKE_STATE_CONNECTED))
        return false;
    }
    z->losses_told++;
    if (!dispatch_default(d, ZKE_EVENT_SESSION, ZKE_STATE_CONNECTING))
      return false;
    bool back = z->losses_told != z->losses || zke_link_is_up(z->link);
    if (!back) {
      z->loss_open = true;
      return true;
    }
    if (!dispatch_default(d, ZKE_EVENT_SESSION, ZKE_STATE_CONNECTED))
      return false;
  }
  return true;
}

/* A loss was told, and the connection is back. */
static bool dispatch_back(dispatching *d) {
  zk *z = d->z;
  if (!z->loss_open || !zke_link_is_up(z->link)) return true;
  z->loss_open = false;
  return dispatch_default(d, ZKE_EVENT_SESSION, ZKE_STATE_CONNECTED);
}

/* Events up to a zxid, at most as many as there were at the beginning: later
 * ones are for the next call, so a dispatch ends. */
static bool dispatch_events(dispatching *d, int64_t zxid) {
  zk *z = d->z;
  zk_target t;
  int most = z->watches.pending; /* later ones are for the next call */
  while (most-- > 0 && zke_watcher_next(&z->watches, zxid, &t)) {
    if (!dispatch_call(d, &t)) return false;
  }
  return true;
}

/* Times that have come before the loop begins: if a watcher asks for the
 * present time again, it is called once. */
static bool dispatch_alarms(dispatching *d) {
  zk *z = d->z;
  zk_target t;
  int64_t now = zke_ensemble_now();
  while (!handle_is_over(z) && zke_watcher_next_alarm(&z->watches, now, &t)) {
    if (!dispatch_call(d, &t)) return false;
  }
  return true;
}

/* The order of telling: the connection, an overflow, events, times, and the
 * session's end last. */
static void dispatch_all(dispatching *d, int64_t zxid) {
  if (!dispatch_back(d)) return;
  if (!dispatch_losses(d)) return;
  if (!dispatch_told(d, ZKE_EVENT_OVERFLOW)) return;
  if (!dispatch_events(d, zxid)) return;
  if (!dispatch_alarms(d)) return;
  dispatch_told(d, ZKE_EVENT_SESSION);
}

/* Is the session over, and have all been told? */
static bool handle_is_told(const zk *z) {
  return handle_is_over(z) && !handle_has_work(z);
}

/* Wakes all waiting threads: the sleepers, and the reader. */
void zke_ensemble_turn(zk *z) {
  z->turn++;
  pthread_cond_broadcast(&z->changed);
  zke_ensemble_kick(z);
}

/* Does another thread dispatch? */
static bool handle_is_dispatched(const zk *z) {
  return z->depth && !pthread_equal(z->dispatcher, pthread_self());
}

/* One thread at a time calls watchers; another one that comes in the meantime
 * calls none, and returns.  While a handle is being closed, no watcher is
 * called.  The dispatch that tells the session's end succeeds, and later ones
 * fail, as on a file: so a program that only dispatches and sleeps comes to an
 * end. */
int zke_ensemble_dispatch(zk *z, int64_t zxid, int *count_out, int *more_out) {
  dispatching d = {.z = z};
  zke_ensemble_step(z);
  if (handle_is_told(z) && !z->closing) return zke_ensemble_ended(z);
  if (z->closing) {
    if (more_out) *more_out = 0; /* no watcher is told of a close */
  } else if (!handle_is_dispatched(z)) {
    z->dispatcher = pthread_self();
    z->depth++;
    dispatch_all(&d, zxid);
    if (d.copied) {
      zke_ensemble_cancel_back();
      return forked();
    }
    z->depth--;
    if (d.count) zke_ensemble_turn(z);
    if (more_out) *more_out = z->watches.pending > 0;
  } else if (more_out) {
    *more_out = 1;
  }
  if (count_out) *count_out = d.count;
  return ZKE_OK;
}

/* Does the pair's watcher run on another thread? */
static bool handle_runs(const zk *z, zke_watch_fn fn, const void *context) {
  if (!handle_is_dispatched(z)) return false;
  for (const zk_frame *f = z->frame; f; f = f->outer) {
    if (f->target.fn == fn && f->target.context == context) return true;
  }
  return false;
}

/* Waits for a call on another thread.  That call may set another watch, which
 * is forgotten, too.  A watcher that forgets itself does not wait for itself.
 */
void zke_ensemble_forget(zk *z, zke_watch_fn fn, void *context) {
  zke_watcher_forget(&z->watches, fn, context);
  while (handle_runs(z, fn, context)) {
    zke_ensemble_rest(z, zke_ensemble_now() + HANDLE_LEAVING);
    zke_watcher_forget(&z->watches, fn, context);
  }
}

/* ---- waiting ----
 *
 * zke_wait(): dispatch, sleep, and again, until the turn changes.  The turn
 * counts dispatches that have made calls, and zke_wake(). */

/* Is the wait over?  *rc: the result. */
static bool wait_is_over(const zk *z, int64_t turn, int64_t until_ms, int *rc) {
  *rc = ZKE_OK;
  if (z->turn != turn) return true;
  if (z->closing) {
    *rc = handle_closing();
    return true;
  }
  if (handle_is_told(z)) {
    *rc = zke_ensemble_ended(z);
    return true;
  }
  if (zke_ensemble_now() < until_ms) return false;
  *rc = zke_fail(ZKE_OPERATIONTIMEOUT, "nothing has come until the deadline");
  return true;
}

/* Until when a waiting thread sleeps: a time of zke_call_at() ends the sleep
 * only if this thread may call it. */
static int64_t wait_until(const zk *z, int64_t until_ms) {
  int64_t alarm = zke_watcher_next_due(&z->watches);
  return alarm < until_ms && !handle_is_dispatched(z) ? alarm : until_ms;
}

/* Dispatch, and sleep until there is something to dispatch. */
int zke_ensemble_wait(zk *z, int64_t turn, int64_t until_ms) {
  int rc;
  if (z->turn != turn) return ZKE_OK;
  for (;;) {
    rc = zke_ensemble_dispatch(z, INT64_MAX, NULL, NULL);
    if (rc == ZKE_FORKED) return rc; /* the handle belongs to the parent */
    if (wait_is_over(z, turn, until_ms, &rc)) return rc;
    handle_rest(z, wait_until(z, until_ms), true);
  }
}

/* ---- the helper thread ----
 *
 * It sleeps as other threads do, and does what is due: pings, and the search
 * for a server.  It takes no signal, runs no callback, and cannot be cancelled,
 * since no other thread knows its id.  A forked child does not have it, and
 * needs none. */

/* One sleep of the helper: until a ping is due, or, without a connection, like
 * any thread that waits for one. */
static void helper_rest(zk *z) {
  int64_t due = handle_due(z);
  if (!zke_link_is_up(z->link)) {
    handle_rest(z, ZKE_FOREVER, false);
    return;
  }
  handle_arm(z);
  sleeper_wait(z, due, false);
  if (!z->closing && zke_ensemble_now() >= due) zke_ensemble_step(z);
}

/* Runs until the handle is closed, or its session is over.  A close waits for
 * the counted calls; the helper is not counted, but joined after them. */
static void *helper_run(void *arg) {
  zk *z = arg;
  pthread_mutex_lock(&z->mutex);
  while (!z->closing && !handle_is_over(z)) helper_rest(z);
  if (!z->closing) handle_arm(z);
  pthread_mutex_unlock(&z->mutex);
  return NULL;
}

/* It inherits a mask that blocks all signals, so the program's signals never
 * reach it. */
int zke_ensemble_help(zk *z) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&z->helper, NULL, helper_run, z);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  z->has_helper = error == 0;
  if (!error) return ZKE_OK;
  return zke_fail(ZKE_SYSTEMERROR, "no thread for the session: %s",
                  strerror(error));
}

/* ---- opening and closing ----
 *
 * Only the opening thread makes a handle; others know it only when it is
 * complete.  Its end is zke_ensemble_close(). */

/* Add a descriptor to the poller; passes -1 on. */
static int polled(zk *z, int fd) {
  struct epoll_event e = {.events = EPOLLIN};
  if (fd < 0 || z->poller < 0) return fd;
  if (epoll_ctl(z->poller, EPOLL_CTL_ADD, fd, &e) == 0) return fd;
  close(fd);
  return -1;
}

/* zke_fd() returns the poller, an epoll descriptor over the socket, the timer
 * and the eventfd.  The kick wakes only the reader. */
static bool handle_open_fds(zk *z) {
  z->poller = epoll_create1(EPOLL_CLOEXEC);
  z->timer =
      polled(z, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  z->ready = polled(z, eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  z->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return z->poller >= 0 && z->timer >= 0 && z->ready >= 0 && z->kick >= 0;
}

/* Close the open ones; -1 is none. */
static void handle_close_fds(zk *z) {
  int fds[] = {z->poller, z->timer, z->ready, z->kick};
  for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
    if (fds[i] >= 0) close(fds[i]);
  }
}

/* The number of handles that this process has made. */
static uint64_t handle_count;

/* Nothing is connected yet, and only this thread knows the handle. */
zk *zke_ensemble_new(void) {
  pthread_condattr_t monotonic;
  zk *z = calloc(1, sizeof *z);
  if (!z) return NULL;
  z->pid = getpid();
  z->serial = __atomic_add_fetch(&handle_count, 1, __ATOMIC_RELAXED);
  z->armed_ms = -1;
  z->state = ZKE_STATE_CONNECTING;
  if (!handle_open_fds(z)) {
    int error = errno;
    handle_close_fds(z);
    free(z);
    errno = error;
    return NULL;
  }
  pthread_mutex_init(&z->mutex, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&z->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  return z;
}

/* The search for a server begins with the first step. */
int zke_ensemble_connect(zk *z, int64_t timeout_ms, int64_t session,
                         const unsigned char *password) {
  zk_link_config c = {.name = &z->name,
                      .timeout_ms = timeout_ms,
                      .poller = z->poller,
                      .session = session,
                      .owner = z,
                      .event = handle_event,
                      .connected = handle_connected,
                      .lost = handle_lost,
                      .ended = handle_ended};
  if (password) memcpy(c.password, password, sizeof c.password);
  z->link = zke_link_new(&c);
  return z->link ? ZKE_OK : zke_fail(ZKE_NOMEM, "out of memory");
}

/* Release everything; the link's end has ended the requests. */
void zke_ensemble_free(zk *z) {
  zke_link_free(z->link);
  zke_watchers_free(&z->watches);
  discards_free(z);
  while (z->auths) {
    zk_auth *a = z->auths;
    z->auths = a->next;
    auth_free(a);
  }
  handle_close_fds(z);
  pthread_cond_destroy(&z->changed);
  pthread_mutex_destroy(&z->mutex);
  zke_ensemble_name_free(&z->name);
  free(z->text);
  free(z->chroot);
  free(z->identity);
  free(z);
}

/* Tell the server, which then removes the session's ephemerals.  It answers all
 * earlier requests first; requests without an answer in time are over. */
static void close_session(zk *z) {
  zk_request r = {.type = ZKE_JUTE_CLOSE};
  int64_t until = zke_ensemble_now() + HANDLE_CLOSE;
  if (!zke_link_is_up(z->link)) return;
  zke_link_submit(z->link, &r, zke_ensemble_now());
  zke_ensemble_kick(z);
  while (!r.over && zke_ensemble_now() < until) zke_ensemble_rest(z, until);
  zke_link_end(z->link, ZKE_CLOSING);
  zke_link_request_clear(&r);
}

/* End the session first, while its connection exists; then the calls of other
 * threads end by themselves, woken repeatedly until the last has left; then the
 * helper.  This thread's cancellation is held off until all is released. */
int zke_ensemble_close(zk *z, bool keep) {
  if (handle_is_copy(z)) return forked();
  zke_ensemble_cancel_off();
  pthread_mutex_lock(&z->mutex);
  if (z->closing) {
    pthread_mutex_unlock(&z->mutex);
    zke_ensemble_cancel_back();
    return handle_closing();
  }
  if (z->depth && pthread_equal(z->dispatcher, pthread_self())) {
    pthread_mutex_unlock(&z->mutex);
    zke_ensemble_cancel_back();
    return zke_fail(ZKE_MISUSE, "closed in a callback of this handle");
  }
  z->closing = true;
  if (!keep) close_session(z);
  zke_link_end(z->link, ZKE_CLOSING);
  while (__atomic_load_n(&z->inside, __ATOMIC_SEQ_CST)) {
    pthread_cond_broadcast(&z->changed);
    zke_ensemble_kick(z);
    sleeper_wait(z, zke_ensemble_now() + HANDLE_LEAVING, false);
  }
  pthread_cond_broadcast(&z->changed);
  zke_ensemble_kick(z);
  pthread_mutex_unlock(&z->mutex);
  if (z->has_helper) pthread_join(z->helper, NULL);
  zke_ensemble_free(z);
  zke_ensemble_cancel_back();
  return ZKE_OK;
}
