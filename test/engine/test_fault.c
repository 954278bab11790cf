/* test_fault.c - one fault in the middle of every public function
 *
 * A case is a few lines: a name, a preparation, one call.  The loop runs it
 * once undisturbed, and notes its result and the state of the database before
 * and after.  Then it runs it again and again, each time on a new handle, with
 * the 1st, 2nd, 3rd ... step of a kind failing, until the call ends before the
 * fault is reached.  There are four kinds of steps:
 *
 *   heap    an allocation of the handle's allocator
 *   sqlite  an allocation of SQLite's (SQLITE_CONFIG_MALLOC)
 *   system  a call of the table of system calls (options.os), with each of a
 *           few errors of that call
 *   disk    a call of SQLite's VFS (options.vfs), likewise
 *
 * Each fails once, or from that step on.  After each fault
 *
 *   - the result is the undisturbed one, or one that reports the fault, with
 *     a sentence; on failure no output is touched;
 *   - the tree, the watches, the sessions and the events of another session
 *     are as after an undisturbed call if the call succeeds, as before it if
 *     it fails, and either if it returns ZKE_CONNECTIONLOSS (P2);
 *   - the handle works, with its changes synced (P8), or its session has
 *     ended; no block and no descriptor is left when it is closed;
 *   - zke_check() finds nothing, and the other session is unchanged; a check
 *     that finds nothing despite the fault has read all in one snapshot.
 *
 * The test has its own clock, which a sleep advances.  So no call really waits,
 * and one that would hang is noticed.
 *
 *   test_fault [heap|sqlite|system|disk]
 *   FAULT_CASE=text  only the cases whose name contains it
 *   FAULT_MOST=n     at most n steps of a case, evenly spread; 0: all
 *   FAULT_ALIKE=n    at most n steps below the same calls of the engine, in
 *                    all cases together (1); 0: all
 *   SAMPLE=2, FULL=1  twice as many of those steps, or all, instead of every
 *                    tenth
 *
 * Cases repeat much of each other: the same calls of the engine reach the same
 * step.  So only one such step is tried.  There all calls of one function fail
 * with the first of its errors only, and all steps from there on fail at every
 * third step only.  FAULT_ALIKE=0 tries everything.  Without FULL a case tries
 * every tenth of its steps, at least one; its neighbours try others.
 */
#include "test/program.h"
#include "test/seam.h"
#include "test/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <unwind.h>

/* ------------------------------------------------------------------------
 * The fault: which step of which kind goes wrong, and how
 * --------------------------------------------------------------------- */

enum kind { HEAP, SQLITE, SYSTEM, DISK, KINDS };
static const char *const kind_names[KINDS] = {"heap", "sqlite", "system",
                                              "disk"};

/* Which later steps fail too: none, all, or all of the same function. */
enum spread { ONCE, ALL, SAME };
static const char *const spread_names[] = {"", " and all on",
                                           " and the same on"};

static struct fault {
  enum kind kind;
  bool armed; /* only while the call under test runs */
  long at;    /* this step; 0: none */
  enum spread spread;
  int variant;        /* which of the step's errors */
  int variants;       /* out: how many it has */
  long steps;         /* out: steps up to now */
  bool reached;       /* out */
  seam_kind function; /* out: the step's */
  long calls;         /* of all kinds, to notice an endless loop */
} fault;

enum { ENDLESS = 200000 }; /* calls */

/* ------------------------------------------------------------------------
 * Where a test stands, for its messages; survives it in shared memory
 * --------------------------------------------------------------------- */

#define MOST_CASES 160
enum { STACKS = 1 << 14 };
static struct shared {
  long steps[KINDS], points[KINDS];
  struct {
    uint64_t hash; /* of the engine's calls above a step; 0: free */
    long times;
  } stacks[STACKS];
  char stands[KINDS][MOST_CASES][200]; /* "" after a test has ended */
} * shared;
static char *point; /* the running test's */

/* ------------------------------------------------------------------------
 * Which steps are tried
 * --------------------------------------------------------------------- */

enum { MOST_STEPS = 1 << 16 };
enum { SAMPLED = 10 }; /* every n-th step of a case is tried: test_stride() */
static bool dull[MOST_STEPS]; /* by step: enough similar ones were tried */

/* All are tried if FAULT_MOST limits a case's steps. */
static long most_alike(void) {
  long most = program_setting("FAULT_ALIKE", getenv("FAULT_MOST") ? 0 : 1);
  return most > 0 ? most : LONG_MAX;
}

static int call_with_fault(void);
extern char __executable_start, etext; /* by the linker: our code's bounds */

/* Hashes the calls of the engine and of the case.  SQLite's own calls are left
 * out: they differ in each way to prepare a statement. */
static _Unwind_Reason_Code hash_frame(struct _Unwind_Context *c, void *hash) {
  uintptr_t at = (uintptr_t)_Unwind_GetIP(c);
  uint64_t *h = hash;
  if ((uintptr_t)_Unwind_GetRegionStart(c) == (uintptr_t)call_with_fault)
    return _URC_NORMAL_STOP;
  if (at >= (uintptr_t)&__executable_start && at < (uintptr_t)&etext)
    *h = (*h ^ at) * UINT64_C(1099511628211);
  return _URC_NO_REASON;
}

/* How often this stack was met before, in all cases.  If the table is full,
 * unknown stacks count as new. */
static long times_met(enum kind kind) {
  uint64_t hash = UINT64_C(14695981039346656037) + kind;
  _Unwind_Backtrace(hash_frame, &hash);
  hash |= 1;
  for (int i = 0; i < 100; i++) {
    uint64_t at = (hash / 2 + (uint64_t)i) % STACKS;
    if (!shared->stacks[at].hash) shared->stacks[at].hash = hash;
    if (shared->stacks[at].hash == hash) return shared->stacks[at].times++;
  }
  return 0;
}

/* In the undisturbed run: should a fault be tried at the step? */
static void note_step(enum kind kind, long step) {
  if (step < MOST_STEPS) dull[step] = times_met(kind) >= most_alike();
}

/* ---- the fault itself ---- */

/* Does this step, a call of `function`, fail, and with which of `errors`, a
 * list that ends with 0?  Returns 0 if it does not fail. */
static int fault_pick(enum kind kind, seam_kind function, const int *errors) {
  if (!fault.armed || fault.kind != kind) return 0;
  long step = ++fault.steps;
  if (!fault.at) note_step(kind, step);
  if (!fault.at || step < fault.at) return 0;
  if (step == fault.at) {
    fault.reached = true;
    fault.function = function;
    for (fault.variants = 0; errors[fault.variants];) fault.variants++;
    return errors[fault.variant % fault.variants];
  }
  if (fault.spread == ALL) return errors[0];
  bool same = fault.spread == SAME && function == fault.function;
  return same ? errors[fault.variant % fault.variants] : 0;
}

/* End the test, and name the point it has reached. */
__attribute__((format(printf, 1, 2), noreturn)) static void stop_at(
    const char *format, ...) {
  char text[8000];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  ck_abort_msg("%s: %s", point, text);
  abort();
}

#define must(condition, ...)                \
  do {                                      \
    if (!(condition)) stop_at(__VA_ARGS__); \
  } while (0)
#define must_rc(expression, expected)                                 \
  do {                                                                \
    int must_got_ = (expression);                                     \
    must(must_got_ == (expected), "line %d: %s: got %s (%s), not %s", \
         __LINE__, #expression, zke_error_name(must_got_),            \
         must_got_ ? zke_errmsg() : "", zke_error_name(expected));    \
  } while (0)
#define must_ok(expression) must_rc(expression, ZKE_OK)

/* A text that grows. */
typedef struct text {
  size_t len;
  char s[6000];
} text;

__attribute__((format(printf, 2, 3))) static void text_add(text *t,
                                                           const char *format,
                                                           ...) {
  va_list ap;
  va_start(ap, format);
  int n = vsnprintf(t->s + t->len, sizeof t->s - t->len, format, ap);
  va_end(ap);
  t->len += (size_t)n;
  must(t->len < sizeof t->s, "a text of the test is full");
}

/* ------------------------------------------------------------------------
 * Kind sqlite: SQLite's allocator
 * --------------------------------------------------------------------- */

static sqlite3_mem_methods mem_real;
static long mem_live;

/* All allocations count as one function. */
static bool mem_fails(void) {
  return fault_pick(SQLITE, SEAM_KINDS, (const int[]){1, 0}) != 0;
}

static void *mem_malloc(int size) {
  void *block = mem_fails() ? NULL : mem_real.xMalloc(size);
  mem_live += block != NULL;
  return block;
}

static void *mem_realloc(void *block, int size) {
  return mem_fails() ? NULL : mem_real.xRealloc(block, size);
}

static void mem_free(void *block) {
  mem_live -= block != NULL;
  mem_real.xFree(block);
}

/* Called before SQLite is used.  Without look-aside memory every allocation
 * comes through here. */
static void mem_install(void) {
  sqlite3_config(SQLITE_CONFIG_GETMALLOC, &mem_real);
  sqlite3_mem_methods mine = mem_real;
  mine.xMalloc = mem_malloc;
  mine.xRealloc = mem_realloc;
  mine.xFree = mem_free;
  sqlite3_config(SQLITE_CONFIG_MALLOC, &mine);
  sqlite3_config(SQLITE_CONFIG_LOOKASIDE, 0, 0);
}

/* ------------------------------------------------------------------------
 * Kinds system and disk: the calls that go through seams
 *
 * Calls that cannot fail for the kernel (unlocking, the clock) do not fail
 * here; close() reports an error and has closed all the same.
 * --------------------------------------------------------------------- */

enum { PART = 10000 }; /* no error: only a part is done */

static const int errors_of[SEAM_KINDS][6] = {
    [SEAM_open] = {-EMFILE, -EACCES, -EIO, -ENOMEM, -ENOSPC},
    [SEAM_close] = {-EIO, -EINTR},
    [SEAM_dup] = {-EMFILE},
    [SEAM_read] = {-EIO, -EINTR, PART},
    [SEAM_write] = {-EIO, -EPIPE, -EAGAIN, PART},
    [SEAM_pread] = {-EIO, -EINTR, PART},
    [SEAM_pwrite] = {-ENOSPC, -EIO, PART},
    [SEAM_stat] = {-EACCES, -EIO, -ENOMEM},
    [SEAM_fstat] = {-EIO, -ENOMEM},
    [SEAM_fsync] = {-EIO, -ENOSPC, -EINVAL},
    [SEAM_adopt] = {-EPERM, -EIO, -EROFS},
    [SEAM_mkdir] = {-EACCES, -ENOSPC, -EIO},
    [SEAM_mkfifo] = {-ENOSPC, -EACCES, -EIO},
    [SEAM_mkfile] = {-ENOSPC, -EACCES, -EIO},
    [SEAM_share] = {-EPERM, -EIO, -EROFS},
    [SEAM_unlink] = {-EACCES, -EIO},
    [SEAM_list] = {-EACCES, -EMFILE, -EIO},
    [SEAM_network] = {-EIO, -ENOSYS},
    [SEAM_pipe] = {-EMFILE, -ENFILE},
    [SEAM_lock] = {-ENOLCK, -EIO, -EINTR, -EAGAIN},
    [SEAM_lock_range] = {-ENOLCK, -EIO, -EINTR, -EAGAIN},
    [SEAM_probe] = {-EIO, -EINTR, -ENOLCK},
    [SEAM_find_lock] = {-EIO, -EINTR, -ENOLCK},
    [SEAM_poll] = {-EINTR, -ENOMEM},
    [SEAM_poller] = {-EMFILE, -ENOMEM},
    [SEAM_poller_add] = {-ENOSPC, -ENOMEM},
    [SEAM_poller_remove] = {-ENOENT, -EBADF},
    [SEAM_timer] = {-EMFILE, -ENOMEM},
    [SEAM_timer_set] = {-EINVAL, -ECANCELED},
    [SEAM_random] = {-EIO},
    [SEAM_boot_id] = {-EACCES, -EIO},
    [SEAM_process_name] = {-EACCES, -EIO},
    [SEAM_boot_offset] = {-EIO, -EINTR},
    [SEAM_xOpen] = {SQLITE_CANTOPEN, SQLITE_IOERR},
    [SEAM_xDelete] = {SQLITE_IOERR_DELETE},
    [SEAM_xAccess] = {SQLITE_IOERR_ACCESS},
    [SEAM_xFullPathname] = {SQLITE_CANTOPEN},
    [SEAM_xRead] = {SQLITE_IOERR_READ},
    [SEAM_xWrite] = {SQLITE_FULL, SQLITE_IOERR_WRITE, PART},
    [SEAM_xTruncate] = {SQLITE_IOERR_TRUNCATE},
    [SEAM_xSync] = {SQLITE_IOERR_FSYNC},
    [SEAM_xFileSize] = {SQLITE_IOERR_FSTAT},
    [SEAM_xLock] = {SQLITE_IOERR_LOCK, SQLITE_BUSY},
    [SEAM_xCheckReservedLock] = {SQLITE_IOERR_CHECKRESERVEDLOCK},
    [SEAM_xShmMap] = {SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHMSIZE, SQLITE_NOMEM},
    [SEAM_xShmLock] = {SQLITE_IOERR_SHMLOCK, SQLITE_BUSY},
};

static bool torn; /* the current write */

/* Do only a part.  SQLite gets an error; the library has to notice. */
static void do_a_part(seam_call *c) {
  if (c->kind == SEAM_write) seam_refuse(c, 0);
  torn = c->kind == SEAM_xWrite;
  c->size = c->kind == SEAM_read ? 1 : c->size / 2;
}

/* Decides whether a call fails.  It also notices an endless loop. */
static void break_call(seam_call *c) {
  enum kind kind = c->kind < SEAM_xOpen ? SYSTEM : DISK;
  const int *errors = errors_of[c->kind];
  must(!fault.armed || ++fault.calls < ENDLESS, "an endless loop");
  int error =
      errors[0] && !seam_unlocks(c) ? fault_pick(kind, c->kind, errors) : 0;
  if (error == PART)
    do_a_part(c);
  else if (error)
    seam_refuse(c, error);
}

/* ---- who makes system calls ---- */

typedef struct side {
  seam calls;
  int life; /* the descriptor whose lock is the session's life */
  int fifo[2];
} side;

/* Note the first two FIFOs that are opened: they wake the handle. */
static void note_fifo(seam_call *c) {
  side *s = c->seam->context;
  if (c->result >= 0 && (c->how & O_NONBLOCK) && s->fifo[1] == 0)
    s->fifo[s->fifo[0] != 0] = (int)c->result;
}

static void note_life(seam_call *c) {
  side *s = c->seam->context;
  bool locked = c->result == 0 && c->how != ZKE_LOCK_NONE;
  if (locked && c->at >> 32) s->life = c->fd;
}

/* The clock advances a little at each reading. */
static void tell_time(seam_call *c) {
  int64_t epoch =
      c->how == ZKE_CLOCK_REALTIME ? INT64_C(1700000000000000000) : 0;
  seam_refuse(c, epoch + (seam_ahead += 100));
}

/* Time also passes in a poll that fails. */
static void end_poll(seam_call *c) {
  seam_pass(c->time > 0);
  must(c->result || c->time >= 0, "it waits for ever");
}

/* Always the same, so that a case takes the same steps each time. */
static void no_chance(seam_call *c) {
  memset(c->data, 42, c->size);
  seam_refuse(c, 0);
}

static const zke_os *begin_side(side *s) {
  *s = (side){
      .calls = {.context = s,
                .each = break_call,
                .before = {[SEAM_clock] = tell_time, [SEAM_random] = no_chance},
                .after = {[SEAM_open] = note_fifo,
                          [SEAM_lock] = note_life,
                          [SEAM_poll] = end_poll}}};
  return seam_os(&s->calls);
}

/* ---- the disk ---- */

static long wal_syncs;
static long snapshots; /* read locks taken */

static void end_write(seam_call *c) {
  if (torn) c->result = SQLITE_IOERR_WRITE;
  torn = false;
}

static void count_sync(seam_call *c) {
  wal_syncs += c->result == SQLITE_OK && (c->opened_as & SQLITE_OPEN_WAL);
}

static void count_snapshot(seam_call *c) {
  int read_lock = SQLITE_SHM_LOCK | SQLITE_SHM_SHARED;
  snapshots += !c->refused && (c->how & read_lock) == read_lock;
}

static seam disk = {.vfs = "unix-fault",
                    .each = break_call,
                    .after = {[SEAM_xWrite] = end_write,
                              [SEAM_xSync] = count_sync,
                              [SEAM_xShmLock] = count_snapshot},
                    .fail = {[SEAM_xSync] = {.result = SQLITE_IOERR_FSYNC}}};

/* ------------------------------------------------------------------------
 * The case and its surroundings
 * --------------------------------------------------------------------- */

enum {
  OPENS = 1,  /* the call sets t.opened */
  FIRST = 2,  /* it is zke_open(): there is no t.z before */
  FRESH = 4,  /* on its own database, which no other handle has open */
  CLOSES = 8, /* the call closes t.z */
  ENDS = 16,  /* it ends t.z's session */
  TRIES = 32, /* failed work is deferred: calling again completes it */
  FILE_ONLY = 64,
  MEMORY_ONLY = 128,
  CHECKS = 256, /* the call is zke_check() */
  LOSES = 512   /* ZKE_CONNECTIONLOSS may mean lack of memory */
};

typedef struct fault_case {
  const char *name;
  void (*prepare)(void); /* in addition to the common tree; or NULL */
  int (*call)(void);
  unsigned flags;
  int rc;           /* of the undisturbed call */
  int mode, len;    /* for the call's use */
  zke_options with; /* of t.z, or of what is opened */
  long most;        /* points, if it is slow */
} fault_case;

/* The outputs of calls, filled with a pattern before. */
typedef struct outputs {
  char *path, *data;
  int len, count, fd;
  int64_t number;
  zke_stat stat;
  zke_strings *names;
  zke_acls *acls;
  zke_session_list *sessions;
  zke_watch_list *watches;
  zke_op_result results[3];
} outputs;

/* The state of one point of a case. */
static struct {
  const fault_case *c;
  bool memory;
  const char *name;
  zke_options options; /* to open t.z */
  zke *z;              /* the handle under test */
  zke *opened;         /* what the call opens */
  zke *victim, *dead;  /* further sessions of the other store, or a dead one */
  outputs out;
  text seen;          /* events that t.z's watchers got */
  text heard;         /* events that the other session got */
  char sentence[512]; /* of the call */
} t;

/* The other session.  On a file it has its own store, which lives as long as
 * the test; in memory it is a further session of t.z's store. */
static zke *other;

static int64_t kept_id; /* a session that must end with the case; or 0 */

static side side_z, side_other, side_dead;
static test_heap heap;

static void note(zke *z, int type, int state, const char *path, void *context) {
  (void)z;
  text_add(context, "%d/%d %s; ", type, state, path);
}

/* A second watcher for the same path, distinguished by its context. */
static void note_more(zke *z, int type, int state, const char *path,
                      void *context) {
  const char *which = context;
  (void)z;
  text_add(&t.seen, "%s %d/%d %s; ", which, type, state, path);
}

/* ---- text of things ---- */

/* A session by its role in the case, which is the same each time. */
static const char *role(int64_t id) {
  if (id == 0) return "-";
  if (id == zke_session_id(t.z)) return "Z";
  if (id == zke_session_id(other)) return "O";
  if (id == zke_session_id(t.victim)) return "V";
  if (id == zke_session_id(t.dead)) return "D";
  return id == zke_session_id(t.opened) ? "N" : "?";
}

static void text_add_stat(text *x, const zke_stat *s) {
  text_add(x, " v%d c%d a%d %d bytes %d children owner %s%s", s->version,
           s->cversion, s->aversion, s->dataLength, s->numChildren,
           role(s->ephemeralOwner), s->czxid == s->mzxid ? "" : " set");
}

static void text_add_data(text *x, const char *data, int len) {
  unsigned sum = 0;
  for (int i = 0; i < len; i++) sum = sum * 31 + (unsigned char)data[i];
  text_add(x, " %d:%.9s:%x", len, len > 0 ? data : "", sum);
}

static void text_add_acls(text *x, const zke_acls *acls) {
  for (int i = 0; i < acls->count; i++)
    text_add(x, " %d:%s:%s", acls->data[i].perms, acls->data[i].scheme,
             acls->data[i].id);
}

/* A node and its descendants, as the other session sees them. */
static void text_add_tree(text *x, const char *path) {
  char *data = NULL, below[300];
  int len = 0;
  zke_stat stat;
  zke_strings *names = NULL;
  zke_acls *acls = NULL;
  must_ok(zke_get(other, path, NULL, NULL, &data, &len, &stat));
  must_ok(zke_get_acl(other, path, &acls, NULL));
  must_ok(zke_children(other, path, NULL, NULL, &names, NULL));
  text_add(x, "%s", path);
  text_add_data(x, data, len);
  if (path[1]) text_add_stat(x, &stat); /* the root's counters grow */
  if (acls->count != 1 || acls->data[0].perms != 31) text_add_acls(x, acls);
  text_add(x, "\n");
  must(names->count == stat.numChildren, "%s: numChildren", path);
  for (int i = 0; i < names->count; i++) {
    if (strcmp(names->data[i], "zookeeper") == 0) continue;
    snprintf(below, sizeof below, "%s/%s", path[1] ? path : "", names->data[i]);
    text_add_tree(x, below);
  }
  zke_free(data);
  zke_free(acls);
  zke_free(names);
}

static void text_add_sessions(text *x, const zke_session_list *list) {
  for (int i = 0; i < list->count; i++) {
    const zke_session_info *s = &list->data[i];
    if (s->alive)
      text_add(x, "session %s %d ephemerals lease %d\n", role(s->id),
               s->ephemerals, (int)s->lease_ms);
  }
}

static void text_add_watches(text *x, const zke_watch_list *list) {
  for (int i = 0; i < list->count; i++) {
    const zke_watch_info *w = &list->data[i];
    text_add(x, "watch %s %s type %d mode %d owner %s\n", w->path,
             role(w->session), w->type, w->mode, role(w->owner));
  }
}

/* Everything that a change can affect. */
static void look(text *x) {
  zke_session_list *sessions = NULL;
  zke_watch_list *watches = NULL;
  x->len = 0;
  text_add_tree(x, "/");
  must_ok(zke_sessions(other, -1, &sessions));
  must_ok(zke_watches(other, &watches));
  text_add_sessions(x, sessions);
  text_add_watches(x, watches);
  zke_free(sessions);
  zke_free(watches);
  must_ok(zke_dispatch(other, NULL));
  text_add(x, "heard %s\n", t.heard.s);
}

/* ---- outputs ---- */

static outputs pattern;

static void outputs_reset(void) {
  memset(&pattern, 0xa5, sizeof pattern);
  t.out = pattern;
}

#define IS_SET(member) \
  (memcmp(&t.out.member, &pattern.member, sizeof pattern.member) != 0)

static void text_add_results(text *x) {
  for (int i = 0; i < 3 && IS_SET(results[i]); i++) {
    const zke_op_result *r = &t.out.results[i];
    text_add(x, "result %d %s", r->rc, r->path ? r->path : "");
    text_add_stat(x, &r->stat);
    if (r->data) text_add_data(x, r->data, r->len);
    for (int k = 0; r->children && k < r->children->count; k++)
      text_add(x, " %s", r->children->data[k]);
  }
}

/* All outputs that were set. */
static void text_add_outputs(text *x) {
  const outputs *o = &t.out;
  if (IS_SET(path)) text_add(x, "path %s ", o->path);
  if (IS_SET(len)) text_add(x, "len %d ", o->len);
  if (IS_SET(data)) text_add_data(x, o->data, IS_SET(len) ? o->len : 0);
  if (IS_SET(count)) text_add(x, "count %d ", o->count);
  if (IS_SET(fd)) text_add(x, "fd %s ", o->fd >= 0 ? "good" : "bad");
  if (IS_SET(number)) text_add(x, "number %d ", (int)o->number);
  if (IS_SET(stat)) text_add_stat(x, &o->stat);
  for (int i = 0; IS_SET(names) && i < o->names->count; i++)
    text_add(x, " %s", o->names->data[i]);
  if (IS_SET(acls)) text_add_acls(x, o->acls);
  if (IS_SET(sessions)) text_add_sessions(x, o->sessions);
  if (IS_SET(watches)) text_add_watches(x, o->watches);
  text_add_results(x);
}

/* Free everything that a call has returned. */
static void outputs_free(void) {
  if (IS_SET(path)) zke_free(t.out.path);
  if (IS_SET(data)) zke_free(t.out.data);
  if (IS_SET(names)) zke_free(t.out.names);
  if (IS_SET(acls)) zke_free(t.out.acls);
  if (IS_SET(sessions)) zke_free(t.out.sessions);
  if (IS_SET(watches)) zke_free(t.out.watches);
  for (int i = 0; i < 3 && IS_SET(results[i]); i++)
    zke_results_clear(&t.out.results[i], 1);
  outputs_reset();
}

/* ---- the common tree ---- */

enum { LARGE = 300 };
static char bytes[1 << 20]; /* stored data; "small" is its beginning */

/* A handle whose allocations, system calls and files can fail. */
static zke *open_with(const char *name, side *s) {
  zke_options o = {.size = sizeof o,
                   .vfs = seam_vfs(&disk),
                   .os = begin_side(s),
                   .lease_ms = 600000};
  zke *z = NULL;
  must_ok(zke_open(name, &o, &z));
  return z;
}

/* Give the other session what the cases expect. */
static void settle_other(void) {
  must_ok(zke_add_auth(other, "digest", "u:pw", 4));
  must_ok(
      zke_create(other, "/o", "o", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL));
  must_ok(zke_add_watch(other, "/t", ZKE_WATCH_PERSISTENT_RECURSIVE, note,
                        &t.heard));
}

/* The nodes that every case begins with. */
static void plant_tree(void) {
  static const struct {
    const char *path;
    int len, mode;
    const zke_acls *acls;
  } nodes[] = {
      {"/t", 0, ZKE_PERSISTENT, ZKE_OPEN_ACL},
      {"/t/small", 5, ZKE_PERSISTENT, ZKE_OPEN_ACL},
      {"/t/large", LARGE, ZKE_PERSISTENT, ZKE_OPEN_ACL},
      {"/t/null", -1, ZKE_PERSISTENT, ZKE_OPEN_ACL},
      {"/t/dir", 1, ZKE_PERSISTENT, ZKE_OPEN_ACL},
      {"/t/dir/a", 1, ZKE_PERSISTENT, ZKE_OPEN_ACL},
      {"/t/dir/b", 1, ZKE_PERSISTENT, ZKE_OPEN_ACL},
      {"/t/secret", 6, ZKE_PERSISTENT, ZKE_CREATOR_ALL_ACL},
      {"/t/eph", 3, ZKE_EPHEMERAL, ZKE_OPEN_ACL},
  };
  enum { N = sizeof nodes / sizeof *nodes };
  zke_op ops[N];
  for (int i = 0; i < N; i++)
    zke_op_create(&ops[i], nodes[i].path, bytes, nodes[i].len, nodes[i].acls,
                  nodes[i].mode);
  must_ok(zke_multi(other, ops, N, NULL));
}

/* Delete a node and its descendants. */
enum { MOST_NODES = 64 };

/* Add the operations that delete a node and its descendants, deepest first,
 * after `count` others.  Returns the new count. */
static int collect_tree(zke_op *ops, int count, const char *path) {
  static char paths[MOST_NODES][300];
  zke_strings *names = NULL;
  char below[300];
  must_ok(zke_children(other, path, NULL, NULL, &names, NULL));
  for (int i = 0; i < names->count; i++) {
    snprintf(below, sizeof below, "%s/%s", path, names->data[i]);
    count = collect_tree(ops, count, below);
  }
  zke_free(names);
  must(count < MOST_NODES, "too many nodes");
  snprintf(paths[count], sizeof paths[count], "%s", path);
  zke_op_delete(&ops[count], paths[count], -1);
  return count + 1;
}

static void delete_tree(const char *path) {
  zke_op ops[MOST_NODES];
  int count = collect_tree(ops, 0, path);
  must_ok(zke_multi(other, ops, count, NULL));
}

/* Remove a database and its side files. */
static void remove_database(const char *name) {
  static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
  char path[5000];
  for (int i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "%s%s", name, suffixes[i]);
    unlink(path);
  }
  snprintf(path, sizeof path, "%s-zke", name);
  DIR *d = opendir(path);
  for (struct dirent *e; d && (e = readdir(d)) != NULL;)
    unlinkat(dirfd(d), e->d_name, 0);
  if (d) closedir(d);
  rmdir(path);
}

/* ---- beginning and end of a point ---- */

static bool has(unsigned flag) { return (t.c->flags & flag) != 0; }

static void open_other(void) {
  if (!t.memory)
    other = open_with(t.name, &side_other);
  else
    must_ok(zke_open_session(t.z, NULL, &other));
  settle_other();
}

/* Make the handles and nodes that the case needs. */
static void begin(const fault_case *c, bool memory, const char *name) {
  memset(&t, 0, sizeof t);
  memset(&heap, 0, sizeof heap);
  t.c = c;
  t.memory = memory;
  t.name = memory ? ":memory:" : name;
  t.options = c->with;
  t.options.size = sizeof t.options;
  t.options.vfs = seam_vfs(&disk);
  if (!t.options.busy_timeout_ms) t.options.busy_timeout_ms = 200;
  t.options.os = begin_side(&side_z);
  t.options.allocator = (zke_allocator){test_heap_resize, &heap};
  seam_pass(2000);
  bool alone = has(FRESH) || (memory && has(FIRST));
  if (!memory && !alone) {
    if (!other) open_other();
    plant_tree();
  }
  if (!has(FIRST)) must_ok(zke_open(t.name, &t.options, &t.z));
  if (memory && !alone) {
    open_other();
    plant_tree();
  }
  if (c->prepare) c->prepare();
  if (other) must_ok(zke_dispatch(other, NULL));
  t.seen.len = t.heard.len = 0;
  t.seen.s[0] = t.heard.s[0] = '\0';
}

/* After the call: open the handles that are still missing, without faults. */
static void join(bool ok) {
  if (has(CLOSES)) t.z = NULL;
  if (has(FIRST)) {
    t.z = t.opened;
    t.opened = NULL;
  }
  if (has(FRESH) && has(FIRST) && !ok && !t.memory)
    must_ok(zke_open(t.name, &t.options, &t.z));
  if (!other && (t.z || !t.memory)) open_other();
}

static void tell_violation(void *context, const char *sentence) {
  text_add(context, "%s; ", sentence);
}

/* The other session lives and has kept its nodes, and the database is sound. */
static void check_other(void) {
  static text found;
  zke_stat stat;
  zke_session_list *list = NULL;
  found.len = 0;
  int rc = zke_check(other, tell_violation, &found);
  must(rc == ZKE_OK, "zke_check: %s: %s", zke_errmsg(), found.s);
  must(zke_state(other) == ZKE_STATE_CONNECTED, "the other session is lost");
  must_ok(zke_exists(other, "/o", NULL, NULL, &stat));
  must(stat.ephemeralOwner == zke_session_id(other), "whose is /o?");
  must_ok(zke_sessions(other, -1, &list));
  must(list->count == 1, "%d sessions where one is open", list->count);
  zke_free(list);
}

static void close_one(zke **z) {
  if (*z) must_ok(zke_close(*z));
  *z = NULL;
}

/* Let the other session find the dead ones. */
static void sweep(void) {
  seam_pass(1100);
  must_ok(zke_dispatch(other, NULL));
}

/* Close everything, dead sessions too: only what the other session keeps for
 * the next round is left. */
static void end(void) {
  bool stays = !t.memory && !has(FRESH);
  close_one(&t.opened);
  close_one(&t.victim);
  if (kept_id && other) zke_expire(other, kept_id);
  kept_id = 0;
  close_one(&t.z);
  close_one(&t.dead);
  if (other) {
    sweep();
    check_other();
    if (stays) delete_tree("/t");
    must_ok(zke_dispatch(other, NULL));
  }
  if (other && !stays) close_one(&other);
  must(heap.live == 0, "%ld blocks are left", heap.live);
  must(side_z.calls.descriptors == 0, "%ld descriptors are left",
       side_z.calls.descriptors);
  if (has(FRESH) && !t.memory) remove_database(t.name);
}

/* ---- judging what a call did ---- */

/* The results of the undisturbed call. */
static struct {
  bool known;
  text before, after, answer, seen;
  long snapshots;
} reference;

/* May this code report a fault of this kind? */
static bool tells_of_fault(int rc) {
  switch (rc) {
    case ZKE_NOMEM:
      return true;
    case ZKE_CONNECTIONLOSS:
      return fault.kind != HEAP || has(LOSES);
    case ZKE_OPERATIONTIMEOUT:
      if (has(TRIES)) return true; /* zke_wait(), whatever the fault */
      return fault.kind == SYSTEM || fault.kind == DISK;
    case ZKE_SYSTEMERROR:
    case ZKE_FULL:
      return fault.kind == SYSTEM || fault.kind == DISK;
    case ZKE_CANTOPEN:
      return has(FIRST) && (fault.kind == SYSTEM || fault.kind == DISK);
    case ZKE_READONLY:
      return fault.kind == SYSTEM;
    default:
      return false;
  }
}

/* A multi also says which operation failed. */
static void judge_results(int rc) {
  int i = 0;
  if (!IS_SET(results[0])) return;
  while (i < 3 && t.out.results[i].rc == ZKE_OK) i++;
  must(i < 3 && t.out.results[i].rc == rc, "results without the code %d", rc);
  for (i++; i < 3 && IS_SET(results[i]); i++)
    must(t.out.results[i].rc == ZKE_RUNTIMEINCONSISTENCY, "result %d", i);
  memcpy(t.out.results, pattern.results, sizeof pattern.results);
}

/* Is it the undisturbed result, or a code and a sentence that report a
 * fault? */
static void judge_answer(int rc) {
  static text answer;
  answer.len = 0;
  answer.s[0] = '\0';
  if (rc == t.c->rc) {
    text_add_outputs(&answer);
    if (!reference.known) reference.answer = answer;
    must(strcmp(answer.s, reference.answer.s) == 0 ||
             (has(TRIES) && fault.reached),
         "it answers %s, not %s", answer.s, reference.answer.s);
    outputs_free();
    return;
  }
  must(tells_of_fault(rc), "got %s: %s", zke_error_name(rc), t.sentence);
  must(t.sentence[0] && !strstr(t.sentence, "handle is NULL"),
       "%s without a sentence", zke_error_name(rc));
  judge_results(rc);
  must(memcmp(&t.out, &pattern, sizeof pattern) == 0,
       "an output is touched though it failed with %s", zke_error_name(rc));
}

/* Call again until the deferred work is done. */
static void try_again(text *now) {
  for (int i = 0; i < 8; i++) {
    seam_pass(1100);
    t.c->call();
    outputs_reset();
    look(now);
    if (strcmp(now->s, reference.after.s) == 0 &&
        strcmp(t.seen.s, reference.seen.s) == 0) {
      return;
    }
  }
}

/* Is the database as before, or as after an undisturbed call, as the result
 * promises? */
static void judge_state(int rc) {
  static text now;
  bool ok = rc == t.c->rc, other_way = false;
  if (has(CLOSES)) sweep();
  look(&now);
  if (!reference.known) {
    reference.after = now;
    reference.seen = t.seen;
    return;
  }
  if (has(TRIES) && fault.reached) try_again(&now);
  bool must_be_done = ok || has(CLOSES | TRIES) || (has(FRESH) && has(FIRST));
  const text *wanted = must_be_done ? &reference.after : &reference.before;
  bool same = strcmp(now.s, wanted->s) == 0;
  if (rc == ZKE_CONNECTIONLOSS)
    other_way = strcmp(now.s, reference.after.s) == 0;
  must(same || other_way, "after %s (%s) there is\n%s--- not\n%s",
       zke_error_name(rc), rc ? t.sentence : "", now.s, wanted->s);
  must(strcmp(t.seen.s, has(TRIES) || ok ? reference.seen.s : "") == 0,
       "after %s the watchers saw %s, not %s", zke_error_name(rc), t.seen.s,
       reference.seen.s);
}

/* The handle works, or its session has ended. */
static void judge_handle(int rc) {
  char *data = NULL;
  if (!t.z) return;
  if (t.options.flags & ZKE_OPEN_READONLY) {
    must_ok(zke_get(t.z, "/t/small", NULL, NULL, &data, NULL, NULL));
    zke_free(data);
    return;
  }
  if (other) sweep(); /* if the other thinks it dead, it will not work */
  long syncs = wal_syncs;
  int got = zke_create(t.z, "/after", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                       NULL, NULL);
  if (has(ENDS) && (has(TRIES) || rc == t.c->rc || rc == ZKE_CONNECTIONLOSS) &&
      (got == ZKE_INVALIDSTATE || got == ZKE_SESSIONEXPIRED)) {
    return;
  }
  must(got == ZKE_OK, "a create afterwards: %s", zke_errmsg());
  must(t.memory || wal_syncs > syncs, "a create afterwards is not synced");
  must_ok(zke_get(t.z, "/after", NULL, NULL, &data, NULL, NULL));
  must(strcmp(data, "x") == 0, "a get afterwards: %s", data);
  zke_free(data);
  must_ok(zke_delete(t.z, "/after", -1));
}

/* zke_check() compares the rows of one snapshot: those of two may differ. */
static void judge_snapshots(int rc, long count) {
  if (!has(CHECKS)) return;
  if (!reference.known) reference.snapshots = count;
  must(rc != t.c->rc || count <= reference.snapshots,
       "it was checked in %ld snapshots", count);
}

/* The call, with the chosen fault. */
__attribute__((noinline)) static int call_with_fault(void) {
  zke *const untouched = (zke *)(void *)bytes;
  outputs_reset();
  if (has(OPENS)) t.opened = untouched;
  zke_create(NULL, "/", NULL, 0, NULL, 0, NULL, NULL); /* sets a sentence */
  long before = snapshots;
  fault.steps = fault.calls = 0;
  fault.reached = false;
  fault.variants = 1;
  long heap_before = heap.calls;
  heap.fail_at = fault.kind == HEAP && fault.at ? heap.calls + fault.at : 0;
  heap.fail_all = fault.spread == ALL;
  fault.armed = true;
  int rc = t.c->call();
  fault.armed = false;
  heap.fail_at = heap.fail_all = 0;
  snprintf(t.sentence, sizeof t.sentence, "%s", zke_errmsg());
  if (fault.kind == HEAP) {
    fault.steps = heap.calls - heap_before;
    fault.reached = fault.at && fault.steps >= fault.at;
  }
  must(!has(OPENS) ||
           ((t.opened != NULL) == (rc == ZKE_OK) && t.opened != untouched),
       "the handle after %s", zke_error_name(rc));
  must(fault.reached || rc == t.c->rc, "undisturbed: %s: %s",
       zke_error_name(rc), t.sentence);
  judge_snapshots(rc, snapshots - before);
  return rc;
}

/* One point: preparation, call, checks. */
static void run_point(const fault_case *c, bool memory, const char *name) {
  begin(c, memory, name);
  if (!reference.known && other) look(&reference.before);
  int rc = call_with_fault();
  judge_answer(rc);
  join(rc == ZKE_OK);
  if (other) judge_state(rc);
  if (has(FIRST) && !t.z && !t.memory)
    must_ok(zke_open(t.name, &t.options, &t.z));
  judge_handle(rc);
  end();
  reference.known = true;
}

/* ------------------------------------------------------------------------
 * The cases: what to prepare, what to call
 * --------------------------------------------------------------------- */

/* ---- opening and closing ---- */

static int call_open(void) { return zke_open(t.name, &t.options, &t.opened); }

static int call_open_session(void) {
  return zke_open_session(t.z, NULL, &t.opened);
}

static int call_close(void) { return zke_close(t.z); }

static int call_expire_victim(void) {
  return zke_expire(t.z, zke_session_id(t.victim));
}

static int call_expire_self(void) {
  return zke_expire(t.z, zke_session_id(t.z));
}

static int call_compact(void) { return zke_compact(t.z, zke_now(t.z) + 50); }

static int call_keepalive(void) {
  int rc = zke_keepalive_fd(t.z, &t.out.fd);
  if (rc == ZKE_OK) side_z.calls.own_os.close(&side_z.calls, t.out.fd);
  return rc;
}

static void make(zke *z, const char *path, int len, int mode) {
  must_ok(zke_create(z, path, bytes, len, ZKE_OPEN_ACL, mode, NULL, NULL));
}

static void other_sets(const char *path) {
  must_ok(zke_set(other, path, "new", 3, -1, NULL));
}

static void watch(const char *path) {
  must_ok(zke_get(t.z, path, note, &t.seen, NULL, NULL, NULL));
}

/* An ephemeral, a watch, a notice of death and a pending event. */
static void be_busy(void) {
  make(t.z, "/t/mine", 1, ZKE_EPHEMERAL);
  watch("/t/small");
  watch("/t/eph");
  other_sets("/t/small");
}

static void leave_something(void) {
  make(t.z, "/kept", LARGE, ZKE_PERSISTENT);
  make(t.z, "/mine", 1, ZKE_EPHEMERAL);
}

/* A FIFO that a killed process left in the side directory. */
static void leave_orphan(void) {
  char path[300];
  snprintf(path, sizeof path, "%s-zke", t.name);
  must(mkdir(path, 0700) == 0, "mkdir %s", path);
  snprintf(path, sizeof path, "%s-zke/0000000100000abc", t.name);
  must(mkfifo(path, 0600) == 0, "mkfifo %s", path);
}

/* The file becomes a program's, by an application_id in its header. */
static void become_the_programs(void) {
  sqlite3 *db;
  must(sqlite3_open(t.name, &db) == SQLITE_OK, "opening %s", t.name);
  int rc = sqlite3_exec(db, "PRAGMA application_id=77;PRAGMA wal_checkpoint",
                        NULL, NULL, NULL);
  must(rc == SQLITE_OK, "%s", sqlite3_errmsg(db));
  sqlite3_close(db);
}

static void open_victim(void) {
  must_ok(zke_open_session(other, NULL, &t.victim));
  make(t.victim, "/t/victim", 1, ZKE_EPHEMERAL);
  watch("/t/victim");
}

static void own_node(void) { make(t.z, "/t/mine", 1, ZKE_EPHEMERAL); }

/* ---- changes ---- */

static void change_tree(void) { make(t.z, "/t/before", 1, ZKE_PERSISTENT); }

static int call_create(void) {
  bool ttl = t.c->mode >= ZKE_PERSISTENT_WITH_TTL;
  const char *path = t.options.chroot ? "/new-" : "/t/new-";
  if (ttl) {
    return zke_create_ttl(t.z, path, bytes, t.c->len, ZKE_OPEN_ACL, t.c->mode,
                          1000000, &t.out.path, &t.out.stat);
  }
  return zke_create(t.z, path, bytes, t.c->len, ZKE_OPEN_ACL, t.c->mode,
                    &t.out.path, &t.out.stat);
}

/* A COMMIT that fails: the next call reopens the database. */
static void break_commit(void) {
  seam_fail(&disk, SEAM_xSync, true);
  must_rc(zke_create(t.z, "/t/lost", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT, NULL,
                     NULL),
          ZKE_CONNECTIONLOSS);
  seam_fail(&disk, SEAM_xSync, false);
}

static void identify(void) { must_ok(zke_add_auth(t.z, "digest", "u:pw", 4)); }

static int call_create_secret(void) {
  return zke_create(t.z, "/t/secret/x", "x", 1, ZKE_CREATOR_ALL_ACL,
                    ZKE_PERSISTENT, &t.out.path, &t.out.stat);
}

static int call_create_taken(void) {
  return zke_create(t.z, "/t/small", "x", 1, ZKE_OPEN_ACL, ZKE_PERSISTENT,
                    &t.out.path, &t.out.stat);
}

static int call_delete_small(void) { return zke_delete(t.z, "/t/small", 0); }
static int call_delete_large(void) { return zke_delete(t.z, "/t/large", -1); }
static int call_delete_mine(void) { return zke_delete(t.z, "/t/mine", -1); }
static int call_delete_full(void) { return zke_delete(t.z, "/t/dir", -1); }

static int call_set_small(void) {
  return zke_set(t.z, "/t/small", bytes, t.c->len, -1, &t.out.stat);
}

static int call_set_large(void) {
  return zke_set(t.z, "/t/large", bytes, t.c->len, -1, &t.out.stat);
}

static int call_set_watched(void) {
  return zke_set(t.z, "/t/dir/a", "new", 3, -1, &t.out.stat);
}

static int call_create_boxed(void) {
  return zke_create(t.z, "/t/box/y", "new", 3, ZKE_OPEN_ACL, ZKE_EPHEMERAL,
                    &t.out.path, &t.out.stat);
}

static int call_set_mine(void) {
  return zke_set(t.z, "/t/mine", "new", 3, -1, &t.out.stat);
}

/* Fill the write-ahead log so far that the next change runs a checkpoint.  The
 * other session is opened last, since it would run it. */
static void fill_log(void) {
  make(t.z, "/big", sizeof bytes, ZKE_PERSISTENT);
  for (int i = 0; i < 6; i++)
    must_ok(zke_set(t.z, "/big", bytes, sizeof bytes, -1, NULL));
  open_other();
}

static int call_checkpoint(void) {
  return zke_set(t.z, "/big", bytes, sizeof bytes, -1, &t.out.stat);
}

/* ---- reads ---- */

static zke_watch_fn reader(void) { return t.c->mode ? note : NULL; }

static int call_exists(void) {
  return zke_exists(t.z, "/t/large", reader(), &t.seen, &t.out.stat);
}

/* The tick is due, and a check that the session still exists. */
static int call_exists_late(void) {
  seam_pass(2000);
  return call_exists();
}

static int call_exists_missing(void) {
  return zke_exists(t.z, "/t/none", reader(), &t.seen, &t.out.stat);
}

static int get(const char *path) {
  return zke_get(t.z, path, reader(), &t.seen, &t.out.data, &t.out.len,
                 &t.out.stat);
}

static int call_get_small(void) { return get("/t/small"); }
static int call_get_large(void) { return get("/t/large"); }
static int call_get_null(void) { return get("/t/null"); }
static int call_get_secret(void) { return get("/t/secret"); }
static int call_get_ephemeral(void) { return get("/t/eph"); }

static int call_get_chroot(void) { return get("/small"); }

static int call_children(void) {
  return zke_children(t.z, "/t/dir", reader(), &t.seen, &t.out.names,
                      &t.out.stat);
}

static int call_count(void) { return zke_count(t.z, "/t", &t.out.number); }
static int call_count_all(void) { return zke_count(t.z, "/", &t.out.number); }

static int call_usage(void) {
  return zke_usage(t.z, "/t", NULL, &t.out.number);
}

static int call_ephemerals(void) {
  return zke_ephemerals(t.z, zke_session_id(other), NULL, &t.out.names);
}

static int call_sync(void) { return zke_sync(t.z, "/t"); }

/* ---- several operations ---- */

static int call_multi(void) {
  zke_op ops[3];
  zke_op_create(&ops[0], "/t/dir/new-", bytes, LARGE, ZKE_OPEN_ACL,
                ZKE_PERSISTENT_SEQUENTIAL);
  zke_op_set(&ops[1], "/t/small", "new", 3, 0);
  zke_op_delete(&ops[2], "/t/large", -1);
  return zke_multi(t.z, ops, 3, t.out.results);
}

/* Only the last operation shows that this must be synced. */
static int call_multi_late(void) {
  zke_op ops[3];
  zke_op_check(&ops[0], "/t/dir", 0);
  zke_op_delete(&ops[1], "/t/small", -1);
  zke_op_set(&ops[2], "/t/large", "new", 3, -1);
  return zke_multi(t.z, ops, 3, t.out.results);
}

/* The paths become longer than the first allocation. */
static int call_multi_chroot(void) {
  static char deep[200] = "/dir/a";
  zke_op ops[2];
  zke_op_check(&ops[0], "/dir", -1);
  memset(deep + strlen("/dir/a"), 'a', sizeof deep - strlen("/dir/a") - 1);
  zke_op_create(&ops[1], deep, bytes, 3, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  return zke_multi(t.z, ops, 2, t.out.results);
}

static int call_multi_refused(void) {
  zke_op ops[3];
  zke_op_create(&ops[0], "/t/new", "x", 1, ZKE_OPEN_ACL, ZKE_EPHEMERAL);
  zke_op_check(&ops[1], "/t/none", -1);
  zke_op_delete(&ops[2], "/t/small", -1);
  return zke_multi(t.z, ops, 3, t.out.results);
}

/* The same by single calls, with a watch on one of them. */
static int batch_of_changes(zke *z, void *context) {
  static char inside[] = "inside";
  (void)context;
  int rc = zke_create(z, "/t/dir/new-", bytes, LARGE, ZKE_OPEN_ACL,
                      ZKE_PERSISTENT_SEQUENTIAL, NULL, NULL);
  if (rc == ZKE_OK)
    rc = zke_get(z, "/t/small", note_more, inside, NULL, NULL, NULL);
  if (rc == ZKE_OK) rc = zke_set(z, "/t/small", "new", 3, 0, NULL);
  if (rc == ZKE_OK) rc = zke_children(z, "/t", NULL, NULL, NULL, NULL);
  if (rc == ZKE_OK && zke_delete(z, "/t/dir", -1) == ZKE_OK) rc = ZKE_BROKEN;
  if (rc == ZKE_OK) rc = zke_delete(z, "/t/large", -1);
  return rc == ZKE_OK ? t.c->rc : rc;
}

static int call_batch(void) { return zke_batch(t.z, batch_of_changes, NULL); }

/* Ephemerals only: not synced. */
static int batch_of_ephemerals(zke *z, void *context) {
  (void)context;
  int rc =
      zke_create(z, "/t/e", bytes, 5, ZKE_OPEN_ACL, ZKE_EPHEMERAL, NULL, NULL);
  if (rc == ZKE_OK) rc = zke_set(z, "/t/mine", bytes, LARGE, -1, NULL);
  if (rc == ZKE_OK) rc = zke_delete(z, "/t/mine", -1);
  return rc;
}

static int call_batch_light(void) {
  return zke_batch(t.z, batch_of_ephemerals, NULL);
}

static int call_multi_read(void) {
  zke_op ops[3];
  zke_op_get(&ops[0], "/t/large");
  zke_op_children(&ops[1], "/t/dir", NULL, 0);
  zke_op_get(&ops[2], "/t/none");
  return zke_multi_read(t.z, ops, 3, t.out.results);
}

static int call_multi_read_secret(void) {
  zke_op ops[3];
  zke_op_get(&ops[0], "/t/secret");
  zke_op_children(&ops[1], "/t/secret", NULL, 0);
  zke_op_get(&ops[2], "/t/null");
  return zke_multi_read(t.z, ops, 3, t.out.results);
}

/* ---- the program's own SQL, and the history ---- */

/* For a function in a transaction; its own row is not compared. */
static int write_row(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  return sqlite3_exec(db,
                      "CREATE TABLE IF NOT EXISTS mine(a);INSERT INTO mine "
                      "VALUES(zeroblob(3000));SELECT * FROM mine",
                      NULL, NULL, NULL);
}

/* Turn SQLite's code, which such a function returns, into the library's. */
static int as_result(int rc) {
  switch (rc < 0 ? 0 : rc & 0xff) {
    case SQLITE_OK:
      return rc;
    case SQLITE_NOMEM:
      return ZKE_NOMEM;
    case SQLITE_FULL:
      return ZKE_FULL;
    case SQLITE_BUSY:
      return ZKE_OPERATIONTIMEOUT;
    default:
      return ZKE_SYSTEMERROR;
  }
}

static int call_multi_sql(void) {
  zke_op ops[3];
  zke_op_set(&ops[0], "/t/small", bytes, 3, -1);
  zke_op_sql(&ops[1], write_row, NULL);
  zke_op_create(&ops[2], "/t/dir/row", bytes, 3, ZKE_OPEN_ACL, ZKE_PERSISTENT);
  return as_result(zke_multi(t.z, ops, 3, NULL));
}

static int read_rows(sqlite3 *db, int64_t zxid, void *context) {
  (void)zxid, (void)context;
  return sqlite3_exec(db, "SELECT * FROM zke_tokens", NULL, NULL, NULL);
}

static int call_multi_read_sql(void) {
  zke_op ops[2];
  zke_op_result results[2] = {{0}};
  zke_op_sql(&ops[0], read_rows, NULL);
  zke_op_get(&ops[1], "/t/large");
  int rc = zke_multi_read(t.z, ops, 2, results);
  if (rc == ZKE_OK) rc = as_result(results[0].rc);
  zke_results_clear(results, 2);
  return rc;
}

static int call_history_keep(void) { return zke_history_keep(t.z, 10000, 0); }
static int call_history_end(void) { return zke_history_keep(t.z, 0, 0); }
static void keep_history(void) { must_ok(zke_history_keep(t.z, 10000, 0)); }
static void keep_none(void) { must_ok(zke_history_keep(t.z, 0, 0)); }

static void have_history(void) {
  keep_none(); /* a point begins with a new history */
  keep_history();
  for (int i = 0; i < 9; i++) must_ok(zke_set(t.z, "/t/dir", "x", 1, -1, NULL));
}

/* If the history cannot begin for lack of memory, only that call is undone: the
 * change after it records nothing. */
static int keep_and_set(zke *z, void *context) {
  (void)context;
  int rc = zke_history_keep(z, 10000, 0);
  if (rc != ZKE_OK && rc != ZKE_NOMEM) return rc;
  return zke_set(z, "/t/small", "new", 3, -1, NULL);
}

static int call_batch_history(void) {
  return zke_batch(t.z, keep_and_set, NULL);
}

/* ---- access control lists ---- */

static int call_add_auth(void) {
  return zke_add_auth(t.z, "digest", "somebody:else", 13);
}

static int call_vouch(void) { return zke_vouch(t.z, "sasl", "somebody"); }

static int call_add_auth_unknown(void) {
  return zke_add_auth(t.z, "carrier-pigeon", "x", 1);
}

static int call_get_acl(void) {
  return zke_get_acl(t.z, "/t/secret", &t.out.acls, &t.out.stat);
}

/* Readable by all, so that the digest is shown masked. */
static void show_secret(void) {
  zke_acl entries[] = {{ZKE_PERM_READ, "world", "anyone"},
                       {ZKE_PERM_ALL, "auth", ""}};
  must_ok(zke_set_acl(other, "/t/secret", -1, &(zke_acls){2, entries}, NULL));
}

static int call_set_acl(void) {
  return zke_set_acl(t.z, "/t/small", 0, ZKE_CREATOR_ALL_ACL, NULL);
}

/* ---- watches ---- */

static int call_add_watch(void) {
  return zke_add_watch(t.z, "/t/dir", t.c->mode, note, &t.seen);
}

static void watch_recursively(void) {
  must_ok(zke_add_watch(t.z, "/t/dir", ZKE_WATCH_PERSISTENT_RECURSIVE, note,
                        &t.seen));
}

static int call_set_watch(void) {
  return zke_set_watch(t.z, "/t/dir", ZKE_WATCH_CHILD, INT64_MAX, note,
                       &t.seen);
}

/* The node has changed since, so the watcher must get an event. */
static int call_set_watch_missed(void) {
  return zke_set_watch(t.z, "/t/small", ZKE_WATCH_DATA, 0, note, &t.seen);
}

static int call_remove_watch(void) {
  return zke_remove_watch(t.z, "/t/dir", ZKE_WATCH_ANY, note, &t.seen);
}

static void watch_dir(void) {
  watch("/t/dir");
  watch_recursively();
}

static int call_remove_all(void) {
  return zke_remove_watch(t.z, "/t/dir", ZKE_WATCH_ANY, NULL, NULL);
}

static int call_set_watcher(void) {
  return zke_set_watcher(t.z, note, &t.seen);
}

/* ---- waiting ---- */

static int call_fd(void) { return zke_fd(t.z, &t.out.fd); }

static int call_next_deadline(void) {
  int64_t deadline = -1;
  int rc = zke_next_deadline(t.z, &deadline);
  if (rc == ZKE_OK) t.out.number = deadline >= 0;
  return rc;
}

static int call_dispatch(void) { return zke_dispatch(t.z, &t.out.count); }

/* The tick is due: it verifies files, probes sessions, and sweeps. */
static int call_dispatch_late(void) {
  seam_pass(2000);
  return call_dispatch();
}

static int call_wait(void) { return zke_wait(t.z, zke_now(t.z) + 5000); }

static void one_event(void) {
  watch("/t/small");
  other_sets("/t/small");
}

static void owe_an_event(void) { must_ok(call_set_watch_missed()); }

/* More watchers of one path than fit into the first allocation for calls. */
static void many_watchers(void) {
  static char names[7][2] = {"a", "b", "c", "d", "e", "f", "g"};
  for (int i = 0; i < 7; i++)
    must_ok(zke_get(t.z, "/t/small", note_more, names[i], NULL, NULL, NULL));
  other_sets("/t/small");
}

static void many_events(void) {
  watch_recursively();
  make(other, "/t/dir/c", LARGE, ZKE_PERSISTENT);
  other_sets("/t/dir/a");
  must_ok(zke_delete(other, "/t/dir/b", -1));
}

static void secret_event(void) {
  identify();
  watch("/t/secret");
  other_sets("/t/secret");
}

/* With an event_limit of 2. */
static void too_many_events(void) {
  watch_recursively();
  many_watchers();
  for (int i = 0; i < 3; i++) other_sets("/t/dir/a");
}

/* With an event_limit of 2: the next event is one too many. */
static void full_queue(void) {
  watch_recursively();
  for (int i = 0; i < 2; i++) other_sets("/t/dir/a");
}

static void expire_me(void) {
  watch("/t/small");
  must_ok(zke_expire(other, zke_session_id(t.z)));
}

/* A session of another store, whose node is watched. */
static void watch_the_dying(void) {
  t.dead = open_with(t.name, &side_dead);
  make(t.dead, "/t/dead", 1, ZKE_EPHEMERAL);
  watch("/t/dead");
}

/* Release the lock and the FIFO, as the kernel does when a process dies.  The
 * descriptors' numbers stay valid for zke_close(). */
static void die(void) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  must(null >= 0 && side_dead.life > 0 && side_dead.fifo[1] > 0, "die");
  dup2(null, side_dead.fifo[0]);
  dup2(null, side_dead.fifo[1]);
  dup2(null, side_dead.life);
  close(null);
}

static int call_dispatch_death(void) {
  die();
  return call_dispatch();
}

static int call_dispatch_death_late(void) {
  die();
  return call_dispatch_late();
}

static int call_wait_death(void) {
  die();
  return call_wait();
}

static void overdue_ttl(void) {
  must_ok(zke_create_ttl(other, "/t/ttl", bytes, LARGE, ZKE_OPEN_ACL,
                         ZKE_PERSISTENT_WITH_TTL, 1000, NULL, NULL));
  watch("/t/ttl");
}

/* With a container_ms of 1, which the other store does not have. */
static void emptied_container(void) {
  make(other, "/t/box", 1, ZKE_CONTAINER);
  make(other, "/t/box/x", 1, ZKE_PERSISTENT);
  must_ok(zke_delete(other, "/t/box/x", -1));
  watch("/t/box");
}

/* ---- light sessions, and kept ones ---- */

static unsigned char kept_password[16];

static void open_light_on(zke *z, int64_t timeout_ms) {
  zke_options o = {
      .size = sizeof o, .flags = ZKE_OPEN_LIGHT, .timeout_ms = timeout_ms};
  must_ok(zke_open_session(z, &o, &t.victim));
  make(t.victim, "/t/victim", 1, ZKE_EPHEMERAL);
  if (!timeout_ms) return;
  kept_id = zke_session_id(t.victim);
  must_ok(zke_password(t.victim, kept_password));
}

static void open_kept(void) { open_light_on(t.z, 60000); }
static void open_kept_elsewhere(void) { open_light_on(other, 60000); }

static void leave_detached(void) {
  open_kept();
  must_ok(zke_detach(t.victim));
  t.victim = NULL;
}

/* Disable the fault, let t.z's store do what it could not, and keep the
 * failure's sentence. */
static int settle(int rc) {
  char why[512];
  snprintf(why, sizeof why, "%s", zke_errmsg());
  fault.armed = false;
  heap.fail_at = heap.fail_all = 0;
  for (int i = 0; i < 3; i++) {
    seam_pass(1100);
    zke_dispatch(t.z, NULL);
  }
  return zke_fail(rc, "%s", why);
}

static int open_with_flags(unsigned flags, int64_t timeout_ms) {
  zke_options o = {.size = sizeof o, .flags = flags, .timeout_ms = timeout_ms};
  int rc = zke_open_session(t.z, &o, &t.opened);
  if (rc == ZKE_OK) kept_id = zke_session_id(t.opened);
  return rc == ZKE_CONNECTIONLOSS && timeout_ms == 0 ? settle(rc) : rc;
}

static int call_open_light(void) { return open_with_flags(ZKE_OPEN_LIGHT, 0); }

/* If it is unknown whether the session moved, try again. */
static int call_attach(void) {
  int rc = zke_attach(t.z, kept_id, kept_password, NULL, &t.opened);
  if (rc != ZKE_CONNECTIONLOSS) return rc;
  settle(rc);
  return zke_attach(t.z, kept_id, kept_password, NULL, &t.opened);
}

/* The handle is gone whatever the result; the rest is done later. */
static int call_detach(void) {
  if (!t.victim) return settle(ZKE_OK);
  zke *z = t.victim;
  t.victim = NULL;
  return zke_detach(z);
}

static int call_close_light(void) {
  if (!t.victim) return settle(ZKE_OK);
  zke *z = t.victim;
  t.victim = NULL;
  return zke_close(z);
}

static int call_rearm(void) { return zke_rearm(t.z); }

static void open_light(void) { open_light_on(t.z, 0); }

/* Events for two light sessions, which reach the carrier. */
static void light_events(void) {
  open_light();
  must_ok(zke_get(t.victim, "/t/small", note, &t.seen, NULL, NULL, NULL));
  other_sets("/t/small");
}

/* A kept session whose host has been silent for too long. */
static void kept_is_over(void) {
  open_light_on(t.z, 1000);
  must_ok(zke_exists(t.victim, "/t/small", note, &t.seen, NULL));
  must_ok(zke_dispatch(t.z, NULL));
  seam_pass(1400);
}

/* ---- inspection ---- */

static int call_sessions(void) {
  return zke_sessions(t.z, -1, &t.out.sessions);
}
static int call_watches(void) { return zke_watches(t.z, &t.out.watches); }
static int call_check(void) { return zke_check(t.z, NULL, NULL); }
static int call_test_fail(void) {
  return zke_test_fail(t.z, ZKE_TEST_FAIL_BEFORE, 100);
}

static void watch_ephemeral(void) { watch("/t/eph"); }

/* ---- the table ---- */

#define CALL(f) .call = call_##f
#define READS .with = {.flags = ZKE_OPEN_READONLY}, .flags = FILE_ONLY

static const fault_case cases[] = {
    {"open a missing file", CALL(open),
     .flags = OPENS | FIRST | FRESH | FILE_ONLY},
    {"open in a program's database", CALL(open),
     .flags = OPENS | FIRST | FRESH | FILE_ONLY,
     .with = {.flags = ZKE_OPEN_HOST}, .most = 200},
    {"open a file", CALL(open), .flags = OPENS | FIRST | FILE_ONLY},
    {"open a program's database", CALL(open), .prepare = become_the_programs,
     .flags = OPENS | FIRST | FILE_ONLY},
    {"open with a lease", CALL(open), .flags = OPENS | FIRST | FILE_ONLY,
     .with = {.lease_ms = 60000, .chroot = "/t", .identity = "me"}},
    {"open read-only", CALL(open), .flags = OPENS | FIRST | FILE_ONLY,
     .with = {.flags = ZKE_OPEN_READONLY}},
    {"open beside an orphan", CALL(open), .prepare = leave_orphan,
     .flags = OPENS | FIRST | FRESH | FILE_ONLY, .most = 30},
    {"open :memory:", CALL(open), .flags = OPENS | FIRST | MEMORY_ONLY,
     .most = 3000},
    {"open a further session", CALL(open_session), .flags = OPENS},
    {"close", CALL(close), .prepare = be_busy, .flags = CLOSES},
    {"close the last", CALL(close), .prepare = leave_something,
     .flags = CLOSES | FRESH | FILE_ONLY},
    {"close read-only", CALL(close), .flags = CLOSES | FILE_ONLY,
     .with = {.flags = ZKE_OPEN_READONLY}},
    {"expire another", CALL(expire_victim), .prepare = open_victim},
    {"expire oneself", CALL(expire_self), .prepare = own_node, .flags = ENDS},
    {"compact", CALL(compact), .flags = FILE_ONLY, .most = 100},
    {"keep alive", CALL(keepalive), .flags = FILE_ONLY},
    {"open a light session", CALL(open_light), .flags = OPENS},
    {"close a light session", CALL(close_light), .prepare = open_light,
     .flags = TRIES},
    {"attach", CALL(attach), .prepare = open_kept_elsewhere, .flags = OPENS},
    {"detach", CALL(detach), .prepare = open_kept, .flags = TRIES},
    {"rearm", CALL(rearm), .prepare = leave_detached},
    {"dispatch to a light session", CALL(dispatch), .prepare = light_events,
     .flags = TRIES},
    {"dispatch, a timeout", CALL(dispatch), .prepare = kept_is_over,
     .flags = TRIES},

    {"create persistent", CALL(create), .mode = ZKE_PERSISTENT, .len = 5},
    {"create ephemeral", CALL(create), .mode = ZKE_EPHEMERAL, .len = 5},
    {"create ephemeral, after persistent", CALL(create), .prepare = change_tree,
     .mode = ZKE_EPHEMERAL, .len = 5},
    {"create sequential", CALL(create), .mode = ZKE_PERSISTENT_SEQUENTIAL,
     .len = 5},
    {"create ephemeral sequential", CALL(create),
     .mode = ZKE_EPHEMERAL_SEQUENTIAL, .len = 5},
    {"create container", CALL(create), .mode = ZKE_CONTAINER, .len = 5},
    {"create with ttl", CALL(create), .mode = ZKE_PERSISTENT_WITH_TTL,
     .len = 5},
    {"create sequential with ttl", CALL(create),
     .mode = ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, .len = 5},
    {"create large persistent", CALL(create), .mode = ZKE_PERSISTENT,
     .len = LARGE},
    {"create large ephemeral", CALL(create), .mode = ZKE_EPHEMERAL,
     .len = LARGE},
    {"create large sequential", CALL(create), .mode = ZKE_PERSISTENT_SEQUENTIAL,
     .len = LARGE},
    {"create large ephemeral sequential", CALL(create),
     .mode = ZKE_EPHEMERAL_SEQUENTIAL, .len = LARGE},
    {"create large container", CALL(create), .mode = ZKE_CONTAINER,
     .len = LARGE},
    {"create large with ttl", CALL(create), .mode = ZKE_PERSISTENT_WITH_TTL,
     .len = LARGE},
    {"create large sequential with ttl", CALL(create),
     .mode = ZKE_PERSISTENT_SEQUENTIAL_WITH_TTL, .len = LARGE},
    {"create below a chroot", CALL(create), .mode = ZKE_PERSISTENT_SEQUENTIAL,
     .len = 5, .with = {.chroot = "/t"}, .flags = LOSES},
    {"create with an acl", CALL(create_secret), .prepare = identify},
    {"create one that exists", CALL(create_taken), .rc = ZKE_NODEEXISTS},
    {"create, all durable", CALL(create), .mode = ZKE_EPHEMERAL, .len = 5,
     .with = {.durability = ZKE_DURABLE_ALL}, .flags = FILE_ONLY},
    {"create, recovering", CALL(create), .prepare = break_commit,
     .mode = ZKE_PERSISTENT, .len = 5, .flags = FILE_ONLY | LOSES},
    {"get, recovering", CALL(get_large), .prepare = break_commit,
     .flags = FILE_ONLY | LOSES},
    {"close, recovering", CALL(close), .prepare = break_commit,
     .flags = CLOSES | FILE_ONLY | LOSES},
    {"delete small", CALL(delete_small)},
    {"delete large", CALL(delete_large)},
    {"delete an ephemeral", CALL(delete_mine), .prepare = own_node},
    {"delete one with children", CALL(delete_full), .rc = ZKE_NOTEMPTY},
    {"set small to small", CALL(set_small), .len = 3},
    {"set small to large", CALL(set_small), .len = LARGE},
    {"set large to small", CALL(set_large), .len = 3},
    {"set large to larger", CALL(set_large), .len = 10000},
    {"set an ephemeral", CALL(set_mine), .prepare = own_node},
    {"create in a container", CALL(create_boxed), .prepare = emptied_container,
     .most = 500},
    {"set into a full queue", CALL(set_watched), .prepare = full_queue,
     .most = 500, .with = {.event_limit = 2}},
    {"set with a checkpoint", CALL(checkpoint), .prepare = fill_log,
     .flags = FRESH | FILE_ONLY, .most = 20},

    {"exists", CALL(exists)},
    {"exists, watch", CALL(exists), .mode = 1},
    {"exists, after a while", CALL(exists_late), .most = 500},
    {"exists, missing", CALL(exists_missing), .rc = ZKE_NONODE},
    {"exists, missing, watch", CALL(exists_missing), .mode = 1,
     .rc = ZKE_NONODE},
    {"get small", CALL(get_small)},
    {"get large", CALL(get_large)},
    {"get null", CALL(get_null)},
    {"get with an acl", CALL(get_secret), .prepare = identify},
    {"get with an acl, watch", CALL(get_secret), .prepare = identify,
     .mode = 1},
    {"get without permission", CALL(get_secret), .rc = ZKE_NOAUTH},
    {"get, watch", CALL(get_large), .mode = 1},
    {"get another's ephemeral, watch", CALL(get_ephemeral), .mode = 1},
    {"get below a chroot", CALL(get_chroot), .with = {.chroot = "/t"}},
    {"children", CALL(children)},
    {"children, watch", CALL(children), .mode = 1},
    {"count", CALL(count)},
    {"count all", CALL(count_all)},
    {"usage", CALL(usage)},
    {"ephemerals", CALL(ephemerals)},
    {"sync", CALL(sync)},
    {"read-only exists", CALL(exists), READS},
    {"read-only get", CALL(get_large), READS},
    {"read-only children", CALL(children), READS},
    {"read-only count", CALL(count), READS},
    {"read-only ephemerals", CALL(ephemerals), READS},
    {"read-only multi_read", CALL(multi_read), READS},
    {"read-only multi_read with SQL", CALL(multi_read_sql), READS},
    {"read-only sessions", CALL(sessions), READS},
    {"read-only check", CALL(check), .with = {.flags = ZKE_OPEN_READONLY},
     .flags = FILE_ONLY | CHECKS},

    {"multi", CALL(multi)},
    {"multi, synced late", CALL(multi_late)},
    {"multi below a chroot", CALL(multi_chroot), .with = {.chroot = "/t"}},
    {"multi, refused", CALL(multi_refused), .rc = ZKE_NONODE},
    {"batch", CALL(batch)},
    {"batch of ephemerals", CALL(batch_light), .prepare = own_node},
    {"batch, undone", CALL(batch), .rc = ZKE_CANCELLED},
    {"multi_read", CALL(multi_read)},
    {"multi_read with an acl", CALL(multi_read_secret), .prepare = identify},
    {"multi with SQL", CALL(multi_sql), .most = 300},
    {"multi_read with SQL", CALL(multi_read_sql), .flags = FILE_ONLY},
    {"history_keep", CALL(history_keep), .prepare = keep_none, .most = 300},
    {"set, with a history", CALL(set_small), .prepare = have_history, .len = 3},
    {"batch that begins a history", CALL(batch_history), .prepare = keep_none,
     .most = 300},
    {"history_keep, none", CALL(history_end), .prepare = keep_history,
     .most = 300},
    {"add_auth", CALL(add_auth), .prepare = identify},
    {"vouch", CALL(vouch)},
    {"add_auth, unknown scheme", CALL(add_auth_unknown), .rc = ZKE_AUTHFAILED,
     .flags = ENDS},
    {"get_acl", CALL(get_acl), .prepare = identify},
    {"get_acl, masked", CALL(get_acl), .prepare = show_secret},
    {"get_acl, refused", CALL(get_acl), .rc = ZKE_NOAUTH},
    {"set_acl", CALL(set_acl), .prepare = identify},

    {"add_watch", CALL(add_watch), .mode = ZKE_WATCH_PERSISTENT},
    {"add_watch, recursive", CALL(add_watch),
     .mode = ZKE_WATCH_PERSISTENT_RECURSIVE},
    {"add_watch, another mode", CALL(add_watch), .prepare = watch_recursively,
     .mode = ZKE_WATCH_PERSISTENT},
    {"set_watch", CALL(set_watch)},
    {"set_watch, missed", CALL(set_watch_missed)},
    {"remove_watch", CALL(remove_watch), .prepare = watch_dir},
    {"remove_watch_all", CALL(remove_all), .prepare = watch_dir},
    {"set_watcher", CALL(set_watcher)},

    {"fd", CALL(fd)},
    {"next_deadline", CALL(next_deadline), .prepare = watch_ephemeral},
    {"dispatch nothing", CALL(dispatch), .flags = TRIES},
    {"dispatch a tick", CALL(dispatch_late), .flags = TRIES},
    {"dispatch an event", CALL(dispatch), .prepare = one_event, .flags = TRIES},
    {"dispatch what is owed", CALL(dispatch), .prepare = owe_an_event,
     .flags = TRIES},
    {"dispatch to many", CALL(dispatch), .prepare = many_watchers,
     .flags = TRIES},
    {"dispatch many", CALL(dispatch), .prepare = many_events, .flags = TRIES},
    {"dispatch many and trim", CALL(dispatch), .prepare = many_events,
     .flags = TRIES, .with = {.event_limit = 5}},
    {"dispatch with an acl", CALL(dispatch), .prepare = secret_event,
     .flags = TRIES},
    {"dispatch an overflow", CALL(dispatch), .prepare = too_many_events,
     .flags = TRIES,
     .with = {.event_limit = 2, .watcher = note, .watcher_context = &t.seen}},
    {"dispatch the end", CALL(dispatch), .prepare = expire_me,
     .flags = TRIES | ENDS,
     .with = {.watcher = note, .watcher_context = &t.seen}},
    {"dispatch a death", CALL(dispatch_death), .prepare = watch_the_dying,
     .flags = TRIES | FILE_ONLY},
    {"dispatch a death and a tick", CALL(dispatch_death_late),
     .prepare = watch_the_dying, .flags = TRIES | FILE_ONLY},
    {"dispatch and sweep a ttl", CALL(dispatch_late), .prepare = overdue_ttl,
     .flags = TRIES},
    {"dispatch and sweep a container", CALL(dispatch_late),
     .prepare = emptied_container, .flags = TRIES, .with = {.container_ms = 1}},
    {"wait for an event", CALL(wait), .prepare = one_event, .flags = TRIES},
    {"wait for a death", CALL(wait_death), .prepare = watch_the_dying,
     .flags = TRIES | FILE_ONLY},
    {"wait in vain", CALL(wait), .rc = ZKE_OPERATIONTIMEOUT},

    {"sessions", CALL(sessions)},
    {"watches", CALL(watches), .prepare = watch_ephemeral},
    {"check", CALL(check), .flags = CHECKS},
    {"test_fail", CALL(test_fail)},
};
enum { CASES = sizeof cases / sizeof *cases };
_Static_assert(CASES <= MOST_CASES, "room for each case");

/* ------------------------------------------------------------------------
 * The loop
 * --------------------------------------------------------------------- */

/* Run the case with a fault; false if it ended before the fault. */
static bool run_with(const fault_case *c, bool memory, const char *name,
                     long at, int variant, enum spread spread) {
  fault.at = at;
  fault.variant = variant;
  fault.spread = spread;
  snprintf(point, sizeof shared->stands[0][0], "%s (%s, %s, step %ld%s, %d)",
           c->name, kind_names[fault.kind], memory ? "memory" : "file", at,
           spread_names[spread], variant);
  run_point(c, memory, name);
  shared->points[fault.kind] += fault.reached;
  return fault.reached;
}

/* The faults of one step; false if the case has no such step. */
static bool run_step(const fault_case *c, bool memory, const char *name,
                     long at) {
  bool alike = fault.kind == HEAP || fault.kind == SQLITE; /* one function */
  int variant = 0;
  do {
    if (!run_with(c, memory, name, at, variant, ONCE)) return false;
    if (!alike && (variant == 0 || most_alike() == LONG_MAX))
      run_with(c, memory, name, at, variant, SAME);
  } while (++variant < fault.variants);
  if (most_alike() != LONG_MAX && at % 3 != 0) return true;
  return run_with(c, memory, name, at, 0, ALL);
}

/* The limit on the steps of a case.  If similar ones are tried too, SQLite has
 * too many allocations; then neighbouring cases try different ones. */
static long most_steps(const fault_case *c) {
  const char *most = getenv("FAULT_MOST");
  if (most) return atol(most) > 0 ? atol(most) : LONG_MAX;
  if (c->most) return c->most;
  return fault.kind == SQLITE && most_alike() == LONG_MAX ? 60 : 2000;
}

/* The undisturbed run's steps at which to try faults; returns their number. */
static long choose_steps(long *chosen) {
  long count = 0;
  for (long at = 1; at <= fault.steps && at < MOST_STEPS; at++)
    if (!dull[at]) chosen[count++] = at;
  return count;
}

/* Run a case without a fault, to count its steps, and then with a fault at each
 * of them, or at as many as wanted. */
static void run_case(const fault_case *c, bool memory, const char *name) {
  static long chosen[MOST_STEPS];
  reference.known = false;
  memset(dull, 0, sizeof dull);
  run_with(c, memory, name, 0, 0, ONCE);
  long count = choose_steps(chosen);
  long stride = (count - 1) / most_steps(c) + 1;
  if (stride == 1 && most_alike() != LONG_MAX) stride = test_stride(SAMPLED);
  if (stride > count) stride = count;
  shared->steps[fault.kind] += fault.steps;
  for (long i = count ? (c - cases) % stride : 0; i < count; i += stride)
    if (!run_step(c, memory, name, chosen[i])) break;
}

/* Should a case that runs both on a file and in memory run on this one?  A
 * sample runs each case on one of the two, in turns, since the run without a
 * fault takes most of the time. */
static bool takes(enum kind kind, int number, bool memory) {
  return test_stride(2) == 1 || ((number + (int)kind) % 2 == 0) == memory;
}

/* A case with one kind of step, on a file and in memory; nothing is left
 * open. */
static void run_loop(enum kind kind, int number) {
  const fault_case *c = &cases[number];
  const char *only = getenv("FAULT_CASE");
  if (only && !strstr(c->name, only)) return;
  point = shared->stands[kind][number];
  fault.kind = kind;
  int fds = test_fd_count();
  bool file = !(c->flags & MEMORY_ONLY);
  bool memory = !(c->flags & FILE_ONLY) && kind != DISK;
  if (file && (!memory || takes(kind, number, false)))
    run_case(c, false, test_path("fault.db"));
  if (other) close_one(&other);
  if (memory && (!file || takes(kind, number, true))) run_case(c, true, NULL);
  must(disk.files == 0, "%ld files are open", disk.files);
  must(test_fd_count() == fds, "descriptors are left");
  sqlite3_shutdown();
  must(mem_live == 0, "%ld blocks of SQLite's are left", mem_live);
  point[0] = '\0';
}

LIMIT(300);
/* P2, P11: the n-th allocation of the library fails, for each n. */
TEST_LOOP(heap_faults, 0, CASES) { run_loop(HEAP, _i); }
/* … the n-th allocation of SQLite. */
TEST_LOOP(sqlite_faults, 0, CASES) { run_loop(SQLITE, _i); }
/* … the n-th system call of the library. */
TEST_LOOP(system_faults, 0, CASES) { run_loop(SYSTEM, _i); }
/* … the n-th call of SQLite to its files. */
TEST_LOOP(disk_faults, 0, CASES) { run_loop(DISK, _i); }

/* Print where loops stopped, and how many faults there were. */
static void report(void) {
  for (int k = 0; k < KINDS; k++) {
    for (int i = 0; i < CASES; i++) {
      if (shared->stands[k][i][0])
        printf("stopped at: %s\n", shared->stands[k][i]);
    }
    printf("%s: %ld steps, %ld faults\n", kind_names[k], shared->steps[k],
           shared->points[k]);
  }
}

int main(int argc, char **argv) {
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)('a' + i % 23);
  seam_stand();
  mem_install();
  int status = test_main(argc, argv);
  report();
  return status;
}
