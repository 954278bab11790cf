/* test_periodic.c - recipes/periodic: at most once a period
 *
 * However many processes are ready, one runs in each period. */
#include "recipes/periodic.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"
#include "recipes.h"
#include "test/seam.h"

#define BASE "/jobs"
#define JOB "/jobs/j"
enum { MANY = 3, PERIOD = 1000 };

static zke *admin, *z[MANY];
static zke_periodic *job[MANY];
static int64_t wall; /* ms since 1970 to the objects; 0: as it is */
static int lost[MANY];

static void set_wall(seam_call *c) {
  if (wall && c->how == ZKE_CLOCK_REALTIME) seam_refuse(c, wall * 1000000);
}

/* The job that is claimed while another object pauses between two tries, and
 * what is deleted before that. */
static zke_periodic *meanwhile;
static const char *deleted[2];

static void act_meanwhile(seam_call *c) {
  zke_periodic *next = meanwhile;
  (void)c;
  meanwhile = NULL;
  for (int i = 0; i < 2 && deleted[i]; i++) {
    int rc = zke_delete(admin, deleted[i], -1);
    ck_assert(rc == ZKE_OK || rc == ZKE_NONODE);
    deleted[i] = NULL;
  }
  if (next) ck_ok(zke_periodic_force(next));
}

/* A handle, by whose wall clock its sessions go. */
static zke *open_fake(const char *name) {
  static seam s = {
      .before = {[SEAM_clock] = set_wall, [SEAM_sleep] = act_meanwhile}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s)};
  zke *opened;
  ck_ok(zke_open(name, &o, &opened));
  return opened;
}

static void hear(zke_periodic *j, int state, void *context) {
  (void)j;
  ck_assert_int_eq(state, ZKE_PERIODIC_LOST);
  *(int *)context += 1;
}

static zke_periodic_options options(int retry, int aligned) {
  return (zke_periodic_options){.size = sizeof(zke_periodic_options),
                                .period_ms = PERIOD,
                                .retry = retry,
                                .aligned = aligned};
}

/* Jobs of one name on several sessions, under a clock that the test sets. */
static void begin_in(const char *db, int retry, int aligned) {
  admin = open_fake(db);
  wall = INT64_C(1800000000000);
  for (int i = 0; i < MANY; i++) {
    char name[2] = {(char)('a' + i), 0};
    zke_options o = {.size = sizeof o, .identity = name};
    zke_periodic_options po = options(retry, aligned);
    po.listener = hear;
    po.context = &lost[i];
    ck_ok(zke_open_session(admin, &o, &z[i]));
    ck_ok(zke_periodic_new(z[i], BASE, "j", &po, &job[i]));
  }
}

static void begin(int retry, int aligned) {
  begin_in(":memory:", retry, aligned);
}

/* Nothing is left but the record. */
static void end(void) {
  int64_t count;
  for (int i = 0; i < MANY; i++) {
    zke_periodic_free(job[i]);
    ck_ok(zke_close(z[i]));
  }
  ck_ok(zke_count(admin, BASE, &count));
  ck_assert_int_le(count, 1);
  close_last(admin);
}

static zke_periodic_record *last(void) {
  zke_periodic_record *r;
  ck_ok(zke_periodic_get(admin, BASE, "j", &r));
  return r;
}

/* A release whose reply was lost has ended the run, though the next one has
 * begun before it looks; also where the versions of the record wrap around. */
TEST_LOOP(a_lost_reply_and_the_next_run, 0, 3) {
  static const int32_t versions[] = {0, -3, INT32_MAX - 2};
  begin_in(test_path("db"), 0, 0);
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_periodic_release(job[0], 0));
  test_set_version(test_path("db"), JOB, versions[_i]);
  wall += PERIOD;
  ck_ok(zke_periodic_try(job[0]));
  meanwhile = job[1];
  ck_ok(zke_test_fail(z[0], ZKE_TEST_FAIL_AFTER, 0));
  ck_ok(zke_periodic_release(job[0], 0));
  ck_assert_ptr_null(meanwhile);
  ck_assert_int_eq(zke_periodic_state(job[0]), ZKE_PERIODIC_OUT);
  ck_assert_int_eq(zke_periodic_state(job[1]), ZKE_PERIODIC_HELD);
  ck_assert_int_eq(lost[0] + lost[1], 0);
  ck_ok(zke_periodic_release(job[1], 0));
  end();
}

/* A release loses its reply, and before it looks again the claim is taken away
 * by hand, and the next run begins, or none: it does not pass for a release. */
static void lose_and_delete(int when, bool all, zke_periodic *next) {
  ck_ok(zke_periodic_try(job[0]));
  meanwhile = next;
  deleted[0] = JOB "/running";
  deleted[1] = all ? JOB : NULL;
  lost[0] = 0;
  ck_ok(zke_test_fail(z[0], when, 0));
  ck_rc(zke_periodic_release(job[0], 0), ZKE_LOST);
  ck_assert_ptr_null(deleted[0]);
  ck_assert_int_eq(lost[0], 1);
  ck_assert_int_eq(zke_periodic_state(job[0]), ZKE_PERIODIC_LOST);
  if (!next) return;
  ck_ok(zke_periodic_check(next));
  ck_ok(zke_periodic_release(next, 0));
}

/* The reply of a release is lost, before the release is made (0) or after that
 * (1).  The job's znode is deleted, or, where the release was not made, only
 * `running`: the run counts as lost. */
TEST_LOOP(a_lost_release_of_a_job_that_is_deleted, 0, 2) {
  int when = _i ? ZKE_TEST_FAIL_AFTER : ZKE_TEST_FAIL_BEFORE;
  for (int with_next = 0; with_next < 2; with_next++) {
    begin(0, 0);
    lose_and_delete(when, true, with_next ? job[1] : NULL);
    if (!_i && with_next) {
      wall += PERIOD;
      lose_and_delete(when, false, job[1]);
    }
    end();
  }
}

/* Once in a period, whoever comes; the refusal says who did it, when, and when
 * it is due again; the record says all of the last run, and of no other. */
TEST(once_a_period) {
  zke_periodic_record *r;
  int64_t token = 0;
  begin(0, 0);
  ck_rc(zke_periodic_get(admin, BASE, "j", &r), ZKE_NONODE);
  for (int n = 0; n < 4; n++) {
    ck_ok(zke_periodic_try(job[n % MANY]));
    ck_assert_int_gt(zke_periodic_token(job[n % MANY]), token);
    token = zke_periodic_token(job[n % MANY]);
    ck_rc(zke_periodic_try(job[(n + 1) % MANY]), ZKE_HELD);
    ck_says("the job " JOB " is done by ");
    r = last();
    ck_assert_int_eq(r->running, 1);
    ck_assert_int_eq(r->end_ms, 0);
    ck_assert_int_eq(r->token, token);
    zke_free(r);
    wall += 10;
    ck_ok(zke_periodic_release(job[n % MANY], n));
    for (int i = 0; i < MANY; i++) {
      ck_rc(zke_periodic_try(job[i]), ZKE_LIMIT);
      ck_says("was done by ");
      ck_says("(status ");
      ck_says("is due again at 2027-01-15T08:00:0");
    }
    r = last();
    ck_assert_int_eq(r->status, n);
    ck_assert_int_eq(r->end_ms, wall);
    ck_assert_int_eq(r->start_ms, wall - 10);
    ck_assert_int_eq(r->running, 0);
    ck_assert_int_eq(r->tries, 1);
    ck_assert_int_eq(r->identity[0], 'a' + n % MANY);
    ck_assert_int_eq(r->pid, getpid());
    zke_free(r);
    wall += PERIOD - 11;
    ck_rc(zke_periodic_try(job[0]), ZKE_LIMIT);
    wall += 1;
  }
  end();
}

/* A clock set back: less than a period does nothing but wait; a period or more
 * makes it due, once. */
TEST_LOOP(clock_steps, 0, 2) {
  begin(0, _i);
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_periodic_release(job[0], 0));
  wall -= PERIOD - 1;
  ck_rc(zke_periodic_try(job[1]), ZKE_LIMIT);
  wall -= 1;
  ck_ok(zke_periodic_try(job[1]));
  ck_ok(zke_periodic_release(job[1], 0));
  ck_rc(zke_periodic_try(job[0]), ZKE_LIMIT);
  wall += 50 * PERIOD;
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_periodic_release(job[0], 0));
  ck_rc(zke_periodic_try(job[0]), ZKE_LIMIT);
  end();
}

/* Aligned periods begin at multiples, whenever the last run was. */
TEST(aligned_periods_begin_at_multiples) {
  begin(0, 1);
  wall += PERIOD - 1;
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_periodic_release(job[0], 0));
  ck_rc(zke_periodic_try(job[0]), ZKE_LIMIT);
  wall += 1;
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_periodic_release(job[0], 0));
  wall += PERIOD - 1;
  ck_rc(zke_periodic_try(job[0]), ZKE_LIMIT);
  end();
}

/* Whoever did it died: the run counts, or not, by the option; tries count. */
TEST_LOOP(a_dead_ones_run_counts_by_the_option, 0, 2) {
  begin(_i ? ZKE_PERIODIC_RETRY_DEAD : 0, 0);
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_expire(admin, zke_session_id(z[0])));
  ck_assert_int_eq(zke_periodic_state(job[0]), ZKE_PERIODIC_LOST);
  ck_rc(zke_periodic_release(job[0], 0), ZKE_INVALIDSTATE);
  ck_assert_int_eq(lost[0], 1);
  if (_i) {
    ck_ok(zke_periodic_try(job[1]));
    zke_periodic_record *r = last();
    ck_assert_int_eq(r->tries, 2);
    zke_free(r);
    zke_periodic_free(job[1]); /* gives up: as if it had died */
    job[1] = NULL;
    ck_ok(zke_periodic_try(job[2]));
    ck_ok(zke_periodic_release(job[2], 0));
    ck_rc(zke_periodic_try(job[2]), ZKE_LIMIT);
  } else {
    ck_rc(zke_periodic_try(job[1]), ZKE_LIMIT);
    ck_says("(it died)");
    wall += PERIOD;
    ck_ok(zke_periodic_try(job[1]));
    ck_ok(zke_periodic_release(job[1], 0));
  }
  end();
}

/* The process that does the job ends, and its session is a kept one: it does
 * the job until its timeout is over, and may be taken over. */
TEST_LOOP(a_kept_runner_may_come_back, 0, 2) {
  zke_options o = {.size = sizeof o, .timeout_ms = _i ? 300 : 60000};
  zke_periodic_options po = options(ZKE_PERIODIC_RETRY_DEAD, 0);
  unsigned char password[16];
  zke *mine, *taken;
  zke_periodic *own;
  begin(ZKE_PERIODIC_RETRY_DEAD, 0);
  ck_ok(zke_open_session(admin, &o, &mine));
  ck_ok(zke_password(mine, password));
  int64_t id = zke_session_id(mine);
  ck_ok(zke_periodic_new(mine, BASE, "j", &po, &own));
  ck_ok(zke_periodic_try(own));
  ck_ok(zke_attach(admin, id, password, NULL, &taken));
  zke_periodic_free(own); /* of a handle that has moved: nothing goes */
  ck_ok(zke_close(mine));
  ck_ok(zke_detach(taken));
  ck_rc(zke_periodic_try(job[0]), ZKE_HELD);
  zke_periodic_record *r = last();
  ck_assert_int_eq(r->running, 1);
  zke_free(r);
  if (_i == 0) {
    ck_ok(zke_attach(admin, id, password, NULL, &taken));
    ck_rc(zke_periodic_try(job[0]), ZKE_HELD);
    ck_ok(zke_close(taken));
  }
  ck_ok(zke_periodic_acquire(job[0], soon(z[0])));
  ck_ok(zke_periodic_release(job[0], 0));
  end();
}

/* A run that reports a failure counts as the period's run, unless the option
 * asks for another try. */
TEST_LOOP(a_failed_run_is_repeated_if_so_wished, 0, 2) {
  begin(_i ? ZKE_PERIODIC_RETRY_FAILED : 0, 0);
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_periodic_release(job[0], 3));
  ck_rc(zke_periodic_try(job[1]), _i ? ZKE_OK : ZKE_LIMIT);
  if (_i) ck_ok(zke_periodic_release(job[1], 0));
  ck_rc(zke_periodic_try(job[1]), ZKE_LIMIT);
  end();
}

/* By force also when it is not due; never while somebody does it. */
TEST(force_runs_early_but_never_beside_another) {
  begin(0, 0);
  ck_ok(zke_periodic_try(job[0]));
  ck_rc(zke_periodic_force(job[1]), ZKE_HELD);
  ck_ok(zke_periodic_release(job[0], 0));
  ck_ok(zke_periodic_force(job[1]));
  ck_rc(zke_periodic_try(job[1]), ZKE_MISUSE);
  zke_periodic_record *r = last();
  ck_assert_int_eq(r->forced, 1);
  ck_assert_int_eq(r->tries, 2);
  zke_free(r);
  ck_ok(zke_periodic_release(job[1], 0));
  ck_rc(zke_periodic_release(job[1], 0), ZKE_LOST);
  end();
}

/* `running` taken away by an operator: told, and what it guards fails when
 * another one has begun. */
TEST(claim_lost) {
  zke_op ops[2];
  begin(ZKE_PERIODIC_RETRY_DEAD, 0);
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_periodic_check(job[0]));
  ck_ok(zke_periodic_op(job[0], &ops[0]));
  zke_op_create(&ops[1], "/guarded", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  ck_ok(zke_multi(z[0], ops, 2, NULL));
  ck_ok(zke_delete(admin, JOB "/running", -1));
  ck_ok(zke_periodic_try(job[1]));
  ck_rc(zke_multi(z[0], ops, 2, NULL), ZKE_BADVERSION);
  dispatch_on(z[0]);
  ck_assert_int_eq(lost[0], 1);
  ck_assert_int_eq(zke_periodic_state(job[0]), ZKE_PERIODIC_LOST);
  ck_rc(zke_periodic_check(job[0]), ZKE_LOST);
  ck_rc(zke_periodic_op(job[0], &ops[0]), ZKE_LOST);
  ck_rc(zke_periodic_release(job[0], 0), ZKE_LOST);
  ck_ok(zke_periodic_release(job[1], 0));
  end();
}

/* The job's znode is deleted during a run.  The record of the next run has the
 * same version, and yet the release of the first run does not end it. */
TEST(a_deleted_jobs_release_ends_no_other_run) {
  begin(0, 0);
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_delete(admin, JOB "/running", -1));
  ck_ok(zke_delete(admin, JOB, -1));
  ck_ok(zke_periodic_try(job[1]));
  ck_rc(zke_periodic_release(job[0], 0), ZKE_LOST);
  ck_assert_int_eq(lost[0], 1);
  ck_ok(zke_periodic_check(job[1]));
  ck_rc(zke_periodic_force(job[2]), ZKE_HELD);
  ck_ok(zke_periodic_release(job[1], 0));
  end();
}

/* `running` is taken away, and another object of the same session claims the
 * next run: the first one hears of its loss. */
TEST(a_claim_lost_to_the_same_session_is_told) {
  zke_periodic_options o = options(ZKE_PERIODIC_RETRY_DEAD, 0);
  zke_periodic *next;
  begin(ZKE_PERIODIC_RETRY_DEAD, 0);
  ck_ok(zke_periodic_new(z[0], BASE, "j", &o, &next));
  ck_ok(zke_periodic_try(job[0]));
  dispatch_on(z[0]); /* it watches */
  ck_ok(zke_delete(admin, JOB "/running", -1));
  ck_ok(zke_periodic_try(next));
  dispatch_on(z[0]);
  ck_assert_int_eq(lost[0], 1);
  ck_assert_int_eq(zke_periodic_state(job[0]), ZKE_PERIODIC_LOST);
  ck_ok(zke_periodic_release(next, 0));
  zke_periodic_free(next);
  end();
}

/* A release that fails leaves the run this object's: the listener still hears
 * when it is taken away. */
TEST(failed_release_goes_on_listening) {
  test_heap heap = {0};
  zke_options o = {.size = sizeof o, .allocator = {test_heap_resize, &heap}};
  zke_periodic_options po = options(ZKE_PERIODIC_RETRY_DEAD, 0);
  int failed = 0;
  po.listener = hear;
  po.context = &lost[0];
  ck_ok(zke_open(":memory:", &o, &z[0]));
  ck_ok(zke_open_session(z[0], &o, &z[1]));
  for (int n = 1; n <= 20; n++) {
    lost[0] = 0;
    ck_ok(zke_periodic_new(z[0], BASE, "j", &po, &job[0]));
    ck_ok(zke_periodic_force(job[0]));
    heap.fail_at = heap.calls + n;
    int rc = zke_periodic_release(job[0], 0);
    heap.fail_at = 0;
    if (rc != ZKE_OK) {
      ck_assert_int_eq(rc, ZKE_NOMEM);
      ck_assert_int_eq(zke_periodic_state(job[0]), ZKE_PERIODIC_HELD);
      ck_ok(zke_delete(z[1], JOB "/running", -1));
      ck_until(dispatch_on(z[0]) >= 0 && lost[0], 5000);
      failed++;
    }
    zke_periodic_free(job[0]);
  }
  ck_assert_int_gt(failed, 0);
  ck_ok(zke_close(z[1]));
  ck_ok(zke_close(z[0]));
}

/* Real time: waits until it is due; the deadline says why not. */
TEST(it_waits_until_it_is_due) {
  zke_periodic_options o = options(0, 0);
  zke_periodic *j;
  begin(0, 0);
  wall = 0;
  o.period_ms = 60;
  ck_ok(zke_periodic_new(z[0], BASE, "real", &o, &j));
  int64_t start = zke_now(z[0]);
  for (int n = 0; n < 3; n++) {
    ck_ok(zke_periodic_acquire(j, ZKE_FOREVER));
    ck_ok(zke_periodic_release(j, 0));
  }
  ck_assert_int_ge(zke_now(z[0]) - start, 2 * 60 - 2);
  zke_periodic_free(j);
  ck_ok(zke_delete(admin, BASE "/real", -1));
  o.period_ms = 3600000;
  ck_ok(zke_periodic_new(z[0], BASE, "rare", &o, &j));
  ck_ok(zke_periodic_acquire(j, ZKE_FOREVER));
  ck_ok(zke_periodic_release(j, 0));
  ck_rc(zke_periodic_acquire(j, zke_now(z[0]) + 5), ZKE_OPERATIONTIMEOUT);
  ck_says("was done by a (pid ");
  zke_periodic_free(j);
  ck_ok(zke_delete(admin, BASE "/rare", -1));
  end();
}

static void *wait_there(void *arg) {
  *(int *)arg = zke_periodic_acquire(job[1], ZKE_FOREVER);
  return NULL;
}

/* Who waits while another does it goes on when that one dies, if such runs do
 * not count; and can be cancelled. */
TEST(waits_for_end) {
  pthread_t thread;
  int rc = 1;
  begin(ZKE_PERIODIC_RETRY_DEAD, 0);
  ck_ok(zke_periodic_try(job[0]));
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_there, &rc), 0);
  ck_until(zke_periodic_try(job[1]) == ZKE_MISUSE, 5000);
  ck_ok(zke_expire(admin, zke_session_id(z[0])));
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(rc, ZKE_OK);
  ck_ok(zke_periodic_release(job[1], 0));
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_there, &rc), 0);
  ck_until(zke_periodic_cancel(job[1]) == ZKE_OK, 10000);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(rc, ZKE_CANCELLED);
  end();
}

/* The watch of a wait cannot be set at once, since its reply is lost: the wait
 * goes on to its deadline, where the job was done (0) and where a process does
 * it (1). */
TEST_LOOP(a_wait_without_its_watch_goes_on_to_its_deadline, 0, 2) {
  begin(ZKE_PERIODIC_RETRY_DEAD, 0);
  ck_ok(zke_periodic_try(job[0]));
  if (!_i) ck_ok(zke_periodic_release(job[0], 0));
  ck_rc(zke_periodic_try(job[1]), _i ? ZKE_HELD : ZKE_LIMIT);
  ck_ok(zke_test_fail(z[1], ZKE_TEST_FAIL_READ, 1)); /* the record goes first */
  int64_t deadline = zke_now(z[1]) + 150;
  ck_rc(zke_periodic_acquire(job[1], deadline), ZKE_OPERATIONTIMEOUT);
  ck_says(_i ? "is done by a" : "was done by a");
  ck_assert_int_ge(zke_now(z[1]), deadline);
  if (_i) ck_ok(zke_periodic_release(job[0], 0));
  end();
}

static int run_acquire(call *c) {
  return zke_periodic_acquire(c->object, c->deadline);
}

/* Who waits for the next period, since the last run went well, takes the job
 * over before that when a run is forced meanwhile, and fails (0) or dies (1).
 */
TEST_LOOP(a_forced_run_that_fails_wakes_who_waits_for_the_period, 0, 2) {
  call c;
  zke_periodic *one, *two;
  zke_periodic_options o =
      options(ZKE_PERIODIC_RETRY_DEAD | ZKE_PERIODIC_RETRY_FAILED, 0);
  begin(0, 0);
  wall = 0;
  o.period_ms = 3600000;
  ck_ok(zke_periodic_new(z[0], BASE, "rare", &o, &one));
  ck_ok(zke_periodic_new(z[1], BASE, "rare", &o, &two));
  ck_ok(zke_periodic_try(one));
  ck_ok(zke_periodic_release(one, 0));
  call_begin(&c, run_acquire, two, 0, ZKE_FOREVER);
  ck_until(zke_periodic_try(two) == ZKE_MISUSE, 5000);
  ck_ok(zke_periodic_force(one));
  ck_assert(!call_is_done(&c));
  if (_i)
    ck_ok(zke_expire(admin, zke_session_id(z[0])));
  else
    ck_ok(zke_periodic_release(one, 1));
  call_end(&c);
  ck_ok(c.rc);
  ck_ok(zke_periodic_release(two, 0));
  zke_periodic_free(one);
  zke_periodic_free(two);
  ck_ok(zke_delete(admin, BASE "/rare", -1));
  end();
}

/* A release beside another thread's acquire ends that call; one without it has
 * nothing to give up. */
TEST(release_ends_a_wait) {
  pthread_t thread;
  int rc = 1;
  begin(ZKE_PERIODIC_RETRY_DEAD, 0);
  ck_ok(zke_periodic_try(job[0]));
  ck_assert_int_eq(pthread_create(&thread, NULL, wait_there, &rc), 0);
  ck_until(zke_periodic_release(job[1], 0) == ZKE_OK, 10000);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_assert_int_eq(rc, ZKE_LOST);
  ck_rc(zke_periodic_release(job[1], 0), ZKE_LOST);
  ck_ok(zke_periodic_release(job[0], 0));
  end();
}

/* P11: periods and names that make no sense are refused; so are another
 * recipe's directory and a record that is none. An empty record is a job that
 * has not run. */
TEST(bad_arguments) {
  zke_periodic_options o = options(0, 0);
  zke_periodic *j;
  zke_periodic_record *r;
  begin(0, 0);
  ck_rc(zke_periodic_new(admin, BASE, "j", NULL, &j), ZKE_BADARGUMENTS);
  o.period_ms = 0;
  ck_rc(zke_periodic_new(admin, BASE, "j", &o, &j), ZKE_BADARGUMENTS);
  o = options(4, 0);
  ck_rc(zke_periodic_new(admin, BASE, "j", &o, &j), ZKE_BADARGUMENTS);
  o = options(0, 0);
  ck_rc(zke_periodic_new(admin, BASE, "a/b", &o, &j), ZKE_BADARGUMENTS);
  ck_rc(zke_periodic_new(admin, BASE, "j", &o, NULL), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(j);
  ck_rc(zke_periodic_op(job[0], NULL), ZKE_BADARGUMENTS);
  zke_periodic_free(NULL);
  ck_ok(zke_create(admin, "/lock", "zkembed lock", 12, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_periodic_new(admin, "/lock", "j", &o, &j));
  ck_rc(zke_periodic_try(j), ZKE_OTHERKIND);
  zke_periodic_free(j);
  ck_ok(zke_periodic_try(job[0]));
  ck_ok(zke_periodic_release(job[0], 0));
  ck_ok(zke_set(admin, JOB, "something", 9, -1, NULL));
  ck_rc(zke_periodic_try(job[1]), ZKE_OTHERKIND);
  ck_rc(zke_periodic_get(admin, BASE, "j", &r), ZKE_OTHERKIND);
  ck_ok(zke_set(admin, JOB, "", 0, -1, NULL)); /* never run */
  ck_ok(zke_periodic_try(job[1]));
  ck_ok(zke_periodic_release(job[1], 0));
  end();
}

/* ---- runners that come and go ---- */

static zke *there, *runner; /* another process, and the session that runs it */
static bool changing;

/* At each look at the clock the runner ends, and another one begins. */
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

/* A look from outside, whose runner has ended each time: it has the time that
 * any call has, though it has no deadline. */
TEST(a_look_ends_while_runners_change) {
  static seam s = {.before = {[SEAM_clock] = change_runner}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s), .busy_timeout_ms = 200};
  zke_periodic_options po = options(0, 0);
  zke_periodic *j;
  zke_periodic_record *r = NULL;
  zke *own;
  there = test_open(test_path("db"));
  ck_ok(zke_open(test_path("db"), &o, &own));
  ck_ok(zke_periodic_new(there, BASE, "j", &po, &j));
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

/* The typical use: run the job, and report that it went well. */
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

/* Either it was done, and is not done again, or another one does it. */
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

/* Several processes in a loop: each period has one run. */
TEST(each_period_has_one_run_in_several_processes) {
  enum { RUNS = 20, COUNT = 4 };
  pid_t pids[COUNT];
  (void)test_path("db");
  for (int i = 0; i < COUNT; i++) {
    pids[i] = fork();
    if (pids[i]) continue;
    zke *own;
    zke_periodic *j;
    zke_periodic_options o = {.size = sizeof o, .period_ms = 20};
    if (zke_open(test_path("db"), NULL, &own) ||
        zke_ensure_path(own, "/log", ZKE_PERSISTENT, ZKE_FOREVER) ||
        zke_periodic_new(own, BASE, "j", &o, &j))
      _exit(1);
    for (zke_stat log = {0}; log.numChildren < RUNS;) {
      char text[32];
      zke_periodic_record *r;
      if (zke_periodic_acquire(j, ZKE_FOREVER)) _exit(2);
      if (zke_periodic_get(own, BASE, "j", &r)) _exit(3);
      snprintf(text, sizeof text, "%lld", (long long)r->start_ms);
      if (zke_create(own, "/log/run-", text, (int)strlen(text), ZKE_OPEN_ACL,
                     ZKE_PERSISTENT_SEQUENTIAL, NULL, NULL))
        _exit(4);
      zke_free(r);
      if (zke_periodic_release(j, 0)) _exit(5);
      if (zke_exists(own, "/log", NULL, NULL, &log)) _exit(6);
    }
    zke_periodic_free(j);
    zke_close(own);
    _exit(0);
  }
  for (int i = 0; i < COUNT; i++) {
    int status;
    ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
    ck_assert_int_eq(status, 0);
  }
  zke_strings *names;
  long long before = 0;
  admin = test_open(test_path("db"));
  ck_ok(zke_children(admin, "/log", NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    char path[64], *data;
    snprintf(path, sizeof path, "/log/%s", names->data[i]);
    ck_ok(zke_get(admin, path, NULL, NULL, &data, NULL, NULL));
    ck_assert_int_ge(atoll(data), before + 20);
    before = atoll(data);
    zke_free(data);
  }
  zke_free(names);
  ck_ok(zke_close(admin));
}
