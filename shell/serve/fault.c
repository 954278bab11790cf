/* fault.c - faults of the protocol server, for tests
 *
 * A test says in advance what should happen (control.c), and it happens at a
 * request: nothing depends on timing.  A fault names the requests that it
 * applies to, and how often it fires.  Each request meets the faults once, in
 * the order in which they were requested, before it is taken (fault_stops());
 * only the first that fires counts.  Its effect before the request happens
 * there; its effect afterwards is the request's fate, which goes with the
 * request to its reply (fault_answers()).
 *
 * In the same way an event that is about to be sent meets the faults for events
 * (fault_event()).
 *
 * Connections are held, not single requests.  A deaf connection stops before
 * the frame that was held, so later frames wait, too; of a mute one nothing is
 * sent from a place in its output on.
 *
 * Time: the server's clock can be stopped and moved.  A session whose client is
 * connected and not held counts as heard from throughout a move.
 */
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"

/* ------------------------------------------------------------------------
 * Requests
 *
 * A fault looks at a frame's type, its session and its paths.  It reads a copy
 * of the frame and leaves the original unchanged, since the request is not done
 * here.
 * --------------------------------------------------------------------- */

/* The first frame of a connection has no type; this number is not used on the
 * wire. */
enum { CONNECT = INT_MAX };

/* Groups of requests: a fault can name one of them. */
enum { CHANGES = 1, READS = 2, UNASKED = 4 };

/* The position of paths in a request. */
enum path_place { NOWHERE, FIRST, IN_EACH };

/* The names of doc/server.md.  A name may have several types. */
static const struct {
  int type;
  const char *name;
  unsigned groups;
  enum path_place place;
} types[] = {{CONNECT, "connect", UNASKED, NOWHERE},
             {ZKE_JUTE_PING, "ping", UNASKED, NOWHERE},
             {ZKE_JUTE_CREATE, "create", CHANGES, FIRST},
             {ZKE_JUTE_CREATE2, "create", CHANGES, FIRST},
             {ZKE_JUTE_CREATE_CONTAINER, "create", CHANGES, FIRST},
             {ZKE_JUTE_CREATE_TTL, "create", CHANGES, FIRST},
             {ZKE_JUTE_DELETE, "delete", CHANGES, FIRST},
             {ZKE_JUTE_SET_DATA, "setData", CHANGES, FIRST},
             {ZKE_JUTE_SET_ACL, "setACL", CHANGES, FIRST},
             {ZKE_JUTE_MULTI, "multi", CHANGES, IN_EACH},
             {ZKE_JUTE_CHECK, "check", READS, FIRST},
             {ZKE_JUTE_EXISTS, "exists", READS, FIRST},
             {ZKE_JUTE_GET_DATA, "getData", READS, FIRST},
             {ZKE_JUTE_GET_ACL, "getACL", READS, FIRST},
             {ZKE_JUTE_GET_CHILDREN, "getChildren", READS, FIRST},
             {ZKE_JUTE_GET_CHILDREN2, "getChildren", READS, FIRST},
             {ZKE_JUTE_MULTI_READ, "multiRead", READS, IN_EACH},
             {ZKE_JUTE_GET_EPHEMERALS, "getEphemerals", READS, FIRST},
             {ZKE_JUTE_COUNT, "getAllChildrenNumber", READS, FIRST},
             {ZKE_JUTE_SYNC, "sync", READS, FIRST},
             {ZKE_JUTE_ADD_WATCH, "addWatch", 0, FIRST},
             {ZKE_JUTE_CHECK_WATCHES, "checkWatches", 0, FIRST},
             {ZKE_JUTE_REMOVE_WATCHES, "removeWatches", 0, FIRST},
             {ZKE_JUTE_SET_WATCHES, "setWatches", 0, NOWHERE},
             {ZKE_JUTE_SET_WATCHES2, "setWatches", 0, NOWHERE},
             {ZKE_JUTE_AUTH, "auth", 0, NOWHERE},
             {ZKE_JUTE_SASL, "sasl", 0, NOWHERE},
             {ZKE_JUTE_WHO_AM_I, "whoAmI", 0, NOWHERE},
             {ZKE_JUTE_RECONFIG, "reconfig", 0, NOWHERE},
             {ZKE_JUTE_CLOSE, "close", 0, NOWHERE}};

enum { TYPES = sizeof types / sizeof *types };

/* The rows of types[] that a name of doc/testing-recipes.md covers, as bits:
 * one request by its name, a group, or all; 0: there is no such name. */
uint64_t fault_types(const char *name) {
  bool all = strcmp(name, "any") == 0, asked = strcmp(name, "request") == 0;
  unsigned group = 0;
  uint64_t found = 0;
  if (strcmp(name, "change") == 0) group = CHANGES;
  if (strcmp(name, "read") == 0) group = READS;
  for (int i = 0; i < TYPES; i++) {
    if (all || types[i].groups & group || strcmp(types[i].name, name) == 0 ||
        (asked && !(types[i].groups & UNASKED)))
      found |= UINT64_C(1) << i;
  }
  return found;
}

/* A frame under inspection. */
typedef struct sight {
  int row; /* of types[]; -1: unknown */
  int64_t session;
  const char *frame;
  size_t len;
} sight;

/* The row of a type; -1: the type is unknown, and no fault applies to it. */
static int row_of(int type) {
  for (int i = 0; i < TYPES; i++)
    if (types[i].type == type) return i;
  return -1;
}

/* A copy of the frame for reading, which changes it; NULL without memory. */
static char *open_frame(const sight *at, zke_jute_reader *r) {
  char *copy = malloc(at->len + 1);
  if (!copy) return NULL;
  memcpy(copy, at->frame, at->len);
  *r = (zke_jute_reader){.at = copy, .end = copy + at->len};
  return copy;
}

/* Ends the work of open_frame().  Values that were read point into the copy,
 * and are gone as well. */
static void close_frame(char *copy, zke_jute_reader *r) {
  zke_jute_reader_free(r);
  free(copy);
}

/* The session that a client wants back; 0: it wants a new one. */
static int64_t session_wanted(const sight *at) {
  zke_jute_connect_request request = {0};
  zke_jute_reader r;
  char *copy = open_frame(at, &r);
  bool read = copy && zke_jute_read(&r, &zke_jute_of_connect_request, &request);
  if (copy) close_frame(copy, &r);
  return read ? request.session_id : 0;
}

/* What a frame asks for, and for which session.  On a connection without a
 * greeting it is a connect request, whatever it looks like. */
static sight look_at(const conn *c, const char *frame, size_t len) {
  sight at = {.row = -1, .frame = frame, .len = len};
  if (!c->greeted) {
    at.row = row_of(CONNECT);
    at.session = session_wanted(&at);
  } else if (c->session && len >= 8) {
    at.row = row_of(zke_jute_length(frame + 4));
    at.session = c->session->id;
  }
  return at;
}

/* ---- paths ---- */

/* Does a path match a pattern?  A "*" also matches slashes, so one pattern can
 * mean a whole subtree. */
static bool fits(const char *pattern, const char *path) {
  return path && fnmatch(pattern, path, 0) == 0;
}

/* The record of one operation of a multi; all of them begin with the path. */
static const zke_jute_record *record_of(int type) {
  switch (type) {
    case ZKE_JUTE_CREATE:
    case ZKE_JUTE_CREATE2:
    case ZKE_JUTE_CREATE_CONTAINER:
      return &zke_jute_of_create_request;
    case ZKE_JUTE_CREATE_TTL:
      return &zke_jute_of_create_ttl_request;
    case ZKE_JUTE_DELETE:
    case ZKE_JUTE_CHECK:
      return &zke_jute_of_delete_request;
    case ZKE_JUTE_SET_DATA:
      return &zke_jute_of_set_data_request;
    case ZKE_JUTE_GET_DATA:
    case ZKE_JUTE_GET_CHILDREN:
      return &zke_jute_of_read_request;
    default:
      return NULL;
  }
}

/* Does a path of one operation of a multi match? */
static bool some_fits(zke_jute_reader *r, const char *pattern) {
  union {
    const char *path;
    zke_jute_create_ttl_request create;
    zke_jute_delete_request delete;
    zke_jute_set_data_request set;
    zke_jute_read_request read;
  } part = {NULL};
  zke_jute_multi_header head;
  while (zke_jute_read(r, &zke_jute_of_multi_header, &head) && !head.done) {
    const zke_jute_record *record = record_of(head.type);
    if (!record || !zke_jute_read(r, record, &part)) return false;
    if (fits(pattern, part.path)) return true;
  }
  return false;
}

/* Does a path of the request match? */
static bool has_path(const sight *at, const char *pattern) {
  zke_jute_request_header head;
  zke_jute_path_request first;
  zke_jute_reader r;
  enum path_place place = types[at->row].place;
  char *copy = place == NOWHERE ? NULL : open_frame(at, &r);
  bool found = false;
  if (!copy) return false;
  if (!zke_jute_read(&r, &zke_jute_of_request_header, &head))
    found = false;
  else if (place == IN_EACH)
    found = some_fits(&r, pattern);
  else if (zke_jute_read(&r, &zke_jute_of_path_request, &first))
    found = fits(pattern, first.path);
  close_frame(copy, &r);
  return found;
}

/* ------------------------------------------------------------------------
 * Connections
 *
 * What a fault does to a connection, immediately and later.  A connection is
 * deaf or mute until a time, or until it is released; it records which fault
 * did this.
 * --------------------------------------------------------------------- */

/* Closes a connection.  Earlier answers arrive, unless they are held. */
static void hang_up(conn *c) {
  if (c->faults.mute_by)
    conn_drop(c);
  else
    conn_end(c);
}

/* When a hold that starts now ends; 0: when it is released. */
static int64_t end_of(const server *s, const fault *f) {
  return f->for_ms ? s->now_ms + f->for_ms : 0;
}

/* Takes nothing more from the connection.  The latest fault that holds it is
 * the one that releases it. */
static void make_deaf(conn *c, const fault *f, int64_t until_ms) {
  conn_faults *at = &c->faults;
  at->deaf = true;
  at->deaf_by = f->id;
  at->deaf_until_ms = until_ms;
  conn_touch(c);
}

/* Holds everything that is sent from now on. */
static void make_mute(conn *c, const fault *f, int64_t until_ms) {
  conn_faults *at = &c->faults;
  if (!at->mute_by) at->mute_at = c->out.len;
  at->mute_by = f->id;
  at->mute_until_ms = until_ms;
  conn_touch(c);
}

/* Takes the connection's frames again, starting with the held one. */
static void end_deaf(conn *c) {
  c->faults.deaf = false;
  c->faults.deaf_by = 0;
  conn_touch(c);
}

/* Sends the held output of the connection, and all output after it. */
static void end_mute(conn *c) {
  c->faults.mute_by = 0;
  conn_touch(c);
}

/* ------------------------------------------------------------------------
 * At a request
 *
 * The server asks at three moments: before a frame is taken, before a reply is
 * sent, before an event is sent.  Each frame meets the faults once, even if it
 * is looked at again.
 * --------------------------------------------------------------------- */

/* Does the fault apply to this frame, by its type, session and path?  The
 * caller asks this before fires(), which counts, so the path is read only for
 * faults that are not used up. */
static bool applies(const fault *f, const sight *at) {
  if (f->left == 0 || at->row < 0) return false;
  if (!(f->types >> at->row & 1)) return false;
  if (f->session && f->session != at->session) return false;
  return !f->path || has_path(at, f->path);
}

/* Does a fault that applies fire now?  Counts it. */
static bool fires(fault *f) {
  f->seen++;
  if (f->skip > 0) {
    f->skip--;
    return false;
  }
  if (f->left != FAULT_ALWAYS) f->left--;
  return true;
}

/* The fault that fires now; NULL: none. */
static fault *choose(const server *s, const sight *at) {
  for (fault *f = s->faults->first; f; f = f->next)
    if (applies(f, at) && fires(f)) return f;
  return NULL;
}

/* Meets the faults, once for each frame: true if the frame must not be taken
 * now, because the connection is closed or held before it.  Otherwise the
 * request's fate waits in the connection for its reply. */
bool fault_stops(server *s, conn *c, const char *frame, size_t len) {
  if (!s->faults || c->faults.looked) return false;
  c->faults.looked = true;
  sight at = look_at(c, frame, len);
  fault *f = choose(s, &at);
  if (!f) return false;
  if (f->act == ACT_DROP_AFTER)
    c->faults.fate = (fate){FATE_LOST, f->id, 0};
  else if (f->act == ACT_HOLD_REPLY)
    c->faults.fate = (fate){FATE_HELD, f->id, 0};
  else if (f->act == ACT_FAIL)
    c->faults.fate = (fate){FATE_REFUSED, f->id, f->error};
  if (c->faults.fate.what) return false;
  f->fired++;
  if (f->act == ACT_DROP_BEFORE)
    hang_up(c);
  else
    make_deaf(c, f, f->act == ACT_PAUSE ? f->until_ms : end_of(s, f));
  return true;
}

/* Requests after one with a lost reply are not done. */
void fault_taken(conn *c) {
  if (c->faults.fate.what == FATE_LOST) c->faults.deaf = true;
  c->faults.fate = (fate){0};
  c->faults.looked = false;
}

/* Applies a request's fate to its reply; true if the reply is lost.  The fault
 * may have been removed since: then a reply is not held; but a reply to be lost
 * still is, since the client must not learn what it was meant to miss. */
bool fault_answers(server *s, conn *c, const fate *how) {
  fault *f = fault_find(s, how->fault);
  if (f) f->fired++;
  if (how->what == FATE_HELD && f) make_mute(c, f, end_of(s, f));
  if (how->what == FATE_LOST) hang_up(c);
  return how->what == FATE_LOST;
}

/* Only the first that fires counts, as at a request. */
void fault_event(server *s, conn *c, const char *path) {
  for (fault *f = s->faults ? s->faults->first : NULL; f; f = f->next) {
    if (f->act != ACT_HOLD_EVENT || f->left == 0) continue;
    if (f->session && f->session != c->session->id) continue;
    if ((f->path && !fits(f->path, path)) || !fires(f)) continue;
    f->fired++;
    make_mute(c, f, end_of(s, f));
    return;
  }
}

/* An HTTP request is admitted (http_take()). */
bool fault_refuses(server *s, conn *c) {
  if (!s->faults || c->in_len - c->in_at < 4) return false;
  for (fault *f = s->faults->first; f; f = f->next) {
    if (f->act != ACT_OUTAGE || f->left == 0) continue;
    if (f->left != FAULT_ALWAYS) f->left--;
    f->seen++;
    f->fired++;
    conn_drop(c);
    return true;
  }
  return false;
}

/* ------------------------------------------------------------------------
 * The list
 *
 * The faults in the order of their requests.  Numbers are never reused, so an
 * order about a fault that has gone finds nothing.
 * --------------------------------------------------------------------- */

/* Makes the empty list: from now on the server accepts orders.  False without
 * memory. */
bool faults_begin(server *s) {
  s->faults = calloc(1, sizeof *s->faults);
  return s->faults != NULL;
}

/* Frees a fault that is in no list, with its texts. */
static void fault_free(fault *f) {
  free(f->path);
  free(f->line);
  free(f);
}

/* Frees the list and releases the clock; from then on the server has no faults.
 * It may be called for a server that never had any. */
void faults_end(server *s) {
  if (!s->faults) return;
  while (s->faults->first) {
    fault *f = s->faults->first;
    s->faults->first = f->next;
    fault_free(f);
  }
  free(s->faults);
  s->faults = NULL;
  clock_stand(false);
}

/* The fault with a number; NULL if it was removed, or never existed. */
fault *fault_find(const server *s, int id) {
  for (fault *f = s->faults->first; f; f = f->next)
    if (f->id == id) return f;
  return NULL;
}

/* Is it a client's connection, of that session or of any? */
static bool is_of(const conn *c, int64_t session) {
  if (!c->session || c->dropped) return false;
  return !session || c->session->id == session;
}

/* A lasting fault begins immediately, for the existing connections. */
static void begin(server *s, fault *f) {
  f->until_ms = end_of(s, f);
  if (f->act == ACT_OUTAGE) faults_drop(s, 0);
  if (f->act != ACT_PAUSE) return;
  for (conn *c = s->conns; c; c = c->next) {
    if (!is_of(c, f->session)) continue;
    f->fired++;
    make_deaf(c, f, f->until_ms);
    make_mute(c, f, f->until_ms);
  }
}

/* Appends a copy of a fault to the list, so that faults are met in the order of
 * their requests; the list then owns the texts.  A lasting fault begins
 * immediately.  NULL without memory. */
fault *fault_add(server *s, const fault *wanted) {
  fault *f = malloc(sizeof *f), **end = &s->faults->first;
  if (!f) return NULL;
  *f = *wanted;
  f->next = NULL;
  f->id = ++s->faults->next_id;
  while (*end) end = &(*end)->next;
  *end = f;
  s->faults->count++;
  if (f->act >= ACT_PAUSE) begin(s, f);
  return f;
}

/* Is the hold of fault `by` on the connection meant? */
static bool is_meant(const server *s, const conn *c, int by, int id,
                     int64_t session) {
  if (!by || (id && by != id)) return false;
  const fault *f = fault_find(s, by);
  return !session || (c->session && c->session->id == session) ||
         (f && f->session == session);
}

/* Ends a fault's holds, of one session or of all; number and session 0 stand
 * for any.  The result counts released connections and ended outages, since a
 * test can see those. */
int fault_release(server *s, int id, int64_t session) {
  int count = 0;
  for (conn *c = s->conns; c; c = c->next) {
    bool hears = is_meant(s, c, c->faults.deaf_by, id, session);
    bool speaks = is_meant(s, c, c->faults.mute_by, id, session);
    if (hears) end_deaf(c);
    if (speaks) end_mute(c);
    count += hears || speaks;
  }
  for (fault *f = s->faults->first; f; f = f->next) {
    if (f->act < ACT_PAUSE || f->left == 0 || (id && f->id != id)) continue;
    if (session && f->session != session) continue;
    f->left = 0;
    f->until_ms = 0;
    count += f->act == ACT_OUTAGE;
  }
  return count;
}

/* Removes a fault, or all for 0, and ends its holds; returns how many there
 * were.  The release comes first: no connection may stay held by a fault that
 * can no longer be named. */
int fault_clear(server *s, int id) {
  fault **at = &s->faults->first;
  int count = 0;
  fault_release(s, id, 0);
  while (*at) {
    fault *f = *at;
    if (id && f->id != id) {
      at = &f->next;
      continue;
    }
    *at = f->next;
    fault_free(f);
    s->faults->count--;
    count++;
  }
  return count;
}

/* How many connections the fault holds now.  A connection that is about to be
 * closed does not count. */
int fault_holds(const server *s, const fault *f) {
  int count = 0;
  for (const conn *c = s->conns; c; c = c->next)
    count += !c->dropped &&
             (c->faults.deaf_by == f->id || c->faults.mute_by == f->id);
  return count;
}

/* Closes the connections of a session, or of all for 0, without sending the
 * rest of their output; returns how many.  Their sessions live on and wait for
 * their clients. */
int faults_drop(server *s, int64_t session) {
  int count = 0;
  for (conn *c = s->conns; c; c = c->next) {
    if (!is_of(c, session)) continue;
    conn_drop(c);
    count++;
  }
  return count;
}

/* ------------------------------------------------------------------------
 * Time
 *
 * The server's clock, as its other files see it: real time, plus what was
 * added, while the clock is not stopped.
 * --------------------------------------------------------------------- */

/* A connection that has not yet identified itself has as much time left as
 * before. */
void faults_advance(server *s, int64_t ms) {
  s->now_ms += ms;
  s->faults->advanced_ms += ms;
  clock_move(ms);
  for (conn *c = s->conns; c; c = c->next)
    if (!c->session) c->heard_ms += ms;
}

/* Stops the server's clock and the library's together, or starts both, so that
 * they always agree whether a session is over. */
void faults_stand(server *s, bool stands) {
  s->faults->stands = stands;
  clock_stand(stands);
}

/* How much of the elapsed time counts for sessions: none while the clock is
 * stopped. */
int64_t faults_passed(const server *s, int64_t ms) {
  return s->faults && s->faults->stands ? 0 : ms;
}

/* The time until then, if that is less than so many ms. */
static int64_t sooner(const server *s, int64_t until_ms, int64_t ms) {
  int64_t left = until_ms - s->now_ms;
  if (!until_ms || left >= ms) return ms;
  return left < 0 ? 0 : left;
}

/* How long the server may wait for an event, at most ms: until a fault's time
 * is over, and only a moment while an order waits for its end, which no
 * descriptor reports. */
int64_t faults_pause(const server *s, int64_t ms) {
  enum { LOOK_MS = 10 };
  if (!s->faults || s->faults->stands) return ms;
  for (const fault *f = s->faults->first; f; f = f->next)
    ms = sooner(s, f->until_ms, ms);
  for (const conn *c = s->conns; c; c = c->next) {
    if (c->faults.deaf_by) ms = sooner(s, c->faults.deaf_until_ms, ms);
    if (c->faults.mute_by) ms = sooner(s, c->faults.mute_until_ms, ms);
    if (c->wait.what && ms > LOOK_MS) ms = LOOK_MS;
  }
  return ms;
}

/* Has a time come?  0 means never. */
static bool is_over(const server *s, int64_t until_ms) {
  return until_ms && s->now_ms >= until_ms;
}

/* While the clock is stopped, the library must not end sessions by its own. */
void faults_round(server *s) {
  if (!s->faults) return;
  for (client *at = s->sessions; at && s->faults->stands; at = at->next)
    zke_touch(at->z);
  for (fault *f = s->faults->first; f; f = f->next)
    if (is_over(s, f->until_ms)) fault_release(s, f->id, 0);
  for (conn *c = s->conns; c; c = c->next) {
    if (c->wait.what || c->faults.deaf) c->heard_ms = s->now_ms;
    if (c->faults.deaf_by && is_over(s, c->faults.deaf_until_ms)) end_deaf(c);
    if (c->faults.mute_by && is_over(s, c->faults.mute_until_ms)) end_mute(c);
  }
}
