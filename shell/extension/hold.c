/* hold.c - locks, semaphores and elections in SQL
 *
 * They are one thing in several kinds: the connection joins a line, waits, and
 * holds until it gives it up or its session ends.  A struct kind has the
 * recipe's functions.
 */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

#include "../../recipes/election.h"
#include "../../recipes/lock.h"
#include "../../recipes/periodic.h"
#include "../../recipes/semaphore.h"

/* A recipe as this file needs it. */
typedef struct kind {
  const char *base, *name; /* names without a slash are below the base */
  int (*make)(ext_call *c, const char *path, void **object);
  int (*acquire)(void *object, int64_t deadline);
  int (*join)(void *object); /* the line, without waiting; or NULL */
  int (*release)(void *object);
  int (*cancel)(void *object);
  int64_t (*token)(void *object);
  void (*free_)(void *object);
  int (*parties)(zke *z, const char *path, zke_party_list **list);
} kind;

/* What the connection holds, or waits for. */
struct ext_held {
  const kind *kind;
  void *object;
  ext_held *next;
  char path[];
};

/* ---- the kinds ---- */

#define FORWARD(name, give_up)                                            \
  static int name##_release(void *o) { return give_up((zke_##name *)o); } \
  static int name##_cancel(void *o) { return zke_##name##_cancel(o); }    \
  static int64_t name##_token(void *o) { return zke_##name##_token(o); }  \
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

/* A leader in SQL needs no preparation, so it is ready at once. */
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

/* It was interrupted: the run has failed. */
static int periodic_release(void *o) { return zke_periodic_release(o, 1); }
static int periodic_cancel(void *o) { return zke_periodic_cancel(o); }
static int64_t periodic_token(void *o) { return zke_periodic_token(o); }
static void periodic_free(void *o) { zke_periodic_free(o); }

#define KIND(name, base, join, parties)                             \
  {                                                                 \
    base, #name, name##_make, name##_acquire, join, name##_release, \
        name##_cancel, name##_token, name##_free, parties           \
  }

static const kind locks = KIND(lock, "locks", lock_join, zke_lock_parties);
static const kind semaphores =
    KIND(semaphore, "semaphores", semaphore_join, zke_semaphore_parties);
static const kind elections =
    KIND(election, "elections", election_join, zke_election_parties);
static const kind jobs = KIND(periodic, "jobs", NULL, NULL);

/* ---- what the connection has ---- */

/* The place in its list, or that at the end. */
static ext_held **find(ext_connection *k, const kind *is, const char *path) {
  ext_held **at = &k->held;
  while (*at && !((*at)->kind == is && strcmp((*at)->path, path) == 0))
    at = &(*at)->next;
  return at;
}

static void remove_held(ext_held **at) {
  ext_held *h = *at;
  *at = h->next;
  h->kind->free_(h->object);
  free(h);
}

static void free_held(ext_connection *k) {
  while (k->held) remove_held(&k->held);
}

ext_hold ext_held_at(const ext_connection *k, int at) {
  const ext_held *h = k->held;
  while (h && at-- > 0) h = h->next;
  if (!h) return (ext_hold){0};
  return (ext_hold){h->kind->name, h->path, h->kind->token(h->object)};
}

/* The object at a path, which is made if there is none. */
static int get(ext_call *c, const kind *is, const char *path, ext_held ***out) {
  ext_held **at = find(c->k, is, path);
  *out = at;
  if (*at) return ZKE_OK;
  size_t size = strlen(path) + 1;
  ext_held *h = calloc(1, sizeof *h + size);
  if (!h) return ext_nomem();
  h->kind = is;
  memcpy(h->path, path, size);
  int rc = is->make(c, path, &h->object);
  c->k->held_free = free_held;
  if (rc == ZKE_OK)
    *at = h;
  else
    free(h);
  return rc;
}

/* ---- in and out ---- */

/* Join the line and wait, patiently.  Interrupted, it holds nothing. */
static int acquire(ext_call *c, ext_held *h, int64_t deadline) {
  ext_patience p = {.c = c, .cancel = h->kind->cancel, .object = h->object};
  int rc = ext_patience_begin(&p);
  if (rc == ZKE_OK) rc = h->kind->acquire(h->object, deadline);
  int ended = ext_patience_end(&p);
  if (ended == ZKE_OK) return rc;
  if (rc == ZKE_OK) h->kind->release(h->object);
  return ended;
}

/* Hold it: its token, or NULL at the deadline. */
static int take(ext_call *c, const kind *is, int64_t deadline) {
  char *path;
  ext_held **at;
  int rc = ext_path(c, 0, is->base, &path);
  if (rc == ZKE_OK) rc = get(c, is, path, &at);
  sqlite3_free(path);
  if (rc == ZKE_OK && is->token((*at)->object))
    rc = zke_fail(ZKE_MISUSE, "%s(): this connection holds %s already",
                  c->function->name, (*at)->path);
  if (rc != ZKE_OK) return rc;
  rc = acquire(c, *at, deadline);
  if (rc == ZKE_OK) {
    sqlite3_result_int64(c->sql, is->token((*at)->object));
    return ZKE_OK;
  }
  if (rc != ZKE_MISUSE) remove_held(at); /* misuse: it waits already */
  return ext_say_waited(c, rc);
}

/* Join the line, or look again: its token once it is held, NULL before. */
static int join(ext_call *c, const kind *is) {
  char *path;
  ext_held **at;
  int rc = ext_path(c, 0, is->base, &path);
  if (rc == ZKE_OK) rc = get(c, is, path, &at);
  sqlite3_free(path);
  int called;
  if (rc == ZKE_OK) rc = zke_dispatch(c->k->z, &called); /* its turn may be */
  if (rc == ZKE_OK) rc = is->join((*at)->object);
  if (rc != ZKE_OK) return rc;
  int64_t token = is->token((*at)->object);
  if (token) sqlite3_result_int64(c->sql, token);
  return ZKE_OK;
}

/* Give it up, or the place in the line. */
static int give_up(ext_call *c, const kind *is) {
  char *path;
  int rc = ext_path(c, 0, is->base, &path);
  if (rc != ZKE_OK) return rc;
  ext_held **at = find(c->k, is, path);
  rc = *at ? is->release((*at)->object)
           : zke_fail(ZKE_LOST, "%s is not held by this connection", path);
  if (*at) remove_held(at);
  sqlite3_free(path);
  if (rc == ZKE_OK) sqlite3_result_int(c->sql, 1);
  return rc;
}

/* Who holds it: what that shows, else its process; NULL: nobody. */
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

/* zke_once(job, period_ms [, ms]): the run's token if it is due and nobody has
 * it; without ms it does not wait until then. */
static int run_once(ext_call *c) {
  return take(c, &jobs, c->count > 2 ? ext_until(c, 2) : 0);
}

/* zke_once_done(job [, status]): 1; the run has ended, well by 0. */
static int run_once_done(ext_call *c) {
  char *path;
  int rc = ext_path(c, 0, jobs.base, &path);
  if (rc != ZKE_OK) return rc;
  ext_held **at = find(c->k, &jobs, path);
  rc = *at ? zke_periodic_release((*at)->object, (int)ext_int(c, 1, 0))
           : zke_fail(ZKE_LOST, "%s is not run by this connection", path);
  if (*at) remove_held(at);
  sqlite3_free(path);
  if (rc == ZKE_OK) sqlite3_result_int(c->sql, 1);
  return rc;
}

static int run_lock_join(ext_call *c) { return join(c, &locks); }
static int run_semaphore_join(ext_call *c) { return join(c, &semaphores); }
static int run_elect_join(ext_call *c) { return join(c, &elections); }

static int run_unlock(ext_call *c) { return give_up(c, &locks); }
static int run_signal(ext_call *c) { return give_up(c, &semaphores); }
static int run_resign(ext_call *c) { return give_up(c, &elections); }

static int run_holder(ext_call *c) { return holder(c, &locks); }
static int run_leader(ext_call *c) { return holder(c, &elections); }

const ext_function ext_lines[] = {
    {"zke_lock", 1, 2, EXT_WAITS, run_lock},
    {"zke_lock_join", 1, 1, EXT_WAITS, run_lock_join},
    {"zke_unlock", 1, 1, EXT_CHANGES, run_unlock},
    {"zke_holder", 1, 1, EXT_READS, run_holder},
    {"zke_semaphore", 2, 3, EXT_WAITS, run_semaphore},
    {"zke_semaphore_join", 2, 2, EXT_WAITS, run_semaphore_join},
    {"zke_semaphore_release", 1, 1, EXT_CHANGES, run_signal},
    {"zke_elect", 2, 3, EXT_WAITS, run_elect},
    {"zke_elect_join", 2, 2, EXT_WAITS, run_elect_join},
    {"zke_resign", 1, 1, EXT_CHANGES, run_resign},
    {"zke_leader", 1, 1, EXT_READS, run_leader},
    {"zke_once", 2, 3, EXT_WAITS, run_once},
    {"zke_once_done", 1, 2, EXT_CHANGES, run_once_done},
    {0}};
