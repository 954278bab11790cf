/* lock.c - the commands lock, lock take, lock release, rwlock, sem, elect and
 * release
 *
 * lock, rwlock, sem and elect do the same with different recipes: they join the
 * recipe's line, acquire, and hold.  A struct kind has the recipe's functions,
 * so that the code below exists once.  join() is a whole call; start there:
 *
 *     make         the recipe's object; nothing is in the file yet
 *       |
 *     contend      join the line and wait, or try once
 *       |  \------ not got: held by another, out of time ---> -E's code, or 75
 *       |                   signal -------------------------> 128 + its number
 *       |                   anything else ------------------> status_of()
 *     hold         in one of four ways:
 *       |
 *       |-- a command after "--": while it runs (guard.c)
 *       |       the command has ended ----------------------> its exit code
 *       |       what is held was lost meanwhile ------------> 76
 *       |-- one command of a command line: until a signal
 *       |       INT, TERM, HUP ... -------------------------> 128 + its number
 *       |       what is held was lost meanwhile ------------> 76
 *       |-- lock take: the same in a process of its own (take.c), until what it
 *       |   is bound to has ended; the command goes on at once ------> 0
 *       \-- script, prompt, coprocess: until release, or the session's end
 *               continues immediately ----------------------> 0
 *
 * In the last case the object moves into the session's list (held_add()).  In
 * every other case join() frees it, which leaves the line and releases what is
 * still held: so every path out of this file leaves no znode, or one that the
 * session's end removes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../recipes/election.h"
#include "../recipes/lock.h"
#include "../recipes/rwlock.h"
#include "../recipes/semaphore.h"
#include "../recipes/part/text.h"
#include "take.h"
#include "work.h"

/* ------------------------------------------------------------------------
 * The kinds
 *
 * One table of functions for each recipe.  Its make function takes the options
 * of the command.  The sections below know the recipes only by this table,
 * except for a sentence that only one of them needs.
 * --------------------------------------------------------------------- */

/* One call that stands in a line, or will join it. */
typedef struct contender {
  call *c;
  const struct kind *kind;
  void *object; /* the recipe's; NULL: not made, or the session has it */
  char *path;
  char *label; /* shown to others: the command, or an election's name */
  int how;     /* rwlock: the mode; semaphore: permits */
  int limit;   /* semaphore: in all; 0: what the file says */
  bool take;   /* lock take: this is the process that holds */
  bool got;    /* contend() succeeded: it is held */
} contender;

/* A recipe for this file.  All functions but state() return zkembed codes. */
typedef struct kind {
  const char *base;  /* "locks": where names without a slash are */
  const char *held;  /* "is held", for people */
  int waiting;       /* what state() is while it waits */
  held_class class_; /* for the session's list: name, release, free, token */
  int (*make)(contender *k);  /* sets k->object */
  int (*start)(contender *k); /* join the line without waiting: it may
                                 be held then; else acquire() waits there */
  int (*acquire)(contender *k, int64_t deadline); /* join, unless start() has,
                                                     and wait */
  int (*try_)(contender *k);   /* get it without waiting, or leave */
  int (*cancel)(void *object); /* from any thread: end acquire() */
  int (*state)(void *object);  /* last known, without reading the file */
  int (*check)(void *object);  /* reads the file: is it still held? */
  int (*parties)(zke *z, const char *path, zke_party_list **list);
} kind;

/* Functions of the kind that only forward.  The table calls them with an object
 * of unknown type.
 *
 * The listener does nothing, but has to exist: only an object with a listener
 * watches its own znode.  Then a process that takes it away wakes the thread in
 * zke_wait_turn(), and that thread calls check(). */
#define KIND_FUNCTIONS(name, give_up)                                     \
  CANCELLER(name##_give_up, zke_##name, give_up)                          \
  CANCELLER(name##_cancel, zke_##name, zke_##name##_cancel)               \
  CANCELLER(name##_state, zke_##name, zke_##name##_state)                 \
  CANCELLER(name##_check, zke_##name, zke_##name##_check)                 \
  static void name##_destroy(void *object) { zke_##name##_free(object); } \
  static int64_t name##_token(void *o) { return zke_##name##_token(o); }  \
  static void name##_heard(zke_##name *o, int event, int64_t token,       \
                           void *context) {                               \
    (void)o, (void)event, (void)token, (void)context;                     \
  }

KIND_FUNCTIONS(lock, zke_lock_release)
KIND_FUNCTIONS(rwlock, zke_rwlock_release)
KIND_FUNCTIONS(semaphore, zke_semaphore_release)
KIND_FUNCTIONS(election, zke_election_resign)

/* The make functions set k->object, which stays NULL on failure. */
static int lock_make(contender *k) {
  zke_lock_options o = {.size = sizeof o,
                        .data = k->label,
                        .len = (int)strlen(k->label),
                        .listener = lock_heard};
  zke_lock *made = NULL;
  int rc = zke_lock_new(k->c->z, k->path, &o, &made);
  k->object = made;
  return rc;
}

static int lock_start(contender *k) { return zke_lock_start(k->object); }
static int lock_try(contender *k) { return zke_lock_try(k->object); }

/* wait_aloud() may have acquired it by start(): a second acquire would be
 * refused, since it is not reentrant. */
static int lock_acquire(contender *k, int64_t deadline) {
  if (lock_token(k->object)) return ZKE_OK;
  return zke_lock_acquire(k->object, deadline);
}

/* As lock_make(), for a read/write lock; k->how selects the mode at the
 * start. */
static int rwlock_make(contender *k) {
  zke_rwlock_options o = {.size = sizeof o,
                          .data = k->label,
                          .len = (int)strlen(k->label),
                          .listener = rwlock_heard};
  zke_rwlock *made = NULL;
  int rc = zke_rwlock_new(k->c->z, k->path, &o, &made);
  k->object = made;
  return rc;
}

static int rwlock_start(contender *k) {
  return zke_rwlock_start(k->object, k->how);
}
static int rwlock_try(contender *k) {
  return zke_rwlock_try(k->object, k->how);
}
static int rwlock_acquire(contender *k, int64_t deadline) {
  if (rwlock_token(k->object)) return ZKE_OK;
  return zke_rwlock_acquire(k->object, k->how, deadline);
}

/* The same for a semaphore of k->limit permits; 0 takes the file's limit. */
static int semaphore_make(contender *k) {
  zke_semaphore_options o = {.size = sizeof o,
                             .limit = k->limit,
                             .data = k->label,
                             .len = (int)strlen(k->label),
                             .listener = semaphore_heard};
  zke_semaphore *made = NULL;
  int rc = zke_semaphore_new(k->c->z, k->path, &o, &made);
  k->object = made;
  return rc;
}

static int semaphore_start(contender *k) {
  return zke_semaphore_start(k->object, k->how);
}
static int semaphore_try(contender *k) {
  return zke_semaphore_try(k->object, k->how);
}
static int semaphore_acquire(contender *k, int64_t deadline) {
  if (semaphore_token(k->object)) return ZKE_OK;
  return zke_semaphore_acquire(k->object, k->how, deadline);
}

/* The same for an election; the label is the leader's name. */
static int election_make(contender *k) {
  zke_election_options o = {
      .size = sizeof o, .name = k->label, .listener = election_heard};
  zke_election *made = NULL;
  int rc = zke_election_new(k->c->z, k->path, &o, &made);
  k->object = made;
  return rc;
}

static int election_start(contender *k) {
  return zke_election_start(k->object);
}

/* Observers hear of a leader only when it declares itself ready; a command
 * needs no preparation, so this does it immediately. */
static int election_acquire(contender *k, int64_t deadline) {
  int rc = zke_election_lead(k->object, deadline);
  return rc == ZKE_OK ? zke_election_ready(k->object) : rc;
}

/* An election has no try: a wait with a past deadline does the same.  The code
 * is converted to that of the other kinds. */
static int election_try(contender *k) {
  int rc = election_acquire(k, zke_now(k->c->z));
  if (rc != ZKE_OPERATIONTIMEOUT) return rc;
  return zke_fail(ZKE_HELD, "%s", zke_errmsg());
}

#define KIND(name, base, held, waiting)                                        \
  {                                                                            \
    base, held, waiting,                                                       \
        {#name, name##_give_up, name##_destroy, name##_token}, name##_make,    \
        name##_start, name##_acquire, name##_try, name##_cancel, name##_state, \
        name##_check, zke_##name##_parties                                     \
  }

static const kind lock_kind = KIND(lock, "locks", "is held", ZKE_LOCK_WAITING);
static const kind rwlock_kind =
    KIND(rwlock, "rwlocks", "is held", ZKE_RWLOCK_WAITING);
static const kind semaphore_kind =
    KIND(semaphore, "semaphores", "is held", ZKE_SEMAPHORE_WAITING);
static const kind election_kind =
    KIND(election, "elections", "is led", ZKE_ELECTION_READY);

/* ------------------------------------------------------------------------
 * Messages for people
 *
 * All of it is for --verbose and for the human format; programs get only the
 * row of emit_held().  A sentence uses the file's state at that moment, and may
 * be old when it is read.
 * --------------------------------------------------------------------- */

/* Reports how many are in front, and who holds it.  Our own entry is the last
 * one of this session: an entry that the session holds may stand before it.  If
 * nobody is in front any more, this prints nothing. */
static void say_who(const contender *k, const zke_party_list *list) {
  char since[ZKE_RECIPE_WHEN];
  const zke_party *p = list->data;
  const char *before = "", *label = "";
  int own = list->count, len = 0;
  while (own > 0 && p[own - 1].session != zke_session_id(k->c->z)) own--;
  if (own < 2) return;
  if (p->len > 0) {
    before = ": ";
    label = p->data;
    len = p->len;
  }
  zke_recipe_when(p->since_ms, since);
  verbose_say(
      k->c,
      "waiting for the %s %s behind %d; it %s by %s (pid %lld) since %s%s%.*s",
      k->kind->class_.kind, k->path, own - 1, k->kind->held, p->identity,
      (long long)p->pid, since, before, len, label);
}

/* --verbose: joins the line first and then reports who is in front, so that
 * nobody can come between and the report is true. */
static int wait_aloud(contender *k) {
  zke_party_list *list;
  int rc = k->kind->start(k);
  if (rc != ZKE_OK || k->kind->state(k->object) != k->kind->waiting) return rc;
  if (k->kind->parties(k->c->z, k->path, &list) == ZKE_OK) {
    say_who(k, list);
    zke_free(list);
  }
  return ZKE_OK;
}

/* --verbose: at the end, reports how long it took.  Both times are of
 * zke_now(). */
static void say_times(const contender *k, int64_t asked, int64_t had) {
  int64_t now = zke_now(k->c->z);
  verbose_say(k->c, "the %s %s: waited %.3f s, held %.3f s",
              k->kind->class_.kind, k->path, (double)(had - asked) / 1000,
              (double)(now - had) / 1000);
}

/* Prints the row of the result.  A single command then holds it until a signal:
 * so the row is printed immediately, not at the command's end. */
static int emit_held(contender *k) {
  call *c = k->c;
  json_t *row = json_pack("{s:o*,s:s,s:I,s:o*}", "path", value_text(k->path),
                          "kind", k->kind->class_.kind, "token",
                          (json_int_t)k->kind->class_.token(k->object),
                          "session", value_session(zke_session_id(c->z)));
  return c->sh->persists ? emit_row(c, row) : emit_event(c, row);
}

/* "lock /locks/x, token 5" */
static void held_human(call *c, json_t *row, FILE *out) {
  (void)c;
  fprintf(out, "%s %s, token %" JSON_INTEGER_FORMAT "\n",
          json_string_value(json_object_get(row, "kind")),
          json_string_value(json_object_get(row, "path")),
          json_integer_value(json_object_get(row, "token")));
}

/* ------------------------------------------------------------------------
 * Acquiring
 *
 * From the first try to the exit code of a refusal.  After a refusal the end of
 * join() leaves the line.
 * --------------------------------------------------------------------- */

/* Held by another, or not in time: the exit code of -E.  Prints nothing with
 * --quiet, nor with -E 0, which makes it a success. */
static int fail_conflict(call *c, int rc) {
  int64_t code;
  int status = option_number(c, 'E', 0, 255, STATUS_CONFLICT, &code);
  if (status) return status;
  if (code == STATUS_OK || (c->sh->quiet && !c->id)) return (int)code;
  return fail_with(c, (int)code, zke_error_name(rc) + strlen("ZKE_"), "%s",
                   zke_errmsg());
}

/* sem without -n, but the semaphore does not exist: the first process that uses
 * a semaphore must give its limit. */
static int fail_limitless(contender *k) {
  return fail_with(
      k->c, STATUS_NO, "NONODE",
      "there is no semaphore %s yet: sem -n LIMIT makes it, and says "
      "how many may hold it at once",
      k->path);
}

/* Why it was not acquired, as an exit code.
 *
 * A semaphore's ZKE_LIMIT is usually permanent: the command gives another limit
 * than the existing one, or asks for more permits than that.  So -E does not
 * make it a success.  For the other kinds it means that the directory has used
 * all of its numbers.  That passes when it is unused for a while, so it may be
 * tried again (75). */
static int contend_failed(contender *k, int rc) {
  call *c = k->c;
  int status = k->take ? take_over(c) : 0;
  if (status) return status;
  if (rc == ZKE_NONODE && k->kind == &semaphore_kind && !k->limit)
    return fail_limitless(k);
  if (rc == ZKE_CANCELLED && cancel_came(c)) return fail_cancelled(c);
  if (rc == ZKE_HELD || rc == ZKE_OPERATIONTIMEOUT) return fail_conflict(c, rc);
  if (rc == ZKE_LIMIT && k->kind == &semaphore_kind)
    return fail_with(c, STATUS_DATA, "LIMIT", "%s", zke_errmsg());
  return fail_rc(c, rc);
}

/* Waits in the line until it is held; a zkembed code.
 *
 *   ms  the longest wait; below 0: for ever */
static int contend_patiently(contender *k, int64_t ms) {
  call *c = k->c;
  int64_t deadline = ms < 0 ? ZKE_FOREVER : zke_now(c->z) + ms;
  int rc = verbose_wanted(c) ? wait_aloud(k) : ZKE_OK;
  return rc == ZKE_OK ? k->kind->acquire(k, deadline) : rc;
}

/* Acquires it (k->got), or fails.  --wait 0 is the same as --nonblock. */
static int contend(contender *k) {
  call *c = k->c;
  int64_t ms;
  int status = option_duration(c, 'w', -1, &ms), rc;
  if (status) return status;
  cancel_by(c, k->kind->cancel, k->object);
  if (option_given(c, 'N') || ms == 0)
    rc = k->kind->try_(k);
  else
    rc = contend_patiently(k, ms);
  cancel_by(c, NULL, NULL);
  k->got = rc == ZKE_OK;
  return k->got ? 0 : contend_failed(k, rc);
}

/* ------------------------------------------------------------------------
 * Holding
 *
 * The ways to hold, of the file's head.  Each ends with the release, or with
 * the object in the session's list.
 * --------------------------------------------------------------------- */

/* Reports the loss with the engine's sentence, which has the reason. */
static int fail_lost(contender *k) {
  loss l;
  char text[512];
  loss_note(&l, k->c, k->kind->class_.kind, k->path);
  loss_text(k->c, &l, text, sizeof text);
  return fail_with(k->c, STATUS_LOST, "LOST", "%s", text);
}

/* Runs the command while it is held, then releases it; the exit code.  If the
 * release finds nothing, it was lost after guard_run() last checked: this
 * counts as a loss, even if the command ended by itself. */
static int hold_for_child(contender *k) {
  call *c = k->c;
  guard g = {.kind = k->kind->class_.kind,
             .path = k->path,
             .token = k->kind->class_.token(k->object),
             .check = k->kind->check,
             .object = k->object};
  int status = guard_run(c, &g);
  if (c->status == STATUS_LOST) return status;
  int rc = k->kind->class_.release(k->object);
  if (rc == ZKE_LOST || rc == ZKE_INVALIDSTATE) return fail_lost(k);
  if (rc != ZKE_OK && status == STATUS_OK) return fail_rc(c, rc);
  return status;
}

/* For held_until_signal(): was it taken away?  The token tells, without reading
 * the file; then check() leaves the sentence that fail_lost() passes on. */
static bool hold_lost(void *object) {
  contender *k = object;
  return k->kind->class_.token(k->object) == 0 &&
         k->kind->check(k->object) != ZKE_OK;
}

/* Holds it without a command, until a signal or until it is lost; the exit
 * code.  held_until_signal() returns 0 only for a loss.  What a hold by "lock
 * take" is bound to may have ended meanwhile, and ends it later as a signal
 * does. */
static int hold_for_signal(contender *k) {
  int status = k->take ? take_over(k->c) : 0;
  if (!status) status = emit_held(k);
  if (!status && k->take) status = take_settle(k->c);
  if (!status) status = held_until_signal(k->c, hold_lost, k);
  return status ? status : fail_lost(k);
}

/* Gives it to the session, which holds it until release or its end. */
static int hold_on(contender *k) {
  int status = emit_held(k);
  if (!status) status = held_add(k->c, &k->kind->class_, k->path, k->object);
  if (!status) k->object = NULL;
  return status;
}

/* Waits for it, then holds it in one of the ways of the file's head. */
static int hold(contender *k) {
  call *c = k->c;
  int64_t asked = zke_now(c->z);
  int status = contend(k);
  int64_t had = zke_now(c->z);
  if (!k->got) return status;
  if (c->child)
    status = hold_for_child(k);
  else
    status = c->sh->persists ? hold_on(k) : hold_for_signal(k);
  if (verbose_wanted(c) && (c->child || !c->sh->persists))
    say_times(k, asked, had);
  return status;
}

/* ------------------------------------------------------------------------
 * The commands
 *
 * Each reads its own options, and calls join().  elect has a second form, which
 * is not a candidate and only observes.
 * --------------------------------------------------------------------- */

/* A whole call of one of the four; the exit code.  Of k the call and the kind
 * are given, and what only the one command has.
 *
 *   label  taken over; NULL: the words of the command to run */
static int join(contender k) {
  call *c = k.c;
  int status = guard_options(c);
  if (!status) status = arg_place(c, 0, k.kind->base, &k.path);
  if (!k.label) k.label = child_label(c);
  if (!status && !k.label)
    status = fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  if (!status) {
    int rc = k.kind->make(&k);
    status = rc == ZKE_OK ? hold(&k) : fail_rc(c, rc);
  }
  if (k.object) k.kind->class_.destroy(k.object);
  free(k.path);
  free(k.label);
  return status;
}

static int lock_run(call *c) {
  return join((contender){.c = c, .kind = &lock_kind});
}

/* lock take: what it is bound to is watched before the database is opened. */
static int take_run(call *c) {
  contender k = {.c = c, .kind = &lock_kind, .take = true};
  int status = take_begin(c, &k.label);
  if (!status) status = session_open(c, CREATES_FILE);
  if (status)
    free(k.label);
  else
    status = join(k);
  take_end();
  return status;
}

/* lock take does not hold it, or not with that token.  Says who does. */
static int fail_not_taken(call *c, const char *path, int64_t token,
                          const zke_party *p) {
  char with[64] = "", who[256] = "";
  if (token) snprintf(with, sizeof with, " with the token %" PRId64, token);
  if (p)
    snprintf(who, sizeof who, "; it is held by %s (pid %" PRId64 ")",
             p->identity, p->pid);
  return fail_with(c, STATUS_NO, "NOTHELD", "lock take does not hold %s%s%s",
                   path, with, who);
}

/* Breaks the hold that the list begins with, if lock take has made it.  The
 * token makes sure that a later holder keeps the lock. */
static int release_taken(call *c, const char *path, int64_t token,
                         const zke_party_list *list) {
  const zke_party *p = list->count && list->data[0].held ? list->data : NULL;
  if (!p || !take_is(p->data, p->len) || (token && p->mzxid != token))
    return fail_not_taken(c, path, token, p);
  int rc = zke_lock_break(c->z, path, p->mzxid);
  if (rc == ZKE_NONODE) return fail_not_taken(c, path, token, NULL);
  return rc == ZKE_OK ? 0 : fail_rc(c, rc);
}

/* lock release: ends a hold of lock take, whatever its process does. */
static int lock_release_run(call *c) {
  int64_t token;
  char *path;
  zke_party_list *list;
  int status = option_number(c, 't', 1, INT64_MAX, 0, &token);
  if (!status) status = arg_place(c, 0, lock_kind.base, &path);
  if (status) return status;
  int rc = zke_lock_parties(c->z, path, &list);
  status = rc == ZKE_OK ? release_taken(c, path, token, list) : fail_rc(c, rc);
  if (rc == ZKE_OK) zke_free(list);
  free(path);
  return status;
}

/* rwlock: -r to read with others, -x to write alone; flock(1) and others call
 * them -s and -X. */
static int rwlock_run(call *c) {
  bool reads = option_given(c, 'r') || option_given(c, 's'),
       writes = option_given(c, 'X') || option_given(c, 'x');
  if (reads == writes) return fail_usage(c, "rwlock wants either -r or -x");
  return join((contender){.c = c,
                          .kind = &rwlock_kind,
                          .how = reads ? ZKE_RWLOCK_READ : ZKE_RWLOCK_WRITE});
}

/* sem: takes -p permits of a semaphore with -n permits in all. */
static int sem_run(call *c) {
  int64_t limit, permits;
  int status = option_number(c, 'n', 1, INT32_MAX, 0, &limit);
  if (!status) status = option_number(c, 'p', 1, INT32_MAX, 1, &permits);
  if (status) return status;
  return join((contender){.c = c,
                          .kind = &semaphore_kind,
                          .how = (int)permits,
                          .limit = (int)limit});
}

/* ---- elect ---- */

typedef struct observation {
  call *c;
  const char *path;
  int status; /* of the first row that could not be printed; 0: none */
} observation;

/* The observer's listener: prints a row for each leader, and one for none. */
static void observe_leader(zke_observer *o, const char *name, int64_t token,
                           const char *value, int len, void *context) {
  observation *seen = context;
  (void)o, (void)value, (void)len;
  json_t *row = json_pack("{s:o*,s:o,s:I}", "path", value_text(seen->path),
                          "leader", name ? value_text(name) : json_null(),
                          "token", (json_int_t)token);
  if (!seen->status) seen->status = emit_event(seen->c, row);
}

/* Stop observing when a row could not be written. */
static bool observed_enough(void *arg) {
  observation *seen = arg;
  return seen->status != 0;
}

/* elect --observe: prints who leads, now and after each change, until a signal.
 * Refuses a candidate's options: they have the letters of --wait, --nonblock,
 * -E and OPTIONS_GUARD. */
static int elect_observe(call *c) {
  zke_observer *o;
  char *path;
  bool stands = c->child || c->count > 1;
  for (const char *at = "wNELGoPW"; *at; at++)
    stands = stands || option_given(c, *at);
  if (stands)
    return fail_usage(c,
                      "--observe only watches: it takes no leader's name, no "
                      "command and no option for them");
  int status = arg_place(c, 0, election_kind.base, &path);
  if (status) return status;
  observation seen = {c, path, 0};
  zke_observer_options options = {
      .size = sizeof options, .listener = observe_leader, .context = &seen};
  int rc = zke_observer_new(c->z, path, &options, &o);
  if (rc == ZKE_OK) {
    rc = zke_observer_start(o);
    if (rc != ZKE_OK) zke_observer_free(o);
  }
  status = rc == ZKE_OK
               ? wait_for_cancel(c, observed_enough, &seen, ZKE_FOREVER)
               : fail_rc(c, rc);
  if (rc == ZKE_OK) zke_observer_free(o);
  free(path);
  return seen.status ? seen.status : status;
}

/* elect: is a candidate.  Without a name it uses the identity and the process,
 * so that two candidates differ. */
static int elect_run(call *c) {
  char *name = NULL;
  int len;
  if (option_given(c, 'l')) return elect_observe(c);
  if (c->count > 1 && strlen(c->args[1].text) != c->args[1].len)
    return fail_with(c, STATUS_DATA, "BADARGUMENTS",
                     "there is a NUL in the leader's name");
  if (c->count > 1)
    len = asprintf(&name, "%s", c->args[1].text);
  else
    len = asprintf(&name, "%s-%d", c->sh->options.identity, getpid());
  if (len < 0) return fail_with(c, STATUS_SYSTEM, "NOMEM", "out of memory");
  return join((contender){.c = c, .kind = &election_kind, .label = name});
}

/* The token alone: TOKEN=$(zke app.db lock take …) */
static void take_token_human(call *c, json_t *row, FILE *out) {
  (void)c;
  fprintf(out, "%" JSON_INTEGER_FORMAT "\n",
          json_integer_value(json_object_get(row, "token")));
}

/* "ann leads, token 5", or the other kinds' output. */
static void elect_human(call *c, json_t *row, FILE *out) {
  json_t *leader = json_object_get(row, "leader");
  if (!option_given(c, 'l')) {
    held_human(c, row, out);
  } else if (json_is_null(leader)) {
    fputs("nobody leads\n", out);
  } else {
    output_visible("leader", leader, out);
    fprintf(out, " leads, token %" JSON_INTEGER_FORMAT "\n",
            json_integer_value(json_object_get(row, "token")));
  }
}

/* ---- release ---- */

/* release NAME [KIND]: releases what the session holds. */
static int release_run(call *c) {
  int64_t token;
  const char *kind_ = c->count > 1 ? c->args[1].text : NULL;
  int status = option_number(c, 't', 1, INT64_MAX, 0, &token);
  return status ? status : held_release(c, kind_, c->args[0].text, token, NULL);
}

/* The options and rows of these commands, for run.c, args.c and help. */
#define OPTIONS_HOLD                         \
  {'t', "ttl", "DURATION"}, OPTIONS_GUARD,   \
      {'E', "conflict-exit-code", "CODE"}, { \
    'v', "verbose", NULL                     \
  }

static const option lock_options[] = {{'w', "wait", "DURATION"},
                                      {'N', "nonblock", NULL},
                                      OPTIONS_HOLD,
                                      {'\0', NULL, NULL}};
static const option take_options[] = {
    {'p', "while-pid", "PID"}, {'f', "for", "DURATION"},
    {'w', "wait", "DURATION"}, {'N', "nonblock", NULL},
    {'t', "ttl", "DURATION"},  {'E', "conflict-exit-code", "CODE"},
    {'v', "verbose", NULL},    {'\0', NULL, NULL}};
static const option rwlock_options[] = {{'r', "read", NULL},
                                        {'s', "shared", NULL},
                                        {'X', "write", NULL},
                                        {'x', "exclusive", NULL},
                                        {'w', "wait", "DURATION"},
                                        {'N', "nonblock", NULL},
                                        OPTIONS_HOLD,
                                        {'\0', NULL, NULL}};
static const option sem_options[] = {{'n', "limit", "LIMIT"},
                                     {'p', "permits", "PERMITS"},
                                     {'w', "wait", "DURATION"},
                                     {'N', "nonblock", NULL},
                                     OPTIONS_HOLD,
                                     {'\0', NULL, NULL}};
static const option elect_options[] = {{'l', "observe", NULL},
                                       {'w', "wait", "DURATION"},
                                       {'N', "nonblock", NULL},
                                       OPTIONS_HOLD,
                                       {'\0', NULL, NULL}};

/* of both releases */
static const option release_options[] = {{'t', "token", "TOKEN"},
                                         {'\0', NULL, NULL}};

#define USAGE_HOLD                                                       \
  "[-E CODE] [--ttl DURATION] [--on-lost kill|warn] [--grace DURATION] " \
  "[--close | --wait-all] "                                              \
  "[--outlive] [-v] [-- CMD ARGS…]"

const command lock_commands[] = {
    {"lock", "NAME [--wait DURATION | --nonblock] " USAGE_HOLD,
     "hold a lock while a command runs, or until a signal or release",
     lock_options, 1, 1, CREATES_FILE | TAKES_CHILD | CAN_HAVE_VERB, STYLE_LINE,
     lock_run, held_human},
    {"lock take",
     "NAME [--while-pid PID] [--for DURATION] [--wait DURATION | --nonblock] "
     "[-E CODE] [--ttl DURATION] [-v]",
     "hold a lock while another process lives, or for a time; print the token",
     take_options, 1, 1, HIDDEN | OWN_PROCESS, STYLE_LINE, take_run,
     take_token_human},
    {"lock release", "NAME [--token TOKEN]",
     "end a hold of lock take; --token: only the one with that token",
     release_options, 1, 1, HIDDEN | NEEDS_SESSION, STYLE_LINE,
     lock_release_run, NULL},
    {"rwlock", "-r|-x NAME [--wait DURATION | --nonblock] " USAGE_HOLD,
     "the same with a lock for several readers or one writer", rwlock_options,
     1, 1, CREATES_FILE | TAKES_CHILD, STYLE_LINE, rwlock_run, held_human},
    {"sem",
     "[-n LIMIT] NAME [-p PERMITS] [--wait DURATION | --nonblock] " USAGE_HOLD,
     "the same with a semaphore, which has LIMIT permits", sem_options, 1, 1,
     CREATES_FILE | TAKES_CHILD, STYLE_LINE, sem_run, held_human},
    {"elect",
     "NAME [LEADER] [--observe | --wait DURATION | --nonblock] " USAGE_HOLD,
     "lead while a command runs, or print who leads", elect_options, 1, 2,
     CREATES_FILE | TAKES_CHILD, STYLE_LINE, elect_run, elect_human},
    {"release", "NAME [KIND] [--token TOKEN]",
     "give up what this session holds; --token: only what has that token",
     release_options, 1, 2, NEEDS_NOTHING, STYLE_LINE, release_run, NULL},
    {NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL}};
