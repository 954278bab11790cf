/* kept.c - see kept.h */
#include "test/sim/kept.h"

#include <stdio.h>

#include "test/sim/container.h"
#include "test/sim/known.h"
#include "test/sim/load.h"
#include "test/sim/plan.h"
#include "test/sim/sched.h"

/* TIMEOUT_MS: a session ends after this long without a sign of life.  SAFE_MS:
 * it surely lives this long; a call may take some time.  Time in which no
 * process runs does not count, except for as much as a sweep may not notice. */
enum { KEPT = 4, TIMEOUT_MS = 3000, SAFE_MS = 1500, UNNOTICED_MS = 1500 };

enum state {
  NONE,
  ATTACHED,
  DETACHED, /* it is detached, or its process has died */
  AT_WORK   /* in a call: no other process touches it */
};

typedef struct kept {
  enum state state;
  int slot; /* ATTACHED, AT_WORK: the slot that has it */
  zke *z;
  int64_t id, heard;
  unsigned char password[16];
  bool owns;   /* its ephemeral was made and acknowledged */
  bool adrift; /* side files of the database were removed; see is_lost() */
} kept;

static kept all[KEPT];

/* The time that counts for timeouts, up to the last tick. */
static int64_t counted;

/* Is any process alive and not stopped? */
static bool any_runs(void) {
  bool any = false;
  for (int i = 0; i < SIM_SLOTS; i++)
    any |= sched_lives(i) && !sched_process_of(i)->stopped;
  return any;
}

/* How much of a time in which no process runs may count. */
static int64_t unnoticed(int64_t ns) {
  const int64_t most = UNNOTICED_MS * SIM_MS;
  return ns < most ? ns : most;
}

/* Add the time since the last tick to the time that counts for timeouts. */
void kept_tick(void) {
  static int64_t now, suspended;
  static bool ran; /* a process, since the last tick */
  if (!the_plan.k.kept) return;
  int64_t by = sim.now - now;
  counted += ran ? by : unnoticed(by);
  counted += unnoticed(sim.suspended - suspended);
  now = sim.now;
  suspended = sim.suspended;
  ran = any_runs();
}

/* Is it surely within its timeout?  A container with another boot id takes a
 * file without living processes for one of another boot (doc/design.md 7). */
static bool is_safe(const kept *k) {
  return container_shows_boot() && counted - k->heard < SAFE_MS * SIM_MS;
}

/* Were side files of the database removed, and has a new epoch begun since?
 * That ends detached sessions (doc/design.md 7). */
static bool is_lost(const kept *k, const ops_actor *a) {
  return k->adrift && known_of[a->slot].id >> 32 > k->id >> 32;
}

/* The path of its ephemeral. */
static void path_of(const kept *k, char path[8]) {
  snprintf(path, 8, "/k%d", (int)(k - all));
}

/* A call has said that it has ended. */
static void is_over(kept *k, const char *what, int rc) {
  if (is_safe(k))
    sim_found(
        "P5: the kept session %llx is over, %lld ms after it was heard "
        "from: %s: %s, %s",
        (long long)k->id, (long long)((counted - k->heard) / SIM_MS), what,
        zke_error_name(rc), zke_errmsg());
  k->state = NONE;
}

/* Does a result mean that a session has ended? */
static bool says_over(int rc) {
  return rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE ||
         rc == ZKE_SESSIONMOVED;
}

/* Calls on a kept session say nothing about the process's own. */
static int call_end(known_call c, int rc) {
  if (!says_over(rc)) known_end(c, rc);
  return rc;
}

/* If its ephemeral was made, it exists and belongs to the session. */
static int look(kept *k) {
  char path[8];
  zke_stat stat = {.version = 0};
  path_of(k, path);
  known_call c = known_begin(k->slot, "kept: exists");
  int rc = call_end(c, zke_exists(k->z, path, NULL, NULL, &stat));
  if (!k->owns || (rc != ZKE_OK && rc != ZKE_NONODE)) return rc;
  if (rc == ZKE_NONODE || stat.ephemeralOwner != k->id)
    sim_found("P5: the ephemeral %s of a kept session is gone", path);
  return rc;
}

/* Open a kept session and make its ephemeral.  If the process dies meanwhile,
 * the session is unknown to the others. */
static void kept_open(kept *k, const ops_actor *a) {
  char path[8];
  zke_options o = ZKE_INIT(zke_options);
  o.timeout_ms = TIMEOUT_MS;
  *k =
      (kept){.state = AT_WORK, .slot = a->slot, .adrift = sched_self()->adrift};
  known_call c = known_begin(a->slot, "kept: open_session");
  int rc = call_end(c, zke_open_session(a->z, &o, &k->z));
  k->state = NONE;
  if (rc != ZKE_OK) return;
  k->state = AT_WORK;
  k->heard = counted;
  k->id = zke_session_id(k->z);
  known_session_id(k->id);
  zke_password(k->z, k->password);
  path_of(k, path);
  c = known_begin(a->slot, "kept: create");
  rc = call_end(c, zke_create(k->z, path, NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                              NULL, NULL));
  k->owns = rc == ZKE_OK;
  k->state = ATTACHED;
}

/* Detach the session: any process may attach it now. */
static void kept_detach(kept *k) {
  k->state = AT_WORK;
  int rc = zke_detach(k->z);
  if (rc == ZKE_OK) k->heard = counted;
  k->z = NULL;
  k->state = DETACHED;
}

/* Use the session: detach it, or check that it and its ephemeral exist. */
static void kept_use(kept *k, const ops_actor *a) {
  if (sim_load(a->slot, 3) == 0) {
    kept_detach(k);
    return;
  }
  k->state = AT_WORK;
  int rc = look(k);
  if (says_over(rc)) {
    is_over(k, "exists", rc);
    zke_close(k->z);
    return;
  }
  if (rc == ZKE_OK) k->heard = counted;
  k->state = ATTACHED;
}

/* Attach a detached session.  It may have ended, but only after its timeout;
 * and its password is right.  A process that is not adrift has opened the file
 * since the last removal, so what it can attach continues to live. */
static void kept_attach(kept *k, const ops_actor *a) {
  k->state = AT_WORK;
  k->slot = a->slot;
  known_call c = known_begin(a->slot, "kept: attach");
  int rc = call_end(c, zke_attach(a->z, k->id, k->password, NULL, &k->z));
  k->state = DETACHED;
  if (rc == ZKE_AUTHFAILED) sim_found("P5: attach: %s", zke_errmsg());
  if (rc == ZKE_SESSIONEXPIRED && !is_lost(k, a)) is_over(k, "attach", rc);
  if (rc == ZKE_SESSIONEXPIRED) k->state = NONE;
  if (rc == ZKE_CONNECTIONLOSS) k->state = NONE; /* it may be attached */
  if (rc != ZKE_OK) return;
  k->adrift = sched_self()->adrift;
  load_count.attached++;
  k->heard = counted;
  k->state = AT_WORK;
  look(k);
  k->state = ATTACHED;
}

/* Do with one of the kept sessions what its state allows. */
void kept_any(const ops_actor *a) {
  kept *k = &all[sim_load(a->slot, KEPT)];
  if (!the_plan.k.kept) return;
  if (k->state == NONE)
    kept_open(k, a);
  else if (k->state == ATTACHED && k->slot == a->slot)
    kept_use(k, a);
  else if (k->state == DETACHED)
    kept_attach(k, a);
}

/* The process is about to exit properly. */
void kept_leave(int slot) {
  for (int i = 0; i < KEPT; i++)
    if (all[i].state == ATTACHED && all[i].slot == slot) kept_detach(&all[i]);
}

/* The process was killed.  A session that it was using in a call is not used
 * again, since the effect of the call is unknown. */
void kept_died(int slot) {
  for (int i = 0; i < KEPT; i++) {
    kept *k = &all[i];
    if (k->slot != slot) continue;
    if (k->state == ATTACHED) k->state = DETACHED;
    if (k->state == AT_WORK) k->state = NONE; /* unknown */
  }
}

/* Side files of the database are removed while sessions live. */
void kept_adrift(void) {
  for (int i = 0; i < KEPT; i++) all[i].adrift = true;
}

/* No session outlives a boot. */
void kept_forget(void) {
  for (int i = 0; i < KEPT; i++) all[i].state = NONE;
}
