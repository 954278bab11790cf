/* file.c - fuzz target: opening and using arbitrary database files
 *
 * A valid database is made once: nodes of every kind, three sessions with
 * seemingly dead processes, their watches and events.  The input says what to
 * change in it: rows of our tables, the schema, bytes of the file, bytes of the
 * liveness file.  Then the file is opened and a fixed mix of calls is made,
 * with changes, and once more read-only.
 *
 * In no case may there be a crash, an endless loop, an undocumented result, or
 * a leak.  And if only rows were changed and zke_check() found nothing before
 * the mix, it finds nothing after it.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_CHANGES_MOST = 24, FILE_NODES_MOST = 64 };

typedef struct file_run {
  fuzz_input in;
  fuzz_world world;
  zke_os os;
  bool rows_only; /* neither the schema nor bytes were changed */
} file_run;

static char file_directory[256], file_name[300], file_side[320], file_live[330];
static pid_t file_process;
static unsigned char *file_template;
static sqlite3_int64 file_template_size;

/* ---- files ---- */

/* Empty the side directory, except for the two files with inodes that the
 * database remembers. */
static void file_clean_side(bool all) {
  char path[700];
  DIR *d = opendir(file_side);
  struct dirent *e;
  while (d && (e = readdir(d)) != NULL) {
    bool known =
        strcmp(e->d_name, "live") == 0 || strcmp(e->d_name, "gate") == 0;
    if (e->d_name[0] == '.' || (!all && known)) continue;
    snprintf(path, sizeof path, "%s/%s", file_side, e->d_name);
    unlink(path);
  }
  if (d) closedir(d);
}

static void file_unlink_log(void) {
  char path[320];
  snprintf(path, sizeof path, "%s-wal", file_name);
  unlink(path);
  snprintf(path, sizeof path, "%s-shm", file_name);
  unlink(path);
}

static void file_remove_all(void) {
  if (getpid() != file_process) return;
  file_clean_side(true);
  file_unlink_log();
  rmdir(file_side);
  unlink(file_name);
  rmdir(file_directory);
  sqlite3_free(file_template);
}

static void file_make_directory(void) {
  fuzz_directory(file_directory, sizeof file_directory);
  snprintf(file_name, sizeof file_name, "%s/db", file_directory);
  snprintf(file_side, sizeof file_side, "%s-zke", file_name);
  snprintf(file_live, sizeof file_live, "%s/live", file_side);
  file_process = getpid();
  atexit(file_remove_all);
}

/* Write a file's content, and keep its inode. */
static void file_write(const char *name, const void *bytes, size_t size) {
  int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  FUZZ_EXPECT(fd >= 0 && ftruncate(fd, 0) == 0);
  FUZZ_EXPECT(pwrite(fd, bytes, size, 0) == (ssize_t)size);
  close(fd);
}

/* ---- the valid database ---- */

static void file_ignore(zke *z, int type, int state, const char *path,
                        void *context) {
  (void)z, (void)type, (void)state, (void)context;
  FUZZ_EXPECT(path && strlen(path) < 65536);
}

static zke_options file_options(file_run *r) {
  zke_options o = {.size = sizeof o};
  o.os = &r->os;
  o.allocator = (zke_allocator){fuzz_resize, &r->world};
  o.identity = "fuzz";
  o.watcher = file_ignore;
  o.busy_timeout_ms = 100;
  return o;
}

static void file_fill_tree(zke *z) {
  static const zke_acl digest[] = {
      {ZKE_PERM_ALL, "digest", "u\\x:abc"},
      {ZKE_PERM_READ | ZKE_PERM_CREATE, "world", "anyone"}};
  static const char large[700] = "large";
  zke_acls acls = {2, digest};
  const zke_acls *open = ZKE_OPEN_ACL;
  int rc = zke_create(z, "/a", "v", 1, open, ZKE_PERSISTENT, NULL, NULL);
  rc |= zke_create(z, "/a/large", large, 700, open, 0, NULL, NULL);
  rc |= zke_create(z, "/a/acl", NULL, -1, &acls, 0, NULL, NULL);
  rc |= zke_create(z, "/a/n-", "", 0, open, ZKE_PERSISTENT_SEQUENTIAL, NULL,
                   NULL);
  rc |= zke_create(z, "/a/large/deep", large, 250, open, 0, NULL, NULL);
  rc |= zke_create(z, "/c", "", 0, open, ZKE_CONTAINER, NULL, NULL);
  rc |= zke_create(z, "/c/x", "", 0, open, 0, NULL, NULL);
  rc |= zke_delete(z, "/c/x", -1);
  rc |= zke_create_ttl(z, "/t", "ttl", 3, open, ZKE_PERSISTENT_WITH_TTL, 5000,
                       NULL, NULL);
  FUZZ_EXPECT(rc == ZKE_OK);
}

static void file_fill_session(zke *z, int i) {
  char path[32];
  snprintf(path, sizeof path, "/e%d", i);
  int rc = zke_create(z, path, "e", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
  rc |= zke_get(z, "/a", file_ignore, NULL, NULL, NULL, NULL);
  rc |= zke_children(z, "/a", file_ignore, NULL, NULL, NULL);
  rc |= zke_add_watch(z, "/t", ZKE_WATCH_PERSISTENT, file_ignore, NULL);
  rc |=
      zke_add_watch(z, "/c", ZKE_WATCH_PERSISTENT_RECURSIVE, file_ignore, NULL);
  FUZZ_EXPECT(rc == ZKE_OK);
}

/* Take the database's image while its sessions live: later their locks are
 * gone, as if their processes had died. */
static void file_take_template(void) {
  sqlite3 *db = NULL;
  FUZZ_EXPECT(sqlite3_open(file_name, &db) == SQLITE_OK);
  file_template = sqlite3_serialize(db, "main", &file_template_size, 0);
  FUZZ_EXPECT(file_template && file_template_size > 4096);
  sqlite3_close(db);
}

static void file_make_template(void) {
  file_run r;
  zke *z[3] = {NULL};
  memset(&r, 0, sizeof r);
  file_make_directory();
  r.os = fuzz_world_begin(&r.world);
  zke_options o = file_options(&r);
  FUZZ_EXPECT(zke_open(file_name, &o, &z[0]) == ZKE_OK);
  file_fill_tree(z[0]);
  for (int i = 1; i < 3; i++) {
    o.lease_ms = i == 1 ? 5000 : 0;
    FUZZ_EXPECT(zke_open_session(z[0], &o, &z[i]) == ZKE_OK);
  }
  for (int i = 0; i < 3; i++) file_fill_session(z[i], i);
  FUZZ_EXPECT(zke_set(z[0], "/a", "w", 1, -1, NULL) == ZKE_OK);
  FUZZ_EXPECT(zke_set(z[0], "/t", "w", 1, -1, NULL) == ZKE_OK);
  FUZZ_EXPECT(zke_check(z[0], NULL, NULL) == ZKE_OK);
  file_take_template();
  for (int i = 0; i < 3; i++) FUZZ_EXPECT(zke_close(z[i]) == ZKE_OK);
  fuzz_world_end(&r.world);
}

/* ---- changes of rows ---- */

/* Tables, their columns, and the columns of their keys. */
static const struct file_table {
  const char *name, *key;
  const char *columns[20];
} file_tables[] = {
    {"zkembed_node",
     "parent,name",
     {"parent", "name", "czxid", "mzxid", "pzxid", "ctime", "mtime", "version",
      "aversion", "creates", "nchild", "owner", "kind", "ttl", "due", "acl",
      "len", "blob", "data"}},
    {"zkembed_session",
     "id",
     {"id", "identity", "pid", "started", "lease", "slot", "life",
      "event_limit", "seen"}},
    {"zkembed_watch", "path,kind,session", {"path", "kind", "session"}},
    {"zkembed_event",
     "session,seq",
     {"session", "seq", "type", "path", "zxid", "acl"}},
    {"zkembed_meta",
     "one",
     {"one", "zxid", "recursive", "boot", "db_device", "db_inode",
      "live_device", "live_inode", "gate_device", "gate_inode", "format",
      "history_rows", "history_ms"}},
    {"zkembed_blob", "id", {"id", "data"}},
};

static const char *const file_texts[] = {"",
                                         "/",
                                         "//",
                                         "/a",
                                         "/a/large",
                                         "/zookeeper",
                                         "a",
                                         "/a/",
                                         "/./..",
                                         "/t/x",
                                         "fuzz",
                                         "\xff\xfe",
                                         "/\x01",
                                         "/c/\xc3\xa9",
                                         "31:world:anyone\n",
                                         "1:digest:u\\",
                                         "31:digest:u:abc\n\n",
                                         "0:world",
                                         "99999999999999999999:auth:x\n",
                                         "31:a-scheme-that-is-too-long:x\n"};

/* Bind a value of any kind. */
static void file_bind(fuzz_input *in, sqlite3_stmt *st, int at) {
  unsigned how = fuzz_byte(in), n = how / 8;
  size_t texts = sizeof file_texts / sizeof *file_texts;
  char *text;
  switch (how % 8) {
    case 0:
      sqlite3_bind_null(st, at);
      break;
    case 1:
      sqlite3_bind_double(st, at, n < 16 ? 1e300 : 0.5);
      break;
    case 2:
      text = fuzz_text(in, n);
      sqlite3_bind_text(st, at, text, -1, SQLITE_TRANSIENT);
      free(text);
      break;
    case 3:
      text = fuzz_text(in, n);
      sqlite3_bind_blob(st, at, text, (int)strlen(text), SQLITE_TRANSIENT);
      free(text);
      break;
    case 4:
      sqlite3_bind_text(st, at, file_texts[n % texts], -1, SQLITE_STATIC);
      break;
    case 5:
      if (n < 28) {
        sqlite3_bind_zeroblob(st, at, (int)n * 64);
        break;
      }
      sqlite3_bind_zeroblob(st, at, 1048576 + (int)n);
      break;
    default:
      sqlite3_bind_int64(st, at, fuzz_int(in));
  }
}

/* One statement with a value ?1 and a row number ?2. */
static void file_change(file_run *r, sqlite3 *db, const char *sql) {
  fuzz_input *in = &r->in;
  sqlite3_stmt *st = NULL;
  int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
  FUZZ_EXPECT(rc == SQLITE_OK || !r->rows_only);
  if (rc == SQLITE_OK) {
    sqlite3_bind_int64(st, 2, (int64_t)fuzz_byte(in) % 16);
    file_bind(in, st, 1);
    sqlite3_step(st);
  }
  sqlite3_finalize(st); /* refused by the schema: no change */
}

/* Copy a row, with one column changed. */
static void file_insert(file_run *r, sqlite3 *db, const struct file_table *t,
                        int column) {
  char columns[400] = "", values[400] = "", sql[1000];
  for (int i = 0; t->columns[i]; i++) {
    const char *comma = i ? "," : "";
    strcat(strcat(columns, comma), t->columns[i]);
    strcat(strcat(values, comma), i == column ? "?1" : t->columns[i]);
  }
  snprintf(sql, sizeof sql,
           "INSERT OR REPLACE INTO %s(%s)SELECT %s FROM %s LIMIT 1 OFFSET ?2",
           t->name, columns, values, t->name);
  file_change(r, db, sql);
}

static void file_change_row(file_run *r, sqlite3 *db, unsigned how) {
  fuzz_input *in = &r->in;
  unsigned pick = fuzz_byte(in);
  const struct file_table *t =
      &file_tables[pick % (sizeof file_tables / sizeof *file_tables)];
  char sql[400];
  int columns = 0;
  while (t->columns[columns]) columns++;
  int column = (int)fuzz_byte(in) % columns;
  if (how == 0) {
    file_insert(r, db, t, column);
    return;
  }
  char head[128];
  if (how == 1)
    snprintf(head, sizeof head, "DELETE FROM %s", t->name);
  else
    snprintf(head, sizeof head, "UPDATE OR REPLACE %s SET %s=?1", t->name,
             t->columns[column]);
  snprintf(sql, sizeof sql,
           "%s WHERE (%s)=(SELECT %s FROM %s LIMIT 1 OFFSET ?2)%s", head,
           t->key, t->key, t->name, pick >= 240 ? " OR 1" : "");
  file_change(r, db, sql);
}

/* ---- changes of the schema ---- */

static const char *const file_schemas[] = {
    "UPDATE sqlite_schema SET sql=replace(replace(sql,'STRICT,',''),'STRICT',"
    "'')",
    "UPDATE sqlite_schema SET sql=replace(sql,' NOT NULL','')",
    "UPDATE sqlite_schema SET sql=replace(sql,'CHECK(one=1)','')",
    "UPDATE sqlite_schema SET sql=replace(sql,'name TEXT','name TEXT COLLATE "
    "NOCASE')",
    "UPDATE sqlite_schema SET rootpage=(SELECT rootpage FROM sqlite_schema "
    "WHERE name='zkembed_watch')WHERE name='zkembed_node'",
    "UPDATE sqlite_schema SET rootpage=1 WHERE name='zkembed_blob'",
    "UPDATE sqlite_schema SET sql='CREATE TABLE zkembed_blob(id,data)'WHERE "
    "name='zkembed_blob'",
    "DELETE FROM sqlite_schema WHERE type='index'",
    "DELETE FROM sqlite_schema WHERE type='view'",
    "DROP TABLE zkembed_session",
    "DROP TABLE zkembed_meta;CREATE VIEW zkembed_meta AS SELECT 1 AS one,9 AS "
    "zxid,0 AS "
    "recursive,'fuzz' AS boot,0 AS db_device,0 AS db_inode,0 AS live_device,0 "
    "AS live_inode,0 AS gate_device,0 AS gate_inode,4 AS format,1 AS "
    "history_rows,1 AS history_ms",
    "ALTER TABLE zkembed_node RENAME COLUMN data TO other",
    "ALTER TABLE zkembed_node DROP COLUMN ttl",
    "ALTER TABLE zkembed_event ADD COLUMN more DEFAULT 1",
    "CREATE TRIGGER t1 AFTER UPDATE ON zkembed_meta BEGIN DELETE FROM "
    "zkembed_session;END",
    "CREATE TRIGGER t2 BEFORE INSERT ON zkembed_node BEGIN SELECT "
    "RAISE(IGNORE);END",
    "CREATE TRIGGER t3 BEFORE DELETE ON zkembed_node BEGIN SELECT "
    "RAISE(IGNORE);END",
    "CREATE TRIGGER t4 AFTER INSERT ON zkembed_node BEGIN DELETE FROM "
    "zkembed_node WHERE "
    "parent=NEW.parent;END",
    "CREATE TRIGGER t5 BEFORE DELETE ON zkembed_event BEGIN SELECT "
    "RAISE(ROLLBACK,'no');END",
    "CREATE TRIGGER t6 BEFORE DELETE ON zkembed_session BEGIN SELECT "
    "RAISE(IGNORE);END",
    "CREATE TRIGGER t7 AFTER INSERT ON zkembed_session BEGIN UPDATE "
    "zkembed_session SET "
    "id=-id,slot=slot-1;END",
    "CREATE TRIGGER t8 AFTER INSERT ON zkembed_event BEGIN UPDATE "
    "zkembed_event SET "
    "seq=seq+7 WHERE seq=NEW.seq;END",
    "CREATE UNIQUE INDEX u1 ON zkembed_node(kind,ttl,nchild)",
    "CREATE UNIQUE INDEX u2 ON zkembed_event(type)",
};

static sqlite3 *file_image_open(void) {
  sqlite3 *db = NULL;
  unsigned flags =
      SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE;
  unsigned char *image = sqlite3_malloc64((sqlite3_uint64)file_template_size);
  FUZZ_EXPECT(image && sqlite3_open(":memory:", &db) == SQLITE_OK);
  memcpy(image, file_template, (size_t)file_template_size);
  image[18] = image[19] = 1; /* in memory there is no log */
  FUZZ_EXPECT(sqlite3_deserialize(db, "main", image, file_template_size,
                                  file_template_size, flags) == SQLITE_OK);
  return db;
}

static void file_change_schema(fuzz_input *in, sqlite3 *db) {
  unsigned i = fuzz_byte(in) % (sizeof file_schemas / sizeof *file_schemas);
  sqlite3_exec(db, "PRAGMA writable_schema=1", NULL, NULL, NULL);
  sqlite3_exec(db, file_schemas[i], NULL, NULL, NULL);
  sqlite3_exec(db, "PRAGMA writable_schema=RESET", NULL, NULL, NULL);
}

/* ---- this input's file ---- */

/* Change bytes: single ones anywhere, or the file's length. */
static void file_change_bytes(fuzz_input *in, unsigned char *image,
                              sqlite3_int64 *size) {
  for (unsigned n = fuzz_byte(in) % 16; n && *size; n--) {
    sqlite3_int64 at = fuzz_number(in, 3) % *size;
    if (at % 4 == 0) at = at / 4 % 100; /* more often in the header */
    image[at] = (unsigned char)fuzz_byte(in);
  }
  if (fuzz_byte(in) % 8 == 7) *size = fuzz_number(in, 3) % (*size + 1);
}

static void file_prepare(file_run *r) {
  fuzz_input *in = &r->in;
  sqlite3_int64 size = 0;
  sqlite3 *db = file_image_open();
  unsigned how = fuzz_byte(in);
  r->rows_only = true;
  for (unsigned n = how % FILE_CHANGES_MOST; n && in->left; n--) {
    unsigned kind = fuzz_byte(in) % 12;
    if (kind == 11) {
      file_change_schema(in, db);
      r->rows_only = false;
    } else {
      file_change_row(r, db, kind);
    }
  }
  unsigned char *image = sqlite3_serialize(db, "main", &size, 0);
  sqlite3_close(db);
  FUZZ_EXPECT(image && size > 100);
  image[18] = image[19] = 2;
  if (how >= 192) {
    file_change_bytes(in, image, &size);
    r->rows_only = false;
  }
  file_unlink_log();
  file_clean_side(false);
  file_write(file_name, image, (size_t)size);
  sqlite3_free(image);
  unsigned char live[32] = {0};
  if (how % 4 == 3) /* otherwise short, so all zeros */
    for (int i = 0; i < 32; i++) live[i] = (unsigned char)fuzz_byte(in);
  file_write(file_live, live, sizeof live);
}

/* ---- the mix of calls ---- */

/* Read a node every way; its children's names. */
static zke_strings *file_read_node(zke *z, const char *path) {
  zke_strings *names = NULL;
  zke_acls *acls = NULL;
  zke_stat stat;
  char *data = NULL;
  int len = 0;
  if (fuzz_rc(zke_get(z, path, NULL, NULL, &data, &len, &stat)) == ZKE_OK) {
    FUZZ_EXPECT(len >= 0 ? data && data[len] == '\0' : len == -1 && !data);
    FUZZ_EXPECT(stat.dataLength == (len < 0 ? 0 : len));
  }
  fuzz_rc(zke_exists(z, path, NULL, NULL, &stat));
  if (fuzz_rc(zke_get_acl(z, path, &acls, NULL)) == ZKE_OK)
    for (int i = 0; i < acls->count; i++)
      FUZZ_EXPECT(strlen(acls->data[i].scheme) < 16 && acls->data[i].id);
  fuzz_rc(zke_children(z, path, NULL, NULL, &names, &stat));
  zke_free(data);
  zke_free(acls);
  return names;
}

/* Walk the tree below a path; returns how many nodes may still be read. */
static int file_walk(zke *z, const char *path, int depth, int left) {
  char child[512];
  zke_strings *names = file_read_node(z, path);
  for (int i = 0; names && i < names->count && left > 0 && depth < 8; i++) {
    int n = snprintf(child, sizeof child, "%s/%s", path[1] ? path : "",
                     names->data[i]);
    if (n < (int)sizeof child) left = file_walk(z, child, depth + 1, left - 1);
  }
  zke_free(names);
  return left;
}

static void file_inspect(zke *z) {
  zke_session_list *sessions = NULL;
  zke_watch_list *watches = NULL;
  zke_strings *paths = NULL;
  fuzz_rc(zke_sessions(z, -1, &sessions));
  fuzz_rc(zke_watches(z, &watches));
  for (int i = 0; sessions && i < sessions->count; i++) {
    FUZZ_EXPECT(strlen(sessions->data[i].identity) < 65536);
    if (fuzz_rc(zke_ephemerals(z, sessions->data[i].id, NULL, &paths)) != 0)
      continue;
    for (int k = 0; k < paths->count; k++)
      FUZZ_EXPECT(strlen(paths->data[k]) < 65536);
    zke_free(paths);
  }
  for (int i = 0; watches && i < watches->count; i++)
    FUZZ_EXPECT(strlen(watches->data[i].path) < 65536);
  zke_free(sessions);
  zke_free(watches);
  fuzz_rc(zke_count(z, "/", &(int64_t){0}));
}

static void file_change_node(zke *z, const char *path) {
  static const char large[900] = "x";
  static const int modes[] = {ZKE_PERSISTENT_SEQUENTIAL, ZKE_EPHEMERAL,
                              ZKE_CONTAINER};
  char below[64];
  snprintf(below, sizeof below, "%s/new", path[1] ? path : "");
  fuzz_rc(zke_set(z, path, large, 900, -1, NULL));
  fuzz_rc(zke_set(z, path, "s", 1, -1, NULL));
  fuzz_rc(zke_set_acl(z, path, -1, ZKE_OPEN_ACL, NULL));
  for (int i = 0; i < 3; i++)
    fuzz_rc(zke_create(z, below, "b", 1, ZKE_OPEN_ACL, modes[i], NULL, NULL));
  fuzz_rc(zke_create_ttl(z, below, NULL, -1, ZKE_OPEN_ACL,
                         ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, ZKE_MAX_TTL, NULL,
                         NULL));
  fuzz_rc(zke_delete(z, below, -1));
  fuzz_rc(zke_delete(z, path, -1));
}

static void file_multi(zke *z) {
  zke_op ops[4];
  zke_op_result results[4];
  memset(results, 0, sizeof results);
  zke_op_check(&ops[0], "/a", -1);
  zke_op_set(&ops[1], "/a", "m", 1, -1);
  zke_op_create(&ops[2], "/a/large/m", "", 0, ZKE_OPEN_ACL, 0);
  zke_op_delete(&ops[3], "/a/large/m", -1);
  fuzz_rc(zke_multi(z, ops, 4, results));
  zke_results_clear(results, 4);
  zke_op_get(&ops[0], "/a");
  zke_op_children(&ops[1], "/", NULL, 0);
  fuzz_rc(zke_multi_read(z, ops, 2, results));
  zke_results_clear(results, 2);
}

/* Two sessions watch, change, wait and end each other. */
static void file_work(file_run *r, zke *z, zke *other) {
  static const char *const paths[] = {"/a/large/deep", "/a", "/c", "/t",
                                      "/e1",           "/"};
  zke *both[] = {z, other};
  for (int i = 0; i < 2; i++) {
    fuzz_rc(zke_children(both[i], "/a", file_ignore, NULL, NULL, NULL));
    fuzz_rc(zke_add_watch(both[i], "/", ZKE_WATCH_PERSISTENT_RECURSIVE,
                          file_ignore, NULL));
  }
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    file_change_node(z, paths[i]);
  file_multi(z);
  for (int i = 0; i < 2; i++) {
    r->world.now += INT64_C(70000000000); /* leases, TTLs, containers */
    fuzz_rc(zke_dispatch(both[i], NULL));
    fuzz_rc(zke_wait(both[i], zke_now(z) + 10));
  }
  fuzz_rc(zke_remove_watch(z, "/", ZKE_WATCH_ANY, NULL, NULL));
  fuzz_rc(zke_expire(z, zke_session_id(other)));
  fuzz_rc(zke_dispatch(other, NULL));
}

static void file_tell(void *context, const char *sentence) {
  if (*(const bool *)context) fprintf(stderr, "%s\n", sentence);
}

static void file_use(file_run *r) {
  zke *z = NULL, *other = NULL;
  zke_options o = file_options(r);
  if (fuzz_rc(zke_open(file_name, &o, &z)) != ZKE_OK) {
    FUZZ_EXPECT(!z);
    return;
  }
  bool quiet = false;
  int before = fuzz_rc(zke_check(z, file_tell, &quiet));
  o.chroot = "/a";
  o.lease_ms = 1000;
  fuzz_rc(zke_open_session(z, &o, &other));
  file_walk(z, "/", 0, FILE_NODES_MOST);
  file_inspect(z);
  if (other) file_work(r, z, other);
  if (before == ZKE_OK && r->rows_only) {
    bool loud = true;
    FUZZ_EXPECT(fuzz_rc(zke_check(z, file_tell, &loud)) == ZKE_OK);
  }
  fuzz_rc(zke_close(other));
  fuzz_rc(zke_close(z));
}

static void file_look(file_run *r) {
  zke *z = NULL;
  zke_options o = file_options(r);
  o.flags = ZKE_OPEN_READONLY;
  if (fuzz_rc(zke_open(file_name, &o, &z)) != ZKE_OK) return;
  file_walk(z, "/", 0, FILE_NODES_MOST);
  file_inspect(z);
  fuzz_rc(zke_check(z, NULL, NULL));
  fuzz_rc(zke_close(z));
}

static int fuzz_file(const uint8_t *data, size_t size) {
  file_run r;
  if (!file_template) file_make_template();
  memset(&r, 0, sizeof r);
  r.in = (fuzz_input){data, size};
  r.os = fuzz_world_begin(&r.world);
  file_prepare(&r);
  file_use(&r);
  file_look(&r);
  fuzz_world_end(&r.world);
  return 0;
}

FUZZ_TARGET(fuzz_file)
