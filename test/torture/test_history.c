/* test_history.c - the judges of `make torture`, judged themselves
 *
 * Histories that can be are accepted, and each planted fault is found by the
 * checker that is there for it, and by no other than those it must offend.
 * The histories are written as tables: who, when called, when returned (0: the
 * process died), what.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/test.h"

#include <stdlib.h>
#include <string.h>

#include "history.h"
#include "history.c"

enum { MAX = 600 };

static struct {
  hist_op op[MAX];
  hist_event event[MAX];
  int count, events;
  char said[8192];
} was;

/* ---- writing a history ---- */

static hist_op *add(int process, int64_t called, int64_t returned,
                    hist_kind kind, const char *path) {
  ck_assert_int_lt(was.count, MAX);
  hist_op *o = &was.op[was.count++];
  *o = (hist_op){.kind = (uint8_t)kind,
                 .process = (uint8_t)process,
                 .session = process,
                 .called = called,
                 .returned = returned,
                 .wanted = -1,
                 .version = -1};
  strcpy(o->path, path);
  return o;
}

static hist_op *made(int process, int64_t called, int64_t returned,
                     uint64_t value) {
  hist_op *o = add(process, called, returned, HIST_CREATE, "/n");
  o->value = value;
  return o;
}

static hist_op *was_set(int process, int64_t called, int64_t returned,
                        uint64_t value, int wanted, int version) {
  hist_op *o = add(process, called, returned, HIST_SET, "/n");
  o->value = value;
  o->wanted = wanted;
  o->version = version;
  return o;
}

static hist_op *saw(int process, int64_t called, int64_t returned,
                    uint64_t value, int version) {
  hist_op *o = add(process, called, returned, HIST_READ, "/n");
  o->value = value;
  o->version = version;
  if (!value) o->rc = ZKE_NONODE;
  return o;
}

static hist_op *saw_at_end(uint64_t value, int version) {
  hist_op *o = saw(9, 9000, 9001, value, version);
  o->final = true;
  return o;
}

static hist_op *numbered(int64_t called, int64_t returned, const char *path,
                         int64_t zxid) {
  hist_op *o = add(1, called, returned, HIST_SEQUENCE, path);
  o->zxid = zxid;
  o->value = (uint64_t)(100 + was.count);
  return o;
}

static void event(int type, const char *path) {
  hist_event *e = &was.event[was.events++];
  e->type = type;
  e->watch = HIST_RECURSIVE;
  strcpy(e->path, path);
}

static void event_there(int type, const char *path) {
  event(type, path);
  was.event[was.events - 1].watch = HIST_PERSISTENT;
}

/* ---- judging it ---- */

static void hear(void *context, const char *sentence) {
  (void)context;
  size_t used = strlen(was.said);
  snprintf(was.said + used, sizeof was.said - used, "%s\n", sentence);
}

static hist history(void) {
  return (hist){.op = was.op,
                .count = was.count,
                .event = was.events ? was.event : NULL,
                .events = was.events,
                .watched = "/w",
                .complain = hear};
}

static void accept(void) {
  hist h = history();
  int bad = hist_check(&h);
  ck_assert_msg(bad == 0, "%d complaints: %s", bad, was.said);
}

/* One complaint, by this checker, that says this. */
static void refuse(int (*check)(const hist *), const char *says) {
  hist h = history();
  int bad = check(&h);
  ck_assert_msg(bad == 1, "%d complaints: %s", bad, was.said);
  ck_assert_msg(strstr(was.said, says) != NULL, "not '%s': %s", says, was.said);
}

static void refuse_nodes(void) {
  refuse(hist_check_nodes, "no order is possible");
}

/* ---- one node: what can be ---- */

/* A node's whole life, one process after the other. */
TEST(one_after_another) {
  saw(1, 1, 2, 0, 0);
  made(1, 3, 4, 20);
  saw(2, 5, 6, 20, 0);
  was_set(2, 7, 8, 21, 0, 1);
  was_set(1, 9, 10, 22, 0, -1)->rc = ZKE_BADVERSION;
  made(1, 11, 12, 23)->rc = ZKE_NODEEXISTS;
  saw(1, 13, 14, 21, 1);
  add(1, 15, 16, HIST_DELETE, "/n")->wanted = 1;
  saw(2, 17, 18, 0, 0);
  was_set(2, 19, 20, 24, -1, -1)->rc = ZKE_NONODE;
  saw_at_end(0, 0);
  accept();
}

/* Two overlapping sets: each may have been the first. */
TEST(overlapping_either_way) {
  made(1, 1, 2, 20);
  was_set(1, 3, 10, 21, -1, 2);
  was_set(2, 4, 9, 22, -1, 1);
  saw(3, 5, 8, 20, 0);
  saw(3, 11, 12, 21, 2);
  accept();
}

/* Without return: it happened, at any time, or never. */
TEST(unanswered_happened) {
  made(1, 1, 2, 20);
  was_set(1, 3, 0, 21, -1, -1);
  saw(2, 5, 6, 20, 0);
  saw(2, 7, 8, 21, 1);
  saw_at_end(21, 1);
  accept();
}

/* Changes of a process that died may have been made or not: without them the
 * rest is possible. */
TEST(unanswered_never_happened) {
  made(1, 1, 2, 20);
  was_set(1, 3, 0, 21, -1, -1);
  add(1, 4, 0, HIST_DELETE, "/n");
  was_set(2, 5, 6, 22, -1, 1);
  saw_at_end(22, 1);
  accept();
}

/* Nobody saw its value, but the version tells of it. */
TEST(unanswered_and_unseen) {
  made(1, 1, 2, 20);
  was_set(1, 3, 0, 21, -1, -1);
  was_set(2, 5, 6, 22, -1, 2);
  accept();
}

/* Many dead: their operations must not make the search endless. */
TEST(many_unanswered) {
  made(1, 1, 2, 20);
  int64_t t = 3;
  for (int i = 0; i < 60; i++, t += 10) {
    was_set(1, t, 0, (uint64_t)(1000 + i), i % 3 ? -1 : i / 2, -1);
    was_set(2, t + 1, t + 2, (uint64_t)(100 + i), -1, i + 1);
    saw(3, t + 3, t + 4, (uint64_t)(100 + i), i + 1);
  }
  accept();
}

/* A set of which it is known when it happened, of all that could have. */
TEST(many_unanswered_and_impossible) {
  made(1, 1, 2, 20);
  for (int i = 0; i < 40; i++)
    was_set(1, 3 + i, 0, (uint64_t)(1000 + i), -1, -1);
  was_set(2, 100, 101, 30, -1, 60);
  refuse_nodes();
}

/* P6: an ephemeral goes with its session, not before, not later. */
TEST(ephemeral_goes) {
  made(1, 1, 2, 20)->ephemeral = true;
  saw(2, 3, 4, 20, 0);
  add(1, 5, 50, HIST_END, "");
  saw(2, 6, 7, 20, 0);
  saw(2, 8, 9, 0, 0);
  saw_at_end(0, 0);
  accept();
}

/* A container or TTL node may go at any time. */
TEST(containers_and_ttl_nodes_may_go) {
  made(1, 1, 2, 20)->fleeting = true;
  saw(2, 3, 4, 20, 0);
  saw(2, 5, 6, 0, 0);
  made(3, 7, 8, 21)->fleeting = true;
  saw_at_end(21, 0);
  accept();
}

/* A session expired by another while it was creating. */
TEST(created_while_expired) {
  made(1, 5, 20, 20)->ephemeral = true;
  add(2, 1, 30, HIST_END, "")->session = 1;
  saw(2, 31, 32, 0, 0);
  accept();
}

/* ---- one node: what cannot be ---- */

/* A read that began after a set had returned shows the value before it. */
TEST(stale_read) {
  made(1, 1, 2, 20);
  was_set(1, 3, 4, 21, -1, 1);
  saw(2, 5, 6, 20, 0);
  refuse_nodes();
}

/* Of two overlapping reads the later one goes back. */
TEST(reads_go_back) {
  made(1, 1, 2, 20);
  was_set(1, 3, 20, 21, -1, 1);
  saw(2, 4, 5, 21, 1);
  saw(3, 6, 7, 20, 0);
  refuse_nodes();
}

/* Two sets that both made version 1. */
TEST(lost_update) {
  made(1, 1, 2, 20);
  was_set(1, 3, 4, 21, -1, 1);
  was_set(2, 5, 6, 22, -1, 1);
  refuse_nodes();
}

/* Two sets that both were checked against version 0 succeeded. */
TEST(two_win_one_version) {
  made(1, 1, 2, 20);
  was_set(1, 3, 10, 21, 0, 1);
  was_set(2, 4, 9, 22, 0, 1);
  refuse_nodes();
}

/* A read shows a value that nobody wrote. */
TEST(value_never_written) {
  made(1, 1, 2, 20);
  saw(2, 3, 4, 99, 0);
  refuse_nodes();
}

/* A read shows a value before its set was called. */
TEST(value_seen_before_written) {
  made(1, 1, 2, 20);
  saw(2, 3, 4, 21, 1);
  was_set(1, 5, 0, 21, -1, -1);
  refuse_nodes();
}

/* P2: acknowledged, then gone. */
TEST(acknowledged_lost) {
  made(1, 1, 2, 20);
  was_set(1, 3, 4, 21, -1, 1);
  saw_at_end(20, 0);
  refuse_nodes();
}

/* A node that was made and not deleted is not there at the end. */
TEST(acknowledged_create_lost) {
  made(1, 1, 2, 20);
  saw_at_end(0, 0);
  refuse_nodes();
}

/* A deleted node is there at the end. */
TEST(deleted_comes_back) {
  made(1, 1, 2, 20);
  add(1, 3, 4, HIST_DELETE, "/n");
  saw_at_end(20, 0);
  refuse_nodes();
}

/* Two creates of one node succeeded. */
TEST(created_twice) {
  made(1, 1, 10, 20);
  made(2, 2, 9, 21);
  refuse_nodes();
}

/* A refused multi's part shows. */
TEST(refused_shows) {
  made(1, 1, 2, 20);
  was_set(1, 3, 4, 21, -1, -1)->rc = HIST_NO_EFFECT;
  saw(2, 5, 6, 21, 1);
  refuse_nodes();
}

/* A set was refused for its version, which was right. */
TEST(refused_for_nothing) {
  made(1, 1, 2, 20);
  was_set(1, 3, 4, 21, 0, -1)->rc = ZKE_BADVERSION;
  refuse_nodes();
}

/* An unanswered set that happened happens once. */
TEST(unanswered_happened_twice) {
  made(1, 1, 2, 20);
  was_set(1, 3, 0, 21, -1, -1);
  saw(2, 5, 6, 21, 1);
  was_set(2, 7, 8, 22, -1, 2);
  saw(2, 9, 10, 21, 3);
  refuse_nodes();
}

/* The session has ended, its node is there at the end. */
TEST(ephemeral_stays) {
  made(1, 1, 2, 20)->ephemeral = true;
  add(1, 3, 50, HIST_END, "");
  saw_at_end(20, 0);
  refuse_nodes();
}

/* A read finds the node gone before its session began to end. */
TEST(ephemeral_goes_early) {
  made(1, 1, 2, 20)->ephemeral = true;
  saw(2, 3, 4, 0, 0);
  add(1, 5, 50, HIST_END, "");
  refuse_nodes();
}

/* A session makes a node after its end. */
TEST(ephemeral_of_the_dead) {
  add(2, 1, 4, HIST_END, "")->session = 1;
  made(1, 5, 6, 20)->ephemeral = true;
  refuse_nodes();
}

/* P3, P4: a watch that has fired without a change; one that has not, with. */
TEST(fired_before_change) {
  made(1, 1, 2, 20);
  add(2, 3, 4, HIST_CHANGED, "/n")->value = 20;
  was_set(1, 5, 6, 21, -1, 1);
  refuse_nodes();
}

/* A second look says that nothing has changed, after a set had returned. */
TEST(not_fired_after_change) {
  made(1, 1, 2, 20);
  was_set(1, 3, 4, 21, -1, 1);
  add(2, 5, 6, HIST_SAME, "/n")->value = 20;
  refuse_nodes();
}

/* ---- random histories of a true register, then one answer bent ---- */

/* Three processes on one node: each operation takes effect somewhere between
 * its call and its return. */
static void simulate(uint64_t seed) {
  uint64_t value = 0, r = seed;
  int64_t now = 1, busy[3] = {0};
  int version = 0;
  for (int i = 0; i < 300; i++) {
    r = mix(r);
    int who = (int)(r % 3);
    int64_t effect = now += 10;
    int64_t called = effect - 1 - (int64_t)(r >> 8) % 25;
    int64_t returned = effect + 1 + (int64_t)((r >> 16) % 25);
    if (called <= busy[who]) called = busy[who] + 1;
    if (called > effect) continue;
    busy[who] = returned;
    uint64_t fresh = (uint64_t)(1000 + i);
    switch (r >> 32 & 3) {
      case 0:
        saw(who, called, returned, value, version);
        break;
      case 1:
        if (value) {
          was_set(who, called, returned, fresh, version, version + 1);
          version++;
          value = fresh;
        } else {
          made(who, called, returned, fresh);
          value = fresh;
        }
        break;
      case 2:
        if ((r >> 40) % 4) {
          hist_op *o = made(who, called, returned, fresh);
          if (value)
            o->rc = ZKE_NODEEXISTS;
          else
            value = fresh;
          break;
        }
        if (!value) break;
        add(who, called, returned, HIST_DELETE, "/n");
        value = 0;
        version = 0;
        break;
      default:
        if (!value) break;
        if (r >> 41 & 1) returned = 0; /* it was killed, after or before: */
        hist_op *o = was_set(who, called, returned, fresh, -1, version + 1);
        if (!returned && r >> 42 & 1) break;
        (void)o;
        value = fresh;
        version++;
    }
  }
  saw_at_end(value, version);
}

/* Random histories of a simulated server that makes no mistake. */
TEST_LOOP(random_true, 0, 25) {
  simulate((uint64_t)_i * 7919 + 1);
  accept();
}

/* Swap in the answer of an earlier read that something was set between. */
TEST_LOOP(random_stale, 0, 25) {
  simulate((uint64_t)_i * 104729 + 2);
  hist_op *last = &was.op[was.count - 1];
  for (int i = 0; i < was.count; i++) {
    const hist_op *o = &was.op[i];
    if (!has_worked(o) || o->kind != HIST_SET) continue;
    last->rc = ZKE_OK;
    last->value = o->value;
    last->version = o->version;
    break;
  }
  refuse_nodes();
}

/* Leave out a set that was answered and whose value a later one replaced. */
TEST_LOOP(random_lost, 0, 25) {
  simulate((uint64_t)_i * 15485863 + 3);
  for (int i = was.count / 2; i < was.count; i++) {
    if (was.op[i].kind != HIST_SET || !has_worked(&was.op[i])) continue;
    was.op[i].version++; /* as if one more had been there */
    break;
  }
  refuse_nodes();
}

/* ---- zxids and numbers ---- */

static void change(int64_t called, int64_t returned, int64_t zxid,
                   uint32_t group) {
  hist_op *o = add(1, called, returned, HIST_CREATE, "/z");
  o->zxid = zxid;
  o->group = group;
}

/* Calls that overlap may commit in either order; the parts of a multi have one
 * zxid. */
TEST(zxids_rise) {
  change(1, 2, 10, 0);
  change(3, 8, 12, 5);
  change(3, 8, 12, 5);
  change(4, 7, 11, 0);
  add(2, 9, 10, HIST_OPEN, "")->zxid = 13;
  hist h = history();
  ck_assert_int_eq(hist_check_zxids(&h), 0);
}

/* P8: no zxid is issued twice. */
TEST(zxid_twice) {
  change(1, 5, 10, 0);
  change(2, 6, 10, 0);
  refuse(hist_check_zxids, "one zxid for two changes");
}

/* Two multis have one zxid. */
TEST(zxid_of_two_multis) {
  change(1, 5, 10, 1);
  change(2, 6, 10, 2);
  refuse(hist_check_zxids, "one zxid for two changes");
}

/* A call that began later has a lower zxid. */
TEST(zxid_goes_back) {
  change(1, 2, 10, 0);
  change(3, 4, 9, 0);
  refuse(hist_check_zxids, "lower zxid");
}

/* A session's id, which is a zxid, is also a change's. */
TEST(session_id_used) {
  change(1, 5, 10, 0);
  add(2, 2, 6, HIST_OPEN, "")->zxid = 10;
  refuse(hist_check_zxids, "one zxid for two changes");
}

/* Numbers that leave gaps, of calls that overlap, and of another parent. */
TEST(numbers_rise) {
  numbered(1, 2, "/q/p-0000000007", 5);
  numbered(3, 9, "/q/e-0000000009", 7);
  numbered(4, 8, "/q/p-0000000008", 6);
  numbered(5, 6, "/r/p-0000000007", 8);
  accept();
}

/* P8: no number is issued twice: not after a delete either, nor under
 * another prefix. */
TEST(number_twice) {
  numbered(1, 2, "/q/p-0000000007", 5);
  add(1, 3, 4, HIST_DELETE, "/q/p-0000000007");
  numbered(5, 6, "/q/p-0000000007", 8);
  refuse(hist_check_sequences, "a number given twice");
}

/* One parent gives a number to two names that begin otherwise. */
TEST(number_twice_by_prefix) {
  numbered(1, 8, "/q/p-0000000007", 5);
  numbered(2, 6, "/q/e-0000000007", 8);
  refuse(hist_check_sequences, "a number given twice");
}

/* A later create has a lower number. */
TEST(number_goes_back) {
  numbered(1, 2, "/q/p-0000000007", 5);
  numbered(3, 4, "/q/p-0000000006", 8);
  refuse(hist_check_sequences, "lower number");
}

/* A sequential create without return is found by its value. */
TEST(number_unanswered) {
  hist_op *o = numbered(1, 0, "/q/p-", 0), *end = saw_at_end(o->value, 0);
  strcpy(end->path, "/q/p-0000000003");
  accept();
}

/* ---- records by themselves ---- */

static hist_op *looked(int fired, int least, int most) {
  hist_op *o = add(1, 1, 2, HIST_LOOK, "/n");
  o->fired = fired;
  o->least = least;
  o->most = most;
  return o;
}

/* A watch fired as often as the changes that must have been seen ask, and no
 * oftener than those that can have been allow. */
TEST(looks_right) {
  looked(0, 0, 0);
  looked(1, 0, 1);
  looked(5, 3, 7);
  accept();
}

/* A change must have fired the watch, and did not. */
TEST(watch_lost) {
  looked(0, 1, 1);
  refuse(hist_check_records, "a watch was lost");
}

/* One change fired the watch twice. */
TEST(watch_doubled) {
  looked(2, 1, 1);
  refuse(hist_check_records, "fired for nothing");
}

/* A read of two nodes shows one half of a multi. */
TEST(multi_in_part) {
  hist_op *o = add(1, 1, 2, HIST_PAIR, "/m");
  o->value = 20;
  o->other = 21;
  refuse(hist_check_records, "a multi seen in part");
}

/* A create that was refused for its version. */
TEST(strange_result) {
  made(1, 1, 2, 20)->rc = ZKE_BADVERSION;
  refuse(hist_check_records, "unexpected result");
}

/* ---- events ---- */

/* Two nodes, their changes and all events of them. */
static void eventful(void) {
  made(1, 1, 2, 20)->zxid = 5;
  was_set(1, 3, 4, 21, -1, 1)->zxid = 6;
  hist_op *o = add(1, 5, 6, HIST_CREATE, "/w/k");
  o->zxid = 7;
  o->value = 30;
  add(1, 7, 8, HIST_DELETE, "/w/k");
  event(ZKE_EVENT_CREATED, "/n");
  event(ZKE_EVENT_CHANGED, "/n");
  event(ZKE_EVENT_CREATED, "/w/k");
  event_there(ZKE_EVENT_CHILD, "/w");
  event(ZKE_EVENT_DELETED, "/w/k");
  event_there(ZKE_EVENT_CHILD, "/w");
  saw_at_end(21, 1);
}

static void drop_event(int at) {
  memmove(was.event + at, was.event + at + 1,
          sizeof *was.event * (size_t)(--was.events - at));
}

/* The events of the sample history are accepted as they are. */
TEST(events_right) {
  eventful();
  accept();
}

/* … and refused without a change's, */
TEST(event_lost) {
  eventful();
  drop_event(1);
  refuse(hist_check_events, "do not lead to what is there");
}

/* … without the first create's, */
TEST(event_of_create_lost) {
  eventful();
  drop_event(0);
  refuse(hist_check_events, "an order that cannot be");
}

/* … with a change told twice, */
TEST(event_doubled) {
  eventful();
  event(ZKE_EVENT_CHANGED, "/n");
  refuse(hist_check_events, "do not lead to what is there");
}

/* … with a deletion told twice, */
TEST(delete_doubled) {
  eventful();
  event(ZKE_EVENT_DELETED, "/w/k");
  event_there(ZKE_EVENT_CHILD, "/w");
  refuse(hist_check_events, "an order that cannot be");
}

/* … when nothing is told of a whole life of a node, */
TEST(events_of_a_life_lost) {
  eventful();
  was.events = 2;
  refuse(hist_check_events, "more or fewer creates");
}

/* … without a child event, */
TEST(child_event_lost) {
  eventful();
  drop_event(5);
  refuse(hist_check_events, "the persistent watch got");
}

/* … with one told twice, */
TEST(child_event_doubled) {
  eventful();
  event_there(ZKE_EVENT_CHILD, "/w");
  refuse(hist_check_events, "the persistent watch got");
}

/* P4: in the order of the commits. */
TEST(events_out_of_order) {
  eventful();
  was.op[0].zxid = 8;
  was.op[1].zxid = 9;
  refuse(hist_check_events, "events out of order");
}

/* … or with a node that nobody made. */
TEST(event_without_a_change) {
  eventful();
  event(ZKE_EVENT_CREATED, "/x");
  event(ZKE_EVENT_DELETED, "/x");
  refuse(hist_check_events, "nobody made");
}

/* Unless a sequential create had no answer. */
TEST(event_of_an_unanswered_create) {
  eventful();
  add(1, 10, 0, HIST_SEQUENCE, "/q/e-")->value = 77;
  event(ZKE_EVENT_CREATED, "/q/e-0000000001");
  event(ZKE_EVENT_DELETED, "/q/e-0000000001");
  accept();
}
