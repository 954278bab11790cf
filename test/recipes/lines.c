/* lines.c - see lines.h */
#include "lines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/election.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"

/* ------------------------------------------------------------------------
 * What listeners hear
 * --------------------------------------------------------------------- */

const line_kind *line;
void (*line_hook)(void *object, int event);
static int64_t highest; /* token that a listener has heard */

int64_t told_token;

/* Note the event: a state of a line, or ASKED.  Only HELD and ASKED have a
 * token. */
static void note(const char *who, int event, int64_t token) {
  static const char *const words[] = {"OUT", "WAITING", "HELD", "LOST"};
  bool held = event == ZKE_LINE_HELD, asked = event == ZKE_RWLOCK_ASKED;
  ck_assert((token > 0) == (held || asked));
  if (held && (line->is & LINE_ALONE)) {
    ck_assert_int_gt(token, highest);
    highest = token;
  }
  tell("%s %s", who, asked ? "ASKED" : words[event]);
  if (token) told_token = token;
}

/* The listener of all kinds, on any thread. */
static void hear(void *object, int event, int64_t token, const char *who) {
  static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&one_at_a_time);
  note(who, event, token);
  pthread_mutex_unlock(&one_at_a_time);
  if (line_hook) line_hook(object, event);
}

/* May this event follow that one, in ZooKeeper's order? */
static bool follows(int event, int before) {
  switch (event) {
    case ZKE_ELECTION_OFFER_START:
    case ZKE_ELECTION_OFFER_COMPLETE:
    case ZKE_ELECTION_DETERMINE_COMPLETE:
    case ZKE_ELECTION_ELECTED_START:
    case ZKE_ELECTION_ELECTED_COMPLETE:
    case ZKE_ELECTION_READY_COMPLETE:
    case ZKE_ELECTION_STOP_COMPLETE:
      return before == event - 1;
    case ZKE_ELECTION_READY_START:
      return before == ZKE_ELECTION_DETERMINE_COMPLETE;
    case ZKE_ELECTION_DETERMINE_START:
      return before == ZKE_ELECTION_OFFER_COMPLETE ||
             before == ZKE_ELECTION_READY_COMPLETE;
    case ZKE_ELECTION_FAILURE:
      return before != ZKE_ELECTION_FAILURE &&
             before != ZKE_ELECTION_STOP_START;
    default:
      return true;
  }
}

/* The listener of a candidate.  Its events must come in order; an event that
 * ends in a state of a line is told as that state. */
static void hear_election(zke_election *object, int event, int64_t token,
                          void *context) {
  static int before[SESSIONS];
  const char *who = context;
  int i = 0;
  while (i < SESSIONS && strcmp(who, identities[i]) != 0) i++;
  if (i < SESSIONS) {
    ck_assert_msg(follows(event, before[i]), "%s: %d after %d", who, event,
                  before[i]);
    before[i] = event;
  }
  if (event == ZKE_ELECTION_ELECTED_COMPLETE)
    hear(object, ZKE_LINE_HELD, token, who);
  if (event == ZKE_ELECTION_FAILURE) hear(object, ZKE_LINE_LOST, token, who);
  if (event == ZKE_ELECTION_STOP_COMPLETE)
    hear(object, ZKE_LINE_OUT, token, who);
}

/* ------------------------------------------------------------------------
 * The table
 * --------------------------------------------------------------------- */

/* The calls that all types have. */
#define CALLS(type)                                                    \
  static void type##_free(void *x) { zke_##type##_free(x); }           \
  static int type##_cancel(void *x) { return zke_##type##_cancel(x); } \
  static int type##_check(void *x) { return zke_##type##_check(x); }   \
  static int64_t type##_token(void *x) { return zke_##type##_token(x); }

CALLS(election)
CALLS(lock)
CALLS(multilock)
CALLS(rwlock)
CALLS(semaphore)

/* The calls that all types but elections have. */
#define LINE_CALLS(type)                                                 \
  static void hear_##type(zke_##type *x, int event, int64_t token,       \
                          void *who) {                                   \
    hear(x, event, token, who);                                          \
  }                                                                      \
  static int type##_release(void *x) { return zke_##type##_release(x); } \
  static int type##_state(void *x) { return zke_##type##_state(x); }

LINE_CALLS(lock)
LINE_CALLS(multilock)
LINE_CALLS(rwlock)
LINE_CALLS(semaphore)

static int election_release(void *x) { return zke_election_resign(x); }

static int election_state(void *x) {
  switch (zke_election_state(x)) {
    case ZKE_ELECTION_ELECTED:
      return ZKE_LINE_HELD;
    case ZKE_ELECTION_READY:
      return ZKE_LINE_WAITING;
    case ZKE_ELECTION_STOP:
      return ZKE_LINE_OUT;
    default:
      return ZKE_LINE_LOST;
  }
}

/* How each is made: its options o begin with the ones that all have. */
#define CREATES(id, type, making)                                            \
  static int id##_create(zke *z_of, const char *path, const line_options *g, \
                         void **out) {                                       \
    zke_##type *x = NULL, **to = out ? &x : NULL;                            \
    if (out) x = *out;                                                       \
    zke_##type##_options o = {.size = g->size ? g->size : (int)sizeof o,     \
                              .listener = g->who ? hear_##type : NULL,       \
                              .context = (void *)(uintptr_t)g->who,          \
                              .data = g->data,                               \
                              .len = g->len,                                 \
                              .no_deadlock_check = g->no_deadlock_check};    \
    int rc = making;                                                         \
    if (out) *out = x;                                                       \
    return rc;                                                               \
  }

int line_limit;

/* The limit that a semaphore states. */
static int limit_or(int usual) {
  if (line_limit < 0) return 0;
  return line_limit ? line_limit : usual;
}

/* Both locks of a multi-lock: the one that the tests look at, and another.
 * Parties without a listener name them in the other order. */
static int new_both(zke *z_of, const char *path, const zke_multilock_options *o,
                    zke_multilock **out) {
  const zke_multilock_item both[] = {{OTHER, ZKE_MULTILOCK_WRITE},
                                     {path, ZKE_MULTILOCK_LOCK},
                                     {OTHER, ZKE_MULTILOCK_WRITE}};
  return zke_multilock_new(z_of, o->listener ? both + 1 : both, 2, o, out);
}

bool line_reentrant;

CREATES(lock, lock,
        (o.reentrant = line_reentrant, zke_lock_new(z_of, path, &o, to)))
CREATES(rwlock, rwlock, zke_rwlock_new(z_of, path, &o, to))
CREATES(permit, semaphore,
        (o.limit = limit_or(1), zke_semaphore_new(z_of, path, &o, to)))
CREATES(permits, semaphore,
        (o.limit = limit_or(4), zke_semaphore_new(z_of, path, &o, to)))
CREATES(multilock, multilock, new_both(z_of, path, &o, to))

/* A candidate's name is its data. */
static int election_create(zke *z_of, const char *path, const line_options *g,
                           void **out) {
  zke_election *x = NULL, **to = out ? &x : NULL;
  if (out) x = *out;
  zke_election_options o = {.size = g->size ? g->size : (int)sizeof o,
                            .name = g->who,
                            .listener = g->who ? hear_election : NULL,
                            .context = (void *)(uintptr_t)g->who};
  int rc = zke_election_new(z_of, path, &o, to);
  if (out) *out = x;
  return rc;
}

/* How each comes in. */
#define COMES_IN(type, acquiring, trying, starting)                     \
  static int type##_acquire(void *x, int how, int64_t until) {          \
    (void)how;                                                          \
    return acquiring;                                                   \
  }                                                                     \
  static int type##_try(void *x, int how) { return (void)how, trying; } \
  static int type##_start(void *x, int how) { return (void)how, starting; }

COMES_IN(lock, zke_lock_acquire(x, until), zke_lock_try(x), zke_lock_start(x))
COMES_IN(rwlock, zke_rwlock_acquire(x, how, until), zke_rwlock_try(x, how),
         zke_rwlock_start(x, how))
COMES_IN(semaphore, zke_semaphore_acquire(x, how, until),
         zke_semaphore_try(x, how), zke_semaphore_start(x, how))
COMES_IN(multilock, zke_multilock_acquire(x, until), zke_multilock_try(x),
         zke_multilock_start(x))
/* An election has no try; a deadline of now does the same. */
COMES_IN(election, zke_election_lead(x, until), zke_election_lead(x, 0),
         zke_election_start(x))

static int lock_ops(void *x, zke_op *ops) { return zke_lock_op(x, ops); }
static int rwlock_ops(void *x, zke_op *ops) { return zke_rwlock_op(x, ops); }
static int semaphore_ops(void *x, zke_op *ops) {
  return zke_semaphore_op(x, ops);
}
static int multilock_ops(void *x, zke_op *ops) {
  return zke_multilock_ops(x, ops, 2);
}
static int election_ops(void *x, zke_op *ops) {
  return zke_election_op(x, ops);
}

/* ---- the rows ---- */

#define KIND(creating, type)                                                 \
  .create = creating##_create, .free = type##_free, .cancel = type##_cancel, \
  .acquire = type##_acquire, .try_once = type##_try, .start = type##_start,  \
  .release = type##_release, .check = type##_check, .state = type##_state,   \
  .token = type##_token, .ops = type##_ops
#define SEMAPHORE(creating, permits)                                          \
  .entry = "lease-", .places = permits, .ops_count = 1,                       \
  .is = LINE_ALONE | LINE_HAS_DATA, .refusal = ZKE_HELD, .again = ZKE_MISUSE, \
  .first = permits, .others = permits, .parties = zke_semaphore_parties,      \
  KIND(creating, semaphore)
/* ann writes; what the others do tells the row */
#define RWLOCK(kind, alone, mode)                                              \
  .directory = "zkembed rwlock\n", .entry = kind, .places = 1, .ops_count = 1, \
  .is = alone | LINE_HAS_DATA, .refusal = ZKE_HELD, .again = ZKE_MISUSE,       \
  .first = ZKE_RWLOCK_WRITE, .others = mode, .parties = zke_rwlock_parties,    \
  KIND(rwlock, rwlock)

const line_kind line_kinds[LINE_KINDS] = {
    [LINE_READER] = {RWLOCK("__READ__", 0, ZKE_RWLOCK_READ)},
    [LINE_LOCK] = {.directory = "zkembed lock\n",
                   .entry = "lock-",
                   .places = 1,
                   .ops_count = 1,
                   .is = LINE_ALONE | LINE_HAS_DATA,
                   .refusal = ZKE_HELD,
                   .again = ZKE_MISUSE,
                   .parties = zke_lock_parties,
                   KIND(lock, lock)},
    [LINE_PERMIT] = {SEMAPHORE(permit, 1),
                     .directory = "zkembed semaphore\nlimit 1\n"},
    [LINE_PERMITS] = {SEMAPHORE(permits, 3),
                      .directory = "zkembed semaphore\nlimit 4\n"},
    [LINE_WRITER] = {RWLOCK("__WRIT__", LINE_ALONE, ZKE_RWLOCK_WRITE)},
    [LINE_MULTILOCK] = {.directory = "zkembed lock\n",
                        .entry = "lock-",
                        .places = 1,
                        .ops_count = 2,
                        .is = LINE_ALONE | LINE_HAS_DATA | LINE_KEEPS_REST,
                        .refusal = ZKE_HELD,
                        .again = ZKE_MISUSE,
                        .parties = zke_lock_parties,
                        KIND(multilock, multilock)},
    [LINE_ELECTION] = {.directory = "zkembed election\n",
                       .entry = "latch-",
                       .places = 1,
                       .ops_count = 1,
                       .is = LINE_ALONE,
                       .refusal = ZKE_OPERATIONTIMEOUT,
                       .again = ZKE_OK,
                       .parties = zke_election_parties,
                       KIND(election, election)},
};

/* ------------------------------------------------------------------------
 * A line
 * --------------------------------------------------------------------- */

static zke_lock *beside[SESSIONS]; /* of "locks" */
#define BESIDE "/beside"
static step_recipe lines; /* of `line` */

void *make_party(zke *session, const line_options *options) {
  void *made = NULL;
  ck_ok(line->create(session, PATH, options, &made));
  return made;
}

/* How the i-th acquires. */
static int usual_how(int i) {
  return i % SESSIONS ? line->others : line->first;
}

int party_acquire(int i, int64_t deadline) {
  return line->acquire(party[i], usual_how(i), deadline);
}
int party_try(int i) { return line->try_once(party[i], usual_how(i)); }
int party_start(int i) { return line->start(party[i], usual_how(i)); }

int party_does(int i, const char *verb, const char *word) {
  return take_by(i, verb, word ? word : "");
}

int in_line(void) {
  int count = entries(z[SESSIONS - 1], PATH);
  ck_assert_int_eq(count % line->places, 0);
  if (line->ops_count == 2) /* a multi-lock is in both lines or in none */
    ck_assert_int_eq(entries(z[SESSIONS - 1], OTHER), count);
  return count / line->places;
}

void close_line(void) {
  zke *last = z[SESSIONS - 1];
  free_parties();
  for (int i = 0; i < SESSIONS; i++) zke_lock_free(beside[i]);
  memset(beside, 0, sizeof beside);
  ck_assert_int_eq(entries(last, PATH), 0);
  ck_assert_int_eq(entries(last, OTHER), 0);
  ck_assert_int_eq(all_watches(last), 0);
  close_sessions();
}

void delete_place(zke *session, int part) {
  zke_strings *own;
  ck_ok(zke_ephemerals(session, 0, PATH "/_c_", &own));
  ck_assert_int_eq(own->count, line->places);
  ck_ok(zke_delete(z[SESSIONS - 1], own->data[part], -1));
  zke_free(own);
}

/* ------------------------------------------------------------------------
 * Steps
 * --------------------------------------------------------------------- */

/* How this step acquires. */
static int how_said(const step *s) {
  const char *how = s->word[0];
  if (!how) return usual_how(s->who);
  if (strcmp(how, "read") == 0) return ZKE_RWLOCK_READ;
  return strcmp(how, "write") == 0 ? ZKE_RWLOCK_WRITE : atoi(how);
}

static zke_lock *lock_of(const step *s) {
  zke_lock **lock = &beside[s->who % SESSIONS];
  if (!*lock) ck_ok(zke_lock_new(s->session, BESIDE, NULL, lock));
  return *lock;
}

STEP(acquire, line->acquire(s->object, how_said(s), s->deadline))
STEP(try, line->try_once(s->object, how_said(s)))
STEP(start, line->start(s->object, how_said(s)))
STEP(release, line->release(s->object))
STEP(check, line->check(s->object))
STEP(locks, zke_lock_acquire(lock_of(s), s->deadline))
STEP(unlocks, zke_lock_release(lock_of(s)))

/* What only one recipe has. */
STEP(steal, zke_lock_steal(s->object))
STEP(upgrade, zke_rwlock_upgrade(s->object))
STEP(downgrade, zke_rwlock_downgrade(s->object))
STEP(ask, zke_rwlock_revoke(s->object, s->deadline, 0))
STEP(insist, zke_rwlock_revoke(s->object, zke_now(s->session), 1))
STEP(resize,
     zke_semaphore_resize(s->session, PATH, atoi(s->word[0]), s->deadline))
STEP(ready, zke_election_ready(s->object))
STEP(hand_over, zke_election_hand_over(s->object, s->word[0]))

static int step_op(step *s) {
  zke_op ops[2];
  int rc = line->ops(s->object, ops);
  if (rc != ZKE_OK) return rc;
  return zke_multi(s->session, ops, line->ops_count, NULL);
}

static bool stands_in_line(const step *s) {
  return line->state(s->object) == ZKE_LINE_WAITING;
}

STEP(waits, begin_by(s, "acquire", s->rest, stands_in_line))

static int lockers; /* before this one */

static bool stands_beside(const step *s) {
  (void)s;
  return entries(z[0], BESIDE) > lockers;
}

static int step_waits_for_lock(step *s) {
  lockers = entries(z[0], BESIDE);
  return begin_by(s, "locks", "", stands_beside);
}

static int step_loses(step *s) {
  delete_place(s->session, s->word[0] ? atoi(s->word[0]) : 0);
  return ZKE_OK;
}

static int step_is(step *s) {
  static const char *const states[] = {"OUT", "WAITING", "HELD", "LOST"};
  int state = line->state(s->object);
  bool out = state == ZKE_LINE_OUT || state == ZKE_LINE_LOST;
  ck_assert_int_eq(line->token(s->object) > 0, state == ZKE_LINE_HELD);
  return sees(s, "%s",
              out && strcmp(s->rest, "out") == 0 ? "out" : states[state]);
}

/* Who has this session? */
static const char *owner(int64_t session) {
  for (int i = 0; i < SESSIONS; i++) {
    if (zke_session_id(z[i]) == session) return identities[i];
  }
  return "somebody";
}

/* Who holds and (who waits), or their modes. */
static int look(step *s, bool modes) {
  char text[200] = "";
  zke_party_list *list;
  ck_ok(line->parties(s->session, PATH, &list));
  for (int i = 0; i < list->count; i++) {
    const zke_party *p = &list->data[i];
    size_t used = strlen(text);
    char mode[] = {p->kind[2], '\0'};
    snprintf(text + used, sizeof text - used, p->held ? "%s%s" : "%s(%s)",
             used && !modes ? " " : "", modes ? mode : owner(p->session));
  }
  zke_free(list);
  return sees(s, "%s", text);
}

STEP(line, look(s, false))
STEP(modes, look(s, true))

static const step_verb verbs[] = {
    VERB(acquire),        VERB(try),       VERB(start),
    VERB(release),        VERB(check),     VERB(op),
    VERB(waits),          VERB(locks),     VERB(unlocks),
    VERB(waits_for_lock), VERB(loses),     VERB(steal),
    VERB(upgrade),        VERB(downgrade), VERB(ask),
    VERB(insist),         VERB(resize),    VERB(ready),
    VERB(hand_over),      VERB(is),        VERB(line),
    VERB(modes),          {NULL, NULL}};

static int create_listening(zke *session, const char *who, void **object) {
  return line->create(session, PATH, &(line_options){.who = who}, object);
}

void open_line(int kind) {
  line = &line_kinds[kind];
  highest = 0;
  lines = (step_recipe){
      .verbs = verbs,
      .create = create_listening,
      .free = line->free,
      .cancel = line->cancel,
      .codes = {{"REFUSED", line->refusal}, {"AGAIN", line->again}}};
  open_steps(&lines);
  closes = close_line;
}

void play_line(int kind, const char *script) {
  open_line(kind);
  play(script);
  close_line();
}

/* ------------------------------------------------------------------------
 * Any history
 * --------------------------------------------------------------------- */

/* Two objects of a session. */
static void make_two(int i) {
  party[i] = make_party(z[i], &(line_options){.who = identities[i]});
  party[i + SESSIONS] =
      make_party(z[i], &(line_options){.who = party_name(i + SESSIONS)});
}

static void free_two(int i) {
  line->free(party[i]);
  line->free(party[i + SESSIONS]);
}

/* A session ends; another takes its place, with other objects. */
static void expire_and_reopen(int i) {
  ck_ok(zke_expire(z[3], zke_session_id(z[i])));
  free_two(i);
  renew_session(i);
  make_two(i);
}

/* Delete a znode of the line.  But leave the mark of a candidate that was
 * handed the office: without it the line has another order. */
static void take_one_away(unsigned *random) {
  zke_strings *names;
  char path[200];
  if (zke_children(z[3], PATH, NULL, NULL, &names, NULL) != ZKE_OK) return;
  if (names->count > 0) {
    int i = rand_r(random) % names->count;
    snprintf(path, sizeof path, PATH "/%s", names->data[i]);
    if (!strstr(path, "-next-")) ck_ok(zke_delete(z[3], path, -1));
  }
  zke_free(names);
}

static void random_call(unsigned *random, const line_history *h) {
  int session = rand_r(random) % 3;
  int i = session + (rand_r(random) % 2 ? SESSIONS : 0);
  int how = h->most ? 1 + rand_r(random) % h->most : usual_how(i);
  switch (rand_r(random) % 16) {
    case 0:
    case 11:
    case 12:
      if (h->also) h->also(random, i);
      break;
    case 1:
      take_one_away(random);
      break;
    case 2:
      expire_and_reopen(session);
      break;
    case 3:
      line->try_once(party[i], how);
      break;
    case 4:
      line->acquire(party[i], how, zke_now(z[session]));
      break;
    case 5:
    case 6:
    case 7:
      line->start(party[i], how);
      break;
    case 8:
    case 9:
    case 10:
      line->release(party[i]);
      break;
    default:
      zke_dispatch(z[session], NULL);
  }
}

void play_history(const line_history *h) {
  unsigned random = test_seed();
  for (int i = 0; i < 3; i++) {
    line->free(party[i]);
    make_two(i);
  }
  for (int n = 0; n < h->calls; n++) {
    random_call(&random, h);
    h->check(&random);
    told[0] = '\0';
  }
  ck_assert_int_gt(highest, 0);
  for (int i = 0; i < PARTIES; i++) {
    if (party[i]) line->release(party[i]);
  }
  play(
      "all dispatch;"
      "ann acquire; ann release"); /* which removes what the dead have left */
}

/* ------------------------------------------------------------------------
 * For uses
 * --------------------------------------------------------------------- */

int use_by_two(zke *user, int (*use)(zke *user, void *first, void *second)) {
  zke *further = NULL;
  void *first = NULL, *second = NULL;
  char kept[400] = "";
  const line_options ann = {.who = "ann"}, bob = {.who = "bob"};
  told[0] = '\0';
  int rc = zke_open_session(user, NULL, &further);
  if (rc == ZKE_OK) rc = line->create(user, PATH, &ann, &first);
  if (rc == ZKE_OK) rc = line->create(further, PATH, &bob, &second);
  if (rc == ZKE_OK) rc = use(user, first, second);
  if (rc != ZKE_OK) snprintf(kept, sizeof kept, "%s", zke_errmsg());
  line->free(second);
  line->free(first);
  zke_close(further);
  return rc == ZKE_OK ? rc : zke_fail(rc, "%s", kept);
}
