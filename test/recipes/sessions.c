/* sessions.c - see sessions.h */
#include "sessions.h"

#include "test/seam.h"

void (*closes)(void);

void close_at_end(void) {
  if (closes) closes();
}

/* ------------------------------------------------------------------------
 * One store in memory
 * --------------------------------------------------------------------- */

zke *z[SESSIONS];
const char *const identities[SESSIONS] = {"ann", "bob", "cid", "dan", "eve"};

void open_sessions(void) {
  zke_options o = {.size = sizeof o, .identity = identities[0]};
  ck_ok(zke_open(":memory:", &o, &z[0]));
  for (int i = 1; i < SESSIONS; i++) {
    o.identity = identities[i];
    ck_ok(zke_open_session(z[0], &o, &z[i]));
  }
  closes = close_sessions;
}

void close_sessions(void) {
  closes = NULL;
  for (int i = SESSIONS - 1; i >= 0; i--) ck_ok(zke_close(z[i]));
}

void close_clean(const char *path) {
  for (int i = 0; i < SESSIONS; i++) {
    if (zke_sync(z[i], "/") != ZKE_OK) continue; /* its session has ended */
    ck_assert_int_eq(entries(z[i], path), 0);
    ck_assert_int_eq(watches(z[i]), 0);
  }
  close_sessions();
}

void dispatch_all(void) {
  for (int any = 1; any;) {
    any = 0;
    for (int i = 0; i < SESSIONS; i++) any += dispatch_on(z[i]);
  }
}

void renew_session(int i) {
  zke_options o = {.size = sizeof o, .identity = identities[i]};
  zke *old = z[i];
  ck_ok(zke_open_session(z[i ? 0 : 1], &o, &z[i]));
  ck_ok(zke_close(old));
}

zke *open_to_flood(void) {
  zke_options o = {.size = sizeof o, .event_limit = 4};
  zke *session;
  ck_ok(zke_open_session(z[0], &o, &session));
  ck_ok(
      zke_create(z[1], "/x", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_add_watch(session, "/x", ZKE_WATCH_PERSISTENT, test_ignore, NULL));
  return session;
}

void flood(zke *session) {
  for (int i = 0; i < 20; i++) ck_ok(zke_set(z[1], "/x", "", 0, -1, NULL));
  ck_ok(zke_dispatch(session, NULL));
}

/* ------------------------------------------------------------------------
 * In the middle of a call
 * --------------------------------------------------------------------- */

zke *caller, *intruder;

static int places_left; /* before it acts */
static bool between;    /* places are readings of the clock, not locks */
static bool by_sleep;   /* and a sleep is the last place */
static int held;        /* locks of the caller's store since then */
static bool acting;     /* its own locks and readings do not count */
static void (*act)(void);

static void pass_place(void) {
  if (!act || acting || --places_left != 0) return;
  acting = true;
  int64_t limit = zke_limit(caller, ZKE_FOREVER); /* a thread has one */
  act();
  zke_limit(caller, limit);
  acting = false;
}

static void before_lock(seam_call *c) {
  if (c->how == ZKE_LOCK_EXCLUSIVE && !between) pass_place();
}

static void after_lock(seam_call *c) {
  if (c->result == 0) held += c->how == ZKE_LOCK_EXCLUSIVE ? 1 : -1;
}

static void before_look(seam_call *c) {
  (void)c;
  if (between && held <= 0) pass_place();
}

bool slept;

/* An action that is still due happens before the caller's store sleeps. */
static void before_poll(seam_call *c) {
  if (!by_sleep || c->time == 0 || held > 0) return;
  if (!act || acting || places_left <= 0) return;
  slept = true;
  places_left = 1;
  pass_place();
}

void (*caller_pauses)(void *context, int64_t ns);

static void before_sleep(seam_call *c) {
  if (caller_pauses) caller_pauses(NULL, c->time);
}

static seam acting_seam = {.before = {[SEAM_lock_range] = before_lock,
                                      [SEAM_clock] = before_look,
                                      [SEAM_poll] = before_poll,
                                      [SEAM_sleep] = before_sleep},
                           .after = {[SEAM_lock_range] = after_lock}};

void open_two(void) { open_two_patient(0); }

void open_two_patient(int busy_timeout_ms) {
  zke_options o = {.size = sizeof o,
                   .os = seam_os(&acting_seam),
                   .identity = "caller",
                   .busy_timeout_ms = busy_timeout_ms};
  ck_ok(zke_open(test_path("db"), &o, &caller));
  o = (zke_options){.size = sizeof o, .identity = "intruder"};
  ck_ok(zke_open(test_path("db"), &o, &intruder));
  closes = close_two;
}

void close_two(void) {
  closes = NULL;
  act = NULL;
  ck_ok(zke_close(caller));
  ck_ok(zke_close(intruder));
}

static void begin_places(int n, bool at_clock, void (*action)(void)) {
  places_left = n;
  between = at_clock;
  by_sleep = slept = false;
  held = 0;
  act = action;
}

void act_at(int n, void (*action)(void)) { begin_places(n, false, action); }

void act_between(int n, void (*action)(void)) { begin_places(n, true, action); }

void act_by_sleep(int n, void (*action)(void)) {
  begin_places(n, true, action);
  by_sleep = true;
}

bool acted(void) {
  act = NULL;
  return places_left <= 0;
}
