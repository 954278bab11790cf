/* ops.c - see ops.h */
#include "test/sim/ops.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/sim/cancel.h"
#include "test/sim/corner.h"
#include "test/sim/foreign.h"
#include "test/sim/forked.h"
#include "test/sim/history.h"
#include "test/sim/kept.h"
#include "test/sim/line.h"
#include "test/sim/load.h"
#include "test/sim/memory.h"
#include "test/sim/os.h"
#include "test/sim/outbox.h"
#include "test/sim/plan.h"
#include "test/sim/rights.h"
#include "test/sim/sched.h"
#include "test/sim/tree.h"
#include "test/sim/vfs.h"
#include "test/sim/watchers.h"
#include "test/sim/watches.h"

enum { LEASE_MS = 1500, TTL_MS = 200 };

const char *const ops_file = "/sim/t.db";

static int64_t calm_until;

void ops_calm(int64_t until) { calm_until = until; }

/* ---- nodes come and go ---- */

int ops_create(const ops_actor *a, const char *name, const char *path,
               const char *data, int mode, char **path_out) {
  bool lasting = mode != ZKE_EPHEMERAL && mode != ZKE_EPHEMERAL_SEQUENTIAL;
  char *made = NULL;
  zke_stat stat = {.version = 0};
  int len = data ? 1 : -1, rc;
  known_call c = known_begin(a->slot, name);
  if (mode == ZKE_PERSISTENT_WITH_TTL)
    rc = zke_create_ttl(a->z, path, data, len, ZKE_OPEN_ACL, mode, TTL_MS,
                        &made, &stat);
  else
    rc = zke_create(a->z, path, data, len, ZKE_OPEN_ACL, mode, &made, &stat);
  if (known_end(c, rc) == ZKE_OK)
    history_note_call(c, stat.czxid, ZKE_EVENT_CREATED, made, lasting);
  if (path_out)
    *path_out = made;
  else
    zke_free(made);
  return rc;
}

/* Delete a node; a result. */
static int delete_node(const ops_actor *a, const char *name, const char *path,
                       bool lasting) {
  known_call c = known_begin(a->slot, name);
  int rc = known_end(c, zke_delete(a->z, path, -1));
  if (rc == ZKE_OK)
    history_note_call(c, zke_zxid(), ZKE_EVENT_DELETED, path, lasting);
  return rc;
}

/* ---- registers ---- */

void ops_set(const ops_actor *a) {
  char path[8], text[KNOWN_BYTES + 1];
  int k = (int)sim_load(a->slot, KNOWN_REGISTERS), v = known_value_new();
  int most = k ? KNOWN_BYTES : 0; /* the first has short values */
  zke_stat stat = {.version = 0};
  int expected = sim_load(a->slot, 2) ? -1 : known_version(k);
  snprintf(path, sizeof path, "/r%d", k);
  int len = snprintf(text, sizeof text, "%-*d", most, v);
  known_call c = known_begin(a->slot, "set");
  int rc = known_end(c, zke_set(a->z, path, text, len, expected, &stat));
  known_value_end(v, rc);
  if (rc != ZKE_OK) return;
  history_note_call(c, stat.mzxid, ZKE_EVENT_CHANGED, path, true);
  if (expected >= 0 && stat.version != expected + 1)
    sim_found("P1: a set of version %d gave %d", expected, stat.version);
  known_set(k, stat.version, v, stat.mzxid);
}

static void get(const ops_actor *a, bool watched) {
  char path[8], *data = NULL;
  int k = (int)sim_load(a->slot, KNOWN_REGISTERS), len = 0,
      least = known_version(k);
  zke_stat stat = {.version = 0};
  snprintf(path, sizeof path, "/r%d", k);
  watch *w = watched ? watches_new(a->slot, path, false) : NULL;
  known_call c = known_begin(a->slot, watched ? "get, watched" : "get");
  int rc = known_end(
      c, zke_get(a->z, path, w ? watches_event : NULL, w, &data, &len, &stat));
  if (rc == ZKE_NONODE) sim_found("P8: %s is lost", path);
  if (rc == ZKE_OK) {
    known_read(c, zke_zxid());
    known_got(k, least, data, len, &stat);
  }
  if (w) watches_keep(w, rc, &stat);
  zke_free(data);
}

static void op_get(const ops_actor *a) { get(a, false); }
static void op_get_watched(const ops_actor *a) { get(a, true); }

/* Read without a watch; it is set later, for the state that was read. */
static void op_watch_again(const ops_actor *a) {
  static const char *const paths[] = {"/r0", "/q", "/e0", "/c0"};
  uint64_t i = sim_load(a->slot, 4);
  zke_stat stat = {.version = 0};
  watch *w = watches_new(a->slot, paths[i], i == 1);
  known_call c = known_begin(a->slot, "exists");
  int rc = known_end(c, zke_exists(a->z, paths[i], NULL, NULL, &stat));
  int64_t zxid = zke_zxid();
  if ((rc != ZKE_OK && rc != ZKE_NONODE) || !zxid) return;
  known_read(c, zxid);
  if (sim_load(a->slot, 2)) ops_set(a);
  c = known_begin(a->slot, "set_watch");
  known_end(c, watches_again(w, a->z, rc, &stat, zxid));
}

/* ---- a pair ---- */

static void op_pair_read(const ops_actor *a) {
  zke_op ops[2];
  zke_op_result r[2] = {{0}};
  int least = known_pair();
  zke_op_get(&ops[0], "/m0");
  zke_op_get(&ops[1], "/m1");
  known_call c = known_begin(a->slot, "multi_read");
  int rc = known_end(c, zke_multi_read(a->z, ops, 2, r));
  if (rc == ZKE_OK) {
    const zke_stat *s = &r[0].stat, *t = &r[1].stat;
    known_read(c, zke_zxid());
    if (s->version != t->version || r[0].len != r[1].len ||
        memcmp(r[0].data, r[1].data, (size_t)r[0].len) != 0 ||
        (s->version && s->mzxid != t->mzxid))
      sim_found("P2: /m0 has version %d, /m1 %d", s->version, t->version);
    if (s->version < least)
      sim_found("P8: /m0 has version %d, after %d was known", s->version,
                least);
    known_pair_set(s->version);
  }
  zke_results_clear(r, 2);
}

static void op_pair_set(const ops_actor *a) {
  char text[KNOWN_BYTES + 1];
  zke_op ops[2];
  zke_op_result r[2] = {{0}};
  int v = known_value_new();
  int len = snprintf(text, sizeof text, "%-*d", KNOWN_BYTES, v);
  zke_op_set(&ops[0], "/m0", text, len, -1);
  zke_op_set(&ops[1], "/m1", text, len, -1);
  known_call c = known_begin(a->slot, "multi");
  int rc = known_end(c, zke_multi(a->z, ops, 2, r));
  known_value_end(v, rc);
  if (rc == ZKE_OK) {
    history_note_call(c, zke_zxid(), ZKE_EVENT_CHANGED, "/m0", true);
    history_note(zke_zxid(), ZKE_EVENT_CHANGED, "/m1", true);
    if (r[0].stat.version != r[1].stat.version)
      sim_found("P2: half of a multi: versions %d and %d", r[0].stat.version,
                r[1].stat.version);
    known_pair_set(r[0].stat.version);
  }
  zke_results_clear(r, 2);
}

/* ---- the queue ---- */

static void op_put(const ops_actor *a) {
  char *path = NULL;
  int least = known_given();
  int rc = ops_create(a, "create, sequential", "/q/n-", NULL,
                      ZKE_PERSISTENT_SEQUENTIAL, &path);
  if (rc == ZKE_OK) known_give(known_number_of(path), least);
  zke_free(path);
}

enum { BATCH = 3 };

typedef struct batch {
  int number[BATCH];
} batch;

static int batch_body(zke *z, void *context) {
  batch *b = context;
  for (int i = 0; i < BATCH; i++) {
    char *path = NULL;
    int rc = zke_create(z, "/q/n-", NULL, -1, ZKE_OPEN_ACL,
                        ZKE_PERSISTENT_SEQUENTIAL, &path, NULL);
    if (rc == ZKE_OK) b->number[i] = known_number_of(path);
    zke_free(path);
    if (forked_in_batch(z) || rc != ZKE_OK) return rc;
  }
  return ZKE_OK;
}

static void op_batch(const ops_actor *a) {
  batch b = {{0}};
  int least = known_given();
  known_call c = known_begin(a->slot, "batch");
  int rc = zke_batch(a->z, batch_body, &b);
  forked_returned(a->slot, a->z, rc);
  if (known_end(c, rc) != ZKE_OK) return;
  for (int i = 0; i < BATCH; i++) known_give(b.number[i], least);
}

/* A large node, and then the function refuses: nothing of it stays, or
 * known_listed() finds a name without a number. */
static int undone_body(zke *z, void *context) {
  static const char data[20000];
  (void)context;
  zke_create(z, "/q/undone", data, sizeof data, ZKE_OPEN_ACL, ZKE_PERSISTENT,
             NULL, NULL);
  return ZKE_NONODE;
}

static void op_batch_undone(const ops_actor *a) {
  known_call c = known_begin(a->slot, "batch, undone");
  int rc = known_end(c, zke_batch(a->z, undone_body, NULL));
  if (rc == ZKE_OK) sim_found("P2: a batch that was refused is ZKE_OK");
}

static void op_take(const ops_actor *a) {
  char path[24];
  int n = -1;
  for (int i = 0; i < 20 && n < 0; i++) n = known_pick(sim_load(a->slot, 0));
  if (n < 0) return;
  snprintf(path, sizeof path, "/q/n-%010d", n);
  known_taken(n, delete_node(a, "delete", path, true));
}

static void list(const ops_actor *a, bool watched) {
  unsigned char before[KNOWN_NUMBERS];
  zke_strings *names = NULL;
  zke_stat stat = {.version = 0};
  known_numbers(before);
  watch *w = watched ? watches_new(a->slot, "/q", true) : NULL;
  known_call c =
      known_begin(a->slot, watched ? "children, watched" : "children");
  int rc = known_end(
      c, zke_children(a->z, "/q", w ? watches_event : NULL, w, &names, &stat));
  if (rc == ZKE_OK) {
    known_read(c, zke_zxid());
    known_listed(names, before);
  }
  if (w) watches_keep(w, rc, &stat);
  zke_free(names);
}

static void op_list(const ops_actor *a) { list(a, false); }
static void op_list_watched(const ops_actor *a) { list(a, true); }

/* ---- locks: an ephemeral that one session can have ---- */

static void lock_path(int k, char path[8]) { snprintf(path, 8, "/e%d", k); }

/* Check that it still exists, since it is ours. */
static void lock_look(const ops_actor *a, int k) {
  char path[8];
  zke_stat stat = {.version = 0};
  int64_t before, after;
  known_holder(k, &before);
  lock_path(k, path);
  known_call c = known_begin(a->slot, "exists, own");
  int rc = known_end(c, zke_exists(a->z, path, NULL, NULL, &stat));
  int holder = known_holder(k, &after);
  if (holder != a->slot || before != after) return; /* another thread */
  if (rc == ZKE_NONODE ||
      (rc == ZKE_OK && stat.ephemeralOwner != known_of[a->slot].id))
    sim_found("P5: the ephemeral %s of a living session is gone", path);
}

static void lock_release(const ops_actor *a, int k) {
  char path[8];
  lock_path(k, path);
  known_release(k);
  if (delete_node(a, "delete, own", path, false) == ZKE_NONODE)
    sim_found("P5: the ephemeral %s of a living session was gone", path);
}

static void lock_take(const ops_actor *a, int k) {
  char path[8];
  int64_t generation;
  lock_path(k, path);
  int rc = ops_create(a, "create, ephemeral", path, "x", ZKE_EPHEMERAL, NULL);
  if (rc != ZKE_OK) return;
  int holder = known_holder(k, &generation);
  if (holder >= 0)
    sim_found("P5: two hold %s: %c and %c", path, 'A' + holder, 'A' + a->slot);
  if (!known_of[a->slot].may_end) known_hold(k, a->slot);
}

static void lock_watch(const ops_actor *a, int k) {
  char path[8];
  zke_stat stat = {.version = 0};
  lock_path(k, path);
  watch *w = watches_new(a->slot, path, false);
  known_call c = known_begin(a->slot, "exists, watched");
  int rc = known_end(c, zke_exists(a->z, path, watches_event, w, &stat));
  if (rc == ZKE_OK || rc == ZKE_NONODE) known_read(c, zke_zxid());
  watches_keep(w, rc, &stat);
}

static void op_lock(const ops_actor *a) {
  int64_t generation;
  int k = (int)sim_load(a->slot, KNOWN_LOCKS);
  bool other = sim_load(a->slot, 2);
  if (known_holder(k, &generation) == a->slot) {
    if (other)
      lock_look(a, k);
    else
      lock_release(a, k);
  } else if (other) {
    lock_take(a, k);
  } else {
    lock_watch(a, k);
  }
}

/* ---- ephemerals, containers, further sessions ---- */

static void op_ephemeral(const ops_actor *a) {
  char *path = NULL;
  int rc = ops_create(a, "create, ephemeral sequential", "/l/n-", NULL,
                      ZKE_EPHEMERAL_SEQUENTIAL, &path);
  if (rc == ZKE_OK && sim_load(a->slot, 2))
    delete_node(a, "delete, ephemeral", path, false);
  zke_free(path);
}

/* After a set, a TTL node has its full time again. */
static void set_later(const ops_actor *a, const char *path) {
  zke_stat stat = {.version = 0};
  sched_pause((int64_t)sim_load(a->slot, TTL_MS) * SIM_MS);
  known_call c = known_begin(a->slot, "set, TTL");
  int rc = known_end(c, zke_set(a->z, path, "x", 1, -1, &stat));
  if (rc == ZKE_OK)
    history_note_call(c, stat.mzxid, ZKE_EVENT_CHANGED, path, true);
}

static void op_container(const ops_actor *a) {
  char path[8];
  snprintf(path, sizeof path, "/c%d", (int)sim_load(a->slot, 2));
  bool ttl = sim_load(a->slot, 2);
  ops_create(a, ttl ? "create, TTL" : "container", path, NULL,
             ttl ? ZKE_PERSISTENT_WITH_TTL : ZKE_CONTAINER, NULL);
  if (ttl && sim_load(a->slot, 2)) set_later(a, path);
}

static void op_session(const ops_actor *a) {
  zke_options o = ZKE_INIT(zke_options);
  zke *z = NULL;
  o.flags = sim_load(a->slot, 2) ? ZKE_OPEN_LIGHT : 0;
  known_call c = known_begin(a->slot, "open_session");
  if (known_end(c, zke_open_session(a->z, &o, &z)) != ZKE_OK) return;
  known_session_id(zke_session_id(z));
  c = known_begin(a->slot, "create in it");
  known_end(c, zke_create(z, "/l/s-", NULL, -1, ZKE_OPEN_ACL,
                          ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL));
  c = known_begin(a->slot, "close it");
  known_end(c, zke_close(z));
}

/* End the session of another process. */
static void op_expire(const ops_actor *a) {
  int k = (int)sim_load(a->slot, (uint64_t)the_plan.k.processes);
  int64_t id = known_of[k].id;
  if (!the_plan.k.leases || k == a->slot || !sched_lives(k) || !id) return;
  known_of[k].may_end = true;
  known_of[k].leased = false;
  known_release_all(k);
  known_call c = known_begin(a->slot, "expire");
  int rc = known_end(c, zke_expire(a->z, id));
  if (rc == ZKE_OK && known_of[k].id == id) known_of[k].ended = true;
}

/* ---- waiting ---- */

/* Report the session's end as the result, for the checks. */
int ops_told(const ops_actor *a, int rc) {
  bool over = rc == ZKE_OK && zke_state(a->z) == ZKE_STATE_EXPIRED;
  return over ? ZKE_SESSIONEXPIRED : rc;
}

/* Wait as in a program's own event loop. */
static void wait_outside(const ops_actor *a, int64_t ms) {
  int fd = -1, count = 0;
  if (zke_fd(a->z, &fd) != ZKE_OK) return;
  struct pollfd p = {fd, POLLIN, 0};
  os_simulated.poll(NULL, &p, 1, (int)ms);
  known_call c = known_begin(a->slot, "dispatch");
  int rc = zke_dispatch(a->z, &count);
  forked_returned(a->slot, a->z, rc);
  known_end(c, ops_told(a, rc));
}

int ops_wait(const ops_actor *a, int64_t ms) {
  known_call c = known_begin(a->slot, "wait");
  watches_wait(a->slot, a->thread, true);
  int rc = zke_wait(a->z, zke_now(a->z) + ms);
  forked_returned(a->slot, a->z, rc);
  watches_wait(a->slot, a->thread, false);
  c.at += ms * SIM_MS; /* the wait's own time */
  int quiet = rc == ZKE_OPERATIONTIMEOUT ? ZKE_OK : rc;
  known_end(c, ops_told(a, quiet));
  return rc;
}

static void op_wait(const ops_actor *a) {
  int64_t ms =
      20 + (int64_t)sim_load(a->slot, sim_load(a->slot, 2) ? 200 : 2500);
  watches_wait(a->slot, a->thread, true);
  if (sim_load(a->slot, 3) == 0)
    wait_outside(a, ms);
  else
    ops_wait(a, ms);
  watches_wait(a->slot, a->thread, false);
}

/* ---- zke_check() ---- */

/* It may report what a failed read made it believe. */
static void check_line(void *context, const char *sentence) {
  (void)context;
  if (sim.last_error >= known_check_began) return;
  sim_found("P2: zke_check(): %s", sentence);
}

void ops_check(const ops_actor *a) {
  known_check_began = sim.now;
  known_call c = known_begin(a->slot, "check");
  known_end(c, zke_check(a->z, check_line, NULL));
}

static void op_check(const ops_actor *a) {
  if (sim_load(a->slot, 8) == 0)
    ops_check(a);
  else
    op_get(a);
}

void ops_look(const ops_actor *a) {
  for (int i = 0; i < 10; i++) op_get(a);
  op_list(a);
  op_pair_read(a);
  corner_look(a);
}

/* ---- which ---- */

typedef struct kind {
  void (*fn)(const ops_actor *a);
  int weight;
  bool quiet; /* it is not synced */
} kind;

static const kind kinds[] = {
    {ops_set, 3, false},        {op_get, 2, true},
    {op_get_watched, 2, true},  {op_pair_set, 1, false},
    {op_pair_read, 1, true},    {op_put, 1, false},
    {op_take, 1, false},        {op_list, 1, true},
    {op_list_watched, 1, true}, {op_lock, 3, true},
    {op_ephemeral, 1, true},    {op_batch, 1, false},
    {op_container, 1, false},   {op_session, 1, true},
    {op_check, 1, true},        {op_wait, 2, true},
    {op_batch_undone, 1, true}, {op_expire, 1, true},
    {line_any, 1, true},        {kept_any, 2, true},
    {tree_around, 2, true},     {watchers_any, 2, true},
    {foreign_any, 1, true},     {corner_any, 2, false},
    {cancel_any, 1, false},     {tree_any, 4, false},
    {op_watch_again, 1, true},  {rights_any, 1, false},
    {outbox_any, 1, false}};

void ops_any(const ops_actor *a) {
  int total = 0;
  bool calm = sim.now < calm_until;
  if (the_plan.k.busy && !calm && sim_load(a->slot, 4)) {
    ops_set(a);
    return;
  }
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!calm || kinds[i].quiet) total += kinds[i].weight;
  int pick = (int)sim_load(a->slot, (uint64_t)total);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (calm && !kinds[i].quiet) continue;
    pick -= kinds[i].weight;
    if (pick >= 0) continue;
    if (!(the_plan.k.omits >> i & 1)) kinds[i].fn(a);
    return;
  }
}

/* ---- opening and closing ---- */

static void on_log(void *context, int level, const char *message) {
  (void)context;
  sim_say("log %d: %s", level, message);
}

int ops_open(int slot, zke **z_out) {
  ops_actor a = {.slot = slot};
  known_session *s = &known_of[slot];
  zke_options o = ZKE_INIT(zke_options);
  o.os = &os_simulated;
  o.allocator = memory_allocator;
  o.vfs = vfs_name;
  o.log = on_log;
  o.busy_timeout_ms = BUSY_MS;
  o.container_ms = ops_container_ms;
  if (the_plan.k.hosted || the_plan.k.pages) o.flags |= ZKE_OPEN_HOST;
  o.cache_kib = (int)the_plan.k.cache;
  o.notice_limit = (int)the_plan.k.notices;
  if (sim_load(a.slot, 4) == 0) o.event_limit = 2 + (int)sim_load(a.slot, 8);
  bool leased = the_plan.k.leases && sim_load(a.slot, 3) == 0;
  if (leased) o.lease_ms = LEASE_MS;
  *s = (known_session){.may_end = leased, .leased = leased};
  sched_self()->adrift = 0; /* it gets the files that are there now */
  known_call c = known_begin(slot, "open");
  int rc = known_end(c, zke_open(ops_file, &o, z_out));
  bool rubbish = rc == ZKE_NOTADB || rc == ZKE_CORRUPT;
  if (rubbish) rc = known_is_rubbish(&c) ? ZKE_NOTADB : ZKE_SYSTEMERROR;
  if (rc != ZKE_OK) return rc;
  sched_self()->unsure = sched_self()->adrift;
  s->id = zke_session_id(*z_out);
  known_session_id(s->id);
  load_count.opens++;
  return rc;
}

int ops_nodes(const ops_actor *a) {
  static const char *const all[] = {"/r0", "/r1", "/r2", "/m0",
                                    "/m1", "/q",  "/l",  "/line"};
  int kept = known_ready ? ZKE_OK : history_begin(a);
  if (kept != ZKE_OK) return kept;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    bool ready = known_ready;
    known_call c = known_begin(a->slot, "create");
    int rc = known_end(c, zke_create(a->z, all[i], "0", 1, ZKE_OPEN_ACL,
                                     ZKE_PERSISTENT, NULL, NULL));
    if (rc == ZKE_OK) known_zxid(c, zke_zxid());
    if (rc == ZKE_OK && ready) sim_found("P8: %s was lost", all[i]);
    if (rc != ZKE_OK && rc != ZKE_NODEEXISTS) return rc;
  }
  known_ready = true;
  return ZKE_OK;
}

int ops_close(int slot, zke *z) {
  kept_leave(slot);
  line_died(slot);
  known_release_all(slot);
  known_of[slot].id = 0;
  watches_forget(slot);
  watchers_forget(slot);
  known_call c = known_begin(slot, "close");
  c.ended = false;
  return known_end(c, zke_close(z));
}
