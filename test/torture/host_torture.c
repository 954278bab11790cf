/* host_torture.c - programs with their own tables, killed and deposed
 *
 * Runs the programs of doc/examples that keep their tables beside the tree:
 * outbox (shops and mailers), jobs (leaders, workers and processes that add
 * jobs) and ledger.py under a lock of the command.  It stops them, continues
 * them, kills them with SIGKILL at random instants and starts others.  Another
 * process, the deposer, deposes leaders, breaks locks and claims, and ends
 * sessions of programs that are alive, unaware or stopped.  In a table
 * "deposed" it notes each token that it took, and how far the programs' tables
 * had come: a later row with that token was written by a former holder, even if
 * the next holder has written nothing yet.  If the deposer ends by itself, or
 * has not made that table, the run fails: it has shown nothing.
 *
 * A checker reads the programs' tables with plain SQLite, during the run and at
 * the end, and checks the rules below.  Each step of the programs is one
 * transaction, so the rules hold in every snapshot.
 *
 *   KILLS=n     how many; 300
 *   SEED=n      printed; it decides the kills as far as the scheduler lets it
 *   SECONDS=n   end after this time, whatever KILLS says; no limit
 *
 * Arguments: the prefix of the programs' names, the command zke, the Python
 * program, a directory for the database (/dev/shm if there is one).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/program.h"
#include "zkembed.h"

enum {
  BACKLOG = 300,     /* add no orders and jobs while this many wait */
  CHECK_MS = 150,    /* between two looks of the checker */
  SETTLE_MS = 90000, /* to finish what the dead have left */
  WORDS = 12,        /* of a program's arguments */
  DEPOSE_MS = 60     /* between two acts of the deposer, at most */
};

static char directory[4000], database[4100], errors[4100];
static const char *examples, *command, *ledger;
static volatile int *deposed; /* shared: how many acts */
static pid_t deposer;         /* 0: it has ended */

static void give_up(const char *what, const char *why) {
  fprintf(stderr, "host_torture: %s: %s\n", what, why);
  exit(1);
}

/* ---- the rules ---- */

#define ITEMS                                                     \
  "WITH item(reference)AS MATERIALIZED(SELECT CAST(data AS TEXT)" \
  "FROM zke_nodes WHERE path>'/outbox/entries/entry-'AND "        \
  "path<'/outbox/entries/entry.')"

/* Each query finds what breaks the rule. */
typedef struct rule {
  const char *sentence, *sql;
} rule;

static const rule rules[] = {
    {"an order has neither its item nor its mail",
     ITEMS "SELECT reference FROM orders WHERE reference NOT IN"
           "(SELECT reference FROM item)AND id NOT IN"
           "(SELECT order_id FROM mail)"},
    {"an item has no order",
     ITEMS "SELECT reference FROM item WHERE reference NOT IN"
           "(SELECT reference FROM orders)"},
    {"a mail was sent, and its item is still there",
     ITEMS "SELECT reference FROM item JOIN orders o USING(reference)"
           "WHERE o.id IN(SELECT order_id FROM mail)"},
    {"a mail was sent twice",
     "SELECT order_id FROM mail GROUP BY order_id HAVING count(*)>1"},
    {"a result was stored twice",
     "SELECT job FROM results GROUP BY job HAVING count(*)>1"},
    {"a job is done without a result, or not done with one",
     "SELECT id FROM jobs WHERE done<>(id IN(SELECT job FROM results))"},
    {"a result is not of the worker that has the job",
     "SELECT job FROM results r JOIN jobs j ON j.id=r.job "
     "WHERE r.worker<>j.worker"},
    {"a former leader has assigned a job",
     "SELECT id FROM(SELECT id,token,lag(token)OVER(ORDER BY id)AS last "
     "FROM assigned)WHERE token<last"},
    {"a job was assigned by another one than its last leader",
     "SELECT j.id FROM jobs j JOIN(SELECT job AS its,max(id)AS last FROM "
     "assigned GROUP BY job)ON its=j.id JOIN assigned a ON a.id=last "
     "WHERE a.token<>j.token OR a.worker<>j.worker"},
    {"a former holder of the lock has written into the ledger",
     "SELECT id FROM(SELECT id,token,lag(token)OVER(ORDER BY id)AS last "
     "FROM ledger)WHERE token<last"},
    {"a leader has assigned a job after it was deposed",
     "SELECT id FROM deposed d JOIN assigned a ON a.token=d.token AND "
     "a.id>d.assigned WHERE place='/boss'"},
    {"a holder of the lock has written into the ledger after it was deposed",
     "SELECT id FROM deposed d JOIN ledger l ON l.token=d.token AND "
     "l.id>d.ledger WHERE place='/locks/ledger'"},
};

enum { RULES = sizeof rules / sizeof *rules };

/* A number from the tables, or -1 while they do not exist. */
static int64_t number(sqlite3 *db, const char *sql) {
  sqlite3_stmt *st;
  int64_t n = -1;
  if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) == SQLITE_OK &&
      sqlite3_step(st) == SQLITE_ROW)
    n = sqlite3_column_int64(st, 0);
  sqlite3_finalize(st);
  return n;
}

/* One rule: true if it holds. */
static bool check_rule(sqlite3 *db, const rule *r) {
  sqlite3_stmt *st;
  if (sqlite3_prepare_v2(db, r->sql, -1, &st, NULL) != SQLITE_OK)
    give_up(r->sentence, sqlite3_errmsg(db));
  int rc = sqlite3_step(st);
  if (rc == SQLITE_ROW)
    printf("%s (%s)\n", r->sentence, (const char *)sqlite3_column_text(st, 0));
  else if (rc != SQLITE_DONE)
    printf("%s: %s\n", r->sentence, sqlite3_errmsg(db));
  sqlite3_finalize(st);
  return rc == SQLITE_DONE;
}

/* All rules, on one snapshot; true while some table does not exist. */
static bool check_tables(sqlite3 *db) {
  bool good = true;
  if (sqlite3_exec(db, "BEGIN", NULL, NULL, NULL) != SQLITE_OK)
    give_up("BEGIN", sqlite3_errmsg(db));
  if (number(db,
             "SELECT count(*)FROM sqlite_schema WHERE name IN('orders','mail',"
             "'jobs','assigned','results','ledger','zke_nodes','deposed')") ==
      8) {
    for (int i = 0; i < RULES; i++) good = check_rule(db, &rules[i]) && good;
  }
  sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
  return good;
}

static sqlite3 *open_tables(void) {
  sqlite3 *db;
  if (sqlite3_open_v2(database, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK)
    give_up(database, sqlite3_errmsg(db));
  sqlite3_busy_timeout(db, SETTLE_MS);
  return db;
}

/* ---- the programs ---- */

/* What a process runs.  "=outbox" is an example, "@" the database, "zke" the
 * command; the word after "python3" is the Python program. */
typedef struct role {
  const char *words[WORDS];
  bool adds;   /* not started while much is left to do */
  bool ends;   /* may end by itself */
  bool nested; /* has a child, which must outlive it */
} role;

static const role roles[] = {
    {.words = {"=outbox", "@", "shop", "40"}, .adds = true, .ends = true},
    {.words = {"=outbox", "@", "shop", "40"}, .adds = true, .ends = true},
    {.words = {"=outbox", "@", "mailer"}},
    {.words = {"=outbox", "@", "mailer"}},
    {.words = {"=jobs", "@", "add", "40"}, .adds = true, .ends = true},
    {.words = {"=jobs", "@", "leader"}, .ends = true},
    {.words = {"=jobs", "@", "leader"}, .ends = true},
    {.words = {"=jobs", "@", "worker"}, .ends = true},
    {.words = {"=jobs", "@", "worker"}, .ends = true},
    {.words = {"zke", "@", "lock", "ledger", "--outlive", "--on-lost", "warn",
               "--", "python3", "", "20"},
     .ends = true,
     .nested = true},
    {.words = {"zke", "@", "lock", "ledger", "--outlive", "--on-lost", "warn",
               "--", "python3", "", "20"},
     .ends = true,
     .nested = true},
};

enum { SLOTS = sizeof roles / sizeof *roles };

typedef struct slot {
  pid_t pid; /* and its process group; 0: none */
  bool stopped;
  int64_t go_on; /* ms: when */
} slot;

static slot slots[SLOTS];
static int started;

/* A word as the program gets it; the buffer must live until exec(). */
static char *word(const char *w, char buffer[4200]) {
  const char *text = w;
  if (strcmp(w, "@") == 0) text = database;
  if (strcmp(w, "zke") == 0) text = command;
  if (w[0] == '=')
    snprintf(buffer, 4200, "%s%s", examples, w + 1);
  else
    snprintf(buffer, 4200, "%s", text);
  return buffer;
}

/* In the child: become the program. */
static void become(const role *r) {
  static char buffers[WORDS][4200];
  char *arguments[WORDS + 1] = {NULL};
  int out = open(errors, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  setpgid(0, 0);
  if (out >= 0) dup2(out, 2);
  for (int i = 0; i < WORDS && r->words[i]; i++) {
    bool script = i > 0 && strcmp(r->words[i - 1], "python3") == 0;
    arguments[i] = word(script ? ledger : r->words[i], buffers[i]);
  }
  if (arguments[0]) execvp(arguments[0], arguments);
  perror(arguments[0]);
  _exit(127);
}

static void start(int i) {
  slots[i] = (slot){.pid = program_fork()};
  if (slots[i].pid == 0) become(&roles[i]);
  setpgid(slots[i].pid, slots[i].pid); /* or the child does, which may be
                                          first */
  started++;
}

static void reap(pid_t pid) {
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
}

static void go_on(slot *s) {
  if (s->stopped) kill(-s->pid, SIGCONT);
  s->stopped = false;
}

/* Kill a process, and perhaps its child; a stopped child is continued. */
static void kill_slot(slot *s, bool child) {
  if (!s->pid) return;
  kill(child ? -s->pid : s->pid, SIGKILL);
  go_on(s);
  reap(s->pid);
  s->pid = 0;
}

/* A process has ended by itself.  It is started again if it may end, and ended
 * well or because its session was ended.  False: something is wrong. */
static bool judge_end(int i, int status) {
  const role *r = &roles[i];
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  bool well = code == 0 || code == 3 || (r->nested && code > 0 && code != 127);
  if (r->ends && well) return true;
  fprintf(stderr, "%s %s ended by itself: %x\n", r->words[0], r->words[2],
          (unsigned)status);
  return false;
}

/* The deposer should run until it is killed, so it has failed. */
static bool deposer_ended(int status) {
  deposer = 0;
  fprintf(stderr, "the deposer ended by itself: %x\n", (unsigned)status);
  return false;
}

/* Collect the processes that have ended, including orphans. */
static bool see_ends(void) {
  int status;
  bool good = true;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == deposer) good = deposer_ended(status);
    for (int i = 0; i < SLOTS; i++) {
      if (slots[i].pid != pid) continue;
      slots[i].pid = 0;
      good = judge_end(i, status) && good;
    }
  }
  return good;
}

/* ---- the deposer ---- */

/* A place: its path, how often it is taken, and whether its session may be
 * ended too. */
typedef struct place {
  const char *path;
  int of_twenty; /* its share of twenty acts */
  bool expire;
} place;

/* Python starts slowly, so its lock is taken less often. */
static const place places[] = {{"/boss", 7, true},
                               {"/workers", 4, true},
                               {"/outbox/taken", 6, false},
                               {"/locks/ledger", 3, true}};

static const place *choose_place(int die) {
  const place *p = places;
  for (; die >= p->of_twenty; p++) die -= p->of_twenty;
  return p;
}

/* The child of a place with the lowest number: the holder. */
static const char *first_of(const zke_strings *names) {
  const char *first = NULL, *lowest = NULL;
  for (int i = 0; i < names->count; i++) {
    const char *tail = strrchr(names->data[i], '-');
    if (!tail || (lowest && strcmp(tail, lowest) >= 0)) continue;
    first = names->data[i];
    lowest = tail;
  }
  return first;
}

/* The highest number in a program's table; 0: none, or no table yet. */
static int64_t last_of(sqlite3 *db, const char *table) {
  char sql[60];
  snprintf(sql, sizeof sql, "SELECT coalesce(max(id),0)FROM %s", table);
  int64_t last = number(db, sql);
  return last < 0 ? 0 : last;
}

/* The token that is taken. */
typedef struct loss {
  const char *place;
  int64_t token;
} loss;

/* A zke_sql_fn: note the token, and how far the tables have come.  The token is
 * no longer valid for rows from here on. */
static int note_loss(sqlite3 *db, int64_t zxid, void *context) {
  const loss *l = context;
  char sql[300];
  (void)zxid;
  snprintf(sql, sizeof sql, "INSERT INTO deposed VALUES('%s',%lld,%lld,%lld)",
           l->place, (long long)l->token, (long long)last_of(db, "ledger"),
           (long long)last_of(db, "assigned"));
  return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int make_notes(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  return sqlite3_exec(db,
                      "CREATE TABLE deposed(place TEXT,token INTEGER,"
                      "ledger INTEGER,assigned INTEGER)",
                      NULL, NULL, NULL);
}

/* Take an office: end its session and then note that, or delete the znode and
 * note it in the same transaction, if the token is still current. */
static int take_office(zke *z, const char *path, const zke_stat *stat, loss *l,
                       bool expire) {
  zke_op ops[2];
  int rc = expire ? zke_expire(z, stat->ephemeralOwner) : ZKE_OK;
  if (rc != ZKE_OK) return rc;
  zke_op_sql(&ops[0], note_loss, l);
  zke_op_delete(&ops[1], path, stat->version);
  return zke_multi(z, ops, expire ? 1 : 2, NULL);
}

/* Take an office from its holder. */
static void depose(zke *z, const place *p, bool expire) {
  zke_strings *names;
  zke_stat stat = {0};
  char path[4200];
  if (zke_children(z, p->path, NULL, NULL, &names, NULL) != ZKE_OK) return;
  const char *first = first_of(names);
  snprintf(path, sizeof path, "%s/%s", p->path, first ? first : "none");
  int rc = zke_exists(z, path, NULL, NULL, &stat);
  loss l = {p->path, stat.mzxid};
  expire = expire && p->expire && stat.ephemeralOwner;
  if (rc == ZKE_OK) rc = take_office(z, path, &stat, &l, expire);
  if (rc == ZKE_OK) __atomic_add_fetch(deposed, 1, __ATOMIC_RELAXED);
  zke_free(names);
}

/* The deposer is a separate process because this one opens the database by
 * plain SQLite. */
static pid_t start_deposer(unsigned seed) {
  pid_t pid = program_fork();
  if (pid) return pid;
  zke *z;
  zke_options o = ZKE_INIT(zke_options);
  o.flags = ZKE_OPEN_HOST;
  o.busy_timeout_ms = SETTLE_MS;
  if (zke_open(database, &o, &z) != ZKE_OK) give_up(database, zke_errmsg());
  zke_op notes;
  zke_op_sql(&notes, make_notes, NULL);
  if (zke_multi(z, &notes, 1, NULL) != ZKE_OK) give_up("notes", zke_errmsg());
  for (unsigned random = ~seed;;) {
    poll(NULL, 0, rand_r(&random) % DEPOSE_MS);
    const place *p = choose_place(rand_r(&random) % 20);
    depose(z, p, rand_r(&random) % 3 == 0);
  }
}

/* ---- a run ---- */

/* Work left to do: orders without a mail, and jobs. */
static int64_t left_to_do(sqlite3 *db) {
  return number(db,
                "SELECT(SELECT count(*)FROM orders)-(SELECT count(*)FROM mail)+"
                "(SELECT count(*)FROM jobs WHERE NOT done)");
}

/* Start missing processes, and continue those that were stopped for long
 * enough.  False: a process has ended that should not have. */
static bool tend(bool add) {
  if (!see_ends()) return false;
  for (int i = 0; i < SLOTS; i++) {
    if (slots[i].stopped && slots[i].go_on < program_ms()) go_on(&slots[i]);
    if (!slots[i].pid && (add || !roles[i].adds)) start(i);
  }
  return true;
}

/* Stop a process for a while, or kill it: true.  Slow starters are mostly
 * spared. */
static bool harass(unsigned *random) {
  int i = rand_r(random) % SLOTS;
  slot *s = &slots[i];
  if (!s->pid || s->stopped) return false;
  if (roles[i].nested && rand_r(random) % 4) return false;
  if (rand_r(random) % 3 == 0) {
    kill(-s->pid, SIGSTOP);
    s->stopped = true;
    s->go_on = program_ms() + rand_r(random) % 100;
    return false;
  }
  kill_slot(s, rand_r(random) % 2);
  return true;
}

/* Run until there are enough kills, or time is up.  Returns the kills, or -1:
 * something was wrong. */
static long torment(sqlite3 *db, unsigned seed, long kills) {
  unsigned random = seed;
  long done = 0, seconds = program_setting("SECONDS", 0);
  int64_t began = program_ms(), look = began + CHECK_MS;
  bool add = true;
  while (done < kills && !(seconds && program_ms() - began > seconds * 1000)) {
    if (!tend(add)) return -1;
    poll(NULL, 0, 5 + rand_r(&random) % 40);
    done += harass(&random);
    if (program_ms() < look) continue;
    if (!check_tables(db)) return -1;
    add = left_to_do(db) < BACKLOG;
    look = program_ms() + CHECK_MS;
  }
  return done;
}

/* Kill the deposer.  False: it had ended by itself. */
static bool end_deposer(void) {
  int status = 0;
  if (!deposer) return false;
  kill(deposer, SIGKILL);
  while (waitpid(deposer, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
    return deposer_ended(status);
  deposer = 0;
  return true;
}

/* Does the deposer's table exist?  Without it no rule is checked. */
static bool has_notes(sqlite3 *db) {
  bool can = number(db, "SELECT count(*)FROM deposed") >= 0;
  if (!can) printf("no table of the deposed: no rule was looked at\n");
  return can;
}

/* Kill all, including children that have outlived their parents. */
static void end_all(void) {
  for (int i = 0; i < SLOTS; i++) kill_slot(&slots[i], true);
  int64_t end = program_ms() + SETTLE_MS;
  while (waitpid(-1, NULL, WNOHANG) >= 0 && program_ms() < end)
    poll(NULL, 0, 5);
}

/* One process of each kind finishes what the dead have left.  False: it was not
 * finished. */
static bool settle(sqlite3 *db) {
  int64_t end = program_ms() + SETTLE_MS;
  bool good = true;
  for (int i = 0; i < SLOTS; i++)
    if (!roles[i].adds && !roles[i].nested) start(i);
  while (left_to_do(db) != 0 && good && program_ms() < end) {
    poll(NULL, 0, 5);
    good = see_ends();
  }
  int64_t left = left_to_do(db);
  if (left) printf("not done in the end: %lld\n", (long long)left);
  end_all();
  return good && !left;
}

/* zke FILE check */
static bool is_whole(void) {
  pid_t pid = program_fork();
  int status = -1;
  if (pid == 0) execl(command, command, database, "check", (char *)NULL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return status == 0;
}

/* Print how much was done, so a run that did little is noticed. */
static void count_done(sqlite3 *db) {
  static const char *const what[][2] = {
      {"orders", "SELECT count(*)FROM orders"},
      {"mails", "SELECT count(*)FROM mail"},
      {"results", "SELECT count(*)FROM results"},
      {"assignments", "SELECT count(*)FROM assigned"},
      {"leaders", "SELECT count(DISTINCT token)FROM assigned"},
      {"lines of the ledger", "SELECT count(*)FROM ledger"},
      {"holders", "SELECT count(DISTINCT token)FROM ledger"},
      {"leaders deposed", "SELECT count(*)FROM deposed WHERE place='/boss'"},
      {"holders deposed",
       "SELECT count(*)FROM deposed WHERE place='/locks/ledger'"}};
  for (size_t i = 0; i < sizeof what / sizeof *what; i++)
    printf("%lld %s, ", (long long)number(db, what[i][1]), what[i][0]);
  printf("%d processes, %d deposed\n", started, *deposed);
}

static void choose_directory(const char *given) {
  program_directory(directory, sizeof directory, "zke-host", given, true);
  snprintf(database, sizeof database, "%s/shop.db", directory);
  snprintf(errors, sizeof errors, "%s/errors", directory);
}

/* Adopt orphans, so that this process can wait for them. */
static void prepare(char **argv) {
  examples = argv[1];
  command = argv[2];
  ledger = argv[3];
  choose_directory(argv[4]);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  deposed = program_share(sizeof *deposed);
}

int main(int argc, char **argv) {
  if (argc != 5) give_up("usage", "PREFIX ZKE LEDGER DIRECTORY");
  unsigned seed = program_seed();
  prepare(argv);
  deposer = start_deposer(seed);
  while (see_ends() && access(database, F_OK) != 0) poll(NULL, 0, 5);
  if (!deposer) give_up(database, "was not made");
  sqlite3 *db = open_tables();
  long kills = torment(db, seed, program_setting("KILLS", 300));
  bool good = end_deposer() && kills >= 0;
  end_all();
  good = good && settle(db) && check_tables(db) && has_notes(db);
  count_done(db);
  sqlite3_close(db);
  good = is_whole() && good;
  printf("host_torture: %ld kills, %s\n", kills, good ? "good" : "BAD");
  program_clean_up(directory, good);
  return good ? 0 : 1;
}
