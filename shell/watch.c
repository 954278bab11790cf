/* watch.c - wait for events of a node
 *
 * The watch is persistent, even for a single event.  It is set before anything
 * is printed or read, so that no event is missed.  Hearing and reporting are
 * separate: the watcher puts events into a list while zke_wait_turn()
 * dispatches, and watch_events() takes them out one by one, which may mean
 * running a command for each.  Start with watch_through().
 *
 * In a coprocess several calls may watch together.  A session has one kind of
 * watch on a path, and a later one would replace it: so there each call has
 * another session on the same store.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "shell.h"
#include "work.h"

enum { KEPT_MOST = 10000 };

/* An event that was heard and not yet reported. */
typedef struct heard {
  struct heard *next;
  int type;
  char path[];
} heard;

/* One call of watch, from its options to its last event. */
typedef struct watching {
  call *c;
  zke *z;
  char *path;
  int mode;       /* ZKE_WATCH_PERSISTENT… */
  unsigned types; /* bits of the selected events */
  bool follow;    /* --follow or --count */
  int64_t most;   /* end after so many reported events */
  int64_t told;
  int64_t deadline;
  /* heard and not reported; the watcher runs only on this thread */
  heard *first, **last;
  int kept;       /* how many */
  bool ended;     /* the session has expired */
  bool no_memory; /* an event is missing */
  int ran;        /* exit code of the last command */
} watching;

/* ------------------------------------------------------------------------
 * Hearing
 *
 * The watcher runs inside zke_wait_turn(), on this thread.  It only keeps the
 * event: reporting may take long, and may run a command that uses the database.
 * --------------------------------------------------------------------- */

/* Drops events that were not reported. */
static void watch_forget(watching *w) {
  while (w->first) {
    heard *h = w->first;
    w->first = h->next;
    free(h);
  }
  w->last = &w->first;
  w->kept = 0;
}

/* The oldest event, for free(); there is one. */
static heard *watch_take(watching *w) {
  heard *h = w->first;
  w->first = h->next;
  if (!w->first) w->last = &w->first;
  w->kept--;
  return h;
}

/* Appends an event.  If there are too many, because the command is slow, all
 * are dropped for one that says so, as zkembed does with a session's unread
 * events. */
static void watch_keep(watching *w, int type, const char *path) {
  if (w->kept == KEPT_MOST) {
    watch_forget(w);
    type = ZKE_EVENT_OVERFLOW;
    path = w->path;
  }
  size_t len = strlen(path);
  heard *h = malloc(sizeof *h + len + 1);
  if (!h) {
    w->no_memory = true;
    return;
  }
  h->next = NULL;
  h->type = type;
  memcpy(h->path, path, len + 1);
  *w->last = h;
  w->last = &h->next;
  w->kept++;
}

/* The watcher: keeps the selected events, and records the session's end. */
static void watch_hear(zke *z, int type, int state, const char *path,
                       void *context) {
  watching *w = context;
  (void)z;
  if (type == ZKE_EVENT_SESSION)
    w->ended |= state == ZKE_STATE_EXPIRED || state == ZKE_STATE_AUTH_FAILED;
  else if (type == ZKE_EVENT_OVERFLOW)
    watch_keep(w, type, w->path);
  else if (w->types >> type & 1)
    watch_keep(w, type, path);
}

/* ------------------------------------------------------------------------
 * Reporting
 *
 * A report has the event's type and its path.  The zxid is read from the node
 * afterwards, so it is that of the latest change: a reader that has seen it has
 * also seen this event's change.
 * --------------------------------------------------------------------- */

/* The word for an event.  "overflow" says that some were dropped, so that the
 * reader has to look again. */
static const char *event_name(int type) {
  switch (type) {
    case ZKE_EVENT_CREATED:
      return "created";
    case ZKE_EVENT_DELETED:
      return "deleted";
    case ZKE_EVENT_CHANGED:
      return "changed";
    case ZKE_EVENT_CHILD:
      return "children";
    case ZKE_EVENT_OVERFLOW:
      return "overflow";
    default:
      return "unknown"; /* never: watch_hear() keeps no others */
  }
}

/* The zxid of the node's last change of that kind, which may be later than the
 * event's; -1: not known. */
static int64_t event_zxid(watching *w, int type, const char *path) {
  zke_stat stat;
  if (type == ZKE_EVENT_DELETED || type == ZKE_EVENT_OVERFLOW ||
      zke_exists(w->z, path, NULL, NULL, &stat) != ZKE_OK)
    return -1;
  return type == ZKE_EVENT_CHILD ? stat.pzxid : stat.mzxid;
}

/* One event as a row.  A negative zxid is unknown and becomes null. */
static json_t *event_row(const char *event, const char *path, int64_t zxid) {
  return json_pack("{s:s,s:o,s:o}", "event", event, "path", value_text(path),
                   "zxid",
                   zxid < 0 ? json_null() : json_integer((json_int_t)zxid));
}

/* A coprocess gets a single event as its answer. */
static int watch_emit(watching *w, json_t *row) {
  return w->follow ? emit_event(w->c, row) : emit_row(w->c, row);
}

/* Runs the command for an event.  Its exit code is recorded for the end, and is
 * not a failure of the watch; a command that cannot be run is one. */
static int watch_run(watching *w, const char *event, const char *path,
                     int64_t zxid) {
  char *texts[4] = {NULL, NULL, NULL, NULL};
  bool made = asprintf(&texts[0], "ZKE_EVENT=%s", event) >= 0 &&
              asprintf(&texts[1], "ZKE_PATH=%s", path) >= 0 &&
              asprintf(&texts[2], "ZKE_STATE=connected") >= 0 &&
              (zxid < 0 ? (texts[3] = strdup("ZKE_ZXID=")) != NULL
                        : asprintf(&texts[3], "ZKE_ZXID=%" PRId64, zxid) >= 0);
  if (made)
    w->ran = guard_event(w->c, (const char *const *)texts, 4);
  else
    no_memory(w->c);
  for (int i = 0; i < 4; i++) free(texts[i]);
  cancel_by(w->c, cancel_wake, w->z);
  return w->c->status;
}

/* Reports one event: by a row, or by running the command. */
static int watch_tell(watching *w, const char *event, const char *path,
                      int64_t zxid) {
  w->told++;
  return w->c->child ? watch_run(w, event, path, zxid)
                     : watch_emit(w, event_row(event, path, zxid));
}

/* Reports the oldest event. */
static int watch_tell_next(watching *w) {
  heard *h = watch_take(w);
  int status = watch_tell(w, event_name(h->type), h->path,
                          event_zxid(w, h->type, h->path));
  free(h);
  return status;
}

/* ------------------------------------------------------------------------
 * Waiting
 *
 * The turn is taken before anything is read.  An event between the read and the
 * sleep changes the turn, and so ends the sleep immediately.
 * --------------------------------------------------------------------- */

/* A signal is the normal end of --follow: the exit code says so, and nothing is
 * printed. */
static int watch_cancelled(watching *w) {
  call *c = w->c;
  int status = fail_cancelled(c);
  if (w->follow && atomic_load(&c->signal)) c->code = NULL;
  return status;
}

/* The time of --wait is over.  With --follow that is the end, and not a failure
 * if an event has come; else the sentence says what did not happen. */
static int watch_late(watching *w) {
  call *c = w->c;
  const char *format = "nothing has happened at %s";
  if (w->told) format = "fewer events than --count came at %s in that time";
  if (option_given(c, 'g')) format = "%s still exists";
  if (option_given(c, 'x')) format = "%s does not exist yet";
  char sentence[sizeof c->sentence];
  if (w->follow && w->told && w->most == INT64_MAX) {
    w->most = w->told;
    return 0;
  }
  snprintf(sentence, sizeof sentence, format, w->path);
  return fail_with(c, STATUS_CONFLICT, "OPERATIONTIMEOUT", "%s", sentence);
}

/* Waits for a change; 0, or the exit code of whatever ends the watch. */
static int watch_sleep(watching *w, int64_t turn) {
  if (cancel_came(w->c)) return watch_cancelled(w);
  if (w->no_memory) return no_memory(w->c);
  if (w->ended)
    return fail_with(w->c, STATUS_LOST, "SESSIONEXPIRED",
                     "the session that watched %s has expired", w->path);
  int rc = zke_wait_turn(w->z, turn, w->deadline);
  if (rc == ZKE_OPERATIONTIMEOUT) return watch_late(w);
  return rc == ZKE_OK ? 0 : fail_rc(w->c, rc);
}

/* Reports events until there were enough.  After a signal it reports no more,
 * even if some were heard. */
static int watch_events(watching *w) {
  int status = 0;
  while (!status && w->told < w->most) {
    int64_t turn = zke_turn(w->z);
    status = w->first && !cancel_came(w->c) ? watch_tell_next(w)
                                            : watch_sleep(w, turn);
  }
  return status;
}

/* Waits until the node exists, or does not.  Each event only causes a look, so
 * events are dropped. */
static int watch_until(watching *w, bool exists) {
  zke_stat stat = {0};
  for (;;) {
    int64_t turn = zke_turn(w->z);
    int rc = zke_exists(w->z, w->path, NULL, NULL, &stat);
    if (rc != ZKE_OK && rc != ZKE_NONODE) return fail_rc(w->c, rc);
    if ((rc == ZKE_OK) == exists)
      return watch_tell(w, exists ? "exists" : "gone", w->path,
                        exists ? stat.mzxid : -1);
    int status = watch_sleep(w, turn);
    if (status) return status;
    watch_forget(w);
  }
}

/* ------------------------------------------------------------------------
 * From start to end
 *
 * A call removes its watch in any case: in a script the session continues, and
 * would hear events for nobody.
 * --------------------------------------------------------------------- */

/* --initial: reports the first look as an event, which does not count.  The
 * watch is set before it, so that no change is missed. */
static int watch_initial(watching *w, int64_t zxid) {
  if (!option_given(w->c, 'i')) return 0;
  int status = watch_tell(w, "initial", w->path, zxid);
  w->told = 0;
  return status;
}

/* Sets the watch and prints that: a program that reads the node after this line
 * misses nothing. */
static int watch_begin(watching *w) {
  zke_stat stat;
  int rc = zke_add_watch(w->z, w->path, w->mode, watch_hear, w);
  if (rc != ZKE_OK) return fail_rc(w->c, rc);
  rc = zke_exists(w->z, w->path, NULL, NULL, &stat);
  if (rc != ZKE_OK && rc != ZKE_NONODE) return fail_rc(w->c, rc);
  verbose_say(w->c, "watching %s%s", w->path,
              rc == ZKE_OK ? "" : ", which is missing");
  int64_t zxid = rc == ZKE_OK ? stat.mzxid : -1;
  int status = 0;
  if (!w->c->child && (w->follow || w->c->id))
    status = emit_event(w->c, event_row("watching", w->path, zxid));
  return status ? status : watch_initial(w, zxid);
}

/* Sets the watch, waits, removes it; the exit code. */
static int watch_through(watching *w) {
  call *c = w->c;
  bool until = option_given(c, 'x') || option_given(c, 'g');
  int status = watch_begin(w);
  cancel_by(c, cancel_wake, w->z);
  if (!status)
    status = until ? watch_until(w, option_given(c, 'x')) : watch_events(w);
  cancel_by(c, NULL, NULL);
  zke_forget(w->z, watch_hear, w);
  watch_forget(w);
  return status ? status : w->ran;
}

/* In a coprocess, begins a session for this call. */
static int watch_session(watching *w) {
  call *c = w->c;
  w->z = c->z;
  if (!c->sh->coprocess) return watch_through(w);
  zke_options o = c->sh->options;
  int rc = zke_open_session(c->z, &o, &w->z);
  if (rc != ZKE_OK) return fail_rc(c, rc);
  pthread_mutex_lock(&c->sh->m);
  int status = session_authenticate(c, w->z);
  pthread_mutex_unlock(&c->sh->m);
  if (!status) status = watch_through(w);
  zke_close(w->z);
  return status;
}

/* Reads which events count, how many, and how long; 0 or STATUS_USAGE. */
static int watch_options(watching *w) {
  call *c = w->c;
  const unsigned own = 1u << ZKE_EVENT_CREATED | 1u << ZKE_EVENT_CHANGED |
                       1u << ZKE_EVENT_DELETED,
                 child = 1u << ZKE_EVENT_CHILD;
  bool until = option_given(c, 'x') || option_given(c, 'g');
  if (option_given(c, 'c') + option_given(c, 'd') + option_given(c, 'R') +
          option_given(c, 'x') + option_given(c, 'g') >
      1)
    return fail_usage(
        c,
        "only one of --children, --data, -R, --exists and --gone can be given");
  if (until &&
      (option_given(c, 'f') || option_given(c, 'n') || option_given(c, 'i')))
    return fail_usage(
        c, "--exists and --gone go with neither --follow nor --initial");
  w->mode = option_given(c, 'R') ? ZKE_WATCH_PERSISTENT_RECURSIVE
                                 : ZKE_WATCH_PERSISTENT;
  w->types = own | child;
  if (option_given(c, 'd')) w->types = own;
  if (option_given(c, 'c')) w->types = child | 1u << ZKE_EVENT_DELETED;
  w->follow = option_given(c, 'f') || option_given(c, 'n');
  int status = option_number(c, 'n', 1, INT64_MAX,
                             option_given(c, 'f') ? INT64_MAX : 1, &w->most);
  return status ? status : option_deadline(c, 'w', &w->deadline);
}

/* watch */
static int watch_run_call(call *c) {
  watching w = {.c = c, .last = &w.first};
  int status = watch_options(&w);
  if (!status) status = arg_path(c, 0, &w.path);
  if (!status) status = watch_session(&w);
  free(w.path);
  return status;
}

/* One line for an event. */
static void watch_human(call *c, json_t *row, FILE *out) {
  (void)c;
  const char *event = json_string_value(json_object_get(row, "event"));
  fprintf(out, "%-8s  ", event);
  output_text(NULL, json_object_get(row, "path"), out);
  if ((strcmp(event, "watching") == 0 || strcmp(event, "initial") == 0) &&
      json_is_null(json_object_get(row, "zxid")))
    fputs(", which is missing", out);
  fputc('\n', out);
}

static const option watch_options_table[] = {
    {'c', "children", NULL}, {'d', "data", NULL}, {'R', "recursive", NULL},
    {'x', "exists", NULL},   {'g', "gone", NULL}, {'f', "follow", NULL},
    {'i', "initial", NULL},  {'n', "count", "N"}, {'w', "wait", "DURATION"},
    {'\0', NULL, NULL}};

const command watch_commands[] = {
    {"watch",
     "[--data | --children | -R | --exists | --gone] [--follow] "
     "[--initial] [--count N] [--wait DURATION] PATH [-- CMD ARGS…]",
     "wait until something happens to a node; print it, or run a command",
     watch_options_table, 1, 1, NEEDS_SESSION | TAKES_CHILD, STYLE_LINE,
     watch_run_call, watch_human},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
