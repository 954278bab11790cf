/* test_virtual.c - simulated time: options.os has the clock, and nothing uses
 * another
 *
 * The virtual clock starts years ago and moves only when the program would
 * sleep.  Anything that used the system's clock would come too early, or
 * never. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "recipes/double_barrier.h"
#include "recipes/periodic.h"
#include "recipes/queue.h"
#include "recipes/two_phase.h"
#include "test/seam.h"
#include "test/engine/calls.h"

#define SPAN (INT64_C(300) * 1000)             /* more than a test may take */
#define BEGINNING (INT64_C(1000000000) * 1000) /* September 2001, in ms */
#define NS INT64_C(1000000)                    /* in a ms */

/* The seam's clocks stand still, so only sleeping moves these. */
static void virtual_clock(seam_call *c) {
  int64_t beginning = c->how == ZKE_CLOCK_REALTIME ? BEGINNING : BEGINNING / 2;
  seam_refuse(c, beginning * NS + seam_ahead);
}

/* A handle in virtual time; in the way BY_POLL without epoll. */
enum { BY_EPOLL, BY_POLL, WAYS };

static zke *begin(const char *name, int way) {
  static seam s = {.before = {[SEAM_clock] = virtual_clock},
                   .fail = {[SEAM_poller] = {.result = -ENOSYS}}};
  seam_fail(&s, SEAM_poller, way == BY_POLL);
  seam_stand();
  zke *z = open_as(name, .os = seam_os(&s));
  ck_assert_int_eq(zke_wall(z), BEGINNING);
  ck_assert_int_eq(zke_now(z), BEGINNING / 2);
  return z;
}

/* The time since the beginning. */
static int64_t passed(zke *z) { return zke_wall(z) - BEGINNING; }

/* zkembed.h: zke_wait() ends at its deadline, and a node's time is the virtual
 * one. */
TEST_LOOP(a_wait_ends_at_its_virtual_deadline, 0, WAYS) {
  zke *z = begin(_i ? ":memory:" : test_path("a.db"), _i);
  zke_stat stat;
  ck_ok(zke_create_ttl(z, "/t", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                       SPAN, NULL, &stat));
  ck_assert_int_eq(stat.ctime, BEGINNING);
  ck_rc(zke_wait(z, zke_now(z) + SPAN - 5), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(passed(z), SPAN - 5);
  ck_ok(zke_exists(z, "/t", test_ignore, NULL, NULL));
  ck_ok(zke_wait(z, zke_now(z) + SPAN));
  ck_rc(see(z, "/t"), ZKE_NONODE);
  ck_assert_int_gt(passed(z), SPAN);
  ck_assert_int_lt(passed(z), SPAN + 5000);
}

/* zkembed.h, zke_sleep: until the deadline, without a dispatch; a deadline in
 * the past is no sleep. */
TEST(a_sleep_ends_at_its_virtual_deadline) {
  zke *z = begin(":memory:", BY_EPOLL);
  test_events events = {0};
  int pending = 7;
  ck_rc(zke_exists(z, "/a", test_record, &events, NULL), ZKE_NONODE);
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_pending(z, &pending));
  ck_assert_int_eq(pending, 0);
  make(z, "/a");
  ck_ok(zke_sleep(z, zke_now(z) + SPAN));
  ck_assert_int_eq(passed(z), SPAN);
  ck_ok(zke_sleep(z, zke_now(z)));
  ck_ok(zke_sleep(z, -1));
  ck_assert_int_eq(passed(z), SPAN);
  ck_assert_int_eq(events.count, 0);
  ck_ok(zke_pending(z, &pending));
  ck_assert_int_eq(pending, 1);
  test_expect(z, &events, "CREATED /a");
  ck_rc(zke_sleep(NULL, 0), ZKE_BADARGUMENTS);
  ck_assert_int_eq(zke_wall(NULL), 0);
}

/* zkembed.h, zke_call_at: at the virtual time, to the millisecond. */
TEST_LOOP(a_call_comes_at_its_virtual_time, 0, WAYS) {
  zke *z = begin(_i ? ":memory:" : test_path("a.db"), _i);
  test_events events = {0};
  ck_ok(zke_call_at(z, zke_now(z) + 77, test_record, &events));
  ck_ok(zke_wait(z, zke_now(z) + SPAN));
  ck_assert_int_eq(passed(z), 77);
  test_expect(z, &events, "ALARM");
}

static int lost(zke *z, void *arg) {
  (void)z;
  *(int *)arg += 1;
  return ZKE_CONNECTIONLOSS;
}

/* support.h, zke_retry: pauses of 5, 10, 15 ... ms, and never beyond the
 * deadline. */
TEST(a_retry_pauses_up_to_its_deadline) {
  zke *z = begin(":memory:", BY_EPOLL);
  int tries = 0;
  ck_rc(zke_retry(z, lost, &tries, ZKE_FOREVER), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(tries, 1 + ZKE_RETRIES);
  ck_assert_int_eq(passed(z), 5 * 55);
  tries = 0;
  ck_rc(zke_retry(z, lost, &tries, zke_now(z) + 16), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(tries, 3);
  ck_assert_int_eq(passed(z), 5 * 55 + 15);
}

/* queue.h: an item with a due time is delivered exactly then, and reports that
 * time before. */
TEST_LOOP(queue_delays, 0, WAYS) {
  zke *z = begin(":memory:", _i);
  zke_queue *queue;
  zke_queue_item *item;
  zke_queue_counts counts;
  int64_t deadline;
  ck_ok(zke_queue_new(z, "/queue", NULL, &queue));
  zke_queue_put_options o = {.size = sizeof o, .due_ms = BEGINNING + SPAN};
  ck_ok(zke_queue_put(queue, "later", 5, &o, 0));
  ck_ok(zke_queue_size(queue, &counts));
  ck_assert_int_eq(counts.delayed, 1);
  ck_ok(zke_queue_due(queue, &deadline));
  ck_assert_int_eq(deadline, zke_now(z) + SPAN);
  ck_rc(zke_queue_take(queue, 0, &item), ZKE_OPERATIONTIMEOUT);
  ck_says("is due in 300000 ms");
  ck_ok(zke_queue_take(queue, zke_now(z) + 2 * SPAN, &item));
  ck_assert_int_eq(passed(z), SPAN);
  ck_assert_int_eq(item->put_ms, BEGINNING);
  zke_free(item);
  zke_queue_free(queue);
}

/* queue.h: a claim ends by zke_now(), a delay by zke_wall(); a sleeping caller
 * wakes exactly then. */
TEST_LOOP(queue_claims_end, 0, WAYS) {
  zke *z = begin(":memory:", _i), *other;
  zke_queue_options o = {.size = sizeof o, .claim_ms = SPAN};
  zke_queue *queue, *second;
  zke_queue_item *item, *again;
  int64_t deadline;
  other = test_session(z, NULL);
  ck_ok(zke_queue_new(z, "/queue", &o, &queue));
  ck_ok(zke_queue_new(other, "/queue", NULL, &second));
  ck_ok(zke_queue_put(queue, "a", 1, NULL, 0));
  ck_ok(zke_queue_claim(queue, 0, &item));
  ck_ok(zke_queue_due(second, &deadline));
  ck_assert_int_eq(deadline, zke_now(z) + SPAN);
  ck_ok(zke_queue_prolong(queue, item, 2 * SPAN));
  ck_rc(zke_queue_claim(second, zke_now(z) + 2 * SPAN - 1, &again),
        ZKE_OPERATIONTIMEOUT);
  ck_ok(zke_queue_check(queue, item));
  ck_ok(zke_queue_claim(second, zke_now(z) + SPAN, &again));
  ck_assert_int_eq(passed(z), 2 * SPAN);
  ck_rc(zke_queue_ack(queue, item, NULL, 0, NULL), ZKE_LOST);
  zke_free(item);
  ck_ok(zke_queue_release(second, again, SPAN, NULL));
  zke_free(again);
  ck_ok(zke_queue_due(queue, &deadline));
  ck_assert_int_eq(deadline, zke_now(z) + SPAN);
  ck_ok(zke_queue_claim(queue, zke_now(z) + 2 * SPAN, &item));
  ck_assert_int_eq(passed(z), 3 * SPAN);
  ck_ok(zke_queue_ack(queue, item, NULL, 0, NULL));
  zke_free(item);
  zke_queue_free(second);
  zke_queue_free(queue);
}

/* periodic.h: once a period, by the virtual clock; the record has that time. */
TEST_LOOP(periodic_waits, 0, WAYS) {
  zke *z = begin(":memory:", _i);
  zke_periodic_options o = {.size = sizeof o, .period_ms = SPAN};
  zke_periodic *job;
  zke_periodic_record *r;
  ck_ok(zke_periodic_new(z, "/jobs", "j", &o, &job));
  for (int n = 0; n < 3; n++) {
    ck_ok(zke_periodic_acquire(job, ZKE_FOREVER));
    ck_ok(zke_periodic_release(job, n));
    ck_assert_int_eq(passed(z), n * SPAN);
    ck_ok(zke_periodic_get(z, "/jobs", "j", &r));
    ck_assert_int_eq(r->start_ms, BEGINNING + n * SPAN);
    ck_assert_int_eq(r->end_ms, BEGINNING + n * SPAN);
    ck_assert_int_eq(r->status, n);
    zke_free(r);
  }
  ck_rc(zke_periodic_acquire(job, zke_now(z) + SPAN / 2), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(passed(z), 2 * SPAN + SPAN / 2);
  zke_periodic_free(job);
}

/* two_phase.h: the limit aborts a transaction, at its time. */
TEST_LOOP(two_phase_limit, 0, WAYS) {
  static const char *const sites[] = {"a"};
  zke *z = begin(":memory:", _i);
  zke_two_phase_options o = {.size = sizeof o, .limit_ms = SPAN};
  zke_two_phase *t;
  int decision = 0;
  ck_ok(zke_two_phase_begin(z, "/2pc", "t", "", 0, sites, 1, &o, &t));
  ck_rc(zke_two_phase_wait(t, zke_now(z) + SPAN - 1, &decision),
        ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(passed(z), SPAN - 1);
  ck_ok(zke_two_phase_wait(t, ZKE_FOREVER, &decision));
  ck_assert_int_eq(decision, ZKE_TWO_PHASE_ABORT);
  ck_assert_int_eq(passed(z), SPAN);
  zke_two_phase_free(t);
}

/* Claims and transactions get different ids while the clock stands still. */
TEST(ids_differ_at_one_moment) {
  static const char *const sites[] = {"a"};
  zke *z = begin(":memory:", BY_EPOLL);
  char before[200] = "";
  for (int n = 0; n < 3; n++) {
    zke_two_phase *t;
    zke_strings *names;
    char id[200] = "";
    ck_ok(zke_two_phase_begin(z, "/2pc", "t", "", 0, sites, 1, NULL, &t));
    ck_ok(zke_children(z, "/2pc/t", NULL, NULL, &names, NULL));
    for (int i = 0; i < names->count; i++) {
      if (strncmp(names->data[i], "id-", 3) == 0)
        snprintf(id, sizeof id, "%s", names->data[i]);
    }
    zke_free(names);
    ck_assert_str_ne(id, "");
    ck_assert_str_ne(id, before);
    memcpy(before, id, sizeof id);
    ck_ok(zke_two_phase_abort(t, NULL));
    ck_ok(zke_two_phase_ack(t));
    zke_two_phase_free(t);
    ck_ok(zke_two_phase_open(z, "/2pc", "t", "a", NULL, &t));
    ck_ok(zke_two_phase_ack(t));
    zke_two_phase_free(t);
    ck_assert_int_eq(passed(z), 0);
  }
}

/* Dispatch what is pending; then nothing more comes for a long time. */
static void nothing_comes(zke *z) {
  while (zke_wait(z, zke_now(z)) == ZKE_OK) continue;
  ck_rc(zke_wait(z, zke_now(z) + SPAN), ZKE_OPERATIONTIMEOUT);
}

/* The same for the coordinator and a site of a two-phase commit. */
TEST(two_phase_sets_no_reminder) {
  static const char *const sites[] = {"a", "b"};
  zke *x = begin(":memory:", BY_EPOLL), *y = NULL;
  zke_two_phase *c, *a;
  y = test_session(x, NULL);
  ck_ok(zke_two_phase_begin(x, "/2pc", "t", "", 0, sites, 2, NULL, &c));
  nothing_comes(x);
  ck_ok(zke_two_phase_open(y, "/2pc", "t", "a", NULL, &a));
  nothing_comes(y);
  ck_ok(zke_two_phase_vote(a, ZKE_TWO_PHASE_COMMIT));
  nothing_comes(y);
  ck_ok(zke_two_phase_step(c));
  nothing_comes(x);
  ck_ok(zke_two_phase_abort(c, NULL));
  nothing_comes(x);
  nothing_comes(y);
  zke_two_phase_free(a);
  zke_two_phase_free(c);
}

static zke_double_barrier *one_of_two(zke *z) {
  zke_double_barrier *b = NULL;
  ck_ok(zke_double_barrier_new(z, "/gate", 2, NULL, &b));
  return b;
}

/* A call that has done its own checking leaves no alarm behind, which would
 * wake its session for nothing. */
TEST(double_barrier_sets_no_reminder) {
  zke *x = begin(":memory:", BY_EPOLL), *y = NULL;
  y = test_session(x, NULL);
  zke_double_barrier *a = one_of_two(x), *b = one_of_two(y);
  ck_ok(zke_double_barrier_start(a, NULL, 0));
  nothing_comes(x);
  ck_ok(zke_double_barrier_step(a));
  nothing_comes(x);
  ck_ok(zke_double_barrier_stop(a));
  nothing_comes(x);
  ck_ok(zke_double_barrier_start(a, NULL, 0));
  ck_ok(zke_double_barrier_start(b, NULL, 0));
  nothing_comes(x);
  nothing_comes(y);
  ck_ok(zke_double_barrier_check(a));
  nothing_comes(x);
  ck_ok(zke_double_barrier_leave_start(a));
  nothing_comes(x);
  ck_ok(zke_double_barrier_leave_start(b));
  nothing_comes(y);
  nothing_comes(x);
  ck_assert_int_eq(zke_double_barrier_state(a), ZKE_DOUBLE_BARRIER_OUT);
  zke_double_barrier_free(a);
  zke_double_barrier_free(b);
}
