/* test_gather.c - frames that are gathered before they are written to the
 * write-ahead log
 *
 * White-box: the store's log over a file in memory that counts its writes.
 * test_power, the tortures and test_fault show that SQLite writes as expected
 * here. */
#include "zkembed.c"
#include "test/test.h"

enum { PAGE = 512, FRAME = WAL_FRAME + PAGE };

/* The file below the log. */
static struct {
  char bytes[1 << 20];
  int64_t size;
  int writes, syncs, closed, asked, fail_writes;
} disk;

static int disk_close(sqlite3_file *f) {
  (void)f;
  disk.closed++;
  return SQLITE_OK;
}

static int disk_read(sqlite3_file *f, void *to, int len, sqlite3_int64 at) {
  (void)f;
  memset(to, 0, (size_t)len);
  if (at >= disk.size) return SQLITE_IOERR_SHORT_READ;
  memcpy(to, disk.bytes + at, (size_t)base_min(len, disk.size - at));
  return at + len <= disk.size ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

/* A write to the file in memory; it is counted, and can fail. */
static int disk_write(sqlite3_file *f, const void *data, int len,
                      sqlite3_int64 at) {
  (void)f;
  if (disk.fail_writes && disk.fail_writes--) return SQLITE_FULL;
  memcpy(disk.bytes + at, data, (size_t)len);
  disk.size = base_max(disk.size, at + len);
  disk.writes++;
  return SQLITE_OK;
}

static int disk_truncate(sqlite3_file *f, sqlite3_int64 size) {
  (void)f;
  disk.size = size;
  return SQLITE_OK;
}

static int disk_sync(sqlite3_file *f, int flags) {
  (void)f, (void)flags;
  disk.syncs++;
  return SQLITE_OK;
}

static int disk_size(sqlite3_file *f, sqlite3_int64 *out) {
  (void)f;
  *out = disk.size;
  return SQLITE_OK;
}

static int disk_lock(sqlite3_file *f, int how) {
  (void)f, (void)how;
  disk.asked++;
  return SQLITE_OK;
}

static int disk_reserved(sqlite3_file *f, int *out) {
  (void)f;
  disk.asked++;
  *out = 0;
  return SQLITE_OK;
}

static int disk_control(sqlite3_file *f, int op, void *arg) {
  (void)f, (void)op, (void)arg;
  disk.asked++;
  return SQLITE_NOTFOUND;
}

static int disk_trait(sqlite3_file *f) {
  (void)f;
  disk.asked++;
  return 512;
}

static const sqlite3_io_methods disk_methods = {
    .iVersion = 1,
    .xClose = disk_close,
    .xRead = disk_read,
    .xWrite = disk_write,
    .xTruncate = disk_truncate,
    .xSync = disk_sync,
    .xFileSize = disk_size,
    .xLock = disk_lock,
    .xUnlock = disk_lock,
    .xCheckReservedLock = disk_reserved,
    .xFileControl = disk_control,
    .xSectorSize = disk_trait,
    .xDeviceCharacteristics = disk_trait};

static int disk_open(sqlite3_vfs *v, const char *name, sqlite3_file *f,
                     int flags, int *out_flags) {
  (void)v, (void)out_flags;
  f->pMethods = flags & SQLITE_OPEN_WAL ? &disk_methods : NULL;
  return name ? SQLITE_OK : SQLITE_CANTOPEN;
}

static int disk_access(sqlite3_vfs *v, const char *name, int flags, int *out) {
  (void)v, (void)name, (void)flags;
  *out = 0;
  return SQLITE_OK;
}

/* The log over it, as SQLite sees it. */
static sqlite3_file file;
static sqlite3_file *const f = &file;

static void *no_memory(void *context, void *block, size_t size) {
  (void)context, (void)block, (void)size;
  return NULL;
}

static sqlite3_vfs base = {
    .zName = "unix", .xOpen = disk_open, .xAccess = disk_access};
static char told[200];
static int times_told;

static void note(void *context, int level, const char *text) {
  (void)context;
  ck_assert_int_eq(level, ZKE_LOG_WARN);
  snprintf(told, sizeof told, "%s", text);
  times_told++;
}

static store s = {.vfs_base = &base, .vfs_own.pAppData = &s, .log = note};

static int try_open(const char *name, int flags) {
  return vfs_open(&s.vfs_own, name, f, flags, NULL);
}

/* Open a log of a known SQLite version. */
static void open_log(bool memory) {
  static char name[] = "log";
  os_fill(&s.os, sizeof s.os);
  s.file = name;
  s.live_fd = -1;
  s.a.resize = memory ? mem_default_resize : no_memory;
  ck_assert_int_eq(try_open("log", SQLITE_OPEN_WAL), SQLITE_OK);
  s.wal_log.gather = s.wal_log.bytes != NULL;
}

/* The writers' lock is released. */
static void end_transaction(void) { wal_forget(&s.wal_log); }

static void put_number(char *at, uint32_t n) {
  for (int i = 0; i < 4; i++) at[i] = (char)(n >> (24 - 8 * i));
}

static int write_head_of(uint32_t magic, uint32_t version, uint32_t page) {
  char head[WAL_HEAD] = "";
  put_number(head, magic);
  put_number(head + 4, version);
  put_number(head + 8, page);
  return f->pMethods->xWrite(f, head, sizeof head, 0);
}

static int write_head(void) {
  return write_head_of(WAL_MAGIC, WAL_VERSION, PAGE);
}

/* Write the head of frame n: commit is the database's size, 0 inside a
 * transaction. */
static int write_frame_head(int n, uint32_t commit, char salt) {
  char head[WAL_FRAME] = "";
  put_number(head + 4, commit);
  head[8] = salt;
  return f->pMethods->xWrite(f, head, sizeof head, WAL_HEAD + n * FRAME);
}

static int write_page(int n, char fill) {
  char page[PAGE];
  memset(page, fill, sizeof page);
  return f->pMethods->xWrite(f, page, sizeof page,
                             WAL_HEAD + n * FRAME + WAL_FRAME);
}

static int write_frame(int n, uint32_t commit, char salt) {
  int rc = write_frame_head(n, commit, salt);
  return rc ? rc : write_page(n, (char)('a' + n % 26));
}

/* Everything up to frame n is in the file as it was written. */
static void expect_pages(int n) {
  ck_assert_int_ge(disk.size, WAL_HEAD + n * FRAME);
  for (int i = 0; i < n; i++)
    for (int k = 0; k < PAGE; k++)
      ck_assert_int_eq(disk.bytes[WAL_HEAD + i * FRAME + WAL_FRAME + k],
                       'a' + i % 26);
}

/* P2: the frames of a transaction reach the disk in one write, at the frame
 * that commits them. */
TEST(a_transaction_is_one_write) {
  open_log(true);
  ck_assert_int_eq(write_head(), SQLITE_OK);
  for (int i = 0; i < 4; i++) write_frame(i, i == 3 ? 9 : 0, 's');
  ck_assert_int_eq(disk.writes, 1);
  expect_pages(4);
  for (int i = 4; i < 6; i++) write_frame(i, i == 5 ? 9 : 0, 's');
  ck_assert_int_eq(disk.writes, 2);
  expect_pages(6);
}

/* P2: when the call that ends a commit returns, the whole commit is written. */
TEST(a_commit_is_written_at_once) {
  open_log(true);
  write_head();
  for (int i = 0; i < 100; i++) {
    ck_assert_int_eq(write_frame(i, 9, 's'), SQLITE_OK);
    ck_assert_int_eq(disk.size, WAL_HEAD + (i + 1) * FRAME);
  }
  expect_pages(100);
}

/* A transaction larger than the buffer is written in as few pieces as
 * necessary, and reads the same. */
TEST(more_than_there_is_room_for) {
  int many = 3 * ZKE_LOG_BYTES / FRAME;
  open_log(true);
  write_head();
  for (int i = 0; i < many; i++) write_frame(i, i == many - 1 ? 9 : 0, 's');
  ck_assert_int_le(disk.writes, 5);
  expect_pages(many);
}

/* A page larger than the buffer is written directly, after the frames in it. */
TEST(a_page_larger_than_the_room) {
  static char page[2 * ZKE_LOG_BYTES];
  open_log(true);
  write_head_of(WAL_MAGIC + 1, WAL_VERSION, sizeof page);
  write_frame_head(0, 9, 's');
  memset(page, 'x', sizeof page);
  ck_assert_int_eq(
      f->pMethods->xWrite(f, page, sizeof page, WAL_HEAD + WAL_FRAME),
      SQLITE_OK);
  ck_assert_int_eq(disk.size, WAL_HEAD + WAL_FRAME + (int)sizeof page);
  ck_assert_int_eq(disk.writes, 2);
}

/* SQLite cuts the last page at the end of a sector, syncs, and writes the rest;
 * also if a piece is as long as a frame's head. */
TEST(a_page_in_pieces) {
  char page[PAGE];
  int64_t at = WAL_HEAD + WAL_FRAME;
  memset(page, 'a', sizeof page);
  open_log(true);
  write_head();
  write_frame_head(0, 9, 's');
  f->pMethods->xWrite(f, page, 24, at);
  f->pMethods->xSync(f, 0);
  memset(page, 0, 8);
  f->pMethods->xWrite(f, page, 24, at + 24);
  f->pMethods->xWrite(f, page + 48, PAGE - 48, at + 48);
  ck_assert_int_eq(disk.size, at + PAGE);
  ck_assert_int_eq(disk.writes, 2);
  ck_assert(!s.wal_log.strange);
}

/* walRewriteChecksums(): heads without pages, of adjacent frames or not. */
TEST(heads_that_are_put_right_are_written_at_once) {
  char head[WAL_FRAME];
  open_log(true);
  write_head();
  for (int i = 0; i < 4; i++) write_frame(i, 0, 's');
  ck_assert_int_eq(f->pMethods->xRead(f, head, sizeof head, WAL_HEAD),
                   SQLITE_OK);
  for (int i = 0; i < 4; i++) {
    write_frame_head(i, i == 3 ? 9 : 0, 's');
    ck_assert_int_eq(disk.writes, 2 + i);
  }
  expect_pages(4);
  ck_assert_int_eq(s.wal_log.len, 0);
}

/* Frames that are written again in one transaction: SQLite writes the later
 * ones without salt and checksum first. */
TEST(checksums_that_come_later) {
  char head[WAL_FRAME];
  open_log(true);
  write_head();
  for (int i = 0; i < 3; i++) write_frame(i, 0, 's');
  write_page(1, 'b');
  for (int i = 3; i < 6; i++) write_frame(i, i == 5 ? 9 : 0, 0);
  expect_pages(6);
  for (int i = 1; i < 6; i++) {
    f->pMethods->xRead(f, head, sizeof head, WAL_HEAD + i * FRAME);
    write_frame_head(i, i == 5 ? 9 : 0, 's');
    ck_assert_int_eq(disk.bytes[WAL_HEAD + i * FRAME + 8], 's');
  }
}

/* SQLite's own reads, sync and truncation see the gathered frames. */
TEST(questions_to_the_file_find_it_written) {
  sqlite3_int64 size;
  open_log(true);
  write_head();
  write_frame(0, 0, 's');
  f->pMethods->xFileSize(f, &size);
  ck_assert_int_eq(size, WAL_HEAD + FRAME);
  write_frame(1, 0, 's');
  f->pMethods->xSync(f, 0);
  ck_assert_int_eq(disk.syncs, 1);
  expect_pages(2);
  write_frame(2, 0, 's');
  f->pMethods->xTruncate(f, WAL_HEAD);
  ck_assert_int_eq(disk.size, WAL_HEAD);
  ck_assert_int_eq(disk.writes, 3);
}

/* P2: pages were spilled, a savepoint after some of them was undone, and the
 * commit ends before the others.  Once its last page is written, the commit may
 * be found in the log, whatever SQLite reports then. */
TEST(a_commit_before_what_was_spilled_is_known) {
  open_log(true);
  write_head();
  for (int i = 0; i < 6; i++) write_frame(i, 0, 's');
  f->pMethods->xSync(f, 0);
  s.wal_log.written = false; /* COMMIT begins */
  write_frame(2, 0, 's');
  ck_assert(!s.wal_log.written);
  write_frame_head(3, 9, 's');
  ck_assert(!s.wal_log.written);
  write_page(3, 'b');
  ck_assert(s.wal_log.written);
}

/* A commit that need not be durable skips each sync but that of a new head,
 * whatever SQLite has written. */
TEST(only_a_head_is_synced_without_need) {
  char page[PAGE] = "";
  open_log(true);
  s.wal_log.lazy = true;
  write_head();
  f->pMethods->xSync(f, 0);
  ck_assert_int_eq(disk.syncs, 1);
  write_frame(0, 9, 's');
  f->pMethods->xSync(f, 0);
  f->pMethods->xWrite(f, page, sizeof page, WAL_HEAD + 5); /* a strange write */
  f->pMethods->xSync(f, 0);
  ck_assert_int_eq(disk.syncs, 1);
  ck_assert(s.wal_log.strange);
  s.wal_log.lazy = false;
  f->pMethods->xSync(f, 0);
  ck_assert_int_eq(disk.syncs, 2);
}

/* Another process has written frames, or restarted the log, since our last. */
TEST(others_write_too) {
  open_log(true);
  write_head();
  write_frame(0, 9, 's');
  end_transaction();
  write_frame(5, 0, 's');
  write_frame(6, 9, 's');
  ck_assert_int_eq(disk.writes, 2);
  end_transaction();
  write_frame(0, 0, 't');
  write_frame(1, 9, 't');
  ck_assert_int_eq(disk.writes, 3);
  expect_pages(2);
}

/* Another process wrote the log's head: the page size is read from it. */
TEST(the_head_is_another_process_s) {
  open_log(true);
  write_head();
  write_frame(0, 9, 's');
  f->pMethods->xClose(f);
  open_log(true);
  disk.writes = 0;
  write_frame(1, 0, 's');
  write_frame(2, 9, 's');
  ck_assert_int_eq(disk.writes, 1);
  expect_pages(3);
}

/* Any other write of SQLite is made unchanged and immediately, after the
 * gathered frames; from then on nothing is gathered, and the next commit tells
 * the logger. */
static const struct {
  int len;
  int64_t at; /* from frame 1 on */
} odd_writes[] = {
    {FRAME, 0},                    /* head and page together */
    {PAGE, WAL_FRAME},             /* the page before its head */
    {WAL_FRAME, FRAME},            /* a gap */
    {WAL_FRAME, 8},                /* not where a frame begins */
    {WAL_FRAME + 8, 0},            /* longer than a head */
    {PAGE, WAL_FRAME - FRAME + 8}, /* across two frames */
    {WAL_HEAD, -FRAME - WAL_HEAD}  /* a head within a transaction */
};
enum { ODD_WRITES = sizeof odd_writes / sizeof *odd_writes };

/* A write that does not match a frame is passed on immediately; from then on
 * nothing is gathered, and the host is told once. */
TEST_LOOP(a_strange_write_ends_it, 0, ODD_WRITES) {
  char data[FRAME];
  int64_t at = WAL_HEAD + FRAME + odd_writes[_i].at;
  memset(data, 'o', sizeof data);
  open_log(true);
  zke_os_default(&s.os);
  s.name = (char *)(uintptr_t) "a.db";
  s.index.trust = SHM_KNOWN;
  write_head();
  write_frame(0, 0, 's');
  ck_assert_int_eq(disk.writes, 0);
  ck_assert_int_eq(f->pMethods->xWrite(f, data, odd_writes[_i].len, at),
                   SQLITE_OK);
  ck_assert_int_eq(disk.writes, 2);
  ck_assert_int_eq(disk.bytes[at], 'o');
  ck_assert_int_eq(disk.bytes[at + odd_writes[_i].len - 1], 'o');
  write_frame(2, 0, 's');
  ck_assert_int_eq(disk.writes, 4);
  for (int i = 0; i < 3; i++) {
    end_transaction();
    write_frame(3 + i, 9, 's');
    ck_assert_int_eq(disk.writes, 6 + 2 * i);
    shm_on_commit(&s, NULL, "main", 4 + i);
  }
  ck_assert_int_eq(s.wal_pages, 6);
  ck_assert_int_eq(times_told, 1);
  ck_assert_ptr_nonnull(strstr(told, "a.db: SQLite 3."));
  ck_assert_ptr_nonnull(strstr(told, "writes its log in an unknown way"));
}

/* A log of another version, or none. */
TEST_LOOP(a_strange_log, 0, 3) {
  open_log(true);
  switch (_i) {
    case 0:
      write_head_of(WAL_MAGIC, WAL_VERSION + 1, PAGE);
      break;
    case 1:
      write_head_of(WAL_MAGIC + 2, WAL_VERSION, PAGE);
      break;
    default:
      write_frame_head(0, 0, 's');
      disk.writes = 1; /* no head */
  }
  ck_assert_int_eq(disk.writes, 1);
  ck_assert(s.wal_log.strange);
  write_frame(1, 0, 's');
  ck_assert_int_eq(disk.writes, 3);
}

/* A VFS that is not SQLite's own may want to see each page. */
TEST_LOOP(another_vfs_sees_each_page, 0, 2) {
  base.zName = _i ? "crypt-unix" : "unix-excl";
  open_log(true);
  ck_assert(s.wal_log.gather == !_i);
  write_head();
  write_frame(0, 0, 's');
  ck_assert_int_eq(disk.writes, _i ? 3 : 0);
}

/* A failed write is returned by the call that makes it, and the frames that are
 * written again fill the log without a gap. */
TEST(a_write_that_fails_is_told_and_leaves_no_gap) {
  open_log(true);
  write_head();
  write_frame(0, 9, 's');
  disk.fail_writes = 1;
  write_frame_head(1, 9, 's');
  ck_assert_int_eq(write_page(1, 'b'), SQLITE_FULL);
  ck_assert_int_eq(write_frame(1, 0, 's'), SQLITE_OK);
  ck_assert_int_eq(write_frame(2, 9, 's'), SQLITE_OK);
  ck_assert_int_eq(disk.writes, 2);
  expect_pages(3);
  disk.fail_writes = 1;
  write_frame(3, 0, 's');
  ck_assert_int_eq(f->pMethods->xSync(f, 0), SQLITE_FULL);
  sqlite3_int64 size;
  write_frame(3, 0, 's');
  disk.fail_writes = 1;
  ck_assert_int_eq(f->pMethods->xFileSize(f, &size), SQLITE_FULL);
  write_frame(3, 0, 's');
  disk.fail_writes = 1;
  ck_assert_int_eq(f->pMethods->xTruncate(f, 0), SQLITE_FULL);
}

/* Without a buffer each piece is written by itself, and reads the same. */
TEST(without_memory_nothing_is_gathered) {
  open_log(false);
  write_head();
  write_frame(0, 0, 's');
  write_frame(1, 9, 's');
  ck_assert_int_eq(disk.writes, 5);
  expect_pages(2);
}

/* A transaction reads what it has written: from the gathered frames, from the
 * file, or across both. */
TEST(a_transaction_reads_what_it_wrote) {
  char page[PAGE];
  int64_t first = WAL_HEAD + WAL_FRAME;
  open_log(true);
  write_head();
  write_frame(0, 0, 's');
  f->pMethods->xSync(f, 0);
  write_frame(1, 0, 's');
  write_frame(2, 0, 's');
  for (int i = 0; i < 3; i++) {
    f->pMethods->xRead(f, page, PAGE, first + i * FRAME);
    ck_assert_int_eq(page[0], 'a' + i);
    ck_assert_int_eq(page[PAGE - 1], 'a' + i);
  }
  ck_assert_int_eq(disk.writes, 1);
  ck_assert_int_eq(
      f->pMethods->xRead(f, page, PAGE, WAL_HEAD + FRAME - PAGE / 2),
      SQLITE_OK);
  ck_assert_int_eq(page[0], 'a');
  ck_assert_int_eq(disk.writes, 2);
  write_frame(3, 0, 's');
  disk.fail_writes = 1;
  ck_assert_int_eq(
      f->pMethods->xRead(f, page, PAGE, WAL_HEAD + 3 * FRAME - PAGE / 2),
      SQLITE_FULL);
}

/* After a rollback another process overwrites the frames. */
TEST(a_rollback_forgets) {
  char byte;
  open_log(true);
  write_head();
  write_frame(0, 9, 's');
  write_frame(1, 0, 's');
  end_transaction();
  char theirs = 'X';
  disk_write(f, &theirs, 1, WAL_HEAD + FRAME + WAL_FRAME);
  f->pMethods->xRead(f, &byte, 1, WAL_HEAD + FRAME + WAL_FRAME);
  ck_assert_int_eq(byte, 'X');
  write_frame(2, 0, 's');
  write_frame(3, 9, 's');
  ck_assert_int_eq(disk.bytes[WAL_HEAD + FRAME + WAL_FRAME], 'X');
  f->pMethods->xClose(f);
  end_transaction();
}

/* P2: the close does not write frames that no COMMIT has ended. */
TEST(closing_drops_what_was_not_committed) {
  open_log(true);
  write_head();
  write_frame(0, 9, 's');
  write_frame(1, 0, 's');
  f->pMethods->xClose(f);
  ck_assert_int_eq(disk.closed, 1);
  ck_assert_int_eq(disk.size, WAL_HEAD + FRAME);
}

/* All other calls reach the VFS below unchanged, including a failing open. */
TEST(the_rest_is_passed_on) {
  int reserved = 7;
  open_log(true);
  ck_assert_int_eq(f->pMethods->xLock(f, SQLITE_LOCK_SHARED), SQLITE_OK);
  ck_assert_int_eq(f->pMethods->xUnlock(f, SQLITE_LOCK_NONE), SQLITE_OK);
  ck_assert_int_eq(f->pMethods->xCheckReservedLock(f, &reserved), SQLITE_OK);
  ck_assert_int_eq(reserved, 0);
  ck_assert_int_eq(f->pMethods->xFileControl(f, 99, NULL), SQLITE_NOTFOUND);
  ck_assert_int_eq(f->pMethods->xSectorSize(f), 512);
  ck_assert_int_eq(f->pMethods->xDeviceCharacteristics(f), 512);
  ck_assert_int_eq(disk.asked, 6);
  f->pMethods->xClose(f);
  memset(&file, 0, sizeof file);
  ck_assert_int_eq(try_open(NULL, 0), SQLITE_CANTOPEN);
  ck_assert_ptr_null(f->pMethods);
}
