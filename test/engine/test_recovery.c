/* test_recovery.c - how the engine recovers from rare failures
 *
 * The tests cause what is rare: a system call that fails at the worst moment, a
 * row that zkembed would not write, a thread that enters while another closes.
 * Each is named for the rule that must hold.
 *
 * The engine is included, not linked: tests step through its mutexes, and look
 * at a store's state.
 */
#define _GNU_SOURCE
#include <pthread.h>

static int step_lock(pthread_mutex_t *m);

#define pthread_mutex_lock step_lock
#include "zkembed.c"
#undef pthread_mutex_lock

#include "test/seam.h"
#include "test/engine/calls.h"

#include <semaphore.h>
#include <sys/wait.h>

/* ---- failures to choose from ---- */

enum slot_fault { SLOTS_FINE, SLOTS_FAIL, SLOTS_SHORT, SLOTS_FULL };

static struct {
  enum slot_fault read; /* of the leases' stamps */
  enum slot_fault write;
  int gates;            /* how many times the gate is free; -1: always */
  bool stop_at_gate;    /* stop at it, and post `inside` */
  sem_t inside, leave;  /* … and wait for `leave` */
  const char *far;      /* files below this are on a network file system */
  void (*asleep)(void); /* called at the end of each sleep */
  int stamps, polls;    /* writes of a lease's stamp; sleeps in the kernel */
  int no_fifos;         /* so often no FIFO of another opens */
  bool no_doubt;        /* the doubt word of the log cannot be read */
  int no_write;         /* the errno by which writes to the log fail, or 0 */
  bool short_of_memory; /* only the WAL-index's first page can be mapped */
} sys = {.gates = -1};

static void after_sleep(seam_call *c) {
  if (c->time && sys.asleep) sys.asleep();
}

static void count_poll(seam_call *c) { sys.polls += c->time != 0; }

static void before_open(seam_call *c) {
  bool fifo = (c->how & O_NONBLOCK) && (c->how & O_ACCMODE) == O_WRONLY;
  if (fifo && sys.no_fifos > 0 && sys.no_fifos--) seam_refuse(c, -EMFILE);
}

static int64_t slot_result(enum slot_fault fault, int64_t n) {
  if (fault == SLOTS_FAIL) return -EIO;
  if (fault == SLOTS_FULL) return -ENOSPC;
  return fault == SLOTS_SHORT ? n / 2 : n;
}

static void before_pread(seam_call *c) {
  if (sys.no_doubt && c->at == WAL_DOUBT_AT) seam_refuse(c, -EIO);
}

static void after_pread(seam_call *c) {
  if (c->at >= LEASE_SLOTS_AT) c->result = slot_result(sys.read, c->result);
}

/* Counts the stamps of leases, and can make them fail. */
static void before_pwrite(seam_call *c) {
  if (c->at < LEASE_SLOTS_AT) return;
  sys.stamps++;
  seam_pass(1); /* so that trying without a pause comes to an end */
  if (sys.write != SLOTS_FINE)
    seam_refuse(c, slot_result(sys.write, (int64_t)c->size));
}

/* The gate, at which a thread can be held or refused; no writer insists on its
 * place in the line. */
static void before_lock(seam_call *c) {
  bool gate = c->at == SIDE_GATE;
  if (c->how != ZKE_LOCK_EXCLUSIVE) return;
  if (gate && sys.stop_at_gate) {
    sys.stop_at_gate = false;
    sem_post(&sys.inside);
    sem_wait(&sys.leave);
  }
  /* the sweeper may pass a handle that is asleep */
  if ((gate || c->at > LINE_INSIST) && sys.gates == 0) seam_refuse(c, -EAGAIN);
  if (gate && sys.gates > 0) sys.gates--;
}

static void before_network(seam_call *c) {
  char whole[PATH_MAX];
  if (sys.far)
    seam_refuse(c, realpath(c->path, whole) && strstr(whole, sys.far));
}

/* The disk refuses writes to the log and to VACUUM's temporary file, and the
 * system says why. */
static void before_write(seam_call *c) {
  int refused = SQLITE_OPEN_WAL | SQLITE_OPEN_TEMP_DB;
  if (!sys.no_write || !(c->opened_as & refused)) return;
  errno = sys.no_write;
  seam_refuse(c, SQLITE_IOERR_WRITE);
}

static void tell_why(seam_call *c) {
  if (!sys.no_write || c->how != SQLITE_FCNTL_LAST_ERRNO) return;
  *(int *)c->data = sys.no_write;
  seam_refuse(c, SQLITE_OK);
}

static void before_map(seam_call *c) {
  if (sys.short_of_memory && c->at > 0) seam_refuse(c, SQLITE_IOERR_NOMEM);
}

enum { OF_DATABASE = SQLITE_OPEN_MAIN_DB, OF_LOG = SQLITE_OPEN_WAL };

static seam host = {
    .vfs = "regress",
    .fail = {[SEAM_xSync] = {.result = SQLITE_IOERR_FSYNC},
             [SEAM_xRead] = {SQLITE_IOERR_READ,
                             .opened_as = OF_DATABASE | OF_LOG},
             [SEAM_xOpen] = {SQLITE_CANTOPEN, .opened_as = OF_DATABASE}},
    .before = {[SEAM_poll] = count_poll,
               [SEAM_open] = before_open,
               [SEAM_pread] = before_pread,
               [SEAM_pwrite] = before_pwrite,
               [SEAM_lock_range] = before_lock,
               [SEAM_network] = before_network,
               [SEAM_xWrite] = before_write,
               [SEAM_xFileControl] = tell_why,
               [SEAM_xShmMap] = before_map},
    .after = {[SEAM_sleep] = after_sleep,
              [SEAM_poll] = after_sleep,
              [SEAM_pread] = after_pread}};

static zke *sys_open(const char *name) {
  zke *z = NULL;
  zke_options options = {.size = sizeof options, .os = seam_os(&host)};
  ck_ok(zke_open(name, &options, &z));
  return z;
}

/* For the options. */
static int shim_durability, shim_cache_kib, shim_flags;

/* Open with a VFS whose calls can fail. */
static int shim_try(const char *name, zke **z) {
  zke_options options = {.size = sizeof options,
                         .vfs = seam_vfs(&host),
                         .durability = shim_durability,
                         .cache_kib = shim_cache_kib,
                         .flags = shim_flags,
                         .os = seam_os(&host)};
  return zke_open(name, &options, z);
}

static zke *shim_open_handle(const char *name) {
  zke *z = NULL;
  ck_ok(shim_try(name, &z));
  return z;
}

/* ---- small things ---- */

/* A text by a format; four can be in use at once. */
static const char *text_of(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static const char *text_of(const char *format, ...) {
  static char text[4][8192];
  static int next;
  va_list ap;
  next = (next + 1) % 4;
  va_start(ap, format);
  vsnprintf(text[next], sizeof text[0], format, ap);
  va_end(ap);
  return text[next];
}

/* The FIFO of a session. */
static const char *fifo_of(const char *db, zke *z) {
  return text_of("%s-zke/%016llx", db, (unsigned long long)zke_session_id(z));
}

static void put(const char *path, const char *text) {
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_ge(fputs(text, f), 0);
  ck_assert_int_eq(fclose(f), 0);
}

/* Assert the file's exact content. */
static void expect_file(const char *path, const char *expected) {
  char text[256] = "";
  FILE *f = fopen(path, "r");
  ck_assert_ptr_nonnull(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  ck_assert_int_eq(fclose(f), 0);
  ck_assert_uint_eq(n, strlen(expected));
  ck_assert_str_eq(text, expected);
}

/* ---- fork ---- */

static struct {
  const char *db;
  int parent[2], child[2], says[2]; /* to both, and from the child */
} family;

/* Work on the child's own handle while others open and close the file. */
static char child_works(zke *z) {
  for (int i = 0; i < 200; i++) {
    int rc = create(z, "/n/e", ZKE_EPHEMERAL);
    if (rc == ZKE_OK) rc = zke_get(z, "/n", NULL, NULL, NULL, NULL, NULL);
    if (rc == ZKE_OK) rc = zke_delete(z, "/n/e", -1);
    if (rc != ZKE_OK) return 'w';
  }
  if (zke_check(z, NULL, NULL) != ZKE_OK) return 'c';
  return zke_close(z) == ZKE_OK ? '.' : 'e';
}

/* A child that opens the database, reports its pid, and works when the test
 * tells it to. */
static int be_child(void *context) {
  zke *z;
  char byte;
  pid_t pid = getpid();
  (void)context;
  if (zke_open(family.db, NULL, &z) != ZKE_OK) return 1;
  if (write(family.says[1], &pid, sizeof pid) != sizeof pid) return 2;
  if (read(family.child[0], &byte, 1) != 1) return 3;
  byte = child_works(z);
  return write(family.says[1], &byte, 1) == 1 ? 0 : 4;
}

/* Opens, forks a child, then dies or closes, as it is told. */
static int be_parent(void *context) {
  zke *z;
  char byte;
  (void)context;
  if (zke_open(family.db, NULL, &z) != ZKE_OK) return 1;
  if (create(z, "/n", 0) != ZKE_OK) return 2;
  if (fork() == 0) {
    alarm((unsigned)test_patience(TEST_CHILD_S));
    _exit(be_child(NULL));
  }
  if (read(family.parent[0], &byte, 1) != 1) return 3;
  return byte == 'c' && zke_close(z) != ZKE_OK ? 4 : 0;
}

/* Does the process lock these bytes, as SQLite in this process would see it? */
static bool has_lock(pid_t pid, const char *file, off_t from, off_t count) {
  struct flock l = {.l_type = F_WRLCK, .l_start = from, .l_len = count};
  int fd = open(file, O_RDWR);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(fcntl(fd, F_GETLK, &l), 0);
  close(fd);
  return l.l_type != F_UNLCK && l.l_pid == pid;
}

/* SQLite's lock on a database in use, and its lock on a WAL-index in use. */
static void expect_locks(pid_t pid, const char *db) {
  ck_assert(has_lock(pid, db, 0x40000002, 510));
  ck_assert(has_lock(pid, text_of("%s-shm", db), 128, 1));
}

static void come_and_go(const char *db, int times) {
  for (int i = 0; i < times; i++) ck_ok(zke_close(test_open(db)));
}

/* P9: a child's handle has its own SQLite locks, whatever its parent does: a
 * third process that opens the file finds it in use. */
TEST_LOOP(childs_locks_are_its_own, 0, 2) {
  char byte = '?';
  pid_t child;
  family.db = test_path("a.db");
  ck_assert_int_eq(pipe(family.parent), 0);
  ck_assert_int_eq(pipe(family.child), 0);
  ck_assert_int_eq(pipe(family.says), 0);
  pid_t parent = test_child(be_parent, NULL);
  close(family.says[1]); /* so that the child's death is seen */
  ck_assert_int_eq(read(family.says[0], &child, sizeof child), sizeof child);
  ck_assert_int_eq(write(family.parent[1], _i ? "c" : "x", 1), 1);
  ck_assert_int_eq(test_child_end(parent), 0);
  expect_locks(child, family.db);
  come_and_go(family.db, 20);
  expect_locks(child, family.db);
  ck_assert_int_eq(write(family.child[1], "g", 1), 1);
  come_and_go(family.db, 40);
  ck_assert_msg(read(family.says[0], &byte, 1) == 1, "the child has died");
  ck_assert_int_eq(byte, '.');
  come_and_go(family.db, 1);
}

static void *change_in_thread(void *z) {
  static int rc;
  rc = change(z, "/");
  return &rc;
}

/* In the child: nothing can be opened, since the thread may have held a lock of
 * SQLite that can never be released. */
static int open_both(void *context) {
  zke *z = NULL;
  const char *const *name = context;
  zke_options options = {.size = sizeof options, .busy_timeout_ms = 300};
  if (zke_open(name[0], &options, &z) != ZKE_FORKED) return 1;
  if (z || !strstr(zke_errmsg(), "fork")) return 2;
  if (zke_open(name[1], &options, &z) != ZKE_FORKED) return 3;
  return zke_open(":memory:", &options, &z) == ZKE_FORKED ? 0 : 4;
}

/* P9: what a thread of the parent was using at the fork cannot be released, so
 * the child is refused instead of hanging. */
TEST(store_in_use_at_the_fork_is_refused) {
  const char *name[] = {test_path("a.db"), test_path("b.db")};
  void *rc;
  sem_init(&sys.inside, 0, 0);
  sem_init(&sys.leave, 0, 0);
  zke *z = sys_open(name[0]);
  sys.stop_at_gate = true;
  pthread_t thread = begin_thread(change_in_thread, z);
  sem_wait(&sys.inside);
  int status = test_child_end(test_child(open_both, name));
  sem_post(&sys.leave);
  pthread_join(thread, &rc);
  ck_assert_int_eq(status, 0);
  ck_ok(*(int *)rc);
}

/* ---- closing while a call enters ---- */

/* The two threads step through their mutexes: the caller has entered when the
 * closer continues from its first mutex, and leaves when the closer is about to
 * lock its leave_at-th. */
static struct {
  int leave_at, locked; /* of the closer's locks */
  sem_t closing, counted, go, gone;
  int state; /* what the caller got */
  zke *z;
} step;

enum { NOBODY, CLOSER, CALLER, FORGETTER };
static _Thread_local int step_role;

/* Wait for a signal that may not come. */
static void step_wait_a_moment(sem_t *s) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  t.tv_nsec += 200000000;
  t.tv_sec += t.tv_nsec / 1000000000;
  t.tv_nsec %= 1000000000;
  while (sem_timedwait(s, &t) < 0 && errno == EINTR) continue;
}

/* The closer is about to lock: at its first lock it lets the caller enter, at
 * the chosen one it lets it leave. */
static void step_closer(void) {
  step.locked++;
  if (step.locked == 1) {
    sem_post(&step.closing);
    sem_wait(&step.counted);
  }
  if (step.locked == step.leave_at) {
    sem_post(&step.go);
    sem_wait(&step.gone);
  }
}

static void step_caller(void) {
  sem_post(&step.counted);
  step_wait_a_moment(&step.go); /* the closer may wait for us earlier */
}

/* Two watchers of one event.  The first to be called is forgotten while it
 * runs, and returns when the forgetting thread is about to lock its leave_at-th
 * mutex.  The other waits until that one is forgotten. */
static struct {
  int leave_at, locked; /* of the forgetter's locks */
  sem_t running, go, forgotten;
  void *first;          /* the context of the watcher that is called first */
  atomic_bool returned; /* the first call, or it is about to */
  atomic_bool forgot;   /* zke_forget() has returned */
  bool came;            /* … before the other call returned */
  zke *z;
} forgetting;

static void step_forgetter(void) {
  if (++forgetting.locked != forgetting.leave_at) return;
  if (atomic_load(&forgetting.returned)) return;
  uint64_t before = atomic_load(&forgetting.z->turn);
  sem_post(&forgetting.go);
  for (int i = 0; i < 200 && atomic_load(&forgetting.z->turn) == before; i++)
    usleep(1000);
}

static int step_lock(pthread_mutex_t *m) {
  int role = step_role;
  if (role == CLOSER) step_closer();
  if (role == FORGETTER) step_forgetter();
  if (role == CALLER) step_caller();
  if (role == CALLER) step_role = NOBODY;
  return pthread_mutex_lock(m);
}

/* The thread whose call is running while the handle closes. */
static void *step_call(void *context) {
  (void)context;
  sem_wait(&step.closing);
  step_role = CALLER;
  step.state = zke_state(step.z);
  step_role = NOBODY;
  sem_post(&step.gone);
  return NULL;
}

/* zke_close() notices the end of the last call, at whatever step that comes. */
TEST_LOOP(close_hears_of_the_last_call, 1, 4) {
  step.leave_at = _i;
  sem_init(&step.closing, 0, 0);
  sem_init(&step.counted, 0, 0);
  sem_init(&step.go, 0, 0);
  sem_init(&step.gone, 0, 0);
  step.z = test_open(":memory:");
  pthread_t thread = begin_thread(step_call, NULL);
  step_role = CLOSER;
  int rc = zke_close(step.z);
  step_role = NOBODY;
  pthread_join(thread, NULL);
  ck_ok(rc);
  ck_assert_int_eq(step.state, ZKE_STATE_CLOSED);
}

/* zkembed.h, zke_sync: a call that could not read the file says so, and the
 * next one reads it: it does not report success for a second. */
TEST(a_sync_that_failed_is_no_look) {
  const char *db = test_path("a.db");
  zke *z = shim_open_handle(db), *other = test_open(db);
  ck_ok(zke_sync(z, "/"));
  ck_ok(zke_expire(other, zke_session_id(z)));
  z->sync_next = 0;             /* it is time to check … */
  z->s->sweep.next = INT64_MAX; /* … and to do nothing else */
  host.fail[SEAM_xRead].times = 1;
  ck_rc(zke_sync(z, "/"), ZKE_SYSTEMERROR);
  ck_assert_int_eq(host.fail[SEAM_xRead].times, 0);
  ck_rc(zke_sync(z, "/"), ZKE_SESSIONEXPIRED);
}

/* zkembed.h, zke_check: a page that cannot be read for a moment is not damaged,
 * although SQLite's quick_check says so.  (0: the log's, 1: the database's.) */
TEST_LOOP(an_unread_page_is_no_damage, 0, 2) {
  const char *db = test_path("a.db");
  shim_cache_kib = 1;
  zke *z = shim_open_handle(db);
  for (int i = 0; i < 300; i++) make(z, text_of("/%d%0200d", i, 0));
  if (_i) ck_ok(zke_compact(z, ZKE_FOREVER));
  int failed = 0, rc;
  do {
    host.fail[SEAM_xRead].times = 1;
    host.fail[SEAM_xRead].skip = failed;
    rc = zke_check(z, NULL, NULL);
    if (!host.fail[SEAM_xRead].times) ck_rc(rc, ZKE_SYSTEMERROR);
    failed++;
  } while (!host.fail[SEAM_xRead].times);
  ck_assert_int_ge(failed, 10);
  host.fail[SEAM_xRead].times = 0;
}

/* ---- after a COMMIT that failed ---- */

static void make_two(void) {
  ck_assert_int_eq(mkdir(test_path("one"), 0700), 0);
  ck_assert_int_eq(mkdir(test_path("two"), 0700), 0);
  zke *z = test_open(test_path("two/app.db"));
  make(z, "/other");
  ck_ok(zke_close(z));
}

/* P2: the file is reopened at its old place, not relative to what is now the
 * current directory. */
TEST(recovers_the_same_file_elsewhere) {
  make_two();
  ck_assert_int_eq(chdir(test_path("one")), 0);
  zke *z = shim_open_handle("app.db");
  make(z, "/mine");
  ck_assert_int_eq(chdir(test_path("two")), 0);
  host.fail[SEAM_xSync].times = 1;
  ck_rc(change(z, "/mine"), ZKE_CONNECTIONLOSS);
  ck_ok(see(z, "/mine"));
  ck_rc(see(z, "/other"), ZKE_NONODE);
  ck_ok(change(z, "/mine"));
  ck_ok(zke_close(z));
  z = test_open(test_path("two/app.db"));
  ck_rc(see(z, "/mine"), ZKE_NONODE);
  ck_ok(see(z, "/other"));
}

/* zkembed.h, ZKE_FULL: an exhausted disk quota undoes a change as a full disk
 * does; after any other failed write the outcome is unknown. */
TEST(a_disk_quota_is_a_full_disk) {
  const char *db = test_path("a.db");
  zke *z = shim_open_handle(db);
  make(z, "/n");
  sys.no_write = EDQUOT;
  for (int i = 0; i < 3; i++) ck_rc(change(z, "/n"), ZKE_FULL);
  sys.no_write = 0;
  ck_ok(change(z, "/n"));
  sys.no_write = EIO;
  ck_rc(change(z, "/n"), ZKE_CONNECTIONLOSS);
  sys.no_write = 0;
  ck_ok(change(z, "/n"));
}

/* The same for a compaction, and for a COMMIT of the program's connection. */
TEST(a_disk_quota_stops_what_sqlite_writes_alone) {
  const char *db = test_path("a.db");
  sqlite3 *own = NULL;
  shim_flags = ZKE_OPEN_HOST;
  zke *z = shim_open_handle(db);
  make(z, "/n");
  ck_assert_int_eq(
      sqlite3_open_v2(db, &own, SQLITE_OPEN_READWRITE, seam_vfs(&host)),
      SQLITE_OK);
  must(own, "CREATE TABLE t(a)");
  ck_ok(zke_sql_adopt(z, own));
  char data[1 << 19] = {0}; /* larger than the cache */
  ck_ok(zke_set(z, "/n", data, sizeof data, -1, NULL));
  sys.no_write = EDQUOT;
  ck_rc(zke_compact(z, ZKE_FOREVER), ZKE_FULL);
  for (int i = 0; i < 2; i++) {
    sys.no_write = 0;
    ck_ok(zke_sql_begin(z, own));
    must(own, "INSERT INTO t VALUES(1)");
    sys.no_write = i ? EIO : EDQUOT;
    ck_rc(zke_sql_commit(z, own), i ? ZKE_CONNECTIONLOSS : ZKE_FULL);
  }
  sys.no_write = 0;
  ck_ok(change(z, "/n"));
  ck_assert_int_eq(test_number(db, "SELECT count(*)FROM t"), 0);
}

/* The last page of the next commit finds the disk full, after all but
 * `unwritten` of its bytes were written.  With this VFS a frame's head and page
 * are two writes; the head of the last frame has the database's size. */
static int unwritten = -1;
static bool ends;

static void write_less(seam_call *c) {
  const unsigned char *head = c->data;
  if (!(c->opened_as & SQLITE_OPEN_WAL)) return;
  if (c->size == WAL_FRAME)
    ends = base_big_endian(head + 4) != 0;
  else if (ends && unwritten > 0)
    c->size -= (size_t)unwritten;
}

static void say_full(seam_call *c) {
  bool page = c->opened_as & SQLITE_OPEN_WAL && c->size > WAL_FRAME;
  if (!page || !ends || unwritten < 0) return;
  c->result = SQLITE_FULL;
  unwritten = -1;
}

/* P2: a full disk undoes a change (0), unless the whole commit is in the log
 * (1): then the outcome is unknown until the next call. */
TEST_LOOP(a_write_that_failed_and_is_there_leaves_it_open, 0, 2) {
  static seam log = {.vfs = "log",
                     .before = {[SEAM_xWrite] = write_less},
                     .after = {[SEAM_xWrite] = say_full}};
  zke *z = open_as(test_path("a.db"), .vfs = seam_vfs(&log));
  make(z, "/n");
  unwritten = _i ? 0 : 1;
  ck_rc(change(z, "/n"), _i ? ZKE_CONNECTIONLOSS : ZKE_FULL);
  ck_assert_int_eq(unwritten, -1);
  ck_ok(change(z, "/n"));
  zke_stat stat = test_stat(z, "/n");
  ck_assert_int_ge(stat.version, 1);
  ck_assert_int_le(stat.version, 1 + _i);
}

/* More pages than one page of the WAL-index has room for. */
static int make_many(zke *z, void *arg) {
  static char data[1000000];
  char path[16];
  int rc = ZKE_OK;
  (void)arg;
  for (int i = 0; i < 20 && rc == ZKE_OK; i++) {
    snprintf(path, sizeof path, "/n%d", i);
    rc = zke_create(z, path, data, (int)sizeof data, ZKE_OPEN_ACL, 0, NULL,
                    NULL);
  }
  return rc;
}

/* In a child, which then dies: a batch that runs out of memory after its last
 * frame is in the log.  1: it returns that the outcome is unknown. */
static int commit_short_of_memory(const char *db) {
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid == 0) {
    shim_cache_kib = 65536; /* so all is written by COMMIT */
    zke *z = shim_open_handle(db);
    sys.short_of_memory = true;
    _exit(zke_batch(z, make_many, NULL) == ZKE_CONNECTIONLOSS);
  }
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* P2: SQLite needs memory for the WAL-index after a commit's frames are in the
 * log.  If there is none, it takes the commit back, but the next process to
 * recover the log finds it: so the call does not say that it was undone. */
TEST(no_memory_behind_the_last_frame) {
  const char *db = test_path("a.db");
  ck_ok(zke_close(test_open(db)));
  int open = commit_short_of_memory(db);
  zke *z = test_open(db);
  ck_ok(see(z, "/n19")); /* otherwise the test proves nothing */
  ck_assert_int_eq(open, 1);
}

/* P2: it does not open another file with the same name, nor create a new one if
 * the file was removed.  It reports the session's end. */
TEST_LOOP(recovers_no_other_file, 0, 2) {
  make_two();
  test_events events = {0};
  const char *one = test_path("one/app.db");
  zke *z = shim_open_handle(one);
  ck_ok(zke_set_watcher(z, test_record, &events));
  make(z, "/mine");
  host.fail[SEAM_xSync].times = 1;
  ck_rc(change(z, "/mine"), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(rename(one, test_path("one/moved.db")), 0);
  if (_i == 0) ck_assert_int_eq(rename(test_path("two/app.db"), one), 0);
  ck_rc(see(z, "/mine"), ZKE_REPLACED);
  if (_i == 1) ck_assert_int_ne(access(one, F_OK), 0);
  ck_rc(change(z, "/other"), ZKE_REPLACED);
  ck_says("app.db");
  ck_ok(zke_wait(z, zke_now(z) + 5000));
  test_expect(z, &events, "SESSION -112");
  zke_close(z); /* it cannot end its session, whatever it returns */
}

/* P5: while a recovering store is not connected, another program may be the
 * last to close the file, and removes the log after copying it; the session
 * must survive that.  P2: a log that was removed with acknowledged changes is
 * different. */
TEST_LOOP(the_log_may_go_while_nobody_has_it, 0, 2) {
  const char *db = test_path("a.db");
  test_events events = {0};
  zke *z = shim_open_handle(db);
  ck_ok(zke_set_watcher(z, test_record, &events));
  make(z, "/n");
  host.fail[SEAM_xSync].times = host.fail[SEAM_xOpen].times = 1;
  ck_rc(change(z, "/n"), ZKE_CONNECTIONLOSS);
  z->s->recover_at = 0;
  ck_rc(change(z, "/n"), ZKE_CONNECTIONLOSS);
  if (_i == 0) sql_on(db, "SELECT count(*) FROM zkembed_node");
  if (_i == 1) ck_assert_int_eq(unlink(z->s->wal), 0);
  ck_assert_int_ne(access(z->s->wal, F_OK), 0);
  z->s->recover_at = 0;
  ck_rc(change(z, "/n"), _i ? ZKE_REPLACED : ZKE_OK);
  sweep_verify_files(z->s);
  ck_rc(change(z, "/n"), _i ? ZKE_REPLACED : ZKE_OK);
  if (_i == 1) {
    ck_says("a.db");
    ck_ok(zke_wait(z, zke_now(z) + 5000));
    test_expect(z, &events, "SESSION -112");
  }
  zke_close(z); /* it cannot end a session that was given up */
}

/* Another connection, in the middle of a read. */
static sqlite3 *begin_reading(const char *db) {
  sqlite3 *reader = plain_open(db);
  must(reader, "BEGIN;SELECT count(*)FROM zkembed_node");
  return reader;
}

/* P2: as long as a reader keeps the log from being copied, nothing is
 * acknowledged; reads continue, and changes succeed when the reader has
 * gone. */
TEST(reader_in_the_way_of_recovery) {
  const char *db = test_path("a.db");
  zke *z = shim_open_handle(db);
  make(z, "/n");
  sqlite3 *reader = begin_reading(db);
  host.fail[SEAM_xSync].times = 1;
  ck_rc(change(z, "/n"), ZKE_CONNECTIONLOSS);
  for (int i = 0; i < 3; i++) {
    ck_rc(change(z, "/n"), ZKE_CONNECTIONLOSS);
    ck_rc(create(z, "/e", 1), ZKE_CONNECTIONLOSS);
    ck_ok(zke_get(z, "/n", NULL, NULL, NULL, NULL, NULL));
    ck_rc(see(z, "/e"), ZKE_NONODE);
  }
  must(reader, "COMMIT");
  ck_ok(change(z, "/n"));
  make_as(z, "/e", ZKE_EPHEMERAL);
}

/* zkembed.h, zke_forget: after a recovery the rows are removed too; and the
 * pair is forgotten even before the store has recovered. */
TEST_LOOP(forgets_after_a_failed_commit, 0, 2) {
  const char *db = test_path("a.db");
  test_events events = {0};
  zke_watch_list *list = NULL;
  zke *z = shim_open_handle(db);
  make(z, "/n");
  ck_ok(zke_get(z, "/n", test_record, &events, NULL, NULL, NULL));
  sqlite3 *reader = _i ? begin_reading(db) : NULL;
  host.fail[SEAM_xSync].times = 1;
  ck_rc(zke_delete(z, "/n", -1), ZKE_CONNECTIONLOSS);
  ck_rc(zke_forget(z, test_record, &events), _i ? ZKE_CONNECTIONLOSS : ZKE_OK);
  ck_assert_int_eq(sqlite3_close(reader), SQLITE_OK);
  ck_rc(zke_remove_watch(z, "/n", ZKE_WATCH_ANY, test_record, &events),
        ZKE_NOWATCHER);
  ck_ok(zke_watches(z, &list));
  if (_i == 0) ck_assert_int_eq(list->count, 0);
  zke_free(list);
  ck_ok(zke_dispatch(z, NULL));
  ck_assert_int_eq(events.count, 0);
}

/* P3: a registration is repeated after its COMMIT failed, though it was made.
 * Its row exists then, and is newer than a watcher of the same pair with a
 * pending event, so that watcher does not stand for it.  The next change is
 * reported too.  (1: the uncertain registration was another pair's.) */
TEST_LOOP(a_watch_in_doubt_is_not_the_one_before, 0, 2) {
  test_events events = {0}, others = {0};
  shim_durability = ZKE_DURABLE_ALL;
  zke *z = shim_open_handle(test_path("a.db")), *x = test_session(z, NULL);
  make(z, "/n");
  ck_ok(zke_get(x, "/n", test_record, &events, NULL, NULL, NULL));
  ck_ok(change(z, "/n"));
  host.fail[SEAM_xSync].times = 1;
  test_events *first = _i ? &others : &events;
  ck_rc(zke_get(x, "/n", test_record, first, NULL, NULL, NULL),
        ZKE_CONNECTIONLOSS);
  zke_watch_list *list = NULL;
  ck_ok(zke_watches(z, &list));
  ck_assert_int_eq(list->count, 1); /* it was made */
  zke_free(list);
  ck_ok(zke_get(x, "/n", test_record, &events, NULL, NULL, NULL));
  test_expect(x, &events, "CHANGED /n");
  ck_ok(change(z, "/n"));
  test_expect(x, &events, "CHANGED /n");
  ck_ok(change(z, "/n"));
  test_expect(x, &events, "");
  ck_assert_int_eq(others.count, 0);
  ck_ok(zke_close(x));
}

/* P2: if closed in that state, it says that its end could not be written; the
 * next handle finds everything. */
TEST(closed_before_it_has_recovered) {
  const char *db = test_path("a.db");
  zke *z = shim_open_handle(db);
  make(z, "/n");
  sqlite3 *reader = begin_reading(db);
  host.fail[SEAM_xSync].times = 1;
  ck_rc(change(z, "/n"), ZKE_CONNECTIONLOSS);
  ck_rc(change(z, "/n"), ZKE_CONNECTIONLOSS);
  ck_ok(see(z, "/n")); /* reconnected, but the log is in doubt */
  ck_rc(zke_close(z), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(sqlite3_close(reader), SQLITE_OK);
  z = test_open(db);
  ck_ok(see(z, "/n"));
}

/* A node's version in a copy of the files alone. */
static int version_in_copy(const char *db, const char *path) {
  sqlite3_stmt *st = NULL;
  const char *name = test_path("copy.db");
  ck_assert_int_eq(system(text_of("cp %s %s", db, name)), 0);
  ck_assert_int_eq(system(text_of("cp %s-wal %s-wal", db, name)), 0);
  sqlite3 *copy = plain_open(name);
  const char *query =
      text_of("SELECT version FROM zke_nodes WHERE path='%s'", path);
  ck_assert_int_eq(sqlite3_prepare_v2(copy, query, -1, &st, NULL), SQLITE_OK);
  ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
  int version = sqlite3_column_int(st, 0);
  sqlite3_finalize(st);
  ck_assert_int_eq(sqlite3_close(copy), SQLITE_OK);
  return version;
}

/* P2: what a read shows after a COMMIT whose sync failed survives even if all
 * processes die before the next write, while a reader keeps the log from being
 * copied (0).  If the log cannot be rewritten (1), nothing is shown. */
TEST_LOOP(what_is_seen_of_a_failed_commit_stays, 0, 2) {
  const char *db = test_path("a.db");
  zke *z = shim_open_handle(db), *other = test_open(db);
  make(z, "/n");
  begin_reading(db);
  host.fail[SEAM_xSync].times = 1;
  ck_rc(change(z, "/n"), ZKE_CONNECTIONLOSS);
  sys.no_write = _i ? EIO : 0;
  ck_rc(see(z, "/n"), ZKE_CONNECTIONLOSS); /* it recovers, but not completely */
  for (int i = 0; _i && i < 3; i++) ck_rc(see(z, "/n"), ZKE_CONNECTIONLOSS);
  sys.no_write = 0;
  if (_i) ck_rc(see(z, "/n"), ZKE_CONNECTIONLOSS);
  zke_stat stat = test_stat(z, "/n");
  ck_assert_int_eq(version_in_copy(db, "/n"), stat.version);
  stat = test_stat(other, "/n");
  ck_assert_int_eq(version_in_copy(db, "/n"), stat.version);
}

/* An action that relies on the log, by a handle or the program's connection. */
static int rely_on_log(zke *z, sqlite3 *db, int way) {
  switch (way) {
    case 0:
      return create(z, "/new", ZKE_PERSISTENT);
    case 1:
      return zke_compact(z, ZKE_FOREVER);
    case 2:
      return zke_sql_begin(z, db);
    case 3:
      return create(z, "/new", ZKE_EPHEMERAL);
    default:
      return zke_remove_tables(z);
  }
}

/* P8: a doubt word was left by a process that died, perhaps after a failed
 * sync, of which no other process knows.  So an action that relies on the log
 * first has it rewritten, also if the word cannot be read (from 5 on).  Here
 * the sync of that fails: the call is refused, and its outcome is known. */
TEST_LOOP(a_doubt_of_the_dead_is_settled_first, 0, 10) {
  shim_flags = ZKE_OPEN_HOST;
  zke *z = shim_open_handle(test_path("a.db"));
  sqlite3 *db = plain_open(test_path("a.db"));
  ck_ok(zke_sql_adopt(z, db));
  make(z, "/n");
  ck_assert(!wal_read_doubt(z->s));
  int64_t word = _i < 5; /* as left by the dead process */
  z->s->os.pwrite(z->s->os.context, z->s->live_fd, &word, sizeof word,
                  WAL_DOUBT_AT);
  sys.no_doubt = _i >= 5;
  host.fail[SEAM_xSync].times = 1;
  ck_rc(rely_on_log(z, db, _i % 5), ZKE_SYSTEMERROR);
  ck_says("syncing the log");
  sys.no_doubt = false;
  ck_assert(wal_read_doubt(z->s) || z->s->health == HEALTH_GOOD);
  ck_rc(see(z, "/new"), ZKE_NONODE);
  ck_ok(change(z, "/n"));
  ck_assert(!wal_read_doubt(z->s));
  ck_ok(rely_on_log(z, db, _i % 5));
  if (_i % 5 == 2) ck_ok(zke_sql_commit(z, db));
  ck_assert(!wal_read_doubt(z->s));
}

/* P8: a process died in the sync of a commit; of its frames after the log's end
 * none stays.  If only the first were void, the next commit could begin with
 * the same page; and if a power cut kept only that frame of it, the old commit
 * would be complete after all.  The log before them is synced first: its head
 * may not be on the disk yet, and an older log that includes these frames may
 * be there. */
TEST(no_frame_of_a_failed_commit_stays) {
  enum { FRAME = 24 + 4096, LEFT = 3 };
  char wal[300], frame[FRAME];
  zke *z = shim_open_handle(test_path("a.db"));
  make(z, "/n");
  snprintf(wal, sizeof wal, "%s-wal", test_path("a.db"));
  int fd = open(wal, O_RDWR);
  ck_assert_int_ge(fd, 0);
  off_t end = 32 + (off_t)z->s->wal_pages * FRAME;
  memset(frame, 1, sizeof frame);
  for (int i = 0; i < LEFT; i++)
    ck_assert_int_eq(pwrite(fd, frame, FRAME, end + i * FRAME), FRAME);
  int64_t word = 1;
  z->s->os.pwrite(z->s->os.context, z->s->live_fd, &word, sizeof word,
                  WAL_DOUBT_AT);
  host.fail[SEAM_xSync].times = 1;
  ck_rc(zke_delete(z, "/none", -1), ZKE_SYSTEMERROR);
  ck_assert_int_eq(pread(fd, frame, 24, end), 24);
  for (int at = 0; at < 24; at++) ck_assert_int_eq(frame[at], 1);
  ck_rc(zke_delete(z, "/none", -1), ZKE_NONODE); /* it writes nothing itself */
  ck_assert(!wal_read_doubt(z->s));
  for (int i = 0; i < LEFT; i++) {
    ck_assert_int_eq(pread(fd, frame, 24, end + i * FRAME), 24);
    for (int at = 0; at < 24; at++) ck_assert_int_eq(frame[at], 0);
  }
  ck_assert_int_eq(close(fd), 0);
}

/* A kept session on a handle's carrier. */
static zke *kept_session(zke *z, unsigned char password[16]) {
  zke *made = session_as(z, .timeout_ms = 600000);
  ck_ok(zke_password(made, password));
  return made;
}

/* zkembed.h, zke_attach: the COMMIT of the attachment failed, though it was
 * made.  The old handle's watches are gone, so it is told that its session has
 * moved; and the session can be attached again. */
TEST(attachment_whose_commit_fails_moves_the_session) {
  unsigned char password[16];
  test_events events = {0};
  zke *y = NULL;
  shim_durability = ZKE_DURABLE_ALL;
  zke *z = shim_open_handle(test_path("a.db")), *x = kept_session(z, password);
  make_as(x, "/e", ZKE_EPHEMERAL);
  ck_rc(zke_exists(x, "/n", test_record, &events, NULL), ZKE_NONODE);
  int64_t id = zke_session_id(x);
  host.fail[SEAM_xSync].times = 1;
  ck_rc(zke_attach(z, id, password, NULL, &y), ZKE_CONNECTIONLOSS);
  ck_says("COMMIT");
  make(z, "/n");
  test_expect(x, &events, "SESSION -118");
  ck_rc(see(x, "/n"), ZKE_SESSIONMOVED);
  ck_ok(zke_attach(z, id, password, NULL, &y));
  ck_ok(zke_close(x));
  ck_ok(see(y, "/e"));
  ck_ok(zke_close(y));
  ck_rc(see(z, "/e"), ZKE_NONODE);
}

/* It is unknown whether a light session began, since its COMMIT failed.  Its
 * end is owed, and a host that looks only at the descriptor writes it too. */
TEST(session_that_nobody_has_shows_at_the_descriptor) {
  zke_options light = {.size = sizeof light, .flags = ZKE_OPEN_LIGHT};
  zke *x = NULL;
  int fd;
  shim_durability = ZKE_DURABLE_ALL;
  zke *z = shim_open_handle(test_path("a.db"));
  ck_ok(zke_fd(z, &fd));
  ck_ok(zke_dispatch(z, NULL));
  host.fail[SEAM_xSync].times = 1;
  ck_rc(zke_open_session(z, &light, &x), ZKE_CONNECTIONLOSS);
  ck_assert(z->s->sess.owes);
  for (int i = 0; i < 20 && z->s->sess.owes; i++) {
    struct pollfd p = {fd, POLLIN, 0};
    ck_assert_int_eq(poll(&p, 1, 5000), 1);
    ck_ok(zke_dispatch(z, NULL));
  }
  ck_assert(!z->s->sess.owes);
  ck_assert_int_eq(test_session_count(z), 1);
}

/* The same if a dispatch comes before the store has recovered: it still reports
 * the end, since nothing must be read for that.  An earlier version never
 * reported it then, and zke_wait() of the old handle did not return. */
TEST(end_is_told_by_a_broken_store) {
  unsigned char password[16];
  test_events events = {0};
  zke *y = NULL;
  shim_durability = ZKE_DURABLE_ALL;
  zke *z = shim_open_handle(test_path("a.db")), *x = kept_session(z, password);
  ck_ok(zke_set_watcher(x, test_record, &events));
  host.fail[SEAM_xSync].times = 1;
  ck_rc(zke_attach(z, zke_session_id(x), password, NULL, &y),
        ZKE_CONNECTIONLOSS);
  z->s->recover_at = INT64_MAX; /* it has just been tried */
  ck_rc(zke_dispatch(z, NULL), ZKE_CONNECTIONLOSS);
  ck_assert_int_eq(z->s->health, HEALTH_BROKEN);
  ck_assert_int_eq(events.count, 1);
  ck_assert_int_eq(events.at[0].state, ZKE_STATE_MOVED);
  z->s->recover_at = 0;
  ck_ok(zke_dispatch(z, NULL));
  ck_rc(zke_wait(x, ZKE_FOREVER), ZKE_SESSIONMOVED);
  ck_assert_int_eq(events.count, 1);
}

/* zkembed.h, zke_detach: a node that a kept session still has to discard is
 * removed by the detachment, and the session lives on without it.  If there was
 * no memory to note the node, the session ends.  These notes used to be lost
 * with the handle. */
TEST_LOOP(detachment_removes_what_was_discarded, 0, 2) {
  unsigned char password[16];
  zke *y = NULL;
  seam_stand();
  zke *z = sys_open(test_path("a.db"));
  zke *x = session_as(z, .timeout_ms = 600000);
  ck_ok(zke_password(x, password));
  int64_t id = zke_session_id(x);
  make_as(x, "/goes", ZKE_EPHEMERAL);
  make_as(x, "/stays", ZKE_EPHEMERAL);
  sys.gates = 0;
  ck_rc(zke_discard(x, "/goes", ZKE_EPHEMERAL, 0), ZKE_OPERATIONTIMEOUT);
  sys.gates = -1;
  atomic_store(&x->doomed, _i == 1);
  ck_rc(zke_detach(x), _i ? ZKE_SESSIONEXPIRED : ZKE_OK);
  ck_rc(see(z, "/goes"), ZKE_NONODE);
  ck_rc(see(z, "/stays"), _i ? ZKE_NONODE : ZKE_OK);
  ck_rc(zke_attach(z, id, password, NULL, &y),
        _i ? ZKE_SESSIONEXPIRED : ZKE_OK);
  ck_ok(zke_close(y));
}

/* ---- forgetting a watcher that is running ---- */

static void call_in_turn(zke *z, int type, int state, const char *path,
                         void *context) {
  (void)z, (void)type, (void)state, (void)path;
  if (forgetting.first) {
    step_wait_a_moment(&forgetting.forgotten);
    forgetting.came = atomic_load(&forgetting.forgot);
    return;
  }
  forgetting.first = context;
  sem_post(&forgetting.running);
  step_wait_a_moment(&forgetting.go); /* the forgetter may lock less often */
  atomic_store(&forgetting.returned, true);
}

static void *dispatch_in_turn(void *z) {
  zke_dispatch(z, NULL);
  return NULL;
}

/* zke_forget() notices the end of the call that it waits for, at whatever step
 * that comes.  An earlier version could miss it, and wait for the end of
 * another call, which may need what the forgetting thread holds. */
TEST_LOOP(forget_hears_of_the_calls_end, 1, 9) {
  static int one, two;
  forgetting.leave_at = _i;
  sem_init(&forgetting.running, 0, 0);
  sem_init(&forgetting.go, 0, 0);
  sem_init(&forgetting.forgotten, 0, 0);
  zke *z = forgetting.z = test_open(":memory:");
  make(z, "/n");
  ck_ok(zke_exists(z, "/n", call_in_turn, &one, NULL));
  ck_ok(zke_exists(z, "/n", call_in_turn, &two, NULL));
  ck_ok(change(z, "/n"));
  pthread_t thread = begin_thread(dispatch_in_turn, z);
  sem_wait(&forgetting.running);
  step_role = FORGETTER;
  int rc = zke_forget(z, call_in_turn, forgetting.first);
  step_role = NOBODY;
  atomic_store(&forgetting.forgot, true);
  sem_post(&forgetting.forgotten);
  pthread_join(thread, NULL);
  ck_ok(rc);
  ck_assert(forgetting.came);
}

/* ---- waiting ---- */

/* A store that was given up reads no more events for its light sessions, since
 * its descriptors may be the host's.  It reports their ends. */
TEST(given_up_store_reads_nothing) {
  test_events events = {0};
  zke *z = test_open(test_path("a.db"));
  zke *other = test_open(test_path("a.db"));
  make(z, "/n");
  zke *x = session_as(z, .flags = ZKE_OPEN_LIGHT);
  ck_ok(zke_set_watcher(x, test_record, &events));
  ck_ok(zke_dispatch(z, NULL));
  int64_t looked = z->c->looked;
  ck_ok(change(other, "/n"));
  guard_end_store(z->s);
  zke_dispatch(z, NULL);
  ck_assert_int_eq(z->c->looked, looked);
  test_expect(z, &events, "SESSION -112");
  zke_close(x);
  zke_close(z);
}

/* After a session has ended and its end was reported, it needs no dispatch: its
 * descriptor stays quiet over several ticks. */
TEST_LOOP(ended_session_is_quiet, 0, 2) {
  static const char *const names[] = {":memory:", "a.db"};
  test_events events = {0};
  zke *z = test_open(_i ? test_path(names[1]) : names[0]);
  ck_rc(zke_exists(z, "/n", test_record, &events, NULL), ZKE_NONODE);
  ck_ok(zke_expire(z, zke_session_id(z)));
  ck_assert(readable(z, 0));
  test_expect(z, &events, "SESSION -112");
  int64_t at = deadline_of(z);
  ck_assert(at == ZKE_FOREVER);
  ck_assert(!readable(z, 1300));
}

enum { FLOOD = 3000, DISPATCH_MOST = 1100 };

static struct {
  int made, seen, per_event;
  zke *writer;
} flood;

/* Every event causes more, so that there is always another. */
static void flood_on(zke *z, int type, int state, const char *path,
                     void *context) {
  (void)z, (void)type, (void)state, (void)path, (void)context;
  flood.seen++;
  for (int i = 0; i < flood.per_event && flood.made < FLOOD; i++) {
    if (change(flood.writer, "/n") == ZKE_OK) flood.made++;
  }
}

/* zke_dispatch() returns although events keep coming, and its descriptor shows
 * that there are more; none is lost. */
TEST_LOOP(dispatch_returns_in_a_flood, 1, 3) {
  zke *z = test_open(":memory:");
  flood.writer = test_session(z, NULL);
  flood.per_event = _i;
  make(z, "/n");
  ck_ok(zke_add_watch(z, "/n", ZKE_WATCH_PERSISTENT, flood_on, NULL));
  ck_ok(change(flood.writer, "/n"));
  flood.made = 1;
  for (int calls = 1; flood.seen < FLOOD; calls++) {
    int count = 0;
    ck_assert(readable(z, 0));
    ck_ok(zke_dispatch(z, &count));
    ck_assert_int_gt(count, 0);
    ck_assert_int_le(count, DISPATCH_MOST);
  }
  test_events none = {0};
  test_expect(z, &none, "");
  ck_assert_int_eq(flood.seen, FLOOD);
  ck_ok(zke_close(flood.writer));
}

/* P9: one descriptor per living owner, and only while a watcher waits for
 * it. */
TEST(death_notices_go_with_their_watchers) {
  enum { OWNERS = 12 };
  const char *db = test_path("a.db");
  test_events events = {0};
  zke *owner[OWNERS], *z = test_open(db);
  for (int i = 0; i < OWNERS; i++) {
    owner[i] = test_open(db);
    make_as(owner[i], text_of("/e%d", i), ZKE_EPHEMERAL);
  }
  ck_ok(
      zke_get(z, "/", test_record, &events, NULL, NULL, NULL)); /* one stays */
  int before = test_fd_count();
  for (int i = 0; i < OWNERS; i++) {
    const char *path = text_of("/e%d", i);
    ck_ok(zke_exists(z, path, test_record, &events, NULL));
    if (i % 2) {
      ck_ok(zke_remove_watch(z, path, ZKE_WATCH_DATA, test_record, &events));
      test_expect(z, &events, "");
    } else {
      ck_ok(change(z, path));
      test_expect(z, &events, text_of("CHANGED %s", path));
    }
    test_expect(z, &events, "");
    ck_assert_int_le(test_fd_count(), before + 1);
  }
}

static int say_owner[2]; /* its nodes exist */

/* A process that owns two ephemerals until it is killed. */
static int own_two(void *db) {
  zke *z;
  if (zke_open(db, NULL, &z) != ZKE_OK) return 1;
  for (int i = 0; i < 2; i++) {
    if (create(z, i ? "/e1" : "/e0", ZKE_EPHEMERAL) != ZKE_OK) return 2;
  }
  if (write(say_owner[1], "", 1) != 1) return 3;
  for (;;) pause();
}

/* P6: a watcher whose notice could not be made does not count for the notice of
 * another on the same owner: when it goes, removed or fired, the other's stays.
 * It used to be subtracted from a notice to which it had not been added.  The
 * clock stands still, so no sweep can report the death. */
TEST_LOOP(watcher_without_notice_takes_none_along, 0, 2) {
  char db[PATH_MAX], ready;
  test_events first = {0}, second = {0};
  snprintf(db, sizeof db, "%s", test_path("a.db"));
  ck_assert_int_eq(pipe(say_owner), 0);
  pid_t owner = test_child(own_two, db);
  ck_assert_int_eq(read(say_owner[0], &ready, 1), 1);
  seam_stand();
  zke *z = sys_open(db);
  sys.no_fifos = 1;
  ck_ok(zke_exists(z, "/e0", test_record, &first, NULL));
  ck_assert_int_eq(sys.no_fifos, 0);
  ck_ok(zke_exists(z, "/e1", test_record, &second, NULL));
  if (_i == 0)
    ck_ok(zke_remove_watch(z, "/e0", ZKE_WATCH_DATA, test_record, &first));
  else
    ck_ok(change(z, "/e0"));
  test_expect(z, &first, _i ? "CHANGED /e0" : "");
  test_expect(z, &second, "");
  kill_child(owner);
  test_expect(z, &second, "DELETED /e1");
}

static int prepared(const zke *z) {
  int count = 0;
  for (int i = 0; i < SQL_COUNT; i++) count += z->s->statement[i] != NULL;
  return count;
}

/* A process that waits for a death has prepared its statements before it
 * sleeps: none is prepared between the death and the event.  The clock stands
 * still from then on, so no sweep can report the death. */
TEST(nothing_is_prepared_at_a_death) {
  char db[PATH_MAX], ready;
  test_events events = {0};
  snprintf(db, sizeof db, "%s", test_path("a.db"));
  ck_assert_int_eq(pipe(say_owner), 0);
  pid_t owner = test_child(own_two, db);
  ck_assert_int_eq(read(say_owner[0], &ready, 1), 1);
  zke *z = sys_open(db);
  ck_ok(zke_exists(z, "/e1", test_record, &events, NULL));
  sys.polls = 0;
  while (!sys.polls)
    ck_assert_int_eq(zke_wait(z, zke_now(z) + 5), ZKE_OPERATIONTIMEOUT);
  int before = prepared(z);
  seam_stand();
  kill_child(owner);
  test_expect(z, &events, "DELETED /e1");
  ck_assert_int_eq(prepared(z), before);
  ck_ok(zke_close(z));
}

/* ---- side files ---- */

/* A symbolic link in place of the liveness file is refused, and its target is
 * not changed. */
TEST(link_for_the_liveness_file_is_refused) {
  const char *db = test_path("a.db"), *victim = test_path("victim");
  zke *z = NULL;
  put(victim, "root:x:0:0\n");
  ck_assert_int_eq(mkdir(test_path("a.db-zke"), 0700), 0);
  ck_assert_int_eq(symlink("../victim", test_path("a.db-zke/live")), 0);
  int rc = zke_open(db, NULL, &z);
  ck_assert_int_lt(rc, 0);
  ck_assert_ptr_null(z);
  ck_says("a.db-zke/live");
  expect_file(victim, "root:x:0:0\n");
}

enum { PLAIN_FILE, LINK_TO_FILE, LINK_TO_FIFO, STRANGERS };

/* Replace a side file by another file, or by a link to a file or a FIFO. */
static void put_stranger(const char *name, const char *victim, int kind) {
  ck_assert_int_eq(unlink(name), 0);
  if (kind == LINK_TO_FIFO)
    ck_assert_int_eq(mkfifo(victim, 0600), 0);
  else
    put(victim, "intact");
  if (kind == PLAIN_FILE)
    ck_assert_int_eq(link(victim, name), 0);
  else
    ck_assert_int_eq(symlink(victim, name), 0);
}

/* A FIFO's name may belong to something else: a waker writes nothing into it,
 * and the next dispatch still sees the change. */
TEST_LOOP(waker_writes_into_fifos_only, 0, STRANGERS) {
  const char *db = test_path("a.db"), *victim = test_path("victim");
  test_events events = {0};
  char byte;
  zke *z = test_open(db), *w = test_open(db);
  make(z, "/n");
  ck_ok(zke_exists(w, "/n", test_record, &events, NULL));
  put_stranger(fifo_of(db, w), victim, _i);
  int fd = open(victim, O_RDONLY | O_NONBLOCK);
  ck_assert_int_ge(fd, 0);
  ck_ok(change(z, "/n"));
  if (_i == LINK_TO_FIFO)
    ck_assert_int_le(read(fd, &byte, 1), 0);
  else
    expect_file(victim, "intact");
  test_expect(w, &events, "CHANGED /n");
  close(fd);
}

/* A handle's database was removed.  When the handle closes, it does not remove
 * the FIFO of the session with the same id in the next database. */
TEST(stale_close_leaves_the_newer_fifo) {
  const char *db = test_path("a.db");
  struct stat st;
  zke *z = test_open(db);
  test_remove(test_path("a.db-zke"));
  ck_assert_int_eq(unlink(test_path("a.db-wal")), 0);
  ck_assert_int_eq(unlink(test_path("a.db-shm")), 0);
  ck_assert_int_eq(unlink(db), 0);
  zke *w = test_open(db);
  ck_assert(zke_session_id(z) == zke_session_id(w));
  zke_close(z); /* it ends no session of this file, whatever it returns */
  ck_assert_int_eq(lstat(fifo_of(db, w), &st), 0);
  ck_assert(S_ISFIFO(st.st_mode));
}

/* How many FIFOs of sessions are in the side directory. */
static int count_fifos(const char *dir) {
  int count = 0;
  DIR *d = opendir(dir);
  ck_assert_ptr_nonnull(d);
  for (struct dirent *e; (e = readdir(d));) count += strlen(e->d_name) == 16;
  closedir(d);
  return count;
}

/* P10: FIFOs that belong to no session are removed by the next open that finds
 * no other process.  Other files stay. */
TEST(orphan_fifos_are_collected) {
  const char *db = test_path("a.db"), *dir = test_path("a.db-zke");
  const char *others = test_path("a.db-zke/by others");
  const char *sixteen = test_path("a.db-zke/a file of others");
  come_and_go(db, 1);
  put(others, "");
  put(sixteen, "");
  ck_assert_int_eq(mkfifo(test_path("a.db-zke/0000000100000abc"), 0200), 0);
  zke *z = test_open(db);
  ck_assert_int_eq(count_fifos(dir), 2); /* ours, and a similar name */
  ck_assert_int_eq(access(fifo_of(db, z), F_OK), 0);
  expect_file(others, "");
  expect_file(sixteen, "");
}

/* P6: … unless their process lives.  Other handles have ended its only session,
 * so it has none; but it may begin light ones, which are woken there. */
TEST(a_living_process_keeps_its_fifo) {
  const char *db = test_path("a.db"), *dir = test_path("a.db-zke");
  test_worker w = test_spawn("talk", NULL);
  zke *z = test_open(db);
  test_ask(&w, "open %s", db);
  ck_ok(zke_expire(z, strtoll(test_ask(&w, "id"), NULL, 10)));
  ck_ok(zke_close(z));
  ck_assert_int_eq(count_fifos(dir), 1);
  z = test_open(db);
  ck_assert_int_eq(count_fifos(dir), 2);
  ck_ok(zke_close(z));
  test_wait(&w);
}

/* The directory of the file counts, not that of a symbolic link to it. */
TEST(network_is_where_the_file_is) {
  zke *z = NULL;
  ck_assert_int_eq(mkdir(test_path("near"), 0700), 0);
  ck_assert_int_eq(mkdir(test_path("far"), 0700), 0);
  come_and_go(test_path("far/a.db"), 1);
  ck_assert_int_eq(symlink("../far/a.db", test_path("near/a.db")), 0);
  ck_assert_int_eq(symlink("../near/b.db", test_path("far/b.db")), 0);
  come_and_go(test_path("near/b.db"), 1);
  sys.far = "/far/";
  zke_options options = {.size = sizeof options, .os = seam_os(&host)};
  ck_rc(zke_open(test_path("near/a.db"), &options, &z), ZKE_NETWORKFS);
  ck_ok(zke_open(test_path("far/b.db"), &options, &z));
}

/* P10: when SQLite sleeps before it retries a lock, it does not sleep beyond
 * the call's deadline. */
TEST(sqlite_sleeps_until_the_deadline) {
  seam_stand();
  zke *z = sys_open(test_path("a.db"));
  int64_t before = seam_ahead;
  sqlite3_vfs *v = &z->s->vfs_own;
  z->s->deadline = host_now(z->s) + 2 * ZKE_MS;
  v->xSleep(v, 1000);
  ck_assert_int_eq(seam_ahead - before, ZKE_MS);
  v->xSleep(v, 5000);
  ck_assert_int_eq(seam_ahead - before, 2 * ZKE_MS);
}

/* ---- leases ---- */

static zke *open_with_lease(const char *db, int64_t ms) {
  return open_as(db, .lease_ms = ms);
}

/* P5: a stamp that cannot be read is not an old one. */
TEST_LOOP(unreadable_stamp_ends_no_lease, 0, 2) {
  const char *db = test_path("a.db");
  zke *w = open_with_lease(db, 60000);
  make_as(w, "/e", ZKE_EPHEMERAL);
  zke *z = sys_open(db);
  sys.read = _i ? SLOTS_SHORT : SLOTS_FAIL;
  for (int i = 0; i < 3; i++) {
    seam_pass(5000);
    ck_ok(see(z, "/e"));
  }
  sys.read = SLOTS_FINE;
  seam_pass(70000); /* but one that can be read does */
  ck_rc(see(z, "/e"), ZKE_NONODE);
}

/* If its first stamp could not be written, a lease does not begin, since others
 * could not see it.  A partly written stamp means a full disk.  Once stamps can
 * be written again, a lease begins. */
TEST_LOOP(lease_without_a_stamp_is_not_begun, 0, 3) {
  static const enum slot_fault faults[] = {SLOTS_FAIL, SLOTS_SHORT, SLOTS_FULL};
  const char *db = test_path("a.db");
  zke *other = test_open(db), *z = NULL;
  zke_options options = {
      .size = sizeof options, .lease_ms = 60000, .os = seam_os(&host)};
  sys.write = faults[_i];
  ck_rc(zke_open(db, &options, &z), _i ? ZKE_FULL : ZKE_SYSTEMERROR);
  ck_assert_ptr_null(z);
  ck_says("cannot write the lease's stamp into");
  ck_assert_int_eq(test_session_count(other), 1);
  ck_assert_int_eq(count_fifos(test_path("a.db-zke")), 1);
  sys.write = SLOTS_FINE;
  ck_ok(zke_open(db, &options, &z));
}

/* A caller that comes late, but before its session was ended, renews its lease:
 * it must not end the session itself. */
TEST_LOOP(late_caller_renews, 0, 2) {
  zke *z = open_as(_i ? test_path("a.db") : ":memory:", .lease_ms = 1000,
                   .os = seam_os(&host));
  make_as(z, "/e", ZKE_EPHEMERAL);
  for (int i = 0; i < 3; i++) {
    seam_pass(10000);
    ck_ok(change(z, "/e"));
    seam_pass(10000);
    ck_ok(see(z, "/e"));
  }
}

static zke *sys_open_with_lease(const char *db, int64_t ms) {
  return open_as(db, .lease_ms = ms, .os = seam_os(&host));
}

/* P5, P7: a stamp that cannot be written is tried again, with pauses: a waiting
 * process used to retry without pause. */
TEST_LOOP(failing_stamp_is_tried_with_pauses, 0, 2) {
  enum { LEASE = 8000, WAIT = 500, MOST = 10 };
  const char *db = test_path("a.db");
  seam_stand();
  zke *z = sys_open_with_lease(db, LEASE), *other = sys_open(db);
  make_as(z, "/e", ZKE_EPHEMERAL);
  seam_pass(LEASE / 4);
  sys.write = _i ? SLOTS_SHORT : SLOTS_FAIL;
  sys.stamps = sys.polls = 0;
  ck_rc(zke_wait(z, zke_now(z) + WAIT), ZKE_OPERATIONTIMEOUT);
  ck_assert_int_ge(sys.stamps, 1);
  ck_assert_int_le(sys.stamps, MOST);
  ck_assert_int_le(sys.polls, MOST);
  sys.write = SLOTS_FINE;
  ck_rc(zke_wait(z, zke_now(z) + LEASE / 8), ZKE_OPERATIONTIMEOUT);
  seam_pass(LEASE * 7 /
            8); /* that is more than a lease after the first stamp */
  ck_ok(see(other, "/e"));
  seam_pass(LEASE); /* otherwise this would have ended it */
  ck_rc(see(other, "/e"), ZKE_NONODE);
}

enum { SHORT_LEASE = 1000 };

/* After three leases the gate is free, and another handle sweeps
 * immediately. */
static struct {
  zke *sweeper;
  bool inside; /* before the waiting handle sees that it is free */
} after_wait;

static void free_gate(void) {
  if (seam_ahead < INT64_C(3) * SHORT_LEASE * ZKE_MS) return;
  sys.asleep = NULL;
  sys.gates = -1;
  if (after_wait.inside) ck_ok(see(after_wait.sweeper, "/e"));
}

/* P5: a session that waits inside a call for the gate, longer than its lease,
 * has not been silent: no other process ends it, during the wait or after it.
 * A silent session ends. */
TEST_LOOP(lease_outlasts_the_wait_for_the_gate, 0, 2) {
  const char *db = test_path("a.db");
  seam_stand();
  zke *z = sys_open_with_lease(db, SHORT_LEASE), *other = sys_open(db);
  zke *silent = session_as(other, .lease_ms = SHORT_LEASE);
  make_as(z, "/e", ZKE_EPHEMERAL);
  make_as(silent, "/silent", ZKE_EPHEMERAL);
  after_wait.sweeper = other;
  after_wait.inside = _i;
  sys.gates = 0;
  sys.asleep = free_gate;
  ck_ok(change(z, "/e"));
  ck_assert(sys.asleep == NULL);
  ck_ok(see(other, "/e"));
  ck_rc(see(other, "/silent"), ZKE_NONODE); /* there was a sweep */
  ck_ok(change(z, "/e"));
}

/* ---- memory ---- */

enum { SIX = 6 };

/* P3: a watcher that could not be called for lack of memory is called by a
 * later dispatch, exactly once. */
TEST(lack_of_memory_loses_no_watcher) {
  test_heap heap = {0};
  zke_options options = {.size = sizeof options,
                         .allocator = {test_heap_resize, &heap}};
  bool failed = true;
  for (int n = 1; failed; n++) {
    int called[SIX] = {0};
    zke *z = NULL;
    ck_ok(zke_open(":memory:", &options, &z));
    make(z, "/n");
    for (int i = 0; i < SIX; i++)
      ck_ok(zke_get(z, "/n", count_call, &called[i], NULL, NULL, NULL));
    ck_ok(change(z, "/n"));
    heap.fail_at = heap.calls + n;
    int rc = zke_dispatch(z, NULL);
    failed = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_NOMEM, "dispatch: %d", rc);
    ck_ok(zke_dispatch(z, NULL));
    ck_ok(zke_dispatch(z, NULL));
    for (int i = 0; i < SIX; i++) ck_assert_int_eq(called[i], 1);
    ck_ok(zke_close(z));
    ck_assert_int_eq(heap.live, 0);
    ck_assert_msg(failed || n > 1, "nothing was allocated");
  }
}

/* A watcher whose own call fails, with another sentence. */
static void call_in_vain(zke *z, int type, int state, const char *path,
                         void *context) {
  (void)type, (void)state, (void)path;
  ck_rc(see(z, "nowhere"), ZKE_BADARGUMENTS);
  ++*(int *)context;
}

/* zkembed.h, zke_errmsg: a dispatch's result and the sentence belong to one
 * failure, although watchers were called after it and their calls failed
 * differently: watchers of the same session, light (0) or not (1), or of
 * another one (2). */
TEST_LOOP(a_dispatch_says_what_it_returns, 0, 3) {
  test_heap heap = {0};
  int events = 0, alarms = 0, count = 0, more = 0;
  zke *z = open_as(":memory:", .allocator = {test_heap_resize, &heap});
  zke *x = session_as(z, .flags = ZKE_OPEN_LIGHT);
  make(z, "/n");
  zke *told = _i == 0 ? x : z, *rung = _i == 1 ? z : x;
  ck_ok(zke_get(told, "/n", count_call, &events, NULL, NULL, NULL));
  ck_ok(zke_call_at(rung, 0, call_in_vain, &alarms));
  ck_ok(change(z, "/n"));
  z->c->tick_at = INT64_MAX; /* no sweep reports the failure */
  heap.fail_at = heap.calls + 1;
  if (_i == 0)
    ck_rc(zke_dispatch_to(x, zke_zxid(), &count, &more), ZKE_NOMEM);
  else
    ck_rc(zke_dispatch(z, NULL), ZKE_NOMEM);
  ck_says("out of memory");
  ck_assert_int_eq(alarms, 1);
  heap.fail_at = 0;
  z->c->tick_at = 0;
  ck_until(zke_dispatch(z, NULL) == ZKE_OK && events, 5000);
  ck_ok(zke_close(x));
  ck_ok(zke_close(z));
}

/* A session has left its store's list, and there is no memory to report its
 * end: a later dispatch reports it, once. */
TEST(lack_of_memory_loses_no_end) {
  test_heap heap = {0};
  zke_options options = {.size = sizeof options,
                         .allocator = {test_heap_resize, &heap}};
  zke_options kept = {.size = sizeof kept, .timeout_ms = 600000};
  bool failed = true;
  for (int n = 1; failed; n++) {
    unsigned char password[16];
    int called = 0;
    zke *z = NULL, *x = NULL, *y = NULL;
    ck_ok(zke_open(":memory:", &options, &z));
    ck_ok(zke_open_session(z, &kept, &x));
    ck_ok(zke_password(x, password));
    ck_ok(zke_set_watcher(x, count_call, &called));
    ck_ok(zke_attach(z, zke_session_id(x), password, NULL, &y));
    heap.fail_at = heap.calls + n;
    int rc = zke_dispatch(z, NULL);
    failed = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_NOMEM, "dispatch: %d", rc);
    ck_ok(zke_dispatch(z, NULL));
    ck_ok(zke_dispatch(z, NULL));
    ck_assert_int_eq(called, 1);
    ck_ok(zke_close(x));
    ck_ok(zke_close(y));
    ck_ok(zke_close(z));
    ck_assert_int_eq(heap.live, 0);
    ck_assert_msg(failed || n > 1, "nothing was allocated");
  }
}

/* Lack of memory is not reported as lack of permission, whether the node is
 * cached or read.  The clock stands still: a call that is due for a sweep does
 * not fail if only the sweep fails. */
TEST_LOOP(lack_of_memory_is_not_lack_of_rights, 0, 2) {
  test_heap heap = {0};
  seam_stand();
  zke *z = open_as(":memory:", .os = seam_os(&host),
                   .allocator = {test_heap_resize, &heap});
  ck_ok(zke_add_auth(z, "digest", "u:p", 3));
  ck_ok(zke_create(z, "/n", "data", 4, ZKE_CREATOR_ALL_ACL, 0, NULL, NULL));
  ck_ok(zke_get(z, "/n", NULL, NULL, NULL, NULL, NULL));
  bool failed = true;
  for (int n = 1; failed; n++) {
    char *data = NULL;
    if (_i) ck_ok(zke_set(z, "/n", "data", 4, -1, NULL));
    heap.fail_at = heap.calls + n;
    int rc = zke_get(z, "/n", NULL, NULL, &data, NULL, NULL);
    failed = heap.calls >= heap.fail_at;
    heap.fail_at = 0;
    ck_rc(rc, failed ? ZKE_NOMEM : ZKE_OK);
    zke_free(data);
  }
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
}

/* How the engine reads each kind of row that has an ACL. */
static bool reads_event(store *s, sqlite3_stmt *st) {
  const char *path, *acl;
  (void)s;
  return event_texts(st, &path, &acl);
}

static bool reads_removal(store *s, sqlite3_stmt *st) {
  node_goers out = {.nodes = {.a = &s->a}, .texts = {.a = &s->a}};
  int rc = node_collect_row(st, &out);
  buf_free(&out.nodes);
  buf_free(&out.texts);
  return rc == ZKE_OK;
}

static bool reads_node(store *s, sqlite3_stmt *st) {
  node n = {.acl = NULL};
  int rc = node_read_columns(s, st, &n);
  mem_free(n.acl);
  return rc == ZKE_OK;
}

/* P2, semantics.md 8: an ACL for which SQLite has no memory is not taken for
 * the open one, though SQLite then says that the column is NULL.  It used to
 * be, and an event was reported to a session that may not read the node.
 * SQLite needs memory to make text of bytes. */
TEST_LOOP(acl_without_memory_is_not_the_open_one, 0, 3) {
  static const struct {
    const char *row;
    bool (*reads)(store *s, sqlite3_stmt *st);
  } rows[] = {{"SELECT 1,3,'/n',7,x'61'", reads_event},
              {"SELECT '/','n',x'61',0", reads_removal},
              {"SELECT 1,1,1,1,1,0,0,0,0,0,0,0,x'61',0,0,0", reads_node}};
  zke *z = test_open(":memory:");
  sqlite3_stmt *st;
  sqlite3 *db = plain_open(":memory:");
  sqlite3_db_config(db, SQLITE_DBCONFIG_LOOKASIDE, NULL, 0, 0);
  ck_assert_int_eq(sqlite3_prepare_v2(db, rows[_i].row, -1, &st, NULL), 0);
  ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
  sqlite3_hard_heap_limit64(1);
  bool read = rows[_i].reads(z->s, st);
  sqlite3_hard_heap_limit64(0);
  ck_assert(!read);
  sqlite3_reset(st);
  ck_assert_int_eq(sqlite3_step(st), SQLITE_ROW);
  ck_assert(rows[_i].reads(z->s, st));
  sqlite3_finalize(st);
}

/* ---- multi ---- */

/* A multi that could not begin has refused no operation, so the results are
 * untouched.  A multi that begins in the wrong class begins again while it
 * holds the gate. */
TEST(multi_that_could_not_begin) {
  zke_op op;
  zke_op_result result, before;
  zke *z =
      open_as(test_path("a.db"), .os = seam_os(&host), .busy_timeout_ms = 100);
  make(z, "/n");
  memset(&result, 0x5a, sizeof result);
  before = result;
  zke_op_set(&op, "/n", "x", 1, -1);
  sys.gates = 0;
  ck_rc(zke_multi(z, &op, 1, &result), ZKE_OPERATIONTIMEOUT);
  ck_assert_mem_eq(&result, &before, sizeof result);
  sys.gates = 1;
  ck_ok(zke_multi(z, &op, 1, &result));
  ck_assert_int_eq(sys.gates, 0);
  sys.gates = -1;
  zke_results_clear(&result, 1);
}

/* ---- rows and stamps that zkembed would not write ---- */

#define DEAD "4294967296"
#define LAST "9223372036854775807"
#define FIRST "(-9223372036854775807-1)"
#define EVENT(seq, path)                                     \
  "INSERT INTO zkembed_event SELECT max(id)," seq ",3," path \
  ",99999999,"                                               \
  "NULL,0 FROM zkembed_session"
#define NODE(parent, name)                              \
  "INSERT INTO zkembed_session VALUES(" DEAD            \
  ",'x',1,1,0,-1,0,0,100,0,0,0,NULL);"                  \
  "INSERT INTO zkembed_node SELECT '" parent "','" name \
  "',czxid,mzxid,pzxid,"                                \
  "ctime,mtime,0,0,0,0," DEAD                           \
  ",0,0,0,NULL,0,NULL,NULL FROM zkembed_node "          \
  "WHERE parent=''AND name=''"

/* Rows that break the invariants, each added to a good tree. */
static const char *const hostile[] = {
    EVENT("1", "'abc'"),
    EVENT("1", "''"),
    EVENT("1", "'/n/'"),
    NODE("abc", "x"),
    NODE("", "x"),
    NODE("/", "a/b"),
    NODE("/n/", ""),
    NODE("//", "/"),
    "UPDATE zkembed_session SET lease=1,slot=" LAST,
    "UPDATE zkembed_session SET lease=1,slot=" FIRST,
    "UPDATE zkembed_session SET lease=1,slot=1152921504606846976",
    "UPDATE zkembed_session SET lease=" LAST ",slot=0",
    "UPDATE zkembed_session SET lease=" FIRST ",slot=0",
    "INSERT INTO zkembed_watch SELECT 'abc',4,max(id)FROM zkembed_session",
    "INSERT INTO zkembed_watch SELECT '/n',99,max(id)FROM zkembed_session",
    "INSERT INTO zkembed_watch SELECT '/n',-3,max(id)FROM zkembed_session",
    "UPDATE zkembed_meta SET zxid=" LAST,
    "UPDATE zkembed_meta SET zxid=" LAST "-1",
    "UPDATE zkembed_meta SET zxid=-1",
    "UPDATE zkembed_meta SET zxid=" FIRST,
    "UPDATE zkembed_meta SET recursive=" LAST,
    "UPDATE zkembed_meta SET boot=hex(zeroblob(500))",
    "DELETE FROM zkembed_meta",
    "DELETE FROM zkembed_session",
    "INSERT INTO zkembed_session VALUES(" FIRST
    ",'x',1,1,0,-1,0,0,100,0,0,0,NULL)",
    "INSERT INTO zkembed_session VALUES(0,'x',1,1,0,-1,0,0,100,0,0,0,NULL)",
    "INSERT INTO zkembed_session VALUES(5,'x',1,1,0,-1,0,0,100,0,1," FIRST
    ",NULL)",
    "INSERT INTO zkembed_session VALUES(5,'x',1,1,0,-1,0,0,100,0," LAST "," LAST
    ",zeroblob(16))",
    "INSERT INTO zkembed_session VALUES(5,'x',1,1,0,-1,0," FIRST
    ",100,0,1,0,zeroblob(3))",
    "UPDATE zkembed_session SET carrier=" LAST,
    "UPDATE zkembed_session SET timeout=" FIRST,
    "UPDATE zkembed_meta SET lost=" LAST,
    "UPDATE zkembed_session SET event_limit=" FIRST,
    "DELETE FROM zkembed_node WHERE parent=''",
    "UPDATE zkembed_node SET version=" LAST ",aversion=" LAST,
    "UPDATE zkembed_node SET len=-1",
    "UPDATE zkembed_node SET blob=" LAST ",len=5",
    "UPDATE zkembed_node SET acl=''",
    "UPDATE zkembed_node SET acl='99999999999999999999:world:anyone'||char(10)",
    "UPDATE zkembed_node SET acl='31:digest:u:'||char(92)",
    "UPDATE zkembed_node SET acl='31:digest:u:'||char(92)||char(10)",
    "UPDATE zkembed_node SET name=CAST(x'610062' AS TEXT)WHERE name='d'",
    "UPDATE zkembed_node SET parent=CAST(x'ff00ff' AS TEXT)WHERE name='d'",
};

/* Some calls of each kind; they only have to return. */
static void touch_everything(zke *z) {
  zke_strings *names = NULL;
  zke_session_list *sessions = NULL;
  zke_watch_list *watches = NULL;
  if (zke_children(z, "/", NULL, NULL, &names, NULL) == ZKE_OK) zke_free(names);
  if (zke_ephemerals(z, atoll(DEAD), NULL, &names) == ZKE_OK) zke_free(names);
  if (zke_sessions(z, -1, &sessions) == ZKE_OK) zke_free(sessions);
  if (zke_watches(z, &watches) == ZKE_OK) zke_free(watches);
  zke_dispatch(z, NULL);
  change(z, "/n");
  zke_expire(z, atoll(DEAD));
  create(z, "/n/c", ZKE_EPHEMERAL_SEQUENTIAL);
  zke_delete(z, "/d", -1);
  zke_check(z, NULL, NULL);
  zke_dispatch(z, NULL);
}

/* A tree with watches of each kind. */
static zke *open_good_tree(const char *db, test_events *events) {
  zke *z = sys_open(db);
  make(z, "/n");
  make(z, "/d");
  ck_ok(zke_add_watch(z, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, test_record,
                      events));
  ck_ok(zke_get(z, "/n", test_record, events, NULL, NULL, NULL));
  return z;
}

/* Damaged rows cause errors at worst; a sanitizer makes this test stronger. */
TEST_LOOP(damaged_rows_do_no_harm, 0,
          (int)(sizeof hostile / sizeof hostile[0])) {
  const char *db = test_path("a.db");
  test_events events = {0};
  zke *again = NULL, *z = open_good_tree(db, &events);
  sql_on(db, hostile[_i]);
  touch_everything(z);
  seam_pass(5000);
  touch_everything(z);
  if (zke_open(db, NULL, &again) == ZKE_OK) {
    touch_everything(again);
    zke_close(again);
  }
  zke_close(z);
}

/* An impossible length of a node is reported as damage, and not cut down to one
 * that fits. */
TEST_LOOP(impossible_length_is_damage, 0, 2) {
  static const char *const lengths[] = {"-2", "2147483648"};
  const char *db = test_path("a.db");
  zke_stat stat;
  zke *z = test_open(db);
  make(z, "/n");
  sql_on(db,
         text_of("UPDATE zkembed_node SET len=%s WHERE name='n'", lengths[_i]));
  ck_rc(zke_exists(z, "/n", NULL, NULL, &stat), ZKE_CORRUPT);
  ck_says("impossible length");
  ck_rc(change(z, "/n"), ZKE_CORRUPT);
  ck_rc(zke_check(z, NULL, NULL), ZKE_DATAINCONSISTENCY);
  zke_close(z);
}

/* A length that differs from the data's is damage too: a part is not taken for
 * the whole. */
TEST(missing_data_is_damage) {
  const char *db = test_path("a.db");
  char *data = NULL;
  zke *z = test_open(db);
  make(z, "/n");
  ck_ok(change(z, "/n"));
  sql_on(db, "UPDATE zkembed_node SET len=2 WHERE name='n'");
  ck_rc(zke_get(z, "/n", NULL, NULL, &data, NULL, NULL), ZKE_CORRUPT);
  ck_says("a node's data is missing");
  zke_close(z);
}

/* P5: an impossible slot is not an expired lease. */
TEST_LOOP(hostile_slot_ends_no_session, 0, 3) {
  static const char *const slots[] = {LAST, "1152921504606846976", "-5"};
  const char *db = test_path("a.db");
  zke *w = test_open(db), *z = sys_open(db);
  make_as(w, "/e", ZKE_EPHEMERAL);
  sql_on(db, text_of("UPDATE zkembed_session SET lease=1,slot=%s WHERE id=%lld",
                     slots[_i], (long long)zke_session_id(w)));
  seam_pass(5000);
  ck_ok(see(z, "/e"));
  ck_ok(see(w, "/e"));
}

/* A zxid at the end of its range is damage; no negative one follows it. */
TEST(used_up_zxids_are_damage) {
  const char *db = test_path("a.db");
  zke *again = NULL, *z = test_open(db);
  sql_on(db, "UPDATE zkembed_meta SET zxid=" LAST);
  ck_rc(change(z, "/"), ZKE_CORRUPT);
  ck_rc(zke_open(db, NULL, &again), ZKE_CORRUPT);
  ck_assert_ptr_null(again);
  zke_close(z);
}

static void put_stamp(const char *db, int64_t at, int64_t stamp) {
  int fd = open(text_of("%s-zke/live", db), O_WRONLY);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(pwrite(fd, &stamp, sizeof stamp, at), sizeof stamp);
  close(fd);
}

/* The same for the zxid in the liveness file. */
TEST_LOOP(impossible_zxid_in_the_liveness_file, 0, 2) {
  const char *db = test_path("a.db");
  zke *z = NULL;
  come_and_go(db, 1);
  put_stamp(db, SIDE_ZXID_AT, INT64_MAX - _i);
  ck_rc(zke_open(db, NULL, &z), ZKE_CORRUPT);
  ck_assert_ptr_null(z);
  put_stamp(db, SIDE_ZXID_AT, INT64_MIN + _i);
  come_and_go(db, 1);
}

/* Stamps of sweeps and of leases by an impossible clock. */
TEST_LOOP(impossible_times_in_the_liveness_file, 0, 4) {
  static const int64_t stamps[] = {INT64_MAX, INT64_MAX - 1, 0, -1};
  const char *db = test_path("a.db");
  zke *w = open_with_lease(db, 60000), *z = sys_open(db);
  make_as(w, "/e", ZKE_EPHEMERAL);
  put_stamp(db, SIDE_SWEEP_AT, stamps[_i]);
  put_stamp(db, LEASE_SLOTS_AT, stamps[_i]);
  seam_pass(5000);
  ck_ok(see(z, "/e"));
  ck_ok(change(w, "/e"));
}

/* ---- watchers in memory ---- */

enum { REG_PATHS = 3, REG_CONTEXTS = 4, REG_STEPS = 4000 };

/* Does the pair (NULL: any) count for this removal? */
static bool watcher_counts(const watcher *w, unsigned tables,
                           const watcher_pair *pair) {
  return (w->tables & tables) && (!pair || w->pair == pair);
}

/* The tables in which the watcher needs its row: not those in which it has
 * fired and another registration has made the row again. */
static unsigned watcher_walk_needs(const watcher_spot *spot, const watcher *w) {
  unsigned needs = w->tables;
  for (int table = 0; table < 2 && w->mode == WATCH_ONE_SHOT; table++) {
    if (w->zxid < spot->since[watch_kind(w->mode, table)])
      needs &= ~(1u << table);
  }
  return needs;
}

/* The result that watcher_unneeded() must have, from a walk over all watchers
 * of the spot. */
static unsigned watcher_walk_unneeded(const watcher_spot *spot, unsigned tables,
                                      const watcher_pair *pair) {
  unsigned removed = 0, kept = 0;
  for (const watcher *w = spot->first; w; w = w->next) {
    unsigned gone = watcher_counts(w, tables, pair) ? tables : 0;
    unsigned needed = watcher_walk_needs(spot, w);
    removed |= (needed & gone) << 2 * w->mode;
    kept |= (needed & ~gone) << 2 * w->mode;
  }
  return removed & ~kept;
}

static bool watcher_walk_has(const watcher *like) {
  const watcher *w = like->spot->first;
  while (w && (w->pair != like->pair || w->mode != like->mode ||
               w->tables != like->tables || !watcher_is_current(like->spot, w)))
    w = w->next;
  return w != NULL;
}

/* The lists and counts of one spot agree, and every question has the same
 * answer as from a walk. */
static void watcher_expect_spot(zke *z, const watcher_spot *spot,
                                size_t *watchers, size_t *recursive) {
  size_t count = 0, kinds[6] = {0}, stale[6] = {0};
  const watcher *before = NULL;
  for (const watcher *w = spot->first; w; before = w, w = w->next) {
    ck_assert_ptr_eq(w->prev, before);
    ck_assert_ptr_eq(w->spot, spot);
    ck_assert_int_ne(w->tables, 0);
    if (before) ck_assert_int_ge(w->zxid, before->zxid);
    unsigned fired = w->tables & ~watcher_walk_needs(spot, w);
    for (int table = 0; table < 2; table++) {
      kinds[watch_kind(w->mode, table)] += (w->tables >> table) & 1;
      stale[watch_kind(w->mode, table)] += (fired >> table) & 1;
    }
    *recursive += w->mode == WATCH_RECURSIVE;
    count++;
    ck_assert_int_eq(watcher_same(w) != NULL, watcher_walk_has(w));
    for (unsigned tables = 1; tables < 4; tables++) {
      ck_assert_int_eq(watcher_unneeded(spot, tables, w->pair),
                       watcher_walk_unneeded(spot, tables, w->pair));
      ck_assert_int_eq(watcher_unneeded(spot, tables, NULL),
                       watcher_walk_unneeded(spot, tables, NULL));
    }
  }
  ck_assert_ptr_eq(spot->last, before);
  ck_assert_int_gt(count, 0);
  ck_assert_int_eq(spot->count, count);
  ck_assert_mem_eq(spot->kinds, kinds, sizeof kinds);
  ck_assert_mem_eq(spot->stale, stale, sizeof stale);
  *watchers += count;
  ck_assert_ptr_eq(watcher_find_spot(z, spot->path, strlen(spot->path)), spot);
}

static size_t watcher_expect_pair(zke *z, const watcher_pair *pair) {
  size_t count = 0;
  const watcher *after = NULL;
  for (const watcher *w = pair->newest; w; after = w, w = w->older) {
    ck_assert_ptr_eq(w->newer, after);
    ck_assert_ptr_eq(w->pair, pair);
    count++;
  }
  ck_assert_int_gt(count, 0);
  ck_assert_int_eq(pair->count, count);
  ck_assert_ptr_eq(watcher_find_pair(z, pair->key.fn, pair->key.context), pair);
  return count;
}

static void watcher_expect(zke *z) {
  size_t watchers = 0, recursive = 0, of_pairs = 0;
  for (size_t i = 0; i < z->spots.cap; i++) {
    for (watcher_item *item = z->spots.at[i]; item; item = item->next)
      watcher_expect_spot(z, (watcher_spot *)item, &watchers, &recursive);
  }
  for (size_t i = 0; i < z->pairs.cap; i++) {
    for (watcher_item *item = z->pairs.at[i]; item; item = item->next)
      of_pairs += watcher_expect_pair(z, (watcher_pair *)item);
  }
  ck_assert_int_eq(z->watcher_count, watchers);
  ck_assert_int_eq(z->recursive_count, recursive);
  ck_assert_int_eq(of_pairs, watchers);
}

static void watcher_step(zke *z, int *contexts) {
  static const char *const paths[REG_PATHS] = {"/", "/a", "/a/b"};
  const char *path = paths[rand() % REG_PATHS];
  int *context = &contexts[rand() % REG_CONTEXTS], what = rand() % 16;
  if (what < 3)
    zke_exists(z, path, test_ignore, context, NULL);
  else if (what < 5)
    zke_children(z, path, test_ignore, context, NULL, NULL);
  else if (what < 8)
    zke_add_watch(z, path, rand() % 2, test_ignore, context);
  else if (what < 10)
    zke_set(z, path, "", 0, -1, NULL);
  else if (what == 10)
    zke_delete(z, path, -1);
  else if (what == 11)
    create(z, path, ZKE_PERSISTENT);
  else if (what < 14)
    zke_remove_watch(z, path, 1 + rand() % 3, test_ignore, context);
  else if (what == 14 && rand() % 4 == 0)
    zke_remove_watch(z, path, 1 + rand() % 3, NULL, NULL);
  else if (what == 15 && rand() % 4 == 0)
    ck_ok(zke_forget(z, test_ignore, context));
  if (rand() % 8 == 0) ck_ok(zke_dispatch(z, NULL));
}

/* A watch that has fired does not keep a row that another registration has
 * made: the row goes with the last watcher that needs it. */
TEST(a_fired_watch_keeps_no_row) {
  int one, other;
  zke_watch_list *left = NULL;
  zke *z = test_open(":memory:");
  ck_ok(zke_exists(z, "/", test_ignore, &one, NULL));
  ck_ok(zke_set(z, "/", "", 0, -1, NULL));
  ck_ok(zke_exists(z, "/", test_ignore, &other, NULL));
  watcher_expect(z);
  ck_ok(zke_forget(z, test_ignore, &other));
  ck_ok(zke_watches(z, &left));
  ck_assert_int_eq(left->count, 0);
  zke_free(left);
  ck_ok(zke_dispatch(z, NULL));
  watcher_expect(z);
}

/* P3, P4: whatever is registered, fired, dispatched, removed and forgotten, the
 * lists of spots and of pairs hold the same watchers, and a question to the
 * shorter list has the same answer as a walk over all. */
TEST(watchers_are_in_two_lists) {
  int contexts[REG_CONTEXTS];
  srand(test_seed());
  zke *z = test_open(":memory:");
  for (int i = 0; i < REG_STEPS; i++) {
    watcher_step(z, contexts);
    watcher_expect(z);
  }
  for (int i = 0; i < REG_CONTEXTS; i++)
    ck_ok(zke_forget(z, test_ignore, &contexts[i]));
  ck_assert_int_eq(z->spots.count, 0);
  ck_assert_int_eq(z->pairs.count, 0);
  zke_watch_list *left = NULL;
  ck_ok(zke_watches(z, &left));
  ck_assert_int_eq(left->count, 0);
  zke_free(left);
}
