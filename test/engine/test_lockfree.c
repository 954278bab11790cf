/* test_lockfree.c - reads without locks, and which process checks the files
 *
 * White-box.  A VFS over the default one calls the test before SQLite's n-th
 * read, lock or barrier.  There another connection changes the data that is
 * being read, runs a checkpoint, or restarts the log.  For every n the read
 * must return one committed state, and not an old one.  The clock stands still
 * unless a test moves it, so nothing but the tested call happens. */
#define _GNU_SOURCE
#define ZKE_CHECKPOINT_PAGES 64
#define ZKE_CHECKPOINT_RETRY_PAGES 16
static int read_locks, plain_log; /* for stores that are opened from now on */
#define ZKE_READ_LOCKS read_locks
#define ZKE_PLAIN_LOG plain_log
#include "zkembed.c"
#include "test/seam.h"
#include "test/engine/calls.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- a VFS that calls back ---- */

static struct {
  bool page_1_only; /* writes to other pages of the database fail */
  bool armed;
  int calls;        /* since it was armed */
  int first, times; /* the call to act before, and how many in all */
  void (*act)(void);
  int read_locks; /* requested: a read's own */
  int mark_locks; /* … and to set a mark */
  int unlocks;    /* of either */
  bool writing;   /* it has SQLite's write lock: others would wait */
  void (*see_otherwise)(shm_index *x); /* before the header is read */
} spy;

/* One of the reader's calls to its files: at the chosen one the test acts,
 * unless a writer is inside, for which it would wait. */
static void spy_call(seam_call *c) {
  (void)c;
  if (!spy.armed) return;
  int call = ++spy.calls;
  if (call < spy.first || call >= spy.first + spy.times) return;
  if (spy.writing) return;
  spy.armed = false;
  spy.act();
  spy.armed = true;
}

/* Counts the locks that a read takes; there should be none. */
static void spy_lock(seam_call *c) {
  spy_call(c);
  if (c->at < SHM_READ) return;
  if (c->size == 1 && (c->how & SQLITE_SHM_LOCK)) {
    spy.read_locks += (c->how & SQLITE_SHM_SHARED) != 0;
    spy.mark_locks += (c->how & SQLITE_SHM_EXCLUSIVE) != 0;
  }
  spy.unlocks += (c->how & SQLITE_SHM_UNLOCK) != 0;
}

static void spy_locked(seam_call *c) {
  if (c->at == 0 && c->result == SQLITE_OK)
    spy.writing = (c->how & SQLITE_SHM_LOCK) != 0;
}

static void spy_barrier(seam_call *c) {
  spy_call(c);
  if (spy.see_otherwise) spy.see_otherwise(file_owner(c->file));
}

static void spy_write(seam_call *c) {
  bool database = (c->opened_as & SQLITE_OPEN_MAIN_DB) != 0;
  if (spy.page_1_only && database && c->at > 0)
    seam_refuse(c, SQLITE_IOERR_WRITE);
}

static seam spied = {.vfs = "unix-spy",
                     .fail = {[SEAM_xSync] = {.result = SQLITE_IOERR_FSYNC}},
                     .before = {[SEAM_xRead] = spy_call,
                                [SEAM_xWrite] = spy_write,
                                [SEAM_xShmLock] = spy_lock,
                                [SEAM_xShmBarrier] = spy_barrier},
                     .after = {[SEAM_xShmLock] = spy_locked}};

/* From now on: act before the `first` call and the next ones, `times` in
 * all. */
static void spy_arm(int first, int times, void (*act)(void)) {
  spy.calls = spy.read_locks = spy.mark_locks = spy.unlocks = 0;
  spy.first = first;
  spy.times = times;
  spy.act = act;
  spy.armed = true;
}

/* Has the chosen call been made? */
static bool spy_disarm(void) {
  spy.armed = false;
  return spy.calls >= spy.first;
}

/* ---- a clock that stands still, checks of the files ---- */

static bool clock_goes;
static seam looking; /* its stat() calls on a database are counted */

/* How often these warnings came: the log cannot be moved into the database;
 * SQLite is not a known one. */
static int in_the_way, strange;

static void warn(void *context, int level, const char *text) {
  (void)context;
  if (strstr(text, "keeps the write-ahead log")) in_the_way++;
  if (!strstr(text, "keeps an unknown kind of WAL-index")) return;
  ck_assert_int_eq(level, ZKE_LOG_WARN);
  strange++;
}

/* A handle on that clock, by a VFS.  If the test says so, its checks of the
 * files are counted. */
static zke *open_with(const char *vfs, const char *counted, unsigned flags) {
  if (!clock_goes) seam_stand();
  return open_as(test_path("a.db"), .vfs = vfs, .flags = flags,
                 .durability = ZKE_DURABLE_NONE,
                 .os = seam_os(counted ? &looking : &spied), .log = warn);
}

/* ---- generations ----
 *
 * A change makes a generation of the tree: /g, a value of several pages, and
 * the children of /c in one transaction.  The number is the version of /g and
 * fills its data; it is also the version of /s, a short value.  /c has MANY
 * permanent children, one named by the number, and a few more, as many as the
 * number says. */

enum { MANY = 300, VALUE = 20000, SOME = 5 };

static int generation; /* the last one, as far as this process knows */

static const char *child(const char *kind, int n) {
  static char name[8][40];
  static unsigned next;
  char *at = name[next++ % 8];
  snprintf(at, sizeof name[0], "/c/%s-%08d", kind, n);
  return at;
}

/* The data of a generation: its number repeated, so that a mix of two
 * generations shows. */
static const char *value(int n) {
  static char data[VALUE + 1];
  char number[16];
  int len = snprintf(number, sizeof number, "%9d ", n);
  for (int at = 0; at < VALUE; at += len)
    memcpy(data + at, number, (size_t)len);
  return data;
}

/* The tree of generation 0. */
static void first_generation(zke *z) {
  generation = 0;
  make(z, "/c");
  for (int i = 0; i < MANY; i++) make(z, child("still", i));
  make(z, child("gen", 0));
  ck_ok(zke_create(z, "/g", value(0), VALUE, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_ok(zke_create(z, "/s", "0", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
}

/* Make the generation after n; ZKE_BADVERSION if n is not the current one. */
static int try_advance(zke *z, int n) {
  zke_op ops[4 + SOME];
  char number[16];
  int count = 4, len = snprintf(number, sizeof number, "%d", n + 1);
  zke_op_set(&ops[0], "/g", value(n + 1), VALUE, n);
  zke_op_delete(&ops[1], child("gen", n), -1);
  zke_op_create(&ops[2], child("gen", n + 1), "", 0, ZKE_OPEN_ACL,
                ZKE_PERSISTENT);
  zke_op_set(&ops[3], "/s", number, len, n);
  if ((n + 1) % SOME) {
    zke_op_create(&ops[count++], child("more", n % SOME), "", 0, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
  }
  for (int i = 0; (n + 1) % SOME == 0 && i < SOME - 1; i++)
    zke_op_delete(&ops[count++], child("more", i), -1);
  return zke_multi(z, ops, count, NULL);
}

static void advance(zke *z, int times) {
  for (int i = 0; i < times; i++) ck_ok(try_advance(z, generation++));
}

/* The generation of /g. */
static int read_value(zke *z) {
  char *data = NULL;
  int len;
  zke_stat stat;
  ck_ok(zke_get(z, "/g", NULL, NULL, &data, &len, &stat));
  ck_assert_int_eq(len, VALUE);
  ck_assert_int_eq(stat.dataLength, VALUE);
  ck_assert_str_eq(data, value(stat.version));
  zke_free(data);
  return stat.version;
}

/* The generation of /s.  It is short, so the store caches it. */
static int read_short(zke *z) {
  char *data = NULL;
  int len;
  zke_stat stat;
  ck_ok(zke_get(z, "/s", NULL, NULL, &data, &len, &stat));
  ck_assert_int_eq(atoi(data), stat.version);
  zke_free(data);
  return stat.version;
}

/* The generation of the children of /c. */
static int read_names(zke *z) {
  zke_strings *names = NULL;
  zke_stat stat;
  int count[3] = {0}, n = -1;
  ck_ok(zke_children(z, "/c", NULL, NULL, &names, &stat));
  ck_assert_int_eq(names->count, stat.numChildren);
  for (int i = 0; i < names->count; i++) {
    const char *name = names->data[i];
    int kind = name[0] == 's' ? 0 : 2;
    if (name[0] == 'g') {
      n = atoi(name + strlen("gen-"));
      kind = 1;
    }
    count[kind]++;
    if (i > 0) ck_assert_int_lt(strcmp(names->data[i - 1], name), 0);
  }
  zke_free(names);
  ck_assert_int_eq(count[0], MANY);
  ck_assert_int_eq(count[1], 1);
  ck_assert_int_eq(count[2], n % SOME);
  return n;
}

/* ---- a reader, a writer, and one that checkpoints ---- */

static zke *reader, *writer;
static sqlite3 *plain;

/* A connection of plain SQLite, which knows nothing of this library and runs no
 * checkpoint by itself. */
static void open_plain(const char *vfs) {
  ck_assert_int_eq(
      sqlite3_open_v2(test_path("a.db"), &plain, SQLITE_OPEN_READWRITE, vfs),
      SQLITE_OK);
  sqlite3_wal_autocheckpoint(plain, 0);
  must(plain, "SELECT * FROM zkembed_meta"); /* so that it knows of the log */
}

/* A writer, a reader with observed calls, and the plain connection. */
static void begin(void) {
  writer = open_with(NULL, NULL, 0);
  first_generation(writer);
  reader = open_with(seam_vfs(&spied), NULL, 0);
  open_plain(NULL);
}

/* Run by a connection that is not ours: no reader may block it. */
static void checkpoint(int mode) {
  int log = -1, moved = -1;
  int rc = sqlite3_wal_checkpoint_v2(plain, "main", mode, &log, &moved);
  ck_assert_int_eq(rc, SQLITE_OK);
  ck_assert_int_ge(log, 0);
  ck_assert_int_eq(log, moved);
}

static int64_t log_bytes(void) {
  struct stat st;
  ck_assert_int_eq(stat(test_path("a.db-wal"), &st), 0);
  return st.st_size;
}

/* Drop the database's pages from the reader's memory. */
static void make_cold(zke *z) {
  ck_ok(db_end(z->s));
  sqlite3_db_release_memory(z->s->db);
}

/* The writer leaves checkpoints to the test. */
static void keep_log(void) { writer->s->wal_limit = INT_MAX; }

/* Read without locks again, whatever happened before. */
static void trust(zke *z) { z->s->index.distrust = 0; }

/* ---- a read that is kept open ---- */

/* No checkpoint waits for an idle reader, and its next read is not stale,
 * whether the writer is in the same process or in another. */
TEST(idle_reader_hinders_nobody) {
  begin();
  int64_t most = (int64_t)3 * ZKE_CHECKPOINT_PAGES * (4096 + WAL_FRAME);
  for (int i = 0; i < 20; i++) {
    ck_assert_int_eq(read_value(reader), generation);
    ck_assert(reader->s->index.open);
    advance(writer, ZKE_CHECKPOINT_PAGES / 8);
    ck_assert_int_lt(log_bytes(), most);
    ck_assert_int_lt(writer->s->wal_pages, 2 * ZKE_CHECKPOINT_PAGES);
  }
  ck_assert_int_eq(read_names(reader), generation);
  ck_assert_int_eq(in_the_way, 0);
}

/* ---- cached nodes ---- */

/* How often a statement was run since the last call. */
static int runs(const zke *z, const sql_text *sql) {
  sqlite3_stmt *st = z->s->statement[sql->id];
  return st ? sqlite3_stmt_status(st, SQLITE_STMTSTATUS_RUN, 1) : 0;
}

/* How often SQLite was asked for a node since the last call. */
static int asked(const zke *z) {
  return runs(z, SQL_NODE_DATA) + runs(z, SQL_NODE_ROW);
}

/* The data of a node is this text, or NULL, with the right length. */
static void gives(zke *z, const char *path, const char *text) {
  char *data = NULL;
  int len;
  zke_stat stat;
  ck_ok(zke_get(z, path, NULL, NULL, &data, &len, &stat));
  if (text)
    ck_assert_str_eq(data, text);
  else
    ck_assert_ptr_null(data);
  ck_assert_int_eq(len, text ? (int)strlen(text) : -1);
  ck_assert_int_eq(stat.dataLength, text ? len : 0);
  zke_free(data);
}

/* SQLite is asked for a node once, and again if its data was not read before;
 * and after each commit, whatever it changed and whichever handle made it. */
TEST(a_node_is_read_once_until_a_commit) {
  zke_stat stat;
  begin();
  ck_ok(zke_create(writer, "/null", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  read_short(reader);
  trust(reader);
  zke *const changing[] = {writer, reader, NULL};
  for (int i = 0; i < 3; i++) {
    if (changing[i]) advance(changing[i], 1);
    asked(reader);
    for (int again = 0; again < 3; again++) {
      stat = test_stat(reader, "/s");
      ck_assert_int_eq(stat.version, generation);
      ck_assert_int_eq(asked(reader), changing[i] && !again);
    }
    for (int again = 0; again < 3; again++) {
      ck_assert_int_eq(read_short(reader), generation);
      gives(reader, "/c", "");
      gives(reader, "/null", NULL);
      ck_assert_int_eq(asked(reader), changing[i] && !again ? 3 : 0);
    }
  }
  ck_ok(zke_delete(writer, "/s", -1));
  ck_assert_int_eq(zke_exists(reader, "/s", NULL, NULL, NULL), ZKE_NONODE);
}

/* More nodes than there are places, and one too long for any: each read returns
 * its own node. */
TEST(nodes_that_share_a_place) {
  char path[40], text[16];
  begin();
  int most = 2 * (int)node_cached_most(reader->s);
  for (int i = 0; i < most; i++) {
    snprintf(path, sizeof path, "/c/%d", i);
    int len = snprintf(text, sizeof text, "%d", i);
    ck_ok(zke_create(writer, path, text, len, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                     NULL, NULL));
  }
  for (int i = 0; i < 3 * most; i++) {
    snprintf(path, sizeof path, "/c/%d", i % most);
    snprintf(text, sizeof text, "%d", i % most);
    gives(reader, path, text);
    ck_assert_int_eq(read_value(reader), generation);
  }
}

/* A node that one session has read is not given to another session of the same
 * store without permission to read it. */
TEST(a_kept_node_has_its_acl) {
  begin();
  ck_ok(zke_add_auth(reader, "digest", "a:b", 3));
  ck_ok(zke_create(reader, "/mine", "x", 1, ZKE_CREATOR_ALL_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  zke *other = test_session(reader, NULL);
  for (int i = 0; i < 2; i++) gives(reader, "/mine", "x");
  asked(reader);
  gives(reader, "/mine", "x");
  ck_assert_int_eq(zke_get(other, "/mine", NULL, NULL, NULL, NULL, NULL),
                   ZKE_NOAUTH);
  ck_ok(zke_exists(other, "/mine", NULL, NULL, NULL));
  ck_assert_int_eq(asked(reader), 0);
  ck_ok(zke_close(other));
}

/* A tree in memory has no other process that could commit: its reads continue
 * until it makes a change itself. */
TEST(nodes_kept_in_memory) {
  zke *z = test_open(":memory:");
  make(z, "/a");
  for (int i = 0; i < 3; i++) {
    char text[] = {(char)('a' + i), 0};
    ck_ok(zke_set(z, "/a", text, 1, -1, NULL));
    gives(z, "/a", text);
    asked(z);
    gives(z, "/a", text);
    ck_assert_int_eq(asked(z), 0);
  }
  ck_ok(zke_close(z));
}

/* Run in a child that has no handle yet; its exit status reports. */
static pid_t start_child(void (*run)(void)) {
  fflush(NULL);
  pid_t pid = fork();
  ck_assert_int_ge(pid, 0);
  if (pid) return pid;
  run();
  _exit(0);
}

static void end_child(pid_t pid) { ck_assert_int_eq(test_child_end(pid), 0); }

/* Shared with children. */
static struct { atomic_int step, committed, reads, checkpoints; } * shared;

/* What the test's processes share: memory, the directory, the stopped
 * clocks. */
static void share(void) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert_ptr_ne(shared, MAP_FAILED);
  test_path("a.db");             /* the directory is the parent's */
  if (!clock_goes) seam_stand(); /* and the time */
}

/* A process that writes a hundred generations while the reader sleeps. */
static void write_apart(void) {
  ck_until(atomic_load(&shared->step) == 1, 10000);
  writer = open_with(NULL, NULL, 0);
  advance(writer, 100);
  ck_assert_int_eq(in_the_way, 0);
  ck_assert_int_lt(writer->s->wal_pages, 2 * ZKE_CHECKPOINT_PAGES);
  atomic_store(&shared->step, 2);
  ck_until(atomic_load(&shared->step) == 3, 10000);
  ck_ok(zke_close(writer));
}

/* A reader sleeps while another process writes, runs checkpoints and restarts
 * the log; afterwards it reads the newest state. */
TEST(idle_reader_beside_another_process) {
  share();
  pid_t pid = start_child(write_apart);
  begin();
  ck_assert_int_eq(read_value(reader), 0);
  ck_assert(reader->s->index.open);
  atomic_store(&shared->step, 1);
  ck_until(atomic_load(&shared->step) == 2, 20000);
  ck_assert_int_eq(read_value(reader), 100);
  ck_assert_int_eq(read_names(reader), 100);
  atomic_store(&shared->step, 3);
  end_child(pid);
}

/* … the same with checkpoints of other programs. */
TEST(idle_reader_and_foreign_checkpoints) {
  static const int modes[] = {SQLITE_CHECKPOINT_TRUNCATE,
                              SQLITE_CHECKPOINT_RESTART, SQLITE_CHECKPOINT_FULL,
                              SQLITE_CHECKPOINT_PASSIVE};
  begin();
  for (int i = 0; i < 12; i++) {
    ck_assert_int_eq(read_value(reader), generation);
    ck_assert(reader->s->index.open);
    checkpoint(modes[i % 4]);
    if (i % 4 == 0) ck_assert_int_eq(log_bytes(), 0);
    if (i % 3 == 0) ck_assert_int_eq(read_value(reader), generation);
    advance(writer, i % 5);
  }
}

/* A get that finds the cached state current takes no lock of SQLite. */
TEST(read_takes_no_lock) {
  begin();
  for (int i = 0; i < 4; i++) {
    read_value(reader);
    trust(reader);
    advance(writer, i % 2);
    spy_arm(0, 0, NULL);
    ck_assert_int_eq(read_value(reader), generation);
    ck_ok(zke_dispatch(reader, NULL));
    spy_disarm();
    ck_assert_int_eq(spy.read_locks, 0);
    ck_assert_int_eq(spy.mark_locks, 0);
    ck_assert_int_eq(spy.unlocks, 0);
    if (i % 2 == 0) ck_assert_int_le(spy.calls, 20);
  }
}

/* ---- interference during a read ---- */

enum { FROM_LOG, FROM_FILE, FROM_MEMORY, PLACES };

static int act_kind, act_count;

/* Change the data that is being read, in one of these ways. */
static void interfere(void) {
  act_count++;
  bool first = act_count == 1; /* after that the reader may take locks */
  if (first && act_kind == 1) checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
  advance(writer, 1);
  if (first && act_kind == 2) checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
  if (first && act_kind == 3) checkpoint(SQLITE_CHECKPOINT_RESTART);
  if (first && act_kind == 4) checkpoint(SQLITE_CHECKPOINT_PASSIVE);
  if (act_kind > 0) advance(writer, 3);
}

enum { ACTS = 5 };

/* Put the data into the log or the database, or leave it cached. */
static void place(int where) {
  trust(reader);
  if (where == FROM_FILE) checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
  advance(writer, where == FROM_LOG);
  if (where == FROM_MEMORY) {
    read_value(reader);
    read_short(reader);
    read_names(reader);
  } else {
    make_cold(reader);
  }
  act_count = 0;
}

/* One read with interference before its n-th call; false if it makes fewer. */
static bool disturb(int (*read)(zke *), int where, int n, int times) {
  place(where);
  int before = generation;
  spy_arm(n, times, interfere);
  int got = read(reader);
  bool reached = spy_disarm();
  ck_assert_msg(got >= before && got <= generation,
                "place %d, act %d, call %d: got %d, not %d to %d", where,
                act_kind, n, got, before, generation);
  if (times == 1) ck_assert_int_eq(act_count, reached);
  if (!reached) ck_assert_int_eq(reader->s->index.distrust, 0);
  if (where != FROM_MEMORY && n == 1 && times == 1)
    ck_assert_int_gt(spy.calls, 8);
  ck_assert_int_eq(read(reader), generation);
  return reached;
}

static int (*const readings[])(zke *) = {read_value, read_names, read_short};

/* A read with every act of another connection, in every place of the log,
 * before each of its calls. */
static void disturb_all(int (*read)(zke *)) {
  begin();
  keep_log();
  read(reader); /* checks the session, once a tick */
  for (int where = 0; where < PLACES; where++) {
    for (act_kind = 0; act_kind < ACTS; act_kind++) {
      for (int times = 1; times < 4; times += 2) {
        for (int n = 1; disturb(read, where, n, times);) n++;
      }
    }
  }
}

/* Another connection commits before each step of a read: the read returns one
 * state. */
TEST_LOOP(read_is_one_state, 0, 3) { disturb_all(readings[_i]); }

/* Events in the order of their commits, each once. */
static int told, told_value;

static void hear(zke *z, int type, int state, const char *path, void *context) {
  (void)z, (void)state, (void)context;
  if (type == ZKE_EVENT_CREATED && strncmp(path, "/c/gen-", 7) == 0) {
    ck_assert_int_eq(atoi(path + 7), told + 1);
    told++;
  }
}

static void hear_once(zke *z, int type, int state, const char *path,
                      void *context) {
  (void)z, (void)state, (void)context;
  ck_assert_int_eq(type, ZKE_EVENT_CHANGED);
  ck_assert_str_eq(path, "/g");
  told_value++;
}

/* One dispatch with interference before its n-th call. */
static bool disturb_dispatch(int where, int n) {
  told_value = 0;
  ck_ok(zke_get(reader, "/g", hear_once, NULL, NULL, NULL, NULL));
  ck_ok(zke_set(reader, "/own", "", 0, -1, NULL)); /* drops counted events */
  place(where);
  spy_arm(n, 1, interfere);
  ck_ok(zke_dispatch(reader, NULL));
  bool reached = spy_disarm();
  ck_ok(zke_dispatch(reader, NULL));
  ck_assert_int_eq(told, generation);
  ck_assert_int_eq(told_value, where == FROM_LOG || reached);
  ck_ok(zke_dispatch(reader, NULL));
  ck_assert_int_eq(told, generation);
  return reached;
}

/* P4: changes and checkpoints before each step of a dispatch: no event is
 * missed, repeated or out of order. */
TEST(event_in_the_midst_of_a_dispatch) {
  begin();
  keep_log();
  make(reader, "/own");
  ck_ok(
      zke_add_watch(reader, "/c", ZKE_WATCH_PERSISTENT_RECURSIVE, hear, NULL));
  for (int where = 0; where < PLACES; where++) {
    for (act_kind = 0; act_kind < ACTS; act_kind++) {
      for (int n = 1; disturb_dispatch(where, n);) n++;
    }
  }
}

/* A write takes no read lock either: it notices the changes that another
 * program makes just before it takes SQLite's write lock. */
static void interfere_plainly(void) {
  act_count++;
  if (act_kind == 1) checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
  for (int i = 0; i < 20; i++) {
    int rc = sqlite3_exec(plain, "INSERT INTO host VALUES(zeroblob(3000))",
                          NULL, NULL, NULL);
    ck_assert_int_eq(rc, SQLITE_OK);
    if (i == 0 && act_kind == 2) checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
    if (i == 0 && act_kind == 3) checkpoint(SQLITE_CHECKPOINT_RESTART);
  }
}

/* The same for one set; false if it makes fewer calls. */
static bool disturb_write(int where, int n) {
  zke_stat stat;
  place(where);
  spy_arm(n, 1, interfere_plainly);
  int rc = zke_set(reader, "/own", value(n), VALUE, -1, &stat);
  spy_disarm();
  ck_assert_msg(rc == ZKE_OK, "place %d, act %d, call %d: %s", where, act_kind,
                n, zke_errmsg());
  ck_assert_int_eq(read_value(writer), generation);
  ck_ok(zke_check(writer, NULL, NULL));
  return act_count > 0;
}

/* P2: a set after a read without locks is based on what others have committed
 * in between. */
TEST_LOOP(write_is_over_the_current_state, 0, 4) {
  begin();
  keep_log();
  make(reader, "/own");
  must(plain, "CREATE TABLE host(x)");
  act_kind = _i;
  for (int where = 0; where < PLACES; where++) {
    for (int n = 1; disturb_write(where, n);) n++;
  }
}

static void run_plainly(const char *text) {
  char *error = NULL;
  int rc = sqlite3_exec(plain, text, NULL, NULL, &error);
  ck_assert_msg(rc == SQLITE_OK, "%s: %s", text, error ? error : "?");
}

static int expect_ok(void *context, int columns, char **value, char **name) {
  (void)context, (void)columns, (void)name;
  ck_assert_str_eq(value[0], "ok");
  return 0;
}

/* Another program makes an index and dies after a checkpoint has moved one page
 * of it into the database. */
static void index_and_die(void) {
  act_count++;
  run_plainly("CREATE INDEX host_i ON zkembed_node(mzxid)");
  spy.page_1_only = true;
  int rc = sqlite3_wal_checkpoint_v2(plain, "main", SQLITE_CHECKPOINT_PASSIVE,
                                     NULL, NULL);
  ck_assert_int_eq(rc, SQLITE_IOERR);
  spy.page_1_only = false;
}

/* A read with that before its n-th call; then the reader writes, and the
 * database is sound.  False if the read makes fewer calls. */
static bool disturb_by_index(int where, int n) {
  place(where);
  spy_arm(n, 1, index_and_die);
  ck_assert_int_eq(read_value(reader), generation);
  bool reached = spy_disarm();
  ck_ok(zke_set(reader, "/own", "", 0, -1, NULL));
  checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
  ck_assert_int_eq(
      sqlite3_exec(plain, "PRAGMA integrity_check", expect_ok, NULL, NULL),
      SQLITE_OK);
  run_plainly("DROP INDEX IF EXISTS host_i");
  return reached;
}

/* A read that is discarded leaves no definitions of tables behind.  After half
 * of such a checkpoint, page 1 has the new schema number, and other pages have
 * the old definitions.  SQLite keeps both, has no reason to reload them, and
 * the next write used to leave out the index.  There are more definitions than
 * fit on page 1, and enough free pages that the file keeps its length:
 * otherwise SQLite takes it for damaged. */
TEST(definitions_of_a_discarded_read) {
  begin();
  ck_assert_int_eq(sqlite3_close(plain), SQLITE_OK);
  open_plain(seam_vfs(&spied));
  keep_log();
  make(reader, "/own");
  for (int i = 0; i < 40; i++) {
    char text[256];
    snprintf(text, sizeof text, "CREATE VIEW host_%d AS SELECT '%0200d'", i, i);
    run_plainly(text);
  }
  run_plainly(
      "CREATE TABLE host(x);INSERT INTO host VALUES(zeroblob(200000));"
      "DROP TABLE host");
  for (int where = 0; where < PLACES; where++) {
    for (int n = 1; disturb_by_index(where, n);) n++;
  }
}

/* ---- with locks ---- */

/* After a discarded read, the next SHM_DISTRUST reads take locks. */
TEST(distrust_ends) {
  begin();
  read_value(reader);
  make_cold(reader);
  act_kind = 2;
  spy_arm(10, 1, interfere);
  ck_assert_int_eq(read_value(reader), generation);
  ck_assert(spy_disarm());
  for (int left = SHM_DISTRUST - 1; left >= 0; left--) {
    ck_assert_int_eq(reader->s->index.distrust, left);
    ck_assert(!reader->s->index.open);
    spy_arm(0, 0, NULL);
    if (left > 0) ck_assert_int_eq(read_value(reader), generation);
    spy_disarm();
    ck_assert_int_eq(spy.read_locks, left > 0);
    if (left % 4 == 0) advance(writer, 1);
  }
  spy_arm(0, 0, NULL);
  ck_assert_int_eq(read_value(reader), generation);
  spy_disarm();
  ck_assert(reader->s->index.open);
  ck_assert_int_eq(spy.read_locks, 0);
}

/* Make all read marks after the WAL-index's header unusable (SQLite format). */
static void spoil_marks(void) {
  volatile uint32_t *index =
      (volatile uint32_t *)(uintptr_t)reader->s->index.head;
  enum { MARKS = 2 * SHM_WORDS + 1 };
  for (int i = 1; i <= SHM_MARKS; i++) index[MARKS + i] = UINT32_MAX;
}

/* A read usually uses the existing marks, but if there is none, SQLite must set
 * one. */
TEST_LOOP(read_mark_is_set_if_missing, 0, 3) {
  begin();
  keep_log();
  advance(writer, 1);
  read_value(reader);
  spoil_marks();
  ck_ok(db_end(reader->s));
  advance(writer, _i);
  ck_ok(db_end(writer->s));
  spoil_marks();
  trust(reader);
  spy_arm(0, 0, NULL);
  if (_i < 2) ck_assert_int_eq(read_value(reader), generation);
  if (_i == 2) advance(reader, 1);
  spy_disarm();
  ck_assert_int_ge(spy.mark_locks, 1);
  ck_assert_int_gt(reader->s->index.refused, SHM_MARKS);
  spy_arm(0, 0, NULL);
  advance(writer, 1);
  ck_assert_int_eq(read_value(reader), generation);
  ck_assert_int_eq(read_names(reader), generation);
  spy_disarm();
  ck_assert_int_eq(spy.mark_locks, 0);
}

/* A process that is killed leaves a log; its -shm is lost too. */
static void leave_a_log(void) {
  zke *z = open_with(NULL, NULL, 0);
  first_generation(z);
  advance(z, 7);
  _exit(0);
}

/* A log that a killed process left, with its index or without, is recovered
 * before the first read without locks. */
TEST_LOOP(reading_after_a_recovery, 0, 2) {
  share();
  end_child(start_child(leave_a_log));
  generation = 7;
  ck_assert_int_gt(log_bytes(), 0);
  if (_i) ck_assert_int_eq(unlink(test_path("a.db-shm")), 0);
  reader = open_with(seam_vfs(&spied), NULL, 0);
  ck_assert_int_eq(read_value(reader), generation);
  advance(reader, 1);
  writer = open_with(NULL, NULL, 0);
  advance(writer, 1);
  ck_assert_int_eq(read_names(reader), generation);
  ck_assert_int_eq(read_value(reader), generation);
  ck_assert(reader->s->index.open);
}

/* P7: after a failed COMMIT the new connection has not seen the events that the
 * old one's reads had not seen. */
TEST(events_after_a_reconnection) {
  begin();
  ck_ok(zke_get(reader, "/g", hear_once, NULL, NULL, NULL, NULL));
  for (int reads = 0; reads < 4; reads++) {
    ck_ok(zke_set(writer, "/c", "", 0, -1, NULL));
    ck_ok(zke_dispatch(reader, NULL));
  }
  int64_t fetched = reader->fetched;
  ck_assert_int_gt(fetched, 0);
  ck_assert_int_eq(told_value, 0);
  reader->s->durability = ZKE_DURABLE_ALL;
  seam_fail(&spied, SEAM_xSync, true);
  ck_rc(zke_set(reader, "/c", "x", 1, -1, NULL), ZKE_CONNECTIONLOSS);
  seam_fail(&spied, SEAM_xSync, false);
  ck_assert_int_eq(reader->s->health, HEALTH_BROKEN);
  advance(writer, 1);
  ck_assert_int_eq(read_value(reader), generation);
  for (int i = 0; reader->s->index.number < fetched && i < 10; i++) {
    ck_ok(zke_set(writer, "/c", "", 0, -1, NULL));
    read_value(reader);
  }
  ck_ok(zke_dispatch(reader, NULL));
  ck_assert_int_eq(told_value, 1);
}

/* ---- an unknown SQLite ---- */

/* A WAL-index with another layout, for the engine: `fake` holds it, made from
 * SQLite's. */
static struct {
  const volatile uint32_t *real; /* SQLite's -shm */
  uint32_t words[2 * SHM_WORDS];
  int kind;
  bool frozen;
} fake;

enum {
  ELSEWHERE,    /* a hundred bytes further on */
  FROZEN,       /* an old header stays, for old readers */
  COUNTS_TWICE, /* another kind of counter */
  VERSION,      /* from here on each kind changes the value of one word */
  READY,
  PAGE_SIZE,
  FRAMES,
  PAGES,
  FRAME_SUM,
  FRAME_SUM_2,
  SALT,
  SALT_2,
  SUM,
  SUM_2,
  COPY,      /* the second copy differs */
  NO_LOCK,   /* SQLite takes other read locks */
  TWO_LOCKS, /* … or more of them */
  KINDS
};

/* Change one of the words, with correct checksums unless the word is one. */
static void fake_word(int word, uint32_t change) {
  uint32_t *sum = fake.words + SHM_SUMMED;
  fake.words[word] ^= change;
  if (word < SHM_SUMMED) {
    sum[0] = sum[1] = 0;
    for (int i = 0; i < SHM_SUMMED; i += 2) {
      sum[0] += fake.words[i] + sum[1];
      sum[1] += fake.words[i + 1] + sum[0];
    }
  }
  memcpy(fake.words + SHM_WORDS, fake.words, sizeof fake.words / 2);
}

static uint32_t word_of(size_t member, unsigned char value) {
  unsigned char bytes[4] = {0};
  uint32_t word;
  bytes[member % 4] = value;
  memcpy(&word, bytes, sizeof word);
  return word;
}

#define WORD(member, value)                 \
  fake_word(offsetof(shm_head, member) / 4, \
            word_of(offsetof(shm_head, member), value))

/* Change the index as another SQLite might. */
static void fake_kind(shm_index *x) {
  switch (fake.kind) {
    case COUNTS_TWICE:
      fake_word(2, fake.words[2] ^ 2 * fake.words[2]);
      break;
    case VERSION:
      WORD(version, 1);
      break;
    case READY:
      WORD(ready, 1);
      break;
    case PAGE_SIZE:
      fake_word(3, word_of(14, 64) | word_of(15, 64));
      break;
    case FRAMES:
      WORD(frames, 1);
      break;
    case PAGES:
      WORD(pages, 1);
      break;
    case FRAME_SUM:
      WORD(frame_sum[0], 1);
      break;
    case FRAME_SUM_2:
      WORD(frame_sum[1], 1);
      break;
    case SALT:
      WORD(salt[0], 1);
      break;
    case SALT_2:
      WORD(salt[7], 1);
      break;
    case SUM:
      WORD(sum[0], 1);
      break;
    case SUM_2:
      WORD(sum[1], 1);
      break;
    case COPY:
      fake.words[SHM_WORDS + 1] ^= 1;
      break;
    case NO_LOCK:
      x->held = 0;
      break;
    case TWO_LOCKS:
      x->held |= 3u << SHM_READ;
      break;
    default:
      break;
  }
}

/* Let the engine see the fake.  A frozen header is what SQLite had during the
 * opening. */
static void see_fake(shm_index *x) {
  if (!x->head) return;
  if (x->head != fake.words) fake.real = x->head;
  bool ready = fake.real[0] != 0;
  if (fake.kind == ELSEWHERE) {
    memset(fake.words, 0, sizeof fake.words);
  } else if (fake.kind != FROZEN || !fake.frozen) {
    for (int i = 0; i < 2 * SHM_WORDS; i++) fake.words[i] = fake.real[i];
    fake.frozen = ready;
    if (ready) fake_kind(x);
  }
  x->head = fake.words;
}

/* Every unknown layout is noticed at the first commit, and reported once; from
 * then on reads take SQLite's locks, and are current. */
TEST_LOOP(another_layout_is_noticed, 0, KINDS) {
  begin();
  ck_ok(zke_close(reader));
  ck_assert_int_eq(strange, 0);
  fake.kind = _i;
  spy.see_otherwise = see_fake;
  reader = open_with(seam_vfs(&spied), NULL, 0);
  ck_assert_int_eq(reader->s->index.trust, SHM_STRANGE);
  ck_assert(!reader->s->wal_log.gather);
  for (int i = 0; i < 5; i++) {
    spy_arm(0, 0, NULL);
    ck_assert_int_eq(read_value(reader), generation);
    spy_disarm();
    ck_assert_int_ge(spy.read_locks, 1);
    ck_assert(!reader->s->index.open);
    advance(i % 2 ? reader : writer, 1);
    ck_assert_int_eq(read_names(reader), generation);
  }
  ck_ok(zke_dispatch(reader, NULL));
  ck_assert_int_eq(strange, 1);
}

/* SQLite's behaviour is checked again on each connection; changes that another
 * process makes to the header later are checked at each read. */
TEST(trust_is_earned) {
  begin();
  ck_assert_int_eq(reader->s->index.trust, SHM_KNOWN);
  ck_assert(reader->s->wal_log.gather);
  ck_ok(db_end(reader->s));
  spy.see_otherwise = see_fake;
  fake.kind = VERSION;
  read_value(reader);
  ck_assert(!reader->s->index.open);
  spy.see_otherwise = NULL;
  reader->s->index.head = fake.real;
  read_value(reader);
  ck_assert(reader->s->index.open);
  reader->s->durability = ZKE_DURABLE_ALL;
  seam_fail(&spied, SEAM_xSync, true);
  ck_rc(zke_set(reader, "/c", "x", 1, -1, NULL), ZKE_CONNECTIONLOSS);
  seam_fail(&spied, SEAM_xSync, false);
  read_value(reader);
  ck_assert_int_eq(reader->s->index.trust, SHM_UNTRIED);
  ck_assert(!reader->s->index.open && !reader->s->wal_log.gather);
  advance(reader, 1);
  ck_assert_int_eq(reader->s->index.trust, SHM_KNOWN);
  ck_assert(reader->s->wal_log.gather);
  read_value(reader);
  ck_assert(reader->s->index.open);
}

/* A transaction that is rolled back, or writes nothing, proves nothing. */
TEST(trust_needs_a_commit) {
  begin();
  reader->s->index.trust = SHM_UNTRIED;
  ck_rc(zke_set(reader, "/none", "", 0, -1, NULL), ZKE_NONODE);
  ck_assert_int_eq(reader->s->index.trust, SHM_UNTRIED);
  ck_ok(sql_do(reader->s, SQL_BEGIN_WRITE));
  ck_ok(sql_do(reader->s, SQL_COMMIT));
  ck_assert_int_eq(reader->s->index.trust, SHM_UNTRIED);
  reader->s->durability = ZKE_DURABLE_ALL;
  seam_fail(&spied, SEAM_xSync, true);
  ck_rc(zke_set(reader, "/c", "x", 1, -1, NULL), ZKE_CONNECTIONLOSS);
  seam_fail(&spied, SEAM_xSync, false);
  ck_assert_int_eq(read_value(reader), generation);
  ck_assert_int_eq(reader->s->index.trust, SHM_UNTRIED);
  advance(reader, 1);
  ck_assert_int_eq(reader->s->index.trust, SHM_KNOWN);
  ck_assert_int_eq(strange, 0);
}

/* Pages of any size, with any number of bytes reserved for an extension. */
static const struct {
  int size, reserved;
} pages[] = {{512, 0},   {1024, 32}, {4096, 8},
             {32768, 0}, {65536, 0}, {65536, 255}};
enum { PAGE_KINDS = sizeof pages / sizeof *pages };

/* Files of every page size, with reserved bytes too, are read without locks and
 * gathered. */
TEST_LOOP(pages_of_all_sizes, 0, PAGE_KINDS) {
  begin();
  ck_ok(zke_close(reader));
  ck_ok(zke_close(writer));
  int reserved = pages[_i].reserved;
  char text[100];
  snprintf(text, sizeof text,
           "PRAGMA journal_mode=DELETE;PRAGMA page_size=%d;VACUUM",
           pages[_i].size);
  ck_assert_int_eq(sqlite3_file_control(plain, "main",
                                        SQLITE_FCNTL_RESERVE_BYTES, &reserved),
                   SQLITE_OK);
  run_plainly(text);
  ck_assert_int_eq(sqlite3_close(plain), SQLITE_OK);
  plain = NULL;
  reader = open_with(seam_vfs(&spied), NULL, 0);
  writer = open_with(NULL, NULL, 0);
  for (int i = 0; i < 8; i++) {
    ck_assert_int_eq(read_value(reader), generation);
    ck_assert_int_eq(read_names(reader), generation);
    ck_assert(reader->s->index.open);
    advance(i % 2 ? reader : writer, 3);
  }
  ck_assert_int_eq(reader->s->wal_log.page, pages[_i].size);
  ck_assert(writer->s->wal_log.gather && !writer->s->wal_log.strange);
}

/* Both optimizations can be switched off, each without the other.  Reads,
 * changes, compaction and the session's end give the same results. */
TEST_LOOP(short_cuts_are_left_out, 0, 4) {
  begin();
  ck_ok(zke_close(reader));
  read_locks = _i & 1;
  plain_log = _i >> 1;
  reader = open_with(seam_vfs(&spied), NULL, 0);
  ck_assert(reader->s->wal_log.gather == !plain_log);
  for (int i = 0; i < 4; i++) {
    advance(i == 1 ? reader : writer, 1);
    if (i == 3) ck_ok(zke_compact(reader, ZKE_FOREVER));
    spy_arm(0, 0, NULL);
    ck_assert_int_eq(read_value(reader), generation);
    ck_assert_int_eq(read_names(reader), generation);
    spy_disarm();
    ck_assert(!spy.read_locks == !read_locks);
  }
  ck_ok(zke_expire(writer, zke_session_id(reader)));
  ck_rc(zke_exists(reader, "/s", NULL, NULL, NULL), ZKE_SESSIONEXPIRED);
}

/* ---- a VFS that changes pages ---- */

enum { VEILED = 4096, VEIL = 0x5a };

/* Encrypts the content of a page of the log on the disk. */
static void veil(char *bytes, int len, int64_t at) {
  for (int i = 0; i < len; i++) {
    int64_t in = (at + i - WAL_HEAD) % (WAL_FRAME + VEILED);
    if (at + i >= WAL_HEAD && in >= WAL_FRAME) bytes[i] ^= VEIL;
  }
}

static void unveil(seam_call *c) {
  if (c->result == SQLITE_OK && (c->opened_as & SQLITE_OPEN_WAL))
    veil(c->data, (int)c->size, c->at);
}

/* Like VFSs that encrypt: a write with the length of a page is a page. */
static void veil_page(seam_call *c) {
  static char page[VEILED];
  if (c->size != VEILED || !(c->opened_as & SQLITE_OPEN_WAL)) return;
  memcpy(page, c->data, sizeof page);
  veil(page, VEILED, c->at);
  c->data = page;
}

/* Is the text somewhere in the log on the disk? */
static bool log_shows(const char *what) {
  static char bytes[1 << 22];
  FILE *file = fopen(test_path("a.db-wal"), "rb");
  ck_assert_ptr_nonnull(file);
  size_t n = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  ck_assert_uint_gt(n, VEILED);
  return memmem(bytes, n, what, strlen(what)) != NULL;
}

/* A VFS that encrypts recognizes a page by the length of its write.  Gathered
 * pages used to reach the disk without encryption, and were read as rubbish. */
TEST(pages_that_a_vfs_encrypts) {
  static seam crypt = {.vfs = "crypt",
                       .before = {[SEAM_xWrite] = veil_page},
                       .after = {[SEAM_xRead] = unveil}};
  writer = open_with(seam_vfs(&crypt), NULL, 0);
  first_generation(writer);
  reader = open_with(seam_vfs(&crypt), NULL, 0);
  for (int i = 0; i < 6; i++) {
    advance(i % 2 ? reader : writer, 1);
    ck_assert_int_eq(read_value(reader), generation);
    ck_assert_int_eq(read_names(reader), generation);
    make_cold(reader);
  }
  ck_assert(!log_shows("still-"));
}

/* ---- cases without a shared index ---- */

static void own_and_wait(void) {
  ck_until(atomic_load(&shared->step) == 1, 10000);
  zke *z = open_with(NULL, NULL, 0);
  ck_ok(zke_create(z, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  atomic_store(&shared->step, 2);
  for (;;) pause();
}

/* P2: a dispatch reaps an owner and its COMMIT fails: the next read uses a new
 * connection.  The same dispatch used to begin a read on the old one, which the
 * next call continued. */
TEST(get_after_a_burial_that_failed) {
  share();
  pid_t owner = start_child(own_and_wait);
  begin();
  atomic_store(&shared->step, 1);
  ck_until(atomic_load(&shared->step) == 2, 20000);
  test_events events = {0};
  ck_ok(zke_exists(reader, "/e", test_record, &events, NULL));
  ck_assert_int_eq(read_value(reader), generation);
  kill_child(owner);
  reader->s->durability = ZKE_DURABLE_ALL;
  seam_fail(&spied, SEAM_xSync, true);
  ck_ok(zke_dispatch(reader, NULL));
  seam_fail(&spied, SEAM_xSync, false);
  ck_assert_int_eq(reader->s->health, HEALTH_BROKEN);
  ck_assert_int_eq(read_value(reader), generation);
  ck_assert_int_lt(reader->s->health, HEALTH_BROKEN);
  seam_pass(1000);
  test_expect(reader, &events, "DELETED /e");
}

/* P11: a VFS that cannot share memory between processes is refused by name. */
TEST(vfs_without_shared_memory) {
  zke *z = NULL;
  zke_options o = {.size = sizeof o, .vfs = seam_vfs(&spied)};
  spied.no_shm = true;
  ck_rc(zke_open(test_path("a.db"), &o, &z), ZKE_CANTOPEN);
  ck_assert_ptr_null(z);
  ck_says("its SQLite VFS cannot do write-ahead logging");
  spied.no_shm = false;
  ck_ok(zke_open(test_path("a.db"), &o, &z));
  ck_ok(zke_close(z));
}

/* A read-only handle takes locks while it reads. */
TEST(read_only_handle) {
  begin();
  ck_ok(zke_close(reader));
  reader = open_with(seam_vfs(&spied), NULL, ZKE_OPEN_READONLY);
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(read_value(reader), generation);
    ck_assert_int_eq(read_names(reader), generation);
    ck_assert(!reader->s->index.open);
    if (i % 2) checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
    advance(writer, i + 1);
    ck_rc(zke_set(reader, "/g", "", 0, -1, NULL), ZKE_READONLY);
  }
  ck_ok(zke_close(reader));
  reader = open_with(NULL, NULL, 0);
}

/* In memory all sessions share one read, until one of them writes. */
TEST(in_memory) {
  zke *a = test_open(":memory:"), *b = test_session(a, NULL);
  first_generation(a);
  ck_ok(zke_get(b, "/g", hear_once, NULL, NULL, NULL, NULL));
  for (int i = 0; i < 6; i++) {
    ck_ok(zke_dispatch(b, NULL));
    ck_assert_int_eq(told_value, i > 0);
    ck_assert_int_eq(read_value(b), generation);
    ck_assert(a->s->index.open);
    ck_assert_int_eq(read_names(a), generation);
    advance(a, 1);
  }
  ck_ok(zke_close(b));
  ck_ok(zke_close(a));
}

/* ---- a process that is stopped during a read ---- */

static int stop_before;

static void stop_self(void) { raise(SIGSTOP); }

/* Exits with 2 if it makes fewer calls than that. */
static void read_and_stop(void) {
  zke *z = open_with(seam_vfs(&spied), NULL, 0);
  read_value(z);
  make_cold(z);
  spy_arm(stop_before, 1, stop_self);
  int got = read_value(z);
  bool reached = spy_disarm();
  ck_assert(got == 3 || (reached && got == 8));
  ck_assert_int_eq(read_names(z), reached ? 8 : 3);
  ck_ok(zke_close(z));
  _exit(reached ? 0 : 2);
}

/* False if it was not stopped. */
static bool stop_and_go_on(void) {
  int status;
  pid_t pid = start_child(read_and_stop);
  ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
  bool stopped = WIFSTOPPED(status);
  if (stopped) {
    writer = open_with(NULL, NULL, 0);
    open_plain(NULL);
    generation = 3;
    advance(writer, 2);
    checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
    ck_assert_int_eq(log_bytes(), 0);
    advance(writer, 3);
    checkpoint(SQLITE_CHECKPOINT_RESTART);
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_ok(zke_close(writer));
    sqlite3_close(plain);
  }
  ck_assert(WIFEXITED(status));
  ck_assert_int_eq(WEXITSTATUS(status), stopped ? 0 : 2);
  return stopped;
}

/* Before a reader is stopped: generation 3, in the log and in the database. */
static void prepare(void) {
  zke *z = open_with(NULL, NULL, 0);
  first_generation(z);
  advance(z, 2);
  open_plain(NULL);
  checkpoint(SQLITE_CHECKPOINT_TRUNCATE);
  advance(z, 1);
  _exit(0);
}

/* P10: a reader is stopped before each of its steps in turn: others can still
 * write and run checkpoints, and it then reads the right data. */
TEST(stopped_reader_hinders_nobody) {
  share();
  for (stop_before = 1;; stop_before++) {
    end_child(start_child(prepare));
    if (!stop_and_go_on()) break;
    for (const char *const *name =
             (const char *[]){"a.db", "a.db-wal", "a.db-shm", "a.db-zke", NULL};
         *name; name++)
      test_remove(test_path(*name));
  }
  ck_assert_int_gt(stop_before, 10);
}

/* ---- all at the same time ---- */

static uint64_t seed;

static int dice(int sides) {
  seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int)((seed >> 33) % (uint64_t)sides);
}

static int64_t go_until; /* by test_now(); set before the processes begin */

/* For a while, and until each kind has had its turn. */
static bool going_on(void) {
  return test_now() < go_until || !atomic_load(&shared->reads) ||
         !atomic_load(&shared->checkpoints);
}

static void note_commit(int n) {
  int before = atomic_load(&shared->committed);
  while (before < n &&
         !atomic_compare_exchange_weak(&shared->committed, &before, n))
    continue;
}

/* A process that writes generation after generation, while others do too. */
static void write_on(void) {
  zke *z = open_with(NULL, NULL, 0);
  for (int n = 0; going_on();) {
    int rc = try_advance(z, n);
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_BADVERSION, "%s", zke_errmsg());
    n = rc == ZKE_OK ? n + 1 : read_value(z);
    if (rc == ZKE_OK) note_commit(n);
    if (dice(8) == 0) n = read_names(z);
  }
  ck_ok(zke_close(z));
}

/* A process that reads: no generation is older than one that was committed
 * before the read began. */
static void read_on(void) {
  zke *z = open_with(NULL, NULL, 0);
  for (int last = 0; going_on();) {
    if (dice(4) == 0) make_cold(z);
    if (dice(4) == 0) trust(z);
    last = (int)base_max(last, atomic_load(&shared->committed));
    int got = dice(2) ? read_value(z) : read_names(z);
    ck_assert_msg(got >= last, "generation %d after %d", got, last);
    last = got;
    if (dice(8) == 0) ck_ok(zke_dispatch(z, NULL));
    atomic_fetch_add(&shared->reads, 1);
  }
  ck_ok(zke_close(z));
}

/* With the gate, which SQLite up to 3.51.2 needs. */
static void checkpoint_on(void) {
  zke *z = open_with(NULL, NULL, 0);
  store *s = z->s;
  while (going_on()) {
    ck_assert(lock_take(s, INT64_MAX));
    s->deadline = host_now(s) + s->busy;
    ck_ok(db_end(s));
    ck_ok(gate_enter(s, NULL, false));
    int rc = db_checkpoint(s, dice(2));
    ck_assert_msg(rc == ZKE_OK || rc == ZKE_OPERATIONTIMEOUT, "%s",
                  zke_errmsg());
    if (rc == ZKE_OK) atomic_fetch_add(&shared->checkpoints, 1);
    gate_leave(s);
    lock_drop(s);
  }
  ck_ok(zke_close(z));
}

/* Every read returns one generation, and none is older than an earlier commit
 * or read. */
TEST(all_at_once) {
  static void (*const roles[])(void) = {write_on, write_on, read_on, read_on,
                                        checkpoint_on};
  enum { ROLES = sizeof roles / sizeof *roles };
  pid_t pid[ROLES];
  unsigned long first = test_seed();
  clock_goes = true;
  share();
  end_child(start_child(prepare));
  atomic_store(&shared->committed, 3);
  go_until = test_now() + 1000;
  for (int i = 0; i < ROLES; i++) {
    seed = first + (unsigned long)i;
    pid[i] = start_child(roles[i]);
  }
  for (int i = 0; i < ROLES; i++) end_child(pid[i]);
  reader = open_with(NULL, NULL, 0);
  ck_ok(zke_check(reader, NULL, NULL));
  ck_assert_int_eq(read_value(reader), atomic_load(&shared->committed));
  ck_assert_int_gt(atomic_load(&shared->committed), 0);
  ck_assert_int_gt(atomic_load(&shared->reads), 0);
  ck_assert_int_gt(atomic_load(&shared->checkpoints), 0);
  ck_ok(zke_close(reader));
}

/* ---- the sweep ---- */

static zke *with_duty, *others[3];
enum { OTHERS = sizeof others / sizeof *others };

/* A handle that watches, and so ticks. */
static zke *open_watching(const char *counted) {
  zke *z = open_with(NULL, counted, 0);
  ck_rc(zke_exists(z, "/none", hear, NULL, NULL), ZKE_NONODE);
  return z;
}

/* In how many ms it must be dispatched. */
static int64_t wants(zke *z) {
  int64_t at = ZKE_FOREVER;
  if (z) zke_next_deadline(z, &at);
  return at == ZKE_FOREVER ? at : at - zke_now(z);
}

static void dispatch_due(zke *z) {
  if (wants(z) <= 0) zke_dispatch(z, NULL);
}

/* Let time pass in poll loops: each handle is dispatched when it is due. */
static void live_on(int ms) {
  int64_t end = seam_ahead + ms * ZKE_MS;
  while (seam_ahead < end) {
    int64_t left = base_min((end - seam_ahead) / ZKE_MS, wants(with_duty));
    for (int i = 0; i < OTHERS; i++) left = base_min(left, wants(others[i]));
    seam_pass(base_max(left, 1));
    dispatch_due(with_duty);
    for (int i = 0; i < OTHERS; i++) dispatch_due(others[i]);
  }
}

static void take_duty(void) {
  with_duty = open_watching(NULL);
  for (int i = 0; i < 4 && !with_duty->s->sweep.duty; i++) live_on(ZKE_TICK_MS);
  ck_assert(with_duty->s->sweep.duty);
}

static void begin_sweeping(void) {
  take_duty();
  for (int i = 0; i < OTHERS; i++) others[i] = open_watching("counted");
}

static void end_sweeping(void) {
  zke_close(with_duty);
  for (int i = 0; i < OTHERS; i++) zke_close(others[i]);
}

static int count_others(bool (*is)(const store *)) {
  int count = 0;
  for (int i = 0; i < OTHERS; i++) count += is(others[i]->s);
  return count;
}

static bool has_duty(const store *s) { return s->sweep.duty; }
static bool is_replaced(const store *s) { return health_is_replaced(s); }

enum { TICKS = ZKE_TICK_MS / ZKE_DUTY_TICK_MS };

/* A process that finds a recent sweep does not check the files; if no process
 * sweeps any more, one of them takes the duty. */
TEST(fresh_stamp_spares_the_others) {
  begin_sweeping();
  live_on(ZKE_TICK_MS);
  looking.calls[SEAM_stat] = 0;
  live_on(5 * ZKE_TICK_MS);
  ck_assert_int_eq(looking.calls[SEAM_stat], 0);
  ck_assert(with_duty->s->sweep.duty);
  ck_ok(zke_close(with_duty));
  with_duty = NULL;
  live_on(2 * ZKE_TICK_MS);
  ck_assert_int_gt(looking.calls[SEAM_stat], 0);
  ck_assert_int_eq(count_others(has_duty), 1);
  end_sweeping();
}

/* P11: all notice that the database was removed. */
TEST_LOOP(removed_database_is_noticed_by_all, 0, TICKS) {
  begin_sweeping();
  live_on(ZKE_TICK_MS + _i * ZKE_DUTY_TICK_MS);
  ck_assert_int_eq(unlink(test_path("a.db")), 0);
  live_on(3 * ZKE_TICK_MS);
  ck_assert(health_is_replaced(with_duty->s));
  ck_assert_int_eq(count_others(is_replaced), OTHERS);
  end_sweeping();
}

enum { PHASES = 10 };

/* … and that it was replaced by a new one, whose own users sweep too, at any
 * point of their tick. */
TEST_LOOP(replaced_database_is_noticed_by_all, 0, PHASES) {
  begin_sweeping();
  live_on(ZKE_TICK_MS + _i * ZKE_TICK_MS / PHASES);
  ck_ok(zke_close(with_duty));
  ck_assert_int_eq(unlink(test_path("a.db")), 0);
  ck_assert_int_eq(unlink(test_path("a.db-wal")), 0);
  ck_assert_int_eq(unlink(test_path("a.db-shm")), 0);
  take_duty(); /* over the new database */
  live_on(3 * ZKE_TICK_MS);
  ck_assert_int_eq(count_others(is_replaced), OTHERS);
  end_sweeping();
}

enum { CROWD = 100 };

/* Many sessions in one process, until it is killed. */
static void be_many(void) {
  zke *z = open_with(NULL, NULL, 0), *more;
  for (int i = 1; i < CROWD; i++) ck_ok(zke_open_session(z, NULL, &more));
  atomic_fetch_add(&shared->step, 1);
  for (;;) pause();
}

/* P6: if many sessions die at once, all are reaped in about a tick, although
 * each sweep checks only a part of them. */
TEST_LOOP(many_dead_are_buried_in_a_tick, 1, 4) {
  int crowds = _i;
  pid_t pid[4];
  share();
  for (int i = 0; i < crowds; i++) {
    pid[i] = start_child(be_many);
    ck_until(atomic_load(&shared->step) > i, 20000);
  }
  begin_sweeping();
  ck_assert_int_eq(test_session_count(with_duty), crowds * CROWD + 1 + OTHERS);
  for (int i = 0; i < crowds; i++) {
    kill_child(pid[i]);
  }
  unsigned before = with_duty->s->sweep.count;
  for (int i = 0; test_session_count(with_duty) > 1 + OTHERS && i < 4 * TICKS;
       i++)
    live_on(ZKE_DUTY_TICK_MS);
  ck_assert_int_eq(test_session_count(with_duty), 1 + OTHERS);
  ck_assert_int_le((int)(with_duty->s->sweep.count - before), TICKS + 1);
  end_sweeping();
}

/* ---- the log's length ---- */

/* design.md 8: if a reader has blocked a store's checkpoint, the store waits
 * longer before the next one.  Once another store has restarted the log, it no
 * longer waits. */
TEST(limit_of_the_log_falls_with_the_log) {
  begin();
  sqlite3 *idle = plain_open(test_path("a.db"));
  must(idle, "BEGIN;SELECT * FROM zkembed_meta");
  for (int i = 0; reader->s->wal_limit < 3 * ZKE_CHECKPOINT_PAGES; i++) {
    ck_assert_int_lt(i, 500);
    ck_ok(zke_set(reader, "/c", "x", 1, -1, NULL));
  }
  sqlite3_close(idle);
  writer->s->wal_limit = 0;
  ck_ok(zke_set(writer, "/c", "y", 1, -1, NULL)); /* with a checkpoint */
  ck_ok(zke_set(reader, "/c", "x", 1, -1, NULL));
  ck_assert_int_eq(reader->s->wal_limit, ZKE_CHECKPOINT_PAGES);
}
