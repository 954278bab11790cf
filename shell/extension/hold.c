/* hold.c - locks, semaphores and elections in SQL
 *
 * They are several kinds of one thing: the connection joins a line, waits, and
 * holds until it releases it or its session ends.  A struct kind has the
 * recipe's functions.
 */
#include "extension.h"

#include <string.h>

#include "../../recipes/election.h"
#include "../../recipes/lock.h"
#include "../../recipes/periodic.h"
#include "../../recipes/semaphore.h"

/* A recipe for this file. */
typedef struct kind {
  ext_sort sort;
  const char *base, *name; /* names without a slash are below the base */
  const char *had;         /* its participle: "held" */
  int (*acquire)(void *object, int64_t deadline);
  int (*join)(void *object); /* joins the line without waiting; or NULL */
  int (*release)(void *object, int status); /* the status is for a job */
  int (*cancel)(void *object);
  int64_t (*token)(void *object);
  int (*parties)(zke *z, const char *path, zke_party_list **list);
} kind;

/* ---- the kinds ---- */

#define FORWARD(name, give_up)                                           \
  static int name##_release(void *o, int status) {                       \
    (void)status;                                                        \
    return give_up((zke_##name *)o);                                     \
  }                                                                      \
  static int name##_cancel(void *o) { return zke_##name##_cancel(o); }   \
  static int64_t name##_token(void *o) { return zke_##name##_token(o); } \
  static void name##_free(void *o) { zke_##name##_free(o); }

FORWARD(lock, zke_lock_release)
FORWARD(semaphore, zke_semaphore_release)
FORWARD(election, zke_election_resign)

static int lock_make(ext_call *c, const char *path, void **object) {
  zke_lock *made = NULL;
  int rc = zke_lock_new(c->k->z, path, NULL, &made);
  *object = made;
  return rc;
}

static int lock_acquire(void *o, int64_t deadline) {
  return zke_lock_acquire(o, deadline);
}

static int lock_join(void *o) {
  int is = zke_lock_state(o);
  bool in = is == ZKE_LOCK_WAITING || is == ZKE_LOCK_HELD;
  return in ? ZKE_OK : zke_lock_start(o);
}

/* The second argument is its limit. */
static int semaphore_make(ext_call *c, const char *path, void **object) {
  zke_semaphore_options o = ZKE_INIT(zke_semaphore_options);
  zke_semaphore *made = NULL;
  o.limit = (int)ext_int(c, 1, 0);
  int rc = zke_semaphore_new(c->k->z, path, &o, &made);
  *object = made;
  return rc;
}

static int semaphore_acquire(void *o, int64_t deadline) {
  return zke_semaphore_acquire(o, 1, deadline);
}

static int semaphore_join(void *o) {
  int is = zke_semaphore_state(o);
  bool in = is == ZKE_SEMAPHORE_WAITING || is == ZKE_SEMAPHORE_HELD;
  return in ? ZKE_OK : zke_semaphore_start(o, 1);
}

/* The second argument is the candidate's name. */
static int election_make(ext_call *c, const char *path, void **object) {
  zke_election_options o = ZKE_INIT(zke_election_options);
  zke_election *made = NULL;
  o.name = ext_text(c, 1);
  int rc = zke_election_new(c->k->z, path, &o, &made);
  *object = made;
  return rc;
}

/* A leader in SQL needs no preparation, so it is ready immediately. */
static int election_acquire(void *o, int64_t deadline) {
  int rc = zke_election_lead(o, deadline);
  return rc == ZKE_OK ? zke_election_ready(o) : rc;
}

static int election_join(void *o) {
  int is = zke_election_state(o);
  bool in = is == ZKE_ELECTION_READY || is == ZKE_ELECTION_ELECTED;
  int rc = in ? ZKE_OK : zke_election_start(o);
  return rc == ZKE_OK && zke_election_token(o) ? zke_election_ready(o) : rc;
}

/* The second argument is its period. */
static int periodic_make(ext_call *c, const char *path, void **object) {
  zke_periodic_options o = ZKE_INIT(zke_periodic_options);
  zke_periodic *made = NULL;
  const char *slash = strrchr(path, '/');
  char *base = sqlite3_mprintf("%.*s", (int)(slash - path), path);
  o.period_ms = ext_int(c, 1, 0);
  int rc = base ? zke_periodic_new(c->k->z, base, slash + 1, &o, &made)
                : ext_nomem();
  sqlite3_free(base);
  *object = made;
  return rc;
}

static int periodic_acquire(void *o, int64_t deadline) {
  return zke_periodic_acquire(o, deadline);
}

static int periodic_release(void *o, int status) {
  return zke_periodic_release(o, status);
}

static int periodic_cancel(void *o) { return zke_periodic_cancel(o); }
static int64_t periodic_token(void *o) { return zke_periodic_token(o); }
static void periodic_free(void *o) { zke_periodic_free(o); }

#define KIND(name, base, had, join, parties)                            \
  {                                                                     \
    {name##_make, name##_free}, base, #name, had, name##_acquire, join, \
        name##_release, name##_cancel, name##_token, parties            \
  }

static const kind locks =
                      KIND(lock, "locks", "held", lock_join, zke_lock_parties),
                  semaphores = KIND(semaphore, "semaphores", "held",
                                    semaphore_join, zke_semaphore_parties),
                  elections = KIND(election, "elections", "held", election_join,
                                   zke_election_parties),
                  jobs = KIND(periodic, "jobs", "run", NULL, NULL);

/* ---- the connection's holds ---- */

/* Its kind; NULL: it does not belong to this file. */
static const kind *kind_of(const ext_owned *o) {
  const kind *const all[] = {&locks, &semaphores, &elections, &jobs};
  for (int i = 0; i < 4; i++)
    if (o->is == &all[i]->sort) return all[i];
  return NULL;
}

ext_hold ext_held_at(const ext_connection *k, int at) {
  for (const ext_owned *o = k->owned; o; o = o->next) {
    const kind *is = kind_of(o);
    if (is && at-- == 0)
      return (ext_hold){is->name, o->path, is->token(o->object)};
  }
  return (ext_hold){0};
}

/* The one that the first argument names; makes it if there is none. */
static int get(ext_call *c, const kind *is, ext_owned ***out) {
  char *path;
  int rc = ext_path(c, 0, is->base, &path);
  if (rc == ZKE_OK) rc = ext_owned_get(c, &is->sort, path, out);
  sqlite3_free(path);
  return rc;
}

/* ---- in and out ---- */

/* Joins the line and waits, interruptibly.  If interrupted, it holds
 * nothing. */
static int acquire(ext_call *c, const kind *is, void *object,
                   int64_t deadline) {
  ext_patience p = {.c = c, .cancel = is->cancel, .object = object};
  int rc = ext_patience_begin(&p);
  if (rc == ZKE_OK) rc = is->acquire(object, deadline);
  int ended = ext_patience_end(&p);
  if (ended == ZKE_OK) return rc;
  if (rc == ZKE_OK) is->release(object, 1); /* a job has failed */
  return ended;
}

/* Holds it: returns its token, or NULL at the deadline. */
static int take(ext_call *c, const kind *is, int64_t deadline) {
  ext_owned **at;
  int rc = get(c, is, &at);
  if (rc == ZKE_OK && is->token((*at)->object))
    rc = zke_fail(ZKE_MISUSE, "%s(): this connection holds %s already",
                  c->function->name, (*at)->path);
  if (rc != ZKE_OK) return rc;
  rc = acquire(c, is, (*at)->object, deadline);
  if (rc == ZKE_OK) {
    sqlite3_result_int64(c->sql, is->token((*at)->object));
    return ZKE_OK;
  }
  if (rc != ZKE_MISUSE) ext_owned_remove(at); /* misuse: it waits already */
  return ext_say_waited(c, rc);
}

/* Joins the line, or checks again: its token once it is held, NULL before. */
static int join(ext_call *c, const kind *is) {
  ext_owned **at;
  int rc = get(c, is, &at);
  if (rc == ZKE_OK) rc = ext_dispatch(c->k); /* its turn? */
  if (rc == ZKE_OK) rc = is->join((*at)->object);
  if (rc != ZKE_OK) return rc;
  int64_t token = is->token((*at)->object);
  if (token) sqlite3_result_int64(c->sql, token);
  return ZKE_OK;
}

/* Releases it, or the place in the line.  The status is for a job. */
static int give_up(ext_call *c, const kind *is, int status) {
  char *path;
  int rc = ext_path(c, 0, is->base, &path);
  if (rc != ZKE_OK) return rc;
  ext_owned **at = ext_owned_find(c->k, &is->sort, path);
  rc = *at ? is->release((*at)->object, status)
           : zke_fail(ZKE_LOST, "%s is not %s by this connection", path,
                      is->had);
  bool held = *at && is->token((*at)->object); /* as a job after a failure */
  if (*at && !held) ext_owned_remove(at);
  sqlite3_free(path);
  return ext_done(c, rc);
}

/* The holder's name, else its process; NULL: none. */
static int holder(ext_call *c, const kind *is) {
  char *path;
  zke_party_list *list = NULL;
  int rc = ext_path(c, 0, is->base, &path);
  if (rc == ZKE_OK) rc = is->parties(c->k->z, path, &list);
  sqlite3_free(path);
  const zke_party *p = rc == ZKE_OK && list->count > 0 ? list->data : NULL;
  if (p && p->held) {
    const char *shown = p->len > 0 ? p->data : p->identity;
    sqlite3_result_text(c->sql, shown, p->len > 0 ? p->len : -1,
                        SQLITE_TRANSIENT);
  }
  zke_free(list);
  return rc;
}

/* zke_lock(name [, ms]), zke_semaphore(name, limit [, ms]),
 * zke_elect(name, candidate [, ms]) */
static int run_lock(ext_call *c) { return take(c, &locks, ext_until(c, 1)); }

static int run_semaphore(ext_call *c) {
  return take(c, &semaphores, ext_until(c, 2));
}

static int run_elect(ext_call *c) {
  return take(c, &elections, ext_until(c, 2));
}

/* zke_once(job, period_ms [, ms]): the run's token if it is due and no other
 * process has it; without ms it does not wait until then. */
static int run_once(ext_call *c) {
  return take(c, &jobs, c->count > 2 ? ext_until(c, 2) : 0);
}

/* zke_once_done(job [, status]): 1; the run has ended, successfully with 0. */
static int run_once_done(ext_call *c) {
  return give_up(c, &jobs, (int)ext_int(c, 1, 0));
}

static int run_lock_join(ext_call *c) { return join(c, &locks); }
static int run_semaphore_join(ext_call *c) { return join(c, &semaphores); }
static int run_elect_join(ext_call *c) { return join(c, &elections); }

static int run_unlock(ext_call *c) { return give_up(c, &locks, 0); }
static int run_signal(ext_call *c) { return give_up(c, &semaphores, 0); }
static int run_resign(ext_call *c) { return give_up(c, &elections, 0); }

static int run_holder(ext_call *c) { return holder(c, &locks); }
static int run_leader(ext_call *c) { return holder(c, &elections); }

const ext_function ext_lines[] = {
    {"zke_lock", 1, "tn", EXT_WAITS, run_lock},
    {"zke_lock_join", 1, "t", EXT_WAITS, run_lock_join},
    {"zke_unlock", 1, "t", EXT_CHANGES, run_unlock},
    {"zke_holder", 1, "t", EXT_READS, run_holder},
    {"zke_semaphore", 2, "tin", EXT_WAITS, run_semaphore},
    {"zke_semaphore_join", 2, "ti", EXT_WAITS, run_semaphore_join},
    {"zke_semaphore_release", 1, "t", EXT_CHANGES, run_signal},
    {"zke_elect", 2, "ttn", EXT_WAITS, run_elect},
    {"zke_elect_join", 2, "tt", EXT_WAITS, run_elect_join},
    {"zke_resign", 1, "t", EXT_CHANGES, run_resign},
    {"zke_leader", 1, "t", EXT_READS, run_leader},
    {"zke_once", 2, "tnn", EXT_WAITS, run_once},
    {"zke_once_done", 1, "ti", EXT_CHANGES, run_once_done},
    {0}};
