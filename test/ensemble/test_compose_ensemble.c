/* test_compose_ensemble.c - a file, and an ensemble mounted in it
 *
 * The ensemble is `zke FILE serve`.  Each test runs twice: with a sync before
 * each read, and with "?sync=0", when the composition sends what the order
 * needs.
 */
#include <stdio.h>

#include "recipes/engine/compose.h"
#include "recipes/lock.h"
#include "recipes/engine/zookeeper.h"
#include "test/opened.h"
#include "test/server/wire.h"

static zke *admin, *raw, *z[2];

/* Two composed handles: sessions of one file, and of the server. */
static void open_mounted(int plain) {
  char name[64];
  serving server = serve(":memory:", "");
  snprintf(name, sizeof name, "zk://127.0.0.1:%d%s", server.port,
           plain ? "?sync=0" : "");
  ck_ok(zke_register_engine(&zke_zookeeper));
  raw = test_open(name);
  admin = test_open(":memory:");
  ck_ok(zke_create(admin, "/global", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  for (int i = 0; i < 2; i++) {
    z[i] = test_session(admin, NULL);
    ck_ok(zke_mount(&z[i], "/global", test_open(name)));
  }
}

/* The lock, unchanged: one holds, and the other gets it by an event. */
TEST_LOOP(a_lock_on_the_ensemble, 0, 2) {
  zke_lock *locks[2];
  open_mounted(_i);
  for (int i = 0; i < 2; i++)
    ck_ok(zke_lock_new(z[i], "/global/lock", NULL, &locks[i]));
  ck_ok(zke_lock_acquire(locks[0], zke_now(z[0]) + 10000));
  ck_rc(zke_lock_try(locks[1]), ZKE_HELD);
  ck_ok(zke_lock_start(locks[1]));
  ck_ok(zke_lock_release(locks[0]));
  int64_t end = zke_now(z[1]) + 10000;
  while (zke_lock_state(locks[1]) != ZKE_LOCK_HELD && zke_now(z[1]) < end)
    zke_wait(z[1], end);
  ck_assert_int_eq(zke_lock_state(locks[1]), ZKE_LOCK_HELD);
  for (int i = 0; i < 2; i++) zke_lock_free(locks[i]);
}

/* Owners are told apart; the end of the file's session ends the ensemble's. */
TEST_LOOP(the_file_ends_the_ensemble, 0, 2) {
  zke_stat stat;
  test_events events = {0};
  open_mounted(_i);
  ck_ok(zke_create(z[0], "/global/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                   &stat));
  ck_assert(stat.ephemeralOwner == zke_session_id(z[0]));
  stat = test_stat(z[1], "/global/e");
  ck_assert(stat.ephemeralOwner != zke_session_id(z[1]));
  ck_ok(zke_exists(z[0], "/global", test_record, &events, NULL));
  ck_ok(zke_exists(z[0], "/", test_record, &events, NULL));
  ck_ok(zke_expire(admin, zke_session_id(z[0])));
  test_expect_within(z[0], &events, "SESSION -112", 10000);
  ck_rc(zke_exists(z[0], "/global", NULL, NULL, NULL), ZKE_INVALIDSTATE);
  ck_rc(zke_exists(raw, "/e", NULL, NULL, NULL), ZKE_NONODE);
}

/* The end is reported once; later waits and dispatches return it, even if the
 * handle has only ensembles. */
TEST_LOOP(an_end_is_no_reason_to_sleep, 0, 2) {
  test_events events = {0};
  open_mounted(0);
  zke *outer = NULL;
  ck_ok(zke_open_session(raw, NULL, &outer));
  int64_t id = zke_session_id(outer);
  ck_ok(zke_order(&outer, 1));
  ck_ok(zke_exists(outer, "/", test_record, &events, NULL));
  ck_ok(zke_expire(raw, id));
  ck_ok(zke_wait(outer, zke_now(outer) + 10000));
  ck_assert_int_eq(events.count, 1);
  if (_i == 0) {
    ck_rc(zke_wait(outer, zke_now(outer) + 2000), ZKE_INVALIDSTATE);
  } else {
    int count = 7;
    ck_rc(zke_dispatch(outer, &count), ZKE_INVALIDSTATE);
    ck_assert_int_eq(count, 7);
  }
  ck_assert_int_eq(events.count, 1);
}

/* A file in an ensemble's tree: what an ensemble's client cannot do is done on
 * the file, in the file's session. */
TEST(a_files_session_in_an_ensembles_tree) {
  zke_strings *paths;
  open_mounted(0);
  zke *file = test_open(":memory:"), *outer = NULL, *other;
  ck_ok(zke_create(raw, "/local", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  other = test_session(file, NULL);
  ck_ok(
      zke_create(other, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_ok(zke_open_session(raw, NULL, &outer));
  ck_ok(zke_mount(&outer, "/local", test_session(file, NULL)));
  int64_t owner = test_stat(outer, "/local/e").ephemeralOwner;
  ck_ok(zke_ephemerals(outer, owner, NULL, &paths));
  ck_assert_int_eq(paths->count, 1);
  ck_assert_str_eq(paths->data[0], "/local/e");
  zke_free(paths);
  ck_ok(zke_expire(outer, owner));
  ck_rc(zke_exists(file, "/e", NULL, NULL, NULL), ZKE_NONODE);
}
