/* test_file.c - the database file: which files are refused, and what survives
 *
 * P11 (bad files), P8 and P2 (what survives), and design.md 5, 7 and 8 (epoch,
 * replaced files, the write-ahead log).
 */
#define _GNU_SOURCE
#include "test/seam.h"
#include "test/engine/calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

ON_DISK;
SIDE_BY_SIDE(4);

/* ---- files ---- */

/* Two strings in one, valid until sixteen calls later. */
static const char *joined(const char *a, const char *b) {
  static char text[16][4096];
  static unsigned next;
  char *out = text[next++ % 16];
  size_t len = strlen(a), more = strlen(b);
  ck_assert_uint_lt(len + more, sizeof text[0]);
  memmove(out, a, len); /* a may be an earlier result */
  memmove(out + len, b, more + 1);
  return out;
}

static void write_file(const char *path, const char *data, size_t size) {
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  ck_assert_uint_eq(fwrite(data, 1, size, f), size);
  ck_assert_int_eq(fclose(f), 0);
}

/* Only for files that no handle of this process has open: reading one here
 * would drop SQLite's locks. */
static char *read_file(const char *path, size_t *size_out) {
  char *data = NULL;
  size_t size = 0;
  FILE *in = fopen(path, "r"), *out = open_memstream(&data, &size);
  ck_assert_msg(in && out, "%s: %s", path, strerror(errno));
  for (int c; (c = getc(in)) != EOF;) putc(c, out);
  fclose(in);
  fclose(out);
  if (size_out) *size_out = size;
  return data;
}

static void copy_file(const char *from, const char *to) {
  size_t size;
  char *data = read_file(from, &size);
  write_file(to, data, size);
  free(data);
}

static bool present(const char *path) { return access(path, F_OK) == 0; }

static int64_t file_size(const char *path) {
  struct stat s;
  return stat(path, &s) == 0 ? s.st_size : 0;
}

static const char *directory(const char *name) {
  const char *path = test_path(name);
  ck_assert_int_eq(mkdir(path, 0777), 0);
  return path;
}

/* A hash of a file's content. */
static unsigned long hash_of(const char *path) {
  size_t size;
  char *data = read_file(path, &size);
  unsigned long h = 5381;
  for (size_t i = 0; i < size; i++) h = h * 33 + (unsigned char)data[i];
  free(data);
  return h;
}

static bool ends_in(const char *text, const char *end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

/* Names, modes, sizes, times and contents of everything in a directory.  Of a
 * -shm only that it exists: it holds nothing that lasts. */
static char *picture(const char *path) {
  struct dirent **entry;
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  int n = scandir(path, &entry, NULL, alphasort);
  ck_assert_int_ge(n, 0);
  for (int i = 0; i < n; i++) {
    struct stat s;
    const char *name = joined(joined(path, "/"), entry[i]->d_name);
    ck_assert_int_eq(lstat(name, &s), 0);
    if (strcmp(entry[i]->d_name, "..") == 0) {
      free(entry[i]);
      continue;
    }
    fprintf(out, "%s %o", entry[i]->d_name, s.st_mode);
    if (S_ISREG(s.st_mode) && access(name, R_OK) == 0 &&
        !ends_in(name, "-shm")) {
      fprintf(out, " %lld %lld.%09ld %lx", (long long)s.st_size,
              (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec, hash_of(name));
    }
    fprintf(out, "\n");
    free(entry[i]);
  }
  free(entry);
  fclose(out);
  return text;
}

/* ---- databases ---- */

/* Run SQL through plain SQLite; returns a value if it is a query. */
static int64_t sql(const char *path, const char *format, ...) {
  sqlite3_stmt *s;
  va_list ap;
  va_start(ap, format);
  char *text = sqlite3_vmprintf(format, ap);
  va_end(ap);
  sqlite3 *db = plain_open(path);
  int rc = SQLITE_OK;
  int64_t value = 0;
  for (const char *rest = text; rc == SQLITE_OK && *rest;) {
    rc = sqlite3_prepare_v2(db, rest, -1, &s, &rest);
    while (rc == SQLITE_OK && s && sqlite3_step(s) == SQLITE_ROW) {
      value = sqlite3_column_int64(s, 0);
    }
    if (rc == SQLITE_OK) rc = sqlite3_finalize(s);
  }
  ck_assert_msg(rc == SQLITE_OK, "%s: %s", text, sqlite3_errmsg(db));
  sqlite3_free(text);
  sqlite3_close(db);
  return value;
}

/* The number of the next sequential child of "/". */
static int next_sequence(zke *z) {
  char *path = NULL;
  ck_ok(zke_create(z, "/s-", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   &path, NULL));
  int value = atoi(path + strlen("/s-"));
  zke_free(path);
  return value;
}

/* A closed database with a handful of nodes. */
static const char *sample(const char *path) {
  zke *z = test_open(path);
  make_with(z, "/a", "one");
  make_with(z, "/a/b", "two");
  ck_ok(zke_close(z));
  return path;
}

enum { BULK = 8000, BATCH = 100 };

/* Make `count` nodes of `bytes` bytes below a new node; with 0 bytes, delete
 * them all. */
static void bulk(zke *z, const char *parent, int count, int bytes) {
  static char data[BULK], path[BATCH][64];
  zke_op op[BATCH];
  memset(data, 'b', sizeof data);
  if (bytes) make_with(z, parent, "");
  for (int i = 0; i < count; i += BATCH) {
    for (int k = 0; k < BATCH; k++) {
      snprintf(path[k], sizeof path[k], "%s/%d", parent, i + k);
      if (bytes)
        zke_op_create(&op[k], path[k], data, bytes, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT);
      else
        zke_op_delete(&op[k], path[k], -1);
    }
    ck_ok(zke_multi(z, op, BATCH, NULL));
  }
}

/* ---- rows ---- */

static int print_row(void *out, int count, char **value, char **name) {
  (void)name;
  for (int i = 0; i < count; i++)
    fprintf(out, "%s|", value[i] ? value[i] : "NULL");
  fprintf(out, "\n");
  return 0;
}

enum { TABLES = 6 };

/* Every row of `count` tables, beginning with table `first`, as a text. */
static char *rows_of(const char *path, int first, int count) {
  static const char *const tables[TABLES] = {"meta",    "node",  "blob",
                                             "session", "watch", "event"};
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  sqlite3 *db = plain_open(path);
  for (int i = first; i < first + count; i++) {
    char *query = sqlite3_mprintf("SELECT * FROM zkembed_%s", tables[i]);
    ck_assert_int_eq(sqlite3_exec(db, query, print_row, out, NULL), SQLITE_OK);
    sqlite3_free(query);
  }
  sqlite3_close(db);
  fclose(out);
  return text;
}

static char *all_rows(const char *path) { return rows_of(path, 0, TABLES); }

/* The nodes' rows and their data. */
static char *node_rows(const char *path) { return rows_of(path, 1, 2); }

/* Assert that two texts are the same, and free them. */
static void expect_same(char *now, char *before) {
  ck_assert_str_eq(now, before);
  free(now);
  free(before);
}

/* Assert that all rows are as in `before`, and free it. */
static void expect_rows(const char *path, char *before) {
  expect_same(all_rows(path), before);
}

/* ---- refusals ---- */

/* zke_open() fails with the code, names the file, and changes nothing in the
 * directory. */
static void refused_by(const char *where, const char *path,
                       const zke_options *options, int code) {
  char *before = picture(where);
  zke *z = (zke *)&before;
  ck_rc(zke_open(path, options, &z), code);
  ck_assert_ptr_null(z);
  ck_says(path);
  char *after = picture(where);
  ck_assert_str_eq(before, after);
  free(before);
  free(after);
}

static void refused(const char *where, const char *path, int code) {
  refused_by(where, path, NULL, code);
}

/* ---- files that are refused ---- */

/* P11: a text file, short and long. */
TEST(text_file_is_refused) {
  static char text[20000];
  const char *where = directory("d"), *path = test_path("d/notes.txt");
  memset(text, 'x', sizeof text);
  write_file(path, "Dear diary,\n", 12);
  refused(where, path, ZKE_NOTADB);
  write_file(path, text, sizeof text);
  refused(where, path, ZKE_NOTADB);
}

/* P11: another application's database, closed, in both journal modes; and one
 * that bears its own application_id. */
TEST_LOOP(foreign_database_is_refused, 0, 4) {
  static const char *const modes[] = {
      "PRAGMA journal_mode=DELETE; CREATE TABLE zkembed_node(a)",
      "PRAGMA journal_mode=WAL; CREATE TABLE t(a); INSERT INTO t VALUES(1)",
      "PRAGMA application_id=77; CREATE TABLE zkembed_meta(a)",
      "PRAGMA user_version=1; PRAGMA journal_mode=WAL"};
  const char *where = directory("d"), *path = test_path("d/other.db");
  sql(path, "%s", modes[_i]);
  refused(where, path, ZKE_NOTADB);
  /* a read-only connection of SQLite leaves its -wal and -shm behind */
  zke_options readonly = {.size = sizeof readonly, .flags = ZKE_OPEN_READONLY};
  char *before = picture(where);
  zke *z;
  ck_rc(zke_open(path, &readonly, &z), ZKE_NOTADB);
  test_remove(joined(path, "-wal"));
  test_remove(joined(path, "-shm"));
  char *after = picture(where);
  ck_assert_str_eq(before, after);
  free(before);
  free(after);
}

/* A program that dies and leaves its log; it runs in a child process.  A leak
 * check finds the connection reachable. */
static int die_with_log(void *path) {
  static sqlite3 *db;
  int rc = sqlite3_open(path, &db);
  if (rc == SQLITE_OK)
    rc = sqlite3_exec(db,
                      "PRAGMA encoding='UTF-16';PRAGMA journal_mode=WAL;CREATE "
                      "TABLE t(a);INSERT INTO t VALUES(1)",
                      NULL, NULL, NULL);
  return rc; /* without sqlite3_close() */
}

/* P11: after another application's crash its log stays as it is, however the
 * database is opened; only the application may bring the two together. */
TEST_LOOP(log_of_a_foreign_crash_stays, 0, 3) {
  static const unsigned flags[] = {0, ZKE_OPEN_READONLY, ZKE_OPEN_HOST};
  const char *where = directory("d"), *path = test_path("d/other.db");
  zke_options options = {.size = sizeof options, .flags = flags[_i]};
  ck_assert_int_eq(
      test_child_end(test_child(die_with_log, (void *)(uintptr_t)path)), 0);
  ck_assert_int_gt(file_size(joined(path, "-wal")), 0);
  refused_by(where, path, &options, ZKE_NOTADB);
  ck_assert_int_eq(sql(path, "SELECT a FROM t"), 1);
}

/* P11: the same while its application has it open in WAL mode. */
TEST(foreign_database_in_use_is_refused) {
  const char *path = test_path("other.db");
  test_worker w = test_spawn("talk", NULL);
  test_ask(&w, "sql %s PRAGMA journal_mode=WAL", path);
  test_ask(&w, "sql %s CREATE TABLE t(a); INSERT INTO t VALUES(5)", path);
  zke *z;
  ck_rc(zke_open(path, NULL, &z), ZKE_NOTADB);
  ck_says(path);
  ck_assert(!present(joined(path, "-zke")));
  ck_assert_str_eq(
      test_ask(&w, "sql %s UPDATE t SET a=a+1; SELECT a FROM t", path), "6");
  test_ask(&w, "sqlclose");
  ck_assert_int_eq(test_wait(&w), 0);
  ck_assert_int_eq(sql(path, "SELECT a FROM t"), 6);
}

/* P11: a file that a later version wrote. */
TEST(newer_format_is_refused) {
  const char *where = directory("d"), *path = sample(test_path("d/new.db"));
  sql(path, "PRAGMA user_version = %d", 10000);
  refused(where, path, ZKE_NEWERFORMAT);
  zke_options readonly = {.size = sizeof readonly, .flags = ZKE_OPEN_READONLY};
  refused_by(where, path, &readonly, ZKE_NEWERFORMAT);
}

/* P11: a file of the previous format, whose writers lock other bytes: a process
 * with the old engine and one with this engine would not see each other. */
TEST(older_format_is_refused) {
  const char *where = directory("d"), *path = sample(test_path("d/old.db"));
  sql(path, "PRAGMA user_version = %d", 1);
  refused(where, path, ZKE_NOTADB);
  ck_says("older");
  zke_options readonly = {.size = sizeof readonly, .flags = ZKE_OPEN_READONLY};
  refused_by(where, path, &readonly, ZKE_NOTADB);
  ck_says("older");
}

/* P11: a file that a later SQLite wrote in a way in which this one must not: by
 * the header's write version, which is above 2. */
TEST(newer_way_to_write_is_refused) {
  const char *where = directory("d"), *path = sample(test_path("d/a.db"));
  int fd = open(path, O_WRONLY);
  ck_assert_int_eq(pwrite(fd, "\3", 1, 18), 1);
  close(fd);
  refused(where, path, ZKE_READONLY);
  ck_says("a later SQLite");
  zke_options readonly = {.size = sizeof readonly, .flags = ZKE_OPEN_READONLY};
  zke *z;
  ck_ok(zke_open(path, &readonly, &z));
  ck_ok(zke_close(z));
}

/* P11: cut off in the middle. */
TEST(truncated_database_is_refused) {
  const char *where = directory("d"), *path = sample(test_path("d/cut.db"));
  ck_assert_int_eq(truncate(path, file_size(path) / 2 / 4096 * 4096), 0);
  refused(where, path, ZKE_CORRUPT);
  ck_assert_int_eq(truncate(path, 4096), 0);
  refused(where, path, ZKE_CORRUPT);
}

/* P11: a damaged page gives ZKE_CORRUPT, from the open, from the call that
 * reads it or from the check; never a crash or a wrong answer. */
TEST(damaged_page_is_found) {
  const char *whole = test_path("whole.db");
  static char data[20000];
  zke *z = test_open(sample(whole));
  ck_ok(zke_create(z, "/large", data, sizeof data, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_ok(zke_close(z));
  for (int64_t at = 4096; at < file_size(whole); at += 4096) {
    static char garbage[4096];
    const char *path = test_path("damaged.db");
    copy_file(whole, path);
    int fd = open(path, O_WRONLY);
    memset(garbage, 0xa5, sizeof garbage);
    ck_assert_int_eq(pwrite(fd, garbage, 4096, at), 4096);
    close(fd);
    int rc = zke_open(path, NULL, &z);
    if (rc == ZKE_OK) {
      rc = zke_check(z, NULL, NULL);
      zke_close(z);
    }
    ck_assert_msg(rc == ZKE_CORRUPT || rc == ZKE_DATAINCONSISTENCY,
                  "page %d: %s", (int)(at / 4096), zke_error_name(rc));
    unlink(path);
    unlink(joined(path, "-wal"));
    unlink(joined(path, "-shm"));
  }
}

/* P11: a directory, and a path through a missing one. */
TEST(directory_is_refused) {
  const char *where = directory("d");
  refused(where, directory("d/e"), ZKE_CANTOPEN);
  refused(where, test_path("d/missing/app.db"), ZKE_CANTOPEN);
  refused(where, test_path("d/e/"), ZKE_CANTOPEN);
}

static void be_root(void) {
  if (getuid() == 0) ck_assert_int_eq(seteuid(0), 0);
}

/* Continue as a user without root's rights, who may enter the test's directory.
 * This ends with the test, at the latest when the directory is removed. */
static void be_nobody(void) {
  const char *top = test_path(".");
  ck_assert_int_eq(chmod(top, 0711), 0);
  atexit(be_root);
  if (getuid() == 0) ck_assert_int_eq(seteuid(65534), 0);
}

/* As refused(), for a user without rights; root takes the picture. */
static void refused_to_nobody(const char *where, const char *path,
                              unsigned flags, int code) {
  zke_options options = {.size = sizeof options, .flags = flags};
  zke *z = NULL;
  char *before = picture(where);
  be_nobody();
  ck_rc(zke_open(path, &options, &z), code);
  ck_says(path);
  be_root();
  char *after = picture(where);
  ck_assert_str_eq(before, after);
  free(before);
  free(after);
}

/* P11: a file that may not be read. */
TEST(unreadable_file_is_refused) {
  const char *where = directory("d"), *path = sample(test_path("d/a.db"));
  ck_assert_int_eq(chmod(path, 0), 0);
  refused_to_nobody(where, path, 0, ZKE_CANTOPEN);
  refused_to_nobody(where, path, ZKE_OPEN_READONLY, ZKE_CANTOPEN);
}

/* P11: a file that may be read but not written. */
TEST(unwritable_file_is_refused) {
  const char *where = directory("d"), *path = sample(test_path("d/a.db"));
  ck_assert_int_eq(chmod(where, 0777), 0);
  ck_assert_int_eq(chmod(path, 0444), 0);
  refused_to_nobody(where, path, 0, ZKE_READONLY);
}

/* P11: a directory that may not be written, with only a database in it, or with
 * none. */
TEST(unwritable_directory_is_refused) {
  const char *where = directory("d"), *path = test_path("d/a.db");
  copy_file(sample(test_path("a.db")), path);
  ck_assert_int_eq(chmod(path, 0666), 0);
  ck_assert_int_eq(chmod(where, 0555), 0);
  refused_to_nobody(where, path, 0, ZKE_READONLY);
  refused_to_nobody(where, path, ZKE_OPEN_READONLY, ZKE_CANTOPEN);
  refused_to_nobody(where, test_path("d/none.db"), 0, ZKE_CANTOPEN);
  refused_to_nobody(where, test_path("d/none.db"), ZKE_OPEN_READONLY,
                    ZKE_CANTOPEN);
  ck_assert_int_eq(chmod(where, 0777), 0);
}

/* P11: a program's database that has our tables is not called foreign if it
 * just cannot be read. */
TEST(hosted_database_is_no_stranger) {
  const char *where = directory("d"), *path = test_path("d/a.db");
  zke *z = open_as(test_path("a.db"), .flags = ZKE_OPEN_HOST);
  ck_ok(zke_close(z));
  copy_file(test_path("a.db"), path);
  ck_assert_int_eq(chmod(path, 0666), 0);
  ck_assert_int_eq(chmod(where, 0555), 0);
  refused_to_nobody(where, path, ZKE_OPEN_READONLY, ZKE_CANTOPEN);
  ck_says("-shm");
  refused_to_nobody(where, path, 0, ZKE_READONLY);
  ck_assert_int_eq(chmod(where, 0777), 0);
  ck_ok(zke_close(test_open(path)));
}

/* ---- an interrupted creation ---- */

/* The file of a process that dies while creating it: rubbish, with a journal
 * that says that it had no pages. */
static void leave_unfinished(const char *path) {
  char page[4096], journal[512] = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  memset(page, 'Z', sizeof page);
  journal[22] = 2;  /* sectors of 512 bytes */
  journal[26] = 16; /* pages of 4096 */
  write_file(path, page, sizeof page);
  write_file(joined(path, "-journal"), journal, sizeof journal);
}

static struct {
  int open, read; /* how a call on the journal fails, or 0 */
  int fd;         /* of the journal */
} unlucky;

static void before_open(seam_call *c) {
  if (unlucky.open && ends_in(c->path, "-journal"))
    seam_refuse(c, unlucky.open);
}

static void after_open(seam_call *c) {
  if (ends_in(c->path, "-journal")) unlucky.fd = (int)c->result;
}

static void before_pread(seam_call *c) {
  if (c->fd == unlucky.fd && unlucky.read) seam_refuse(c, unlucky.read);
}

/* P11: if the journal cannot be read, the file is not called foreign, and the
 * next open succeeds. */
TEST_LOOP(unreadable_journal_is_no_answer, 0, 3) {
  static const struct {
    int open, read, result;
  } cases[] = {{-EMFILE, 0, ZKE_SYSTEMERROR},
               {-ENOMEM, 0, ZKE_NOMEM},
               {0, -EIO, ZKE_SYSTEMERROR}};
  const char *where = directory("d"), *path = test_path("d/a.db");
  static seam s = {
      .before = {[SEAM_open] = before_open, [SEAM_pread] = before_pread},
      .after = {[SEAM_open] = after_open}};
  zke_options options = {.size = sizeof options, .os = seam_os(&s)};
  leave_unfinished(path);
  unlucky.open = cases[_i].open;
  unlucky.read = cases[_i].read;
  refused_by(where, path, &options, cases[_i].result);
  ck_says("-journal");
  ck_ok(zke_close(test_open(path)));
}

static const char *raced; /* the file */

/* Another process rolls the creation back. */
static void race_roll_back(void) {
  ck_assert_int_eq(truncate(raced, 0), 0);
  test_remove(joined(raced, "-journal"));
}

/* After its length was read, and before its header is. */
static void roll_back_at_length(seam_call *c) {
  bool database = (c->opened_as & SQLITE_OPEN_MAIN_DB) != 0;
  if (database && present(joined(raced, "-journal"))) race_roll_back();
}

/* After its header was read, and before its journal is. */
static void roll_back_at_journal(seam_call *c) {
  if (ends_in(c->path, "-journal") && present(c->path)) race_roll_back();
}

/* P11: another process rolls the creation back while this one reads the file's
 * header, or its journal. */
TEST_LOOP(rolled_back_meanwhile, 0, 2) {
  zke *z = NULL;
  static seam s = {.vfs = "racing",
                   .before = {[SEAM_open] = roll_back_at_journal},
                   .after = {[SEAM_xFileSize] = roll_back_at_length}};
  zke_options options = {.size = sizeof options};
  raced = test_path("a.db");
  if (_i)
    options.os = seam_os(&s);
  else
    options.vfs = seam_vfs(&s);
  leave_unfinished(raced);
  ck_ok(zke_open(raced, &options, &z));
  ck_assert(!present(joined(raced, "-journal")));
}

/* P11: a network file system is refused, for a new and an existing file; also
 * if the system does not say what it is (1). */
TEST_LOOP(network_file_system_is_refused, 0, 2) {
  const char *where = directory("d"), *path = test_path("d/a.db");
  seam s = {.fail = {[SEAM_network] = {_i ? -EIO : 1, .times = SEAM_ALWAYS}}};
  zke_options options = {.size = sizeof options, .os = seam_os(&s)};
  refused_by(where, path, &options, _i ? ZKE_SYSTEMERROR : ZKE_NETWORKFS);
  copy_file(sample(test_path("a.db")), path);
  refused_by(where, path, &options, _i ? ZKE_SYSTEMERROR : ZKE_NETWORKFS);
}

static int filled_before; /* structs that were not zero when passed */

static void expect_empty(seam_call *c) {
  const zke_file *f = c->out;
  bool empty = !f->device && !f->inode && !f->size && !f->mode && !f->uid &&
               !f->gid && !f->type && !f->links && !f->mount;
  for (int i = 0; i < 4; i++) empty = empty && !f->reserved[i];
  filled_before += !empty;
}

/* zkembed.h: a table of an older header does not know all members of zke_file,
 * and does not set them, so they must be 0.  They used to have the stack's
 * content, and a file could have any number of hard links. */
TEST(table_is_given_empty_structs) {
  zke *z = NULL;
  static seam s = {
      .before = {[SEAM_stat] = expect_empty, [SEAM_fstat] = expect_empty}};
  zke_options o = {.size = sizeof o, .os = seam_os(&s)};
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_open(test_path("a.db"), &o, &z));
    make_as(z, "/e", ZKE_EPHEMERAL);
    ck_rc(zke_wait(z, zke_now(z) + 20), ZKE_OPERATIONTIMEOUT);
    ck_ok(zke_close(z));
  }
  ck_assert_int_eq(filled_before, 0);
}

/* P11: no name, or no place for the handle. */
TEST(null_arguments_are_refused) {
  zke *z = (zke *)&z;
  ck_rc(zke_open(NULL, NULL, &z), ZKE_BADARGUMENTS);
  ck_assert_ptr_null(z);
  ck_says("name");
  ck_rc(zke_open(test_path("a.db"), NULL, NULL), ZKE_BADARGUMENTS);
  ck_assert(!present(test_path("a.db")));
}

/* ZKE_OPEN_EXISTING creates nothing; nor does a read-only open. */
TEST(missing_file_is_not_made) {
  const char *where = directory("d"), *path = test_path("d/a.db");
  zke_options options = {.size = sizeof options, .flags = ZKE_OPEN_EXISTING};
  refused_by(where, path, &options, ZKE_CANTOPEN);
  options.flags = ZKE_OPEN_READONLY;
  refused_by(where, path, &options, ZKE_CANTOPEN);
}

/* ZKE_OPEN_EXISTING opens an existing file; an empty one becomes a database. */
TEST(existing_and_empty_files_are_opened) {
  zke *z = open_as(sample(test_path("a.db")), .flags = ZKE_OPEN_EXISTING);
  expect_data(z, "/a", "one");
  ck_ok(zke_close(z));
  write_file(test_path("empty.db"), "", 0);
  z = test_open(test_path("empty.db"));
  make_with(z, "/a", "one");
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  ck_assert_int_gt(file_size(test_path("empty.db")), 0);
}

/* ---- a full disk ---- */

/* P11: changes are refused on a full disk, everything acknowledged stays
 * readable, and changes succeed again when there is room. */
TEST(full_disk_loses_nothing) {
  if (!test_small_disk("disk", 4096)) return;
  static char data[100000];
  const char *ballast = test_path("disk/ballast");
  memset(data, 'x', sizeof data - 1);
  zke *z = test_open(test_path("disk/a.db"));
  make_with(z, "/kept", "one");
  test_fill_disk(ballast);
  ck_rc(zke_create(z, "/a", data, sizeof data, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL),
        ZKE_FULL);
  expect_data(z, "/kept", "one");
  ck_rc(see(z, "/a"), ZKE_NONODE);
  ck_rc(zke_set(z, "/kept", data, sizeof data, -1, NULL), ZKE_FULL);
  expect_data(z, "/kept", "one");
  ck_assert_int_eq(unlink(ballast), 0);
  ck_ok(zke_set(z, "/kept", data, sizeof data, -1, NULL));
  expect_data(z, "/kept", data);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  z = test_open(test_path("disk/a.db"));
  expect_data(z, "/kept", data);
}

/* P11: when zkembed's own writing fills the disk, exactly the acknowledged
 * changes are there. */
TEST(filling_the_disk_loses_nothing) {
  if (!test_small_disk("disk", 2048)) return;
  static char data[30000], path[32];
  zke *z = test_open(test_path("disk/a.db"));
  int made = 0, rc = ZKE_OK;
  for (; rc == ZKE_OK && made < 1000; made += rc == ZKE_OK) {
    snprintf(path, sizeof path, "/n%d", made);
    rc = zke_create(z, path, data, sizeof data, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                    NULL, NULL);
  }
  ck_rc(rc, ZKE_FULL);
  for (int round = 0; round < 2; round++) {
    zke_stat stat;
    stat = test_stat(z, "/");
    ck_assert_int_eq(stat.numChildren, made + 1);
    ck_ok(zke_check(z, NULL, NULL));
    if (round == 0) {
      zke_close(z);
      zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_READONLY};
      int opened = zke_open(test_path("disk/a.db"), NULL, &z);
      if (opened != ZKE_OK) opened = zke_open(test_path("disk/a.db"), &o, &z);
      ck_ok(opened);
    }
  }
  zke_close(z);
}

/* P11: no room for a new database; with room it opens. */
TEST(full_disk_at_open) {
  if (!test_small_disk("disk", 512)) return;
  const char *ballast = test_path("disk/ballast");
  zke *z;
  test_fill_disk(ballast);
  ck_rc(zke_open(test_path("disk/a.db"), NULL, &z), ZKE_FULL);
  ck_says("a.db");
  ck_assert_int_eq(unlink(ballast), 0);
  z = test_open(test_path("disk/a.db"));
  make_with(z, "/a", "one");
}

/* ---- read-only ---- */

/* A read-only handle reads what another handle has written, changes nothing,
 * and is no session. */
TEST(readonly_reads_only) {
  const char *path = sample(test_path("a.db"));
  zke *z = test_open(path);
  test_events none = {0};
  zke *r = open_as(path, .flags = ZKE_OPEN_READONLY);
  ck_assert_int_eq(zke_session_id(r), 0);
  ck_assert_int_eq(zke_state(r), ZKE_STATE_READONLY);
  expect_data(r, "/a", "one");
  ck_ok(zke_set(z, "/a", "new", 3, -1, NULL));
  expect_data(r, "/a", "new");
  ck_rc(create(r, "/c", ZKE_PERSISTENT), ZKE_READONLY);
  ck_rc(zke_set(r, "/a", "", 0, -1, NULL), ZKE_READONLY);
  ck_rc(zke_delete(r, "/a/b", -1), ZKE_READONLY);
  ck_rc(zke_expire(r, zke_session_id(z)), ZKE_READONLY);
  ck_rc(zke_discard(r, "/a", ZKE_EPHEMERAL, 0), ZKE_READONLY);
  int64_t turn = zke_turn(r);
  ck_rc(zke_wake(r), ZKE_READONLY);
  ck_assert_int_eq(zke_turn(r), turn);
  ck_rc(zke_call_at(r, 0, test_record, &none), ZKE_READONLY);
  ck_says("was opened read-only");
  expect_data(r, "/a", "new");
  ck_assert_int_eq(test_session_count(r), 1);
  ck_ok(zke_check(r, NULL, NULL));
  ck_ok(zke_close(r));
  ck_assert_int_eq(test_session_count(z), 1);
}

/* A read-only open of a database that no other handle has open leaves the file
 * unchanged and no trace of a session; it may create only SQLite's -shm and an
 * empty -wal. */
TEST(readonly_leaves_the_file_alone) {
  const char *path = test_path("a.db");
  copy_file(sample(test_path("b.db")), path);
  unsigned long before = hash_of(path);
  zke *r = open_as(path, .flags = ZKE_OPEN_READONLY);
  expect_data(r, "/a", "one");
  ck_assert_int_eq(test_session_count(r), 0);
  ck_ok(zke_close(r));
  ck_assert(hash_of(path) == before);
  ck_assert(!present(joined(path, "-zke")));
  ck_assert_int_eq(file_size(joined(path, "-wal")), 0);
}

static void expect_file(seam_call *c) { ck_assert_int_ge(c->fd, 0); }

/* P9: a read-only handle of a database without side files reads none. */
TEST(readonly_reads_no_file_that_is_missing) {
  static seam s = {.before = {[SEAM_pread] = expect_file}};
  copy_file(sample(test_path("b.db")), test_path("a.db"));
  zke *r =
      open_as(test_path("a.db"), .flags = ZKE_OPEN_READONLY, .os = seam_os(&s));
  expect_data(r, "/a", "one");
}

/* ---- files removed or replaced under open handles ---- */

static const char *const beside[] = {"",          "-wal",      "-shm",
                                     "-zke/live", "-zke/gate", "-zke/line"};
enum { BESIDE = sizeof beside / sizeof beside[0] };

/* Within a tick or two of waiting every call fails with an error. */
static void expect_replaced(zke *z) {
  int64_t end = test_now() + test_patience(4000);
  int rc = ZKE_OK;
  while (rc != ZKE_REPLACED && test_now() < end) {
    zke_wait(z, zke_now(z) + 50);
    rc = see(z, "/");
  }
  ck_rc(rc, ZKE_REPLACED);
  ck_says("a.db");
  ck_rc(zke_set(z, "/a", "lost", 4, -1, NULL), ZKE_REPLACED);
}

/* design.md 8: each file that belongs to the database is unlinked, each from
 * another database, so that their ticks come in the same second. */
TEST(unlinked_file_is_noticed) {
  zke *z[BESIDE];
  for (int i = 0; i < BESIDE; i++) {
    char name[] = "0-a.db";
    name[0] += (char)i;
    const char *path = sample(test_path(name));
    z[i] = test_open(path);
    make_as(z[i], "/e", ZKE_EPHEMERAL);
    ck_assert_int_eq(unlink(joined(path, beside[i])), 0);
  }
  for (int i = 0; i < BESIDE; i++) {
    expect_replaced(z[i]);
    zke_close(z[i]);
  }
}

/* design.md 8: the database is moved away. */
TEST(renamed_database_is_noticed) {
  const char *path = sample(test_path("a.db"));
  zke *z = test_open(path);
  ck_assert_int_eq(rename(path, test_path("moved.db")), 0);
  expect_replaced(z);
  zke_close(z);
}

/* design.md 5: a session is alive, and the liveness file or the gate file is
 * missing or was replaced.  A new process is refused, since all lock bytes
 * would look free. */
TEST_LOOP(newcomer_is_refused_without_side_files, 0, 4) {
  const char *path = test_path("a.db");
  const char *live = joined(path, _i < 2 ? "-zke/live" : "-zke/gate");
  test_worker w = test_spawn("hold", path, "/e", NULL);
  ck_assert_int_eq(strncmp(test_line(&w), "ready ", 6), 0);
  ck_assert_int_eq(unlink(live), 0);
  if (_i % 2 == 1) write_file(live, "", 0);
  zke *z;
  ck_rc(zke_open(path, NULL, &z), ZKE_REPLACED);
  ck_says(path);
  ck_assert_int_eq(sql(path, "SELECT count(*) FROM zke_sessions"), 1);
  ck_assert_int_eq(test_wait(&w), 0);
}

/* Side files may be removed when no process has the database open.  That ends
 * the detached sessions. */
TEST(side_files_may_go_between) {
  const char *path = sample(test_path("a.db"));
  unsigned char password[16];
  zke *z = test_open(path);
  zke *kept = session_as(z, .timeout_ms = 600000);
  int64_t id = zke_session_id(kept);
  ck_ok(zke_password(kept, password));
  ck_ok(zke_detach(kept));
  ck_ok(zke_close(z));
  for (int i = 1; i < BESIDE; i++) unlink(joined(path, beside[i]));
  test_remove(joined(path, "-zke"));
  z = test_open(path);
  ck_rc(zke_attach(z, id, password, NULL, &kept), ZKE_SESSIONEXPIRED);
  expect_data(z, "/a", "one");
  make_as(z, "/e", ZKE_EPHEMERAL);
}

/* ---- copies and restores ---- */

/* design.md 7, P8: in a copy all sessions of the original are dead, and zxids
 * begin above all that the original can have issued; the original is
 * unaffected. */
TEST(copy_has_no_sessions) {
  const char *path = sample(test_path("a.db")), *copy = test_path("copy.db");
  zke *z = test_open(path);
  make_as(z, "/e", ZKE_EPHEMERAL);
  int64_t zxid = test_zxid(z);
  back_up(path, copy);
  zke *c = test_open(copy);
  expect_data(c, "/a/b", "two");
  ck_rc(see(c, "/e"), ZKE_NONODE);
  ck_assert_int_eq(test_session_count(c), 1);
  ck_assert_int_gt(test_zxid(c) >> 32, zxid >> 32);
  ck_assert_int_ne(zke_session_id(c), zke_session_id(z));
  ck_ok(zke_check(c, NULL, NULL));
  ck_ok(see(z, "/e"));
  ck_assert_int_eq(test_zxid(z), zxid + 1);
}

/* P8: a backup is put back, by renaming (0), removing and copying (1: the new
 * file may have the old one's inode) or copying over (2).  No zxid and no
 * session id that was used after the backup is issued again. */
TEST_LOOP(restored_database_reissues_nothing, 0, 3) {
  const char *path = sample(test_path("a.db")), *copy = test_path("copy.db");
  copy_file(path, copy);
  zke *z = test_open(path);
  int64_t zxid = test_zxid(z), id = zke_session_id(z);
  ck_ok(zke_set(z, "/a", "later", 5, -1, NULL));
  ck_ok(zke_close(z));
  if (_i == 0) ck_assert_int_eq(rename(copy, path), 0);
  if (_i == 1) ck_assert_int_eq(unlink(path), 0);
  if (_i > 0) copy_file(copy, path);
  z = test_open(path);
  expect_data(z, "/a", "one");
  ck_assert_int_gt(test_zxid(z), zxid);
  ck_assert_int_gt(zke_session_id(z), id);
}

/* ---- what survives ---- */

/* P8: after a close and an open each node is the same, and zxids, session ids
 * and sequence numbers continue. */
TEST(reopened_database_goes_on) {
  const char *path = sample(test_path("a.db"));
  zke *z = test_open(path);
  int sequence = next_sequence(z);
  bulk(z, "/kept", BATCH, 300);
  int64_t zxid = test_zxid(z), id = zke_session_id(z);
  char *before = node_rows(path);
  ck_ok(zke_close(z));
  z = test_open(path);
  expect_same(node_rows(path), before);
  expect_data(z, "/a", "one");
  expect_data(z, "/a/b", "two");
  ck_assert_int_eq(next_sequence(z), sequence + 2); /* after "/kept" too */
  ck_assert_int_gt(test_zxid(z), zxid);
  ck_assert_int_eq(test_zxid(z) >> 32, zxid >> 32);
  ck_assert_int_gt(zke_session_id(z), id);
  ck_assert_int_eq(test_session_count(z), 1);
}

/* The schema of a database, one line for each of its objects. */
static char *schema_of(sqlite3 *db) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  ck_assert_int_eq(
      sqlite3_exec(db, "SELECT sql FROM sqlite_schema ORDER BY name", print_row,
                   out, NULL),
      SQLITE_OK);
  fclose(out);
  return text;
}

/* format.md 7: a file that 1.0 wrote is read, with everything in it, and is
 * written.  Its sessions have ended, since it is a copy.  As long as format 4
 * is the one that is written, a new file's schema is exactly the same. */
TEST(a_file_of_1_0_is_read) {
  const char *path = test_path("a.db"), *fresh = test_path("new.db");
  char *text = read_file("test/engine/format4.sql", NULL), *data;
  int len;
  sqlite3 *db;
  ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
  ck_assert_int_eq(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
  free(text);
  text = schema_of(db);
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);

  zke *z = test_open(path);
  ck_ok(zke_check(z, NULL, NULL));
  expect_data(z, "/app", "two");
  expect_data(z, "/app/container/child", "x");
  expect_data(z, "/app/ttl", "expires");
  ck_ok(zke_get(z, "/app/binary", NULL, NULL, &data, &len, NULL));
  ck_assert_int_eq(len, 3);
  ck_assert_mem_eq(data, "a\0b", 3);
  zke_free(data);
  ck_assert_int_eq(test_stat(z, "/app/big").dataLength, 5000);
  ck_rc(see(z, "/app/e"), ZKE_NONODE);
  ck_assert_int_eq(test_session_count(z), 1);
  ck_rc(zke_get(z, "/private", NULL, NULL, &data, &len, NULL), ZKE_NOAUTH);
  ck_ok(zke_add_auth(z, "digest", "user:secret", 11));
  expect_data(z, "/private", "hidden");
  ck_assert_int_gt(test_zxid(z) >> 32, 1);
  ck_assert_int_eq(sql(path, "SELECT count(*) FROM zke_history WHERE seq<14"),
                   13);
  ck_ok(zke_create(z, "/app/n-", NULL, -1, ZKE_OPEN_ACL,
                   ZKE_PERSISTENT_SEQUENTIAL, &data, NULL));
  ck_assert_str_eq(data, "/app/n-0000000007");
  zke_free(data);
  ck_ok(zke_close(z));

  z = test_open(fresh);
  ck_ok(zke_history_keep(z, 100000, 0));
  db = plain_open(fresh);
  expect_same(schema_of(db), text);
  sqlite3_close(db);
}

/* design.md 8: after the last close the database file alone is complete. */
TEST(file_alone_is_complete) {
  const char *path = sample(test_path("a.db")), *alone = test_path("b.db");
  zke *z = test_open(path), *second = test_open(path);
  make_with(second, "/late", "three");
  ck_ok(zke_close(z));
  make_with(second, "/later", "four");
  ck_ok(zke_close(second));
  ck_assert_int_eq(file_size(joined(path, "-wal")), 0);
  copy_file(path, alone);
  z = test_open(alone);
  expect_data(z, "/a", "one");
  expect_data(z, "/late", "three");
  expect_data(z, "/later", "four");
}

/* P8: which changes are synced before they return, and which are not. */
static const struct {
  const char *change;
  bool synced;
} kinds[] = {
    {"create /p x 0", true},     {"create /p/q- x 2", true},
    {"create /c x 4", true},     {"create /t x 5", true},
    {"set /p y", true},          {"create /e x 1", false},
    {"create /p/e- x 3", false}, {"set /e y", false},
    {"watch /p", false},         {"watch /e", false},
    {"delete /e", false},        {"create /e x 1", false},
    {"multi /e /m /c", true},    {"multi /p /n /e", true},
    {"watchtree /", false},      {"set /p z", true},
    {"delete /t", true},         {"create /e x 1", false},
    {"create /f x 1", false},    {"guard /e /p", true},
    {"pass /e /f", false}, /* it has learned from another kind of multi */
    {"guard /e /p", true},       {"light /g", false},
    {"create /h x 0", true},     {"batch /e /b /h", true},
    {"light /g", false},
};

/* After each change of the table: was the log synced as this durability
 * requires? */
static void expect_syncs(int durability) {
  test_worker w = test_spawn("talk", NULL);
  test_ask(&w, "open %s durable=%d", test_path("a.db"), durability);
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    bool wanted = durability == ZKE_DURABLE_BY_KIND && kinds[i].synced;
    if (durability == ZKE_DURABLE_ALL) wanted = true;
    test_ask(&w, "syncs");
    test_ask(&w, "%s", kinds[i].change);
    int syncs = atoi(test_ask(&w, "syncs"));
    ck_assert_msg((syncs > 0) == wanted, "%s: %d syncs", kinds[i].change,
                  syncs);
  }
  test_kill(&w, SIGKILL);
}

/* P8: each change of the table syncs the log before it returns if its node's
 * kind and the handle's durability require it. */
TEST_LOOP(changes_are_synced_by_kind, 0, 3) { expect_syncs(_i); }

/* ---- syncs of the directory ---- */

static int directory_syncs; /* by the library, and by SQLite */
static int (*open_directory)(const char *path, int *fd);

static int count_open_directory(const char *path, int *fd) {
  directory_syncs++;
  return open_directory(path, fd);
}

static void count_fsync(seam_call *c) {
  directory_syncs += seam_type(c->fd) == ZKE_FILE_DIRECTORY;
}

static zke *open_counting(const char *path) {
  static seam s = {.before = {[SEAM_fsync] = count_fsync}};
  return open_as(path, .os = seam_os(&s));
}

/* How often the directory was synced since this was last asked, including by
 * the first durable change of a new store. */
static int syncs_with_change(const char *path, const char *node) {
  zke *z = open_counting(path);
  make_with(z, node, "x");
  int syncs = directory_syncs;
  ck_ok(zke_close(z));
  directory_syncs = 0;
  return syncs;
}

/* The salts of a log. */
static int64_t salts(const char *path) {
  int64_t out = 0;
  FILE *f = fopen(joined(path, "-wal"), "r");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_eq(fseek(f, 16, SEEK_SET), 0);
  ck_assert_int_eq(fread(&out, sizeof out, 1, f), 1);
  fclose(f);
  return out;
}

/* Write until a checkpoint has emptied the log and it starts again. */
static void begin_log_again(zke *z, const char *path) {
  static char data[100000];
  int64_t before = salts(path);
  while (salts(path) == before)
    ck_ok(zke_set(z, "/a", data, sizeof data, -1, NULL));
}

/* P8: the directory entry of the log is synced once, by the first store.  It is
 * synced again by a store that finds a log which another program has made to
 * replace one whose entry was synced. */
TEST(the_name_of_a_log_is_synced_once) {
  const char *path = sample(test_path("a.db"));
  sqlite3_vfs *v = sqlite3_vfs_find(NULL);
  open_directory = (int (*)(const char *, int *))(
                       void (*)(void))v->xGetSystemCall(v, "openDirectory");
  v->xSetSystemCall(v, "openDirectory",
                    (sqlite3_syscall_ptr)(void (*)(void))count_open_directory);
  zke *keeps = open_counting(path); /* so that the log stays */
  ck_assert_int_gt(syncs_with_change(path, "/one"), 0);
  ck_assert_int_eq(syncs_with_change(path, "/two"), 0);
  begin_log_again(keeps, path);
  ck_assert_int_eq(syncs_with_change(path, "/three"), 0);
  ck_ok(zke_close(keeps));
  sqlite3 *db = plain_open(path); /* its close deletes the log */
  must(db, "SELECT * FROM zkembed_node");
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
  ck_assert_int_ne(access(joined(path, "-wal"), F_OK), 0);
  db = plain_open(path); /* makes the log again */
  must(db, "PRAGMA user_version");
  must(db, "CREATE TABLE t(a);INSERT INTO t VALUES(1)");
  directory_syncs = 0;
  keeps = open_counting(path);
  ck_assert_int_gt(syncs_with_change(path, "/four"), 0);
  ck_assert_int_eq(syncs_with_change(path, "/five"), 0);
  ck_ok(zke_close(keeps));
  ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
  v->xSetSystemCall(v, "openDirectory", NULL);
}

/* One database under two names is one tree: the side files follow the file
 * itself, not the name. */
TEST(symbolic_link_is_the_same_database) {
  const char *path = sample(test_path("a.db")), *link = test_path("link.db");
  ck_assert_int_eq(symlink(path, link), 0);
  test_worker w = test_spawn("hold", link, "/e", NULL);
  ck_assert_int_eq(strncmp(test_line(&w), "ready ", 6), 0);
  zke *z = test_open(path);
  ck_ok(see(z, "/e"));
  ck_assert_int_eq(test_session_count(z), 2);
  ck_assert(!present(joined(link, "-zke")));
  ck_ok(zke_close(z));
  ck_assert_int_eq(test_wait(&w), 0);
}

/* format.md: a session's row has the inode of the file with its lock. */
TEST(life_is_named_by_its_row) {
  const char *path = sample(test_path("a.db"));
  struct stat st;
  char name[300];
  bool found = false;
  test_open(path);
  int64_t life = sql(path, "SELECT life FROM zkembed_session");
  for (int i = 0; i < 64 && !found; i++) {
    snprintf(name, sizeof name, "%s-zke/live.%02x", path, i);
    found = stat(name, &st) == 0 && (int64_t)st.st_ino == life;
  }
  ck_assert(found);
}

/* The maker of a file of lives may have died before it set the database's mode:
 * a session that puts its life there sets it. */
TEST(file_of_lives_gets_its_mode) {
  const char *path = sample(test_path("a.db"));
  char name[300];
  struct stat st;
  ck_assert_int_eq(chmod(path, 0660), 0);
  zke *z = test_open(path);
  for (int i = 0; i < 64; i++) {
    snprintf(name, sizeof name, "%s-zke/live.%02x", path, i);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fchmod(fd, 0600), 0);
    close(fd);
  }
  test_session(z, NULL);
  int64_t life = sql(path, "SELECT life FROM zkembed_session ORDER BY id");
  for (int i = 0; i < 64; i++) {
    snprintf(name, sizeof name, "%s-zke/live.%02x", path, i);
    ck_assert_int_eq(stat(name, &st), 0);
    unsigned mode = (int64_t)st.st_ino == life ? 0660 : 0600;
    ck_assert_uint_eq(st.st_mode & 0777u, mode);
  }
}

/* The kernel says that a file of lives has another group, as it does if its
 * maker is not a member of the database's group.  Then the liveness file
 * carries the life. */
static void move_life(seam_call *c) {
  char link[64], name[PATH_MAX] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", c->fd);
  ck_assert_int_gt(readlink(link, name, sizeof name - 1), 0);
  c->out->gid += strstr(name, "-zke/live.") != NULL;
}

static seam life_elsewhere = {.after = {[SEAM_fstat] = move_life}};

/* P5: no life is put into a liveness file that other stores do not use. */
TEST(life_in_a_replaced_file_is_refused) {
  const char *path = sample(test_path("a.db"));
  const char *live = joined(path, "-zke/live");
  zke *further = NULL;
  ck_assert_int_eq(chmod(path, 0660), 0);
  zke *z = open_as(path, .os = seam_os(&life_elsewhere));
  ck_assert_int_eq(rename(live, test_path("elsewhere")), 0);
  copy_file(test_path("elsewhere"), live);
  ck_rc(zke_open_session(z, NULL, &further), ZKE_REPLACED);
  ck_says("live was replaced");
  ck_assert_ptr_null(further);
  ck_assert_int_eq(test_number(path, "SELECT count(*)FROM zkembed_session"), 1);
  zke_close(z);
}

/* A process that dies; its session's life is in the liveness file. */
static int die_with_life_elsewhere(void *path) {
  zke *z;
  zke_options o = {.size = sizeof o, .os = seam_os(&life_elsewhere)};
  if (zke_open(path, &o, &z) != ZKE_OK) return 1;
  return 0; /* without zke_close() */
}

/* A read-only handle reports a dead session as dead, even if its life was in
 * the liveness file; it used to say alive. */
TEST(readonly_sees_dead_sessions) {
  const char *path = sample(test_path("a.db"));
  zke_session_list *list = NULL;
  struct stat live;
  ck_assert_int_eq(chmod(path, 0660), 0);
  ck_assert_int_eq(test_child_end(test_child(die_with_life_elsewhere,
                                             (void *)(uintptr_t)path)),
                   0);
  ck_assert_int_eq(stat(joined(path, "-zke/live"), &live), 0);
  zke *z = open_as(path, .flags = ZKE_OPEN_READONLY);
  ck_assert_int_eq(sql(path, "SELECT life FROM zkembed_session"),
                   (int64_t)live.st_ino);
  ck_ok(zke_sessions(z, -1, &list));
  ck_assert_int_eq(list->count, 1);
  ck_assert_int_eq(list->data[0].alive, 0);
  zke_free(list);
}

/* A link that replaces the liveness file is not followed: then no session is
 * known to be dead. */
TEST(readonly_follows_no_link) {
  const char *path = sample(test_path("a.db"));
  const char *live = joined(path, "-zke/live");
  ck_assert_int_eq(rename(live, test_path("elsewhere")), 0);
  ck_assert_int_eq(symlink(test_path("elsewhere"), live), 0);
  int before = test_fd_count();
  open_as(path, .flags = ZKE_OPEN_READONLY);
  char link[64], name[PATH_MAX];
  for (int fd = 0; fd < before + 20; fd++) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, name, sizeof name - 1);
    name[len < 0 ? 0 : len] = '\0';
    ck_assert_msg(!ends_in(name, "/elsewhere"), "%s is open", name);
  }
}

/* A relative name stays valid when the process changes its directory. */
TEST(relative_name_survives_chdir) {
  sample(test_path("a.db"));
  ck_assert_int_eq(chdir(test_path(".")), 0);
  zke *z = test_open("a.db");
  ck_assert_int_eq(chdir("/"), 0);
  make_as(z, "/e", ZKE_EPHEMERAL);
  ck_assert_int_eq(zke_wait(z, zke_now(z) + 1300), ZKE_OPERATIONTIMEOUT);
  ck_ok(see(z, "/e"));
  expect_data(z, "/a", "one");
}

static void expect_mode(const char *path, unsigned mode, gid_t group) {
  struct stat s;
  ck_assert_msg(stat(path, &s) == 0, "%s: %s", path, strerror(errno));
  ck_assert_msg((s.st_mode & 07777) == mode && s.st_gid == group,
                "%s: mode %o, group %u", path, s.st_mode & 07777, s.st_gid);
}

/* Everything in the side directory has the mode of a file; a FIFO may only be
 * written by others. */
static void expect_side_modes(const char *path, unsigned mode, gid_t group) {
  DIR *d = opendir(path);
  ck_assert_ptr_nonnull(d);
  int seen = 0;
  for (struct dirent *e; (e = readdir(d)) != NULL;) {
    if (e->d_name[0] == '.') continue;
    bool fifo = strlen(e->d_name) == 16;
    expect_mode(joined(joined(path, "/"), e->d_name), fifo ? mode & 0222 : mode,
                group);
    seen++;
  }
  closedir(d);
  ck_assert_int_ge(seen, 1);
}

/* design.md 5: mode and group of side files follow the database's, whatever
 * the umask. */
TEST_LOOP(side_files_follow_the_database, 0, 4) {
  static const struct {
    unsigned file, directory, mask;
  } modes[] = {{0660, 0770, 077},
               {0600, 0700, 0},
               {0666, 0777, 0777},
               {0664, 0775, 077}};
  const char *path = test_path("a.db");
  gid_t group = getuid() == 0 ? 65533 : getgid();
  write_file(path, "", 0);
  ck_assert_int_eq(chown(path, (uid_t)-1, group), 0);
  ck_assert_int_eq(chmod(path, modes[_i].file), 0);
  mode_t mask = umask(modes[_i].mask);
  zke *z = test_open(path);
  zke_exists(z, "/watched", test_record, NULL, NULL);
  umask(mask);
  expect_mode(path, modes[_i].file, group);
  expect_mode(joined(path, "-wal"), modes[_i].file, group);
  expect_mode(joined(path, "-shm"), modes[_i].file, group);
  expect_mode(joined(path, "-zke"), modes[_i].directory, group);
  expect_side_modes(joined(path, "-zke"), modes[_i].file, group);
}

/* The same for a user whose umask denies access to new files (0), or after a
 * death between creating a file and setting its mode (1): nothing stays
 * inaccessible. */
TEST_LOOP(no_umask_locks_its_user_out, 0, 2) {
  const char *where = directory("d"), *path = test_path("d/a.db");
  const char *side = joined(path, "-zke"), *gate = joined(path, "-zke/gate");
  ck_assert_int_eq(chmod(where, 0777), 0);
  be_nobody();
  write_file(path, "", 0);
  ck_assert_int_eq(chmod(path, 0640), 0);
  if (_i) {
    ck_assert_int_eq(mkdir(side, 0700), 0);
    write_file(gate, "", 0);
    ck_assert(chmod(gate, 0) == 0 && chmod(side, 0) == 0);
  }
  mode_t mask = umask(_i ? 022 : 0777);
  zke *z = test_open(path);
  umask(mask);
  expect_mode(joined(path, "-wal"), 0640, getegid());
  expect_mode(side, 0750, getegid());
  expect_side_modes(side, 0640, getegid());
  ck_ok(zke_close(z));
  ck_ok(zke_close(test_open(path)));
  be_root();
}

/* ---- epochs ---- */

static const char *boot; /* "": there is none */

static void pretend_boot(seam_call *c) {
  seam_refuse(c, boot[0] ? snprintf(c->data, c->size, "%s", boot) : -ENOENT);
}

/* A kernel that says it has this boot id. */
static seam booted = {.before = {[SEAM_boot_id] = pretend_boot}};

static zke *open_booted(const char *path, const char *id) {
  boot = id;
  return open_as(path, .os = seam_os(&booted));
}

/* P5, design.md 7: containers on one kernel can have different boot ids; while
 * a session lives, another id is no reboot. */
TEST(other_boot_id_reaps_nobody) {
  const char *path = test_path("a.db");
  zke *z = open_booted(path, "one");
  make_as(z, "/mine", ZKE_EPHEMERAL);
  int64_t zxid = test_zxid(z);
  test_worker w = test_spawn("talk", NULL);
  test_ask(&w, "open %s boot=two", path);
  test_ask(&w, "create /theirs x 1");
  zke *third = open_booted(path, "three");
  zke_wait(z, zke_now(z) + 1200);
  ck_ok(see(z, "/mine"));
  ck_ok(see(third, "/theirs"));
  test_ask(&w, "exists /mine");
  ck_assert_int_eq(test_session_count(z), 3);
  ck_assert_int_eq(test_zxid(z) >> 32, zxid >> 32);
  ck_ok(zke_close(third));
  test_kill(&w, SIGKILL);
}

/* P8: after a reboot, which another boot id (or none) simulates after all
 * processes have died, even if the liveness file is lost: sessions and
 * ephemerals are gone, and no zxid, session id or sequence number comes
 * twice. */
TEST_LOOP(reboot_reissues_nothing, 0, 3) {
  static const char *const next_boot[] = {"two", "", "two"};
  const char *path = sample(test_path("a.db"));
  test_worker w = test_spawn("talk", NULL);
  int64_t id = atoll(test_ask(&w, "open %s boot=one", path));
  test_ask(&w, "create /e x 1");
  int sequence = atoi(test_ask(&w, "create /s- x 2") + strlen("/s-"));
  int64_t zxid = sql(path, "SELECT max(czxid) FROM zke_nodes");
  test_kill(&w, SIGKILL);
  if (_i == 2) ck_assert_int_eq(unlink(joined(path, "-zke/live")), 0);
  zke *z = open_booted(path, next_boot[_i]);
  ck_rc(see(z, "/e"), ZKE_NONODE);
  ck_assert_int_eq(test_session_count(z), 1);
  ck_assert_int_gt(zke_session_id(z), id);
  ck_assert_int_eq(next_sequence(z), sequence + 1);
  ck_assert_int_gt(test_zxid(z) >> 32, zxid >> 32);
  expect_data(z, "/a", "one");
}

/* The calls whose answers an open needs. */
static const seam_kind asked[] = {SEAM_open,  SEAM_stat,  SEAM_fstat,
                                  SEAM_pread, SEAM_probe, SEAM_boot_id};
enum { ASKED = sizeof asked / sizeof *asked };

/* Open while the n-th call of a kind fails, alone or with all after it; if that
 * fails, open again without.  Returns false if there were fewer calls. */
static bool open_missing(const char *path, seam_kind kind, seam_fault fault,
                         zke **z) {
  zke_options options = {.size = sizeof options, .os = seam_os(&booted)};
  booted.calls[kind] = 0;
  booted.fail[kind] = fault;
  int rc = zke_open(path, &options, z);
  booted.fail[kind].times = 0;
  bool failed = booted.calls[kind] > fault.skip;
  ck_assert(rc == ZKE_OK || failed);
  if (rc != ZKE_OK) ck_ok(zke_open(path, &options, z));
  return failed;
}

/* A process that dies with an ephemeral node; before that it detaches a kept
 * session. */
static int die_with_a_lock(void *path) {
  zke *z, *kept;
  boot = "one";
  zke_options o = {.size = sizeof o, .os = seam_os(&booted)};
  zke_options k = {.size = sizeof k, .timeout_ms = 600000};
  return zke_open(path, &o, &z) || zke_open_session(z, &k, &kept) ||
         zke_detach(kept) ||
         zke_create(z, "/e", NULL, -1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
}

/* Without the kernel's answer no session is dead, and none alive: an open that
 * gets no answer fails, and leaves all as it was for a later one.  In turn: a
 * new boot; a new boot that lost the side files; no new boot, with no process
 * but a detached session; a living process that has another boot id. */
TEST_LOOP(no_answer_decides_nothing, 0, 4 * ASKED) {
  test_in_memory();
  const char *path = sample(test_path("a.db"));
  seam_kind kind = asked[_i / 4];
  const int errors[] = {EIO, EMFILE, kind == SEAM_boot_id ? ENFILE : EACCES};
  bool more = true, again = _i % 4 < 2;
  int stride = (int)test_stride(3);
  for (int n = 1; more; n++) {
    for (int e = (n + _i) % stride; e < 6; e += stride) {
      zke *mine = NULL, *z;
      ck_assert_int_eq(
          test_child_end(test_child(die_with_a_lock, (void *)(uintptr_t)path)),
          0);
      int64_t epoch = sql(path, "SELECT max(czxid)>>32 FROM zke_nodes");
      if (_i % 4 == 1) test_remove(joined(path, "-zke"));
      if (_i % 4 == 3) mine = open_booted(path, "one");
      if (mine) make_as(mine, "/mine", ZKE_EPHEMERAL);
      boot = _i % 4 == 2 ? "one" : "two";
      seam_fault fault = {-errors[e / 2], n - 1,
                          .times = e % 2 ? SEAM_ALWAYS : 1};
      more = open_missing(path, kind, fault, &z);
      if (again) ck_rc(see(z, "/e"), ZKE_NONODE);
      if (mine) ck_ok(see(z, "/mine"));
      ck_assert_int_eq(zke_session_id(z) >> 32 > epoch, again);
      ck_assert_int_eq(
          sql(path, "SELECT count(*) FROM zkembed_session WHERE timeout<>0"),
          !again);
      if (again) ck_assert_int_eq(test_session_count(z), 1);
      ck_ok(zke_check(z, NULL, NULL));
      ck_ok(zke_close(z));
      ck_ok(zke_close(mine));
      test_remove(joined(path, "-zke"));
      test_remove(path);
      test_remove(joined(path, "-wal"));
      test_remove(joined(path, "-shm"));
      sample(path);
    }
  }
}

/* P8: the same boot raises no epoch. */
TEST(same_boot_keeps_the_epoch) {
  const char *path = sample(test_path("a.db"));
  test_worker w = test_spawn("talk", NULL);
  test_ask(&w, "open %s", path);
  test_kill(&w, SIGKILL);
  zke *z = test_open(path);
  int64_t zxid = test_zxid(z);
  ck_ok(zke_close(z));
  z = test_open(path);
  ck_assert_int_eq(test_zxid(z) >> 32, zxid >> 32);
}

/* Use the database in that boot; returns the session's id, and a later zxid. */
static int64_t use_booted(const char *path, const char *id, int64_t *zxid) {
  zke *z = open_booted(path, id);
  int64_t session = zke_session_id(z);
  *zxid = test_zxid(z);
  ck_ok(zke_close(z));
  return session;
}

/* P8: a power cut loses the record of the last zxid, and an earlier backup is
 * restored, by renaming (0) or copying over (1): the epoch between the two is
 * still known. */
TEST_LOOP(cut_and_restore_reissue_nothing, 0, 2) {
  const char *path = sample(test_path("a.db")), *copy = test_path("copy.db");
  char hint[8]; /* the zxid of the last change: doc/format.md */
  int64_t zxid, later;
  use_booted(path, "first", &zxid);
  copy_file(path, copy);
  int live = open(joined(path, "-zke/live"), O_RDWR);
  ck_assert_int_eq(pread(live, hint, sizeof hint, 16), sizeof hint);
  int64_t id = use_booted(path, "second", &zxid);
  ck_assert_int_eq(pwrite(live, hint, sizeof hint, 16), sizeof hint);
  close(live);
  if (_i == 0)
    ck_assert_int_eq(rename(copy, path), 0);
  else
    copy_file(copy, path);
  ck_assert_int_gt(use_booted(path, "third", &later), id);
  ck_assert_int_gt(later, zxid);
}

/* ---- a failed sync ---- */

/* P2: a sync that fails at COMMIT gives ZKE_CONNECTIONLOSS; afterwards the
 * store finds out the outcome and continues, and all handles see the same. */
TEST(failed_sync_is_connection_loss) {
  const char *path = sample(test_path("a.db"));
  test_worker w = test_spawn("talk", NULL);
  int64_t id = atoll(test_ask(&w, "open %s", path));
  zke *z = test_open(path);
  test_ask(&w, "create /e x 1");
  test_ask(&w, "failsync 0 1");
  test_say(&w, "set /a new");
  ck_assert_int_eq(atoi(test_line(&w)), ZKE_CONNECTIONLOSS);
  char after[16];
  snprintf(after, sizeof after, "%s", test_ask(&w, "get /a"));
  ck_assert(strcmp(after, "one") == 0 || strcmp(after, "new") == 0);
  expect_data(z, "/a", after);
  test_ask(&w, "set /a third");
  expect_data(z, "/a", "third");
  ck_assert_int_eq(atoll(test_ask(&w, "exists /e")), id);
  test_ask(&w, "check");
  ck_ok(zke_set(z, "/a", "fourth", 6, -1, NULL));
  ck_assert_str_eq(test_ask(&w, "get /a"), "fourth");
  test_ask(&w, "close");
  ck_ok(zke_close(z));
  z = test_open(path);
  expect_data(z, "/a", "fourth");
  ck_rc(see(z, "/e"), ZKE_NONODE);
  ck_ok(zke_close(z));
  ck_assert_int_eq(test_wait(&w), 0);
}

/* ---- the write-ahead log ---- */

enum { WAL_LIMIT = 16 << 20 };

static int warnings;

static void count_warning(void *context, int level, const char *text) {
  (void)context, (void)text;
  if (level == ZKE_LOG_WARN) warnings++;
}

/* Set a value of 64 KiB this often; returns the largest size of the log. */
static int64_t largest_wal(zke *z, const char *wal, int times) {
  static char data[65536];
  int64_t largest = 0;
  for (int i = 0; i < times; i++) {
    ck_ok(zke_set(z, "/a", data, sizeof data, -1, NULL));
    int64_t size = file_size(wal);
    if (size > largest) largest = size;
  }
  return largest;
}

/* design.md 8: the log stays under 16 MiB while no reader holds a snapshot,
 * grows and is reported while one does, and is short again afterwards. */
TEST(wal_is_bounded) {
  test_in_memory(); /* it writes and syncs 100 MiB */
  const char *path = sample(test_path("a.db")), *wal = joined(path, "-wal");
  zke *z = open_as(path, .log = count_warning);
  int64_t alone = largest_wal(z, wal, 600);
  ck_assert_int_lt(alone, WAL_LIMIT);
  ck_assert_int_eq(warnings, 0);

  test_worker w = test_spawn("talk", NULL);
  test_ask(&w, "sql %s BEGIN", path);
  test_ask(&w, "sql %s SELECT count(*) FROM zke_nodes", path);
  ck_assert_int_gt(largest_wal(z, wal, 400), WAL_LIMIT);
  ck_assert_int_ge(warnings, 1);
  test_ask(&w, "sqlclose");
  ck_assert_int_eq(test_wait(&w), 0);

  largest_wal(z, wal, 200);
  ck_assert_int_lt(largest_wal(z, wal, 300), WAL_LIMIT);
  ck_ok(zke_check(z, NULL, NULL));
  ck_ok(zke_close(z));
  ck_assert_int_eq(file_size(wal), 0);
}

/* ---- compaction ---- */

enum { BULKS = 300 };

/* A closed database of over two megabytes, mostly unused. */
static const char *sparse(const char *path) {
  zke *z = test_open(sample(path));
  bulk(z, "/bulk", BULKS, BULK);
  ck_ok(zke_close(z));
  z = test_open(path);
  bulk(z, "/bulk", BULKS, 0);
  ck_ok(zke_close(z));
  ck_assert_int_gt(file_size(path), 2000000);
  return path;
}

/* A compaction removes unused space and nothing else: each row with its zxid, a
 * pending event, watches, sessions, ephemerals and the next sequence number
 * stay. */
TEST(compaction_shrinks_the_file) {
  const char *path = sparse(test_path("a.db"));
  test_events pending = {0}, later = {0};
  zke *other = test_open(path);
  zke *z = open_as(path, .log = count_warning);
  ck_ok(zke_create_ttl(z, "/ttl", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_WITH_TTL,
                       3600000, NULL, NULL));
  bulk(z, "/kept", BATCH, 300);
  make_as(z, "/mine", ZKE_EPHEMERAL);
  ck_ok(zke_exists(other, "/a", test_record, &later, NULL));
  ck_ok(zke_exists(other, "/a/b", test_record, &pending, NULL));
  ck_ok(zke_set(z, "/a/b", "pending", 7, -1, NULL));
  int number = next_sequence(z);
  int64_t large = file_size(path);
  char *before = all_rows(path);
  ck_ok(zke_compact(z, ZKE_FOREVER));
  expect_rows(path, before);
  ck_assert_int_lt(file_size(path), large / 4);
  ck_assert_int_eq(file_size(joined(path, "-wal")), 0);
  test_expect(other, &pending, "CHANGED /a/b");
  test_expect(other, &later, "");
  ck_assert_int_eq(next_sequence(other), number + 1);
  ck_ok(zke_set(z, "/a", "new", 3, -1, NULL));
  test_expect(other, &later, "CHANGED /a");
  ck_ok(see(other, "/mine"));
  ck_ok(zke_check(other, NULL, NULL));
  ck_assert_int_eq(warnings, 0);
  ck_ok(zke_close(z));
  ck_ok(zke_close(other));
  z = test_open(path);
  expect_data(z, "/a", "new");
  expect_data(z, "/a/b", "pending");
}

static int compact_rc;

static void compact_in_callback(zke *z, int type, int state, const char *path,
                                void *context) {
  (void)type, (void)state, (void)path, (void)context;
  compact_rc = zke_compact(z, ZKE_FOREVER);
}

/* zkembed.h: without a file, without permission to write, without time, or in a
 * callback of the handle, nothing is done. */
TEST(compaction_that_cannot_be) {
  const char *path = sparse(test_path("a.db"));
  zke_options readonly = {.size = sizeof readonly, .flags = ZKE_OPEN_READONLY};
  int64_t size = file_size(path);
  zke *z = test_open(":memory:");
  ck_rc(zke_compact(NULL, ZKE_FOREVER), ZKE_BADARGUMENTS);
  ck_rc(zke_compact(z, ZKE_FOREVER), ZKE_UNIMPLEMENTED);
  ck_says("memory");
  ck_ok(zke_close(z));
  ck_ok(zke_open(path, &readonly, &z));
  ck_rc(zke_compact(z, ZKE_FOREVER), ZKE_READONLY);
  ck_ok(zke_close(z));
  z = test_open(path);
  ck_rc(zke_compact(z, zke_now(z) - 1), ZKE_OPERATIONTIMEOUT);
  ck_rc(zke_compact(z, -1), ZKE_OPERATIONTIMEOUT);
  ck_says("not enough time");
  ck_ok(zke_exists(z, "/a", compact_in_callback, NULL, NULL));
  ck_ok(zke_set(z, "/a", "new", 3, -1, NULL));
  ck_ok(zke_dispatch(z, NULL));
  ck_rc(compact_rc, ZKE_MISUSE);
  ck_assert_int_eq(file_size(path), size);
  ck_ok(zke_compact(z, ZKE_FOREVER));
  ck_assert_int_lt(file_size(path), size / 4);
}

/* At the n-th reading of the clock an hour passes, or a foreign reader
 * begins. */
static struct {
  int countdown; /* 0: off */
  int looks;
  sqlite3 *reader; /* NULL: the hour */
} leap;

static void leap_at_look(seam_call *c) {
  (void)c;
  leap.looks++;
  if (leap.countdown == 0 || --leap.countdown > 0) return;
  if (leap.reader)
    sqlite3_exec(leap.reader, "BEGIN;SELECT * FROM zkembed_meta", NULL, NULL,
                 NULL);
  else
    seam_pass(3600000);
}

static zke *open_leaping(const char *path) {
  static seam s = {.before = {[SEAM_clock] = leap_at_look}};
  return open_as(path, .os = seam_os(&s));
}

/* P2: the deadline passes at each reading of the clock; an unfinished
 * compaction changes nothing, and a later one completes. */
TEST(compaction_that_is_late) {
  const char *path = sparse(test_path("a.db"));
  int64_t size = file_size(path);
  int rc = ZKE_OPERATIONTIMEOUT, tries = 0, late = 0;
  zke *z = open_leaping(path);
  bulk(z, "/many", 100 * BATCH, 1);
  char *before = all_rows(path);
  for (; tries < 200 && leap.countdown == 0; tries++) {
    int64_t deadline = zke_now(z) + 1000000;
    leap.countdown = tries + 1;
    rc = zke_compact(z, deadline);
    if (rc == ZKE_OK) continue;
    ck_rc(rc, ZKE_OPERATIONTIMEOUT);
    ck_assert_int_ge(file_size(path), size);
    late++;
  }
  expect_rows(path, before);
  ck_rc(rc, ZKE_OK);
  ck_assert_int_lt(file_size(path), size);
  printf("late: %d of %d looks\n", late, tries);
  ck_assert_int_ge(late, 2);
}

/* A reader with SQLite's locks that is there before keeps the compaction from
 * beginning; one that comes at its end keeps the log.  Afterwards another
 * compaction completes. */
TEST(compaction_beside_a_long_reader) {
  const char *path = sparse(test_path("a.db"));
  int64_t size = file_size(path);
  zke *z = open_leaping(path);
  sqlite3 *reader = plain_open(path);
  ck_ok(zke_set(z, "/a", "new", 3, -1, NULL));
  char *before = all_rows(path);
  must(reader, "BEGIN;SELECT * FROM zkembed_meta");
  ck_rc(zke_compact(z, ZKE_FOREVER), ZKE_OPERATIONTIMEOUT);
  ck_says("reader");
  ck_assert_int_eq(file_size(path), size);
  must(reader, "COMMIT");
  leap.reader = reader;
  int rc = ZKE_OK;
  while (rc == ZKE_OK) { /* again, if a tick has read the clock too */
    leap.looks = leap.countdown = 0;
    ck_ok(zke_compact(z, ZKE_FOREVER));
    leap.countdown = leap.looks; /* the reading before the log is emptied */
    rc = zke_compact(z, ZKE_FOREVER);
  }
  ck_rc(rc, ZKE_OPERATIONTIMEOUT);
  ck_says("reader");
  ck_ok(see(z, "/a"));
  must(reader, "COMMIT");
  ck_ok(zke_compact(z, ZKE_FOREVER));
  ck_assert_int_lt(file_size(path), size / 4);
  ck_assert_int_eq(file_size(joined(path, "-wal")), 0);
  expect_rows(path, before);
}

/* Another process: it adds to a number by compare and swap, or reads what never
 * changes, until the pipe's other end is closed; true: it saw no error. */
typedef struct neighbour {
  const char *path;
  int stop[2], ready[2];
  bool writes;
} neighbour;

/* Add one to the number, whose version shows whether any addition was lost. */
static bool neighbour_adds(zke *z) {
  char *data = NULL, next[32];
  zke_stat stat;
  if (zke_get(z, "/number", NULL, NULL, &data, NULL, &stat) != ZKE_OK)
    return false;
  int n = snprintf(next, sizeof next, "%d", atoi(data) + 1);
  zke_free(data);
  if (stat.version != atoi(next) - 1) return false;
  return zke_set(z, "/number", next, n, stat.version, NULL) == ZKE_OK;
}

/* Read rows that never change; are they right? */
static bool neighbour_reads(zke *z, int turn) {
  char path[64], *data = NULL;
  int len = 0;
  zke_strings *names = NULL;
  snprintf(path, sizeof path, "/kept/%d", turn % BATCH);
  if (zke_get(z, path, NULL, NULL, &data, &len, NULL) != ZKE_OK ||
      zke_children(z, "/kept", NULL, NULL, &names, NULL) != ZKE_OK)
    return false;
  bool right = len == 300 && strspn(data, "b") == 300 && names->count == BATCH;
  zke_free(data);
  zke_free(names);
  return right;
}

/* A process that writes or reads until it is told to stop; its status says what
 * went wrong. */
static int be_neighbour(void *context) {
  neighbour *n = context;
  zke_options o = {.size = sizeof o, .busy_timeout_ms = 100000};
  char byte = '.';
  zke *z;
  close(n->stop[1]);
  if (fcntl(n->stop[0], F_SETFL, O_NONBLOCK) != 0 ||
      zke_open(n->path, &o, &z) != ZKE_OK)
    return 1;
  for (int turn = 0; read(n->stop[0], &byte, 1) != 0; turn++) {
    if (!(n->writes ? neighbour_adds(z) : neighbour_reads(z, turn))) return 2;
    if (turn == 0 && write(n->ready[1], ".", 1) != 1) return 3;
  }
  return zke_close(z) == ZKE_OK ? 0 : 4;
}

/* Start it, and wait until it has made its first turn. */
static pid_t start_neighbour(neighbour *n) {
  char byte;
  ck_assert_int_eq(pipe2(n->stop, O_CLOEXEC), 0);
  ck_assert_int_eq(pipe2(n->ready, O_CLOEXEC), 0);
  pid_t pid = test_child(be_neighbour, n);
  ck_assert_int_eq(read(n->ready[0], &byte, 1), 1);
  return pid;
}

/* P2, P12: while the file is compacted again and again, processes that read
 * without locks and one that writes continue, and read the right data. */
TEST(compaction_beside_others) {
  enum { TIMES = 8 };
  const char *path = sparse(test_path("a.db"));
  zke *z = test_open(path);
  bulk(z, "/kept", BATCH, 300);
  make_with(z, "/number", "0");
  ck_ok(zke_close(z));
  neighbour all[] = {{.path = path}, {.path = path}, {path, {0}, {0}, true}};
  pid_t pid[3];
  for (int i = 0; i < 3; i++) pid[i] = start_neighbour(&all[i]);
  z = test_open(path);
  for (int i = 0; i < TIMES; i++) {
    int rc;
    char parent[32];
    snprintf(parent, sizeof parent, "/more%d", i);
    bulk(z, parent, BATCH, BULK);
    bulk(z, parent, BATCH, 0);
    ck_until((rc = zke_compact(z, ZKE_FOREVER)) != ZKE_OPERATIONTIMEOUT, 30000);
    ck_ok(rc);
    ck_assert_int_lt(file_size(path), 500000);
  }
  for (int i = 0; i < 3; i++) close(all[i].stop[1]);
  for (int i = 0; i < 3; i++) ck_assert_int_eq(test_child_end(pid[i]), 0);
}

/* P11: no room next to the database (0), none for SQLite's temporary file (1).
 * Nothing is changed, the log is empty, and with room it works. */
TEST_LOOP(compaction_on_a_full_disk, 0, 2) {
  if (!test_small_disk("disk", _i ? 1024 : 16384)) return;
  const char *path = test_path(_i ? "a.db" : "disk/a.db");
  const char *ballast = test_path("disk/ballast");
  if (_i) ck_assert_int_eq(setenv("SQLITE_TMPDIR", test_path("disk"), 1), 0);
  zke *z = test_open(path);
  bulk(z, "/most", 4 * BATCH, BULK);
  bulk(z, "/bulk", BATCH, BULK);
  ck_ok(zke_close(z));
  z = test_open(path);
  bulk(z, "/bulk", BATCH, 0);
  char *before = all_rows(path);
  test_fill_disk(ballast);
  ck_rc(zke_compact(z, ZKE_FOREVER), ZKE_FULL);
  expect_rows(path, before);
  ck_assert_int_eq(file_size(joined(path, "-wal")), 0);
  ck_assert_int_eq(unlink(ballast), 0);
  bulk(z, "/most", 4 * BATCH, 0);
  ck_ok(zke_compact(z, ZKE_FOREVER));
  ck_assert_int_lt(file_size(path), 500000);
}

/* P2: if a sync fails in a compaction, its outcome is unknown; the next call
 * finds out, and nothing is lost. */
TEST(compaction_whose_sync_fails) {
  const char *path = sparse(test_path("a.db"));
  int rc = ZKE_OK, n = 0;
  for (; n < 20; n++) {
    test_worker w = test_spawn("talk", NULL);
    test_ask(&w, "open %s", path);
    test_ask(&w, "failsync %d 1", n);
    test_say(&w, "compact");
    rc = atoi(test_line(&w));
    test_ask(&w, "failsync 0 0");
    test_ask(&w, "get /a");
    test_ask(&w, "set /a/b two");
    test_ask(&w, "check");
    test_ask(&w, "close");
    ck_assert_int_eq(test_wait(&w), 0);
    if (rc == ZKE_OK) break; /* "ok" */
    ck_assert_msg(rc == ZKE_CONNECTIONLOSS || rc == ZKE_SYSTEMERROR, "%d", rc);
  }
  ck_rc(rc, ZKE_OK);
  ck_assert_int_ge(n, 2);
  ck_assert_int_lt(file_size(path), 500000);
  zke *z = test_open(path);
  expect_data(z, "/a", "one");
  expect_data(z, "/a/b", "two");
}

/* ---- inspection from outside ---- */

/* The views can be read by another program while a handle is open. */
TEST(views_are_readable) {
  static const char *const views[] = {
      "zke_nodes", "zke_sessions", "zke_watches", "zke_events", "zke_waiters"};
  const char *path = sample(test_path("a.db"));
  zke *z = test_open(path);
  make_as(z, "/e", ZKE_EPHEMERAL);
  test_worker w = test_spawn("talk", NULL);
  for (int i = 0; i < 5; i++) {
    test_ask(&w, "sql %s SELECT count(*) FROM %s", path, views[i]);
  }
  ck_assert_str_eq(
      test_ask(&w, "sql %s SELECT path FROM zke_nodes WHERE path LIKE '/a%%'",
               path),
      "/a /a/b");
  ck_assert_int_eq(
      atoi(test_ask(&w, "sql %s SELECT count(*) FROM zke_sessions", path)), 1);
  make_with(z, "/while", "read");
  ck_ok(zke_close(z));
  ck_assert_int_eq(test_wait(&w), 0);
}

/* The same by the sqlite3 shell, if it is installed. */
TEST(views_are_readable_by_the_shell) {
  char line[64] = "";
  const char *path = sample(test_path("a.db"));
  if (system("sqlite3 -version >/dev/null 2>&1") != 0) {
    printf("views: the sqlite3 shell is not installed, skipped\n");
    return;
  }
  zke *z = test_open(path);
  FILE *in = popen(joined(joined("sqlite3 ", path),
                          " \"SELECT path FROM zke_nodes"
                          " WHERE path LIKE '/a/%'\""),
                   "r");
  ck_assert_ptr_nonnull(fgets(line, sizeof line, in));
  ck_assert_int_eq(pclose(in), 0);
  ck_assert_str_eq(line, "/a/b\n");
  make_with(z, "/c", "after");
}

/* ---- zke_check ---- */

static const struct {
  const char *invariant; /* as doc/format.md numbers them */
  const char *damage;
} damages[] = {
    {"I1 ", "DELETE FROM zkembed_node WHERE parent=''"},
    {"I2 ", "UPDATE zkembed_node SET parent='/none' WHERE name='b'"},
    {"I3 ", "UPDATE zkembed_node SET nchild=0 WHERE name='a'"},
    {"I4 ", "UPDATE zkembed_node SET creates=0 WHERE name='a'"},
    {"I5 ", "UPDATE zkembed_node SET owner=12345 WHERE name='b'"},
    {"I6 ", "UPDATE zkembed_node SET kind=1 WHERE name='e'"},
    {"I7 ", "UPDATE zkembed_node SET mzxid=czxid-1 WHERE name='b'"},
    {"I7 ", "UPDATE zkembed_node SET pzxid=1<<60 WHERE name='a'"},
    {"I8 ", "UPDATE zkembed_node SET len=len+1 WHERE name='b'"},
    {"I8 ", "UPDATE zkembed_node SET data=NULL WHERE name='b'"},
    {"I9 ", "INSERT INTO zkembed_blob(data) VALUES(x'00')"},
    {"I10 ", "INSERT INTO zkembed_watch VALUES('/a',0,999)"},
    {"I11 ", "INSERT INTO zkembed_event VALUES(999,1,1,'/a',1,NULL,0)"},
    {"I12 ", "UPDATE zkembed_meta SET recursive=recursive+1"},
    {"I13 ", "UPDATE zkembed_node SET ttl=5 WHERE name='b'"},
    {"I14 ", "UPDATE zkembed_meta SET zxid=zxid-100"},
    {"I15 ", "UPDATE zkembed_node SET name='..' WHERE name='b'"},
    {"I15 ", "UPDATE zkembed_node SET name='x/y' WHERE name='b'"},
    {"I16 ", "UPDATE zkembed_node SET acl='nonsense' WHERE name='b'"},
    {"I16 ",
     "UPDATE zkembed_node SET acl='31:world:anyone'||char(10)||'x' "
     "WHERE name='b'"},
    {"I17 ", "UPDATE zkembed_session SET password=x'00'"},
    {"I17 ", "UPDATE zkembed_session SET timeout=-1"},
    {"I18 ",
     "INSERT INTO zkembed_event SELECT id,1,1,'/a',1,NULL,7 FROM "
     "zkembed_session"},
    {"I19 ",
     "INSERT INTO zkembed_watch SELECT '/a',0,id FROM zkembed_session;UPDATE "
     "zkembed_session SET "
     "timeout=5,password=zeroblob(16)"},
};
enum { DAMAGES = sizeof damages / sizeof damages[0] };

typedef struct findings {
  const char *wanted; /* how a sentence begins */
  int seen, others;
} findings;

/* Counts the wanted sentence of zke_check(), and all others. */
static void find(void *context, const char *sentence) {
  findings *f = context;
  if (strncmp(sentence, f->wanted, strlen(f->wanted)) == 0) {
    f->seen++;
  } else {
    f->others++;
  }
}

/* Each invariant: zke_check() finds nothing in a sound database, and names the
 * invariant after SQL has broken it, also without a function. */
TEST_LOOP(check_finds_damage, 0, DAMAGES) {
  const char *path = sample(test_path("a.db"));
  findings f = {.wanted = damages[_i].invariant};
  zke *z = test_open(path);
  make_as(z, "/e", ZKE_EPHEMERAL);
  ck_ok(zke_check(z, find, &f));
  ck_assert_int_eq(f.seen + f.others, 0);
  sql(path, "%s", damages[_i].damage);
  ck_rc(zke_check(z, find, &f), ZKE_DATAINCONSISTENCY);
  ck_assert_msg(f.seen >= 1, "%s not among %d findings", f.wanted, f.others);
  ck_says(path);
  ck_rc(zke_check(z, NULL, NULL), ZKE_DATAINCONSISTENCY);
  zke_close(z);
}
