/* test_power_recipes.c - power cuts while recipes are used
 *
 * P8, with the recipes' own promises: what a queue has acknowledged as put is
 * there after the cut, what was acknowledged as done does not come back, a
 * decision stays, a counter has counted; names, configuration, barriers, runs
 * of a period, fenced rows, also those of the program's own
 * connection, are as they were acknowledged (the table `records`);
 * and what was held by a session is free at once, with a greater token than all
 * before (`holders`).  One process with two sessions works on the disk that
 * forgets (powervfs.h); before every n-th event a forked child, which has all
 * that this process knows, opens what a cut could leave, under a new boot id,
 * and goes on with it.
 *
 *   SEED=n   the first seed, printed
 *   EVERY=n  cut before each 20 n-th event on the disk; 0: after each
 *            change of a record
 *   CUTS=n   a twentieth of so many cuts, the seeds running on
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "powervfs.h"
#include "recipes/barrier.h"
#include "recipes/config.h"
#include "recipes/counter.h"
#include "recipes/double_barrier.h"
#include "recipes/election.h"
#include "recipes/fence.h"
#include "recipes/group.h"
#include "recipes/lock.h"
#include "recipes/multilock.h"
#include "recipes/names.h"
#include "recipes/partition.h"
#include "recipes/periodic.h"
#include "recipes/persistent_node.h"
#include "recipes/queue.h"
#include "recipes/rwlock.h"
#include "recipes/semaphore.h"
#include "recipes/two_phase.h"
#include "test/test.h"

enum {
  ITEMS = 2000,
  BATCH = 3,
  DEALS = 300,
  OPEN = 3, /* transactions at a time */
  SITES = 2,
  IMAGES = 4, /* disks looked at for each cut */
  NAME = 24,
  RECORDS = 5,
  HOLDERS = 9,
  CELLS = 5,     /* of a record, at most */
  FLEETING = 2,  /* the cell that is ephemeral, where a record has such */
  FENCES = 4,    /* the record */
  IMPATIENT = 1, /* the job that is due again where its process died */
  PERIOD = 1000, /* ms */
  STRIDE = 20    /* runs are dear: for CUTS and EVERY */
};

/* ---- what is known ---- */

enum item_state { ABSENT, PUTTING, PUT, TAKING, DONE };

/* A transaction; its steps follow each other. */
enum step {
  BEGIN,
  OPEN_ANN,
  OPEN_BOB,
  VOTE_ANN,
  VOTE_BOB,
  DECIDE,
  SEEN,
  ACK_ANN,
  ACK_BOB,
  OVER
};

typedef struct deal {
  enum step done; /* the next one to do, or under way */
  bool under_way;
  int form;
  int vote[SITES];
  int decision;        /* as it was told, or ZKE_TWO_PHASE_UNDECIDED */
  zke_two_phase *t[3]; /* the coordinator's, the sites' */
} deal;

/* One of the things that a record keeps. */
typedef struct cell {
  int value, next; /* as it was acknowledged; what it becomes now, or value */
  int64_t token;   /* of the value */
} cell;

/* A job of periodic.h and its time of day. */
typedef struct job {
  zke_periodic *object;
  int64_t now;
} job;

/* One of the two that may hold something. */
typedef struct seat {
  void *object;
  bool came;
  int64_t token; /* as it was last known */
} seat;

typedef struct tally { /* shared with the children */
  long cuts, images, violations;
  long kept, lost;                       /* changes that were not synced */
  long known[RECORDS], noticed[RECORDS]; /* cells looked at; wrong ones */
  long held[HOLDERS];                    /* at a cut */
} tally;

static struct {
  uint64_t random, seed;
  long every, event;
  bool quiet;
  int durability;
  char base[PATH_MAX], database[PATH_MAX];
  zke_os os;
  int64_t clock; /* ms */
  int64_t wall;  /* ms; a job's time of day, or 0 */
  int boot;
  zke *z[2];
  zke_queue *queue;
  zke_counter *counter;
  enum item_state item[ITEMS];
  int items;
  int64_t begun, counted;
  deal deal[DEALS];
  int deals;
  cell cell[RECORDS][CELLS];
  job job[CELLS];
  seat seat[HOLDERS][2];
  int values;
  int64_t highest; /* token that was given out */
} run;

static tally *sum;
static bool only_fences; /* a run that changes nothing else, and is short */
static const char *const sites[SITES] = {"ann", "bob"};

static uint64_t chance(uint64_t limit) {
  return power_random(&run.random, limit);
}

__attribute__((format(printf, 1, 2))) static void found(const char *format,
                                                        ...) {
  va_list ap;
  __atomic_fetch_add(&sum->violations, 1, __ATOMIC_RELAXED);
  if (run.quiet) return;
  printf("SEED=%llu, cut at event %ld: ", (unsigned long long)run.seed,
         run.event);
  va_start(ap, format);
  vprintf(format, ap);
  va_end(ap);
  printf("\n");
}

/* What has to work, wherever the power fails; a child ends here if not. */
static void demand(int rc, const char *what) {
  if (rc == ZKE_OK) return;
  found("%s: %s: %s", what, zke_error_name(rc), zke_errmsg());
  fflush(stdout);
  if (run.boot) _exit(0);
  ck_abort_msg("%s: %s", what, zke_error_name(rc));
}

/* ---- the machine ---- */

static int64_t os_clock(void *c, int which) {
  (void)c;
  if (which == ZKE_CLOCK_REALTIME && run.wall) return run.wall * 1000000;
  return ((which == ZKE_CLOCK_REALTIME ? 1700000000000 : 0) + ++run.clock) *
         1000000;
}

static int os_random(void *c, void *buffer, size_t size) {
  (void)c;
  for (size_t i = 0; i < size; i++) ((char *)buffer)[i] = (char)chance(256);
  return 0;
}

static int os_boot_id(void *c, char *buffer, size_t size) {
  (void)c;
  return snprintf(buffer, size, "boot-%d", run.boot);
}

/* The table of system calls: the clock, chance and boot id are the run's own.
 */
static void make_machine(void) {
  power_machine(&run.os);
  run.os.clock = os_clock;
  run.os.random = os_random;
  run.os.boot_id = os_boot_id;
}

/* Open the database on the simulated disk. */
static zke *start(void) {
  zke *z = NULL;
  zke_options o = {.size = sizeof o,
                   .vfs = "unix-power",
                   .os = &run.os,
                   .identity = "power",
                   .durability = run.durability,
                   .container_ms = 1 << 30};
  demand(zke_open(run.database, &o, &z), "open");
  return z;
}

/* ---- records: what has to be as it was acknowledged ----
 *
 * Each is a number of cells with a value, 0 for nothing, and the zxid that came
 * with it. */

typedef struct record {
  const char *name;
  int cells;
  bool fleeting; /* has an ephemeral cell */
  int (*next)(int number, int value);
  int (*change)(zke *z, int number, int from, int to);
  int (*read)(zke *z, int number, int *value, int64_t *token);
  void (*again)(zke *z, int number, int value); /* what must not be, or NULL */
} record;

static int value_in(const char *data, int len) {
  char text[NAME] = "";
  if (len > 0 && len < NAME) memcpy(text, data, (size_t)len);
  return atoi(text);
}

/* What it may become: a value that was not there before, or nothing. */
static int new_value(int number, int value) {
  (void)number;
  (void)value;
  return ++run.values;
}

static int new_or_none(int number, int value) {
  return value && chance(2) ? 0 : new_value(number, value);
}

static int on_or_off(int number, int value) {
  return value ? 0 : new_value(number, value);
}

/* - names: bound, bound to something else, unbound - */

/* Bind or rebind a name, or unbind it; each record has such a pair of
 * functions. */
static int change_name(zke *z, int number, int from, int to) {
  zke_names *names = NULL;
  char name[NAME], text[NAME];
  int64_t token;
  int len = snprintf(text, sizeof text, "%d", to);
  snprintf(name, sizeof name, "name-%d", number);
  int rc = zke_names_new(z, "/names", NULL, &names);
  if (rc == ZKE_OK && !to)
    rc = zke_names_unbind(names, name, 0, ZKE_FOREVER);
  else if (rc == ZKE_OK && from)
    rc = zke_names_rebind(names, name, 0, text, len, number == FLEETING,
                          ZKE_FOREVER, &token);
  else if (rc == ZKE_OK)
    rc = zke_names_bind(names, name, text, len, number == FLEETING, ZKE_FOREVER,
                        &token);
  zke_names_free(names);
  return rc;
}

static int read_name(zke *z, int number, int *value, int64_t *token) {
  zke_names *names = NULL;
  zke_binding *b = NULL;
  char name[NAME];
  snprintf(name, sizeof name, "name-%d", number);
  int rc = zke_names_new(z, "/names", NULL, &names);
  if (rc == ZKE_OK) rc = zke_names_lookup(names, name, &b);
  if (rc == ZKE_OK) {
    *value = value_in(b->value, b->len);
    *token = b->token;
  }
  zke_free(b);
  zke_names_free(names);
  return rc;
}

/* - configuration: set, below parents that are made on the way - */

static int change_config(zke *z, int number, int from, int to) {
  zke_config *config = NULL;
  char name[NAME], text[NAME];
  int len = snprintf(text, sizeof text, "%d", to);
  (void)from;
  snprintf(name, sizeof name, "part-%d/value", number);
  int rc = zke_config_new(z, "/config", NULL, &config);
  if (rc == ZKE_OK)
    rc = zke_config_set(config, name, text, len, -1, ZKE_FOREVER, NULL);
  zke_config_free(config);
  return rc;
}

static int read_config(zke *z, int number, int *value, int64_t *token) {
  zke_stat stat = {0};
  char path[2 * NAME], *data = NULL;
  int len = 0;
  snprintf(path, sizeof path, "/config/part-%d/value", number);
  int rc = zke_get(z, path, NULL, NULL, &data, &len, &stat);
  if (rc == ZKE_OK) {
    *value = value_in(data, len);
    *token = stat.mzxid;
  }
  zke_free(data);
  return rc;
}

/* Is the same in memory?  (Watching is a write, so this is not in reading: it
 * would end what is not synced by a checkpoint.) */
static void load_config(zke *z, int number, int value) {
  zke_config *config = NULL;
  char name[NAME], *data = NULL;
  int len = 0;
  snprintf(name, sizeof name, "part-%d/value", number);
  demand(zke_config_new(z, "/config", NULL, &config), "a configuration");
  demand(zke_config_start(config), "its start");
  int rc = zke_config_get(config, name, &data, &len, NULL);
  if (rc != ZKE_NONODE) demand(rc, name);
  if ((rc == ZKE_OK ? value_in(data, len) : 0) != value)
    found("%s is not %d in memory", name, value);
  zke_free(data);
  zke_config_free(config);
}

/* - barriers: set, removed - */

static int change_barrier(zke *z, int number, int from, int to) {
  zke_barrier_options o = {.size = sizeof o, .ephemeral = number == FLEETING};
  zke_barrier *barrier = NULL;
  char path[NAME], text[NAME];
  int len = snprintf(text, sizeof text, "%d", to);
  (void)from;
  snprintf(path, sizeof path, "/barrier-%d", number);
  int rc = zke_barrier_new(z, path, &o, &barrier);
  if (rc == ZKE_OK)
    rc = to ? zke_barrier_set(barrier, text, len, ZKE_FOREVER, NULL)
            : zke_barrier_remove(barrier, 0, ZKE_FOREVER);
  zke_barrier_free(barrier);
  return rc;
}

static int read_barrier(zke *z, int number, int *value, int64_t *token) {
  zke_party_list *list = NULL;
  char path[NAME];
  snprintf(path, sizeof path, "/barrier-%d", number);
  int rc = zke_barrier_parties(z, path, &list);
  if (rc == ZKE_OK && list->count) {
    *value = value_in(list->data[0].data, list->data[0].len);
    *token = list->data[0].czxid;
  }
  zke_free(list);
  return rc;
}

/* Does it let pass as it should? */
static void pass_barrier(zke *z, int number, int value) {
  zke_barrier *barrier = NULL;
  char path[NAME];
  snprintf(path, sizeof path, "/barrier-%d", number);
  demand(zke_barrier_new(z, path, NULL, &barrier), "a barrier");
  int rc = zke_barrier_wait(barrier, 0);
  if (rc != (value ? ZKE_OPERATIONTIMEOUT : ZKE_OK))
    found("barrier %d is %d, waiting gives %s", number, value,
          zke_error_name(rc));
  zke_barrier_free(barrier);
}

/* - jobs: claimed for the n-th period (2n - 1), done (2n) - */

static int new_job(zke *z, int number, job *j) {
  zke_periodic_options o = {.size = sizeof o, .period_ms = PERIOD};
  char name[NAME];
  snprintf(name, sizeof name, "job-%d", number);
  if (number == IMPATIENT) o.retry = ZKE_PERIODIC_RETRY_DEAD;
  return zke_periodic_new(z, "/jobs", name, &o, &j->object);
}

static int try_job(job *j) {
  run.wall = j->now;
  int rc = zke_periodic_try(j->object);
  run.wall = 0;
  return rc;
}

static void end_job(job *j) {
  zke_periodic_free(j->object);
  j->object = NULL;
}

/* What a process that died has claimed is not done any more. */
static int next_step(int number, int value) {
  return value + (value % 2 && !run.job[number].object ? 2 : 1);
}

static int change_job(zke *z, int number, int from, int to) {
  job *j = &run.job[number];
  int rc = ZKE_OK;
  (void)from;
  if (to % 2) {
    j->now = (to + 1) / 2 * PERIOD;
    rc = new_job(z, number, j);
    return rc == ZKE_OK ? try_job(j) : rc;
  }
  run.wall = j->now;
  rc = zke_periodic_release(j->object, 0);
  run.wall = 0;
  end_job(j);
  return rc;
}

static int read_job(zke *z, int number, int *value, int64_t *token) {
  zke_periodic_record *last = NULL;
  char name[NAME];
  snprintf(name, sizeof name, "job-%d", number);
  int rc = zke_periodic_get(z, "/jobs", name, &last);
  if (rc == ZKE_OK) {
    *value = (int)(last->start_ms / PERIOD) * 2 - (last->end_ms == 0);
    *token = last->token;
    if (last->running && !run.job[number].object) found("%s is running", name);
  }
  zke_free(last);
  return rc;
}

/* Never again in that period, but where the option says so. */
static void run_again(zke *z, int number, int value) {
  job j = {NULL, (value + 1) / 2 * PERIOD + PERIOD - 1};
  if (value == 0) return;
  bool due = number == IMPATIENT && value % 2;
  demand(new_job(z, number, &j), "a job");
  int rc = try_job(&j);
  if (rc != (due ? ZKE_OK : ZKE_LIMIT))
    found("job %d at %d, once more: %s", number, value, zke_error_name(rc));
  end_job(&j);
}

/* - fences: a table of the program's with one row, fenced and written by the
 *   holder of a lock, and unfenced - */

/* What is to be done with the table, or read of it. */
typedef struct fenced {
  const char *sql; /* to run */
  char table[NAME], path[NAME];
  int triggers, value;
  int64_t token;
} fenced;

static fenced name_fenced(int number) {
  fenced f = {.sql = NULL};
  snprintf(f.table, sizeof f.table, "fenced_%d", number);
  snprintf(f.path, sizeof f.path, "/fence-%d", number);
  return f;
}

/* A zke_sql_fn: the text of a fenced. */
static int run_fenced(sqlite3 *db, int64_t zxid, void *context) {
  const fenced *f = context;
  (void)zxid;
  return sqlite3_exec(db, f->sql, NULL, NULL, NULL);
}

static int change_fenced(zke *z, fenced *f, const char *sql) {
  zke_op op;
  f->sql = sql;
  zke_op_sql(&op, run_fenced, f);
  return zke_multi(z, &op, 1, NULL);
}

/* Make the table and its row, unfenced, and fence it. */
static int make_fenced(zke *z, fenced *f) {
  char sql[200];
  snprintf(sql, sizeof sql,
           "CREATE TABLE IF NOT EXISTS %s(id INTEGER PRIMARY KEY,value,fence);"
           "INSERT OR REPLACE INTO %s VALUES(1,0,0)",
           f->table, f->table);
  int rc = zke_fence_remove(z, f->table);
  if (rc == ZKE_OK || rc == ZKE_NONODE) rc = change_fenced(z, f, sql);
  return rc == ZKE_OK ? zke_fence_set(z, f->table, f->path, NULL) : rc;
}

static int write_fenced(zke *z, fenced *f, int to, int64_t token) {
  char sql[100];
  snprintf(sql, sizeof sql, "UPDATE %s SET value=%d,fence=%lld", f->table, to,
           (long long)token);
  return change_fenced(z, f, sql);
}

/* Write the row on a connection of the program's own.  Its setting is one that
 * does not sync, as an SQLite can have it by default: adopting it is to mend
 * that, unless nothing is to be durable. */
static int write_as_guest(zke *z, const fenced *f, int to, int64_t token) {
  sqlite3 *db = NULL;
  char sql[100];
  snprintf(sql, sizeof sql, "UPDATE %s SET value=%d,fence=%lld", f->table, to,
           (long long)token);
  int flags = SQLITE_OPEN_READWRITE;
  if (sqlite3_open_v2(run.database, &db, flags, "unix-power") != SQLITE_OK)
    found("%s: %s", run.database, sqlite3_errmsg(db));
  sqlite3_exec(db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
  int rc = zke_sql_adopt(z, db);
  if (rc == ZKE_OK) rc = zke_sql_begin(z, db);
  if (rc == ZKE_OK) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
      found("%s: %s", sql, sqlite3_errmsg(db));
    rc = zke_sql_commit(z, db);
  }
  sqlite3_close(db);
  return rc;
}

/* The holder writes on the engine's connection, or on one of its own. */
static int write_as_holder(zke *z, fenced *f, int to, int64_t token) {
  return to % 2 ? write_as_guest(z, f, to, token)
                : write_fenced(z, f, to, token);
}

static int change_fence(zke *z, int number, int from, int to) {
  fenced f = name_fenced(number);
  zke_lock *lock = NULL;
  if (!to) return zke_fence_remove(z, f.table);
  int rc = from ? ZKE_OK : make_fenced(z, &f);
  if (rc == ZKE_OK) rc = zke_lock_new(z, f.path, NULL, &lock);
  if (rc == ZKE_OK) rc = zke_lock_try(lock);
  if (rc == ZKE_OK) rc = write_as_holder(z, &f, to, zke_lock_token(lock));
  if (rc == ZKE_OK) rc = zke_lock_release(lock);
  zke_lock_free(lock);
  return rc;
}

/* Read a row of numbers, if there is one; false without. */
static bool read_numbers(sqlite3 *db, const char *sql, int64_t number[2]) {
  sqlite3_stmt *st = NULL;
  bool row = sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
             sqlite3_step(st) == SQLITE_ROW;
  for (int i = 0; row && i < 2; i++) number[i] = sqlite3_column_int64(st, i);
  sqlite3_finalize(st);
  return row;
}

/* A zke_sql_fn: the triggers of a table, and its row where there are some. */
static int read_table(sqlite3 *db, int64_t zxid, void *context) {
  fenced *f = context;
  char sql[100];
  int64_t number[2] = {0};
  (void)zxid;
  snprintf(sql, sizeof sql,
           "SELECT count(*) FROM sqlite_schema WHERE type='trigger' AND "
           "tbl_name='%s'",
           f->table);
  if (!read_numbers(db, sql, number)) return SQLITE_ERROR;
  f->triggers = (int)number[0];
  if (!f->triggers) return SQLITE_OK;
  snprintf(sql, sizeof sql, "SELECT value,fence FROM %s", f->table);
  if (!read_numbers(db, sql, number)) return SQLITE_ERROR;
  f->value = (int)number[0];
  f->token = number[1];
  return SQLITE_OK;
}

/* The value of an unfenced table is nothing; no fence is half there. */
static int read_fence(zke *z, int number, int *value, int64_t *token) {
  fenced f = name_fenced(number);
  zke_op op;
  zke_op_result result = {0};
  zke_op_sql(&op, read_table, &f);
  int rc = zke_multi_read(z, &op, 1, &result);
  if (rc == ZKE_OK) rc = result.rc;
  zke_results_clear(&result, 1);
  if (rc == ZKE_OK && f.triggers % 2) found("half a fence of %s", f.table);
  *value = f.value;
  *token = f.token;
  return rc;
}

/* The row's writer holds the lock no more: it is refused, before another holds
 * the lock and while it does. */
static void write_late(zke *z, int number, int value) {
  fenced f = name_fenced(number);
  zke_lock *lock = NULL;
  int64_t token = 0;
  demand(read_fence(z, number, &value, &token), f.table);
  demand(zke_lock_new(z, f.path, NULL, &lock), "a fence's lock");
  for (int held = 0; value && held < 2; held++) {
    if (held) demand(zke_lock_try(lock), "a fence's lock");
    int rc = write_fenced(z, &f, value, token);
    if (rc == ZKE_OK || !strstr(zke_errmsg(), "fenced: that token"))
      found("%s, written by a former holder: %s", f.table, zke_error_name(rc));
  }
  zke_lock_free(lock);
}

static const record records[RECORDS] = {
    {"names", 5, true, new_or_none, change_name, read_name, NULL},
    {"config", 5, false, new_value, change_config, read_config, load_config},
    {"barrier", 4, true, on_or_off, change_barrier, read_barrier, pass_barrier},
    {"periodic", 4, false, next_step, change_job, read_job, run_again},
    {"fence", 3, false, new_or_none, change_fence, read_fence, write_late}};

/* One change of a cell and what it says then; the zxid rises. */
static void change_cell(zke *z, int which, int number, cell *c, int next) {
  const record *r = &records[which];
  int64_t token = 0;
  int value = 0;
  c->next = next;
  demand(r->change(z, number, c->value, next), r->name);
  int rc = r->read(z, number, &value, &token);
  if (rc != ZKE_NONODE) demand(rc, r->name);
  if (value != next || (value && token <= run.highest))
    found("%s %d: made %d, is %d; zxid %lld after %lld", r->name, number, next,
          value, (long long)token, (long long)run.highest);
  if (token > run.highest) run.highest = token;
  *c = (cell){next, next, token};
}

/* ---- holders: what ends with its session ----
 *
 * Two sit at each, by turns or together; whoever has it has a token. */

typedef struct holder {
  const char *name;
  bool together; /* it takes both */
  void *(*make)(zke *z, int who);
  int (*start)(void *o);
  int (*stop)(void *o);
  int (*more)(void *o, void *other); /* something that a holder does, or NULL */
  int64_t (*token)(void *o);
  void (*free)(void *o);
  int (*there)(zke *z); /* how many hold it or wait */
} holder;

typedef int (*party_fn)(zke *z, const char *path, zke_party_list **list_out);

/* All but those whom a list names as dead. */
static int parties(zke *z, party_fn fn, const char *path) {
  zke_party_list *list = NULL;
  int count = 0;
  demand(fn(z, path, &list), path);
  for (int i = 0; i < list->count; i++)
    count += strcmp(list->data[i].kind, "dead") != 0;
  zke_free(list);
  return count;
}

/* - lock - */

static void *make_lock(zke *z, int who) {
  zke_lock *l = NULL;
  (void)who;
  demand(zke_lock_new(z, "/lock", NULL, &l), "a lock");
  return l;
}
static int start_lock(void *o) { return zke_lock_start(o); }
static int stop_lock(void *o) { return zke_lock_release(o); }
static int64_t lock_token(void *o) { return zke_lock_token(o); }
static void free_lock(void *o) { zke_lock_free(o); }
static int at_lock(zke *z) { return parties(z, zke_lock_parties, "/lock"); }

/* - shared lock: in another mode, and asked for - */

static void *make_rwlock(zke *z, int who) {
  zke_rwlock *rw = NULL;
  (void)who;
  demand(zke_rwlock_new(z, "/rwlock", NULL, &rw), "a shared lock");
  return rw;
}
static int start_rwlock(void *o) {
  return zke_rwlock_start(o, chance(2) ? ZKE_RWLOCK_READ : ZKE_RWLOCK_WRITE);
}
static int stop_rwlock(void *o) { return zke_rwlock_release(o); }
static int more_rwlock(void *o, void *other) {
  if (zke_rwlock_state(other) == ZKE_RWLOCK_OUT && chance(2))
    return zke_rwlock_revoke(other, 0, 0); /* leaves the word */
  return zke_rwlock_mode(o) == ZKE_RWLOCK_WRITE ? zke_rwlock_downgrade(o)
                                                : zke_rwlock_upgrade(o);
}
static int64_t rwlock_token(void *o) { return zke_rwlock_token(o); }
static void free_rwlock(void *o) { zke_rwlock_free(o); }
static int at_rwlock(zke *z) {
  return parties(z, zke_rwlock_parties, "/rwlock");
}

/* - two locks as one - */

static void *make_multilock(zke *z, int who) {
  static const zke_multilock_item both[] = {
      {"/both/lock", ZKE_MULTILOCK_LOCK}, {"/both/rwlock", ZKE_MULTILOCK_READ}};
  zke_multilock *ml = NULL;
  (void)who;
  demand(zke_multilock_new(z, both, 2, NULL, &ml), "a multi-lock");
  return ml;
}
static int start_multilock(void *o) { return zke_multilock_start(o); }
static int stop_multilock(void *o) { return zke_multilock_release(o); }
static int64_t multilock_token(void *o) { return zke_multilock_token(o); }
static void free_multilock(void *o) { zke_multilock_free(o); }
static int at_multilock(zke *z) {
  return parties(z, zke_lock_parties, "/both/lock") +
         parties(z, zke_rwlock_parties, "/both/rwlock");
}

/* - permits: two of three - */

static void *make_semaphore(zke *z, int who) {
  zke_semaphore_options o = {.size = sizeof o, .limit = 3};
  zke_semaphore *s = NULL;
  (void)who;
  demand(zke_semaphore_new(z, "/permits", &o, &s), "a semaphore");
  return s;
}
static int start_semaphore(void *o) { return zke_semaphore_start(o, 2); }
static int stop_semaphore(void *o) { return zke_semaphore_release(o); }
static int64_t semaphore_token(void *o) { return zke_semaphore_token(o); }
static void free_semaphore(void *o) { zke_semaphore_free(o); }
static int at_semaphore(zke *z) {
  return parties(z, zke_semaphore_parties, "/permits");
}

/* - leaders: in office, handing over - */

static void *make_election(zke *z, int who) {
  zke_election_options o = {.size = sizeof o, .name = sites[who]};
  zke_election *e = NULL;
  demand(zke_election_new(z, "/election", &o, &e), "a candidate");
  return e;
}
static int start_election(void *o) { return zke_election_start(o); }
static int stop_election(void *o) { return zke_election_resign(o); }
static int more_election(void *o, void *other) {
  (void)other;
  return chance(3) ? zke_election_ready(o)
                   : zke_election_hand_over(o, sites[chance(SITES)]);
}
static int64_t election_token(void *o) { return zke_election_token(o); }
static void free_election(void *o) { zke_election_free(o); }
static int at_election(zke *z) {
  zke_observer *o = NULL;
  char *name = NULL;
  demand(zke_observer_new(z, "/election", NULL, &o), "an observer");
  demand(zke_observer_start(o), "observing");
  demand(zke_observer_leader(o, &name, NULL, NULL, NULL), "who leads");
  int count = parties(z, zke_election_parties, "/election") + (name != NULL);
  zke_free(name);
  zke_observer_free(o);
  return count;
}

/* - members - */

static void *make_group(zke *z, int who) {
  zke_group *g = NULL;
  (void)who;
  demand(zke_group_new(z, "/group", NULL, &g), "a group");
  return g;
}
static int start_group(void *o) {
  return zke_group_join(o, "here", 4, ZKE_FOREVER);
}
static int stop_group(void *o) { return zke_group_leave(o); }
static int more_group(void *o, void *other) {
  (void)other;
  return zke_group_update(o, "still here", 10, ZKE_FOREVER);
}
static int64_t group_token(void *o) {
  zke_party_list *list = NULL;
  char *self = NULL;
  int64_t czxid = 0;
  if (zke_group_state(o) != ZKE_GROUP_JOINED) return 0;
  demand(zke_group_self(o, &self), "who one is");
  demand(zke_group_list(o, &list), "the members");
  for (int i = 0; i < list->count; i++) {
    if (strcmp(list->data[i].name, self) == 0) czxid = list->data[i].czxid;
  }
  zke_free(list);
  zke_free(self);
  return czxid;
}
static void free_group(void *o) { zke_group_free(o); }
static int at_group(zke *z) {
  zke_group *g = make_group(z, 0);
  zke_party_list *list = NULL;
  demand(zke_group_list(g, &list), "the members");
  int count = list->count;
  zke_free(list);
  zke_group_free(g);
  return count;
}

/* - parts of the work; all of it is released that is asked for - */

static void *make_partition(zke *z, int who) {
  static const char *const items[] = {"blue", "green", "red"};
  zke_partition_options o = {.size = sizeof o, .name = sites[who]};
  zke_partition *p = NULL;
  demand(zke_partition_new(z, "/shards", items, 3, &o, &p), "a partition");
  return p;
}
static int start_partition(void *o) { return zke_partition_start(o); }
static int stop_partition(void *o) { return zke_partition_leave(o); }
static int more_partition(void *o, void *other) {
  zke_strings *items = NULL;
  int rc = zke_partition_list(o, &items);
  (void)other;
  for (int i = 0; rc == ZKE_OK && i < items->count; i++) {
    rc = zke_partition_release(o, items->data[i]);
    if (rc == ZKE_MISUSE) rc = ZKE_OK; /* it may stay */
  }
  zke_free(items);
  return rc;
}
static int64_t partition_token(void *o) {
  return zke_partition_token(o, "red");
}
static void free_partition(void *o) { zke_partition_free(o); }
static int at_partition(zke *z) {
  zke_partition_owners *list = NULL;
  demand(zke_partition_parties(z, "/shards", &list), "the owners");
  int count = list->count;
  zke_free(list);
  return count;
}

/* - both, in and out - */

static void *make_double(zke *z, int who) {
  zke_double_barrier *b = NULL;
  (void)who;
  demand(zke_double_barrier_new(z, "/double", 2, NULL, &b), "a double barrier");
  return b;
}
static int start_double(void *o) {
  return zke_double_barrier_start(o, NULL, 0);
}
static int stop_double(void *o) {
  return zke_double_barrier_state(o) == ZKE_DOUBLE_BARRIER_WAITING
             ? zke_double_barrier_stop(o)
             : zke_double_barrier_leave_start(o);
}
static int64_t double_token(void *o) { return zke_double_barrier_token(o); }
static void free_double(void *o) { zke_double_barrier_free(o); }
static int at_double(zke *z) {
  return parties(z, zke_double_barrier_parties, "/double");
}

/* - a znode that is kept - */

static void *make_node(zke *z, int who) {
  zke_persistent_node *n = NULL;
  (void)who;
  demand(zke_persistent_node_new(z, "/kept/node", "up", 2, NULL, &n), "a node");
  return n;
}
static int start_node(void *o) { return zke_persistent_node_start(o); }
static int stop_node(void *o) { return zke_persistent_node_release(o); }
static int more_node(void *o, void *other) {
  (void)other;
  return zke_persistent_node_set(o, "busy", 4, ZKE_FOREVER);
}
static int64_t node_token(void *o) { return zke_persistent_node_token(o); }
static void free_node(void *o) { zke_persistent_node_free(o); }
static int at_node(zke *z) {
  int rc = zke_exists(z, "/kept/node", NULL, NULL, NULL);
  if (rc != ZKE_NONODE) demand(rc, "the node");
  return rc == ZKE_OK;
}

static const holder holders[HOLDERS] = {
    {"lock", false, make_lock, start_lock, stop_lock, NULL, lock_token,
     free_lock, at_lock},
    {"rwlock", false, make_rwlock, start_rwlock, stop_rwlock, more_rwlock,
     rwlock_token, free_rwlock, at_rwlock},
    {"multilock", false, make_multilock, start_multilock, stop_multilock, NULL,
     multilock_token, free_multilock, at_multilock},
    {"semaphore", false, make_semaphore, start_semaphore, stop_semaphore, NULL,
     semaphore_token, free_semaphore, at_semaphore},
    {"election", false, make_election, start_election, stop_election,
     more_election, election_token, free_election, at_election},
    {"group", false, make_group, start_group, stop_group, more_group,
     group_token, free_group, at_group},
    {"partition", false, make_partition, start_partition, stop_partition,
     more_partition, partition_token, free_partition, at_partition},
    {"double_barrier", true, make_double, start_double, stop_double, NULL,
     double_token, free_double, at_double},
    {"persistent_node", false, make_node, start_node, stop_node, more_node,
     node_token, free_node, at_node}};

static void dispatch(zke *z, zke *other) {
  demand(zke_dispatch(z, NULL), "dispatch");
  demand(zke_dispatch(other, NULL), "dispatch");
}

/* ---- after a cut ---- */

static void complain(void *context, const char *sentence) {
  (void)context;
  found("zke_check: %s", sentence);
}

static void look_at_sessions(zke *z) {
  zke_session_list *sessions = NULL;
  demand(zke_sessions(z, &sessions), "sessions");
  if (sessions->count != 1) found("%d sessions of before", sessions->count - 1);
  zke_free(sessions);
}

/* It has it, with a token that nobody had. */
static void look_at_token(const holder *h, void *object) {
  int64_t token = h->token(object);
  if (token <= run.highest)
    found("%s: got %lld after %lld", h->name, (long long)token,
          (long long)run.highest);
}

static void take_and_give(const holder *h, void *object, zke *z, zke *other) {
  demand(h->start(object), h->name);
  look_at_token(h, object);
  if (h->token(object) > run.highest) run.highest = h->token(object);
  demand(h->stop(object), h->name);
  dispatch(z, other);
}

/* Both objects start, look at their tokens, and stop. */
static void meet(const holder *h, void **object, zke *z, zke *other) {
  for (int i = 0; i < 2; i++) demand(h->start(object[i]), h->name);
  dispatch(z, other);
  for (int i = 0; i < 2; i++) look_at_token(h, object[i]);
  for (int i = 0; i < 2; i++) {
    int rc = h->stop(object[i]);
    if (rc != ZKE_LOST) demand(rc, h->name); /* a meeting is over */
  }
  dispatch(z, other);
  if (h->there(z)) found("%s: %d stayed", h->name, h->there(z));
}

/* Nobody holds it, waits for it or is a member; it can be used at once. */
static void look_at_holder(const holder *h, zke *z, zke *other) {
  int count = h->there(z);
  if (count) found("%s: %d of before", h->name, count);
  void *object[2] = {h->make(z, 0), h->make(other, 1)};
  if (h->together) {
    meet(h, object, z, other);
  } else {
    for (int i = 0; i < 2; i++) take_and_give(h, object[i], z, other);
  }
  for (int i = 0; i < 2; i++) h->free(object[i]);
}

static void look_at_holders(zke *z) {
  zke *other = NULL;
  demand(zke_open_session(z, NULL, &other), "another session");
  for (int i = 0; i < HOLDERS; i++) look_at_holder(&holders[i], z, other);
  demand(zke_close(other), "close");
}

/* What was acknowledged, with its zxid, or what was under way, with a later
 * one; nothing of what went with its session. */
static bool may_be(const cell *c, bool fleeting, int value, int64_t token) {
  if (fleeting) return value == 0;
  if (value == c->value && (value == 0 || token == c->token)) return true;
  return c->next != c->value && value == c->next &&
         (value == 0 || token > c->token);
}

/* Has the record a value that it may have, and a token that nobody has seen
 * with another value? */
static int look_at_cell(zke *z, int which, int number) {
  const record *r = &records[which];
  const cell *c = &run.cell[which][number];
  int64_t token = 0;
  int value = 0, rc = r->read(z, number, &value, &token);
  if (rc != ZKE_NONODE) demand(rc, r->name);
  if (c->value) sum->known[which]++;
  if (!may_be(c, r->fleeting && number == FLEETING, value, token)) {
    sum->noticed[which]++;
    found("%s %d was %d (%lld), became %d, is %d (%lld)", r->name, number,
          c->value, (long long)c->token, c->next, value, (long long)token);
  }
  if (r->again) r->again(z, number, value);
  return value;
}

/* And it can be changed. */
static void look_at_record(zke *z, int which) {
  const record *r = &records[which];
  for (int number = 0; number < r->cells; number++) {
    cell c = {.value = look_at_cell(z, which, number)};
    for (int i = 0; i < 2; i++) {
      int next = r->next(number, c.value);
      if (next != c.value) change_cell(z, which, number, &c, next);
    }
  }
}

static int number_of(const zke_queue_item *item) {
  int number = -1;
  if (item->len == sizeof number) memcpy(&number, item->data, sizeof number);
  return number >= 0 && number < run.items ? number : -1;
}

/* Items were put together: all of them are there, or none. */
static void look_at_batches(const bool *there) {
  for (int i = 0; i + 1 < run.items; i++) {
    bool both = run.item[i] == PUTTING && run.item[i + 1] == PUTTING;
    if (both && there[i] != there[i + 1]) found("half of a batch at %d", i);
  }
}

static void look_at_items(const bool *there) {
  for (int i = 0; i < run.items; i++) {
    if (run.item[i] == PUT && !there[i]) found("item %d was lost", i);
    if (run.item[i] == DONE && there[i]) found("item %d came back", i);
  }
  look_at_batches(there);
}

/* Take all that is there, in its order. */
static void look_at_queue(zke *z) {
  static bool there[ITEMS];
  zke_queue *queue = NULL;
  zke_queue_item *item = NULL;
  zke_queue_counts counts = {0};
  int last = -1, rc;
  demand(zke_queue_new(z, "/queue", NULL, &queue), "the queue");
  demand(zke_queue_size(queue, &counts), "its size");
  if (counts.claimed) found("%d claims of before", counts.claimed);
  while ((rc = zke_queue_take(queue, 0, &item)) == ZKE_OK) {
    int number = number_of(item);
    if (number <= last) found("item %d after %d", number, last);
    if (number >= 0) there[last = number] = true;
    zke_free(item);
  }
  if (rc != ZKE_OPERATIONTIMEOUT) demand(rc, "take");
  look_at_items(there);
  zke_queue_free(queue);
}

/* Every acknowledged addition counts, and none twice. */
static void look_at_counter(zke *z) {
  zke_counter *counter = NULL;
  int64_t value = 0;
  demand(zke_counter_new(z, "/counter", NULL, &counter), "a counter");
  demand(zke_counter_get(counter, &value, NULL), "the counter");
  if (value < run.counted || value > run.begun)
    found("counted %lld, found %lld", (long long)run.counted, (long long)value);
  zke_counter_free(counter);
}

static void name_deal(char name[NAME], int number) {
  snprintf(name, NAME, "deal-%d", number);
}

/* What must come out of it; in the ephemeral form a site's end may abort. */
static bool may_come_out(const deal *d, int decision) {
  bool all = true;
  for (int i = 0; i < SITES; i++) {
    if (d->vote[i] == ZKE_TWO_PHASE_ABORT) all = false;
  }
  if (decision == ZKE_TWO_PHASE_COMMIT) return all;
  return !all || (d->form & ZKE_TWO_PHASE_EPHEMERAL);
}

/* Is it as it was acknowledged?  False where it is over. */
static bool look_at_deal(zke *z, int number) {
  const deal *d = &run.deal[number];
  zke_two_phase_status *status = NULL;
  char name[NAME];
  name_deal(name, number);
  int rc = zke_two_phase_get(z, "/deals", name, &status);
  if (rc != ZKE_OK && rc != ZKE_NONODE) demand(rc, name);
  bool there = rc == ZKE_OK;
  bool begun = d->done > BEGIN, ends = d->done == ACK_BOB && d->under_way;
  if (begun && d->done < OVER && !ends && !there) found("%s was lost", name);
  if (d->done == OVER && there) found("%s came back", name);
  if (there && d->decision && status->decision != d->decision)
    found("%s was decided as %d, is %d", name, d->decision, status->decision);
  zke_free(status);
  return there;
}

/* Its sites come back, vote as they had resolved, and see it decided. */
static void finish_deal(zke *z, int number) {
  deal *d = &run.deal[number];
  zke_two_phase *t[SITES] = {NULL};
  char name[NAME];
  int decision[SITES] = {0};
  name_deal(name, number);
  for (int i = 0; i < SITES; i++) {
    demand(zke_two_phase_open(z, "/deals", name, sites[i], NULL, &t[i]),
           "a site comes back");
  }
  for (int i = 0; i < SITES; i++)
    demand(zke_two_phase_vote(t[i], d->vote[i]), "and votes");
  for (int i = 0; i < SITES; i++)
    demand(zke_two_phase_wait(t[i], zke_now(z) + 5000, &decision[i]), "decide");
  if (decision[0] != decision[1]) found("%s was decided both ways", name);
  if (d->decision && decision[0] != d->decision)
    found("%s changed its outcome", name);
  if (!may_come_out(d, decision[0]))
    found("%s came out as %d", name, decision[0]);
  for (int i = 0; i < SITES; i++) {
    demand(zke_two_phase_ack(t[i]), "acknowledge");
    zke_two_phase_free(t[i]);
  }
}

/* Each transaction ends, as its sites were told. */
static void look_at_deals(zke *z) {
  zke_strings *left = NULL;
  for (int i = 0; i < run.deals; i++) {
    if (look_at_deal(z, i)) finish_deal(z, i);
  }
  demand(zke_two_phase_pending(z, "/deals", NULL, NULL, NULL, &left),
         "what is pending");
  if (left->count) found("%d transactions without an end", left->count);
  zke_free(left);
}

/* ---- cuts ---- */

static void ignore(power_event event) { (void)event; }

/* The child's work. */
static void look(int image) {
  power_loss loss = {0};
  char directory[PATH_MAX];
  alarm((unsigned)test_patience(60));
  run.boot = 1;
  power_lose_side();
  memset(run.job, 0, sizeof run.job); /* those of the process that died */
  run.random = run.seed * 1000003 + (uint64_t)(run.event * 31 + image);
  snprintf(directory, sizeof directory, "%.3900s/%d", run.base, (int)getpid());
  if (mkdir(directory, 0700) != 0) abort();
  power_image(directory, (power_style)chance(POWER_STYLES), &run.random, &loss);
  __atomic_fetch_add(&sum->images, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&sum->kept, loss.kept, __ATOMIC_RELAXED);
  __atomic_fetch_add(&sum->lost, loss.lost, __ATOMIC_RELAXED);
  snprintf(run.database, sizeof run.database, "%.4000s/a.db", directory);
  power_begin(directory, ignore);
  zke *z = start();
  demand(zke_check(z, complain, NULL), "check");
  look_at_sessions(z);
  look_at_holders(z);
  for (int i = 0; i < RECORDS; i++) look_at_record(z, i);
  look_at_queue(z);
  look_at_counter(z);
  look_at_deals(z);
  demand(zke_check(z, complain, NULL), "check at the end");
  demand(zke_close(z), "close");
  test_remove(directory);
}

static void *look_apart(void *image) {
  look(*(int *)image);
  return NULL;
}

/* The child's work, on a thread of its own: the one that was forked may be in a
 * transaction of the program's connection, in which the library refuses it. */
static void look_by_a_thread(int image) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, look_apart, &image) != 0) abort();
  pthread_join(thread, NULL);
}

/* The power fails here: disks that this can leave are looked at by children. */
static void cut(void) {
  sum->cuts++;
  for (int i = 0; i < HOLDERS; i++)
    sum->held[i] += run.seat[i][0].token || run.seat[i][1].token;
  fflush(stdout);
  for (int image = 0; image < IMAGES; image++) {
    int status = 0;
    pid_t pid = _Fork(); /* in the middle of a call: no atfork handlers */
    if (pid < 0) abort();
    if (pid == 0) {
      look_by_a_thread(image);
      fflush(stdout);
      _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0) {
      if (errno != EINTR) abort();
    }
    if (status) found("the child ended as 0x%x", (unsigned)status);
  }
}

static void at_event(power_event event) {
  if (event == POWER_PUBLISH || !run.z[1]) return;
  run.event++;
  if (run.every && (run.event + (long)run.seed) % run.every == 0) cut();
}

/* ---- the work ---- */

static void mark(int first, int count, enum item_state state) {
  for (int i = first; i < first + count; i++) run.item[i] = state;
}

/* Put a batch, and note which items were acknowledged. */
static void put(void) {
  int numbers[BATCH], count = 1 + (int)chance(BATCH), first = run.items;
  zke_queue_value values[BATCH];
  for (int i = 0; i < count; i++) {
    numbers[i] = first + i;
    values[i] = (zke_queue_value){&numbers[i], sizeof numbers[i]};
  }
  run.items += count;
  mark(first, count, PUTTING);
  demand(zke_queue_put_all(run.queue, values, count, NULL, ZKE_FOREVER), "put");
  mark(first, count, PUT);
}

/* Take an item, or claim and acknowledge it. */
static void take(void) {
  zke_queue_item *item = NULL;
  bool claims = chance(3) > 0;
  int first = 0;
  while (first < run.items && run.item[first] != PUT) first++;
  if (first == run.items) return;
  if (!claims) run.item[first] = TAKING;
  demand((claims ? zke_queue_claim : zke_queue_take)(run.queue, 0, &item),
         "take or claim");
  ck_assert_int_eq(number_of(item), first);
  if (claims && chance(4) == 0) {
    demand(zke_queue_release(run.queue, item), "release");
  } else {
    run.item[first] = TAKING;
    if (claims) demand(zke_queue_ack(run.queue, item, NULL, 0, NULL), "ack");
    run.item[first] = DONE;
  }
  zke_free(item);
}

static void count(void) {
  run.begun++;
  demand(zke_counter_add_and_get(run.counter, 1, ZKE_FOREVER, NULL, NULL),
         "count");
  run.counted++;
}

static void begin_deal(deal *d) {
  zke_two_phase_options o = {.size = sizeof o, .form = d->form};
  char name[NAME];
  name_deal(name, (int)(d - run.deal));
  demand(zke_two_phase_begin(run.z[0], "/deals", name, "tea", 3, sites, SITES,
                             &o, &d->t[0]),
         "begin");
}

static void open_deal(deal *d, int site) {
  char name[NAME];
  name_deal(name, (int)(d - run.deal));
  demand(zke_two_phase_open(run.z[site], "/deals", name, sites[site], NULL,
                            &d->t[1 + site]),
         "a site takes part");
}

static void end_deal(deal *d) {
  for (int i = 0; i < 3; i++) {
    zke_two_phase_free(d->t[i]);
    d->t[i] = NULL;
  }
}

/* The next step of a transaction. */
static void step_deal(deal *d) {
  int decision = ZKE_TWO_PHASE_UNDECIDED, rc = ZKE_OK;
  d->under_way = true;
  if (d->done == BEGIN) begin_deal(d);
  if (d->done == OPEN_ANN || d->done == OPEN_BOB)
    open_deal(d, d->done - OPEN_ANN);
  if (d->done == VOTE_ANN || d->done == VOTE_BOB) {
    int site = (int)d->done - VOTE_ANN;
    rc = zke_two_phase_vote(d->t[1 + site], d->vote[site]);
  }
  if (d->done == DECIDE) rc = zke_two_phase_wait(d->t[0], 0, &decision);
  if (d->done >= SEEN) rc = zke_two_phase_ack(d->t[d->done - SEEN]);
  demand(rc, "a step of a transaction");
  if (d->done == DECIDE) {
    d->decision = decision;
    if (!may_come_out(d, decision)) found("came out as %d", decision);
  }
  d->under_way = false;
  if (++d->done == OVER) end_deal(d);
}

static void add_deal(void) {
  deal *d = &run.deal[run.deals++];
  d->form = (int)chance(4);
  for (int i = 0; i < SITES; i++)
    d->vote[i] = chance(5) ? ZKE_TWO_PHASE_COMMIT : ZKE_TWO_PHASE_ABORT;
}

/* One of those that are not over, or a new one. */
static void deal_on(void) {
  int first = 0;
  while (first < run.deals && run.deal[first].done == OVER) first++;
  int chosen = first + (int)chance(OPEN);
  if (chosen >= run.deals) {
    add_deal();
    chosen = run.deals - 1;
  }
  if (run.deal[chosen].done < OVER) step_deal(&run.deal[chosen]);
}

/* Change any cell of any record. */
static void change_record(void) {
  int which = only_fences ? FENCES : (int)chance(RECORDS);
  const record *r = &records[which];
  int number = (int)chance((uint64_t)r->cells);
  cell *c = &run.cell[which][number];
  int next = r->next(number, c->value);
  if (next != c->value) change_cell(run.z[chance(2)], which, number, c, next);
  if (run.every == 0) cut();
}

/* What may be refused: the other one has it, or nobody. */
static void attempt(int rc, const char *what) {
  if (rc == ZKE_HELD || rc == ZKE_MISUSE || rc == ZKE_LOST) return;
  if (rc == ZKE_NONODE || rc == ZKE_OPERATIONTIMEOUT) return;
  demand(rc, what);
}

static void come_or_go(const holder *h, seat *s) {
  attempt((s->came ? h->stop : h->start)(s->object), h->name);
  s->came = !s->came;
}

/* Take something, wait for it, give it up, while other things happen. */
static void hold(void) {
  int which = (int)chance(HOLDERS), who = (int)chance(2);
  const holder *h = &holders[which];
  seat *s = run.seat[which];
  if (chance(2) && h->more && s[who].came)
    attempt(h->more(s[who].object, s[!who].object), h->name);
  else
    come_or_go(h, &s[who]);
  if (h->together) come_or_go(h, &s[!who]);
  dispatch(run.z[0], run.z[1]);
  for (int i = 0; i < 2; i++) {
    s[i].token = h->token(s[i].object);
    if (s[i].token > run.highest) run.highest = s[i].token;
  }
}

/* One step of the run, whichever. */
static void act(void) {
  switch (only_fences ? 7 : chance(8)) {
    case 0:
      put();
      break;
    case 1:
      take();
      break;
    case 2:
      count();
      break;
    case 3:
    case 4:
      deal_on();
      break;
    default:
      change_record();
  }
  hold();
}

static void seat_all(void) {
  for (int i = 0; i < HOLDERS; i++) {
    for (int who = 0; who < 2; who++)
      run.seat[i][who].object = holders[i].make(run.z[who], who);
  }
}

static void rise_all(void) {
  for (int i = 0; i < HOLDERS; i++) {
    for (int who = 0; who < 2; who++) holders[i].free(run.seat[i][who].object);
  }
}

/* The run: all recipes are used in turn until the power fails. */
static void work(int operations) {
  zke *z = run.z[0] = start();
  demand(zke_open_session(z, NULL, &run.z[1]), "a second session");
  demand(zke_queue_new(z, "/queue", NULL, &run.queue), "a queue");
  demand(zke_counter_new(run.z[1], "/counter", NULL, &run.counter),
         "a counter");
  seat_all();
  for (int i = 0; i < operations; i++) act();
  for (int i = 0; i < run.deals; i++) end_deal(&run.deal[i]);
  for (int i = 0; i < CELLS; i++) end_job(&run.job[i]);
  zke_counter_free(run.counter);
  zke_queue_free(run.queue);
  rise_all();
  demand(zke_close(run.z[1]), "close");
  demand(zke_close(z), "close");
}

/* One run; counts add up in *sum. */
static void run_once(uint64_t seed, long every, int durability, bool quiet) {
  char directory[PATH_MAX];
  memset(&run, 0, sizeof run);
  run.seed = run.random = seed;
  run.every = every;
  run.durability = durability;
  run.quiet = quiet;
  snprintf(run.base, sizeof run.base, "%s", test_path("cuts"));
  mkdir(run.base, 0700);
  snprintf(directory, sizeof directory, "%.4000s/work", run.base);
  if (mkdir(directory, 0700) != 0) abort();
  snprintf(run.database, sizeof run.database, "%.4000s/a.db", directory);
  make_machine();
  power_begin(directory, at_event);
  work(only_fences ? 25 : 150);
  test_remove(directory);
}

static void begin_tally(void) {
  sum = mmap(NULL, sizeof *sum, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(sum != MAP_FAILED);
}

static long setting(const char *name, long otherwise) {
  const char *value = getenv(name);
  return value && *value ? atol(value) : otherwise;
}

/* ---- the tests ---- */

LIMIT(getenv("CUTS") ? 0 : 120);

/* P8, in the recipes' own words: see above. */
TEST(what_recipes_acknowledged_survives) {
  uint64_t seed = (uint64_t)setting("SEED", 1);
  long cuts = getenv("CUTS") ? setting("CUTS", 0) / STRIDE
                             : test_sample(60, 20 / test_stride(2));
  long every = setting("EVERY", 7 * test_stride(2));
  begin_tally();
  printf("recipes: SEED=%llu EVERY=%ld\n", (unsigned long long)seed, every);
  do run_once(seed++, every * STRIDE, ZKE_DURABLE_BY_KIND, false);
  while (sum->cuts < cuts);
  printf(
      "%ld cuts, %ld disks looked at; changes not synced: %ld kept, %ld "
      "lost; violations: %ld\n",
      sum->cuts, sum->images, sum->kept, sum->lost, sum->violations);
  ck_assert_int_eq(sum->violations, 0);
  ck_assert_int_gt(sum->lost, 0);
  ck_assert_int_gt(sum->kept, 0);
  for (int i = 0; i < HOLDERS; i++)
    ck_assert_msg(sum->held[i] > 0, "%s was never held", holders[i].name);
  for (int i = 0; i < RECORDS; i++)
    ck_assert_msg(sum->known[i] > 0, "nothing in %s", records[i].name);
}

/* P8 for the program's own connections: zke_sql_adopt() and zke_sql_begin() see
 * to it that what zke_sql_commit() has acknowledged is on the disk, right after
 * it. */
TEST(rows_of_the_programs_own_connection_survive) {
  only_fences = true;
  begin_tally();
  run_once(1, 0, ZKE_DURABLE_BY_KIND, false);
  ck_assert_int_eq(sum->violations, 0);
  ck_assert_int_gt(sum->known[FENCES], 20);
}

static bool all_noticed(void) {
  bool all = true;
  for (int i = 0; i < RECORDS; i++) all = all && sum->noticed[i] > 0;
  return all;
}

/* The same finds what there is to be found where nothing is synced: something
 * in each of the records, when the power fails before a checkpoint syncs. */
TEST_LOOP(finds_losses_without_durability, 0, POWER_LONG) {
  begin_tally();
  for (uint64_t seed = 5; seed < 15 && !all_noticed(); seed++)
    run_once(seed, 0, ZKE_DURABLE_NONE, true);
  ck_assert_int_gt(sum->cuts, 3);
  ck_assert_int_gt(sum->violations, 0);
  for (int i = 0; i < RECORDS; i++)
    ck_assert_msg(sum->noticed[i] > 0, "no loss in %s", records[i].name);
}
