/* rounds.c - see rounds.h */
#define NOTES_PLAIN /* paths of a round are below its own root */
#include "test/sim/rounds.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/lock.h"
#include "test/recipes/uses.h"
#include "test/sim/known.h"
#include "test/sim/load.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"
#include "test/sim/threads.h"

enum {
  ROUNDS = 256,
  SECTIONS = 2,     /* that a party is in at the same time */
  NAME = 24,        /* of a section */
  MEET_MS = 500,    /* how long the first party waits for the last */
  INSIDE_MS = 20,   /* how long a party stays in a section, */
  LONG_MS = 2000,   /* or, longer than a use is willing to wait */
  MISSED_MS = 3000, /* how long others wait for a dead one */
  LATE_MS = 5000,   /* after the last fault no round begins later, */
  REST_MS = 60000   /* and no party waits longer */
};

#define ROOT "/round-"

typedef enum state { WAITED_FOR, INSIDE, OVER } state;

/* One function of a use. */
typedef struct party {
  state state;
  int slot, thread; /* that run it, while INSIDE */
  int64_t began, session;
  bool may_end;                 /* another has ended its session, or tries to */
  bool failed;                  /* one of its calls has failed, */
  bool missed;                  /* so others may lack its work */
  bool loses;                   /* loses a reply: zke_test_fail() */
  bool spare;                   /* others do without it from now on */
  char section[SECTIONS][NAME]; /* "": a free place */
} party;

static struct {
  const use *use; /* NULL: none yet */
  int number;     /* of the round */
  int maker;      /* the slot that makes its tree; -1: it exists */
  int count;      /* of parties */
  party party[USE_PARTIES];
  int ends, missed; /* parties that did not return well; those missed */
  int64_t stuck;    /* since when others may wait forever; 0: they may not */
} now = {.maker = -1};

/* Rounds that have ended and must be checked. */
static struct {
  const use *use;
  int number;
  void *shared;
} past[ROUNDS];
static int past_count;

/* ---- parties ---- */

/* May the party's session have ended?  Without memory a session may end by
 * itself (zke_discard()). */
static bool may_end(const party *p) {
  if (p->may_end || known_may_end(p->slot)) return true;
  for (int i = 0; i < the_plan.faults; i++) {
    const plan_fault *f = &the_plan.fault[i];
    if (f->done && f->slot == p->slot && f->call == CALL_alloc) return true;
  }
  return false;
}

/* The calling party, or NULL. */
static party *self(void) {
  for (int i = 0; i < now.count; i++) {
    party *p = &now.party[i];
    if (p->state == INSIDE && p->slot == sched_slot() &&
        p->thread == sched_thread())
      return p;
  }
  return NULL;
}

/* A party has returned, or is no more. */
static void end(party *p, bool well) {
  p->state = OVER;
  if (well) return;
  now.ends++;
  now.missed += !p->spare || p->missed;
}

/* The round's number of parties in a state. */
static int count(state s) {
  int n = 0;
  for (int i = 0; i < now.count; i++) n += now.party[i].state == s;
  return n;
}

/* ---- what a use says (zkembed-lab.h) ---- */

/* A condition of the use does not hold; but if the caller's session may have
 * ended, the caller may have lost what it had. */
void zke_lab_fail(const char *format, ...) {
  char text[400];
  const party *p = self();
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  if (p && may_end(p))
    sim_say("excused: %s", text);
  else
    sim_found("recipes: %s: %s", now.use->name, text);
}

/* For the story. */
void zke_lab_note(const char *format, ...) {
  char text[400];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  sim_say("%s", text);
}

/* Only the laboratory needs this, since it counts schedules. */
void zke_lab_reach(const char *name) { sim_say("reached: %s", name); }

/* Other parties may run here, sometimes until their deadlines have passed. */
void zke_lab_yield(void) {
  int slot = sched_slot();
  uint64_t most = sim_load(slot, 16) ? INSIDE_MS : LONG_MS;
  sched_pause((int64_t)sim_load(slot, most) * SIM_MS);
}

/* The others can do without the caller from now on. */
void zke_lab_spare(void) {
  party *p = self();
  if (p) p->spare = true;
}

/* The place where a party notes a section; for "", a free one; NULL: none. */
static char *place(party *p, const char *section) {
  for (int i = 0; i < SECTIONS; i++)
    if (strcmp(p->section[i], section) == 0) return p->section[i];
  return NULL;
}

/* How many others are in a section and surely still have their session? */
static int others_in(const party *than, const char *section) {
  int n = 0;
  for (int i = 0; i < now.count; i++) {
    party *p = &now.party[i];
    n += p != than && p->state == INSIDE && sched_lives(p->slot) &&
         !may_end(p) && place(p, section);
  }
  return n;
}

/* The caller enters a section, and stays in it for a while. */
void zke_lab_enter(const char *section, int limit) {
  party *p = self();
  if (!p) return;
  char *at = place(p, section);
  if (!at) at = place(p, "");
  if (!at) sim_bug("a party is in too many sections");
  snprintf(at, NAME, "%s", section);
  sim_say("enters %s", section);
  int others = others_in(p, section);
  load_count.turns++;
  if (others >= limit)
    zke_lab_fail("%d others are in \"%s\", and at most %d may be in it", others,
                 section, limit);
  zke_lab_yield();
}

/* The caller leaves it. */
void zke_lab_leave(const char *section) {
  party *p = self();
  char *at = p ? place(p, section) : NULL;
  if (!at) return;
  sim_say("leaves %s", section);
  *at = '\0';
}

/* No party may be in the other section while the caller is in this one. */
void zke_lab_exclude(const char *section, const char *other) {
  party *p = self();
  if (p && place(p, section) && others_in(p, other))
    zke_lab_fail("somebody is in \"%s\", and somebody in \"%s\"", section,
                 other);
}

/* ---- codes ---- */

/* Can the faults so far make a call fail with this code?  Even if so, others
 * may miss what it did not do. */
static bool is_honest(const party *p, zke *z, int rc) {
  switch (rc) {
    case ZKE_INVALIDSTATE:
    case ZKE_SESSIONEXPIRED:
    case ZKE_SESSIONMOVED:
    case ZKE_REPLACED:
      return may_end(p);
    case ZKE_LOST:
      return may_end(p) && zke_state(z) == ZKE_STATE_EXPIRED;
    case ZKE_OPERATIONTIMEOUT:
      return !sim.ending || sim.now < sim.ending + LATE_MS * SIM_MS ||
             !the_plan.k.switches;
    case ZKE_CONNECTIONLOSS:
      return p->loses || sim.last_error >= 0;
    case ZKE_FULL:
    case ZKE_SYSTEMERROR:
    case ZKE_CANTOPEN:
    case ZKE_NOMEM:
      return sim.last_error >= 0;
    default:
      return false;
  }
}

/* Others may miss what the party did not do. */
bool use_may_fail(zke *z, int rc) {
  party *p = self();
  if (!p) return now.maker >= 0; /* the tree being made then does not count */
  p->failed = true;
  if (!p->spare) p->missed = true;
  return is_honest(p, z, rc);
}

/* ---- a party ---- */

/* Wait a while for the others, so that they run at the same time. */
static void meet(int slot) {
  int64_t until = sim.now + MEET_MS * SIM_MS;
  bool waits = sim_load(slot, 8);
  while (waits && count(WAITED_FOR) && sim.now < until) sched_pause(5 * SIM_MS);
  sched_pause((int64_t)sim_load(slot, 10) * SIM_MS);
}

/* The path of a round's root. */
static void root_of(int number, char path[24]) {
  snprintf(path, 24, ROOT "%d", number);
}

/* A session with the round's tree as its root; NULL: it could not be opened. */
static zke *open_session(const ops_actor *a, int number) {
  char root[24];
  zke_options o = ZKE_INIT(zke_options);
  zke *z = NULL;
  root_of(number, root);
  o.chroot = root;
  if (sim_load(a->slot, 4) == 0) o.event_limit = 2 + (int)sim_load(a->slot, 8);
  known_call c = known_begin(a->slot, "round: open_session");
  if (known_end(c, zke_open_session(a->z, &o, &z)) != ZKE_OK) return NULL;
  known_session_id(zke_session_id(z));
  return z;
}

/* If nothing went wrong, a use leaves no ephemerals. */
static void check_left(const party *p, zke *z) {
  zke_strings *paths = NULL;
  zke_test_fail(z, 0, 0);
  int rc = zke_ephemerals(z, p->session, "/", &paths);
  bool calm = sim.last_fault < p->began && sim.last_error < p->began;
  if (rc == ZKE_OK && paths->count && calm && !p->failed && !may_end(p))
    sim_found("recipes: %s leaves %s", now.use->name, paths->data[0]);
  zke_free(paths);
}

/* Inside the lock of a visit; this handler runs before that of the lock. */
static void leave_visit(void *section) { zke_lab_leave(section); }
static int be_inside(zke *z, int64_t token, void *section) {
  threads_cleanup cleanup = {.fn = leave_visit, .arg = section};
  (void)z, (void)token;
  threads_push(&cleanup);
  zke_lab_enter(section, 1);
  threads_pop(true);
  return ZKE_OK;
}

/* Acquire a lock and release it.  If the thread is cancelled meanwhile, the
 * next in line gets its place. */
static void visit(const void *arg) {
  static char section[] = "visit";
  zke *z = *(zke *const *)arg;
  int rc = zke_lock_do(z, "/visit", ZKE_FOREVER, be_inside, section);
  if (rc != ZKE_OK && !is_honest(self(), z, rc))
    zke_lab_fail("visit: %s: %s", zke_error_name(rc), zke_errmsg());
}

/* Sometimes one of the party's changes or reads loses its reply. */
static void lose_a_reply(party *p, zke *z) {
  static const int when[] = {ZKE_TEST_FAIL_BEFORE, ZKE_TEST_FAIL_AFTER,
                             ZKE_TEST_FAIL_READ};
  p->loses = sim_load(p->slot, 3) == 0;
  if (!p->loses) return;
  int which = when[sim_load(p->slot, 3)];
  zke_test_fail(z, which, (int)sim_load(p->slot, 12));
}

/* Run the party's function, sometimes after a visit. */
static void run(const ops_actor *a, party *p) {
  const use_party *does = &now.use->parties[p - now.party];
  *p = (party){INSIDE, a->slot, a->thread, .began = sim.now};
  zke *z = open_session(a, now.number);
  if (!z) {
    end(p, false);
    return;
  }
  p->session = zke_session_id(z);
  sim_say("takes part in %s as %d", now.use->name, (int)(p - now.party));
  meet(a->slot);
  p->began = sim.now;
  if (sim_load(a->slot, 4) == 0 && !threads_run(visit, &z)) zke_zxid();
  lose_a_reply(p, z);
  does->fn(z, (void *)(uintptr_t)does->arg);
  load_count.parties += !p->failed;
  check_left(p, z);
  known_call c = known_begin(a->slot, "round: close");
  int rc = zke_close(z);
  if (!may_end(p)) known_end(c, rc);
  end(p, !p->failed && rc == ZKE_OK);
}

/* Sometimes end the session of another slot's party. */
static void expire(const ops_actor *a) {
  party *p = &now.party[sim_load(a->slot, USE_PARTIES)];
  if (!the_plan.k.leases || sim_load(a->slot, 20)) return;
  if (p->state != INSIDE || p->slot == a->slot || !p->session) return;
  p->may_end = true;
  known_call c = known_begin(a->slot, "round: expire");
  known_end(c, zke_expire(a->z, p->session));
}

/* ---- a round ---- */

static int parties_of(const use *u) {
  int n = 0;
  while (n < USE_PARTIES && u->parties[n].fn) n++;
  return n;
}

/* Can a use run on this host?  Not if it needs more processes, or a clock that
 * is not changed. */
static bool can_run(const use *u) {
  int64_t processes = the_plan.k.processes - !!the_plan.k.foreign;
  bool is_set = false;
  for (int i = 0; i < the_plan.faults; i++)
    is_set |= the_plan.fault[i].kind == 'W';
  return parties_of(u) <= processes && !(u->wall && is_set);
}

/* The knob's use, or any that can run; NULL: there is none. */
static const use *choose(void) {
  int64_t knob = the_plan.k.uses;
  const use *u = &uses[(knob > 1 ? knob - 2 : 0) % uses_count];
  for (int i = 0; knob == 1 && i < 100; i++) {
    u = &uses[sim_random(SIM_USES, (uint64_t)uses_count)];
    if (can_run(u)) break;
  }
  return can_run(u) ? u : NULL;
}

/* The round has ended: keep what `finally` needs. */
static void close_round(void) {
  size_t size;
  const void *shared = uses_shared(&size);
  if (!now.count || !now.use->finally || past_count == ROUNDS) return;
  past[past_count].use = now.use;
  past[past_count].number = now.number;
  past[past_count].shared = sim_zero(size);
  memcpy(past[past_count++].shared, shared, size);
}

/* Make the tree of the next round.  If a fault strikes meanwhile, its state is
 * unknown, and another round begins. */
static void begin_round(const ops_actor *a) {
  char root[24];
  size_t size;
  void *shared = uses_shared(&size);
  int number = now.number + 1;
  close_round();
  memset(shared, 0, size);
  memset(&now, 0, sizeof now);
  now.number = number;
  now.use = choose();
  now.maker = now.use ? a->slot : -1;
  if (!now.use) return;
  root_of(number, root);
  int64_t began = sim.now;
  sim_say("round %d: %s", number, now.use->name);
  known_call c = known_begin(a->slot, "round: create");
  int rc = known_end(c, zke_create(a->z, root, NULL, -1, ZKE_OPEN_ACL,
                                   ZKE_PERSISTENT, NULL, NULL));
  zke *z = rc == ZKE_OK ? open_session(a, number) : NULL;
  if (z && now.use->setup) now.use->setup(z, NULL);
  if (z) zke_close(z);
  if (now.number != number || now.maker != a->slot) return;
  bool fine = z && sim.last_fault < began && sim.last_error < began;
  now.count = fine ? parties_of(now.use) : 0;
  load_count.rounds += fine;
  now.maker = -1;
}

bool rounds_any(const ops_actor *a) {
  if (!the_plan.k.uses) return false;
  expire(a);
  if (now.maker >= 0) return false;
  if (count(OVER) == now.count) {
    if (sim.ending || now.number >= ROUNDS) return false;
    begin_round(a);
    return true;
  }
  for (int i = 0; i < now.count; i++) {
    if (now.party[i].state != WAITED_FOR) continue;
    run(a, &now.party[i]);
    return true;
  }
  return false;
}

void rounds_died(int slot) {
  if (now.maker == slot) now.maker = -1;
  for (int i = 0; i < now.count; i++) {
    party *p = &now.party[i];
    if (p->state == INSIDE && p->slot == slot) end(p, false);
  }
}

/* May parties wait forever? */
static bool is_stuck(void) {
  const use *u = now.use;
  return u && ((u->waits && now.missed) || (u->one_ends && now.ends));
}

/* A party that waits for a dead one is killed in the end, as its user would do.
 * No other may still wait long after the faults. */
void rounds_tick(void) {
  int64_t rested = sim.ending ? sim.now - sim.ending : 0;
  if (!count(INSIDE)) return;
  if (rested > LATE_MS * SIM_MS)
    for (int i = 0; i < now.count; i++)
      if (now.party[i].state == WAITED_FOR) end(&now.party[i], false);
  if (!is_stuck())
    now.stuck = 0;
  else if (!now.stuck)
    now.stuck = sim.now;
  bool over = now.stuck && sim.now > now.stuck + MISSED_MS * SIM_MS;
  for (int i = 0; i < now.count; i++) {
    const party *p = &now.party[i];
    if (p->state != INSIDE) continue;
    if (over)
      sched_kill(p->slot);
    else if (rested > REST_MS * SIM_MS)
      sim_found("recipes: %s: %c waits for ever", now.use->name, 'A' + p->slot);
  }
}

/* ---- the end ---- */

void rounds_go_back(void) {
  past_count = 0;
  memset(&now.party, 0, sizeof now.party);
  now.count = 0;
}

void rounds_check(const ops_actor *a) {
  size_t size;
  void *shared = uses_shared(&size);
  close_round();
  for (int i = 0; i < past_count; i++) {
    zke *z = open_session(a, past[i].number);
    if (!z) continue;
    now.use = past[i].use;
    now.count = 0;
    memcpy(shared, past[i].shared, size);
    sim_say("looks at round %d: %s", past[i].number, now.use->name);
    now.use->finally(z, NULL);
    zke_close(z);
  }
}

bool rounds_has(const char *path) {
  return strncmp(path, ROOT, strlen(ROOT)) == 0;
}

int64_t rounds_knob(const char *text) {
  char *last;
  int64_t number = text ? strtoll(text, &last, 10) : 0;
  if (!text || !*text || (!*last && number >= 0 && number < 2 + uses_count))
    return number;
  for (int i = 0; i < uses_count; i++)
    if (strcmp(text, uses[i].name) == 0) return 2 + i;
  return -1;
}
