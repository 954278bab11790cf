/* test_periodic.c - recipes/periodic: at most once a period
 *
 * However many processes are ready, one run happens in each period. */
#include "recipes/periodic.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"
#include "steps.h"
#include "test/seam.h"

#define BASE "/jobs"
#define JOB "/jobs/j"
enum { PERIOD = 1000 };

#define RUNNING JOB "/running"
#define BEGIN INT64_C(1800000000000) /* of each test: 2027-01-15, 8:00 */

static zke_periodic_options options = {.period_ms = PERIOD};
static int64_t wall;          /* ms since 1970; 0: the real time */
static const char *meanwhile; /* steps for the next pause of a call */
static int64_t newest;        /* token of the last run */

static void set_wall(seam_call *c) {
  if (wall && c->how == ZKE_CLOCK_REALTIME) seam_refuse(c, wall * 1000000);
}

static void act_meanwhile(seam_call *c) {
  const char *script = meanwhile;
  (void)c;
  meanwhile = NULL;
  if (script) play(script);
}

static void hear(zke_periodic *j, int state, void *context) {
  (void)j;
  ck_assert_int_eq(state, ZKE_PERIODIC_LOST);
  tell("%s LOST", (const char *)context);
}

static int create(zke *session, const char *who, void **object) {
  options.size = sizeof options;
  options.listener = hear;
  options.context = (void *)(uintptr_t)who;
  return zke_periodic_new(session, BASE, "j", &options,
                          (zke_periodic **)object);
}

/* Each run has a greater token than all earlier ones. */
static int runs(step *s, int rc) {
  if (rc != ZKE_OK) return rc;
  int64_t token = zke_periodic_token(s->object);
  ck_step(s, token > newest, "its token does not rise");
  newest = token;
  return rc;
}

STEP(try, runs(s, zke_periodic_try(s->object)))
STEP(force, runs(s, zke_periodic_force(s->object)))
STEP(acquire, runs(s, zke_periodic_acquire(s->object, s->deadline)))
STEP(release, zke_periodic_release(s->object, atoi(s->rest)))
STEP(check, zke_periodic_check(s->object))
STEP(passes, (wall += atoi(s->rest), ZKE_OK)) /* ms, perhaps backwards */

static int step_is(step *s) {
  static const char *const names[] = {[ZKE_PERIODIC_OUT] = "OUT",
                                      [ZKE_PERIODIC_HELD] = "HELD",
                                      [ZKE_PERIODIC_LOST] = "LOST"};
  return sees(s, "%s", names[zke_periodic_state(s->object)]);
}

/* The last run: "ann runs, try 1", or "ann status 3, try 1". */
static int step_record(step *s) {
  zke_periodic_record *r = NULL;
  int rc = zke_periodic_get(s->session, BASE, "j", &r);
  if (rc != ZKE_OK) return rc;
  ck_assert_int_eq(r->running, r->end_ms == 0);
  if (r->running) ck_assert_int_eq(r->token, newest);
  ck_assert_int_eq(r->pid, getpid());
  if (r->running)
    gives(s, "%s runs", r->identity);
  else
    gives(s, "%s status %d", r->identity, r->status);
  gives(s, ", try %d%s", r->tries, r->forced ? ", forced" : "");
  zke_free(r);
  return rc;
}

/* "ran 10 20": the start and end, in ms since the test began. */
static int step_ran(step *s) {
  zke_periodic_record *r;
  ck_ok(zke_periodic_get(s->session, BASE, "j", &r));
  int64_t end = r->end_ms ? r->end_ms - BEGIN : -1;
  sees(s, "%d %d", (int)(r->start_ms - BEGIN), (int)end);
  zke_free(r);
  return ZKE_OK;
}

static zke_op guard; /* of the last "op" */

STEP(op, zke_periodic_op(s->object, &guard))

static int step_guarded(step *s) {
  zke_op ops[2] = {guard};
  zke_op_create(&ops[1], "/guarded", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  return zke_multi(s->session, ops, 2, NULL);
}

static const step_verb verbs[] = {VERB(try),     VERB(force),   VERB(acquire),
                                  VERB(release), VERB(check),   VERB(passes),
                                  VERB(is),      VERB(record),  VERB(ran),
                                  VERB(op),      VERB(guarded), {NULL, NULL}};

static void release(void *object) { zke_periodic_free(object); }
static int cancel(void *object) { return zke_periodic_cancel(object); }

static const step_recipe of_job = {
    .verbs = verbs, .create = create, .free = release, .cancel = cancel};

/* One job for all, with a clock that the test sets. */
static void begin_in(const char *db, int retry, int aligned) {
  static seam s = {
      .before = {[SEAM_clock] = set_wall, [SEAM_sleep] = act_meanwhile}};
  options.retry = retry;
  options.aligned = aligned;
  wall = BEGIN;
  newest = 0;
  open_steps_by(&of_job, db, seam_os(&s));
}

static void begin(int retry, int aligned) {
  begin_in(":memory:", retry, aligned);
}

/* Close; only the record may be left. */
static void end(void) {
  int64_t count;
  ck_assert_ptr_null(meanwhile);
  free_parties();
  ck_ok(zke_count(z[4], BASE, &count));
  ck_assert_int_le(count, 1);
  ck_assert_int_eq(all_watches(z[4]), 0);
  ck_ok(zke_check(z[4], NULL, NULL));
  close_sessions();
}

static void play_job(int retry, const char *script) {
  begin(retry, 0);
  play(script);
  end();
}

/* A release whose reply was lost has ended the run, although the next run
 * begins before it looks; also if the record's versions wrap around. */
TEST_LOOP(a_lost_reply_and_the_next_run, 0, 3) {
  static const int32_t versions[] = {0, -3, INT32_MAX - 2};
  begin_in(test_path("db"), 0, 0);
  play("ann try; ann release 0");
  test_set_version(test_path("db"), JOB, versions[_i]);
  play("passes 1000; ann try; ann fails after");
  meanwhile = "bob force";
  play("ann release 0; ann is OUT; bob is HELD; told ; bob release 0");
  end();
}

/* The reply of a release is lost, before or after it takes effect.  Before it
 * looks again the job's znode, or only `running`, is deleted, and the next run
 * begins, or none: the run counts as lost. */
TEST(a_lost_release_of_a_job_that_is_deleted) {
  begin(0, 0);
  play("ann try; ann fails before");
  meanwhile = "delete " RUNNING "; delete " JOB;
  play("ann release 0 -> LOST; told ann LOST; ann is LOST");
  play("ann try; ann fails before");
  meanwhile = "delete " RUNNING "; delete " JOB "; bob force";
  play(
      "ann release 0 -> LOST; told ann LOST; ann is LOST; bob check;"
      "bob release 0; passes 1000; ann try; ann fails before");
  meanwhile = "delete " RUNNING "; bob force";
  play(
      "ann release 0 -> LOST; told ann LOST; ann is LOST; bob check;"
      "bob release 0; passes 1000; ann try; ann fails after");
  meanwhile = "delete " JOB;
  play("ann release 0 -> LOST; told ann LOST; ann is LOST");
  play("ann try; ann fails after");
  meanwhile = "delete " JOB "; bob force";
  play(
      "ann release 0 -> LOST; told ann LOST; ann is LOST; bob check;"
      "bob release 0");
}

/* One run in a period, whichever process asks.  A refusal says who did it,
 * when, and when it is due again; the record describes the last run only. */
TEST(once_a_period) {
  play_job(0,
           "record -> NONODE; ann try; bob try -> HELD;"
           "said the job " JOB
           " is done by ann; record -> ann runs, try 1; ran 0 -1;"
           "passes 10; ann release 7; cid try -> LIMIT; said was done by ann;"
           "said (status 7; said is due again at 2027-01-15T08:00:01;"
           "bob try -> LIMIT; ann try -> LIMIT;"
           "record -> ann status 7, try 1; ran 0 10;"
           "passes 989; ann try -> LIMIT; passes 1;"
           "bob try; ann try -> HELD; record -> bob runs, try 1; passes 10;"
           "bob release 0; ann try -> LIMIT; cid try -> LIMIT;"
           "record -> bob status 0, try 1; ran 1000 1010; passes 990; cid try");
}

/* A clock set back by less than a period only delays the job; by a period or
 * more it makes the job due, once. */
TEST_LOOP(clock_steps, 0, 2) {
  begin(0, _i);
  play(
      "ann try; ann release 0; passes -999; bob try -> LIMIT;"
      "passes -1; bob try; bob release 0; ann try -> LIMIT;"
      "passes 50000; ann try; ann release 0; ann try -> LIMIT");
}

/* Aligned periods begin at multiples, whatever the time of the last run. */
TEST(aligned_periods_begin_at_multiples) {
  begin(0, 1);
  play(
      "passes 999; ann try; ann release 0; ann try -> LIMIT;"
      "passes 1; ann try; ann release 0; passes 999; ann try -> LIMIT");
}

/* The runner died: its run counts, or not, by the option; tries count. */
TEST(a_dead_ones_run_counts_by_the_option) {
  play_job(0,
           "ann try; ann expires; ann is LOST; ann release 0 -> INVALIDSTATE;"
           "told ann LOST; bob try -> LIMIT; said (it died);"
           "passes 1000; bob try; bob release 0");
  play_job(ZKE_PERIODIC_RETRY_DEAD,
           "ann try; ann expires; ann is LOST; ann release 0 -> INVALIDSTATE;"
           "told ann LOST; bob try; record -> bob runs, try 2;"
           "bob free;" /* gives up, as by a death */
           "cid try; cid release 0; cid try -> LIMIT");
}

/* The runner's process ends, and its session is a kept one: the run continues
 * until its timeout, and may be taken over. */
TEST_LOOP(a_kept_runner_may_come_back, 0, 2) {
  zke_options o = {
      .size = sizeof o, .identity = "kit", .timeout_ms = _i ? 300 : 60000};
  unsigned char password[16];
  zke *mine, *taken;
  zke_periodic *own;
  begin(ZKE_PERIODIC_RETRY_DEAD, 0);
  ck_ok(zke_open_session(z[4], &o, &mine));
  ck_ok(zke_password(mine, password));
  int64_t id = zke_session_id(mine);
  ck_ok(create(mine, "mine", (void **)&own));
  ck_ok(zke_periodic_try(own));
  newest = zke_periodic_token(own);
  ck_ok(zke_attach(z[4], id, password, NULL, &taken));
  zke_periodic_free(own); /* its session has moved: nothing is removed */
  ck_ok(zke_close(mine));
  ck_ok(zke_detach(taken));
  play("ann try -> HELD; record -> kit runs, try 1");
  if (_i == 0) {
    ck_ok(zke_attach(z[4], id, password, NULL, &taken));
    play("ann try -> HELD");
    ck_ok(zke_close(taken));
  }
  play("ann acquire; ann release 0");
}

/* A run that reports a failure counts as the period's run, unless the option
 * asks for another try. */
TEST(a_failed_run_is_repeated_if_so_wished) {
  play_job(0, "ann try; ann release 3; bob try -> LIMIT");
  play_job(ZKE_PERIODIC_RETRY_FAILED,
           "ann try; ann release 3; bob try; bob release 0; bob try -> LIMIT");
}

/* A forced run works even if it is not due, but never during another run. */
TEST(force_runs_early_but_never_beside_another) {
  play_job(0,
           "ann try; bob force -> HELD; ann release 0; bob force;"
           "bob try -> MISUSE; record -> bob runs, try 2, forced;"
           "bob release 0; bob release 0 -> LOST");
}

/* An operator deletes `running`: the runner is told, and its guarded operation
 * fails once another run has begun.  A deleted job's next record has the same
 * version, but the first run's release does not end the next run.  If another
 * object of the same session claims the job, the first hears of its loss. */
TEST(claim_lost) {
  play_job(ZKE_PERIODIC_RETRY_DEAD,
           "ann try; ann check; ann op; ann guarded; delete " RUNNING
           ";"
           "bob try; ann guarded -> BADVERSION; ann dispatches; told ann LOST;"
           "ann is LOST; ann check -> LOST; ann op -> LOST;"
           "ann release 0 -> LOST; bob release 0");
  play_job(0, "ann try; delete " RUNNING "; delete " JOB
              "; bob try;"
              "ann release 0 -> LOST; told ann LOST; bob check;"
              "cid force -> HELD; bob release 0");
  play_job(ZKE_PERIODIC_RETRY_DEAD,
           "ann try; ann dispatches;" /* it watches */
           "delete " RUNNING
           "; ann' try; ann dispatches; told ann LOST;"
           "ann is LOST; ann' release 0");
}

/* After a failed release the object still has the run: its listener hears when
 * it is taken away. */
TEST(failed_release_goes_on_listening) {
  test_heap heap = {0};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  zke *one, *two;
  zke_periodic *job;
  int failed = 0;
  options.retry = ZKE_PERIODIC_RETRY_DEAD;
  ck_ok(zke_open(":memory:", &o, &one));
  ck_ok(zke_open_session(one, &o, &two));
  for (int n = 1; n <= 20; n++) {
    told[0] = '\0';
    ck_ok(create(one, "ann", (void **)&job));
    ck_ok(zke_periodic_force(job));
    heap.fail_at = heap.calls + n;
    int rc = zke_periodic_release(job, 0);
    heap.fail_at = 0;
    if (rc != ZKE_OK) {
      ck_assert_int_eq(rc, ZKE_NOMEM);
      ck_assert_int_eq(zke_periodic_state(job), ZKE_PERIODIC_HELD);
      ck_ok(zke_delete(two, JOB "/running", -1));
      ck_until(dispatch_on(one) >= 0 && *told, 5000);
      failed++;
    }
    zke_periodic_free(job);
  }
  ck_assert_int_gt(failed, 0);
  ck_ok(zke_close(two));
  ck_ok(zke_close(one));
}

/* In real time: it waits until the job is due; a timeout says why it is not. */
TEST(it_waits_until_it_is_due) {
  begin(0, 0);
  wall = 0;
  options.period_ms = 60;
  int64_t start = zke_now(z[0]);
  play(
      "ann free; ann' acquire; ann' release 0; ann' acquire; ann' release 0;"
      "ann' acquire; ann' release 0");
  ck_assert_int_ge(zke_now(z[0]) - start, 2 * 60 - 2);
  options.period_ms = 3600000;
  play("delete " JOB
       "; bob' acquire; bob' release 0;"
       "bob' acquire_5 -> OPERATIONTIMEOUT; said was done by bob (pid ");
}

/* A call that waits during another process's run takes over when that process
 * dies, if such runs do not count; it can be cancelled.  A release during
 * another thread's acquire ends that call; a release without one has nothing to
 * give up. */
TEST(waits_for_end) {
  play_job(ZKE_PERIODIC_RETRY_DEAD,
           "ann try; bob waits acquire; ann expires; bob returns;"
           "bob release 0; bob begins acquire; bob cancels;"
           "bob returns -> CANCELLED");
  play_job(ZKE_PERIODIC_RETRY_DEAD,
           "ann try; bob waits acquire; bob release 0; bob returns -> LOST;"
           "bob release 0 -> LOST; ann release 0");
}

/* The watch of a wait cannot be set immediately, since its reply is lost: the
 * wait continues to its deadline, both after a run and during one.  The record
 * goes first. */
TEST(a_wait_without_its_watch_goes_on_to_its_deadline) {
  play_job(ZKE_PERIODIC_RETRY_DEAD,
           "ann try; ann release 0; bob try -> LIMIT; bob fails read 1;"
           "bob acquire_150 -> OPERATIONTIMEOUT; said was done by ann");
  play_job(ZKE_PERIODIC_RETRY_DEAD,
           "ann try; bob try -> HELD; bob fails read 1;"
           "bob acquire_150 -> OPERATIONTIMEOUT; said is done by ann;"
           "ann release 0");
}

/* A call waits for the next period because the last run succeeded.  A run is
 * forced meanwhile, and fails (0) or dies (1): the call takes over early. */
TEST_LOOP(a_forced_run_that_fails_wakes_who_waits_for_the_period, 0, 2) {
  options.period_ms = 3600000;
  begin(ZKE_PERIODIC_RETRY_DEAD | ZKE_PERIODIC_RETRY_FAILED, 0);
  wall = 0;
  play("ann try; ann release 0; bob waits acquire; ann force; bob still");
  play(_i ? "ann expires" : "ann release 1");
  play("bob returns; bob release 0");
}

/* P11: invalid periods and names are refused; so are another recipe's directory
 * and an invalid record.  An empty record is a job that has not run. */
TEST(bad_arguments) {
  zke_periodic *j;
  begin(0, 0);
  zke_periodic_options o = options;
  ck_rc(zke_periodic_new(z[4], BASE, "j", NULL, &j), ZKE_BADARGUMENTS);
  o.period_ms = 0;
  ck_rc(zke_periodic_new(z[4], BASE, "j", &o, &j), ZKE_BADARGUMENTS);
  o = options;
  o.retry = 4;
  ck_rc(zke_periodic_new(z[4], BASE, "j", &o, &j), ZKE_BADARGUMENTS);
  o = options;
  ck_rc(zke_periodic_new(z[4], BASE, "a/b", &o, &j), ZKE_BADARGUMENTS);
  ck_rc(zke_periodic_new(z[4], BASE, "j", &o, NULL), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(j);
  ck_rc(zke_periodic_op(party[0], NULL), ZKE_BADARGUMENTS);
  zke_periodic_free(NULL);
  ck_ok(zke_create(z[4], "/lock", "zkembed lock", 12, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_periodic_new(z[4], "/lock", "j", &o, &j));
  ck_rc(zke_periodic_try(j), ZKE_OTHERKIND);
  zke_periodic_free(j);
  play("ann try; ann release 0; set " JOB
       " something; bob try -> OTHERKIND;"
       "record -> OTHERKIND; set " JOB
       " ;" /* never run */
       "bob try; bob release 0");
}

/* ---- runners that come and go ---- */

static zke *there, *runner; /* another process, and the runner's session */
static bool changing;

/* At each reading of the clock the runner ends, and another begins. */
static void change_runner(seam_call *c) {
  (void)c;
  if (!changing) return;
  changing = false;
  ck_ok(zke_close(runner));
  runner = test_session(there, NULL);
  ck_ok(zke_create(runner, JOB "/running", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                   NULL, NULL));
  changing = true;
}

/* A read from outside finds another runner each time.  It ends after the time
 * that any call has, although it has no deadline. */
TEST(a_look_ends_while_runners_change) {
  static seam s = {.before = {[SEAM_clock] = change_runner}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s), .busy_timeout_ms = 200};
  zke_periodic *j;
  zke_periodic_record *r = NULL;
  zke *own;
  there = test_open(test_path("db"));
  ck_ok(zke_open(test_path("db"), &o, &own));
  ck_ok(create(there, "there", (void **)&j));
  ck_ok(zke_periodic_try(j));
  ck_ok(zke_periodic_release(j, 0));
  zke_periodic_free(j);
  runner = test_session(there, NULL);
  changing = true;
  int rc = zke_periodic_get(own, BASE, "j", &r);
  changing = false;
  ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_close(runner));
  ck_ok(zke_close(own));
  ck_ok(zke_close(there));
}

/* ---- proof ---- */

static int period_used = 3600 * 1000;

/* The typical use: run the job, and report success. */
static int use(zke *user) {
  zke_periodic_options o = {.size = sizeof o,
                            .period_ms = period_used,
                            .retry = ZKE_PERIODIC_RETRY_DEAD};
  zke_periodic *j = NULL;
  int rc = zke_periodic_new(user, BASE, "j", &o, &j);
  if (rc == ZKE_OK) rc = zke_periodic_try(j);
  if (rc == ZKE_OK) rc = zke_periodic_release(j, 0);
  zke_periodic_free(j);
  return rc;
}

/* Either the job was done, and is not repeated, or another process does it. */
static void check(zke *other, int rc) {
  zke_periodic_record *r;
  int again = use(other);
  ck_assert_msg(again == ZKE_OK || again == ZKE_LIMIT, "%s", zke_errmsg());
  if (rc == ZKE_OK) ck_assert_int_eq(again, ZKE_LIMIT);
  ck_ok(zke_periodic_get(other, BASE, "j", &r));
  ck_assert_int_gt(r->end_ms, 0);
  ck_assert_int_le(r->tries, again == ZKE_OK ? 2 : 1);
  zke_free(r);
  ck_rc(use(other), ZKE_LIMIT);
}

static const recipe_use uses[] = {{"periodic", NULL, use, check}};

RECIPE_TESTS(uses, 5, 0);
