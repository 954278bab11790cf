/* coprocess.c - requests from a program: JSON, one a line (doc/coprocess.md)
 *
 * The main thread reads lines and puts requests into one of two lines, each
 * with workers of its own.  Requests whose command never waits for another
 * party share a few workers, so that a thousand of them cost no thousand
 * threads and do not all want to write at once.  Requests that may wait keep
 * their worker while they do; there are as many as that takes, up to a limit.
 * So what waits never keeps what does not from its turn, and a request that
 * has not begun costs memory only: its time-outs begin with its turn.
 *
 * One more thread, the keeper, sleeps in zkembed, so that a lock's loss is told
 * also while no request waits.
 *
 * Lines are written whole under a mutex of their own, by whoever has one.  A
 * reader that is slow makes them wait; one that has gone ends the program.
 *
 * It all ends at the end of input, with the parent, by a signal, or when
 * nobody reads any more: then what runs is cancelled, and answers as it ends.
 * At the end of input only requests that may wait are cancelled, those in line
 * included: they begin, and do all but wait.  In the other cases requests in
 * line do not begin.
 *
 * A REQUEST'S LIFE, and the functions that lead on:
 *
 *     a line     line_take(), object_take(), request_new()
 *       |          no request, or its id is in use ------------> REQUEST
 *       |        request_start()
 *       |          its line is full and stands still ----------> LIMIT
 *       |          no thread is to be had ---------------------> SYSTEM
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
 * - Each request is answered once; where there is no memory to do so the whole
 *   output ends (out_line()), since its client would wait for ever.
 * - An id is in co.all from IN LINE until right before the answer is written.
 * - No thread writes while it holds co.m: a reader that is slow would keep the
 *   requests from being read and cancelled.
 * - A request is the reader's up to IN LINE, then that of the worker that takes
 *   it.  Others only compare its id and cancel its call.  They find it in
 *   co.all, under co.m, and it leaves co.all before it is freed.
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
  READ_MOST = 64 << 10, /* bytes of input that are read at once */
  QUEUE_MOST = 8 << 20, /* bytes of the requests that have not begun */
  WORKERS_SOON = 16,    /* so many are made without asking */
  WORKERS_MOST = 1000   /* requests that wait at once */
};
enum {
  LOOK_MS = 50,      /* without a request's turn: then more workers are made */
  STUCK_MS = 1000,   /* the same: a full line refuses further requests */
  PARENT_MS = 1000,  /* between looks, where the kernel does not tell */
  CLOSING_MS = 200,  /* between a client's closing one pipe and the other */
  FAREWELL_MS = 1000 /* what a reader has for the last answers */
};

/* One request, from its line to its answer. */
typedef struct request {
  call c;                 /* its run; what is to be answered is left here */
  json_t *object;         /* the line; owns id and the words' texts */
  words *w;               /* of "run" */
  uint64_t actor;         /* whom the recipes take its worker for */
  size_t bytes;           /* what it costs while it is in a line */
  bool may_wait;          /* for another party */
  struct request *next;   /* of all */
  struct request *queued; /* of those that no worker has taken */
} request;

/* A line of requests that no worker has taken, and its workers. */
typedef struct pool {
  request *first, **end; /* end: where the next one is hung in */
  pthread_cond_t work;   /* a request has come, or the program is to end */
  size_t bytes;          /* of those in line */
  int queued;            /* requests in line */
  int idle;              /* workers that wait for one */
  int workers;           /* all of them, the idle ones included */
  int64_t turn_ms;       /* when a request's turn came last, or more workers */
} pool;

static struct {
  shell *sh;
  call whole; /* stands for the program: what a signal cancels */
  int in, out;
  int parent_fd; /* readable when the parent has ended; -1: ask for its id */
  pid_t parent;
  int stop_fd; /* readable when it is to end; stays so */

  pthread_mutex_t out_m; /* guards these two */
  bool out_broken;       /* nothing is written any more */
  int out_errno;         /* why; 0: nobody was waited for any more */

  pthread_mutex_t m;   /* guards what follows; taken before signals.c's */
  pthread_cond_t free; /* a worker has left */
  request *all;
  pool quick, waiting; /* requests that never wait for another party; others */
  uint64_t alone;      /* the last actor of a request without one */
  bool ending;         /* workers leave when their line is empty */
  bool keeping;        /* the keeper runs, or has ended by itself */
  bool deaf;           /* it has, with the session: workers tell of losses */
  pthread_t keeper;
} co = {.out_m = PTHREAD_MUTEX_INITIALIZER, .m = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------------
 * The end: what brings it
 *
 * Four things do, as the file's head says. Here are those that come from
 * outside: the parent's end and signals. Each only sets a flag or makes a
 * descriptor readable; read_requests() looks.
 * --------------------------------------------------------------------- */

/* Note whose child we are, and get a descriptor that tells of its end.  False
 * where the parent has ended meanwhile.  A death signal (PR_SET_PDEATHSIG)
 * would not do: it comes with the end of the thread that started us, not of the
 * process. */
static bool parent_watch(void) {
  co.parent = getppid();
  co.parent_fd = (int)syscall(SYS_pidfd_open, co.parent, 0u);
  if (co.parent_fd >= 0) fcntl(co.parent_fd, F_SETFD, FD_CLOEXEC);
  return getppid() == co.parent;
}

/* How long a poll() may sleep: for ever where parent_fd tells, else until the
 * next look at our parent's id. */
static int parent_timeout(void) { return co.parent_fd < 0 ? PARENT_MS : -1; }

/* Has the process that started us ended?  Its orphans get another parent. */
static bool parent_gone(void) { return getppid() != co.parent; }

/* Called on the signals' thread: is the signal to be ignored? ^C and ^\ go to
 * the whole foreground group, so the program that started us has them too.  It
 * decides what they mean, and we end with it.  A person who types requests at a
 * terminal has no such program, so there they end us. */
static bool from_keyboard(void *person, const siginfo_t *info) {
  return !person && info->si_code == SI_KERNEL &&
         (info->si_signo == SIGINT || info->si_signo == SIGQUIT);
}

/* ------------------------------------------------------------------------
 * Writing
 *
 * Under out_m, a mutex of its own, one line at a time. Whatever goes wrong
 * ends the output for good (out_break()): an answer that was left out, or cut,
 * would be worse than none.
 * --------------------------------------------------------------------- */

/* Wait until the output can be written; out_m is held.  False where the reader
 * is waited for no longer.  Until the end comes it has all the time it wants;
 * then FAREWELL_MS, of which *until keeps when they are over, from one write to
 * the next. */
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

/* Write nothing any more, and bring the end, for this reason (an errno, or 0).
 * out_m is held.  The first reason stays. */
static void out_break(int reason) {
  if (!co.out_broken) co.out_errno = reason;
  co.out_broken = true;
  cancel_by_fd(&co.stop_fd);
}

/* Write all of it, as one piece among those of other threads.  Each write() is
 * of PIPE_BUF bytes at most: where poll() finds room in a pipe, there is that
 * much, so that the write does not block and the end is noticed. */
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

/* Give up writing, from a thread that does not hold out_m. */
static void out_end(int reason) {
  pthread_mutex_lock(&co.out_m);
  out_break(reason);
  pthread_mutex_unlock(&co.out_m);
}

/* Write an object as one line, and drop the reference to it.  NULL means that
 * there was no memory to make it.  Then the output ends: a client would wait
 * for ever for an answer that is left out. */
static void out_line(json_t *object) {
  char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
  size_t len = text ? strlen(text) : 0;
  if (text) {
    text[len] = '\n'; /* in the place of the NUL */
    out_write(text, len + 1);
  } else {
    out_end(ENOMEM);
  }
  free(text);
  json_decref(object);
}

/* A message is a string whatever stands in it: what is not UTF-8 becomes
 * question marks. */
static json_t *json_message(const char *sentence) {
  json_t *j = json_string(sentence);
  char *copy = j ? NULL : strdup(sentence);
  for (char *at = copy; at && *at; at++)
    if (*at & 0x80) *at = '?';
  if (copy) j = json_string(copy);
  free(copy);
  return j;
}

/* Answer a request. id is NULL where none could be read, rows NULL for none;
 * code and sentence are NULL where all went well. */
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

/* What shell.event is in a coprocess: write a row that comes before the
 * request's answer.  Takes the reference. */
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
 * A line is one JSON object. It is looked at as a whole before anything is
 * begun: a member that is not known, a word of a wrong type or an unfit id
 * refuses it, and its client is told why.
 * --------------------------------------------------------------------- */

/* Answer a line that is no request, with its number in the sentence.  id is
 * NULL where none could be read, and stays the caller's. */
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

/* Free a request and all that its call has made; NULL is fine.  It is in no
 * list. */
static void request_free(request *r) {
  if (!r) return;
  run_call_free(&r->c);
  json_decref(r->c.rows);
  json_decref(r->object);
  free(r->w);
  free(r);
}

/* A number as a word: an integer as it is, another one with as many digits as
 * tell it from its neighbours, and no more. */
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

/* The bytes that {"base64": "..."} or {"text": "..."} stands for, as a JSON
 * string with a reference for the caller; NULL for any other object. */
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

/* A word of "run" as a string, with a reference for the caller.  What is
 * neither a string, a number nor bytes comes back as it is, and its caller
 * refuses it. */
static json_t *word_text(json_t *given) {
  if (json_is_object(given)) return literal_bytes(given);
  if (json_is_number(given)) return number_text(given);
  return json_incref(given);
}

/* Make the words of a request from "run".  The strings stay in the JSON object,
 * which the request owns, and the words point to them.  A word that came as an
 * object is data or a name: it is marked as literal, so that one which begins
 * with "-" is not taken for an option.  Returns NULL, or what is wrong. */
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

/* The actor that a JSON value names: equal values give equal numbers, by
 * FNV-1a, and never 0, which is nobody. */
static uint64_t actor_hash(const json_t *actor) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  char *text = json_dumps(actor, JSON_ENCODE_ANY);
  for (const char *at = text; at && *at; at++)
    hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
  free(text);
  return hash ? hash : 1;
}

/* Set the actor that locks are asked for.  Requests with the same "actor" are
 * one to the recipes, so that one does not wait for the other; a request
 * without it is an actor of its own.  Returns NULL, or what is wrong. */
static const char *request_actor(request *r) {
  const json_t *actor = json_object_get(r->object, "actor");
  if (actor && !json_is_string(actor) && !json_is_number(actor))
    return "\"actor\" is a string or a number";
  if (++co.alone == 0) co.alone = 1; /* 0 is nobody */
  r->actor = actor ? actor_hash(actor) : co.alone;
  return NULL;
}

/* Has the object the members of a request, and no others?  A misspelt one is
 * refused rather than ignored.  Returns NULL, or what is wrong. */
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

/* Make a request of an object.  On success the request owns the object; on
 * failure the caller does still, *wrong_out says why, and NULL is returned; the
 * words of "run" may be strings then where they were numbers. */
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
 * It is a thread that waits in zkembed while the others work, so that locks
 * learn of their loss. It exists from the first request that needs a session.
 * --------------------------------------------------------------------- */

/* Is the program to end?  The keeper asks after each wake-up. */
static bool keeper_ends(void) {
  pthread_mutex_lock(&co.m);
  bool ending = co.ending;
  pthread_mutex_unlock(&co.m);
  return ending;
}

/* Tell the client of each lock that was lost since the last time. */
static void keeper_tell(void) {
  json_t *event;
  while ((event = held_lost(co.sh)) != NULL) out_line(event);
}

/* The keeper's thread.  It dispatches, so that the session's locks hear what
 * becomes of them while no request is in zkembed. zke_wake() ends its sleep
 * once co.ending is set.  The turn is taken before it looks, so that a loss
 * between the look and the sleep ends the sleep at once.  A failure that passes
 * ends nothing.
 *
 * Once the session is over it cannot sleep in zkembed any more.  It says so
 * before its last look: a request that is granted something too late for that
 * look finds it said, and its worker looks. */
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

/* Start the keeper, once there is a session.  co.m is held.  Where no thread
 * can be had, the next request tries again. */
static void keeper_begin(zke *z) {
  if (co.keeping || co.ending) return;
  co.keeping = pthread_create(&co.keeper, NULL, keeper_run, z) == 0;
}

/* ------------------------------------------------------------------------
 * Workers
 *
 * A pool is a line of requests and the threads that take from it; co.m guards
 * both pools and the list of all requests. The first workers are made when a
 * request finds none idle, further ones when nobody moves the line on; they
 * leave when many are idle.
 * --------------------------------------------------------------------- */

/* The request of this id that has not been answered; NULL: none.  co.m is held.
 */
static request *request_find(const json_t *id) {
  request *r = co.all;
  while (r && !json_equal(r->c.id, id)) r = r->next;
  return r;
}

/* Take a request out of the list of all.  The caller holds co.m. */
static void request_remove(request *r) {
  request **at = &co.all;
  while (*at != r) at = &(*at)->next;
  *at = r->next;
}

/* Put a request at the end of a line, and wake a worker.  co.m is held here and
 * in all of a pool's functions. */
static void pool_add(pool *p, request *r) {
  if (!p->first) p->turn_ms = clock_ms();
  *p->end = r;
  p->end = &r->queued;
  p->bytes += r->bytes;
  p->queued++;
  pthread_cond_signal(&p->work);
}

/* Take a request out of a line.  False where it is not there: a worker has it.
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

/* Answer and free a request that is in no list any more. */
static void request_answer(request *r, int status) {
  out_answer(json_object_get(r->object, "id"), status, r->c.rows,
             status ? r->c.code : NULL, r->c.sentence);
  request_free(r);
}

/* Has the end come by a signal, by the parent's end or by the reader's?  Not by
 * the end of input: then requests in line still begin. */
static bool request_is_late(void) {
  struct pollfd stop = {co.stop_fd, POLLIN, 0};
  return poll(&stop, 1, 0) > 0 || parent_gone();
}

/* Fail a request that will never begin; returns its status. */
static int request_fail(request *r) {
  int signal = atomic_load(&co.whole.signal);
  if (signal)
    return fail_with(&r->c, STATUS_SIGNAL + signal, "INTERRUPTED",
                     "ended by signal %d (%s) before its turn", signal,
                     strsignal(signal));
  return fail_with(&r->c, STATUS_CONFLICT, "CANCELLED",
                   "cancelled before its turn");
}

/* Run a request under its actor, and return its status.  The thread's former
 * actor comes back, since workers serve requests of several. */
static int request_do(request *r) {
  if (request_is_late()) return request_fail(r);
  uint64_t before = zke_line_act_as(r->actor);
  int status = run_words(&r->c, r->w);
  zke_line_act_as(before);
  return status;
}

/* Run a request and answer it.  It leaves the list before the answer is
 * written: whoever has read the answer may use the id again at once. */
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

/* A worker's thread: takes requests from its line until the end.  It leaves
 * also where more than WORKERS_SOON wait for work, so that a burst of requests
 * does not keep its threads for good. */
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

/* Make one more worker.  Returns 0, or an errno.  co.m is held. */
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

/* Is the line full, and has no request's turn come for STUCK_MS? Then reading
 * on helps nobody: further requests that may wait are refused, so that a
 * request that would end their waiting can be read. */
static bool pool_is_stuck(const pool *p) {
  return p->bytes >= QUEUE_MOST && clock_ms() - p->turn_ms >= STUCK_MS;
}

/* Make more workers where requests are in line and no turn has come for
 * LOOK_MS: all workers wait then.  Not while the reader takes no answers.  Then
 * they wait for it, and each further worker would only have one more answer to
 * keep. */
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
 * The main thread decides for each request, by its words alone, which pool is
 * its own; runs a cancel by itself at once; and refuses what cannot be put in
 * line.
 * --------------------------------------------------------------------- */

/* Has the command an option of this long name? */
static bool command_has(const command *m, const char *name) {
  const option *o = m->options;
  while (o && o->letter && (!o->name || strcmp(o->name, name) != 0)) o++;
  return o && o->letter;
}

/* May the request wait for another party: a process that holds or is to bring
 * something, or the writer of a FIFO? It decides from the words alone, and says
 * yes too often rather than too seldom: a request that waits among the quick
 * ones would keep others from their turn. */
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

/* Put a request into a line, with a worker more where none is idle.  Returns 0,
 * or its status where the line is full and stands still, or no thread is to be
 * had at all: where there are workers, it stands in line for them.  A worker
 * counts as idle until it has taken its request, so the idle ones are compared
 * with all that are in line.  Beyond WORKERS_SOON pool_grow() decides.  co.m is
 * held. */
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

/* Put a request into the line that fits it, or answer why not. */
static void request_start(request *r) {
  r->may_wait = request_may_wait(r);
  pool *p = r->may_wait ? &co.waiting : &co.quick;
  pthread_mutex_lock(&co.m);
  int status = request_queue(p, r);
  pthread_mutex_unlock(&co.m);
  if (status) request_answer(r, status);
}

/* Cancel the request of this id, if there is one.  In line it is answered at
 * once and never begins; one that runs is told, and answers by itself. */
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

/* Is there a request of this id that has not been answered? */
static bool request_runs(const json_t *id) {
  pthread_mutex_lock(&co.m);
  bool runs = request_find(id) != NULL;
  pthread_mutex_unlock(&co.m);
  return runs;
}

/* Is the line a cancel?  It has one member only, so that a request in which the
 * word merely occurs is run. */
static bool is_cancel(const json_t *object) {
  return json_object_size(object) == 1 &&
         is_id(json_object_get(object, "cancel"));
}

/* Do what a line's object asks for: start a request, cancel one, or answer what
 * is wrong.  Takes the reference.  Once a worker has the request nobody else
 * may look at the object, since jansson's reference counts are not
 * synchronised: so the id is compared and refused before that. */
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

/* Do what a line of input asks for, or answer what is wrong with it. */
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
 * Input is taken as it comes and cut into lines. While a line is full and
 * moves, nothing is read: so a client that sends faster than its requests are
 * done is slowed down by its pipe.
 * --------------------------------------------------------------------- */

/* What was read and is no whole line yet. */
typedef struct input {
  char *data;
  size_t len, room;
  long line;     /* the number of the one that begins at data */
  bool skipping; /* it is too long, and has been refused */
} input;

/* Take the whole lines, and move what is left to the front.  No line ends
 * before the byte `fresh`, up to which the input was looked at before: so a
 * long line that comes in many pieces is searched once. */
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

/* Make room for more input; false without memory.  A line that has become
 * longer than LINE_MOST is refused once and then read over up to its end. */
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

/* Read once, and take the lines that this completes.  False at the end of
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
  /* What stands behind the last newline is a line, too. */
  if (n == 0 && in->len > 0 && !in->skipping)
    line_take(in->data, in->len, in->line);
  if (n <= 0) return false;
  in->len += (size_t)n;
  input_lines(in, in->len - (size_t)n);
  return true;
}

/* Make the workers that are missing.  Returns how long the reader may sleep,
 * and in *reads_out whether it is to read at all: while a line is full and
 * moves, further requests stay in the pipe, which slows the client down.  The
 * line of requests that never wait does move, once the client takes its
 * answers. */
static int pools_look(bool *reads_out) {
  pthread_mutex_lock(&co.m);
  pool_grow(&co.waiting);
  *reads_out = co.quick.bytes < QUEUE_MOST &&
               (co.waiting.bytes < QUEUE_MOST || pool_is_stuck(&co.waiting));
  bool grows = co.waiting.first && co.waiting.workers < WORKERS_MOST;
  pthread_mutex_unlock(&co.m);
  return grows || !*reads_out ? LOOK_MS : parent_timeout();
}

/* Read until the end of input, or until a signal, the parent's end or the
 * reader's brings the end.  The output is polled for errors only, so a reader
 * that has gone is noticed also while there is nothing to write. */
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
 * What belongs to the process is set up and given back here: descriptors,
 * signals, threads. The order of the end is that of co_end(): requests first,
 * then the keeper, and the session in main().
 * --------------------------------------------------------------------- */

/* Set the program up; 0, or its exit code with the sentence said.  Requests and
 * answers get descriptors of their own, and 0 and 1 become /dev/null, so that
 * nothing that a command prints can come between the answers. */
static int co_begin(shell *sh) {
  call *whole = &co.whole;
  *whole = (call){.sh = sh, .format = sh->format};
  co.sh = sh;
  co.quick.end = &co.quick.first;
  co.waiting.end = &co.waiting.first;
  co.alone = zke_line_actor();
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

/* Cancel the requests that may wait, or all of them.  co.m is held. */
static void cancel_requests(bool all, int signal) {
  for (request *r = co.all; r; r = r->next)
    if (all || r->may_wait) signals_cancel(&r->c, signal);
}

/* Sleep until a worker has left, but LOOK_MS at most.  co.m is held. */
static void co_sleep(void) {
  struct timespec until = clock_after(LOOK_MS);
  pthread_cond_timedwait(&co.free, &co.m, &until);
}

/* Cancel requests, wait until the last worker has left, then end the keeper.
 * signal: what brought the end, or 0.  After the end of input, what never waits
 * for another party is done as ever, unless another end comes meanwhile.  The
 * keeper comes last, so that a lock that is lost meanwhile is still told.
 *
 * Nothing reads requests any more, so no worker and no request comes to those
 * that are counted here; and once co.ending is set no keeper begins. */
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

/* Is the client closing both pipes, in whatever order?  Then that the output
 * was closed first is no error. */
static bool input_ends(void) {
  struct pollfd fd = {co.in, POLLRDHUP, 0};
  return poll(&fd, 1, CLOSING_MS) > 0 || parent_gone();
}

/* The program's exit code, with the sentence that belongs to it on standard
 * error.  A broken output is an error only while the client still sends. */
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

/* Begins, reads until the end comes, ends all requests and the keeper, and
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
