/* control.c - the orders by which a test causes faults of the protocol server
 *
 * With --control, programs on this host can request faults by HTTP at the
 * server's port: POST /control with an order, which is one line, and GET
 * /control for a report.  An order is a word and values with names:
 *
 *     drop-after type=create path=/locks*
 *
 * After it was done it is answered with JSON; or it is refused with a sentence,
 * and nothing was changed.  The words are rows of the table `kinds`.  fault.c
 * has the effects of faults.  An order is read completely before any of it is
 * done: a function of the table `values` checks each value, then the order's
 * own function runs.  Begin with control_do().
 *
 * An order takes effect immediately, but its answer is sent at the end of a
 * round: a test that has the answer knows that the server has acted on it, for
 * all of its connections. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"

/* ------------------------------------------------------------------------
 * Orders
 *
 * An order lives while control_do() runs.  What its answer needs later is in
 * the connection (conn.wait), so nothing has to be undone if the test hangs up.
 * --------------------------------------------------------------------- */

/* The names of values.  As bits, they say which ones an order takes, needs, and
 * was given. */
enum {
  SESSION = 1,
  TYPE = 2,
  PATH = 4,
  SKIP = 8,
  TIMES = 16,
  FOR = 32,
  ERROR = 64,
  BY = 128,
  FAULT = 256,
  FIRED = 512,
  MATCH = SESSION | TYPE | PATH | SKIP | TIMES
};

typedef struct order order;

/* A word that begins an order. */
typedef struct kind {
  const char *word;
  unsigned takes, needs; /* values */
  enum fault_act act;    /* of add_fault() */
  void (*run)(order *o);
} kind;

/* One order while it is handled. */
struct order {
  server *s;
  conn *c;
  const kind *kind;
  const char *line;
  unsigned given;   /* values */
  fault fault;      /* the requested fault, without its texts */
  const char *path; /* path=, or NULL: any */
  int number;       /* fault= */
  int64_t fired;    /* fired= */
  int64_t by_ms;    /* by= */
};

/* What an order waits for before it is answered.  All are checked at the end of
 * a round. */
enum {
  WAITS_ROUND = 1, /* until the end of the next round */
  WAITS_END,       /* until the end of this round */
  WAITS_ENDED,     /* until the sessions that are over have ended */
  WAITS_TIME,      /* the same, and until expired nodes are gone */
  WAITS_FAULT      /* until a fault has fired so many times */
};

/* Lets control_round() answer the order once its wait is over.  count: for the
 * answer. */
static void wait_for(order *o, int what, int64_t count) {
  o->c->wait = (control_wait){what, o->number, count};
}

/* ---- answers ---- */

static bool refuse(order *o, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sends the sentence of a refusal.  Always false, so that a function that reads
 * a part of the order can return it. */
static bool refuse(order *o, int status, const char *format, ...) {
  char sentence[500];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(sentence, sizeof sentence, format, arguments);
  va_end(arguments);
  http_refuse(o->c, status, "%s", sentence);
  return false;
}

/* Answers an order with one line of JSON; frees the value.  NULL means that
 * memory ran out: then the connection ends without an answer. */
static void answer_json(conn *c, json_t *value) {
  char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
  char *line = NULL;
  json_decref(value);
  if (!text || asprintf(&line, "%s\n", text) < 0)
    conn_drop(c);
  else
    http_answer(c, 200, "application/json", line);
  free(line);
  free(text);
}

/* A fault and its counts. */
static json_t *report_of(const server *s, const fault *f) {
  json_t *left = f->left == FAULT_ALWAYS ? json_null() : json_integer(f->left);
  return json_pack("{s:i,s:o,s:I,s:I,s:o,s:i}", "fault", f->id, "order",
                   value_text(f->line), "seen", f->seen, "fired", f->fired,
                   "left", left, "holds", fault_holds(s, f));
}

/* ------------------------------------------------------------------------
 * What each order does
 *
 * Each function either refuses, by a sentence that it sends, without changing
 * anything; or does the order, and says by wait_for() when to answer.
 * --------------------------------------------------------------------- */

/* Does this server have that session?  Otherwise this sends the sentence.  A
 * fault for another session would never fire, and its test would wait in vain.
 */
static bool has_session(order *o) {
  int64_t id = o->fault.session;
  if (!id || client_find(o->s, id)) return true;
  return refuse(o, 404, "%s: there is no session 0x%" PRIx64 " at this server",
                o->kind->word, (uint64_t)id);
}

/* If the order names a fault, does it exist?  Otherwise this sends the
 * sentence. */
static bool has_fault(order *o) {
  if (!o->number || fault_find(o->s, o->number)) return true;
  return refuse(o, 404, "%s: there is no fault %d", o->kind->word, o->number);
}

/* Adds a fault.  Its texts are copied, since it outlives the order; from
 * fault_add() on they belong to the fault.  The answer comes at the end of this
 * round. */
static void add_fault(order *o) {
  fault wanted = o->fault;
  if (!has_session(o)) return;
  if (o->s->faults->count >= FAULTS_MOST) {
    refuse(o, 409, "there are %d faults; \"clear\" removes them", FAULTS_MOST);
    return;
  }
  wanted.act = o->kind->act;
  wanted.line = strdup(o->line);
  if (o->path) wanted.path = strdup(o->path);
  bool copied = wanted.line && (wanted.path || !o->path);
  fault *f = copied ? fault_add(o->s, &wanted) : NULL;
  if (!f) {
    free(wanted.path);
    free(wanted.line);
    refuse(o, 500, "out of memory");
    return;
  }
  o->number = f->id;
  wait_for(o, WAITS_FAULT, f->fired);
}

/* Ends, by the library, a session of another server or process.  That one finds
 * out by itself, so there is nothing to wait for. */
static void expire_other(order *o) {
  int64_t id = o->fault.session;
  int rc = zke_expire(o->s->z, id);
  if (rc == ZKE_NONODE)
    refuse(o, 404, "expire: there is no session 0x%" PRIx64, (uint64_t)id);
  else if (rc != ZKE_OK)
    refuse(o, 500, "expire: %s", zke_errmsg());
  else
    wait_for(o, WAITS_END, 1);
}

/* Ends a session, or all of this server's.  Another server's session must be
 * named by its number. */
static void do_expire(order *o) {
  int64_t id = o->fault.session, count = 0;
  for (client *at = o->s->sessions; at; at = at->next) {
    if (at->over || (id && at->id != id)) continue;
    client_over(at);
    count++;
  }
  if (id && !count)
    expire_other(o);
  else
    wait_for(o, WAITS_ENDED, count);
}

/* Closes a session's connection, or all.  A session without a connection is
 * refused: nothing would happen that a test could wait for. */
static void do_drop(order *o) {
  if (!has_session(o)) return;
  int count = faults_drop(o->s, o->fault.session);
  if (o->fault.session && !count)
    refuse(o, 409, "drop: session 0x%" PRIx64 " has no connection",
           (uint64_t)o->fault.session);
  else
    wait_for(o, WAITS_END, count);
}

/* Moves the clock.  Sessions with connected clients count as heard from in that
 * time; only clients that are away or held can lose theirs.  The limit keeps
 * all sums of times far from an overflow. */
static void do_advance(order *o) {
  int64_t most = INT64_C(100) * 366 * 86400 * 1000;
  if (o->s->faults->advanced_ms > most - o->by_ms) {
    refuse(o, 409, "advance: the clock is a hundred years ahead");
    return;
  }
  faults_advance(o->s, o->by_ms);
  clients_heard(o->s);
  wait_for(o, WAITS_TIME, 1);
}

/* Stops the server's clock: from now on only `advance` moves it. */
static void do_stop_clock(order *o) {
  faults_stand(o->s, true);
  wait_for(o, WAITS_END, 1);
}

/* Starts the clock again from where it stopped. */
static void do_start_clock(order *o) {
  faults_stand(o->s, false);
  wait_for(o, WAITS_END, 1);
}

/* Releases what a fault holds, or what all hold.  The answer comes a round
 * later, when the released input has been handled. */
static void do_release(order *o) {
  if (!has_fault(o)) return;
  wait_for(o, WAITS_ROUND, fault_release(o->s, o->number, o->fault.session));
}

/* Without a number, undoes all faults. */
static void do_clear(order *o) {
  if (!has_fault(o)) return;
  if (!o->number) faults_stand(o->s, false);
  wait_for(o, WAITS_ROUND, fault_clear(o->s, o->number));
}

/* Answers when a fault has fired so many times; without a number, once.  With
 * this a test waits for the moment when its client is stuck. */
static void do_wait(order *o) {
  if (!has_fault(o)) return;
  wait_for(o, WAITS_FAULT, o->given & FIRED ? o->fired : 1);
}

static const kind kinds[] = {
    {"drop-before", MATCH, 0, ACT_DROP_BEFORE, add_fault},
    {"drop-after", MATCH, 0, ACT_DROP_AFTER, add_fault},
    {"hold-request", MATCH | FOR, 0, ACT_HOLD_REQUEST, add_fault},
    {"hold-reply", MATCH | FOR, 0, ACT_HOLD_REPLY, add_fault},
    {"hold-event", (MATCH | FOR) & ~(unsigned)TYPE, 0, ACT_HOLD_EVENT,
     add_fault},
    {"fail", MATCH | ERROR, 0, ACT_FAIL, add_fault},
    {"pause", SESSION | FOR, SESSION, ACT_PAUSE, add_fault},
    {"outage", TIMES | FOR, 0, ACT_OUTAGE, add_fault},
    {"expire", SESSION, SESSION, 0, do_expire},
    {"drop", SESSION, SESSION, 0, do_drop},
    {"advance", BY, BY, 0, do_advance},
    {"stop-clock", 0, 0, 0, do_stop_clock},
    {"start-clock", 0, 0, 0, do_start_clock},
    {"release", FAULT | SESSION, 0, 0, do_release},
    {"clear", FAULT, 0, 0, do_clear},
    {"wait", FAULT | FIRED, FAULT, 0, do_wait}};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* ------------------------------------------------------------------------
 * Reading values
 *
 * The function of a value's row reads it into the order.  It returns false if
 * the value is not valid; the sentence of the refusal is made from the row's
 * `wants`.
 * --------------------------------------------------------------------- */

/* session=: the number of a session, or all, which is stored as 0. */
/* Like all of these, returns false if the value is not valid. */

static bool read_session(order *o, const word *value) {
  if (word_is(value, "all")) return true;
  return word_session(value, &o->fault.session) && o->fault.session > 0;
}

/* type=: a request, or a group of them. */
static bool read_type(order *o, const word *value) {
  o->fault.types = fault_types(value->text);
  return o->fault.types != 0;
}

/* path=: a pattern, which fault_stops() matches with the request's paths. */
static bool read_path(order *o, const word *value) {
  o->path = value->text;
  return *value->text != '\0';
}

/* skip=: how many requests pass before the first that is met. */
static bool read_skip(order *o, const word *value) {
  return word_number(value, &o->fault.skip) && o->fault.skip >= 0;
}

/* times=: how many requests a fault meets. */
static bool read_times(order *o, const word *value) {
  o->fault.left = FAULT_ALWAYS;
  if (word_is(value, "all")) return true;
  return word_number(value, &o->fault.left) && o->fault.left > 0;
}

/* for=: how long a fault holds. */
static bool read_for(order *o, const word *value) {
  return word_duration(value, &o->fault.for_ms) && o->fault.for_ms > 0;
}

/* by=: how far the clock is moved; 0 is fine. */
static bool read_by(order *o, const word *value) {
  return word_duration(value, &o->by_ms);
}

/* fault=: a number from the answer to an order that added a fault. */
static bool read_number(order *o, const word *value) {
  int64_t number;
  if (!word_number(value, &number) || number < 1 || number > INT_MAX)
    return false;
  o->number = (int)number;
  return true;
}

/* fired=: how often a fault should have fired. */
static bool read_fired(order *o, const word *value) {
  return word_number(value, &o->fired) && o->fired > 0;
}

/* error=: a code by its name, without the ZKE_ that ZooKeeper's own names do
 * not have.  Codes that end a connection or a session are not answers to a
 * request.
 */
static bool read_error(order *o, const word *value) {
  enum { LAST = -127 };
  for (int rc = -1; rc >= LAST; rc--) {
    if (rc == ZKE_CONNECTIONLOSS || rc == ZKE_SESSIONEXPIRED ||
        rc == ZKE_SESSIONMOVED || rc == ZKE_INVALIDSTATE || rc == ZKE_CLOSING ||
        !word_is(value, zke_error_name(rc) + strlen("ZKE_")))
      continue;
    o->fault.error = rc;
    return strcmp(zke_error_name(rc), "ZKE_UNKNOWN") != 0;
  }
  return false;
}

static const struct {
  const char *name;
  unsigned bit;
  bool (*read)(order *o, const word *value);
  const char *wants;
} values[] = {
    {"session", SESSION, read_session, "the number of a session, or all"},
    {"type", TYPE, read_type,
     "a request (create, getData, ...), change, read, request or any"},
    {"path", PATH, read_path, "a path, in which * stands for any characters"},
    {"skip", SKIP, read_skip, "a number"},
    {"times", TIMES, read_times, "a number from 1 on, or all"},
    {"for", FOR, read_for,
     "a time above 0, in seconds, or a number with ms, s, m, h or d"},
    {"by", BY, read_by, "seconds, or a number with ms, s, m, h or d"},
    {"error", ERROR, read_error,
     "the name of an error that a server answers, NOAUTH say"},
    {"fault", FAULT, read_number, "the number of a fault"},
    {"fired", FIRED, read_fired, "a number from 1 on"}};

enum { VALUES = sizeof values / sizeof *values };

/* Lists the names of values, for a sentence. */
static const char *names_of(unsigned bits, char *text, size_t size) {
  size_t len = 0;
  snprintf(text, size, "nothing");
  for (int i = 0; i < VALUES && len < size; i++)
    if (bits & values[i].bit)
      len += (size_t)snprintf(text + len, size - len, "%s%s=", len ? ", " : "",
                              values[i].name);
  return text;
}

/* Lists the orders, for a sentence. */
static const char *orders(char *text, size_t size) {
  size_t len = 0;
  for (int i = 0; i < KINDS && len < size; i++)
    len += (size_t)snprintf(text + len, size - len, "%s%s", i ? ", " : "",
                            kinds[i].word);
  return text;
}

/* Reads name=value; false if it is refused. */
static bool read_value(order *o, const word *w) {
  char names[200];
  const char *equals = strchr(w->text, '=');
  for (int i = 0; i < VALUES && equals; i++) {
    size_t len = strlen(values[i].name);
    if (!(o->kind->takes & values[i].bit) || equals != w->text + len ||
        strncmp(values[i].name, w->text, len) != 0)
      continue;
    word value = {equals + 1, w->len - len - 1, false};
    if (o->given & values[i].bit)
      return refuse(o, 400, "%s: %s= is there twice", o->kind->word,
                    values[i].name);
    if (values[i].read(o, &value)) {
      o->given |= values[i].bit;
      return true;
    }
    return refuse(o, 400, "%s: %s= wants %s, not \"%s\"", o->kind->word,
                  values[i].name, values[i].wants, value.text);
  }
  return refuse(o, 400, "%s takes %s, not \"%s\"", o->kind->word,
                names_of(o->kind->takes, names, sizeof names), w->text);
}

/* The defaults, which values replace.  By default a fault at a request fires
 * once, and a pause or an outage any number of times. */
static void set_defaults(order *o) {
  fault *f = &o->fault;
  bool lasts = o->kind->act >= ACT_PAUSE;
  f->types = fault_types(o->kind->act == ACT_FAIL ? "change" : "request");
  if (lasts) f->types = fault_types("any");
  if (o->kind->act == ACT_HOLD_EVENT) f->types = 0; /* not of a request */
  f->left = lasts ? FAULT_ALWAYS : 1;
  f->error = ZKE_SYSTEMERROR;
}

/* A connect request is answered with a session or without, and a ping is only
 * answered. */
static bool is_possible(order *o) {
  uint64_t unasked = fault_types("any") & ~fault_types("request");
  if (o->kind->act != ACT_FAIL || o->kind->run != add_fault ||
      !(o->fault.types & unasked))
    return true;
  return refuse(o, 400,
                "fail: a connect request or a ping has no error; drop-before "
                "loses it");
}

/* Reads the words; false if they are refused. */
static bool read_order(order *o, const words *w) {
  char text[300];
  for (int i = 0; i < KINDS; i++)
    if (word_is(&w->data[0], kinds[i].word)) o->kind = &kinds[i];
  if (!o->kind)
    return refuse(o, 400, "there is no order \"%s\"; there are %s",
                  w->data[0].text, orders(text, sizeof text));
  set_defaults(o);
  for (int i = 1; i < w->count; i++)
    if (!read_value(o, &w->data[i])) return false;
  if (o->kind->needs & ~o->given)
    return refuse(o, 400, "%s wants %s", o->kind->word,
                  names_of(o->kind->needs & ~o->given, text, sizeof text));
  return is_possible(o);
}

/* ------------------------------------------------------------------------
 * Requests by HTTP
 *
 * Faults can stop a server for all users, so only its own host may request
 * them, and not a page in a browser on that host.
 * --------------------------------------------------------------------- */

/* Is the peer a program on this host?  An IPv4 address may have come by an IPv6
 * socket. */
static bool is_local(const conn *c) {
  struct in_addr four;
  const char *address = c->address;
  if (c->is_unix || strcmp(address, "::1") == 0) return true;
  if (strncmp(address, "::ffff:", 7) == 0) address += 7;
  return inet_pton(AF_INET, address, &four) == 1 &&
         ntohl(four.s_addr) >> 24 == 127;
}

/* Is the request allowed?  Otherwise this sends the sentence. */
static bool is_allowed(server *s, conn *c, const http_request *r) {
  const char *why = NULL;
  if (!s->faults)
    why = "faults are for a server that was started with --control";
  else if (!is_local(c))
    why = "faults are for programs on the server's own host";
  else if (!c->is_unix && http_is_from_page(r))
    why =
        "faults are not for pages in a browser: Host wants an address, or "
        "localhost, and there may be no Origin";
  if (why) http_refuse(c, 403, "%s", why);
  return !why;
}

/* Answers GET: the clock, and each fault with its counts. */
void control_report(server *s, conn *c, const http_request *r) {
  if (!is_allowed(s, c, r)) return;
  json_t *list = json_array();
  for (const fault *f = s->faults->first; f; f = f->next)
    json_array_append_new(list, report_of(s, f));
  answer_json(c,
              json_pack("{s:s,s:I,s:o}", "clock",
                        s->faults->stands ? "stopped" : "going", "advanced_ms",
                        s->faults->advanced_ms, "faults", list));
}

/* The order's line for the report: without its newline. */
static char *line_of(const char *body) {
  return strndup(body, strcspn(body, "\r\n"));
}

/* Answers POST: reads the one order of the body and begins it.  An order's wait
 * is checked at the end of rounds (control_round()), so the answer may come
 * later. */
void control_do(server *s, conn *c, const http_request *r) {
  words *w = NULL;
  if (!is_allowed(s, c, r)) return;
  char *line = line_of(r->body);
  if (!line) {
    http_refuse(c, 500, "out of memory");
    return;
  }
  order o = {.s = s, .c = c, .line = line};
  const char *wrong = words_split(line, strlen(line), &w);
  size_t end = strlen(line) + strspn(r->body + strlen(line), "\r\n");
  if (wrong)
    http_refuse(c, 400, "the order is malformed: %s", wrong);
  else if (r->body[end] || w->count == 0)
    http_refuse(c, 400, "the body is one order, in one line");
  else if (read_order(&o, w))
    o.kind->run(&o);
  free(w);
  free(line);
}

/* ------------------------------------------------------------------------
 * Answers
 *
 * An order's answer waits in its connection.  Each round searches all
 * connections, which is acceptable since it happens only with --control.
 * --------------------------------------------------------------------- */

/* Are there expired nodes?  A file's nodes follow the clock of its processes,
 * which is not moved. */
static bool has_overdue(server *s) {
  int overdue = 0;
  return strcmp(s->c->sh->file, ":memory:") == 0 &&
         zke_overdue(s->z, &overdue) == ZKE_OK && overdue;
}

/* Answers an order for a fault, or the order to wait for it. */
static void look_at_fault(server *s, conn *c) {
  control_wait w = c->wait;
  const fault *f = fault_find(s, w.fault);
  if (f && f->fired < w.count) return;
  c->wait.what = 0;
  if (f)
    answer_json(c, report_of(s, f));
  else
    http_refuse(c, 410, "fault %d was cleared", w.fault);
}

/* Answers an order that is done. */
static void look_at_order(server *s, conn *c) {
  int what = c->wait.what;
  if (what == WAITS_FAULT) {
    look_at_fault(s, c);
    return;
  }
  if (what == WAITS_ROUND) {
    c->wait.what = WAITS_END;
    return;
  }
  if (what != WAITS_END && s->some_over) return;
  if (what == WAITS_TIME && has_overdue(s)) return;
  c->wait.what = 0;
  answer_json(c, json_pack("{s:I}", "done", c->wait.count));
}

void control_round(server *s) {
  if (!s->faults) return;
  for (conn *c = s->conns; c; c = c->next)
    if (c->wait.what && !c->dropped) look_at_order(s, c);
}
