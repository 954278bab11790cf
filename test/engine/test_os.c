/* test_os.c - zkembed.c's system calls, when they fail
 *
 * The engine is included, and the names of some system calls, and of functions
 * by which SQLite describes itself, are replaced by functions below that fail
 * when told to.  The results of the default table of system calls are checked
 * by its functions, all else by the interface.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* Which call fails, how, and how often; -1 times: always. */
static struct {
  const char *call;
  int error, times;
  uid_t user;       /* what geteuid() returns, also 0 */
  uid_t given;      /* out: the new owner of a file, by fchown() */
  uint32_t network; /* the file system's type; 0: the real one */
} odd;

static bool odd_fails(const char *call) {
  if (!odd.call || strcmp(odd.call, call) != 0 || odd.times == 0) return false;
  if (odd.times > 0) odd.times--;
  errno = odd.error;
  return true;
}

static int odd_open(const char *path, int flags, mode_t mode) {
  return odd_fails("open") ? -1 : open(path, flags, mode);
}

static ssize_t odd_read(int fd, void *buffer, size_t size) {
  if (!odd_fails("read")) return read(fd, buffer, size);
  return odd.error ? -1 : read(fd, buffer, size / 2); /* 0: a short read */
}

static ssize_t odd_write(int fd, const void *buffer, size_t size) {
  return odd_fails("write") ? -1 : write(fd, buffer, size);
}

static ssize_t odd_pread(int fd, void *buffer, size_t size, off_t at) {
  return odd_fails("pread") ? -1 : pread(fd, buffer, size, at);
}

static ssize_t odd_pwrite(int fd, const void *buffer, size_t size, off_t at) {
  return odd_fails("pwrite") ? -1 : pwrite(fd, buffer, size, at);
}

static int odd_fstat(int fd, struct stat *out) {
  return odd_fails("fstat") ? -1 : fstat(fd, out);
}

#ifdef STATX_TYPE
static int odd_statx(int fd, const char *path, int flags, unsigned what,
                     struct statx *out) {
  return odd_fails("fstat") ? -1 : statx(fd, path, flags, what, out);
}
#endif

static int odd_fsync(int fd) { return odd_fails("fsync") ? -1 : fsync(fd); }

static int odd_fcntl(int fd, int what, ...) {
  va_list ap;
  va_start(ap, what);
  void *arg = va_arg(ap, void *);
  va_end(ap);
  return odd_fails("fcntl") ? -1 : fcntl(fd, what, arg);
}

static DIR *odd_opendir(const char *path) {
  return odd_fails("opendir") ? NULL : opendir(path);
}

static int odd_statfs(const char *path, struct statfs *out) {
  int rc = odd_fails("statfs") ? -1 : statfs(path, out);
  if (odd.network) out->f_type = odd.network;
  return rc;
}

static uid_t odd_geteuid(void) { return odd.user; }

static int odd_fchown(int fd, uid_t user, gid_t group) {
  (void)fd, (void)group;
  odd.given = user;
  return 0;
}

static int odd_atfork(void (*prepare)(void), void (*parent)(void),
                      void (*child)(void)) {
  return odd_fails("atfork") ? ENOMEM : pthread_atfork(prepare, parent, child);
}

static int odd_version(void) {
  return odd_fails("version") ? 3037001 : sqlite3_libversion_number();
}

static int odd_threads(void) {
  return odd_fails("threads") ? 0 : sqlite3_threadsafe();
}

#define open odd_open
#define read odd_read
#define write odd_write
#define pread odd_pread
#define pwrite odd_pwrite
#define fstat odd_fstat
#define statx(fd, path, flags, what, out) odd_statx(fd, path, flags, what, out)
#define fsync odd_fsync
#define fcntl odd_fcntl
#define opendir odd_opendir
#define statfs(path, out) odd_statfs(path, out)
#define geteuid odd_geteuid
#define fchown odd_fchown
#define pthread_atfork odd_atfork
#define sqlite3_libversion_number odd_version
#define sqlite3_threadsafe odd_threads
#include "zkembed.c"
#undef open
#undef read
#undef write
#undef pread
#undef pwrite
#undef fstat
#undef statx
#undef fsync
#undef fcntl
#undef opendir
#undef statfs
#undef geteuid
#undef fchown
#undef pthread_atfork
#undef sqlite3_libversion_number
#undef sqlite3_threadsafe

#include "test/engine/calls.h"

static void break_call(const char *call, int error, int times) {
  odd.call = call;
  odd.error = error;
  odd.times = times;
}

/* ---- the table ---- */

static int file_fd; /* of a file that holds "abc" */

static void no_entry(void *arg, const char *name) { (void)arg, (void)name; }

/* Make one call of the table, chosen by the name of the function below it. */
static int64_t use(const char *call) {
  static char bytes[8];
  zke_file f;
  const char *path = test_path("file");
  if (!strcmp(call, "open")) {
    int fd = os_open(NULL, path, O_RDWR | O_CREAT, 0600);
    return fd < 0 ? fd : 0;
  }
  if (!strcmp(call, "read")) return os_read(NULL, file_fd, bytes, 3) - 3;
  if (!strcmp(call, "write")) return os_write(NULL, file_fd, "abc", 3) - 3;
  if (!strcmp(call, "pread")) return os_pread(NULL, file_fd, bytes, 3, 0) - 3;
  if (!strcmp(call, "pwrite")) return os_pwrite(NULL, file_fd, "abc", 3, 0) - 3;
  if (!strcmp(call, "fstat")) return os_fstat(NULL, file_fd, &f);
  if (!strcmp(call, "fsync")) return os_fsync(NULL, file_fd);
  if (!strcmp(call, "fcntl")) return os_lock(NULL, file_fd, 0, 1);
  if (!strcmp(call, "opendir"))
    return os_list(NULL, test_path("."), no_entry, NULL);
  return os_network(NULL, test_path("."));
}

static const struct {
  const char *call;
  bool repeated; /* after a signal */
  int less;      /* what use() subtracts from a count */
} calls[] = {{"open", true, 0},  {"read", true, 3},   {"write", true, 3},
             {"pread", true, 3}, {"pwrite", true, 3}, {"fstat", false, 0},
             {"fsync", true, 0}, {"fcntl", true, 0},  {"opendir", false, 0},
             {"statfs", true, 0}};
enum { CALLS = sizeof calls / sizeof calls[0] };

static void begin_table(void) {
  file_fd = os_open(NULL, test_path("file"), O_RDWR | O_CREAT, 0600);
  ck_assert_int_ge(file_fd, 0);
  ck_assert_int_eq(pwrite(file_fd, "abc", 3, 0), 3);
}

/* Without statx(), or in a sandbox that forbids it, fstat() is used. */
TEST_LOOP(file_is_known_without_statx, 0, 2) {
  zke_file with, without;
  begin_table();
  ck_assert_int_eq(os_fstat(NULL, file_fd, &with), 0);
#ifdef STATX_TYPE
  break_call("fstat", _i ? EPERM : ENOSYS, 1);
#endif
  ck_assert_int_eq(os_fstat(NULL, file_fd, &without), 0);
  ck_assert_uint_eq(with.device, without.device);
  ck_assert_uint_eq(with.inode, without.inode);
  ck_assert_int_eq(with.size, without.size);
  ck_assert_uint_eq(with.mode, without.mode);
  ck_assert_int_eq(with.type, without.type);
  ck_assert_uint_eq(with.links, 1);
  ck_assert_uint_eq(without.links, 1);
  ck_assert_int_eq(os_fstat(NULL, -1, &with), -EBADF);
}

/* zkembed.h, zke_os: a failure is -errno. */
TEST_LOOP(error_is_negative, 0, CALLS) {
  begin_table();
  ck_assert_int_eq(use(calls[_i].call), 0);
  ck_assert_int_eq(lseek(file_fd, 0, SEEK_SET), 0);
  break_call(calls[_i].call, EIO, 1);
  ck_assert_int_eq(use(calls[_i].call), -EIO - calls[_i].less);
  ck_assert_int_eq(odd.times, 0);
}

/* P9: the host's signals, also without SA_RESTART, interrupt nothing. */
TEST_LOOP(signals_interrupt_nothing, 0, CALLS) {
  if (!calls[_i].repeated) return;
  begin_table();
  break_call(calls[_i].call, EINTR, 3);
  ck_assert_int_eq(use(calls[_i].call), 0);
  ck_assert_int_eq(odd.times, 0);
}

/* POSIX lets F_SETLK return EACCES if a byte is locked. */
TEST(locked_has_two_names) {
  begin_table();
  break_call("fcntl", EACCES, 1);
  ck_assert_int_eq(use("fcntl"), -EAGAIN);
  break_call("fcntl", EIO, 1);
  ck_assert_int_eq(os_probe(NULL, file_fd, 0), -EIO);
}

/* P9: a pipe without a reader: an error, and no signal. */
TEST(broken_pipe_is_an_error) {
  int fds[2];
  ck_assert_int_eq(os_pipe(NULL, fds), 0);
  ck_assert_int_eq(os_close(NULL, fds[0]), 0);
  ck_assert_int_eq(os_write(NULL, fds[1], "x", 1), -EPIPE);
  ck_assert_int_eq(os_close(NULL, fds[1]), 0);
  ck_assert_int_eq(os_close(NULL, fds[1]), -EBADF);
}

/* P11: a network file system is recognized by its number. */
TEST(network_is_known_by_its_number) {
  static const uint32_t types[] = {0x6969, 0xff534d42, 0x01021997, 0x19830326};
  ck_assert_int_eq(os_network(NULL, test_path(".")), 0);
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    odd.network = types[i];
    ck_assert_int_eq(os_network(NULL, test_path(".")), 1);
  }
  odd.network = 0xef53; /* ext4 */
  ck_assert_int_eq(os_network(NULL, test_path(".")), 0);
}

/* Only root changes a file's owner; other users just set the mode. */
TEST(owner_is_given_by_root_only) {
  struct stat st;
  begin_table();
  odd.user = 0;
  ck_assert_int_eq(os_adopt(NULL, file_fd, 0640, 123, 456), 0);
  ck_assert_uint_eq(odd.given, 123);
  odd.user = 1000;
  ck_assert_int_eq(os_adopt(NULL, file_fd, 0604, 123, 456), 0);
  ck_assert_uint_eq(odd.given, (uid_t)-1);
  ck_assert_int_eq(fstat(file_fd, &st), 0);
  ck_assert_uint_eq(st.st_mode & 0777u, 0604);
}

/* Kernel files that are missing or cannot be read. */
TEST(kernel_without_files) {
  char text[64];
  ck_assert_int_eq(os_random(NULL, text, sizeof text), 0);
  ck_assert_int_eq(os_boot_id(NULL, text, sizeof text), 0);
  ck_assert_uint_eq(strlen(text), 36);
  break_call("open", ENOENT, 2);
  ck_assert_int_eq(os_random(NULL, text, sizeof text), -ENOENT);
  ck_assert_int_eq(os_boot_id(NULL, text, sizeof text), -ENOENT);
  break_call("read", EIO, 2);
  ck_assert_int_eq(os_random(NULL, text, sizeof text), -EIO);
  ck_assert_int_eq(os_process_name(NULL, text, sizeof text), -EIO);
  break_call("read", 0, 1); /* half of it */
  ck_assert_int_eq(os_random(NULL, text, sizeof text), -EIO);
}

static void *ask_alone(void *main_thread) {
  int64_t offset = -1;
  pthread_t other;
  memcpy(&other, main_thread, sizeof other);
  pthread_join(other, NULL);
  _exit(os_boot_offset(NULL, &offset) < 0 ? 0 : 1);
}

/* In a child: end the main thread and ask on another one. */
static void ask_without_main(void) {
  static pthread_t main_thread;
  pthread_t thread;
  main_thread = pthread_self();
  if (pthread_create(&thread, NULL, ask_alone, &main_thread) != 0) _exit(2);
  pthread_exit(NULL);
}

/* In a child: ask on the main thread. */
static void ask_on_main(void) {
  int64_t offset = -1;
  int rc = os_boot_offset(NULL, &offset);
  _exit(rc == 0 && offset == INT64_C(1000000000007) ? 0 : 1);
}

enum { NEW_TIME = 0x80, NO_NAMESPACES = 77 };

/* In a time namespace the process's offset is known.  If its main thread has
 * ended (1), /proc/self does not show it: then the offset is unknown.  It used
 * to be taken for 0, like that of a kernel without time namespaces. */
TEST_LOOP(offset_in_a_time_namespace, 0, 2) {
  int status;
  pid_t pid = fork();
  if (pid == 0) {
    int fd = unshare(NEW_TIME) == 0
                 ? open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC)
                 : -1;
    if (fd < 0 || write(fd, "boottime 1000 7", 15) != 15) _exit(NO_NAMESPACES);
    close(fd);
    pid = fork();
    if (pid == 0 && !_i) ask_on_main();
    if (pid == 0) ask_without_main();
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
      _exit(2);
    _exit(WEXITSTATUS(status));
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFEXITED(status));
  if (WEXITSTATUS(status) == NO_NAMESPACES)
    fprintf(stderr, "no time namespace can be made here: not tested\n");
  else
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

/* The library works without randomness or a boot id if the system does not
 * provide them. */
TEST(works_without_files_of_the_kernel) {
  break_call("read", EACCES, -1);
  zke *z = test_open(test_path("a.db"));
  make(z, "/n");
}

/* ---- requirements of an open ---- */

static void refused(int rc, const char *why) {
  zke *z = (zke *)&z;
  ck_rc(zke_open(test_path("a.db"), NULL, &z), rc);
  ck_assert_ptr_null(z);
  ck_says(why);
  ck_assert_int_ne(access(test_path("a.db"), F_OK), 0);
}

/* P11: an SQLite that lacks something required. */
TEST(unsuitable_sqlite_is_refused) {
  break_call("version", 0, -1);
  refused(ZKE_SQLITEVERSION, "older than 3.37.2");
  break_call("threads", 0, -1);
  refused(ZKE_SQLITEVERSION, "without threads");
}

/* P9: without a fork() handler a child could keep sessions alive. */
TEST(fork_handler_is_needed) {
  break_call("atfork", ENOMEM, 4); /* an open tries it once or twice */
  refused(ZKE_NOMEM, "out of memory");
  break_call("none", 0, 0); /* there is memory again */
  test_open(test_path("a.db"));
}

/* ---- SQLite ---- */

/* A store's VFS has SQLite's clock and randomness. */
TEST(vfs_passes_questions_on) {
  char first[16] = "", second[16] = "";
  double days = 0;
  zke *z = test_open(test_path("a.db"));
  sqlite3_vfs *v = &z->s->vfs_own;
  ck_assert_int_eq(v->xRandomness(v, sizeof first, first), sizeof first);
  ck_assert_int_eq(v->xRandomness(v, sizeof second, second), sizeof second);
  ck_assert_mem_ne(first, second, sizeof first);
  ck_assert_int_eq(v->xCurrentTime(v, &days), SQLITE_OK);
  double unix_s = (days - 2440587.5) * 86400.0;
  ck_assert_double_le(unix_s, (double)time(NULL) + 2);
  ck_assert_double_ge(unix_s, (double)time(NULL) - 2);
}

/* An allocator that gives the next handle the address of the last one. */
static void *resize_same(void *context, void *block, size_t size) {
  static _Alignas(16) char place[sizeof(zke) + 256];
  static bool taken;
  (void)context;
  if (block == place) {
    taken = taken && size;
    return size ? block : NULL;
  }
  if (!block && !taken && size >= sizeof(zke) && size <= sizeof place &&
      size < sizeof(zke) + 64) {
    taken = true;
    return place;
  }
  if (size) return realloc(block, size);
  free(block);
  return NULL;
}

static void *close_it(void *z) {
  ck_ok(zke_close(z));
  return NULL;
}

/* zke_limit() of a handle that another thread has closed does not apply to the
 * next handle, which has the same address. */
TEST(a_limit_ends_with_its_handle) {
  zke_options o = {.size = sizeof o, .allocator = {resize_same, NULL}};
  zke *first, *second;
  ck_ok(zke_open(":memory:", &o, &first));
  ck_assert_int_eq(zke_limit(first, 1), ZKE_FOREVER);
  pthread_t other = begin_thread(close_it, first);
  ck_assert_int_eq(pthread_join(other, NULL), 0);
  ck_ok(zke_open(":memory:", &o, &second));
  ck_assert_ptr_eq(first, second);
  ck_assert_int_eq(zke_limit(second, ZKE_FOREVER), ZKE_FOREVER);
  ck_ok(zke_close(second));
}

static int number;

static int note_number(void *arg, int columns, char **values, char **names) {
  (void)arg, (void)columns, (void)names;
  number = (int)strtol(values[0], NULL, 10);
  return 0;
}

/* design.md 4: no handle, read-only ones included, maps the database, whatever
 * SQLite's default is, since a file that is truncated would end the process;
 * and cache_kib is applied. */
TEST_LOOP(every_handle_is_configured, 0, 2) {
  zke_options o = {.size = sizeof o, .cache_kib = 777};
  if (_i) o.flags = ZKE_OPEN_READONLY;
  ck_assert_int_eq(sqlite3_config(SQLITE_CONFIG_MMAP_SIZE, INT64_C(1000000),
                                  INT64_C(1000000)),
                   SQLITE_OK);
  zke *z = test_open(test_path("a.db"));
  ck_ok(zke_close(z));
  ck_ok(zke_open(test_path("a.db"), &o, &z));
  number = -1;
  sqlite3_exec(z->s->db, "PRAGMA mmap_size", note_number, NULL, NULL);
  ck_assert_int_eq(number, 0);
  sqlite3_exec(z->s->db, "PRAGMA cache_size", note_number, NULL, NULL);
  ck_assert_int_eq(number, -777);
}

/* If a program's function looks for extensions, it reaches the loader of the
 * VFS below, or none. */
TEST(vfs_passes_extensions_on) {
  char why[100] = "";
  zke *z = test_open(test_path("a.db"));
  sqlite3_vfs *v = &z->s->vfs_own, none = *z->s->vfs_base;
  ck_assert_ptr_null(v->xDlOpen(v, test_path("none.so")));
  v->xDlError(v, sizeof why, why);
  ck_assert_uint_gt(strlen(why), 0);
  void *self = v->xDlOpen(v, NULL);
  ck_assert_ptr_nonnull(self);
  ck_assert(!v->xDlSym(v, self, "no_such_function"));
  v->xDlClose(v, self);
  none.xDlOpen = NULL;
  none.xDlError = NULL;
  z->s->vfs_base = &none;
  ck_assert_ptr_null(v->xDlOpen(v, NULL));
  v->xDlError(v, sizeof why, why);
}

/* P11: a value that SQLite does not accept is refused, and not stored as NULL,
 * which in an ACL would grant everything to all; and data_limit is never above
 * SQLite's limit. */
TEST(a_value_beyond_sqlites_limit_is_refused) {
  static char id[200], data[3000];
  char scheme[] = "digest";
  zke_acl acl = {ZKE_PERM_ALL, scheme, id};
  zke_acls acls = {1, &acl};
  zke *z = open_as(test_path("a.db"), .data_limit = INT32_MAX);
  int most = sqlite3_limit(z->s->db, SQLITE_LIMIT_LENGTH, 1000);
  ck_assert_int_lt(z->s->data_limit, most);
  memset(id, 'x', sizeof id - 1);
  memcpy(id, "u:", 2);
  sqlite3_limit(z->s->db, SQLITE_LIMIT_LENGTH, 100);
  ck_rc(zke_create(z, "/a", "", 0, &acls, 0, NULL, NULL), ZKE_BADARGUMENTS);
  ck_says("longer than SQLite");
  ck_rc(zke_create(z, "/a", data, sizeof data, ZKE_OPEN_ACL, 0, NULL, NULL),
        ZKE_BADARGUMENTS);
  sqlite3_limit(z->s->db, SQLITE_LIMIT_LENGTH, most);
  ck_rc(see(z, "/a"), ZKE_NONODE);
  ck_ok(zke_create(z, "/a", data, sizeof data, &acls, 0, NULL, NULL));
  ck_rc(zke_get(z, "/a", NULL, NULL, NULL, NULL, NULL), ZKE_NOAUTH);
}

/* The command that SQLite refuses: "BEGIN", "COMMIT", "ROLLBACK" or NULL. */
static const char *denied;

static int authorize(void *context, int action, const char *a, const char *b,
                     const char *c, const char *d) {
  (void)context, (void)b, (void)c, (void)d;
  bool deny = action == SQLITE_TRANSACTION && denied && !strcmp(a, denied);
  return deny ? SQLITE_DENY : SQLITE_OK;
}

/* A handle on which SQLite refuses the command that the test names. */
static zke *open_denying(const char *name) {
  zke *z = test_open(name);
  make(z, "/n");
  /* every statement is prepared again, and so is refused */
  ck_assert_int_eq(sqlite3_set_authorizer(z->s->db, authorize, NULL),
                   SQLITE_OK);
  return z;
}

static int set(zke *z) { return change(z, "/n"); }

/* P2: a transaction that could not be rolled back is neither extended nor read:
 * the next call first tries to roll it back again. */
TEST_LOOP(failed_rollback_is_made_up_for, 0, 2) {
  zke_op op;
  zke *z = open_denying(_i ? test_path("a.db") : ":memory:");
  int64_t count = 0;
  zke_op_delete(&op, "/none", -1);
  denied = "ROLLBACK";
  ck_rc(zke_multi(z, &op, 1, NULL), ZKE_NONODE); /* its rollback fails */
  ck_rc(zke_count(z, "/", &count), ZKE_SYSTEMERROR);
  ck_rc(set(z), ZKE_SYSTEMERROR);
  ck_rc(zke_dispatch(z, NULL), ZKE_SYSTEMERROR);
  ck_rc(zke_wait(z, zke_now(z)), ZKE_SYSTEMERROR);
  denied = NULL;
  zke_stat stat = test_stat(z, "/n");
  ck_assert_int_eq(stat.version, 0);
  ck_ok(set(z));
}

/* A read that cannot begin returns nothing. */
TEST_LOOP(read_that_cannot_begin, 0, 2) {
  zke_strings *names = NULL;
  zke_op_result result;
  zke_op op;
  int64_t count = -1;
  zke *z = open_denying(_i ? test_path("a.db") : ":memory:");
  zke_op_get(&op, "/n");
  denied = "BEGIN";
  ck_rc(zke_children(z, "/", NULL, NULL, &names, NULL), ZKE_SYSTEMERROR);
  ck_assert_ptr_null(names);
  ck_rc(zke_count(z, "/", &count), ZKE_SYSTEMERROR);
  ck_assert_int_eq(count, -1);
  ck_rc(zke_multi_read(z, &op, 1, &result), ZKE_SYSTEMERROR);
  ck_rc(zke_check(z, NULL, NULL), ZKE_SYSTEMERROR);
  denied = NULL;
}
