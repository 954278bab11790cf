/* rows.c - the second floor of part_served: an ephemeral create's rows alone
 *
 * What SQLite takes to write the rows of ephemeral nodes in one directory: an
 * insert each, as many in one transaction as a client sends ahead, owned by as
 * many sessions as there are clients, and the directory's own row once a
 * transaction.  There are no requests and no checks, and nobody is told.  This
 * is SQLite as it is: zkembed writes a transaction's part of the log at once
 * (wal_ in zkembed.c), which saves it some of this time.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bench.h"

#include <sqlite3.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum {
  AHEAD = 64,
  PASSES = 15,
  BLOCK_MS = 100,
  CACHE_KIB = 4096 /* as zke serve has it */
};

typedef struct rows {
  sqlite3 *db;
  sqlite3_stmt *insert, *directory;
  int64_t made;
} rows;

static void must_sqlite(rows *r, int rc) {
  if (rc != SQLITE_OK && rc != SQLITE_DONE)
    die("rows: %s", sqlite3_errmsg(r->db));
}

static void execute(rows *r, const char *sql) {
  must_sqlite(r, sqlite3_exec(r->db, sql, NULL, NULL, NULL));
}

static void prepare(rows *r, const char *sql, sqlite3_stmt **out) {
  must_sqlite(r, sqlite3_prepare_v3(r->db, sql, -1, SQLITE_PREPARE_PERSISTENT,
                                    out, NULL));
}

static void run_once(rows *r, sqlite3_stmt *st) {
  must_sqlite(r, sqlite3_step(st));
  sqlite3_reset(st);
}

/* A database with the tables of raw.c, which are those of doc/format.md. */
static void rows_open(rows *r) {
  char path[PATH_BYTES], pragmas[160];
  file_in(path, sizeof path, "rows.db");
  raw_close(raw_open(path));
  must_sqlite(r, sqlite3_open(path, &r->db));
  snprintf(pragmas, sizeof pragmas,
           "PRAGMA synchronous=NORMAL;PRAGMA cache_size=-%d;"
           "PRAGMA wal_autocheckpoint=%d",
           CACHE_KIB, RAW_CHECKPOINT_PAGES);
  execute(r, pragmas);
  execute(r, "DELETE FROM zkembed_node WHERE parent='/rows'");
  prepare(r,
          "INSERT INTO zkembed_node(parent,name,czxid,mzxid,pzxid,ctime,mtime,"
          "version,aversion,creates,nchild,owner,kind,ttl,len,due,data)"
          "VALUES('/rows',?1,?2,?2,?2,?3,?3,0,0,0,0,?4,0,0,?5,0,?6)",
          &r->insert);
  prepare(r,
          "UPDATE zkembed_node SET creates=creates+?1,nchild=nchild+?1 WHERE "
          "parent='' AND name=''",
          &r->directory);
}

static void rows_close(rows *r) {
  sqlite3_finalize(r->insert);
  sqlite3_finalize(r->directory);
  must_sqlite(r, sqlite3_close(r->db));
}

/* One transaction. */
static void rows_make(rows *r, int sessions) {
  int64_t now = (int64_t)time(NULL) * 1000;
  execute(r, "BEGIN IMMEDIATE");
  for (int i = 0; i < AHEAD; i++) {
    char name[24];
    int64_t number = r->made++;
    int len = snprintf(name, sizeof name, "n-%010d", (int)number);
    sqlite3_bind_text(r->insert, 1, name, len, SQLITE_STATIC);
    sqlite3_bind_int64(r->insert, 2, INT64_C(1) << 32 | number);
    sqlite3_bind_int64(r->insert, 3, now);
    sqlite3_bind_int64(r->insert, 4, INT64_C(1) << 32 | (1 + i % sessions));
    sqlite3_bind_int(r->insert, 5, DATA_BYTES);
    sqlite3_bind_blob(r->insert, 6, data, DATA_BYTES, SQLITE_STATIC);
    run_once(r, r->insert);
  }
  sqlite3_bind_int(r->directory, 1, AHEAD);
  run_once(r, r->directory);
  execute(r, "COMMIT");
}

/* Nodes a second, in blocks as long as those of the servers. */
void measure_rows(int sessions) {
  rows r = {0};
  samples rates = {0};
  rows_open(&r);
  for (int pass = 0; pass < times(PASSES, 1); pass++) {
    int64_t before = r.made, start = now_ns();
    while (now_ns() - start < BLOCK_MS * INT64_C(1000000))
      rows_make(&r, sessions);
    add(&rates, (double)(r.made - before) * 1e9 / (double)(now_ns() - start));
  }
  report("rows of ephemeral creates", sessions, "raw", "1/s", &rates, NULL,
         NULL);
  forget(&rates);
  rows_close(&r);
}
