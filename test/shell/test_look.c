/* test_look.c - the commands that look at what several processes hold
 *
 * This program joins the lines through the recipes.  The command ($BUILD/zke)
 * looks at it from another process, or takes away what it holds.
 * test/shell/look.txt tests what a transcript can show.
 */
#include "test/test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"

static const char *file;
static zke *z;

static void open_store(const char *identity) {
  zke_options o = {.size = sizeof o, .identity = identity};
  file = test_path("app.db");
  ck_ok(zke_open(file, &o, &z));
}

/* The command's output, with standard error. */
static char printed[8192];

/* Run a shell's line, in which $zke is the command and its file; returns its
 * exit status. */
static int run(const char *line) {
  char whole[2048];
  snprintf(whole, sizeof whole, "zke='%s %s'; exec 2>&1; %s", test_zke(), file,
           line);
  FILE *in = popen(whole, "r");
  ck_assert_ptr_nonnull(in);
  size_t n = fread(printed, 1, sizeof printed - 1, in);
  printed[n] = '\0';
  int status = pclose(in);
  ck_assert_int_ne(status, -1);
  return test_status(status);
}

static void expect(const char *line, int status, const char *output) {
  int got = run(line);
  ck_assert_msg(got == status && strcmp(printed, output) == 0,
                "%s: %d, not %d:\n%s", line, got, status, printed);
}

/* The same for a part of the output. */
static void expect_part(const char *line, int status, const char *part) {
  int got = run(line);
  ck_assert_msg(got == status && strstr(printed, part) != NULL,
                "%s: %d, not %d, or without \"%s\":\n%s", line, got, status,
                part, printed);
}

static int64_t soon(void) { return zke_now(z) + test_patience(10000); }

/* ---- locks ---- */

/* `locks` shows a multi-lock at each of its locks; breaking one loses all. */
TEST(a_multilock_is_in_each_of_its_lines) {
  static const zke_multilock_item both[] = {{"/locks/a", ZKE_MULTILOCK_LOCK},
                                            {"/rwlocks/b", ZKE_MULTILOCK_READ}};
  zke_multilock *ml;
  open_store("both");
  ck_ok(zke_multilock_new(z, both, 2, NULL, &ml));
  ck_ok(zke_multilock_acquire(ml, soon()));
  expect("$zke locks --plain | cut -f 1-4,8,10", 0,
         "/locks/a\tlock\theld\t1\tboth\t\\N\n"
         "/rwlocks/b\trwlock\theld\t1\tboth\tread\n");
  expect_part("$zke steal /rwlocks/b", 65, "OTHERKIND");
  expect_part("$zke break a", 0, "broke /locks/a: both (pid");
  ck_rc(zke_multilock_check(ml), ZKE_LOST);
  zke_multilock_free(ml);
  ck_ok(zke_close(z));
}

/* Only the semaphore of that name knows how many permits go with one token. */
TEST(breaking_takes_all_permits_of_one_holder) {
  zke_semaphore_options o = {.size = sizeof o, .limit = 5};
  zke_semaphore *sem[2];
  char line[64];
  open_store("cruncher");
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_semaphore_new(z, "/semaphores/cpu", &o, &sem[i]));
    ck_ok(zke_semaphore_acquire(sem[i], 2, soon()));
  }
  snprintf(line, sizeof line, "$zke break --token %lld cpu >/dev/null",
           (long long)zke_semaphore_token(sem[0]));
  expect(line, 0, "");
  ck_rc(zke_semaphore_check(sem[0]), ZKE_LOST);
  ck_ok(zke_semaphore_check(sem[1]));
  expect("$zke locks --plain cpu | cut -f 3,11", 0, "held\t2\n");
  for (int i = 0; i < 2; i++) zke_semaphore_free(sem[i]);
  ck_ok(zke_close(z));
}

/* In another program's directory the entries tell what it is.  "/" is no line,
 * nor is a directory with such names by chance. */
TEST(a_strangers_directory_is_seen) {
#define GUID "_c_00000000-0000-0000-0000-00000000000"
  static const char *const nodes[] = {
      "/election/" GUID "1-latch-0000000000", "/" GUID "2-lock-0000000000",
      "/election/" GUID "3-member-0000000001", "/election/_c_"};
#undef GUID
  open_store("curator");
  ck_ok(zke_create(z, "/election", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  for (int i = 0; i < 4; i++)
    ck_ok(zke_create(z, nodes[i], "node-7", 6, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                     NULL, NULL));
  expect("$zke locks --plain | cut -f 1-3,8", 0,
         "/election\telection\theld\tcurator\n");
  expect("$zke waits; $zke deadlocks", 0, "");
  ck_ok(zke_close(z));
}

/* Names chosen by others do not move the cursor. */
TEST(names_cannot_play_with_the_terminal) {
  zke_lock_options o = {.size = sizeof o, .data = "\033[2Jx\ny", .len = 7};
  zke_lock *lock;
  open_store("evil\033[31m\n");
  ck_ok(zke_lock_new(z, "/locks/a", &o, &lock));
  ck_ok(zke_lock_acquire(lock, soon()));
  expect_part("$zke locks", 0, "evil\\x1b[31m\\n (pid");
  ck_assert_ptr_nonnull(strstr(printed, "\\x1b[2Jx\\ny"));
  expect_part("$zke sessions", 0, "evil\\x1b[31m\\n");
  expect("$zke locks | tr -d '[:print:]\\n'", 0, "");
  zke_lock_free(lock);
  ck_ok(zke_close(z));
}

/* ---- deadlocks ---- */

typedef struct waiter {
  pthread_t thread;
  zke_lock *own, *wanted;
  pthread_barrier_t *all;
  int rc;
} waiter;

/* A thread that takes one lock, waits until the other thread holds the other,
 * and then wants that one. */
static void *take_and_want(void *context) {
  waiter *w = context;
  ck_ok(zke_lock_acquire(w->own, soon()));
  pthread_barrier_wait(w->all);
  w->rc = zke_lock_acquire(w->wanted, ZKE_FOREVER);
  zke_lock_free(w->wanted);
  zke_lock_free(w->own);
  return NULL;
}

/* A lock that does not look for deadlocks, so that one can last. */
static zke_lock *unchecked(const char *path) {
  zke_lock_options o = {.size = sizeof o, .no_deadlock_check = 1};
  zke_lock *lock;
  ck_ok(zke_lock_new(z, path, &o, &lock));
  return lock;
}

/* `deadlocks` shows two threads that wait for each other; breaking one lock
 * lets both continue. */
TEST(a_deadlock_is_found_and_broken) {
  static const char *const path[] = {"/locks/a", "/locks/b"};
  waiter w[2];
  pthread_barrier_t all;
  open_store("app");
  pthread_barrier_init(&all, NULL, 2);
  expect("$zke deadlocks", 0, "");
  for (int i = 0; i < 2; i++) {
    w[i] = (waiter){.own = unchecked(path[i]),
                    .wanted = unchecked(path[1 - i]),
                    .all = &all};
    pthread_create(&w[i].thread, NULL, take_and_want, &w[i]);
  }
  ck_until(
      run("$zke deadlocks --plain | cut -f 1,3,7,11 | sort") == 0 && *printed,
      10000);
  ck_assert_str_eq(printed, "/locks/a\tapp\tapp\t1\n/locks/b\tapp\tapp\t1\n");
  expect_part("$zke deadlocks", 1, ", deadlock 1\n");
  expect_part("$zke break a", 0, "broke /locks/a");
  for (int i = 0; i < 2; i++) {
    pthread_join(w[i].thread, NULL);
    ck_ok(w[i].rc);
  }
  expect("$zke deadlocks", 0, "");
  pthread_barrier_destroy(&all);
  ck_ok(zke_close(z));
}

/* ---- revoke, steal ---- */

static void comply(zke_rwlock *rw, int event, int64_t token, void *context) {
  (void)token, (void)context;
  if (event == ZKE_RWLOCK_ASKED) zke_rwlock_release(rw);
}

static atomic_bool over;

/* A holder that reads the requests for release. */
static void *listen_on(void *unused) {
  (void)unused;
  while (!atomic_load(&over)) zke_wait(z, zke_now(z) + 20);
  return NULL;
}

/* `revoke` asks a reader, which releases and reports it. */
TEST(a_holder_that_is_asked_may_comply) {
  zke_rwlock_options o = {.size = sizeof o, .listener = comply};
  zke_rwlock *rw;
  pthread_t thread;
  open_store("reader");
  ck_ok(zke_rwlock_new(z, "/rwlocks/catalog", &o, &rw));
  ck_ok(zke_rwlock_acquire(rw, ZKE_RWLOCK_READ, soon()));
  pthread_create(&thread, NULL, listen_on, NULL);
  expect_part("$zke revoke --wait 10s catalog", 0,
              "revoked /rwlocks/catalog: reader (pid");
  ck_assert_int_eq(zke_rwlock_state(rw), ZKE_RWLOCK_OUT);
  atomic_store(&over, true);
  pthread_join(thread, NULL);
  zke_rwlock_free(rw);
  ck_ok(zke_close(z));
}

/* A signal ends the wait at once. */
TEST(revoke_can_be_interrupted) {
  zke_rwlock *rw;
  open_store("reader");
  ck_ok(zke_rwlock_new(z, "/rwlocks/catalog", NULL, &rw));
  ck_ok(zke_rwlock_acquire(rw, ZKE_RWLOCK_READ, soon()));
  expect_part(
      "$zke revoke catalog & "
      "until $zke sessions --plain | cut -f 2,8 | grep 'zke.[1-9]' "
      ">/dev/null; do sleep 0.01; done; kill $!; wait $!",
      143, "INTERRUPTED");
  ck_ok(zke_rwlock_check(rw));
  zke_rwlock_free(rw);
  ck_ok(zke_close(z));
}

/* `steal` killed by a signal leaves the lock free. */
TEST(a_stolen_lock_is_given_back_at_a_signal) {
  zke_lock *lock;
  open_store("owner");
  ck_ok(zke_lock_new(z, "/locks/a", NULL, &lock));
  ck_ok(zke_lock_acquire(lock, soon()));
  expect(
      "$zke steal a >/dev/null & "
      "until $zke locks a --plain | grep 'zke.[1-9]' >/dev/null; "
      "do sleep 0.01; done; kill $!; wait $! 2>/dev/null; s=$?; $zke locks; "
      "exit $s",
      143, "");
  ck_rc(zke_lock_check(lock), ZKE_LOST);
  zke_lock_free(lock);
  ck_ok(zke_close(z));
}

/* Paths are relative to the chroot; a read-only handle sees the locks but
 * breaks none. */
TEST(locks_below_a_chroot_are_seen_from_there) {
  zke_lock *lock;
  open_store("owner");
  ck_ok(zke_lock_new(z, "/app/locks/a", NULL, &lock));
  ck_ok(zke_lock_acquire(lock, soon()));
  expect("$zke --chroot /app locks a --plain | cut -f 1,8", 0,
         "/locks/a\towner\n");
  expect("$zke --readonly locks --plain | cut -f 1,8", 0,
         "/app/locks/a\towner\n");
  expect_part("$zke --readonly break /app/locks/a", 77, "READONLY");
  zke_lock_free(lock);
  ck_ok(zke_close(z));
}
