/* torture.c - processes that are killed, over and over
 *
 * P1 to P8, P12.  In each round some workers do random operations on one
 * database and are killed with SIGKILL at random instants; in most rounds a
 * watcher outlives them.  Each process writes down what it is about to do and
 * what came of it in memory that it shares with the program, so the record
 * survives it (history.h).  At the end of a round an inspector opens
 * the database, waits until the dead sessions are gone, runs zke_check() and
 * writes down all there is; then the history is checked.
 *
 *   KILLS=n     how many in all; 1000
 *   SEED=n      of the first round, the others run on; printed with each
 *               complaint.  What the workers do and when they die follows from
 *               it as far as the scheduler lets it.
 *   SECONDS=n   begin no round after so many; without limit
 *   VERBOSE=1   a line for each round
 *
 * Arguments: a directory on a disk for some of the rounds (the others are in
 * memory where /dev/shm is).  The program never has a handle itself, so it may
 * fork.  It is linked with an engine that checkpoints after a few pages and
 * looks for the dead more often.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "zkembed.h"
#include "history.h"

enum {
  WORKERS = 5,       /* at most */
  WATCHER = WORKERS, /* their places among the rings */
  INSPECTOR,
  RINGS,
  RING = 12000, /* operations of one process and its successors */
  SPARE = 16,   /* what one step needs of them */
  EVENTS = 100000,
  VALUE = 20000,  /* bytes of the largest */
  PATIENCE = 20,  /* seconds for one operation */
  SETTLE = 10000, /* ms until the dead and the fleeting are gone */
  DEATHS = 4096,  /* of one round */
  MINE = 8,       /* sequential nodes a worker keeps */
  ENOUGH = 5      /* rounds with violations */
};

#define GARBAGE UINT64_MAX
#define WATCHED "/s" /* has the watcher's persistent watch */
#define USER "torture:pw"

/* ---- what is shared ---- */

typedef struct ring {
  volatile int count;
  volatile uint32_t values; /* written by its processes */
  hist_op op[RING];
} ring;

static struct shared {
  ring ring[RINGS];
  volatile int ready;       /* the watcher has registered */
  volatile int stop;        /* workers shall end in peace */
  volatile int64_t settled; /* when the dead were gone */
  volatile int events;
  hist_event event[EVENTS];
  volatile int complaints[RINGS];
  char complaint[RINGS][400]; /* each process's last */
} * shared;

/* ---- small things ---- */

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_us(int64_t us) {
  struct timespec t = {us / 1000000, us % 1000000 * 1000};
  nanosleep(&t, NULL);
}

static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static int below(uint64_t *random, int n) {
  *random += 0x9e3779b97f4a7c15;
  return (int)(mix(*random) % (uint64_t)n);
}

static void die(const char *what) {
  perror(what);
  exit(2);
}

/* ---- values: each is written once, and shows when it is torn ---- */

static int value_size(uint64_t value) {
  switch (mix(value) % 16) {
    case 0:
      return VALUE;
    case 1:
      return 5000;
    case 2:
    case 3:
      return 300;
    default:
      return 24;
  }
}

/* The bytes of a value, until the next call. */
static const char *value_bytes(uint64_t value, int *size) {
  static char bytes[VALUE + 1];
  *size = value_size(value);
  for (int i = 16; i < *size; i++) bytes[i] = "0123456789abcdef"[(i * 7) & 15];
  for (int i = 0; i < 16; i++)
    bytes[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
  memcpy(bytes + *size - 8, bytes + 8, 8);
  return bytes;
}

static uint64_t value_of(const char *data, int size) {
  char head[17];
  int expected;
  if (!data || size < 16) return GARBAGE;
  memcpy(head, data, 16);
  head[16] = 0;
  uint64_t value = strtoull(head, NULL, 16);
  const char *bytes = value_bytes(value, &expected);
  if (size != expected || memcmp(bytes, data, (size_t)size)) return GARBAGE;
  return value;
}

/* A value as an access control list: in the name of a user that nobody is,
 * beside everybody's right to everything. */
static const zke_acls *value_acls(uint64_t value) {
  static char id[64];
  static zke_acl acl[2];
  static zke_acls acls = {2, acl};
  snprintf(id, sizeof id,
           "%016llx:AAAAAAAAAAAAAAAAAAAAAAAAAAA=", (unsigned long long)value);
  acl[0] = (zke_acl){ZKE_PERM_ALL, "world", "anyone"};
  acl[1] = (zke_acl){ZKE_PERM_READ, "digest", id};
  return &acls;
}

static uint64_t acls_value(const zke_acls *acls) {
  if (acls->count != 2 || strcmp(acls->data[1].scheme, "digest"))
    return GARBAGE;
  return strtoull(acls->data[1].id, NULL, 16);
}

/* ---- one process ---- */

/* A watch under observation. */
typedef struct look {
  bool armed;
  char path[HIST_PATH];
  uint64_t value;
  int64_t stamp;     /* zxid of what it was set on */
  int32_t low, high; /* persistent: cversion before and after it was set */
  int fired;
} look;

typedef struct process {
  zke *z;
  int64_t session;
  int place, open; /* its ring; records not yet published or finished */
  uint64_t random;
  int keys;
  bool gone; /* the session */
  look data, child, lasting;
  char mine[MINE][HIST_PATH];
  int made;
} process;

static const char *database; /* of this round */

static void complain(int place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void complain(int place, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  vsnprintf(shared->complaint[place], sizeof shared->complaint[place], format,
            ap);
  va_end(ap);
  shared->complaints[place]++;
}

static bool is_gone(int rc) {
  return rc == ZKE_SESSIONEXPIRED || rc == ZKE_INVALIDSTATE;
}

/* A call that has no record: it may fail only with its session. */
static bool worked(process *p, int rc, const char *what) {
  if (rc == ZKE_OK) return true;
  if (is_gone(rc) && p->place < WORKERS)
    p->gone = true;
  else
    complain(p->place, "%s: %s: %s", what, zke_error_name(rc), zke_errmsg());
  return false;
}

/* ---- records ---- */

/* Prepare a record; call() publishes it, done() finishes it. */
static hist_op *note(process *p, hist_kind kind, const char *path) {
  ring *r = &shared->ring[p->place];
  hist_op *o = &r->op[r->count + p->open++];
  *o = (hist_op){.kind = (uint8_t)kind,
                 .process = (uint8_t)p->place,
                 .session = p->session,
                 .wanted = -1,
                 .version = -1};
  snprintf(o->path, HIST_PATH, "%s", path);
  return o;
}

static void call(process *p) {
  ring *r = &shared->ring[p->place];
  int64_t now = now_ns();
  alarm(PATIENCE);
  for (int i = 0; i < p->open; i++) r->op[r->count + i].called = now;
  atomic_signal_fence(memory_order_seq_cst);
  r->count += p->open;
  atomic_signal_fence(memory_order_seq_cst);
}

/* Finish the records of the last call; where rc is not 0 it is that of all. */
static void done(process *p, int rc) {
  ring *r = &shared->ring[p->place];
  int64_t now = now_ns();
  if (is_gone(rc)) p->gone = true;
  for (; p->open > 0; p->open--) {
    hist_op *o = &r->op[r->count - p->open];
    if (rc != ZKE_OK) o->rc = is_gone(rc) ? HIST_NO_EFFECT : rc;
    atomic_signal_fence(memory_order_seq_cst);
    o->returned = now;
  }
}

static uint64_t new_value(const process *p) {
  uint32_t count = ++shared->ring[p->place].values;
  return (uint64_t)(p->place + 1) << 32 | (count + HIST_FIRST_VALUE);
}

/* ---- sessions ---- */

static void open_session(process *p, const char *identity) {
  zke_options options = {.size = sizeof options,
                         .identity = identity,
                         .container_ms = 30,
                         .busy_timeout_ms = 60000,
                         .event_limit = 1000000};
  p->session = 0;
  hist_op *o = note(p, HIST_OPEN, "");
  call(p);
  int rc = zke_open(database, &options, &p->z);
  if (rc != ZKE_OK) {
    complain(p->place, "zke_open: %s: %s", zke_error_name(rc), zke_errmsg());
    done(p, rc);
    _exit(3);
  }
  o->zxid = o->session = p->session = zke_session_id(p->z);
  done(p, ZKE_OK);
  p->gone = p->data.armed = p->child.armed = p->lasting.armed = false;
}

static void close_session(process *p) {
  note(p, HIST_END, "");
  call(p);
  done(p, zke_close(p->z));
  p->z = NULL;
}

/* ---- the tree that is there from the start ---- */

static const char *const base[] = {"/s", "/q", "/e", "/m", "/g",
                                   "/c", "/t", "/u", "/a", "/a/0"};
static const char *const base_pairs[] = {"/m/a", "/m/b", "/g/given", "/ready"};
enum { BASE = 10, PAIRS = 4 };

/* Make what is missing of it; whoever comes first, it is there when this
 * returns ZKE_OK. */
static int make_base(zke *z) {
  zke_op op[PAIRS];
  int size, rc = zke_exists(z, "/ready", NULL, NULL, NULL);
  if (rc != ZKE_NONODE) return rc;
  const char *bytes = value_bytes(HIST_GIVEN, &size);
  for (int i = 0; i < BASE; i++) {
    rc = zke_create(z, base[i], bytes, size,
                    i == BASE - 1 ? value_acls(HIST_GIVEN) : ZKE_OPEN_ACL,
                    ZKE_PERSISTENT, NULL, NULL);
    if (rc != ZKE_OK && rc != ZKE_NODEEXISTS) return rc;
  }
  for (int i = 0; i < PAIRS; i++)
    zke_op_create(&op[i], base_pairs[i], bytes, size, ZKE_OPEN_ACL,
                  ZKE_PERSISTENT);
  rc = zke_multi(z, op, PAIRS, NULL);
  if (rc == ZKE_MARSHALLINGERROR) return ZKE_SESSIONEXPIRED;
  return rc == ZKE_NODEEXISTS ? ZKE_OK : rc;
}

/* ---- operations on shared nodes ---- */

static const char *any_key(process *p) {
  static char path[HIST_PATH];
  snprintf(path, sizeof path, "/s/%d", below(&p->random, p->keys));
  return path;
}

static void create(process *p, const char *path, int mode) {
  zke_stat stat;
  int size;
  hist_op *o = note(p, HIST_CREATE, path);
  o->value = new_value(p);
  o->ephemeral = mode == ZKE_EPHEMERAL;
  o->fleeting = mode == ZKE_CONTAINER || mode == ZKE_PERSISTENT_WITH_TTL;
  const char *bytes = value_bytes(o->value, &size);
  call(p);
  int rc = mode == ZKE_PERSISTENT_WITH_TTL
               ? zke_create_ttl(p->z, path, bytes, size, ZKE_OPEN_ACL, mode,
                                1 + below(&p->random, 30), NULL, &stat)
               : zke_create(p->z, path, bytes, size, ZKE_OPEN_ACL, mode, NULL,
                            &stat);
  if (rc == ZKE_OK) o->zxid = stat.czxid;
  done(p, rc);
}

static void remove_node(process *p, const char *path, int version) {
  note(p, HIST_DELETE, path)->wanted = version;
  call(p);
  done(p, zke_delete(p->z, path, version));
}

/* Read a node; the version or -1. */
static int read_node(process *p, const char *path, bool final) {
  zke_stat stat;
  char *data;
  int size;
  hist_op *o = note(p, HIST_READ, path);
  o->final = final;
  call(p);
  int rc = zke_get(p->z, path, NULL, NULL, &data, &size, &stat);
  if (rc == ZKE_OK) {
    o->value = value_of(data, size);
    o->version = stat.version;
    o->zxid = stat.mzxid;
    zke_free(data);
  }
  done(p, rc);
  return rc == ZKE_OK ? o->version : -1;
}

static void set(process *p, const char *path, int version) {
  zke_stat stat;
  int size;
  hist_op *o = note(p, HIST_SET, path);
  o->value = new_value(p);
  o->wanted = version;
  const char *bytes = value_bytes(o->value, &size);
  call(p);
  int rc = zke_set(p->z, path, bytes, size, version, &stat);
  if (rc == ZKE_OK) {
    o->version = stat.version;
    o->zxid = stat.mzxid;
  }
  done(p, rc);
}

static void do_create(process *p) { create(p, any_key(p), ZKE_PERSISTENT); }
static void do_read(process *p) { read_node(p, any_key(p), false); }
static void do_set(process *p) { set(p, any_key(p), -1); }

static void do_delete(process *p) {
  const char *path = any_key(p);
  remove_node(p, path, below(&p->random, 2) ? -1 : read_node(p, path, false));
}

/* Compare and set: of several that read one version one may win. */
static void do_cas(process *p) {
  const char *path = any_key(p);
  int version = read_node(p, path, false);
  if (version >= 0 && !p->gone) set(p, path, version);
}

static void do_stat(process *p) {
  zke_stat stat;
  const char *path = any_key(p);
  hist_op *o = note(p, HIST_STAT, path);
  call(p);
  int rc = zke_exists(p->z, path, NULL, NULL, &stat);
  if (rc == ZKE_OK) o->version = stat.version;
  done(p, rc);
}

static void do_ephemeral(process *p) {
  char path[HIST_PATH];
  snprintf(path, sizeof path, "/e/%d", below(&p->random, 3));
  create(p, path, ZKE_EPHEMERAL);
  if (below(&p->random, 3) == 0 && !p->gone) remove_node(p, path, -1);
}

/* ---- numbered nodes ---- */

static void do_sequence(process *p) {
  zke_stat stat;
  char *made;
  int size, ephemeral = below(&p->random, 3) == 0;
  hist_op *o = note(p, HIST_SEQUENCE, ephemeral ? "/q/e-" : "/q/p-");
  o->value = new_value(p);
  o->ephemeral = ephemeral;
  const char *bytes = value_bytes(o->value, &size);
  call(p);
  int rc = zke_create(
      p->z, o->path, bytes, size, ZKE_OPEN_ACL,
      ephemeral ? ZKE_EPHEMERAL_SEQUENTIAL : ZKE_PERSISTENT_SEQUENTIAL, &made,
      &stat);
  if (rc == ZKE_OK) {
    o->zxid = stat.czxid;
    snprintf(o->path, HIST_PATH, "%s", made);
    if (!ephemeral)
      memcpy(p->mine[p->made++ % MINE], o->path, sizeof p->mine[0]);
    zke_free(made);
  }
  done(p, rc);
}

/* The last is the first to go: its number must not come again. */
static void do_unsequence(process *p) {
  if (p->made > 0) remove_node(p, p->mine[--p->made % MINE], -1);
  if (p->made < 0 || !p->mine[p->made % MINE][0]) return;
  p->mine[p->made % MINE][0] = 0;
  if (p->made && !p->mine[(p->made - 1) % MINE][0]) p->made = 0;
}

/* ---- multi ---- */

static uint32_t new_group(const process *p) {
  return (uint32_t)new_value(p) | (uint32_t)(p->place + 1) << 24;
}

/* Finish a multi: each part has its result, and those that were refused for
 * another one's sake had no effect. */
static void done_multi(process *p, int rc, const zke_op_result *result) {
  ring *r = &shared->ring[p->place];
  bool settled = rc == ZKE_OK || rc == ZKE_NONODE || rc == ZKE_NODEEXISTS ||
                 rc == ZKE_BADVERSION;
  if (rc == ZKE_MARSHALLINGERROR) rc = ZKE_SESSIONEXPIRED;
  for (int i = 0; i < p->open && settled; i++) {
    hist_op *o = &r->op[r->count - p->open + i];
    o->rc = rc == ZKE_OK || result[i].rc == rc ? rc : HIST_NO_EFFECT;
    if (rc == ZKE_OK && o->kind != HIST_DELETE)
      o->zxid =
          o->kind == HIST_SET ? result[i].stat.mzxid : result[i].stat.czxid;
    if (rc == ZKE_OK && o->kind == HIST_SET)
      o->version = result[i].stat.version;
  }
  done(p, settled ? ZKE_OK : rc);
}

/* Both of a pair of nodes, which are always seen equal. */
static void read_pair(process *p, int version[2]) {
  zke_op op[2];
  zke_op_result result[2] = {{.rc = ZKE_OK}};
  zke_op_get(&op[0], "/m/a");
  zke_op_get(&op[1], "/m/b");
  hist_op *pair = note(p, HIST_PAIR, "/m");
  hist_op *o[2] = {note(p, HIST_READ, "/m/a"), note(p, HIST_READ, "/m/b")};
  call(p);
  int rc = zke_multi_read(p->z, op, 2, result);
  if (rc == ZKE_MARSHALLINGERROR) rc = ZKE_SESSIONEXPIRED;
  for (int i = 0; i < 2 && rc == ZKE_OK; i++) {
    o[i]->rc = result[i].rc;
    if (result[i].rc != ZKE_OK) continue;
    o[i]->value = value_of(result[i].data, result[i].len);
    version[i] = o[i]->version = result[i].stat.version;
  }
  pair->value = o[0]->value;
  pair->other = o[1]->value;
  if (rc == ZKE_OK) zke_results_clear(result, 2);
  done(p, rc);
}

/* Set both; with the versions that were read, or any, or one wrong, or with a
 * third part that must fail. */
static void do_multi_set(process *p) {
  zke_op op[3];
  zke_op_result result[3] = {{.rc = ZKE_OK}};
  int size, version[2] = {-1, -1}, how = below(&p->random, 6);
  if (how < 3) read_pair(p, version);
  if (p->gone) return;
  if (how == 0) version[1]++;
  uint32_t group = new_group(p);
  uint64_t value = new_value(p);
  const char *bytes = value_bytes(value, &size);
  for (int i = 0; i < 2; i++) {
    hist_op *o = note(p, HIST_SET, i ? "/m/b" : "/m/a");
    o->value = value;
    o->group = group;
    o->wanted = version[i];
    zke_op_set(&op[i], i ? "/m/b" : "/m/a", bytes, size, version[i]);
  }
  zke_op_delete(&op[2], "/m/none", -1);
  call(p);
  int rc = zke_multi(p->z, op, how == 5 ? 3 : 2, result);
  if (how == 5 && rc == ZKE_OK) complain(p->place, "a multi half refused");
  done_multi(p, rc, result);
  zke_results_clear(result, how == 5 ? 3 : 2);
}

/* Two nodes that come together, and sometimes go so. */
static void do_twins(process *p) {
  zke_op op[2];
  zke_op_result result[2] = {{.rc = ZKE_OK}};
  char path[2][HIST_PATH];
  int size, again = below(&p->random, 2);
  uint64_t value = new_value(p);
  const char *bytes = value_bytes(value, &size);
  for (int turn = 0; turn <= again && !p->gone; turn++) {
    uint32_t group = new_group(p);
    for (int i = 0; i < 2; i++) {
      snprintf(path[i], HIST_PATH, "/u/%c-%llx", "ab"[i],
               (unsigned long long)value);
      hist_op *o = note(p, turn ? HIST_DELETE : HIST_CREATE, path[i]);
      o->value = turn ? 0 : value;
      o->group = group;
      if (turn)
        zke_op_delete(&op[i], path[i], 0);
      else
        zke_op_create(&op[i], path[i], bytes, size, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT);
    }
    call(p);
    int rc = zke_multi(p->z, op, 2, result);
    done_multi(p, rc, result);
    zke_results_clear(result, 2);
  }
}

/* There is one token: see which, and put another in its place. */
static bool find_token(process *p, char *path) {
  zke_strings *names;
  hist_op *o = note(p, HIST_PAIR, "/g");
  call(p);
  int rc = zke_children(p->z, "/g", NULL, NULL, &names, NULL);
  if (rc == ZKE_OK) {
    o->value = (uint64_t)names->count;
    o->other = 1;
    if (names->count) snprintf(path, HIST_PATH, "/g/%s", names->data[0]);
    zke_free(names);
  }
  done(p, rc);
  return rc == ZKE_OK && o->value == 1;
}

static void do_token(process *p) {
  zke_op op[2];
  zke_op_result result[2] = {{.rc = ZKE_OK}};
  char path[2][HIST_PATH];
  int size;
  if (!find_token(p, path[0])) return;
  uint32_t group = new_group(p);
  uint64_t value = new_value(p);
  const char *bytes = value_bytes(value, &size);
  snprintf(path[1], HIST_PATH, "/g/%llx", (unsigned long long)value);
  note(p, HIST_DELETE, path[0])->group = group;
  hist_op *o = note(p, HIST_CREATE, path[1]);
  o->group = group;
  o->value = value;
  zke_op_delete(&op[0], path[0], -1);
  zke_op_create(&op[1], path[1], bytes, size, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  call(p);
  int rc = zke_multi(p->z, op, 2, result);
  done_multi(p, rc, result);
  zke_results_clear(result, 2);
}

/* ---- nodes that go by themselves, and permissions ---- */

static void do_container(process *p) {
  char path[HIST_PATH], child[HIST_PATH];
  snprintf(path, 40, "/c/%llx", (unsigned long long)new_value(p));
  snprintf(child, sizeof child, "%.40s/x", path);
  create(p, path, ZKE_CONTAINER);
  if (!p->gone) create(p, child, ZKE_PERSISTENT);
  if (!p->gone && below(&p->random, 4)) remove_node(p, child, 0);
}

static void do_ttl(process *p) {
  char path[HIST_PATH];
  snprintf(path, sizeof path, "/t/%llx", (unsigned long long)new_value(p));
  create(p, path, ZKE_PERSISTENT_WITH_TTL);
}

/* A list is recorded like a node's data, its aversion as the version. */
static int read_acl(process *p, bool final) {
  zke_stat stat;
  zke_acls *acls;
  hist_op *o = note(p, HIST_READ, "/a/0#acl");
  o->final = final;
  call(p);
  int rc = zke_get_acl(p->z, "/a/0", &acls, &stat);
  if (rc == ZKE_OK) {
    o->value = acls_value(acls);
    o->version = stat.aversion;
    zke_free(acls);
  }
  done(p, rc);
  return rc == ZKE_OK ? o->version : -1;
}

static void do_acl(process *p) {
  int version = read_acl(p, false);
  if (p->gone) return;
  if (below(&p->random, 2)) version = -1;
  hist_op *o = note(p, HIST_SET, "/a/0#acl");
  o->value = new_value(p);
  o->wanted = version;
  const zke_acls *acls = value_acls(o->value);
  call(p);
  done(p, zke_set_acl(p->z, "/a/0", version, acls, NULL));
}

/* A node of one user's. */
static void do_private(process *p) {
  zke_stat stat;
  char path[HIST_PATH];
  int size;
  if (!worked(p, zke_add_auth(p->z, "digest", USER, (int)strlen(USER)), "auth"))
    return;
  snprintf(path, sizeof path, "/a/%llx", (unsigned long long)new_value(p));
  hist_op *o = note(p, HIST_CREATE, path);
  o->value = new_value(p);
  const char *bytes = value_bytes(o->value, &size);
  call(p);
  int rc = zke_create(p->z, path, bytes, size, ZKE_CREATOR_ALL_ACL,
                      ZKE_PERSISTENT, NULL, &stat);
  if (rc == ZKE_OK) o->zxid = stat.czxid;
  done(p, rc);
  if (rc == ZKE_OK) set(p, path, 0);
  if (!p->gone && below(&p->random, 2)) remove_node(p, path, -1);
}

/* ---- watches ---- */

static void fired(zke *z, int type, int state, const char *path,
                  void *context) {
  (void)z, (void)state, (void)path;
  if (type > 0) ++*(int *)context;
}

/* Of a persistent watch on a parent: what tells of a child. */
static void fired_child(zke *z, int type, int state, const char *path,
                        void *context) {
  if (type != ZKE_EVENT_CHANGED) fired(z, type, state, path, context);
}

static void dispatch(process *p) {
  int count = 1;
  for (int i = 0; i < 8 && count > 0; i++)
    if (!worked(p, zke_dispatch(p->z, &count), "dispatch")) return;
}

static bool stat_of(process *p, const char *path, zke_stat *stat) {
  int rc = zke_exists(p->z, path, NULL, NULL, stat);
  if (rc == ZKE_NONODE) *stat = (zke_stat){.mzxid = 0};
  return rc == ZKE_NONODE || worked(p, rc, "exists");
}

static void note_look(process *p, look *l, int least, int most) {
  hist_op *o = note(p, HIST_LOOK, l->path);
  o->least = least;
  o->most = most;
  o->fired = l->fired;
  call(p);
  done(p, ZKE_OK);
}

/* A one-shot watch on data: set it, or look whether it fired as it should. */
static void set_data_watch(process *p) {
  look *l = &p->data;
  zke_stat stat;
  char *data;
  int size;
  *l = (look){.armed = false};
  snprintf(l->path, HIST_PATH, "%s", any_key(p));
  hist_op *o = note(p, HIST_READ, l->path);
  call(p);
  int rc = zke_get(p->z, l->path, fired, &l->fired, &data, &size, &stat);
  if (rc == ZKE_OK) {
    l->value = o->value = value_of(data, size);
    o->version = stat.version;
    o->zxid = l->stamp = stat.mzxid;
    l->armed = true;
    zke_free(data);
  }
  done(p, rc);
}

static void do_data_watch(process *p) {
  look *l = &p->data;
  zke_stat before, after;
  if (!l->armed) {
    set_data_watch(p);
    return;
  }
  if (!stat_of(p, l->path, &before)) return;
  hist_op *o = note(p, HIST_SAME, l->path);
  o->value = l->value;
  call(p);
  dispatch(p);
  if (l->fired) o->kind = HIST_CHANGED;
  if (p->gone) o->rc = HIST_NO_EFFECT;
  done(p, ZKE_OK);
  if (p->gone || !stat_of(p, l->path, &after)) return;
  note_look(p, l, before.mzxid != l->stamp, after.mzxid != l->stamp);
  l->armed = !l->fired;
}

static void do_child_watch(process *p) {
  look *l = &p->child;
  zke_stat before, after;
  if (!l->armed) {
    *l = (look){.path = "/q"};
    l->armed =
        worked(p, zke_children(p->z, "/q", fired, &l->fired, NULL, &before),
               "children");
    l->stamp = before.pzxid;
    return;
  }
  if (!stat_of(p, l->path, &before)) return;
  dispatch(p);
  if (p->gone || !stat_of(p, l->path, &after)) return;
  note_look(p, l, before.pzxid != l->stamp, after.pzxid != l->stamp);
  l->armed = !l->fired;
}

/* A watch that stays: an event for each child that comes or goes, so many as
 * cversion grows by. */
static void set_lasting_watch(process *p) {
  look *l = &p->lasting;
  zke_stat before, after;
  *l = (look){.path = "/q"};
  if (!stat_of(p, l->path, &before)) return;
  l->armed = worked(p,
                    zke_add_watch(p->z, l->path,
                                  below(&p->random, 2)
                                      ? ZKE_WATCH_PERSISTENT
                                      : ZKE_WATCH_PERSISTENT_RECURSIVE,
                                  fired_child, &l->fired),
                    "add_watch") &&
             stat_of(p, l->path, &after);
  l->low = before.cversion;
  l->high = after.cversion;
}

static void do_lasting_watch(process *p) {
  look *l = &p->lasting;
  zke_stat before, after;
  if (!l->armed) {
    set_lasting_watch(p);
    return;
  }
  if (!stat_of(p, l->path, &before)) return;
  dispatch(p);
  if (p->gone || !stat_of(p, l->path, &after)) return;
  note_look(p, l, before.cversion - l->high, after.cversion - l->low);
  if (below(&p->random, 4)) return;
  l->armed = !worked(
      p, zke_remove_watch(p->z, l->path, ZKE_WATCH_ANY, fired_child, &l->fired),
      "remove");
}

static void do_wait(process *p) {
  int rc = zke_wait(p->z, zke_now(p->z) + below(&p->random, 4));
  if (rc != ZKE_OPERATIONTIMEOUT) worked(p, rc, "wait");
}

/* ---- sessions come and go ---- */

static void do_reopen(process *p) {
  close_session(p);
  open_session(p, "worker");
}

/* A second session on the store, with a node of its own. */
static void do_second(process *p) {
  zke_options options = {.size = sizeof options, .identity = "second"};
  process second = *p;
  hist_op *o = note(p, HIST_OPEN, "");
  call(p);
  int rc = zke_open_session(p->z, &options, &second.z);
  if (rc == ZKE_OK) o->zxid = o->session = zke_session_id(second.z);
  done(p, rc);
  if (rc != ZKE_OK) return;
  second.session = zke_session_id(second.z);
  second.gone = false;
  do_ephemeral(&second);
  close_session(&second);
}

static void do_expire(process *p) {
  zke_session_list *list;
  if (!worked(p, zke_sessions(p->z, &list), "sessions")) return;
  int64_t victim = 0;
  for (int i = 0; i < list->count; i++)
    if (!strcmp(list->data[i].identity, "worker") && below(&p->random, 2))
      victim = list->data[i].id;
  zke_free(list);
  if (!victim) return;
  hist_op *o = note(p, HIST_END, "");
  o->session = victim;
  call(p);
  int rc = zke_expire(p->z, victim);
  done(p, rc == ZKE_NONODE ? HIST_NO_EFFECT : rc);
}

/* A reader in the way is no failure. */
static void do_compact(process *p) {
  int rc = zke_compact(p->z, zke_now(p->z) + 2000);
  if (rc != ZKE_OPERATIONTIMEOUT) worked(p, rc, "compact");
}

/* ---- roles ---- */

typedef struct deed {
  void (*run)(process *p);
  int weight;
} deed;

static const deed deeds[] = {
    {do_create, 8},        {do_delete, 6},      {do_set, 10},
    {do_read, 12},         {do_cas, 10},        {do_stat, 4},
    {do_ephemeral, 8},     {do_sequence, 10},   {do_unsequence, 4},
    {do_multi_set, 8},     {do_twins, 4},       {do_token, 5},
    {do_container, 2},     {do_ttl, 2},         {do_acl, 4},
    {do_private, 2},       {do_data_watch, 14}, {do_child_watch, 6},
    {do_lasting_watch, 6}, {do_wait, 2},        {do_reopen, 2},
    {do_second, 2},        {do_expire, 1},      {do_compact, 1},
};
enum { DEEDS = sizeof deeds / sizeof deeds[0] };

static void do_anything(process *p) {
  int total = 0, i = 0;
  for (int j = 0; j < DEEDS; j++) total += deeds[j].weight;
  for (int at = below(&p->random, total); at >= deeds[i].weight; i++)
    at -= deeds[i].weight;
  deeds[i].run(p);
}

static void be_worker(process *p) {
  open_session(p, "worker");
  while (!worked(p, make_base(p->z), "begin")) do_reopen(p);
  while (!shared->stop) {
    if (shared->ring[p->place].count > RING - SPARE) {
      alarm(0);
      pause_us(1000);
      continue;
    }
    if (p->gone) do_reopen(p);
    do_anything(p);
  }
  close_session(p);
}

/* The watcher's own: all events, by the watch that got them. */
static void record(zke *z, int type, int state, const char *path,
                   void *context) {
  (void)z;
  int at = shared->events;
  if (type < 0 || at == EVENTS) {
    complain(WATCHER, "event %d, state %d", type, state);
    return;
  }
  hist_event *e = &shared->event[at];
  e->type = type;
  e->watch = (uint8_t)(context ? HIST_PERSISTENT : HIST_RECURSIVE);
  snprintf(e->path, HIST_PATH, "%s", path);
  shared->events = at + 1;
}

static bool saw_end(int from) {
  for (int i = from; i < shared->events; i++)
    if (!strcmp(shared->event[i].path, "/end")) return true;
  return false;
}

static void be_watcher(process *p) {
  open_session(p, "watcher");
  worked(p, make_base(p->z), "begin");
  worked(p, zke_add_auth(p->z, "digest", USER, (int)strlen(USER)), "auth");
  worked(p,
         zke_add_watch(p->z, "/", ZKE_WATCH_PERSISTENT_RECURSIVE, record, NULL),
         "add_watch");
  worked(p, zke_add_watch(p->z, WATCHED, ZKE_WATCH_PERSISTENT, record, shared),
         "add_watch");
  shared->ready = 1;
  for (int seen = 0; !saw_end(seen);) {
    alarm(3 * PATIENCE);
    seen = shared->events;
    if (shared->ring[WATCHER].count < RING - SPARE) do_data_watch(p);
    int rc = zke_wait(p->z, zke_now(p->z) + 20);
    if (rc != ZKE_OPERATIONTIMEOUT) worked(p, rc, "wait");
  }
  close_session(p);
}

/* ---- the inspector ---- */

static void report(void *context, const char *sentence) {
  (void)context;
  complain(INSPECTOR, "zke_check: %s", sentence);
}

static int count_dead(zke *z) {
  zke_session_list *list;
  int dead = 0;
  if (zke_sessions(z, &list) != ZKE_OK) return -1;
  for (int i = 0; i < list->count; i++) dead += !list->data[i].alive;
  zke_free(list);
  return dead;
}

/* Containers that were emptied and nodes with a TTL. */
static int count_fleeting(zke *z) {
  zke_strings *names;
  zke_stat stat;
  char path[HIST_PATH];
  int count = 0;
  if (zke_exists(z, "/t", NULL, NULL, &stat) != ZKE_OK) return -1;
  count += stat.numChildren;
  if (zke_children(z, "/c", NULL, NULL, &names, NULL) != ZKE_OK) return -1;
  for (int i = 0; i < names->count; i++) {
    snprintf(path, sizeof path, "/c/%.40s", names->data[i]);
    if (zke_exists(z, path, NULL, NULL, &stat) != ZKE_OK) continue;
    count += stat.cversion > 0 && stat.numChildren == 0;
  }
  zke_free(names);
  return count;
}

static void await_none(process *p, int (*count)(zke *), const char *what) {
  int64_t end = zke_now(p->z) + SETTLE;
  int left;
  while ((left = count(p->z)) != 0 && zke_now(p->z) < end)
    zke_wait(p->z, zke_now(p->z) + 5);
  if (left) complain(INSPECTOR, "%d %s remain: %s", left, what, zke_errmsg());
}

static bool is_alive(zke *z, int64_t session) {
  zke_session_list *list;
  bool found = false;
  if (zke_sessions(z, &list) != ZKE_OK) return false;
  for (int i = 0; i < list->count; i++) found |= list->data[i].id == session;
  zke_free(list);
  return found;
}

/* Of two nodes that came together there are both or none. */
static void dump_twin(process *p, const char *path) {
  char other[HIST_PATH];
  hist_op *o = note(p, HIST_PAIR, path);
  snprintf(other, sizeof other, "%s", path);
  other[3] = path[3] == 'a' ? 'b' : 'a';
  call(p);
  o->value = 1;
  o->other = zke_exists(p->z, other, NULL, NULL, NULL) == ZKE_OK;
  done(p, ZKE_OK);
}

/* Write down a node and what is below. */
static void dump(process *p, const char *path) {
  zke_strings *names;
  zke_stat stat;
  char child[HIST_PATH];
  if (shared->ring[INSPECTOR].count > RING - SPARE) {
    complain(INSPECTOR, "too many nodes");
    return;
  }
  if (path[1]) read_node(p, path, true);
  if (!strncmp(path, "/u/", 3)) dump_twin(p, path);
  int rc = zke_children(p->z, path, NULL, NULL, &names, &stat);
  if (!worked(p, rc, path)) return;
  if (stat.ephemeralOwner && !is_alive(p->z, stat.ephemeralOwner))
    complain(INSPECTOR, "%s belongs to a dead session", path);
  for (int i = 0; i < names->count; i++) {
    if (!strcmp(names->data[i], "zookeeper")) continue;
    snprintf(child, sizeof child, "%s/%.40s", path[1] ? path : "",
             names->data[i]);
    dump(p, child);
  }
  zke_free(names);
}

static void inspect_pairs(process *p) {
  int version[2];
  char path[HIST_PATH];
  if (zke_exists(p->z, "/ready", NULL, NULL, NULL) != ZKE_OK) return;
  read_pair(p, version);
  find_token(p, path);
}

static void be_inspector(process *p, bool final) {
  open_session(p, "inspector");
  alarm(6 * PATIENCE); /* call() set a shorter one, and what follows is slow */
  worked(p, zke_check(p->z, report, NULL), "zke_check");
  if (!final) {
    inspect_pairs(p);
    close_session(p);
    return;
  }
  worked(p, make_base(p->z), "begin");
  worked(p, zke_add_auth(p->z, "digest", USER, (int)strlen(USER)), "auth");
  await_none(p, count_dead, "dead sessions");
  shared->settled = now_ns();
  await_none(p, count_fleeting, "fleeting nodes");
  inspect_pairs(p);
  create(p, "/end", ZKE_PERSISTENT);
  dump(p, "/");
  read_acl(p, true);
  worked(p, zke_check(p->z, report, NULL), "zke_check");
  close_session(p);
}

/* ---- a round, seen from the program ---- */

typedef struct plan {
  uint64_t seed;
  int workers, kills, keys;
  int longest_us; /* between two kills */
  bool watcher, disk, massacre, calm;
} plan;

typedef struct death {
  int place, count; /* of its ring then */
  int64_t when;
} death;

static struct {
  plan plan;
  uint64_t random;
  pid_t pid[RINGS];
  int life[RINGS]; /* how many were in this place */
  death death[DEATHS];
  int deaths, bad;
  char directory[PATH_MAX], database[PATH_MAX + 8];
} scene;

static struct {
  long rounds, kills, inside, operations, acknowledged, unacknowledged;
  long sessions, events, looks, fires, checks, bad, calm, disk;
  long inside_of[HIST_KINDS], inside_multi;
  long bad_rounds;
} tally;

static void say_bad(void *context, const char *sentence) {
  (void)context;
  tally.bad++;
  if (++scene.bad > 12) return;
  printf("SEED=%llu%s: %s\n", (unsigned long long)scene.plan.seed,
         scene.plan.disk ? " (disk)" : "", sentence);
  fflush(stdout);
}

static void say_bad_f(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static void say_bad_f(const char *format, ...) {
  char text[1000];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  say_bad(NULL, text);
}

static void run_role(int place, bool final) {
  static process p; /* watchers get pointers into it */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  database = scene.database;
  p = (process){.place = place, .keys = scene.plan.keys};
  p.random = mix(scene.plan.seed * 64 + (uint64_t)place) +
             (uint64_t)scene.life[place] * 1000003;
  if (place == WATCHER)
    be_watcher(&p);
  else if (place == INSPECTOR)
    be_inspector(&p, final);
  else
    be_worker(&p);
  _exit(0);
}

static void start(int place, bool final) {
  scene.life[place]++;
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) run_role(place, final);
  scene.pid[place] = pid;
}

/* Await a process's end; killed says whether it may have died by SIGKILL. */
static void reap(int place, bool killed) {
  int status;
  static const char *const roles[] = {"watcher", "inspector"};
  while (waitpid(scene.pid[place], &status, 0) < 0)
    if (errno != EINTR) die("waitpid");
  scene.pid[place] = 0;
  if (status == 0) return;
  if (killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return;
  ring *r = &shared->ring[place];
  say_bad_f("%s %d ended with status 0x%x, in a call of kind %d on %s",
            place < WORKERS ? "worker" : roles[place - WORKERS], place, status,
            r->count ? r->op[r->count - 1].kind : 0,
            r->count ? r->op[r->count - 1].path : "");
}

/* Note where it died. */
static void note_death(int place, int64_t when) {
  ring *r = &shared->ring[place];
  if (scene.deaths == DEATHS) die("too many deaths");
  scene.death[scene.deaths++] = (death){place, r->count, when};
  tally.kills++;
  if (r->count == 0 || r->op[r->count - 1].returned) return;
  tally.inside++;
  tally.inside_multi += r->op[r->count - 1].group != 0;
  tally.inside_of[r->op[r->count - 1].kind]++;
}

static void kill_one(int place) {
  int64_t when = now_ns();
  kill(scene.pid[place], SIGKILL);
  reap(place, true);
  note_death(place, when);
}

/* All at once, so that nobody is left who has the database open. */
static void kill_all(void) {
  int64_t when = now_ns();
  for (int i = 0; i < scene.plan.workers; i++) kill(scene.pid[i], SIGKILL);
  for (int i = 0; i < scene.plan.workers; i++) {
    reap(i, true);
    note_death(i, when);
  }
}

/* Short times as often as long ones: many are to die young.  In every other
 * round most live long enough to have opened the database. */
static void sleep_some(void) {
  int64_t us = scene.plan.seed & 1 ? 60 : 800;
  while (us < scene.plan.longest_us && below(&scene.random, 4)) us *= 2;
  pause_us(us + below(&scene.random, (int)us));
}

static void inspect(bool final) {
  start(INSPECTOR, final);
  reap(INSPECTOR, false);
  tally.checks += 1 + final;
}

static void kill_some(void) {
  const plan *n = &scene.plan;
  for (int i = 1; scene.deaths < n->kills; i++) {
    sleep_some();
    if (n->massacre) {
      kill_all();
      for (int j = 0; j < n->workers; j++) start(j, false);
    } else {
      int victim = below(&scene.random, n->workers);
      kill_one(victim);
      start(victim, false);
    }
    if (i % 20 == 0) inspect(false);
  }
}

/* Nobody dies: a history of living processes, until their paper is full. */
static void keep_calm(void) {
  int64_t end = now_ns() + 1500000000;
  while (now_ns() < end && shared->ring[0].count < RING / 3) pause_us(5000);
}

/* Until it has registered, or has ended, which is told when it is reaped. */
static void await_watcher(void) {
  siginfo_t ended = {0};
  int64_t end = now_ns() + INT64_C(3000000000) * PATIENCE;
  while (!shared->ready && !ended.si_pid) {
    if (now_ns() > end) {
      fprintf(stderr, "SEED=%llu: the watcher is not ready within %d s\n",
              (unsigned long long)scene.plan.seed, 3 * PATIENCE);
      exit(2);
    }
    pause_us(1000);
    waitid(P_PID, (id_t)scene.pid[WATCHER], &ended,
           WEXITED | WNOHANG | WNOWAIT);
  }
}

static void play(void) {
  const plan *n = &scene.plan;
  if (n->watcher) {
    start(WATCHER, false);
    await_watcher();
  }
  for (int i = 0; i < n->workers; i++) start(i, false);
  if (n->calm) keep_calm();
  kill_some();
  if (below(&scene.random, 2) && !n->calm) {
    kill_all();
  } else {
    shared->stop = 1;
    for (int i = 0; i < n->workers; i++) reap(i, false);
  }
  inspect(true);
  if (n->watcher) reap(WATCHER, false);
}

/* ---- the history of a round ---- */

typedef struct pile {
  hist_op *at;
  int count;
} pile;

static void pile_given(pile *all, const char *path) {
  hist_op *o = &all->at[all->count++];
  *o = (hist_op){.kind = HIST_CREATE,
                 .value = HIST_GIVEN,
                 .called = 1,
                 .returned = 2,
                 .version = -1,
                 .wanted = -1};
  snprintf(o->path, HIST_PATH, "%s", path);
}

/* When the process that wrote a record died, or 0. */
static int64_t death_of(int place, int index) {
  for (int i = 0; i < scene.deaths; i++)
    if (scene.death[i].place == place && scene.death[i].count > index)
      return scene.death[i].when;
  return 0;
}

/* What is known of a session's end beside the calls that returned: it died, or
 * somebody was killed while ending it. */
static void pile_end(pile *all, int place, int index, int records) {
  const hist_op *opened = &shared->ring[place].op[index];
  int64_t called = death_of(place, index), returned = shared->settled;
  bool known = false;
  for (int i = 0; i < records; i++) {
    const hist_op *o = &all->at[i];
    if (o->kind != HIST_END || o->session != opened->session) continue;
    if (o->returned && o->rc != ZKE_OK) continue;
    known |= o->returned != 0;
    if (o->returned && o->returned < returned) returned = o->returned;
    if (!o->returned && (!called || o->called < called)) called = o->called;
  }
  if (known && (!called || called > returned)) return;
  if (!called) {
    say_bad_f("session %llx has no end", (unsigned long long)opened->session);
    return;
  }
  hist_op *end = &all->at[all->count++];
  *end = *opened;
  end->kind = HIST_END;
  end->called = called;
  end->returned = returned;
}

static void count_op(const hist_op *o) {
  tally.operations++;
  tally.acknowledged += o->returned && o->rc == ZKE_OK;
  tally.unacknowledged += o->returned == 0;
  tally.sessions += o->kind == HIST_OPEN && o->returned;
  tally.looks += o->kind == HIST_LOOK;
  tally.fires += o->kind == HIST_LOOK ? o->fired : 0;
}

/* All records in one array, with the givens and the ends that nobody wrote. */
static pile pile_all(void) {
  int room = BASE + PAIRS + 1;
  for (int i = 0; i < RINGS; i++) room += 2 * shared->ring[i].count;
  pile all = {malloc(sizeof *all.at * (size_t)room), 0};
  if (!all.at) die("malloc");
  for (int i = 0; i < BASE; i++) pile_given(&all, base[i]);
  for (int i = 0; i < PAIRS; i++) pile_given(&all, base_pairs[i]);
  pile_given(&all, "/a/0#acl");
  for (int i = 0; i < RINGS; i++)
    for (int j = 0; j < shared->ring[i].count; j++) {
      count_op(&shared->ring[i].op[j]);
      all.at[all.count++] = shared->ring[i].op[j];
    }
  int records = all.count;
  for (int i = 0; i < WORKERS; i++)
    for (int j = 0; j < shared->ring[i].count; j++) {
      const hist_op *o = &shared->ring[i].op[j];
      if (o->kind == HIST_OPEN && o->returned && o->rc == ZKE_OK)
        pile_end(&all, i, j, records);
    }
  return all;
}

static int time_order(const void *a, const void *b) {
  const hist_op *x = a, *y = b;
  return (x->called > y->called) - (x->called < y->called);
}

/* For whoever looks for the reason: all that was recorded, by time. */
static void write_history(pile *all) {
  char path[PATH_MAX + 16];
  snprintf(path, sizeof path, "%s/history", scene.directory);
  FILE *f = fopen(path, "w");
  if (!f) return;
  qsort(all->at, (size_t)all->count, sizeof *all->at, time_order);
  for (int i = 0; i < all->count; i++) {
    char text[HIST_TEXT];
    fprintf(f, "%s\n", hist_tell(&all->at[i], text));
  }
  for (int i = 0; i < scene.deaths; i++)
    fprintf(f, "death of %d at %lld\n", scene.death[i].place,
            (long long)scene.death[i].when);
  fclose(f);
}

static void judge(void) {
  for (int i = 0; i < RINGS; i++)
    if (shared->complaints[i])
      say_bad_f("%d complaints of process %d: %s", shared->complaints[i], i,
                shared->complaint[i]);
  pile all = pile_all();
  hist h = {.op = all.at,
            .count = all.count,
            .event = scene.plan.watcher ? shared->event : NULL,
            .events = shared->events,
            .watched = WATCHED,
            .complain = say_bad};
  hist_check(&h);
  tally.events += shared->events;
  if (scene.bad) write_history(&all);
  free(all.at);
}

/* ---- rounds ---- */

static int remove_entry(const char *path, const struct stat *s, int type,
                        struct FTW *ftw) {
  (void)s, (void)type, (void)ftw;
  return remove(path);
}

static plan make_plan(uint64_t seed, long kills) {
  uint64_t r = mix(seed);
  plan n = {.seed = seed};
  n.workers = 3 + below(&r, WORKERS - 2);
  n.keys = 1 + below(&r, 4);
  n.longest_us = 4000 << below(&r, 4);
  n.disk = seed % 8 == 7;
  n.calm = seed % 8 == 3;
  n.massacre = seed % 4 == 2;
  n.watcher = !n.massacre;
  n.kills = n.disk ? 20 : 60;
  if (n.calm) n.kills = 0;
  if (n.kills > kills) n.kills = (int)kills;
  return n;
}

static void clear_shared(void) {
  for (int i = 0; i < RINGS; i++) {
    shared->ring[i].count = 0;
    shared->ring[i].values = 0;
    shared->complaints[i] = 0;
  }
  shared->ready = shared->stop = 0;
  shared->events = 0;
  shared->settled = 0;
}

static void run_round(const plan *n, const char *disk) {
  memset(&scene, 0, sizeof scene);
  clear_shared();
  scene.plan = *n;
  scene.random = mix(n->seed ^ 0x5eed);
  struct statfs fs;
  bool memory = statfs("/dev/shm", &fs) == 0 && fs.f_type == TMPFS_MAGIC;
  snprintf(scene.directory, sizeof scene.directory, "%s/torture-XXXXXX",
           n->disk || !memory ? disk : "/dev/shm");
  if (!mkdtemp(scene.directory)) die(scene.directory);
  snprintf(scene.database, sizeof scene.database, "%s/db", scene.directory);
  play();
  judge();
  tally.rounds++;
  tally.bad_rounds += scene.bad != 0;
  tally.calm += n->calm;
  tally.disk += n->disk;
  if (scene.bad)
    printf("SEED=%llu: files kept in %s\n", (unsigned long long)n->seed,
           scene.directory);
  else
    nftw(scene.directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static long setting(const char *name, long otherwise) {
  const char *value = getenv(name);
  return value && *value ? atol(value) : otherwise;
}

static void print_tally(int64_t began) {
  printf(
      "%ld kills in %ld rounds (%ld on disk, %ld without kills), %ld of them "
      "inside a call: create %ld, sequence %ld, delete %ld, set %ld, "
      "read %ld, watch %ld, open %ld, close %ld; %ld of these in a multi\n",
      tally.kills, tally.rounds, tally.disk, tally.calm, tally.inside,
      tally.inside_of[HIST_CREATE], tally.inside_of[HIST_SEQUENCE],
      tally.inside_of[HIST_DELETE], tally.inside_of[HIST_SET],
      tally.inside_of[HIST_READ] + tally.inside_of[HIST_STAT] +
          tally.inside_of[HIST_PAIR],
      tally.inside_of[HIST_SAME], tally.inside_of[HIST_OPEN],
      tally.inside_of[HIST_END], tally.inside_multi);
  printf(
      "%ld operations, %ld acknowledged, %ld without answer; %ld sessions; "
      "%ld events of surviving watchers; %ld looks at watches, fired %ld "
      "times; %ld zke_check; %.1f s\n%ld violations\n",
      tally.operations, tally.acknowledged, tally.unacknowledged,
      tally.sessions, tally.events, tally.looks, tally.fires, tally.checks,
      (double)(now_ns() - began) / 1e9, tally.bad);
}

int main(int argc, char **argv) {
  int64_t began = now_ns();
  long kills = setting("KILLS", 1000), seconds = setting("SECONDS", 0);
  uint64_t seed = (uint64_t)setting("SEED", 1);
  const char *disk = argc > 1 ? argv[1] : ".";
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) die("mmap");
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (tally.kills < kills && tally.bad_rounds < ENOUGH &&
         (!seconds || now_ns() - began < seconds * 1000000000)) {
    plan n = make_plan(seed++, kills - tally.kills);
    int64_t start_ns = now_ns();
    run_round(&n, disk);
    if (setting("VERBOSE", 0))
      printf("seed %llu: %d workers, %d keys, %d deaths%s%s%s, %.2f s\n",
             (unsigned long long)n.seed, n.workers, n.keys, scene.deaths,
             n.disk ? ", disk" : "", n.calm ? ", calm" : "",
             n.massacre ? ", massacre" : "",
             (double)(now_ns() - start_ns) / 1e9);
  }
  print_tally(began);
  return tally.bad ? 1 : 0;
}
