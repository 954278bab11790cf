/* test_lab_tables: the laboratory's tables do the same as SQLite
 *
 * The laboratory searches on plain tables (tables.c).  Here the engine makes
 * random calls on them, those of `make model` (test/model/run.c), and the model
 * judges each answer.  The model has no leases, and never too many events for a
 * session.  So two processes make calls that need these, and the last one to
 * end reports all results to the laboratory as if they were a finding: the
 * laboratory replays each finding on SQLite, and refuses one that differs
 * there.
 *
 * Environment: SEED, the first seed; SEEDS, how many; OPS, calls of a
 * process. */
#include "test/lab/zkembed-lab.h"
#include "test/test.h"

#include <inttypes.h>
#include <string.h>

#include "test/model/run.h"
#include "test/program.h"

/* The laboratory restores these before each schedule. */
static uint64_t sum, state;
static int ended; /* processes that have made all their calls */

static void set_up(zke *z, void *seed) {
  (void)z;
  state = *(uint64_t *)seed;
}

/* Run one schedule for each seed, of one process followed by `finally`, or else
 * of two processes.  The finding must contain `why`; NULL: there must be
 * none. */
static void run_seeds(zke_lab_fn process, zke_lab_fn finally, const char *why) {
  zke_lab_options o = ZKE_INIT(zke_lab_options);
  zke_lab_result found;
  uint64_t seed = (uint64_t)program_setting("SEED", 1);
  o.crashes = o.expiries = o.losses = o.pauses = -1;
  o.timeouts = o.leftovers = 1;
  o.steps = 4000;
  o.strategies = ZKE_LAB_RANDOM;
  o.schedules = 1;
  for (long i = program_setting("SEEDS", 20); i > 0; i--, seed++) {
    zke_lab *lab = NULL;
    o.seed = seed;
    ck_rc(zke_lab_new(&o, &lab), ZKE_OK);
    zke_lab_setup(lab, set_up, &seed);
    ck_rc(zke_lab_process(lab, "a", process, &seed), ZKE_OK);
    if (!finally) ck_rc(zke_lab_process(lab, "b", process, &seed), ZKE_OK);
    zke_lab_finally(lab, finally, &seed);
    int rc = zke_lab_run(lab, &found);
    ck_assert_msg(rc == ZKE_OK, "SEED=%" PRIu64 ": %s", seed, zke_errmsg());
    ck_assert_msg(!found.found == !why && (!why || strstr(found.why, why)),
                  "SEED=%" PRIu64 ": %s", seed, found.why);
    zke_lab_free(lab);
  }
}

/* ---- what the model judges ---- */

static int64_t session; /* the process's; the model begins without it */

static void note_session(zke *z, void *seed) {
  (void)seed;
  session = zke_session_id(z);
}

static void compare(zke *z, void *seed) {
  run_engine.given = z;
  zke_lab_assert(zke_expire(z, session) == ZKE_OK);
  zke_lab_assert(run_seed(*(uint64_t *)seed, (int)program_setting("OPS", 400)));
}

/* P1 and P4 hold of the tables, because they answer as the model does. */
TEST(tables_are_as_the_model) { run_seeds(note_session, compare, NULL); }

/* ---- leases, and lost events ---- */

static void fold(int64_t number) {
  sum = (sum ^ (uint64_t)number) * UINT64_C(0x100000001b3);
}

static int draw(int below) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((state >> 33) % (uint64_t)below);
}

static void on_event(zke *z, int type, int to, const char *path, void *arg) {
  (void)z, (void)arg;
  fold(type * 100 + to);
  for (; *path; path++) fold(*path);
}

/* It watches everything, and has room for few events. */
static zke *open_other(zke *z) {
  zke_options o = ZKE_INIT(zke_options);
  zke *other = NULL;
  o.event_limit = 5;
  o.lease_ms = draw(2) ? 5000 : 0;
  fold(zke_open_session(z, &o, &other));
  fold(zke_create(other, "/e-", NULL, -1, ZKE_OPEN_ACL,
                  ZKE_EPHEMERAL_SEQUENTIAL, NULL, NULL));
  fold(zke_add_watch(other, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, on_event,
                     NULL));
  return other;
}

/* Watches are read from SQLite, after the tables' rows were written there. */
static void look(zke *z) {
  zke_session_list *all = NULL;
  zke_watch_list *watches = NULL;
  if (draw(4) == 0) fold(zke_watches(z, &watches));
  zke_free(watches);
  fold(zke_sessions(z, -1, &all));
  for (int i = 0; all && i < all->count; i++) {
    fold(all->data[i].ephemerals + 100 * all->data[i].events);
    fold(all->data[i].alive);
  }
  zke_free(all);
}

/* Nodes that expire. */
static void make_nodes(zke *z) {
  fold(zke_create_ttl(z, "/n-", NULL, -1, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, 1 + draw(60000), NULL,
                      NULL));
  fold(zke_create(z, "/c", NULL, -1, ZKE_OPEN_ACL, ZKE_CONTAINER, NULL, NULL));
  fold(zke_create(z, "/c/n", NULL, -1, ZKE_OPEN_ACL, 0, NULL, NULL));
  fold(zke_delete(z, "/c/n", -1));
}

static void call(zke *z, zke *other) {
  switch (draw(4)) {
    case 0:
      fold(zke_sleep(z, zke_now(z) + draw(draw(2) ? 3000 : 90000)));
      break;
    case 1:
      fold(zke_dispatch(other && draw(2) ? other : z, NULL));
      break;
    case 2:
      look(z);
      break;
    default:
      make_nodes(z);
  }
}

/* The processes take random numbers from one state, so the schedule decides
 * which process makes which call. */
static void make_calls(zke *z, void *seed) {
  (void)seed;
  zke *others[2] = {NULL, NULL};
  int opened = 0; /* the laboratory keeps eight of a process */
  for (long i = program_setting("OPS", 200); i > 0; i--) {
    zke **other = &others[draw(2)];
    call(z, *other);
    if (draw(10)) continue;
    if (*other) fold(zke_close(*other));
    *other = !*other && opened++ < 8 ? open_other(z) : NULL;
  }
  if (++ended == 2) zke_lab_fail("the sum is %016" PRIx64, sum);
}

/* P3, P5 and P6 hold of the tables because they hold of SQLite, call by
 * call. */
TEST(tables_are_as_sqlite) { run_seeds(make_calls, NULL, "the sum is"); }
