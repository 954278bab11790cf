/* coprocess.c - requests from a program: JSON, one a line (doc/coprocess.md)
 *
 * The main thread reads lines and puts requests into one of two queues, each
 * with its own workers.  Requests with a command that never waits for another
 * party share a few workers, so that a thousand of them do not need a thousand
 * threads or all want to write together.  Requests that may wait keep their
 * worker while they wait; their queue gets as many workers as it needs, up to a
 * limit.  So a waiting request never delays one that does not wait.  A request
 * that has not begun costs only memory: its time-outs start with its turn.
 *
 * Another thread, the keeper, sleeps in zkembed, so that the loss of a lock is
 * reported even if no request is waiting.
 *
 * A thread writes a line as a whole under the output's mutex.  A slow reader
 * makes the threads wait; a reader that has gone ends the program.
 *
 * The program ends at the end of input, with its parent, by a signal, or when
 * the output has no reader.  Then running requests are cancelled, and answer as
 * they end.  At the end of input this cancels only requests that may wait,
 * including those in line: they begin, and do everything except wait.  In the
 * other cases requests in line do not begin.
 *
 * A REQUEST'S LIFE, and the functions that advance it:
 *
 *     a line     line_take(), object_take(), request_new()
 *       |          no request, or its id is in use ------------> REQUEST
 *       |        request_start()
 *       |          its line is full and stands still ----------> LIMIT
 *       |          no thread can be created -------------------> SYSTEM
 *     IN LINE    pool_add(): in a pool, and in co.all
 *       |          request_cancel() ---------------------------> CANCELLED
 *       |        worker_run() takes it
 *       |          the end has come, not that of input --------> INTERRUPTED
 *       |                                                        or CANCELLED
 *     RUNS       request_do(), under its actor
 *       |          it writes events; a cancel makes it end
 *       |        request_run() takes it out of co.all
 *     ANSWERED   request_answer() --------------------------------> its result
 *
 * WHAT HOLDS AT ANY TIME
 *
 * - Each request is answered once.  If there is no memory for the answer, the
 *   whole output ends (out_line()), since its client would wait for ever.
 * - An id is in co.all from IN LINE until right before the answer is written.
 * - No thread writes while it holds co.m: a reader that is slow would keep the
 *   requests from being read and cancelled.
 * - A request belongs to the reader up to IN LINE, then to the worker that
 *   takes it.  Other threads only compare its id and cancel its call.  They
 *   find it in co.all, under co.m, and it leaves co.all before it is freed.
 *
 * Start reading at coprocess_run(), then object_take() and worker_run().
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../recipes/support.h"
#include "shell.h"

enum {
  LINE_MOST = 64 << 20, /* bytes of a line of input */
  READ_MOST = 64 << 10, /* bytes of input per read() */
  QUEUE_MOST = 8 << 20, /* bytes of the requests that have not begun */
  WORKERS_SOON = 16,    /* workers that are made without a delay */
  WORKERS_MOST = 1000   /* requests that wait at the same time */
};
enum {
  LOOK_MS = 50,      /* without a request's turn: then more workers are made */
  STUCK_MS = 1000,   /* the same: a full line refuses further requests */
  PARENT_MS = 1000,  /* between looks, if the kernel does not tell */
  CLOSING_MS = 200,  /* between a client's closing one pipe and the other */
  FAREWELL_MS = 1000 /* how long a reader has for the last answers */
};

/* One request, from its line to its answer. */
typedef struct request {
  call c;                 /* its run, with what will be answered */
  json_t *object;         /* the line; owns id and the words' texts */
  words *w;               /* of "run" */
  uint64_t actor;         /* the actor of its worker, for the recipes */
  size_t bytes;           /* what it costs while it is in a line */
  bool may_wait;          /* for another party */
  struct request *next;   /* of all */
  struct request *queued; /* of those without a worker */
} request;

/* A queue of requests that no worker has taken, and its workers. */
typedef struct pool {
  request *first, **end; /* end: where to add the next one */
  pthread_cond_t work;   /* a request has come, or the program must end */
  size_t bytes;          /* of the requests in line */
  int queued;            /* requests in line */
  int idle;              /* workers waiting for one */
  int workers;           /* all of them, the idle ones included */
  int64_t turn_ms;       /* of the last turn, or the last new workers */
} pool;

static struct {
  shell *sh;
  call whole; /* stands for the program: what a signal cancels */
  int in, out;
  int parent_fd; /* readable when the parent has ended; -1: ask for its id */
  pid_t parent;
  int stop_fd; /* readable once it must end */

  pthread_mutex_t out_m; /* guards these two */
  bool out_broken;       /* nothing is written any more */
  int out_errno;         /* why; 0: the reader's time was up */

  pthread_mutex_t m;   /* guards what follows; taken before signals.c's */
  pthread_cond_t free; /* a worker has left */
  request *all;
  pool quick, waiting; /* requests that never wait for another party; others */
  uint64_t alone;      /* the last actor of a request without one */
  uint64_t own;        /* the actor that this process was drawn */
  bool ending;         /* workers leave when their line is empty */
  bool keeping;        /* the keeper runs, or has ended on its own */
  bool deaf;           /* it ended, with the session: workers report losses */
  pthread_t keeper;
} co = {.out_m = PTHREAD_MUTEX_INITIALIZER, .m = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------------
 * The end: what brings it
 *
 * There are four causes, as the file's head says.  This section has the two
 * from outside: the parent's end and signals.  Each only sets a flag or makes a
 * descriptor readable, which read_requests() checks.
 * --------------------------------------------------------------------- */

/* Records the parent, and gets a descriptor that reports its end.  False if the
 * parent has already ended.  A death signal (PR_SET_PDEATHSIG) would not do: it
 * comes when the thread that started us ends, not the process. */
static bool parent_watch(void) {
  co.parent = getppid();
  co.parent_fd = (int)syscall(SYS_pidfd_open, co.parent, 0u);
  if (co.parent_fd >= 0) fcntl(co.parent_fd, F_SETFD, FD_CLOEXEC);
  return getppid() == co.parent;
}

/* How long a poll() may sleep: for ever if parent_fd reports the end, else
 * until the next look at our parent's id. */
static int parent_timeout(void) { return co.parent_fd < 0 ? PARENT_MS : -1; }

/* Has the process that started us ended?  Its orphans get another parent. */
static bool parent_gone(void) { return getppid() != co.parent; }

/* Called on the signals' thread: should the signal be ignored?  ^C and ^\ go to
 * the whole foreground group, so the program that started us gets them too.  It
 * decides what they mean, and we end with it.  A person who types requests at a
 * terminal has no such program, so there they end us. */
static bool from_keyboard(void *person, const siginfo_t *info) {
  return !person && info->si_code == SI_KERNEL &&
         (info->si_signo == SIGINT || info->si_signo == SIGQUIT);
}

/* ------------------------------------------------------------------------
 * Writing
 *
 * Under out_m, one line at a time.  Any failure ends the output for good
 * (out_break()): a missing or cut answer would be worse than none.
 * --------------------------------------------------------------------- */

/* Waits until the output can be written; out_m is held.  False if the reader's
 * time is up.  Until the end comes the reader may take any time; then it has
 * FAREWELL_MS, and *until keeps that limit from one write to the next. */
static bool out_wait(int64_t *until) {
  for (;;) {
    int64_t left = *until ? *until - clock_ms() : 0;
    struct pollfd fds[] = {{co.out, POLLOUT, 0},
                           {*until ? -1 : co.stop_fd, POLLIN, 0},
                           {*until ? -1 : co.parent_fd, POLLIN, 0}};
    if (left < 0) return false;
    if (poll(fds, 3, *until ? (int)left : parent_timeout()) < 0 &&
        errno != EINTR)
      return false;
    if (fds[0].revents) return true;
    if (!*until && (fds[1].revents || fds[2].revents || parent_gone()))
      *until = clock_ms() + FAREWELL_MS;
  }
}

/* Stops all writing, and begins the end for this reason (an errno, or 0).
 * out_m is held.  The first reason stays. */
static void out_break(int reason) {
  if (!co.out_broken) co.out_errno = reason;
  co.out_broken = true;
  cancel_by_fd(&co.stop_fd);
}

/* Writes the whole text without mixing it with other threads' output.  Each
 * write() has at most PIPE_BUF bytes.  If poll() finds room in a pipe, there is
 * room for that many, so the write does not block and the end is noticed. */
static void out_write(const char *text, size_t len) {
  int64_t until = 0;
  pthread_mutex_lock(&co.out_m);
  while (len > 0 && !co.out_broken) {
    ssize_t n = -1;
    errno = 0;
    if (out_wait(&until))
      n = write(co.out, text, len < PIPE_BUF ? len : PIPE_BUF);
    if (n >= 0) {
      text += n;
      len -= (size_t)n;
    } else if (errno != EINTR && errno != EAGAIN) {
      out_break(errno);
    }
  }
  pthread_mutex_unlock(&co.out_m);
}

/* Gives up writing, from a thread that does not hold out_m. */
static void out_end(int reason) {
  pthread_mutex_lock(&co.out_m);
  out_break(reason);
  pthread_mutex_unlock(&co.out_m);
}

/* Writes an object as one line, and drops the reference to it.  NULL means that
 * memory ran out while it was made.  Then the output ends: without its answer a
 * client would wait for ever. */
static void out_line(json_t *object) {
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  size_t len = text ? strlen(text) : 0;
  if (text) {
    text[len] = '\n'; /* replaces the NUL */
    out_write(text, len + 1);
  } else {
    out_end(ENOMEM);
  }
  free(text);
  json_decref(object);
}

/* A message is always a string: bytes that are not UTF-8 become question
 * marks. */
static json_t *json_message(const char *sentence) {
  json_t *j = json_string(sentence);
  char *copy = j ? NULL : strdup(sentence);
  for (char *at = copy; at && *at; at++)
    if (*at & 0x80) *at = '?';
  if (copy) j = json_string(copy);
  free(copy);
  return j;
}

/* Answers a request.  id is NULL if none could be read, rows is NULL for none;
 * code and sentence are NULL on success. */
static void out_answer(json_t *id, int status, json_t *rows, const char *code,
                       const char *sentence) {
  json_t *answer = json_pack("{s:O?,s:i,s:o}", "id", id, "status", status,
                             "rows", rows ? json_incref(rows) : json_array());
  if (answer && code &&
      (json_object_set_new(answer, "error", json_string(code)) != 0 ||
       json_object_set_new(answer, "message", json_message(sentence)) != 0)) {
    json_decref(answer);
    answer = NULL;
  }
  out_line(answer);
}

/* shell.event for a coprocess: writes a row before the request's answer.  Takes
 * the reference. */
static int co_event(call *c, json_t *row) {
  json_t *event =
      json_pack("{s:o,s:o}", "id", json_deep_copy(c->id), "event", row);
  if (!event) return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  out_line(event);
  return 0;
}

/* ------------------------------------------------------------------------
 * A line into a request
 *
 * A line is one JSON object.  It is checked completely before anything begins:
 * an unknown member, a word of a wrong type or an unfit id refuses it, and its
 * client is told why.
 * --------------------------------------------------------------------- */

/* Answers a line that is not a request, with its number in the sentence.  id is
 * NULL if none could be read; the caller keeps it. */
__attribute__((format(printf, 3, 4))) static void refuse(json_t *id, long line,
                                                         const char *format,
                                                         ...) {
  char what[512], sentence[640];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  snprintf(sentence, sizeof sentence, "line %ld: %s", line, what);
  out_answer(id, STATUS_DATA, NULL, "REQUEST", sentence);
}

/* Frees a request and the memory of its call; NULL is fine.  It is in no
 * list. */
static void request_free(request *r) {
  if (!r) return;
  run_call_free(&r->c);
  json_decref(r->c.rows);
  json_decref(r->object);
  free(r->w);
  free(r);
}

/* A number as a word: an integer unchanged, another number with just enough
 * digits to tell it from its neighbours. */
static json_t *number_text(const json_t *number) {
  char text[64];
  double value = json_real_value(number);
  if (json_is_integer(number))
    return json_sprintf("%" JSON_INTEGER_FORMAT, json_integer_value(number));
  for (int digits = 15; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  return json_string(text);
}

/* The bytes of {"base64": "..."} or {"text": "..."}, as a JSON string with a
 * reference for the caller; NULL for any other object. */
static json_t *literal_bytes(const json_t *object) {
  const json_t *text = json_object_get(object, "base64");
  json_t *plain = json_object_get(object, "text");
  char *bytes;
  size_t len;
  if (json_object_size(object) == 1 && json_is_string(plain))
    return json_incref(plain);
  if (json_object_size(object) != 1 || !json_is_string(text) ||
      !base64_decode(json_string_value(text), json_string_length(text), &bytes,
                     &len))
    return NULL;
  json_t *j = json_stringn_nocheck(bytes, len);
  free(bytes);
  return j;
}

/* A word of "run" as a string, with a reference for the caller.  Any value but
 * a string, a number or bytes is returned unchanged, and the caller refuses
 * it. */
static json_t *word_text(json_t *given) {
  if (json_is_object(given)) return literal_bytes(given);
  if (json_is_number(given)) return number_text(given);
  return json_incref(given);
}

/* Makes the words of a request from "run".  The strings stay in the JSON
 * object, which the request owns, and the words point to them.  A word that
 * came as an object is data or a name: it is marked as literal, so that it is
 * not taken for an option if it begins with "-".  Returns NULL, or what is
 * wrong. */
static const char *request_words(request *r) {
  json_t *run = json_object_get(r->object, "run");
  size_t count = json_array_size(run);
  if (count == 0 || count > INT_MAX) return "\"run\" is a list of words";
  r->w = calloc(1, sizeof *r->w + count * sizeof(word));
  if (!r->w) return "out of memory";
  r->w->count = (int)count;
  r->w->data = (word *)(r->w + 1);
  for (size_t i = 0; i < count; i++) {
    json_t *given = json_array_get(run, i);
    bool literal = json_is_object(given);
    json_t *text = word_text(given);
    if (!json_is_string(text) || json_array_set(run, i, text) != 0) {
      json_decref(text);
      return "a word is a string, a number, {\"text\": \"...\"} or "
             "{\"base64\": \"...\"}";
    }
    json_decref(text);
    r->w->data[i] =
        (word){json_string_value(text), json_string_length(text), literal};
  }
  return NULL;
}

/* May the value be a request's id? */
static bool is_id(const json_t *j) {
  return json_is_string(j) || json_is_number(j) || json_is_boolean(j);
}

/* The actor that a JSON value names: in this process equal values give equal
 * numbers, by FNV-1a from its own start, and never 0, which means no actor.  A
 * name that two programs have chosen stands for two actors. */
static uint64_t actor_hash(const json_t *actor) {
  uint64_t hash = co.own ^ UINT64_C(0xcbf29ce484222325);
  char *text = json_dumps(actor, JSON_ENCODE_ANY);
  for (const char *at = text; at && *at; at++)
    hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
  free(text);
  return hash ? hash : 1;
}

/* Sets the actor for the request's locks.  Requests with the same "actor" are
 * one participant to the recipes, so they do not wait for each other; a request
 * without it is a separate actor.  Returns NULL, or what is wrong. */
static const char *request_actor(request *r) {
  const json_t *actor = json_object_get(r->object, "actor");
  if (actor && !json_is_string(actor) && !json_is_number(actor))
    return "\"actor\" is a string or a number";
  if (++co.alone == 0) co.alone = 1; /* 0 means no actor */
  r->actor = actor ? actor_hash(actor) : co.alone;
  return NULL;
}

/* Does the object have the members of a request, and no others?  A misspelt one
 * is refused rather than ignored.  Returns NULL, or what is wrong. */
static const char *request_members(const json_t *object) {
  static const char *const names[] = {"id", "run", "actor"};
  size_t known = 0;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    known += json_object_get(object, names[i]) != NULL;
  if (!is_id(json_object_get(object, "id")))
    return "\"id\" is a string, a number, true or false";
  if (json_object_get(object, "cancel"))
    return "\"cancel\" stands alone, with the id of a request";
  if (known < json_object_size(object))
    return "a request has \"id\", \"run\" and \"actor\", nothing else";
  return NULL;
}

/* Makes a request of an object.  On success the request owns the object.  On
 * failure this returns NULL, *wrong_out says why, and the caller still owns the
 * object; numbers in "run" may have become strings. */
static request *request_new(json_t *object, const char **wrong_out) {
  const char *wrong = request_members(object);
  request *r = wrong ? NULL : calloc(1, sizeof *r);
  if (!r) {
    *wrong_out = wrong ? wrong : "out of memory";
    return NULL;
  }
  r->object = object;
  r->c.sh = co.sh;
  r->c.id = json_object_get(object, "id");
  r->c.rows = json_array();
  wrong = request_words(r);
  if (!wrong) wrong = request_actor(r);
  if (!wrong) return r;
  r->object = NULL;
  request_free(r);
  *wrong_out = wrong;
  return NULL;
}

/* ------------------------------------------------------------------------
 * The keeper
 *
 * This thread waits in zkembed while the others work, so that locks learn of
 * their loss.  It exists from the first request that needs a session.
 * --------------------------------------------------------------------- */

/* Is the program ending?  The keeper asks after each wake-up. */
static bool keeper_ends(void) {
  pthread_mutex_lock(&co.m);
  bool ending = co.ending;
  pthread_mutex_unlock(&co.m);
  return ending;
}

/* Reports each lock that was lost since the last call to its client. */
static void keeper_tell(void) {
  json_t *event;
  while ((event = held_lost(co.sh)) != NULL) out_line(event);
}

/* The keeper's thread.  It dispatches, so that the session's locks get their
 * events while no request is in zkembed.  zke_wake() ends its sleep once
 * co.ending is set.  It takes the turn before it looks, so that a loss between
 * the look and the sleep ends the sleep immediately.  It survives temporary
 * failures.
 *
 * Once the session is over, the keeper can no longer sleep in zkembed.  It sets
 * co.deaf before its last look: if a request gets something too late for that
 * look, its worker sees the flag and looks. */
static void *keeper_run(void *z) {
  int rc;
  do {
    int64_t turn = zke_turn(z);
    keeper_tell();
    if (keeper_ends()) return NULL;
    rc = zke_wait_turn(z, turn, ZKE_FOREVER);
  } while (rc == ZKE_OK || wait_passes(rc));
  pthread_mutex_lock(&co.m);
  co.deaf = true;
  pthread_mutex_unlock(&co.m);
  keeper_tell();
  return NULL;
}

/* Starts the keeper, once there is a session.  co.m is held.  If no thread can
 * be created, the next request tries again. */
static void keeper_begin(zke *z) {
  if (co.keeping || co.ending) return;
  co.keeping = pthread_create(&co.keeper, NULL, keeper_run, z) == 0;
}

/* ------------------------------------------------------------------------
 * Workers
 *
 * A pool is a queue of requests and the threads that take from it; co.m guards
 * both pools and the list of all requests.  The first workers are made when a
 * request finds none idle, further ones when the queue stops moving; they leave
 * when many are idle.
 * --------------------------------------------------------------------- */

/* The unanswered request with this id; NULL: none.  co.m is held.
 */
static request *request_find(const json_t *id) {
  request *r = co.all;
  while (r && !json_equal(r->c.id, id)) r = r->next;
  return r;
}

/* Takes a request out of the list of all.  co.m is held. */
static void request_remove(request *r) {
  request **at = &co.all;
  while (*at != r) at = &(*at)->next;
  *at = r->next;
}

/* Puts a request at the end of a queue, and wakes a worker.  co.m is held here
 * and in all of a pool's functions. */
static void pool_add(pool *p, request *r) {
  if (!p->first) p->turn_ms = clock_ms();
  *p->end = r;
  p->end = &r->queued;
  p->bytes += r->bytes;
  p->queued++;
  pthread_cond_signal(&p->work);
}

/* Takes a request out of a queue.  False if it is not there: a worker has it.
 */
static bool pool_drop(pool *p, request *r) {
  request **at = &p->first;
  while (*at && *at != r) at = &(*at)->queued;
  if (!*at) return false;
  *at = r->queued;
  if (!*at) p->end = at;
  r->queued = NULL;
  p->bytes -= r->bytes;
  p->queued--;
  return true;
}

/* Answers and frees a request that is no longer in any list. */
static void request_answer(request *r, int status) {
  out_answer(json_object_get(r->object, "id"), status, r->c.rows,
             status ? r->c.code : NULL, r->c.sentence);
  request_free(r);
}

/* Has the program been ended by a signal, by the parent or by the reader?  Not
 * by the end of input: then requests in line still begin. */
static bool request_is_late(void) {
  struct pollfd stop = {co.stop_fd, POLLIN, 0};
  return poll(&stop, 1, 0) > 0 || parent_gone();
}

/* Fails a request that will never begin; returns its status. */
static int request_fail(request *r) {
  int signal = atomic_load(&co.whole.signal);
  if (signal)
    return fail_with(&r->c, STATUS_SIGNAL + signal, "INTERRUPTED",
                     "ended by signal %d (%s) before its turn", signal,
                     strsignal(signal));
  return fail_with(&r->c, STATUS_CONFLICT, "CANCELLED",
                   "cancelled before its turn");
}

/* Runs a request under its actor, and returns its status.  Then the thread's
 * former actor returns, since workers serve requests of several. */
static int request_do(request *r) {
  if (request_is_late()) return request_fail(r);
  uint64_t before = zke_line_act_as(r->actor);
  int status = run_words(&r->c, r->w);
  zke_line_act_as(before);
  return status;
}

/* Runs a request and answers it.  It leaves the list before the answer is
 * written, so that the client may reuse the id as soon as it has read the
 * answer. */
static void request_run(request *r) {
  int status = request_do(r);
  pthread_mutex_lock(&co.m);
  if (r->c.z && zke_session_id(r->c.z)) keeper_begin(r->c.z);
  bool deaf = co.deaf;
  request_remove(r);
  pthread_mutex_unlock(&co.m);
  request_answer(r, status);
  if (deaf) keeper_tell();
}

/* A worker's thread: takes requests from its queue until the end.  It also
 * leaves if more than WORKERS_SOON are idle, so that a burst of requests does
 * not keep its threads for good. */
static void *worker_run(void *pool_) {
  pool *p = pool_;
  pthread_mutex_lock(&co.m);
  for (;;) {
    p->idle++;
    while (!p->first && !co.ending && p->idle <= WORKERS_SOON)
      pthread_cond_wait(&p->work, &co.m);
    p->idle--;
    request *r = p->first;
    if (!r) break;
    pool_drop(p, r);
    p->turn_ms = clock_ms();
    pthread_mutex_unlock(&co.m);
    request_run(r);
    pthread_mutex_lock(&co.m);
  }
  p->workers--;
  pthread_cond_signal(&co.free);
  pthread_mutex_unlock(&co.m);
  return NULL;
}

/* Makes one more worker.  Returns 0, or an errno.  co.m is held. */
static int worker_begin(pool *p) {
  pthread_t thread;
  pthread_attr_t attr;
  pthread_attr_init(&attr);
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
  int reason = pthread_create(&thread, &attr, worker_run, p);
  pthread_attr_destroy(&attr);
  if (reason == 0) p->workers++;
  return reason;
}

/* Is the queue full, and has no request had its turn for STUCK_MS?  Then
 * further requests that may wait are refused, so that reading continues: a
 * later request may end the waiting. */
static bool pool_is_stuck(const pool *p) {
  return p->bytes >= QUEUE_MOST && clock_ms() - p->turn_ms >= STUCK_MS;
}

/* Makes more workers if requests are in line and none has had its turn for
 * LOOK_MS: then all workers are waiting.  Not while the reader takes no
 * answers.  Then they wait for the reader, and more workers would only hold
 * more answers. */
static void pool_grow(pool *p) {
  struct pollfd out = {co.out, POLLOUT, 0};
  if (!p->first || p->workers == WORKERS_MOST) return;
  if (clock_ms() - p->turn_ms < LOOK_MS || poll(&out, 1, 0) != 1) return;
  for (int i = 0; i < WORKERS_SOON && p->workers < WORKERS_MOST; i++) {
    if (worker_begin(p) != 0) break;
    p->turn_ms = clock_ms();
  }
}

/* ------------------------------------------------------------------------
 * Requests, as they are read
 *
 * The main thread decides for each request, by its words alone, which pool it
 * joins; runs a cancel itself, immediately; and refuses a request that cannot
 * be queued.
 * --------------------------------------------------------------------- */

/* Does the command have an option of this long name? */
static bool command_has(const command *m, const char *name) {
  const option *o = m->options;
  while (o && o->letter && (!o->name || strcmp(o->name, name) != 0)) o++;
  return o && o->letter;
}

/* May the request wait for another party: a process that holds or should bring
 * something, or the writer of a FIFO?  This decides from the words alone, and
 * says yes if in doubt: a waiting request among the quick ones would delay
 * them. */
static bool request_may_wait(const request *r) {
  int used;
  const command *m = command_asked(co.sh, r->w->data, r->w->count, &used);
  if (!m) return false;
  if (command_has(m, "wait") || command_has(m, "follow") ||
      command_has(m, "observe") || strcmp(m->name, "import") == 0)
    return true;
  if (!command_has(m, "input")) return false;
  for (int i = 1; i < r->w->count; i++) /* "--input FILE", "-ei FILE" */
    if (*r->w->data[i].text == '-' && strchr(r->w->data[i].text, 'i'))
      return true;
  return false;
}

/* Puts a request into a queue, and adds a worker if none is idle.  Returns 0,
 * or the request's status if the queue is full and stuck, or if the pool has no
 * worker and no thread can be created.  If workers exist, the request waits for
 * them.  A worker counts as idle until it has taken its request, so the number
 * of idle workers is compared with that of all queued requests.  Beyond
 * WORKERS_SOON pool_grow() decides.  co.m is held. */
static int request_queue(pool *p, request *r) {
  if (p == &co.waiting && pool_is_stuck(p))
    return fail_with(&r->c, STATUS_CONFLICT, "LIMIT",
                     "%d requests wait already, and %d more have not begun",
                     p->workers, p->queued);
  int reason = 0;
  if (p->queued >= p->idle && p->workers < WORKERS_SOON)
    reason = worker_begin(p);
  if (p->workers == 0)
    return fail_with(&r->c, STATUS_SYSTEM, "SYSTEM",
                     "no thread for the request: %s", strerror(reason));
  r->next = co.all;
  co.all = r;
  pool_add(p, r);
  return 0;
}

/* Puts a request into the right queue, or answers why it cannot. */
static void request_start(request *r) {
  r->may_wait = request_may_wait(r);
  pool *p = r->may_wait ? &co.waiting : &co.quick;
  pthread_mutex_lock(&co.m);
  int status = request_queue(p, r);
  pthread_mutex_unlock(&co.m);
  if (status) request_answer(r, status);
}

/* Cancels the request with this id, if there is one.  A queued request is
 * answered immediately and never begins; a running one is told, and answers
 * itself. */
static void request_cancel(const json_t *id) {
  pthread_mutex_lock(&co.m);
  request *r = request_find(id);
  bool queued = r && (pool_drop(&co.waiting, r) || pool_drop(&co.quick, r));
  if (queued)
    request_remove(r);
  else if (r)
    signals_cancel(&r->c, 0);
  pthread_mutex_unlock(&co.m);
  if (queued) request_answer(r, request_fail(r));
}

/* Is there an unanswered request with this id? */
static bool request_runs(const json_t *id) {
  pthread_mutex_lock(&co.m);
  bool runs = request_find(id) != NULL;
  pthread_mutex_unlock(&co.m);
  return runs;
}

/* Is the line a cancel?  It has one member only, so that a request that merely
 * contains the word still runs. */
static bool is_cancel(const json_t *object) {
  return json_object_size(object) == 1 &&
         is_id(json_object_get(object, "cancel"));
}

/* Does what a line's object asks for: starts a request, cancels one, or answers
 * what is wrong.  Takes the reference.  Once a worker has the request, no other
 * thread may look at the object, since jansson's reference counts are not
 * synchronised.  So the id is compared and refused before. */
static void object_take(json_t *object, size_t len, long line) {
  json_t *id = json_object_get(object, "id");
  const char *wrong = NULL;
  request *r = NULL;
  if (is_cancel(object))
    request_cancel(json_object_get(object, "cancel"));
  else if (is_id(id) && request_runs(id))
    refuse(NULL, line, "a request with this id is running");
  else if ((r = request_new(object, &wrong)) == NULL)
    refuse(is_id(id) ? id : NULL, line, "%s", wrong);
  if (r) {
    r->bytes = sizeof *r + len;
    request_start(r);
  } else {
    json_decref(object);
  }
}

/* Does what a line of input asks for, or answers what is wrong with it. */
static void line_take(const char *text, size_t len, long line) {
  json_error_t error;
  json_t *object =
      json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (json_is_object(object)) {
    object_take(object, len, line);
    return;
  }
  if (object)
    refuse(NULL, line, "a request is a JSON object");
  else
    refuse(NULL, line, "not JSON: %s (column %d)", error.text, error.column);
  json_decref(object);
}

/* ------------------------------------------------------------------------
 * Reading
 *
 * Input is read as it comes and cut into lines.  While a queue is full and
 * still moves, nothing is read: the pipe slows down a client that sends faster
 * than its requests are done.
 * --------------------------------------------------------------------- */

/* Input that is not a whole line yet. */
typedef struct input {
  char *data;
  size_t len, room;
  long line;     /* the number of the line at data */
  bool skipping; /* it is too long, and has been refused */
} input;

/* Takes the whole lines, and moves the rest to the front.  No line ends before
 * the byte `fresh`, since the input up to there was searched before: so a long
 * line in many pieces is searched once. */
static void input_lines(input *in, size_t fresh) {
  size_t begin = 0;
  for (char *end; fresh < in->len; fresh = begin) {
    end = memchr(in->data + fresh, '\n', in->len - fresh);
    if (!end) break;
    if (!in->skipping)
      line_take(in->data + begin, (size_t)(end - in->data) - begin, in->line);
    in->skipping = false;
    in->line++;
    begin = (size_t)(end - in->data) + 1;
  }
  in->len -= begin;
  if (begin) memmove(in->data, in->data + begin, in->len);
}

/* Makes room for more input; false without memory.  A line longer than
 * LINE_MOST is refused once, and then skipped up to its end. */
static bool input_room(input *in) {
  if (in->len < in->room) return true;
  if (in->len >= LINE_MOST || in->skipping) {
    if (!in->skipping)
      refuse(NULL, in->line, "longer than %d bytes", LINE_MOST);
    in->skipping = true;
    in->len = 0;
    return true;
  }
  size_t room = in->room ? in->room * 2 : READ_MOST;
  char *larger = realloc(in->data, room);
  if (!larger) return false;
  in->data = larger;
  in->room = room;
  return true;
}

/* Reads once, and takes the lines that this completes.  False at the end of
 * input, after an error, and without memory; the latter two are noted for
 * co_status(). */
static bool input_read(input *in) {
  if (!input_room(in)) {
    fail_with(&co.whole, STATUS_SYSTEM, "NOMEM", "out of memory");
    return false;
  }
  size_t most = in->room - in->len;
  ssize_t n =
      read(co.in, in->data + in->len, most < READ_MOST ? most : READ_MOST);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (n < 0) fail_errno(&co.whole, STATUS_IO, "standard input");
  /* Bytes after the last newline are a line, too. */
  if (n == 0 && in->len > 0 && !in->skipping)
    line_take(in->data, in->len, in->line);
  if (n <= 0) return false;
  in->len += (size_t)n;
  input_lines(in, in->len - (size_t)n);
  return true;
}

/* Makes the missing workers.  Returns how long the reader may sleep, and sets
 * *reads_out to whether it should read.  While a queue is full and still moves,
 * further requests stay in the pipe, which slows the client down.  The queue of
 * requests that never wait always moves if the client takes its answers. */
static int pools_look(bool *reads_out) {
  pthread_mutex_lock(&co.m);
  pool_grow(&co.waiting);
  *reads_out = co.quick.bytes < QUEUE_MOST &&
               (co.waiting.bytes < QUEUE_MOST || pool_is_stuck(&co.waiting));
  bool grows = co.waiting.first && co.waiting.workers < WORKERS_MOST;
  pthread_mutex_unlock(&co.m);
  return grows || !*reads_out ? LOOK_MS : parent_timeout();
}

/* Reads until the end of input, or until a signal, the parent or the output's
 * reader ends the program.  The output is polled only for errors, so that a
 * reader that has gone is noticed even if there is nothing to write. */
static void read_requests(void) {
  input in = {.line = 1};
  for (;;) {
    bool reads;
    int ms = pools_look(&reads);
    struct pollfd fds[] = {{reads ? co.in : -1, POLLIN, 0},
                           {co.out, 0, 0},
                           {co.stop_fd, POLLIN, 0},
                           {co.parent_fd, POLLIN, 0}};
    if (poll(fds, 4, ms) < 0 && errno != EINTR) break;
    if (fds[2].revents || fds[3].revents || parent_gone()) break;
    if (fds[0].revents && !input_read(&in)) break;
    if (!fds[1].revents) continue;
    out_end(EPIPE);
    break;
  }
  free(in.data);
}

/* ------------------------------------------------------------------------
 * Beginning and end
 *
 * Sets up and releases what belongs to the process: descriptors, signals,
 * threads.  co_end() has the order of the end: requests first, then the keeper;
 * main() ends the session.
 * --------------------------------------------------------------------- */

/* Sets the program up; 0, or its exit code after reporting the failure.
 * Requests and answers get new descriptors, and 0 and 1 become /dev/null, so
 * that a command cannot print anything between the answers. */
static int co_begin(shell *sh) {
  call *whole = &co.whole;
  *whole = (call){.sh = sh, .format = sh->format};
  co.sh = sh;
  co.quick.end = &co.quick.first;
  co.waiting.end = &co.waiting.first;
  co.alone = co.own = zke_line_actor();
  pthread_cond_init(&co.quick.work, NULL);
  pthread_cond_init(&co.waiting.work, NULL);
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&co.free, &monotonic);
  pthread_condattr_destroy(&monotonic);
  co.in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  co.out = co.in < 0 ? -1 : fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  co.stop_fd = co.out < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  int nothing = co.stop_fd < 0 ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 ||
      dup2(nothing, STDOUT_FILENO) < 0)
    return fail_errno(whole, STATUS_IO, "standard input and output");
  close(nothing);
  return 0;
}

/* Cancels the requests that may wait, or all of them.  co.m is held. */
static void cancel_requests(bool all, int signal) {
  for (request *r = co.all; r; r = r->next)
    if (all || r->may_wait) signals_cancel(&r->c, signal);
}

/* Sleeps until a worker has left, but at most LOOK_MS.  co.m is held. */
static void co_sleep(void) {
  struct timespec until = clock_after(LOOK_MS);
  pthread_cond_timedwait(&co.free, &co.m, &until);
}

/* Cancels requests, waits until the last worker has left, then ends the keeper.
 * signal: the one that ended the program, or 0.  After the end of input,
 * requests that never wait are still done, unless another end comes meanwhile.
 * The keeper ends last, so that a lock lost meanwhile is still reported.
 *
 * Nothing reads requests any more, so no worker and no request is added to
 * those counted here; and once co.ending is set, no keeper begins. */
static void co_end(int signal) {
  pthread_mutex_lock(&co.m);
  bool late = request_is_late();
  cancel_requests(late, signal);
  co.ending = true;
  pthread_cond_broadcast(&co.quick.work);
  pthread_cond_broadcast(&co.waiting.work);
  while (co.quick.workers + co.waiting.workers > 0) {
    co_sleep();
    if (late || !request_is_late()) continue;
    late = true;
    cancel_requests(true, atomic_load(&co.whole.signal));
  }
  bool keeping = co.keeping;
  pthread_mutex_unlock(&co.m);
  if (keeping) {
    zke_wake(co.sh->z);
    pthread_join(co.keeper, NULL);
  }
}

/* Is the client closing both pipes, in either order?  Then it is no error that
 * the output was closed first. */
static bool input_ends(void) {
  struct pollfd fd = {co.in, POLLRDHUP, 0};
  return poll(&fd, 1, CLOSING_MS) > 0 || parent_gone();
}

/* The program's exit code; prints its sentence on standard error.  A broken
 * output is an error only while the client still sends. */
static int co_status(int signal) {
  if (signal) {
    co.sh->died_by = signal;
    return STATUS_SIGNAL + signal;
  }
  errno = co.out_errno;
  if (errno == EPIPE && input_ends()) errno = 0;
  if (errno) fail_errno(&co.whole, STATUS_IO, "standard output");
  if (co.whole.status) output_error(&co.whole);
  return co.whole.status;
}

/* Sets up, reads until the end comes, ends all requests and the keeper, and
 * returns the program's exit code. */
int coprocess_run(shell *sh) {
  int status = co_begin(sh);
  if (status) return co_status(0);
  bool person = isatty(co.in);
  sh->coprocess = sh->persists = true;
  sh->event = co_event;
  signals_hook(from_keyboard, person ? sh : NULL);
  signals_enter(&co.whole);
  cancel_by(&co.whole, cancel_by_fd, &co.stop_fd);
  if (parent_watch()) read_requests();
  co_end(atomic_load(&co.whole.signal));
  cancel_by(&co.whole, NULL, NULL);
  signals_leave(&co.whole);
  signals_hook(NULL, NULL);
  return co_status(atomic_load(&co.whole.signal));
}
