/* crew.c - see crew.h */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "crew.h"
#include "test/seam.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ------------------------------------------------------------------------
 * Looking
 * --------------------------------------------------------------------- */

int64_t soon(zke *session) { return zke_now(session) + test_patience(5000); }

int dispatch_on(zke *session) {
  int all = 0, count = 1;
  while (count) {
    int rc = zke_dispatch(session, &count);
    if (rc == ZKE_INVALIDSTATE) break; /* it has ended */
    ck_ok(rc);
    all += count;
  }
  return all;
}

int entries(zke *session, const char *path) {
  zke_stat stat;
  int rc = zke_exists(session, path, NULL, NULL, &stat);
  if (rc == ZKE_NONODE) return 0;
  ck_ok(rc);
  return stat.numChildren;
}

void until_empty(zke *session, const char *path) {
  zke_strings *names;
  char child[200];
  while (zke_children(session, path, NULL, NULL, &names, NULL) == ZKE_OK) {
    int count = names->count;
    snprintf(child, sizeof child, "%s/%s", path, count ? names->data[0] : "");
    zke_free(names);
    if (!count) return;
    if (zke_exists(session, child, test_ignore, NULL, NULL) == ZKE_OK)
      ck_ok(zke_wait(session, soon(session)));
  }
}

/* The watches of one session, or with id 0 of all. */
static int watches_of(zke *session, int64_t id) {
  zke_watch_list *list;
  int count = 0;
  ck_ok(zke_watches(session, &list));
  for (int i = 0; i < list->count; i++)
    count += !id || list->data[i].session == id;
  zke_free(list);
  return count;
}

int watches(zke *session) {
  return watches_of(session, zke_session_id(session));
}

int all_watches(zke *session) { return watches_of(session, 0); }

void close_last(zke *session) {
  ck_assert_int_eq(all_watches(session), 0);
  ck_ok(zke_check(session, NULL, NULL));
  ck_ok(zke_close(session));
}

/* ------------------------------------------------------------------------
 * A call on a thread of its own
 * --------------------------------------------------------------------- */

static void *run_call(void *context) {
  call *c = context;
  c->rc = c->run(c);
  snprintf(c->sentence, sizeof c->sentence, "%s", c->rc ? zke_errmsg() : "");
  __atomic_store_n(&c->done, true, __ATOMIC_RELEASE);
  return NULL;
}

void call_begin(call *c, int (*run)(call *c), void *object, int how,
                int64_t deadline) {
  *c = (call){.run = run, .object = object, .how = how, .deadline = deadline};
  ck_assert_int_eq(pthread_create(&c->thread, NULL, run_call, c), 0);
}

bool call_is_done(const call *c) {
  return __atomic_load_n(&c->done, __ATOMIC_ACQUIRE);
}

void call_end(call *c) {
  ck_until(call_is_done(c), 10000);
  pthread_join(c->thread, NULL);
}

/* ------------------------------------------------------------------------
 * A crew of processes
 * --------------------------------------------------------------------- */

struct shared *shared;
int self;

int load(const int *value) { return __atomic_load_n(value, __ATOMIC_SEQ_CST); }

void store(int *value, int to) {
  __atomic_store_n(value, to, __ATOMIC_SEQ_CST);
}

void wait_for(const int *value, int least) {
  while (load(value) < least) test_pause();
}

void listen_for(zke *own, const int *value, int least) {
  while (load(value) < least) zke_wait(own, zke_now(own) + 5);
}

void share(void) {
  test_path("db");
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(shared, MAP_FAILED);
}

/* Count the bytes that woke this process for an event.  A 't' only tells the
 * next writer that the gate is free. */
static void count_bytes(seam_call *c) {
  if (c->result <= 0 || seam_type(c->fd) != ZKE_FILE_FIFO) return;
  for (int64_t i = 0; i < c->result; i++)
    shared->bytes[self] += ((const char *)c->data)[i] != 't';
}

static zke *open_counting(void) {
  static seam reads = {.after = {[SEAM_read] = count_bytes}};
  zke_options o = {.size = sizeof o, .os = seam_os(&reads)};
  zke *own = NULL;
  int rc = zke_open(test_path("db"), &o, &own);
  if (rc != ZKE_OK) give_up("open", rc);
  return own;
}

void give_up(const char *what, int rc) {
  shared->rc[self] = rc;
  snprintf(shared->sentence, sizeof shared->sentence, "%d: %s: %d %s", self,
           what, rc, zke_errmsg());
  _exit(3);
}

pid_t spawn(int number, void (*run)(zke *own)) {
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  self = number;
  wait_for(&shared->go, 1);
  zke *own = open_counting();
  run(own);
  zke_close(own);
  _exit(0);
}

void kill_child(pid_t pid) {
  kill(pid, SIGKILL);
  ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}
