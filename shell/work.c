/* work.c - shared by commands that wait, hold and look
 *
 * Waiting with a deadline and a cancel (wait_session()), sentences of
 * --verbose, places of recipes, and objects that a session holds while another
 * call may still use them (shared_…()).
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../recipes/lock.h"
#include "work.h"

/* ------------------------------------------------------------------------
 * Waiting
 *
 * A wait ends at its deadline, by a cancel of the call, by the caller's
 * function, or with the session.  A patience has the values of --wait,
 * --nonblock, -E and --verbose.
 * --------------------------------------------------------------------- */

int cancel_wake(void *z) { return zke_wake(z); }

/* Reads and checks them; the deadline counts from here. */
int patience_of(call *c, patience *p) {
  int64_t conflict = STATUS_CONFLICT;
  int status = option_deadline(c, 'w', &p->deadline);
  if (option_given(c, 'N')) p->deadline = 0;
  if (!status)
    status = option_number(c, 'E', 0, 255, STATUS_CONFLICT, &conflict);
  p->conflict = (int)conflict;
  return status;
}

/* A conflict gets the exit code of -E, and with --quiet no message. */
int fail_wait(call *c, const patience *p, int rc) {
  if (rc == ZKE_CANCELLED && cancel_came(c)) return fail_cancelled(c);
  int status = status_of(rc);
  if (status == STATUS_CONFLICT) {
    status = p->conflict;
    if (status == STATUS_OK || (c->sh->quiet && !c->id)) return status;
  }
  return fail_with(c, status, zke_error_name(rc) + strlen("ZKE_"), "%s",
                   zke_errmsg());
}

/* The turn is read before stop() is called, so that a change between that call
 * and the sleep ends the sleep. */
int wait_session(call *c, bool (*stop)(void *), void *arg, int64_t deadline) {
  int rc = ZKE_OK;
  cancel_by(c, cancel_wake, c->z);
  for (;;) {
    int64_t turn = zke_turn(c->z);
    if (cancel_came(c)) rc = ZKE_CANCELLED;
    if (rc != ZKE_OK) break;
    if (stop && stop(arg)) break;
    rc = zke_wait_turn(c->z, turn, deadline);
  }
  cancel_by(c, NULL, NULL);
  return rc;
}

/* As wait_session(), for commands without a result of their own. */
int wait_for_cancel(call *c, bool (*stop)(void *), void *arg,
                    int64_t deadline) {
  int rc = wait_session(c, stop, arg, deadline);
  if (rc == ZKE_CANCELLED) return fail_cancelled(c);
  return rc == ZKE_OK || (stop && stop(arg)) ? 0 : fail_rc(c, rc);
}

/* A temporary failure is no reason to release anything.  The signal is
 * recorded, and main() dies by it. */
int held_until_signal(call *c, bool (*stop)(void *), void *arg) {
  int rc;
  do rc = wait_session(c, stop, arg, ZKE_FOREVER);
  while (wait_passes(rc));
  if (rc != ZKE_CANCELLED) return rc == ZKE_OK ? 0 : fail_rc(c, rc);
  pthread_mutex_lock(&c->sh->m);
  int signal = c->sh->died_by = atomic_load(&c->signal);
  pthread_mutex_unlock(&c->sh->m);
  return STATUS_SIGNAL + signal;
}

/* ------------------------------------------------------------------------
 * Messages for people
 *
 * --verbose prints sentences on standard error, but not in a coprocess.
 * --------------------------------------------------------------------- */

bool verbose_wanted(const call *c) {
  return (c->sh->verbose || option_given(c, 'v')) && !c->id &&
         c->format == FORMAT_HUMAN;
}

/* It may contain other processes' names, and goes to a terminal. */
void verbose_say(const call *c, const char *format, ...) {
  char text[2048];
  va_list arguments;
  if (!verbose_wanted(c)) return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  signals_printing();
  fputs("zke: ", stderr);
  output_sentence(text, stderr);
  fputc('\n', stderr);
  signals_printing();
}

/* The sentence is copied, since other calls may replace it. */
void loss_note(loss *l, call *c, const char *kind, const char *path) {
  l->kind = kind;
  l->path = path;
  snprintf(l->why, sizeof l->why, "%s", zke_errmsg());
  l->ms = zke_wall(c->z);
}

/* Has this party stolen the lost lock?  A thief's znode has a special kind.  A
 * thief that came after the loss was noticed stole it from a later holder; and
 * one that has just ended no longer has a name. */
static bool is_thief(const zke_party *p, const loss *l) {
  return p->held && strcmp(p->kind, "front-") == 0 && p->queued_ms <= l->ms &&
         *p->identity;
}

/* Leaves out what cannot be read, for example after the session's end. */
void loss_text(call *c, const loss *l, char *text, size_t size) {
  enum { MOST_MS = 1000 };
  zke_party_list *list = NULL;
  snprintf(text, size, "the %s %s was lost (%s)", l->kind, l->path, l->why);
  if (strcmp(l->kind, "lock") != 0) return;
  int64_t before = zke_limit(c->z, zke_now(c->z) + MOST_MS);
  int rc = zke_lock_parties(c->z, l->path, &list);
  zke_limit(c->z, before);
  if (rc != ZKE_OK) return;
  const zke_party *first = list->count ? &list->data[0] : NULL;
  if (first && is_thief(first, l))
    snprintf(text, size, "the lock %s was lost (stolen by %s, pid %" PRId64 ")",
             l->path, first->identity, first->pid);
  zke_free(list);
}

/* At most MOST bytes, cut between two characters. */
char *child_label(const call *c) {
  enum { MOST = 1000 };
  size_t len = 0;
  for (int i = 0; i < c->child_count; i++) len += c->child[i].len + 1;
  char *label = malloc(len + 1), *to = label;
  if (!label) return NULL;
  for (int i = 0; i < c->child_count; i++) {
    if (i) *to++ = ' ';
    to = stpcpy(to, c->child[i].text);
  }
  *to = '\0';
  if (len > MOST) {
    to = label + MOST;
    while (to > label && (*to & 0xc0) == 0x80) to--; /* no half character */
    *to = '\0';
  }
  return label;
}

json_t *value_time(int64_t ms) { return ms ? json_integer(ms) : json_null(); }

/* Only in the human format, and not in a coprocess. */
json_t *value_for_people(const call *c, json_t *row) {
  const char *name;
  json_t *value;
  void *next;
  if (!row || c->format != FORMAT_HUMAN || c->id) return row;
  json_object_foreach_safe(row, next, name, value) {
    bool empty = json_is_null(value) ||
                 (json_is_array(value) && json_array_size(value) == 0) ||
                 (json_is_string(value) && json_string_length(value) == 0);
    if (empty) json_object_del(row, name);
  }
  return row;
}

/* ------------------------------------------------------------------------
 * A directory and a name
 *
 * Recipes with objects in one directory need it in two pieces.
 * --------------------------------------------------------------------- */

/* One block has the path twice: whole, and cut at its last slash. */
int place_of(call *c, int i, const char *base, place *p) {
  char *path;
  int status = arg_place(c, i, base, &path);
  if (status) return status;
  /* Both texts in sequence: the path whole, and again in two. */
  size_t len = strlen(path);
  p->base = malloc(2 * len + 3);
  if (!p->base) {
    free(path);
    return no_memory(c);
  }
  char *copy = p->base + len + 2;
  memcpy(copy, path, len + 1);
  memcpy(p->base, path, len + 1);
  free(path);
  char *slash = strrchr(p->base, '/');
  p->path = copy;
  p->name = copy + (slash - p->base) + 1;
  slash[slash == p->base] = '\0';
  return 0;
}

/* ------------------------------------------------------------------------
 * Objects that a session holds
 *
 * An object that is in the session's list while calls use it has a reference
 * count.  The list has one reference; the last to be dropped destroys the
 * object.
 * --------------------------------------------------------------------- */

/* The caller has the first reference. */
void shared_init(shared *s, void (*destroy)(void *object)) {
  atomic_init(&s->refs, 1);
  s->destroy = destroy;
}

/* Drops a reference; the last one destroys.  NULL is fine. */
void shared_drop(void *object) {
  shared *s = object;
  if (s && atomic_fetch_sub(&s->refs, 1) == 1) s->destroy(object);
}

typedef struct search {
  const held_class *class_;
  const char *path;
  shared *found;
} search;

/* Takes a reference under the shell's mutex, so that the object cannot be freed
 * meanwhile. */
static void search_one(void *arg, const held_class *class_, const char *path,
                       void *object) {
  search *s = arg;
  if (s->found || class_ != s->class_ || strcmp(path, s->path) != 0) return;
  s->found = object;
  atomic_fetch_add(&s->found->refs, 1);
}

/* This session's object at the path, with a reference for the caller; NULL for
 * none. */
void *shared_held(call *c, const held_class *class_, const char *path) {
  search s = {class_, path, NULL};
  held_each(c->sh, search_one, &s);
  return s.found;
}
