/* test_limits.c - rare cases
 *
 * Arguments at their limits, files of the wrong type, systems that refuse; and
 * moments: between a check and the gate, between a watch and its notice,
 * between two calls of one dispatch.  For such a moment a table of system calls
 * does something just before a call.
 */
#include "test/seam.h"
#include "test/engine/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the table ---- */

enum { GATE = 0 }; /* its byte in the liveness file */

static struct {
  void (*at_gate)(void);    /* done once, before the gate is locked */
  void (*after_gate)(void); /* … after it was unlocked */
  void (*asleep)(void);     /* … before it sleeps in the kernel */
  atomic_int busy_gates;    /* how many times the gate is busy; */
  int gate_error;           /* … then this happens; 0: nothing */
  int live_error;           /* of opening the liveness file */
  int directory_error;      /* of opening the side directory */
  bool no_fstat;            /* fstat of a FIFO fails */
} sys;

static void sys_do(void (**what)(void)) {
  void (*now)(void) = *what;
  *what = NULL; /* its own calls are not interrupted */
  if (now) now();
}

/* At the gate, let another handle act, or let the lock be busy or fail. */
static void before_lock(seam_call *c) {
  if (c->at != GATE || c->how != ZKE_LOCK_EXCLUSIVE) return;
  sys_do(&sys.at_gate);
  if (sys.busy_gates > 0) {
    sys.busy_gates--;
    seam_refuse(c, -EAGAIN);
  } else if (sys.gate_error) {
    seam_refuse(c, -sys.gate_error);
  }
}

static void after_lock(seam_call *c) {
  if (c->at == GATE && c->how == ZKE_LOCK_NONE) sys_do(&sys.after_gate);
}

static bool sys_is(const char *path, const char *end) {
  size_t n = strlen(path), m = strlen(end);
  return n >= m && strcmp(path + n - m, end) == 0;
}

static void before_open(seam_call *c) {
  if (sys.live_error && sys_is(c->path, "/live"))
    seam_refuse(c, c->how & O_CREAT ? -EEXIST : -sys.live_error);
  if (sys.directory_error && (c->how & O_DIRECTORY))
    seam_refuse(c, -sys.directory_error);
}

static void after_fstat(seam_call *c) {
  if (sys.no_fstat && c->out->type == ZKE_FILE_FIFO) c->result = -EIO;
}

static void before_poll(seam_call *c) {
  if (c->time) sys_do(&sys.asleep);
}

static seam host = {
    .before = {[SEAM_lock_range] = before_lock,
               [SEAM_open] = before_open,
               [SEAM_poll] = before_poll},
    .after = {[SEAM_lock_range] = after_lock, [SEAM_fstat] = after_fstat},
    .fail = {
        [SEAM_pwrite] = {.result = -EIO}, [SEAM_poller] = {.result = -ENOSYS}}};

/* Options with the table, to be changed before they are used. */
static zke_options *sys_options(void) {
  static zke_options options;
  options = (zke_options){.size = sizeof options, .os = seam_os(&host)};
  return &options;
}

static zke *sys_handle(const char *name) {
  zke *z = NULL;
  ck_ok(zke_open(name, sys_options(), &z));
  return z;
}

/* ---- small things ---- */

enum { STAY = 100000 }; /* ms until containers and TTL nodes are due */

static void make_ttl(zke *z, const char *path) {
  ck_ok(zke_create_ttl(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                       STAY, NULL, NULL));
}

static void put(const char *path) {
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_eq(fclose(f), 0);
}

/* The name of a session's FIFO next to a database of this test. */
static const char *fifo_of(const char *db, const zke *z) {
  static char path[PATH_MAX];
  snprintf(path, sizeof path, "%s-zke/%016llx", db,
           (unsigned long long)zke_session_id((zke *)(uintptr_t)z));
  return path;
}

static void refused(const char *name, const zke_options *options, int rc,
                    const char *why) {
  zke *z = (zke *)&z;
  ck_rc(zke_open(name, options, &z), rc);
  ck_assert_ptr_null(z);
  ck_says(why);
}

/* ---- arguments ---- */

/* zkembed.h: the linked library has the header's version. */
TEST(version_is_the_headers) {
  ck_assert_str_eq(zke_version(), ZKE_VERSION);
  ck_assert_int_eq(zke_version_number(), ZKE_VERSION_NUMBER);
}

static const struct {
  const char *says;
  zke_options o;
} bad_options[] = {
    {"size", {.size = 0}},
    {"size", {.size = sizeof(size_t) - 1}},
#define BAD(text, ...)                                 \
  {                                                    \
    text, { .size = sizeof(zke_options), __VA_ARGS__ } \
  }
    BAD("options.data_limit is -1, not 0 to 2147483647", .data_limit = -1),
    BAD("options.cache_kib is -1", .cache_kib = -1),
    BAD("options.event_limit is -1", .event_limit = -1),
    BAD("options.notice_limit is -1", .notice_limit = -1),
    BAD("options.read_limit is -1", .read_limit = -1),
    BAD("options.busy_timeout_ms is -2, not -1 to", .busy_timeout_ms = -2),
    BAD("options.lease_ms is -1", .lease_ms = -1),
    BAD("options.timeout_ms is -1", .timeout_ms = -1),
    BAD("a session has one of them", .timeout_ms = 1, .lease_ms = 1),
    BAD("options.container_ms is -2", .container_ms = -2),
    BAD("options.lease_ms", .lease_ms = INT64_MAX / 1000000 + 1),
    BAD("options.busy_timeout_ms", .busy_timeout_ms = INT64_MAX / 1000000 + 1),
    BAD("options.durability is -1", .durability = ZKE_DURABLE_BY_KIND - 1),
    BAD("options.durability is 3", .durability = ZKE_DURABLE_NONE + 1),
    BAD("options.flags has 0x40000000", .flags = 1u << 30),
    BAD("os", .os = &(const zke_os){.size = 1}),
    BAD("it does not begin with /", .chroot = "no/slash"),
    BAD("malformed chroot /slash/: it ends with /", .chroot = "/slash/"),
};
enum { BAD_OPTIONS = sizeof bad_options / sizeof bad_options[0] };

/* zkembed.h, zke_options: each is refused, by both functions that open. */
TEST_LOOP(bad_option_is_refused, 0, BAD_OPTIONS) {
  zke *z = test_open(":memory:"), *further = (zke *)&z;
  refused(":memory:", &bad_options[_i].o, ZKE_BADARGUMENTS,
          bad_options[_i].says);
  ck_rc(zke_open_session(z, &bad_options[_i].o, &further), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(further);
}

/* zkembed.h: with ZKE_AT_ONCE a change does not wait, and a read is not
 * affected; afterwards everything works. */
TEST(at_once_does_not_wait) {
  zke *z = open_as(test_path("a.db"), .busy_timeout_ms = ZKE_AT_ONCE,
                   .os = seam_os(&host));
  sqlite3 *db = plain_open(test_path("a.db"));
  must(db, "BEGIN IMMEDIATE");
  host.calls[SEAM_sleep] = 0;
  ck_rc(create(z, "/a", ZKE_PERSISTENT), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_eq(host.calls[SEAM_sleep], 0);
  ck_rc(see(z, "/a"), ZKE_NONODE);
  must(db, "ROLLBACK");
  make(z, "/a");
}

/* zkembed.h: a container is removed by the first sweep after it was emptied. */
TEST(container_goes_at_once) {
  zke *z = open_as(test_path("a.db"), .container_ms = ZKE_AT_ONCE);
  make_as(z, "/c", ZKE_CONTAINER);
  make(z, "/c/a");
  ck_ok(zke_delete(z, "/c/a", -1));
  ck_until((zke_wait(z, zke_now(z) + 50), see(z, "/c") == ZKE_NONODE), 20000);
}

/* zkembed.h, ZKE_CANTOPEN: the sentence names the limit, even if the path is
 * longer than the sentence; a path of exactly that length is fine. */
TEST(path_has_a_limit) {
  char name[1100];
  size_t len = strlen(test_path("")), most = 504;
  snprintf(name, sizeof name, "%s", test_path(""));
  while (name[len - 1] == '/') len--;
  while (len + 202 < most) { /* a name has at most 255 bytes */
    name[len++] = '/';
    memset(name + len, 'd', 200);
    len += 200;
    name[len] = '\0';
    ck_assert_int_eq(mkdir(name, 0700), 0);
  }
  size_t directory = len;
  name[len++] = '/';
  memset(name + len, 'f', sizeof name - len);
  name[most] = '\0';
  zke *z = test_open(name);
  ck_ok(zke_close(z));
  name[most] = 'f';
  for (size_t end = most + 1; end <= most + 20 && end <= directory + 255;
       end++) {
    name[end] = '\0';
    ck_rc(zke_open(name, NULL, &z), ZKE_CANTOPEN);
    ck_says("longer than the 504 bytes");
    name[end] = 'f';
  }
}

/* The greatest times count as times to come. */
TEST(greatest_times_are_fine) {
  zke_options o = {.size = sizeof o,
                   .busy_timeout_ms = INT64_MAX / 1000000,
                   .lease_ms = INT64_MAX / 1000000,
                   .container_ms = INT64_MAX,
                   .chroot = ""};
  zke *z = NULL, *other = NULL;
  const char *db = test_path("a.db");
  ck_ok(zke_open(db, &o, &z));
  make(z, "/n");
  make_as(z, "/c", ZKE_CONTAINER);
  make_as(z, "/c/x", ZKE_EPHEMERAL);
  ck_ok(zke_delete(z, "/c/x", -1));
  ck_ok(zke_open(db, &o, &other));
  ck_ok(zke_dispatch(z, NULL));
  ck_ok(zke_dispatch(other, NULL));
  ck_ok(see(other, "/c"));
}

static zke *some; /* the handle of the calls below */

static int no_keepalive(void) { return zke_keepalive_fd(some, NULL); }
static int no_fd(void) { return zke_fd(some, NULL); }
static int no_deadline(void) { return zke_next_deadline(some, NULL); }
static int no_sessions(void) { return zke_sessions(some, -1, NULL); }
static int no_watches(void) { return zke_watches(some, NULL); }
static int no_session(void) { return zke_open_session(some, NULL, NULL); }
static int no_add(void) { return zke_add_watch(some, "/", 0, NULL, NULL); }
static int no_name(void) { return zke_open("", NULL, &(zke *){NULL}); }
static int when_low(void) { return zke_test_fail(some, -1, 0); }
static int when_high(void) {
  return zke_test_fail(some, ZKE_TEST_FAIL_READ + 1, 0);
}
static int skip_low(void) {
  return zke_test_fail(some, ZKE_TEST_FAIL_BEFORE, -1);
}
static int no_cert(void) { return zke_add_auth(some, "digest", NULL, 1); }
static int low_cert(void) { return zke_add_auth(some, "digest", "u:p", -1); }
static int memory_readonly(void) {
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_READONLY};
  return zke_open(":memory:", &o, &(zke *){NULL});
}

static int (*const bad_calls[])(void) = {
    no_keepalive, no_fd,   no_deadline, no_sessions,    no_watches,
    no_session,   no_add,  no_name,     when_low,       when_high,
    skip_low,     no_cert, low_cert,    memory_readonly};
enum { BAD_CALLS = sizeof bad_calls / sizeof bad_calls[0] };

/* zkembed.h: an argument that may not be NULL or out of range gets a sentence;
 * the handle still works. */
TEST_LOOP(bad_argument_is_refused, 0, BAD_CALLS) {
  some = test_open(":memory:");
  ck_rc(bad_calls[_i](), ZKE_BADARGUMENTS);
  ck_assert_int_gt(strlen(zke_errmsg()), 0);
  make(some, "/n");
}

/* 12 #41 and similar: no certificate is the identity of the empty one, and,
 * given twice, still one. */
TEST(empty_certificate_is_an_identity) {
  zke *z = test_open(":memory:"), *stranger = test_session(z, NULL);
  ck_ok(zke_add_auth(z, "digest", NULL, 0));
  ck_ok(zke_add_auth(z, "digest", "", 0));
  ck_ok(zke_create(z, "/n", "", 0, ZKE_CREATOR_ALL_ACL, 0, NULL, NULL));
  ck_rc(change(stranger, "/n"), ZKE_NOAUTH);
  ck_ok(change(z, "/n"));
}

/* semantics.md 8: entries of scheme auth need no id; equal ones count once. */
TEST(entries_without_id_are_repeated) {
  const zke_acl data[] = {{ZKE_PERM_READ, "auth", NULL},
                          {ZKE_PERM_READ, "auth", NULL},
                          {ZKE_PERM_READ, "auth", ""},
                          {ZKE_PERM_WRITE, "auth", NULL}};
  zke_acls *got = NULL;
  zke *z = test_open(":memory:");
  ck_ok(zke_add_auth(z, "digest", "u:p", 3));
  ck_ok(zke_create(z, "/n", "", 0, &(zke_acls){4, data}, 0, NULL, NULL));
  ck_ok(zke_get_acl(z, "/n", &got, NULL));
  ck_assert_int_eq(got->count, 2);
  ck_assert_int_eq(got->data[0].perms, ZKE_PERM_READ);
  ck_assert_int_eq(got->data[1].perms, ZKE_PERM_WRITE);
  zke_free(got);
}

/* semantics.md 8: an identity is the whole id: neither a part of it nor a
 * longer one grants anything. */
TEST(part_of_an_id_opens_nothing) {
  const char *right = "u:PykoYIm2RC4wJUHoU2aXpBMUW0I=";
  zke_acl e = {ZKE_PERM_ALL, "digest", right};
  zke_acls *got = NULL;
  zke *z = test_open(":memory:");
  ck_ok(zke_add_auth(z, "digest", "u:pw", 4));
  ck_ok(zke_create(z, "/mine", "", 0, ZKE_CREATOR_ALL_ACL, 0, NULL, NULL));
  ck_ok(zke_get_acl(z, "/mine", &got, NULL));
  char longer[64], shorter[64];
  snprintf(longer, sizeof longer, "%sx", got->data[0].id);
  snprintf(shorter, sizeof shorter, "%.*s", (int)strlen(got->data[0].id) - 1,
           got->data[0].id);
  const char *const ids[] = {longer, shorter};
  for (int i = 0; i < 2; i++) {
    const char *path = i ? "/shorter" : "/longer";
    e.id = ids[i];
    ck_ok(zke_create(z, path, "", 0, &(zke_acls){1, &e}, 0, NULL, NULL));
    ck_rc(change(z, path), ZKE_NOAUTH);
  }
  ck_ok(change(z, "/mine"));
  zke_free(got);
}

/* ---- names and files ---- */

/* P11: a path that is neither a file nor a directory. */
TEST(special_file_is_refused) {
  const char *path = test_path("fifo");
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  refused(path, NULL, ZKE_CANTOPEN, "special");
}

/* P11: opened read-only, an empty file is no database, and stays empty. */
TEST(empty_file_is_nothing_to_read) {
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_READONLY};
  const char *path = test_path("a.db");
  struct stat st;
  put(path);
  refused(path, &o, ZKE_NOTADB, path);
  ck_assert_int_eq(stat(path, &st), 0);
  ck_assert_int_eq(st.st_size, 0);
}

/* P11: a VFS that is not registered, for names of all kinds. */
TEST(unknown_vfs_is_refused) {
  zke_options o = {.size = sizeof o, .vfs = "no-such-vfs"};
  ck_assert_int_eq(chdir(test_path(".")), 0);
  refused(test_path("a.db"), &o, ZKE_CANTOPEN, "no-such-vfs");
  refused("a.db", &o, ZKE_CANTOPEN, "no-such-vfs");
  refused("/no-such-file.db", &o, ZKE_CANTOPEN, "no-such-vfs");
  refused("/no-such-directory/a.db", &o, ZKE_CANTOPEN, "its directory");
}

/* P11: a host that has removed SQLite's default VFS. */
TEST(missing_vfs_is_refused) {
  for (sqlite3_vfs *v; (v = sqlite3_vfs_find(NULL)) != NULL;)
    ck_assert_int_eq(sqlite3_vfs_unregister(v), SQLITE_OK);
  refused(test_path("a.db"), NULL, ZKE_CANTOPEN, "(default)");
}

/* P11: a host that has enabled URIs, and a URI that names no file. */
TEST(uri_of_memory_is_refused) {
  ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_URI, 1), SQLITE_OK);
  ck_assert_int_eq(chdir(test_path(".")), 0);
  refused("file:a.db?mode=memory", NULL, ZKE_CANTOPEN, "file:a.db");
  ck_assert_int_ne(access("a.db", F_OK), 0);
}

static void name_as_given(seam_call *c) {
  snprintf(c->data, c->size, "%s", c->path);
  seam_refuse(c, SQLITE_OK);
}

/* A VFS may use the name that the host gives: the file is in the process's
 * directory, and that directory is synced. */
TEST(vfs_with_relative_names) {
  static seam relative = {.vfs = "relative",
                          .before = {[SEAM_xFullPathname] = name_as_given}};
  ck_assert_int_eq(chdir(test_path(".")), 0);
  zke *z = open_as("a.db", .vfs = seam_vfs(&relative));
  make(z, "/n");
  ck_assert_int_eq(access(test_path("a.db-zke/live"), F_OK), 0);
  ck_ok(zke_close(z));
  z = test_open(test_path("a.db"));
  ck_ok(see(z, "/n"));
}

/* A database in the root directory; only root can make one. */
TEST(database_in_the_root_directory) {
  int outside = open("/", O_RDONLY | O_DIRECTORY);
  ck_assert_int_ge(outside, 0);
  if (chroot(test_path(".")) != 0) {
    puts("database_in_the_root_directory: skipped, needs root");
    return;
  }
  ck_assert_int_eq(chdir("/"), 0);
  zke *z = test_open("/a.db");
  make(z, "/n");
  ck_ok(see(z, "/n"));
  ck_ok(zke_close(z));
  ck_assert_int_eq(access("/a.db", F_OK), 0);
  ck_assert_int_eq(fchdir(outside), 0); /* and out again, to clean up */
  ck_assert_int_eq(chroot("."), 0);
}

/* P11: a file, or a link, in place of the side directory. */
TEST_LOOP(side_directory_must_be_one, 0, 3) {
  const char *db = test_path("a.db"), *side = test_path("a.db-zke");
  if (_i == 0) {
    put(side);
  } else if (_i == 1) {
    ck_assert_int_eq(symlink(".", side), 0);
  } else {
    sys.directory_error = ELOOP; /* as other systems call it */
  }
  refused(db, sys_options(), ZKE_CANTOPEN, "not a directory");
}

static const struct {
  int error, rc;
} mkdir_errors[] = {{EACCES, ZKE_READONLY},   {EPERM, ZKE_READONLY},
                    {EROFS, ZKE_READONLY},    {ENOSPC, ZKE_FULL},
                    {EDQUOT, ZKE_FULL},       {ENOMEM, ZKE_NOMEM},
                    {EMLINK, ZKE_SYSTEMERROR}};
enum { MKDIR_ERRORS = sizeof mkdir_errors / sizeof mkdir_errors[0] };

/* zkembed.h: which result reports which failure of the system. */
TEST_LOOP(system_errors_have_their_results, 0, MKDIR_ERRORS) {
  host.fail[SEAM_mkdir] =
      (seam_fault){-mkdir_errors[_i].error, .times = SEAM_ALWAYS};
  refused(test_path("a.db"), sys_options(), mkdir_errors[_i].rc, "a.db-zke");
}

/* P11: something else in place of the liveness file. */
TEST(liveness_file_must_be_one) {
  ck_assert_int_eq(mkdir(test_path("a.db-zke"), 0700), 0);
  ck_assert_int_eq(mkfifo(test_path("a.db-zke/live"), 0600), 0);
  refused(test_path("a.db"), NULL, ZKE_CANTOPEN, "is not a file");
}

/* The liveness file is missing at each open and exists at each creation: the
 * loop ends. */
TEST(liveness_file_that_comes_and_goes) {
  sys.live_error = ENOENT;
  refused(test_path("a.db"), sys_options(), ZKE_SYSTEMERROR, "live");
}

/* P5: a further session whose life would be in another file than those of the
 * store's other sessions is refused. */
TEST(further_session_with_another_live_file) {
  const char *db = test_path("a.db"), *live = test_path("a.db-zke/live");
  zke *z = sys_handle(db), *further = NULL;
  ck_assert_int_eq(unlink(live), 0);
  put(live);
  ck_rc(zke_open_session(z, NULL, &further), ZKE_REPLACED);
  ck_assert_ptr_null(further);
  seam_pass(2000); /* now it has been noticed */
  ck_rc(see(z, "/"), ZKE_REPLACED);
  ck_rc(zke_open_session(z, NULL, &further), ZKE_REPLACED);
  ck_assert_ptr_null(further);
  zke_close(z);
}

/* A handle whose authentication failed, and whose file is gone, closes and
 * writes nothing. */
TEST(closing_after_refusal_and_replacement) {
  const char *db = test_path("a.db");
  zke *z = sys_handle(db), *other = test_session(z, NULL);
  ck_rc(zke_add_auth(z, "no-such-scheme", "x", 1), ZKE_AUTHFAILED);
  ck_assert_int_eq(unlink(db), 0);
  seam_pass(2000);
  ck_ok(zke_dispatch(other, NULL)); /* it notices, and reports the end */
  ck_rc(see(other, "/"), ZKE_REPLACED);
  ck_ok(zke_close(z));
  zke_close(other);
  ck_assert_int_ne(access(db, F_OK), 0);
}

static char *string_copy(const char *text) {
  char *copy = strdup(text);
  ck_assert_ptr_nonnull(copy);
  return copy;
}

/* P10: a session's FIFO is removed with it even if its end could not be
 * written; but not if the FIFO cannot be identified as the session's. */
TEST_LOOP(fifo_of_an_unwritten_end, 0, 2) {
  const char *db = test_path("a.db");
  zke *z = sys_handle(db);
  char *fifo = string_copy(fifo_of(db, z));
  ck_assert_int_eq(access(fifo, F_OK), 0);
  sys.gate_error = EIO;
  sys.no_fstat = _i;
  ck_rc(zke_close(z), ZKE_SYSTEMERROR);
  ck_says("cannot lock");
  ck_assert_int_eq(access(fifo, F_OK), _i ? 0 : -1);
  free(fifo);
}

/* ---- read-only ---- */

static zke *read_only(const char *db) {
  zke *z = NULL;
  zke_options *o = sys_options();
  o->flags = ZKE_OPEN_READONLY;
  ck_ok(zke_open(db, o, &z));
  return z;
}

/* A read-only handle notices dead sessions, but sweeps none. */
TEST(readonly_handle_sweeps_nothing) {
  const char *db = test_path("a.db");
  test_worker w = test_spawn("hold", db, "/e", NULL);
  ck_assert_int_eq(strncmp(test_line(&w), "ready ", 6), 0);
  zke *z = read_only(db);
  test_kill(&w, SIGKILL);
  for (int i = 0; i < 3; i++) {
    seam_pass(5000);
    ck_ok(see(z, "/e"));
  }
  ck_assert_int_eq(unlink(db), 0);
  seam_pass(5000);
  ck_rc(see(z, "/e"), ZKE_REPLACED);
}

/* 12 #43: an unknown scheme ends a read-only handle too. */
TEST(readonly_handle_with_an_unknown_scheme) {
  const char *db = test_path("a.db");
  test_open(db);
  zke *r = read_only(db);
  ck_ok(zke_add_auth(r, "digest", "u:p", 3));
  ck_rc(zke_add_auth(r, "no-such-scheme", "", 0), ZKE_AUTHFAILED);
  ck_rc(see(r, "/"), ZKE_INVALIDSTATE);
}

/* ---- moments ---- */

static zke *z1, *z2; /* the handle that sweeps, and one that comes between */

static void begin_two(void) {
  zke_options *o = sys_options();
  const char *db = test_path("a.db");
  o->container_ms = STAY;
  ck_ok(zke_open(db, o, &z1));
  ck_ok(zke_open(db, o, &z2));
}

static void end_two(void) {
  ck_ok(zke_check(z1, NULL, NULL));
  ck_ok(zke_close(z2));
  ck_ok(zke_close(z1));
}

static void plant_container(void) {
  make_as(z2, "/c", ZKE_CONTAINER);
  make(z2, "/c/x");
  ck_ok(zke_delete(z2, "/c/x", -1));
}

static void plant_ttl(void) { make_ttl(z2, "/c"); }

static void replace_by_container(void) {
  ck_ok(zke_delete(z2, "/c", -1));
  make_as(z2, "/c", ZKE_CONTAINER);
}

static void replace_by_plain(void) {
  ck_ok(zke_delete(z2, "/c", -1));
  make(z2, "/c");
}

static void use_container(void) {
  make(z2, "/c/x");
  ck_ok(zke_delete(z2, "/c/x", -1));
}

static void use_ttl(void) { ck_ok(change(z2, "/c")); }

static const struct {
  void (*plant)(void), (*between)(void);
} reprieves[] = {{plant_container, replace_by_container},
                 {plant_container, replace_by_plain},
                 {plant_container, use_container},
                 {plant_ttl, use_ttl},
                 {plant_ttl, replace_by_plain}};
enum { REPRIEVES = sizeof reprieves / sizeof reprieves[0] };

/* P10, semantics.md 9: a node that was due when the sweep checked, and is not
 * when the sweep has the gate, stays.  The clocks stand still, so that the
 * handle that comes between does not sweep too. */
TEST_LOOP(node_no_longer_due_stays, 0, REPRIEVES) {
  seam_stand();
  begin_two();
  reprieves[_i].plant();
  seam_pass(3 * STAY);
  sys.at_gate = reprieves[_i].between;
  ck_ok(see(z1, "/c"));
  ck_assert(sys.at_gate == NULL); /* the sweep has reached the gate */
  ck_ok(see(z1, "/c"));
  seam_pass(STAY / 2);
  ck_ok(see(z1, "/c"));
  end_two();
}

static void renew(void) { ck_ok(see(z2, "/")); }

/* P5: a lease that is renewed in that moment does not end either. */
TEST(lease_renewed_at_the_gate) {
  const char *db = test_path("a.db");
  seam_stand();
  z1 = sys_handle(db);
  zke_options *o = sys_options();
  o->lease_ms = 1000;
  ck_ok(zke_open(db, o, &z2));
  make_as(z2, "/e", ZKE_EPHEMERAL);
  seam_pass(5000);
  sys.at_gate = renew;
  ck_ok(see(z1, "/e"));
  ck_assert(sys.at_gate == NULL);
  ck_ok(see(z1, "/e"));
  ck_ok(see(z2, "/e"));
  end_two();
}

/* P5: a stamp that could not be written is written by the next call, and the
 * call itself succeeds. */
TEST(stamp_is_tried_again) {
  const char *db = test_path("a.db");
  z1 = sys_handle(db);
  zke_options *o = sys_options();
  o->lease_ms = 10000;
  ck_ok(zke_open(db, o, &z2));
  make_as(z2, "/e", ZKE_EPHEMERAL);
  seam_pass(6000);
  seam_fail(&host, SEAM_pwrite, true);
  ck_ok(see(z2, "/e"));
  seam_fail(&host, SEAM_pwrite, false);
  ck_ok(see(z2, "/e"));
  seam_pass(6000); /* 12 s after the first stamp, 6 s after the second */
  ck_ok(see(z1, "/e"));
  end_two();
}

static void owner_closes(void) { ck_ok(zke_close(z2)); }

/* P6: the owner ends after the watch was written and before its notice is made:
 * the event still arrives. */
TEST(owner_ends_just_after_the_watch) {
  test_events seen = {0};
  begin_two();
  make_as(z2, "/e", ZKE_EPHEMERAL);
  sys.after_gate = owner_closes;
  ck_ok(zke_exists(z1, "/e", test_record, &seen, NULL));
  ck_assert(sys.after_gate == NULL);
  test_expect_within(z1, &seen, "DELETED /e", 10000);
  ck_rc(see(z1, "/e"), ZKE_NONODE);
}

/* zkembed.h: a system that runs out of locks, which is found late. */
TEST(gate_that_fails_while_waited_for) {
  z1 = sys_handle(test_path("a.db"));
  sys.busy_gates = 100;
  sys.gate_error = EIO;
  ck_rc(change(z1, "/"), ZKE_SYSTEMERROR);
  ck_says("cannot lock");
  sys.gate_error = 0;
  ck_ok(change(z1, "/"));
}

/* ---- threads ---- */

static sem_t inside, leave;
static atomic_int result;

static void stop_here(void) {
  sem_post(&inside);
  sem_wait(&leave);
}

static void *change_root(void *z) {
  atomic_store(&result, change(z, "/"));
  return NULL;
}

/* P9: a caller waits for another thread's call for busy_timeout_ms, and no
 * longer. */
TEST(thread_waits_its_time_for_another) {
  zke_options *o = sys_options();
  sem_init(&inside, 0, 0);
  sem_init(&leave, 0, 0);
  o->busy_timeout_ms = 50;
  ck_ok(zke_open(test_path("a.db"), o, &z1));
  sys.at_gate = stop_here;
  pthread_t thread = begin_thread(change_root, z1);
  sem_wait(&inside);
  int64_t began = test_now();
  ck_rc(see(z1, "/"), ZKE_OPERATIONTIMEOUT);
  ck_says("another thread");
  ck_assert_int_ge(test_now() - began, 49);
  sem_post(&leave);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_rc(atomic_load(&result), ZKE_OK);
  ck_ok(see(z1, "/"));
}

static void *close_it(void *z) {
  atomic_store(&result, zke_close(z));
  return NULL;
}

/* zkembed.h, zke_close: a call that waits for the gate gives up. */
TEST(close_ends_a_wait_for_the_gate) {
  zke_options *o = sys_options();
  o->busy_timeout_ms = 20000;
  ck_ok(zke_open(test_path("a.db"), o, &z1));
  make(z1, "/n");
  sys.busy_gates = INT_MAX;
  pthread_t thread = begin_thread(change_root, z1);
  ck_until(sys.busy_gates < INT_MAX - 100, 5000);
  pthread_t closer = begin_thread(close_it, z1);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  ck_rc(atomic_load(&result), ZKE_CLOSING);
  sys.busy_gates = 0;
  ck_assert_int_eq(pthread_join(closer, NULL), 0);
  ck_rc(atomic_load(&result), ZKE_OK);
}

static int called;
static pthread_t closing;

static void close_here(void) {
  closing = begin_thread(close_it, z1);
  ck_until(zke_wake(z1) == ZKE_CLOSING, 5000);
}

/* zkembed.h, zke_close: a compaction is also stopped, and the database is as
 * before. */
TEST(close_ends_a_compaction) {
  const char *db = test_path("a.db");
  z1 = sys_handle(db);
  make(z1, "/n");
  sys.at_gate = close_here;
  ck_rc(zke_compact(z1, ZKE_FOREVER), ZKE_CLOSING);
  ck_says("is being closed");
  ck_assert_int_eq(pthread_join(closing, NULL), 0);
  ck_rc(atomic_load(&result), ZKE_OK);
  z2 = test_open(db);
  ck_ok(see(z2, "/n"));
}

/* The first of two calls: begin to close, and continue once that has begun. */
static void close_meanwhile(zke *z, int type, int state, const char *path,
                            void *context) {
  (void)type, (void)state, (void)path, (void)context;
  called++;
  closing = begin_thread(close_it, z);
  ck_until(zke_state(z) == ZKE_STATE_CLOSED, 5000);
  ck_rc(zke_sync(z, "/"), ZKE_CLOSING);
  ck_rc(zke_discard(z, "/e", ZKE_EPHEMERAL, 0), ZKE_CLOSING);
  ck_says("is being closed");
}

/* zkembed.h, zke_close: watchers that were not called yet are not called. */
TEST_LOOP(close_stops_the_calls, 0, 2) {
  z1 = sys_handle(_i ? test_path("a.db") : ":memory:");
  make(z1, "/n");
  ck_ok(zke_get(z1, "/n", close_meanwhile, NULL, NULL, NULL, NULL));
  ck_ok(zke_get(z1, "/n", count_call, &called, NULL, NULL, NULL));
  ck_ok(change(z1, "/n"));
  int rc = zke_wait(z1, zke_now(z1) + 5000);
  ck_assert_msg(rc == ZKE_OK || rc == ZKE_CLOSING, "wait: %d", rc);
  ck_assert_int_eq(pthread_join(closing, NULL), 0);
  ck_rc(atomic_load(&result), ZKE_OK);
  ck_assert_int_eq(called, 1);
}

/* The same for a light session that its carrier's dispatch serves; the carrier
 * continues. */
TEST_LOOP(close_stops_the_calls_of_a_light_session, 0, 2) {
  zke *carrier = sys_handle(_i ? test_path("a.db") : ":memory:");
  z1 = session_as(carrier, .flags = ZKE_OPEN_LIGHT);
  make(carrier, "/n");
  make(carrier, "/later");
  ck_ok(zke_get(z1, "/n", close_meanwhile, NULL, NULL, NULL, NULL));
  ck_ok(zke_get(z1, "/later", count_call, &called, NULL, NULL, NULL));
  ck_ok(change(carrier, "/n"));
  ck_ok(change(carrier, "/later"));
  ck_ok(zke_dispatch(carrier, NULL));
  ck_assert_int_eq(pthread_join(closing, NULL), 0);
  ck_rc(atomic_load(&result), ZKE_OK);
  ck_assert_int_eq(called, 1);
  ck_ok(change(carrier, "/n"));
}

static zke *closed_twice;
static atomic_int synced;

static void *sync_it(void *z) {
  atomic_store(&synced, zke_sync(z, "/"));
  return NULL;
}

static int sync_elsewhere(zke *z) {
  pthread_t thread = begin_thread(sync_it, z);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  return atomic_load(&synced);
}

/* This thread is inside a call: a caller that comes before the first close has
 * begun waits for it, until it times out; one that comes later does not. */
static void close_twice(void) {
  closing = begin_thread(close_it, closed_twice);
  ck_until(sync_elsewhere(closed_twice) == ZKE_CLOSING, 20000);
  pthread_t second = begin_thread(close_it, closed_twice);
  ck_assert_int_eq(pthread_join(second, NULL), 0);
  ck_rc(atomic_load(&result), ZKE_CLOSING);
}

/* zkembed.h, zke_close: of two threads one closes; and a wait that has found
 * nothing when the handle is being closed ends. */
TEST(close_ends_a_wait_that_sweeps) {
  const char *db = test_path("a.db");
  zke_options *o = sys_options();
  o->busy_timeout_ms = 200;
  ck_ok(zke_open(db, o, &z1));
  z2 = sys_handle(db);
  make_ttl(z2, "/c");
  seam_pass(3 * STAY);
  closed_twice = z1;
  sys.at_gate = close_twice; /* z1's sweep is inside zke_wait() */
  ck_rc(zke_wait(z1, zke_now(z1) + 20000), ZKE_CLOSING);
  ck_assert_int_eq(pthread_join(closing, NULL), 0);
  ck_rc(atomic_load(&result), ZKE_OK);
}

/* ---- events ---- */

/* The handle's own session ends in a callback: queued events are void, and
 * every pair is told of the end. */
static void expire_here(zke *z, int type, int state, const char *path,
                        void *context) {
  test_record(z, type, state, path, context);
  if (type == ZKE_EVENT_CHANGED) ck_ok(zke_expire(z, zke_session_id(z)));
}

/* P5: a session that ends in its own callback gets its end as the next event,
 * and none of the collected ones. */
TEST_LOOP(expiry_in_a_callback_voids_the_rest, 0, 2) {
  test_events seen = {0};
  z1 = test_open(_i ? test_path("a.db") : ":memory:");
  make(z1, "/n");
  ck_ok(zke_add_watch(z1, "/n", ZKE_WATCH_PERSISTENT, expire_here, &seen));
  for (int i = 0; i < 5; i++) ck_ok(change(z1, "/n"));
  test_expect(z1, &seen, "CHANGED /n; SESSION -112");
  ck_rc(zke_dispatch(z1, NULL), ZKE_INVALIDSTATE);
  ck_assert_int_eq(seen.count, 0);
}

/* 12 #61: the call that finds the session ended returns that; a multi has its
 * own code for it, as in ZooKeeper's client. */
TEST_LOOP(call_that_finds_the_expiry, 0, 2) {
  zke_op op;
  zke_op_result answer = {.rc = 77};
  begin_two();
  ck_ok(zke_expire(z2, zke_session_id(z1)));
  seam_pass(2000);
  zke_op_get(&op, "/");
  if (_i == 0)
    ck_rc(see(z1, "/"), ZKE_SESSIONEXPIRED);
  else
    ck_rc(zke_multi_read(z1, &op, 1, &answer), ZKE_MARSHALLINGERROR);
  ck_assert_int_eq(answer.rc, 77);
  ck_rc(see(z1, "/"), ZKE_INVALIDSTATE);
}

/* Slightly fewer events than one dispatch reads: it reads them all. */
TEST(nearly_too_many_for_one_dispatch) {
  int count = 0;
  z1 = test_open(":memory:");
  make(z1, "/n");
  ck_ok(zke_add_watch(z1, "/n", ZKE_WATCH_PERSISTENT, count_call, &called));
  for (int i = 0; i < 15 * 64 + 10; i++) ck_ok(change(z1, "/n"));
  ck_ok(zke_dispatch(z1, &count));
  ck_assert_int_eq(count, 15 * 64 + 10);
  ck_assert_int_eq(called, count);
}

/* P3: two paths with the same hash (FNV-1a, 64 bits) are two paths. */
TEST_LOOP(paths_of_one_hash_are_two, 0, 2) {
  static const char *const path[] = {"/jynRMQSL-A9", "/fRO5elyjMp0"};
  test_events seen[2] = {{0}, {0}};
  z1 = test_open(":memory:");
  for (int i = 0; i < 2; i++) {
    make(z1, path[i]);
    ck_ok(zke_get(z1, path[i], test_record, &seen[i], NULL, NULL, NULL));
  }
  ck_ok(change(z1, path[_i]));
  test_expect(z1, &seen[_i],
              _i ? "CHANGED /fRO5elyjMp0" : "CHANGED /jynRMQSL-A9");
  ck_assert_int_eq(seen[!_i].count, 0);
  ck_rc(zke_remove_watch(z1, path[_i], ZKE_WATCH_ANY, NULL, NULL),
        ZKE_NOWATCHER);
  ck_ok(zke_remove_watch(z1, path[!_i], ZKE_WATCH_ANY, NULL, NULL));
}

/* ---- many owners ---- */

enum { OWNERS = 10 };

static test_worker owners[OWNERS];

static const char *node_of(int i) {
  static char path[32];
  snprintf(path, sizeof path, "/e%d", i);
  return path;
}

/* Wait for one event, in a poll loop of the host, or in zke_wait(). */
static void expect_death(zke *z, test_events *seen, int owner, bool loop) {
  char expected[64];
  int64_t end = test_now() + test_patience(10000);
  snprintf(expected, sizeof expected, "DELETED %s", node_of(owner));
  while (!seen->count && test_now() < end) {
    struct pollfd p = {.events = POLLIN};
    int64_t deadline = 0;
    if (loop) {
      ck_ok(zke_fd(z, &p.fd));
      deadline = deadline_of(z);
      ck_assert_int_le(deadline, zke_now(z) + 1000);
      poll(&p, 1, (int)(deadline > zke_now(z) ? deadline - zke_now(z) : 0));
      ck_ok(zke_dispatch(z, NULL));
    } else {
      zke_wait(z, zke_now(z) + 1000);
    }
  }
  test_expect(z, seen, expected);
}

static int dying;
static test_heap heap;

static void kill_one(void) { test_kill(&owners[dying], SIGKILL); }

/* P6: without memory for all notices, the sweep finds the deaths. */
static void sleep_without_memory(zke *z) {
  heap.fail_at = heap.calls + 1;
  heap.fail_all = 1;
  ck_rc(zke_wait(z, zke_now(z) + 30), ZKE_OPERATIONTIMEOUT);
  heap.fail_at = 0;
}

/* P6: one session waits for many owners, one of whose FIFOs was removed, and is
 * told of each death; with epoll and without, in a wait and in a loop of the
 * host. */
TEST_LOOP(many_owners_die, 0, 4) {
  const char *db = test_path("a.db");
  test_events seen = {0}, more = {0};
  zke_options *o = sys_options();
  o->allocator = (zke_allocator){test_heap_resize, &heap};
  seam_fail(&host, SEAM_poller, _i & 1);
  ck_ok(zke_open(db, o, &z1));
  for (int i = 0; i < OWNERS; i++) {
    char id[32], fifo[PATH_MAX];
    owners[i] = test_spawn("hold", db, node_of(i), NULL);
    ck_assert_int_eq(sscanf(test_line(&owners[i]), "ready %31s", id), 1);
    snprintf(fifo, sizeof fifo, "%s-zke/%016llx", db, strtoull(id, NULL, 0));
    if (i == 3) ck_assert_int_eq(unlink(fifo), 0);
    ck_ok(zke_exists(z1, node_of(i), test_record, &seen, NULL));
  }
  ck_ok(zke_get(z1, "/e5", test_record, &more, NULL, NULL, NULL));
  if (!(_i & 2)) sleep_without_memory(z1);
  static const int order[OWNERS] = {9, 3, 0, 5, 4, 8, 1, 2, 7, 6};
  for (int i = 0; i < OWNERS; i++) {
    dying = order[i];
    if (_i & 2)
      kill_one();
    else
      sys.asleep = kill_one;
    expect_death(z1, &seen, dying, _i & 2);
    ck_assert_int_eq(more.count, i >= 3);
  }
  ck_ok(zke_close(z1));
}

/* ---- damage ---- */

/* A table of nodes without constraints: names that are NULL cause no crash, and
 * zke_check() reports them. */
static void count_null(void *context, const char *sentence) {
  if (strstr(sentence, "I15") && strstr(sentence, "(null)")) ++*(int *)context;
}

/* P11: rows that our tables would not allow do not crash a read; zke_check()
 * finds them. */
TEST(nodes_without_names) {
  const char *db = test_path("a.db");
  int found = 0;
  zke_strings *paths = NULL;
  ck_ok(zke_close(test_open(db)));
  sql_on(db,
         "DROP VIEW zke_nodes;DROP VIEW zke_sessions;DROP VIEW zke_tokens;DROP "
         "VIEW zke_waiters;"
         "CREATE TABLE other AS SELECT * FROM zkembed_node;DROP TABLE "
         "zkembed_node;"
         "ALTER TABLE other RENAME TO zkembed_node;");
  z1 = test_open(db);
  sql_on(
      db,
      "INSERT INTO zkembed_node(nchild,owner,kind,len,acl)SELECT 0,id,0,0,'x'"
      "FROM zkembed_session");
  ck_ok(zke_ephemerals(z1, 0, NULL, &paths));
  ck_assert_int_eq(paths->count, 1);
  ck_assert_str_eq(paths->data[0], "/");
  zke_free(paths);
  ck_rc(zke_check(z1, count_null, &found), ZKE_DATAINCONSISTENCY);
  ck_assert_int_eq(found, 1);
  zke_close(z1);
}

/* An impossible time to live never expires. */
TEST(negative_ttl_is_never_over) {
  damaged = true;
  begin_two();
  make_ttl(z2, "/c");
  sql_on(test_path("a.db"),
         "UPDATE zkembed_node SET ttl=-5,due=1 WHERE name='c'");
  seam_pass(5000);
  ck_ok(see(z1, "/c"));
  ck_ok(see(z1, "/c"));
  ck_rc(zke_check(z1, NULL, NULL), ZKE_DATAINCONSISTENCY);
}

static void no_log(void *context, int level, const char *text) {
  if (level == ZKE_LOG_ERROR && strstr(text, "zxids")) ++*(int *)context;
}

/* If no zxids are left, the sweep removes nothing, and says so. */
TEST(sweep_without_zxids) {
  const char *db = test_path("a.db");
  int errors = 0;
  zke_options *o = sys_options();
  o->log = no_log;
  o->log_context = &errors;
  ck_ok(zke_open(db, o, &z1));
  make_ttl(z1, "/c");
  sql_on(db, "UPDATE zkembed_meta SET zxid=9223372036854775807");
  seam_pass(3 * STAY);
  ck_ok(see(z1, "/c"));
  ck_assert_int_eq(errors, 1);
  ck_ok(see(z1, "/c"));
  zke_close(z1);
}

/* semantics.md 2.3: counters of two parents overflow separately. */
TEST(two_parents_overflow) {
  static const char *const expected[] = {"/a/x2147483647", "/bc/x2147483647",
                                         "/a/x-2147483648", "/bc/x-2147483648"};
  const char *db = test_path("a.db");
  zke_op ops[4];
  zke_op_result results[4];
  z1 = test_open(db);
  make(z1, "/a");
  make(z1, "/bc");
  sql_on(db, "UPDATE zkembed_node SET creates=2147483647 WHERE parent='/'");
  for (int i = 0; i < 4; i++) {
    zke_op_create(&ops[i], i % 2 ? "/bc/x" : "/a/x", "", 0, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT_SEQUENTIAL);
  }
  ck_ok(zke_multi(z1, ops, 4, results));
  for (int i = 0; i < 4; i++) ck_assert_str_eq(results[i].path, expected[i]);
  zke_results_clear(results, 4);
  zke_close(z1);
}
