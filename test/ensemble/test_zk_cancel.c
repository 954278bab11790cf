/* test_zk_cancel.c - the engine of an ensemble in threads that are cancelled
 *
 * A separate program, since AddressSanitizer cannot run it (see TEST_SOURCES in
 * test/tests.mk).
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "recipes/engine/zookeeper.h"
#include "test/server/wire.h"
#include "test/test.h"

/* A thread's orders and reports. */
typedef struct thread_call {
  char name[100];
  zke *z;
  pthread_t thread;
  atomic_int tid;
  atomic_bool over;
  int rc;
} thread_call;

/* A server, and its name for the calls. */
static void begin_server(thread_call *c) {
  serving s = serve(":memory:", "");
  *c = (thread_call){.rc = -99};
  snprintf(c->name, sizeof c->name, "zk://127.0.0.1:%d", s.port);
  ck_ok(zke_register_engine(&zke_zookeeper));
}

static void begin_thread(thread_call *c, void *(*body)(void *)) {
  ck_assert_int_eq(pthread_create(&c->thread, NULL, body, c), 0);
}

static void *end_thread(thread_call *c) {
  void *got;
  ck_assert_int_eq(pthread_join(c->thread, &got), 0);
  return got;
}

/* Calls with a pending cancellation, which takes effect after them. */
static void *call_while_cancelled(void *arg) {
  thread_call *c = arg;
  zke *z;
  int pending;
  zke_strings *names;
  pthread_cancel(pthread_self());
  c->rc = zke_open(c->name, NULL, &z);
  if (c->rc == ZKE_OK) c->rc = zke_pending(z, &pending);
  if (c->rc == ZKE_OK) c->rc = zke_sleep(z, zke_now(z) + 20);
  if (c->rc == ZKE_OK) c->rc = zke_children(z, "/", NULL, NULL, &names, NULL);
  if (c->rc == ZKE_OK) zke_free(names);
  if (c->rc == ZKE_OK) c->rc = zke_dispatch(z, NULL);
  if (c->rc == ZKE_OK) c->rc = zke_close(z);
  c->over = true;
  pthread_testcancel();
  return NULL;
}

static int open_descriptors(void) {
  int count = 0;
  DIR *d = opendir("/proc/self/fd");
  while (readdir(d)) count++;
  closedir(d);
  return count;
}

/* A cancelled thread completes the calls that it makes after that, and leaks no
 * descriptor. */
TEST(a_cancellation_takes_effect_behind_the_call) {
  thread_call c;
  begin_server(&c);
  int before = open_descriptors();
  begin_thread(&c, call_while_cancelled);
  ck_assert_ptr_eq(end_thread(&c), PTHREAD_CANCELED);
  ck_assert(c.over);
  ck_ok(c.rc);
  ck_assert_int_eq(open_descriptors(), before);
}

static void *wait_for_turn(void *arg) {
  thread_call *c = arg;
  c->tid = test_thread();
  c->rc = zke_wait(c->z, zke_now(c->z) + 60000);
  c->over = true;
  return NULL;
}

/* A thread can be cancelled in its wait, and the handle remains usable; a wake
 * ends the others' waits. */
TEST(a_wait_can_be_cancelled) {
  enum { THREADS = 3 };
  thread_call c[THREADS];
  begin_server(&c[0]);
  zke *z;
  ck_ok(zke_open(c[0].name, NULL, &z));
  for (int i = 0; i < THREADS; i++) {
    c[i] = (thread_call){.z = z};
    begin_thread(&c[i], wait_for_turn);
  }
  for (int i = 0; i < THREADS; i++)
    ck_until(c[i].tid && test_state(c[i].tid) == 'S', SOON);
  pthread_cancel(c[0].thread);
  ck_assert_ptr_eq(end_thread(&c[0]), PTHREAD_CANCELED);
  ck_assert(!c[0].over);
  /* A thread that slept on something else before its wait takes the next
   * wake. */
  ck_until(zke_wake(z) == ZKE_OK && c[1].over && c[2].over, SOON);
  for (int i = 1; i < THREADS; i++) {
    end_thread(&c[i]);
    ck_ok(c[i].rc);
  }
  ck_ok(zke_exists(z, "/", NULL, NULL, NULL));
  ck_ok(zke_close(z));
}
