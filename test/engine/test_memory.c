/* test_memory.c - ":memory:": a private tree that leaves nothing behind */
#include "test/seam.h"
#include "test/engine/calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static test_heap heap; /* the allocator of every handle of a test */

/* A store in memory with counted blocks. */
static zke *open_counted(void) {
  zke_options options = {
      .size = sizeof options,
      .allocator = {.resize = test_heap_resize, .context = &heap}};
  zke *z = NULL;
  ck_ok(zke_open(":memory:", &options, &z));
  return z;
}

/* Continue in an empty directory. */
static void enter_directory(void) {
  ck_assert_int_eq(chdir(test_path(".")), 0);
}

/* Entries of the current directory. */
static int count_files(void) {
  int count = 0;
  DIR *d = opendir(".");
  ck_assert_ptr_nonnull(d);
  for (struct dirent *e; (e = readdir(d)) != NULL;)
    count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
  closedir(d);
  return count;
}

/* Something of everything that a session can hold. */
static void be_busy(zke *z, test_events *events) {
  ck_ok(zke_add_auth(z, "digest", "u:p", 3));
  make(z, "/busy");
  make_as(z, "/busy/e-", ZKE_EPHEMERAL_SEQUENTIAL);
  ck_ok(zke_get(z, "/busy", test_record, events, NULL, NULL, NULL));
  ck_ok(zke_children(z, "/busy", test_record, events, NULL, NULL));
  ck_ok(zke_add_watch(z, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      events));
  ck_ok(zke_set_watcher(z, test_record, events));
  ck_ok(change(z, "/busy"));
}

static void clean_up(zke *z) {
  zke_strings *names = NULL;
  ck_ok(zke_children(z, "/busy", NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    char path[64];
    snprintf(path, sizeof path, "/busy/%s", names->data[i]);
    ck_ok(zke_delete(z, path, -1));
  }
  zke_free(names);
  ck_ok(zke_delete(z, "/busy", -1));
}

/* Issue, "In memory": a thousand stores leave no block, no descriptor and no
 * file. */
TEST(stores_leave_nothing) {
  static test_events events;
  enter_directory();
  int fds = test_fd_count();
  for (int i = 0; i < 1000; i++) {
    zke *z = open_counted();
    if (i % 10 == 0) be_busy(z, &events);
    ck_ok(zke_close(z));
    ck_assert_int_eq(heap.live, 0);
  }
  ck_assert_int_gt(heap.calls, 0);
  ck_assert_int_eq(test_fd_count(), fds);
  ck_assert_int_eq(count_files(), 0);
}

/* One more session on z, used and closed; sometimes a busy one. */
static void come_and_go(zke *z, int i) {
  static test_events events;
  zke *further = test_session(z, NULL);
  if (i % 10 == 0) {
    be_busy(further, &events);
    clean_up(further);
  }
  ck_ok(zke_close(further));
}

/* The same for a thousand sessions of one store. */
TEST(sessions_leave_nothing) {
  enter_directory();
  zke *z = open_counted();
  come_and_go(z, 0);
  int fds = test_fd_count();
  long live = heap.live;
  for (int i = 0; i < 1000; i++) {
    come_and_go(z, i);
    ck_assert_int_eq(test_fd_count(), fds);
    ck_assert_int_le(heap.live, live);
  }
  ck_assert_int_eq(test_session_count(z), 1);
  ck_ok(zke_close(z));
  ck_assert_int_eq(heap.live, 0);
  ck_assert_int_eq(count_files(), 0);
}

/* An expired session leaves nothing either. */
TEST(expired_sessions_leave_nothing) {
  static test_events events;
  zke *z = open_counted();
  int fds = test_fd_count();
  zke *further = test_session(z, NULL);
  be_busy(further, &events);
  ck_ok(zke_expire(z, zke_session_id(further)));
  ck_ok(zke_close(further));
  ck_assert_int_eq(test_fd_count(), fds);
  ck_ok(zke_close(z));
  ck_assert_int_eq(heap.live, 0);
}

/* Many sessions at the same time see one tree, and each gets its events. */
TEST(many_sessions_share_the_tree) {
  enum { MANY = 100 };
  static test_events events[MANY];
  zke *z[MANY];
  int fds = test_fd_count();
  z[0] = open_counted();
  make(z[0], "/n");
  for (int i = 1; i < MANY; i++) z[i] = test_session(z[i / 2], NULL);
  for (int i = 0; i < MANY; i++)
    ck_ok(zke_get(z[i], "/n", test_record, &events[i], NULL, NULL, NULL));
  ck_ok(change(z[MANY - 1], "/n"));
  for (int i = 0; i < MANY; i++) test_expect(z[i], &events[i], "CHANGED /n");
  for (int i = 0; i < MANY; i++) ck_ok(zke_close(z[i]));
  ck_assert_int_eq(test_fd_count(), fds);
  ck_assert_int_eq(heap.live, 0);
}

/* Two stores are two trees, and a tree ends with its last session. */
TEST(stores_are_private) {
  zke *one = test_open(":memory:");
  zke *two = test_open(":memory:");
  make(one, "/n");
  ck_rc(see(two, "/n"), ZKE_NONODE);
  zke *further = test_session(one, NULL);
  ck_ok(zke_close(one));
  ck_ok(see(further, "/n"));
  ck_ok(zke_close(further));
  one = test_open(":memory:");
  ck_rc(see(one, "/n"), ZKE_NONODE);
}

/* zkembed.h, "Ownership": the results of a call stay valid after
 * zke_close(). */
TEST(results_outlive_the_handle) {
  zke *z = open_counted();
  char *path = NULL, *data = NULL;
  zke_strings *names = NULL;
  zke_acls *acls = NULL;
  zke_session_list *sessions = NULL;
  ck_ok(zke_create(z, "/n-", "data", 4, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   &path, NULL));
  ck_ok(zke_get(z, path, NULL, NULL, &data, NULL, NULL));
  ck_ok(zke_children(z, "/", NULL, NULL, &names, NULL));
  ck_ok(zke_get_acl(z, path, &acls, NULL));
  ck_ok(zke_sessions(z, -1, &sessions));
  ck_ok(zke_close(z));
  ck_assert_str_eq(path, "/n-0000000000");
  ck_assert_str_eq(data, "data");
  ck_assert_int_eq(names->count, 2);
  ck_assert_str_eq(names->data[0], "n-0000000000");
  ck_assert_str_eq(acls->data[0].scheme, "world");
  ck_assert_int_eq(sessions->count, 1);
  zke_free(path);
  zke_free(data);
  zke_free(names);
  zke_free(acls);
  zke_free(sessions);
  ck_assert_int_eq(heap.live, 0);
}

/* zkembed.h, zke_call_at: the pair's first call allocates, later ones do not;
 * if memory for the call runs out, the time stays set. */
TEST(a_time_needs_memory_once) {
  static test_events events, others[100];
  zke *z = open_counted();
  heap.fail_at = heap.calls + 1;
  ck_rc(zke_call_at(z, 0, test_record, &events), ZKE_NOMEM);
  ck_ok(zke_call_at(z, ZKE_FOREVER, test_record, &events));
  for (int i = 0; i < 100; i++)
    ck_ok(zke_call_at(z, ZKE_FOREVER, test_record, &others[i]));
  for (int i = 0; i < 2; i++) {
    heap.fail_at = heap.calls + 1;
    heap.fail_all = 1;
    ck_ok(zke_call_at(z, 0, test_record, &events));
    heap.fail_all = 0;
    heap.fail_at = heap.calls + 1 + i;
    ck_rc(zke_dispatch(z, NULL), ZKE_NOMEM);
    heap.fail_at = 0;
    test_expect(z, &events, "ALARM");
  }
  ck_ok(zke_call_at(z, 0, test_record, &others[7]));
  ck_ok(zke_close(z));
  ck_assert_int_eq(others[7].count, 0);
  ck_assert_int_eq(heap.live, 0);
}

/* The same for a multi's results. */
TEST(multi_results_outlive_the_handle) {
  zke *z = open_counted();
  zke_op ops[2];
  zke_op_result made[2] = {{0}}, read[2] = {{0}};
  zke_op_create(&ops[0], "/n", "data", 4, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  zke_op_create(&ops[1], "/n/c", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  ck_ok(zke_multi(z, ops, 2, made));
  zke_op_get(&ops[0], "/n");
  zke_op_children(&ops[1], "/n", NULL, 0);
  ck_ok(zke_multi_read(z, ops, 2, read));
  ck_ok(zke_close(z));
  ck_assert_str_eq(made[1].path, "/n/c");
  ck_assert_str_eq(read[0].data, "data");
  ck_assert_str_eq(read[1].children->data[0], "c");
  zke_results_clear(made, 2);
  zke_results_clear(read, 2);
  ck_assert_int_eq(heap.live, 0);
  ck_assert_ptr_null(made[1].path);
}

/* zkembed.h: inputs and options are copied before a call returns. */
TEST(inputs_are_copied) {
  char chroot[] = "/c", path[] = "/n", data[] = "data", scheme[] = "world";
  char id[] = "anyone";
  zke_acl entry = {ZKE_PERM_ALL, scheme, id};
  zke_acls acls = {1, &entry};
  zke_options options = {.size = sizeof options, .chroot = chroot};
  zke *z = open_counted(), *inside = NULL;
  make(z, "/c");
  ck_ok(zke_open_session(z, &options, &inside));
  memset(&options, 0x5a, sizeof options);
  chroot[1] = 'x';
  ck_ok(zke_create(inside, path, data, 4, &acls, ZKE_PERSISTENT, NULL, NULL));
  path[1] = data[0] = scheme[0] = id[0] = 'x';
  memset(&entry, 0x5a, sizeof entry);
  char *got = NULL;
  zke_acls *got_acls = NULL;
  ck_ok(zke_get(z, "/c/n", NULL, NULL, &got, NULL, NULL));
  ck_assert_str_eq(got, "data");
  ck_ok(zke_get_acl(z, "/c/n", &got_acls, NULL));
  ck_assert_str_eq(got_acls->data[0].id, "anyone");
  zke_free(got);
  zke_free(got_acls);
}

/* ---- no file ---- */

/* Calls that make, lock, sync or remove files. */
static const seam_kind file_kinds[] = {
    SEAM_mkdir, SEAM_mkfifo,     SEAM_mkfile, SEAM_unlink,
    SEAM_lock,  SEAM_lock_range, SEAM_fsync};
static int made; /* files that would have been made */

static void count_made(seam_call *c) { made += (c->how & O_CREAT) != 0; }

/* Issue, "In memory": no file is made, locked, synced or removed, not even for
 * a moment. */
TEST(no_file_is_touched) {
  static test_events events;
  static seam counted = {.before = {[SEAM_open] = count_made}};
  enter_directory();
  zke *z = open_as(":memory:", .os = seam_os(&counted));
  zke *further = test_session(z, NULL);
  be_busy(further, &events);
  ck_ok(zke_wait(further, ZKE_FOREVER));
  ck_ok(change(z, "/busy"));
  ck_assert_int_eq(count_files(), 0);
  ck_ok(zke_close(further));
  ck_ok(zke_close(z));
  ck_assert_int_eq(made, 0);
  for (size_t i = 0; i < sizeof file_kinds / sizeof *file_kinds; i++)
    ck_assert_int_eq(counted.calls[file_kinds[i]], 0);
  ck_assert_int_eq(count_files(), 0);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Opening takes a third of a millisecond: it makes no file and waits for no
 * lock.  The best of many counts, since the machine may be busy and slow, and
 * sanitizers and valgrind take their time. */
TEST(opening_is_quick) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < 100; i++) {
    int64_t start = now_ns();
    zke *z = test_open(":memory:");
    int64_t spent = now_ns() - start;
    if (spent < best) best = spent;
    ck_ok(zke_close(z));
  }
  bool slow = TEST_ADDRESS_SANITIZER || TEST_THREAD_SANITIZER ||
              getenv("RUNNER"); /* see run.sh */
  ck_assert_int_lt(best, slow ? 200000000 : 10000000);
}
