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
 * Requests in line begin after the end of input, cancelled, so that they do all
 * but wait; in the other cases they do not begin.
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

#include "../recipes/deadlock.h"
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
  call c;
  json_t *object; /* the line; owns id and the words' texts */
  words *w;
  uint64_t actor;
  size_t bytes;           /* what it costs while it is in a line */
  struct request *next;   /* of all */
  struct request *queued; /* of those that no worker has taken */
} request;

/* A line of requests that no worker has taken, and its workers. */
typedef struct pool {
  request *first, **end;
  pthread_cond_t work;
  size_t bytes; /* of those in line */
  int queued, idle, workers;
  int64_t turn_ms; /* when a request's turn came last, or more workers */
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
  bool keeping;        /* the keeper runs */
  pthread_t keeper;
} co = {.out_m = PTHREAD_MUTEX_INITIALIZER, .m = PTHREAD_MUTEX_INITIALIZER};

/* ------------------------------------------------------------------------
 * The end: what brings it
 * --------------------------------------------------------------------- */

/* A death signal (PR_SET_PDEATHSIG) would come with the end of the parent's
 * thread, not of the parent. */
static bool parent_watch(void) {
  co.parent = getppid();
  co.parent_fd = (int)syscall(SYS_pidfd_open, co.parent, 0u);
  if (co.parent_fd >= 0) fcntl(co.parent_fd, F_SETFD, FD_CLOEXEC);
  return getppid() == co.parent;
}

static int parent_timeout(void) { return co.parent_fd < 0 ? PARENT_MS : -1; }

static bool parent_gone(void) { return getppid() != co.parent; }

/* What the keyboard sends goes to the parent as well, and it decides: we end
 * with it.  Runs on the signals' thread. */
static bool from_keyboard(void *person, const siginfo_t *info) {
  return !person && info->si_code == SI_KERNEL &&
         (info->si_signo == SIGINT || info->si_signo == SIGQUIT);
}

/* ------------------------------------------------------------------------
 * Writing
 * --------------------------------------------------------------------- */

/* Until there is room, out_m held: false where nobody is waited for any more.
 * *until: when that is, once the end has come. */
static bool out_wait(int64_t *until) {
  for (;;) {
    int64_t left = *until ? *until - monotonic_ms() : 0;
    struct pollfd fds[] = {{co.out, POLLOUT, 0},
                           {*until ? -1 : co.stop_fd, POLLIN, 0},
                           {*until ? -1 : co.parent_fd, POLLIN, 0}};
    if (left < 0) return false;
    if (poll(fds, 3, *until ? (int)left : parent_timeout()) < 0 &&
        errno != EINTR)
      return false;
    if (fds[0].revents) return true;
    if (!*until && (fds[1].revents || fds[2].revents || parent_gone()))
      *until = monotonic_ms() + FAREWELL_MS;
  }
}

/* Nobody will hear any more.  out_m is held. */
static void out_break(int reason) {
  if (!co.out_broken) co.out_errno = reason;
  co.out_broken = true;
  cancel_by_fd(&co.stop_fd);
}

/* A pipe with room has it for PIPE_BUF bytes: such a write does not block. */
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

/* Takes the reference.  An answer that cannot be made would be waited for: the
 * end of the output is what tells then. */
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

/* id: NULL for null */
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

/* A row between the answers: shell.event.  Takes the reference. */
static int co_event(call *c, json_t *row) {
  json_t *event =
      json_pack("{s:o,s:o}", "id", json_deep_copy(c->id), "event", row);
  if (!event) return fail(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  out_line(event);
  return 0;
}

/* ------------------------------------------------------------------------
 * A line into a request
 * --------------------------------------------------------------------- */

/* Answers a line that is no request: with its number, and with an id as far as
 * it has one. */
/* A line that is no request. */
static void refuse(json_t *id, long line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Answer a line that is no request. The id is NULL where the line had none that
 * could be read; it is taken over. */
static void refuse(json_t *id, long line, const char *format, ...) {
  char what[512], sentence[640];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  snprintf(sentence, sizeof sentence, "line %ld: %s", line, what);
  out_answer(id, STATUS_DATA, NULL, "REQUEST", sentence);
}

/* The request and all that its call has made. */
static void request_free(request *r) {
  if (!r) return;
  run_call_free(&r->c);
  json_decref(r->c.rows);
  json_decref(r->object);
  free(r->w);
  free(r);
}

/* With as many digits as tell it from its neighbours, but no more. */
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

/* {"base64": "…"} or {"text": "…"}: a word that is no option. */
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

/* A word of "run" as a string, with a reference more; NULL for what is none. */
static json_t *word_text(json_t *given) {
  if (json_is_object(given)) return literal_bytes(given);
  if (json_is_number(given)) return number_text(given);
  return json_incref(given);
}

/* The words of "run" become strings, of bytes whatever they are, and stay
 * where they are.  One that came as an object is data or a name, and is never
 * taken for an option. */
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

static bool is_id(const json_t *j) {
  return json_is_string(j) || json_is_number(j) || json_is_boolean(j);
}

/* What is the same gives the same number, by FNV-1a; never 0. */
static uint64_t actor_hash(const json_t *actor) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  char *text = json_dumps(actor, JSON_ENCODE_ANY);
  for (const char *at = text; at && *at; at++)
    hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
  free(text);
  return hash ? hash : 1;
}

/* Each request by itself, unless it is told who is behind it. */
static const char *request_actor(request *r) {
  const json_t *actor = json_object_get(r->object, "actor");
  if (actor && !json_is_string(actor) && !json_is_number(actor))
    return "\"actor\" is a string or a number";
  if (++co.alone == 0) co.alone = 1; /* 0 is nobody */
  r->actor = actor ? actor_hash(actor) : co.alone;
  return NULL;
}

/* Is the object a request?  NULL, or a sentence. */
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

/* Takes over the object, but where it is NULL, with what is wrong. */
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
 * --------------------------------------------------------------------- */

/* Asked by the keeper after each wake-up. */
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

/* It dispatches, so that the session's locks hear what befalls them; zke_wake()
 * ends it, once co.ending is set. */
static void *keeper_run(void *z) {
  for (int rc = ZKE_OK; rc == ZKE_OK;) {
    int64_t turn = zke_turn(z);
    keeper_tell();
    if (keeper_ends()) return NULL;
    rc = zke_wait_turn(z, turn, ZKE_FOREVER);
  }
  keeper_tell();
  return NULL;
}

/* The mutex is held; z is open. */
static void keeper_begin(zke *z) {
  if (co.keeping || co.ending) return;
  co.keeping = pthread_create(&co.keeper, NULL, keeper_run, z) == 0;
}

/* ------------------------------------------------------------------------
 * Workers
 * --------------------------------------------------------------------- */

/* The mutex is held. */
static request *request_find(const json_t *id) {
  request *r = co.all;
  while (r && !json_equal(r->c.id, id)) r = r->next;
  return r;
}

/* Take a request out of the list of all. The caller holds co.m. */
static void request_remove(request *r) {
  request **at = &co.all;
  while (*at != r) at = &(*at)->next;
  *at = r->next;
}

/* The mutex is held: so for all of a pool's functions. */
static void pool_add(pool *p, request *r) {
  if (!p->first) p->turn_ms = monotonic_ms();
  *p->end = r;
  p->end = &r->queued;
  p->bytes += r->bytes;
  p->queued++;
  pthread_cond_signal(&p->work);
}

/* Takes a request out of a line; false where it does not stand in it. */
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

/* Answers a request that nobody else has any more, and frees it. */
static void request_answer(request *r, int status) {
  out_answer(json_object_get(r->object, "id"), status, r->c.rows,
             status ? r->c.code : NULL, r->c.sentence);
  request_free(r);
}

/* Has the end come, by another cause than the end of input? */
static bool request_is_late(void) {
  struct pollfd stop = {co.stop_fd, POLLIN, 0};
  return poll(&stop, 1, 0) > 0 || parent_gone();
}

/* For a request that has not begun, and never will. */
static int request_fail(request *r) {
  int signal = atomic_load(&co.whole.signal);
  if (signal)
    return fail(&r->c, STATUS_SIGNAL + signal, "INTERRUPTED",
                "ended by signal %d (%s) before its turn", signal,
                strsignal(signal));
  return fail(&r->c, STATUS_CONFLICT, "CANCELLED", "cancelled before its turn");
}

/* Runs the request as the actor that is behind it, so that locks see one actor;
 * its status. */
static int request_do(request *r) {
  if (request_is_late()) return request_fail(r);
  uint64_t before = zke_line_act_as(r->actor);
  int status = run_words(&r->c, r->w);
  zke_line_act_as(before);
  return status;
}

/* Whoever reads the answer may use the id again at once. */
static void request_run(request *r) {
  int status = request_do(r);
  pthread_mutex_lock(&co.m);
  if (r->c.z && zke_session_id(r->c.z)) keeper_begin(r->c.z);
  request_remove(r);
  pthread_mutex_unlock(&co.m);
  request_answer(r, status);
}

/* A worker leaves at the end, and when there are many others without work. */
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
    p->turn_ms = monotonic_ms();
    pthread_mutex_unlock(&co.m);
    request_run(r);
    pthread_mutex_lock(&co.m);
  }
  p->workers--;
  pthread_cond_signal(&co.free);
  pthread_mutex_unlock(&co.m);
  return NULL;
}

/* 0, or why there is none. */
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

/* Is the line full, and has it stood still for long? */
static bool pool_is_stuck(const pool *p) {
  return p->bytes >= QUEUE_MOST && monotonic_ms() - p->turn_ms >= STUCK_MS;
}

/* More workers where no request's turn has come for a while: those that are
 * there wait.  Not while answers are not taken: then all of them wait for the
 * reader, and each further one would have one more answer to keep. */
static void pool_grow(pool *p) {
  struct pollfd out = {co.out, POLLOUT, 0};
  if (!p->first || p->workers == WORKERS_MOST) return;
  if (monotonic_ms() - p->turn_ms < LOOK_MS || poll(&out, 1, 0) != 1) return;
  for (int i = 0; i < WORKERS_SOON && p->workers < WORKERS_MOST; i++) {
    if (worker_begin(p) != 0) break;
    p->turn_ms = monotonic_ms();
  }
}

/* ------------------------------------------------------------------------
 * Requests, as they are read
 * --------------------------------------------------------------------- */

/* Has the command this option? */
static bool command_has(const command *m, const char *name) {
  const option *o = m->options;
  while (o && o->letter && (!o->name || strcmp(o->name, name) != 0)) o++;
  return o && o->letter;
}

/* The command that the words name, with its verb; NULL: none. */
static const command *words_command(const words *w) {
  const command *m = command_find(co.sh, &w->data[0]);
  char name[64];
  if (!m || !(m->flags & VERBS)) return m;
  if (w->count < 2) return NULL;
  snprintf(name, sizeof name, "%s %s", m->name, w->data[1].text);
  return command_find(co.sh, &(word){name, strlen(name), false});
}

/* May the request wait for another party: a process that holds or brings
 * something, or the writer of a file that may be a FIFO? */
static bool request_may_wait(const request *r) {
  const command *m = words_command(r->w);
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

/* The mutex is held.  Puts a request into line; 0, or its status where there is
 * no room, or no thread at all. */
static int request_queue(pool *p, request *r) {
  if (p == &co.waiting && pool_is_stuck(p))
    return fail(&r->c, STATUS_CONFLICT, "LIMIT",
                "%d requests wait, and %d more are in line", p->workers,
                p->queued);
  int reason = 0;
  if (p->queued >= p->idle && p->workers < WORKERS_SOON)
    reason = worker_begin(p);
  if (p->workers == 0)
    return fail(&r->c, STATUS_SYSTEM, "SYSTEM", "no thread for the request: %s",
                strerror(reason));
  r->next = co.all;
  co.all = r;
  pool_add(p, r);
  return 0;
}

/* Puts a request into the line that fits it, or answers why not. */
static void request_start(request *r) {
  pool *p = request_may_wait(r) ? &co.waiting : &co.quick;
  pthread_mutex_lock(&co.m);
  int status = request_queue(p, r);
  pthread_mutex_unlock(&co.m);
  if (status) request_answer(r, status);
}

/* A request in line is answered at once, and never begins. */
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

/* A cancel has no other member, so that a request that merely mentions the word
 * is run. */
static bool is_cancel(const json_t *object) {
  return json_object_size(object) == 1 &&
         is_id(json_object_get(object, "cancel"));
}

/* Takes the reference: what a worker has nobody else looks at, since jansson
 * counts references but does not synchronise. */
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

/* A line of input: a request, a cancel, or an answer that says what is wrong
 * with it. */
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
 * --------------------------------------------------------------------- */

/* What was read and is no whole line yet. */
typedef struct input {
  char *data;
  size_t len, room;
  long line;     /* the number of the one that begins at data */
  bool skipping; /* it is too long, and has been refused */
} input;

/* Takes the whole lines from the first new byte on; the rest moves to the
 * front. */
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

/* Room for more; a line that is too long is forgotten. */
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

/* False at the end. */
static bool input_read(input *in) {
  if (!input_room(in)) {
    fail(&co.whole, STATUS_SYSTEM, "NOMEM", "out of memory");
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

/* Makes the workers that are missing.  Gives how long the reader may sleep, and
 * whether it is to read: further requests can stay in the pipe while a line is
 * full and moves.  That of the requests that never wait does move, once the
 * client takes its answers. */
static int pools_look(bool *reads_out) {
  pthread_mutex_lock(&co.m);
  pool_grow(&co.waiting);
  *reads_out = co.quick.bytes < QUEUE_MOST &&
               (co.waiting.bytes < QUEUE_MOST || pool_is_stuck(&co.waiting));
  bool grows = co.waiting.first && co.waiting.workers < WORKERS_MOST;
  pthread_mutex_unlock(&co.m);
  return grows || !*reads_out ? LOOK_MS : parent_timeout();
}

/* Until the end of input, or what else brings the end.  That nobody reads any
 * more shows before anything is written. */
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
 * --------------------------------------------------------------------- */

/* The requests and answers get descriptors of their own, so that nothing that
 * a command prints or a program that it runs can come between. */
static int co_begin(shell *sh) {
  call *whole = &co.whole;
  *whole = (call){.sh = sh, .format = sh->format};
  co.sh = sh;
  co.quick.end = &co.quick.first;
  co.waiting.end = &co.waiting.first;
  co.alone = zke_line_actor();
  pthread_cond_init(&co.quick.work, NULL);
  pthread_cond_init(&co.waiting.work, NULL);
  pthread_cond_init(&co.free, NULL);
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

/* All are cancelled; the workers end with the last one of their line. */
static void co_end(int signal) {
  pthread_mutex_lock(&co.m);
  for (request *r = co.all; r; r = r->next) signals_cancel(&r->c, signal);
  co.ending = true;
  pthread_cond_broadcast(&co.quick.work);
  pthread_cond_broadcast(&co.waiting.work);
  while (co.quick.workers + co.waiting.workers > 0)
    pthread_cond_wait(&co.free, &co.m);
  bool keeping = co.keeping;
  pthread_mutex_unlock(&co.m);
  if (keeping) {
    zke_wake(co.sh->z);
    pthread_join(co.keeper, NULL);
  }
}

/* Who ends closes both pipes, in whatever order: that is no error. */
static bool input_ends(void) {
  struct pollfd fd = {co.in, POLLRDHUP, 0};
  return poll(&fd, 1, CLOSING_MS) > 0 || parent_gone();
}

/* Its status, and what is to be said of it. */
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
