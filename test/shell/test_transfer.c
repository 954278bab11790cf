/* test_transfer.c - export, import, backup and restore of the zke command
 *
 * Nothing is lost on the way, and each shows one moment while others write.  If
 * they are interrupted, killed or out of space, they do no harm.
 *
 * SEED=n selects the random trees; each seed is printed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/test.h"

/* ---- the command ---- */

/* Start a shell's line in the test's directory; `zke` in it is this build's
 * command. */
static pid_t begin(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static pid_t begin(const char *format, ...) {
  char line[2000], text[3000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  snprintf(text, sizeof text, "cd '%s' && zke() { exec '%s' \"$@\"; }; %s",
           test_path(""), test_zke(), line);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
  }
  ck_assert_int_gt(pid, 0);
  return pid;
}

/* Exit status, or 128 + signal. */
static int end(pid_t pid) {
  int status;
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  return test_status(status);
}

#define ck_zke(expected, ...)                                               \
  do {                                                                      \
    int ck_zke_got_ = end(begin(__VA_ARGS__));                              \
    ck_assert_msg(ck_zke_got_ == (expected), "%s: %d, not %d: %s",          \
                  #__VA_ARGS__, ck_zke_got_, (expected), read_text("err")); \
  } while (0)

/* A file of the directory, cut to what fits; "" if it does not exist. */
static const char *read_text(const char *name) {
  static char text[4096];
  FILE *f = fopen(test_path(name), "rb");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  text[n] = '\0';
  if (f) fclose(f);
  return text;
}

/* The same nodes?  The first lines have the time, so they are left out. */
static void same_nodes(const char *a, const char *b) {
  ck_zke(0,
         "tail -n +2 '%s' >one.nodes && tail -n +2 '%s' >two.nodes && "
         "cmp one.nodes two.nodes >err 2>&1",
         a, b);
}

/* How many partly written files are left in the directory. */
static int parts(void) {
  DIR *d = opendir(test_path(""));
  struct dirent *e;
  int count = 0;
  while (d && (e = readdir(d)) != NULL)
    count += strstr(e->d_name, ".part-") != 0;
  if (d) closedir(d);
  return count;
}

/* ---- random trees ---- */

static uint64_t seed_state;

static unsigned pick(unsigned below) {
  seed_state = seed_state * UINT64_C(6364136223846793005) + 1442695040888963407;
  return (unsigned)(seed_state >> 33) % below;
}

/* The seed of the i-th tree. */
static void seed(int i) {
  seed_state = (uint64_t)test_seed() * 1000 + (uint64_t)i;
}

/* A name of one to four characters: any that a name may have. */
static void random_name(char name[20]) {
  char *to = name;
  for (unsigned n = 1 + pick(4); n > 0; n--) {
    unsigned c;
    do c = pick(3) == 0 ? 0x20 + pick(0xd7e0) : 0x21 + pick(0x5e);
    while (c == '/' || (c > 0x7e && c < 0xa0));
    if (c < 0x80) {
      *to++ = (char)c;
    } else if (c < 0x800) {
      *to++ = (char)(0xc0 | c >> 6);
      *to++ = (char)(0x80 | (c & 0x3f));
    } else {
      *to++ = (char)(0xe0 | c >> 12);
      *to++ = (char)(0x80 | (c >> 6 & 0x3f));
      *to++ = (char)(0x80 | (c & 0x3f));
    }
  }
  *to = '\0';
  if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) strcpy(name, "dots");
}

/* Random data: none, text, any bytes, or much; -1 for NULL. */
static int random_data(char data[5000]) {
  int len = (int)(pick(5) == 0 ? pick(5000) : pick(12));
  bool text = pick(2) == 0;
  if (pick(6) == 0) return -1;
  for (int i = 0; i < len; i++)
    data[i] = text ? (char)(' ' + pick(95)) : (char)pick(256);
  return len;
}

/* One of three lists, mostly the one that is open to all. */
static const zke_acls *random_acl(void) {
  static const zke_acl lists[][2] = {
      {{ZKE_PERM_ALL, "world", "anyone"}, {0, NULL, NULL}},
      {{ZKE_PERM_READ | ZKE_PERM_CREATE, "world", "anyone"},
       {ZKE_PERM_ALL, "digest", "bob:UeUX3vSFmFLpfH6lpGxTY8sl+bk="}},
      {{ZKE_PERM_READ | ZKE_PERM_CREATE | ZKE_PERM_DELETE, "world", "anyone"},
       {ZKE_PERM_WRITE, "digest", "\xc3\xa4\\ \"q\":odd"}}};
  static const zke_acls made[] = {{1, lists[0]}, {2, lists[1]}, {2, lists[2]}};
  return &made[pick(4) ? 0 : 1 + pick(2)];
}

/* Make a node of any kind that an export contains, with random data. */
static void random_node(zke *z, const char *path) {
  char data[5000];
  int len = random_data(data);
  const zke_acls *acls = random_acl();
  const void *bytes = len < 0 ? NULL : data;
  int rc;
  if (pick(6) == 0)
    rc = zke_create_ttl(z, path, bytes, len, acls, ZKE_PERSISTENT_WITH_TTL,
                        INT64_C(1000000) + pick(9), NULL, NULL);
  else
    rc = zke_create(z, path, bytes, len, acls,
                    pick(6) ? ZKE_PERSISTENT : ZKE_CONTAINER, NULL, NULL);
  ck_assert_msg(rc == ZKE_OK || rc == ZKE_NODEEXISTS, "%s", zke_errmsg());
}

/* Use up a sequence number and leave no node; NOAUTH if the node's ACL does not
 * permit deletion. */
static void random_sequence(zke *z, const char *parent) {
  char path[600], *made;
  snprintf(path, sizeof path, "%.500s/", parent);
  for (unsigned n = pick(5); n > 0; n--) {
    ck_ok(zke_create(z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                     &made, NULL));
    int rc = zke_delete(z, made, -1);
    ck_assert(rc == ZKE_OK || rc == ZKE_NOAUTH);
    zke_free(made);
  }
}

/* Each new node is below an earlier one, mostly one of the last: deep. */
static void random_tree(zke *z, int count) {
  char paths[200][500] = {""};
  for (int i = 1; i < count; i++) {
    unsigned last = i < 4 ? 1 : 3;
    unsigned up = pick(2) ? (unsigned)i - 1 - pick(last) : pick((unsigned)i);
    const char *parent = paths[up];
    char name[20];
    random_name(name);
    if (strlen(parent) > 400) parent = "";
    snprintf(paths[i], sizeof paths[i], "%.400s/%s", parent, name);
    random_node(z, paths[i]);
    if (pick(5) == 0) random_sequence(z, paths[i]);
  }
}

/* ---- nothing is lost ---- */

/* Random trees pass through an export and an import unchanged, also by a pipe,
 * and below another path. */
TEST_LOOP(an_export_imported_and_exported_is_the_same, 0,
          (int)test_sample(25, 8)) {
  zke *z = test_open(test_path("a.db"));
  seed(_i);
  random_tree(z, 30 + (int)pick(120));
  ck_zke(0, "zke a.db export / a.json >err 2>&1");
  ck_zke(0, "zke b.db import / a.json >err 2>&1");
  ck_zke(0, "zke b.db check >err 2>&1");
  ck_zke(0, "zke b.db export / b.json >err 2>&1");
  same_nodes("a.json", "b.json");
  /* By a pipe, to another place, on top of an existing tree. */
  ck_zke(0, "cat b.json | { zke c.db import /far >err 2>&1; }");
  ck_zke(0, "zke c.db export /far c.json >err 2>&1");
  same_nodes("a.json", "c.json");
  ck_ok(zke_close(z));
}

/* The export is not only the same, it is true: the engine describes both trees
 * alike. */
static void compare_nodes(zke *a, zke *b, const char *path, int *count) {
  char *data[2], child[700];
  int len[2];
  zke_stat stat[2];
  zke_strings *names[2];
  zke_acls *acls[2];
  zke *z[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    ck_ok(zke_get(z[i], path, NULL, NULL, &data[i], &len[i], &stat[i]));
    ck_ok(zke_children(z[i], path, NULL, NULL, &names[i], NULL));
    ck_ok(zke_get_acl(z[i], path, &acls[i], NULL));
  }
  ck_assert_int_eq(len[0], len[1]);
  if (len[0] > 0) ck_assert_mem_eq(data[0], data[1], (size_t)len[0]);
  ck_assert_int_eq(stat[0].cversion, stat[1].cversion);
  ck_assert_int_eq(names[0]->count, names[1]->count);
  ck_assert_int_eq(acls[0]->count, acls[1]->count);
  for (int i = 0; i < acls[0]->count; i++) {
    ck_assert_int_eq(acls[0]->data[i].perms, acls[1]->data[i].perms);
    ck_assert_str_eq(acls[0]->data[i].id, acls[1]->data[i].id);
  }
  for (int i = 0; i < names[0]->count; i++) {
    ck_assert_str_eq(names[0]->data[i], names[1]->data[i]);
    snprintf(child, sizeof child, "%s/%s", path[1] ? path : "",
             names[0]->data[i]);
    if (strcmp(child, "/zookeeper") != 0) compare_nodes(a, b, child, count);
  }
  ++*count;
  for (int i = 0; i < 2; i++) {
    zke_free(data[i]);
    zke_free(names[i]);
    zke_free(acls[i]);
  }
}

/* Each node reads the same through the library: data, kind, ACL, TTL. */
TEST_LOOP(what_was_imported_reads_as_what_was_exported, 0, 5) {
  int count = 0;
  zke *a = test_open(test_path("a.db"));
  seed(1000 + _i);
  random_tree(a, 100);
  ck_zke(0, "zke a.db export / a.json >err 2>&1");
  ck_zke(0, "zke b.db import / a.json >err 2>&1");
  zke *b = test_open(test_path("b.db"));
  compare_nodes(a, b, "/", &count);
  ck_assert_int_gt(count, 50);
  ck_ok(zke_close(a));
  ck_ok(zke_close(b));
}

/* 3000 numbers are passed in several transactions. */
TEST(a_queue_goes_on_behind_its_last_number) {
  char *made;
  zke *z = test_open(test_path("a.db"));
  ck_ok(
      zke_create(z, "/q", NULL, -1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  for (int i = 0; i < 3000; i++) {
    ck_ok(zke_create(z, "/q/n", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL_SEQUENTIAL,
                     &made, NULL));
    if (i < 2990) ck_ok(zke_delete(z, made, -1));
    zke_free(made);
  }
  ck_zke(0, "zke a.db export /q a.json >err 2>&1");
  ck_ok(zke_close(z));
  ck_zke(0, "zke b.db import /q a.json >out 2>err");
  ck_assert_msg(strstr(read_text("out"), "10 ephemeral and left out") != NULL,
                "%s", read_text("out"));
  z = test_open(test_path("b.db"));
  ck_ok(zke_create(z, "/q/n", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT_SEQUENTIAL,
                   &made, NULL));
  ck_assert_str_eq(made, "/q/n0000003000");
  zke_free(made);
  ck_ok(zke_close(z));
}

/* A program with a greater limit made a value above the command's limit.  It is
 * exported, and imported again on request.  Otherwise the whole file is
 * refused, with the number of the line. */
TEST(a_value_above_1_mib_is_imported) {
  enum { LARGE = 1500000 };
  zke_options o = {.size = sizeof o, .data_limit = LARGE};
  char *data = malloc(LARGE);
  zke *z = NULL;
  ck_assert_ptr_nonnull(data);
  memset(data, 'x', LARGE);
  ck_ok(zke_open(test_path("large.db"), &o, &z));
  ck_ok(
      zke_create(z, "/first", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_create(z, "/large", data, LARGE, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_ok(zke_close(z));
  free(data);
  ck_zke(0, "zke large.db export / out >err 2>&1");
  ck_zke(65, "zke copy.db import / out 2>err");
  ck_assert_str_eq(read_text("err"),
                   "zke: DATA: out: line 4: \"large\" has 1500000 bytes, and "
                   "1048576 are the most; --large takes it\n");
  ck_zke(65, "zke :memory: import --large / out 2>err");
  ck_assert_str_eq(read_text("err"),
                   "zke: DATA: out: line 4: \"large\" has 1500000 bytes, and "
                   "1048576 are the most in memory\n");
  ck_zke(1, "zke copy.db exists /first >out2 2>err");
  ck_zke(0, "zke copy.db import --large / out >err 2>&1");
  ck_zke(0, "zke copy.db export / again >err 2>&1");
  same_nodes("out", "again");
}

typedef struct reader {
  zke *z;
  atomic_bool ends;
  int seen, gaps; /* deletions seen, and how many had left a gap */
} reader;

static void look_at_once(zke *z, int type, int state, const char *path,
                         void *context) {
  reader *r = context;
  (void)state;
  if (type != ZKE_EVENT_DELETED) return;
  r->seen++;
  r->gaps += zke_exists(z, path, NULL, NULL, NULL) != ZKE_OK;
}

static void *read_on(void *arg) {
  reader *r = arg;
  while (!atomic_load(&r->ends)) zke_wait(r->z, zke_now(r->z) + 1000);
  zke_wait(r->z, zke_now(r->z));
  return NULL;
}

/* --replace removes what the file does not have, in one transaction if the tree
 * is small: a reader sees the old tree or the new one.  It looks as soon as it
 * hears of the old one's deletion. */
TEST(a_small_tree_is_replaced_in_one_transaction) {
  pthread_t thread;
  reader r = {.z = test_open(test_path("a.db"))};
  zke *z = test_open(test_path("a.db"));
  ck_ok(zke_create(z, "/t", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(
      zke_create(z, "/t/a", "1", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_zke(0, "zke a.db export /t t.json >err 2>&1");
  ck_ok(zke_create(z, "/t/b", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  ck_ok(zke_add_watch(r.z, "/t", ZKE_WATCH_PERSISTENT, look_at_once, &r));
  ck_assert_int_eq(pthread_create(&thread, NULL, read_on, &r), 0);
  for (int i = 0; i < 10; i++)
    ck_zke(0, "zke a.db import --replace /t t.json >err 2>&1");
  atomic_store(&r.ends, true);
  pthread_join(thread, NULL);
  ck_assert_int_eq(r.seen, 10);
  ck_assert_int_eq(r.gaps, 0);
  ck_rc(zke_exists(z, "/t/b", NULL, NULL, NULL), ZKE_NONODE);
  ck_ok(zke_exists(z, "/t/a", NULL, NULL, NULL));
  ck_ok(zke_close(r.z));
  ck_ok(zke_close(z));
}

/* ---- one picture while others write ---- */

/* A thread that moves one coin: each transaction deletes it from one purse,
 * puts it into another, and increments a count that all purses share. */
enum { PURSES = 300 };

typedef struct mover {
  pthread_t thread;
  zke *z;
  _Atomic bool stop;
  _Atomic int64_t moves;
} mover;

/* Move a coin from purse to purse; the same change writes one value into the
 * first node, the last node and the coin.  At any one moment there is one coin
 * and one value. */
static void *mover_run(void *arg) {
  mover *m = arg;
  char from[40], to[40], count[24];
  unsigned at = 0;
  for (; !m->stop; m->moves++) {
    zke_op ops[4];
    unsigned next = (at * 7 + 11) % PURSES;
    if (next == at) next = (at + 1) % PURSES;
    snprintf(from, sizeof from, "/p/%03u/coin", at);
    snprintf(to, sizeof to, "/p/%03u/coin", next);
    snprintf(count, sizeof count, "%" PRId64, m->moves);
    zke_op_delete(&ops[0], from, -1);
    zke_op_create(&ops[1], to, count, (int)strlen(count), ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
    zke_op_set(&ops[2], "/p/000", count, (int)strlen(count), -1);
    zke_op_set(&ops[3], "/p/299", count, (int)strlen(count), -1);
    if (zke_multi(m->z, ops, 4, NULL) != ZKE_OK) break;
    at = next;
  }
  return NULL;
}

/* Make the purses and the coin, and move it on another thread from now on. */
static void mover_begin(mover *m) {
  char path[40];
  zke_options o = {.size = sizeof o, .durability = ZKE_DURABLE_NONE};
  *m = (mover){.stop = false};
  ck_ok(zke_open(test_path("a.db"), &o, &m->z));
  ck_ok(
      zke_create(m->z, "/p", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL, NULL));
  for (int i = 0; i < PURSES; i++) {
    snprintf(path, sizeof path, "/p/%03d", i);
    ck_ok(zke_create(m->z, path, "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                     NULL));
  }
  ck_ok(zke_create(m->z, "/p/000/coin", "", 0, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                   NULL, NULL));
  ck_assert_int_eq(pthread_create(&m->thread, NULL, mover_run, m), 0);
  ck_until(m->moves > 0, 10000); /* until then nothing has a value */
}

/* Stop after enough moves to spoil an export that is not of one moment. */
static void mover_end(mover *m) {
  ck_until(m->moves > 100, 60000);
  m->stop = true;
  pthread_join(m->thread, NULL);
  ck_ok(zke_close(m->z));
}

/* One coin, and the three values that are changed together are equal. */
static const char one_picture[] =
    "grep -c '/coin' p.json | grep -qx 1 && "
    "grep -e '\"000\"' -e '\"299\"' -e /coin p.json | "
    "sed 's/.*\"data\":\"\\([^\"]*\\)\".*/\\1/' | sort -u | grep -c . | "
    "grep -qx 1";

/* An export, made while a process changes several nodes in one transaction,
 * shows all of them after the same change: it is of one moment. */
TEST(an_export_is_one_picture) {
  mover m;
  mover_begin(&m);
  for (long i = test_sample(40, 12); i > 0; i--) {
    int64_t before = m.moves;
    ck_zke(0, "zke a.db export /p p.json >err 2>&1");
    ck_zke(0, "%s", one_picture);
    ck_until(m.moves > before, 10000);
  }
  mover_end(&m);
}

/* So is a backup, which is also a sound database. */
TEST(a_backup_is_one_picture) {
  mover m;
  mover_begin(&m);
  for (long i = test_sample(20, 7); i > 0; i--) {
    int64_t before = m.moves;
    ck_zke(0, "zke a.db backup --force b.db >err 2>&1");
    ck_zke(0, "zke b.db check >err 2>&1");
    ck_zke(0, "zke b.db export /p p.json >err 2>&1");
    ck_zke(0, "%s", one_picture);
    ck_until(m.moves > before, 10000);
  }
  mover_end(&m);
}

/* A thread that makes and removes an ephemeral node and another session's watch
 * on it. */
static void *comings_and_goings(void *arg) {
  mover *m = arg;
  zke *watcher;
  int rc = zke_open_session(m->z, NULL, &watcher);
  for (; rc == ZKE_OK && !m->stop; m->moves++) {
    rc = zke_create(m->z, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
    if (rc == ZKE_OK)
      rc =
          zke_add_watch(watcher, "/e", ZKE_WATCH_PERSISTENT, test_ignore, NULL);
    if (rc == ZKE_OK)
      rc = zke_remove_watch(watcher, "/e", ZKE_WATCH_ANY, NULL, NULL);
    if (rc == ZKE_OK) rc = zke_delete(m->z, "/e", -1);
  }
  zke_close(watcher);
  return NULL;
}

/* How often the dump has this text. */
static int dumped(const char *what) {
  int count = 0;
  for (const char *at = read_text("dump"); (at = strstr(at, what)); at++)
    count++;
  return count;
}

/* The same for a dump: its rows, their counts by session and the waiters
 * agree. */
TEST(a_dump_is_one_picture) {
  mover m = {.stop = false};
  ck_ok(zke_open(test_path("a.db"), NULL, &m.z));
  ck_assert_int_eq(pthread_create(&m.thread, NULL, comings_and_goings, &m), 0);
  for (int i = 0; i < 40; i++) {
    int64_t before = m.moves;
    ck_zke(0, "zke --json a.db dump >dump 2>err");
    int watches = dumped("\"type\":\"watch\"");
    int owned = dumped("\"ephemeralOwner\":\"0x1");
    ck_assert_int_eq(dumped("\"type\":\"waiter\""), watches);
    ck_assert_int_eq(dumped("\"watches\":2"), watches / 2);
    ck_assert_int_eq(dumped("\"ephemerals\":1"), owned);
    ck_assert_int_ge(owned, watches / 2);
    ck_until(m.moves > before, 10000);
  }
  mover_end(&m);
}

/* ---- interrupted and killed ---- */

/* As many nodes as more than forty batches import. */
enum { IMPORTED = 12000 };

/* A file of many nodes, whose import and export take a while. */
static void make_large_file(int nodes) {
  FILE *f = fopen(test_path("large.json"), "w");
  ck_assert_ptr_nonnull(f);
  fputs("{\"format\":\"zkembed-tree\",\"version\":1}\n", f);
  fputs("{\"path\":\"\",\"data\":\"top\",\"sequence\":9}\n", f);
  for (int i = 1; i < nodes; i++)
    fprintf(f, "{\"path\":\"n%06d\",\"data\":\"%d\"}\n", i, i);
  fprintf(f, "{\"nodes\":%d}\n", nodes);
  ck_assert_int_eq(fclose(f), 0);
}

/* How many nodes are below a path; 0 if it does not exist. */
static int64_t count_below(zke *z, const char *path) {
  int64_t count = 0;
  int rc = zke_count(z, path, &count);
  ck_assert(rc == ZKE_OK || rc == ZKE_NONODE);
  return count;
}

/* Has the child ended?  It stays waitable. */
static bool is_over(pid_t pid) {
  siginfo_t info = {0};
  ck_assert_int_eq(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT),
                   0);
  return info.si_pid == pid;
}

/* A running import, and the signal that ends it. */
typedef struct ending {
  pid_t pid;
  int signal_number;
  int64_t came; /* nodes that were there when the signal was sent */
} ending;

/* While we hold the gate, the import is between two of its batches. */
static int end_if_begun(zke *z, void *context) {
  ending *e = context;
  int64_t came = count_below(z, "/big");
  if (came <= 500) return ZKE_OK;
  e->came = came;
  kill(e->pid, e->signal_number);
  return ZKE_OK;
}

/* Import, and send it a signal between two batches, when it has made some of
 * the nodes.  Writers wait in one line, so at most one batch of the import
 * comes between two looks. */
static int end_import_by(zke *z, int signal_number) {
  ending e = {.signal_number = signal_number};
  e.pid = begin("zke a.db import /big large.json >out 2>err");
  while (!e.came) {
    ck_assert(!is_over(e.pid));
    ck_ok(zke_batch(z, end_if_begun, &e));
  }
  ck_assert_int_lt(e.came, IMPORTED - 1);
  return end(e.pid);
}

/* SIGINT ends an import after whole batches; its sentence counts them, and
 * --merge completes the tree. */
TEST(an_interrupted_import_says_how_far_it_came) {
  make_large_file(IMPORTED);
  zke *z = test_open(test_path("a.db"));
  ck_assert_int_eq(end_import_by(z, SIGINT), 128 + SIGINT);
  int64_t came = count_below(z, "/big") + 1;
  ck_assert_int_lt(came, IMPORTED);
  char said[200];
  snprintf(said, sizeof said,
           "INTERRUPTED: import was ended when %" PRId64
           " of %d nodes were written; import --merge completes them",
           came, IMPORTED);
  ck_assert_msg(strstr(read_text("err"), said) != NULL, "no \"%s\" in %s", said,
                read_text("err"));
  ck_ok(zke_check(z, NULL, NULL));
  ck_zke(1, "zke a.db import /big large.json >out 2>err");
  ck_zke(0, "zke a.db import --merge /big large.json >out 2>err");
  ck_zke(0, "zke a.db export /big big.json >err 2>&1");
  ck_assert_int_eq(count_below(z, "/big"), IMPORTED - 1);
  ck_ok(zke_close(z));
}

/* The same after SIGKILL, which leaves no sentence. */
TEST(a_killed_import_is_completed_by_merge) {
  make_large_file(IMPORTED);
  zke *z = test_open(test_path("a.db"));
  ck_assert_int_eq(end_import_by(z, SIGKILL), 128 + SIGKILL);
  ck_assert_int_lt(count_below(z, "/big"), IMPORTED - 1);
  ck_ok(zke_check(z, NULL, NULL));
  ck_zke(0, "zke a.db import --merge /big large.json >out 2>err");
  ck_zke(0, "zke a.db export /big big.json >err 2>&1");
  ck_zke(0, "zke b.db import /big large.json >err 2>&1");
  ck_zke(0, "zke b.db export /big large.json >err 2>&1");
  same_nodes("big.json", "large.json");
  ck_ok(zke_close(z));
}

/* If the signal comes too late, the new file is whole. */
static void end_by_term_while_writing(const char *command_, const char *file) {
  ck_zke(0, "echo old >%s", file);
  pid_t pid = begin("%s", command_);
  ck_until(parts() > 0 || is_over(pid), 60000);
  kill(pid, SIGTERM);
  int status = end(pid);
  ck_assert_msg(status == 128 + SIGTERM || status == 0, "%d", status);
  ck_assert_int_eq(parts(), 0);
  if (status) ck_assert_str_eq(read_text(file), "old\n");
}

/* A signal in the middle of an export leaves the old file, and no partial file
 * next to it. */
TEST(an_interrupted_export_leaves_the_old_file) {
  make_large_file((int)test_sample(60000, 12000));
  ck_zke(0, "zke a.db import /big large.json >err 2>&1");
  end_by_term_while_writing("zke a.db export /big out.json >err 2>&1",
                            "out.json");
}

/* The same for a backup. */
TEST(an_interrupted_backup_leaves_the_old_file) {
  make_large_file((int)test_sample(60000, 12000));
  ck_zke(0, "zke a.db import /big large.json >err 2>&1");
  end_by_term_while_writing("zke a.db backup --force out.db >err 2>&1",
                            "out.db");
}

/* ---- a full disk ---- */

/* Export, backup and import on a full disk exit with 74 and a sentence; the old
 * files stay, and with more space the import continues. */
TEST(a_full_disk_is_said_and_does_no_harm) {
  make_large_file(12000);
  if (!test_small_disk("small", 300)) return;
  ck_zke(0, "zke a.db import /big large.json >err 2>&1");
  ck_zke(0, "echo old >small/out");
  ck_zke(74, "zke a.db export /big small/out >out 2>err");
  ck_assert_msg(strstr(read_text("err"), "zke: FULL: ") != NULL, "%s",
                read_text("err"));
  ck_assert_str_eq(read_text("small/out"), "old\n");
  ck_zke(74, "zke a.db backup --force small/out >out 2>err");
  ck_assert_msg(strstr(read_text("err"), "zke: FULL: ") != NULL, "%s",
                read_text("err"));
  ck_assert_str_eq(read_text("small/out"), "old\n");
  ck_zke(0, "ls small >out; test \"$(cat out)\" = out");
  ck_zke(74, "zke small/b.db import /big large.json >out 2>err");
  ck_assert_msg(strstr(read_text("err"), "zke: FULL: ") != NULL, "%s",
                read_text("err"));
  /* With more space it continues. */
  ck_assert_int_eq(
      mount("none", test_path("small"), "tmpfs", MS_REMOUNT, "size=32m"), 0);
  ck_zke(0, "zke small/b.db check >err 2>&1");
  ck_zke(0, "zke small/b.db import --merge /big large.json >out 2>err");
}

/* ---- copies ---- */

/* P5: a backup has none of its original's sessions, nor their ephemerals. */
TEST(a_copy_of_a_database_in_use_starts_with_no_sessions) {
  zke *z = test_open(test_path("a.db"));
  ck_ok(zke_create(z, "/e", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_zke(0, "zke a.db backup b.db >err 2>&1");
  zke *copy = test_open(test_path("b.db"));
  ck_rc(zke_exists(copy, "/e", NULL, NULL, NULL), ZKE_NONODE);
  ck_assert_int_eq(test_session_count(copy), 1);
  ck_ok(zke_exists(z, "/e", NULL, NULL, NULL));
  ck_ok(zke_close(copy));
  ck_ok(zke_close(z));
}

/* ---- restore ---- */

/* Stop this process, for its tracer, at each call that changes a file or a
 * directory, or makes that durable. */
static bool stop_at_changes(void) {
  static const unsigned calls[] = {
#ifdef SYS_unlink
      SYS_unlink,   SYS_rename,    SYS_link,
#endif
      SYS_unlinkat, SYS_renameat2, SYS_linkat,   SYS_write,
      SYS_pwrite64, SYS_ftruncate, SYS_fsync,    SYS_fdatasync,
      SYS_fchmod,   SYS_renameat,  SYS_fallocate};
  enum { CALLS = sizeof calls / sizeof *calls };
  struct sock_filter filter[CALLS + 3] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
  for (unsigned i = 0; i < CALLS; i++)
    filter[i + 1] = (struct sock_filter)BPF_JUMP(
        BPF_JMP | BPF_JEQ | BPF_K, calls[i], (uint8_t)(CALLS - i), 0);
  filter[CALLS + 1] =
      (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[CALLS + 2] =
      (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
  struct sock_fprog program = {CALLS + 3, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* The call before which a process has stopped. */
static uint64_t call_of(pid_t pid) {
  struct __ptrace_syscall_info in;
  ck_assert(ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof in, &in) > 0);
  return in.seccomp.nr;
}

/* Run "zke r.db restore s.db" and kill it before its nth change of a file;
 * false: it made fewer changes, and succeeded.  Of equal calls in a row, such
 * as the writes of all pages, the first two and then every fourth count. */
static bool restore_killed_at(int n) {
  uint64_t call, last = 0;
  long alike = 0;
  int status;
  const char *program = test_zke();
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    /* the leak check uses ptrace(), too */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    if (chdir(test_path("")) == 0 && freopen("out", "w", stdout) &&
        ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 && raise(SIGSTOP) == 0 &&
        stop_at_changes())
      execl(program, "zke", "--quiet", "r.db", "restore", "s.db", NULL);
    _exit(127);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFSTOPPED(status), "ptrace() is not allowed here");
  ck_assert_int_eq(ptrace(PTRACE_SETOPTIONS, pid, NULL,
                          PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP),
                   0);
  for (;;) {
    ck_assert_int_eq(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (!WIFSTOPPED(status)) break;
    if (status >> 16 != PTRACE_EVENT_SECCOMP) continue; /* execl() */
    call = call_of(pid);
    alike = call == last ? alike + 1 : 1;
    last = call;
    if ((alike <= 2 || alike % test_stride(4) == 0) && n-- == 0) {
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      return true;
    }
  }
  ck_assert_int_eq(test_status(status), 0);
  return false;
}

/* Change the database in another process and kill it: a log and an ephemeral
 * node stay.  Returns the session's id, which is the highest zxid that
 * matters. */
static int64_t leave_old_tree(void) {
  int64_t id = 0;
  int ends[2], status;
  ck_assert_int_eq(pipe(ends), 0);
  pid_t pid = fork();
  if (pid == 0) {
    zke *z = test_open(test_path("r.db"));
    ck_ok(zke_set(z, "/state", "old", 3, -1, NULL));
    ck_ok(zke_create(z, "/e-old", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL,
                     NULL));
    id = zke_session_id(z);
    ck_assert_int_eq(write(ends[1], &id, sizeof id), sizeof id);
    raise(SIGKILL);
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_int_eq(read(ends[0], &id, sizeof id), sizeof id);
  close(ends[0]);
  close(ends[1]);
  return id;
}

/* Is the tree the snapshot's, in a new epoch and without older ephemerals?
 * Otherwise it is the whole old tree.  No number is used again. */
static bool expect_one_tree(int64_t given) {
  char *data = NULL;
  int len;
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_EXISTING};
  zke *z;
  ck_ok(zke_open(test_path("r.db"), &o, &z));
  ck_ok(zke_get(z, "/state", NULL, NULL, &data, &len, NULL));
  bool restored = strcmp(data, "snap") == 0;
  ck_assert_str_eq(data, restored ? "snap" : "old");
  zke_free(data);
  ck_ok(zke_check(z, NULL, NULL));
  ck_assert_int_gt(zke_session_id(z), given);
  if (restored) {
    ck_rc(zke_exists(z, "/e-old", NULL, NULL, NULL), ZKE_NONODE);
    ck_rc(zke_exists(z, "/e-snap", NULL, NULL, NULL), ZKE_NONODE);
    ck_assert_int_gt(zke_session_id(z) >> 32, given >> 32);
  }
  ck_ok(zke_close(z));
  return restored;
}

/* Make r.db, and s.db, which has a session and its ephemeral. */
static void make_snapshot(void) {
  zke *z = test_open(test_path("r.db"));
  ck_ok(zke_create(z, "/state", "snap", 4, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                   NULL));
  ck_ok(
      zke_create(z, "/e-snap", "", 0, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  ck_zke(0, "zke r.db backup s.db >out 2>err");
  ck_ok(zke_close(z));
}

/* P2, P8: a restore that is killed at any moment leaves the whole old tree or
 * the whole new one; a second restore succeeds. */
TEST(a_killed_restore_leaves_one_tree) {
  int64_t given = 0;
  bool restored = false;
  make_snapshot();
  for (int n = 0;; n++) {
    given = leave_old_tree();
    if (!restore_killed_at(n)) break;
    bool is = expect_one_tree(given);
    ck_assert_msg(is || !restored, "the old tree is back before change %d", n);
    restored = is;
    ck_zke(0, "zke r.db restore s.db >out 2>err");
    ck_assert(expect_one_tree(given));
  }
  ck_assert(expect_one_tree(given));
  ck_assert(restored);
}

/* The same for a lost database: afterwards there is none, or the new one, but
 * never the new one with the old log. */
TEST(a_killed_restore_of_a_lost_database_mixes_nothing) {
  int64_t given = 0;
  bool killed = true;
  make_snapshot();
  for (int n = 0; killed; n++) {
    given = leave_old_tree();
    ck_zke(0, "rm r.db; test -s r.db-wal");
    killed = restore_killed_at(n);
    if (killed && access(test_path("r.db"), F_OK) != 0)
      ck_zke(0, "zke r.db restore s.db >out 2>err");
    ck_assert(expect_one_tree(given));
  }
}

/* Restore asks the kernel who has the database open: a session, a reader, and a
 * process with the removed database. */
TEST(a_database_in_use_is_not_restored) {
  zke_options o = {.size = sizeof o, .flags = ZKE_OPEN_READONLY};
  zke *z = NULL;
  make_snapshot();
  for (int i = 0; i < 3; i++) {
    ck_ok(zke_open(test_path("r.db"), i == 1 ? &o : NULL, &z));
    if (i == 2) ck_assert_int_eq(unlink(test_path("r.db")), 0);
    ck_zke(75, "zke r.db restore s.db >out 2>err");
    ck_assert_msg(strstr(read_text("err"), "BUSY: r.db is in use by") != NULL,
                  "%s", read_text("err"));
    zke_close(z);
  }
  ck_zke(0, "zke r.db restore s.db >out 2>err");
  ck_assert(expect_one_tree(0));
}

/* A restore on a full disk leaves the old tree. */
TEST(a_restore_on_a_full_disk_does_no_harm) {
  make_large_file(12000);
  if (!test_small_disk("small", 1024)) return;
  ck_zke(0, "zke a.db import /big large.json >err 2>&1");
  ck_zke(0, "zke a.db backup s.db >out 2>err");
  ck_zke(0, "zke small/r.db create /old >out 2>err");
  ck_zke(74, "zke small/r.db restore s.db >out 2>err");
  ck_zke(0, "zke small/r.db exists /old >out 2>err");
  ck_zke(0, "ls small | grep part >out; test ! -s out");
}
