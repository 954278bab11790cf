/* test_growth.c - programs and libraries of different versions
 *
 * zkembed.h, "How this interface may grow": the program's header may be older
 * or newer than the library, unless the program asks for something unknown. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipes/barrier.h"
#include "recipes/config.h"
#include "recipes/counter.h"
#include "recipes/double_barrier.h"
#include "recipes/election.h"
#include "recipes/fence.h"
#include "recipes/group.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/names.h"
#include "recipes/partition.h"
#include "recipes/periodic.h"
#include "recipes/persistent_node.h"
#include "recipes/queue.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "recipes/two_phase.h"
#include "test/test.h"

/* ---- each call that takes options ---- */

static const char *const items[] = {"a", "b"};
static const zke_multilock_item locks[] = {{"/locks/a", ZKE_MULTILOCK_LOCK}};

static int take_open(zke *z, const void *o) {
  zke *other;
  (void)z;
  int rc = zke_open(":memory:", o, &other);
  zke_close(other);
  return rc;
}

static int take_session(zke *z, const void *o) {
  zke *other;
  int rc = zke_open_session(z, o, &other);
  zke_close(other);
  return rc;
}

/* A function that makes an object NAME with options and releases it. */
#define TAKE(NAME, ...)                           \
  static int take_##NAME(zke *z, const void *o) { \
    zke_##NAME *made = NULL;                      \
    int rc = zke_##NAME##_new(z, __VA_ARGS__);    \
    zke_##NAME##_free(made);                      \
    return rc;                                    \
  }
TAKE(barrier, "/barrier", o, &made)
TAKE(config, "/config", o, &made)
TAKE(counter, "/counter", o, &made)
TAKE(double_barrier, "/double", 2, o, &made)
TAKE(election, "/election", o, &made)
TAKE(observer, "/r", o, &made)
TAKE(group, "/group", o, &made)
TAKE(lock, "/lock", o, &made)
TAKE(multilock, locks, 1, o, &made)
TAKE(names, "/names", o, &made)
TAKE(partition, "/partition", items, 2, o, &made)
TAKE(periodic, "/jobs", "j", o, &made)
TAKE(persistent_node, "/node", "", 0, o, &made)
TAKE(queue, "/queue", o, &made)
TAKE(rwlock, "/rw", o, &made)
TAKE(semaphore, "/sem", o, &made)

static int take_queue_put(zke *z, const void *o) {
  zke_queue *queue;
  ck_ok(zke_queue_new(z, "/queue", NULL, &queue));
  int rc = zke_queue_put(queue, "x", 1, o, zke_now(z));
  zke_queue_free(queue);
  return rc;
}

/* Both functions of the two-phase commit that take its options. */
static int take_two_phase(zke *z, const void *o) {
  static int number;
  char first[16], second[16];
  zke_two_phase *begun, *joined;
  snprintf(first, sizeof first, "t%d", number++);
  snprintf(second, sizeof second, "t%d", number++);
  int rc = zke_two_phase_begin(z, "/tx", first, "", 0, items, 1, o, &begun);
  zke_two_phase_free(begun);
  if (rc != ZKE_OK) return rc;
  ck_ok(zke_two_phase_begin(z, "/tx", second, "", 0, items, 1, NULL, &begun));
  rc = zke_two_phase_open(z, "/tx", second, "a", o, &joined);
  zke_two_phase_free(joined);
  zke_two_phase_free(begun);
  return rc;
}

/* A tree in memory has no tables to fence; that is found after the options were
 * checked. */
static int take_fence(zke *z, const void *o) {
  int rc = zke_fence_set(z, "table", "/lock", o);
  return rc == ZKE_UNIMPLEMENTED ? ZKE_OK : rc;
}

static void fill_nothing(void *o) { (void)o; }
static void fill_period(void *o) {
  ((zke_periodic_options *)o)->period_ms = 1000;
}

/* least: the size of the struct in the oldest possible header.  check_interface
 * shows that the struct ends without padding. */
#define ROW(TYPE, TAKE) \
  { #TYPE, sizeof(TYPE), sizeof(size_t), TAKE, fill_nothing }
static const struct row {
  const char *name;
  size_t size, least;
  int (*take)(zke *z, const void *options);
  void (*fill)(void *options);
} rows[] = {
    ROW(zke_options, take_open),
    ROW(zke_options, take_session),
    ROW(zke_barrier_options, take_barrier),
    ROW(zke_config_options, take_config),
    ROW(zke_counter_options, take_counter),
    ROW(zke_double_barrier_options, take_double_barrier),
    ROW(zke_election_options, take_election),
    ROW(zke_fence_options, take_fence),
    ROW(zke_group_options, take_group),
    ROW(zke_lock_options, take_lock),
    ROW(zke_multilock_options, take_multilock),
    ROW(zke_names_options, take_names),
    ROW(zke_observer_options, take_observer),
    ROW(zke_partition_options, take_partition),
    {"zke_periodic_options", sizeof(zke_periodic_options),
     offsetof(zke_periodic_options, period_ms) + sizeof(int64_t), take_periodic,
     fill_period},
    ROW(zke_persistent_node_options, take_persistent_node),
    ROW(zke_queue_options, take_queue),
    ROW(zke_queue_put_options, take_queue_put),
    ROW(zke_rwlock_options, take_rwlock),
    ROW(zke_semaphore_options, take_semaphore),
    ROW(zke_two_phase_options, take_two_phase),
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* The call's result for options that occupy `room` bytes, claim to have `size`
 * bytes, and are zero except for the byte at one_at (0: none). */
static int give(const struct row *r, zke *z, size_t room, size_t size,
                size_t one_at) {
  unsigned char *o = malloc(room);
  memset(o, 0, room);
  memcpy(o, &size, sizeof size);
  r->fill(o);
  if (one_at) o[one_at] = 1;
  int rc = r->take(z, o);
  free(o);
  return rc;
}

/* zkembed.h: any version's size is accepted, and nothing after it is read. */
TEST_LOOP(older_and_newer_options_are_taken, 0, ROWS) {
  const struct row *r = &rows[_i];
  zke *z = test_open(":memory:");
  ck_ok(r->fill == fill_nothing ? r->take(z, NULL) : ZKE_OK);
  for (size_t size = r->least; size <= r->size; size += sizeof size)
    ck_ok(give(r, z, size, size, 0));
  ck_ok(give(r, z, r->size + sizeof(size_t), r->size + sizeof(size_t), 0));
  ck_ok(give(r, z, 4096, 4096, 0));
  ck_ok(zke_close(z));
}

/* zkembed.h: a newer header may ask for what this library lacks: the call is
 * refused with a sentence that says why; so is a size that was not set. */
TEST_LOOP(unknown_options_are_refused, 0, ROWS) {
  const struct row *r = &rows[_i];
  zke *z = test_open(":memory:");
  const size_t newer = r->size + 64;
  const size_t at[] = {r->size, r->size + 17, newer - 1};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    ck_rc(give(r, z, newer, newer, at[i]), ZKE_BADARGUMENTS);
    ck_says(r->name);
    ck_says("older than the header");
  }
  const size_t no_version[] = {0,    1,    sizeof(size_t) - 1, r->size + 1,
                               4097, 4104, (size_t)-8};
  for (size_t i = 0; i < sizeof no_version / sizeof *no_version; i++) {
    ck_rc(give(r, z, newer, no_version[i], 0), ZKE_BADARGUMENTS);
    ck_says(r->name);
    ck_says("ZKE_INIT");
  }
  ck_ok(zke_close(z));
}

/* ---- the table of system calls ---- */

static int64_t still(void *context, int which) {
  (void)which;
  return *(const int64_t *)context;
}

/* zkembed.h, zke_os: members that the caller's header lacks or that are NULL
 * are the library's own; all others are used. */
TEST(older_table_is_filled_up) {
  const size_t sizes[] = {sizeof(zke_os), offsetof(zke_os, lock_range),
                          offsetof(zke_os, random), sizeof(zke_os) + 64};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    zke *z;
    int64_t now = 77 * INT64_C(1000000000);
    zke_os *os = calloc(1, sizes[i]);
    os->size = sizes[i];
    os->context = &now;
    os->clock = still;
    zke_options o = {.size = sizeof o, .os = os};
    ck_ok(zke_open(test_path(i ? "a.db" : "b.db"), &o, &z));
    free(os); /* copied */
    ck_assert_int_eq(zke_now(z), 77000);
    ck_ok(zke_create(z, "/a", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
    ck_ok(zke_close(z));
  }
}

/* zkembed.h, zke_os: a system call that the library does not know is refused,
 * by both functions that open. */
TEST(newer_table_is_refused) {
  struct {
    zke_os os;
    int (*more[2])(void);
  } newer = {.more = {NULL, NULL}};
  zke *z = test_open(":memory:"), *other = z;
  zke_options o = {.size = sizeof o, .os = &newer.os};
  newer.os.size = sizeof newer;
  ck_ok(zke_open(":memory:", &o, &other));
  ck_ok(zke_close(other));
  newer.more[1] = (int (*)(void))zke_version_number;
  ck_rc(zke_open(":memory:", &o, &other), ZKE_BADARGUMENTS);
  ck_says("zke_os");
  ck_says("older than the header");
  ck_assert_ptr_null(other);
  ck_rc(zke_open_session(z, &o, &other), ZKE_BADARGUMENTS);
  ck_ok(zke_close(z));
}

/* zkembed.h, zke_os_fill: no more is written than the caller's header has. */
TEST(fill_keeps_to_the_size) {
  zke_os own, os = {.size = offsetof(zke_os, pid), .clock = still};
  zke_os_default(&own);
  ck_assert_uint_eq(own.size, sizeof own);
  zke_os_fill(&os);
  ck_assert(os.clock == still);
  ck_assert(os.open == own.open && os.boot_id == own.boot_id);
  ck_assert(os.pid == NULL && os.find_lock == NULL);
}

/* ---- structs with reserved room ---- */

/* zkembed.h: reserved members of an operation must be zero, in both calls;
 * otherwise nothing is done. */
TEST(reserved_members_are_zero) {
  zke *z = test_open(":memory:");
  for (int i = 0; i < 3; i++) {
    zke_op_result results[2];
    zke_op ops[2];
    zke_op_create(&ops[0], "/a", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
    zke_op_check(&ops[1], "/", -1);
    zke_op *late = &ops[1];
    if (i < 2)
      late->reserved[i] = INT64_C(1) << 40;
    else
      late->reserved_int = 1;
    memset(results, 0x55, sizeof results);
    ck_rc(zke_multi(z, ops, 2, results), ZKE_BADARGUMENTS);
    ck_says("operation 1");
    ck_says("reserved");
    ck_assert_int_eq(results[0].rc, 0x55555555);
    ck_rc(zke_exists(z, "/a", NULL, NULL, NULL), ZKE_NONODE);
    ops[0] = *late;
    ops[0].type = ZKE_OP_GET;
    ck_rc(zke_multi_read(z, ops, 1, results), ZKE_BADARGUMENTS);
    ck_says("operation 0");
  }
  ck_ok(zke_close(z));
}

/* zkembed.h: the library sets reserved members to zero in its results. */
TEST(reserved_members_come_as_zero) {
  static const int64_t zeros[4];
  zke *z = test_open(":memory:");
  zke_op op;
  zke_op_result result;
  zke_session_list *sessions;
  zke_watch_list *watches;
  zke_os os;
  zke_file file;
  zke_op_get(&op, "/");
  memset(&result, 0x55, sizeof result);
  ck_ok(zke_multi_read(z, &op, 1, &result));
  ck_assert_mem_eq(result.reserved, zeros, sizeof zeros);
  zke_results_clear(&result, 1);
  ck_rc(zke_exists(z, "/a", test_ignore, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_sessions(z, -1, &sessions));
  ck_ok(zke_watches(z, &watches));
  ck_assert_int_eq(watches->count, 1);
  ck_assert_mem_eq(sessions->data[0].reserved, zeros,
                   sizeof sessions->data[0].reserved);
  ck_assert_mem_eq(watches->data[0].reserved, zeros, sizeof zeros);
  zke_free(sessions);
  zke_free(watches);
  zke_os_default(&os);
  memset(&file, 0x55, sizeof file);
  ck_assert_int_eq(os.stat(NULL, "/", &file), 0);
  ck_assert_mem_eq(file.reserved, zeros, sizeof zeros);
  ck_ok(zke_close(z));
}
