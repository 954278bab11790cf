/* test_line.c - the line of writers (P10): their order, and how stopped,
 * killed, late, cancelled and closing writers leave it
 *
 * The test itself holds the gate, as described in doc/format.md 5, and sees the
 * waiting writers in the line file; so it knows the order in which they come.
 * Each writer makes one sequential node: its number is its turn. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "test/seam.h"
#include "test/test.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENT_MS = 60000 };

static zke *z;
static const char *db;

/* ---- the side files ---- */

static int side_file(const char *name, int mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s-zke/%s", db, name);
  int fd = open(path, mode | O_CLOEXEC);
  ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
  return fd;
}

static int lock_bytes(const char *name, int64_t from, int64_t count) {
  struct flock l = {.l_type = F_WRLCK, .l_start = from, .l_len = count};
  int fd = side_file(name, O_RDWR);
  ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &l), 0);
  return fd;
}

/* Hold the gate as the holder with this number; close() releases it. */
static int hold_gate(int64_t number) { return lock_bytes("gate", 0, number); }

/* The first place in the line at or after `from`; 0: there is none. */
static int64_t place_from(int64_t from) {
  struct flock l = {
      .l_type = F_WRLCK, .l_start = from, .l_len = (INT64_C(1) << 61) - from};
  int fd = side_file("line", O_RDWR);
  ck_assert_int_eq(fcntl(fd, F_OFD_GETLK, &l), 0);
  close(fd);
  return l.l_type == F_UNLCK ? 0 : l.l_start;
}

static int places(void) {
  int count = 0;
  for (int64_t at = 0; (at = place_from(at + 1)) != 0;) count++;
  return count;
}

/* ---- writers ---- */

typedef struct writer {
  pid_t pid;
  int go[2], ready[2];
  int inner[2]; /* in a PID namespace: its pid outside */
  int number;
} writer;

static atomic_bool sleeps_long; /* a poll waits longer than it was asked to */
static atomic_bool slept_out;   /* … and nothing has come */

/* A poll sleeps longer than it was asked to, if the test says so: then only a
 * wake-up ends it in time. */
enum { LONG_MS = PATIENT_MS / 3 };

static void poll_long(seam_call *c) {
  if (sleeps_long && c->time > 0) c->time = LONG_MS;
}

static void after_poll(seam_call *c) {
  if (c->time == LONG_MS && c->result == 0) slept_out = true;
}

static bool slept_outside; /* where no writer in the line can be woken */

static void before_sleep(seam_call *c) {
  (void)c;
  slept_outside = true;
}

/* How much slower time passes for handles that are opened from now on, on the
 * clock by which the first in line is passed over, so that a writer that only
 * waits for a processor is not.  Sleeps and polls are as long as ever. */
enum { SLOW = 50 };
static int slowness = SLOW;

static void slow_clock(seam_call *c) {
  if (c->how == ZKE_CLOCK_MONOTONIC) c->result /= (intptr_t)c->seam->context;
}

/* A handle on these system calls that waits long; NULL if it fails.  All
 * handles of a process have the same slowness. */
static zke *open_patient(void) {
  static seam s = {
      .before = {[SEAM_poll] = poll_long, [SEAM_sleep] = before_sleep},
      .after = {[SEAM_poll] = after_poll, [SEAM_clock] = slow_clock}};
  zke *own = NULL;
  zke_options o = {
      .size = sizeof o, .busy_timeout_ms = PATIENT_MS, .os = seam_os(&s)};
  s.context = (void *)(intptr_t)slowness;
  return zke_open(db, &o, &own) == ZKE_OK ? own : NULL;
}

/* A process that writes one node when the test tells it to. */
static int write_once(void *context) {
  writer *w = context;
  char text[16], byte = 'r';
  zke *own = open_patient();
  if (!own || write(w->ready[1], &byte, 1) != 1) return 1;
  if (read(w->go[0], &byte, 1) != 1) return 2;
  int len = snprintf(text, sizeof text, "%d", w->number);
  int rc = zke_create(own, "/q/w-", text, len, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT_SEQUENTIAL, NULL, NULL);
  if (rc != ZKE_OK) return 3;
  return zke_close(own) == ZKE_OK ? 0 : 4;
}

/* Start a writer, and wait until it has opened its handle. */
static writer start_writer_as(int number, int (*body)(void *)) {
  writer w = {.number = number};
  char byte;
  ck_assert_int_eq(pipe(w.go), 0);
  ck_assert_int_eq(pipe(w.ready), 0);
  ck_assert_int_eq(pipe(w.inner), 0);
  w.pid = test_child(body, &w);
  ck_assert_int_eq(read(w.ready[0], &byte, 1), 1);
  return w;
}

/* Set /q once; if `light`, first make and change an ephemeral, so that the call
 * begins as a change that is not synced. */
static int set_once(writer *w, bool light) {
  char byte = 'r';
  zke *own = open_patient();
  if (!own) return 1;
  if (light && (zke_create(own, "/own", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                           NULL, NULL) != ZKE_OK ||
                zke_set(own, "/own", "", 0, -1, NULL) != ZKE_OK))
    return 2;
  if (write(w->ready[1], &byte, 1) != 1) return 3;
  if (read(w->go[0], &byte, 1) != 1) return 4;
  slept_outside = false;
  if (zke_set(own, "/q", "", 0, -1, NULL) != ZKE_OK) return 5;
  if (!light && slept_outside) return 6;
  return zke_close(own) == ZKE_OK ? 0 : 7;
}

static int set_guessed(void *context) { return set_once(context, true); }
static int set_at_first(void *context) { return set_once(context, false); }

static writer start_writer(int number) {
  return start_writer_as(number, write_once);
}

/* A writer whose time passes this much slower. */
static writer start_slow_writer(int number, int slow) {
  slowness = slow;
  writer w = start_writer(number);
  slowness = SLOW;
  return w;
}

static pid_t inner_pid(writer *w) {
  pid_t pid;
  ck_assert_int_eq(read(w->inner[0], &pid, sizeof pid), sizeof pid);
  return pid;
}

static void let_write(writer *w) {
  ck_assert_int_eq(write(w->go[1], "g", 1), 1);
}

static void begin(void) {
  db = test_path("line.db");
  z = open_patient();
  ck_assert_ptr_nonnull(z);
  ck_ok(zke_create(z, "/q", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
}

/* Start writers and let them come one after another; the gate is held. */
static void line_up(writer *w, int count) {
  for (int i = 0; i < count; i++) w[i] = start_writer(i);
}

static void come(writer *w, int count) {
  for (int i = 0; i < count; i++) {
    let_write(&w[i]);
    ck_until(places() == i + 1, PATIENT_MS);
  }
}

static void end_writers(writer *w, int from, int count) {
  for (int i = from; i < count; i++)
    ck_assert_int_eq(test_child_end(w[i].pid), 0);
}

/* The writers wrote in this order, given by their numbers. */
static void expect_order(const char *expected) {
  zke_strings *names;
  char order[200] = "", path[64];
  ck_ok(zke_children(z, "/q", NULL, NULL, &names, NULL));
  for (int turn = 0; turn < names->count; turn++) {
    char *text;
    int len;
    snprintf(path, sizeof path, "/q/w-%010d", turn);
    ck_ok(zke_get(z, path, NULL, NULL, &text, &len, NULL));
    snprintf(order + strlen(order), sizeof order - strlen(order), "%.*s ", len,
             text);
    zke_free(text);
  }
  zke_free(names);
  ck_assert_str_eq(order, expected);
}

static void finish(void) {
  ck_assert_int_eq(places(), 0);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}

/* ---- the order ---- */

/* P10: first come, first served. */
TEST(first_come_first_served) {
  writer w[8];
  begin();
  line_up(w, 8);
  int gate = hold_gate(1);
  come(w, 8);
  close(gate);
  end_writers(w, 0, 8);
  expect_order("0 1 2 3 4 5 6 7 ");
  finish();
}

/* P10: if a writer finds at its turn that its change has to be synced (0), it
 * does not wait for a second turn; it used to go to the end of the line.  The
 * first change of a session (1) joins the line immediately. */
TEST_LOOP(change_of_unknown_kind_has_one_turn, 0, 2) {
  writer w[6];
  zke_stat set, first;
  begin();
  slowness = 1; /* the first passes over no one */
  w[0] = start_writer_as(0, _i ? set_at_first : set_guessed);
  slowness = SLOW;
  for (int i = 1; i < 6; i++) w[i] = start_writer(i);
  int gate = hold_gate(1);
  come(w, 6);
  close(gate);
  end_writers(w, 0, 6);
  expect_order("1 2 3 4 5 ");
  ck_ok(zke_exists(z, "/q", NULL, NULL, &set));
  ck_ok(zke_exists(z, "/q/w-0000000000", NULL, NULL, &first));
  ck_assert_int_lt(set.mzxid, first.czxid);
  finish();
}

/* zkembed.h: zke_limit() also holds for the end of a session, but not for the
 * next handle, even if that has the same address. */
TEST(a_close_keeps_its_limit) {
  zke *other, *next;
  begin();
  ck_ok(zke_open_session(z, NULL, &other));
  int gate = hold_gate(1);
  zke_limit(other, 0);
  ck_rc(zke_close(other), ZKE_OPERATIONTIMEOUT);
  ck_says("did not finish within 0 ms");
  close(gate);
  ck_ok(zke_open_session(z, NULL, &next));
  ck_assert_int_eq(zke_limit(next, ZKE_FOREVER), ZKE_FOREVER);
  ck_ok(zke_close(next));
  finish();
}

/* P10: a stopped first writer is passed over, once, and a dead one is no longer
 * in the line: neither delays those after it.  When the stopped one continues
 * it takes a new place, and writes.  (The simulated host cannot distinguish a
 * line that waits for a stopped writer from a slow one.) */
TEST(stopped_and_killed_writers_hold_up_nobody) {
  writer w[4];
  slowness = 1; /* of z, which may have to pass it over too */
  begin();
  slowness = SLOW;
  line_up(w, 2);
  for (int i = 2; i < 4; i++) w[i] = start_slow_writer(i, i == 2 ? 1 : SLOW);
  int gate = hold_gate(1);
  come(w, 4);
  ck_assert_int_eq(kill(w[0].pid, SIGSTOP), 0);
  ck_assert_int_eq(waitpid(w[0].pid, NULL, WUNTRACED), w[0].pid);
  ck_assert_int_eq(kill(w[1].pid, SIGKILL), 0);
  ck_assert_int_eq(test_child_end(w[1].pid), 128 + SIGKILL);
  ck_assert_int_eq(places(), 3);
  close(gate);
  end_writers(w, 2, 4);
  expect_order("2 3 ");
  ck_assert_int_eq(places(), 1);
  ck_assert_int_eq(kill(w[0].pid, SIGCONT), 0);
  end_writers(w, 0, 1);
  expect_order("2 3 0 ");
  finish();
}

/* The word of the last place is too low, since a process was stopped before it
 * wrote it: no writer gets a place before a waiting one. */
TEST_LOOP(place_is_behind_all_others, 0, 3) {
  writer w[1];
  int64_t garbage[] = {0, -1, INT64_MAX};
  begin();
  line_up(w, 1);
  int fd = lock_bytes("line", 5000, 1), gate = hold_gate(1);
  ck_assert_int_eq(pwrite(fd, &garbage[_i], 8, 0), 8);
  let_write(&w[0]);
  ck_until(place_from(5001) != 0, PATIENT_MS);
  ck_assert_int_eq(places(), 2);
  close(fd);
  close(gate);
  end_writers(w, 0, 1);
  expect_order("0 ");
  finish();
}

/* ---- leaving the line ---- */

/* P10: at the deadline the sentence names the holder, by its session's number
 * and its process, or by the process alone if it has no session yet. */
TEST(late_writer_is_told_the_holder) {
  char whose[100];
  zke *late = NULL;
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 50};
  begin();
  ck_ok(zke_open(db, &o, &late));
  int gate = hold_gate(zke_session_id(z));
  ck_rc(zke_set(late, "/q", "x", 1, -1, NULL), ZKE_OPERATIONTIMEOUT);
  snprintf(whose, sizeof whose, "process %d (session 0x%llx) is writing",
           (int)getpid(), (unsigned long long)zke_session_id(z));
  ck_says(whose);
  ck_assert_int_eq(places(), 0);
  close(gate);
  gate = hold_gate(4711);
  ck_rc(zke_set(late, "/q", "x", 1, -1, NULL), ZKE_OPERATIONTIMEOUT);
  ck_says("process 4711 is writing");
  close(gate);
  gate = hold_gate(INT64_C(1) << 40);
  ck_rc(zke_set(late, "/q", "x", 1, -1, NULL), ZKE_OPERATIONTIMEOUT);
  ck_says("session 0x10000000000 is writing");
  close(gate);
  ck_ok(zke_set(late, "/q", "x", 1, -1, NULL));
  ck_ok(zke_close(late));
  finish();
}

static atomic_int set_rc;
static int close_rc;

static void *set_it(void *arg) {
  set_rc = zke_set(arg, "/q", "x", 1, -1, NULL);
  return NULL;
}

static void *close_it(void *arg) {
  close_rc = zke_close(arg);
  return NULL;
}

static void *expire_nobody(void *arg) {
  set_rc = zke_expire(arg, 4711);
  return NULL;
}

/* P10: another thread closes the handle while its call (_i is 1: one that is no
 * change by the session) sleeps in the line: it is woken, and leaves. */
TEST_LOOP(closing_writer_leaves_the_line, 0, 2) {
  pthread_t setter, closer;
  begin();
  zke *own = open_patient();
  int gate = hold_gate(1);
  sleeps_long = true;
  pthread_create(&setter, NULL, _i ? expire_nobody : set_it, own);
  ck_until(places() == 1, PATIENT_MS);
  pthread_create(&closer, NULL, close_it, own);
  pthread_join(setter, NULL);
  ck_rc(set_rc, ZKE_CLOSING);
  ck_assert(!slept_out);
  sleeps_long = false;
  close(gate);
  pthread_join(closer, NULL);
  ck_rc(close_rc, ZKE_OK);
  finish();
}

/* P7: a wake-up for events is not lost if it reaches a session in the line,
 * which sleeps at the same FIFO. */
TEST(event_reaches_a_waiting_writer) {
  pthread_t setter;
  char fifo[32];
  struct pollfd p = {.events = POLLIN};
  begin();
  ck_ok(zke_fd(z, &p.fd));
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(poll(&p, 1, 0), 0);
  int gate = hold_gate(1);
  pthread_create(&setter, NULL, set_it, z);
  ck_until(places() == 1, PATIENT_MS);
  snprintf(fifo, sizeof fifo, "%016llx", (unsigned long long)zke_session_id(z));
  int fd = side_file(fifo, O_WRONLY), untaken = 1;
  ck_assert_int_eq(write(fd, "e", 1), 1);
  ck_until(ioctl(fd, FIONREAD, &untaken) == 0 && untaken == 0, PATIENT_MS);
  close(fd);
  close(gate);
  pthread_join(setter, NULL);
  ck_rc(set_rc, ZKE_OK);
  ck_assert_int_eq(poll(&p, 1, 0), 1);
  finish();
}

/* ---- cancelled ---- */

static zke *cancelled;

static void *set_and_end(void *arg) {
  pthread_setcanceltype(*(int *)arg, NULL);
  set_rc = zke_set(cancelled, "/q", "x", 1, -1, NULL);
  for (;;) pause(); /* only a cancellation ends it */
  return NULL;
}

/* P9, P10: a thread that is cancelled while it waits in the line keeps waiting,
 * makes its change, and ends after the call; one that then runs out of time (_i
 * is 2) has left the line. */
TEST_LOOP(cancelled_writer_finishes_its_call, 0, 3) {
  int type = _i == 1 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED;
  bool late = _i == 2;
  zke_options o = {.size = sizeof o,
                   .busy_timeout_ms = late ? 500 : PATIENT_MS};
  pthread_t setter;
  zke_stat stat;
  begin();
  ck_ok(zke_open(db, &o, &cancelled));
  int gate = hold_gate(1);
  pthread_create(&setter, NULL, set_and_end, &type);
  ck_until(places() == 1 || (late && set_rc != ZKE_OK), PATIENT_MS);
  ck_assert_int_eq(pthread_cancel(setter), 0);
  if (!late) close(gate);
  pthread_join(setter, NULL);
  ck_assert_int_eq(places(), 0);
  if (late) close(gate);
  ck_ok(zke_exists(z, "/q", NULL, NULL, &stat));
  ck_assert_int_eq(stat.version, !late);
  ck_ok(zke_set(cancelled, "/q", "y", 1, -1, NULL));
  ck_ok(zke_close(cancelled));
  finish();
}

/* ---- in a PID namespace ---- */

/* Run as the first process of a namespace; -1: not permitted. */
static int run_in_namespace(int (*body)(void *), writer *w) {
  int status;
  if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
    return -1;
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm((unsigned)test_patience(TEST_CHILD_S));
    _exit(body(w));
  }
  if (pid < 0 || write(w->inner[1], &pid, sizeof pid) != sizeof pid) return 9;
  while (waitpid(pid, &status, 0) < 0) continue;
  return test_status(status);
}

static int write_in_namespace(void *context) {
  return run_in_namespace(write_once, context);
}

static int enter_nothing(void *context) {
  (void)context;
  return 0;
}

static int try_namespace(void *context) {
  return run_in_namespace(enter_nothing, context);
}

static bool namespaces_permitted(void) {
  writer w;
  ck_assert_int_eq(pipe(w.inner), 0);
  if (test_child_end(test_child(try_namespace, &w)) == 0) return true;
  printf("PID namespaces: skipped, neither as root nor in a user namespace\n");
  return false;
}

/* P10: writers that all are process 1, each in its own namespace, stand in one
 * line with the others, in order; dead ones leave it; a stopped first is passed
 * over. */
TEST(line_across_pid_namespaces) {
  writer w[5];
  begin();
  if (!namespaces_permitted()) return;
  for (int i = 0; i < 5; i++) {
    if (i == 1)
      w[i] = start_slow_writer(i, 1);
    else if (i == 4)
      w[i] = start_slow_writer(i, SLOW);
    else
      w[i] = start_writer_as(i, write_in_namespace);
  }
  int gate = hold_gate(1);
  come(w, 5);
  ck_assert_int_eq(kill(inner_pid(&w[2]), SIGKILL), 0);
  ck_assert_int_eq(test_child_end(w[2].pid), 128 + SIGKILL);
  ck_assert_int_eq(places(), 4);
  pid_t first = inner_pid(&w[0]);
  ck_assert_int_eq(kill(first, SIGSTOP), 0);
  ck_until(test_state(first) == 'T', PATIENT_MS);
  close(gate);
  end_writers(w, 1, 2);
  end_writers(w, 3, 5);
  expect_order("1 3 4 ");
  ck_assert_int_eq(kill(first, SIGCONT), 0);
  end_writers(w, 0, 1);
  expect_order("1 3 4 0 ");
  finish();
}
